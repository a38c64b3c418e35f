"""Sums of outer products over the turns of a loop are one product behind it: the gradients are those of the loop as it is written."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import outer

RNG = np.random.default_rng(5)
W, U = RNG.normal(size=(2, 70, 70)) / 12
H, X = RNG.normal(size=70), RNG.normal(size=(40, 70))


def recurrent(w, u, h, x):
    """A network with two matrices; the first one has a part in the loss as well."""
    for t in range(len(x)):
        h = np.tanh(w @ h + u @ x[t])
    return np.sum(h * h) + np.sum(np.sin(w)) / 9


def scanned(w, u, h, x):
    def step(h, x):
        h = np.tanh(w @ h + u @ x)
        return h, h

    last, every = tg.scan(step, h, x)
    return np.sum(every**3) + np.sum(last * h)


def scaled(w, u, h, x):
    """The cotangent of a multiple of a matrix, of which the sign is turned as well."""
    for t in range(len(x)):
        h = 0.85 * w @ h * np.cos(h) + (-u) @ x[t]
    return np.sum(h * h)


def from_the_left(w, u, h, x):
    """Vectors before matrices, of which one is not square; the cotangent of a row is a column."""
    v = w[:65]
    for t in range(len(x)):
        h = h * 0.5 + np.sin(h[:65] @ v) * (x[t] @ u)
    return np.sum(h * h)


def entry_by_entry(w, u, h, x):
    """A matrix that each turn also reads by entries: its sum has another term, and stays."""
    for t in range(len(x)):
        h = np.tanh(w @ h + np.sum(w * w) * 0.001 + x[t])
    return np.sum(h * h)


def small(w, u, h, x):
    for _ in range(len(x)):
        h = np.tanh(w[:9, :9] @ h[:9])
    return np.sum(h * h)


@pytest.fixture
def moved(monkeypatch):
    """How many sums went behind each loop."""
    found = []
    sums = outer._sums
    monkeypatch.setattr(outer, "_sums", lambda loop: (s := sums(loop), found.append(len(s)))[0])
    return found


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (recurrent, 2),
        (scanned, 2),
        (scaled, 2),
        (from_the_left, 2),
        (entry_by_entry, 0),
        (small, 0),
    ],
)
def test_gradients(f, count, moved, monkeypatch):
    monkeypatch.setattr("tapegrad.compiler.rolling.WORTH", 100)
    eager = tg.value_and_grad(f, (0, 1, 2, 3))
    compiled = tg.compile(eager)
    for k in (1.0, 0.7):
        (value, gradients), (expected, theirs) = compiled(W * k, U, H, X), eager(W * k, U, H, X)
        assert np.isclose(value, expected, rtol=1e-12)
        for mine, other in zip(gradients, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    assert max(moved) == count
    assert not compiled.report().calls


def test_nan_and_infinity(moved, monkeypatch):
    """What is not finite in one turn is in the product as it is in the sum."""
    monkeypatch.setattr("tapegrad.compiler.rolling.WORTH", 100)

    def f(w, h, x):
        for t in range(len(x)):
            h = h * 0.25 + (w @ h) * x[t]
        return np.sum(h)

    eager = tg.value_and_grad(f)
    compiled = tg.compile(eager)
    for bad in (np.nan, np.inf):
        x = X.copy()
        x[30, 3] = bad
        with np.errstate(all="ignore"):
            found, expected = compiled(W, H, x)[1], eager(W, H, x)[1]
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert max(moved) == 1
