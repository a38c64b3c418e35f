"""What densities need beyond `tg.special`: functions that are differentiable by an order or a noncentrality.

K of any order is the integral of exp(p u - b cosh u) / 2 over all u, the normaliser of the Gauss hypergeometric distribution one over
logit t, the noncentral t density one over log y: integrals of one peak, so that their derivatives by every parameter are sums of the
same terms (quadrature.py), exact to rounding. Noncentral chi-square and F are mixtures over Poisson's counts, of which the terms within
e^-42 of the largest are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import special
from ..core.domain import positive
from ..core.primitive import call, primitive
from ..core.sweep import times
from ..errors import NotDifferentiable
from ..ops.special.declaring import parametric
from .quadrature import called, columns, log_integral, plain
from .quantiles import partial

LOG_ROOT_TAU = 0.5 * math.log(2 * math.pi)

# ---------------------------------------------------------------------------------------------- integrals of one peak


def bessel_k_of_order(p: Any, b: Any) -> Any:
    """log(e^b K_p(b)), differentiable by the order too."""

    def exponent(u: Any, p: Any, b: Any) -> Any:
        return p * u - 2 * b * np.sinh(0.5 * u) ** 2

    def mode(p: Any, b: Any) -> Any:
        return np.arcsinh(p / b)

    def width(p: Any, b: Any) -> Any:
        return 1 / np.sqrt(np.hypot(p, b))

    return log_integral(exponent, mode, width, p, b) - math.log(2)


def log_hypergeometric_share(a: Any, b: Any, c: Any, z: Any) -> Any:
    """Logarithm of B(a, b) 2F1(c, a; a + b; -z), the integral of t^(a-1) (1-t)^(b-1) (1+zt)^-c."""

    def exponent(s: Any, a: Any, b: Any, c: Any, z: Any) -> Any:
        return (
            a * special.log_expit(s)
            + b * special.log_expit(-s)
            - c * np.log1p(z * special.expit(s))
        )

    return log_integral(
        exponent, lambda a, b, c, z: np.log(a / b) + 0 * (c + z), lambda a, b, c, z: np.sqrt(1 / a + 1 / b) + 0 * (c + z), a, b, c, z
    )  # fmt: skip


def nct_logpdf(t: Any, df: Any, nc: Any) -> Any:
    """Noncentral t: the integral of y^df exp(-(y - m)²/2), m = nc t / √(t² + df), over y = e^s (Johnson, Kotz, Balakrishnan 1995, 31.1)."""
    total = t * t + df
    m = nc * t / np.sqrt(total)

    def exponent(s: Any, df: Any, m: Any) -> Any:
        return (df + 1) * s - 0.5 * (np.exp(s) - m) ** 2

    def mode(df: Any, m: Any) -> Any:
        root = np.sqrt(m * m + 4 * (df + 1))
        return np.log(np.where(m > 0, 0.5 * (m + root), 2 * (df + 1) / (root - np.minimum(m, 0.0))))

    def width(df: Any, m: Any) -> Any:
        y = np.exp(mode(df, m))
        return 1 / np.sqrt(2 * y * y - np.minimum(m, 0.0) * y)

    return (
        log_integral(exponent, mode, width, df, m) + 0.5 * df * np.log(df) - 0.5 * df * nc * nc / total
        - 0.5 * math.log(math.pi) - special.gammaln(0.5 * df) - 0.5 * (df - 1) * math.log(2) - 0.5 * (df + 1) * np.log(total)
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------- Poisson mixtures


MOST_TERMS = 30_000_000
"""Terms that a sum over a mixture may have in all entries together."""


def _mixed(terms: Any, *args: Any, gone: Any = False) -> Any:
    """log of the sum over j >= 0 of exp(terms(j, *args)), which has one peak in j.

    Where the density is `gone`, 0 in double precision as at the far nodes of an integral, the largest of very many terms stands for all,
    with the width of the peak, √(peak/2) where both gamma functions of a term rise with j.
    """

    def ends(gone: Any, *plain_args: Any) -> Any:
        """The first and last term of the series that matter, the largest term's logarithm, and a correction where terms are too many."""
        values = np.broadcast_arrays(*(np.asarray(a, float) for a in plain_args))
        shape = values[0].shape
        with np.errstate(all="ignore"):
            rises = lambda j: terms(j + 1.0, *values) > terms(j, *values)  # noqa: E731
            low, high = np.zeros(shape), np.ones(shape)
            for _ in range(60):
                more = rises(high)
                if not np.any(more):
                    break
                low, high = np.where(more, high, low), np.where(more, 2 * high, high)
            for _ in range(60):
                middle = np.floor(0.5 * (low + high))
                more = rises(middle)
                low, high = np.where(more, middle, low), np.where(more, high, middle)
            peak = np.where(rises(np.zeros(shape)), high, 0.0)
            top = terms(peak, *values)
            first, last = peak, peak
            span = np.ones(shape)
            for _ in range(60):
                within = terms(peak + span, *values) > top - 42
                if not np.any(within):
                    break
                span = np.where(within, 2 * span, span)
            last = peak + span
            first = np.maximum(peak - 2 * span, 0.0)
            # Outside of the parameters' domain there is no peak to find: one term, which is NaN.
            sound = np.isfinite(top) & np.isfinite(last - first)
            first, last = np.where(sound, first, 0.0), np.where(sound, last, 0.0)
            many = gone & (last - first > 1e4)
            first, last = np.where(many, peak, first), np.where(many, peak, last)
            # Laplace's method; the slope of its width is 1/x of that of the peak.
            width = np.where(many, 0.5 * np.log(math.pi * np.maximum(peak, 1.0)), 0.0)
        return np.stack([first, last, top, width])

    first, last, top, width = called(ends, gone, *map(plain, args))
    count = int(np.max(last - first, initial=0.0)) + 1
    if count * np.size(first) > MOST_TERMS:
        raise NotDifferentiable(
            f"the derivative of a noncentral distribution was asked, but at these parameters the series has {count:,} terms for each of "
            f"{np.size(first):,} entries, which memory does not hold. Give fewer entries at once, or use the normal distribution that a "
            "noncentral one comes close to where the noncentrality is that large."
        )
    j = first + columns(np.arange(float(count)), np.ndim(first))
    return np.log(np.sum(np.exp(terms(j, *args) - top), axis=0)) + top + width


