"""Hooks: functions of the user's that a walk calls with the gradients it passes.

Idea: nothing is stored on the tape for tensors and nodes that have no hook. A hook of a tensor is a *watch* of its slot
(executors.py), or lives in its `Leaf`; a hook of a graph node turns that one entry into a `hooked` one, which wraps the original
op's rule.

Order, as PyTorch documents it: the tensor's hooks in order of registration, its `retain_grad` last; the node's pre-hooks; the node itself;
its post-hooks. At a leaf: the tensor's hooks, the node's pre-hooks, accumulation, post-accumulate hooks, the node's post-hooks.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import executors, lifetime, storage, sweep
from ..core.mode import recording
from ..core.primitive import OPS, Primitive, entry_name, primitive
from ..core.tape import FREED, IN0, KW, OP, OUT, STRIDE, Leaf, Slot, X, locate
from ..core.tensor import Tensor, wrap
from ..errors import GraphError
from .function import Parts

Hook = Callable[..., Any]

_numbers = itertools.count()


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again; as a context manager, at the end of the block."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[int, Hook], hook: Hook) -> None:
        self._hooks = hooks
        self.id = next(_numbers)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def _name(hook: Hook) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _shown(g: Any) -> Tensor:
    """A raw cotangent as hooks see it: read-only, since the walk may have handed the same array to others."""
    view = np.asarray(g).view()
    view.flags.writeable = False
    return wrap(view)


def applied(hooks: dict[int, Hook], g: Any) -> Any:
    """A cotangent after a tensor's hooks, each of which may replace it; raw if it was given raw."""
    raw = not isinstance(g, Tensor)
    t = _shown(g) if raw else g
    for hook in tuple(hooks.values()):
        t = _checked(hook, hook(t), t)
    return t._value if raw else t


def _checked(hook: Hook, result: Any, before: Tensor) -> Tensor:
    """What a hook returned for a gradient, or the gradient where it returned None; an error where shape or dtype changed."""
    if result is None:
        return before
    if not isinstance(result, Tensor):
        raise TypeError(
            f"expected Tensor, but hook '{_name(hook)}' returned '{type(result).__name__}': a hook returns None, or the gradient to "
            "go on with."
        )
    if result.shape != before.shape:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the size of value: it was given a gradient of shape {before.shape} and returned "
            f"one of shape {result.shape}."
        )
    if result.dtype != before.dtype:
        raise RuntimeError(
            f"hook '{_name(hook)}' has changed the type of value (was {before.dtype} got {result.dtype}): use astype."
        )
    return result


# ------------------------------------------------------------------------------------------------ of tensors


class _LeafHooks:
    """All hooks of one leaf."""

    __slots__ = ("accumulated", "after", "bearer", "before", "metadata", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, Hook] = {}
        self.before: dict[int, Hook] = {}
        self.accumulated: dict[int, Hook] = {}
        self.after: dict[int, Hook] = {}
        self.metadata: dict[Any, Any] = {}


def of_leaf(leaf: Leaf) -> _LeafHooks:
    if leaf.hooks is None:
        leaf.hooks = _LeafHooks()
        lifetime.attend(leaf, leaf.tensor())
    return leaf.hooks


def _node_of(t: Tensor) -> Any:
    if t._node is None:
        raise RuntimeError(
            "cannot register a hook on a tensor that doesn't require gradient: call requires_grad_() first."
        )
    return t._node


