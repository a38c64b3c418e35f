"""Numbers that carry derivatives inside compiled code, as types of Numba.

An `Active` is a value and the number of its record on a flat tape (0: a constant); a `Dual` is a value and its tangents along a
fixed number of directions. The value of an Active is a float64, or a Dual where a second derivative is wanted. Both are plain
structs, so that arrays, lists and tuples of them are Numba's own, and a copy of an element carries its derivative along.

A tape is one block of memory of records `(partial, partial, operand, operand)`, 24 bytes each for float64, grown by doubling
through a call of Python that the hot path never takes. Invariant: memory of carriers is zeroed before it is used, because a number of a
record that was never written would be an index out of bounds; and there is no conversion from a carrier to a plain
number, so that what would lose a derivative has no type.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.typeconv import Conversion
from numba.extending import (
    intrinsic,
    lower_cast,
    make_attribute_wrapper,
    models,
    register_model,
    typeof_impl,
)

from ..core import locks
from . import runtime
from .emitted import strong
from .runtime import kernel

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
PLAIN = types.Float, types.Integer, types.Boolean
"""Types of numbers without derivatives."""
LARGEST = 2**32 - 1
"""Records are numbered by 32 bits on the tape."""


def overload(target: Any, **options: Any) -> Callable[[Any], Any]:
    """`numba.extending.overload`, which wants both signatures equal to the annotations: without annotations they are."""

    def add(choose: Any) -> Any:
        """Register an overload without its annotations, which Numba would try to read as types."""

        @functools.wraps(choose)
        def bare(*kinds: Any, **more: Any) -> Any:
            found = choose(*kinds, **more)
            if found is not None:
                found.__annotations__ = {}
            return found

        bare.__annotations__ = {}
        del bare.__wrapped__
        bare.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                p.replace(annotation=inspect.Parameter.empty)
                for p in inspect.signature(choose).parameters.values()
            ]
        )
        extending.overload(target, **options)(bare)
        return choose

    return add


class Carrier(types.Type):  # type: ignore[misc]
    """A number with derivatives; truth values, whole numbers and floats convert to it, nothing converts back."""

    inner: Any
    make: Any
    """For compiled code: a carrier of its parts."""

    def unify(self, context: Any, other: Any) -> Any:
        return self if isinstance(other, PLAIN) else None

    def can_convert_from(self, context: Any, other: Any) -> Any:
        half = other == types.float16
        return Conversion.safe if isinstance(other, PLAIN) and not half else None

    @property
    def dtype_word(self) -> Any:
        """An object that compiled code takes for the dtype of arrays of this type."""
        return _Spec(self)


class _Spec:
    def __init__(self, kind: Any) -> None:
        self.kind = kind


@typeof_impl.register(_Spec)
def _typeof_spec(value: _Spec, context: Any) -> Any:
    return types.DType(value.kind)


class Dual(Carrier):
    """A float64 with its tangents along `width` directions."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.inner = types.float64
        super().__init__(name=f"Dual[{width}]")


class Active(Carrier):
    """A number with the record that it was computed by."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        super().__init__(name=f"Active[{inner}]")


@register_model(Dual)
class _DualModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Dual) -> None:
        parts = [("v", types.float64), ("d", types.UniTuple(types.float64, kind.width))]
        super().__init__(manager, kind, parts)


@register_model(Active)
class _ActiveModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Active) -> None:
        super().__init__(manager, kind, [("v", kind.inner), ("i", types.int64)])


for _kind, _parts in ((Dual, "vd"), (Active, "vi")):
    for _part in _parts:
        make_attribute_wrapper(_kind, _part, _part)


def _constant_dual(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    proxy = cgutils.create_struct_proxy(wanted)(context, builder)
    proxy.v = context.cast(builder, value, given, types.float64)
    proxy.d = ir.Constant(context.get_value_type(types.UniTuple(types.float64, wanted.width)), None)
    return proxy._getvalue()


def _constant_active(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    proxy = cgutils.create_struct_proxy(wanted)(context, builder)
    proxy.v = context.cast(builder, value, given, wanted.inner)
    proxy.i = _I64(0)
    return proxy._getvalue()


for _number in PLAIN:
    lower_cast(_number, Dual)(_constant_dual)
    lower_cast(_number, Active)(_constant_active)


def _maker(kind: Any, second: Any, name: str) -> Any:
    """Compiled code's way to put a carrier together."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        proxy = cgutils.create_struct_proxy(kind)(context, builder)
        proxy.v = args[0]
        setattr(proxy, name, args[1])
        return proxy._getvalue()

    @intrinsic
    def make(context: Any, v: Any, more: Any) -> Any:
        return kind(kind.inner, second), build

    return make


