"""Lowering: the source of a Numba function becomes a program tree.

Nested expressions become operations on named operands; helpers (other jitted functions, local functions) are written out where
they are called, so that one analysis sees the whole program: who shares memory with whom, what flows where. Jumps become
flags and nested branches: after an `if` that may leave, what follows stands in the other branch. Loops over arrays, `zip` and
`enumerate` become loops over positions.

A layer is built upon another: names and operations (building.py), expressions, calls, assignments, loops, statements. Only a call reaches
up, whose helper consists of statements.

Whatever has no meaning here raises `NotDifferentiable` with the place in the user's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import NotDifferentiable
from .. import spelled
from ..tree import Node, Op, Program, Where
from .expressions import BINARY
from .frames import (
    Custom,
    Frame,
    definition,
    is_parallel,
    is_plain,
    plain_parameters,
    python_function,
    refuse,
    scope_of,
)
from .statements import Lowering


class Unspelled(NotDifferentiable):
    """Functions of NumPy's stand in the way of a derivative that can be written out: lower once more with these `choices`."""

    def __init__(self, choices: dict[Any, Any], told: str) -> None:
        super().__init__(told)
        self.choices = choices


class Asked:
    """Calls of functions of NumPy's that are to be written out (see `spelled`)."""

    def __init__(self) -> None:
        self.choices: dict[Any, Any] = {}
        self.where = ""

    def add(self, op: Op) -> bool:
        """Ask for an operation, if there is a program for it."""
        program = None if op.called is None else spelled.chosen(op.rule or "", op.called.kinds)
        if op.called is None or program is None:
            return False
        self.choices[op.called.key] = program
        self.where = self.where or f"{op.where}\n  {op.rule} is written out."
        return True

    def request(self) -> Unspelled:
        return Unspelled(self.choices, self.where)

    def done(self) -> None:
        if self.choices:
            raise self.request()


def lower(
    function: Any,
    snapshots: int = 0,
    parallel: bool = False,
    choices: dict[Any, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Program:
    """The program tree of a Python function.

    With `fixed`, which gives some parameters the values that they have in every call, helpers that are not jitted are written out, too.

    `choices` are the programs that take the place of functions of NumPy's, by the key of the call. `snapshots` is given to every loop
    over a range that no other loop contains (see `runtime.checkpointed`). Loops over `prange` are parallel in a `parallel` function,
    and in helpers that are compiled so.
    """
    node, file, line = definition(function)
    lowering = Lowering()
    lowering.snapshots = snapshots
    lowering.parallel = parallel
    lowering.choices = choices or {}
    scope = scope_of(function)
    frame = Frame(node, scope, file, line, None)
    plain_parameters(node.args, frame)
    known = fixed or {}
    given = [a.arg for a in node.args.args if a.arg not in known]
    params = [lowering.fresh(p) for p in given]
    frame.names.update(zip(given, params, strict=True))
    name = lowering.fresh(function.__name__ if function.__name__.isidentifier() else "function")
    body: list[Node] = []
    if fixed is not None:
        lowering.helpers, lowering.frame, lowering.block = True, frame, body
        for parameter, value in known.items():
            if callable(value):
                frame.fixed[parameter] = value
            else:
                lowering.copy(node, lowering.constant(value, parameter), lowering.local(parameter))
    result = lowering.run(frame, body, "value")
    return Program(
        name=name,
        params=params,
        results=[result] if result else [],
        returns_tuple=False,
        body=body,
        scope=lowering.scope,
        where=Where(file, line + node.lineno, f"def {function.__name__}"),
        several=lowering.several,
        customs=lowering.customs,
        lists=lowering.lists,
    )


__all__ = [
    "BINARY", "Asked", "Custom", "Unspelled", "definition", "is_parallel", "is_plain", "lower", "python_function", "refuse",
]  # fmt: skip
