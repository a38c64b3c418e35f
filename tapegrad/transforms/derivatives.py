"""Transforms: functions in, derivative functions out, to any order.

Each call runs `f` on a tape of its own (`tape.own_tape`), with fresh leaves in place of the arguments, then walks that tape.
If nothing outside is tracked, the walk is a plain one and the tape is dropped whole; if the result must itself be
differentiable (a transform inside another, or a tracked tensor that `f` closes over), the walk is recorded and the tape joins
the outer one. Arguments and results are pytrees (tuples, lists, dicts, ... of arrays, numbers, tensors).

NumPy arrays and numbers in give NumPy arrays and numbers out; tensors in, or a tracked tensor in `f`'s closure, give tensors.

Where no entry of the tape leads from an argument to the value, the derivative is zero, which is nearly always a gradient that was lost:
transforms warn then (`_Run.tell_unused`). That is a matter of the tape's structure, not of values: a gradient whose entries are
all 0 is none of it, nor is a derivative that is constant (the Hessian of a linear function).
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np

from ..core import dual, executors, headroom, seams, sweep
from ..core.elsewhere import COMPUTES, foreign, foreign_at, refuse_foreign
from ..core.frames import level_of_user
from ..core.mode import Off, enable_grad, is_grad_enabled
from ..core.primitive import OPS
from ..core.storage import StandIn, as_array, duplicate, kept, tracing
from ..core.tape import IN0, IN1, SLOT, STRIDE, Leaf, between, new_slot, own_tape
from ..core.tensor import Tensor, fresh_leaf, unmasked, wrap
from ..errors import (
    GradientLost,
    GraphError,
    IndependentValue,
    NotDifferentiable,
    demand_bool,
    demand_callable,
)
from ..face.adoption import adopted, fills, itself, of_stand_ins
from ..face.buffers import constant
from ..ops.composing import holds_tensor
from ..ops.shaping import alias, astype

Tree = Any

P = ParamSpec("P")
X = TypeVar("X", bound=Any)  # so that a checker lets the body of a lambda do with it what it likes
"""The first argument of a function, by which its derivative is taken where nothing else is said."""
V = TypeVar("V")
A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

NAMESPACE = "tapegrad"
"""Where optree looks for classes of the user's that are pytrees: `optree.register_pytree_node(..., namespace="tapegrad")`."""


def _optree() -> Any:
    optree = headroom.optree()
    from . import labelled

    labelled.register(optree, NAMESPACE)
    return optree


_SINGLE = (np.ndarray, float, Tensor, int, complex, np.generic)


def _flatten(tree: Tree) -> tuple[list[Any], Any]:
    """Leaves and structure; a lone array or number (the common case) needs no pytree library."""
    if isinstance(tree, _SINGLE):
        return [tree], None
    return tree_flatten(tree)


_ALONE = frozenset({np.ndarray, float, Tensor, int, complex, np.float64})


@functools.cache
def _leaf(none_is_leaf: bool) -> Any:
    """The structure of a tree that is one leaf."""
    return _optree().tree_structure(0, none_is_leaf=none_is_leaf, namespace=NAMESPACE)


def tree_flatten(tree: Tree, none_is_leaf: bool = False) -> tuple[list[Any], Any]:
    """Leaves and structure, where labelled arrays and records (dataclasses and attrs) are nodes."""
    if type(tree) in _ALONE:
        return [tree], _leaf(none_is_leaf)
    from . import records

    optree = _optree()
    while True:
        leaves, structure = optree.tree_flatten(
            tree, none_is_leaf=none_is_leaf, namespace=NAMESPACE
        )
        if of_stand_ins(
            leaves
        ):  # made in copied functions; optree knows the classes that they stand for
            plain = [itself(x) for x in leaves]
            if any(x is not y for x, y in zip(leaves, plain, strict=True)):
                tree = optree.tree_unflatten(structure, plain)
                continue
        if not records.register(optree, NAMESPACE, leaves):
            return leaves, structure


def _unflatten(structure: Any, leaves: Sequence[Any]) -> Tree:
    return leaves[0] if structure is None else _optree().tree_unflatten(structure, leaves)


def _list_of_numbers(value: Any) -> bool:
    """Whether it is a list of numbers, or of such lists: what NumPy would make an array of."""
    return isinstance(value, list) and all(
        isinstance(x, int | float | complex) or _list_of_numbers(x) for x in value
    )


def _lost_in_a_buffer(error: ValueError) -> GradientLost:
    """What NumPy wraps in a ValueError of its own that says nothing: `a[i] = t`, with an ndarray `a`."""
    if COMPUTES in str(error.__cause__):  # of a library's own buffer the cause tells more
        return GradientLost(*error.__cause__.args)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else "f"
    return GradientLost(
        f"{where} stores a tensor that requires grad into a plain ndarray, which cannot be tracked: its gradient would be lost. "
        "Make the buffer a tensor (tg.zeros(n) instead of np.zeros(n), np.copy(a) instead of a.copy()), or join the values with tg.stack.",
        name="plain-array",
    )


def _told(error: Exception, name: str, given: Sequence[Any]) -> BaseException | None:
    """The error to raise for one of `f`, differentiated by these arguments: None for that error itself, which may get notes."""
    # The commonest slip of a newcomer: to f, a list of numbers is not the array that NumPy would make of it.
    if any(map(_list_of_numbers, given)):
        error.add_note(
            f"{name} was given a list of numbers, which f gets as a list of separate scalars. "
            "If f expects an array, pass np.array([...])."
        )
    if type(error).__module__.startswith("numba.") and "tapegrad.core.tensor." in str(error):
        return NotDifferentiable(
            f"{name} was asked of a function that calls one compiled by Numba, which has no type for tensors. Make it one of "
            "tg.njit: g = tg.njit(g).",
            name="native-source",
        )
    if note := foreign_at(error):
        error.add_note(note)
    if any(type(x).__module__.partition(".")[0] == "pandas" for x in given):
        error.add_note(
            f"{name} was given a Series or DataFrame, which f gets as an array without labels. If f reads labels, pass "
            "s.to_dict(), whose entries it gets one by one."
        )
    if isinstance(error.__cause__, GradientLost):
        if isinstance(error, ValueError):
            return _lost_in_a_buffer(error)
        if isinstance(error, SystemError):  # compiled code that went on after an error
            return error.__cause__
    return None


class _Prepared:
    """What runs for a function that is differentiated: itself, or a copy (adoption.py)."""

    __slots__ = ("copies", "f", "fills")

    def __init__(self, f: Any) -> None:
        self.f = adopted(differentiable(f))
        self.fills = fills(self.f)
        self.copies = hasattr(self.f, "on_copies")

    def of(self, args: tuple[Any, ...]) -> Any:
        """The function for these arguments: no derivative writes to what it was given."""
        return self.f.on_copies(args) if self.copies else self.f


