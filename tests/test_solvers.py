"""tg.minimize, tg.least_squares, tg.root: SciPy's answers, on trees, with fewer evaluations; and what they refuse."""

import numpy as np
import pytest
from scipy import optimize

import tapegrad as tg
from tapegrad.transforms.derivatives import jacobian_blocks

T = np.linspace(0, 3, 20)
Y = 2 * np.exp(-1.3 * T) + 0.1 + 0.01 * np.random.default_rng(0).normal(size=20)


def rosenbrock(p):
    return (
        (1 - p["x"]) ** 2 + 100 * (p["y"] - p["x"] ** 2) ** 2 + np.sum((p["z"] - np.arange(2)) ** 2)
    )


START = {"x": -1.0, "y": 2.0, "z": np.zeros(2)}


@pytest.mark.parametrize(
    "method",
    [
        None,
        "CG",
        "BFGS",
        "Newton-CG",
        "L-BFGS-B",
        "TNC",
        "SLSQP",
        "trust-constr",
        "trust-ncg",
        "trust-krylov",
        "trust-exact",
    ],
)
def test_every_method_finds_the_minimum_of_a_tree(method):
    result = tg.minimize(rosenbrock, START, method=method)
    assert result.success
    assert result.x["x"] == pytest.approx(1, abs=2e-3) and isinstance(result.x["x"], float)
    assert result.x["y"] == pytest.approx(1, abs=4e-3)
    np.testing.assert_allclose(result.x["z"], [0, 1], atol=1e-3)
    assert isinstance(result, optimize.OptimizeResult)
    assert START["z"].tolist() == [0, 0]


@pytest.mark.parametrize("method", ["Nelder-Mead", "Powell", "COBYLA", "COBYQA"])
def test_methods_without_gradient_get_none(method):
    calls = []

    def f(x):
        calls.append(isinstance(x, tg.Tensor))
        return np.sum((x - 1) ** 2)

    result = tg.minimize(f, np.zeros(2), method=method)
    np.testing.assert_allclose(result.x, 1, atol=1e-3)
    assert not any(calls)


def test_hessians_are_whole_when_small_and_products_when_big():
    """Newton on a quadratic form is there in a step or two, either way."""
    for n in (5, 60):
        a = np.diag(np.arange(1.0, n + 1))
        result = tg.minimize(
            lambda x, a=a: 0.5 * x @ a @ x - np.sum(x), np.ones(n), method="trust-ncg"
        )
        np.testing.assert_allclose(result.x, 1 / np.arange(1.0, n + 1), atol=1e-4)
        assert ("nhev" in result) and result.nit < 20


def test_gradient_is_in_the_structure_of_the_start():
    result = tg.minimize(rosenbrock, START)
    assert set(result.jac) == set(START) and result.jac["z"].shape == (2,)


# fmt: off
BOUNDS = {
    "tree":         ({"x": (None, 0.5)}, START),
    "tree, arrays": ({"x": (-2, 0.5), "z": (np.zeros(2), [1.0, 5.0])}, START),
    "Bounds":       (optimize.Bounds(-5, [0.5, 9, 9, 9]), START),
}
# fmt: on


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_on_trees(name):
    bounds, start = BOUNDS[name]
    result = tg.minimize(rosenbrock, start, bounds=bounds)
    assert result.x["x"] == pytest.approx(0.5) and result.x["y"] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize(
    "bounds", [(0.5, None), [(0.5, None)] * 2, [(0.5, 1), (0.5, 2)], optimize.Bounds(0.5, np.inf)]
)
def test_bounds_on_arrays(bounds):
    result = tg.minimize(lambda x: np.sum(x**2), np.ones(2), bounds=bounds)
    np.testing.assert_allclose(result.x, 0.5)


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_constraints_get_their_jacobians(method):
    def disc(p):
        assert isinstance(p, dict)
        return 1 - p["x"] ** 2 - p["y"] ** 2

    if method == "SLSQP":
        constraint = {"type": "ineq", "fun": disc}
    else:
        constraint = optimize.NonlinearConstraint(disc, 0, np.inf)
    result = tg.minimize(rosenbrock, START, method=method, constraints=constraint, tol=1e-9)
    assert result.x["x"] == pytest.approx(0.78641, abs=1e-4)
    assert result.x["y"] == pytest.approx(0.61770, abs=1e-4)


