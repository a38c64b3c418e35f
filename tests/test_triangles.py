"""Compiled loops whose slices grow or shrink with the turn: they are programs of the form, and derivatives are those of the text."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import program, regions, triangles

N = 20
RNG = np.random.default_rng(7)
LOWER = np.tril(RNG.normal(size=(N, N))) + 2.0 * N * np.eye(N)
MATRIX = RNG.normal(size=(N, N))
VECTOR = RNG.normal(size=N)
SMALL = RNG.normal(size=(9, 9)) + 9.0 * np.eye(9)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """What goes wrong is an error, not a reason to compile calls as they stand."""
    monkeypatch.setattr(program, "STRICT", True)


def buffer(like, *shape):
    """Zeros that take what the loop stores: tensors where tensors come in."""
    return tg.zeros(shape) if isinstance(like, tg.Tensor) else np.zeros(shape, like.dtype)


def trisolv(a, b):
    x = buffer(a, N)
    for i in range(N):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return np.sum(x * x)


def summed(a, b):
    """The first turn multiplies a slice of zeros that no derivative is by."""
    x = buffer(a, N)
    for i in range(N):
        x[i] = (b[i] - np.sum(np.sin(a[i, :i]) * x[:i])) / a[i, i]
    return np.sum(x * x)


def upwards(a, b):
    x = b.copy()
    for i in range(N - 1, -1, -1):
        x[i] = (x[i] - a[i + 1 :, i] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


def from_the_end(a, b):
    x = b.copy()
    for i in range(1, N + 1):
        x[-i] = (x[-i] - 0.1 * (a.T[-i, N - i + 1 :] @ x[N - i + 1 :])) / a[-i, -i]
    return np.sum(x * x)


def stores_around(a, b):
    x = b.copy()
    x[3:6] = b[:3] ** 2
    for i in range(N):
        x[i] = (x[i] - np.sum(a[i, :i] * x[:i])) / a[i, i]
    x[0] = x[1] * 2.0
    return np.sum(np.exp(x)) * np.sum(b)


def factors(a):
    """Of a matrix, by rank-one updates of what is left of it."""
    a = a.copy()
    for k in range(N - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k][:, None] * a[k, k + 1 :]
    return np.sum(a * a)


def overwritten(a):
    a = a.copy()
    for i in range(1, N):
        a[i:, i] = a[i:, i] * a[i:, i - 1]
        a[i:, i - 1] = np.sin(a[i:, i]) ** 2
    return np.sum(a)


def covariance(a):
    a = a - np.mean(a, axis=0)
    c = buffer(a, N, N)
    for i in range(N):
        column = a[:, i] @ a[:, i:] / (N - 1.0)
        c[i:, i] = column
        c[i, i:] = column
    return np.sum(c * c)


def crout(a):
    """Loops in loops, whose numbers of turns grow and shrink."""
    n = a.shape[0]
    a = a.copy()
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return np.sum(a * a)


def gram_schmidt(a):
    n = a.shape[0]
    a, q, r = a.copy(), buffer(a, n, n), buffer(a, n, n)
    for k in range(n):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, n):
            r[k, j] = q[:, k] @ a[:, j]
            a[:, j] -= q[:, k] * r[k, j]
    return np.sum(q**3) + np.sum(r * r)


def between_others(a, b):
    """Before and behind the loop are calls that the form does not have."""
    x = np.linalg.solve(a, b)
    for i in range(N):
        x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
    return np.sum(np.linalg.solve(a, x) ** 2) + np.sum(x)


def zeros_like(a):
    """Zeros of the kind of a tracked matrix, which no derivative goes through."""
    x = np.zeros_like(a)
    for i in range(1, N):
        x[i, :i] = a[i, :i] * a[:i, i]
    return np.sum(x**3)


def from_outside(b):
    """Slices and numbers of a matrix that is no argument."""
    x = buffer(b, N)
    for i in range(N):
        x[i] = (b[i] - LOWER[i, :i] @ x[:i]) / LOWER[i, i]
    return np.sum(x * x)


def from_outside_twice(b):
    """In two loops; the columns of the matrix have gaps."""
    c = buffer(b, N, N)
    for i in range(N):
        for j in range(i + 1):
            c[i, j] = MATRIX[i, j] * (b[: j + 1] @ MATRIX.T[j, : j + 1])
    return np.sum(c * c)


def changed_outside(b):
    """The array from outside is another one from turn to turn: no slice of it is what it was."""
    w, total = np.arange(1.0, N + 1), 0.0
    for i in range(1, N):
        total = total + np.sum(b[:i] * w[:i])
        w *= 1.01
    return total


def carried(a):
    """A number that is carried on, with one that only its turn has."""
    total = 0.0
    for i in range(1, N):
        total = total * 0.9 + np.sum(np.sin(a[i, :i])) / (i + 1)
    return total


def matrices(a, b):
    """Products of a row and a growing part of a matrix, as matrices."""
    x = b.copy()
    for i in range(N):
        x[i : i + 1] = (b[i : i + 1] - a[i : i + 1, :i] @ x[:i]) / a[i, i]
    return np.sum(x * x)


def table(a):
    """Loops in loops of which none grows: a shortest path, entry by entry."""
    n, m = a.shape
    cost = buffer(a, n + 1, m + 1)
    for i in range(1, n + 1):
        cost[i, 0] = 1.5 * i + a[i - 1, 0]
    for j in range(1, m + 1):
        cost[0, j] = 1.2 * j + a[0, j - 1]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            least = np.minimum(np.minimum(cost[i - 1, j], cost[i, j - 1]), cost[i - 1, j - 1])
            cost[i, j] = a[i - 1, j - 1] + 0.9 * least
    return np.sum(cost * cost)


def rotations(a):
    """Givens rotations: pairs of rows, taken by a list, times a matrix that is made of numbers."""
    a = a.copy()
    for j in range(8):
        for i in range(8, j, -1):
            p, q = a[i - 1, j], a[i, j]
            r = np.sqrt(p * p + q * q)
            turn = np.array([[p / r, q / r], [-q / r, p / r]])
            a[[i - 1, i], j:] = turn @ a[[i - 1, i], j:]
    return np.sum((a + 1.0) ** 2)


def exchanged(a):
    """Rows and columns that change places, by lists of numbers up and down, and from the end."""
    a = a.copy()
    for k in range(N - 2):
        a[[k, N - 1]] = a[[N - 1, k]]
        a[k:, [k, k + 1]] = a[k:, [k + 1, k]] * 1.1
        a[k, [-1, -2]] = 0.9 * a[k, [-2, -1]]
        a[k + 1 :, k:] -= 0.1 * np.outer(a[k + 1 :, k], a[k, k:])
    return np.sum(a * a)


def flipped(a, r):
    """Slices in reverse order by NumPy's functions, read, and stored to beside a slice read forwards."""
    a, y = a.copy(), buffer(a, N)
    y[0] = r[0]
    for k in range(1, N):
        s = np.dot(np.flip(r[:k]), y[:k]) / N
        y[:k] += 0.1 * s * np.flip(y[:k])
        y[k] = s + np.sum(np.flip(a[:k, : k + 1], (0, 1)) * a[:k, : k + 1])
        a[k, :k] += 0.1 * np.sum(np.flip(a[:k, :k], axis=1) * np.flipud(a[:k, :k]), axis=-2)
    return np.sum(y * y) + np.sum(a * a)


