"""Complex numbers in machine code: a complex expression is a pair of real ones, so that loops and vectors know real numbers only.

What moves entries (slices, transposes, sums, index arrays) is done to both parts by the lowering for real arrays. The rest is arithmetic,
by NumPy's own formulas: products with both cross terms here, quotients and exponentials by vecmath/complexes.py. Other functions (log,
sqrt, sin, other powers) are calls of NumPy's own loops (ufuncs.py).

In memory the two parts stand side by side: an argument is read as an array with one more axis of length 2, a result is written
by the expression "complex".

Invariant: both parts have the shape of the whole, and its precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..vecmath import complexes
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


STEPS: dict[str, tuple[Callable[..., Any], int]] = {}
"""Formulas of vecmath/complexes.py that are one expression for each part: (formula, which part)."""


def _of_steps(name: str, written: Callable[..., Any]) -> None:
    """Register a formula whose steps are written out when it is emitted."""
    names = [f"{name}.{part}" for part in ("re", "im")]
    for k in (0, 1):
        STEPS[names[k]] = (written, k)

    @formula(name)
    def whole(on: Numbers, node: Node, x: Sequence[Any]) -> Pair:
        given = [y.part(k) for y in x for k in (0, 1)]
        return Pair(*(on.elem(part, given, on.dtype) for part in names))


for _name in ("divide", "reciprocal", "exp", "sign"):
    _of_steps(_name, complexes.FORMULAS[getattr(np, _name)])


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
