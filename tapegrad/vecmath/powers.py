"""Whole powers: products by squaring, whose rounding errors are carried along and added in the end.

x**12 takes four products, and with their errors a dozen more operations: a fifth of what exp(12 log|x|) takes. It errs by one ulp
at most, except where the power or its inverse is below 1e-290: there the errors are lost to underflow, and half an ulp a product
remains. A power beyond the largest number is infinite, and its inverse 0.
"""

from __future__ import annotations

from collections.abc import Callable

from .expression import Value, fma, select
from .pairs import residual, two_product

NAMES = {n: f"power_{'minus_' if n < 0 else ''}{abs(n)}" for n in (*range(3, 33), *range(-32, -1))}
"""What the exponents that there are for are called: further out, the errors of the errors would count."""


def whole_power(exponent: int) -> Callable[[Value], Value]:
    """x**exponent as a function of x."""

    def power(x: Value) -> Value:
        """x to a constant whole power by squaring, with the rounding errors carried along in double precision."""
        wide = x.code.digits > 24
        high: Value = x
        low = x * 0.0
        for digit in bin(abs(exponent))[3:]:
            twice = high + high
            high, error = two_product(high, high)
            low = fma(twice, low, error) if wide else low
            if digit == "1":
                product, error = two_product(high, x)
                low = fma(low, x, error) if wide else low
                high = product
        if exponent > 0:
            return _where_it_is_one(high + low, high) if wide else high
        inverse = 1.0 / high
        if not wide:
            return inverse
        # One step of Newton's, with what the product lacks.
        better = fma(residual(inverse, high, 1.0) - low * inverse, inverse, inverse)
        return _where_it_is_one(better, inverse)

    return power


def _where_it_is_one(value: Value, otherwise: Value) -> Value:
    """The errors of what is infinite, or of its inverse, are no numbers; and those of -0.0 would make it 0.0."""
    return select((value == value) & (value != 0.0), value, otherwise)
