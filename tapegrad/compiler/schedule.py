"""The schedule: which expressions get memory, which are computed in one loop nest, and which nests run block by block.

A *root* is an expression whose values are stored: outputs, reductions, what is read under another shape, and what would else
be computed more than once at some cost. Everything between roots is computed where it is used. A *nest* is the loops over one
*space* (a shape), with the roots stored and the reductions accumulated in it. A *group* is a list of nests with as many *rows*,
such that row i of one needs row i of another only: it runs in blocks of rows, so that what passes between its nests
stays in the cache, and needs memory for one block. Rows are the entries of a nest's first axis, or of another that rows.py finds.

A group with much to do is *shared*: its rows are cut into chunks, which threads take (team.py). The cut follows from the program alone,
and sums over rows have one partial sum a chunk, added in order: so results do not depend on the number of threads.

Invariant: nests are in an order in which every root is complete before another nest reads it, except row by row within a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from . import rows
from .arrays import CHEAP, PACKED, SUMS, Map, Op, varying
from .arrays import ROOTS as SLOWER

LEAVES = ("input", "array")

RECOMPUTED = 6
"""Cost (in additions) up to which an expression is computed again rather than stored."""

AGAIN = 9
"""Cost up to which a few entries are computed again for each entry of a larger space, rather than stored."""

BLOCK = 2048
"""Entries of the widest array of a group that one block holds: a few of them fit the first-level cache."""

EVEN = 8
"""Rows of which a block has a multiple, so that vectors end where it ends."""

SHORT = 64
"""Entries of a row below which loops over one row at a time have too little to do for vectors."""

MOST_OPS = 120
"""Elementwise operations in one nest: above it registers run out, and compilation takes too long."""

LONGEST_CHAIN = 80
"""Expressions one on top of the other, above which one gets memory."""

CHUNK = 200_000
"""Work (in additions) of a chunk at least: some twenty microseconds, several times what it takes to wake a thread."""

MOST_CHUNKS = 64
"""Chunks of a group at most."""

PARTIAL = 32
"""Work that there is at least for each entry of a chunk's partial sums, which take memory, and are added up by one thread."""

MOST_REGIONS = 16
"""Nested regions above which one gets memory of its own."""


@dataclass(slots=True)
class Nest:
    """Loops over a space."""

    space: tuple[int, ...]
    along: int = 0
    """The axis whose entries are the rows of its group."""
    stores: list[Op] = field(default_factory=list)
    sums: list[Op] = field(default_factory=list)
    copies: list[tuple[Op, int]] = field(default_factory=list)
    """(expression, number of the output it is written to)"""

    @property
    def roots(self) -> list[Op]:
        return [*self.stores, *self.sums]

    @property
    def rows(self) -> int:
        return self.space[self.along] if self.space else 1

    @property
    def row(self) -> int:
        """Entries of one row."""
        return math.prod(self.space) // self.rows if self.rows else 0


