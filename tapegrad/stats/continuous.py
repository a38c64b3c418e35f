"""The continuous distributions, one declaration each: names of the parameters, logarithm of the density, support, what is known beyond.

`y` is the standardised variable and `L` its logarithm. Formulas are SciPy's, rearranged where they lose digits in a tail: powers of y
through `softplus(c L)` and `log1mexp`, differences of probabilities through the smaller of two tails, limits of (1 + c y)^(1/c) for
c -> 0 through `_log1p_over`. What stands for a distribution function is explained in univariate.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import special
from ..core.storage import never
from ..ops.special.incomplete import beta_density, beta_spacing, gamma_density, gamma_spacing
from .quadrature import interval, over_no_length, plain
from .special_densities import (
    bessel_k_of_order,
    cardinal_spline,
    log_hypergeometric_share,
    ncf_logpdf,
    nct_logpdf,
    ncx2_logpdf,
    spline_integral,
    tukey_cdf,
)
from .summed_densities import (
    kolmogorov_logcdf,
    kolmogorov_logpdf,
    kolmogorov_logsf,
    kolmogorov_of,
    landau_logpdf,
    smirnov_logpdf,
    smirnov_sf,
)
from .univariate import INF, LOG_ROOT_TAU, Continuous, log1mexp, positive

LOG2, LOGPI, ROOT2 = np.log(2.0), np.log(np.pi), np.sqrt(2.0)
LINE, HALF, UNIT = (-INF, INF), (0.0, INF), (0.0, 1.0)

xlogy, xlog1py, gammaln, betaln = special.xlogy, special.xlog1py, special.gammaln, special.betaln
gammainc, gammaincc, betainc, betaincc = (
    special.gammainc, special.gammaincc, special.betainc, special.betaincc,
)  # fmt: skip
ndtr, log_ndtr, softplus, expit = special.ndtr, special.log_ndtr, special.softplus, special.expit


def always(*_: Any) -> Any:
    return True


def _not_negative(c: Any) -> Any:
    return c >= 0


def _finite(c: Any) -> Any:
    return np.isfinite(c)


def _log_normal(z: Any) -> Any:
    """Logarithm of the normal density."""
    return -0.5 * z * z - LOG_ROOT_TAU


def _or_normal(formula: Any, normal: Any) -> Any:
    """A formula of (y, df, *rest) that is `normal` of (y, *rest) where df is infinite, so that its derivative by df is 0."""

    def of_either(y: Any, df: Any, *rest: Any) -> Any:
        infinite = plain(df) == INF
        if never(infinite):
            return formula(y, df, *rest)
        return np.where(infinite, normal(y, *rest), formula(y, np.where(infinite, 1.0, df), *rest))

    return of_either


def _log_logistic_density(y: Any) -> Any:
    """-2 log(2 cosh(y / 2)): in the middle as it says, since there the slopes of the two parts it has in the tails cancel."""
    near = np.abs(plain(y)) < 1
    middle = -2 * np.log(2 * np.cosh(0.5 * np.where(near, y, 0.0)))
    return np.where(near, middle, special.log_expit(y) + special.log_expit(-y))


def _log_i0e(z: Any) -> Any:
    """log(e^-z I0(z)) for z >= 0, with the slope of the right side at 0."""
    near = plain(z) < 1
    inner, outer = np.where(near, z, 0.0), np.where(near, 1.0, z)
    return np.where(near, np.log(special.i0(inner)) - inner, np.log(special.i0e(outer)))


def _log_laplace(y: Any) -> Any:
    """Logarithm of Laplace's cdf, whose left tail is an exponential."""
    left = plain(y) < 0
    return np.where(left, y - LOG2, np.log1p(-0.5 * np.exp(-np.where(left, 0.0, y))))


def _log_levy(y: Any) -> Any:
    """Logarithm of Levy's cdf, erfc(sqrt(0.5 / y)), which underflows near 0."""
    near = plain(y) < 0.5
    small, large = 0.5 / np.where(near, y, 0.5), 0.5 / np.where(near, 1.0, y)
    return np.where(
        near,
        np.log(special.erfcx(np.sqrt(small))) - small,
        np.log1p(-special.erf(np.sqrt(large))),
    )


def _log_of_one_and_square(y: Any) -> Any:
    """log(1 + y²); far out by 1 / y, since the square of a square leaves the range of numbers."""
    far = np.abs(plain(y)) > 1
    large, small = np.where(far, y, 1.0), np.where(far, 0.0, y)
    return np.where(
        far, 2 * np.log(np.abs(large)) + np.log1p(1 / large / large), np.log1p(small * small)
    )


def _log1p_ratio(u: Any) -> Any:
    """log(1 + u) / u, by its series near 0."""
    near = np.abs(plain(u)) < 0.05
    far, small = np.where(near, 1.0, u), np.where(near, u, 0.0)
    total: Any = 0.0
    for n in range(14, -1, -1):
        total = total * small + (-1) ** n / (n + 1)
    return np.where(near, total, np.log1p(far) / far)


def _log1p_over(c: Any, y: Any) -> Any:
    """log(1 + c y) / c, which is y for c = 0."""
    return y * _log1p_ratio(c * y)


def _size(y: Any) -> Any:
    """|y|, with the slope of the right side at 0."""
    return np.where(plain(y) < 0, -y, y)


def _symmetric(tail: Any) -> dict[str, Any]:
    """The cdf and sf of a symmetric distribution, by the probability beyond |y| on one side."""

    def cdf(y: Any, *a: Any) -> Any:
        p = tail(_size(y), *a)
        return np.where(plain(y) < 0, p, 1 - p)

    return {"cdf": cdf, "sf": lambda y, *a: cdf(-1.0 * y, *a)}


def _mirrored(formula: Any) -> Any:
    return lambda y, *a: formula(-1.0 * y, *a)


def _loggamma_density(y: Any, a: Any) -> Any:
    return xlogy(a - 1, y) - y - gammaln(a)


# ------------------------------------------------------------------------------------------- normal and its relatives


def _log_mass(a: Any, b: Any) -> Any:
    """log(Φ(b) - Φ(a)), by the tail in which both lie."""
    right, left = plain(a) > 0, plain(b) < 0
    split = ~(right | left)
    low, high = (
        np.where(right, -1.0 * b, np.where(split, -1.0, a)),
        np.where(right, -1.0 * a, np.where(split, 1.0, b)),
    )
    both = log_ndtr(high) + log1mexp(log_ndtr(low) - log_ndtr(high))
    middle = np.log1p(-ndtr(np.where(split, a, -1.0)) - ndtr(-np.where(split, b, 1.0)))
    return np.where(split, middle, both)


def _inverse_gaussian(sign: float, y: Any, mu: Any) -> Any:
    """logcdf (sign 1) or logsf (-1) of invgauss: Φ(r(y/μ-1)) ± e^(2/μ) Φ(-r(y/μ+1)), r = 1/√y."""
    r = 1 / np.sqrt(y)
    a = log_ndtr(sign * r * (y / mu - 1))
    b = 2 / mu + log_ndtr(-r * (y / mu + 1))
    return np.logaddexp(a, b) if sign > 0 else a + log1mexp(np.minimum(b - a, -1e-300))


def _exponnorm_part(y: Any, K: Any) -> Any:
    return (0.5 / K - y) / K + log_ndtr(y - 1 / K)


