"""Products of large matrices as routines (writer.py): calls of the loop of np.matmul, which calls BLAS (borrowed.py).

Transposed matrices are read where they lie, by their strides.

Invariant: the answer is NumPy's own, on the same BLAS.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from .arrays import COMPLEX
from .borrowed import Borrowed, Caller, borrowed
from .graph import Node
from .writer import TYPES, Routine

NAMES = ("matmul", "dot")
_TRANSPOSES = ("transpose", "swapaxes", "matrix_transpose")


@cache
def loop_of(dtype: np.dtype) -> Borrowed | None:
    """The loop of np.matmul for numbers of this type."""
    x, y = np.arange(6.0).reshape(2, 3).astype(dtype), np.arange(6.0).reshape(3, 2).astype(dtype)
    out = np.zeros((2, 2), dtype)
    strides = [0, 0, 0, *x.strides, *y.strides, *out.strides]
    return borrowed(np.matmul, (x, y), out, [1, 2, 3, 2], strides)


def source(x: Any) -> Any:
    """What a transposed matrix is the transpose of; of anything else, that."""
    if not isinstance(x, Node) or x.name not in _TRANSPOSES or len(x.shape) != 2:
        return x
    (of,) = x.inputs
    probe = np.empty((2, 3), np.int8)
    turned = x.function(probe, *x.args[1:], **x.kwargs)
    return of if turned.shape == (3, 2) else x


def product(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """A call as a routine: of matrices, or of as many of one operand as of the other, or with one matrix."""
    dtype = node.dtype
    if settings or len(operands) != 2 or any(getattr(x, "dtype", None) != dtype for x in operands):
        return None
    a, b = operands
    if min(len(a.shape), len(b.shape)) < 2 or (node.name == "dot" and len(b.shape) > 2):
        return None
    many = a.shape[:-2] or b.shape[:-2]
    if any(x.shape[:-2] not in ((), many) for x in operands) or not math.prod(node.shape):
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    if COMPLEX.get(dtype, dtype) not in TYPES or not k:  # of integers the loops write sums
        return None
    loop = loop_of(dtype)
    if loop is None:
        return None
    kind = TYPES[COMPLEX.get(dtype, dtype)]
    text = Caller(kind, operands=3, lengths=4, strides=9, inputs=("%a", "%b"))
    size = dtype.itemsize
    within = [_strides(a, size), _strides(b, size), [n * size, size]]
    between = [math.prod(x.shape[-2:]) * size if x.shape[:-2] else 0 for x in operands]
    text.lengths([math.prod(many), m, k, n])
    text.strides([*between, m * n * size, *within[0], *within[1], *within[2]])
    text.call(loop, ["%a", "%b", "%x"], [math.prod(x.shape) * size for x in (a, b, node)])
    reads = [source(x) for x in operands]
    return text.routine(node.name, reads, 2 * math.prod(node.shape) * k)


def _strides(x: Any, size: int) -> list[int]:
    """Bytes from row to row, and from column to column."""
    rows, columns = x.shape[-2:]
    return [size, rows * size] if source(x) is not x else [columns * size, size]
