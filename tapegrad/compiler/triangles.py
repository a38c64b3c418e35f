"""Triangles: Python loops whose slices grow or shrink with the turn, as loops of the program form.

A triangular solve, a factorisation, sums over half a matrix: no turn has the shapes of another one, so that a graph has no loop for them,
and their pullbacks, one call for each slice, take the cube of what the function takes. A stretch of calls that winds into loops with
regions that are affine in the turn (regions.py, windings.py) becomes a program of the form (`tapegrad.program`), which is differentiated
there: cotangents of slices are added in place. So does a stretch whose turns store to the same slices again and again, as the steps of a
stencil do: the form gathers what such a derivative scatters.

    before a walk back (`wound`)        the stretch is one entry of the tape, whose pullback is the form's derivative
    before a graph is lowered (`formed`)  what is left of such stretches, those without derivatives, is one call

Invariant: what does not fit leaves tape and graph as they were, and is compiled as it was.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from ..core import checking, dual, handlers, locks, logs, storage, sweep
from ..core.packing import flat, op_of_calls, unpacked
from ..core.primitive import apply
from ..core.tape import FREED, IN0, IN1, KW, OP, OUT, RECORDER, SLOT, STRIDE, Leaf, X, Y
from ..core.tensor import Tensor, wrap
from ..face.inplace import copy_slices, setitem
from ..ops.shaping import reshape
from ..program.affine import ONE, ZERO, Affine, affine
from ..program.arrays import Array, Builder, Index, Outside, of_buffer, of_number, remapped
from ..program.compiling import boxed, differentiated, prepared
from ..program.expressions import Expr, cast, const, node, nodes, number
from ..program.form import Program
from ..program.partials import Formless
from ..program.running import NAN, OTHER, Argument, Compiled
from ..program.writer import WRITTEN
from .graph import Graph, Guard, Node, Recorded, Ref
from .guards import counted
from .regions import (
    DTYPES,
    FINDS,
    FLOATS,
    OF_ONE_NUMBER,
    REDUCING,
    RUNNING,
    STORES,
    TESTS,
    Instruction,
    Operand,
    Place,
    Reading,
    Seen,
    Unread,
    index_of,
    readings,
    supported,
)
from .tracing import Later, LeftBehind, Trace, Traced
from .turns import standing, told_of
from .windings import LEAST_TURNS, Item, Winding

LEAST = 60
"""Calls of a stretch, at least."""
MOST_ITEMS = 400
"""Instructions and loops that are left of a stretch, at most: more are no loops."""
MOST_NODES = 60
"""Nodes of a formula that is written into what reads it."""
LEAST_ENTRIES = 16
"""Entries of an array that turns go along again and again, at least; turns that write out fewer are loops of a graph."""
MANY_SHAPES = 8
"""Shapes of results that calls of one turn hardly have, so that slices grow from turn to turn."""
WINDOW, MOST_PERIODS = 32, 20
"""Calls that are looked for again to find a period, and how many periods are tried."""
KEY = "loops over growing slices"
_RESHAPE, _REPLACES, _STORES = (op.primitive.code for op in (reshape, copy_slices, setitem))


# ---------------------------------------------------------------------------------------------------- to the form


class Stretch:
    """A stretch of calls as loops; raises Outside where it is none, or none of its loops grows."""

    def __init__(self, steps: Sequence[Any], wanted: Sequence[Node]) -> None:
        """Wind the calls into loops, and number what they read and give."""
        self.key = object()
        """What calls of one stretch have in common; they do not hold its calls."""
        self.wanted = list(wanted)
        if others := [n for n in self.wanted if DTYPES.get(n.dtype) not in FLOATS]:
            raise Unread(others, Outside("results that are no arrays of floats"))
        for reading in readings(steps, wanted):
            if self._winds(reading):
                break
        else:
            raise Outside("no loops over growing slices")
        self.uses: dict[int, list[int]] = {}
        for x in self.items:
            for k in x.leaves():
                for r in self.code[k].refs:
                    self.uses.setdefault(r, []).append(k)

    def _winds(self, reading: Reading) -> bool:
        """Whether the calls, as they are read, are loops over growing slices, which are kept."""
        self.reading = reading
        lasting = []
        for n in self.wanted:
            found = self.reading.seen[n]
            if type(found) is not Seen or self.reading.dtypes[found.source] not in FLOATS:
                raise Unread([n], Outside("a result that is no array of floats"))
            if found.places:
                raise Unread([n], Outside("a result that lies at a place"))
            if found.source >= 0:
                lasting.append(found.source)
        self.code = self.reading.instructions
        winding = Winding(self.code, lasting)
        self.items = winding.items
        count = sum(len(x.leaves()) + 1 for x in self.items)
        self.lasting = set(lasting)
        loops = winding.grows or winding.nested or winding.in_place
        return loops and count <= MOST_ITEMS

    def program(self) -> Program:
        """The program, of which inputs are those that the reading was given and outputs what was wanted."""
        return _Former(self).program()


class _Former:
    """Appends what items do to a program."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch, self.code = stretch, stretch.code
        self.builder = Builder("loops")
        self.arrays: dict[int, Array] = {}
        self.places: dict[int, Affine] = {}

    def program(self) -> Program:
        """The program of the form: inputs, the loops, and copies of what is wanted into outputs."""
        b, reading = self.builder, self.stretch.reading
        for k in range(len(reading.given)):
            buffer = b.buffer("x", _sizes(reading.shapes[~k]), reading.dtypes[~k], "input")
            if not buffer.extents and buffer.dtype != "f8":
                raise Outside("a number of another dtype than float64")
            b.inputs.append(buffer)
            self.arrays[~k] = of_buffer(buffer)
        items = self.stretch.items
        self._body(items, [list(map(affine, x.ints)) for x in items])
        for n in self.stretch.wanted:
            found = reading.seen[n]
            value = self._seen(found, [*map(affine, found.starts), *map(affine, found.shape)])
            out = b.buffer("y", _sizes(n.shape), value.dtype, "output")
            b.store(of_buffer(out), value)
            b.outputs.append(out)
        return b.program()

    def _seen(self, s: Seen, ints: Sequence[Affine]) -> Array:
        """A region, with its first indices and extents as they are here."""
        return self._region(s.source, s.axes, s.steps, list(ints))

    def _region(
        self, source: int, axes: Sequence[int], steps: Sequence[int], ints: list[Affine]
    ) -> Array:
        """The entries of an array that begin at `starts`, along its `axes` (-1: stretched); each index is claimed to be inside."""
        base = self.arrays[source]
        starts, shape = ints[: len(base.shape)], tuple(ints[len(base.shape) :])
        steps = steps or (1,) * len(axes)
        for d, n in enumerate(base.shape):
            # Of no entries, a region has a last one before the first one.
            last = starts[d]
            for a, extent, by in zip(axes, shape, steps, strict=True):
                last = last + (extent - 1) * by if a == d else last
            low, high = (
                (last, starts[d])
                if any(a == d and s < 0 for a, s in zip(axes, steps, strict=True))
                else (starts[d], last)
            )
            self.builder.claim(low, "an index")
            self.builder.claim(n - 1 - high, "an index")

        def to(index: Index) -> Index:
            at = list(starts)
            for k, a in enumerate(axes):
                if a >= 0:
                    at[a] = at[a] + index[k] * steps[k]
            return tuple(at)

        return remapped(base, shape, to)

    # ------------------------------------------------------------------------------------------ items

    def _body(self, items: Sequence[Item], ints: Sequence[list[Affine]]) -> None:
        """Write items in order; an expression that the next one alone reads waits for that one and becomes a part of it."""
        at = {x.lo: k for k, x in enumerate(items) if not x.body}
        moves = [bool(x.body) or self.code[x.lo].kind in ("store", "new") for x in items]
        for k, (x, own) in enumerate(zip(items, ints, strict=True)):
            if not x.body:
                users = self.stretch.uses.get(x.lo, ())
                waits = len(users) == 1 and x.lo not in self.stretch.lasting and users[0] in at
                if waits:
                    waits = not any(moves[k + 1 : at[users[0]]])
                    waits = waits and len(self.code[x.lo].shape) >= self.code[users[0]].rank
                self._instruction(x.lo, self.code[x.lo], own, waits)
                continue
            n = (len(own) - 1) // 2
            with self.builder.loop("t", ZERO, own[0], 1) as turn:
                inner: list[list[Affine]] = []
                numbers = iter(zip(own[1 : n + 1], own[n + 1 :], strict=True))
                for y in x.body:
                    inner.append([a + turn * b.const for a, b in _some(numbers, len(y.ints))])
                self._body(x.body, inner)

    def _instruction(self, k: int, x: Instruction, ints: list[Affine], waits: bool) -> None:
        """Write one instruction for turns in which its integers are `ints`; `waits` tells that its value is no statement of its own."""
        b = self.builder
        _, what, dtype, own, *tokens = x.token
        extents, rest, refs = tuple(ints[:own]), ints[own:], iter(x.refs)
        operands: list[Array] = []
        for t in tokens:
            if type(t) is str:
                operands.append(of_number(const(float(t))))
                continue
            if type(t) is Place:
                at = rest.pop(0) + self.places[next(refs)]
                operands.append(of_number(number(at)))
                continue
            if type(t) is not Operand:
                operands.append(Array(_sizes(t[1]), lambda _: const(0.0)))
                continue
            source = next(refs) if t.source is None else t.source
            count = t.starts + len(t.axes)
            for axis in t.places:
                rest[axis] = rest[axis] + self.places[next(refs)]
            operands.append(self._region(source, t.axes, t.steps, rest[:count]))
            del rest[:count]
        if x.kind == "store":
            b.store(operands[0], operands[1])
            return
        if x.kind == "new":
            self.arrays[k] = of_buffer(b.buffer("a", extents, dtype))
            b.store(self.arrays[k], operands[0])
            return
        if x.kind in FINDS:
            self.places[k] = b.place(operands[0], x.kind == "argmax")
            return
        found = self._value(x, what, dtype, extents, operands)
        reduced = x.kind in ("sum", "max", "min") or (
            (x.kind in ("matmul", "prod") or x.kind in RUNNING) and found.access is not None
        )
        if not reduced and not (waits and len(nodes([_any(found)])) <= MOST_NODES):
            found = b.kept(found, "v")
        self.arrays[k] = found

    def _value(
        self, x: Instruction, what: Any, dtype: str, extents: Index, operands: list[Array]
    ) -> Array:
        """The value of an instruction that makes a new array, entry by entry."""
        b = self.builder
        if x.kind == "full":
            value = const(float(what), dtype)
            return Array(extents, lambda _: value, dtype)
        if x.kind == "copy":
            return b.elementwise(lambda a: cast(a, dtype), *operands, dtype=dtype)
        if x.kind == "matmul":
            if x.empty and all(n == ZERO for n in (operands[0].shape[-1], operands[1].shape[0])):
                return of_number(const(0.0, dtype))
            operands = [b.elementwise(lambda a: cast(a, dtype), a, dtype=dtype) for a in operands]
            return b.product(*operands)
        if x.kind in REDUCING:
            (a,) = operands
            a = Array(
                a.shape, lambda index: cast(operands[0].at(index), dtype), dtype, None, a.reads
            )
            if x.kind == "prod":
                return _entry(b.accumulated(a, what[0], "multiply"), what[0], a.shape[what[0]])
            mode = {"max": "max=", "min": "min="}.get(x.kind, "+=")
            total = b.reduced(a, what, mode, x.kind)
            if x.kind != "mean":
                return total
            extent = reduce(_times, (a.shape[d] for d in what), ONE)
            return b.elementwise(lambda s: node("divide", s, number(extent, dtype)), total, dtype=dtype)  # fmt: skip
        if x.kind in RUNNING:
            (a,) = operands
            made = b.accumulated(a, what, RUNNING[x.kind])
            return remapped(made, a.shape, lambda i: (*i[:what], i[what] + 1, *i[what + 1 :]))
        inner = dtype
        if what in TESTS:
            inner = "f8" if any(a.dtype == "f8" and a.shape for a in operands) else "f4"
            inner = "f8" if all(a.dtype != "f4" for a in operands) else inner

        def make(*given: Expr) -> Expr:
            return node(what, *(e if e.dtype == "b1" else cast(e, inner) for e in given))

        return b.elementwise(make, *operands, dtype="b1" if what in TESTS else dtype)