def contracted(a, b):
    """Products that NumPy makes of matrices with a column: the column grows, and is written at its one index."""
    x = buffer(a, N)
    for k in range(1, N):
        x[:k] += 0.1 * np.inner(a[:k, :k], x[:k]) + np.tensordot(a[k, :k], a[:k, :k], 1) / N
        x[k] = b[k]
    return np.sum(x * x)


def joined(a):
    """Arrays that are joined from parts that grow."""
    a, x = a.copy(), buffer(a, N)
    for k in range(1, N - 1):
        pairs = np.stack([a[k, :k], a[:k, k]], axis=1)
        a[k] = 0.5 * np.concatenate([a[k, :k], [1.0], a[k, k:-1]])
        x[k] = np.sum(pairs @ np.array([a[0, 0], 2.0])) + np.sum(np.vstack((a[k, :k], a[:k, k])))
    return np.sum(a * a) + np.sum(x * x)


def but_for_itself(a):
    """Forces between points: each turn makes distances, and stores to them at a place that moves."""
    force = buffer(a, N, N)
    for i in range(N):
        away = a[i] - a
        squares = np.sum(away * away, axis=1)
        squares[i] = 1.0
        weights = np.exp(-squares / N) / squares
        weights[i] = 0.0
        force[i] = weights @ away
    return np.sum(force * force)


def reflections(a):
    """Householder's, with lengths and signs; one length is 0."""
    r, q = a.copy(), np.eye(9)
    for k in range(8):
        v = r[k:, k].copy()
        v[0] += np.sign(v[0]) * np.linalg.norm(v)
        v /= np.linalg.norm(v)
        r[k:, k:] -= 2.0 * np.outer(v, v @ r[k:, k:])
        q[:, k:] -= 2.0 * np.outer(q[:, k:] @ v, v)
    return np.sum((r + 1.0) ** 2) + np.sum((q + 1.0) ** 3)


