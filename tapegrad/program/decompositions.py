"""Calls of decompositions: symmetric eigenvalues, singular values, orthogonal factors, and what these solve, with their rules.

    eigh          F of a symmetric matrix A, of which the lower triangle is read: eigenvalues in row 0, behind it a row for each vector
    eigenvalues   w, eigenvectors: X with a row for each vector, of F
    svd           F of a matrix A (m, n), with k = min(m, n): the rows of U (m, k), those of V^T (k, n), and one of singular values
    left          U, right: V^T, singular: the singular values, of F
    spaced        a copy of sorted numbers, where no two of them are equal; regular: a copy of numbers, where none is zero
    ranked        a copy of a lower triangle, where no diagonal element is zero beside its row
    qr            the rows of Q (m, n) and behind them those of R^T (n, n), of a matrix A with m >= n
    pinv          the pseudo-inverse (n, m) of A
    lstsq         X whose rows are the least squares solutions for the rows of B, of a matrix A (m, n) of rank n

"Equal" and "zero" are meant but for rounding, as in `ops.linear_algebra`: there is no derivative, so the program does not hold.
The cotangent and the tangent of F are those of A through F, as in `calls`. So rules read no element of F, but of calls on it.

Rules: M. B. Giles (see `calls`); J. Townsend, "Differentiating the singular value decomposition" (2016); S. F. Walter and L. Lehmann,
"Algorithmic differentiation of linear algebra functions with application in optimum experimental design" (2010); G. H. Golub and
V. Pereyra, "The differentiation of pseudo-inverses" (1973).

Invariant: that of `calls`. Sums of three factors are taken two at a time, so that each is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .affine import ZERO, Affine
from .calls import (
    CALLS,
    COPY,
    Bar,
    Dot,
    Maker,
    Region,
    Rule,
    choice,
    mirrored,
    multiply,
    of_one,
    subtract,
    zero,
)
from .expressions import Expr, const, minus, node, plus
from .form import Store


def _add_product(
    m: Maker, to: Region, a: Region, b: Region, turned: str = "", less: bool = False
) -> None:
    """Add A B, with A^T for "a" in `turned`, with B^T for "b", or take it away."""

    def term(i: Affine, k: Affine, j: Affine) -> Expr:
        left = a[j, i] if "a" in turned else a[i, j]
        found = multiply(left, b[k, j] if "b" in turned else b[j, k])
        return minus(found) if less else found

    m.add(to, term, a.extents[0 if "a" in turned else 1])


def _product(m: Maker, a: Region, b: Region, turned: str = "") -> Region:
    """A B as in `_add_product`."""
    shape = a.extents[1 if "a" in turned else 0], b.extents[0 if "b" in turned else 1]
    made = m.filled(shape, a.dtype, lambda *_: zero(a))
    _add_product(m, made, a, b, turned)
    return made


def _apart(x: Region, i: Affine, j: Affine, top: Expr, gap: Expr) -> Expr:
    """A quotient off the diagonal, 0 on it."""
    one = const(1.0, x.dtype)
    above, below = choice(i, "equal", j, zero(x), top), choice(i, "equal", j, one, gap)
    return node("divide", above, below)


# ------------------------------------------------------------------------------------------------ eigenvalues


def _eigh_back(m: Maker, a: Region, f: Region, g: Region, to: Region) -> None:
    """The cotangent of the symmetric matrix as that of its lower triangle."""

    def folded(i: Affine, k: Affine) -> Expr:
        lower = choice(k, "less", i, plus(g[i, k], g[k, i]), zero(f))
        return choice(i, "equal", k, g[i, k], lower)

    m.add(to, folded)


def _eigh_along(m: Maker, a: Region, f: Region, da: Region, out: Region) -> None:
    m.put(_front(out, a.extents[0]), mirrored(da))


def _front(f: Region, count: Affine) -> Region:
    """The rows of a region in which the cotangent, or the tangent, of the matrix lies."""
    return f.rows(ZERO, count)


def _vectors_of(m: Maker, f: Region) -> tuple[Region, Affine]:
    """The eigenvectors, and how many there are."""
    n = f.extents[1]
    return m.call("eigenvectors", [f], (n, n)), n


def _eigenvalues_back(m: Maker, f: Region, w: Region, g: Region, to: Region) -> None:
    """X^T diag(w_bar) X."""
    x, n = _vectors_of(m, f)
    scaled = m.filled((n, n), f.dtype, lambda i, k: multiply(g[i], x[i, k]))
    _add_product(m, _front(to, n), x, scaled, "a")


def _eigenvalues_along(m: Maker, f: Region, w: Region, df: Region, out: Region) -> None:
    """The diagonal of X dA X^T."""
    x, n = _vectors_of(m, f)
    q = _product(m, x, _front(df, n))
    m.add(out, lambda i, k: multiply(q[i, k], x[i, k]), n)


def _over_gaps(m: Maker, f: Region, c: Region) -> Region:
    """C / gaps, where these are w_j - w_i of eigenvalues of which no two are equal."""
    n = f.extents[1]
    w = m.call("spaced", [m.call("eigenvalues", [f], (n,))], (n,))
    return m.filled((n, n), f.dtype, lambda i, j: _apart(f, i, j, c[i, j], subtract(w[j], w[i])))


def _eigenvectors_back(m: Maker, f: Region, x: Region, g: Region, to: Region) -> None:
    """X^T (C / gaps) X, where C = X X_bar^T."""
    n = f.extents[1]
    t = _product(m, _over_gaps(m, f, _product(m, x, g, "b")), x)
    _add_product(m, _front(to, n), x, t, "a")


def _eigenvectors_along(m: Maker, f: Region, x: Region, df: Region, out: Region) -> None:
    """(M / gaps)^T X, where M = X dA X^T."""
    n = f.extents[1]
    inner = _over_gaps(m, f, _product(m, _product(m, x, _front(df, n)), x, "b"))
    _add_product(m, out, inner, x, "a")


# --------------------------------------------------------------------------------------------- singular values


def _factors(m: Maker, f: Region, k: Affine) -> tuple[Region, Region]:
    """U and V^T."""
    rows, n = f.extents[0] - k - 1, f.extents[1]
    return m.call("left", [f], (rows, k)), m.call("right", [f], (k, n))


def _singular_back(m: Maker, f: Region, s: Region, g: Region, to: Region) -> None:
    """U diag(s_bar) V^T."""
    (k,) = s.extents
    u, vt = _factors(m, f, k)
    scaled = m.filled(vt.extents, f.dtype, lambda j, b: multiply(g[j], vt[j, b]))
    _add_product(m, _front(to, u.extents[0]), u, scaled)


def _singular_along(m: Maker, f: Region, s: Region, df: Region, out: Region) -> None:
    """The diagonal of U^T dA V."""
    (k,) = s.extents
    u, vt = _factors(m, f, k)
    rows = u.extents[0]
    q = _product(m, _front(df, rows), vt, "b")
    m.add(out, lambda j, a: multiply(u[a, j], q[a, j]), rows)


class _Vectors:
    """U or V with what their rules share: `high` and `count`, their rows and columns, the factors, and singular values of which no two are
    equal; none is zero where there are `more` rows than columns, where the vectors complete a basis."""

    def __init__(self, m: Maker, f: Region, x: Region, left: bool) -> None:
        """Ask for the values."""
        self.left, self.x = left, x
        self.high, self.count = x.extents if left else x.extents[::-1]
        self.more = self.high != self.count
        self.u, self.vt = _factors(m, f, self.count)
        only = (self.count,)
        self.s = m.call("spaced", [m.call("singular", [f], only)], only)
        if self.more:
            self.s = m.call("regular", [self.s], only)

    def place(self, a: Affine, j: Affine) -> tuple[Affine, Affine]:
        """Where an element of the matrix lies whose columns are these vectors."""
        return (a, j) if self.left else (j, a)

    def projected(self, m: Maker, make: Callable[[Affine, Affine], Expr]) -> Region:
        """X^T B, for the elements of B."""

        def term(i: Affine, j: Affine, a: Affine) -> Expr:
            return multiply(self.x[self.place(a, i)], make(a, j))

        return m.summed((self.count, self.count), self.high, self.x.dtype, term)

    def inner(
        self, m: Maker, p: Region, make: Callable[[Affine, Affine], Expr]
    ) -> Callable[[Affine, Affine, Affine], Expr]:
        """Terms of X C, where C has elements of `make` over the gaps, s_j^2 - s_i^2, less P / S where there are more rows."""
        s = self.s

        def element(i: Affine, j: Affine) -> Expr:
            gap = multiply(subtract(s[j], s[i]), plus(s[j], s[i]))
            value = _apart(p, i, j, make(i, j), gap)
            return subtract(value, node("divide", p[i, j], s[j])) if self.more else value

        c = m.filled(p.extents, p.dtype, element)
        return lambda a, j, i: multiply(self.x[self.place(a, i)], c[i, j])


def _vectors_back(m: Maker, f: Region, x: Region, g: Region, to: Region, left: bool) -> None:
    """Of U, W V^T with W = U (((O - O^T) / gaps) S - O / S) + U_bar / S, where O = U^T U_bar; the terms with / S only where U has more rows
    than columns. Of V the same with the transposed matrix."""
    v = _Vectors(m, f, x, left)
    o = v.projected(m, lambda a, j: g[v.place(a, j)])
    terms = v.inner(m, o, lambda i, j: multiply(subtract(o[i, j], o[j, i]), v.s[j]))
    w = m.summed((v.high, v.count), v.count, f.dtype, terms)
    if v.more:
        m.add(w, lambda a, j: node("divide", g[v.place(a, j)], v.s[j]))
    front = _front(to, v.u.extents[0])
    if left:
        _add_product(m, front, w, v.vt)
    else:
        _add_product(m, front, v.u, w, "b")


def _vectors_along(m: Maker, f: Region, x: Region, df: Region, out: Region, left: bool) -> None:
    """Of U, U ((P S + S P^T) / gaps - P / S) + B / S, where B = dA V and P = U^T B; the terms with / S as in `_vectors_back`."""
    v = _Vectors(m, f, x, left)
    front = _front(df, v.u.extents[0])
    b = _product(m, front, v.vt, "b") if left else _product(m, front, v.u, "a")
    p = v.projected(m, lambda a, j: b[a, j])
    terms = v.inner(m, p, lambda i, j: plus(multiply(p[i, j], v.s[j]), multiply(v.s[i], p[j, i])))

    def term(a: Affine, j: Affine, i: Affine) -> Store:
        return Store(out.at(*v.place(a, j)), terms(a, j, i), "+=")

    m.each((v.high, v.count, v.count), term)
    if v.more:
        m.each(
            (v.high, v.count),
            lambda a, j: Store(out.at(*v.place(a, j)), node("divide", b[a, j], v.s[j]), "+="),
        )


def _of_vectors(left: bool) -> Rule:
    return of_one(partial(_vectors_back, left=left), partial(_vectors_along, left=left))


# ------------------------------------------------------------------------------------------ orthogonal factors


def _parts(m: Maker, x: Region) -> tuple[Region, Region, Affine]:
    """Q, R^T of full rank, and the rows of Q."""
    n = x.extents[1]
    rows = x.extents[0] - n
    return _front(x, rows), m.call("ranked", [x.rows(rows, n)], (n, n)), rows


def _qr_back(m: Maker, a: Region, x: Region, g: Region, to: Region) -> None:
    """(Q_bar - Q D) R^-T, where D is symmetric and has the upper triangle of Q^T Q_bar - R_bar R^T."""
    q, low, rows = _parts(m, x)
    n = x.extents[1]
    of_q, of_r = _front(g, rows), g.rows(rows, n)
    d = _product(m, q, of_q, "a")

    def less(i: Affine, j: Affine, c: Affine) -> Expr:
        return choice(i, "less_equal", c, minus(multiply(of_r[c, i], low[c, j])), zero(x))

    m.add(d, less, n)
    turned = m.filled((n, n), x.dtype, lambda i, j: choice(i, "less_equal", j, d[i, j], d[j, i]))
    total = _difference(m, of_q, _product(m, q, turned))
    s = m.call("lower_transposed", [low, total], (rows, n))
    m.add(to, lambda *at: s[at])


def _qr_along(m: Maker, a: Region, x: Region, da: Region, out: Region) -> None:
    """M - Q U and (U R)^T, where M = dA R^-1 and U is the upper triangle of C + C^T, with the diagonal of C = Q^T M."""
    q, low, rows = _parts(m, x)
    n = x.extents[1]
    moved = m.call("lower", [low, da], (rows, n))
    c = _product(m, q, moved, "a")

    def upper(i: Affine, j: Affine) -> Expr:
        strict = choice(i, "less", j, plus(c[i, j], c[j, i]), zero(x))
        return choice(i, "equal", j, c[i, j], strict)

    u = m.filled((n, n), x.dtype, upper)
    turned = _product(m, q, u)
    m.put(_front(out, rows), lambda *at: subtract(moved[at], turned[at]))
    _add_product(m, out.rows(rows, n), low, u, "b")


# ---------------------------------------------------------------------------- pseudo-inverses and least squares


def _pinv_back(m: Maker, a: Region, p: Region, g: Region, to: Region) -> None:
    """P^T (K - K^T - K P A) + G^T S - A K S, where G is the cotangent, K = P G^T and S = P P^T; of matrices of constant rank."""
    n = a.extents[1]
    s, k, pa = _product(m, p, p, "b"), _product(m, p, g, "b"), _product(m, p, a)
    kpa, ks = _product(m, k, pa), _product(m, k, s)
    z = m.filled((n, n), p.dtype, lambda i, j: subtract(subtract(k[i, j], k[j, i]), kpa[i, j]))
    _add_product(m, to, p, z, "a")
    _add_product(m, to, g, s, "a")
    _add_product(m, to, a, ks, less=True)


def _pinv_along(m: Maker, a: Region, p: Region, da: Region, out: Region) -> None:
    """Q + (L^T - L - Q A - P A L^T) P, where Q = P P^T dA^T and L = P dA."""
    n = a.extents[1]
    q = _product(m, _product(m, p, p, "b"), da, "b")
    low, pa, qa = _product(m, p, da), _product(m, p, a), _product(m, q, a)
    pal = _product(m, pa, low, "b")

    def middle(i: Affine, j: Affine) -> Expr:
        return subtract(subtract(low[j, i], low[i, j]), plus(qa[i, j], pal[i, j]))

    z = m.filled((n, n), p.dtype, middle)
    m.add(out, lambda *at: q[at])
    _add_product(m, out, z, p)


def _difference(m: Maker, a: Region, b: Region) -> Region:
    return m.filled(a.extents, a.dtype, lambda *at: subtract(a[at], b[at]))


def _remainder(m: Maker, a: Region, b: Region, x: Region) -> Region:
    """B - X A^T."""
    return _difference(m, b, _product(m, x, a, "b"))


def _lstsq_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
    """T = X_bar P goes to B, and (B - X A^T)^T (T P^T) - T^T X to A, where P is the pseudo-inverse."""
    a, b = operands
    g, of_a, of_b = bar(x), bar(a), bar(b)
    if g is None:
        return
    rows, n = a.extents
    p = m.call("pinv", [a], (n, rows))
    t = _product(m, g, p)
    if of_b is not None:
        m.add(of_b, lambda *at: t[at])
    if of_a is None:
        return
    _add_product(m, of_a, _remainder(m, a, b, x), _product(m, t, p, "b"), "a")
    _add_product(m, of_a, t, x, "a", less=True)


def _lstsq_along(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
    """(dB - X dA^T) P^T + (B - X A^T) dA P P^T."""
    a, b = operands
    of_a, of_b = dot(a), dot(b)
    rows, n = a.extents
    p = m.call("pinv", [a], (n, rows))
    q = m.filled(b.extents, x.dtype, lambda *at: zero(x) if of_b is None else of_b[at])
    if of_a is not None:
        q = _difference(m, q, _product(m, x, of_a, "b"))
    m.put(out, lambda *_: zero(x))
    _add_product(m, out, q, p, "b")
    if of_a is not None:
        y = _product(m, _product(m, _remainder(m, a, b, x), of_a), _product(m, p, p, "b"))
        m.add(out, lambda *at: y[at])


ROUTINES = CALLS | {
    "eigh": of_one(_eigh_back, _eigh_along, (False, False)),
    "eigenvalues": of_one(_eigenvalues_back, _eigenvalues_along, (True, False)),
    "eigenvectors": of_one(_eigenvectors_back, _eigenvectors_along),
    "svd": COPY,
    "left": _of_vectors(True),
    "right": _of_vectors(False),
    "singular": of_one(_singular_back, _singular_along, (True, False)),
    "spaced": COPY,
    "regular": COPY,
    "ranked": COPY,
    "qr": of_one(_qr_back, _qr_along, (False, True)),
    "pinv": of_one(_pinv_back, _pinv_along),
    "lstsq": Rule(_lstsq_back, _lstsq_along, others=True),
}
"""The routines of calls."""
