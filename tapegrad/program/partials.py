"""Partial derivatives of elementwise ops as expressions, from their declarations in `tapegrad.ops`.

A declared partial is a function of NumPy's words. Called on `Symbol`s it leaves its formula behind as an expression, with constants
folded, so that `x ** 2.0` has the partial `2 * x` and a choice that a constant decides is no choice. No formula is written here.

Invariant: what has no form as an expression raises `Formless`, so that another engine can be asked; nothing is guessed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..core.primitive import OPS, UFUNCS, Partial, Primitive, select
from .expressions import F8, Expr, const, is_const, minus, node

SPECIAL = frozenset(("erf", "erfc"))
"""Ops of SciPy's that have declarations and code."""


OF_OURS = frozenset(("where", "clip", "sign", "root"))
"""Ops that no ufunc stands for, or one that is another thing of complex numbers."""


class Formless(TypeError):
    """A formula does something that no expression says; says what."""


def _choice(name: str, first: Any, second: Any) -> Primitive:
    """The op of Python's max or min, which NumPy has no ufunc for: no user calls it by itself, as tensors are compared."""
    op = Primitive()
    op.name, op.arity = name, 2
    op.elementwise = True
    op.partials = (Partial(first, True), Partial(second, True))
    op.needs = tuple(p.needs for p in op.partials)
    return op


# max(x, y) is y where y > x, else x: of equal operands, and where one is NaN, that is the first. It has the whole gradient, as eagerly.
# fmt: off
LARGER  = _choice("larger",  lambda x, y: select(y > x, 0.0, 1.0), lambda x, y: select(y > x, 1.0, 0.0))
SMALLER = _choice("smaller", lambda x, y: select(y < x, 0.0, 1.0), lambda x, y: select(y < x, 1.0, 0.0))
# fmt: on


@functools.cache
def _declared() -> dict[str, Primitive]:
    from .. import ops  # noqa: F401  declares them

    found = {op.name: op for op in OPS if op.elementwise and op.name in OF_OURS}
    for ufunc, function in list(UFUNCS.items()):
        op = getattr(function, "primitive", None)
        if op is not None and op.elementwise and isinstance(ufunc, np.ufunc):
            found[ufunc.__name__] = op
    return found | {op.name: op for op in (LARGER, SMALLER)}


def declared(name: str) -> Primitive | None:
    """The declaration of an elementwise op, by NumPy's or SciPy's name; None where there is none."""
    if name in SPECIAL:
        from ..ops.special import gaussian  # loads SciPy's special functions

        return getattr(gaussian, name).primitive  # type: ignore[no-any-return]
    return _declared().get(name)


_again: ContextVar[bool] = ContextVar("again", default=False)


