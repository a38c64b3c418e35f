"""Gradients through loops that add up terms, and through code behind them: by the generated adjoint and by whichever engine has them."""

import math

import numpy as np
import pytest

import tapegrad as tg
from tests.seeds import campaigns_but
from tests.test_native_fuzz import interpreted

G = np.random.default_rng(11)
X, Y = G.normal(size=7), G.normal(size=7)


def mean_square(x, y):
    s = 0.0
    for i in range(x.size):
        s += (x[i] - y[i]) ** 2
    return 0.5 * s / x.size - y[0]


def pairs(x, y):
    """Sums in sums: all of it is one nest of loops."""
    s = x[0]
    for i in range(x.size):
        near = x[i] * y[i]
        for j in range(i):
            d = near - x[j]
            s -= 1.0 / (1.0 + d * d)
    return 2.0 * s


def until(x, y):
    """Left early."""
    s = 0.0
    for i in range(x.size):
        s += math.sin(x[i] * y[i])
        if i > 3:
            break
    return s


def residuals(x, y):
    """A pass has loops that keep something, names of its own, and an array of its own."""
    s = 0.0
    for i in range(x.size):
        r = y[i]
        for j in range(3):
            r = r * x[j] - math.tanh(r)
        z = np.zeros(2)
        z[0] = r * x[i]
        z[1] = z[0] * r
        if z[1] > 0.1:
            s += z[1]
        s += z[0] + np.sum(x[i:] * r)
    return s


def scratch(x, y):
    """A buffer that each pass fills before it reads it."""
    held = np.empty(x.size)
    n = x.size
    s = 0.0
    for i in range(n):
        for j in range(n):
            held[j] = math.sin(x[i] * y[j])
        for k in range(n):
            s += held[k] * held[k] * x[k]
    return s


def counted(x, y):
    """What passes hand on carries no derivative."""
    s, c = 0.0, 0
    seen = np.zeros(2, np.int64)
    for i in range(x.size):
        if x[i] > 0.0:
            c += 1
            seen[i % 2] += 1
            s += x[i] * y[i] * y[i]
    return s / 2.0 + c


def behind(x, y):
    """The reverse of what stands before the loop asks for values of its own."""
    a = math.exp(x[0])
    z = np.sin(x) * a
    s = 0.0
    for i in range(x.size):
        s += z[i] * y[i] * a
    return s


def square(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i] * y[i]
    return s * s


def product(x, y):
    s = 1.0
    for i in range(x.size):
        s = s * math.cos(x[i])
    return s


def recursion(x, y):
    s, t = 0.0, 1.0
    for i in range(x.size):
        t = math.sin(t * x[i])
        s += t
    return s


def read_inside(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i] * (1.0 if s < 1.0 else y[i])
    return s


def last_one(x, y):
    s, t = 0.0, 0.0
    for i in range(x.size):
        t = x[i] * y[i]
        s += t
    return s + t


def partly_filled(x, y):
    held = np.ones(x.size)
    n = x.size
    s = 0.0
    for i in range(n):
        for j in range(n - 1):
            held[j] = math.sin(x[i] * y[j])
        for k in range(n):
            s += held[k] * x[k]
            held[k] = held[k] * y[k]
    return s


def filled_behind(x, y):
    held = np.ones(x.size)
    n = x.size
    s = 0.0
    for _ in range(2):
        for k in range(n):
            s += held[k] * x[k]
            held[k] = y[k] * x[k]
    return s


def read_behind(x, y):
    held = np.empty(x.size)
    n = x.size
    s = 0.0
    for i in range(n):
        for j in range(n):
            held[j] = x[i] * y[j]
        for j in range(n):
            s += held[j] * held[j]
    return s + held[2]


def power(x, y):
    """A factor that passes change and their reverse needs."""
    s, c = 0.0, 1.0
    for i in range(x.size):
        s += c * x[i]
        c = c * 0.5
    return s


