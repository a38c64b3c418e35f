"""The partition: which calls of a graph run as machine code, and in what order native parts and NumPy calls alternate.

Calls that have an expression (lowering.py) are gathered into *stages*: stage 0 is what can be computed from the arguments alone, then come
the NumPy calls that can run on that, then stage 1, and so on. Each stage becomes one native part (native.py), a single
node in the new graph with its outputs picked from it. A stage that only moves entries is left to NumPy, whose views cost nothing.

Invariant: the new graph computes the same outputs. Guards are calls to it (guards.py).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import callout
from .arrays import COMPLEX, DTYPES, SUMS, Arrays, Op
from .graph import Graph, Node, Recorded, Ref
from .guards import Holds, as_calls, guarded
from .lowering import expression
from .native import Argument, Form, Native
from .pairs import Pair, Unlowered, read, written
from .schedule import topological

KNOWN = (*DTYPES, *COMPLEX)
"""Dtypes that machine code reads and writes."""

FULL = 800
"""Calls in a stage; more go to the next one, since scheduling takes time with the square of their number."""


@dataclass(slots=True)
class Stage:
    """What one native part computes: expressions of nodes, over inputs that are other nodes."""

    arrays: Arrays = field(default_factory=Arrays)
    sources: list[Node] = field(default_factory=list)
    ops: dict[int, Op | Pair] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def stored(self, node: Node) -> Op:
        """The expression that writes a node's value."""
        return written(self.arrays, self.ops[id(node)])

    def read(self, node: Node) -> Op | Pair:
        """A node computed elsewhere, as an input."""
        op = self.ops.get(id(node))
        if op is None:
            op = read(self.arrays, len(self.sources), node.shape, node.dtype)
            self.sources.append(node)
            self.ops[id(node)] = op
        return op


