"""A compiled function on tracked tensors: the whole call is one entry of the outer tape.

The entry's op evaluates the program; its VJP is a compiled function too, of the cotangent and the same inputs, traced from
`vjp` of the function the first time somebody walks back. If the walk is itself recorded, that one in turn becomes an entry, and so on
to any order. Several outputs are packed into one flat array, as the tape has one result an entry.

Invariant: the entry saves the inputs' values and nothing else; the pullback computes forward and backward together, of the function as it
was when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType
from typing import Any

from ..closures import Cells
from ..errors import GraphError
from ..packing import inexact, is_inexact, op_of_calls, packed, unpacked
from ..primitive import apply
from ..tensor import value_of, wrap
from ..transforms import _flatten, _unflatten, vjp
from .program import Call, _Static


class Entry:
    """One call that is differentiated: how its dynamic values make up the arguments, and what came out."""

    __slots__ = ("call", "compiled", "found", "program", "pulls")

    def __init__(self, compiled: Any, call: Call, pulls: dict[Any, Any]) -> None:
        self.compiled = compiled
        self.call = call
        self.pulls = pulls
        self.found: Any = None
        self.program: Any = None

    def evaluate(self, values: Sequence[Any]) -> Any:
        """Run the program; what is inexact among its outputs, packed."""
        call = Call(
            list(values), self.call.key, self.call.structure, self.call.kinds, self.call.tensors
        )
        result, self.program = self.compiled.programs.answered(call)
        leaves, structure = _flatten(result) if result is not None else ([], None)
        raw = [value_of(x) for x in leaves]
        self.found = (raw, structure)
        return packed(raw)

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Cotangents of the wanted inputs, None for others."""
        active = tuple(
            i
            for i, x in enumerate(xs)
            if wanted[i] and getattr(x, "dtype", None) is not None and x.dtype.kind in "fc"
        )
        key = (self.call.key, active)
        pull = self.pulls.get(key)
        if pull is None:
            pull = self.pulls[key] = self.compiled.sibling(
                _pullback(self.compiled.f, self.call, active)
            )
        with self._as_it_was():
            found = dict(zip(active, pull(g, *xs), strict=True))
        return [found.get(i) for i in range(len(xs))]

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """What the function reads beside its arguments is what it was: the pullback runs it again."""
        around = self.program.around
        cells = Cells([(w.holder, w.value) for w in around if type(w.holder) is CellType])
        with cells.again():
            changed = self.program.outdated()
            if changed is not None:
                raise GraphError(
                    f"{self.compiled.programs.name}, a compiled function, was called on tracked tensors, and what it reads beside them has "
                    f"changed since ({changed.told()}), so its derivative would be another one. Pass it as an argument, or walk back "
                    "before it changes."
                )
            yield


def _pullback(f: Callable[..., Any], call: Call, active: tuple[int, ...]) -> Callable[..., Any]:
    """The function (g, *inputs) -> cotangents of the active inputs, to be compiled."""
    import optree

    def pullback(g: Any, *xs: Any) -> Any:
        def forward(*chosen: Any) -> Any:
            values = list(xs)
            for i, x in zip(active, chosen, strict=True):
                values[i] = x
            given = iter(values)
            leaves = [k.value if isinstance(k, _Static) else next(given) for k in call.kinds]
            args, kwargs = optree.tree_unflatten(call.structure, leaves)
            output = f(*args, **kwargs)
            return packed(_flatten(output)[0])

        return vjp(forward, *(xs[i] for i in active))[1](g)

    pullback.__name__ = f"pullback of {getattr(f, '__name__', 'f')}"
    return pullback


compiled_call = op_of_calls("compiled_call", "A call of a compiled function.")


def recorded(compiled: Any, call: Call, pulls: dict[Any, Any]) -> Any:
    """The result of a call with tracked tensors among its arguments, as an entry of the current tape."""
    entry = Entry(compiled, call, pulls)
    tensors = iter(call.tensors)
    operands: list[Any] = []
    values = iter(call.values)
    for kind in call.kinds:
        if not isinstance(kind, _Static):
            value = next(values)
            operands.append(next(tensors) if kind[0] == "tensor" else value)
    whole = apply(compiled_call.primitive, operands, (entry,))
    raw, structure = entry.found
    parts = inexact(raw)
    pieces = iter([whole] if len(parts) == 1 else unpacked(whole, parts))
    leaves = []
    for x in raw:
        leaves.append(next(pieces) if is_inexact(x) else wrap(x))
    return _unflatten(structure, leaves)
