"""Loops that fill arrays: compiled, what a turn stores is read from where it was computed, and the loops are rolled."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import program, rolling, stores
from tests.seeds import seeds

P = np.array([0.7, 0.9, 0.3])
N = 200


def delay(p):
    """Mackey and Glass's equation: a turn reads what was stored twenty turns before."""
    x = tg.zeros(N + 20)
    x[:20] = p[2]
    for t in range(20, N + 20):
        past = x[t - 20]
        x[t] = x[t - 1] + 0.1 * (p[0] * past / (1 + past**4) - p[1] * x[t - 1])
    return np.sum((x[20:] - 1) ** 2)


def history(p):
    """The same with a past that is no constant."""
    x = tg.zeros(N)
    x[:4] = p[0] * np.arange(4.0) + p[1]
    for t in range(4, N):
        x[t] = 0.5 * x[t - 1] + 0.4 * np.sin(x[t - 4]) * p[2]
    return np.sum(x * x)


def multistep(p):
    """Adams and Bashforth's third-order rule."""
    y, f = tg.zeros(N), tg.zeros(N)
    for t in range(3):
        y[t] = p[0] + 0.01 * t * p[1]
        f[t] = np.sin(y[t]) * p[2]
    for t in range(2, N - 1):
        y[t + 1] = y[t] + 0.01 * (23 * f[t] - 16 * f[t - 1] + 5 * f[t - 2]) / 12
        f[t + 1] = np.sin(y[t + 1]) * p[2]
    return np.sum(y * f)


def epidemic(p):
    """A row of numbers for each turn."""
    s, i, r = 0.99, 0.01, 0.0
    out = tg.zeros((N, 3))
    for t in range(N):
        new, gone = p[0] * s * i * 0.1, p[1] * i * 0.1
        s, i, r = s - new, i + new - gone, r + gone
        out[t] = tg.stack([s, i, r])
    return np.sum((out[:, 1] - 0.1) ** 2) + out[-1, 2] * p[2]


def columns(p):
    """The same, number by number."""
    s, i = 0.99 * p[2], 0.01
    out = tg.zeros((N, 2))
    for t in range(N):
        new = p[0] * s * i * 0.1
        s, i = s - new, i + new - p[1] * i * 0.1
        out[t, 0] = s
        out[t, 1] = i
    return np.sum(out * out[::-1])


def rows_from_rows(p):
    """A state's history in one array, of which the pullback needs the rows."""
    u = tg.zeros((N + 1, 2))
    u[0] = p[:2]
    for t in range(N):
        u[t + 1] = u[t] + 0.05 * np.sin(u[t]) * u[t, ::-1] * p[2]
    return np.sum(u * u)


def two_arrays(p):
    """Semi-implicit Euler."""
    x, v = tg.zeros(N + 1), tg.zeros(N + 1)
    x[0], v[0] = p[0], p[1]
    for t in range(N):
        v[t + 1] = v[t] - 0.05 * p[2] * x[t]
        x[t + 1] = x[t] + 0.05 * v[t + 1]
    return np.sum(x * x) + np.sum(v)


def backwards(p):
    """A recursion from the end, as a Bellman equation's."""
    v = tg.zeros(N)
    v[N - 1] = p[0]
    for t in range(N - 2, -1, -1):
        v[t] = np.maximum(p[1] * v[t + 1], np.cos(t * 0.1) * p[2])
    return np.sum(np.sin(v))


def added_to(p):
    """Rows of an array that exists are added to."""
    x = np.outer(np.linspace(0, 1, N), p) + 0.0
    for t in range(1, N):
        x[t] += 0.5 * np.sin(x[t - 1, 0]) * p
    return np.sum(x * x)


def reads_of_the_whole(p):
    """Now and then the whole is read, which then is as it is at that time."""
    u, total = tg.zeros(N), 0.0
    for t in range(N):
        u[t] = np.sin(p[0] * t) * p[1] + total * 1e-3
        if t % 50 == 49:
            total = total + np.sum(u)
    return total * p[2]


