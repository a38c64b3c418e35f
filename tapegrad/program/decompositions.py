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

from .affine import ZERO, Affine
from .calls import (
    CALLS,
    Bar,
    Dot,
    Maker,
    Region,
    Rule,
    _choice,
    _times,
    _zero,
)
from .expressions import Expr, const, load, minus, node, plus
from .form import Store


def _less(a: Expr, b: Expr) -> Expr:
    return node("subtract", a, b)


def _add(m: Maker, to: Region, over: Affine, make: Callable[..., Expr]) -> None:
    """Add to a matrix sums of these terms over the last index."""
    m.each((*to.extents, over), lambda *at: Store(to.at(*at[:-1]), make(*at), "+="))


def _product(m: Maker, a: Region, b: Region, turned: str = "") -> Region:
    """A B, with A^T for "a" in `turned`, with B^T for "b"."""
    inner = a.extents[0 if "a" in turned else 1]
    shape = a.extents[1 if "a" in turned else 0], b.extents[0 if "b" in turned else 1]

    def term(i: Affine, k: Affine, j: Affine) -> Expr:
        left = a.at(j, i) if "a" in turned else a.at(i, j)
        return _times(load(left), load(b.at(k, j) if "b" in turned else b.at(j, k)))

    return m.summed(shape, inner, a.dtype, term)


def _apart(x: Region, i: Affine, j: Affine, top: Expr, gap: Expr) -> Expr:
    """A quotient off the diagonal, 0 on it."""
    one = const(1.0, x.dtype)
    return node(
        "divide",
        _choice(i, "equal", j, _zero(x), top),
        _choice(i, "equal", j, one, gap),
    )


def _copied_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
    (a,) = operands
    mine, theirs = bar(a), bar(x)
    if mine is not None and theirs is not None:
        m.each(a.extents, lambda *at: Store(mine.at(*at), load(theirs.at(*at)), "+="))


