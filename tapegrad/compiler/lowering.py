"""Lowering: from recorded calls to array expressions, where there is one.

A table of functions by the name of a call; each takes the call's operands as expressions and its settings, and returns an
expression, or raises `Unlowered`: then the call stays a NumPy call. Dtypes are NumPy's own answer (`ufunc.resolve_dtypes`).

Invariant: an expression has the shape and dtype that the call's value had when traced.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import operator
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.primitive import OPS, signature_of
from ..llvm import named
from ..ops.linear_algebra import negligible
from .arithmetic import INTEGER_DIVISIONS
from .arrays import B1, COMPLEX, DTYPES, F4, F8, I8, STRONG, Arrays, Map, Op
from .graph import Node, Ref
from .pairs import FORMULAS, Numbers, Pair, Unlowered
from .tracing import OpCall

BLAS_ABOVE = 60_000
"""Multiplications in a matrix product above which it is left to BLAS."""

MOST_BY_BLAS = 50_000
"""Entries of several products up to which BLAS makes them: with more, threads share them here."""

LEAST_OF_MANY = 16
"""Rows and columns of each of several products from which on BLAS makes them faster than loops that are fused with what is around."""

PACKED_ABOVE = 4
"""Rows of a product for which a transposed matrix is turned once, so that its rows can be read as vectors."""


Lowered = Callable[..., Op]
TABLE: dict[str, Lowered] = {}

SAME = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt cbrt "
    "absolute negative positive square reciprocal floor ceil trunc rint sign add subtract multiply divide maximum minimum fmax "
    "fmin arctan2 hypot copysign logaddexp less less_equal greater greater_equal equal not_equal logical_and logical_or logical_xor "
    "logical_not isnan isfinite isinf signbit fabs power remainder floor_divide"
).split()
"""Ufuncs whose expression is an elem of the same name."""

OTHER_NAMES = {
    "abs": "absolute", "root": "sqrt", "fabs": "absolute", "erf": "erf", "erfc": "erfc", "expit": "expit", "gammaln": "gammaln",
}  # fmt: skip


def expression(
    arrays: Arrays, node: Node, inputs: Sequence[Op | Pair], weak: Sequence[bool]
) -> Op | Pair:
    """The expression of a call whose inputs are expressions. Raises Unlowered."""
    known = len(arrays.table) if node.line else 0
    op = _expression(arrays, node, inputs, weak)
    if node.line:
        for made in itertools.islice(arrays.table.values(), known, None):
            made.line = made.line or node.line
    return op


def _expression(
    arrays: Arrays, node: Node, inputs: Sequence[Op | Pair], weak: Sequence[bool]
) -> Op | Pair:
    """The same, without a note of the line."""
    if node.dtype in COMPLEX or any(isinstance(x, Pair) for x in inputs):
        result = _of_complex(arrays, node, inputs, weak)
        if result.shape != node.shape or result.dtype != node.dtype:
            raise Unlowered
        return result
    function = TABLE.get(node.name, of_scipy)
    if node.dtype not in DTYPES:
        raise Unlowered
    operands = [_operand(x, inputs, weak) for x in node.args]
    settings = {k: _operand(x, inputs, weak) for k, x in node.kwargs.items()}
    op = function(arrays, node, operands, settings)
    if op.shape != node.shape or op.dtype != node.dtype:
        raise Unlowered
    return op


MOVED: dict[str, tuple[int, ...]] = dict.fromkeys(
    [
        *(op.name for op in OPS if op.linear and op.pattern == "moves"),
        *"ravel matrix_transpose scatter sum mean add.reduce".split(),
    ],
    (0,),
) | {
    "where": (1, 2), "stored": (0, 2), "copy_slices": (0, 1), "at": (1, 3), "copied_into": (0, 1), "full_like": (1,), "zeros_like": (),
    "ones_like": (),
}  # fmt: skip
"""Calls that do to a complex array what they do to its parts: which operands are split."""


def _of_complex(
    arrays: Arrays, node: Node, inputs: Sequence[Op | Pair], weak: Sequence[bool]
) -> Op | Pair:
    """The expression of a call with complex operands or a complex result."""
    operands = [_operand(x, inputs, weak) for x in node.args]
    settings = {k: _operand(x, inputs, weak) for k, x in node.kwargs.items()}
    name = node.name
    if name == "setitem":
        positions: Any = (0, 1) if "index" in settings else (0, 2)
    else:
        positions = MOVED.get(name)
    if positions is not None and name in TABLE and node.dtype in COMPLEX:
        real = node.with_inputs(node.inputs)
        real.dtype = COMPLEX[node.dtype]
        parts = []
        for k in (0, 1):
            given = [_part(arrays, x, k) if i in positions else x for i, x in enumerate(operands)]
            part = TABLE[name](arrays, real, given, settings)
            if k and name == "ones_like":
                part = arrays.const(0, node.shape, real.dtype)
            if part.shape != node.shape or part.dtype != real.dtype:
                raise Unlowered
            parts.append(part)
        return Pair(*parts)
    if name in ("matmul", "dot") and node.dtype in COMPLEX and not settings:
        real = node.with_inputs(node.inputs)
        real.dtype = COMPLEX[node.dtype]
        on = _numbers(arrays, real.dtype)

        def product(i: int, k: int) -> Op:
            return TABLE[name](
                arrays,
                real,
                [_part(arrays, x, p) for x, p in zip(operands, (i, k), strict=True)],
                {},
            )

        return Pair(on.subtract(product(0, 0), product(1, 1)), on.add(product(0, 1), product(1, 0)))
    formula = FORMULAS.get(name)
    if formula is None or not operands or (settings and name not in ("astype", "asarray")):
        raise Unlowered
    if name in ("astype", "asarray"):
        operands = operands[:1]
    given = [_pair(arrays, x) for x in operands]
    dtype = COMPLEX.get(node.dtype) or np.result_type(*(x.re.dtype for x in given))
    if dtype not in (F8, F4):
        raise Unlowered
    if node.dtype not in COMPLEX and name in ("astype", "asarray"):
        raise Unlowered  # NumPy warns that the imaginary part is lost
    pairs = [Pair(_cast(arrays, x.re, dtype), _cast(arrays, x.im, dtype)) for x in given]
    result = formula(_numbers(arrays, dtype), node, pairs)
    if isinstance(result, Pair):
        return Pair(*(arrays.broadcast(result.part(k), node.shape) for k in (0, 1)))
    return result


def _numbers(arrays: Arrays, dtype: np.dtype) -> Numbers:
    return Numbers(arrays.elem, lambda value: arrays.const(value, (), dtype), dtype)


def _part(arrays: Arrays, value: Any, k: int) -> Any:
    """The real or the imaginary part of an operand."""
    if type(value) in (tuple, list):
        return type(value)(_part(arrays, x, k) for x in value)
    if isinstance(value, Operand):
        if isinstance(value.op, Pair):
            return Operand(value.op.part(k), value.weak)
        dtype = value.op.dtype if value.op.dtype.kind == "f" else F8
        return Operand(arrays.const(0, value.op.shape, dtype), value.weak) if k else value
    if isinstance(value, np.ndarray | np.generic):
        return np.array(np.imag(value) if k else np.real(value))
    if isinstance(value, int | float | complex):
        return float(value.imag if k else value.real)
    raise Unlowered


def _pair(arrays: Arrays, value: Any) -> Pair:
    """An operand as a pair."""
    return Pair(*(_op(arrays, _part(arrays, value, k)) for k in (0, 1)))


class Operand:
    """An expression among a call's arguments, and whether it is a Python number."""

    __slots__ = ("op", "weak")

    def __init__(self, op: Op | Pair, weak: bool) -> None:
        self.op: Any = op
        self.weak = weak


