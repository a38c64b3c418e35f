"""Routines: calls that are machine code of their own, since they are no array expressions: linear systems, running sums, orders,
searches.

Those written here (writer.py) are for matrices of a few rows; larger ones are LAPACK's (lapack.py), where it can be called, and those of
more rows than that is worth are left to Python. LU factors lie as LAPACK has them (ops/linear_systems.py): by columns, and then what row
each row was exchanged with, as a number.

Invariant: a routine returns 1, or REFUSED where the function itself would raise: a matrix is singular, or not positive definite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from .. import vecmath
from . import decompositions, exponential, fourier, lapack, products, sparse, ufuncs
from .arrays import F8, I8
from .graph import Ref
from .pairs import Unlowered
from .writer import TYPES, Routine, Writer

LARGEST = 40
"""Rows of the largest matrix where LAPACK cannot be called."""

SHORT = 8
"""Rows of matrices whose rows are no longer than vectors."""

MOST_SEARCHED = 4096
"""Entries of which the largest is searched one by one; from there on NumPy's way is faster."""

MOST_COMPARED = 1600
"""Pairs of entries that are compared to sort rows; from there on NumPy's way is faster."""


def _factor(w: Writer, row: str, column: str) -> str:
    """An entry of LU factors."""
    return w.load(w.entry("%f", column, "%n", row))


def _factors(w: Writer) -> None:
    """LU factors of %a in %f, with the largest pivot of each column: row by row, and turned in the end."""
    w.lines.append("  %p = alloca i64")
    w.copied("%a", "%f", w.let("mul i64 %n, %n"))
    with w.loop("0", "%n") as k:
        w.lines.append(f"  store i64 {k}, ptr %p")
        with w.loop(k, "%n") as i:
            best = w.let("load i64, ptr %p")
            here, there = (w.absolute(w.load(w.entry("%f", r, "%n", k))) for r in (i, best))
            larger = w.let(f"fcmp ogt {w.kind} {here}, {there}")
            w.lines.append(
                f"  store i64 {w.let(f'select i1 {larger}, i64 {i}, i64 {best}')}, ptr %p"
            )
        best = w.let("load i64, ptr %p")
        w.store(w.let(f"sitofp i64 {best} to {w.kind}"), w.entry("%f", "%n", "%n", k))
        row = w.entry("%f", k, "%n")
        w.exchanged(row, w.entry("%f", best, "%n"), "%n")
        pivot = w.load(w.entry("%f", k, "%n", k))
        w.not_zero(pivot)
        after = w.sum(k, "1")
        with w.loop(after, "%n") as i:
            at = w.entry("%f", i, "%n", k)
            factor = w.of("fdiv", w.load(at), pivot)
            w.store(factor, at)
            w.taken_off(w.entry("%f", i, "%n"), factor, row, after, "%n")
    with w.loop("0", "%n") as i, w.loop("0", i) as k:
        w.exchanged(w.entry("%f", i, "%n", k), w.entry("%f", k, "%n", i), "1")


def _solution(w: Writer) -> None:
    """x from a x = b: the exchanges, then L, then U."""
    w.copied("%b", "%x", w.let("mul i64 %n, %m"))
    with w.loop("0", "%n") as k:
        w.rows_exchanged(k)
    with w.loop("0", "%n") as i, w.loop("0", i) as k:
        factor = _factor(w, i, k)
        w.taken_off(w.entry("%x", i, "%m"), factor, w.entry("%x", k, "%m"), "0", "%m")
    with w.down("%n") as i:
        row = w.entry("%x", i, "%m")
        with w.loop(w.sum(i, "1"), "%n") as k:
            factor = _factor(w, i, k)
            w.taken_off(row, factor, w.entry("%x", k, "%m"), "0", "%m")
        pivot = _factor(w, i, i)
        w.not_zero(pivot)
        w.divided(row, pivot, "%m")


