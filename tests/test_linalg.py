"""Linear algebra: what the laws of single ops (tests/test_ops.py) do not say.

Functions made of several ops obey the laws, too; choices of vectors are refused or do not matter; equal eigenvalues, singular
matrices and norms at 0 have the derivative that exists, or none; triangles are read as NumPy reads them; factors are kept.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad import NotDifferentiable
from tapegrad.check.laws import laws_of
from tapegrad.check.samples import samples_from
from tapegrad.core.domain import Domain, dominant, real
from tapegrad.core.primitive import CONSTANTS, FUNCTIONS, REFUSED, call
from tapegrad.ops import linear_algebra, matrix_functions

LA = np.linalg
LinAlgError = np.linalg.LinAlgError


def flat(*results):
    """Several results, one after the other."""
    return np.concatenate([np.ravel(r) for r in results])


def matrices(*shapes, **settings):
    """A call with well-behaved matrices."""
    return call(*shapes, domains=(dominant,), **settings)


def system(*shapes, **settings):
    """A call with a well-behaved matrix and any right side."""
    return call(*shapes, domains=(dominant, real), **settings)


steep = Domain(
    "steep",
    lambda rng, shape: rng.uniform(-0.5, 0.5, shape) + 2.5 * (np.arange(shape[-1]) == 0),
)

ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)

# fmt: off
COMPOSED = {
    "solve": (LA.solve, [system((3, 3), (3,)), system((3, 3), (3, 2)), system((2, 3, 3), (3,)), system((3, 3), (2, 3, 2)),
                         system((2, 1, 2, 2), (3, 2, 1))]),
    "solve-large": (LA.solve, [system((2, 32, 32), (32, 1))]),
    "tensorsolve": (lambda a, b: LA.tensorsolve(np.reshape(a, (2, 3, 3, 2)), np.reshape(b, (2, 3))), [system((6, 6), (6,))]),
    "tensorinv": (lambda a: LA.tensorinv(np.reshape(a, (2, 2, 4))), [matrices((4, 4))]),
    "cho_solve": (lambda a, b: tg.linalg.cho_solve(tg.linalg.cho_factor(a), b),
                  [system((3, 3), (3,)), system((2, 2, 2), (2, 1))]),
    "cho_solve-lower": (lambda a, b: tg.linalg.cho_solve(tg.linalg.cho_factor(a, lower=True), b), [system((3, 3), (3, 2))]),
    "lu_solve": (lambda a, b, trans=0: tg.linalg.lu_solve(tg.linalg.lu_factor(a), b, trans),
                 [system((3, 3), (3,), trans=t) for t in range(3)] + [system((2, 3, 3), (3, 1))]),
    "lu_solve-exchanged": (lambda a, b: tg.linalg.lu_solve(tg.linalg.lu_factor(a[..., [2, 0, 1], :]), b),
                           [system((3, 3), (3,)), system((2, 3, 3), (2, 3, 1))]),
    "solve_triangular": (tg.linalg.solve_triangular,
                         [system((3, 3), (3,), trans=t, lower=lower) for t in ("N", 1, 2) for lower in (False, True)]
                         + [system((3, 3), (3, 1), unit_diagonal=True)]),
    "solve_banded": (lambda ab, b: tg.linalg.solve_banded((1, 0), ab, b), [system((2, 3), (3,))]),
    "solve_banded-stack": (lambda ab, b: tg.linalg.solve_banded((1, 0), ab, b), [system((4, 2, 3), (4, 3, 2))]),
    "solve_toeplitz-stack": (lambda c, r, b: tg.linalg.solve_toeplitz((c, r), b), 
                             [call((2, 3), (1, 3), (3, 2), domains=(steep, steep, real)),
                              call((3,), (3,), (2, 3, 1), domains=(steep, steep, real))]),
    "solve_toeplitz": (tg.linalg.solve_toeplitz,
                       [call((3,), (3,), domains=(steep, real)), call((3,), (3, 2), domains=(steep, real))]),
    "solve_toeplitz-row": (lambda c, r, b: tg.linalg.solve_toeplitz((c, r), b),
                           [call((3,), (3,), (3,), domains=(steep, steep, real))]),
    "toeplitz": (tg.linalg.toeplitz, [call((3,)), call((3,), (2,))]),
    "block_diag": (tg.linalg.block_diag, [call((2, 2), (1, 3)), call((2, 1, 2), (3,))]),
    "solve_continuous_lyapunov": (tg.linalg.solve_continuous_lyapunov, [system((3, 3), (3, 3))]),
    "polar": (lambda a: flat(*tg.linalg.polar(a)), [matrices((3, 3)), matrices((3, 2))]),
    "polar-left": (lambda a: flat(*tg.linalg.polar(a, side="left")), [matrices((2, 3))]),
    "logm-stack": (tg.linalg.logm, [matrices((2, 2, 2))]),
    "lstsq": (lambda a, b: flat(*LA.lstsq(a, b)[:2]), [system((4, 2), (4,)), system((4, 2), (4, 3)), system((3, 3), (3,))]),
    "pinv-hermitian": (lambda a: LA.pinv(a, hermitian=True), [matrices((3, 3))]),
    "svd-values": (lambda a: LA.svd(a, compute_uv=False), [matrices((2, 3))]),
    "svd-hermitian": (lambda a: LA.svd(a, compute_uv=False, hermitian=True), [matrices((3, 3))]),
    "qr-wide": (lambda a: flat(*LA.qr(a)), [matrices((2, 3)), matrices((2, 2, 4))]),
    "qr-r": (lambda a: LA.qr(a, mode="r"), [matrices((3, 2))]),
    "cond": (LA.cond, [matrices((3, 3), p=p) for p in (None, -2, 1, np.inf, "fro")] + [matrices((2, 3, 2))]),
    "norm": (LA.norm, [call((3,)), call((2, 3)), call((2, 2, 2)), call((2, 3), keepdims=True)]
             + [call((2, 3), ord=p, axis=1) for p in (None, 1, 2, 3, -1, 0.5, np.inf, -np.inf)]),
    "norm-matrix": (LA.norm, [matrices((3, 3), ord=p) for p in ORDERS]
                    + [matrices((2, 3, 2), ord="nuc", axis=(2, 0), keepdims=True)]),
    "vector_norm": (LA.vector_norm, [call((2, 3)), call((2, 3, 2), axis=(0, 2), ord=3, keepdims=True)]),
    "matrix_norm": (LA.matrix_norm, [matrices((2, 3, 3)), matrices((2, 3), ord=1, keepdims=True)]),
    "matrix_power": (LA.matrix_power, [matrices((3, 3), n=n) for n in (-2, 1, 5)]),
    "multi_dot": (lambda *xs: LA.multi_dot(xs), [call((2, 3), (3, 1), (1, 4)), call((3,), (3, 2), (2,)), call((2, 2), (2,))]),
    "trace": (LA.trace, [call((2, 3, 3)), call((3, 4), offset=1)]),
    "diagonal": (LA.diagonal, [call((2, 3, 3), offset=-1)]),
    "outer": (LA.outer, [call((2,), (3,))]),
    "cross": (LA.cross, [call((3,), (2, 3)), call((3, 2), (3, 2), axis=0)]),
    "vecdot": (LA.vecdot, [call((3,), (2, 3)), call((3, 2), (3, 2), axis=0)]),
    "matmul": (LA.matmul, [call((2, 3), (3,))]),
    "tensordot": (LA.tensordot, [call((2, 3), (3, 2), axes=1)]),
    "matrix_transpose": (LA.matrix_transpose, [call((2, 3, 2))]),
}
# fmt: on

# The laws that a function made of ops could break while its ops obey them, and the kinds of samples that tell.
LAWS = {
    "": ("value", "derivative", "adjoint"),
    "complex": ("value", "derivative"),
    "float32": ("dtype",),
}


# Before NumPy 2.4 the condition of a complex matrix is a complex number, whose imaginary part is 0; here it is a real number.
COMPLEX_CONDITION = LA.cond(np.eye(2, dtype=complex), 1).dtype.kind == "c"


def cases():
    for name, (function, calls) in COMPOSED.items():
        for sample in samples_from(function, calls):
            kind = (
                sample.name.rsplit(",", 1)[-1]
                if sample.name.endswith(("complex", "float32", "strided", "mixed"))
                else ""
            )
            if "only" in sample.name:
                continue
            for law in laws_of(sample):
                if (
                    name == "cond"
                    and kind == "complex"
                    and law.name == "value"
                    and COMPLEX_CONDITION
                ):
                    continue
                if law.name in LAWS.get(kind, ()):
                    yield pytest.param(law, sample, id=f"{name}-{sample.name}-{law.name}")


@pytest.mark.parametrize(("law", "sample"), list(cases()))
def test_law(law, sample):
    law(sample)


# --------------------------------------------------------------------------------------------------- judging


def slopes(f, x, step=1e-6):
    """dL/da + i dL/db for x = a + ib, by central differences: PyTorch's gradient of a real-valued function."""
    x = np.asarray(x)
    gradient = np.zeros(x.shape, x.dtype)
    for where in np.ndindex(x.shape):
        for direction in (1, 1j) if x.dtype.kind == "c" else (1,):
            unit = np.zeros(x.shape, x.dtype)
            unit[where] = step * direction
            gradient[where] += direction * (f(x + unit) - f(x - unit)) / (2 * step)
    return gradient


