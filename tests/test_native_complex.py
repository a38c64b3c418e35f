"""Complex numbers in native functions: gradients by real and imaginary part, against differences along both."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tests import native_complex as programs
from tests.test_native_fuzz import interpreted

Z = np.array([0.3 + 0.4j, -0.7 + 0.2j, 0.5 - 0.9j, 0.1 + 1.1j, -0.6 - 0.35j])
X = np.array([0.8, -0.4, 0.6, 1.2, -0.3])


def slope(f, h=1e-4):
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def inner(g, d):
    """<g, d> of pairs: what a change d of z adds to L, if g is dL/da + i dL/db."""
    return np.sum(np.real(np.conj(g) * d))


def random(rng):
    return rng.normal(size=Z.size) + 1j * rng.normal(size=Z.size)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", programs.PROGRAMS, ids=lambda f: f.__name__)
def test_gradient_is_the_derivative(f, rng):
    native = tg.njit(f, mode="adjoint")
    value, (by_z, by_x) = interpreted(native, (Z.copy(), X.copy()), (0, 1))
    dz, dx = random(rng), rng.normal(size=X.size)
    expected = slope(lambda t: f(Z + t * dz, X + t * dx))
    assert np.isclose(value, f(Z.copy(), X.copy()), rtol=1e-12)
    assert np.isclose(inner(by_z, dz) + by_x @ dx, expected, rtol=1e-7)


def running(a, z, x):
    s = 0.0
    w = a
    for k in range(z.size):
        w = w * z[k] + x[k] / (z[k] - 3.0)
        s += abs(w) * x[k] + (w * w).real
    return s


@pytest.mark.long
def test_every_mode(rng):
    """Compiled: numbers and arrays, complex and real together; forward mode; twice on a tape."""
    f = tg.njit(running)
    a, da = 0.4 - 0.3j, 0.3 + 0.7j
    dz, dx = random(rng), rng.normal(size=X.size)
    by_a, by_z, by_x = tg.grad(f, (0, 1, 2))(a, Z, X)
    assert isinstance(by_a, complex) and by_z.dtype == complex and by_x.dtype == float
    expected = slope(lambda t: running(a + t * da, Z + t * dz, X + t * dx))
    assert np.isclose(inner(by_a, da) + inner(by_z, dz) + by_x @ dx, expected, rtol=1e-9)
    assert np.isclose(tg.jvp(f, (a, Z, X), (da, dz, dx))[1], expected, rtol=1e-9)
    z, x = tg.tensor(Z, requires_grad=True), tg.tensor(X, requires_grad=True)
    first = tg.autograd.grad(f(a, z, x), (z, x), create_graph=True)
    along = np.sum(np.real(np.conj(dz) * first[0])) + np.sum(first[1] * dx)
    second = tg.autograd.grad(along, (z, x))

    def gradient(t):
        return tg.grad(f, (1, 2))(a, Z + t * dz, X + t * dx)

    for k in (0, 1):
        assert np.allclose(second[k], slope(lambda t, k=k: gradient(t)[k]), rtol=1e-8, atol=1e-8)


def turned(a, z, x):
    """Complex results: an array and a number; a real array and a count between them."""
    w = np.conj(z) * x
    return w, x * 2.0, 3, a * a * z[0] + w[1]


@pytest.mark.long
def test_complex_results(rng):
    """By all arguments, as PyTorch has it: the tape of the same function of Python is the oracle."""
    a, da, dz, dx = 0.4 - 0.3j, 0.3 + 0.7j, random(rng), rng.normal(size=X.size)
    weights = random(rng)

    def loss(f):
        def of(a, z, x):
            w, y, count, c = f(a, z, x)
            return np.real(np.sum(weights * w) * c) + np.sum(y * y) * count

        return of

    native, given = tg.njit(turned), (a, Z, X)
    value, gradients = tg.value_and_grad(loss(native), (0, 1, 2))(*given)
    expected, by_tape = tg.value_and_grad(loss(turned), (0, 1, 2))(*given)
    assert np.isclose(value, expected, rtol=1e-12)
    for ours, theirs in zip(gradients, by_tape, strict=True):
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        assert np.allclose(ours, theirs, rtol=1e-10)
    ours, theirs = (tg.jvp(f, given, (da, dz, dx))[1] for f in (native, turned))
    assert np.allclose(ours[0], theirs[0]) and np.allclose(ours[3], theirs[3])


def curled(z):
    return z * z * 1j + z.conjugate() * 2.0


@pytest.mark.long
def test_second_derivatives_of_complex_results():
    def loss(f):
        return lambda z: np.real(f(z) * np.conj(f(z))) ** 2

    ours, theirs = (tg.hvp(loss(f))(1 + 2j, 0.3 - 1j) for f in (tg.njit(curled), curled))
    assert np.isclose(ours, theirs, rtol=1e-12)
    ours, theirs = (tg.vjp(f, 1 + 2j)[1](1 + 0.5j)[0] for f in (tg.njit(curled), curled))
    assert ours == theirs


@tg.njit
def beside(x):
    return complex(x, 1.0 / x)


def test_parts_of_a_result_are_apart():
    """An infinite part leaves the other one alone; real arguments have real gradients; in a compiled program too."""
    x = tg.tensor(0.0, requires_grad=True)
    value = beside(x)
    assert value.real.item() == 0.0 and value.imag.item() == np.inf

    def loss(x):
        z = beside(x)
        return np.real(z) * 3.0 + np.imag(z) * 5.0

    assert tg.grad(loss)(2.0) == tg.grad(tg.compile(loss))(2.0) == 3.0 - 5.0 / 4.0
    assert isinstance(beside(tg.tensor(2.0)), tg.Tensor)
    with pytest.raises(tg.NotDifferentiable, match="grad needs a real output"):
        tg.grad(beside)(2.0)


def by_ufuncs(x, k):
    z = x + 1j * k * x
    w = np.add(np.square(z), np.positive(x)) - np.subtract(k, z)
    np.multiply(w, z, w)
    np.add(w, z, w)
    return np.sum(w.real * w.imag)


def chosen_by_size(x, k):
    z = x + 1j * k * x
    total = 0.0
    for _ in range(3):
        if len(z) < 3:
            break
        z = np.add(z * z, x[0])
        far = np.absolute(z) > 30.0
        total += np.sum(z[far].real * z[far].imag)
        np.logical_not(far, far)
        z = z[far]
    return total


@pytest.mark.parametrize("f", [by_ufuncs, chosen_by_size])
def test_ufuncs_and_choices_by_the_size_of_complex_arrays(f):
    x = np.linspace(0.5, 2.0, 6)
    value, (by_x, by_k) = tg.value_and_grad(tg.njit(f), (0, 1))(x, 1.3)
    assert value == pytest.approx(f(x, 1.3), rel=1e-13)
    h, v = 1e-6, np.cos(np.arange(6.0))
    assert by_x @ v == pytest.approx((f(x + h * v, 1.3) - f(x - h * v, 1.3)) / (2 * h), rel=1e-7)
    assert by_k == pytest.approx((f(x, 1.3 + h) - f(x, 1.3 - h)) / (2 * h), rel=1e-7)


def compared_as_a_whole(z, y):
    return np.sum(z[z != y[0]].real)


def shared(z, y):
    z[0] = z[1] * y[0]
    return z[0].real


def normed(z, y):
    return np.linalg.norm(z)


def single(z, y):
    return abs(z[0]) * y[0].real


@pytest.mark.parametrize(
    ("f", "dtype", "told"),
    [
        (normed, complex, "linalg.norm of complex numbers"),
        (compared_as_a_whole, complex, "compare of complex numbers"),
        (single, np.complex64, "Use complex128"),
    ],
    ids=["function", "comparison", "precision"],
)
def test_refused(f, dtype, told):
    z = Z.astype(dtype)
    with pytest.raises(tg.NotDifferentiable, match=told) as error:
        tg.njit(f, mode="adjoint").variant((z, z)).derived((0,))
    assert __file__ in str(error.value)


def test_shared_memory_is_refused():
    with pytest.raises(tg.NotDifferentiable, match="share memory"):
        tg.grad(tg.njit(shared))(Z, Z)
