"""Complex numbers in traced rules: pairs of values, by NumPy's own formulas, so that engines agree to the last bit where these are exact.

A `Number` stands for an element of a complex array, or for a real number or truth value that a rule makes of one (`im` is None).
It has Python's operators and takes part in NumPy's ufuncs, as `Traced` does for real arrays.

Each formula is as good as the C library's, and has C's values at zeros and infinities (C23, annex G).

Invariant: what has no such formula here raises `Untraceable`.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .expression import Code, Value, copysign, select, sqrt
from .pairs import two_product, two_sum
from .tracing import OPERATORS, Operand, Traced, called, refused
from .tracing import UFUNCS as REAL


class Number(Operand):
    """A complex number, a real one, or a truth value, in a function being written."""

    __slots__ = ("im", "re")

    def __init__(self, re: Value, im: Value | None = None) -> None:
        self.re = re
        self.im = im

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Number:
        if method != "__call__" or settings or ufunc not in UFUNCS:
            refused(f"{ufunc.__name__} of complex numbers")
        return UFUNCS[ufunc](*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, settings: Any) -> Number:
        if settings or function not in FUNCTIONS:
            refused(f"{getattr(function, '__name__', function)} of complex numbers")
        return FUNCTIONS[function](*args)

    @property
    def parts(self) -> tuple[Value, Value]:
        """Real and imaginary part; a real number among complex ones has the part 0, as NumPy converts it."""
        if self.re.element == "i1":
            refused("arithmetic with truth values")
        return self.re, self.re.code.constant(0.0, "double") if self.im is None else self.im

    @property
    def is_real(self) -> bool:
        return self.im is None


def _number(operand: Any, code: Code) -> Number:
    if isinstance(operand, Number):
        return operand
    if isinstance(operand, bool | np.bool_) or not isinstance(operand, numbers.Complex):
        refused(f"arithmetic with {operand!r}")
    if isinstance(operand, np.generic) and operand.dtype.char not in "fdFD":
        refused(f"a constant of type {type(operand).__name__}")
    if isinstance(operand, numbers.Real):
        return Number(code.constant(float(operand), "double"))
    whole = complex(operand)
    return Number(*(code.constant(part, "double") for part in (whole.real, whole.imag)))


def _numbers(*operands: Any) -> tuple[Number, ...]:
    code = next(o.re.code for o in operands if isinstance(o, Number))
    return tuple(_number(o, code) for o in operands)


def _of_real(ufunc: Any, formula: Callable[..., Any]) -> Callable[..., Number]:
    """A ufunc: by the real one where all operands are real, else by a formula of pairs."""

    def apply(*operands: Any) -> Number:
        given = _numbers(*operands)
        if all(x.is_real for x in given):
            return Number(REAL[ufunc](*(Traced(x.re) for x in given)).value)
        result = formula(*(x.parts for x in given))
        return Number(*result) if isinstance(result, tuple) else Number(result)

    return apply


_Pair = tuple[Value, Value]


def _product(x: _Pair, y: _Pair) -> _Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _quotient(x: _Pair, y: _Pair) -> _Pair:
    """By Smith's method (Commun. ACM 5, 1962), scaled by the larger part of y."""
    sizes = abs(y[0]), abs(y[1])
    wide = sizes[0] >= sizes[1]
    p, q = select(wide, y[0], y[1]), select(wide, y[1], y[0])
    a, b = select(wide, x[0], x[1]), select(wide, x[1], x[0])
    ratio = q / p
    factor = 1.0 / (p + q * ratio)
    turned = a * ratio
    re = (a + b * ratio) * factor
    im = (select(wide, b, turned) - select(wide, turned, b)) * factor
    nothing = (sizes[0] == 0.0) & (sizes[1] == 0.0)
    return select(nothing, x[0] / sizes[0], re), select(nothing, x[1] / sizes[0], im)


def _reciprocal(x: _Pair) -> _Pair:
    wide = abs(x[1]) <= abs(x[0])
    p, q = select(wide, x[0], x[1]), select(wide, x[1], x[0])
    ratio = q / p
    size = p + q * ratio
    one, turned = 1.0 / size, ratio / size
    return select(wide, one, turned), -select(wide, turned, one)


def _of(name: str, *operands: Value) -> Value:
    """A function of real numbers."""
    return called(name)(*map(Traced, operands)).value


def _finite(v: Value) -> Value:
    return abs(v) < np.inf


def _exp(x: _Pair) -> _Pair:
    """exp(a) (cos b, sin b); in two factors where exp(a) alone may overflow, and C's values at infinity."""
    a, b = x
    large = a > (700.0 if a.element == "double" else 85.0)
    half = _of("exp", a * 0.5)
    outer, inner = select(large, half, _of("exp", a)), select(large, half, 1.0)
    re = outer * _of("cos", b) * inner
    im = select(b == 0.0, b, outer * _of("sin", b) * inner)
    lost = (abs(a) == np.inf) & ~_finite(b)
    return (
        select(lost, select(a < 0.0, 0.0, a), re),
        select(lost, select(a < 0.0, 0.0, b - b), im),
    )


