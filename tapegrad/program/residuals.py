"""Residuals: what the reverse sweep needs of the forward one, and where it finds it.

The reverse sweep runs backwards over the same memory, so a value is kept only where it would be gone. Four cases, by buffer:

- nothing overwrites what a derivative reads: it stands (a linear program reads nothing at all);
- a buffer of one iteration (*local*: each iteration of a loop writes it whole before reading it) is computed again by the reversed
  iteration, where that is elementwise and what it reads stands, as the iteration begins or (*behind*) once it has put back what the
  buffer was computed from; else it is *widened*, one copy for each iteration, so that no iteration overwrites another's;
- a store into any other buffer *saves* the element that it overwrites, and the reverse sweep puts it back as it passes: once for a loop
  that overwrites it again and again, and by the first of several stores, where no derivative reads what stood there between;
- a comparison whose operands would have to be saved for it alone is kept as a byte.

Invariant: when the reverse sweep comes to a statement, every element that its derivative reads has the value from before the
statement (or after it, where the derivative says so): each later store that touches the element is in `saved`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .affine import ONE, ZERO, Affine, Counted, whole
from .expressions import TESTS, Expr, load, nodes, rewritten
from .form import AFTER, Access, Buffer, Program, Range, Site, Store, ranges, sites
from .order import Order
from .partials import Formless


@dataclass(eq=False)
class Adjoint:
    """The derivative of one statement: cotangents by access, in terms of values before it, and of results (`after`) after it."""

    site: Site
    bars: dict[Access, Expr]
    after: dict[Expr, Access] = field(default_factory=dict)
    """Stand-ins for what was stored, by the node that takes its place in `bars`."""
    extra: list[Expr] = field(default_factory=list)
    """What the derivative computes beside the cotangents."""
    masks: dict[Expr, Access] = field(default_factory=dict)

    def roots(self) -> list[Expr]:
        return [*self.bars.values(), *self.extra]

    def reads(self) -> list[Site]:
        """Sites of the values that it reads; cotangents are not among them."""
        found = []
        for n in nodes(self.roots()):
            if n in self.after:
                found.append(self.site.probe(self.after[n], AFTER))
            elif n.op == "load" and n.access.buffer.role != "cotangent":
                found.append(self.site.probe(n.access, 0))
        return found


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a local buffer is computed again: what is read, which stores have to save for that alone, and the part of the loop's body
    behind which, going backwards, what is read has been put back (`NOW`: it stands as the reversed iteration begins)."""

    reads: list[Site]
    extra: frozenset[Store]
    behind: int


NOW = AFTER
"""Behind any part of a body."""


