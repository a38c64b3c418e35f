"""Densities that are series or integrals over a line: Kolmogorov's and Smirnov's statistics, Landau's distribution.

Kolmogorov's limit has two series, one for each tail, of which a few terms are exact to rounding. The one-sided statistic of n numbers
is a sum of n positive terms (Birnbaum and Tingey 1951), whose derivatives lose about log10(n) digits; the two-sided one is a power of a
matrix, and far out twice the one-sided. Landau's density is an integral in
the complex plane: in the left half over the line through the saddle, in the right half around the cut (Koelbig and Schorr 1984); both by
the trapezoid rule, whose error is 2e-14 of the density.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import special
from ..errors import NotDifferentiable
from .quadrature import called, columns, plain

ROOT_TAU = math.sqrt(2 * math.pi)

# ------------------------------------------------------------------------------------------------------- Kolmogorov

_TURN = 0.82
"""Where the series for small y and that for large y take over from each other."""


def _kolmogorov(y: Any, small: Any, large: Any, at_zero: float) -> Any:
    near = plain(y) < _TURN
    none = plain(y) < 1e-8
    low, high = np.where(near & ~none, y, 0.5), np.where(near, 1.0, y)
    return np.where(none, at_zero, np.where(near, small(low), large(high)))


def _head(y: Any, weight: Any) -> Any:
    """Logarithm of √(2π)/y Σ weight(m²) exp(-m² π²/8y²) over odd m."""
    a = math.pi**2 / 8 / (y * y)
    total = sum(weight(m * m, a) * np.exp((1 - m * m) * a) for m in (1, 3, 5, 7))
    return np.log(ROOT_TAU / y * total) - a


def _tail(y: Any, power: int) -> Any:
    """Logarithm of 2 Σ ± k^power exp(-2 k² y²)."""
    total = sum((-1) ** (k + 1) * k**power * np.exp(2 * (1 - k * k) * y * y) for k in range(1, 7))
    return np.log(2 * total) - 2 * y * y


def kolmogorov_logpdf(y: Any) -> Any:
    """The derivative of the series of the distribution function, term by term."""
    return _kolmogorov(
        y,
        lambda y: _head(y, lambda square, a: 2 * square * a - 1) - np.log(y),
        lambda y: np.log(4 * y) + _tail(y, 2),
        -np.inf,
    )


def kolmogorov_logcdf(y: Any) -> Any:
    return _kolmogorov(
        y,
        lambda y: _head(y, lambda square, a: 1.0),
        lambda y: np.log1p(-np.exp(_tail(y, 0))),
        -np.inf,
    )


def kolmogorov_logsf(y: Any) -> Any:
    return _kolmogorov(
        y, lambda y: np.log1p(-np.exp(_head(y, lambda square, a: 1.0))), lambda y: _tail(y, 0), 0.0
    )


# ---------------------------------------------------------------------------------------------------------- Smirnov

MOST_TERMS = 30_000_000
"""Terms that the sums for all entries may have together."""


def _smirnov_terms(y: Any, n: Any) -> tuple[Any, ...]:
    """j, y + j/n, 1 - y - j/n, and C(n, j) (y + j/n)^(j-1) (1 - y - j/n)^(n-j), for j from 1 on; 0 where j/n > 1 - y."""
    most = int(np.max(n, initial=1.0))
    size = np.size(plain(y) + n)
    if most * size > MOST_TERMS:
        raise NotDifferentiable(
            f"the derivative of ksone (kstwo) was asked, whose series has {most:,} terms for each of {size:,} entries, which memory "
            "does not hold. Give fewer entries at once, or use kstwobign, which it comes close to."
        )
    j = columns(np.arange(1.0, max(most, 2)), max(np.ndim(y), np.ndim(n)))
    there = (j < n) & (plain(y) + j / n < 1)
    share = np.where(there, j / n, 0.5)
    place, rest = share + np.where(there, y, 0.0), 1 - share - np.where(there, y, 0.0)
    count = np.where(there, j, 1.0)
    logs = (
        special.gammaln(n + 1.0)
        - special.gammaln(count + 1)
        - special.gammaln(np.where(there, n - count, 0.0) + 1)
    )
    logs = logs + (count - 1) * np.log(place) + (n - count) * np.log(rest)
    return count, place, rest, np.where(there, np.exp(np.where(there, logs, 0.0)), 0.0)


def smirnov_sf(y: Any, n: Any) -> Any:
    """The probability that the largest excess of n numbers is beyond y."""
    first = np.exp(special.xlog1py(n, -y))
    return first + y * np.sum(_smirnov_terms(y, n)[-1], axis=0)


def smirnov_logpdf(y: Any, n: Any) -> Any:
    """The derivative of `smirnov_sf`, term by term."""
    j, place, rest, terms = _smirnov_terms(y, n)
    first = n * np.exp(special.xlog1py(n - 1, -y))
    return np.log(first + np.sum(terms * ((n - j) * y / rest - j * (1 / n + y) / place), axis=0))


# ------------------------------------------------------------------------------------------- Kolmogorov of n numbers

MOST_NUMBERS = 10_000
"""Numbers up to which the two-sided statistic has a derivative: then its matrices have 450 rows."""

_APART = 5.0
"""n y² from which on an excess on both sides has a probability below rounding, beside that of one: exp(-8 n y²) beside exp(-2 n y²)."""


def _power_of_durbin(y: Any, n: int) -> tuple[Any, Any]:
    """P(D < y) of n numbers, and its derivative (Durbin 1973; Marsaglia, Tsang, Wang, Journal of Statistical Software 8, 2003).

    The probability is n!/n^n times an entry of the power of a matrix H(h), with k = floor(n y) + 1 and h = k - n y. The power of the
    block matrix of H and its derivative by h has the derivative of that power for its upper right block.
    """
    k = int(np.floor(n * float(plain(y)))) + 1
    h, m = k - n * y, 2 * k - 1
    i = np.arange(m)
    apart = i[:, None] - i + 1
    factorial = np.exp(-special.gammaln(np.arange(m + 2) + 1.0))
    fixed = np.where(apart >= 0, factorial[np.maximum(apart, 0)], 0.0)
    by_column, by_row = (i == 0) * 1.0, (i == m - 1) * 1.0
    powers = h ** (i + 1.0) * factorial[i + 1]
    slopes = h ** (1.0 * i) * factorial[i]
    corner = np.maximum(2 * h - 1, 0.0)

    def matrix(edge: Any, last: Any) -> Any:
        return (
            -edge[:, None] * by_column
            - by_row[:, None] * edge[::-1]
            + last * by_row[:, None] * by_column
        )

    whole = fixed + matrix(powers, corner**m * factorial[m])
    turning = np.where(plain(h) > 0.5, 2 * corner ** (m - 1) * factorial[m - 1], 0.0)
    slope = matrix(slopes, turning)
    base = (
        np.concatenate([np.concatenate([whole, slope], 1), np.concatenate([0.0 * whole, whole], 1)])
        / math.e
    )
    size = math.exp(math.lgamma(n + 1) + n - n * math.log(n))
    row: Any = (np.arange(2 * m) == k - 1) * size
    left = n
    while left:
        if left % 2:
            row = np.matmul(row, base)
        left //= 2
        base = np.matmul(base, base) if left else base
    return row[k - 1], -n * row[m + k - 1]


def _two_sided(y: Any, n: Any, i: int) -> tuple[Any, Any]:
    """Where one side decides, and elsewhere the probability (i = 0) or density (i = 1) by Durbin's matrices."""
    at, count = np.broadcast_arrays(plain(y), plain(n))
    upper = (count * at * at > _APART) | (at >= 0.5)
    if np.any(count[~upper] > MOST_NUMBERS):
        raise NotDifferentiable(
            f"the derivative of kstwo was asked for n={int(np.max(count[~upper]))} numbers, but its matrices, of 2 √(5 n) rows, are "
            f"powers of which up to {MOST_NUMBERS} numbers are quick. Use kstwobign, which it comes close to."
        )
    flat = np.reshape(y + np.zeros(at.shape), (-1,))
    parts = [
        0.5 if up or not (c >= 1 and x > 0) else _power_of_durbin(flat[j], int(c))[i]
        for j, (up, c, x) in enumerate(zip(*map(np.ravel, (upper, count, at)), strict=True))
    ]
    inner = np.reshape(np.stack(parts), at.shape) if parts else np.zeros(at.shape)
    return upper, np.where(np.isnan(at), np.nan, inner)