def _hyperbolic(a: Value) -> tuple[Value, Value, Value]:
    """sinh a, cosh a and a factor that both are to be multiplied by: 1, but where they may overflow."""
    size = abs(a)
    large = size > 700.0
    half = _of("exp", size * 0.5)
    sinh = select(large, copysign(half * 0.5, a), _of("sinh", a))
    cosh = select(large, half * 0.5, _of("cosh", a))
    return sinh, cosh, select(large, half, 1.0)


def _sinh(x: _Pair) -> _Pair:
    """(sinh a cos b, cosh a sin b)"""
    a, b = x
    sinh, cosh, factor = _hyperbolic(a)
    re, im = sinh * _of("cos", b) * factor, cosh * _of("sin", b) * factor
    stays = ((a == 0.0) | (abs(a) == np.inf)) & ~_finite(b)
    return select(stays, a, re), select(b == 0.0, b, im)


def _cosh(x: _Pair) -> _Pair:
    """(cosh a cos b, sinh a sin b)"""
    a, b = x
    sinh, cosh, factor = _hyperbolic(a)
    re, im = cosh * _of("cos", b) * factor, sinh * _of("sin", b) * factor
    re = select((abs(a) == np.inf) & ~_finite(b), abs(a), re)
    return re, select(((a == 0.0) | (b == 0.0)) & ~_finite(im), 0.0, im)


def _sin(x: _Pair) -> _Pair:
    """-i sinh(i z)"""
    re, im = _sinh((-x[1], x[0]))
    return im, -re


def _cos(x: _Pair) -> _Pair:
    """cosh(i z)"""
    return _cosh((-x[1], x[0]))


def _log(x: _Pair) -> _Pair:
    """(log |z|, arctan2(b, a)); near |z| = 1 by log1p of a**2 + b**2 - 1, which is computed in pairs, for there log |z| cancels."""
    a, b = x
    p, lost_p = two_product(a, a)
    q, lost_q = two_product(b, b)
    s, lost_s = two_sum(p, -1.0)
    t, lost_t = two_sum(s, q)
    rest, lost_rest = two_sum(lost_p, lost_q)
    u, lost_u = two_sum(t, rest)
    above_one = u + ((lost_s + lost_t) + (lost_rest + lost_u))
    near = (t > -0.5) & (t < 1.0)
    scale, large, small = _scale(x, 2.0**-4, 2.0**200)
    added = select(large, np.log(2.0**4), select(small, np.log(2.0**-200), 0.0))
    size = _of("log", _of("hypot", a * scale, b * scale)) + added
    return select(near, _of("log1p", above_one) * 0.5, size), _of("arctan2", b, a)


def _scale(x: _Pair, less: float, more: float) -> tuple[Value, Value, Value]:
    """A factor of both parts that makes |z| a normal number: `less` where |z| may overflow, `more` where it may be subnormal."""
    sizes = abs(x[0]), abs(x[1])
    large = (sizes[0] > 1e300) | (sizes[1] > 1e300)
    small = (sizes[0] < 1e-280) & (sizes[1] < 1e-280)
    return select(large, less, select(small, more, 1.0)), large, small


def _sqrt(x: _Pair) -> _Pair:
    """The larger part by the root of (|z| + |a|) / 2, the other one by a quotient: nothing cancels."""
    a, b = x
    sizes = abs(a), abs(b)
    scale, large, small = _scale(x, 2.0**-4, 2.0**200)
    back = select(large, 4.0, select(small, 2.0**-100, 1.0))
    p, q = sizes[0] * scale, sizes[1] * scale
    larger = sqrt((_of("hypot", p, q) + p) * 0.5)
    smaller = select(larger == 0.0, 0.0, q * 0.5 / larger)
    left = (a < 0.0) | ((a == 0.0) & (larger == 0.0))
    re, im = select(left, smaller, larger) * back, copysign(select(left, larger, smaller) * back, b)
    # At infinity: along the imaginary axis both parts are infinite, along the real one the other part is 0.
    infinite = sizes[0] == np.inf
    re = select(infinite, select(a > 0.0, a, select(b == b, 0.0, b)), re)
    im = select(
        infinite, select(a > 0.0, select(b == b, copysign(b * 0.0, b), b), copysign(a, b)), im
    )
    aside = sizes[1] == np.inf
    return select(aside, sizes[1], re), select(aside, b, im)


def _size(x: _Pair) -> Value:
    return _of("hypot", *x)


def _sign(x: _Pair) -> _Pair:
    """z / |z|, 0 at 0; at infinity the axis that it lies on, if it lies on one."""
    size = _size(x)
    infinite = [abs(part) == np.inf for part in x]
    result = []
    for k, part in enumerate(x):
        one = copysign(part.code.constant(1.0, part.element), part)
        end = select(infinite[k], select(infinite[1 - k], np.nan, one), 0.0)
        inside = select(size == 0.0, 0.0, part / size)
        result.append(select(infinite[0] | infinite[1], end, inside))
    return result[0], result[1]