# ------------------------------------------------------------------------------------------------------ the tape


class _Columns(NamedTuple):
    """How compiled code reads and writes a tape: each is an intrinsic."""

    count: Any
    capacity: Any
    set_count: Any
    put: Any
    grow: Any
    partials: tuple[Any, Any]
    """Of the k-th record, by its first and by its second operand."""
    operands: tuple[Any, Any]


class Tape:
    """The records of one run, and the words by which compiled code reaches them.

    One run at a time writes to a tape: it holds `lock`.
    """

    def __init__(self, kind: Active) -> None:
        """A tape of records (two partials and two parents) in memory that compiled code grows by a callback."""
        self.kind = kind
        self.header = np.zeros(4, np.int64)
        """For compiled code: records so far, room for, and their address."""
        self.memory: np.ndarray | None = None
        self.limit = runtime.memory_limit()
        self.lock = locks.rlock()
        self.size = 8 + 8 * 2 * (1 + (kind.inner.width if isinstance(kind.inner, Dual) else 0))
        """Bytes of a record."""
        self.bar_size = (self.size - 8) // 2
        self._grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self.grow)
        # Compiled code knows header and `grow` by name, not by address: so it can be kept for other processes.
        width = kind.inner.width if isinstance(kind.inner, Dual) else 0
        self.symbols = f"tapegrad_tape_{width}", f"tapegrad_grow_{width}"
        llvm.add_symbol(self.symbols[0], self.header.ctypes.data)
        llvm.add_symbol(self.symbols[1], ctypes.cast(self._grow, ctypes.c_void_p).value)
        columns = self._columns()
        self._appending(columns)
        self._walking(columns)

    def grow(self, wanted: int) -> int:
        """Room for so many records; whether there is. Called by compiled code."""
        size = max(2 * int(self.header[1]), wanted, 4096)
        each = self.size + self.bar_size
        if size * each > self.limit or size > LARGEST:
            size = wanted
        if size * each > self.limit or size > LARGEST:
            return 0
        try:
            memory = np.empty(size * self.size, np.uint8)
        except MemoryError:
            return 0
        if self.memory is not None:
            used = int(self.header[0]) * self.size
            memory[:used] = self.memory[:used]
        self.memory = memory
        self.header[1] = size
        self.header[2] = memory.ctypes.data
        return 1

    def release(self) -> None:
        """Give the memory back."""
        with self.lock:
            self.memory = None
            self.header[:] = 0

    def _columns(self) -> _Columns:
        """Make the intrinsics by which compiled code reads and writes the tape's memory."""
        inner: Any = self.kind.inner
        header, grower = self.symbols

        def place(builder: Any, column: int) -> Any:
            words = builder.module.globals.get(header)
            if words is None:
                words = ir.GlobalVariable(builder.module, ir.ArrayType(_I64, 4), header)
            return builder.gep(words, [_I32(0), _I32(column)])

        def reader(column: int) -> Any:
            @intrinsic
            def read(context: Any) -> Any:
                return types.int64(), lambda c, builder, s, a: builder.load(place(builder, column))

            return read

        def record(context: Any, builder: Any, k: Any) -> Any:
            part = context.get_value_type(inner)
            kind = ir.LiteralStructType([part, part, _I32, _I32])
            return builder.gep(
                builder.inttoptr(builder.load(place(builder, 2)), kind.as_pointer()), [k]
            )

        def parts(builder: Any, at: Any) -> list[Any]:
            return [builder.gep(at, [_I32(0), _I32(j)]) for j in range(4)]

        word: Any = (
            intrinsic  # for type checkers, who do not know that an intrinsic takes its own context
        )

        @word
        def set_count(context: Any, n: Any) -> Any:
            def build(c: Any, builder: Any, s: Any, args: Any) -> Any:
                builder.store(args[0], place(builder, 0))
                return c.get_dummy_value()

            return types.void(types.int64), build

        @word
        def put(context: Any, k: Any, p: Any, i: Any, q: Any, j: Any) -> Any:
            def build(c: Any, builder: Any, s: Any, args: Any) -> Any:
                k, p, i, q, j = args
                at = parts(builder, record(c, builder, k))
                builder.store(p, at[0], align=8)
                builder.store(q, at[1], align=8)
                builder.store(builder.trunc(i, _I32), at[2])
                builder.store(builder.trunc(j, _I32), at[3])
                builder.store(builder.add(k, _I64(1)), place(builder, 0))
                return c.get_dummy_value()

            return types.void(types.int64, inner, types.int64, inner, types.int64), build

        def getter(column: int, kind: Any) -> Any:
            @word
            def get(context: Any, k: Any) -> Any:
                def build(c: Any, builder: Any, s: Any, args: Any) -> Any:
                    value = builder.load(
                        parts(builder, record(c, builder, args[0]))[column],
                        align=8 if column < 2 else 4,
                    )
                    return value if column < 2 else builder.zext(value, _I64)

                return kind(types.int64), build

            return get

        @word
        def grow(context: Any, n: Any) -> Any:
            def build(c: Any, builder: Any, s: Any, args: Any) -> Any:
                kind = ir.FunctionType(_I64, [_I64])
                return builder.call(
                    cgutils.get_or_insert_function(builder.module, kind, grower), args
                )

            return types.int64(types.int64), build

        return _Columns(
            reader(0),
            reader(1),
            set_count,
            put,
            grow,
            (getter(0, inner), getter(1, inner)),
            (getter(2, types.int64), getter(3, types.int64)),
        )

    def _appending(self, columns: _Columns) -> None:
        """Make the functions by which compiled code appends to the tape."""
        count, capacity, set_count, put, grow, *_ = columns

        @kernel
        def room(n: int) -> None:
            if grow(n) == 0:
                raise MemoryError(
                    "the derivative of a native function by overloading would record more operations than the limit allows: "
                    "shorten the run, or set TAPEGRAD_NATIVE_LIMIT (bytes)"
                )

        @kernel
        def push(p: Any, i: int, q: Any, j: int) -> Any:
            """Number of a new record. Record number 1 is the first."""
            n = count()
            if n >= capacity():
                room(n + 1)
            put(n, p, i, q, j)
            return n + 1

        @kernel
        def reserve(n: int) -> Any:
            """Numbers of n inputs, whose records are never read; the last one before the first of them."""
            before = count()
            if before + n > capacity():
                room(before + n)
            set_count(before + n)
            return before

        @kernel
        def start() -> None:
            set_count(0)

        self.count, self.push, self.reserve, self.start = count, push, reserve, start

    def _walking(self, columns: _Columns) -> None:
        """Make the functions that walk the tape back, and forth."""
        first_partial, second_partial = columns.partials
        first_operand, second_operand = columns.operands

        @kernel
        def sweep(bars: Any, inputs: int) -> None:
            """The chain rule, from the last record to the first that is no input. -0.0 marks what no result depends on."""
            for k in range(bars.size - 1, inputs, -1):
                g = bars[k]
                if not untouched(g):
                    i = first_operand(k - 1)
                    j = second_operand(k - 1)
                    # + 0.0 takes the sign from a zero: what was reached is no longer marked.
                    bars[i] = bars[i] + (_strong(g, first_partial(k - 1)) + 0.0)
                    bars[j] = bars[j] + (_strong(g, second_partial(k - 1)) + 0.0)

        @kernel
        def rise(dots: Any, inputs: int) -> None:
            """Tangents of all records from those of the inputs; dots has an axis of directions behind."""
            for k in range(inputs + 1, dots.shape[0]):
                i = first_operand(k - 1)
                j = second_operand(k - 1)
                if i:
                    p = first_partial(k - 1)
                    for d in range(dots.shape[1]):
                        dots[k, d] += strong(dots[i, d], p)
                if j:
                    q = second_partial(k - 1)
                    for d in range(dots.shape[1]):
                        dots[k, d] += strong(dots[j, d], q)

        self.sweep, self.rise = sweep, rise


