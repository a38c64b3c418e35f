"""The reference executor: the tape walked in reverse (or forward) with NumPy, no JIT, always there.

`sweep` carries cotangents from an entry down to the leaves; `push` carries tangents from the leaves up. Both apply
the declared rules to raw arrays, or, where the walk itself is to be recorded, to Tensors: a rule written with NumPy's
names does not notice.

Invariant: a cotangent has the shape and dtype of the value it belongs to. Complex numbers follow PyTorch:
the cotangent of a real-valued L at z = a + ib is dL/da + i dL/db, so a VJP multiplies by the conjugate partial.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import storage
from .errors import GraphError
from .primitive import OPS, Primitive, apply
from .tape import FREED, IN0, IN1, KW, OP, OUT, SLOT, STRIDE, X, Y, Leaf, Slot
from .tensor import Tensor, new

Code = list[Any]
Watch = dict[Slot, Callable[[Any], Any]]
Targets = "set[Slot | Leaf] | None"

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


def sweep(
    code: Code,
    start: int,
    pending: dict[Slot, Any],
    leaves: dict[Leaf, Any],
    watch: Watch,
    targets: set[Any] | None,
    record: bool = False,
) -> list[int]:
    """Carry `pending` (slot -> cotangent) from entry `start` down; leaf cotangents are added to `leaves`.

    Returns the positions visited. Slots of other tapes stay in `pending`. `watch[slot](g)` sees, and may replace, a
    complete cotangent. With `targets`, only entries from which one can be reached are executed. With `record`, cotangents
    are Tensors and the rules are recorded.
    """
    needed = None if targets is None else _reaching(code, start, targets)
    latest = storage.latest_overwrite()
    visited = []
    for k in range(start * STRIDE, -1, -STRIDE):
        if not pending:
            break
        slot = code[k + SLOT]
        g = pending.pop(slot, None)
        if g is None:
            continue
        if slot in watch:
            g = watch[slot](g)
        if needed is not None and slot not in needed:
            continue
        visited.append(k // STRIDE)
        if slot <= latest:
            check_overwritten(code, k)
        for node, cotangent in pull(code, k // STRIDE, g, record):
            if type(node) is Leaf:
                if needed is None or node in targets:  # type: ignore[operator]
                    leaves[node] = leaves[node] + cotangent if node in leaves else cotangent
            elif needed is None or node in needed or node in watch or node in targets:  # type: ignore[operator]
                pending[node] = pending[node] + cotangent if node in pending else cotangent
    return visited


def _reaching(code: Code, start: int, targets: set[Any]) -> set[Slot]:
    """Slots of the entries from which a target can be reached by way of their operands."""
    needed: set[Slot] = set()
    for k in range(0, (start + 1) * STRIDE, STRIDE):
        for node in operands(code, k):
            if node in targets or node in needed:
                needed.add(code[k + SLOT])
                break
    return needed


def operands(code: Code, k: int) -> tuple[Any, ...]:
    """Nodes of an entry's operands (None for constants)."""
    in0 = code[k + IN0]
    if type(in0) is tuple:
        return in0
    return (in0, code[k + IN1])


def check_overwritten(code: Code, k: int) -> None:
    """Raise if a value that this entry's rule needs was changed in place since it was recorded."""
    op = OPS[code[k + OP]]
    if op.saves:
        names = set().union(*op.needs)
        columns = ((X, ("x", "xs", "z")), (Y, ("y",)), (OUT, ("out",)))
        values = [code[k + column] for column, wanted in columns if names.intersection(wanted)]
        storage.check(op.backward_name if isinstance(op.backward_name, str) else op.name, code[k + SLOT], values)


# ------------------------------------------------------------------------------------------------ one entry


def pull(code: Code, position: int, g: Any, record: bool = False) -> list[tuple[Any, Any]]:
    """VJP of one entry: (node, cotangent) for each tracked operand, in the operand's shape and dtype."""
    op_code, slot, in0, in1, x, y, out, kw = code[position * STRIDE : (position + 1) * STRIDE]
    if op_code == FREED:
        raise GraphError(SECOND_TIME)
    op = OPS[op_code]
    if type(in0) is tuple:
        nodes, raw = in0, x
    elif op.arity == 1:
        nodes, raw = (in0,), (x,)
    else:
        nodes, raw = (in0, in1), (x, y)
    values = raw
    if record:
        values = tuple(v if n is None else tracked(v, n) for n, v in zip(nodes, raw, strict=True))
        out = tracked(out, slot)
    if op.elementwise:
        cotangents = _pull_elementwise(op, nodes, values, out, g)
    elif op.variadic:
        wanted = tuple(node is not None for node in nodes)
        cotangents = op.rules[0](g, values, out, kw, wanted)
    else:
        x, y = values if len(values) == 2 else (values[0], None)
        cotangents = [
            None if node is None else rule(g, x, y, out, kw) for node, rule in zip(nodes, op.rules, strict=True)
        ]
    return [
        (node, fit(cotangent, value, op))
        for node, cotangent, value in zip(nodes, cotangents, raw, strict=True)
        if node is not None and cotangent is not None
    ]


def _pull_elementwise(op: Primitive, nodes: Any, values: Any, out: Any, g: Any) -> list[Any]:
    x, y, z = (*values, None, None)[:3]
    cotangents = []
    for node, partial in zip(nodes, op.partials, strict=True):
        if node is None:
            cotangents.append(None)
        elif partial.of is None:
            cotangents.append(scaled(g, partial.value))
        else:
            p = partial.of(x, y, z, out)
            cotangents.append(g * (np.conj(p) if _is_complex(p) else p))
    return cotangents


