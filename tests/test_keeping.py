"""What a compiled loop keeps for its derivative: the same gradients, fewer operations, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import keeping
from tests.test_compiler import random_loop

X = np.array([1.3, 0.7, 2.0])
ROWS = np.linspace(-1, 1, 120).reshape(40, 3)


def rates(x, y, z):
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - z * 2.7


def heun(i, s):
    a = rates(*s)
    b = rates(*(u + 0.01 * v for u, v in zip(s, a, strict=True)))
    return tuple(u + 0.005 * (v + w) for u, v, w in zip(s, a, b, strict=True))


def of_numbers(x):
    x, y, z = tg.fori_loop(0, 40, heun, (x[0], x[1], x[2]))
    return x * y + z


def until(x):
    _, *s = tg.while_loop(lambda v: v[0] < 40.5, lambda v: (v[0] + 1.0, *heun(0, v[1:])), (0.5, *x))
    return s[0] * s[1] + s[2]


def of_rows(x):
    """A step that reads rows and what does not change, in loops that run either way."""
    w = np.exp(x[1])

    def step(h, row):
        h = np.tanh(h * w + row * x[0])
        return h * 0.9, np.sin(h) * x

    last, rows = tg.scan(step, x, ROWS)
    last, rows = tg.scan(step, last, rows, reverse=True)
    return np.sum(last) + np.sum(rows[3] * rows[20])


def twice(x):
    """Two loops of as many turns and the same step, which nothing else tells apart than where they begin."""

    def step(i, v):
        return v + 0.1 * np.sin(v * x[1])

    return tg.fori_loop(0, 40, step, x[0]) * tg.fori_loop(0, 40, step, x[2])


def both_ways(x):
    """What is computed of rows alone, which two loops read from either end."""

    def step(v, row):
        return v * (1 + 0.1 * np.tanh(np.exp(row))), v

    up, _ = tg.scan(step, x, ROWS)
    down, vs = tg.scan(step, x, ROWS, reverse=True)
    return np.sum(up * x) + np.sum(down) * np.sum(vs[7] * x)


def after_each_other(x):
    """Two loops of other numbers of turns, whose steps make the same of nothing: rows of zeros, say."""

    def step(i, s):
        return np.tanh(s[0] * 0.9), s[1] * 0.5 + 0.3 * np.sum(s[0]) + ROWS[0, 0] * s[2], s[2] * 0.0

    a = tg.fori_loop(0, 42, step, (x, 0.1, x[0]))
    b = tg.fori_loop(0, 41, step, (a[0] + x[1], a[1], x[2]))
    return np.sum(b[0]) + b[1] + a[2] * b[2]


def cut_in_two(x):
    """A loop in Python that is found as two, as one turn in the middle differs; what its turns make of p is for nothing."""
    v, total, p = x, 0.0, x[1] * np.linspace(0, 1, 90)
    for k in range(84):
        unused = v * p[k] + p[k + 1]
        v = np.tanh(np.maximum(v * 0.9 - 0.5 * v, 0.2))
        total = total * 0.5 + np.sum(v) * 0.3
        if k == 42:
            total = total + np.sum(unused)
            v = v + x[0]
    return np.sum(v) + total


def in_python(x):
    a, b, c = x
    for _ in range(60):
        a, b, c = heun(0, (a, b, c))
    return a * b + c


def within(x):
    def outer(i, s):
        inner = tg.fori_loop(0, 40, lambda j, v: v * 0.9 + np.sin(v * x[1]) * 0.1, s)
        return s * 0.5 + inner * x[0] * 0.3

    return tg.fori_loop(0, 35, outer, x[2])


PROGRAMS = (
    of_numbers,
    until,
    of_rows,
    twice,
    both_ways,
    after_each_other,
    cut_in_two,
    in_python,
    within,
)


@pytest.mark.parametrize("f", PROGRAMS)
def test_gradients(f):
    """As eager ones, and as where nothing is kept."""
    eager = tg.value_and_grad(f)
    compiled = tg.compile(eager)
    for x in (X, X * 0.9, X[::-1].copy()):
        (value, gradient), (expected, theirs) = compiled(x), eager(x)
        np.testing.assert_allclose(value, expected, rtol=1e-11)
        np.testing.assert_allclose(gradient, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("f", PROGRAMS)
def test_hessians(f):
    x = X * 0.8
    np.testing.assert_allclose(tg.compile(tg.hessian(f))(x), tg.hessian(f)(x), rtol=1e-8, atol=1e-9)


@pytest.mark.long
def test_rows_are_those_of_as_many_turns():
    """Behind its last row an array has what was in memory before, which may be right by chance."""
    program, points = random_loop(2)
    compiled = tg.compile(tg.value_and_grad(program, argnums=(0, 1)))
    compiled(*points[0])
    calls = [n for n in compiled.latest.graph.nodes if hasattr(n.function, "loop")]
    assert {call.function.loop.turns for call in calls} == {41, 42}
    for call in calls:
        loop = call.function.loop
        for x, (a, b) in zip(call.inputs[loop.carried + loop.fixed :], loop.indices, strict=True):
            assert 0 <= min(a, a + b * (loop.turns - 1))
            assert max(a, a + b * (loop.turns - 1)) < x.shape[0]


def operations(f, x):
    """How many operations a turn of each loop has, innermost loops left out."""
    compiled = tg.compile(tg.value_and_grad(f))
    compiled(x)
    loops = [n.function.loop for n in compiled.latest.graph.nodes if hasattr(n.function, "loop")]
    return [sum(n.name not in keeping.PLAIN for n in loop.body.nodes) for loop in loops]


def chain(x):
    """Each of three tanh waits for the one before, and its partial needs it."""

    def step(i, v):
        return np.tanh(np.tanh(np.tanh(v * x[1]))) + x[2]

    return np.sum(tg.fori_loop(0, 50, step, x * x[0]))


def test_nothing_is_computed_twice(monkeypatch):
    forward, back = operations(chain, X)
    assert forward == 3
    monkeypatch.setattr(keeping, "MOST_BYTES", 0)
    _, again = operations(chain, X)
    assert again == back + 3


def test_memory_is_bounded(monkeypatch):
    """Three values of three numbers for each of 50 turns, and none more where that is too much."""
    compiled = tg.compile(tg.value_and_grad(chain))
    compiled(X)
    monkeypatch.setattr(keeping, "MOST_BYTES", 3 * 3 * 8 * 50)
    assert len(operations(chain, X)) == 2
    kept = operations(chain, X)
    monkeypatch.setattr(keeping, "MOST_BYTES", 3 * 3 * 8 * 50 - 1)
    assert operations(chain, X)[1] == kept[1] + 3
    monkeypatch.setattr(keeping, "MOST_OPEN", 0)
    less = tg.compile(tg.value_and_grad(until))
    np.testing.assert_allclose(less(X)[1], tg.compile(tg.value_and_grad(until))(X)[1], rtol=1e-12)


def test_infinite_partials():
    """A cotangent of 0 stays 0 at a pole, in a loop as elsewhere."""

    def f(x):
        def step(i, v):
            return tg.where(v > 1.0, np.sqrt(abs(v - 1.0)), v * 0.5) + x[1] * 0.0

        return tg.fori_loop(0, 40, step, x[0])

    x = np.array([1.0, 0.0])
    np.testing.assert_array_equal(tg.compile(tg.grad(f))(x), tg.grad(f)(x))
    assert tg.compile(tg.grad(f))(x)[0] == 0.5**40
