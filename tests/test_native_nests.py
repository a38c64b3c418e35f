"""Stencils gathered in reverse: the same numbers as the loops they stand for, and those loops wherever the promise does not hold."""

import numpy as np
import pytest

import tapegrad as tg
from bench.native_models import burgers, heat, rosenbrock
from tapegrad.native import merging, nests


def advection(x, p, steps):
    """Unequal offsets, parameters in an array, a store that is shifted."""
    n = x.size
    u, w = x.copy(), x.copy()
    for _ in range(steps):
        for i in range(3, n - 2):
            w[i - 1] = p[0] * u[i - 3] * u[i + 1] - p[1] * np.sin(u[i]) + 0.5 * u[i + 2]
        u, w = w, u
    return np.sum(u * u)


def clipped(x, limit):
    """Branches that read elements of their own, and terms that are subtracted."""
    n, m = x.shape
    out = np.zeros((n, m))
    for i in range(1, n - 2):
        for j in range(2, m - 1):
            d = x[i, j] - x[i, j - 2]
            if d > limit:
                flux = d * x[i + 2, j + 1]
            elif d > 0.0:
                flux = d * d - x[i - 1, j]
            else:
                flux = 0.0
            out[i, j] = flux - 2.0 * x[i, j] * x[i, j + 1]
    return np.sum(out * out)


def columns(x, c):
    """Cotangents of a row that every row of another array adds to."""
    n, m = x.shape
    s = 0.0
    for i in range(n):
        for j in range(1, m):
            s += (c[j] - 2.0 * c[j - 1]) * x[i, j] ** 2
    return s


def layers(x, k):
    n, m, o = x.shape
    y = np.zeros((n, m, o))
    for a in range(n):
        for i in range(1, m - 1):
            for j in range(1, o - 1):
                y[a, i, j] = x[a, i - 1, j] * x[a, i, j + 1] + k * x[a, i + 1, j] * x[a, i, j - 1]
    return np.sum(y * y * y)


def around(x):
    """Indices that wrap around: counted from the end."""
    n, m = x.shape
    y = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i - 1, j] * x[i, j - 1]
    return np.sum(y * y)


def in_place(x, steps):
    """Two names of one array: every pass reads what the pass before it wrote."""
    n, m = x.shape
    u = x.copy()
    w = u
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                w[i, j] = 0.25 * u[i - 1, j] * u[i, j - 1] + 0.5 * u[i + 1, j] + 0.1 * u[i, j + 1]
    return np.sum(u * u)


def named(x):
    """The names that gathered loops use are taken."""
    column = 2.0
    s = 0.0
    for i in range(x.size - 1):
        s += column * x[i] * x[i + 1]
    return s


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """No loop is merged with its reverse: then there would be none to gather in."""
    monkeypatch.setattr(merging, "place", lambda nodes: -1)


G = np.random.default_rng(5)
CASES = {
    "rosenbrock": (rosenbrock, (G.normal(size=41),), (0,), True),
    "heat": (heat, (G.normal(size=(9, 14)), 0.1, 4), (0, 1), True),
    "burgers": (burgers, (G.normal(size=(9, 14)), 0.1, 4), (0, 1), True),
    "advection": (advection, (G.normal(size=37), np.array([0.3, 0.2]), 3), (0, 1), True),
    "clipped": (clipped, (G.normal(size=(11, 17)), 0.7), (0,), True),
    "columns": (columns, (G.normal(size=(7, 13)), G.normal(size=13)), (1,), True),
    "layers": (layers, (G.normal(size=(2, 7, 11)), 0.4), (0, 1), True),
    "around": (around, (G.normal(size=(6, 9)),), (0,), True),
    "in place": (in_place, (G.normal(size=(7, 8)), 2), (0,), True),
    "named": (named, (G.normal(size=30),), (0,), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gathered(name, monkeypatch):
    """The gradient is that of the loops as they come, and along a direction the difference quotient."""
    f, args, wanted, gathered = CASES[name]
    with monkeypatch.context() as patch:
        patch.setattr(nests, "widened", lambda source, *_: source)
        value, plain = tg.value_and_grad(tg.njit(f), wanted)(*args)
    # Small enough that several strips, and what is left of the last, take part.
    monkeypatch.setattr(nests, "_LEAST", 1)
    monkeypatch.setattr(nests, "_STRIP", 5)
    native = tg.njit(f)
    same, found = tg.value_and_grad(native, wanted)(*args)
    assert ("_nest_1(" in native.adjoint_source) == gathered
    assert same == value
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=np.shape(args[i])) for i in wanted]

    def at(t):
        moved = dict(
            zip(
                wanted,
                (args[i] + t * d for i, d in zip(wanted, directions, strict=True)),
                strict=True,
            )
        )
        return native(*(moved.get(i, a) for i, a in enumerate(args)))

    h = 1e-6  # no element crosses a kink
    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    along = sum(np.sum(d * g) for d, g in zip(directions, found, strict=True))
    np.testing.assert_allclose(along, slope, rtol=1e-6)


def test_short_loops_stay():
    """Below the least length the loop runs as it was, by the same compiled code."""
    gradient = tg.grad(tg.njit(rosenbrock))
    for n in (2, 3, 200, 300, 1300):
        x = G.normal(size=n)
        expected = np.zeros(n)
        expected[:-1] = -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
        expected[1:] += 200 * (x[1:] - x[:-1] ** 2)
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-12, atol=1e-12)


def test_bounds_checks_are_kept():
    """A function that asks for bounds checks gets them in its derivative, whose loops stay as they are."""
    checked = tg.njit(rosenbrock, boundscheck=True)
    tg.grad(checked)(G.normal(size=5))
    assert "_nest_" not in checked.adjoint_source


def test_second_derivatives():
    """They are derived from the adjoint as it comes."""
    x = G.normal(size=300)
    direction = G.normal(size=300)
    native = tg.njit(rosenbrock)
    h = 1e-6
    gradient = tg.grad(native)
    slope = (gradient(x + h * direction) - gradient(x - h * direction)) / (2 * h)
    np.testing.assert_allclose(tg.hvp(native)(x, direction), slope, rtol=1e-5, atol=1e-2)
