"""Rolling: a stretch of calls that repeats becomes a loop, so that a Python loop of n steps costs the compiler one.

A traced loop leaves n copies of its calls, alike but for what they read. A *period* is found by comparing each window of calls with the
last place where the same window stood. Then every operand of every call must follow one of these rules, from turn to turn:

    local      a call of the same turn
    carried    the same call of the turn before, or some turns before (in the first turns: some values from outside)
    fixed      one value from outside
    indexed    entry a + b * turn of an array: the results of an earlier loop, turn by turn, x[i] of a fixed array, or numbers that change

and each constant must be one for all turns or become an indexed number. Where a rule holds for some turns only, these are a loop, and
the others may be another. What Python saw of the same call in each turn is one guard of all its values. What holds for no rule stays
unrolled. Arrays that turns fill are followed row by row first (stores.py). Where turns are loops themselves, those are rolled first: then
each is one call of its turn, alike in all turns, and what it keeps is one array.

Invariant: the new graph computes what the old one did, in the same order of additions (except where a turn adds to several places
of an array: all turns of one place come first).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.tape import BIG
from ..ops.indexing import scatter
from . import callout
from .graph import Graph, Guard, Node, Recorded, Ref
from .stores import _index, _is_int, forwarded
from .tracing import OpCall

WORTH = 600
"""Calls in a graph below which nothing is rolled: all of it is one native call then, of a microsecond, where a loop among NumPy calls takes
fifteen; with more calls compiling them one by one takes over a second."""

WINDOWS = (16, 64, 256, 1024)
LEAST_TURNS = 6
MOST_LAG = 64
"""Turns that a value may be carried on: each costs a move in each turn."""
MOST_ALIKE = 4
"""Parts of a turn that may be alike in their calls, so that the distance at which calls come again is a part of the period."""
TRIMS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2), (2, 2))
"""How many turns are left out first and last: those often read something else, what stands before the loop, or nothing after it."""
WIDEST = 64
"""Operands of a call above which it is no part of a loop: it is rather what joins the results of all turns."""
LONGEST = 20_000
LONG = 30_000
"""NumPy calls of a loop above which machine code is worth its making (some 0.1 s), even if it runs only once."""
NESTED = 200
"""Calls in a turn from which on a turn that is mostly a loop has it rolled first: the turns around read its arrays, not its turns."""
LEAST_INNER = 4
"""Calls in a turn of such a loop: fewer are rather entries that are read one by one."""
MOSTLY = 20
"""A graph of so many times fewer calls is rolled well enough."""
_NO_NUMBERS: tuple[Any, ...] = ()


@dataclass(slots=True)
class Loop:
    """A rolled stretch: the body as a graph, and where its values come from and go to.

    The body's inputs are the carried values, then the fixed, then the indexed ones; its outputs are the next carried values,
    then those that are kept turn by turn.
    """

    turns: int
    body: Graph
    carried: int
    fixed: int
    indices: list[tuple[int, int]] = field(default_factory=list)
    """(a, b) of each indexed value: turn j reads entry a + b * j; of a `while`, row by row from the first or the last."""
    backward: bool = False
    """Whether the first turn makes the last of what is kept."""
    open: bool = False
    """Whether values say how many turns there are, and `turns` is 0: a `while`."""
    tested: bool = False
    """Whether the last of the body's outputs says if there is another turn."""

    @property
    def kept(self) -> int:
        """How many values are kept turn by turn."""
        return len(self.body.outputs) - self.carried - self.tested


class LoopCall:
    """A loop as a function: (initial carried, fixed, indexed arrays) -> (last carried, arrays of what is kept)."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.__name__ = "loop"
        self.run: Any = None

    @functools.cached_property
    def alike(self) -> Any:
        """What two loops that do the same have in common: a loop in each turn of another is one call of that turn."""
        if any(type(step) is Guard for step in self.loop.body.steps):
            return id(self)
        number: dict[Node, Any] = {x: k for k, x in enumerate(self.loop.body.inputs)}
        calls = []
        for node in self.loop.body.nodes:
            varying: list[Any] = []
            sign = (type(node), repr(node.args)) if node.of_numbers else _signature(node, varying)
            numbers = [x.tobytes() if isinstance(x, np.ndarray) else repr(x) for x in varying]
            calls.append((sign, *numbers, *(number.get(x, x) for x in node.inputs)))
            number[node] = len(number)
        outputs = [number.get(y, y) for y in self.loop.body.outputs]
        loop = replace(self.loop, body=Graph(), indices=[])
        return (repr(loop), *self.loop.indices, *calls, *outputs)

    def __call__(self, *values: Any) -> Any:
        """The loop's values before there is a program: a long loop as machine code of its own, others as NumPy calls, turn by turn."""
        loop = self.loop
        if self.run is None and loop.turns * len(loop.body.steps) >= LONG:
            from .nesting import of_loop

            native = of_loop(self, values)
            if native is not None:
                return native(*values)
        if self.run is None:
            self.run = callout.written(loop.body, "loop")[0]
        carried = list(values[: loop.carried])
        fixed = values[loop.carried : loop.carried + loop.fixed]
        arrays = values[loop.carried + loop.fixed :]
        kept: list[list[Any]] = [[] for _ in range(loop.kept)]
        for turn in range(loop.turns):
            entries = [x[a + b * turn] for x, (a, b) in zip(arrays, loop.indices, strict=True)]
            results = self.run(*carried, *fixed, *entries)
            carried = results[: loop.carried]
            for column, value in zip(kept, results[loop.carried :], strict=True):
                column.append(value)
        return (*carried, *(np.stack(column[:: -1 if loop.backward else 1]) for column in kept))


