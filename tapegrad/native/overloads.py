"""What operations and functions mean on carriers, as overloads of Numba.

Scalar functions come from the one place where derivatives are declared: `rules.derivative` tells the partials of an operation as text, and
here the text becomes the body of an overload, once for values and again for their derivatives. Functions of whole arrays are
loops over scalars, in which no derivative is written; they are given to the program by `retyping` in place of NumPy's, because Numba's
own take any array and know nothing of carriers.

Invariant: a function of carriers either has its overload here, or moves and compares elements only, or has no type.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import NumbaTypeError
from numba.core.typing.npydecl import parse_dtype
from numba.extending import register_jitable

from ..core.primitive import Primitive
from ..errors import NotDifferentiable
from . import rules, runtime, special
from .carriers import (
    Active,
    Carrier,
    constant,
    is_carried,
    is_number,
    joined,
    joined_two,
    overload,
    value,
)
from .runtime import SCOPE, SINGULAR, cofactors, digamma, digamma_rise, trigamma
from .tree import Const, Op, Where

OPERATORS = {
    "+": (operator.add, operator.iadd), "-": (operator.sub, operator.isub), "*": (operator.mul, operator.imul),
    "/": (operator.truediv, operator.itruediv), "**": (operator.pow, operator.ipow), "%": (operator.mod, operator.imod),
    "//": (operator.floordiv, operator.ifloordiv), "neg": (operator.neg,),
}  # fmt: skip

ALIASES = {"pow": "**"}

STEPS: dict[Any, str] = {
    int: "int({0})", round: "round({0})", math.floor: "math.floor({0})", math.ceil: "math.ceil({0})", math.trunc: "math.trunc({0})",
    bool: "({0} != 0.0)", operator.not_: "({0} == 0.0)", math.isnan: "math.isnan({0})", math.isinf: "math.isinf({0})",
    math.isfinite: "math.isfinite({0})", np.isnan: "np.isnan({0})", np.isinf: "np.isinf({0})", np.isfinite: "np.isfinite({0})",
    np.sign: "np.sign({0})", np.signbit: "np.signbit({0})",
}  # fmt: skip
"""Functions whose results do not vary, or only in steps: they are taken of the value."""

COMPARISONS = {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip


WORDS: dict[int, tuple[Any, Any]] = {}
"""By id of a function of NumPy's: the function, and what stands for it in a program on carriers."""

# ------------------------------------------------------------------------------------------------- scalars


def _partial(pull: str) -> str:
    """The partial derivative in the text of a cotangent."""
    tree = ast.parse(pull, mode="eval").body
    g = lambda node: isinstance(node, ast.Name) and node.id == "g"  # noqa: E731
    if g(tree):
        return "1.0"
    if isinstance(tree, ast.BinOp) and g(tree.left):
        if isinstance(tree.op, ast.Mult):
            return ast.unparse(tree.right)
        if isinstance(tree.op, ast.Div):
            return f"1.0 / ({ast.unparse(tree.right)})"
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) in ("unless_zero", "strong"):
        return ast.unparse(tree.args[1])
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "strong_quotient":
        return f"1.0 / ({ast.unparse(tree.args[1])})"
    return rules.renamed(pull, {"g": "1.0"})


def _formula(
    name: str, operands: list[Any]
) -> tuple[list[str | None], bool, frozenset[int]] | None:
    """Partials of a scalar operation by its operands, as declared; None where nothing is known."""
    kinds = [
        types.float64
        if isinstance(o, str)
        else types.int64
        if type(o.value) is int
        else types.float64
        for o in operands
    ]
    op = Op("pure", ("out",), operands, "", Where("", 0, name), name)
    found = rules.derivative(op, kinds)
    if found is None:
        return None
    texts = [_partial(found.pull[i]) if i in found.pull else None for i in range(len(operands))]
    return texts, found.chooses, found.unknown


def _call_text(name: str, operands: list[str]) -> str:
    if name == "neg":
        return f"-{operands[0]}"
    if name in OPERATORS:
        return f" {name} ".join(operands)
    return f"{name}({', '.join(operands)})"


@functools.cache
def _scalar(name: str, carried: tuple[bool, ...], literal: Any = None) -> Any:
    """The overload of a scalar function for operands that are carriers where `carried` says so."""
    places = rules.PLACES[: len(carried)]
    operands: list[Any] = list(places)
    if literal is not None:
        operands[1] = Const(repr(literal), literal)
    found = _formula(name, operands)
    if found is None:
        return None
    partials, chooses, unknown = found
    if any(carried[i] for i in unknown):
        return None
    inner = {p: f"{p}.v" if c else p for p, c in zip(places, carried, strict=True)}
    if literal is not None:
        inner[places[1]] = repr(literal) if literal >= 0 else f"({literal!r})"
    lines = [f"def overloaded({', '.join(places)}):"]
    lines.append(f"    out = {_call_text(name, [inner[p] for p in places])}")
    given = []
    for p, c, text in zip(places, carried, partials, strict=True):
        if not c or text is None or text in ("0.0", "-0.0"):
            continue
        lines.append(f"    d{p} = {rules.renamed(text, inner)}")
        operand = p
        if chooses:
            # Where the partial is 0 the operand was not chosen: nothing goes to it, however infinite the rest.
            operand = f"chosen_{p}"
            lines.append(f"    {operand} = {p} if d{p} != 0.0 else constant({p})")
        given.append(f"{operand}, d{p}")
    if not given:
        lines.append("    return out")
    else:
        word = "joined" if len(given) == 1 else "joined_two"
        lines.append(f"    return {word}(out, {', '.join(given)})")
    space = {
        "np": np, "math": math, "digamma": digamma, "trigamma": trigamma, "digamma_rise": digamma_rise, "joined": joined,
        "joined_two": joined_two, "constant": constant,
        **{n: getattr(builtins, n) for n in ("abs", "min", "max", "pow")}, **special.carried_scope(),
    }  # fmt: skip
    exec("\n".join(lines), space)
    return space["overloaded"]


