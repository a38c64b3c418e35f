"""The reference executor: the tape walked in reverse (or forward) with NumPy, no JIT, always there.

`sweep` carries cotangents from an entry down to the leaves; `push` carries tangents from the leaves up. Both apply
the declared rules to raw arrays, or, where the walk itself is to be recorded, to Tensors: a rule written with NumPy's
names does not notice.

Invariant: a cotangent has the shape and dtype of the value it belongs to. Complex numbers follow PyTorch:
the cotangent of a real-valued L at z = a + ib is dL/da + i dL/db, so a VJP multiplies by the conjugate partial.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphError
from . import dual, seams, storage
from .primitive import NAMES, OPS, Primitive, apply, strong
from .tape import BIG, FREED, IN0, IN1, KW, OP, OUT, SLOT, STRIDE, Leaf, Slot, X, Y
from .tensor import Tensor, new

Code = list[Any]
Watch = dict[Slot, Callable[[Any], Any]]
SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
GONE = (
    "A tensor was made by operations that are on no tape any more, so no derivative can pass through it: it was carried out of a "
    "transform such as grad(f), whose tape ends with it. Return it from f (has_aux=True), or detach() what you carry out."
)


GUARD: ContextVar[Callable[..., Any] | None] = ContextVar("tapegrad.guard", default=None)
"""What stands in for `pull` while anomaly mode is on."""

# A derivative at a pole or an edge is inf or nan, as the value beside it; the warning belongs to the value.
_quiet = np.errstate(all="ignore")


@_quiet
def sweep(
    code: Code,
    start: int,
    pending: dict[Slot, Any],
    leaves: dict[Leaf, Any],
    watch: Watch,
    targets: set[Any] | None,
    record: bool = False,
    since: Slot = 0,
) -> list[int]:
    """Carry `pending` (slot -> cotangent) from entry `start` down; leaf cotangents are added to `leaves`.

    Returns the positions visited. Slots of other tapes stay in `pending`. `watch[slot](g)` sees, and may replace, a
    complete cotangent. With `targets`, only entries from which one can be reached are executed. With `record`, cotangents
    are Tensors and the rules are recorded. `since`: the targets are reached from no slot before this one.
    """
    needed = None if targets is None else _reaching(code, start, pending, targets, since)
    visited: list[int] = []
    owned: set[Any] = set()
    pull_entry = GUARD.get() or pull
    # A profile looks on, and lets regions be pulled in place; other guards want to see whole cotangents.
    pull_region = _pull_region if pull_entry is pull else getattr(pull_entry, "region", None)

    def wanted(node: Any) -> bool:
        if needed is None:
            return True
        return node in targets or (type(node) is not Leaf and node in needed)  # type: ignore[operator]

    for k in range(start * STRIDE, -1, -STRIDE):
        if not pending:
            break
        slot = code[k + SLOT]
        g = pending.pop(slot, None)
        if g is None:
            continue
        mine = slot in owned
        if slot in watch and wanted(slot):
            g = watch[slot](g)
            mine = False
        if needed is not None and slot not in needed:
            continue
        visited.append(k // STRIDE)
        # Asked each time: hooks may write. A guard asks by itself, and tells where the entry was recorded.
        if slot <= storage.latest_overwrite() and pull_entry is pull:
            check_overwritten(code, k)
        if (
            OPS[code[k]].regional
            and not record
            and pull_region is not None
            and type(code[k + X]) is np.ndarray
            and code[k + X].ndim
            and not isinstance(g, storage.StandIn)
        ):
            pull_region(code, k, g, mine, pending, leaves, owned, wanted)
            continue
        for node, cotangent in pull_entry(code, k // STRIDE, g, record):
            if wanted(node):
                place: dict[Any, Any] = leaves if type(node) is Leaf else pending
                place[node] = place[node] + cotangent if node in place else cotangent
    return visited


# A read or a store of a region concerns a small part of a cotangent as big as the whole array. Done by `pull`, each would make an array of
# that size, and a loop over a buffer would take quadratic time. So they work in place, on the arrays that the walk
# itself made and that nobody else has seen: the nodes in `owned` have such an array.


def _own(node: Any, like: Any, pending: Any, leaves: Any, owned: set[Any]) -> np.ndarray:
    """The array in which a node's cotangent is summed, to be changed in place."""
    place = leaves if type(node) is Leaf else pending
    if node not in owned:
        g = place.get(node)
        place[node] = np.zeros(like.shape, like.dtype) if g is None else storage.duplicate(g)
        owned.add(node)
    return place[node]