def untouched(g: Any) -> Any:
    """Whether a cotangent is the mark -0.0."""
    raise NotImplementedError("for compiled code")


@overload(untouched)
def _untouched(g: Any) -> Any:
    if isinstance(g, Dual):
        return lambda g: untouched(g.v)
    return lambda g: g == 0.0 and np.signbit(g)


def _strong(g: Any, p: Any) -> Any:
    """The strong product of a cotangent and a partial, which may be Duals."""
    raise NotImplementedError("for compiled code")


@overload(_strong)
def _strong_of(g: Any, p: Any) -> Any:
    if not isinstance(g, Dual):
        return lambda g, p: strong(g, p)
    # A partial that does not vary says nothing of an infinite cotangent: its tangent of 0 stays 0, too.
    each = "strong(g.d[{0}], p.v) + (strong(g.v, p.d[{0}]) if p.d[{0}] != 0.0 else 0.0)"
    parts = ", ".join(each.format(k) for k in range(g.width))
    return eval(
        f"lambda g, p: make(strong(g.v, p.v), ({parts},))", {"make": g.make, "strong": strong}
    )


_tapes: dict[Any, Tape] = {}


@functools.cache
def dual(width: int) -> Dual:
    """The type of numbers with so many tangents."""
    kind = Dual(width)
    kind.make = _maker(kind, types.UniTuple(types.float64, width), "d")
    return kind


