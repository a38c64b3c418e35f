"""Array expressions: the small vocabulary that becomes machine code, kept simple while it is built.

    input, array, const          memory of an argument or of a constant, one number everywhere
    elem                         a ufunc's name, applied entry by entry to operands of its own shape
    reduce                       add, multiply, maximum or minimum over some axes
    view                         entries read elsewhere: each axis of x at `offset + step * (an axis of the result)`, or fixed
    region                       x inside a box, another expression outside it: a slice written, a pad, a concatenation
    reshape                      the same memory under another shape
    gather, scatter              entries of x at integers that are expressions themselves; entries added there, to zeros

An `Op` is made by `Arrays` only, which gives equal expressions one object (hash-consing), folds constants and drops what changes
nothing. It keeps to identities that hold for NaN, infinities and signed zeros: x * 0 stays.

    complex                      two expressions as real and imaginary parts of what is written to an output (pairs.py)

Invariant: operands of an elem have its shape; dtypes are those of `DTYPES`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..llvm import named
from ..vecmath import powers

F8, F4, I8, I4, B1 = (np.dtype(t) for t in ("f8", "f4", "i8", "i4", "?"))
DTYPES = (F8, F4, I8, I4, B1)
C16, C8 = np.dtype("c16"), np.dtype("c8")
COMPLEX = {C16: F8, C8: F4}
"""Complex dtypes, with the dtype of their parts."""

Map = tuple[int, int, int]
"""How an axis is read: (offset, axis of the result or -1, step)."""

PACKED = "packed"
"""The operation that changes nothing but where entries stand."""
STRONG = "strong_product"
"""A cotangent times a partial, and 0 where the cotangent is 0, however infinite the partial is."""
SHARE = "share"
"""The share of e**x in e**x + e**y: logaddexp's partial, of x and y."""
CHEAP = frozenset([PACKED, STRONG]).union(
    "add subtract multiply negative positive absolute square maximum minimum where less less_equal greater greater_equal equal "
    "not_equal logical_and logical_or logical_xor logical_not isnan isfinite isinf cast signbit copysign".split()
)  # fmt: skip
TURNED_ABOVE = 256
"""Entries of a sum from which on it is worth another order of its axes."""

MOST_LOOKED_AT = 60
"""Expressions below a sum that are looked at for the order in which memory is read."""

SUMS = ("reduce", "scatter")
"""Expressions that are accumulated in memory of their own."""
ROOTS = frozenset("divide sqrt reciprocal floor ceil trunc rint sign".split())


class Op:
    """One array expression."""

    __slots__ = ("attr", "dtype", "inputs", "kind", "line", "number", "shape", "work")

    def __init__(
        self,
        kind: str,
        inputs: tuple[Op, ...],
        shape: tuple[int, ...],
        dtype: np.dtype,
        attr: Any,
        number: int,
    ) -> None:
        """An expression of kind `kind`; `work` estimates the cost of one entry, in additions, if nothing below is stored."""
        self.kind = kind
        self.inputs = inputs
        self.shape = shape
        self.dtype = dtype
        self.attr = attr
        self.number = number
        self.line = ""  # of the user's code, where it is asked for (clocks.py)
        # What evaluating one entry costs, in additions, if nothing below is stored.
        own = 0
        if kind == "elem":
            own = 1 if attr in CHEAP else 4 if attr in ROOTS else 20
        elif kind in ("input", "array"):
            own = 1
        elif kind == "gather":
            own = 4
        elif kind in SUMS:
            own = 1000
        self.work: int = min(own + sum(x.work for x in inputs), 10**6)

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        what = self.attr if self.kind in ("elem", "const") else self.kind
        what = named.function_of(what) if self.kind == "elem" else what
        return f"%{self.number}:{what}{list(self.shape)}"


