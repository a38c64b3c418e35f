"""Error functions and the logarithm of gamma, by SciPy's names.

erfc(x) = exp(-x**2) (1 + p(q)) / (1 + 2 x) with q = (x - 4) / (x + 4): one polynomial for all x >= 3/4 (M. M. Shepherd and
J. G. Laframboise, Math. Comp. 36, 1981). lgamma is shifted to [3/2, 5/2) by its recurrence, has
Stirling's series from 7.5 on, and below 0, in a rare branch, Euler's reflection.
"""

from __future__ import annotations

from .coefficients import (
    ERF,
    ERFC,
    EXP,
    LGAMMA,
    LOG_PI,
    ONE_LESS_EULER,
    SINPI,
    STIRLING,
    STIRLING_CONSTANT,
)
from .exponentials import exp_pair, reduced, scaled
from .expression import Value, clipped, copysign, estrin, fma, rounded, select
from .logarithms import INF, natural_pair
from .pairs import Pair, fast_two_sum, over, plus, times, total, two_product, two_sum


def _complement(a: Value, bound: float) -> tuple[Value, Value]:
    """n and v with erfc(a) = 2**n v, for a >= 3/4."""
    a = clipped(a, 0.0, bound)
    square, e = two_product(a, a)
    wide = isinstance(e, Value)
    n, exponential = exp_pair(-square, -e if wide else 0)
    q = (a - 4.0) / (a + 4.0)
    one = fast_two_sum(1.0, estrin(q, ERFC[a.code.digits]))
    above = times(exponential, one)
    below = two_sum(1.0, 2.0 * a)
    return n, total(over(above, below))


def _near_zero(x: Value) -> Value:
    """erf(x) - x, for |x| <= 1."""
    return x * estrin(x * x, ERF[x.code.digits])


def erfc(x: Value) -> Value:
    """Complementary error function."""
    a = abs(x)
    n, v = _complement(a, 13.0 if x.code.digits <= 24 else 28.0)
    value = scaled(v, n)
    value = select(x < 0.0, 2.0 - value, value)
    s, e = two_sum(1.0, -x)
    return select(a < 0.75, s + (e - _near_zero(x)), value)


def erf(x: Value) -> Value:
    """Error function."""
    a = abs(x)
    # Beyond 1 the complement is at most 0.16, and its last bits count for little.
    b = clipped(a, 0.0, 6.0)
    n, r, _ = reduced(-b * b)
    exponential = 1.0 + fma(r * r, estrin(r, EXP[x.code.digits]), r)
    above, below = b + 4.0, fma(b, 2.0, 1.0)
    inverse = 1.0 / (above * below)  # one division for both quotients
    p = estrin((b - 4.0) * (below * inverse), ERFC[x.code.digits])
    complement = scaled(exponential * (1.0 + p) * (above * inverse), n)
    return select(a < 1.0, x + _near_zero(x), copysign(1.0 - complement, x))


def gammaln(x: Value) -> Value:
    """Logarithm of |gamma|: to 2 ulp for x > 0, and for x < 0 to 2 ulp of the largest term in Euler's reflection."""
    a = abs(x)
    wide = x.code.digits > 24
    usable = (a > 0.0) & (a < INF)
    value = _positive(select(usable, a, 1.0))
    (result,) = x.code.rarely((x < 0.0) & usable, [total(value)], lambda: [_reflected(a, value)])
    # Far out x log(x) overflows one step early; beyond the largest finite result it is infinite.
    if wide:
        result = select(a > 2.5e305, INF, result)
    # SciPy's choice at -inf, where C has +inf.
    result = select((x == 0.0) | (a == INF), select(x == -INF, -INF, INF), result)
    return select(x != x, x, result)


def _positive(x: Value) -> Pair:
    """log(gamma(x)) as a pair, x > 0."""
    code = x.code
    far = x >= 7.5
    near = select(far, 2.0, x)
    shift = rounded(near) - 2.0
    u = near - (shift + 2.0)
    # gamma(x) = product * gamma(2 + u), or gamma(2 + u) / product where x is below 3/2.
    product = select(shift >= 1.0, near - 1.0, 1.0)
    for j in range(2, 6):
        product = select(shift >= float(j), product * (near - float(j)), product)
    product = select(shift <= -1.0, near, product)
    above, lost = two_sum(near, 1.0)
    p, e = two_product(near, above)
    lowest = shift <= -2.0
    product = select(lowest, p, product)
    logarithm = natural_pair(select(far, x, product))
    if code.digits > 24:
        # The error of p matters only where x is not tiny.
        share = fma(near, lost, e) / p
        logarithm = fast_two_sum(
            logarithm[0], logarithm[1] + select(lowest & (near > 1e-100), share, 0.0)
        )
    p, e = two_product(u, ONE_LESS_EULER[0])
    tail = u * u * estrin(u, LGAMMA[code.digits])
    if code.digits > 24:
        small = fast_two_sum(p, fma(u, ONE_LESS_EULER[1], e) + tail)
    else:
        small = (p + tail, 0)
    down = shift < 0.0
    signed = tuple(select(down, -w, w) if isinstance(w, Value) else 0 for w in logarithm)
    shifted = plus(small, signed)  # type: ignore[arg-type]
    # Stirling: (x - 1/2) (log(x) - 1) + constant + series.
    less = two_sum(logarithm[0], -1.0)
    factor = plus(less, (logarithm[1], 0))
    main = times(two_sum(x, -0.5), factor)
    inverse = 1.0 / x
    series = inverse * estrin(inverse * inverse, STIRLING[code.digits])
    end = plus(main, (STIRLING_CONSTANT[0], STIRLING_CONSTANT[1]))
    end = plus(end, (series, 0))
    return tuple(  # type: ignore[return-value]
        select(far, a, b) if isinstance(a, Value) else 0 for a, b in zip(end, shifted, strict=True)
    )


def _reflected(a: Value, value: Pair) -> Value:
    """log|gamma(-a)| = log(pi) - log(a |sin(pi a)|) - log(gamma(a)) - ..., infinite at the integers."""
    f = abs(a - _nearest(a))
    z = f * f
    sine = f * (SINPI_0 + z * estrin(z, SINPI[a.code.digits]))
    product = a * sine
    usable = product > 0.0
    logarithm = natural_pair(select(usable, product, 1.0))
    rest = plus(logarithm, value)
    negative = (-rest[0], -rest[1] if isinstance(rest[1], Value) else 0)
    found = total(plus(negative, (a.code.constant(LOG_PI[0], "double"), LOG_PI[1])))
    found = select(usable, found, INF)
    return select(a < 1e-30, total(value), found)  # gamma is odd about so near a pole


SINPI_0 = 3.141592653589793


def _nearest(a: Value) -> Value:
    """The nearest integer of a >= 0 of any size."""
    return select(a < 2.0**51, rounded(a), a)