def checked(p):
    """Code that looks at its arguments, and at a number in each turn."""
    if np.any(p < 0):
        raise ValueError("negative")
    x, total = p[0], 0.0
    for _ in range(N):
        if x > 1.0:
            x = x * 0.5
        x = x * (1 + p[1] * 0.05) + 0.001 * np.sin(p[2])
        total = total + x * x
    return total


def lists_of_constants(p):
    """Constants of a turn that stand in a list, beside one that does not."""
    x, total = p[:2], 0.0
    for i in range(40):
        x = np.select([x > 0.5, x > 0.1], [x * 0.9, 0.001 * i], 0.25) * p[2] + 0.5 * np.sin(x)
        total = total + np.sum(x)
    return total


LOOPS = [
    delay, history, multistep, epidemic, columns, two_arrays, backwards, rows_from_rows, added_to, reads_of_the_whole, checked,
]  # fmt: skip
FEW_LOOPS = 60


@pytest.mark.long
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_loops_that_fill_arrays_are_rolled(f):
    for g in (f, tg.value_and_grad(f)):
        compiled = tg.compile(g)
        for p in (P, P * 1.03):
            for a, b in (
                zip(np.ravel(compiled(p)), np.ravel(g(p)), strict=True)
                if g is f
                else zip(compiled(p), g(p), strict=True)
            ):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
        report = compiled.report()
        assert report.loops < FEW_LOOPS
        assert set(report.calls) <= {"any"}


