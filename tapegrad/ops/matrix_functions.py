"""Functions of square matrices as matrices: exponential, logarithm, square root, polar factors.

The derivative of a primary function f of a matrix is Fréchet's: f of the block matrix [[a, e], [0, a]] has f(a) on its diagonal
and the tangent L(a, e) in the corner (Mathias 1996, "A chain rule for matrix functions"), and L is its own adjoint but for
transposes, ā = L(a, f̄ᴴ)ᴴ (Higham 2008, "Functions of Matrices", section 3). So f alone suffices for its derivatives of
every order; and equal eigenvalues, where a way through eigenvectors would fail, do not matter. Square roots and polar factors
solve a Sylvester equation instead, which is cheaper.

Invariant: each works on stacks of matrices, and returns the dtype that SciPy's function finds right for the values. SciPy is
imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from ..core.domain import dominant, real
from ..core.primitive import call, primitive
from ..core.storage import as_array
from .composing import raw
from .linear_systems import adjoint, each, solve_sylvester, stacks

# logm and sqrtm are holomorphic, but rounding in their Schur forms drowns a complex step.
_STACKS = [call((3, 3)), call((2, 2, 2))]


def _block(a: Any, e: Any) -> tuple[Any, Any]:
    """The block matrix of a with c e in the corner, and c.

    The tangent is linear in e, so e is made as large as a: what is done to the block matrix is chosen by its size.
    """
    of_a, of_e = (np.max(np.abs(raw(x)), initial=0) for x in (a, e))
    # Chosen by np.where, which a compiled program computes with, where Python would look at the sizes.
    usable = (of_a > 0) & (of_e > 0) & np.isfinite(of_a) & np.isfinite(of_e)
    factor = np.where(usable, of_a, 1) / np.where(usable, of_e, 1)
    return _blocks(a, factor * e, np.zeros(np.shape(a), a.dtype), a), factor


def _blocks(a: Any, b: Any, c: Any, d: Any) -> Any:
    """[[a, b], [c, d]]"""
    rows = [np.concatenate(row, axis=-1) for row in ([a, b], [c, d])]
    return np.concatenate(rows, axis=-2)


def _frechet(f: Callable[[Any], Any], a: Any, e: Any) -> Any:
    """The tangent of f(a) along e."""
    n = np.shape(a)[-1]
    block, factor = _block(a, e)
    return f(block)[..., :n, n:] / factor


def _expm(x: np.ndarray) -> np.ndarray:
    from scipy.linalg import expm

    return expm(x) if x.size else np.array(x)


AS_BLOCKS = 24
"""Rows of the largest matrix for which the exponential of the block matrix takes less time than SciPy's way to the tangent."""


def _corner_of_expm(a: np.ndarray, e: np.ndarray) -> np.ndarray:
    """`_frechet` of `_expm`, of plain arrays."""
    n = a.shape[-1]
    of_a, of_e = (float(np.abs(x).max(initial=0)) for x in (a, e))
    factor = of_a / of_e if 0 < of_a < np.inf and 0 < of_e < np.inf else 1.0
    block = np.zeros((*a.shape[:-2], 2 * n, 2 * n), np.result_type(a, e))
    block[..., :n, :n] = block[..., n:, n:] = a
    block[..., :n, n:] = factor * e
    return _expm(block)[..., :n, n:] / factor


