"""Emission: LLVM IR of a schedule, with explicit vectors.

`body(schedule)` writes one function of pointers (arguments, constants, outputs, scratch) whose loops are the schedule's groups and
nests. The innermost loop of a nest goes over `lanes` entries at a time, then one by one; a short one is written out. An expression of
outer indices only is computed there (each loop depth has its own text and its own memo). Where regions begin and end the
loops are cut, so that inside a piece every region is decided.

Operations round as NumPy's do. Were a multiplication and an addition made one instruction in some loops, an expression that two loops
compute would have two values, and the largest of x * y would be none of them for the rule of a maximum. Only sums over axes
may be taken in any order, with products as part of them: `reassoc contract`. Nothing changes what NaN, infinities and signed zeros do.

A shared group is a function of its own, `share`, of (frame, chunk, who): pointers come in the frame, `who` tells the memory for blocks.

Invariant: a value's text stands in a loop that encloses every use, before it.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import vecmath
from ..core import checking
from ..llvm import named
from ..vecmath import expression
from ..vecmath.expression import select
from . import clocks, sanitizer
from .arithmetic import OPERATIONS, TYPES, Declared, Here, cast, remainder, whole_remainder
from .arrays import B1, F4, F8, I4, I8, SHARE, STRONG, Map, Op, composed
from .pairs import STEPS, Pair
from .schedule import (
    Group,
    Nest,
    Schedule,
    Walk,
    base,
    gathered_maps,
    identity,
    inside_maps,
    kept_maps,
    row_axis,
)

UNLIKELY = "!0"
"""Metadata of a branch that is not taken but for rare values (native.py)."""

WRITTEN_OUT = 8
"""Vectors of an innermost loop that are written one after the other instead of looped over."""

REGISTERS = 2
"""Vectors of sums in registers at once, for each entry of a vector: half of the registers that there are."""

MOST_AT_ONCE = 8
"""Rows of sums that one turn computes at most."""

MOST_WRITTEN = 160
"""Instructions, about, in a loop that is written out."""

LARGE = 1 << 20
"""Bytes of an argument above which it comes from memory, about."""

LONGEST_ROW = 512
"""Bytes of a row up to which loops over rows fetch the next ones."""

LINE = 64
"""Bytes of a line of the cache."""

LIBM = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
    "power": "pow", "gammaln": "lgamma",
}  # fmt: skip


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


def _in_memory(dtype: np.dtype) -> str:
    """LLVM's name of the type that an entry has in memory, where booleans are bytes."""
    return "i8" if dtype == B1 else TYPES[dtype]


def literal(value: Any, dtype: np.dtype) -> str:
    """A constant's text, floats by their bits."""
    if dtype == B1:
        return "true" if value else "false"
    if dtype in (I8, I4):
        return str(int(value))
    with np.errstate(all="ignore"):
        number = float(np.float32(value)) if dtype == F4 else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


class Scope:
    """The text of one loop depth, and what has been computed in it."""

    __slots__ = ("lines", "memo")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.memo: dict[Any, Any] = {}


