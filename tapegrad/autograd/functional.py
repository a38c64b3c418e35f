"""PyTorch's `autograd.functional`: derivatives of a function of tensors, by name.

Each function runs `func` once on fresh leaves (or, with `create_graph`, on recorded aliases of tracked inputs). Products with
a Jacobian's transpose are walks down the tape (`autograd.grad`); products with a Jacobian (`jvp`, `hvp`, the forward strategies)
carry tangents up it (`sweep.push`), where PyTorch walks twice. With `strict`, a result that does not depend on an input is
an error instead of zeros; whether it does is read off the tape.

Arguments and results are a tensor, or a tuple of them; a Jacobian of tuples is a tuple of tuples, by output, then by input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import dual, sweep
from ..core.mode import enable_grad, is_grad_enabled, recording
from ..core.tape import SLOT, STRIDE, Slot, between, current, new_slot
from ..core.tensor import Tensor, wrap
from ..errors import GraphError
from ..face.adoption import adopted
from ..ops.joining import stack
from ..ops.shaping import alias, moveaxis, reshape

Tensors = tuple[Tensor, ...]
Function = Callable[..., Any]

_STRICT = "This is not allowed in strict mode"
_OF_USER = "outputs of the user-provided function"


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """Value of `func` and `v` times its Jacobian: `(func(*inputs), vjp)`, the latter in the form of the inputs.

    `v` has the form and shapes of the output; it may be left out if that is one number. With `create_graph` both can be
    differentiated; with `strict` an output that depends on no input, or an input that no output depends on, raises RuntimeError.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.vjp(lambda x, y: 2 * x + 3 * y, (tg.ones(2), tg.ones(2)), tg.ones(2))
    (tensor([5., 5.]), (tensor([2., 2.]), tensor([3., 3.])))
    """
    run = _Run(func, inputs, create_graph, strict, "vjp")
    if v is None:
        if len(run.outputs) != 1 or run.outputs[0].size != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single Tensor with a single "
                "element: pass v, in the shape of the output."
            )
        vs: tuple[Any, ...] = (None,)
    else:
        vs = _vector(v, run.outputs, run.output_is_tuple, create_graph, "vjp")
    with recording(create_graph or is_grad_enabled()):
        found = _gradients(run.outputs, run.inputs, vs, create_graph)
        result = run.filled(found, run.inputs, _INDEPENDENT_OUTPUT, _CONSTANT_JACOBIAN)
    return run.value(), run.like_inputs(result)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """Value of `func` and its Jacobian times `v`: `(func(*inputs), jvp)`, the latter in the form of the output.

    `v` has the form and shapes of the inputs; it may be left out if that is one number. `create_graph` and `strict` as for
    `vjp`. The tangents are carried up the tape once, so it costs about as much as `func`.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.jvp(lambda x: (x**2).sum(), tg.tensor([1.0, 2.0]), tg.tensor([1.0, 1.0]))
    (tensor(5.), tensor(6.))
    """
    run = _Run(func, inputs, create_graph, strict, "jvp", v)
    if strict:
        reached = run.below(run.outputs)
        for i, x in enumerate(run.inputs):
            if x._node not in reached:
                raise RuntimeError(_INDEPENDENT_OUTPUT.format(i))
    found = run.pushed(run.outputs, run.vector)
    result = run.filled(found, run.outputs, _UNUSED_TANGENT, _CONSTANT_JACOBIAN)
    return run.value(), run.like_outputs(result)


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func`: for each output and each input, shape of the output, then shape of the input.

    `strategy="reverse-mode"` makes one walk per element of the outputs, "forward-mode" carries all elements of an input
    up the tape at once; `vectorize` is accepted and changes nothing. Raises RuntimeError with `strict` where an output does
    not depend on an input (in reverse mode only), AssertionError for another strategy.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.jacobian(lambda x: x**2, tg.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", but got {strategy!r}. Hint: If your function '
            'has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strict and (vectorize or strategy == "forward-mode"):
        other, instead = (
            ("vectorized=True", "vectorize=False")
            if strategy == "reverse-mode"
            else ('strategy="forward-mode"', 'strategy="reverse-mode"')
        )
        raise RuntimeError(
            f"autograd.functional.jacobian: `strict=True` and `{other}` are not supported together. Please either set "
            f"`strict=False` or `{instead}`."
        )
    run = _Run(func, inputs, create_graph, strict, "jacobian")
    rows = run.reverse_rows() if strategy == "reverse-mode" else run.forward_rows()
    if not create_graph:
        rows = [tuple(block.detach() for block in row) for row in rows]
    return run.like_outputs([run.like_inputs(row, detached=True) for row in rows], detached=True)


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function that returns one number: for each pair of inputs, both their shapes.

    The gradient is recorded and then differentiated, by walks or, with `outer_jacobian_strategy="forward-mode"`, by tangents.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.hessian(lambda x: x[0] ** 2 * x[1], tg.tensor([1.0, 2.0]))
    tensor([[4., 2.],
            [2., 0.]])
    """
    is_tuple, _ = _tuple_of(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode", but got '
            f"{outer_jacobian_strategy!r}."
        )

    def gradient(*args: Tensor) -> Tensors:
        run = _Run(func, args, True, strict, "hessian")
        found = _gradients((run.number(),), run.inputs, None, True)
        if strict:
            for i, g in enumerate(found):
                _refuse_constant(g, _CONSTANT_GRADIENT.format(i))
        return tuple(_zeros(x) if g is None else g for g, x in zip(found, run.inputs, strict=True))

    result = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return result if is_tuple else result[0]


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """Value of a function that returns one number, and `v` times its Hessian, in the form of the inputs.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.vhp(lambda x: (x**3).sum(), tg.ones(2), tg.tensor([1.0, 0.0]))
    (tensor(2.), tensor([6., 0.]))
    """
    run = _Run(func, inputs, create_graph, strict, "vhp", v)
    gradient = run.gradient()
    with recording(create_graph or is_grad_enabled()):
        found = _gradients(gradient, run.inputs, run.vector, create_graph)
        result = run.filled(found, run.inputs, _INDEPENDENT_JACOBIAN, _CONSTANT_HESSIAN)
    return run.value(), run.like_inputs(result)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """Value of a function that returns one number, and its Hessian times `v`, in the form of the inputs.

    Forward over reverse: the tangent `v` is carried through the recorded gradient, at about the cost of `vhp`.

    >>> import tapegrad as tg
    >>> tg.autograd.functional.hvp(lambda x: (x**3).sum(), tg.ones(2), tg.tensor([1.0, 0.0]))
    (tensor(2.), tensor([6., 0.]))
    """
    run = _Run(func, inputs, create_graph, strict, "hvp", v)
    found = run.pushed(run.gradient(), run.vector)
    result = run.filled(found, run.inputs, _UNUSED_IN_HESSIAN, _CONSTANT_HESSIAN)
    return run.value(), run.like_inputs(result)


