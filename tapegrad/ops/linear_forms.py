"""Further functions of SciPy's linear algebra that are compositions of other ops: banded and tridiagonal matrices, powers, Riccati equations.

A band is SciPy's: a row of the array for each diagonal. Riccati's equations are solved by SciPy; three steps of Newton's method from
that solution (Kleinman 1968; Hewer 1971), in ops, keep its value and give it derivatives, exact up to the seventh order as each
step doubles the digits of a perturbation.

Invariant: no op of its own; where no argument is a tensor SciPy's own function runs.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..core.storage import StandIn
from ..errors import NotDifferentiable
from .composing import holds_tensor, operand, raw, scipys
from .linear_algebra import eigh, pinv, qr, svdvals
from .linear_systems import (
    solve,
    solve_banded,
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    stacks,
)
from .matrix_functions import expm, logm, sqrtm

_scipys = scipys("scipy.linalg")

STEPS = 3
"""Newton's steps of a Riccati equation: derivatives up to the order 2 ** STEPS - 1 are exact."""


# ------------------------------------------------------------------------------------------- bands


def _both_sides(ab: Any, lower: bool) -> tuple[Any, int]:
    """The whole band of a Hermitian matrix of which one side's diagonals are given, and how many there are beside the main one."""
    if np.ndim(ab) != 2 or not np.shape(ab)[0]:
        raise ValueError(
            f"a band was given of shape {np.shape(ab)}, but it has a row for each diagonal, the main one included."
        )
    u, n = np.shape(ab)[0] - 1, np.shape(ab)[1]
    rows, columns = np.arange(u)[:, None], np.arange(n)
    if lower:  # row i has a[j + i, j]; above the diagonal a[j - i, j] is its conjugate
        distance = u - rows
        other = np.where(
            columns >= distance, np.conj(ab[distance, np.maximum(columns - distance, 0)]), 0.0
        )
        return np.concatenate([other, ab]), u
    distance = (
        rows + 1
    )  # row u - i has a[j - i, j]; below the diagonal a[j + i, j] is its conjugate
    other = np.where(
        columns < n - distance,
        np.conj(ab[u - distance, np.minimum(columns + distance, n - 1)]),
        0.0,
    )
    return np.concatenate([ab, other]), u


@_scipys
def solveh_banded(
    ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False, lower: bool = False, check_finite: bool = True,
) -> Any:  # fmt: skip
    """x from a x = b, a being Hermitian, positive definite and given by the diagonals on one side; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.linalg.solveh_banded(tg.tensor([[2.0, 2.0], [1.0, 0.0]]), [3.0, 3.0], lower=True)
    tensor([1., 1.])
    """
    ab, b = stacks(ab, b)
    band, u = _both_sides(ab, lower)
    return solve_banded((u, u), band, b)


