"""Whole numbers that programs compute: arithmetic, quotients, places on axes, arrays of them.

A whole number is affine where it can be (`affine.Affine`). Any other one is a float in memory, of which every digit is known while it is
smaller than 2**48; a program in which one is not does not hold, and another engine has the call. As an index it is a place (`placing`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from numba.core import types

from ..program.affine import ZERO, Affine, affine, whole
from ..program.arrays import Array, Index, Outside, of_number
from ..program.expressions import B1, F4, F8, Expr, const, node, nodes, number
from ..program.form import Range, over
from .arrangements import MAKERS, REDUCTIONS
from .tree import Const, Op, Operand

if TYPE_CHECKING:
    from .formulas import Formulas

PERIOD = 2
"""By what lengths are divided at most with a program for each remainder; by more they are divided as floats."""
CUT_OFF = {
    "int": "trunc", "np.int64": "trunc", "np.intp": "trunc", "math.floor": "floor", "math.ceil": "ceil", "math.trunc": "trunc",
    "round": "rint",
}  # fmt: skip
"""Functions that make whole numbers of floats."""
SHORT = 2.0**48
"""Whole numbers that a program computes are smaller, or it does not hold: sums of a few are exact as floats."""
LITTLE = 2.0**16
"""By what a number may be counted up in each iteration without being asked."""

OPPOSITE = {
    "less": "greater_equal", "greater_equal": "less", "greater": "less_equal", "less_equal": "greater", "equal": "not_equal",
    "not_equal": "equal",
}  # fmt: skip
OF_WHOLES = frozenset(("add", "subtract", "negative", "multiply", "minimum", "maximum", "absolute"))
ROUNDED = frozenset(("floor", "ceil", "trunc", "rint"))
_OF_WHOLE = {"+": "add", "-": "subtract", "*": "multiply", "neg": "negative"}
_AFFINE = {"add": ast.Add, "subtract": ast.Sub, "negative": ast.Sub, "multiply": ast.Mult}


class Computed(Exception):
    """A branch of which both sides are values has an index in it that the program computes: it is read as one of statements."""


def integral(f: Formulas, rule: str, args: Sequence[Operand]) -> Any:
    """A whole number: affine where it can be, else an expression."""
    word = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}.get(rule)
    if rule == "neg" and not isinstance(f.env.get(str(args[0])), Array):
        return f._whole(args[0]) * -1
    if rule in ("%", "//"):
        found = _affine_quotient(f, rule == "%", *map(f._value, args))
        if found is not None:
            return found
        return quotient(f, rule == "%", *map(f._value, args))
    if rule in ("min", "max") and len(args) == 2:
        found = _extreme(f, rule == "min", *map(f._value, args))
        if found is not None:
            return found
    if rule in REDUCTIONS and len(args) == 1 and f._value(args[0]).dtype != B1:
        value = as_floats(f, f._value(args[0]))
        return short(f, f._over(rule, value, range(len(value.shape)), F8))
    if rule in ("np.sum", "np.count_nonzero") and len(args) == 1:
        return f._counted(args[0])
    if rule in ("np.argmax", "np.argmin") and len(args) == 1:
        vector = f._value(args[0])
        if len(vector.shape) != 1 or vector.dtype not in (F8, F4):
            raise Outside(f"{rule} of what is no vector")
        if f.symbolic:
            raise Computed
        return f.builder.place(vector, rule == "np.argmax")
    if rule in CUT_OFF and len(args) == 1:
        if isinstance(args[0], str) and isinstance(f.env.get(args[0]), Affine):
            return f.env[args[0]]
        value = f._value(args[0])
        if value.shape or value.dtype == B1:
            raise Outside(f"{rule} of what is no number")
        return short(f, f._applied(CUT_OFF[rule], [value], F8))
    if rule == "abs" and (known := _size_of(f, f._value(args[0]))) is not None:
        return known
    if rule in ("min", "max", "abs"):
        given = [f._value(a) for a in args]
        if any(a.shape or not is_whole(f, a.number()) for a in given) or len(given) > 2:
            raise Outside(f"whole numbers by {rule}")
        exactly(f, *(a.number() for a in given))
        return f._applied({"min": "minimum", "max": "maximum", "abs": "absolute"}[rule], given, F8)
    if rule == "**" and isinstance(args[1], Const) and args[1].value == 2:
        word, rule, args = ast.Mult, "*", (args[0], args[0])
    if word is None or len(args) != 2:
        raise Outside(f"whole numbers by {rule}")
    if any(isinstance(x, str) and isinstance(f.env.get(x), Array) for x in args):
        name = {"+": "add", "-": "subtract", "*": "multiply"}[rule]
        given = [f._value(a) for a in args]
        exactly(f, *(a.number() for a in given if not a.shape))
        computed = f._applied(name, given, F8)
        return short(f, computed) if rule == "*" else computed
    a, b = map(f._whole, args)
    if word is ast.Mult and a.terms and b.terms:
        exactly(f, number(a), number(b))
    return product(a, b) if word is ast.Mult else arithmetic(word, a, b)


def array(f: Formulas, op: Op, rule: str) -> Array:
    """An array of whole numbers: of arithmetic on affine ones a formula, else one of floats."""
    args = op.args
    if rule in ("+", "-", "*", "neg", "**"):
        return _arithmetic_of(f, rule, args)
    if op.settings:
        raise Outside(f"{rule} of whole numbers with settings")
    if rule in MAKERS or rule.removesuffix("_like") in MAKERS:
        return f._made(rule, args, f.typed.types[op.out[0]])
    if rule == ".astype":
        value = f._value(args[0])
        if value.dtype == B1:
            return f._as_numbers(value, F8)
        return short(f, f._applied("trunc", [value], F8)).unnamed()
    if rule in ("np.copy", ".copy"):
        return as_floats(f, f._value(args[0])).unnamed()
    given = [f._value(a) for a in args]
    if rule in ("%", "//"):
        return quotient(f, rule == "%", *given)
    if rule == "np.where" and len(given) == 3 and given[0].dtype == B1:
        test, a, b = given
        exactly(f, *(x.number() for x in (a, b) if not x.shape))
        return f.builder.elementwise(
            lambda c, x, y: node("where", c, x, y), test, as_floats(f, a), as_floats(f, b)
        )
    name = f._function(rule, len(args))
    if name in OF_WHOLES and not any(a.dtype == B1 for a in given):
        exactly(f, *(a.number() for a in given if not a.shape))
        found = f._applied(name, given, F8)
        return short(f, found) if name == "multiply" else found
    raise Outside(f"{rule or op.form} gives {f.typed.types[op.out[0]]}, which is no float")


def as_floats(f: Formulas, a: Array) -> Array:
    """Whole numbers in an array as floats."""
    return a if a.dtype == F8 else f._applied("cast", [a], F8)


def _arithmetic_of(f: Formulas, rule: str, args: Sequence[Operand]) -> Array:
    """Arithmetic on arrays of whole numbers, such as `np.arange(n) ** 2`: a formula, which needs no memory.

    A product of two affine numbers is exact in float64 for all sizes of arrays; a product of more may be too large for int64 as well.
    """
    if rule == "**":
        if not (isinstance(args[1], Const) and args[1].value == 2):
            raise Outside("a power of whole numbers other than the second")
        rule, args = "*", (args[0], args[0])
    arrays = list(map(f._value, args))
    found = f._applied(_OF_WHOLE[rule], arrays, F8)
    numbers = [a.at(tuple(affine(f"_{d}") for d in range(len(a.shape)))) for a in arrays]
    exactly(f, *numbers)
    small = [exact(e) is not None for e in numbers]
    if not all(small) and any(e.loads for e in numbers) and all(is_whole(f, x) for x in numbers):
        return short(f, found) if rule == "*" else found
    if not (all(small) or (rule != "*" and all(is_whole(f, x) for x in numbers))):
        raise Outside("a product of several arrays of whole numbers")

    def at(index: Index) -> Expr:
        e = found.at(index)
        known = exact(e)
        # A whole number has no -0.0, which a product with 0.0 may be.
        return node("add", e, const(0.0)) if known is None else number(known)

    return Array(found.shape, at, "i8", None, found.reads)


def exactly(f: Formulas, *given: Expr) -> None:
    """Formulas are computed as floats: whole numbers that the call gives have to be smaller than 2**48, so that every digit is known."""
    every = (e for e in nodes(given) if e.op == "number")
    for name in sorted({x for e in every for x in e.args[0].names()} & f.numbers):
        for claim in (affine(name) * -1 + int(SHORT), affine(name) + int(SHORT)):
            f.builder.claim(claim, f"{name}, in arithmetic of whole numbers,")


def is_whole(f: Formulas, e: Expr) -> bool:
    """Whether a formula is a whole number, as it is made of such."""
    if e.op == "load":
        return e.access.buffer in f.wholes
    if e.op in OF_WHOLES:
        return all(is_whole(f, x) for x in e.args)
    if e.op == "where":
        return all(is_whole(f, x) for x in e.args[1:])
    return e.op in ROUNDED or exact(e) is not None


def _extreme(f: Formulas, least: bool, a: Array, b: Array) -> Affine | None:
    """The smaller or larger of two whole numbers, where it is known which one that is, or a length less a few."""
    x, y = (None if v.shape else exact(v.number()) for v in (a, b))
    if x is None or y is None:
        return None
    for p, q in ((x, y), (y, x)):
        if f.builder.order.proves(q - p, f.builder.path):
            return p if least else q
    builder = f.builder
    for p, q in ((x, y), (y, x)):
        more = q * -1 if least else q
        if p == ZERO and builder.likely(
            more, builder.path
        ):  # lengths for which it is zero are rare
            builder.claim(more, "a length")
            return q
    return None


def _size_of(f: Formulas, value: Array) -> Affine | None:
    """The absolute value of a whole number as an affine one, where its sign is known, or a loop around may be cut for that."""
    x = None if value.shape else exact(value.number())
    if x is None:
        return None
    if f._asks(x):
        test = node("less", number(x), number(ZERO))
        if f._places_only() and f._spared(test):
            return None
        f._cut(test)
    proves, path = f.builder.order.proves, f.builder.path
    return next((y for y in (x, x * -1) if proves(y, path)), None)


def _affine_quotient(f: Formulas, rest: bool, a: Array, b: Array) -> Affine | None:
    """`a // b` or `a % b` of whole numbers as an affine one, else None.

    It is where `a` leaves 0 .. b by less than b, which a loop around may be cut for, or where sizes are divided by a small number.
    """
    x, y = (None if v.shape else exact(v.number()) for v in (a, b))
    if x is None or y is None or not (whole(x) and whole(y)):
        return None
    if not x.terms and not y.terms and y.const:
        return affine(x.const % y.const if rest else x.const // y.const)
    proves, path = f.builder.order.proves, f.builder.path
    if proves(y - 1, path) and proves(x + y, path) and proves(y * 2 - x - 1, path):
        for k in (-1, 0, 1):
            if proves(x - y * k, path) and proves(y * (k + 1) - x - 1, path):
                return x - y * k if rest else affine(k)
        for end in (ZERO, y):
            if f._asks(end - x):
                test = node("less", number(x), number(end))
                if f._places_only() and f._spared(test):
                    return None
                f._cut(test)
        for k in (0, 1, -1):  # lengths for which it is another number of times are rare
            claims = (x - y * k, y * (k + 1) - x - 1)
            if all(f.builder.likely(claim, path) for claim in claims):
                for claim in claims:
                    f.builder.claim(claim, "a remainder")
                return x - y * k if rest else affine(k)
    variables = {r.var for r in path}
    if not y.terms and 1 < y.const <= PERIOD and x.terms and not variables & x.names():
        quotient = f._quotient(x, y.const)
        return x - quotient * y.const if rest else quotient
    return None


def quotient(f: Formulas, rest: bool, a: Array, b: Array) -> Array:
    """`a // b` or `a % b` of whole numbers, as floats: exact up to 2**53."""
    first = a.at(tuple(affine(f"_{d}") for d in range(len(a.shape))))
    exactly(f, first, *([] if b.shape else [b.number()]))
    if b.shape or not (is_whole(f, first) and is_whole(f, b.number())):
        raise Outside("a quotient or remainder of what are no whole numbers")
    if not all(whole(n) for n in map(exact, (first, b.number())) if n is not None):
        raise Outside("a quotient or remainder of whole numbers that are read from arrays")
    divisor = exact(b.number())
    if divisor is not None and not (divisor.terms or divisor.const):
        raise Outside("a quotient of whole numbers by 0")
    if divisor is None:
        _nonzero(f, b)
    elif divisor.terms:  # by 0 Numba gives 0, a float not
        f.builder.claim(divisor - 1, "a divisor")
    quotient = f._applied("floor", [f._applied("divide", [a, b], F8)], F8)
    if not rest:
        return quotient
    return f._applied("subtract", [a, f._applied("multiply", [b, quotient], F8)], F8)


def comparison(e: Expr, holds: bool = True) -> list[Affine] | None:
    """Affine integers that are at least 0 where a comparison of whole numbers holds (or does not); None for any other condition.

    All of them are, but of "not equal" one is.
    """
    if e.op not in OPPOSITE:
        return None
    op = e.op if holds else OPPOSITE[e.op]
    a, b = map(exact, e.args)
    if a is None or b is None:
        return None
    if op in ("greater", "greater_equal"):
        a, b = b, a
    if op in ("less", "greater"):
        return [b - a - 1]
    if op in ("less_equal", "greater_equal"):
        return [b - a]
    return [a - b, b - a] if op == "equal" else [a - b - 1, b - a - 1]


def exact(e: Expr) -> Affine | None:
    if e.op == "number":
        return e.args[0]  # type: ignore[no-any-return]
    if e.op == "const" and float(e.args[0]).is_integer() and abs(e.args[0]) < 2**53:
        return affine(int(e.args[0]))
    word = _AFFINE.get(e.op)
    if word is None:
        return None
    parts = [exact(a) for a in e.args]
    if any(p is None for p in parts):
        return None
    a, b = parts if len(parts) > 1 else (affine(0), *parts)
    assert a is not None and b is not None
    return None if word is ast.Mult and a.terms and b.terms else arithmetic(word, a, b)


def distance(a: Expr, b: Expr) -> Affine | None:
    """b - a, where they are one computed number and affine ones."""

    def parts(e: Expr) -> tuple[Expr, Affine]:
        for k in (0, 1) if e.op in ("add", "subtract") else ():
            known = exact(e.args[1 - k])
            if known is not None and (k == 0 or e.op == "add"):
                other, rest = parts(e.args[k])
                return other, rest + (known if e.op == "add" else known * -1)
        return e, ZERO

    (x, p), (y, q) = parts(a), parts(b)
    return q - p if x is y else None


def arithmetic(word: Any, a: Affine, b: Affine) -> Affine:
    if word is ast.Add:
        return a + b
    if word is ast.Sub:
        return a - b
    if word is ast.Mult and not (a.terms and b.terms):
        return b * a.const if b.terms else a * b.const
    raise Outside("an index that is no affine integer")


def product(a: Any, b: Any) -> Any:
    """The product of whole numbers; where it is not affine, as a float, exact up to 2**53."""
    if isinstance(a, Affine) and isinstance(b, Affine):
        if not (a.terms and b.terms):
            return arithmetic(ast.Mult, a, b)
        if not (whole(a) and whole(b)):
            raise Outside("a product of whole numbers that are read from arrays")
    given = [number(x) if isinstance(x, Affine) else x.number() for x in (a, b)]
    return of_number(node("multiply", *given))


def leaves_where(f: Formulas, test: Expr, axes: tuple[Range, ...] = ()) -> None:
    """The program does not hold where a condition does, under those of the text being read: the right side of "and" has the left one."""
    f._leaves_if(reduce(lambda a, b: node("logical_and", a, b), [*f.asked, test]), axes)


def _nonzero(f: Formulas, value: Array) -> None:
    if f.symbolic:
        raise Computed
    leaves_where(f, node("equal", value.number(), const(0.0)))


def short(f: Formulas, value: Array) -> Array:
    """A whole number, as a float of which every digit is known: others make the program not hold."""
    if f.symbolic:
        raise Computed
    axes = over(value.shape, f.builder.names)
    e = value.at(tuple(r.at for r in axes))
    fits = node("less", node("absolute", e), const(SHORT))
    leaves_where(f, node("logical_not", fits), axes)
    return value


def stays(e: Expr) -> bool:
    """Whether a whole number that is held as a float stays below 2**48 in as many steps as a loop may have.

    It does where it is counted up or down by little, or is a choice, a quotient or a remainder of such; products are asked for themselves.
    """
    if e.op == "subtract" and e.args[1].op == "multiply" and e.args[1].args[1].op == "floor":
        return stays(e.args[0])  # a remainder
    if e.op in ("add", "subtract") and (
        all(a.loads for a in e.args)
        or any(a.op == "const" and abs(a.args[0]) > LITTLE for a in e.args)
    ):
        return False
    if e.op in ("load", "number", "const", "trunc", "floor", "ceil", "rint", "multiply"):
        return True
    given = e.args[1:] if e.op == "where" else e.args
    return all(map(stays, given))


def fitting(f: Formulas, base: Array, value: Array, sign: str, x: Operand) -> Array:
    """What is stored into an array of whole numbers, or of truth values."""
    if base.dtype == B1:
        if sign or value.dtype != B1:
            raise Outside("a store of what is no truth value")
        return value
    kind = f.typed.kind(x)
    if not isinstance(getattr(kind, "dtype", kind), types.Integer | types.Boolean):
        raise Outside("a store of floats into whole numbers")
    if value.dtype == B1:
        value = f._as_numbers(value, F8)
    e = value.at(tuple(affine(f"_{d}") for d in range(len(value.shape))))
    exactly(f, e)
    if sign and (sign not in ("+", "-") or e.loads):
        raise Outside("an update of whole numbers by what the program computes")
    return value if stays(e) else short(f, value)