@dataclass(slots=True)
class Group:
    """Nests that run block by block over their rows; `block` rows at a time, `share` rows in one chunk."""

    rows: int
    nests: list[Nest]
    block: int = 0
    share: int = 0

    @property
    def chunks(self) -> int:
        """In how many parts threads share the group; 1 if they do not."""
        return -(-self.rows // self.share) if self.share else 1

    @property
    def turned(self) -> bool:
        """Whether rows are not the first axis of each nest."""
        return any(nest.along for nest in self.nests)

    @property
    def over_rows(self) -> list[Op]:
        """The reductions that each row adds to."""
        return [op for nest in self.nests for op in nest.sums if nest.along in op.attr[1]]


@dataclass(slots=True)
class Schedule:
    """Groups in order; where each root's values are; shapes and dtypes of the outputs."""

    groups: list[Group]
    memory: dict[int, tuple[str, int]]
    """Root's number -> ("out", k), ("full", offset in scratch), ("block", offset), or ("own", offset in the memory of one thread)."""
    scratch: int
    own: int
    """Bytes that each thread needs for itself."""
    partial: dict[int, tuple[int, int]]
    """Number of a reduction over shared rows -> offset in scratch, and bytes from one chunk's part to the next."""
    outputs: list[Op]
    roots: dict[int, Op]
    blocks: dict[int, tuple[int, tuple[int, ...]]]
    """Number of a root that has memory for a block of rows -> its axis of rows, and the shape of that memory."""


@lru_cache(4096)
def identity(shape: tuple[int, ...]) -> tuple[Map, ...]:
    """Maps that read every entry in its own place."""
    return tuple((0, i, 1) if n != 1 else (0, -1, 0) for i, n in enumerate(shape))


def kept_maps(op: Op) -> tuple[Map, ...]:
    """Maps from a reduction's own axes to those of its space."""
    kept = [i for i in range(len(op.inputs[0].shape)) if i not in op.attr[1]]
    if op.kind == "scatter":
        own = iter(kept)
        return tuple(
            (0, -1, 0) if i in op.attr[2] else (0, next(own), 1) for i in range(len(op.shape))
        )
    return tuple((0, i, 1) if op.inputs[0].shape[i] != 1 else (0, -1, 0) for i in kept)


def own_maps(root: Op) -> tuple[Map, ...]:
    """Maps from a root's axes to those of its nest."""
    return kept_maps(root) if root.kind in SUMS else identity(root.shape)


def row_axis(root: Op, along: int) -> int | None:
    """The axis of a root's own that is an axis of its nest; none where that is summed over, or of length 1."""
    return next((i for i, (_, axis, _) in enumerate(own_maps(root)) if axis == along), None)


def base(op: Op) -> Op:
    """The expression whose memory a chain of reshapes reads."""
    while op.kind == "reshape":
        op = op.inputs[0]
    return op


class Walk:
    """What an expression reads in a space: leaves with their maps, and each evaluation on the way."""

    def __init__(self, roots: set[int]) -> None:
        self.roots = roots
        self.reads: list[tuple[Op, tuple[Map, ...]]] = []
        self.evaluated: dict[tuple[int, tuple[Map, ...]], Op] = {}
        self.breaks: dict[int, set[int]] = {}
        self.within: set[int] = set()
        """Numbers of what would be read rather than evaluated if it were a root."""
        self._waits: dict[int, bool] | None = None

    def waits(self, space: tuple[int, ...]) -> dict[int, bool]:
        """Numbers of what the walk reads beside leaves; whether loops over the walk's space must wait until all of it is there."""
        if self._waits is None:
            self._waits = {}
            for read, maps in self.reads:
                root = base(read)
                if root.kind not in LEAVES and not self._waits.get(root.number):
                    self._waits[root.number] = not _in_step(read, maps, space)
        return self._waits

    def into(self, op: Op, maps: tuple[Map, ...], top: bool = False) -> None:
        """Follow an expression from where it is used."""
        if not top and (op.number in self.roots or op.kind in LEAVES or op.kind == "reshape"):
            self.reads.append((op, maps))
            return
        key = (op.number, maps)
        if key in self.evaluated or op.kind == "const":
            return
        self.evaluated[key] = op
        if op.kind in ("elem", "complex"):
            for x in op.inputs:
                self.into(x, maps)
        elif op.kind == "view":
            from .arrays import composed

            self.into(op.inputs[0], tuple(composed(op.attr, maps)))
        elif op.kind == "region":
            x, outside = op.inputs
            for (start, axis), (offset, at, step), n in zip(op.attr, maps, op.shape, strict=True):
                length = 1 if axis < 0 else x.shape[axis]
                for edge in (start, start + length):
                    if at >= 0 and 0 < edge <= n:
                        self.breaks.setdefault(at, set()).add(crossing(offset, step, edge))
            self.into(outside, maps)
            self.into(x, inside_maps(op, maps))
        elif op.kind == "gather":
            x, *indices = op.inputs
            depth = len(indices[0].shape)
            for index in indices:
                self.into(index, maps[:depth])
            self.reads.append((x, gathered_maps(op, maps)))
        elif op.kind in SUMS and top:
            for x in op.inputs:
                self.into(x, identity(x.shape))


def crossing(offset: int, step: int, edge: int) -> int:
    """The first index at which `offset + step * i` is on the other side of an edge."""
    if step > 0:
        return -((offset - edge) // step)
    return (offset - edge) // -step + 1


def inside_maps(region: Op, maps: Sequence[Map]) -> tuple[Map, ...]:
    """Maps of what a region holds, from the maps of the whole."""
    x = region.inputs[0]
    result: list[Map] = [(0, -1, 0)] * len(x.shape)
    for (start, axis), (offset, at, step) in zip(region.attr, maps, strict=True):
        if axis >= 0:
            result[axis] = (offset - start, at, step)
    return tuple(result)


def gathered_maps(op: Op, maps: Sequence[Map]) -> tuple[Any, ...]:
    """Maps of what a gather reads, from the maps of its result; the axes that its indices say have none.

    Of an axis of length 1 too: no map is another map than that to place 0, as what is gathered is read from memory.
    """
    rest = iter(maps[len(op.inputs[1].shape) :])
    x = op.inputs[0]
    return tuple((0, -1, None) if i in op.attr else next(rest) for i in range(len(x.shape)))


def _held(op: Op) -> bool:
    """Whether a reduction is a product of matrices that keeps rows of sums in registers: two take turns."""
    (x, *_) = op.inputs
    if op.kind != "reduce" or len(x.shape) < 3 or len(x.shape) - 1 in op.attr[1]:
        return False
    return x.kind == "elem" and all(len(varying(y)) < len(x.shape) for y in x.inputs)


def space_of(op: Op) -> tuple[int, ...]:
    """The space over which a root is computed."""
    return op.inputs[0].shape if op.kind in ("reduce", "scatter") else op.shape


def topological(outputs: Sequence[Op]) -> list[Op]:
    """Every expression below the outputs, operands first."""
    seen: dict[int, Op] = {}
    stack = list(outputs)
    while stack:
        op = stack.pop()
        if op.number not in seen:
            seen[op.number] = op
            stack.extend(op.inputs)
    return [seen[number] for number in sorted(seen)]


class Scheduler:
    """Finds the roots, then nests, then groups, then memory."""

    def __init__(self, outputs: Sequence[Op], sharing: bool = True) -> None:
        self.outputs = list(outputs)
        self.sharing = sharing
        self.order = topological(outputs)
        self.roots: set[int] = set()
        self.by_number = {op.number: op for op in self.order}
        self.users: dict[int, list[Op]] = {op.number: [] for op in self.order}
        for op in self.order:
            for x in op.inputs:
                self.users[x.number].append(op)
        self.nests: list[Nest] = []
        self.nest_of: dict[int, int] = {}
        self._walks: dict[tuple[int, bool], Walk] = {}
        self._walked_with: set[int] = set()

    def run(self) -> Schedule:
        """The schedule of these outputs."""
        self._necessary()
        for _ in range(12):
            if not self._costly():
                break
        self._assign()
        for _ in range(8):
            if not self._shared():
                break
            self.nests, self.nest_of = [], {}
            self._assign()
        schedule = self._placed(self._grouped())
        if schedule.scratch < rows.LARGE:
            return schedule
        return self._along_others(schedule)

    def _along_others(self, schedule: Schedule) -> Schedule:
        """The schedule with rows along other axes, where that needs much less memory."""
        best, most = [0] * len(self.nests), schedule.scratch * rows.LESS
        for family in rows.families([nest.space for nest in self.nests], self._links()):
            axes = [family.get(i, 0) for i in range(len(self.nests))]
            self._turn(axes)
            groups = self._grouped()
            if all(map(_in_lines, groups)) and (other := self._placed(groups)).scratch < most:
                best, most, schedule = axes, other.scratch, other
        self._turn(best)
        return schedule

    def _turn(self, axes: Sequence[int]) -> None:
        for nest, axis in zip(self.nests, axes, strict=True):
            nest.along = axis

    def _links(self) -> Iterator[tuple[rows.Axis, rows.Axis]]:
        """Pairs of axes, of which entry by entry one nest reads what another has computed."""
        for i, nest in enumerate(self.nests):
            for read, maps in self._reads(nest):
                at = self.nest_of.get(read.number)
                if at is None:
                    continue
                for (offset, axis, step), (_, own, _) in zip(maps, own_maps(read), strict=True):
                    if (
                        (offset, step) == (0, 1)
                        and own >= 0
                        and nest.space[axis] == self.nests[at].space[own]
                    ):
                        yield (i, axis), (at, own)

    # ------------------------------------------------------------------------------------ roots

    def _necessary(self) -> None:
        """Choose what must be stored: operands of sums' results, long chains, deep regions, outputs."""
        depth: dict[int, int] = {}
        chain: dict[int, int] = {}
        for op in self.order:
            # A walk goes down by recursion, so no chain may be longer than Python's stack allows.
            chain[op.number] = 1 + max((chain[x.number] for x in op.inputs), default=0)
            if chain[op.number] > LONGEST_CHAIN and op.kind in ("elem", "region"):
                self._root(op)
                chain[op.number] = 0
            deep = max((depth[x.number] for x in op.inputs), default=0)
            if op.kind in SUMS or (op.kind == "elem" and op.attr == PACKED):
                self._root(op)
            if op.kind == "gather":
                self._root(base(op.inputs[0]))
            if op.kind == "reshape":
                self._root(base(op))
            if op.kind == "region":
                deep += 1
                if deep > MOST_REGIONS:
                    self._root(op)
            depth[op.number] = 0 if op.number in self.roots else deep
        for op in self.outputs:
            if op.kind in ("elem", "region", "gather", "complex"):
                self._root(op)
        self._parts()

    def _parts(self) -> None:
        """Cut the operations over each space into parts that fit one nest: what passes from part to part gets memory.

        Nests share nothing but roots, so without this each would compute anew what those before it have computed.
        """
        number: dict[tuple[int, ...], int] = {}
        part: dict[int, int] = {}
        for op in self.order:
            if op.kind == "elem":
                number[op.shape] = number.get(op.shape, -1) + 1
                part[op.number] = number[op.shape] // MOST_OPS
                for x in op.inputs:
                    if (
                        x.shape == op.shape
                        and part.get(x.number, part[op.number]) < part[op.number]
                    ):
                        self._root(x)

    def _root(self, op: Op) -> None:
        if op.kind not in ("input", "array"):
            self.roots.add(op.number)

    def _walk(self, op: Op, top: bool = True) -> Walk:
        """What an expression reads; with `top` although it is a root. Made anew when what has been walked through becomes a root."""
        if len(self._walked_with) != len(self.roots):  # roots only grow
            new = self.roots - self._walked_with
            self._walked_with |= new
            for key, old in list(self._walks.items()):
                if not new.isdisjoint(old.within):
                    del self._walks[key]
        walk = self._walks.get((op.number, top))
        if walk is None:
            walk = self._walks[op.number, top] = Walk(self.roots)
            walk.into(op, identity(op.shape), top)
            walk.within = {n for n, _ in walk.evaluated if not (top and n == op.number)}
        return walk

    def _costly(self) -> bool:
        """Make roots of what is computed more than once, or more often than it has entries; whether there were any.

        The walks of the roots say above which cost an expression gets memory. A root changes what those above it cost, not where
        they are used: so one look at all walks serves every root that follows from it, the innermost ones first.
        """
        most = self._bearable()
        before = len(self.roots)
        while True:
            self.cost = cost = self._costs()
            found = {n for n, limit in most.items() if cost[n] > limit}
            # An expression whose only readers are found too, and read it entry by entry, is computed once when they have memory.
            found = {n for n in found if not self._read_by(n, found)} - self.roots
            new = self._innermost(found)
            if not new:
                return len(self.roots) > before
            self.roots |= new

    def _costs(self) -> dict[int, int]:
        """What one entry of each expression costs, in additions; a root below it is read."""
        cost: dict[int, int] = {}
        for op in self.order:
            below = sum(1 if x in self.roots else cost[x] for x in {x.number for x in op.inputs})
            cost[op.number] = min(self.own_cost(op) + below, 10**6)
        return cost

    def _bearable(self) -> dict[int, int]:
        """The costs above which expressions get memory, by number and by where the present roots use them; others never get any."""
        uses: dict[int, Any] = {}
        most: dict[int, int] = {}
        starts = [op for op in self.order if op.number in self.roots]
        starts += [op for op in self.outputs if op.number not in self.roots]
        for root in starts:
            space = space_of(root)
            entries = math.prod(space)
            for (number, maps), op in self._walk(root).evaluated.items():
                if op is root or op.kind != "elem":
                    continue
                # Nests of one space share what they compute, so a second use there is free.
                if uses.setdefault(number, (space, maps)) != (space, maps):
                    most[number] = min(most.get(number, RECOMPUTED), RECOMPUTED)
                if op.size >= entries:
                    continue
                used = [axis for _, axis, step in maps if axis >= 0 and step]
                if any(
                    n > 1 and i not in used and any(i < u for u in used)
                    for i, n in enumerate(space)
                ):
                    limit = RECOMPUTED if _held(root) else 2
                elif op.size >= 4:
                    limit = AGAIN
                else:
                    continue
                most[number] = min(most.get(number, limit), limit)
        return most

    def _read_by(self, number: int, others: set[int]) -> bool:
        """Whether these alone read an expression, entry by entry."""
        shape, users = self.by_number[number].shape, self.users[number]
        return bool(users) and all(
            u.kind == "elem" and u.number in others and u.shape == shape for u in users
        )

    def _innermost(self, found: set[int]) -> set[int]:
        """Those of some expressions that are not computed from others of them."""
        inside: set[int] = set()
        """Numbers of what is, or is computed from, one of them without a root between."""
        new = set()
        for op in self.order if found else ():
            if op.number in self.roots:
                continue
            above = any(x.number in inside for x in op.inputs)
            if op.number in found and not above:
                new.add(op.number)
            if above or op.number in found:
                inside.add(op.number)
        return new

    def _shared(self) -> bool:
        """Make roots of what several nests compute at some cost; whether there were any."""
        uses: dict[int, set[int]] = {}
        for i, nest in enumerate(self.nests):
            for op in (*nest.roots, *(op for op, _ in nest.copies)):
                walk = self._walk(op, op.number in self.roots)
                for (number, _), inner in walk.evaluated.items():
                    if inner.kind == "elem" and number not in self.roots:
                        uses.setdefault(number, set()).add(i)
        found = {n for n, at in uses.items() if len(at) > 1 and self.cost[n] > RECOMPUTED}
        new = self._innermost(found)
        self.roots |= new
        return bool(new)

    # ------------------------------------------------------------------------------------ nests

    def _assign(self) -> None:
        """Put each stored expression into a loop nest of its space, the first one that comes after all that it reads."""
        work: list[int] = []
        for op, walk in self._by_depth():
            space = space_of(op)
            first = self._first(space, walk)
            nest = next(
                (
                    i
                    for i in range(first, len(self.nests))
                    if self.nests[i].space == space
                    and not (_held(op) and any(map(_held, self.nests[i].sums)))
                    and work[i] < MOST_OPS
                ),
                None,
            )
            if nest is None:
                nest = len(self.nests)
                self.nests.append(Nest(space))
                work.append(0)
            work[nest] += len(walk.evaluated)
            self.nest_of[op.number] = nest
            (self.nests[nest].sums if op.kind in SUMS else self.nests[nest].stores).append(op)
        taken: set[int] = set()
        for k, op in enumerate(self.outputs):
            if (
                base(op).number in self.roots
                and base(op).number not in taken
                and (op.kind == "reshape" or op.number in self.roots)
            ):
                taken.add(base(op).number)
                continue
            walk = self._walk(op, False)
            first = self._first(op.shape, walk)
            nest = next(
                (
                    i
                    for i in range(first, len(self.nests))
                    if self.nests[i].space == op.shape and work[i] >= 0
                ),
                None,
            )
            if nest is None:
                nest = len(self.nests)
                self.nests.append(Nest(op.shape))
                work.append(0)
            self.nests[nest].copies.append((op, k))

    def _by_depth(self) -> list[tuple[Op, Walk]]:
        """The roots and what they read, by the number of loops that must be over before theirs; the small ones of a depth first.

        So numbers that large loops read (a discount factor) are there before, and do not part one loop from the next.
        """
        depth: dict[int, int] = {}
        found = []
        for op in self.order:
            if op.number in self.roots:
                walk = self._walk(op)
                space = space_of(op)
                depth[op.number] = max(
                    (depth[n] + waits for n, waits in walk.waits(space).items() if n in depth),
                    default=0,
                )
                found.append((depth[op.number], math.prod(space), op.number, op, walk))
        return [(op, walk) for *_, op, walk in sorted(found, key=lambda row: row[:3])]

    def _first(self, space: tuple[int, ...], walk: Walk) -> int:
        """The first nest that may compute what has been walked."""
        first = 0
        for number, waits in walk.waits(space).items():
            at = self.nest_of.get(number)
            if at is not None:
                first = max(first, at + waits)
        return first

    # ------------------------------------------------------------------------------------ groups

    def _grouped(self) -> list[Group]:
        """Join nests that read each other row by row into groups, which run block by block of rows so that a block stays in the cache."""
        groups: list[Group] = []
        group_of: dict[int, int] = {}
        for i, nest in enumerate(self.nests):
            first = 0
            for read, maps in self._reads(nest):
                at = self.nest_of.get(base(read).number)
                if at is None or at == i:
                    continue
                first = max(
                    first, group_of[at] if self._rowwise(read, maps, nest) else group_of[at] + 1
                )
            found = next(
                (g for g in range(first, len(groups)) if groups[g].rows == nest.rows > 1), None
            )
            if found is None:
                found = len(groups)
                groups.append(Group(nest.rows, []))
            groups[found].nests.append(nest)
            group_of[i] = found
        for group in groups:
            widest = max(nest.row for nest in group.nests)
            block = self._cached(group) if group.turned else BLOCK // max(widest, 1)
            block = max(block // EVEN, 1) * EVEN
            alone = group.rows <= 2 * block or len(group.nests[0].space) == 0
            group.block = group.rows if alone else block
            if self.sharing and group.block > 0:
                self._cut(group)
        self.group_of = {
            op.number: group_of[n]
            for op in self.order
            if (n := self.nest_of.get(op.number, -1)) >= 0
        }
        return groups

    def _cached(self, group: Group) -> int:
        """As many rows as leave what nests pass on to one another in the second-level cache."""
        each = sum(
            root.size // group.rows * root.dtype.itemsize
            for nest in group.nests
            for root in nest.roots
            if row_axis(root, nest.along) is not None
        )
        return rows.CACHED // max(each, 1)

    def _cut(self, group: Group) -> None:
        """Cut the rows of a group into chunks, if there is enough to do."""
        work = sum(self._work(nest) for nest in group.nests)
        most = min(work // CHUNK, MOST_CHUNKS)
        partial = sum(op.size for op in group.over_rows)
        if partial:
            most = min(most, work // (PARTIAL * partial))
        if most < 2 or group.rows < 2:
            return
        widest = max(nest.row for nest in group.nests)
        few = group.block >= group.rows
        if not group.turned and (widest >= BLOCK or (few and widest >= SHORT)):
            group.block = 1
        elif few:  # as many short rows at a time as there are in a chunk
            each = -(-group.rows // most)
            group.block = -(-each // EVEN) * EVEN
        blocks = -(-group.rows // group.block)
        share = -(-blocks // most) * group.block
        group.share = share if share < group.rows else 0

    def _work(self, nest: Nest) -> int:
        """What a nest costs, in additions."""
        each = 0
        for op in (*nest.roots, *(op for op, _ in nest.copies)):
            walk = self._walk(op, op.number in self.roots)
            each += 1 + len(walk.reads)
            each += sum(self.own_cost(x) for x in walk.evaluated.values())
        return each * math.prod(nest.space)

    def own_cost(self, op: Op) -> int:
        """What one entry of an expression costs beside its operands, in additions."""
        if op.kind != "elem":
            return 0
        return 1 if op.attr in CHEAP else 4 if op.attr in SLOWER else 20

    def _reads(self, nest: Nest) -> Iterator[tuple[Op, tuple[Map, ...]]]:
        for op in nest.roots:
            yield from self._walk(op).reads
        for op, _ in nest.copies:
            yield from self._walk(op, False).reads

    def _rowwise(self, read: Op, maps: Sequence[Map], nest: Nest) -> bool:
        """Whether row i of a nest reads row i only, and that row is complete when the block is."""
        root = base(read)
        axis = self._row_axis(root)
        if read is not root or axis is None or nest.rows == 1:
            return False
        return root.shape[axis] == nest.rows and maps[axis] == (0, nest.along, 1)

    def _row_axis(self, root: Op) -> int | None:
        """The axis of a root that has the rows of its nest; none where each row is a part of all of it."""
        at = self.nest_of.get(root.number)
        return None if at is None else row_axis(root, self.nests[at].along)

    # ------------------------------------------------------------------------------------ memory

    def _placed(self, groups: list[Group]) -> Schedule:
        """Give each stored expression its memory: an output, a block of its group, or scratch."""
        memory: dict[int, tuple[str, int]] = {}
        blocks: dict[int, tuple[int, tuple[int, ...]]] = {}
        copied = {k for nest in self.nests for _, k in nest.copies}
        for k, op in enumerate(self.outputs):
            if k not in copied:
                memory[base(op).number] = ("out", k)
        readers: dict[int, list[tuple[int, bool]]] = {}
        for g, group in enumerate(groups):
            for nest in group.nests:
                for read, maps in self._reads(nest):
                    readers.setdefault(base(read).number, []).append(
                        (g, self._rowwise(read, maps, nest))
                    )
        offset = 0
        own = dict.fromkeys(range(len(groups)), 0)
        for op in self.order:
            if op.number not in self.roots or op.number in memory:
                continue
            group = groups[self.group_of[op.number]]
            at_home = all(
                g == self.group_of[op.number] and aligned
                for g, aligned in readers.get(op.number, ())
            )
            shape, axis = op.shape, self._row_axis(op)
            local = at_home and 0 < group.block < group.rows and axis is not None
            if local and axis is not None:
                shape = (*shape[:axis], group.block, *shape[axis + 1 :])
                blocks[op.number] = axis, shape
            size = _lines(math.prod(shape) * op.dtype.itemsize)
            if local and group.chunks > 1:
                memory[op.number] = ("own", own[self.group_of[op.number]])
                own[self.group_of[op.number]] += size
            else:
                memory[op.number] = ("block" if local else "full", offset)
                offset += size
        partial = {}
        for group in groups:
            for op in group.over_rows if group.chunks > 1 else ():
                size = _lines(op.size * op.dtype.itemsize)
                partial[op.number] = (offset, size)
                offset += size * group.chunks
        return Schedule(
            groups,
            memory,
            offset,
            max(own.values(), default=0),
            partial,
            self.outputs,
            {n: self.by_number[n] for n in self.roots},
            blocks,
        )


def _in_lines(group: Group) -> bool:
    """Whether a block of rows that are not the first axis has entries enough that lie one after the other."""
    widest = max(group.nests, key=lambda nest: nest.row)
    return (
        not group.turned
        or group.block * math.prod(widest.space[widest.along + 1 :]) >= rows.ADJACENT
    )


def _in_step(read: Op, maps: Sequence[Map], space: tuple[int, ...]) -> bool:
    """Whether loops over a space may compute what they read in the same turn."""
    root = base(read)
    return (
        read is root
        and root.kind not in SUMS
        and space_of(root) == space
        and maps == identity(space)
    )


def _lines(size: int) -> int:
    """Bytes of memory for so many: whole cache lines, and at least one."""
    return (max(size, 1) + 63) // 64 * 64


def scheduled(outputs: Sequence[Op], sharing: bool = True) -> Schedule:
    """The schedule for computing these expressions; with `sharing`, large groups are cut for threads."""
    return Scheduler(outputs, sharing).run()
