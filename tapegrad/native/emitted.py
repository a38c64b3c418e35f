"""Helpers of generated code that are emitted where they are called, as LLVM's instructions.

Each function that Numba compiles takes some 50 to 300 ms, for a handful of lines as well: typing, lowering, LLVM's passes, machine code of
its own. An adjoint calls few helpers, but always these, and its first call waits for them; so they are no functions to Numba.

Invariant: what is emitted does what the text beside it says in plain Python, element by element in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_new_ref
from numba.np.arrayobj import _empty_nd_impl, make_array

# Typed loosely: to type checkers its results take one argument more than they do.
intrinsic: Any = extending.intrinsic
_INDEX = ir.IntType(64)

EXCEEDED = (
    "the derivative of a native function would keep more for its reverse sweep than the limit allows: go back over time from snapshots "
    "(tg.checkpointed), shorten the run, or set TAPEGRAD_NATIVE_LIMIT (bytes)"
)


@intrinsic
def at(context: Any, i: Any) -> Any:
    """An index that is not negative: of an unsigned one Numba does not ask whether it counts from the end, and loops vectorise."""

    def same(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return types.uint64(types.int64), same


def _guarded(name: str) -> Callable[[Any, Any, Any], Any]:
    """A product or quotient of numbers that is 0 wherever the first of them is 0; of float32 alone it is float32."""

    def combined(context: Any, g: Any, p: Any) -> Any:
        if not all(isinstance(k, types.Number | types.Boolean) for k in (g, p)):
            return None
        kind = types.float32 if g == p == types.float32 else types.float64

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            zero = context.get_constant(kind, 0.0)
            nothing = builder.fcmp_ordered("==", args[0], zero)
            return builder.select(nothing, zero, getattr(builder, name)(*args))

        return kind(kind, kind), emit

    return combined


strong = intrinsic(_guarded("fmul"))
"""g * p, but 0 where g is 0, however infinite the partial p is: where nothing comes back, nothing goes on (`primitive.strong`)."""
strong_quotient = intrinsic(_guarded("fdiv"))
"""The same of g / p."""


@intrinsic
def has_nan(context: Any, a: Any) -> Any:
    """Whether a number, or any element of an array, is NaN; of whole numbers none is."""
    kind = getattr(a, "dtype", a)
    if not isinstance(kind, types.Number | types.Boolean):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Instructions: whether a number, or an entry of an array, is NaN."""
        if not isinstance(kind, types.Float):
            return context.get_constant(types.boolean, False)
        if not isinstance(a, types.Array):
            return builder.fcmp_unordered("uno", args[0], args[0])
        array = make_array(a)(context, builder, args[0])
        found = cgutils.alloca_once_value(builder, ir.IntType(64)(0))

        def look(places: Sequence[Any]) -> None:
            v = builder.load(places[0])
            nan = builder.zext(builder.fcmp_unordered("uno", v, v), ir.IntType(64))
            builder.store(builder.or_(builder.load(found), nan), found)

        side = _Side(context, builder, a, array, a.ndim)
        shape = cgutils.unpack_tuple(builder, array.shape)
        if a.is_contig and a.ndim > 1:
            _flatten(builder, shape, [side], ir.IntType(1)(1))
        _nest(builder, shape, [side], look)
        return builder.icmp_signed("!=", builder.load(found), ir.IntType(64)(0))

    return types.boolean(a), emit


@intrinsic
def least(context: Any, a: Any, b: Any) -> Any:
    """min(a, b) of two whole numbers."""

    def smaller(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed("<", *args), *args)

    return types.int64(types.int64, types.int64), smaller


@intrinsic
def zeros_like(context: Any, a: Any) -> Any:
    """np.zeros_like(a) of an array."""
    if not isinstance(a, types.Array):
        return None
    made = types.Array(a.dtype, a.ndim, "F" if a.layout == "F" else "C")

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        like = make_array(a)(context, builder, args[0])
        return _zeros(context, builder, made, cgutils.unpack_tuple(builder, like.shape))

    return made(a), emit


