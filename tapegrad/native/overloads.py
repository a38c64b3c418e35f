"""What operations and functions mean on carriers, as overloads of Numba.

Scalar functions come from the one place where derivatives are declared: `rules.derivative` tells the partials of an operation as text, and
here the text becomes the body of an overload, once for values and again for their derivatives. Functions of whole arrays are
programs of simpler functions, in which no derivative is written; `retyping` compiles them like the user's and gives them to the program
in place of NumPy's, because Numba's own take any array and know nothing of carriers.

Invariant: a function of carriers either has its overload here, or moves and compares elements only, or has no type.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.core.errors import NumbaTypeError
from numba.core.typing.npydecl import parse_dtype
from numba.extending import register_jitable

from ..core.parsing import parsed
from ..core.primitive import Primitive
from ..errors import NotDifferentiable
from . import inference, rules, runtime, special
from .carriers import (
    Active,
    Carrier,
    constant,
    each,
    is_carried,
    is_number,
    joined,
    joined_two,
    overload,
    value,
)
from .runtime import SCOPE, SINGULAR, cofactors, digamma, digamma_rise, kernel, trigamma
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


WORDS: dict[int, tuple[Any, Any]] = {id(cofactors): (cofactors, cofactors)}
"""By id of a function: the function, and what stands for it in a program on carriers. `cofactors` takes plain numbers."""

# ------------------------------------------------------------------------------------------------- scalars


def _partial(pull: str) -> str:
    """The partial derivative in the text of a cotangent."""
    tree = parsed(pull, mode="eval").body
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
        return each(function, x.dtype.dtype_word) if is_carried(x) else None

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
            return each(function, np.float64 if function is np.sign else np.bool_)
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


class Declared(NamedTuple):
    """What a function of NumPy's means on carriers: `choose` takes types by parameter (None: left out) and gives a program."""

    function: Any
    names: tuple[str, ...]
    least: int
    """How many arguments a call gives at least."""
    choose: Callable[..., Any]


class AsIs(NamedTuple):
    """Code in the place of a program: it speaks of carriers by itself, and what it names means what Numba says."""

    code: Any


class Unknown(NumbaTypeError):  # type: ignore[misc]
    """A function on carriers that has no code; what was asked is its text."""


DECLARED: dict[int, Declared] = {}
"""By id of the function. A program is compiled as the user's are, so that np.zeros in it makes carriers; None is NumPy's function."""

METHODS: dict[str, Any] = {}
"""Functions that stand for an array's methods, by the methods' names."""

NUMBERS: Any = object()
"""In a program: the dtype of the carriers that it is compiled for."""


def by_types(*functions: Any, method: str = "") -> Callable[[Any], Any]:
    """Declares what chooses the program of functions, and of a method."""

    def add(choose: Any) -> Any:
        _declare(functions, method, choose, choose)
        return choose

    return add


def carried(*functions: Any, method: str = "") -> Callable[[Any], Any]:
    """Declares the program of functions, and of a method, where an argument is an array of carriers."""

    def add(program: Any) -> Any:
        choose = lambda **kinds: program if any(map(is_carried, kinds.values())) else None  # noqa: E731
        _declare(functions, method, program, choose)
        return program

    return add


def _declare(functions: Sequence[Any], method: str, signature: Any, choose: Any) -> None:
    parameters = inspect.signature(signature).parameters
    least = sum(p.default is p.empty for p in parameters.values())
    for function in functions:
        DECLARED[id(function)] = Declared(function, tuple(parameters), least, choose)
    if method:
        METHODS[method] = functions[0]


_PYTHONS: dict[Any, Any] = {
    float: np.float64,
    int: np.int64,
    bool: np.bool_,
    complex: np.complex128,
}
"""NumPy's names of the dtypes that Python's types name."""


