"""Tracing: NumPy expressions of scalars, written for arrays, as IR.

A `Traced` number stands for an array's element. It has Python's operators and takes part in NumPy's ufuncs, so a rule such as
`lambda x: -np.sin(x)` called on Traced numbers leaves its instructions behind; elementary functions become calls of
vector functions. There is nothing here about derivatives.

Invariant: what cannot be said exactly in IR raises `Untraceable`, so that another way can be taken; nothing is guessed. A
number meets a constant as an array does (float32 stays float32).
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..llvm import named
from . import powers
from .expression import INTEGER, Code, Value, bits, copysign, select, sqrt

NAMES = {"double": "float64", "float": "float32"}


class Untraceable(TypeError):
    """A rule does something that has no form in IR; says what."""


def refused(what: str) -> NoReturn:
    raise Untraceable(f"{what} has no form as vector code.")


class Operand:
    """What stands for a value in a function being written: Python can look at none."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    leaves_instructions = True
    """So that ops hand their ufunc to it."""

    def __bool__(self) -> bool:
        refused("a branch on a value")

    def __float__(self) -> float:
        refused("float() of a value")

    def __complex__(self) -> complex:
        refused("complex() of a value")

    def __array__(self, *_: Any, **__: Any) -> Any:
        refused("an array of a value")


