"""Products and triangular systems of sparse matrices as routines (writer.py): loops over the rows of a pattern (ops/sparse.py).

The pattern is part of the program: `indptr` (%p) and `indices` (%i) are constants, and the entries %a stand in the pattern's order. Vectors
are rows of `%m` columns. Numbers are real or complex, of the result's precision or a lower one; arithmetic is that of pairs.py
and of vecmath/complexes.py.

Invariant: sums are taken in SciPy's order, so products are SciPy's bit for bit. Triangular systems divide by the diagonal, where SciPy's
multiply by its inverse: these agree up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..ops.sparse import Pattern, Triangle
from ..vecmath import complexes
from ..vecmath.expression import Value
from .arithmetic import Declared, Here
from .arrays import COMPLEX
from .pairs import Numbers, Pair
from .writer import TYPES, Routine, Writer


class Kinds(NamedTuple):
    """What a text is written for: dtypes of operands and result, the type of indices, and whether vectors have one column."""

    a: np.dtype
    b: np.dtype
    out: np.dtype
    whole: str
    one: bool

    @property
    def name(self) -> str:
        """A part of a function's name."""
        return f"{self.a.char}{self.b.char}{self.out.char}_{self.whole}{'_one' * self.one}"


_WORDS = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}


class _Rows:
    """Writes one routine: numbers as names of values, complex ones as pairs of these."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.complex_ = kinds.out in COMPLEX
        real = COMPLEX.get(kinds.out, kinds.out)
        self.w = Writer(TYPES[real])
        self.on = Numbers(lambda name, x, dtype: self.w.of(_WORDS[name], *x), str, real)
        self.index = kinds.whole
        self.declared = Declared()

    # ------------------------------------------------------------------------------------------------- places

    def whole(self, base: str, place: str) -> str:
        """A whole number from an array of indices."""
        at = self.w.let(f"getelementptr {self.index}, ptr {base}, i64 {place}")
        found = self.w.let(f"load {self.index}, ptr {at}")
        return found if self.index == "i64" else self.w.let(f"zext i32 {found} to i64")

    def ends(self, row: str) -> tuple[str, str]:
        """The first place of a row, and the one behind its last."""
        return self.whole("%p", row), self.whole("%p", self.w.sum(row, "1"))

    def at(self, row: str, column: str = "0") -> str:
        """The place of a number in rows of %m columns."""
        if self.kinds.one:
            return row
        return self.w.sum(self.w.let(f"mul i64 {row}, %m"), column)

    # ------------------------------------------------------------------------------------------------ numbers

    def load(self, base: str, place: str, dtype: np.dtype) -> Any:
        """A number of a dtype, in the result's precision."""
        kind = TYPES[COMPLEX.get(dtype, dtype)]

        def one(place: str) -> str:
            at = self.w.let(f"getelementptr {kind}, ptr {base}, i64 {place}")
            found = self.w.let(f"load {kind}, ptr {at}")
            return found if kind == self.w.kind else self.w.let(f"fpext {kind} {found} to double")

        if dtype not in COMPLEX:
            return one(place)
        re = self.w.let(f"mul i64 {place}, 2")
        return Pair(one(re), one(self.w.sum(re, "1")))

    def store(self, value: Any, place: str) -> None:
        """The result's number there."""
        if not self.complex_:
            self.w.store(value, self.w.entry("%x", place, "1"))
            return
        value = self.complex(value)
        for k in (0, 1):
            self.w.store(value.part(k), self.w.entry("%x", place, "2", str(k)))

    def complex(self, x: Any) -> Pair:
        return x if isinstance(x, Pair) else Pair(x, "0.0")

    def conj(self, x: Any) -> Any:
        return Pair(x.re, self.w.of("fneg", x.im)) if isinstance(x, Pair) else x

    def product(self, x: Any, y: Any) -> Any:
        if isinstance(x, Pair) and isinstance(y, Pair):
            return self.on.product(x, y)
        if isinstance(x, Pair):
            x, y = y, x
        if isinstance(y, Pair):
            return Pair(self.on.multiply(x, y.re), self.on.multiply(x, y.im))
        return self.on.multiply(x, y)

    def both(self, word: str, x: Any, y: Any) -> Any:
        """A sum or difference of numbers of the result's kind."""
        if isinstance(x, Pair) or isinstance(y, Pair):
            x, y = self.complex(x), self.complex(y)
            return Pair(*(self.w.of(word, x.part(k), y.part(k)) for k in (0, 1)))
        return self.w.of(word, x, y)

    def quotient(self, x: Any, y: Any) -> Any:
        if isinstance(y, Pair):
            here = Here(self.w.let, self.declared, {}, 1)
            given = (
                tuple(Value(here, z.part(k), self.w.kind) for k in (0, 1))
                for z in (self.complex(x), y)
            )
            return Pair(*(v.name for v in complexes.FORMULAS[np.divide](*given)))
        if isinstance(x, Pair):
            return Pair(self.on.divide(x.re, y), self.on.divide(x.im, y))
        return self.on.divide(x, y)

    def zero(self) -> Any:
        return Pair("0.0", "0.0") if self.complex_ else "0.0"

    def not_zero(self, x: Any) -> None:
        """Return REFUSED if it is."""
        if isinstance(x, Pair):
            tests = [self.w.let(f"fcmp une {self.w.kind} {x.part(k)}, 0.0") for k in (0, 1)]
            self.w.unless(self.w.let(f"or i1 {tests[0]}, {tests[1]}"))
        else:
            self.w.not_zero(x)

    # ----------------------------------------------------------------------------------------------------- sums

    def variable(self) -> Any:
        """Memory for a number of the result's kind."""
        parts = [self.w.let(f"alloca {self.w.kind}") for _ in range(1 + self.complex_)]
        return Pair(*parts) if self.complex_ else parts[0]

    def put(self, variable: Any, value: Any) -> None:
        """Another value for a variable."""
        if isinstance(variable, Pair):
            value = self.complex(value)
            for k in (0, 1):
                self.w.store(value.part(k), variable.part(k))
        else:
            self.w.store(value, variable)

    def of(self, variable: Any) -> Any:
        """The value of a variable."""
        if isinstance(variable, Pair):
            return Pair(*(self.w.load(variable.part(k)) for k in (0, 1)))
        return self.w.load(variable)

    def columns(self, do: Callable[[str], None]) -> None:
        """What is done for each column of a vector."""
        if self.kinds.one:
            do("0")
        else:
            with self.w.loop("0", "%m") as c:
                do(c)

    def added(self, word: str, to: str, x: Any, y: Any) -> None:
        """A product is added to the result's number there, or taken from it."""
        now = self.load("%x", to, self.kinds.out)
        self.store(self.both(word, now, self.product(x, y)), to)


