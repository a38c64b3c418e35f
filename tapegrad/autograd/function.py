"""`Function`: an op whose forward and backward the user writes, as in PyTorch.

Idea: one call is one entry, of the primitive `custom`, which has a slot for every tensor argument and keeps the context (`ctx`) as its
setting; its rule calls the user's `backward`. A function with several outputs has an entry `output` for each, which
reads part number i of the first entry; what flows between them are `Parts`, the cotangents that the outputs have so far.

Data: `ctx` keeps what `save_for_backward` was given as raw arrays with their versions, and the nodes of inputs. It keeps no slot of
its own entry (that would keep the entry alive for ever): an output that was saved is found again by a copy of its slot.

Invariant: `backward` sees tensors; under `create_graph` they are tracked and what it does is recorded.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import dual, lifetime, storage, sweep
from ..core.mode import is_grad_enabled, no_grad, recording
from ..core.primitive import Primitive, _token, primitive
from ..core.tape import RECORDER, SLOT, STRIDE, begin, locate, new_slot
from ..core.tensor import Tensor, as_tensor, wrap
from ..errors import GraphError, NotDifferentiable
from ..face.inplace import _rebase, _writable
from .saving import hooks_in_force

UNSAMPLED = {
    "samples": "what it does is the user's code; tests/test_function.py and tests/test_hooks.py"
}

# ------------------------------------------------------------------------------------------------ several outputs


class Parts:
    """Cotangents (or tangents) of a function's outputs, None where there is none yet; sums add part by part."""

    __slots__ = ("parts",)

    shape = ()
    dtype = (
        None  # these two as the entry's `_Outputs` has them, so that walks find the forms agreeing
    )
    nbytes = ndim = 0

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            [
                b if a is None else a if b is None else a + b
                for a, b in zip(self.parts, other.parts, strict=True)
            ]
        )

    def __len__(self) -> int:
        return next(len(part) for part in self.parts if part is not None)

    @staticmethod
    def stacked(directions: Sequence[Parts]) -> Parts:
        """Several directions along a new first axis."""
        columns = zip(*(d.parts for d in directions), strict=True)
        return Parts([None if column[0] is None else np.stack(column) for column in columns])

    def __getitem__(self, i: Any) -> Any:
        """One of several directions, as an array of them would give it."""
        return Parts([None if part is None else part[i] for part in self.parts])


class _Outputs:
    """Stands on the tape where the value of an entry with several outputs would; names the function."""

    __slots__ = ("name",)

    shape = ()
    dtype = None
    nbytes = ndim = 0

    def __init__(self, name: str) -> None:
        self.name = name


@primitive(
    lambda x, i, n: x.parts[i],
    name="output",
    unsupported=UNSAMPLED,
    backward=lambda x, y, kw: "Output",
    jvp=lambda ts, xs, out, i, n: np.zeros(out.shape, out.dtype) if ts[0].parts[i] is None else ts[0].parts[i],
)  # fmt: skip
def output(g, *, i, n):
    """One output of a function with several."""
    return Parts([g if k == i else None for k in range(n)])


# ------------------------------------------------------------------------------------------------------- the entry


def _unrepeatable(xs: Any, ctx: Any) -> Any:
    raise NotDifferentiable(
        f"{ctx.name()} was to be evaluated again by itself, but a Function runs only when it is applied."
    )


def _custom(name: str) -> Primitive:
    def rule(g, xs_shapes, wanted, *, ctx):
        """The user's backward."""
        return ctx._pull(g, wanted)

    return primitive(
        _unrepeatable,
        name=name,
        unsupported=UNSAMPLED,
        backward=lambda x, y, kw: kw[0].name(),
        jvp=lambda ts, xs, out, ctx: ctx._push(ts, xs),
    )(rule).primitive


custom = _custom("custom")
custom_saving = _custom("custom_saving")
# Whoever saved nothing can be walked again, as in PyTorch.
custom_saving.saves = True


