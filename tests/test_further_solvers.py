"""Boundary value problems, global minima, orders that minimise and sparse least squares: SciPy's results, and their derivatives."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.sparse

import tapegrad as tg
from tests.slopes import agree

X = np.linspace(0.0, 1.0, 6)


def bratu(a, c):
    """Bratu's problem: y'' = -a exp(y), with y = c at one end."""

    def fun(x, y):
        return np.stack([y[1], -a * np.exp(y[0])])

    def bc(left, right):
        return np.stack([left[0] - c, right[0]])

    return fun, bc


@pytest.mark.long
def test_boundary_values(rng):
    ours, theirs = (
        tg.integrate.solve_bvp(*bratu(1.0, 0.1), X, np.zeros((2, 6))),
        scipy.integrate.solve_bvp(*bratu(1.0, 0.1), X, np.zeros((2, 6))),
    )
    np.testing.assert_array_equal(ours.y, theirs.y)

    def solved(a, c):
        found = tg.integrate.solve_bvp(*bratu(a, c), X, np.zeros((2, 6)), tol=1e-6)
        return np.concatenate([found.sol(np.array([0.3, 0.77]))[0], found.y[:, 2], found.yp[:, 1]])

    # The mesh is chosen anew at each point, which moves the values by the tolerance.
    a, c = 1.0, 0.1
    for i in range(2):
        h = 1e-2
        step = lambda s, i=i: solved(a + s * (i == 0), c + s * (i == 1))  # noqa: E731
        expected = (8 * (step(h) - step(-h)) - (step(2 * h) - step(-2 * h))) / (12 * h)
        for mode in ("forward", "reverse"):
            np.testing.assert_allclose(
                tg.jacobian(solved, argnums=i, mode=mode)(a, c), expected, 1e-4, 1e-5
            )
    second = tg.hessian(lambda a: np.sum(solved(a, 0.1)))(1.0)
    slope = tg.grad(lambda a: np.sum(solved(a, 0.1)))
    np.testing.assert_allclose(second, (slope(1.01) - slope(0.99)) / 0.02, 1e-3)


def test_an_unknown_parameter_of_a_boundary_value_problem():
    """y'' = -k² y with y(0) = y(L) = 0 and y'(0) = k: the eigenvalue k = π / L."""

    def wave(length):
        fun = lambda x, y, p: np.stack([y[1] * length, -(p[0] ** 2) * y[0] * length])  # noqa: E731
        bc = lambda a, b, p: np.stack([a[0], b[0], a[1] - p[0]])  # noqa: E731
        guess = np.stack([np.sin(np.pi * X), np.pi * np.cos(np.pi * X)])
        return tg.integrate.solve_bvp(fun, bc, X, guess, [3.0], tol=1e-8).p[0]

    np.testing.assert_allclose(wave(1.2), np.pi / 1.2, 1e-6)
    np.testing.assert_allclose(tg.grad(wave)(1.2), -np.pi / 1.2**2, 1e-6)
    np.testing.assert_allclose(tg.hessian(wave)(1.2), 2 * np.pi / 1.2**3, 1e-5)


def bumps(x, a):
    return np.sum((x - a) ** 2 + 1.0 - np.cos(3.0 * (x - a))) + 0.1 * x[0] * x[1]


SEARCHES = {
    "differential_evolution": {"rng": 1, "popsize": 5, "maxiter": 30}, "dual_annealing": {"rng": 1, "maxiter": 20}, "shgo": {"n": 20}, "direct": {"maxfun": 400},
}  # fmt: skip


@pytest.mark.parametrize("name", [*SEARCHES, "basinhopping"])
def test_global_minima(name):
    f = getattr(tg.optimize, name)
    place = np.array([2.0, 1.0]) if name == "basinhopping" else [(-3.0, 4.0), (-4.0, 3.0)]
    settings = SEARCHES.get(name, {"rng": 1, "niter": 10})
    plain = f(bumps, place, args=(0.4,), **settings)
    expected = getattr(scipy.optimize, name)(lambda x: bumps(x, 0.4), place, **settings)
    np.testing.assert_array_equal(plain.x, expected.x)
    best = lambda a: f(lambda x: bumps(x, a), place, **settings).x  # noqa: E731
    local = lambda a: tg.minimize(lambda x: bumps(x, a), plain.x, tol=1e-11).x  # noqa: E731
    np.testing.assert_allclose(tg.jacobian(best)(0.4), tg.jacobian(local)(0.4), 1e-7)
    value = lambda a: f(lambda x: bumps(x, a), place, **settings).fun  # noqa: E731
    np.testing.assert_allclose(
        tg.grad(value)(0.4), tg.grad(lambda a: bumps(local(0.4), a))(0.4), 1e-6
    )


