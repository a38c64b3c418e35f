"""Solvers inside `tg.compile`: their value and derivatives are those of eager calls, at other values than the traced ones, too."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize

import tapegrad as tg

opt, integrate = tg.optimize, tg.integrate
PLACES = [np.array([1.0, 2.0]), np.array([1.3, 0.4]), np.array([1.2, 1.9])]


def ground(t, y):
    return y[0] - 0.3


def decay(x, method, **settings):
    return integrate.solve_ivp(
        lambda t, y: np.stack([-x[0] * y[0], x[0] * y[0] - x[1] * y[1]]), (0, 2), np.stack([x[1], 0.1 * x[0]]), method,
        rtol=1e-7, atol=1e-9, **settings,
    )  # fmt: skip


def with_algebra(x, method):
    fun = lambda t, y: np.stack([-x[0] * y[0], y[0] + y[1] - x[1]])  # noqa: E731
    y0, M = np.stack([1.0 + 0 * x[0], x[1] - 1.0]), np.diag([1.0, 0.0])
    return integrate.solve_ivp(fun, (0, 1), y0, method, t_eval=[0.5, 1.0], mass_matrix=M).y


def projected(x):
    found = opt.minimize(
        lambda u: np.sum((u - x) ** 2), np.full(2, 0.1), method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda u: x[0] - u[0] - u[1]}],
    )  # fmt: skip
    return np.concatenate([found.x, found.multipliers])


SOLVERS = {
    "minimize": lambda x: opt.minimize(lambda u: np.sum((u - x) ** 2 + u**4), np.zeros(2)).x,
    "minimize-tree": lambda x: opt.minimize(lambda u: (u["a"] - x[0]) ** 2 + u["a"] ** 4, {"a": 0.0}).x["a"],
    "minimize-fun": lambda x: opt.minimize(lambda u, x: np.sum((u - x) ** 2 + u**4), np.zeros(2), (x,)).fun,
    "minimize-constraints": projected,
    "least_squares": lambda x: opt.least_squares(lambda u: np.concatenate([u**3 + u - x, u]), np.zeros(2)).covariance,
    "minimize_scalar": lambda x: opt.minimize_scalar(lambda u: (u - x[0]) ** 2 + x[1] * u**4).x,
    "fixed_point": lambda x: opt.fixed_point(lambda u: 0.3 * np.cos(u) * x, np.ones(2)),
    "custom_root": lambda x: opt.custom_root(lambda u: u**3 + u - x, np.zeros(2), lambda f, u: tg.root(f, u).x),
    "root-lm": lambda x: opt.root(lambda u: u**3 + u - x, np.zeros(2), method="lm").x,
    "toms748": lambda x: opt.toms748(lambda u: u**3 + u - x[0] * x[1], -9.0, 9.0),
    "root_scalar-toms748": lambda x: opt.root_scalar(lambda u: u**3 + u - x[0] * x[1], method="toms748", bracket=(-9.0, 9.0)).root,
    "curve_fit": lambda x: opt.curve_fit(lambda t, a, b: a * np.exp(-b * t), np.arange(5.0), x[0] * np.exp(-x[1] * np.arange(5.0)), (1.0, 1.0))[0],
    "nnls": lambda x: opt.nnls(np.eye(2) + 0.1, x)[0],
    "linprog": lambda x: opt.linprog(x, A_ub=-np.eye(2), b_ub=-x).x,
    "direct": lambda x: opt.direct(lambda u: np.sum((u - x) ** 2), [(-3, 3), (-3, 3)]).x,
    "quad": lambda x: integrate.quad(lambda u: np.exp(-u * x[0]), 0, x[1])[0],
    "quad_vec": lambda x: integrate.quad_vec(lambda u: np.exp(-u * x), 0, 1.0)[0],
    "dblquad": lambda x: integrate.dblquad(lambda u, v: np.exp(-u * v * x[0]), 0, 1, 0, lambda v: v * x[1])[0],
    "bvp": lambda x: integrate.solve_bvp(
        lambda t, y: np.stack([y[1], -y[0] * x[0]]), lambda a, b: np.stack([a[0], b[0] - x[1]]), np.linspace(0, 1, 5), np.zeros((2, 5))
    ).y[0],
    "BDF": lambda x: decay(x, "BDF", t_eval=[0.5, 2.0]).y,
    "LSODA": lambda x: decay(x, "LSODA", t_eval=[0.5, 2.0]).y,
    "events": lambda x: decay(x, "RK45", events=ground, t_eval=[2.0]).t_events[0],
    "all-steps": lambda x: decay(x, "RK45").y[:, -1],
    "mass-Radau": lambda x: with_algebra(x, "Radau"),
    "mass-BDF": lambda x: with_algebra(x, "BDF"),
}  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", SOLVERS)
def test_value_and_gradient_are_those_of_eager_calls(name):
    f = lambda x: np.sum(np.cos(SOLVERS[name](x)))  # noqa: E731
    fast, eager = tg.compile(tg.value_and_grad(f)), tg.value_and_grad(f)
    for x in PLACES:
        for found, expected in zip(fast(x), eager(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["minimize", "quad", "BDF", "events", "mass-Radau"])
def test_second_derivatives_and_forward_mode_are_those_of_eager_calls(name):
    f = lambda x: np.sum(np.cos(SOLVERS[name](x)))  # noqa: E731
    fast, ahead = tg.compile(tg.hessian(f)), tg.compile(lambda x: tg.jvp(f, (x,), (x,))[1])
    # BDF's steps, a loop of the program, solve their equations to the tolerance of 1e-7, which second derivatives show.
    rtol = 1e-6 if name == "BDF" else 1e-7
    for x in PLACES[:2]:
        np.testing.assert_allclose(fast(x), tg.hessian(f)(x), rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(ahead(x), tg.jvp(f, (x,), (x,))[1], rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_results_of_another_shape_are_traced_again():
    swing = lambda x: integrate.solve_ivp(  # noqa: E731
        lambda t, y: [y[1], -x * y[0]], (0, 10), [1.0, 0.0], events=lambda t, y: y[0], t_eval=[10.0], rtol=1e-8
    ).t_events[0]  # fmt: skip
    fast = tg.compile(swing)
    for x in (1.0, 4.0, 9.0, 1.5):
        found = fast(x)
        np.testing.assert_allclose(found, swing(x), rtol=1e-12)
        assert len(found) == len(swing(x))


def test_what_is_not_a_number_is_none_and_numbers_are_those_of_the_call():
    def f(x):
        found = opt.minimize(lambda u: np.sum((u - x) ** 4), np.zeros(2))
        return found.nit, found.success, 0.0 if found.message is None else 1.0

    fast = tg.compile(f)
    for x in PLACES:
        assert fast(x)[:2] == f(x)[:2]
        assert fast(x)[2] == 0.0


def test_closures_containers_partials_methods_and_defaults_have_the_numbers_of_the_call():
    def f(x):
        held = {"p": [x, (2 * x,)]}

        def deep(u, k=x):
            return np.sum((u - held["p"][0]) ** 2 + (u - held["p"][1][0]) ** 2 + k * u**4)

        own = SimpleNamespace(fun=deep)
        return opt.minimize(lambda u: own.fun(u), np.zeros(2)).x

    fast = tg.compile(f)
    for x in PLACES:
        np.testing.assert_array_equal(fast(x), f(x))


def test_buffers_mean_what_they_meant_when_the_solver_was_called():
    def f(x):
        weight = np.ones(2)
        found = opt.minimize(lambda u: np.sum(weight * (u - x) ** 2 + u**4), np.zeros(2)).x
        weight[0] = 100.0
        return found * weight

    fast = tg.compile(f)
    for x in PLACES:
        np.testing.assert_allclose(fast(x), f(x), rtol=1e-12)


@pytest.mark.long
def test_a_variable_that_is_bound_anew_means_what_it_meant():
    def f(x):
        total, y = 0.0, x
        for _ in range(2):
            total = total + opt.minimize(lambda u: np.sum((u - y) ** 2 + u**4), np.zeros(2)).x
            y = 3 * y
        return total

    fast = tg.compile(tg.jacobian(f))
    for x in PLACES:
        np.testing.assert_allclose(fast(x), tg.jacobian(f)(x), rtol=1e-9)


def test_data_from_outside_is_guarded():
    data = np.array([1.0, 2.0])
    fast = tg.compile(lambda x: opt.minimize(lambda u: np.sum((u - x * data) ** 2), np.zeros(2)).x)
    np.testing.assert_allclose(fast(2.0), [2.0, 4.0], rtol=1e-6)
    data[0] = 5.0
    np.testing.assert_allclose(fast(2.0), [10.0, 4.0], rtol=1e-6)


def test_bounds_that_are_objects_of_scipy_may_hold_values_of_the_program():
    def f(x):
        return opt.milp(np.ones(2), bounds=scipy.optimize.Bounds(np.ceil(x), np.ceil(x) + 3)).x

    fast = tg.compile(f)
    for x in PLACES:
        np.testing.assert_allclose(fast(x), f(x))


def test_values_where_nobody_looks_are_refused():
    class Slots:
        __slots__ = ("x",)

    def f(x):
        own = Slots()
        own.x = x
        return opt.minimize(lambda u: np.sum((u - own.x) ** 2), np.zeros(2)).x

    with pytest.raises(tg.TraceError, match="where nobody looks"):
        tg.compile(f)(PLACES[0])


def test_errors_of_the_solver_are_raised_by_the_call():
    fast = tg.compile(lambda x: opt.toms748(lambda u: u**2 - x, 0.0, 2.0))
    assert abs(fast(1.0) - 1.0) < 1e-9
    with pytest.raises(ValueError, match="different signs"):
        fast(9.0)


@pytest.mark.long
def test_threads_have_the_numbers_of_their_own_calls():
    from concurrent.futures import ThreadPoolExecutor

    fast = tg.compile(tg.value_and_grad(lambda x: np.sum(SOLVERS["minimize"](x))))
    fast(PLACES[0])
    places = [np.array([0.1 * k, 1.0]) for k in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fast, places))
    for x, (value, slope) in zip(places, found, strict=True):
        expected = tg.value_and_grad(lambda x: np.sum(SOLVERS["minimize"](x)))(x)
        np.testing.assert_allclose(value, expected[0], rtol=1e-9)
        np.testing.assert_allclose(slope, expected[1], rtol=1e-9)


@pytest.mark.long
def test_in_a_loop_of_the_program():
    def f(x):
        def step(c, _):
            return c + opt.minimize(lambda u: np.sum((u - c) ** 2 + u**4), np.zeros(2)).x, None

        return np.sum(tg.scan(step, x, length=4)[0])

    fast = tg.compile(tg.grad(f))
    for x in PLACES[:2]:
        np.testing.assert_allclose(fast(x), tg.grad(f)(x), rtol=1e-8)


def test_functions_among_results_tell_why_they_are_none():
    def f(p):
        found = tg.integrate.solve_bvp(
            lambda t, y: np.stack([y[1], -p * y[0]]), lambda a, b: np.stack([a[0] - 1.0, b[0]]), np.linspace(0.0, 1.0, 5), np.ones((2, 5))
        )  # fmt: skip
        return found.sol(0.5)[0]

    assert np.isfinite(tg.grad(f)(0.7))
    with pytest.raises(tg.TraceError, match="a function that a solver returned"):
        tg.compile(tg.grad(f))(0.7)
