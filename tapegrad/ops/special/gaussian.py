"""The error function and its relatives: erf, its scaled, imaginary and inverse forms, the normal distribution, Voigt.

All have closed derivatives (DLMF 7.10, 7.17). Where the textbook formula cancels, another is used: the slopes of
erfcx and dawsn far out are asymptotic series, and that of log_ndtr is a ratio of scaled functions, which is right in
both tails.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, real, unit
from ...core.primitive import refined, select
from ...core.storage import never
from ...core.tensor import value_of
from .declaring import smooth

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
HALF_ROOT_PI = math.sqrt(math.pi) / 2
ROOT_TWO_PI = math.sqrt(2 * math.pi)
ROOT_HALF = math.sqrt(0.5)

share = Domain("share", lambda rng, shape: rng.uniform(0.1, 0.9, shape), complex_too=False)
log_share = Domain("log_share", lambda rng, shape: rng.uniform(-3.0, -0.1, shape), complex_too=False)  # fmt: skip
twofold = Domain("twofold", lambda rng, shape: rng.uniform(0.1, 1.9, shape), complex_too=False)


def _fraction(z):
    """-slope / erfcx, by a continued fraction in z = 2 x (from DLMF 7.18.7), whose rest after 20 terms is below 1e-16 from x = 4 on."""
    return 2 / (z + 4 / (z + 6 / (z + 8 / (z + 10 / (z + 12 / (z + 14 / (z + 16 / (z + 18 / (z + 20 / (z + 22 / (z + 24 / (z + 26 / (z + 28 / (z + 30 / (z + 32 / (z + 34 / (z + 36 / (z + 38 / (z + 40 / ((z + np.sqrt(z * z + 168)) / 2))))))))))))))))))))  # fmt: skip


def _series(t):
    """1 + 3 t + 3·5 t² + ...; of t up to 1/98 the rest after 24 terms is below 1e-16."""
    return 1 + 3 * t * (1 + 5 * t * (1 + 7 * t * (1 + 9 * t * (1 + 11 * t * (1 + 13 * t * (1 + 15 * t * (1 + 17 * t * (1 + 19 * t * (1 + 21 * t * (1 + 23 * t * (1 + 25 * t * (1 + 27 * t * (1 + 29 * t * (1 + 31 * t * (1 + 33 * t * (1 + 35 * t * (1 + 37 * t * (1 + 39 * t * (1 + 41 * t * (1 + 43 * t * (1 + 45 * t * (1 + 47 * t * (1 + 49 * t)))))))))))))))))))))))  # fmt: skip


def _series_above(t):
    """1 + 5 t + 5·7 t² + ..."""
    return 1 + 5 * t * (1 + 7 * t * (1 + 9 * t * (1 + 11 * t * (1 + 13 * t * (1 + 15 * t * (1 + 17 * t * (1 + 19 * t * (1 + 21 * t * (1 + 23 * t * (1 + 25 * t * (1 + 27 * t * (1 + 29 * t * (1 + 31 * t * (1 + 33 * t * (1 + 35 * t * (1 + 37 * t * (1 + 39 * t * (1 + 41 * t * (1 + 43 * t * (1 + 45 * t * (1 + 47 * t * (1 + 49 * t))))))))))))))))))))))  # fmt: skip


def _meets_infinity(x):
    """Whether the operand is infinite somewhere, or may be."""
    return not never(np.isinf(value_of(x)))


@refined(lambda x: x, special=_meets_infinity)
def _in_reach(x):
    """x, where infinite a number so large that functions with thin tails are 0 there as well: squares have a slope then."""
    return select((x == np.inf) | (x == -np.inf), 100.0, x)


def _bell(x):
    """exp(-x²)"""
    x = _in_reach(x)
    return np.exp(-x * x)


def _density(x):
    """That of the normal distribution."""
    x = _in_reach(x)
    return np.exp(-0.5 * x * x) / ROOT_TWO_PI


def _erfcx_slope(x, out):
    """2 x out - 2 / sqrt(pi), whose terms cancel far out."""
    far = np.real(x) > 4
    there = -out * _fraction(2.0 * _in_reach(select(far, x, 4.0)))
    return select(far, there, 2 * x * out - TWO_OVER_ROOT_PI)


def _hazard(x):
    """Density over probability: of negative x by the scaled function, of positive x, where that overflows, as it says.

    Far out, where the slope of the scaled function would underflow, by the asymptotic series.
    """
    left, far = np.real(x) < 0, np.real(x) < -1e5
    y, z = select(left & ~far, x, 0.0), select(left, 0.0, x)
    v = -1.0 * select(far, x, -1.0)
    r = 1 / v
    return select(
        left,
        select(far, v + r * (1 - 2 * r * r), 2 / (ROOT_TWO_PI * erfcx(-y * ROOT_HALF))),
        _density(z) / ndtr(z),
    )


def _dawson_slope(x, out):
    """1 - 2 x out; from 7 on by its asymptotic series (DLMF 7.12.1 turned to the imaginary axis)."""
    far = np.abs(np.real(x)) > 7
    r = 1 / select(far, x, 7.0)
    t = 0.5 * r * r
    return select(far, -t * _series(t), 1 - 2 * x * out)


def _wofz_slope(z, out):
    """2i / sqrt(pi) - 2 z out; of large z in the upper half-plane by the asymptotic series."""
    far = (np.abs(z) > 7) & (np.imag(z) >= 0)
    y = select(far, z, 7.0)
    t = 0.5 / (y * y)
    return 1j * TWO_OVER_ROOT_PI * select(far, -t * _series(t), 1.0) - 2 * z * select(far, 0.0, out)


# fmt: off
erf       = smooth(special.erf,       lambda x: TWO_OVER_ROOT_PI * _bell(x))
erfc      = smooth(special.erfc,      lambda x: -TWO_OVER_ROOT_PI * _bell(x))
erfi      = smooth(special.erfi,      lambda x: TWO_OVER_ROOT_PI * np.exp(x * x))
erfcx     = smooth(special.erfcx,     lambda x, out: _erfcx_slope(x, out))
dawsn     = smooth(special.dawsn,     lambda x, out: _dawson_slope(x, out))
wofz      = smooth(special.wofz,      lambda x, out: _wofz_slope(x, out), holomorphic=False,
                   unsupported={"dtype": "SciPy answers real numbers in double precision"})
# Of a small probability the slope is a ratio: the exponential of a square would lose as many digits as that is large.
erfinv    = smooth(special.erfinv,    lambda out: HALF_ROOT_PI * np.exp(out * out), domain=unit)
erfcinv   = smooth(special.erfcinv,   lambda x, out: -HALF_ROOT_PI * select(x < 0.5, erfcx(select((x > 0) & (x < 0.5), out, 0.0)) / x, np.exp(select(x < 0.5, 0.0, out * out))), domain=twofold)
ndtr      = smooth(special.ndtr,      lambda x: _density(x))
ndtri     = smooth(special.ndtri,     lambda x, out: 0.5 * ROOT_TWO_PI * select(x < 0.25, erfcx(select((x > 0) & (x < 0.25), -out * ROOT_HALF, 0.0)) / x, 2 * np.exp(select(x < 0.25, 0.0, 0.5 * out * out))), domain=share)
log_ndtr  = smooth(special.log_ndtr,  lambda x: _hazard(x))
ndtri_exp = smooth(special.ndtri_exp, lambda out: 0.5 * ROOT_TWO_PI * erfcx(-out * ROOT_HALF), domain=log_share)
# fmt: on


# Owen's T(h, a): by h it is the density of h times a probability, by a that of the wedge.
owens_t = smooth(
    special.owens_t,
    lambda x, y: -_density(x) * erf(x * y * ROOT_HALF) / 2,
    lambda x, y: np.exp(-0.5 * x * x * (1 + y * y)) / (2 * math.pi * (1 + y * y)),
    domain=real,
)


# Voigt's profile is Re w(z) / (sigma sqrt(2 pi)) at z = (x + i gamma) / (sigma sqrt 2). Far out its slopes are taken by series in
# u = x + i gamma, from which sigma, on which they hardly depend, is taken out.


def _voigt(x, sigma, gamma):
    """z, w(z) and its slope, and whether |z| is large; u and the two series of sigma² / u², or 1 where |z| is not large."""
    u = x + 1j * gamma
    z = u * (ROOT_HALF / sigma)
    far = np.abs(z) > 8
    y = select(far, u, 1.0)
    t = select(far, sigma / y, 0.0)
    t = t * t
    return z, wofz(z), far, y, _series(t), _series_above(t)


def _voigt_by_x(x, sigma, gamma):
    z, w, far, u, first, _ = _voigt(x, sigma, gamma)
    near = np.real(1j * TWO_OVER_ROOT_PI - 2 * z * w) * ROOT_HALF / (sigma * sigma * ROOT_TWO_PI)
    return select(far, np.imag(first / (u * u)) / math.pi, near)


def _voigt_by_sigma(x, sigma, gamma):
    z, w, far, u, first, second = _voigt(x, sigma, gamma)
    near = -np.real(w + (1j * TWO_OVER_ROOT_PI - 2 * z * w) * z) / (sigma * sigma * ROOT_TWO_PI)
    return select(far, sigma * np.imag((first - 3 * second) / (u * u * u)) / math.pi, near)


def _voigt_by_gamma(x, sigma, gamma):
    z, w, far, u, first, _ = _voigt(x, sigma, gamma)
    near = -np.imag(1j * TWO_OVER_ROOT_PI - 2 * z * w) * ROOT_HALF / (sigma * sigma * ROOT_TWO_PI)
    return select(far, np.real(first / (u * u)) / math.pi, near)


_width = Domain("width", lambda rng, shape: rng.uniform(0.5, 2.0, shape), complex_too=False)

voigt_profile = smooth(
    special.voigt_profile,
    lambda x, y, z: _voigt_by_x(x, y, z),
    lambda x, y, z: _voigt_by_sigma(x, y, z),
    lambda x, y, z: _voigt_by_gamma(x, y, z),
    domain=(real, _width, _width),
)

__all__ = [
    "dawsn", "erf", "erfc", "erfcinv", "erfcx", "erfi", "erfinv", "log_ndtr", "ndtr", "ndtri", "ndtri_exp", "owens_t",
    "voigt_profile", "wofz",
]  # fmt: skip