def _pareto_lognormal(y: Any, u: Any, s: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """z, and the logarithms of φ(z) R(a s - z) and φ(z) R(b s + z) with Mills' ratio R."""
    z = (np.log(y) - u) / s
    x1, x2 = a * s - z, b * s + z
    first = log_ndtr(-x1) + 0.5 * x1 * x1 - 0.5 * z * z
    second = log_ndtr(-x2) + 0.5 * x2 * x2 - 0.5 * z * z
    return z, first, second


def _dpareto_logpdf(y: Any, u: Any, s: Any, a: Any, b: Any) -> Any:
    """But for the power b - 1 of y, beside which the rest is constant at 0."""
    end = plain(y) == 0
    y = np.where(end, 1.0, y)
    _, first, second = _pareto_lognormal(y, u, s, a, b)
    inside = np.logaddexp(first, second) - b * np.log(y)
    return np.log(a * b / (a + b)) + np.where(end, b * (0.5 * b * s * s - u), inside)


def _dpareto(sign: float, y: Any, u: Any, s: Any, a: Any, b: Any) -> Any:
    end = plain(y) == 0
    z, first, second = _pareto_lognormal(np.where(end, 1.0, y), u, s, a, b)
    inside = ndtr(sign * z) - sign * (b * np.exp(first) - a * np.exp(second)) / (a + b)
    return np.where(end, 0.5 - 0.5 * sign, inside)


def _crystal_weight(beta: Any, m: Any) -> tuple[Any, Any]:
    """The power tail's share e^(-β²/2) m / (β (m - 1)), and the whole."""
    tail = m / beta / (m - 1) * np.exp(-0.5 * beta * beta)
    return tail, tail + np.sqrt(2 * np.pi) * ndtr(beta)


def _crystal_split(y: Any, beta: Any) -> tuple[Any, Any, Any]:
    right = plain(y) > -plain(beta)
    return right, np.where(right, y, 0.0), np.where(right, -beta, y)


def _crystal_logpdf(y: Any, beta: Any, m: Any) -> Any:
    right, inner, outer = _crystal_split(y, beta)
    far = -0.5 * beta * beta - m * np.log1p(-(outer + beta) * beta / m)
    return np.where(right, -0.5 * inner * inner, far) - np.log(_crystal_weight(beta, m)[1])


def _crystal(upper: bool, y: Any, beta: Any, m: Any) -> Any:
    right, inner, outer = _crystal_split(y, beta)
    tail, whole = _crystal_weight(beta, m)
    below = tail * np.exp((1 - m) * np.log1p(-(outer + beta) * beta / m)) / whole
    above = np.sqrt(2 * np.pi) * ndtr(-inner) / whole
    return np.where(right, above, 1 - below) if upper else np.where(right, 1 - above, below)


# ------------------------------------------------------------------------------------------------ beta, gamma, t


def _skewed_t(y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Half of 1 - |y| / √(a + b + y²), and where y < 0."""
    q = np.sqrt(a + b + y * y)
    return 0.5 * (a + b) / (q * (q + _size(y))), plain(y) < 0


def _skewed_t_logpdf(y: Any, a: Any, b: Any) -> Any:
    small, left = _skewed_t(y, a, b)
    near, far = np.log(small), np.log1p(-small)
    rising, falling = np.where(left, near, far), np.where(left, far, near)
    # In terms of w = (1 + y/q)/2: w^(a+1/2) (1-w)^(b+1/2) 2^(a+b+1) over the constant.
    return (a + 0.5) * rising + (b + 0.5) * falling + 2 * LOG2 - betaln(a, b) - 0.5 * np.log(a + b)


def _skewed_t_cdf(y: Any, a: Any, b: Any) -> Any:
    small, left = _skewed_t(y, a, b)
    return np.where(left, betainc(a, b, small), betaincc(b, a, small))


def _f_logpdf(y: Any, n: Any, m: Any) -> Any:
    return (
        0.5 * m * np.log(m) + 0.5 * n * np.log(n)
        - 0.5 * (n + m) * np.log(m + n * y) - betaln(0.5 * n, 0.5 * m)
    )  # fmt: skip


def _pearson(y: Any, skew: Any) -> tuple[Any, Any, Any, Any]:
    """Where the skewness is too small for the gamma form, then the gamma variable and shape, and where the skewness is negative."""
    little = np.abs(plain(skew)) < 1.6e-5
    s = np.where(little, 1.0, skew)
    beta = 2 / s
    return little, beta * (y + beta), beta * beta, plain(skew) < 0


def _pearson_logpdf(y: Any, skew: Any) -> Any:
    little, x, alpha, _ = _pearson(y, skew)
    x = np.where(little, 1.0, x)
    s, z = np.where(little, skew, 0.0), np.where(little, y, 0.0)
    z2 = z * z
    he3, he4, he6 = (z2 - 3) * z, (z2 - 6) * z2 + 3, ((z2 - 15) * z2 + 45) * z2 - 15
    # Edgeworth's series to the second order (Johnson, Kotz and Balakrishnan 1994, 12.4).
    series = _log_normal(z) + s * he3 / 6 + s * s * (he4 / 16 + he6 / 72 - he3 * he3 / 72)
    return np.where(little, series, 0.5 * np.log(alpha) + _loggamma_density(x, alpha))


def _pearson_cdf(y: Any, skew: Any) -> Any:
    little, x, alpha, negative = _pearson(y, skew)
    x = np.where(little, 1.0, x)
    s, z = np.where(little, skew, 0.0), np.where(little, y, 0.0)
    z2 = z * z
    he2, he3, he5 = z2 - 1, (z2 - 3) * z, ((z2 - 10) * z2 + 15) * z
    series = ndtr(z) - np.exp(_log_normal(z)) * (s * he2 / 6 + s * s * (he3 / 16 + he5 / 72))
    return np.where(little, series, np.where(negative, gammaincc(alpha, x), gammainc(alpha, x)))


def _pearson_support(skew: Any) -> tuple[Any, Any]:
    end = -2 / np.where(plain(skew) == 0, 1.0, skew)
    return np.where(plain(skew) > 1.6e-5, end, -INF), np.where(plain(skew) < -1.6e-5, end, INF)


def _generalised_gamma(upper: bool, y: Any, a: Any, c: Any) -> Any:
    w = y**c
    return np.where((plain(c) > 0) == upper, gammaincc(a, w), gammainc(a, w))


def _gennorm_tail(y: Any, b: Any) -> Any:
    """Half of gammaincc(1/b, y^b); at y = 0, where power and integral have the slopes 0 and infinity, by an integral of the density."""
    centre = plain(y) == 0
    tail = 0.5 * gammaincc(1 / b, np.where(centre, 1.0, y) ** b)
    if never(centre):
        return tail
    half = over_no_length(lambda t: np.exp(-(t**b)), y, [y, b], points=4)
    return np.where(centre, 0.5 - np.exp(np.log(0.5 * b) - gammaln(1 / b)) * half, tail)


def _log_gamma_cdf(y: Any, c: Any) -> Any:
    """gammainc(c, e^y), which far to the left is e^(c y) / Γ(c + 1)."""
    far = plain(y) < -700
    return np.where(
        far, np.exp(c * np.where(far, y, 0.0) - gammaln(c + 1)), gammainc(c, np.exp(np.where(far, 0.0, y)))
    )  # fmt: skip


def _argus(y: Any, chi: Any) -> Any:
    return 0.5 * chi * chi * (1 - y) * (1 + y)


# ------------------------------------------------------------------------------------------- pieces and extremes


def _kappa(y: Any, h: Any, k: Any) -> tuple[Any, Any]:
    """s = log(1 - k y) / k, and the logarithm of the cdf, log(1 - h e^s) / h."""
    s = -_log1p_over(-k, y)
    return s, -_log1p_over(-h, np.exp(s))


def _kappa_support(h: Any, k: Any) -> tuple[Any, Any]:
    hp, kp = plain(h), plain(k)
    k_safe = np.where(kp == 0, 1.0, k)
    log_h = np.log(np.where(hp > 0, h, 1.0))
    bounded = np.where(kp == 0, log_h, -np.expm1(-k_safe * log_h) / k_safe)
    low = np.where(hp > 0, bounded, np.where(kp < 0, 1 / k_safe, -INF))
    return low, np.where(kp > 0, 1 / k_safe, INF)


def _ends_of_power(sign: float) -> Any:
    """The support of what holds (1 + c y)^(1/c) or (1 - c y)^(1/c)."""

    def ends(c: Any) -> tuple[Any, Any]:
        end = sign / np.where(plain(c) == 0, 1.0, c)
        return np.where(sign * plain(c) < 0, end, -INF), np.where(sign * plain(c) > 0, end, INF)

    return ends


def _before_end(c: Any, y: Any) -> tuple[Any, Any]:
    """1 - c y, exactly 0 at the end 1 / c of the support, and 1 / c."""
    end = 1 / _safe(c)
    return _safe(c) * (end - y), end


def _genpareto_at_end(y: Any, c: Any) -> Any:
    w, end = _before_end(-c, y)
    return w ** (end - 1)


def _genextreme_at_end(y: Any, c: Any) -> Any:
    w, end = _before_end(c, y)
    return w ** (end - 1) * np.exp(-(w**end))


def _genhalflogistic_at_end(y: Any, c: Any) -> Any:
    w, end = _before_end(c, y)
    return 2 * w ** (end - 1) / (1 + w**end) ** 2


def _kappa_at_end(y: Any, h: Any, k: Any) -> Any:
    w, end = _before_end(k, y)
    rest, low = _before_end(h, w**end)
    return w ** (end - 1) * np.where(plain(h) == 0, np.exp(-(w**end)), rest ** (low - 1))


def _pearson_at_end(y: Any, skew: Any) -> Any:
    _, x, alpha, _ = _pearson(y, skew)
    return np.sqrt(alpha) * gamma_density(alpha, x)


def _pareto_support(c: Any) -> tuple[Any, Any]:
    return 0.0, np.where(plain(c) < 0, -1 / np.where(plain(c) == 0, 1.0, c), INF)


_ZETAS = (1.6449340668482264, 1.2020569031595943, 1.0823232337111382, 1.03692775514337, 1.0173430619844491, 1.008349277381923,
          1.0040773561979444, 1.0020083928260821, 1.0009945751278181, 1.0004941886041194, 1.000246086553308, 1.0001227133475785,
          1.0000612481350588, 1.0000305882363071, 1.0000152822594086)  # fmt: skip
"""ζ(2), ζ(3), ..., the coefficients of the series of log Γ(1 + c)."""


def _extreme_mean(c: Any) -> Any:
    """(1 - Γ(1 + c)) / c for c > -1, by the series of log Γ near 0."""
    near, there = np.abs(plain(c)) < 0.05, plain(c) > -1
    small, far = np.where(near, c, 0.0), np.where(near | ~there, 1.0, c)
    total: Any = 0.0
    for k in range(16, 1, -1):
        total = total * small + (-1) ** k * _ZETAS[k - 2] / k
    ratio = small * total - np.euler_gamma
    series = -ratio * special.exprel(small * ratio)
    return np.where(there, np.where(near, series, -np.expm1(gammaln(1 + far)) / far), INF)


def _extreme_variance(c: Any) -> Any:
    """(Γ(1 + 2c) - Γ(1 + c)²) / c² for c > -1/2, likewise."""
    near, there = np.abs(plain(c)) < 0.05, plain(c) > -0.5
    small, far = np.where(near, c, 0.0), np.where(near | ~there, 1.0, c)
    total: Any = 0.0
    for k in range(16, 1, -1):
        total = total * small + (-1) ** k * _ZETAS[k - 2] * (2.0**k - 2) / k
    series = np.exp(2 * gammaln(1 + small)) * special.exprel(small * small * total) * total
    apart = (special.gamma(1 + 2 * far) - special.gamma(1 + far) ** 2) / (far * far)
    return np.where(there, np.where(near, series, apart), INF)


def _log_one_and_power(y: Any, c: Any) -> Any:
    """log(1 + y^c) for y >= 0 and c > 0: at 0 by the power, since the logarithm of y has infinite slopes there."""
    end = plain(y) == 0
    if never(end, guard=True):
        return softplus(c * np.log(y))
    at_end = np.log1p(np.where(end, y, 1.0) ** c)
    return np.where(end, at_end, softplus(c * np.log(np.where(end, 1.0, y))))


def _safe(x: Any) -> Any:
    """A width to divide by, 1 where there is none."""
    return np.where(plain(x) == 0, 1.0, x)


def _trapezoid_pdf(y: Any, c: Any, d: Any) -> Any:
    u = 2 / (d - c + 1)
    # A slope over the whole support holds at its end as well.
    rising = (plain(y) < plain(c)) | (plain(c) == 1)
    falling = (plain(y) > plain(d)) | (plain(d) == 0)
    share = np.where(rising, y / _safe(c), np.where(falling, (1 - y) / _safe(1 - d), 1.0))
    return u * share


def _trapezoid_part(y: Any, c: Any, d: Any) -> tuple[Any, Any, Any]:
    """The cdf where it is small, the sf where that is, and where."""
    rising, falling = plain(y) < plain(c), plain(y) > plain(d)
    whole = d - c + 1
    left = np.where(rising, y * y / _safe(c), 2 * y - c) / whole
    right = np.where(falling, (1 - y) ** 2 / _safe(1 - d), 1 + d - 2 * y) / whole
    return left, right, falling


def _trapezoid_cdf(y: Any, c: Any, d: Any) -> Any:
    left, right, falling = _trapezoid_part(y, c, d)
    return np.where(falling, 1 - right, left)


def _trapezoid_sf(y: Any, c: Any, d: Any) -> Any:
    left, right, falling = _trapezoid_part(y, c, d)
    return np.where(falling, right, 1 - left)


def _trapezoid_moments(c: Any, d: Any) -> tuple[Any, Any]:
    """Mean and variance."""
    height = 2 / (1 + d - c)
    mean = height * (c * c / 3 + (d * d - c * c) / 2 + (1 - d) * (1 + 2 * d) / 6)
    square = height * (c**3 / 4 + (d**3 - c**3) / 3 + (1 - d) * (1 + 2 * d + 3 * d * d) / 12)
    return mean, square - mean * mean


def _truncated_weibull(y: Any, c: Any, a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    lower, upper, w = a**c, b**c, y**c
    return lower, upper, w, log1mexp(lower - upper)


def _truncated_weibull_logpdf(y: Any, c: Any, a: Any, b: Any) -> Any:
    lower, _, w, mass = _truncated_weibull(y, c, a, b)
    return np.log(c) + xlogy(c - 1, y) - (w - lower) - mass


def _truncated_weibull_logcdf(y: Any, c: Any, a: Any, b: Any) -> Any:
    lower, _, w, mass = _truncated_weibull(y, c, a, b)
    return log1mexp(lower - w) - mass


def _truncated_weibull_logsf(y: Any, c: Any, a: Any, b: Any) -> Any:
    lower, upper, w, mass = _truncated_weibull(y, c, a, b)
    return lower - w + log1mexp(w - upper) - mass


def _skew_scale(y: Any, a: Any) -> Any:
    return np.where(plain(y) < 0, 1 - a, 1 + a)


def _skew_cauchy(upper: bool, y: Any, a: Any) -> Any:
    scale = _skew_scale(y, a)
    beyond = scale * np.arctan2(scale, _size(y)) / np.pi
    return np.where((plain(y) < 0) == upper, 1 - beyond, beyond)


def _wrapped_cauchy(y: Any, c: Any) -> Any:
    ratio = (1 + c) / (1 - c)
    left = plain(y) < np.pi
    turn = np.where(left, y, 2 * np.pi - y)
    part = np.arctan2(ratio * np.sin(0.5 * turn), np.cos(0.5 * turn)) / np.pi
    return np.where(left, part, 1 - part)


def _asymmetric_laplace(upper: bool, y: Any, kappa: Any) -> Any:
    left = plain(y) < 0
    square = kappa * kappa
    below = np.exp(np.where(left, y, 0.0) / kappa) * square / (1 + square)
    above = np.exp(-np.where(left, 0.0, y) * kappa) / (1 + square)
    return np.where(left, 1 - below, above) if upper else np.where(left, below, 1 - above)


def _log_hyperbolic_norm(a: Any, b: Any) -> Any:
    return np.sqrt((a - b) * (a + b))


def _genhyperbolic_logpdf(y: Any, p: Any, a: Any, b: Any) -> Any:
    gamma_, root = _log_hyperbolic_norm(a, b), np.hypot(1.0, y)
    return (
        p * np.log(gamma_) - (p - 0.5) * np.log(a) - LOG_ROOT_TAU - bessel_k_of_order(p, gamma_)
        + (p - 0.5) * np.log(root) + bessel_k_of_order(p - 0.5, a * root)
        + b * y - a * root + gamma_
    )  # fmt: skip


def _norminvgauss_logpdf(y: Any, a: Any, b: Any) -> Any:
    root = np.hypot(1.0, y)
    return (
        np.log(a)
        - LOGPI
        + np.log(special.k1e(a * root))
        + b * y
        - a * root
        + _log_hyperbolic_norm(a, b)
        - np.log(root)
    )


def _geninvgauss_logpdf(y: Any, p: Any, b: Any) -> Any:
    # b - b (y + 1/y) / 2, without the difference near y = 1.
    return (p - 1) * np.log(y) - 0.5 * b * (y - 1) ** 2 / y - LOG2 - bessel_k_of_order(p, b)


def _tukey_logpdf(y: Any, lam: Any) -> Any:
    """The quantile's slope is p^(lam - 1) + (1 - p)^(lam - 1)."""
    p, power = tukey_cdf([-_size(y), lam]), lam - 1
    rising = (plain(lam) >= 1) & (plain(lam) < 100)
    up, down = np.where(rising, power, 1.0), np.where(rising, 0.0, power)
    q = np.where(rising, 0.5, p)
    return np.where(
        rising, -np.log(p**up + (1 - p) ** up), -np.logaddexp(down * np.log(q), down * np.log1p(-q))
    )


def _tukey_cdf(y: Any, lam: Any) -> Any:
    p = tukey_cdf([-_size(y), lam])
    return np.where(plain(y) < 0, p, 1 - p)


def _tukey_support(lam: Any) -> tuple[Any, Any]:
    end = np.where(plain(lam) > 0, 1 / _safe(lam), INF)
    return -1.0 * end, end


def _tukey_variance(lam: Any) -> Any:
    """The integral of the squared quantile over (0, 1)."""
    p, w = interval(np.ndim(lam))
    there = plain(lam) > -0.5
    lam = np.where(there, lam, 1.0)
    quantile = special.boxcox(p, lam) - special.boxcox(p[::-1], lam)
    return np.where(there, np.sum(w * quantile * quantile, axis=0), np.where(there, 0.0, INF))


def _tukey_entropy(lam: Any) -> Any:
    """The integral of the logarithm of the quantile's slope over (0, 1)."""
    p, w = interval(np.ndim(lam))
    return np.sum(w * np.logaddexp((lam - 1) * np.log(p), (lam - 1) * np.log(p[::-1])), axis=0)


def _breit_wigner_logpdf(y: Any, rho: Any) -> Any:
    root = np.sqrt(1 + 1 / (rho * rho))
    constant = LOG2 - LOGPI + 0.5 * np.log(2 * root * root / (1 + root))
    return constant - _log_of_one_and_square((y - rho) * (y + rho) / rho)


def _foldcauchy_logpdf(y: Any, c: Any) -> Any:
    away = _log_of_one_and_square(y - c) + _log_of_one_and_square(y + c)
    return LOG2 - LOGPI + _log_of_one_and_square(np.hypot(y, c)) - away


# fmt: off
# ------------------------------------------------------------------------------------------------------------ table
#
#                        name           shapes    log density                                                              support   valid

alpha       = Continuous("alpha",       "a",      lambda y, a: -2 * np.log(y) + _log_normal(a - 1 / y) - log_ndtr(a),      HALF,
                         logcdf=lambda y, a: log_ndtr(a - 1 / y) - log_ndtr(a), open="both")
anglit      = Continuous("anglit",      "",       None,                                         (-np.pi / 4, np.pi / 4),
                         pdf=lambda y: np.cos(2 * y), cdf=lambda y: np.sin(y + np.pi / 4) ** 2, sf=lambda y: np.cos(y + np.pi / 4) ** 2)
arcsine     = Continuous("arcsine",     "",       lambda y: -LOGPI,                 UNIT,
                         cdf=lambda y: 2 / np.pi * np.arctan2(np.sqrt(y), np.sqrt(1 - y)), sf=lambda y: 2 / np.pi * np.arctan2(np.sqrt(1 - y), np.sqrt(y)),
                         spacing=lambda y, p, q: beta_spacing(0.5, 0.5, y, p, q), powers=lambda: (-0.5, -0.5))
argus       = Continuous("argus",       "chi",    lambda y, chi: 3 * np.log(chi) - LOG_ROOT_TAU - np.log(0.5 * gammainc(1.5, 0.5 * chi * chi))
                         + 0.5 * np.log1p(y) - _argus(y, chi),                                            UNIT,
                         sf=lambda y, chi: gammainc(1.5, _argus(y, chi)) / gammainc(1.5, 0.5 * chi * chi), powers=lambda chi: (1.0, 0.5))
beta        = Continuous("beta",        "a b",    lambda y, a, b: xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b),     UNIT,
                         cdf=lambda y, a, b: betainc(a, b, y), sf=lambda y, a, b: betaincc(a, b, y),
                         mean=lambda a, b: a / (a + b), var=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1)),
                         entropy=lambda a, b: betaln(a, b) - (a - 1) * special.psi(a) - (b - 1) * special.psi(b) + (a + b - 2) * special.psi(a + b),
                         pdf=lambda y, a, b: beta_density(a, b, y), spacing=lambda y, p, q, a, b: beta_spacing(a, b, y, p, q))
