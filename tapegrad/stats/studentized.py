"""The studentized range: the width of k normal numbers in units of a deviation that is estimated with df degrees of freedom.

Its density and distribution function are integrals over the estimate s of integrals over the place of the smallest number (Lund and Lund
1983, Applied Statistics 32). Both integrands are analytic and fall like exp(-z²): the inner integral is the trapezoid rule at 137 fixed
points, the outer one at 385 points in log s around its peak (quadrature.py). Derivatives are those of the double sum.

Invariant: 13 digits of the density, and of the distribution function absolutely.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import special
from ..errors import NotDifferentiable
from .quadrature import columns, log_integral
from .univariate import INF, LOG_ROOT_TAU, Continuous

_Z = np.linspace(-8.5, 8.5, 137)
_STEP = _Z[1] - _Z[0]


def _log_normaliser(df: Any) -> Any:
    """Logarithm of df^(df/2) 2^(1 - df/2) / Γ(df/2), of the density of s."""
    return 0.5 * df * np.log(df) + (1 - 0.5 * df) * math.log(2) - special.gammaln(0.5 * df)


def _share(z: Any, width: Any) -> Any:
    """Φ(z + width) - Φ(z), from the side where the two are small."""
    sign = np.where(z > 0, -1.0, 1.0)
    return np.maximum(sign * (special.ndtr(sign * (z + width)) - special.ndtr(sign * z)), 1e-300)


def _log_density_of_range(width: Any, k: Any) -> Any:
    """Logarithm of the density of the range of k numbers whose deviation is known."""
    z = columns(_Z, np.ndim(width))
    # Symmetric around -width / 2.
    place = z - 0.5 * width
    terms = np.exp(-z * z - 0.25 * width * width + (k - 2) * np.log(_share(place, width)))
    return (
        np.log(np.maximum(np.sum(terms, axis=0), 1e-300))
        + (math.log(_STEP) - 2 * LOG_ROOT_TAU)
        + np.log(k * (k - 1))
    )


def _log_share_of_range(width: Any, k: Any) -> Any:
    """Logarithm of the probability that the range of k numbers is below a width."""
    z = columns(_Z, np.ndim(width))
    terms = np.exp(-0.5 * z * z + (k - 1) * np.log(_share(z, width)))
    return (
        np.log(np.maximum(np.sum(terms, axis=0), 1e-300))
        + (math.log(_STEP) - LOG_ROOT_TAU)
        + np.log(k)
    )


def _over_estimates(log_inner: Any, power: float, q: Any, k: Any, df: Any) -> Any:
    """Logarithm of the integral of s^(power - 1) exp(inner) over the density of s."""

    def exponent(x: Any, q: Any, k: Any, df: Any) -> Any:
        s = np.exp(x)
        return (df + power) * x - 0.5 * df * s * s + log_inner(q * s, k)

    def mode(q: Any, k: Any, df: Any) -> Any:
        return 0.5 * np.log((df + power) / (df + 0.5 * power * q * q)) + 0 * k

    def width(q: Any, k: Any, df: Any) -> Any:
        return 1 / np.sqrt(2 * (df + power)) + 0 * (q + k)

    return log_integral(exponent, mode, width, q, k, df) + _log_normaliser(df)


def _logpdf(q: Any, k: Any, df: Any) -> Any:
    return _over_estimates(_log_density_of_range, 1.0, q, k, df)


def _cdf(q: Any, k: Any, df: Any) -> Any:
    return np.minimum(np.exp(_over_estimates(_log_share_of_range, 0.0, q, k, df)), 1.0)


def _refused(what: str) -> Any:
    def moment(*_: Any) -> Any:
        raise NotDifferentiable(
            f"the derivative of studentized_range.{what} was asked, but that is a triple integral, of 10 million terms a number. Use "
            f"scipy.stats.studentized_range.{what} on plain arrays, or ppf, which has derivatives."
        )

    return moment


studentized_range = Continuous(
    "studentized_range", "k df", _logpdf, (0.0, INF), lambda k, df: (k > 1) & (df > 0), cdf=_cdf, sf=lambda q, k, df: 1 - _cdf(q, k, df),
    **{what: _refused(what) for what in ("mean", "var", "entropy")}, open="low",
)  # fmt: skip

__all__ = ["studentized_range"]
