"""`dtype=` and conversions between float32 and float64 in Numba code: both engines that are generated from the source take them."""

import numba
import numpy as np
import pytest

import tapegrad as tg


@numba.njit
def blank(n, dtype):
    return np.zeros((n, n), dtype=dtype)


def of_the_arguments_type(x):
    """Buffers as NumPy authors make them."""
    y = np.empty(x.shape, dtype=x.dtype)
    z, one = np.zeros((x.size, x.size), x.dtype), np.ones_like(x, dtype=x.dtype)
    kind = x.dtype
    w = np.full(x.size, 0.5, dtype=kind)
    for i in range(x.size):
        y[i] = x[i] * x[i - 1]
        z[i, :] = y[i] * x
    return np.sum(z * z) + np.sum(one * y) * np.sum(w * x)


def diagonals(x):
    a = np.eye(x.size, dtype=x.dtype)
    b = np.identity(x.size, dtype=np.float64)
    for i in range(x.size - 1):
        a[i + 1 :, i] = a[i, i + 1 :] = x[i] * x[i + 1 :]
    return np.sum(a * a * a) + np.sum(np.dot(x, x) * b)


def listed(x):
    a = np.array([x[0], x[1] * x[1]], dtype=x.dtype)
    b = np.array([[x[2], x[0]], [x[1], x[3]]], dtype=np.float64)
    return np.sum(np.dot(b, b)) * np.sum(a * np.arange(2, dtype=np.float64))


def filled(x):
    a = np.full((2, x.size), x[0], dtype=x.dtype)
    b = np.full_like(x, x[1], dtype=x.dtype)
    return np.sum(a * x) + np.sum(b * x * np.linspace(x[2], x[3], x.size))


def converted(x):
    """A copy, whatever the type was; truth values and whole numbers become floats."""
    y = x.copy()
    z = y.astype(x.dtype)
    y[:] = 0.0
    mask = (x > 0.5).astype(x.dtype)
    return np.sum(z * z * mask) + np.sum(np.arange(4).astype(np.float64) * z) + np.sum(y)


def handed_on(x):
    a = blank(x.size, x.dtype)
    a[0] = x * x
    return np.sum(a * x)


def divided_product(x, n=3.0):
    """A product of matrices in float32, divided by a number in float64: its cotangent comes in float64."""
    a = np.outer(x, x)
    c = np.zeros((4, 4), dtype=x.dtype)
    for i in range(4):
        c[i:, i] = c[i, i:] = a[:, i] @ a[:, i:] / (n - 1.0)
    return np.sum(c * c)


def narrowed_product(x):
    """A product in float64 whose values go on in float32: its cotangent comes in float32."""
    a = np.outer(x, x)
    return np.sum((np.dot(a, a) * 0.25).astype(np.float32) ** 2)


def in_double(x):
    """`narrowed_product` without its step to float32, whose rounding differences would see."""
    return np.sum((np.outer(x, x) @ np.outer(x, x) * 0.25) ** 2)


PROGRAMS = (
    of_the_arguments_type, diagonals, listed, filled, converted, handed_on, divided_product, narrowed_product,
)  # fmt: skip
X = np.array([0.3, 0.71, 0.55, 0.9])


def differences(f, x, h=1e-3):
    """Differences of fourth order."""

    def along(d):
        return (8 * (f(x + d) - f(x - d)) - (f(x + 2 * d) - f(x - 2 * d))) / (12 * h)

    return np.array([along(d) for d in h * np.eye(x.size)])


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["form", "adjoint"])
def test_gradients_in_both_precisions(f, mode):
    compiled = tg.njit(f, mode=mode)
    expected = differences(in_double if f is narrowed_product else f, X)
    gradient = tg.grad(compiled)(X.copy())
    assert gradient.dtype == np.float64
    assert np.allclose(gradient, expected, rtol=1e-5 if f is narrowed_product else 1e-8)
    short = tg.grad(compiled)(X.astype(np.float32))
    assert short.dtype == np.float32 and np.allclose(short, expected, rtol=1e-4)


@pytest.mark.parametrize("f", [of_the_arguments_type, diagonals, listed], ids=lambda f: f.__name__)
def test_second_derivatives(f):
    """They are programs of the form, which had no word for a dtype."""
    expected = differences(tg.grad(f), X)
    assert np.allclose(tg.hessian(tg.njit(f))(X.copy()), expected, rtol=1e-7, atol=1e-9)