betaprime   = Continuous("betaprime",   "a b",    lambda y, a, b: -xlog1py(a + b, y) - betaln(a, b),      HALF,
                         cdf=lambda y, a, b: betainc(a, b, y / (1 + y)), sf=lambda y, a, b: betainc(b, a, 1 / (1 + y)),
                         powers=lambda a, b: (a - 1, None))
bradford    = Continuous("bradford",    "c",      lambda y, c: np.log(c) - np.log1p(c * y) - np.log(np.log1p(c)),          UNIT,
                         cdf=lambda y, c: np.log1p(c * y) / np.log1p(c), sf=lambda y, c: np.log1p(c * (1 - y) / (1 + c * y)) / np.log1p(c))
burr        = Continuous("burr",        "c d",    lambda y, c, d: np.log(c * d) - (d + 1) * _log_one_and_power(y, c), HALF,
                         logcdf=lambda y, c, d: -d * softplus(-c * np.log(y)),
                         powers=lambda c, d: (c * d - 1, None))
burr12      = Continuous("burr12",      "c d",    lambda y, c, d: np.log(c * d) - (d + 1) * _log_one_and_power(y, c), HALF,
                         logsf=lambda y, c, d: -d * _log_one_and_power(y, c),
                         powers=lambda c, d: (c - 1, None))
