"""NumPy's functions of matrices as calls of the form (`program.calls`, `program.decompositions`).

Linear systems, determinants, eigenvalues and singular values, triangular and orthogonal factors, least squares; powers are products.

`SYSTEMS` has them by the name of their rule: a function of the reader (`formulas.Formulas`) and the operation, which gives an array of the
form. A matrix that is singular, or not positive definite, is for the engine that was there before, which raises what Numba raises; so are
vectors of equal eigenvalues or singular values that are differentiated.

Invariant: a function raises `Outside` for operands that it does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..program.affine import ONE, ZERO, Affine, affine
from ..program.arrays import Array, Outside, of_number, remapped
from ..program.calls import DET, LOG, SIGN
from ..program.expressions import B1, F4, F8, cast, const, node, number
from .arrangements import identity, permuted
from .tree import Const, Op

if TYPE_CHECKING:
    from .formulas import Formulas


def _operands(f: Formulas, op: Op, *axes: tuple[int, ...]) -> list[Array]:
    """The operands, of one dtype and so many axes each; the first one is a square matrix."""
    if op.settings or len(op.args) != len(axes) or f.symbolic:
        raise Outside(f"{op.rule} with these settings, or on one side of a choice")
    found = [f._value(a) for a in op.args]
    if any(len(a.shape) not in n for a, n in zip(found, axes, strict=True)):
        raise Outside(f"{op.rule} of arrays with other axes")
    if any(a.dtype != found[0].dtype or a.dtype not in (F8, F4) for a in found):
        raise Outside(f"{op.rule} of arrays with other types")
    return found


def _square(f: Formulas, op: Op, *axes: tuple[int, ...]) -> list[Array]:
    """The same; the first operand is a square matrix."""
    found = _operands(f, op, *axes)
    rows, columns = found[0].shape
    f.builder.same(rows, columns, f"the matrix of {op.rule}, which is square")
    return found


def _part(op: Op) -> int:
    """Which of several results an operation has."""
    if not op.form.endswith("]"):
        raise Outside(f"{op.rule} as a tuple")
    return int(op.form.rpartition("[")[2][:-1])


def _least(f: Formulas, a: Array) -> Affine:
    """The smaller extent of a matrix: the number of columns, if nothing is known."""
    rows, columns = a.shape
    more = columns - rows
    if f.builder.order.proves(more, f.builder.path):
        return rows
    if not f.builder.order.proves(more * -1, f.builder.path):
        f.compared.append(more)
        f.builder.claim(more * -1, "a matrix with as many rows as columns, or more")
    return columns


def _factors(f: Formulas, a: Array) -> tuple[Array, Affine]:
    """LU factors of a matrix, and how many rows it has."""
    n = a.shape[0]
    return f.builder.called("lu", [a], (n + 1, n)), n


def solve(f: Formulas, op: Op) -> Array:
    """np.linalg.solve of a matrix with a vector, or with a matrix of columns."""
    a, b = _square(f, op, (2,), (1, 2))
    lu, n = _factors(f, a)
    f.builder.same(b.shape[0], n, "shapes of a linear system")
    alone = len(b.shape) == 1
    rows = remapped(b, (ONE, n), lambda i: i[1:]) if alone else permuted(b, (1, 0))
    s = f.builder.called("solve_finite", [lu, rows], rows.shape)
    if alone:
        return remapped(s, (n,), lambda i: (ZERO, *i)).unnamed()
    return permuted(s, (1, 0)).unnamed()


def inverse(f: Formulas, op: Op) -> Array:
    """np.linalg.inv, from the columns of the identity."""
    (a,) = _square(f, op, (2,))
    lu, n = _factors(f, a)
    s = f.builder.called("solve", [lu, identity((n, n), a.dtype)], (n, n))
    return permuted(s, (1, 0)).unnamed()


def determinant(f: Formulas, op: Op) -> Array:
    """np.linalg.det, and either part of np.linalg.slogdet."""
    (a,) = _square(f, op, (2,))
    lu, _ = _factors(f, a)
    alone = op.rule == "np.linalg.det"
    found = f.builder.called("determinant" if alone else "log_determinant", [lu], (affine(3),))
    place = DET if alone else SIGN if op.form.endswith("[0]") else LOG
    return of_number(found.at((affine(place),)))


def cholesky(f: Formulas, op: Op) -> Array:
    (a,) = _square(f, op, (2,))
    return f.builder.called("cholesky", [a], a.shape).unnamed()


def eigenvalues(f: Formulas, op: Op) -> Array:
    """np.linalg.eigvalsh, and either part of np.linalg.eigh."""
    (a,) = _square(f, op, (2,))
    n = a.shape[0]
    found = f.builder.called("eigh", [a], (n + 1, n))
    if op.rule == "np.linalg.eigvalsh" or _part(op) == 0:
        return f.builder.called("eigenvalues", [found], (n,)).unnamed()
    return permuted(f.builder.called("eigenvectors", [found], (n, n)), (1, 0)).unnamed()


def _singular(f: Formulas, a: Array) -> tuple[Array, Affine]:
    """What LAPACK finds of a matrix, and how many singular values that are."""
    rows, columns = a.shape
    k = _least(f, a)
    return f.builder.called("svd", [a], (rows + k + 1, columns)), k


def singular(f: Formulas, op: Op) -> Array:
    """Any part of np.linalg.svd, without vectors that complete a basis; the values have them beside."""
    whole, part = op.args[1:], _part(op)
    if part != 1 and not (len(whole) == 1 and isinstance(whole[0], Const) and not whole[0].value):
        raise Outside("singular vectors that complete a basis")
    (a,) = _operands(f, replace(op, args=op.args[:1]), (2,))
    found, k = _singular(f, a)
    name, shape = (("left", (a.shape[0], k)), ("singular", (k,)), ("right", (k, a.shape[1])))[part]
    return f.builder.called(name, [found], shape).unnamed()


def orthogonal(f: Formulas, op: Op) -> Array:
    """Either part of np.linalg.qr, of matrices with as many rows as columns, or more."""
    (a,) = _operands(f, op, (2,))
    rows, n = a.shape
    f.builder.claim(rows - n, "a matrix with as many rows as columns, or more")
    found = f.builder.called("qr", [a], (rows + n, n))
    if _part(op) == 0:
        return remapped(found, (rows, n), lambda i: i).unnamed()
    return remapped(found, (n, n), lambda i: (rows + i[1], i[0])).unnamed()


def pseudo_inverse(f: Formulas, op: Op) -> Array:
    """np.linalg.pinv, without what singular values it leaves out."""
    (a,) = _operands(f, op, (2,))
    return f.builder.called("pinv", [a], a.shape[::-1]).unnamed()


def least_squares(f: Formulas, op: Op) -> Array:
    """Solutions, sums of squares that remain, or singular values of np.linalg.lstsq, of a matrix with more rows than columns."""
    a, b = _operands(f, op, (2,), (1, 2))
    part, (rows, n) = _part(op), a.shape
    if part == 2:
        return _above(f, a, _beside(a, ONE))
    if part == 3:
        found, k = _singular(f, a)
        return f.builder.called("singular", [found], (k,)).unnamed()
    f.builder.claim(rows - n - (part == 1), "a matrix with as many rows as columns, or more")
    f.builder.same(b.shape[0], rows, "shapes of a linear system")
    alone = len(b.shape) == 1
    columns = remapped(b, (rows, ONE), lambda i: i[:1]) if alone else b
    right = permuted(columns, (1, 0))
    x = f.builder.called("lstsq", [a, right], (right.shape[0], n))
    if part == 1:
        left = f._applied(
            "subtract", [columns, f._matmul(a, permuted(x, (1, 0)), a.dtype)], a.dtype
        )
        return f._over("np.sum", f._applied("square", [left], a.dtype), [0], a.dtype)
    if alone:
        return remapped(x, (n,), lambda i: (ZERO, *i)).unnamed()
    return permuted(x, (1, 0)).unnamed()


def _beside(a: Array, times: Affine) -> Callable[[Array], Array]:
    """Up to which size singular values of a matrix are rounding: so many times epsilon, beside the largest."""
    epsilon = const(float(np.finfo(np.float64 if a.dtype == F8 else np.float32).eps), a.dtype)
    share = node("multiply", cast(number(times), a.dtype), epsilon)
    return lambda s: of_number(node("multiply", s.at((ZERO,)), share))


def _above(f: Formulas, a: Array, limit: Callable[[Array], Array]) -> Array:
    """How many singular values of a matrix are above a limit, which may depend on them."""
    found, k = _singular(f, a)
    s = f.builder.called("singular", [found], (k,))
    above = f.builder.elementwise(
        lambda x, y: node("greater", x, cast(y, a.dtype)), s, limit(s), dtype=B1
    )
    return f._over("np.sum", f._as_numbers(above, F8), [0], F8)


def rank(f: Formulas, op: Op) -> Array:
    """np.linalg.matrix_rank, a number without a gradient: how many singular values are above rounding, or above a number."""
    (a,) = _operands(f, replace(op, args=op.args[:1]), (2,))
    if op.args[1:]:
        limit = f._value(op.args[1])
        return _above(f, a, lambda _: limit)
    rows, columns = a.shape
    return _above(f, a, _beside(a, columns if _least(f, a) == rows else rows))


def power(f: Formulas, op: Op) -> Array:
    """np.linalg.matrix_power by a known number: products of squares, as NumPy's."""
    (a,) = _square(f, replace(op, args=op.args[:1]), (2,))
    n = op.args[1].value if len(op.args) == 2 and isinstance(op.args[1], Const) else None
    if type(n) is not int or abs(n) > POWERS:
        raise Outside("a power of a matrix by what is no known number")
    if n == 0:
        return identity(a.shape, a.dtype)
    if n < 0:
        lu, size = _factors(f, a)
        s = f.builder.called("solve", [lu, identity((size, size), a.dtype)], (size, size))
        a, n = permuted(s, (1, 0)), -n
    result: Array | None = None
    while n:
        if n % 2:
            result = a if result is None else f._matmul(result, a, a.dtype)
        n //= 2
        if n:
            a = f._matmul(a, a, a.dtype)
    assert result is not None
    return result.unnamed()


POWERS = 1 << 20
"""The largest power of a matrix that is written as products."""

SYSTEMS: dict[str, Callable[[Formulas, Op], Array]] = {
    "np.linalg.solve": solve,
    "np.linalg.inv": inverse,
    "np.linalg.det": determinant,
    "np.linalg.slogdet": determinant,
    "np.linalg.cholesky": cholesky,
    "np.linalg.eigh": eigenvalues,
    "np.linalg.eigvalsh": eigenvalues,
    "np.linalg.svd": singular,
    "np.linalg.qr": orthogonal,
    "np.linalg.pinv": pseudo_inverse,
    "np.linalg.lstsq": least_squares,
    "np.linalg.matrix_rank": rank,
    "np.linalg.matrix_power": power,
}