@primitive(
    lambda x, value: value, name="once", pattern="same", backward="Once", unsupported=UNSAMPLED
)
def once(g, *, value):
    """The result of a backward that must not be differentiated again."""
    raise RuntimeError(
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


# ------------------------------------------------------------------------------------------------------ the context


class _Saved:
    """One saved tensor: its array (or what hooks packed it into), and where it came from (`node`, or the number of the output it is)."""

    __slots__ = ("array", "dual", "input", "node", "output", "packed")

    def __init__(self, t: Tensor, output: int | None, input: int | None, tracked: bool) -> None:
        hooks = hooks_in_force() if tracked else None
        self.node = t._node if output is None else None
        self.output = output
        self.input = input  # the number of the argument it is
        self.packed = None if hooks is None else hooks.packed(t._value, self.node)
        self.array = t._value if hooks is None else None
        self.dual: Tensor | None = None  # the dual tensor it was, in forward mode

    def __del__(self) -> None:
        if type(self.node) is int:
            lifetime.let_go(self.node + 0, 1)

    def data(self) -> Any:
        """The array again."""
        return self.array if self.packed is None else self.packed.raw()


class FunctionCtx(storage.Keeper):
    """What forward leaves for backward: saved tensors, marks, and whatever attributes the user sets.

    >>> import tapegrad as tg
    >>> class Square(tg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         print(isinstance(ctx, tg.autograd.function.FunctionCtx), ctx.needs_input_grad)
    ...         return x**2
    >>> _ = Square.apply(tg.tensor(3.0, requires_grad=True))
    True (True,)
    """

    needs_input_grad: tuple[bool, ...] = ()
    _plain = False
    """Whether no argument is a tensor: what forward saves is arrays and numbers then, and nobody will ask for it."""
    materialize_grads = True

    def __init__(self, function: type[Function]) -> None:
        """A context without saved values, as forward gets it. `_forms` and `_arguments` hold (shape, dtype) of each tensor, None for
        others.
        """
        self._function = function
        self._given: tuple[Any, ...] | None = None
        self._given_forward: tuple[Any, ...] | None = None
        self._saved: list[_Saved | None] | None = []
        self._saved_forward: list[_Saved | None] | None = None
        self._dirty: tuple[Any, ...] = ()
        self._constants: tuple[Any, ...] = ()
        self._forms: list[tuple[tuple[int, ...], np.dtype] | None] = []
        self._arguments: list[tuple[tuple[int, ...], np.dtype] | None] = []
        self._several = False
        self._slot = 0
        self._output_slots: list[int | None] = []
        self._pushing = False
        self._cut = False

    # ------------------------------------------------------------------------------------- called by forward

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (inputs, outputs, intermediates, or None) for backward, which finds them in `saved_tensors`."""
        self._given = self._only_tensors("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`, which finds them in `saved_tensors`."""
        self._given_forward = self._only_tensors("save_for_forward", tensors)

    def _only_tensors(self, method: str, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._plain:
            tensors = tuple(as_tensor(t) if _is_numeric(t) else t for t in tensors)
        for k, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"{method} can only save variables, but argument {k} is of type {type(t).__name__}: keep other "
                    "things as attributes, ctx.name = value."
                )
        return tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward overwrote in place; they must be among its outputs."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say through which outputs no gradient flows."""
        for k, t in enumerate(args):
            if not isinstance(t, Tensor) and not self._plain:
                raise TypeError(
                    f"mark_non_differentiable only accepts variables, but argument {k} is of type {type(t).__name__}: give it the tensors "
                    "that forward returns and that no gradient flows through."
                )
        self._constants = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward is given zeros (the default) or None for an output that nothing depends on."""
        if not isinstance(value, bool | np.bool_):
            raise TypeError(
                f"set_materialize_grads was given {type(value).__name__}, but it takes True or False: whether backward gets zeros or None "
                "for an output that nothing depends on."
            )
        self.materialize_grads = bool(value)

    # ------------------------------------------------------------------------------------ called by backward

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What was saved, as tensors connected to where they came from; raises if it was overwritten since, or is freed.

        None stands where forward saved None; the type leaves that out, as PyTorch's does, since few backwards have to ask.
        """
        saved = self._saved
        if self._pushing and self._saved_forward is not None:
            saved = self._saved_forward
        if saved is None:
            raise GraphError(sweep.SECOND_TIME, name="freed-graph")
        tensors: tuple[Any, ...] = tuple(
            None if item is None else self._unpacked(item) for item in saved
        )
        if self._function.clear_saved_tensors_on_access:
            self._saved = None
        return tensors

    saved_variables = saved_tensors

    @property
    def saved_for_forward(self) -> tuple[Tensor | None, ...]:
        """What `save_for_forward` kept."""
        saved = self._saved_forward or []
        return tuple(None if item is None else self._unpacked(item) for item in saved)

    def _unpacked(self, item: _Saved) -> Tensor:
        data = item.data()
        if item.packed is None:
            storage.check(self.name(), self._slot, (data,))
        t = wrap(data)
        dual.like(item.dual, t)
        if not self._cut:
            t._node = item.node if item.output is None else self._node_of_output(item.output)
        return t

    def _node_of_output(self, i: int) -> Any:
        """The slot object of an output: ours are copies, which keep nothing alive. None where nothing flows through it."""
        slot = self._output_slots[i] if self._output_slots else None
        if slot is None:
            return None
        found = _slot_object(slot)
        maker = _slot_object(self._slot) if found is None and self._several else None
        if maker is None:
            return found
        # The user dropped this output, and its entry is gone: make it again.
        tape, _ = locate(maker)  # type: ignore[misc]
        mine = new_slot()
        self._output_slots[i] = mine + 0
        tape.code.extend(self._output_entry(i, maker, mine))
        return mine

    def _output_entry(self, i: int, maker: Any, mine: Any) -> tuple[Any, ...]:
        out, settings = _token(*self._forms[i]), (i, len(self._forms))  # type: ignore[misc]
        whole = _Outputs(self.name())
        return (output.primitive.code, mine, maker, None, whole, None, out, settings)

    def _held(self) -> list[_Saved]:
        return [s for s in (*(self._saved or ()), *(self._saved_forward or ())) if s is not None]

    def _held_values(self) -> tuple[Any, ...]:
        """What overwriting.py asks of whoever saves values."""
        return tuple(item.array for item in self._held())

    def _save_from_write(self, apart: Callable[[Any], Any]) -> None:
        """Give saved tensors memory of their own where a write is about to hit them."""
        for item in self._held():
            item.array = apart(item.array)

    # ------------------------------------------------------------------------------------ as the graph node

    def name(self) -> str:
        """Name of the graph node, such as "ScaleBackward"."""
        return f"{self._function.__name__}Backward"

    def _as_node(self) -> Any:
        from .graph import node_of

        slot = _slot_object(self._slot)
        if slot is None:
            raise GraphError(
                f"{self.name()} was asked for its graph node, but there is none: the call was not recorded (yet), or its graph is "
                "gone. Ask after apply, while its result is held.",
                name="freed-graph",
            )
        return node_of(slot)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """For each tensor argument, the view of what made it and its output number."""
        return self._as_node().next_functions

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for notes about this node."""
        return self._as_node().metadata

    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Call `fn(grad_inputs, grad_outputs)` after backward has run."""
        return self._as_node().register_hook(fn)

    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Call `fn(grad_outputs)` before backward runs."""
        return self._as_node().register_prehook(fn)

    # ----------------------------------------------------------------------------------------- called by walks

    def _pull(self, g: Any, wanted: Sequence[bool]) -> list[Any]:
        """Cotangents of the tensor arguments, from those of the outputs: the user's backward, checked."""
        parts = g.parts if isinstance(g, Parts) else [g]
        recorded = any(isinstance(part, Tensor) for part in parts)
        grads = [
            self._materialized(part, form) for part, form in zip(parts, self._forms, strict=True)
        ]
        with recording(recorded):
            results = self._function._backward()(self, *grads)
        results = tuple(results) if isinstance(results, tuple | list) else (results,)
        n = len(self._arguments)
        if len(results) < n or any(r is not None for r in results[n:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(results)}): backward "
                "returns one for each argument of forward, None where there is none."
            )
        cotangents: list[Any] = []
        for i, (result, form) in enumerate(zip(results, self._arguments, strict=False)):
            if form is None:
                if result is not None:
                    raise RuntimeError(
                        f"function {self.name()} returned a gradient different than None at position {i + 1}, but the "
                        "corresponding forward input was not a Variable: return None in its place"
                    )
            elif not wanted[len(cotangents)] or result is None:
                cotangents.append(None)
            else:
                cotangents.append(self._validated(i, result, form, recorded))
        return cotangents

    def _materialized(self, part: Any, form: Any) -> Any:
        if part is None:
            if form is None or not self.materialize_grads:
                return None
            return wrap(np.zeros(*form))
        return part if isinstance(part, Tensor) else wrap(np.asarray(part))

    def _validated(self, i: int, result: Any, form: Any, recorded: bool) -> Any:
        """A gradient that backward returned for argument `i`, in the form (shape, dtype) of that argument; an error where it does not
        fit.
        """
        shape, dtype = form
        if not isinstance(result, Tensor | np.ndarray | np.generic | float | int | complex):
            raise TypeError(
                f"function {self.name()} returned a {type(result).__name__} as the gradient at index {i}: expected a Tensor or None."
            )
        own = np.shape(result)
        if own != shape and not _reduces(own, shape):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got {list(own)} but expected shape "
                f"compatible with {list(shape)}"
            )
        if recorded:
            return result if isinstance(result, Tensor) else wrap(np.asarray(result))
        value = result._value if isinstance(result, Tensor) else np.asarray(result)
        if value.dtype.kind not in "fc":
            value = value.astype(dtype)
        # A view, since a leaf keeps no array that somebody else holds.
        return (
            value[...] if own == shape else np.broadcast_to(value, np.broadcast_shapes(own, shape))
        )

    def _push(self, ts: Sequence[Any], values: Sequence[Any]) -> Any:
        """Tangents of the outputs: the user's jvp, or else backward, transposed (it is linear in its gradients).

        They are recorded if `values` are tensors, or if tangents are; in the second case what was saved is constant to them.
        """
        connected = any(isinstance(value, Tensor) for value in values)
        recorded = connected or any(isinstance(t, Tensor) and t._node is not None for t in ts)
        before, self._cut = self._cut, not connected
        try:
            if self._function.jvp is not Function.jvp:
                return self._pushed(ts, recorded)
            tangents = [self._transposed(i, ts, recorded) for i in range(len(self._forms))]
            return Parts(tangents) if self._several else tangents[0]
        finally:
            self._cut = before

    def _pushed(self, ts: Sequence[Any], recorded: bool) -> Any:
        """Tangents of the outputs from those of the arguments, by the user's jvp: one array, or Parts of several outputs."""
        given = iter(ts)
        arguments = []
        for form in self._arguments:
            t = None if form is None else next(given)
            arguments.append(None if form is None else self._materialized(t, form))
        self._pushing = True
        try:
            with recording(recorded):
                results = self._function.jvp(self, *arguments)
        finally:
            self._pushing = False
        results = tuple(results) if isinstance(results, tuple | list) else (results,)
        if len(results) != len(self._forms):
            raise RuntimeError(
                f"function {self.name()}: jvp returned {len(results)} tangents, but forward has {len(self._forms)} outputs."
            )
        tangents: list[Any] = []
        for i, (result, form) in enumerate(zip(results, self._forms, strict=True)):
            if result is None or form is None:
                tangents.append(None)
                continue
            if np.shape(result) != form[0]:
                raise RuntimeError(
                    f"function {self.name()}: jvp returned a tangent of shape {np.shape(result)} for output {i}, which has shape {form[0]}."
                )
            value = result if isinstance(result, Tensor) else wrap(np.asarray(result))
            if value.dtype != form[1] and form[1].kind in "fc":
                if not np.can_cast(value.dtype, form[1], "same_kind"):
                    raise RuntimeError(
                        f"function {self.name()}: jvp returned a tangent of dtype {value.dtype} for output {i}, which has dtype {form[1]}: "
                        "return the derivative of what forward returned."
                    )
                value = value.astype(form[1])
            tangents.append(value if recorded or value._node is not None else value._value)
        if self._several:
            return Parts(tangents)
        return np.zeros(*self._forms[0]) if tangents[0] is None else tangents[0]  # type: ignore[misc]

    def _transposed(self, i: int, ts: Sequence[Any], recorded: bool) -> Any:
        """Cotangent of output `i`'s cotangent: the derivative of backward, which is linear in that cotangent, along `ts`."""
        from ..core.executors import vjp_of

        form = self._forms[i]
        if form is None:
            return None
        wanted = [t is not None for t in ts]

        def transpose(u: Any) -> list[Any]:
            n = len(self._forms)
            pulled = self._pull(
                Parts([u if k == i else None for k in range(n)]) if self._several else u, wanted
            )
            return [c for c, w in zip(pulled, wanted, strict=True) if w]

        return vjp_of(transpose, np.zeros(*form), [t for t in ts if t is not None], recorded)


