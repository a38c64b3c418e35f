"""Python's own functions that ask what a value is, or make a number of it, in the copy of a function (`face/adoption.py` makes the copy).

In a transform a tensor stands for an array, or for a number as NumPy's functions give them. A number has no length and is no `Iterable`,
but the class `Tensor` is one; `is_instance` and `has_attribute` answer for what a tensor stands for. `float(t)` and `complex(t, u)` give a
plain number, which no tape can follow: `_Float` and `_Complex` give a differentiated number back. They are also classes that are equal to
`float` and `complex`, since a function may name these as a dtype or in `isinstance`.

Invariant: given no tensor that is differentiated, each of these does what Python's own does.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Collection, Container, Iterable, Reversible, Sized
from typing import Any

import numpy as np

from ..core.printed import only_printed
from ..core.tensor import Tensor
from .buffers import renamed
from .mathematics import one_number

_OF_CONTAINERS = frozenset((Collection, Container, Iterable, Reversible, Sized))


def kind_of(x: Any) -> type:
    """The class of a value, for the code that calls the caller: of a tensor in a transform that of what the tensor stands for."""
    return x._class_for(sys._getframe(2)) if isinstance(x, Tensor) else type(x)


def is_instance(x: Any, kinds: Any, /) -> bool:
    """`isinstance`; a tensor that stands for a number is no container."""
    if type(kinds) is tuple:
        return any(is_instance(x, kind) for kind in kinds)
    if isinstance(x, Tensor) and type(kinds) is not type(int | str) and kinds in _OF_CONTAINERS:
        return issubclass(x.__class__, kinds)
    return isinstance(x, kinds)


def has_attribute(x: Any, name: str, /) -> bool:
    """`hasattr`; a tensor that stands for a number has the special methods of a number."""
    special = isinstance(x, Tensor) and name.startswith("__")
    return hasattr(x.__class__ if special else x, name)


def _is_differentiated(x: Any) -> bool:
    return isinstance(x, Tensor) and x._node is not None


class _Numbers(type):
    """What a class of Python's numbers is in a copied function: the class, but that differentiated numbers in double precision stay."""

    of: type
    number: type

    def __call__(cls, *args: Any, **words: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Tensor) and type(args[0]._value) is cls.number:
            x = args[0]  # most often
            return cls.of(x) if x._node is None or only_printed(sys._getframe(1)) else x
        if not any(map(_is_differentiated, args)) or words or only_printed(sys._getframe(1)):
            return cls.of(*args, **words)
        given = [one_number(x) for x in args]
        double = (np.float64,) if cls.of is float else (np.float64, np.complex128)
        if any(_is_differentiated(x) and x.dtype.type not in double for x in given):
            return cls.of(*args)
        first, *second = map(np.positive, given)  # the value as it is now, if it is an array's
        return first + 1j * second[0] if second else first + 0j if cls.of is complex else first

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.of)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls.of)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is cls.of

    def __hash__(cls) -> int:
        return hash(cls.of)

    def __repr__(cls) -> str:
        return repr(cls.of)


class _Float(float, metaclass=_Numbers):
    of = float
    number = np.float64
    dtype = np.dtype(float)


class _Complex(complex, metaclass=_Numbers):
    of = complex
    number = np.complex128
    dtype = np.dtype(complex)


NUMBERS: dict[Any, Any] = {float: _Float, complex: _Complex}
"""What a copied function finds under the names of Python's classes of numbers."""

for _of, _made in NUMBERS.items():
    renamed(_made, _of)

ANSWERS: dict[Any, Any] = {builtins.isinstance: is_instance, builtins.hasattr: has_attribute}
"""What a copied function that asks for kinds finds under the names of functions that answer."""
