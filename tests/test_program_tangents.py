"""Forward mode of the program form, first to third order: complex steps, and differences of them, are the measure."""

from unittest import mock

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import checking
from tapegrad.errors import NotDifferentiable
from tapegrad.native import directions
from tapegrad.program import order, tangents
from tests import programs_random as programs
from tests.test_program import TRAPS, arguments, indexed, one, source

STEP = 1e-5


def derivative(text, args, of_order, width=1):
    """Derivatives of a text along `programs.direction` of its arrays, by a program of the form; an array for each."""
    function = tg.njit(mode="form")(programs.defined(text))
    places = tuple(i for i, a in enumerate(args) if programs.floats(a))
    made = directions.along(function.variant(tuple(args)), places, of_order, width)

    def run(args):
        along = [programs.direction(args[i]) for i in places]
        more = () if of_order == 1 else (1.0,)
        if of_order == 3:
            more = (1.0, *along)
        found = made.run(tuple(args), more, [a[None] for a in along])
        assert found is not None, "the form does not have the call"
        return [t[0] for t in found]

    return run


def moved(args, step):
    return [a + step * programs.direction(a) if programs.floats(a) else a for a in args]


def fault(text, args, tangent, second):
    """What is wrong with a tangent and a Hessian's product, or an empty string; None where the point is next to a kink, or steep."""
    with np.errstate(all="ignore"):
        _, along = programs.slopes(text, args)
        apart = []
        for h in (STEP, STEP / 4):
            ends = [np.array(programs.slopes(text, moved(args, s))[1]) for s in (h, -h)]
            apart.append((ends[0] - ends[1]) / (2 * h))
        size = max(1.0, np.abs(apart).max(), np.abs(along).max())
        if not size < 1e5 or np.abs(apart[0] - apart[1]).max() > 1e-6 * size:
            return None
        (found,) = tangent(args)
        bent = second(args)
    if not abs(found - sum(along)) <= 1e-9 * size:
        return f"tangent {found} is {sum(along)}"
    arrays = [a for a in args if programs.floats(a)]
    for h, a, slope in zip(bent, arrays, apart[1], strict=True):
        mine = np.sum(h * programs.direction(a))
        if not abs(mine - slope) <= 1e-6 * size:
            return f"second derivative {mine} is {slope}"
    return ""


CHOSEN = [
    "transposed onto itself", "local row in parts", "kept between turns", "extremes of rows", "an index that a condition guards",
    "a number that a branch leaves for later turns", "array of numbers", "rolled onto itself", "every second", "products of all",
    "where a mask holds", "indices on a ring", "product for each end of a row",
]  # fmt: skip
"""The others of TRAPS are the same in forward mode, which keeps nothing."""


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", CHOSEN)
def test_traps(name):
    """One compilation serves all lengths, and the arguments stay as they were."""
    text = source(TRAPS[name])
    tangent, second = (derivative(text, arguments(5), k) for k in (1, 2))
    for n in (5, 7):
        args = arguments(n)
        before = [a.copy() for a in args]
        assert fault(text, args, tangent, second) == ""
        assert all(np.array_equal(a, b) for a, b in zip(args, before, strict=True))


def told(seed, author=programs.Author):
    """What is wrong with one random program; None where that cannot be told."""
    text, args = author(seed).text(), programs.arguments(seed)
    if author is programs.Indexed:
        args += programs.indices(seed, args[0].size)
    try:
        found = fault(text, args, *(derivative(text, args, k) for k in (1, 2)))
    except NotDifferentiable:
        return None
    return f"{found} (seed {seed})\n{text}" if found else found


@pytest.mark.long
def test_random_programs():
    found = [told(seed) for seed in range(3)]
    found += [told(seed, programs.Together) for seed in (4, 21)]
    assert not any(found), found
    assert "" in found


def never(*_, **__):
    return False


def without_factor(n, k, t):
    """Tangents of products of cotangents and partials without those of the partials."""
    return tangents.const(0.0, n.dtype) if n.op == "strong" and k == 1 else ORIGINAL(n, k, t)


