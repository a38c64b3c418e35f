"""Linear systems: x from a x = b, for matrices that are general, triangular, banded or Toeplitz, and matrix equations.

All have one derivative. Where op(a) x = b, the cotangent of b solves the adjoint system, b̄ = op(a)⁻ᴴ x̄, and that of op(a) is
-b̄ xᴴ, of which an a with structure takes the entries it stands for (Giles 2008, section 2.3.1). No inverse is formed.
The adjoint system has the same matrix, so `solve` factorises once: the LU factors of a are a value of their own on the tape
(`factors`), and each derivative, of any order and in both modes, is solved with them. A stack of small matrices (less than
32 by 32) is the exception: there NumPy's loop in C, which keeps no factors, is faster than one LAPACK call per matrix.

Invariant: operands of the ops here are matrices (the last two axes) or stacks of them; the public functions, which
take NumPy's and SciPy's arguments, turn vectors into columns. SciPy is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.linalg import LinAlgError

from ..core.domain import Domain, dominant, real
from ..core.primitive import call, conj, primitive, several
from ..core.storage import StandIn, as_array
from ..core.tensor import Tensor
from .composing import composed, operand, raw
from .indexing import scatter

# -------------------------------------------------------------------------------------------- parts of matrices


def adjoint(x: Any) -> Any:
    """Conjugate transpose of each matrix."""
    return conj(np.swapaxes(x, -1, -2))


@lru_cache(64)
def eye(n: int) -> np.ndarray:
    """The diagonal, as a mask."""
    return np.eye(n, dtype=bool)


@lru_cache(64)
def triangle(m: int, n: int, side: str, strict: bool = False) -> np.ndarray:
    """The "lower" or "upper" triangle, as a mask; `strict` leaves out the diagonal."""
    if side == "lower":
        return np.tri(m, n, -1 if strict else 0, dtype=bool)
    return ~np.tri(m, n, 0 if strict else -1, dtype=bool)


def triangle_of(x: Any, side: str, strict: bool = False) -> Any:
    """One triangle of each matrix, zeros elsewhere."""
    if np.ndim(x) < 2:
        raise LinAlgError(
            f"a triangle was asked of an array of shape {np.shape(x)}, but matrices have one: reshape it to two axes."
        )
    return np.where(triangle(*np.shape(x)[-2:], side, strict), x, 0.0)


def matrices(x: np.ndarray) -> Iterator[np.ndarray]:
    """The matrices of a stack."""
    yield from x.reshape(prod(x.shape[:-2]), *x.shape[-2:])


def each(function: Callable[..., Any], *stacks: np.ndarray) -> np.ndarray:
    """`function` of the matrices of stacks, one by one: for what SciPy does to single matrices only."""
    if all(x.ndim == 2 for x in stacks):
        return function(*stacks)
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in stacks))
    if not prod(lead):  # no matrices: the result of some others tells shape and dtype
        one = function(*(np.eye(*x.shape[-2:], dtype=x.dtype) for x in stacks))
        return np.zeros(lead + one.shape, one.dtype)
    alike = (matrices(np.broadcast_to(x, lead + x.shape[-2:])) for x in stacks)
    results = [function(*xs) for xs in zip(*alike, strict=True)]
    return np.stack(results).reshape(*lead, *results[0].shape)


def stacks(*values: Any) -> tuple[Any, ...]:
    """Arguments as tensors or arrays, sequences joined."""
    return tuple(x if isinstance(x, Tensor) else as_array(operand(x)) for x in values)


def square(x: Any, asker: str) -> None:
    """Refuse matrices that are not square, as NumPy does."""
    if np.ndim(x) < 2 or np.shape(x)[-1] != np.shape(x)[-2]:
        raise LinAlgError(
            f"{asker} was given an array of shape {np.shape(x)}, but its last 2 dimensions must be square."
        )


def _fortran(routine: str, dtype: Any) -> Any:
    """SciPy's wrapper of a routine of BLAS or LAPACK for this dtype."""
    from scipy.linalg import blas, lapack

    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[np.dtype(dtype).char]
    return getattr(blas if routine == "trsm" else lapack, letter + routine)


def _inexact(*values: np.ndarray) -> Any:
    """The dtype LAPACK computes in for these operands."""
    dtype = np.result_type(*values)
    return dtype if dtype.char in "fdFD" else np.result_type(dtype, np.float64)


# -------------------------------------------------------------------------------------------------- LU factors


def factored(a: np.ndarray) -> np.ndarray:
    """LU factors of each matrix, transposed (LAPACK's order in memory, so that it need not copy them), and in one more row
    what row each row was exchanged with: small integers, which are exact in any dtype."""
    dtype = _inexact(a)
    getrf = _fortran("getrf", dtype)

    def one(matrix: np.ndarray) -> np.ndarray:
        packed = np.empty((len(matrix) + 1, len(matrix)), dtype)
        packed[:-1] = matrix.T
        _, exchanged, info = getrf(
            packed[:-1].T, overwrite_a=True
        )  # which has LAPACK's order, so it is done in place
        if info > 0:
            raise LinAlgError("Singular matrix")
        packed[-1] = exchanged
        return packed

    return each(one, as_array(a, dtype)) if a.shape[-1] else np.zeros((*a.shape[:-2], 1, 0), dtype)