def standing(declared: Declared, compiled: Callable[[Any], Any]) -> Any:
    """What stands for a function in programs: its overload calls the chosen program, as `compiled`, or the function itself."""
    function, names, least, choose = declared
    listed = ", ".join(n if k < least else f"{n}=None" for k, n in enumerate(names))

    def overloaded(kinds: tuple[Any, ...]) -> Any:
        """The nopython function for arguments of these types."""
        given = {n: k for n, k in zip(names, kinds, strict=True) if not absent(k)}
        found = choose(**given)
        if isinstance(found, AsIs):
            return found.code
        called = function if found is None else compiled(getattr(found, "py_func", found))
        words: list[str] = []
        for k, n in enumerate(names):
            if n in given:
                words.append(n if len(words) == k else f"{n}={n}")
        return eval(f"lambda {listed}: called({', '.join(words)})", {"called": called})

    space: dict[str, Any] = {"overloaded": overloaded}
    exec(f"def {function.__name__}({listed}):\n    raise NotImplementedError", space)
    exec(f"def typed({listed}):\n    return overloaded(({', '.join(names)},))", space)
    overload(space[function.__name__], prefer_literal=True)(space["typed"])
    return space[function.__name__]


def absent(kind: Any) -> bool:
    return kind is None or isinstance(kind, types.Omitted | types.NoneType)


def _of_values(function: Any, listed: str) -> None:
    """Declares a function whose result does not vary, or only in steps: it is taken of the values."""
    names = [p.partition("=")[0] for p in listed.split(", ")]

    def choose(**kinds: Any) -> Any:
        if not any(isinstance(k, Carrier) or is_carried(k) for k in kinds.values()):
            return None
        given = [
            n if isinstance(kinds[n], types.Literal) else f"value({n})" for n in names if n in kinds
        ]
        text = f"lambda {listed}: function({', '.join(given)})"
        return AsIs(eval(text, {"function": function, "value": value}))

    least = sum("=" not in p for p in listed.split(", "))
    DECLARED[id(function)] = Declared(function, tuple(names), least, choose)


for _stepping, _listed in (
    (np.searchsorted, "a, v, side=None"), (np.digitize, "x, bins, right=None"), (np.round, "a, decimals=None"),
    (np.around, "a, decimals=None"), (np.isclose, "a, b"), (np.allclose, "a, b"), (np.array_equal, "a, b"), (np.isin, "element, of"),
    (np.argwhere, "a"), (np.isposinf, "x"), (np.isneginf, "x"), (np.imag, "val"), (np.angle, "z"),
    (np.histogram, "a, bins=None, range=None"), (np.count_nonzero, "a"), (np.nanargmax, "a"), (np.nanargmin, "a"),
    (np.argmax, "a, axis=None"), (np.argmin, "a, axis=None"),
):  # fmt: skip
    _of_values(_stepping, _listed)

METHODS |= {"argmax": np.argmax, "argmin": np.argmin}


@by_types(np.argsort, method="argsort")
def _argsort(a: Any, kind: Any = None) -> Any:
    """By the values: Numba would compare the carriers, of which a NaN is no larger than any other."""
    name = getattr(kind, "literal_value", "quicksort")
    text = f"lambda a, kind=None: np.argsort(value(a), kind={name!r})"  # Numba wants it by its name
    return AsIs(eval(text, {"np": np, "value": value}))


@by_types(np.sort)
def _sort(a: Any) -> Any:
    if not is_carried(a):
        return None
    if a.ndim != 1:
        raise Unknown("np.sort of an array of two or more dimensions")
    return lambda a: a[np.argsort(value(a), kind="mergesort")]


@register_jitable
def sort_in_place(a: Any) -> None:
    a.sort()


@carried(sort_in_place, method="sort")
def _sort_in_place(a: Any) -> None:
    a[:] = np.sort(a)


@by_types(np.real)
def _real(val: Any) -> Any:
    return (lambda val: val) if is_carried(val) or isinstance(val, Carrier) else None


