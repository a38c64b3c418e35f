"""The error function and its relatives: erf, its scaled, imaginary and inverse forms, the normal distribution, Voigt.

All have closed derivatives (DLMF 7.10, 7.17). Where the textbook formula cancels, another is used: the slopes of
erfcx and dawsn far out are asymptotic series, and that of log_ndtr is a ratio of scaled functions, which is right in
both tails.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...domain import Domain, real, unit
from ...primitive import select
from .declaring import smooth

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
HALF_ROOT_PI = math.sqrt(math.pi) / 2
ROOT_TWO_PI = math.sqrt(2 * math.pi)
ROOT_HALF = math.sqrt(0.5)

share = Domain("share", lambda rng, shape: rng.uniform(0.1, 0.9, shape), complex_too=False)
log_share = Domain("log_share", lambda rng, shape: rng.uniform(-3.0, -0.1, shape), complex_too=False)  # fmt: skip
twofold = Domain("twofold", lambda rng, shape: rng.uniform(0.1, 1.9, shape), complex_too=False)


def _far(x):
    """1 - x sqrt(pi) erfcx(x), beyond 50: an alternating series whose fifth term is below 1e-15 of the first."""
    t = 0.5 / (x * x)
    return t * (1 - t * (3 - t * (15 - t * (105 - 945 * t))))


def _far_dawson(x):
    """1 - 2 x dawsn(x), beyond 50."""
    t = 0.5 / (x * x)
    return -t * (1 + t * (3 + t * (15 + t * (105 + 945 * t))))


# fmt: off
erf       = smooth(special.erf,       lambda x: TWO_OVER_ROOT_PI * np.exp(-x * x))
erfc      = smooth(special.erfc,      lambda x: -TWO_OVER_ROOT_PI * np.exp(-x * x))
erfi      = smooth(special.erfi,      lambda x: TWO_OVER_ROOT_PI * np.exp(x * x))
erfcx     = smooth(special.erfcx,     lambda x, out: select(np.real(x) > 50, -TWO_OVER_ROOT_PI * _far(select(np.real(x) > 50, x, 50.0)),
                                                            2 * x * out - TWO_OVER_ROOT_PI))
dawsn     = smooth(special.dawsn,     lambda x, out: select(np.abs(np.real(x)) > 50, _far_dawson(select(np.abs(np.real(x)) > 50, x, 50.0)),
                                                            1 - 2 * x * out))
wofz      = smooth(special.wofz,      lambda x, out: 1j * TWO_OVER_ROOT_PI - 2 * x * out, holomorphic=False,
                   unsupported={"dtype": "SciPy answers real numbers in double precision"})
erfinv    = smooth(special.erfinv,    lambda out: HALF_ROOT_PI * np.exp(out * out), domain=unit)
erfcinv   = smooth(special.erfcinv,   lambda out: -HALF_ROOT_PI * np.exp(out * out), domain=twofold)
ndtr      = smooth(special.ndtr,      lambda x: np.exp(-0.5 * x * x) / ROOT_TWO_PI)
ndtri     = smooth(special.ndtri,     lambda out: ROOT_TWO_PI * np.exp(0.5 * out * out), domain=share)
log_ndtr  = smooth(special.log_ndtr,  lambda x: 2 / (ROOT_TWO_PI * erfcx(-x * ROOT_HALF)))
ndtri_exp = smooth(special.ndtri_exp, lambda out: 0.5 * ROOT_TWO_PI * erfcx(-out * ROOT_HALF), domain=log_share)
# fmt: on


# Owen's T(h, a): by h it is the density of h times a probability, by a that of the wedge.
owens_t = smooth(
    special.owens_t,
    lambda x, y: -np.exp(-0.5 * x * x) / ROOT_TWO_PI * erf(x * y * ROOT_HALF) / 2,
    lambda x, y: np.exp(-0.5 * x * x * (1 + y * y)) / (2 * math.pi * (1 + y * y)),
    domain=real,
)


def _voigt(x, sigma, gamma):
    """w(z) and w'(z) at z = (x + i gamma) / (sigma sqrt 2), and 1 / (sigma sqrt 2)."""
    scale = ROOT_HALF / sigma
    z = (x + 1j * gamma) * scale
    w = wofz(z)
    return w, 1j * TWO_OVER_ROOT_PI - 2 * z * w, scale, z


def _voigt_by_x(x, sigma, gamma):
    _, slope, scale, _ = _voigt(x, sigma, gamma)
    return np.real(slope) * scale / (sigma * ROOT_TWO_PI)


def _voigt_by_sigma(x, sigma, gamma):
    w, slope, _, z = _voigt(x, sigma, gamma)
    return -np.real(w + slope * z) / (sigma * sigma * ROOT_TWO_PI)


def _voigt_by_gamma(x, sigma, gamma):
    _, slope, scale, _ = _voigt(x, sigma, gamma)
    return -np.imag(slope) * scale / (sigma * ROOT_TWO_PI)


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
