"""Jacobians that solvers make sparse by themselves: the dense way is the oracle, and what made them sparse is seen."""

import numpy as np
import pytest
import scipy.integrate
import scipy.sparse

import tapegrad as tg
from tapegrad.interop import slopes, solvers

solve_ivp = tg.integrate.solve_ivp
N = 12
LAPLACE = scipy.sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(N, N)).toarray()
START = np.sin(np.pi * np.arange(1, N + 1) / (N + 1))


@pytest.fixture
def few(monkeypatch):
    """Sparse where the dense way would be taken."""
    monkeypatch.setattr(slopes, "MANY", 4)
    monkeypatch.setattr(slopes, "SPARSE", 0.5)


def heat(t, u, k):
    left, right = np.concatenate([u[:1] * 0, u[:-1]]), np.concatenate([u[1:], u[:1] * 0])
    return k[0] * 20 * (left - 2 * u + right) + k[1] * u * (1 - u) - t * u


def states(k, y0=START, method="Radau", **settings):
    return solve_ivp(heat, (0, 1), y0, method, [0.11, 0.5, 1.0], args=(k,), rtol=1e-5, atol=1e-7, **settings).y  # fmt: skip


K = np.array([0.3, 1.4])
MASS = np.eye(N) + 0.1 * LAPLACE


@pytest.mark.long
@pytest.mark.parametrize("method, settings", [
    ("Radau", {}), ("BDF", {}), ("Radau", {"mass_matrix": MASS}), ("Radau", {"mass_matrix": scipy.sparse.csr_array(MASS)}),
])  # fmt: skip
def test_sparse_solutions_and_derivatives_are_the_dense_ones(method, settings, monkeypatch):
    def all_of_it(mode):
        return tg.jacobian(lambda k, y: states(k, y, method, **settings), argnums=(0, 1), mode=mode)

    expected = states(K, START, method, **settings), *all_of_it("forward")(K, START)
    monkeypatch.setattr(slopes, "MANY", 4)
    monkeypatch.setattr(slopes, "SPARSE", 0.5)
    for mode in ("forward", "reverse"):
        found = states(K, START, method, **settings), *all_of_it(mode)(K, START)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("at_once", [1, 300, 2_000_000])
def test_functions_of_single_states_are_differentiated_a_few_directions_at_a_time(
    sparse, at_once, monkeypatch, request
):
    """`concatenate` with a wall of shape (1,) refuses many states at once: the run at all stages has entries for each stage."""
    from tapegrad.interop import trajectories

    if sparse:
        request.getfixturevalue("few")
    monkeypatch.setattr(trajectories, "NUMBERS_AT_ONCE", at_once)

    def between_walls(t, u, k):
        wide = np.concatenate([np.zeros(1), u, np.ones(1)])
        return k[0] * 20 * (wide[2:] - 2 * u + wide[:-2]) + k[1] * np.where(
            u > 0.2, u * (1 - u), 0.16
        )

    def energy(k, solve=solve_ivp):
        return np.sum(
            solve(
                between_walls, (0, 1), START, "Radau", [0.4, 1.0], args=(k,), rtol=1e-7, atol=1e-9
            ).y
            ** 2
        )

    steps = np.diag([1e-4, 1e-4])
    slopes = [
        (energy(K + d, scipy.integrate.solve_ivp) - energy(K - d, scipy.integrate.solve_ivp)) / 2e-4
        for d in steps
    ]
    np.testing.assert_allclose(tg.grad(energy)(K), slopes, rtol=1e-4)


def test_scipy_gets_sparse_matrices(few):
    seen = []

    class Watched(scipy.integrate.BDF):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            seen.append(scipy.sparse.issparse(self.J))

    states(K, method=Watched)
    assert seen == [True]


