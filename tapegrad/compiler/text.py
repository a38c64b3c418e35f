"""Text of a function with loops: instructions of LLVM's IR, each in the scope of the loop that it stands in.

`Text` has a scope for the function and one for each loop that is open; an instruction goes to the innermost one, or to that of a depth.
What is known in the open loops is not computed again: each scope remembers what was written in it (`pure`, `once`).

Invariant: a value's text stands in a loop that encloses every use, before it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .arithmetic import TYPES, Declared
from .arrays import B1, F4, I4, I8

_NOT_PURE = "load", "call", "phi", "alloca"
"""How instructions begin that give another value elsewhere, or have effects."""


class Value:
    """An SSA value or a literal, with the number of its lanes (1: a scalar)."""

    __slots__ = ("dtype", "lanes", "text")

    def __init__(self, text: str, dtype: np.dtype, lanes: int) -> None:
        self.text = text
        self.dtype = dtype
        self.lanes = lanes

    @property
    def type(self) -> str:
        return typed(self.dtype, self.lanes)


def typed(dtype: np.dtype, lanes: int) -> str:
    """LLVM's name of a scalar or vector type."""
    return TYPES[dtype] if lanes == 1 else f"<{lanes} x {TYPES[dtype]}>"


def in_memory(dtype: np.dtype, lanes: int = 1) -> str:
    """LLVM's name of the type that entries have in memory, where booleans are bytes."""
    kind = "i8" if dtype == B1 else TYPES[dtype]
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def literal(value: Any, dtype: np.dtype) -> str:
    """A constant's text, floats by their bits."""
    if dtype == B1:
        return "true" if value else "false"
    if dtype in (I8, I4):
        return str(int(value))
    with np.errstate(all="ignore"):
        number = float(np.float32(value)) if dtype == F4 else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def splat(text: str, dtype: np.dtype, lanes: int) -> str:
    """A literal in every lane."""
    return text if lanes == 1 else "<" + ", ".join([f"{TYPES[dtype]} {text}"] * lanes) + ">"


class _Scope:
    """The text of one loop depth, and what has been computed in it."""

    __slots__ = ("lines", "memo")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.memo: dict[Any, Any] = {}