def weighted_behind(x, y):
    """The weight of the sum is known only behind the loop."""
    s, w = 0.0, 1.0
    for i in range(x.size):
        s += x[i]
        w = 1.0 if x[i] > 0.0 else 2.0
    return s * w


def bound_anew(x, y):
    """What the reverse of a loop before needs, the loop overwrites."""
    a, b = x[0] * x[1], 1.0
    for _ in range(2):
        b = b * a
    s = b
    for i in range(x.size):
        a = x[i] * y[i]
        s += a * a
    return s


def stored_behind(x, y):
    """One line behind the loop overwrites what the reverse of the next reads."""
    v = x * 0.5
    s = 0.0
    for i in range(x.size):
        s += v[i] * v[i]
    v[::2] -= s * 0.1
    return math.sin(v[0]) + v[0] * v[5] * y[0]


def read_before_the_store(x, y):
    v = x * 0.5
    s = 0.0
    for i in range(x.size):
        s += v[i] * y[i]
    t = v[0] * v[1]
    v[1] = s * 0.1
    return t + v[1]


EACH = [
    mean_square, pairs, until, residuals, scratch, counted, behind, square, product, recursion, read_inside, last_one, partly_filled,
    filled_behind, read_behind, power, weighted_behind, bound_anew, stored_behind, read_before_the_store,
]  # fmt: skip
COMPILED = [scratch, partly_filled, stored_behind, read_before_the_store]


def slope(f, args, directions):
    """Along a direction, by differences of fourth order."""
    h = 1e-3

    def at(t):
        return f(*(a + t * d for a, d in zip(args, directions, strict=True)))

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def holds(f, value, gradients):
    directions = G.normal(size=(2, 7))
    along = sum(g @ d for g, d in zip(gradients, directions, strict=True))
    assert np.isclose(value, f(X, Y), rtol=1e-12)
    assert np.isclose(along, slope(f, (X, Y), directions), rtol=1e-8)


@pytest.mark.parametrize("f", EACH, ids=lambda f: f.__name__)
def test_adjoint_is_the_derivative(f):
    holds(f, *interpreted(tg.njit(f, mode="adjoint"), (X.copy(), Y.copy()), (0, 1)))


@pytest.mark.parametrize("f", campaigns_but(COMPILED, EACH), ids=lambda f: f.__name__)
def test_gradient_is_the_derivative(f):
    holds(f, *tg.value_and_grad(tg.njit(f), (0, 1))(X, Y))


@pytest.mark.parametrize("mode", ["adjoint", "auto"])
def test_edges(mode):
    """No passes, one array twice, values that are no numbers or overflow."""
    native = tg.njit(mean_square, mode=mode)
    both = tg.grad(native, (0, 1))(X, X)
    np.testing.assert_array_equal(both[0], 0.0)
    np.testing.assert_array_equal(both[1], [-1.0, *np.zeros(6)])
    x = X.copy()
    x[2], x[4] = np.nan, 1e200
    value, (g, _) = tg.value_and_grad(native, (0, 1))(x, Y)
    assert np.isnan(value)
    np.testing.assert_allclose(g, (x - Y) / 7, rtol=1e-14)
    assert tg.value_and_grad(native)(np.array([1e200]), np.zeros(1))[0] == np.inf


@pytest.mark.long
def test_several_results():
    """Cotangents of several sums, and of what was there before."""

    @tg.njit(mode="adjoint")
    def f(x):
        y = 2.0 * x
        s, t = 0.0, 0.0
        for i in range(x.size):
            s += x[i] ** 2
            t -= x[i] * y[i]
        return s, y[1] * 3.0, t + 1.0

    _, pull = tg.vjp(f, X)
    (g,) = pull((1.0, 5.0, 10.0))
    np.testing.assert_allclose(g, 2 * X - 40 * X + 30 * (np.arange(7) == 1), rtol=1e-13)
