"""Whole numbers that native programs compute, as indices, bounds of loops and elements of arrays: the form has them, with derivatives."""

import math

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.native import spelled
from tests import programs_random as programs


def interpolated(x, q):
    total = 0.0
    for i in range(q.size):
        k = int(q[i])
        if k > x.size - 2:
            k = x.size - 2
        w = q[i] - k
        total += (x[k] * (1 - w) + x[k + 1] * w) ** 2
    return total


def deposited(x, q):
    """Charges on a grid that is periodic, by shares of two cells."""
    rho = np.zeros(8)
    for i in range(x.size):
        g = x[i] * 8
        k = int(np.floor(g))
        rho[k % 8] += q[i % q.size] * (1 - (g - k))
        rho[(k + 1) % 8] += q[i % q.size] * (g - k)
    return np.sum(rho**2)


def sorted_by_insertion(x, q):
    y = x * q[0]
    for i in range(1, y.size):
        key = y[i]
        j = i - 1
        while j >= 0 and y[j] > key:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = key
    total = 0.0
    for i in range(y.size):
        total += y[i] * y[i] * (i + 1)
    return total


def bisected(x, q):
    table = np.cumsum(np.exp(x))
    total = 0.0
    for i in range(q.size):
        lo = 0
        hi = table.size - 1
        while hi - lo > 1:
            mid = (lo + hi) // 2
            if table[mid] > 3 * q[i]:
                hi = mid
            else:
                lo = mid
        total += (lo + (3 * q[i] - table[lo]) / (table[lo + 1] - table[lo])) ** 2
    return total


def counted(x, q):
    """Means of bins, of which some are empty."""
    n = np.zeros(6, np.int64)
    h = np.zeros(6)
    for i in range(x.size):
        k = int(x[i] * 6) % 6
        n[k] += 1
        h[k] += q[i % q.size] * x[i]
    total = 0.0
    for k in range(6):
        if n[k] > 0:
            total += (h[k] / n[k]) ** 2
    return total


def gathered(x, q):
    return np.sum(x[(3 * q).astype(np.int64)] ** 2 * q) + np.sum(
        x[np.arange(x.size)[1:] - 1] * x[1:]
    )


def visited(x, q):
    seen = np.zeros(x.size, np.bool_)
    k = int(q[0])
    total = 0.0
    while not seen[k]:
        seen[k] = True
        total += x[k] ** 2
        k = (2 * k + 3) % x.size
    return total * q[1]


def permuted(x, q):
    p = np.arange(x.size)
    for i in range(x.size - 1):
        for j in range(x.size - 1 - i):
            if x[p[j]] > x[p[j + 1]]:
                t = p[j]
                p[j] = p[j + 1]
                p[j + 1] = t
    total = 0.0
    for i in range(x.size):
        total += x[p[i]] ** 2 * (i + 1) * q[0]
    return total


def windowed(x, q):
    total = 0.0
    for i in range(q.size):
        k = int(q[i])
        total += np.sum(x[k : k + 3] ** 2) * q[i]
    return total


def packed(x, q):
    """The greatest value of a set of weights, by dynamic programming; the bounds of its inner loop are read from an array."""
    weights = np.array([3, 4, 5, 2, 6])
    best = np.zeros(13)
    for i in range(5):
        for c in range(12, weights[i] - 1, -1):
            best[c] = max(best[c], best[c - weights[i]] + x[i] * q[0])
    return best[12] ** 2


def stepped(x, q):
    n = int(3 * q[0])
    v = x[0]
    for k in range(n, 2 * n + 1):
        v = v + 0.1 * (x[k % x.size] - v * v)
    return v


def rounded(x, q):
    k, m, c = round(q[0]), math.floor(q[1]), math.ceil(q[2])
    return x[k] * x[m] * x[c] * x[-1 - k] + x[k - x.size] * q[0]


def guarded(x, q):
    """An index that is none where its branch is not taken."""
    total = 0.0
    for i in range(x.size):
        k = int(q[0]) + i
        if k < x.size and x[k] > 0.0:
            total += x[k] ** 2
        total += x[k - 1] * q[1] if 0 < k <= x.size else q[0]
    return total


def chosen(x, q):
    """A place of an extreme in a branch."""
    total = 0.0
    for i in range(q.size):
        if q[i] > 1.5:
            k = np.argmax(x)
            total += x[k] ** 2 * q[i]
        else:
            total += x[i]
    return total


def rows(x, q):
    """The starts of rows are counted up first, as of a sparse matrix."""
    starts = np.empty(4, np.int64)
    starts[0] = 0
    for i in range(3):
        starts[i + 1] = starts[i] + 1 + i % 2
    total = 0.0
    for i in range(3):
        for p in range(starts[i], starts[i + 1]):
            total += x[p] ** 2 * q[i]
    return total