@contextmanager
def differentiated_again() -> Iterator[None]:
    """Partials asked for within are those whose own derivatives keep their digits (`core.primitive.refined`)."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


class Symbol:
    """An expression in the place of a number, in a formula that is written for arrays."""

    __slots__ = ("of",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, of: Expr) -> None:
        self.of = of

    @property
    def again(self) -> bool:
        """Whether the formula is differentiated in its turn: `core.primitive.refined` asks."""
        return _again.get()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        if method != "__call__" or settings:
            raise Formless(f"{ufunc.__name__} with these settings has no form as an expression.")
        return apply(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, settings: Any) -> Any:
        if settings or function not in (np.where, np.real, np.conj):
            raise Formless(f"{function.__name__} has no form as an expression.")
        return args[0] if function is not np.where else _where(*args)

    def __bool__(self) -> bool:
        raise Formless("A branch on a value has no form as an expression.")


def _where(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, Symbol):
        return a if condition else b
    if not isinstance(a, Symbol) and not isinstance(b, Symbol) and a == b:
        return a
    like = next((x.of for x in (a, b) if isinstance(x, Symbol)), None)
    dtype = F8 if like is None else like.dtype
    return Symbol(node("where", condition.of, *(_lifted(x, dtype) for x in (a, b))))


def _lifted(x: Any, dtype: str) -> Expr:
    if isinstance(x, Symbol):
        return x.of
    if isinstance(x, int | float | np.floating) or (isinstance(x, np.ndarray) and not x.shape):
        return const(float(x), dtype)  # `select` of plain numbers gives an array without axes
    raise Formless(f"Arithmetic with {x!r} has no form as an expression.")


_SAME = {"conjugate", "positive"}
_NAMES = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not"}


def apply(name: str, *operands: Any) -> Any:
    """An elementwise op of Symbols and plain numbers: a number where all are numbers, else a Symbol."""
    if name in _SAME:
        return operands[0]
    name = _NAMES.get(name, name)
    known = [x.of for x in operands if isinstance(x, Symbol)]
    dtype = next((x.dtype for x in known), F8)
    args = [_lifted(x, dtype) for x in operands]
    if all(a.op == "const" for a in args):
        with np.errstate(all="ignore"):
            return _plain(getattr(np, name)(*(a.args[0] for a in args)))
    if name in ("multiply", "add", "subtract", "divide", "power", "negative"):
        short = _shortened(name, args)
        if short is not None:
            return Symbol(short)
    return Symbol(node(name, *args))


def _plain(x: Any) -> Any:
    return bool(x) if isinstance(x, np.bool_) else float(x)


def _shortened(name: str, args: list[Expr]) -> Expr | None:
    """A shorter formula of the same value; products with 0 stay, which may be NaN."""
    a, b = args[0], args[-1]
    if name == "negative":
        return minus(a)
    if name == "multiply" and is_const(a, 1.0):
        return b
    if name in ("multiply", "divide", "power") and is_const(b, 1.0):
        return a
    if name == "power" and is_const(b, 2.0):
        return node("multiply", a, a)
    if name in ("add", "subtract") and is_const(b, 0.0):
        return a
    if name in ("multiply", "divide") and a.op == "negative":
        return minus(node(name, a.args[0], b))
    return None


def _operators() -> None:
    for name, word in {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "and": "logical_and",
        "or": "logical_or",
    }.items():  # fmt: skip
        setattr(Symbol, f"__{name}__", lambda x, y, word=word: apply(word, x, y))
        setattr(Symbol, f"__r{name}__", lambda x, y, word=word: apply(word, y, x))
    for name, word in {
        "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    }.items():  # fmt: skip
        setattr(Symbol, f"__{name}__", lambda x, y, word=word: apply(word, x, y))
    for name, word in {"neg": "negative", "abs": "absolute", "invert": "logical_not"}.items():
        setattr(Symbol, f"__{name}__", lambda x, word=word: apply(word, x))


_operators()


def traced(function: Callable[..., Any], dtype: str, *operands: Expr) -> Expr:
    """What a formula of numbers computes of expressions."""
    given = [x.args[0] if x.op == "const" else Symbol(x) for x in operands]
    try:
        with np.errstate(all="ignore"):
            return _lifted(function(*given), dtype)
    except (AttributeError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise Formless(f"A formula has no form as an expression: {error}") from error


def partial(n: Expr, position: int, operands: list[Expr], out: Expr) -> Expr:
    """The partial derivative of a node by the operand at a position, from values of its operands and its result."""
    op = declared(n.op)
    if op is None or position >= len(op.partials):
        raise Formless(f"{n.op} has no declared partial derivative.")
    found = op.partials[position]
    if found.function is None:
        value = found.value
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise Formless(f"{n.op} has no partial derivative in numbers.")
        return const(float(value), out.dtype)
    by_name = dict(zip(("x", "y", "z"), operands, strict=False)) | {"out": out}
    code = found.function.__code__
    names = [name for name in code.co_varnames[: code.co_argcount] if name in found.needs]
    return traced(found.function, out.dtype, *(by_name[name] for name in names))


def chooses(n: Expr, position: int) -> bool:
    op = declared(n.op)
    return op is not None and bool(op.partials[position].chooses)


__all__ = [
    "Formless",
    "Symbol",
    "apply",
    "chooses",
    "declared",
    "differentiated_again",
    "partial",
    "traced",
]