def test_householder():
    """By differences: norm and sign of complex numbers are other functions. A length of 0 has the derivative 0, as eagerly."""
    both, eager = tg.compile(tg.value_and_grad(reflections)), tg.value_and_grad(reflections)
    value, gradient = both(SMALL)
    assert calls(both) == 1
    along = np.cos(np.arange(81.0)).reshape(9, 9)
    slope = sum(w * reflections(SMALL + s * 1e-3 * along) for w, s in zip((1, -8, 8, -1), (-2, -1, 1, 2), strict=True)) / 12e-3  # fmt: skip
    assert np.isclose(np.sum(gradient * along), slope, rtol=1e-8)

    def lengths(a):
        x = buffer(a, N)
        for k in range(1, N):
            x[k] = np.linalg.norm(a[k, :k]) + a[0, 0]
        return np.sum(x * x)

    zero = MATRIX.copy()
    zero[3] = 0.0
    both = tg.compile(tg.value_and_grad(lengths))
    np.testing.assert_allclose(both(zero)[1], tg.value_and_grad(lengths)(zero)[1], rtol=1e-12)
    assert calls(both) == 1
    np.testing.assert_allclose(gradient, eager(SMALL)[1], rtol=1e-10, atol=1e-12)


def implicit_steps(b, c):
    """Equal steps, in each of which loops go along the entries of arrays: Thomas's algorithm."""
    n = 4 * N
    a, v = b[0] * np.sin(np.arange(n)), c[1] * np.cos(np.arange(n))
    e, d = buffer(b, n), buffer(b, n)
    for _ in range(5):
        d[1:-1] = a[1:-1] * v[:-2] + 0.7 * v[1:-1] + v[2:]
        for k in range(1, n - 1):
            m = 2.0 + c[0] * a[k] * e[k - 1]
            e[k] = -a[k] / m
            d[k] = (d[k] + a[k] * d[k - 1]) / m
        for k in range(n - 2, 0, -1):
            v[k] = d[k] - e[k] * v[k + 1]
    return np.sum(v * v)


def burgers(u, nu):
    """Each step stores to the same slice, from differences that its reverse computes again."""
    u = u.copy()
    for _ in range(12):
        back, ahead = u[1:-1] - u[:-2], u[2:] - u[1:-1]
        u[1:-1] = u[1:-1] - 0.2 * u[1:-1] * back + 0.01 * nu[1:-1] ** 2 * (ahead - back)
    return np.sum(u * u)


def two_planes(a):
    """Stencils from one array into another and back: what the derivative scatters is gathered."""
    a, b = a.copy(), a.copy()
    for _ in range(8):
        b[1:-1, 1:-1] = 0.2 * a[1:-1, 1:-1] * (a[:-2, 1:-1] + a[2:, 1:-1]) + 0.1 * a[1:-1, 2:]
        a[1:-1, 1:-1] = 0.3 * (b[1:-1, :-2] - b[2:, 1:-1] + b[1:-1, 2:])
    return np.sum(a * b)


def products(x):
    """Of the first entries, one of which is 0, and of all others."""
    t = 0.0 * x[0]
    for i in range(N):
        t = t + np.prod(x[:i]) * x[i] + np.sum(np.cumprod(x[i:]))
        t = t + np.prod(1.05 - np.concatenate([x[:i], x[i + 1 :]]))
    return t


def products_of_rows(a, b):
    t = buffer(a, N)
    for i in range(N):
        t[i] = np.sum(np.prod(b[0] * a[i:, :i], axis=1)) + np.sum(
            np.prod(a[:i, i:], axis=0, keepdims=True)
        )
    return np.sum(t * b)


def running_sums(a, b):
    x = b.copy()
    for i in range(1, N):
        x[i:] = x[i:] + 0.1 * np.cumsum(x[: N - i] * a[i, i:])
        x[i] = (
            x[i]
            + np.cumsum(np.sin(a[:i, i:]), axis=1)[-1, -1]
            + np.sum(np.cumprod(a[:i, :i], axis=0))
        )
    return np.sum(x * x)


PROGRAMS = {
    f.__name__: (f, args)
    for f, args in (
        (trisolv, (LOWER, VECTOR)), (summed, (LOWER, VECTOR)), (upwards, (LOWER, VECTOR)), (from_the_end, (LOWER.T, VECTOR)), (stores_around, (LOWER, VECTOR)),
        (factors, (MATRIX + 3 * N * np.eye(N),)), (overwritten, (MATRIX,)), (covariance, (MATRIX,)), (crout, (SMALL,)),
        (gram_schmidt, (SMALL,)), (between_others, (LOWER, VECTOR)), (zeros_like, (MATRIX,)), (from_outside, (VECTOR,)),
        (from_outside_twice, (VECTOR,)), (carried, (MATRIX,)), (table, (SMALL,)), (matrices, (LOWER, MATRIX[:3].T.copy())),
        (rotations, (SMALL,)), (exchanged, (MATRIX,)), (joined, (MATRIX / N,)), (flipped, (MATRIX / N, VECTOR)), (contracted, (MATRIX / N, VECTOR)), (but_for_itself, (MATRIX,)), (implicit_steps, (VECTOR, VECTOR[:3])),
        (products, (np.where(np.arange(N) == 7, 0.0, 1.0 + 0.3 * VECTOR),)), (products_of_rows, (MATRIX, VECTOR)), (running_sums, (MATRIX / N, VECTOR)),
        (burgers, (VECTOR, VECTOR[::-1].copy())), (two_planes, (np.tile(MATRIX, (3, 3)),)),
    )
}  # fmt: skip