# -------------------------------------------------------------------------------------------------------- products


def _product(r: _Rows) -> None:
    """A x: a row of the result from the entries of that row."""
    w, k = r.w, r.kinds
    total = r.variable()
    with w.loop("0", "%n") as i:
        if k.one:
            r.put(total, r.zero())
        else:
            r.columns(lambda c: r.store(r.zero(), r.at(i, c)))
        with w.loop(*r.ends(i)) as e:
            a, j = r.load("%a", e, k.a), r.whole("%i", e)
            if k.one:
                r.put(total, r.both("fadd", r.of(total), r.product(a, r.load("%b", j, k.b))))
            else:
                r.columns(lambda c: r.added("fadd", r.at(i, c), a, r.load("%b", r.at(j, c), k.b)))
        if k.one:
            r.store(r.of(total), i)


def _product_of_transpose(r: _Rows) -> None:
    """Aᵀ x: the entries of a row times that row of x, added to the rows of their columns."""
    w, k = r.w, r.kinds
    with w.loop("0", "%size") as i:
        r.store(r.zero(), i)
    with w.loop("0", "%n") as i, w.loop(*r.ends(i)) as e:
        a, j = r.load("%a", e, k.a), r.whole("%i", e)
        r.columns(lambda c: r.added("fadd", r.at(j, c), a, r.load("%b", r.at(i, c), k.b)))


def _sampled(r: _Rows) -> None:
    """Entries of %a %bᵀ on the pattern; of several columns, their sum."""
    w, k = r.w, r.kinds
    total = r.variable()
    with w.loop("0", "%n") as i, w.loop(*r.ends(i)) as e:
        j = r.whole("%i", e)
        if k.one:
            r.store(r.product(r.load("%a", i, k.a), r.load("%b", j, k.b)), e)
        else:
            r.put(total, r.zero())
            with w.loop("0", "%m") as c:
                x, y = r.load("%a", r.at(i, c), k.a), r.load("%b", r.at(j, c), k.b)
                r.put(total, r.both("fadd", r.of(total), r.product(x, y)))
            r.store(r.of(total), e)


# ------------------------------------------------------------------------------------------------------- solutions


