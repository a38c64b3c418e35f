"""Random Numba programs: the generated adjoint against an independent oracle.

A program is made from a seed: scalars, one- and two-dimensional arrays, views, slices, helpers, tuples, swaps of buffers, loops of
all kinds left in all ways; or stencils over two grids. The oracle runs the same source in plain Python on dual numbers held in
arrays of objects, so that branches cannot straddle a difference quotient; nothing of it is shared with the code under test.

The generated adjoint is plain Python to its last form, so most programs are checked without compiling it. With `-m campaign`,
TAPEGRAD_FUZZ_NATIVE=500 runs so many of those (default 32), in reverse and half as many forward, TAPEGRAD_FUZZ_NATIVE_COMPILED=50 so many compiled ones (default 2); TAPEGRAD_FUZZ_NATIVE_FIRST is the first seed.
"""

from __future__ import annotations

import linecache
import math
import os
import random
import re
import types
import warnings
import zlib
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError, NumbaWarning

import tapegrad as tg
from tapegrad.native.function import Derived, real_leaves
from tests.seeds import seeds

COUNT = int(os.environ.get("TAPEGRAD_FUZZ_NATIVE", "32"))
COMPILED = int(os.environ.get("TAPEGRAD_FUZZ_NATIVE_COMPILED", "2"))
OVERLOADED = int(os.environ.get("TAPEGRAD_FUZZ_NATIVE_OVERLOADED", "2"))
FIRST = int(os.environ.get("TAPEGRAD_FUZZ_NATIVE_FIRST", "0"))


# --------------------------------------------------------------------------------------------------- the oracle