class Residuals:
    """The choice for one program; `decide` is told every statement's derivative."""

    def __init__(self, program: Program, keep: bool = True) -> None:
        """Prepare the choice of what the forward pass keeps for the reverse."""
        self.program, self.keep = program, keep
        self.order = Order(program.assumptions, program.sizes)
        self.sites = sites(program.body)
        self.writes: dict[Buffer, list[Site]] = {}
        for s in self.sites:
            if s.write:
                self.writes.setdefault(s.access.buffer, []).append(s)
        self.covering: set[Store] = set()
        """Stores by which an iteration writes a local buffer first, and whole: each element one of them."""
        self.local = self._locals()
        self.saved: set[Store] = set()
        self.lifted: dict[Store, tuple[int, tuple[Range, ...]]] = {}
        """Stores that save in front of a loop, with the number of loops around it, and the axes over which."""
        self._probes: list[Site] = []
        self._derivatives: dict[Buffer, list[Site]] = {}
        """Those of the probes that derivatives read, by buffer."""
        self.again: set[Buffer] = set()
        self.behind: dict[Buffer, int] = {}
        """What is computed again behind a part of its loop's body, and which."""
        self.wide: dict[Buffer, tuple[Buffer, tuple[Affine, ...]]] = {}
        self._needed: dict[Buffer, None] = {}

    # ------------------------------------------------------------------------------------------ what is local

    def _locals(self) -> dict[Buffer, int]:
        """Buffers of one iteration, with the number of loops around it."""
        touching: dict[Buffer, list[Site]] = {}
        for s in self.sites:
            touching.setdefault(s.access.buffer, []).append(s)
        found = {}
        for b, those in touching.items():
            if b.role != "temporary":
                continue
            depth = min(len(s.path) for s in those)
            while len({s.path[:depth] for s in those}) > 1:
                depth -= 1
            first = covering(those, depth, self.order) if depth else []
            if first:
                found[b] = depth
                self.covering.update(s.store for s in first)
        return found

    # --------------------------------------------------------------------------------------- what must be kept

    def overwriting(self, probe: Site, depth: int = 0) -> list[Site]:
        """Writes that may touch the element at or after a read, in the same iteration of so many loops."""
        return [
            w
            for w in self.writes.get(probe.access.buffer, ())
            if self.order.precedes(probe, w, depth)
        ]

    def _after(self, probe: Site) -> list[Site]:
        """The same among iterations that share the buffer."""
        return self.overwriting(probe, self.local.get(probe.access.buffer, 0))

    def need(self, probe: Site) -> None:
        """A derivative reads this value."""
        if not self.keep:
            return
        self._derivatives.setdefault(probe.access.buffer, []).append(probe)
        self._need(probe)

    def _need(self, probe: Site) -> None:
        self._probes.append(probe)
        if probe.access.buffer in self.local:
            self._needed.setdefault(probe.access.buffer)
        self.saved.update(w.store for w in self._after(probe))

    def cost(self, adjoint: Adjoint) -> int:
        """How many more stores would have to save."""
        lost = {w.store for probe in adjoint.reads() for w in self._after(probe)}
        return len(lost - self.saved)

    def mask(self, adjoint: Adjoint) -> None:
        """Comparisons that are to be kept as bytes, because nothing else needs what they compare."""
        if not self.keep:
            return
        tests = [n for n in nodes(adjoint.roots()) if n.op in TESTS]
        if not tests:
            return
        apart = Adjoint(adjoint.site, {}, adjoint.after)
        stand = dict.fromkeys(tests, load(Access(Buffer("mask", (), "b1", "cotangent"))))
        apart.extra = rewritten(adjoint.roots(), lambda n: None, stand)
        others = {w.store for probe in apart.reads() for w in self._after(probe)} | self.saved
        for n in tests:
            mine = Adjoint(adjoint.site, {}, adjoint.after, [n])
            lost = {w.store for probe in mine.reads() for w in self._after(probe)}
            if lost - others:
                adjoint.masks[n] = self.place("mask", adjoint.site, adjoint.site.axes, "b1")
        if adjoint.masks:
            known = {n: load(a) for n, a in adjoint.masks.items()}
            whole = rewritten(adjoint.roots(), lambda n: None, known)
            adjoint.bars = dict(zip(adjoint.bars, whole, strict=False))
            adjoint.extra = whole[len(adjoint.bars) :]

    def decide(self, adjoints: Iterable[Adjoint]) -> None:
        """Which stores save, and which local buffers are computed again or widened."""
        backwards = set[int]()
        """Statements of which the derivative comes before what they overwrote is put back."""
        for a in adjoints:
            for probe in a.reads():
                self.need(probe)
            if a.after:
                backwards.add(id(a.site.owner))
        recipes = self._recipes()
        wishes = Counter(r.extra for r in recipes.values() if r is not None)
        chosen = {
            b: r
            for b, r in recipes.items()
            if r is not None and not wishes[r.extra] <= len(r.extra) > 0
        }
        later = True
        while later:  # a buffer may wait for one that was first written after it
            later = False
            for b, r in list(chosen.items()):
                at = self._in_time(b, r, backwards)
                if at is None:
                    del chosen[b]
                    self.behind.pop(b, None)
                elif at < self.behind.get(b, NOW):
                    self.behind[b], later = at, True
        self.again = chosen.keys() - self.behind.keys()
        used: set[Buffer] = set()
        todo = list(self._needed)
        while todo:
            b = todo.pop()
            if b in used:
                continue
            used.add(b)
            recipe = recipes[b]
            if recipe is None or (b not in self.again and b not in self.behind):
                self.wide[b] = self._widened(b)
                continue
            for probe in recipe.reads:
                self._need(probe)
            todo += self._needed
        self.again &= used
        self.behind = {b: k for b, k in self.behind.items() if b in used}
        self._lift()

    # ------------------------------------------------------------------------------------- what saves once for many

    def _lift(self) -> None:
        """Save in front of loops, and once for several stores, where nothing reads the values between."""
        probes: dict[Buffer, list[Site]] = {}
        for p in self._probes:
            probes.setdefault(p.access.buffer, []).append(p)
        for b, writes in self.writes.items():
            mine = [w for w in writes if w.store in self.saved]
            for w in mine:
                depth, axes = self._front(w, probes.get(b, ()))
                if depth < len(w.path):
                    self.lifted[w.store] = depth, axes
            first: list[Site] = []
            for w in sorted(mine, key=lambda w: w.place):
                if any(self._shields(f, w, probes.get(b, ())) for f in first):
                    self.saved.discard(w.store)
                    self.lifted.pop(w.store, None)
                else:
                    first.append(w)

    def _front(self, w: Site, probes: Iterable[Site]) -> tuple[int, tuple[Range, ...]]:
        """Before which loop a store may save for all its iterations: within how many others that is, and over which axes.

        It is one that writes the same elements in each iteration, of which nothing reads any but the first that is overwritten.
        """
        axes = used(w.store, w.axes)
        best = len(w.path), axes
        names = w.access.names()
        for depth in reversed(range(len(w.path))):
            r = w.path[depth]
            if ends_by_condition(r) or any(
                p.path[: depth + 1] == w.path[: depth + 1] and self.order.meet(p, w, depth)
                for p in probes
            ):
                break
            if r.var in names:
                axes = (Range(r.var, r.lo, r.hi), *axes)
                continue
            free = not any(r.var in b.names() for a in axes for b in (a.lo, a.hi))
            if free and inside(w.access, (*w.path[:depth], *axes), self.order):
                best = depth, axes
        return best

    def saving(self, store: Store, site: Site) -> tuple[int, tuple[Range, ...]]:
        """Within how many loops a store of the statement at `site` saves, and over which axes."""
        return self.lifted.get(store) or (len(site.path), used(store, site.axes))

    def _shields(self, first: Site, w: Site, probes: Iterable[Site]) -> bool:
        """Whether a store that saves always runs before another one into its element, and nothing reads what it stores."""
        (depth, axes), (other, more) = (self.saving(x.store, x) for x in (first, w))
        if depth != other or axes or more:
            return False
        start, end = first.place[: depth + 1], w.place[: depth + 1]
        if first.path[:depth] != w.path[:depth] or start[:-1] != end[:-1] or start >= end:
            return False
        if first.access != w.access:
            return False
        return not any(
            p.path[:depth] == w.path[:depth]
            and start <= p.place[: depth + 1] <= end
            and not self._outside(p, first, w)
            and self.order.meet(p, w, depth)
            for p in probes
        )

    def _outside(self, p: Site, first: Site, w: Site) -> bool:
        """Whether a read is of what stood there before the first of two stores, or of what the second one leaves."""
        if p.owner is first.owner and first.store not in self.lifted:
            return p.place[-1] == 0
        return p.owner is w.owner and w.store not in self.lifted and p.place[-1] == AFTER

    def _recipes(self) -> dict[Buffer, Recipe | None]:
        """How what may be needed is computed again, in the order in which it is computed."""
        found: dict[Buffer, Recipe | None] = {}
        todo = list(self._needed)
        while todo:
            b = todo.pop()
            if b not in found:
                recipe = found[b] = self._recipe(b)
                if recipe is not None:
                    todo += [p.access.buffer for p in recipe.reads if p.access.buffer in self.local]
        first = {b: min(w.place for w in self.writes[b]) for b in found}
        return {b: found[b] for b in sorted(found, key=first.__getitem__)}

    def _recipe(self, b: Buffer) -> Recipe | None:
        """How a local buffer is computed again; None where it is a sum, say."""
        depth = self.local[b]
        found: list[Site] = []
        extra: set[Store] = set()
        behind = NOW
        for w in self.writes[b]:
            if len(w.path) - depth + len(w.axes) > len(b.extents):
                return None
            for leaf in w.store.value.loads:
                if leaf.access.buffer is b:
                    continue
                probe = w.probe(leaf.access, 0)
                for o in self.overwriting(probe, depth):
                    if o.path[:depth] != w.path[:depth]:
                        return None
                    behind = min(behind, o.place[depth])
                extra |= {x.store for x in self._after(probe)} - self.saved
                found.append(probe)
        return Recipe(found, frozenset(extra), behind)

    def _in_time(self, b: Buffer, recipe: Recipe, backwards: set[int]) -> int | None:
        """Behind which part of its loop's body a local buffer is computed again; None where that is too late for a derivative, or too
        early for what the buffer is computed from."""
        depth, k, writes = self.local[b], recipe.behind, self.writes[b]
        for c in {p.access.buffer for p in recipe.reads} & self.behind.keys():
            outer = self.local[c]
            if outer == depth:
                k = min(k, self.behind[c])
            elif outer > depth or any(w.place[outer] >= self.behind[c] for w in writes):
                return None
        if k == NOW:
            return k
        for p in self._derivatives.get(b, ()):
            if p.place[depth] >= k:
                there = p.place[depth] == k and len(p.path) == depth and p.place[-1] == 0
                if not there or id(p.owner) in backwards:
                    return None
        return None if any(w.place[depth] >= k for w in writes) else k

    # ------------------------------------------------------------------------------------------ where it lies

    def _widened(self, b: Buffer) -> tuple[Buffer, tuple[Affine, ...]]:
        path = self.writes[b][0].path[: self.local[b]]
        trips, index = box(path)
        return Buffer(self.program.names(b.name), (*trips, *b.extents), b.dtype), index

    def place(self, stem: str, site: Site, axes: Iterable[Range], dtype: str) -> Access:
        """A residual's element for each iteration of the loops around a statement and each point of these axes."""
        trips, index = box((*site.path, *axes))
        return Access(Buffer(self.program.names(stem), trips, dtype), index)

    def moved(self, a: Access) -> Access:
        """Where an access goes, once local buffers have been widened."""
        found = self.wide.get(a.buffer)
        return a if found is None else Access(found[0], (*found[1], *a.index))


