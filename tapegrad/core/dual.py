"""Dual tensors: values that carry a tangent through ordinary code, while a forward level is open.

A `DualTensor` is a Tensor with a tangent beside its value. It is a class of its own so that a generated op, which looks for
plain Tensors first, hands it to `primitive.apply` without a further question: programs without dual tensors pay nothing. There
`carry` gives the result its tangent, by the JVP that the op's declaration implies (`sweep.push_entry`); if the op was recorded, the
tangent is made of recorded operations too. So tangents exist in every grad mode, may be differentiated, and `requires_grad`
says what it always says.

For a walk down the tape (forward over reverse) the tangents of an entry's values are kept in `saved`, by the entry's slot,
until the level is left; a walk that meets them applies the rules to dual tensors.

Invariant: a tangent has the shape and dtype of its value, and belongs to one level; when that is left the tensor is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GradientLost, NotDifferentiable
from .mode import INFERENCE, Off
from .storage import as_array
from .tape import RECORDER, Leaf, Slot
from .tensor import Tensor, set_class, wrap

if TYPE_CHECKING:
    from .primitive import Primitive


class Level:
    """A forward level: open between `enter_dual_level` and `exit_dual_level`."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = True


LEVEL: ContextVar[Level | None] = ContextVar("tapegrad.level", default=None)
"""The level that is open in this thread or task."""

saved: dict[Slot, tuple[Level, tuple[Tensor | None, ...], Tensor]] = {}
"""By slot (a copy, which keeps no entry alive): the tangents of an entry's operands and of its result."""


class DualTensor(Tensor):
    """A tensor with a tangent; made by `forward_ad.make_dual`, and by ops on such."""

    __slots__ = ()

    def __repr__(self) -> str:
        tangent = tangent_of(self)
        text = super().__repr__()
        return text if tangent is None else f"{text[:-1]}, tangent={tangent!r})"

    def detach_(self) -> Tensor:
        """Cut this tensor off from the graph that made it, and from its tangent; returns it."""
        super().detach_()
        return without_tangent(self)

    def _refuse_to_leave(self, what: str) -> None:
        super()._refuse_to_leave(what)
        if tangent_of(self) is not None:
            raise GradientLost(
                f"{what} was asked of a dual tensor, but the plain result would lose its tangent without a word. Use NumPy's "
                "function on the tensor, or say that no derivative is wanted: t.detach() or t.item()."
            )


def tangent_of(value: Any) -> Tensor | None:
    """The tangent of a dual tensor whose level is open; None for anything else."""
    if type(value) is not DualTensor:
        return None
    held = value._get("dual")
    return held[1] if held is not None and held[0].open else None


def with_tangent(t: Tensor, level: Level, tangent: Tensor) -> Tensor:
    """The tensor `t` itself, from now on with this tangent."""
    if type(t) is not Tensor and type(t) is not DualTensor:
        raise NotDifferentiable(
            f"a {type(t).__name__} was to take over a tangent, by a write in place, but only plain tensors carry one. Write to a "
            "clone(), or detach() what is written.",
            name="in-place",
        )
    set_class(t, DualTensor)
    t._put("dual", (level, tangent))
    return t


def without_tangent(t: Tensor) -> Tensor:
    """The tensor `t` itself, from now on an ordinary one."""
    if type(t) is DualTensor:
        set_class(t, Tensor)
        t._pop("dual")
    return t


def like(source: Any, t: Any) -> Any:
    """`t`, with the tangent that `source` has, if any: both stand for one value."""
    if tangent_of(source) is not None:
        with_tangent(t, *source._get("dual"))
    return t


def holds_dual(value: Any) -> bool:
    """Whether a dual tensor of an open level stands anywhere in nested arguments."""
    if isinstance(value, Tensor):
        return tangent_of(value) is not None
    if isinstance(value, tuple | list):
        return any(map(holds_dual, value))
    return isinstance(value, dict) and any(map(holds_dual, value.values()))


def forget(level: Level) -> None:
    """Close a level: its tangents are gone."""
    level.open = False
    for slot in [slot for slot, kept in list(saved.items()) if kept[0] is level]:
        del saved[slot]


# ------------------------------------------------------------------------------------------------ through ops


def carry(
    op: Primitive, operands: Sequence[Any], raw: Sequence[Any], out: Any, kw: Any, t: Tensor
) -> None:
    """Give the result `t` of an op on dual tensors its tangent."""
    from . import sweep

    tangents = tuple(map(tangent_of, operands))
    level = next((o._get("dual")[0] for o, v in zip(operands, tangents, strict=True) if v is not None), None)  # fmt: skip
    mode = RECORDER.get()
    if level is None or out.dtype.kind not in "fc" or mode is INFERENCE:
        return
    recorded = t._node is not None
    nodes = _nodes(operands, tangents, raw, recorded)
    entry = sweep.entry_of(op, t._node, nodes, raw, out, kw)
    # A tracked tangent stays connected while ops are recorded, whatever the value is.
    tensors = recorded or not isinstance(mode, Off)
    given = [v if v is None or (tensors and (recorded or v._node is not None)) else v._value for v in tangents]  # fmt: skip
    with np.errstate(all="ignore"):
        tangent = sweep.push_entry(entry, 0, given, recorded)
    tangent = wrap(tangent)
    if recorded:
        saved[t._node + 0] = (level, tangents, tangent)
    with_tangent(t, level, tangent)


def _nodes(
    operands: Sequence[Any], tangents: Sequence[Any], raw: Sequence[Any], recorded: bool
) -> list[Any]:
    """A node for every operand that has a tangent: its own, if it has one and the result is recorded; else one of no meaning."""
    nodes: list[Any] = []
    for i, (operand, tangent) in enumerate(zip(operands, tangents, strict=True)):
        node = operand._node if recorded and isinstance(operand, Tensor) else None
        if node is None and tangent is not None:
            node = Leaf(raw[i], operand) if recorded else i + 1
        nodes.append(node)
    return nodes


def restored(slot: Slot, values: Sequence[Any], out: Any) -> tuple[tuple[Any, ...], Any]:
    """The values of an entry as dual tensors, as they were when it was recorded."""
    kept = saved.get(slot)
    if kept is None:
        return tuple(values), out
    level, tangents, tangent = kept
    duals = [
        v if t is None else with_tangent(v if isinstance(v, Tensor) else wrap(as_array(v)), level, t)
        for v, t in zip_longest(values, tangents[: len(values)])
    ]  # fmt: skip
    return tuple(duals), with_tangent(out, level, tangent)


__all__ = ["DualTensor", "carry", "holds_dual", "like", "restored", "tangent_of", "with_tangent"]
