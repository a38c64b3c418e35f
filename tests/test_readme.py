"""What the documentation says is run: the Python blocks of the README and of the guide, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tapegrad
from tapegrad.help import names

ROOT = Path(__file__).parent.parent
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules() -> list[str]:
    """Every module of the package but the command line, which runs when imported as one."""
    found = pkgutil.walk_packages(tapegrad.__path__, "tapegrad.")
    return ["tapegrad", *(m.name for m in found if not m.name.endswith("__main__"))]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name: str) -> None:
    """The runs shown in docstrings print what they say."""
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.failed == 0


@pytest.mark.long
def test_examples_of_generated_functions() -> None:
    """Public names that are made from declarations, which `testmod` does not find, have examples that print what they say."""
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=OPTIONS)
    seen = {t.docstring for name in modules() for t in finder.find(importlib.import_module(name))}
    for place in names.PLACES:
        for public, value in names.public_names(place, names.holder_of(place)):
            doc = value.__doc__ or ""
            ours = hasattr(value, "primitive") or "tapegrad" in str(
                getattr(value, "__module__", "")
            )
            if ours and ">>>" in doc and doc not in seen:
                seen.add(doc)
                full = f"{place}.{public}"
                runner.run(doctest.DocTestParser().get_doctest(doc, {}, full, None, 0))
    assert runner.tries > 400 and runner.failures == 0


PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("notebooks/**/*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page(page: str) -> None:
    """The examples of a page, in order, print what they say; each page stands by itself."""
    # In a thread of its own, whose tape is empty: entries that other tests' garbage still holds would be shown.
    with ThreadPoolExecutor(1) as pool:
        text = str(ROOT / page)
        result = pool.submit(
            doctest.testfile, text, module_relative=False, optionflags=OPTIONS
        ).result()
    assert result.attempted > 5 or page != "README.md"
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page(page: str) -> None:
    """A link to a file of the project names one that is there, and a link to a part of a page one of its headings."""
    path = ROOT / page
    prose = re.sub(r"```.*?```|`[^`\n]*`", "code", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
        name, _, part = target.partition("#")
        file = (path.parent / name) if name else path
        assert file.exists(), target
        if part:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.M)
            anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
            assert part in anchors, target


def test_public_functions_are_documented() -> None:
    """Every public function and class says in its first line what it does."""
    bare = [
        name
        for name, value in vars(tapegrad).items()
        if not name.startswith("_") and callable(value) and not (value.__doc__ or "").strip()
    ]
    assert not bare


# The website, as far as it can be judged without making it.

NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def cells(notebook: Path) -> list[dict]:
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


def test_titles_of_pages() -> None:
    """Each page has one title, with which it begins, and no two have the same."""
    pages = {p: p.read_text(encoding="utf-8") for p in ROOT.glob("notebooks/**/*.md")}
    for notebook in NOTEBOOKS:
        prose = ["".join(c["source"]) for c in cells(notebook) if c["cell_type"] == "markdown"]
        pages[notebook] = "\n\n".join(prose)
    titles = {}
    for page, text in pages.items():
        found = re.findall(
            r"^# .*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M
        )
        if page.name == "changelog.md":  # includes CHANGELOG.md
            continue
        assert len(found) == 1 and text.startswith(found[0]), (page, found)
        assert titles.setdefault(found[0], page) is page
    assert len(titles) > 30


@pytest.mark.parametrize("drawing", sorted(p.name for p in ROOT.glob("notebooks/*.svg")))
def test_colours_of_a_drawing(drawing: str) -> None:
    """A drawing says what it shows, and each of its colours has one of the theme in its place, light and dark."""
    style = (ROOT / "notebooks/site.css").read_text(encoding="utf-8")
    themed = {
        (name, colour)
        for name, rules in re.findall(r"^\.drawing \.(\w+) \{(.*)\}$", style, flags=re.M)
        for colour in re.findall(r"(fill|stroke): var\(--color-", rules)
    }
    root = ElementTree.parse(ROOT / "notebooks" / drawing).getroot()
    assert root[0].tag.endswith("title") and root[0].text
    for element in root.iter():
        for colour in ("fill", "stroke"):
            if element.get(colour, "none") != "none":
                assert (element.get("class"), colour) in themed, element.attrib


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_outputs_of_a_notebook(notebook: Path) -> None:
    """Pictures have a text for those who do not see them; outputs name no warning and no folder of the machine that ran them."""
    for cell in cells(notebook):
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                assert cell["metadata"]["mystnb"]["image"]["alt"], cell["source"][:3]
            text = "".join(output.get("text", []))
            assert output.get("name") != "stderr", text
            assert not re.search(r"\w+Warning:|/(home|root|tmp|Users)/", text), text