def _any(a: Array) -> Expr:
    return a.at(tuple(affine("any") for _ in a.shape))


def _entry(a: Array, axis: int, at: Affine) -> Array:
    """One entry along an axis."""
    left = (*a.shape[:axis], *a.shape[axis + 1 :])
    return remapped(a, left, lambda i: (*i[:axis], at, *i[axis:]))


def _sizes(shape: Sequence[int]) -> Index:
    return tuple(map(affine, shape))


def _times(a: Affine, b: Affine) -> Affine:
    if a.terms and b.terms:
        raise Outside("a mean over two axes that grow")
    return b * a.const if b.terms else a * b.const


def _some(found: Any, count: int) -> list[Any]:
    return [next(found) for _ in range(count)]


# ---------------------------------------------------------------------------------------------------- calls


class Makes(Protocol):
    """What a program is made of: a stretch of calls, or a function's source (sources.py)."""

    @property
    def key(self) -> object: ...

    @property
    def wanted(self) -> Sequence[Any]: ...

    def program(self) -> Program: ...


class FormCall:
    """A call of the program: (values of the inputs, then seeds) -> results, and gradients of the inputs `by`."""

    def __init__(self, stretch: Makes, by: Sequence[int] | None = None) -> None:
        self.key, self.results, self.by = stretch.key, len(stretch.wanted), by
        self.__name__ = "loops" if by is None else "loops_and_gradient"
        primal = self.mathematics = stretch.program()
        if by is not None:
            self.mathematics = differentiated(primal, [primal.inputs[k] for k in by])
        boxed(self.mathematics, primal.body)
        self.kinds = [(tuple(n.const for n in b.extents), _NUMPY[b.dtype]) for b in self.mathematics.outputs]  # fmt: skip
        self.inputs = [(bool(b.extents), _NUMPY[b.dtype]) for b in self.mathematics.inputs]
        self.compiled: Any = None
        self.guarded: Any = None
        self.lock = locks.rlock()

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run the program; once more for operands that lie otherwise in memory, and with guarded products where a NaN came out."""
        if self.compiled is None:
            with self.lock:
                if self.compiled is None:
                    self.ready = prepared(self.mathematics)
                    self.compiled = self._made(False)
        empty = np.empty
        results = [empty(shape, dtype) for shape, dtype in self.kinds]
        code = self.compiled.answered([*values, *results])
        if code == OTHER:
            values = tuple(map(_plain, values, self.inputs))
            code = self.compiled.answered([*values, *results])
        if code == NAN:
            with self.lock:
                if self.guarded is None:
                    self.guarded = self._made(True)
            code = self.guarded.answered([*values, *results])
        if code:
            raise SystemError(
                f"Loops over slices were left with code {code}, which is a fault of tapegrad. Please report it with the function, and "
                "differentiate it without tg.compile."
            )
        return tuple([r if r.shape else r[()] for r in results])

    def _made(self, guarded: bool) -> Any:
        program = self.ready.program
        watched = program.outputs[self.results :] if self.ready.strong and not guarded else []
        given = [Argument(b) for b in program.inputs]
        return Compiled(program, given, False, watched, guarded)


_NUMPY = {"f8": np.dtype(np.float64), "f4": np.dtype(np.float32)}


def _plain(value: Any, kind: tuple[bool, Any]) -> Any:
    """A value as the program takes it."""
    array, dtype = kind
    if not array:
        return float(value)
    found = np.ascontiguousarray(value, dtype)
    return found if found.flags.aligned else found.copy()


# ---------------------------------------------------------------------------------------------------- in the graph


def _called(function: FormCall, nodes_: Sequence[Node]) -> tuple[Recorded, list[Recorded]]:
    """A call of a program on some nodes, and its results."""
    refs = tuple(Ref(i) for i in range(len(nodes_)))
    whole = Recorded(function, function.__name__, refs, {}, nodes_, 0)
    parts = []
    for i, (shape, dtype) in enumerate(function.kinds):
        sample = np.zeros((), dtype)
        part = Recorded(operator.itemgetter(i), f"{function.__name__}[{i}]", (Ref(0),), {}, (whole,), sample)  # fmt: skip
        part.shape = shape
        parts.append(part)
    return whole, parts


def is_call(node: Node) -> bool:
    """Whether a node calls a program of the form."""
    return type(node) is Recorded and type(node.function) is FormCall


def _stretches(steps: Sequence[Any]) -> list[tuple[int, int]]:
    """Stretches of calls that may be of a form, and loops that grow."""
    found = []
    start = 0
    of_numbers: dict[type, bool] = {}  # what is known of calls by their class
    for k in range(len(steps) + 1):
        fits = False
        if k < len(steps):
            kind = type(steps[k])
            known = of_numbers.get(kind)
            fits = supported(steps[k]) if known is None else known
            if known is None and kind is not Recorded:
                of_numbers[kind] = fits
        if not fits:
            if k - start >= LEAST:
                found.append((start, k))
            start = k + 1
    return found


def _made(steps: Sequence[Any], make: Callable[[int, int], Any]) -> Iterator[tuple[int, int, Any]]:
    """(start, stop, what is made of the calls between), from the last stretch to the first; one is cut at calls that it cannot have."""
    waiting = _stretches(steps)
    while waiting:
        start, stop = waiting.pop()
        if stop - start < LEAST or not _may_grow(steps[start:stop]):
            continue
        try:
            yield start, stop, make(start, stop)
        except Exception as error:
            handlers.hand_on(error)
            _left(start, stop, error)
            if type(error) is Unread:
                lost = set(map(id, error.calls))
                cuts = [k for k in range(start, stop) if id(steps[k]) in lost]
                waiting += zip([start, *(k + 1 for k in cuts)], [*cuts, stop], strict=True)


def _may_grow(steps: Sequence[Any]) -> bool:
    """Whether calls may be loops that grow: they have several shapes, or do not repeat with one period, as equal turns do.

    It saves reading them: tracing a loop of equal turns takes less time than that.
    """
    calls = [s for s in steps if type(s) is not Guard]
    if len({s.shape for s in calls}) >= MANY_SHAPES:
        return True
    known: dict[str, int] = {}
    names = np.array([known.setdefault(s.name, len(known)) for s in calls])
    middle = len(names) // 2
    window = names[middle : middle + WINDOW]
    tried = 0
    for p in (np.flatnonzero(names[middle + 1 :] == names[middle]) + 1).tolist():
        if not np.array_equal(names[middle + p : middle + p + WINDOW], window):
            continue
        other = np.flatnonzero(names[p:] != names[:-p])  # where the period does not hold
        k = np.searchsorted(other, middle)
        first = other[k - 1] if k else 0
        end = other[k] if k < len(other) else len(names) - p
        if end - first >= 0.75 * len(names) - p:
            turns = calls[first : end + p]
            return _in_place(turns, p) or _in_rows(turns, p) or _moves(calls)
        tried += 1
        if tried == MOST_PERIODS:
            break
    return True


def _in_place(calls: Sequence[Node], period: int) -> bool:
    """Whether each turn stores to the same part of an array, as the steps of a stencil do: the form takes three quarters of the time that
    a loop of a graph takes, and half of it to be compiled. Products with a matrix are BLAS's in a graph, which is faster."""
    if any(c.name == "matmul" for c in calls[:period]):
        return False
    for a, b in zip(calls[:period], calls[period:], strict=False):
        if a.name in STORES:
            index = index_of(a)
            parts = index if type(index) is tuple else (index,)
            if slice in map(type, parts) and _REGION.issuperset(map(type, parts)):
                if index == index_of(b):
                    return True
    return False