def _copied_along(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
    """The tangent of a copy, which has rows of zeros behind those that the operand has not."""
    (a,) = operands
    mine = dot(a)
    m.each(x.extents, lambda *at: Store(out.at(*at), _zero(x)))
    if mine is not None:
        m.each(a.extents, lambda *at: Store(out.at(*at), load(mine.at(*at))))


# ------------------------------------------------------------------------------------------------ eigenvalues


def _eigh_back(m: Maker, operands: Sequence[Region], f: Region, bar: Bar) -> None:
    """The cotangent of the symmetric matrix as that of its lower triangle."""
    (a,) = operands
    mine, theirs = bar(a), bar(f)
    if mine is None or theirs is None:
        return

    def folded(i: Affine, k: Affine) -> Store:
        own = load(theirs.at(i, k))
        both = plus(own, load(theirs.at(k, i)))
        lower = _choice(k, "less", i, both, _zero(f))
        return Store(mine.at(i, k), _choice(i, "equal", k, own, lower), "+=")

    m.each(a.extents, folded)


def _eigh_along(m: Maker, operands: Sequence[Region], f: Region, dot: Dot, out: Region) -> None:
    (a,) = operands
    mine = dot(a)
    m.each(f.extents, lambda i, k: Store(out.at(i, k), _zero(f)))
    if mine is not None:
        m.each(
            a.extents,
            lambda i, k: Store(
                out.at(i, k),
                _choice(k, "less_equal", i, load(mine.at(i, k)), load(mine.at(k, i))),
            ),
        )


def _front(f: Region, count: Affine) -> Region:
    """The rows of a region in which the cotangent, or the tangent, of the matrix lies."""
    return f.rows(ZERO, count)


def _eigenvalues_back(m: Maker, operands: Sequence[Region], w: Region, bar: Bar) -> None:
    """X^T diag(w_bar) X."""
    (f,) = operands
    mine, of_f = bar(w), bar(f)
    if mine is None or of_f is None:
        return
    n = f.extents[1]
    x = m.call("eigenvectors", [f], (n, n))
    scaled = m.filled((n, n), f.dtype, lambda i, k: _times(load(mine.at(i)), load(x.at(i, k))))
    _add(m, _front(of_f, n), n, lambda i, k, j: _times(load(x.at(j, i)), load(scaled.at(j, k))))


def _eigenvalues_along(
    m: Maker, operands: Sequence[Region], w: Region, dot: Dot, out: Region
) -> None:
    """The diagonal of X dA X^T."""
    (f,) = operands
    of_f = dot(f)
    m.each(w.extents, lambda i: Store(out.at(i), _zero(w)))
    if of_f is None:
        return
    n = f.extents[1]
    x = m.call("eigenvectors", [f], (n, n))
    q = _product(m, x, _front(of_f, n))
    m.each((n, n), lambda i, k: Store(out.at(i), _times(load(q.at(i, k)), load(x.at(i, k))), "+="))


def _gap(m: Maker, f: Region) -> Callable[[Affine, Affine], Expr]:
    """w_j - w_i of eigenvalues of which no two are equal."""
    n = f.extents[1]
    w = m.call("spaced", [m.call("eigenvalues", [f], (n,))], (n,))
    return lambda i, j: _less(load(w.at(j)), load(w.at(i)))


def _eigenvectors_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
    """X^T (C / gaps) X, where C = X X_bar^T."""
    (f,) = operands
    mine, of_f = bar(x), bar(f)
    if mine is None or of_f is None:
        return
    n = f.extents[1]
    gap = _gap(m, f)
    c = _product(m, x, mine, "b")
    inner = m.filled((n, n), f.dtype, lambda i, j: _apart(x, i, j, load(c.at(i, j)), gap(i, j)))
    t = _product(m, inner, x)
    _add(m, _front(of_f, n), n, lambda i, k, j: _times(load(x.at(j, i)), load(t.at(j, k))))


def _eigenvectors_along(
    m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region
) -> None:
    """(M / gaps)^T X, where M = X dA X^T."""
    (f,) = operands
    of_f = dot(f)
    m.each(x.extents, lambda i, k: Store(out.at(i, k), _zero(x)))
    if of_f is None:
        return
    n = f.extents[1]
    gap = _gap(m, f)
    c = _product(m, _product(m, x, _front(of_f, n)), x, "b")
    inner = m.filled((n, n), f.dtype, lambda i, j: _apart(x, i, j, load(c.at(i, j)), gap(i, j)))
    _add(m, out, n, lambda j, k, i: _times(load(inner.at(i, j)), load(x.at(i, k))))


# --------------------------------------------------------------------------------------------- singular values


def _factors(m: Maker, f: Region, k: Affine) -> tuple[Region, Region]:
    """U and V^T."""
    rows, n = f.extents[0] - k - 1, f.extents[1]
    return m.call("left", [f], (rows, k)), m.call("right", [f], (k, n))


def _singular_back(m: Maker, operands: Sequence[Region], s: Region, bar: Bar) -> None:
    """U diag(s_bar) V^T."""
    (f,) = operands
    mine, of_f = bar(s), bar(f)
    if mine is None or of_f is None:
        return
    (k,) = s.extents
    u, vt = _factors(m, f, k)
    scaled = m.filled(vt.extents, f.dtype, lambda j, b: _times(load(mine.at(j)), load(vt.at(j, b))))
    front = _front(of_f, u.extents[0])
    _add(m, front, k, lambda a, b, j: _times(load(u.at(a, j)), load(scaled.at(j, b))))


def _singular_along(m: Maker, operands: Sequence[Region], s: Region, dot: Dot, out: Region) -> None:
    """The diagonal of U^T dA V."""
    (f,) = operands
    of_f = dot(f)
    m.each(s.extents, lambda i: Store(out.at(i), _zero(s)))
    if of_f is None:
        return
    (k,) = s.extents
    u, vt = _factors(m, f, k)
    q = _product(m, _front(of_f, u.extents[0]), vt, "b")
    m.each(
        (k, u.extents[0]),
        lambda j, a: Store(out.at(j), _times(load(u.at(a, j)), load(q.at(a, j))), "+="),
    )


class _Values:
    """Singular values of which no two are equal, and none is zero where vectors complete a basis."""

    def __init__(self, m: Maker, f: Region, k: Affine, completed: bool) -> None:
        """Ask for them; `completed` says that the basis has more vectors than there are values."""
        self.s = m.call("spaced", [m.call("singular", [f], (k,))], (k,))
        if completed:
            self.s = m.call("regular", [self.s], (k,))

    def at(self, i: Affine) -> Expr:
        return load(self.s.at(i))

    def gap(self, i: Affine, j: Affine) -> Expr:
        """s_j^2 - s_i^2."""
        a, b = self.at(i), self.at(j)
        return _times(_less(b, a), plus(b, a))


def _vectors_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar, left: bool) -> None:
    """Of U, W V^T with W = U (((O - O^T) / gaps) S - O / S) + U_bar / S, where O = U^T U_bar; the terms with / S only where U has more rows
    than columns. Of V the same with the transposed matrix."""
    (f,) = operands
    mine, of_f = bar(x), bar(f)
    if mine is None or of_f is None:
        return
    k = x.extents[1 if left else 0]
    u, vt = _factors(m, f, k)
    high = x.extents[0 if left else 1]
    more = high != k
    s = _Values(m, f, k, more)

    def own(b: Region, a: Affine, j: Affine) -> Expr:
        """An element of a matrix whose columns are these vectors."""
        return load(b.at(a, j) if left else b.at(j, a))

    o = m.summed((k, k), high, f.dtype, lambda i, j, a: _times(own(x, a, i), own(mine, a, j)))

    def inner(i: Affine, j: Affine) -> Expr:
        both = _less(load(o.at(i, j)), load(o.at(j, i)))
        value = _apart(x, i, j, _times(both, s.at(j)), s.gap(i, j))
        return _less(value, node("divide", load(o.at(i, j)), s.at(j))) if more else value

    c = m.filled((k, k), f.dtype, inner)
    w = m.summed((high, k), k, f.dtype, lambda a, j, i: _times(own(x, a, i), load(c.at(i, j))))
    if more:
        m.each(
            (high, k),
            lambda a, j: Store(w.at(a, j), node("divide", own(mine, a, j), s.at(j)), "+="),
        )
    front = _front(of_f, u.extents[0])

    def outer(a: Affine, b: Affine, j: Affine) -> Expr:
        if left:
            return _times(load(w.at(a, j)), load(vt.at(j, b)))
        return _times(load(u.at(a, j)), load(w.at(b, j)))

    _add(m, front, k, outer)