def calls(compiled):
    """Calls of programs of the form in what was compiled last."""
    return sum(map(triangles.is_call, compiled.latest.graph.nodes))


def demand_slope(f, args, value, gradients):
    """Value and gradients are those of NumPy and of the complex step along a direction."""
    rng = np.random.default_rng(1)
    along = [rng.normal(size=a.shape) for a in args]
    step = f(*(a + 1e-30j * d for a, d in zip(args, along, strict=True)))
    assert np.isclose(value, step.real, rtol=1e-12)
    slope = sum(np.sum(g * d) for g, d in zip(gradients, along, strict=True))
    scale = sum(np.sum(np.abs(g * d)) for g, d in zip(gradients, along, strict=True))
    assert abs(slope - step.imag * 1e30) <= 1e-11 * scale


@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient(name):
    f, args = PROGRAMS[name]
    places = tuple(range(len(args)))
    both = tg.compile(tg.value_and_grad(f, argnums=places))
    demand_slope(f, args, *both(*args))
    assert calls(both) == 1 + (f is between_others)  # the gradient's call has the value, too
    args = tuple(1.1 * a + 0.01 * (a != 0) for a in args)
    demand_slope(f, args, *both(*args))


def test_an_array_from_outside_that_changes():
    """Parts of it are what they were when they were read."""
    both = tg.compile(tg.value_and_grad(changed_outside))
    value, gradient = both(VECTOR)
    demand_slope(changed_outside, (VECTOR,), value, (gradient,))


def test_single_precision_from_outside():
    """Numbers of a double-precision matrix are rounded as in NumPy: the result is single where the arguments are."""
    value, gradient = tg.compile(tg.value_and_grad(from_outside))(VECTOR.astype(np.float32))
    expected, other = tg.value_and_grad(from_outside)(VECTOR.astype(np.float32))
    assert (value.dtype, gradient.dtype) == (expected.dtype, other.dtype)
    assert np.isclose(value, expected, rtol=1e-5) and np.allclose(gradient, other, rtol=1e-4)


@pytest.mark.long
def test_equal_turns_are_not_read(monkeypatch):
    """Loops of which no turn grows, in loops as well, are left to those who look for such loops, unread."""
    read = []
    monkeypatch.setattr(triangles, "readings", lambda *given: read.append(given) or iter(()))

    def f(x):
        x, y = x.copy(), x[0]
        for _ in range(12):
            for j in range(1, 5):
                y = y * 0.9 + np.sin(x[j]) * x[j - 1]
                x[j] = x[j] * 0.5 + y
        return y * np.sum(x)

    value, gradient = tg.compile(tg.value_and_grad(f))(VECTOR[:5])
    assert not read
    demand_slope(f, (VECTOR[:5],), value, (gradient,))
    tg.compile(tg.grad(PROGRAMS["trisolv"][0]))(LOWER, VECTOR)
    assert read  # one that grows is


@pytest.mark.long
def test_calls_that_go_straight_to_the_program():
    """Arguments of other kinds, and changes of what the function reads beside them, are noticed as before."""
    scale = [2.0]

    def f(b):
        x = b.copy()
        for i in range(1, N):
            x[i] = x[i] - scale[0] * np.sum(x[:i])
        return np.sum(x * x)

    def demand(b):
        value, gradient = both(b)
        expected, other = tg.value_and_grad(f)(b)
        assert type(value) is type(expected) and gradient.dtype == other.dtype
        assert np.allclose(value, expected, rtol=1e-4) and np.allclose(gradient, other, rtol=1e-4)
        return gradient

    both, b = tg.compile(tg.value_and_grad(f)), 0.1 * VECTOR
    first = demand(b)
    for _ in range(3):
        assert demand(b) is not first  # results are the caller's
    assert type(both).__call__ is both.latest.direct  # nothing of Python's stands between
    demand(np.repeat(b, 2)[::2])
    demand(b.astype(np.float32))
    demand(b)
    scale[0] = 3.0
    demand(b)
    x = tg.tensor(b, requires_grad=True)
    value = tg.compile(f)(x)
    value.backward()
    assert np.allclose(x.grad, tg.grad(f)(b), rtol=1e-10)


def test_a_compiled_function_is_differentiated():
    f, args = PROGRAMS["trisolv"]
    compiled = tg.compile(f)
    demand_slope(f, args, *tg.value_and_grad(compiled, argnums=(0, 1))(*args))
    assert compiled(*args) == compiled(*args)
    assert np.isclose(compiled(*args), f(*args), rtol=1e-14)
    assert calls(compiled) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_by_one_argument(which):
    f, args = PROGRAMS["trisolv"]
    other = tg.value_and_grad(f, argnums=(0, 1))(*args)[1][which]
    assert np.allclose(tg.compile(tg.grad(f, argnums=which))(*args), other, rtol=1e-13)


