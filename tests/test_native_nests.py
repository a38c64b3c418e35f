"""Stencils gathered in reverse: the same numbers as the loops they stand for, and those loops wherever the promise does not hold."""

import ast
import itertools
import textwrap

import numpy as np
import pytest

import tapegrad as tg
from bench.native_models import burgers, heat, rosenbrock
from tapegrad.native import merging, nests, origins

pytestmark = pytest.mark.usefixtures("generated_adjoint")


def advection(x, p, steps):
    """Unequal offsets, parameters in an array, a store that is shifted."""
    n = x.size
    u, w = x.copy(), x.copy()
    for _ in range(steps):
        for i in range(3, n - 2):
            w[i - 1] = p[0] * u[i - 3] * u[i + 1] - p[1] * np.sin(u[i]) + 0.5 * u[i + 2]
        u, w = w, u
    return np.sum(u * u)


def clipped(x, limit):
    """Branches that read elements of their own, and terms that are subtracted."""
    n, m = x.shape
    out = np.zeros((n, m))
    for i in range(1, n - 2):
        for j in range(2, m - 1):
            d = x[i, j] - x[i, j - 2]
            if d > limit:
                flux = d * x[i + 2, j + 1]
            elif d > 0.0:
                flux = d * d - x[i - 1, j]
            else:
                flux = 0.0
            out[i, j] = flux - 2.0 * x[i, j] * x[i, j + 1]
    return np.sum(out * out)


def columns(x, c):
    """Cotangents of a row that every row of another array adds to."""
    n, m = x.shape
    s = 0.0
    for i in range(n):
        for j in range(1, m):
            s += (c[j] - 2.0 * c[j - 1]) * x[i, j] ** 2
    return s


def layers(x, k):
    n, m, o = x.shape
    y = np.zeros((n, m, o))
    for a in range(n):
        for i in range(1, m - 1):
            for j in range(1, o - 1):
                y[a, i, j] = x[a, i - 1, j] * x[a, i, j + 1] + k * x[a, i + 1, j] * x[a, i, j - 1]
    return np.sum(y * y * y)


def around(x):
    """Indices that wrap around: counted from the end."""
    n, m = x.shape
    y = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i - 1, j] * x[i, j - 1]
    return np.sum(y * y)


def in_place(x, steps):
    """Two names of one array: every pass reads what the pass before it wrote."""
    n, m = x.shape
    u = x.copy()
    w = u
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                w[i, j] = 0.25 * u[i - 1, j] * u[i, j - 1] + 0.5 * u[i + 1, j] + 0.1 * u[i, j + 1]
    return np.sum(u * u)


def named(x):
    """The names that gathered loops use are taken."""
    column = 2.0
    s = 0.0
    for i in range(x.size - 1):
        s += column * x[i] * x[i + 1]
    return s


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """No loop is merged with its reverse: then there would be none to gather in."""
    monkeypatch.setattr(merging, "place", lambda nodes: -1)


G = np.random.default_rng(5)
CASES = {
    "rosenbrock": (rosenbrock, (G.normal(size=41),), (0,), True),
    "heat": (heat, (G.normal(size=(9, 14)), 0.1, 4), (0, 1), True),
    "burgers": (burgers, (G.normal(size=(9, 14)), 0.1, 4), (0, 1), True),
    "advection": (advection, (G.normal(size=37), np.array([0.3, 0.2]), 3), (0, 1), True),
    "clipped": (clipped, (G.normal(size=(11, 17)), 0.7), (0,), True),
    "columns": (columns, (G.normal(size=(7, 13)), G.normal(size=13)), (1,), True),
    "layers": (layers, (G.normal(size=(2, 7, 11)), 0.4), (0, 1), True),
    "around": (around, (G.normal(size=(6, 9)),), (0,), True),
    "in place": (in_place, (G.normal(size=(7, 8)), 2), (0,), True),
    "named": (named, (G.normal(size=30),), (0,), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gathered(name, monkeypatch):
    """The gradient is that of the loops as they come, and along a direction the difference quotient."""
    f, args, wanted, gathered = CASES[name]
    with monkeypatch.context() as patch:
        patch.setattr(nests, "widened", lambda source, *_: source)
        value, plain = tg.value_and_grad(tg.njit(f), wanted)(*args)
    # Small enough that several strips, and what is left of the last, take part.
    monkeypatch.setattr(nests, "_LEAST", 1)
    monkeypatch.setattr(nests, "_STRIP", 5)
    native = tg.njit(f)
    same, found = tg.value_and_grad(native, wanted)(*args)
    assert ("_nest_1(" in native.adjoint_source) == gathered
    assert same == value
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=np.shape(args[i])) for i in wanted]

    def at(t):
        moved = dict(
            zip(
                wanted,
                (args[i] + t * d for i, d in zip(wanted, directions, strict=True)),
                strict=True,
            )
        )
        return native(*(moved.get(i, a) for i, a in enumerate(args)))

    h = 1e-6  # no element crosses a kink
    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    along = sum(np.sum(d * g) for d, g in zip(directions, found, strict=True))
    np.testing.assert_allclose(along, slope, rtol=1e-6)