def _in_rows(calls: Sequence[Node], period: int) -> bool:
    """Whether equal turns go along rows of an array, entry by entry: they are loops in loops, and one loop cannot say where they are."""
    for k in range(min(period, len(calls))):
        if calls[k].name not in ("stored", "getitem"):
            continue
        places = [index_of(c) for c in calls[k::period]]
        if all(type(x) is tuple and _INTEGER.issuperset(map(type, x)) for x in places):
            if len(set(map(len, places))) > 1:
                continue
            steps = np.diff(np.array(places), axis=0)
            if (steps != steps[:1]).any(axis=1).sum() > 1:
                return True
    return False


def _moves(calls: Sequence[Node]) -> bool:
    """Whether parts of an array that is stored to move along it, or rows or entries of it again and again: no loop of equal turns has them.

    Nor has one stores to an entry that moves along what each turn computes anew.
    """
    places: dict[Any, Counter[Any]] = {}
    own: set[Any] = set()
    for c in calls:
        if c.name not in STORES and not (c.name == "getitem" and c.inputs[0].name in STORES):
            continue
        index = index_of(c)
        index = index if type(index) is tuple else (index,)
        kinds = tuple(map(type, index))
        if not _MOVING.issuperset(kinds):
            continue
        at = tuple([x.start if type(x) is slice else x for x in index])
        entry = slice not in kinds and len(kinds) == len(c.inputs[0].shape)
        places.setdefault((c.name, kinds, entry), Counter())[at] += 1
        if entry and c.inputs[0].name in _MADE:
            own.add(at)
    return len(own) >= LEAST_TURNS or any(
        len(found) >= (LEAST_ENTRIES if entry else LEAST_TURNS)
        and (slice in kinds or found.total() > 2 * len(found))
        for (_, kinds, entry), found in places.items()
    )


