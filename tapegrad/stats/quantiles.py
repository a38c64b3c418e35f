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

NEAR_ONE = 0.999
"""A distribution function above this has lost digits that say how it moves; less it from 1 has them."""


def _slope(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """The derivative by q (i = 0) or by a parameter."""
    spacing, far = _spacing(xs, out, law, tail)
    if i == 0:
        return 0.0 * out if tail == "sample" else (-1 if tail == "isf" else 1) * spacing
    # A quantile that no parameter moves stays, also where the density vanishes, as at the centre of dweibull.
    slope = times(_moved(i, xs, out, law, tail, ""), spacing)
    if never(far, guard=True):
        return slope
    return np.where(far, _moved_far(i, xs, out, law, tail), slope)


def _near_one(q: Any, tail: str) -> Any:
    """Where the distribution function of the quantile's own tail is near 1, so that the other tail is looked at."""
    return False if tail == "sample" else plain(q) > NEAR_ONE


def _moved(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str, log: str) -> Any:
    """How much probability a parameter moves past the quantile; how much of its logarithm (`log` is "log"), in that tail."""
    sf = lambda *args: law.standard(log + "sf", *args)  # noqa: E731
    cdf = lambda *args: law.standard(log + "cdf", *args)  # noqa: E731
    args = (out, *xs[1:])
    above = lambda: partial(sf, i, args)  # noqa: E731
    below = lambda: -partial(cdf, i, args)  # noqa: E731
    own, other = (above, below) if tail == "isf" else (below, above)
    near = _near_one(xs[0], tail)
    return own() if never(near, guard=True) else np.where(near, other(), own())


def _moved_far(i: int, xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """The derivative by a parameter, of logarithms: that of the tail's logarithm, times the tail over the density.

    NaN where the tail is empty although q is not 0: the quantile was rounded to the end of the support, or beyond.
    """
    chance = _chance(xs, out, law, tail)
    moved = _moved(i, xs, out, law, tail, "log")
    slope = times(moved, np.exp(chance - law.standard("logpdf", out, *xs[1:])))
    return np.where(np.isneginf(plain(chance)), np.nan, slope)


def _chance(xs: Sequence[Any], out: Any, law: Any, tail: str) -> Any:
    """The logarithm of the probability of the quantile's own tail; near 1 of the other."""
    own, other = ("logsf", "logcdf") if tail == "isf" else ("logcdf", "logsf")
    args = (out, *xs[1:])
    return np.where(_near_one(xs[0], tail), law.standard(other, *args), law.standard(own, *args))


def _spacing(xs: Sequence[Any], out: Any, law: Any, tail: str) -> tuple[Any, Any]:
    """1 / density, and where the quantile lies inside (0, 1) but its density is too small to divide by.

    At an end of [0, 1] where the spacing is infinite it rises as 1 / q does, and where it is 0 nothing is known of its slopes.
    """
    q, parameters = xs[0], xs[1:]
    if tail == "sample":
        return 1 / law.standard("pdf", out, *parameters), False
    below, above = (q, 1.0 - q) if tail == "ppf" else (1.0 - q, q)
    given = map(plain, (out, *parameters)) if law.spacing else (out, *parameters)
    density = law.standard("pdf", *given)
    far = (plain(q) > 0) & (plain(q) < 1) & (plain(density) < TINY)
    if law.spacing:
        return law.spacing(out, below, above, *parameters), far
    if not never(far):
        precise = np.exp(law.standard("logpdf", out, *parameters))
        empty = np.isneginf(plain(_chance(xs, out, law, tail)))
        density = np.where(far, np.where(empty, np.nan, precise), density)
    first, last = plain(below) == 0, plain(above) == 0
    end = first | last
    if never(end):
        return 1 / density, far
    steep = end & (plain(density) == 0)
    flat = end & np.isposinf(plain(density))
    rest = np.where(steep, np.where(first, below, above), np.where(flat, 1.0, density))
    return np.where(flat, unsure(below, *parameters), 1 / rest), far


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