def judged(f, x, atol=1e-7, forward=True):
    """The gradient of f at x by reverse mode, after it was compared with differences and with forward mode."""
    gradient = tg.grad(f)(x)
    np.testing.assert_allclose(gradient, slopes(lambda x: np.real(f(x)), x), atol=atol)
    if not forward:
        return gradient
    direction = np.random.default_rng(1).normal(size=x.shape) * (
        1 + 0.5j if x.dtype.kind == "c" else 1
    )
    tangent = tg.jvp(f, (x,), (direction,))[1]
    np.testing.assert_allclose(tangent, np.sum(np.real(np.conj(gradient) * direction)), atol=atol)
    return gradient


def random_complex(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def squared(x):
    return np.real(x * np.conj(x))


# ------------------------------------------------------------------------------------------ choices of vectors


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("function", [LA.eigh, LA.eig])
def test_functions_without_a_phase_of_complex_eigenvectors(function, shape, rng):
    weights, values = rng.normal(size=shape), rng.normal(size=shape[-1])

    def f(a):
        w, v = function(a)
        return np.sum(weights * squared(v)) + np.sum(values * np.real(w * w))

    judged(f, random_complex(rng, *shape))


def test_eigenvectors_of_a_real_matrix_with_complex_eigenvalues(rng):
    a = np.array([[1.0, -2.0, 0.3], [1.5, 0.8, 0.1], [0.2, -0.4, 3.0]])
    weights = rng.normal(size=(3, 3))
    assert np.iscomplexobj(LA.eig(a)[1])
    judged(lambda a: np.sum(weights * squared(LA.eig(a)[1])), a)
    # The two vectors of a conjugate pair have opposite phases, so this does not depend on them.
    judged(lambda a: np.sum(weights[0] * np.real(LA.eig(a)[1][:, 0] * LA.eig(a)[1][:, 1])), a)
    # A real vector has a sign only.
    judged(lambda a: np.sum(weights[0] * np.real(LA.eig(a)[1][:, 2])), a)
    with pytest.raises(NotDifferentiable, match="complex eigenvectors"):
        tg.grad(lambda a: np.real(LA.eig(a)[1][0, 0] * 1j))(a)


@pytest.mark.parametrize(
    "function", [lambda a: LA.eigh(a)[1], lambda a: LA.eig(a)[1], lambda a: LA.svd(a)[0]]
)
def test_functions_of_the_phase_are_refused(function, rng):
    a = random_complex(rng, 3, 3)
    with pytest.raises(NotDifferentiable, match=r"depends on which of the possible vectors"):
        tg.grad(lambda a: np.sum(np.imag(function(a)[0])) + np.sum(np.real(function(a)[1])))(a)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_functions_without_a_phase_of_complex_singular_vectors(shape, rng):
    left, right, middle = (rng.normal(size=shape) for _ in range(3))
    k = min(shape)

    def f(a):
        u, s, vh = LA.svd(a, full_matrices=False)
        both = (u * s**2) @ vh  # opposite phases cancel
        return (
            np.sum(left[:, :k] * squared(u))
            + np.sum(right[:k] * squared(vh))
            + np.sum(middle * np.real(both))
        )

    judged(f, random_complex(rng, *shape))


@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_vectors_that_complete_a_basis(shape, rng):
    """The space they span is a smooth function of the matrix; they are not."""
    weights = rng.normal(size=(4, 4))
    part = (
        (lambda a: LA.svd(a)[0][:, 2:])
        if shape == (4, 2)
        else (lambda a: np.conj(LA.svd(a)[2][2:].T))
    )

    def of_space(a):
        v = part(a)
        return np.sum(weights * np.real(v @ np.conj(np.swapaxes(v, 0, 1))))

    judged(of_space, rng.normal(size=shape))
    judged(of_space, random_complex(rng, *shape))
    with pytest.raises(NotDifferentiable, match="complete the basis"):
        tg.grad(lambda a: np.sum(weights[:, :2] * np.real(part(a))))(rng.normal(size=shape))


def test_complete_qr_by_the_space_of_its_other_columns(rng):
    weights = rng.normal(size=(4, 4))

    def of_space(a):
        q = LA.qr(a, "complete")[0][:, 2:]
        return np.sum(weights * (q @ q.T))

    judged(of_space, rng.normal(size=(4, 2)))
    with pytest.raises(NotDifferentiable, match="complete the basis"):
        tg.grad(lambda a: np.sum(weights * LA.qr(a, "complete")[0]))(rng.normal(size=(4, 2)))
    with pytest.raises(NotDifferentiable, match="raw"):
        tg.grad(lambda a: LA.qr(a, "raw")[0].sum())(rng.normal(size=(4, 2)))


def test_hermitian_svd(rng):
    a = rng.normal(size=(3, 3))
    a = a + a.T
    weights = rng.normal(size=(3, 3))

    def f(a):
        u, s, vh = LA.svd(a, hermitian=True)
        return np.sum(weights * ((u * s**2) @ vh)) + np.sum(weights * u * vh.T)

    judged(f, a)


# ------------------------------------------------------------------------------------------ equal eigenvalues


def rotated(values, rng):
    """A symmetric matrix with these eigenvalues, equal ones up to rounding only."""
    q = LA.qr(rng.normal(size=(len(values), len(values))))[0]
    return (q * values) @ q.T


TWINS = [1.0, 1.0, 2.0]


def test_functions_of_equal_eigenvalues(rng):
    for a in (np.diag(TWINS), rotated(TWINS, rng), np.eye(3)):
        expected = 3 * a @ a  # of tr a³, whichever triangle stands for it
        expected = np.tril(2 * expected, -1) + np.diag(np.diag(expected))
        for values in (LA.eigvalsh, lambda a: LA.eigh(a)[0]):
            np.testing.assert_allclose(
                tg.grad(lambda a, values=values: np.sum(values(a) ** 3))(a), expected, atol=1e-12
            )
        np.testing.assert_allclose(
            tg.grad(lambda a: np.real(np.sum(LA.eigvals(a) ** 3)))(a), 3 * (a @ a).T, atol=1e-12
        )
        np.testing.assert_allclose(
            tg.grad(lambda a: np.sum(LA.svdvals(a) ** 3))(a), 3 * a @ a, atol=1e-12
        )
        np.testing.assert_allclose(
            tg.grad(lambda a: np.sum(LA.svd(a)[1] ** 3))(a), 3 * a @ a, atol=1e-12
        )


@pytest.mark.parametrize(
    "function", [lambda a: LA.eigh(a)[1], lambda a: LA.eig(a)[1], lambda a: LA.svd(a)[0]]
)
def test_vectors_of_equal_eigenvalues_are_refused(function, rng):
    weights = rng.normal(size=(3, 3))
    for a in (np.diag(TWINS), rotated(TWINS, rng), np.eye(3), np.eye(3, dtype=np.float32)):
        with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
            tg.grad(lambda a: np.sum(weights * squared(function(a))))(a)
        with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
            tg.jvp(function, (a,), (weights.astype(a.dtype),))


def test_the_vector_of_a_single_eigenvalue_beside_equal_ones(rng):
    a = rotated(TWINS, rng)
    weights = rng.normal(size=(3, 3))

    def by_eigh(a):
        v = LA.eigh(a)[1]
        return np.sum(weights * v[:, 2:] * v[:, 2])

    def by_svd(a):
        u, _, vh = LA.svd(a)
        return np.sum(weights * u[:, :1] * vh[0])

    judged(by_eigh, a, forward=False)
    judged(by_svd, a, forward=False)
    for f in (by_eigh, by_svd):  # forward mode cannot know what will be asked
        with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
            tg.jvp(f, (a,), (weights,))


def test_no_rule_could_know_the_gradient_for_equal_eigenvalues():
    """Why these are refused: V Vᵀ and V Λ Vᵀ differ, and so do their gradients, but at Λ = 1 V gets the same cotangents."""
    m = np.array([[0.0, 1.0], [1.0, 0.0]])

    def f(a, power):
        w, v = LA.eigh(a)
        return np.sum(m * ((v * w**power) @ v.T))

    for power in (0, 1):
        with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
            tg.grad(lambda a, power=power: f(a, power))(np.eye(2))


def test_smooth_functions_of_a_matrix_with_equal_eigenvalues(rng):
    for f in (
        tg.linalg.expm,
        tg.linalg.sqrtm,
        tg.linalg.logm,
        LA.inv,
        lambda a: tg.linalg.polar(a)[1],
    ):
        weights = rng.normal(size=(3, 3))
        judged(lambda a, f=f, w=weights: np.sum(w * f(a)), rotated(TWINS, rng))


def test_a_second_derivative_with_equal_eigenvalues_is_refused_not_wrong(rng):
    with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
        tg.hessian(lambda a: np.sum(LA.eigvalsh(a) ** 3))(np.eye(2))


def test_a_defective_matrix():
    """Its eigenvalues move like a square root: infinitely fast, but their sum does not."""
    a = np.array([[2.0, 1.0], [0.0, 2.0]])
    assert np.max(np.abs(tg.grad(lambda a: np.real(LA.eigvals(a)[0]))(a))) > 1e7
    np.testing.assert_allclose(
        tg.grad(lambda a: np.real(np.sum(LA.eigvals(a))))(a), np.eye(2), atol=1e-7
    )


# ----------------------------------------------------------------------------------------- singular matrices


@pytest.mark.parametrize(
    "function",
    [
        LA.inv,
        lambda a: LA.solve(a, np.ones(3)),
        lambda a: tg.linalg.lu_factor(a)[0],
        lambda a: tg.linalg.solve_triangular(a, np.ones(3)),
    ],
)
def test_a_singular_matrix_raises_as_in_numpy(function):
    with pytest.raises(LinAlgError, match="Singular"):
        function(tg.tensor(np.zeros((3, 3)), requires_grad=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_slogdet_of_a_large_matrix_goes_back_by_its_factors(dtype, rng):
    a = rng.normal(size=(70, 70)).astype(dtype)
    if dtype == "complex128":
        a = a + 1j * rng.normal(size=a.shape)
    tolerance = 1e-2 if dtype == "float32" else 1e-9
    t = tg.tensor(a, requires_grad=True)
    sign, log = LA.slogdet(t)
    for ours, theirs in zip((sign, log), np.linalg.slogdet(a), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tolerance / 100)
    log.backward()
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(t.grad.numpy(), inverse.conj().T, rtol=tolerance, atol=tolerance)
    if dtype == "float64":
        turned = tg.hvp(lambda a: LA.slogdet(a)[1])(tg.tensor(a), tg.tensor(a.T))
        np.testing.assert_allclose(
            turned.numpy(), -(inverse @ a.T @ inverse).T, rtol=1e-7, atol=1e-9
        )
        compiled = tg.compile(tg.grad(lambda a: LA.slogdet(a)[1]))
        np.testing.assert_allclose(compiled(a), inverse.T, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("n", [49, 96, 150])
def test_cotangents_of_large_cholesky_factors_by_blocks(n, dtype, rng, monkeypatch):
    a, w = rng.normal(size=(2, 2, n, n))
    if dtype == "complex128":
        a, w = (x + 1j * rng.normal(size=x.shape) for x in (a, w))
    a = (a @ a.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
    w = w.astype(dtype)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    for upper in (False, True):
        found = []
        for above in (10**6, 0):
            monkeypatch.setattr(linear_algebra, "BLOCKED_ABOVE", above)
            t = tg.tensor(a, requires_grad=True)
            np.sum(np.real(LA.cholesky(t, upper=upper) * w)).backward()
            found.append(t.grad.numpy())
        assert found[0].dtype == found[1].dtype == dtype
        np.testing.assert_allclose(found[1], found[0], atol=tolerance * abs(found[0]).max())
    if dtype == "float64" and n == 49:
        second = tg.hvp(lambda a: np.sum(LA.cholesky(a) ** 3 * w))
        by_blocks = second(a, w)
        monkeypatch.setattr(linear_algebra, "BLOCKED_ABOVE", 10**6)
        np.testing.assert_allclose(by_blocks, second(a, w), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_tangents_of_large_exponentials(dtype, rng):
    """From some size on they are SciPy's; the oracle is the exponential of the block matrix."""
    n = matrix_functions.AS_BLOCKS + 6
    a, e = rng.normal(size=(2, 2, n, n)) / n**0.5
    if dtype == "complex128":
        a, e = (x + 1j * rng.normal(size=x.shape) for x in (a, e))
    a, e = a.astype(dtype), e.astype(dtype)
    _, tangent = tg.jvp(tg.linalg.expm, (a,), (e,))
    assert tangent.dtype == dtype
    for k in range(2):
        block = np.block([[a[k], e[k]], [np.zeros_like(a[k]), a[k]]])
        expected = scipy.linalg.expm(block.astype(complex))[:n, n:]
        close = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(tangent[k], expected, atol=close * abs(expected).max())
    if dtype == "float64":
        w = rng.normal(size=(n, n))

        def loss(x):
            return np.sum(tg.linalg.expm(x * a[0]) * w)

        expected = np.sum(a[0] @ a[0] @ scipy.linalg.expm(0.7 * a[0]) * w)
        np.testing.assert_allclose(tg.grad(tg.grad(loss))(0.7), expected, rtol=1e-9)
        assert np.isnan(tg.grad(loss)(np.nan))


def test_a_smooth_function_of_singular_values_has_its_hessian_where_one_is_0(rng):
    u, _, vh = np.linalg.svd(rng.normal(size=(3, 3)))
    a = tg.tensor(u * [3.0, 1.0, 0.0] @ vh)

    def squares(a):
        return np.sum(LA.svdvals(a) ** 2)

    np.testing.assert_allclose(
        tg.hessian(squares)(a).numpy().reshape(9, 9), 2 * np.eye(9), atol=1e-9
    )
    np.testing.assert_allclose(tg.hvp(squares)(a, a).numpy(), 2 * a.numpy(), atol=1e-9)


@pytest.mark.parametrize("n", [2, 70])
def test_the_gradient_of_slogdet_of_a_singular_matrix_raises(n):
    a = tg.tensor(np.zeros((n, n)), requires_grad=True)
    sign, log = LA.slogdet(a)
    assert (sign.item(), log.item()) == (0, -np.inf)
    with pytest.raises(LinAlgError):
        log.backward()


@pytest.mark.parametrize("kind", [float, complex])
def test_det_of_singular_matrices_has_its_cofactors_for_gradient(kind, rng):
    a = random_complex(rng, 3, 3) if kind is complex else rng.normal(size=(3, 3))
    a[2] = a[0] - 2 * a[1]
    judged(lambda a: np.real(LA.det(a)), a)
    judged(lambda a: np.real(np.sum(LA.det(a))), np.stack([a, np.eye(3) + 0 * a]))
    np.testing.assert_allclose(tg.grad(lambda a: LA.det(a))(np.zeros((3, 3))), 0)
    np.testing.assert_allclose(
        tg.grad(lambda a: LA.det(a))(np.diag([0.0, 2.0, 3.0])), np.diag([6.0, 0, 0]), atol=1e-12
    )
    np.testing.assert_allclose(tg.grad(lambda a: LA.det(a))(np.zeros((1, 1))), 1)
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    hessian = tg.hessian(lambda a: LA.det(a))(singular).reshape(4, 4)
    np.testing.assert_allclose(
        hessian, [[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]], atol=1e-12
    )


def test_matrix_equations_without_a_solution_raise():
    a = np.diag([1.0, 2.0])
    with pytest.raises(LinAlgError, match="share an eigenvalue"):
        tg.linalg.solve_sylvester(a, -a, np.eye(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of SciPy warn of the value already
        with pytest.raises(LinAlgError, match="share an eigenvalue"):
            tg.grad(lambda a: np.sum(tg.linalg.sqrtm(a)))(np.zeros((2, 2)))


def test_not_positive_definite():
    with pytest.raises(LinAlgError):
        LA.cholesky(tg.tensor(-np.eye(2), requires_grad=True))


@pytest.mark.parametrize(
    "function",
    [
        LA.inv,
        LA.det,
        LA.eigh,
        LA.cholesky,
        tg.linalg.lu_factor,
        lambda a: LA.solve(a, a),
        lambda a: LA.matrix_power(a, 2),
    ],
)
def test_matrices_that_are_not_square(function):
    with pytest.raises(LinAlgError, match="square"):
        function(tg.tensor(np.ones((3, 2)), requires_grad=True))


# ------------------------------------------------------------------------------------- at 0, ties and rank


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, -1, np.inf, -np.inf, None])
def test_the_gradient_of_a_norm_at_0_is_0(p):
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    with np.errstate(divide="ignore"):  # NumPy's norm of order -1 divides by 0
        for x in (np.zeros(3), np.zeros(3, complex)):
            np.testing.assert_array_equal(tg.grad(lambda x: LA.norm(x, p))(x), 0)
        gradient = tg.grad(lambda x: np.sum(LA.norm(x, p, axis=1)))(rows)
    assert np.all(gradient[0] == 0)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("p", ORDERS)
def test_the_gradient_of_a_matrix_norm_at_0_is_0(p):
    np.testing.assert_array_equal(tg.grad(lambda x: LA.norm(x, p))(np.zeros((2, 3))), 0)


def test_norms_share_the_gradient_among_ties():
    np.testing.assert_array_equal(
        tg.grad(lambda x: LA.norm(x, np.inf))(np.array([2.0, -2.0, 1.0])), [0.5, -0.5, 0]
    )
    np.testing.assert_allclose(
        tg.grad(lambda x: LA.norm(x, 2))(np.eye(2)), 0.5 * np.eye(2), atol=1e-15
    )


def test_the_nuclear_norm_of_a_matrix_without_full_rank():
    """Of all subgradients the one of least norm, U₁ V₁ᴴ."""
    x = np.outer([3.0, 4.0], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        tg.grad(lambda x: LA.norm(x, "nuc"))(x), np.outer([0.6, 0.8], [1, 0, 0]), atol=1e-15
    )


def test_second_derivatives_of_the_length_where_entries_are_0():
    hessian = tg.hessian(lambda x: LA.norm(x))(np.array([0.0, 2.0]))
    np.testing.assert_allclose(hessian, [[0.5, 0], [0, 0]], atol=1e-15)
    cubic = tg.hessian(lambda x: LA.norm(x, 4))(np.array([0.0, 2.0]))
    np.testing.assert_allclose(cubic, 0, atol=1e-15)


@pytest.mark.parametrize("a", [
    np.array([[1.0, 2.0, 3.0]] * 3),
    np.array([[1.0, 0.0, 3.0], [2.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    np.stack([np.eye(3), np.array([[1.0, 2.0, 3.0]] * 3)]),
    np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 1.0]]),
])  # fmt: skip
def test_qr_without_full_rank_has_no_derivative(a, rng):
    """The factors jump there: what came back was rounding errors times 1e16."""
    f = lambda a: np.sum(np.linalg.qr(a)[1] ** 3)  # noqa: E731
    gradient = tg.grad(f)
    compiled = tg.compile(gradient)
    compiled(rng.standard_normal(a.shape))
    second = tg.grad(lambda a: np.sum(gradient(a) ** 2))
    for way in (gradient, compiled, second, lambda a: tg.jvp(f, (a,), (np.ones_like(a),))):
        with pytest.raises(tg.NotDifferentiable, match="full rank"):
            way(a)


def test_qr_under_njit_without_full_rank_has_no_derivative():
    @tg.njit
    def f(a):
        q, r = np.linalg.qr(a)
        return np.sum(r)

    with pytest.raises(tg.NotDifferentiable, match="full rank"):
        tg.grad(f)(np.array([[1.0, 2.0, 3.0]] * 3))


def test_qr_of_columns_of_different_scales():
    """Whether a column depends on the others is no matter of its length; of a wide matrix the first columns count alone."""
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    f = lambda a: np.sum(np.linalg.qr(a)[1][:, 1])  # noqa: E731
    scaled = tg.grad(f)(a * [1.0, 1e-20])
    np.testing.assert_allclose(scaled[:, 1], tg.grad(f)(a)[:, 1], 1e-12)
    assert np.isfinite(tg.grad(f)(np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]]))).all()


def test_pinv_and_lstsq_where_the_rank_stays(rng):
    """Not of full rank, but along a curve on which the rank does not change."""
    left, right = rng.normal(size=(4, 2)), rng.normal(size=(2, 3))
    turn = rng.normal(size=(4, 4))
    weights, b = rng.normal(size=(3, 4)), rng.normal(size=4)

    def matrix(t):
        return (left + t * (turn @ left)) @ right

    for f in (
        lambda t: np.sum(weights * LA.pinv(matrix(t), 1e-10)),
        lambda t: np.sum(weights[:, 0] * LA.lstsq(matrix(t), b, rcond=1e-10)[0]),
    ):
        np.testing.assert_allclose(tg.grad(f)(0.1), slopes(f, np.array(0.1)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 3, 3)])
def test_pinv_and_lstsq_that_cut_singular_values(rng, shape, dtype):
    """`rcond` leaves out singular values that are not 0: what is lost moves what is kept."""
    m, n = shape[-2:]

    def numbers(*size):
        return rng.normal(size=size) + (1j * rng.normal(size=size) if dtype is complex else 0)

    left, right = (
        np.linalg.qr(numbers(*shape[:-1], min(m, n)))[0],
        np.linalg.qr(numbers(*shape[:-2], n, min(m, n)))[0],
    )
    x = left * np.array([2.0, 1.0, 0.3]) @ np.conj(np.swapaxes(right, -1, -2))
    weights, b, turn = numbers(*shape[:-2], n, m), numbers(m), numbers(*shape)
    programs = [lambda t: np.sum(np.real(weights * LA.pinv(x + t * turn, rtol=0.3)))]
    if len(shape) == 2:
        programs.append(
            lambda t: np.sum(np.real(weights[:, 0] * LA.lstsq(x + t * turn, b, rcond=0.3)[0]))
        )
        programs.append(
            lambda t: np.sum(np.real(weights.T @ LA.pinv(np.conj((x + t * turn).T) @ x, 0.3)))
        )
    for f in programs:
        np.testing.assert_allclose(tg.grad(f)(0.01), slopes(f, np.array(0.01)), rtol=1e-6)
        np.testing.assert_allclose(tg.jvp(f, (0.01,), (1.0,))[1], tg.grad(f)(0.01), rtol=1e-9)
        np.testing.assert_allclose(
            tg.grad(tg.grad(f))(0.01), slopes(tg.grad(f), np.array(0.01)), rtol=1e-6
        )
        np.testing.assert_allclose(tg.compile(tg.grad(f))(0.01), tg.grad(f)(0.01), rtol=1e-9)


def test_a_norm_of_nothing_is_real():
    for ord in (None, 1, 3):
        assert LA.norm(tg.zeros((0, 3), dtype=complex), ord, axis=0).dtype == float
    assert LA.norm(tg.zeros((0, 3), dtype=np.complex64)).dtype == np.float32


def test_lstsq_gives_what_numpy_gives(rng):
    for shape, b in (((4, 2), 4), ((2, 4), 2), ((3, 3), 3)):
        a, y = rng.normal(size=shape), rng.normal(size=(b, 2))
        ours = LA.lstsq(tg.tensor(a, requires_grad=True), tg.tensor(y))
        for mine, theirs in zip(ours, LA.lstsq(a, y), strict=True):
            np.testing.assert_allclose(
                mine.detach() if isinstance(mine, tg.Tensor) else mine, theirs, atol=1e-12
            )


# ------------------------------------------------------------------------------------------------- triangles


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("kind", [float, complex])
def test_only_one_triangle_is_read_and_only_there_is_a_gradient(side, kind, rng):
    base = random_complex(rng, 3, 3) if kind is complex else rng.normal(size=(3, 3))
    a = base @ base.conj().T + np.eye(3)
    keep = np.tril if side == "lower" else np.triu
    uplo = side[0].upper()
    weights = rng.normal(size=(3, 3))
    for f in (
        lambda a: np.sum(weights[0] * LA.eigvalsh(a, uplo)),
        lambda a: np.sum(weights * squared(LA.eigh(a, uplo)[1])),
        lambda a: np.sum(weights * np.real(LA.cholesky(a, upper=side == "upper"))),
    ):
        whole = judged(f, a)
        np.testing.assert_array_equal(whole, keep(whole))
        np.testing.assert_array_equal(np.imag(np.diag(whole)), 0)
        np.testing.assert_allclose(judged(f, keep(a)), whole, atol=1e-10)


def test_solve_triangular_does_not_read_the_other_triangle():
    a = tg.tensor([[2.0, np.nan], [1.0, 4.0]], requires_grad=True)
    x = tg.linalg.solve_triangular(a, np.array([2.0, 9.0]), lower=True)
    x.sum().backward()
    np.testing.assert_array_equal(x.detach(), [1.0, 2.0])
    assert np.all(np.isfinite(a.grad.numpy()))
    assert a.grad.numpy()[0, 1] == 0


# ---------------------------------------------------------------------------------------------------- solving


def test_solve_takes_vectors_as_numpy_2_does(rng):
    """A right side is a vector only if it is 1-d: (2, 3) is no stack of vectors."""
    a = tg.tensor(rng.normal(size=(3, 3, 3)), requires_grad=True)
    assert LA.solve(a, rng.normal(size=3)).shape == (3, 3)
    assert LA.solve(a, rng.normal(size=(3, 2))).shape == (3, 3, 2)
    with pytest.raises(ValueError):
        LA.solve(a, rng.normal(size=(2, 3)))


def test_a_matrix_is_factorised_once_for_all_its_derivatives(rng, monkeypatch):
    from scipy.linalg import lapack

    count = 0
    original = lapack.dgetrf

    def counted(*args, **settings):
        nonlocal count
        count += 1
        return original(*args, **settings)

    monkeypatch.setattr(lapack, "dgetrf", counted)
    monkeypatch.setattr(np.linalg, "inv", None)
    a, b = rng.normal(size=(4, 4)), rng.normal(size=4)
    tg.value_and_grad(lambda a: np.sum(LA.solve(a, b) ** 2))(a)
    assert count == 1
    tg.jvp(lambda a: LA.solve(a, b), (a,), (a,))
    assert count == 2
    t = tg.tensor(a, requires_grad=True)
    (g,) = tg.autograd.grad((LA.solve(t, b) ** 2).sum(), t, create_graph=True)
    (g * g).sum().backward()
    assert count == 3


def test_no_matrices_and_matrices_without_entries():
    for shape in ((0, 2, 2), (0, 0), (2, 0, 0)):
        t = tg.tensor(np.zeros(shape), requires_grad=True)
        b = np.zeros((*shape[:-1], 1))
        for result in (
            LA.solve(t, b), LA.inv(t), LA.det(t), LA.slogdet(t)[1], LA.eigvalsh(t), LA.eigh(t)[1], LA.cholesky(t),
            LA.svd(t)[0], LA.qr(t)[1], tg.linalg.solve_triangular(t, b), tg.linalg.expm(t), tg.linalg.lu_factor(t)[0],
            tg.linalg.solve_sylvester(t, t, t), LA.norm(t),
        ):  # fmt: skip
            t.grad = None
            result.sum().backward()
            assert t.grad.shape == shape


@pytest.mark.parametrize(
    ("shape", "axes"), [((0,), 1), ((0, 2), ((0,), (0,))), ((2, 0), 1), ((2, 0), 0)]
)
def test_tensordot_over_an_empty_axis_stays_tracked(shape, axes):
    t = tg.tensor(np.ones(shape, np.float32), requires_grad=True)
    other = np.ones(shape[::-1] if axes == 1 else shape, np.float32)
    product = np.tensordot(t, other, axes)
    expected = np.tensordot(np.ones(shape, np.float32), other, axes)
    assert product.shape == expected.shape and product.dtype == expected.dtype
    np.testing.assert_array_equal(product.detach(), expected)
    product.sum().backward()
    assert t.grad.shape == shape


def test_the_zeroth_power_is_the_identity_and_does_not_move():
    power = LA.matrix_power(tg.tensor(np.full((2, 2), np.nan), requires_grad=True), 0)
    np.testing.assert_array_equal(power, np.eye(2))
    assert not power.requires_grad


def test_multi_dot_takes_the_cheapest_order():
    from tapegrad.ops.linear_algebra import _cheapest

    def cost(order, lengths, i, j):
        if i == j:
            return 0
        k = order[i, j]
        return (
            cost(order, lengths, i, k)
            + cost(order, lengths, k + 1, j)
            + lengths[i] * lengths[k + 1] * lengths[j + 1]
        )

    lengths = (30, 35, 15, 5, 10, 20, 25)  # the textbook's example (Cormen et al., section 15.2)
    assert cost(_cheapest(lengths), lengths, 0, 5) == 15125


# ----------------------------------------------------------------------------------------- names and imports


def test_every_name_of_numpy_linalg_is_in_one_bucket():
    for name in set(LA.__all__) - {"LinAlgError"}:
        buckets = [getattr(LA, name) in table for table in (FUNCTIONS, CONSTANTS, REFUSED)]
        assert sum(buckets) == 1, name
        assert hasattr(tg.linalg, name), name
        assert name in tg.linalg.__all__


def test_numpy_gives_named_results():
    t = tg.tensor(np.diag([1.0, 2.0]), requires_grad=True)
    assert LA.eigh(t).eigenvalues.requires_grad
    assert LA.eig(t).eigenvectors.requires_grad
    assert LA.svd(t).S.requires_grad
    assert LA.qr(t).Q.requires_grad
    assert LA.slogdet(t).logabsdet.requires_grad


@pytest.mark.long
def test_importing_tapegrad_does_not_import_scipy_linalg():
    code = "import tapegrad, sys; sys.exit('scipy.linalg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_single_precision_stays_single(rng):
    a = (rng.normal(size=(3, 3)) + 3 * np.eye(3)).astype(np.float32)
    one = np.float32(1)
    for f in (
        lambda a: np.sum(LA.solve(a, np.ones(3, np.float32))),
        lambda a: (
            LA.norm(a, "nuc") + LA.norm(a) + LA.norm(a, 3, axis=0)[0] + LA.cond(a) + LA.cond(a, 1)
        ),
        lambda a: np.sum(LA.svd(a)[0] * one) + np.sum(LA.qr(a)[0]) + np.sum(LA.pinv(a)),
        lambda a: np.sum(LA.eigh(a)[1]) + np.sum(LA.cholesky(a)) + LA.slogdet(a)[1],
        lambda a: np.sum(tg.linalg.lu_solve(tg.linalg.lu_factor(a), np.ones(3, np.float32))),
        lambda a: (
            np.sum(tg.linalg.expm(a)) + np.sum(tg.linalg.sqrtm(a)) + np.sum(tg.linalg.polar(a)[1])
        ),
    ):
        value, gradient = tg.value_and_grad(f)(a)
        assert np.asarray(value).dtype == gradient.dtype == np.float32


# -------------------------------------------------------------------------------------------- other libraries

# fmt: off
PEERS = [
    ("solve", lambda la, a, b: la.solve(a, b)),
    ("inv", lambda la, a, b: la.inv(a)),
    ("det", lambda la, a, b: la.det(a)),
    ("slogdet", lambda la, a, b: la.slogdet(a)[1]),
    ("eigh", lambda la, a, b: abs(la.eigh(a @ a.mT.conj())[1]) ** 2),
    ("eigvals", lambda la, a, b: (la.eigvals(a) ** 3).sum(-1).real),
    ("eig", lambda la, a, b: abs(la.eig(a)[1]) ** 2),
    ("svd", lambda la, a, b: abs(la.svd(a, full_matrices=False)[0]) ** 2),
    ("svdvals", lambda la, a, b: la.svdvals(a)),
    ("cholesky", lambda la, a, b: la.cholesky(a @ a.mT.conj())),
    ("qr", lambda la, a, b: la.qr(a[..., :2])[1]),
    ("pinv", lambda la, a, b: la.pinv(a[..., :2])),
    ("norm", lambda la, a, b: la.norm(a)),
    ("matrix_norm-nuc", lambda la, a, b: la.matrix_norm(a, ord="nuc")),
    ("matrix_power", lambda la, a, b: la.matrix_power(a, 3)),
    ("lu_solve", lambda la, a, b: la.lu_solve(*la.lu_factor(a), b) if la is not tg.linalg else la.lu_solve(la.lu_factor(a), b)),
    ("matrix_exp", lambda la, a, b: (la.expm if la is tg.linalg else la.matrix_exp)(a)),
]
# fmt: on


@pytest.mark.peers
@pytest.mark.parametrize(
    ("kind", "shape"), list(itertools.product((float, complex), ((3, 3), (2, 3, 3))))
)
@pytest.mark.parametrize("f", [f for _, f in PEERS], ids=[name for name, _ in PEERS])
def test_torch_agrees(f, kind, shape, rng):
    torch = pytest.importorskip("torch")
    a = random_complex(rng, *shape) if kind is complex else rng.normal(size=shape)
    b = random_complex(rng, *shape) if kind is complex else rng.normal(size=shape)
    gradients, values = [], []
    for library in (tg, torch):
        x, y = library.tensor(a, requires_grad=True), library.tensor(b, requires_grad=True)
        out = f(library.linalg, x, y)
        weights = np.cos(np.arange(np.prod(out.shape, dtype=int))).reshape(tuple(out.shape))
        out.backward(
            library.tensor(weights.astype(a.dtype) if "complex" in str(out.dtype) else weights)
        )
        values.append(out.detach().numpy())
        gradients.append([None if t.grad is None else t.grad.numpy() for t in (x, y)])
    np.testing.assert_allclose(*values, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.long
@pytest.mark.peers
@pytest.mark.parametrize("name", ["expm", "lstsq", "eigh", "solve_triangular", "toeplitz", "polar"])
def test_jax_agrees(name, rng):
    jax = pytest.importorskip("jax")
    import jax.scipy.linalg as theirs

    jnp = jax.numpy
    a = rng.normal(size=(3, 3)) * 0.3 + np.diag([2.0, 3.0, 4.0])
    b = rng.normal(size=3)
    f, g = {
        "expm": (tg.linalg.expm, theirs.expm),
        "lstsq": (lambda a: LA.lstsq(a[:, :2], b)[0], lambda a: jnp.linalg.lstsq(a[:, :2], b)[0]),
        "eigh": (lambda a: LA.eigh(a + a.T)[1] ** 2, lambda a: jnp.linalg.eigh(a + a.T)[1] ** 2),
        "solve_triangular": (
            lambda a: tg.linalg.solve_triangular(a, b, 1),
            lambda a: theirs.solve_triangular(a, b, 1),
        ),
        "toeplitz": (
            lambda a: tg.linalg.toeplitz(a[:, 0], a[0]),
            lambda a: theirs.toeplitz(a[:, 0], a[0]),
        ),
        "polar": (lambda a: tg.linalg.polar(a)[0], lambda a: theirs.polar(a, method="svd")[0]),
    }[name]
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        expected = np.asarray(jax.grad(lambda a: jnp.sum(jnp.sin(g(a)).real))(jnp.asarray(a)))
    np.testing.assert_allclose(
        tg.grad(lambda a: np.sum(np.sin(f(a))))(a), expected, rtol=1e-8, atol=1e-8
    )


def test_the_gradient_of_an_infinite_determinant_is_none():
    """LAPACK looks for the singular values of such a matrix for ever."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 8, 8))
    x[0, -1, 0] = np.inf
    with np.errstate(all="ignore"):
        g = tg.grad(lambda x: np.sum(np.linalg.det(x)))(x)
        alone = tg.grad(lambda x: np.linalg.det(x))(x[1])
    assert np.isnan(g[0]).all()
    np.testing.assert_allclose(g[1], alone, rtol=1e-9)


def test_whole_numbers_beside_tensors():
    """A matrix of whole numbers, tensors on the right: the gradient is that of the matrix as floats."""
    a, b = np.array([[1, 2], [3, 4], [5, 7]]), np.array([1.0, -1.0, 2.0])

    def shortest(b, a):
        return np.sum(LA.lstsq(a, b)[0] ** 2) + np.sum(LA.lstsq(a, b)[1])

    ours = tg.grad(shortest)(b, a)
    assert np.array_equal(ours, tg.grad(shortest)(b, a.astype(float)))


@pytest.mark.parametrize("p", [None, 2, -2])
def test_condition_of_singular_matrices(p):
    """As NumPy's: infinite where nothing is left to divide by."""
    for a in (np.zeros((2, 2)), np.diag([1.0, 0.0])):
        assert np.array_equal(LA.cond(tg.tensor(a, requires_grad=True), p).item(), LA.cond(a, p))
    stack = np.stack([np.zeros((2, 2)), np.diag([3.0, 2.0])])
    ours = LA.cond(tg.tensor(stack, requires_grad=True), p).detach().numpy()
    assert np.array_equal(ours, LA.cond(stack, p))


def test_singular_values_of_an_infinite_matrix_have_no_slope() -> None:
    """LAPACK looks for the vectors of such a matrix for ever; those of the others in a stack are as they are."""
    a = np.stack([np.eye(3) + 0.1, np.arange(9.0).reshape(3, 3) ** 2])
    a[0, 0, 0] = np.inf
    x, alone = tg.tensor(a, requires_grad=True), tg.tensor(a[1], requires_grad=True)
    try:
        np.linalg.svdvals(a)
    except np.linalg.LinAlgError:  # NumPy 2.5 refuses such a stack
        with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
            np.linalg.svdvals(x)
        return
    np.linalg.svdvals(x).sum().backward()
    np.linalg.svdvals(alone).sum().backward()
    assert np.isnan(x.grad[0].numpy()).all()
    np.testing.assert_array_equal(x.grad[1].numpy(), alone.grad.numpy())
    with pytest.raises(np.linalg.LinAlgError, match="no polar decomposition"):
        tg.linalg.polar(x[0])