@by_types(np.sum, method="sum")
def _sum(a: Any, axis: Any = None) -> Any:
    if not is_carried(a):
        return None
    if axis is None or a.ndim == 1:
        return _sum_of_all
    if a.ndim != 2 or not isinstance(axis, types.Integer):
        raise Unknown("np.sum over axes of an array of three or more dimensions")
    return _sums


def _sum_of_all(a: Any, axis: Any = None) -> Any:
    s = 0.0
    for k in np.ndindex(a.shape):
        s = s + a[k]
    return s


def _sums(a: Any, axis: Any) -> Any:
    n, m = a.shape
    down = axis == 0 or axis == -2
    out = np.zeros(m if down else n)
    for i in range(n):
        for j in range(m):
            k = j if down else i
            out[k] = out[k] + a[i, j]
    return out


@carried(np.mean, method="mean")
def _mean(a: Any) -> Any:
    return np.sum(a) / a.size


@carried(np.prod, method="prod")
def _prod(a: Any) -> Any:
    s = 1.0
    for k in np.ndindex(a.shape):
        s = s * a[k]
    return s


@carried(np.var, method="var")
def _var(a: Any) -> Any:
    return np.sum((a - np.sum(a) / a.size) ** 2) / a.size


@carried(np.std, method="std")
def _std(a: Any) -> Any:
    return root(np.var(a))


@kernel
def root(x: Any) -> Any:
    """The square root; at 0 its slope is 0."""
    return np.sqrt(x) if value(x) != 0.0 else 0.0


@carried(np.max, np.amax, method="max")
def _max(a: Any) -> Any:
    return mean_of_those(a, np.max(value(a)))


@carried(np.min, np.amin, method="min")
def _min(a: Any) -> Any:
    return mean_of_those(a, np.min(value(a)))


@kernel
def mean_of_those(a: Any, best: Any) -> Any:
    """An extreme value as the mean of the entries that reach it: they share the derivative, as in the adjoint engine."""
    s = 0.0
    n = 0
    for k in np.ndindex(a.shape):
        v = value(a[k])
        if v == best or v != v:
            n += 1
            s = s + a[k]
    return s / n


def _products(a: Any, b: Any) -> bool:
    arrays = _is_array(a) and _is_array(b)
    return arrays and (is_carried(a) or is_carried(b)) and all(_is_scalar(k.dtype) for k in (a, b))


@by_types(np.dot, method="dot")
def _dot(a: Any, b: Any) -> Any:
    """np.dot of carriers, for vectors and matrices."""
    if not _products(a, b):
        return None
    if a.ndim > 2 or b.ndim > 2:
        raise Unknown("np.dot of arrays of three or more dimensions")
    return {(1, 1): _inner, (1, 2): _row, (2, 1): _column, (2, 2): _matrices}[a.ndim, b.ndim]


def _inner(a: Any, b: Any) -> Any:
    if a.shape[0] != b.shape[0]:
        raise ValueError("incompatible array sizes for np.dot(a, b)")
    s = 0.0
    for k in range(a.shape[0]):
        s = s + a[k] * b[k]
    return s


def _row(a: Any, b: Any) -> Any:
    return np.dot(np.ascontiguousarray(b.T), a)


def _column(a: Any, b: Any) -> Any:
    if a.shape[1] != b.shape[0]:
        raise ValueError("incompatible array sizes for np.dot(a, b)")
    out = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out[i] = out[i] + a[i, k] * b[k]
    return out


def _matrices(a: Any, b: Any) -> Any:
    if a.shape[1] != b.shape[0]:
        raise ValueError("incompatible array sizes for np.dot(a, b)")
    out = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                out[i, j] = out[i, j] + a[i, k] * b[k, j]
    return out


@carried(np.trace, method="trace")
def _trace(a: Any) -> Any:
    s = 0.0
    for k in range(min(a.shape)):
        s = s + a[k, k]
    return s