def _adjoint_solution(w: Writer) -> None:
    """x from aᵀ x = b: Uᵀ, then Lᵀ, then the exchanges, the last one first."""
    w.copied("%b", "%x", w.let("mul i64 %n, %m"))
    with w.loop("0", "%n") as k:
        row = w.entry("%x", k, "%m")
        pivot = _factor(w, k, k)
        w.not_zero(pivot)
        w.divided(row, pivot, "%m")
        with w.loop(w.sum(k, "1"), "%n") as i:
            factor = _factor(w, k, i)
            w.taken_off(w.entry("%x", i, "%m"), factor, row, "0", "%m")
    with w.down("%n") as k, w.loop("0", k) as i:
        factor = _factor(w, k, i)
        w.taken_off(w.entry("%x", i, "%m"), factor, w.entry("%x", k, "%m"), "0", "%m")
    with w.down("%n") as k:
        w.rows_exchanged(k)


def _solve(w: Writer) -> None:
    """x from a x = b, with factors in %f."""
    w.done("factors", "ptr %a, ptr %f, i64 %n")
    w.done("solution", "ptr %f, ptr %b, ptr %x, i64 %n, i64 %m")


def _solve_adjoint(w: Writer) -> None:
    """x from aᵀ x = b."""
    w.done("factors", "ptr %a, ptr %f, i64 %n")
    w.done("adjoint", "ptr %f, ptr %b, ptr %x, i64 %n, i64 %m")


def _inverse(w: Writer) -> None:
    """The solution for unit vectors, with factors in %f."""
    with w.loop("0", "%n") as i, w.loop("0", "%n") as k:
        one = w.let(f"uitofp i1 {w.let(f'icmp eq i64 {i}, {k}')} to {w.kind}")
        w.store(one, w.entry("%x", i, "%n", k))
    w.done("solution", "ptr %f, ptr %x, ptr %x, i64 %n, i64 %n")


def _inv(w: Writer) -> None:
    """The inverse of %a, with factors in %f."""
    w.done("factors", "ptr %a, ptr %f, i64 %n")
    after = w.entry("%f", w.sum("%n", "1"), "%n")
    w.done("inverse", f"ptr %f, ptr %x, ptr {after}, i64 %n")


def _determinant(w: Writer) -> None:
    """The product of the pivots of factors in %f, with a sign for each exchange."""
    w.store("1.0", "%x")
    with w.loop("0", "%n") as k:
        pivot = w.load(w.entry("%f", k, "%n", k))
        same = w.let(f"icmp eq i64 {w.partner(k)}, {k}")
        signed = w.let(f"select i1 {same}, {w.kind} {pivot}, {w.kind} {w.of('fneg', pivot)}")
        w.store(w.of("fmul", w.load("%x"), signed), "%x")


def _log_determinant(w: Writer) -> None:
    """The sign of the determinant and the logarithm of its absolute value, by factors in %f."""
    sign, log = "%x", w.entry("%x", "%apart", "1")
    w.store("1.0", sign)
    w.store("0.0", log)
    with w.loop("0", "%n") as k:
        pivot = w.load(w.entry("%f", k, "%n", k))
        changed = w.let(f"icmp ne i64 {w.partner(k)}, {k}")
        turned = w.let(f"xor i1 {changed}, {w.let(f'fcmp olt {w.kind} {pivot}, 0.0')}")
        one = w.let(f"select i1 {turned}, {w.kind} -1.0, {w.kind} 1.0")
        w.store(w.of("fmul", w.load(sign), one), sign)
        of_pivot = w.let(f"call {w.kind} @{_log(w.kind)[0]}({w.kind} {w.absolute(pivot)})")
        w.store(w.of("fadd", w.load(log), of_pivot), log)


def _det(w: Writer) -> None:
    """The determinant of %a; 0 if it has no pivot."""
    w.store("0.0", "%x")
    w.done("factors", "ptr %a, ptr %f, i64 %n", returned=1)
    w.done("determinant", "ptr %f, ptr %x, i64 %n")


def _slogdet(w: Writer) -> None:
    """What NumPy's gives for %a: 0 and -inf if it has no pivot."""
    w.store("0.0", "%x")
    w.store(w.of("fdiv", "-1.0", "0.0"), w.entry("%x", "%apart", "1"))
    w.done("factors", "ptr %a, ptr %f, i64 %n", returned=1)
    w.done("log_determinant", "ptr %f, ptr %x, i64 %n, i64 %apart")


