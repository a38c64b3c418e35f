"""The gamma function and its relatives: beta, digamma, polygamma, zeta, Pochhammer's symbol, binomials.

Derivatives by digamma and polygamma (DLMF 5.2, 5.15). SciPy's polygamma takes real numbers; for complex ones, which the second
derivative of a gamma function asks for, it is computed here by recurrence and Stirling's series. The derivative of zeta by
its exponent has no closed form: it is computed by differentiating Euler and Maclaurin's formula, to about 1e-13 of the value.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, positive
from ...core.primitive import call, compiled_as, select
from ..composing import operand, raw
from .declaring import parametric, smooth

real_only = Domain("real_only", positive.draw, complex_too=False)
exponent = Domain("exponent", lambda rng, shape: rng.uniform(1.3, 4.0, shape), complex_too=False)

_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330]  # fmt: skip
"""The numbers B₂, B₄, ..., B₂₀."""


_STEPS = 10_000_000
"""Poles below 0 over which a series may be continued, one by one."""


def _polygamma(n, x):
    """The n-th derivative of digamma, of real or complex numbers; n an integer or an array of them."""
    n, x = np.asarray(n), np.asarray(x)
    if x.dtype.kind != "c":
        if np.any((x < -_STEPS) & (x != np.floor(x)) & np.isfinite(x) & (n > 0)):
            raise ValueError(
                f"polygamma was asked at {np.min(x)}, but it takes a step for each pole between there and 0, so it would not end for long. "
                "Use the reflection formula, by the derivatives of the cotangent."
            )
        out = special.polygamma(n, x)
        return out.astype(x.dtype) if x.dtype == np.float32 else out
    return _complex_polygamma(n, x).astype(x.dtype)


def _complex_polygamma(n, z):
    """(-1)^(n+1) n! Σ 1 / (z + k)^(n+1): terms until the real part is 15, then the Euler-Maclaurin remainder."""
    if np.any(n < 1):
        return special.psi(z)
    steps = int(np.clip(np.ceil(15 - np.min(np.real(z), initial=15.0)), 0, 10_000))
    total = np.zeros(np.broadcast_shapes(n.shape, z.shape), complex)
    for _ in range(steps):
        total += z ** -(n + 1.0)
        z = z + 1
    total += z ** (-1.0 * n) / n + z ** -(n + 1.0) / 2
    rising = n + 1.0  # (n + 1)(n + 2) ... / (2k)!, step by step
    for k, b in enumerate(_BERNOULLI, 1):
        total += b * rising / math.factorial(2 * k) * z ** -(n + 2.0 * k)
        rising = rising * (n + 2 * k) * (n + 2 * k + 1)
    return (-1.0) ** (n + 1) * special.gamma(n + 1.0) * total


_REMAINDER = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1))


def _zeta_of_numbers(s, q):
    """Hurwitz's zeta function of a real s > 1, where it is real: terms until q is large, then Euler and Maclaurin's remainder."""
    if q <= 0 and (q == np.floor(q) or s != np.floor(s)):
        return np.inf if q == np.floor(q) else np.nan
    if s <= 1:
        return np.inf if s == 1 else np.nan
    if q < -_STEPS:  # the sum would not end for long, and compiled code has nobody to tell
        return np.nan
    total = 0.0
    while q < 15 + s:
        total += q**-s
        q += 1
    power = q**-s
    total += (
        q ** (1 - s) / (s - 1) + power / 2
    )  # power * q would be 0 for the largest q, and NaN for inf
    rising, k = s * power / q, 0
    for b in _REMAINDER:
        total += b * rising
        k += 2
        rising *= (s + k - 1) * (s + k) / (q * q)
    return total


def _polygamma_of_numbers(n, x):
    if n == 0:
        return psi(x)
    return (-1.0) ** (n + 1) * gamma(n + 1.0) * _hurwitz(n + 1.0, x)


# psi(x + y) - psi(x), and the same of its derivatives. Each is a sum of differences of powers, none of which cancels: the difference
# of the two functions keeps no digits where y is small beside x.


def _fall_of_power(p, x, y):
    """(x + y)^-p - x^-p"""
    return x**-p * np.expm1(-p * np.log1p(y / x))


def _rise_by_terms(n, x, y):
    """The difference of the n-th derivatives of psi at x + y and at x, both positive: terms up to 15, then Stirling's series."""
    sign, factorial = (-1) ** (n + 1), float(math.factorial(n))
    total = 0.0 * x
    for _ in range(15):
        low = x < 15
        if not np.any(low):
            break
        term = -y / (x * (x + y)) if n == 0 else _fall_of_power(n + 1.0, x, y)
        total = total + np.where(low, term, 0.0)
        x = np.where(low, x + 1, x)
    total = factorial * total
    if n == 0:
        total = total - np.log1p(y / x)
    else:
        total = total + factorial / n * _fall_of_power(float(n), x, y)
    total = total + factorial / 2 * _fall_of_power(n + 1.0, x, y)
    for k, b in enumerate(_BERNOULLI, 1):
        factor = b * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        total = total + factor * _fall_of_power(2.0 * k + n, x, y)
    return sign * total