def inside(a: Access, path: tuple[Range, ...], order: Order) -> bool:
    """The element exists in every iteration of `path`, whether or not a loop within runs."""
    bounds = zip(a.index, a.buffer.extents, strict=True)
    return all(
        order.exists(i, path) and order.proves(i, path) and order.proves(n - i - 1, path)
        for i, n in bounds
    )


def covers(first: Site, depth: int, apart: int | None = None) -> bool:
    """Whether the loops within `depth` and the axes take a write through its whole buffer (but for the dimension `apart`). A loop of one
    iteration takes nothing anywhere."""
    every = (*first.path[depth:], *first.axes)
    inner = {r.var: r for r in every if (r.lo, r.hi) != (ZERO, ONE)}
    dims = [
        (i, n)
        for d, (i, n) in enumerate(
            zip(first.access.index, first.access.buffer.extents, strict=True)
        )
        if d != apart and n != ONE
    ]
    moving = [next((inner[v] for v in i.names() if v in inner), None) for i, _ in dims]
    return len(set(moving)) == len(inner) == len(moving) and all(
        r is not None and i == r.at and r.lo == ZERO and r.hi == n
        for r, (i, n) in zip(moving, dims, strict=True)
    )


def covering(those: Sequence[Site], depth: int, order: Order) -> list[Site]:
    """Of the accesses of a buffer the first writes in an iteration of so many loops that write each of its elements, once, before any of
    them is read; none where there are no such."""
    writes = sorted((s for s in those if s.write), key=lambda s: s.place)
    count = _until_whole(writes, depth, order)
    early = (
        not s.write and any(order.precedes(s, w, depth) for w in writes[:count]) for s in those
    )
    return [] if any(early) else writes[:count]


