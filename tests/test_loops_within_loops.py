"""Loops whose turns are loops: compiled, the inner ones are rolled first, and the code grows with the length of neither."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import rolling, triangles, turns
from tests.seeds import seeds

X = np.linspace(0.2, 1.1, 6)


def sweeps(x, outer, inner):
    """A pressure that is relaxed to its boundaries in each step of a flow."""
    u, p = x.copy(), 0.1 * x
    for _ in range(outer):
        b = 0.1 * (u[2:] - u[:-2])
        for _ in range(inner):
            old = p.copy()
            p[1:-1] = 0.5 * (old[2:] + old[:-2]) - 0.1 * b
            p[0] = p[1]
            p[-1] = 0
        u[1:-1] = u[1:-1] - 0.3 * (p[2:] - p[:-2]) * u[1:-1]
    return np.sum(u * u) + np.sum(p)


def numbers(x, outer, inner):
    """Factors that change from turn to turn, in both loops."""
    s, total = x[:3] * 1.0, 0.0
    for i in range(outer):
        for k in range(inner):
            s = np.sin(s) * (0.5 + 0.02 * k) + x[3:] / (1.5 + k)
        s = s * (1 - 0.5 / (i + 2))
        total = total + s[0] * i
    return total + np.sum(s)


def numbers_of_both(x, outer, inner):
    """Factors of the inner loop that are others in each turn of the outer one."""
    s = x[:3] * 1.0
    for i in range(outer):
        for k in range(inner):
            s = np.cos(s) * (0.4 + 0.001 * k * i) + 0.1 * x[k % 6]
        s = s + x[3:]
    return np.sum(s * s)


def entries(x, outer, inner):
    """Entries of arrays by the turn of either loop."""
    c, d = np.linspace(0, 1, inner), tg.ones(outer) * x[0]
    s, found = x * 0.5, []
    for i in range(outer):
        for k in range(inner):
            s = s - 0.1 * c[k] * np.tanh(s) * d[i]
        found.append(s[1] * d[i])
        s = s + 0.01 * x
    return np.sum(np.stack(found) ** 2) + np.sum(s)


def histories(x, outer, inner):
    """All values of inner turns are read later, by another loop of loops."""
    rows = []
    s = x * 1.0
    for _ in range(outer):
        row = []
        for _ in range(inner):
            s = 0.9 * s + 0.1 * np.sin(s)
            row.append(s[2] * s[3])
        rows.append(np.stack(row))
    total = 0.0
    for row in rows:
        for k in range(inner):
            total = total + row[k] ** 2 * (1.0 + total * 1e-3)
    return total


def three(x, outer, inner):
    s = x * 0.3
    for _ in range(outer):
        for _ in range(inner):
            t = s * 1.0
            for _ in range(inner):
                t = t + 0.05 * np.sin(t) * x
            s = 0.5 * (s + t)
        s = s / np.sqrt(1 + np.sum(s * s))
    return np.sum(s * x)


def looked_at(x, outer, inner):
    """Python looks at a value in each inner turn."""
    s = x * 0.5
    for _ in range(outer):
        for _ in range(inner):
            s = s + 0.1 * np.sin(s) if np.sum(s) > 1.0 else s * 0.5
        s = 0.9 * s
    return np.sum(s * s)


def triangle(x, outer, inner):
    """Inner loops of another length in each turn."""
    s = x * 0.5
    for i in range(outer):
        for _ in range(inner + i % 3):
            s = s + 0.1 * np.sin(s) * x
        s = 0.9 * s
    return np.sum(s * s)


def two(x, outer, inner):
    """Two inner loops, one of which reads what the other kept; the second goes backward."""
    s = x * 0.5
    for _ in range(outer):
        kept = []
        for _ in range(inner):
            s = np.sin(s) + 0.2 * x
            kept.append(s)
        for a in reversed(kept):
            s = 0.7 * s + 0.1 * a * a
    return np.sum(s * s)


LOOPS = [sweeps, numbers, numbers_of_both, entries, histories, three, two, looked_at, triangle]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Programs of tests are short: what takes seconds to compile takes seconds to record."""
    monkeypatch.setattr(rolling, "WORTH", 60)
    monkeypatch.setattr(rolling, "NESTED", 20)
    monkeypatch.setattr(turns, "NESTED", 20)


def same(f, x, rtol=1e-11):
    """The compiled function, which answers as the plain one does."""
    compiled = tg.compile(f)
    for at in (x, 0.97 * x, x):
        np.testing.assert_allclose(compiled(at), f(at), rtol=rtol, atol=1e-13)
    return compiled


def loops(graph):
    """How deep loops lie within loops."""
    calls = [s.function for s in graph.nodes if isinstance(s.function, rolling.LoopCall)]
    return max((1 + loops(c.loop.body) for c in calls), default=0)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_values_and_gradients(f):
    outer, inner = (8, 7) if f is three else (9, 11)
    same(lambda x: f(x, outer, inner), X)
    same(tg.grad(lambda x: f(x, outer, inner)), X)


@pytest.mark.long
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_second_derivatives(f):
    same(lambda x: tg.hvp(lambda y: f(y, 7, 7))(x, np.cos(X)), X)


@pytest.mark.long
@pytest.mark.parametrize(
    "f", [sweeps, numbers, histories, tg.grad(sweeps), tg.grad(numbers_of_both)]
)
def test_the_code_grows_with_neither_loop(f):
    def length(outer, inner):
        compiled = same(lambda x: f(x, outer, inner), X)
        graph = compiled.latest.graph
        forms = [n.function for n in graph.nodes if triangles.is_call(n)]
        if forms:
            return sum(len(f.compiled.text) for f in forms)
        assert loops(graph) >= 2
        return rolling._length(graph)

    most = length(17, 17)
    assert length(23, 17) <= most and length(17, 23) <= most


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(40), 4))
def test_random_loops(seed):
    """Two or three assignments in each of two inner loops, which read each other's values of this turn and of turns before."""
    rng = np.random.default_rng(seed)
    plan = [
        [
            (
                int(rng.integers(3)),
                int(rng.integers(3)),
                int(rng.integers(4)),
                float(rng.uniform(-0.4, 0.4)),
            )
            for _ in range(rng.integers(1, 4))
        ]
        for _ in range(3)
    ]
    outer, lengths = int(rng.integers(6, 10)), rng.integers(6, 10, 2)
    ops = (np.sin, np.tanh, lambda v: v * v, lambda v: np.roll(v, 1))

    def f(x):
        s = [x * 0.3, x * 0.5, x * 0.1]

        def step(of, k):
            for i, j, op, c in plan[of]:
                s[i] = 0.5 * s[i] + c * ops[op](s[j]) + (0.01 * k if c > 0.2 else 0.0)

        for i in range(outer):
            for k in range(lengths[0]):
                step(0, k)
            step(2, i)
            for k in range(lengths[1]):
                step(1, k)
        return np.sum(s[0] * s[1] + s[2])

    same(f, X)
    same(tg.grad(f), X)
