"""Inverses of distribution functions as ops: the value is SciPy's, the derivative that of the implicit function.

x = Q(q; θ) solves F(x; θ) = q, so dx/dq = 1/f and dx/dθ = -F_θ/f, at x. A sample is the same with a q that is unknown and constant
(implicit reparameterisation: Figurnov, Mohamed and Mnih 2018). The rules read the recorded result, so higher derivatives follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.primitive import primitive
from ..core.storage import never
from ..core.sweep import times
from ..transforms import derivatives
from .quadrature import plain, unsure


def partial(f: Callable[..., Any], i: int, args: Sequence[Any]) -> Any:
    """The partial derivative of an elementwise function by its argument `i`, at arguments that broadcast."""
    shape = np.broadcast_shapes(*map(np.shape, args))
    full = [np.broadcast_to(a, shape) for a in args]
    _, pull = derivatives.vjp(lambda v: f(*full[:i], v, *full[i + 1 :]), full[i], allow_unused=True)
    slope = pull(np.ones(shape))[0]
    return np.zeros(shape) if slope is None else slope


TINY = 1e-290
"""A density below which its quotients lose digits, or are 0 by 0."""


def _slope(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """The derivative by q (i = 0) or by a parameter."""
    parameters = xs[1:]
    spacing = _spacing(xs[0], out, parameters, law, tail)
    if i == 0:
        return 0.0 * out if tail == "sample" else (-1 if tail == "isf" else 1) * spacing
    # A quantile that no parameter moves stays, also where the density vanishes, as at the centre of dweibull.
    slope = times(_moved(i, xs, out, law, tail), spacing)
    far = _far(xs[0], out, parameters, law, tail)
    if never(far):
        return slope
    return np.where(far, _moved_far(i, xs, out, law, tail), slope)


def _upper(q: Any, tail: str) -> Any:
    """Where more lies below a quantile than above it."""
    return plain(q) < 0.5 if tail == "isf" else plain(q) > 0.5


def _by_tail(i: int, xs: Sequence[Any], out: Any, tail: str, above: Any, below: Any) -> Any:
    """The partial by a parameter of a function of the tail above, or less that of the tail below, whichever is less likely.

    A distribution function near 1 has lost the digits that say how it moves.
    """
    args = (out, *xs[1:])
    upper = False if tail == "sample" else np.broadcast_to(_upper(xs[0], tail), np.shape(out))
    if never(upper):
        return -partial(below, i, args)
    if np.all(upper):
        return partial(above, i, args)
    return np.where(upper, partial(above, i, args), -partial(below, i, args))


def _moved(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """How much probability a parameter moves past the quantile."""
    sf = lambda *args: law.standard("sf", *args)  # noqa: E731
    cdf = lambda *args: law.standard("cdf", *args)  # noqa: E731
    return _by_tail(i, xs, out, tail, sf, cdf)


def _far(q: Any, out: Any, parameters: Sequence[Any], law: Any, tail: str) -> Any:
    """Where a quantile lies inside (0, 1), and its density is too small to divide by."""
    if tail == "sample":
        return False
    inside = (plain(q) > 0) & (plain(q) < 1)
    return inside & (np.abs(plain(law.standard("pdf", out, *parameters))) < TINY)


def _moved_far(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """The derivative by a parameter, of logarithms: that of the tail's logarithm, times the tail over the density.

    NaN where the tail is empty although q is not 0: the quantile was rounded to the end of the support, or beyond.
    """
    logsf = lambda *args: law.standard("logsf", *args)  # noqa: E731
    logcdf = lambda *args: law.standard("logcdf", *args)  # noqa: E731
    chance = _chance(xs[0], out, xs[1:], law, tail)
    moved = _by_tail(i, xs, out, tail, logsf, logcdf)
    slope = times(moved, np.exp(chance - law.standard("logpdf", out, *xs[1:])))
    return np.where(np.isneginf(plain(chance)), np.nan, slope)


def _chance(q: Any, out: Any, parameters: Sequence[Any], law: Any, tail: str) -> Any:
    """The logarithm of the tail's probability, of the less likely tail."""
    args = (out, *parameters)
    return np.where(_upper(q, tail), law.standard("logsf", *args), law.standard("logcdf", *args))


def _spacing(q: Any, out: Any, parameters: Sequence[Any], law: Any, tail: str) -> Any:
    """1 / density. At an end of [0, 1] where it is infinite it rises as 1 / q does, and where it is 0 nothing is known of its slopes."""
    if tail == "sample":
        return 1 / law.standard("pdf", out, *parameters)
    below, above = (q, 1.0 - q) if tail == "ppf" else (1.0 - q, q)
    if law.spacing:
        return law.spacing(out, below, above, *parameters)
    density = law.standard("pdf", out, *parameters)
    far = _far(q, out, parameters, law, tail)
    if not never(far):
        precise = np.exp(law.standard("logpdf", out, *parameters))
        empty = np.isneginf(plain(_chance(q, out, parameters, law, tail)))
        density = np.where(far, np.where(empty, np.nan, precise), density)
    first, last = plain(below) == 0, plain(above) == 0
    end = first | last
    if never(end):
        return 1 / density
    steep = end & (plain(density) == 0)
    flat = end & np.isposinf(plain(density))
    rest = np.where(steep, np.where(first, below, above), np.where(flat, 1.0, density))
    return np.where(flat, unsure(below, *parameters), 1 / rest)


def _value(xs: Sequence[Any], law: Any, tail: str) -> Any:
    if tail == "sample":
        return np.array(np.broadcast_to(xs[0], np.broadcast_shapes(*map(np.shape, xs))), float)
    return np.asarray(getattr(law.scipy, tail)(*xs), float)


def _push(ts: Sequence[Any], xs: Sequence[Any], out: Any, *, law: Any, tail: str) -> Any:
    terms = [times(t, _slope(i, xs, out, law, tail)) for i, t in enumerate(ts) if t is not None]
    return sum(terms[1:], terms[0])


def _forward(xs: Any, *, law: Any, tail: str) -> Any:
    return _value(xs, law, tail)


@primitive(
    _forward, forward=_value, name="quantile", jvp=_push,
    unsupported={"samples": "its law is a setting: tests/test_stats.py goes through the distributions"},
)  # fmt: skip
def quantile(g, xs, out, wanted, *, law, tail):
    """The inverse of a distribution function (`tail` is "ppf" or "isf"), or a sample of the distribution."""
    return [times(g, _slope(i, xs, out, law, tail)) if w else None for i, w in enumerate(wanted)]


__all__ = ["partial", "quantile"]