@functools.cache
def active(inner: Any = types.float64) -> Active:
    """The type of numbers on a tape."""
    kind = Active(inner)
    kind.make = _maker(kind, types.int64, "i")
    _tapes[kind] = Tape(kind)
    return kind


def tape(kind: Active) -> Tape:
    return _tapes[kind]


def release_memory() -> None:
    """Give back what all tapes keep between calls."""
    for found in list(_tapes.values()):
        found.release()


def kept_bytes() -> int:
    return sum(t.memory.nbytes for t in _tapes.values() if t.memory is not None)


# ------------------------------------------------------------------------------------------- results of operations


def joined(out: Any, x: Any, p: Any) -> Any:
    """The carrier of a result `out` of an operand x, with the partial derivative p."""
    raise NotImplementedError("for compiled code")


def joined_two(out: Any, x: Any, p: Any, y: Any, q: Any) -> Any:
    """The same, of two operands."""
    raise NotImplementedError("for compiled code")


@functools.cache
def _joiner(kind: Any, two: bool) -> Any:
    """A nopython function that makes a carrier of a value and its one or two partials."""
    make = kind.make
    if isinstance(kind, Active):
        push = tape(kind).push

        def one_record(out: Any, x: Any, p: Any) -> Any:
            return make(out, push(p, x.i, 0.0, 0) if x.i else 0)

        def two_records(out: Any, x: Any, p: Any, y: Any, q: Any) -> Any:
            return make(out, push(p, x.i, q, y.i) if x.i | y.i else 0)

        return two_records if two else one_record
    n = range(kind.width)
    if two:
        text = "lambda out, x, p, y, q: make(out, ({},))".format(
            ", ".join(f"strong(x.d[{k}], p) + strong(y.d[{k}], q)" for k in n)
        )
    else:
        text = "lambda out, x, p: make(out, ({},))".format(
            ", ".join(f"strong(x.d[{k}], p)" for k in n)
        )
    return eval(text, {"make": make, "strong": strong})


@overload(joined)
def _joined(out: Any, x: Any, p: Any) -> Any:
    return _joiner(x, False) if isinstance(x, Carrier) else None


@overload(joined_two)
def _joined_two(out: Any, x: Any, p: Any, y: Any, q: Any) -> Any:
    return _joiner(x, True) if isinstance(x, Carrier) else None


def constant(x: Any) -> Any:
    """A carrier of the same value that depends on nothing."""
    raise NotImplementedError("for compiled code")


@overload(constant)
def _constant_of(x: Any) -> Any:
    if isinstance(x, Active):
        make = x.make
        return lambda x: make(x.v, 0)
    if isinstance(x, Dual):
        return eval(f"lambda x: make(x.v, ({'0.0, ' * x.width}))", {"make": x.make})
    return None


def value(x: Any) -> Any:
    """The plain number in a carrier, or in an array of them."""
    raise NotImplementedError("for compiled code")


@overload(value)
def _value(x: Any) -> Any:
    if isinstance(x, Carrier):
        return (lambda x: value(x.v)) if isinstance(x.inner, Carrier) else (lambda x: x.v)
    return each(value, np.float64) if is_carried(x) else lambda x: x


def each(function: Any, word: Any) -> Any:
    """A nopython function that gives what another one gives of every element, as an array of a dtype."""

    def run(x: Any) -> Any:
        out = np.zeros(x.shape, word)
        for k in np.ndindex(x.shape):
            out[k] = function(x[k])
        return out

    return run


def inner(x: Any) -> Any:
    """The number on a tape without its record, or an array of them without."""
    raise NotImplementedError("for compiled code")


@overload(inner)
def _inner(x: Any) -> Any:
    if isinstance(x, Active):
        return lambda x: x.v
    if is_carried(x):
        return each(inner, getattr(x.dtype.inner, "dtype_word", np.float64))
    return lambda x: x


def is_carried(kind: Any) -> bool:
    """Whether a type is that of an array of carriers."""
    return isinstance(kind, types.Array) and isinstance(kind.dtype, Carrier)


def is_number(kind: Any) -> bool:
    return isinstance(kind, PLAIN)
