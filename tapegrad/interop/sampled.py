"""Integrals of samples: SciPy's `trapezoid`, `simpson`, `cumulative_trapezoid`, `cumulative_simpson` and `romb` for tracked tensors.

Without a tensor SciPy's function is called. With one, the same rule is written in ops, so that it is differentiated by the samples, by
their places and by `dx`, in every mode and inside `tg.compile`. Formulas are SciPy's: Simpson's rule for uneven spacing, with Cartwright's
correction for the last of an odd number of intervals (K. Cartwright, 2017, Journal of Mathematical Sciences & Mathematics Education 12).

Invariant: values are SciPy's but for rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import value_of
from ..ops.composing import holds_tensor
from ..ops.joining import gathered


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral of samples along an axis by the trapezoidal rule; SciPy's `trapezoid`, differentiable by samples, places and `dx`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.integrate.trapezoid(y, dx=0.5))(np.zeros(4))
    array([0.25, 0.5 , 0.5 , 0.25])
    """
    if not holds_tensor([y, x, dx]):
        from scipy import integrate

        return integrate.trapezoid(y, x, dx, axis)
    return np.trapezoid(gathered(y), None if x is None else gathered(x), dx, axis)


def cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    """Running integrals of samples along an axis by the trapezoidal rule; SciPy's `cumulative_trapezoid`, differentiable as `trapezoid` is.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda y: tg.integrate.cumulative_trapezoid(y))(np.zeros(3))
    array([[0.5, 0.5, 0. ],
           [0.5, 1. , 0.5]])
    """
    if not holds_tensor([y, x, dx]):
        from scipy import integrate

        return integrate.cumulative_trapezoid(y, x, dx, axis, initial)
    if initial is not None and (not np.isscalar(initial) or initial != 0):
        raise ValueError("`initial` must be `None` or `0`.")
    y, lengths = _samples(y, x, dx, axis)
    if np.shape(y)[-1] == 0:
        raise ValueError("At least one point is required along `axis`.")
    pieces = lengths * (y[..., 1:] + y[..., :-1]) / 2.0
    return _running(pieces, None if initial is None else np.zeros((*np.shape(y)[:-1], 1)), axis)


