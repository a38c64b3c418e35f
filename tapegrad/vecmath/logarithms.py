"""Logarithms, powers, and the inverse hyperbolic functions, which are logarithms.

x = 2**k m with m between sqrt(1/2) and sqrt(2), f = m - 1, s = f / (2 + f): log(m) = 2 atanh(s), fdlibm's scheme. Where the result is
multiplied or divided afterwards (other bases, powers) it is a pair.
"""

from __future__ import annotations

from typing import Any

from .coefficients import ATANH, INVERSE_LN2, INVERSE_LN10, LN2, LOG, THIRD
from .exponentials import LN2_HIGH, LN2_LOW, exp, exp_pair, scaled, within_range
from .expression import (
    Value,
    bits,
    copysign,
    estrin,
    floating,
    fma,
    is_integer,
    select,
    sqrt,
)
from .pairs import Pair, fast_two_sum, over, plus, residual, times, two_product, two_sum

INF = float("inf")
NAN = float("nan")

# fdlibm's e_log10.c: the high word has trailing zeros, so that k times it is exact.
LOG10_2_HIGH, LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13

_SMALLEST_NORMAL = 2.2250738585072014e-308
_SQRT_HALF = 0x3FE6A09E667F3BCD
_ONE = 0x3FF0000000000000
_MANTISSA = 0x000FFFFFFFFFFFFF
_ROOT_LESS_ONE = 0.41421356237309503
_TWO_52 = 4503599627370496.0


def split(x: Value) -> tuple[Value, Value]:
    """k and m, with x = 2**k m and sqrt(1/2) <= m < sqrt(2), for finite x > 0."""
    if x.code.digits > 24:  # float32's subnormals are normal as doubles
        subnormal = x < _SMALLEST_NORMAL
        x = select(subnormal, x * 2.0**54, x)
        bias = select(subnormal, _TWO_52 + 1023.0 + 54.0, _TWO_52 + 1023.0)
    else:
        bias = x.code.constant(_TWO_52 + 1023.0, "double")
    shifted = bits(x) + (_ONE - _SQRT_HALF)
    k = floating((shifted >> 52) | 0x4330000000000000) - bias
    m = floating((shifted & _MANTISSA) + _SQRT_HALF)
    return k, m


def _at_the_edges(result: Value, x: Value, zero: float = 0.0) -> Value:
    """The logarithm's values where there is no k: infinity, the pole, and beyond it."""
    result = select(x == INF, INF, result)
    result = select(x == zero, -INF, result)
    return select((x >= zero), result, NAN)


def _log_of(k: Value, f: Value, correction: Any) -> Value:
    """k ln 2 + log(1 + f) + correction."""
    s = f / (2.0 + f)
    z = s * s
    rest = z * estrin(z, LOG[f.code.digits])
    if f.code.digits <= 24:
        return fma(k, LN2_HIGH + LN2_LOW, fma(s, rest, 2.0 * s) + correction)
    half_square = 0.5 * f * f
    low = fma(s, half_square + rest, fma(k, LN2_LOW, correction))
    return k * LN2_HIGH - ((half_square - low) - f)


def log(x: Value) -> Value:
    """Natural logarithm."""
    k, m = split(x)
    return _at_the_edges(_log_of(k, m - 1.0, 0), x)


def _log1p(x: Value, low: Any = 0) -> Value:
    """log(1 + x + low) for x > -1: the rounding error of 1 + x, and the low word, are made good to first order."""
    u, lost = two_sum(1.0, x)
    k, m = split(u)
    near = k == 0.0
    f = select(near, x, m - 1.0)
    if x.code.digits <= 24:
        return _log_of(k, f, 0)
    # The error counts little: 1 / (1 + f) to a few percent will do.
    inverse = fma(f, fma(f, 1.0 - f, -1.0), 1.0)
    scale = floating((2046 - _biased(k)) << 52)
    far = select(x < 1e300, ((lost + low) * scale) * inverse, 0.0)
    return _log_of(k, f, select(near, low * inverse if isinstance(low, Value) else 0.0, far))