cauchy      = Continuous("cauchy",      "",       lambda y: -LOGPI - _log_of_one_and_square(y),
                         cdf=lambda y: np.arctan2(1, -y) / np.pi, sf=lambda y: np.arctan2(1, y) / np.pi)
chi         = Continuous("chi",         "df",     lambda y, df: LOG2 - 0.5 * LOG2 * df - gammaln(0.5 * df) - 0.5 * y * y, HALF,
                         cdf=lambda y, df: gammainc(0.5 * df, 0.5 * y * y), sf=lambda y, df: gammaincc(0.5 * df, 0.5 * y * y),
                         powers=lambda df: (df - 1, None))
chi2        = Continuous("chi2",        "df",     lambda y, df: -gammaln(df / 2) - LOG2 * df / 2 - y / 2, HALF,
                         cdf=lambda y, df: special.chdtr(df, y), sf=lambda y, df: special.chdtrc(df, y), mean=lambda df: df, var=lambda df: 2 * df,
                         entropy=lambda df: df / 2 + LOG2 + gammaln(df / 2) + (1 - df / 2) * special.psi(df / 2),
                         powers=lambda df: (df / 2 - 1, None), spacing=lambda y, p, q, df: 2 * gamma_spacing(df / 2, y / 2, p))
cosine      = Continuous("cosine",      "",       None,                                                                     (-np.pi, np.pi), pdf=lambda y: np.cos(0.5 * y) ** 2 / np.pi)
crystalball = Continuous("crystalball", "beta m", lambda y, beta, m: _crystal_logpdf(y, beta, m), LINE, lambda beta, m: (beta > 0) & (m > 1),
                         cdf=lambda y, beta, m: _crystal(False, y, beta, m), sf=lambda y, beta, m: _crystal(True, y, beta, m), kinks=lambda beta, m: (-beta,))
