"""PyTorch's `torch.autograd`, on NumPy arrays: the same names, semantics and wording of errors.

`backward` accumulates into leaves, `grad` returns gradients; both validate what they are given, then hand node and
cotangent to `executors.walk`. The rest of PyTorch's names live in the submodules of the same name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from ..core import executors, locks, seams, storage
from ..core.dual import tangent_of
from ..core.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    recording,
    set_grad_enabled,
)
from ..core.tape import Leaf, Tape, current, lead_to_inputs
from ..core.tensor import Tensor, wrap
from ..errors import GradcheckError, GradientLost, GraphError
from . import anomaly_mode, forward_ad, function, functional, grad_mode, graph, hooks
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import is_multithreading_enabled, set_multithreading_enabled
from .gradcheck import gradcheck, gradgradcheck
from .variable import Variable

_accumulating = locks.lock()


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradient of the sum of `tensors` (each weighed by its grad tensor) to `.grad` of the leaves.

    `tensors` is a tensor or a sequence of them; a non-scalar needs a grad tensor of its shape. `inputs` (tensors, in a
    sequence or a dict) limits which tensors, leaves or not, receive a gradient. `grad_variables` is an older name of
    `grad_tensors`. Raises RuntimeError as PyTorch does: no graph, freed graph, shape mismatch.

    >>> import tapegrad as tg
    >>> a = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> tg.autograd.backward(a * a, tg.ones(2))
    >>> a.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use "
                "`grad_tensors`."
            )
        grad_tensors = grad_variables
    if type(tensors) is Tensor and tensors._node is not None and not create_graph:
        if current().outer is not None:
            demand_recorded("backward()", (tensors._node,), False)
        usual = grad_tensors is None and inputs is None
        if usual and type(tensors._value) in executors.ONES:
            one = executors.ONES[type(tensors._value)]
            _accumulate(executors.walk_from(tensors._node, one, bool(retain_graph)), False)
            return
    outputs = _sequence(tensors, "tensors")
    seeds = _seeds(outputs, grad_tensors, create_graph)
    demand_recorded("backward()", [t._node for t in outputs], create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        targets = None
        asked: list[Tensor] = []
    else:
        asked = list(_sequence(inputs.values() if isinstance(inputs, dict) else inputs, "inputs"))
        if not asked:
            raise RuntimeError(
                "`inputs` argument to `backward()` cannot be empty: leave it out, or name the tensors that are to "
                "receive a gradient."
            )
        targets = {_node(t, "inputs") for t in asked}
    if targets is None and len(seeds) == 1 and type(seeds[0]) is not Tensor:
        found = executors.walk_from(outputs[0]._node, seeds[0], retain)
    else:
        found = executors.walk(
            ((t._node, g) for t, g in zip(outputs, seeds, strict=True)),
            targets,
            retain_graph=retain,
            create_graph=create_graph,
        )
    _accumulate(found, create_graph)
    if asked:
        for slot in {t._node for t in asked if isinstance(t, Tensor) and type(t._node) is int}:
            if slot in found:
                hooks.run_through(slot, found[slot], targets or set(), create_graph)
        with _accumulating:
            for t in {id(t): t for t in asked if isinstance(t, Tensor)}.values():
                if not t.is_leaf and not t.retains_grad and t._node in found:
                    t._put("grad", _added(t._get("grad"), found[t._node], create_graph))


def demand_recorded(asker: str, nodes: Iterable[Any], create_graph: bool) -> None:
    """Raise inside a transform where derivatives would not be recorded of what depends on its arguments."""
    if create_graph or current().outer is None or not is_grad_enabled():
        return
    if lead_to_inputs(nodes):
        raise GradientLost(
            f"{asker} was called inside a transform, on a value that depends on what the transform differentiates, but these gradients "
            "are not recorded: how they change with it (an optimiser's steps, for example) would be lost. Write tg.grad or "
            "tg.autograd.grad(..., create_graph=True) and the update as an expression (w = w - lr * g); or detach() what is differentiated "
            "before it goes into the value.",
            name="unrecorded-update",
        )


def _accumulate(found: dict[Any, Any], create_graph: bool) -> None:
    """Add leaves' cotangents, taken out of `found`, to their gradients."""
    for node in list(found):
        if type(node) is Leaf:
            g = found.pop(node)
            if node.hooks is not None:
                with recording(create_graph):
                    g = hooks.before_accumulation(node, g)
            g = g if create_graph or not isinstance(g, Tensor) else g.detach()
            # The walk may have handed one array to two leaves; most often it has not, and copies of large ones take long.
            ours = getrefcount(g) <= storage.LONE and storage.owns(g)
            with _accumulating:
                if ours and node.grad is None:
                    node.grad = wrap(g)
                else:
                    node.grad = _added(node.grad, g, create_graph)
            if node.hooks is not None:
                with recording(create_graph):
                    hooks.after_accumulation(node, g)