def of_numbers(name: str, kinds: tuple[Any, ...]) -> Any:
    """The overload of a function of numbers, some of which are carriers; None for other arguments."""
    if not all(map(_is_scalar, kinds)):
        return None
    return _scalar(name, tuple(isinstance(k, Carrier) for k in kinds))


def _is_scalar(kind: Any) -> bool:
    return isinstance(kind, Carrier) or is_number(kind)


def _is_array(kind: Any) -> bool:
    return isinstance(kind, types.Array)


def _unary(name: str, function: Any) -> Callable[[Any], Any]:
    def choose(x: Any) -> Any:
        if isinstance(x, Carrier):
            return _scalar(name, (True,))
        return _each(function, x.dtype) if is_carried(x) else None

    return choose


def _binary(name: str, function: Any) -> Callable[[Any, Any], Any]:
    def choose(x: Any, y: Any) -> Any:
        if isinstance(x, Carrier) or isinstance(y, Carrier):
            if _is_scalar(x) and _is_scalar(y):
                literal = None
                if name == "**" and isinstance(y, types.Literal) and isinstance(y, types.Integer):
                    literal = y.literal_value
                return _scalar(name, (isinstance(x, Carrier), isinstance(y, Carrier)), literal)
        if _mixed(x, y):
            return _pairs(function, _dtype(x, y))
        return None

    return choose


def _mixed(x: Any, y: Any) -> bool:
    """Whether operands are an array and what goes with it, carriers among them."""
    if not (_is_array(x) or _is_array(y)):
        return False
    if not all(_is_scalar(k) or (_is_array(k) and _is_scalar(k.dtype)) for k in (x, y)):
        return False
    return any(isinstance(k, Carrier) or is_carried(k) for k in (x, y))


def _dtype(*kinds: Any) -> Any:
    for k in kinds:
        if isinstance(k, Carrier):
            return k
        if is_carried(k):
            return k.dtype
    raise AssertionError(kinds)


def _each(function: Any, kind: Any) -> Any:
    """A function of a scalar, on every element."""
    word = kind.dtype_word

    def each(x: Any) -> Any:
        out = np.zeros(x.shape, word)
        for k in np.ndindex(x.shape):
            out[k] = function(x[k])
        return out

    return each


@functools.cache
def _pairs(function: Any, kind: Any) -> Any:
    """A function of two scalars, on arrays that are stretched to one shape."""
    word = kind if not isinstance(kind, Carrier) else kind.dtype_word

    def pairs(x: Any, y: Any) -> Any:
        a, b = np.asarray(x), np.asarray(y)
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        out = np.zeros(shape, word)
        for k in np.ndindex(shape):
            out[k] = function(a[k], b[k])
        return out

    def with_right(x: Any, y: Any) -> Any:
        out = np.zeros(x.shape, word)
        for k in np.ndindex(x.shape):
            out[k] = function(x[k], y)
        return out

    def with_left(x: Any, y: Any) -> Any:
        out = np.zeros(y.shape, word)
        for k in np.ndindex(y.shape):
            out[k] = function(x, y[k])
        return out

    return pairs, with_right, with_left


def _pick(found: Any, x: Any, y: Any) -> Any:
    pairs, with_right, with_left = found
    return pairs if _is_array(x) and _is_array(y) else with_right if _is_array(x) else with_left


def _register_scalars() -> None:
    """Register carriers' overloads of all scalar functions that have a formula."""
    seen: set[int] = set()
    names = [n for n in (*rules.MATH, *rules.WRITTEN) if not n.startswith(special.PREFIX)]
    names += [f"np.{n}" for n, f in vars(np).items() if isinstance(f, np.ufunc) or f is np.sinc]
    for name in names:
        ufunc = rules.ufunc_of(name)
        n = ufunc.arity if isinstance(ufunc, Primitive) else getattr(ufunc, "nin", 1)
        if n > 2:
            continue
        try:
            known = _formula(name, list(rules.PLACES[:n]))
        except (LookupError, SyntaxError):
            known = None
        if known is None:
            continue
        if name in OPERATORS:
            targets: tuple[Any, ...] = OPERATORS[name]
        elif name == "pow":
            targets = (pow,)
        else:
            space, _, word = name.rpartition(".")
            owner = {"np": np, "math": math, "": runtime if word in SCOPE else builtins}[space]
            if not hasattr(owner, word):  # math.exp2 and math.cbrt came with Python 3.11
                continue
            targets = (getattr(owner, word),)
        canonical = ALIASES.get(name, name)
        for k, target in enumerate(targets):
            if id(target) in seen:
                continue
            seen.add(id(target))
            _register(canonical, targets[0], target, n, in_place=k == 1)


