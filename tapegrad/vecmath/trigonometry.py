"""Trigonometry: sine, cosine and tangent.

x = n pi/2 + r with |r| <= pi/4. Up to 2**37 by subtracting n times pi/2 in three words (159 bits), which the fused multiply-add
makes exact where it matters; beyond, in a branch taken only when some lane is that large, by multiplying x with 2/pi modulo 4
from a table of 212 bits for each 32 binades (after Payne and Hanek): no double comes closer to a multiple of pi/2 than 2**-62.
"""

from __future__ import annotations

from typing import Any

from .coefficients import COS, HALF_PI, SIN, TURNS
from .expression import MAGIC, Value, bits, copysign, estrin, floating, fma, rounded, select
from .pairs import fast_two_sum, over, times, two_product, two_sum

HUGE = 2.0**37
_TWO_OVER_PI = 0.6366197723675814


def reduced(x: Value) -> tuple[Value, Any, Any]:
    """The quadrant (an integer, of which the last two bits count) and the pair r."""
    code = x.code
    z = fma(x, _TWO_OVER_PI, MAGIC)
    n = z - MAGIC
    if code.fused:
        first = fma(-n, HALF_PI[0], x)
    else:
        # Of 24 digits, too: what the product loses is all that is left beside a multiple of pi/2.
        digits, code.digits = code.digits, 53
        p, e = two_product(n, HALF_PI[0])
        first, lost = two_sum(x - p, -e)
        code.digits = digits
    p, e = two_product(n, HALF_PI[1])
    if code.digits <= 24:
        r, low = fma(-n, HALF_PI[1], first), 0
    else:
        r, d = two_sum(first, -p)
        if not code.fused:
            d = d + lost
        r, low = fast_two_sum(r, d - fma(n, HALF_PI[2], e))
    usual: list[Any] = [bits(z), r] if code.digits <= 24 else [bits(z), r, low]
    found: list[Any] = list(
        code.rarely(~(abs(x) < HUGE), usual, lambda: _reduced_from_table(x)[: len(usual)])
    )
    return found[0], found[1], found[2] if code.digits > 24 else 0


def _reduced_from_table(x: Value) -> tuple[Value, Value, Value]:
    """The same for 2**36 <= |x|; infinities and NaN give NaN. Always to 53 digits."""
    code = x.code
    digits, code.digits = code.digits, 53
    exponent = ((bits(x) >> 52) & 2047) - 1023
    row = (exponent - 36) >> 5
    row = select((exponent >= 36) & (row <= 30), row, 0)
    # x = X 2**(32 row - 16) with X an integer below 2**84.
    scaled = x * floating((1023 + 16 - (row << 5)) << 52)
    parts: list[Value] = []
    for i, column in enumerate(TURNS):
        word = code.lookup(f"tapegrad_turns_{i}", column, row)
        p, e = two_product(scaled, word)
        parts += [fma(_whole(p * 0.25), -4.0, p), fma(_whole(e * 0.25), -4.0, e)]
    high, rest = _distilled(parts[0], parts[1:])
    whole = rounded(high)
    quadrant = bits(whole + MAGIC)
    high = high - whole
    for _ in range(3):
        high, rest = _distilled(high, rest)
    low = rest[-1]
    for part in reversed(rest[:-1]):
        low = low + part
    turns = fast_two_sum(high, low)
    r, low = times(turns, (HALF_PI[0], HALF_PI[1]))
    r, low = fast_two_sum(r, low)
    code.digits = digits
    return quadrant, r, low


def _distilled(high: Value, rest: list[Value]) -> tuple[Value, list[Value]]:
    """The same sum, exactly, with what is large in front."""
    errors = []
    for part in rest:
        high, e = two_sum(high, part)
        errors.append(e)
    return high, errors


def _whole(x: Value) -> Value:
    """The nearest integer, of any size."""
    a = abs(x)
    return copysign(select(a < 2.0**52, (a + 2.0**52) - 2.0**52, a), x)


def _sine(r: Value, low: Any) -> tuple[Value, Value]:
    """sin(r + low) as r and the rest."""
    z = r * r
    return r, fma(
        z * r, estrin(z, SIN[r.code.digits]), low * fma(z, -0.5, 1.0) if _there(low) else 0
    )


def _cosine(r: Value, low: Any) -> tuple[Value, Value]:
    """cos(r + low) as a number and the rest."""
    z = r * r
    tail = z * z * estrin(z, COS[r.code.digits])
    if not _there(low):
        return fma(z, -0.5, 1.0), tail
    half, e = two_product(r, r * 0.5)
    one, lost = fast_two_sum(1.0, -half)
    return one, lost + (tail - fma(r, low, e))


def _there(low: Any) -> bool:
    return isinstance(low, Value)


def _signed(x: Value, quadrant: Value) -> Value:
    """x, negative in the lower half turn: the quadrants with bit 1 set."""
    return floating(bits(x) ^ ((quadrant & 2) << 62))


def sincos(x: Value) -> tuple[Value, Value]:
    """Sine and cosine, by one reduction."""
    quadrant, r, low = reduced(x)
    s, s_rest = _sine(r, low)
    c, c_rest = _cosine(r, low)
    sine, cosine = s + s_rest, c + c_rest
    odd = (quadrant & 1) != 0
    # sin(-0) is -0, which the reduction turns into +0.
    upper = select(odd, cosine, sine)
    first = select(x == 0.0, x, _signed(upper, quadrant))
    return first, _signed(select(odd, sine, cosine), quadrant + 1)


def sin(x: Value) -> Value:
    """Sine."""
    return sincos(x)[0]


def cos(x: Value) -> Value:
    """Cosine."""
    return sincos(x)[1]


def tan(x: Value) -> Value:
    """Tangent: sine over cosine as pairs, or the negative inverse in odd quadrants."""
    quadrant, r, low = reduced(x)
    s = fast_two_sum(*_sine(r, low))
    c = fast_two_sum(*_cosine(r, low))
    odd = (quadrant & 1) != 0

    def chosen(a: Any, b: Any) -> Any:
        return select(odd, a, b) if _there(a) and _there(b) else 0

    above = (chosen(-c[0], s[0]), chosen(-c[1] if _there(c[1]) else 0, s[1]))
    below = (chosen(s[0], c[0]), chosen(s[1], c[1]))
    q, rest = over(above, below)
    return select(x == 0.0, x, q + rest)
