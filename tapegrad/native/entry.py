"""A native function on tensors: one entry of the tape.

Ops, each the derivative of another: the function (`native_call`), cotangents of its operands (`native_pull`: Jᵀg) and the
tangent of its result (`native_push`: J t). The derivative of a pull by the operands is forward mode over reverse
(`native_bend`): for a direction t it is also that of <g, J t>, because second derivatives are symmetric. The same once more gives
third ones (`native_twist`). Beyond there is an error.

An entry keeps its operands only: the reverse runs the function again, inside its adjoint. Its result is real, several results one behind
the other; complex ones are put together from their parts by an entry of their own (`native_complex`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import storage
from ..core.mode import is_grad_enabled
from ..core.primitive import primitive, strong, track
from ..core.storage import StandIn, kept
from ..core.tensor import Tensor, value_of, wrap
from ..errors import NotDifferentiable
from .arguments import joined, real_leaves, seeds_for
from .function import Derived, NativeFunction, Variant, refuse_shared

if TYPE_CHECKING:
    from .formed import ByForm
    from .overloading import Overloaded


class Bound:
    """A native function and its constant arguments; operands fill the gaps between them."""

    __slots__ = (
        "dtype",
        "function",
        "operands",
        "outs",
        "positions",
        "real",
        "shapes",
        "template",
        "value",
    )

    def __init__(self, function: NativeFunction, args: tuple[Any, ...]) -> None:
        """A call on tensors, its arguments split into operands and constants."""
        self.function = function
        self.template: list[Any] = []
        positions = []
        self.operands: list[Any] = []
        for i, a in enumerate(args):
            if isinstance(a, _OPERANDS):
                positions.append(i)
                self.operands.append(a)
                self.template.append(None)
            else:
                self.template.append(unlocked(kept(a)) if isinstance(a, np.ndarray) else a)
        self.positions = tuple(positions)
        self.value: Any = None
        self.shapes: list[tuple[int, ...]] = []
        self.real: list[bool] = []
        self.outs: list[tuple[int, tuple[int, ...]]] = []
        """Positions and shapes of the results that carry derivatives."""
        self.dtype: Any = np.float64
        """That of the op's result."""

    def args(self, xs: Sequence[Any]) -> tuple[Any, ...]:
        full = list(self.template)
        for i, x in zip(self.positions, xs, strict=True):
            full[i] = unlocked(x)
        return tuple(full)

    def split(self, flat: Any) -> list[Any]:
        """One value per operand; the value of a real operand drops the imaginary part, which is zero."""
        parts = split(flat, self.shapes)
        if all(self.real):
            return parts
        return [np.real(p) if real else p for p, real in zip(parts, self.real, strict=True)]

    def variant(self, xs: Sequence[Any]) -> Variant:
        return self.function.variant(self.args(xs))

    def derived(self, args: tuple[Any, ...]) -> Derived | Overloaded | ByForm:
        """The compiled derivative by the operands, for full arguments as `args` returns them."""
        return self.function.variant(args).derived(self.positions)

    def cotangents(self, g: Any, xs: Sequence[Any]) -> list[Any]:
        """Cotangents of the operands from the cotangent of the result, by the compiled adjoint."""
        args = self.args(xs)
        derived = self.derived(args)
        _, bars = derived.run(args, self.seeds(derived, g))
        return [_value(b) for b in bars]

    def seeds(self, derived: Derived | Overloaded | ByForm, g: Any) -> tuple[Any, ...]:
        """The cotangent of the packed result, split into the cotangents of the active results."""
        if len(self.outs) == derived.seeds == derived.results == 1:
            return (np.ascontiguousarray(g) if np.ndim(g) else float(g),)
        return seeds_for(derived, self.by_result(g))

    def by_result(self, g: Any) -> dict[int, Any]:
        """Cotangents of the results by their position, from that of the op's result."""
        parts = split(np.asarray(g), [s for _, s in self.outs])
        return {
            i: np.ascontiguousarray(part) if np.ndim(part) else float(part)
            for (i, _), part in zip(self.outs, parts, strict=True)
        }


