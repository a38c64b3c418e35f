"""Nine programs for the program form, each as array text, as scalar loops and, where JAX's users write it, in JAX.

Stencils (one in place), a triangular solve, a softmax of rows, shortest paths, a factorisation, a predator-prey orbit, and bodies that
attract each other. Every one returns a sum of squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

# ------------------------------------------------------------------------------------------------ array text


def smoothing(a0, b0, steps):
    a, b = a0.copy(), b0.copy()
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (
            a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
        )
        a[1:-1, 1:-1] = 0.2 * (
            b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1]
        )
    return np.sum(a * a)


def growth(u0, steps):
    u = u0.copy()
    for _ in range(steps):
        c = u[1:-1, 1:-1]
        around = u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1] - 4.0 * c
        u[1:-1, 1:-1] = c + 0.1 * around + 0.05 * c * (1.0 - c)
    return np.sum(u * u)


def substitution(l, b):
    x = np.zeros(b.size)
    for i in range(b.size):
        x[i] = (b[i] - np.sum(l[i, :i] * x[:i])) / l[i, i]
    return np.sum(x * x)


def softmax(x):
    y = np.empty(x.shape)
    for i in range(x.shape[0]):
        e = np.exp(x[i] - np.max(x[i]))
        y[i] = e / np.sum(e)
    return np.sum(y * y)


def shortest_paths(d0):
    d = d0.copy()
    for k in range(d.shape[0]):
        d[:] = np.minimum(d, d[:, k][:, None] + d[k])
    return np.sum(d * d)


def factors(a0):
    a = a0.copy()
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] = (a[i, j] - np.sum(a[i, :j] * a[:j, j])) / a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= np.sum(a[i, :i] * a[:i, j])
    return np.sum(a * a)


def bodies(x0, v0, mass, steps):
    x, v = x0.copy(), v0.copy()
    for _ in range(steps):
        d = x[0] - x[0][:, None]
        e = x[1] - x[1][:, None]
        r = d * d + e * e + 0.01
        w = mass / (r * np.sqrt(r))
        v[0] += 0.01 * np.sum(d * w, axis=1)
        v[1] += 0.01 * np.sum(e * w, axis=1)
        x += 0.01 * v
    return np.sum(x * x) + np.sum(v * v)


# ------------------------------------------------------------------------------------------------ scalar loops


def smoothing_loops(a0, b0, steps):
    n, m = a0.shape
    a, b = a0.copy(), b0.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = 0.2 * (b[i, j] + b[i, j - 1] + b[i, j + 1] + b[i + 1, j] + b[i - 1, j])
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += a[i, j] * a[i, j]
    return total


def growth_loops(u0, steps):
    n, m = u0.shape
    u, w = u0.copy(), u0.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                c = u[i, j]
                around = u[i, j - 1] + u[i, j + 1] + u[i + 1, j] + u[i - 1, j] - 4.0 * c
                w[i, j] = c + 0.1 * around + 0.05 * c * (1.0 - c)
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] = w[i, j]
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += u[i, j] * u[i, j]
    return total


def substitution_loops(l, b):
    x = np.zeros(b.size)
    total = 0.0
    for i in range(b.size):
        s = b[i]
        for j in range(i):
            s -= l[i, j] * x[j]
        x[i] = s / l[i, i]
        total += x[i] * x[i]
    return total


def softmax_loops(x):
    n, m = x.shape
    y = np.empty((n, m))
    total = 0.0
    for i in range(n):
        top = x[i, 0]
        for j in range(1, m):
            top = max(top, x[i, j])
        s = 0.0
        for j in range(m):
            y[i, j] = math.exp(x[i, j] - top)
            s += y[i, j]
        for j in range(m):
            y[i, j] = y[i, j] / s
            total += y[i, j] * y[i, j]
    return total


def shortest_paths_loops(d0):
    n = d0.shape[0]
    d = d0.copy()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += d[i, j] * d[i, j]
    return total


def factors_loops(a0):
    n = a0.shape[0]
    a = a0.copy()
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[k, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            for k in range(i):
                a[i, j] -= a[i, k] * a[k, j]
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += a[i, j] * a[i, j]
    return total


def orbit(p, steps):
    """Runge and Kutta's rule for predators and prey."""
    u, v, h, cost = p[4] * 1.0, p[5] * 1.0, 0.001, 0.0
    for _ in range(steps):
        a1, b1 = p[0] * u - p[1] * u * v, p[2] * u * v - p[3] * v
        x, y = u + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y
        x, y = u + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y
        x, y = u + h * a3, v + h * b3
        a4, b4 = p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y
        u += h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
        v += h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
        cost += u * u + v * v
    return cost


def bodies_loops(x0, v0, mass, steps):
    n = mass.size
    x, v = x0.copy(), v0.copy()
    for _ in range(steps):
        for i in range(n):
            for j in range(n):
                d = x[0, j] - x[0, i]
                e = x[1, j] - x[1, i]
                r = d * d + e * e + 0.01
                w = 0.01 * mass[j] / (r * math.sqrt(r))
                v[0, i] += d * w
                v[1, i] += e * w
        for c in range(2):
            for i in range(n):
                x[c, i] += 0.01 * v[c, i]
    total = 0.0
    for c in range(2):
        for i in range(n):
            total += x[c, i] * x[c, i] + v[c, i] * v[c, i]
    return total


