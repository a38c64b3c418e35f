"""Settings of the website: `sphinx-build -W notebooks build/site` makes it of the notebooks, the guide and the docstrings.

The notebooks are committed executed, so nothing runs here; `pytest --nbmake notebooks` runs them.
"""

import inspect
import re
from pathlib import Path

from docutils import nodes

import tapegrad
from tapegrad.help import names

project = "tapegrad"
author = "tapegrad developers"
copyright = "2026, tapegrad developers"  # the name that Sphinx asks for
release = tapegrad.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = "tapegrad"
html_static_path = ["site.css"]
html_css_files = ["site.css"]

nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
# Docstrings are Markdown-like prose with `code`; a single backquote is code, not a reference.
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

pygments_style = "friendly"
pygments_dark_style = "monokai"


def write_reference(app: object) -> None:
    """Write a page for each public place, from the registry that the table of names is made of: no name is typed by hand."""
    folder = Path(__file__).parent / "reference" / "api"
    folder.mkdir(exist_ok=True)
    seen: set[int] = set()
    for place in names.PLACES:
        found = names.place(place)
        # As users write it, and short enough for the side bar.
        title = place.replace("tapegrad", "tg", 1)
        lines = [title, "=" * len(title), "", *escaped([found.summary]), ""]
        holder = names.holder_of(place)
        lines += entries(place, holder, list(found.own), seen)
        for lender, borrowed in found.borrowed.items():
            lines += [f"With the meaning that they have in {lender}:", ""]
            lines += [" ".join(f"``{name}``" for name in borrowed), ""]
            if inspect.ismodule(holder) and holder is not tapegrad:
                told = [name for name in borrowed if has_own_text(getattr(holder, name))]
                lines += entries(place, holder, told, seen)
        page, text = folder / f"{place}.rst", "\n".join(lines)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def entries(place: str, holder: object, public: list[str], seen: set[int]) -> list[str]:
    """A directive for each of these names of a place, functions first; `seen` has the ids of all values that have one."""
    lines: list[str] = []
    for name in sorted(public, key=lambda name: (name[0].isupper(), name)):
        value = inspect.getattr_static(holder, name, None)
        value = getattr(holder, name) if value is None else value
        directive = directive_of(value, holder)
        if directive:
            lines += [f".. {directive}:: {place}.{name}"]
            # What several places offer is indexed where it stands first.
            lines += ["   :no-index:", ""] if id(value) in seen else [""]
            seen.add(id(value))
    return lines


def has_own_text(value: object) -> bool:
    """Whether a name with another library's meaning has a text of its own, which tells what is differentiable: others have one sentence."""
    ours = (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith(
        "tapegrad"
    )
    return ours and not hasattr(value, "primitive") and ">>>" in (value.__doc__ or "")


def directive_of(value: object, within: object) -> str | None:
    """The directive of autodoc for a value of a module or class; None for a module, which has a page of its own or none."""
    if isinstance(value, property):
        return "autoproperty"
    if isinstance(value, type):
        return "autoclass"
    if inspect.ismodule(value):
        return None
    return "automethod" if isinstance(within, type) else "autofunction"


def escaped(lines: list[str]) -> list[str]:
    """Docstrings are prose with `code` and doctests: other signs of reStructuredText, as in |x| and *args, are themselves."""
    lines = [
        f"{line}:"
        if line.endswith(":") and not line.endswith("::") and before_a_block(lines[k + 1 : k + 3])
        else line
        for k, line in enumerate(lines)
    ]
    return [
        line
        if line.lstrip().startswith((">>>", "...")) or line.startswith("    ")
        else "".join(
            part if k % 2 else re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", part)
            for k, part in enumerate(re.split(r"(`+[^`]*`+)", line))
        )
        for line in lines
    ]


def before_a_block(following: list[str]) -> bool:
    """Whether an empty line and an indented one follow, which are shown as they stand."""
    return len(following) == 2 and not following[0] and following[1].startswith("    ")


def as_prose(
    app: object, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    lines[:] = escaped(lines)


def without_last_lines(app: object, document: nodes.document) -> None:
    """Doctests in Markdown end with an empty line, which separates the output from the end of the block; the page needs none."""
    for block in document.findall(nodes.literal_block):
        if block.rawsource == block.astext():  # as it stands, to be highlighted
            block.rawsource = block.rawsource.rstrip("\n")
            block[:] = [nodes.Text(block.rawsource)]


def setup(app: object) -> None:
    app.connect("doctree-read", without_last_lines)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", as_prose)  # type: ignore[attr-defined]
    app.connect("builder-inited", write_reference)  # type: ignore[attr-defined]