@pytest.mark.long
def test_layouts_and_dtypes():
    f, (a, b) = PROGRAMS["upwards"]
    both = tg.compile(tg.value_and_grad(f, argnums=(0, 1)))
    value, (da, db) = both(a, b)
    for x, y in ((np.asfortranarray(a), b), (np.repeat(a, 2, 1)[:, ::2], np.repeat(b, 3)[::3])):
        again, (dx, dy) = both(x, y)
        assert np.isclose(value, again, rtol=1e-14)
        assert np.allclose(dx, da, rtol=1e-12) and np.allclose(dy, db, rtol=1e-12)
    value32, (da32, db32) = both(a.astype(np.float32), b.astype(np.float32))
    assert (value32.dtype, da32.dtype, db32.dtype) == ("float32",) * 3
    assert np.allclose(da32, da, rtol=1e-4, atol=1e-6) and np.allclose(db32, db, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13])
def test_every_length(n):
    """One text for all lengths; short loops are compiled as they are."""

    def f(a, b):
        x = b.copy()
        for i in range(n):
            x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
        return np.sum(x * x)

    args = LOWER[:n, :n], VECTOR[:n]
    both = tg.compile(tg.value_and_grad(f, argnums=(0, 1)))
    demand_slope(f, args, *both(*args))


def detached(a, b):
    x = b.copy()
    for i in range(N):
        x[i] = (x[i] - a[i, :i] @ x[:i].detach()) / a[i, i]
    return np.sum(x * x)


def unrecorded(a, b):
    x = b.copy()
    for i in range(N):
        with tg.no_grad():
            s = a[i, :i] @ x[:i]
        x[i] = (x[i] - s) / a[i, i]
    return np.sum(x * x)


def stepped(a, b):
    x = b.copy()
    for i in range(N):
        x[i] = (x[i] - a[i, :i:2] @ x[:i:2]) / a[i, i]
    return np.sum(x * x)


def detached_beside(a, b):
    """One value twice, of which one lets no derivative through."""
    x = b.copy()
    for i in range(1, N):
        y = a[i, :i] * x[:i]
        x[i] = (
            x[i]
            + 1e-3 * (np.sum(y * y.detach()) + y @ y.detach())
            + np.sum(np.where(y > 0, y, y.detach()))
        )
    return np.sum(x * x)


@pytest.mark.parametrize("f", [detached, detached_beside, unrecorded, stepped])
def test_what_stays_as_it_was(f):
    """Where a derivative ends within a turn, or a slice has a step, the loop is no program of the form."""
    both = tg.compile(tg.value_and_grad(f, argnums=(0, 1)))
    value, gradients = both(LOWER, VECTOR)
    expected, others = tg.value_and_grad(f, argnums=(0, 1))(LOWER, VECTOR)
    assert np.isclose(value, expected, rtol=1e-13)
    for g, h in zip(gradients, others, strict=True):
        assert np.allclose(g, h, rtol=1e-12, atol=1e-15)


def solved(b, a):
    x = b * b
    for i in range(b.shape[0]):
        x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
    return np.sum(x**3)


@pytest.mark.long
def test_second_derivatives():
    """They are traced without programs of the form."""
    n = 13
    a, b = LOWER[:n, :n], VECTOR[:n]
    along = np.cos(np.arange(n))
    expected = tg.jvp(tg.grad(solved), (b, a), (along, 0 * a))[1]
    pushed = tg.compile(lambda b, a, v: tg.jvp(lambda x: tg.grad(solved)(x, a), (b,), (v,))[1])
    pulled = tg.compile(lambda b, a, v: tg.grad(lambda x: np.sum(tg.grad(solved)(x, a) * v))(b))
    assert np.allclose(pushed(b, a, along), expected, rtol=1e-11)
    assert np.allclose(pulled(b, a, along), expected, rtol=1e-11)


def test_a_batch_is_several_stretches():
    """What one program makes, another one reads."""
    n = 12
    a, b = LOWER[:n, :n], VECTOR[:n]
    points = np.stack([b, 2 * b])
    compiled = tg.compile(lambda p, a: tg.vmap(lambda b: tg.grad(solved)(b, a))(p))
    expected = [tg.grad(solved)(p, a) for p in points]
    assert np.allclose(compiled(points, a), expected, rtol=1e-12)


@pytest.mark.long
def test_c_functions_call_no_python():
    n = 13
    a, b = LOWER[:n, :n].copy(), VECTOR[:n]
    compiled = tg.compile(tg.grad(solved))
    expected = compiled(b, a)
    assert calls(compiled)
    from ctypes import c_double

    out = (c_double * n)()
    function = compiled.cfunc(b, a)
    assert function.ctypes(n, (c_double * n)(*b), out) == 0
    assert np.allclose(list(out), expected, rtol=1e-13)
    assert compiled.cfunc(b, a) is function


