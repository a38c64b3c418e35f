"""Jacobians of functions of a vector, for solvers: sparse matrices where the tape shows that few places are not zero.

A pattern is detected once, at the first point, for `MANY` unknowns or more, and is used if it fills at most the part `SPARSE`.
Measured on reaction and diffusion on a square (Brusselator, BDF): at 50 unknowns with 12 % of the places filled a sparse solution takes
1.6 times as long as a dense one and at 128 with 5 % half as long; at 2048 with 0.3 % it takes a fifteenth.

Invariant: each matrix is checked by a product with a random direction, since a branch may change the pattern; where the check fails the
pattern is detected again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..core.tensor import value_of
from ..errors import NotDifferentiable
from ..sparse.arrays import to_scipy
from ..transforms.derivatives import jacobian

MANY = 100
"""Unknowns from which on a sparse Jacobian is tried."""

SPARSE = 0.1
"""The part of a Jacobian's places up to which it counts as sparse."""


def is_sparse_enough(matrix: Any) -> bool:
    """Whether so few places of a sparse matrix are filled that solvers gain by it."""
    return bool(matrix.nnz <= SPARSE * matrix.shape[0] * matrix.shape[1])


def detected(f: Callable[..., Any], x: np.ndarray, *args: Any) -> Any:
    """The Jacobian by x as a sparse matrix; None where it is not sparse, or where nobody can tell."""
    try:
        matrix = jacobian(f, sparsity="detect", allow_unused=True)(x, *args)
    except (NotDifferentiable, TypeError):
        return None
    return to_scipy(matrix) if is_sparse_enough(matrix) else None


class Slopes:
    """The Jacobian of `f(x, *args)` by the vector x, at x: an array, or a sparse matrix of SciPy's.

    `dense` finds the array (by default from the tape). `sparsity` is "auto", or as in `tg.jacobian`, which makes it sparse in any case.
    `pattern` is that of the first result, None if this is dense.
    """

    def __init__(
        self, f: Callable[..., Any], dense: Callable[..., Any] | None = None, sparsity: Any = "auto"
    ) -> None:  # fmt: skip
        self.f, self.sparsity = f, sparsity
        self.dense = jacobian(f, allow_unused=True) if dense is None else dense
        self.pattern: Any = None
        self._sparse: Any = None
        self._first = True

    def __call__(self, x: np.ndarray, *args: Any) -> Any:
        if self._first:
            self._first = False
            return self._tried(x, args)
        if self._sparse is None:
            return np.asarray(value_of(self.dense(x, *args)))
        try:
            return to_scipy(self._sparse(x, *args))
        except NotDifferentiable:
            if not self._detects:
                raise
        matrix = to_scipy(jacobian(self.f, sparsity="detect", allow_unused=True)(x, *args))
        self._sparse = jacobian(self.f, sparsity=matrix, allow_unused=True)
        return matrix

    @property
    def _detects(self) -> bool:
        return isinstance(self.sparsity, str)

    def _tried(self, x: np.ndarray, args: Any) -> Any:
        """The first matrix, which decides."""
        matrix: Any = None
        if not self._detects or self.sparsity != "auto":
            self._sparse = jacobian(self.f, sparsity=self.sparsity, allow_unused=True)
            matrix = to_scipy(self._sparse(x, *args))
        elif x.size >= MANY:
            matrix = detected(self.f, x, *args)
        if matrix is None:
            return np.asarray(value_of(self.dense(x, *args)))
        self.pattern = matrix.copy()
        self.pattern.data = np.ones(matrix.nnz)
        if self._detects:
            self._sparse = jacobian(self.f, sparsity=self.pattern, allow_unused=True)
        return matrix


@cache
def with_real_systems(method: type) -> type:
    """SciPy's Radau, with a sparse complex system A + iB solved as the real one of twice as many unknowns.

    SuperLU's complex code takes 50 times as long as its real one (SciPy 1.17).
    """
    from scipy.sparse import block_array, issparse
    from scipy.sparse.linalg import splu

    class WithRealSystems(method):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Give the solver sparse LU factors; a complex system is solved as a real one of twice the size."""
            super().__init__(*args, **kwargs)
            if not issparse(self.J):
                return
            n = len(self.y)
            order = (
                np.arange(2 * n).reshape(2, n).T.ravel()
            )  # real and imaginary parts of an unknown side by side

            def lu(matrix: Any) -> Any:
                self.nlu += 1
                if matrix.dtype.kind != "c":
                    return splu(matrix)
                a, b = matrix.real, matrix.imag
                return splu(block_array([[a, -b], [b, a]], format="csc")[order][:, order])

            def solve(factors: Any, b: np.ndarray) -> np.ndarray:
                if b.dtype.kind != "c":
                    return factors.solve(b)  # type: ignore[no-any-return]
                return factors.solve(np.ascontiguousarray(b).view(float)).view(complex)  # type: ignore[no-any-return]

            self.lu, self.solve_lu = lu, solve

    WithRealSystems.__name__ = method.__name__
    return WithRealSystems


__all__ = ["Slopes", "detected", "is_sparse_enough", "with_real_systems"]