class Arrays:
    """The expressions of one program, each once."""

    def __init__(self) -> None:
        self.table: dict[Any, Op] = {}
        self.constants: list[np.ndarray] = []
        self.checks: list[Op] = []
        """Numbers that must come out as 0, or the results mean nothing: how many indices are out of bounds."""

    def _make(
        self,
        kind: str,
        inputs: tuple[Op, ...],
        shape: tuple[int, ...],
        dtype: np.dtype,
        attr: Any = None,
    ) -> Op:
        key = (kind, tuple(x.number for x in inputs), shape, dtype, attr)
        op = self.table.get(key)
        if op is None:
            op = self.table[key] = Op(kind, inputs, shape, dtype, attr, len(self.table))
        return op

    def with_inputs(self, op: Op, inputs: Sequence[Op]) -> Op:
        """The same operation on other expressions of the same shapes."""
        if all(x is y for x, y in zip(op.inputs, inputs, strict=True)):
            return op
        if op.kind == "view":
            return self.view(inputs[0], op.attr, op.shape)
        return self._make(op.kind, tuple(inputs), op.shape, op.dtype, op.attr)

    # ------------------------------------------------------------------------------------ leaves

    def input(self, index: int, shape: tuple[int, ...], dtype: np.dtype) -> Op:
        """The memory of an argument."""
        return self._make("input", (), shape, dtype, index)

    def const(self, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Op:
        """One number everywhere."""
        number = np.asarray(value).astype(dtype)
        # 0.0 and -0.0 are equal, and NaN is not: the bits tell them apart.
        return self._make("const", (), shape, dtype, _Number(number))

    def array(self, value: np.ndarray) -> Op:
        """A constant array."""
        if value.size and not any(value.strides):
            return self.const(value.flat[0], value.shape, value.dtype)
        value = np.ascontiguousarray(value) if value.ndim else np.asarray(value)
        if value.size and (value.size == 1 or _uniform(value)):
            return self.const(value.flat[0], value.shape, value.dtype)
        if not value.size:
            return self.const(0, value.shape, value.dtype)
        for index, known in enumerate(self.constants):
            if (
                known.dtype == value.dtype
                and known.shape == value.shape
                and known.tobytes() == value.tobytes()
            ):
                return self._make("array", (), value.shape, value.dtype, index)
        self.constants.append(value)
        return self._make("array", (), value.shape, value.dtype, len(self.constants) - 1)

    # ------------------------------------------------------------------------------------ elementwise

    def elem(self, name: str, inputs: Sequence[Op], dtype: np.dtype) -> Op:
        """A ufunc of operands, which are broadcast."""
        operands = tuple(inputs)
        shape = operands[0].shape
        if any(x.shape != shape for x in operands):
            shape = np.broadcast_shapes(*(x.shape for x in operands))
            operands = tuple(self.broadcast(x, shape) for x in operands)
        simple = self._simplified(name, operands, shape, dtype)
        return simple if simple is not None else self._make("elem", operands, shape, dtype, name)

    def _simplified(
        self, name: str, x: tuple[Op, ...], shape: tuple[int, ...], dtype: np.dtype
    ) -> Op | None:
        """A simpler expression that equals op `name` of `x` bit for bit (constants folded, neutral operands dropped), or None."""
        values = [_value(y) for y in x]
        if all(v is not None for v in values) and name != STRONG:
            return self._folded(name, values, shape, dtype)
        a, b = (*values, None, None)[:2]
        if name == "positive" and x[0].dtype == dtype:
            return x[0]
        if name == "cast":
            return x[0] if x[0].dtype == dtype else None
        if name == "multiply" and dtype.kind == "f":
            for i, value in ((0, a), (1, b)):
                if value is not None and value == 1:
                    return x[1 - i]
                if value is not None and value == -1:
                    return self.elem("negative", (x[1 - i],), dtype)
            if x[0].number > x[1].number:
                return self._make("elem", (x[1], x[0]), shape, dtype, name)
        if name == "add" and dtype.kind == "f":
            for i, value in ((0, a), (1, b)):
                if value is not None and value == 0 and np.signbit(value):
                    return x[1 - i]
            if x[1].kind == "elem" and x[1].attr == "negative":
                return self.elem("subtract", (x[0], x[1].inputs[0]), dtype)
            if x[0].kind == "elem" and x[0].attr == "negative":
                return self.elem("subtract", (x[1], x[0].inputs[0]), dtype)
            if x[0].number > x[1].number:
                return self._make("elem", (x[1], x[0]), shape, dtype, name)
        if name == "subtract" and dtype.kind == "f":
            if b is not None and b == 0 and not np.signbit(b):
                return x[0]
            if x[1].kind == "elem" and x[1].attr == "negative":
                return self.elem("add", (x[0], x[1].inputs[0]), dtype)
        if name == "divide" and b is not None and b != 0 and _power_of_two(b):
            return self.elem("multiply", (x[0], self.const(1 / b, shape, dtype)), dtype)
        if name == "negative" and x[0].kind == "elem" and x[0].attr == "negative":
            return x[0].inputs[0]
        if name == "where":
            if a is not None:
                return x[1] if a else x[2]
            if x[1] is x[2]:
                return x[1]
        if name == "square":
            return self.elem("multiply", (x[0], x[0]), dtype)
        if name == STRONG:
            if a == 0:
                return x[0]
            if a is not None or (b is not None and np.isfinite(b)):
                return self.elem("multiply", x, dtype)
        if name == "divide":
            return self._share(x, dtype)
        if name == "power" and b is not None:
            return self._power(x[0], float(b), dtype)
        return None

    def _share(self, x: tuple[Op, ...], dtype: np.dtype) -> Op | None:
        """The share of e**x in e**x + e**y, where the words of logaddexp's rule (`_share`) ask for it: the sum has parts of it."""
        above, below = x
        if not _calls(above, "where") or not _calls(above.inputs[2], "exp"):
            return None
        e = above.inputs[2]
        if not _calls(e.inputs[0], "where"):
            return None
        apart = e.inputs[0].inputs[2]
        zero, one = (self.const(value, apart.shape, dtype) for value in (0.0, 1.0))
        if _calls(apart, "subtract"):
            operands = apart.inputs
        elif _calls(apart, "negative"):  # 0 - x, simplified; below, x - 0
            operands = zero, apart.inputs[0]
        else:
            operands = apart, zero
        first = self.elem("greater_equal", (apart, zero), B1)
        power = self.elem("where", (first, self.elem("negative", (apart,), dtype), apart), dtype)
        rule = (
            power,
            self.elem("where", (first, one, e), dtype),
            self.elem("add", (one, e), dtype),
        )
        return self.elem(SHARE, operands, dtype) if rule == (e.inputs[0], above, below) else None

    def _power(self, x: Op, exponent: float, dtype: np.dtype) -> Op | None:
        """x to a whole number: a small one by multiplications (the error of each is half an ulp), others by `vecmath.powers`."""
        if exponent == 0:
            return self.const(1.0, x.shape, dtype)
        if exponent == 1:
            return x
        if exponent in range(-8, 0):
            whole = self._power(x, -exponent, dtype)
            assert whole is not None
            return self.elem("divide", (self.const(1.0, x.shape, dtype), whole), dtype)
        if exponent in range(2, 9):
            root = self._power(x, exponent // 2, dtype)
            assert root is not None
            even = self.elem("multiply", (root, root), dtype)
            return self.elem("multiply", (even, x), dtype) if exponent % 2 else even
        name = powers.NAMES.get(exponent)
        return None if name is None else self.elem(name, (x,), dtype)

    def _folded(
        self, name: str, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype
    ) -> Op | None:
        with np.errstate(all="ignore"):
            if name == "cast":
                return self.const(np.asarray(values[0]).astype(dtype)[()], shape, dtype)
            if name == "where":
                return self.const(values[1] if values[0] else values[2], shape, dtype)
            function = getattr(np, name, None)
            return None if function is None else self.const(function(*values), shape, dtype)

    def packed(self, x: Op) -> Op:
        """x with its entries in memory, where it reads those of its last axis far from one another; else x itself."""
        if x.kind != "view" or x.shape[-1] == 1 or x.inputs[0].size == 1:
            return x
        last = max(k for k, n in enumerate(x.inputs[0].shape) if n != 1)
        if x.attr[last][1] == len(x.shape) - 1:
            return x
        return self._make("elem", (x,), x.shape, x.dtype, PACKED)

    # ------------------------------------------------------------------------------------ moving

    def view(self, x: Op, maps: Sequence[Map], shape: tuple[int, ...]) -> Op:
        """The entries of x at mapped places."""
        maps = tuple(maps)
        shape = tuple(shape)
        if x.kind == "const":
            return self._make("const", (), shape, x.dtype, x.attr)
        maps = tuple(
            (o, -1, 0) if axis >= 0 and shape[axis] == 1 else (o, axis, step)
            for o, axis, step in maps
        )
        if shape == x.shape and all(m == _identity(i, shape) for i, m in enumerate(maps)):
            return x
        if x.kind == "view":
            return self.view(x.inputs[0], composed(x.attr, maps), shape)
        return self._make("view", (x,), shape, x.dtype, maps)

    def broadcast(self, x: Op, shape: tuple[int, ...]) -> Op:
        """x repeated along the axes that it lacks, or has with length 1."""
        if x.shape == shape:
            return x
        extra = len(shape) - len(x.shape)
        maps = [(0, -1, 0) if n == 1 else (0, i + extra, 1) for i, n in enumerate(x.shape)]
        return self.view(x, maps, shape)

    def reshape(self, x: Op, shape: tuple[int, ...]) -> Op:
        """The same entries under another shape."""
        if x.shape == shape:
            return x
        if x.kind == "const":
            return self._make("const", (), shape, x.dtype, x.attr)
        if [n for n in x.shape if n != 1] == [n for n in shape if n != 1]:
            target = iter([i for i, n in enumerate(shape) if n != 1])
            maps = [(0, -1, 0) if n == 1 else (0, next(target), 1) for n in x.shape]
            return self.view(x, maps, shape)
        if x.kind == "reshape":
            return self.reshape(x.inputs[0], shape)
        return self._make("reshape", (x,), shape, x.dtype)

    def region(self, x: Op, outside: Op, box: Sequence[tuple[int, int]]) -> Op:
        """x at `start` of each axis, `outside` (of the result's shape) elsewhere; box: (start, axis of x or -1) per axis."""
        shape = outside.shape
        if not x.size:
            return outside
        covers = all(
            start == 0 and (n == 1 if axis < 0 else x.shape[axis] == n)
            for (start, axis), n in zip(box, shape, strict=True)
        )
        if covers:
            maps: list[Map] = [(0, -1, 0)] * len(x.shape)
            for i, (_, axis) in enumerate(box):
                if axis >= 0:
                    maps[axis] = (0, i, 1)
            return self.view(x, maps, shape)
        return self._make("region", (x, outside), shape, outside.dtype, tuple(box))

    def gather(self, x: Op, indices: Sequence[Op], axes: Sequence[int]) -> Op:
        """Entries of x where these axes have these places, which are in bounds: first the axes of the indices, then the others of x."""
        rest = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        shape = (*indices[0].shape, *rest)
        if x.kind == "const":
            return self._make("const", (), shape, x.dtype, x.attr)
        return self._make("gather", (x, *indices), shape, x.dtype, tuple(axes))

    def scatter(
        self, g: Op, indices: Sequence[Op], axes: Sequence[int], shape: tuple[int, ...]
    ) -> Op:
        """The transpose of `gather`: zeros with the entries of g added at these places."""
        if not g.size:
            return self.const(0, shape, g.dtype)
        summed = tuple(range(len(indices[0].shape)))
        return self._make("scatter", (g, *indices), shape, g.dtype, ("add", summed, tuple(axes)))

    # ------------------------------------------------------------------------------------ summing

    def reduce(self, name: str, x: Op, axes: Sequence[int]) -> Op:
        """add, multiply, maximum or minimum over axes, which go."""
        axes = tuple(sorted(axes))
        if not axes:
            return x
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        count = math.prod(x.shape[i] for i in axes)
        if count == 1:
            return self.reshape(x, shape)
        if count == 0:
            return self.const({"add": 0, "multiply": 1}[name], shape, x.dtype)
        if x.kind == "const" and name in ("add", "maximum", "minimum"):
            value = _value(x) * count if name == "add" else _value(x)
            return self.const(value, shape, x.dtype)
        last = _lies_along(x)
        if last == len(x.shape) - 1:
            return self._make("reduce", (x,), shape, x.dtype, (name, axes))
        # The axis along which entries lie in memory becomes the last one, which loops go over innermost.
        order = [i for i in range(len(x.shape)) if i != last] + [last]
        maps = [(0, order.index(i), 1) for i in range(len(x.shape))]
        turned = self.view(x, maps, tuple(x.shape[i] for i in order))
        kept = [i for i in order if i not in axes]
        total = self._make(
            "reduce",
            (turned,),
            tuple(x.shape[i] for i in kept),
            x.dtype,
            (name, tuple(sorted(order.index(i) for i in axes))),
        )
        return self.view(total, [(0, sorted(kept).index(i), 1) for i in kept], shape)

    def complex(self, re: Op, im: Op) -> Op:
        """Two parts side by side, to be written to an output."""
        dtype = C16 if re.dtype == F8 else C8
        return self._make("complex", (re, im), re.shape, dtype)


class _Number:
    """A constant, compared by its bits."""

    __slots__ = ("bits", "value")

    def __init__(self, value: np.ndarray) -> None:
        self.value = value[()]
        self.bits = value.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and other.bits == self.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __repr__(self) -> str:
        return repr(self.value.item())


def _calls(op: Op, name: str) -> bool:
    """Whether an expression is one ufunc of others."""
    return op.kind == "elem" and op.attr == name


def _value(x: Op) -> Any:
    return x.attr.value if x.kind == "const" else None


def _identity(axis: int, shape: tuple[int, ...]) -> Map:
    return (0, axis, 1) if shape[axis] != 1 else (0, -1, 0)


def _lies_along(x: Op) -> int:
    """The axis along which what an expression reads lies in memory: that of the largest part, if others lie so, too, or stay there."""
    last = len(x.shape) - 1
    if x.size < TURNED_ABOVE:
        return last
    parts: list[
        tuple[int, int, set[int]]
    ] = []  # size, axis along which it lies, axes along which it differs
    stack, seen = [x], 0
    while stack:
        op = stack.pop()
        seen += 1
        if seen > MOST_LOOKED_AT:
            return last
        if op.kind == "elem":
            stack.extend(op.inputs)
        elif op.kind == "view":
            shape = op.inputs[0].shape
            along = [m[1] for m, n in zip(op.attr, shape, strict=True) if n != 1]
            if along:
                parts.append((math.prod(shape), along[-1], set(along)))
        elif op.kind != "const":
            parts.append((op.size, last, set(range(last + 1))))
    _, axis, _ = max(parts, key=lambda part: part[0], default=(0, last, ()))
    if axis < 0 or any(axis in differs and lies != axis for _, lies, differs in parts):
        return last
    return axis


def varying(x: Op) -> set[int]:
    """The axes along which the entries of an expression differ."""
    if x.kind == "const":
        return set()
    if x.kind == "view":
        return {axis for _, axis, _ in x.attr if axis >= 0}
    return {axis for axis, n in enumerate(x.shape) if n != 1}


def composed(inner: Sequence[Map], outer: Sequence[Map]) -> list[Map]:
    """Maps of a view of a view."""
    maps = []
    for offset, axis, step in inner:
        if axis < 0:
            maps.append((offset, -1, 0))
        else:
            o, a, s = outer[axis]
            maps.append((offset + step * o, a, step * s))
    return maps


def _uniform(value: np.ndarray) -> bool:
    """Whether all entries are one number, bit for bit."""
    bits = np.reshape(value, -1).view(f"u{value.itemsize}")
    return bool((bits[:64] == bits[0]).all() and (bits == bits[0]).all())


def _power_of_two(value: Any) -> bool:
    mantissa, exponent = math.frexp(float(value))
    return abs(mantissa) == 0.5 and abs(exponent) < 100