def _slogdet_kept(w: Writer) -> None:
    """The same, and then the factors, of which nothing is known if there is no pivot."""
    factors = w.entry("%x", "2", "1")
    w.store("0.0", "%x")
    w.store(w.of("fdiv", "-1.0", "0.0"), w.entry("%x", "1", "1"))
    w.done("factors", f"ptr %a, ptr {factors}, i64 %n", returned=1)
    w.done("log_determinant", f"ptr {factors}, ptr %x, i64 %n, i64 1")


def _log(kind: str) -> tuple[str, str]:
    """The logarithm of one number: symbol and text."""
    return vecmath.emit("log", "float64" if kind == "double" else "float32", 1)


def _cholesky(w: Writer) -> None:
    """The lower factor, row by row."""
    with w.loop("0", "%n") as i:
        with w.loop("0", "%n") as k:
            w.store("0.0", w.entry("%x", i, "%n", k))
        with w.loop("0", w.sum(i, "1")) as k:
            at = w.entry("%x", i, "%n", k)
            w.store(w.load(w.entry("%a", i, "%n", k)), at)
            with w.loop("0", k) as t:
                pair = [w.load(w.entry("%x", row, "%n", t)) for row in (i, k)]
                w.store(w.of("fsub", w.load(at), w.of("fmul", *pair)), at)
            left = w.load(at)
            diagonal = w.let(f"icmp eq i64 {i}, {k}")
            other = w.let(f"xor i1 {diagonal}, true")
            w.unless(w.let(f"or i1 {other}, {w.let(f'fcmp ogt {w.kind} {left}, 0.0')}"))
            root = w.let(f"call {w.kind} @llvm.sqrt.{w.suffix}({w.kind} {left})")
            above = w.load(w.entry("%x", k, "%n", k))
            by = w.let(f"select i1 {diagonal}, {w.kind} {root}, {w.kind} {above}")
            w.store(w.of("fdiv", left, by), at)


def _cholesky_cotangent(w: Writer) -> None:
    """The cotangent of a matrix in the lower triangle of %x, from its factor %a and that one's cotangent in the lower triangle of %b."""
    w.lower_copied("%b", "%x")
    w.done("cholesky_block", "ptr %a, ptr %x, i64 %n, i64 %n")


def _cholesky_block(w: Writer) -> None:
    """The same in place, of a block of %m rows in matrices of %n: column by column from the last (Murray 2016, section 4.1)."""
    with w.down("%m") as k:
        after, row = w.sum(k, "1"), w.entry("%a", k, "%n")
        pivot, at = w.load(w.entry(row, k, "1")), w.entry("%x", k, "%n", k)
        with w.loop(after, "%m") as i:
            below = w.entry("%x", i, "%n", k)
            bar = w.of("fdiv", w.load(below), pivot)
            w.store(bar, below)
            term = w.of("fmul", bar, w.load(w.entry("%a", i, "%n", k)))
            w.store(w.of("fsub", w.load(at), term), at)
        own = w.of("fdiv", w.load(at), pivot)
        w.taken_off(w.entry("%x", k, "%n"), own, row, "0", k)
        with w.loop(after, "%m") as i:
            bar = w.load(w.entry("%x", i, "%n", k))
            w.taken_off(w.entry("%x", k, "%n"), bar, w.entry("%a", i, "%n"), "0", k)
            w.taken_off(w.entry("%x", i, "%n"), bar, row, "0", k)
        w.store(w.of("fmul", own, "0.5"), at)


def _triangular(upper: bool, adjoint: bool) -> Callable[[Writer], None]:
    """x from a x = b or aᵀ x = b, where one triangle of a is read."""

    def write(w: Writer) -> None:
        """Solve by substitution, row by row, for all right-hand sides at once."""
        w.copied("%b", "%x", w.let("mul i64 %n, %m"))
        with w.down("%n") if upper != adjoint else w.loop("0", "%n") as i:
            row = w.entry("%x", i, "%m")
            pivot = w.load(w.entry("%a", i, "%n", i))
            w.not_zero(pivot)
            if adjoint:
                w.divided(row, pivot, "%m")
            with w.loop(*((w.sum(i, "1"), "%n") if upper else ("0", i))) as k:
                factor = w.load(w.entry("%a", i, "%n", k))
                other = w.entry("%x", k, "%m")
                x, y = (other, row) if adjoint else (row, other)
                w.taken_off(x, factor, y, "0", "%m")
            if not adjoint:
                w.divided(row, pivot, "%m")

    return write


