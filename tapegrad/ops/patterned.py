"""Matrices of a pattern, and functions of matrices, that are compositions of other ops: SciPy's names for what is one line of NumPy.

Each takes what SciPy's takes, stacks of vectors or matrices included, and has the derivatives of its parts. Invariant: no op of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .linear_algebra import svd
from .linear_systems import solve, square, stacks, toeplitz
from .matrix_functions import expm, expm_tangent


def _vectors(asker: str, *values: Any) -> tuple[Any, ...]:
    """The arguments as tensors or arrays, of which none is a number."""
    found = stacks(*values)
    if not all(map(np.ndim, found)):
        raise ValueError(
            f"{asker} was given a number, but it takes vectors (or stacks of them): write [x] for a vector of one entry."
        )
    return found


def circulant(c: Any) -> Any:
    """The square matrix whose first column is c and whose columns are turned one further each.

    >>> import tapegrad as tg
    >>> tg.linalg.circulant(tg.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 3., 2.],
            [2., 1., 3.],
            [3., 2., 1.]])
    """
    (c,) = _vectors("circulant", c)
    n = np.shape(c)[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)) % n]


def hankel(c: Any, r: Any = None) -> Any:
    """The matrix with constant antidiagonals that has c as first column and r, by default zeros, as last row (its first entry is c's last).

    >>> import tapegrad as tg
    >>> tg.linalg.hankel(tg.tensor([1.0, 2.0]), tg.tensor([9.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    (c,) = _vectors("hankel", c)
    (r,) = _vectors("hankel", np.zeros(np.shape(c), c.dtype) if r is None else r)
    values = np.concatenate([c, r[..., 1:]], axis=-1)
    return values[..., np.arange(np.shape(c)[-1])[:, None] + np.arange(np.shape(r)[-1])]


def companion(a: Any) -> Any:
    """The matrix whose eigenvalues are the roots of the polynomial with coefficients a, that of the highest power first.

    >>> import tapegrad as tg
    >>> tg.linalg.companion(tg.tensor([1.0, -3.0, 2.0]))
    tensor([[ 3., -2.],
            [ 1.,  0.]])
    """
    (a,) = _vectors("companion", a)
    if np.shape(a)[-1] < 2:
        raise ValueError(
            f"companion was given {np.shape(a)[-1]} coefficients, but a polynomial with a root has 2 or more: give one for each power."
        )
    first = (-a[..., 1:] / a[..., :1])[..., None, :]
    n = np.shape(first)[-1]
    rest = np.broadcast_to(np.eye(n - 1, n), (*np.shape(first)[:-2], n - 1, n))
    return np.concatenate([first, rest], axis=-2)


def khatri_rao(a: Any, b: Any) -> Any:
    """The Kronecker products of the columns of two matrices, column by column.

    >>> import tapegrad as tg
    >>> tg.linalg.khatri_rao(tg.tensor([[1.0, 2.0]]), tg.tensor([[3.0, 4.0], [5.0, 6.0]]))
    tensor([[ 3.,  8.],
            [ 5., 12.]])
    """
    a, b = stacks(a, b)
    product = a[..., :, None, :] * b[..., None, :, :]
    return np.reshape(product, (*np.shape(product)[:-3], -1, np.shape(product)[-1]))


def matmul_toeplitz(c_or_cr: Any, x: Any) -> Any:
    """The product of toeplitz(c), or of toeplitz(c, r) for a pair, and x.

    >>> import tapegrad as tg
    >>> tg.linalg.matmul_toeplitz(tg.tensor([2.0, 1.0]), tg.tensor([1.0, 2.0]))
    tensor([4., 5.])
    """
    (x,) = stacks(x)
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    return np.matmul(toeplitz(c, r), x)


def solve_circulant(c: Any, b: Any) -> Any:
    """x from circulant(c) x = b, a vector or the columns of a matrix, by Fourier transforms.

    >>> import tapegrad as tg
    >>> tg.linalg.solve_circulant(tg.tensor([2.0, 1.0]), tg.tensor([4.0, 5.0]))
    tensor([1., 2.])
    """
    c, b = _vectors("solve_circulant", c, b)
    factors = np.fft.fft(c) if np.ndim(b) == 1 else np.fft.fft(c)[..., None]
    axis = -1 if np.ndim(b) == 1 else -2
    x = np.fft.ifft(np.fft.fft(b, axis=axis) / factors, axis=axis)
    return x if "c" in (c.dtype.kind, b.dtype.kind) else np.real(x)


def orthogonal_procrustes(a: Any, b: Any) -> tuple[Any, Any]:
    """The orthogonal matrix R with the least |a R - b|, and the sum of the singular values of aᵀ b.

    >>> import numpy as np, tapegrad as tg
    >>> r, scale = tg.linalg.orthogonal_procrustes(tg.tensor([[2.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 2.0], [-1.0, 0.0]]))
    >>> print(np.round(r.numpy()), scale.item())
    [[ 0.  1.]
     [-1.  0.]] 5.0
    """
    a, b = stacks(a, b)
    u, s, vh = svd(np.matmul(np.conj(np.swapaxes(a, -1, -2)), b))
    return np.matmul(u, vh), np.sum(s, axis=-1)


def coshm(a: Any) -> Any:
    """Hyperbolic cosine of square matrices.

    >>> import tapegrad as tg
    >>> tg.linalg.coshm(tg.zeros((2, 2)))
    tensor([[1., 0.],
            [0., 1.]])
    """
    (a,) = stacks(a)
    return (expm(a) + expm(-a)) / 2


def sinhm(a: Any) -> Any:
    """Hyperbolic sine of square matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.trace(tg.linalg.sinhm(x)))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    (a,) = stacks(a)
    return (expm(a) - expm(-a)) / 2


def tanhm(a: Any) -> Any:
    """Hyperbolic tangent of square matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.trace(tg.linalg.tanhm(x)))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    return solve(coshm(a), sinhm(a))


def _turned(a: Any) -> tuple[Any, Any]:
    """Cosine and sine: blocks of the exponential of the block matrix of a turn, which is one of real numbers."""
    (a,) = stacks(a)
    none = np.zeros(np.shape(a), a.dtype)
    above, below = np.concatenate([none, -a], axis=-1), np.concatenate([a, none], axis=-1)
    turned, n = expm(np.concatenate([above, below], axis=-2)), np.shape(a)[-1]
    return turned[..., :n, :n], turned[..., n:, :n]


def cosm(a: Any) -> Any:
    """Cosine of square matrices.

    >>> import tapegrad as tg
    >>> tg.linalg.cosm(tg.zeros((2, 2)))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return _turned(a)[0]


def sinm(a: Any) -> Any:
    """Sine of square matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.trace(tg.linalg.sinm(x)))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    return _turned(a)[1]


def tanm(a: Any) -> Any:
    """Tangent of square matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.trace(tg.linalg.tanm(x)))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    return solve(*_turned(a))


def expm_frechet(a: Any, e: Any, compute_expm: bool = True) -> Any:
    """The exponential of a and its derivative along e; the latter alone without `compute_expm`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.expm_frechet(tg.zeros((2, 2)), np.ones((2, 2)))[1]
    tensor([[1., 1.],
            [1., 1.]])
    """
    a, e = stacks(a, e)
    square(a, "expm_frechet")
    square(e, "expm_frechet")
    along = expm_tangent(a, e)
    return (expm(a), along) if compute_expm else along


__all__ = [
    "circulant", "companion", "coshm", "cosm", "expm_frechet", "hankel", "khatri_rao", "matmul_toeplitz", "orthogonal_procrustes", "sinhm",
    "sinm", "solve_circulant", "tanhm", "tanm",
]  # fmt: skip