def searched(x, q):
    knots = np.cumsum(x)
    total = 0.0
    for v in q:
        k = min(np.searchsorted(knots, v), x.size - 1)
        total += knots[k] * v
    k = np.minimum(np.searchsorted(knots, q, side="right"), x.size - 1)
    return total + np.sum(x[k] * q) + np.interp(q[0], knots, x * x)


def classed(x, q):
    falling = np.array([0.9, 0.5, 0.2])
    k = np.digitize(x, np.array([0.3, 0.6]))
    total = 0.0
    for i in range(x.size):
        total += q[k[i]] * x[i] ** 2 + q[np.digitize(x[i], falling, right=True)]
    return total


def masked(x, q):
    """Counts and choices of whole numbers in arrays."""
    k = np.where(x > 0.5, np.arange(x.size), 0)
    n = np.sum(x > 0.4)
    seen = (x > 0.3).astype(np.int64)
    return np.sum(x[k] ** 2) * q[n % 4] + np.sum(x * seen) / (1 + np.sum(seen)) + np.max(k) * x[0]


def first_of_each(x, q):
    """Numbers that loops have before and get another value for where they are left; the next search starts there."""
    c = 0
    k = 3
    total = 0.0
    for i in range(x.size):
        for j in range(x.size):
            if x[j] > x[i]:
                k = j
                break
        for j in range(c, x.size):
            if x[j] >= x[i]:
                c = j
                break
        total += x[c] * x[k] * (i + 1)
    return total + x[c] * q[0] + c * x[1] + k * x[2]


PLACES = np.array([3, 0, 3, 5])


def scattered(x, q):
    """Two to one place: the last one stays, of updates too."""
    z = x * x
    z[PLACES] = q * x[1:5]
    z[PLACES] = z[3] * 2.0
    z[PLACES] += z[:4] ** 2
    i = (np.abs(z) * 2).astype(np.int64) % x.size
    y = x.copy()
    y[i] = z * 0.5 + x
    y[np.minimum(i, 2)] *= q[1]
    return np.sum(z * z * x) + np.sum(y * y) + np.sum(np.arange(7.0) * y)


EACH = [
    interpolated, deposited, sorted_by_insertion, bisected, counted, gathered, visited, permuted, windowed, packed, stepped, rounded,
    guarded, chosen, rows, searched, classed, masked, scattered, first_of_each,
]  # fmt: skip


def given(n=7):
    r = np.random.default_rng(n)
    return r.uniform(0.05, 0.95, n), np.array([1.6, 0.7, 2.3, 1.2])


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    assert np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.long(but=4)
@pytest.mark.parametrize("f", EACH)
def test_value_gradient_tangent_and_second_derivative(f):
    """The form has the program, and its derivatives are quotients of differences; those of the generated adjoint are the same."""
    x, q = given()
    native = tg.njit(f, mode="form")
    derived = native.variant((x, q)).derived((0, 1))
    value, gradient = derived.run((x, q), (1.0,))
    assert derived._other is None
    close(value, f(x, q))
    d = np.cos(np.arange(x.size))
    h = 1e-6
    along = (f(x + h * d, q) - f(x - h * d, q)) / (2 * h)
    close(gradient[0] @ d, along, 1e-7)
    for own, other in zip(gradient, tg.grad(tg.njit(f, mode="adjoint"), (0, 1))(x, q), strict=True):
        close(own, other)
    _, tangent = tg.jvp(lambda v: native(v, q), (x,), (d,))
    close(tangent, gradient[0] @ d)
    product = tg.grad(lambda v: tg.grad(native)(v, q) @ d)(x)
    near = [derived.run((x + s * h * d, q), (1.0,))[1][0] for s in (1, -1)]
    close(product, (near[0] - near[1]) / (2 * h), 1e-6)


@pytest.mark.parametrize("n", (5, 9))
def test_other_lengths_and_layouts(n):
    """One program serves them."""
    x, q = given()
    derived = tg.njit(interpolated, mode="form").variant((x, q)).derived((0, 1))
    wide = np.zeros(2 * n)
    wide[::2] = given(n)[0]
    for a in (wide[::2], wide[::2][::-1]):
        value, (gradient, _) = derived.run((a, q), (1.0,))
        close(value, interpolated(a, q))
        h, d = 1e-6, np.cos(np.arange(n))
        close(
            gradient @ d, (interpolated(a + h * d, q) - interpolated(a - h * d, q)) / (2 * h), 1e-7
        )


