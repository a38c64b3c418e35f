"""Matrices of a pattern and functions of matrices: SciPy's values, and derivatives in both modes against differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg

RNG = np.random.default_rng(5)
V, W, M, N = (
    RNG.normal(size=4) + 3,
    RNG.normal(size=4),
    RNG.normal(size=(3, 3)) / 2,
    RNG.normal(size=(3, 3)),
)
CASES = {
    "circulant": [(V,)], "companion": [(V,)], "coshm": [(M,)], "cosm": [(M,)], "expm_frechet": [(M, N)], "hankel": [(V, W[:3]), (V,)],
    "khatri_rao": [(M, N[:2])], "matmul_toeplitz": [(V, W), (V, np.outer(W, W))], "orthogonal_procrustes": [(M, N)], "sinhm": [(M,)],
    "sinm": [(M,)], "solve_circulant": [(V, W), (V, np.outer(W, V))], "tanhm": [(M,)], "tanm": [(M,)],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    ours, theirs = (getattr(c.linalg, name) for c in (tg, scipy))
    rng = np.random.default_rng(
        8
    )  # its own: whichever tests run before, a matrix that moves stays far from singular
    for args in CASES[name]:
        results = [f(*args) for f in (ours, theirs)]
        for found, expected in zip(
            *(r if isinstance(r, tuple) else (r,) for r in results), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        directions = [rng.normal(size=np.shape(a)) for a in args]

        def moved(t, args=args, directions=directions):
            found = ours(*(a + t * d for a, d in zip(args, directions, strict=True)))
            parts = found if isinstance(found, tuple) else (found,)
            return np.concatenate([np.ravel(p) for p in parts])

        h = 1e-4
        expected = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        for mode in ("forward", "reverse"):
            np.testing.assert_allclose(
                tg.jacobian(moved, mode=mode)(0.0), expected, rtol=1e-7, atol=1e-8
            )


def test_stacks():
    stack = np.stack([M, N])
    for name in ("coshm", "tanm"):
        f = getattr(tg.linalg, name)
        np.testing.assert_allclose(f(stack)[1], f(N), rtol=1e-12)
    np.testing.assert_array_equal(tg.linalg.circulant(stack)[1, 2], scipy.linalg.circulant(N[2]))
    np.testing.assert_allclose(tg.linalg.companion(stack)[0, 1], scipy.linalg.companion(M[1]))


def test_a_polynomial_without_roots():
    with pytest.raises(ValueError, match="2 or more"):
        tg.linalg.companion([1.0])