@primitive(
    factored,
    name="factors",
    jvp=lambda ts, xs, out: np.zeros_like(out),
    domain=dominant,
    samples=[call((3, 3)), call((2, 3, 3))],
    unsupported={
        "derivative": "it only serves to compute a solution, whose rule is in `solution`: nothing asks for its own"
    },
)
def factors(g, x):
    """LU factors for `solution` to compute with, which knows the derivative. Those of `lu_factor` have one of their own."""
    return np.zeros_like(x)


def kept_factors(a: Any, b: Any) -> list[Any]:
    """[factors of a], where keeping them pays; else []."""
    n = np.shape(a)[-1]
    if n == 0 or a.dtype.char not in "fdFD" or a.dtype != np.result_type(a.dtype, b.dtype):
        return []
    return [factors(a)] if np.ndim(a) == 2 or n >= 32 else []


# ---------------------------------------------------------------------------------------------- the one solution


def solution_of(
    xs: Sequence[np.ndarray], adjoint: bool = False, side: str | None = None, unit: bool = False
) -> np.ndarray:
    """Solutions of a x = b for stacks of systems; `side` says which triangle is read, `adjoint` that of aᴴ."""
    a, b, *kept = xs
    n = a.shape[-1]
    equations = b.shape[-2:][0]
    if a.shape[-2] != n or equations != n:
        raise ValueError(
            f"a system of {equations} equations was given a matrix of shape {a.shape[-2:]}: lengths must agree."
        )
    dtype = _inexact(a, b)
    if side and n and (a.ndim == 2 or n >= 32):
        if not np.all(np.diagonal(a, axis1=-2, axis2=-1)) and not unit:
            raise LinAlgError("Singular matrix: a triangular matrix has a 0 on its diagonal.")
        # Not LAPACK's trtrs: where several threads compete for the processor it takes milliseconds for a 3 by 3 matrix.
        trsm = _fortran("trsm", dtype)
        lower = side == "lower"

        def one(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            if a.flags.f_contiguous or (adjoint and dtype.kind == "c"):
                return trsm(1, a, b, lower=lower, trans_a=2 * adjoint, diag=unit)
            return trsm(
                1, a.T, b, lower=not lower, trans_a=not adjoint, diag=unit
            )  # aᵀ is in Fortran's order as it stands

        return _columns(one, as_array(a, dtype), as_array(b, dtype))
    if kept:
        return np.ascontiguousarray(solved(kept[0], b, adjoint))  # as np.linalg.solve's results lie
    if side:
        a = np.where(triangle(n, n, side, strict=unit), a, 0.0)
        if unit:
            a = np.where(eye(n), np.ones((), dtype), a)
    if adjoint:
        a = np.conj(np.swapaxes(a, -1, -2))
    return np.linalg.solve(a, b)


def solved(factors: np.ndarray, b: np.ndarray, adjoint: bool = False) -> np.ndarray:
    """x from a x = b, or from aᴴ x = b, by what `factored` made of a."""
    getrs = _fortran("getrs", np.result_type(factors, b))

    def one(f: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not f.diagonal().all():
            raise LinAlgError("Singular matrix")
        return getrs(f[:-1].T, f[-1].real.astype(np.intc), b, trans=2 * adjoint)[0]

    return _columns(one, factors, b)


def inverted(factors: np.ndarray) -> np.ndarray:
    """The inverse, by what `factored` made of a matrix: half the work of solving for all unit vectors."""
    getri = _fortran("getri", factors.dtype)

    def one(f: np.ndarray) -> np.ndarray:
        if not f.diagonal().all():
            raise LinAlgError("Singular matrix")
        return getri(f[:-1].T, f[-1].real.astype(np.intc))[0]

    return each(one, factors)


def log_determinant(factors: np.ndarray) -> np.ndarray:
    """The sign of a determinant (for complex matrices, its phase) and the logarithm of its absolute value, by what `factored` made:
    those of a stack, all signs first.
    """
    pivots = np.diagonal(factors, axis1=-2, axis2=-1)
    size = np.abs(pivots)
    turns = pivots / size if factors.dtype.kind == "c" else np.where(pivots < 0, -1, 1)
    sign = np.prod(turns, axis=-1).astype(factors.dtype) * _turns(factors)
    return np.concatenate([np.ravel(sign), np.ravel(np.log(size).sum(axis=-1))])


def determinant(factors: np.ndarray) -> Any:
    """The determinant, by what `factored` made of a matrix."""
    return np.prod(np.diagonal(factors, axis1=-2, axis2=-1), axis=-1) * _turns(factors)


def _turns(factors: np.ndarray) -> Any:
    """1 or -1, for each exchange of two rows."""
    exchanged = np.real(factors[..., -1, :]) != np.arange(factors.shape[-1])
    return np.where(np.count_nonzero(exchanged, axis=-1) % 2, -1, 1).astype(factors.dtype)


@primitive(
    lambda xs: inverted(xs[1]) if len(xs) > 1 else np.linalg.inv(xs[0]),
    name="inverse",
    jvp=lambda ts, xs, out: -np.matmul(np.matmul(out, ts[0]), out),
    domain=dominant,
    samples=[call((3, 3)), call((2, 3, 3))],
)
def inverse(g, xs, out):
    """Inverse of each matrix; a second operand, if there is one, holds its LU factors, and the first is only differentiated by."""
    back = adjoint(out)
    return [-np.matmul(np.matmul(back, g), back), *(None for _ in xs[1:])]


def _columns(one: Callable[..., np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`each`, but one matrix with a stack of right sides is one call."""
    if b.ndim == 1:
        return one(a, b)
    if a.ndim == 2 and b.ndim > 2:
        flat = np.moveaxis(b, -2, 0)
        return np.moveaxis(one(a, flat.reshape(len(flat), -1)).reshape(flat.shape), 0, -2)
    return each(one, a, b)


_SYSTEMS = [
    call((3, 3), (3, 2)),
    call((3, 3), (3,)),
    call((3, 3), (3,), adjoint=True),
    call((2, 3, 3), (3, 1)),
    call((2, 2), (2, 2, 1), adjoint=True),
    call((3, 3), (3, 2), side="lower"),
    call((3, 3), (2, 3, 1), side="upper", adjoint=True),
    call((2, 3, 3), (3, 1), side="lower", unit=True),
]


def _solution_tangent(ts, xs, out, adjoint=False, side=None, unit=False):
    """The same system with ḃ - op(ȧ) x on the right."""
    a, _, *kept = xs
    a_dot, right = ts[:2]
    if a_dot is not None:
        if side:
            a_dot = triangle_of(a_dot, side, strict=unit)
        moved = np.matmul(conj(np.swapaxes(a_dot, -1, -2)) if adjoint else a_dot, out)
        right = -moved if right is None else right - moved
    return solution([a, right, *kept], adjoint=adjoint, side=side, unit=unit)


@primitive(
    solution_of,
    name="solution",
    jvp=_solution_tangent,
    backward="LinalgSolve",
    domain=(dominant, real),
    samples=_SYSTEMS,
    holomorphic=False,  # the adjoint is not
)
def solution(g, xs, out, wanted, *, adjoint=False, side=None, unit=False):
    """x from a x = b, or from aᴴ x = b; with `side`, one triangle of a is read, with `unit`, its diagonal is taken as ones.

    b holds columns; one matrix, and no side, takes a vector too.

    A third operand, if there is one, holds the LU factors of a, and a itself is only differentiated by.
    """
    a, _, *kept = xs
    b_bar = solution([a, g, *kept], adjoint=not adjoint, side=side, unit=unit)
    a_bar = None
    if wanted[0]:
        left, right = (out, b_bar) if adjoint else (b_bar, out)
        vectors = left.ndim == 1
        across = right if vectors else np.swapaxes(right, -1, -2)
        a_bar = -((left[:, None] * conj(across)) if vectors else np.matmul(left, conj(across)))
        if side:
            a_bar = triangle_of(a_bar, side, strict=unit)
    return [a_bar, b_bar, *(None for _ in kept)]


def as_columns(b: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A right side as a matrix of columns, and what turns a solution back into its shape."""
    if not np.ndim(b):
        raise ValueError(
            "the right side was given as a number, which has not enough dimensions. Pass a vector, or a matrix of columns."
        )
    if np.ndim(b) == 1:
        return b[:, None], lambda x: x[..., 0]
    return b, lambda x: x


@composed(np.linalg.solve, "a", "b")
def solve(a: Any, b: Any) -> Any:
    """x from a x = b, for a square matrix or a stack; b is a vector only if it is 1-d, as in NumPy 2.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.solve(tg.tensor([[2.0, 0.0], [0.0, 4.0]]), np.ones(2))
    tensor([0.5 , 0.25])
    """
    square(a, "solve")
    if np.ndim(a) == 2 and np.ndim(b) == 1:
        return solution([a, b, *kept_factors(a, b)])
    b, back = as_columns(b)
    return back(solution([a, b, *kept_factors(a, b)]))


@composed(np.linalg.tensorsolve, "a", "b")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """x from tensordot(a, x, x.ndim) = b.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.tensorsolve(tg.eye(4).reshape(2, 2, 4), np.ones((2, 2))).shape
    (4,)
    """
    if axes is not None:
        moved = [normalize_axis_index(axis, a.ndim) for axis in axes]
        a = np.transpose(a, [k for k in range(a.ndim) if k not in moved] + moved)
    shape = a.shape[np.ndim(b) :]
    if prod(shape) != prod(np.shape(b)):
        raise LinAlgError(
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])."
        )
    return np.reshape(np.linalg.solve(np.reshape(a, (-1, prod(shape))), np.reshape(b, -1)), shape)


# ------------------------------------------------------------------------------------ SciPy's ways to the same


def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """x from a x = b (trans=1: aᵀ x = b, trans=2: aᴴ x = b), where a is triangular: its other triangle is not read.

    >>> import tapegrad as tg
    >>> tg.linalg.solve_triangular(tg.tensor([[2.0, 7.0], [1.0, 4.0]]), tg.tensor([2.0, 9.0]), lower=True)
    tensor([1., 2.])
    """
    trans = {"N": 0, "T": 1, "C": 2}.get(trans, trans) if isinstance(trans, str) else trans
    if not isinstance(trans, int | np.integer) or trans not in (0, 1, 2):
        raise ValueError(
            f"solve_triangular was given trans={trans!r}, but it is 0 or 'N', 1 or 'T', or 2 or 'C'."
        )
    a, b = stacks(a, b)
    square(a, "solve_triangular")
    b, back = as_columns(b)
    settings = {
        "adjoint": trans > 0,
        "side": "lower" if lower else "upper",
        "unit": bool(unit_diagonal),
    }
    if trans == 1:  # aᵀ x = b is aᴴ x̄ = b̄
        return back(conj(solution([a, conj(b)], **settings)))
    return back(solution([a, b], **settings))


def cho_solve(c_and_lower: Any, b: Any) -> Any:
    """x from a x = b, with (c, lower) from `cho_factor(a)`.

    >>> import numpy as np, tapegrad as tg
    >>> factor = tg.linalg.cho_factor(tg.tensor([[4.0, 0.0], [0.0, 8.0]]))
    >>> tg.linalg.cho_solve(factor, np.ones(2))
    tensor([0.25 , 0.125])
    """
    c, lower = c_and_lower
    c, b = stacks(c, b)
    square(c, "cho_solve")
    b, back = as_columns(b)
    side = "lower" if lower else "upper"
    y = solution([c, b], adjoint=not lower, side=side)
    return back(solution([c, y], adjoint=bool(lower), side=side))


def _rows_of(exchanged: np.ndarray) -> np.ndarray:
    """Where each row of the exchanged matrix was before: LAPACK's exchanges, done to the rows' numbers."""
    if isinstance(exchanged, StandIn):  # a call of the program: the numbers are another call's
        return exchanged.home.call(_rows_of, (exchanged,), {}, "rows_of")  # type: ignore[attr-defined, no-any-return]
    *lead, n = exchanged.shape
    rows = np.broadcast_to(np.arange(n), (*lead, n)).copy()
    for row, swaps in zip(
        rows.reshape(prod(lead), n), exchanged.reshape(prod(lead), n), strict=True
    ):
        for i, j in enumerate(swaps):
            row[i], row[j] = row[j], row[i]
    return rows


def reordered(x: Any, order: np.ndarray) -> Any:
    """The entries along the last axis in another order, one for each of the axes before (as take_along_axis)."""
    order = np.broadcast_to(order, np.shape(x))
    return x[(*np.indices(order.shape)[:-1], order)]


def _taken(x: Any, rows: np.ndarray) -> Any:
    """The rows of each matrix in another order."""
    if rows.ndim == 1:
        return x[..., rows, :]
    x = np.broadcast_to(x, rows.shape[:-1] + np.shape(x)[-2:])
    return np.swapaxes(reordered(np.swapaxes(x, -1, -2), rows[..., None, :]), -1, -2)


def _lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    packed = factored(a)
    return np.swapaxes(packed[..., :-1, :], -1, -2), packed[..., -1, :]


@several(
    _lu,
    lambda shape: (shape, shape[:-1]),
    name="lu_factors",
    domain=dominant,
    samples=[call((3, 3)), call((2, 3, 3))],
    real=(1,),
)
def lu_factors(g, out):
    """LU factors of each matrix, packed as LAPACK does, with the exchanges of rows, which are locally constant.

    With P a = L U and N = L⁻¹ P ȧ U⁻¹, the strict lower triangle of N moves L and the rest moves U.
    """
    lu, exchanged = out
    lower, upper = triangle_of(g[0], "lower", strict=True), triangle_of(g[0], "upper")
    n = triangle_of(np.matmul(adjoint(_unit_lower(lu)), lower), "lower", strict=True)
    n = n + triangle_of(np.matmul(upper, adjoint(triangle_of(lu, "upper"))), "upper")
    left = solution([lu, n], adjoint=True, side="lower", unit=True)
    both = adjoint(solution([lu, adjoint(left)], side="upper"))
    rows = _rows_of(np.real(raw(exchanged)).astype(int))
    return _taken(both, np.argsort(rows, axis=-1))


def _unit_lower(lu: Any) -> Any:
    return np.where(eye(np.shape(lu)[-1]), 1.0, triangle_of(lu, "lower", strict=True))


def _row_order(a: np.ndarray) -> np.ndarray:
    """Where each row of P a was before, for P a = L U with the largest pivots, as numbers of a's dtype."""
    m, n = a.shape[-2:]
    dtype = _inexact(a)
    getrf = _fortran("getrf", dtype)

    def one(matrix: np.ndarray) -> np.ndarray:
        exchanged = getrf(matrix)[1] if n else np.arange(0)
        more = np.arange(len(exchanged), m)
        return _rows_of(np.concatenate([exchanged, more]))[:, None].astype(dtype)

    return each(one, as_array(a, dtype))[..., 0] if m else np.zeros((*a.shape[:-2], 0), dtype)


@primitive(
    _row_order,
    name="row_order",
    jvp=lambda ts, xs, out: np.zeros_like(out),
    domain=dominant,
    samples=[call((3, 3)), call((2, 4, 3)), call((2, 3))],
)
def row_order(g, x_shape):
    """The order of rows that LU factors have, which is locally constant."""
    return np.zeros(x_shape)


def _order_of(a: Any) -> Any:
    return np.real(raw(row_order(raw(a)))).astype(np.intp)


def _with_factors(a: Any) -> tuple[Any, Any, Any, Any]:
    """(lu, below, beside, rows) of m by n matrices: lu, packed, of the square part of a[rows]; the rows of L below it and the columns of
    U beside it.

    The blocks below and beside follow from triangular systems, so that the derivative of a square matrix's factors is all there is.
    """
    m, n = np.shape(a)[-2:]
    k = min(m, n)
    below = beside = None
    if m > n:
        first = _order_of(a)
        a = _taken(a, first)
    order = _order_of(a[..., :k, :k])
    lu, _ = lu_factors(a[..., :k, :k])
    if m > n:
        below = adjoint(solution([lu, adjoint(a[..., k:, :])], adjoint=True, side="upper"))
        rows = np.concatenate([np.take_along_axis(first[..., :k], order, -1), first[..., k:]], -1)
    else:
        rows = order
    if n > m:
        beside = solution([lu, _taken(a[..., :, k:], order)], side="lower", unit=True)
    return lu, below, beside, rows


def lu(
    a: Any,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
) -> tuple[Any, ...]:
    """(P, L, U) with a = P L U, as SciPy's: of an m by n matrix L is m by k and U k by n, k the lesser of m and n.

    P is a matrix of zeros and ones, which is locally constant; with `permute_l` there are only P L and U, with `p_indices` rows p with
    L[p] U = a in its place. L and U are differentiable, to any order, where the square part is not singular: LinAlgError where it is and
    something tracked was given.

    >>> import tapegrad as tg
    >>> p, l, u = tg.linalg.lu(tg.tensor([[4.0, 2.0], [2.0, 8.0]]))
    >>> u
    tensor([[4., 2.],
            [0., 7.]])
    """
    (a,) = stacks(a)
    if np.ndim(a) < 2:
        raise ValueError(
            f"lu was given an array of shape {np.shape(a)}, but factorises matrices: give it two axes, or a stack of such."
        )
    if type(a) is np.ndarray:
        from scipy.linalg import lu as plainly

        return plainly(a, permute_l, False, check_finite, p_indices)  # type: ignore[no-any-return]
    packed, below, beside, rows = _with_factors(a)
    lower, upper = _unit_lower(packed), triangle_of(packed, "upper")
    if below is not None:
        lower = np.concatenate([lower, below], -2)
    if beside is not None:
        upper = np.concatenate([upper, beside], -1)
    back = np.argsort(rows, axis=-1)
    if permute_l:
        return _taken(lower, back), upper
    if p_indices:
        return back, lower, upper
    order = back[..., None] == np.arange(np.shape(a)[-2])
    return order.astype(np.zeros((), a.dtype).real.dtype), lower, upper


def lu_factor(a: Any) -> tuple[Any, np.ndarray]:
    """(lu, piv) for `lu_solve`, as SciPy's: the factors, which are differentiable, and the exchanges of rows, integers.

    >>> import tapegrad as tg
    >>> lu, places = tg.linalg.lu_factor(tg.tensor([[4.0, 0.0], [2.0, 8.0]]))
    >>> lu
    tensor([[4. , 0. ],
            [0.5, 8. ]])
    """
    (a,) = stacks(a)
    _square_factors(
        a,
        "lu_factor",
        "Take P, L, U = tg.linalg.lu(a), which factorises rectangular matrices, too.",
    )
    lu, exchanged = lu_factors(a)
    return lu, np.real(raw(exchanged)).astype(np.intc)


def _square_factors(a: Any, asker: str, instead: str) -> None:
    if np.ndim(a) < 2 or np.shape(a)[-1] != np.shape(a)[-2]:
        raise LinAlgError(
            f"{asker} was given an array of shape {np.shape(a)}, but its last 2 dimensions must be square, since only such factors solve "
            f"systems. {instead}"
        )


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0) -> Any:
    """x from a x = b (trans=1: aᵀ x = b, trans=2: aᴴ x = b), with (lu, piv) from `lu_factor(a)`.

    For one right side, `solve(a, b)` has the cheaper derivative: it does not go through the factors.

    >>> import numpy as np, tapegrad as tg
    >>> factor = tg.linalg.lu_factor(tg.tensor([[4.0, 0.0], [0.0, 8.0]]))
    >>> tg.linalg.lu_solve(factor, np.ones(2))
    tensor([0.25 , 0.125])
    """
    lu, exchanged = lu_and_piv
    lu, b = stacks(lu, b)
    _square_factors(
        lu,
        "lu_solve",
        "Give it the factors of a square matrix, or solve a least-squares problem with np.linalg.lstsq.",
    )
    b, back = as_columns(b)
    rows = _rows_of(as_array(raw(exchanged)))
    if trans == 0:
        y = solution([lu, _taken(b, rows)], side="lower", unit=True)
        return back(solution([lu, y], side="upper"))
    if trans == 1:
        return back(conj(lu_solve((lu, exchanged), conj(b), 2)))
    y = solution([lu, b], adjoint=True, side="upper")
    return back(
        _taken(solution([lu, y], adjoint=True, side="lower", unit=True), np.argsort(rows, axis=-1))
    )


# ------------------------------------------------------------------------------------------------------- banded


def _solve_banded(xs: Sequence[np.ndarray], l_and_u: tuple[int, int]) -> np.ndarray:
    from scipy.linalg import solve_banded

    return each(lambda ab, b: solve_banded(l_and_u, ab, b), *xs)


def _band(l_and_u: tuple[int, int], n: int) -> tuple[np.ndarray, np.ndarray]:
    """For entry (k, j) of a band in LAPACK's layout: the matrix row it belongs to, and whether there is such a row."""
    lower, upper = l_and_u
    rows = np.arange(n) + np.arange(lower + upper + 1)[:, None] - upper
    return rows.clip(0, n - 1), (rows >= 0) & (rows < n)


def _adjoint_band(ab: Any, l_and_u: tuple[int, int]) -> Any:
    """The band of aᴴ (of widths (u, l)) from that of a."""
    n = ab.shape[-1]
    rows, inside = _band(l_and_u[::-1], n)
    flipped = sum(l_and_u) - np.arange(sum(l_and_u) + 1)[:, None]
    return np.where(inside, conj(ab[..., flipped, rows]), 0.0)


def _dominated(row: int, axis: int = -2) -> Domain:
    """Rows of small numbers but one: a band, or diagonals, of a matrix in which the diagonal dominates."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        x = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.1, 0.3, shape)
        np.moveaxis(x, axis, 0)[row] += 2
        return x

    return Domain("dominated", draw)


@primitive(
    _solve_banded,
    name="solve_banded",
    samples=[
        call((3, 4), (4, 2), l_and_u=(2, 0), domains=(_dominated(0), real)),
        call((4, 5), (5, 1), l_and_u=(1, 2), domains=(_dominated(2), real)),
        call((2, 3, 4), (4, 2), l_and_u=(1, 1), domains=(_dominated(1), real)),
        call((2, 4), (3, 1, 4, 1), l_and_u=(0, 1), domains=(_dominated(1), real)),
        call((2, 1, 2, 3), (3, 3, 2), l_and_u=(1, 0), domains=(_dominated(0), real)),
    ],
)
def banded_solution(g, xs, out, wanted, *, l_and_u):
    """x from a x = b, where a has l diagonals below and u above its own, given as their rows."""
    ab, _ = xs
    b_bar = banded_solution([_adjoint_band(ab, l_and_u), g], l_and_u=l_and_u[::-1])
    ab_bar = None
    if wanted[0]:
        rows, inside = _band(l_and_u, ab.shape[-1])
        pairs = b_bar[..., rows, :] * conj(out)[..., None, :, :]
        ab_bar = np.where(inside, -np.sum(pairs, axis=-1), 0.0)
    return [ab_bar, b_bar]


def solve_banded(l_and_u: tuple[int, int], ab: Any, b: Any) -> Any:
    """x from a x = b, where a has l diagonals below and u above its own: ab[u + i - j, j] is a[i, j].

    Both may be stacks, broadcast over their first axes; b is a vector only if it is 1-d.

    >>> import tapegrad as tg
    >>> ab = tg.tensor([[0.0, 1.0], [2.0, 4.0]])
    >>> tg.linalg.solve_banded((0, 1), ab, tg.tensor([5.0, 4.0]))
    tensor([2., 1.])
    """
    lower, upper = (int(width) for width in l_and_u)
    ab, b = stacks(ab, b)
    if np.ndim(ab) < 2:
        raise ValueError(
            f"solve_banded was given a band of shape {np.shape(ab)}, but needs a row per diagonal: {lower + upper + 1} rows, "
            "or a stack of such bands."
        )
    b, back = as_columns(b)
    return back(banded_solution([ab, b], l_and_u=(lower, upper)))


# ----------------------------------------------------------------------------------------------------- Toeplitz


def _places(rows: int, columns: int) -> np.ndarray:
    """Which entry of (r reversed, c) stands at each place of a Toeplitz matrix."""
    return np.arange(rows)[:, None] - np.arange(columns) + columns - 1


def _solve_toeplitz(xs: Sequence[np.ndarray]) -> np.ndarray:
    from scipy.linalg import solve_toeplitz

    diagonals, b = xs
    n = b.shape[-2]

    def one(rows: np.ndarray, b: np.ndarray) -> np.ndarray:
        # SciPy 1.13 asks for memory that may be written to.
        return solve_toeplitz((rows[0, n - 1 :], rows[0, n - 1 :: -1]), np.array(b))

    # Levinson's recursion runs in double precision only.
    return each(one, diagonals[..., None, :], b).astype(_inexact(diagonals, b))


@primitive(
    _solve_toeplitz,
    name="solve_toeplitz",
    samples=[
        call((5,), (3, 2), domains=(_dominated(2, -1), real)),
        call((7,), (4, 1), domains=(_dominated(3, -1), real)),
        call((2, 5), (3, 2), domains=(_dominated(2, -1), real)),
        call((5,), (2, 3, 1), domains=(_dominated(2, -1), real)),
        call((2, 1, 3), (3, 2, 1), domains=(_dominated(1, -1), real)),
    ],
)
def toeplitz_solution(g, xs, out, wanted):
    """x from a x = b, where the first operand holds the diagonals of a from the upper right to the lower left."""
    diagonals, _ = xs
    n = np.shape(out)[-2]
    b_bar = toeplitz_solution([conj(diagonals[..., ::-1]), g])
    a_bar = None
    if wanted[0]:
        # The first axes go last: a diagonal's entries are added up for each of them.
        entries = np.moveaxis(-np.matmul(b_bar, adjoint(out)), (-2, -1), (0, 1))
        summed = scatter(entries, _places(n, n), (2 * n - 1, *np.shape(entries)[2:]))
        a_bar = np.moveaxis(summed, 0, -1)
    return [a_bar, b_bar]


def toeplitz_diagonals(c_or_cr: Any) -> tuple[Any, int, int]:
    """The diagonals of a Toeplitz matrix from its first column (and row, else the column's conjugate); its shape."""
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    (c,) = stacks(c)
    r = conj(c) if r is None else stacks(r)[0]
    c, r = (np.reshape(x, (1,)) if np.ndim(x) == 0 else x for x in (c, r))
    lead = np.broadcast_shapes(np.shape(c)[:-1], np.shape(r)[:-1])
    c, r = (
        x if np.shape(x)[:-1] == lead else np.broadcast_to(x, (*lead, np.shape(x)[-1]))
        for x in (c, r)
    )
    return np.concatenate([r[..., :0:-1], c], axis=-1), np.shape(c)[-1], np.shape(r)[-1]


def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix with constant diagonals that has c as first column and r (by default conj(c)) as first row.

    >>> import tapegrad as tg
    >>> tg.linalg.toeplitz(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 5.0]))
    tensor([[1., 5.],
            [2., 1.]])
    """
    diagonals, rows, columns = toeplitz_diagonals((c, r))
    return diagonals[..., _places(rows, columns)]


def solve_toeplitz(c_or_cr: Any, b: Any) -> Any:
    """x from a x = b, where a = toeplitz(c) or toeplitz(c, r), by Levinson's recursion; so are its derivatives.

    All may be stacks, broadcast over their first axes; b is a vector only if it is 1-d.

    >>> import tapegrad as tg
    >>> tg.linalg.solve_toeplitz(tg.tensor([2.0, 1.0]), tg.tensor([4.0, 5.0]))
    tensor([1., 2.])
    """
    diagonals, rows, columns = toeplitz_diagonals(c_or_cr)
    (b,) = stacks(b)
    if rows != columns or np.ndim(b) == 0 or np.shape(b)[-2 if np.ndim(b) > 1 else 0] != rows:
        raise ValueError(
            f"solve_toeplitz was given a column of {rows} and a row of {columns} for a right side of shape {np.shape(b)}: "
            "their lengths must agree."
        )
    b, back = as_columns(b)
    return back(toeplitz_solution([diagonals, b]))


# --------------------------------------------------------------------------------------------- matrix equations


def _sylvester(a: np.ndarray, b: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Bartels and Stewart 1972, as SciPy's; but a singular equation raises, where SciPy returns a perturbed one's solution."""
    from scipy.linalg import schur

    dtype = _inexact(a, b, q)
    if not q.size:
        return np.zeros(q.shape, dtype)
    form = "complex" if dtype.kind == "c" else "real"
    r, u = schur(a, output=form)
    s, v = schur(b.conj().T, output=form)
    f = as_array(u.conj().T @ q @ v, dtype)
    y, scale, info = _fortran("trsyl", dtype)(as_array(r, dtype), as_array(s, dtype), f, tranb="C")
    if info:
        raise LinAlgError(
            "Singular matrix equation: a x + x b = q has no single solution, as a and -b share an eigenvalue."
        )
    return as_array(u @ (scale * y) @ v.conj().T, dtype)


