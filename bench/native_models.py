"""Numerical models as people write them for Numba, and adjoints of some by hand.

Loops over time and space, adaptive steps, dynamic programs: what array libraries cannot take. `MODELS` maps a name to (function, arguments
of a size, positions to differentiate by); `BY_HAND` to a compiled function that returns the gradients of those arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

fast = njit(error_model="numpy")


@njit(error_model="numpy", fastmath={"reassoc", "nsz"})
def plus(total, term):
    """A sum whose order is free, as in generated code: several elements at once."""
    return total + term


def rosenbrock(x):
    s = 0.0
    for i in range(x.size - 1):
        s += 100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return s


@fast
def predator_prey(u, v, p):
    return p[0] * u - p[1] * u * v, p[2] * u * v - p[3] * v


def lotka_volterra(p, n, h):
    """Runge-Kutta 4, and a running cost."""
    u, v, cost = 1.0, 0.7, 0.0
    for _ in range(n):
        a1, b1 = predator_prey(u, v, p)
        a2, b2 = predator_prey(u + 0.5 * h * a1, v + 0.5 * h * b1, p)
        a3, b3 = predator_prey(u + 0.5 * h * a2, v + 0.5 * h * b2, p)
        a4, b4 = predator_prey(u + h * a3, v + h * b3, p)
        u = u + h / 6.0 * (a1 + 2 * a2 + 2 * a3 + a4)
        v = v + h / 6.0 * (b1 + 2 * b2 + 2 * b3 + b4)
        cost += (u - 1.0) ** 2 * h
    return cost


@fast
def van_der_pol(y, mu, dy):
    dy[0] = y[1]
    dy[1] = mu * (1 - y[0] * y[0]) * y[1] - y[0]


def adaptive(y0, mu, end, tolerance):
    """Bogacki and Shampine's 3(2) pair; the step follows the error."""
    n = y0.size
    y = y0.copy()
    k1, k2, k3, k4 = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    trial, new = np.empty(n), np.empty(n)
    t, h = 0.0, 0.01
    van_der_pol(y, mu, k1)
    while t < end:
        if t + h > end:
            h = end - t
        for i in range(n):
            trial[i] = y[i] + 0.5 * h * k1[i]
        van_der_pol(trial, mu, k2)
        for i in range(n):
            trial[i] = y[i] + 0.75 * h * k2[i]
        van_der_pol(trial, mu, k3)
        for i in range(n):
            new[i] = y[i] + h * (2.0 / 9.0 * k1[i] + 1.0 / 3.0 * k2[i] + 4.0 / 9.0 * k3[i])
        van_der_pol(new, mu, k4)
        error = 0.0
        for i in range(n):
            e = h * (-5.0 / 72.0 * k1[i] + k2[i] / 12.0 + k3[i] / 9.0 - k4[i] / 8.0)
            error = error + e * e
        error = math.sqrt(error / n)
        factor = 0.9 * (tolerance / (error + 1e-300)) ** (1.0 / 3.0)
        factor = min(max(factor, 0.2), 5.0)
        if error <= tolerance:
            t = t + h
            for i in range(n):
                y[i] = new[i]
                k1[i] = k4[i]
        h = h * factor
    return y[0] * y[0] + y[1]


def heat(u0, kappa, steps):
    n, m = u0.shape
    u, w = u0.copy(), u0.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                w[i, j] = u[i, j] + kappa * (
                    u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]
                )
        u, w = w, u
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += u[i, j] ** 2
    return s


def burgers(u0, nu, steps):
    """Upwind differences: the branch follows the sign of the flow."""
    n, m = u0.shape
    u, w = u0.copy(), u0.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                c = u[i, j]
                if c > 0.0:
                    dx = c - u[i - 1, j]
                else:
                    dx = u[i + 1, j] - c
                w[i, j] = (
                    c
                    - 0.1 * c * dx
                    + nu * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * c)
                )
        u, w = w, u
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += u[i, j] ** 2
    return s


