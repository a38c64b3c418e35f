"""`tg.linalg`: differentiable linear algebra under NumPy's names, and under SciPy's for what NumPy has not.

Each function takes tensors, arrays and nested sequences, stacks of matrices included. NumPy's are the same as
`np.linalg.f(tensor)`; SciPy's are reached only here, as `scipy.linalg` does not ask tensors what to do. Where both have a
function of one name (solve, svd, norm, ...) it is NumPy's.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError, matrix_rank

from .ops.linear_algebra import (
    cho_factor,
    cholesky,
    cond,
    cross,
    det,
    diagonal,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    lstsq,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_transpose,
    multi_dot,
    norm,
    outer,
    pinv,
    qr,
    slogdet,
    svd,
    svdvals,
    tensordot,
    tensorinv,
    trace,
    vecdot,
    vector_norm,
)
from .ops.linear_systems import (
    block_diag,
    cho_solve,
    lu,
    lu_factor,
    lu_solve,
    solve,
    solve_banded,
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    solve_sylvester,
    solve_toeplitz,
    solve_triangular,
    tensorsolve,
    toeplitz,
)
from .ops.matrix_functions import expm, logm, polar, sqrtm

__all__ = [
    "LinAlgError",
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "logm",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "polar",
    "qr",
    "slogdet",
    "solve",
    "solve_banded",
    "solve_continuous_lyapunov",
    "solve_discrete_lyapunov",
    "solve_sylvester",
    "solve_toeplitz",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "toeplitz",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return __all__
