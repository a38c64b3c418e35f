"""Arrays while a program is built: a shape, and the element at an index.

Slices, broadcasts, transposes and reversals are arithmetic on indices and leave no statement behind. A `Builder` appends statements and
loops; front ends tell it what the source does. The condition for an index to be in bounds is proved from the loops around it, or becomes
an assumption about sizes that each call checks.

Invariant: an array with an `access` is a view of memory, so it changes with the memory; any other one is a formula, to be stored before
what it reads is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import Any

from . import calls, lapack
from .affine import ONE, ZERO, Affine, Counted, Element, Extreme, affine, whole
from .expressions import B1, F4, F8, WHOLE, Expr, cast, const, load, node, number
from .form import (
    Access,
    Buffer,
    Loop,
    Names,
    Program,
    Range,
    Stack,
    Statement,
    Store,
    Until,
    over,
    sites,
)
from .order import Order
from .residuals import box

Index = tuple[Affine, ...]
NEUTRAL = {"+=": 0.0, "max=": float("-inf"), "min=": float("inf")}
"""The neutral element of each update."""


class Outside(Exception):
    """The program lies outside the form; the message names the construct."""


@dataclass(eq=False, slots=True)
class Array:
    """A shape and a function from an index to the element there; a number has no axes."""

    shape: Index
    at: Callable[[Index], Expr]
    dtype: str = F8
    access: Callable[[Index], Access] | None = None
    reads: frozenset[Buffer] = frozenset()

    def element(self, index: Index) -> Expr:
        """The element at an index of the shape that the array is broadcast to."""
        own = index[len(index) - len(self.shape) :]
        return self.at(tuple(ZERO if n == ONE else i for i, n in zip(own, self.shape, strict=True)))

    def number(self) -> Expr:
        return self.at(())

    def unnamed(self) -> Array:
        """The same elements as an array that has no other name: who binds the array takes them into memory of its own."""
        return replace(self, access=None)


def of_number(e: Expr) -> Array:
    return Array((), lambda _: e, e.dtype, None, frozenset(leaf.access.buffer for leaf in e.loads))


def of_buffer(b: Buffer) -> Array:
    return viewed(b.extents, lambda index: Access(b, index), b)


def viewed(shape: Index, access: Callable[[Index], Access], b: Buffer) -> Array:
    if b.dtype in WHOLE:
        return Array(
            shape, lambda index: number(affine(Element(b, access(index).index))), b.dtype, access
        )
    return Array(shape, lambda index: load(access(index)), b.dtype, access, frozenset((b,)))


def remapped(a: Array, shape: Index, to: Callable[[Index], Index]) -> Array:
    """A view of this array: of memory a view, of a formula another formula."""
    own = a.access
    access = None if own is None else lambda index: own(to(index))
    return Array(shape, lambda index: a.at(to(index)), a.dtype, access, a.reads)


def _least(e: Affine, path: tuple[Range, ...], bounded: bool = True) -> Affine:
    """A lower bound of an affine integer over these loops, in sizes and extremes of arrays; without `bounded`, elements may occur in it."""
    if not bounded:
        for r in reversed(path):
            c = e[r.var]
            e = e.replaced({r.var: r.lo if c > 0 else r.hi - 1}) if c else e
        return e
    e = _bounded(e)
    for r in reversed(path):
        c = e[r.var]
        if c:
            e = _bounded(e.replaced({r.var: r.lo if c > 0 else r.hi - 1}))
    return e


def _bounded(e: Affine) -> Affine:
    """A lower bound of an affine integer in which no element occurs."""
    ends: dict[str, Affine] = {}
    for n, c in e.terms:
        if isinstance(n, Counted):
            if c > 0 or n.top is not None:
                ends[n] = n.least if c > 0 or n.top is None else n.top
        elif isinstance(n, Element):
            ends[n] = n.least if c > 0 else n.most
    return e.replaced(ends)


def _spread(e: Affine) -> bool:
    """Whether e >= 0 asks that the least number of an array be as large as its greatest, so that hardly a call would fulfil it."""
    ends = {(n.of, n.most): c for n, c in e.terms if isinstance(n, Extreme)}
    one = any(c > 0 and not most and ends.get((b, True), 0) < 0 for (b, most), c in ends.items())
    return one and e.const <= 0 and len(ends) == len(e.terms)


def _place(a: Array) -> tuple[Index, Access] | None:
    """Where an array lies; None of one that is no memory."""
    if a.access is None:
        return None
    return a.shape, a.access(tuple(affine(f"_{d}") for d in range(len(a.shape))))


class Builder:
    """Appends statements to a program."""

    def __init__(self, name: str) -> None:
        """An empty program, to which loops and statements are appended."""
        self.names = Names()
        self.name = name
        self.root: list[Any] = []
        self.body = self.root
        self.path: tuple[Range, ...] = ()
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.sizes: list[str] = []
        self.assumptions: list[Affine] = []
        self.guards: list[Access] = []
        """Truth values that the statements which are appended depend on: those of the branches around."""
        self.born: dict[Buffer, tuple[Access, ...]] = {}
        """The guards under which a buffer was made: a store under the same ones need not ask them."""
        self.untils: list[tuple[int, Until]] = []
        """The loops around that end by a condition, each with the number of loops around its iterations."""
        self.frames: list[tuple[list[Any], int]] = []
        """For each loop around, what it stands in and how many guards there are outside of it."""
        self.placed: dict[Any, tuple[Affine, set[Buffer]]] = {}
        """Places in front of an open loop, by what they are of, each with the memory that it was computed from."""
        self.values: dict[Buffer, tuple[Expr, tuple[Range, ...], list[Access]]] = {}
        """What was stored last to memory of one number, with the loops and guards around the store."""
        self.rooms: list[str] = []
        self.loops: list[Range] = []
        self.calls: dict[Any, tuple[Loop, Buffer]] = {}
        """By routine and operands the latest call, with its result."""
        self._order: Order | None = None

    def program(self) -> Program:
        return Program(
            self.name,
            self.inputs,
            self.outputs,
            self.sizes,
            self.root,
            self.assumptions,
            self.rooms,
            self.names,
            self.loops,
        )

    @property
    def order(self) -> Order:
        if self._order is None:
            self._order = Order(list(self.assumptions), self.sizes)
        return self._order

    def size(self, name: str) -> Affine:
        if name not in self.sizes:
            self.sizes.append(name)
            self.names.take(name)
            self._order = None
        return affine(name)

    # ------------------------------------------------------------------------------------------ claims

    def claim(self, claim: Affine, what: str) -> None:
        """claim >= 0 here: proved, or assumed of the sizes."""
        if self.order.proves(claim, self.path):
            return
        e = _least(claim, self.path)
        if not whole(e) or (not e.terms and e.const < 0):
            if self.untils:  # asked as the program runs
                depth, until = self.untils[-1]
                until.claims.append(_least(claim, self.path[depth:], False))
                return
            raise Outside(f"{what} is out of bounds for some turn")
        if _spread(e):
            raise Outside(f"{what} holds only where all numbers of an array are one")
        if e.terms:
            self.assumptions.append(e)
            self._order = None

    @contextmanager
    def along(self, shape: Index) -> Iterator[Index]:
        """Claims in this context are of every index of a shape, which is given."""
        path, axes = self.path, over(shape, self.names)
        self.path = (*path, *axes)
        try:
            yield tuple(r.at for r in axes)
        finally:
            self.path = path

    def likely(self, claim: Affine, path: tuple[Range, ...]) -> bool:
        """Whether claim >= 0 in every iteration of these loops, or at least where sizes are large enough."""
        if self.order.proves(claim, path):
            return True
        e = _least(claim, path)
        return bool(e.terms) and all(c > 0 for _, c in e.terms)

    def mark(self) -> tuple[int, int, list[int]]:
        """A mark: how many statements and claims there are now."""
        claims = [len(until.claims) for _, until in self.untils]
        return len(self.body), len(self.assumptions), claims

    def back(self, mark: tuple[int, int, list[int]]) -> None:
        """Remove the statements and claims that were added since a mark of the same body."""
        self.placed.clear()
        self.values.clear()
        del self.body[mark[0] :]
        del self.assumptions[mark[1] :]
        for (_, until), count in zip(self.untils, mark[2], strict=True):
            del until.claims[count:]
        self._order = None

    def same(self, a: Affine, b: Affine, what: str) -> None:
        """Two extents are equal."""
        if a != b:
            difference = a - b
            if not difference.terms:
                raise Outside(f"{what}: {a} and {b} differ")
            self.claim(difference, what)
            self.claim(difference * -1, what)

    # ------------------------------------------------------------------------------------------ shapes

    def broadcast(self, arrays: Sequence[Array]) -> Index:
        rank = max((len(a.shape) for a in arrays), default=0)
        shape = [ONE] * rank
        for a in arrays:
            for d, n in enumerate(a.shape, rank - len(a.shape)):
                if shape[d] == ONE:
                    shape[d] = n
                elif n != ONE:
                    self.same(n, shape[d], "shapes of operands")
        return tuple(shape)

    def elementwise(self, make: Callable[..., Expr], *arrays: Array, dtype: str = F8) -> Array:
        reads = frozenset(b for a in arrays for b in a.reads)
        return Array(
            self.broadcast(arrays),
            lambda index: make(*(a.element(index) for a in arrays)),
            dtype,
            None,
            reads,
        )

    def position(self, i: Affine, n: Affine, what: str) -> Affine:
        """An index as Python means it: a number below zero counts from the end."""
        below = i * -1 - 1
        if self.order.proves(below, self.path):
            i = n + i
        elif self.likely(below, self.path) and not self.likely(i, self.path):
            self.claim(below, what)
            i = n + i
        self.claim(i, what)
        self.claim(n - i - 1, what)
        return i

    def sliced(
        self, n: Affine, lo: Affine | None, hi: Affine | None, step: int, what: str
    ) -> tuple[Affine, Affine]:
        """(first index, extent) of a slice of step 1 or -1 of an axis of extent n."""

        def end(x: Affine) -> Affine:
            return n + x if self.order.proves(x * -1 - 1, self.path) else x

        if step == 1:
            first, last = ZERO if lo is None else end(lo), n if hi is None else end(hi)
        elif step == -1 and lo is None and hi is None:
            return n - 1, n
        else:
            raise Outside(f"{what} has a step")
        self.claim(first, what)
        self.claim(n - last, what)
        self.claim(last - first, what)
        return first, last - first

    # ------------------------------------------------------------------------------------------ statements

    def emit(self, axes: tuple[Range, ...], *stores: Store) -> None:
        self.body.append(Statement(axes, list(map(self._guarded, stores))))

    def _guarded(self, s: Store) -> Store:
        """The store under the guards: where one of them does not hold, the element stays as it is."""
        born = self.born.get(s.target.buffer, ())
        known = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(born, self.guards)))  # noqa: B905  the first is shorter
        tests = [load(g) for g in self.guards[known:]]
        if not tests:
            return s
        test = reduce(lambda a, b: node("logical_and", a, b), tests)
        if s.mode == "=":
            other = load(s.target)
        else:
            other = const(NEUTRAL[s.mode], s.target.buffer.dtype)
        return Store(s.target, node("where", test, s.value, other), s.mode)

    @contextmanager
    def guarded(self, test: Expr) -> Iterator[None]:
        """Statements appended in this context store only where `test` holds; values before the store are computed in any case."""
        guard = Access(self.buffer("if", (), B1))
        self.emit((), Store(guard, test))
        self.guards.append(guard)
        try:
            yield
        finally:
            self.guards.pop()

    def buffer(self, stem: str, shape: Index, dtype: str, role: str = "temporary") -> Buffer:
        if not all(map(whole, shape)):
            raise Outside(f"the length of {stem} is read from an array")
        if dtype in WHOLE and role != "input":
            raise Outside("a new array of whole numbers")
        b = Buffer(self.names(stem), shape, dtype, role)
        self.born[b] = tuple(self.guards)
        return b

    def store(self, target: Array, value: Array, mode: str = "=") -> None:
        """target = value, element by element, as NumPy does it: all of the value first."""
        assert target.access is not None
        axes = over(tuple(n for n in target.shape if n != ONE), self.names)
        moving = iter(axes)
        index = tuple(ZERO if n == ONE else next(moving).at for n in target.shape)
        extra = len(value.shape) - len(index)
        for n in value.shape[: max(extra, 0)]:
            self.same(n, ONE, "shape of what is stored")
        for n, m in zip(value.shape[max(extra, 0) :], target.shape[max(-extra, 0) :], strict=True):
            if n != ONE:
                self.same(n, m, "shape of what is stored")
        at = (ZERO,) * max(extra, 0) + index
        self.emit(axes, Store(target.access(index), cast(value.element(at), target.dtype), mode))

    def kept(self, value: Array, stem: str) -> Array:
        """A copy of the value in a new buffer."""
        b = self.buffer(stem, value.shape, value.dtype)
        self.store(of_buffer(b), value)
        return of_buffer(b)

    def reduced(self, value: Array, axes: Sequence[int], mode: str, stem: str) -> Array:
        """A sum, maximum or minimum over some axes, in a new buffer."""
        start = NEUTRAL[mode]
        left = tuple(d for d in range(len(value.shape)) if d not in axes)
        b = self.buffer(stem, tuple(value.shape[d] for d in left), value.dtype)
        if mode != "+=":
            for d in axes:
                self.claim(value.shape[d] - 1, "an extreme of nothing")
        self.store(of_buffer(b), of_number(const(start, value.dtype)))
        every = over(value.shape, self.names)
        index = tuple(r.at for r in every)
        target = Access(b, tuple(index[d] for d in left))
        ordered = (*(every[d] for d in left), *(every[d] for d in axes))
        self.emit(ordered, Store(target, value.at(index), mode))
        return of_buffer(b)

    def accumulated(self, value: Array, axis: int, op: str) -> Array:
        """Sums ("add") or products ("multiply") of the first 0, 1, 2, ... entries along an axis, so that no derivative divides by one."""
        left, n = (*value.shape[:axis], *value.shape[axis + 1 :]), value.shape[axis]
        shape = (*value.shape[:axis], n + 1, *value.shape[axis + 1 :])
        b = self.buffer("running", shape, value.dtype)
        start = const(0.0 if op == "add" else 1.0, value.dtype)

        def at(k: Affine) -> tuple[tuple[Range, ...], Index]:
            every = over(left, self.names)
            index = tuple(r.at for r in every)
            return every, (*index[:axis], k, *index[axis:])

        every, index = at(ZERO)
        self.emit(every, Store(Access(b, index), start))
        with self.loop("k", ZERO, n, 1) as k:
            every, index = at(k)
            following = (*index[:axis], k + 1, *index[axis + 1 :])
            total = node(op, load(Access(b, index)), value.at(index))
            self.emit(every, Store(Access(b, following), total))
        return of_buffer(b)

    def place(self, a: Array, most: bool) -> Affine:
        """Where a vector is largest first, or smallest, as a number that indices may have; a NaN is both, as in `np.argmax`."""
        (extreme,) = self.reduced(a, [0], "max=" if most else "min=", "extreme").reads
        (axis,) = over(a.shape, self.names)
        x = a.at((axis.at,))
        there = node(
            "logical_or",
            node("equal", x, load(Access(extreme))),
            node("not_equal", x, x),
        )
        first = Access(self.buffer("first", (), F8))
        self.emit((), Store(first, number(a.shape[0])))
        own = node("where", there, number(axis.at), number(a.shape[0]))
        self.emit((axis,), Store(first, own, "min="))
        extents, index = box(self.path)
        kept = Access(Buffer(self.names("place"), extents, "i8", "counter"), index)
        self.emit_always(
            Store(kept, cast(load(first), "i8"))
        )  # an index where a branch is not taken, too
        return affine(Counted(kept.buffer, kept.index, a.shape[0] - 1))

    def product(self, a: Array, b: Array) -> Array:
        """`a @ b`, of vectors and matrices."""
        self.same(a.shape[-1], b.shape[0], "shapes of a product")
        if len(a.shape) == len(b.shape) == 2:
            rows = Array((*a.shape, ONE), lambda i: a.at(i[:2]), a.dtype, None, a.reads)
            columns = Array((ONE, *b.shape), lambda i: b.at(i[1:]), b.dtype, None, b.reads)
            terms = self.elementwise(
                lambda x, y: node("multiply", x, y), rows, columns, dtype=a.dtype
            )
            return self.reduced(terms, [1], "+=", "product")
        if len(b.shape) == 1:
            row = b.unnamed()
            terms = self.elementwise(lambda x, y: node("multiply", x, y), a, row, dtype=a.dtype)
            return self.reduced(terms, [len(a.shape) - 1], "+=", "product")
        column = Array((a.shape[0], ONE), lambda i: a.at(i[:1]), a.dtype, None, a.reads)
        terms = self.elementwise(lambda x, y: node("multiply", x, y), column, b, dtype=a.dtype)
        return self.reduced(terms, [0], "+=", "product")

    def called(self, name: str, operands: Sequence[Array], shape: Index) -> Array:
        """The result of a routine (`calls`), in a new buffer, or that of the same call before: it is not to be stored to.

        Outside under guards, where the routine would run in any case.
        """
        dtype = operands[0].dtype
        if self.guards:
            raise Outside("a linear system on one side of a branch")
        if not lapack.available({F8: "double", F4: "float"}[dtype]):
            raise Outside("a linear system, as there is no LAPACK to be called")
        key = name, *map(_place, operands)
        known = self._called_before(key, operands)
        if known is not None:
            return of_buffer(known)
        given = [self._region(x) or self._region(self.kept(x, "t")) for x in operands]
        b = self.buffer("solved", shape, dtype)
        made = calls.call(name, given, calls.region(b, self.names), self.names)  # type: ignore[arg-type]
        self.body.append(made)
        if None not in key:
            self.calls[key] = made, b
        return of_buffer(b)

    def _called_before(self, key: Any, operands: Sequence[Array]) -> Buffer | None:
        """The result of the last call of this kind, where it stands in this body and nothing has stored to its operands since."""
        made, result = self.calls.get(key, (None, None))
        at = next((k for k, s in enumerate(self.body) if s is made), None)
        if at is None:
            return None
        read = {b for a in operands for b in a.reads}
        since = sites(self.body[at + 1 :], self.path)
        return None if any(s.write and s.access.buffer in read for s in since) else result

    def emit_always(self, s: Store, axes: tuple[Range, ...] = ()) -> None:
        """A store that no guard keeps from happening."""
        self.body.append(Statement(axes, [s]))

    def demand(self, b: Buffer) -> None:
        """The program does not hold where the one number of a buffer is not 0."""
        result = Buffer(self.names("held"), (ONE,), b.dtype, "counter")
        given = [calls.region(b, self.names)]
        self.body.append(calls.call("demand", given, calls.region(result, self.names), self.names))

    def _region(self, a: Array) -> calls.Region | None:
        """An array as a region whose rows lie without gaps, one behind another at equal distances; None where they do not."""
        if a.access is None:
            return None
        axes = over(a.shape, self.names)
        found = a.access(tuple(r.at for r in axes))
        own = {r.var for r in axes}
        want = [set[str]() for _ in found.index[len(axes) :]] + [{r.var} for r in axes]
        plain = all(i.names() & own == w for i, w in zip(found.index, want, strict=True))
        once = all(i.moves(n) == 1 for i, w in zip(found.index, want, strict=True) for n in w)
        return calls.Region(found, axes) if plain and once else None

    @contextmanager
    def loop(self, stem: str, lo: Affine, hi: Affine, step: int) -> Iterator[Affine]:
        """A loop; statements appended in this context are its body."""
        r = Range(self.names(stem), lo, hi, step)
        self.loops.append(r)
        outside, path = self.body, self.path
        self.frames.append((outside, len(self.guards)))
        self.body, self.path = [], (*path, r)
        outside.append(Loop(r, self.body))
        try:
            yield r.at
        finally:
            self.frames.pop()
            self.body, self.path = outside, path

    def changes(self, memory: Collection[Buffer]) -> None:
        """What was known of this memory is no longer."""
        for key in [k for k, (_, of) in self.placed.items() if not of.isdisjoint(memory)]:
            del self.placed[key]
        for b in memory:
            self.values.pop(b, None)

    def may_leave(self, level: int) -> bool:
        """Whether a statement may stand in front of the loop around at a level: the loop ends, and no guard is asked within it."""
        ends = level >= max((depth for depth, _ in self.untils), default=0)
        return ends and level < len(self.frames) and self.frames[level][1] == len(self.guards)

    @contextmanager
    def in_front(self, level: int) -> Iterator[None]:
        """Statements appended in this context stand in front of the loop around at a level, which is open."""
        body, path, frames = self.body, self.path, self.frames
        outside = frames[level][0]
        self.body, self.path, self.frames = [], path[:level], frames[:level]
        try:
            yield
        finally:
            outside[-1:-1] = self.body
            self.body, self.path, self.frames = body, path, frames

    @contextmanager
    def until(
        self, stem: str, first: Expr, top: Affine | None = None
    ) -> Iterator[tuple[Affine, Callable[[Expr], None]]]:
        """A loop that goes on while a truth value holds, at first `first`, with `top` iterations at most.

        The body is what is appended meanwhile; it ends by a call of the function given, with whether it goes on. The branches around
        are entered in the loop, so that nothing in it asks them.
        """
        alone = top == ONE
        go = Access(self.buffer("go", (), B1))
        count, start, at = self._counters(stem, top)
        var = self.names(stem)
        stack = None
        if not alone:
            room = self.names("room")
            self.rooms.append(room)
            self.size(room)
            stack = Stack(at, affine(room))
        r = Range(var, ZERO, affine(Counted(count.buffer, count.index, top)), 1, stack)
        self.loops.append(r)
        tests = [load(g) for g in self.guards]
        self.body.append(
            Statement(
                (), [Store(go, reduce(lambda a, b: node("logical_and", a, b), [*tests, first]))]
            )
        )
        until = Until(go, count, start)
        outside, path, guards = self.body, self.path, self.guards
        self.frames.append((outside, len(guards)))
        self.body, self.path, self.guards = [], (*path, r), []
        outside.append(Loop(r, self.body, until=until))
        self.untils.append((len(path) + 1, until))
        try:
            yield r.at, lambda more: self.emit((), Store(go, more))
        finally:
            self.untils.pop()
            self.frames.pop()
            self.body, self.path, self.guards = outside, path, guards

    def _counters(self, stem: str, top: Affine | None) -> tuple[Access, Access | None, Affine]:
        """Where a loop that ends by a condition keeps how often it ran and had run before, and the number of the latter."""
        extents, index = box(self.path)
        count = Buffer(self.names(f"{stem}_count"), extents, "i8", "counter")
        if top == ONE or not self.path:
            return Access(count, index), None, ZERO
        start = Buffer(self.names(f"{stem}_start"), extents, "i8", "counter")
        return Access(count, index), Access(start, index), affine(Counted(start, index))

    def overlap(self, target: Array, value: Array) -> bool:
        """Whether a store may change elements that later points of the same store read."""
        if target.access is None or value.access is None or not target.reads & value.reads:
            return False
        axes = over(target.shape, self.names)
        index = tuple(r.at for r in axes)
        own = target.access(index)
        read = value.element(index).access
        if own == read:
            return False
        found = list(sites([Statement(axes, [Store(own, load(read))])], self.path))
        (r, w) = found
        return self.order.meet(w, r, len(self.path))