class Text:
    """Instructions of one function at a time, and what the module of that function needs beside it."""

    def __init__(self) -> None:
        """An empty function."""
        self.count = 0
        self.allocas: list[str] = []
        self.declared = Declared()
        self.functions: dict[str, str] = {}
        """Functions that are called, by their names."""
        self.scopes = [_Scope()]
        self.made_at: dict[str, int] = {}  # the loop depth of each value's text
        self.floor = 0  # the first loop depth of the nest that is written

    # ------------------------------------------------------------------------------------ instructions

    @property
    def depth(self) -> int:
        """The depth of the innermost open loop."""
        return len(self.scopes) - 1

    @property
    def lines(self) -> list[str]:
        """What stands in the innermost open loop."""
        return self.scopes[-1].lines

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The name of what an instruction computes; one without effects that was computed here before is not written again."""
        if text.startswith(_NOT_PURE):
            return self.written(text)
        return self.pure(text)

    def written(self, text: str) -> str:
        """The name of what an instruction computes at this place, whatever else computes the same."""
        name = self.name()
        self.line(f"{name} = {text}")
        self.made_at[name] = self.depth
        return name

    def made(self, text: str, dtype: np.dtype, lanes: int) -> Value:
        return Value(self.let(text), dtype, lanes)

    def pure(self, text: str, depth: int | None = None) -> str:
        """An instruction without effects, once in a loop and in those around it; in the loop of a depth, or here."""
        depth = self.depth if depth is None else depth
        for scope in self.scopes[self.floor : depth + 1]:
            if text in scope.memo:
                return scope.memo[text]  # type: ignore[no-any-return]
        name = self.name()
        self.scopes[depth].lines.append(f"  {name} = {text}")
        self.scopes[depth].memo[text] = name
        self.made_at[name] = depth
        return name

    def once(self, key: Any, compute: Callable[[], Any], depth: int | None = None) -> Any:
        """What was computed under this key in the loop of a depth, or here, or in the loops around it; else it is computed there."""
        depth = self.depth if depth is None else depth
        for scope in self.scopes[self.floor : depth + 1]:
            if key in scope.memo:
                return scope.memo[key]
        return self.anew(key, compute, depth)

    def anew(self, key: Any, compute: Callable[[], Any], depth: int) -> Any:
        """What is computed now in the loop of a depth, and is known there by this key from here on."""
        scopes, self.scopes = self.scopes, self.scopes[: depth + 1]
        try:
            result = compute()
        finally:
            self.scopes = scopes
        self.scopes[depth].memo[key] = result
        return result

    # ------------------------------------------------------------------------------------ loops and functions

    @contextmanager
    def own_scope(self) -> Iterator[None]:
        """What is written meanwhile is as deep as in a loop, without one."""
        self.scopes.append(_Scope())
        yield
        scope = self.scopes.pop()
        self.lines.extend(scope.lines)

    def loop(self, low: str, high: str, step: int, inside: Callable[[str], None]) -> None:
        """`for i in range(low, high, step)`; the bounds are numbers or names."""
        self.count += 1
        k = self.count
        scope = _Scope()
        self.scopes.append(scope)
        inside(f"%i{k}")
        self.scopes.pop()
        lines = self.lines
        if low.isdigit() and high.isdigit() and int(low) < int(high):
            lines += [f"  br label %pre{k}"]
        else:
            entry = f"  %go{k} = icmp slt i64 {low}, {high}"
            lines += [entry, f"  br i1 %go{k}, label %pre{k}, label %end{k}"]
        lines += [
            f"pre{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ {low}, %pre{k} ], [ %n{k}, %latch{k} ]",
        ]  # fmt: skip
        lines += scope.lines
        lines += [
            f"  br label %latch{k}", f"latch{k}:", f"  %n{k} = add nsw i64 %i{k}, {step}",
            f"  %c{k} = icmp slt i64 %n{k}, {high}", f"  br i1 %c{k}, label %head{k}, label %end{k}", f"end{k}:",
        ]  # fmt: skip

    @contextmanager
    def apart(self) -> Iterator[Callable[[], str]]:
        """What is written meanwhile is the inside of another function; yields what gives its text."""
        outside = self.scopes, self.allocas
        self.scopes, self.allocas = [_Scope()], []
        yield self.whole
        self.scopes, self.allocas = outside

    def whole(self) -> str:
        """The text of the function's inside."""
        assert len(self.scopes) == 1
        return "\n".join([*self.allocas, *self.scopes[0].lines])

    # ------------------------------------------------------------------------------------ whole numbers

    def smaller(self, name: str, limit: str | int) -> str:
        below = self.let(f"icmp slt i64 {name}, {limit}")
        return self.let(f"select i1 {below}, i64 {name}, i64 {limit}")

    def times(self, name: str, factor: int) -> str:
        """A number of rows as one of entries."""
        if factor == 1:
            return name
        if name.isdigit():
            return str(int(name) * factor)
        return self.let(f"mul nsw i64 {name}, {factor}")

    # ------------------------------------------------------------------------------------ memory

    def moved(self, pointer: str, dtype: np.dtype, entries: str | int) -> str:
        """The address so many entries behind another one."""
        return self.let(f"getelementptr {in_memory(dtype)}, ptr {pointer}, i64 {entries}")

    def read(self, pointer: str, dtype: np.dtype, lanes: int) -> Value:
        """Entries that lie one behind the other at an address."""
        load = self.let(f"load {in_memory(dtype, lanes)}, ptr {pointer}, align {dtype.itemsize}")
        return self._truth(load, dtype, lanes)

    def write(self, value: Value, pointer: str) -> None:
        """Store a value at an address; booleans lie in memory as bytes."""
        kind, text = value.type, value.text
        if value.dtype == B1:
            kind = in_memory(value.dtype, value.lanes)
            text = self.let(f"zext {value.type} {text} to {kind}")
        self.line(f"store {kind} {text}, ptr {pointer}, align {value.dtype.itemsize}")

    def put_together(self, pointers: Sequence[str], dtype: np.dtype) -> Value:
        """A vector of the entries at these addresses."""
        kind, text = in_memory(dtype), "poison"
        vector = in_memory(dtype, len(pointers))
        for i, pointer in enumerate(pointers):
            one = self.let(f"load {kind}, ptr {pointer}, align {dtype.itemsize}")
            text = self.let(f"insertelement {vector} {text}, {kind} {one}, i32 {i}")
        return self._truth(text, dtype, len(pointers))

    def picked(
        self, first: str, second: str, places: Sequence[int], dtype: np.dtype, lanes: int
    ) -> Value:
        """Entries of one vector in memory or of two (of none at the address ""), by their places."""
        vector = in_memory(dtype, lanes)
        one, two = (
            self.let(f"load {vector}, ptr {at}, align {dtype.itemsize}") if at else "poison"
            for at in (first, second)
        )
        mask = ", ".join(f"i32 {i}" for i in places)
        text = f"shufflevector {vector} {one}, {vector} {two}, <{lanes} x i32> <{mask}>"
        return self._truth(self.let(text), dtype, lanes)

    def _truth(self, text: str, dtype: np.dtype, lanes: int) -> Value:
        """What was loaded, as a value: booleans lie in memory as bytes."""
        if dtype == B1:
            zero = "0" if lanes == 1 else "zeroinitializer"
            text = self.let(f"icmp ne {in_memory(dtype, lanes)} {text}, {zero}")
        return Value(text, dtype, lanes)

    # ------------------------------------------------------------------------------------ lanes

    def spread(self, value: Value, lanes: int) -> Value:
        """A value in as many lanes."""
        if value.lanes == lanes:
            return value
        if value.text[0] != "%":
            return Value(splat(value.text, value.dtype, lanes), value.dtype, lanes)
        kind = typed(value.dtype, lanes)
        depth = self.made_at.get(value.text)
        one = self.pure(
            f"insertelement {kind} poison, {TYPES[value.dtype]} {value.text}, i32 0", depth
        )
        text = self.pure(
            f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer", depth
        )
        return Value(text, value.dtype, lanes)

    def lane(self, value: Value, i: int) -> Value:
        """One number of a vector."""
        return self.made(f"extractelement {value.type} {value.text}, i32 {i}", value.dtype, 1)

    def shuffled(self, value: Value, picks: Sequence[int]) -> Value:
        """Some lanes of a vector."""
        if len(picks) == 1:
            return self.lane(value, picks[0])
        mask = ", ".join(f"i32 {p}" for p in picks)
        text = f"shufflevector {value.type} {value.text}, {value.type} poison, <{len(picks)} x i32> <{mask}>"
        return self.made(text, value.dtype, len(picks))

    def in_turn(self, re: Value, im: Value) -> Value:
        """The lanes of two vectors side by side, as real and imaginary parts lie in memory."""
        n = re.lanes
        mask = ", ".join(f"i32 {i}, i32 {n + i}" for i in range(n))
        text = f"shufflevector {re.type} {re.text}, {im.type} {im.text}, <{2 * n} x i32> <{mask}>"
        return self.made(text, re.dtype, 2 * n)