def test_short_loops_stay():
    """Below the least length the loop runs as it was, by the same compiled code."""
    gradient = tg.grad(tg.njit(rosenbrock))
    for n in (2, 3, 200, 300, 1300):
        x = G.normal(size=n)
        expected = np.zeros(n)
        expected[:-1] = -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
        expected[1:] += 200 * (x[1:] - x[:-1] ** 2)
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (2, 7), (3, 2), (3, 3), (4, 9)])
def test_grids_with_next_to_nothing_inside(shape):
    """Where nothing is to be asked, the loops as they were are left out, and short ones gathered too."""
    native = tg.njit(heat)
    u, kappa, steps = G.normal(size=shape), 0.1, 3
    found, by_kappa = tg.grad(native, (0, 1))(u, kappa, steps)
    assert "u_bar[i + 1, j] +=" not in native.adjoint_source
    h = 1e-30
    assert np.isclose(by_kappa, np.imag(_heat(u, kappa + 1j * h, steps)) / h, rtol=1e-11)
    for place in np.ndindex(*shape):
        moved = u.astype(complex)
        moved[place] += 1j * h
        slope = np.imag(_heat(moved, kappa, steps)) / h
        assert np.isclose(found[place], slope, rtol=1e-11, atol=1e-13)


def _heat(u, kappa, steps):
    """`heat` in complex numbers."""
    u = u + 0j
    for _ in range(steps):
        w = u.copy()
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
        if inner.size:
            w[1:-1, 1:-1] += kappa * inner
        u = w
    return np.sum(u**2)


def origins_of(text):
    """Pairs of the names in it that are apart where `here` is said."""
    function = ast.parse(f"def f(p):\n{textwrap.indent(text, '    ')}").body[0]
    [here] = [n for n in ast.walk(function) if isinstance(n, ast.Expr)]
    names = sorted({n.id for n in ast.walk(function) if isinstance(n, ast.Name)} & set("abcp"))
    found = origins.Origins(function, names)
    pairs = itertools.combinations(names, 2)
    return {x + y for x, y in pairs if found.apart(x, y, here)}


LINES = {
    "made": ("a = p.copy()\nb = np.empty(3)\nhere()", {"ab", "ap", "bp"}),
    "viewed": ("a = p.copy()\nb = a[1:]\nc = b\nhere()", {"ap"}),
    "exchanged": ("a = p.copy()\nb = p.copy()\nfor _ in range(3):\n    here()\n    t = a\n    a = b\n    b = t", {"ab", "ap", "bp"}),
    "of three": ("a = p.copy()\nb = p.copy()\nc = p.copy()\nwhile c[0]:\n    here()\n    t = a\n    a = b\n    b = c\n    c = t", {"ab", "ac", "ap", "bc", "bp", "cp"}),
    "one in the end": ("a = p.copy()\nb = p.copy()\nfor _ in range(3):\n    here()\n    t = a\n    a = b\n    b = p", set()),
    "a branch": ("a = p.copy()\nif p[0]:\n    b = a\nelse:\n    b = p.copy()\nhere()", {"ap", "bp"}),
    "a break": ("a = p.copy()\nb = p.copy()\nwhile True:\n    if p[0]:\n        b = a\n        break\n    b = p.copy()\nhere()", {"ap", "bp"}),
    "taken from a list": ("a = p.copy()\nb = p.copy()\nb = kept.pop()\nc, a = 1, b\nhere()", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_what_shares_no_memory(name):
    text, expected = LINES[name]
    assert origins_of(text) == expected


def test_bounds_checks_are_kept():
    """A function that asks for bounds checks gets them in its derivative, whose loops stay as they are."""
    checked = tg.njit(rosenbrock, boundscheck=True)
    tg.grad(checked)(G.normal(size=5))
    assert "_nest_" not in checked.adjoint_source


def test_second_derivatives():
    """They are derived from the adjoint as it comes."""
    x = G.normal(size=300)
    direction = G.normal(size=300)
    native = tg.njit(rosenbrock)
    h = 1e-6
    gradient = tg.grad(native)
    slope = (gradient(x + h * direction) - gradient(x - h * direction)) / (2 * h)
    np.testing.assert_allclose(tg.hvp(native)(x, direction), slope, rtol=1e-5, atol=1e-2)