def _operand(value: Any, inputs: Sequence[Op | Pair], weak: Sequence[bool]) -> Any:
    if type(value) is Ref:
        return Operand(inputs[value.index], weak[value.index])
    if type(value) in (tuple, list):
        return type(value)(_operand(x, inputs, weak) for x in value)
    return value


def _op(arrays: Arrays, value: Any, dtype: np.dtype | None = None) -> Op:
    """An operand as an expression, cast to a dtype."""
    if isinstance(value, Operand):
        op = value.op
        if isinstance(op, Pair):
            raise Unlowered
    elif isinstance(value, np.ndarray | np.generic | int | float | bool):
        array = np.asarray(value)
        if dtype is not None and not isinstance(value, np.ndarray | np.generic):
            return arrays.const(array, (), dtype)
        if array.dtype not in DTYPES:
            raise Unlowered
        op = arrays.array(array)
    else:
        raise Unlowered
    return op if dtype is None else _cast(arrays, op, dtype)


_X86 = platform.machine() in ("x86_64", "AMD64")


def _cast(arrays: Arrays, op: Op, dtype: np.dtype) -> Op:
    if op.dtype == dtype:
        return op
    if dtype not in DTYPES:
        raise Unlowered
    if op.dtype.kind == "f" and dtype.kind not in "fb" and (dtype != I8 or not _X86):
        raise Unlowered  # what a float out of range becomes is known of one width, on one kind of processor
    return arrays.elem("cast", (op,), dtype)


def _dtype_of(value: Any) -> Any:
    if isinstance(value, Operand):
        return float if value.weak else value.op.dtype
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, int | float):
        return type(value)
    raise Unlowered