_MADE = WRITTEN | REDUCING | {"copy", "matmul", *RUNNING}
_INTEGER = frozenset((int,))
_REGION = frozenset((int, slice, type(...)))
_MOVING = frozenset((int, np.int64, slice))


def _last_read(steps: Sequence[Any]) -> dict[Node, int]:
    """By call the place of the last one that reads its result; behind all of them where Python looked at it."""
    last: dict[Node, int] = {}
    for k, s in enumerate(steps):
        if type(s) is not Guard:
            for x in s.inputs:
                if last.get(x, -1) < k:
                    last[x] = k
    last.update((s.node, len(steps)) for s in steps if type(s) is Guard)
    return last


def _placed(call: Node) -> set[Any]:
    """The whole numbers of the trace in the index of a call, each with the shape of what it goes into, and what stands before it."""
    if call.name != "getitem" and call.name not in STORES:
        return set()
    index = index_of(call)
    parts = index if type(index) is tuple else (index,)
    found: set[Any] = set()
    for k, p in enumerate(parts):
        x = call.inputs[p.index] if type(p) is Ref else None
        if x is not None and x.dtype.kind == "i":
            where = call.inputs[0].shape, tuple(map(type, parts[:k]))
            found.update((y, *where) for y in (x.inputs if x.name == "stack" else (x,)))
    return found


