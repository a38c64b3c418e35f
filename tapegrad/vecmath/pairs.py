"""Pairs: numbers as unevaluated sums of two floats, for the few steps where one is not enough.

(h, l) stands for h + l with |l| at most half an ulp of h, or a little more where that does no harm. The sums and products are
the error-free ones of Knuth and Dekker (Muller et al., Handbook of Floating-Point Arithmetic, ch. 4). A low word that is the int
0 is not there; code that needs only 24 bits (`Code.digits`) gets no low words, and the same text becomes plain double arithmetic.
"""

from __future__ import annotations

from typing import Any

from .expression import Operand, Value, bits, floating, fma

Pair = tuple[Any, Any]


def _wide(*values: Operand) -> bool:
    return next(v.code for v in values if isinstance(v, Value)).digits > 24


def two_sum(a: Operand, b: Operand) -> Pair:
    """a + b and its rounding error, exactly."""
    s = a + b
    if not _wide(a, b):
        return s, 0
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Operand, b: Operand) -> Pair:
    """The same where |a| >= |b|, or a = 0."""
    s = a + b
    if not _wide(a, b):
        return s, 0
    return s, b - (s - a)


def two_product(a: Operand, b: Operand) -> Pair:
    """a * b and its rounding error, exactly (barring underflow)."""
    p = a * b
    if not _wide(a, b):
        return p, 0
    if p.code.fused:
        return p, fma(a, b, -p)
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: Operand) -> Pair:
    """Two numbers of 26 bits, as Veltkamp's splitting gives: by rounding the bits, since his product overflows above 2**996."""
    if isinstance(a, Value):
        h: Any = floating((bits(a) + (1 << 26)) & -(1 << 27))
    else:
        c = a * 134217729.0
        h = c - (c - a)
    return h, a - h


def times(a: Pair, b: Pair) -> Pair:
    """The product of two pairs."""
    p, e = two_product(a[0], b[0])
    return p, fma(a[0], b[1], fma(a[1], b[0], e)) if _wide(a[0], b[0]) else 0


def plus(a: Pair, b: Pair) -> Pair:
    """The sum of two pairs; relative accuracy is lost only where they cancel."""
    s, e = two_sum(a[0], b[0])
    if not _wide(a[0], b[0]):
        return s, 0
    return fast_two_sum(s, e + (a[1] + b[1]))


def over(a: Pair, b: Pair) -> Pair:
    """The quotient of two pairs, by one division: a reciprocal, and a step of correction."""
    if not _wide(a[0], b[0]):
        return a[0] / b[0], 0
    r = 1.0 / b[0]
    q = a[0] * r
    rest = residual(q, b[0], a[0]) + (a[1] - q * b[1])
    return q, rest * r


def residual(q: Operand, b: Operand, a: Operand) -> Any:
    """a - q * b, where q is nearly a / b."""
    p, e = two_product(q, b)
    if p.code.fused:
        return fma(-q, b, a)
    return (a - p) - e


def total(a: Pair) -> Any:
    """A pair as one number."""
    return a[0] + a[1]