class Partition:
    """Sorts the calls of a graph into stages."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.level: dict[int, int] = {id(node): -1 for node in graph.inputs}
        self.native: dict[int, bool] = {id(node): False for node in graph.inputs}
        self.stages: dict[int, Stage] = {}
        self.calls: dict[int, list[Node]] = {}
        for node in graph.nodes:
            self._place(node)

    def _place(self, node: Node) -> None:
        """Put a node into the first stage in which its operands are there and it has code, or among the calls of its level."""
        level = max((self.level[id(x)] + (not self.native[id(x)]) for x in node.inputs), default=0)
        if all(x.dtype in KNOWN for x in node.inputs):
            while level in self.stages and len(self.stages[level].nodes) >= FULL:
                level += 1
            stage = self.stages.get(level)
            if stage is None:
                stage = self.stages[level] = Stage()
            try:
                inputs = [self._available(x, stage, level) for x in node.inputs]
                op = expression(stage.arrays, node, inputs, [x.weak for x in node.inputs])
            except Unlowered:
                pass
            else:
                stage.ops[id(node)] = op
                stage.nodes.append(node)
                self.level[id(node)] = level
                self.native[id(node)] = True
                return
        before = (*node.inputs, *getattr(node.function, "after", ()))
        level = max((self.level[id(x)] for x in before), default=0)
        self.level[id(node)] = max(level, 0)
        self.native[id(node)] = False
        self.calls.setdefault(self.level[id(node)], []).append(node)

    def _available(self, node: Node, stage: Stage, level: int) -> Op | Pair:
        known = stage.ops.get(id(node))
        if known is not None:
            return known
        if self.native[id(node)] and self.level[id(node)] < level:
            constant = self.stages[self.level[id(node)]].ops[id(node)]
            if isinstance(constant, Op) and constant.kind == "const":
                return stage.arrays.const(constant.attr.value, constant.shape, constant.dtype)
        return stage.read(node)


def compiled(graph: Graph, name: str) -> tuple[Graph, list[Native]]:
    """The graph with native parts in the place of what they compute, and these parts."""
    graph = as_calls(graph)
    partition = Partition(graph)
    wanted = {id(y) for y in graph.outputs if isinstance(y, Node)}
    wanted |= {id(node) for node in graph.nodes if isinstance(node.function, Holds)}
    last = max([*partition.stages, *partition.calls, 0]) + 1
    # What a later stage or a NumPy call reads, a stage must put out. Those of the last stage are known first.
    steps: list[Any] = []
    natives: list[Native] = []
    loops: dict[Any, Any] = {}  # loops of one body need the code of its parts once
    parts: dict[int, tuple[Stage, list[Node]]] = {}
    calls: dict[int, list[Node]] = {}
    for level in reversed(range(last)):
        chosen = partition.calls.get(level, [])
        stage = partition.stages.get(level)
        outputs: list[Node] = []
        if stage is not None and stage.nodes:
            for node in chosen:
                wanted.update(id(x) for x in node.inputs)
            outputs = [node for node in stage.nodes if id(node) in wanted]
            if outputs and not _works(stage, outputs):
                chosen = _by_numpy(stage, outputs) + chosen
                outputs = []
            elif outputs:
                used = {
                    op.attr
                    for op in topological([stage.stored(n) for n in outputs] + stage.arrays.checks)
                    if op.kind == "input"
                }
                wanted.update(id(stage.sources[i]) for i in used)
                parts[level] = (stage, outputs)
        for node in chosen:
            wanted.update(id(x) for x in node.inputs)
        calls[level] = chosen
    replaced: dict[int, Node] = {}

    def now(node: Any) -> Any:
        return replaced.get(id(node), node) if isinstance(node, Node) else node

    for level in range(last):
        if level in parts:
            stage, outputs = parts[level]
            native, sources = _native(stage, outputs, f"{name}.{level}")
            natives.append(native)
            whole = Recorded(
                native.entry,
                f"native_{level}",
                tuple(Ref(i) for i in range(len(sources))),
                {},
                [now(x) for x in sources],
                0,
                guarded(outputs),
            )
            steps.append(whole)
            if len(outputs) == 1:
                whole.shape, whole.dtype = outputs[0].shape, outputs[0].dtype
                replaced[id(outputs[0])] = whole
            else:
                for i, node in enumerate(outputs):
                    part = Recorded(
                        operator.itemgetter(i), f"native_{level}[{i}]", (Ref(0),), {}, (whole,), 0
                    )
                    part.shape, part.dtype = node.shape, node.dtype
                    steps.append(part)
                    replaced[id(node)] = part
        for node in calls[level]:
            changed = node.with_inputs([now(x) for x in node.inputs])
            if hasattr(node.function, "loop"):
                natives += _repeated(changed, node.function, f"{name}.loop", loops)
            replaced[id(node)] = changed
            steps.append(changed)
    result = Graph(graph.inputs, steps, [now(y) for y in graph.outputs])
    return result.pruned(), natives


def _repeated(call: Recorded, function: Any, name: str, known: dict[Any, Any]) -> list[Native]:
    """The native parts of the body of a loop that is no machine code as a whole, so that Python repeats it."""
    body = function.loop.body
    natives: list[Native] = []
    if id(body) not in known:
        graph, natives = compiled(body, name)
        known[id(body)] = callout.written(graph, name)[0]
    call.function = type(function)(function.loop)
    call.function.run = known[id(body)]
    return natives


def _works(stage: Stage, outputs: Sequence[Node]) -> bool:
    """Whether there is something to compute, and not only entries to move."""
    return any(
        op.kind in ("elem", "gather", *SUMS)
        for op in topological([stage.stored(n) for n in outputs])
    )


def _by_numpy(stage: Stage, outputs: Sequence[Node]) -> list[Node]:
    """The calls of a stage that are needed for some of its nodes, in order."""
    mine = {id(n) for n in stage.nodes}
    needed = {id(n) for n in outputs}
    kept = []
    for node in reversed(stage.nodes):
        if id(node) in needed:
            kept.append(node)
            needed.update(id(x) for x in node.inputs if id(x) in mine)
    kept.reverse()
    return kept


def _native(stage: Stage, outputs: Sequence[Node], name: str) -> tuple[Native, list[Node]]:
    """The native part of a stage, and the nodes it reads."""
    return linked(stage, [stage.stored(n) for n in outputs], name)


def renumbered(stage: Stage, ops: Sequence[Op]) -> list[Node]:
    """The nodes that expressions read, which are from now on the inputs of just these numbers."""
    below = topological([*ops, *stage.arrays.checks])
    used = sorted({op.attr for op in below if op.kind == "input"})
    position = {k: i for i, k in enumerate(used)}
    for op in below:
        if op.kind == "input":
            op.attr = position[op.attr]
    return [stage.sources[k] for k in used]


def linked(stage: Stage, ops: Sequence[Op], name: str) -> tuple[Native, list[Node]]:
    """Expressions compiled, with only the inputs that they read."""
    sources = renumbered(stage, ops)
    arguments = [Argument(x.dtype, x.shape, x.weak) for x in sources]
    return Native(stage.arrays, arguments, ops, name), sources


def whole(graph: Graph, name: str, form: Form, slow: Any) -> Native | None:
    """The graph as one native function with an entry of the user's own form; None where something in it is a NumPy call."""
    if not graph.inputs:
        return None
    if not all(x.dtype in KNOWN for x in graph.inputs):
        return None
    graph = as_calls(graph)
    stage = Stage()
    for node in graph.inputs:
        stage.read(node)
    for node in graph.nodes:
        if any(id(x) not in stage.ops for x in node.inputs):
            return None
        try:
            inputs = [stage.ops[id(x)] for x in node.inputs]
            stage.ops[id(node)] = expression(
                stage.arrays, node, inputs, [x.weak for x in node.inputs]
            )
        except Unlowered:
            return None
    ops = []
    for y in graph.outputs:
        if isinstance(y, Node):
            ops.append(stage.stored(y))
        elif isinstance(y, np.ndarray | np.generic) and y.dtype in DTYPES:
            ops.append(stage.arrays.array(np.asarray(y)))
        else:
            return None
    if not ops:
        return None
    arguments = [Argument(x.dtype, x.shape, x.weak) for x in graph.inputs]
    return Native(stage.arrays, arguments, ops, name, form, slow)
