"""Rolling: a stretch of calls that repeats becomes a loop, so that a Python loop of n steps costs the compiler one.

A traced loop leaves n copies of its calls, alike but for what they read. A *period* is found by comparing each window of calls with the
last place where the same window stood. Then every operand of every call must follow one of these rules, from turn to turn:

    local      a call of the same turn
    carried    the same call of the turn before (in the first turn: some value from outside)
    fixed      one value from outside
    indexed    entry a + b * turn of an array: the results of an earlier loop, turn by turn, x[i] of a fixed array, or numbers that change

and each constant must be one for all turns or become an indexed number. What holds for no rule stays unrolled.

Invariant: the new graph computes what the old one did, in the same order of additions (except where a turn adds to several places
of an array: all turns of one place come first).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..ops.indexing import scatter
from ..tape import BIG
from . import callout
from .graph import Graph, Guard, Node, Recorded, Ref
from .tracing import OpCall

WORTH = 600
"""Calls in a graph below which nothing is rolled: all of it is one native call then, of a microsecond, where a loop among NumPy calls takes
fifteen; with more calls compiling them one by one takes over a second."""

WINDOWS = (16, 64, 256, 1024)
LEAST_TURNS = 6
MOST_ALIKE = 4
"""Parts of a turn that may be alike in their calls, so that the distance at which calls come again is a part of the period."""
TRIMS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2), (2, 2))
"""How many turns are left out first and last: those often read something else, what stands before the loop, or nothing after it."""
WIDEST = 16
"""Operands of a call above which it is no part of a loop: it is rather what joins the results of all turns."""
LONGEST = 20_000
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
    """(a, b) of each indexed value: turn j reads entry a + b * j."""
    backward: bool = False
    """Whether the first turn makes the last of what is kept."""
    open: bool = False
    """Whether a call says how many turns there are, at most `turns`: a part of a `while`."""
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
        self.native: Any = None

    def __call__(self, *values: Any) -> Any:
        """The slower executor: the body as NumPy calls, turn by turn."""
        loop = self.loop
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
    if len(graph.steps) < WORTH or any(type(step) is Guard for step in graph.steps):
        return graph
    return _Roller(graph).run()


def _signature(node: Node, varying: list[Any]) -> Any:
    """What two calls have in common if they may be turns of one; numbers that may change from turn to turn go to `varying`."""
    indexing = node.name in ("getitem", "scatter")

    function: Any

    def key(value: Any) -> Any:
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
        if kind is np.ndarray:
            return (
                "array",
                value.shape,
                value.dtype.str,
                _bytes(value),
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
    function = node.function.op.code if isinstance(node.function, OpCall) else id(node.function)
    if node.name.endswith(
        "]"
    ):  # a part picked from a result: the getter is an object of its own each time
        function = node.name
    return (node.name, function, args, kwargs, node.shape, node.dtype, node.weak, len(node.inputs))


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
    found: set[int] = set()
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
            common = lengths[np.argsort(-counts)[:4]].tolist()
            found.update(g for g in common if 0 < g <= LONGEST)
    return found


def periods(signs: np.ndarray) -> list[tuple[int, int, int]]:
    """Stretches (start, period, turns) of signs that repeat, from left to right."""
    taken = np.zeros(len(signs), bool)
    found = []
    for period in sorted(_gaps(signs)):
        alike = np.concatenate([[False], signs[:-period] == signs[period:], [False]])
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            turns = (stop - start) // period + 1
            if turns >= LEAST_TURNS and not taken[start : start + turns * period].any():
                taken[start : start + turns * period] = True
                found.append((start, period, turns))
    return sorted(found)


class _Roller:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = nodes = list(graph.nodes)
        # What is no call, an argument, has a number below all others.
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
            if kind is not Recorded:  # operators on numbers, as most calls of a long program
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

    def run(self) -> Graph:
        for start, period, turns in periods(np.array(self.signs)):
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
        # Two halves of a turn can be alike (the rates of two species): then only a multiple of the period has rules.
        for m in range(1, MOST_ALIKE + 1):
            stretch = self._fitted(start, period * m, turns // m)
            if stretch is not None:
                yield stretch
                return
        if (
            period == 1
        ):  # Entries of one array after those of another (two stacked lists): a stretch for each array.
            changes = np.flatnonzero(np.diff(self.reads[start : start + turns, 0])) + 1
            for part in np.split(np.arange(start, start + turns), changes):
                stretch = self._fitted(int(part[0]), 1, len(part))
                if stretch is not None:
                    yield stretch

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
        for offset in range(s.period):
            first = self.nodes[s.start + offset]
            places = self.reads[s.start + offset : s.stop : s.period]
            for k, x in enumerate(first.inputs):
                rule = self._rule(s, offset, places[:, k], x)
                if rule is None:
                    return False
                s.rules[offset, k] = rule
            if not self.varying[s.start + offset]:
                continue
            columns = zip(*self.varying[s.start + offset : s.stop : s.period], strict=True)
            for k, column in enumerate(columns):
                numbers = np.array(column)
                if (numbers != numbers[0]).any() or (
                    np.signbit(numbers) != np.signbit(numbers[0])
                ).any():
                    if not self._varies(s, offset, k, column):
                        return False
        return self._summed(s) if s.scattered else True

    def _rule(self, s: _Stretch, offset: int, places: np.ndarray, initial: Node) -> Any:
        """The rule of an operand that stands at these places, turn by turn; `initial` is what the first turn reads."""
        second = int(places[1])
        turns = np.arange(s.turns)
        if (places == second).all() and not (s.start <= second < s.stop):
            return ("fixed", initial)
        if s.start <= second < s.stop:
            turn, at = divmod(second - s.start, s.period)
            if turn == 1 and at < offset:
                return ("local", at) if (places == s.start + turns * s.period + at).all() else None
            if turn == 0:
                if (places[1:] != s.start + turns[:-1] * s.period + at).any() or s.start <= places[
                    0
                ]:
                    return None
                x = self.nodes[second]
                same = (x.shape, x.dtype, x.weak) == (initial.shape, initial.dtype, initial.weak)
                return ("carried", at, initial) if same else None
            return None
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

    def _varies(self, s: _Stretch, offset: int, k: int, column: Sequence[Any]) -> bool:
        """Numbers that change: those in an index of a fixed array, or a Python float among an operation's operands."""
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
            return self._scattered(s, offset, column)
        position = [i for i, x in enumerate(node.args) if type(x) is float or type(x) is np.float64]
        if k >= len(position) or node.dtype not in (np.float64,) or node.kwargs:
            return False
        s.numbers[offset, position[k]] = np.array(column, float)
        return True

    def _scattered(self, s: _Stretch, offset: int, column: Sequence[Any]) -> bool:
        """Whether a call spreads its operand to x[i] with i in even steps; noted for `_summed`."""
        step = column[1] - column[0]
        even = all(c == column[0] + step * j for j, c in enumerate(column))
        index = self.nodes[s.start + offset].kwargs.get("index")
        if type(index) is not int or not step or not even or min(column) < 0:
            return False
        s.scattered[offset] = (column[0], step)
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
        for offset, (first, step) in s.scattered.items():
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
            s.sums[at] = (offset, 1 - k, first, step)
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

    def _rebuilt(self) -> Graph:
        outside: dict[
            int, set[int]
        ] = {}  # per stretch, offsets that are read from outside turn by turn
        final: dict[int, set[int]] = {}  # offsets whose last value is read
        alone = np.flatnonzero(np.array(self.loop_at) < 0).tolist()
        for x in (x for i in alone for x in self.nodes[i].inputs):
            self._needed(x, outside, final)
        for y in self.graph.outputs:
            if isinstance(y, Node):
                self._needed(y, outside, final)
        for s in self.stretches:
            for rule in s.rules.values():
                if rule[0] == "indexed":
                    outside.setdefault(rule[1], set()).add(rule[2])
                elif rule[0] == "fixed":
                    self._needed(rule[1], outside, final)
                elif rule[0] == "carried":
                    self._needed(rule[2], outside, final)
            for source, _, _ in s.entries.values():
                self._needed(source, outside, final)
        for number, s in enumerate(self.stretches):
            last = {chain[-1] for chain in s.chains}
            for at in s.sums:
                if at in outside.get(number, ()) or (
                    at in final.get(number, ()) and at not in last
                ):
                    return self.graph  # somebody wants a partial sum
                final.get(number, set()).discard(at)
        steps: list[Any] = []
        replaced: dict[int, Node] = {}

        def now(x: Node) -> Node:
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
            node = Recorded(
                operator.getitem,
                "getitem",
                (Ref(0), turn),
                {},
                (s.arrays[at],),
                np.zeros(x.shape, x.dtype),
            )
            node.weak = x.weak
            steps.append(node)
            replaced[id(x)] = node
            return node

        i = 0
        while i < len(self.nodes):
            number = self.loop_at[i]
            if number >= 0:
                s = self.stretches[number]
                self._loop(
                    s,
                    number,
                    sorted(outside.get(number, ())),
                    sorted(final.get(number, ())),
                    steps,
                    now,
                )
                i = s.stop
                continue
            node = self.nodes[i]
            joined = self._joined(node, now)
            if joined is not None:
                replaced[id(node)] = node = joined
            elif any(_place(x) >= 0 and now(x) is not x for x in node.inputs):
                node = node.with_inputs([now(x) for x in node.inputs])
                replaced[id(self.nodes[i])] = node
            steps.append(node)
            i += 1
        outputs = [now(y) if isinstance(y, Node) else y for y in self.graph.outputs]
        return Graph(self.graph.inputs, steps, outputs).pruned()

    def _joined(self, node: Node, now: Any) -> Node | None:
        """A call that stacks what a loop's turns gave, in their order: the loop's own array, and what stands before and after it."""
        axis = node.kwargs.get("axis", node.args[1] if len(node.args) > 1 else 0)
        if node.name != "stack" or axis != 0 or node.kwargs.keys() - {"axis"}:
            return None
        if len(node.inputs) != node.shape[0] or any(type(x) is not Ref for x in node.args[0]):
            return None
        if any(x.dtype != node.dtype for x in node.inputs):
            return None
        inputs = [node.inputs[x.index] for x in node.args[0]]
        places = [_place(x) for x in inputs]
        begin = next((k for k, i in enumerate(places) if i >= 0 and self.loop_at[i] >= 0), None)
        if begin is None:
            return None
        s = self.stretches[self.loop_at[places[begin]]]
        turn, at = divmod(places[begin] - s.start, s.period)
        end = begin + s.turns
        if (
            turn
            or at not in s.arrays
            or places[begin:end] != list(range(s.start + at, s.stop, s.period))
        ):
            return None
        parts = [*(now(x) for x in inputs[:begin]), s.arrays[at], *(now(x) for x in inputs[end:])]
        joined = Recorded(
            Spliced(begin), "spliced", tuple(Ref(k) for k in range(len(parts))), {}, parts, 0
        )
        joined.shape, joined.dtype = node.shape, node.dtype
        return joined

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

    def _loop(
        self,
        s: _Stretch,
        number: int,
        kept: list[int],
        final: list[int],
        steps: list[Any],
        now: Any,
    ) -> None:
        """Append the loop of a stretch, and note what its results are called."""
        carried: dict[tuple[int, int], Node] = {}  # (offset, initial value) -> the body's input
        fixed: dict[int, Node] = {}
        indexed: dict[Any, Node] = {}
        sources: dict[str, list[Node]] = {"carried": [], "fixed": [], "indexed": []}
        indices: list[tuple[int, int]] = []
        nexts: list[int] = []
        body = Graph()
        inside: dict[int, Node] = {}

        def variable(like: Node) -> Node:
            node = Recorded(None, "input", (), {}, (), np.zeros(like.shape, like.dtype))
            node.weak = like.weak
            return node

        def indexed_input(key: Any, like: Node, source: Node, a: int, b: int) -> Node:
            if key not in indexed:
                indexed[key] = variable(like)
                sources["indexed"].append(source)
                indices.append((a, b))
            return indexed[key]

        def operand(rule: Any, like: Node) -> Node:
            if rule[0] == "local":
                return inside[rule[1]]
            if rule[0] == "fixed":
                x = now(rule[1])
                if id(x) not in fixed:
                    fixed[id(x)] = variable(x)
                    sources["fixed"].append(x)
                return fixed[id(x)]
            if rule[0] == "carried":
                key = (rule[1], id(rule[2]))
                if key not in carried:
                    carried[key] = variable(rule[2])
                    sources["carried"].append(now(rule[2]))
                    nexts.append(rule[1])
                return carried[key]
            _, other, at, a, b = rule
            return indexed_input((other, at, a, b), like, self.stretches[other].arrays[at], a, b)

        sums: list[tuple[int, Any, int, int]] = []
        later = {offset: at for at, (offset, *_) in s.sums.items()}
        for offset in range(s.period):
            node = self.nodes[s.start + s.period + offset]
            if offset in s.sums:
                continue
            if offset in later:
                at = later[offset]
                _, _, first, step = s.sums[at]
                sums.append((at, operand(s.rules[offset, 0], node.inputs[0]), first, step))
                continue
            if offset in s.entries:
                source, index, axis = s.entries[offset]
                if type(index) is slice:
                    a, b = index.start, index.step
                    key: Any = ("entry", id(source), a, b)
                    inside[offset] = indexed_input(key, node, now(source), a, b)
                    continue
                picked = _picked(now(source), index, axis, (s.turns, *node.shape), steps)
                inside[offset] = indexed_input(("rows", offset), node, picked, 0, 1)
                continue
            inputs = [operand(s.rules[offset, k], x) for k, x in enumerate(node.inputs)]
            args = list(node.args)
            for (at, position), numbers in s.numbers.items():
                if at == offset:
                    constant = Recorded(Constant(numbers), "constant", (), {}, (), numbers)
                    steps.append(constant)
                    like = Recorded(None, "input", (), {}, (), node.args[position])
                    inputs.append(
                        indexed_input(("numbers", offset, position), like, constant, 0, 1)
                    )
                    args[position] = Ref(len(inputs) - 1)
            copy = node.with_inputs(inputs)
            copy.args = tuple(args)
            body.steps.append(copy)
            inside[offset] = copy
        # The last value of a call is carried too, from turn to turn: its initial value is of no account.
        for at in final:
            if at not in nexts:
                last = inside[at]
                start = Recorded(
                    _zeros(last), "constant", (), {}, (), np.zeros(last.shape, last.dtype)
                )
                steps.append(start)
                carried[at, -1] = variable(last)
                sources["carried"].append(start)
                nexts.append(at)
        body.inputs = [*carried.values(), *fixed.values(), *indexed.values()]
        body.outputs = [inside[at] for at in nexts] + [inside[at] for at in kept]
        body.outputs += [added for _, added, _, _ in sums]
        loop = Loop(s.turns, body, len(carried), len(fixed), indices)
        given = [*sources["carried"], *sources["fixed"], *sources["indexed"]]
        call = Recorded(
            LoopCall(loop), "loop", tuple(Ref(i) for i in range(len(given))), {}, given, 0
        )
        steps.append(call)
        for i, at in enumerate([*nexts, *kept]):
            node = inside[at]
            stacked = i >= len(nexts)
            shape = (s.turns, *node.shape) if stacked else node.shape
            part = _part(call, i, shape, node.dtype)
            part.weak = node.weak and not stacked
            steps.append(part)
            if stacked:
                s.arrays[at] = part
            else:
                s.last.setdefault(at, part)
        stacks = {
            at: (_part(call, len(nexts) + len(kept) + i, (s.turns, *x.shape), x.dtype), first, step)
            for i, (at, x, first, step) in enumerate(sums)
        }
        for chain in s.chains:
            _, array, *_ = s.sums[chain[0]]
            total = now(self.nodes[s.start + chain[0]].inputs[array])
            for at in chain:
                stack, first, step = stacks[at]
                zero = np.zeros((), stack.dtype)
                stop = first + step * s.turns
                where = slice(first, stop if stop >= 0 else None, step)
                settings = {"index": where, "shape": total.shape}
                spread = Recorded(
                    scatter.primitive.forward, "scatter", (Ref(0),), settings, (stack,), zero
                )
                added = Recorded(operator.add, "add", (Ref(0), Ref(1)), {}, (total, spread), zero)
                spread.shape = added.shape = total.shape
                steps += [stack, spread, added]
                total = added
            s.last[chain[-1]] = total