dgamma      = Continuous("dgamma",      "a",      lambda y, a: _loggamma_density(_size(y), a) - LOG2,
                         **_symmetric(lambda y, a: 0.5 * gammaincc(a, y)), mean=lambda a: 0.0 * a, var=lambda a: a * (a + 1), kinks=lambda a: (0.0,))
dpareto_lognorm = Continuous("dpareto_lognorm", "u s a b", lambda y, u, s, a, b: _dpareto_logpdf(y, u, s, a, b), HALF, lambda u, s, a, b: positive(s, a, b),
                         cdf=lambda y, u, s, a, b: _dpareto(1.0, y, u, s, a, b), sf=lambda y, u, s, a, b: _dpareto(-1.0, y, u, s, a, b), powers=lambda u, s, a, b: (b - 1, None))
dweibull    = Continuous("dweibull",    "c",      lambda y, c: np.log(0.5 * c) + xlogy(c - 1, _size(y)) - _size(y) ** c,
                         **_symmetric(lambda y, c: 0.5 * np.exp(-(y**c))), mean=lambda c: 0.0 * c, var=lambda c: special.gamma(1 + 2 / c), kinks=lambda c: (0.0,))
erlang      = Continuous("erlang",      "a",      lambda y, a: -gammaln(a) - y,                                                       HALF,
                         cdf=lambda y, a: gammainc(a, y), sf=lambda y, a: gammaincc(a, y), mean=lambda a: a, var=lambda a: a,
                         entropy=lambda a: a + gammaln(a) + (1 - a) * special.psi(a),
                         powers=lambda a: (a - 1, None), spacing=lambda y, p, q, a: gamma_spacing(a, y, p))
expon       = Continuous("expon",       "",       lambda y: -y,                                                            HALF, logsf=lambda y: -y)
exponnorm   = Continuous("exponnorm",   "K",      lambda y, K: _exponnorm_part(y, K) - np.log(K),
                         sf=lambda y, K: ndtr(-y) + np.exp(_exponnorm_part(y, K)), mean=lambda K: K, var=lambda K: 1 + K * K)
exponpow    = Continuous("exponpow",    "b",      lambda y, b: 1 + np.log(b) + y**b - np.exp(y**b),      HALF, logsf=lambda y, b: -np.expm1(y**b), powers=lambda b: (b - 1, None))
exponweib   = Continuous("exponweib",   "a c",    lambda y, a, c: np.log(a * c) + (a - 1) * np.log(special.exprel(-(y**c))) - y**c, HALF,
                         logcdf=lambda y, a, c: a * log1mexp(-(y**c)), powers=lambda a, c: (a * c - 1, None))
f           = Continuous("f",           "dfn dfd", lambda y, n, m: _f_logpdf(y, n, m),                                     HALF,
                         cdf=lambda y, n, m: special.fdtr(n, m, y), sf=lambda y, n, m: special.fdtrc(n, m, y),
                         powers=lambda n, m: (0.5 * n - 1, None))
fatiguelife = Continuous("fatiguelife", "c",      lambda y, c: np.log1p(y) - (y - 1) ** 2 / (2 * y * c * c) - np.log(2 * c) - LOG_ROOT_TAU - 1.5 * np.log(y), HALF,
                         normal=lambda y, c: (y - 1) / (c * np.sqrt(y)), mean=lambda c: 1 + 0.5 * c * c, var=lambda c: c * c * (1 + 1.25 * c * c), open="both")
fisk        = Continuous("fisk",        "c",      lambda y, c: np.log(c) - 2 * _log_one_and_power(y, c), HALF, logistic=lambda y, c: c * np.log(y),
                         logsf=lambda y, c: -_log_one_and_power(y, c), powers=lambda c: (c - 1, None))
foldcauchy  = Continuous("foldcauchy",  "c",      lambda y, c: _foldcauchy_logpdf(y, c),                                   HALF, _not_negative,
                         cdf=lambda y, c: (np.arctan(y - c) + np.arctan(y + c)) / np.pi, sf=lambda y, c: (np.arctan2(1, y - c) + np.arctan2(1, y + c)) / np.pi)
foldnorm    = Continuous("foldnorm",    "c",      lambda y, c: _log_normal(y - c) + softplus(-2 * y * c),                  HALF, _not_negative,
                         cdf=lambda y, c: ndtr(y - c) - ndtr(-y - c), sf=lambda y, c: ndtr(c - y) + ndtr(-y - c))
gamma       = Continuous("gamma",       "a",      lambda y, a: -gammaln(a) - y,                                                       HALF,
                         cdf=lambda y, a: gammainc(a, y), sf=lambda y, a: gammaincc(a, y), mean=lambda a: a, var=lambda a: a,
                         entropy=lambda a: a + gammaln(a) + (1 - a) * special.psi(a),
                         powers=lambda a: (a - 1, None), spacing=lambda y, p, q, a: gamma_spacing(a, y, p))
gausshyper  = Continuous("gausshyper",  "a b c z", lambda y, a, b, c, z: -c * np.log1p(z * y) - log_hypergeometric_share(a, b, c, z),
                         UNIT, lambda a, b, c, z: (a > 0) & (b > 0) & (c == c) & (z > -1), powers=lambda a, b, c, z: (a - 1, b - 1))
genexpon    = Continuous("genexpon",    "a b c",  lambda y, a, b, c: np.log(a - b * np.expm1(-c * y)) - (a + b) * y - b * np.expm1(-c * y) / c, HALF,
                         logsf=lambda y, a, b, c: -(a + b) * y - b * np.expm1(-c * y) / c)
genextreme  = Continuous("genextreme",  "c",      lambda y, c: -np.exp(-_log1p_over(-c, y)) - (1 - c) * _log1p_over(-c, y), _ends_of_power(1.0), _finite,
                         logcdf=lambda y, c: -np.exp(-_log1p_over(-c, y)), mean=lambda c: _extreme_mean(c), var=lambda c: _extreme_variance(c),
                         entropy=lambda c: np.euler_gamma * (1 - c) + 1, open="low", pdf=_genextreme_at_end)
gengamma    = Continuous("gengamma",    "a c",    lambda y, a, c: np.log(np.abs(c)) - y**c - gammaln(a), HALF, lambda a, c: (a > 0) & (c != 0),
                         cdf=lambda y, a, c: _generalised_gamma(False, y, a, c), sf=lambda y, a, c: _generalised_gamma(True, y, a, c), open=lambda a, c: c < 0, powers=lambda a, c: (c * a - 1, None))
genhalflogistic = Continuous("genhalflogistic", "c", lambda y, c: LOG2 - (1 - c) * _log1p_over(-c, y) - 2 * softplus(-_log1p_over(-c, y)), lambda c: (0.0, 1 / c),
                         cdf=lambda y, c: np.tanh(0.5 * _log1p_over(-c, y)), sf=lambda y, c: 2 * expit(-_log1p_over(-c, y)), pdf=_genhalflogistic_at_end)
