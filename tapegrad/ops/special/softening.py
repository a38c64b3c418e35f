"""Soft extrema: logsumexp with weights and signs, softmax, log_softmax. SciPy's functions of these names are no ufuncs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.primitive import call, primitive
from ...core.storage import never
from ..composing import operand, raw
from ..reductions import logsumexp as plain_logsumexp
from .declaring import times

_SAMPLES = [call((4,)), call((2, 3), axis=1), call((2, 3, 2), axis=(0, 2)), call((2, 2), axis=None)]


def _shifted(x: np.ndarray, axis: Any) -> np.ndarray:
    peak = np.max(np.real(x), axis=axis, keepdims=True)
    return x - np.where(np.isfinite(peak), peak, 0)


def _softmax(x: np.ndarray, axis: Any = None) -> Any:
    e = np.exp(_shifted(x, axis))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax(x: np.ndarray, axis: Any = None) -> Any:
    shifted = _shifted(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@primitive(
    _softmax,
    name="softmax",
    pattern="along",
    jvp=lambda ts, xs, out, axis: (
        out * (ts[0] - np.sum(times(ts[0], out), axis=axis, keepdims=True))
    ),
    samples=_SAMPLES,
    holomorphic=True,
)
def softmax(g, out, *, axis=None):
    """Exponentials divided by their sum over axes (all of them by default, as SciPy's)."""
    p = np.conj(out)
    return p * (g - np.sum(times(g, p), axis=axis, keepdims=True))


@primitive(
    _log_softmax,
    name="log_softmax",
    pattern="along",
    jvp=lambda ts, xs, out, axis: ts[0] - np.sum(ts[0] * np.exp(out), axis=axis, keepdims=True),
    samples=_SAMPLES,
    holomorphic=True,
)
def log_softmax(g, out, *, axis=None):
    """log of the softmax over axes, without under- or overflow."""
    return g - np.conj(np.exp(out)) * np.sum(g, axis=axis, keepdims=True)


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """log(Σ b exp(a)) over axes, with SciPy's arguments; with `return_sign` log|...| and the sign, which is a constant.

    Differentiable by a and by the weights b.

    >>> import tapegrad as tg
    >>> tg.special.logsumexp(tg.tensor([1000.0, 1000.0]), b=tg.tensor([3.0, -1.0]))
    tensor(1000.69314718)
    """
    a = operand(a)
    if b is None and not return_sign:
        return plain_logsumexp(a, axis, keepdims)
    b = operand(1.0 if b is None else b)
    peak = np.max(np.where(raw(b) == 0, -np.inf, np.real(raw(a))), axis=axis, keepdims=True)
    beyond, nothing = peak == np.inf, peak == -np.inf
    peak = np.where(np.isfinite(peak), peak, 0.0)
    total = np.sum(b * np.exp(a - peak), axis=axis, keepdims=True)
    sign = np.sign(raw(total))
    if return_sign:
        total = total * np.conj(sign)
    elif not np.iscomplexobj(raw(total)):
        total = np.where(sign < 0, np.nan, total)
    if never(nothing):
        out = np.log(total) + peak
    else:  # the slopes are 0, as without weights
        out = np.where(nothing, -np.inf, np.log(np.where(nothing, 1.0, total)) + peak)
    if not never(beyond):
        # Which infinite entry the infinite sum grows by is not known: `hypot` is infinite there, without a slope.
        infinite = (np.real(raw(a)) == np.inf) & (raw(b) != 0)
        slopeless = np.hypot(np.real(b * a), 1.0)
        unknown = np.sum(np.where(infinite, slopeless, 0.0), axis=axis, keepdims=True)
        out = np.where(beyond & (raw(out) == np.inf), unknown, out)
    if not keepdims:
        shape = np.sum(raw(out), axis=axis).shape
        out, sign = np.reshape(out, shape), np.reshape(sign, shape)[()]
    return (out, sign) if return_sign else out


__all__ = ["log_softmax", "logsumexp", "softmax"]