def _rise_of_numbers(n, x, y):
    """The same of single numbers, of whatever sign."""
    low = polygamma(n, x)
    plain = polygamma(n, x + y) - low
    if abs(plain) < abs(low) / 8 and x > 0 and x + y > 0:
        return _positive_rise(n, x, y)
    return plain


def _positive_rise(n, x, y):
    """polygamma(n, x + y) - polygamma(n, x) at positive x: recurrence up to 15, then the asymptotic series, each as a difference
    without cancellation.
    """
    total = 0.0
    while x < 15:
        if n == 0:
            total -= y / (x * (x + y))
        else:
            total += x ** (-n - 1.0) * np.expm1((-n - 1.0) * np.log1p(y / x))
        x += 1
    r = np.log1p(y / x)
    if n == 0:
        total -= r
        factorial = 1.0
    else:
        factorial = 1.0
        for i in range(2, n + 1):
            factorial *= i
        total = factorial * (total + x ** (-1.0 * n) * np.expm1(-n * r) / n)
    total += factorial / 2 * x ** (-n - 1.0) * np.expm1((-n - 1.0) * r)
    rising, power, k = factorial * (n + 1.0), x ** (-1.0 * n), 0  # (2 k + n - 1)!
    for b in _REMAINDER:
        k += 2
        power /= x * x
        total += b * rising * power * np.expm1((-1.0 * n - k) * r)
        rising *= (n + k) * (n + k + 1.0)
    return total if n % 2 else -total


def _of_order(n, x):
    return special.psi(x) if n == 0 else _polygamma(n, x)


def _polygamma_rise(n, x, y):
    n = int(n)
    low = _of_order(n, x)
    plain = _of_order(n, x + y) - low
    lost = (np.abs(plain) < np.abs(low) / 8) & (x > 0) & (x + y > 0)
    if not np.any(lost):
        return plain
    x, y, plain = np.broadcast_arrays(x, y, np.array(plain))
    out = np.array(plain)
    out[lost] = _rise_by_terms(n, np.asarray(x, float)[lost], np.asarray(y, float)[lost])
    return out[()]


polygamma_rise = parametric(
    lambda n, x, y: _polygamma_rise(n, x, y),
    "n x y",
    x=lambda n, x, y: polygamma_rise(x, y, n_=n + 1),
    y=lambda n, x, y: polygamma(n + 1, x + y),
    name="polygamma_rise",
    public=False,
    domain=(real_only, real_only),
    samples=[call((3,), (3,), n_=0), call((2, 2), (2,), n_=1)],
    told="The difference of the n-th derivatives of digamma at x + y and at x.",
    holomorphic=False,
    kernel=False,
    unsupported={"complex": "it serves functions of real numbers"},
)