class Arithmetic:
    """Numbers of a kind with their derivatives along one direction: sums, products and powers."""

    kind: Any = float

    def __init__(self, value: Any, dot: Any = 0.0) -> None:
        self.value, self.dot = self.kind(value), self.kind(dot)

    def _with(self, other: Any, value: Any, dot: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented
        b = other if isinstance(other, Arithmetic) else type(self)(other)
        return type(self)(value(self.value, b.value), dot(self, b))

    # fmt: off
    def __add__(self, o): return self._with(o, lambda a, b: a + b, lambda a, b: a.dot + b.dot)
    def __sub__(self, o): return self._with(o, lambda a, b: a - b, lambda a, b: a.dot - b.dot)
    def __mul__(self, o): return self._with(o, lambda a, b: a * b, lambda a, b: a.dot * b.value + a.value * b.dot)
    def __truediv__(self, o): return self._with(o, lambda a, b: a / b, lambda a, b: (a.dot - a.value / b.value * b.dot) / b.value)
    def __radd__(self, o): return type(self)(o) + self
    def __rsub__(self, o): return type(self)(o) - self
    def __rmul__(self, o): return type(self)(o) * self
    def __rtruediv__(self, o): return type(self)(o) / self
    def __neg__(self): return type(self)(-self.value, -self.dot)
    def __pow__(self, n): return type(self)(self.value**n, n * self.value ** (n - 1) * self.dot)
    # fmt: on


class Dual(Arithmetic):
    """A number with its derivative along one direction."""

    # fmt: off
    def __lt__(self, o): return self.value < _value(o)
    def __le__(self, o): return self.value <= _value(o)
    def __gt__(self, o): return self.value > _value(o)
    def __ge__(self, o): return self.value >= _value(o)
    def __float__(self): return self.value
    def __int__(self): return int(self.value)
    def __abs__(self): return self if self.value >= 0 else -self
    def sin(self): return Dual(math.sin(self.value), math.cos(self.value) * self.dot)
    def cos(self): return Dual(math.cos(self.value), -math.sin(self.value) * self.dot)
    def tanh(self): return Dual(math.tanh(self.value), (1 - math.tanh(self.value) ** 2) * self.dot)
    def exp(self): return Dual(math.exp(self.value), math.exp(self.value) * self.dot)
    def sqrt(self): return Dual(math.sqrt(self.value), self.dot / (2 * math.sqrt(self.value)))
    # fmt: on


def _value(x: Any) -> float:
    return x.value if isinstance(x, Dual) else x


def _elementary(name: str) -> Any:
    def function(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return np.array([function(v) for v in x.ravel()], dtype=object).reshape(x.shape)
        return getattr(x, name)() if isinstance(x, Dual) else getattr(math, name)(x)

    return function


def _objects(shape: Any, fill: float) -> np.ndarray:
    a = np.empty(shape, object)
    for k in np.ndindex(a.shape):
        a[k] = Dual(fill)
    return a


PYTHON_MATH = types.SimpleNamespace(
    **{n: _elementary(n) for n in ("sin", "cos", "tanh", "exp", "sqrt")}
)
PYTHON_NUMPY = types.SimpleNamespace(
    zeros=lambda shape: _objects(shape, 0.0),
    ones=lambda shape: _objects(shape, 1.0),
    zeros_like=lambda x: _objects(x.shape, 0.0),
    empty_like=lambda x: _objects(x.shape, 0.0),
    sum=lambda x, axis=None: x.sum() if axis is None else x.sum(axis=axis),
    dot=np.dot,
    sin=_elementary("sin"),
    tanh=_elementary("tanh"),
    where=lambda c, a, b: np.where(c.astype(bool), a, b),
    outer=lambda x, y: np.array([[a * b for b in y] for a in x], dtype=object),
    cumsum=lambda x: np.array([x[: k + 1].sum() for k in range(x.size)], dtype=object),
    array=lambda x: np.array(x, dtype=object),
    concatenate=np.concatenate,
)


def dual(function: Any, args: tuple[Any, ...], directions: tuple[Any, ...]) -> tuple[float, float]:
    """Value and derivative along a direction, by plain Python."""
    given = []
    for a, d in zip(args, directions, strict=True):
        if isinstance(a, np.ndarray):
            o = np.empty(a.shape, object)
            for k in np.ndindex(a.shape):
                o[k] = Dual(a[k], d[k])
            given.append(o)
        else:
            given.append(Dual(a, d))
    out = function(*given)
    return (out.value, out.dot) if isinstance(out, Dual) else (float(out), 0.0)


# ----------------------------------------------------------------------------------------------- the programs


class Writer:
    """Writes one random program; what it reads is always defined."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.scalars = ["a", "b", "c", "d"]
        self.vectors = ["x", "w", "v"]  # of length 6
        self.matrices = ["m"]  # 3 x 6
        self.counters: list[str] = []
        self.ending: set[str] = set()
        """Counters that a loop over a condition ends by."""
        self.bound = ["k"]  # bound from the first line on
        self.counting = True
        self.names = 0
        self.writes_x = self.r.random() < 0.3

    def pick(self, *options: Any) -> Any:
        return self.r.choice(options)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def place(self, n: int = 6) -> str:
        """An index below n."""
        if self.counters and self.r.random() < 0.6:
            k = self.r.choice(self.counters)
            return self.pick(
                f"{k} % {n}", f"({k} + {self.r.randrange(n)}) % {n}", f"({k} * 2 + 1) % {n}"
            )
        return str(self.r.randrange(-n, n))

    def element(self) -> str:
        if self.r.random() < 0.3:
            return f"{self.r.choice(self.matrices)}[{self.place(3)}, {self.place()}]"
        return f"{self.r.choice(self.vectors)}[{self.place()}]"

    def leaf(self) -> str:
        u = self.r.random()
        if u < 0.45:
            return self.r.choice(self.scalars)
        if u < 0.85:
            return self.element()
        if u < 0.92 and self.counters:
            return f"0.1 * {self.r.choice(self.counters)}"
        return f"{self.r.uniform(-1, 1):.2f}"

    def number(self, depth: int = 2) -> str:
        if depth == 0 or self.r.random() < 0.2:
            return self.leaf()
        one = lambda: self.number(depth - 1)  # noqa: E731
        k = self.r.randrange(13)
        if k < 3:
            return f"({one()} {self.pick('+', '-')} {one()})"
        if k < 6:
            return f"({one()} * {one()})"
        if k == 6:
            return f"({one()} / (1.5 + {one()} ** 2))"
        if k == 7:
            return f"({one()} if {self.condition()} else {one()})"
        if k == 8:
            return f"helper({one()}, {one()})"
        if k == 9:
            return f"early({one()})"
        if k == 10:
            return self.pick(
                f"np.sum({self.vector(1)})",
                f"np.dot({self.r.choice(self.vectors)}, {self.r.choice(self.vectors)})",
                f"squares({self.r.choice(self.vectors)})",
            )
        if k == 11:
            return self.pick(f"abs({one()})", f"(0.5 + abs({one()})) ** 1.3")
        return f"math.{self.pick('sin', 'tanh', 'cos')}({one()})"

    def condition(self) -> str:
        base = f"{self.leaf()} {self.pick('<', '>')} {self.leaf()}"
        if self.r.random() < 0.25:
            base += f" {self.pick('and', 'or')} {self.leaf()} > {self.leaf()}"
        return base

    def vector(self, depth: int = 1) -> str:
        """An expression of length 6."""
        if depth == 0 or self.r.random() < 0.3:
            return self.pick(
                self.r.choice(self.vectors),
                f"m[{self.place(3)}]",
                f"m[{self.place(3)}, :]",
                f"{self.r.choice(self.vectors)}[::-1]",
            )
        one = lambda: self.vector(depth - 1)  # noqa: E731
        return self.pick(
            f"({one()} {self.pick('+', '-', '*')} {one()})",
            f"({one()} * {self.leaf()})",
            f"np.sin({one()})",
            f"np.tanh({one()})",
            f"np.sum(m * {one()}, axis=0)",
            f"np.dot({one()}, np.outer({one()}, {one()}))",
            f"np.where({self.r.choice(self.vectors)} > {self.leaf()}, {one()}, {one()})",
            f"np.cumsum({one()})",
            f"np.concatenate(({one()}[:2], {one()}[2:]))",
            f"mapped({one()}, {self.leaf()})",
            f"np.concatenate(({one()}[PLACES], m[MASK, {self.place()}]))",
        )

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def writable(self) -> str:
        return self.r.choice([v for v in self.vectors if v != "x" or self.writes_x])

    def block(self, n: int, depth: int, loops: int, inside: bool) -> None:
        vectors, scalars, counters = list(self.vectors), list(self.scalars), list(self.counters)
        mark = len(self.lines)
        for _ in range(n):
            self.one(depth, loops, inside)
        if len(self.lines) == mark:
            self.put(depth, "pass")
        # Names bound in here may be unbound afterwards.
        self.vectors, self.scalars = vectors, scalars
        self.counters = [c for c in counters if c in self.counters]

    def one(self, depth: int, loops: int, inside: bool) -> None:
        u = self.r.random()
        deep = depth < 4
        if u < 0.22:
            self.put(depth, f"{self.r.choice(self.scalars[:4])} = math.sin({self.number()})")
        elif u < 0.30:
            self.put(
                depth,
                f"{self.r.choice(self.scalars[:4])} {self.pick('+=', '-=', '*=')} math.tanh({self.number(1)})",
            )
        elif u < 0.40:
            self.put(
                depth,
                f"{self.writable()}[{self.place()}] {self.pick('=', '+=', '-=', '*=')} math.sin({self.number()})",
            )
        elif u < 0.44:
            self.put(
                depth,
                f"m[{self.place(3)}, {self.place()}] {self.pick('=', '+=')} math.tanh({self.number()})",
            )
        elif u < 0.49:
            self.array_statement(depth)
        elif u < 0.55:
            self.binding(depth)
        elif u < 0.59:
            self.put(
                depth,
                self.pick(
                    "a, b = b, a",
                    "w, v = v, w",
                    "c, d = helper(c, d), c",
                    "a, b = pair(a, b)",
                    "t = (a, b)\n" + "    " * depth + "a, b = t[1], t[0] * 0.5",
                ),
            )
        elif u < 0.62:
            self.put(
                depth,
                self.pick(
                    "update(w, a)",
                    "update(v, b)",
                    "update(m[1], c)",
                    f"smooth(w, {self.pick('v', 'x')})",
                ),
            )
        elif u < 0.75 and deep:
            self.put(depth, f"if {self.condition()}:")
            self.block(self.r.randrange(1, 3), depth + 1, loops, inside)
            if self.r.random() < 0.5:
                self.put(depth, "else:")
                self.block(self.r.randrange(1, 3), depth + 1, loops, inside)
        elif u < 0.80 and inside:
            self.put(depth, f"if {self.condition()}:")
            jump = self.pick(
                "break", "continue", "break", f"return {self.number(1)}" if loops else "continue"
            )
            if self.r.random() < 0.4:
                self.put(depth + 1, f"{self.r.choice(self.scalars[:4])} = {self.number(1)}")
            self.put(depth + 1, jump)
        elif u < 0.83 and loops < 2 and deep:
            self.shared(depth, loops)
        elif u < 0.97 and loops < 2 and deep:
            self.loop(depth, loops)
        elif u < 0.985 and depth == 1:
            self.put(depth, f"if {self.condition()}:")
            self.put(depth + 1, f"return {self.number(1)}")
        else:
            self.put(depth, f"{self.r.choice(self.scalars[:4])} = {self.number(1)}")

    def array_statement(self, depth: int) -> None:
        a = self.writable()
        self.put(
            depth,
            self.pick(
                f"{a}[1:4] = {self.vector()}[2:5]",
                f"{a}[:] = {self.vector()}",
                f"{a}[2:] = math.sin({self.number(1)})",
                f"{a}[1:-1] += np.sin({self.vector(0)})[1:-1]",
                f"{a}[::2] -= {self.number(1)}",
                f"{a} *= {self.leaf()}" if a != "x" else f"{a}[0] = {self.leaf()}",
                f"{a} += np.tanh({self.vector(0)})" if a != "x" else f"{a}[1] = {self.leaf()}",
                f"m[{self.place(3)}] = np.tanh({self.vector()})",
                f"m[:, {self.place()}] += {self.leaf()}",
                f"m[{self.place(3)}, 1:4] = np.tanh({self.vector()}[:3])",
                f"{a}[{self.r.choice(self.vectors)} > {self.leaf()}] {self.pick('=', '*=', '+=')} {self.leaf()}",
                f"{a}[PLACES] {self.pick('=', '+=')} np.sin({self.vector(0)}[PLACES])",
                f"m[{self.place(3)}, PLACES] = {self.pick('x[:4]', self.leaf())}",
                f"m[:, {self.place()}][MASK] = {self.leaf()}",
            ),
        )

    def binding(self, depth: int) -> None:
        """A new name for a view, a copy, or a new array; or a known name bound anew."""
        k = self.r.randrange(6)
        if k == 0:
            name = self.fresh("r")
            self.put(depth, f"{name} = m[{self.place(3)}]")
            self.vectors.append(name)
        elif k == 1:
            name = self.fresh("k")
            self.put(depth, f"{name} = {self.r.choice(self.vectors)}.copy()")
            self.vectors.append(name)
        elif k == 2:
            self.put(depth, f"{self.pick('w', 'v')} = np.tanh({self.vector()})")
        elif k == 3:
            self.put(depth, f"{self.pick('w', 'v')} = {self.pick('w', 'v')}.copy()")
        elif k == 4:
            name = self.fresh("s")
            self.put(depth, f"{name} = {self.number()}")
            self.scalars.append(name)
        else:
            self.put(depth, f"m = m * {self.leaf()}")

    def loop(self, depth: int, loops: int) -> None:
        """A loop of some kind, over names that are new, or taken again from a loop around it or before it, or from a scalar."""
        scalars = list(self.scalars)
        names = self.header(depth)
        # A name that a loop binds is an index in it only if it counts, and afterwards only if it was bound before.
        self.counters = [c for c in self.counters if c not in names]
        before = list(self.counters)
        whole = names[:1] if self.counting and names[0] not in scalars else []
        self.counters += whole
        self.scalars += [n for n in names if n not in self.scalars]
        self.block(self.r.randrange(1, 4), depth + 1, loops + 1, True)
        # After a loop of no passes a new name is unbound.
        self.counters = before + [c for c in whole if c in self.bound]
        self.scalars = scalars
        if self.r.random() < 0.2:
            self.put(depth, "else:")
            self.block(self.r.randrange(1, 3), depth + 1, loops, loops > 0)
        if self.r.random() < 0.1 and names[0] not in (*self.scalars, *self.bound):
            self.put(depth, f"{names[0]} = 0.5")
            self.put(depth, f"del {names[0]}")
            self.counters = [c for c in self.counters if c != names[0]]

    def shared(self, depth: int, loops: int) -> None:
        """A loop over prange: passes write at their own place and add to a number, or multiply it or take its largest, and mostly read
        neither elsewhere."""
        p = self.fresh("p")
        span = self.pick("6", "1, 5", "2, 6", "3, 3", "int(abs(q) * 2), 6")
        held = list(self.vectors), list(self.scalars), list(self.matrices), list(self.counters)
        to, total = self.writable(), self.r.choice(self.scalars[:4])
        if self.r.random() < 0.85:
            self.vectors.remove(to)
            self.scalars.remove(total)
        takes = self.pick(
            "{0} {1} {2}", "{0} {1} {2}", "{0} *= {2}", "{0} = max({0}, {2})", "{0} = min({2}, {0})"
        )

        def taken(term: str) -> str:
            return takes.format(total, self.pick("+=", "-="), term)

        self.put(depth, f"for {p} in prange({span}):")
        own, depth = self.fresh("s"), depth + 1
        self.put(depth, f"{own} = {self.pick(f'x[{p}]', f'x[{p} - 1] * x[{p}]', 'x[0]')}")
        self.scalars.append(own)
        self.counters.append(p)
        for _ in range(self.r.randrange(1, 4)):
            one = f"math.sin({self.number(1)})"
            self.put(
                depth,
                self.pick(
                    f"{to}[{p}] {self.pick('=', '+=', '*=')} {one}",
                    taken(one),
                    f"{own} = {own} * {one}",
                    f"if {self.condition()}: {taken(one)}",
                    f"while {own} < 0.4: {own} = {own} * 0.5 + 0.3",
                    f"for {self.fresh('j')} in range(2): {to}[{p}] = {one}",
                    f"m[{p} % 3, {p}] = {one}",
                    f"for j in range(3): m[j, {p}] = m[j, {p}] * {one}",
                    f"{own} += np.sum({self.r.choice(self.vectors)}[{p}:]) * {to}[{p}]",
                ),
            )
        self.put(depth, f"{to}[{p}] += {own}")
        self.vectors, self.scalars, self.matrices, self.counters = held

    def summing(self) -> None:
        """A loop at the end whose passes add up terms, most of them on names of their own; what stands behind it is mostly linear."""
        self.put(1, f"before = {self.number()}")
        self.put(1, f"weight = {self.leaf()}")
        self.put(1, f"total = {self.number(1)}")
        names = self.header(1)
        self.counters = [c for c in self.counters if c not in names]
        if self.counting and names[0] not in self.scalars:
            self.counters.append(names[0])
        mark = len(self.lines)
        self.writes_x = False
        if self.r.random() < 0.3:
            self.put(2, "for k in range(6):")
            self.put(3, f"scratch[k] = {self.number(1)}")
            other = self.pick("k", "j")
            self.put(2, f"for {other} in range({self.pick('6', '6', '5')}):")
            self.put(3, f"total += math.sin(scratch[{other}])")
        if self.r.random() < 0.7:
            self.block(self.r.randrange(1, 3), 2, 1, True)
        if self.r.random() < 0.5:
            self.put(2, f"for k in range({self.pick('3', '1, 4', '0')}):")
            self.put(3, f"total {self.pick('+=', '-=')} math.sin({self.number()})")
        self.put(2, f"total {self.pick('+=', '-=')} {self.number()}")
        if self.r.random() < 0.8:
            # Under names of its own, bound at the beginning of each pass.
            body = [re.sub(r"\b([abcdwvm])\b", r"own_\1", line) for line in self.lines[mark:]]
            del self.lines[mark:]
            for name in "abcd":
                self.put(2, f"own_{name} = {self.pick(name, 'before', self.leaf())}")
            self.put(2, f"own_w = {self.pick('w.copy()', f'x * {self.leaf()}')}")
            self.put(2, f"own_v = {self.pick('v', f'x * {self.leaf()}')}")
            self.put(2, f"own_m = {self.pick('m.copy()', 'np.outer(v[:3], x)')}")
            self.lines += body
        if self.r.random() < 0.2:
            self.put(
                1,
                f"total = {self.pick('weight * total', '(total + before) / 1.5', 'math.sin(total)')}",
            )
        self.put(
            1,
            self.pick(
                "return total",
                "return 0.5 * total + q * x[1]",
                "return before - total * weight",
                "return total + np.sum(w)",
                "return total + a * weight",
            ),
        )

    def header(self, depth: int) -> list[str]:
        """The first lines of a loop; the names it binds."""
        kind = self.r.randrange(8)
        n = self.r.randrange(1, 4)
        span = self.pick(
            f"{n}", f"1, {n + 1}", f"{n}, 0, -1", f"0, {2 * n}, 2", f"{n}, {n}", f"{n}, 9, -3"
        )
        self.counting = True
        if kind < 3:
            i = self.loop_name("i")
            over = f"range({span})"
            if self.r.random() < 0.15:
                over = f"checkpointed({over}, snapshots={self.r.randrange(1, 4)})"
            self.put(depth, f"for {i} in {over}:")
            return [i]
        if kind == 3:
            i = self.fresh("i")
            self.ending.add(i)
            self.put(depth, f"{i} = 0")
            self.put(depth, f"while {i} < {n}{self.pick('', f' and {self.leaf()} < 0.8')}:")
            self.put(depth + 1, f"{i} += 1")
            return [i]
        if kind == 4:
            i = self.fresh("i")
            self.ending.add(i)
            self.put(depth, f"{i} = 0")
            self.put(depth, "while True:")
            self.put(depth + 1, f"{i} += 1")
            self.put(depth + 1, f"if {i} > {n}: break")
            return [i]
        over = self.r.choice(self.vectors) + self.pick("", "", "[::2]", "[3:3]", "[1:4]")
        if kind == 5:
            i, e = self.loop_name("i"), self.loop_name("e")
            if i == e:
                i = self.fresh("i")
            self.put(depth, f"for {i}, {e} in enumerate({over}):")
            return [i, e]
        self.counting = False
        e, other = self.loop_name("e"), self.fresh("e")
        if kind == 6:
            self.put(depth, f"for {e}, {other} in zip({over}, x):")
            return [e, other]
        self.put(depth, f"for {e} in {over}:")
        return [e]

    def loop_name(self, prefix: str) -> str:
        """A new name; or one that means something already, and means something else from here on."""
        u = self.r.random()
        if u < 0.5:
            return self.fresh(prefix)
        if u < 0.65:
            return self.pick("a", "b", "c", "d")
        free = [c for c in self.counters if c not in self.ending]
        if u < 0.8 and free:
            return self.r.choice(free)
        return self.pick("i", "v_2", "k", "p")

    def program(self) -> str:
        self.lines = [
            "def f(x, q):",
            "    w = np.zeros(6)",
            "    v = x * 0.5",
            "    m = np.outer(np.sin(x[:3]), x)",
            "    a = x[0]",
            "    b = q",
            "    c = 0.5",
            "    d = x[2] * x[3]",
            "    k = 1",
            "    scratch = np.zeros(6)",
        ]
        if self.r.random() < 0.4:
            self.block(self.r.randrange(5), 1, 0, False)
            self.summing()
        else:
            self.block(8, 1, 0, False)
            self.put(
                1, "return a + b * c + d + np.sum(w) * 0.3 + v[0] * v[5] + np.sum(m * m) + x[1]"
            )
        return HELPERS + "\n".join(self.lines) + "\n"


def stencils(seed: int) -> str:
    """A program of loops over two grids, each reading neighbours in one and writing to the other, mostly."""
    r = random.Random(seed)

    def at(grid: str) -> str:
        i, j = r.choice(["i", "i + 1", "i - 1"]), r.choice(["j", "j + 1", "j - 1"])
        return f"{grid}[{i}, {j}]"

    def term(grid: str, depth: int) -> str:
        if depth == 0:
            return r.choice([at(grid), at(grid), at(grid), "c", "q", "x[j]", "0.4"])
        a, b = term(grid, depth - 1), term(grid, depth - 1)
        forms = f"({a} + {b})", f"({a} * {b})", f"0.3 * ({a} - 2.0 * {b})", f"math.sin({a})"
        return r.choice([*forms, f"({a} if {at(grid)} > {b} else {b})", f"{a} ** 2"])

    begin = "u, w = grid.copy(), grid.copy()", "u, w = grid.copy(), np.zeros((6, 6))"
    begin += "u = grid.copy()\n    w = u", "u, w = grid[:, ::-1].copy(), grid"
    begin += ("both = np.zeros((8, 6))\n    both[1:7] = grid\n    u, w = both[1:7], both[:6]",)
    lines = ["def f(x, q):", "    grid = np.outer(x, np.sin(x))", "    s = 0.0"]
    lines += [f"    {r.choice(begin)}", "    for t in range(2):"]
    for _ in range(r.randrange(1, 3)):
        read, write = r.choice(["uw", "uw", "wu", "uu"])
        lines.append(f"        for i in range({r.randrange(1, 3)}, {r.randrange(3, 6)}):")
        lines.append(f"            for j in range({r.randrange(1, 3)}, {r.randrange(3, 6)}):")
        lines.append(f"                c = {at(read)}")
        if r.random() < 0.5:
            lines.append(f"                if {at(read)} > 0.1: c = {term(read, 1)}")
        if r.random() < 0.4:
            lines.append(f"                s += {term(read, 2)}")
        place = r.choice(["[i, j]", "[i, j]", "[i, j]", "[i - 1, j]"])
        sign = r.choice(["=", "=", "=", "+="])
        lines.append(f"                {write}{place} {sign} math.sin({term(read, 2)})")
        lines.append(f"        {r.choice(['u, w = w, u', 'q = q * 0.9', 's += u[2, 3]'])}")
    lines.append("    return s + np.sum(u * u) + 0.5 * np.sum(w * x)")
    return "\n".join(lines) + "\n"


HELPERS = """
@jit
def helper(p, q):
    r = p * 0.5
    for k in range(2):
        r = r + math.tanh(q) * p
        if r > 1.0:
            r = r * 0.5
    return r

@jit
def early(p):
    if p > 0.5:
        return p * p
    elif p > 0.0:
        return p
    for k in range(3):
        p = p * 0.7
        if p > -0.1:
            return math.sin(p)
    return p - 1.0

@jit
def pair(p, q):
    if p > q:
        return p * 0.5, q
    return q, p * q

@jit
def squares(y):
    s = 0.0
    for k in range(y.size):
        s += y[k] * y[k]
    return s

@jit
def mapped(y, p):
    z = np.empty_like(y)
    for k in range(y.size):
        z[k] = math.tanh(y[k] + p)
    return z

@jit
def update(y, p):
    for k in range(y.size):
        y[k] = y[k] * 0.9 + math.sin(p) * 0.1

@jit
def smooth(y, z):
    for k in range(1, y.size - 1):
        y[k] = 0.25 * y[k - 1] + 0.5 * z[k] + 0.25 * y[k + 1]

"""


def load(text: str) -> tuple[Any, Any]:
    """A program, jitted and plain."""
    file = f"<native fuzz {zlib.crc32(text.encode()):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    code = compile(text, file, "exec")
    jitted: dict[str, Any] = {"np": np, "math": math, "jit": tg.njit, **CONSTANTS}
    jitted |= {"prange": numba.prange, "checkpointed": tg.checkpointed, **RULES}
    exec(code, jitted)
    plain: dict[str, Any] = {
        "np": PYTHON_NUMPY,
        "math": PYTHON_MATH,
        "jit": lambda f: f,
        "abs": abs,
        "prange": range,
        "checkpointed": tg.checkpointed,
        "ruled": PYTHON_MATH.tanh,
        "times": lambda a, b: a * b,
        **CONSTANTS,
    }
    exec(code, plain)
    return tg.njit(jitted["f"], parallel="prange" in text), plain["f"]


RULES = {
    "ruled": tg.njit_vjp(lambda a: math.tanh(a), lambda g, out, a: (g * (1.0 - out * out),)),
    "times": tg.njit_vjp(lambda a, b: a * b, lambda g, out, a, b: (g * b, g * a)),
}


def replaced(text: str, powers: bool) -> str:
    """A program with powers, or with rules by hand, where sines and products were bound to a name."""
    sine, product = r"^( +\w+) = math\.sin\((.*)\)$", r"^( +)([a-d]|s\d+) \*= (.*)$"
    news = (
        (r"\1 = (1.5 + math.sin(\2)) ** 0.7", r"\1\2 = (0.5 + abs(\2)) ** 1.2 * \3")
        if powers
        else (r"\1 = ruled(\2)", r"\1\2 = times(\2, \3)")
    )
    body = text.removeprefix(HELPERS)
    for old, new in zip((sine, product), news, strict=True):
        body = re.sub(old, new, body, flags=re.MULTILINE)
    return HELPERS + body


CONSTANTS = {"PLACES": np.array([4, 1, 1, 0]), "MASK": np.array([True, False, True])}
X = np.array([0.3, -0.7, 0.5, 1.1, -0.2, 0.8])
Q = 0.4


def accumulate(bar, g):
    """What the runtime's function of this name does, for adjoints that Python runs."""
    if np.ndim(g) > bar.ndim:
        g = np.sum(g, axis=tuple(range(np.ndim(g) - bar.ndim)))
    stretched = tuple(k for k in range(np.ndim(g)) if bar.shape[k] == 1 != g.shape[k])
    bar += np.sum(g, axis=stretched, keepdims=True) if stretched else g


def clear(a):
    a[...] = 0.0


def unless_zero(g, partial):
    if np.ndim(g) or np.ndim(partial):
        return np.where(partial == 0.0, 0.0, g * partial)
    return g * partial if partial else 0.0


def scatter_back(bar, index, value_bar):
    for k in reversed(range(index.size)):
        given = value_bar
        if value_bar.ndim == bar.ndim:
            given = value_bar[k : k + 1] if value_bar.shape[0] == index.size else value_bar
        accumulate(given, bar[index[k] : index[k] + 1] if bar.ndim > 1 else bar[[index[k]]])
        bar[index[k]] = 0.0


def gather_back(bar, index, g):
    np.add.at(bar, index, g)


def put_places(a, index, stack, n):
    a[index] = stack[n : n + a[index].size].reshape(a[index].shape)


def grown(stack, needed, limit):
    """Just as much room as was asked for: a store beyond it, which compiled code would not notice, raises."""
    return np.concatenate([stack, np.empty(needed - stack.size, stack.dtype)])


def separate(a, b):
    return not np.shares_memory(a, b)


def at(index):
    assert index >= 0
    return index


def plus(total, term):
    return total + term


def strong(g, partial):
    return np.where(g == 0, 0.0, np.multiply(g, partial))[()]


def strong_quotient(g, divisor):
    return np.where(g == 0, 0.0, np.divide(g, divisor))[()]


def has_nan(a):
    return bool(np.isnan(a).any())


def zeros_of(rows, columns):
    return np.zeros(columns if rows is None else (rows, columns))


def chunk_count(passes, least, private):
    """A few, each as short as it may be."""
    return max(min(3, passes // least), 1)


def interpreted(native, args, positions, order=range):
    """(value, gradients) by the generated adjoint as Python runs it, chunks of parallel loops in some order."""
    args = native.bind(args, {})
    variant = native.variant(args)
    derived = variant.derived(positions)
    if not isinstance(derived, Derived):
        return tg.value_and_grad(native, positions)(*args)
    made = derived.adjoint
    run = load_adjoint(derived.source, for_python(made.scope, order))
    stacks = [np.empty(0, int if n == "ints" else float) for n in made.stacks]
    value, *bars = run(*real_leaves(args), *(1.0 for _ in made.seeds), *stacks)
    return value, variant.joined(positions, bars[: len(derived.wanted)])


def for_python(scope, order=range):
    """What generated code names, as Python runs it."""
    scope = {k: as_python(v) for k, v in scope.items()}
    own = (accumulate, clear, unless_zero, scatter_back, gather_back, put_places, grown, separate)
    for function in (*own, chunk_count, at, plus, zeros_of, strong, strong_quotient, has_nan):
        scope[function.__name__] = function
    scope |= {"apart": separate, "zeros_like": np.zeros_like, "least": min, "soon": lambda *_: None}
    scope |= {"strong_all": strong, "strong_quotient_all": strong_quotient}
    scope |= {"prange": order, "shared": lambda f: f, "alone": lambda f: f}
    scope["part"] = lambda **options: lambda f: f
    return scope


def as_python(jitted, scopes={}):  # noqa: B006  one for all calls
    """A jitted function as Python runs it, with all that it calls: kernels have no entry for Python."""
    if not hasattr(jitted, "py_func"):
        return jitted
    f = jitted.py_func
    names = f.__globals__
    if id(names) not in scopes:
        scopes[id(names)] = dict(names)
        scopes[id(names)] |= {k: as_python(v) for k, v in names.items()}
    plain = types.FunctionType(
        f.__code__, scopes[id(names)], f.__name__, f.__defaults__, f.__closure__
    )
    plain.__kwdefaults__ = f.__kwdefaults__
    return plain


def load_adjoint(source, scope):
    exec(source, scope)
    return scope[source[len("def ") : source.index("(")]]


def skip_unless_compiled(native):
    """A program that Numba does not take as it is (a name that is an int here and a float there) has no derivative either."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            native.dispatcher(X.copy(), Q)
    except (NumbaError, ValueError) as error:  # it tells by ValueError of sums in parallel loops
        pytest.skip(f"Numba does not compile it: {error}")


def check(seed, gradient, text=None):
    text = text or Writer(seed).program()
    native, plain = load(text)
    rng = np.random.default_rng(seed)
    try:
        value, (gx, gq) = gradient(native)
    except tg.NotDifferentiable as error:
        if "snapshots" in str(error):
            pytest.skip("views that a loop with snapshots hands on; overloading has no snapshots")
        skip_unless_compiled(native)
        raise
    for _ in range(2):
        dx, dq = rng.normal(size=6), rng.normal()
        expected, slope = dual(plain, (X, Q), (dx, dq))
        assert np.isclose(value, expected, rtol=1e-9, atol=1e-9), text
        assert np.isclose(gx @ dx + gq * dq, slope, rtol=1e-8, atol=1e-8), text


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COUNT), 4))
def test_adjoint_equals_duals(seed):
    """<gradient, direction> is the derivative along the direction, and the value is the value."""
    order = range if seed % 2 else lambda n: reversed(range(n))
    check(seed, lambda f: interpreted(f, (X.copy(), Q), (0, 1), order))


@pytest.mark.usefixtures("generated_adjoint")
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COUNT // 2), 3))
def test_stencils_equal_duals(seed):
    """The same, of stencils."""
    check(seed, lambda f: interpreted(f, (X.copy(), Q), (0, 1)), stencils(seed))


@pytest.mark.long(but=2)
@pytest.mark.usefixtures("generated_adjoint")
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COUNT // 4), 2))
@pytest.mark.parametrize("powers", [True, False], ids=["powers", "rules by hand"])
def test_what_the_reverse_takes_as_it_was_equals_duals(seed, powers):
    """The same, of results that are not computed again, under names that are bound anew."""
    text = replaced(Writer(seed).program(), powers)
    check(seed, lambda f: interpreted(f, (X.copy(), Q), (0, 1)), text)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + OVERLOADED)))
def test_overloading_equals_duals(seed):
    """The same, by the second engine, which compiles the program itself: those that Numba does not take as they are have none."""

    def gradient(f):
        skip_unless_compiled(f)
        return tg.value_and_grad(tg.njit(f.py_func, mode="overload"), (0, 1))(X.copy(), Q)

    check(seed, gradient)


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COMPILED)))
def test_compiled_adjoint_equals_duals(seed):
    """The same, of compiled code."""
    check(seed, lambda f: tg.value_and_grad(f, (0, 1))(X.copy(), Q))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COMPILED)))
def test_whichever_engine_has_it_equals_duals(seed):
    """The same, by the program form where the program lies in it."""
    check(seed, lambda f: tg.value_and_grad(f, (0, 1))(X.copy(), Q))