def test_what_is_counted_does_not_grow():
    """The machine code of a solve is as long for forty unknowns as for twenty."""
    lengths = []
    for n in (20, 40):
        a = np.eye(n) + np.tril(np.ones((n, n))) / n
        both = tg.compile(tg.value_and_grad(solved, argnums=(0, 1)))
        both(np.ones(n), a)
        (call,) = filter(triangles.is_call, both.latest.graph.nodes)
        lengths.append(len(call.function.compiled.text.splitlines()))
    assert lengths[0] == lengths[1]


def test_a_fault_leaves_the_calls_as_they_stand(monkeypatch):
    class Broken(triangles.Stretch):
        def __init__(self, *given):
            raise ZeroDivisionError("a fault")

    monkeypatch.setattr(triangles, "Stretch", Broken)
    with pytest.raises(ZeroDivisionError):
        tg.compile(trisolv)(LOWER, VECTOR)
    monkeypatch.setattr(program, "STRICT", False)
    with pytest.warns(RuntimeWarning, match="a fault"):
        found = tg.compile(trisolv)(LOWER, VECTOR)
    np.testing.assert_allclose(found, trisolv(LOWER, VECTOR), rtol=1e-12)


def test_scratch_memory_is_the_forms():
    """It counts as what the thread keeps, and is given back with the rest; the next call makes it anew."""
    from tapegrad.native import kept_bytes, release_memory

    gradient = tg.compile(tg.grad(trisolv))
    first = gradient(LOWER, VECTOR)
    np.testing.assert_array_equal(gradient(LOWER, VECTOR), first)
    assert kept_bytes() > 0
    release_memory()
    assert kept_bytes() == 0
    np.testing.assert_array_equal(gradient(LOWER, VECTOR), first)


def by_entries(a):
    a = a.copy()
    n = a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = np.maximum(a[i, j] - a[i, k] * a[k, j], 0.1)
    return np.sum(a * a)


@pytest.fixture(scope="module")
def reading_by_entries():
    """How many calls were read one by one for two sizes of a program by entries, and what came out."""
    found = []
    read = regions.Reading._of
    for n in (7, 11):
        a = np.random.default_rng(n).uniform(0.5, 1.0, (n, n)) + 2.0 * np.eye(n)
        count = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                regions.Reading,
                "_of",
                lambda self, x, count=count: count.append(x) or read(self, x),
            )
            compiled = tg.compile(tg.value_and_grad(by_entries))
            value, gradient = compiled(a)
        found.append((len(count), a, value, gradient, calls(compiled)))
    return found


@pytest.mark.long
def test_calls_on_numbers_are_read_as_copies_of_the_first(reading_by_entries):
    (few, *_), (many, *_) = reading_by_entries
    assert 0 < many == few


def test_gradient_of_a_program_by_entries(reading_by_entries):
    for _, a, value, gradient, _ in reading_by_entries:
        other, slope = tg.value_and_grad(by_entries)(a)
        assert np.isclose(value, other, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-11, atol=1e-13)


def constants(a):
    """Equal calls with other constants, on other sides, of other signs."""
    y = tg.zeros(a.shape[0])
    for i in range(a.shape[0]):
        y[i] = (np.minimum(2.0, a[i]) - np.minimum(a[i], -0.0)) * np.copysign(1.0, a[i] * -0.0) + (
            1.0 - a[i]
        ) * (a[i] - 1.0)
        for j in range(i):
            y[i] = y[i] + a[j] * 0.5 if (i + j) % 2 else y[i] - 0.5 * a[j]
    y[0] = 0.0
    y[1] = -0.0
    return np.sum(y * y) + np.copysign(1.0, y[1])


@pytest.mark.long
def test_constants_of_calls_on_numbers():
    a = np.random.default_rng(3).normal(size=9)
    value, gradient = tg.compile(tg.value_and_grad(constants))(a)
    other, slope = tg.value_and_grad(constants)(a)
    assert np.isclose(value, other, rtol=1e-14)
    np.testing.assert_allclose(gradient, slope, rtol=1e-13)


# ------------------------------------------------------------------------------------------------ values that each turn looks at


def rotations(a, sweeps):
    """Cyclic Jacobi rotations, which leave out what is small already."""
    a = a.copy()
    n = len(a)
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(a[p, q]) < 1e-12:
                    continue
                theta = 0.5 * np.arctan2(2 * a[p, q], a[q, q] - a[p, p])
                c, s = np.cos(theta), np.sin(theta)
                x, y = a[:, p].copy(), a[:, q].copy()
                a[:, p] = c * x - s * y
                a[:, q] = s * x + c * y
                x, y = a[p, :].copy(), a[q, :].copy()
                a[p, :] = c * x - s * y
                a[q, :] = s * x + c * y
    return np.sum(np.diag(a) ** 2 * np.arange(n)) + np.sum(a[0])


def positive_steps(a, b):
    """A triangular solve that halves what is below zero: half of the truth values are True."""
    x = b.copy()
    for i in range(N):
        x[i] = (x[i] - 0.1 * (a[i, :i] @ x[:i])) / a[i, i]
        if x[i] < 0.0:
            x[i] *= 0.5
    return np.sum(x * x)