def _pull_region(
    code: Code, k: int, g: Any, mine: bool, pending: Any, leaves: Any, owned: Any, wanted: Any
) -> None:
    """The reverse of a read from or a store into part of an array, which writes to the cotangent in place."""
    op = OPS[code[k]]
    in0, in1, x, y, out, kw = code[k + IN0 : k + STRIDE]
    if op.adds is not None:  # a read: its cotangent is added where it was read
        if wanted(in0):
            op.adds(_own(in0, x, pending, leaves, owned), g, *kw)
        return
    # A store: the region's cotangent goes to what was stored, the rest to what was there before.
    if in1 is not None and wanted(in1):
        part = storage.duplicate(fit(op.rules[1](g, x, y, out, kw), y, op))
        place = leaves if type(in1) is Leaf else pending
        place[in1] = place[in1] + part if in1 in place else part if part.ndim else part[()]
    if in0 is not None and wanted(in0):
        if not mine:
            g = storage.duplicate(g)
        op.clears(g, *kw)
        place = leaves if type(in0) is Leaf else pending
        place[in0] = place[in0] + g if in0 in place else g
        owned.add(in0)


def _reaching(
    code: Code, start: int, roots: Iterable[Slot], targets: set[Any], since: Slot
) -> set[Slot]:
    """Slots, among those the roots depend on, from which a target can be reached; those of other tapes may lead to one.

    No slot before `since` leads to a target.
    """
    unseen = set(roots)
    reached = []
    for k in range(start * STRIDE, -1, -STRIDE):
        if not unseen:
            break
        slot = code[k + SLOT]
        if slot in unseen and slot >= since:
            unseen.remove(slot)
            reached.append(k)
            for node in operands(code, k):
                if type(node) is int:
                    unseen.add(node)
    needed = {slot for slot in unseen if slot >= since}
    leading = needed | targets
    for k in reversed(reached):
        if not leading.isdisjoint(operands(code, k)):
            needed.add(code[k + SLOT])
            leading.add(code[k + SLOT])
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
        storage.check(
            op.backward_name if isinstance(op.backward_name, str) else op.name,
            code[k + SLOT],
            _needed(op, code, k),
        )


def overwritten(code: Code, position: int) -> bool:
    """Whether a value that some entry up to this one needs was changed in place since it was recorded."""
    latest = storage.latest_overwrite()
    for k in range(0, (position + 1) * STRIDE, STRIDE):
        if code[k + SLOT] > latest:
            return False
        op = OPS[code[k + OP]]
        slot = code[k + SLOT]
        # Most entries are as they were whatever they need, and what they need takes longer to say.
        if op.saves and storage.overwritten(slot, code[k + X : k + KW]) is not None:
            if storage.overwritten(slot, _needed(op, code, k)) is not None:
                return True
    return False


_COLUMNS = ((X, frozenset(("x", "xs"))), (Y, frozenset("y")), (OUT, frozenset(("out",))))


def _needed(op: Primitive, code: Code, k: int) -> list[Any]:
    """The values that an entry's rule needs, for the operands that are tracked."""
    nodes = operands(code, k)
    if len(op.needs) == 1:
        names: Any = op.needs[0] if any(node is not None for node in nodes) else ()
    else:
        found = zip(nodes, op.needs, strict=False)
        names = set().union(*(needed for node, needed in found if node is not None))
    if op.elementwise and type(code[k + X]) is tuple:  # of three operands
        kept = {**dict(zip(NAMES, code[k + X], strict=True)), "out": code[k + OUT]}
        return [kept[name] for name in names]
    return [code[k + column] for column, wanted in _COLUMNS if not wanted.isdisjoint(names)]