def _rising(ratio: Any) -> Any:
    """1 + r0 + r0 r1 + ..., the hypergeometric series near 0, where a mixture's logarithms have no slope by the noncentrality."""
    total: Any = 1.0
    for j in range(15, -1, -1):
        total = 1 + ratio(j) * total
    return total


def ncx2_logpdf(x: Any, df: Any, nc: Any) -> Any:
    """Noncentral chi-square, but for the power df/2 - 1 of x: a mixture over df + 2j degrees by Poisson's weights of mean nc/2."""

    def terms(j: Any, x: Any, df: Any, nc: Any) -> Any:
        a = 0.5 * df + j
        return (
            special.xlogy(j, 0.5 * nc)
            - special.gammaln(j + 1.0)
            + special.xlogy(j, 0.5 * x)
            - special.gammaln(a)
        )

    little = plain(0.25 * x * nc) < 0.05 * plain(df)
    # There (√x - √(nc + df))²/2 is more than x/8, and that is the exponent.
    gone = plain(x) > 4 * (plain(df) + plain(nc)) + 1e5
    mixture = _mixed(terms, x, df, np.where(little, 1.0, nc), gone=gone)
    a = 0.5 * df
    w = np.where(little, 0.25 * x * nc, 0.0)
    series = -special.gammaln(a) + np.log(_rising(lambda j: w / ((a + j) * (j + 1))))
    return np.where(little, series, mixture) - 0.5 * (x + nc) - a * math.log(2)


def ncf_logpdf(x: Any, n: Any, m: Any, nc: Any) -> Any:
    """Noncentral F, but for the power n/2 - 1 of x: the mixture of beta primes with n/2 + j and m/2, of n x / m."""

    def terms(j: Any, w: Any, n: Any, m: Any, nc: Any) -> Any:
        a, b = 0.5 * n + j, 0.5 * m
        return (
            special.xlogy(j, 0.5 * nc) - special.gammaln(j + 1.0)
            + special.xlogy(j, w) - special.xlog1py(a + b, w) - special.betaln(a, b)
        )  # fmt: skip

    w, a, b = n * x / m, 0.5 * n, 0.5 * (n + m)
    u = 0.5 * nc * w / (1 + w)
    little = plain(u * b / a) < 0.1
    mixture = _mixed(terms, w, n, m, np.where(little, 1.0, nc))
    u = np.where(little, u, 0.0)
    central = -special.xlog1py(b, w) - special.betaln(a, 0.5 * m)
    series = central + np.log(_rising(lambda j: u * (b + j) / ((a + j) * (j + 1))))
    return np.where(little, series, mixture) - 0.5 * nc + a * np.log(n / m)


