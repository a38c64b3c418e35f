"""Functions that would make a long trace are read from their source: the answers are those of the trace, and what does not fit is traced."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import program, sources


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Sources are read from the 30th entry on; the names of the functions that were."""
    monkeypatch.setattr(program, "MOST", 30)
    names: list[str] = []
    result = sources._Call.result

    def noted(self: Any) -> Any:
        found = result(self)
        names.append(self.f.__name__)
        return found

    monkeypatch.setattr(sources._Call, "result", noted)
    return SimpleNamespace(names=names)


def matrix(n: int = 6) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, n)) + 2 * n * np.eye(n)


def lu(a0):
    a, n = a0.copy(), a0.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = a[i, j] - a[i, k] * a[k, j]
    return a


def lu_squares(a0):
    return np.sum(lu(a0) ** 2)


def paths(d0, steps):
    d = d0.copy()
    for k in range(steps):
        for i in range(d.shape[0]):
            for j in range(d.shape[0]):
                d[i, j] = np.minimum(d[i, j], d[i, k] + d[k, j])
    return np.sum(d * d)


SHIFT = np.linspace(0.5, 1.5, 6)
FACTOR = 2.0


def around(x):
    """A buffer of NumPy's, an array from outside, a number from outside."""
    y = np.zeros(x.size)
    for _ in range(8):
        for i in range(x.size):
            y[i] = y[i] * 0.5 + FACTOR * x[i] * SHIFT[i] + x[i] ** 2
    return np.sum(y * y)


def branches(x):
    y = x.copy()
    for _ in range(6):
        for i in range(1, x.size):
            if y[i] > y[i - 1]:
                y[i] = y[i] * y[i - 1]
            else:
                y[i] = y[i] - 0.3 * y[i - 1]
    return np.sum(y * y)


def agrees(f: Any, *args: Any) -> Any:
    """The compiled value and gradient by the first argument are those of eager execution."""
    compiled = tg.compile(tg.value_and_grad(f))
    for given in (args, (args[0] * 1.25, *args[1:])):
        value, gradient = compiled(*given)
        expected, slope = tg.value_and_grad(f)(*given)
        assert np.isclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-12)
    return compiled


def indexed(x):
    """Coefficients that are polynomials of the index, where a factor is 0, one is below 0, and the sign of 0 counts."""
    i = np.arange(x.size)
    k = -i * 2 + 5 - i
    y = x * i**2 + np.arctan2(0.0 * x, x.size * 1.0 - (i - 3) * i)
    for _ in range(8):
        for j in range(1, x.size):
            y[j] = 0.5 * y[j - 1] * k[j] + x[j] * i[j] + y[j] / x.size
    return np.sum(y * y) + np.sum(np.arctan2(-i * (i - 2) * 0.1, -x) * x)


def columns(u):
    v = u.copy()
    for _ in range(3):
        for j in range(1, u.shape[1]):
            v[1:-1, j] = 0.5 * v[1:-1, j - 1] + u[:-2, j] * v[2:, j]
    return np.sum(v * v)


def test_read(read):
    agrees(lu_squares, matrix())
    assert read.names == ["lu_squares"]
    agrees(paths, np.abs(matrix()), 3)
    assert read.names[1:] == ["paths"]


def test_around(read):
    agrees(around, np.linspace(0.1, 0.9, 6))
    assert read.names == ["around"]


def test_stores_of_parts(read):
    """Stores of parts of arrays make a trace long as well."""
    agrees(columns, matrix())
    assert read.names == ["columns"]


def test_arithmetic_of_indices(read):
    """Arrays of whole numbers are formulas of the index; they have no -0.0."""
    agrees(indexed, np.linspace(0.1, 0.9, 6))
    assert read.names == ["indexed"]


def alignment(s):
    """A table of sums of exponentials: some are of nothing, equal ones meet."""
    n = s.shape[0]
    d = np.zeros((n + 1, n + 1))
    d[0, 1:] = d[2, 0] = d[3, 0] = -np.inf
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            up = np.logaddexp(d[i - 1, j - 1], d[i - 1, j])
            d[i, j] = s[i - 1, j - 1] + np.logaddexp(up, d[i, j - 1])
    return np.logaddexp(d[n, n], s[0, 0]) + np.logaddexp(s[1, 1], s[1, 1])


def test_sums_of_exponentials(read):
    with np.errstate(all="ignore"):
        agrees(alignment, matrix() / 5)
    assert read.names == ["alignment"]
    native = tg.value_and_grad(tg.njit(alignment))
    for scale in (0.2, 30.0, 800.0):
        with np.errstate(all="ignore"):
            (value, gradient), (expected, slope) = (
                f(matrix() * scale) for f in (native, tg.value_and_grad(alignment))
            )
        assert np.isclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-13)


