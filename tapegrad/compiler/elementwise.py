"""Elementwise operations on values of a text, and how two results of a reduction become one.

Operations round as NumPy's do. Were a multiplication and an addition made one instruction in some loops, an expression that two loops
compute would have two values, and the largest of x * y would be none of them for the rule of a maximum. Only sums over axes
may be taken in any order, with products as part of them: `reassoc contract`. Nothing changes what NaN, infinities and signed zeros do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import vecmath
from ..llvm import named
from ..vecmath import expression
from ..vecmath.expression import remainder, select
from .arithmetic import OPERATIONS, TYPES, Here, cast, whole_remainder
from .arrays import F4, F8, I4, I8, SHARE, STRONG, Op
from .pairs import STEPS, Pair
from .text import Text, Value, literal, typed

UNLIKELY = "!0"
"""Metadata of a branch that is not taken but for rare values (native.py)."""

LIBM = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
    "power": "pow", "gammaln": "lgamma",
}  # fmt: skip


class Elementwise:
    """Writes operations on values where a text stands."""

    def __init__(self, text: Text, step: bool) -> None:
        """`step` says that the text is a step of a loop, whose next turn waits for what it computes."""
        self.text = text
        self.step = step

    def of(self, op: Op, x: list[Value], summed: bool) -> Value:
        """The value of an elementwise expression; `summed` says that a sum reads it."""
        if op.attr == STRONG:
            return self._strong_product(x[0], x[1], summed)
        return self.operation(op.attr, x, op.dtype)

    def operation(self, name: str, x: Sequence[Value], dtype: np.dtype) -> Value:
        """The value of an elementwise operation on `x`, as an instruction, an intrinsic, or a call of vector math."""
        if name in STEPS:
            return self._of_steps(name, x)
        lanes = x[0].lanes
        values = self._with_operators(*x)
        if name == "cast":
            found = cast(values[0], dtype)
        elif name == "remainder" and dtype.kind == "i":
            found = whole_remainder(*values)
        elif name == "remainder":
            (left,) = self._with_operators(self._function("fmod", x, dtype, lanes))
            found = remainder(values[0], left, values[1])
        elif name in ("logaddexp", SHARE):
            found = (self._logaddexp if name == "logaddexp" else self._share)(*values)
        elif name in OPERATIONS:
            found = OPERATIONS[name](*values)
        else:
            return self._function(name, x, dtype, lanes)
        return Value(found.name, dtype, lanes)

    def _with_operators(self, *x: Value) -> list[expression.Value]:
        """Values of as many lanes as vecmath's, which have operators; what these append comes here."""
        here = Here(self.text.let, self.text.declared, self.text.functions, x[0].lanes)
        return [expression.Value(here, v.text, TYPES[v.dtype]) for v in x]

    # ------------------------------------------------------------------------------------ products of cotangents

    def _strong_product(self, g: Value, p: Value, summed: bool) -> Value:
        """g * p, and g itself where that is a zero."""
        if self.step and g.lanes == 1 and not summed:
            return self._strong_number(g, p)
        a, b = self._with_operators(g, p)
        # Asked like that, and in this order, the choice is a mask of the product, where there are masks.
        some = a != 0.0
        # In a sum the choice comes before the product, which then can be one instruction with the sum.
        found = a * select(some, b, 0.0) if summed else select(some, a * b, a)
        return Value(found.name, g.dtype, g.lanes)

    def _strong_number(self, g: Value, p: Value) -> Value:
        """The same of numbers, by a branch that is never taken but for NaN: what follows waits for the product alone."""
        text = self.text
        product = self.operation("multiply", [g, p], g.dtype)
        odd = text.let(f"fcmp uno {g.type} {product.text}, {product.text}")
        text.count += 1
        k = text.count
        lines = text.lines
        lines += [
            f"  br label %from{k}", f"from{k}:",
            f"  br i1 {odd}, label %odd{k}, label %even{k}, !prof {UNLIKELY}", f"odd{k}:",
        ]  # fmt: skip
        none = text.written(f"fcmp oeq {g.type} {g.text}, {literal(0.0, g.dtype)}")
        other = text.written(f"select i1 {none}, {g.type} {g.text}, {g.type} {product.text}")
        lines += [f"  br label %even{k}", f"even{k}:"]
        found = f"phi {g.type} [ {product.text}, %from{k} ], [ {other}, %odd{k} ]"
        return text.made(found, g.dtype, 1)

    # ------------------------------------------------------------------------------------ functions

    def _of_steps(self, name: str, x: Sequence[Value]) -> Value:
        """One part of a complex function; the other one is there already if it was asked for here."""
        formula, part = STEPS[name]

        def both() -> Pair:
            values = self._with_operators(*x)
            found = formula(*zip(values[::2], values[1::2], strict=True))
            return Pair(*(Value(v.name, x[0].dtype, x[0].lanes) for v in found))

        return self.text.once((formula, *(v.text for v in x)), both).part(part)  # type: ignore[no-any-return]

    def _log_sum(self, x: expression.Value, y: expression.Value) -> list[expression.Value]:
        """The difference, and with t = exp(-distance), log(1 + t) and the shares of 1 and t. Equal infinities have the distance 0."""

        def compute() -> list[expression.Value]:
            code, element = x.code, x.element
            apart = x - y
            below = -abs(select(x == y, 0.0, apart))
            dtype = "float64" if element == "double" else "float32"
            symbol, text = vecmath.emit("log_sum", dtype, code.lanes)
            code.texts[symbol] = text
            kind = code.type(element)
            struct = "{" + ", ".join([kind] * 3) + "}"
            parts = code.emit(f"call {struct} @{symbol}({kind} {below.name})", element).name
            rest = (code.emit(f"extractvalue {struct} {parts}, {i}", element) for i in range(3))
            return [apart, *rest]

        return self.text.once((SHARE, *sorted((x.name, y.name))), compute)  # type: ignore[no-any-return]

    def _logaddexp(self, x: expression.Value, y: expression.Value) -> expression.Value:
        """The larger one plus log(1 + exp(-distance))."""
        return OPERATIONS["maximum"](x, y) + self._log_sum(x, y)[1]

    def _share(self, x: expression.Value, y: expression.Value) -> expression.Value:
        """The share of the first in the sum of their exponentials; NaN if they are one infinity."""
        apart, _, larger, smaller = self._log_sum(x, y)
        return select(apart != apart, apart, select(x >= y, larger, smaller))

    def _function(self, name: str, x: Sequence[Value], dtype: np.dtype, lanes: int) -> Value:
        """A vector function of ours, or the C library's, lane by lane."""
        text = self.text
        kind = typed(dtype, lanes)
        if vecmath.has(name, dtype.name):
            symbol, text.functions[symbol] = vecmath.emit(name, dtype.name, lanes)
            operands = ", ".join(f"{kind} {v.text}" for v in x)
            return text.made(f"call {kind} @{symbol}({operands})", dtype, lanes)
        element = TYPES[dtype]
        symbol = LIBM.get(name, name) + ("f" if dtype == F4 else "")
        last = ["i32 0"] if name.startswith(named.PREFIX) else []  # Cython's, which says nothing
        kinds = [*[element] * len(x), *("i32" for _ in last)]
        text.declared.add(f"declare {element} @{symbol}({', '.join(kinds)}) #1")

        def of_numbers(numbers: Sequence[Value]) -> str:
            operands = ", ".join([*(f"{element} {v.text}" for v in numbers), *last])
            return text.let(f"call {element} @{symbol}({operands})")

        if lanes == 1:
            return Value(of_numbers(x), dtype, 1)
        whole = "poison"
        for i in range(lanes):
            one = of_numbers([text.lane(v, i) for v in x])
            whole = text.let(f"insertelement {kind} {whole}, {element} {one}, i32 {i}")
        return Value(whole, dtype, lanes)

    # ------------------------------------------------------------------------------------ reductions

    def combined(self, op: Op, a: Value, b: Value) -> Value:
        """Two partial results of a reduction as one."""
        name = op.attr[0]
        if name in ("maximum", "minimum"):
            return self.operation(name, [a, b], a.dtype)
        word = {"add": "add", "multiply": "mul"}[name]
        flags = "f" + word + " reassoc contract" if op.dtype.kind == "f" else word
        return self.text.made(f"{flags} {a.type} {a.text}, {b.text}", a.dtype, a.lanes)

    def more(self, op: Op, pointer: str, value: Value) -> None:
        """Combine a value with what stands at an address."""
        before = self.text.read(pointer, value.dtype, value.lanes)
        self.text.write(self.combined(op, before, value), pointer)

    def across(self, op: Op, value: Value) -> Value:
        """One number from the lanes of a vector."""
        if value.lanes == 1:
            return value
        text, name = self.text, op.attr[0]
        if op.dtype.kind == "f" and name in ("add", "multiply"):
            suffix = {F8: "f64", F4: "f32", I8: "i64", I4: "i32"}[op.dtype]
            word = {"add": "fadd", "multiply": "fmul"}[name]
            element = TYPES[op.dtype]
            function = f"{element} @llvm.vector.reduce.{word}.v{value.lanes}{suffix}"
            text.declared.add(f"declare {function}({element}, {value.type})")
            start = literal(neutral(op), op.dtype)
            call = f"call reassoc {function}({element} {start}, {value.type} {value.text})"
            return text.made(call, op.dtype, 1)
        half = value
        while half.lanes > 1:
            n = half.lanes // 2
            low = text.shuffled(half, range(n))
            upper = text.shuffled(half, range(n, 2 * n))
            half = self.combined(op, low, upper)
        return half


def neutral(op: Op) -> Any:
    """What a reduction begins with: -0.0 is what changes no sum; what is scattered comes to zeros."""
    if op.kind == "scatter":
        return 0
    if op.dtype.kind != "f":
        return {"add": 0, "multiply": 1}[op.attr[0]]
    return {"add": -0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[op.attr[0]]
