"""Further solvers of sparse systems under SciPy's names: `lsqr` and `lsmr` for least squares, and iterations of other kinds.

SciPy's iterations of least squares say how they went. Where something is tracked their solution comes from one sparse factorisation of the
system that it solves with its residual, [[I, A], [Aᴴ, -damp² I]], so that derivatives are exact and cost one more solution.

Invariant: where no argument is tracked SciPy's own function runs. `linalg.py` shows these names, so this file imports it late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, operand, raw
from .arrays import SparseTensor, block_array, csr_array, eye_array, is_sparse


def _fit(name: str, A: Any, b: Any, damp: Any, settings: dict[str, Any]) -> tuple[Any, ...]:
    """SciPy's report of a fit, whose solution, and residual, are functions of A, b and damp."""
    from scipy.sparse import linalg

    from .linalg import LinearOperator, spsolve

    if not (holds_tensor((A, b, damp)) or isinstance(A, SparseTensor | LinearOperator)):
        return getattr(linalg, name)(A, b, damp, **settings)
    if not is_sparse(A) and not isinstance(A, Tensor | np.ndarray | list):
        raise NotDifferentiable(
            f"{name} was given a LinearOperator beside tensors, but its solution comes from a factorisation. Give a sparse or dense "
            "matrix, or solve the normal equations with tg.sparse.linalg.cg."
        )
    a = csr_array(A if is_sparse(A) else operand(A))
    b = np.ravel(operand(b))
    m, n = a.shape
    if np.shape(b) != (m,):
        raise ValueError(
            f"{name} was given a matrix with {m} rows and a right side of {np.shape(b)[0]} entries: lengths must agree."
        )
    report = list(
        getattr(linalg, name)(a.detach().to_scipy(), np.asarray(raw(b)), raw(damp), **settings)
    )
    damped = holds_tensor(damp) or damp != 0
    if not damped and m < n:
        if settings.get("x0") is not None:
            raise NotDifferentiable(
                f"{name} was given x0 with fewer equations than unknowns, where the solution depends on it. Solve for the difference to x0."
            )
        whole = block_array([[eye_array(n), -1.0 * a.T.conj()], [a, None]])
        x = spsolve(whole, np.concatenate([np.zeros(n), b]))[:n]
    else:
        corner = eye_array(n) * (-1.0 * damp * damp) if damped else None
        whole = block_array([[eye_array(m), a], [a.T.conj(), corner]])
        x = spsolve(whole, np.concatenate([b, np.zeros(n)]))[m:]
    rest = np.linalg.norm(b - a @ x)
    size = np.linalg.norm(x)
    both = np.sqrt(rest**2 + (damp * size) ** 2) if damped else rest
    report[0] = x
    if name == "lsqr":
        report[3], report[4], report[8] = rest, both, size
    else:
        report[3], report[7] = both, size
    return tuple(report)


def lsqr(
    A: Any, b: Any, damp: Any = 0.0, atol: float = 1e-6, btol: float = 1e-6, conlim: float = 1e8, iter_lim: int | None = None,
    show: bool = False, calc_var: bool = False, x0: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The x with the least |A x - b|² + damp² |x|², and SciPy's report of it (10 entries); differentiable by A, b and damp.

    x and the norms r1norm, r2norm and xnorm are functions of the arguments; the other entries are SciPy's, and constant.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    >>> tg.grad(lambda b: tg.sparse.linalg.lsqr(A, b)[0][0])(np.array([1.0, 2.0, 4.0]))
    array([0.5, 0.5, 0. ])
    """
    settings = {
        "atol": atol, "btol": btol, "conlim": conlim, "iter_lim": iter_lim, "show": show, "calc_var": calc_var, "x0": x0,
    }  # fmt: skip
    return _fit("lsqr", A, b, damp, settings)


def lsmr(
    A: Any, b: Any, damp: Any = 0.0, atol: float = 1e-6, btol: float = 1e-6, conlim: float = 1e8, maxiter: int | None = None,
    show: bool = False, x0: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The x with the least |A x - b|² + damp² |x|², and SciPy's report of it (8 entries); differentiable by A, b and damp, as `lsqr` is.

    x and the norms normr and normx are functions of the arguments; the other entries are SciPy's, and constant.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    >>> tg.grad(lambda b: tg.sparse.linalg.lsmr(A, b)[0][1])(np.array([1.0, 2.0, 4.0]))
    array([0. , 0. , 0.5])
    """
    settings = {
        "atol": atol, "btol": btol, "conlim": conlim, "maxiter": maxiter, "show": show, "x0": x0,
    }  # fmt: skip
    return _fit("lsmr", A, b, damp, settings)


def _iteration(name: str, told: str) -> Callable[..., tuple[Any, int]]:
    """One of SciPy's iterations for any square A, with its settings by keyword."""

    def solver(
        A: Any, b: Any, x0: Any = None, *, M: Any = None, **settings: Any
    ) -> tuple[Any, int]:
        """(x, info) from A x = b."""
        from .linalg import _iterated

        return _iterated(name, A, b, x0, M, settings)

    solver.__name__ = solver.__qualname__ = name
    solver.__doc__ = f"(x, info) from A x = b by {told}, for any square A; SciPy's `{name}` and its settings, differentiable as `cg` is."
    return solver


bicg = _iteration("bicg", "biconjugate gradients")
cgs = _iteration("cgs", "squared conjugate gradients")
gcrotmk = _iteration("gcrotmk", "flexible GCROT")
lgmres = _iteration("lgmres", "loose generalised minimal residuals")
tfqmr = _iteration("tfqmr", "quasi-minimal residuals without transpose")

__all__ = ["bicg", "cgs", "gcrotmk", "lgmres", "lsmr", "lsqr", "tfqmr"]