def _running_sums(w: Writer) -> None:
    """Along the middle one of three axes."""
    with w.loop("0", "%outer") as o, w.loop("0", "%n") as i:
        row = w.sum(w.let(f"mul i64 {o}, %n"), i)
        w.copied(w.entry("%a", row, "%m"), w.entry("%x", row, "%m"), "%m")
        first = w.let(f"icmp eq i64 {i}, 0")
        count = w.let(f"select i1 {first}, i64 0, i64 %m")
        with w.loop("0", count) as j:
            at = w.entry("%x", row, "%m", j)
            last = w.load(w.entry("%x", w.less(row, "1"), "%m", j))
            w.store(w.of("fadd", last, w.load(at)), at)


def _order(places: bool) -> Callable[[Writer], None]:
    """Each row's entries by size, equal ones in their order; or the places where they stand."""

    def write(w: Writer) -> None:
        """The place of each entry in stable order: how many entries stand before it."""
        w.lines.append("  %p = alloca i64")
        with w.loop("0", "%outer") as o, w.loop("0", "%n") as i:
            x = w.load(w.entry("%a", o, "%n", i))
            w.lines.append("  store i64 0, ptr %p")
            with w.loop("0", "%n") as j:
                y = w.load(w.entry("%a", o, "%n", j))
                alike = w.let(f"xor i1 {w.before(x, y)}, true")
                earlier = w.let(f"and i1 {alike}, {w.let(f'icmp slt i64 {j}, {i}')}")
                one = w.let(f"zext i1 {w.let(f'or i1 {w.before(y, x)}, {earlier}')} to i64")
                w.lines.append(f"  store i64 {w.sum(w.let('load i64, ptr %p'), one)}, ptr %p")
            place = w.sum(w.let(f"mul i64 {o}, %n"), w.let("load i64, ptr %p"))
            kind = "i64" if places else w.kind
            at = w.let(f"getelementptr {kind}, ptr %x, i64 {place}")
            w.lines.append(f"  store {kind} {i if places else x}, ptr {at}")

    return write


def _largest(test: str) -> Callable[[Writer], None]:
    """Along the middle one of three axes, where the first entry stands that is larger, or smaller, than all before; or the first NaN."""

    def write(w: Writer) -> None:
        """One entry after the other, with the best of those before and its place."""
        w.lines += ["  %p = alloca i64", f"  %v = alloca {w.kind}"]
        with w.loop("0", "%outer") as o, w.loop("0", "%m") as j:
            first = w.let(f"mul i64 {o}, %n")
            w.lines.append("  store i64 0, ptr %p")
            w.store(w.load(w.entry("%a", first, "%m", j)), "%v")
            with w.loop("1", "%n") as i:
                x, best = w.load(w.entry("%a", w.sum(first, i), "%m", j)), w.load("%v")
                number = w.let(f"fcmp ord {w.kind} {best}, {best}")
                none = w.let(f"and i1 {number}, {w.let(f'fcmp uno {w.kind} {x}, {x}')}")
                better = w.let(f"or i1 {none}, {w.let(f'fcmp {test} {w.kind} {x}, {best}')}")
                w.store(w.let(f"select i1 {better}, {w.kind} {x}, {w.kind} {best}"), "%v")
                place = w.let(f"select i1 {better}, i64 {i}, i64 {w.let('load i64, ptr %p')}")
                w.lines.append(f"  store i64 {place}, ptr %p")
            at = w.let(f"getelementptr i64, ptr %x, i64 {w.sum(w.let(f'mul i64 {o}, %m'), j)}")
            w.lines.append(f"  store i64 {w.let('load i64, ptr %p')}, ptr {at}")

    return write