# ------------------------------------------------------------------------------------------------ one entry


def pull(code: Code, position: int, g: Any, record: bool = False) -> list[tuple[Any, Any]]:
    """VJP of one entry: (node, cotangent) for each tracked operand, in the operand's shape and dtype.

    To `record` it, its rule is given Tensors connected to where the values came from.
    """
    k = position * STRIDE
    op_code, slot, in0, in1, x, y, out, kw = code[k : k + STRIDE]
    if op_code == FREED:
        raise GraphError(SECOND_TIME, name="freed-graph")
    op = OPS[op_code]
    if type(in0) is tuple:
        values = x
        if record:
            values, out = connected(slot, in0, x, out)
        found = cotangents(op, values, out, kw, g, tuple(node is not None for node in in0))
        return [
            (node, fit(cotangent, value, op))
            for node, cotangent, value in zip(in0, found, x, strict=True)
            if node is not None and cotangent is not None
        ]
    u, v = x, y
    if record:
        (u, v), out = connected(slot, (in0, in1), (x, y), out)
    pairs = []
    if op.elementwise:
        if in0 is not None:
            pairs.append((in0, fit(_times_partial(g, op.partials[0], u, v, None, out), x, op)))
        if in1 is not None:
            pairs.append((in1, fit(_times_partial(g, op.partials[1], u, v, None, out), y, op)))
    else:
        if in0 is not None:
            pairs.append((in0, fit(op.rules[0](g, u, v, out, kw), x, op)))
        if in1 is not None:
            pairs.append((in1, fit(op.rules[1](g, u, v, out, kw), y, op)))
    return pairs


def cotangents(
    op: Primitive, values: Sequence[Any], out: Any, kw: Any, g: Any, wanted: tuple[bool, ...]
) -> Sequence[Any]:
    """What an op's declared rules say for each operand; anything, or None, for those not wanted."""
    if op.elementwise:
        x, y, z = (*values, None, None)[:3]
        return [
            _times_partial(g, partial, x, y, z, out) if want else None
            for want, partial in zip(wanted, op.partials, strict=True)
        ]
    if op.variadic:
        return op.rules[0](g, values, out, kw, wanted)
    x, y = (*values, None)[:2]
    return [
        rule(g, x, y, out, kw) if want else None
        for want, rule in zip(wanted, op.rules, strict=True)
    ]


_FLOAT64 = np.dtype(np.float64)
"""NumPy's one object for this dtype; arrays that came from elsewhere (pickles, other byte orders) may have another, equal to it."""


def _times_partial(g: Any, partial: Any, x: Any, y: Any, z: Any, out: Any) -> Any:
    """`g` times the conjugate of a partial: an elementwise op's VJP for one operand."""
    if partial.of is None:
        return scaled(g, partial.value)
    p = partial.of(x, y, z, out)
    dtype = getattr(p, "dtype", None)
    if dtype is not _FLOAT64 and (type(p) is complex if dtype is None else dtype.kind == "c"):
        p = np.conj(p)
    # Where a partial of 0 says that nothing flows, however infinite the cotangent, it is the partial that stays 0.
    return times(p, g) if partial.chooses else times(g, p)


def times(g: Any, p: Any) -> Any:
    """`strong(g, p)`, recorded where one of them is a Tensor."""
    if isinstance(g, Tensor) or isinstance(p, Tensor):
        return seams.strong_product(g, p)
    return strong(g, p)


def scaled(g: Any, factor: Any) -> Any:
    """`g` times the conjugate of a constant partial."""
    if type(factor) is complex:
        return g * factor.conjugate()
    if factor == 0:
        return np.zeros_like(g)
    if type(g) is np.ndarray and g.nbytes > BIG and not any(g.strides):
        # The cotangent of a sum: one number everywhere, as it stays.
        return np.broadcast_to(scaled(g[(0,) * g.ndim], factor), g.shape)
    return g if factor == 1 else -g if factor == -1 else g * float(factor)