# ------------------------------------------------------------------------------------------------ what strict refuses

_INDEPENDENT_OUTPUT = (
    "The output of the user-provided function is independent of input {}. " + _STRICT + "."
)
_INDEPENDENT_OF = (
    "Output {} of the user-provided function is independent of input {}. " + _STRICT + "."
)
_CONSTANT_JACOBIAN = (
    "The jacobian of the user-provided function is independent of input {}. " + _STRICT + " when create_graph=True."
)  # fmt: skip
_INDEPENDENT_JACOBIAN = (
    "The jacobian of the user-provided function is independent of input {}. " + _STRICT + "."
)
_CONSTANT_HESSIAN = (
    "The hessian of the user-provided function is independent of input {}. " + _STRICT + " when create_graph=True."
)  # fmt: skip
_UNUSED_TANGENT = (
    "Output {} of the user-provided function is independent of the inputs. " + _STRICT + "."
)
_UNUSED_IN_HESSIAN = (
    "The gradient with respect to input {} does not depend on the inputs. " + _STRICT + "."
)
_CONSTANT_GRADIENT = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is independent "
    "of the input. " + _STRICT + ". You should ensure that your function is twice differentiable and that the jacobian "
    "depends on the inputs (this would be violated by a linear function for example)."
)  # fmt: skip
_CONSTANT_OUTPUT = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner "
    "from the input when running in strict mode."
)


def _refuse_constant(t: Tensor | None, message: str) -> None:
    if t is None or t._node is None:
        raise RuntimeError(message)


# ------------------------------------------------------------------------------------------------ one run of func