def test_orders(rng):
    y, w = rng.normal(size=8), rng.uniform(0.5, 2.0, 8)
    for increasing in (True, False):
        for weights in (None, w):
            found = tg.optimize.isotonic_regression(
                tg.tensor(y), weights=weights, increasing=increasing
            )
            expected = scipy.optimize.isotonic_regression(y, weights=weights, increasing=increasing)
            for key in ("x", "weights", "blocks"):
                np.testing.assert_allclose(
                    np.asarray(
                        found[key].numpy() if isinstance(found[key], tg.Tensor) else found[key]
                    ),
                    expected[key],
                    1e-12,
                )
        agree(
            lambda y, w, increasing=increasing: (
                tg.optimize.isotonic_regression(y, weights=w, increasing=increasing).x
            ),
            (y, w),
            rng,
        )
    np.testing.assert_array_equal(
        tg.optimize.isotonic_regression(y).x, scipy.optimize.isotonic_regression(y).x
    )
    cost = rng.normal(size=(4, 5))
    for maximize in (False, True):
        rows, columns = tg.optimize.linear_sum_assignment(tg.tensor(cost), maximize)
        expected = scipy.optimize.linear_sum_assignment(cost, maximize)
        np.testing.assert_array_equal((rows, columns), expected)

        def best(c, maximize=maximize):
            return np.sum(np.sin(c[tg.optimize.linear_sum_assignment(c, maximize)]))

        agree(best, (cost,), rng)


@pytest.mark.long
@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
def test_sparse_least_squares(name, rng):
    f, g = getattr(tg.sparse.linalg, name), getattr(scipy.sparse.linalg, name)
    for shape in ((7, 4), (4, 7), (5, 5)):
        dense = np.where(rng.uniform(size=shape) < 0.5, rng.normal(size=shape), 0.0) + 2 * np.eye(
            *shape
        )
        a, b = scipy.sparse.csr_array(dense), rng.normal(size=shape[0])
        for damp in (0.0, 0.7):
            expected = g(a, b, damp, atol=1e-13, btol=1e-13)
            for matrix in (a, tg.sparse.csr_array(a), tg.tensor(dense)):
                found = f(matrix, tg.tensor(b), damp, atol=1e-13, btol=1e-13)
                assert len(found) == len(expected)
                for i in (0, 3, 4, 8) if name == "lsqr" else (0, 3, 7):
                    np.testing.assert_allclose(
                        found[i].numpy(), expected[i], 1e-7, 1e-9, err_msg=f"{shape} {damp} {i}"
                    )
            np.testing.assert_array_equal(f(a, b, damp)[0], g(a, b, damp)[0])
            agree(
                lambda d, b, damp=damp, a=a: f(
                    tg.sparse.csr_array((d, a.indices, a.indptr), shape=a.shape), b, damp
                )[0],
                (a.data, b),
                rng,
            )
        agree(lambda damp, a=a, b=b: f(a, b, damp)[0], (0.7,), rng)


@pytest.mark.parametrize("name", ["bicg", "cgs", "gcrotmk", "lgmres", "tfqmr"])
def test_further_iterations(name, rng):
    a = scipy.sparse.diags_array(
        [np.full(8, 4.0), rng.normal(size=7), rng.normal(size=7)], offsets=[0, 1, -1]
    ).tocsr()
    b = rng.normal(size=8)
    f = getattr(tg.sparse.linalg, name)
    x, info = f(a, tg.tensor(b, requires_grad=True), rtol=1e-13)
    assert info == 0
    np.testing.assert_allclose(x.detach().numpy(), np.linalg.solve(a.toarray(), b), 1e-9)
    agree(lambda b: f(a, b, rtol=1e-13)[0], (b,), rng)


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda t: tg.integrate.solve_bvp(*bratu(t, 0.1), X, np.zeros((2, 6)), S=np.eye(2) * 0.0), tg.NotDifferentiable, "singular term"),
        (lambda t: tg.integrate.solve_bvp(*bratu(9.0 * t, 0.1), X, np.zeros((2, 6)), max_nodes=50), tg.NotDifferentiable, "did not converge"),
        (lambda t: tg.integrate.solve_bvp(*bratu(1.0, 0.1), X * t, np.zeros((2, 6))), tg.NotDifferentiable, "with the ends a and b"),
        (lambda t: tg.integrate.solve_bvp(3, 4, X, X), TypeError, "function"),
        (lambda t: tg.optimize.differential_evolution(lambda x: np.sum((x - t) ** 2), [(0, 3)], integrality=[1], rng=1), tg.NotDifferentiable, "integers jump"),
        (lambda t: tg.optimize.basinhopping(np.sum, [1.0], minimizer_kwargs={"args": (1,)}), TypeError, "args"),
        (lambda t: tg.sparse.linalg.lsqr(np.eye(3) * t, np.ones(2)), ValueError, "lengths must agree"),
        (lambda t: tg.sparse.linalg.lsqr(tg.sparse.linalg.aslinearoperator(np.eye(2)), np.ones(2) * t), tg.NotDifferentiable, "LinearOperator"),
        (lambda t: tg.sparse.linalg.lsqr(np.eye(2, 3) * t, np.ones(2), x0=np.ones(3)), tg.NotDifferentiable, "depends on it"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor(1.0, requires_grad=True))
