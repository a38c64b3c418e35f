"""`tg.linalg`: differentiable linear algebra under NumPy's names, and under SciPy's for what NumPy has not.

Each function takes tensors, arrays and nested sequences, stacks of matrices included. NumPy's are the same as
`np.linalg.f(tensor)`; SciPy's are reached only here, as `scipy.linalg` does not ask tensors what to do. Where both have a
function of one name (solve, svd, norm, ...) it is NumPy's.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError, matrix_rank

from .core import elsewhere
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
from .ops.linear_forms import (
    cho_solve_banded,
    convolution_matrix,
    eig_banded,
    eigh_tridiagonal,
    eigvals_banded,
    eigvalsh_tridiagonal,
    fiedler,
    fractional_matrix_power,
    leslie,
    pinvh,
    signm,
    solve_continuous_are,
    solve_discrete_are,
    solveh_banded,
    subspace_angles,
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
from .ops.patterned import (
    circulant,
    companion,
    coshm,
    cosm,
    expm_frechet,
    hankel,
    khatri_rao,
    matmul_toeplitz,
    orthogonal_procrustes,
    sinhm,
    sinm,
    solve_circulant,
    tanhm,
    tanm,
)

__all__ = [
    "LinAlgError", "block_diag", "cho_factor", "cho_solve", "cho_solve_banded", "cholesky", "circulant", "companion", "cond",
    "convolution_matrix", "coshm", "cosm", "cross", "det", "diagonal", "eig", "eig_banded", "eigh", "eigh_tridiagonal",
    "eigvals", "eigvals_banded", "eigvalsh", "eigvalsh_tridiagonal", "expm", "expm_frechet", "fiedler",
    "fractional_matrix_power", "hankel", "inv", "khatri_rao", "leslie", "logm", "lstsq", "lu", "lu_factor", "lu_solve", "matmul",
    "matmul_toeplitz", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm",
    "orthogonal_procrustes", "outer", "pinv", "pinvh", "polar", "qr", "signm", "sinhm", "sinm", "slogdet", "solve",
    "solve_banded", "solve_circulant", "solve_continuous_are", "solve_continuous_lyapunov", "solve_discrete_are",
    "solve_discrete_lyapunov", "solve_sylvester", "solve_toeplitz", "solve_triangular", "solveh_banded", "sqrtm",
    "subspace_angles", "svd", "svdvals", "tanhm", "tanm", "tensordot", "tensorinv", "tensorsolve", "toeplitz", "trace", "vecdot",
    "vector_norm",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
