"""Reductions: their memory, and the registers that hold parts of them while loops run.

A sum over the innermost axes adds up in a vector register, which is added to its memory behind the loops. One that keeps the innermost
axis, where that is written out, has a row of registers, one for each vector of the row. All others add to their memory.

Invariant: what a reduction's memory holds before the first addition changes nothing, unless registers hold the whole sum, which then is
stored once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from . import sanitizer
from .arrays import F4, Map, Op
from .elementwise import neutral
from .schedule import Nest, kept_maps, row_axis
from .text import Value, literal, splat, typed
from .values import Values

REGISTERS = 2
"""Vectors of sums in registers at once, for each entry of a vector: half of the registers that there are."""

MOST_AT_ONCE = 8
"""Rows of sums that one turn computes at most."""


class Totals:
    """The memory of reductions."""

    def __init__(self, values: Values) -> None:
        self.values, self.text, self.memory = values, values.text, values.memory

    def fill(self, op: Op) -> None:
        """Fill a reduction's memory with what changes nothing."""
        n = math.prod(self.memory.shape(op))
        self._between(op, "0", str(n), n)

    def fill_rows(self, op: Op, along: int, low: str, high: str) -> None:
        """Fill the rows of a block, which lie along an axis."""
        text = self.text
        row = math.prod(op.shape[along + 1 :])

        def rows(before: str) -> None:
            start = text.times(before, op.shape[along])
            ends = (
                text.let(f"add nsw i64 {start}, {end}") if start != "0" else end
                for end in (low, high)
            )
            first, last = (text.times(end, row) for end in ends)
            self._between(op, first, last, row)

        outer = math.prod(op.shape[:along])
        if outer == 1:
            rows("0")
        else:
            text.loop("0", str(outer), 1, rows)

    def _between(self, op: Op, first: str, last: str, unit: int) -> None:
        """Fill entries of a reduction's memory, of which there are a multiple of `unit`, with what changes nothing."""
        lanes = next(n for n in (self.values.widest, 4, 2, 1) if unit % n == 0)
        value = Value(splat(literal(neutral(op), op.dtype), op.dtype, lanes), op.dtype, lanes)
        kind, pointer = typed(op.dtype, 1), self.memory.pointer(op)

        def vector(i: str) -> None:
            self.text.write(
                value, self.text.let(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {i}")
            )

        self.text.loop(first, last, lanes, vector)

    def part(self, op: Op, chunk: str, name: str = "") -> str:
        """The memory of one chunk's part of a reduction over shared rows."""
        text, size = self.text, op.size * op.dtype.itemsize
        at = text.let(f"mul nsw i64 {chunk}, {self.values.schedule.partial[op.number][1]}")
        place = f"getelementptr i8, ptr %part{op.number}, i64 {at}"
        if name:
            text.line(f"{name} = {place}")
        else:
            name = text.let(place)
        told = name, size, sanitizer.entry_of(op.dtype), f"a chunk's part of {op!r}"
        text.lines.extend(sanitizer.buffer(*told))
        return name

    def collect(self, op: Op, chunks: int) -> None:
        """Add up the parts of a reduction, in the order of the chunks."""
        text = self.text
        lanes = self.values.widest if op.size >= self.values.widest else 1
        even = op.size // lanes * lanes

        def one(chunk: str) -> None:
            """Add one chunk's part to the result of the sum."""
            part = self.part(op, chunk)

            def entries(i: str, n: int) -> None:
                to, at = (text.moved(p, op.dtype, i) for p in (self.memory.pointer(op), part))
                self.values.operations.more(op, to, text.read(at, op.dtype, n))

            text.loop("0", str(even), lanes, lambda i: entries(i, lanes))
            if even < op.size:
                text.loop(str(even), str(op.size), 1, lambda i: entries(i, 1))

        text.loop("0", str(chunks), 1, one)


class Sums:
    """The reductions of one nest, while its loops are written."""

    def __init__(self, values: Values, totals: Totals, nest: Nest, axes: Sequence[int]) -> None:
        """Over `axes` of the nest there are loops."""
        self.values, self.text, self.operations = values, values.text, values.operations
        self.totals = totals
        self.nest = nest
        self.axes = axes
        self.cut: set[int] = set()
        """Axes with several pieces, over which a sum goes on from one to the next."""
        self.in_rows = False
        """Whether the innermost axis is written out in each piece."""
        self.accumulators: dict[int, dict[int, str]] = {}  # registers by their lanes
        self.rows: dict[int, dict[tuple[str, int], str]] = {}  # sums in registers now

    # ------------------------------------------------------------------------------------ where they accumulate

    def _levels(self, op: Op) -> list[int]:
        """The loops over axes that a reduction reduces."""
        return [k for k, axis in enumerate(self.axes) if axis in op.attr[1]]

    def _begins(self, op: Op) -> int:
        """The loop before which an accumulator of this sum begins: that of the last run of reduced axes."""
        if op.kind == "scatter":
            return -3  # each entry has a place of its own
        levels = self._levels(op)
        if not levels:
            return -1
        if levels[-1] != len(self.axes) - 1:
            return -2  # the innermost axis is kept: it accumulates in memory
        first = levels[-1]
        while first - 1 in levels:
            first -= 1
        return first

    def _row_begins(self, op: Op) -> int:
        """The loop before which a sum that keeps the innermost axis, and sums over those around it, may begin in registers."""
        if self._begins(op) != -2:
            return -1
        levels = self._levels(op)
        first = len(self.axes) - 1
        while first - 1 in levels:
            first -= 1
        return first if first < len(self.axes) - 1 else -1

    def _stored_once(self, op: Op) -> bool:
        """Whether registers hold the whole of a sum, so that its memory is written once and read never."""
        if self.nest.along in op.attr[1]:
            return False
        first, last = self._begins(op), len(self.axes)
        if first == -2 and self.in_rows:
            first, last = self._row_begins(op), last - 1
        levels = self._levels(op)
        return (
            first >= 0
            and levels == list(range(levels[0], last))
            and not any(self.axes[level] in self.cut for level in levels)
        )

    def filled(self, low: str, high: str) -> None:
        """Fill the rows of this block with what changes nothing, in the memory of sums that add to it."""
        for op in self.nest.sums:
            if self.nest.along in op.attr[1] or self._stored_once(op):
                continue
            along = row_axis(op, self.nest.along)
            if along is None or op.number in self.values.schedule.blocks:
                self.totals.fill(op)
            else:
                self.totals.fill_rows(op, along, low, high)

    # ------------------------------------------------------------------------------------ registers

    def begun(
        self, level: int, lanes: int, chunks: Sequence[tuple[int, int]]
    ) -> list[Callable[[], None]]:
        """Set the registers of sums that begin before a loop; each call that is returned adds some to memory, behind the loop.

        `chunks` are the vectors, (start, lanes), of an innermost loop that is written out.
        """
        finish = [
            self._accumulator(op, lanes) for op in self.nest.sums if self._begins(op) == level
        ]
        for op in self.nest.sums:
            if chunks and self._row_begins(op) == level:
                finish.append(self._row_accumulator(op, chunks))
        return finish

    def _register(self, op: Op, lanes: int) -> str:
        """A place for a part of a sum, with what changes nothing in it."""
        name, kind = self.text.name("acc"), typed(op.dtype, lanes)
        self.text.allocas.append(f"  {name} = alloca {kind}, align 64")
        nothing = splat(literal(neutral(op), op.dtype), op.dtype, lanes)
        self.text.line(f"store {kind} {nothing}, ptr {name}")
        return name

    def _accumulator(self, op: Op, width: int) -> Callable[[], None]:
        """Registers for a sum over the innermost axes: set here, added to its memory after the loops."""
        names = {}
        while width:
            names[width] = self._register(op, width)
            width //= 2
        self.accumulators[op.number] = names

        def finish() -> None:
            total = None
            for width, name in names.items():
                part = self.operations.across(op, self.text.read(name, op.dtype, width))
                total = part if total is None else self.operations.combined(op, total, part)
            assert total is not None
            self._added(op, total)

        return finish

    def _row_accumulator(self, op: Op, chunks: Sequence[tuple[int, int]]) -> Callable[[], None]:
        """Registers for a row of sums, a vector for each written-out step of the innermost loop; added to memory after the loops."""
        indices = self.values.indices
        names = {
            (index, start): self._register(op, lanes)
            for index, (start, lanes) in itertools.product(indices.together[1], chunks)
        }
        self.rows[op.number] = names

        def finish() -> None:
            depth = self.text.depth
            for index in indices.at_once():
                for start, lanes in chunks:
                    indices.set(self.axes[-1], str(start), lanes, depth)
                    self._added(op, self.text.read(names[index, start], op.dtype, lanes))
            del self.rows[op.number]

        return finish

    def at_once(self, level: int, chunks: Sequence[tuple[int, int]], low: str, high: str) -> int:
        """How many indices of an axis one turn computes: more than 1 where rows of sums are in registers, as in a product of matrices.

        So what all of them read is loaded once, and there are sums enough for the additions not to wait for one another. Where the
        number of indices is known, all turns have about as many: ten in two turns of five, as in one of eight the last two would wait.
        """
        nest = self.nest
        if not chunks or nest.roots != nest.sums[:1] or nest.copies:
            return 1
        if self._row_begins(nest.sums[0]) != level + 1:
            return 1
        entries = sum(lanes for _, lanes in chunks) * nest.sums[0].dtype.itemsize // F4.itemsize
        most = min(2 * REGISTERS * self.values.widest**2 // entries, MOST_AT_ONCE)
        if most < 2:
            return 1
        if low.isdigit() and high.isdigit():
            indices = max(int(high) - int(low), 1)
            return -(-indices // -(-indices // most))
        return 1 << most.bit_length() - 1

    # ------------------------------------------------------------------------------------ additions

    def add(self, op: Op, maps: tuple[Map, ...], lanes: int) -> None:
        """Add what a reduction reads at the current indices, in `lanes` entries, where it accumulates."""
        if op.kind == "scatter":
            self._scattered(op, maps, lanes)
            return
        value = self.text.spread(self.values.value(op.inputs[0], maps), lanes)
        begins, indices = self._begins(op), self.values.indices
        if op.number in self.rows:
            index = indices.variables.get(indices.together[0], ("", 1))[0]
            start = int(indices.variables[self.axes[-1]][0])
            self.operations.more(op, self.rows[op.number][index, start], value)
        elif begins < 0:  # in memory, or every reduced axis has length 1
            self._added(op, value)
        else:
            self.operations.more(op, self.accumulators[op.number][value.lanes], value)

    def _added(self, op: Op, value: Value) -> None:
        """Combine a value with what a reduction's memory holds; or store it, if it is the first and only one."""
        pointer = self.values.address(op, kept_maps(op))
        if self._stored_once(op):
            self.text.write(value, pointer)
        else:
            self.operations.more(op, pointer, value)

    def _scattered(self, op: Op, maps: tuple[Map, ...], lanes: int) -> None:
        """Add entries where they belong, one after the other: two of them may have the same place."""
        text = self.text
        g, *indices = op.inputs
        value = text.spread(self.values.value(g, maps), lanes)
        depth = len(indices[0].shape)
        kept = iter(maps[depth:])
        rest = [(0, -1, None) if i in op.attr[2] else next(kept) for i in range(len(op.shape))]
        names, stride = self.values.places(op, indices, maps[:depth], rest)
        if lanes > 1 and len(names) == 1 and stride == 1:
            self.operations.more(op, names[0], value)
            return
        if lanes > 1 and len(names) == 1:
            names = [
                text.moved(names[0], op.dtype, i * stride) if stride else names[0]
                for i in range(lanes)
            ]
        for i, pointer in enumerate(names):
            self.operations.more(op, pointer, text.lane(value, i) if lanes > 1 else value)
