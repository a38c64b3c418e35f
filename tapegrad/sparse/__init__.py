"""`tg.sparse`: sparse matrices as constants beside tracked arrays, and with entries that are tracked, under SciPy's names.

`scipy.sparse` matrices may stand in products with tensors (`A @ x`, `x @ A`); the functions here make sparse matrices whose entries are a
tensor. No derivative holds a dense matrix: a gradient by entries is there for the entries of the pattern only. `tg.sparse.linalg`
has the solvers.

Importing this module does not import SciPy; the first matrix does.
"""

from __future__ import annotations

from typing import Any

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
    "SparseTensor", "block_array", "block_diag", "bsr_array", "coo_array", "csc_array", "csr_array", "dia_array", "diags_array",
    "eye_array", "hstack", "issparse", "kron", "linalg", "matmul", "tril", "triu", "vstack",
]  # fmt: skip

OLDER = {
    "diags": "diags_array", "eye": "eye_array", "identity": "eye_array", "bmat": "block_array", "spdiags": "diags_array",
}  # fmt: skip
"""Names of SciPy's that make its older matrices, and those of the functions here."""


def __getattr__(name: str) -> Any:
    """An AttributeError that tells what to write for a name of SciPy's."""
    message = f"module {__name__!r} has no attribute {name!r}"
    instead = OLDER.get(name, name.replace("_matrix", "_array"))
    if instead in __all__ and instead != name:
        message += f": write tg.sparse.{instead}."
    elif name in linalg.__all__:
        message += f": write tg.sparse.linalg.{name}."
    elif name in ("lil_array", "lil_matrix", "dok_array", "dok_matrix"):
        message += (
            ": matrices of tracked entries have a fixed pattern, so collect rows, columns and values in lists and write "
            "tg.sparse.coo_array((values, (rows, columns)), shape)."
        )
    raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