ORIGINAL = tangents._term
FAULTS = {
    "no accesses meet": lambda: mock.patch.object(order.Order, "meet", never),
    "gradients are linear in their partials": lambda: mock.patch.object(tangents, "_term", without_factor),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name):
    """Planted mistakes give wrong numbers: these tests can fail."""
    text, args = source(TRAPS["transposed onto itself"]), arguments(5)
    with FAULTS[name]():
        assert fault(text, args, *(derivative(text, args, k) for k in (1, 2)))


# ------------------------------------------------------------------------------------------ as users ask for it


def growing(x, a):
    y = x.copy()
    for i in range(1, x.size):
        y[i] = (x[i] - np.sum(a[i, :i] * y[:i])) / (2.0 + a[i, i] * y[i - 1])
    return np.sum(y * np.exp(y))


def orbit(x, a):
    u, w = x.copy(), a[0] * 1.0
    for _ in range(5):
        for i in range(1, x.size - 1):
            w[i] = u[i - 1] * u[i + 1] - 0.3 * w[i] * w[i]
        u, w = w, u
    return np.sum(u * u) + np.sum(w)


def slopes(f, x, a):
    """The gradient by `x`, by complex steps."""
    return np.array([f(x + 1e-30j * e, a + 0j).imag / 1e-30 for e in np.eye(x.size)])


def apart(g, x):
    """The differences of `g`, a column for each entry of `x`."""
    ends = ((g(x + STEP * e), g(x - STEP * e)) for e in np.eye(x.size))
    return np.array([(p - q) / (2 * STEP) for p, q in ends]).T


@pytest.fixture(scope="module")
def natives():
    return {f.__name__: one(f) for f in (growing, orbit)}


@pytest.mark.long
@pytest.mark.parametrize("f", [growing, orbit])
def test_jacobians_hessians_and_third_derivatives(f, natives):
    """Several directions in one run, of which the last is not full; reverse over reverse; a third derivative along two directions."""
    native = natives[f.__name__]
    r = np.random.default_rng(0)
    x, a = r.uniform(0.5, 1.5, 6), r.uniform(-0.5, 0.5, (6, 6))
    (d,) = r.normal(size=(1, 6))

    def of_x(x):
        return native(x, a)

    want = apart(lambda x: slopes(f, x, a), x)
    found = tg.hessian(of_x)(x)
    assert np.allclose(found, want, rtol=1e-7, atol=1e-7)
    assert np.allclose(tg.jvp(tg.grad(of_x), (x,), (d,))[1], found @ d, rtol=1e-12)
    assert np.allclose(tg.grad(lambda x: np.sum(tg.grad(of_x)(x) * d))(x), found @ d, rtol=1e-12)
    assert np.allclose(tg.jacobian(of_x, mode="forward")(x), slopes(f, x, a), rtol=1e-12)

    def bent(x):
        return tg.jvp(tg.grad(of_x), (x,), (d,))[1]

    third = tg.grad(lambda x: np.sum(bent(x) * d))(x)
    ends = [tg.hessian(of_x)(x + h * d) @ d for h in (STEP, -STEP)]
    assert np.allclose(third, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-6, atol=1e-6)
    variant = native.variant((x, a))
    assert by_form(variant) and {k[1] for k in variant._along} == {1, 2, 3}


def by_form(variant):
    """Whether all derivatives along directions were made by the form, and none by overloading."""
    made = variant._along.values()
    return all(isinstance(a, directions.Along) for a in made) and not variant._beyond


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_results_and_dtypes(dtype, natives):
    """Of several results, one of which does not vary; numbers, and arrays of any layout."""

    def f(a, b, c):
        e = a.copy()
        for i in range(1, e.shape[0]):
            e[i] += e[i - 1] * b * c
        return np.sum(e * e), e[:, 0] * b[0], np.ones(2), c * c

    r = np.random.default_rng(1)
    x, y = r.random((3, 8)).astype(dtype).T[::2], r.random(6).astype(dtype)[::2]
    given, along = (x, y, 0.5), (r.random((4, 3)).astype(dtype), r.random(3).astype(dtype), 0.25)
    native = one(f)
    value, found = tg.jvp(native, given, along)
    h = 1e-30j if dtype is np.float64 else 1e-3
    wide = [np.asarray(a, np.float64) for a in given]

    def at(h):
        return f(*(a + h * d for a, d in zip(wide, along, strict=True)))

    if dtype is np.float64:
        want = [np.imag(p) / 1e-30 for p in at(h)]
    else:
        want = [(p - q) / (2 * h) for p, q in zip(at(h), at(-h), strict=True)]
    tolerance = 1e-13 if dtype is np.float64 else 1e-5
    for v, t, w in zip(value, found, want, strict=True):
        assert np.asarray(t).dtype == np.asarray(v).dtype and np.shape(t) == np.shape(w)
        assert np.allclose(t, w, rtol=tolerance, atol=tolerance)


