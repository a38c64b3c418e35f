"""Functions of truth values, remainders and norms in the program form: value, gradient and slope against eager code, for each text."""

import numpy as np
import pytest

import tapegrad as tg
from tests.test_program_calls import close


def remainders(x):
    return (
        np.sum((x % 0.7) ** 2)
        + np.sum(np.mod(x, x[0]) * x)
        + x[1] % 1.5
        + np.fmod(x[2], -0.4) * x[0]
    )


def quotients(x):
    return np.sum(x // 0.3 * x) + x[0] // 0.2 * x[1]


def epsilons(x):
    return (
        np.sum(x / (np.sum(x * x) + np.finfo(np.float64).eps)) + np.finfo(x.dtype).resolution * x[0]
    )


def kinds(x):
    total = 0.0
    for i in range(x.shape[0]):
        if np.isinf(x[i] / (i + 1.0)) or np.isnan(x[i]):
            continue
        if np.isfinite(x[i]) and not np.isnan(x[i] - x[0]):
            total += x[i] ** 2 * i
    return total + np.sum(np.where(np.isfinite(x), x, 0.0) ** 3)


def factors(x):
    return np.sum(x * (x > 0.5)) * (1.0 + (x[0] > 0.2)) + np.sum((x < 0.4) * x * x)


def bits(x):
    inside = (x > 0.2) & (x < 0.8)
    other = (x > 0.9) | ~(x < 0.8)
    return (
        np.sum(x[inside] ** 2)
        + np.sum(x[other])
        + np.sum(np.where((x > 0.3) ^ (x > 0.6), x * x, 1.0))
    )


def any_or_all(x):
    if np.any(x > 5.0):
        return 0.0 * x[0]
    if np.all(x > -9.0):
        return np.sum(x**2) * np.count_nonzero(x > 0.5)
    return np.sum(x)


def averaged(x):
    n = np.sum(x > 0.3)
    return np.sum(x * x) / n


def unlike(x):
    total = 0.0
    for v in x:
        if (v > 0.5) != (total > 1.0):
            total += v * v
        else:
            total += 0.5 * v
    return total


def norms(x):
    return (
        np.linalg.norm(x, 1)
        + np.linalg.norm(x, np.inf) * x[0]
        + np.linalg.norm(x[1:], -np.inf) * x[1]
    )


FUNCTIONS = [
    remainders,
    quotients,
    epsilons,
    kinds,
    factors,
    bits,
    any_or_all,
    averaged,
    unlike,
    norms,
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_derivatives(f):
    native = tg.njit(f, mode="form")
    for x in (np.array([0.31, 0.92, 0.57, 0.13, -0.71]), np.array([1.31, -0.42, 0.97])):
        value, gradient = tg.value_and_grad(native)(x)
        expected, theirs = tg.value_and_grad(f)(x)
        close(value, float(expected))
        close(gradient, theirs)
        close(tg.jvp(native, (x,), (x[::-1].copy(),))[1], float(theirs @ x[::-1]))


def test_entries_that_are_no_numbers():
    x = np.array([0.3, np.inf, np.nan, 0.9, -np.inf, 1.2])
    value, gradient = tg.value_and_grad(tg.njit(kinds, mode="form"))(x)
    finite = np.isfinite(x)
    close(value, float(np.sum(np.arange(6)[finite] * x[finite] ** 2) + np.sum(x[finite] ** 3)))
    usual = np.where(finite, x, 0.0)
    close(gradient, 2 * np.arange(6) * usual + 3 * usual**2)


def test_remainders_are_numpys():
    """Of every pair of special numbers, signs of zero too."""
    v = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 5.5, -5.5, 1e300, -1e-300, np.inf, -np.inf, np.nan, 7.0]
    )
    x, y = map(np.ravel, np.meshgrid(v, v))

    def left(x, y):
        return np.mod(x, y)

    def cut(x, y):
        return np.fmod(x, y)

    def often(x, y):
        return x // y

    for f in (left, cut, often):
        with np.errstate(all="ignore"):
            expected = f(x, y)
        derived = tg.njit(f, mode="form").variant((x, y)).derived((0, 1))
        found, _ = derived.run((x, y), (np.ones_like(x),))
        assert derived._other is None
        np.testing.assert_array_equal(found, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


def test_a_truth_value_as_an_argument():
    def summed(x, squared):
        total = 0.0
        for i in range(x.shape[0]):
            if squared:
                total += x[i] ** 2
            else:
                total += x[i]
        return total

    x = np.array([0.3, 0.9, 0.4])
    native = tg.njit(summed, mode="form")
    gradient = tg.grad(native)
    for yes, no in ((True, False), (np.True_, np.False_)):
        for _ in range(2):
            close(gradient(x, yes), 2 * x)
            close(gradient(x, no), np.ones(3))
    with pytest.warns(tg.errors.IndependentValue):
        tg.grad(tg.njit(summed), 1)(x, True)


@tg.njit
def below_ten(a):
    if a > 10.0:
        raise ValueError("too large")
    return a * a


def checked_entries(x):
    total = below_ten(x[0])
    for i in range(x.shape[0]):
        if x[i] < 0.0:
            raise ValueError("negative")
        total += np.sqrt(x[i])
    return total


def asserted(x):
    assert x[0] > 0.0, "positive"
    if x[1] < 20.0:
        y = x * 2.0
    else:
        raise ValueError("second")
    return np.sum(y * y) * below_ten(x[2])


def iterated(x):
    s = x[0]
    while True:
        s = 0.5 * s + 0.1 * x[1]
        if s > 1e6 or s != s:
            raise ValueError("endless")
        if abs(s - 0.2 * x[1]) < 1e-3:
            break
    return s * x[2]


def first_above(x):
    for i in range(x.shape[0]):
        if x[i] > 0.3:
            if x[i] > 9.0:
                raise ValueError("above")
            return x[i] * np.sum(x)
    raise ValueError("none")


RAISING = [
    (checked_entries, [(1, -0.2, "negative"), (0, 11.0, "too large")]),
    (asserted, [(1, 30.0, "second"), (2, 11.0, "too large")]),
    (iterated, [(0, np.inf, "endless"), (0, 1e8, "endless")]),
    (first_above, [(0, 9.5, "above")]),
]


@pytest.mark.parametrize(("f", "cases"), RAISING, ids=lambda x: getattr(x, "__name__", ""))
def test_what_raises(f, cases):
    """A call that raises is another engine's, which raises what the function does; arguments stay, and the next call is right."""
    x = np.array([0.31, 0.92, 0.57, 0.13])
    native = tg.value_and_grad(tg.njit(f))
    value, gradient = native(x)
    expected, theirs = tg.value_and_grad(f)(x)
    close(value, float(expected))
    close(gradient, theirs)
    close(tg.grad(tg.njit(f, mode="form"))(x), theirs)
    for place, entry, message in cases:
        other = x.copy()
        other[place] = entry
        before = other.copy()
        with pytest.raises(ValueError, match=message):
            native(other)
        np.testing.assert_array_equal(other, before)
        close(native(x)[1], theirs)
    if f is asserted:
        with pytest.raises(AssertionError, match="positive"):
            native(-x)


def chosen_rows(x):
    """Elimination with the largest pivot, as textbooks write it."""
    n = x.shape[0]
    a = np.outer(x, x[::-1]) + np.diag(x * x) - 0.3
    total = 0.0
    for k in range(n):
        p = k + np.argmax(np.abs(a[k:, k]))
        for j in range(n):
            held = a[k, j]
            a[k, j] = a[p, j]
            a[p, j] = held
        for i in range(k + 1, n):
            m = a[i, k] / a[k, k]
            for j in range(k, n):
                a[i, j] -= m * a[k, j]
        total += np.log(np.abs(a[k, k]))
    return total + x[np.argmin(x)] * x[np.argmax(x)]


def listed(x):
    total = 0.0
    for i in range(x.shape[0]):
        if i in (0, 2, 3):
            total += x[i] ** 2
        if i not in (1, 2):
            total *= x[i]
    return total


@pytest.mark.parametrize("f", [chosen_rows, listed])
def test_places_and_sets_of_numbers(f):
    for x in (np.array([0.31, 0.92, 0.57, 0.13, -0.71]), np.array([1.31, -0.42, 0.97])):
        native = tg.njit(f, mode="form")
        value, gradient = tg.value_and_grad(native)(x)
        expected, theirs = tg.value_and_grad(f)(x)
        close(value, float(expected))
        close(gradient, theirs)