genhyperbolic = Continuous("genhyperbolic", "p a b", lambda y, p, a, b: _genhyperbolic_logpdf(y, p, a, b), LINE, lambda p, a, b: (np.abs(b) < a) | (np.abs(b) <= a) & (p < 0))
geninvgauss = Continuous("geninvgauss", "p b",    lambda y, p, b: _geninvgauss_logpdf(y, p, b),                            HALF, lambda p, b: (p == p) & (b > 0), open="both")
genlogistic = Continuous("genlogistic", "c",      lambda y, c: np.log(c) - y - (c + 1) * softplus(-y),                     logcdf=lambda y, c: -c * softplus(-y))
gennorm     = Continuous("gennorm",     "beta",   lambda y, b: np.log(0.5 * b) - gammaln(1 / b) - _size(y) ** b,           **_symmetric(_gennorm_tail),
                         mean=lambda b: 0.0 * b, var=lambda b: np.exp(gammaln(3 / b) - gammaln(1 / b)), entropy=lambda b: 1 / b - np.log(0.5 * b) + gammaln(1 / b))
genpareto   = Continuous("genpareto",   "c",      lambda y, c: -(c + 1) * _log1p_over(c, y),                               _pareto_support, _finite, logsf=lambda y, c: -_log1p_over(c, y),
                         mean=lambda c: np.where(plain(c) < 1, 1 / np.where(plain(c) < 1, 1 - c, 1.0), INF),
                         var=lambda c: np.where(plain(c) < 0.5, 1 / np.where(plain(c) < 0.5, (1 - c) ** 2 * (1 - 2 * c), 1.0), INF), entropy=lambda c: 1 + c, pdf=_genpareto_at_end)
gibrat      = Continuous("gibrat",      "",       lambda y: _log_normal(np.log(y)) - np.log(y),                            HALF, normal=lambda y: np.log(y), open="both")
gompertz    = Continuous("gompertz",    "c",      lambda y, c: np.log(c) + y - c * np.expm1(y),                            HALF, logsf=lambda y, c: -c * np.expm1(y))
gumbel_l    = Continuous("gumbel_l",    "",       lambda y: y - np.exp(y),                                                 logsf=lambda y: -np.exp(y))
gumbel_r    = Continuous("gumbel_r",    "",       lambda y: -y - np.exp(-y),                                               logcdf=lambda y: -np.exp(-y))
halfcauchy  = Continuous("halfcauchy",  "",       lambda y: LOG2 - LOGPI - _log_of_one_and_square(y),                      HALF,
                         cdf=lambda y: 2 / np.pi * np.arctan(y), sf=lambda y: 2 / np.pi * np.arctan2(1, y))
halfgennorm = Continuous("halfgennorm", "beta",   lambda y, b: np.log(b) - gammaln(1 / b) - y**b,                          HALF,
                         cdf=lambda y, b: gammainc(1 / b, y**b), sf=lambda y, b: gammaincc(1 / b, y**b), entropy=lambda b: 1 / b - np.log(b) + gammaln(1 / b))
halflogistic = Continuous("halflogistic", "",     lambda y: LOG2 - y - 2 * softplus(-y),                                   HALF,
                         cdf=lambda y: np.tanh(0.5 * y), sf=lambda y: 2 * expit(-y))
halfnorm    = Continuous("halfnorm",    "",       lambda y: LOG2 + _log_normal(y),                                         HALF,
                         cdf=lambda y: special.erf(y / ROOT2), sf=lambda y: 2 * ndtr(-y))
hypsecant   = Continuous("hypsecant",   "",       lambda y: LOG2 - LOGPI - np.logaddexp(y, -y),
                         cdf=lambda y: 2 / np.pi * np.arctan(np.exp(y)), sf=lambda y: 2 / np.pi * np.arctan(np.exp(-y)))
invgamma    = Continuous("invgamma",    "a",      lambda y, a: -(a + 1) * np.log(y) - gammaln(a) - 1 / y,                  HALF,
                         cdf=lambda y, a: gammaincc(a, 1 / y), sf=lambda y, a: gammainc(a, 1 / y), entropy=lambda a: a - (a + 1) * special.psi(a) + gammaln(a), open="both")
invgauss    = Continuous("invgauss",    "mu",     lambda y, mu: -LOG_ROOT_TAU - 1.5 * np.log(y) - (y / mu - 1) ** 2 / (2 * y), HALF,
                         logcdf=lambda y, mu: _inverse_gaussian(1.0, y, mu), logsf=lambda y, mu: _inverse_gaussian(-1.0, y, mu), mean=lambda mu: mu, var=lambda mu: mu**3, open="both")
invweibull  = Continuous("invweibull",  "c",      lambda y, c: np.log(c) - (c + 1) * np.log(y) - y**-c,                    HALF, logcdf=lambda y, c: -(y**-c), open="both")
irwinhall   = Continuous("irwinhall",   "n",      None,                              lambda n: (0.0, n), lambda n: (n > 0) & (n == np.floor(n)), counts="n",
                         pdf=lambda y, n: cardinal_spline(y, n), cdf=lambda y, n: spline_integral(y, n), sf=lambda y, n: spline_integral(n - y, n))
jf_skew_t   = Continuous("jf_skew_t",   "a b",    lambda y, a, b: _skewed_t_logpdf(y, a, b),
                         cdf=lambda y, a, b: _skewed_t_cdf(y, a, b), sf=lambda y, a, b: _skewed_t_cdf(-1.0 * y, b, a))
johnsonsb   = Continuous("johnsonsb",   "a b",    lambda y, a, b: np.log(b) - np.log(y) - np.log1p(-y) + _log_normal(a + b * special.logit(y)), UNIT, lambda a, b: (b > 0) & (a == a),
                         normal=lambda y, a, b: a + b * special.logit(y), open="both")
johnsonsu   = Continuous("johnsonsu",   "a b",    lambda y, a, b: np.log(b) - 0.5 * _log_of_one_and_square(y) + _log_normal(a + b * np.arcsinh(y)), LINE, lambda a, b: (b > 0) & (a == a),
                         normal=lambda y, a, b: a + b * np.arcsinh(y))
kappa3      = Continuous("kappa3",      "a",      lambda y, a: -np.log(a) / a - (1 + 1 / a) * _log_one_and_power(y * a ** (-1 / a), a), HALF,
                         logcdf=lambda y, a: -softplus(np.log(a) - a * np.log(y)) / a)
kappa4      = Continuous("kappa4",      "h k",    lambda y, h, k: (1 - k) * _kappa(y, h, k)[0] + (1 - h) * _kappa(y, h, k)[1], _kappa_support, lambda h, k: (h == h) & (k == k),
                         logcdf=lambda y, h, k: _kappa(y, h, k)[1], open=lambda h, k: (h <= 0) & (k < 0) & (h * k < 1), pdf=_kappa_at_end)
ksone       = Continuous("ksone",       "n",      lambda y, n: smirnov_logpdf(y, n),                               UNIT, lambda n: (n >= 1) & (n == np.round(n)), counts="n",
                         sf=lambda y, n: smirnov_sf(y, n), cdf=lambda y, n: 1 - smirnov_sf(y, n))
kstwo       = Continuous("kstwo",       "n",      lambda y, n: kolmogorov_of("logpdf", y, n),                        lambda n: (0.5 / n, 1.0), lambda n: (n >= 1) & (n == np.round(n)), counts="n",
                         cdf=lambda y, n: kolmogorov_of("cdf", y, n), sf=lambda y, n: kolmogorov_of("sf", y, n))
kstwobign   = Continuous("kstwobign",   "",       lambda y: kolmogorov_logpdf(y),                                  HALF, logcdf=lambda y: kolmogorov_logcdf(y), logsf=lambda y: kolmogorov_logsf(y), open="low")
landau      = Continuous("landau",      "",       lambda y: landau_logpdf(y))
laplace     = Continuous("laplace",     "",       lambda y: -_size(y) - LOG2,
                         **_symmetric(lambda y: 0.5 * np.exp(-y)), logcdf=lambda y: _log_laplace(y), logsf=lambda y: _log_laplace(-1.0 * y))
laplace_asymmetric = Continuous("laplace_asymmetric", "kappa", lambda y, k: np.where(plain(y) < 0, y / k, -y * k) - np.log(k + 1 / k),
                         cdf=lambda y, k: _asymmetric_laplace(False, y, k), sf=lambda y, k: _asymmetric_laplace(True, y, k), mean=lambda k: 1 / k - k, var=lambda k: 1 / (k * k) + k * k,
                         entropy=lambda k: 1 + np.log(k + 1 / k))
