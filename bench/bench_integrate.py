"""Differential equations and integrals: a fit with an equation inside, gradients beside the solution alone, and Leibniz' rule.

Peers are SciPy's `odeint` (LSODA, in Fortran) and `solve_ivp` with differences, as one fits today. Stiff problems are Robertson's
reaction and Van der Pol's oscillator with μ = 1000.
"""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

import tapegrad as tg

T = np.linspace(0, 10, 21)
P, Y0 = np.array([1.0, 0.2, 0.1, 0.8]), np.array([5.0, 3.0])
START = P * np.array([1.1, 0.9, 1.1, 0.9])


def predators(t, y, p):
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]]


def robertson(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[1], p[2] * y[1] * y[2]
    return [c - a, a - b - c, b]


def van_der_pol(t, y, p):
    return [y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]]


DATA = scipy.integrate.odeint(predators, Y0, T, args=(P,), tfirst=True, rtol=1e-10, atol=1e-10)
DATA = DATA * (1 + 0.02 * np.random.default_rng(0).normal(size=DATA.shape))


def by_odeint(p):
    return (scipy.integrate.odeint(predators, Y0, T, args=(p,), tfirst=True) - DATA).ravel()


def by_solve_ivp(p, of=scipy.integrate.solve_ivp):
    found = of(predators, (0, 10), Y0, t_eval=T, args=(p,), rtol=1e-6, atol=1e-6)
    return np.reshape(found.y.T - DATA, (-1,))


def by_ours(p):
    return by_solve_ivp(p, tg.integrate.solve_ivp)


def by_loop(p):
    found = tg.odeint(predators, Y0, T, args=(p,), tfirst=True, rtol=1e-6, atol=1e-6)
    return np.reshape(found - DATA, (-1,))


def compiled_fit():
    value, slopes = tg.compile(by_loop), tg.compile(tg.jacobian(by_loop))
    return lambda: scipy.optimize.least_squares(value, START, jac=slopes).x


FITS = {
    "scipy odeint, differences": lambda: lambda: scipy.optimize.least_squares(by_odeint, START).x,
    "scipy solve_ivp, differences": lambda: (
        lambda: scipy.optimize.least_squares(by_solve_ivp, START).x
    ),
    "tg.integrate.solve_ivp": lambda: lambda: tg.least_squares(by_ours, START).x,
    "tg.odeint": lambda: lambda: tg.least_squares(by_loop, START, compile=False).x,
    "tg.odeint, compiled": compiled_fit,
}


@pytest.mark.parametrize("engine", FITS)
def test_fit(benchmark, engine):
    fit = FITS[engine]()
    np.testing.assert_allclose(fit(), FITS["scipy odeint, differences"]()(), rtol=1e-4)
    benchmark.group = "fit of predators and prey"
    benchmark(fit)


# fmt: off
PROBLEMS = {
    "predators": (predators, P, Y0, 10.0, "RK45", {"rtol": 1e-6, "atol": 1e-6}),
    "robertson": (robertson, np.array([0.04, 3e7, 1e4]), np.array([1.0, 0.0, 0.0]), 1e4, "Radau", {"rtol": 1e-6, "atol": 1e-10}),
    "robertson, BDF": (robertson, np.array([0.04, 3e7, 1e4]), np.array([1.0, 0.0, 0.0]), 1e4, "BDF", {"rtol": 1e-6, "atol": 1e-10}),
    "van der pol": (van_der_pol, np.array([1000.0]), np.array([2.0, 0.0]), 1200.0, "Radau", {"rtol": 1e-6, "atol": 1e-8}),
}
# fmt: on


@pytest.mark.parametrize("what", ["solution", "gradient", "differences"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient(benchmark, name, what):
    """The gradient of the sum of the last state by all parameters, beside SciPy's solution and central differences of it."""
    equations, p, y0, end, method, settings = PROBLEMS[name]

    def last(p, of, settings=settings):
        return np.sum(of(equations, (0, end), y0, method, args=(p,), **settings).y[:-1, -1])

    def differences(settings=settings):
        steps = 1e-4 * np.diag(p)
        runs = [
            [last(p + s * h, scipy.integrate.solve_ivp, settings) for s in (1, -1)] for h in steps
        ]
        return np.array([(up - down) / 2e-4 for up, down in runs]) / p

    gradient = tg.grad(lambda p: last(p, tg.integrate.solve_ivp))
    expected = differences({"rtol": 1e-9, "atol": 1e-3 * settings["atol"]})
    np.testing.assert_allclose(gradient(p) * p, expected * p, rtol=2e-3, atol=1e-6)
    runs = {
        "solution": lambda: last(p, scipy.integrate.solve_ivp),
        "gradient": lambda: gradient(p),
        "differences": differences,
    }
    benchmark.group = name
    benchmark(runs[what])


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_quad(benchmark, what):
    def integral(p, of=tg.integrate.quad):
        return of(lambda x: np.exp(-p[0] * x**2) * np.cos(p[1] * x), 0, np.inf)[0]

    p = np.array([1.3, 0.7])
    exact = lambda p: 0.5 * np.sqrt(np.pi / p[0]) * np.exp(-(p[1] ** 2) / 4 / p[0])  # noqa: E731
    gradient = tg.grad(integral)
    np.testing.assert_allclose(gradient(p), tg.grad(exact)(p), rtol=1e-8)
    benchmark.group = "quad"
    benchmark(gradient if what == "gradient" else lambda p: integral(p, scipy.integrate.quad), p)