@by_types(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """np.where of carriers."""
    if not any(is_carried(k) or isinstance(k, Carrier) for k in (x, y)):
        return None
    if not any(map(_is_array, (condition, x, y))):
        return lambda condition, x, y: x if condition else y
    if not _is_array(condition):
        raise Unknown("np.where of a condition that is no array")
    kind = _dtype(x, y).dtype_word

    def run(condition: Any, x: Any = None, y: Any = None) -> Any:
        c, a, b = condition, np.asarray(_lifted(x, kind)), np.asarray(_lifted(y, kind))
        shape = np.broadcast_shapes(c.shape, a.shape, b.shape)
        c, a, b = np.broadcast_to(c, shape), np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        out = np.zeros(shape, kind)
        for k in np.ndindex(shape):
            out[k] = a[k] if c[k] else b[k]
        return out

    return AsIs(run)


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


@kernel
def eliminated(a: Any, b: Any) -> Any:
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


@by_types(np.linalg.solve)
def _solve(a: Any, b: Any) -> Any:
    return {1: _solve_one, 2: _solve_each}.get(b.ndim) if _products(a, b) else None


def _solve_one(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b.copy().reshape((b.shape[0], 1)))[:, 0].copy()


def _solve_each(a: Any, b: Any) -> Any:
    n = a.shape[0]
    u, x = np.zeros(a.shape), np.zeros(b.shape)
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


@carried(np.linalg.inv)
def _inv(a: Any) -> Any:
    return np.linalg.solve(a, np.eye(a.shape[0]))


@by_types(np.linalg.det)
def _det(a: Any) -> Any:
    """np.linalg.det of carriers; of a singular matrix its first derivative only."""
    if not is_carried(a):
        return None
    first_order = not (isinstance(a.dtype, Active) and isinstance(a.dtype.inner, Carrier))

    def run(a: Any) -> Any:
        """By elimination; where the value is 0, by cofactors."""
        u = np.zeros(a.shape)
        u[:] = a
        d = 0.0 * a[0, 0] + eliminated(u, np.zeros((a.shape[0], 0)))
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


@carried(np.linalg.cholesky)
def _cholesky(a: Any) -> Any:
    """Column by column, from the lower triangle."""
    n = a.shape[0]
    out = np.zeros((n, n))
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


@by_types(np.linalg.norm)
def _norm(x: Any, ord: Any = None) -> Any:
    if not is_carried(x):
        return None
    if ord is None:
        return lambda x: root(np.sum(x * x))
    if x.ndim != 1 or getattr(ord, "literal_value", 1) == 0:
        raise Unknown("np.linalg.norm of a matrix with an order, or of order 0")
    return _norm_of_order


def _norm_of_order(x: Any, ord: Any) -> Any:
    sizes = np.abs(x)
    if ord == np.inf:
        return np.max(sizes)
    if ord == -np.inf:
        return np.min(sizes)
    if ord == 1:
        return np.sum(sizes)
    if ord == 2:
        return root(np.sum(x * x))
    return np.sum(sizes**ord) ** (1.0 / ord)


@carried(np.linalg.slogdet)
def _slogdet(a: Any) -> Any:
    u = np.zeros(a.shape)
    u[:] = a
    sign = eliminated(u, np.zeros((a.shape[0], 0)))
    total = 0.0 * a[0, 0]
    for k in range(a.shape[0]):
        total = total + np.log(np.abs(u[k, k]))
        if value(u[k, k]) < 0.0:
            sign = -sign
    return sign, total


@by_types(np.copyto)
def _copyto(to: Any, given: Any) -> Any:
    def run(to: Any, given: Any) -> None:
        to[:] = given

    return run if is_carried(to) else None


@register_jitable
def changed_type(a: Any, dtype: Any) -> Any:
    return a.astype(dtype)


@by_types(changed_type, method="astype")
def _changed_type(a: Any, dtype: Any) -> Any:
    """astype of carriers: to float64 a copy, to whole numbers their values."""
    if not is_carried(a):
        return None
    wanted = parse_dtype(dtype)
    if wanted == types.float64 or isinstance(wanted, Carrier):
        return lambda a, dtype: a.copy()
    if isinstance(wanted, types.Integer | types.Boolean):
        return lambda a, dtype: value(a).astype(dtype)
    raise Unknown(f"astype({wanted})")


def shown(*things: Any) -> None:
    """`print`, of values."""
    raise NotImplementedError("for compiled code")


@overload(shown)
def _shown(*things: Any) -> Any:
    values = ", ".join(f"value(things[{k}])" for k in range(len(things)))
    return eval(f"lambda *things: print({values})", {"value": value})


WORDS[id(print)] = print, shown  # named by what is done; its calls are Numba's `Print` by then


@register_jitable
def filled(a: Any, x: Any) -> None:
    a.fill(x)


@carried(filled, method="fill")
def _filled(a: Any, x: Any) -> None:
    a[:] = x


# ---------------------------------------------------------------------------------------------- allocation
#
# Every array of floats may come to hold carriers, so all are made as arrays of them.


def _is_float64(dtype: Any) -> bool:
    if dtype is None:
        return True
    if isinstance(dtype, types.Function):  # Python's `float`, which Numba takes in some places
        return bool(dtype.typing_key is float)
    found = parse_dtype(dtype)
    if found == types.float32:
        raise Unknown("an array of float32 (this engine computes in float64)")
    if isinstance(found, types.Complex):
        raise Unknown("an array of complex numbers")
    return found == types.float64


@by_types(np.zeros, np.empty)
def _zeros(shape: Any, dtype: Any = None) -> Any:
    return (lambda shape, dtype=None: np.zeros(shape, NUMBERS)) if _is_float64(dtype) else None


@by_types(np.ones)
def _ones(shape: Any, dtype: Any = None) -> Any:
    return (lambda shape, dtype=None: np.full(shape, 1.0)) if _is_float64(dtype) else None


@by_types(np.full)
def _full(shape: Any, fill: Any, dtype: Any = None) -> Any:
    floats = isinstance(fill, types.Float | Carrier)
    return _full_of if (floats if dtype is None else _is_float64(dtype)) else None


def _full_of(shape: Any, fill: Any, dtype: Any = None) -> Any:
    out = np.zeros(shape)
    out[:] = fill
    return out


def _like(a: Any, dtype: Any) -> bool:
    """Whether an array like `a` may come to hold carriers."""
    if not _is_array(a):
        raise Unknown("an array like something that is no array")
    if dtype is None and a.dtype == types.float32:
        raise Unknown("an array of float32 (this engine computes in float64)")
    return is_carried(a) or a.dtype == types.float64 if dtype is None else _is_float64(dtype)


@by_types(np.zeros_like, np.empty_like)
def _zeros_like(a: Any, dtype: Any = None) -> Any:
    return (lambda a, dtype=None: np.zeros(a.shape)) if _like(a, dtype) else None


@by_types(np.ones_like)
def _ones_like(a: Any, dtype: Any = None) -> Any:
    return (lambda a, dtype=None: np.full(a.shape, 1.0)) if _like(a, dtype) else None


@by_types(np.full_like)
def _full_like(a: Any, fill: Any, dtype: Any = None) -> Any:
    given = lambda a, fill, dtype=None: np.full(a.shape, fill, np.float64)  # noqa: E731
    return given if _like(a, dtype) else None


@by_types(np.eye)
def _eye(N: Any, M: Any = None, k: Any = None, dtype: Any = None) -> Any:
    if not _is_float64(dtype):
        return None
    return _rectangle if M is not None else lambda N, M=None, k=0, dtype=None: np.eye(N, N, k)


def _rectangle(N: Any, M: Any, k: Any = 0, dtype: Any = None) -> Any:
    out = np.zeros((N, M))
    for i in range(max(0, -k), min(N, M - k)):
        out[i, i + k] = 1.0
    return out


@by_types(np.identity)
def _identity(n: Any, dtype: Any = None) -> Any:
    return (lambda n, dtype=None: np.eye(n, n)) if _is_float64(dtype) else None


@by_types(np.linspace)
def _linspace(start: Any, stop: Any, num: Any = None) -> Any:
    return _points


def _points(start: Any, stop: Any, num: Any = 50) -> Any:
    out = np.zeros(num)
    for k in range(num):
        out[k] = start + (stop - start) * (k / max(num - 1, 1))
    if num > 1:
        out[num - 1] = stop
    return out


@by_types(np.arange)
def _arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """np.arange of carriers; its length is decided by values."""
    floats = any(isinstance(k, Carrier | types.Float) for k in (start, stop, step))
    if not (floats if dtype is None else _is_float64(dtype)):
        return None
    return _steps_from if stop is not None else _steps_to


def _steps_to(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    return np.arange(0, start, step, dtype=np.float64)


def _steps_from(start: Any, stop: Any, step: Any = 1, dtype: Any = None) -> Any:
    out = np.zeros(max(math.ceil((value(stop) - value(start)) / value(step)), 0))
    for k in range(out.size):
        out[k] = start + k * step
    return out


@by_types(np.array)
def _array(a: Any, dtype: Any = None) -> Any:
    """np.array of carriers: of an array, of lists, of tuples."""
    if _is_array(a):
        if isinstance(a.dtype, Carrier) and not _is_float64(dtype):
            raise Unknown("np.array of another dtype")
        return (lambda a, dtype=None: a.copy()) if isinstance(a.dtype, Carrier) else None
    floats = isinstance(_innermost(a), types.Float | Carrier)
    if not (floats if dtype is None else _is_float64(dtype)):
        return None
    rows = isinstance(_element(a), types.BaseTuple | types.Sequence)
    if isinstance(a, types.BaseTuple) or isinstance(_element(a), types.BaseTuple):
        return _array_of_tuples(a, rows)
    return _array_of_lists if rows else _array_of_list


def _array_of_lists(a: Any, dtype: Any = None) -> Any:
    out = np.zeros((len(a), len(a[0])))
    for i in range(len(a)):
        for j in range(len(a[i])):
            out[i, j] = a[i][j]
    return out


def _array_of_list(a: Any, dtype: Any = None) -> Any:
    out = np.zeros(len(a))
    for i in range(len(a)):
        out[i] = a[i]
    return out


@by_types(np.ascontiguousarray)
def _contiguous(a: Any) -> Any:
    return None if _is_array(a) else lambda a: np.array(a)


@by_types(np.asarray)
def _asarray(a: Any) -> Any:
    if _is_array(a):
        return None
    return _single if isinstance(a, Carrier) else lambda a: np.array(a)


def _single(a: Any) -> Any:
    out = np.zeros(())
    out[()] = a
    return out


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


def _array_of_tuples(a: Any, rows: bool) -> Any:
    """A program that makes an array of tuples, whose elements may differ in type."""
    if not isinstance(a, types.BaseTuple):
        raise Unknown("np.array of a list of tuples")
    n = len(a.types)
    if rows:
        if not isinstance(a.types[0], types.BaseTuple):
            raise Unknown("np.array of a tuple of lists")
        m = len(a.types[0])
        lines = [f"out = np.zeros(({n}, {m}))"]
        lines += [f"out[{i}, {j}] = a[{i}][{j}]" for i in range(n) for j in range(m)]
    else:
        lines = [f"out = np.zeros({n})", *(f"out[{i}] = a[{i}]" for i in range(n))]
    body = "".join(f"    {line}\n" for line in [*lines, "return out"])
    return inference.load("array", f"def array(a, dtype=None):\n{body}", {"np": np})