def fit(cotangent: Any, value: Any, op: Primitive) -> Any:
    """Bring a cotangent to its operand's shape (sums undo broadcasting) and dtype (a real operand takes the real part)."""
    kind = type(cotangent)
    if kind is type(value) and (
        kind is np.float64
        or (
            kind is not np.ndarray
            and isinstance(cotangent, storage.StandIn)
            and cotangent.alike(value)
        )
    ):
        return cotangent
    if cotangent.shape != value.shape:
        cotangent = unbroadcast(cotangent, value.shape, op)
    dtype = value.dtype
    if cotangent.dtype is not dtype and cotangent.dtype != dtype:
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
    stretched = tuple(
        i for i, n in enumerate(shape) if n == 1 and i < cotangent.ndim and cotangent.shape[i] != 1
    )
    if stretched and extra >= 0:
        cotangent = np.sum(cotangent, axis=stretched, keepdims=True)
    if cotangent.shape != shape:
        if op.elementwise:
            return np.broadcast_to(cotangent, shape)
        raise GraphError(
            f"the VJP of {op.name} returned a cotangent of shape {cotangent.shape} for an operand of shape {shape}: "
            "its rule must return the operand's shape.",
            name="wrong-form",
        )
    return cotangent


def connected(
    slot: Slot, nodes: Iterable[Any], raw: Iterable[Any], out: Any
) -> tuple[tuple[Any, ...], Tensor]:
    """An entry's values as Tensors connected to where they came from, with their tangents if they have some."""
    values = tuple([v if n is None else tracked(v, n) for n, v in zip(nodes, raw, strict=True)])
    result = tracked(out, slot)
    return dual.restored(slot, values, result) if dual.saved else (values, result)


def tracked(value: Any, node: Any) -> Tensor:
    """A Tensor over a value saved on the tape, connected to where it came from."""
    t = new(Tensor)
    t._value = value
    t._node = node
    return t


# ------------------------------------------------------------------------------------------------ forward


@_quiet
def push(
    code: Code,
    start: int,
    stop: int,
    tangents: dict[Any, Any],
    record: bool = False,
    width: int | None = None,
    asked: Iterable[Any] | None = None,
) -> set[Slot]:
    """Carry tangents up the tape: `tangents` (node -> tangent) gains the tangent of each dependent entry.

    Returns the slots of entries that were freed, and of those that read them: what they depended on is forgotten, and with it their
    tangents.

    The JVP of an op comes from its declaration: the partials, the op itself where it is linear, a declared
    `jvp`, or else the VJP, transposed. With `width`, tangents have a first axis of that length: so many
    directions are carried at once, and where some are `asked` for, the others may be NaN instead of 0.
    """
    one = push_entry if width is None else _push_directions
    plain = width is not None and not record and not storage.tracing.get()
    if plain and set(map(type, tangents.values())) == {np.ndarray}:
        start = _push_simple(code, start, stop, tangents, asked)
    lost: set[Slot] = set()
    for k in range(start * STRIDE, stop * STRIDE, STRIDE):
        nodes = operands(code, k)
        # Who holds the slot keeps finalisers from dropping the entry between two directions.
        slot = code[k + SLOT]
        if code[k + OP] == FREED or (lost and not lost.isdisjoint(nodes)):
            lost.add(slot)
            continue
        given = [None if node is None else tangents.get(node) for node in nodes]
        if any(t is not None for t in given):
            if slot <= storage.latest_overwrite():
                check_overwritten(code, k)
            tangents[slot] = one(code, k, given, record)
    return lost


def _push_simple(
    code: Code, start: int, stop: int, tangents: dict[Any, Any], asked: Iterable[Any] | None
) -> int:
    """Carry directions through entries of one or two float64 operands, in few steps; returns the first entry that is none of those.

    A small model is all such entries, and takes its time in what stands between NumPy's calls. So products are plain ones at first.
    Only 0 times infinity or NaN differs from `strong`: the plain product is NaN there, and NaN goes on through everything linear. One
    look at the tangents that are asked for tells whether the entries have to be done again. Where other entries follow, these ask for
    all tangents.
    """
    given = dict(tangents)
    position = _push_by(operator.mul, code, start, stop, tangents)
    whole = position < stop or asked is None
    for t in tangents.values() if whole else map(tangents.get, asked or ()):
        if t is None:
            continue
        row = t.ravel()
        # A sum of squares is NaN if an entry is, and only then.
        if not (square := row.dot(row)) == square:
            tangents.clear()
            tangents.update(given)
            return _push_by(strong, code, start, stop, tangents)
    return position