@pytest.mark.long
@pytest.mark.parametrize(
    "f", [history, multistep, epidemic, two_arrays, backwards, rows_from_rows, checked]
)
def test_their_second_derivatives_are_rolled(f):
    for g in (tg.hessian(f), lambda p: tg.hvp(f)(p, np.array([1.0, -0.5, 2.0]))):
        compiled = tg.compile(g)
        for a, b in zip(np.atleast_1d(compiled(P)), np.atleast_1d(g(P)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)
        assert compiled.report().loops < 4 * FEW_LOOPS


PLACES = np.random.default_rng(4).integers(-6, 6, (150, 4))
"""Of each turn: with repeats, and from either end."""


def added_at_places(x):
    y = x * 1.0
    for i in range(150):
        np.add.at(y, PLACES[i], 0.1 * np.tanh(x[PLACES[i - 1]]))
    return y @ x


def added_at_pairs(x):
    y = np.outer(x, x)
    for i in range(150):
        np.add.at(y, (PLACES[i], PLACES[i - 1]), 0.1 * x[PLACES[i, 0]])
    return np.sum(y**2)


def added_at_a_table(x):
    y = np.zeros((6, 3)) * x[0]
    for i in range(150):
        np.add.at(y, PLACES[i].reshape(2, 2), np.multiply.outer(x[PLACES[i]].reshape(2, 2), x[:3]))
    return np.sum(np.sin(y))


def added_at_columns(x):
    y = np.zeros((3, 6)) * x[0]
    for i in range(150):
        np.add.at(y, (slice(None), PLACES[i, 1]), np.sin(x[PLACES[i, 1:]]))
    return np.sum(np.sin(y))


@pytest.mark.parametrize("f", [added_at_places, added_at_pairs, added_at_a_table, added_at_columns])
def test_additions_at_places_of_each_turns_own_are_rolled(f):
    """Of arrays of places nothing was rolled: the comparison of two of them raised, and the program ran as NumPy calls."""
    x = np.linspace(-1.0, 1.0, 6)
    v = np.cos(x)
    for g, most in ((tg.grad(f), FEW_LOOPS), (lambda x: tg.hvp(f)(x, v), 4 * FEW_LOOPS)):
        compiled = tg.compile(g)
        for t in (x, x[::-1].copy()):
            np.testing.assert_allclose(compiled(t), g(t), rtol=1e-11, atol=1e-12)
        assert compiled.report().loops < most


@pytest.mark.long
def test_a_loop_is_split_where_an_operand_comes_from_another_loop():
    """The tangents of a delay's pullback: what they read stands in three loops, one after the other."""

    def product(p):
        return tg.hvp(delay)(p, np.ones_like(p))

    compiled = tg.compile(product)
    np.testing.assert_allclose(compiled(P), product(P), rtol=1e-10)
    assert (
        len(compiled.latest.graph.steps) < 5000
    )  # of 57,000; 30,000 where the loops are whole or not there


def kept_views(p):
    """Views that are older than writes beside them, below them and through them."""
    u, total = tg.zeros((4, 3)), 0.0
    first, second, column = u[0], u[1], u[:, 1]
    u[1] = p
    part = first[0:2]
    u[0] = 2 * p
    second[0] = 7 * p[0]
    tail = u[1:3]
    tail[1] += p * column[1]
    for k, view in enumerate((first, part, second, column, tail, tail[1])):
        total = total + (k + 1.0) * np.sum(view * 1.0)
    return total + np.sum(u * 0.5)


@pytest.mark.long
def test_constants_in_lists_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(rolling, "WORTH", 0)
    for f in (lists_of_constants, tg.value_and_grad(lists_of_constants)):
        compiled = tg.compile(f)
        for p in (P, P * 1.01):
            found, expected = compiled(p), f(p)
            if not isinstance(expected, tuple):
                found, expected = (found,), (expected,)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_views_see_writes_through_all_others():
    for f in (kept_views, tg.grad(kept_views), tg.hessian(kept_views)):
        np.testing.assert_allclose(tg.compile(f)(P), f(P), rtol=1e-13)


def through_a_transpose(p):
    a = np.outer(p, p)
    a.T[0] = p * 2
    for k, row in enumerate(a.T):
        row[k] = p[k] * 3
    return a


def through_a_flat_view(p):
    a, b = tg.zeros((3, 3)), np.outer(p, p)
    a.reshape(-1)[::4] = p
    flat = b.ravel()
    flat[5] = p[0]
    flat *= a[0, 0]
    return a @ b


def through_several(p):
    a = np.concatenate([np.outer(p, p), p[None]])
    shown, row = a.T, a[1]
    flipped = np.flip(a, 0)
    flipped[0] += p
    cube = np.moveaxis(a.reshape(2, 2, 3), 0, 2)
    cube[1, :, 1] *= p[0]
    shown[0, 1] = p[2]
    return a * row + cube[:, 0, 0].sum() * shown[1, 0]


def with_axes_of_one(p):
    a = p * 1.0
    column, whole = a[:, None], a[None]
    column[2, 0] = p[0]
    whole *= 3
    np.squeeze(whole)[1] = 1.0
    np.swapaxes(whole, 0, 1)[0] += p[1]
    return a * column[::-1, 0]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "made", [through_a_transpose, through_a_flat_view, through_several, with_axes_of_one]
)
def test_views_in_another_order_are_written_through(made):
    def f(p):
        x = made(p)
        return np.sum(x * np.cos(np.arange(1.0, x.size + 1)).reshape(x.shape))

    for g in (f, tg.grad(f), tg.hessian(f)):
        np.testing.assert_allclose(tg.compile(g)(P), g(P), rtol=1e-13, atol=1e-14)


WINDOWS = np.lib.stride_tricks.sliding_window_view


@pytest.mark.parametrize(
    "shown", [lambda b: WINDOWS(b, 2, 0), np.diagonal, np.diag, lambda b: WINDOWS(b[1:], 1, 0)]
)
@pytest.mark.parametrize("tracked", [True, False])
def test_what_a_program_copies_and_numpy_shows_is_no_old_value(shown, tracked):
    def f(p):
        b = np.outer(p, p) if tracked else tg.zeros((3, 3))
        part = shown(b)
        before = np.sum(part * 2.0)
        b[1, 1] = p[0] * 9
        return np.sum(part * 1.0) + before + np.trace(b)

    if shown in (np.diagonal, np.diag) and not tracked:  # a view by way of others
        np.testing.assert_allclose(tg.compile(f)(P), f(P), rtol=1e-14)
        np.testing.assert_allclose(tg.compile(tg.grad(f))(P), tg.grad(f)(P), rtol=1e-14)
    else:
        with pytest.raises(tg.TraceError, match="copy first"):
            tg.compile(f)(P)

    def g(p):
        b = np.outer(p, p)
        total = np.sum(shown(b)) + np.trace(b)
        b[1, 1] = p[0] * 9
        return total + np.sum(b)

    np.testing.assert_allclose(tg.compile(tg.grad(g))(P), tg.grad(g)(P), rtol=1e-14)


