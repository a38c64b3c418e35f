"""Complex numbers in machine code: a complex expression is a pair of real ones, so that loops and vectors know real numbers only.

What moves entries (slices, transposes, sums, index arrays) is done to both parts by the lowering for real arrays. The rest is arithmetic,
by NumPy's own formulas: products with both cross terms, quotients by Smith's algorithm (Commun. ACM 5, 1962). A function without a formula
here as good as the C library's (log, sqrt, sin, other powers) is a call of NumPy's own loop (ufuncs.py).

In memory the two parts stand side by side: an argument is read as an array with one more axis of length 2, a result is written
by the expression "complex".

Invariant: both parts have the shape of the whole, and its precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import B1, COMPLEX, Arrays, Map, Op
from .graph import Node


class Unlowered(Exception):
    """There is no expression for this call."""


class Pair:
    """Real and imaginary part of a complex expression (or of a value, while it is emitted)."""

    __slots__ = ("im", "re")

    def __init__(self, re: Any, im: Any) -> None:
        self.re = re
        self.im = im

    @property
    def shape(self) -> tuple[int, ...]:
        return self.re.shape

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(self.re.dtype, np.complex64)

    def part(self, k: int) -> Any:
        return self.im if k else self.re


def read(arrays: Arrays, index: int, shape: tuple[int, ...], dtype: np.dtype) -> Op | Pair:
    """The memory of an argument."""
    if dtype not in COMPLEX:
        return arrays.input(index, shape, dtype)
    whole = arrays.input(index, (*shape, 2), COMPLEX[dtype])
    maps: list[Map] = [(0, i, 1) if n != 1 else (0, -1, 0) for i, n in enumerate(shape)]
    return Pair(*(arrays.view(whole, [*maps, (k, -1, 0)], shape) for k in (0, 1)))


def written(arrays: Arrays, x: Op | Pair) -> Op:
    """An expression whose values can be stored."""
    return arrays.complex(x.re, x.im) if isinstance(x, Pair) else x


Arithmetic = Callable[["Numbers", Any, Sequence[Any]], Any]
FORMULAS: dict[str, Arithmetic] = {}


def formula(*names: str) -> Callable[[Arithmetic], Arithmetic]:
    """Register the formula of calls by name."""

    def register(function: Arithmetic) -> Arithmetic:
        for name in names:
            FORMULAS[name] = function
        return function

    return register


class Numbers:
    """Arithmetic on real numbers of one precision: `on.multiply(x, y)`, and what pairs of them make.

    `elem(name, operands, dtype)` makes an expression, or emits one: a formula of many steps is one expression for the schedule,
    "exp.re" say, and written out only when it is emitted, so that no loop stores what is between its steps.
    """

    def __init__(
        self,
        elem: Callable[[str, Sequence[Any], np.dtype], Any],
        const: Callable[[float], Any],
        dtype: np.dtype,
    ) -> None:
        self.elem = elem
        self.number = const
        self.dtype = dtype

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *x: self.elem(name, x, self.dtype)

    def test(self, name: str, *x: Any) -> Any:
        return self.elem(name, x, B1)

    def choose(self, condition: Op, a: Pair, b: Pair) -> Pair:
        return Pair(self.where(condition, a.re, b.re), self.where(condition, a.im, b.im))

    def product(self, x: Pair, y: Pair) -> Pair:
        return Pair(
            self.subtract(self.multiply(x.re, y.re), self.multiply(x.im, y.im)),
            self.add(self.multiply(x.re, y.im), self.multiply(x.im, y.re)),
        )

    def quotient(self, x: Pair, y: Pair) -> Pair:
        """x / y of complex numbers by Smith's method, scaled by the larger part of y, as NumPy computes it."""

        def scaled(a: Op, b: Op, p: Op, q: Op) -> tuple[Op, Op, Op]:
            ratio = self.divide(q, p)
            factor = self.divide(self.number(1.0), self.add(p, self.multiply(q, ratio)))
            return ratio, a, factor

        r, _, f = scaled(x.re, x.im, y.re, y.im)
        wide = Pair(
            self.multiply(self.add(x.re, self.multiply(x.im, r)), f),
            self.multiply(self.subtract(x.im, self.multiply(x.re, r)), f),
        )
        r, _, f = scaled(x.re, x.im, y.im, y.re)
        tall = Pair(
            self.multiply(self.add(self.multiply(x.re, r), x.im), f),
            self.multiply(self.subtract(self.multiply(x.im, r), x.re), f),
        )
        sizes = self.absolute(y.re), self.absolute(y.im)
        nothing = self.test(
            "logical_and", *(self.test("equal", s, self.number(0.0)) for s in sizes)
        )
        by_zero = Pair(self.divide(x.re, sizes[0]), self.divide(x.im, sizes[1]))
        wider = self.test("greater_equal", *sizes)
        return self.choose(nothing, by_zero, self.choose(wider, wide, tall))


STEPS: dict[str, tuple[Arithmetic, int]] = {}
"""Formulas that are one expression for each part: (formula, which part)."""