def n_body(x, v, mass, steps, dt):
    n = x.shape[0]
    q, p = x.copy(), v.copy()
    a = np.zeros((n, 3))
    for _ in range(steps):
        for i in range(n):
            for k in range(3):
                a[i, k] = 0.0
            for j in range(n):
                if i != j:
                    dx = q[j, 0] - q[i, 0]
                    dy = q[j, 1] - q[i, 1]
                    dz = q[j, 2] - q[i, 2]
                    r2 = dx * dx + dy * dy + dz * dz + 0.01
                    pull = mass[j] / (r2 * math.sqrt(r2))
                    a[i, 0] += dx * pull
                    a[i, 1] += dy * pull
                    a[i, 2] += dz * pull
        for i in range(n):
            for k in range(3):
                p[i, k] = p[i, k] + dt * a[i, k]
                q[i, k] = q[i, k] + dt * p[i, k]
    e = 0.0
    for i in range(n):
        e += 0.5 * mass[i] * (p[i, 0] ** 2 + p[i, 1] ** 2 + p[i, 2] ** 2) + q[i, 0]
    return e


def mixture(alpha, mu, logs, points):
    """Log-likelihood of a Gaussian mixture with diagonal covariances."""
    n, d = points.shape
    parts = alpha.size
    lp = np.empty(parts)
    total = 0.0
    for i in range(n):
        top = -1e300
        for k in range(parts):
            s = alpha[k]
            for j in range(d):
                z = (points[i, j] - mu[k, j]) * math.exp(-logs[k, j])
                s -= 0.5 * z * z + logs[k, j]
            lp[k] = s
            if s > top:
                top = s
        acc = 0.0
        for k in range(parts):
            acc += math.exp(lp[k] - top)
        total += top + math.log(acc)
    return total


def soft_dtw(x, y, gamma):
    n, m = x.size, y.size
    r = np.empty((n + 1, m + 1))
    r[:] = 1e10
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            d = x[i - 1] - y[j - 1]
            a = -r[i - 1, j - 1] / gamma
            b = -r[i - 1, j] / gamma
            c = -r[i, j - 1] / gamma
            top = max(max(a, b), c)
            z = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = d * d - gamma * (math.log(z) + top)
    return r[n, m]


def inputs(small: bool = True) -> dict[str, tuple[Any, ...]]:
    """Arguments by model; `small` for a test."""
    g = np.random.default_rng(0)
    grid = g.normal(size=(8, 9) if small else (200, 200))
    steps = 5 if small else 100
    bodies = 5 if small else 50
    parts, d, n = (4, 3, 6) if small else (10, 8, 2000)
    return {
        "rosenbrock": (g.normal(size=10 if small else 1_000_000),),
        "lotka_volterra": (np.array([1.1, 0.4, 0.1, 0.4]), 50 if small else 100_000, 1e-4),
        "adaptive": (np.array([2.0, 0.1]), 1.5, 2.0 if small else 200.0, 1e-4 if small else 1e-6),
        "heat": (grid, 0.1, steps),
        "burgers": (grid, 0.1, steps),
        "n_body": (g.normal(size=(bodies, 3)), g.normal(size=(bodies, 3)), np.abs(g.normal(size=bodies)), 3 if small else 100, 0.01),
        "mixture": (g.normal(size=parts), g.normal(size=(parts, d)), 0.1 * g.normal(size=(parts, d)), g.normal(size=(n, d))),
        "soft_dtw": (g.normal(size=6 if small else 500), g.normal(size=7 if small else 500), 1.0),
    }  # fmt: skip


MODELS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rosenbrock": (rosenbrock, (0,)),
    "lotka_volterra": (lotka_volterra, (0,)),
    "adaptive": (adaptive, (0, 1)),
    "heat": (heat, (0, 1)),
    "burgers": (burgers, (0, 1)),
    "n_body": (n_body, (0, 1, 2)),
    "mixture": (mixture, (0, 1, 2)),
    "soft_dtw": (soft_dtw, (0, 1)),
}


# --------------------------------------------------------------------------------------------- by hand


@fast
def rosenbrock_by_hand(x):
    g = np.zeros_like(x)
    for i in range(x.size - 1):
        a = x[i + 1] - x[i] * x[i]
        g[i + 1] += 200 * a
        g[i] -= 400 * a * x[i] + 2 * (1 - x[i])
    return (g,)