class _Run:
    """One run of `func` on prepared inputs, on the current tape: what went in, what came out, and the slots in between."""

    def __init__(
        self,
        func: Function,
        inputs: Any,
        create_graph: bool,
        strict: bool,
        name: str,
        v: Any = False,
    ) -> None:
        """Run `func` once, recorded, on copies of `inputs`; `v` is a direction, or False for none."""
        self.create_graph = create_graph
        self.strict = strict
        self.name = name
        with enable_grad():
            self.input_is_tuple, given = _tuple_of(inputs, "inputs", name)
            self.first: Slot = new_slot()
            self.inputs = _prepared(given, create_graph, True)
            if v is not False:
                self.vector = self._direction(v)
            self.output_is_tuple, self.outputs = _tuple_of(
                adopted(func)(*self.inputs), _OF_USER, name
            )
        if not create_graph and current().outer is not None:
            from . import demand_recorded

            nodes = [t._node for t in (*given, *self.outputs)]
            demand_recorded(f"autograd.functional.{name}", nodes, create_graph)
        if strict:
            for i, y in enumerate(self.outputs):
                _refuse_constant(y, _CONSTANT_OUTPUT.format(i))

    def _direction(self, v: Any) -> Tensors:
        """What the Jacobian or Hessian is multiplied by, in the form of the inputs; 1 for a lone number."""
        if v is not None:
            return _vector(v, self.inputs, self.input_is_tuple, self.create_graph, self.name)
        if len(self.inputs) != 1 or self.inputs[0].size != 1:
            raise RuntimeError(
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a "
                "single element: pass v, in the shape of the inputs."
            )
        return (wrap(np.ones(self.inputs[0].shape, self.inputs[0].dtype)),)

    # ---- derivatives

    def number(self) -> Tensor:
        """The output, which must be one tensor with one element."""
        if self.output_is_tuple:
            raise RuntimeError(f"The function given to {self.name} should return a single Tensor")
        if self.outputs[0].size != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {self.name} should contain a single element, but it has "
                f"shape {self.outputs[0].shape}: reduce it, for example with sum()."
            )
        return self.outputs[0]

    def gradient(self) -> tuple[Tensor | None, ...]:
        """The recorded gradient of a function that returns one number."""
        with enable_grad():
            found = _gradients((self.number(),), self.inputs, None, True)
        if self.strict:
            for i, g in enumerate(found):
                if g is None:
                    raise RuntimeError(_INDEPENDENT_OUTPUT.format(i))
                _refuse_constant(g, _CONSTANT_GRADIENT.format(i))
        return found

    def pushed(
        self,
        outputs: Sequence[Tensor | None],
        tangents: Sequence[Tensor | None],
        width: int | None = None,
    ) -> list[Tensor | None]:
        """Tangents of the outputs from those of the inputs; None for an output that depends on none of them."""
        # Rules applied to tensors see their tangents too: those of an open forward level.
        record = self.create_graph or bool(dual.saved)
        carried: dict[Any, Any] = {
            x._node: t if record else t._value
            for x, t in zip(self.inputs, tangents, strict=True)
            if t is not None
        }
        last = new_slot()
        tape = current()
        # Entries that are recorded meanwhile are appended to this very tape.
        with tape.held(), recording(self.create_graph):
            lost = sweep.push(*between(tape, self.first, last), carried, record, width)
        if any(y is not None and y._node in lost for y in outputs):
            raise GraphError(sweep.SECOND_TIME, name="freed-graph")
        found = [None if y is None else carried.get(y._node) for y in outputs]
        return [t if t is None or isinstance(t, Tensor) else wrap(t) for t in found]

    def below(self, outputs: Sequence[Tensor]) -> set[Any]:
        """Nodes that the outputs depend on, as far as the run goes."""
        tape = current()
        reached = {y._node for y in outputs}
        with tape.held():
            code = tape.code
            for k in range((len(tape) - 1) * STRIDE, tape.position(self.first) * STRIDE - 1, -STRIDE):  # fmt: skip
                if code[k + SLOT] in reached:
                    reached.update(sweep.operands(code, k))
        return reached

    def reverse_rows(self) -> list[Tensors]:
        """rows[output][input], one walk per element of each output."""
        return [self._reverse_row(i, y) for i, y in enumerate(self.outputs)]

    def _reverse_row(self, i: int, y: Tensor) -> Tensors:
        """The Jacobians of output `y` by each input, a walk for each entry of `y`: shapes y.shape + x.shape."""
        columns: list[list[Any]] = [[] for _ in self.inputs]
        with recording(self.create_graph or is_grad_enabled()):
            for k in range(y.size):
                unit = np.zeros(y.shape, y.dtype)
                unit.flat[k] = 1
                found = _gradients((y,), self.inputs, (wrap(unit),), self.create_graph, retain=True)
                for j, (g, x) in enumerate(zip(found, self.inputs, strict=True)):
                    if g is None and self.strict:
                        raise RuntimeError(_INDEPENDENT_OF.format(i, j))
                    if g is not None and self.strict and self.create_graph:
                        _refuse_constant(g, _CONSTANT_JACOBIAN.format(i))
                    columns[j].append(_zeros(x) if g is None else g)
            return tuple(
                reshape(stack(column), y.shape + x.shape) if column else wrap(np.zeros(y.shape + x.shape, x.dtype))
                for column, x in zip(columns, self.inputs, strict=True)
            )  # fmt: skip

    def forward_rows(self) -> list[Tensors]:
        """rows[output][input], one push per input, which carries all its elements."""
        columns = []
        with recording(self.create_graph):
            for j, x in enumerate(self.inputs):
                n = x.size
                basis = wrap(np.eye(n, dtype=x.dtype).reshape(n, *x.shape))
                given = [basis if i == j else None for i in range(len(self.inputs))]
                column = []
                for y, t in zip(self.outputs, self.pushed(self.outputs, given, n), strict=True):
                    shape = y.shape + x.shape
                    column.append(
                        wrap(np.zeros(shape, y.dtype)) if t is None else reshape(moveaxis(t, 0, -1), shape)
                    )  # fmt: skip
                columns.append(column)
        return [tuple(row) for row in zip(*columns, strict=True)]

    # ---- results

    def filled(
        self,
        found: Sequence[Tensor | None],
        likes: Sequence[Tensor],
        missing: str,
        constant: str,
    ) -> Tensors:
        """Zeros for what does not depend; with `strict` the errors `missing` and `constant` instead."""
        for i, t in enumerate(found):
            if self.strict and t is None:
                raise RuntimeError(missing.format(i))
            if self.strict and self.create_graph and t is not None:
                _refuse_constant(t, constant.format(i))
        return tuple(_zeros(x) if t is None else t for t, x in zip(found, likes, strict=True))

    def value(self) -> Any:
        """What `func` returned."""
        return self.like_outputs(self.outputs)

    def like_inputs(self, parts: Sequence[Any], detached: bool = False) -> Any:
        """A tuple, if the inputs were one."""
        return self._given(parts, self.input_is_tuple, detached)

    def like_outputs(self, parts: Sequence[Any], detached: bool = False) -> Any:
        """A tuple, if the output was one."""
        return self._given(parts, self.output_is_tuple, detached)

    def _given(self, parts: Sequence[Any], is_tuple: bool, detached: bool) -> Any:
        if not self.create_graph and not detached:
            parts = [t.detach() for t in parts]
        return tuple(parts) if is_tuple else parts[0]


