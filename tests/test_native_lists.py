"""Lists of numbers that one expression makes, in native functions: arrays of their elements, where they are read as such."""

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad.native.overloading import Overloaded


@numba.njit
def helper(a, b):
    return a * a * b


def summed(x, c):
    return np.sum(np.array([np.sin(v) * c for v in x]) ** 2)


def named(x, c):
    ys = [x[i] * x[i + 1] for i in range(len(x) - 1)]
    total = 0.0
    for y in ys:
        total += y * c
    ys[1] = c
    return total + sum(ys) * ys[0] + ys[-1] * len(ys) + np.max(np.array(ys))


def conditional(x, c):
    v = 3.0
    kept = np.array([v * i for i, v in enumerate(x) if v > 0.55])
    return np.sum(kept) * v * c


def several(x, c):
    y = x[::-1].copy()
    return (
        max([a * b for a, b in zip(x, y)])  # noqa: B905  Numba has no strict
        + np.mean(np.array([x[k] ** 2 for k in range(0, x.size, 2)])) * c
    )


def downwards(x, c):
    n = 5
    return np.sum(np.array([x[i] * c * i for i in range(n, 0, -2)]))


def matrix(x, c):
    w = np.array([[v * i + helper(v, c) for i, v in enumerate(x)] for v in range(4)])
    return np.sum(w * w)


def within_loops(x, c):
    total = 0.0
    for k in range(3):
        t = [x[j] * k for j in range(k + 2)]
        total += max(t) * t[-1] * c
    return total


def own_variables(x, c):
    i = 2
    y = np.array([x[i] * c for i in range(1, x.size)])
    return np.sum(y) * x[i]


def of_itself(x, c):
    x = np.array([x[i] * x[-1 - i] for i in range(x.size)])
    x = np.array([v + x[0] for v in x if v < 2.0])
    return np.sum(x * x) * c


X = np.linspace(0.2, 1.1, 7)
EACH = [
    summed,
    named,
    conditional,
    several,
    downwards,
    matrix,
    within_loops,
    own_variables,
    of_itself,
]


@pytest.mark.parametrize("f", EACH)
def test_gradients_are_quotients_of_differences(f):
    native = tg.njit(f)
    value, gradient = tg.value_and_grad(native)(X, 1.3)
    assert not isinstance(native.latest, Overloaded)
    assert np.isclose(value, f(X, 1.3), rtol=1e-12)
    d, h = np.cos(np.arange(X.size)), 1e-6
    along = (f(X + h * d, 1.3) - f(X - h * d, 1.3)) / (2 * h)
    assert np.isclose(gradient @ d, along, rtol=1e-7)
    other = tg.grad(tg.njit(f, mode="adjoint"))(X, 1.3)
    assert np.allclose(gradient, other, rtol=1e-12)


def test_empty_ones():
    def f(x, n):
        ys = np.array([x[i] * 2 for i in range(1, n)])
        return np.sum(ys) + x[0]

    native = tg.njit(f)
    for n in (3, 1, 0, -2):
        value, gradient = tg.value_and_grad(native)(X, n)
        assert np.isclose(value, f(X, n))
        assert np.allclose(gradient, [1.0, *(2.0 * (i < n) for i in range(1, 7))])


def doubled(x):
    ys = [v * v for v in x]
    zs = ys + ys
    return sum(zs)


def repeated(x):
    ys = [v * v for v in x]
    return sum(ys * 2)


def bound_again(x):
    ys = [v * v for v in x]
    if x[0] > 5.0:
        ys = [v for v in x]
    return sum(ys)


def indices(x):
    ks = [int(v * 3) for v in x]
    return x[ks[0]] * x[ks[-1]]


@pytest.mark.parametrize("f", (doubled, repeated, bound_again, indices))
def test_lists_that_are_read_as_lists_are_no_arrays(f):
    """`ys + ys` joins; indices are whole numbers."""
    value, gradient = tg.value_and_grad(tg.njit(f))(X)
    assert np.isclose(value, f(X), rtol=1e-12)
    d, h = np.cos(np.arange(X.size)), 1e-6
    assert np.isclose(gradient @ d, (f(X + h * d) - f(X - h * d)) / (2 * h), rtol=1e-7)


@pytest.mark.parametrize("dtype", (np.float32, complex))
def test_other_numbers_keep_their_type(dtype):
    """Lists of them are no arrays of float64: another engine has the function, or the error says so."""

    def f(x):
        return np.sum(np.abs(np.array([v * v for v in x])))

    x = X.astype(dtype)
    try:
        value, gradient = tg.value_and_grad(tg.njit(f))(x)
    except tg.NotDifferentiable as why:
        assert "ist" in str(why)
        return
    assert np.asarray(value).dtype == np.zeros((), dtype).real.dtype
    assert np.allclose(gradient, 2 * x, rtol=1e-5)