@fast
def adaptive_by_hand(y0, mu, end, tolerance):
    """State, first slope, time and step of every trial are kept; the stages are computed again."""
    n = y0.size
    y, k1, k2, k3, k4 = y0.copy(), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    trial, middle, new = np.empty(n), np.empty(n), np.empty(n)
    kept, passes = np.empty((1024, 2 * n + 2)), 0
    t, h = 0.0, 0.01
    van_der_pol(y, mu, k1)
    while t < end:
        if passes == kept.shape[0]:
            longer = np.empty((2 * passes, 2 * n + 2))
            longer[:passes] = kept
            kept = longer
        for i in range(n):
            kept[passes, i], kept[passes, n + i] = y[i], k1[i]
        kept[passes, 2 * n], kept[passes, 2 * n + 1] = t, h
        passes += 1
        error, h = trial_step(y, mu, t, h, end, k1, trial, k2, middle, k3, new, k4)
        factor = 0.9 * (tolerance / (error + 1e-300)) ** (1.0 / 3.0)
        if error <= tolerance:
            t = t + h
            for i in range(n):
                y[i], k1[i] = new[i], k4[i]
        h = h * min(max(factor, 0.2), 5.0)
    yb, k1b, k2b, k3b = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    k4b, newb, stage = np.zeros(n), np.zeros(n), np.zeros(n)
    yb[0], yb[1] = 2.0 * y[0], 1.0
    hb, tb, mub = 0.0, 0.0, 0.0
    for p in range(passes - 1, -1, -1):
        for i in range(n):
            y[i], k1[i] = kept[p, i], kept[p, n + i]
        t, before = kept[p, 2 * n], kept[p, 2 * n + 1]
        error, h = trial_step(y, mu, t, before, end, k1, trial, k2, middle, k3, new, k4)
        factor = 0.9 * (tolerance / (error + 1e-300)) ** (1.0 / 3.0)
        clipped = min(max(factor, 0.2), 5.0)
        factorb = hb * h if clipped == factor else 0.0
        hb *= clipped
        if error <= tolerance:
            hb += tb
            for i in range(n):
                newb[i], k4b[i] = yb[i], k1b[i]
                yb[i], k1b[i] = 0.0, 0.0
        else:
            for i in range(n):
                newb[i], k4b[i] = 0.0, 0.0
        scale = -factorb * factor / (3.0 * (error + 1e-300)) / (n * error)
        for i in range(n):
            along = -5.0 / 72.0 * k1[i] + k2[i] / 12.0 + k3[i] / 9.0 - k4[i] / 8.0
            hb += scale * h * along * along
            eb = scale * h * along * h
            k1b[i] -= 5.0 / 72.0 * eb
            k2b[i] = eb / 12.0
            k3b[i] = eb / 9.0
            k4b[i] -= eb / 8.0
        mub += van_der_pol_back(new, mu, k4b, newb)
        for i in range(n):
            g = newb[i]
            yb[i] += g
            hb += g * (2.0 / 9.0 * k1[i] + 1.0 / 3.0 * k2[i] + 4.0 / 9.0 * k3[i])
            k1b[i] += 2.0 / 9.0 * h * g
            k2b[i] += 1.0 / 3.0 * h * g
            k3b[i] += 4.0 / 9.0 * h * g
            stage[i] = 0.0
        mub += van_der_pol_back(middle, mu, k3b, stage)
        for i in range(n):
            yb[i] += stage[i]
            hb += 0.75 * stage[i] * k2[i]
            k2b[i] += 0.75 * h * stage[i]
            stage[i] = 0.0
        mub += van_der_pol_back(trial, mu, k2b, stage)
        for i in range(n):
            yb[i] += stage[i]
            hb += 0.5 * stage[i] * k1[i]
            k1b[i] += 0.5 * h * stage[i]
        if t + before > end:
            tb -= hb
            hb = 0.0
    mub += van_der_pol_back(y0, mu, k1b, yb)
    return yb, mub


@fast
def trial_step(y, mu, t, h, end, k1, trial, k2, middle, k3, new, k4):
    """Error and length of a trial, whose stages go to the arrays."""
    n = y.size
    if t + h > end:
        h = end - t
    for i in range(n):
        trial[i] = y[i] + 0.5 * h * k1[i]
    van_der_pol(trial, mu, k2)
    for i in range(n):
        middle[i] = y[i] + 0.75 * h * k2[i]
    van_der_pol(middle, mu, k3)
    for i in range(n):
        new[i] = y[i] + h * (2.0 / 9.0 * k1[i] + 1.0 / 3.0 * k2[i] + 4.0 / 9.0 * k3[i])
    van_der_pol(new, mu, k4)
    error = 0.0
    for i in range(n):
        e = h * (-5.0 / 72.0 * k1[i] + k2[i] / 12.0 + k3[i] / 9.0 - k4[i] / 8.0)
        error = error + e * e
    return math.sqrt(error / n), h