@pytest.mark.parametrize("side", ("left", "right"))
def test_searches_are_numpys(side, monkeypatch):
    """With ties, NaN, nothing to search in, and bins that fall."""
    for name in ("_before", "_behind"):
        monkeypatch.setattr(spelled, name, getattr(spelled, name).py_func)
    search = {"left": spelled._before, "right": spelled._behind}[side]
    bins = {"left": spelled._class, "right": spelled._class_to}[side].py_func
    nan = float("nan")
    for a in ([], [0.0], [0.0, 1.0, 1.0, 2.0], [0.0, 1.0, nan, nan], [-1.0, -0.0, 0.0, np.inf]):
        for v in (-2.0, 0.0, 1.0, 1.5, 2.0, 3.0, np.inf, nan):
            assert search(np.array(a), v) == np.searchsorted(np.array(a), v, side)
            if not np.isnan(a).any() and a:
                for order in (1, -1):
                    b = np.array(a)[::order]
                    assert bins(v, b) == np.digitize(v, b, right=side == "right")


def random_places(x):
    """Products beyond what floats hold exactly: another engine has the call."""
    seed = 12345
    total = 0.0
    for i in range(30):
        seed = (1103515245 * seed + 12345) % 2147483648
        total += x[seed % x.size] * (i + 1)
    return total


def grown(x):
    k = 1
    for _ in range(60):
        k = k + k
    return x[k % x.size] + x[0]


def counted_by_much(x):
    k = 1
    for _ in range(20):
        k += 1000000000000001
    return x[k % x.size] * x[1]


@pytest.mark.parametrize("f", (random_places, grown, counted_by_much))
def test_numbers_that_floats_do_not_hold(f):
    x = given()[0]
    native = tg.njit(f)
    value, gradient = tg.value_and_grad(native)(x)
    assert not native.variant((x,)).outside
    close(value, f(x))
    close(gradient, tg.grad(tg.njit(f, mode="adjoint"))(x))


def test_no_place_is_another_engines():
    """What is no place touches no memory of others, and a NaN is none."""

    def at(x, q):
        return x[int(q[0])] ** 2

    x, q = given()
    derived = tg.njit(at, mode="form").variant((x, q)).derived((0, 1))
    for bad in (7.0, -8.0, np.nan, np.inf, 1e300):
        q[0] = bad
        assert derived._called((x, q), (1.0,)) is None
    q[0] = -7.0
    value, (gradient, _) = derived.run((x, q), (1.0,))
    close(value, x[0] ** 2)
    close(gradient[0], 2 * x[0])


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", (*range(40, 46), *range(700, 714)))
def test_random_programs(seed):
    from tests.test_program import told

    try:
        assert not told(seed, programs.Computed)
    except tg.NotDifferentiable as why:
        assert "outside the program form" in str(why)


def of_a_large_number(x, k):
    s = 0.0
    for i in range(x.size):
        j = (k + i) % x.size
        for t in range(2):
            s += x[j] ** 2 * (i + t)
    return s


def of_a_large_remainder(x, k):
    return x[(k + 3) % 7] ** 2 + x[2] * ((k // 5) % 3)


def of_a_large_choice(x, k):
    c = 0
    for i in range(x.size):
        if x[i] > 0.5:
            c = k
        else:
            c = k + 1
        x = x + 0.1 * x[c % 5] ** 2
    return np.sum(x * x)


@pytest.mark.parametrize("f", (of_a_large_number, of_a_large_remainder, of_a_large_choice))
def test_numbers_of_calls_that_floats_do_not_hold(f):
    """They are another engine's, as their remainders would be those of other numbers."""
    x, _ = given()
    native, other = tg.njit(f, mode="form"), tg.njit(f, mode="adjoint")
    for k in (3, 2**47 + 1, 2**53 + 1, 2**60 + 3, -(2**61) - 5):
        value, gradient = tg.value_and_grad(native)(x, k)
        close(value, f(x, k))
        close(gradient, tg.grad(other)(x, k))


def test_remainders_of_what_is_no_number():
    """The place of a NaN is none, whatever its remainder is."""

    def at(x, q):
        s = 0.0
        for i in range(q.size):
            j = int(q[i]) % x.size
            for t in range(2):
                s += x[j] ** (t + 2)
        return s

    x, q = given()
    derived = tg.njit(at, mode="form").variant((x, q)).derived((0,))
    assert derived._called((x, q), (1.0,)) is not None
    for bad in (np.nan, np.inf, -np.inf, 1e300, 2.0**60):
        q[1] = bad
        assert derived._called((x, q), (1.0,)) is None