def _register(name: str, function: Any, target: Any, n: int, in_place: bool) -> None:
    """Register the overload of one function of one or two arguments."""
    if n == 1:
        overload(target)(_unary(name, function))
        return
    choose = _binary(name, function)

    def choose_two(x: Any, y: Any) -> Any:
        found = choose(x, y)
        if isinstance(found, tuple):
            return None if in_place else _pick(found, x, y)  # see `in_place`
        return found

    overload(target, prefer_literal=True)(choose_two)
    if isinstance(target, np.ufunc):
        WORDS[id(target)] = target, _standing(target, choose_two)


def _standing(ufunc: np.ufunc, choose: Any) -> Any:
    """What stands for a ufunc of two operands: of an array and a number Numba takes its own for granted before it asks for overloads."""

    def standing(x: Any, y: Any) -> Any:
        raise NotImplementedError("for compiled code")

    def chosen(x: Any, y: Any) -> Any:
        return choose(x, y) or (lambda x, y: ufunc(x, y))

    overload(standing, prefer_literal=True)(chosen)
    return standing


def in_place(operation: Any) -> Any:
    """What stands for an in-place operation: of arrays Numba takes its own for granted before it asks for overloads."""
    return _IN_PLACE.get(operation)


def _assigning(symbol: str, function: Any) -> Any:
    """A nopython function for `x op= y`, element by element in Numba's order, which counts where `y` is another part of the same array."""
    space: dict[str, Any] = {"function": function, "np": np}
    exec(
        f"""
def standing(x, y):
    raise NotImplementedError

def plain(x, y):
    x {symbol}= y
    return x

def whole(x, y):
    x[:] = function(x, y)
    return x

def ordered(x, y):
    z = np.broadcast_to(y, x.shape)
    for i in np.ndindex(x.shape):
        x[i] = function(x[i], z[i])
    return x
""",
        space,
    )

    def choose(x: Any, y: Any) -> Any:
        return space[("ordered" if is_carried(y) else "whole") if is_carried(x) else "plain"]

    overload(space["standing"])(choose)
    return space["standing"]


_IN_PLACE = {
    functions[1]: _assigning(symbol, functions[0])
    for symbol, functions in OPERATORS.items()
    if len(functions) > 1
}


def _register_steps() -> None:
    for function, form in STEPS.items():
        overload(function)(_step(function, form.format("x.v")))
    for function, symbol in COMPARISONS.items():
        overload(function)(_comparison(function, symbol))


def _step(function: Any, text: str) -> Any:
    def choose(x: Any) -> Any:
        if isinstance(x, Carrier):
            return eval(f"lambda x: {text}", {"math": math, "np": np})
        if is_carried(x) and isinstance(function, np.ufunc):
            return _pairs_of_one(function, np.float64 if function is np.sign else np.bool_)
        return None

    return choose


def _comparison(function: Any, symbol: str) -> Any:
    texts = {
        (True, True): f"lambda x, y: x.v {symbol} y.v",
        (True, False): f"lambda x, y: x.v {symbol} y",
        (False, True): f"lambda x, y: x {symbol} y.v",
    }

    def compare(x: Any, y: Any) -> Any:
        if _is_scalar(x) and _is_scalar(y):
            text = texts.get((isinstance(x, Carrier), isinstance(y, Carrier)))
            return eval(text, {}) if text else None
        return _pick(_pairs(function, np.bool_), x, y) if _mixed(x, y) else None

    return compare


def _pairs_of_one(function: Any, word: Any) -> Any:
    def each(x: Any) -> Any:
        out = np.empty(x.shape, word)
        for k in np.ndindex(x.shape):
            out[k] = function(x[k])
        return out

    return each


def _of_values(function: Any, listed: str) -> None:
    """Declares a function whose result does not vary, or only in steps: it is taken of the values."""
    names = [p.partition("=")[0] for p in listed.split(", ")]

    def choose(kinds: tuple[Any, ...]) -> Any:
        if not any(isinstance(k, Carrier) or is_carried(k) for k in kinds):
            return None
        given = [
            n if isinstance(k, types.Literal) else f"value({n})"
            for n, k in zip(names, kinds, strict=True)
            if not absent(k)
        ]
        text = f"lambda {listed}: function({', '.join(given)})"
        return eval(text, {"function": function, "value": value})

    space: dict[str, Any] = {"choose": choose}
    exec(f"def {function.__name__}({listed}):\n    return choose(({', '.join(names)},))", space)
    word(function)(space[function.__name__])


def _of_several(function: Any, n: int) -> Any:
    """max and min of more than two numbers: of two at a time, from the left, as Python."""
    names = ", ".join(rules.PLACES[:n])
    text = rules.PLACES[0]
    for place in rules.PLACES[1:n]:
        text = f"function({text}, {place})"
    space: dict[str, Any] = {"function": function}
    space["run"] = eval(f"lambda {names}: {text}", space)

    def choose(kinds: tuple[Any, ...]) -> Any:
        found = all(map(_is_scalar, kinds)) and any(isinstance(k, Carrier) for k in kinds)
        return space["run"] if found else None

    space["choose"] = choose
    exec(f"def several({names}):\n    return choose(({names},))", space)
    return space["several"]


for _function in (max, min):
    for _n in range(3, 7):
        overload(_function)(_of_several(_function, _n))