@fast
def van_der_pol_back(y, mu, dyb, yb):
    """Adds to the cotangent of y; returns that of mu."""
    yb[0] -= dyb[1] * (2.0 * mu * y[0] * y[1] + 1.0)
    yb[1] += dyb[0] + dyb[1] * mu * (1.0 - y[0] * y[0])
    return dyb[1] * (1.0 - y[0] * y[0]) * y[1]


@fast
def heat_by_hand(u0, kappa, steps):
    """All states are kept; the stencil is its own transpose, inside a border of zeros."""
    n, m = u0.shape
    states = np.empty((steps + 1, n, m))
    states[0] = u0
    for t in range(steps):
        u, w = states[t], states[t + 1]
        keep_border(u0, w)
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                w[i, j] = u[i, j] + kappa * (
                    u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]
                )
    bar = 2.0 * states[steps]
    border = bar.copy()
    border[1:-1, 1:-1] = 0.0
    keep_border(np.zeros((n, m)), bar)
    new = np.zeros((n, m))
    kappa_bar = 0.0
    for t in range(steps - 1, -1, -1):
        u = states[t]
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                kappa_bar = plus(
                    kappa_bar,
                    bar[i, j]
                    * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]),
                )
                new[i, j] = bar[i, j] + kappa * (
                    bar[i + 1, j] + bar[i - 1, j] + bar[i, j + 1] + bar[i, j - 1] - 4.0 * bar[i, j]
                )
        for i in range(1, n - 1):
            border[i, 0] += kappa * bar[i, 1]
            border[i, m - 1] += kappa * bar[i, m - 2]
        for j in range(1, m - 1):
            border[0, j] += kappa * bar[1, j]
            border[n - 1, j] += kappa * bar[n - 2, j]
        bar, new = new, bar
    return bar + border, kappa_bar


@fast
def keep_border(given, w):
    n, m = w.shape
    for i in range(n):
        w[i, 0], w[i, m - 1] = given[i, 0], given[i, m - 1]
    for j in range(m):
        w[0, j], w[n - 1, j] = given[0, j], given[n - 1, j]


@fast
def burgers_by_hand(u0, nu, steps):
    """All states are kept; what goes to a neighbour is computed for a row and then gathered."""
    n, m = u0.shape
    states = np.empty((steps + 1, n, m))
    states[0] = u0
    for t in range(steps):
        u, w = states[t], states[t + 1]
        keep_border(u0, w)
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                c = u[i, j]
                dx = c - u[i - 1, j] if c > 0.0 else u[i + 1, j] - c
                w[i, j] = (
                    c
                    - 0.1 * c * dx
                    + nu * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * c)
                )
    bar = 2.0 * states[steps]
    new = np.zeros((n, m))
    own, up, down = np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, m))
    border = bar.copy()
    border[1:-1, 1:-1] = 0.0
    keep_border(new, bar)
    nu_bar = 0.0
    for t in range(steps - 1, -1, -1):
        u = states[t]
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                c, above, below, g = u[i, j], u[i - 1, j], u[i + 1, j], bar[i, j]
                nu_bar = plus(nu_bar, g * (below + above + u[i, j + 1] + u[i, j - 1] - 4.0 * c))
                right = c > 0.0
                own[i, j] = g * (
                    1.0 - 4.0 * nu - (0.2 * c - 0.1 * above if right else 0.1 * below - 0.2 * c)
                )
                up[i, j] = g * (nu + (0.1 * c if right else 0.0))
                down[i, j] = g * (nu - (0.0 if right else 0.1 * c))
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                new[i, j] = (
                    own[i, j] + up[i + 1, j] + down[i - 1, j] + nu * (bar[i, j - 1] + bar[i, j + 1])
                )
        for i in range(1, n - 1):
            border[i, 0] += nu * bar[i, 1]
            border[i, m - 1] += nu * bar[i, m - 2]
        for j in range(1, m - 1):
            border[0, j] += up[1, j]
            border[n - 1, j] += down[n - 2, j]
        bar, new = new, bar
    return bar + border, nu_bar


