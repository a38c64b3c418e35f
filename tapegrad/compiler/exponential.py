"""The exponential of small matrices as a routine (writer.py), and its tangents.

Scaling and squaring with the Padé approximant of order 13 (Higham 2005, "The scaling and squaring method for the matrix exponential
revisited"); a tangent is that of each step (Al-Mohy and Higham 2009, "Computing the Fréchet derivative of the matrix exponential",
algorithm 6.4). The approximant is v - u below v + u, with u = a w and even polynomials v and w of a. LU factors and solutions are those
of routines.py.

Invariant: a matrix whose norm is no number, or infinite, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import F8
from .text import literal
from .writer import Writer

MOST = 32
"""Rows of the largest matrix for which this takes less time than SciPy's way."""

LARGEST_NORM, LARGEST_WITH_TANGENT = 5.371920351148152, 4.74
"""Norms up to which the approximant, and its tangent, are exact to rounding."""

PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Coefficients of the numerator, which are the denominator's but for the signs of the odd ones."""

_MOST_SQUARED = 1000
"""Squarings whose power of two is a number."""

_OF_A = "a a2 a4 a6 w1 z1 w u v other".split()
_OF_TANGENT = "e m2 m4 m6 of_w of_u of_v result".split()


def scratch(n: int, tangent: bool = False) -> int:
    """Numbers in the memory that a call needs: matrices and LU factors."""
    return len(_OF_A + _OF_TANGENT * tangent) * n * n + n * (n + 1)


class _Steps:
    """Writes the steps of one routine, on matrices in memory that have names."""

    def __init__(self, w: Writer, names: Sequence[str]) -> None:
        self.w = w
        self.size = w.let("mul i64 %n, %n")
        places = [w.entry("%s", str(k), self.size) for k in range(len(names) + 1)]
        self.at = dict(zip([*names, "factors"], places, strict=True)) | {"x": "%x"}

    def scaled(self, largest: float, *pairs: tuple[str, str]) -> str:
        """Copies of arguments, times the power of two that makes the norm of %a at most the largest; its exponent."""
        w = self.w
        norm = self.norm()
        w.unless(w.let(f"fcmp olt {w.kind} {norm}, {_number(np.inf)}"))
        ratio = w.of("fdiv", norm, _number(largest))
        bits = w.let(f"bitcast {w.kind} {ratio} to i64")
        exponent = w.less(w.let(f"lshr i64 {bits}, 52"), "1022")
        large = w.let(f"fcmp ogt {w.kind} {ratio}, 1.0")
        squarings = w.let(f"select i1 {large}, i64 {exponent}, i64 0")
        w.unless(w.let(f"icmp slt i64 {squarings}, {_MOST_SQUARED}"))
        power = w.let(f"shl i64 {w.less('1023', squarings)}, 52")
        scale = w.let(f"bitcast i64 {power} to {w.kind}")
        for source, to in pairs:
            with w.loop("0", self.size) as i:
                x = w.of("fmul", scale, w.load(w.entry(source, i, "1")))
                w.store(x, w.entry(self.at[to], i, "1"))
        return squarings

    def norm(self) -> str:
        """The largest sum of the sizes in a column of %a; NaN if one is."""
        w = self.w
        total, largest = (w.let(f"alloca {w.kind}") for _ in range(2))
        w.store("0.0", largest)
        with w.loop("0", "%n") as k:
            w.store("0.0", total)
            with w.loop("0", "%n") as i:
                size = w.absolute(w.load(w.entry("%a", i, "%n", k)))
                w.store(w.of("fadd", w.load(total), size), total)
            x, y = w.load(total), w.load(largest)
            larger = w.let(f"fcmp ugt {w.kind} {x}, {y}")  # or one is none
            w.store(w.let(f"select i1 {larger}, {w.kind} {x}, {w.kind} {y}"), largest)
        return w.load(largest)

    def product(self, to: str, x: str, y: str, more: bool = False) -> None:
        """to = x y, or to += x y."""
        w = self.w
        with w.loop("0", "%n") as i:
            row = w.entry(self.at[to], i, "%n")
            with w.loop("0", "0" if more else "%n") as k:
                w.store("0.0", w.entry(row, k, "1"))
            with w.loop("0", "%n") as k:
                factor = w.load(w.entry(self.at[x], i, "%n", k))
                w.each("fadd", row, factor, w.entry(self.at[y], k, "%n"), "0", "%n")

    def combined(self, to: str, *terms: tuple[float, str], one: float = 0.0) -> None:
        """to = a combination of matrices, and of the identity."""
        w = self.w
        with w.loop("0", self.size) as i:
            total = _number(-0.0)
            for factor, x in terms:
                term = w.of("fmul", _number(factor), w.load(w.entry(self.at[x], i, "1")))
                total = w.of("fadd", total, term)
            w.store(total, w.entry(self.at[to], i, "1"))
        with w.loop("0", "%n" if one else "0") as i:
            at = w.entry(self.at[to], i, "%n", i)
            w.store(w.of("fadd", w.load(at), _number(one)), at)

    def even(
        self, to: str, k: int, powers: Sequence[str], *more: tuple[float, str], one: float = 0.0
    ) -> None:
        """to = three terms of a polynomial, from the k-th coefficient down, and others."""
        terms = zip((PADE[k], PADE[k - 2], PADE[k - 4]), powers, strict=True)
        self.combined(to, *more, *terms, one=one)

    def approximant(self) -> None:
        """a's powers, u and v, and what they are made of."""
        self.product("a2", "a", "a")
        self.product("a4", "a2", "a2")
        self.product("a6", "a2", "a4")
        self.even("w1", 13, _POWERS)
        self.product("other", "a6", "w1")
        self.even("w", 7, _POWERS, (1.0, "other"), one=PADE[1])
        self.product("u", "a", "w")
        self.even("z1", 12, _POWERS)
        self.product("other", "a6", "z1")
        self.even("v", 6, _POWERS, (1.0, "other"), one=PADE[0])

    def factored(self) -> None:
        """LU factors of v - u."""
        self.combined("other", (1.0, "v"), (-1.0, "u"))
        self.w.done("factors", f"ptr {self.at['other']}, ptr {self.at['factors']}, i64 %n")

    def solved(self, right: str, to: str) -> None:
        """to = (v - u)⁻¹ right."""
        given = ", ".join(f"ptr {self.at[x]}" for x in ("factors", right, to))
        self.w.done("solution", f"{given}, i64 %n, i64 %n")

    def copied(self, source: str, to: str) -> None:
        self.w.copied(self.at[source], self.at[to], self.size)