def log1p(x: Value) -> Value:
    """log(1 + x)."""
    value = select(x == 0.0, x, _log1p(x))
    return _at_the_edges(value, x, -1.0)


def log_sum(x: Value) -> tuple[Value, Value, Value]:
    """log(1 + e**x) for x <= 0, and the shares of 1 and e**x in 1 + e**x. With t = e**x, f = t or (t - 1) / 2 is exact."""
    t = exp(x)
    upper = t > _ROOT_LESS_ONE
    value = _log_of(select(upper, 1.0, 0.0), select(upper, 0.5 * (t - 1.0), t), 0)
    share = 1.0 / (1.0 + t)
    return value, share, t * share


def arctanh(x: Value) -> Value:
    """Inverse hyperbolic tangent: log(1 + 2 x / (1 - x)) / 2."""
    a = abs(x)
    h, low = over((a + a, 0), two_sum(1.0, -a))
    value = _log1p(*fast_two_sum(h, low)) * 0.5
    value = select(a < 1.0, value, select(a == 1.0, INF, NAN))
    return copysign(value, x)


def _root_of(a: Pair) -> Pair:
    """The square root of a pair."""
    r = sqrt(a[0])
    if a[0].code.digits <= 24:
        return r, 0
    return r, (residual(r, r, a[0]) + a[1]) * (0.5 / select(r > 0.0, r, 1.0))


_SQUARED = 1e150  # beyond, squares overflow, and 1 is nothing next to them


def arcsinh(x: Value) -> Value:
    """Inverse hyperbolic sine: log(1 + a + a**2 / (1 + sqrt(1 + a**2))) with a = |x|."""
    a = abs(x)
    huge = a > _SQUARED
    b = select(huge, 1.0, a)
    square = two_product(b, b)
    root = _root_of(plus(square, (b.code.constant(1.0, "double"), 0)))
    share = over(square, plus(root, (b.code.constant(1.0, "double"), 0)))
    h, low = plus(share, (b, 0))
    value = _log1p(select(huge, a, h), select(huge, 0.0, low) if isinstance(low, Value) else 0)
    value = select(huge, value + LN2[0], value)
    return copysign(select(~(a < INF) | (a == 0.0), a, value), x)


def arccosh(x: Value) -> Value:
    """Inverse hyperbolic cosine: log(1 + t + sqrt(t (t + 2))) with t = x - 1."""
    huge = x > _SQUARED
    b = select(huge, 2.0, x)
    t = two_sum(b, -1.0)
    root = _root_of(times(t, plus(t, (b.code.constant(2.0, "double"), 0))))
    h, low = plus(root, t)
    value = _log1p(select(huge, x, h), select(huge, 0.0, low) if isinstance(low, Value) else 0)
    value = select(huge, value + LN2[0], value)
    return select(x == INF, x, select(x >= 1.0, value, NAN))