def _elementwise(name: str) -> Lowered:
    """The lowering of a ufunc: operands cast as NumPy's resolution says; Unlowered for dtypes without code."""
    ufunc: np.ufunc = getattr(np, name)

    def lower(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
        """The expression of one call."""
        if settings or len(operands) != ufunc.nin:
            raise Unlowered
        kinds = [_dtype_of(x) for x in operands]
        try:
            resolved = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
        except TypeError:
            raise Unlowered from None
        if any(d not in DTYPES for d in resolved):
            raise Unlowered
        loop, out = resolved[: ufunc.nin], resolved[-1]
        whole = any(d.kind == "i" for d in loop)
        if whole and name not in _INTEGER and name not in INTEGER_DIVISIONS:
            raise Unlowered
        if any(d == B1 for d in loop) and name not in _BOOLEAN:
            raise Unlowered
        ops = [_op(arrays, x, d) for x, d in zip(operands, loop, strict=True)]
        if whole and name in INTEGER_DIVISIONS and not _is_positive(ops[1]):
            raise Unlowered  # zeros and overflow are NumPy's
        if not whole and name == "floor_divide":
            raise Unlowered
        if name == "power" and _half(arrays, node, ops):
            return arrays.elem("sqrt", ops[:1], out)
        return arrays.elem(name, ops, out)

    return lower


_INTEGER = frozenset(
    "add subtract multiply negative less less_equal greater greater_equal equal not_equal maximum minimum".split()
)
_BOOLEAN = frozenset("logical_and logical_or logical_xor logical_not equal not_equal".split())


def _is_positive(x: Op) -> bool:
    return x.kind == "const" and x.attr.value > 0


def _half(arrays: Arrays, node: Node, ops: Sequence[Op]) -> bool:
    """Whether NumPy's operator takes the square root here: of arrays, not of scalars."""
    return (
        node.function is operator.pow
        and bool(node.shape)
        and ops[1].kind == "const"
        and float(ops[1].attr.value) == 0.5
    )


for _name in SAME:
    TABLE[_name] = _elementwise(_name)


def of_floats(*names: str) -> Callable[[Any], Any]:
    """Register the formula of calls by name, of floats in the result's dtype; settings and other dtypes are Unlowered."""

    def register(formula: Callable[..., Op]) -> Callable[..., Op]:
        count = formula.__code__.co_argcount - 1

        def lower(
            arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
        ) -> Op:
            if settings or len(operands) != count or node.dtype not in (F8, F4):
                raise Unlowered
            given = (_op(arrays, x, node.dtype) for x in operands)
            return formula(_numbers(arrays, node.dtype), *given)

        for name in names:
            TABLE[name] = lower
        return formula

    return register


def _named(name: str) -> Callable[[Numbers, Op], Op]:
    return lambda on, x: on.elem(name, (x,), on.dtype)  # type: ignore[no-any-return]


for _other, _name in OTHER_NAMES.items():
    of_floats(_other)(_named(_name))


def _on_booleans(name: str) -> Lowered:
    def lower(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
        if settings or any(_dtype_of(x) != B1 for x in operands):
            raise Unlowered
        return arrays.elem(name, [_op(arrays, x) for x in operands], B1)

    return lower


TABLE["bitwise_and"] = _on_booleans("logical_and")
TABLE["bitwise_or"] = _on_booleans("logical_or")
TABLE["bitwise_xor"] = _on_booleans("not_equal")
TABLE["invert"] = _on_booleans("logical_not")


def lowers(*names: str) -> Callable[[Lowered], Lowered]:
    """Register the lowering of calls by name."""

    def register(function: Lowered) -> Lowered:
        for name in names:
            TABLE[name] = function
        return function

    return register


@functools.cache
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return signature_of(function)
    except (TypeError, ValueError):
        return None


def _bound(node: Node, operands: Sequence[Any], settings: dict[str, Any], *names: str) -> list[Any]:
    """The arguments of those names; Unlowered if others are given. `names` are in the order of the call."""
    if isinstance(node.function, OpCall) or _signature(node.function) is None:
        positional = names
    else:
        positional = tuple(_signature(node.function).parameters)  # type: ignore[union-attr]
    given = dict(zip(positional, operands, strict=False))
    given |= settings
    values = []
    for name in names:
        values.append(given.pop(name, _MISSING))
    for name, value in given.items():
        if not (value is None or value is np._NoValue or (name, value) in _SAYS_NOTHING):  # type: ignore[attr-defined]
            raise Unlowered
    return [None if v is np._NoValue else v for v in values]  # type: ignore[attr-defined]


_MISSING: Any = None
_SAYS_NOTHING = {
    ("where", True), ("order", "C"), ("order", "K"), ("subok", False), ("subok", True), ("out", None), ("casting", "same_kind"),
    ("copy", None),
}  # fmt: skip


# ---------------------------------------------------------------------------------------- choices and casts


@lowers("where")
def where(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if settings or len(operands) != 3:
        raise Unlowered
    condition = _op(arrays, operands[0])
    if condition.dtype != B1:
        condition = arrays.elem("not_equal", (condition, arrays.const(0, (), condition.dtype)), B1)
    chosen = [_op(arrays, x, node.dtype) for x in operands[1:]]
    return arrays.elem("where", (condition, *chosen), node.dtype)


@lowers("select")
def select(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """The first choice whose condition holds, else the default."""
    conditions, choices, *default = operands
    default = default or [settings.pop("default", 0)]
    if settings or len(conditions) != len(choices):
        raise Unlowered
    chosen = arrays.broadcast(_op(arrays, default[0], node.dtype), node.shape)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        test = _op(arrays, condition)
        if test.dtype != B1:
            raise Unlowered
        chosen = arrays.elem("where", (test, _op(arrays, choice, node.dtype), chosen), node.dtype)
    return chosen


@of_floats("heaviside")
def heaviside(on: Numbers, x: Op, middle: Op) -> Op:
    zero = on.number(0)
    result = on.where(on.test("equal", x, zero), middle, x)  # NaN stays what it is
    result = on.where(on.test("less", x, zero), zero, result)
    return on.where(on.test("greater", x, zero), on.number(1), result)


@of_floats("sinc")
def sinc(on: Numbers, x: Op) -> Op:
    """sin(πx) / (πx), as NumPy has it: of 1e-20 where x is 0."""
    apart = on.where(on.test("equal", x, on.number(0)), on.number(1e-20), x)
    angle = on.multiply(on.number(np.pi), apart)
    return on.divide(on.sin(angle), angle)


@of_floats("float_power")
def float_power(on: Numbers, x: Op, y: Op) -> Op:
    return on.power(x, y)


@lowers("clip", "_clip")
def clip(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if settings or len(operands) != 3 or node.dtype not in (F8, F4, I8):
        raise Unlowered
    x, lower, upper = operands
    op = _op(arrays, x, node.dtype)
    if lower is not None:
        op = arrays.elem("maximum", (op, _op(arrays, lower, node.dtype)), node.dtype)
    if upper is not None:
        op = arrays.elem("minimum", (op, _op(arrays, upper, node.dtype)), node.dtype)
    return op


@lowers("isposinf", "isneginf")
def infinite(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if settings or len(operands) != 1:
        raise Unlowered
    x = _op(arrays, operands[0])
    if x.dtype not in (F8, F4):
        raise Unlowered
    limit = np.inf if node.name == "isposinf" else -np.inf
    return arrays.elem("equal", (x, arrays.const(limit, (), x.dtype)), B1)


@lowers("astype", "asarray")
def astype(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    return _op(arrays, operands[0], node.dtype)


@lowers("copy", "alias", "conj", "conjugate", "real", "constant", "_copied", "ascontiguousarray")
def same(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if settings or len(operands) != 1:
        raise Unlowered
    return _op(arrays, operands[0])


@lowers("zeros_like", "ones_like", "full_like", "imag")
def filled(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if node.name == "full_like":
        (value,) = _bound(node, operands, settings, "fill_value")
        return arrays.broadcast(_op(arrays, value, node.dtype), node.shape)
    return arrays.const(1 if node.name == "ones_like" else 0, node.shape, node.dtype)


@lowers("copied_into")
def copied_into(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    return arrays.broadcast(_op(arrays, operands[1], node.dtype), node.shape)


@of_floats("strong_product")
def strong_product(on: Numbers, g: Op, p: Op) -> Op:
    return on.elem(STRONG, (g, p), on.dtype)  # type: ignore[no-any-return]


def of_scipy(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """An elementwise function of SciPy's, in float64: a call of its C function for each entry."""
    ufunc = node.function
    if isinstance(ufunc, OpCall):
        ufunc, parameters, by = getattr(ufunc.run, "declared", (None, (), ()))
        variadic = len(by) > 2
        given = dict(zip(by, operands[0] if variadic else operands, strict=False))
        given |= {p: settings[f"{p}_"] for p in parameters if f"{p}_" in settings}
        operands, settings = [given[p] for p in parameters if p in given], {}
    symbol = named.symbol_of(ufunc) if isinstance(ufunc, np.ufunc) else None
    if symbol is None or settings or len(operands) != ufunc.nin:
        raise Unlowered
    if any("l" in types or "p" in types for types in ufunc.types):
        raise Unlowered  # those of whole numbers warn where they are given others
    try:
        resolved = ufunc.resolve_dtypes((*map(_dtype_of, operands), None))
    except TypeError:
        raise Unlowered from None
    if any(dtype != F8 for dtype in resolved):
        raise Unlowered
    return arrays.elem(symbol, [_op(arrays, x, F8) for x in operands], F8)


# Factors in the precision of the result, as NumPy multiplies.
@of_floats("deg2rad", "radians")
def radians(on: Numbers, x: Op) -> Op:
    return on.multiply(x, on.number(on.dtype.type(np.pi) / on.dtype.type(180)))


@of_floats("rad2deg", "degrees")
def degrees(on: Numbers, x: Op) -> Op:
    return on.multiply(x, on.number(on.dtype.type(180) / on.dtype.type(np.pi)))


@of_floats("ndtr")
def ndtr(on: Numbers, x: Op) -> Op:
    return on.multiply(on.number(0.5), on.erfc(on.multiply(x, on.number(-np.sqrt(0.5)))))


# ---------------------------------------------------------------------------------------- reductions


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None or not ndim:  # a reduce of a ufunc asks for axis 0 of a number, too
        return tuple(range(ndim))
    return tuple(int(a) % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


_REDUCTIONS = {
    "sum": "add", "add.reduce": "add", "mean": "add", "prod": "multiply", "multiply.reduce": "multiply",
    "max": "maximum", "amax": "maximum", "maximum.reduce": "maximum", "min": "minimum", "amin": "minimum", "minimum.reduce": "minimum",
}  # fmt: skip


@lowers(*_REDUCTIONS)
def reduction(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """Sums, products, extrema and means over axes."""
    initial = None
    if node.name.endswith(".reduce"):
        given = (
            dict(zip(("array", "axis", "dtype", "out", "keepdims"), operands, strict=False))
            | settings
        )
        if (
            given.keys() - {"array", "axis", "dtype", "out", "keepdims"}
            or given.get("out") is not None
        ):
            raise Unlowered
        x, axis, keepdims = given["array"], given.get("axis", 0), given.get("keepdims")
    elif isinstance(node.function, OpCall):
        x, (axis, keepdims) = operands[0], _bound(node, (), settings, "axis", "keepdims")
    else:
        x, axis, keepdims, initial = _bound(
            node, operands, settings, "a", "axis", "keepdims", "initial"
        )
    op = _op(arrays, x)
    if op.dtype == B1 and _REDUCTIONS[node.name] == "add":
        op = _cast(arrays, op, I8)
    name = _REDUCTIONS[node.name]
    if initial is not None and (name == "add" or not isinstance(initial, int | float)):
        raise Unlowered
    if op.dtype.kind != "f" and (name != "add" or node.dtype != op.dtype):
        raise Unlowered
    if op.dtype != node.dtype and node.name != "mean":
        raise Unlowered
    axes = _axes(axis, len(op.shape))
    count = math.prod(op.shape[a] for a in axes)
    if count == 0 and name in ("maximum", "minimum"):
        raise Unlowered
    total = arrays.reduce(name, op, axes)
    if initial is not None:
        total = arrays.elem(name, (total, arrays.const(initial, (), op.dtype)), op.dtype)
    if node.name == "mean":
        if not count or op.dtype not in (F8, F4):
            raise Unlowered
        total = arrays.elem("divide", (total, arrays.const(count, (), op.dtype)), op.dtype)
    if keepdims:
        shape = tuple(1 if i in axes else n for i, n in enumerate(op.shape))
        total = arrays.reshape(total, shape)
    return total


@lowers("any", "all")
def some_or_all(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    """How many are none, or not all, of what the name says."""
    x, axis, keepdims = _bound(node, operands, settings, "a", "axis", "keepdims")
    op = _op(arrays, x)
    zero = arrays.const(0, (), op.dtype)
    found = arrays.elem("not_equal" if node.name == "any" else "equal", (op, zero), B1)
    axes = _axes(axis, len(op.shape))
    count = arrays.reduce("add", _cast(arrays, found, I8), axes)
    none = arrays.const(0, (), I8)
    found = arrays.elem("not_equal" if node.name == "any" else "equal", (count, none), B1)
    if keepdims:
        shape = tuple(1 if i in axes else n for i, n in enumerate(op.shape))
        found = arrays.reshape(found, shape)
    return found


@lowers("ratio")
def ratio(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """The quotient where eigenvectors meet gaps of eigenvalues; the op itself raises for what is noted here."""
    c, d = (_op(arrays, x, node.dtype) for x in operands)
    if not math.prod(node.shape) or node.dtype.kind != "f":
        raise Unlowered
    n = max(c.shape[-2:])
    c, d = (arrays.broadcast(x, node.shape) for x in (c, d))
    on = _numbers(arrays, node.dtype)
    nowhere = on.test("equal", d, on.number(0))
    size = on.absolute(c)
    largest = arrays.reduce("maximum", size, range(len(node.shape))[-2:])
    largest = arrays.broadcast(arrays.reshape(largest, (*node.shape[:-2], 1, 1)), node.shape)
    least = on.multiply(largest, on.number(negligible(node.dtype, n)))
    wrong = on.test("logical_and", nowhere, on.test("greater", size, least))
    arrays.checks.append(arrays.reduce("add", _cast(arrays, wrong, I8), range(len(node.shape))))
    quotient = on.divide(c, on.where(nowhere, on.number(1), d))
    return on.where(nowhere, on.multiply(c, on.number(0)), quotient)


@lowers("holds")
def holds(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """How many elements are not what Python saw (guards.py)."""
    seen = node.function.guard.value  # type: ignore[attr-defined]
    op = _op(arrays, operands[0])
    if op.shape != seen.shape or op.dtype != seen.dtype:
        raise Unlowered
    if op.dtype.kind == "f" and np.isnan(seen).any():
        raise Unlowered  # which equals nothing
    other = "logical_xor" if op.dtype == B1 else "not_equal"
    differs = arrays.elem(other, (op, arrays.array(seen)), B1)
    if op.dtype.kind == "f" and not seen.all():
        minus = arrays.elem("signbit", (op,), B1)
        sign = arrays.elem("logical_xor", (minus, arrays.array(np.signbit(seen))), B1)
        differs = arrays.elem("logical_or", (differs, sign), B1)
    count = arrays.reduce("add", _cast(arrays, differs, I8), range(len(op.shape)))
    arrays.checks.append(count)
    return count


# ---------------------------------------------------------------------------------------- shapes


@lowers("reshape", "ravel", "squeeze", "expand_dims")
def reshaped(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if settings.get("order", "C") != "C" or any(x == "F" for x in operands if isinstance(x, str)):
        raise Unlowered
    return arrays.reshape(_op(arrays, operands[0]), node.shape)


@lowers("broadcast_to")
def broadcast_to(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    return arrays.broadcast(_op(arrays, operands[0]), node.shape)


def _permuted(arrays: Arrays, x: Op, order: Sequence[int]) -> Op:
    """Axis i of the result is axis order[i] of x."""
    maps: list[Map] = [(0, -1, 0)] * len(order)
    for i, axis in enumerate(order):
        maps[axis] = (0, i, 1)
    return arrays.view(x, maps, tuple(x.shape[a] for a in order))


@lowers("transpose", "swapaxes", "moveaxis", "matrix_transpose")
def permuted(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    x = _op(arrays, operands[0])
    # NumPy itself says where the axes go: it permutes an array that has none of our data.
    probe = np.empty(tuple(range(2, 2 + len(x.shape))), np.int8)
    moved = node.function(probe, *operands[1:], **settings) if node.function is not None else probe
    return _permuted(arrays, x, [n - 2 for n in moved.shape])


@lowers("flip")
def flipped(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    given = dict(zip(("m", "axis"), operands, strict=False)) | settings
    x = _op(arrays, operands[0])
    axes = _axes(given.get("axis"), len(x.shape))
    maps = [(n - 1, i, -1) if i in axes else (0, i, 1) for i, n in enumerate(x.shape)]
    return arrays.view(x, maps, x.shape)


def _basic(index: Any, shape: tuple[int, ...]) -> list[Any]:
    """A basic index as one (start, step, length or None for an int) per axis, with "new" where None stands."""
    parts = list(index) if type(index) is tuple else [index]
    if any(isinstance(p, np.ndarray | Operand | list | bool | np.bool_) for p in parts):
        raise Unlowered
    given = sum(p is not None and p is not Ellipsis for p in parts)
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(shape) - given)
    else:
        parts += [slice(None)] * (len(shape) - given)
    steps: list[Any] = []
    axis = 0
    for part in parts:
        if part is None:
            steps.append("new")
            continue
        n = shape[axis]
        axis += 1
        if isinstance(part, slice):
            if any(isinstance(b, Operand) for b in (part.start, part.stop, part.step)):
                raise Unlowered
            start, stop, step = part.indices(n)
            steps.append((start, step, len(range(start, stop, step))))
        else:
            steps.append((operator.index(part) % n, 0, None))
    return steps


class Picks:
    """An index with integer arrays: which axes they say, in what order the axes of the result come, and the slices beside them."""

    def __init__(self, arrays: Arrays, index: Any, shape: tuple[int, ...]) -> None:
        """Split an advanced index into arrays and slices, with the order of axes that NumPy gives the result."""
        parts = list(index) if type(index) is tuple else [index]
        if any(p is None or isinstance(p, bool | np.bool_) for p in parts):
            raise Unlowered
        found: list[Any] = []
        for p in parts:
            if isinstance(p, list):
                p = np.array(p, np.intp if not p else None)
            if isinstance(p, np.ndarray) and p.dtype == B1 and p.ndim:
                found += np.nonzero(p)
            else:
                found.append(p)
        places = [i for i, p in enumerate(found) if p is Ellipsis]
        if places:
            found[places[0] : places[0] + 1] = [slice(None)] * (len(shape) + 1 - len(found))
        found += [slice(None)] * (len(shape) - len(found))
        if len(found) != len(shape):  # a mask without axes
            raise Unlowered
        self.axes = tuple(i for i, p in enumerate(found) if not isinstance(p, slice))
        self.slices = tuple(p if isinstance(p, slice) else slice(None) for p in found)
        picked = [_place(arrays, found[i], shape[i]) for i in self.axes]
        self.shape = np.broadcast_shapes(*(p.shape for p in picked))
        if not self.shape:  # numbers of the program pick one place, which has no axis in the result
            self.indices = [arrays.reshape(p, (1,)) for p in picked]
            self.order = []
            return
        self.indices = [arrays.broadcast(p, self.shape) for p in picked]
        # Adjacent arrays leave their axes where they stand; else these come first.
        adjacent = self.axes[-1] - self.axes[0] + 1 == len(self.axes)
        before = self.axes[0] if adjacent else 0
        n, rest = len(self.shape), len(shape) - len(self.axes)
        self.order = [*range(n, n + before), *range(n), *range(n + before, n + rest)]
        """Axis i of the result is axis order[i] of what has the arrays' axes first."""


def _place(arrays: Arrays, index: Any, n: int) -> Op:
    """An integer or an array of them as places among n, negative ones from the end; what may be out of bounds is noted."""
    if isinstance(index, np.ndarray | np.generic | int):
        numbers = np.asarray(index)
        if numbers.dtype.kind not in "iu" or (
            numbers.size and not -n <= numbers.min() <= numbers.max() < n
        ):
            raise Unlowered  # NumPy says what is wrong
        return arrays.array(np.where(numbers < 0, numbers + n, numbers).astype(I8))
    op = _op(arrays, index)
    if op.dtype.kind != "i" or not n:
        raise Unlowered
    op = _cast(arrays, op, I8)
    on = _numbers(arrays, I8)
    zero, length = on.number(0), on.number(n)
    op = on.where(on.test("less", op, zero), on.add(op, length), op)
    inside = on.test("logical_and", on.test("greater_equal", op, zero), on.test("less", op, length))
    outside = on.cast(on.test("logical_not", inside))
    arrays.checks.append(arrays.reduce("add", outside, range(len(op.shape))))
    return on.where(inside, op, zero)


def _is_picking(index: Any) -> bool:
    parts = index if type(index) is tuple else (index,)
    return any(isinstance(p, np.ndarray | Operand | list) for p in parts)


def _gathered(arrays: Arrays, x: Op, index: Any) -> Op:
    picks = Picks(arrays, index, x.shape)
    x = _sliced(arrays, x, picks.slices)
    entries = arrays.gather(x, picks.indices, picks.axes)
    if not picks.shape:
        return arrays.reshape(entries, entries.shape[1:])
    return _permuted(arrays, entries, picks.order)


def _unsliced(index: Any) -> Any:
    """An index that takes all where this one takes slices."""
    parts = index if type(index) is tuple else (index,)
    return tuple(slice(None) if isinstance(p, slice) else p for p in parts)


def _spread(arrays: Arrays, g: Op, index: Any, shape: tuple[int, ...]) -> Op:
    """Zeros with g added at an index that holds integer arrays."""
    picks = Picks(arrays, index, shape)
    if g.dtype.kind == "b":
        raise Unlowered
    if any(s != slice(None) for s in picks.slices):
        part = tuple(len(range(*s.indices(n))) for s, n in zip(picks.slices, shape, strict=True))
        placed = _spread(arrays, g, _unsliced(index), part)
        return _stored_at(arrays, arrays.const(0, shape, g.dtype), [picks.slices], placed)
    rest = [n for i, n in enumerate(shape) if i not in picks.axes]
    first = (*picks.shape, *rest)
    g = arrays.broadcast(g, tuple(first[i] for i in picks.order) if picks.shape else first)
    if picks.shape:
        g = _permuted(arrays, g, [picks.order.index(i) for i in range(len(first))])
    else:
        g = arrays.reshape(g, (1, *first))
    return arrays.scatter(g, picks.indices, picks.axes, shape)


@lowers("take_along_axis")
def taken_along(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    """Each entry from where the indices say along an axis, and from its own place along the others."""
    value, indices, *rest = operands
    axis = settings.pop("axis", rest[0] if rest else -1)
    x, shape = _op(arrays, value), node.shape
    if settings or axis is None or len(x.shape) != len(shape):
        raise Unlowered
    axis %= len(shape)
    if any(n != m for d, (n, m) in enumerate(zip(x.shape, shape, strict=True)) if d != axis):
        raise Unlowered
    own = [
        np.arange(n).reshape([-1 if e == d else 1 for e in range(len(shape))])
        for d, n in enumerate(shape)
    ]
    return _gathered(arrays, x, (*own[:axis], indices, *own[axis + 1 :]))


@lowers("take")
def take(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    x, indices, axis = _bound(
        node,
        operands,
        settings,
        "a" if not isinstance(node.function, OpCall) else "x",
        "indices",
        "axis",
    )
    x = _op(arrays, x)
    if axis is None:
        x, axis = arrays.reshape(x, (x.size,)), 0
    axis %= len(x.shape)
    return _gathered(arrays, x, (slice(None),) * axis + (indices,))


@lowers("at")
def at(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    ufunc, x, index, *value = operands
    if ufunc is not np.add or len(value) != 1 or settings:
        raise Unlowered
    x = _op(arrays, x)
    g = _op(arrays, value[0], x.dtype)
    if not _is_picking(index):
        raise Unlowered
    return arrays.elem("add", (x, _spread(arrays, g, index, x.shape)), x.dtype)


@lowers("roll")
def rolled(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """np.roll by a constant: the two parts, each in its region of the result."""
    x, shift, axis = _bound(node, operands, settings, "a", "shift", "axis")
    x = _op(arrays, x)
    if type(shift) is not int or not (axis is None or type(axis) is int):
        raise Unlowered
    shape = x.shape
    if axis is None:
        x, axis = arrays.reshape(x, (x.size,)), 0
    axis %= len(x.shape)
    n = x.shape[axis]
    shift = shift % n if n else 0
    whole = arrays.const(0, x.shape, x.dtype)
    for start, stop, to in ((0, n - shift, shift), (n - shift, n, 0)):
        part = _sliced(arrays, x, (slice(None),) * axis + (slice(start, stop),))
        whole = arrays.region(
            part, whole, [(to if i == axis else 0, i) for i in range(len(x.shape))]
        )
    return arrays.reshape(whole, shape)


@lowers("getitem")
def getitem(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    x = _op(arrays, operands[0])
    index = settings["index"] if "index" in settings else operands[1]
    return _gathered(arrays, x, index) if _is_picking(index) else _sliced(arrays, x, index)


def _sliced(arrays: Arrays, x: Op, index: Any) -> Op:
    maps: list[Map] = []
    shape: list[int] = []
    for step in _basic(index, x.shape):
        if step == "new":
            shape.append(1)
        elif step[2] is None:
            maps.append((step[0], -1, 0))
        else:
            maps.append((step[0], len(shape), step[1]))
            shape.append(step[2])
    return arrays.view(x, maps, tuple(shape))


def _box(
    arrays: Arrays, index: Any, shape: tuple[int, ...], x: Op
) -> tuple[Op, list[tuple[int, int]]]:
    """What is written at a basic index, and where: between the entries of a step there are zeros."""
    box = []
    maps_shape: list[int] = []
    flips: list[Map] = []
    strides: list[int] = []
    for step in _basic(index, shape):
        if step == "new":
            flips.append((0, len(maps_shape), 1))
            maps_shape.append(1)
            strides.append(1)
            continue
        start, stride, length = step
        if length is None:
            box.append((start, -1))
            continue
        back = stride < 0 and length > 0
        if back:
            start += (length - 1) * stride
        flips.append((length - 1, len(maps_shape), -1) if back else (0, len(maps_shape), 1))
        box.append((start, len(maps_shape)))
        maps_shape.append(length)
        strides.append(abs(stride) if length > 1 else 1)
    picked = tuple(maps_shape)
    x = arrays.broadcast(x, picked)
    x = arrays.view(x, flips, picked)
    for axis, stride in enumerate(strides):
        if stride > 1:
            x = _apart(arrays, x, axis, stride)
    return x, box


def _apart(arrays: Arrays, x: Op, axis: int, stride: int) -> Op:
    """The entries along an axis, with zeros between any two of them."""
    before, n, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    row = arrays.const(0, (*before, n, stride, *behind), x.dtype)
    box = [(0, i) for i in range(len(row.shape))]
    rows = arrays.region(arrays.reshape(x, (*before, n, 1, *behind)), row, box)
    flat = arrays.reshape(rows, (*before, n * stride, *behind))
    return _sliced(arrays, flat, (*[slice(None)] * axis, slice((n - 1) * stride + 1)))


@lowers("scatter")
def scatter(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    x = _op(arrays, operands[0])
    if _is_picking(settings["index"]):
        return _spread(arrays, x, settings["index"], node.shape)
    placed, box = _box(arrays, settings["index"], node.shape, x)
    return arrays.region(placed, arrays.const(0, node.shape, node.dtype), box)


@lowers("setitem", "stored")
def setitem(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    if "index" in settings:
        x, y, index = operands[0], operands[1], settings["index"]
    elif node.name == "stored" or not isinstance(node.function, OpCall):
        x, index, y = operands
    else:
        raise Unlowered
    base = _op(arrays, x)
    value = _op(arrays, y, base.dtype)
    if _is_picking(index):
        return _replaced(arrays, base, index, value)
    return _stored_at(arrays, base, [index], value)


def _replaced(arrays: Arrays, base: Op, index: Any, value: Op) -> Op:
    """`base[index] = value` at places that are known: each entry is the last of the value's that goes there, or as it was."""
    if any(isinstance(part, Operand) for part in (index if type(index) is tuple else (index,))):
        return _replaced_at_numbers(arrays, base, index, value)
    numbers = np.arange(math.prod(base.shape)).reshape(base.shape)
    picked = numbers[index]
    if len(value.shape) > picked.ndim:
        raise Unlowered
    writer = np.full(base.shape, -1)
    writer.reshape(-1)[picked] = np.arange(picked.size).reshape(picked.shape)
    value = arrays.reshape(arrays.broadcast(value, picked.shape), (picked.size,))
    if not picked.size:
        return base
    taken = arrays.gather(value, [arrays.array(np.maximum(writer, 0))], (0,))
    return arrays.elem("where", (arrays.array(writer >= 0), taken, base), base.dtype)


@lowers("copy_slices")
def copy_slices(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    """A store through views, each of which an index gives."""
    if any(OPS[code].name != "getitem" for code, _ in settings["steps"]):
        raise Unlowered
    base = _op(arrays, operands[0])
    value = _op(arrays, operands[1], base.dtype)
    return _stored_at(arrays, base, [index for _, (index,) in settings["steps"]], value)


def _stored_at(arrays: Arrays, base: Op, indices: Sequence[Any], value: Op) -> Op:
    """The base with a value at base[indices[0]][indices[1]]..."""
    if len(indices) > 1:
        value = _stored_at(arrays, _sliced(arrays, base, indices[0]), indices[1:], value)
    placed, box = _box(arrays, indices[0], base.shape, value)
    if any(
        step != "new" and step[2] and abs(step[1]) > 1 for step in _basic(indices[0], base.shape)
    ):
        written = np.zeros(base.shape, bool)
        written[indices[0]] = True
        placed = arrays.region(placed, arrays.const(0, base.shape, base.dtype), box)
        return arrays.elem("where", (arrays.array(written), placed, base), base.dtype)
    return arrays.region(placed, base, box)


def _replaced_at_numbers(arrays: Arrays, base: Op, index: Any, value: Op) -> Op:
    """`base[index] = value` where numbers of the program say places: each entry asks whether it is meant."""
    picks = Picks(arrays, index, base.shape)
    rest = [n for i, n in enumerate(base.shape) if i not in picks.axes]
    if picks.shape or any(s != slice(None) for s in picks.slices) or len(value.shape) > len(rest):
        raise Unlowered
    meant = arrays.array(np.ones((), bool))
    for axis, place in zip(picks.axes, picks.indices, strict=True):
        row = tuple(-1 if i == axis else 1 for i in range(len(base.shape)))
        own = arrays.array(np.arange(base.shape[axis]).reshape(row))
        here = arrays.elem("equal", (own, arrays.reshape(place, ())), B1)
        meant = arrays.elem("logical_and", (meant, here), B1)
    spread = arrays.broadcast(value, tuple(rest))
    spread = arrays.reshape(
        spread, tuple(1 if i in picks.axes else n for i, n in enumerate(base.shape))
    )
    return arrays.elem("where", (meant, spread, base), base.dtype)


@lowers("concatenate", "stack", "vstack", "hstack")
def joined(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """np.concatenate and np.stack: each part in its region of the result."""
    if node.name in ("vstack", "hstack") or settings.keys() - {"axis"}:
        raise Unlowered
    axis = settings.get("axis", operands[1] if len(operands) > 1 else 0)
    if axis is None:
        raise Unlowered
    parts = [_op(arrays, x, node.dtype) for x in operands[0]]
    axis %= len(node.shape)
    if node.name == "stack":
        parts = [arrays.reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts]
    if len(parts) > 64:
        raise Unlowered
    whole = arrays.const(0, node.shape, node.dtype)
    start = node.shape[axis]
    for part in reversed(parts):
        start -= part.shape[axis]
        box = [(start if i == axis else 0, i) for i in range(len(node.shape))]
        whole = arrays.region(part, whole, box)
    return whole


# ---------------------------------------------------------------------------------------- products


@lowers("matmul", "dot")
def matmul(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """Small matrix products as a sum of products; large ones are left to BLAS (Unlowered)."""
    if settings or len(operands) != 2 or node.dtype not in (F8, F4):
        raise Unlowered
    a, b = (_op(arrays, x, node.dtype) for x in operands)
    if not a.shape or not b.shape or (node.name == "dot" and len(b.shape) > 2):
        raise Unlowered
    if len(a.shape) == 1 and len(b.shape) == 1:
        return arrays.reduce("add", arrays.elem("multiply", (a, b), node.dtype), (0,))
    if len(b.shape) == 1:
        spread = arrays.elem("multiply", (a, b), node.dtype)
        return arrays.reduce("add", spread, (len(a.shape) - 1,))
    if len(a.shape) == 1:
        column = arrays.reshape(a, (a.shape[0], 1))
        spread = arrays.elem("multiply", (column, b), node.dtype)
        return arrays.reduce("add", spread, (len(b.shape) - 2,))
    extents = (*a.shape[-2:], b.shape[-1])
    if math.prod(extents) > BLAS_ABOVE:
        alone = len(a.shape) == len(b.shape) == 2
        few = math.prod(node.shape) <= MOST_BY_BLAS and min(extents) >= LEAST_OF_MANY
        if few or (alone and min(extents) > 4):
            raise Unlowered  # BLAS does it (products.py)
    if len(a.shape) >= len(b.shape) and a.shape[-2] >= PACKED_ABOVE:
        b = arrays.packed(b)  # each row of the result reads all of it
    # All products of an entry of a row with one of a column, in the order (..., row, inner, column), summed over inner.
    left = arrays.reshape(a, (*a.shape, 1))
    right = arrays.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    spread = arrays.elem("multiply", (left, right), node.dtype)
    return arrays.reduce("add", spread, (len(spread.shape) - 2,))


MOST_TAPS = 24
"""Terms of each entry of a convolution, or entries, above which it is a NumPy call."""


@lowers("convolution", "convolve")
def convolution(
    arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]
) -> Op:
    """Slices of the longer sequence times the entries of the shorter; where few entries are asked for, a sum of products each."""
    given = dict(zip(("a", "v", "mode"), operands, strict=False)) | settings
    mode = given.pop("mode", "full")
    long, short = (_op(arrays, given.pop(name), node.dtype) for name in ("a", "v"))
    if given or mode not in ("full", "valid") or node.dtype not in (F8, F4):
        raise Unlowered
    if len(long.shape) != 1 or len(short.shape) != 1:
        raise Unlowered
    if long.size < short.size:
        long, short = short, long
    m, n = short.size, math.prod(node.shape)

    def part(x: Op, start: int, step: int, length: int) -> Op:
        return arrays.view(x, [(start, 0 if step else -1, step)], (length,))

    if m <= MOST_TAPS:
        nothing = total = arrays.const(0, node.shape, node.dtype)
        for j in range(m):
            if mode == "valid":
                taps = part(short, m - 1 - j, 0, n), part(long, j, 1, n)
                term = arrays.elem("multiply", taps, node.dtype)
            else:
                taps = part(short, j, 0, long.size), long
                term = arrays.elem("multiply", taps, node.dtype)
                term = arrays.region(term, nothing, [(j, 0)])
            total = term if j == 0 else arrays.elem("add", (total, term), node.dtype)
        return total
    if mode == "full" or n > MOST_TAPS:
        raise Unlowered
    whole = arrays.const(0, node.shape, node.dtype)
    reversed_ = part(short, m - 1, -1, m)
    for k in range(n):
        product = arrays.elem("multiply", (part(long, k, 1, m), reversed_), node.dtype)
        entry = arrays.reshape(arrays.reduce("add", product, (0,)), (1,))
        whole = arrays.region(entry, whole, [(k, 0)])
    return whole


@lowers("einsum")
def einsum(arrays: Arrays, node: Node, operands: Sequence[Any], settings: dict[str, Any]) -> Op:
    """Products over all indices at once, summed over those that the result lacks."""
    given = dict(settings)
    if isinstance(node.function, OpCall):
        (factors,), text = operands, given.pop("subscripts")
    else:
        text, *factors = operands
    given.pop("optimize", None)
    if given or not isinstance(text, str) or "." in text or node.dtype not in (F8, F4):
        raise Unlowered
    inputs, _, output = text.replace(" ", "").partition("->")
    parts = inputs.split(",")
    factors = [_op(arrays, x, node.dtype) for x in factors]
    if len(output) != len(node.shape) or len(parts) != len(factors):
        raise Unlowered
    lengths: dict[str, int] = {}
    for part, x in zip(parts, factors, strict=True):
        for letter, n in zip(part, x.shape, strict=True):
            if lengths.setdefault(letter, n) != n:
                raise Unlowered
    summed = [letter for letter in lengths if letter not in output]
    order = [*output[:-1], *summed, *output[-1:]]  # rows of the result are vectors
    space = tuple(lengths[letter] for letter in order)
    if math.prod(space) > BLAS_ABOVE:
        raise Unlowered
    spread = [
        arrays.view(x, [(0, order.index(letter), 1) for letter in part], space)
        for part, x in zip(parts, factors, strict=True)
    ]
    product = spread[0]
    for x in spread[1:]:
        product = arrays.elem("multiply", (product, x), node.dtype)
    first = max(len(output) - 1, 0)
    return arrays.reduce("add", product, range(first, first + len(summed)))
