"""The form: one typed program of loops over regions, for whole arrays and scalar loops alike.

Two levels. *Statements* are mathematics: over an index space (`axes`) every value is computed first, then the stores happen in order,
so `A[1:] = A[:-1]` is one statement and means what NumPy means. Loops around statements are those that the user wrote. The derivative
maps statements to statements. *Stores* in loops are schedule: lowering turns each statement into loops of single stores, executed in
order, which the passes rewrite and the writer prints. `Loop` is the same at both levels; a body holds statements before lowering and
stores after it.

Sizes are symbols, so one program serves all lengths with the same pattern of equal extents. What a claim about them could not be
proved is in `assumptions`, to be checked at each call.

Invariant: loop variables, axes' variables and names of buffers are unique in a program; a statement's `identity` stays the same in
every copy of it. A store "=" has one target for each point of its statement's axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .affine import ZERO, Affine, Counted, affine, whole

if TYPE_CHECKING:
    from .expressions import Expr


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of its own, row-major and contiguous: no other buffer shares it.

    role: "input" (never written), "output" (written, then the caller's), "temporary", "counter" (whole numbers that the program finds:
    what loops that end by a condition write of themselves, and places of extremes). A temporary without extents is a register.
    """

    name: str
    extents: tuple[Affine, ...]
    dtype: str = "f8"
    role: str = "temporary"

    @property
    def is_register(self) -> bool:
        return not self.extents and self.role == "temporary"


@dataclass(frozen=True, eq=False)
class Access:
    """One element of a buffer, for each value of the names in its index."""

    buffer: Buffer
    index: tuple[Affine, ...] = ()

    def __hash__(self) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = hash((id(self.buffer), self.index))
        return found  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Access) and self.buffer is other.buffer and self.index == other.index
        )

    def replaced(self, values: Mapping[str, Affine]) -> Access:
        return Access(self.buffer, tuple(i.replaced(values) for i in self.index))

    def names(self) -> set[str]:
        return {name for i in self.index for name in i.names()}

    def __str__(self) -> str:
        return self.buffer.name + (f"[{', '.join(map(str, self.index))}]" if self.index else "")


@dataclass(frozen=True, slots=True)
class Stack:
    """Where residuals of a loop lie that ends by a condition: iteration i has place `start` + i of at most `room`, a size.

    `start` is how often the loop had run in earlier iterations of the loops around. A loop of one iteration at most has no stack.
    """

    start: Affine
    room: Affine


@dataclass(eq=False, slots=True)
class Range:
    """`var` from `lo` to below `hi`; downwards with step -1."""

    var: str
    lo: Affine
    hi: Affine
    step: int = 1
    stack: Stack | None = None

    @property
    def at(self) -> Affine:
        return affine(self.var)


@dataclass(eq=False, slots=True)
class Store:
    """`target = value`; with `mode` "+=", "max=" or "min=" an update of it."""

    target: Access
    value: Expr
    mode: str = "="
    _reads: list[Access] = field(default_factory=list, init=False, repr=False)

    def reads(self) -> list[Access]:
        """What it reads: elements, and whole numbers that the program itself finds, where indices have them."""
        if not self._reads:
            own = [self.target] if self.mode != "=" else []
            found = own + [leaf.access for leaf in self.value.loads]
            self._reads = [*found, *counters((self.target, *found))]
        return self._reads


_identities = itertools.count()


def counters(accesses: Iterable[Access]) -> list[Access]:
    """Where the whole numbers lie that the program itself finds and that indices of these accesses have."""
    return [
        Access(e.of, e.args)
        for a in accesses
        for i in a.index
        for e in i.elements()
        if isinstance(e, Counted)
    ]


