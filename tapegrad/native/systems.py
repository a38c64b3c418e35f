"""NumPy's functions of square matrices as calls of the form (`program.calls`): linear systems, inverses, determinants, Cholesky's factor.

`SYSTEMS` has them by the name of their rule: a function of the reader (`formulas.Formulas`) and the operation, which gives an array of the
form. A matrix that is singular, or not positive definite, is for the engine that was there before, which raises what Numba raises.

Invariant: a function raises `Outside` for operands that it does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..program.affine import ONE, ZERO, Affine, affine
from ..program.arrays import Array, Outside, of_number, remapped
from ..program.calls import DET, LOG, SIGN
from ..program.expressions import F4, F8
from .arrangements import identity, permuted
from .tree import Op

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
    rows, columns = found[0].shape
    f.builder.same(rows, columns, f"the matrix of {op.rule}, which is square")
    return found


def _factors(f: Formulas, a: Array) -> tuple[Array, Affine]:
    """LU factors of a matrix, and how many rows it has."""
    n = a.shape[0]
    return f.builder.called("lu", [a], (n + 1, n)), n


def solve(f: Formulas, op: Op) -> Array:
    """np.linalg.solve of a matrix with a vector, or with a matrix of columns."""
    a, b = _operands(f, op, (2,), (1, 2))
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
    (a,) = _operands(f, op, (2,))
    lu, n = _factors(f, a)
    s = f.builder.called("solve", [lu, identity((n, n), a.dtype)], (n, n))
    return permuted(s, (1, 0)).unnamed()


def determinant(f: Formulas, op: Op) -> Array:
    """np.linalg.det, and either part of np.linalg.slogdet."""
    (a,) = _operands(f, op, (2,))
    lu, _ = _factors(f, a)
    alone = op.rule == "np.linalg.det"
    found = f.builder.called("determinant" if alone else "log_determinant", [lu], (affine(3),))
    place = DET if alone else SIGN if op.form.endswith("[0]") else LOG
    return of_number(found.at((affine(place),)))


def cholesky(f: Formulas, op: Op) -> Array:
    (a,) = _operands(f, op, (2,))
    return f.builder.called("cholesky", [a], a.shape).unnamed()


SYSTEMS: dict[str, Callable[[Formulas, Op], Array]] = {
    "np.linalg.solve": solve,
    "np.linalg.inv": inverse,
    "np.linalg.det": determinant,
    "np.linalg.slogdet": determinant,
    "np.linalg.cholesky": cholesky,
}