def _needed(steps: Sequence[Any], wanted: Sequence[Node]) -> list[Node]:
    """The calls among some whose results are asked for."""
    asked = set(wanted)
    found: list[Node] = []
    for s in reversed(steps):
        if type(s) is not Guard and s in asked:
            asked.update(s.inputs)
            found.append(s)
    return found[::-1]


def formed(graph: Graph) -> Graph:
    """The graph with its loops over growing slices as one call each; the same graph where there are none."""
    if not any(map(is_call, graph.nodes)) and not _stretches(graph.steps):
        return graph
    for steps in (counted(graph.steps), graph.steps):
        if steps is not None:
            found, wound = _formed(Graph(graph.inputs, steps, graph.outputs))
            if wound:
                break
    return found


def _formed(graph: Graph) -> tuple[Graph, bool]:
    """The graph with its loops as calls, as its guards stand, and whether there are such loops."""
    graph = _uncopied(_merged(graph.pruned()))
    last = _last_read(graph.steps)
    last.update((y, len(graph.steps)) for y in graph.outputs if isinstance(y, Node))
    out: list[Any] = []
    done = 0
    now: dict[Node, Node] = {}

    def looped(start: int, stop: int) -> tuple[list[Node], Stretch, FormCall]:
        stretch: list[Any] = graph.steps[start:stop]
        wanted = [s for s in stretch if type(s) is not Guard and last.get(s, -1) >= stop]
        loops = Stretch(_needed(stretch, wanted), wanted)
        return wanted, loops, FormCall(loops)

    for start, stop, (wanted, loops, function) in reversed([*_made(graph.steps, looped)]):
        for s in graph.steps[done:start]:
            out.append(s)
        more, given = _operands(loops)
        whole, parts = _called(function, given)
        out += [*more, whole, *parts]
        out += [s for s in graph.steps[start:stop] if type(s) is Guard]
        now.update(zip(wanted, parts, strict=True))
        done = stop
    if not done:
        return graph, False
    out += graph.steps[done:]
    return _renamed(Graph(graph.inputs, out, graph.outputs), now), True


def _left(start: int, stop: int, error: Exception) -> None:
    """Tell why a stretch is compiled as calls: it lies outside the form, or this module has a fault, which is raised where faults are."""
    if not isinstance(error, Outside | Formless):
        from . import program

        if program.STRICT or checking.on():
            raise error
        warnings.warn(
            f"calls {start} to {stop} are compiled as they stand, because their loops could not be made "
            f"({type(error).__name__}: {error}).",
            RuntimeWarning,
            stacklevel=5,
        )
    logs.tell("calls %d to %d are no loops of the form: %s", start, stop, error)


def _renamed(graph: Graph, now: dict[Node, Node]) -> Graph:
    """The graph, reading other calls in the place of some; `now` gets those that are copied."""
    from dataclasses import replace

    steps: list[Any] = []

    def newest(x: Node) -> Node:
        while x in now:
            x = now[x]
        return x

    for s in graph.steps:
        if type(s) is Guard:
            steps.append(replace(s, node=newest(s.node)))
            continue
        if any(x in now for x in s.inputs):
            old, s = s, s.with_inputs([newest(x) for x in s.inputs])
            now[old] = s
        steps.append(s)
    outputs = [newest(y) if isinstance(y, Node) else y for y in graph.outputs]
    return Graph(graph.inputs, steps, outputs)


def _operands_of(call: Node) -> list[Node]:
    """What a call reads, as often as it does."""
    found: list[Node] = []

    def look(x: Any) -> None:
        if type(x) is Ref:
            found.append(call.inputs[x.index])
        elif type(x) in (tuple, list):
            for y in x:
                look(y)

    look((*call.args, *call.kwargs.values()))
    return found


def _operands(stretch: Stretch) -> tuple[list[Node], list[Node]]:
    """Calls for the constants among a stretch's inputs, and a node for each input."""
    made: list[Node] = []
    given: list[Node] = []
    for x in stretch.reading.given:
        if isinstance(x, Node):
            given.append(x)
            continue
        constant = Recorded(np.array, "constant", (x,), {}, (), x)
        made.append(constant)
        given.append(constant)
    return made, given


def _uncopied(graph: Graph) -> Graph:
    """The graph without copies of what a call of the form has made and nobody else reads: that is in memory of its own."""
    uses = Counter(y for y in graph.outputs if isinstance(y, Node))
    for s in graph.steps:
        uses.update((s.node,) if type(s) is Guard else s.inputs)
    now = {
        s: s.inputs[0]
        for s in graph.nodes
        if s.name == "copy" and s.shape and s.inputs and uses[s.inputs[0]] == 1
        and s.inputs[0].inputs and is_call(s.inputs[0].inputs[0])
    }  # fmt: skip
    return _renamed(graph, now) if now else graph