def _places(right: bool) -> Callable[[Writer], None]:
    """Where numbers belong among sorted ones, before equal ones or behind them: by halves, in as many steps for each, without branches."""

    def write(w: Writer) -> None:
        """np.searchsorted by bisection, with a fixed number of steps; NaN stands behind all numbers."""
        w.lines += ["  %first = alloca i64", "  %left = alloca i64"]

        def behind(y: str, none: str, place: str) -> str:
            """Whether a number belongs behind the one at a place; what is `none` belongs behind all numbers."""
            x = w.load(w.entry("%a", place, "1"))
            if right:
                return w.let(f"or i1 {none}, {w.let(f'fcmp ole {w.kind} {x}, {y}')}")
            number = w.let(f"and i1 {none}, {w.let(f'fcmp ord {w.kind} {x}, {x}')}")
            return w.let(f"or i1 {number}, {w.let(f'fcmp olt {w.kind} {x}, {y}')}")

        with w.loop("0", "%m") as i:
            y = w.load(w.entry("%b", i, "1"))
            none = w.let(f"fcmp uno {w.kind} {y}, {y}")
            w.lines += ["  store i64 0, ptr %first", "  store i64 %n, ptr %left"]
            with w.loop("0", "%steps"):
                first, left = (w.let(f"load i64, ptr %{x}") for x in ("first", "left"))
                half = w.let(f"lshr i64 {left}, 1")
                middle = w.sum(first, half)
                later = behind(y, none, w.less(middle, "1"))
                first = w.let(f"select i1 {later}, i64 {middle}, i64 {first}, !unpredictable !{{}}")
                w.lines.append(f"  store i64 {first}, ptr %first")
                w.lines.append(f"  store i64 {w.less(left, half)}, ptr %left")
            first = w.let("load i64, ptr %first")
            last = w.let(f"zext i1 {behind(y, none, first)} to i64")
            at = w.let(f"getelementptr i64, ptr %x, i64 {i}")
            w.lines.append(f"  store i64 {w.sum(first, last)}, ptr {at}")

    return write


_SYSTEM = "ptr %b, ptr %x, i64 %n, i64 %m"
_ROWS = "ptr %a, ptr %x, i64 %outer, i64 %n, i64 %m"
_WRITERS: dict[str, tuple[Callable[[Writer], None], str]] = {
    "factors": (_factors, "ptr %a, ptr %f, i64 %n"),
    "solution": (_solution, f"ptr %f, {_SYSTEM}"),
    "adjoint": (_adjoint_solution, f"ptr %f, {_SYSTEM}"),
    "solve": (_solve, "ptr %a, ptr %b, ptr %x, ptr %f, i64 %n, i64 %m"),
    "solve_adjoint": (_solve_adjoint, "ptr %a, ptr %b, ptr %x, ptr %f, i64 %n, i64 %m"),
    "inverse": (_inverse, "ptr %f, ptr %x, ptr %s, i64 %n"),
    "inv": (_inv, "ptr %a, ptr %x, ptr %f, i64 %n"),
    "determinant": (_determinant, "ptr %f, ptr %x, i64 %n"),
    "det": (_det, "ptr %a, ptr %x, ptr %f, i64 %n"),
    "log_determinant": (_log_determinant, "ptr %f, ptr %x, i64 %n, i64 %apart"),
    "slogdet": (_slogdet, "ptr %a, ptr %x, ptr %f, i64 %n, i64 %apart"),
    "slogdet_kept": (_slogdet_kept, "ptr %a, ptr %x, i64 %n"),
    "cholesky": (_cholesky, "ptr %a, ptr %x, i64 %n"),
    "cholesky_block": (_cholesky_block, "ptr %a, ptr %x, i64 %n, i64 %m"),
    "cholesky_cotangent": (_cholesky_cotangent, "ptr %a, ptr %b, ptr %x, ptr %s, i64 %n"),
    "lower": (_triangular(False, False), f"ptr %a, {_SYSTEM}"),
    "upper": (_triangular(True, False), f"ptr %a, {_SYSTEM}"),
    "lower_adjoint": (_triangular(False, True), f"ptr %a, {_SYSTEM}"),
    "upper_adjoint": (_triangular(True, True), f"ptr %a, {_SYSTEM}"),
    "expm": (exponential.exponential, "ptr %a, ptr %x, ptr %s, i64 %n"),
    "expm_tangent": (exponential.tangent, "ptr %a, ptr %b, ptr %x, ptr %s, i64 %n"),
    "cumsum": (_running_sums, _ROWS),
    "sort": (_order(False), _ROWS),
    "argsort": (_order(True), _ROWS),
    "argmax": (_largest("ogt"), _ROWS),
    "argmin": (_largest("olt"), _ROWS),
    "places_left": (_places(False), f"ptr %a, {_SYSTEM}, i64 %steps"),
    "places_right": (_places(True), f"ptr %a, {_SYSTEM}, i64 %steps"),
}
_NEEDS = {
    "solve": ("factors", "solution"), "solve_adjoint": ("factors", "adjoint"), "inverse": ("solution",),
    "inv": ("factors", "solution", "inverse"), "det": ("factors", "determinant"), "slogdet": ("factors", "log_determinant"),
    "slogdet_kept": ("factors", "log_determinant"),
    "cholesky_cotangent": ("cholesky_block",), "expm": ("factors", "solution"), "expm_tangent": ("factors", "solution"),
}  # fmt: skip
"""Routines that others call."""


