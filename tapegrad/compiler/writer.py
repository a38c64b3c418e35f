"""Text of routines: calls that are functions of machine code of their own, of pointers, (inputs, output) -> i32.

`Writer` writes the text of one function on numbers of one type; a `Routine` is a call that such a function makes (routines.py,
fourier.py, sparse.py).

Invariant: a routine returns 1, or REFUSED where the function itself would raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .arrays import F4, F8
from .entrance import REFUSED

TYPES = {F8: "double", F4: "float"}

WIDTH = 4
"""Entries of a row that are computed at once."""


class Writer:
    """Text of one function on numbers of one type."""

    def __init__(self, kind: str, way: str = "") -> None:
        self.kind = kind
        self.way = way
        """What the names of the routines that it calls begin with; of those for a few rows they begin with nothing."""
        self.suffix = {"double": "f64", "float": "f32"}[kind]
        self.lines: list[str] = []
        self.count = 0

    def function(self, name: str, parameters: str) -> str:
        """What was written, as a function that returns 1 at its end."""
        head = f"define internal i32 @{name}({parameters}) #0 {{"
        return "\n".join([head, "entry:", *self.lines, "  ret i32 1", "}"])

    def let(self, text: str) -> str:
        """The name of what an instruction computes."""
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def sum(self, x: str, y: str) -> str:
        return self.let(f"add i64 {x}, {y}")

    def less(self, x: str, y: str) -> str:
        return self.let(f"sub i64 {x}, {y}")

    def entry(self, base: str, row: str, width: str, column: str = "0") -> str:
        """The address of an entry of rows that lie one after the other."""
        place = self.sum(self.let(f"mul i64 {row}, {width}"), column)
        return self.let(f"getelementptr {self.kind}, ptr {base}, i64 {place}")

    def load(self, pointer: str) -> str:
        return self.let(f"load {self.kind}, ptr {pointer}")

    def store(self, value: str, pointer: str) -> None:
        self.lines.append(f"  store {self.kind} {value}, ptr {pointer}")

    def of(self, word: str, *x: str) -> str:
        """An operation on numbers."""
        return self.let(f"{word} {self.kind} {', '.join(x)}")

    @contextmanager
    def loop(self, low: str, high: str) -> Iterator[str]:
        """for i in range(low, high)"""
        self.count += 1
        k = self.count
        self.lines += [
            f"  br label %pre{k}", f"pre{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ {low}, %pre{k} ], [ %n{k}, %latch{k} ]",
            f"  %on{k} = icmp slt i64 %i{k}, {high}", f"  br i1 %on{k}, label %in{k}, label %out{k}", f"in{k}:",
        ]  # fmt: skip
        yield f"%i{k}"
        self.lines += [f"  br label %latch{k}", f"latch{k}:", f"  %n{k} = add i64 %i{k}, 1"]
        self.lines += [f"  br label %head{k}", f"out{k}:"]

    @contextmanager
    def down(self, high: str) -> Iterator[str]:
        """for i in reversed(range(high))"""
        with self.loop("0", high) as i:
            yield self.less(self.less(high, i), "1")

    def copied(self, source: str, to: str, count: str) -> None:
        with self.loop("0", count) as i:
            self.store(self.load(self.entry(source, i, "1")), self.entry(to, i, "1"))

    def lower_copied(self, source: str, to: str) -> None:
        """The lower triangle of a square matrix, with zeros above it."""
        with self.loop("0", "%n") as i:
            row, after = self.entry(to, i, "%n"), self.sum(i, "1")
            self.copied(self.entry(source, i, "%n"), row, after)
            with self.loop(after, "%n") as k:
                self.store("0.0", self.entry(row, k, "1"))

    def exchanged(self, x: str, y: str, count: str) -> None:
        """The entries of two rows, each in the other's place."""
        with self.loop("0", count) as i:
            p, q = self.entry(x, i, "1"), self.entry(y, i, "1")
            one, other = self.load(p), self.load(q)
            self.store(other, p)
            self.store(one, q)

    def taken_off(self, x: str, factor: str, y: str, low: str, high: str) -> None:
        """x -= factor * y, from one column to another."""
        self.each("fsub", x, factor, y, low, high)

    def each(self, word: str, x: str, factor: str, y: str, low: str, high: str) -> None:
        """x += factor * y, or x -= it, from one column to another: in long rows some at once, then the others."""
        first = low
        if self.way:
            first = self._at_once(word, x, factor, y, low, high)
        with self.loop(first, high) as i:
            at = self.entry(x, i, "1")
            product = self.of("fmul", factor, self.load(self.entry(y, i, "1")))
            self.store(self.of(word, self.load(at), product), at)

    def _at_once(self, word: str, x: str, factor: str, y: str, low: str, high: str) -> str:
        """The same for as many columns as vectors hold; the first of the others."""
        kind = f"<{WIDTH} x {self.kind}>"
        one = self.let(f"insertelement {kind} poison, {self.kind} {factor}, i32 0")
        factors = self.let(
            f"shufflevector {kind} {one}, {kind} poison, <{WIDTH} x i32> zeroinitializer"
        )
        most = self.let(f"lshr i64 {self.less(high, low)}, {WIDTH.bit_length() - 1}")
        with self.loop("0", most) as turn:
            i = self.sum(low, self.let(f"mul i64 {turn}, {WIDTH}"))
            at, source = self.entry(x, i, "1"), self.entry(y, i, "1")
            size = {"double": 8, "float": 4}[self.kind]
            before, other = (self.let(f"load {kind}, ptr {p}, align {size}") for p in (at, source))
            product = self.let(f"fmul {kind} {factors}, {other}")
            after = self.let(f"{word} {kind} {before}, {product}")
            self.lines.append(f"  store {kind} {after}, ptr {at}, align {size}")
        return self.sum(low, self.let(f"mul i64 {most}, {WIDTH}"))

    def divided(self, x: str, by: str, count: str) -> None:
        with self.loop("0", count) as i:
            at = self.entry(x, i, "1")
            self.store(self.of("fdiv", self.load(at), by), at)

    def unless(self, condition: str, returned: int = REFUSED) -> None:
        """Return where a condition does not hold."""
        self.count += 1
        k = self.count
        self.lines += [f"  br i1 {condition}, label %fine{k}, label %end{k}", f"end{k}:"]
        self.lines += [f"  ret i32 {returned}", f"fine{k}:"]

    def not_zero(self, x: str) -> None:
        """Return REFUSED if it is."""
        self.unless(self.let(f"fcmp une {self.kind} {x}, 0.0"))

    def nonzero_diagonal(self, matrix: str) -> None:
        """Return REFUSED if there is a zero on the diagonal of a square matrix."""
        with self.loop("0", "%n") as i:
            self.not_zero(self.load(self.entry(matrix, i, "%n", i)))

    def rows_exchanged(self, k: str) -> None:
        """Row k of %x and the one that LU factors in %f exchange it with."""
        self.exchanged(self.entry("%x", k, "%m"), self.entry("%x", self.partner(k), "%m"), "%m")

    def partner(self, k: str) -> str:
        """The row that row k was exchanged with, by LU factors in %f."""
        number = self.load(self.entry("%f", "%n", "%n", k))
        return self.let(f"fptosi {self.kind} {number} to i64")

    def number(self, x: str) -> None:
        """Return REFUSED if it is none."""
        self.unless(self.let(f"fcmp ord {self.kind} {x}, {x}"))

    def done(self, name: str, operands: str, returned: int = REFUSED) -> None:
        """Another routine that is written for these numbers."""
        self.call(f"tg_{self.way}{name}_{self.kind}", operands, returned)

    def call(self, symbol: str, operands: str, returned: int = REFUSED) -> None:
        """A routine; return where it does not return 1."""
        result = self.let(f"call i32 @{symbol}({operands})")
        self.unless(self.let(f"icmp eq i32 {result}, 1"), returned)

    def before(self, x: str, y: str) -> str:
        """Whether x comes before y: numbers by size, then what is none."""
        smaller = self.let(f"fcmp olt {self.kind} {x}, {y}")
        number = self.let(f"fcmp ord {self.kind} {x}, {x}")
        last = self.let(f"and i1 {number}, {self.let(f'fcmp uno {self.kind} {y}, {y}')}")
        return self.let(f"or i1 {smaller}, {last}")

    def absolute(self, x: str) -> str:
        back = self.of("fneg", x)
        positive = self.let(f"fcmp ogt {self.kind} {x}, 0.0")
        return self.let(f"select i1 {positive}, {self.kind} {x}, {self.kind} {back}")


class Routine:
    """A call as a routine: the nodes and arrays it reads, the numbers it is given, bytes of memory it needs, and its operations."""

    __slots__ = ("name", "numbers", "of", "reads", "scratch", "texts", "work")

    def __init__(
        self,
        of: str,
        name: str,
        reads: list[Any],
        numbers: list[int],
        scratch: int,
        work: int,
        texts: dict[str, str],
    ) -> None:
        """A routine of LLVM text: what it reads, its sizes, the scratch memory and the work of a call."""
        self.of = of
        self.name = name
        self.reads = reads
        self.numbers = numbers
        self.scratch = scratch
        self.work = work
        self.texts = texts
        """Of the function, by its name, and of those that it calls."""
