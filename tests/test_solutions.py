"""Solutions as values: what solvers find is differentiable by all that the user's functions use, in both modes and to any order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import tapegrad as tg
from tapegrad.autograd import forward_ad

P = np.array([0.5, 1.0])


def weighted(p):
    """The minimum of p·s² on the line s0 + s1 = p0."""
    return p[0] * tg.stack([p[1], p[0]]) / (p[0] + p[1])


# Each solution beside the function that it is, by hand.
SOLUTIONS = {
    "root": (lambda p: tg.root(lambda s: s * s - p, np.ones(2)).x, np.sqrt),
    "root, args": (
        lambda p: tg.root(lambda s, q: s * s - q, np.ones(2), args=(p,)).x,
        np.sqrt,
    ),
    "root without derivatives": (
        lambda p: tg.root(lambda s: s**3 - p, np.ones(2), method="krylov").x,
        np.cbrt,
    ),
    "root, a tree": (
        lambda p: tg.root(lambda s: {"u": s["a"] ** 2 - p, "v": s["b"] - 1}, {"a": np.ones(2), "b": 0.5}).x["a"],
        np.sqrt,
    ),
    "minimum": (
        lambda p: tg.minimize(lambda s: np.sum((s - p * p) ** 2), np.ones(2)).x,
        lambda p: p * p,
    ),
    "value of the minimum": (
        lambda p: tg.minimize(lambda s: np.sum((s - p) ** 2) + p[0] ** 2, np.ones(2)).fun,
        lambda p: p[0] ** 2,
    ),
    "without gradients": (
        lambda p: tg.minimize(lambda s: np.sum((s - 2 * p) ** 4 + (s - 2 * p) ** 2), np.zeros(2), method="Nelder-Mead").x,
        lambda p: 2 * p,
    ),
    "Newton": (
        lambda p: tg.minimize(lambda s: np.sum(np.exp(s) - p * s), np.ones(2), method="trust-exact").x,
        np.log,
    ),
    "bounds": (
        lambda p: tg.minimize(lambda s: np.sum((s - p * 2) ** 2), np.zeros(2), bounds=(-1, 1.5)).x,
        lambda p: tg.stack([2 * p[0], 1.5 + 0 * p[0]]),
    ),
    "bounds, from inside": (
        lambda p: tg.minimize(
            lambda s: np.sum((s - p * 2) ** 2), np.zeros(2), method="trust-constr", bounds=(-1, 1.5)
        ).x,
        lambda p: tg.stack([2 * p[0], 1.5 + 0 * p[0]]),
    ),
    "all at bounds": (
        lambda p: tg.minimize(lambda s: np.sum((s - 10 * p) ** 2) + p[0] ** 2, np.zeros(2), bounds=(-1, 2)).fun,
        lambda p: np.sum((2 - 10 * p) ** 2) + p[0] ** 2,
    ),
    "equation": (
        lambda p: tg.minimize(
            lambda s: np.sum(s * s * p), np.ones(2), constraints={"type": "eq", "fun": lambda s: s[0] + s[1] - p[0]}
        ).x,
        weighted,
    ),
    "equation, args": (
        lambda p: tg.minimize(
            lambda s: np.sum(s * s * p),
            np.ones(2),
            constraints={"type": "eq", "fun": lambda s, q: s[0] + s[1] - q[0], "args": (p,)},
        ).x,
        weighted,
    ),
    "inequality, one active": (
        lambda p: tg.minimize(
            lambda s: np.sum((s - p * 2) ** 2), np.zeros(2), constraints={"type": "ineq", "fun": lambda s: p[0] * 3 - s}
        ).x,
        lambda p: tg.stack([2 * p[0], 3 * p[0]]),
    ),
    "linear constraint": (
        lambda p: tg.minimize(
            lambda s: np.sum((s - p) ** 2),
            np.zeros(2),
            constraints=scipy.optimize.LinearConstraint([[1.0, 1.0]], -np.inf, 1.0),
        ).x,
        lambda p: p - (p[0] + p[1] - 1) / 2,
    ),
    "nonlinear constraint": (
        lambda p: tg.minimize(
            lambda s: -np.sum(s * p),
            np.array([0.1, 0.2]),
            method="trust-constr",
            tol=1e-9,
            constraints=scipy.optimize.NonlinearConstraint(lambda s: s @ s, -np.inf, 1.0),
        ).x,
        lambda p: p / np.sqrt(p @ p),
    ),
    "root of one number": (
        lambda p: tg.root_scalar(lambda s: s**3 + p[1] * s - p[0], bracket=(0, 2)).root,
        lambda p: np.sinh(np.arcsinh(1.5 * p[0] / p[1] * np.sqrt(3 / p[1])) / 3) * 2 * np.sqrt(p[1] / 3),
    ),
    "Halley": (
        lambda p: tg.root_scalar(lambda s, q: s * s - q[0] * q[1], args=(p,), x0=1.0, method="halley").root,
        lambda p: np.sqrt(p[0] * p[1]),
    ),
    "brentq": (
        lambda p: tg.optimize.brentq(lambda s, q: s**3 - q[0] * q[1], 0.0, 2.0, args=(p,)),
        lambda p: np.cbrt(p[0] * p[1]),
    ),
    "newton, many starts": (
        lambda p: tg.optimize.newton(lambda s: s**3 - p, np.ones(2)),
        np.cbrt,
    ),
    "newton, its secants": (
        lambda p: tg.optimize.newton(lambda s: np.exp(s) - p[0] * p[1], 0.1, x1=0.2, full_output=True)[1].root,
        lambda p: np.log(p[0] * p[1]),
    ),
    "fsolve": (
        lambda p: tg.optimize.fsolve(lambda s: [s[0] * p[0] - 1, s[1] - s[0] * p[1]], [1.0, 1.0]),
        lambda p: tg.stack([1 / p[0], p[1] / p[0]]),
    ),
    "nnls": (
        lambda p: tg.concatenate([np.reshape(v, (-1,)) for v in tg.optimize.nnls(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) * p[0], tg.stack([p[1], 2 * p[1], -p[0]]))]),
        lambda p: tg.stack([1.5 * p[1] / p[0], 0 * p[0], np.sqrt(p[1] ** 2 / 2 + p[0] ** 2)]),
    ),
    "lsq_linear": (
        lambda p: tg.optimize.lsq_linear(np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 2.0]]), tg.stack([4.0 * p[1], p[0], 2 * p[0]]), (-1.0, tg.stack([p[0] * p[1], 9.0]))).x,
        lambda p: tg.stack([p[0] * p[1], (4 * p[1] - p[0] * p[1] + 5 * p[0]) / 6]),
    ),
    "minimum of one number": (
        lambda p: tg.minimize_scalar(lambda s: np.cosh(s - p[0]) + p[1] ** 2).x,
        lambda p: p[0] * 1.0,
    ),
    "its value": (
        lambda p: tg.minimize_scalar(lambda s: np.cosh(s - p[0]) + p[1] ** 2, bounds=(-3, 3)).fun,
        lambda p: 1 + p[1] ** 2,
    ),
    "at its bound": (
        lambda p: tg.minimize_scalar(lambda s: (s - 10 * p[0]) ** 2, bounds=(0, 2), options={"xatol": 1e-10}).fun,
        lambda p: (2 - 10 * p[0]) ** 2,
    ),
    "fixed point": (
        lambda p: tg.fixed_point(lambda s: (s + p / s) / 2, np.ones(2)),
        np.sqrt,
    ),
    "a solver of one's own": (
        lambda p: tg.custom_root(lambda s: s["a"] - p * s["a"] / 2 - 1, {"a": np.ones(2)}, lambda f, x0: {"a": 1 / (1 - np.array(P) / 2)})["a"],
        lambda p: 1 / (1 - p / 2),
    ),
    "curve fit": (
        lambda p: tg.curve_fit(lambda t, a, b: a + b * t, np.arange(3.0), tg.concatenate([p, p[:1] * 2]), sigma=p[0] * np.array([1.0, 2.0, 1.0]))[0],
        lambda p: np.linalg.solve(
            np.array([[2.25, 2.25], [2.25, 4.25]]), tg.stack([3 * p[0] + p[1] / 4, 4 * p[0] + p[1] / 4])
        ),
    ),
    "least squares": (
        lambda p: tg.least_squares(lambda s: tg.concatenate([s - p * p, s - p]), np.ones(2)).x,
        lambda p: (p * p + p) / 2,
    ),
    "its cost": (
        lambda p: tg.least_squares(lambda s: tg.concatenate([s - p * p, s - p]), np.ones(2)).cost,
        lambda p: np.sum((p * p - p) ** 2) / 4,
    ),
    "least squares at a bound": (
        lambda p: tg.least_squares(lambda s: s - 2 * p, np.zeros(2), bounds=(-1, 1.5)).x,
        lambda p: tg.stack([2 * p[0], 1.5 + 0 * p[0]]),
    ),
}  # fmt: skip
by_solution = pytest.mark.parametrize("name", SOLUTIONS)


@by_solution
def test_jacobians_in_both_modes(name):
    solved, by_hand = SOLUTIONS[name]
    expected = tg.jacobian(by_hand)(P)
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(
            tg.jacobian(solved, mode=mode)(P), expected, rtol=1e-7, atol=1e-8
        )


@by_solution
def test_second_and_third_derivatives(name):
    solved, by_hand = SOLUTIONS[name]

    def of(f):
        return lambda p: np.sum(np.sin(f(p)) * np.exp(p[0]))

    expected = tg.hessian(of(by_hand))(P)
    np.testing.assert_allclose(tg.hessian(of(solved))(P), expected, rtol=1e-6, atol=1e-7)
    twice = tg.jacobian(tg.grad(of(solved)), mode="reverse")(P)
    np.testing.assert_allclose(twice, expected, rtol=1e-6, atol=1e-7)
    third = [tg.jacobian(tg.hessian(of(f)), mode="forward")(P) for f in (solved, by_hand)]
    np.testing.assert_allclose(*third, rtol=1e-5, atol=1e-5)


@by_solution
def test_tensors_and_duals(name):
    solved, by_hand = SOLUTIONS[name]
    t, u = tg.tensor(P, requires_grad=True), tg.tensor(P, requires_grad=True)
    found, expected = solved(t), by_hand(u)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-7, atol=1e-9)
    found.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(t.grad, u.grad, rtol=1e-7, atol=1e-8)
    with forward_ad.dual_level():
        tangents = [
            forward_ad.unpack_dual(
                f(forward_ad.make_dual(tg.tensor(P), tg.tensor([1.0, -2.0])))
            ).tangent
            for f in (solved, by_hand)
        ]
    np.testing.assert_allclose(*tangents, rtol=1e-6, atol=1e-7)


# Solutions whose iterations are a loop of a compiled program.
LOOPED = (
    "root", "root, args", "root, a tree", "root of one number", "Halley", "brentq", "newton, many starts", "newton, its secants", "fsolve",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SOLUTIONS if name not in LOOPED])
def test_inside_a_compiled_function_the_gradient_is_that_outside(name):
    solved, _ = SOLUTIONS[name]
    slope = tg.grad(lambda p: np.sum(solved(p)))
    fast = tg.compile(slope)
    for p in (P, 1.1 * P):
        np.testing.assert_allclose(fast(p), slope(p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LOOPED)
def test_iterations_are_a_loop_of_a_compiled_function(name):
    """One program for values that need other numbers of iterations; its gradient against that of the formula."""
    solved, by_hand = SOLUTIONS[name]
    of = lambda f: lambda p: np.sum(np.sin(f(p)) * np.exp(p[0]))  # noqa: E731
    compiled, expected = tg.compile(tg.value_and_grad(of(solved))), tg.value_and_grad(of(by_hand))
    for p in (P, 1.7 * P):
        for found, wanted in zip(compiled(p), expected(p), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    assert len(compiled.programs.by_key) == 1


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", ["brenth", "ridder", "bisect", "newton", "fsolve"])
def test_second_derivatives_of_loops_in_compiled_functions(name):
    finder = getattr(tg.optimize, name)
    start = 1.0 if name in ("newton", "fsolve") else (0.0, 2.0)

    def solved(p):
        root = finder(lambda s: s**3 - p[0] * p[1], *np.atleast_1d(start))
        return np.sum(root) * p[0]

    def by_hand(p):
        return np.cbrt(p[0] * p[1]) * p[0]

    expected = tg.hessian(by_hand)(P)
    np.testing.assert_allclose(tg.compile(tg.hessian(solved))(P), expected, rtol=1e-7)
    twice = tg.jacobian(tg.grad(solved), mode="reverse")
    np.testing.assert_allclose(tg.compile(twice)(P), expected, rtol=1e-7)


def test_what_a_loop_of_a_compiled_function_refuses():
    with pytest.raises(ValueError, match="different signs"):
        tg.compile(lambda p: tg.optimize.brentq(lambda s: s * s + p, 0.0, 1.0))(1.0)
    with pytest.raises(RuntimeError, match="failed to converge"):
        tg.compile(lambda p: tg.optimize.newton(lambda s: s * s + p, 1.0))(1.0)
    with pytest.raises(ValueError, match="2 numbers for 3 unknowns"):
        tg.compile(lambda p: tg.root(lambda s: s[:2] * p, np.ones(3)).x)(1.0)
    looks = lambda p: tg.optimize.brentq(lambda s: s - p if s > 0.5 else 0.0 * s - p, 0.0, 2.0)  # noqa: E731
    assert tg.compile(looks)(1.0) == 1.0
    np.testing.assert_allclose(tg.compile(tg.grad(looks))(1.0), 1.0)


def test_multipliers_move_with_what_the_constraints_use():
    """The least s² with s = p has the multiplier 2p, the price of the constraint."""

    def price(p):
        equation = {"type": "eq", "fun": lambda s: s - p}
        return tg.minimize(lambda s: s * s, 1.0, constraints=equation).multipliers[0]

    assert tg.grad(price)(1.5) == pytest.approx(2.0)


@pytest.mark.long
def test_robust_losses():
    """Against differences of whole fits, with an outlier that the loss holds off."""
    t = np.linspace(0, 1, 9)

    for loss in ("linear", "soft_l1", "huber", "cauchy", "arctan"):

        def slope(y, loss=loss):
            fit = tg.least_squares(lambda p: p[0] + p[1] * t - y, np.zeros(2), loss=loss, f_scale=0.3, xtol=1e-15, ftol=1e-15, gtol=1e-15)  # fmt: skip
            return fit.x[1] + 10 * fit.covariance[0, 1] + fit.stderr[0]

        y = np.sin(3 * t) + (np.arange(9) == 4) * 2.0
        found, h = tg.grad(slope)(y), 1e-5
        # Tracked solutions are improved by Newton's steps, so that differences of them say something.
        at = lambda y, slope=slope: tg.value_and_grad(slope)(y)[0]  # noqa: E731
        differences = [(at(y + h * e) - at(y - h * e)) / (2 * h) for e in np.eye(len(y))]
        np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-6, err_msg=loss)


def test_a_covariance_by_the_data():
    """d cov / d y by the chain rule is what differences of fits are."""
    t = np.linspace(0.1, 2, 8)

    def deviation(y):
        fit = tg.least_squares(lambda p: p["a"] * np.exp(-p["k"] * t) - y, {"a": 1.0, "k": 1.0})
        return fit.stderr["k"] + fit.covariance[0, 1]

    y = 2 * np.exp(-1.5 * t) + 0.01 * np.cos(9 * t)
    found = tg.grad(deviation)(y)
    h = 1e-5
    differences = [(deviation(y + h * e) - deviation(y - h * e)) / (2 * h) for e in np.eye(len(y))]
    np.testing.assert_allclose(found, differences, rtol=1e-4, atol=1e-7)


def test_differentiating_through_the_iterations_gives_the_same():
    def by_iteration(p):
        x = 1.0
        for _ in range(30):
            x = x - (x**3 + p * x - 1) / (3 * x * x + p)
        return x

    solved = lambda p: tg.root(lambda x: x**3 + p * x - 1, 1.0).x  # noqa: E731
    for order in range(4):
        f, g = solved, by_iteration
        for _ in range(order):
            f, g = tg.grad(f), tg.grad(g)
        assert f(0.7) == pytest.approx(g(0.7), rel=1e-9)


def test_a_solution_within_a_solution():
    """The outer equations are solved for a parameter of the inner ones."""
    inner = lambda q: tg.root(lambda s: s**3 + s - q, 0.5).x  # noqa: E731
    outer = lambda p: tg.root(lambda q: inner(q) * q - p, 1.0).x  # noqa: E731
    assert float(outer(1.0)) * float(inner(outer(1.0))) == pytest.approx(1)
    slope = tg.grad(outer)(1.0)
    h = 1e-4
    assert slope == pytest.approx((outer(1 + h) - outer(1 - h)) / (2 * h), rel=1e-6)


def test_variables_mean_later_what_they_meant():
    def f(p):
        total = 0.0
        for power in (2, 3):
            total = total + tg.root(lambda s: s**power - p, 1.0).x
        return total

    assert tg.grad(f)(2.0) == pytest.approx(0.5 * 2**-0.5 + 2 ** (-2 / 3) / 3)


def test_a_function_that_changed_is_found_out():
    scale = np.array([1.0])
    p = tg.tensor(2.0, requires_grad=True)
    x = tg.root(lambda s: s * s * scale[0] - p, 1.0).x
    scale[0] = 3.0
    with pytest.raises(tg.GraphError, match="has changed since"):
        x.backward()


def test_a_bound_that_is_near_but_not_active():
    """The minimum lies within a thousandth of a bound and of a constraint: it moves as if they were not there."""
    near = 1.0 + 5e-4
    by_bound = lambda p: tg.minimize(lambda s: (s - p) ** 2, 0.0, bounds=(-1, near)).x  # noqa: E731
    by_constraint = lambda p: tg.minimize(lambda s: (s - p) ** 2, 0.0, constraints={"type": "ineq", "fun": lambda s: near - s}).x  # noqa: E731  # fmt: skip
    for f in (by_bound, by_constraint):
        assert tg.grad(f)(1.0) == pytest.approx(1.0)
        assert tg.grad(f, allow_unused=True)(1.1) == pytest.approx(0.0, abs=1e-12)


def test_curve_fits_are_scipys():
    rng = np.random.default_rng(0)
    t = np.linspace(0, 4, 30)
    y = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * rng.normal(size=30)
    model = lambda t, a, k, c: a * np.exp(-k * t) + c  # noqa: E731
    full = np.diag(np.linspace(0.1, 0.3, 30)) + 0.01
    for settings in (
        {},
        {"sigma": np.linspace(0.1, 0.3, 30)},
        {"sigma": full, "absolute_sigma": True},
    ):
        ours, theirs = (c.curve_fit(model, t, y, **settings) for c in (tg, scipy.optimize))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-3)
    with pytest.raises(ValueError, match="give p0"):
        tg.curve_fit(lambda t, *p: p[0] * t, t, y)


@pytest.mark.long
def test_fits_of_a_compiled_model_share_its_programs():
    rng = np.random.default_rng(0)
    t = np.linspace(0, 4, 30)
    model = lambda t, a, k: a * np.exp(-k * t)  # noqa: E731
    compiled = tg.compile(model)
    made = []
    for rate in (0.4, 0.7, 1.1):
        y = model(t, 2.0, rate) + 0.01 * rng.normal(size=30)
        for settings in ({}, {"sigma": np.linspace(0.1, 0.3, 30)}):
            for ours, plain in zip(
                tg.curve_fit(compiled, t, y, **settings),
                tg.curve_fit(model, t, y, **settings),
                strict=True,
            ):
                np.testing.assert_allclose(ours, plain, rtol=1e-6, atol=1e-12)
        (residuals,) = compiled._derived.values()
        (jacobian,) = residuals._derived.values()
        made.append([len(f.programs.by_key) for f in (residuals, jacobian)])
    assert made[2] == made[1]
    slope = tg.grad(lambda s: tg.curve_fit(compiled, t, s * model(t, 2.0, 0.5))[0][0])(1.0)
    np.testing.assert_allclose(slope, 2.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["brentq", "brenth", "ridder", "bisect", "toms748"])
def test_roots_between_two_ends_are_scipys(name):
    f = lambda x, a, b: np.cos(a * x) - b * x  # noqa: E731
    ours, theirs = (getattr(c.optimize, name) for c in (tg, scipy))
    settings = {"args": (1.3, 0.7), "xtol": 1e-9, "rtol": 1e-8, "full_output": True}
    (x, report), (expected, told) = ours(f, 0, 2, **settings), theirs(f, 0, 2, **settings)
    assert (x, report.root, report.iterations) == (expected, expected, told.iterations)
    assert ours(f, 0, 2, (1.3, 0.7)) == theirs(f, 0, 2, (1.3, 0.7))
    _, report = ours(f, 0, 2, (1.3, 0.7), maxiter=2, full_output=True, disp=False)
    assert not report.converged
    with pytest.raises(RuntimeError, match="converge"):
        ours(f, 0, 2, (1.3, 0.7), maxiter=2)
    slope = tg.grad(lambda a: ours(f, 0, 2, (a, 0.7)))(1.3)
    assert slope == pytest.approx(-x * np.sin(1.3 * x) / (1.3 * np.sin(1.3 * x) + 0.7), rel=1e-8)


def test_newton_and_fsolve_are_scipys():
    f = lambda x, p: np.exp(x) + x - p  # noqa: E731
    starts, p = np.array([0.0, 0.5, 1.0]), np.array([2.0, 3.0, 4.0])
    for settings in ({}, {"fprime": lambda x, p: np.exp(x) + 1}, {"x1": starts + 0.1}):
        found, expected = (c.optimize.newton(f, starts, args=(p,), **settings) for c in (tg, scipy))
        np.testing.assert_allclose(found, expected, rtol=1e-8)
        report = tg.optimize.newton(f, starts, args=(p,), full_output=True, **settings)
        np.testing.assert_array_equal(report.root, found)
        assert report.converged.all()
    second = {"fprime": lambda x, p: np.exp(x) + 1, "fprime2": lambda x, p: np.exp(x)}
    for settings in (second, {"fprime": second["fprime"]}):
        (x, ours), (y, theirs) = (c.optimize.newton(f, 0.5, args=(3.0,), full_output=True, **settings) for c in (tg, scipy))  # fmt: skip
        assert (x, ours.iterations, ours.method) == (y, theirs.iterations, theirs.method)
    both = lambda x, p: (np.exp(x) + x - p, np.exp(x) + 1)  # noqa: E731
    assert tg.root_scalar(both, args=(3.0,), x0=0.5, fprime=True).root == pytest.approx(y)
    assert tg.root_scalar(f, args=(3.0,), x0=0.5, fprime=second["fprime"], method="newton").root == pytest.approx(y)  # fmt: skip

    system = lambda x: [x[0] * np.cos(x[1]) - 4, x[0] * x[1] - x[1] - 5]  # noqa: E731
    slopes = lambda x: [[np.cos(x[1]), x[1]], [-x[0] * np.sin(x[1]), x[0] - 1]]  # noqa: E731
    expected, told, *ending = scipy.optimize.fsolve(system, [1, 1], fprime=slopes, col_deriv=True, full_output=True)  # fmt: skip
    for settings in ({}, {"fprime": slopes, "col_deriv": True}):
        x, report, *rest = tg.optimize.fsolve(system, [1, 1], full_output=True, **settings)
        np.testing.assert_allclose(x, expected, rtol=1e-12)
        assert (report["nfev"], rest) == (told["nfev"], ending)
    with pytest.warns(RuntimeWarning, match="iteration"):
        tg.optimize.fsolve(lambda x: x * x + 1, 1.0)


def test_linear_fits_under_bounds():
    """Against SciPy's, and slopes by matrix, data and bounds against differences."""
    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(9, 4)), rng.normal(size=9)
    low, high = np.full(4, -0.1), np.array([0.2, 0.1, 0.3, np.inf])
    for ours, theirs in zip(tg.optimize.nnls(A, b), scipy.optimize.nnls(A, b), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for method in ("trf", "bvls"):
        ours, theirs = (c.optimize.lsq_linear(A, b, (low, high), method) for c in (tg, scipy))
        np.testing.assert_array_equal(ours.x, theirs.x)
        tracked = tg.optimize.lsq_linear(tg.tensor(A, requires_grad=True), b, (low, high), method)
        np.testing.assert_allclose(tracked.x.detach(), theirs.x, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(tracked.cost.detach(), theirs.cost, rtol=1e-6)
    assert 0 < np.count_nonzero(tracked.active_mask) < 4
    sparse = tg.optimize.lsq_linear(
        scipy.sparse.csr_array(A),
        tg.tensor(b, requires_grad=True),
        scipy.optimize.Bounds(low, high),
    )
    np.testing.assert_allclose(sparse.x.detach(), tracked.x.detach(), rtol=1e-12, atol=1e-14)

    def fitted(A, b, low):
        return tg.optimize.lsq_linear(A, b, (low, high), "bvls")

    weights = np.arange(1.0, 5.0)
    slopes = tg.grad(lambda *given: fitted(*given).x @ weights, argnums=(0, 1, 2))(A, b, low)
    given, h = [A, b, low], 1e-6
    for k, slope in enumerate(slopes):
        step = rng.normal(size=np.shape(given[k]))
        ends = [fitted(*given[:k], given[k] + s * h * step, *given[k + 1 :]).x for s in (1, -1)]
        assert np.sum(slope * step) == pytest.approx((ends[0] - ends[1]) @ weights / (2 * h), rel=1e-6)  # fmt: skip
    with pytest.raises(tg.NotDifferentiable, match="kink"):
        tg.jacobian(lambda b: tg.optimize.nnls(np.eye(2), b)[0])(np.array([1.0, 0.0]))
    with pytest.raises(tg.NotDifferentiable, match="depend on each other"):
        tg.jacobian(lambda b: tg.optimize.lsq_linear(np.ones((3, 2)), b, (0.0, 9.0)).x)(np.ones(3))


def test_a_bracket_without_a_change_of_sign():
    with pytest.raises(ValueError, match="different signs"):
        tg.root_scalar(lambda s: s * s + 1, bracket=(0, 1))


def test_what_has_no_derivative_raises():
    with pytest.raises(tg.NotDifferentiable, match="singular"):
        tg.grad(lambda p: np.sum(tg.minimize(lambda s: (s[0] + s[1] - p) ** 2, np.zeros(2)).x))(1.0)
    with pytest.raises(tg.NotDifferentiable, match="do not hold"):  # no root: s² + p
        tg.grad(lambda p: tg.root(lambda s: s * s + 1 + p * p, 1.0).x)(1.0)
    with pytest.raises(tg.NotDifferentiable, match="a function"):
        loss = lambda z: np.stack([z, np.ones_like(z), np.zeros_like(z)])  # noqa: E731
        tg.grad(lambda p: tg.least_squares(lambda s: s - p, [0.0], loss=loss).x[0])(1.0)


def test_what_does_not_depend_is_as_it_was():
    """Detached values, no_grad, and plain scripts: SciPy's arrays and numbers, and no tensors given to a method without gradients."""
    solved, _ = SOLUTIONS["root"]
    found = tg.grad(lambda p: np.sum(p * solved(p.detach())))(P)
    np.testing.assert_allclose(found, np.sqrt(P), rtol=1e-7)
    with tg.no_grad():
        assert type(solved(tg.tensor(P, requires_grad=True))) is np.ndarray
    assert type(tg.minimize(lambda s: np.sum(s * s), np.ones(2)).x) is np.ndarray


def test_a_value_that_is_read_away_from_the_start_only():
    """At the start the equations do not use p; at the solution they do."""
    f = lambda p: tg.root(lambda s: s - 2 * p if s > 0.5 else 2 * s - 4, 0.0).x  # noqa: E731
    assert tg.grad(f)(1.0) == pytest.approx(2)


def test_third_derivatives_once_hooks_are_there():
    """Tensors have a finaliser from the first hook on, which drops entries that nobody holds while others are differentiated."""
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.register_hook(lambda g: None)
    solved, by_hand = SOLUTIONS["root"]
    third = [
        tg.jacobian(tg.hessian(lambda p, f=f: np.sum(np.sin(f(p)) * np.exp(p[0]))), mode="forward")(
            P
        )
        for f in (solved, by_hand)
    ]
    np.testing.assert_allclose(*third, rtol=1e-5, atol=1e-6)


DOUBLE = {
    "factored": lambda x, a: (x - 1.0) ** 2 - a,
    "expanded": lambda x, a: x * x - 2 * x + 1.0 - a,
    "of small values": lambda x, a: 1e-20 * ((x - 1.0) ** 2 - a),
    "triple": lambda x, a: (x - 1.0) ** 3 - a,
}


@pytest.mark.parametrize("name", DOUBLE)
def test_double_roots_have_no_derivative(name):
    """The solver stops beside the root, where the slope is not 0: the gradient was a number of the size of 1e8, and more."""

    def by_newton(a):
        return tg.root_scalar(lambda x: DOUBLE[name](x, a), method="newton", x0=0.3).root

    def by_root(a):
        return tg.root(
            lambda x: np.stack([DOUBLE[name](x[0], a), 1e6 * x[1] - a]), np.array([0.3, 1.0])
        ).x[0]

    for f in (by_newton, by_root):
        for form in (tg.grad(f), tg.compile(tg.grad(f))):
            with pytest.raises(tg.NotDifferentiable, match="singular|do not hold|not small"):
                form(0.0)


SIMPLE = {
    "near another": (lambda x, a: (x - 1.0) ** 2 - a, 1.1, 1e-16, 5e7, 1e-6),
    "of small values": (lambda x, a: 1e-20 * (x * x - a), 1.0, 2.0, 0.5**1.5, 1e-12),
    "flat": (lambda x, a: np.exp(x) - a, -20.0, 1e-12, 1e12, 1e-12),
    "steep": (lambda x, a: np.tanh(1e6 * (x - a)), 0.1 + 1e-7, 0.1, 1.0, 1e-12),
    "rounded": (lambda x, a: (x + 1e8) - 1e8 - a, 0.5, 0.1, 1.0, 1e-12),
    "tiny": (lambda x, a: x * x - a, 1e-7, 1e-16, 5e7, 1e-12),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_roots_of_any_scale_have_one(name):
    f, start, a, slope, digits = SIMPLE[name]
    assert tg.grad(lambda a: tg.root_scalar(lambda x: f(x, a), method="newton", x0=start).root)(a) == pytest.approx(slope, rel=digits)  # fmt: skip
    assert tg.grad(lambda a: tg.root(lambda x: np.stack([f(x[0], a), 1e6 * x[1] - a]), np.array([start, 1.0])).x[0])(a) == pytest.approx(slope, rel=digits)  # fmt: skip
