"""Logistic functions, entropies, and powers and logarithms made safe: closed derivatives, exact in both tails.

At the edge of the entropies' domain the derivative of x log y by x is infinite where y = 0; there xlogy and xlog1py have
the subgradient 0 in x if x = 0 too, and 0 in y wherever x = 0: PyTorch's choices, and those that make sums finite.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, positive, real
from ...core.primitive import UFUNCS, refined, select
from ..calculus import sinc as numpy_sinc
from ..elementary import (
    LN2,
    LN10,
    cbrt,
    exp2,
    expm1,
    log1p,
    power_below,
    power_by_base,
    power_by_exponent,
    power_log_at_infinity,
)
from .declaring import smooth
from .gaussian import share
from .hypergeometric import ellipkm1, elliptic_rest, rest_slope

DEGREE = math.pi / 180
HALF_PI = math.pi / 2

above_minus_one = Domain("above_minus_one", lambda rng, shape: rng.uniform(-0.7, 2.0, shape), complex_too=False)  # fmt: skip
real_only = Domain("real_only", real.draw, complex_too=False)
small = Domain("small", lambda rng, shape: rng.uniform(0.2, 0.9, shape), complex_too=False)


# fmt: off
expit     = smooth(special.expit,     lambda x, out: _logistic_slope(x, out), domain=real_only)
log_expit = smooth(special.log_expit, lambda x: expit(-x), domain=real_only)
logit     = smooth(special.logit,     lambda x: 1 / x + 1 / (1 - x), domain=share)
exp10     = smooth(special.exp10,     lambda out: out * LN10, domain=real_only)
# (exp(x) - 1) / x, whose slope at 0 is 1/2 and whose formula cancels beside it: a series there.
exprel    = smooth(special.exprel,    lambda x, out: _exprel_slope(x, out), domain=real_only)
cosm1     = smooth(special.cosm1,     lambda x: -np.sin(x), domain=real_only)
sindg     = smooth(special.sindg,     lambda x: DEGREE * cosdg(_told(x)), domain=real_only)
cosdg     = smooth(special.cosdg,     lambda x: -DEGREE * sindg(_told(x)), domain=real_only)
# Divided by a square of 0, a slope of 0 would stay 0: hence one factor after the other.
tandg     = smooth(special.tandg,     lambda x: DEGREE / cosdg(_told(x)) / cosdg(_told(x)), domain=real_only)
# By the sine: SciPy's cotdg has lost its digits beside 0.
cotdg     = smooth(special.cotdg,     lambda x: -DEGREE / sindg(_told(x)) / sindg(_told(x)), domain=real_only)

entr      = smooth(special.entr,      lambda x: -np.log(x) - 1, domain=positive)
rel_entr  = smooth(special.rel_entr,  lambda x, y: _log_quotient(x, y) + 1, lambda x, y: -1.0 * x / y, domain=positive)
kl_div    = smooth(special.kl_div,    lambda x, y: _log_quotient(x, y), lambda x, y: 1 - x / y, domain=positive)
xlogy     = smooth(special.xlogy,     lambda x, y: select((x == 0) & (np.real(y) <= 0), 0.0, np.log(1.0 * y)),
                                      lambda x, y: select((x == 0) & (np.real(y) <= 0), 0.0, x / y), domain=(real, positive))
xlog1py   = smooth(special.xlog1py,   lambda x, y: select((x == 0) & (np.real(y) <= -1), 0.0, np.log1p(1.0 * y)),
                                      lambda x, y: select((x == 0) & (np.real(y) <= -1), 0.0, x / (1.0 + y)), domain=(real, positive))
# x ** y - 1
powm1     = smooth(special.powm1,     lambda x, y: power_by_base(x, y), lambda x, y: power_by_exponent(x, y, x ** y), domain=(positive, real))
# (x ** lambda - 1) / lambda, and log(x) at lambda = 0
boxcox    = smooth(special.boxcox,    lambda x, y: power_below(1.0 * x, y), lambda x, y: _boxcox_slope(1.0 * x, np.log(1.0 * x), y), domain=(positive, real))
boxcox1p  = smooth(special.boxcox1p,  lambda x, y: _power_of_next(x, y), lambda x, y: _boxcox_slope(1.0 + x, np.log1p(1.0 * x), y),
                   domain=(above_minus_one, real))
inv_boxcox   = smooth(special.inv_boxcox,   lambda x, y, out: _root_of_next(x, y, out) / (1 + x * y), lambda x, y, out: _inv_boxcox_slope(x, y, out),
                      domain=(small, small))
inv_boxcox1p = smooth(special.inv_boxcox1p, lambda x, y, out: _root_of_next(x, y, 1 + out) / (1 + x * y), lambda x, y, out: _inv_boxcox_slope(x, y, 1 + out),
                      domain=(small, small))
# huber(delta, r): quadratic below delta, linear beyond
huber     = smooth(special.huber,     lambda x, y: select(np.abs(y) <= x, 0.0, np.abs(y) - x),
                                      lambda x, y: select((np.abs(y) <= x) & (x > 0), y, x * np.sign(y)), domain=(small, real_only), holomorphic=False)
pseudo_huber = smooth(special.pseudo_huber, lambda x, y: _pseudo_huber_by_delta(x, y), lambda x, y: _pseudo_huber_by_distance(x, y),
                      domain=(positive, real_only))
# fmt: on


@refined(lambda x, out: out * expit(-x))
def _logistic_slope(x, out):
    """out (1 - out): beside 0, where its own slope vanishes, by the hyperbolic cosine."""
    near = np.abs(x) < 1
    return select(near, 0.5 / (1 + np.cosh(select(near, x, 0.0))), out * expit(-x))


def _told(x):
    """Degrees of which SciPy tells the sine; beyond 1e14, where it answers 0, there is no slope."""
    return x * select(np.abs(x) > 1e14, np.nan, 1.0)


def _exprel_slope(x, out):
    """(exp(x) - exprel(x)) / x, or its series, whose terms are x^k (k + 1) / (k + 2)!, within 1."""
    near = np.abs(x) < 1
    t = select(near, x, 0.0)
    series = 0.5 + t * (1 / 3 + t * (1 / 8 + t * (1 / 30 + t * (1 / 144 + t * (1 / 840 + t * (1 / 5760 + t * (1 / 45360 + t * (
        1 / 403200 + t * (1 / 3991680 + t * (1 / 43545600 + t * (1 / 518918400 + t * (1 / 6706022400 + t * (
        1 / 93405312000 + t * (1 / 1394852659200 + t * (1 / 22230464256000 + t / 376610217984000)))))))))))))))  # fmt: skip
    below, away = select(x < 0, x, 0.0), select(near, 1.0, x)
    return select(
        near, series, select(x < 0, (np.exp(below) - out) / away, out * (1 - 1 / away) + 1 / away)
    )


def _power_of_next(x, y):
    """(1 + x) ** (y - 1), by the logarithm of 1 + x beside 0; at x = -1 itself that has no slope, and at x = inf none either."""
    at = (x == -1) | (x == np.inf)
    power = np.exp((y - 1.0) * np.log1p(1.0 * select(at, 0.0, x)))
    return select(at, power_below(select(at, 1.0 + x, 1.0), select(at, y, 1.0)), power)


def _log_quotient(x, y):
    """log(x / y), also where the quotient underflows or overflows, in single precision as well: a difference of logarithms far from 0
    loses no digits."""
    q = x / y
    near = (q > 1e-30) & (q < 1e30)
    return select(near, np.log(select(near, q, 1.0)), np.log(1.0 * x) - np.log(1.0 * y))


def _root_of_next(x, y, power):
    """(1 + x y) ** (1 / y), which `power` is where x y has all its digits."""
    u = x * y
    return select((np.abs(u) < 1e-290) & (y != 0), np.exp(x * (1 - u * (0.5 - u / 3))), power)


def _boxcox_slope(x, log, y):
    """d/dy of (x ** y - 1) / y: log² times the slope of exprel at y log; at x = 0 that of -1 / y, to which x log(x) has an infinite slope,
    and so at x = inf where y < 0."""
    end, far = (x == 0) & (y > 0), x == np.inf
    log = select(end | far, 0.0, log)
    t = y * log
    near = np.abs(t) < 0.05
    away = select(near, 1.0, t)
    slope = log * log * _exprel_slope(t, select(near, 1.0, np.expm1(away) / away))
    small, large = select(end | (far & (y < 0)), y, 1.0), select(far & (y >= 0), y, 0.0)
    square = 1 / (small * small)
    slope = select(end, square - select(small <= 1, entr(x), 0.0), slope)
    return select(far, select(y < 0, square, power_log_at_infinity(x, large)), slope)


def _inv_boxcox_slope(x, y, power):
    """d/dy of (1 + x y) ** (1 / y), where `power` is that; below 0.02 a series, good to 1e-16."""
    power = _root_of_next(x, y, power)
    u = x * y
    near = np.abs(u) < 0.02
    t = select(near, u, 0.0)
    series = -1 / 2 + t * (2 / 3 + t * (-3 / 4 + t * (4 / 5 + t * (-5 / 6 + t * (6 / 7 + t * (-7 / 8 + t * (8 / 9 - t * 9 / 10)))))))  # fmt: skip
    v = select(near, 1.0, u)
    return power * x * x * select(near, series, (v / (1 + v) - np.log1p(v)) / (v * v))


# With r the quotient of the smaller of |y| and x and the larger, and h = sqrt(1 + r²): no formula cancels, nor overflows.


def _pseudo_huber_by_delta(x, y):
    """d/dx of x² (sqrt(1 + (y/x)²) - 1)."""
    large = np.abs(y) > x
    d = select(large, y, x)
    r = select(large, x, y) / select(d == 0, 1.0, d)
    h = np.sqrt(1 + r * r)
    q = np.abs(r) + h
    part = r / (1 + h)
    return select(large, np.abs(y) / (q * q * h), y * part * part * r / h)


def _pseudo_huber_by_distance(x, y):
    """y / sqrt(1 + (y/x)²)"""
    large = np.abs(y) > x
    d = select(large, y, x)
    r = select(large, x, y) / select(d == 0, 1.0, d)
    return select(large | (d == 0), x * np.sign(y), y) / np.sqrt(1 + r * r)


# With r <= 1 the quotient of the operands: agm = π/2 larger / K(1 - r²), by whose slope no term cancels.
agm = smooth(
    special.agm, lambda x, y: _agm_slope(x, y), lambda x, y: _agm_slope(y, x), domain=positive
)


def _agm_parts(x, y):
    """Larger operand, smaller operand, K(1 - r²), and f = -4/π r times the slope of that by r.

    Of small r, whose square underflows, K(1 - r²) is log(4 / r).
    """
    large = np.abs(x) >= np.abs(y)
    big, small = select(large, x, y), select(large, y, x)
    r = small / big
    far = r < 1e-9
    near = select(far, 1.0, r)
    log = select(r < 0, np.nan, 2 * LN2) + np.log(np.abs(big)) - np.log(np.abs(small))
    k = select(far, log, ellipkm1(near * near))
    return big, small, k, select(far, 4 / math.pi, elliptic_rest(near * near))


def _agm_slope_value(x, y):
    """The slope of agm by the first operand."""
    large = np.abs(x) >= np.abs(y)
    big, small, k, f = _agm_parts(x, y)
    by_large = HALF_PI / k * (1 - math.pi / 4 * f / k)
    by_small = HALF_PI * HALF_PI / 2 * f / (k * k) * big / small
    return select(
        large,
        select(big == 0, np.nan * big, select(small == 0, cbrt(small), by_large)),
        select((small == 0) | (np.abs(big) == np.inf), big / small, by_small),
    )


# The slope depends on the quotient of the operands alone. So its own slopes are one number times y / x and 1: formulas of the quotient's
# slope would lose digits where that underflows, and infinities would cancel where the slope overflows.
_agm_slope_again = smooth(
    _agm_slope_value, lambda x, y: _agm_twice(x, y), lambda x, y: _agm_mixed(x, y), name="agm_slope", domain=positive, holomorphic=False,
    unsupported={"dtype": "SciPy computes it in double precision"},
)  # fmt: skip


@refined(_agm_slope_value)
def _agm_slope(x, y):
    """The slope of agm by the first operand."""
    return _agm_slope_again(x, y)


def _agm_curvature(x, y):
    """The derivative of agm by both operands, times the smaller one."""
    big, small, k, f = _agm_parts(x, y)
    r = small / big
    far = r < 1e-9
    square = select(far, 0.25, r * r)
    rest = f - select(far, 0.0, 2 * square * rest_slope(square, f)) - HALF_PI * f * f / k
    return HALF_PI * HALF_PI / 2 / (k * k) * rest


def _agm_mixed(x, y):
    """The derivative of agm by both operands."""
    small = select(np.abs(x) >= np.abs(y), y, x)
    return select(small == 0, (x + y) / small, _agm_curvature(x, y) / small)


def _agm_twice(x, y):
    """The second derivative of agm by the first operand."""
    part = -1.0 * _agm_curvature(x, y) / x
    steep = (x == 0) | (np.abs(y) == np.inf)
    return select(np.abs(x) >= np.abs(y), part, select(steep, -1.0 * y / x, part * (y / x)))


def softplus(x):
    """log(1 + exp(x)), which is never negative and smooth.

    >>> import tapegrad as tg
    >>> tg.grad(tg.special.softplus)(0.0)
    0.5
    """
    return np.logaddexp(0.0, x)


def radian(d, m, s):
    """Radians of an angle in degrees, minutes and seconds.

    >>> import tapegrad as tg
    >>> tg.special.radian(tg.tensor(180.0), 0.0, 0.0)
    tensor(3.14159265)
    """
    return (d + m / 60 + s / 3600) * DEGREE


# SciPy's own ufuncs of these, and of NumPy's the same.
for _of, _function in (
    (special.cbrt, cbrt), (special.exp2, exp2), (special.expm1, expm1), (special.log1p, log1p), (special.radian, radian),
):  # fmt: skip
    UFUNCS[_of] = _function
sinc = numpy_sinc

__all__ = [
    "agm",
    "boxcox",
    "boxcox1p",
    "cbrt",
    "cosdg",
    "cosm1",
    "cotdg",
    "entr",
    "exp2",
    "exp10",
    "expit",
    "expm1",
    "exprel",
    "huber",
    "inv_boxcox",
    "inv_boxcox1p",
    "kl_div",
    "log1p",
    "log_expit",
    "logit",
    "powm1",
    "pseudo_huber",
    "radian",
    "rel_entr",
    "sinc",
    "sindg",
    "softplus",
    "tandg",
    "xlog1py",
    "xlogy",
]  # fmt: skip
