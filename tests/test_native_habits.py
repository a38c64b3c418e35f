"""Habits of Numba's users: printing, index arrays with arithmetic, truth values as factors, any word as a parameter's name.

Each program goes by every engine that has code for it; differences of its values judge gradients, and differences of gradients
second derivatives.
"""

import numpy as np
import pytest

import tapegrad as tg
from tests.test_native_numpy import slopes

X = np.array([0.31, 1.42, 0.77, 1.13])
PLACES, OTHERS = np.array([0, 1]), np.array([1, 1])


def judged(f, *more, engines=("auto", "adjoint", "overload"), x=X):
    """Compare value, gradient, tangents and Hessian of f(x, *more) with differences, by each engine."""
    plain = tg.njit(f)
    for mode in engines:
        g = tg.njit(mode=mode)(f)
        of = lambda x, g=g: g(x, *more)  # noqa: E731
        value, gradient = tg.value_and_grad(g)(x.copy(), *more)
        np.testing.assert_allclose(value, plain(x.copy(), *more), rtol=1e-12)
        np.testing.assert_allclose(gradient, slopes(of, x), rtol=1e-8, atol=1e-8)
        along = [tg.jvp(of, (x,), (d,))[1] for d in np.eye(x.size)]
        np.testing.assert_allclose(along, gradient, rtol=1e-10, atol=1e-12)
        second = slopes(lambda x, g=g: tg.grad(g)(x, *more), x)
        np.testing.assert_allclose(tg.hessian(g)(x, *more), second, rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------------------------------------------- index arrays


def read_beside(x, i, k):
    return np.sum(x[i + 1] ** 2 * x[i - k]) + x[2 * i + k][1] * x[3 - i][0]


def hermite(x, i, k):
    """The nodes beside each point, found by a search."""
    points = np.array([0.2, 0.9, 1.3])
    nodes = np.arange(4.0)
    at = np.minimum(np.maximum(np.searchsorted(nodes, points) - 1, 0), 2)
    t = (points - nodes[at]) / (nodes[at + 1] - nodes[at])
    return np.sum((x[at] * (1 - t) ** 2 + x[at + 1] * t**2) ** 2)


def written_beside(x, i, k):
    y = np.ones((4, 4))
    y[i + k] = x[:2].sum()
    y[i + k, 1] *= x[0]
    y[i * 2 - 1 + k] += x[2]
    y[0, i + 1] += x[0] * x[3]
    return np.sum(y**3) + np.sum(y[i + 1, k - 1] ** 2)


@pytest.mark.parametrize(
    "f",
    [read_beside, *(pytest.param(f, marks=pytest.mark.long) for f in (hermite, written_beside))],
)
def test_arithmetic_of_index_arrays_within_an_index(f):
    judged(f, PLACES, OTHERS)


def rows(x):
    y = np.zeros((4, 4))
    for i in range(2):
        for j in range(2):
            y[i + j] = x * (i + 1.0) + y[i + j] * x
            y[i - j] *= x[i + j]
    return np.sum(y**2)


def test_rows_at_a_sum_of_indices():
    judged(rows, engines=("auto", "adjoint", "form"))


# ------------------------------------------------------------------------------------------------------- the rest


def bisected(x):
    low, high = 0.0, x[1] * 3.0
    for k in range(4):
        above = (low + high) / 2 > x[0] * k
        low = low + (x[2] - low) * above
        high = high - (high - x[3]) * (not above)
    return low * high + max(x[0], above) * (x[1] - above)


def test_truth_values_are_factors():
    judged(bisected)


def told(x, n):
    s = 0.0
    for i in range(n):
        if i % 2 == 0:
            print("pass {", i, s, x[i])
        s += np.sin(x[i]) * s + x[i]
    if s < 0.0:
        print()
    return s


def test_print(capfd):
    judged(told, 4)
    lines = set(capfd.readouterr().out.splitlines())
    assert "pass { 0 0.0 0.31" in lines
    capfd.readouterr()
    tg.grad(tg.njit(told))(X, 4)
    out = capfd.readouterr().out.splitlines()
    assert [line.split()[2] for line in out] == ["0", "2"]


def named(start, count, sweep, np, out, x_along, seed_0):
    return start**2 * count + sweep * np * out**2 + x_along * seed_0 * start


@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_any_word_is_a_parameter(mode):
    f = tg.njit(mode=mode)(named)
    args, wanted = (1.5, 2.0, 3.0, 0.5, 0.7, 1.1, 1.3), tuple(range(7))
    expected = [2 * 1.5 * 2 + 1.1 * 1.3, 2.25, 0.5 * 0.49, 3 * 0.49, 3 * 0.5 * 1.4, 1.3 * 1.5, 1.65]
    np.testing.assert_allclose(tg.grad(f, wanted)(*args), expected, rtol=1e-14)
    second = tg.hessian(lambda v: f(*v))(np.array(args))
    assert second[0, 0] == pytest.approx(4.0) and second[4, 4] == pytest.approx(3.0)
    assert second[5, 6] == pytest.approx(1.5) and np.array_equal(second, second.T)


@pytest.mark.parametrize("scale", [0.25, np.float32(0.25), 3])
def test_plain_numbers_beside_tensors_in_compiled_functions(scale):
    @tg.njit
    def f(x, scale, n):
        s = 0.0
        for _ in range(n):
            s += scale * np.sum(x**2)
        return s * x

    def loss(x, scale, n):
        value, gradient = tg.value_and_grad(lambda x: np.sum(f(x, scale, n) ** 2))(x)
        return value, gradient

    expected = loss(X, scale, 3)
    compiled = tg.compile(loss)
    for _ in range(2):
        for found, wanted in zip(compiled(X, scale, 3), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