def _added(old: Tensor | None, g: Any, create_graph: bool) -> Tensor:
    if isinstance(g, Tensor):
        return g.clone() if old is None else old + g  # one cotangent may belong to several leaves
    if old is None:
        return wrap(owned(g))
    if create_graph:
        return old + g
    # The tensor stays the same object and sees the sum; its old array may be saved on a tape, so it is not overwritten. If it
    # has a history (from create_graph), that is still right, as what is added is a constant.
    old._value = storage.as_array(old._value + g)
    if type(old._node) is Leaf:
        old._node.data = old._value
    return old


def owned(g: Any) -> np.ndarray:
    """The cotangent as an array nobody else writes to: the walk may have handed one array to two leaves."""
    return storage.duplicate(g)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Gradients of the sum of `outputs` (weighed by `grad_outputs`) with respect to each of `inputs`, as a tuple.

    `.grad` is not touched. An input that the outputs do not depend on raises RuntimeError, unless `allow_unused`
    (its gradient is None) or `materialize_grads` (zeros). `inputs` may be a dict, which gives a dict. With
    `is_grads_batched` the first axis of each grad output counts independent cotangents.

    >>> import tapegrad as tg
    >>> x = tg.tensor(2.0, requires_grad=True)
    >>> (dx,) = tg.autograd.grad(x**3, x, create_graph=True)
    >>> tg.autograd.grad(dx, x)
    (tensor(12.),)
    """
    if not only_inputs:
        raise ValueError(
            "only_inputs=False is no longer supported, as in PyTorch: call backward to accumulate into leaves."
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if isinstance(inputs, dict):
        values = grad(
            outputs, list(inputs.values()), grad_outputs, retain_graph, create_graph,
            True, allow_unused, is_grads_batched, materialize_grads,
        )  # fmt: skip
        return dict(zip(inputs, values, strict=True))
    asked = _sequence(inputs, "inputs")
    if not asked:
        raise RuntimeError(
            "`inputs` argument to `grad()` cannot be empty: name the tensors to differentiate by."
        )
    targets = [_node(t, "inputs") for t in asked]
    results = _sequence(outputs, "outputs")
    retain = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(
            results, asked, grad_outputs, retain, create_graph, allow_unused, materialize_grads
        )
    seeds = _seeds(results, grad_outputs, create_graph)
    demand_recorded("tg.autograd.grad", [t._node for t in results], create_graph)
    if len(seeds) == 1 and type(seeds[0]) is not Tensor:
        found = executors.walk_from(results[0]._node, seeds[0], retain, set(targets))
    else:
        found = executors.walk(
            ((t._node, g) for t, g in zip(results, seeds, strict=True)),
            set(targets),
            retain_graph=retain,
            create_graph=create_graph,
        )
    gradients: list[Tensor | None] = []
    for i, (t, node) in enumerate(zip(asked, targets, strict=True)):
        g = found.get(node)
        if g is not None:
            gradients.append(g if isinstance(g, Tensor) else wrap(owned(g)))
        elif materialize_grads:
            # Zeros of a recorded walk may be differentiated on, as gradients may that happen to be zero.
            gradients.append(wrap(np.zeros(t.shape, t.dtype)).requires_grad_(create_graph))
        elif allow_unused:
            gradients.append(None)
        else:
            raise GraphError(
                "One of the differentiated Tensors appears to not have been used in the graph: "
                f"inputs[{i}], of shape {t.shape}. Set allow_unused=True if this is the desired behavior.",
                name="unused-input",
            )
    return tuple(gradients)


def _batched(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain: bool,
    create_graph: bool,
    allow_unused: Any,
    zeros: bool,
) -> Any:
    """One walk per cotangent of the batch; the results are stacked along a new first axis."""
    from ..ops.joining import stack

    batches = (
        (grad_outputs,)
        if isinstance(grad_outputs, np.ndarray)
        else _sequence(grad_outputs, "grad_outputs")
    )
    counts = {np.shape(b)[:1] for b in batches}
    if len(counts) != 1 or counts == {()}:
        shapes = ", ".join(str(np.shape(b)) for b in batches) or "none"
        raise RuntimeError(
            f"is_grads_batched=True was given grad_outputs of shapes {shapes}, but the first axis of each counts the cotangents: pass "
            "one array for each output, all with the same first length."
        )
    ((n,),) = counts
    if n == 0:
        return tuple(wrap(np.zeros((0, *t.shape), t.dtype)) for t in inputs)
    rows = [
        grad(
            outputs, inputs, [b[i] for b in batches], retain or i + 1 < n, create_graph,
            allow_unused=allow_unused, materialize_grads=zeros,
        )
        for i in range(n)
    ]  # fmt: skip
    return tuple(None if column[0] is None else stack(column) for column in zip(*rows, strict=True))


def _sequence(value: Any, name: str) -> Sequence[Any]:
    """One tensor or a sequence of them, as a sequence."""
    if isinstance(value, Tensor | graph.GradientEdge):
        return (value,)
    if isinstance(value, list | tuple):
        return value
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a tensor or a sequence of tensors, but got {type(value).__name__}: make one with tg.tensor."
        ) from None


def _node(t: Any, name: str) -> Any:
    if not isinstance(t, Tensor | graph.GradientEdge):
        raise TypeError(
            f"{name} must be tensors, but one is {type(t).__name__}: make it with tg.tensor."
        )
    if t._node is None:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return t._node


def _seeds(outputs: Sequence[Any], given: Any, create_graph: bool) -> list[Any]:
    """The roots' cotangents: checked, in the dtype of their output; raw, or Tensors if the walk is recorded."""
    if given is None or isinstance(given, Tensor | np.ndarray | int | float | complex):
        gradients: Sequence[Any] = [given] if len(outputs) == 1 else [None] * len(outputs)
        if given is not None and len(outputs) != 1:
            raise RuntimeError(
                f"got {len(outputs)} tensors and 1 gradients: pass one gradient (or None) per tensor."
            )
    else:
        gradients = list(given)
        if len(gradients) != len(outputs):
            raise RuntimeError(
                f"got {len(outputs)} tensors and {len(gradients)} gradients: pass one (or None) per tensor."
            )
    return [
        _seed(i, t, g, create_graph)
        for i, (t, g) in enumerate(zip(outputs, gradients, strict=True))
    ]


