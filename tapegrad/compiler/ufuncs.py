"""Functions of NumPy's, entry by entry, that have no expression here, as routines (writer.py): calls of their ufuncs' loops (borrowed.py).

Most are functions of complex numbers: logarithms, roots, circular and hyperbolic ones, powers.

Invariant: the answer is NumPy's, bit for bit.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from .arrays import COMPLEX, F4, F8
from .borrowed import Borrowed, Caller, borrowed
from .writer import TYPES, Routine

NAMES = tuple(
    "log log2 log10 log1p expm1 exp2 sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh power "
    "floor_divide nextafter".split()
)
REAL = ("floor_divide", "nextafter")
"""Those that have no expression for real numbers either."""


def lacks_expression(node: Any) -> bool:
    return node.name in REAL or node.dtype in COMPLEX


@cache
def loop_of(name: str, dtype: np.dtype) -> Borrowed | None:
    """The loop of a ufunc for numbers of one type."""
    ufunc = getattr(np, name)
    operands = [np.array([0.25, 0.5, 0.75], dtype)] * ufunc.nin
    strides = [dtype.itemsize] * ufunc.nargs
    return borrowed(ufunc, operands, np.zeros(3, dtype), [3], strides)


def entries(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """A call as a routine: of arrays of the result's shape, and single numbers."""
    dtype, size = node.dtype, math.prod(node.shape)
    if settings or not size or not lacks_expression(node) or dtype not in (F8, F4, *COMPLEX):
        return None
    name = node.name
    if name == "power" and np.ndim(operands[1]) == 0 and _number(operands[1]) == 0.5 and node.shape:
        name, operands = "sqrt", operands[:1]  # as NumPy's operator does
    if len(operands) != getattr(np, name).nin:
        return None
    reads: list[Any] = []
    strides: list[int] = []
    for x in operands:
        number = _number(x)
        if number is not None:
            x = np.asarray(number, dtype)
        elif getattr(x, "dtype", None) != dtype:
            return None
        if math.prod(x.shape) not in (1, size) or (
            x.shape != node.shape and math.prod(x.shape) != 1
        ):
            return None
        reads.append(x)
        strides.append(dtype.itemsize if x.shape == node.shape else 0)
    loop = loop_of(name, dtype)
    if loop is None:
        return None
    inputs = ["%a", "%b"][: len(reads)]
    kind = TYPES[COMPLEX.get(dtype, dtype)]
    text = Caller(kind, operands=len(reads) + 1, lengths=1, strides=len(reads) + 1, inputs=inputs)
    text.lengths([size])
    text.strides([*strides, dtype.itemsize])
    sizes = [math.prod(x.shape) * dtype.itemsize for x in (*reads, node)]
    text.call(loop, [*inputs, "%x"], sizes)
    return text.routine(node.name, reads, 40 * size)


def _number(x: Any) -> Any:
    """A number of Python's or NumPy's that is part of the program; None for anything else."""
    return x if isinstance(x, int | float | complex | np.number) else None
