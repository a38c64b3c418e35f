"""Calls: matrices that LAPACK factors and systems that it solves, as parts of a program with derivatives of their own.

A call is a loop of one iteration with a mark, `Loop.call`. Its body is an ordinary program that touches what the routine touches: it adds
up all that the routine reads in one number, and writes that number to every element of the result. So `order`, `residuals` and the passes
need no case for calls. Two open such a loop: the derivative, which asks the rules here, and the writer, which writes the call.

    lu            F, the factors of a matrix A
    solve         S whose rows solve A s = r, for the rows r of R, from F; solve_transposed: of the transposed matrix
    solve_finite  the same as solve, for R of finite numbers alone
    determinant   (det A, its sign, log |det A|) from F, where A is far from singular; log_determinant: of any A, for sign and logarithm
    cholesky      L, lower, with L L^T = A
    demand        a copy of one number, which must be 0
    lower         S whose rows solve L s = r; lower_transposed: L^T s = r

`decompositions` has eigenvalues, singular values, orthogonal factors and least squares, and `ROUTINES`, which are all of them.

F has a row more than A: LAPACK's row exchanges, as whole numbers in the same bytes, which nothing but these routines reads. The cotangent
and the tangent *of F* are those of A through F, so that each rule is of its own operands alone.

Rules: M. B. Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic differentiation" (2008); of
Cholesky's factor: I. Murray, "Differentiation of the Cholesky decomposition", arXiv 1602.07527.

Invariant: a call writes every element of its result, a temporary of its own; it has one result, so that a program has the whole call or
none of it. A routine answers false where LAPACK finds no solution: then the program does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .affine import ONE, ZERO, Affine
from .expressions import Expr, const, load, node, number
from .form import Access, Buffer, Loop, Names, Range, Statement, Store, over


@dataclass(frozen=True, slots=True)
class Region:
    """Elements of a buffer over axes: `access` has the axes' variables in its index."""

    access: Access
    axes: tuple[Range, ...]

    @property
    def extents(self) -> tuple[Affine, ...]:
        return tuple(r.hi for r in self.axes)

    @property
    def dtype(self) -> str:
        return self.access.buffer.dtype

    def at(self, *index: Affine) -> Access:
        return self.access.replaced({r.var: i for r, i in zip(self.axes, index, strict=True)})

    def __getitem__(self, index: Affine | tuple[Affine, ...]) -> Expr:
        """The value of an element."""
        return load(self.at(*index) if isinstance(index, tuple) else self.at(index))

    def of(self, to: Callable[[Access], Access]) -> Region:
        """The same elements of another buffer."""
        return Region(to(self.access), self.axes)

    def rows(self, start: Affine, count: Affine) -> Region:
        """Some of its rows."""
        first, *others = self.axes
        at = self.access.replaced({first.var: start + first.at})
        return Region(at, (Range(first.var, ZERO, count), *others))


def region(b: Buffer, names: Names) -> Region:
    """All of a buffer."""
    axes = over(b.extents, names)
    return Region(Access(b, tuple(r.at for r in axes)), axes)


def call(name: str, operands: Sequence[Region], result: Region, names: Names) -> Loop:
    """The call of a routine."""
    read = Access(Buffer(names("read"), (), result.dtype))
    body: list[Any] = [Statement((), [Store(read, const(0.0, result.dtype))])]
    for x in operands:
        axes = over(x.extents, names)
        body.append(Statement(axes, [Store(read, load(x.at(*(r.at for r in axes))), "+=")]))
    axes = over(result.extents, names)
    body.append(Statement(axes, [Store(result.at(*(r.at for r in axes)), load(read))]))
    return Loop(Range(names("call"), ZERO, ONE), body, call=name)


def regions(loop: Loop) -> tuple[list[Region], Region]:
    """What a call reads, and its result."""
    found: list[Region] = []
    for s in loop.body[1:]:
        axes: tuple[Range, ...] = ()
        while isinstance(s, Loop):
            axes = (*axes, s.range)
            (s,) = s.body
        if isinstance(s, Statement):
            axes = s.axes
            (s,) = s.stores
        found.append(Region(s.target if s.mode == "=" else s.value.access, axes))
    return found[:-1], found[-1]


