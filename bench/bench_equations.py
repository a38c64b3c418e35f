"""Differential equations that are anchors of the field: value and gradient by all parameters, each solved as its library's users would.

Contestants are `tg.integrate.solve_ivp`, by itself and in a compiled function, SciPy's with central differences, and diffrax where it is
installed (Tsit5, or Kvaerno5 where stiff, under `jax.jit`, with its default adjoint; and Tsit5 or Kvaerno4 by forward mode, quickest
for few parameters). All are asked for the same tolerances, in double precision; every answer is asserted before it is timed, against a
solution at 1e-12. The value is a weighted sum of the last state.
"""

from functools import cache, partial
from importlib import util

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg


def predators(xp, t, y, p):
    return xp.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])


def robertson(xp, t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[1], p[2] * y[1] * y[2]
    return xp.stack([c - a, a - b - c, b])


def van_der_pol(xp, t, y, p):
    return xp.stack([y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]])


def hires(xp, t, y, p):
    """Eight species of a reaction that light steers (Hairer & Wanner, Solving Ordinary Differential Equations II, IV.10)."""
    k = p
    pair = k[9] * y[5] * y[7]
    return xp.stack([
        -k[0] * y[0] + k[1] * y[1] + k[2] * y[2] + k[3],
        k[0] * y[0] - k[4] * y[1],
        -k[5] * y[2] + k[1] * y[3] + k[6] * y[4],
        k[2] * y[1] + k[0] * y[2] - k[7] * y[3],
        -k[8] * y[4] + k[1] * y[5] + k[1] * y[6],
        -pair + k[10] * y[3] + k[0] * y[4] - k[1] * y[5] + k[10] * y[6],
        pair - k[11] * y[6],
        -pair + k[11] * y[6],
    ])  # fmt: skip


def pleiades(xp, t, z, masses):
    """Seven stars in a plane (Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.10)."""
    x, y = z[:7], z[7:14]
    to = [u[None] - u[:, None] for u in (x, y)]
    square = to[0] ** 2 + to[1] ** 2 + np.reshape(np.eye(7), (7, 7) + (1,) * (z.ndim - 1))
    pull = xp.reshape(masses, (1, 7) + (1,) * (z.ndim - 1)) / square**1.5
    return xp.concatenate([z[14:], xp.sum(pull * to[0], axis=1), xp.sum(pull * to[1], axis=1)])


SIDE = 16


def brusselator(xp, t, z, p):
    """A reaction that diffuses on a torus."""
    u, v = xp.reshape(z, (2, SIDE, SIDE, *z.shape[1:]))

    def laplace(w):
        return xp.roll(w, 1, 0) + xp.roll(w, -1, 0) + xp.roll(w, 1, 1) + xp.roll(w, -1, 1) - 4 * w

    d, made = p[2] * (SIDE - 1) ** 2, u * u * v
    return xp.reshape(
        xp.stack([p[1] + made - (p[0] + 1) * u + d * laplace(u), p[0] * u - made + d * laplace(v)]), z.shape
    )  # fmt: skip


X, Y = np.meshgrid(np.arange(SIDE) / SIDE, np.arange(SIDE) / SIDE, indexing="ij")
STARS = np.array([
    *(3, 3, -1, -3, 2, -2, 2), *(3, -3, 2, 0, 0, -4, 4), *(0, 0, 0, 0, 0, 1.75, -1.5), *(0, 0, 0, -1.25, 1, 0, 0),
], float)  # fmt: skip
RATES = np.array([1.71, 0.43, 8.32, 0.0007, 8.75, 10.03, 0.035, 1.12, 1.745, 280.0, 0.69, 1.81])

SPOTS = np.stack([22 * Y * (1 - Y) ** 1.5, 27 * X * (1 - X) ** 1.5]).ravel()
DARK = np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057])

# fmt: off
#                equations     parameters                      beginning                  end       method   rtol  atol
PROBLEMS = {
    "predators":   (predators,   np.array([1.5, 1.0, 1.0, 3.0]), np.array([1.0, 1.0]),      10.0,     "Tsit5", 1e-6, 1e-6),
    "pleiades":    (pleiades,    np.arange(1.0, 8.0),            STARS,                     1.0,      "Tsit5", 1e-6, 1e-6),
    "robertson":   (robertson,   np.array([0.04, 3e7, 1e4]),     np.array([1.0, 0.0, 0.0]), 1e4,      "Radau", 1e-6, 1e-10),
    "van der pol": (van_der_pol, np.array([1000.0]),             np.array([2.0, 0.0]),      700.0,    "Radau", 1e-6, 1e-8),
    "hires":       (hires,       RATES,                          DARK,                      321.8122, "Radau", 1e-6, 1e-8),
    "brusselator": (brusselator, np.array([3.4, 1.0, 0.02]),     SPOTS,                     1.0,      "BDF",   1e-4, 1e-6),
    "brusselator, explicit": (brusselator, np.array([3.4, 1.0, 0.02]), SPOTS,               1.0,      "Tsit5", 1e-4, 1e-6),
}
# fmt: on