# ------------------------------------------------------------------------------------------------------- splines


def _spline(x: Any, n: Any, integrals: int) -> Any:
    """The density of a sum of n uniform numbers (0), or its integral (1), by Cox and de Boor's recurrence: no term is negative."""

    def one(x: float, n: float) -> float:
        n = int(n)
        if integrals:
            return sum(_density(x - k, n + 1) for k in range(n + 1)) if x < n else 1.0
        return _density(x, n)

    return np.vectorize(one, otypes=[float])(x, n)


def _density(x: float, n: int) -> float:
    if not 0 <= x <= n:
        return 0.0
    row = [1.0 if k <= x < k + 1 or (x == n and k == n - 1) else 0.0 for k in range(n)]
    for order in range(2, n + 1):
        row = [((x - k) * row[k] + (k + order - x) * row[k + 1]) / (order - 1) for k in range(n - order + 1)]  # fmt: skip
    return row[0]


def _spline_slope(x: Any, n: Any) -> Any:
    """The density of one number less, here less one further on; of one number it is constant."""
    more = np.asarray(n) > 1
    fewer = np.where(more, np.asarray(n) - 1, 1)
    return np.where(more, cardinal_spline(x, fewer) - cardinal_spline(x - 1.0, fewer), 0.0)


cardinal_spline = parametric(
    lambda x, n: _spline(x, n, 0), "x n", x=_spline_slope, name="cardinal_spline", kernel=False, domain=positive, holomorphic=False,
    samples=[call((3,), n_=5)], told="The density of a sum of n uniform numbers.", refusal="it is a count",
)  # fmt: skip
spline_integral = parametric(
    lambda x, n: _spline(x, n, 1), "x n", x=lambda x, n: cardinal_spline(x, n), name="spline_integral", kernel=False, domain=positive,
    samples=[call((3,), n_=5)], told="The distribution function of a sum of n uniform numbers.", refusal="it is a count", holomorphic=False,
)  # fmt: skip


# --------------------------------------------------------------------------------------------------- Tukey's lambda


def _tukey_quantile(p: Any, lam: Any) -> Any:
    """(p^λ - (1 - p)^λ) / λ"""
    return special.boxcox(p, lam) - special.boxcox1p(-p, lam)


def _tukey_slope(i: int, xs: Sequence[Any], out: Any) -> Any:
    p, lam = out, xs[1]
    density = 1 / (p ** (lam - 1) + (1 - p) ** (lam - 1))
    return density if i == 0 else -density * partial(_tukey_quantile, 1, (p, lam))


def _tukey_value(xs: Sequence[Any]) -> Any:
    from scipy import special as scipys

    return np.asarray(scipys.tklmbda(*xs), float)


def _tukey_push(ts: Sequence[Any], xs: Sequence[Any], out: Any) -> Any:
    terms = [times(t, _tukey_slope(i, xs, out)) for i, t in enumerate(ts) if t is not None]
    return sum(terms[1:], terms[0])


@primitive(
    _tukey_value, forward=_tukey_value, name="tukey_cdf", jvp=_tukey_push, samples=[call(np.array([-1.5, -0.3]), np.array([0.3, -0.4]))],
    holomorphic=False, unsupported={"complex": "SciPy's function takes real numbers only", "dtype": "it computes in double precision"},
)  # fmt: skip
def tukey_cdf(g, xs, out, wanted):
    """The distribution function of Tukey's lambda distribution, for which only the quantiles have a formula."""
    return [times(g, _tukey_slope(i, xs, out)) if w else None for i, w in enumerate(wanted)]


__all__ = [
    "bessel_k_of_order", "cardinal_spline", "log_hypergeometric_share", "ncf_logpdf", "nct_logpdf", "ncx2_logpdf", "spline_integral",
    "tukey_cdf",
]  # fmt: skip
