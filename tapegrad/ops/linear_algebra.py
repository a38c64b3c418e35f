"""NumPy's linear algebra: inverses, determinants, decompositions and norms of matrices, stacks of them included.

The formulas are those of Giles 2008, "Collected matrix derivative results", and, for what that leaves out, of the papers
named beside each rule. Two things are decided here once, for all decompositions:

*Choices.* Eigenvectors and singular vectors are defined up to a factor of length 1, which for real matrices is a sign
(locally constant: nothing to say) and for complex ones a phase. A cotangent that depends on the phase asks for the derivative
of somebody's choice: it is refused (`_refuse_choice`). Where eigenvalues (or singular values) are equal, whole bases are
a choice, and the derivative of a basis does not exist; not even for functions that do not depend on it is it known:
tr(M V Vᵀ) and tr(M V Λ Vᵀ) hand the same cotangents to V at Λ = 1, yet have different gradients. So anything asked of such
vectors is refused (`_refuse_equal`), and a tangent that would turn them among themselves, too (`ratio`, the one division by
gaps). Eigenvalues themselves are fine; where they are equal, their gradient is that of the basis LAPACK chose, a subgradient
for the largest and the sum of the largest ones.

*Triangles.* `eigh`, `eigvalsh` and `cholesky` read one triangle, as NumPy does. The gradient is that of the function
of the matrix they are given: it stands in that triangle, entries off the diagonal counting for both.

Invariant: a rule returns the derivative of the value that NumPy computed, or raises; never another finite number.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.linalg import LinAlgError

from ..core.domain import Domain, dominant, real
from ..core.primitive import call, conj, primitive, several
from ..core.tensor import wrap
from ..errors import NotDifferentiable
from . import linear_systems as systems
from .composing import composed, raw
from .indexing import diagonal as _diagonal
from .linear_systems import adjoint, eye, reordered, solution, stacks, triangle_of
from .products import tensordot as _tensordot
from .reductions import _products_of_others, root, spread

_STACKS = [call((3, 3)), call((2, 3, 3))]
_PHASES = {
    "complex": "complex vectors are defined up to a phase: what depends on it is refused, and random cotangents do"
}

# ------------------------------------------------------------------------------------- inverse and determinant


@primitive(np.linalg.inv, domain=dominant, samples=[*_STACKS, call((1, 1))])
def inv(g, out):
    """Inverse of each matrix: -a⁻ᴴ ḡ a⁻ᴴ.

    >>> import tapegrad as tg
    >>> tg.linalg.inv(tg.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    back = adjoint(out)
    return -np.matmul(np.matmul(back, g), back)


@primitive(np.linalg.det, domain=dominant, samples=_STACKS)
def det(g, x, out):
    """Determinant of each matrix: its gradient is the matrix of cofactors, which exists for singular matrices, too.

    >>> import tapegrad as tg
    >>> tg.linalg.det(tg.tensor([[2.0, 1.0], [0.0, 4.0]])).item()
    7.999999999999998
    """
    return g[..., None, None] * adjoint(_adjugate(x, out))


def _adjugate(x: Any, determinant: Any) -> Any:
    """det(a) a⁻¹, from the inverse where the matrix has a good one, else from the singular values.

    With a = U S Vᴴ it is det(U) det(Vᴴ) V adj(S) Uᴴ, and adj(S) holds the products of the other singular values.
    """
    with contextlib.suppress(LinAlgError):
        inverse = np.linalg.inv(x)
        largest = [
            np.max(np.sum(np.abs(raw(a)), axis=-2), axis=-1, initial=0) for a in (x, inverse)
        ]
        amplified = largest[0] * largest[1]  # in the norms of largest columns
        if not np.max(amplified, initial=0) > np.finfo(x.dtype).eps ** (
            -2 / 3
        ):  # NaN passes through
            return determinant[..., None, None] * inverse
    finite = np.all(np.isfinite(raw(x)), axis=(-2, -1), keepdims=True)
    if not np.all(finite):  # LAPACK may look for an infinite matrix's singular values for ever
        others = _adjugate(np.where(finite, x, np.eye(x.shape[-1], dtype=x.dtype)), determinant)
        return np.where(finite, others, np.nan)
    u, s, vh = np.linalg.svd(x)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return np.matmul(
        adjoint(vh) * (sign[..., None] * _products_of_others(s))[..., None, :], adjoint(u)
    )


SlogdetResult = type(np.linalg.slogdet(np.eye(1)))


def _keeps_factors(shape: tuple[int, ...]) -> bool:
    """Whether one call of LAPACK for the factors, and one for the inverse from them, cost less than NumPy's two for all."""
    return len(shape) == 2 and shape[0] == shape[1] >= 64


def _slogdet(x: np.ndarray) -> tuple[Any, Any, np.ndarray]:
    """NumPy's two results and, where it pays, the factors for the gradient; nothing is known of a singular matrix's."""
    if not _keeps_factors(x.shape):
        return (*np.linalg.slogdet(x), np.empty(0, bool))  # of no influence on the others' dtype
    try:
        factors = systems.factored(x)
    except LinAlgError:
        return (*np.linalg.slogdet(x), np.zeros((len(x) + 1, len(x)), bool))
    return *systems.log_determinant(factors), factors


@several(
    np.linalg.slogdet,
    lambda shape: (
        shape[:-2],
        shape[:-2],
        (shape[0] + 1, shape[0]) if _keeps_factors(shape) else (0,),
    ),
    forward=_slogdet,
    result=lambda sign, log, _: SlogdetResult(sign, log),
    real=(1,),
    domain=dominant,
    samples=_STACKS,
    holomorphic=False,
)
def slogdet(g, x, out):
    """Sign (for complex matrices, phase) and logarithm of the absolute value of the determinant.

    With t = tr(a⁻¹ ȧ), the logarithm moves by Re t and a phase σ by iσ Im t; a sign does not move.

    >>> import tapegrad as tg
    >>> sign, log = tg.linalg.slogdet(tg.tensor([[2.0, 1.0], [0.0, 4.0]]))
    >>> round(log.item(), 6)
    2.079442
    """
    of_sign, of_log, _ = g
    factors = out[2]
    slope = of_log
    if x.dtype.kind == "c":
        slope = of_log + 1j * np.imag(conj(out[0]) * of_sign)
    if factors.size:
        return slope * adjoint(systems.inverse([x, factors]))
    return slope[..., None, None] * adjoint(np.linalg.inv(x))


# -------------------------------------------------------------------------------------------------- the choices


EQUAL = (
    "The derivative of eigenvectors or singular vectors was asked of a matrix with equal eigenvalues, or equal or vanishing "
    "singular values, but these vectors can be chosen in many ways there, and have no derivative. Use a function of the matrix "
    "that needs no vectors (eigvalsh, svdvals, inv, solve, pinv; expm, logm, sqrtm, polar in tg.linalg), or move the matrix off "
    "that point."
)


def negligible(dtype: Any, n: int) -> float:
    """A number times this is lost in the rounding of products of matrices of size n."""
    return 64 * n * float(np.finfo(dtype).eps)


def _ratio(c: np.ndarray, d: np.ndarray) -> np.ndarray:
    nowhere = d == 0
    if not nowhere.any():
        return c / d
    size = np.abs(c)
    largest = np.max(size, axis=(-2, -1), keepdims=True, initial=0)
    if np.any(nowhere & (size > negligible(c.dtype, max(c.shape[-2:])) * largest)):
        raise NotDifferentiable(EQUAL, name="no-slope-here")
    return np.where(nowhere, 0 * c, c / np.where(nowhere, 1, d))


def _ratio_d(g, y, out):
    """Of the quotient by its divisor: -out / d, which is 0 where d is."""
    return -ratio(g * conj(out), conj(y))


@primitive(
    _ratio,
    _ratio_d,
    name="ratio",
    domain=(real, Domain("away_from_0", lambda rng, shape: real.draw(rng, shape) * 2)),
    samples=[call((2, 3, 3), (3, 3)), call((3, 2), (1, 2))],
)
def ratio(g, y):
    """c / d; where d is 0: 0 if c is negligible there, else there is no derivative to give, and NotDifferentiable is raised."""
    return ratio(g, conj(y))


def _gaps(w: Any) -> Any:
    """w[j] - w[i] at (i, j), made exactly 0 for values equal up to the rounding of LAPACK, and 1 on the diagonal."""
    d = w[..., None, :] - w[..., :, None]
    return np.where(eye(np.shape(w)[-1]), 1.0, np.where(_vanishing(d, w), 0.0, d))


def _vanishing(d: Any, w: Any) -> np.ndarray:
    """Where a difference of eigenvalues (or singular values) w, or one itself, is no larger than rounding errors in w."""
    w, d = raw(w), raw(d)
    n = w.shape[-1]
    largest = np.max(np.abs(w), axis=-1, initial=0)[..., None]
    if d.ndim > w.ndim:
        largest = largest[..., None]
    return np.abs(d) <= 16 * n**0.5 * np.finfo(w.dtype).eps * largest


def _refuse_equal(bar: Any, w: Any, completed: bool = False) -> None:
    """Raise if anything is asked of the vectors of equal eigenvalues (or of vanishing singular values, where other
    vectors complete the basis)."""
    of_vector, w = np.max(np.abs(raw(bar)), axis=-2, initial=0), raw(w)
    n = w.shape[-1]
    if not n or not of_vector.any():
        return
    shared = np.any(_vanishing(w[..., None, :] - w[..., :, None], w) & ~eye(n), axis=-2)
    if completed:
        shared |= _vanishing(w, w)
    largest = np.max(of_vector, axis=-1, keepdims=True)
    if np.any(shared & (of_vector > negligible(w.dtype, n) * largest)):
        raise NotDifferentiable(EQUAL, name="no-slope-here")


def _off_diagonal(x: Any) -> Any:
    return np.where(eye(np.shape(x)[-1]), 0.0, x)


def _on_diagonal(w: Any) -> Any:
    """A matrix with these entries on the diagonal."""
    return np.where(eye(np.shape(w)[-1]), w[..., None, :], 0.0)


def _refuse_choice(parts: Any, what: str, *cotangents: Any) -> None:
    """Raise if cotangents of vectors have parts along the choice of those vectors, beyond rounding errors."""
    largest = max(np.max(np.abs(raw(bar)), initial=0) for bar in cotangents)
    if np.max(np.abs(raw(parts)), initial=0) > np.finfo(raw(parts).dtype).eps ** 0.5 * largest:
        raise NotDifferentiable(
            f"The gradient of a function of {what} was asked, but the function depends on which of the possible vectors "
            "LAPACK returned, so it has no derivative by the matrix. Use what does not depend on the choice, such as "
            "abs(v)**2 or v @ v.conj().T for each vector.",
            name="no-slope-here",
        )


def _imaginary_diagonal(c: Any) -> Any:
    """Imaginary parts on the diagonal, or 0 for real matrices."""
    c = raw(c)
    return (
        np.imag(np.diagonal(c, axis1=-2, axis2=-1))
        if c.dtype.kind == "c"
        else np.zeros(c.shape[:-1], c.dtype)
    )


def of_triangle(s: Any, side: str) -> Any:
    """The cotangent of a Hermitian matrix as that of the one triangle (with a real diagonal) that stands for it."""
    n = np.shape(s)[-1]
    both = s + adjoint(s)
    return np.where(eye(n), 0.5 * both, triangle_of(both, side))


def _side(uplo: Any) -> str:
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise ValueError(
            f"UPLO argument must be 'L' or 'U', the triangle that is read, but {type(uplo).__name__} was given: a second matrix "
            "is for scipy.linalg.eigh."
            if not isinstance(uplo, str)
            else "UPLO argument must be 'L' or 'U'"
        )
    return "lower" if str(uplo).upper() == "L" else "upper"


def from_triangle(x: Any, side: str = "lower") -> Any:
    """The Hermitian matrix that one triangle stands for."""
    strict = triangle_of(x, side, strict=True)
    on = np.where(eye(np.shape(x)[-1]), np.real(x) if x.dtype.kind == "c" else x, 0.0)
    return strict + adjoint(strict) + on


# -------------------------------------------------------------------------------------------------- eigenvalues


def _of_one_triangle(of: Any) -> Any:
    """NumPy's function, which would ask for `upper` of whatever it is given as UPLO."""

    @functools.wraps(of)
    def checked(a: Any, UPLO: Any = "L") -> Any:
        _side(UPLO)
        return of(a, UPLO)

    return checked


@several(
    np.linalg.eigh,
    lambda shape, UPLO="L": (shape[:-1], shape),
    forward=_of_one_triangle(np.linalg.eigh),
    result=type(np.linalg.eigh(np.eye(1))),
    real=(0,),
    domain=dominant,
    samples=[*_STACKS, call((3, 3), UPLO="U"), call((1, 1))],
    holomorphic=False,
    unsupported=_PHASES,
)
def eigh(g, out, *, UPLO="L"):
    """Eigenvalues and eigenvectors of Hermitian matrices, of which one triangle is read.

    With M = Vᴴ ȧ V, eigenvalues move by the diagonal of M and eigenvectors by V (M / gaps) (Giles 2008, section 3.1).

    >>> import tapegrad as tg
    >>> w, v = tg.linalg.eigh(tg.tensor([[2.0, 0.0], [0.0, 3.0]]))
    >>> w
    tensor([2., 3.])
    """
    (w_bar, v_bar), (w, v) = g, out
    if type(v_bar) is np.ndarray and not v_bar.any():  # the eigenvalues alone
        return of_triangle(np.matmul(v * w_bar[..., None, :], adjoint(v)), _side(UPLO))
    c = np.matmul(adjoint(v), v_bar)
    _refuse_equal(v_bar, w)
    _refuse_choice(_imaginary_diagonal(c), "complex eigenvectors", v_bar)
    inner = _on_diagonal(w_bar) + _off_diagonal(ratio(c, _gaps(w)))
    return of_triangle(np.matmul(np.matmul(v, inner), adjoint(v)), _side(UPLO))


@primitive(
    np.linalg.eigvalsh,
    forward=_of_one_triangle(np.linalg.eigvalsh),
    domain=dominant,
    samples=[*_STACKS, call((3, 3), UPLO="U")],
    holomorphic=False,
)
def eigvalsh(g, x, *, UPLO="L"):
    """Eigenvalues of Hermitian matrices, ascending: V diag(w̄) Vᴴ.

    >>> import tapegrad as tg
    >>> tg.linalg.eigvalsh(tg.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor([2., 3.])
    """
    v = np.linalg.eigh(x, UPLO)[1]
    return of_triangle(np.matmul(v * g[..., None, :], adjoint(v)), _side(UPLO))


def _refuse_phases(c: Any, v_bar: Any, w: np.ndarray, complex_matrix: bool) -> None:
    """Of a complex matrix every eigenvector has a phase of its own; of a real one the two vectors of a conjugate pair have
    opposite phases, and real ones have none."""
    along = _imaginary_diagonal(c)
    if not complex_matrix:
        along = np.where(np.imag(w) > 0, along - np.roll(along, -1, axis=-1), 0)
    _refuse_choice(along, "complex eigenvectors", v_bar)


@several(
    np.linalg.eig,
    lambda shape: (shape[:-1], shape),
    result=type(np.linalg.eig(np.eye(1))),
    domain=dominant,
    samples=[*_STACKS, call((1, 1))],
    holomorphic=False,
    unsupported=_PHASES,
)
def eig(g, x, out):
    """Eigenvalues and eigenvectors, of length 1, of any square matrices.

    With M = V⁻¹ ȧ V, eigenvalues move by the diagonal of M and eigenvectors by V (M / gaps), less what would change their
    length (Boeddeker et al. 2017, "On the computation of complex-valued gradients"). A matrix without a basis of
    eigenvectors (a defective one) has a singular V: then LinAlgError is raised, or the gradient is as large as it truly is.

    >>> import tapegrad as tg
    >>> w, v = tg.linalg.eig(tg.tensor([[2.0, 1.0], [0.0, 3.0]]))
    >>> w.numpy().real
    array([2., 3.])
    """
    (w_bar, v_bar), (w, v) = g, out
    vh = adjoint(v)
    c = np.matmul(vh, v_bar)
    _refuse_equal(v_bar, w)
    _refuse_phases(c, v_bar, raw(w), x.dtype.kind == "c")
    lengths = np.real(_diagonal(c, axis1=-2, axis2=-1))
    c = c - np.matmul(vh, v) * lengths[..., None, :]
    inner = _on_diagonal(w_bar) + _off_diagonal(ratio(c, conj(_gaps(w))))
    return np.linalg.solve(vh, np.matmul(inner, vh))


@primitive(np.linalg.eigvals, settled=False, domain=dominant, samples=_STACKS, holomorphic=False)
def eigvals(g, x):
    """Eigenvalues of any square matrices: V⁻ᴴ diag(w̄) Vᴴ.

    >>> import tapegrad as tg
    >>> tg.linalg.eigvals(tg.tensor([[2.0, 1.0], [0.0, 3.0]])).numpy().real
    array([2., 3.])
    """
    vh = adjoint(np.linalg.eig(x)[1])
    return np.linalg.solve(vh, g[..., :, None] * vh)


# ---------------------------------------------------------------------------------------------- singular values


def _svd_shapes(shape: tuple[int, ...], full_matrices: bool = True) -> tuple[tuple[int, ...], ...]:
    *lead, m, n = shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return (*lead, m, rows), (*lead, k), (*lead, columns, n)


def _completed(bar: Any, vectors: Any, k: int, what: str) -> tuple[Any, Any]:
    """(cotangent of the first k columns, those columns) of a unitary matrix whose other columns only complete a basis.

    The others move by -V₁ V̇₁ᴴ V₂, and by a turn among themselves, which is a choice.
    """
    if np.shape(vectors)[-1] == k:
        return bar, vectors
    first, others = vectors[..., :k], vectors[..., k:]
    others_bar = bar[..., k:]
    turn = np.matmul(adjoint(others), others_bar)
    _refuse_choice(turn - adjoint(turn), what, others_bar)
    return bar[..., :k] - np.matmul(others, np.matmul(adjoint(others_bar), first)), first


@several(
    np.linalg.svd,
    _svd_shapes,
    result=type(np.linalg.svd(np.eye(1))),
    real=(1,),
    domain=dominant,
    samples=[
        call((3, 3)),
        call((4, 2), full_matrices=False),
        call((2, 2, 3), full_matrices=False),
        call((3, 2)),  # the one column that completes U has a sign, but no other choice
    ],
    holomorphic=False,
    unsupported=_PHASES,
)
def singular_vectors(g, out, *, full_matrices=True):
    """Singular values with their vectors, a = U diag(s) Vᴴ (Townsend 2016, "Differentiating the singular value
    decomposition"; for complex matrices Wan and Zhang 2019, arXiv 1909.02659).

    With P = Uᴴ ȧ V, the antisymmetric Uᴴ U̇ and Vᴴ V̇ come from the two parts of P: their sum from P + Pᴴ over differences,
    their difference from P - Pᴴ over sums of singular values.
    """
    (u_bar, s_bar, vh_bar), (u, s, vh) = g, out
    k = np.shape(s)[-1]
    if type(u_bar) is np.ndarray and not u_bar.any() and not vh_bar.any():  # the values alone
        return np.matmul(u[..., :k] * s_bar[..., None, :], vh[..., :k, :])
    u_bar, u = _completed(u_bar, u, k, "the columns of U that complete the basis")
    v_bar, v = _completed(adjoint(vh_bar), adjoint(vh), k, "the rows of Vᴴ that complete the basis")
    _refuse_equal(u_bar, s, completed=np.shape(u)[-2] > k)
    _refuse_equal(v_bar, s, completed=np.shape(v)[-2] > k)
    of_u, of_v = np.matmul(adjoint(u), u_bar), np.matmul(adjoint(v), v_bar)
    _refuse_choice(_imaginary_diagonal(of_u + of_v), "complex singular vectors", u_bar, v_bar)
    gaps = _gaps(s)
    sums = s[..., None, :] + s[..., :, None]
    sums = np.where(_vanishing(sums, s), 0.0, sums)
    by_gap = _off_diagonal(ratio(of_u, gaps) + ratio(of_v, gaps))
    by_sum = ratio(_less_real_diagonal(of_u), sums) - ratio(_less_real_diagonal(of_v), sums)
    inner = _on_diagonal(s_bar) + 0.5 * (by_gap + adjoint(by_gap) + by_sum - adjoint(by_sum))
    total = np.matmul(np.matmul(u, inner), adjoint(v))
    divisor = np.where(_vanishing(s, s), 0.0, s)[..., None, :]
    if np.shape(u)[-2] > k:
        total = total + np.matmul(ratio(u_bar - np.matmul(u, of_u), divisor), adjoint(v))
    if np.shape(v)[-2] > k:
        total = total + np.matmul(u, adjoint(ratio(v_bar - np.matmul(v, of_v), divisor)))
    return total


def _less_real_diagonal(c: Any) -> Any:
    """Lengths do not change, so the real diagonal counts for nothing; the imaginary one is the phase between u and v."""
    if c.dtype.kind != "c":
        return _off_diagonal(c)
    return c - np.where(eye(np.shape(c)[-1]), np.real(c), 0.0)


@composed(np.linalg.svd, "a")
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """(U, s, Vᴴ) with a = U diag(s) Vᴴ, or s alone. Columns that only complete a basis (full_matrices) are a choice.

    >>> import tapegrad as tg
    >>> u, s, vh = tg.linalg.svd(tg.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> s
    tensor([4., 3.])
    """
    if not compute_uv:
        return svdvals(from_triangle(a) if hermitian else a)
    if not hermitian:
        return singular_vectors(a, full_matrices)
    w, v = np.linalg.eigh(a)
    order = np.argsort(-np.abs(raw(w)), axis=-1, kind="stable")
    signs = reordered(np.sign(raw(w)), order)
    s = np.abs(reordered(w, order))
    u = reordered(v, order[..., None, :])
    return SVDResult(u, s, adjoint(u * signs[..., None, :]))


SVDResult = type(np.linalg.svd(np.eye(1)))


@primitive(
    np.linalg.svdvals,
    domain=dominant,
    samples=[call((3, 3)), call((2, 3)), call((2, 3, 2))],
    holomorphic=False,
)
def svdvals(g, x):
    """Singular values, descending: U diag(s̄) Vᴴ.

    One that is 0 is differentiated as u ȧ v, whose absolute value it is, so that what is smooth there (the sum of squares, say) has its
    derivatives, of higher order too; of the kink itself this is a subgradient, PyTorch's.

    >>> import tapegrad as tg
    >>> tg.linalg.svdvals(tg.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    finite = np.all(np.isfinite(raw(x)), axis=(-2, -1), keepdims=True)
    if not np.all(finite):  # LAPACK may look for an infinite matrix's singular vectors for ever
        g = np.where(finite[..., 0], g, np.nan)
        x = np.where(finite, x, np.eye(*x.shape[-2:], dtype=x.dtype))
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return np.matmul(u * g[..., None, :], vh)


# ----------------------------------------------------------------------------------- triangular decompositions


BLOCK, BLOCKED_ABOVE = 48, 128
"""Rows of the blocks that the cotangent of a large matrix is made of from that of its Cholesky factor, and of the largest matrix that
the formula is faster for, by NumPy's calls. (Compiled, there is a routine; compiler/routines.py.)"""


def _half(c: Any) -> Any:
    """The lower triangle, with half of the diagonal."""
    return np.where(eye(np.shape(c)[-1]), 0.5 * c, triangle_of(c, "lower"))


def _between(lower: Any, middle: Any, adjoint_first: bool = True) -> Any:
    """L⁻ᴴ m L⁻¹, or L⁻¹ m L⁻ᴴ."""
    left = solution([lower, middle], adjoint=adjoint_first, side="lower")
    return adjoint(solution([lower, adjoint(left)], adjoint=adjoint_first, side="lower"))


def _by_blocks(lower: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """`cholesky_cotangent` of one matrix: twice the work of its factorisation, where the formula is ten times as much.

    From the last block of columns to the first, each goes back through the steps that made it. Source: Murray 2016, arXiv 1602.07527,
    section 4.2.
    """
    lower, a = np.tril(lower), np.tril(bar)
    trsm = systems._fortran("trsm", a.dtype)
    n = len(lower)
    for stop in range(n, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        rows, left, below = slice(start, stop), slice(start), slice(stop, n)
        back = np.ascontiguousarray(lower[rows, rows]).T  # in the order of BLAS

        def over(x: np.ndarray, back: np.ndarray = back) -> np.ndarray:
            """x d⁻¹, with the block d on the diagonal."""
            return trsm(1, back, np.ascontiguousarray(x).T).T

        moved = over(a[below, rows])
        a[below, rows] = moved
        a[rows, rows] -= np.tril(adjoint(moved) @ lower[below, rows])
        inner = np.tril(back.conj() @ a[rows, rows])
        inner[eye(stop - start)] *= 0.5
        # d⁻ᴴ y as the adjoint of yᴴ d⁻¹
        inner = over(adjoint(over(adjoint(inner))))
        inner = np.tril(inner + adjoint(inner))
        inner[eye(stop - start)] *= 0.5
        a[rows, rows] = inner
        a[below, left] -= moved @ lower[rows, left]
        a[rows, left] -= (
            adjoint(moved) @ lower[below, left] + (inner + adjoint(inner)) @ lower[rows, left]
        )
    return a


def _cotangent_of_bar(g, x):
    lower = triangle_of(x, "lower")
    return np.matmul(lower, _half(_between(lower, from_triangle(g), False)))


@primitive(
    lambda x, y: systems.each(_by_blocks, x, y),
    _cotangent_of_bar,
    name="cholesky_cotangent",
    domain=(dominant, real),
    samples=[call((3, 3), (3, 3)), call((2, 3, 3), (2, 3, 3))],
    holomorphic=False,
)
def cholesky_cotangent(g, x, y, out):
    """The cotangent of a matrix from that of its lower Cholesky factor L: the triangle of S = L⁻ᴴ Φ(Lᴴ L̄) L⁻¹ and its adjoint.

    Φ is the lower triangle with half of the diagonal, which is its own adjoint. With the cotangent S̄ and C = Φ(L⁻¹ S̄ L⁻ᴴ) that of L̄
    is L C, that of L is L̄ Cᴴ - (S + Sᴴ) S̄ L⁻ᴴ.
    """
    lower, of_s = triangle_of(x, "lower"), from_triangle(g)
    c = _half(_between(lower, of_s, False))
    turned = np.matmul(of_s, out + adjoint(out))
    by_inverse = adjoint(solution([lower, turned], side="lower"))
    return triangle_of(np.matmul(triangle_of(y, "lower"), adjoint(c)) - by_inverse, "lower")


@primitive(
    np.linalg.cholesky,
    domain=dominant,
    samples=[*_STACKS, call((3, 3), upper=True), call((1, 1))],
    holomorphic=False,
)
def cholesky(g, out, *, upper=False):
    """Cholesky factor of Hermitian positive definite matrices, of which one triangle is read (see `cholesky_cotangent`).

    >>> import tapegrad as tg
    >>> tg.linalg.cholesky(tg.tensor([[4.0, 2.0], [2.0, 2.0]]))
    tensor([[2., 0.],
            [1., 1.]])
    """
    lower, bar = (adjoint(out), adjoint(g)) if upper else (out, g)
    if np.shape(lower)[-1] > BLOCKED_ABOVE or type(lower) is not np.ndarray:
        back = cholesky_cotangent(lower, bar)
    else:
        back = of_triangle(_between(lower, _half(np.matmul(adjoint(lower), bar))), "lower")
    return adjoint(back) if upper else back


def cho_factor(a: Any, lower: bool = False) -> tuple[Any, bool]:
    """(c, lower) for `cho_solve`, as SciPy's; the other triangle of c holds zeros. Reads one triangle of a.

    >>> import tapegrad as tg
    >>> c, low = tg.linalg.cho_factor(tg.tensor([[4.0, 0.0], [0.0, 9.0]]))
    >>> c
    tensor([[2., 0.],
            [0., 3.]])
    """
    (a,) = stacks(a)
    return np.linalg.cholesky(a, upper=not lower), bool(lower)


QRResult = type(np.linalg.qr(np.eye(1)))


def _qr_cotangent(q_bar: Any, r_bar: Any, q: Any, r: Any) -> Any:
    """The cotangent of a = Q R, with a square R, from those of its factors.

    With C = Qᴴ ȧ R⁻¹: Qᴴ Q̇ is the antisymmetric matrix with C's strict lower triangle and imaginary diagonal, Ṙ R⁻¹ the
    rest (R has a real diagonal, so nothing is a choice); and what ȧ R⁻¹ has outside the space of Q moves Q.
    """
    # A look at values, and so a guard of a compiled program: what is refused here has to be refused there. An entry of the diagonal is
    # compared with its own column, since LAPACK's error is: columns of different scales are no loss of rank.
    columns = np.swapaxes(raw(r), -1, -2)
    if np.any(_vanishing(np.diagonal(raw(r), axis1=-2, axis2=-1)[..., None], columns)):
        raise NotDifferentiable(
            "the derivative of np.linalg.qr was asked, but the matrix (or its first columns, if it is wide) does not have full rank: R "
            "has a zero on its diagonal, but for rounding, and the factors have no derivative there. Add a small multiple of the identity "
            "to the matrix, or write what you need by np.linalg.pinv or np.linalg.svd.",
            name="no-slope-here",
        )
    of_r = np.matmul(_real_on_diagonal(triangle_of(r_bar, "upper")), adjoint(r))
    of_q = np.matmul(adjoint(q), q_bar)
    turn = of_q - of_r
    turn = triangle_of(turn - adjoint(turn), "lower", strict=True) + _imaginary_on_diagonal(turn)
    total = q_bar + np.matmul(q, of_r + turn - of_q)
    return adjoint(solution([r, adjoint(total)], side="upper"))


def _real_on_diagonal(x: Any) -> Any:
    return x if x.dtype.kind != "c" else np.where(eye(np.shape(x)[-1]), np.real(x) + 0j, x)


def _imaginary_on_diagonal(x: Any) -> Any:
    return np.where(
        eye(np.shape(x)[-1]), 1j * np.imag(x) if x.dtype.kind == "c" else np.zeros((), x.dtype), 0.0
    )


def _thin_qr(x: np.ndarray) -> Any:
    return np.linalg.qr(x)


@several(
    _thin_qr,
    lambda shape: (shape, (*shape[:-2], shape[-1], shape[-1])),
    name="qr",
    domain=dominant,
    samples=[call((3, 3)), call((4, 2)), call((2, 3, 2))],
    holomorphic=False,
)
def thin_qr(g, out):
    """a = Q R of matrices with at least as many rows as columns (Walter and Lehmann 2010; Roberts and Roberts 2020,
    arXiv 2009.10071)."""
    return _qr_cotangent(*g, *out)


def _complete_qr(x: np.ndarray) -> Any:
    return np.linalg.qr(x, mode="complete")


@several(
    _complete_qr,
    lambda shape: ((*shape[:-1], shape[-2]), shape),
    name="complete_qr",
    domain=dominant,
    samples=[call((3, 2))],
    holomorphic=False,
    unsupported=_PHASES,
)
def complete_qr(g, out):
    """a = Q R with a square Q: the rule of the thin one, for what does not depend on how the basis is completed."""
    (q_bar, r_bar), (q, r) = g, out
    n = np.shape(r)[-1]
    q_bar, q = _completed(q_bar, q, n, "the columns of Q that complete the basis")
    return _qr_cotangent(q_bar, r_bar[..., :n, :], q, r[..., :n, :])


@composed(np.linalg.qr, "a")
def qr(a: Any, mode: str = "reduced") -> Any:
    """a = Q R. Columns of Q that only complete a basis (mode="complete") are a choice: what depends on it is refused.

    Of a wide matrix the first columns give Q, and R's others are Qᴴ a (Roberts and Roberts 2020).

    >>> import tapegrad as tg
    >>> q, r = tg.linalg.qr(tg.tensor([[1.0, 2.0], [0.0, 3.0]]))
    >>> q.shape, r.shape
    ((2, 2), (2, 2))
    """
    m, n = np.shape(a)[-2:]
    if mode not in ("reduced", "complete", "r"):
        raise NotDifferentiable(
            f"np.linalg.qr was asked of a tracked tensor with mode={mode!r}, but LAPACK's own form of the factors has no "
            "derivative rule. Use mode='reduced'."
        )
    if m < n:
        q, r = thin_qr(a[..., :m])
        r = np.concatenate([r, np.matmul(adjoint(q), a[..., m:])], axis=-1)
    else:
        q, r = complete_qr(a) if mode == "complete" and m > n else thin_qr(a)
    return r if mode == "r" else QRResult(q, r)


# ----------------------------------------------------------------------------------------- least squares, pinv


@primitive(
    np.linalg.pinv,
    domain=dominant,
    samples=[call((3, 3)), call((3, 2)), call((2, 2, 3))],
    holomorphic=False,
    name="pinv",
)
def pseudo_inverse(g, x, out, *, rcond=None):
    """Moore and Penrose's inverse, where the rank does not change (Golub and Pereyra 1973).

    Ṗ = -P ȧ P + P Pᴴ ȧᴴ (1 - a P) + (1 - P a) ȧᴴ Pᴴ P
    """
    if rcond is not None and _cuts(raw(x), raw(rcond)):
        return _cotangent_of_cut(g, x, out)
    ph, gh = adjoint(out), adjoint(g)
    total = -np.matmul(np.matmul(ph, g), ph)
    right = np.matmul(gh, np.matmul(out, ph))
    left = np.matmul(np.matmul(ph, out), gh)
    total = total + right - np.matmul(x, np.matmul(out, right))
    return total + left - np.matmul(np.matmul(left, out), x)


def _cuts(x: np.ndarray, rcond: Any) -> bool:
    """Whether `rcond` leaves out singular values of `x` that are more than rounding."""
    if not x.size:
        return False
    s = np.linalg.svd(x, compute_uv=False)
    largest = s[..., :1]
    rounding = np.finfo(s.dtype).eps * max(x.shape[-2:]) * largest
    return bool(np.any((s > rounding) & (s <= np.asarray(rcond)[..., None] * largest)))


def _cotangent_of_cut(g: Any, x: Any, p: Any) -> Any:
    """The cotangent of x from that of its pseudo-inverse p, to which some singular values are left out that are not 0.

    With x = U S Vᴴ, e = Uᴴ ẋ V, and f = 1 / σ for the singular values that are kept and 0 for the others, Pᴴ moves by
    (σᵢ fᵢ - σⱼ fⱼ) / (σᵢ² - σⱼ²) eᵢⱼ + (σⱼ fᵢ - σᵢ fⱼ) / (σᵢ² - σⱼ²) conj(eⱼᵢ) (Noferini 2017, "A formula for the Fréchet derivative of
    a generalized matrix function"). Where i is kept and j is not, the division by σᵢ² - σⱼ² is a Sylvester equation in what x keeps and
    what it loses, to which no singular vectors need be known; so equal singular values on one side do no harm.
    """
    ph, gh = adjoint(p), adjoint(g)
    m, n = np.shape(x)[-2:]
    rows, columns = np.matmul(x, p), np.matmul(p, x)  # the projections on what is kept
    lost = x - np.matmul(rows, x)
    off_rows, off_columns = eye(m) - rows, eye(n) - columns
    # Between spaces that meet no right side, the equation needs eigenvalues that differ: any above those that are lost will do.
    above = np.max(raw(np.linalg.norm(raw(x), axis=(-2, -1), keepdims=True))) ** 2
    squares = np.matmul(np.matmul(rows, x), adjoint(x)) + above * off_rows
    first = systems.solve_sylvester(
        squares, -np.matmul(adjoint(lost), lost), np.matmul(np.matmul(rows, gh), off_columns)
    )
    squares = np.matmul(np.matmul(adjoint(x), x), columns) + above * off_columns
    second = systems.solve_sylvester(
        -np.matmul(lost, adjoint(lost)), squares, np.matmul(np.matmul(off_rows, gh), columns)
    )
    crossed = np.matmul(np.matmul(lost, adjoint(first)), ph) + np.matmul(
        np.matmul(ph, adjoint(second)), lost
    )
    return first + second + crossed - np.matmul(np.matmul(ph, g), ph)


@composed(np.linalg.pinv, "a")
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:  # type: ignore[attr-defined]
    """Moore and Penrose's inverse. Its derivative holds where the rank does not change.

    >>> import tapegrad as tg
    >>> tg.linalg.pinv(tg.tensor([[2.0], [0.0]])).numpy().round(6)
    array([[0.5, 0. ]])
    """
    if rcond is None and rtol is not np._NoValue:  # type: ignore[attr-defined]
        rcond = rtol if rtol is not None else max(np.shape(a)[-2:]) * np.finfo(a.dtype).eps
    return pseudo_inverse(from_triangle(a) if hermitian else a, rcond)


def _least_squares(xs: Any, rcond: Any = None) -> np.ndarray:
    return np.linalg.lstsq(*xs, rcond=rcond)[0]


@primitive(
    _least_squares,
    name="lstsq",
    domain=(dominant, real),
    samples=[call((4, 2), (4, 2)), call((3, 3), (3, 1)), call((2, 3), (2, 2))],
    holomorphic=False,
)
def least_squares(g, xs, out, wanted, *, rcond=None):
    """The shortest x with the smallest |a x - b|, where the rank of a does not change: the derivative of pinv(a) b."""
    a, b = xs
    eps = np.finfo(a.dtype).eps
    p = np.linalg.pinv(a, eps * max(np.shape(a)) if rcond is None else eps if rcond < 0 else rcond)
    ph = adjoint(p)
    b_bar = np.matmul(ph, g)
    a_bar = None
    if wanted[0]:
        a_bar = np.matmul(b - np.matmul(a, out), adjoint(np.matmul(p, b_bar))) - np.matmul(
            b_bar, adjoint(out)
        )
        a_bar = a_bar + np.matmul(np.matmul(ph, out), adjoint(g - np.matmul(p, np.matmul(a, g))))
    return [a_bar, b_bar]


@composed(np.linalg.lstsq, "a", "b")
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """(x, residuals, rank, s) for the least squares problem a x = b; the derivative holds where the rank does not change.

    >>> import numpy as np, tapegrad as tg
    >>> x, *_ = tg.linalg.lstsq(tg.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> x.numpy().round(6)
    array([1., 2.])
    """
    _, _, rank, _ = np.linalg.lstsq(raw(a), raw(b), rcond=rcond)  # NumPy checks what it is given
    a, b = _floating(a), _floating(b)
    columns, back = systems.as_columns(b)
    eps = np.finfo(a.dtype).eps
    cut = None if rcond is None else eps if rcond < 0 else rcond
    x = (
        np.matmul(pseudo_inverse(a, cut), columns)
        if cut is not None and _cuts(raw(a), cut)
        else least_squares([a, columns], rcond=rcond)
    )
    m, n = np.shape(a)
    residuals: Any = np.zeros(0, x.dtype)
    if rank == n and m > n:
        off = columns - np.matmul(a, x)
        residuals = np.sum(np.real(off * conj(off)) if off.dtype.kind == "c" else off * off, axis=0)
    return back(x), residuals, rank, svdvals(a)


# -------------------------------------------------------------------------------------------------------- norms


def _norm_over(x: np.ndarray, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    return np.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)


@primitive(
    _norm_over,
    name="p_norm",
    backward="LinalgVectorNorm",
    samples=[
        call((3,), ord=3),
        call((2, 3), ord=2.5, axis=1),
        call((2, 3), ord=-1.5, axis=0, keepdims=True),
        call((2, 3), ord=0.5),
    ],
    holomorphic=False,
)
def p_norm(g, x, out, *, ord, axis=None, keepdims=False):
    """(Σ |x|ᵖ)^(1/p): its gradient is x/|x| (|x| / out)^(p-1); where that has no value, 0 is a subgradient of least norm."""
    length = spread(out, np.shape(x), axis, keepdims)
    size = np.abs(x)
    nowhere = (raw(length) == 0) | ((raw(size) == 0) & (ord < 1))
    share = np.where(nowhere, 1.0, size) / np.where(nowhere, 1.0, length)
    weight = np.where(nowhere, 0.0, share ** (ord - 1))
    return spread(g, np.shape(x), axis, keepdims) * weight * np.sign(x)


def _vector_norm(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    """Norm of the entries over axes. At 0, and at ties, the subgradient of least norm."""
    if ord is None or ord == 2:
        return root(np.sum(_squares(x), axis=axis, keepdims=keepdims))
    if ord == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum((x != 0).astype(np.abs(raw(x)).dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return p_norm(x, ord, axis, keepdims)


def _squares(x: Any) -> Any:
    return x * x if x.dtype.kind != "c" else np.real(x * np.conj(x))


def _matrix_norm(x: Any, ord: Any, axis: tuple[int, int], keepdims: bool) -> Any:
    """Norm of the matrices in two axes; those of singular values are subgradients of least norm where some vanish."""
    row, column = axis
    if ord is None or ord in ("fro", "f"):
        return root(np.sum(_squares(x), axis=axis, keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        if abs(ord) == np.inf:
            row, column = column, row
        sums = np.sum(np.abs(x), axis=row, keepdims=True)
        result = (np.max if ord > 0 else np.min)(sums, axis=column, keepdims=True)
    elif ord in (2, -2, "nuc"):
        s = svdvals(np.moveaxis(x, axis, (-2, -1)))
        s = np.where(_vanishing(s, s), raw(s), s)  # there the subgradient of least norm
        reduce = {2: np.max, -2: np.min, "nuc": np.sum}[ord]
        result = np.expand_dims(reduce(s, axis=-1), tuple(sorted(axis)))
    else:
        raise ValueError(f"Invalid norm order {ord!r} for matrices.")
    return result if keepdims else np.squeeze(result, axis)


def _floating(x: Any) -> Any:
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


@composed(np.linalg.norm, "x")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norm of a vector or a matrix, or over axes, as NumPy's; its gradient at 0 is 0, a subgradient of least norm.

    >>> import tapegrad as tg
    >>> tg.linalg.norm(tg.tensor([3.0, 4.0])).item()
    5.0
    """
    if 0 in np.shape(x):  # largest of none: what NumPy says
        return np.linalg.norm(raw(x), ord, axis, keepdims) + 0.0 * np.sum(np.abs(x))
    x = _floating(x)
    if axis is None:
        if ord is None:
            flat = _vector_norm(np.reshape(x, -1), None, 0, False)
            return np.reshape(flat, (1,) * np.ndim(x)) if keepdims else flat
        axis = tuple(range(np.ndim(x)))
    axis = normalize_axis_tuple(axis, np.ndim(x))
    if len(axis) == 1:
        return _vector_norm(x, ord, axis[0], keepdims)
    if len(axis) == 2:
        return _matrix_norm(x, ord, axis, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


@composed(np.linalg.vector_norm, "x")
def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norm of the entries over axes (all, by default), as of one vector.

    >>> import tapegrad as tg
    >>> tg.linalg.vector_norm(tg.tensor([3.0, 4.0])).item()
    5.0
    """
    x = _floating(x)
    axis = tuple(range(np.ndim(x))) if axis is None else normalize_axis_tuple(axis, np.ndim(x))
    return _vector_norm(x, ord, axis, keepdims)


@composed(np.linalg.matrix_norm, "x")
def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norm of the matrices in the last two axes.

    >>> import tapegrad as tg
    >>> tg.linalg.matrix_norm(tg.tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    return _matrix_norm(_floating(x), ord, (np.ndim(x) - 2, np.ndim(x) - 1), keepdims)


@composed(np.linalg.cond, "x")
def cond(x: Any, p: Any = None) -> Any:
    """Condition number in the norm p: the ratio of singular values by default. LinAlgError for a singular matrix, p not 2.

    >>> import tapegrad as tg
    >>> tg.linalg.cond(tg.tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    2.0
    """
    if p is None or p in (2, -2):
        s = svdvals(x)
        with np.errstate(all="ignore"):
            ratio = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
        nothing = np.isnan(raw(ratio)) & ~np.isnan(raw(x)).any(axis=(-2, -1))
        return np.where(nothing, np.inf, ratio) if nothing.any() else ratio
    axes = (np.ndim(x) - 2, np.ndim(x) - 1)
    return _matrix_norm(x, p, axes, False) * _matrix_norm(inv(x), p, axes, False)


# ------------------------------------------------------------------------------------------ powers and products


@composed(np.linalg.matrix_power, "a")
def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices, by squaring; of the inverse, if n is negative.

    >>> import tapegrad as tg
    >>> tg.linalg.matrix_power(tg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    n = operator.index(n)  # TypeError for a fraction, as NumPy's
    systems.square(a, "matrix_power")
    if n == 0:
        return wrap(np.broadcast_to(np.eye(np.shape(a)[-1], dtype=a.dtype), np.shape(a)).copy())
    if n < 0:
        a, n = inv(a), -n
    if n == 1:
        return a[...]
    result = None
    while n:
        if n % 2:
            result = a if result is None else np.matmul(result, a)
        n //= 2
        if n:
            a = np.matmul(a, a)
    return result


def _cheapest(lengths: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """For factors i to j of a product, after which one to split it, so that it takes the fewest multiplications."""
    n = len(lengths) - 1
    cost = {(i, i): 0 for i in range(n)}
    split = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            options = [
                (cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], split[i, j] = min(options)
    return split


@composed(np.linalg.multi_dot, "*arrays")
def multi_dot(arrays: Any) -> Any:
    """The product of matrices (the first and last may be vectors), in the order that takes the fewest multiplications.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.multi_dot([tg.ones((2, 3)), np.ones((3, 2)), np.ones(2)])
    tensor([6., 6.])
    """
    arrays = list(stacks(*arrays))
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    for k, x in enumerate(arrays):
        if np.ndim(x) != 2 and not (np.ndim(x) == 1 and k in (0, len(arrays) - 1)):
            raise LinAlgError(
                f"multi_dot was given an array of shape {np.shape(x)}, but it takes matrices (the first and last may be vectors): write "
                "np.matmul for stacks."
            )
    first, last = np.ndim(arrays[0]) == 1, np.ndim(arrays[-1]) == 1
    if first:
        arrays[0] = arrays[0][None, :]
    if last:
        arrays[-1] = arrays[-1][:, None]
    split = _cheapest((np.shape(arrays[0])[0], *(np.shape(x)[1] for x in arrays)))

    def product(i: int, j: int) -> Any:
        return (
            arrays[i] if i == j else np.matmul(product(i, split[i, j]), product(split[i, j] + 1, j))
        )

    result = product(0, len(arrays) - 1)
    if last:
        result = result[..., 0]
    return result[0] if first else result


@composed(np.linalg.tensorinv, "a")
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of tensordot(a, x, ind) as a function of x.

    >>> import tapegrad as tg
    >>> tg.linalg.tensorinv(tg.eye(4).reshape(4, 2, 2), ind=1).shape
    (2, 2, 4)
    """
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = np.shape(a)
    flat = np.reshape(a, (int(np.prod(shape[:ind])), -1))
    return np.reshape(inv(flat), shape[ind:] + shape[:ind])


@composed(np.linalg.trace, "x")
def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sum of the entries on a diagonal of each matrix, which are cast to `dtype` before.

    >>> import tapegrad as tg
    >>> tg.linalg.trace(tg.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    entries = diagonal(x, offset=offset)
    return np.sum(entries if dtype is None else entries.astype(dtype), axis=-1)


@composed(np.linalg.diagonal, "x")
def diagonal(x: Any, *, offset: int = 0) -> Any:
    """The entries on a diagonal of each matrix.

    >>> import tapegrad as tg
    >>> tg.linalg.diagonal(tg.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    return _diagonal(x, offset, -2, -1)


@composed(np.linalg.outer, "x1", "x2")
def outer(x1: Any, x2: Any) -> Any:
    """All products of an entry of one vector with one of another.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.outer(tg.tensor([1.0, 2.0]), np.array([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are x1.ndim={np.ndim(x1)} and x2.ndim={np.ndim(x2)}."
        )
    return x1[:, None] * x2[None, :]


@composed(np.linalg.cross, "x1", "x2")
def cross(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """Vector product of vectors with three entries along an axis.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: np.cross(a, [0.0, 0.0, 1.0])[0])(np.array([1.0, 2.0, 3.0]))
    array([0., 1., 0.])
    """
    x1, x2 = np.moveaxis(x1, axis, -1), np.moveaxis(x2, axis, -1)
    if np.shape(x1)[-1] != 3 or np.shape(x2)[-1] != 3:
        raise ValueError(
            f"cross was given vectors of {np.shape(x1)[-1]} and {np.shape(x2)[-1]} entries, but both must have 3. "
            "In the plane, write x1[0] * x2[1] - x1[1] * x2[0]."
        )
    turns = ((1, 2), (2, 0), (0, 1))
    return np.moveaxis(
        np.stack([x1[..., i] * x2[..., j] - x1[..., j] * x2[..., i] for i, j in turns], axis=-1),
        -1,
        axis,
    )


@composed(np.linalg.vecdot, "x1", "x2")
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Inner product along an axis, the first operand conjugated.

    >>> import numpy as np, tapegrad as tg
    >>> tg.linalg.vecdot(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    tensor([3., 7.])
    """
    return np.sum(np.moveaxis(conj(x1), axis, -1) * np.moveaxis(x2, axis, -1), axis=-1)


@composed(np.linalg.matmul, "x1", "x2")
def matmul(x1: Any, x2: Any) -> Any:
    """Matrix product.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: np.matmul(a, a).sum())(np.eye(2))
    array([[2., 2.],
           [2., 2.]])
    """
    return np.matmul(x1, x2)


@composed(np.linalg.tensordot, "x1", "x2")
def tensordot(x1: Any, x2: Any, *, axes: Any = 2) -> Any:
    """Sum of products over pairs of axes.

    >>> import numpy as np, tapegrad as tg
    >>> np.tensordot(tg.ones((2, 3, 4)), np.ones((4, 3)), axes=((1, 2), (1, 0)))
    tensor([12., 12.])
    """
    return _tensordot(x1, x2, axes)


@composed(np.linalg.matrix_transpose, "x", also=(np.matrix_transpose,))
def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged.

    >>> import tapegrad as tg
    >>> tg.matrix_transpose(tg.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    return np.swapaxes(x, -1, -2)