@dataclass(eq=False, slots=True)
class Statement:
    """Stores over an index space; all values are computed first, for all points, then stored in order."""

    axes: tuple[Range, ...]
    stores: list[Store]
    identity: int = field(default_factory=lambda: next(_identities))

    def reads(self) -> list[Access]:
        found = [a for s in self.stores for a in s.reads()]
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, eq=False)
class Until:
    """The bound of a loop that goes on while a truth value holds, which is asked before each iteration.

    It writes how often it ran to `count`, where the upper bound of its range is that number (`affine.Counted`), and how often it had run
    before to `start`. An iteration in which one of `claims` is below zero ends the program: its sizes are unfit.
    """

    go: Access
    count: Access
    start: Access | None
    claims: list[Affine] = field(default_factory=list)

    def replaced(self, to: Callable[[Access], Access], values: Mapping[str, Affine]) -> Until:
        start = self.start
        return Until(
            to(self.go).replaced(values),
            self.count.replaced(values),
            None if start is None else start.replaced(values),
            [c.replaced(values) for c in self.claims],
        )


@dataclass(eq=False, slots=True)
class Loop:
    """A loop in the order of its range. `parallel`: proved that no iteration touches what another one writes. `product`: with two loops
    in it, a product of matrices over these variables (`passes.products`). `call`: the routine that the loop stands for (`calls`)."""

    range: Range
    body: list[Any]
    parallel: bool = False
    until: Until | None = None
    product: tuple[str, ...] | None = None
    call: str = ""

    @property
    def closed(self) -> bool:
        """Whether the loop has a mark: nothing is moved into it or out of it."""
        return bool(self.product or self.call)

    def of(self, body: list[Any]) -> Loop:
        """The same loop around other things."""
        return replace(self, body=body, parallel=False)


@dataclass
class Program:
    """What is compiled: buffers in the order of the call, then loops and statements (or stores)."""

    name: str
    inputs: list[Buffer]
    outputs: list[Buffer]
    sizes: list[str]
    body: list[Any]
    assumptions: list[Affine] = field(default_factory=list)
    """Each is at least 0, or the program does not hold."""
    rooms: list[str] = field(default_factory=list)
    """Those of `sizes` that a call finds out: how much room the stack of a loop has that ends by a condition."""
    names: Names = field(default_factory=lambda: Names())
    loops: list[Range] = field(default_factory=list)
    """The ranges of loops as they were made, and as they were when a derivative was taken: extents of buffers are in terms of their
    variables, whatever copies are called."""

    def of(self, body: list[Any], **changes: Any) -> Program:
        return replace(self, body=body, **changes)

    def knows(self, e: Affine) -> bool:
        """Whether the sizes of a call say what an affine integer is."""
        return {name for name, _ in e.terms} <= set(self.sizes)

    def __str__(self) -> str:
        from .text import text

        return text(self)