def test_branches(read):
    """Branches on values are those of each call."""
    f = agrees(branches, np.linspace(0.9, 0.1, 7))
    other = np.linspace(0.2, 1.1, 7)
    np.testing.assert_allclose(f(other)[1], tg.grad(branches)(other), rtol=1e-10)
    assert read.names == ["branches"]


def test_globals_change(read, monkeypatch):
    x = np.linspace(0.1, 0.9, 6)
    f = agrees(around, x)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    np.testing.assert_allclose(f(x)[1], tg.grad(around)(x), rtol=1e-10)
    SHIFT[2] += 1.0
    try:
        np.testing.assert_allclose(f(x)[1], tg.grad(around)(x), rtol=1e-10)
    finally:
        SHIFT[2] -= 1.0
    assert read.names == ["around"] * 3


def test_inside_others(read):
    """A function that is no source itself, because it differentiates one."""
    a = matrix()
    f = tg.compile(lambda a: tg.grad(lu_squares)(a) * 2.0)
    np.testing.assert_allclose(f(a), 2.0 * tg.grad(lu_squares)(a), rtol=1e-10)
    assert read.names == ["lu_squares"]


def test_arrays_as_results(read):
    """Without a transform inside: a call on tracked tensors, and one on plain arrays."""
    a = matrix()
    f = tg.compile(lu)
    np.testing.assert_allclose(f(a), lu(a), rtol=1e-12)
    t = tg.tensor(a, requires_grad=True)
    (f(t) ** 2).sum().backward()
    np.testing.assert_allclose(t.grad, tg.grad(lu_squares)(a), rtol=1e-10)
    assert "lu" in read.names


@pytest.mark.long
def test_several_results(read):
    def both(x, y):
        u, v = x.copy(), y.copy()
        for _ in range(6):
            for i in range(1, x.size):
                u[i] = u[i - 1] * v[i]
                v[i] = v[i] + 0.1 * u[i]
        return u, np.sum(v)

    def total(x, y):
        u, v = both(x, y)
        return np.sum(u * u) * v

    x, y = np.linspace(0.5, 1.0, 5), np.linspace(1.5, 0.5, 5)
    for f in (total, lambda x, y: both(x, y)[1]):
        found = tg.compile(tg.grad(f, argnums=(0, 1)))(x, y)
        for g, expected in zip(found, tg.grad(f, argnums=(0, 1))(x, y), strict=True):
            np.testing.assert_allclose(g, expected, rtol=1e-10)
    u, v = tg.compile(both)(x, y)
    np.testing.assert_allclose(u, both(x, y)[0], rtol=1e-12)
    assert np.isclose(v, both(x, y)[1])
    assert read.names[0] == "total" and read.names[-1] == "both"


@pytest.mark.long
@pytest.mark.parametrize("transform", [tg.hessian, lambda f: tg.jacobian(tg.grad(f))])
def test_further_derivatives(read, transform):
    x = np.linspace(0.9, 0.1, 5)
    found = tg.compile(transform(branches))(x)
    np.testing.assert_allclose(found, transform(branches)(x), rtol=1e-8, atol=1e-10)


@pytest.mark.long
def test_jvp_and_vmap(read):
    x = np.linspace(0.9, 0.1, 5)
    found = tg.compile(lambda x: tg.jvp(branches, (x,), (np.ones(5),)))(x)
    np.testing.assert_allclose(found, tg.jvp(branches, (x,), (np.ones(5),)), rtol=1e-10)
    rows = np.stack([x, x * 0.5])
    found = tg.compile(tg.vmap(tg.grad(lu_like)))(rows)
    np.testing.assert_allclose(found, [tg.grad(lu_like)(r) for r in rows], rtol=1e-10)


def lu_like(x):
    y = x.copy()
    for _ in range(10):
        for i in range(1, x.size):
            y[i] = y[i] * y[i - 1] + x[i]
    return np.sum(y)


def traced(read: Any, f: Any, *args: Any) -> None:
    agrees(f, *args)
    assert read.names == []


@pytest.mark.long
def test_wrapped(read):
    """The source that `inspect` shows of a wrapped function is not what it does."""

    def twice(f):
        @functools.wraps(f)
        def run(x):
            return 2.0 * f(x)

        return run

    helped = twice(lu_like)
    traced(read, helped, np.linspace(0.1, 0.5, 6))
    traced(read, lambda x: helped(x) + 1.0, np.linspace(0.1, 0.5, 6))


def test_python_judges(read):
    """Whole numbers of any size are Python's; Numba's are of 64 bits."""

    def large(x):
        y, k = x.copy(), 1
        for i in range(1, x.size):
            k = k * 2**20
            for j in range(8):
                y[i] = y[i] + 1e-30 * k * y[i - 1] * j
        return np.sum(y)

    traced(read, large, np.linspace(0.1, 0.5, 8))