def test_the_word_detect_makes_any_jacobian_sparse():
    seen = []

    class Watched(scipy.integrate.Radau):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            seen.append(scipy.sparse.issparse(self.J))

    found = states(K, method=Watched, jac_sparsity="detect")
    np.testing.assert_allclose(found, states(K), rtol=1e-9)
    assert seen == [True]


def test_complex_systems_are_solved_as_real_ones():
    """SciPy's own complex ones take the same steps."""

    def jac(t, u):
        return scipy.sparse.csc_array(20 * K[0] * LAPLACE + np.diag(K[1] * (1 - 2 * u) - t))

    theirs = scipy.integrate.solve_ivp(heat, (0, 1), START, "Radau", args=(K,), jac=lambda t, u, k: jac(t, u), rtol=1e-5, atol=1e-7)  # fmt: skip
    ours = solve_ivp(heat, (0, 1), START, "Radau", args=(K,), jac_sparsity="detect", rtol=1e-5, atol=1e-7)  # fmt: skip
    assert ours.nfev == theirs.nfev
    np.testing.assert_allclose(ours.y, theirs.y, rtol=1e-9)


def switching(t, u):
    return -u if t < 0.5 else -u + 0.1 * u[::-1]


def test_a_branch_that_fills_other_places_is_seen(few):
    found = solve_ivp(switching, (0, 1), START, "BDF", [1.0], rtol=1e-7, atol=1e-9).y[:, 0]
    whole = START * np.exp(-1.0)
    np.testing.assert_allclose(found, whole * np.exp(0.05), rtol=1e-4)  # START is symmetric
    with pytest.raises(tg.NotDifferentiable, match="where fun branches"):
        tg.grad(lambda y: np.sum(solve_ivp(switching, (0, 1), y, "BDF", [1.0]).y))(START)


def bratu(u):
    wide = np.concatenate([u[:1] * 0, u, u[:1] * 0])
    return 121**2 * (wide[2:] - 2 * wide[1:-1] + wide[:-2]) + np.exp(u)


def test_roots_of_many_unknowns_are_sparse_by_themselves(monkeypatch):
    dense = tg.root(bratu, np.zeros(120), jac_sparsity=None)
    found = tg.root(bratu, np.zeros(120))
    assert "fjac" in dense and "fjac" not in found and found.success
    np.testing.assert_allclose(found.x, dense.x, rtol=1e-9)
    assert "fjac" in tg.root(bratu, np.zeros(50))
    # Where Newton's steps end nowhere, SciPy's default has its turn.
    monkeypatch.setattr(solvers, "_newton_step", lambda *_: np.eye(120) * 1e-30)
    np.testing.assert_allclose(tg.root(bratu, np.zeros(120)).x, dense.x, rtol=1e-9)


@pytest.mark.long
def test_fits_and_minima_of_many_unknowns_are_sparse_by_themselves(monkeypatch):
    monkeypatch.setattr(solvers, "FIT", 100)
    data = np.sin(np.arange(120) / 7)

    def residuals(u):
        return np.concatenate([np.exp(u) - np.exp(data), 3 * (u[2:] - 2 * u[1:-1] + u[:-2])])

    found = tg.least_squares(residuals, np.zeros(120), xtol=1e-12)
    dense = tg.least_squares(residuals, np.zeros(120), jac_sparsity=None, xtol=1e-12)
    assert scipy.sparse.issparse(found.jac) and not scipy.sparse.issparse(dense.jac)
    np.testing.assert_allclose(found.x, dense.x, atol=1e-6)
    np.testing.assert_allclose(found.stderr, dense.stderr, rtol=1e-5)
    asked = []
    made = solvers._sparse
    monkeypatch.setattr(solvers, "_sparse", lambda *a: asked.append(a[-1]) or made(*a))
    least = tg.minimize(lambda u: np.sum(np.cosh(u[1:] - u[:-1])) + np.sum((u - data) ** 2), np.zeros(120), method="trust-constr")  # fmt: skip
    assert asked == ["detect"] and least.success  # the matrix at the beginning is made once
