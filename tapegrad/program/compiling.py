"""From the program of a function to the program that is written: grouping, derivative, lowering, passes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from .derivative import gradient
from .expressions import nodes
from .form import Buffer, Program, buffers, sites
from .grouping import grouped
from .lowering import lowered
from .residuals import extreme, spans
from .scratch import apart


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program for the writer, and whether a guarded form of it differs: it has products of cotangents and partials."""

    program: Program
    strong: bool


def differentiated(program: Program, wanted: Sequence[Buffer], keep: bool = True) -> Program:
    """Value, and cotangents of the wanted inputs, of a program of statements; each output has a seed among the inputs."""
    return gradient(apart(grouped(program)), wanted, program.outputs, keep)


def prepared(program: Program, without: Collection[str] = ()) -> Prepared:
    """The program as loops of stores, rewritten by all passes but those named `without`."""
    from .passes import optimised

    result = lowered(program)
    boxed(result, result.body)  # passes give variables of loops other names
    values = {s.store.value for s in sites(result.body) if s.write}
    strong = any(n.op in ("strong", "chosen") for n in nodes(values))
    result = optimised(result, without)
    boxed(result, result.body)
    return Prepared(result, strong)


def boxed(program: Program, body: Sequence[Any]) -> None:
    """Give buffers whose extents depend on variables of loops, as made or in `body`, the largest extents that they have there."""
    low, high = spans(program, body)
    for b in buffers(program):
        b.extents = tuple(extreme(n, high, low) for n in b.extents)
