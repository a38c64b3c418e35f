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


def shared(z, y):
    z[0] = z[1] * y[0]
    return z[0].real


def returned(z, y):
    return z[0] * y[0]


def normed(z, y):
    return np.linalg.norm(z)


def single(z, y):
    return abs(z[0]) * y[0].real


@pytest.mark.parametrize(
    ("f", "dtype", "told"),
    [
        (returned, complex, "returns a complex number"),
        (normed, complex, "linalg.norm of complex numbers"),
        (single, np.complex64, "Use complex128"),
    ],
    ids=["result", "function", "precision"],
)
def test_refused(f, dtype, told):
    z = Z.astype(dtype)
    with pytest.raises(tg.NotDifferentiable, match=told) as error:
        tg.njit(f, mode="adjoint").variant((z, z)).derived((0,))
    assert __file__ in str(error.value)


def test_shared_memory_is_refused():
    with pytest.raises(tg.NotDifferentiable, match="share memory"):
        tg.grad(tg.njit(shared))(Z, Z)
