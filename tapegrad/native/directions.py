"""Tangents of a native function, and of its gradients, by the program form.

An `Along` is the program of a derivative along directions of some parameters: of the results (`order` 1: a Jacobian's product), of
the gradients (2: a Hessian's), or of these along a second direction (3). It is made of the function's statements by forward mode, in
the third case twice, and exists where they lie in the form. Calls that do not fit what it assumes of sizes go to overloading.

Data: one program for each pattern of equal lengths, as with gradients (`formed`); it carries `width` directions at once, of which the last
call of several may have some that are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..program.arrays import Outside
from ..program.derivative import gradient
from ..program.form import Buffer, Program
from ..program.grouping import grouped
from ..program.partials import Formless, differentiated_again
from ..program.scratch import apart
from ..program.tangents import tangent
from . import forming, settling
from .arguments import real_leaves
from .formed import InForm, Outputs, tried

WIDTH = 4
"""Directions that one run carries, where there are several."""


class Along(InForm):
    """Derivatives of a function along directions of some of its parameters; raises Outside."""

    def __init__(self, variant: Any, positions: tuple[int, ...], order: int, width: int) -> None:
        """The derivative of this order by the parameters at `positions`, for so many directions at once."""
        super().__init__(variant, positions)
        self.order, self.width = order, width
        self.mathematics = self._made(self.generic)

    def _tree(self) -> settling.Typed:
        return self.variant.plain  # type: ignore[no-any-return]

    def _made(self, found: forming.Formed) -> Program:
        """The program of tangents, of the results or of a derivative's; raises Outside where a formula has no form."""
        wanted = [found.given[w] for w in self.wanted]
        try:
            made = apart(grouped(found.program))
            outputs = made.outputs
            with differentiated_again():
                if self.order > 1:
                    made = gradient(made, wanted, outputs)
                    outputs = made.outputs[len(outputs) :]
                if self.order > 2:
                    made = tangent(made, wanted, outputs)
                    outputs = made.outputs
            return tangent(made, wanted, outputs, self.width)
        except Formless as why:
            raise Outside(str(why)) from why

    def _parted(self, outputs: Sequence[Buffer]) -> Outputs:
        return Outputs(outputs, [], False, False, outputs)

    def run(
        self, args: tuple[Any, ...], more: Sequence[Any], directions: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        """Tangents of each result or gradient, along a first axis, for `directions` of each wanted parameter; None where the arguments
        do not fit. `more` are the other inputs: cotangents of the results, and the first directions of a third derivative."""
        count, found = len(directions[0]), list[Sequence[Any]]()
        for start in range(0, count, self.width):
            along: list[Any] = []
            for k in range(start, start + self.width):
                along += self.inputs(args, [d[k] if k < count else 0.0 for d in directions])
            answer = self._called(args, [*more, *along])
            if answer is None:
                return None
            parts = answer[0]
            each = len(parts) // self.width
            found += (parts[k : k + each] for k in range(0, len(parts), each))
        return [np.stack(column) for column in zip(*found[:count], strict=True)]

    def inputs(self, args: tuple[Any, ...], direction: Sequence[Any]) -> list[Any]:
        """One direction as inputs of a program."""
        return [_direction(a, d) for a, d in zip(self._like(args), direction, strict=True)]

    def _like(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments that directions belong to."""
        leaves = dict(zip(self.typed.program.params, real_leaves(args), strict=True))
        return [leaves[w] for w in self.wanted]


def _direction(value: Any, along: Any) -> Any:
    """A direction as entries take it: of the value's shape and type, and contiguous."""
    if not isinstance(value, np.ndarray):
        return float(along)
    if np.shape(along) == value.shape:
        return np.ascontiguousarray(along, value.dtype)
    return np.full(value.shape, along, value.dtype)


def along(variant: Any, positions: tuple[int, ...], order: int, width: int) -> Along | str:
    """The derivative by the form, or why it has none. Raises Outside where the form is asked for."""
    if variant.owner.mode == "overload":
        return 'mode="overload" asks for overloading'
    return tried(variant, lambda: Along(variant, positions, order, width))
