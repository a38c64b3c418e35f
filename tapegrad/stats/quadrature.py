"""Integrals as sums on the tape: what has no formula is a weighted sum of densities, and so are its derivatives, of every order.

The rules are double exponential (Takahasi and Mori 1974): a change of variable that makes the integrand fall like exp(-exp|v|) on both
sides, and the trapezoid rule, whose error for an analytic integrand is then far below rounding at the spacings used here. Nodes
and weights are constants, or move with the limits of the integral; so a derivative of the sum is the sum of derivatives.

Invariant: where SciPy knows the value, that is the value (`with_value`); the sum gives the derivatives, to about 1e-12 of the integral of
the absolute derivative.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.storage import StandIn, as_array
from ..core.sweep import times
from ..core.tensor import Tensor

_HALF_PI = 0.5 * np.pi
_V = np.linspace(-5.2, 5.2, 257)
_STEP = _V[1] - _V[0]
# The upper end of a half line is 1e34 lengths away: the weight of what is further is below rounding unless its mean does not exist.
_U = np.linspace(-4.0, 4.6, 193)
_STEP_U = _U[1] - _U[0]


def plain(value: Any) -> Any:
    """The value of a tensor, or an array of what is none."""
    return value._value if isinstance(value, Tensor) else as_array(value)


def called(function: Callable[..., Any], *args: Any) -> Any:
    """`function` of plain arrays; in a program that is being compiled it is one call of the program."""
    for a in args:
        if isinstance(a, StandIn):
            return a.called(function, args, getattr(function, "__name__", "scipy"))
    return function(*args)


def with_value(value: Any, total: Any) -> Any:
    """`total` and its derivatives, with the given plain value in place of its own; where that is infinite or NaN, a constant.

    So is a probability that is 0 or 1 exactly, where the formula for its derivatives has no value, as at an end of the support.
    """
    sure = np.isfinite(value) & (np.isfinite(plain(total)) | ((value != 0) & (value != 1)))
    return np.where(sure, total + np.where(sure, value - plain(total), 0.0), value)


def unsure(*given: Any, order: int = 1) -> Any:
    """0, with NaN for all derivatives of this order and above by what is given: two infinite slopes that cancel."""
    apart = functools.reduce(operator.add, [v - plain(v) for v in given])
    return apart ** (order - 0.5) - apart ** (order - 0.5)


def over_no_length(
    f: Callable[..., Any], length: Any, given: Sequence[Any], points: int = 2
) -> Any:
    """The integral of f over (0, length) where the length is 0, for its derivatives by what is given.

    Points of Gauss and Legendre are exact for derivatives up to twice their number; those above are NaN.
    """
    nodes, weights = np.polynomial.legendre.leggauss(points)
    mean = sum(0.5 * w * f(0.5 * (1 + t) * length) for t, w in zip(nodes, weights, strict=True))
    return times(length, mean) + unsure(*given, order=2 * points + 1)


def columns(nodes: np.ndarray, ndim: int) -> np.ndarray:
    """Nodes along a first axis, before the axes of the operands."""
    return nodes.reshape((-1,) + (1,) * ndim)


def half_line(ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, inf)."""
    with np.errstate(over="ignore"):
        t = np.exp(_HALF_PI * np.sinh(_U))
    return columns(t, ndim), columns(_STEP_U * t * _HALF_PI * np.cosh(_U), ndim)


def long_half_line(ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, inf), up to 1e61."""
    t = np.exp(_HALF_PI * np.sinh(_V))
    return columns(t, ndim), columns(_STEP * t * _HALF_PI * np.cosh(_V), ndim)


def interval(ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1)."""
    p = 1 / (1 + np.exp(-2 * _HALF_PI * np.sinh(_V)))
    q = 1 / (1 + np.exp(2 * _HALF_PI * np.sinh(_V)))
    return columns(p, ndim), columns(_STEP * p * q * 2 * _HALF_PI * np.cosh(_V), ndim)


# --------------------------------------------------------------------------------- logarithms of peaked integrals

_DROP = 42.0
_POINTS = 385


def _window(
    fall: Callable[..., Any], mode: np.ndarray, width: np.ndarray, *args: np.ndarray
) -> Any:
    """The ends between which a unimodal exponent is within e^-42 of its peak."""
    with np.errstate(all="ignore"):
        peak = fall(mode, *args)
        ends = []
        for side in (-1.0, 1.0):
            inner, outer = np.zeros_like(peak), np.zeros_like(peak) + width
            for _ in range(60):
                beyond = ~(fall(mode + side * outer, *args) > peak - _DROP)
                if np.all(beyond):
                    break
                inner = np.where(beyond, inner, outer)
                outer = np.where(beyond, outer, 2 * outer)
            for _ in range(20):
                middle = 0.5 * (inner + outer)
                beyond = ~(fall(mode + side * middle, *args) > peak - _DROP)
                inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
            ends.append(mode + side * outer)
        return np.stack([ends[0], ends[1], peak])


def log_integral(
    exponent: Callable[..., Any], mode: Callable[..., Any], width: Callable[..., Any], *args: Any
) -> Any:
    """Logarithm of the integral of exp(exponent(s, *args)) over all s; the exponent has one peak, near `mode(*args)`.

    It must fall exponentially or faster on both sides, and be analytic: then the trapezoid rule between the points where it has
    fallen by 42 is exact to rounding. `mode` and `width` are functions of plain arrays.
    """

    def window(*plain_args: Any) -> Any:
        values = np.broadcast_arrays(*(np.asarray(a, float) for a in plain_args))
        return _window(exponent, mode(*values), width(*values), *values)

    window.__name__ = "window"
    low, high, peak = called(window, *map(plain, args))
    u = columns(np.linspace(0.0, 1.0, _POINTS), np.ndim(peak))
    step = (high - low) / (_POINTS - 1)
    terms = np.exp(exponent(low + (high - low) * u, *args) - peak)
    return np.log(np.sum(terms, axis=0)) + (peak + np.log(step))


__all__ = [
    "called", "half_line", "interval", "log_integral", "long_half_line", "over_no_length", "plain", "unsure", "with_value",
]  # fmt: skip