def trimmed(graph: Graph) -> Graph:
    """The graph, whose loops keep turn by turn only what somebody reads."""
    parts: dict[Node, list[Any]] = {}
    for step in graph.steps:
        if type(step) is Recorded and hasattr(step.function, "loop"):
            parts[step] = []
        elif type(step) is Recorded and step.inputs and step.inputs[0] in parts:
            parts[step.inputs[0]].append(step)
    if not parts:
        return graph
    steps = list(graph.steps)
    bodies: dict[Any, Graph] = {}  # calls of one body remain so
    for k, call in enumerate(steps):
        if not isinstance(call, Node) or call not in parts:
            continue
        loop = call.function.loop
        numbers = {part: int(part.name[5:-1]) for part in parts[call]}
        kept = sorted({i for i in numbers.values() if i >= loop.carried})
        if len(kept) == loop.kept:
            continue
        outputs = loop.body.outputs
        ends = outputs[len(outputs) - loop.tested :]
        chosen = [*outputs[: loop.carried], *(outputs[i] for i in kept), *ends]
        which = (id(loop.body), *kept)
        if which not in bodies:
            bodies[which] = Graph(loop.body.inputs, loop.body.steps, chosen).pruned()
        fewer = call.with_inputs(call.inputs)
        fewer.function = type(call.function)(replace(loop, body=bodies[which]))
        steps[k] = fewer
        place = {i: loop.carried + j for j, i in enumerate(kept)}
        for part, i in numbers.items():
            part.inputs = (fewer,)
            if i >= loop.carried:
                part.function, part.name = operator.itemgetter(place[i]), f"loop[{place[i]}]"
    return Graph(graph.inputs, steps, graph.outputs)