def test_a_store_through_a_turned_view_behind_a_store_in_place_is_not_lost():
    """The second store goes into the memory of the first, which was then known to nobody: the view's store reached only the view."""

    def f(y):
        v = np.tile(y, (2, 1))
        v[0], v[-1] = -1, np.sin(v[0])
        v.T[::2] -= -1
        return v

    try:
        got = tg.compile(f)(0.7)
    except tg.TraceError:  # a refusal is right, a lost store is not
        return
    np.testing.assert_allclose(got, f(0.7))


@pytest.mark.long
def test_another_branch_in_a_rolled_loop_is_another_program():
    compiled = tg.compile(tg.value_and_grad(checked))
    for p in (P, P * [0.1, 1, 1], P, P * [3, 1, 1], P * [0.1, 0.2, 1]):
        for a, b in zip(compiled(p), tg.value_and_grad(checked)(p), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    with pytest.raises(ValueError, match="negative"):
        compiled(-P)


def _program(rng, steps):
    """A random function that stores to arrays and reads them, by rows, parts of rows and as a whole."""
    rows, width = 9, 3
    plan = [(rng.integers(15), rng.integers(-rows, rows, 3), rng.integers(width), rng.normal()) for _ in range(steps)]  # fmt: skip

    def f(p):
        a, b = tg.zeros((rows, width)), p[0] * np.arange(1.0, rows + 1)
        c = np.outer(np.linspace(0, 1, rows), p)
        s, kept = p[1], [a[0]]
        for kind, (i, j, k), m, w in plan:
            if kind == 0:
                a[i] = p * s
            elif kind == 1:
                a[i, m] = np.sin(s) + b[j]
            elif kind == 2:
                b[i] = np.cos(b[j] * w) + a[k, m]
            elif kind == 3:
                s = s * 0.5 + np.sum(c[j]) * 0.1 + b[k]
            elif kind == 4:
                a[i] += w * c[j]
            elif kind == 5:
                c[i, 1:] = np.stack([s, b[k]])
            elif kind == 6:
                c[:, m] = b * 0.3
            elif kind == 7:
                s = s + np.sum(np.sin(a)) * 0.1
            elif kind == 8:
                a[2:5] = w * s
            elif kind == 9:
                c = c.copy()
                c[i] = a[j] * 1.0
            elif kind == 10:
                b[i] *= np.tanh(s)
            elif kind == 11:
                kept.append((a, c)[m % 2][i])
            elif kind == 12:
                kept[k % len(kept)][m] = s * w
            elif kind == 13:
                s = s + 0.1 * np.sum(kept[k % len(kept)][:2])
            else:
                s = np.tanh(s + np.sum(b[1:-1]) * 0.2) + c[j, m] * w
        return np.sum(a * c) + np.sum(b * b) * s

    return f


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(60), 6))
def test_random_stores_are_forwarded(monkeypatch, seed):
    monkeypatch.setattr(rolling, "WORTH", 0)
    monkeypatch.setattr(rolling, "rolled", stores.forwarded)
    f = _program(np.random.default_rng(seed), 14)
    p = P + 0.01 * seed
    try:
        value, gradient = tg.value_and_grad(f)(p)
    except tg.GraphError:  # a value that the gradient needs was overwritten
        compiled = tg.compile(f)(p)
        np.testing.assert_allclose(compiled, f(p), rtol=1e-12)
        return
    found = tg.compile(tg.value_and_grad(f))(p)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-11, atol=1e-12)
    along = tg.compile(lambda p: tg.hvp(f)(p, p))(p)
    np.testing.assert_allclose(along, tg.hvp(f)(p, p), rtol=1e-9, atol=1e-10)


