"""Compiled loops over regions that move: reversed and strided slices, columns, outer products, calls that no loop may hold among them."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import program, triangles

RNG = np.random.default_rng(11)
SIZES = (1, 2, 3, 4, 5, 7, 16)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """What goes wrong is an error, not a reason to compile calls as they stand."""
    monkeypatch.setattr(program, "STRICT", True)


def matrix(n, m=None):
    return np.random.default_rng(n).uniform(0.2, 1.0, (n, m or n)) + 2.0 * np.eye(n, m or n)


def vector(n):
    return np.random.default_rng(n).uniform(0.2, 1.0, n)


def outer(c, a, b):
    """Outer products with slices, which have no entries in the first turn and one in the second."""
    c = 1.2 * c
    for i in range(len(c)):
        c[:i] += 1.5 * np.outer(a[i, :i], b[i])
        c[i] += 1.5 * (b[i] * a[i, i] + a[i, :i] @ b[:i])
    return np.sum(c * c)


def columns(a):
    """Slices that shrink to one entry, and to none."""
    a = a.copy()
    n = a.shape[1]
    q, r = tg.zeros(a.shape), tg.zeros((n, n))
    for k in range(n):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        r[k, k + 1 :] = q[:, k] @ a[:, k + 1 :]
        a[:, k + 1 :] -= q[:, k].reshape(-1, 1) * r[k, k + 1 :].reshape((1, -1))
    return np.sum(r * r) + np.sum((q * a) ** 2)


def backwards(r):
    """A slice that is read from its end, beside the same one read forwards and stored to."""
    n = len(r)
    y = tg.zeros(n)
    y[0] = -r[0]
    for k in range(1, n):
        alpha = -0.3 * (r[k] + r[k - 1 :: -1] @ y[:k])
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha
    return np.sum(y * y)


def stored_backwards(x):
    y = x.copy()
    for k in range(1, len(x)):
        y[k::-1] = 0.7 * y[: k + 1] + x[k] * 0.1 * x[k::-1]
    return np.sum(y**3)


def by_twos(x):
    """Every second entry of slices that grow, and of these every third one, backwards."""
    y = x.copy()
    for k in range(1, len(x) // 6):
        y[: 2 * k : 2] = np.sin(y[1 : 2 * k : 2]) + 0.1 * x[6 * k : 0 : -2][2::3]
        y[2 * k] = np.sum(y[: 2 * k : 2]) * 0.1
    return np.sum(y * y)


def outside(x):
    """Parts of an array from outside, backwards and by steps, and a part of a part."""
    y, w = x.copy(), np.linspace(0.1, 1.0, 3 * len(x) + 4)
    for k in range(1, len(x)):
        y[k] = x[k] * (w[k::-1] @ y[: k + 1]) + w[2:][: 3 * k : 3] @ x[:k] + w[::-1][k]
    return np.sum(y * y)


def masked(data):
    """A store to entries that a test picks stands before the loop."""
    n, m = data.shape
    s = np.std(data, axis=0)
    s[s <= 0.1] = 1.0
    data = (data - np.mean(data, axis=0)) / (np.sqrt(n) * s)
    c = tg.eye(m)
    for i in range(m - 1):
        c[i + 1 :, i] = c[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
    return np.sum(c * c)


def masked_between(a, b):
    """Such a store between two loops."""
    x = b.copy()
    for i in range(len(b)):
        x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
    x[x > 0.5] *= 0.5
    for i in range(len(b) - 1, -1, -1):
        x[i] = (x[i] - a[i + 1 :, i] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


def two_numbers(r):
    """Numbers that a turn hands to the next one, of which one is read twice."""
    n = len(r)
    y = tg.zeros(n)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, n):
        beta *= 1.0 - alpha * alpha
        alpha = -0.3 * (r[k] + r[k - 1 :: -1] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha
    return np.sum(y * y) + alpha * beta


def numbers_long_ago(x):
    """Numbers that are read three turns later."""
    y = x.copy()
    a, b, c = x[0], 0.5, x[0] * x[0]
    for k in range(1, len(x)):
        a, b, c = np.sin(x[k]) + 0.3 * np.mean(y[:k]) * c, a, b
        y[k:] += 0.1 * a
    return np.sum(y * y) + b


def columns_by_name(x):
    """Columns that a turn hands to the next one."""
    y = tg.zeros(x.shape)
    a = b = 0.1 * x[:, 0]
    for j in range(1, x.shape[1]):
        a, b = np.sin(x[:, j]) * 0.5 + 0.3 * a + 0.2 * b, a
        y[:, j] = a * b
    return np.sum(y * y)


def shortest(path):
    """A row and a column that move, of an array that each turn changes."""
    path = path.copy()
    for k in range(len(path)):
        path[:] = np.minimum(path, np.add.outer(path[:, k], path[k]))
    return np.sum(path * path)


def filtered(x):
    """Sweeps along columns and then along rows, forwards and backwards."""
    y, z = np.empty_like(x), tg.zeros(x.shape)
    y[:, 0] = x[:, 0]
    for j in range(1, x.shape[1]):
        y[:, j] = 0.4 * x[:, j] + 0.2 * x[:, j - 1] + 0.5 * y[:, j - 1]
    for j in range(x.shape[1] - 2, -1, -1):
        z[:, j] = 0.3 * y[:, j + 1] + 0.5 * z[:, j + 1]
    z += y
    for i in range(1, len(x)):
        z[i] += 0.3 * z[i - 1]
    for i in range(len(x) - 2, -1, -1):
        z[i] += 0.3 * z[i + 1]
    return np.sum(z * z)


def implicit(x):
    """Sweeps in a loop of steps; one recurrence has only numbers, which come from outside, an array in each turn."""
    n = x.shape[1]
    u = x.copy()
    p, q = np.zeros(x.shape), np.zeros(x.shape)
    for _ in range(5):
        for j in range(1, n):
            m = 0.3 * p[:, j - 1] + 2.0
            p[:, j] = 0.4 / m
            q[:, j] = (u[:, j] + 0.3 * q[:, j - 1]) / m
        for j in range(n - 2, -1, -1):
            u[:, j] = p[:, j] * u[:, j + 1] + q[:, j]
    return np.sum(u * u)


def windowed(x):
    """Slices of three entries that move, and a filter from outside."""
    y, w = x.copy(), np.array([0.3, -0.2, 0.1])
    for j in range(2, len(x) - 2):
        y[j - 1 : j + 2] += np.sin(y[j : j + 3]) * w * y[j - 2 : j + 1]
    return np.sum(y * y)


PROGRAMS = {
    outer: lambda n: (matrix(n), matrix(n), matrix(n)),
    columns: lambda n: (matrix(n + 2, n),),
    backwards: lambda n: (vector(n),),
    stored_backwards: lambda n: (vector(n),),
    by_twos: lambda n: (vector(6 * n),),
    outside: lambda n: (vector(n),),
    masked: lambda n: (matrix(n + 2, n),),
    masked_between: lambda n: (matrix(n), vector(n)),
    two_numbers: lambda n: (vector(n),),
    numbers_long_ago: lambda n: (vector(n),),
    columns_by_name: lambda n: (matrix(n, n + 1),),
    shortest: lambda n: (vector(n * n).reshape(n, n),),
    filtered: lambda n: (matrix(n + 1, n),),
    implicit: lambda n: (matrix(n, n + 1),),
    windowed: lambda n: (vector(2 * n),),
}
NAMES = {f.__name__: f for f in PROGRAMS}


def demand_plain(f, args, exact=1e-11):
    """A compiled function's value and gradients are those of the tape."""
    places = tuple(range(len(args)))
    compiled = tg.compile(tg.value_and_grad(f, argnums=places))
    expected, others = tg.value_and_grad(f, argnums=places)(*args)
    for _ in range(2):
        value, gradients = compiled(*args)
        assert np.isclose(value, expected, rtol=1e-12, atol=1e-14)
        for g, other in zip(gradients, others, strict=True):
            scale = max(np.max(np.abs(other), initial=0.0), 1e-300)
            np.testing.assert_allclose(g, other, rtol=exact, atol=exact * scale)
    return compiled


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_at_every_length(name):
    f = NAMES[name]
    for n in SIZES[f is masked :]:  # of one column, all is constant
        demand_plain(f, PROGRAMS[f](n))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_is_generated_does_not_grow(name):
    f = NAMES[name]
    places = tuple(range(len(PROGRAMS[f](2))))
    counts = []
    for n in (20, 32):
        compiled = tg.compile(tg.value_and_grad(f, argnums=places))
        compiled(*PROGRAMS[f](n))
        graph = compiled.latest.graph
        assert any(map(triangles.is_call, graph.nodes))
        counts.append(len(graph.steps))
    assert counts[0] == counts[1] <= 60