def _until_whole(writes: Sequence[Site], depth: int, order: Order) -> int:
    """How many first writes to a buffer write each of its elements once; 0 where none do."""
    parts: list[Part] = []
    for count, s in enumerate(writes, 1):
        if s.store.mode != "=":
            return 0
        if count == 1 and covers(s, depth):
            return 1
        part = _part(s, depth, order)
        if part is None:
            return 0
        parts = _joined(parts, part)
        if parts == [tuple((ZERO, n) for n in s.access.buffer.extents)]:
            return count
    return 0


Part = tuple[tuple[Affine, Affine], ...]
"""A part of an array, from one number to another on each axis."""


def _part(s: Site, depth: int, order: Order) -> Part | None:
    """What the loops within `depth` and the axes take a write through, each element once; None where that is no part, or may be none."""
    within = {r.var: r for r in (*s.path[depth:], *s.axes)}
    left, part = dict(within), []
    for i in s.access.index:
        lo, hi = i, i + 1
        moving = i.names() & within.keys()
        if moving:
            r = left.pop(moving.pop(), None)
            if r is None:
                return None
            lo, hi = i - r.at + r.lo, i - r.at + r.hi
        if (lo.names() | hi.names()) & within.keys() or not order.proves(hi - lo, s.path[:depth]):
            return None
        part.append((lo, hi))
    return None if left else tuple(part)