_ALL, _NEW = (slice(None),), (None,)
"""Parts of indices that put new axes behind the first."""


def _push_by(
    product: Callable[[Any, Any], Any], code: Code, start: int, stop: int, tangents: dict[Any, Any]
) -> int:
    """Carry directions on with this product of tangents and partials, as far as entries are simple."""
    overwritten, get = storage.latest_overwrite(), tangents.get
    entries = zip(*[islice(code, start * STRIDE, stop * STRIDE)] * STRIDE, strict=True)
    for position, (op_code, slot, in0, in1, x, y, out, kw) in enumerate(entries, start):
        first, second = get(in0), get(in1)  # of None, a constant's node, there is none
        if first is None and second is None:
            if type(in0) is tuple or op_code == FREED:
                return position
            continue
        if op_code == FREED or slot <= overwritten or out.dtype is not _FLOAT64:
            return position
        op, ndim = OPS[op_code], out.ndim
        if op.elementwise:
            if first is not None:
                if first.ndim <= ndim:
                    first = first[_ALL + _NEW * (ndim + 1 - first.ndim)]
                along = op.partials[0].along
                total = first if along is None else along(first, x, y, out, product)
            if second is not None:
                if second.ndim <= ndim:
                    second = second[_ALL + _NEW * (ndim + 1 - second.ndim)]
                along = op.partials[1].along
                term = second if along is None else along(second, x, y, out, product)
                total = term if first is None else total + term
        elif op.linear:
            given, values = ((first,), x) if op.arity == 1 else ((first, second), (x, y))
            total = op.directions and op.directions(given, values, out, *(kw or ()))
        else:
            return position
        if total is None or total.dtype is not _FLOAT64:
            return position
        if total.shape[1:] != out.shape:
            if not op.elementwise:
                return position
            total = np.broadcast_to(total, total.shape[:1] + out.shape)
        tangents[slot] = total
    return stop


def _push_directions(code: Code, k: int, given: list[Any], record: bool) -> Any:
    """Several directions at once: along a first axis where the rule broadcasts, else one by one."""
    op = OPS[code[k + OP]]
    shape = code[k + OUT].shape
    if op.elementwise and code[k + OP] != FREED:
        aligned = [None if t is None else _led(t, len(shape)) for t in given]
        return push_entry(code, k, aligned, record, directions=True)
    width = next(len(t) for t in given if t is not None)
    if not width:
        return np.zeros((0, *shape), code[k + OUT].dtype)
    if not record and not storage.tracing.get():  # raw values, on which compiled code can run
        x, y, out, kw = code[k + X : k + STRIDE]
        values = (x, y) if op.arity == 2 and not op.variadic else x
        total = _by_the_rule_for_several(op, given, values, out, kw)
        if total is not None:
            return total
    tangents = [
        push_entry(code, k, [None if t is None else t[i] for t in given], record)
        for i in range(width)
    ]
    return tangents[0].stacked(tangents) if code[k + OUT].dtype is None else np.stack(tangents)


def _by_the_rule_for_several(
    op: Primitive, given: Sequence[Any], values: Any, out: Any, kw: Any
) -> Any:
    """The tangents of an entry along several directions by the rule that its op declares for them; None where it has none."""
    if op.directions is None:
        return None
    total = op.directions(given, values, out, *(kw or ()))
    if total is None or (total.shape[1:] == out.shape and total.dtype == out.dtype):
        return total
    width = next(len(t) for t in given if t is not None)
    return fit(total, _Like((width, *out.shape), out.dtype), op)