def _loop(rng):
    """A random function with a loop: it fills arrays, reads some turns back, looks at values, and has numbers of its own each turn."""
    turns, width, start = (
        int(rng.integers(12, 40)),
        int(rng.integers(2, 4)),
        int(rng.integers(1, 6)),
    )
    n = turns + start
    table, rows, words = rng.normal(size=n), rng.normal(size=(n, width)), rng.integers(0, 3, n)
    plan = [(int(rng.integers(14)), *rng.integers(1, start + 1, 2).tolist(), rng.normal() * 0.5, int(rng.integers(width)))
            for _ in range(rng.integers(2, 7))]  # fmt: skip
    back, ends = rng.random() < 0.3, int(rng.integers(4))

    def f(p):
        a, b, s, v, total, states = (
            tg.zeros(n),
            tg.zeros((n, width)),
            p[1],
            p[:width] * 1.0,
            0.0,
            [],
        )
        c = np.outer(np.linspace(0, 1, n), p[:width])
        a[:start] = p[0]
        b[0] = p[:width]
        for t in range(start, n):
            q = n - 1 - (t - start) if back else t
            for kind, first, second, w, m in plan:
                i, j = (
                    (q + lag if q + lag < n else q) if back else q - lag for lag in (first, second)
                )
                if kind == 0:
                    a[q] = np.sin(a[i]) * p[2] + s * w
                elif kind == 1:
                    s = np.tanh(s * w + a[j] * 0.5 + table[t])
                elif kind == 2:
                    b[q] = b[i] * w + v * 0.1
                elif kind == 3:
                    b[q, m] = s * w + a[i]
                elif kind == 4:
                    v = np.sin(v + rows[t]) * w + b[j] * 0.3
                elif kind == 5:
                    s = s * 0.7 if s > 0.2 else s
                elif kind == 6:
                    a[q] += w * np.cos(a[j])
                elif kind == 7:
                    b[q] += v * p[m]
                elif kind == 8:
                    states.append(s * v[m])
                elif kind == 9:
                    s = s * 0.5 + p[words[t]] * w
                elif kind == 10:
                    total = total + s * s + v[m] * 0.1
                elif kind == 11:
                    s = s * 0.9 + np.sum(c[q] * v) * 0.1
                elif kind == 12:
                    v = v * 0.8 + np.stack([s] * width) * w
                else:
                    s = np.maximum(s * w, a[i] * 0.3)
        out = total + s + np.sum(v)
        if ends > 0:
            out = out + np.sum(a * np.cos(np.arange(n) * 0.3))
        if ends > 1:
            out = out + np.sum(b * b) * 0.1
        if ends > 2 and states:
            out = out + np.sum(np.stack(states)[::-1])
        return out

    return f


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(int(os.environ.get("TAPEGRAD_FUZZ", 16))), 2))
def test_random_loops_are_rolled(monkeypatch, seed):
    monkeypatch.setattr(rolling, "WORTH", 0)
    f = _loop(np.random.default_rng(seed))
    for g in (tg.value_and_grad(f), tg.hessian(f), lambda p: tg.hvp(f)(p, P)):
        compiled = tg.compile(g)
        for p in (P, P * 1.01):
            found, expected = compiled(p), g(p)
            if not isinstance(expected, tuple):
                found, expected = (found,), (expected,)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_a_loop_that_nothing_depends_on_is_no_loop(monkeypatch):
    monkeypatch.setattr(rolling, "WORTH", 0)

    def f(p):
        x = tg.zeros(50)
        for t in range(1, 50):
            x[t] = x[t - 1] + p[0]
        return p[1] * 2.0

    assert tg.compile(f)(P) == f(P)
    np.testing.assert_array_equal(tg.compile(tg.hessian(f))(P), np.zeros((3, 3)))


