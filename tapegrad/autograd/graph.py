"""The graph as PyTorch shows it: views (tape, slot) made when somebody asks, never stored on the tape.

A `Node` holds the slot object of an entry, which keeps the entry alive as a tensor would. Two views of one entry are
equal. `AccumulateGrad` is the view of a leaf.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..core import lifetime, overwriting, primitive, storage, sweep
from ..core.tape import FREED, IN0, IN1, KW, OP, OUT, SLOT, STRIDE, Leaf, Slot, X, Y, locate
from ..core.tensor import Tensor, new, wrap
from ..errors import GraphError
from . import hooks, saving
from .function import FunctionCtx, output
from .hooks import register_multi_grad_hook
from .saving import disable_saved_tensors_hooks, save_on_cpu, save_on_disk, saved_tensors_hooks

_SAVED = {"_saved_self": "x", "_saved_other": "y", "_saved_result": "out"}
"""PyTorch's names for what an entry keeps, and ours."""


class Node:
    """View of one entry: how a tensor was made, and from what.

    >>> import tapegrad as tg
    >>> x = tg.tensor(2.0, requires_grad=True)
    >>> (x * 3).grad_fn
    <MulBackward0>
    """

    __slots__ = ("__weakref__", "_context", "_name", "_slot")

    def __init__(self, slot: Slot) -> None:
        if type(slot) is not int:
            raise TypeError(
                f"a Node was made of {type(slot).__name__}, but only recorded operations make nodes: take y.grad_fn."
            )
        self._slot = slot
        code, k = self._entry()
        entry = hooks.unhooked(code[k : k + STRIDE])
        self._name = primitive.entry_name(entry)
        settings = entry[KW]
        self._context = settings[0] if settings and isinstance(settings[0], FunctionCtx) else None

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for notes about this node; it lives as long as the entry."""
        return hooks.of_entry(self._slot).metadata

    @property
    def requires_grad(self) -> bool:
        """True: only what requires grad is recorded."""
        return True

    def register_hook(self, fn: hooks.Hook) -> hooks.RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after this node has run; what it returns, unless None, replaces grad_inputs.

        >>> import tapegrad as tg
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> y = x * 3
        >>> handle = y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (grad_inputs[0] * 10, None))
        >>> y.backward()
        >>> x.grad
        tensor(30.)
        """
        return hooks.RemovableHandle(hooks.of_entry(self._slot).after, fn)

    def register_prehook(self, fn: hooks.Hook) -> hooks.RemovableHandle:
        """Call `fn(grad_outputs)` before this node runs; what it returns, unless None, replaces grad_outputs."""
        return hooks.RemovableHandle(hooks.of_entry(self._slot).before, fn)

    def __getattr__(self, name: str) -> Any:
        """What was saved, as in PyTorch: `y.grad_fn._saved_self`; a custom Function's node shows its context: `y.grad_fn.saved_tensors`."""
        if name.startswith("__") or name in Node.__slots__:
            raise AttributeError(name)
        if name in _SAVED and self._context is None:
            return self._saved(name)
        if name == "saved_tensors":
            code, k = self._entry()
            if code[k + OP] == FREED:
                _freed()
        context = self._context
        if context is None:
            raise AttributeError(f"{self._name} has no attribute {name!r}")
        return getattr(context, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Node.__slots__:
            object.__setattr__(self, name, value)
        elif self._context is None:
            raise AttributeError(
                f"{self._name} has no attribute {name!r}: keep notes in its metadata."
            )
        else:
            setattr(self._context, name, value)

    def _saved(self, name: str) -> Tensor | None:
        """A value that a rule needs; None if it needs it only for an operand that is not tracked."""
        code, k = self._entry()
        if code[k + OP] == FREED:
            _freed()
        entry = list(hooks.unhooked(code[k : k + STRIDE]))
        op, _, packed = saving.original(entry[OP], entry[KW])
        variadic = op.variadic and not op.elementwise
        if variadic or not any(_SAVED[name] in needs for needs in op.needs):
            raise AttributeError(
                f"{self._name} has no attribute {name!r}: its rule does not need it."
            )
        nodes, raw = (
            (entry[IN0], entry[X]) if type(entry[IN0]) is tuple
            else ((entry[IN0], entry[IN1])[: op.arity], (entry[X], entry[Y])[: op.arity])
        )  # fmt: skip
        needed = (n for n, node in zip(op.needs, nodes, strict=True) if node is not None)
        if not any(_SAVED[name] in n for n in needed):
            return None
        sweep.check_overwritten([*entry[:SLOT], self._slot, *entry[SLOT + 1 :]], 0)
        values, result = sweep.connected(self._slot, nodes, raw, entry[OUT])
        if packed:
            values, result = entry[KW][0].restored(values, result)
        value = {"x": values[0], "y": values[-1], "out": result}[_SAVED[name]]
        return value if isinstance(value, Tensor) else wrap(np.asarray(value))

    def _entry(self) -> tuple[list[Any], int]:
        tape, position = locate(self._slot) or _gone()
        return tape.code, position * STRIDE

    def _operands(self, code: list[Any], k: int) -> Any:
        nodes = sweep.operands(code, k)
        return nodes if type(code[k + IN0]) is tuple else nodes[: primitive.OPS[code[k + OP]].arity]

    def name(self) -> str:
        """Name of the backward operation, such as "MulBackward0"."""
        return self._name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """For each operand, the view of what made it and its output number; (None, 0) for constants.

        >>> import tapegrad as tg
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> (x * 3).grad_fn.next_functions
        ((<AccumulateGrad>, 0), (None, 0))
        """
        code, k = self._entry()
        if code[k + OP] == FREED:
            raise GraphError(sweep.SECOND_TIME, name="freed-graph")
        nodes = self._operands(code, k)
        return tuple((None if node is None else node_of(node), output_of(node)) for node in nodes)

    def __call__(self, *gradients: Any) -> Any:
        """Cotangents of the operands (None for those that are not tracked), from that of the result; a lone one is no tuple.

        >>> import tapegrad as tg
        >>> x = tg.tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).grad_fn(tg.ones(2))
        (tensor([2., 3.]), tensor([2., 3.]))
        """
        if len(gradients) != 1:
            raise TypeError(
                f"{self._name} expected 1 arguments, got {len(gradients)} instead: the gradient of its result."
            )
        if self._context is not None:
            raise NotImplementedError(
                f"{self._name} belongs to a Function, whose backward takes its ctx: call that, or tg.autograd.grad."
            )
        code, k = self._entry()
        if code[k + OP] == FREED:
            _freed()
        result = code[k + OUT]
        g = np.asarray(gradients[0].detach() if isinstance(gradients[0], Tensor) else gradients[0])
        if g.shape != np.shape(result):
            raise RuntimeError(
                f"{self._name} was given a gradient of shape {g.shape}, but its result has the shape {np.shape(result)}."
            )
        sweep.check_overwritten(code, k)
        pairs = iter(sweep.pull(code, k // STRIDE, g.astype(result.dtype, copy=False)))
        pair = next(pairs, None)
        found: list[Any] = []
        for node in self._operands(code, k):
            mine = pair is not None and node is not None and pair[0] is node
            found.append(wrap(np.asarray(pair[1])) if mine and pair is not None else None)
            pair = next(pairs, None) if mine else pair
        return found[0] if len(found) == 1 else tuple(found)

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __del__(self) -> None:
        slot = getattr(self, "_slot", None)
        if slot is not None:
            lifetime.let_go(slot + 0, 2)

    def __eq__(self, other: object) -> bool:
        return type(other) is Node and other._slot == self._slot

    def __hash__(self) -> int:
        return hash((Node, self._slot))


class AccumulateGrad(Node):
    """View of a leaf: where a walk ends and `.grad` grows.

    >>> import tapegrad as tg
    >>> x = tg.tensor(3.0, requires_grad=True)
    >>> leaf = (2 * x).grad_fn.next_functions[1][0]
    >>> leaf, leaf.variable is x
    (<AccumulateGrad>, True)
    """

    __slots__ = ("_leaf",)

    def __init__(self, leaf: Leaf) -> None:
        object.__setattr__(self, "_leaf", leaf)
        self._name = "AccumulateGrad"
        self._context = None

    @property
    def next_functions(self) -> tuple[()]:
        """Nothing comes before a leaf."""
        return ()

    def __call__(self, *gradients: Any) -> None:
        """Add a gradient to that of the leaf."""
        if len(gradients) != 1:
            raise TypeError(f"AccumulateGrad expected 1 arguments, got {len(gradients)} instead: the leaf's gradient.")  # fmt: skip
        self.variable.backward(gradients[0])

    @property
    def variable(self) -> Tensor:
        """The leaf tensor that receives the gradient."""
        t = self._leaf.tensor()
        if t is None:
            # The user dropped the tensor; the leaf owns its value and gradient, so the tensor can be made again.
            t = new(Tensor)
            t._value = self._leaf.data
            t._node = self._leaf
            if self._leaf.hooks is None:
                self._leaf.tensor = weakref.ref(t)
            else:
                lifetime.attend(self._leaf, t)
        return t

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for notes about this node; it lives as long as the leaf."""
        return hooks.of_leaf(self._leaf).metadata

    def register_hook(self, fn: hooks.Hook) -> hooks.RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after the gradient was accumulated; grad_inputs is empty."""
        return hooks.RemovableHandle(hooks.of_leaf(self._leaf).after, fn)

    def register_prehook(self, fn: hooks.Hook) -> hooks.RemovableHandle:
        """Call `fn(grad_outputs)` before the gradient is accumulated; what it returns, unless None, replaces it."""
        return hooks.RemovableHandle(hooks.of_leaf(self._leaf).before, fn)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other._leaf is self._leaf

    def __hash__(self) -> int:
        return hash((AccumulateGrad, id(self._leaf)))


class GradientEdge(NamedTuple):
    """A place where a gradient can be asked: a node and the number of one of its outputs.

    >>> import tapegrad as tg
    >>> x = tg.tensor(3.0, requires_grad=True)
    >>> y = x * x
    >>> tg.autograd.grad(2 * y, tg.autograd.graph.GradientEdge(y.grad_fn, 0))
    (tensor(2.),)
    """

    node: Any
    output_nr: int = 0
    ownership_token: Any = None

    @property
    def _node(self) -> Any:
        if isinstance(self.node, AccumulateGrad):
            return self.node._leaf
        context = self.node._context
        if context is None or not context._several:
            return self.node._slot
        return context._node_of_output(self.output_nr)

    def _value(self) -> Any:
        if isinstance(self.node, AccumulateGrad):
            return self.node._leaf.data
        tape, position = locate(self._node) or _gone()
        k = position * STRIDE
        if tape.code[k + OP] == FREED:
            _freed()
        return tape.code[k + OUT]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the gradient that flows along this edge."""
        return self._value().shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the gradient that flows along this edge."""
        return self._value().dtype

    @property
    def size(self) -> int:
        """Number of elements of the gradient that flows along this edge."""
        return self._value().size


def _freed() -> NoReturn:
    raise GraphError(sweep.SECOND_TIME, name="freed-graph")


def _gone() -> NoReturn:
    raise GraphError(sweep.GONE, name="freed-graph")


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that stands for a tensor's gradient; keeps the graph, but not the tensor's value.

    >>> import tapegrad as tg
    >>> x = tg.tensor(3.0, requires_grad=True)
    >>> edge = tg.autograd.graph.get_gradient_edge(x * x)
    >>> tg.autograd.grad(edge, x)
    (tensor(6.),)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"get_gradient_edge was given {type(tensor).__name__}, but only tensors have a gradient: pass a tensor that requires grad."
        )
    if tensor._node is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients."
        )
    node = tensor._node
    return GradientEdge(node_of(node), tensor.output_nr, node if type(node) is Leaf else Node(node))


_nodes: weakref.WeakValueDictionary[Slot, Node] = weakref.WeakValueDictionary()
"""Views that somebody holds, so that one entry is shown by one object; keyed by copies of slots."""


def node_of(node: Any) -> Any:
    """The view of a slot or a leaf. One output of several is shown as the node that made them all."""
    if type(node) is Leaf:
        return AccumulateGrad(node)
    node = _maker(node)[0]
    view = _nodes.get(node)
    if view is None:
        view = _nodes[node + 0] = Node(node)
    return view


def output_of(node: Any) -> int:
    """Which output of its maker a slot stands for."""
    return 0 if node is None or type(node) is Leaf else _maker(node)[1]


def _maker(slot: Slot) -> tuple[Slot, int]:
    place = locate(slot)
    if place is not None:
        tape, position = place
        k = position * STRIDE
        if primitive.OPS[tape.code[k + OP]] is output.primitive:
            return tape.code[k + IN0], tape.code[k + KW][0]
    return slot, 0


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Say that a tensor's memory was overwritten behind the library's back, so that a derivative that needs the old value raises.

    >>> import tapegrad as tg
    >>> x = tg.ones(2)
    >>> tg.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        storage.touch(t._array())


class allow_mutation_on_saved_tensors:
    """Context in which tensors saved for backward may be overwritten: they are copied first, where a write would hit them.

    Inside transforms (`tg.grad` and the like) and under `tg.compile` it is so anyway.
    Gives an object whose `clear()` drops what was copied so far.

    >>> import tapegrad as tg
    >>> x = tg.ones(2, requires_grad=True)
    >>> with tg.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x * 1
    ...     z = y * y
    ...     _ = y.mul_(7)
    ...     z.sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        if overwriting.ALLOWED.get():
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        overwriting.ALLOWED.set(True)
        return self

    def __exit__(self, *exc: object) -> None:
        overwriting.ALLOWED.set(False)

    def clear(self) -> None:
        """Nothing to do: a copy lives in the entry that needs it, and goes with it."""


__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu", "save_on_disk", "saved_tensors_hooks",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