def _led(t: Any, ndim: int) -> Any:
    """Tangents with as many axes behind the first as the result has."""
    missing = ndim + 1 - t.ndim
    return t if missing <= 0 else np.reshape(t, (t.shape[0],) + (1,) * missing + t.shape[1:])


def push_entry(code: Code, k: int, given: list[Any], record: bool, directions: bool = False) -> Any:
    """Tangent of one entry (which starts at item k) from those of its operands, None for zero."""
    op_code, slot, in0, in1, x, y, out, kw = code[k : k + STRIDE]
    if op_code == FREED:
        raise GraphError(SECOND_TIME, name="freed-graph")
    op = OPS[op_code]
    nodes, raw = (in0, x) if type(in0) is tuple else ((in0, in1)[: op.arity], (x, y)[: op.arity])
    values = raw
    like = out
    if record:
        values, out = connected(slot, nodes, raw, out)
    shape = like.shape
    if op.elementwise:
        total = _push_elementwise(op, given, values, out)
        if directions:
            shape = (total.shape[0], *shape)
    elif op.linear and op.variadic:
        parts = [
            np.zeros(np.shape(v), like.dtype) if t is None else t
            for t, v in zip(given, raw, strict=True)
        ]
        total = apply(op, parts, kw)
    elif op.linear:
        total = None
        for i, t in enumerate(given[: op.arity]):
            if t is not None:
                term = apply(op, (*values[:i], t, *values[i + 1 :]), kw)
                total = term if total is None else total + term
    elif op.jvp is not None:
        total = op.jvp(given, values, out, **dict(zip(op.settings, kw or (), strict=True)))
        if like.dtype is None:  # parts, of a function with several outputs
            return total
    else:
        total = _transposed(code, k, given, nodes, like, record)
    if total.shape != shape:
        total = np.broadcast_to(total, shape)
    return fit(total, _Like(shape, like.dtype), op)


def entry_of(
    op: Primitive, slot: Slot | None, nodes: Sequence[Any], raw: Sequence[Any], out: Any, kw: Any
) -> Code:
    """An entry by itself, from what an op was applied to."""
    if op.variadic:
        return [op.code, slot, tuple(nodes), None, tuple(raw), None, out, kw]
    (in0, in1), (x, y) = (*nodes, None)[:2], (*raw, None)[:2]
    return [op.code, slot, in0, in1, x, y, out, kw]


class _Like(NamedTuple):
    shape: tuple[int, ...]
    dtype: Any


def _push_elementwise(op: Primitive, given: list[Any], values: Any, out: Any) -> Any:
    """The tangent of an elementwise op: the sum of tangents times partials; None where no operand has one."""
    x, y, z = (*values, None, None)[:3]
    total = None
    for t, partial in zip(given, op.partials, strict=False):
        if t is None:
            continue
        if partial.of is None:
            term = (
                t
                if partial.value == 1
                else np.zeros_like(t)
                if partial.value == 0
                else t * partial.value
            )
        else:
            p = partial.of(x, y, z, out)
            term = times(p, t) if partial.chooses else times(t, p)
        total = term if total is None else total + term
    return total


def _transposed(code: Code, k: int, given: list[Any], nodes: Any, like: Any, record: bool) -> Any:
    """J t from the VJP alone: u -> Jᵀu is linear, so its own VJP, applied to t, is J t."""
    from .executors import vjp_of

    entry = code[k : k + STRIDE]

    def transpose(u: Any) -> list[Any]:
        by_node: dict[Any, Any] = {}
        for node, cotangent in pull(entry, 0, u, record):
            by_node[node] = by_node[node] + cotangent if node in by_node else cotangent
        return [by_node[n] for n in by_node]

    wanted = list(dict.fromkeys(n for n in nodes if n is not None))
    by_given = {n: t for n, t in zip(nodes, given, strict=False) if n is not None}
    # Tangents may be tracked though the values are not: then the result is recorded as linear in them.
    record_walk = record or any(isinstance(t, Tensor) and t._node is not None for t in given)
    return vjp_of(
        transpose, np.zeros(like.shape, like.dtype), [by_given[n] for n in wanted], record_walk
    )