@intrinsic
def zeros_of(context: Any, rows: Any, columns: Any) -> Any:
    """np.zeros((rows, columns)); of no rows, np.zeros(columns)."""
    one = isinstance(rows, types.NoneType)
    made = types.Array(types.float64, 1 if one else 2, "C")

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _zeros(context, builder, made, args[1:] if one else args)

    return made(types.none if one else types.int64, types.int64), emit


def _zeros(context: Any, builder: Any, made: Any, shape: Sequence[Any]) -> Any:
    out = _empty_nd_impl(context, builder, made, shape)
    cgutils.memset(builder, out.data, builder.mul(out.itemsize, out.nitems), 0)
    return impl_ret_new_ref(context, builder, made, out._getvalue())


@intrinsic
def grown(context: Any, stack: Any, n: Any, limit: Any) -> Any:
    """A stack with room for n elements, with the contents of this one; MemoryError where it would take more than `limit` bytes.

    size = max(2 * stack.size, n, 1024)
    if size * 8 > limit: size = n
    if size * 8 > limit: raise MemoryError
    out = np.empty(size, stack.dtype)
    out[: stack.size] = stack
    """
    if not isinstance(stack, types.Array):
        return None
    made = types.Array(stack.dtype, 1, "C")

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Instructions: a stack of twice the room with the old one's contents; MemoryError beyond the limit."""
        old = make_array(stack)(context, builder, args[0])
        n, limit = args[1:]

        def most(a: Any, b: Any) -> Any:
            return builder.select(builder.icmp_signed(">", a, b), a, b)

        def exceeds(size: Any) -> Any:
            return builder.icmp_signed(">", builder.mul(size, _INDEX(8)), limit)

        size = most(most(builder.mul(old.nitems, _INDEX(2)), n), _INDEX(1024))
        size = builder.select(exceeds(size), n, size)
        with builder.if_then(exceeds(size), likely=False):
            context.call_conv.return_user_exc(builder, MemoryError, (EXCEEDED,))
        out = _empty_nd_impl(context, builder, made, [size])
        cgutils.raw_memcpy(builder, out.data, old.data, old.nitems, old.itemsize)
        return impl_ret_new_ref(context, builder, made, out._getvalue())

    return made(stack, types.int64, types.int64), emit


@intrinsic
def clear(context: Any, a: Any) -> Any:
    """a[...] = 0"""
    if not isinstance(a, types.Array):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = make_array(a)(context, builder, args[0])
        if a.is_contig:
            cgutils.memset(builder, array.data, builder.mul(array.itemsize, array.nitems), 0)
        else:
            zero = context.get_constant_null(a.dtype)
            shape = cgutils.unpack_tuple(builder, array.shape)
            side = _Side(context, builder, a, array, a.ndim)
            _nest(builder, shape, [side], lambda places: builder.store(zero, places[0]))
        return context.get_dummy_value()

    return types.none(a), emit


@intrinsic
def accumulate(context: Any, bar: Any, g: Any) -> Any:
    """bar += g; g is a number, or an array that is stretched to bar's shape or summed down to it.

    Axes are matched from the last one. Where an axis of g has length one, it meets every element of bar along it; where bar has
    length one or no such axis, elements of g are added one after the other.
    """
    number = isinstance(g, types.Number | types.Boolean)
    if not isinstance(bar, types.Array) or not (number or isinstance(g, types.Array)):
        return None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Instructions: add a number or an array to a shadow, with broadcasting."""
        kinds = bar.dtype, g if number else g.dtype
        both = context.typing_context.unify_types(*kinds)

        def add(places: Sequence[Any]) -> None:
            to = places[0]
            term = args[1] if number else _load(context, builder, kinds[1], places[1])
            held = _load(context, builder, kinds[0], to)
            total = builder.fadd(
                context.cast(builder, held, kinds[0], both),
                context.cast(builder, term, kinds[1], both),
            )
            builder.store(context.cast(builder, total, both, kinds[0]), to)

        to = make_array(bar)(context, builder, args[0])
        if number:
            shape = cgutils.unpack_tuple(builder, to.shape)
            _nest(builder, shape, [_Side(context, builder, bar, to, bar.ndim)], add)
            return context.get_dummy_value()
        axes = max(bar.ndim, g.ndim)
        left = _Side(context, builder, bar, to, axes)
        right = _Side(context, builder, g, make_array(g)(context, builder, args[1]), axes)
        _nest(builder, _met(builder, left, right), [left, right], add)
        return context.get_dummy_value()

    return types.none(bar, g), emit


class _Side:
    """An array in a nest of loops: its extent and its step along each axis, in bytes; axes that it lacks come first."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, axes: int) -> None:
        missing = axes - kind.ndim
        self.data = array.data
        self.size = array.itemsize
        self.extents = [_INDEX(1)] * missing + cgutils.unpack_tuple(builder, array.shape)
        self.steps = [_INDEX(0)] * missing + cgutils.unpack_tuple(builder, array.strides)
        self.dense = kind.layout if kind.ndim == axes else ""
        """How the elements lie, if one after the other along all axes: "C" or "F"."""