levy        = Continuous("levy",        "",       lambda y: -LOG_ROOT_TAU - 1.5 * np.log(y) - 0.5 / y,                     HALF,
                         cdf=lambda y: special.erfc(np.sqrt(0.5 / y)), sf=lambda y: special.erf(np.sqrt(0.5 / y)),
                         logcdf=lambda y: _log_levy(y), open="both")
levy_l      = Continuous("levy_l",      "",       lambda y: -LOG_ROOT_TAU - 1.5 * np.log(-y) + 0.5 / y,                    (-INF, 0.0),
                         cdf=lambda y: special.erf(np.sqrt(-0.5 / y)), sf=lambda y: special.erfc(np.sqrt(-0.5 / y)),
                         logsf=lambda y: _log_levy(-1.0 * y), open="both")
loggamma    = Continuous("loggamma",    "c",      lambda y, c: c * y - np.exp(y) - gammaln(c),
                         cdf=lambda y, c: _log_gamma_cdf(y, c), sf=lambda y, c: gammaincc(c, np.exp(y)), mean=lambda c: special.psi(c), var=lambda c: special.polygamma(1, c))
logistic    = Continuous("logistic",    "",       lambda y: _log_logistic_density(y),                                      logistic=lambda y: y)
loglaplace  = Continuous("loglaplace",  "c",      lambda y, c: np.log(0.5 * c) + xlogy(-1 - c * np.sign(plain(y) - 1), y), HALF,
                         logcdf=lambda y, c: _log_laplace(c * np.log(y)), logsf=lambda y, c: _log_laplace(-c * np.log(y)), kinks=lambda c: (1.0,),
                         pdf=lambda y, c: 0.5 * c * y ** (c - 1))
lognorm     = Continuous("lognorm",     "s",      lambda y, s: _log_normal(np.log(y) / s) - np.log(s * y),                 HALF, normal=lambda y, s: np.log(y) / s,
                         mean=lambda s: np.exp(0.5 * s * s), var=lambda s: np.expm1(s * s) * np.exp(s * s), entropy=lambda s: 0.5 + LOG_ROOT_TAU + np.log(s), open="both")
loguniform  = Continuous("loguniform",  "a b",    lambda y, a, b: -np.log(y) - np.log(np.log(b / a)),                      lambda a, b: (a, b), lambda a, b: (a > 0) & (b > a),
                         cdf=lambda y, a, b: np.log(y / a) / np.log(b / a), sf=lambda y, a, b: np.log(b / y) / np.log(b / a))
lomax       = Continuous("lomax",       "c",      lambda y, c: np.log(c) - (c + 1) * np.log1p(y),                          HALF, logsf=lambda y, c: -c * np.log1p(y))
maxwell     = Continuous("maxwell",     "",       lambda y: LOG2 - LOG_ROOT_TAU - 0.5 * y * y,             HALF,
                         cdf=lambda y: gammainc(1.5, 0.5 * y * y), sf=lambda y: gammaincc(1.5, 0.5 * y * y),
                         powers=lambda: (2.0, None))
mielke      = Continuous("mielke",      "k s",    lambda y, k, s: np.log(k) - (1 + k / s) * _log_one_and_power(y, s), HALF,
                         logcdf=lambda y, k, s: -k / s * softplus(-s * np.log(y)),
                         powers=lambda k, s: (k - 1, None))
moyal       = Continuous("moyal",       "",       lambda y: -0.5 * (y + np.exp(-y)) - LOG_ROOT_TAU,
                         cdf=lambda y: special.erfc(np.exp(-0.5 * y) / ROOT2), sf=lambda y: special.erf(np.exp(-0.5 * y) / ROOT2))
nakagami    = Continuous("nakagami",    "nu",     lambda y, nu: LOG2 + xlogy(nu, nu) - gammaln(nu) - nu * y * y, HALF,
                         cdf=lambda y, nu: gammainc(nu, nu * y * y), sf=lambda y, nu: gammaincc(nu, nu * y * y),
                         powers=lambda nu: (2 * nu - 1, None))
ncf         = Continuous("ncf",         "dfn dfd nc", lambda y, n, m, nc: ncf_logpdf(y, n, m, nc),                         HALF, lambda n, m, nc: (n > 0) & (m > 0) & (nc >= 0), powers=lambda n, m, nc: (0.5 * n - 1, None))
nct         = Continuous("nct",         "df nc",  _or_normal(nct_logpdf, lambda y, nc: _log_normal(y - nc)),                    LINE, lambda df, nc: (df > 0) & (nc == nc))
ncx2        = Continuous("ncx2",        "df nc",  lambda y, df, nc: ncx2_logpdf(y, df, nc),                                HALF, lambda df, nc: (df > 0) & np.isfinite(df) & (nc >= 0),
                         mean=lambda df, nc: df + nc, var=lambda df, nc: 2 * df + 4 * nc,
                         vanishes=lambda y, df, nc: np.abs(np.sqrt(y) - np.sqrt(nc)) > 60 + np.sqrt(df), powers=lambda df, nc: (0.5 * df - 1, None))
norm        = Continuous("norm",        "",       _log_normal,                                                             normal=lambda y: y)
norminvgauss = Continuous("norminvgauss", "a b",  lambda y, a, b: _norminvgauss_logpdf(y, a, b),                           LINE, lambda a, b: (a > 0) & (np.abs(b) < a),
                         mean=lambda a, b: b / _log_hyperbolic_norm(a, b), var=lambda a, b: a * a / _log_hyperbolic_norm(a, b) ** 3)
pareto      = Continuous("pareto",      "b",      lambda y, b: np.log(b) - (b + 1) * np.log(y),                            (1.0, INF), logsf=lambda y, b: -b * np.log(y))
pearson3    = Continuous("pearson3",    "skew",   lambda y, skew: _pearson_logpdf(y, skew),                                _pearson_support, _finite,
                         cdf=lambda y, skew: _pearson_cdf(y, skew), sf=lambda y, skew: _pearson_cdf(-1.0 * y, -1.0 * skew), mean=lambda skew: 0.0 * skew, var=lambda skew: 0.0 * skew + 1, pdf=_pearson_at_end)
powerlaw    = Continuous("powerlaw",    "a",      lambda y, a: np.log(a),                                UNIT, logcdf=lambda y, a: a * np.log(y),
                         mean=lambda a: a / (a + 1), var=lambda a: a / ((a + 2) * (a + 1) ** 2), entropy=lambda a: 1 - 1 / a - np.log(a),
                         powers=lambda a: (a - 1, None), spacing=lambda y, p, q, a: p ** (1 / a - 1) / a)
powerlognorm = Continuous("powerlognorm", "c s",  lambda y, c, s: np.log(c / s) - np.log(y) + _log_normal(np.log(y) / s) + (c - 1) * log_ndtr(-np.log(y) / s), HALF,
                         logsf=lambda y, c, s: c * log_ndtr(-np.log(y) / s), open="both")
powernorm   = Continuous("powernorm",   "c",      lambda y, c: np.log(c) + _log_normal(y) + (c - 1) * log_ndtr(-y),        logsf=lambda y, c: c * log_ndtr(-y))
rayleigh    = Continuous("rayleigh",    "",       lambda y: -0.5 * y * y,                                       HALF, logsf=lambda y: -0.5 * y * y,
                         powers=lambda: (1.0, None))
rdist       = Continuous("rdist",       "c",      lambda y, c: -betaln(0.5 * c, 0.5),        (-1.0, 1.0),
                         **_symmetric(lambda y, c: betainc(0.5 * c, 0.5 * c, 0.5 * (1 - y))), mean=lambda c: 0.0 * c, var=lambda c: 1 / (c + 1), kinks=lambda c: (0.0,), powers=lambda c: (0.5 * c - 1, 0.5 * c - 1))
