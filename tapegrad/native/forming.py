"""The Numba front end of the program form: a settled program tree becomes statements over regions.

The tree has helpers written out, tuples dissolved and every name's type, so what is left to read is a few kinds of operation: loads and
stores by basic indices, elementwise functions that `tapegrad.ops` declares, sums and extremes, products with vectors, branches, and
loops over ranges by 1 or -1. Whatever else there is raises `Outside`, told of the user's line, before anything is compiled: the
function then takes the other path (`adjoint`).

Invariants: an index is proved to be in bounds or an assumption of the program; a formula that waits to be stored is stored before
what it reads changes. A name has one memory in all turns of a loop, or the program lies outside.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numba.core import types

from ..program import form
from ..program.affine import ONE, ZERO, Affine, affine, whole
from ..program.arrays import (
    Array,
    Builder,
    Index,
    Outside,
    of_buffer,
    of_number,
)
from ..program.expressions import (
    B1,
    DEAR,
    F4,
    F8,
    WHOLE,
    Expr,
    cast,
    const,
    is_dear,
    load,
    node,
    nodes,
    number,
)
from ..program.form import Access, Buffer, Program, Range, Store
from ..program.residuals import ends_by_condition
from ..program.running import DTYPES
from . import inference, placing, wholes
from .formulas import Formulas, dtype_of
from .systems import SYSTEMS
from .tree import (
    IN_PLACE,
    TEMP,
    Const,
    If,
    Loop,
    Node,
    Op,
    Operand,
    Seg,
    entering,
    flat,
    operations,
    read_counts,
)
from .wholes import comparison, exact

UNORDERED = "an update in place by an overlapping part of the same array"
"""Of which the order would be Numba's own."""
GUARDED = 150
"""Nodes of formulas in a branch within a loop: of more, a jump past them saves more than it costs."""
DEARLY = 1
"""Elementary functions in a small branch of numbers: so many take less time for every iteration, several at once, than jumps past them."""
CUTS = 24
"""How often branches may cut the loops of one function."""
TURNS = 6
"""Of how many iterations one is made, at most, where names exchange arrays."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a parameter is in the call that a program is made for: an array's extents, a number, or a size."""

    name: str
    kind: Any
    shape: Index | None


@dataclass(frozen=True, slots=True)
class Formed:
    """The program of a function."""

    program: Program
    given: dict[str, Buffer]
    """Buffers of its float parameters."""
    written: set[str]
    """Parameters whose memory it stores to: in the program that is a copy."""
    jumps: bool
    """Whether it has branches in loops of which both sides are computed, though a jump past one of them would be worth it."""
    constants: Sequence[str]
    """What the function calls the arrays that it has from outside; they are inputs behind those of its parameters."""
    periods: dict[str, int]
    """Whole numbers and lengths, by name, that the program takes apart: `period` times its size of that name, and what remains."""
    compared: Sequence[Affine]
    """Differences of sizes that decide what the program is, by whether they are above 0."""


def formed(
    typed: Any,
    parameters: Sequence[Parameter],
    residues: Mapping[str, int] = MappingProxyType({}),
    known: Sequence[Affine] | None = None,
) -> Formed:
    """The program of a settled tree, for calls in which this remains of sizes that are taken apart; raises Outside.

    What is not told remains 0, or the first number for which there is a program. `known` is 0 or more; it is None if nothing was told.
    """
    copied: set[str] = set()
    periods: dict[str, int] = {}
    aliases: set[str] = set()
    held: set[str] = set()
    rebound: set[str] = set()
    first: Outside | None = None
    while True:
        reader = _Reader(typed, parameters, copied, periods, residues, aliases, held, rebound)
        reader.builder.assumptions += known or ()
        reader.told = known is not None
        outside = None
        try:
            reader.run()
        except _Written as found:
            copied.add(found.name)
            continue
        except _Divided as found:
            periods[found.name] = found.period
            continue
        except _Rebound as found:
            rebound.add(found.name)
            continue
        except _Held as found:
            held.add(found.name)
            continue
        except Outside as why:
            outside = why
        shared = {
            name for name, memory in reader.copies if outside or memory & reader.stored
        } - aliases
        if shared:  # a copy would not see stores, or not be the array that a loop hands on
            aliases |= shared
            first = first or outside
        elif outside is not None:
            untold = {name: n for name, n in periods.items() if name not in residues}
            for rests in itertools.product(*map(range, untold.values())):
                if any(rests):
                    told = {**residues, **dict(zip(untold, rests, strict=True))}
                    with contextlib.suppress(Outside):
                        return formed(typed, parameters, told, known)
            raise first or outside
        else:
            made = reader.builder.program()
            made.inputs += reader.constants.values()
            constants, compared = list(reader.constants), list(dict.fromkeys(reader.compared))
            return Formed(made, reader.given, copied, reader.jumps, constants, periods, compared)


@dataclass(frozen=True, slots=True)
class _Count:
    """A loop over a range that ends by a condition: at most `top` iterations where that is known, the variable in iteration k, and
    whether there is an iteration k."""

    top: Affine | None
    at: Callable[[Affine], Affine | Array]
    more: Callable[[Affine], Expr]


class _Pieces(Exception):
    """A branch is decided by a loop's variable: the loop over `range` is read again, cut at `points`."""

    def __init__(self, r: Range, points: list[Affine], outside: tuple[Range, ...]) -> None:
        super().__init__(r)
        self.range, self.points, self.outside = r, points, outside