def _index(node: Node) -> Any:
    """What a getitem is given."""
    return node.kwargs.get("index", node.args[1] if len(node.args) > 1 else None)


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
        if all(type(x) is int or isinstance(x, np.integer) for x in column):
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
    if not arrays or (len(arrays) > 1 and any(x.ndim > 1 for x in arrays)):
        return None
    places = arrays[0]
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


def _place(node: Node) -> int:
    """Where a call stands; below 0 for an argument, and for what rolling has made."""
    return getattr(node, "place", -1)


def _part(call: Node, i: int, shape: tuple[int, ...], dtype: np.dtype) -> Node:
    """One of a loop's results."""
    part = Recorded(
        operator.itemgetter(i), f"loop[{i}]", (Ref(0),), {}, (call,), np.zeros((), dtype)
    )
    part.shape = shape
    return part


class _Stretch:
    """A repeating stretch, with the rule of each operand."""

    def __init__(self, start: int, period: int, turns: int) -> None:
        self.start = start
        self.period = period
        self.turns = turns
        self.rules: dict[tuple[int, int], Any] = {}
        self.entries: dict[int, tuple[Node, Any, int]] = {}
        self.numbers: dict[tuple[int, int], np.ndarray] = {}
        self.sums: dict[int, tuple[int, int, int, int]] = {}
        """Of an addition into an array: (offset of what is added, which operand is the array, first index, step)."""
        self.scattered: dict[int, tuple[int, int]] = {}
        """Of what is spread to one entry of an array: (first index, step)."""
        self.chains: list[list[int]] = []
        """Offsets of the additions into one array, in order."""
        self.arrays: dict[int, Node] = {}
        self.last: dict[int, Node] = {}

    @property
    def stop(self) -> int:
        return self.start + self.period * self.turns


class Spliced:
    """A function that stacks entries, of which those of a loop stand in one array already."""

    def __init__(self, begin: int) -> None:
        self.begin = begin

    def __call__(self, *parts: np.ndarray) -> np.ndarray:
        columns = [x if k == self.begin else np.asarray(x)[None] for k, x in enumerate(parts)]
        return np.concatenate(columns) if len(columns) > 1 else columns[0]


class Constant:
    """A function of nothing that returns an array."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __call__(self) -> np.ndarray:
        return self.value


def _zeros(like: Node) -> Constant:
    return Constant(np.zeros(like.shape, like.dtype))