def triangle(z):
    """A recurrence by entries whose turns are all different: there is no loop to find."""
    z = z.copy()
    for _ in range(3):
        for i in range(z.size):
            for j in range(i):
                z[i] = z[i] - 0.1 * z[j] * z[i]
    return np.sum(z * z)


ORDER = np.random.default_rng(3).integers(0, 9, (300, 3)).tolist()


def scattered(a):
    """Entries in an order of chance, beside a call that the form does not have."""
    a = a.copy()
    for i, j, k in ORDER:
        a[i, j] = a[i, j] - 0.1 * a[i, k] * a[k, j]
    return np.sum(np.tril(a) ** 2 + np.tril(a))


def squared(a):
    """Cholesky's factor by entries, beside such a call."""
    a = a.copy()
    n = a.shape[0]
    for j in range(n):
        for k in range(j):
            a[j, j] = a[j, j] - a[j, k] * a[j, k]
        a[j, j] = np.sqrt(a[j, j])
        for i in range(j + 1, n):
            for k in range(j):
                a[i, j] = a[i, j] - a[i, k] * a[j, k]
            a[i, j] = a[i, j] / a[j, j]
    return np.sum(np.tril(a) ** 2 + np.tril(a))


DEFINITE = 2 * np.eye(9) + 1 / (1 + np.arange(9) + np.arange(9)[:, None])