def _joined(parts: list[Part], new: Part) -> list[Part]:
    """Parts of an array with one more, those that are one next to the other as one."""
    for k, old in enumerate(parts):
        other = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(other) == 1:
            (d,) = other
            for a, b in ((old, new), (new, old)):
                if a[d][1] == b[d][0]:
                    whole = (*a[:d], (a[d][0], b[d][1]), *a[d + 1 :])
                    return _joined([*parts[:k], *parts[k + 1 :]], whole)
    return [*parts, new]


def box(ranges: Iterable[Range]) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """(extents, index) of the smallest box that has an element for each iteration of some loops."""
    low: dict[str, Affine] = {}
    high: dict[str, Affine] = {}
    extents, index = list[Affine](), list[Affine]()
    for r in ranges:
        if ends_by_condition(r):
            low[r.var], high[r.var] = ZERO, ceiling(r) - 1
            if r.stack is not None:  # its places are those of all iterations of the loops around
                extents, index = [r.stack.room], [r.at + r.stack.start]
            continue
        lo, hi = extreme(r.lo, low, high), extreme(r.hi, high, low)
        if not (whole(lo) and whole(hi)):
            raise Formless("Values are kept of a loop whose length is read from an array.")
        low[r.var], high[r.var] = lo, hi - 1
        extents.append(hi - lo)
        index.append(r.at - lo)
    return tuple(extents), tuple(index)


def ends_by_condition(r: Range) -> bool:
    """Whether a range is that of a loop with the bound "until the condition"."""
    return any(isinstance(name, Counted) for name, _ in r.hi.terms)


def ceiling(r: Range) -> Affine:
    """At most how many iterations such a loop has, in the terms of sizes."""
    return ONE if r.stack is None else r.stack.room


def spans(program: Program, body: Sequence[Any]) -> tuple[dict[str, Affine], dict[str, Affine]]:
    """The least and the largest values of the variables of loops, as they were made or stand in `body`."""
    low: dict[str, Affine] = {}
    high: dict[str, Affine] = {}

    for r in (*program.loops, *ranges(body)):
        low[r.var] = extreme(r.lo, low, high)
        high[r.var] = (ceiling(r) if ends_by_condition(r) else extreme(r.hi, high, low)) - 1
    return low, high


def extreme(e: Affine, up: Mapping[str, Affine], down: Mapping[str, Affine]) -> Affine:
    """The largest that an affine integer is, by what its names are at most (`up`) and at least (`down`); the least, the other way round."""
    values = {n: (up if c > 0 else down)[n] for n, c in e.terms if n in up}
    return e.replaced(values)


def used(s: Store, axes: Iterable[Range]) -> tuple[Range, ...]:
    """The axes along which a store has other targets."""
    names = s.target.names()
    return tuple(r for r in axes if r.var in names)


__all__ = [
    "Adjoint",
    "Residuals",
    "box",
    "ceiling",
    "covers",
    "ends_by_condition",
    "extreme",
    "inside",
    "used",
]