@pytest.mark.long
def test_complex_numbers():
    def f(z, w):
        out = np.empty(z.size, np.complex128)
        for i in range(1, z.size):
            out[i] = z[i] * z[i - 1] + w * z[i] * z[i]
        out[0] = z[0] / w
        return out

    r = np.random.default_rng(3)
    z, d = (r.normal(size=4) + 1j * r.normal(size=4) for _ in range(2))
    w, e = 0.3 + 0.8j, 0.5 - 0.2j
    native = one(f)
    _, found = tg.jvp(native, (z, w), (d, e))
    h = 1e-6
    want = (f(z + h * d, w + h * e) - f(z - h * d, w - h * e)) / (2 * h)
    assert np.allclose(found, want, rtol=1e-8, atol=1e-8)
    size = lambda z, w: np.sum(np.abs(native(z, w)) ** 2)  # noqa: E731
    gradient = tg.grad(size, (0, 1))
    _, bent = tg.jvp(gradient, (z, w), (d, e))
    ends = [gradient(z + s * d, w + s * e) for s in (h, -h)]
    for b, p, q in zip(bent, *ends, strict=True):
        assert np.allclose(b, (p - q) / (2 * h), rtol=1e-7, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("f, args", indexed(np.int64), ids=lambda x: getattr(x, "__name__", ""))
def test_indices_read_from_arrays(f, args):
    """Calls with an index below zero have the derivatives of overloading."""
    native, (x, w, *indices) = one(f), args
    d, e = np.cos(np.arange(x.size)), np.sin(np.arange(w.size))
    gradient = tg.grad(lambda x, w: native(x, w, *indices), (0, 1))
    _, bent = tg.jvp(gradient, (x, w), (d, e))
    ends = [gradient(x + s * d, w + s * e) for s in (STEP, -STEP)]
    for b, p, q in zip(bent, *ends, strict=True):
        assert np.allclose(b, (p - q) / (2 * STEP), rtol=1e-7, atol=1e-7)
    slope = sum(np.sum(g * t) for g, t in zip(gradient(x, w), (d, e), strict=True))
    assert np.isclose(tg.jvp(lambda x, w: native(x, w, *indices), (x, w), (d, e))[1], slope)
    variant = native.variant(args)
    assert by_form(variant)


@pytest.mark.long
def test_calls_that_do_not_fit_go_to_overloading():
    """Broadcast by chance: what the program assumes of sizes does not hold, in any order of derivative."""

    def f(x, y, k):
        z = np.empty(x.size)
        z[:] = x * y
        for i in range(1, z.size):
            z[i] += z[k] * z[i - 1]
        return np.sum(z * z)

    native = one(f)
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.2, 0.4])
    for k in (1, -1):
        gradient = tg.grad(lambda x, k=k: native(x, y, k))
        found = tg.hessian(lambda x, k=k: native(x, y, k))(x)
        assert np.allclose(found, apart(gradient, x), rtol=1e-7, atol=1e-7)
        slope = tg.jvp(lambda x, k=k: native(x, y, k), (x,), (y,))[1]
        assert np.isclose(slope, gradient(x) @ y)
    variant = native.variant((x, y, 1))
    assert variant._beyond


@pytest.mark.long
def test_checked_mode(natives):
    with checking.checked():
        native, x, a = one(growing), np.linspace(0.5, 1.0, 4), np.full((4, 4), 0.1)
        bent = tg.jvp(tg.grad(native), (x, a), (np.ones(4), a))[1]
    assert np.allclose(bent, tg.jvp(tg.grad(natives["growing"]), (x, a), (np.ones(4), a))[1])