@compiled_as(lambda x, y: _rise_of_numbers(0, x, y))
def digamma_rise(x, y):
    """digamma(x + y) - digamma(x), without cancellation where y is small."""
    return polygamma_rise(x, y, n_=0)


polygamma = parametric(
    _polygamma,
    "n x",
    x=lambda n, x: polygamma(n + 1, x),
    name="polygamma",
    domain=positive,
    samples=[call((3,), n_=0), call((2, 2), n_=1), call((3,), n_=np.array([0, 1, 2]))],
    refusal="it is the order of a derivative, an integer",
    told="The n-th derivative of digamma.",
    holomorphic=False,
    unsupported={"complex": "digamma of complex numbers is psi; their polygamma serves its second derivative"},
)  # fmt: skip


# fmt: off
psi      = smooth(special.psi,      lambda x: polygamma(1, x), domain=positive)
gammaln  = smooth(special.gammaln,  lambda x: psi(x), domain=positive)
loggamma = smooth(special.loggamma, lambda x: psi(x), domain=positive)
gamma    = smooth(special.gamma,    lambda x, out: out * psi(x), domain=positive)
# 1 / gamma is 0 at the poles of gamma, and smooth there: its slope is (-1)^n n!.
rgamma   = smooth(special.rgamma,   lambda x, out: _rgamma_slope(x, out), domain=positive)
beta     = smooth(special.beta,     lambda x, y, out: -out * digamma_rise(x, y), lambda x, y, out: -out * digamma_rise(y, x), domain=real_only)
betaln   = smooth(special.betaln,   lambda x, y: -digamma_rise(x, y), lambda x, y: -digamma_rise(y, x), domain=real_only)
poch     = smooth(special.poch,     lambda x, y, out: _poch_by_first(x, y, out), lambda x, y, out: out * psi(x + y), domain=real_only)
binom    = smooth(special.binom,    lambda x, y, out: _binom_by_first(x, y, out), lambda x, y, out: _binom_by_second(x, y, out), domain=(exponent, exponent))
# fmt: on

digamma = psi
compiled_as(_polygamma_of_numbers)(polygamma)


def _rgamma_slope(x, out):
    """-psi / gamma; left of 1/2 by the reflection 1/Γ(x) = sin(πx) Γ(1 - x) / π, which is smooth at the poles of gamma."""
    left = np.real(x) < 0.5
    y = select(left, x, 0.0)
    n = np.round(np.real(y))
    turn = math.pi * (y - n)
    mirrored = np.cos(turn) - np.sin(turn) / math.pi * psi(1 - y)
    sign = 1.0 - 2.0 * np.abs(n - 2.0 * np.round(n / 2.0))
    return select(left, sign * gamma(1 - y) * mirrored, -out * psi(select(left, 1.0, x)))


def _at_pole(x):
    return (x <= 0) & (x == np.floor(x))


def _rgamma_slope_at(x):
    return _rgamma_slope(x, rgamma(x))


def _poch_by_first(x, y, out):
    """out (psi(x + y) - psi(x)): at a pole of psi(x) by the slope of 1 / gamma, at poles of both by reflection."""
    here, there = _at_pole(x), _at_pole(x + y)
    both = here & there
    plain = out * digamma_rise(select(both, 1.0 - x, x), select(both, -1.0 * y, y))
    pole = gamma(x + y) * (_rgamma_slope_at(x) + rgamma(x) * psi(x + y))
    return select(here & ~there, pole, plain)


def _binom_by_first(x, y, out):
    """binom(x, y) is gamma(x + 1) / gamma(y + 1) / gamma(x - y + 1): at a pole of the last by the slope of its inverse."""
    base = x - y + 1
    pole = gamma(x + 1.0) * (_rgamma_slope_at(base) + rgamma(base) * psi(x + 1.0))
    return select(_at_pole(base), pole * rgamma(y + 1.0), out * digamma_rise(base, y))


