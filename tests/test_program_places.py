"""Rows that a stencil finds by places: only its innermost loop is cut at the borders, and what the pieces write is written whole."""

import numpy as np
import pytest

import tapegrad as tg
from tests import programs_random as programs


def by_remainders(u, v):
    """Reaction and diffusion on a torus."""
    n, m = u.shape
    u, v = u.copy(), v.copy()
    du, dv = np.empty_like(u), np.empty_like(v)
    for _ in range(3):
        for i in range(n):
            above, below = (i - 1) % n, (i + 1) % n
            for j in range(m):
                left, right = (j - 1) % m, (j + 1) % m
                uvv = u[i, j] * v[i, j] * v[i, j]
                lu = u[above, j] + u[below, j] + u[i, left] + u[i, right] - 4 * u[i, j]
                lv = v[above, j] + v[below, j] + v[i, left] + v[i, right] - 4 * v[i, j]
                du[i, j] = 0.16 * lu - uvv + 0.06 * (1 - u[i, j])
                dv[i, j] = 0.08 * lv + uvv - 0.122 * v[i, j]
        u += du
        v += dv
    return np.sum(u * u) + np.sum(v * v * u)


def by_choices(u, v):
    """Reflected above and below, periodic at the sides."""
    n, m = u.shape
    u = u.copy()
    for _ in range(2):
        new = np.empty_like(u)
        for i in range(n):
            up = i - 1 if i > 0 else 1
            down = i + 1 if i < n - 1 else n - 2
            for j in range(m):
                left = m - 1 if j == 0 else j - 1
                new[i, j] = u[i, j] * (1 - v[i, j]) + v[up, j] * u[up, left] * u[down, j]
        u = new
    return np.sum(u * u)


def by_branches(u, v):
    n, m = u.shape
    s = 0.0
    for i in range(n):
        up = i - 1
        if up < 0:
            up = n - 1
        for j in range(m):
            left = j - 1
            if left < 0:
                left = m - 1
            s += (u[i, j] - u[up, left]) ** 2 * v[up, j]
    return s


def below_zero(u, v):
    """Python's own border: the row in front of the first is the last."""
    n, m = u.shape
    w = np.zeros_like(u)
    for i in range(n):
        for j in range(m):
            w[i, j] = u[i - 1, j] * v[i, j - 1] - u[i, j] * v[i - 2, j]
    return np.sum(w * w * w)


def stored_by_places(u, v):
    """Rows that are stored to by places, and read by others."""
    n, m = u.shape
    w = np.ones_like(u)
    for i in range(n):
        to, of = (i + 2) % n, (2 * i) % n
        for j in range(m):
            w[to, j] *= u[of, j] + v[i, (j + 1) % m]
            w[i, j] += w[to, j] * u[i, j]
    return np.sum(w * w)


def places_that_change(u, v):
    """A place that an inner loop changes, and one that changes between two inner loops."""
    n, m = u.shape
    s, k = 0.0, 0
    for i in range(n):
        k = (i + 1) % n
        for j in range(m):
            s += u[k, j] * v[i, j]
        k = (i + 3) % n
        for j in range(m):
            s += u[k, j] ** 2 * v[k, j]
        for j in range(m):
            k = (k + 1) % n
            s += u[k, j] ** 3
    return s


def under_a_condition(u, v):
    n, m = u.shape
    s = 0.0
    for i in range(n):
        up = (i - 1) % n
        if v[i, 0] > 0.5:
            for j in range(m):
                s += u[up, j] * v[i, j]
        for j in range(m):
            if u[i, j] > 0.5:
                s += u[up, j] ** 2
    return s


def until_it_is_large(u, v):
    n, m = u.shape
    s, t = 0.0, 0
    while s < 10.0 and t < 40:
        for i in range(n):
            up = (i - t) % n
            for j in range(m):
                s += u[up, j] * v[i, (j + 1) % m]
        t += 1
    return s * s


def bounds_as_well(u, v):
    """Whole numbers that bound loops: there the loop around is cut, as it was."""
    n, m = u.shape
    s = 0.0
    for i in range(n):
        lo = max(0, i - 1)
        hi = min(n, i + 2)
        for k in range(lo, hi):
            for j in range(m):
                s += u[k, j] * v[i, j]
    return s * s


