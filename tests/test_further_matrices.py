"""SciPy's functions of bands, powers and Riccati's equations: values, and derivatives in both modes."""

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tests.slopes import agree

DRAWS = np.random.default_rng(11)
S = DRAWS.normal(size=(4, 4))
SPD = S @ S.T / 4 + np.eye(4)
UPPER = np.stack(
    [
        np.r_[0.0, 0.0, DRAWS.normal(size=3)] / 4,
        np.r_[0.0, DRAWS.normal(size=4)] / 4,
        3.0 + DRAWS.uniform(size=5),
    ]
)
LOWER = np.stack(
    [
        3.0 + DRAWS.uniform(size=5),
        np.r_[DRAWS.normal(size=4), 0.0] / 4,
        np.r_[DRAWS.normal(size=3), 0.0, 0.0] / 4,
    ]
)
COMPLEX = UPPER + 1j * np.stack([DRAWS.normal(size=5) / 8, DRAWS.normal(size=5) / 8, np.zeros(5)])
V, W = DRAWS.normal(size=5), DRAWS.normal(size=(5, 2))
A, B, Q, R, T = (
    DRAWS.normal(size=(3, 3)),
    DRAWS.normal(size=(3, 2)),
    SPD[:3, :3],
    SPD[:2, :2],
    DRAWS.normal(size=(3, 2)) / 8,
)
E = np.eye(3) + DRAWS.normal(size=(3, 3)) / 5
CASES = {
    "solveh_banded": [((UPPER, V), {}), ((LOWER, W), {"lower": True}), ((COMPLEX, V), {}), ((UPPER[2:], V), {})],
    "cho_solve_banded": [(((scipy.linalg.cholesky_banded(UPPER), False), V), {}), (((scipy.linalg.cholesky_banded(LOWER, lower=True), True), W), {}),
                         (((scipy.linalg.cholesky_banded(COMPLEX), False), V), {})],
    "eig_banded": [((UPPER,), {"eigvals_only": True}), ((LOWER,), {"lower": True, "eigvals_only": True, "select": "i", "select_range": (1, 3)})],
    "eigvals_banded": [((UPPER,), {}), ((COMPLEX,), {}), ((LOWER,), {"lower": True, "select": "v", "select_range": (0.0, 3.5)})],
    "eigh_tridiagonal": [((V, V[1:]), {"eigvals_only": True})],
    "eigvalsh_tridiagonal": [((V, V[1:]), {}), ((V, V[1:]), {"select": "i", "select_range": (0, 1)})],
    "fractional_matrix_power": [((SPD, 0.3), {}), ((SPD, -1.7), {}), ((SPD, 3), {}), ((SPD, -1), {})],
    "signm": [((S,), {})],
    "pinvh": [((SPD,), {}), ((SPD,), {"lower": False})],
    "subspace_angles": [((DRAWS.normal(size=(5, 2)), W), {}), ((DRAWS.normal(size=(5, 3)), W), {}), ((W, DRAWS.normal(size=(5, 3))), {}),
                        ((W, W + 1e-3 * DRAWS.normal(size=(5, 2))), {})],
    "convolution_matrix": [((V, n), {"mode": mode}) for n in (3, 5, 7) for mode in ("full", "same", "valid")],
    "leslie": [((np.abs(V), np.abs(V[1:])), {})],
    "fiedler": [((V,), {})],
    "solve_continuous_are": [((A, B, Q, R), {}), ((A, B, Q, R), {"e": E, "s": T})],
    "solve_discrete_are": [((A, B, Q, R), {}), ((A, B, Q, R), {"e": E, "s": T})],
}  # fmt: skip


def tracked(value):
    if isinstance(value, tuple):
        return tuple(tracked(v) for v in value)
    return tg.tensor(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys(name):
    for args, settings in CASES[name]:
        expected = getattr(scipy.linalg, name)(*args, **settings)
        found = getattr(tg.linalg, name)(*tracked(args), **settings)
        np.testing.assert_allclose(found.numpy(), expected, 1e-8, 1e-10, err_msg=str(settings))
        np.testing.assert_array_equal(getattr(tg.linalg, name)(*args, **settings), expected)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, rng):
    for number, (args, settings) in enumerate(CASES[name]):
        f = getattr(tg.linalg, name)
        if name == "cho_solve_banded":
            (cb, lower), b = args
            if np.iscomplexobj(cb):
                continue
            agree(
                lambda cb, b, lower=lower: tg.linalg.cho_solve_banded((cb, lower), b), (cb, b), rng
            )
        elif name.startswith("solve_"):
            half = lambda x: (x + x.T) / 2  # noqa: E731
            more = {} if not settings else {"e": E}

            def solved(a, b, q, r, s=None, f=f, half=half, more=more):
                return f(a, b, half(q), half(r), s=s, **more)

            agree(solved, (*args, T) if settings else args, rng, rtol=1e-6, compiled=not number)
        elif not any(np.iscomplexobj(a) for a in args):
            places = [i for i, a in enumerate(args) if isinstance(a, float | np.ndarray)]

            def called(*xs, f=f, args=args, settings=settings, places=places):
                full = list(args)
                for i, x in zip(places, xs, strict=True):
                    full[i] = x
                return f(*full, **settings)

            if not (
                name == "subspace_angles" and number == 3
            ):  # differences would step over the cone's tip
                agree(called, tuple(args[i] for i in places), rng, rtol=1e-6)


def test_vectors_of_bands():
    for f, args in ((tg.linalg.eig_banded, (UPPER,)), (tg.linalg.eigh_tridiagonal, (V, V[1:]))):
        w, v = f(*map(tg.tensor, args))
        expected, vectors = f(*args)
        np.testing.assert_allclose(w.numpy(), expected)
        np.testing.assert_allclose(np.abs(v.numpy()), np.abs(vectors), 1e-9, 1e-12)


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda x: tg.linalg.solveh_banded(x[0], x[0]), ValueError, "row for each diagonal"),
        (lambda x: tg.linalg.eigh_tridiagonal(x[0], x[0]), ValueError, "one more element"),
        (lambda x: tg.linalg.eigh_tridiagonal(x[0], x[0, 1:], select="i", select_range=(0, 9)), ValueError, "not in range"),
        (lambda x: tg.linalg.eigh_tridiagonal(x[0], x[0, 1:], select="b"), ValueError, "select must be"),
        (lambda x: tg.linalg.pinvh(x, atol=1.0), tg.NotDifferentiable, "matrix_rank"),
        (lambda x: tg.linalg.subspace_angles(x, x[:2]), ValueError, "number of rows"),
        (lambda x: tg.linalg.convolution_matrix(x[0], 0), ValueError, "positive"),
        (lambda x: tg.linalg.convolution_matrix(x[0], 2, mode="some"), ValueError, "mode"),
        (lambda x: tg.linalg.leslie(x[0], x[0]), ValueError, "one less"),
        (lambda x: tg.linalg.solve_continuous_are(x, x, x[:2], x), ValueError, "q of shape"),
        (lambda x: tg.linalg.solve_discrete_are(x * 1j, x, x, x), tg.NotDifferentiable, "complex a"),
        (lambda x: tg.compile(lambda x: tg.linalg.eigvalsh_tridiagonal(x[0], x[1, 1:], "v", (0, 1)))(x), tg.NotDifferentiable, "by number"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor(np.eye(3) + 1.0, requires_grad=True))
