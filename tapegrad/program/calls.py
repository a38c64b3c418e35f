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

    def filled(self, extents: Sequence[Affine], dtype: str, make: Callable[..., Expr]) -> Region:
        """A new region with these elements."""
        made = self.new("q", extents, dtype)
        self.each(extents, lambda *at: Store(made.at(*at), make(*at)))
        return made

    def summed(
        self, extents: Sequence[Affine], over: Affine, dtype: str, make: Callable[..., Expr]
    ) -> Region:
        """A new region with sums of these terms over the last index."""
        made = self.filled(extents, dtype, lambda *_: const(0.0, dtype))
        self.each((*extents, over), lambda *at: Store(made.at(*at[:-1]), make(*at), "+="))
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


def _times(*factors: Expr) -> Expr:
    found = factors[0]
    for x in factors[1:]:
        found = node("multiply", found, x)
    return found


def _choice(a: Affine, word: str, b: Affine, yes: Expr, no: Expr) -> Expr:
    return node("where", node(word, number(a), number(b)), yes, no)


def _zero(x: Region) -> Expr:
    return const(0.0, x.dtype)


# ------------------------------------------------------------------------------------------------ LU factors


def _lu_back(m: Maker, operands: Sequence[Region], f: Region, bar: Bar) -> None:
    (a,) = operands
    mine, theirs = bar(a), bar(f)
    if mine is not None and theirs is not None:
        m.each(a.extents, lambda i, k: Store(mine.at(i, k), load(theirs.at(i, k)), "+="))


def _lu_along(m: Maker, operands: Sequence[Region], f: Region, dot: Dot, out: Region) -> None:
    (a,) = operands
    mine = dot(a)
    m.each(f.extents, lambda i, k: Store(out.at(i, k), _zero(f)))
    if mine is not None:
        m.each(a.extents, lambda i, k: Store(out.at(i, k), load(mine.at(i, k))))


def _solving(name: str, turned: bool, lower: bool) -> Rule:
    """The rule of a system M s = r for each row, with M a matrix, or its lower triangle, turned or not."""
    other = name.removesuffix("_transposed") if turned else f"{name}_transposed"

    def known(m: Region, i: Affine, k: Affine, value: Expr) -> Expr:
        """What is nowhere but in the lower triangle."""
        return _choice(k, "less_equal", i, value, _zero(m)) if lower else value

    def back(m: Maker, operands: Sequence[Region], s: Region, bar: Bar) -> None:
        """T, the solutions for the cotangent of S with the other matrix, goes to R, and minus T^T S to the matrix, or its transpose."""
        f, r = operands
        mine, of_f, of_r = bar(s), bar(f), bar(r)
        if mine is None:
            return
        t = m.call(other, [f, mine], s.extents)
        if of_r is not None:
            m.each(s.extents, lambda j, i: Store(of_r.at(j, i), load(t.at(j, i)), "+="))
        if of_f is not None:
            rows, n = s.extents
            left, right = (s, t) if turned else (t, s)

            def less(i: Affine, j: Affine, k: Affine) -> Store:
                value = node("negative", _times(load(left.at(j, i)), load(right.at(j, k))))
                return Store(of_f.at(i, k), known(s, i, k, value), "+=")

            m.each((n, rows, n), less)

    def along(m: Maker, operands: Sequence[Region], s: Region, dot: Dot, out: Region) -> None:
        """Solutions for the tangent of R less what the tangent of the matrix makes of S."""
        f, r = operands
        of_f, of_r = dot(f), dot(r)
        rows, n = s.extents
        q = m.new("q", s.extents, s.dtype)
        m.each(
            s.extents,
            lambda j, i: Store(q.at(j, i), _zero(s) if of_r is None else load(of_r.at(j, i))),
        )
        if of_f is not None:

            def less(j: Affine, i: Affine, k: Affine) -> Store:
                at = (k, i) if turned else (i, k)
                value = node("negative", _times(load(of_f.at(*at)), load(s.at(j, k))))
                return Store(q.at(j, i), known(s, *at, value), "+=")

            m.each((rows, n, n), less)
        m.body.append(call(name, [f, q], out, m.names))

    return Rule(back, along)


# ------------------------------------------------------------------------------------------------ determinants

DET, SIGN, LOG = range(3)
"""Places in the result of "determinant" and "log_determinant"."""


def _scaled_inverse(m: Maker, f: Region, scale: Expr) -> Region:
    """The columns of the inverse, as rows, times a number."""
    n = f.extents[-1]
    e = m.new("unit", (n, n), f.dtype)
    m.each(
        (n, n),
        lambda i, k: Store(e.at(i, k), _choice(i, "equal", k, scale, _zero(f))),
    )
    return m.call("solve", [f, e], (n, n))


