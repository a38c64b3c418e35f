"""SciPy's solvers under their older names: the same solutions, and derivatives by what the functions use."""

import numpy as np
import pytest
import scipy.optimize

import tapegrad as tg

OURS, THEIRS = tg.optimize, scipy.optimize


def valley(x, a=1.3):
    return (x[0] - a) ** 2 + 3.0 * (x[1] - a * x[0]) ** 2 + 0.1 * np.sum(np.cos(x))


START = np.array([0.3, 0.8])


@pytest.mark.parametrize("name", ["fmin", "fmin_powell", "fmin_cg", "fmin_bfgs", "fmin_l_bfgs_b"])
def test_minima(name):
    more = {"approx_grad": True} if name == "fmin_l_bfgs_b" else {"disp": False}
    one = lambda x: x[0] if name == "fmin_l_bfgs_b" else x  # noqa: E731
    f, g = getattr(OURS, name), getattr(THEIRS, name)
    np.testing.assert_allclose(
        one(f(valley, START, args=(1.1,), **more)),
        one(g(valley, START, args=(1.1,), **more)),
        atol=2e-4,
    )
    best = lambda a: one(f(lambda x: valley(x, a), START, **more))  # noqa: E731
    exact = lambda a: tg.minimize(lambda x: valley(x, a), START, tol=1e-12).x  # noqa: E731
    if (
        name != "fmin_powell"
    ):  # it evaluates as often as makes compiling pay, which takes long in a test
        np.testing.assert_allclose(tg.jacobian(best)(1.2), tg.jacobian(exact)(1.2), 1e-6)


def test_bounds_and_reports():
    box = [(0.0, 0.9), (None, None)]
    pair = lambda x, a: (valley(x, a), tg.grad(valley)(x, a))  # noqa: E731
    ours, theirs = (
        OURS.fmin_l_bfgs_b(pair, START, args=(1.1,), bounds=box),
        THEIRS.fmin_l_bfgs_b(pair, START, args=(1.1,), bounds=box),
    )
    np.testing.assert_allclose(ours[0], theirs[0], 1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], 1e-8)
    assert ours[2].keys() == theirs[2].keys() and ours[2]["warnflag"] == 0

    def value(a):
        return OURS.fmin_l_bfgs_b(lambda x: valley(x, a), START, approx_grad=True, bounds=box)[1]

    np.testing.assert_allclose(
        tg.grad(value)(1.2),
        tg.grad(lambda a: tg.minimize(lambda x: valley(x, a), START, bounds=box, tol=1e-12).fun)(
            1.2
        ),
        1e-6,
    )


@pytest.mark.parametrize(("name", "args", "settings"), [("fminbound", (-1.0, 3.0), {}), ("brent", (), {"brack": (0.0, 1.0)}), ("golden", (), {"brack": (0.0, 1.0)})])  # fmt: skip
def test_minima_of_one_number(name, args, settings):
    f, g = getattr(OURS, name), getattr(THEIRS, name)
    curve = lambda x, a: (x - a) ** 4 + (x - 1.0) ** 2  # noqa: E731
    np.testing.assert_allclose(
        f(curve, *args, args=(1.5,), **settings), g(curve, *args, args=(1.5,), **settings), 1e-5
    )
    slope = tg.grad(lambda a: f(lambda x: curve(x, a), *args, **settings))(1.5)
    x = f(curve, *args, args=(1.5,), **settings)
    np.testing.assert_allclose(slope, 12 * (x - 1.5) ** 2 / (12 * (x - 1.5) ** 2 + 2), 1e-4)


def test_least_squares():
    t = np.linspace(0.0, 2.0, 8)
    y = 2.0 * np.exp(-1.3 * t) + 0.1 * np.cos(9.0 * t)
    rest = lambda p, y: p[0] * np.exp(-p[1] * t) - y  # noqa: E731
    ours, theirs = (
        OURS.leastsq(rest, [1.0, 1.0], args=(y,)),
        THEIRS.leastsq(rest, [1.0, 1.0], args=(y,)),
    )
    np.testing.assert_allclose(ours[0], theirs[0], 1e-6)
    assert ours[1] in (1, 2, 3, 4)
    fit = lambda y: OURS.leastsq(lambda p: rest(p, y), [1.0, 1.0])[0]  # noqa: E731
    exact = lambda y: tg.curve_fit(lambda t, a, k: a * np.exp(-k * t), t, y, [1.0, 1.0])[0]  # noqa: E731
    np.testing.assert_allclose(tg.jacobian(fit)(y), tg.jacobian(exact)(y), 1e-6, 1e-9)


@pytest.mark.parametrize("call", [
    lambda: OURS.fmin(valley, START, full_output=True), lambda: OURS.fmin_bfgs(valley, START, retall=True), lambda: OURS.fmin_cg(valley, START, full_output=True),
    lambda: OURS.fmin_powell(valley, START, full_output=True), lambda: OURS.fminbound(np.cos, 0, 4, full_output=True), lambda: OURS.brent(np.cos, full_output=True),
    lambda: OURS.golden(np.cos, full_output=True), lambda: OURS.leastsq(valley, START, full_output=True),
])  # fmt: skip
def test_reports_are_in_the_new_functions(call):
    with pytest.raises(TypeError, match="whose result holds them"):
        call()