class Maker:
    """Appends the statements of a rule."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.body: list[Any] = []

    def new(self, stem: str, extents: Sequence[Affine], dtype: str) -> Region:
        return region(Buffer(self.names(stem), tuple(extents), dtype), self.names)

    def each(self, extents: Sequence[Affine], make: Callable[..., Store]) -> None:
        """A store for each point of these extents."""
        axes = over(extents, self.names)
        self.body.append(Statement(axes, [make(*(r.at for r in axes))]))

    def put(self, to: Region, make: Callable[..., Expr]) -> None:
        """Write the elements of a region."""
        self.each(to.extents, lambda *at: Store(to.at(*at), make(*at)))

    def add(self, to: Region, make: Callable[..., Expr], *over: Affine) -> None:
        """Add these terms to the elements of a region, or their sums over further indices."""
        rank = len(to.axes)
        self.each((*to.extents, *over), lambda *at: Store(to.at(*at[:rank]), make(*at), "+="))

    def filled(self, extents: Sequence[Affine], dtype: str, make: Callable[..., Expr]) -> Region:
        """A new region with these elements."""
        made = self.new("q", extents, dtype)
        self.put(made, make)
        return made

    def summed(
        self, extents: Sequence[Affine], over: Affine, dtype: str, make: Callable[..., Expr]
    ) -> Region:
        """A new region with sums of these terms over the last index."""
        made = self.filled(extents, dtype, lambda *_: const(0.0, dtype))
        self.add(made, make, over)
        return made

    def call(self, name: str, operands: Sequence[Region], extents: Sequence[Affine]) -> Region:
        result = self.new("solved", extents, operands[0].dtype)
        self.body.append(call(name, operands, result, self.names))
        return result


Bar = Callable[[Region], Region | None]
"""The cotangent of an operand or result; None of one that has none."""
Dot = Callable[[Region], Region | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """How a routine is differentiated. `back` adds to the cotangents of the operands, `along` writes the tangent of the result."""

    back: Callable[[Maker, Sequence[Region], Region, Bar], None]
    along: Callable[[Maker, Sequence[Region], Region, Dot, Region], None]
    reads: tuple[bool, bool] = (True, True)
    """Whether `back` reads the first operand, and the result."""
    others: bool = False
    """Whether it reads the other operands."""

    def read(self, operands: Sequence[Region], result: Region) -> list[Region]:
        """What the reverse sweep needs of the forward one."""
        first, last = self.reads
        needed = [first, *(self.others for _ in operands[1:]), last]
        return [x for x, it in zip((*operands, result), needed, strict=True) if it]


def of_one(
    back: Callable[[Maker, Region, Region, Region, Region], None],
    along: Callable[[Maker, Region, Region, Region, Region], None],
    reads: tuple[bool, bool] = (True, True),
) -> Rule:
    """The rule of a routine x(a) of one operand, of which neither part is asked where a cotangent or tangent is missing.

    `back(m, a, x, g, to)` adds to `to`, the cotangent of a, what g, that of x, gives. `along(m, a, x, da, out)` adds to `out`, the tangent
    of x, which is zero at first, what da, that of a, gives.
    """

    def rear(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
        (a,) = operands
        g, to = bar(x), bar(a)
        if g is not None and to is not None:
            back(m, a, x, g, to)

    def fore(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
        (a,) = operands
        da = dot(a)
        m.put(out, lambda *_: zero(x))
        if da is not None:
            along(m, a, x, da, out)

    return Rule(rear, fore, reads)


def multiply(a: Expr, b: Expr) -> Expr:
    return node("multiply", a, b)


def subtract(a: Expr, b: Expr) -> Expr:
    return node("subtract", a, b)


def choice(a: Affine, word: str, b: Affine, yes: Expr, no: Expr) -> Expr:
    """One of two numbers by how two indices compare."""
    return node("where", node(word, number(a), number(b)), yes, no)


def zero(x: Region) -> Expr:
    return const(0.0, x.dtype)


# ------------------------------------------------------------------------------------------------ LU factors


def _copied_back(m: Maker, a: Region, x: Region, g: Region, to: Region) -> None:
    m.add(to, lambda *at: g[at])


def _copied_along(m: Maker, a: Region, x: Region, da: Region, out: Region) -> None:
    """The tangent of a copy, which has rows of zeros behind those that the operand has not."""
    m.put(out.rows(ZERO, a.extents[0]), lambda *at: da[at])


COPY = of_one(_copied_back, _copied_along, (False, False))
"""The rule of what moves as its operand does."""


def _solving(name: str, turned: bool, lower: bool) -> Rule:
    """The rule of a system M s = r for each row, with M a matrix, or its lower triangle, turned or not."""
    other = name.removesuffix("_transposed") if turned else f"{name}_transposed"

    def known(m: Region, i: Affine, k: Affine, value: Expr) -> Expr:
        """What is nowhere but in the lower triangle."""
        return choice(k, "less_equal", i, value, zero(m)) if lower else value

    def back(m: Maker, operands: Sequence[Region], s: Region, bar: Bar) -> None:
        """T, the solutions for the cotangent of S with the other matrix, goes to R, and minus T^T S to the matrix, or its transpose."""
        f, r = operands
        mine, of_f, of_r = bar(s), bar(f), bar(r)
        if mine is None:
            return
        t = m.call(other, [f, mine], s.extents)
        if of_r is not None:
            m.add(of_r, lambda *at: t[at])
        if of_f is not None:
            rows, n = s.extents
            left, right = (s, t) if turned else (t, s)

            def less(i: Affine, j: Affine, k: Affine) -> Store:
                value = node("negative", multiply(left[j, i], right[j, k]))
                return Store(of_f.at(i, k), known(s, i, k, value), "+=")

            m.each((n, rows, n), less)

    def along(m: Maker, operands: Sequence[Region], s: Region, dot: Dot, out: Region) -> None:
        """Solutions for the tangent of R less what the tangent of the matrix makes of S."""
        f, r = operands
        of_f, of_r = dot(f), dot(r)
        q = m.filled(s.extents, s.dtype, lambda *at: zero(s) if of_r is None else of_r[at])
        if of_f is not None:

            def less(j: Affine, i: Affine, k: Affine) -> Expr:
                at = (k, i) if turned else (i, k)
                return known(s, *at, node("negative", multiply(of_f[at], s[j, k])))

            m.add(q, less, s.extents[1])
        m.body.append(call(name, [f, q], out, m.names))

    return Rule(back, along)


# ------------------------------------------------------------------------------------------------ determinants

DET, SIGN, LOG = range(3)
"""Places in the result of "determinant" and "log_determinant"."""


def _scaled_inverse(m: Maker, f: Region, scale: Expr) -> Region:
    """The columns of the inverse, as rows, times a number."""
    n = f.extents[-1]
    e = m.filled((n, n), f.dtype, lambda i, k: choice(i, "equal", k, scale, zero(f)))
    return m.call("solve", [f, e], (n, n))


def _measuring(place: int) -> Rule:
    """The rule of one place of the result: the logarithm moves with the trace of A^-1 dA, the determinant with that times itself, the sign
    with nothing. That of the logarithm reads no determinant, which may overflow."""

    def scaled(x: Expr, d: Region) -> Expr:
        return multiply(x, d[ZERO + DET]) if place == DET else x

    def back(m: Maker, f: Region, d: Region, g: Region, to: Region) -> None:
        t = _scaled_inverse(m, f, scaled(g[ZERO + place], d))
        m.add(to.rows(ZERO, t.extents[0]), lambda *at: t[at])

    def along(m: Maker, f: Region, d: Region, df: Region, out: Region) -> None:
        t = _scaled_inverse(m, f, const(1.0, f.dtype))
        n = t.extents[0]
        trace = m.new("trace", (), f.dtype)
        m.put(trace, lambda: zero(f))
        m.add(trace, lambda *at: multiply(t[at], df[at]), n, n)
        m.each((), lambda: Store(out.at(ZERO + place), scaled(trace[()], d)))

    return of_one(back, along, (True, place == DET))


# ------------------------------------------------------------------------------------------------ Cholesky's factor


def _lower_half(x: Region, i: Affine, k: Affine, value: Expr) -> Expr:
    """The lower triangle with half of the diagonal."""
    half = choice(i, "equal", k, multiply(const(0.5, x.dtype), value), zero(x))
    return choice(k, "less", i, value, half)


def _cholesky_back(m: Maker, a: Region, x: Region, g: Region, to: Region) -> None:
    """L^-T P L^-1, where P is the lower half of L^T times the cotangent of L, folded onto the lower triangle: no other entry is read."""
    both, dtype, n = x.extents, x.dtype, x.extents[0]
    p = m.filled(both, dtype, lambda *_: zero(x))
    m.each((n, n, n), lambda i, j, k: Store(p.at(i, k), multiply(x[j, i], g[j, k]), "+="))
    q = m.filled(both, dtype, lambda j, i: _lower_half(x, i, j, p[i, j]))
    s = m.call("lower_transposed", [x, q], both)
    turned = m.filled(both, dtype, lambda i, j: s[j, i])
    y = m.call("lower_transposed", [x, turned], both)
    m.add(to, lambda i, k: _lower_half(x, i, k, node("add", y[i, k], y[k, i])))


def mirrored(a: Region) -> Callable[[Affine, Affine], Expr]:
    """The elements of the symmetric matrix of a lower triangle."""
    return lambda i, k: choice(k, "less_equal", i, a[i, k], a[k, i])


def _cholesky_along(m: Maker, a: Region, x: Region, da: Region, out: Region) -> None:
    """L times the lower half of L^-1 dA L^-T, where dA is the symmetric matrix of its lower triangle."""
    both = x.extents
    w = m.call("lower", [x, m.filled(both, x.dtype, mirrored(da))], both)
    turned = m.filled(both, x.dtype, lambda i, j: w[j, i])
    v = m.call("lower", [x, turned], both)

    def term(i: Affine, k: Affine, j: Affine) -> Store:
        return Store(out.at(i, j), multiply(x[i, k], _lower_half(x, k, j, v[k, j])), "+=")

    m.each((both[0], *both), term)


def _nothing(*_: Any) -> None:
    """Of a copy that nobody reads."""


CALLS = {
    "demand": Rule(_nothing, _nothing, (False, False)),
    "lu": COPY,
    "solve": _solving("solve", False, False),
    "solve_transposed": _solving("solve_transposed", True, False),
    "lower": _solving("lower", False, True),
    "lower_transposed": _solving("lower_transposed", True, True),
    "solve_finite": _solving("solve", False, False),
    "determinant": _measuring(DET),
    "log_determinant": _measuring(LOG),
    "cholesky": of_one(_cholesky_back, _cholesky_along, (False, True)),
}