def scaled(g: Any, factor: Any) -> Any:
    """`factor * g` for a constant partial."""
    return g if factor == 1 else -g if factor == -1 else g * float(factor)


def _is_complex(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype.kind == "c" if dtype is not None else type(value) is complex


def fit(cotangent: Any, value: Any, op: Primitive) -> Any:
    """Bring a cotangent to its operand's shape (sums undo broadcasting) and dtype (a real operand takes the real part)."""
    shape = np.shape(value)
    if cotangent.shape != shape:
        cotangent = unbroadcast(cotangent, shape, op)
    dtype = value.dtype if hasattr(value, "dtype") else np.result_type(value)
    if cotangent.dtype != dtype:
        if cotangent.dtype.kind == "c" and dtype.kind != "c":
            cotangent = np.real(cotangent)
        if cotangent.dtype != dtype:
            cotangent = cotangent.astype(dtype)
    return cotangent


def unbroadcast(cotangent: Any, shape: tuple[int, ...], op: Primitive) -> Any:
    """Sum over the axes that broadcasting stretched or added; spread where the rule left axes out."""
    extra = cotangent.ndim - len(shape)
    if extra > 0:
        cotangent = np.sum(cotangent, axis=tuple(range(extra)))
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 and i < cotangent.ndim and cotangent.shape[i] != 1)
    if stretched and extra >= 0:
        cotangent = np.sum(cotangent, axis=stretched, keepdims=True)
    if cotangent.shape != shape:
        if op.elementwise:
            return np.broadcast_to(cotangent, shape)
        raise GraphError(
            f"the VJP of {op.name} returned a cotangent of shape {cotangent.shape} for an operand of shape {shape}: "
            "its rule must return the operand's shape."
        )
    return cotangent


def tracked(value: Any, node: Any) -> Tensor:
    """A Tensor over a value saved on the tape, connected to where it came from."""
    t = new(Tensor)
    t._data = value
    t._node = node
    return t


# ------------------------------------------------------------------------------------------------ forward


def push(code: Code, start: int, stop: int, tangents: dict[Any, Any], record: bool = False) -> None:
    """Carry tangents up the tape: `tangents` (node -> tangent) gains the tangent of each dependent entry.

    The JVP of an op comes from its declaration: the partials, the op itself where it is linear, a declared
    `jvp`, or else the VJP, transposed.
    """
    for k in range(start * STRIDE, stop * STRIDE, STRIDE):
        if any(node in tangents for node in operands(code, k) if node is not None):
            tangents[code[k + SLOT]] = _push_entry(code, k, tangents, record)


def _push_entry(code: Code, k: int, tangents: dict[Any, Any], record: bool) -> Any:
    op_code, slot, in0, in1, x, y, out, kw = code[k : k + STRIDE]
    if op_code == FREED:
        raise GraphError(SECOND_TIME)
    op = OPS[op_code]
    nodes, raw = (in0, x) if type(in0) is tuple else ((in0, in1)[: op.arity], (x, y)[: op.arity])
    values = raw
    like = out
    if record:
        values = tuple(v if n is None else tracked(v, n) for n, v in zip(nodes, raw, strict=True))
        out = tracked(out, slot)
    given = [None if node is None else tangents.get(node) for node in nodes]
    if op.elementwise:
        total = _push_elementwise(op, given, values, out)
    elif op.linear and op.variadic:
        parts = [np.zeros(np.shape(v), like.dtype) if t is None else t for t, v in zip(given, raw, strict=True)]
        total = apply(op, parts, kw)
    elif op.linear:
        total = None
        for i, t in enumerate(given):
            if t is not None:
                term = apply(op, (*values[:i], t, *values[i + 1 :]), kw)
                total = term if total is None else total + term
    elif op.jvp is not None:
        total = op.jvp(given, values, out, **dict(zip(op.settings, kw or (), strict=True)))
    else:
        total = _transposed(code, k, given, nodes, like, record)
    return fit(np.broadcast_to(total, like.shape) if np.shape(total) != like.shape else total, like, op)


def _push_elementwise(op: Primitive, given: list[Any], values: Any, out: Any) -> Any:
    x, y, z = (*values, None, None)[:3]
    total = None
    for t, partial in zip(given, op.partials, strict=True):
        if t is None:
            continue
        term = scaled(t, partial.value) if partial.of is None else t * partial.of(x, y, z, out)
        total = term if total is None else total + term
    return total


def _transposed(code: Code, k: int, given: list[Any], nodes: Any, like: Any, record: bool) -> Any:
    """J t from the VJP alone: u -> Jᵀu is linear, so its own VJP, applied to t, is J t."""
    from .executors import vjp_of

    entry = code[k : k + STRIDE]

    def transpose(u: Any) -> list[Any]:
        by_node: dict[Any, Any] = {}
        for node, cotangent in pull(entry, 0, u, record=True):
            by_node[node] = by_node[node] + cotangent if node in by_node else cotangent
        return [by_node[n] for n in by_node]

    wanted = list(dict.fromkeys(n for n in nodes if n is not None))
    by_given = {n: t for n, t in zip(nodes, given, strict=True) if n is not None}
    return vjp_of(transpose, np.zeros(like.shape, like.dtype), [by_given[n] for n in wanted], record)
