"""What the documentation says is run: the README's Python blocks, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tapegrad

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


def test_readme_blocks() -> None:
    """The README's examples, in order, print what they say."""
    # In a thread of its own, whose tape is empty: entries that other tests' garbage still holds would be shown.
    with ThreadPoolExecutor(1) as pool:
        text = str(ROOT / "README.md")
        result = pool.submit(
            doctest.testfile, text, module_relative=False, optionflags=OPTIONS
        ).result()
    assert result.attempted > 5
    assert result.failed == 0


def test_public_functions_are_documented() -> None:
    """Every public function and class says in its first line what it does."""
    bare = [
        name
        for name, value in vars(tapegrad).items()
        if not name.startswith("_") and callable(value) and not (value.__doc__ or "").strip()
    ]
    assert not bare
