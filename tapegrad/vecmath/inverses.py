"""Inverse trigonometric functions, and the cube root.

Arguments are brought to where a short polynomial serves, by identities whose quotients and roots are pairs, so that the only
rounding that counts is the last one.
"""

from __future__ import annotations

from typing import Any

from .coefficients import ASIN, ATAN, CBRT, CBRT_2, CBRT_4, HALF_PI
from .expression import (
    MAGIC,
    Value,
    bits,
    clipped,
    copysign,
    estrin,
    floating,
    fma,
    rounded,
    select,
    sqrt,
)
from .logarithms import INF
from .pairs import Pair, fast_two_sum, over, residual, two_product, two_sum

_TAN_EIGHTH, _TAN_THREE_EIGHTHS = 0.41421356237309503, 2.414213562373095


def _arctangent_beyond(base: Pair, t: Pair) -> Any:
    """base + arctan(t), for |t| <= tan(pi / 8); base is 0 or larger than t."""
    q, rest = t
    z = q * q
    tail = q * z * estrin(z, ATAN[q.code.digits])
    s, e = fast_two_sum(base[0], q)
    if q.code.digits <= 24:
        return s + tail
    return s + (e + (fma(-z, rest, rest) + tail + base[1]))


def arctan(x: Value) -> Value:
    """Arc tangent: arctan(a) = pi/4 + arctan((a - 1) / (a + 1)) = pi/2 - arctan(1 / a)."""
    a = clipped(abs(x), 0.0, 1e300)
    far = a > _TAN_THREE_EIGHTHS
    near = ~(a > _TAN_EIGHTH)
    less, more = two_sum(a, -1.0), two_sum(a, 1.0)
    above = tuple(_three_ways(far, near, v) for v in ((-1.0, a, less[0]), (0.0, 0.0, less[1])))
    below = tuple(_three_ways(far, near, v) for v in ((a, 1.0, more[0]), (0.0, 0.0, more[1])))
    base = tuple(_three_ways(far, near, (w, 0.0, w / 2)) for w in HALF_PI[:2])
    value = _arctangent_beyond(base, over(above, below))  # type: ignore[arg-type]
    return copysign(value, x)


def _three_ways(first: Value, second: Value, choices: tuple[Any, Any, Any]) -> Any:
    if type(choices[2]) is int:  # a low word that is not there
        return 0
    return select(first, choices[0], select(second, choices[1], choices[2]))


def arctan2(y: Value, x: Value) -> Value:
    """Angle of the point (x, y), with C's values on the axes."""
    a, b = abs(y), abs(x)
    steep = a > b
    large, small = select(steep, a, b), select(steep, b, a)
    # Infinities are to be 1 against 1 or 0, and the origin 0 against 1.
    endless = large == INF
    small = select(endless, select(small == INF, 1.0, 0.0), small)
    large = select(endless | (large == 0.0), 1.0, large)
    if x.code.digits > 24:  # sums and products of float32's are far from these limits
        scale = select(large < 2.0**500, 2.0**500, 2.0**-100)
        large, small = large * scale, small * scale
    diagonal = small > large * _TAN_EIGHTH
    less, more = two_sum(small, -large), two_sum(small, large)
    wide = isinstance(less[1], Value)
    above = (select(diagonal, less[0], small), select(diagonal, less[1], 0.0) if wide else 0)
    below = (select(diagonal, more[0], large), select(diagonal, more[1], 0.0) if wide else 0)
    q, rest = over(above, below)
    # The angle is k pi/4 + arctan or k pi/4 - arctan, octant by octant.
    left = bits(x) < 0
    eighth = select(diagonal, 1.0, 0.0)
    k = select(steep, 2.0 + select(left, eighth, -eighth), select(left, 4.0 - eighth, eighth))
    turned = steep ^ left
    q = select(turned, -q, q)
    rest = select(turned, -rest, rest) if isinstance(rest, Value) else 0
    base, e = two_product(k, HALF_PI[0] / 2)
    value = _arctangent_beyond((base, fma(k, HALF_PI[1] / 2, e)), (q, rest))
    return select((x != x) | (y != y), x + y, copysign(value, y))


def _arcsine_parts(x: Value) -> tuple[Value, Value, Value, Value]:
    """Whether |x| > 1/2, and s, rest: arcsin(s) = s + rest with s = |x|, or sqrt((1 - |x|) / 2) beyond 1/2; |x|."""
    a = abs(x)
    far = a > 0.5
    z = select(far, fma(a, -0.5, 0.5), a * a)
    root = sqrt(z)
    s = select(far, root, a)
    rest = s * z * estrin(z, ASIN[x.code.digits])
    if x.code.digits > 24:
        lost = residual(root, root, z) * (0.5 / select(root > 0.0, root, 1.0))
        rest = rest + select(far, lost, 0.0)
    return far, s, rest, a


def arcsin(x: Value) -> Value:
    """Arc sine; beyond 1/2, pi/2 - 2 arcsin(sqrt((1 - x) / 2))."""
    far, s, rest, _ = _arcsine_parts(x)
    high, e = fast_two_sum(HALF_PI[0], s * -2.0)
    value = select(far, high + (e + fma(rest, -2.0, HALF_PI[1])), s + rest)
    return copysign(value, x)


def arccos(x: Value) -> Value:
    """Arc cosine: pi/2 - arcsin(x), or 2 arcsin(sqrt((1 - x) / 2)) and pi less that, beyond 1/2."""
    far, s, rest, _ = _arcsine_parts(x)
    negative = x < 0.0
    # near: pi/2 - x; far left: pi - 2 s; far right: 0 + 2 s.
    base = [select(far, select(negative, 2.0 * w, 0.0), w) for w in HALF_PI[:2]]
    factor = select(far, select(negative, -2.0, 2.0), select(negative, 1.0, -1.0))
    high, e = fast_two_sum(base[0], s * factor)
    return high + (e + fma(rest, factor, base[1]))


def cbrt(x: Value) -> Value:
    """Cube root: a polynomial to 22 bits, then one step of third order."""
    a = abs(x)
    usable = (a > 0.0) & (a < INF)
    m = select(usable, a, 1.0)
    if x.code.digits > 24:
        subnormal = m < 2.2250738585072014e-308
        m = select(subnormal, m * 2.0**54, m)
        bias: Any = select(subnormal, 1023.0 + 54.0, 1023.0)
    else:
        bias = 1023.0
    two_52 = 4503599627370496.0
    exponent = (floating((bits(m) >> 52) | 0x4330000000000000) - two_52) - bias
    third = rounded((exponent - 1.0) * (1.0 / 3.0))
    left = fma(third, -3.0, exponent)
    f = floating((bits(m) & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000)
    m = f * select(left == 0.0, 1.0, select(left == 1.0, 2.0, 4.0))
    y = estrin(f, CBRT[x.code.digits])
    y = y * select(left == 0.0, 1.0, select(left == 1.0, CBRT_2[0], CBRT_4[0]))
    square, e = two_product(y, y)
    cube, f = two_product(square, y)
    d = (cube - m) + fma(e, y, f) if x.code.digits > 24 else cube - m
    d = d / m
    # (1 + d)**(-1/3) = 1 - d / 3 + 2 d**2 / 9 - ...
    root = fma(y * d, fma(d, 2.0 / 9.0, -1.0 / 3.0), y)
    root = root * floating(bits(third + (MAGIC + 1023.0)) << 52)
    return select(usable, copysign(root, x), x)
