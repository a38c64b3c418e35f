"""Surroundings: what a traced function reads beside its arguments, and whether it is still the same.

A program holds the values that names and arrays outside the function had when it was traced. Where such a value changes, the
program is dropped and the function traced again. What is looked at:

    names     numbers, text, arrays, tensors and functions that the function, or one that it refers to, finds in its closure or among
              the globals of the user's modules: whether the name still means it
    tensors   found so: whether they still have the same array
    arrays    that met a traced value, or were found so, if small: whether they hold the same bytes; big ones that met a traced
              value are read-only as long as the program lives (storage.py)

Not seen are attributes bound anew, what lists and dictionaries hold, and big arrays that only constants are computed from.

Invariant: a `Watched` is checked before a program's result counts: by `changed`, or by the entry in machine code (native.py).
"""

from __future__ import annotations

import ctypes
import dis
import functools
import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..closures import content
from ..storage import StandIn, owner
from ..tape import BIG
from ..tensor import Tensor

PLAIN = (int, float, complex, str, bytes, type(None), np.generic)

_LIBRARIES = frozenset(
    {"tapegrad", "numpy", "scipy", "optree", "numba", "builtins", *sys.stdlib_module_names}
) - {"__main__"}
"""Modules whose globals are left alone: they do not change."""


class Watched:
    """One value, where it was found (nowhere: an array that met a traced value), and its bytes if it is a small array."""

    __slots__ = ("copy", "holder", "name", "value")

    def __init__(self, value: Any, holder: Any = None, name: str = "") -> None:
        self.value = value
        self.holder = holder  # a cell, the globals with a name in them, or a tensor
        self.name = name
        small = isinstance(value, np.ndarray) and value.nbytes <= BIG and value.dtype != object
        self.copy = np.array(value, order="C") if small and owner(value).flags.writeable else None

    def told(self) -> str:
        """What it is, in words."""
        kind = type(self.value).__name__
        if self.name:
            return f"the global {self.name!r}, {kind}"
        if type(self.holder) is types.CellType:
            return f"a variable of an enclosing function, {kind}"
        return f"an array of shape {np.shape(self.value)}"

    def changed(self) -> bool:
        """Whether it is another value now. A number bound anew is the same if it is equal."""
        if not _same(self.value, self._now()):
            return True
        if self.copy is None:
            return False
        value, copy = self.value, self.copy
        return value.shape != copy.shape or value.tobytes() != copy.tobytes()

    def _now(self) -> Any:
        holder = self.holder
        if holder is None:
            return self.value
        if type(holder) is types.CellType:
            return content(holder)
        return holder.get(self.name) if self.name else holder._value


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, PLAIN) and bool(a == b or (a != a and b != b)) and _sign(a) == _sign(b)


def _sign(x: Any) -> float:
    return math.copysign(1.0, x) if isinstance(x, float) else 0.0


def watched(f: Callable[..., Any], met: Sequence[np.ndarray]) -> list[Watched]:
    """What to look at for a function that has just been traced: what it refers to, and the arrays that it met."""
    found = [Watched(value, holder, name) for value, holder, name in _names(f)]
    found += [
        Watched(w.value._value, w.value)
        for w in found
        if isinstance(w.value, Tensor) and not isinstance(w.value._value, StandIn)
    ]
    known = {id(w.value) for w in found if w.copy is not None}
    arrays = {id(a): a for a in map(_comparable, met)}
    others = (Watched(a) for number, a in arrays.items() if number not in known)
    return [*found, *(w for w in others if w.copy is not None)]


def _comparable(array: np.ndarray) -> np.ndarray:
    """The array, or the small one that it is a view of, whose bytes lie one after the other and are compared at once."""
    if not array.flags.c_contiguous:
        root = owner(array)
        if root.flags.c_contiguous and root.nbytes <= BIG:
            return root
    return array


def _names(f: Callable[..., Any]) -> Iterator[tuple[Any, Any, str]]:
    """(value, cell or globals, name) of what functions refer to, from this one on."""
    unseen: list[Any] = [f]
    seen: set[Any] = set()
    while unseen:
        function = unseen.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, functools.partial):
            unseen.append(function.func)
            continue
        if isinstance(function, types.MethodType):
            unseen.append(function.__func__)
            continue
        unseen.extend(getattr(function, k) for k in ("__wrapped__", "f") if k in _dict(function))
        if not isinstance(function, types.FunctionType):
            unseen.append(vars(type(function)).get("__call__"))
            continue
        scope = function.__globals__
        module = scope.get("__name__", "")  # a wrapper's own __module__ is that of what it wraps
        user = module.split(".")[0] not in _LIBRARIES
        for cell in function.__closure__ or ():
            value = content(cell)
            if _kind(value) and user and id(cell) not in seen:
                seen.add(id(cell))
                yield value, cell, ""
            elif callable(value):
                unseen.append(value)
        for name in _read(function.__code__) if user else ():
            if name not in scope or (id(scope), name) in seen:
                continue
            seen.add((id(scope), name))
            value = scope[name]
            if _kind(value):
                yield value, scope, name
            elif callable(value):
                unseen.append(value)
                # In a notebook functions are defined again.
                if _is_function(value) and module == "__main__":
                    yield value, scope, name


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def _dict(value: Any) -> Any:
    return getattr(value, "__dict__", ())


def _read(code: types.CodeType) -> Iterator[str]:
    """Names that a function looks up among its globals, or one defined inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _read(constant)


def _kind(value: Any) -> bool:
    """Whether a value is of a kind that is looked at."""
    if isinstance(value, tuple):
        return all(isinstance(x, PLAIN) for x in value)
    return isinstance(value, (*PLAIN, np.ndarray, Tensor))


def held_elsewhere(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Those arrays (of a list that nobody else has) to which there are references, by themselves or by what they are views of."""
    owners = [owner(a) for a in arrays]
    ours = Counter(map(id, (*arrays, *owners)))
    ours.update(id(owners[i]) for i in range(len(arrays)) if owners[i] is not arrays[i])  # as base
    # Beside ours, the argument of getrefcount is a reference.
    return [
        arrays[i]
        for i in range(len(arrays))
        if sys.getrefcount(arrays[i]) - 1 > ours[id(arrays[i])]
        or sys.getrefcount(owners[i]) - 1 > ours[id(owners[i])]
    ]


def place_of_data() -> int:
    """Where in a tensor's memory the address of its array stands."""
    t = Tensor()
    t._value, t._node = np.zeros(1), None
    words = range(object.__basicsize__, Tensor.__basicsize__, 8)
    return next(k for k in words if ctypes.c_size_t.from_address(id(t) + k).value == id(t._value))