def _measuring(place: int) -> Rule:
    """The rule of one place of the result: the logarithm moves with the trace of A^-1 dA, the determinant with that times itself, the sign
    with nothing. That of the logarithm reads no determinant, which may overflow."""

    def scaled(x: Expr, d: Region) -> Expr:
        return _times(x, load(d.at(ZERO + DET))) if place == DET else x

    def back(m: Maker, operands: Sequence[Region], d: Region, bar: Bar) -> None:
        (f,) = operands
        mine, of_f = bar(d), bar(f)
        if mine is None or of_f is None:
            return
        t = _scaled_inverse(m, f, scaled(load(mine.at(ZERO + place)), d))
        m.each(t.extents, lambda i, k: Store(of_f.at(i, k), load(t.at(i, k)), "+="))

    def along(m: Maker, operands: Sequence[Region], d: Region, dot: Dot, out: Region) -> None:
        (f,) = operands
        of_f = dot(f)
        m.each(d.extents, lambda i: Store(out.at(i), _zero(f)))
        if of_f is None:
            return
        t = _scaled_inverse(m, f, const(1.0, f.dtype))
        trace = m.new("trace", (), f.dtype)
        m.each((), lambda: Store(trace.at(), _zero(f)))
        m.each(
            t.extents,
            lambda i, k: Store(trace.at(), _times(load(t.at(i, k)), load(of_f.at(i, k))), "+="),
        )
        m.each((), lambda: Store(out.at(ZERO + place), scaled(load(trace.at()), d)))

    return Rule(back, along, (True, place == DET))


# ------------------------------------------------------------------------------------------------ Cholesky's factor


def _lower_half(x: Region, i: Affine, k: Affine, value: Expr) -> Expr:
    """The lower triangle with half of the diagonal."""
    half = _choice(i, "equal", k, _times(const(0.5, x.dtype), value), _zero(x))
    return _choice(k, "less", i, value, half)


def _cholesky_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
    """L^-T P L^-1, where P is the lower half of L^T times the cotangent of L, folded onto the lower triangle: no other entry is read."""
    (a,) = operands
    mine, theirs = bar(a), bar(x)
    if mine is None or theirs is None:
        return
    n, _ = x.extents
    both = (n, n)
    p = m.new("p", both, x.dtype)
    m.each(both, lambda i, k: Store(p.at(i, k), _zero(x)))
    m.each(
        (n, n, n),
        lambda i, j, k: Store(p.at(i, k), _times(load(x.at(j, i)), load(theirs.at(j, k))), "+="),
    )
    q = m.new("q", both, x.dtype)
    m.each(both, lambda j, i: Store(q.at(j, i), _lower_half(x, i, j, load(p.at(i, j)))))
    s = m.call("lower_transposed", [x, q], both)
    turned = m.new("q", both, x.dtype)
    m.each(both, lambda i, j: Store(turned.at(i, j), load(s.at(j, i))))
    y = m.call("lower_transposed", [x, turned], both)

    def folded(i: Affine, k: Affine) -> Store:
        total = node("add", load(y.at(i, k)), load(y.at(k, i)))
        return Store(mine.at(i, k), _lower_half(x, i, k, total), "+=")

    m.each(both, folded)


def _cholesky_along(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
    """L times the lower half of L^-1 dA L^-T, where dA is the symmetric matrix of its lower triangle."""
    (a,) = operands
    of_a = dot(a)
    n, _ = x.extents
    both = (n, n)
    m.each(both, lambda i, k: Store(out.at(i, k), _zero(x)))
    if of_a is None:
        return
    q = m.new("q", both, x.dtype)

    def mirrored(i: Affine, k: Affine) -> Store:
        return Store(
            q.at(i, k), _choice(k, "less_equal", i, load(of_a.at(i, k)), load(of_a.at(k, i)))
        )

    m.each(both, mirrored)
    w = m.call("lower", [x, q], both)
    turned = m.new("q", both, x.dtype)
    m.each(both, lambda i, j: Store(turned.at(i, j), load(w.at(j, i))))
    v = m.call("lower", [x, turned], both)
    m.each(
        (n, n, n),
        lambda i, k, j: Store(
            out.at(i, j), _times(load(x.at(i, k)), _lower_half(x, k, j, load(v.at(k, j)))), "+="
        ),
    )


def _nothing(*_: Any) -> None:
    """Of a copy that nobody reads."""


CALLS = {
    "demand": Rule(_nothing, _nothing, (False, False)),
    "lu": Rule(_lu_back, _lu_along, (False, False)),
    "solve": _solving("solve", False, False),
    "solve_transposed": _solving("solve_transposed", True, False),
    "lower": _solving("lower", False, True),
    "lower_transposed": _solving("lower_transposed", True, True),
    "solve_finite": _solving("solve", False, False),
    "determinant": _measuring(DET),
    "log_determinant": _measuring(LOG),
    "cholesky": Rule(_cholesky_back, _cholesky_along, (False, True)),
}