def _seed(i: int, t: Any, g: Any, create_graph: bool) -> Any:
    """The cotangent that a walk starts with at output `t`: `g` in the dtype of `t`, or 1 where `g` is None and `t` is one real number."""
    if not isinstance(t, Tensor | graph.GradientEdge):
        raise TypeError(
            f"element {i} of tensors is {type(t).__name__}, not a tensor: make it with tg.tensor."
        )
    if t._node is None:
        raise GraphError(
            f"element {i} of tensors does not require grad and does not have a grad_fn: nothing it was computed from "
            "requires grad, or it was computed under no_grad or detached. Set requires_grad=True on what you differentiate by.",
            name="not-tracked",
        )
    if g is None:
        if t.size != 1:
            raise GraphError(
                f"grad can be implicitly created only for scalar outputs, but element {i} has shape {t.shape}. Pass "
                "gradient= (of that shape), or reduce the output, for example with t.sum().",
                name="not-scalar",
            )
        if t.dtype.kind == "c":
            raise GraphError(
                f"grad can be implicitly created only for real scalar outputs but got {t.dtype}. Pass gradient=, or take "
                "the real part or the absolute value first.",
                name="not-real",
            )
        one = np.ones(t.shape, t.dtype) if t.shape else t.dtype.type(1)
        return wrap(one) if create_graph else one
    if not isinstance(g, Tensor) and np.asarray(g).dtype.kind not in "fciub":
        raise TypeError(
            f"grad_output[{i}] is {g!r}, but a gradient is made of numbers: pass a tensor or an array of shape {t.shape}."
        )
    if np.shape(g) != t.shape:
        raise GraphError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {np.shape(g)} and output[{i}] has a shape of {t.shape}.",
            name="wrong-form",
        )
    value = g._value if isinstance(g, Tensor) else storage.as_array(g)
    if value.dtype.kind == "c" and t.dtype.kind != "c":
        raise GraphError(
            f"For real output {i} the gradient must be real, but it has dtype {value.dtype}: take its real part.",
            name="not-real",
        )
    if create_graph or tangent_of(g) is not None:
        g = g if isinstance(g, Tensor) else wrap(value)
        return g if g.dtype == t.dtype else g.astype(t.dtype)
    return storage.as_array(value, t.dtype)


def _tensor_text(t: Tensor) -> str:
    from .printing import tensor_text

    return tensor_text(t)


def _tensor_html(t: Tensor) -> str | None:
    from .printing import tensor_html

    return tensor_html(t)


def _tape_text(tape: Tape) -> str:
    from .printing import tape_text

    return tape_text(tape)


def _tape_html(tape: Tape) -> str:
    from .drawing import tape_html

    return tape_html(tape)


seams.give(
    backward=backward,
    node_of=graph.node_of,
    hooked=hooks.applied,
    leaf_cotangent=hooks.leaf_cotangent,
    tensor_text=_tensor_text,
    tensor_html=_tensor_html,
    tape_text=_tape_text,
    tape_html=_tape_html,
)

__all__ = [
    "Function", "GradcheckError", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "forward_ad",
    "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "is_multithreading_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