@cache
def _text(name: str, kind: str, way: str) -> str:
    writer = Writer(kind, way)
    write, parameters = _WRITERS[name]
    if way == lapack.WAY:
        write = lapack.WRITERS.get(name, write)
    write(writer)
    text = writer.function(f"tg_{way}{name}_{kind}", parameters)
    if "@llvm.sqrt" in text:
        text += f"\ndeclare {kind} @llvm.sqrt.{writer.suffix}({kind})"
    return text


def _of_factors(n: int) -> int:
    """Numbers that LU factors are."""
    return n * (n + 1)


_MEMORY: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("solve", "solve_adjoint", "det", "slogdet"), _of_factors),
    "inv": lambda n: _of_factors(n) + lapack.inverse_scratch(n),
    "inverse": lapack.inverse_scratch,
    "cholesky_cotangent": lambda n: lapack.BLOCK**2,
    "expm": exponential.scratch,
    "expm_tangent": lambda n: exponential.scratch(n, tangent=True),
}
"""Numbers in the memory that a routine needs beside its result, for matrices of n rows."""


def _own(name: str, dtype: Any, reads: list[Any], numbers: list[int], work: int) -> Routine:
    """A routine that is written here, or there."""
    kind, n = TYPES[dtype], numbers[0]
    way = lapack.WAY if lapack.faster(name, n, dtype) else "" if n < SHORT else "wide_"
    texts: dict[str, str] = {}
    for k in (*_NEEDS.get(name, ()), name):
        text = texts[f"tg_{way}{k}_{kind}"] = _text(k, kind, way)
        texts |= lapack.declared(text)
        if k == "log_determinant":
            texts |= dict([_log(kind)])
    scratch = _MEMORY[name](n) * dtype.itemsize if name in _MEMORY else 0
    return Routine(name, f"tg_{way}{name}_{kind}", reads, numbers, scratch, work, texts)


def _of_each(of: Routine, dtype: Any, reads: list[int], written: int, count: int) -> Routine:
    """A routine for each of a stack: bytes from one operand to the next, and from one result to the next."""
    if count == 1:
        return of
    pointers = [f"%first{i}" for i in range(len(reads) + 1)]
    scratch = ["%under"] if of.scratch else []
    numbers = [f"%number{i}" for i in range(len(of.numbers))]
    steps = [f"%step{i}" for i in range(len(pointers))]
    w = Writer(TYPES[dtype])
    with w.loop("0", "%count") as i:
        here = [
            w.let(f"getelementptr i8, ptr {p}, i64 {w.let(f'mul i64 {i}, {s}')}")
            for p, s in zip(pointers, steps, strict=True)
        ]
        given = [f"ptr {p}" for p in (*here, *scratch)] + [f"i64 {n}" for n in numbers]
        w.call(of.name, ", ".join(given))
    parameters = [f"ptr {p}" for p in (*pointers, *scratch)]
    parameters += [f"i64 {n}" for n in (*numbers, "%count", *steps)]
    name = f"{of.name}_each"
    numbers_of = [*of.numbers, count, *reads, written]
    texts = {**of.texts, name: w.function(name, ", ".join(parameters))}
    return Routine(of.of, name, of.reads, numbers_of, of.scratch, of.work * count, texts)