@pytest.mark.long
@pytest.mark.parametrize(
    ("f", "x"),
    [
        (triangle, np.linspace(-0.5, 0.8, 13)),
        (scattered, DEFINITE),
    ],
)
def test_entries_without_loops_are_numbers(monkeypatch, f, x):
    """No call makes an array anew to change one entry of it: the program has as many numbers as calls, and some arrays at its ends."""
    monkeypatch.setattr(program, "MOST", 0)
    compiled = tg.compile(tg.value_and_grad(f))
    graph = compiled.program(x).graph
    assert len(graph.steps) > 500
    assert sum(math.prod(n.shape) for n in graph.nodes) < 3 * len(graph.steps)
    for got, expected in zip(compiled(x), tg.value_and_grad(f)(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.long
def test_entries_beside_a_call_without_a_form_are_loops():
    """`np.tril` is none of a loop's calls; the loops before it stay loops, as does their derivative."""
    compiled = tg.compile(tg.value_and_grad(squared))
    assert len(compiled.program(DEFINITE).graph.steps) < 60
    for got, expected in zip(compiled(DEFINITE), tg.value_and_grad(squared)(DEFINITE), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


# ------------------------------------------------------------------------------------------------ at computed places


def _masked(x):
    r = np.zeros(x.shape)
    r[x > 0] = 1.0
    r[(x < -1) | (x > 2)] = 2.0
    r[np.abs(x) < 0.5] = [3.0]
    return np.sum(x * r)


def _updated(x):
    r = np.ones((2, 6))
    r[1, x[:6] > 0] *= 2.0
    r[0][x[:6] < -1] += r[1, x[:6] < -1]
    r[:, np.argsort(x[:6])[:2]] -= 1.0
    return np.sum(x[:6] * r)


def _weights(x):
    w = np.ones(x.shape)
    w[x > 0,] = 0.5
    w[np.abs(x) > 2] = 0
    w /= w.sum()
    return np.sum(w * x**2)


def _one_hot(x):
    m = np.zeros((x.size, 3))
    m[np.arange(x.size), np.clip(np.floor(x), 0, 2).astype(int)] = 1.0
    m[np.argmax(x)] = 2.0
    m[:, 1][x < 0] = 4.0
    return np.sum(x[:, None] * m * [1, 2, 3])


def _placed(x):
    order = np.argsort(x)
    r = np.zeros(x.shape)
    r[order] = np.arange(x.size)
    np.put_along_axis(r, order[:2], 7.0, 0)
    s = np.ones(x.shape)
    np.copyto(s, 5.0, where=x > 0)
    np.putmask(s, x < -1, [7.0, 8.0])
    return np.sum(x * r * s)


def _seen_through_a_view(x):
    y = np.zeros(x.size)
    rows, kept = y.reshape(2, -1), [y]
    y[x > 0] = 1.0
    before = np.sum(y)
    y[x > 1] = 0.5
    return np.sum(rows * x.reshape(2, -1)) + np.sum(kept[0] * x**2) * before


def _labels(x):
    label = np.zeros(len(x), int)
    label[x > 0.3] = 2
    label[x < -0.3] = -1
    kept = np.ones(x.shape, dtype=bool)
    kept[np.argsort(x)[:2]] = False
    np.logical_or(kept, x > 1, out=kept)
    kept |= x < -1
    return np.sum(x * label) + np.sum(np.where(kept, x, 2 * x))


def _ranks(x):
    order = np.argsort(x)
    rank, back = np.empty(order.shape, dtype=int), np.zeros(x.shape, np.int32)
    np.put_along_axis(rank, order, np.arange(len(x)), 0)
    back[order] = np.arange(len(x))
    np.copyto(back, 5, where=x > 0)
    return np.sum(x * (rank < 3)) + np.sum(x**2 * back)


def _counts(x):
    count = np.zeros(4, int)
    np.add.at(count, np.clip(np.floor(2 * x), 0, 3).astype(int), 1)
    return np.sum(x) * np.sum(count[:2]) / count.sum()


@pytest.mark.parametrize(
    "f",
    [
        _labels,
        _ranks,
        _counts,
        _masked,
        _updated,
        _weights,
        _one_hot,
        _placed,
        _seen_through_a_view,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("n", [6, 5000])
def test_constants_stored_at_computed_places_are_stores_of_the_program(f, n):
    """They were looked up when the function was traced: traced anew for each mask, and refused for 4096 entries or more."""
    compiled, value = tg.compile(tg.value_and_grad(f)), tg.compile(f)
    rng = np.random.default_rng(n)
    for _ in range(18):
        x = rng.normal(size=n)
        expected, gradient = tg.value_and_grad(f)(x)
        np.testing.assert_allclose(expected, f(x), rtol=1e-12)
        got = compiled(x)
        np.testing.assert_allclose(got[0], expected, rtol=1e-12)
        np.testing.assert_allclose(got[1], gradient, rtol=1e-12)
        np.testing.assert_allclose(value(x), expected, rtol=1e-12)


def _edges(x, w):
    sums, edges = np.histogram(tg.as_tensor(x).detach(), bins=6, weights=w)
    return np.sum(sums**2) + np.sum(edges)


def _bins(x, w):
    sums, edges = np.histogram(tg.as_tensor(x).detach(), bins=[-1.0, 0.0, 0.3, 1.0], weights=w)
    return np.sum(sums**2 * np.diff(edges))


def _density(x, w):
    x = tg.as_tensor(x).detach()
    density, edges = np.histogram(x, bins=7, range=(-2, 0.5), weights=w, density=True)
    return np.sum(density**2) * edges[1]


def _clipped(x, w):
    bins = np.clip(np.floor(x * 2).astype(int), 0, 3)
    return np.sum(np.bincount(bins, weights=w) ** 2)


@pytest.mark.parametrize("f", [_edges, _bins, _density, _clipped], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [20, 5000])
def test_weighted_counts_of_computed_entries_are_calls_of_the_program(f, n):
    compiled, value = tg.compile(tg.value_and_grad(f, argnums=1)), tg.compile(f)
    rng = np.random.default_rng(n)
    for _ in range(18):
        x, w = rng.normal(size=n), rng.random(n)
        expected, gradient = tg.value_and_grad(f, argnums=1)(x, w)
        got = compiled(x, w)
        np.testing.assert_allclose(got[0], expected, rtol=1e-12)
        np.testing.assert_allclose(got[1], gradient, rtol=1e-12)
        np.testing.assert_allclose(value(x, w), expected, rtol=1e-12)
        direction, h = rng.normal(size=n), 1e-6
        slope = (f(x, w + h * direction) - f(x, w - h * direction)) / (2 * h)
        np.testing.assert_allclose(
            gradient @ direction, slope, rtol=1e-6, atol=1e-6 * abs(expected)
        )