def test_two_constraints_and_args():
    result = tg.minimize(
        lambda x, a: np.sum((x - a) ** 2),
        np.zeros(3),
        args=(np.array([1.0, 2.0, 3.0]),),
        constraints=[
            {"type": "eq", "fun": lambda x, s: np.sum(x) - s, "args": (3.0,)},
            optimize.LinearConstraint(np.eye(3), -10, 1.5),
        ],
    )
    np.testing.assert_allclose(result.x, [0.25, 1.25, 1.5], atol=1e-6)


def test_callback_and_progress(capsys):
    seen = []
    tg.minimize(rosenbrock, START, callback=seen.append, progress=True)
    assert len(seen) > 5 and set(seen[0]) == set(START)
    assert "iteration 1  f " in capsys.readouterr().err
    tg.least_squares(lambda k: np.exp(-k * T) - Y, 1.0, progress=True)
    tg.root(lambda x: np.cos(x) - x, 1.0, progress=True)
    assert "|f|" in capsys.readouterr().err


def test_tensors_in_tensors_out():
    result = tg.minimize(lambda t: ((t - 2) ** 2).sum(), tg.zeros(3))
    assert isinstance(result.x, tg.Tensor)
    np.testing.assert_allclose(result.x.numpy(), 2)


# ------------------------------------------------------------------------------------------ least squares


def residuals(p):
    return p["a"] * np.exp(-p["k"] * T) + p["c"] - Y


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_fit_and_covariance_are_those_of_curve_fit(method):
    fit = tg.least_squares(
        residuals, {"a": 1.0, "k": 1.0, "c": 0.0}, method=method, xtol=1e-14, ftol=1e-14
    )
    best, covariance = optimize.curve_fit(
        lambda t, a, c, k: a * np.exp(-k * t) + c, T, Y, p0=[1, 0, 1], ftol=1e-14, xtol=1e-14
    )
    assert fit.names == ["a", "c", "k"] and fit.dof == 17
    np.testing.assert_allclose([fit.x["a"], fit.x["c"], fit.x["k"]], best, rtol=1e-7)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=1e-5)
    assert fit.stderr["k"] == pytest.approx(np.sqrt(covariance[2, 2]), rel=1e-5)
    known = tg.least_squares(lambda p: residuals(p) / 0.01, fit.x, absolute_sigma=True)
    assert known.stderr["a"] == pytest.approx(fit.stderr["a"], rel=0.5)


def test_minpack_takes_scipys_steps():
    """Method "lm" goes by `leastsq`: what it returns is that of SciPy's own `least_squares`, given the Jacobian."""

    def vector(p):
        return residuals({"a": p[0], "k": p[1], "c": p[2]})

    def slopes(p):
        e = np.exp(-p[1] * T)
        return np.stack([e, -p[0] * T * e, np.ones_like(T)], axis=1)

    for settings in ({}, {"ftol": 1e-3}, {"max_nfev": 3}):
        ours = tg.least_squares(vector, np.array([1.0, 1.0, 0.0]), method="lm", **settings)
        scipys = optimize.least_squares(vector, [1.0, 1.0, 0.0], slopes, method="lm", **settings)
        for name in ("nfev", "njev", "status", "success"):
            assert ours[name] == scipys[name], name
        for name in ("x", "cost", "fun", "jac"):
            np.testing.assert_allclose(ours[name], scipys[name], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="max_nfev"):
        tg.least_squares(vector, np.ones(3), method="lm", max_nfev=0)


def test_fit_with_bounds_leaves_the_bound_parameter_without_variance():
    for bounds in (({"a": 0, "k": 0, "c": 0.2}, {"a": 9, "k": 9, "c": 9}), {"c": (0.2, None)}):
        fit = tg.least_squares(residuals, {"a": 1.0, "k": 1.0, "c": 0.5}, bounds=bounds)
        assert fit.x["c"] == pytest.approx(0.2, abs=1e-6)
        assert fit.stderr["c"] == 0 < fit.stderr["a"]


def test_what_the_data_cannot_tell_has_infinite_variance():
    fit = tg.least_squares(lambda p: p[0] + p[1] - Y, np.zeros(2))
    assert np.isinf(fit.covariance).all()


def test_units_do_not_matter():
    fit = tg.least_squares(
        lambda p: p[0] * np.exp(-p[1] * T) * 1e9 - Y, np.array([1e-9, 1.0]), x_scale="jac"
    )
    assert np.isfinite(fit.covariance).all() and fit.x[0] == pytest.approx(2e-9, rel=0.1)