def _vectors_along(
    m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region, left: bool
) -> None:
    """Of U, U ((P S + S P^T) / gaps - P / S) + B / S, where B = dA V and P = U^T B; the terms with / S as in `_vectors_back`."""
    (f,) = operands
    of_f = dot(f)
    m.each(x.extents, lambda i, j: Store(out.at(i, j), _zero(x)))
    if of_f is None:
        return
    k = x.extents[1 if left else 0]
    u, vt = _factors(m, f, k)
    high = x.extents[0 if left else 1]
    more = high != k
    s = _Values(m, f, k, more)
    front = _front(of_f, u.extents[0])

    def own(a: Affine, j: Affine) -> Expr:
        return load(x.at(a, j) if left else x.at(j, a))

    b = _product(m, front, vt, "b") if left else _product(m, front, u, "a")
    p = m.summed((k, k), high, f.dtype, lambda i, j, a: _times(own(a, i), load(b.at(a, j))))

    def inner(i: Affine, j: Affine) -> Expr:
        both = plus(_times(load(p.at(i, j)), s.at(j)), _times(s.at(i), load(p.at(j, i))))
        value = _apart(x, i, j, both, s.gap(i, j))
        return _less(value, node("divide", load(p.at(i, j)), s.at(j))) if more else value

    c = m.filled((k, k), f.dtype, inner)

    def place(a: Affine, j: Affine) -> Sequence[Affine]:
        return (a, j) if left else (j, a)

    m.each(
        (high, k, k),
        lambda a, j, i: Store(out.at(*place(a, j)), _times(own(a, i), load(c.at(i, j))), "+="),
    )
    if more:
        m.each(
            (high, k),
            lambda a, j: Store(
                out.at(*place(a, j)), node("divide", load(b.at(a, j)), s.at(j)), "+="
            ),
        )