def register_hook(self: Tensor, hook: Hook) -> RemovableHandle:
    """Call `hook(grad)` whenever the gradient of this tensor is complete; what it returns, unless None, replaces the gradient.

    The gradient it is given is read-only. Returns a handle whose `remove()` takes the hook away. The hook belongs to the value
    the tensor has now: after an in-place operation it still sees the gradient of the value before. Raises RuntimeError if the
    tensor does not require grad.

    A hook lives as long as the graph it is in; one that refers to its own tensor keeps that graph until backward frees it, or until
    it is removed.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> handle = x.register_hook(lambda g: g * 10)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([20., 40.])
    """
    node = _node_of(self)
    if type(node) is Leaf:
        return RemovableHandle(of_leaf(node).tensor, hook)
    watch = executors.watched(node)
    watch.bearer = lifetime.bearer()
    return RemovableHandle(watch.hooks, hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Hook) -> RemovableHandle:
    """Call `hook(tensor)` each time backward has added to this leaf's `.grad`.

    >>> import tapegrad as tg
    >>> w = tg.tensor(3.0, requires_grad=True)
    >>> handle = w.register_post_accumulate_grad_hook(lambda t: print("grad is", t.grad.item()))
    >>> (w * w).backward()
    grad is 6.0
    """
    node = _node_of(self)
    if type(node) is not Leaf:
        raise RuntimeError(
            "post accumulate grad hooks cannot be registered on non-leaf tensors: nothing accumulates there. Use register_hook."
        )
    return RemovableHandle(of_leaf(node).accumulated, hook)


Tensor.register_hook = register_hook  # type: ignore[method-assign, assignment]
Tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook  # type: ignore[method-assign, assignment]


def leaf_cotangent(leaf: Leaf, g: Any) -> Any:
    """What arrives at a leaf, after its tensor's hooks: called by walks for leaves that have some."""
    return applied(leaf.hooks.tensor, g) if leaf.hooks.tensor else g


def before_accumulation(leaf: Leaf, g: Any) -> Any:
    """The gradient about to be added to `.grad`, after the pre-hooks of AccumulateGrad."""
    if leaf.hooks is None or not leaf.hooks.before:
        return g
    raw = not isinstance(g, Tensor)
    (t,) = _through(leaf.hooks.before, (_shown(g) if raw else g,))
    return t._value if raw else t


def after_accumulation(leaf: Leaf, g: Any) -> None:
    """Post-accumulate hooks, then the post-hooks of AccumulateGrad."""
    hooks = leaf.hooks
    for hook in tuple(hooks.accumulated.values()):
        from .graph import AccumulateGrad

        t = AccumulateGrad(leaf).variable
        result = hook(t)
        if result is not None and result is not t:
            raise RuntimeError(
                f"Tensor post accumulate grad hooks should return None, but '{_name(hook)}' returned a {type(result).__name__}."
            )
    for hook in tuple(hooks.after.values()):
        hook((), (g if isinstance(g, Tensor) else _shown(g),))


