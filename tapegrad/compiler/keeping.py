"""Keeping: what a loop computes on its way, and the loop of its derivative needs again, is kept turn by turn where that is cheap.

The derivative of a pass (iteration.py) computes each turn anew from the carry that the turn was given. So the derivative runs the turn's
chain of operations twice, forward and back. In a turn of few numbers, each operation of a chain waits for the one before. A few more
numbers in each kept row save the forward chain. The kept values are operands, independent of cotangents, of operations that depend on
cotangents. A value that is one plain operation away from a kept value is computed again.

Values of several loops are compared by number. All loops with the same number of turns are numbered together: a value's number depends on
its operation and on the numbers of its operands, and row r of what a loop keeps has the number of the value that was computed for that
row. Two values of one number are equal in each turn, whichever way the loops run.

Invariant: the graph computes what it did, and no loop's rows grow by more than `MOST_BYTES` (of a `while`, by `MOST_OPEN` a turn).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .graph import Graph, Guard, Node, Recorded, Ref
from .rolling import Loop, _signature, part_of
from .tracing import _draws_nothing

MOST_BYTES = 1 << 24
"""Bytes of all rows that are kept more for one loop: with more, memory costs more than operations."""

MOST_OPEN = 128
"""Bytes of a turn that are kept more where nobody knows how many turns there will be."""

PLAIN = frozenset({"add", "subtract", "multiply", "negative", "copy", "reshape", "getitem"})
"""Operations that cost no more than reading what they make."""

NARROW = 64
"""Numbers in a value up to which what is computed from it waits for it; with more, other entries are computed meanwhile."""

WIDE_WORTH = 8
"""Plain operations on an entry of a wide value that cost less than to keep and read it."""

DEAR = 1000
"""An operation that is worth more than any row."""


def kept(graph: Graph) -> Graph:
    """The graph, whose loops of derivatives read what loops before them keep; the same graph where there are none."""
    loops = [n for n in graph.nodes if hasattr(n.function, "loop")]
    return _Keeper(graph).run() if loops else graph


class _Keeper:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Any] = []
        self.now: dict[Node, Node] = {}
        self.table: dict[Any, int] = {}
        self.numbers: dict[Node, int] = {}
        self.first: dict[tuple[Any, int], tuple[Recorded, Node]] = {}
        """Of a group and a number: the call of the loop that computes it first, and where in its body."""
        self.group: dict[Node, Any] = {}
        """Of a loop's call: loops of one group have as many turns, surely."""
        self.parts: dict[tuple[Node, Node], Node] = {}
        self.bodies: dict[int, Graph] = {}

    def run(self) -> Graph:
        """The new graph."""
        for step in self.graph.steps:
            if isinstance(step, Guard):
                self.steps.append(replace(step, node=self.now.get(step.node, step.node)))
                continue
            new: Node = step
            if any(x in self.now for x in step.inputs) or hasattr(step.function, "loop"):
                new = self.now[step] = step.with_inputs([self.now.get(x, x) for x in step.inputs])
            if hasattr(step.function, "loop"):
                self._loop(new)  # type: ignore[arg-type]
            self.steps.append(new)
        outputs = [self.now.get(y, y) if isinstance(y, Node) else y for y in self.graph.outputs]
        return Graph(self.graph.inputs, self.steps, outputs)

    # ------------------------------------------------------------------------------------ numbers

    def _number(self, key: Any) -> int:
        return self.table.setdefault(key, len(self.table))

    def _of_inputs(self, call: Recorded) -> None:
        """Number what a turn reads."""
        loop: Loop = call.function.loop
        given = call.inputs[1 if loop.open and loop.tested else 0 :]
        plain = loop.carried + loop.fixed
        for k, (inside, source) in enumerate(zip(loop.body.inputs, given, strict=True)):
            if k < loop.carried:
                key: Any = ("carried", call, k)
            elif k < plain:
                key = ("fixed", _source(source))
            else:
                at = (0, 1) if loop.open else _by_row(loop, *loop.indices[k - plain])
                row = self._kept_by(call, source) if at == (0, 1) else None
                if row is not None:
                    self.numbers[inside] = self.numbers[row]
                    continue
                key = ("row", self.group[call], _source(source), at)
            self.numbers[inside] = self._number(key)

    def _kept_by(self, call: Recorded, source: Node) -> Node | None:
        """What a loop of the same group computed for the rows of an array."""
        if not source.name.startswith("loop["):
            return None
        maker = source.inputs[0]
        i = int(source.name[5:-1])
        if self.group.get(maker) != self.group[call] or i < maker.function.loop.carried:
            return None
        node = maker.function.loop.body.outputs[i]
        return node if node in self.numbers else None

    def _numbered(self, node: Node) -> int:
        inputs = tuple(self.numbers[x] for x in node.inputs)
        if node.name == "copy" and len(inputs) == 1:
            x = node.inputs[0]
            if (x.shape, x.dtype, x.weak) == (node.shape, node.dtype, node.weak):
                return inputs[0]
        if type(node) is Recorded and not _draws_nothing(node.function):
            return self._number(node)
        varying: list[Any] = []
        return self._number((_signature(node, varying), repr(varying), inputs))

    # ------------------------------------------------------------------------------------ a loop

    def _loop(self, call: Recorded) -> None:
        """Number the values that a loop keeps, and let it keep each value once and only what is read."""
        loop: Loop = call.function.loop
        known = self.bodies.get(id(loop.body))
        if known is None:
            known = self.bodies[id(loop.body)] = kept(loop.body)
        if known is not loop.body:
            loop = replace(loop, body=known)
            call.function = type(call.function)(loop)
        self.group[call] = self._group_of(call, loop)
        self._of_inputs(call)
        fewer = self._read(call, loop)
        if fewer:
            self._rewritten(call, loop, fewer)
            self._of_inputs(call)
        for node in call.function.loop.body.nodes:
            number = self.numbers[node] = self._numbered(node)
            self.first.setdefault((self.group[call], number), (call, node))

    def _group_of(self, call: Recorded, loop: Loop) -> Any:
        if not loop.open:
            return loop.turns
        if loop.tested:
            return call
        maker = call.inputs[loop.carried + loop.fixed].inputs[0]  # of the rows that count its turns
        return self.group[maker]

    def _read(self, call: Recorded, loop: Loop) -> dict[Node, tuple[Recorded, Node]]:
        """Values of a turn to be read instead of being computed: which loop computes each, and where."""
        body = loop.body
        early = set(body.inputs[loop.carried :])  # what depends on nothing that is carried
        known: dict[Node, tuple[Recorded, Node]] = {}
        wanted: set[Node] = {y for y in body.outputs if isinstance(y, Node)}
        for node in body.nodes:
            if all(x in early for x in node.inputs):
                early.add(node)
                number = self.numbers[node] = self._numbered(node)
                made = self.first.get((self.group[call], number))
                if made and node.inputs and not hasattr(node.function, "loop"):
                    known[node] = made
                    continue
            else:
                self.numbers[node] = self._number(node)
            wanted.update(node.inputs)
        # What computing each value costs, from what is at hand.
        costs: dict[Node, int] = dict.fromkeys(body.inputs, 0)
        chosen: dict[Node, tuple[Recorded, Node]] = {}
        for node in body.nodes:
            cost = (
                sum(costs[x] for x in node.inputs) if all(x in costs for x in node.inputs) else DEAR
            )
            plain = node.name in PLAIN and not self._from_rows(node, loop)
            cost += 0 if not node.inputs else 1 if plain else DEAR
            costs[node] = min(cost, DEAR)
            if node in known and node in wanted:
                if cost > (WIDE_WORTH if math.prod(node.shape) > NARROW else 1):
                    if node.weak or node.dtype.kind not in "fcb":
                        continue
                    chosen[node] = known[node]
                costs[node] = 0
        size = sum(math.prod(n.shape) * n.dtype.itemsize for n in chosen)
        if size * (1 if loop.open else loop.turns) > (MOST_OPEN if loop.open else MOST_BYTES):
            return {}
        return chosen

    @staticmethod
    def _from_rows(node: Node, loop: Loop) -> bool:
        """Whether a call picks little of a large row: to keep that is less than to keep the row."""
        rows = loop.body.inputs[loop.carried + loop.fixed :]
        return node.name == "getitem" and any(
            x is node.inputs[0] and math.prod(x.shape) > NARROW * max(math.prod(node.shape), 1)
            for x in rows
        )

    def _rewritten(
        self, call: Recorded, loop: Loop, chosen: dict[Node, tuple[Recorded, Node]]
    ) -> None:
        """Let a loop read rows in the place of values that it computes."""
        now: dict[Node, Node] = {}
        sources: list[Node] = []
        for node, (maker, inside) in chosen.items():
            now[node] = Recorded(None, "input", (), {}, (), np.zeros((), node.dtype))
            now[node].shape = node.shape
            assert self.group[maker] == self.group[call], "rows of a loop of as many turns"
            sources.append(self._kept(maker, inside))
        steps: list[Node | Guard] = []
        for node in loop.body.nodes:
            if node in now:
                continue
            steps.append(node.renamed(now))
        outputs = [now.get(y, y) for y in loop.body.outputs]
        inputs = [*loop.body.inputs, *(now[n] for n in chosen)]
        body = Graph(inputs, steps, outputs).pruned()
        # Rows that nobody reads any more need not be kept.
        plain = loop.carried + loop.fixed
        read = {x for n in body.nodes for x in n.inputs} | set(outputs)
        rows = [k for k in range(plain, len(inputs)) if inputs[k] in read]
        body.inputs = inputs[:plain] + [inputs[k] for k in rows]
        at = _in_turn(loop)
        indices = [*loop.indices, *[at] * len(chosen)]
        first = 1 if loop.open and loop.tested else 0
        given = [*call.inputs, *sources]
        call.inputs = tuple(given[: first + plain] + [given[first + k] for k in rows])
        call.args = tuple(Ref(i) for i in range(len(call.inputs)))
        indices = [indices[k - plain] for k in rows]
        call.function = type(call.function)(replace(loop, body=body, indices=indices))

    def _kept(self, maker: Recorded, inside: Node) -> Node:
        """The rows of a value of an earlier loop."""
        if (maker, inside) not in self.parts:
            loop: Loop = maker.function.loop
            outputs = list(loop.body.outputs)
            i = len(outputs) - loop.tested
            outputs.insert(i, inside)
            body = Graph(loop.body.inputs, loop.body.steps, outputs)
            maker.function = type(maker.function)(replace(loop, body=body))
            shape = () if loop.open else (loop.turns, *inside.shape)
            dtype = np.dtype(object) if loop.open else inside.dtype
            part = self.parts[maker, inside] = part_of(maker, i, shape, dtype)
            self.steps.append(part)
        return self.parts[maker, inside]


def _by_row(loop: Loop, a: int, b: int) -> tuple[int, int]:
    """Which entry a turn reads, by the row that the turn makes instead of by its number."""
    return (a + b * (loop.turns - 1), -b) if loop.backward else (a, b)


def _in_turn(loop: Loop) -> tuple[int, int]:
    """The entries to read so that each turn reads the row that it would make."""
    return (loop.turns - 1, -1) if loop.backward else (0, 1)


def _source(node: Node, depth: int = 3) -> Any:
    """What a source is known by: itself; of a constant what it holds; of what is computed elsewhere again the calls before it."""
    if node.function is None or not depth or hasattr(node.function, "loop"):
        return node
    if not node.inputs:
        values = [x for x in (*node.args, getattr(node.function, "value", None)) if x is not None]
        if len(values) != 1 or not isinstance(values[0], np.ndarray):
            return node
        return values[0].dtype, values[0].shape, values[0].tobytes()
    if type(node) is Recorded and not _draws_nothing(node.function):
        return node
    varying: list[Any] = []
    sign = _signature(node, varying)
    return sign, repr(varying), *(_source(x, depth - 1) for x in node.inputs)


__all__: Sequence[str] = ["kept"]
