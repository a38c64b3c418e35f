"""Expressions: LLVM's language written as arithmetic on values.

A `Code` is the body of one function being written; a `Value` is one of its results, with Python's operators. `a * b + c`
appends two lines of IR; constants are plain Python numbers. Every value has as many lanes as the code (a scalar for one), so
the text of an algorithm is the same for every width. What the operators do not say is a function here: `fma`,
`select`, `bits`, `floating`, `horner` ...

Invariant: every function computes the same bits in each lane, whatever the number of lanes: IR operations without
fast-math flags, and fused multiply-adds only where the processor has them (`Code.fused`), so that LLVM never calls libm's `fma`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..core import processor

BITS = {"double": 64, "float": 32, "i64": 64, "i32": 32, "i1": 1}
INTEGER = {"double": "i64", "float": "i32"}
FLOATING = {"i64": "double", "i32": "float"}

Operand = Any
"""A Value, or a Python number that becomes a constant of the other operand's type."""


class Code:
    """The body of one function: lines of IR, and what the module must declare for them."""

    def __init__(self, lanes: int, fused: bool, digits: int = 53, element: str = "double") -> None:
        self.lanes = lanes
        self.element = element
        """The type the function works in."""
        self.fused = fused
        self.digits = digits
        """Bits of precision wanted: 53, or 24 where a float32 function computes in double and needs no low words."""
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.texts: dict[str, str] = {}
        """Functions that this one calls, by symbol."""
        self.tables: dict[str, str] = {}
        self._count = 0
        self._block = "entry"

    def type(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def parameter(self, name: str, element: str) -> Value:
        return Value(self, f"%{name}", element)

    def constant(self, number: float | int | bool, element: str) -> Value:
        if element in INTEGER:
            value = float(number)
            if element == "float":
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        else:
            text = str(int(number))
        if self.lanes > 1:
            text = "<" + ", ".join([f"{element} {text}"] * self.lanes) + ">"
        return Value(self, text, element)

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def emit(self, text: str, element: str) -> Value:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(self, name, element)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """A call of `llvm.<name>` on values of one type; only names that every target turns into instructions."""
        element = arguments[0].element
        kind = self.type(element)
        short = f"f{BITS[element]}" if self.lanes == 1 else f"v{self.lanes}f{BITS[element]}"
        symbol = f"@llvm.{name}.{short}"
        self.declarations.add(f"declare {kind} {symbol}({', '.join([kind] * len(arguments))})")
        passed = ", ".join(f"{kind} {a.name}" for a in arguments)
        return self.emit(f"call {kind} {symbol}({passed})", element)

    def call(self, symbol: str, text: str, element: str, *arguments: Value) -> Value:
        """A call of another function of values of one type, whose text is to stand in the same module."""
        self.texts[symbol] = text
        kind = self.type(element)
        passed = ", ".join(f"{kind} {a.name}" for a in arguments)
        return self.emit(f"call {kind} @{symbol}({passed})", element)

    def any(self, condition: Value) -> str:
        """Name of an i1: whether the condition holds in some lane."""
        if self.lanes == 1:
            return condition.name
        whole = f"i{self.lanes}"
        packed = self.emit(f"bitcast {self.type('i1')} {condition.name} to {whole}", whole)
        return self.emit(f"icmp ne {whole} {packed.name}, 0", "i1").name

    def rarely(
        self, condition: Value, usual: Sequence[Value], rare: Callable[[], Sequence[Value]]
    ) -> tuple[Value, ...]:
        """`rare()` in the lanes where the condition holds, at no cost where it holds in none; else `usual`.

        The one branch there is: taken per vector, so that what is rare may be long.
        """
        test = self.any(condition)
        self._count += 1
        seldom, after = f"rare{self._count}", f"after{self._count}"
        before = self._block
        self.lines.append(f"  br i1 {test}, label %{seldom}, label %{after}")
        self.lines.append(f"{seldom}:")
        self._block = seldom
        changed = [select(condition, new, old) for new, old in zip(rare(), usual, strict=True)]
        last = self._block
        self.lines.append(f"  br label %{after}")
        self.lines.append(f"{after}:")
        self._block = after
        return tuple(
            self.emit(
                f"phi {self.type(old.element)} [ {old.name}, %{before} ], [ {new.name}, %{last} ]",
                old.element,
            )
            for old, new in zip(usual, changed, strict=True)
        )

    def lookup(self, table: str, numbers: Sequence[float], index: Value) -> Value:
        """Elements of a constant table, lane by lane: for rare paths only."""
        size = len(numbers)
        entries = ", ".join(f"double {Code(1, True).constant(c, 'double').name}" for c in numbers)
        self.tables[table] = (
            f"@{table} = internal unnamed_addr constant [{size} x double] [{entries}]"
        )
        if self.lanes == 1:
            place = self.emit(
                f"getelementptr [{size} x double], ptr @{table}, i64 0, i64 {index.name}", "ptr"
            )
            return self.emit(f"load double, ptr {place.name}", "double")
        found = "poison"
        for lane in range(self.lanes):
            i = self.emit(f"extractelement {self.type('i64')} {index.name}, i32 {lane}", "i64")
            place = self.emit(
                f"getelementptr [{size} x double], ptr @{table}, i64 0, i64 {i.name}", "ptr"
            )
            item = self.emit(f"load double, ptr {place.name}", "double")
            found = self.emit(
                f"insertelement {self.type('double')} {found}, double {item.name}, i32 {lane}",
                "double",
            ).name
        return Value(self, found, "double")


class Value:
    """One result in a function: a name, its element type, and operators that append to the function.

    Floating values compare as IEEE 754 says: a comparison with NaN is false, `!=` true. The int 0 stands for a word that is
    not there: adding it changes nothing, multiplying by it gives it again. `>>` on integers is the logical shift.
    """

    __slots__ = ("code", "element", "name")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Code, name: str, element: str) -> None:
        self.code = code
        self.name = name
        self.element = element

    def _lift(self, other: Operand) -> Value:
        if isinstance(other, Value):
            if other.element != self.element:
                raise TypeError(
                    f"{self.element} and {other.element} were combined: convert one of them."
                )
            return other
        return self.code.constant(other, self.element)

    def _binary(self, float_op: str, int_op: str, other: Operand, swapped: bool = False) -> Value:
        a, b = self, self._lift(other)
        if swapped:
            a, b = b, a
        op = float_op if self.element in INTEGER else int_op
        return self.code.emit(
            f"{op} {self.code.type(self.element)} {a.name}, {b.name}", self.element
        )

    def __add__(self, other: Operand) -> Value:
        return self if _absent(other) else self._binary("fadd", "add", other)

    def __radd__(self, other: Operand) -> Value:
        return self if _absent(other) else self._binary("fadd", "add", other, True)

    def __sub__(self, other: Operand) -> Value:
        return self if _absent(other) else self._binary("fsub", "sub", other)

    def __rsub__(self, other: Operand) -> Value:
        return -self if _absent(other) else self._binary("fsub", "sub", other, True)

    def __mul__(self, other: Operand) -> Any:
        return 0 if _absent(other) else self._binary("fmul", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("fdiv", "sdiv", other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary("fdiv", "sdiv", other, True)

    def __neg__(self) -> Value:
        kind = self.code.type(self.element)
        if self.element in INTEGER:
            return self.code.emit(f"fneg {kind} {self.name}", self.element)
        return self.code.constant(0, self.element) - self

    def __abs__(self) -> Value:
        return self.code.intrinsic("fabs", self)

    def _compare(self, float_test: str, int_test: str, other: Operand) -> Value:
        b = self._lift(other)
        test = f"fcmp {float_test}" if self.element in INTEGER else f"icmp {int_test}"
        return self.code.emit(f"{test} {self.code.type(self.element)} {self.name}, {b.name}", "i1")

    def __lt__(self, other: Operand) -> Value:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("oge", "sge", other)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("oeq", "eq", other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("une", "ne", other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("", "and", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("", "or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("", "xor", other)

    def __invert__(self) -> Value:
        return self ^ (1 if self.element == "i1" else -1)

    def __lshift__(self, count: int) -> Value:
        return self._binary("", "shl", count)

    def __rshift__(self, count: int) -> Value:
        return self._binary("", "lshr", count)


def _absent(x: Operand) -> bool:
    return type(x) is int and x == 0


def fma(a: Operand, b: Operand, c: Operand) -> Any:
    """a * b + c, rounded once where the processor can."""
    code = next(v.code for v in (a, b, c) if isinstance(v, Value))
    if _absent(a) or _absent(b):
        return c
    if _absent(c):
        return a * b
    if not code.fused:
        return a * b + c
    element = next(v.element for v in (a, b, c) if isinstance(v, Value))
    values = [v if isinstance(v, Value) else code.constant(v, element) for v in (a, b, c)]
    return code.intrinsic("fma", *values)


def select(condition: Value, a: Operand, b: Operand) -> Value:
    """a in the lanes where the condition holds, b in the others."""
    code = condition.code
    typed = next((v for v in (a, b) if isinstance(v, Value)), None) or code.constant(a, "double")
    a, b = typed._lift(a), typed._lift(b)
    kind = code.type(a.element)
    return code.emit(
        f"select {code.type('i1')} {condition.name}, {kind} {a.name}, {kind} {b.name}", a.element
    )


def bits(x: Value) -> Value:
    """The bits of a floating value, as an integer."""
    element = INTEGER[x.element]
    return x.code.emit(
        f"bitcast {x.code.type(x.element)} {x.name} to {x.code.type(element)}", element
    )


def floating(i: Value) -> Value:
    """The floating value of which the bits are given."""
    element = FLOATING[i.element]
    return i.code.emit(
        f"bitcast {i.code.type(i.element)} {i.name} to {i.code.type(element)}", element
    )


def widened(x: Value) -> Value:
    """A float32 value as float64."""
    return x.code.emit(
        f"fpext {x.code.type('float')} {x.name} to {x.code.type('double')}", "double"
    )


def narrowed(x: Value) -> Value:
    """A float64 value rounded to float32."""
    return x.code.emit(
        f"fptrunc {x.code.type('double')} {x.name} to {x.code.type('float')}", "float"
    )


def sqrt(x: Value) -> Value:
    return x.code.intrinsic("sqrt", x)


def copysign(x: Value, sign: Value) -> Value:
    """x with the sign of another value."""
    return x.code.intrinsic("copysign", x, sign)


def remainder(x: Value, left: Value, y: Value) -> Value:
    """What is left of a quotient of floats rounded down: C's `left` with the divisor's sign, as NumPy makes it."""
    nothing = copysign(x.code.constant(0.0, x.element), y)
    return select(left == 0.0, nothing, select(opposed(left, y), left + y, left))


def opposed(x: Value, y: Value) -> Value:
    """Whether one of two numbers is below zero, and the other one is not."""
    return (y < 0.0) ^ (x < 0.0)


def clipped(x: Value, low: float, high: float) -> Value:
    """x limited to an interval; NaN stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def scales(code: Code) -> bool:
    """Whether there is an instruction for `times_power_of_two`: AVX-512 has it, for eight lanes of double."""
    return code.fused and code.lanes in (8, 16) and processor.has("avx512f")


def times_power_of_two(x: Value, n: Value) -> Value:
    """x * 2**n for whole n, rounded once; where `scales` says so."""
    code, kind, eight = x.code, x.code.type("double"), "<8 x double>"
    symbol = "@llvm.x86.avx512.mask.scalef.pd.512"
    code.declarations.add(f"declare {eight} {symbol}({eight}, {eight}, {eight}, i8, i32)")

    def picked(kind: str, a: str, b: str, places: range) -> Value:
        mask = ", ".join(f"i32 {i}" for i in places)
        text = f"shufflevector {kind} {a}, {kind} {b}, <{len(places)} x i32> <{mask}>"
        return code.emit(text, "double")

    parts = []
    for start in range(0, code.lanes, 8):
        here = range(start, start + 8)
        a, b = (picked(kind, v.name, "poison", here).name for v in (x, n))
        passed = f"{eight} {a}, {eight} {b}, {eight} poison, i8 -1, i32 4"  # rounded to the nearest
        parts.append(code.emit(f"call {eight} {symbol}({passed})", "double"))
    if len(parts) == 1:
        return parts[0]
    return picked(eight, parts[0].name, parts[1].name, range(16))


def horner(x: Value, coefficients: Sequence[float]) -> Any:
    """The polynomial with these coefficients, constant term first: the fewest operations, one after another."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def estrin(x: Value, coefficients: Sequence[float]) -> Any:
    """The same polynomial with pairs, then pairs of pairs formed side by side: the shortest wait."""
    terms: list[Any] = list(coefficients)
    power = x
    while len(terms) > 1:
        pairs = [fma(terms[i + 1], power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(pairs) * 2 :]
        if len(terms) > 1:
            power = power * power
    return terms[0]


# Rounding by a number so large that its last bit is a unit: 1.5 * 2**52 leaves room for both signs.
MAGIC = 6755399441055744.0


def rounded(x: Value) -> Value:
    """The nearest integer, for |x| < 2**51."""
    return (x + MAGIC) - MAGIC


def is_integer(x: Value) -> Value:
    """Whether |x|, finite or not, has no fraction."""
    a = abs(x)
    big = 4503599627370496.0
    return (a >= big) | (((a + big) - big) == a)