MODELS: dict[str, tuple[Callable[..., Any], str]] = {
    f.__name__: (f, f.__name__.removesuffix("_loops"))
    for f in (
        smoothing, smoothing_loops, growth, growth_loops, substitution, substitution_loops, softmax, softmax_loops, shortest_paths,
        shortest_paths_loops, factors, factors_loops, orbit, bodies, bodies_loops,
    )
}  # fmt: skip
"""Each program's function, and the name of what it computes."""


def inputs(small: bool = True) -> dict[str, tuple[Any, ...]]:
    """Arguments by what is computed: lengths for a test, or such that a call takes about a millisecond."""
    r = np.random.default_rng(0)

    def size(a: int, b: int) -> int:
        return a if small else b

    n, k = size(9, 90), size(3, 40)
    grid = r.random((n, n + 1))
    m = size(8, 80)
    lower = np.tril(r.random((m, m))) + 2.0 * m * np.eye(m)
    b = size(5, 50)
    return {
        "smoothing": (grid, r.random((n, n + 1)), k),
        "growth": (grid, k),
        "substitution": (lower, r.random(m)),
        "softmax": (r.normal(size=(size(7, 200), size(9, 300))),),
        "shortest_paths": (r.random((m, m)),),
        "factors": (r.random((m, m)) + m * np.eye(m),),
        "orbit": (np.array([1.5, 1.0, 1.0, 3.0, 1.0, 1.0]), size(20, 5000)),
        "bodies": (r.normal(size=(2, b)), r.normal(size=(2, b)), r.random(b), size(2, 10)),
    }


def jax_models() -> dict[str, Callable[..., Any]]:
    import jax.numpy as jnp
    from jax import lax

    def cross(a):
        return 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])

    def smoothing(a, b, steps):
        def step(ab, _):
            a, b = ab
            b = b.at[1:-1, 1:-1].set(cross(a))
            return (a.at[1:-1, 1:-1].set(cross(b)), b), None

        return jnp.sum(lax.scan(step, (a, b), None, length=steps)[0][0] ** 2)

    def growth(u, steps):
        def step(u, _):
            c = u[1:-1, 1:-1]
            new = c + 0.1 * (5.0 * cross(u) - 5.0 * c) + 0.05 * c * (1.0 - c)
            return u.at[1:-1, 1:-1].set(new), None

        return jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)

    def substitution(l, b):
        def step(x, i):
            return x.at[i].set((b[i] - l[i] @ x) / l[i, i]), None

        return jnp.sum(lax.scan(step, jnp.zeros(b.size), jnp.arange(b.size))[0] ** 2)

    def softmax(x):
        e = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
        return jnp.sum((e / jnp.sum(e, axis=1, keepdims=True)) ** 2)

    def shortest_paths(d):
        def step(d, k):
            return jnp.minimum(d, d[:, k][:, None] + d[k]), None

        return jnp.sum(lax.scan(step, d, jnp.arange(d.shape[0]))[0] ** 2)

    def factors(a):
        rows = jnp.arange(a.shape[0])

        def step(a, k):
            column = jnp.where(rows > k, a[:, k] / a[k, k], 0.0)
            a = a - column[:, None] * jnp.where(rows > k, a[k], 0.0)
            return a.at[:, k].set(jnp.where(rows > k, column, a[:, k])), None

        return jnp.sum(lax.scan(step, a, rows)[0] ** 2)

    def orbit(p, steps):
        def slope(u, v):
            return p[0] * u - p[1] * u * v, p[2] * u * v - p[3] * v

        def step(carry, _):
            u, v, cost = carry
            h = 0.001
            a1, b1 = slope(u, v)
            a2, b2 = slope(u + 0.5 * h * a1, v + 0.5 * h * b1)
            a3, b3 = slope(u + 0.5 * h * a2, v + 0.5 * h * b2)
            a4, b4 = slope(u + h * a3, v + h * b3)
            u = u + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
            v = v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
            return (u, v, cost + u * u + v * v), None

        return lax.scan(step, (p[4], p[5], 0.0), None, length=steps)[0][2]

    def bodies(x, v, mass, steps):
        def step(xv, _):
            x, v = xv
            d = x[:, None, :] - x[:, :, None]
            r = jnp.sum(d * d, axis=0) + 0.01
            v = v + 0.01 * jnp.sum(d * (mass / (r * jnp.sqrt(r))), axis=2)
            return (x + 0.01 * v, v), None

        x, v = lax.scan(step, (x, v), None, length=steps)[0]
        return jnp.sum(x * x) + jnp.sum(v * v)

    return {
        f.__name__: f
        for f in (smoothing, growth, substitution, softmax, shortest_paths, factors, orbit, bodies)
    }