def of_three_axes(u, v):
    u3, v3 = u[:4, :4].copy(), v[:4, :4].copy()
    n = u3.shape[0]
    w = np.zeros((n, n, n))
    for i in range(n):
        for j in range(n):
            for k in range(n):
                w[i, j, k] = u3[i, j] * v3[j, k]
    new = np.zeros_like(w)
    for i in range(n):
        a, b = (i - 1) % n, (i + 1) % n
        for j in range(n):
            c, d = (j - 1) % n, (j + 1) % n
            for k in range(n):
                e, f = (k - 1) % n, (k + 1) % n
                new[i, j, k] = (
                    w[a, j, k] * w[b, j, k] + w[i, c, k] * w[i, d, k] - w[i, j, e] * w[i, j, f]
                )
    return np.sum(new * new)


def borders_by_slices(u, v):
    """Four stores that write an array whole, in each iteration."""
    n, m = u.shape
    u = u.copy()
    new = np.empty_like(u)
    for _ in range(3):
        new[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) * v[1:-1]
        new[0] = u[0] * v[0]
        new[-1, 1:] = u[-1, :-1] ** 2
        new[-1, 0] = v[0, 0]
        for i in range(n):
            for j in range(m):
                u[i, j] = new[i, j] * v[i, j]
    return np.sum(u * u)


def a_gap_is_left(u, v):
    """One element is not written anew: it keeps its value from one iteration to the next."""
    n, m = u.shape
    u = u.copy()
    new = np.ones_like(u)
    for t in range(3):
        new[1:] = u[1:] * v[:-1]
        new[0, 1:] = u[0, :-1]
        if t == 0:
            new[0, 0] = v[1, 1]
        u = u + new * new
    return np.sum(u * u)


def read_between(u, v):
    """The second part is read before it is written."""
    n, m = u.shape
    u = u.copy()
    new = u * v
    for _ in range(3):
        new[:2] = u[:2] * v[:2]
        u = u + new * u
        new[2:] = u[2:] ** 2
    return np.sum(u * new)


def the_rest_is_updated(u, v):
    """One row is written anew, the others are added to."""
    n, m = u.shape
    u, w = u.copy(), v.copy()
    for t in range(3):
        for j in range(m):
            w[0, j] = v[t, j]
        for i in range(1, n):
            for j in range(m):
                w[i, j] -= 0.5 * (u[i, j] - u[i - 1, j])
        u = u + w * w
    return np.sum(u * u)


EACH = (
    by_remainders, by_choices, by_branches, below_zero, stored_by_places, places_that_change, under_a_condition, until_it_is_large,
    bounds_as_well, of_three_axes, borders_by_slices, a_gap_is_left, read_between, the_rest_is_updated,
)  # fmt: skip


def given(seed=0, n=5, m=6):
    random = np.random.default_rng(seed)
    return 0.2 + 0.7 * random.random((n, m)), 0.2 + 0.7 * random.random((n, m))


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.max(np.abs(b))))


@pytest.mark.long(but=4)
@pytest.mark.parametrize("f", EACH)
def test_value_gradient_tangent_and_second_derivative(f):
    """The form has the program, and its derivatives are quotients of differences."""
    u, v = given()
    native = tg.njit(f, mode="form")
    derived = native.variant((u, v)).derived((0, 1))
    value, (gradient, other) = derived.run((u, v), (1.0,))
    assert derived._other is None
    close(value, f(u, v))
    random = np.random.default_rng(1)
    d, e = random.standard_normal(u.shape), random.standard_normal(v.shape)
    h = 1e-6
    along = (f(u + h * d, v + h * e) - f(u - h * d, v - h * e)) / (2 * h)
    close(np.vdot(gradient, d) + np.vdot(other, e), along, 1e-7)
    close(tg.jvp(native, (u, v), (d, e))[1], along, 1e-7)
    product = tg.grad(lambda x: np.vdot(tg.grad(native)(x, v), d))(u)
    near = [derived.run((u + s * h * d, v), (1.0,))[1][0] for s in (1, -1)]
    close(product, (near[0] - near[1]) / (2 * h), 1e-6)