@overload(float)
def _float(x: Any) -> Any:
    return (lambda x: x) if isinstance(x, Carrier) else None


_register_scalars()
_register_steps()

# --------------------------------------------------------------------------------------------- whole arrays

METHODS: dict[str, Any] = {}
"""The same by the names of an array's methods."""


def word(*functions: Any, method: str = "") -> Callable[[Any], Any]:
    """Declares what a function means on carriers: the decorated one takes types and gives an implementation, or None for NumPy's own."""

    def add(choose: Any) -> Any:
        """Register `choose` as the overload of a stand-in for the functions, with as many arguments as a call gives."""
        function = functions[0]
        parameters = inspect.signature(choose).parameters.values()
        listed = ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters
        )
        names = [p.name for p in parameters]
        required = [p.name for p in parameters if p.default is p.empty]
        space: dict[str, Any] = {"function": function}
        exec(f"def {choose.__name__}({listed}):\n    raise NotImplementedError", space)
        standing = space[choose.__name__]
        given = {
            n: eval(f"lambda {listed}: function({', '.join(names[:n])})", space)
            for n in range(len(required), len(names) + 1)
        }

        def overloaded(*kinds: Any) -> Any:
            found = choose(*kinds)
            if found is not None:
                return found
            n = len(kinds)
            while n > len(required) and absent(kinds[n - 1]):
                n -= 1
            return given[n]

        typed: dict[str, Any] = {"overloaded": overloaded}
        exec(f"def typed({listed}):\n    return overloaded({', '.join(names)})", typed)
        overload(standing, prefer_literal=True)(typed["typed"])
        for f in functions:
            WORDS[id(f)] = (f, standing)
        if method:
            METHODS[method] = standing
        return choose

    return add


def absent(kind: Any) -> bool:
    return kind is None or isinstance(kind, types.Omitted | types.NoneType)


for _stepping, _listed in (
    (np.searchsorted, "a, v, side=None"), (np.digitize, "x, bins, right=None"), (np.round, "a, decimals=None"),
    (np.around, "a, decimals=None"), (np.isclose, "a, b"), (np.allclose, "a, b"), (np.array_equal, "a, b"), (np.isin, "element, of"),
    (np.argwhere, "a"), (np.isposinf, "x"), (np.isneginf, "x"), (np.imag, "val"), (np.angle, "z"),
    (np.histogram, "a, bins=None, range=None"), (np.count_nonzero, "a"), (np.nanargmax, "a"), (np.nanargmin, "a"),
    (np.argmax, "a, axis=None"), (np.argmin, "a, axis=None"),
):  # fmt: skip
    _of_values(_stepping, _listed)


for _searching in (np.argmax, np.argmin):
    METHODS[_searching.__name__] = WORDS[id(_searching)][1]


@word(np.argsort, method="argsort")
def order(a: Any, kind: Any = "quicksort") -> Any:
    """np.argsort by the values: Numba would compare the carriers, of which a NaN is no larger than any other."""
    name = getattr(kind, "literal_value", "quicksort")
    text = "value(a)" if is_carried(a) else "a"
    return eval(
        f"lambda a, kind='quicksort': np.argsort({text}, kind={name!r})", {"np": np, "value": value}
    )


@word(np.sort)
def ordered(a: Any) -> Any:
    """np.sort of carriers by the order of their values."""
    if not is_carried(a):
        return None
    if a.ndim != 1:
        raise Unknown("np.sort of an array of two or more dimensions")
    return lambda a: a[np.argsort(value(a), kind="mergesort")]


_sorted_word = WORDS[id(np.sort)][1]


def sort_in_place(a: Any) -> Any:
    raise NotImplementedError("for compiled code")


@overload(sort_in_place)
def _sort_in_place(a: Any) -> Any:
    if not is_carried(a):
        return lambda a: a.sort()
    if a.ndim != 1:
        raise Unknown("sort of an array of two or more dimensions")

    def run(a: Any) -> None:
        a[:] = _sorted_word(a)

    return run


METHODS["sort"] = sort_in_place


@word(np.real)
def real_part(val: Any) -> Any:
    return (lambda val: val) if is_carried(val) or isinstance(val, Carrier) else None


@word(np.sum, method="sum")
def total(a: Any, axis: Any = None) -> Any:
    """np.sum of an array of carriers, over all entries or one axis of two."""
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word
    if absent(axis):

        def everything(a: Any, axis: Any = None) -> Any:
            s = np.zeros(1, kind)[0]
            for k in np.ndindex(a.shape):
                s = s + a[k]
            return s

        return everything
    if a.ndim == 1:
        return lambda a, axis=None: total_word(a)
    if a.ndim != 2 or not isinstance(axis, types.Integer):
        raise Unknown("np.sum over axes of an array of three or more dimensions")

    def along(a: Any, axis: Any = None) -> Any:
        n, m = a.shape
        if axis == 0 or axis == -2:
            columns = np.zeros(m, kind)
            for i in range(n):
                for j in range(m):
                    columns[j] = columns[j] + a[i, j]
            return columns
        rows = np.zeros(n, kind)
        for i in range(n):
            for j in range(m):
                rows[i] = rows[i] + a[i, j]
        return rows

    return along


total_word = METHODS["sum"]


class Unknown(NumbaTypeError):  # type: ignore[misc]
    """A function on carriers that has no code; what was asked is its text."""