def _met(builder: Any, left: _Side, right: _Side) -> list[Any]:
    """The extents of a nest in which two arrays meet; where they are stretched their step is zero."""
    one = _INDEX(1)
    shape = []
    same: Any = ir.IntType(1)(left.dense == right.dense and left.dense in ("C", "F"))
    for k, (n, m) in enumerate(zip(left.extents, right.extents, strict=True)):
        equal, lone = builder.icmp_signed("==", n, m), builder.icmp_signed("==", m, one)
        shape.append(builder.select(lone, n, m))
        stays = builder.or_(equal, lone)
        left.steps[k] = builder.select(stays, left.steps[k], _INDEX(0))
        right.steps[k] = builder.select(lone, _INDEX(0), right.steps[k])
        same = builder.and_(same, equal)
    if left.dense == right.dense and left.dense in ("C", "F") and len(shape) > 1:
        _flatten(builder, shape, [left, right], same)
    return shape


def _flatten(builder: Any, shape: list[Any], sides: Sequence[_Side], when: Any) -> None:
    """Where arrays lie alike, one loop goes over all elements."""
    total = shape[0]
    for n in shape[1:]:
        total = builder.mul(total, n)
    for k, n in enumerate(shape):
        shape[k] = builder.select(when, total if k == len(shape) - 1 else _INDEX(1), n)
    for side in sides:
        side.steps[-1] = builder.select(when, side.size, side.steps[-1])


def _nest(
    builder: Any, shape: Sequence[Any], sides: Sequence[_Side], body: Callable[[Sequence[Any]], Any]
) -> None:
    """Loops over all axes; the body gets the place of each side's element."""
    bytes_ = ir.IntType(8)

    def places(starts: Sequence[Any], axis: int, i: Any) -> list[Any]:
        return [
            builder.gep(start, [builder.mul(i, side.steps[axis])])
            for start, side in zip(starts, sides, strict=True)
        ]

    def elements(starts: Sequence[Any]) -> list[Any]:
        return [builder.bitcast(p, side.data.type) for p, side in zip(starts, sides, strict=True)]

    def level(axis: int, starts: Sequence[Any]) -> None:
        """Instructions of the loop over an axis; the innermost one has a form for entries that lie side by side."""
        if axis == len(shape):
            body(elements(starts))
            return
        if axis < len(shape) - 1:
            with cgutils.for_range(builder, shape[axis]) as loop:
                level(axis + 1, places(starts, axis, loop.index))
            return
        # Elements that lie side by side have a loop of their own, which LLVM turns into one over vectors.
        dense: Any = ir.IntType(1)(1)
        for side in sides:
            dense = builder.and_(dense, builder.icmp_signed("==", side.steps[axis], side.size))
        with builder.if_else(dense) as (dense_way, other_way):
            with dense_way, cgutils.for_range(builder, shape[axis]) as loop:
                body([builder.gep(p, [loop.index]) for p in elements(starts)])
            with other_way, cgutils.for_range(builder, shape[axis]) as loop:
                body(elements(places(starts, axis, loop.index)))

    level(0, [builder.bitcast(side.data, bytes_.as_pointer()) for side in sides])


def _load(context: Any, builder: Any, kind: Any, place: Any) -> Any:
    return context.unpack_value(builder, kind, place)