class Names:
    """Names that no other thing of the program has, readable ones."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def __call__(self, stem: str) -> str:
        k = self._count[stem] = self._count.get(stem, -1) + 1
        return f"{stem}.{k}" if k else stem

    def take(self, name: str) -> None:
        """Something has this name already."""
        self._count.setdefault(name, 0)


@dataclass(slots=True, eq=False)  # not frozen: so many are made that this would show in first calls
class Site:
    """One access of a statement or store: under which loops (`path`), over which axes, and where in the text.

    `place` is the position in each body from outside, then 0 for what is read and 1, 2, ... for what the stores write in order.
    """

    path: tuple[Range, ...]
    axes: tuple[Range, ...]
    place: tuple[int, ...]
    access: Access
    write: bool
    store: Store
    owner: Any
    """The statement, or the store itself."""

    def probe(self, access: Access, phase: int) -> Site:
        """A read at the same place: of phase 0 before the statement, of a large one after it."""
        place = (*self.place[:-1], phase)
        return Site(self.path, self.axes, place, access, False, self.store, self.owner)


AFTER = 1 << 30
"""The phase of what is read after a statement."""


def sites(
    body: Sequence[Any], path: tuple[Range, ...] = (), place: tuple[int, ...] = (), start: int = 0
) -> list[Site]:
    """Every access under a body, in the order of the text; `start` is the position of its first part."""
    found: list[Site] = []
    _gather(body, path, place, start, found)
    return found


def by_buffer(those: Iterable[Site]) -> dict[Buffer, list[Site]]:
    """Accesses by the buffer that they are to."""
    found: dict[Buffer, list[Site]] = {}
    for s in those:
        found.setdefault(s.access.buffer, []).append(s)
    return found


def _gather(
    body: Sequence[Any],
    path: tuple[Range, ...],
    place: tuple[int, ...],
    start: int,
    found: list[Site],
) -> None:
    """Append the accesses under a body; loops of known bounds, which are most, have none of their own."""
    for k, s in enumerate(body, start):
        if isinstance(s, Loop):
            if s.until is not None or not (whole(s.range.lo) and whole(s.range.hi)):
                found += _head(s, path, (*place, k))
            _gather(s.body, (*path, s.range), (*place, k), 0, found)
            continue
        axes = s.axes if isinstance(s, Statement) else ()
        stores = s.stores if isinstance(s, Statement) else [s]
        for store in stores:
            for access in store.reads():
                found.append(Site(path, axes, (*place, k, 0), access, False, store, s))
        for j, store in enumerate(stores, 1):
            found.append(Site(path, axes, (*place, k, j), store.target, True, store, s))


def _head(s: Loop, path: tuple[Range, ...], place: tuple[int, ...]) -> Iterator[Site]:
    """What a loop itself reads and writes: counters in its bounds, and the truth value by which it goes on."""
    from .expressions import load

    def site(a: Access, write: bool, phase: int, around: tuple[Range, ...] = path) -> Site:
        return Site(around, (), (*place, phase, 0), a, write, Store(a, load(a)), s)

    if s.until is not None:
        if s.until.start is not None:
            yield site(s.until.start, True, -2)
        yield site(s.until.go, False, -1, (*path, s.range))
        yield site(s.until.go, False, AFTER)
        yield site(s.until.count, True, AFTER + 1)
    else:
        for e in (*s.range.lo.elements(), *s.range.hi.elements()):
            if isinstance(e, Counted):
                yield site(Access(e.of, e.args), False, -2)


def buffers(program: Program) -> list[Buffer]:
    """Every buffer of a program once, inputs and outputs first."""
    found = dict.fromkeys([*program.inputs, *program.outputs])
    found.update(dict.fromkeys(s.access.buffer for s in sites(program.body)))
    return list(found)


def rewritten(
    body: Sequence[Any],
    names: Names,
    to: Callable[[Access], Access] = lambda a: a,
    values: Mapping[str, Affine] | None = None,
) -> list[Any]:
    """A copy of a body with fresh variables in all its loops and axes, and with other accesses; statements keep their identity.

    `values` says what variables of loops around it are in the copy; `to` sees accesses with their old variables.
    """
    from .expressions import moved, renamed

    values = dict(values or {})
    out: list[Any] = []

    def fresh(r: Range) -> Range:
        new = Range(
            names(r.var.split(".")[0]),
            r.lo.replaced(values),
            r.hi.replaced(values),
            r.step,
            r.stack,
        )
        if r.stack is not None:
            new.stack = Stack(r.stack.start.replaced(values), r.stack.room)
        values[r.var] = new.at
        return new

    def stores(found: Sequence[Store]) -> list[Store]:
        new = renamed(moved([s.value for s in found], to), values)
        return [
            Store(to(s.target).replaced(values), v, s.mode) for s, v in zip(found, new, strict=True)
        ]

    for s in body:
        if isinstance(s, Loop):
            r = fresh(s.range)
            until = None if s.until is None else s.until.replaced(to, values)
            out.append(
                Loop(r, rewritten(s.body, names, to, values), s.parallel, until, call=s.call)
            )
        elif isinstance(s, Statement):
            axes = tuple(map(fresh, s.axes))
            out.append(Statement(axes, stores(s.stores), s.identity))
        else:
            out += stores([s])
    return out


def loops(body: Sequence[Any]) -> Iterator[Loop]:
    """All loops, outer ones first."""
    for s in body:
        if isinstance(s, Loop):
            yield s
            yield from loops(s.body)


def ranges(body: Sequence[Any]) -> Iterator[Range]:
    """The ranges of all loops, those of outer ones first."""
    return (s.range for s in loops(body))


def over(extents: Sequence[Affine], names: Names, stem: str = "i") -> tuple[Range, ...]:
    """Axes of a region with these extents."""
    return tuple(Range(names(stem), ZERO, n) for n in extents)


def nest(ranges: Sequence[Range], body: list[Any]) -> list[Any]:
    """`body` under loops over these ranges, the first outermost."""
    for r in reversed(ranges):
        body = [Loop(r, body)]
    return body