recipinvgauss = Continuous("recipinvgauss", "mu", lambda y, mu: -((1 - mu * y) ** 2) / (2 * y * mu * mu) - LOG_ROOT_TAU - 0.5 * np.log(y), HALF,
                         logcdf=lambda y, mu: _inverse_gaussian(-1.0, 1 / y, mu), logsf=lambda y, mu: _inverse_gaussian(1.0, 1 / y, mu), mean=lambda mu: 1 + 1 / mu, var=lambda mu: 2 + 1 / mu, open="both")
reciprocal  = Continuous("reciprocal",  "a b",    lambda y, a, b: -np.log(y) - np.log(np.log(b / a)),                      lambda a, b: (a, b), lambda a, b: (a > 0) & (b > a),
                         cdf=lambda y, a, b: np.log(y / a) / np.log(b / a), sf=lambda y, a, b: np.log(b / y) / np.log(b / a))
rel_breitwigner = Continuous("rel_breitwigner", "rho", lambda y, rho: _breit_wigner_logpdf(y, rho),                        HALF)
rice        = Continuous("rice",        "b",      lambda y, b: -0.5 * (y - b) ** 2 + _log_i0e(y * b), HALF, _not_negative,
                         powers=lambda b: (1.0, None))
semicircular = Continuous("semicircular", "",     lambda y: LOG2 - LOGPI,                         (-1.0, 1.0), **_symmetric(lambda y: betainc(1.5, 1.5, 0.5 * (1 - y))), powers=lambda: (0.5, 0.5))
skewcauchy  = Continuous("skewcauchy",  "a",      lambda y, a: -LOGPI - _log_of_one_and_square(y / _skew_scale(y, a)),     LINE, lambda a: np.abs(a) < 1,
                         cdf=lambda y, a: _skew_cauchy(False, y, a), sf=lambda y, a: _skew_cauchy(True, y, a), kinks=lambda a: (0.0,))
skewnorm    = Continuous("skewnorm",    "a",      lambda y, a: LOG2 + _log_normal(y) + log_ndtr(a * y),                    LINE, _finite)
t           = Continuous("t",           "df",     _or_normal(lambda y, df: -0.5 * np.log(df) - betaln(0.5, df / 2) - (df + 1) / 2 * np.log1p(y * y / df), _log_normal),
                         cdf=lambda y, df: special.stdtr(df, y), sf=lambda y, df: special.stdtr(df, -y))
trapezoid   = Continuous("trapezoid",   "c d",    None,                              UNIT, lambda c, d: (c >= 0) & (c <= 1) & (d >= 0) & (d <= 1) & (d >= c),
                         cdf=lambda y, c, d: _trapezoid_cdf(y, c, d), sf=lambda y, c, d: _trapezoid_sf(y, c, d),
                         mean=lambda c, d: _trapezoid_moments(c, d)[0], var=lambda c, d: _trapezoid_moments(c, d)[1],
                         entropy=lambda c, d: 0.5 * (1 - d + c) / (1 + d - c) + np.log(0.5 * (1 + d - c)),
                         pdf=lambda y, c, d: _trapezoid_pdf(y, c, d))
triang      = Continuous("triang",      "c",      None,                                 UNIT, lambda c: (c >= 0) & (c <= 1),
                         cdf=lambda y, c: _trapezoid_cdf(y, c, c), sf=lambda y, c: _trapezoid_sf(y, c, c), mean=lambda c: (c + 1) / 3, var=lambda c: (1 - c + c * c) / 18, entropy=lambda c: 0.5 - LOG2 + 0.0 * c,
                         pdf=lambda y, c: _trapezoid_pdf(y, c, c))
truncexpon  = Continuous("truncexpon",  "b",      lambda y, b: -y - log1mexp(-b),                                          lambda b: (0.0, b),
                         cdf=lambda y, b: np.expm1(-y) / np.expm1(-b), sf=lambda y, b: np.exp(-y) * np.expm1(y - b) / np.expm1(-b))
truncnorm   = Continuous("truncnorm",   "a b",    lambda y, a, b: _log_normal(y) - _log_mass(a, b),                        lambda a, b: (a, b), lambda a, b: a < b,
                         logcdf=lambda y, a, b: _log_mass(a, y) - _log_mass(a, b), logsf=lambda y, a, b: _log_mass(y, b) - _log_mass(a, b))
truncpareto = Continuous("truncpareto", "b c",    lambda y, b, c: np.log(b / -np.expm1(-b * np.log(c))) - (b + 1) * np.log(y), lambda b, c: (1.0, c), lambda b, c: (b != 0) & (c > 1),
                         cdf=lambda y, b, c: np.expm1(-b * np.log(y)) / np.expm1(-b * np.log(c)), sf=lambda y, b, c: y**-b * np.expm1(-b * np.log(c / y)) / np.expm1(-b * np.log(c)))
truncweibull_min = Continuous("truncweibull_min", "c a b", _truncated_weibull_logpdf,                                      lambda c, a, b: (a, b), lambda c, a, b: (a >= 0) & (b > a) & (c > 0),
                         logcdf=_truncated_weibull_logcdf, logsf=_truncated_weibull_logsf)
tukeylambda = Continuous("tukeylambda", "lam",    lambda y, lam: _tukey_logpdf(y, lam),                                    _tukey_support, _finite,
                         cdf=lambda y, lam: _tukey_cdf(y, lam), sf=lambda y, lam: _tukey_cdf(-1.0 * y, lam), mean=lambda lam: 0.0 * lam, var=lambda lam: _tukey_variance(lam),
                         entropy=lambda lam: _tukey_entropy(lam))
uniform     = Continuous("uniform",     "",       lambda y: 0.0 * y,                                                       UNIT, cdf=lambda y: y, sf=lambda y: 1 - y)
vonmises    = Continuous("vonmises",    "kappa",  lambda y, k: k * special.cosm1(y) - np.log(2 * np.pi) - _log_i0e(k), (-np.pi, np.pi), _not_negative, period=2 * np.pi)
vonmises_line = Continuous("vonmises_line", "kappa", lambda y, k: k * special.cosm1(y) - np.log(2 * np.pi) - _log_i0e(k), (-np.pi, np.pi), _not_negative)
wald        = Continuous("wald",        "",       lambda y: -LOG_ROOT_TAU - 1.5 * np.log(y) - (y - 1) ** 2 / (2 * y),      HALF,
                         logcdf=lambda y: _inverse_gaussian(1.0, y, 1.0), logsf=lambda y: _inverse_gaussian(-1.0, y, 1.0), open="both")
weibull_max = Continuous("weibull_max", "c",      lambda y, c: np.log(c) - (-y) ** c,                   (-INF, 0.0), logcdf=lambda y, c: -((-y) ** c),
                         mean=lambda c: -special.gamma(1 + 1 / c),
                         powers=lambda c: (None, c - 1))
weibull_min = Continuous("weibull_min", "c",      lambda y, c: np.log(c) - y**c,                         HALF, logsf=lambda y, c: -(y**c),
                         mean=lambda c: special.gamma(1 + 1 / c), var=lambda c: special.gamma(1 + 2 / c) - special.gamma(1 + 1 / c) ** 2,
                         entropy=lambda c: np.euler_gamma * (1 - 1 / c) - np.log(c) + 1,
                         powers=lambda c: (c - 1, None))
wrapcauchy  = Continuous("wrapcauchy",  "c",      lambda y, c: np.log((1 - c) * (1 + c)) - np.log(2 * np.pi) - np.log((1 - c) ** 2 + 4 * c * np.sin(0.5 * y) ** 2), (0.0, 2 * np.pi),
                         lambda c: (c > 0) & (c < 1), cdf=lambda y, c: _wrapped_cauchy(y, c), sf=lambda y, c: _wrapped_cauchy(2 * np.pi - y, c))
# fmt: on

CONTINUOUS = {
    name: value for name, value in list(globals().items()) if isinstance(value, Continuous)
}
"""The table by name."""

__all__ = sorted(CONTINUOUS)