@word(np.mean, method="mean")
def mean(a: Any) -> Any:
    return (lambda a: total_word(a) / a.size) if is_carried(a) else None


@word(np.prod, method="prod")
def product(a: Any) -> Any:
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        s = np.zeros(1, kind)[0] + 1.0
        for k in np.ndindex(a.shape):
            s = s * a[k]
        return s

    return run


@word(np.var, method="var")
def variance(a: Any) -> Any:
    if not is_carried(a):
        return None

    def run(a: Any) -> Any:
        return total_word((a - total_word(a) / a.size) ** 2) / a.size

    return run


_variance = METHODS["var"]


@word(np.std, method="std")
def deviation(a: Any) -> Any:
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        v = _variance(a)
        return np.sqrt(v) if value(v) != 0.0 else np.zeros(1, kind)[0]  # slope 0 there

    return run


def _extreme(symbol: str) -> Any:
    """The chooser for np.max and np.min of carriers: entries that are equal share the derivative."""
    text = f"""
def run(a):
    best = value(a.flat[0])
    n = 0
    for k in np.ndindex(a.shape):
        v = value(a[k])
        if v {symbol} best or v != v:
            best = v
    s = np.zeros(1, kind)[0]
    for k in np.ndindex(a.shape):
        v = value(a[k])
        if v == best or v != v:
            n += 1
            s = s + a[k]
    return s / n
"""

    def choose(a: Any) -> Any:
        if not is_carried(a):
            return None
        space = {"np": np, "value": value, "kind": a.dtype.dtype_word}
        exec(text, space)
        return space["run"]

    return choose


@word(np.max, np.amax, method="max")
def largest(a: Any) -> Any:
    return _extreme(">")(a)  # equal shares to all that reach it, as in the adjoint engine


@word(np.min, np.amin, method="min")
def smallest(a: Any) -> Any:
    return _extreme("<")(a)


def _products(a: Any, b: Any) -> bool:
    return (
        _is_array(a)
        and _is_array(b)
        and (is_carried(a) or is_carried(b))
        and _is_scalar(a.dtype)
        and _is_scalar(b.dtype)
    )


def _dot(a: Any, b: Any) -> Any:
    """np.dot of carriers, for vectors and matrices."""
    if not _products(a, b):
        return None
    kind = _dtype(a, b).dtype_word
    if (a.ndim, b.ndim) == (1, 1):

        def inner(a: Any, b: Any) -> Any:
            if a.shape[0] != b.shape[0]:
                raise ValueError("incompatible array sizes for np.dot(a, b)")
            s = np.zeros(1, kind)[0]
            for k in range(a.shape[0]):
                s = s + a[k] * b[k]
            return s

        return inner
    if a.ndim > 2 or b.ndim > 2:
        raise Unknown("np.dot of arrays of three or more dimensions")
    if (a.ndim, b.ndim) == (1, 2):

        def row(a: Any, b: Any) -> Any:
            return _dot_word(np.ascontiguousarray(b.T), a)

        return row
    if (a.ndim, b.ndim) == (2, 1):

        def column(a: Any, b: Any) -> Any:
            if a.shape[1] != b.shape[0]:
                raise ValueError("incompatible array sizes for np.dot(a, b)")
            out = np.zeros(a.shape[0], kind)
            for i in range(a.shape[0]):
                for k in range(a.shape[1]):
                    out[i] = out[i] + a[i, k] * b[k]
            return out

        return column

    def matrices(a: Any, b: Any) -> Any:
        if a.shape[1] != b.shape[0]:
            raise ValueError("incompatible array sizes for np.dot(a, b)")
        out = np.zeros((a.shape[0], b.shape[1]), kind)
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                for k in range(a.shape[1]):
                    out[i, j] = out[i, j] + a[i, k] * b[k, j]
        return out

    return matrices


@word(np.dot, method="dot")
def dot(a: Any, b: Any) -> Any:
    return _dot(a, b)


_dot_word = METHODS["dot"]
overload(operator.matmul)(_dot)


@word(np.outer)
def outer(a: Any, b: Any) -> Any:
    if not _products(a, b) or a.ndim != 1 or b.ndim != 1:
        return None
    kind = _dtype(a, b).dtype_word

    def run(a: Any, b: Any) -> Any:
        out = np.zeros((a.shape[0], b.shape[0]), kind)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                out[i, j] = a[i] * b[j]
        return out

    return run


@word(np.trace, method="trace")
def trace(a: Any) -> Any:
    if not is_carried(a) or a.ndim != 2:
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        s = np.zeros(1, kind)[0]
        for k in range(min(a.shape)):
            s = s + a[k, k]
        return s

    return run


@word(np.cumsum, method="cumsum")
def cumulated(a: Any) -> Any:
    """np.cumsum of carriers, over all entries."""
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        out = np.zeros(a.size, kind)
        s = np.zeros(1, kind)[0]
        n = 0
        for k in np.ndindex(a.shape):
            s = s + a[k]
            out[n] = s
            n += 1
        return out

    return run


