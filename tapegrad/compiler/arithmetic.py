"""Elementwise operations, written with the operators of vecmath's values (vecmath/expression.py).

`OPERATIONS` has them by the names of expressions (arrays.py), for floats and whole numbers; the formulas of complex numbers are those of
vecmath/complexes.py. `Here` is the place where a function is being written: what the operators append comes there.

Invariant: operations round as NumPy's do, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..vecmath import fuses
from ..vecmath.expression import INTEGER, Code, Value, bits, copysign, select, sqrt
from .arrays import B1, C8, C16, F4, F8, I4, I8, PACKED

TYPES = {
    F8: "double",
    F4: "float",
    I8: "i64",
    I4: "i32",
    B1: "i1",
    C16: "[2 x double]",
    C8: "[2 x float]",
}
INTEGER_DIVISIONS = ("remainder", "floor_divide")


class Declared(dict[str, None]):
    """Declarations that a module needs, in the order in which they were asked for."""

    def add(self, text: str) -> None:
        self[text] = None


class Here(Code):
    """The place at which a function is being written: instructions are its own, and what they need is declared with it."""

    def __init__(
        self, let: Callable[[str], str], declared: Declared, texts: dict[str, str], lanes: int
    ) -> None:
        """`let` writes an instruction and names its result; functions that are called are kept in `texts`."""
        super().__init__(lanes, fuses())
        self.let = let
        self.declarations = declared  # type: ignore[assignment]
        self.texts = texts

    def emit(self, text: str, element: str) -> Value:
        if text.startswith("fmul "):
            text = f"fmul contract {text[5:]}"  # for the sum that it may be a part of
        return Value(self, self.let(text), element)


def _converted(word: str, x: Value, element: str) -> Value:
    code = x.code
    return code.emit(f"{word} {code.type(x.element)} {x.name} to {code.type(element)}", element)


def cast(x: Value, dtype: np.dtype) -> Value:
    """`x` converted to a dtype, as NumPy converts it."""
    element = TYPES[dtype]
    if x.element == element:
        return x
    if dtype == B1:
        return x != 0
    if x.element in INTEGER:
        if dtype.kind == "i":
            return _whole(x, element)
        return _converted("fpext" if dtype == F8 else "fptrunc", x, element)
    if dtype.kind == "f":
        return _converted("uitofp" if x.element == "i1" else "sitofp", x, element)
    wider = "zext" if x.element == "i1" else "sext"
    return _converted(wider if x.element == "i1" or dtype == I8 else "trunc", x, element)


def _whole(x: Value, element: str) -> Value:
    """A number without its fraction; the least integer for what is out of range or none, as the processor has it for NumPy."""
    inside = abs(x) < 2.0**63
    return select(inside, _converted("fptosi", select(inside, x, 0.0), element), -(2**63))


def _rest(x: Value, y: Value) -> Value:
    """What is left of a quotient of integers, with the sign of x."""
    return x.code.emit(f"srem {x.code.type(x.element)} {x.name}, {y.name}", x.element)


def whole_remainder(x: Value, y: Value) -> Value:
    """What is left of a quotient of integers rounded down; the divisor is positive."""
    left = _rest(x, y)
    return select(left < 0, left + y, left)


def _floor_divide(x: Value, y: Value) -> Value:
    quotient = x / y
    return select(_rest(x, y) < 0, quotient + -1, quotient)


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    """NumPy's maximum or minimum, which a NaN passes through; of equal zeros the second, as NumPy's."""

    def extreme(x: Value, y: Value) -> Value:
        chosen = better(x, y)
        return select(chosen | (x != x) if x.element in INTEGER else chosen, x, y)

    return extreme


def _sign(x: Value) -> Value:
    return select(x != x, x, select(x > 0.0, 1.0, select(x < 0.0, -1.0, x.code.constant(0.0, x.element))))  # fmt: skip


def _intrinsic(name: str) -> Callable[[Value], Value]:
    return lambda x: x.code.intrinsic(name, x)


OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "floor_divide": _floor_divide,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    PACKED: lambda x: x,
    "reciprocal": lambda x: 1.0 / x,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "logical_and": lambda x, y: x & y,
    "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: x ^ y,
    "logical_not": lambda x: ~x,
    "where": select,
    "maximum": _extreme(lambda x, y: x > y),
    "minimum": _extreme(lambda x, y: x < y),
    "fmax": lambda x, y: select((x > y) | (y != y), x, y),
    "fmin": lambda x, y: select((x < y) | (y != y), x, y),
    "isnan": lambda x: x != x,
    "isfinite": lambda x: abs(x) < np.inf,
    "isinf": lambda x: abs(x) == np.inf,
    "signbit": lambda x: bits(x) < 0,
    "sign": _sign,
    "absolute": abs,
    "fabs": abs,
    "sqrt": sqrt,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "rint": _intrinsic("roundeven"),
    "copysign": copysign,
}
