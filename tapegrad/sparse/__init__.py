"""`tg.sparse`: sparse matrices as constants beside tracked arrays, and with entries that are tracked, under SciPy's names.

`scipy.sparse` matrices may stand in products with tensors (`A @ x`, `x @ A`); the functions here make sparse matrices whose entries are a
tensor. No derivative holds a dense matrix: a gradient by entries is there for the entries of the pattern only. `tg.sparse.linalg`
has the solvers.

Importing this module does not import SciPy; the first matrix does.
"""

from __future__ import annotations

from . import linalg
from .arrays import (
    SparseTensor,
    block_array,
    block_diag,
    bsr_array,
    coo_array,
    csc_array,
    csr_array,
    dia_array,
    diags_array,
    eye_array,
    hstack,
    issparse,
    kron,
    matmul,
    tril,
    triu,
    vstack,
)

__all__ = [
    "SparseTensor",
    "block_array",
    "block_diag",
    "bsr_array",
    "coo_array",
    "csc_array",
    "csr_array",
    "dia_array",
    "diags_array",
    "eye_array",
    "hstack",
    "issparse",
    "kron",
    "linalg",
    "matmul",
    "tril",
    "triu",
    "vstack",
]


def __dir__() -> list[str]:
    return __all__