def weights(n):
    return 1.0 + np.arange(n) / n


def value_of(name, **how):
    """The value as a function of all parameters."""
    equations, _, y0, end, method, rtol, atol = PROBLEMS[name]
    how = {"method": method, "rtol": rtol, "atol": atol} | how

    def value(p):
        y = tg.integrate.solve_ivp(
            lambda t, y: equations(np, t, y, p),
            (0, end),
            y0,
            t_eval=[end],
            **how,
        ).y
        return np.sum(weights(len(y0)) * y[:, 0])  # fmt: skip

    return value


def ours(name):
    """Steps by a program of their own, which is made at the first call, in an ordinary function."""
    both, p = tg.value_and_grad(value_of(name, compile=True)), PROBLEMS[name][1]
    return lambda: both(p)


def whole(name):
    """All of it as one program, as under `jax.jit`."""
    both, p = tg.compile(tg.value_and_grad(value_of(name))), PROBLEMS[name][1]
    return lambda: both(p)


def differences(name, tighter=1.0, step=1e-4):
    """SciPy's solution and central differences by each parameter; SciPy gets no Jacobian either."""
    equations, p, y0, end, method, rtol, atol = PROBLEMS[name]
    method = "RK45" if method == "Tsit5" else method

    def value(p):
        y = scipy.integrate.solve_ivp(
            lambda t, y: equations(np, t, y, p), (0, end), y0, method, [end], rtol=rtol * tighter, atol=atol * tighter
        ).y  # fmt: skip
        return weights(len(y0)) @ y[:, 0]

    def run():
        moves = step * np.diag(p)
        return value(p), np.array([(value(p + d) - value(p - d)) for d in moves]) / (2 * step * p)

    return run


@cache
def reference(name):
    """Value and gradient at tolerances of 1e-12."""
    _, p, _, _, method, _, _ = PROBLEMS[name]
    method = "Radau" if method == "Radau" else "DOP853"
    value = value_of(name, method=method, rtol=1e-12, atol=1e-14)
    return tg.compile(tg.value_and_grad(value))(p)


def diffrax(name, forward=False):
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    equations, p, y0, end, method, rtol, atol = PROBLEMS[name]
    stiff = diffrax.Kvaerno4() if forward else diffrax.Kvaerno5()
    solver = diffrax.Tsit5() if method == "Tsit5" else stiff
    adjoint = diffrax.ForwardMode() if forward else diffrax.RecursiveCheckpointAdjoint()

    def value(p):
        y = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: equations(jnp, t, y, p)), solver, 0.0, end, None, jnp.asarray(y0), args=p, max_steps=16384,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol), adjoint=adjoint,
        ).ys[-1]  # fmt: skip
        return jnp.sum(weights(len(y0)) * y)

    both = jax.jit((lambda p: (value(p), jax.jacfwd(value)(p))) if forward else jax.value_and_grad(value))  # fmt: skip
    parameters = jnp.asarray(p)

    def run():
        y, g = both(parameters)
        return float(y), np.asarray(g)

    return run


CONTESTANTS = {
    "tapegrad": ours,
    "tapegrad, one program": whole,
    "scipy, differences": differences,
    "diffrax": diffrax,
    "diffrax, forward": partial(diffrax, forward=True),
}


@pytest.mark.parametrize("contestant", CONTESTANTS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_value_and_gradient(benchmark, name, contestant):
    if "diffrax" in contestant and util.find_spec("diffrax") is None:
        pytest.skip("diffrax is not installed")
    if contestant == "tapegrad, one program" and PROBLEMS[name][4] == "BDF":
        pytest.skip("programs hold BDF's steps of up to 100 unknowns")
    run = CONTESTANTS[contestant](name)
    y, g = run()
    (expected, slopes), p = reference(name), PROBLEMS[name][1]
    by_differences = contestant == "scipy, differences"
    np.testing.assert_allclose(y, expected, rtol=5e-3 if by_differences else 1e-4)
    size, tolerance = np.abs(slopes * p).max(), 0.05 if by_differences else 1e-3
    np.testing.assert_allclose(g * p, slopes * p, rtol=0, atol=tolerance * size)
    benchmark.group = name
    benchmark(run)
