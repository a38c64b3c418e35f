"""Guards as calls: what Python looked at while tracing, checked where it is computed.

To the passes that make machine code a guard is one more expression: how many elements differ from what was seen. That has to be 0,
as what is noted of indices out of bounds (`Arrays.checks`); where it is not, the entry asks Python, which tries other programs or traces
one. Among NumPy's calls it is a function of the value that raises.

Invariant: a program with these calls takes the same calls as one with the guards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Graph, Guard, Node, Recorded, Ref


class GuardFailed(Exception):
    """A value that Python had looked at while tracing is another one in this call."""


@dataclass(frozen=True, slots=True)
class Holds:
    """The function of such a call: 0, or GuardFailed."""

    guard: Guard

    def __call__(self, value: Any) -> Any:
        if not self.guard.holds(value):
            raise GuardFailed
        return np.int64(0)


def guarded(nodes: Iterable[Node]) -> bool:
    """Whether there are such calls among some: a native part that makes them has to run, though nobody reads what it puts out."""
    return any(isinstance(node.function, Holds) for node in nodes)


def as_calls(graph: Graph) -> Graph:
    """The graph with a call in the place of each guard."""
    if not any(isinstance(step, Guard) for step in graph.steps):
        return graph
    steps: list[Node | Guard] = []
    for step in graph.steps:
        if isinstance(step, Guard):
            step = Recorded(Holds(step), "holds", (Ref(0),), {}, (step.node,), np.int64(0), True)
        steps.append(step)
    return Graph(graph.inputs, steps, graph.outputs)


__all__ = ["GuardFailed", "Holds", "as_calls", "guarded"]