def _slot_object(slot: int) -> Any:
    """The slot itself, as its tape has it, for a copy of it; None where its entry is gone."""
    place = locate(slot)
    if place is None:
        return None
    tape, position = place
    return tape.code[position * STRIDE + SLOT]


def _reduces(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a gradient of shape `own` can be summed, or spread, to `shape`."""
    try:
        np.broadcast_shapes(own, shape)
    except ValueError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------- the function


class FunctionMeta(type):
    """The class of Function classes.

    >>> import tapegrad as tg
    >>> type(tg.autograd.Function) is tg.autograd.function.FunctionMeta
    True
    """


BackwardCFunction = FunctionCtx  # in PyTorch a class of its own, of which every ctx is


class Function(metaclass=FunctionMeta):
    """An op of your own: subclass it, write `forward` and `backward` as static methods, call `apply`.

    `forward(ctx, *args)` gets the arguments as they are and computes on them untracked; `ctx.save_for_backward` keeps tensors.
    Or `forward(*args)` with `setup_context(ctx, inputs, output)`. `backward(ctx, *grad_outputs)` returns one gradient for each
    argument of forward, None where there is none. An output that is an argument, or a view of one, is a read-only copy, unless forward
    wrote to the argument and says so by `ctx.mark_dirty(x)`. `jvp(ctx, *tangents)` is the forward mode; without one, backward is
    transposed.
    Source: PyTorch's `torch.autograd.Function`, whose semantics these are.

    >>> import tapegrad as tg
    >>> class Cube(tg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x**2 * g
    >>> x = tg.tensor(2.0, requires_grad=True)
    >>> y = Cube.apply(x)
    >>> y.backward()
    >>> y.grad_fn, x.grad
    (<CubeBackward>, tensor(12.))
    """

    # The methods below take what they like: **_ lets a checker accept those of a subclass with parameters of their own.
    generate_vmap_rule = False
    clear_saved_tensors_on_access = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The value; to be written by the subclass."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Where forward takes no ctx: what to keep for backward."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any, **_: Any) -> Any:
        """The gradients of the arguments; to be written by the subclass, here or as `vjp`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward "
            "mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any, **_: Any) -> Any:
        """The tangents of the outputs; optional."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any, **_: Any) -> Any:
        """PyTorch's rule for batches; kept for code that defines it, since nothing here batches."""
        raise NotImplementedError("vmap is not implemented for this Function.")

    @classmethod
    def _backward(cls) -> Callable[..., Any]:
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
            )
        return cls.vjp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"an instance of {type(self).__name__} was called. Legacy autograd function with non-static forward method is deprecated. "
            "Please use new-style autograd function with static forward method, and call apply on the class."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record the call if an argument is tracked."""
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate:
            args = _positional(cls, args, kwargs, separate)
        ctx = FunctionCtx(cls)
        given = args
        args = tuple(_without_tangent(a) for a in given)
        ctx.needs_input_grad = tuple(
            isinstance(a, Tensor) and (a._node is not None or a is not g)
            for a, g in zip(args, given, strict=True)
        )
        tracked = is_grad_enabled() and any(
            isinstance(a, Tensor) and a._node is not None for a in args
        )
        ctx._plain = not any(isinstance(a, Tensor) for a in args)
        with no_grad():
            if separate:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        several = isinstance(result, tuple | list)
        outputs = [_as_output(o) for o in (result if several else (result,))]
        if ctx._plain:
            outputs = [as_tensor(o) if _is_numeric(o) else o for o in outputs]
        duals = any(a is not g for a, g in zip(args, given, strict=True))
        if duals and ctx._dirty:
            raise NotDifferentiable(
                f"{ctx.name()}: forward mode was asked of a Function that overwrites its argument, whose tangent would be another "
                "value's. Apply it to a clone().",
                name="in-place",
            )
        _Call(ctx, args, outputs, several, tracked).record()
        if duals:
            _carry(ctx, given, outputs, tracked)
        return tuple(outputs) if several else outputs[0]


def _positional(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], separate: bool
) -> tuple[Any, ...]:
    """Arguments in the order of forward's signature, in which backward returns their gradients."""
    ctx = () if separate else (None,)
    bound = inspect.signature(cls.forward).bind(*ctx, *args, **kwargs)
    if separate:
        bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{cls.__name__}.forward() takes {', '.join(bound.kwargs)} by keyword only, but backward returns gradients by position: "
            "make them positional arguments."
        )
    return bound.args[len(ctx) :]


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float | complex)


