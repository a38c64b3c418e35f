"""Linear least squares under bounds: `nnls` and `lsq_linear`, differentiable by matrix, right-hand side and bounds.

SciPy's code finds which unknowns are at a bound. Where something is tracked, the others are the least squares solution of what is left of
the right-hand side: `np.linalg.lstsq` on the tape, in both modes and to any order.

Invariant: a derivative is given only where it exists. An unknown at its bound must be pushed against it, the free columns must be
independent, and what they give must lie inside the bounds; else there is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NotDifferentiable
from ..ops.composing import holds_tracked
from .interludes import interlude
from .linear_programs import WORST, joined, numbers
from .raveling import plain

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

SLACK = 1e-9
"""Part of a column's length times the residual's below which a push against a bound counts as none, and of an unknown's size."""


@interlude
def nnls(A: Any, b: Any, *, maxiter: int | None = None) -> tuple[Any, Any]:
    """The x >= 0 with the least |A x - b|, and that number; SciPy's `nnls`, differentiable by A and b.

    Raises NotDifferentiable where something is tracked and the solution is not unique or an unknown is about to leave its bound; what
    SciPy's raises else.

    >>> import numpy as np, tapegrad as tg
    >>> A = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> x, residual = tg.optimize.nnls(A, np.array([2.0, 1.0, -1.0]))
    >>> print(x, tg.jacobian(lambda b: tg.optimize.nnls(A, b)[0])(np.array([2.0, 1.0, -1.0])))
    [1.5 0. ] [[0.5 0.5 0. ]
     [0.  0.  0. ]]
    """
    from scipy import optimize

    values = [numbers(v, "nnls") for v in (A, b)]
    if values[0].ndim != 2 or values[1].ndim < 1:
        raise ValueError(
            f"nnls was given A of shape {values[0].shape} and b of shape {values[1].shape}, but it takes a matrix and a vector: pass these."
        )
    x, norm = optimize.nnls(*values, maxiter=maxiter)
    if not holds_tracked([A, b]):
        return x, norm
    x = _held("nnls", joined(A), joined(b), x, 0.0, np.inf, np.where(x > 0, 0, -1))
    rest = np.matmul(joined(A), x) - joined(b)
    return x, np.linalg.norm(rest)


@interlude
def lsq_linear(
    A: Any,
    b: Any,
    bounds: Any = (-np.inf, np.inf),
    method: str = "trf",
    tol: float = 1e-10,
    lsq_solver: str | None = None,
    lsmr_tol: Any = None,
    max_iter: int | None = None,
    verbose: int = 0,
    *,
    lsmr_maxiter: int | None = None,
) -> OptimizeResult:
    """Minimise |A x - b|² / 2 with lb <= x <= ub; SciPy's `lsq_linear`, whose `x`, `fun` and `cost` are differentiable by A, b and bounds.

    Arguments and results are SciPy's. Where something is tracked, A is dense, the unknowns at a bound are those of method "bvls", which
    ends on them, and NotDifferentiable is raised where the solution is not unique or an unknown is about to leave its bound.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda b: tg.optimize.lsq_linear(np.eye(2), b, (0.0, 1.0)).x
    >>> tg.jacobian(best)(np.array([0.25, 3.0]))
    array([[1., 0.],
           [0., 0.]])
    """
    from scipy import optimize, sparse

    linear = sparse.issparse(A) or isinstance(A, sparse.linalg.LinearOperator)
    sides = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else tuple(bounds)
    limits = tuple(numbers(side, "lsq_linear") for side in sides)
    matrix, right = A if linear else numbers(A, "lsq_linear"), numbers(b, "lsq_linear")
    result = optimize.lsq_linear(
        matrix, right, limits, method, tol, lsq_solver, lsmr_tol, max_iter, verbose, lsmr_maxiter=lsmr_maxiter
    )  # fmt: skip
    if not holds_tracked([A, b, *sides]):
        return result
    if linear:
        if not sparse.issparse(A):
            raise NotDifferentiable(
                "lsq_linear was given a LinearOperator and tracked values, but its columns are needed for derivatives. Pass A as an "
                "array or a sparse matrix, or detach() what is tracked."
            )
        A = matrix = A.toarray()
    ended = optimize.lsq_linear(matrix, right, limits, "bvls", 1e-15)
    A, b = joined(A), joined(b)
    low, high = (joined(side) for side in sides)
    result.x = _held("lsq_linear", A, b, ended.x, low, high, ended.active_mask)
    result.active_mask = ended.active_mask
    result.fun = np.matmul(A, result.x) - b
    result.cost = 0.5 * np.sum(result.fun**2)
    return result


def _held(what: str, A: Any, b: Any, x: np.ndarray, low: Any, high: Any, mask: np.ndarray) -> Any:
    """The solution near `x` as a function of matrix, right-hand side and bounds; `mask` is -1 and 1 where an unknown is at a bound."""
    low, high = (np.broadcast_to(side, x.shape) for side in (low, high))
    free = np.flatnonzero(mask == 0)
    held = [np.flatnonzero(mask == -1), np.flatnonzero(mask == 1)]
    fixed = [side[at] for side, at in zip((low, high), held, strict=True)]
    rest = b
    for at, value in zip(held, fixed, strict=True):
        if at.size:
            rest = rest - np.matmul(A[:, at], value)
    parts = [np.linalg.lstsq(A[:, free], rest, rcond=None)[0]] if free.size else []
    parts += [value for at, value in zip(held, fixed, strict=True) if at.size]
    found = np.concatenate(parts)[np.argsort(np.concatenate([free, *held]))]

    matrix, y = plain(A), plain(found)
    residual = matrix @ y - plain(b)
    lengths = np.linalg.norm(matrix, axis=0)
    loose = -mask * (matrix.T @ residual) <= SLACK * lengths * np.linalg.norm(plain(b))
    inside = (y >= plain(low) - SLACK * np.abs(y)) & (y <= plain(high) + SLACK * np.abs(y))
    dependent = free.size and not np.linalg.cond(matrix[:, free]) < WORST
    if dependent or np.any(loose & (mask != 0)) or not inside.all():
        raise NotDifferentiable(
            f"{what} was asked for derivatives, but the columns of free unknowns depend on each other, or an unknown at its bound is not "
            "pushed against it: the solution is not unique or has a kink. Remove columns, or change b or the bounds a little.",
            name="no-solution",
        )
    return found


__all__ = ["lsq_linear", "nnls"]