def test_arrays_that_turns_make_are_not_watched():
    """Nobody else has them, so that no call looks whether they have changed; the tape that held them is gone."""
    compiled = tg.compile(tg.value_and_grad(implicit))
    compiled(matrix(8))
    assert not any(w.how == "array" for w in compiled.latest.around)


@pytest.mark.long
def test_values_of_which_some_are_carried_on_alone():
    """Few values of a place in the turn are left for a column, where most have the memory of the one before."""

    def f(p):
        kept, s, loss = [], p[0], 0.0
        y = tg.zeros(71)
        for k in range(70):
            s = np.sin(s) * p[1] + 0.1
            kept.append(s)
            y[k : k + 2] += s
        for i in range(70):
            s = s * 0.5 + kept[i] * kept[69 - i]
            loss = loss + s * s
        for _ in range(70):
            s = s * s * 0.3 + p[2] * s + 0.2
        return loss + s + np.sum(y * y)

    demand_plain(f, (np.array([0.3, 0.5, 0.2]),))


@pytest.mark.long
def test_settings():
    """Whole numbers among the arguments: others are another program, by position or not."""

    def f(x, steps, power=1, scale=2):
        y = x.copy()
        for _ in range(steps):
            for j in range(1, x.shape[1]):
                y[:, j] += 0.1 * np.sin(y[:, j - 1]) ** power * scale
        return np.sum(y * y)

    compiled, tape, x = tg.compile(tg.value_and_grad(f)), tg.value_and_grad(f), matrix(9)
    for given, named in (
        ((3,), {}), ((3,), {"scale": 3}), ((3, 3), {}), ((3,), {"power": 3}), ((2,), {}), ((True,), {}), ((1,), {}),
        ((), {"steps": 2}), ((2, 1, 2), {}), ((), {"steps": 2, "scale": 1}),
    ):  # fmt: skip
        for _ in range(3):
            value, gradient = compiled(x, *given, **named)
            expected, other = tape(x, *given, **named)
            assert np.isclose(value, expected, rtol=1e-12)
            np.testing.assert_allclose(gradient, other, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_second_order(name):
    f = NAMES[name]
    args = PROGRAMS[f](8)

    def length(*args):
        return np.sum(tg.grad(f, argnums=len(args) - 1)(*args) ** 2)

    places = tuple(range(len(args)))
    found = tg.compile(tg.grad(length, argnums=places))(*args)
    for g, other in zip(found, tg.grad(length, argnums=places)(*args), strict=True):
        np.testing.assert_allclose(g, other, rtol=1e-9, atol=1e-9 * np.max(np.abs(other)))


def one_other_turn(x, odd):
    y = x.copy()
    for k in range(1, len(x)):
        part = y[k - 1 :: -1] if k != odd else y[:k]
        y[:k] = 0.5 * y[:k] + x[k] * part
    return np.sum(y * y)


def one_other_number(x, odd):
    y = x.copy()
    for k in range(1, len(x)):
        y[:k] += (0.1 if k != odd else 0.2) * y[k - 1 :: -1]
    return np.sum(y * y)


def one_other_place(x, odd):
    y = x.copy()
    for k in range(2, len(x)):
        y[:k] += 0.1 * x[k - 1 - (k == odd)] * y[k - 1 :: -1]
    return np.sum(y * y)


def one_other_extent(x, odd):
    """Slices of one entry, which spread, where the others have as many as what they are added to."""
    y = x.copy()
    for k in range(2, len(x)):
        y[:k] += 0.1 * (x[k - 1 :: -1] if k != odd else x[k : k - 1 : -1])
    return np.sum(y * y)


def one_other_carried(x, odd):
    y, a, b = x.copy(), x[0], x[1]
    for k in range(1, len(x)):
        a, b = x[k] * np.sum(y[:k]) * 0.2 + 0.3 * (a if k != odd else b), a
        y[:k] += 0.1 * a * b
    return np.sum(y * y)


def one_other_constant(x, odd):
    y = x.copy()
    for k in range(1, len(x) - 1):
        w = np.array([0.1, 0.2 / k, 0.3]) if k != odd else np.array([0.3])
        y[k - 1 : k + 2] += w * y[k - 1 : k + 2] * y[k]
    return np.sum(y * y)


def one_other_direction(x, odd):
    y = np.outer(x, x)
    for k in range(1, len(x)):
        if k != odd:
            y[:, k] += 0.5 * y[:, k - 1]
        else:
            y[k] += 0.5 * y[k - 1]
    return np.sum(y * y)


@pytest.mark.long
@pytest.mark.parametrize(
    "f",
    [
        one_other_carried,
        one_other_constant,
        one_other_direction,
        one_other_turn,
        one_other_number,
        one_other_place,
        one_other_extent,
    ],
)
def test_one_turn_that_differs(f):
    for n, odd in ((12, 2), (12, 3), (12, 6), (12, 10), (12, 11), (20, 9)):
        demand_plain(lambda x, odd=odd: f(x, odd), (vector(n),))


@pytest.mark.long
def test_bounds_that_data_decide():
    """Slices end where Python has looked; other data are another program."""

    def f(x):
        y = x.copy()
        for k in range(1, len(x)):
            stop = k if x[k] > 0.5 else k - 1
            y[:stop] += 0.1 * y[:stop][::-1]
        return np.sum(y * y)

    compiled = tg.compile(tg.value_and_grad(f))
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0.0, 1.0, 14)
        value, gradient = compiled(x)
        expected, other = tg.value_and_grad(f)(x)
        assert np.isclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, other, rtol=1e-12)