class _Waiting:
    """The gradients that a multi-grad hook has in one walk so far; it is called when none is missing any more."""

    __slots__ = ("fn", "grads", "missing")

    def __init__(self, fn: Hook, n: int, missing: int) -> None:
        self.fn: Hook | None = fn
        self.grads: list[Tensor | None] = [None] * n
        self.missing = missing

    def put(self, i: int, g: Tensor) -> None:
        self.missing -= self.grads[i] is None
        self.grads[i] = g
        if not self.missing:
            self.call()

    def call(self) -> None:
        fn, self.fn = self.fn, None
        if fn is not None:
            fn(self.grads)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Hook, *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` once a walk: with all the tensors' gradients (None where there is none), or with any, the first.

    With mode="all" it is called as `fn(grads)` in every walk that reaches one of the tensors, as soon as all gradients that this
    walk computes are there; with mode="any" as `fn(grad)` as soon as the first is. What it returns is ignored.

    >>> import tapegrad as tg
    >>> a, b = (tg.tensor(v, requires_grad=True) for v in (2.0, 3.0))
    >>> handle = tg.autograd.graph.register_multi_grad_hook((a, b), lambda grads: print([g.item() for g in grads]))
    >>> (a * b).backward()
    [3.0, 2.0]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    active: dict[int, Hook] = {}
    handle = RemovableHandle(active, fn)

    # Copies of slots, and weak references: a hook must not keep alive what it waits for.
    nodes = [n + 0 if type(n) is int else weakref.ref(n) for n in map(_node_of, tensors)]

    def expected(notes: Any) -> int:
        reached = notes.reached()
        return sum((n if type(n) is int else n()) in reached for n in nodes)

    def observer(i: int) -> Hook:
        """A hook for the `i`-th tensor that hands its gradient to the common call of this walk."""

        def observe(g: Tensor) -> None:
            notes = executors.notes_of_walk()
            if not active or notes is None:
                return
            if mode == "any":
                if handle.id not in notes.data:
                    notes.data[handle.id] = None
                    fn(g)
                return
            waiting = notes.data.get(handle.id)
            if waiting is None:
                waiting = notes.data[handle.id] = _Waiting(fn, len(nodes), expected(notes))
                notes.at_end.append(waiting.call)  # where a rule cut the walk short
            waiting.put(i, g)

        return observe

    for i, t in enumerate(tensors):
        register_hook(t, observer(i))
    return handle


# ------------------------------------------------------------------------------------------------ of graph nodes


class NodeHooks:
    """Pre- and post-hooks of one entry, and what users note about it."""

    __slots__ = ("after", "bearer", "before", "metadata", "slot")

    def __init__(self, slot: int) -> None:
        self.bearer = lifetime.bearer()
        self.before: dict[int, Hook] = {}
        self.after: dict[int, Hook] = {}
        self.metadata: dict[Any, Any] = {}
        self.slot = slot  # a copy, which keeps nothing alive


def _through(hooks: dict[int, Hook], grads: tuple[Any, ...], *others: Any) -> tuple[Any, ...]:
    """Gradients after node hooks, each of which may return as many to replace them."""
    for hook in tuple(hooks.values()):
        result = hook(grads, *others)
        if result is None:
            continue
        result = tuple(result) if isinstance(result, list | tuple) else (result,)
        if len(result) != len(grads):
            raise RuntimeError(
                f"hook '{_name(hook)}' has returned an incorrect number of values (got {len(result)}, but expected {len(grads)})"
            )
        grads = tuple(
            new if old is None or new is None else _checked(hook, new, old)
            for old, new in zip(grads, result, strict=True)
        )
    return grads


def original(nodes: Any, values: Any, out: Any, code: int, kw: Any, slot: int = 0) -> list[Any]:
    """The entry as it was before it was hooked, over these operands."""
    if OPS[code].variadic:
        return [code, slot, tuple(nodes), None, tuple(values), None, out, kw]
    in0, in1 = (*nodes, None, None)[:2]
    x, y = (*values, None)[:2]
    return [code, slot, in0, in1, x, y, out, kw]


def _push_original(ts: Any, xs: Any, out: Any, code: int, kw: Any, hooks: Any) -> Any:
    nodes = [None if t is None else i + 1 for i, t in enumerate(ts)]
    return sweep.push_entry(original(nodes, xs, out, code, kw), 0, list(ts), False)


def _wrapped(g: Any) -> tuple[Any, ...]:
    """A cotangent as hooks see it: a tuple of tensors, one for each output, None where nothing has arrived."""
    parts = g.parts if isinstance(g, Parts) else (g,)
    return tuple(
        part if part is None or isinstance(part, Tensor) else _shown(part) for part in parts
    )


def _unwrapped(grads: Sequence[Any], like: Any) -> Any:
    """The cotangent that hooks return, as the walk had it: raw if it was raw, one or in parts."""
    old = like.parts if isinstance(like, Parts) else (like,)
    recorded = any(isinstance(part, Tensor) for part in old)
    parts = [g if g is None or recorded else g._value for g in grads]
    return Parts(parts) if isinstance(like, Parts) else parts[0]


def _hooked_primitive(name: str, saves: bool) -> Primitive:
    """An op that stands for an entry with node hooks: its rule runs the original op's between the hooks."""

    def rule(g, xs, out, wanted, *, code, kw, hooks):
        """Another op's entry, with the hooks of its graph node around its rule."""
        if hooks.before:
            g = _unwrapped(_through(hooks.before, _wrapped(g)), g)
        nodes = [i + 1 if w else None for i, w in enumerate(wanted)]
        entry = original(nodes, xs, out, code, kw, hooks.slot)
        if hooks.slot <= storage.latest_overwrite():
            sweep.check_overwritten(entry, 0)
        cotangents: list[Any] = [None] * len(nodes)
        for node, cotangent in sweep.pull(entry, 0, g):
            cotangents[node - 1] = cotangent
        if hooks.after:
            raw = not any(isinstance(c, Tensor) for c in cotangents)
            grad_inputs = tuple(
                c if c is None or isinstance(c, Tensor) else _shown(c) for c in cotangents
            )
            grad_inputs = _through(hooks.after, grad_inputs, _wrapped(g))
            cotangents = [c._value if raw and c is not None else c for c in grad_inputs]
        return cotangents

    op = primitive(
        lambda xs, code, kw, hooks: OPS[code].evaluate(xs, kw),
        name=name,
        backward=lambda x, y, kw: entry_name(original((), x, None, kw[0], kw[1])),
        jvp=_push_original,
        unsupported={"samples": "what it does is the user's code; tests/test_hooks.py"},
    )(rule).primitive
    # The rule checks what the original op needs, by itself; whether that is anything decides if it can be walked again.
    op.needs = (frozenset(),)
    op.saves = saves
    return op


hooked = _hooked_primitive("hooked", False)
hooked_saving = _hooked_primitive("hooked_saving", True)


def unhooked(entry: Sequence[Any]) -> Sequence[Any]:
    """An entry as it was before it was hooked, if it was."""
    if OPS[entry[OP]] not in (hooked, hooked_saving):
        return entry
    code, kw, hooks = entry[KW]
    return original(entry[IN0], entry[X], entry[OUT], code, kw, hooks.slot)


def run_through(slot: Slot, g: Any, targets: set[Any], create_graph: bool) -> None:
    """Call the hooks of the entry of a tensor that `backward(inputs=)` names, unless the walk went on through it to another target.

    As in PyTorch the node runs, though nothing is done with what it returns.
    """
    place = locate(slot)
    if place is None:
        return
    tape, position = place
    k = position * STRIDE
    if OPS[tape.code[k + OP]] not in (hooked, hooked_saving):
        return
    others = targets - {slot}
    if others and slot in sweep._reaching(tape.code, position, [slot], others, 0):
        return
    with recording(create_graph):
        list(sweep.pull(tape.code, position, g, create_graph))


def of_entry(slot: Slot) -> NodeHooks:
    """The hooks of the entry with this slot, which becomes a hooked entry if it is none."""
    place = locate(slot)
    if place is None:
        raise GraphError(sweep.GONE, name="freed-graph")
    tape, _ = place
    with tape.lock:
        position = tape.find(slot)  # other threads may have swept meanwhile
        if position is None:
            raise GraphError(sweep.GONE, name="freed-graph")
        code, k = tape.code, position * STRIDE
        op = OPS[code[k + OP]]
        if op in (hooked, hooked_saving):
            return code[k + KW][2]
        if code[k + OP] == FREED:
            raise GraphError(sweep.SECOND_TIME, name="freed-graph")
        hooks = NodeHooks(slot + 0)
        in0, in1, x, y, out, kw = code[k + IN0 : k + STRIDE]
        nodes, values = (in0, x) if op.variadic else ((in0, in1)[: op.arity], (x, y)[: op.arity])
        code[k + OP] = (hooked_saving if op.saves else hooked).code
        code[k + IN0 : k + OUT + 1] = [nodes, None, values, None, out]
        code[k + KW] = (op.code, kw, hooks)
        return hooks


assert X == IN0 + 2  # the order in which an entry's columns are rewritten above