def _as_output(o: Any) -> Any:
    return wrap(o) if isinstance(o, np.ndarray | np.generic) else o


def _without_tangent(a: Any) -> Any:
    """The argument as forward sees it: a dual tensor's tangent goes another way, through `jvp`."""
    return a if dual.tangent_of(a) is None else sweep.tracked(a._value, a._node)


def _carry(ctx: FunctionCtx, given: Sequence[Any], outputs: list[Any], tracked: bool) -> None:
    """Forward mode: the tangents of the outputs, from those of the arguments."""
    inputs = [a for a in given if isinstance(a, Tensor)]
    tangents = [dual.tangent_of(a) for a in inputs]
    tracked = tracked or any(t is not None and t._node is not None for t in tangents)
    level = next(a._get("dual")[0] for a in inputs if dual.tangent_of(a) is not None)
    for item in ctx._saved or ():
        if item is not None and item.input is not None:
            item.dual = given[item.input]
    values = inputs if tracked else ()
    result = ctx._push([t if tracked or t is None else t._value for t in tangents], values)
    for o, t in zip(outputs, result.parts if ctx._several else [result], strict=True):
        if isinstance(o, Tensor) and t is not None and o.dtype.kind in "fc":
            dual.with_tangent(o, level, wrap(t))
    for item in ctx._saved or ():
        if item is not None and item.output is not None:
            item.dual = outputs[item.output]