def _substitution(lower: bool, adjoint: bool) -> Callable[[_Rows], None]:
    """x from A x = b, or from Aᴴ x = b, row by row: the diagonal is a row's last entry, or of an upper triangle its first."""

    def write(r: _Rows) -> None:
        """Of A each unknown takes off the known ones; of Aᴴ each unknown, once known, is taken off the others."""
        w, k = r.w, r.kinds
        total = r.variable()
        with w.loop("0", "%size") as i:
            r.store(r.load("%b", i, k.b), i)
        with w.loop("0", "%n") if lower != adjoint else w.down("%n") as i:
            first, end = r.ends(i)
            w.unless(w.let(f"icmp slt i64 {first}, {end}"))
            last = w.less(end, "1")
            own = last if lower else first
            w.unless(w.let(f"icmp eq i64 {r.whole('%i', own)}, {i}"))
            pivot = r.load("%a", own, k.a)
            r.not_zero(pivot)
            others = (first, last) if lower else (w.sum(first, "1"), end)

            def divided(c: str) -> None:
                """The unknown of column c, by the pivot."""
                x = r.load("%x", r.at(i, c), k.out)
                r.store(r.quotient(x, r.conj(pivot) if adjoint else pivot), r.at(i, c))

            if adjoint:
                r.columns(divided)
            elif k.one:
                r.put(total, r.load("%x", i, k.out))
            with w.loop(*others) as e:
                a, j = r.load("%a", e, k.a), r.whole("%i", e)
                if adjoint:
                    a = r.conj(a)
                    r.columns(lambda c: r.added("fsub", r.at(j, c), a, r.load("%x", r.at(i, c), k.out)))  # fmt: skip
                elif k.one:
                    x = r.load("%x", j, k.out)
                    r.put(total, r.both("fsub", r.of(total), r.product(a, x)))
                else:
                    r.columns(lambda c: r.added("fsub", r.at(i, c), a, r.load("%x", r.at(j, c), k.out)))  # fmt: skip
            if not adjoint and k.one:
                r.store(r.quotient(r.of(total), pivot), i)
            elif not adjoint:
                r.columns(divided)

    return write


# ----------------------------------------------------------------------------------------------------------- calls

_WRITERS: dict[str, Callable[[_Rows], None]] = {
    "product": _product,
    "product_of_transpose": _product_of_transpose,
    "sampled": _sampled,
    "lower": _substitution(True, False),
    "lower_adjoint": _substitution(True, True),
    "upper": _substitution(False, False),
    "upper_adjoint": _substitution(False, True),
}


@cache
def _text(name: str, kinds: Kinds) -> tuple[str, str]:
    """The name of a function, and its text."""
    rows = _Rows(kinds)
    _WRITERS[name](rows)
    function = f"tg_sparse_{name}_{kinds.name}"
    pointers = [f"ptr noalias readonly %{x}" for x in "abpi"]
    parameters = [*pointers, "ptr noalias %x", *(f"i64 %{x}" for x in ("n", "m", "size"))]
    text = rows.w.function(function, ", ".join(parameters))
    return function, "\n".join([text, *rows.declared])


def _way(node: Any, settings: dict[str, Any]) -> str | None:
    """Which of the texts makes a call; None where none does."""
    if node.name == "sparse_sampled":
        return "sampled"
    if node.name == "sparse_product":
        return "product_of_transpose" if settings.get("transposed") else "product"
    by = settings.get("by")
    if type(by) is not Triangle:
        return None
    return ("lower" if by.lower else "upper") + "_adjoint" * bool(settings.get("adjoint"))


def _sound(pattern: Pattern, way: str) -> bool:
    """Whether all places lie in the matrix, or in the triangle, so that no loop leaves its arrays. SciPy does not look, either."""
    indptr, indices = pattern.indptr, pattern.indices
    rows, columns = pattern.shape
    if len(indptr) != rows + 1 or indptr[0] or indptr[-1] != len(indices):
        return False
    if np.any(np.diff(indptr) < 0) or not len(indices):
        return not len(indices)
    if indices.min() < 0 or indices.max() >= columns:
        return False
    if not way.startswith(("lower", "upper")):
        return True
    sides = (pattern.rows, indices) if way.startswith("lower") else (indices, pattern.rows)
    return rows == columns and bool(np.all(sides[0] >= sides[1]))


def rows(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """A product, a sampled product or a triangular system as a routine."""
    way, pattern, out = _way(node, settings), settings.get("pattern"), node.dtype
    if way is None or type(pattern) is not Pattern or len(operands) != 2:
        return None
    if COMPLEX.get(out, out) not in TYPES or not _sound(pattern, way):
        return None
    given = []
    for x in operands:
        if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
            x = x.astype(COMPLEX.get(out, out))
        dtype = x.dtype
        if COMPLEX.get(dtype, dtype) not in TYPES or np.result_type(dtype, out) != out:
            return None
        given.append(x)
    a, b = given
    vectors = node if way != "sampled" else b
    m = vectors.shape[1] if len(vectors.shape) > 1 else 1
    wide = any(len(x) > 2**31 - 1 for x in (pattern.indices, pattern.indptr))
    index = np.int64 if wide or pattern.indices.dtype.itemsize > 4 else np.int32
    kinds = Kinds(a.dtype, b.dtype, out, {np.int32: "i32", np.int64: "i64"}[index], m == 1)
    name, text = _text(way, kinds)
    reads = [a, b, pattern.indptr.astype(index, copy=False), pattern.indices.astype(index, copy=False)]  # fmt: skip
    numbers = [pattern.shape[0], m, math.prod(node.shape)]
    return Routine(node.name, name, reads, numbers, 0, 2 * pattern.nnz * m, {name: text})


NAMES = ("sparse_product", "sparse_sampled", "sparse_solution")
"""Calls that may be routines."""

__all__ = ["NAMES", "rows"]