@primitive(
    lambda xs: each(_sylvester, *xs),
    name="solve_sylvester",
    domain=(dominant, dominant, real),
    samples=[call((3, 3), (2, 2), (3, 2)), call((2, 3, 3), (3, 3), (3, 3))],
    holomorphic=False,  # it is, but rounding in the Schur form drowns a complex step
)
def sylvester_solution(g, xs, out, wanted):
    """x from a x + x b = q: the cotangent of q solves the equation with aᴴ and bᴴ."""
    a, b, _ = xs
    q_bar = sylvester_solution([adjoint(a), adjoint(b), g])
    return [
        -np.matmul(q_bar, adjoint(out)) if wanted[0] else None,
        -np.matmul(adjoint(out), q_bar) if wanted[1] else None,
        q_bar,
    ]


def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """x from a x + x b = q, also for stacks of matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.solve_sylvester(tg.eye(2), np.eye(2), np.ones((2, 2)))
    tensor([[0.5, 0.5],
            [0.5, 0.5]])
    """
    a, b, q = stacks(a, b, q)
    square(a, "solve_sylvester")
    square(b, "solve_sylvester")
    return sylvester_solution([a, b, q])


def solve_continuous_lyapunov(a: Any, q: Any) -> Any:
    """x from a x + x aᴴ = q, also for stacks of matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.solve_continuous_lyapunov(tg.eye(2), np.eye(2))
    tensor([[0.5, 0. ],
            [0. , 0.5]])
    """
    a, q = stacks(a, q)
    square(a, "solve_continuous_lyapunov")
    return sylvester_solution([a, adjoint(a), q])


