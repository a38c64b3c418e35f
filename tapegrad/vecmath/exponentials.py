"""Exponentials: exp, exp2, expm1 and what is made of them.

x = n ln 2 + r with |r| <= ln(2) / 2, and e**r = 1 + r + r**2 EXP(r): the reduction of Cody and Waite. The scaling by 2**n goes
in two steps, or by an instruction where there is one, so that results that overflow, or are subnormal, come out by themselves.
"""

from __future__ import annotations

from typing import Any

from .coefficients import EXP, LN2
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
    scales,
    select,
    times_power_of_two,
)
from .pairs import Pair, fast_two_sum, over, times, two_product, two_sum

LOG2_E = 1.4426950408889634
# The high word has 21 trailing zeros, so that n times it is exact (fdlibm's e_exp.c).
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def _power_of_two(z: Value) -> Value:
    """2**n, where the last bits of z hold n + 1023."""
    return floating(bits(z) << 52)


def scaled(p: Value, n: Value) -> Value:
    """p * 2**n for p near 1 and integer |n| <= 2000, rounding once (twice if the result is subnormal)."""
    biased = MAGIC + 1023.0
    if p.code.digits <= 24:
        return p * _power_of_two(n + biased)
    if scales(p.code):
        return times_power_of_two(p, n)
    z = fma(n, 0.5, biased)
    half = z - biased
    return (p * _power_of_two(z)) * _power_of_two((n - half) + biased)


def reduced(x: Value, low: Any = 0) -> tuple[Value, Value, Any]:
    """n and the pair r, with x + low = n ln 2 + r."""
    if x.code.digits <= 24:
        return *nearly_reduced(x), 0
    n = fma(x, LOG2_E, MAGIC) - MAGIC
    high = fma(n, -LN2_HIGH, x)
    p, e = two_product(n, LN2_LOW)
    r = high - p
    rest = ((high - r) - p) - e
    return (n, r, rest) if type(low) is int else (n, *two_sum(r, rest + low))


def nearly_reduced(x: Value) -> tuple[Value, Value]:
    """The same with r rounded."""
    n = fma(x, LOG2_E, MAGIC) - MAGIC
    return n, fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


def within_range(x: Value, low: float = -746.0, high: float = 710.0) -> Value:
    """x limited to where e**x is neither 0 nor infinite, or just beyond; for float32 results, which one step scales, to less."""
    return (
        clipped(x, max(low, -200.0), min(high, 200.0))
        if x.code.digits <= 24
        else clipped(x, low, high)
    )


def exp(x: Value) -> Value:
    """e**x."""
    x = within_range(x)
    n, r = nearly_reduced(x)
    return scaled(1.0 + fma(r * r, estrin(r, EXP[x.code.digits]), r), n)


def exp_pair(x: Value, low: Any = 0) -> tuple[Value, Pair]:
    """n and a pair near 1, with e**(x + low) = 2**n * pair, to some 2**-60. |x| < 1e6."""
    n, r, rest = reduced(x, low)
    one, e = fast_two_sum(1.0, r)
    tail = fma(r * r, estrin(r, EXP[x.code.digits]), rest * r + rest) + e
    if x.code.digits <= 24:
        return n, (1.0 + (r + tail), 0)
    return n, fast_two_sum(one, tail)


def _expm1_parts(x: Value) -> tuple[Value, Value, Value]:
    """n, r and t with e**x = 2**n (1 + r + t), r + t = e**r - 1 accurate relative to itself."""
    n, r, rest = reduced(x)
    return n, r, fma(r * r, estrin(r, EXP[x.code.digits]), rest)


def expm1(x: Value) -> Value:
    """e**x - 1."""
    bounded = within_range(x, low=-50.0)
    n, r, t = _expm1_parts(bounded)
    # e**x - 1 = 2**n ((1 - 2**-n) + r + t); far out 2**-n is nothing.
    inverse = select(n > 64.0, 0.0, _power_of_two((MAGIC + 1023.0) - n))
    one = 1.0 - inverse
    s, e = fast_two_sum(one, r)
    value = scaled(s + (e + t), n)
    return copysign(value, x)


def exp2(x: Value) -> Value:
    """2**x, exact for integers."""
    bound = 200.0 if x.code.digits <= 24 else 1080.0
    x = clipped(x, -bound, bound)
    n = rounded(x)
    r, e = two_product(x - n, LN2[0])
    rest = fma(x - n, LN2[1], e) if x.code.digits > 24 else 0
    return scaled(1.0 + (r + fma(r * r, estrin(r, EXP[x.code.digits]), rest)), n)


def _divided_by_power(x: Value) -> tuple[Value, Pair, Pair, Pair]:
    """n, and e**x - 1, e**x + 1, e**x as pairs, each divided by 2**n; 0 <= x. From n = 32 on, 1 is nothing for a product of them."""
    n, r, t = _expm1_parts(x)
    inverse = select(n > 32.0, 0.0, _power_of_two((MAGIC + 1023.0) - n))
    s, e = fast_two_sum(1.0 - inverse, r)
    less = fast_two_sum(s, e + t)
    both, lost = fast_two_sum(1.0, inverse)
    s, e = fast_two_sum(both, r)
    more = fast_two_sum(s, (e + lost) + t)
    s, e = fast_two_sum(1.0, r)
    return n, less, more, fast_two_sum(s, e + t)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent: (e - 1) / (e + 1) with e = exp(2 |x|)."""
    a = abs(x)
    n, r = nearly_reduced(clipped(a + a, 0.0, 44.0))
    inverse = _power_of_two((MAGIC + 1023.0) - n)
    s, e = fast_two_sum(1.0 - inverse, r)
    less, low = fast_two_sum(s, fma(r * r, estrin(r, EXP[x.code.digits]), e))  # (e - 1) / 2**n
    # (e + 1) / 2**n: where n is so large that `less` is the larger one, what is lost is nothing beside it.
    more, lost = fast_two_sum(inverse + inverse, less)
    q, rest = over((less, low), (more, lost + low))
    return copysign(q + rest, x)


def sinh(x: Value) -> Value:
    """Hyperbolic sine: (e - 1) (e + 1) / (2 e) with e = exp(|x|), where nothing cancels."""
    n, less, more, e = _divided_by_power(within_range(abs(x), high=711.0))
    q, rest = over(times(less, more), e)
    return copysign(scaled(q + rest, n - 1.0), x)


def cosh(x: Value) -> Value:
    """Hyperbolic cosine: (e + 1 / e) / 2 with e = exp(|x|)."""
    n, (one, low) = exp_pair(within_range(abs(x), high=711.0))
    factor = select(n > 64.0, 0.0, _power_of_two((MAGIC + 1023.0) - (n + n)))
    q, rest = over((1.0, 0), (one, low))
    s, e = fast_two_sum(one, q * factor)
    return scaled(s + (e + (low + rest * factor)), n - 1.0)


def expit(x: Value) -> Value:
    """The logistic function, 1 / (1 + e**-x): e**x / (1 + e**x) for negative x, which keeps what is small accurate."""
    negative = x < 0.0
    n, (one, low) = exp_pair(within_range(-abs(x)))
    factor = select(n < -200.0, 0.0, _power_of_two(n + (MAGIC + 1023.0)))
    s, e = fast_two_sum(1.0, one * factor)
    below = (s, e + low * factor)
    above = (
        select(negative, one, 1.0),
        select(negative, low, 0.0) if isinstance(low, Value) else 0,
    )
    q, rest = over(above, below)
    return scaled(q + rest, select(negative, n, 0.0))
