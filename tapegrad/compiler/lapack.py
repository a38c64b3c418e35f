"""Linear systems as routines (writer.py) of LAPACK and BLAS, whose functions SciPy exports to compiled code, called by address.

Matrices lie by rows here and by columns there, so each is read there as its transpose: x in a x = b as xᵀ in xᵀ aᵀ = bᵀ, which BLAS
solves from the right, in place. Only what is factored or inverted is copied in another order.

Invariant: a routine here takes and gives what its namesake in routines.py does, LU factors in the same form
(ops/linear_systems.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..llvm import named
from .borrowed import known
from .writer import Writer

WAY = "lapack_"
"""What the names of these routines begin with."""

LEAST, LEAST_TRIANGULAR, LEAST_CHOLESKY, LEAST_COTANGENT = 24, 16, 8, 33
"""Rows of the smallest matrix for which LAPACK is faster: in LU factors, triangular systems, Cholesky factors and their cotangents."""

MOST = 512
"""Rows of the largest one: above them the way by Python costs nothing, and threads may share what else there is to do."""

BLOCK = 32
"""Columns of an inverse, or rows of a cotangent, that are made at a time, for which they need memory."""

_SYMBOL = "tapegrad_lapack_"
_GIVEN = {
    "getrf": "iixiii", "getri": "ixiixii", "potrf": "cixii", "trsm": "cccciixxixi", "trsv": "cccixixi",
    "gemm": "cciiixxixixxi",
}  # fmt: skip
"""What each function is given: letters (c), whole numbers (i) and numbers (x)."""


@cache
def works(dtype: Any) -> bool:
    """Whether all of them are there for numbers of a type, in the form that is known here; then the linker knows them, too."""
    if dtype.char not in "fd":
        return False
    found = {dtype.char.replace("f", "s") + name: given for name, given in _GIVEN.items()}
    addresses = {_SYMBOL + name: named.fortran(name, given) for name, given in found.items()}
    if all(addresses.values()):
        known.update(addresses)
    return all(addresses.values())


def faster(name: str, n: int, dtype: Any) -> bool:
    """Whether a routine by its name is one of these, and one that pays, for matrices of n rows."""
    if name == "cholesky":
        least = LEAST_CHOLESKY
    elif name.startswith(("lower", "upper")):
        least = LEAST_TRIANGULAR
    elif name == "cholesky_cotangent":
        least = LEAST_COTANGENT
    elif name in WRITERS or name in BY_FACTORS:
        least = LEAST
    else:
        return False
    return n >= least and works(dtype)


def declared(text: str) -> dict[str, str]:
    """Name -> declaration of the functions that a text calls."""
    return {
        name: f"declare void @{name}({', '.join(['ptr'] * len(given))})"
        for name, given in ((f"{_SYMBOL}{k}{n}", g) for n, g in _GIVEN.items() for k in "sd")
        if f"@{name}(" in text
    }


class _Call:
    """Writes calls: everything is passed by its address."""

    def __init__(self, w: Writer) -> None:
        self.w = w
        self.letters = {x: self.kept("i8", str(ord(x))) for x in "LRUNT"}
        self.one = self.kept(w.kind, "1.0")
        self.step = self.kept("i32", "1")
        self.info = self.kept("i32", "0")
        self.n = self.whole("%n")

    def kept(self, kind: str, value: str) -> str:
        """The address of a value."""
        place = self.w.let(f"alloca {kind}")
        self.w.lines.append(f"  store {kind} {value}, ptr {place}")
        return place

    def whole(self, number: str) -> str:
        """The address of a whole number."""
        place = self.kept("i32", "0")
        self.put(place, number)
        return place

    def put(self, place: str, number: str) -> None:
        """Another whole number at an address."""
        value = self.w.let(f"trunc i64 {number} to i32")
        self.w.lines.append(f"  store i32 {value}, ptr {place}")

    def __call__(self, name: str, letters: str, *given: str) -> None:
        letter = {"double": "d", "float": "s"}[self.w.kind]
        said = [self.letters[x] for x in letters]
        pointers = ", ".join(f"ptr {p}" for p in (*said, *given))
        self.w.lines.append(f"  call void @{_SYMBOL}{letter}{name}({pointers})")

    def succeeds(self) -> None:
        """Return REFUSED if LAPACK found a pivot that is none."""
        info = self.w.let(f"load i32, ptr {self.info}")
        self.w.unless(self.w.let(f"icmp eq i32 {info}, 0"))


def _turned(w: Writer, source: str, to: str) -> None:
    """A square matrix, its rows as columns."""
    with w.loop("0", "%n") as i, w.loop("0", "%n") as k:
        w.store(w.load(w.entry(source, i, "%n", k)), w.entry(to, k, "%n", i))


def _factors(w: Writer) -> None:
    """LU factors of %a in %f."""
    call = _Call(w)
    rows = w.let("alloca i32, i64 %n")
    _turned(w, "%a", "%f")
    call("getrf", "", call.n, call.n, "%f", call.n, rows, call.info)
    call.succeeds()
    with w.loop("0", "%n") as k:
        at = w.let(f"getelementptr i32, ptr {rows}, i64 {k}")
        before = w.let(f"sub i32 {w.let(f'load i32, ptr {at}')}, 1")
        w.store(w.let(f"sitofp i32 {before} to {w.kind}"), w.entry("%f", "%n", "%n", k))


def _inverse(w: Writer) -> None:
    """The inverse of a matrix in %x, by its factors in %f; %s is memory for as much, and for some rows."""
    call = _Call(w)
    rows = w.let("alloca i32, i64 %n")
    w.nonzero_diagonal("%f")
    with w.loop("0", "%n") as k:
        number = w.load(w.entry("%f", "%n", "%n", k))
        after = w.let(f"add i32 {w.let(f'fptosi {w.kind} {number} to i32')}, 1")
        at = w.let(f"getelementptr i32, ptr {rows}, i64 {k}")
        w.lines.append(f"  store i32 {after}, ptr {at}")
    w.copied("%f", "%s", w.let("mul i64 %n, %n"))
    size = call.whole(w.let(f"mul i64 %n, {BLOCK}"))
    work = w.entry("%s", "%n", "%n")
    call("getri", "", call.n, "%s", call.n, rows, work, size, call.info)
    call.succeeds()
    _turned(w, "%s", "%x")


def inverse_scratch(n: int) -> int:
    """Numbers in the memory that an inverse needs."""
    return n * (n + BLOCK)


def _substitution(
    w: Writer, call: _Call, matrix: str, uplo: str, transposed: bool, diag: str
) -> None:
    """%x := the solution of a triangular system in a matrix that lies by columns, of one column or several."""
    several = w.let("icmp ne i64 %m, 1")
    with w.loop("0", w.let(f"select i1 {several}, i64 0, i64 1")):
        letters = uplo + "NT"[transposed] + diag
        call("trsv", letters, call.n, matrix, call.n, "%x", call.step)
    with w.loop("0", w.let(f"select i1 {several}, i64 1, i64 0")):
        letters = "R" + uplo + "TN"[transposed] + diag
        m = call.whole("%m")
        call("trsm", letters, m, call.n, call.one, matrix, call.n, "%x", m)


def _solution(w: Writer) -> None:
    """x from a x = b, by the factors of a in %f."""
    call = _Call(w)
    w.nonzero_diagonal("%f")
    w.copied("%b", "%x", w.let("mul i64 %n, %m"))
    with w.loop("0", "%n") as k:
        w.rows_exchanged(k)
    _substitution(w, call, "%f", "L", False, "U")
    _substitution(w, call, "%f", "U", False, "N")


def _adjoint_solution(w: Writer) -> None:
    """x from aᵀ x = b."""
    call = _Call(w)
    w.nonzero_diagonal("%f")
    w.copied("%b", "%x", w.let("mul i64 %n, %m"))
    _substitution(w, call, "%f", "U", True, "N")
    _substitution(w, call, "%f", "L", True, "U")
    with w.down("%n") as k:
        w.rows_exchanged(k)


def _cholesky(w: Writer) -> None:
    """The lower factor, which lies as LAPACK has an upper one."""
    call = _Call(w)
    w.lower_copied("%a", "%x")
    call("potrf", "U", call.n, "%x", call.n, call.info)
    call.succeeds()


def _cholesky_cotangent(w: Writer) -> None:
    """The cotangent of a matrix in the lower triangle of %x, from its factor %a and that one's cotangent in the lower triangle of %b.

    By blocks, as `_by_blocks` in ops/linear_algebra.py, on transposes; %s is memory for a block.
    """
    call = _Call(w)
    one, minus = call.one, call.kept(w.kind, "-1.0")
    lengths = [call.kept("i32", "0") for _ in range(4)]
    width, left, below, block = lengths
    call.put(block, str(BLOCK))
    w.lower_copied("%b", "%x")
    blocks = w.let(f"udiv i64 {w.sum('%n', str(BLOCK - 1))}, {BLOCK}")
    with w.down(blocks) as k:
        start = w.let(f"mul i64 {k}, {BLOCK}")
        whole = w.sum(start, str(BLOCK))
        inside = w.let(f"icmp slt i64 {whole}, %n")
        stop = w.let(f"select i1 {inside}, i64 {whole}, i64 %n")
        rows = w.less(stop, start)
        for place, length in ((width, rows), (left, start), (below, w.less("%n", stop))):
            call.put(place, length)
        places = [
            [w.entry(x, row, "%n", column) for row in (start, stop) for column in ("0", start)]
            for x in ("%a", "%x")
        ]
        (r, d, b, c), (r_bar, d_bar, b_bar, c_bar) = places
        n = call.n
        call("trsm", "LUNN", width, below, one, d, n, c_bar, n)
        call("gemm", "NT", width, width, below, minus, c, n, c_bar, n, one, d_bar, n)
        w.done("cholesky_block", f"ptr {d}, ptr {d_bar}, i64 %n, i64 {rows}")
        call("gemm", "NN", left, below, width, minus, r, n, c_bar, n, one, b_bar, n)
        call("gemm", "NT", left, width, below, minus, b, n, c_bar, n, one, r_bar, n)
        with w.loop("0", rows) as i, w.loop("0", w.sum(i, "1")) as j:
            x = w.load(w.entry(d_bar, i, "%n", j))
            w.store(x, w.entry("%s", i, str(BLOCK), j))
            w.store(x, w.entry("%s", j, str(BLOCK), i))
        with w.loop("0", rows) as i:
            at = w.entry("%s", i, str(BLOCK), i)
            w.store(w.of("fmul", w.load(at), "2.0"), at)
        call("gemm", "NN", left, width, width, minus, r, n, "%s", block, one, r_bar, n)
    with w.loop("0", "%n") as i, w.loop(w.sum(i, "1"), "%n") as j:
        w.store("0.0", w.entry("%x", i, "%n", j))


def _triangular(upper: bool, adjoint: bool) -> Callable[[Writer], None]:
    """x from a x = b or aᵀ x = b, where one triangle of a is read."""

    def write(w: Writer) -> None:
        call = _Call(w)
        w.nonzero_diagonal("%a")
        w.copied("%b", "%x", w.let("mul i64 %n, %m"))
        _substitution(w, call, "%a", "L" if upper else "U", not adjoint, "N")

    return write


WRITERS: dict[str, Callable[[Writer], None]] = {
    "factors": _factors,
    "inverse": _inverse,
    "solution": _solution,
    "adjoint": _adjoint_solution,
    "cholesky": _cholesky,
    "cholesky_cotangent": _cholesky_cotangent,
    "lower": _triangular(False, False),
    "upper": _triangular(True, False),
    "lower_adjoint": _triangular(False, True),
    "upper_adjoint": _triangular(True, True),
}

BY_FACTORS = (
    "solve",
    "solve_adjoint",
    "inv",
    "determinant",
    "det",
    "log_determinant",
    "slogdet",
    "slogdet_kept",
)
"""Routines of routines.py that call these."""

__all__ = ["BLOCK", "MOST", "WAY", "WRITERS", "declared", "faster", "inverse_scratch", "works"]