def routine(node: Any) -> Routine:
    """The routine that makes a call. Raises Unlowered where there is none."""
    find = _FOUND.get(node.name)
    if find is None:
        raise Unlowered
    given = node.args[0] if node.args and type(node.args[0]) is list else node.args
    operands = [node.inputs[x.index] if type(x) is Ref else x for x in given]
    if not operands or (find is not ufuncs.entries and not getattr(operands[0], "shape", ())):
        raise Unlowered
    settings = dict(node.kwargs)
    for by, count, name in ((_of_sorted, 2, "side"), (_of_rows, 1, "axis")):
        if find is by and len(operands) == count + 1:
            settings[name] = operands.pop()
    if find not in (fourier.transform, products.product, sparse.rows, ufuncs.entries):
        dtype = operands[0].dtype
        if dtype not in TYPES or any(not hasattr(x, "dtype") or x.dtype != dtype for x in operands):
            raise Unlowered
    made = find(node, operands, settings)
    if made is None:
        raise Unlowered
    return made


def read_by(node: Any) -> list[Any]:
    """The nodes that a call reads, as a routine."""
    return [products.source(x) for x in node.inputs] if node.name in products.NAMES else node.inputs


def _rows_of(x: Any, more: int = 0) -> int:
    """Rows of a square matrix, or of each of a stack, that is not too large; 0 for what is none. Factors have one `more`."""
    n = x.shape[-1]
    if x.shape[-2:] != (n + more, n) or 0 in x.shape:
        return 0
    return n if n <= (lapack.MOST if lapack.works(x.dtype) else LARGEST) else 0