def kolmogorov_of(what: str, y: Any, n: Any) -> Any:
    """logpdf, cdf or sf of the largest distance of n numbers: twice Smirnov's where it is large."""
    upper, inner = _two_sided(y, n, int(what == "logpdf"))
    far = np.where(upper, y, 1.0 - 0.25 / np.asarray(plain(n)))
    if what == "logpdf":
        return np.where(
            upper, smirnov_logpdf(far, n) + math.log(2), np.log(np.where(upper, 1.0, inner))
        )
    outer = 2 * smirnov_sf(far, n)
    return np.where(upper, outer, 1 - inner) if what == "sf" else np.where(upper, 1 - outer, inner)


# ----------------------------------------------------------------------------------------------------------- Landau

_BETWEEN = 2.0
"""Where the two integrals take over from each other."""
_NODES = 513


_STABLE = math.pi / 2
"""SciPy's density is that of the stable distribution of this scale, f(y) = c φ(c y + log c), where φ is Landau's own."""


def landau_logpdf(y: Any) -> Any:
    """Logarithm of c φ(c y + log c), φ(y) = (1 / 2πi) ∫ exp(s log s + y s) ds."""
    y = _STABLE * y + math.log(_STABLE)
    left, far = plain(y) < _BETWEEN, plain(y) < -30
    found = np.where(
        left, _on_line(np.where(left & ~far, y, 0.0)), _around_cut(np.where(left, _BETWEEN, y))
    )
    none = plain(y) < -300  # where the square of exp(-y) would leave the range of numbers
    x = np.where(far & ~none, y, 0.0)
    saddle = -np.exp(-1 - x) - 0.5 * (1 + x) - math.log(ROOT_TAU)
    return np.where(none, -np.inf, np.where(far, saddle, found) + math.log(_STABLE))


