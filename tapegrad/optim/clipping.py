"""Gradients cut to size before a step: PyTorch's `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_`.

Both change `.grad` in place, after every gradient has been looked at: an error leaves all of them as they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.mode import is_grad_enabled, no_grad
from ..core.tape import current
from ..core.tensor import Tensor, wrap
from ..errors import GradientLost, demand_number
from ..face.inplace import before_write
from ..ops.composing import holds_tracked


def _gradients(parameters: Any) -> list[Tensor]:
    """The gradients of the tensors that have one; an error inside of a transform that would differentiate them."""
    tensors = [parameters] if isinstance(parameters, Tensor) else parameters
    if not isinstance(tensors, Iterable):
        raise TypeError(
            f"clipping was asked of {type(parameters).__name__}: pass a tensor, or an iterable of tensors with gradients."
        )
    tensors = list(tensors)
    for p in tensors:
        if not isinstance(p, Tensor):
            raise TypeError(
                f"clipping was asked of {type(p).__name__}: pass tensors whose .grad is to be clipped."
            )
    gradients = [p.grad for p in tensors if p.grad is not None]
    if current().outer is not None and is_grad_enabled() and holds_tracked(gradients):
        raise GradientLost(
            "clipping was asked inside a transform of gradients that are tracked (create_graph=True), but it changes numbers in place, "
            "which is not recorded: their gradient would be lost. Scale the gradients by an expression, g * np.minimum(1, limit / norm), "
            "or detach() what is differentiated.",
            name="unrecorded-update",
        )
    return gradients


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients together so that their norm is at most `max_norm`; returns the norm they had.

    The gradients are taken as one vector; `norm_type` may be `inf`. As in PyTorch the factor is max_norm / (norm + 1e-6).

    >>> import tapegrad as tg
    >>> x = tg.tensor([3.0, 4.0], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> tg.optim.clip_grad_norm_([x], 1.0)
    tensor(10.)
    """
    gradients = _gradients(parameters)
    demand_number(max_norm, "max_norm")
    if max_norm < 0:
        raise ValueError(f"max_norm={max_norm!r} was given, but a norm is at least 0.")
    if not gradients:
        return wrap(np.float64(0.0))
    order = float(norm_type)
    norms = [np.linalg.norm(g._array().reshape(-1), order) for g in gradients]
    total = np.linalg.norm(np.array(norms), order)
    if error_if_nonfinite and not np.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To "
            "scale the gradients by the non-finite norm anyway, set error_if_nonfinite=False."
        )
    factor = min(float(max_norm) / (float(total) + 1e-6), 1.0) if not np.isnan(total) else np.nan
    _scale(gradients, lambda g: g * g.dtype.type(factor))
    return wrap(total)


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Clip every element of every gradient to [-clip_value, clip_value].

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, -5.0], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> tg.optim.clip_grad_value_(x, 3.0); x.grad
    tensor([ 2., -3.])
    """
    demand_number(clip_value, "clip_value")
    limit = float(clip_value)
    if not limit >= 0:
        raise ValueError(f"clip_value={clip_value} was given: a limit is a number of at least 0.")
    _scale(_gradients(parameters), lambda g: np.clip(g, -limit, limit))


def _scale(gradients: list[Tensor], change: Any) -> None:
    new = [change(g._array()) for g in gradients]
    with no_grad():
        for g, value in zip(gradients, new, strict=True):
            before_write(g, "clipping")
            np.copyto(g._array(), value)