@word(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """np.where of carriers."""
    if not any(is_carried(k) or isinstance(k, Carrier) for k in (x, y)):
        return None
    kind = _dtype(x, y).dtype_word
    if not (_is_array(condition) or is_carried(x) or is_carried(y)):
        return lambda condition, x=None, y=None: x if condition else y
    if not _is_array(condition):
        raise Unknown("np.where of a condition that is no array")

    def run(condition: Any, x: Any = None, y: Any = None) -> Any:
        c, a, b = condition, np.asarray(_lifted(x, kind)), np.asarray(_lifted(y, kind))
        shape = np.broadcast_shapes(c.shape, a.shape, b.shape)
        c, a, b = np.broadcast_to(c, shape), np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        out = np.zeros(shape, kind)
        for k in np.ndindex(shape):
            out[k] = a[k] if c[k] else b[k]
        return out

    return run


def _lifted(x: Any, kind: Any) -> Any:
    """A number as an array of one element."""
    raise NotImplementedError("for compiled code")


@overload(_lifted)
def _lifted_one(x: Any, kind: Any) -> Any:
    if _is_array(x):
        return lambda x, kind: x

    def one(x: Any, kind: Any) -> Any:
        out = np.zeros(1, kind)
        out[0] = x
        return out

    return one


def _eliminated(a: Any, b: Any) -> Any:
    """Gaussian elimination with pivots by value, in place; the sign of the exchanges."""
    n = a.shape[0]
    sign = 1.0
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(value(a[i, k])) > abs(value(a[best, k])):
                best = i
        if value(a[best, k]) == 0.0:
            return 0.0
        if best != k:
            sign = -sign
            for j in range(n):
                a[k, j], a[best, j] = a[best, j], a[k, j]
            for j in range(b.shape[1]):
                b[k, j], b[best, j] = b[best, j], b[k, j]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = a[i, j] - factor * a[k, j]
            for j in range(b.shape[1]):
                b[i, j] = b[i, j] - factor * b[k, j]
    return sign


def _solved(a: Any, b: Any, kind: Any) -> Any:
    """The solution of a x = b, of matrices."""
    n = a.shape[0]
    u, x = np.zeros(a.shape, kind), np.zeros(b.shape, kind)
    u[:] = a
    x[:] = b
    if eliminated(u, x) == 0.0:
        raise ValueError("Matrix is singular to machine precision.")
    for j in range(b.shape[1]):
        for i in range(n - 1, -1, -1):
            s = x[i, j]
            for k in range(i + 1, n):
                s = s - u[i, k] * x[k, j]
            x[i, j] = s / u[i, i]
    return x


eliminated = register_jitable(_eliminated)
solved = register_jitable(_solved)


@word(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    if not _products(a, b):
        return None
    kind = _dtype(a, b).dtype_word
    if b.ndim == 1:
        return lambda a, b: solved(a, b.copy().reshape((b.shape[0], 1)), kind)[:, 0].copy()
    return lambda a, b: solved(a, b, kind)


@word(np.linalg.inv)
def inverse(a: Any) -> Any:
    kind = a.dtype.dtype_word if is_carried(a) else None
    return (lambda a: solved(a, np.eye(a.shape[0]), kind)) if kind else None


@word(np.linalg.det)
def determinant(a: Any) -> Any:
    """np.linalg.det of carriers; of a singular matrix its first derivative only."""
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word
    first_order = not isinstance(a.dtype.inner, Carrier) if isinstance(a.dtype, Active) else True

    def run(a: Any) -> Any:
        """By elimination; where the value is 0, by cofactors."""
        u = np.zeros(a.shape, kind)
        u[:] = a
        d = np.zeros(1, kind)[0] + eliminated(u, np.zeros((a.shape[0], 0), kind))
        if value(d) == 0.0:
            if not first_order:
                raise NotDifferentiable(SINGULAR)
            values = value(a)
            slopes = cofactors(values, 0.0)
            for place in np.ndindex(a.shape):
                d = d + slopes[place] * (a[place] - values[place])
            return d
        for k in range(a.shape[0]):
            d = d * u[k, k]
        return d

    return run


@word(np.linalg.cholesky)
def cholesky(a: Any) -> Any:
    """np.linalg.cholesky of carriers."""
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        """Column by column, from the lower triangle."""
        n = a.shape[0]
        out = np.zeros((n, n), kind)
        for i in range(n):
            for j in range(i + 1):
                s = a[i, j]  # NumPy, too, reads the lower triangle only
                for k in range(j):
                    s = s - out[i, k] * out[j, k]
                if i == j:
                    if value(s) <= 0.0:
                        raise ValueError("Matrix is not positive definite.")
                    out[i, i] = np.sqrt(s)
                else:
                    out[i, j] = s / out[j, j]
        return out

    return run


@word(np.linalg.norm)
def norm(a: Any) -> Any:
    if not is_carried(a):
        return None
    kind = a.dtype.dtype_word

    def run(a: Any) -> Any:
        s = np.zeros(1, kind)[0]
        for k in np.ndindex(a.shape):
            s = s + a[k] * a[k]
        return np.sqrt(s) if value(s) != 0.0 else np.zeros(1, kind)[0]

    return run


@word(np.copyto)
def copied_to(to: Any, given: Any) -> Any:
    def run(to: Any, given: Any) -> Any:
        to[:] = given

    return run if is_carried(to) else None


def _changed_type(a: Any, dtype: Any) -> Any:
    """astype of carriers: to float64 a copy, to whole numbers their values."""
    if not is_carried(a):
        return lambda a, dtype: a.astype(dtype)
    wanted = parse_dtype(dtype)
    if wanted == types.float64 or isinstance(wanted, Carrier):
        return lambda a, dtype: a.copy()
    if isinstance(wanted, types.Integer | types.Boolean):

        def whole(a: Any, dtype: Any) -> Any:
            out = np.empty(a.shape, dtype)
            for k in np.ndindex(a.shape):
                out[k] = value(a[k])
            return out

        return whole
    raise Unknown(f"astype({wanted})")


def changed_type(a: Any, dtype: Any) -> Any:
    raise NotImplementedError("for compiled code")


overload(changed_type)(_changed_type)
METHODS["astype"] = changed_type


def filled(a: Any, x: Any) -> Any:
    raise NotImplementedError("for compiled code")


@overload(filled)
def _filled(a: Any, x: Any) -> Any:
    def fill(a: Any, x: Any) -> Any:
        a[:] = x

    return fill if is_carried(a) else lambda a, x: a.fill(x)


METHODS["fill"] = filled

# ---------------------------------------------------------------------------------------------- allocation


def _is_float64(dtype: Any) -> bool:
    if absent(dtype):
        return True
    if isinstance(dtype, types.Omitted):
        return dtype.value is float or dtype.value is np.float64
    found = parse_dtype(dtype)
    if found == types.float32:
        raise Unknown("an array of float32 (this engine computes in float64)")
    if isinstance(found, types.Complex):
        raise Unknown("an array of complex numbers")
    return found == types.float64


@functools.cache
def allocations(kind: Carrier) -> dict[int, tuple[Any, Any]]:
    """Functions that make arrays of floats, and those that make arrays of carriers: every array may come to hold them."""
    word = kind.dtype_word
    made: dict[int, tuple[Any, Any]] = {}

    def stands_for(*functions: Any) -> Callable[[Any], Any]:
        """A decorator that registers the overload of a function that allocates."""

        def add(choose: Any) -> Any:
            """Register `choose`, with as many arguments as a call gives."""
            function = functions[0]
            names = list(inspect.signature(choose).parameters)
            listed = ", ".join(
                p.name if p.default is p.empty else f"{p.name}=None"
                for p in inspect.signature(choose).parameters.values()
            )
            space: dict[str, Any] = {"function": function, "choose": choose, "plain_calls": {}}
            exec(f"def {function.__name__}({listed}):\n    raise NotImplementedError", space)
            least = sum(p.default is p.empty for p in inspect.signature(choose).parameters.values())
            for n in range(least, len(names) + 1):
                space["plain_calls"][n] = eval(
                    f"lambda {listed}: function({', '.join(names[:n])})", space
                )

            def typed_(*kinds: Any) -> Any:
                found = choose(*kinds)
                if found is not None:
                    return found
                n = len(kinds)
                while n > least and absent(kinds[n - 1]):
                    n -= 1
                return space["plain_calls"][n]

            space["typed_"] = typed_
            exec(f"def typed({listed}):\n    return typed_({', '.join(names)})", space)
            standing = space[function.__name__]
            overload(standing, prefer_literal=True)(space["typed"])
            for f in functions:
                made[id(f)] = (f, standing)
            return choose

        return add

    @stands_for(np.zeros)
    def _zeros(shape: Any, dtype: Any = None) -> Any:
        return (lambda shape, dtype=None: np.zeros(shape, word)) if _is_float64(dtype) else None

    @stands_for(np.empty)
    def _empty(shape: Any, dtype: Any = None) -> Any:
        return (lambda shape, dtype=None: np.zeros(shape, word)) if _is_float64(dtype) else None

    @stands_for(np.ones)
    def _ones(shape: Any, dtype: Any = None) -> Any:
        if not _is_float64(dtype):
            return None

        def run(shape: Any, dtype: Any = None) -> Any:
            out = np.zeros(shape, word)
            out[:] = 1.0
            return out

        return run

    @stands_for(np.full)
    def _full(shape: Any, fill: Any, dtype: Any = None) -> Any:
        floats = isinstance(fill, types.Float | Carrier)
        if not (floats if absent(dtype) else _is_float64(dtype)):
            return None

        def run(shape: Any, fill: Any, dtype: Any = None) -> Any:
            out = np.zeros(shape, word)
            out[:] = fill
            return out

        return run

    def _likes(a: Any, dtype: Any) -> bool:
        if not _is_array(a):
            raise Unknown("an array like something that is no array")
        return (
            (isinstance(a.dtype, Carrier) or _is_float64_type(a.dtype))
            if absent(dtype)
            else _is_float64(dtype)
        )

    def _is_float64_type(k: Any) -> bool:
        if k == types.float32:
            raise Unknown("an array of float32 (this engine computes in float64)")
        return bool(k == types.float64)

    @stands_for(np.zeros_like)
    def _zeros_like(a: Any, dtype: Any = None) -> Any:
        return (lambda a, dtype=None: np.zeros(a.shape, word)) if _likes(a, dtype) else None

    @stands_for(np.empty_like)
    def _empty_like(a: Any, dtype: Any = None) -> Any:
        return (lambda a, dtype=None: np.zeros(a.shape, word)) if _likes(a, dtype) else None

    @stands_for(np.ones_like)
    def _ones_like(a: Any, dtype: Any = None) -> Any:
        if not _likes(a, dtype):
            return None

        def run(a: Any, dtype: Any = None) -> Any:
            out = np.zeros(a.shape, word)
            out[:] = 1.0
            return out

        return run

    @stands_for(np.full_like)
    def _full_like(a: Any, fill: Any, dtype: Any = None) -> Any:
        if not _likes(a, dtype):
            return None

        def run(a: Any, fill: Any, dtype: Any = None) -> Any:
            out = np.zeros(a.shape, word)
            out[:] = fill
            return out

        return run

    @stands_for(np.eye, np.identity)
    def _eye(n: Any, m: Any = None) -> Any:
        """np.eye of carriers."""
        if absent(m):

            def square(n: Any, m: Any = None) -> Any:
                out = np.zeros((n, n), word)
                for k in range(n):
                    out[k, k] = 1.0
                return out

            return square

        def run(n: Any, m: Any = None) -> Any:
            out = np.zeros((n, m), word)
            for k in range(min(n, m)):
                out[k, k] = 1.0
            return out

        return run

    @stands_for(np.linspace)
    def _linspace(start: Any, stop: Any, num: Any = None) -> Any:
        fifty = absent(num)

        def run(start: Any, stop: Any, num: Any = None) -> Any:
            n = 50 if fifty else num
            out = np.zeros(n, word)
            for k in range(n):
                out[k] = start + (stop - start) * (k / max(n - 1, 1))
            if n > 1:
                out[n - 1] = stop
            return out

        return run

    @stands_for(np.arange)
    def _arange(start: Any, stop: Any = None, step: Any = None) -> Any:
        """np.arange of carriers; its length is decided by values."""
        kinds = [k for k in (start, stop, step) if not absent(k)]
        if not any(isinstance(k, Carrier | types.Float) for k in kinds):
            return None
        alone, whole = absent(stop), absent(step)

        def run(start: Any, stop: Any = None, step: Any = None) -> Any:
            first = 0 * start if alone else start
            last = start if alone else stop
            by = 1.0 if whole else step
            out = np.zeros(np.arange(value(first), value(last), value(by)).size, word)
            for k in range(out.size):
                out[k] = first + k * by
            return out

        return run

    @stands_for(np.array)
    def _array(a: Any, dtype: Any = None) -> Any:
        """np.array of carriers: of an array, of lists, of tuples."""
        if _is_array(a):
            if isinstance(a.dtype, Carrier) and not (absent(dtype) or _is_float64(dtype)):
                raise Unknown("np.array of another dtype")
            return (lambda a, dtype=None: a.copy()) if isinstance(a.dtype, Carrier) else None
        floats = isinstance(_innermost(a), types.Float | Carrier)
        if not (floats if absent(dtype) else _is_float64(dtype)):
            return None
        rows = isinstance(_element(a), types.BaseTuple | types.Sequence)
        if isinstance(a, types.BaseTuple) or isinstance(_element(a), types.BaseTuple):
            return _array_of_tuples(a, word, rows)
        if rows:

            def nested(a: Any, dtype: Any = None) -> Any:
                out = np.zeros((len(a), len(a[0])), word)
                for i in range(len(a)):
                    for j in range(len(a[i])):
                        out[i, j] = a[i][j]
                return out

            return nested

        def flat(a: Any, dtype: Any = None) -> Any:
            out = np.zeros(len(a), word)
            for i in range(len(a)):
                out[i] = a[i]
            return out

        return flat

    @stands_for(np.ascontiguousarray)
    def _contiguous(a: Any) -> Any:
        return None if _is_array(a) else lambda a: array_word(a)

    @stands_for(np.asarray)
    def _asarray(a: Any) -> Any:
        if _is_array(a):
            return None
        if not isinstance(a, Carrier):
            return lambda a: array_word(a)

        def single(a: Any) -> Any:
            out = np.zeros((), word)
            out[()] = a
            return out

        return single

    array_word = made[id(np.array)][1]
    return made


def _element(a: Any) -> Any:
    if isinstance(a, types.BaseTuple):
        return a.types[0] if len(a.types) else None
    return getattr(a, "dtype", None)


def _innermost(a: Any) -> Any:
    if isinstance(a, types.BaseTuple):
        found = [_innermost(k) for k in a.types]
        return next(
            (k for k in found if isinstance(k, types.Float | Carrier)), found[0] if found else None
        )
    if isinstance(a, types.Sequence):
        return _innermost(a.dtype)
    return a


def _array_of_tuples(a: Any, word: Any, rows: bool) -> Any:
    """Text of an array's making from tuples, whose elements may differ in type."""
    if not isinstance(a, types.BaseTuple):
        raise Unknown("np.array of a list of tuples")
    n = len(a.types)
    lines = ["def run(a, dtype=None):"]
    if rows:
        m = len(a.types[0]) if isinstance(a.types[0], types.BaseTuple) else None
        if m is None:
            raise Unknown("np.array of a tuple of lists")
        lines.append(f"    out = np.zeros(({n}, {m}), word)")
        lines += [f"    out[{i}, {j}] = a[{i}][{j}]" for i in range(n) for j in range(m)]
    else:
        lines.append(f"    out = np.zeros({n}, word)")
        lines += [f"    out[{i}] = a[{i}]" for i in range(n)]
    lines.append("    return out")
    space: dict[str, Any] = {"np": np, "word": word}
    exec("\n".join(lines), space)
    return space["run"]