# ------------------------------------------------------------------------------------------------ arguments


def _tuple_of(given: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """Whether a tuple was given, and the tensors as one."""
    if not isinstance(given, tuple):
        if not isinstance(given, Tensor):
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the given {what} has type "
                f"{type(given)}."
            )
        return False, (given,)
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the value at index {i} has "
                f"type {type(t)}."
            )
    return True, given


def _prepared(tensors: Tensors, create_graph: bool, tracked: bool) -> Tensors:
    """Tensors of our own: what is captured by the function, though it be the same tensor, is a constant to it."""
    return tuple(
        alias(t) if create_graph and t.requires_grad else t.detach().requires_grad_(tracked)
        for t in tensors
    )


def _vector(v: Any, others: Tensors, is_tuple: bool, create_graph: bool, name: str) -> Tensors:
    """`v` as a tuple of tensors that have the shapes of `others`."""
    _, given = _tuple_of(v, "v", name)
    if len(given) != len(others):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(others)} but got {len(given)}."
            if is_tuple
            else "The given v should contain a single Tensor."
        )
    for i, (t, other) in enumerate(zip(given, others, strict=True)):
        if t.shape != other.shape:
            entry = f"Entry {i} in " if is_tuple else ""
            raise RuntimeError(
                f"{entry}v has invalid size: should be {other.shape} but got {t.shape}."
            )
    with enable_grad():
        return _prepared(given, create_graph, False)


def _gradients(
    outputs: Sequence[Tensor | None],
    inputs: Tensors,
    vs: Sequence[Any] | None,
    create_graph: bool,
    retain: bool | None = None,
) -> tuple[Tensor | None, ...]:
    """`autograd.grad` of those outputs that are tracked; None for an input that none of them depends on."""
    from . import grad

    pairs = [
        (y, v)
        for y, v in zip(outputs, vs or [None] * len(outputs), strict=True)
        if y is not None and y._node is not None
    ]
    if not pairs:
        return (None,) * len(inputs)
    ys, seeds = zip(*pairs, strict=True)
    return grad(ys, inputs, seeds, retain, create_graph, allow_unused=True)


def _zeros(like: Tensor) -> Tensor:
    return wrap(np.zeros(like.shape, like.dtype))


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def __dir__() -> list[str]:
    return __all__