class Traced(Operand):
    """A number, or a truth value, in a function being written."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Traced:
        if method != "__call__" or settings:
            refused(f"{ufunc.__name__} with these settings")
        return (UFUNCS.get(ufunc) or _of_scipy(ufunc))(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, settings: Any) -> Traced:
        if settings or function not in FUNCTIONS:
            refused(getattr(function, "__name__", str(function)))
        return FUNCTIONS[function](*args)

    @property
    def real(self) -> Traced:
        return self

    @property
    def shape(self) -> Any:
        refused("the shape of a value")


def _lifted(*operands: Any) -> tuple[Value, ...]:
    """Operands as Values of one floating type; at least one is Traced."""
    like = next(
        (o.value for o in operands if isinstance(o, Traced) and o.value.element in INTEGER), None
    )
    if like is None:
        refused("arithmetic with truth values")
    return tuple(_value(o, like) for o in operands)


def _value(operand: Any, like: Value) -> Value:
    if isinstance(operand, Traced):
        if operand.value.element != like.element:
            refused("arithmetic that mixes types")
        return operand.value
    if isinstance(operand, bool | np.bool_) or not isinstance(operand, numbers.Real):
        refused(f"arithmetic with {operand!r}")
    if isinstance(operand, np.generic) and np.dtype(NAMES[like.element]) != np.result_type(
        NAMES[like.element], operand
    ):
        refused(f"a constant of type {type(operand).__name__}")
    return like.code.constant(float(operand), like.element)


def _binary(operation: Callable[[Value, Value], Value]) -> Callable[..., Traced]:
    return lambda x, y: Traced(operation(*_lifted(x, y)))


def _unary(operation: Callable[[Value], Value]) -> Callable[..., Traced]:
    return lambda x: Traced(operation(*_lifted(x)))


def called(name: str) -> Callable[..., Traced]:
    """A function of Traced numbers that calls one of the vector functions."""

    def call(*operands: Any) -> Traced:
        from . import emit

        values = _lifted(*operands)
        code, element = values[0].code, values[0].element
        symbol, text = emit(name, NAMES[element], code.lanes, code.fused)
        return Traced(code.call(symbol, text, element, *values))

    return call


def _power(x: Any, y: Any) -> Traced:
    """x**y; the powers that NumPy takes by other means are taken so here."""
    if isinstance(y, numbers.Real) and not isinstance(y, bool):
        (v,) = _lifted(x)
        if y == 2:
            return Traced(v * v)
        if y == 1:
            return Traced(v)
        if y == 0.5:
            return Traced(sqrt(v))
        if y == -1:
            return Traced(1.0 / v)
        if whole := powers.NAMES.get(float(y)):
            return called(whole)(x)
    return called("power")(x, y)


def _logical(operation: Callable[[Value, Value], Value]) -> Callable[..., Traced]:
    def apply(x: Any, y: Any) -> Traced:
        if not all(isinstance(o, Traced) and o.value.element == "i1" for o in (x, y)):
            refused("a bitwise operation on numbers")
        return Traced(operation(x.value, y.value))

    return apply


def _inverted(x: Traced) -> Traced:
    if x.value.element != "i1":
        refused("a bitwise operation on numbers")
    return Traced(~x.value)


def _where(condition: Any, a: Any, b: Any) -> Traced:
    if not isinstance(condition, Traced):
        refused("a choice that does not depend on the values")
    test = condition.value
    if test.element in INTEGER:
        test = test != 0.0
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        # Two constants: of the type this function works in.
        like = test.code.constant(0.0, test.code.element)
        return Traced(select(test, _value(a, like), _value(b, like)))
    return Traced(select(test, *_lifted(a, b)))


def _sign(x: Value) -> Value:
    one = copysign(x.code.constant(1.0, x.element), x)
    return select(x == 0.0, 0.0, select(x != x, x, one))


def _intrinsic(name: str) -> Callable[..., Traced]:
    return _unary(lambda v: v.code.intrinsic(name, v))


def _larger(x: Value, y: Value) -> Value:
    return select((x >= y) | (x != x), x, y)


def _smaller(x: Value, y: Value) -> Value:
    return select((x <= y) | (x != x), x, y)


def _logaddexp(x: Any, y: Any) -> Any:
    """The larger one, and what the other adds; equal infinities are at no distance."""
    apart = np.where(x == y, 0.0, x - y)
    return np.maximum(x, y) + np.log1p(np.exp(-np.abs(apart)))


UFUNCS: dict[Any, Callable[..., Traced]] = {
    np.logaddexp: _logaddexp,
    np.add: _binary(lambda x, y: x + y),
    np.subtract: _binary(lambda x, y: x - y),
    np.multiply: _binary(lambda x, y: x * y),
    np.divide: _binary(lambda x, y: x / y),
    np.negative: _unary(lambda x: -x),
    np.positive: _unary(lambda x: x),
    np.square: _unary(lambda x: x * x),
    np.reciprocal: _unary(lambda x: 1.0 / x),
    np.power: _power,
    np.float_power: _power,
    np.absolute: _unary(abs),
    np.fabs: _unary(abs),
    np.sign: _unary(_sign),
    np.copysign: _binary(copysign),
    np.floor: _intrinsic("floor"),
    np.ceil: _intrinsic("ceil"),
    np.trunc: _intrinsic("trunc"),
    np.rint: _intrinsic("rint"),
    np.sqrt: _unary(sqrt),
    np.maximum: _binary(_larger),
    np.minimum: _binary(_smaller),
    np.conjugate: _unary(lambda x: x),
    np.less: _binary(lambda x, y: x < y),
    np.less_equal: _binary(lambda x, y: x <= y),
    np.greater: _binary(lambda x, y: x > y),
    np.greater_equal: _binary(lambda x, y: x >= y),
    np.equal: _binary(lambda x, y: x == y),
    np.not_equal: _binary(lambda x, y: x != y),
    np.isnan: _unary(lambda x: x != x),
    np.isinf: _unary(lambda x: abs(x) == np.inf),
    np.isfinite: _unary(lambda x: abs(x) < np.inf),
    np.signbit: _unary(lambda x: bits(x) < 0),
    np.bitwise_and: _logical(lambda x, y: x & y),
    np.bitwise_or: _logical(lambda x, y: x | y),
    np.logical_and: _logical(lambda x, y: x & y),
    np.logical_or: _logical(lambda x, y: x | y),
    np.invert: _inverted,
    np.logical_not: _inverted,
}

FUNCTIONS: dict[Any, Callable[..., Traced]] = {
    np.where: _where,
    np.real: _unary(lambda x: x),
    np.round: _intrinsic("rint"),
}


OPERATORS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "neg": np.negative,
    "pos": np.positive,
    "abs": np.absolute,
    "invert": np.invert,
}
"""Python's operators, as NumPy's arrays take them."""


def _of_scipy(ufunc: np.ufunc) -> Callable[..., Traced]:
    """A function of SciPy's, which is learnt when it is met: importing SciPy's takes longer than anything here."""
    special, name = sys.modules.get("scipy.special"), ufunc.__name__
    if special is None or ufunc is not getattr(special, name, None):
        refused(name)
    if name in ("erf", "erfc", "expit", "gammaln"):
        UFUNCS[ufunc] = called(name)
        return UFUNCS[ufunc]
    symbol = named.symbol_of(ufunc)
    if symbol is None:
        refused(name)
    return lambda *operands: Traced(_lane_by_lane(symbol, *_lifted(*operands)))


def _lane_by_lane(symbol: str, *values: Value) -> Value:
    """A C function of doubles (llvm/named.py), called for each lane."""
    code, element = values[0].code, values[0].element
    kind, several, narrow = code.type(element), code.lanes > 1, element == "float"
    lines, result = [], "poison"
    for lane in range(code.lanes):
        passed = []
        for k in range(len(values)):
            one = f"%x{k}"
            if several:
                lines.append(f"%x{k}.{lane} = extractelement {kind} %x{k}, i32 {lane}")
                one += f".{lane}"
            if narrow:
                lines.append(f"%wide{k}.{lane} = fpext float {one} to double")
                one = f"%wide{k}.{lane}"
            passed.append(f"double {one}")
        lines.append(f"%y{lane} = call double @{symbol}({', '.join(passed)}, i32 0)")
        one = f"%y{lane}"
        if narrow:
            lines.append(f"%narrow{lane} = fptrunc double {one} to float")
            one = f"%narrow{lane}"
        if several:
            lines.append(f"%to{lane} = insertelement {kind} {result}, {element} {one}, i32 {lane}")
        result = f"%to{lane}" if several else one
    name = f"{symbol}_{element}{code.lanes}"
    parameters = ", ".join(f"{kind} %x{k}" for k in range(len(values)))
    text = (
        f"declare double @{symbol}({'double, ' * len(values)}i32)\n"
        f"define internal {kind} @{name}({parameters}) {{\nentry:\n  "
        + "\n  ".join([*lines, f"ret {kind} {result}"])
        + "\n}"
    )
    return code.call(name, text, element, *values)


def _learn() -> None:
    """The vector functions, under NumPy's ufuncs; Python's operators, by NumPy's ufuncs."""
    from . import FUNCTIONS as VECTOR

    for name, (_, count) in VECTOR.items():
        ufunc = getattr(np, name, None)
        if isinstance(ufunc, np.ufunc) and ufunc not in UFUNCS:
            assert ufunc.nin == count
            UFUNCS[ufunc] = called(name)
    for name in ("add", "sub", "mul", "truediv", "pow", "and", "or"):
        apply = UFUNCS[OPERATORS[name]]
        setattr(Traced, f"__{name}__", apply)
        setattr(Traced, f"__r{name}__", lambda x, y, apply=apply: apply(y, x))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
        setattr(Traced, f"__{name}__", UFUNCS[OPERATORS[name]])


_learn()


def trace(function: Callable[..., Any], code: Code, arguments: list[Value]) -> Value:
    """Append what a function of numbers computes to `code`; its result. Raises Untraceable, or what the function raises."""
    like = arguments[0] if arguments else code.constant(0.0, code.element)
    with np.errstate(all="ignore"):
        result = function(*(Traced(a) for a in arguments))
    if isinstance(result, Traced):
        if result.value.element not in INTEGER:
            refused("a truth value as a result")
        return result.value
    return _value(result, like)


__all__ = ["Operand", "Traced", "Untraceable", "called", "refused", "trace"]
