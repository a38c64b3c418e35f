"""Eigenvalues, singular values and their vectors of small matrices as routines (writer.py): calls of the loops of NumPy's functions
(borrowed.py), which call LAPACK.

Of large ones the way to NumPy costs nothing beside what LAPACK takes, and what else there is to do may have several threads.

Invariant: the answer is NumPy's, bit for bit; where LAPACK fails, which NumPy's loops tell by NaN, a routine returns REFUSED.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from .arrays import F8
from .borrowed import Borrowed, Caller, borrowed
from .writer import TYPES, Routine

NAMES = ("eigh", "eigvalsh", "svd", "svdvals")
MOST = 128
"""Rows and columns of the largest matrix."""


@cache
def loop_of(name: str, dtype: np.dtype) -> Borrowed | None:
    """A loop of `numpy.linalg`, for numbers of a type."""
    try:
        from numpy.linalg import _umath_linalg as module
    except ImportError:
        return None
    x = np.array([[2.0, 0.5], [0.5, 1.0]], dtype)
    shapes = _outputs(name, 2, 2)
    outs = [np.zeros(shape, dtype) for shape in shapes]
    lengths, strides = _told(name, 1, 2, 2, dtype.itemsize)
    return borrowed(getattr(module, name, None), (x,), outs, lengths, strides)


def _outputs(name: str, m: int, n: int) -> list[tuple[int, ...]]:
    """The shapes of a loop's results, of an m by n matrix."""
    k = min(m, n)
    if name.startswith("eig"):
        return [(n,)] if name.startswith("eigvals") else [(n,), (n, n)]
    if name == "svd":
        return [(k,)]
    return [(m, k), (k,), (k, n)] if name == "svd_s" else [(m, m), (k,), (n, n)]


def _told(name: str, count: int, m: int, n: int, size: int) -> tuple[list[int], list[int]]:
    """(lengths, strides) that a loop is given for so many matrices, one after the other, its results likewise."""
    shapes = [(m, n), *_outputs(name, m, n)]
    lengths = [count, n] if name.startswith("eig") else [count, m, n, min(m, n)]
    between = [math.prod(shape) * size for shape in shapes]
    within = [size * math.prod(shape[i + 1 :]) for shape in shapes for i in range(len(shape))]
    return lengths, [*between, *within]


def decomposition(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """A call of NumPy's, or of our op with all results in one array, as a routine."""
    a, *given = operands
    if len(a.shape) < 2:
        return None
    m, n = a.shape[-2:]
    if a.dtype != F8 or not math.prod(a.shape) or max(m, n) > MOST:
        return None  # single precision is NumPy's to widen
    name = _name(node.name, given, settings)
    loop = loop_of(name, a.dtype) if name else None
    if loop is None:
        return None
    count, size = math.prod(a.shape[:-2]), a.dtype.itemsize
    shapes = _outputs(name, m, n)
    starts = np.cumsum([0, *(count * math.prod(shape) for shape in shapes)])
    if node.dtype != a.dtype or math.prod(node.shape) != starts[-1]:
        return None
    lengths, strides = _told(name, count, m, n, size)
    text = Caller(TYPES[a.dtype], 1 + len(shapes), len(lengths), len(strides))
    text.lengths(lengths)
    text.strides(strides)
    w = text.writer
    outs = [w.let(f"getelementptr {w.kind}, ptr %x, i64 {k}") for k in starts[:-1]]
    sizes = [count * math.prod(shape) * size for shape in ((m, n), *shapes)]
    text.call(loop, ["%a", *outs], sizes)
    values = outs[name.startswith("svd_")]
    with w.loop("0", str(count)) as i:
        w.number(w.load(w.entry(values, i, str(min(m, n)))))
    return text.routine(node.name, [a], 10 * count * m * n * min(m, n))


def _name(name: str, given: Sequence[Any], settings: dict[str, Any]) -> str:
    """The loop that a call runs; nothing where it has arguments of another kind."""
    settings = dict(settings)
    if name in ("eigh", "eigvalsh"):
        side = settings.pop("UPLO", given[0] if given else "L")
        if settings or len(given) > 1 or side not in ("L", "U", "l", "u"):
            return ""
        return f"{name}_{'lo' if side in 'Ll' else 'up'}"
    whole = settings.pop("full_matrices", given[0] if given else True)
    if settings or len(given) > 1 or type(whole) is not bool or (name == "svdvals" and given):
        return ""
    return "svd" if name == "svdvals" else "svd_f" if whole else "svd_s"


__all__ = ["NAMES", "decomposition", "loop_of"]