def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral of samples along an axis by Simpson's rule; SciPy's `simpson`, differentiable by samples, places and `dx`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.integrate.simpson(y, dx=3.0))(np.zeros(5))
    array([1., 4., 2., 4., 1.])
    """
    if not holds_tensor([y, x, dx]):
        from scipy import integrate

        return integrate.simpson(y, x, dx=dx, axis=axis)
    y, lengths = _samples(y, x, dx, axis)
    count = np.shape(y)[-1]
    if count % 2:
        return np.sum(_parabolas(y, lengths), axis=-1)
    if count == 2:
        return 0.5 * (lengths * (y[..., 1:] + y[..., :-1]))[..., 0]
    h0, h1 = lengths[..., -2], lengths[..., -1]
    alpha = (2 * h1**2 + 3 * h0 * h1) / (6 * (h1 + h0))
    beta = (h1**2 + 3 * h0 * h1) / (6 * h0)
    eta = h1**3 / (6 * h0 * (h0 + h1))
    last = alpha * y[..., -1] + beta * y[..., -2] - eta * y[..., -3]
    return np.sum(_parabolas(y[..., :-1], lengths[..., :-1]), axis=-1) + last


def cumulative_simpson(
    y: Any, *, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    """Running integrals of samples along an axis by Simpson's rule; SciPy's `cumulative_simpson`, differentiable by samples, places, `dx`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda y: 12 * tg.integrate.cumulative_simpson(y))(np.zeros(3))
    array([[ 5.,  8., -1.],
           [ 4., 16.,  4.]])
    """
    if not holds_tensor([y, x, dx, initial]):
        from scipy import integrate

        return integrate.cumulative_simpson(y, x=x, dx=dx, axis=axis, initial=initial)
    samples, lengths = _samples(y, x, gathered(dx), axis)
    if x is not None and not bool(np.all(lengths > 0)):
        raise ValueError("Input x must be strictly increasing.")
    if np.shape(samples)[-1] < 3:
        pieces = lengths * (samples[..., 1:] + samples[..., :-1]) / 2.0
    else:
        pieces = _each_piece(samples, lengths)
    first = None
    if initial is not None:
        first = np.moveaxis(gathered(initial), axis, -1) if np.ndim(initial) else gathered(initial)
        first = np.broadcast_to(first, (*np.shape(samples)[:-1], 1))
    return _running(pieces, first, axis)


def romb(y: Any, dx: Any = 1.0, axis: int = -1, show: Any = False) -> Any:
    """Integral of 2^k + 1 evenly spaced samples along an axis by Romberg's rule; SciPy's `romb`, differentiable by samples and `dx`.

    >>> import numpy as np, tapegrad as tg
    >>> (45 * tg.grad(lambda y: tg.integrate.romb(y))(np.zeros(5))).round(9)
    array([14., 64., 24., 64., 14.])
    """
    if not holds_tensor([y, dx]):
        from scipy import integrate

        return integrate.romb(y, dx, axis, show)
    y = np.moveaxis(gathered(y), axis, -1)
    intervals = np.shape(y)[-1] - 1
    if intervals < 1 or intervals & (intervals - 1):
        raise ValueError("Number of samples must be one plus a non-negative power of 2.")
    row: list[Any] = [(y[..., 0] + y[..., -1]) / 2.0 * intervals]
    step = intervals
    while step > 1:
        step //= 2
        new = [0.5 * row[0] + step * np.sum(y[..., step : intervals : 2 * step], axis=-1)]
        for j, before in enumerate(row, start=1):
            new.append(new[-1] + (new[-1] - before) / (4**j - 1))
        row = new
    return row[-1] * gathered(dx)


def _samples(y: Any, x: Any, dx: Any, axis: int) -> tuple[Any, Any]:
    """The samples along the last axis, and the lengths of the intervals between them."""
    y = gathered(y)
    if not -np.ndim(y) <= axis < np.ndim(y):
        raise ValueError(f"`axis={axis}` is not valid for `y` with `y.ndim={np.ndim(y)}`.")
    count = np.shape(y)[axis]
    samples = np.moveaxis(y, axis, -1)
    if x is None:
        weak = (
            isinstance(dx, int | float) and y.dtype.kind in "fc"
        )  # a number has the precision of the samples
        lengths = np.asarray(dx, np.real(value_of(y)).dtype) if weak else gathered(dx)
        lengths = np.moveaxis(lengths, axis, -1) if np.ndim(lengths) else lengths
        return samples, np.broadcast_to(lengths, (*np.shape(samples)[:-1], max(count - 1, 0)))
    x = gathered(x)
    if np.ndim(x) not in (1, np.ndim(y)):
        raise ValueError("If given, shape of x must be 1-D or the same as y.")
    if np.shape(x)[0 if np.ndim(x) == 1 else axis] != count:
        raise ValueError("If given, length of x along axis must be the same as y.")
    lengths = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return samples, np.broadcast_to(lengths, (*np.shape(samples)[:-1], max(count - 1, 0)))


def _parabolas(y: Any, lengths: Any) -> Any:
    """Integrals over pairs of intervals, of the parabolas through their three samples; 0 where an interval has no length, as in SciPy."""
    h0, h1 = lengths[..., ::2], lengths[..., 1::2]
    whole = h0 + h1
    none0, none1 = h0 == 0, h1 == 0
    safe0, safe1 = np.where(none0, 1.0, h0), np.where(none1, 1.0, h1)
    ratio, inverse = np.where(none1, 0.0, h0 / safe1), np.where(none0, 0.0, h1 / safe0)
    inverse = np.where(none1, 0.0, inverse)
    middle = np.where(none0 | none1, 0.0, whole * whole / (safe0 * safe1))
    return (
        whole
        / 6.0
        * (y[..., :-2:2] * (2.0 - inverse) + y[..., 1::2] * middle + y[..., 2::2] * (2.0 - ratio))
    )


def _each_piece(y: Any, lengths: Any) -> Any:
    """Integrals over single intervals, each of the parabola through it and its neighbour: to the right, or at odd places to the left."""

    def first(y: Any, h: Any) -> Any:
        h21, h32 = h[..., :-1], h[..., 1:]
        h31 = h21 + h32
        a, b = h21 / h31, (h21 / h31) * (h21 / h32)
        return h21 / 6 * ((3 - a) * y[..., :-2] + (3 + b + a) * y[..., 1:-1] - b * y[..., 2:])

    right = first(y, lengths)
    left = np.flip(first(np.flip(y, -1), np.flip(lengths, -1)), -1)
    count = np.shape(lengths)[-1]
    parts = [
        left[..., k - 1 : k] if k % 2 or k == count - 1 else right[..., k : k + 1]
        for k in range(count)
    ]
    return np.concatenate(parts, -1)


def _running(pieces: Any, first: Any, axis: int) -> Any:
    total = np.cumsum(pieces, axis=-1)
    if first is not None:
        total = np.concatenate([first, total + first], -1)
    return np.moveaxis(total, -1, axis)


__all__ = ["cumulative_simpson", "cumulative_trapezoid", "romb", "simpson", "trapezoid"]