def of_steps(name: str) -> Callable[[Arithmetic], Arithmetic]:
    """Register a formula whose steps are written out when it is emitted."""

    def register(function: Arithmetic) -> Arithmetic:
        names = [f"{name}.{part}" for part in ("re", "im")]
        for k in (0, 1):
            STEPS[names[k]] = (function, k)

        @formula(name)
        def whole(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
            given = [y.part(k) for y in x for k in (0, 1)]
            return Pair(*(on.elem(part, given, on.dtype) for part in names))

        return function

    return register


@formula("add", "subtract")
def _sum(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return Pair(*(getattr(on, node.name)(*(y.part(k) for y in x)) for k in (0, 1)))


@formula("multiply")
def _product(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return on.product(*x)


@formula("square")
def _square(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return on.product(x[0], x[0])


@formula("strong_product")
def _strong(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    zero = on.number(0.0)
    nothing = on.test("logical_and", *(on.test("equal", x[0].part(k), zero) for k in (0, 1)))
    return on.choose(nothing, Pair(zero, zero), on.product(*x))


@of_steps("divide")
def _quotient(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return on.quotient(*x)


@of_steps("reciprocal")
def _reciprocal(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    def parts(a: Op, b: Op) -> tuple[Op, Op]:
        ratio = on.divide(b, a)
        size = on.add(a, on.multiply(b, ratio))
        return on.divide(on.number(1.0), size), on.divide(ratio, size)

    re, im = x[0].re, x[0].im
    (one, ratio), (other, turned) = parts(re, im), parts(im, re)
    wide, tall = Pair(one, on.negative(ratio)), Pair(turned, on.negative(other))
    return on.choose(on.test("less_equal", on.absolute(im), on.absolute(re)), wide, tall)


@formula("negative")
def _negative(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return Pair(on.negative(x[0].re), on.negative(x[0].im))


@formula("conj", "conjugate")
def _conjugate(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return Pair(x[0].re, on.negative(x[0].im))


@formula(
    "positive", "copy", "alias", "constant", "_copied", "ascontiguousarray", "astype", "asarray"
)
def _same(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return x[0]


@formula("real")
def _real(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return x[0].re


@formula("imag")
def _imag(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return x[0].im


@formula("of_parts")
def _of_parts(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    return Pair(x[0].re, x[1].re)


@formula("absolute", "abs")
def _absolute(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return on.hypot(x[0].re, x[0].im)


@formula("angle")
def _angle(on: Numbers, node: Node, x: Sequence[Any]) -> Any:
    if len(x) != 1 or node.kwargs.get("deg"):
        raise Unlowered
    return on.arctan2(x[0].im, x[0].re)


@formula("equal")
def _equal(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return on.test("logical_and", *(on.test("equal", x[0].part(k), x[1].part(k)) for k in (0, 1)))


@formula("not_equal")
def _not_equal(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return on.test(
        "logical_or", *(on.test("not_equal", x[0].part(k), x[1].part(k)) for k in (0, 1))
    )


@formula("isnan", "isinf")
def _either(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return on.test("logical_or", *(on.test(node.name, x[0].part(k)) for k in (0, 1)))


@formula("isfinite")
def _both(on: Numbers, node: Node, x: Sequence[Any]) -> Op:
    return on.test("logical_and", *(on.test(node.name, x[0].part(k)) for k in (0, 1)))


@formula("power")
def _power(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    """1, 2 and 3, as NumPy multiplies them."""
    base, exponent = x
    if exponent.re.kind != "const" or exponent.im.kind != "const" or exponent.im.attr.value != 0:
        raise Unlowered
    n = float(exponent.re.attr.value)
    if n == 1:
        return base
    if n not in (2, 3):
        raise Unlowered
    square = on.product(base, base)
    return square if n == 2 else on.product(base, square)


@of_steps("exp")
def _exp(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    """exp(a) (cos b, sin b); in two factors where exp(a) alone may overflow, and C's values at infinity."""
    a, b = x[0].re, x[0].im
    half = on.exp(on.multiply(a, on.number(0.5)))
    large = on.test("greater", a, on.number(700.0 if on.dtype.itemsize == 8 else 85.0))
    outer = on.where(large, half, on.exp(a))
    inner = on.where(large, half, on.number(1.0))
    re = on.multiply(on.multiply(outer, on.cos(b)), inner)
    im = on.multiply(on.multiply(outer, on.sin(b)), inner)
    zero = on.number(0.0)
    im = on.where(on.test("equal", b, zero), b, im)
    lost = on.test(
        "logical_and", on.test("isinf", a), on.test("logical_not", on.test("isfinite", b))
    )
    below = on.test("less", a, zero)
    ends = Pair(on.where(below, zero, a), on.where(below, zero, on.subtract(b, b)))
    return on.choose(lost, ends, Pair(re, im))


@of_steps("sign")
def _sign(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
    """z / |z|, 0 at 0; at infinity the axis that it lies on, if it is one."""
    re, im = x[0].re, x[0].im
    zero, one = on.number(0.0), on.number(1.0)
    size = on.hypot(re, im)
    inside = Pair(on.divide(re, size), on.divide(im, size))
    along = Pair(on.copysign(one, re), zero), Pair(zero, on.copysign(one, im))
    ends = on.choose(on.test("isinf", re), *along)
    both = on.test("logical_and", on.test("isinf", re), on.test("isinf", im))
    undefined = Pair(*(on.number(np.nan),) * 2)
    result = on.choose(on.test("isinf", size), on.choose(both, undefined, ends), inside)
    return on.choose(on.test("equal", size, zero), Pair(zero, zero), result)