@fast
def soft_dtw_by_hand(x, y, gamma):
    """Cuturi and Blondel (2017), algorithm 2: the weights of the soft minimum, backwards."""
    n, m = x.size, y.size
    r = np.full((n + 2, m + 2), 1e10)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a, b, c = -r[i - 1, j - 1] / gamma, -r[i - 1, j] / gamma, -r[i, j - 1] / gamma
            top = max(max(a, b), c)
            z = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = (x[i - 1] - y[j - 1]) ** 2 - gamma * (math.log(z) + top)
    d = np.zeros((n + 2, m + 2))
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            d[i, j] = (x[i - 1] - y[j - 1]) ** 2
    for i in range(1, n + 1):
        r[i, m + 1] = -1e10
    for j in range(1, m + 1):
        r[n + 1, j] = -1e10
    r[n + 1, m + 1] = r[n, m]
    e = np.zeros((n + 2, m + 2))
    e[n + 1, m + 1] = 1.0
    gx, gy = np.zeros(n), np.zeros(m)
    for i in range(n, 0, -1):
        for j in range(m, 0, -1):
            a = math.exp((r[i + 1, j] - r[i, j] - d[i + 1, j]) / gamma)
            b = math.exp((r[i, j + 1] - r[i, j] - d[i, j + 1]) / gamma)
            c = math.exp((r[i + 1, j + 1] - r[i, j] - d[i + 1, j + 1]) / gamma)
            e[i, j] = e[i + 1, j] * a + e[i, j + 1] * b + e[i + 1, j + 1] * c
            w = 2 * e[i, j] * (x[i - 1] - y[j - 1])
            gx[i - 1] += w
            gy[j - 1] -= w
    return gx, gy


@fast
def lotka_volterra_by_hand(p, n, h):
    """The state of every step is kept; the stages are computed again."""
    kept = np.empty((n, 2))
    u, v = 1.0, 0.7
    for k in range(n):
        kept[k, 0], kept[k, 1] = u, v
        a1, b1 = predator_prey(u, v, p)
        a2, b2 = predator_prey(u + 0.5 * h * a1, v + 0.5 * h * b1, p)
        a3, b3 = predator_prey(u + 0.5 * h * a2, v + 0.5 * h * b2, p)
        a4, b4 = predator_prey(u + h * a3, v + h * b3, p)
        u = u + h / 6.0 * (a1 + 2 * a2 + 2 * a3 + a4)
        v = v + h / 6.0 * (b1 + 2 * b2 + 2 * b3 + b4)
    g0, g1, g2, g3 = 0.0, 0.0, 0.0, 0.0
    ub, vb = 0.0, 0.0
    for k in range(n - 1, -1, -1):
        after = u
        u, v = kept[k, 0], kept[k, 1]
        a1, b1 = predator_prey(u, v, p)
        u2, v2 = u + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = predator_prey(u2, v2, p)
        u3, v3 = u + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = predator_prey(u3, v3, p)
        u4, v4 = u + h * a3, v + h * b3
        ub += 2.0 * (after - 1.0) * h
        # Cotangents of the slopes, last stage first: those of the sum, and what the stage behind passes on.
        ab, bb = h / 6.0 * ub, h / 6.0 * vb
        ub_new, vb_new, xb, yb = ub, vb, 0.0, 0.0
        for stage in range(4):
            if stage == 0:
                x, y, ka, kb = u4, v4, ab, bb
            elif stage == 1:
                x, y, ka, kb = u3, v3, 2 * ab + h * xb, 2 * bb + h * yb
            elif stage == 2:
                x, y, ka, kb = u2, v2, 2 * ab + 0.5 * h * xb, 2 * bb + 0.5 * h * yb
            else:
                x, y, ka, kb = u, v, ab + 0.5 * h * xb, bb + 0.5 * h * yb
            g0 += ka * x
            g1 -= ka * x * y
            g2 += kb * x * y
            g3 -= kb * y
            xb = ka * (p[0] - p[1] * y) + kb * p[2] * y
            yb = kb * (p[2] * x - p[3]) - ka * p[1] * x
            ub_new += xb
            vb_new += yb
        ub, vb = ub_new, vb_new
    return (np.array([g0, g1, g2, g3]),)