class _Call:
    """One application, after forward: turns what it returned into tracked outputs."""

    def __init__(
        self,
        ctx: FunctionCtx,
        args: Sequence[Any],
        outputs: list[Any],
        several: bool,
        tracked: bool,
    ) -> None:
        """What one apply has: its context, arguments and outputs, and whether the call is tracked."""
        self.ctx = ctx
        self.args = args
        self.outputs = outputs
        self.returned = list(outputs)  # before any is replaced: what ctx was told of
        self.tracked = tracked
        ctx._several = several
        ctx._arguments = [(a.shape, a.dtype) if isinstance(a, Tensor) else None for a in args]
        ctx._forms = [(o.shape, o.dtype) if isinstance(o, Tensor) else None for o in outputs]
        if not several and ctx._forms[0] is None:
            raise TypeError(
                f"{ctx._function.__name__}.forward: expected to return a Tensor or a tuple that holds some, but got "
                f"{type(outputs[0]).__name__}."
            )

    def record(self) -> None:
        """Append an entry for each differentiable output, after the checks of what was marked dirty."""
        ctx = self.ctx
        dirty = {id(t) for t in ctx._dirty}
        for t in ctx._dirty:
            if not isinstance(t, Tensor):
                raise TypeError(
                    f"{ctx._function.__name__}: mark_dirty was given {type(t).__name__}, but it takes tensors: the arguments that "
                    "forward overwrites, and returns."
                )
            if not any(t is o for o in self.returned):
                raise RuntimeError(
                    f"{ctx._function.__name__}: some tensors marked dirty are not outputs: return what you overwrite in place."
                )
            if not any(t is a for a in self.args):
                warnings.warn(
                    f"{ctx._function.__name__}: Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there "
                    "is no need to pass it to mark_dirty().",
                    UserWarning,
                    stacklevel=4,
                )
        bases = {id(t): _writable(t, ctx.name(), True) for t in ctx._dirty if self.tracked}
        for t in ctx._dirty:
            if isinstance(t._value, np.ndarray):
                storage.touch(t._value)
        self._separate(dirty)
        constants = {id(t) for t in ctx._constants}
        flows = [
            form is not None and form[1].kind in "fc" and id(returned) not in constants
            for form, returned in zip(ctx._forms, self.returned, strict=True)
        ]
        for o, flow in zip(self.returned, flows, strict=True):
            base = None if flow else bases.get(id(o))
            if base is not None and base._node is not None:
                _rebase(o, base, None)  # it holds constants now
        if not (self.tracked and any(flows)):
            self._freeze()
            return
        record = RECORDER.get() or begin()
        slot = new_slot()
        ctx._slot = slot + 0
        ctx._bearer = lifetime.bearer()
        self._freeze()
        inputs = [a for a in self.args if isinstance(a, Tensor)]
        nodes = tuple(a._node for a in inputs)
        tokens = tuple(_token(a.shape, a.dtype) for a in inputs)
        op = custom_saving if ctx._saved else custom
        if not ctx._several:
            (o,) = self.outputs
            ctx._output_slots = [ctx._slot]
            record((op.code, slot, nodes, None, tokens, None, _token(o.shape, o.dtype), (ctx,)))
            self._attach(o, slot, 0, bases, dirty)
            return
        whole = _Outputs(ctx.name())
        record((op.code, slot, nodes, None, tokens, None, whole, (ctx,)))
        for i, o in enumerate(self.outputs):
            if flows[i]:
                mine = new_slot()
                ctx._output_slots.append(mine + 0)
                record(ctx._output_entry(i, slot, mine))
                self._attach(o, mine, i, bases, dirty)
            else:
                ctx._output_slots.append(None)

    def _separate(self, dirty: set[int]) -> None:
        """Give each output a tensor of its own: one that is an argument, or shares its memory, is a read-only copy unless marked dirty."""
        arrays = [a._value for a in self.args if isinstance(a, Tensor)]
        seen: set[int] = set()
        for i, o in enumerate(self.outputs):
            if not isinstance(o, Tensor) or (id(o) in dirty and id(o) not in seen):
                seen.add(id(o))
                continue
            shared = any(np.may_share_memory(o._value, array) for array in arrays)
            if shared or id(o) in seen or o._node is not None:
                self.outputs[i] = wrap(np.array(o._value) if o.ndim else o._value)
                if shared and isinstance(self.outputs[i]._value, np.ndarray):
                    # What is written to it would not get to the argument, as it would through a view.
                    self.outputs[i]._value.flags.writeable = False
            seen.add(id(o))

    def _freeze(self) -> None:
        """Turn what forward saved into `_Saved` items, which name outputs by number, so that no cycle of references remains."""
        ctx = self.ctx

        def frozen(tensors: Any) -> list[_Saved | None]:
            items: list[_Saved | None] = []
            for t in tensors:
                if t is None:
                    items.append(None)
                    continue
                number = next((i for i, o in enumerate(self.returned) if o is t), None)
                argument = next((i for i, a in enumerate(self.args) if a is t), None)
                if number is not None and (argument is None or any(t is d for d in ctx._dirty)):
                    items.append(_Saved(self.outputs[number], number, None, self.tracked))
                else:
                    items.append(_Saved(t, None, argument, self.tracked))
            return items

        if ctx._given is not None:
            ctx._saved = frozen(ctx._given)
        if ctx._given_forward is not None:
            ctx._saved_forward = frozen(ctx._given_forward)
        ctx._given = ctx._given_forward = None
        ctx._dirty = ctx._constants = ()

    def _attach(
        self, o: Tensor, slot: Any, i: int, bases: dict[int, Tensor], dirty: set[int]
    ) -> None:
        if id(o) in dirty:
            _rebase(o, bases[id(o)], slot)
        else:
            o._node = slot
        if i:
            o._put("output_nr", i)


