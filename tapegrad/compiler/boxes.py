"""One loop nest: loops over boxes of indices.

The innermost loop of a nest goes over `lanes` entries at a time, then one by one; a short one is written out. Where regions begin and end
the loops are cut into boxes, so that inside one every region is decided. Axes that lie in memory without gaps are one loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from .. import vecmath
from .accumulating import Sums, Totals
from .arrays import F8, I8, SHARE, Map, Op
from .places import contiguous, strided
from .schedule import Group, Nest, Schedule, Walk, identity, kept_maps
from .values import Indices, Values

WRITTEN_OUT = 8
"""Vectors of an innermost loop that are written one after the other instead of looped over."""

MOST_WRITTEN = 160
"""Instructions, about, in a loop that is written out."""

LARGE = 1 << 20
"""Bytes of an argument above which it comes from memory, about."""

LONGEST_ROW = 512
"""Bytes of a row up to which loops over rows fetch the next ones."""

LINE = 64
"""Bytes of a line of the cache."""

Bounds = list[tuple[str, str]]


class Boxes:
    """Writes the loops of one nest, for a block of the rows of its group."""

    def __init__(
        self, values: Values, totals: Totals, nest: Nest, group: Group, walk: Walk
    ) -> None:
        """`walk` says what the nest reads and evaluates."""
        self.values, self.text, self.memory = values, values.text, values.memory
        self.nest, self.group = nest, group
        space = nest.space
        self.absorbed = self._absorbed(walk)
        self.axes = [
            i for i in range(len(space)) if i not in self.absorbed and (space[i] != 1 or i == 0)
        ]
        self.extents = {}
        for i in self.axes:
            n = space[i]
            k = i - 1
            while k in self.absorbed:
                n *= space[k]
                k -= 1
            self.extents[i] = n
        self.lanes = self._lanes(walk)
        self.next = self._read_next(walk)
        work = sum(
            3 if op.attr not in vecmath.FUNCTIONS else 40
            for op in walk.evaluated.values()
            if op.kind == "elem"
        )
        self.written_out = max(2, min(WRITTEN_OUT, MOST_WRITTEN // max(work, 1)))
        self.cuts = []
        for i, n in self.extents.items():
            edges = sorted(e for e in walk.breaks.get(i, ()) if 0 < e < n)
            self.cuts.append(list(itertools.pairwise([0, *edges, n])))
        self.sums = Sums(values, totals, nest, self.axes)
        self.sums.cut = {i for i, c in zip(self.axes, self.cuts, strict=True) if len(c) > 1}

    # ------------------------------------------------------------------------------------ what is decided before

    def _absorbed(self, walk: Walk) -> set[int]:
        """Axes that one loop covers together with the axis after them: all that is read or written there is contiguous."""
        nest, space = self.nest, self.nest.space
        stored = [(op, identity(op.shape)) for op in nest.stores]
        reduced = [(op, kept_maps(op)) for op in nest.sums]
        accesses = [
            strided(maps, self.memory.strides(op), len(space))
            for op, maps in (*walk.reads, *stored, *reduced)
        ]
        for op, _ in nest.copies:
            accesses.append(strided(identity(op.shape), contiguous(op.shape), len(space)))
        absorbed: set[int] = set()
        for i in range(len(space) - 1):
            j = i + 1
            if space[j] == 1 or walk.breaks.get(i) or walk.breaks.get(j):
                continue  # there is no loop over one entry
            if j == nest.along:
                continue  # of which a block has a part
            if any((i in op.attr[1]) != (j in op.attr[1]) for op in nest.sums):
                continue
            if all(c[i] == c[j] * space[j] for c in accesses):
                absorbed.add(i)
        return absorbed

    def _lanes(self, walk: Walk) -> int:
        """How many entries of the innermost axis are computed at once."""
        if not self.axes:
            return 1
        dtypes = {op.dtype for op in walk.evaluated.values()} | {op.dtype for op, _ in walk.reads}
        wide = self.values.widest * (2 if F8 not in dtypes and I8 not in dtypes else 1)
        work = sum(1 for op in walk.evaluated.values() if op.kind == "elem")
        return wide * 2 if work <= 10 and not _is_heavy(walk) else wide

    def _read_next(self, walk: Walk) -> list[Op]:
        """Large arguments of which other nests of a group read rows: one that computes much, and reads none, fetches the next."""
        group = self.group
        if not self._in_blocks or self.axes != [0] or not _is_heavy(walk):
            return []
        reads = [op for other in group.nests for op, _ in walked(other, self.values.schedule).reads]
        mine = {op.number for op, _ in walk.reads}
        found = {}
        for op in reads:
            if op.kind == "input" and op.number not in mine and op.shape[:1] == (group.rows,):
                size = op.size * op.dtype.itemsize
                if size > LARGE and size // group.rows <= LONGEST_ROW:
                    found[op.number] = op
        return list(found.values())

    @property
    def _in_blocks(self) -> bool:
        """Whether the bounds of the rows are those of a block."""
        return 0 < self.group.block < self.group.rows

    def listing(self) -> str:
        """The nest, for people."""
        nest = self.nest
        rows = f", rows along axis {nest.along}" if nest.along else ""
        joined = f" joined {sorted(self.absorbed)}" if self.absorbed else ""
        lines = [f"  for {list(nest.space)}{joined}{rows}:"]
        lines += [f"    store {op!r}" for op in nest.stores]
        lines += [f"    {op.attr[0]} into {op!r} over axes {op.attr[1]}" for op in nest.sums]
        lines += [f"    out{k} = {op!r}" for op, k in nest.copies]
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------ boxes

    def write(self, low: str, high: str) -> None:
        """Write the loops for rows from `low` to `high`: one box after the other."""
        level, ratio = -1, 1
        if self._in_blocks:
            axis = self.nest.along
            while axis in self.absorbed:
                axis += 1
            level = self.axes.index(axis)
            ratio = self.extents[axis] // self.nest.rows
        lows, highs = self.text.times(low, ratio), self.text.times(high, ratio)
        known = bool(self.cuts) and level != len(self.axes) - 1
        # Accumulators of full reductions live through all pieces.
        self.sums.in_rows = known and all(self._is_written(b - a) for a, b in self.cuts[-1])
        self.sums.filled(low, high)
        for piece in itertools.product(*self.cuts):
            bounds = [(str(a), str(b)) for a, b in piece]
            if level >= 0:
                extent = self.extents[self.axes[level]]
                bounds[level] = self._clipped(bounds[level], lows, highs, extent)
            self._box(bounds, dict(zip(self.axes, piece, strict=True)))

    def _clipped(
        self, bounds: tuple[str, str], low: str, high: str, extent: int
    ) -> tuple[str, str]:
        """The part of a piece of the axis of rows that lies in this block."""
        a, b = bounds
        if a != "0":
            more = self.text.let(f"icmp sgt i64 {a}, {low}")
            a = self.text.let(f"select i1 {more}, i64 {a}, i64 {low}")
        else:
            a = low
        return a, high if b == str(extent) else self.text.smaller(b, high)

    def _box(self, bounds: Bounds, pieces: dict[int, tuple[int, int]]) -> None:
        """Write a nest over a box of indices, in which each expression has one form."""
        self.indices = self.values.indices = Indices(self.axes, pieces)
        self.text.floor = len(self.text.scopes)
        self.sums.rows = {}
        with self.text.own_scope():
            if self.axes:
                self._level(bounds, 0)
            else:
                self._inside(1)

    def _level(self, bounds: Bounds, level: int) -> None:
        """Write the loop over axis `level` of a nest, with the accumulators that begin there, and what is inside."""
        chunks = self._written_chunks(bounds)
        finish = self.sums.begun(level, self.lanes, chunks)
        if level == len(self.axes) - 1:
            self._innermost(self.axes[level], *bounds[level])
        else:
            self._outer(bounds, level, chunks)
        for add in finish:
            add()

    def _outer(self, bounds: Bounds, level: int, chunks: Sequence[tuple[int, int]]) -> None:
        """Write a loop that has others inside, several of its indices at once where sums are in registers."""
        text, indices = self.text, self.indices
        axis = self.axes[level]
        low, high = bounds[level]

        def inside(i: str) -> None:
            indices.set(axis, i, 1, text.depth)
            self._level(bounds, level + 1)

        def several(i: str, count: int) -> None:
            more = [text.let(f"add nsw i64 {i}, {k}") for k in range(1, count)]
            indices.together = axis, [i, *more]
            inside(i)
            indices.together = -1, [""]

        if low.isdigit() and high.isdigit() and int(high) - int(low) == 1:
            indices.set(axis, low, 1, text.depth)
            with text.own_scope():
                self._level(bounds, level + 1)
            return
        n = self.sums.at_once(level, chunks, low, high)
        border = low if n == 1 else self._border(axis, low, high, n)
        if border != low:
            text.loop(low, border, n, lambda i: several(i, n))
        if border != high and n > 1 and border.isdigit() and high.isdigit():
            rest = int(high) - int(border)
            text.loop(border, high, rest, lambda i: several(i, rest))
        elif border != high:
            text.loop(border, high, 1, inside)

    def _innermost(self, axis: int, low: str, high: str) -> None:
        """Write the innermost axis: vectors of `self.lanes` entries, then the rest."""
        text = self.text

        def at(i: str, lanes: int) -> None:
            self.indices.set(axis, i, lanes, text.depth)
            for _ in self.indices.at_once():
                self._inside(lanes)

        def written(start: int, stop: int) -> None:
            for first, lanes in _chunks(start, stop, self.lanes):
                with text.own_scope():
                    at(str(first), lanes)

        known = low.isdigit() and high.isdigit()
        if known and self._is_written(int(high) - int(low)):
            written(int(low), int(high))
            return
        border = self._border(axis, low, high, self.lanes)
        if border != low or not known:
            text.loop(low, border, self.lanes, lambda i: at(i, self.lanes))
        if known:
            written(int(border), int(high))
        elif border != high:
            text.loop(border, high, 1, lambda i: at(i, 1))

    def _is_written(self, entries: int) -> bool:
        """Whether so many entries of the innermost axis are written out."""
        return entries <= self.written_out * self.lanes

    def _written_chunks(self, bounds: Bounds) -> list[tuple[int, int]]:
        """(start, lanes) of each vector of the innermost loop, if that is written out; else nothing."""
        low, high = bounds[-1]
        if not (low.isdigit() and high.isdigit()) or not self._is_written(int(high) - int(low)):
            return []
        return _chunks(int(low), int(high), self.lanes)

    def _border(self, axis: int, low: str, high: str, n: int) -> str:
        """Where turns of n indices end (n is a power of two); `high` itself if there are no others."""
        if low.isdigit() and high.isdigit():
            return str(int(high) - (int(high) - int(low)) % n)
        # Bounds that are not known now are those of a block of rows.
        text = self.text
        start, stop = self.indices.pieces[axis]
        per_row = self.extents[axis] // self.nest.rows
        edges = (start, stop, self.group.block * per_row, self.group.rows * per_row)
        if all(edge % n == 0 for edge in edges):
            return high
        length = text.let(f"sub nsw i64 {high}, {low}")
        positive = text.let(f"icmp sgt i64 {length}, 0")
        length = text.let(f"select i1 {positive}, i64 {length}, i64 0")
        even = text.let(f"and i64 {length}, {-n}")
        return text.let(f"add nsw i64 {low}, {even}")

    # ------------------------------------------------------------------------------------ the inside

    def _inside(self, lanes: int) -> None:
        """Write the stores and sums of a nest at the current indices, for `lanes` entries at once."""
        values = self.values
        maps = identity(self.nest.space)
        for op in self.nest.stores:
            value = None if op.kind == "complex" else values.root(op, maps)
            values.store(op, values.address(op, maps), value, lanes, maps)
        for op in self.nest.sums:
            self.sums.add(op, maps, lanes)
        for op in self.next if lanes > 1 else ():
            self._fetched(op, lanes)
        for op, k in self.nest.copies:
            pointer = values.element(f"%out{k}", op.dtype, maps, contiguous(op.shape))
            values.store(op, pointer, None, lanes, maps)

    def _fetched(self, op: Op, lanes: int) -> None:
        """Bring rows of an argument, which the next block reads, from memory to the cache while this one computes."""
        text = self.text
        rest = [(0, -1, 0)] * (len(op.shape) - 1)
        strides = contiguous(op.shape)
        ahead: list[Map] = [(self.group.block, 0, 1), *rest]
        first = self.values.element(self.memory.pointer(op), op.dtype, ahead, strides)
        text.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for at in range(0, lanes * strides[0] * op.dtype.itemsize, LINE):
            line = text.let(f"getelementptr i8, ptr {first}, i64 {at}")
            text.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")


def walked(nest: Nest, schedule: Schedule) -> Walk:
    """What a nest reads and evaluates."""
    walk = Walk(schedule.roots.keys())  # type: ignore[arg-type]
    for op in nest.roots:
        walk.into(op, identity(op.shape), top=True)
    for op, _ in nest.copies:
        walk.into(op, identity(op.shape))
    return walk


def _is_heavy(walk: Walk) -> bool:
    """Whether elementary functions are among what is evaluated."""
    functions: Any = (op.attr for op in walk.evaluated.values() if op.kind == "elem")
    return any(name in vecmath.FUNCTIONS or name in ("logaddexp", SHARE) for name in functions)


def _chunks(start: int, stop: int, lanes: int) -> list[tuple[int, int]]:
    """(first, lanes) of entries in vectors of falling width."""
    result = []
    while start < stop:
        while lanes > stop - start:
            lanes //= 2
        result.append((start, lanes))
        start += lanes
    return result
