"""Functions of other libraries as ops on the tape: an entry whose derivatives are the other library's.

A `Guest` runs the function on NumPy arrays and gives a pullback. Where a derivative must itself be differentiated, the pullback
and its forward counterpart have to be ops too: for that the guest gives them as functions like the first.

Invariant: the guest sees NumPy arrays only, and nothing of the tape; no derivative is cut off without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..autograd.function import Function
from ..core.mode import is_grad_enabled
from ..core.tensor import Tensor, wrap

Arrays = list[np.ndarray]
Pull = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Guest:
    """A function of another library. `wanted` lists the arguments that derivatives are asked by, of `count`."""

    run: Callable[[Arrays, list[int]], tuple[Any, Pull]]
    """(arrays, wanted) -> values, and the pullback to cotangents of the wanted arguments."""
    transposed: Callable[[list[int], int], Callable[..., Any]]
    """(wanted, count) -> a function of the arguments and then the cotangents, like `recorded`."""
    pushed: Callable[[int], Callable[..., Any]]
    """(count) -> a function of the arguments and then their tangents, giving the outputs' tangents."""


def plain(value: Any) -> np.ndarray:
    """The value of a tensor, or of anything else, as an array."""
    return np.asarray(value.detach().numpy() if isinstance(value, Tensor) else value)


class _Foreign(Function):
    """One call of a guest's function."""

    @staticmethod
    def forward(ctx: Any, guest: Guest, *args: Any) -> Any:
        arrays = [plain(a) for a in args]
        ctx.wanted = [k for k, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        value, ctx.pull = guest.run(arrays, ctx.wanted)
        ctx.guest, ctx.count = guest, len(args)
        ctx.dtypes = [a.dtype for a in arrays]
        pairs = zip(args, arrays, strict=True)
        saved = [a if isinstance(a, Tensor) else wrap(x) for a, x in pairs]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.several = isinstance(value, tuple)
        results = tuple(wrap(np.array(y)) for y in (value if ctx.several else (value,)))
        ctx.mark_non_differentiable(*(r for r in results if r.dtype.kind not in "fc"))
        return results if ctx.several else results[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        saved = ctx.saved_tensors
        if is_grad_enabled() and any(t.requires_grad for t in (*saved, *cotangents)):
            found = ctx.guest.transposed(ctx.wanted, ctx.count)(*saved, *cotangents)
        else:
            found = ctx.pull([np.asarray(g.detach().numpy()) for g in cotangents])
        gradients: list[Any] = [None] * ctx.count
        for k, g in zip(ctx.wanted, found, strict=True):
            gradients[k] = g if isinstance(g, Tensor) else wrap(np.array(g, dtype=ctx.dtypes[k]))
        return (None, *gradients)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        saved = ctx.saved_tensors
        given = [
            wrap(np.zeros(x.shape, x.dtype)) if t is None else t
            for x, t in zip(saved, tangents, strict=True)
        ]
        found = ctx.guest.pushed(ctx.count)(*saved, *given)
        return tuple(found) if ctx.several else found


def recorded(guest: Guest, f: Callable[..., Any]) -> Callable[..., Any]:
    """The guest's function `f` as one of arrays and tensors: arrays give arrays, tensors give tensors."""

    @functools.wraps(f, updated=())
    def call(*args: Any) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            return _Foreign.apply(guest, *args)
        value, _ = guest.run([np.asarray(a) for a in args], [])
        if isinstance(value, tuple):
            return tuple(np.array(y)[()] for y in value)
        return np.array(value)[()]

    return call


__all__ = ["Guest", "Pull", "recorded"]