_POWERS, _TANGENTS = ("a6", "a4", "a2"), ("m6", "m4", "m2")


def _number(x: float) -> str:
    return literal(x, F8)


def exponential(w: Writer) -> None:
    """%x = exp(%a), with memory at %s."""
    on = _Steps(w, _OF_A)
    squarings = on.scaled(LARGEST_NORM, ("%a", "a"))
    on.approximant()
    on.factored()
    on.combined("other", (1.0, "v"), (1.0, "u"))
    on.solved("other", "x")
    with w.loop("0", squarings):
        on.product("other", "x", "x")
        on.copied("other", "x")


def tangent(w: Writer) -> None:
    """%x = the tangent of exp(%a) along %b, with memory at %s."""
    on = _Steps(w, _OF_A + _OF_TANGENT)
    squarings = on.scaled(LARGEST_WITH_TANGENT, ("%a", "a"), ("%b", "e"))
    on.approximant()
    for to, (x, of_x), (y, of_y) in (
        ("m2", ("a", "e"), ("a", "e")),
        ("m4", ("a2", "m2"), ("a2", "m2")),
        ("m6", ("a4", "m4"), ("a2", "m2")),
    ):
        on.product(to, x, of_y)
        on.product(to, of_x, y, more=True)
    on.even("other", 13, _TANGENTS)
    on.even("of_w", 7, _TANGENTS)
    on.product("of_w", "a6", "other", more=True)
    on.product("of_w", "m6", "w1", more=True)
    on.product("of_u", "a", "of_w")
    on.product("of_u", "e", "w", more=True)
    on.even("other", 12, _TANGENTS)
    on.even("of_v", 6, _TANGENTS)
    on.product("of_v", "a6", "other", more=True)
    on.product("of_v", "m6", "z1", more=True)
    on.factored()
    on.combined("other", (1.0, "v"), (1.0, "u"))
    on.solved("other", "result")
    # Of the quotient: what the numerator moves by, less what the denominator does, times the result.
    on.combined("other", (1.0, "of_u"), (-1.0, "of_v"))
    on.combined("u", (1.0, "of_u"), (1.0, "of_v"))
    on.product("u", "other", "result", more=True)
    on.solved("u", "x")
    with w.loop("0", squarings):
        on.product("other", "result", "x")
        on.product("other", "x", "result", more=True)
        on.copied("other", "x")
        on.product("other", "result", "result")
        on.copied("other", "result")


__all__ = ["MOST", "exponential", "scratch", "tangent"]