_LEAVES = frozenset((Leaf,))


class _Run:
    """One run of `f`: the arguments it differentiates as leaves, its output, and the tape in between."""

    allow_unused = False
    """Whether it is meant that the value does not depend on the arguments."""
    differentiates: bool | None = None
    """What its own tape said of that, once its entries are on another tape."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: Any,
        name: str,
        allow_unused: bool = False,
        prepared: _Prepared | None = None,
    ) -> None:
        """Run `f` once with the arguments at `argnums` tracked, on a tape of its own; `prepared` is `_Prepared(f)`, if that is known."""
        if prepared is None:
            demand_callable(f, name)
        self.name = name
        if allow_unused:
            self.allow_unused = True
        self.positions = _positions(argnums, args, name)
        self._take_apart(args, kwargs)
        self.own = own_tape()
        self.own.tape.plain |= not self.tensors_in
        # While a program is traced, the graph holds all there is: looking for the dead would free nothing.
        if tracing.get() is not None:
            self.own.tape.limit = sys.maxsize
        try:  # and no `with`, whose end an interrupt could skip
            self.own.__enter__()
            self.first = new_slot()
            self.recording = recording = not isinstance(self.own.recorder, Off)
            self.inputs = [_input(value, recording, name) for value in self.given]
            self.nodes = self.own.tape.inputs = [t._node for t in self.inputs]
            # Something outside is differentiated by these very arguments: results must stay connected.
            self.connected = not _LEAVES.issuperset(map(type, self.nodes))
            if self.connected:
                self.own.outer.differentiated = True
            prepared = prepared or _Prepared(f)
            rebuilt = list(args)
            if prepared.fills:
                rebuilt = [constant(x) for x in rebuilt]
                kwargs = {name: constant(x) for name, x in kwargs.items()}
            if self.lone:
                rebuilt[self.positions[0]] = self.inputs[0]
            else:
                for position, tree in zip(self.positions, self.trees(self.inputs), strict=True):
                    rebuilt[position] = tree
            runs = prepared.of(args)
            try:
                self.output = runs(*rebuilt, **kwargs)
            except Exception as error:
                told = _told(error, name, [args[position] for position in self.positions])
                if told is None:
                    raise
                raise told from error
            self.last = new_slot()
        finally:
            try:
                self.own.leave()
            except BaseException:
                self.own.leave()
                raise
        for node in self.nodes:
            if type(node) is Leaf:
                node.spent = True

    def _take_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note leaves and structure of the arguments that it is differentiated by, and whether any argument is a tensor."""
        self.given: list[Any] = []
        self.structures = []
        for position in self.positions:
            leaves, structure = _flatten(args[position])
            self.given += leaves
            self.structures.append((structure, len(leaves)))
        self.lone = len(self.structures) == 1 and self.structures[0][0] is None
        """Whether it is differentiated by one array or number, which is no pytree."""
        self.tensors_in = holds_tensor(args) or (bool(kwargs) and holds_tensor(kwargs))
        if not (self.lone or self.tensors_in):
            self.tensors_in = holds_tensor(self.given)

    def trees(self, leaves: Sequence[Any]) -> list[Tree]:
        """Per differentiated argument, the leaves in its structure."""
        if self.lone:
            return [leaves[0]]
        rest = iter(leaves)
        return [
            next(rest)
            if structure is None
            else _unflatten(structure, list(itertools.islice(rest, n)))
            for structure, n in self.structures
        ]

    def closes_over_tracked(self, outputs: Sequence[Any] = ()) -> bool:
        """Whether `f` used, or returned, a tracked tensor that was not made from its arguments."""
        code = self.own.tape.code
        mine = {*code[SLOT::STRIDE], *self.nodes, None}
        others = {*code[IN0::STRIDE], *code[IN1::STRIDE]}
        others.update([y._node for y in outputs if isinstance(y, Tensor)])
        others -= mine
        if not others:
            return False
        several = [node for node in others if type(node) is tuple]
        others.difference_update(several)
        others.update(*several)
        return any(n not in mine and not (type(n) is Leaf and n.spent) for n in others)

    def connect(self) -> None:
        """The results depend on something tracked outside: record walks too, and keep the entries."""
        self.connected = True
        self.own.outer.differentiated = True
        if self.differentiates is None:
            self.differentiates = self.own.tape.differentiates
        self.own.join()

    def hand_out(self, outputs: Sequence[Any]) -> None:
        """Keep what `f` returned connected, if any of it depends on something tracked outside."""
        if self.recording and (self.connected or self.closes_over_tracked(outputs)):
            self.connect()

    def pull(self, roots: list[tuple[Any, Any]]) -> list[Any]:
        """Gradient of each input, from cotangents of outputs; raw, or Tensors where something outside is tracked."""
        if not self.connected:
            if any(_is_tracked(g) for _, g in roots):
                if not self.closes_over_tracked():
                    leaves, _ = executors.walk_own(self.own.tape, roots, record=True)
                    return [leaves.get(n) for n in self.nodes]
            else:
                raw = [(n, g._value if isinstance(g, Tensor) else g) for n, g in roots]
                leaves, whole = executors.walk_own(self.own.tape, raw)
                mine = set(self.nodes)
                if not self.recording or (whole and all(n.spent or n in mine for n in leaves)):
                    return [leaves.get(n) for n in self.nodes]
        self.connect()
        record = is_grad_enabled()  # a pullback may be called in another mode than it was made in
        if record:
            roots = [(n, g if isinstance(g, Tensor) else wrap(g)) for n, g in roots]
        else:
            roots = [(n, g._value if isinstance(g, Tensor) else g) for n, g in roots]
        # Entries older than the run do not depend on its inputs; those of a transform that has ended are on no tape any more.
        found = executors.walk(
            roots, set(self.nodes), retain_graph=True, create_graph=record, since=self.first
        )
        return [found.get(n) for n in self.nodes]

    def gradients(self, roots: list[tuple[Any, Any]]) -> list[Tree]:
        """Gradients of the inputs as the user gave them: of their kind, in their structure."""
        found = self.pull(roots)
        for g in found:
            if g is None:
                self.tell_unused([g is not None for g in found])
                break
        values = [
            _as_given(g, x, t) for g, x, t in zip(found, self.given, self.inputs, strict=True)
        ]
        return self.trees(values)

    def tell_unused(self, reached: Sequence[bool]) -> None:
        """Warn if the value depends on none of the arguments; `reached` says for each input whether the tape leads from it to the value.

        One argument among several, or one leaf of a pytree, is often unused for good reasons: a work array, a parameter that this loss
        leaves alone, a program that asks for all gradients. Arrays without elements are never missed.
        """
        differentiates = self.differentiates
        if self.allow_unused or (self.own.tape.differentiates if differentiates is None else differentiates):  # fmt: skip
            return
        if not any(reached) and any(x.size for x in self.inputs):
            _warn_unused(self.name, self.positions)

    def value(self, value: Any) -> Any:
        """An output as the user expects it: a tensor if tensors went in or it stays tracked, else NumPy's."""
        if not isinstance(value, Tensor):
            return value
        if self.connected:
            return value
        if dual.tangent_of(value) is not None:
            return dual.like(value, wrap(duplicate(value._value)))
        data = value._value
        if isinstance(data, np.ndarray) and not data.flags.writeable:
            data = (
                data.copy()
            )  # the argument itself, or a view of it, which is locked while the transform runs
        return wrap(data) if self.tensors_in else data[()] if data.ndim == 0 else data

    def copied(self, value: Any) -> Any:
        """The same, in memory of its own: the caller may overwrite it, while the tape still needs it."""
        value = self.value(value)
        if self.connected or not isinstance(value, Tensor | np.ndarray):
            return value
        copy = duplicate(value._value if isinstance(value, Tensor) else value)
        return dual.like(value, wrap(copy)) if isinstance(value, Tensor) else copy


