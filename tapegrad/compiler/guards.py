"""Guards as calls: what Python looked at while tracing, checked where it is computed.

To the passes that make machine code a guard is one more expression: how many elements differ from what was seen. That has to be 0,
as what is noted of indices out of bounds (`Arrays.checks`); where it is not, the entry asks Python, which tries other programs or traces
one. Among NumPy's calls it is a function of the value that raises.

Invariant: a program with these calls takes the same calls as one with the guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .graph import Graph, Guard, Node, Recorded, Ref

LEAST_COUNTED = 16
"""Truth values that were looked at at one place, at least, for one guard of all."""


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


def counted(steps: Sequence[Node | Guard]) -> list[Node | Guard] | None:
    """The steps of a graph with one guard for truth values that Python looked at again and again at one place of the code.

    It says that none is another one than it was, by a count that goes along with the calls: a loop of turns that each ask something
    carries it. None where no place has many such guards.
    """
    places: dict[tuple[str, str], list[tuple[int, Guard]]] = {}
    for k, step in enumerate(steps):
        if isinstance(step, Guard) and step.value.dtype == bool and not step.value.shape:
            places.setdefault((step.where, step.what), []).append((k, step))
    behind: dict[int, list[Node | Guard]] = {}
    first: list[Node | Guard] = []
    zero = np.float64(0)
    for every in places.values():
        if len(every) < LEAST_COUNTED:
            continue
        nothing = Recorded(np.array, "constant", (zero,), {}, (), zero)
        count = Recorded(np.add, "add", (Ref(0), 0.0), {}, (nothing,), zero)
        first += [nothing, count]
        for k, guard in every:
            told = (0.0, 1.0) if guard.value else (1.0, 0.0)
            other = Recorded(np.where, "where", (Ref(0), *told), {}, (guard.node,), zero)
            count = Recorded(np.add, "add", (Ref(0), Ref(1)), {}, (count, other), zero)
            behind[k] = [other, count]
        behind[k].append(replace(guard, node=count, value=np.array(0.0)))
    if not behind:
        return None
    return [*first, *(x for k, step in enumerate(steps) for x in behind.get(k, (step,)))]


__all__ = ["GuardFailed", "Holds", "as_calls", "counted", "guarded"]