def test_other_numbers(read):
    """float32 times a number is float32 in NumPy, and float64 in Numba."""
    traced(read, lu_like, np.linspace(0.1, 0.5, 6).astype(np.float32))


def test_bounds(read):
    def past(x):
        y = x.copy()
        for _ in range(10):
            for i in range(x.size):
                y[i] = y[i] + x[i + 1]
        return np.sum(y)

    with pytest.raises(IndexError):
        tg.compile(tg.grad(past))(np.ones(6))


def test_raises_by_values(read):
    """What the values of a later call make raise, raises."""

    def careful(x):
        y = x.copy()
        for _ in range(10):
            for i in range(1, x.size):
                if y[i] < 0:
                    raise ArithmeticError("negative")
                y[i] = np.sqrt(y[i]) * y[i - 1]
        return np.sum(y)

    f = agrees(careful, np.linspace(0.1, 0.9, 5))
    with pytest.raises(ArithmeticError):
        f(np.linspace(0.1, -0.9, 5))


def test_places_by_values(read):
    """An index that values decide is that of each call, and is in bounds or an error."""

    def picked(x):
        y = x.copy()
        for _ in range(10):
            for i in range(x.size):
                y[i] = 0.5 * y[i] + x[int(x[i])]
        return np.sum(y)

    f = tg.compile(tg.value_and_grad(lambda x: picked(x)))
    for x in (np.array([0.5, 1.5, 2.5]), np.array([2.5, 2.2, 0.1])):
        try:
            value, g = f(x)
        except tg.GradientLost:
            continue
        assert np.isclose(value, picked(x))
        np.testing.assert_allclose(g, tg.grad(picked)(x))
    with pytest.raises((IndexError, tg.GradientLost)):
        f(np.array([0.5, 7.5, 2.5]))


def test_written_argument(read):
    def writes(x):
        for _ in range(10):
            for i in range(1, x.size):
                x[i] = x[i] * x[i - 1]
        return np.sum(x)

    def outer(x):
        return writes(x.copy())

    agrees(outer, np.linspace(0.5, 0.9, 5))
    f = tg.compile(writes)
    with pytest.raises(Exception, match=r"."):
        f(np.linspace(0.5, 0.9, 5))
        f(np.linspace(0.5, 0.9, 5))


def test_draws(read):
    def noisy(x):
        y = x.copy()
        for _ in range(10):
            for i in range(1, x.size):
                y[i] = y[i] * y[i - 1] + np.random.normal()  # noqa: NPY002  that of the test
        return np.sum(y)

    with pytest.raises(tg.TraceError):
        tg.compile(tg.grad(noisy))(np.linspace(0.5, 0.9, 5))


def counted(x):
    y, k = x.copy(), 0
    while np.sum(y * y) > 1e-3:
        for i in range(x.size):
            y[i] = 0.5 * y[i] * x[i]
        k += 1
    return np.sum(y) * k


def test_until(read):
    """A loop that values end runs as often as those of each call say."""
    f = agrees(counted, np.linspace(0.9, 1.3, 6))
    x = np.linspace(0.1, 1.7, 6)
    np.testing.assert_allclose(f(x)[1], tg.grad(counted)(x), rtol=1e-10)
    assert read.names == ["counted"]


def test_until_out_of_bounds(read):
    """An index that grows until values end the loop: past the end it is an error, as in Python."""

    def walk(x):
        y, k = np.zeros(4), 0
        while y[0] < 1.0:
            for i in range(4):
                y[i] = y[i] + x[k] * x[i]
            k += 1
        return np.sum(y)

    f = tg.compile(tg.grad(walk))
    x = np.full(12, 0.4)
    np.testing.assert_allclose(f(x), tg.grad(walk)(x))
    with pytest.raises(IndexError):
        f(np.full(12, 1e-3))


def test_array_from_outside_in_a_condition():
    @tg.njit(mode="form")
    def masked(x):
        total = 0.0
        for i in range(6):
            if SHIFT[i] > x[i]:
                total += x[i] * x[i]
        return total

    x = np.linspace(0.0, 3.0, 6)
    np.testing.assert_array_equal(tg.grad(masked)(x), np.where(x < SHIFT, 2 * x, 0.0))


def test_systems_without_a_solution_raise(read):
    """A program that may be left has nobody to ask then: such loops are no calls of the form."""

    def solved(x):
        m = np.diag(x) + 0.1
        total = 0.0
        for i in range(1, x.size):
            total += np.linalg.solve(m, x)[i] * x[i - 1]
        return total

    f = agrees(solved, np.linspace(0.2, 0.9, 5))
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros(5))
