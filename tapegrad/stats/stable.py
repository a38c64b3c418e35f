"""Stable distributions, whose density and distribution function are integrals over an angle (Nolan 1997, Stochastic Models 13).

On the side y > 0 the angle runs over an interval of length L, and g = y^(α/(α-1)) V(angle) rises or falls from 0 to infinity along it. The
density is the integral of g e^-g, the distribution function that of e^-g. The angle is L expit(u): its distances ε and δ from the two
ends keep their digits, and so do all factors of V, sines of ε or δ beyond two numbers κ and λ that vanish where β = 1 or -1. The
integral of g e^-g has one peak in u (quadrature.py); that of e^-g is taken by Gauss' rule in pieces, since g may fall fast
and e^-g stays. The side y < 0 is that of -y and -β.

At α = 1 the integrals have other forms. Within 0.01 of it logarithms are interpolated between ten values of α, in the parametrisation
S0 (y - β tan(πα/2)), which is smooth there. Near y = 0, where derivatives by y would lose digits, the density is its series.

Invariant: for 0.3 <= α <= 2 a density and the smaller side of a distribution function have 12 digits, the tails too; within 0.01 of α = 1
derivatives have 10. What is not optimal: smaller α have fewer digits, and each number takes 385 terms, or 3850 near α = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from .. import special
from ..errors import NotDifferentiable
from .quadrature import called, columns, log_integral, plain
from .univariate import INF, Continuous

Formula = Callable[..., Any]

NEAR_ONE = 0.01
_NODES = 1 + NEAR_ONE * np.array([-5.0, -4, -3, -2, -1, 1, 2, 3, 4, 5])
_GAUSS, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_TERMS = 12
SMALL = 1e-3
"""Part of the density's width around y = 0 in which its series is used."""


# ------------------------------------------------------------------------------------------------- the integrands


class _Side:
    """log g as a function of u on the side y > 0, with what its integrals need; α is not 1."""

    def __init__(self, y: Any, alpha: Any, beta: Any) -> None:
        low = plain(alpha) < 1
        # 0 at α = 2, to the last bit.
        tangent = np.where(low, np.tan(0.5 * np.pi * alpha), -np.tan(0.5 * np.pi * (2 - alpha)))
        angle = np.arctan(beta * tangent)
        # κ = π/2 - θ0 and λ = π - α L, with L = π - κ: differences of arcs of tangents where they may vanish.
        kappa = np.where(low, np.arctan2(tangent * (1 - beta), 1 + beta * tangent**2) / alpha, 0.5 * np.pi - angle / alpha)  # fmt: skip
        lam = np.where(low, np.pi - 0.5 * np.pi * alpha - angle, np.arctan2(-tangent * (1 + beta), 1 - beta * tangent**2))  # fmt: skip
        self.alpha, self.kappa, self.lam, self.length = alpha, kappa, lam, np.pi - kappa
        self.log_y = np.log(y)
        self.log_modulus = 0.5 * np.log1p((beta * tangent) ** 2)

    def log_g(self, u: Any) -> Any:
        alpha, kappa, lam = self.alpha, self.kappa, self.lam
        left, right = self.length * special.expit(u), self.length * special.expit(-u)
        first = plain(u) < 0
        cosine = np.where(first, np.sin(kappa + left), np.sin(right))
        sine = np.where(first, np.sin(alpha * left), np.sin(lam + alpha * right))
        other = np.where(first, np.sin(kappa + (1 - alpha) * left), np.sin(lam + (alpha - 1) * right))  # fmt: skip
        log_cosine = np.log(cosine)
        exponent = alpha / (alpha - 1)
        return (
            exponent * (self.log_y + log_cosine - np.log(sine)) - self.log_modulus / (alpha - 1) + np.log(other) - log_cosine
        )  # fmt: skip


def _log_weight(u: Any) -> Any:
    """Logarithm of expit'(u)."""
    return special.log_expit(u) + special.log_expit(-u)


def _even(y: Any, beta: Any) -> tuple[Any, Any]:
    """|y|, at least 1e-30, and the β of its side."""
    sign = np.where(plain(y) < 0, -1.0, 1.0)
    return sign * y + np.where(np.abs(plain(y)) < 1e-30, 1e-30, 0.0), sign * beta