def _warn_unused(name: str, unused: Sequence[int]) -> None:
    """Warn that a value depends on none of these arguments."""
    one = len(unused) == 1
    which = f"argument{'' if one else 's'} {', '.join(map(str, unused))}"
    warnings.warn(
        f"{name} was asked for a derivative by {which} of f, but the value of f does not depend on "
        f"{'it' if one else 'any of them'}: the derivative is zero. Mostly it was lost on the way: by t.item(), t.detach(), "
        "tg.no_grad(), a comparison, or because another variable was used. Compute the value from the argument by NumPy's "
        "functions; where zero is meant, say so with allow_unused=True. [independent-value]",
        IndependentValue,
        stacklevel=level_of_user(),
    )


def differentiable(f: Any) -> Any:
    """`f`; a function compiled by numba.njit with the derivatives of `tg.njit`."""
    if type(f).__module__.startswith("numba."):
        return seams.differentiable(f)
    return f


class _Direct:
    """Value and gradient of a native function of plain arguments by one call of compiled code.

    `known` is of the arguments that came last: their types, and what serves the next of the same types without another look.
    """

    __slots__ = ("__weakref__", "allow_unused", "argnums", "f", "known", "valued")
    alive: ClassVar[weakref.WeakSet[_Direct]] = weakref.WeakSet()
    """Of these a profile that begins has to know."""

    def __init__(self, f: Any, argnums: Any, valued: bool, allow_unused: bool) -> None:
        self.f = f
        self.argnums = argnums
        self.allow_unused = allow_unused
        self.valued = valued
        """Whether the value is asked for; else None may stand for it."""
        self.known: tuple[Any, Any] = (None, None)
        _Direct.alive.add(self)

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The pair, and the way to the next one; NotImplemented where the tape is needed."""
        argnums = self.argnums
        several = isinstance(argnums, tuple | list)
        positions = _positions(argnums, args, "grad")
        found = self.f.value_and_gradient(args, kwargs, tuple(positions), several, self.valued)
        if found is NotImplemented:
            return found
        value, gradients, shortcut, unused = found
        if unused and len(unused) == len(positions) and not self.allow_unused:
            _warn_unused("grad", positions)
        if shortcut is not None:
            self.known = shortcut
        return value, tuple(gradients) if several else gradients[0]


def _is_tracked(value: Any) -> bool:
    if dual.tangent_of(value) is not None:
        return True
    return isinstance(value, Tensor) and value._node is not None and is_grad_enabled()


def _chosen(argnums: Any, argnum: Any, name: str) -> Any:
    """The arguments to differentiate by, also where HIPS autograd's name of the setting was used; TypeError for what is no position."""
    if argnum is not None:
        if argnums != 0:
            raise TypeError("argnums and argnum were given, two names of one setting: give one.")
        argnums = argnum
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if not all(isinstance(number, int | np.integer) for number in numbers):
        raise TypeError(
            f"{name} was given argnums={argnums!r}, but these are positions of arguments. {name}(f) is a function: write {name}(f)(x)."
        )
    return argnums


def _positions(argnums: Any, args: tuple[Any, ...], name: str) -> list[int]:
    """The positions that argnums names, from 0; an error for positions that the call does not have."""
    if type(argnums) is int and 0 <= argnums < len(args):
        return [argnums]
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    positions = []
    for number in numbers:
        if not isinstance(number, int | np.integer) or not -len(args) <= number < len(args):
            raise TypeError(
                f"{name} was asked to differentiate by argument {number!r}, but the call has {len(args)} positional "
                "arguments. Set argnums, or pass that argument by position."
            )
        positions.append(int(number) % len(args))
    if len(set(positions)) < len(positions):
        raise ValueError(
            f"{name} was given argnums={argnums!r}, which names an argument twice: name each once."
        )
    return positions


def _input(value: Any, recording: bool, name: str) -> Tensor:
    """A fresh leaf holding the value; of a tensor tracked outside, an alias that is recorded as made from it."""
    if type(value) is np.ndarray and value.dtype.kind in "fc":
        return fresh_leaf(kept(value))
    given = value
    if isinstance(value, Tensor):
        if value._node is not None and recording:
            return alias(value)
        value = value._value
    else:
        refuse_foreign(value, name)
    array = kept(unmasked(value)) if isinstance(value, np.ndarray) else as_array(value)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind not in "fc":
        raise TypeError(
            f"{name} was asked to differentiate by a {type(value).__name__} (dtype {array.dtype}), but only numbers and arrays "
            "of numbers have derivatives. Choose other arguments with argnums, or close over it."
        )
    return dual.like(given, fresh_leaf(array))


def _as_given(g: Any, given: Any, like: Tensor) -> Any:
    """A derivative in the kind of value it belongs to."""
    if g is None:
        g = np.zeros(like.shape, like.dtype)
    if isinstance(g, Tensor):
        return g
    if isinstance(given, Tensor):
        return wrap(duplicate(g))
    if isinstance(g, StandIn):
        own = isinstance(given, float | complex | int) and not isinstance(given, np.generic)
        return g.python_number() if own and not g.shape else g
    if isinstance(given, np.ndarray):
        return np.array(g)
    if isinstance(given, np.generic):
        return np.asarray(g)[()]
    return complex(g) if np.iscomplexobj(g) else float(g)