def programs_of(f):
    return sum(map(len, f.programs.by_key.values()))


def symmetric(n):
    a = np.random.default_rng(n).normal(size=(n, n))
    return a @ a.T / n + np.eye(n)


@pytest.mark.parametrize("sweeps", [1, 4])
def test_turns_that_each_look_at_a_truth_value_are_loops_with_one_guard(sweeps):
    """All rotations are a call of the form, and one of its gradient: the first turn reads the memory that it stores to, as all others do."""
    matrix = symmetric(8)
    gradient = tg.value_and_grad(lambda a: rotations(a, sweeps))
    compiled, value = tg.compile(gradient), tg.compile(lambda a: rotations(a, sweeps))
    for x in (matrix, matrix * 1.25):
        np.testing.assert_allclose(compiled(x)[0], rotations(x, sweeps), rtol=1e-12)
        np.testing.assert_allclose(compiled(x)[1], gradient(x)[1], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(value(x), rotations(x, sweeps), rtol=1e-12)
    for f, calls in ((compiled, 2), (value, 1)):
        assert programs_of(f) == 1
        whole = f.program(matrix)
        assert sum(map(triangles.is_call, whole.graph.nodes)) == calls
        assert len(whole.guards) == 1 and "test_triangles.py" in whole.guards[0].where
        assert len(list(whole.graph.nodes)) < 40


def test_the_one_guard_of_many_truth_values_holds_for_none_that_differs():
    """A matrix for which one rotation is left out takes a program of its own."""
    matrix = symmetric(7)
    sparse = matrix.copy()
    sparse[0, 1] = sparse[1, 0] = 0.0
    compiled = tg.compile(lambda a: rotations(a, 1))
    for a in (matrix, sparse, matrix):
        np.testing.assert_allclose(compiled(a), rotations(a, 1), rtol=1e-12)
    assert programs_of(compiled) == 2


def test_guards_of_both_truth_values_are_counted_together():
    """Turns that differ by what was looked at are no loop, and the guards hold as they did."""
    f = tg.compile(tg.value_and_grad(positive_steps, (0, 1)))
    eager = tg.value_and_grad(positive_steps, (0, 1))
    moved = VECTOR.copy()
    moved[7] = -moved[7]
    for b in (VECTOR, moved, VECTOR):
        for ours, theirs in zip(f(LOWER, b)[1], eager(LOWER, b)[1], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(f(LOWER, b)[0], positive_steps(LOWER, b), rtol=1e-12)
    assert programs_of(f) == 2


def pivoted(a, b, place=np.argmax):
    """Elimination with row swaps by where a column is largest, if that is another row."""
    n = len(b)
    m = np.hstack([a, b.reshape(-1, 1)])
    for k in range(n):
        p = k + place(np.abs(m[k:, k]))
        if p != k:
            m[[k, p]] = m[[p, k]]
        for i in range(k + 1, n):
            m[i, k:] -= m[i, k] / m[k, k] * m[k, k:]
    x = buffer(a, n)
    for i in range(n - 1, -1, -1):
        x[i] = (m[i, -1] - m[i, i + 1 : n] @ x[i + 1 :]) / m[i, i]
    return np.sum(x * x)


def substituted(a, b):
    x = buffer(a, len(b))
    for i in range(len(b) - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


def rows_at_once(a, b):
    a, b = a.copy(), b.copy()
    for k in range(len(b)):
        p = np.argmax(np.abs(a[k:, k])) + k
        a[[k, p]] = a[[p, k]]
        b[[k, p]] = b[[p, k]]
        for i in range(k + 1, len(b)):
            m = a[i, k] / a[k, k]
            a[i, k:] -= m * a[k, k:]
            b[i] -= m * b[k]
    return substituted(a, b)


def rows_by_copies(a, b):
    a, b = a.copy(), b.copy()
    for k in range(len(b) - 1):
        p = np.argmin(-np.abs(a[k:, k])) + k
        row = a[k].copy()
        a[k] = a[p]
        a[p] = row
        b[k], b[p] = b[p], b[k]
        m = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k:] -= m[:, None] * a[k, k:]
        b[k + 1 :] -= m * b[k]
    return substituted(a, b)


def jordan(a, b):
    """Parts of rows, and a right side beside the matrix."""
    m = np.hstack([a, b.reshape(-1, 1)])
    for k in range(len(b)):
        p = k + np.argmax(np.abs(m[k:, k]))
        m[[k, p], k:] = m[[p, k], k:]
        m[k, k:] = m[k, k:] / m[k, k]
        for i in range(len(b)):
            if i != k:
                m[i, k:] -= m[i, k] * m[k, k:]
    return np.sum(m[:, -1] ** 2)


def columns_too(a, b):
    """The largest of a row: columns change places, and what is last read is at a place."""
    a, y = a.copy(), buffer(a, len(b))
    for k in range(len(b)):
        p = k + np.argmax(np.abs(a[k, k:]))
        a[:, [k, p]] = a[:, [p, k]]
        y[k] = a[k, k] + b[p] * a[np.argmin(a[:, k]), k]
        a[k + 1 :] -= np.outer(a[k + 1 :, k] / a[k, k], a[k])
    return np.sum(y * y)


@pytest.mark.parametrize("f", [rows_at_once, rows_by_copies, jordan, columns_too])
def test_rows_at_places_that_the_program_finds(f):
    """One program serves all pivots, ties too."""
    eager = tg.value_and_grad(f, (0, 1))
    compiled, value = tg.compile(eager), tg.compile(f)
    rng = np.random.default_rng(2)
    for k in range(6):
        a = rng.normal(size=(N, N))
        a = a if k % 2 else np.round(2 * a) + 0.01 * np.eye(N)
        (ours, gradients), (expected, others) = compiled(a, VECTOR), eager(a, VECTOR)
        assert np.isclose(ours, expected, rtol=1e-9)
        assert np.isclose(value(a, VECTOR), expected, rtol=1e-9)
        for mine, theirs in zip(gradients, others, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9 * np.max(np.abs(theirs)))
    assert programs_of(compiled) == programs_of(value) == 1
    assert calls(compiled) == calls(value) == 1
    assert not compiled.latest.guards


@pytest.mark.parametrize("f", [rows_at_once, rows_by_copies])
def test_a_hook_anywhere_leaves_places_to_the_program(f):
    """While a tensor has a hook, tapes drop at once what nobody can ask for: the entries from which places come."""
    x = tg.tensor(2.0, requires_grad=True)
    y = x * 3.0
    handle = y.register_hook(lambda g: g)
    compiled = tg.compile(tg.value_and_grad(f, (0, 1)))
    eager = tg.value_and_grad(f, (0, 1))
    rng = np.random.default_rng(5)
    for _ in range(3):
        a = rng.normal(size=(N, N))
        for mine, theirs in zip(compiled(a, VECTOR)[1], eager(a, VECTOR)[1], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9 * np.max(np.abs(theirs)))
    assert programs_of(compiled) == calls(compiled) == 1
    handle.remove()


def test_turns_that_compare_a_place():
    """Whether rows change places is looked at in each turn, which a guard holds; pivots elsewhere take no other program."""
    n = 30
    f = tg.value_and_grad(pivoted, (0, 1))
    compiled = tg.compile(f)
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(n, n)), rng.normal(size=n)
    for given in (a, a + 1e-3 * rng.normal(size=(n, n)), a[::-1].copy()):
        (value, gradients), (expected, others) = compiled(given, b), f(given, b)
        assert np.isclose(value, expected, rtol=1e-9)
        for mine, theirs in zip(gradients, others, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9 * np.max(np.abs(theirs)))
    assert calls(compiled) == 1
    assert len(compiled.latest.guards) == 1


def test_a_place_is_that_of_the_first_nan():
    def f(x):
        y = buffer(x, 3 * N)
        for k in range(2, 3 * N):
            y[k] = x[np.argmax(x[:k])] + 2.0 * x[np.argmin(x[k - 2 :]) + k - 2]
        return y

    compiled = tg.compile(f)
    x = np.cos(np.arange(3 * N))
    for at in ((), (4,), (7, 3), (0,), (3 * N - 1,)):
        given = x.copy()
        given[list(at)] = np.nan
        np.testing.assert_array_equal(compiled(given), f(given))
    assert calls(compiled) == 1


def test_an_index_out_of_bounds_that_the_program_would_find_is_an_error():
    def f(x):
        y = buffer(x, 3 * N)
        for k in range(2, 3 * N):
            y[k] = x[np.argmax(x[:k]) + 1]
        return y

    compiled = tg.compile(f)
    x = -np.arange(3.0 * N)[: 3 * N - 1]
    np.testing.assert_array_equal(compiled(x), f(x))
    with pytest.raises(IndexError):
        compiled(-x)


def test_a_tape_is_looked_through_once_for_all_stretches_that_are_no_loops(monkeypatch):
    made, tried = [], []
    tape, entries = triangles._Tape.__init__, triangles._Entries.__init__
    monkeypatch.setattr(triangles._Tape, "__init__", lambda *a: (made.append(1), tape(*a))[1])
    monkeypatch.setattr(
        triangles._Entries, "__init__", lambda *a: (tried.append(1), entries(*a))[1]
    )
    # An order only NumPy tells: a stretch ends at each.
    f = tg.value_and_grad(lambda a, b: pivoted(a, b, lambda x: np.argsort(x)[-1]), (0, 1))
    value, gradients = tg.compile(f)(MATRIX, VECTOR)
    np.testing.assert_allclose(value, pivoted(MATRIX, VECTOR), rtol=1e-10)
    for ours, theirs in zip(gradients, f(MATRIX, VECTOR)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10)
    assert len(tried) > 10
    assert len(made) <= 3