def hypot(x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2), without overflow on the way."""
    a, b = abs(x), abs(y)
    endless = (a == INF) | (b == INF)
    large, small = select(a > b, a, b), select(a > b, b, a)
    scale: Any = 1.0
    back: Any = 1.0
    if x.code.digits > 24:  # squares of float32's are far from a double's limits
        high, tiny = large > 2.0**500, large < 2.0**-400
        scale = select(high, 2.0**-600, select(tiny, 2.0**600, 1.0))
        back = select(high, 2.0**600, select(tiny, 2.0**-600, 1.0))
        large, small = large * scale, small * scale
    r, low = _root_of(plus(two_product(large, large), two_product(small, small)))
    value = (r + low) * back
    value = select((x != x) | (y != y), x + y, value)
    return select(endless, INF, value)


def _biased(k: Value) -> Value:
    """k + 1023 as an integer."""
    return bits(k + (_TWO_52 + 1023.0)) & _MANTISSA


def log_pair(x: Value) -> tuple[Value, Pair]:
    """k and log(m) as a pair, to some 2**-64 of it, with x = 2**k m; finite x > 0."""
    k, m = split(x)
    f = m - 1.0
    s = over((f, 0), fast_two_sum(2.0, f))
    z = times(s, s)
    t, e = two_product(z[0], THIRD[0])
    w = z[0] * z[0] * estrin(z[0], ATANH[x.code.digits])
    if x.code.digits <= 24:
        t, e = t + w, 0
    else:
        t, e = fast_two_sum(t, fma(z[0], THIRD[1], fma(z[1], THIRD[0], e)) + w)
    p, q = times(s, (t, e))
    high, low = fast_two_sum(s[0], p)
    return k, (2.0 * high, 2.0 * (low + (s[1] + q)) if x.code.digits > 24 else 0)


def _nearly_pair(f: Value) -> Pair:
    """log(1 + f) as a pair, to some 2**-59 of it: what is left of fdlibm's terms when f - f**2 / 2 is taken out exactly."""
    s = f / (2.0 + f)
    z = s * s
    rest = z * estrin(z, LOG[f.code.digits])
    if f.code.digits <= 24:
        return fma(s, rest, 2.0 * s), 0
    half_square, e = two_product(0.5 * f, f)
    high = f - half_square
    low = fma(s, half_square + rest, ((f - high) - half_square) - e)
    return fast_two_sum(high, low)


def log2(x: Value) -> Value:
    """Logarithm to base 2, exact for powers of two."""
    k, m = split(x)
    high, low = times(_nearly_pair(m - 1.0), INVERSE_LN2)
    s, e = two_sum(k, high)
    return _at_the_edges(s + (e + low), x)


def log10(x: Value) -> Value:
    """Logarithm to base 10, exact for powers of ten."""
    k, m = split(x)
    high, low = times(_nearly_pair(m - 1.0), INVERSE_LN10)
    s, e = two_sum(k * LOG10_2_HIGH, high)
    return _at_the_edges(s + fma(k, LOG10_2_LOW, e + low), x)


def natural_pair(x: Value) -> Pair:
    """log(x) as a pair; finite x > 0."""
    k, (high, low) = log_pair(x)
    s, e = two_sum(k * LN2_HIGH, high)
    if x.code.digits <= 24:
        return fma(k, LN2_LOW, s), 0
    return fast_two_sum(s, e + fma(k, LN2_LOW, low))


def power(x: Value, y: Value) -> Value:
    """x**y, with C's values at the edges: exp(y log|x|), the product as a pair."""
    a = abs(x)
    usable = (a > 0.0) & (a < INF)
    log_a = natural_pair(select(usable, a, 1.0))
    p, e = two_product(y, log_a[0])
    # Beyond these bounds the result is 0 or infinite, and the low word may be NaN.
    inside = abs(p) < 1000.0
    low = select(inside, fma(y, log_a[1], e), 0.0) if x.code.digits > 24 else 0
    n, (one, rest) = exp_pair(within_range(p, -1000.0, 1000.0), low)
    value = scaled(one + rest, n)
    rises = y > 0.0
    value = select(a == INF, select(rises, INF, 0.0), value)
    value = select(a == 0.0, select(rises, 0.0, INF), value)
    value = select(a == 1.0, 1.0, value)
    negative = bits(x) < 0
    whole = is_integer(y)
    odd = whole & ~is_integer(y * 0.5)
    value = select(negative & odd, -value, value)
    # A negative base has real powers only for integers; infinite exponents count as even integers.
    value = select((x < 0.0) & ~whole & (a < INF), NAN, value)
    value = select((x != x) | (y != y), x + y, value)
    return select((y == 0.0) | (x == 1.0), 1.0, value)