def _scalar(value: Any, name: str) -> Tensor | None:
    """The output of a function that `grad` differentiates: checked; None if it does not depend on anything tracked."""
    if value is None:
        raise TypeError(
            f"{name} differentiates a function's value, but it returned None. Does it end with a return?"
        )
    if isinstance(value, Tensor):
        if value.size != 1:
            raise NotDifferentiable(
                f"{name} needs a scalar output, but f returned shape {value.shape}. Use jacobian(f), or reduce the output, "
                "for example with np.sum.",
                name="not-scalar",
            )
        if value.dtype.kind == "c":
            raise NotDifferentiable(
                f"{name} needs a real output, but f returned {value.dtype}. Take np.real, np.imag or np.abs of it, or use vjp.",
                name="not-real",
            )
        _refuse_count(value, name)
        return value if value._node is not None else None
    if not isinstance(value, float | int | np.generic | np.ndarray):
        if what := foreign(value):
            raise TypeError(f"{name} needs a scalar output, but f returned {what}.")
        raise TypeError(
            f"{name} needs a scalar output, but f returned {type(value).__name__}. Return one number, or set has_aux=True for "
            "a pair (value, anything)."
        )
    if np.size(value) != 1:
        raise NotDifferentiable(
            f"{name} needs a scalar output, but f returned shape {np.shape(value)}. Use jacobian(f), or reduce the output.",
            name="not-scalar",
        )
    _refuse_count(value, name)
    return None


def _refuse_count(value: Any, name: str) -> None:
    """A truth value, a count or a position changes in jumps only; a number that is Python's own may be a constant on purpose."""
    if type(value) is bool or (not isinstance(value, int | float) and value.dtype.kind in "iub"):
        kind = "bool" if type(value) is bool else value.dtype
        raise NotDifferentiable(
            f"{name} needs a real output, but f returned {kind}: a truth value, a count or a position has no slope. "
            "Return something smooth instead (a difference for a comparison, a sum of smooth steps for a count), or float(...) of it "
            "if a gradient of zero is meant.",
            name="not-real",
        )


def is_compiled(f: Any) -> bool:
    """Whether a function was made by `tg.compile`."""
    # Without the compiler nothing is compiled yet; another thread may just be importing it.
    kind = getattr(sys.modules.get("tapegrad.compiler"), "Compiled", None)
    return kind is not None and isinstance(f, kind)


_TRUTHS = frozenset(("has_aux", "allow_unused"))
"""Settings of transforms that are True or False: a word in their place would switch them on."""


