"""Several results as one: an entry of the tape has one result, so those of a whole call are packed into a flat array.

`packed` joins what is inexact among some leaves, in their order; `unpacked` cuts such an array into pieces of given shapes and dtypes.

Invariant: `unpacked(packed(leaves), inexact(leaves))` are the inexact leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .primitive import call, primitive
from .tensor import Tensor


def inexact(leaves: Sequence[Any]) -> list[Any]:
    """The leaves that have derivatives: floats and complex numbers of NumPy's kind, and tensors of them."""
    return [x for x in leaves if is_inexact(x)]


def is_inexact(x: Any) -> bool:
    """Whether a leaf has derivatives."""
    return isinstance(x, Tensor | np.ndarray | np.generic) and x.dtype.kind in "fc"


def packed(leaves: Sequence[Any]) -> Any:
    """The inexact ones among some results as one value: itself if there is one, else a flat array of all entries."""
    parts = inexact(leaves)
    return parts[0] if len(parts) == 1 else flat(parts)


def flat(parts: Sequence[Any]) -> Any:
    """All entries of some arrays one after the other, in the dtype that holds them all."""
    if not parts:
        return np.zeros(0)
    dtype = np.result_type(*(x.dtype for x in parts))
    return np.concatenate(
        [np.reshape(x if x.dtype == dtype else x.astype(dtype), (-1,)) for x in parts]
    )


def unpacked(whole: Any, parts: Sequence[Any]) -> list[Any]:
    """Pieces of a flat array, with the shapes and dtypes of `parts`."""
    pieces = []
    start = 0
    for part in parts:
        stop = start + math.prod(part.shape)
        piece = np.reshape(whole[start:stop], part.shape)
        if part.dtype.kind != "c" and piece.dtype.kind == "c":
            piece = np.real(piece)
        pieces.append(piece if piece.dtype == part.dtype else piece.astype(part.dtype))
        start = stop
    return pieces


class _Sample:
    """A stand-in for a call, on which the laws of ops are checked: x * x + y."""

    def evaluate(self, values: Sequence[Any]) -> Any:
        return values[0] * values[0] + values[1]

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        return [np.conj(2 * xs[0]) * g, g]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        terms = [t for t in (None if given[0] is None else 2 * xs[0] * given[0], given[1])]
        return sum(t for t in terms if t is not None)


def _evaluated(xs: Sequence[Any], of: Any) -> Any:
    return of.evaluate(xs)


def _pushed(given: Any, xs: Any, out: Any, *, of: Any) -> Any:
    return of.push(given, xs)


def _pushed_together(given: Any, xs: Any, out: Any, of: Any) -> Any:
    """Several directions at once, along a first axis of the tangents."""
    together = getattr(of, "push_together", None)
    if together is not None:
        return together(given, xs)
    width = next(len(t) for t in given if t is not None)
    return np.stack(
        [of.push([None if t is None else t[i] for t in given], xs) for i in range(width)]
    )


def op_of_calls(name: str, doc: str, *, pushes: bool = False) -> Any:
    """Declare an op whose entries hold their own rules: `of.evaluate(values)` and `of.pull(g, operands, wanted)`.

    With `pushes`, `of.push(tangents, operands)` is the JVP, and `of.push_together`, if there is one, that of several directions at once,
    along a first axis of the tangents; else the VJP, transposed.
    """

    def pull(g: Any, xs: Any, wanted: Any, *, of: Any) -> Any:
        return of.pull(g, xs, wanted)

    pull.__name__, pull.__doc__ = name, doc
    jvp, directions = (_pushed, _pushed_together) if pushes else (None, None)
    samples = [call((3,), (3,), of=_Sample())]
    return primitive(_evaluated, name=name, jvp=jvp, directions=directions, samples=samples)(pull)