def _tangent_of_expm(a: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Its derivative by e's side of the algorithm is a third of the work (Al-Mohy and Higham 2009)."""
    dtype = np.result_type(a, e)
    if a.shape[-1] <= AS_BLOCKS or not (np.isfinite(a).all() and np.isfinite(e).all()):
        return _corner_of_expm(a, e)
    from scipy.linalg import expm_frechet

    def one(a: np.ndarray, e: np.ndarray) -> np.ndarray:
        return expm_frechet(a, e, compute_expm=False, check_finite=False)

    return each(one, as_array(a, dtype), as_array(e, dtype)).astype(dtype, copy=False)


def _back_along(g, x):
    return adjoint(expm_tangent(x, adjoint(g)))


@primitive(
    _tangent_of_expm,
    _back_along,
    name="expm_tangent",
    domain=(dominant, real),
    samples=[call((3, 3), (3, 3)), call((2, 2, 2), (2, 2, 2))],
)
def expm_tangent(g, x, y):
    """The tangent L(a, e) of the exponential of a along e, linear in e: of its derivative by a, the corner of the block matrix's.

    With the block matrix m of a and e, L is a corner of exp(m), so a has what the derivative of exp(m) has in both diagonal blocks.
    """
    n = np.shape(x)[-1]
    m, factor = _block(x, y)
    none = np.zeros(np.shape(g), g.dtype)
    back = adjoint(expm_tangent(m, _blocks(none, none, adjoint(g) / factor, none)))
    return back[..., :n, :n] + back[..., n:, n:]


@primitive(
    _expm,
    name="expm",
    domain=dominant,
    samples=_STACKS,
    jvp=lambda ts, xs, out: expm_tangent(xs[0], ts[0]),
)
def expm(g, x):
    """Exponential of square matrices.

    >>> import tapegrad as tg
    >>> tg.linalg.expm(tg.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return adjoint(expm_tangent(x, adjoint(g)))


def _in_double(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """SciPy's logm and sqrtm of single precision give up accuracy or change dtype: they are run in double."""
    wide = as_array(x, np.result_type(x, np.float64))
    result = each(function, wide)
    return result.astype(
        np.result_type(x, np.float32 if result.dtype.kind != "c" else np.complex64)
    )


def _demand_square(x: np.ndarray, name: str) -> None:
    """SciPy's sqrtm takes the exponential of a number, for one."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise LinAlgError(
            f"{name} was asked of an array of shape {x.shape}, but it takes a square matrix, or a stack: use np.{name[:-1]} for entries."
        )


def _logm(x: np.ndarray) -> np.ndarray:
    from scipy.linalg import logm

    _demand_square(x, "logm")
    return _in_double(logm, x) if x.size else np.array(x)


@primitive(
    _logm,
    name="logm",
    domain=dominant,
    samples=[call((2, 2))],
    holomorphic=False,
    jvp=lambda ts, xs, out: _frechet(logm, xs[0], ts[0]),
)
def logm(g, x):
    """Principal logarithm of square matrices without eigenvalues on the closed negative real axis.

    >>> import tapegrad as tg
    >>> tg.linalg.logm(tg.eye(2)).numpy().round(6)
    array([[0., 0.],
           [0., 0.]])
    """
    return adjoint(_frechet(logm, x, adjoint(g)))


def _sqrtm(x: np.ndarray) -> np.ndarray:
    from scipy.linalg import sqrtm

    _demand_square(x, "sqrtm")
    return _in_double(sqrtm, x) if x.size else np.array(x)


@primitive(_sqrtm, name="sqrtm", domain=dominant, samples=_STACKS, holomorphic=False)
def sqrtm(g, out):
    """Principal square root r of square matrices: ṙ r + r ṙ = ȧ.

    >>> import tapegrad as tg
    >>> tg.linalg.sqrtm(tg.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    back = adjoint(out)
    return solve_sylvester(back, back, g)


def _unitary_factor(x: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(x)):  # LAPACK may look for the singular vectors for ever
        raise LinAlgError(
            "polar was asked of a matrix with entries that are infinite or NaN, which has no polar decomposition. Mask them before."
        )
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    if s.size and np.min(s) == 0:
        raise LinAlgError("Singular matrix: it has many polar decompositions.")
    return u @ vh


@primitive(
    _unitary_factor,
    name="unitary_factor",
    domain=dominant,
    samples=[*_STACKS, call((3, 2))],
    holomorphic=False,
)
def unitary_factor(g, x, out):
    """The unitary U of a = U P, with P positive definite.

    U̇ = U Ω + (1 - U Uᴴ) ȧ P⁻¹, the antisymmetric Ω solving P Ω + Ω P = Uᴴ ȧ - ȧᴴ U (Higham 2008, section 8).
    """
    p = np.matmul(adjoint(out), x)
    p = 0.5 * (p + adjoint(p))
    of_u = np.matmul(adjoint(out), g)
    turn = solve_sylvester(p, p, of_u)
    outside = adjoint(np.linalg.solve(p, adjoint(g - np.matmul(out, of_u))))
    return np.matmul(out, turn - adjoint(turn)) + outside


def polar(a: Any, side: str = "right") -> tuple[Any, Any]:
    """(U, P) with a = U P (side="left": a = P U), U with orthonormal columns (rows) and P positive definite.

    Differentiable where a has full rank and at least as many rows as columns (side="left": columns as rows).

    >>> import tapegrad as tg
    >>> u, p = tg.linalg.polar(tg.tensor([[2.0, 0.0], [0.0, 3.0]]))
    >>> p.numpy().round(6)
    array([[2., 0.],
           [0., 3.]])
    """
    if side not in ("right", "left"):
        raise ValueError(f"polar was given side={side!r}, but it is 'right' or 'left'.")
    (a,) = stacks(a)
    if np.ndim(a) < 2:
        raise LinAlgError(
            f"polar was asked of an array of shape {np.shape(a)}, but it takes matrices: reshape it to two axes."
        )
    tall = a if side == "right" else adjoint(a)
    if np.shape(tall)[-2] < np.shape(tall)[-1]:
        raise LinAlgError(
            f"polar was asked of a matrix of shape {np.shape(a)[-2:]} with side={side!r}, but then P would be singular and U "
            f"not smooth. Use side={'left' if side == 'right' else 'right'!r}."
        )
    u = unitary_factor(tall)
    p = np.matmul(adjoint(u), tall)
    p = 0.5 * (p + adjoint(p))
    return (u, p) if side == "right" else (adjoint(u), p)