def _binom_by_second(x, y, out):
    """Likewise, at poles of one of the two whose inverses move."""
    above, below = y + 1.0, x - y + 1
    pole = _rgamma_slope_at(above) * rgamma(below) - _rgamma_slope_at(below) * rgamma(above)
    away = out * digamma_rise(y + 1, x - 2 * y)
    return select(_at_pole(above) | _at_pole(below), gamma(x + 1.0) * pole, away)


# --------------------------------------------------------------------------------------------------- zeta
#
# zeta(s, q) = Σ (q + k)^-s: N terms, then (q+N)^(1-s)/(s-1) + (q+N)^-s/2 + Σ B₂ⱼ/(2j)! s(s+1)...(s+2j-2) (q+N)^(-s-2j+1).
# The n-th derivative of the terms by s is at hand; that of the rest is Cauchy's integral over a circle around s, half as
# wide as the distance to the pole at 1, by 64 points: an error of 2^-64, below rounding. With q = 1 (Riemann's) the formula
# continues to s > -1; further left the same integral takes zeta by its functional equation.

_TERMS = 14
_CIRCLE = np.exp(2j * math.pi * np.arange(64) / 64)


def _zeta_by_exponent(x, q, order):
    """Derivative of order `order` of Hurwitz' zeta by its exponent: terms, then the Euler-Maclaurin rest by Cauchy's integral."""
    x, q = np.broadcast_arrays(np.asarray(x, float), np.asarray(q, float))
    k = np.arange(_TERMS).reshape((-1,) + (1,) * x.ndim)
    with np.errstate(all="ignore"):
        log = np.log(q + k)
        total = np.sum((-log) ** order * np.exp(-x * log), axis=0)
        radius = np.minimum(0.5 * np.abs(x - 1), 0.5)
        circle = _CIRCLE.reshape((-1,) + (1,) * x.ndim)
        s, far = x + radius * circle, q + _TERMS
        rest = far / (s - 1) + 0.5
        rising = s
        for j, b in enumerate(_BERNOULLI, 1):
            rest = rest + b / math.factorial(2 * j) * rising * far ** (1.0 - 2 * j)
            rising = rising * (s + 2 * j - 1) * (s + 2 * j)
        rest = rest * np.exp(-s * np.log(far))
        total += math.factorial(order) * np.real(np.mean(rest / circle**order, axis=0)) / radius**order  # fmt: skip
        total = np.where((x > 1) & (q > 0) | (x > -1) & (q == 1), total, np.nan)
    left = (x <= -1) & (q == 1)
    total[left] = _zeta_on_the_left(x[left], order)
    return total[()]


def _zeta_on_the_left(x, order):
    """Derivatives of Riemann's zeta function for x <= -1: zeta(s) = 2 (2π)^(s-1) sin(π s/2) Γ(1-s) zeta(1-s) (Riemann 1859)."""
    s = x + 0.5 * _CIRCLE[:, None]
    t, n = 1 - s, np.arange(1, _TERMS)[:, None, None]
    mirrored = (
        np.sum(n**-t, axis=0) + float(_TERMS) ** (1 - t) / (t - 1) + 0.5 * float(_TERMS) ** -t
    )
    rising = t
    for j, b in enumerate(_BERNOULLI, 1):
        mirrored += b / math.factorial(2 * j) * rising * _TERMS ** (-t - 2 * j + 1)
        rising = rising * (t + 2 * j - 1) * (t + 2 * j)
    values = 2 * (2 * math.pi) ** (s - 1) * np.sin(0.5 * math.pi * s) * special.gamma(t) * mirrored
    mean = np.mean(values / _CIRCLE[:, None] ** order, axis=0)
    return math.factorial(order) * np.real(mean) / 0.5**order


