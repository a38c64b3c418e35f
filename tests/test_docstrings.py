"""Docstrings: functions of fifteen lines or more have one, and so have modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tapegrad
from tapegrad.replay import shipped

PACKAGE = Path(tapegrad.__file__).parent
LONG = 15
MACHINE = {f"{name}.py" for name in shipped.SOURCES}
"""Sources of the shipped machine code, which is of their text to the letter: they change with the machine, not for words."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def undocumented(path: Path) -> list[str]:
    """Long functions of a file without a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.parent.name == "replay" and path.name in MACHINE:
        return []
    return [
        f"{path.relative_to(PACKAGE)}:{f.lineno} {f.name}"
        for f in functions(tree)
        if (f.end_lineno or 0) - f.lineno + 1 >= LONG and not ast.get_docstring(f, clean=False)
    ]


def test_long_functions_have_docstrings():
    missing = [told for path in sorted(PACKAGE.rglob("*.py")) for told in undocumented(path)]
    assert not missing, "\n".join(missing)


def test_modules_begin_with_their_idea():
    silent = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent
