"""Incomplete gamma and beta functions, differentiable by their shape parameters too, to any order.

The functions are integrals of a density p(t; a) up to x. With log p known, the n-th derivative of p by a is p times a polynomial
in the derivatives of log p (Bell's, by recurrence), so that of the function is the integral of that up to x, or, as the
integrals over the whole axis are constant, minus the integral from x on: whichever tail is of one sign. In s = log t, or
s = log(t / (1 - t)) for the beta function, log p is concave and falls at a known rate, so the tail is cut where it
has fallen by e^-45 and taken by 2 x 64 Gauss-Legendre points. Against mpmath the error is below 1e-13 (gamma) and 3e-12 (beta) of the larger
of the value and of the density's scale, for shapes from 1e-3 to 1e4 (tests/test_special.py); beyond that, rounding in the density's
exponent grows like the shape itself, as it does in the derivative by x.

At the edges of its support a density is a power of x, whose slopes are numbers there, times the exponential of all else; the
exponential of a logarithm has 0 times infinity for a slope. A factor that is 0 there stays so against the logarithm in its derivatives by shape.

The slope of a quantile x is 1 / density, a power of x too, but x itself is a power of the probability p: at an end one of the two may
have an infinite slope where that of the other is 0. So the slope is written there as the power of p that the two make,
p^(1/a - 1), times a smooth function of x, of which the first two terms are all that derivatives up to the fifth order ask for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from ...core.domain import Domain, positive
from ...core.primitive import call, refined, select
from ...core.sweep import times
from .declaring import parametric, smooth
from .gamma import betaln, gammaln, polygamma, psi
from .gaussian import share
from .logarithmic import xlog1py, xlogy

_DROP = 45.0

shape = Domain("shape", lambda rng, shape: rng.uniform(0.3, 4.0, shape), complex_too=False)
above = Domain("above", positive.draw, complex_too=False)


@lru_cache(1)
def _gauss() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1)."""
    u, w = np.polynomial.legendre.leggauss(64)
    return (u + 1) / 2, w / 2