def _merged(graph: Graph) -> Graph:
    """The graph, where the gradient of a call stands in the place of the call, if its seeds are known there: it has the results too."""
    calls = [s for s in graph.nodes if is_call(s)]
    if len(calls) < 2:
        return graph
    place = {s: k for k, s in enumerate(graph.steps) if type(s) is not Guard}
    parts: dict[Node, list[Node]] = {s: [] for s in calls}
    for s in graph.nodes:
        if s.inputs and s.inputs[0] in parts and type(s.function) is operator.itemgetter:
            parts[s.inputs[0]].append(s)
    steps: list[Any] = [[s] for s in graph.steps]
    now: dict[Node, Node] = {}
    values = {s.function.key: s for s in calls if s.function.by is None}
    for s in calls:
        value = values.get(s.function.key) if s.function.by is not None else None
        if value is None:
            continue
        early = [x for x in s.inputs if place.get(x, -1) > place[value]]
        if any(x.inputs for x in early):
            continue
        del values[s.function.key]
        own = {p.name.split("[")[1]: p for p in parts[s]}
        for p in parts[value]:
            which = p.name.split("[")[1]
            if which not in own:
                own[which] = p.with_inputs([s])
                own[which].name = f"{s.name}[{which}"
            now[p] = own[which]
        for x in (*early, s, *parts[s], *parts[value]):
            steps[place[x]] = []
        steps[place[value]] = [*early, s, *own.values()]
    return _renamed(Graph(graph.inputs, [x for some in steps for x in some], graph.outputs), now)


# ---------------------------------------------------------------------------------------------------- on the tape


class Formed:
    """What an entry of the tape holds: a program, whose pullback is the form's derivative."""

    def __init__(self, stretch: Makes, given: list[Traced], by: list[int]) -> None:
        self.given, self.by = given, by
        self.forward = FormCall(stretch)
        # Made now: what has no derivative is no stretch.
        self.gradient = FormCall(stretch, by) if by else self.forward
        self.kinds = [np.broadcast_to(np.zeros((), d), s) for s, d in self.forward.kinds]

    def called(self) -> list[Traced]:
        """The results, by a call in the graph."""
        self.results = _parts(storage.tracing.get(), self.forward, self.given)
        return self.results

    def plain(self) -> tuple[Any, ...]:
        """The values of the results in this run, by the program that the derivative needs anyway."""
        values = [x.seen() for x in self.given]
        if not self.by:
            return self.forward(*values)
        seeds = (np.zeros(k.shape, k.dtype)[()] for k in self.kinds)
        return self.gradient(*values, *seeds)[: len(self.kinds)]

    def evaluate(self, values: Sequence[Any]) -> Any:
        results = self.called()
        return flat(results) if len(results) > 1 else results[0]

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        trace = storage.tracing.get()
        whole = sum(math.prod(k.shape) for k in self.kinds)
        shape = self.kinds[0].shape if len(self.kinds) == 1 else (whole,)
        if type(trace) is not Trace or isinstance(g, Tensor) or np.shape(g) != shape:
            raise LeftBehind(KEY, "a derivative of a derivative")
        pieces = unpacked(g, self.kinds) if len(self.kinds) > 1 else [g]
        seeds = [x.strong() if type(x) is Traced else trace.constant(x) for x in pieces]
        return _parts(trace, self.gradient, [*self.given, *seeds])[len(self.kinds) :]


entry = op_of_calls(
    "growing_loops", "Loops over growing slices in a compiled function, as one program."
)


def _parts(trace: Trace, function: FormCall, given: Sequence[Traced]) -> list[Traced]:
    """The results of a call in the graph that is traced; nothing is computed before somebody looks."""
    whole, parts = _called(function, [x.node for x in given])
    values = [x.later() if x.large else x.value for x in given]
    refs = tuple(Ref(i) for i in range(len(given)))
    call = Later(function, (refs, {}), values, np.float64(0), ())
    trace.graph.steps += [whole, *parts]
    found = []
    for i, (part, (shape, dtype)) in enumerate(zip(parts, function.kinds, strict=True)):
        sample = np.zeros((1,) * len(shape), dtype)[()]
        pick = Later(operator.itemgetter(i), ((Ref(0),), {}), [call], sample, shape)
        found.append(Traced.of(trace, part, pick))
    return found


def wound(
    trace: Trace, code: list[Any], pending: dict[Any, Any], watch: dict[Any, Any]
) -> list[Any]:
    """The entries of a tape with stretches that the form has as one entry each, for a walk from `pending` down."""
    if len(code) < LEAST * STRIDE or type(trace) is not Trace or KEY in trace.unrolled:
        return code
    if sweep.GUARD.get() is not None or told_of(code, watch) or told_of(code, dual.saved):
        return code

    tape: _Tape | None = None

    def entries(start: int, stop: int) -> None:
        nonlocal code, tape
        if tape is None or tape.given is not code or tape.steps is not trace.graph.steps:
            tape = _Tape(code, pending, trace.graph.steps)
        code = _Entries(trace, tape, pending, start, stop).run()

    steps, before = trace.graph.steps, code
    if (together := counted(steps)) is not None:
        trace.graph.steps = together
        for _ in _made(together, entries):
            pass
        if code is not before:
            return code
        trace.graph.steps = steps
    for _ in _made(steps, entries):
        pass
    return code


class _Tape:
    """The entries of a tape and the calls of its trace, and where each result is read: stretch by stretch, none is looked for again."""

    def __init__(self, code: list[Any], pending: dict[Any, Any], steps: list[Any]) -> None:
        """Look through the entries that a walk from `pending` reaches."""
        self.given, self.steps = code, steps
        self.code = code = standing(code, pending)
        self.last = _last_read(steps)
        """By call the place of its last reader among the calls."""
        self.slots: dict[Any, int] = {}
        """By slot the place of its entry."""
        self.of_call: dict[Node, list[int]] = {}
        """By call the places of its entries."""
        self.read: dict[Any, tuple[int, int]] = {}
        """By slot, or call, the first and the last entry that reads it, or has its value."""
        for k in range(0, len(code), STRIDE):
            self.slots[code[k + SLOT]] = k
            out, first = code[k + OUT], code[k + IN0]
            if type(out) is Traced:
                self.of_call.setdefault(out.node, []).append(k)
            for x in first if type(first) is tuple else (first, code[k + IN1]):
                if type(x) is int:
                    self.read[x] = self.read.get(x, (k, k))[0], k
            for column in (X, Y):
                values = code[k + column]
                for x in values if type(values) is tuple else (values,):
                    if type(x) is Traced:
                        self.read[x.node] = self.read.get(x.node, (k, k))[0], k

    def read_outside(self, key: Any, first: int, last: int) -> bool:
        """Whether an entry before `first`, or from `last` on, reads a slot or has the value of a call."""
        low, high = self.read.get(key, (first, first))
        return low < first or high >= last


class _Entries:
    """A stretch of a trace's calls, and the entries of a tape for them."""

    def __init__(
        self, trace: Trace, tape: _Tape, pending: dict[Any, Any], start: int, stop: int
    ) -> None:
        self.trace, self.pending = trace, pending
        self.tape, self.code, self.steps = tape, tape.code, tape.steps
        self.start, self.stop = start, stop
        self.calls = {s for s in self.steps[start:stop] if type(s) is not Guard}
        self.traced: dict[Node, tuple[Any, Traced]] = {}
        """By call outside of the stretch: what stands for its result on the tape, and the result."""
        self.twins: dict[Any, Any] = {}
        """Of a call with several entries, by the slot of a later one that of the first."""
        self.later: list[int] = []

    def _reads(self, k: int) -> tuple[Any, ...]:
        """What an entry reads that derivatives go to."""
        first = self.code[k + IN0]
        return first if type(first) is tuple else (first, self.code[k + IN1])

    def run(self) -> list[Any]:
        """The new entries."""
        code, tape = self.code, self.tape
        mine = sorted(k for s in self.calls for k in tape.of_call.get(s, ()))
        if not mine or (mine[-1] - mine[0]) // STRIDE + 1 != len(mine):
            raise Outside("entries of other calls in between")
        first, last = mine[0], mine[-1] + STRIDE
        asked = {s for s in self.calls if tape.last.get(s, -1) >= self.stop}
        asked.update(s for s in self.calls if tape.read_outside(s, first, last))
        for k in mine:
            slot = code[k + SLOT]
            if tape.read_outside(slot, first, last) or slot in self.pending:
                asked.add(code[k + OUT].node)
        entries = self._demand_known(mine)
        inside = [
            s
            for s in self.steps[self.start : self.stop]
            if type(s) is not Guard and s not in self.traced
        ]
        wanted = [s for s in inside if s in asked]
        needed = _needed(inside, wanted)
        self._demand_active(needed, wanted, entries)
        stretch = Stretch(needed, wanted)
        arguments = {x.node: x for x in self.trace.arguments}
        given: list[Traced] = []
        by: list[int] = []
        operands: list[Tensor] = []
        for k, x in enumerate(stretch.reading.given):
            if not isinstance(x, Node):
                continue
            if x in self.traced:
                by.append(k)
                operands.append(wrap(self.traced[x][1]))
                operands[-1]._node = self.traced[x][0]
            elif x not in arguments:
                raise Outside("a value of which the trace has only the call")
        if not by:
            raise Outside("no derivative is by what it reads")
        kept = self.steps
        new: list[Any] = []
        recorder = RECORDER.get()
        self.trace.graph.steps = []
        try:
            for x in stretch.reading.given:
                if isinstance(x, Node):
                    given.append(self.traced[x][1] if x in self.traced else arguments[x])
                else:
                    given.append(self.trace.constant(x))
            RECORDER.set(new.extend)
            made = Formed(stretch, given, by)
            whole = apply(entry.primitive, operands, (made,))
            pieces = unpacked(whole, made.kinds) if len(made.kinds) > 1 else [whole]
        finally:
            RECORDER.set(recorder)
            inserted, self.trace.graph.steps = self.trace.graph.steps, kept
        results = dict(zip(wanted, made.results, strict=True))
        own_results = {s: entries[s] for s in wanted if s in entries}
        names = {code[k + SLOT]: pieces[wanted.index(s)]._node for s, k in own_results.items()}
        again = [k for k in self.later if self.twins[code[k + SLOT]] in names]
        names.update((code[k + SLOT], names[self.twins[code[k + SLOT]]]) for k in again)
        proved = {x for s in needed for x in _placed(s)}
        for s in inside:  # the program has proved its indices, so that it cannot raise
            if s.checked and proved.issuperset(_placed(s)):
                s.checked = False
        self._commit(inserted, results, [code[k + OUT] for k in (*own_results.values(), *again)])
        for slot in [s for s in self.pending if s in names]:
            self.pending[names[slot]] = self.pending.pop(slot)
        tail = code[last:]
        for k in range(0, len(tail), STRIDE):
            reads = tail[k + IN0]
            if type(reads) is tuple:
                tail[k + IN0] = tuple(names.get(x, x) for x in reads)
            else:
                tail[k + IN0 : k + IN1 + 1] = [names.get(x, x) for x in tail[k + IN0 : k + IN1 + 1]]
        return [*code[:first], *new, *tail]

    def _demand_known(self, mine: Sequence[int]) -> dict[Node, int]:
        """The entry of each call; what entries read of outside, which are inputs wherever they were computed, are noted."""
        code, slots = self.code, self.tape.slots
        first, last = mine[0], mine[-1] + STRIDE
        entries = {x.node: k for x, k in zip(code[first + OUT : last : STRIDE], mine, strict=True)}
        if len(entries) != len(mine):
            entries = self._demand_twins(mine)
        read: set[Any] = set(code[first + IN1 : last : STRIDE])
        for x in set(code[first + IN0 : last : STRIDE]):
            read.update(x if type(x) is tuple else (x,))
        read.difference_update(code[first + SLOT : last : STRIDE])
        for x in read:
            if x is None:
                continue
            if isinstance(x, Leaf):
                value = x.data
            elif x in slots:
                value = code[slots[x] + OUT]
            else:
                raise Outside("an entry of another tape")
            if type(value) is not Traced:
                raise Outside("a tensor of another trace")
            if self.traced.setdefault(value.node, (x, value))[0] != x:
                raise Outside("two tensors of one value")
        return entries

    def _demand_twins(self, mine: Sequence[int]) -> dict[Node, int]:
        """The first entry of each call. Later ones may be reshapes of it there and back, as a store through a flat view has."""
        code = self.code
        slots = {code[k + SLOT]: k for k in mine}
        entries: dict[Node, int] = {}
        for k in mine:
            first = entries.setdefault(code[k + OUT].node, k)
            if first == k:
                continue
            at: int | None = k
            while at is not None and at != first and (code[at + OP] == _RESHAPE or self._whole(at)):
                at = slots.get(self._canonical(at)[0])
            if at != first:
                raise Outside("two entries of one call")
            self.twins[code[k + SLOT]] = code[first + SLOT]
            self.later.append(k)
        if len({self.twins.get(x, x) for x in self.pending}) != len(self.pending):
            raise Outside("a walk from two entries of one call")
        return entries

    def _canonical(self, k: int) -> list[Any]:
        """What derivatives of an entry go to, each by the first entry of its call."""
        reads = self._reads(k)[1:] if self._whole(k) else self._reads(k)
        return [self.twins.get(x, x) for x in reads if x is not None]

    def _whole(self, k: int) -> bool:
        """Whether an entry replaces all of an array, seen through reshapes, by what a view of it has become."""
        if self.code[k + OP] != _REPLACES:
            return False
        (path,) = self.code[k + KW]
        return all(step[0] == _RESHAPE for step in path)

    def _demand_active(
        self, steps: Sequence[Node], wanted: Sequence[Node], entries: dict[Node, int]
    ) -> None:
        """See that derivatives go where the calls would let them go: not past a detach() or no_grad().

        A call without an entry may have lost it: nobody can ask for what is only looked at, in a comparison or for its largest
        element, and a tape drops such entries when it likes. Such calls are inert: none with a derivative may read them.
        """
        code = self.code
        inert: set[Node] = set()
        known = {x: found[0] for x, found in self.traced.items()}
        """The slot, or leaf, that each call's result stands for."""
        known.update((x, code[k + SLOT]) for x, k in entries.items())
        find, twin = known.get, self.twins.get
        stores: dict[Any, Any] = {}
        """By what an entry of a store reads, its slot: where it goes through a flat view, the entry is one of the view behind it."""
        twins: dict[Node, list[int]] = {}
        for j in self.later:
            twins.setdefault(code[j + OUT].node, []).append(j)
        for j in [entries[x] for x in twins]:
            if code[j + OP] == _STORES:
                stores[frozenset(Counter(self._canonical(j)).items())] = code[j + SLOT]
        for s in steps:
            inputs, k = s.inputs, entries.get(s, -1)
            if inert and s.dtype.kind in "fc" and not inert.isdisjoint(inputs):
                if k >= 0:
                    raise Outside(f"{s.name} reads what lets no derivative through")
                inert.add(s)
                continue
            plain = [a for a in s.args if type(a) is Ref]
            if k >= 0 and 1 <= len(inputs) == len(plain) <= 2:  # most: column by column
                first, second = code[k + IN0], code[k + IN1]
                first, second = twin(first, first), twin(second, second)
                x, y = find(inputs[0]), find(inputs[1]) if len(inputs) == 2 else None
                alike = (first == x and second == y) or (first == y and second == x)
                if alike and not (first is None and second is None) and code[k + OP] != FREED:
                    continue
            if s.dtype.kind not in "fc" or s.name in OF_ONE_NUMBER:  # of such no derivative is lost
                continue
            # An operand may be there twice, of which one is detached.
            reads = Counter(known[x] for x in _operands_of(s) if x in known)
            if s.name in ("copied_into", "copy") and k < 0:
                x = inputs[s.args[-1].index] if type(s.args[-1]) is Ref else None
                if x in known:
                    known[s] = known[x]
                continue
            if k < 0 and not reads:
                continue
            if k < 0 and s.name == "stored" and frozenset(reads.items()) in stores:
                known[s] = stores.pop(frozenset(reads.items()))
                continue
            if k < 0:
                inert.add(s)
                continue
            same = (Counter(self._canonical(j)) == reads for j in (k, *twins.get(s, ())))
            if not any(same):
                raise Outside(f"{s.name} lets no derivative through")
            if code[k + OP] == FREED:
                raise Outside("an entry that was given up")
        if not inert.isdisjoint(wanted):
            raise Outside("a result lets no derivative through")

    def _commit(
        self, inserted: list[Any], results: dict[Node, Traced], values: Sequence[Traced]
    ) -> None:
        """Put the new calls behind the stretch, and let guards, later calls and what Python holds read them."""
        from dataclasses import replace

        now = {old: new.node for old, new in results.items()}
        looks = [s for s in self.steps[self.start : self.stop] if type(s) is Guard]
        before = [
            s
            for k, s in enumerate(self.steps[: self.stop])
            if k < self.start or type(s) is not Guard
        ]
        later = []
        for s in [*looks, *self.steps[self.stop :]]:
            if type(s) is Guard:
                s = replace(s, node=now.get(s.node, s.node))
            elif any(x in now for x in s.inputs):
                s.inputs = tuple(now.get(x, x) for x in s.inputs)
            later.append(s)
        self.trace.graph.steps = [*before, *inserted, *later]
        for x in values:
            x.node = now.get(x.node, x.node)


__all__ = ["formed", "wound"]