def _discrete_lyapunov(a: np.ndarray, q: np.ndarray) -> np.ndarray:
    from scipy.linalg import solve_discrete_lyapunov

    return solve_discrete_lyapunov(a, q).astype(_inexact(a, q))


@primitive(
    lambda xs: each(_discrete_lyapunov, *xs),
    name="solve_discrete_lyapunov",
    domain=(dominant, real),
    samples=[call((3, 3), (3, 3)), call((2, 2, 2), (2, 2))],
    holomorphic=False,
)
def discrete_lyapunov_solution(g, xs, out, wanted):
    """x from a x aᴴ - x + q = 0: the cotangent of q solves the equation with aᴴ."""
    a, _ = xs
    q_bar = discrete_lyapunov_solution([adjoint(a), g])
    a_bar = None
    if wanted[0]:
        a_bar = q_bar @ a @ adjoint(out) + adjoint(q_bar) @ a @ out
    return [a_bar, q_bar]


def solve_discrete_lyapunov(a: Any, q: Any) -> Any:
    """x from a x aᴴ - x + q = 0, also for stacks of matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.solve_discrete_lyapunov(tg.eye(2) * 0.5, np.eye(2)).numpy().round(6)
    array([[1.333333, 0.      ],
           [0.      , 1.333333]])
    """
    a, q = stacks(a, q)
    square(a, "solve_discrete_lyapunov")
    return discrete_lyapunov_solution([a, q])


# ----------------------------------------------------------------------------------------- building matrices


def block_diag(*arrays: Any) -> Any:
    """The matrix with these matrices (or rows) along its diagonal, zeros elsewhere.

    >>> import tapegrad as tg
    >>> tg.linalg.block_diag(tg.tensor([[1.0]]), tg.tensor([[2.0, 3.0]]))
    tensor([[1., 0., 0.],
            [0., 2., 3.]])
    """
    blocks = [
        np.reshape(x, (1,) * (2 - np.ndim(x)) + np.shape(x)) if np.ndim(x) < 2 else x
        for x in stacks(*arrays)
    ]
    lead = np.broadcast_shapes(*(np.shape(x)[:-2] for x in blocks))
    widths = [np.shape(x)[-1] for x in blocks]
    rows = []
    for i, x in enumerate(blocks):
        x = np.broadcast_to(x, lead + np.shape(x)[-2:])
        before, after = (
            np.zeros((*lead, np.shape(x)[-2], sum(w)), x.dtype)
            for w in (widths[:i], widths[i + 1 :])
        )
        rows.append(np.concatenate([before, x, after], axis=-1))
    return np.concatenate(rows, axis=-2)