@pytest.mark.long
def test_views_of_what_is_stored_to():
    """A view that was taken before a loop shows what the loop stores."""

    def f(x):
        y = x.copy()
        back, twos = y[::-1], y[::2]
        for k in range(1, len(x)):
            y[:k] += 0.1 * back[:k]
            twos[0] = twos[0] * 0.9 + back[k] * 0.1
        return np.sum(y * y)

    demand_plain(f, (vector(15),))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(12))
def test_random_slices(seed):
    """Random affine slices with steps, of stores that overlap what they read."""
    rng = np.random.default_rng(seed)
    n, turns = 40, 9
    texts = []
    for _ in range(4):
        a, b, s = rng.integers(0, 20), rng.integers(-1, 2), rng.choice([-3, -2, -1, 1, 2, 3])
        length, grows = rng.integers(1, 4), rng.integers(0, 2)
        texts.append((a, b, s, length, grows))

    def region(k, a, b, s, length, grows):
        size = length + grows * k
        first = a + b * k + 10
        span = (size - 1) * abs(s)
        first = min(max(first, 0), n - 1 - span) if seed % 2 else first % max(n - span, 1)
        stop = first + span
        return slice(first, stop + 1, s) if s > 0 else slice(stop, first - 1 if first else None, s)

    slices = [
        (*(region(k, *t[:3], *texts[0][3:]) for t in texts[:3]), region(k, *texts[3]))
        for k in range(turns)
    ]

    def f(x):
        y = x.copy()
        for k in range(turns):
            to, one, two, other = slices[k]
            y[to] = 0.6 * y[one] + np.sin(y[two]) * x[k]
            y[other] *= 0.9
        return np.sum(y * y * x)

    demand_plain(f, (np.random.default_rng(seed + 100).uniform(0.2, 1.0, n),))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_random_values_that_are_handed_on(seed):
    """Random recurrences of numbers and columns with random lags, in a loop of steps or not, beside columns that move."""
    rng = np.random.default_rng(seed)
    n, steps, turns = 16, int(rng.choice([1, 4])), 14
    lags = rng.integers(1, 4, 5)
    order = rng.permutation(3)
    back = bool(rng.integers(0, 2))
    moves = rng.integers(0, 2, 3)

    def f(x):
        y = x.copy()
        numbers, columns = [x[0, 0]] * 3, [0.1 * x[:, 0]] * 3
        for _ in range(steps):
            for k in range(turns - 1, 0, -1) if back else range(1, turns):
                for which in order:
                    if which == 0:
                        a = np.sin(numbers[-lags[0]]) * 0.5 + y[k, k - moves[0]] * numbers[-lags[1]]
                        numbers.append(a * 0.3)
                    elif which == 1:
                        c = 0.3 * columns[-lags[2]] + y[:, k + moves[1]] * columns[-lags[3]]
                        columns.append(c * numbers[-1] * 0.5)
                    else:
                        y[:, k] += 0.2 * columns[-lags[4]] * y[:, k - 1 + moves[2]]
        return np.sum(y * y) + numbers[-2] + np.sum(columns[-3])

    compiled = demand_plain(f, (rng.uniform(0.2, 1.0, (n, n)),))
    assert any(map(triangles.is_call, compiled.latest.graph.nodes))
