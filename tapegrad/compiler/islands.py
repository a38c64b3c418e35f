"""Islands: the native parts of a graph that cannot be one native function, with the routines and loops among its calls.

A graph that calls NumPy, or whose arguments no entry takes apart, cannot be one native function. An *island* is everything between two
levels of NumPy's calls: expressions, routines and loops (nesting.py), compiled as one native part. A part without a routine or a loop is
left to the partition, because threads may share the partition's stages.

Invariant: the new graph computes the same outputs. Guards are calls to it (guards.py).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..llvm import jit
from .graph import Graph, Node, Recorded, Ref
from .guards import Holds, as_calls, guarded
from .native import Argument, Form, Native, Result
from .nesting import Module
from .pairs import Unlowered
from .partition import KNOWN, Partition
from .rolling import Constant, Spliced
from .routines import may_be, routine


def islands(graph: Graph, name: str) -> tuple[Graph, list[Native]]:
    """The graph with its islands as native parts, and these parts."""
    graph = as_calls(graph)
    able = _able(graph)
    if not any(_beyond_expressions(node) for node in graph.nodes if id(node) in able):
        return graph, []
    level = {id(x): -1 for x in graph.inputs}
    inside: dict[int, list[Node]] = {}
    between: dict[int, list[Node]] = {}
    for node in graph.nodes:
        mine = id(node) in able
        level[id(node)] = max(
            [0, *(level[id(x)] + (mine and id(x) not in able) for x in node.inputs)]
        )
        (inside if mine else between).setdefault(level[id(node)], []).append(node)
    builder = _Builder(graph)
    for k in range(max([*inside, *between, 0]) + 1):
        builder.island(inside.get(k, []), f"{name}.island{k}")
        builder.calls(between.get(k, []))
    return builder.graph(), builder.natives


def _beyond_expressions(node: Node) -> bool:
    """Whether it is a routine or a loop."""
    return hasattr(node.function, "loop") or _is_routine(node)


def _is_routine(node: Node) -> bool:
    if not may_be(node):
        return False
    try:
        routine(node)
    except Unlowered:
        return False
    return True


def _able(graph: Graph) -> set[int]:
    """The calls that can be part of an island."""
    partition = Partition(graph)
    found: set[int] = set()
    for node in graph.nodes:
        function = node.function
        if partition.native[id(node)]:
            able = True
        elif hasattr(function, "loop"):
            able = _whole(function.loop.body)
        elif node.name.startswith("loop["):
            able = id(node.inputs[0]) in found
        else:
            able = type(function) in (Constant, Spliced) or _is_routine(node)
        if able and all(x.dtype in KNOWN or id(x) in found for x in node.inputs):
            found.add(id(node))
    return found


def _whole(body: Graph) -> bool:
    """Whether a step is machine code from beginning to end."""
    body = as_calls(body)
    able = _able(body)
    return all(id(node) in able for node in body.nodes)


class _Builder:
    """The new graph, as far as it is made."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.steps: list[Any] = []
        self.natives: list[Native] = []
        self.replaced: dict[int, Node] = {}
        self.readers: dict[int, list[Node]] = {}
        for step in graph.nodes:
            for x in step.inputs:
                self.readers.setdefault(id(x), []).append(step)
        self.returned = {id(y) for y in graph.outputs if isinstance(y, Node)}

    def _now(self, x: Any) -> Any:
        return self.replaced.get(id(x), x) if isinstance(x, Node) else x

    def calls(self, nodes: Sequence[Node]) -> None:
        """Calls as they are."""
        for node in nodes:
            if any(id(x) in self.replaced for x in node.inputs):
                self.replaced[id(node)] = node.with_inputs([self._now(x) for x in node.inputs])
            self.steps.append(self._now(node))

    def island(self, nodes: Sequence[Node], name: str) -> None:
        """Calls as one native part, if that can be and has a routine or a loop."""
        made = self._native(nodes, name) if any(map(_beyond_expressions, nodes)) else None
        if made is None:
            self.calls(nodes)
            return
        native, sources, outputs = made
        self.natives.append(native)
        refs = tuple(Ref(i) for i in range(len(sources)))
        given = [self._now(x) for x in sources]
        whole = Recorded(native.entry, "native_island", refs, {}, given, 0, guarded(outputs))
        self.steps.append(whole)
        for i, node in enumerate(outputs):
            part = whole
            if len(outputs) > 1:
                pick = operator.itemgetter(i)
                part = Recorded(pick, f"native_island[{i}]", (Ref(0),), {}, (whole,), 0)
                self.steps.append(part)
            part.shape, part.dtype = node.shape, node.dtype
            self.replaced[id(node)] = part

    def _native(
        self, nodes: Sequence[Node], name: str
    ) -> tuple[Native, list[Node], list[Node]] | None:
        """One native program of these nodes, with the nodes it takes and gives; None where they cannot be lowered."""
        mine = {id(node) for node in nodes}
        sources = {id(x): x for node in nodes for x in node.inputs if id(x) not in mine}
        outputs = [node for node in nodes if self._wanted(node, mine)]
        if not outputs:
            return None
        timer = jit.Timer()
        module = Module()
        given = list(sources.values())
        try:
            whole = module.sequence(Graph(given, list(nodes), list(outputs)))
        except Unlowered:
            return None
        arguments = [Argument(x.dtype, x.shape, x.weak) for x in given]
        results = [Result(y.shape, y.dtype) for y in outputs]
        form = Form.flat(len(given), len(outputs))
        native = Native.of_pieces(module, whole, arguments, results, name, form, None, timer)
        return native, given, outputs

    def _wanted(self, node: Node, mine: set[int]) -> bool:
        """Whether something outside of the island needs the value."""
        if id(node) in self.returned or isinstance(node.function, Holds):
            return True
        return any(id(reader) not in mine for reader in self.readers.get(id(node), ()))

    def graph(self) -> Graph:
        """All of it."""
        outputs = [self._now(y) for y in self.old.outputs]
        return Graph(self.old.inputs, self.steps, outputs).pruned()


__all__ = ["islands"]