def _above(log_g: Formula, alpha: np.ndarray, level: float) -> np.ndarray:
    """The u where g is a level more than at the end where it is least; of plain arrays."""
    low = np.where(alpha < 1, -500.0, 500.0)
    high, least = -low, np.exp(log_g(low))
    least = np.where(np.isfinite(least), least, 0.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        more = np.exp(log_g(middle)) - least > level
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return low


# ------------------------------------------------------------------------------------------------- the density


def _series(y: Any, alpha: Any, beta: Any) -> Any:
    """The density near 0 by powers of y > 0."""
    side = _Side(1.0, alpha, beta)
    radius = np.exp(-side.log_modulus / alpha)
    total: Any = 0.0
    for k in range(_TERMS):
        factor = np.exp(
            special.gammaln((k + 1) / alpha) - special.gammaln((k + 1) * 1.0) + 0.0 * radius
        )
        total = total + y**k * factor * radius ** (k + 1) * np.sin((k + 1) * side.kappa)
    return total / (np.pi * alpha)


def _log_density_aside(y: Any, alpha: Any, beta: Any) -> Any:
    """Logarithm of the density in S1 where α is not near 1."""
    y, beta = _even(y, beta)

    def exponent(u: Any, y: Any, alpha: Any, beta: Any) -> Any:
        log_g = _Side(y, alpha, beta).log_g(u)
        return log_g - np.exp(log_g) + _log_weight(u)

    def mode(y: Any, alpha: Any, beta: Any) -> Any:
        """The best of the places around where g is 1 more than its least, and around 0."""
        center = _above(_Side(y, alpha, beta).log_g, alpha + 0.0 * (y + beta), 1.0)
        steps = columns(np.linspace(-60.0, 60.0, 121), np.ndim(center))
        places = np.concatenate([center + steps, 0.0 * center + steps])
        values = exponent(places, y, alpha, beta)
        best = np.argmax(np.where(np.isnan(values), -INF, values), axis=0)
        return np.take_along_axis(places, best[None], axis=0)[0]

    def width(y: Any, alpha: Any, beta: Any) -> Any:
        return 0.2 * np.minimum(np.abs(1 - alpha), 1.0) + 0 * (y + beta)

    value = (
        log_integral(exponent, mode, width, y, alpha, beta) + np.log(_Side(y, alpha, beta).length)
        + np.log(alpha / (np.abs(alpha - 1) * np.pi * y))
    )  # fmt: skip
    at, a, b = plain(y), plain(alpha), plain(beta)
    side = _Side(1.0, a, b)
    spread = np.exp(special.gammaln(1 / a) - special.gammaln(2 / a) + plain(side.log_modulus) / a)
    close = (at < np.where(a < 0.3, 1e-12, SMALL) * spread) & (plain(side.kappa) > 0)
    if not np.any(close):
        return value
    near = _series(np.where(close, y, 0.0), np.where(close, alpha, 1.5), np.where(close, beta, 0.0))
    return np.where(close, np.log(near), value)


# ------------------------------------------------------------------------------------------------- the distribution function


def _ends(at: Any, alpha: Any, beta: Any) -> np.ndarray:
    """Ends of the three pieces of the integral of e^-g, or of 1 - e^-g: where the integrand is 0 in double precision, where it begins to
    saturate, where it has saturated, and where the weight is gone. Of plain arrays."""
    at, alpha, beta = np.broadcast_arrays(*(np.asarray(v, float) for v in (at, alpha, beta)))
    with np.errstate(all="ignore"):
        log_g, rises = _Side(at, alpha, beta).log_g, np.where(alpha < 1, 1.0, -1.0)
        gone, turns, flat = (_above(log_g, alpha, level) for level in (45.0, 1.0, 1e-17))
        far = np.where(alpha < 1, np.minimum(gone, 0.0), np.maximum(gone, 0.0)) - 45 * rises
        flat = np.where(rises * (flat - far) > 0, flat, far)
        turns = np.where(rises * (turns - flat) > 0, turns, flat)
        # 1 - e^-g goes on where g is large, as far as the weight does.
        beyond = np.where(alpha < 1, np.maximum(gone, 0.0), np.minimum(gone, 0.0)) + 45 * rises
        rest = [
            np.clip(0.0, np.minimum(a, b), np.maximum(a, b))
            for a, b in ((beyond, gone), (flat, far))
        ]
        return np.stack([beyond, rest[0], gone, turns, flat, rest[1], far])


def _integrals(y: Any, alpha: Any, beta: Any) -> tuple[Any, Any]:
    """The integrals of e^-g and of 1 - e^-g over the angle, in parts of π."""
    side = _Side(y, alpha, beta)
    places = called(_ends, *map(plain, (y, alpha, beta)))
    nodes, weights = (columns(v, np.ndim(places) - 1) for v in (_GAUSS, _WEIGHTS))
    below: Any = 0.0
    above: Any = 0.0
    for k in range(6):
        half = 0.5 * (places[k] - places[k + 1])
        u = 0.5 * (places[k] + places[k + 1]) + half * nodes
        g = np.exp(side.log_g(u))
        weight = np.abs(half) * weights * np.exp(_log_weight(u))
        above = above - np.sum(weight * np.expm1(-g), axis=0)
        if k > 1:
            below = below + np.sum(weight * np.exp(-g), axis=0)
    share = side.length / np.pi
    return share * below, share * above


def _log_tails_aside(y: Any, alpha: Any, beta: Any) -> tuple[Any, Any]:
    """Logarithms of sf and cdf in S1 where α is not near 1."""
    flip, low = plain(y) < 0, plain(alpha) < 1
    y, beta = _even(y, beta)
    below, above = _integrals(y, alpha, beta)
    upper = np.where(low, above, below)
    rest = np.where(low, _Side(1.0, alpha, beta).kappa / np.pi + below, 1 - upper)
    return np.log(np.where(flip, rest, upper)), np.log(np.where(flip, upper, rest))


# ------------------------------------------------------------------------------------------------- near one


def _shift(alpha: Any, beta: Any) -> Any:
    """What leads from S1 to S0; at α = 1 they are one, and there is no slope by α unless β is 0."""
    one = plain(alpha) == 1
    away = np.where(one, 1.5, alpha)
    kink = one & (plain(beta) != 0)
    jump = np.where(kink, np.sqrt(np.where(kink, alpha - 1, 1.0)), 0.0)
    return np.where(one, jump, -beta * np.tan(0.5 * np.pi * away))


def _edged(alpha: Any, beta: Any) -> tuple[Any, Any]:
    """α with an infinite slope at 2, β with one at 1 and -1: light tails become heavy there, which these integrals miss."""
    normal = plain(alpha) == 2
    edge = (np.abs(plain(beta)) == 1) & ~normal
    if bool(np.any(normal)):
        alpha = alpha + np.where(normal, np.sqrt(np.where(normal, 2 - alpha, 1.0)), 0.0)
    if bool(np.any(edge)):
        beta = beta + np.where(edge, np.sqrt(np.where(edge, 1 - beta**2, 1.0)), 0.0)
    return alpha, beta


def _interpolated(f: Formula, y: Any, alpha: Any, beta: Any) -> Any:
    """A function of S1 within NEAR_ONE of α = 1, from its values at other α, by Lagrange's formula in S0."""
    y, alpha, beta = y + 0.0 * (plain(alpha) + plain(beta)), alpha + 0.0 * plain(y), beta + 0.0 * plain(y)  # fmt: skip
    nodes = columns(_NODES, np.ndim(plain(y)))
    values = f(y + _shift(alpha, beta) + beta * np.tan(0.5 * np.pi * nodes), nodes + 0.0 * y, beta + 0.0 * nodes)  # fmt: skip
    total: Any = 0.0
    for k, node in enumerate(_NODES):
        weight: Any = 1.0
        for other in np.delete(_NODES, k):
            weight = weight * (alpha - other) / (node - other)
        total = total + weight * values[k]
    return total


def _everywhere(f: Formula) -> Formula:
    """A formula for α away from 1, continued to all α."""

    def continued(y: Any, alpha: Any, beta: Any) -> Any:
        alpha, beta = _edged(alpha, beta)
        near = np.abs(plain(alpha) - 1) < NEAR_ONE
        if not bool(np.any(near)):
            return f(y, alpha, beta)
        between = _interpolated(f, y, np.where(near, alpha, 1.005), beta)
        if bool(np.all(near)):
            return between
        return np.where(near, between, f(y, np.where(near, 1.5, alpha), beta))

    return continued


# ------------------------------------------------------------------------------------------------- what is public


FUNCTIONS = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf")


class _Plainly:
    """`scipy.stats.levy_stable` with our integrals: near α = 1 SciPy takes the values there, and it moves `loc` for pdf and cdf alone."""

    def __init__(self, law: Continuous) -> None:
        from scipy import stats

        self.law, self.theirs = law, stats.levy_stable

    def __getattr__(self, name: str) -> Any:
        return partial(self._function, name) if name in FUNCTIONS else getattr(self.theirs, name)

    def _function(self, what: str, x: Any, alpha: Any, beta: Any, loc: Any, scale: Any) -> Any:
        values = np.broadcast_arrays(*(np.asarray(v, float) for v in (x, alpha, beta, loc, scale)))
        x, alpha, beta, loc, scale = values
        with np.errstate(all="ignore"):
            value = self.law.standard(
                "logpdf" if what == "pdf" else what, (x - loc) / scale, alpha, beta
            )
            if what in ("pdf", "logpdf"):
                value = value - np.log(scale)
            value = np.exp(value) if what == "pdf" else value
            return np.where(self.law._valid((alpha, beta), scale), value, np.nan)

    def ppf(self, q: Any, alpha: Any, beta: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return loc + scale * self._quantile("cdf", q, alpha, beta)

    def isf(self, q: Any, alpha: Any, beta: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return loc + scale * self._quantile("sf", q, alpha, beta)

    def _quantile(self, what: str, q: Any, alpha: Any, beta: Any) -> Any:
        """The place where a tail is q, by Chandrupatla's method in arcsinh of the place."""
        from scipy.optimize import elementwise

        q, alpha, beta = np.broadcast_arrays(*(np.asarray(v, float) for v in (q, alpha, beta)))
        inside = (q > 0) & (q < 1) & self.law.valid(alpha, beta)
        low, high = self.law._support(alpha, beta)
        ends = (low, high) if what == "cdf" else (high, low)
        outside = np.where(q == 0, ends[0], np.where(q == 1, ends[1], np.nan))
        sign = 1.0 if what == "cdf" else -1.0

        def away(v: Any, q: Any, alpha: Any, beta: Any) -> Any:
            """The logarithm of the tail less that of q, so that it rises with v."""
            with np.errstate(all="ignore"):
                tail = self.law.standard("log" + what, np.sinh(v), alpha, beta)
                return sign * (np.maximum(tail, -1e300) - np.log(q))

        args = (np.where(inside, q, 0.5), np.where(inside, alpha, 1.5), np.where(inside, beta, 0.0))
        start = np.arcsinh(np.where(args[1] == 1, 0.0, args[2] * np.tan(0.5 * np.pi * args[1])))
        bracket = elementwise.bracket_root(away, start - 1, start + 1, args=args).bracket
        found = elementwise.find_root(
            away, bracket, args=args, tolerances={"xatol": 0, "fatol": 0}
        ).x
        return np.where(inside, np.sinh(found), outside)[()]

    def rvs(self, alpha: Any, beta: Any, loc: Any = 0.0, scale: Any = 1.0, **settings: Any) -> Any:
        size = settings.pop("size", None)
        size = (
            np.broadcast_shapes(*map(np.shape, (alpha, beta, loc, scale))) if size is None else size
        )
        return loc + scale * self.theirs.rvs(alpha, beta, size=size, **settings)


class LevyStable(Continuous):
    """SciPy's `levy_stable` in its default parametrisation S1, by alpha, beta, loc and scale.

    Densities and distribution functions are integrals on the tape: for alpha of at least 0.3 they have 12 digits, the tails too, and
    derivatives have 10 within 0.01 of alpha = 1; smaller alpha have fewer. Derivatives by alpha
    at 2, and at 1 where beta is not 0, and by beta at 1 and -1 are infinite or NaN: S1 jumps at alpha = 1, and at the others a light tail
    becomes a heavy one.

    >>> import tapegrad as tg
    >>> [round(g, 9) for g in tg.grad(tg.stats.levy_stable.pdf, (0, 1, 2))(0.7, 1.5, 0.5)]
    [-0.116572592, 0.241312883, -0.113945543]
    """

    @cached_property
    def scipy(self) -> Any:
        """SciPy's distribution, with our integrals."""
        return _Plainly(self)

    def _parts(self, what: str, args: Any, named: Any, *given: Any) -> tuple[list[Any], list[Any]]:
        """At α = 1 a scale moves the place where the standard form has its 0."""
        found, (alpha, beta, loc, scale) = super()._parts(what, args, named, *given)
        one = plain(alpha) == 1
        if bool(np.any(one)):
            with np.errstate(all="ignore"):
                loc = loc + np.where(one, (2 / math.pi) * beta * scale * np.log(scale), 0.0)
        return found, [alpha, beta, loc, scale]


def _refused(*_: Any) -> Any:
    raise NotDifferentiable(
        "the derivative of levy_stable.entropy was asked, which is an integral of integrals. Use scipy.stats.levy_stable.entropy on plain "
        "arrays, or the mean of -levy_stable.logpdf over a sample."
    )


def _support(alpha: Any, beta: Any) -> tuple[Any, Any]:
    below = alpha < 1
    return np.where(below & (beta == 1), 0.0, -INF), np.where(below & (beta == -1), 0.0, INF)


_log_sf = _everywhere(lambda *a: _log_tails_aside(*a)[0])
_log_cdf = _everywhere(lambda *a: _log_tails_aside(*a)[1])

levy_stable = LevyStable(
    "levy_stable", "alpha beta", _everywhere(_log_density_aside), _support,
    lambda alpha, beta: (alpha > 0) & (alpha <= 2) & (np.abs(beta) <= 1),
    logsf=_log_sf, logcdf=_log_cdf, cdf=lambda *a: np.exp(_log_cdf(*a)), sf=lambda *a: np.exp(_log_sf(*a)),
    mean=lambda alpha, beta: np.where(alpha > 1, 0.0 * (alpha + beta), np.nan),
    var=lambda alpha, beta: np.where(alpha == 2, 2.0, INF) + 0.0 * (alpha + beta), entropy=_refused, open="both",
)  # fmt: skip

__all__ = ["levy_stable"]