@fast
def n_body_by_hand(x, v, mass, steps, dt):
    """Positions of every step are kept; velocities need not be."""
    n = x.shape[0]
    q, p, a = x.copy(), v.copy(), np.zeros((n, 3))
    kept = np.empty((steps, n, 3))
    for t in range(steps):
        kept[t] = q
        for i in range(n):
            ax, ay, az = 0.0, 0.0, 0.0
            for j in range(n):
                if i != j:
                    dx, dy, dz = q[j, 0] - q[i, 0], q[j, 1] - q[i, 1], q[j, 2] - q[i, 2]
                    r2 = dx * dx + dy * dy + dz * dz + 0.01
                    pull = mass[j] / (r2 * math.sqrt(r2))
                    ax += dx * pull
                    ay += dy * pull
                    az += dz * pull
            a[i, 0], a[i, 1], a[i, 2] = ax, ay, az
        p += dt * a
        q += dt * p
    qb, pb, mb = np.zeros((n, 3)), np.empty((n, 3)), np.empty(n)
    qb[:, 0] = 1.0
    for i in range(n):
        mb[i] = 0.5 * (p[i, 0] ** 2 + p[i, 1] ** 2 + p[i, 2] ** 2)
        for k in range(3):
            pb[i, k] = mass[i] * p[i, k]
    for t in range(steps - 1, -1, -1):
        q = kept[t]
        pb += dt * qb
        for i in range(n):
            gx, gy, gz = dt * pb[i, 0], dt * pb[i, 1], dt * pb[i, 2]
            for j in range(n):
                if i != j:
                    dx, dy, dz = q[j, 0] - q[i, 0], q[j, 1] - q[i, 1], q[j, 2] - q[i, 2]
                    r2 = dx * dx + dy * dy + dz * dz + 0.01
                    per_mass = 1.0 / (r2 * math.sqrt(r2))
                    pull = mass[j] * per_mass
                    along = gx * dx + gy * dy + gz * dz
                    mb[j] += along * per_mass
                    w = -3.0 * along * pull / r2
                    bx, by, bz = gx * pull + w * dx, gy * pull + w * dy, gz * pull + w * dz
                    qb[j, 0] += bx
                    qb[j, 1] += by
                    qb[j, 2] += bz
                    qb[i, 0] -= bx
                    qb[i, 1] -= by
                    qb[i, 2] -= bz
    return qb, pb, mb


@fast
def mixture_by_hand(alpha, mu, logs, points):
    """Weights of the parts at each point. Exponentials stand where the model has them: to take them out of the loops is another model."""
    n, d = points.shape
    parts = alpha.size
    lp = np.empty(parts)
    ga, gm, gl = np.zeros(parts), np.zeros((parts, d)), np.zeros((parts, d))
    for i in range(n):
        top = -1e300
        for k in range(parts):
            s = alpha[k]
            for j in range(d):
                z = (points[i, j] - mu[k, j]) * math.exp(-logs[k, j])
                s -= 0.5 * z * z + logs[k, j]
            lp[k] = s
            top = max(top, s)
        acc = 0.0
        for k in range(parts):
            lp[k] = math.exp(lp[k] - top)
            acc += lp[k]
        for k in range(parts):
            w = lp[k] / acc
            ga[k] += w
            for j in range(d):
                scale = math.exp(-logs[k, j])
                z = (points[i, j] - mu[k, j]) * scale
                gm[k, j] += w * z * scale
                gl[k, j] += w * (z * z - 1.0)
    return ga, gm, gl


BY_HAND = {
    "rosenbrock": rosenbrock_by_hand,
    "lotka_volterra": lotka_volterra_by_hand,
    "adaptive": adaptive_by_hand,
    "heat": heat_by_hand,
    "burgers": burgers_by_hand,
    "n_body": n_body_by_hand,
    "mixture": mixture_by_hand,
    "soft_dtw": soft_dtw_by_hand,
}


def operations(name: str, args: tuple[Any, ...]) -> int | None:
    """Operations on floats that a run of a model makes in its inner loops, counted by hand; None where values decide."""
    shape = np.shape(args[0])
    if name in ("heat", "burgers"):
        return {"heat": 7, "burgers": 11}[name] * args[2] * (shape[0] - 2) * (shape[1] - 2)
    if name == "n_body":
        return 18 * args[3] * shape[0] * (shape[0] - 1)
    counts = {
        "rosenbrock": lambda x: 8 * (x.size - 1),
        "lotka_volterra": lambda p, n, h: 68 * n,
        "mixture": lambda alpha, mu, logs, points: 8 * mu.size * len(points),
        "soft_dtw": lambda x, y, gamma: 21 * x.size * y.size,
    }
    return counts[name](*args) if name in counts else None