def _power(x: _Pair, y: _Pair) -> _Pair:
    """exp(y log x), but small whole powers by products, as NumPy takes them; with NumPy's values of powers of 0."""
    one, zero = (x[0].code.constant(v, "double") for v in (1.0, 0.0))
    result = _exp(_product(y, _log(x)))
    square = _product(x, x)
    real = y[1] == 0.0
    for n, power in (
        (1, x),
        (2, square),
        (3, _product(x, square)),
        (-1, _quotient((one, zero), x)),
    ):
        result = _chosen(real & (y[0] == float(n)), power, result)
    zeroth = select(y[0] > 0.0, 0.0, np.nan)
    result = _chosen((x[0] == 0.0) & (x[1] == 0.0), (zeroth, zeroth), result)
    return select(real & (y[0] == 0.0), 1.0, result[0]), select(
        real & (y[0] == 0.0), 0.0, result[1]
    )


def _chosen(condition: Value, x: _Pair, y: _Pair) -> _Pair:
    return select(condition, x[0], y[0]), select(condition, x[1], y[1])


def _logical(ufunc: Any) -> Callable[..., Number]:
    return lambda *operands: Number(REAL[ufunc](*(Traced(x.re) for x in operands)).value)


def _unordered(*operands: Any) -> Any:
    refused("an order of complex numbers")


def _where(condition: Any, a: Any, b: Any) -> Number:
    if not isinstance(condition, Number):
        refused("a choice that does not depend on the values")
    test, x, y = _numbers(condition, a, b)
    nonzero = [part for part in (test.re, test.im) if part is not None]
    holds = nonzero[0] if test.re.element == "i1" else nonzero[0] != 0.0
    if len(nonzero) > 1:
        holds = holds | (nonzero[1] != 0.0)
    if x.is_real and y.is_real:
        return Number(select(holds, x.re, y.re))
    return Number(*(select(holds, u, v) for u, v in zip(x.parts, y.parts, strict=True)))


def _conj(x: Any) -> Number:
    return x if x.is_real else Number(x.re, -x.im)


FORMULAS: dict[Any, Callable[..., Any]] = {
    np.add: lambda x, y: (x[0] + y[0], x[1] + y[1]),
    np.subtract: lambda x, y: (x[0] - y[0], x[1] - y[1]),
    np.multiply: _product,
    np.divide: _quotient,
    np.negative: lambda x: (-x[0], -x[1]),
    np.positive: lambda x: x,
    np.square: lambda x: _product(x, x),
    np.reciprocal: _reciprocal,
    np.exp: _exp,
    np.log: _log,
    np.sqrt: _sqrt,
    np.sin: _sin,
    np.cos: _cos,
    np.sinh: _sinh,
    np.cosh: _cosh,
    np.absolute: _size,
    np.sign: _sign,
    np.isfinite: lambda x: _finite(x[0]) & _finite(x[1]),
    np.isinf: lambda x: (abs(x[0]) == np.inf) | (abs(x[1]) == np.inf),
    np.isnan: lambda x: (x[0] != x[0]) | (x[1] != x[1]),
    np.equal: lambda x, y: (x[0] == y[0]) & (x[1] == y[1]),
    np.not_equal: lambda x, y: (x[0] != y[0]) | (x[1] != y[1]),
    **dict.fromkeys((np.less, np.less_equal, np.greater, np.greater_equal), _unordered),
}
_LOGICAL = (np.bitwise_and, np.bitwise_or, np.logical_and, np.logical_or, np.invert)

_powered = _of_real(np.power, _power)


def _raised(x: Any, y: Any) -> Number:
    """A power; a square by a product, which is shorter."""
    square = isinstance(x, Number) and type(y) in (int, float) and y == 2
    return x * x if square else _powered(x, y)


UFUNCS: dict[Any, Callable[..., Number]] = {
    **{ufunc: _of_real(ufunc, formula) for ufunc, formula in FORMULAS.items()},
    **{ufunc: _logical(ufunc) for ufunc in _LOGICAL},
    np.conjugate: _conj,
    np.power: _raised,
    np.float_power: _raised,
}

FUNCTIONS: dict[Any, Callable[..., Number]] = {
    np.where: _where,
    np.real: lambda x: Number(x.re),
    np.imag: lambda x: Number(x.parts[1]),
}


def _learn() -> None:
    """Python's operators, by NumPy's ufuncs."""
    for name in ("add", "sub", "mul", "truediv", "pow", "and", "or"):
        apply = UFUNCS[OPERATORS[name]]
        setattr(Number, f"__{name}__", apply)
        setattr(Number, f"__r{name}__", lambda x, y, apply=apply: apply(y, x))
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
        setattr(Number, f"__{name}__", UFUNCS[OPERATORS[name]])


_learn()


def trace(function: Callable[..., Any], code: Code, arguments: Sequence[Sequence[Value]]) -> Number:
    """Append what a function of complex numbers, given by their parts, computes to `code`; its result. Raises Untraceable."""
    with np.errstate(all="ignore"):
        result = function(*(Number(*a) for a in arguments))
    return _number(result, code)


__all__ = ["FORMULAS", "Number", "trace"]