class InplaceFunction(Function):
    """A Function that may work in place; PyTorch's older name.

    >>> import tapegrad as tg
    >>> issubclass(tg.autograd.function.InplaceFunction, tg.autograd.Function)
    True
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that is not to be differentiated again: doing so raises.

    >>> import tapegrad as tg
    >>> class Double(tg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @tg.autograd.function.once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = tg.tensor(1.0, requires_grad=True)
    >>> (g,) = tg.autograd.grad(Double.apply(x), x, grad_outputs=x * 1, create_graph=True)
    >>> tg.autograd.grad(g, x)
    Traceback (most recent call last):
    RuntimeError: trying to differentiate twice a function that was marked with @once_differentiable
    """

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        """Run backward unrecorded; where it is to be recorded, its outputs raise when they are differentiated."""
        if not isinstance(ctx, FunctionCtx):
            raise TypeError(
                f"a backward marked with @once_differentiable was called with {type(ctx).__name__} for ctx: it belongs in a Function, "
                "whose apply calls it."
            )
        with no_grad():
            outputs = fn(ctx, *args)
        if not is_grad_enabled():
            return outputs
        # What it depends on: the gradients it was given, and the tensors it may have read.
        sources = [a for a in args if isinstance(a, Tensor) and a._node is not None]
        sources += [t for t in ctx.saved_tensors if t is not None and t._node is not None]
        if not sources:
            return outputs
        several = isinstance(outputs, tuple | list)
        marked = tuple(
            once(sources[0], np.asarray(o._value)) if isinstance(o, Tensor) else o
            for o in (outputs if several else (outputs,))
        )
        return marked if several else marked[0]

    return wrapper


__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