@_scipys
def cho_solve_banded(
    cb_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """x from a x = b by the banded Cholesky factor of a, as scipy.linalg.cholesky_banded makes it; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.linalg.cho_solve_banded((tg.tensor([[2.0, 2.0]]), False), [4.0, 8.0])
    tensor([1., 2.])
    """
    cb, lower = cb_and_lower
    cb, b = stacks(cb, b)
    whole, u = _both_sides(cb, bool(lower))
    main = np.conj(whole[u : u + 1])
    if lower:
        below, above = cb, np.concatenate([whole[:u], main])
    else:
        below, above = np.concatenate([main, whole[u + 1 :]]), cb
    return solve_banded((0, u), above, solve_banded((u, 0), below, b))


def _dense(band: Any, u: int) -> Any:
    """The matrix with a band of u diagonals on each side of the main one."""
    n = np.shape(band)[1]
    row, column = np.arange(n)[:, None], np.arange(n)
    inside = np.abs(row - column) <= u
    return np.where(inside, band[np.where(inside, u + row - column, 0), column], 0.0)


def _selected(w: Any, select: Any, select_range: Any) -> slice | np.ndarray:
    """Which eigenvalues are asked for: all, some by number, or those in a half-open interval."""
    if select in ("a", "all", 0):
        return slice(None)
    if select in ("i", "index", 2):
        first, last = (operator.index(i) for i in select_range)
        if not 0 <= first <= last < np.shape(w)[0]:
            raise ValueError("requested eigenvalue indices are not in range")
        return slice(first, last + 1)
    if select in ("v", "value", 1):
        values = raw(w)
        if isinstance(values, StandIn):
            raise NotDifferentiable(
                "eigenvalues in an interval were asked for inside a compiled program, where how many there are cannot be known. "
                "Select them by number, select='i'."
            )
        return (values > select_range[0]) & (values <= select_range[1])
    raise ValueError("select must be 'a', 'v' or 'i'")


def _found(a: Any, values_only: bool, select: Any, select_range: Any) -> Any:
    w, v = eigh(a)
    which = _selected(w, select, select_range)
    return w[which] if values_only else (w[which], v[:, which])


@_scipys
def eig_banded(
    a_band: Any, lower: bool = False, eigvals_only: bool = False, overwrite_a_band: bool = False, select: Any = "a",
    select_range: Any = None, max_ev: int = 0, check_finite: bool = True,
) -> Any:  # fmt: skip
    """Eigenvalues, in order, and vectors of a Hermitian band matrix; differentiable, by way of the dense matrix.

    >>> import tapegrad as tg
    >>> tg.linalg.eig_banded(tg.tensor([[2.0, 2.0], [1.0, 0.0]]), lower=True, eigvals_only=True)
    tensor([1., 3.])
    """
    (a_band,) = stacks(a_band)
    return _found(_dense(*_both_sides(a_band, lower)), eigvals_only, select, select_range)


@_scipys
def eigvals_banded(
    a_band: Any, lower: bool = False, overwrite_a_band: bool = False, select: Any = "a", select_range: Any = None,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    """Eigenvalues, in order, of a Hermitian band matrix; differentiable, by way of the dense matrix.

    >>> import tapegrad as tg
    >>> tg.linalg.eigvals_banded(tg.tensor([[0.0, 1.0], [2.0, 2.0]]))
    tensor([1., 3.])
    """
    return eig_banded(a_band, lower, True, select=select, select_range=select_range)


@_scipys
def eigh_tridiagonal(
    d: Any, e: Any, eigvals_only: bool = False, select: Any = "a", select_range: Any = None, check_finite: bool = True,
    tol: float = 0.0, lapack_driver: str = "auto",
) -> Any:  # fmt: skip
    """Eigenvalues, in order, and vectors of the symmetric matrix with diagonal d and neighbours e; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.linalg.eigh_tridiagonal(tg.tensor([2.0, 2.0]), [1.0], eigvals_only=True)
    tensor([1., 3.])
    """
    d, e = stacks(d, e)
    if np.ndim(d) != 1 or np.ndim(e) != 1 or np.shape(d)[0] != np.shape(e)[0] + 1:
        raise ValueError(f"d ({np.shape(d)}) must have one more element than e ({np.shape(e)})")
    if "c" in (d.dtype.kind, e.dtype.kind):
        raise TypeError("Only real arrays currently supported")
    band = np.stack([d, np.concatenate([e, np.zeros(1, e.dtype)])])
    return _found(_dense(*_both_sides(band, True)), eigvals_only, select, select_range)


@_scipys
def eigvalsh_tridiagonal(
    d: Any, e: Any, select: Any = "a", select_range: Any = None, check_finite: bool = True, tol: float = 0.0,
    lapack_driver: str = "auto",
) -> Any:  # fmt: skip
    """Eigenvalues, in order, of the symmetric matrix with diagonal d and neighbours e; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.linalg.eigvalsh_tridiagonal(tg.tensor([2.0, 2.0]), [1.0])
    tensor([1., 3.])
    """
    return eigh_tridiagonal(d, e, True, select, select_range)


# ------------------------------------------------------------------------------------------- functions of matrices


@_scipys
def fractional_matrix_power(A: Any, t: Any) -> Any:
    """A to the power t, a whole number or a fraction; differentiable by A and, of a matrix with a logarithm, by t.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.fractional_matrix_power(tg.tensor([[4.0, 0.0], [0.0, 9.0]]), 0.5).round(12)
    tensor([[2., 0.],
            [0., 3.]])
    """
    (A,) = stacks(A)
    if not holds_tensor(t) and float(t).is_integer():
        return np.linalg.matrix_power(A, int(t))
    return expm(t * logm(A))


@_scipys
def signm(A: Any) -> Any:
    """The matrix with A's eigenvectors and the signs of its eigenvalues; none of them may be 0.

    >>> import tapegrad as tg
    >>> tg.linalg.signm(tg.tensor([[2.0, 0.0], [0.0, -3.0]]))
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    """
    (A,) = stacks(A)
    return solve(sqrtm(np.matmul(A, A)), A)


@_scipys
def pinvh(
    a: Any,
    atol: Any = None,
    rtol: Any = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The pseudo-inverse of a Hermitian matrix, of which one triangle is read.

    >>> import tapegrad as tg
    >>> tg.linalg.pinvh(tg.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5, 0. ],
            [0. , 0. ]])
    """
    (a,) = stacks(a)
    if atol is not None or return_rank:
        raise NotDifferentiable(
            "pinvh was asked for atol= or return_rank=, which have no rule. Give rtol=, and take the rank from tg.linalg.matrix_rank."
        )
    part = np.tril(a) if lower else np.triu(a)
    rest = np.swapaxes(np.conj(np.tril(a, -1) if lower else np.triu(a, 1)), -1, -2)
    n = np.shape(a)[-1]
    eps = np.finfo(a.dtype).eps
    return pinv(part + rest, rtol=n * eps if rtol is None else rtol, hermitian=True)


@_scipys
def subspace_angles(A: Any, B: Any) -> Any:
    """The angles between the spaces of the columns of two matrices of full rank, the largest first; differentiable where they differ.

    >>> import tapegrad as tg
    >>> tg.linalg.subspace_angles(tg.tensor([[1.0], [0.0]]), [[1.0], [1.0]])
    tensor([0.78539816])
    """
    A, B = stacks(A, B)
    if np.ndim(A) != 2 or np.ndim(B) != 2 or np.shape(A)[0] != np.shape(B)[0]:
        raise ValueError(
            f"subspace_angles takes two matrices with one number of rows, got {np.shape(A)} and {np.shape(B)}."
        )
    p, q = qr(A)[0], qr(B)[0]
    if np.shape(p)[1] < np.shape(q)[1]:
        p, q = q, p
    overlap = np.conj(p.T) @ q
    cosines, sines = svdvals(overlap), svdvals(q - p @ overlap)
    # An angle is told by its sine where that is the smaller: sines fall, cosines rise with the angles in their order.
    k = np.shape(q)[1]
    cosines = cosines[::-1]
    near = cosines**2 >= 0.5
    small = np.arcsin(np.where(near, np.minimum(sines[:k], 1.0), 0.0))
    return np.where(near, small, np.arccos(np.where(near, 0.0, np.minimum(cosines, 1.0))))


@_scipys
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrix whose product with a vector of n entries is its convolution with a.

    >>> import tapegrad as tg
    >>> tg.linalg.convolution_matrix(tg.tensor([1.0, 2.0]), 2)
    tensor([[1., 0.],
            [2., 1.],
            [0., 2.]])
    """
    (a,) = stacks(a)
    n = operator.index(n)
    if n <= 0:
        raise ValueError("n must be a positive integer.")
    m = np.shape(a)[-1] if np.ndim(a) else 0
    if m == 0:
        raise ValueError(
            "convolution_matrix takes a vector of at least one number, or a stack of them."
        )
    if mode not in ("full", "valid", "same"):
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    place = np.arange(m + n - 1)[:, None] - np.arange(n)
    inside = (place >= 0) & (place < m)
    whole = np.where(inside, a[..., np.where(inside, place, 0)], 0.0)
    if mode == "full":
        return whole
    if mode == "valid":
        return whole[..., min(m, n) - 1 : max(m, n), :]
    first = (min(m, n) - 1) // 2
    return whole[..., first : first + max(m, n), :]


@_scipys
def leslie(f: Any, s: Any) -> Any:
    """The matrix of a population by ages: fecundities f in the first row, and survivals s below the diagonal.

    >>> import tapegrad as tg
    >>> tg.linalg.leslie(tg.tensor([1.0, 2.0]), [0.5])
    tensor([[1. , 2. ],
            [0.5, 0. ]])
    """
    f, s = stacks(f, s)
    n = np.shape(f)[-1] if np.ndim(f) and np.ndim(s) else 0
    if n < 2 or np.shape(s)[-1] != n - 1:
        raise ValueError(
            "The length of s must be one less than the length of f, which is 2 or more."
        )
    below = s[..., :, None] * np.eye(n - 1, n)
    first = np.broadcast_to(f[..., None, :], (*np.shape(below)[:-2], 1, n))
    return np.concatenate(
        [first, np.broadcast_to(below, (*np.shape(first)[:-2], n - 1, n))], axis=-2
    )


@_scipys
def fiedler(a: Any) -> Any:
    """The matrix of absolute differences of the entries of a.

    >>> import tapegrad as tg
    >>> tg.linalg.fiedler(tg.tensor([1.0, 4.0]))
    tensor([[0., 3.],
            [3., 0.]])
    """
    (a,) = stacks(a)
    return np.abs(a[..., :, None] - a[..., None, :])


# ------------------------------------------------------------------------------------------- Riccati's equations


def _called(name: str, *operands: Any) -> Any:
    """SciPy's function of numbers; in a traced program a call of it."""
    from scipy import linalg

    values = [raw(v) for v in operands]
    for value in values:
        if isinstance(value, StandIn):
            return value.called(getattr(linalg, name), values, name)
    return getattr(linalg, name)(*values)


def _problem(a: Any, b: Any, q: Any, r: Any, e: Any, s: Any, name: str) -> tuple[Any, ...]:
    """Checked matrices of a Riccati equation, in the coordinates where e is the identity."""
    a, b, q, r = stacks(a, b, q, r)
    if np.ndim(a) != 2 or np.ndim(b) != 2:
        raise ValueError(
            f"{name} was given a of shape {np.shape(a)} and b of shape {np.shape(b)}, but these are matrices: write a[None] for one row."
        )
    n, m = np.shape(a)[-1], np.shape(b)[-1]
    shapes = {"a": (a, (n, n)), "b": (b, (n, m)), "q": (q, (n, n)), "r": (r, (m, m))}
    for key, (value, shape) in shapes.items():
        if np.shape(value) != shape:
            raise ValueError(
                f"{name} was given {key} of shape {np.shape(value)}, but with these a and b it has the shape {shape}."
            )
        if value.dtype.kind == "c":
            raise NotDifferentiable(f"{name} was asked of a complex {key}, but only real equations have a rule. Write it in real numbers.")  # fmt: skip
    s = np.zeros((n, m)) if s is None else operand(s)
    if e is not None:
        back = np.swapaxes(np.linalg.inv(operand(e)), -1, -2)
        a, q, s = a @ back.T, back @ q @ back.T, back @ s
    return a, b, q, r, s


@_scipys
def solve_continuous_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    """X from aᵀXe + eᵀXa - (eᵀXb + s) r⁻¹ (bᵀXe + sᵀ) + q = 0, the stabilising one; differentiable by all matrices, real ones.

    >>> import tapegrad as tg
    >>> tg.linalg.solve_continuous_are(tg.tensor([[0.0]]), [[1.0]], [[4.0]], [[1.0]])
    tensor([[2.]])
    """
    a, b, q, r, s = _problem(a, b, q, r, e, s, "solve_continuous_are")
    # Without s: a turned by the part of the control that s asks for.
    a, q = a - b @ solve(r, s.T), q - s @ solve(r, s.T)
    x = _called("solve_continuous_are", a, b, q, r)
    for _ in range(STEPS):
        gain = solve(r, b.T @ x)
        closed = a - b @ gain
        x = solve_continuous_lyapunov(closed.T, -(q + gain.T @ r @ gain))
    return x


@_scipys
def solve_discrete_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    """X from aᵀXa - eᵀXe - (aᵀXb + s)(r + bᵀXb)⁻¹(bᵀXa + sᵀ) + q = 0, the stabilising one; differentiable by all matrices, real ones.

    >>> import tapegrad as tg
    >>> tg.linalg.solve_discrete_are(tg.tensor([[1.0]]), [[1.0]], [[1.0]], [[2.0]])
    tensor([[2.]])
    """
    a, b, q, r, s = _problem(a, b, q, r, e, s, "solve_discrete_are")
    x = _called("solve_discrete_are", a, b, q, r, np.eye(np.shape(a)[0]), s)
    for _ in range(STEPS):
        gain = solve(r + b.T @ x @ b, b.T @ x @ a + s.T)
        closed = a - b @ gain
        cross = s @ gain
        x = solve_discrete_lyapunov(closed.T, q + gain.T @ r @ gain - cross - cross.T)
    return x


__all__ = [
    "cho_solve_banded", "convolution_matrix", "eig_banded", "eigh_tridiagonal", "eigvals_banded", "eigvalsh_tridiagonal", "fiedler",
    "fractional_matrix_power", "leslie", "pinvh", "signm", "solve_continuous_are", "solve_discrete_are", "solveh_banded",
    "subspace_angles",
]  # fmt: skip