def _of_vectors(left: bool) -> Rule:
    return Rule(
        lambda m, operands, x, bar: _vectors_back(m, operands, x, bar, left),
        lambda m, operands, x, dot, out: _vectors_along(m, operands, x, dot, out, left),
    )


# ------------------------------------------------------------------------------------------ orthogonal factors


def _parts(m: Maker, x: Region) -> tuple[Region, Region, Affine]:
    """Q, R^T of full rank, and the rows of Q."""
    n = x.extents[1]
    rows = x.extents[0] - n
    return _front(x, rows), m.call("ranked", [x.rows(rows, n)], (n, n)), rows


def _qr_back(m: Maker, operands: Sequence[Region], x: Region, bar: Bar) -> None:
    """(Q_bar - Q D) R^-T, where D is symmetric and has the upper triangle of Q^T Q_bar - R_bar R^T."""
    (a,) = operands
    mine, theirs = bar(a), bar(x)
    if mine is None or theirs is None:
        return
    q, low, rows = _parts(m, x)
    n = x.extents[1]
    of_q, of_r = _front(theirs, rows), theirs.rows(rows, n)
    d = _product(m, q, of_q, "a")

    def less(i: Affine, j: Affine, c: Affine) -> Store:
        value = minus(_times(load(of_r.at(c, i)), load(low.at(c, j))))
        return Store(d.at(i, j), _choice(i, "less_equal", c, value, _zero(x)), "+=")

    m.each((n, n, n), less)
    turned = m.filled(
        (n, n),
        x.dtype,
        lambda i, j: _choice(i, "less_equal", j, load(d.at(i, j)), load(d.at(j, i))),
    )
    moved = _product(m, q, turned)
    total = m.filled(
        (rows, n), x.dtype, lambda i, j: _less(load(of_q.at(i, j)), load(moved.at(i, j)))
    )
    s = m.call("lower_transposed", [low, total], (rows, n))
    m.each((rows, n), lambda i, j: Store(mine.at(i, j), load(s.at(i, j)), "+="))