@pytest.mark.long(but=4)
@pytest.mark.parametrize("f", EACH)
@pytest.mark.parametrize("n, m", ((4, 4), (9, 4), (4, 17)))
def test_other_lengths(f, n, m):
    """The generated adjoint has the same numbers."""
    u, v = given(n, n, m)
    ours = tg.grad(tg.njit(f, mode="form"), (0, 1))(u, v)
    theirs = tg.grad(tg.njit(f, mode="adjoint"), (0, 1))(u, v)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)


def text_of(f):
    return str(tg.njit(f, mode="form").variant(given()).derived((0, 1)).mathematics)


def test_one_loop_is_cut():
    """A stencil of three axes has three bodies in each direction."""
    lines = [line.strip() for line in text_of(of_three_axes).splitlines()]
    assert sum(line.startswith("for k") and "downwards" not in line for line in lines) == 1 + 3


@pytest.mark.parametrize("f, local", ((borders_by_slices, True), (a_gap_is_left, False)))
def test_what_several_stores_write_whole_is_memory_of_one_iteration(f, local):
    """Nothing that is overwritten is kept of it, and no store of them sets its cotangent to 0."""
    text = text_of(f)
    assert ("kept_new" in text) != local
    cleared = [
        line for line in text.splitlines() if line.strip().startswith("d_new[") and "] = 0" in line
    ]
    assert (len(cleared) == 1) == local


def smoothed(y, c):
    """A window of an odd number of weights on a signal that is reflected at its ends."""
    w, n = c.size // 2, y.size
    total = 0.0
    for i in range(n):
        s = y[i]
        for k in range(-w, w + 1):
            place = abs(i + k)
            if place >= n:
                place = 2 * (n - 1) - place
            s -= c[k + w] * y[place]
        total += s * s
    return total


@pytest.mark.parametrize("n, w", ((12, 2), (12, 5), (12, 6), (12, 8), (5, 4), (4, 1), (40, 3)))
def test_pieces_of_a_window(n, w):
    """The window fits into the signal, just fits, or does not; a call tells, and each has a program."""
    r = np.random.default_rng(n + w)
    y, c = r.standard_normal(n), r.standard_normal(2 * w + 1)
    derived = tg.njit(smoothed, mode="form").variant((y, c)).derived((0, 1))
    for _ in range(2):
        value, (gradient, weights) = derived.run((y, c), (1.0,))
        assert derived._other is None
        close(value, smoothed(y, c))
        d, e, h = np.cos(np.arange(n)), np.sin(np.arange(2 * w + 1)), 1e-6
        along = (smoothed(y + h * d, c + h * e) - smoothed(y - h * d, c - h * e)) / (2 * h)
        close(gradient @ d + weights @ e, along, 1e-7)
    assert "place" not in str(derived.latest.mathematics) or n <= 2 * w + 2


def test_a_length_for_which_there_is_no_program():
    """Weights of an even number are read past their end: that is for the other engine, which tells."""
    y, c = np.ones(12), np.ones(4)
    native = tg.njit(smoothed, boundscheck=True)
    close(tg.grad(native)(y, np.ones(5)), tg.grad(tg.njit(smoothed, mode="adjoint"))(y, np.ones(5)))
    with pytest.raises(IndexError):
        tg.grad(native)(y, c)


def test_conditions_do_not_slow_calls_down():
    """A function whose tree has truth values is called straight from machine code; one that is given a truth value is not."""
    y, c = np.ones(12), np.ones(5)
    derived = tg.njit(smoothed).variant((y, c)).derived((0,))
    derived.run((y, c), (1.0,))
    value, gradient = derived.shortcut(False)(y, c)
    close(value, smoothed(y, c))
    close(gradient, tg.grad(tg.njit(smoothed, mode="adjoint"))(y, c))

    def told(y, up):
        return np.sum(y) if up else np.sum(y * y)

    derived = tg.njit(told, mode="form").variant((y, True)).derived((0,))
    derived.run((y, True), (1.0,))
    assert derived.shortcut(False) is None


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed):
    from tests.test_program import told

    try:
        assert not told(seed, programs.Bordered)
    except tg.NotDifferentiable as why:
        assert "outside the program form" in str(why)