def _of_matrix(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """What is made of a matrix alone, or of its LU factors (sharing.py)."""
    by_factors = node.name in ("inverse", "determinant", "log_determinant")
    if by_factors:
        operands = operands[-1:]
    a, n = operands[0], _rows_of(operands[0], by_factors)
    if not n or len(operands) != 1 or any(settings.values()) or node.dtype != a.dtype:
        return None
    count, size = math.prod(a.shape[:-2]), math.prod(a.shape[-2:]) * a.dtype.itemsize
    work = n if by_factors and node.name != "inverse" else n**3
    if node.name.endswith(("slogdet", "log_determinant")):
        if count == 1 and node.shape == (2 + (n + 1) * n,):  # ours keeps the factors of large ones
            return _own("slogdet_kept", a.dtype, [a], [n], work)
        if node.shape != (2 * count,):  # all signs come first
            return None
        made = _own(node.name, a.dtype, [a], [n, count], work)
        return _of_each(made, a.dtype, [size], a.dtype.itemsize, count)
    written = math.prod(node.shape) * a.dtype.itemsize // count
    return _of_each(_own(node.name, a.dtype, [a], [n], work), a.dtype, [size], written, count)


def _of_system(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """The routine of a linear system (or one per matrix of a stack): by a factor, triangular, or from scratch; None where there is
    none.
    """
    n = _rows_of(operands[0])
    if not n or len(operands) < 2 or operands[1].shape != node.shape or 0 in node.shape:
        return None
    a, b, *factors = operands
    many = a.shape[:-2]
    if b.shape[:-2] != many or (many and len(b.shape) != len(a.shape)):
        return None  # one matrix for many systems
    numbers = [n, node.shape[-1] if len(node.shape) > 1 else 1]
    work = 2 * n * n * numbers[1]
    adjoint, side = settings.pop("adjoint", False), settings.pop("side", None)
    if any(settings.values()) or node.dtype != a.dtype:
        return None
    if side:
        name, first = side + "_adjoint" * adjoint, a
    elif factors:
        name, first = "adjoint" if adjoint else "solution", factors[0]
    else:
        name, first, work = "solve" + "_adjoint" * adjoint, a, work + n**3
    made = _own(name, a.dtype, [first, b], numbers, work)
    count, size = math.prod(many), a.dtype.itemsize
    steps = [math.prod(x.shape[-2:]) * size for x in (first, b)]
    return _of_each(made, a.dtype, steps, steps[1], count)


def _of_alike(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """What is made of square matrices, each as large as the result."""
    shape, dtype = node.shape, node.dtype
    if settings or not math.prod(shape) or any((x.shape, x.dtype) != (shape, dtype) for x in operands):  # fmt: skip
        return None
    n, exponent = shape[-1], node.name != "cholesky_cotangent"
    if n > (exponential.MOST if exponent else lapack.MOST) or (exponent and dtype != F8):
        return None
    size = n * n * dtype.itemsize
    made = _own(node.name, dtype, list(operands), [n], n**3 * (20 * len(operands) if exponent else 1))  # fmt: skip
    return _of_each(made, dtype, [size] * len(operands), size, math.prod(shape[:-2]))


def _of_rows(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """The routine of sums, orders or places along an axis; None where NumPy's call is as good or the settings have no code."""
    x = operands[0]
    axis = settings.pop("axis", -1 if node.name in ("sort", "argsort") else None)
    kind = settings.pop("kind", None)
    stable = settings.pop("stable", None) or kind in ("stable", "mergesort")
    if node.name == "argsort" and not stable:
        return None  # the order of equal ones is NumPy's, which follows from the processor
    place = node.name in ("argmax", "argmin")
    if place:
        settings.pop("keepdims", None)  # the result's shape
    if any(v is not None for v in settings.values()) or len(operands) != 1:
        return None
    size = math.prod(x.shape)
    shape = x.shape if axis is not None else (size,)
    axis = 0 if axis is None else axis % len(shape)
    numbers = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    if node.name == "cumsum":
        return _own("cumsum", x.dtype, [x], numbers, size) if node.dtype == x.dtype else None
    if place:
        return _own(node.name, x.dtype, [x], numbers, size) if size <= MOST_SEARCHED else None
    if axis != len(shape) - 1 or size * shape[axis] > MOST_COMPARED:
        return None
    return _own(node.name, x.dtype, [x], numbers, size * shape[axis])


def _of_sorted(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    side = settings.pop("side", "left")
    if len(operands) != 2 or any(v is not None for v in settings.values()) or node.dtype != I8:
        return None
    a, b = operands
    if len(a.shape) != 1 or not a.shape[0] or side not in ("left", "right"):
        return None
    (n,), m = a.shape, math.prod(b.shape)
    steps = (n - 1).bit_length()
    return _own(f"places_{side}", a.dtype, [a, b], [n, m, steps], m * steps)


_FACTORED = "factors inverse inv determinant det log_determinant slogdet cholesky".split()
_FOUND: dict[str, Callable[[Any, list[Any], dict[str, Any]], Routine | None]] = {
    **dict.fromkeys(_FACTORED, _of_matrix),
    **dict.fromkeys(("solution", "solve"), _of_system),
    **dict.fromkeys(("expm", "expm_tangent", "cholesky_cotangent"), _of_alike),
    **dict.fromkeys(("cumsum", "sort", "argsort", "argmax", "argmin"), _of_rows),
    "searchsorted": _of_sorted,
    **dict.fromkeys(decompositions.NAMES, decompositions.decomposition),
    **dict.fromkeys(fourier.NAMES, fourier.transform),
    **dict.fromkeys(products.NAMES, products.product),
    **dict.fromkeys(sparse.NAMES, sparse.rows),
    **dict.fromkeys(ufuncs.NAMES, ufuncs.entries),
}


def may_be(node: Any) -> bool:
    """Whether a call may be a routine, as far as its name and type tell."""
    return node.name in _FOUND and (node.name not in ufuncs.NAMES or ufuncs.lacks_expression(node))


__all__ = ["may_be", "read_by", "routine"]
