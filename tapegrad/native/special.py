"""SciPy's special functions in native code: the C functions behind `scipy.special`, of numbers, with their declared derivatives.

Numba knows none of them. Here each becomes an overload that calls what SciPy exports (see `replay.named`), in double precision. A
function is registered when a native function names it, or the derivative of another one does; until then nothing of SciPy is loaded.

Generated code calls them by name and is kept on disk: whoever reads it has just generated its text, which registers them. Code of the
user's calls them by address, and Numba keeps none of that: a process that does not know of this module could read it.

Invariant: nothing that is read from disk holds an address of another process, or a name that this one does not know.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from ..llvm import named
from .runtime import SCOPE
from .store import looked_up

PREFIX = "special."

_registered: dict[str, Any] = {}
"""Functions by the text that stands for them in programs."""
_named = ModuleType("special")
"""What generated code calls in their place."""
_carried = ModuleType("special")
"""The same for code on numbers that carry derivatives, which may be numbers of that kind inside."""
_texts: dict[int, str] = {}
"""Texts by the identity of those."""


def text_of(value: Any) -> str | None:
    """The text of a function of SciPy's that native code can call, which is registered from now on; None for anything else."""
    if not isinstance(value, np.ufunc) or "scipy.special" not in sys.modules:
        return _texts.get(id(value))
    text = PREFIX + value.__name__
    if _registered.get(text) is value:
        return text
    if named.symbol_of(value) is None:
        return None
    _register(value)
    _registered[text] = value
    return text


def scope() -> dict[str, Any]:
    """What generated code that calls these functions needs to know; nothing before SciPy's are loaded."""
    return {"special": _named} if "scipy.special" in sys.modules else {}


def carried_scope() -> dict[str, Any]:
    """The same for code on carriers."""
    return {"special": _carried} if "scipy.special" in sys.modules else {}


def of_text(text: str) -> Any:
    """The function that a text stands for."""
    return _registered.get(text)


def _register(ufunc: np.ufunc) -> None:
    """Make a function of SciPy known to compiled code, with its derivative, and to carriers."""
    import_module("tapegrad.special")  # declares derivatives
    SCOPE.update(scope())
    called, text = named.compiled(ufunc, by_name=False), PREFIX + ufunc.__name__
    by_name = named.compiled(ufunc)
    setattr(_named, ufunc.__name__, by_name)
    _texts[id(by_name)] = text
    names = ", ".join(("x", "y", "z", "a3")[: ufunc.nin])
    space: dict[str, Any] = {}
    exec(f"def {ufunc.__name__}({names}):\n    raise NotImplementedError", space)
    stub = space[ufunc.__name__]
    setattr(_carried, ufunc.__name__, stub)
    _overload(ufunc, names, called, text)
    _overload(stub, names, by_name, text)


def _overload(target: Any, names: str, called: Any, text: str) -> None:
    """Make compiled code call this where it calls `target` with numbers, and the function of carriers of that text where it has some."""

    def chosen(*kinds: Any) -> Any:
        if all(isinstance(k, types.Float | types.Integer | types.Boolean) for k in kinds):
            return eval(f"lambda {names}: called({names})", {"called": called})
        from .overloads import of_numbers

        return of_numbers(text, kinds)

    # Numba asks for parameters by name.
    space: dict[str, Any] = {"chosen": chosen}
    exec(f"def choose({names}):\n    return chosen({names})", space)
    overload(target)(space["choose"])


def register_named(function: Any, seen: set[int] | None = None) -> None:
    """Register what a Python function names of `scipy.special`, itself or through the jitted functions that it calls."""
    if "scipy.special" not in sys.modules:
        return
    seen = set() if seen is None else seen
    function = getattr(function, "py_func", function)
    if not inspect.isfunction(function) or id(function) in seen:
        return
    seen.add(id(function))
    names = looked_up(function)
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for cell in function.__closure__ or ():
        # Not bound yet is a function's own name, where it calls itself.
        with contextlib.suppress(ValueError):
            values.append(cell.cell_contents)
    for module in [v for v in values if isinstance(v, ModuleType)]:
        values += [vars(module).get(name) for name in names]
    for value in values:
        if isinstance(value, np.ufunc):
            text_of(value)
        else:
            register_named(value, seen)
