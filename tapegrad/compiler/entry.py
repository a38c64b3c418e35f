"""A compiled function on tracked tensors: the whole call is one entry of the outer tape.

The entry's op evaluates the program; its VJP is a compiled function too, of the cotangent and the same inputs, traced from
`vjp` of the function the first time somebody walks back. If the walk is itself recorded, that one in turn becomes an entry, and so on
to any order. Several outputs are packed into one flat array, as the tape has one result an entry.

Where calls of a scalar function were walked back before, the next computes its gradient at once with the value, by one program, and keeps
it for the walk: forward runs once, not twice. It is given away at the first walk; any other (a second one, one that is recorded, one to
other inputs) takes the pullback.

Invariant: the entry saves the inputs' values, and at most their gradients; the pullback computes forward and backward together, of the
function as it was when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType
from typing import Any

import numpy as np

from ..core.closures import Cells
from ..core.handlers import hand_on
from ..core.packing import inexact, is_inexact, op_of_calls, packed, unpacked
from ..core.primitive import apply, strong
from ..core.tensor import value_of, wrap
from ..errors import GraphError
from ..face.adoption import adopted
from ..transforms.derivatives import _flatten, _unflatten, vjp
from .program import Call, _Static, taken_apart

UNUSED = 3
"""After this many unused gradients in a row, the value is computed without the gradient."""


class Entry:
    """One call that is differentiated: how its dynamic values make up the arguments, and what came out."""

    __slots__ = ("ahead", "call", "compiled", "found", "program", "pulls")

    def __init__(self, compiled: Any, call: Call, pulls: dict[Any, Any]) -> None:
        self.compiled = compiled
        self.call = call
        self.pulls = pulls
        self.found: Any = None
        self.program: Any = None
        self.ahead: Any = None
        """(active inputs, their gradients), where they were computed with the value."""

    def evaluate(self, values: Sequence[Any]) -> Any:
        """Run the program and pack its float and complex outputs."""
        learned = self.pulls.get(self.call.key)
        if learned is not None and learned.unused < UNUSED:
            try:
                return self._with_gradient(values, learned)
            except Exception as error:
                hand_on(error)
                learned.unused = UNUSED  # another branch may have no derivative; an error of the function itself is raised again below
        call = Call(
            list(values), self.call.key, self.call.structure, self.call.kinds, self.call.tensors
        )
        result, self.program = self.compiled.programs.answered(call)
        return self._kept(result)

    def _kept(self, result: Any) -> Any:
        leaves, structure = _flatten(result) if result is not None else ([], None)
        raw = [value_of(x) for x in leaves]
        self.found = (raw, structure)
        return packed(raw)

    def _with_gradient(self, values: Sequence[Any], learned: _Learned) -> Any:
        """Value and gradient by one program."""
        programs = learned.both.programs
        only = programs.only()
        result, gradients = learned.both(*values)
        if only is None or programs.only() is not only:  # needed to know which program has answered
            call = taken_apart(tuple(values), {}, frozenset())
            (result, gradients), only = programs.answered(call)
        self.program = only
        value = self._kept(result)
        learned.unused += 1
        self.ahead = (learned.active, gradients)
        return value

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Cotangents of the wanted inputs; None for the other inputs."""
        active = tuple(
            i
            for i, x in enumerate(xs)
            if wanted[i] and getattr(x, "dtype", None) is not None and x.dtype.kind in "fc"
        )
        plain = type(g) in (np.float64, np.float32) or (type(g) is np.ndarray and not g.shape)
        if plain and self.ahead is not None and self.ahead[0] == active:
            gradients, self.ahead = self.ahead[1], None
            self.pulls[self.call.key].unused = 0
            scaled = gradients if g == 1 else [strong(g, x) for x in gradients]
            found = dict(zip(active, scaled, strict=True))
            return [found.get(i) for i in range(len(xs))]
        key = (self.call.key, active)
        pull = self.pulls.get(key)
        if pull is None:
            pull = self.pulls[key] = self.compiled.sibling(
                _pullback(self.compiled.f, self.call, active)
            )
        with self._as_it_was():
            found = dict(zip(active, pull(g, *xs), strict=True))
        if plain and g.dtype.kind == "f" and packed(self.found[0]).ndim == 0:
            self._learn(active)
        return [found.get(i) for i in range(len(xs))]

    def _learn(self, active: tuple[int, ...]) -> None:
        """The next call of this kind computes these gradients with its value."""
        known = self.pulls.get(self.call.key)
        if known is None or known.active != active:
            both = self.compiled.sibling(_value_and_gradient(self.compiled.f, self.call, active))
            self.pulls[self.call.key] = _Learned(active, both)
        else:
            known.unused = 0

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Context with the values that the function read in the call; GraphError if one of them has changed: the pullback runs it again."""
        around = self.program.around
        cells = Cells([(w.holder, w.value) for w in around if type(w.holder) is CellType])
        with cells.again():
            changed = self.program.outdated()
            if changed is not None:
                raise GraphError(
                    f"{self.compiled.programs.name}, a compiled function, was called on tracked tensors, and what it reads beside them has "
                    f"changed since ({changed.told()}), so its derivative would be another one. Pass it as an argument, or walk back "
                    "before it changes.",
                    name="changed-since",
                )
            yield


class _Learned:
    """The inputs that a walk asked gradients for; `both` computes these gradients with the value."""

    __slots__ = ("active", "both", "unused")

    def __init__(self, active: tuple[int, ...], both: Any) -> None:
        self.active = active
        self.both = both
        self.unused = 0


def _of_active(
    f: Callable[..., Any], call: Call, active: tuple[int, ...], xs: Sequence[Any], kept: list[Any]
) -> Callable[..., Any]:
    """The function's outputs, packed, as a function of its active inputs alone; `kept` gets the outputs as they are."""
    import optree

    def forward(*chosen: Any) -> Any:
        values = list(xs)
        for i, x in zip(active, chosen, strict=True):
            values[i] = x
        given = iter(values)
        leaves = [k.value if isinstance(k, _Static) else next(given) for k in call.kinds]
        args, kwargs = optree.tree_unflatten(call.structure, leaves)
        output = adopted(f)(*args, **kwargs)
        kept.append(output)
        return packed(_flatten(output)[0])

    return forward


def _pullback(f: Callable[..., Any], call: Call, active: tuple[int, ...]) -> Callable[..., Any]:
    """The function (g, *inputs) -> cotangents of the active inputs, to be compiled."""

    def pullback(g: Any, *xs: Any) -> Any:
        return vjp(
            _of_active(f, call, active, xs, []), *(xs[i] for i in active), allow_unused=True
        )[1](g)

    pullback.__name__ = f"pullback of {getattr(f, '__name__', 'f')}"
    return pullback


def _value_and_gradient(
    f: Callable[..., Any], call: Call, active: tuple[int, ...]
) -> Callable[..., Any]:
    """The function (*inputs) -> (output, gradients by the active inputs), to be compiled."""

    def both(*xs: Any) -> Any:
        outputs: list[Any] = []
        value, pull = vjp(
            _of_active(f, call, active, xs, outputs), *(xs[i] for i in active), allow_unused=True
        )
        gradients = pull(np.ones((), value.dtype)[()])
        leaves, structure = _flatten(outputs[0])
        plain = [value_of(x) for x in leaves]
        return _unflatten(structure, plain), list(gradients)

    both.__name__ = f"value and gradient of {getattr(f, '__name__', 'f')}"
    return both


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