def rolled(graph: Graph) -> Graph:
    """The graph with its repeating stretches as loops; the graph itself where there are none."""
    if len(graph.steps) < WORTH:
        return graph
    by_rows = forwarded(graph)
    if len(by_rows.steps) < LEAST_TURNS:  # nothing that is returned depends on the loops
        return by_rows
    found = _Roller(by_rows).run()
    few = found is not by_rows and len(found.steps) < max(WORTH, len(graph.steps) // MOSTLY)
    if by_rows is graph or few:
        return found
    plainly = _Roller(graph).run()
    return found if len(found.steps) <= len(plainly.steps) else plainly


def _signature(
    node: Node, varying: list[Any], entries: Callable[[np.ndarray], Any] | None = None
) -> Any:
    """What two calls have in common if they may be turns of one; what may change from turn to turn goes to `varying`.

    `entries` says what two constant arrays have in common if they are the same; by default `_bytes`.
    """
    entries = entries or _bytes
    indexing = node.name in ("getitem", "scatter")

    def key(value: Any) -> Any:
        """What two calls must share to be turns of one loop; numbers and places that may vary are appended to `varying`."""
        kind = type(value)
        if kind is Ref:
            return value.index, "ref"
        if kind is float or kind is np.float64:
            varying.append(value)
            return kind
        if indexing and (kind is int or isinstance(value, np.integer)):
            varying.append(int(value))
            return int
        if kind in (tuple, list):
            return (kind, *map(key, value))
        if kind is slice:
            return (slice, value.start, value.stop, value.step)
        if indexing and kind is np.ndarray and value.dtype.kind in "iu":
            varying.append(value)
            return ("places", value.shape, value.dtype.str)
        if not indexing and _is_number_or_few(value):
            varying.append(value)
            return ("few", value.shape)
        if kind is np.ndarray:
            return (
                "array",
                value.shape,
                value.dtype.str,
                entries(value),
            )
        if isinstance(value, np.generic):
            return (kind, value.tobytes())
        try:
            hash(value)
        except TypeError:
            return id(value)
        return (kind, value)

    args = tuple(key(x) for x in node.args)
    kwargs = tuple((k, key(x)) for k, x in node.kwargs.items())
    called = _called(node, entries)
    return (node.name, called, args, kwargs, node.shape, node.dtype, node.weak, len(node.inputs))


def _called(node: Node, entries: Callable[[np.ndarray], Any]) -> Any:
    """What the functions of two calls have in common if they are the same."""
    function = node.function
    if isinstance(function, OpCall):
        return function.op.code
    if _is_part(node):  # each has a getter of its own
        return node.name
    if isinstance(function, LoopCall):
        return function.alike
    if isinstance(function, Constant):
        return function.value.shape, function.value.dtype, entries(function.value)
    if isinstance(function, Spliced):
        return function.many
    return id(function)


def _length(graph: Graph) -> int:
    """Calls that are to be compiled: those of loops once."""
    inner = (s.function.loop.body for s in graph.nodes if isinstance(s.function, LoopCall))
    return len(graph.steps) + sum(map(_length, inner))


def _differ(column: Sequence[Any]) -> bool:
    """Whether numbers or arrays of the turns are not all the same, bit for bit."""
    first = column[0]
    if type(first) is np.ndarray:
        seen = first.tobytes()
        return any(x is not first and x.tobytes() != seen for x in column)
    numbers = np.array(column)
    signs = np.signbit(numbers)
    return bool((numbers != first).any() or (signs != signs[0]).any())


def _is_number_or_few(value: Any) -> bool:
    """Whether it is a float, or an array of some that may stand in its place: each turn may have another one."""
    if type(value) is np.ndarray:
        return value.dtype == np.float64 and value.nbytes <= BIG
    return type(value) is float or type(value) is np.float64


def _bytes(array: np.ndarray) -> Any:
    """What constants have in common if they are the same, as a buffer of zeros is that each turn makes anew."""
    if array.size < 64:
        return array.tobytes()
    if array.nbytes <= BIG:
        return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()
    if array.flags.c_contiguous and not array.flat[0] and not array.view(np.uint8).any():
        return "zeros"
    return array.ctypes.data, array.strides  # a view that locks the user's array while it lives


def _gaps(signs: np.ndarray) -> set[int]:
    """Distances at which windows of calls most often come again: the candidates for a period."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 1 << 63, int(signs.max()) + 1, np.uint64)[signs]
    base = np.uint64(0x9E3779B97F4A7C15)  # odd, so it has an inverse modulo 2**64
    inverse = np.uint64(pow(int(base), -1, 1 << 64))
    n = len(signs)
    found = {1}  # entries of an array one by one, which are few among the calls of many loops
    with np.errstate(over="ignore"):
        powers = np.concatenate([[np.uint64(1)], np.cumprod(np.full(n, base))])
        back = np.concatenate([[np.uint64(1)], np.cumprod(np.full(n, inverse))])
        sums = np.concatenate([[np.uint64(0)], np.cumsum(values * powers[:-1])])
        for window in WINDOWS:
            if window >= n:
                continue
            hashes = (sums[window:] - sums[:-window]) * back[: n - window + 1]
            order = np.argsort(hashes, kind="stable")
            again = hashes[order][1:] == hashes[order][:-1]
            gaps = np.diff(order)[again]
            lengths, counts = np.unique(gaps, return_counts=True)
            common = lengths[np.argsort(-counts)[:8]].tolist()
            found.update(g for g in common if 0 < g <= LONGEST)
    return found


def _within(signs: np.ndarray, found: Sequence[tuple[int, int, int]], least: int) -> set[int]:
    """Periods of loops that long turns of the loops which were found mostly consist of."""
    return {
        inner
        for start, period, _ in found
        if period >= least
        for _, inner, turns in periods(signs[start : start + period])
        if 2 * inner * turns >= period and inner >= LEAST_INNER
    }


def periods(signs: np.ndarray, first: Set[int] = frozenset()) -> list[tuple[int, int, int]]:
    """Stretches (start, period, turns) of signs that repeat, from left to right; those of the periods in `first` go before others."""
    stretches = []
    for period in sorted(_gaps(signs)):
        alike = np.concatenate([[False], signs[:-period] == signs[period:], [False]])
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            turns = (stop - start) // period + 1
            if turns >= LEAST_TURNS:
                stretches.append((start, period, turns))
    # What covers most comes first: six entries read in a row within a turn are no loop of their own.
    stretches.sort(key=lambda s: (s[1] not in first, -s[1] * s[2], s[1]))
    taken = np.zeros(len(signs), bool)
    found = []
    for start, period, turns in stretches:
        if not taken[start : start + turns * period].any():
            taken[start : start + turns * period] = True
            found.append((start, period, turns))
    return sorted(found)


class _Roller:
    def __init__(self, graph: Graph) -> None:
        """Number the calls of a graph by signature: equal numbers in a period are candidates for a loop."""
        self.graph = graph = _together(graph)
        self.nodes = nodes = list(graph.nodes)
        self.guards: list[tuple[int, Guard]] = []
        """Each with the place of the call that it stands behind."""
        behind = -1
        for step in graph.steps:
            if type(step) is Guard:
                self.guards.append((behind, step))
            else:
                behind += 1
        # An argument, which is no call, has a number below all others.
        for k, node in enumerate(graph.inputs):
            node.place = -2 - k
        for i, node in enumerate(nodes):
            node.place = i
        self.signs: list[int] = []
        self.varying: list[Sequence[Any]] = []
        table: dict[Any, int] = {}
        wide: list[tuple[int, Node]] = []
        for i, node in enumerate(nodes):
            kind = type(node)
            if kind.of_numbers:  # operators on numbers, as most calls of a long program
                sign: Any = kind
                args = node.args
                numbers: Any = _NO_NUMBERS
                if len(args) == 2 and len(node.inputs) == 1:
                    numbers = args[1:] if type(args[0]) is Ref else args[:1]
            else:
                numbers = []
                sign = i if len(node.inputs) > WIDEST else _signature(node, numbers)
                if len(node.inputs) > 2:
                    wide.append((i, node))
            self.signs.append(table.setdefault(sign, len(table)))
            self.varying.append(numbers)
        most = max((len(node.inputs) for _, node in wide), default=2)
        reads = np.full((len(nodes), min(most, WIDEST)), -1)
        reads[:, 0] = [node.inputs[0].place if node.inputs else -1 for node in nodes]
        reads[:, 1] = [node.inputs[1].place if len(node.inputs) > 1 else -1 for node in nodes]
        for i, node in wide:
            reads[i, : len(node.inputs)] = [x.place for x in node.inputs[:WIDEST]]
        self.reads = reads
        self.loop_at: list[int] = [-1] * len(self.nodes)  # which stretch a call is in
        self.stretches: list[_Stretch] = []
        self.failed: list[tuple[_Stretch, np.ndarray]] = []
        """Stretches that were tried, and where the first operand stands, turn by turn, for which there was no rule."""

    def run(self) -> Graph:
        """The graph with loops, or itself."""
        signs = np.array(self.signs)
        found = periods(signs)
        plain = self._with(found)
        inner = _within(signs, found, NESTED)
        if not inner:
            return plain
        within = self._with(periods(signs, inner))
        if within is not self.graph:
            within = _Roller(within).run()
        return within if _length(within) < _length(plain) else plain

    def _with(self, stretches: Sequence[tuple[int, int, int]]) -> Graph:
        """The graph with those of the stretches as loops that have rules; itself where there are none."""
        self.loop_at, self.stretches = [-1] * len(self.nodes), []
        for start, period, turns in stretches:
            for stretch in self._stretches(start, period, turns):
                for i in range(stretch.start, stretch.stop):
                    self.loop_at[i] = len(self.stretches)
                self.stretches.append(stretch)
        if not self.stretches:
            return self.graph
        return self._rebuilt()

    # ------------------------------------------------------------------------------------ rules

    def _stretches(self, start: int, period: int, turns: int) -> Iterator[_Stretch]:
        """What can be rolled of calls that repeat with this period."""
        parts = self._parts_at(start)
        if parts:  # belong to the call before
            start, turns = start + parts, turns - 1
        if turns < LEAST_TURNS:
            return
        # Two halves of a turn can be alike (the rates of two species): then only a multiple of the period has rules.
        self.failed = []
        for m in range(1, MOST_ALIKE + 1):
            stretch = self._fitted(start, period * m, turns // m)
            if stretch is not None:
                yield stretch
                return
        # An operand may be one thing in some turns and another in the others: a stretch for each.
        for s, places in self.failed:
            k = self._broken(places)
            if s.period == period and LEAST_TURNS <= k < s.turns:
                cut = s.start + k * period
                yield from self._stretches(start, period, (cut - start) // period)
                yield from self._stretches(cut, period, turns - (cut - start) // period)
                return

    def _parts_at(self, start: int) -> int:
        """How many calls from here on pick a part of what a call before made, which is no array that a loop could carry."""
        parts = itertools.takewhile(_is_part, itertools.islice(self.nodes, start, None))
        return sum(1 for _ in parts)

    def _broken(self, places: np.ndarray) -> int:
        """The turn from which on an operand stands elsewhere than its places before would have it, or in another loop; how many there
        are, if there is none."""
        numbers = [self.loop_at[place] if place >= 0 else -1 for place in places.tolist()]
        other = np.diff(places)[1:] != places[2] - places[1]
        others = np.flatnonzero(other | (np.array(numbers[2:]) != numbers[1]))
        return int(others[0]) + 2 if others.size else len(places)

    def _fitted(self, start: int, period: int, turns: int) -> _Stretch | None:
        """The stretch, with a rule for every operand; the first turns are left out where they differ, or the cut is moved."""
        for skipped, dropped in TRIMS:
            if turns - skipped - dropped < LEAST_TURNS:
                return None
            stretch = _Stretch(start + skipped * period, period, turns - skipped - dropped)
            if stretch.start and self.loop_at[stretch.start] >= 0:
                continue
            if self._rules(stretch):
                return stretch
        return None

    def _rules(self, s: _Stretch) -> bool:
        """Whether each operand of a stretch follows a rule from turn to turn (local, fixed, carried, indexed); the rules are stored."""
        for offset in range(s.period):
            first = self.nodes[s.start + offset]
            places = self.reads[s.start + offset : s.stop : s.period]
            for k, x in enumerate(first.inputs):
                rule = self._rule(s, offset, places[:, k], x)
                if rule is None or (rule[0] != "local" and _is_part(first)):
                    self.failed.append((s, places[:, k]))
                    return False
                s.rules[offset, k] = rule
            if not self.varying[s.start + offset]:
                continue
            columns = zip(*self.varying[s.start + offset : s.stop : s.period], strict=True)
            for k, column in enumerate(columns):
                if _differ(column):
                    if not self._varies(s, offset, k, column):
                        return False
        return self._summed(s) if s.scattered else True

    def _rule(self, s: _Stretch, offset: int, places: np.ndarray, initial: Node) -> Any:
        """The rule of an operand that stands at these places, turn by turn; `initial` is what the first turn reads."""
        second, last = int(places[1]), int(places[-1])
        if s.start <= last < s.stop:
            turn, at = divmod(last - s.start, s.period)
            return self._inside(s, offset, places, at, s.turns - 1 - turn)
        turns = np.arange(s.turns)
        if (places == second).all():
            return ("fixed", initial)
        number = self.loop_at[second] if second >= 0 else -1
        if number >= 0:
            other = self.stretches[number]
            if places.min() < other.start or places.max() >= other.stop:
                return None
            turn0, at = divmod(int(places[0]) - other.start, other.period)
            turn1, at1 = divmod(second - other.start, other.period)
            step = turn1 - turn0
            if (
                at != at1
                or (places != other.start + (turn0 + step * turns) * other.period + at).any()
            ):
                return None
            return ("indexed", number, at, turn0, step)
        return None

    def _inside(self, s: _Stretch, offset: int, places: np.ndarray, at: int, lag: int) -> Any:
        """The rule of an operand that is a call of the same turn, or of one so many turns before."""
        own = s.start + np.arange(s.turns - lag) * s.period + at
        if lag > MOST_LAG or lag > s.turns - 2 or (places[lag:] != own).any():
            return None
        if not lag:
            return ("local", at) if at < offset else None
        if places[:lag].max() >= s.start:
            return None
        x = self.nodes[s.start + at]
        before = tuple(self._at(int(place)) for place in places[:lag])
        if any((y.shape, y.dtype, y.weak) != (x.shape, x.dtype, x.weak) for y in before):
            return None
        return ("carried", at, before)

    def _at(self, place: int) -> Node:
        """What has this number: a call, or an argument."""
        return self.nodes[place] if place >= 0 else self.graph.inputs[-2 - place]

    def _varies(self, s: _Stretch, offset: int, k: int, column: Sequence[Any]) -> bool:
        """Numbers that change: those in an index of a fixed array, or a float or a few of them among an operation's operands."""
        node = self.nodes[s.start + offset]
        if node.name == "getitem":
            if offset not in s.entries:
                rule = s.rules[offset, 0]
                indices = [_index(x) for x in self.nodes[s.start + offset : s.stop : s.period]]
                found = index_of_turns(indices, rule[1].shape) if rule[0] == "fixed" else None
                if found is None:
                    return False
                s.entries[offset] = (rule[1], *found)
            return True
        if node.name == "scatter":
            return offset in s.scattered or self._scattered(s, offset)
        position = [i for i, x in enumerate(node.args) if _is_number_or_few(x)]
        if len(position) != len(self.varying[s.start + offset]):
            return False  # some stand within a list, or among the settings
        if node.dtype not in (np.float64,) or node.kwargs:
            return False
        s.numbers[offset, position[k]] = np.array(column, float)
        return True

    def _scattered(self, s: _Stretch, offset: int) -> bool:
        """Whether what a call spreads in all turns can be spread at once; noted for `_summed`."""
        calls = self.nodes[s.start + offset : s.stop : s.period]
        shape, spread = calls[0].shape, calls[0].inputs[0].shape
        found = index_of_turns([_index(x) for x in calls], shape)
        if found is None:
            return False
        index, axis = found
        probe = np.broadcast_to(np.zeros((), np.int8), shape)[index]
        if np.moveaxis(probe, axis, 0).shape != (s.turns, *spread):
            return False
        s.scattered[offset] = found
        return True

    def _summed(self, s: _Stretch) -> bool:
        """Entries added into arrays, others each turn: they are kept, and added after the loop, all turns of one place at once.

        The array is carried from turn to turn by a chain of such additions and read by nothing else in the loop.
        """
        second = s.start + s.period
        readers: dict[int, list[tuple[int, int]]] = {}
        for j, k in np.argwhere(self.reads[second : second + 2 * s.period] >= second).tolist():
            readers.setdefault(int(self.reads[second + j, k]) - second, []).append((j, k))
        after: dict[
            int, int
        ] = {}  # offset of an addition, or of the array's last one in the turn before -> the next one
        for offset, index in s.scattered.items():
            if len(readers.get(offset, ())) != 1:
                return False
            at, k = readers[offset][0]
            if at >= s.period:
                return False
            total = self.nodes[second + at]
            if total.name != "add" or len(total.inputs) != 2 or total.kwargs:
                return False
            if total.shape != self.nodes[second + offset].shape:
                return False
            before = int(self.reads[second + at, 1 - k]) - second
            s.sums[at] = (offset, 1 - k, index)
            if before in after:
                return False
            after[before] = at
        for before, at in after.items():
            # The array is read by the next addition only: of this turn, or of the next one.
            place = before if before >= 0 else before + s.period
            if place not in s.sums or len(readers.get(at, ())) != 1:
                return False
            if before < 0:
                chain = [at]
                while chain[-1] in after:
                    chain.append(after[chain[-1]])
                if chain[-1] != place or readers[place] != [(at + s.period, s.sums[at][1])]:
                    return False
                s.chains.append(chain)
        return sum(map(len, s.chains)) == len(s.sums)

    # ------------------------------------------------------------------------------------ the new graph

    def _readings(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """For each stretch, by number, the offsets whose values something outside of it reads: those of some turn, and the last one."""
        outside: dict[int, set[int]] = {}
        final: dict[int, set[int]] = {}
        alone = np.flatnonzero(np.array(self.loop_at) < 0).tolist()
        read = [x for i in alone for x in self.nodes[i].inputs]
        read += [y for y in self.graph.outputs if isinstance(y, Node)]
        read += [guard.node for _, guard in self.guards]
        for s in self.stretches:
            for rule in s.rules.values():
                if rule[0] == "indexed":
                    outside.setdefault(rule[1], set()).add(rule[2])
                elif rule[0] == "fixed":
                    read.append(rule[1])
                elif rule[0] == "carried":
                    read += rule[2]
            read += [source for source, _, _ in s.entries.values()]
        for x in read:
            self._needed(x, outside, final)
        return outside, final

    def _rebuilt(self) -> Graph:
        """The graph in which the stretches are loops; itself where somebody wants a partial sum."""
        outside, final = self._readings()
        for number, s in enumerate(self.stretches):
            last = {chain[-1] for chain in s.chains}
            read, end = outside.get(number, set()), final.get(number, set())
            if any(at in read or (at in end and at not in last) for at in s.sums):
                return self.graph
            end.difference_update(s.sums)
        steps: list[Any] = []
        replaced: dict[int, Node] = {}

        def now(x: Node) -> Node:
            """What stands for a node of the old graph: itself, the last value of a loop, or a row of what it kept."""
            known = replaced.get(id(x))
            if known is not None:
                return known
            i = _place(x)
            number = self.loop_at[i] if i >= 0 else -1
            if number < 0:
                return x
            s = self.stretches[number]
            turn, at = divmod(i - s.start, s.period)
            if turn == s.turns - 1 and at in s.last:
                return s.last[at]
            zeros = np.zeros(x.shape, x.dtype)
            node = Recorded(operator.getitem, "getitem", (Ref(0), turn), {}, (s.arrays[at],), zeros)
            node.weak = x.weak
            steps.append(node)
            replaced[id(x)] = node
            return node

        waiting = self.guards[::-1]

        def guard(stop: int) -> None:
            """Append the guards of calls before this place."""
            ready = []
            while waiting and waiting[-1][0] < stop:
                ready.append(waiting.pop()[1])
            steps.extend(self._guarded(ready, now))

        i = 0
        while i < len(self.nodes):
            guard(i)
            number = self.loop_at[i]
            if number >= 0:
                s = self.stretches[number]
                writing = _Writing(self, s, steps, now)
                writing.read()
                writing.append(sorted(outside.get(number, ())), sorted(final.get(number, ())))
                i = s.stop
                continue
            node = self.nodes[i]
            joined = self._joined(node, now, steps)
            if joined is not None:
                replaced[id(node)] = joined
                i += 1
                continue
            if any(_place(x) >= 0 and now(x) is not x for x in node.inputs):
                node = node.with_inputs([now(x) for x in node.inputs])
                replaced[id(self.nodes[i])] = node
            steps.append(node)
            i += 1
        guard(i)
        outputs = [now(y) if isinstance(y, Node) else y for y in self.graph.outputs]
        return Graph(self.graph.inputs, steps, outputs).pruned()

    def _guarded(self, guards: Sequence[Guard], now: Any) -> list[Guard]:
        """Guards of the new graph: one where Python looked at the same call in each turn of a loop."""
        made = []
        of_call: dict[tuple[int, int], list[tuple[int, Guard]]] = {}
        for guard in guards:
            i = _place(guard.node)
            number = self.loop_at[i] if i >= 0 else -1
            if number < 0:
                made.append(replace(guard, node=now(guard.node)))
            else:
                s = self.stretches[number]
                turn, at = divmod(i - s.start, s.period)
                of_call.setdefault((number, at), []).append((turn, guard))
        for (number, at), found in of_call.items():
            s = self.stretches[number]
            if [turn for turn, _ in found] == list(range(s.turns)):
                values = np.stack([guard.value for _, guard in found])
                made.append(replace(found[0][1], node=s.arrays[at], value=values))
            else:
                made += [replace(guard, node=now(guard.node)) for _, guard in found]
        return made

    def _joined(self, node: Node, now: Any, steps: list[Any]) -> Node | None:
        """A call that stacks what turns of loops gave, in their order: the loops' own arrays, and what stands before and after them."""
        axis = node.kwargs.get("axis", node.args[1] if len(node.args) > 1 else 0)
        if node.name != "stack" or axis != 0 or node.kwargs.keys() - {"axis"}:
            return None
        if len(node.args[0]) != node.shape[0] or any(x.dtype != node.dtype for x in node.inputs):
            return None
        items = [node.inputs[x.index] if type(x) is Ref else x for x in node.args[0]]
        parts: list[Node] = []
        many: list[bool] = []
        for first, count in self._runs_of(items):
            if count == 1:
                x = items[first]
                if not isinstance(x, Node):
                    value = np.array(np.broadcast_to(np.asarray(x, node.dtype), node.shape[1:]))
                    x = Recorded(Constant(value), "constant", (), {}, (), value)
                    steps.append(x)
                parts.append(now(x))
            else:
                i = _place(items[first])
                s = self.stretches[self.loop_at[i]]
                turn, at = divmod(i - s.start, s.period)
                part = s.arrays[at]
                if count < s.turns:
                    like = np.broadcast_to(np.zeros((), node.dtype), (count, *node.shape[1:]))
                    where = (Ref(0), slice(turn, turn + count))
                    part = Recorded(operator.getitem, "getitem", where, {}, (part,), like)
                    steps.append(part)
                parts.append(part)
            many.append(count > 1)
        if not any(many):
            return None
        if len(parts) == 1:
            return parts[0]
        refs = tuple(Ref(k) for k in range(len(parts)))
        joined = Recorded(Spliced(tuple(many)), "spliced", refs, {}, parts, 0)
        joined.shape, joined.dtype = node.shape, node.dtype
        steps.append(joined)
        return joined

    def _runs_of(self, items: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """Items that are a loop's values turn by turn: where they begin, and how many there are; one for each of the others."""
        places = [_place(x) if isinstance(x, Node) else -1 for x in items]
        first = 0
        while first < len(items):
            i = places[first]
            number = self.loop_at[i] if i >= 0 else -1
            stop = first + 1
            if number >= 0:
                s = self.stretches[number]
                while stop < len(items) and places[stop] == places[stop - 1] + s.period < s.stop:
                    stop += 1
            yield first, stop - first
            first = stop

    def _needed(self, x: Node, outside: dict[int, set[int]], final: dict[int, set[int]]) -> None:
        """Note that something outside of its own loop reads a value: the last one, or that of some turn."""
        i = _place(x)
        number = self.loop_at[i] if i >= 0 else -1
        if number < 0:
            return
        s = self.stretches[number]
        turn, at = divmod(i - s.start, s.period)
        if turn == s.turns - 1:
            final.setdefault(number, set()).add(at)
        else:
            outside.setdefault(number, set()).add(at)


class _Writing:
    """The loop of a stretch while it is written: its body, and what this reads, by rules (see `_Stretch.rules`).

    `steps` gets what is made before the loop and behind it; `now` is what a node of the trace is called there.
    """

    def __init__(self, trace: _Roller, s: _Stretch, steps: list[Any], now: Any) -> None:
        """A loop without a body."""
        self.nodes, self.stretches = trace.nodes, trace.stretches
        self.s, self.steps, self.now = s, steps, now
        self.carried: dict[Any, Node] = {}
        """The body's input, by offset, turns before and initial value."""
        self.fixed: dict[int, Node] = {}
        self.indexed: dict[Any, Node] = {}
        self.sources: dict[str, list[Node]] = {"carried": [], "fixed": [], "indexed": []}
        self.indices: list[tuple[int, int]] = []
        self.nexts: list[int | Node] = []
        """What each carried value is in the next turn: an offset, or another input."""
        self.body = Graph()
        self.inside: dict[int, Node] = {}
        """What an offset's call is in the body."""
        self.sums: list[tuple[int, Any, Any]] = []
        """Sums that lie outside of the body: offset, what is added, index."""

    def _indexed(self, key: Any, like: Node, source: Node, a: int, b: int) -> Node:
        """The body's input that is row `a + b * turn` of a source."""
        if key not in self.indexed:
            self.indexed[key] = _variable(like)
            self.sources["indexed"].append(source)
            self.indices.append((a, b))
        return self.indexed[key]

    def _operand(self, rule: Any, like: Node) -> Node:
        """The variable of the loop's body that a rule stands for."""
        if rule[0] == "local":
            return self.inside[rule[1]]
        if rule[0] == "fixed":
            x = self.now(rule[1])
            if id(x) not in self.fixed:
                self.fixed[id(x)] = _variable(x)
                self.sources["fixed"].append(x)
            return self.fixed[id(x)]
        if rule[0] == "carried":
            _, at, before = rule
            following: int | Node = at
            for lag, x in enumerate(reversed(before)):
                key = (at, lag, id(x))
                if key not in self.carried:
                    self._carry(key, x, self.now(x), following)
                following = self.carried[key]
            return self.carried[key]
        _, other, at, a, b = rule
        return self._indexed((other, at, a, b), like, self.stretches[other].arrays[at], a, b)

    def _carry(self, key: Any, like: Node, start: Node, following: int | Node) -> None:
        """Carry a value from turn to turn."""
        self.carried[key] = _variable(like)
        self.sources["carried"].append(start)
        self.nexts.append(following)

    def read(self) -> None:
        """Write the body, call by call."""
        s = self.s
        later = {offset: at for at, (offset, *_) in s.sums.items()}
        for offset in range(s.period):
            node = self.nodes[s.start + s.period + offset]
            if offset in s.sums:
                continue
            if offset in later:
                at = later[offset]
                added = self._operand(s.rules[offset, 0], node.inputs[0])
                self.sums.append((at, added, s.sums[at][2]))
            elif offset in s.entries:
                self.inside[offset] = self._entry(offset, node)
            else:
                self.inside[offset] = self._call(offset, node)

    def _entry(self, offset: int, node: Node) -> Node:
        """A row of an array that each turn reads: in even steps, or picked before the loop."""
        source, index, axis = self.s.entries[offset]
        if type(index) is slice:
            a, b = index.start, index.step
            return self._indexed(("entry", id(source), a, b), node, self.now(source), a, b)
        shape = (self.s.turns, *node.shape)
        picked = _picked(self.now(source), index, axis, shape, self.steps)
        return self._indexed(("rows", offset), node, picked, 0, 1)

    def _call(self, offset: int, node: Node) -> Node:
        """A call of the body; a number that differs from turn to turn is a row of an array of such."""
        inputs = [self._operand(self.s.rules[offset, k], x) for k, x in enumerate(node.inputs)]
        args = list(node.args)
        for (at, position), numbers in self.s.numbers.items():
            if at == offset:
                constant = Recorded(Constant(numbers), "constant", (), {}, (), numbers)
                self.steps.append(constant)
                like = Recorded(None, "input", (), {}, (), node.args[position])
                inputs.append(self._indexed(("numbers", offset, position), like, constant, 0, 1))
                args[position] = Ref(len(inputs) - 1)
        copy = node.with_inputs(inputs)
        copy.args = tuple(args)
        self.body.steps.append(copy)
        return copy

    def append(self, kept: list[int], final: list[int]) -> None:
        """Append the call of the loop, and note what its results are called: rows of `kept` calls, the last values of `final` ones."""
        s, inside, nexts = self.s, self.inside, self.nexts
        # The last value of a call is carried too, from turn to turn: its initial value is of no account.
        for at in final:
            if at not in nexts:
                last = inside[at]
                zeros = np.zeros(last.shape, last.dtype)
                start = Recorded(_zeros(last), "constant", (), {}, (), zeros)
                self.steps.append(start)
                self._carry((at, -1, 0), last, start, at)
        self.body.inputs = [*self.carried.values(), *self.fixed.values(), *self.indexed.values()]
        self.body.outputs = [inside[at] if type(at) is int else at for at in nexts]
        self.body.outputs += [inside[at] for at in kept]
        self.body.outputs += [added for _, added, _ in self.sums]
        loop = Loop(s.turns, self.body, len(self.carried), len(self.fixed), self.indices)
        given = [x for kind in ("carried", "fixed", "indexed") for x in self.sources[kind]]
        refs = tuple(Ref(i) for i in range(len(given)))
        call = Recorded(LoopCall(loop), "loop", refs, {}, given, 0)
        self.steps.append(call)
        for i, what in enumerate([*nexts, *kept]):
            if not isinstance(what, int):
                continue
            at, node = what, inside[what]
            stacked = i >= len(nexts)
            shape = (s.turns, *node.shape) if stacked else node.shape
            part = part_of(call, i, shape, node.dtype)
            part.weak = node.weak and not stacked
            self.steps.append(part)
            if stacked:
                s.arrays[at] = part
            else:
                s.last.setdefault(at, part)
        stacks = {
            at: (part_of(call, len(nexts) + len(kept) + i, (s.turns, *x.shape), x.dtype), index)
            for i, (at, x, index) in enumerate(self.sums)
        }
        for chain in s.chains:
            s.last[chain[-1]] = self._total(chain, stacks)

    def _total(self, chain: Sequence[int], stacks: dict[int, Any]) -> Node:
        """What a chain of sums comes to behind the loop: all turns' terms are scattered at once."""
        _, array, *_ = self.s.sums[chain[0]]
        total: Node = self.now(self.nodes[self.s.start + chain[0]].inputs[array])
        for at in chain:
            stack, (index, axis) = stacks[at]
            self.steps.append(stack)
            if axis:
                flat = np.broadcast_to(np.zeros((), stack.dtype), stack.shape)
                moved = np.moveaxis(flat, 0, axis)
                stack = Recorded(np.moveaxis, "moveaxis", (Ref(0), 0, axis), {}, (stack,), moved)
                self.steps.append(stack)
            zero = np.zeros((), stack.dtype)
            settings = {"index": index, "shape": total.shape}
            spread = Recorded(
                scatter.primitive.forward, "scatter", (Ref(0),), settings, (stack,), zero
            )
            added = Recorded(operator.add, "add", (Ref(0), Ref(1)), {}, (total, spread), zero)
            spread.shape = added.shape = total.shape
            self.steps += [spread, added]
            total = added
        return total


def _variable(like: Node) -> Node:
    """An input of a loop's body."""
    node = Recorded(None, "input", (), {}, (), np.zeros(like.shape, like.dtype))
    node.weak = like.weak
    return node


def index_of_turns(indices: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, int] | None:
    """One index for all turns, each of which reads x[index] of one x of this shape; and the axis of what it gives that goes over turns.

    Numbers in even steps become a slice, others an array, and arrays one that stacks them. None where the indices differ in other ways.
    """
    parts = [index if type(index) is tuple else (index,) for index in indices]
    if len({len(index) for index in parts}) != 1:
        return None
    found: list[Any] = []
    for column in zip(*parts, strict=True):
        first = column[0]
        if all(map(_is_int, column)):
            found.append(np.array(column, np.intp))
        elif type(first) is np.ndarray and first.dtype.kind in "iu":
            if any(
                type(x) is not np.ndarray or (x.shape, x.dtype) != (first.shape, first.dtype)
                for x in column
            ):
                return None
            found.append(np.stack(column))
        elif first is None or first is Ellipsis or type(first) is slice:
            if any(type(x) is not type(first) or x != first for x in column):
                return None
            found.append(first)
        else:
            return None
    arrays = [x for x in found if type(x) is np.ndarray]
    if not arrays:
        return None
    places, rank = arrays[0], max(x.ndim for x in arrays)
    found = [
        x.reshape(len(x), *(1,) * (rank - x.ndim), *x.shape[1:]) if type(x) is np.ndarray else x
        for x in found
    ]  # those of one turn are broadcast together
    if len(found) == 1 and places.ndim == 1:
        step = int(places[1] - places[0])
        if step and (np.diff(places) == step).all() and ((places < 0) == (places[0] < 0)).all():
            begin = int(places[0]) % shape[0]
            return _along(begin, step, len(places)), 0
    # The axis that is longer where there is one turn more.
    probe = np.broadcast_to(np.zeros((), np.int8), shape)
    index = tuple(found)
    try:
        few, more = (
            probe[
                tuple(
                    np.zeros_like(x[:1]).repeat(n, axis=0) if type(x) is np.ndarray else x
                    for x in index
                )
            ].shape
            for n in (1, 2)
        )
        probe[index]
    except IndexError:
        return None
    axis = next(i for i, (n, m) in enumerate(zip(few, more, strict=True)) if n != m)
    return index, axis


def _along(a: int, b: int, turns: int) -> slice:
    """The slice a, a + b, ... of so many entries."""
    stop = a + b * turns
    return slice(a, stop if stop >= 0 else None, b)


def _picked(source: Node, index: Any, axis: int, shape: tuple[int, ...], steps: list[Any]) -> Node:
    """What all turns read of an array, row by row, as calls before the loop."""
    like = np.broadcast_to(np.zeros((), source.dtype), shape)
    value = np.moveaxis(like, 0, axis)
    picked = Recorded(operator.getitem, "getitem", (Ref(0), index), {}, (source,), value)
    steps.append(picked)
    if axis:
        picked = Recorded(np.moveaxis, "moveaxis", (Ref(0), axis, 0), {}, (picked,), like)
        steps.append(picked)
    return picked


def _is_part(node: Node) -> bool:
    """Whether a call picks one of several results."""
    return type(node.function) is operator.itemgetter and node.name.endswith("]")


def _together(graph: Graph) -> Graph:
    """The graph with the parts of each loop's results behind it, where no end of a turn can come between; the same if they are there."""
    parts: dict[Node, list[Node]] = {}
    far, call = False, None
    for node in graph.nodes:
        if isinstance(node.function, LoopCall):
            call, parts[node] = node, []
        elif _is_part(node) and node.inputs[0] in parts:
            parts[node.inputs[0]].append(node)
            far |= node.inputs[0] is not call
        else:
            call = None
    if not far:
        return graph
    moved = {part for some in parts.values() for part in some}
    steps: list[Any] = []
    for step in graph.steps:
        if isinstance(step, Guard):
            steps.append(step)
        elif step not in moved:
            steps += [step, *parts.get(step, ())]
    return Graph(graph.inputs, steps, graph.outputs)


def _place(node: Node) -> int:
    """Where a call stands; below 0 for an argument, and for what rolling has made."""
    return getattr(node, "place", -1)


def part_of(call: Node, i: int, shape: tuple[int, ...], dtype: np.dtype) -> Node:
    """One of a loop's results."""
    part = Recorded(
        operator.itemgetter(i), f"loop[{i}]", (Ref(0),), {}, (call,), np.zeros((), dtype)
    )
    part.shape = shape
    return part


class _Stretch:
    """A repeating stretch, with the rule of each operand."""

    def __init__(self, start: int, period: int, turns: int) -> None:
        """Calls from `start` on that repeat `turns` times with a period."""
        self.start = start
        self.period = period
        self.turns = turns
        self.rules: dict[tuple[int, int], Any] = {}
        self.entries: dict[int, tuple[Node, Any, int]] = {}
        self.numbers: dict[tuple[int, int], np.ndarray] = {}
        self.sums: dict[int, tuple[int, int, Any]] = {}
        """Of an addition into an array: (offset of what is added, which operand is the array, where all turns spread it)."""
        self.scattered: dict[int, tuple[Any, int]] = {}
        """Of what is spread to entries of an array: the index of all turns, and the axis over turns of what stands there."""
        self.chains: list[list[int]] = []
        """Offsets of the additions into one array, in order."""
        self.arrays: dict[int, Node] = {}
        self.last: dict[int, Node] = {}

    @property
    def stop(self) -> int:
        return self.start + self.period * self.turns


class Spliced:
    """A function that stacks entries, of which those of a loop stand in one array already: `many` says which of its arguments those are."""

    def __init__(self, many: tuple[bool, ...]) -> None:
        self.many = many

    def __call__(self, *parts: np.ndarray) -> np.ndarray:
        columns = [
            x if many else np.asarray(x)[None] for x, many in zip(parts, self.many, strict=True)
        ]
        return np.concatenate(columns)


class Constant:
    """A function of nothing that returns an array."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __call__(self) -> np.ndarray:
        return self.value


def _zeros(like: Node) -> Constant:
    return Constant(np.zeros(like.shape, like.dtype))