def test_residuals_of_several_shapes_and_robust_losses():
    fit = tg.least_squares(
        lambda p: {"data": np.outer(p, [1.0, 2.0]) - 1, "prior": 0.1 * p},
        np.zeros(3),
        loss="soft_l1",
    )
    assert fit.fun.shape == (9,) and fit.jac.shape == (9, 3)


# ------------------------------------------------------------------------------------------ roots


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov", "broyden1"])
def test_roots(method):
    def f(p):
        return {"circle": p["x"] ** 2 + p["y"] ** 2 - 1, "line": p["x"] - p["y"]}

    result = tg.root(f, {"x": 1.0, "y": 0.5}, method=method)
    assert result.success and result.x["x"] == pytest.approx(np.sqrt(0.5), rel=1e-5)


@pytest.mark.parametrize("method", ["trf", "lm"])
def test_the_jacobian_of_a_fit_is_the_callers_own(method):
    """Residuals that are the unknowns have a tangent that all Jacobians of this width share."""

    def fit():
        return tg.least_squares(lambda p: np.concatenate([p - 1, 2 * p]), np.zeros(2), method=method)  # fmt: skip

    expected = np.concatenate([np.eye(2), 2 * np.eye(2)])
    np.testing.assert_array_equal(fit().jac, expected)
    itself = tg.least_squares(lambda p: [p, p], np.ones(2), method=method).jac
    itself[...] = 7.0
    fit().jac[...] = 7.0
    np.testing.assert_array_equal(fit().jac, expected)


def test_jacobians_of_a_solve_follow_what_their_function_reaches():
    """A function that fills a buffer runs as a copy, which is made anew where a helper has become another function."""

    def filled_with(factor):
        def helper(x):
            out = np.zeros(3)
            for i in range(3):
                out[i] = factor * x[0] ** i
            return out

        return helper

    helper = filled_with(2.0)
    blocks = jacobian_blocks(lambda x: helper(x))
    for factor in (2.0, 3.0):
        helper = filled_with(factor)
        np.testing.assert_array_equal(blocks(np.ones(1))[0][0].T, [[0, factor, 2 * factor]])


def test_root_uses_the_jacobian():
    result = tg.root(lambda x: np.exp(x) - np.arange(1.0, 21.0), np.zeros(20))
    assert result.success and result.njev >= 1 and result.nfev < 40


# ------------------------------------------------------------------------------------------ bad input


def _writes(x):
    x[0] = 1
    return np.sum(x**2)