zeta_by_exponent = parametric(
    lambda x, q, order: _zeta_by_exponent(x, q, order),
    "x q order",
    x=lambda x, q, order: zeta_by_exponent(x, q, order_=order + 1),
    q=lambda x, q, order: -x * zeta_by_exponent(x + 1, q, order_=order)
    - order * _lower_order(x + 1, q, order),
    name="zeta_by_exponent",
    public=False,
    kernel=False,
    domain=(exponent, positive),
    samples=[call((3,), (3,), order_=1), call((2,), (), order_=2)],
    told="The derivatives of zeta(x, q) by x, of the given order.",
    holomorphic=False,
    unsupported={"complex": "SciPy's zeta(x, q) takes real numbers only", "dtype": "it computes in double precision"},
)  # fmt: skip


def _lower_order(x, q, order):
    return zeta(x, q) if order == 1 else zeta_by_exponent(x, q, order_=order - 1)


_hurwitz = smooth(
    special._ufuncs._zeta,
    lambda x, y: zeta_by_exponent(x, y, order_=1),
    lambda x, y: -1.0 * x * _hurwitz(x + 1.0, y),
    name="zeta",
    domain=(exponent, positive),
    holomorphic=False,
)


compiled_as(_zeta_of_numbers)(_hurwitz)


def _of_riemann(function, name):
    return smooth(
        function,
        lambda x: zeta_by_exponent(x, 1.0, order_=1),
        name=name,
        domain=exponent,
        holomorphic=False,
        unsupported={"complex": "its derivative is computed for real numbers only"},
    )


# SciPy before 1.15 has one function for both, and no values left of 1.
_riemann = getattr(special._ufuncs, "_riemann_zeta", None)
_riemann = (
    (lambda x: _hurwitz(x, 1.0)) if _riemann is None else _of_riemann(_riemann, "riemann_zeta")
)


def zeta(x, q=None):
    """Hurwitz's zeta function Σ (q + k)^-x for x > 1, differentiable by both; or Riemann's, q = 1, for every x.

    The derivatives by x are computed to about 1e-13 of the value.

    >>> import tapegrad as tg
    >>> tg.grad(tg.special.zeta)(tg.tensor(2.0))
    tensor(-0.93754825)
    """
    return _riemann(operand(x)) if q is None else _hurwitz(operand(x), operand(q))


zetac = _of_riemann(special.zetac, "zetac")


def multigammaln(a, d):
    """log of the multivariate gamma function of dimension d (Muirhead 1982); differentiable by a.

    Raises ValueError unless a > (d - 1) / 2.

    >>> import tapegrad as tg
    >>> tg.special.multigammaln(tg.tensor(2.0), 1)  # gammaln(2)
    tensor(0.)
    """
    d = int(d)
    if np.any(raw(a) <= 0.5 * (d - 1)):
        raise ValueError(f"multigammaln was given a = {raw(a)}, but it is defined for a > (d - 1) / 2 = {0.5 * (d - 1)} only.")  # fmt: skip
    total = d * (d - 1) * 0.25 * math.log(math.pi)
    for j in range(d):
        total = gammaln(a - 0.5 * j) + total
    return total


def factorial(n):
    """n! = gamma(n + 1), also of numbers between the whole ones; 0 for negative n, as SciPy has it.

    >>> import tapegrad as tg
    >>> tg.special.factorial(tg.tensor([3.0, 0.5, -1.0]))
    tensor([6.        , 0.88622693, 0.        ])
    """
    n = operand(n)
    return gamma(np.where(n < 0, 0.0, n) + 1.0) * np.logical_not(n < 0)


__all__ = [
    "beta", "betaln", "binom", "digamma", "factorial", "gamma", "gammaln", "loggamma", "multigammaln", "poch", "polygamma", "psi",
    "rgamma", "zeta", "zetac",
]  # fmt: skip