def _panels(end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights from 0 to `end`: beyond 30 a tail of small shape is a bare exponential, and has points of its own."""
    u, weights = (v.reshape((-1,) + (1,) * end.ndim) for v in _gauss())
    first = np.minimum(end, 30.0)
    rest = end - first
    return np.concatenate([first * u, first + rest * u]), np.concatenate(
        [first * weights, rest * weights]
    )


def bell(cs: Sequence[Any]) -> Any:
    """The n-th derivative of p over p, from the derivatives of log p: c₁, ..., cₙ."""
    b: list[Any] = [1.0]
    for n in range(len(cs)):
        b.append(sum(math.comb(n, i) * b[n - i] * cs[i] for i in range(n + 1)))
    return b[-1]


def _root(f: Callable[..., Any], slope: Callable[..., Any], start: np.ndarray) -> np.ndarray:
    """Where a convex rising function is 0, by Newton's method from the right, on which it cannot overshoot."""
    w = start
    for _ in range(40):
        step = f(w) / slope(w)
        w = w - np.where(np.isfinite(step), step, 0.0)
    return np.maximum(w, 0.0)


# --------------------------------------------------------------------------------------------------- gamma


def gamma_density(a, x):
    """The derivative of gammainc(a, x) by x."""
    return _gamma_power(a, x, 1.0)


def _gamma_power(a, x, sign):
    inside = (x > 0) & (x < np.inf)
    # As a float: of small integers SciPy 1.18 gives the logarithm in single precision.
    rest = np.exp(sign * (xlogy(a - 1.0, select(inside, x, 1.0)) - x - gammaln(a * 1.0)))
    return select(x == 0, x, 1.0) ** (sign * (a - 1.0)) * rest


@refined(lambda a, x, p: _gamma_power(a, x, -1.0))
def gamma_spacing(a, x, p):
    """The derivative of x, the quantile of p, by p; at x = 0 a power of p (the second paragraph of the module says why)."""
    end = x == 0
    first = _end_spacing(a, gammaln(a * 1.0), select(end, p, 1.0))
    first = first * np.exp(2 * select(end & (a <= 1), x, 0.0) / (a + 1))
    return select(end, first, _gamma_power(a, select(end, 1.0, x), -1.0))


@refined(
    lambda a, x, p: select(
        x == 0, 0.0, -gammainc_by_shape(a, x, order_=1) * _gamma_power(a, x, -1.0)
    )
)
def gamma_quantile_by_shape(a, x, p):
    """The derivative of the quantile by the shape."""
    end = x == 0
    moved = _end_by_shape(a, gammaln(a * 1.0), psi(a), select(end, p, 1.0))
    spacing = gamma_spacing(a, x, p)
    away = gammainc_by_shape(a, select(end, 1.0, x), order_=1)
    return select(end, times(-1.0 * moved, spacing), -1.0 * away * spacing)


def _end_spacing(a, log_norm, p):
    """The first term of the quantile's slope at p = x^a / (a norm)."""
    e = 1.0 / a - 1.0
    return p**e * np.exp(e * (np.log(a) + log_norm) + log_norm)


def _end_by_shape(a, log_norm, slope, p):
    """The first term of the distribution function's derivative by a, at p = x^a / (a norm); `slope` is that of log_norm."""
    return times(p, (np.log(p) + np.log(a) + log_norm - 1) / a - slope)


def _gamma_weights(a: Any, log_x: Any, order: int) -> Any:
    """The derivative of the density by a, of this order, over the density."""
    return bell([log_x - psi(a), *(-polygamma(n, a) for n in range(1, order))])


def _gammainc_by_shape(a, x, order):
    """Derivative of order `order` of gammainc by its shape a: the integral of the tail in which nothing cancels."""
    dtype = np.result_type(a, x)
    a, x = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    with np.errstate(all="ignore"):
        # Below exp(psi(a)) the density falls with a, above it rises: no tail sums up what cancels.
        lower = x < np.exp(special.psi(a))
        log_x = np.log(x)
        below = _root(
            lambda w: a * w + x * np.expm1(-w) - _DROP,
            lambda w: a - x * np.exp(-w),
            (_DROP + x) / a,
        )
        start = np.log((_DROP + x + a * (np.log((_DROP + x + a) / x) + 5)) / x) + 0.5
        above = _root(
            lambda w: x * np.expm1(w) - a * w - _DROP,
            lambda w: x * np.exp(w) - a,
            np.where(x < a, start, np.minimum(start, np.sqrt(2 * _DROP / x))),
        )
        w, weights = _panels(np.where(lower, below, above))
        drop = np.where(lower, a * w + x * np.expm1(-w), x * np.expm1(w) - a * w)
        weight = _gamma_weights(a, np.where(lower, log_x - w, log_x + w), order)
        tail = np.sum(weights * np.exp(-drop) * weight, axis=0)
        out = np.where(lower, 1, -1) * np.exp(a * log_x - x - special.gammaln(a)) * tail
        out = np.where((x == 0) | np.isposinf(x), 0.0, out)
        out = np.where((a > 0) & (x >= 0), out, np.nan)
    return out.astype(dtype if dtype.kind == "f" else float)[()]


gammainc_by_shape = parametric(
    lambda a, x, order: _gammainc_by_shape(a, x, order),
    "a x order",
    a=lambda a, x, order: gammainc_by_shape(a, x, order_=order + 1),
    x=lambda a, x, order: times(gamma_density(a, x), _gamma_weights(a, np.log(x), order)),
    name="gammainc_by_shape",
    public=False,
    kernel=False,
    domain=(shape, above),
    samples=[call((3,), (3,), order_=1), call((2, 2), (2,), order_=2)],
    told="The derivatives of gammainc(a, x) by a, of the given order.",
    holomorphic=False,
)

# fmt: off
gammainc     = smooth(special.gammainc,     lambda x, y: gammainc_by_shape(x, y, order_=1), lambda x, y: gamma_density(x, y), domain=(shape, above))
gammaincc    = smooth(special.gammaincc,    lambda x, y: -gammainc_by_shape(x, y, order_=1), lambda x, y: -gamma_density(x, y), domain=(shape, above))
gammaincinv  = smooth(special.gammaincinv,  lambda x, y, out: gamma_quantile_by_shape(x, out, y), lambda x, y, out: gamma_spacing(x, out, y), domain=(shape, share))
gammainccinv = smooth(special.gammainccinv, lambda x, y, out: gamma_quantile_by_shape(x, out, 1 - y), lambda x, y, out: -gamma_spacing(x, out, 1 - y),
                      domain=(shape, share))
# fmt: on


# --------------------------------------------------------------------------------------------------- beta


def beta_density(a, b, x):
    """The derivative of betainc(a, b, x) by x."""
    return _beta_power(a, b, x, 1.0)


def _beta_power(a, b, x, sign):
    left, right = x == 0, x == 1
    log_x = xlogy(a - 1.0, select(left, 1.0, x))
    log_y = xlog1py(b - 1.0, -1.0 * select(right, 0.0, x))
    edges = select(left, x, 1.0) ** (sign * (a - 1.0))
    edges = edges * select(right, 1.0 - x, 1.0) ** (sign * (b - 1.0))
    rest = log_x + log_y - betaln(a, b)
    rest = select(
        left | right, np.minimum(rest, 700.0), rest
    )  # beside a power that is 0, no infinity
    return edges * np.exp(sign * rest)


def _digammas(n: int, a: Any) -> Any:
    return psi(a) if n == 0 else polygamma(n, a)


def _beta_weights(a: Any, b: Any, log_x: Any, log_y: Any, i: int, j: int) -> Any:
    """The derivative of the density, i times by a and j times by b, over the density; log_y is log(1 - x)."""

    def c(p: int, q: int) -> Any:
        """That of log p."""
        both = _digammas(p + q - 1, a + b)
        if p and q:
            return both
        alone = _digammas(p + q - 1, a if p else b)
        return both - alone + ((log_x if p else log_y) if p + q == 1 else 0.0)

    table: dict[tuple[int, int], Any] = {(0, 0): 1.0}
    for m in range(i + 1):
        for n in range(j + 1):
            if m:
                table[m, n] = sum(
                    math.comb(m - 1, p) * math.comb(n, q) * c(p + 1, q) * table[m - 1 - p, n - q]
                    for p in range(m)
                    for q in range(n + 1)
                )
            elif n:
                table[m, n] = sum(
                    math.comb(n - 1, q) * c(0, q + 1) * table[0, n - 1 - q] for q in range(n)
                )
    return table[i, j]


def _betainc_by_shape(a, b, x, i, j):
    """Derivative of betainc, i times by a and j times by b: the integral of the tail in which nothing cancels."""
    dtype = np.result_type(a, b, x)
    a, b, x = np.broadcast_arrays(*(np.asarray(v, float) for v in (a, b, x)))
    with np.errstate(all="ignore"):
        # Where the density falls, or rises, with the parameter, no tail sums up what cancels.
        if i and j:
            lower = x * (a + b) < a
        elif i:
            lower = np.log(x) < special.psi(a) - special.psi(a + b)
        else:
            lower = np.log1p(-x) > special.psi(b) - special.psi(a + b)
        # The upper tail is the lower one of 1 - t, with a and b exchanged.
        p, q = np.where(lower, a, b), np.where(lower, b, a)
        log_x, log_y = np.log(x), np.log1p(-x)
        t = np.where(lower, x, 1 - x)
        log_t, log_rest = np.where(lower, log_x, log_y), np.where(lower, log_y, log_x)
        end = _root(
            lambda w: p * w + (p + q) * np.log1p(t * np.expm1(-w)) - _DROP,
            lambda w: p - (p + q) * t * np.exp(-w) / (1 + t * np.expm1(-w)),
            (_DROP - (p + q) * log_rest) / p,
        )
        w, weights = _panels(end)
        fall = np.log1p(t * np.expm1(-w))
        at, rest = log_t - w - fall, log_rest - fall
        weight = _beta_weights(a, b, np.where(lower, at, rest), np.where(lower, rest, at), i, j)
        tail = np.sum(weights * np.exp(-p * w - (p + q) * fall) * weight, axis=0)
        out = np.where(lower, 1, -1) * np.exp(a * log_x + b * log_y - special.betaln(a, b)) * tail
        out = np.where((x == 0) | (x == 1), 0.0, out)
        out = np.where((a > 0) & (b > 0) & (x >= 0) & (x <= 1), out, np.nan)
    return out.astype(dtype if dtype.kind == "f" else float)[()]


betainc_by_shape = parametric(
    lambda a, b, x, i, j: _betainc_by_shape(a, b, x, i, j),
    "a b x i j",
    a=lambda a, b, x, i, j: betainc_by_shape([a, b, x], i_=i + 1, j_=j),
    b=lambda a, b, x, i, j: betainc_by_shape([a, b, x], i_=i, j_=j + 1),
    x=lambda a, b, x, i, j: times(
        beta_density(a, b, x), _beta_weights(a, b, np.log(x), np.log1p(-x), i, j)
    ),
    name="betainc_by_shape",
    public=False,
    kernel=False,
    domain=(shape, shape, share),
    samples=[call((3,), (3,), (3,), i_=1, j_=0), call((2,), (2,), (2,), i_=1, j_=1)],
    told="The derivatives of betainc(a, b, x), i times by a and j times by b.",
    holomorphic=False,
)


def by_a(a, b, x):
    """The derivative of betainc(a, b, x) by a."""
    return betainc_by_shape([a, b, x], i_=1, j_=0)


def by_b(a, b, x):
    """The derivative of betainc(a, b, x) by b."""
    return betainc_by_shape([a, b, x], i_=0, j_=1)


@refined(lambda a, b, x, p, q: _beta_power(a, b, x, -1.0))
def beta_spacing(a, b, x, p, q):
    """The derivative of x, the quantile of p = 1 - q, by p; at x = 0 a power of p, and at x = 1 one of q."""
    left, right = x == 0, x == 1
    log_norm = betaln(a, b)
    low = _end_spacing(a, log_norm, select(left, p, 1.0))
    inner = select(left & (a <= 1), x, 0.0)
    low = low * np.exp(2 * (1 - b) / (a + 1) * np.log1p(-inner))
    high = _end_spacing(b, log_norm, select(right, q, 1.0))
    inner = select(right & (b <= 1), x, 1.0)
    high = high * np.exp(2 * (1 - a) / (b + 1) * np.log(inner))
    inside = _beta_power(a, b, select(left | right, 0.5, x), -1.0)
    return select(left, low, select(right, high, inside))


@refined(
    lambda a, b, x, p, q, by: select(
        (x == 0) | (x == 1), 0.0, -_by_either(a, b, x, by) * _beta_power(a, b, x, -1.0)
    )
)
def beta_quantile_by_shape(a, b, x, p, q, by):
    """The derivative of the quantile by a (`by` is 0) or b (1)."""
    left, right = (x == 0) & (a != 1), (x == 1) & (b != 1)
    below, above = select(left, p, 1.0), select(right, q, 1.0)
    log_norm, both = betaln(a, b), psi(a + b)
    first, second = psi(a) - both, psi(b) - both
    if by:
        low, high = -1.0 * below * second, -1.0 * _end_by_shape(b, log_norm, second, above)
    else:
        low, high = _end_by_shape(a, log_norm, first, below), above * first
    away = _by_either(a, b, select(left | right, 0.5, x), by)
    moved = select(left, low, select(right, high, away))
    return times(-1.0 * moved, beta_spacing(a, b, x, p, q))


def _by_either(a, b, x, by):
    return by_b(a, b, x) if by else by_a(a, b, x)


# fmt: off
betainc     = smooth(special.betainc,     lambda x, y, z: by_a(x, y, z), lambda x, y, z: by_b(x, y, z), lambda x, y, z: beta_density(x, y, z),
                     domain=(shape, shape, share))
betaincc    = smooth(special.betaincc,    lambda x, y, z: -by_a(x, y, z), lambda x, y, z: -by_b(x, y, z), lambda x, y, z: -beta_density(x, y, z),
                     domain=(shape, shape, share))
betaincinv  = smooth(special.betaincinv,  lambda x, y, z, out: beta_quantile_by_shape(x, y, out, z, 1 - z, 0),
                     lambda x, y, z, out: beta_quantile_by_shape(x, y, out, z, 1 - z, 1), lambda x, y, z, out: beta_spacing(x, y, out, z, 1 - z),
                     domain=(shape, shape, share))
betainccinv = smooth(special.betainccinv, lambda x, y, z, out: beta_quantile_by_shape(x, y, out, 1 - z, z, 0),
                     lambda x, y, z, out: beta_quantile_by_shape(x, y, out, 1 - z, z, 1), lambda x, y, z, out: -beta_spacing(x, y, out, 1 - z, z),
                     domain=(shape, shape, share))
# fmt: on

__all__ = [
    "betainc", "betaincc", "betainccinv", "betaincinv", "gammainc", "gammaincc", "gammainccinv", "gammaincinv",
]  # fmt: skip
