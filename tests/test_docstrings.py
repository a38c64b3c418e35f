"""Docstrings: functions of fifteen lines or more have one, so have modules, and public names show a run."""

import ast
import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tapegrad
from tapegrad.help import names
from tapegrad.replay import shipped

PACKAGE = Path(tapegrad.__file__).parent
LONG = 15
MACHINE = {f"{name}.py" for name in shipped.SOURCES}
"""Sources of the shipped machine code, which is of their text to the letter: they change with the machine, not for words."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def undocumented(path: Path) -> list[str]:
    """Long functions of a file without a docstring."""
    tree = parsed(path)
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
        if not ast.get_docstring(parsed(path))
    ]
    assert not silent


WITHOUT_A_RUN = {
    "tapegrad.check.GradientCheck.plot": "draws: the guide's page on checking shows the picture",
    "tapegrad.compiler.Compiled.derived": "for transforms: users write tg.grad(f)",
    "tapegrad.compiler.Compiled.dispatch": "for the native entry: users call the function itself",
    "tapegrad.compiler.Compiled.latest": "the object whose parts `source`, `ir` and `report()` show",
    "tapegrad.compiler.Compiled.program": "likewise, for arguments that are given",
    "tapegrad.compiler.Compiled.sibling": "for transforms: users write tg.compile(g)",
    "tapegrad.dask.grad": "needs dask, which not every environment of the tests has",
    "tapegrad.native.NativeFunction.bind": "for transforms",
    "tapegrad.native.NativeFunction.inspect_types": "prints what Numba's method of this name prints",
    "tapegrad.native.NativeFunction.on_copies": "for transforms",
    "tapegrad.native.NativeFunction.parallel_diagnostics": "prints what Numba's method of this name prints",
    "tapegrad.native.NativeFunction.value_and_gradient": "for transforms",
    "tapegrad.native.NativeFunction.variant": "for transforms",
    "tapegrad.optim.Optimizer.update": "subclasses write it: the run of the class does",
}
"""Public names that no run shows, and why."""


def runs(doc: str | None) -> str:
    """The statements of the runs in a docstring."""
    return "".join(e.source for e in doctest.DocTestParser().get_examples(doc or ""))


def test_public_names_show_a_run():
    """Each name that is not NumPy's, SciPy's or in place PyTorch's is used in a run of its docstring, or of its class's."""
    bare = set()
    for place in names.PLACES:
        holder = names.holder_of(place)
        of_class = runs(holder.__doc__) if isinstance(holder, type) else ""
        for name in names.place(place).own:
            value = inspect.getattr_static(holder, name, None)
            value = getattr(holder, name) if value is None else value
            called = callable(value) or inspect.isdatadescriptor(value)
            if called and not runs(value.__doc__) and not re.search(rf"\.{name}\b", of_class):
                bare.add(f"{place}.{name}")
    assert bare == WITHOUT_A_RUN.keys(), bare ^ WITHOUT_A_RUN.keys()