class _Written(Exception):
    """A parameter's memory is stored to: the program is made again, with a copy of it from the start."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Divided(Exception):
    """A loop asks for the quotient of a size and a number: the program is made again for what remains of the size."""

    def __init__(self, name: str, period: int) -> None:
        super().__init__(name)
        self.name, self.period = name, period


class _Rebound(Exception):
    """A name has another array behind an iteration: the program is made again, with one memory for the name, and one shape."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Held(Exception):
    """A whole number is no affine one: the program is made again, with the number in memory, as a float (exact below 2**53)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Induced(Exception):
    """Whole numbers grow by the same in each iteration of a loop that ends by a condition: it is read again, with them affine."""

    def __init__(self, loop: Loop, steps: dict[str, int]) -> None:
        super().__init__(loop)
        self.loop, self.steps = loop, steps


class _Turned(Exception):
    """After an iteration of a loop, names have exchanged their arrays; after `period` iterations each has its own again."""

    def __init__(self, loop: Loop, period: int) -> None:
        super().__init__(loop)
        self.loop, self.period = loop, period


class _Reader(Formulas):
    def __init__(
        self,
        typed: Any,
        parameters: Sequence[Parameter],
        copied: set[str],
        periods: Mapping[str, int],
        residues: Mapping[str, int],
        aliases: Collection[str],
        held: Collection[str],
        rebound: Collection[str],
    ) -> None:
        """Read a typed program into the form; names in `copied` are parameters that it overwrites, those in `held` whole numbers in
        memory, those in `rebound` arrays whose name stands for one memory."""
        self.typed, self.program = typed, typed.program
        self.periods, self.residues = periods, residues
        self.builder = Builder(self.program.name)
        self.env: dict[str, Array | Affine] = {}
        self.given: dict[str, Buffer] = {}
        self.own: dict[str, Buffer] = {}
        """The memory that a name has for itself."""
        self.counts = read_counts(self.program.body, self.program.results)
        self.assigned: dict[str, int] = {}
        self.aliases, self.held, self.rebound = aliases, held, rebound
        self.ends: Collection[str] = ()
        """Names that the operation being read reads for the last time."""
        self._is_over: Callable[[str], bool] = lambda name: False
        """Whether nothing behind the operation being read reads a name before it is bound anew."""
        self.later: frozenset[str] = frozenset(self.program.results)
        """Names that are read behind the node being read, in this block or in those around it."""
        self._behind: dict[int, tuple[Sequence[Node], list[frozenset[str]]]] = {}
        """By block, with the block, what the nodes behind each of its nodes read; a block is read once for each piece of its loop."""
        self.into: dict[str, list[Array]] = {}  # by results that are stored next (out=): operands
        self.masks: set[str] = set()
        """Names of the places where a mask holds; in `env` they are the mask."""
        self.chosen: dict[str, str] = {}
        """Names of the elements at such places, with the mask; in `env` they are all elements of the array."""
        self.constants: dict[str, Buffer] = {}
        """Buffers of arrays that the function has from outside, by the text that names them."""
        self.wholes: set[Buffer] = set()
        """Memory of whole numbers that are held as floats."""
        self.asked: list[Expr] = []
        """The conditions under which the text of a condition is asked that is being read."""
        self.stop = ""
        """The name that, where it is true, ends the loop around after this iteration."""
        self.at_stop: dict[str, Affine] = {}
        """Whole numbers that have another value where the loop is left in an iteration than where it goes on."""
        self.copies: list[tuple[str, frozenset[Buffer]]] = []
        """Names that were given a copy of an array which has other names, with both memories."""
        self.stored: set[Buffer] = set()
        """Memory that is stored to by index."""
        for op in operations(self.program.body):
            for name in op.out:
                self.assigned[name] = self.assigned.get(name, 0) + 1
        self.compared: list[Affine] = []
        self.symbolic = 0
        self.cuts = 0
        self.jumps = False
        self.exposed: set[str] = set()
        """Names that a loop around may read before it binds them, or that are read behind it: what they are in one turn, they are in
        the next."""
        self.where: Any = self.program.where
        self.raised: list[Buffer] = []
        """How often the function would have raised: in all, and in an iteration of each loop around that ends by a condition."""
        self.raises: set[Buffer] = set()
        """Those of them that are written to."""
        self.numbers: set[str] = set()
        self.loops: dict[str, Loop] = {}
        self.indices = placing.indices(self.program.body, self._counts)
        """Whole numbers that are read as indices and for nothing else."""
        self.reading: Op | None = None
        self.told = False
        """Whether the call has told how its sizes compare."""
        for p in parameters:
            self._parameter(p, p.name in copied or p.name in rebound)

    def _parameter(self, p: Parameter, copied: bool) -> None:
        """Give a parameter its buffer or its size; one that is overwritten gets a copy."""
        b = self.builder
        if isinstance(p.kind, types.Integer) and not isinstance(p.kind, types.Boolean):
            self.numbers.add(p.name)
            self._bind(p.name, self._size(p.name))
            return
        if isinstance(p.kind, types.Boolean):
            buffer = self.given[p.name] = b.buffer(p.name, (), F8, "input")
            b.inputs.append(buffer)
            test = of_number(node("not_equal", load(Access(buffer)), const(0.0)))
            self.env[p.name] = test
            return
        dtype = dtype_of(p.kind.dtype if isinstance(p.kind, types.Array) else p.kind)
        if isinstance(p.kind, types.Array):
            dtype = {types.int64: "i8", types.int32: "i4"}.get(p.kind.dtype, dtype)
        known = (F8, F4, *WHOLE, B1) if p.shape else (F8,)
        if dtype not in known or p.shape == ():
            return  # nothing may read it
        shape = tuple(n.replaced({x: self._size(x) for x in n.names()}) for n in p.shape or ())
        buffer = self.given[p.name] = b.buffer(p.name, shape, dtype, "input")
        b.inputs.append(buffer)
        self.env[p.name] = of_buffer(buffer)
        if copied or (p.shape is None and self.assigned.get(p.name)):
            own = self.own[p.name] = b.buffer(p.name, shape, dtype)
            b.store(of_buffer(own), of_buffer(buffer))
            self.env[p.name] = of_buffer(own)

    def _size(self, name: str) -> Affine:
        """A whole number that a call has, in terms of the program's sizes."""
        return self.builder.size(name) * self.periods.get(name, 1) + self.residues.get(name, 0)

    def _quotient(self, n: Affine, k: int) -> Affine:
        """n // k, an affine integer; a size in it may have to be taken apart for that."""
        total = affine(n.const // k)
        for name, c in n.terms:
            if c % k:
                period = self.periods.get(name, 1) * (k // math.gcd(c, k))
                if name not in self.builder.sizes or period > TURNS:
                    raise self.outside(f"How often the loop runs is no whole part of {name}.")
                raise _Divided(name, period)
            total += affine(name) * (c // k)
        return total

    def outside(self, why: str) -> Outside:
        return Outside(f"{self.where}\n  {why}")

    def run(self) -> None:
        """Read the whole tree, then the results, which are floats; at the very end stands the question whether the function raised."""
        with self._raising():
            self._nodes(self.program.body)
            self._give()

    def _give(self) -> None:
        """Store the results."""
        self.where = self.program.where
        for k, name in enumerate(self.program.results):
            value = self._value(name)
            if value.dtype not in (F8, F4) or not isinstance(
                getattr(self.typed.types.get(name), "dtype", self.typed.types.get(name)),
                types.Float,
            ):
                raise self.outside("A result is no float.")
            out = self.builder.buffer(f"result_{k}", value.shape, value.dtype, "output")
            self.builder.outputs.append(out)
            self.builder.store(of_buffer(out), value)

    # ------------------------------------------------------------------------------------------ the tree

    def _nodes(self, body: Sequence[Node]) -> None:
        around = self.later
        try:
            for n, behind in zip(body, self._read_behind(body), strict=True):
                self.later = around | behind
                if isinstance(n, Seg):
                    self._ops(n.ops, self.later)
                elif isinstance(n, If):
                    self._branch(n)
                else:
                    self._loop(n)
        finally:
            self.later = around

    def _read_behind(self, body: Sequence[Node]) -> list[frozenset[str]]:
        """For each node of a block what the nodes behind it read."""
        known = self._behind.get(id(body))
        if known is None:
            found = [frozenset[str]()] if body else []
            for n in body[:0:-1]:
                found.append(found[-1] | read_counts([n], []).keys())
            known = self._behind[id(body)] = body, found[::-1]
        return known[1]

    # ------------------------------------------------------------------------------------------ branches

    def _branch(self, n: If) -> None:
        """A branch: one side where the condition is known, pieces of the loop around it where the loop's variable decides, else both
        sides, whose stores ask the condition."""
        self._ops(n.head)
        try:
            test = self._test(n.condition)
        except Outside as why:
            raise self.outside(f"{why}.") from None
        for holds, side in ((True, n.body), (False, n.orelse)):
            if self._proved(test, holds):
                return self._nodes(side)
        if _raises(n.body) and self._assumed(test):
            return self._nodes(n.orelse)
        for holds, side, other in ((True, n.body, n.orelse), (False, n.orelse, n.body)):
            # What the other side does is lost where this one raises, so it needs no guard.
            if _raises(side):
                self._leaves_if(test if holds else node("logical_not", test))
                return self._nodes(other)
        self._cut(test)
        return self._both(n, test)

    def _leaves_if(self, test: Expr, axes: tuple[Range, ...] = ()) -> None:
        """The program does not hold where a condition does at some point of these axes, under the guards around: the function raises.

        That is asked at the end, but in loops that might not end behind each iteration.
        """
        asked = node("where", test, const(1.0), const(0.0))
        buffer = self.raised[-1]
        self.builder.emit(axes, Store(Access(buffer, (ZERO,)), asked, "+="))
        self.raises.add(buffer)

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        """What is read in this context has a count of its own of how often it raises, which is asked at its end."""
        body = self.builder.body
        here = self.builder.buffer("raised", (ONE,), F8)
        nothing = form.Statement((), [Store(Access(here, (ZERO,)), const(0.0))])
        body.append(nothing)
        self.raised.append(here)
        try:
            yield
        finally:
            self.raised.pop()
        if here in self.raises:
            self.builder.demand(here)
        else:
            body.remove(nothing)

    def _assumed(self, test: Expr) -> bool:
        """Assume of the sizes that a condition, under which the function raises, does not hold; False where it is no such condition."""
        claims = comparison(test, False)
        if claims is None or test.op == "equal":
            return False
        for claim in claims:
            self.builder.claim(claim, "a branch that raises")
        return True

    def _cut(self, test: Expr) -> None:
        """Where the variable of a loop around decides: that loop is read again, in pieces."""
        found = None if self.cuts == CUTS else self._pieces(test)
        if found is not None:
            raise found

    def _pieces(self, test: Expr) -> _Pieces | None:
        """The pieces of a loop around in each of which a condition holds everywhere or nowhere; None where there are no such."""
        claims = comparison(test)
        if claims is None or self._proved(test) or self._proved(test, False):
            return None
        d, path = claims[0], self.builder.path
        level = next((k for k in reversed(range(len(path))) if d[path[k].var]), None)
        if level is None or not whole(d) or ends_by_condition(path[level]):
            return None
        r = path[level]
        c = d[r.var]
        rest = d - r.at * c
        if c not in (1, -1):
            return None
        if len(claims) == 1:  # it holds from there on, or up to there
            points = [rest * -1 if c > 0 else rest + 1]
        else:  # it holds at one value, or at all others
            at = (rest if test.op == "equal" else rest + 1) * -c
            points = [at, at + 1]
        for a, b in itertools.pairwise([r.lo, *points, r.hi]):
            if not self._fits(b - a, path[:level]):
                # A point may lie within the loop in some iterations of a loop around only: that one is cut first.
                return self._pieces(node("less", number(b - a), number(ZERO)))
        return _Pieces(r, points, path[:level])

    def _fits(self, claim: Affine, path: tuple[Range, ...]) -> bool:
        """Whether a piece of a loop has a length of 0 or more in all iterations of these loops, for sizes that are large enough, or, where
        sizes are to be compared for that, in a call of which nothing else is known."""
        if self.builder.likely(claim, path):
            return True
        if claim.terms and claim.names() <= set(self.builder.sizes) and whole(claim):
            self.compared.append(claim + 1)
            return not self.told
        return False

    def _places_only(self) -> bool:
        op = self.reading
        return op is not None and (op.kind in ("load", "store", "acc") or self.indices >= {*op.out})

    def _spared(self, test: Expr) -> bool:
        """Whether a loop that decides a condition on which an index depends is not cut, as the index is a place: one with loops in it."""
        found = self._pieces(test)
        n = None if found is None else self.loops.get(found.range.var)
        return n is not None and any(_loops(n.body))

    def _jumps(self, body: Sequence[Any]) -> bool:
        """Whether a branch within a loop, both sides of which are computed in every turn, is worth a jump: it is more than few numbers."""
        every = nodes(t.value for s in body if not isinstance(s, form.Loop) for t in s.stores)
        return (
            any(isinstance(s, form.Loop) or s.axes for s in body)
            or len(every) > GUARDED
            or any(map(is_dear, every))
        )

    def _both(self, n: If, test: Expr) -> None:
        """Read both branches of a choice, as loops of one iteration at most where that is worth a jump, else as guarded statements;
        Outside where a name would mean different memory behind it."""
        self._settle_all()
        before, builder = dict(self.env), self.builder
        if self._worth_a_jump(n):
            guard = Access(builder.buffer("if", (), B1))
            builder.emit((), Store(guard, test))
            self._jumped(n.body, load(guard))
            there, self.env = self.env, before
            if n.orelse:
                self._jumped(n.orelse, node("logical_not", load(guard)))
        else:
            mark = len(builder.body)
            with builder.guarded(test):
                (guard,) = builder.guards[-1:]
                self._nodes(n.body)
            there, self.env = self.env, before
            if n.orelse:
                with builder.guarded(node("logical_not", load(guard))):
                    self._nodes(n.orelse)
            self.jumps |= bool(builder.path) and self._jumps(builder.body[mark:])
        inside = read_counts([n], [])
        leaves = self._leaves(test, n.body, n.orelse)
        for name, value in there.items():
            other = self.env.get(name)
            if other is None:
                self.env[name] = value
            elif not _same(value, other):
                if self.counts.get(name, 0) > inside.get(name, 0) or name in self.exposed:
                    if self._merged(name, value, other, leaves):
                        continue
                    raise self.outside(
                        f"{name} means other memory or another index in each branch."
                    )
                self.env.pop(name)

    def _jumped(self, body: Sequence[Node], test: Expr) -> None:
        """A branch as a loop of one iteration, or none."""
        with self.builder.until("if", test, ONE) as (_, go):
            self._nodes(body)
            go(const(0.0, B1))

    def _worth_a_jump(self, n: If) -> bool:
        """Whether a branch has a loop that ends by a condition, or a linear system; or within a loop, arrays, loops, elementary functions
        or much else."""
        branches = [*n.body, *n.orelse]
        if any(not x.variable or x.stop for x in _loops(branches)):
            return True
        if any(op.rule in SYSTEMS for op in operations(branches)):
            return True  # what has no solution must not be asked for one
        if not self.builder.path:
            return False
        if any(isinstance(x, Loop) for x in _every(branches)):
            return True
        ops = list(operations(branches))
        return len(ops) > GUARDED // 3 or any(map(self._is_much, ops))

    def _is_much(self, op: Op) -> bool:
        """Whether an operation takes much longer than one of numbers."""
        if (op.rule or "").rpartition(".")[2] in DEAR:
            return True
        if op.kind in ("store", "acc"):
            return ":" in op.index or inference.is_array(self.typed.kind(op.args[1]))
        return op.kind == "pure" and any(
            inference.is_array(self.typed.kind(a)) for a in (*op.out, *op.args)
        )

    def _leaves(self, test: Expr, body: Sequence[Any], orelse: Sequence[Any]) -> bool | None:
        """Whether the loop around is left after this iteration where a condition holds (True), or where it does not (False)."""
        stop = self.env.get(self.stop)
        for holds, side in ((True, body), (False, orelse)):
            ops = [op for x in side for op in (x.ops if isinstance(x, Seg) else [x])]
            if self.stop and any(
                isinstance(op, Op) and self.stop in op.out and op.kind == "copy" for op in ops
            ):
                return holds
        if isinstance(stop, Array) and not stop.shape:
            if test is stop.number():
                return True
            if test is node("logical_not", stop.number()):
                return False
        return None

    def _merged(self, name: str, a: Any, b: Any, leaves: bool | None) -> bool:
        """Whether a whole number is known behind a branch, in which it is `a` where the condition holds, else `b`."""
        if not self._counts(name):
            return False
        if leaves is not None and isinstance(a, Affine) and isinstance(b, Affine):
            end, other = (a, b) if leaves else (b, a)
            if self.at_stop.setdefault(name, end) == end:
                self.env[name] = other
                return True
        if name in self.held:
            return False
        raise _Held(name)

    def _ops(self, ops: Sequence[Op], later: frozenset[str] | None = None) -> None:
        """Read operations; `later` has what is read behind them in any iteration that does not bind it anew, None if that is not known."""
        left = Counter(_read(ops))
        every = {x for x, n in left.items() if n == self.counts.get(x)}

        def over(x: str) -> bool:
            last = x in every or (later is not None and x not in later)
            return last and not left[x] and x not in self.exposed

        for op in ops:
            read = _read([op])
            left.subtract(read)
            self._is_over = over
            self.ends = ends = set(filter(over, read))
            self.where = op.where
            try:
                self._op(op)
            except Outside as why:
                raise why if "\n" in str(why) else self.outside(f"{why}.") from None
            for x in ends:
                self._ended(x)

    def _ended(self, name: str) -> None:
        """Forget a view that nothing reads any more: it must not keep an array from being made anew in the same memory."""
        if not name.startswith(TEMP) or any(
            name in others for others in (self.own, self.masks, self.chosen)
        ):
            return
        value = self.env.get(name)
        if isinstance(value, Array) and value.access is not None and value.shape:
            del self.env[name]

    def _loop(self, n: Loop) -> None:
        """Read a loop over a range with step 1 or -1; others are outside of the form."""
        if n.snapshots or n.parallel:
            raise self.outside("A loop with threads or snapshots is outside the form.")
        if not n.variable or n.stop:
            return self._until(n)
        before, mark = dict(self.env), self.builder.mark()
        self._ops(n.head)
        if any(isinstance(x, str) and isinstance(self.env.get(x), Array) for x in n.bounds):
            self.env = before
            self.builder.back(mark)
            return self._until(n)
        start, stop = map(self._whole, n.bounds[:2])
        by = affine(self._by(n))
        lo, hi = (start, stop) if by.const > 0 else (stop + 1, start + 1)
        exposed = self.exposed
        inside = read_counts(n.body, [])
        behind = {x for x, count in self.counts.items() if count > inside.get(x, 0)}
        self.exposed = exposed | entering(n.body)[0] | behind
        try:
            if by.const in (1, -1):
                self._turns(n, lo, hi, by)
            else:
                self._strided(n, start, stop, by.const)
        finally:
            self.exposed = exposed

    # ------------------------------------------------------------------------- loops that end by a condition

    def _until(self, n: Loop) -> None:
        """A `while` loop, or one over a range that is left early; whole numbers that grow in it are affine where they can be."""
        self._settle_all()
        before, own, mark = dict(self.env), dict(self.own), self.builder.mark()
        around = self.exposed, self.stop, self.at_stop
        inside = read_counts([n], [])
        behind = {x for x, count in self.counts.items() if count > inside.get(x, 0)}
        after = self.exposed | behind
        steps: dict[str, int] = {}
        while True:
            self.exposed = after | entering([n])[0] | entering(n.body)[0]
            self.stop, self.at_stop = n.stop, {}
            try:
                return self._until_with(n, steps, after)
            except _Induced as found:
                if found.loop is not n:
                    raise
                steps = {**steps, **found.steps}
            finally:
                self.exposed, self.stop, self.at_stop = around
            self.env, self.own = dict(before), dict(own)
            self.builder.back(mark)

    def _until_with(self, n: Loop, steps: Mapping[str, int], after: Collection[str]) -> None:
        """The same, where these whole numbers grow by so much in each iteration; those in `after` are read behind the loop."""
        builder, before = self.builder, dict(self.env)
        base = {x: v for x, v in before.items() if x in steps and isinstance(v, Affine)}
        self._ops(n.head)
        count = self._count(n) if n.variable else None
        first = count.more(ZERO) if count else self._test(n.condition)
        top = count.top if count else None
        memory = {x: self._counter(x, base[x]) for x in steps if x in after}
        with builder.until("t", first, top) as (at, go), self._raising():
            for name in [x for x in self.env if x.startswith(TEMP) and x not in before]:
                self.env.pop(name)
            for x, step in steps.items():
                self.env[x] = base[x] + at * step
            if count:
                own = self.env[n.variable] = count.at(at)
                if n.variable in after:
                    memory[n.variable] = self._counter(n.variable, own)
            self._nodes(n.body)
            self._again(n, before, {x: base[x] + (at + 1) * step for x, step in steps.items()})
            for x, left in self.at_stop.items():
                # a name that goes on behind the loop, and that it had before
                if x in before and x in after and x not in steps and left != self.env.get(x):
                    raise _Held(x)
            stopped = self._number(n.stop) if n.stop else const(0.0, B1)
            for x, value in self.env.items():
                new = x not in before and x in after and x != n.variable
                if isinstance(value, Affine) and (new or (x in steps and x in memory)):
                    if new:  # what it is in the last iteration
                        memory[x] = builder.buffer(x, (), F8)
                        self.wholes.add(memory[x])
                    end = node("where", stopped, number(self.at_stop.get(x, value)), number(value))
                    builder.emit((), Store(Access(memory[x]), end))
            if count:
                more = count.more(at + 1)
            else:
                for name in [x for x in self.env if x.startswith(TEMP) and x not in before]:
                    self.env.pop(name)
                with self._asking([stopped] if n.stop else [], False):
                    self._ops(n.head)
                    more = self._test(n.condition)
            go(node("logical_and", node("logical_not", stopped), more) if n.stop else more)
        for x, buffer in memory.items():
            self.env[x] = of_buffer(buffer)
        for x in {*steps, n.variable} - memory.keys():
            self.env.pop(x, None)
        for name in [x for x, v in self.env.items() if v is not before.get(x)]:
            if self._moves(self.env[name], at.names()):
                self.env.pop(name)

    def _by(self, n: Loop) -> int:
        """The step of a loop over a range."""
        by = self._whole(n.bounds[2])
        if by.terms or not by.const:
            raise self.outside("A loop's step is no known number.")
        return by.const

    def _count(self, n: Loop) -> _Count:
        """How the iterations of a loop over a range are counted, whose bounds the program may compute: then they are taken down first."""
        builder, by = self.builder, self._by(n)
        bounds = [self._whole_or_number(x) for x in n.bounds[:2]]
        start, stop = bounds
        if isinstance(start, Affine) and isinstance(stop, Affine):
            distance = stop - start if by > 0 else start - stop
            top = self._quotient(distance + abs(by) - 1, abs(by))
            builder.claim(top, "the number of iterations")
            return _Count(top, lambda k: start + k * by, lambda k: self._less(k, top))
        first, last = (
            builder.kept(of_number(self._as_number(x)), "bound").number() for x in bounds
        )

        def at(k: Affine) -> Affine | Array:
            own = number(k * by)
            return (
                start + k * by if isinstance(start, Affine) else of_number(node("add", first, own))
            )

        def more(k: Affine) -> Expr:
            here = node("add", first, number(k * by))
            return node("less" if by > 0 else "greater", here, last)

        for x in (first, last):
            self.wholes.add(x.access.buffer)
        return _Count(None, at, more)

    def _less(self, a: Affine, b: Affine) -> Expr:
        """a < b as a condition."""
        if self.builder.order.proves(b - a - 1, self.builder.path):
            return const(1.0, B1)
        return node("less", number(a), number(b))

    def _counter(self, name: str, value: Affine | Array) -> Buffer:
        """Memory for a whole number, with a value."""
        buffer = self.builder.buffer(name, (), F8)
        self.wholes.add(buffer)
        self.builder.emit((), Store(Access(buffer), self._as_number(value)))
        return buffer

    def _again(self, n: Loop, before: Mapping[str, Any], known: Mapping[str, Affine]) -> None:
        """Names mean behind an iteration what they meant before it, but for whole numbers that grow as is `known`, or by a number."""
        induced: dict[str, int] = {}
        for x, v in before.items():
            now = self.env.get(x)
            if x == n.variable or not self.counts.get(x) or now == known.get(x, ()):
                continue
            if _same(v, now) and x not in known:
                continue
            if x not in self.exposed:
                self.env.pop(x, None)
            elif self._counts(x) and x not in self.held:
                d = now - v if isinstance(v, Affine) and isinstance(now, Affine) else None
                if d is None or d.terms or x in known:
                    raise _Held(x)
                induced[x] = d.const
            else:
                self._rebind(x, v, now)
                raise self.outside(f"{x} means other memory or another index in each turn.")
        if induced:
            raise _Induced(n, induced)

    # -------------------------------------------------------------------------------------- loops over ranges

    def _turns(self, n: Loop, lo: Affine, hi: Affine, by: Affine) -> None:
        """A loop over a range; in pieces where a branch in it asks for its variable."""
        builder = self.builder
        self._settle_all()
        before, own = dict(self.env), dict(self.own)
        mark = builder.mark()
        period, points = 1, list[Affine]()
        try:
            return self._turn(n, lo, hi, by)
        except _Pieces as asked:
            if (asked.range.lo, asked.range.hi) != (lo, hi) or builder.path != asked.outside:
                raise
            self.cuts += 1
            points = asked.points
        except _Turned as found:
            if found.loop is not n:
                raise
            period = found.period
        self.env, self.own = dict(before), own
        builder.back(mark)
        if period > 1:
            return self._together(n, lo, hi, by, period)
        for a, b in itertools.pairwise([lo, *points, hi]):
            builder.claim(b - a, "a piece of a loop")
        parts = list(itertools.pairwise([lo, *points, hi]))
        for a, b in parts if by.const > 0 else parts[::-1]:
            for name in [x for x in self.env if x.startswith(TEMP) and x not in before]:
                self.env.pop(name)  # of a turn of the piece before
            self._turns(n, a, b, by)
        return None

    def _together(self, n: Loop, lo: Affine, hi: Affine, by: Affine, period: int) -> None:
        """A loop whose names exchange arrays: it takes `period` iterations at once; the others stand behind it."""
        count = hi - lo
        often = self._quotient(count, period)
        self.builder.claim(often, "the number of iterations")
        first, known = lo if by.const > 0 else hi - 1, set(self.env)
        self._turn(
            n,
            ZERO,
            often,
            by,
            lambda t: [first + (t * period + k) * by.const for k in range(period)],
        )
        for k in range(count.const % period):
            self._iteration(n, first + (often * period + k) * by.const, known)
        self.env.pop(n.variable, None)

    def _strided(self, n: Loop, start: Affine, stop: Affine, step: int) -> None:
        """A loop over every so many numbers, upwards or downwards."""
        self._settle_all()
        distance = stop - start if step > 0 else start - stop
        often = self._quotient(distance + abs(step) - 1, abs(step))
        self._turn(n, ZERO, often, ONE, lambda t: [start + t * step])

    def _iteration(self, n: Loop, at: Affine, known: Collection[str]) -> None:
        """The body of a loop, once; what temporaries meant in another iteration is forgotten."""
        for name in [x for x in self.env if x.startswith(TEMP) and x not in known]:
            self.env.pop(name)
        self.env[n.variable] = at
        self._nodes(n.body)

    def _turn(
        self,
        n: Loop,
        lo: Affine,
        hi: Affine,
        by: Affine,
        each: Callable[[Affine], list[Affine]] | None = None,
    ) -> None:
        """A loop, whose variable is one number or several in a row, given its own."""
        if self.assigned.get(n.variable):
            raise self.outside("A loop's variable is assigned in it.")
        before, builder = dict(self.env), self.builder
        step = by.const if each is None else 1
        with builder.loop(n.variable, lo, hi, step) as at:
            self.loops[builder.path[-1].var] = n
            for i in [at] if each is None else each(at):
                self._iteration(n, i, before)
        other = {
            x: v
            for x, v in before.items()
            if x != n.variable and self.counts.get(x) and not _same(v, self.env.get(x))
        }
        for x in [x for x in other if x not in self.exposed and self._counts(x)]:
            other.pop(x)  # each iteration begins it anew
            self.env.pop(x, None)
        if other:
            period = 0 if each else self._period(other)
            if period:
                raise _Turned(n, period)
            for x, v in other.items():
                self._rebind(x, v, self.env.get(x))
                if self._counts(x) and x not in self.held:
                    raise _Held(x)
            raise self.outside(
                f"{next(iter(other))} means other memory or another index in each turn."
            )
        self.env.pop(n.variable, None)
        for name in [x for x, v in self.env.items() if v is not before.get(x)]:
            value = self.env[name]
            if not self._moves(value, at.names()):
                continue
            if each is None and isinstance(value, Affine) and name in self.exposed:
                builder.claim(hi - lo - 1, f"how often the loop runs that leaves {name}")
                self.env[name] = value.replaced(
                    {str(n): (hi - 1 if step > 0 else lo) for n in at.names()}
                )
            else:
                self.env.pop(name)  # what it was in the last turn has no name outside

    def _counts(self, name: str) -> bool:
        """Whether a name is that of a whole number."""
        return isinstance(self.typed.types.get(name), types.Integer)

    def _rebind(self, name: str, before: Any, now: Any) -> None:
        """An array gets memory for its name, into which an iteration copies what the name means in the next one, if of as many axes."""
        if isinstance(before, Array) and isinstance(now, Array) and before.shape:
            if len(before.shape) == len(now.shape) and name not in self.rebound:
                raise _Rebound(name)

    def _moves(self, value: Array | Affine, names: set[str]) -> bool:
        """Whether a value is an index or a view, or a formula of such, that moves with a loop's variable."""
        if isinstance(value, Affine):
            return bool(value.names() & names)
        index = tuple(affine(f"_{k}") for k in range(len(value.shape)))
        return any(
            names & (e.access.names() if e.op == "load" else e.args[0].names())
            for e in nodes([value.at(index)])
            if e.op in ("load", "number")
        ) or any(names & n.names() for n in value.shape)

    def _period(self, before: Mapping[str, Any]) -> int:
        """After how many iterations names have the arrays again that they exchange in one; 0 where they do not."""
        source: dict[str, str | None] = {}
        for name in before:
            now = self.env.get(name)
            if not isinstance(now, Array) or now.access is None or not now.shape:
                return 0
            source[name] = next((x for x, v in before.items() if _same(now, v)), None)
        reached: dict[str, str | None] = {x: x for x in source}
        for period in range(1, TURNS + 1):
            reached = {x: source.get(y or "") for x, y in reached.items()}
            if all(x == y for x, y in reached.items()):
                return period
        return 0

    # ------------------------------------------------------------------------------------------ binding

    def _waits(self, name: str, value: Any) -> bool:
        """Whether a name stands for a formula that is not yet computed, and somebody reads it."""
        return (
            isinstance(value, Array)
            and bool(value.reads)
            and (value.access is None or not value.shape)
            and name.startswith(TEMP)
            and not self._owns(name, value)
        )

    def _owns(self, name: str, value: Array) -> bool:
        """Whether a value is what the name's own memory holds; a name may have memory left of another piece of its loop."""
        return value.access is not None and value.reads == {self.own.get(name)}

    def _settle_all(self) -> None:
        """Formulas that wait are computed here."""
        for name in [x for x, v in self.env.items() if self._waits(x, v)]:
            self._settle(name)

    def _settle(self, name: str) -> None:
        value = self.env[name]
        assert isinstance(value, Array)
        kept = self.builder.kept(value, "t")
        self.env[name] = kept
        (self.own[name],) = kept.reads

    def _changes(self, buffers: frozenset[Buffer], but: frozenset[str] = frozenset()) -> None:
        """Memory is about to change: formulas that read it are computed now."""
        for b in buffers:
            if b in self.constants.values():
                raise Outside("a store into an array from outside")
            if b.role == "input":
                raise _Written(next(n for n, g in self.given.items() if g is b))
        self.builder.changes(buffers)
        for name in [x for x, v in self.env.items() if self._waits(x, v)]:
            value = self.env[name]
            if name not in but and isinstance(value, Array) and value.reads & buffers:
                self._settle(name)

    def _bind(self, name: str, value: Array | Affine) -> None:
        """name = value, for a new value (not a view of memory that another name has)."""
        if isinstance(value, Affine):
            if name not in self.held:
                self.env[name] = value
                return
            wholes.exactly(self, number(value))
            value = of_number(number(value))
        if self.wholes & value.reads and self._counts(name) and not wholes.stays(value.number()):
            value = wholes.short(self, value)
        if value.dtype in WHOLE and value.shape and name in self.held:
            value = wholes.as_floats(self, value).unnamed()
        if value.dtype in WHOLE and value.shape:
            if self.assigned.get(name, 0) > 1:
                raise Outside("a name of several arrays of whole numbers")
            self.env[name] = value
            return
        if self.symbolic or (name.startswith(TEMP) and self._once(name, value)):
            self.env[name] = value
            return
        own = self.own.get(name)
        if own is not None and name in self.rebound and len(own.extents) == len(value.shape):
            for n, m in zip(value.shape, own.extents, strict=True):
                self.builder.same(n, m, f"the shape of {name}")
            value = Array(own.extents, value.at, value.dtype, value.access, value.reads)
        if (
            own is None
            or own.extents != value.shape
            or own.dtype != value.dtype
            or self._viewed(name, own)
        ):
            own = self._memory("t" if name.startswith(TEMP) else name, value, name)
        target = of_buffer(own)
        old = self.env.get(name)
        self._changes(frozenset((own,)), frozenset((name,)))
        self.builder.store(target, value)
        self._remembers(name, own, value)
        self.env[name] = old if isinstance(old, Array) and _same(old, target) else target

    def _bind_together(self, found: list[tuple[str, Array]]) -> None:
        """Several numbers at once: each from what was before."""
        if self.symbolic or len(found) < 2:
            for name, value in found:
                self._bind(name, value)
            return
        stores = []
        for name, value in found:
            own = self.own.get(name)
            if own is None or own.dtype != value.dtype:
                own = self._memory(name, value, name)
            stores.append(Store(Access(own), value.number()))
        self._changes(frozenset(s.target.buffer for s in stores))
        self.builder.emit((), *stores)
        for (name, value), s in zip(found, stores, strict=True):
            self._remembers(name, s.target.buffer, value)
            old, new = self.env.get(name), of_buffer(s.target.buffer)
            self.env[name] = old if isinstance(old, Array) and _same(old, new) else new

    def _remembers(self, name: str, own: Buffer, value: Array) -> None:
        """The value of an index is known until it changes, so that it need not be asked whether it lies on an axis."""
        if name in self.indices and not value.shape:
            around = self.builder.path, list(self.builder.guards)
            self.builder.values[own] = value.number(), *around

    def _memory(self, stem: str, value: Array, name: str) -> Buffer:
        """Memory for a name. One that a later turn of a loop may read asks all guards when it is stored to."""
        own = self.own[name] = self.builder.buffer(stem, value.shape, value.dtype)
        kind = self.typed.types.get(name)
        if self._counts(name) or getattr(kind, "dtype", None) is types.int64:
            self.wholes.add(own)
        if name in self.exposed:
            self.builder.born[own] = ()
        return own

    def _once(self, name: str, value: Array) -> bool:
        """Whether a temporary need not be in memory: it is read once, or cheap."""
        return self.assigned.get(name, 0) == 1 and (
            self.counts.get(name, 0) <= 1 or not value.shape
        )

    def _viewed(self, name: str, own: Buffer) -> bool:
        """Whether another name has this memory, too."""
        return any(x != name for x in self._names_of(own))

    def _names_of(self, memory: Buffer) -> Iterator[str]:
        """Names that are read somewhere and stand for this memory, or parts of it."""
        for x, v in self.env.items():
            if isinstance(v, Array) and v.access is not None and memory in v.reads:
                if self.counts.get(x):
                    yield x

    # ------------------------------------------------------------------------------------------ operations

    def _op(self, op: Op) -> None:
        """Read one operation, by its kind. Types of elements (`x.dtype`, `dtype = np.float32`) have no value: inference knows them."""
        if op.out and all(isinstance(self.typed.types.get(x), types.DTypeSpec) for x in op.out):
            return None
        self.reading = op
        if op.kind == "if":
            return self._choice(op)
        if op.kind == "store":
            return self._store(op, "")
        if op.kind == "acc":
            return self._store(op, op.form)
        if op.kind == "load":
            return self._load(op)
        if op.kind == "copy":
            return self._copy(op)
        if op.kind == "verbatim" and op.form.startswith("raise"):
            return self._leaves_if(const(1.0, B1))
        if op.kind == "verbatim" and op.form.startswith("assert"):
            return self._leaves_if(node("logical_not", self._asserted(op)))
        if op.kind != "pure" or len(op.out) != 1:
            raise Outside(f"an operation of kind {op.kind}")
        if op.rule == "np.flatnonzero":
            return self._mask(op)
        in_place = op.settings.get("written") == IN_PLACE
        if "written" in op.settings:
            if op.rule in ("np.dot", "np.outer"):
                raise Outside(f"{op.rule} with out=")
            op = replace(op, settings={})
            if not in_place:
                self.into[op.out[0]] = [self._value(a) for a in op.args]
        mask = self._chosen_by(op)
        if mask:
            return self._of_chosen(op, mask)
        if in_place:
            target, given = map(self._value, op.args)
            if given.shape and self.builder.overlap(target, given):
                raise Outside(UNORDERED)
        value = self._pure(op)
        name = op.out[0]
        if isinstance(value, Array) and value.access is not None and value.shape:
            self.env[name] = value  # a view
            return None
        return self._bind(name, value)

    def _mask(self, op: Op) -> None:
        """Read the places of a mask, which only a store may take as its index."""
        mask, (name,) = self._value(op.args[0]), op.out
        if mask.dtype != B1 or len(mask.shape) != 1 or not name.startswith(TEMP):
            raise Outside("the places of what is no mask of a vector")
        self.masks.add(name)
        self.env[name] = mask

    def _holds(self, mask: str, base: Array) -> Array:
        """The truth values of a mask for the elements of a vector."""
        found = self.env[mask]
        assert isinstance(found, Array)
        if len(base.shape) != 1:
            raise Outside("a mask of more axes than one")
        self.builder.same(found.shape[0], base.shape[0], "the length of a mask")
        return found

    def _chosen_by(self, op: Op) -> str:
        """The mask that chose the elements which a pure operation takes; empty where it takes none."""
        masks = [self.chosen[a] for a in op.variables if a in self.chosen]
        others = [a for a in op.variables if a not in self.chosen]
        alone = not any(inference.is_array(self.typed.kind(a)) for a in others)
        if masks and not (alone and all(self._alike(masks[0], m) for m in masks)):
            raise Outside("elements that a mask chooses meet others")
        return masks[0] if masks else ""

    def _alike(self, *masks: str) -> bool:
        """Whether two masks are one: the same formula of the same memory, which did not change since (it would have been computed)."""
        at = (affine("_0"),)
        tests = {a.at(at) for a in map(self.env.get, masks) if isinstance(a, Array)}
        return len(tests) == 1

    def _of_chosen(self, op: Op, mask: str) -> None:
        """Read an elementwise function, a sum or a mean of elements that a mask chooses: of all, of which a choice is used."""
        (name,), rule = op.out, op.rule or ""
        for a in op.variables:
            self.chosen.pop(a, None)
        if rule in ("np.sum", "np.mean") and len(op.args) == 1 and not op.settings:
            value = self._value(op.args[0])
            one, zero = of_number(const(1.0, value.dtype)), of_number(const(0.0, value.dtype))
            sums = [
                self._over("np.sum", self._selected(mask, v, zero, value.dtype), [0], value.dtype)
                for v in (value, one)[: 1 + (rule == "np.mean")]
            ]
            found = self._applied("divide", sums, value.dtype) if sums[1:] else sums[0]
            return self._bind(name, found)
        if not self._function(rule, len(op.args)) or op.settings:
            raise Outside("elements that a mask chooses are read")
        return self._choose(name, self._pure(op), mask)

    def _selected(self, mask: str, x: Array, other: Array, dtype: str) -> Array:
        """The elements of one array where a mask holds, else those of another one."""
        holds = self.env[mask]
        assert isinstance(holds, Array)
        return self.builder.elementwise(
            lambda c, a, b: node("where", c, cast(a, dtype), b), holds, x, other, dtype=dtype
        )

    def _choose(self, name: str, value: Array, mask: str) -> None:
        """A name gets the elements of an array that a mask chooses; it is read once."""
        if not name.startswith(TEMP) or self.counts.get(name, 0) > 1:
            raise Outside("elements that a mask chooses have a name")
        self.chosen[name] = mask
        self.env[name] = value.unnamed()

    def _value(self, x: Operand) -> Array:
        if x in self.masks or x in self.chosen:
            raise Outside("elements that a mask chooses are read")
        if isinstance(x, Const) and isinstance(self.program.scope.get(x.text), np.ndarray):
            return self._constant(x.text, self.program.scope[x.text])
        return super()._value(x)

    def _constant(self, name: str, value: np.ndarray) -> Array:
        """An array that the function has from outside, which Numba takes for constant."""
        if name not in self.constants:
            dtype = {t: d for d, t in DTYPES.items()}.get(value.dtype, "")
            if not dtype or not value.shape:
                raise Outside(f"{name} is no array of floats or whole numbers")
            self.constants[name] = self.builder.buffer(
                "constant", tuple(map(affine, value.shape)), dtype, "input"
            )
        return of_buffer(self.constants[name])

    def _masked(self, op: Op, base: Array, value: Array, sign: str, mask: str) -> None:
        """A store where a mask holds, or an update by a number: of a number, or of elements that the same mask chose."""
        name = str(op.args[2])
        if op.index != "{2}" or (value.shape and not mask):
            raise Outside("an array is stored to the places of a mask")
        self._holds(name, base)
        if mask and not self._alike(mask, name):
            raise Outside("elements that a mask chooses are stored to the places of another one")
        if sign:
            word = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}.get(sign)
            if word is None:
                raise Outside(f"an update by {sign}")
            value = self._applied(word, [base, value], base.dtype)
        chosen = self._selected(name, value, base, base.dtype)
        once = {a for a in (name, op.args[1]) if isinstance(a, str) and self.counts.get(a, 0) <= 1}
        self._changes(base.reads, frozenset(once))
        self.builder.store(base, chosen)

    def _copy(self, op: Op) -> None:
        """Read `y = x`: a second name of the same memory, or a value of its own where either is written later."""
        name, (x,) = op.out[0], op.args
        if isinstance(x, Const) and not self.counts.get(name):
            return None  # a setting of a helper's, say
        kind = self.typed.types.get(name)
        if isinstance(kind, types.Integer):
            return self._bind(name, self._whole_or_number(x))
        value = self._value(x)
        if not value.shape:
            return self._bind(name, of_number(cast(value.number(), dtype_of(kind))))
        if value.access is None and isinstance(x, str):
            if self.counts.get(x, 0) <= 1:
                return self._bind(name, value)
            self._settle(x)
            value = self._value(x)
        if self.assigned.get(name, 0) > 1 or name in self.rebound:
            fresh = isinstance(x, str) and self._given_up(x, value)
            if not fresh and name in self.aliases:
                self.env[name] = value
                return None
            before = value.reads
            self._bind(name, value.unnamed())
            if not fresh:
                self.copies.append((name, before | {self.own[name]}))
            return None
        self.env[name] = value
        return None

    def _given_up(self, x: str, value: Array) -> bool:
        """Whether a name is read here for the last time and its array has no other: who takes the array may have it in other memory."""
        if x.startswith(TEMP) and self.counts.get(x, 0) <= 1:
            if value.access is None or self._owns(x, value):
                return True
        elif x not in self.ends:
            return False
        memory = next(iter(value.reads)) if len(value.reads) == 1 else None
        owners = {y for y, own in self.own.items() if own is memory}
        if memory is None or not owners or any(memory in each for _, each in self.copies):
            return False
        # A name that lives on may want its memory back, as where names exchange arrays.
        return all(map(self._is_over, owners.union(self._names_of(memory)) - {x}))

    def _whole_or_number(self, x: Operand) -> Any:
        if isinstance(x, str) and isinstance(self.env.get(x), Array):
            return self.env[x]
        return self._whole(x)

    def _choice(self, op: Op) -> None:
        """A small branch of numbers: both sides are computed, and one is chosen."""
        condition = self._test(op.args[0])
        for holds, ops in ((True, op.body), (False, op.orelse)):
            if self._proved(condition, holds):
                return self._ops(ops)
        if not (self._places_only() and self._spared(condition)):
            self._cut(condition)
        before, mark = dict(self.env), self.builder.mark()
        try:
            sides = [self._side(op, ops) for ops in (op.body, op.orelse)]
        except wholes.Computed:
            if self.symbolic:
                raise
            self.env = before
            self.builder.back(mark)
            return self._both(If([], op.args[0], [Seg(op.body)], [Seg(op.orelse)]), condition)
        self.where = op.where
        leaves = self._leaves(condition, op.body, op.orelse)
        found: list[tuple[str, Array]] = []
        for name in op.out:
            a, b = (s[name] for s in sides)
            kind = self.typed.types.get(name)
            if not isinstance(kind, types.Float | types.Boolean | types.Integer):
                if self.counts.get(name):
                    raise Outside(f"{name} gets a value in a branch and is no number")
                continue
            whole_number = isinstance(kind, types.Integer) and not isinstance(kind, types.Boolean)
            if whole_number and self._chosen(name, a, b, leaves):
                continue
            dtype = F8 if whole_number else dtype_of(kind)
            if a is None or b is None:
                a = b = a or b
                if name in self.exposed:  # what it was in an earlier turn
                    own = self.own.get(name) or self._memory(name, Array((), _nothing, dtype), name)
                    a, b = (of_buffer(own) if s[name] is None else s[name] for s in sides)
            if a is None or b is None:
                raise Outside(f"{name} gets no value on either side of a branch")
            values = [cast(self._as_number(v), dtype) for v in (a, b)]
            dear = sum(map(is_dear, self._own_nodes(values, condition)))
            self.jumps |= dear > DEARLY and bool(self.builder.path)
            found.append((name, of_number(node("where", condition, *values))))
        self._bind_together(found)

    def _side(self, op: Op, ops: Sequence[Op]) -> dict[str, Array | Affine | None]:
        """What names are behind one side of a small branch, of which nothing is stored."""
        before = dict(self.env)
        self.symbolic += 1
        try:
            self._ops(ops)
            return {n: self.env.get(n) for n in op.out}
        finally:
            self.symbolic -= 1
            self.env = before

    def _chosen(self, name: str, a: Any, b: Any, leaves: bool | None) -> bool:
        """Whether a whole number is known behind a small branch, or not asked for."""
        if not self.counts.get(name):
            return True
        if isinstance(a, Affine) and isinstance(b, Affine):
            if a == b:
                self.env[name] = a
                return True
            return self._merged(name, a, b, leaves)
        if name not in self.held:
            raise _Held(name)
        return False

    def _own_nodes(self, values: list[Expr], condition: Expr) -> list[Expr]:
        """Nodes that one side alone computes: a jump would save them on the other."""
        mine, other = (set(nodes([v])) for v in values)
        return list((mine ^ other) - set(nodes([condition])))

    def _as_number(self, v: Array | Affine) -> Expr:
        if isinstance(v, Affine):
            wholes.exactly(self, number(v))
            return number(v)
        if v.shape:
            raise Outside("a branch chooses among arrays")
        return v.number()

    def _test(self, x: Operand) -> Expr:
        e = self._number(x)
        if e.dtype != B1:
            raise Outside("a condition that is no comparison")
        return e

    # ------------------------------------------------------------------------------------------ memory

    def _load(self, op: Op) -> None:
        """Bind a name to what indices, or a mask, choose of an array."""
        base = self._value(op.args[0])
        name = op.out[0]
        mask = next((str(a) for a in op.args[1:] if a in self.masks), "")
        if mask:
            if op.index != "{1}" or base.dtype not in (F8, F4) or self.symbolic:
                raise Outside("elements that a mask and an index choose")
            self._holds(mask, base)
            return self._choose(name, base, mask)
        view = self._indexed(base, op)
        if base.dtype in WHOLE and not view.shape:
            at = exact(view.number())  # the number that stands in affine ones
            if at is None and not wholes.is_whole(self, view.number()):
                raise Outside("a whole number that an index chooses of written ones")
            self._bind(name, of_number(view.number()) if at is None else at)
        elif view.shape and name in self.rebound and name not in self.aliases:
            self._bind(name, view.unnamed())
            self.copies.append((name, view.reads | {self.own[name]}))
        elif view.shape:
            self.env[name] = view
            if view.access is None and self.counts.get(name, 0) > 1:
                self._settle(name)
        else:
            self._bind(name, of_number(view.number()))

    def _store(self, op: Op, sign: str) -> None:
        """Read a store or an update; the right side is computed first where it overlaps the target."""
        base = self._value(op.args[0])
        mask = self.chosen.pop(str(op.args[1]), "")
        value = self._value(op.args[1])
        if base.dtype in WHOLE and base.access is None and op.args[0] not in self.held:
            raise _Held(str(op.args[0]))
        if base.access is None:
            raise Outside("a store into what is no memory")
        if base.dtype in WHOLE:
            raise Outside("a store into an array of whole numbers")
        (b,) = base.reads
        self.stored.add(b)
        if mask or any(a in self.masks for a in op.args[2:]):
            return self._masked(op, base, value, sign, mask)
        if b in self.wholes or base.dtype == B1:
            value = wholes.fitting(self, base, value, sign, op.args[1])
        target = self._indexed(base, op, named=True)
        if any(isinstance(self.typed.kind(a), types.Array) for a in op.args[2:]):
            return self._scattered(base, target, value, sign)
        given = op.args[1]
        last = isinstance(given, str) and self.counts.get(given, 0) <= 1
        if self.builder.overlap(target, value):
            if sign and value.shape:
                raise Outside(UNORDERED)
            value = value.unnamed()
        read = self.into.pop(given, ()) if isinstance(given, str) else ()
        if any(a.shape and self.builder.overlap(target, a) for a in read):
            raise Outside(UNORDERED)
        self._changes(
            frozenset((b,)), frozenset((given,)) if last and isinstance(given, str) else frozenset()
        )
        if not last and value.access is None:
            value = self._value(given)  # it may have been computed just now
        if len(value.shape) > len(target.shape) and value.shape[0] != ONE:
            raise Outside("a store of more axes than there are")
        if not sign:
            return self.builder.store(target, value)
        if sign in ("+", "-"):
            signed = value if sign == "+" else self._applied("negative", [value], value.dtype)
            return self.builder.store(target, signed, "+=")
        word = {"*": "multiply", "/": "divide", "**": "power"}.get(sign)
        if word is None:
            raise Outside(f"an update by {sign}")
        return self.builder.store(target, self._applied(word, [target, value], target.dtype))

    def _scattered(self, base: Array, target: Array, value: Array, sign: str) -> None:
        """A store at the places that an array names, one after the other: of two to one place the last stays. All values come first."""
        access = target.access
        assert access is not None
        if sign:
            word = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}.get(sign)
            if word is None:
                raise Outside(f"an update by {sign}")
            value = self._applied(word, [target, value], target.dtype)
        if value.shape or value.reads & base.reads:
            value = self.builder.kept(value, "t")
        self._changes(base.reads)
        rank = len(target.shape)
        for n, m in zip(value.shape[::-1], target.shape[::-1], strict=False):
            if n != ONE:
                self.builder.same(n, m, "shape of what is stored")
        if len(value.shape) > rank:
            raise Outside("a store of more axes than there are")

        def through(index: Index) -> None:
            if len(index) < rank:
                with self.builder.loop("i", ZERO, target.shape[len(index)], 1) as i:
                    return through((*index, i))
            e = cast(value.element(index), target.dtype)
            return self.builder.emit((), Store(access(index), e))

        through(())


def _every(body: Sequence[Node]) -> Iterator[Node]:
    """Every node of a tree."""
    for n in body:
        yield n
        if not isinstance(n, Seg):
            yield from _every(n.body)
            yield from _every(n.orelse if isinstance(n, If) else [])


def _loops(body: Sequence[Node]) -> Iterator[Loop]:
    return (n for n in _every(body) if isinstance(n, Loop))


def _nothing(_: Index) -> Expr:
    raise AssertionError("memory has no formula")


def _read(ops: Sequence[Op]) -> list[str]:
    """Names that operations read, as often as each is read."""
    return [x for op in flat(ops) for x in op.args if isinstance(x, str)]


def _raises(body: Sequence[Node]) -> bool:
    """Whether a block raises, whatever else it does."""
    return any(
        isinstance(n, Seg)
        and any(op.kind == "verbatim" and op.form.startswith("raise") for op in n.ops)
        for n in body
    )


def _same(a: Any, b: Any) -> bool:
    """Whether a name means the same after a turn of a loop as before."""
    if a is b or isinstance(a, Affine) or isinstance(b, Affine) or b is None:
        return a is b or a == b
    if a.access is None or b.access is None or a.shape != b.shape:
        return False
    index = tuple(affine(f"_{k}") for k in range(len(a.shape)))
    return bool(a.access(index) == b.access(index))