def _qr_along(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
    """M - Q U and (U R)^T, where M = dA R^-1 and U is the upper triangle of C + C^T, with the diagonal of C = Q^T M."""
    (a,) = operands
    of_a = dot(a)
    m.each(x.extents, lambda i, j: Store(out.at(i, j), _zero(x)))
    if of_a is None:
        return
    q, low, rows = _parts(m, x)
    n = x.extents[1]
    moved = m.call("lower", [low, of_a], (rows, n))
    c = _product(m, q, moved, "a")

    def upper(i: Affine, j: Affine) -> Expr:
        own = load(c.at(i, j))
        strict = _choice(i, "less", j, plus(own, load(c.at(j, i))), _zero(x))
        return _choice(i, "equal", j, own, strict)

    u = m.filled((n, n), x.dtype, upper)
    turned = _product(m, q, u)
    of_q, of_r = _front(out, rows), out.rows(rows, n)
    m.each(
        (rows, n),
        lambda i, j: Store(of_q.at(i, j), _less(load(moved.at(i, j)), load(turned.at(i, j)))),
    )
    _add(m, of_r, n, lambda k, i, j: _times(load(u.at(i, j)), load(low.at(k, j))))


# ---------------------------------------------------------------------------- pseudo-inverses and least squares


def _pinv_back(m: Maker, operands: Sequence[Region], p: Region, bar: Bar) -> None:
    """P^T (K - K^T - K P A) + G^T S - A K S, where G is the cotangent, K = P G^T and S = P P^T; of matrices of constant rank."""
    (a,) = operands
    g, mine = bar(p), bar(a)
    if mine is None or g is None:
        return
    n = a.extents[1]
    s, k, pa = _product(m, p, p, "b"), _product(m, p, g, "b"), _product(m, p, a)
    kpa, ks = _product(m, k, pa), _product(m, k, s)

    def middle(i: Affine, j: Affine) -> Expr:
        return _less(_less(load(k.at(i, j)), load(k.at(j, i))), load(kpa.at(i, j)))

    z = m.filled((n, n), p.dtype, middle)
    _add(m, mine, n, lambda i, b, c: _times(load(p.at(c, i)), load(z.at(c, b))))
    _add(m, mine, n, lambda i, b, c: _times(load(g.at(c, i)), load(s.at(c, b))))
    _add(
        m,
        mine,
        n,
        lambda i, b, c: minus(_times(load(a.at(i, c)), load(ks.at(c, b)))),
    )


def _pinv_along(m: Maker, operands: Sequence[Region], p: Region, dot: Dot, out: Region) -> None:
    """Q + (L^T - L - Q A - P A L^T) P, where Q = P P^T dA^T and L = P dA."""
    (a,) = operands
    of_a = dot(a)
    m.each(p.extents, lambda i, j: Store(out.at(i, j), _zero(p)))
    if of_a is None:
        return
    rows, n = a.extents
    q = _product(m, _product(m, p, p, "b"), of_a, "b")
    low, pa, qa = _product(m, p, of_a), _product(m, p, a), _product(m, q, a)
    pal = _product(m, pa, low, "b")

    def middle(i: Affine, j: Affine) -> Expr:
        first = _less(load(low.at(j, i)), load(low.at(i, j)))
        return _less(first, plus(load(qa.at(i, j)), load(pal.at(i, j))))

    z = m.filled((n, n), p.dtype, middle)
    m.each((n, rows), lambda i, j: Store(out.at(i, j), load(q.at(i, j)), "+="))
    _add(m, out, n, lambda i, j, c: _times(load(z.at(i, c)), load(p.at(c, j))))


def _difference(m: Maker, a: Region, b: Region) -> Region:
    return m.filled(a.extents, a.dtype, lambda *at: _less(load(a.at(*at)), load(b.at(*at))))


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
        m.each(b.extents, lambda r, i: Store(of_b.at(r, i), load(t.at(r, i)), "+="))
    if of_a is None:
        return
    count = b.extents[0]
    left, u = _remainder(m, a, b, x), _product(m, t, p, "b")
    _add(m, of_a, count, lambda i, c, r: _times(load(left.at(r, i)), load(u.at(r, c))))
    _add(
        m,
        of_a,
        count,
        lambda i, c, r: minus(_times(load(t.at(r, i)), load(x.at(r, c)))),
    )


def _lstsq_along(m: Maker, operands: Sequence[Region], x: Region, dot: Dot, out: Region) -> None:
    """(dB - X dA^T) P^T + (B - X A^T) dA P P^T."""
    a, b = operands
    of_a, of_b = dot(a), dot(b)
    rows, n = a.extents
    p = m.call("pinv", [a], (n, rows))
    q = m.filled(b.extents, x.dtype, lambda *at: _zero(x) if of_b is None else load(of_b.at(*at)))
    if of_a is not None:
        q = _difference(m, q, _product(m, x, of_a, "b"))
    m.each(x.extents, lambda r, c: Store(out.at(r, c), _zero(x)))
    _add(m, out, rows, lambda r, c, i: _times(load(q.at(r, i)), load(p.at(c, i))))
    if of_a is not None:
        y = _product(m, _product(m, _remainder(m, a, b, x), of_a), _product(m, p, p, "b"))
        m.each(x.extents, lambda r, c: Store(out.at(r, c), load(y.at(r, c)), "+="))


_COPY = Rule(_copied_back, _copied_along, (False, False))

ROUTINES = CALLS | {
    "eigh": Rule(_eigh_back, _eigh_along, (False, False)),
    "eigenvalues": Rule(_eigenvalues_back, _eigenvalues_along, (True, False)),
    "eigenvectors": Rule(_eigenvectors_back, _eigenvectors_along),
    "svd": _COPY,
    "left": _of_vectors(True),
    "right": _of_vectors(False),
    "singular": Rule(_singular_back, _singular_along, (True, False)),
    "spaced": _COPY,
    "regular": _COPY,
    "ranked": _COPY,
    "qr": Rule(_qr_back, _qr_along, (False, True)),
    "pinv": Rule(_pinv_back, _pinv_along),
    "lstsq": Rule(_lstsq_back, _lstsq_along, others=True),
}
"""The routines of calls."""