class Body:
    """Writes the function of one schedule."""

    def __init__(
        self, schedule: Schedule, lanes: int, step: bool = False, number: str = ""
    ) -> None:
        """An empty body: buffers, loops and functions of a schedule are added as they are written."""
        self.schedule = schedule
        self.step = step
        """Whether it is a step of a loop, whose next turn waits for what it computes."""
        self.widest = lanes
        self.number = number
        """Before the numbers of shared groups, where a module has several such functions."""
        self.count = 0
        self.allocas: list[str] = []
        self.declared = Declared()
        self.functions: dict[str, str] = {}
        self.scopes = [Scope()]
        self.loops: list[str] = []  # a listing for people
        self.made_at: dict[str, int] = {}  # the loop depth of each value's text
        self.floor = 0  # the first loop depth of the nest that is written
        self.shares: list[str] = []  # functions of shared groups
        self.accumulators: dict[int, dict[int, str]] = {}  # of sums: registers by their lanes
        self.split: set[int] = set()  # reductions that go to a chunk's part now
        sums = [op for op in schedule.roots.values() if op.kind == "reduce"]
        self.summed = {op.inputs[0].number for op in sums}  # what a sum reads

    # ------------------------------------------------------------------------------------ text

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def line(self, text: str) -> None:
        self.scopes[-1].lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The name of what an instruction computes; one without effects that was computed here before is not written again."""
        if text.startswith(_NOT_PURE):
            return self._written(text)
        return self._pure(text)

    def _written(self, text: str) -> str:
        """The name of what an instruction computes at this place, whatever else computes the same."""
        name = self.name()
        self.line(f"{name} = {text}")
        self.made_at[name] = len(self.scopes) - 1
        return name

    @contextmanager
    def _own_scope(self) -> Iterator[None]:
        """What is written meanwhile is as deep as in a loop, without one."""
        self.scopes.append(Scope())
        yield
        scope = self.scopes.pop()
        self.scopes[-1].lines += scope.lines

    def run(self) -> str:
        """The text of the function's inside."""
        for group in self.schedule.groups:
            self._group(group)
        assert len(self.scopes) == 1
        return "\n".join([*self.allocas, *self.scopes[0].lines])

    def loop(self, low: str, high: str, step: int, inside: Callable[[str], None]) -> None:
        """`for i in range(low, high, step)`; the bounds are numbers or names."""
        self.count += 1
        k = self.count
        scope = Scope()
        self.scopes.append(scope)
        inside(f"%i{k}")
        self.scopes.pop()
        lines = self.scopes[-1].lines
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

    # ------------------------------------------------------------------------------------ groups

    def _group(self, group: Group) -> None:
        if group.chunks > 1:
            self._shared(group)
            return
        for op in group.over_rows:
            self._initialised(op)
        self.block_low = "0"
        if group.block >= group.rows:
            for nest in group.nests:
                self._nest(nest, group, "0", str(nest.rows))
            return

        self.loops.append(f"for rows in range(0, {group.rows}, {group.block}):")
        self.loop("0", str(group.rows), group.block, lambda low: self._block(group, low))

    def _block(self, group: Group, low: str) -> None:
        """All nests of a group, for the rows of one block."""
        high = self._smaller(self.let(f"add nsw i64 {low}, {group.block}"), group.rows)
        self.block_low = low
        for op in (x for nest in group.nests for x in nest.roots):
            if op.number in self.schedule.blocks:  # nothing of the block before counts
                size = math.prod(self._shape(op)) * op.dtype.itemsize
                text = f"fill {self.pointer(op)} 0 {size} {sanitizer.entry_of(op.dtype)}"
                self.scopes[-1].lines += sanitizer.said(text)
        for nest in group.nests:
            self._nest(nest, group, low, high)

    def _smaller(self, name: str, limit: int) -> str:
        below = self.let(f"icmp slt i64 {name}, {limit}")
        return self.let(f"select i1 {below}, i64 {name}, i64 {limit}")

    def _shared(self, group: Group) -> None:
        """A group as a function of the chunk, and a call by which threads share its chunks."""
        k = f"{self.number}{len(self.shares)}"
        partial = self.schedule.partial
        outside = self.scopes, self.allocas
        self.scopes, self.allocas = [Scope()], []
        self.split = {op.number for op in group.over_rows}
        for op in group.over_rows:
            at = self.let(f"mul nsw i64 %chunk, {partial[op.number][1]}")
            self.line(f"%mine{op.number} = getelementptr i8, ptr %part{op.number}, i64 {at}")
            size, entry = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
            self.scopes[-1].lines += sanitizer.buffer(
                f"%mine{op.number}", size, entry, f"a chunk's part of {op!r}"
            )
            self._initialised(op)
        self.loops.append(
            f"for rows in range(0, {group.rows}, {group.block}), in {group.chunks} chunks shared by threads:"
        )
        low = self.let(f"mul nsw i64 %chunk, {group.share}")
        high = self._smaller(self.let(f"add nsw i64 {low}, {group.share}"), group.rows)
        self.loop(low, high, group.block, lambda low: self._block(group, low))
        inside = "\n".join([*self.allocas, *self.scopes[0].lines])
        self.split = set()
        self.scopes, self.allocas = outside
        names = sorted(set(re.findall(r"%(?:in|const|out|mem|part)\d+\b", inside)))
        own = {f"%mem{n}": at for n, (where, at) in self.schedule.memory.items() if where == "own"}
        given = [name for name in names if name not in own]
        self.shares.append(
            _share(k, names, given, own, self.schedule.own, inside, self._sizes(names))
        )
        self.allocas.append(f"  %frame{k} = alloca [{len(given) + 1} x ptr]")
        for i, name in enumerate(["%threads_own", *given]):
            at = self.let(f"getelementptr ptr, ptr %frame{k}, i64 {i}")
            self.line(f"store ptr {name}, ptr {at}")
        self.line(
            f"call void @tg_share(ptr @share{k}, ptr %frame{k}, i64 {group.chunks}, i64 %team)"
        )
        for op in group.over_rows:
            self._initialised(op)
            self._collected(op, group.chunks)

    def _sizes(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Bytes of what names stand for, and of an entry there, for checked mode: in a frame they lose their bounds."""
        if not checking.on():
            return {}
        schedule = self.schedule
        found = {}
        for op in operands_of(schedule):
            size, entry = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
            if op.kind in ("input", "array"):
                found[self.pointer(op)] = size, 0
            elif op.number in schedule.memory:
                shape = math.prod(self._shape(op)) * op.dtype.itemsize
                found[self.pointer(op)] = shape, entry
            if op.number in schedule.partial:
                chunks = next(g.chunks for g in schedule.groups if op in g.over_rows)
                found[f"%part{op.number}"] = schedule.partial[op.number][1] * chunks, entry
        for k, op in enumerate(schedule.outputs):
            found[f"%out{k}"] = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
        return {name: found[name] for name in names}

    def _collected(self, op: Op, chunks: int) -> None:
        """Add up the parts of a reduction, in the order of the chunks."""
        lanes = self.widest if op.size >= self.widest else 1
        even = op.size // lanes * lanes
        kind = TYPES[op.dtype]

        def one(chunk: str) -> None:
            """Add one chunk's part to the result of the sum."""
            at = self.let(f"mul nsw i64 {chunk}, {self.schedule.partial[op.number][1]}")
            part = self.let(f"getelementptr i8, ptr %part{op.number}, i64 {at}")
            size, entry = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
            self.scopes[-1].lines += sanitizer.buffer(
                part, size, entry, f"a chunk's part of {op!r}"
            )

            def entries(i: str, n: int) -> None:
                to, at = (
                    self.let(f"getelementptr {kind}, ptr {pointer}, i64 {i}")
                    for pointer in (self.pointer(op), part)
                )
                self._more(op, to, self._read(at, op.dtype, n))

            self.loop("0", str(even), lanes, lambda i: entries(i, lanes))
            if even < op.size:
                self.loop(str(even), str(op.size), 1, lambda i: entries(i, 1))

        self.loop("0", str(chunks), 1, one)

    def _initialised(self, op: Op) -> None:
        """Fill a reduction's memory with what changes nothing."""
        self._filled_between(op, "0", str(op.size), op.size)

    # ------------------------------------------------------------------------------------ nests

    def _nest(self, nest: Nest, group: Group, low: str, high: str) -> None:
        """Write one loop nest, between two readings of the clock where somebody asked for them."""
        self.nest = nest
        self.group = group
        if checking.on():
            stored = [*nest.roots, *(op for op, _ in nest.copies)]
            self.scopes[-1].lines += sanitizer.said(f"at {', '.join(map(repr, stored))}")
        walk = self._walk(nest)
        if any(n == 0 for n in nest.space):
            return
        lines, shared = self.scopes[-1].lines, group.chunks > 1
        with clocks.read(lines, lambda: clocks.place_of(nest, walk), shared):
            self._boxes(nest, group, walk, low, high)

    def _boxes(self, nest: Nest, group: Group, walk: Walk, low: str, high: str) -> None:
        """Write a nest's loops: its axes, absorbed axes as one loop, cut into pieces where an expression changes."""
        space = nest.space
        absorbed = self._absorbed(nest, walk)
        self.loops.append(_listing(nest, absorbed))
        axes = [i for i in range(len(space)) if i not in absorbed and (space[i] != 1 or i == 0)]
        extents = []
        for i in axes:
            n = space[i]
            k = i - 1
            while k in absorbed:
                n *= space[k]
                k -= 1
            extents.append(n)
        self.axes = axes
        self.extents = dict(zip(axes, extents, strict=True))
        self.lanes = self._lanes(walk)
        self.next = self._read_next(group, walk)
        work = sum(
            3 if op.attr not in vecmath.FUNCTIONS else 40
            for op in walk.evaluated.values()
            if op.kind == "elem"
        )
        self.written_out = max(2, min(WRITTEN_OUT, MOST_WRITTEN // max(work, 1)))
        cuts = []
        for i, n in zip(axes, extents, strict=True):
            edges = sorted(e for e in walk.breaks.get(i, ()) if 0 < e < n)
            cuts.append(list(itertools.pairwise([0, *edges, n])))
        # Accumulators of full reductions live through all pieces.
        whole = self._rows_are_dynamic(group)
        level, ratio = -1, 1
        if whole:
            level = axes.index(_joined_to(nest.along, absorbed))
            ratio = extents[level] // nest.rows
        lows, highs = self._times(low, ratio), self._times(high, ratio)
        self.cut_axes = {i for i, c in zip(axes, cuts, strict=True) if len(c) > 1}
        known = bool(cuts) and level != len(axes) - 1
        self.in_rows = known and all(self._is_written(b - a) for a, b in cuts[-1])
        self.pieces = {}
        for op in nest.sums:
            if nest.along not in op.attr[1] and not self._stored_once(op):
                self._filled(op, low, high)
        for piece in itertools.product(*cuts):
            bounds: list[tuple[Any, Any]] = [(str(a), str(b)) for a, b in piece]
            if level >= 0:
                bounds[level] = self._clipped(bounds[level], lows, highs, extents[level])
            self.pieces = dict(zip(axes, piece, strict=True))
            self._piece(nest, bounds)

    def _walk(self, nest: Nest) -> Walk:
        """What a nest reads and evaluates."""
        walk = Walk(self.schedule.roots.keys())  # type: ignore[arg-type]
        for op in nest.roots:
            walk.into(op, identity(op.shape), top=True)
        for op, _ in nest.copies:
            walk.into(op, identity(op.shape))
        return walk

    def _read_next(self, group: Group, walk: Walk) -> list[Op]:
        """Large arguments of which other nests of a group read rows: one that computes much, and reads none, fetches the next."""
        if not self._rows_are_dynamic(group) or self.axes != [0] or not _is_heavy(walk):
            return []
        reads = [op for other in group.nests for op, _ in self._walk(other).reads]
        mine = {op.number for op, _ in walk.reads}
        found = {}
        for op in reads:
            if op.kind == "input" and op.number not in mine and op.shape[:1] == (group.rows,):
                size = op.size * op.dtype.itemsize
                if size > LARGE and size // group.rows <= LONGEST_ROW:
                    found[op.number] = op
        return list(found.values())

    def _fetched(self, op: Op, lanes: int) -> None:
        """Bring rows of an argument, which the next block reads, from memory to the cache while this one computes."""
        rest = [(0, -1, 0)] * (len(op.shape) - 1)
        strides = contiguous(op.shape)
        first = self._element(
            self.pointer(op), op.dtype, [(self.group.block, 0, 1), *rest], strides
        )
        self.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for at in range(0, lanes * strides[0] * op.dtype.itemsize, LINE):
            line = self.let(f"getelementptr i8, ptr {first}, i64 {at}")
            self.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")

    def _rows_are_dynamic(self, group: Group) -> bool:
        return 0 < group.block < group.rows

    def _clipped(
        self, bounds: tuple[str, str], low: str, high: str, extent: int
    ) -> tuple[str, str]:
        """The part of a piece of the axis of rows that lies in this block."""
        a, b = bounds
        if a != "0":
            more = self.let(f"icmp sgt i64 {a}, {low}")
            a = self.let(f"select i1 {more}, i64 {a}, i64 {low}")
        else:
            a = low
        if b != str(extent):
            less = self.let(f"icmp slt i64 {b}, {high}")
            b = self.let(f"select i1 {less}, i64 {b}, i64 {high}")
        else:
            b = high
        return a, b

    def _lanes(self, walk: Walk) -> int:
        if not self.axes:
            return 1
        dtypes = {op.dtype for op in walk.evaluated.values()} | {op.dtype for op, _ in walk.reads}
        wide = self.widest * (2 if F8 not in dtypes and I8 not in dtypes else 1)
        work = sum(1 for op in walk.evaluated.values() if op.kind == "elem")
        return wide * 2 if work <= 10 and not _is_heavy(walk) else wide

    def _absorbed(self, nest: Nest, walk: Walk) -> set[int]:
        """Axes that one loop covers together with the axis after them: all that is read or written there is contiguous."""
        space = nest.space
        accesses: list[list[int]] = []
        for op, maps in walk.reads:
            accesses.append(self._coefficients(op, maps, len(space)))
        for op in nest.stores:
            accesses.append(self._coefficients(op, identity(op.shape), len(space)))
        for op, _ in nest.copies:
            accesses.append(_strided(identity(op.shape), contiguous(op.shape), len(space)))
        for op in nest.sums:
            accesses.append(self._coefficients(op, kept_maps(op), len(space)))
        absorbed: set[int] = set()
        for i in range(len(space) - 1):
            j = i + 1
            if space[j] == 1 or walk.breaks.get(i) or walk.breaks.get(j):
                continue  # there is no loop over one entry
            if j == nest.along:
                continue  # of which a block has a part
            reduced = {(i in op.attr[1], j in op.attr[1]) for op in nest.sums}
            if any(a != b for a, b in reduced):
                continue
            if all(c[i] == c[j] * space[j] for c in accesses):
                absorbed.add(i)
        return absorbed

    def _coefficients(self, op: Op, maps: Sequence[Map], n: int) -> list[int]:
        return _strided(maps, self._strides(op), n)

    # ------------------------------------------------------------------------------------ one piece

    def _piece(self, nest: Nest, bounds: list[tuple[str, str]]) -> None:
        """Write a nest over a box of indices, in which each expression has one form."""
        self.variables: dict[int, tuple[str, int]] = {}
        self.depth_of: dict[int, int] = {}
        base_depth = len(self.scopes)
        self.floor = base_depth
        self.rows: dict[int, dict[tuple[str, int], str]] = {}  # sums in registers now
        self.together: tuple[int, list[str]] = (-1, [""])  # an axis, and its indices of one turn
        if not self.axes:
            with self._own_scope():
                self._innermost(nest, 1)
            return
        with self._own_scope():
            self._level(nest, bounds, 0)

    def _level(self, nest: Nest, bounds: list[tuple[str, str]], level: int) -> None:
        """Write the loop over axis `level` of a nest, with the accumulators that begin there, and what is inside."""
        axis = self.axes[level]
        low, high = bounds[level]
        starting = [op for op in nest.sums if self._first_reduced(op) == level]
        accumulators = [self._accumulator(op) for op in starting]
        chunks = self._written_chunks(bounds)
        for op in nest.sums:
            if chunks and self._row_begins(op) == level:
                starting.append(op)
                accumulators.append(self._row_accumulator(op, chunks))
        last = level == len(self.axes) - 1
        if not last:

            def inside(i: str) -> None:
                self.variables[axis] = (i, 1)
                self.depth_of[axis] = len(self.scopes) - 1
                self._level(nest, bounds, level + 1)

            if low.isdigit() and high.isdigit() and int(high) - int(low) == 1:
                self.variables[axis] = (low, 1)
                self.depth_of[axis] = len(self.scopes) - 1
                with self._own_scope():
                    self._level(nest, bounds, level + 1)
            else:
                n = self._at_once(nest, level, chunks, low, high)

                def several(i: str, count: int = n) -> None:
                    more = [self.let(f"add nsw i64 {i}, {k}") for k in range(1, count)]
                    self.together = axis, [i, *more]
                    inside(i)
                    self.together = -1, [""]

                border = low if n == 1 else self._border(axis, low, high, n)
                if border != low:
                    self.loop(low, border, n, several)
                if border != high and n > 1 and border.isdigit() and high.isdigit():
                    rest = int(high) - int(border)
                    self.loop(border, high, rest, lambda i: several(i, rest))
                elif border != high:
                    self.loop(border, high, 1, inside)
        else:
            self._innermost_loops(nest, axis, low, high)
        for op, finish in zip(starting, accumulators, strict=True):
            finish(op)

    def _innermost_loops(self, nest: Nest, axis: int, low: str, high: str) -> None:
        """Write the innermost axis: vectors of `self.lanes` entries, then the rest."""

        def at(i: str, lanes: int) -> None:
            self.variables[axis] = (i, lanes)
            self.depth_of[axis] = len(self.scopes) - 1
            for _ in self._indices_at_once():
                self._innermost(nest, lanes)

        if low.isdigit() and high.isdigit():
            start, stop = int(low), int(high)
            chunks = _chunks(stop - start, self.lanes)
            if self._is_written(stop - start):
                for lanes in chunks:
                    with self._own_scope():
                        at(str(start), lanes)
                    start += lanes
                return
            middle = start + (stop - start) // self.lanes * self.lanes
            if middle > start:
                self.loop(low, str(middle), self.lanes, lambda i: at(i, self.lanes))
            for lanes in _chunks(stop - middle, self.lanes):
                with self._own_scope():
                    at(str(middle), lanes)
                middle += lanes
            return
        border = self._border(axis, low, high, self.lanes)
        self.loop(low, border, self.lanes, lambda i: at(i, self.lanes))
        if border != high:
            self.loop(border, high, 1, lambda i: at(i, 1))

    def _is_written(self, entries: int) -> bool:
        """Whether so many entries of the innermost axis are written out."""
        return entries <= self.written_out * self.lanes

    def _border(self, axis: int, low: str, high: str, n: int) -> str:
        """Where turns of n indices end (n is a power of two); `high` itself if there are no others."""
        if low.isdigit() and high.isdigit():
            return str(int(high) - (int(high) - int(low)) % n)
        # Bounds that are not known now are those of a block of rows.
        start, stop = self.pieces[axis]
        per_row = self.extents[axis] // self.nest.rows
        edges = (start, stop, self.group.block * per_row, self.group.rows * per_row)
        if all(edge % n == 0 for edge in edges):
            return high
        length = self.let(f"sub nsw i64 {high}, {low}")
        positive = self.let(f"icmp sgt i64 {length}, 0")
        length = self.let(f"select i1 {positive}, i64 {length}, i64 0")
        even = self.let(f"and i64 {length}, {-n}")
        return self.let(f"add nsw i64 {low}, {even}")

    def _at_once(
        self, nest: Nest, level: int, chunks: Sequence[tuple[int, int]], low: str, high: str
    ) -> int:
        """How many indices of an axis one turn computes: more than 1 where rows of sums are in registers, as in a product of matrices.

        So what all of them read is loaded once, and there are sums enough for the additions not to wait for one another. Where the
        number of indices is known, all turns have about as many: ten in two turns of five, as in one of eight the last two would wait.
        """
        if not chunks or nest.roots != nest.sums[:1] or nest.copies:
            return 1
        if self._row_begins(nest.sums[0]) != level + 1:
            return 1
        entries = sum(lanes for _, lanes in chunks) * nest.sums[0].dtype.itemsize // F4.itemsize
        most = min(2 * REGISTERS * self.widest**2 // entries, MOST_AT_ONCE)
        if most < 2:
            return 1
        if low.isdigit() and high.isdigit():
            indices = max(int(high) - int(low), 1)
            return -(-indices // -(-indices // most))
        return 1 << most.bit_length() - 1

    def _indices_at_once(self) -> Iterator[str]:
        """Each index of a turn, as the one that values are computed at."""
        axis, names = self.together
        for name in names:
            if axis >= 0:
                self.variables[axis] = (name, 1)
            yield name

    # ------------------------------------------------------------------------------------ reductions

    def _reduced_levels(self, op: Op) -> list[int]:
        axes = op.attr[1]
        return [k for k, axis in enumerate(self.axes) if axis in axes]

    def _first_reduced(self, op: Op) -> int:
        """The loop before which an accumulator of this sum begins: that of the last run of reduced axes."""
        if op.kind == "scatter":
            return -3  # each entry has a place of its own
        levels = self._reduced_levels(op)
        if not levels:
            return -1
        if levels[-1] != len(self.axes) - 1:
            return -2  # the innermost axis is kept: it accumulates in memory
        first = levels[-1]
        while first - 1 in levels:
            first -= 1
        return first

    def _accumulator(self, op: Op) -> Callable[[Op], None]:
        """Registers for a sum over the innermost axes: set here, added to its memory after the loops."""
        width = self.lanes
        names = {}
        while width:
            names[width] = self._register(op, width)
            width //= 2
        self.accumulators[op.number] = names

        def finish(op: Op) -> None:
            total = None
            for width, name in names.items():
                part = self._across(op, self._read(name, op.dtype, width))
                total = part if total is None else self._combined(op, total, part)
            assert total is not None
            self._added(op, total)

        return finish

    def _register(self, op: Op, lanes: int) -> str:
        """A place for a part of a sum, with what changes nothing in it."""
        name, kind = self.name("acc"), typed(op.dtype, lanes)
        self.allocas.append(f"  {name} = alloca {kind}, align 64")
        self.line(
            f"store {kind} {_splat(literal(_neutral(op), op.dtype), op.dtype, lanes)}, ptr {name}"
        )
        return name

    def _written_chunks(self, bounds: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
        """(start, lanes) of each vector of the innermost loop, if that is written out; else nothing."""
        low, high = bounds[-1]
        if not (low.isdigit() and high.isdigit()):
            return []
        start, stop = int(low), int(high)
        if not self._is_written(stop - start):
            return []
        chunks = []
        for lanes in _chunks(stop - start, self.lanes):
            chunks.append((start, lanes))
            start += lanes
        return chunks

    def _row_begins(self, op: Op) -> int:
        """The loop before which a sum that keeps the innermost axis, and sums over those around it, may begin in registers."""
        if self._first_reduced(op) != -2:
            return -1
        levels = self._reduced_levels(op)
        first = len(self.axes) - 1
        while first - 1 in levels:
            first -= 1
        return first if first < len(self.axes) - 1 else -1

    def _row_accumulator(self, op: Op, chunks: Sequence[tuple[int, int]]) -> Callable[[Op], None]:
        """Registers for a row of sums, a vector for each written-out step of the innermost loop; added to memory after the loops."""
        names = {
            (index, start): self._register(op, lanes)
            for index, (start, lanes) in itertools.product(self.together[1], chunks)
        }
        self.rows[op.number] = names

        def finish(op: Op) -> None:
            axis = self.axes[-1]
            self.depth_of[axis] = len(self.scopes) - 1
            for index in self._indices_at_once():
                for start, lanes in chunks:
                    self.variables[axis] = (str(start), lanes)
                    self._added(op, self._read(names[index, start], op.dtype, lanes))
            del self.rows[op.number]

        return finish

    def _across(self, op: Op, value: Value) -> Value:
        """One number from the lanes of a vector."""
        if value.lanes == 1:
            return value
        name = op.attr[0]
        suffix = f"v{value.lanes}{_overload(op.dtype)}"
        if op.dtype.kind == "f" and name in ("add", "multiply"):
            word = {"add": "fadd", "multiply": "fmul"}[name]
            start = literal(_neutral(op), op.dtype)
            element = TYPES[op.dtype]
            self.declare(
                f"declare {element} @llvm.vector.reduce.{word}.{suffix}({element}, {value.type})"
            )
            text = self.let(
                f"call reassoc {element} @llvm.vector.reduce.{word}.{suffix}({element} {start}, {value.type} {value.text})"
            )
            return Value(text, op.dtype, 1)
        half = value
        while half.lanes > 1:
            n = half.lanes // 2
            low = self._shuffled(half, range(n))
            upper = self._shuffled(half, range(n, 2 * n))
            half = self._combined(op, low, upper)
        return half

    def _shuffled(self, value: Value, picks: Sequence[int]) -> Value:
        if len(picks) == 1:
            return Value(
                self.let(f"extractelement {value.type} {value.text}, i32 {picks[0]}"),
                value.dtype,
                1,
            )
        mask = ", ".join(f"i32 {p}" for p in picks)
        text = self.let(
            f"shufflevector {value.type} {value.text}, {value.type} poison, <{len(picks)} x i32> <{mask}>"
        )
        return Value(text, value.dtype, len(picks))

    def _combined(self, op: Op, a: Value, b: Value) -> Value:
        """Two partial results of a reduction as one."""
        name = op.attr[0]
        if name in ("maximum", "minimum"):
            return self._operation(name, [a, b], a.dtype)
        word = {"add": "add", "multiply": "mul"}[name]
        flags = "f" + word + " reassoc contract" if op.dtype.kind == "f" else word
        return Value(self.let(f"{flags} {a.type} {a.text}, {b.text}"), a.dtype, a.lanes)

    def _added(self, op: Op, value: Value) -> None:
        """Combine a value with what a reduction's memory holds; or store it, if it is the first and only one."""
        maps = kept_maps(op)
        pointer = self._address(op, maps)
        if self._stored_once(op):
            self._write(value, pointer)
        else:
            self._more(op, pointer, value)

    def _stored_once(self, op: Op) -> bool:
        """Whether registers hold the whole of a sum, so that its memory is written once and read never."""
        if self.nest.along in op.attr[1]:
            return False
        first, last = self._first_reduced(op), len(self.axes)
        if first == -2 and self.in_rows:
            first, last = self._row_begins(op), last - 1
        levels = self._reduced_levels(op)
        return (
            first >= 0
            and levels == list(range(levels[0], last))
            and not any(self.axes[level] in self.cut_axes for level in levels)
        )

    def _filled(self, op: Op, low: str, high: str) -> None:
        """Fill the rows of this block in a reduction's memory with what changes nothing."""
        along = row_axis(op, self.nest.along)
        if along is None or op.number in self.schedule.blocks:
            shape = self._shape(op)
            self._filled_between(op, "0", str(math.prod(shape)), math.prod(shape))
            return
        row = math.prod(op.shape[along + 1 :])

        def rows(before: str) -> None:
            start = self._times(before, op.shape[along])
            ends = (
                self.let(f"add nsw i64 {start}, {end}") if start != "0" else end
                for end in (low, high)
            )
            first, last = (self._times(end, row) for end in ends)
            self._filled_between(op, first, last, row)

        outer = math.prod(op.shape[:along])
        if outer == 1:
            rows("0")
        else:
            self.loop("0", str(outer), 1, rows)

    def _times(self, name: str, factor: int) -> str:
        """A number of rows as one of entries."""
        if factor == 1:
            return name
        return (
            str(int(name) * factor) if name.isdigit() else self.let(f"mul nsw i64 {name}, {factor}")
        )

    def _filled_between(self, op: Op, first: str, last: str, unit: int) -> None:
        """Fill entries of a reduction's memory, of which there are a multiple of `unit`, with what changes nothing."""
        lanes = next(n for n in (self.widest, 4, 2, 1) if unit % n == 0)
        neutral = literal(_neutral(op), op.dtype)
        kind, pointer = TYPES[op.dtype], self.pointer(op)

        def vector(i: str, lanes: int) -> None:
            at = self.let(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {i}")
            self._write(Value(_splat(neutral, op.dtype, lanes), op.dtype, lanes), at)

        self.loop(first, last, lanes, lambda i: vector(i, lanes))

    # ------------------------------------------------------------------------------------ the inside

    def _innermost(self, nest: Nest, lanes: int) -> None:
        """Write the stores and sums of a nest at the current indices, for `lanes` entries at once."""
        maps = identity(nest.space)
        for op in nest.stores:
            if op.kind == "complex":
                self._side_by_side(op, self._address(op, maps), lanes, maps)
                continue
            value = self._root_value(op, maps)
            self._store(self._address(op, maps), value, lanes, maps)
        for op in nest.sums:
            if op.kind == "scatter":
                self._scattered(op, maps, lanes)
                continue
            value = self._spread(self.value(op.inputs[0], maps), lanes)
            if self._first_reduced(op) == -2 and op.number not in self.rows:
                self._added(op, value)
            elif self._first_reduced(op) == -2:
                index = self.variables.get(self.together[0], ("", 1))[0]
                start = int(self.variables[self.axes[-1]][0])
                self._more(op, self.rows[op.number][index, start], value)
            elif self._first_reduced(op) == -1:  # every reduced axis has length 1
                self._added(op, value)
            else:
                self._more(op, self.accumulators[op.number][value.lanes], value)
        for op in self.next if lanes > 1 else ():
            self._fetched(op, lanes)
        for op, k in nest.copies:
            pointer = self._element(f"%out{k}", op.dtype, maps, contiguous(op.shape))
            if op.kind == "complex":
                self._side_by_side(op, pointer, lanes, maps)
                continue
            value = self.value(op, maps)
            self._store(pointer, value, lanes, maps)

    def _side_by_side(self, op: Op, pointer: str, lanes: int, maps: tuple[Map, ...]) -> None:
        """Store real and imaginary parts, in turn."""
        parts = [self.value(x, maps) for x in op.inputs]
        if not self._varies(maps):
            lanes = 1
        re, im = (self._spread(x, lanes) for x in parts)
        if lanes == 1:
            second = self.let(f"getelementptr {TYPES[re.dtype]}, ptr {pointer}, i64 1")
            self._write(re, pointer)
            self._write(im, second)
            return
        mask = ", ".join(f"i32 {i}, i32 {lanes + i}" for i in range(lanes))
        text = self.let(
            f"shufflevector {re.type} {re.text}, {im.type} {im.text}, <{2 * lanes} x i32> <{mask}>"
        )
        self._write(Value(text, re.dtype, 2 * lanes), pointer)

    def _places(
        self, op: Op, indices: Sequence[Op], maps: Sequence[Map], rest: Sequence[Any]
    ) -> tuple[list[str], int]:
        """Addresses in the memory of `op`, of each lane or (where all have the same place) of the first, and how far apart lanes are else.

        `maps` are those of the indices, `rest` those of op, whose indexed axes have no place yet (a step of None).
        """
        axes = [i for i, (_, _, step) in enumerate(rest) if step is None]
        strides = self._strides(op)
        places = [self.value(index, tuple(maps)) for index in indices]
        lanes = max(place.lanes for place in places)
        known = [(0, -1, 0) if m[2] is None else m for m in rest]
        first = self._address(op, known)
        kind = _in_memory(op.dtype)
        vector = self.axes[-1] if self.axes else -1
        stride = sum(s * k for (_, a, s), k in zip(known, strides, strict=True) if a == vector)
        names = []
        for lane in range(lanes):
            pointer = first
            for place, axis in zip(places, axes, strict=True):
                one = place.text
                if place.lanes > 1:
                    one = self.let(f"extractelement {place.type} {place.text}, i32 {lane}")
                if strides[axis] != 1:
                    one = self.let(f"mul nsw i64 {one}, {strides[axis]}")
                pointer = self.let(f"getelementptr {kind}, ptr {pointer}, i64 {one}")
            if lane * stride:
                pointer = self.let(f"getelementptr {kind}, ptr {pointer}, i64 {lane * stride}")
            names.append(pointer)
        return names, stride

    def _gathered_entries(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """Entries at places that are values."""
        x, *indices = op.inputs
        before = maps[: len(indices[0].shape)]
        names, stride = self._places(x, indices, before, gathered_maps(op, maps))
        kind = _in_memory(op.dtype)
        lanes = len(names)
        if lanes == 1 and stride and self.variables[self.axes[-1]][1] > 1:
            lanes = self.variables[self.axes[-1]][1]
            if stride == 1:
                return self._read(names[0], op.dtype, lanes)
            names = [
                self.let(f"getelementptr {kind}, ptr {names[0]}, i64 {i * stride}")
                for i in range(lanes)
            ]
        if lanes == 1:
            return self._read(names[0], op.dtype, 1)
        return self._put_together(names, op.dtype)

    def _put_together(self, pointers: Sequence[str], dtype: np.dtype) -> Value:
        """A vector of the entries at these addresses."""
        kind, text = _in_memory(dtype), "poison"
        vector = f"<{len(pointers)} x {kind}>"
        for i, pointer in enumerate(pointers):
            one = self.let(f"load {kind}, ptr {pointer}, align {dtype.itemsize}")
            text = self.let(f"insertelement {vector} {text}, {kind} {one}, i32 {i}")
        return self._truth(text, dtype, len(pointers))

    def _truth(self, text: str, dtype: np.dtype, lanes: int) -> Value:
        """What was loaded, as a value: booleans lie in memory as bytes."""
        if dtype == B1:
            kind = "i8" if lanes == 1 else f"<{lanes} x i8>"
            text = self.let(f"icmp ne {kind} {text}, {'0' if lanes == 1 else 'zeroinitializer'}")
        return Value(text, dtype, lanes)

    def _scattered(self, op: Op, maps: tuple[Map, ...], lanes: int) -> None:
        """Add entries where they belong, one after the other: two of them may have the same place."""
        g, *indices = op.inputs
        value = self._spread(self.value(g, maps), lanes)
        depth = len(indices[0].shape)
        kept = iter(maps[depth:])
        rest = [(0, -1, None) if i in op.attr[2] else next(kept) for i in range(len(op.shape))]
        names, stride = self._places(op, indices, maps[:depth], rest)
        if lanes > 1 and len(names) == 1 and stride == 1:
            self._more(op, names[0], value)
            return
        if lanes > 1 and len(names) == 1:
            names = [
                self.let(f"getelementptr {TYPES[op.dtype]}, ptr {names[0]}, i64 {i * stride}")
                if stride
                else names[0]
                for i in range(lanes)
            ]
        for i, pointer in enumerate(names):
            one = value
            if lanes > 1:
                text = self.let(f"extractelement {value.type} {value.text}, i32 {i}")
                one = Value(text, value.dtype, 1)
            self._more(op, pointer, one)

    def _more(self, op: Op, pointer: str, value: Value) -> None:
        """Combine a value with what stands at an address."""
        before = self._read(pointer, value.dtype, value.lanes)
        self._write(self._combined(op, before, value), pointer)

    def _read(self, pointer: str, dtype: np.dtype, lanes: int) -> Value:
        """Entries that lie one behind the other at an address."""
        kind = _in_memory(dtype) if lanes == 1 else f"<{lanes} x {_in_memory(dtype)}>"
        return self._truth(
            self.let(f"load {kind}, ptr {pointer}, align {dtype.itemsize}"), dtype, lanes
        )

    def _write(self, value: Value, pointer: str) -> None:
        """Store a value at an address; booleans lie in memory as bytes."""
        kind, text = value.type, value.text
        if value.dtype == B1:
            kind = "i8" if value.lanes == 1 else f"<{value.lanes} x i8>"
            text = self.let(f"zext {value.type} {text} to {kind}")
        self.line(f"store {kind} {text}, ptr {pointer}, align {value.dtype.itemsize}")

    def _root_value(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The value of a root, computed; from here on the others of this nest use it without a load."""
        depth = self._depth(maps)
        scopes, self.scopes = self.scopes, self.scopes[: depth + 1]
        try:
            value = self._computed(op, maps)
        finally:
            self.scopes = scopes
        self.scopes[depth].memo[self._key(op, maps)] = value
        return value

    def _key(self, op: Op, maps: tuple[Map, ...]) -> tuple[Any, ...]:
        """What a value is known by; where one turn computes several indices of an axis, by the index too."""
        axis = self.together[0]
        index = self.variables[axis][0] if axis >= 0 and any(a == axis for _, a, _ in maps) else ""
        return "value", op.number, maps, index

    def _spread(self, value: Value, lanes: int) -> Value:
        """A value in as many lanes."""
        if value.lanes == lanes:
            return value
        if value.text[0] != "%":
            return Value(_splat(value.text, value.dtype, lanes), value.dtype, lanes)
        kind = typed(value.dtype, lanes)
        depth = self.made_at.get(value.text)
        one = self._pure(
            f"insertelement {kind} poison, {TYPES[value.dtype]} {value.text}, i32 0", depth
        )
        text = self._pure(
            f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer", depth
        )
        return Value(text, value.dtype, lanes)

    def _store(self, pointer: str, value: Value, lanes: int, maps: tuple[Map, ...]) -> None:
        self._write(self._spread(value, lanes) if self._varies(maps) else value, pointer)

    # ------------------------------------------------------------------------------------ values

    def _depth(self, maps: Sequence[Map]) -> int:
        """The scope in which an expression with these maps is computed: that of the innermost index it depends on."""
        deepest = self.floor
        for _, axis, step in maps:
            if axis >= 0 and step:
                deepest = max(deepest, self.depth_of.get(axis, self.floor))
        return deepest

    def _varies(self, maps: Sequence[Map]) -> bool:
        """Whether an expression with these maps differs between the lanes."""
        if not self.axes:
            return False
        vector = self.axes[-1]
        return self.variables[vector][1] > 1 and any(a == vector and s for _, a, s in maps)

    def value(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The value of an expression at mapped indices."""
        if op.kind == "const":
            return Value(literal(op.attr.value, op.dtype), op.dtype, 1)
        # An expression with memory of its own is read there, a view too: axes are joined by the strides of that memory (Walk.into).
        if op.kind in ("view", "region") and op.number not in self.schedule.roots:
            return self._computed(op, maps)
        depth = self._depth(maps)
        key = self._key(op, maps)
        for scope in self.scopes[self.floor : depth + 1]:
            if key in scope.memo:
                return scope.memo[key]
        scopes, self.scopes = self.scopes, self.scopes[: depth + 1]
        try:
            if op.number in self.schedule.roots or op.kind in ("input", "array", "reshape"):
                result = self._loaded(op, maps)
            else:
                result = self._computed(op, maps)
        finally:
            self.scopes = scopes
        self.scopes[depth].memo[key] = result
        return result

    def _region(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """What a region holds in this piece: inside or outside, decided for all of it."""
        x, outside = op.inputs
        for (start, axis), (offset, at, step) in zip(op.attr, maps, strict=True):
            length = 1 if axis < 0 else x.shape[axis]
            low = offset
            if at >= 0 and step:
                low = offset + step * self.pieces.get(at, (0, 1))[0]
            if not start <= low < start + length:
                return self.value(outside, maps)
        return self.value(x, inside_maps(op, maps))

    def _computed(self, op: Op, maps: tuple[Map, ...]) -> Value:
        if op.kind == "const":
            return self.value(op, maps)
        if op.kind == "region":
            return self._region(op, maps)
        if op.kind == "view":
            return self.value(op.inputs[0], tuple(composed(op.attr, maps)))
        if op.kind == "gather":
            return self._gathered_entries(op, maps)
        operands = [self.value(x, maps) for x in op.inputs]
        lanes = max((x.lanes for x in operands), default=1)
        operands = [self._spread(x, lanes) for x in operands]
        return self._elem(op, operands)

    # ------------------------------------------------------------------------------------ memory

    def pointer(self, op: Op) -> str:
        """Where the memory of a leaf or root begins."""
        op = base(op)
        if op.kind == "input":
            return f"%in{op.attr}"
        if op.kind == "array":
            return f"%const{op.attr}"
        if op.number in self.split:
            return f"%mine{op.number}"
        where, k = self.schedule.memory[op.number]
        return f"%out{k}" if where == "out" else f"%mem{op.number}"

    def _address(self, op: Op, maps: Sequence[Map]) -> str:
        pointer, strides = self.pointer(op), self._strides(op)
        if op.number in self.schedule.blocks and self.block_low != "0":
            axis, _ = self.schedule.blocks[op.number]
            back = self._pure(f"mul nsw i64 {self.block_low}, {-strides[axis]}", self.floor)
            pointer = self._pure(
                f"getelementptr {_in_memory(op.dtype)}, ptr {pointer}, i64 {back}", self.floor
            )
        return self._element(pointer, op.dtype, maps, strides)

    def _shape(self, op: Op) -> tuple[int, ...]:
        """The shape of what an expression's memory holds: all of it, or a block of rows."""
        return self.schedule.blocks[op.number][1] if op.number in self.schedule.blocks else op.shape

    def _strides(self, op: Op) -> tuple[int, ...]:
        """How far the entries of an expression are apart in its memory."""
        return contiguous(self._shape(op))

    def _element(
        self,
        pointer: str,
        dtype: np.dtype,
        maps: Sequence[Map],
        strides: Sequence[int],
    ) -> str:
        """The address of an entry: pointer plus strides times indices."""
        offset = sum(o * s for (o, _, _), s in zip(maps, strides, strict=True))
        terms: dict[int, int] = {}
        for (_, axis, step), stride in zip(maps, strides, strict=True):
            if axis >= 0 and step * stride:
                terms[axis] = terms.get(axis, 0) + step * stride
        kind = _in_memory(dtype)
        # Outer indices first, each added where its loop is: the inner loops are left with what changes there.
        for axis, factor in sorted(terms.items(), key=lambda t: self.depth_of.get(t[0], 0)):
            if axis not in self.variables:
                continue  # covered by the loop over the next axis
            name = self.variables[axis][0]
            if name.isdigit():
                offset += int(name) * factor
                continue
            depth = self.depth_of[axis]
            term = name if factor == 1 else self._pure(f"mul nsw i64 {name}, {factor}", depth)
            pointer = self._pure(f"getelementptr {kind}, ptr {pointer}, i64 {term}", depth)
        if offset:
            pointer = self._pure(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")
        return pointer

    def _pure(self, text: str, depth: int | None = None) -> str:
        """An instruction without effects, once in a loop and in those around it; in the loop of a depth, or here."""
        depth = len(self.scopes) - 1 if depth is None else depth
        for scope in self.scopes[self.floor : depth + 1]:
            if text in scope.memo:
                return scope.memo[text]
        name = self.name()
        self.scopes[depth].lines.append(f"  {name} = {text}")
        self.scopes[depth].memo[text] = name
        self.made_at[name] = depth
        return name

    def _loaded(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The entries of a stored array at the current indices: a number, or a vector, by the stride along the innermost axis."""
        dtype, pointer = op.dtype, self._address(op, maps)
        kind = _in_memory(dtype)
        lanes = self.variables[self.axes[-1]][1] if self._varies(maps) else 1
        steps = zip(maps, self._strides(op), strict=True)
        stride = sum(s * k for (_, a, s), k in steps if lanes > 1 and a == self.axes[-1])
        if lanes == 1 or stride == 1:
            return self._read(pointer, dtype, lanes)

        def moved(entries: int) -> str:
            return self.let(f"getelementptr {kind}, ptr {pointer}, i64 {entries}")

        def picked(first: str, second: str, places: list[int]) -> Value:
            """Entries of one vector in memory or of two, by their places."""
            one, two = (
                self.let(f"load {vector}, ptr {at}, align {dtype.itemsize}") if at else "poison"
                for at in (first, second)
            )
            mask = ", ".join(f"i32 {i}" for i in places)
            text = f"shufflevector {vector} {one}, {vector} {two}, <{lanes} x i32> <{mask}>"
            return self._truth(self.let(text), dtype, lanes)

        vector = f"<{lanes} x {kind}>"
        if stride == -1:
            return picked(moved(1 - lanes), "", [*reversed(range(lanes))])
        if stride == 2:
            # Real or imaginary parts, say: every other entry of two vectors, which end where the last one stands.
            places = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
            return picked(pointer, moved(lanes - 1), places)
        return self._put_together([pointer, *(moved(i * stride) for i in range(1, lanes))], dtype)

    # ------------------------------------------------------------------------------------ elementwise

    def declare(self, text: str) -> None:
        self.declared.add(text)

    def _made(self, text: str, dtype: np.dtype, lanes: int) -> Value:
        return Value(self.let(text), dtype, lanes)

    def _with_operators(self, *x: Value) -> list[expression.Value]:
        """Values of as many lanes as vecmath's, which have operators; what these append comes here."""
        here = Here(self.let, self.declared, self.functions, x[0].lanes)
        return [expression.Value(here, v.text, TYPES[v.dtype]) for v in x]

    def _elem(self, op: Op, x: list[Value]) -> Value:
        if op.attr == STRONG:
            return self._strong_product(x[0], x[1], summed=op.number in self.summed)
        return self._operation(op.attr, x, op.dtype)

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
        product = self._operation("multiply", [g, p], g.dtype)
        odd = self.let(f"fcmp uno {g.type} {product.text}, {product.text}")
        self.count += 1
        k = self.count
        lines = self.scopes[-1].lines
        lines += [
            f"  br label %from{k}", f"from{k}:",
            f"  br i1 {odd}, label %odd{k}, label %even{k}, !prof {UNLIKELY}", f"odd{k}:",
        ]  # fmt: skip
        none = self._written(f"fcmp oeq {g.type} {g.text}, {literal(0.0, g.dtype)}")
        other = self._written(f"select i1 {none}, {g.type} {g.text}, {g.type} {product.text}")
        lines += [f"  br label %even{k}", f"even{k}:"]
        text = f"phi {g.type} [ {product.text}, %from{k} ], [ {other}, %odd{k} ]"
        return self._made(text, g.dtype, 1)

    def _of_steps(self, name: str, x: list[Value]) -> Value:
        """One part of a complex function; the other one is there already if it was asked for here."""
        formula, part = STEPS[name]

        def both() -> Pair:
            values = self._with_operators(*x)
            found = formula(*zip(values[::2], values[1::2], strict=True))
            return Pair(*(Value(v.name, x[0].dtype, x[0].lanes) for v in found))

        return self._once((formula, *(v.text for v in x)), both).part(part)

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """What was computed under this key in this loop or in those around it; else it is computed here."""
        for scope in self.scopes[self.floor :]:
            if key in scope.memo:
                return scope.memo[key]
        result = self.scopes[-1].memo[key] = compute()
        return result

    def _operation(self, name: str, x: list[Value], dtype: np.dtype) -> Value:
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

        return self._once((SHARE, *sorted((x.name, y.name))), compute)  # type: ignore[no-any-return]

    def _logaddexp(self, x: expression.Value, y: expression.Value) -> expression.Value:
        """The larger one plus log(1 + exp(-distance))."""
        return OPERATIONS["maximum"](x, y) + self._log_sum(x, y)[1]

    def _share(self, x: expression.Value, y: expression.Value) -> expression.Value:
        """The share of the first in the sum of their exponentials; NaN if they are one infinity."""
        apart, _, larger, smaller = self._log_sum(x, y)
        return select(apart != apart, apart, select(x >= y, larger, smaller))

    def _function(self, name: str, x: Sequence[Value], dtype: np.dtype, lanes: int) -> Value:
        """A vector function of ours, or the C library's, lane by lane."""
        kind = typed(dtype, lanes)
        if vecmath.has(name, dtype.name):
            symbol, text = vecmath.emit(name, dtype.name, lanes)
            self.functions[symbol] = text
            operands = ", ".join(f"{kind} {v.text}" for v in x)
            return self._made(f"call {kind} @{symbol}({operands})", dtype, lanes)
        element = TYPES[dtype]
        symbol = LIBM.get(name, name) + ("f" if dtype == F4 else "")
        last = ["i32 0"] if name.startswith(named.PREFIX) else []  # Cython's, which says nothing
        kinds = [*[element] * len(x), *("i32" for _ in last)]
        self.declare(f"declare {element} @{symbol}({', '.join(kinds)}) #1")
        if lanes == 1:
            operands = ", ".join([*(f"{element} {v.text}" for v in x), *last])
            return self._made(f"call {element} @{symbol}({operands})", dtype, 1)
        whole = "poison"
        for i in range(lanes):
            parts = [self.let(f"extractelement {v.type} {v.text}, i32 {i}") for v in x]
            operands = ", ".join([*(f"{element} {part}" for part in parts), *last])
            one = self.let(f"call {element} @{symbol}({operands})")
            whole = self.let(f"insertelement {kind} {whole}, {element} {one}, i32 {i}")
        return Value(whole, dtype, lanes)


def _share(
    k: str,
    names: Sequence[str],
    given: Sequence[str],
    own: dict[str, int],
    size: int,
    inside: str,
    sizes: dict[str, tuple[int, int]],
) -> str:
    """Text of a shared group: `share`, which takes pointers out of the frame, and `shared`, which computes one chunk."""
    text = [
        f"define internal void @shared{k}({', '.join(f'ptr noalias {name}' for name in names)}{', ' if names else ''}i64 %chunk) #0 {{",
        f"entry:\n{inside}\n  ret void\n}}",
        f"define internal void @share{k}(ptr %frame, i64 %chunk, i64 %who) #0 {{",
        *sanitizer.buffer("%frame", 8 * (len(given) + 1), 0, "a frame"),
        "  %all = load ptr, ptr %frame",
        f"  %before = mul nsw i64 %who, {size}",
        "  %own = getelementptr i8, ptr %all, i64 %before",
        *sanitizer.buffer("%own", size, 0, "a thread's memory"),
    ]
    for i, name in enumerate(given):
        text.append(f"  %p{i} = getelementptr ptr, ptr %frame, i64 {i + 1}")
        text.append(f"  {name} = load ptr, ptr %p{i}")
        text += sanitizer.buffer(name, *sizes.get(name, (0, 0)), name[1:])
    for name in names:
        if name in own:
            text.append(f"  {name} = getelementptr i8, ptr %own, i64 {own[name]}")
            text += sanitizer.buffer(name, *sizes.get(name, (0, 0)), name[1:], fresh=True)
    arguments = [*(f"ptr {name}" for name in names), "i64 %chunk"]
    text.append(f"  call void @shared{k}({', '.join(arguments)})\n  ret void\n}}")
    return "\n".join(text)


def _overload(dtype: np.dtype) -> str:
    return {F8: "f64", F4: "f32", I8: "i64", I4: "i32"}[dtype]


def _splat(text: str, dtype: np.dtype, lanes: int) -> str:
    """A literal in every lane."""
    return text if lanes == 1 else "<" + ", ".join([f"{TYPES[dtype]} {text}"] * lanes) + ">"


def _neutral(op: Op) -> Any:
    """What a reduction begins with: -0.0 is what changes no sum; what is scattered comes to zeros."""
    if op.kind == "scatter":
        return 0
    if op.dtype.kind != "f":
        return {"add": 0, "multiply": 1}[op.attr[0]]
    return {"add": -0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[op.attr[0]]


def _chunks(n: int, lanes: int) -> list[int]:
    """n entries as vectors of falling width."""
    result = []
    while n:
        while lanes > n:
            lanes //= 2
        result.append(lanes)
        n -= lanes
    return result


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in entries, of an array without gaps."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def _strided(maps: Sequence[Map], strides: Sequence[int], n: int) -> list[int]:
    """By how many entries an address moves with each index of the space."""
    result = [0] * n
    for (_, axis, step), stride in zip(maps, strides, strict=True):
        if axis >= 0:
            result[axis] += step * stride
    return result


def _is_heavy(walk: Walk) -> bool:
    """Whether elementary functions are among what is evaluated."""
    functions = (op.attr for op in walk.evaluated.values() if op.kind == "elem")
    return any(name in vecmath.FUNCTIONS or name in ("logaddexp", SHARE) for name in functions)


def _joined_to(axis: int, absorbed: set[int]) -> int:
    while axis in absorbed:
        axis += 1
    return axis


def _listing(nest: Nest, absorbed: set[int]) -> str:
    rows = f", rows along axis {nest.along}" if nest.along else ""
    joined = f" joined {sorted(absorbed)}" if absorbed else ""
    lines = [f"  for {list(nest.space)}{joined}{rows}:"]
    lines += [f"    store {op!r}" for op in nest.stores]
    lines += [f"    {op.attr[0]} into {op!r} over axes {op.attr[1]}" for op in nest.sums]
    lines += [f"    out{k} = {op!r}" for op, k in nest.copies]
    return "\n".join(lines)


def operands_of(schedule: Schedule) -> Iterator[Op]:
    """Every expression of a schedule."""
    from .schedule import topological

    yield from topological(schedule.outputs)