def unlocked(a: Any) -> Any:
    """A view that Numba types as writable: read-only arrays have another type there, and derivatives never write to operands."""
    if not isinstance(a, np.ndarray):
        return a
    if a.ndim == 0:
        return a[()]
    if a.flags.writeable:
        return a
    return np.asarray(_Memory(a))


class _Memory:
    """The memory of an array, without its lock."""

    def __init__(self, a: np.ndarray) -> None:
        interface = a.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self.base = a


def pack(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate([np.ravel(p) for p in parts])


def split(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    if len(shapes) == 1:
        return [flat]
    parts = []
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        parts.append(np.reshape(flat[start:stop], shape))
        start = stop
    return parts


def _refuse_shared(function: NativeFunction, given: Sequence[Any]) -> None:
    """Raise if arguments of a function that writes to them share memory, or if that cannot be seen inside another derivative."""
    refuse_shared(function, [value_of(a) for a in given])
    arrays = [a for a in given if isinstance(a, np.ndarray | Tensor) and np.ndim(a)]
    if len(arrays) > 1 and any(isinstance(a, Tensor) for a in arrays):
        raise NotDifferentiable(
            f"{function.__name__} writes to an argument, and inside another derivative it cannot be seen whether its arguments share "
            "memory. Let it work on a copy (x = x.copy()).",
            name="native-writes",
        )


def _for_derivative(
    bound: Bound, args: tuple[Any, ...], owned: Sequence[Any] | None
) -> tuple[Any, ...]:
    """The arguments for a differentiated run: copies of all if the function writes to some of them."""
    function, derived = bound.function, bound.derived(args)
    if derived.draws:
        raise NotDifferentiable(
            f"{function.__name__} was called on tensors that require grad, but it draws random numbers, and its derivative would "
            "draw others. Draw them outside and pass them in, or call tg.value_and_grad on the function itself.",
            name="changed-since",
        )
    written = derived.written(args)
    if not written:
        return args
    if owned is None:
        names = ", ".join(written)
        copies = "; ".join(f"{n} = {n}.copy()" for n in written)
        raise NotDifferentiable(
            f"{function.__name__} was called on tensors that require grad, but it writes to its argument {names}, which the tape "
            f"cannot see. Let it work on a copy ({copies}) and return what it made.",
            name="native-writes",
        )
    _refuse_shared(function, owned)
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def record(
    function: NativeFunction, args: tuple[Any, ...], owned: Sequence[Any] | None = None
) -> Any:
    """Call a native function on tensors: its value, connected to them.

    A function that writes to its arguments is refused, unless a transform owns them: then it runs on copies.
    """
    bound = Bound(function, args)
    raw: list[Any] = []
    nodes: list[Any] = []
    ordinary, standing = True, None
    for t in bound.operands:
        ordinary = ordinary and type(t) is Tensor
        raw.append(value_of(t))
        nodes.append(t._node if isinstance(t, Tensor) else None)
        if isinstance(raw[-1], StandIn):
            ordinary, standing = False, raw[-1]
    tracked = nodes.count(None) < len(nodes) and is_grad_enabled()
    if standing is not None:
        # tg.compile is at work: types and shapes follow from the values of this run
        given = raw
        raw = [x.seen() if isinstance(x, StandIn) else x for x in raw]
    plain = bound.args(raw)
    if tracked:
        plain = _for_derivative(bound, plain, owned)
        for i in bound.derived(plain).unused:
            k = bound.positions.index(i)
            nodes[k] = None  # so the structure of the tape says that the operand is unused
            if isinstance(bound.operands[k], Tensor):
                bound.operands[k] = wrap(value_of(bound.operands[k]))
        tracked = nodes.count(None) < len(nodes)
    if standing is not None and not tracked:
        return _traced(bound, standing, given)
    value = function.dispatcher(*plain)
    several = isinstance(value, tuple)
    results = list(value) if several else [value]
    if not tracked:
        wrapped = [wrap(np.asarray(r)) if _kind(r) in "fc" else r for r in results]
        return tuple(wrapped) if several else wrapped[0]
    kinds = [_kind(r) for r in results]
    flat = real_leaves(results) if "c" in kinds else results
    bound.outs = [(i, getattr(r, "shape", ())) for i, r in enumerate(flat) if _kind(r) == "f"]
    bound.shapes = [np.shape(x) for x in raw]  # a number that tg.compile traces is Python's
    bound.real = [_kind(x) != "c" for x in raw]
    if standing is not None and len(bound.outs) < len(flat):
        others = _traced(bound, standing, given)
        results = list(others) if several else [others]
    if not bound.outs:
        return tuple(results) if several else results[0]
    values = [_value(flat[i]) for i, _ in bound.outs]
    packed = pack(values) if standing is None else None
    bound.dtype = np.result_type(*values) if packed is None else packed.dtype
    if isinstance(packed, np.ndarray) and any(np.may_share_memory(packed, x) for x in raw):
        packed = packed.copy()  # the result of an entry never shares memory with an operand
    if ordinary:
        packed = track(native_call.primitive, nodes, raw, packed, (bound,))
    else:
        bound.value = packed
        packed = native_call(tuple(bound.operands), of=bound)
    parts = iter(split(packed, [s for _, s in bound.outs]))
    for i, kind in enumerate(kinds):
        if kind == "f":
            results[i] = next(parts)
        elif kind == "c":
            results[i] = native_complex((next(parts), next(parts)))
    return tuple(results) if several else results[0]


def _on_copies(bound: Bound, xs: Sequence[Any]) -> Any:
    """A run on copies of the operands: a traced program would not pass a change of an operand on."""
    copies = [storage.duplicate(x) if isinstance(x, np.ndarray) else x for x in xs]
    results = bound.function.dispatcher(*bound.args(copies))
    for before, after in zip(xs, copies, strict=True):
        if isinstance(after, np.ndarray) and after.tobytes() != before.tobytes():
            raise NotDifferentiable(
                f"{bound.function.__name__} was called inside a function that tg.compile compiles, but it writes to an argument, which "
                "the program would not see. Let it work on a copy (x = x.copy()) and return what it made.",
                name="native-writes",
            )
    return results


def _traced(bound: Bound, standing: StandIn, given: Sequence[Any]) -> Any:
    """The call as part of the program that `tg.compile` is tracing, without derivatives."""
    result = standing.called(
        lambda *xs: _on_copies(bound, xs), tuple(given), bound.function.__name__
    )
    if not isinstance(result, tuple):
        return wrap(storage.as_array(result)) if result.dtype.kind == "f" else result
    return tuple(wrap(storage.as_array(r)) if r.dtype.kind == "f" else r for r in result)


def _value(r: Any) -> Any:
    """A result of compiled code as tensors hold values: an array or a NumPy scalar."""
    if type(r) is complex:
        return np.complex128(r)
    return np.float64(r) if type(r) is float else r


def _kind(r: Any) -> str:
    """NumPy's kind of a result of compiled code: "f" and "c" have derivatives; "O" is neither number nor array."""
    if type(r) is float:
        return "f"
    if type(r) is complex:
        return "c"
    return r.dtype.kind if isinstance(r, np.ndarray | np.generic) else "O"


_OPERANDS = (Tensor, StandIn)
_PLAIN = frozenset((np.ndarray, np.float64))


# ---------------------------------------------------------------------------------------------------- the ops


def _call(xs: Sequence[Any], of: Bound) -> Any:
    value, of.value = of.value, None
    if value is not None:
        return value
    results = of.function.dispatcher(*of.args(xs))
    if not isinstance(results, tuple):
        results = (results,)
    if any(_kind(r) == "c" for r in results):
        results = real_leaves(results)
    return pack([_value(results[i]) for i, _ in of.outs])


def _join(xs: Sequence[Any]) -> Any:
    return joined(*map(np.asarray, xs))[()]


@primitive(_join, name="native_complex", linear=True, holomorphic=False)
def native_complex(g: Any, xs: Any) -> Any:
    """Complex numbers from their real and imaginary parts."""
    return [np.real(g), np.imag(g)]


def _pull(xs: Sequence[Any], of: Bound) -> Any:
    return pack(of.cotangents(xs[0], xs[1:]))


def _push(xs: Sequence[Any], of: Bound) -> Any:
    n = len(of.positions)
    return _pushed([np.asarray(d)[None] for d in xs[:n]], xs[n:], of)[0]


def _pushed(directions: Sequence[Any], values: Sequence[Any], of: Bound) -> Any:
    """Tangents of the op's result along directions, which a first axis counts, in the operands as in the result."""
    size, count = sum(math.prod(shape) for _, shape in of.outs), len(directions[0])
    args = of.args(values)
    pushed = of.function.variant(args).push(args, tuple(of.positions), directions, size)
    if pushed is None:
        return _by_cotangents(directions, values, of)
    return _packed([pushed.get(i, np.zeros((count, *shape))) for i, shape in of.outs])


def _by_cotangents(directions: Sequence[Any], values: Sequence[Any], of: Bound) -> Any:
    """The same, from the cotangents of each number of the result."""
    sizes = [math.prod(shape) for _, shape in of.outs]
    g = np.zeros(of.outs[0][1] if len(sizes) == 1 else sum(sizes), of.dtype)
    found = np.zeros((len(directions[0]), *g.shape), of.dtype)
    for k in np.ndindex(g.shape):
        g[k] = 1.0
        for bar, along in zip(of.cotangents(g, values), directions, strict=True):
            for n, direction in enumerate(along):
                found[n, *k] += np.sum(strong(direction, np.conj(bar)).real)
        g[k] = 0.0
    return found


def _packed(parts: Sequence[Any]) -> Any:
    """`pack` applied to each element of the first axis."""
    if len(parts) == 1:
        return np.asarray(parts[0])
    return np.concatenate([np.reshape(p, (len(p), -1)) for p in parts], axis=1)


def _bend(xs: Sequence[Any], of: Bound) -> Any:
    n = len(of.positions)
    return _bent(xs[0], [np.asarray(d)[None] for d in xs[1 : n + 1]], xs[n + 1 :], of)[0]


def _bent(g: Any, directions: Sequence[Any], values: Sequence[Any], of: Bound) -> Any:
    args = of.args(values)
    variant = of.function.variant(args)
    return _packed(variant.bend(args, tuple(of.positions), of.by_result(g), directions))


def _call_jvp(given: Sequence[Any], values: Sequence[Any], out: Any, *, of: Bound) -> Any:
    return native_push((*_filled(given, values), *values), of=of)


def _call_jvps(given: Sequence[Any], values: Sequence[Any], out: Any, of: Bound) -> Any:
    """Tangents along several directions; one run of compiled code carries a few directions."""
    return _pushed(_filled_all(given, values), values, of)


def _filled_all(given: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    count = next(len(t) for t in given if t is not None)
    return [
        np.zeros((count, *np.shape(v)), v.dtype) if t is None else t
        for t, v in zip(given, values, strict=True)
    ]


def _filled(given: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [
        np.zeros(np.shape(v), v.dtype) if t is None else t
        for t, v in zip(given, values, strict=True)
    ]


@primitive(_call, name="native_call", jvp=_call_jvp, directions=_call_jvps, holomorphic=False)
def native_call(g: Any, xs: Any, *, of: Any) -> Any:
    """A compiled function of the user's, with the adjoint that was generated for it."""
    if _PLAIN.issuperset(map(type, (g, *xs))):
        return of.cotangents(g, xs)  # no tape records here
    return of.split(native_pull((g, *xs), of=of))


def _pull_jvp(given: Sequence[Any], values: Sequence[Any], out: Any, *, of: Bound) -> Any:
    g, *xs = values
    total = None
    if given[0] is not None:
        total = native_pull((given[0], *xs), of=of)
    if any(t is not None for t in given[1:]):
        bent = native_bend((g, *_filled(given[1:], xs), *xs), of=of)
        total = bent if total is None else total + bent
    return total


def _pull_jvps(given: Sequence[Any], values: Sequence[Any], out: Any, of: Bound) -> Any:
    g, *xs = values
    total = None
    if given[0] is not None:
        total = np.stack([np.asarray(_pull((t, *xs), of)) for t in given[0]])
    if any(t is not None for t in given[1:]):
        bent = _bent(g, _filled_all(given[1:], xs), xs, of)
        total = bent if total is None else total + bent
    return total


@primitive(_pull, name="native_pull", jvp=_pull_jvp, directions=_pull_jvps, holomorphic=False)
def native_pull(g: Any, xs: Any, *, of: Any) -> Any:
    """Cotangents of a native function's operands from that of its result, packed into one array."""
    directions = of.split(g)
    seed, *values = xs
    along = native_push((*directions, *values), of=of)
    bent = native_bend((seed, *directions, *values), of=of)
    return [along, *of.split(bent)]


def _push_jvp(given: Sequence[Any], values: Sequence[Any], out: Any, *, of: Bound) -> Any:
    n = len(of.positions)
    if any(t is not None for t in given[n:]):
        raise NotDifferentiable(
            f"a tangent of {of.function.__name__} was to be differentiated in forward mode once more, which has no code. Use "
            "reverse mode for the inner or the outer derivative (hessian, hvp).",
            name="high-order",
        )
    return native_push((*_filled(given[:n], values[n:]), *values[n:]), of=of)


@primitive(_push, name="native_push", jvp=_push_jvp, holomorphic=False)
def native_push(g: Any, xs: Any, *, of: Any) -> Any:
    """The tangent of a native function's result from those of its operands."""
    n = len(of.positions)
    directions, values = xs[:n], xs[n:]
    back = of.split(native_pull((g, *values), of=of))
    bent = of.split(native_bend((g, *directions, *values), of=of))
    return [*back, *bent]


def _twist(xs: Sequence[Any], of: Bound) -> Any:
    n = len(of.positions)
    seed, first, second, values = xs[0], xs[1 : n + 1], xs[n + 1 : 2 * n + 1], xs[2 * n + 1 :]
    args = of.args(values)
    seeds, along = of.by_result(seed), (first, second)
    parts = of.function.variant(args).twist(args, tuple(of.positions), seeds, along)
    return np.asarray(pack([np.asarray(p) for p in parts]))


def _bend_jvp(given: Sequence[Any], values: Sequence[Any], out: Any, *, of: Bound) -> Any:
    n = len(of.positions)
    g, directions, xs = values[0], values[1 : n + 1], values[n + 1 :]
    terms = []
    if given[0] is not None:
        terms.append(native_bend((given[0], *directions, *xs), of=of))
    if any(t is not None for t in given[1 : n + 1]):
        terms.append(native_bend((g, *_filled(given[1 : n + 1], xs), *xs), of=of))
    if any(t is not None for t in given[n + 1 :]):
        along = _filled(given[n + 1 :], xs)
        terms.append(native_twist((g, *directions, *along, *xs), of=of))
    return functools.reduce(operator.add, terms)


@primitive(_bend, name="native_bend", jvp=_bend_jvp, holomorphic=False)
def native_bend(g: Any, xs: Any, *, of: Any) -> Any:
    """The derivative of a pull along a direction of the operands: forward mode over reverse."""
    n = len(of.positions)
    seed, directions, values = xs[0], xs[1 : n + 1], xs[n + 1 :]
    back = of.split(g)
    if np.size(seed) != 1:
        raise NotDifferentiable(
            f"a third derivative of {of.function.__name__} was asked in reverse mode, which native functions have only where their "
            "result is one number. Use forward mode for the outer derivative, or reduce the result to a number.",
            name="high-order",
        )
    along = native_bend((np.ones(np.shape(seed)), *directions, *values), of=of)
    by_seed = sum(
        np.sum(np.real(np.conj(a) * b)) for a, b in zip(back, of.split(along), strict=True)
    )
    bent = native_bend((seed, *back, *values), of=of)
    twisted = native_twist((seed, *directions, *back, *values), of=of)
    return [np.reshape(by_seed, np.shape(seed)), *of.split(bent), *of.split(twisted)]


def _twist_jvp(given: Sequence[Any], values: Sequence[Any], out: Any, *, of: Bound) -> Any:
    raise _refused(of)


@primitive(_twist, name="native_twist", jvp=_twist_jvp, holomorphic=False)
def native_twist(g: Any, xs: Any, *, of: Any) -> Any:
    """The derivative of a bend along one more direction: a third derivative."""
    raise _refused(of)


def _refused(of: Bound) -> NotDifferentiable:
    return NotDifferentiable(
        f"a fourth derivative of {of.function.__name__} was asked, but native functions have three. Write the function in NumPy on "
        "tensors where more are needed.",
        name="high-order",
    )