# fmt: off
BAD = {
    "no function":        (lambda: tg.minimize(3.0, 1.0), TypeError, "cannot be called"),
    "unknown method":     (lambda: tg.minimize(np.sum, 1.0, method="magic"), ValueError, "choose among"),
    "nan at the start":   (lambda: tg.minimize(np.log, -1.0), ValueError, "f is nan at x0|log is nan at x0"),
    "nan in the start":   (lambda: tg.minimize(np.sum, np.array([1.0, np.nan])), ValueError, r"x0\[1\] is nan or inf"),
    "empty start":        (lambda: tg.minimize(np.sum, np.zeros(0)), ValueError, "holds no number"),
    "complex start":      (lambda: tg.minimize(np.abs, 1j), TypeError, "real and imaginary"),
    "text in the start":  (lambda: tg.minimize(np.abs, {"a": "b"}), TypeError, "only numbers"),
    "vector to minimise": (lambda: tg.minimize(np.sin, np.ones(2)), ValueError, "least_squares"),
    "None returned":      (lambda: tg.minimize(lambda x: None, 1.0), TypeError, "Does it end with a return"),
    "bounds count":       (lambda: tg.minimize(np.sum, np.ones(2), bounds=[(0, 1)]), ValueError, "1 pairs for 2 unknowns"),
    "bounds crossed":     (lambda: tg.minimize(np.sum, np.ones(2), bounds=(3, 0)), ValueError, "leave nothing"),
    "start outside":      (lambda: tg.minimize(np.sum, np.ones(2), bounds=(3, 4)), ValueError, "start inside"),
    "bounds unknown":     (lambda: tg.minimize(rosenbrock, START, bounds={"w": (0, 1)}), ValueError, "does not have"),
    "bounds no pair":     (lambda: tg.minimize(rosenbrock, START, bounds={"x": 3}), ValueError, "a pair"),
    "constraint":         (lambda: tg.minimize(np.sum, 1.0, constraints={"fun": np.sum}), ValueError, "'type': 'ineq'"),
    "constraint type":    (lambda: tg.minimize(np.sum, 1.0, constraints=[3]), TypeError, "NonlinearConstraint"),
    "too few for lm":     (lambda: tg.least_squares(np.sum, np.ones(2), method="lm"), ValueError, "use 'trf'"),
    "no residual":        (lambda: tg.least_squares(lambda x: x[:0], np.ones(2)), ValueError, "no residual"),
    "inf residual":       (lambda: tg.least_squares(lambda x: x / 0.0, np.ones(2)), ValueError, "start where it is finite"),
    "root counts":        (lambda: tg.root(np.sum, np.ones(2)), ValueError, "1 equations for 2 unknowns"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:(divide|invalid)")
def test_bad_input_is_answered_in_a_sentence(name):
    call, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        call()


def test_a_function_that_writes_into_its_argument_does_no_harm():
    x = np.zeros(2)
    result = tg.minimize(_writes, x, method="Nelder-Mead")
    assert x.tolist() == [0, 0] and result.x[1] == pytest.approx(0, abs=1e-4)


def test_as_scipys_users_write_it():
    """Lists of numbers are arrays, one argument needs no tuple, and derivatives are not asked for."""

    def distance(x, a):
        return np.sum((x - a) ** 2)

    fit = tg.minimize(distance, [0.0, 0], 2.0, bounds=[(0, 1), (0, 5)])
    np.testing.assert_allclose(fit.x, [1, 2], atol=1e-6)
    assert isinstance(fit.x, np.ndarray)
    data = np.array([1.0, 2.0])
    np.testing.assert_allclose(tg.minimize(distance, [0.0, 0.0], data).x, data, atol=1e-6)
    fit = tg.least_squares(lambda p, t: p[0] * t - 2 * t, [1.0], (data,))
    assert fit.x == pytest.approx([2.0]) and fit.names == ["x0[0]"]
    assert tg.root(lambda x: x**2 - [4.0, 9.0], [1, 1]).x == pytest.approx([2, 3])
    assert tg.minimize(lambda p: (p[0] - 1) ** 2, (0.0,)).x == pytest.approx((1,), abs=1e-6)
    for solver in (tg.minimize, tg.least_squares, tg.root):
        with pytest.raises(TypeError, match="leave jac out"):
            solver(lambda x: x, [0.0], jac=lambda x: 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'metod'"):
        tg.minimize(distance, [0.0], 1.0, metod="BFGS")


@pytest.mark.parametrize("method", ["BFGS", "trust-exact", "Newton-CG"])
def test_derivatives_of_a_compiled_function_are_compiled(method):
    """The same path as uncompiled, on trees with further arguments; programs are kept for the next solve."""

    def rosenbrock(p, scale):
        z = np.append(p["z"], p["x"])
        return np.sum(scale * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2)

    start = {"x": -1.0, "z": np.array([0.5, 2.0])}
    fast = tg.compile(rosenbrock)
    plain = tg.minimize(rosenbrock, start, 100.0, method)
    for _ in range(2):
        fit = tg.minimize(fast, start, 100.0, method)
        assert fit.nit == plain.nit
        np.testing.assert_allclose(fit.x["z"], plain.x["z"], rtol=1e-6)
        assert isinstance(fit.x["x"], float)
    programs = [len(made.programs.by_key) for made in fast._derived.values()]
    assert programs == [1] * len(programs) and programs


def test_jacobians_of_a_compiled_function_are_compiled():
    t = np.linspace(0, 2, 9)

    def residuals(p, t):
        return {"data": p["a"] * np.exp(-p["k"] * t) - 2 * np.exp(-t), "prior": 0.1 * p["k"]}

    start = {"a": 1.0, "k": 0.5}
    plain, fit = (tg.least_squares(f, start, t) for f in (residuals, tg.compile(residuals)))
    assert fit.nfev == plain.nfev and fit.x == pytest.approx(plain.x, rel=1e-9)
    np.testing.assert_allclose(fit.covariance, plain.covariance, rtol=1e-6)
    cubed = tg.compile(lambda x: x**3 - 8)
    assert tg.root(cubed, [1.0, 3.0]).x == pytest.approx([2, 2]) and cubed._derived


def test_a_static_argument_stays_one():
    powers = tg.compile(lambda x, n: np.sum((x - 1) ** n), static_argnums=1)
    assert tg.minimize(powers, [0.0, 3.0], 2).x == pytest.approx([1, 1])
    assert tg.minimize(powers, [0.0, 3.0], 4).x == pytest.approx([1, 1], abs=0.02)
    (whole,) = powers._derived.values()  # value and gradient as one program, for each power
    assert whole.static == {1} and len(whole.programs.by_key) == 2