def as_a_whole(transform: F) -> F:
    """A transform of functions; of a compiled one it is compiled as a whole, made once: forward and backward are one program, where an
    entry of a tape would run the function again on the way back."""

    @functools.wraps(transform)
    def chosen(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        for setting in _TRUTHS & kwargs.keys():
            demand_bool(kwargs[setting], setting)
        product = transform.__name__ == "hvp"
        # Of the arguments of a product with a Hessian the second is a direction, so positions mean other things.
        whole = kwargs.get("sparsity") is None  # a program has no sparse matrices
        if is_compiled(f) and whole and not (f.static and product):  # type: ignore[attr-defined]
            key = (chosen, repr((args, sorted(kwargs.items())))) if args or kwargs else chosen
            by = kwargs.get("argnums", args[0] if args else kwargs.get("argnum", 0))
            by = (0, 1) if product else by if isinstance(by, tuple | list) else (by,)
            numbers = tuple(i for i in by if isinstance(i, int))
            return f.derived(lambda g: transform(g, *args, **kwargs), key, numbers)  # type: ignore[attr-defined]
        return transform(f, *args, **kwargs)

    return chosen  # type: ignore[return-value]


@overload
def value_and_grad(
    f: Callable[Concatenate[X, P], V],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[Concatenate[X, P], tuple[V, X]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[X, P], tuple[V, A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[Concatenate[X, P], tuple[tuple[V, A], X]]: ...
@overload
def value_and_grad(
    f: Callable[P, V],
    argnums: tuple[int, ...] | list[int],
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, tuple[V, tuple[Any, ...]]]: ...
@overload
def value_and_grad(
    f: Callable[P, V],
    argnums: Any,
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, tuple[V, Any]]: ...
@overload
def value_and_grad(
    f: Callable[P, Any],
    argnums: Any,
    has_aux: bool,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, Any]: ...
@overload
def value_and_grad(
    f: Callable[P, Any], *, has_aux: bool = False, argnum: Any, allow_unused: bool = False
) -> Callable[P, Any]: ...
@as_a_whole
def value_and_grad(
    f: Callable[..., Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    argnum: Any = None,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """A function that returns `(f(*args), gradient)`, from one run of `f`.

    `argnums` is the position (or a tuple of positions) of the arguments to differentiate by; each may be a pytree.
    With `has_aux`, `f` returns `(value, aux)` and the result is `((value, aux), gradient)`. Raises NotDifferentiable if
    the value is not one real number. Warns (`tg.IndependentValue`) where the value depends on none of these arguments at all:
    the gradient is then zero, and mostly a lost one; `allow_unused=True` says that zero is meant.

    >>> import numpy as np, tapegrad as tg
    >>> tg.value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """

    return _value_and_grad(
        f, _chosen(argnums, argnum, "value_and_grad"), has_aux, True, allow_unused
    )


def _value_and_grad(
    f: Callable[..., Any], argnums: Any, has_aux: bool, valued: bool, allow_unused: bool
) -> Callable[..., Any]:
    """The same; where the value is not asked for (`valued`), None may stand in its place."""
    demand_callable(f, "grad")
    native = differentiable(f)
    direct = None
    if hasattr(native, "value_and_gradient") and not has_aux:
        direct = _Direct(native, argnums, valued, allow_unused)

    @functools.wraps(f, updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        """Value and gradient, by a native function's own machine code where it has one."""
        if direct is not None:
            kinds, call = direct.known
            if tuple(map(type, args)) == kinds and not kwargs:
                try:
                    return call(*args)
                except TypeError:
                    pass  # arrays of another kind; what the function itself raises comes again below
            found = direct.first(args, kwargs)
            if found is not NotImplemented:
                return found
        run = _Run(f, args, kwargs, argnums, "grad", allow_unused)
        output, aux = _with_aux(run.output, has_aux)
        if type(output).__module__.startswith("xarray"):
            output = output.data  # a labelled number, as xarray's sums are
        y = _scalar(output, "grad")
        if type(output) is int:
            run.allow_unused = True  # a count, or the sum of no terms: zero is its slope
        trees = run.gradients([] if y is None else [(y._node, executors.one(y._value))])
        if has_aux:
            run.hand_out(_leaves_in(aux))
        gradient = tuple(trees) if isinstance(argnums, tuple | list) else trees[0]
        value = run.value(output)
        return ((value, _map(run.value, aux)), gradient) if has_aux else (value, gradient)

    return differentiated


@overload
def grad(
    f: Callable[Concatenate[X, P], Any],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[Concatenate[X, P], X]: ...
@overload
def grad(
    f: Callable[Concatenate[X, P], tuple[V, A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[Concatenate[X, P], tuple[X, A]]: ...
@overload
def grad(
    f: Callable[P, Any],
    argnums: tuple[int, ...] | list[int],
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, tuple[Any, ...]]: ...
@overload
def grad(
    f: Callable[P, Any],
    argnums: Any,
    has_aux: Literal[False] = False,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, Any]: ...
@overload
def grad(
    f: Callable[P, Any],
    argnums: Any,
    has_aux: bool,
    *,
    argnum: None = None,
    allow_unused: bool = False,
) -> Callable[P, Any]: ...
@overload
def grad(
    f: Callable[P, Any], *, has_aux: bool = False, argnum: Any, allow_unused: bool = False
) -> Callable[P, Any]: ...
@as_a_whole
def grad(
    f: Callable[..., Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    argnum: Any = None,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """The gradient of a scalar function, as a function of the same arguments.

    `argnums` is the position (or a tuple of positions) of the arguments to differentiate by; each may be a pytree, and the
    gradient has its structure. With `has_aux`, `f` returns `(value, aux)` and the result is `(gradient, aux)`. Raises
    NotDifferentiable if the value is not one real number. Composes: `grad(grad(f))`. Warns (`tg.IndependentValue`) where the value depends
    on none of these arguments at all: the gradient is then zero, and mostly a lost one; `allow_unused=True` says that zero
    is meant.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: (np.sin(x) * x).sum())(np.zeros(2))
    array([0., 0.])
    >>> tg.grad(tg.grad(lambda x: x**3))(2.0)
    12.0
    """
    both = _value_and_grad(f, _chosen(argnums, argnum, "grad"), has_aux, False, allow_unused)

    @functools.wraps(f, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


def _with_aux(output: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return output, None
    demand_bool(has_aux, "has_aux")
    if not (isinstance(output, tuple) and len(output) == 2):
        raise TypeError(
            f"has_aux=True says that f returns a pair (value, aux), but it returned {type(output).__name__}. Return a pair, "
            "or leave has_aux out."
        )
    return output


def _map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    leaves, structure = _flatten(tree) if tree is not None else ([], None)
    return None if tree is None else _unflatten(structure, [function(x) for x in leaves])


def _leaves_in(tree: Tree) -> list[Any]:
    return [] if tree is None else _flatten(tree)[0]


@overload
def vjp(
    f: Callable[..., V], *primals: Any, has_aux: Literal[False] = False, allow_unused: bool = False
) -> tuple[V, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    f: Callable[..., tuple[V, A]], *primals: Any, has_aux: Literal[True], allow_unused: bool = False
) -> tuple[V, Callable[[Any], tuple[Any, ...]], A]: ...
@overload
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool, allow_unused: bool = False) -> Any: ...
def vjp(
    f: Callable[..., Any], *primals: Any, has_aux: bool = False, allow_unused: bool = False
) -> Any:
    """Value of `f` and the map from output cotangents to argument cotangents.

    The pullback takes a cotangent of the output's structure and shape (a number for a scalar) and returns a tuple,
    one cotangent per primal; it may be called any number of times. Raises ValueError for another shape. Warns (`tg.IndependentValue`) where
    the value depends on none of the primals, unless `allow_unused`.

    >>> import numpy as np, tapegrad as tg
    >>> y, pull = tg.vjp(np.sin, 0.0)
    >>> pull(1.0)
    (1.0,)
    """
    run = _Run(f, primals, {}, tuple(range(len(primals))), "vjp", allow_unused)
    output, aux = _with_aux(run.output, has_aux)
    outputs, structure = _outputs(output, "vjp")
    _tell_untracked(run, outputs)
    run.hand_out([*outputs, *_leaves_in(aux)])

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """Cotangents of the primals, from a cotangent of the value."""
        cotangents, given = _flatten(cotangent)
        if len(cotangents) != len(outputs) or given != structure:
            raise ValueError(
                f"the pullback was given {type(cotangent).__name__}, but a cotangent has the structure of the value it belongs to: "
                f"{len(outputs)} number(s), array(s) or tensor(s), arranged as f returned them."
            )
        roots = _roots(outputs, cotangents)
        if not roots:
            run.allow_unused = True  # that was told with the value
        return tuple(run.gradients(roots))

    value = _unflatten(structure, [run.copied(y) for y in outputs])
    return (value, pullback, _map(run.copied, aux)) if has_aux else (value, pullback)


def _outputs(output: Any, name: str) -> tuple[list[Any], Any]:
    """Leaves and structure of a function's value, which must be tensors, arrays or numbers."""
    if output is None:
        raise TypeError(
            f"{name} differentiates a function's value, but it returned None. Does it end with a return?"
        )
    leaves, structure = _flatten(output)
    for y in leaves:
        if not isinstance(y, _SINGLE) and (what := foreign(y)):
            raise TypeError(
                f"{name} differentiates tensors, arrays and numbers, but f returned {what}."
            )
        if not isinstance(y, Tensor) and as_array(y).dtype.kind not in "fciub":
            raise TypeError(
                f"{name} differentiates tensors, arrays and numbers, but f returned a {type(y).__name__} among its values. Return "
                "it as aux, or leave it out."
            )
    return leaves, structure


def _tell_untracked(run: _Run, outputs: Sequence[Any]) -> None:
    """Warn of a value with no entry on any tape; of one with no slope, such as a count, zero is the derivative."""
    if outputs and not any(isinstance(y, Tensor) and y._node is not None for y in outputs):
        _tell_if_none(run, outputs, [False])


def _tell_if_none(run: _Run, outputs: Sequence[Any], reached: Sequence[bool]) -> None:
    """Warn as `tell_unused` does, if a value among the outputs could have a slope."""
    if not any(reached) and any(_has_slope(y) for y in outputs):
        run.tell_unused(reached)


def _has_slope(y: Any) -> bool:
    """Whether a value is of real or complex numbers, of which there are some: counts and truth values change in jumps only."""
    raw = y if isinstance(y, Tensor) else as_array(y)
    return raw.dtype.kind in "fc" and raw.size > 0


def _real_if(like: Any, value: Any, what: str) -> Any:
    """A cotangent or tangent in the dtype of the value it belongs to; complex for a real one is refused."""
    raw = value if isinstance(value, Tensor) else as_array(value)
    if raw.dtype.kind == "c" and like.dtype.kind != "c":
        raise ValueError(
            f"a complex {what} was given for a value of dtype {like.dtype}, which is real: take its real part."
        )
    return raw if raw.dtype == like.dtype else raw.astype(like.dtype)


def _roots(outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[tuple[Any, Any]]:
    roots = []
    for y, g in zip(outputs, cotangents, strict=True):
        if np.shape(g) != np.shape(y):
            raise ValueError(
                f"a cotangent of shape {np.shape(g)} was given for a value of shape {np.shape(y)}: they must agree."
            )
        if isinstance(y, Tensor) and y._node is not None:
            roots.append((y._node, _real_if(y, g, "cotangent")))
    return roots


@overload
def jvp(
    f: Callable[..., V],
    primals: Any,
    tangents: Any,
    has_aux: Literal[False] = False,
    *,
    allow_unused: bool = False,
) -> tuple[V, V]: ...
@overload
def jvp(
    f: Callable[..., tuple[V, A]],
    primals: Any,
    tangents: Any,
    has_aux: Literal[True],
    *,
    allow_unused: bool = False,
) -> tuple[V, V, A]: ...
@overload
def jvp(
    f: Callable[..., Any],
    primals: Any,
    tangents: Any,
    has_aux: bool,
    *,
    allow_unused: bool = False,
) -> Any: ...
def jvp(
    f: Callable[..., Any],
    primals: Any,
    tangents: Any,
    has_aux: bool = False,
    *,
    allow_unused: bool = False,
) -> Any:
    """Value of `f` and its derivative along the tangents: `(f(*primals), J @ tangents)`.

    `primals` and `tangents` are tuples (or lists) of equal structure. Forward mode: the tangents are carried up
    the tape that `f` recorded. Raises ValueError where shapes differ. Warns (`tg.IndependentValue`) where the value depends on none of
    the primals, unless `allow_unused`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeError(
            "jvp takes primals and tangents as tuples, one element per argument of f: jvp(f, (x,), (v,))."
        )
    if len(primals) != len(tangents):
        raise ValueError(
            f"jvp was given {len(primals)} primals and {len(tangents)} tangents: one tangent per primal."
        )
    run = _Run(f, tuple(primals), {}, tuple(range(len(primals))), "jvp", allow_unused)
    output, aux = _with_aux(run.output, has_aux)
    outputs, structure = _outputs(output, "jvp")
    run.hand_out([*outputs, *_leaves_in(aux)])
    along = _along(run, outputs, structure, tangents)
    value = _unflatten(structure, [run.value(y) for y in outputs])
    return (value, along, _map(run.value, aux)) if has_aux else (value, along)


@overload
def linearize(
    f: Callable[..., V], *primals: Any, has_aux: Literal[False] = False, allow_unused: bool = False
) -> tuple[V, Callable[..., V]]: ...
@overload
def linearize(
    f: Callable[..., tuple[V, A]], *primals: Any, has_aux: Literal[True], allow_unused: bool = False
) -> tuple[V, Callable[..., V], A]: ...
@overload
def linearize(
    f: Callable[..., Any], *primals: Any, has_aux: bool, allow_unused: bool = False
) -> Any: ...
def linearize(
    f: Callable[..., Any], *primals: Any, has_aux: bool = False, allow_unused: bool = False
) -> Any:
    """Value of `f` and its derivative at the primals: the linear map from their tangents to that of the value.

    The map takes one tangent per primal, of its structure and shapes, and returns one of the value's structure. It may be called any
    number of times: `f` runs once, and each call carries tangents up the tape that it recorded. With `has_aux`, `f` returns
    `(value, aux)` and the result is `(value, map, aux)`. Raises ValueError for tangents of another number, structure or shape. Warns
    (`tg.IndependentValue`) where the value depends on none of the primals, unless `allow_unused`.

    >>> import numpy as np, tapegrad as tg
    >>> y, along = tg.linearize(np.sin, 0.0)
    >>> along(1.0), along(2.0)
    (np.float64(1.0), np.float64(2.0))
    """
    run = _Run(f, primals, {}, tuple(range(len(primals))), "linearize", allow_unused)
    output, aux = _with_aux(run.output, has_aux)
    outputs, structure = _outputs(output, "linearize")
    _tell_untracked(run, outputs)
    run.allow_unused |= not any(isinstance(y, Tensor) and y._node is not None for y in outputs)
    run.hand_out([*outputs, *_leaves_in(aux)])

    def pushforward(*tangents: Any) -> Any:
        """Tangent of the value, from one tangent per primal."""
        if len(tangents) != len(primals):
            raise ValueError(
                f"the linear map was given {len(tangents)} tangents, but its function had {len(primals)} primals: one tangent per primal."
            )
        return _along(run, outputs, structure, tangents)

    value = _unflatten(structure, [run.copied(y) for y in outputs])
    return (value, pushforward, _map(run.copied, aux)) if has_aux else (value, pushforward)


def _along(run: _Run, outputs: Sequence[Any], structure: Any, tangents: Sequence[Tree]) -> Tree:
    """Tangent of the output, from one tangent per primal: in the structures that output and primals have."""
    flat = [_flatten(tangent) for tangent in tangents]
    if [s for _, s in flat] != [s for s, _ in run.structures]:
        raise ValueError(
            f"{run.name} was given tangents of another structure than the primals: each tangent looks like its primal."
        )
    derivative, reached = _pushed(run, outputs, [t for leaves, _ in flat for t in leaves])
    if not reached:
        _tell_if_none(run, outputs, [False])

    def own(t: Any) -> Any:
        """A tangent that passes through unchanged is the caller's own array, hence the copy."""
        if _is_tracked(t):
            return t
        return wrap(duplicate(t._value)) if run.connected else run.copied(t)

    return _unflatten(structure, [own(t) for t in derivative])


def _pushed(
    run: _Run, outputs: Sequence[Any], given: Sequence[Any], width: int | None = None
) -> tuple[list[Any], bool]:
    """Tangents of the outputs, as Tensors (untracked ones where nothing outside is tracked), and whether the tape leads to any; after
    `hand_out`. A tangent that is None stands for zeros."""
    lead = () if width is None else (width,)
    tangents: dict[Any, Any] = {}
    for node, t, x in zip(run.nodes, given, run.inputs, strict=True):
        if t is None:
            continue
        if np.shape(t) != lead + x.shape:
            raise ValueError(
                f"a tangent of shape {np.shape(t)} was given for a primal of shape {x.shape}: they must agree."
            )
        tangents[node] = _real_if(x, t, "tangent")
    # A linear map may be called in another mode than it was made in.
    record = bool(dual.saved) or (run.connected and is_grad_enabled())
    if record:
        run.connect()
    else:
        # A tracked tangent is carried as it is: the result is linear in it, and the tape's values are constants.
        for node, t in tangents.items():
            if isinstance(t, Tensor) and not _is_tracked(t):
                tangents[node] = t._value
    tape = run.own.tape
    # New entries may be appended to this very tape, which may also hold more than the run.
    asked = [y._node for y in outputs if isinstance(y, Tensor)]
    with tape.held(), enable_grad() if record else nullcontext():
        lost = sweep.push(*between(tape, run.first, run.last), tangents, record, width, asked)
    results, reached = [], False
    for y in outputs:
        if isinstance(y, Tensor) and y._node in lost:
            raise GraphError(sweep.SECOND_TIME, name="freed-graph")
        t = tangents.get(y._node) if isinstance(y, Tensor) and y._node is not None else None
        if t is None:
            t = np.zeros(lead + np.shape(y), y.dtype if isinstance(y, Tensor) else np.float64)
        else:
            reached = True
        results.append(t if isinstance(t, Tensor) else wrap(t))
    return results, reached


@as_a_whole
def jacobian(
    f: Callable[P, Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    mode: str = "auto",
    argnum: Any = None,
    allow_unused: bool = False,
    sparsity: Any = None,
) -> Callable[P, Any]:
    """The Jacobian of `f` as a function of the same arguments: shape of the output, then shape of the input.

    `mode` is "reverse" (one walk per output element), "forward" (one per input element) or "auto" (the fewer). For pytrees
    the result has the output's structure, with the input's at each leaf. A tuple of `argnums` gives a tuple. With `has_aux`,
    `f` returns `(value, aux)` and the result is `(jacobian, aux)`. Warns (`tg.IndependentValue`) where the value depends on none of
    these arguments, unless `allow_unused`.

    `sparsity="detect"` gives SciPy's `csr_array` (elements of the value by those of the one array that is the argument; a `SparseTensor`
    where tensors are given or tracked): the pattern is read off the tape, columns that share no row are found together, and a random
    direction checks the result. A sparse matrix for `sparsity` is the pattern itself.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if mode not in ("auto", "reverse", "forward"):
        raise ValueError(
            f"mode {mode!r} was asked, but a Jacobian is made in mode 'auto', 'reverse' or 'forward'."
        )
    demand_callable(f, "jacobian")
    argnums = _chosen(argnums, argnum, "jacobian")
    if sparsity is not None:
        return seams.sparse_derivatives().jacobian(
            f, argnums, has_aux, mode, sparsity, allow_unused
        )

    @functools.wraps(f, updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        """The Jacobian, forward or reverse, whichever has fewer passes."""
        run = _Run(f, args, kwargs, argnums, "jacobian", allow_unused)
        output, aux = _with_aux(run.output, has_aux)
        outputs, structure = _outputs(output, "jacobian")
        trees = [run.trees(row) for row in _blocks(run, outputs, mode)]
        results = [tuple(t) if isinstance(argnums, tuple | list) else t[0] for t in trees]
        result = _unflatten(structure, results)
        if not has_aux:
            return result
        run.hand_out(_leaves_in(aux))
        return result, _map(run.value, aux)

    return differentiated


@as_a_whole
def jacobian_blocks(f: Callable[..., Any]) -> Callable[..., list[list[Any]]]:
    """The Jacobian by the first argument in pieces: for each array or number that `f` returns a list of blocks, one for each leaf.

    For solvers, which call it many times: a function that runs as it is the first time does so the next time, and blocks lie in memory
    as they were computed, by columns or by rows.
    """
    known: _Prepared | None = None

    @functools.wraps(f, updated=())
    def differentiated(*args: Any) -> list[list[Any]]:
        """The blocks, forward or reverse, whichever has fewer passes."""
        nonlocal known
        prepared = None
        if tracing.get() is None:
            prepared = known or _Prepared(f)
            known = prepared if prepared.f is f else None
        run = _Run(f, args, {}, 0, "jacobian", prepared=prepared)
        return _blocks(run, _outputs(run.output, "jacobian")[0], "auto", "K")

    return differentiated


def _blocks(
    run: _Run, outputs: Sequence[Any], mode: str, order: Literal["C", "K"] = "C"
) -> list[list[Any]]:
    """blocks[output][input] in a mode of `jacobian`; a warning where the outputs depend on none of the inputs.

    Blocks lie in memory by rows; with the order "K", which copies faster, as they were computed.
    """
    rows = columns = 0
    for x in run.inputs:
        columns += x._value.size
        if x._value.dtype.kind == "c":
            _refuse_not_holomorphic(run)
    for y in outputs:
        rows += y._value.size if isinstance(y, Tensor) else np.size(y)
    forward = mode == "forward" or (mode == "auto" and columns < rows)
    if forward:
        run.hand_out(outputs)
        blocks, reached = _forward_blocks(run, outputs, order)
    else:
        blocks, reached = _reverse_blocks(run, outputs)
    _tell_if_none(run, outputs, reached)
    return blocks


def _reverse_blocks(run: _Run, outputs: Sequence[Any]) -> tuple[list[list[Any]], list[bool]]:
    """blocks[output][input], one walk per element of each output, and for each input whether a walk came to it."""
    blocks = []
    reached = [False] * len(run.inputs)
    for y in outputs:
        shape = np.shape(y)
        node = y._node if isinstance(y, Tensor) else None
        rows = [] if node is None else _rows(run, y, 1)
        # A complex value of a real input: its real part comes from the cotangent 1, its imaginary part from 1j.
        both = (
            node is not None
            and y.dtype.kind == "c"
            and any(x.dtype.kind != "c" for x in run.inputs)
        )
        imaginary = _rows(run, y, 1j) if both else []
        row_of_blocks = []
        for i, x in enumerate(run.inputs):
            reached[i] |= any(row[i] is not None for row in rows)
            block = _stacked(rows, i, shape, x)
            if block.dtype.kind == "c":
                block = np.conj(block)  # a walk gives the conjugate of a holomorphic derivative
            elif imaginary:
                block = block + 1j * _stacked(imaginary, i, shape, x)
            row_of_blocks.append(_as_block(block, run.given[i]))
        blocks.append(row_of_blocks)
    return blocks, reached


def _rows(run: _Run, y: Tensor, seed: Any) -> list[list[Any]]:
    """Cotangents of the inputs for each element of y in turn."""
    rows = []
    for i in range(y.size):
        unit = np.zeros(y.shape, y.dtype)
        unit.flat[i] = seed
        rows.append(run.pull([(y._node, unit)]))
    return rows


def _stacked(rows: list[list[Any]], i: int, shape: tuple[int, ...], x: Tensor) -> Any:
    """The rows of input `i` as one block."""
    if not rows:
        return np.zeros(shape + x.shape, x.dtype)
    parts = [np.zeros(x.shape, x.dtype) if row[i] is None else row[i] for row in rows]
    if not shape:
        return parts[0]
    return np.reshape(np.stack(parts), shape + x.shape)


def _refuse_not_holomorphic(run: _Run) -> None:
    """By a complex argument only a holomorphic function has a Jacobian of its own shape."""
    for code, _, in0, in1, x, y, out, _ in run.own.tape:
        op = OPS[code]
        if op.holomorphic or (op is astype.primitive and out.dtype.kind == "c"):
            continue
        pairs = zip(in0, x, strict=True) if type(in0) is tuple else ((in0, x), (in1, y))
        if any(n is not None and v.dtype.kind == "c" for n, v in pairs):
            raise NotDifferentiable(
                f"jacobian by a complex argument needs a holomorphic function, but f uses {op.name}, which is not. Differentiate by "
                "real and imaginary part (f of x + 1j * y, by x and y), or use grad or vjp, which follow PyTorch's convention.",
                name="not-real",
            )


def _forward_blocks(
    run: _Run, outputs: Sequence[Any], order: Literal["C", "K"]
) -> tuple[list[list[Any]], list[bool]]:
    """blocks[output][input], one direction per element of each input, all carried in one push, and which inputs led to an output."""
    found = _all_at_once(run, outputs, order)
    if found is not None:
        return found
    blocks: list[list[Any]] = [[] for _ in outputs]
    reached = []
    for i, x in enumerate(run.inputs):
        n = x.size
        given: list[Any] = [None] * len(run.inputs)
        given[i] = np.eye(n, dtype=x.dtype).reshape(n, *x.shape)
        columns, met = _pushed(run, outputs, given, n)
        reached.append(met)
        for j, t in enumerate(columns):
            t = t if run.connected else t._value
            turned = t.T if t.ndim == 2 else np.moveaxis(t, 0, -1)
            block = np.reshape(turned, np.shape(outputs[j]) + x.shape)
            blocks[j].append(_as_block(_typed_as(block, x), run.given[i], order))
    return blocks, reached


def _typed_as(block: Any, x: Tensor) -> Any:
    """A block of tangents, which have the dtypes of outputs, in the precision of the input that it belongs to, as a walk gives it."""
    dtype = x.dtype
    if block.dtype == dtype:
        return block
    return block.astype(np.result_type(dtype, np.complex64) if block.dtype.kind == "c" else dtype)


FEW_DIRECTIONS = 16384
"""Elements of a block of tangents up to which it costs less to carry the directions of all inputs in one push than in one for each."""


def _all_at_once(
    run: _Run, outputs: Sequence[Any], order: Literal["C", "K"]
) -> tuple[list[list[Any]], list[bool]] | None:
    """As `_forward_blocks`, from one push, whose cost is that of its steps: for few directions of plain float64 inputs, else None.

    None also where one of several inputs has only zeros: then it has to be seen whether it led anywhere.
    """
    if run.connected or dual.saved or tracing.get() is not None:
        return None
    nodes = [y._node if isinstance(y, Tensor) else None for y in outputs]
    shapes = [y._value.shape if isinstance(y, Tensor) else np.shape(y) for y in outputs]
    sizes = [*map(math.prod, shapes)]
    inputs = [x._value for x in run.inputs]
    lone = len(inputs) == 1
    width = sum([x.size for x in inputs])
    if width * max(sizes, default=0) > FEW_DIRECTIONS:
        return None
    units, end = _units(width) if width <= 64 else np.eye(width), 0
    tangents: dict[Any, Any] = {}
    for node, x in zip(run.nodes, inputs, strict=True):
        if x.dtype != _FLOAT64:
            return None
        begin, end = end, end + x.size
        own = units if lone else units[:, begin:end]
        tangents[node] = own if x.ndim == 1 else own.reshape(width, *x.shape)
    tape = run.own.tape
    with tape.held():
        lost = sweep.push(*between(tape, run.first, run.last), tangents, False, width, nodes)
    if lost and not lost.isdisjoint(nodes):
        raise GraphError(sweep.SECOND_TIME, name="freed-graph")
    blocks: list[list[Any]] = []
    met = [lone and any([node in tangents for node in nodes])] * len(inputs)
    for shape, size, node in zip(shapes, sizes, nodes, strict=True):
        t, end = tangents.get(node), 0
        matrix = np.zeros((size, width)) if t is None else t.reshape(width, size).T
        row = []
        for i, x in enumerate(inputs):
            begin, end = end, end + x.size
            block = matrix if lone else matrix[:, begin:end]
            met[i] = met[i] or not x.size or bool(block.any())
            block = _typed_as(block.reshape(shape + x.shape), x)
            row.append(_as_block(block, run.given[i], order))
        blocks.append(row)
    return (blocks, met) if lone or all(met) else None


_FLOAT64 = np.dtype(np.float64)


@functools.lru_cache(8)
def _units(n: int) -> np.ndarray:
    """The directions of n numbers, which nobody writes to."""
    units = np.eye(n)
    units.flags.writeable = False
    return units


def _as_block(block: Any, given: Any, order: Literal["C", "K"] = "C") -> Any:
    """A block in the kind of value it belongs to: a tensor stays one, an array is one's if its input was."""
    if isinstance(block, Tensor):
        return block
    return (
        wrap(block)
        if isinstance(given, Tensor)
        else block
        if isinstance(block, StandIn)
        else np.array(block, order=order)  # its own: outputs may share a tangent
        if block.ndim
        else block[()]
    )


@as_a_whole
def hessian(
    f: Callable[P, Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    argnum: Any = None,
    allow_unused: bool = False,
    sparsity: Any = None,
) -> Callable[P, Any]:
    """The Hessian of `f`, forward over reverse: shape of the output (none, if it is a number), then that of the input twice.

    With `has_aux`, `f` returns `(value, aux)` and the result is `(hessian, aux)`. Warns as `jacobian` does where the value depends on none
    of the arguments; of a linear function the Hessian is zero, which is said by nobody.
    `sparsity` as in `jacobian`, of a function of one array: a sparse symmetric matrix.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    argnums = _chosen(argnums, argnum, "hessian")
    if sparsity is not None:
        return seams.sparse_derivatives().hessian(f, argnums, has_aux, sparsity, allow_unused)
    once = jacobian(f, argnums, has_aux, mode="reverse", allow_unused=allow_unused)
    return jacobian(once, argnums, has_aux, mode="forward", allow_unused=True)


@as_a_whole
def hvp(
    f: Callable[Concatenate[X, P], Any], *, allow_unused: bool = False
) -> Callable[Concatenate[X, X, P], X]:
    """Hessian-vector product of a scalar function: `hvp(f)(x, v)` is `hessian(f)(x) @ v`, at the cost of a few runs of `f`.

    `v` has the structure and shapes of `x`; further arguments of `f` follow. Warns (`tg.IndependentValue`) where the value does not depend
    on x, unless `allow_unused`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """

    demand_callable(f, "hvp")
    gradient = grad(f, allow_unused=allow_unused)

    @functools.wraps(f, updated=())
    def product(x: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        along = jvp(lambda z: gradient(z, *args, **kwargs), (x,), (v,), allow_unused=True)
        return along[1]

    return product


__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "linearize", "value_and_grad", "vjp"]