def _on_line(y: Any) -> Any:
    """By the line s = s0 (1 + i sinh v), which passes the saddle s0 = exp(-1 - y); divided by the value there."""

    def line(y: Any) -> np.ndarray:
        y = np.asarray(y, float)
        with np.errstate(over="ignore"):
            s0 = np.exp(-1 - y)
            low, high = np.zeros(np.shape(y)), np.full(np.shape(y), 30.0)
            for _ in range(40):  # where the exponent has fallen by 45
                v = 0.5 * (low + high)
                fall = s0 * (np.log(np.cosh(v)) - np.sinh(v) * np.arctan(np.sinh(v)))
                low, high = np.where(fall > -45, v, low), np.where(fall > -45, high, v)
        return np.stack([s0, high])

    s0, most = called(line, plain(y))
    v = most * columns(np.linspace(0.0, 1.0, _NODES), np.ndim(y))
    height = np.sinh(v)
    turn, log_size = np.arctan(height), np.log(np.cosh(v))
    known = plain(y)
    # The exponent less its value at the saddle, -s0; log s0 is -1 - y, for the y at which the line was chosen.
    real = s0 * (log_size - height * turn)
    imaginary = s0 * (height * log_size - height + turn)
    moved = y - known  # zero, with a derivative
    waves = np.exp(real) * np.cos(imaginary + s0 * height * moved)
    ends = np.where(columns(np.arange(_NODES), np.ndim(y)) == 0, 0.5, 1.0)
    total = np.sum(ends * waves * np.cosh(v), axis=0) * (most / (_NODES - 1)) * s0 / math.pi
    return np.log(total) - s0 + s0 * moved


def _around_cut(y: Any) -> Any:
    """(1/π) ∫ exp(-t log t - y t) sin(πt) dt, with t = exp(v - e^-v) / y."""
    v = np.linspace(-3.7, 4.2, 700)
    step = v[1] - v[0]
    u = columns(np.exp(v - np.exp(-v)), np.ndim(y))
    slope = columns(1 + np.exp(-v), np.ndim(y))
    t = u / y
    terms = np.exp(-special.xlogy(t, t) - u) * np.sin(math.pi * t) * u * slope
    return np.log(np.sum(terms, axis=0) * step / math.pi) - np.log(y)


__all__ = [
    "kolmogorov_logcdf", "kolmogorov_logpdf", "kolmogorov_logsf", "kolmogorov_of", "landau_logpdf", "smirnov_logpdf", "smirnov_sf",
]  # fmt: skip
