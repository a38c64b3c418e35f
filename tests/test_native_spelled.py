"""Functions of NumPy's that are written out as programs, and linear algebra: both engines against differences of NumPy's values."""

import cmath
import os

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import NotDifferentiable
from tests.seeds import campaigns_but
from tests.test_native_fuzz import interpreted
from tests.test_native_numpy import slopes

X = np.array([0.31, 1.42, 0.77, 1.13, 0.52, 1.68])
WEIGHTS = np.cos(np.arange(60.0))
PLACES = np.array([0, 2, 2, 5])


def moved(x):
    a, v = x.reshape(2, 3), x[:3]
    s = np.sum(np.append(v, x[1]) * WEIGHTS[:4]) + np.sum(np.append(a, v) * WEIGHTS[:9])
    s += np.sum(np.insert(x, 2, x[0] * x[1]) * WEIGHTS[:7]) + np.sum(np.delete(x, PLACES) ** 2)
    s += np.sum(np.repeat(v, np.array([1, 2, 3])) * WEIGHTS[:6]) + np.sum(
        np.roll(a, 2) * a * np.rot90(a, 2)
    )
    return s + np.sum(np.resize(x, (3, 3)) * WEIGHTS[:9].reshape(3, 3)) + np.sum(np.take(x, PLACES))


def joined(x):
    a = x.reshape(2, 3)
    s = np.sum(np.concatenate((a, a * a), axis=1) * WEIGHTS[:12].reshape(2, 6))
    s += np.sum(np.stack((x, x * x), 1) * WEIGHTS[:12].reshape(6, 2))
    s += np.sum(np.dstack((a, a * a)) * WEIGHTS[:12].reshape(2, 3, 2))
    s += np.sum(np.column_stack((a, x[:2])) * WEIGHTS[:8].reshape(2, 4))
    return s + np.sum(np.broadcast_to(x[:3], (4, 3)) * WEIGHTS[:12].reshape(4, 3))


def statistics(x):
    a = x.reshape(2, 3)
    s = np.percentile(x, 30.0) * np.quantile(x, 0.8) + np.median(a) * np.ptp(a)
    s += np.sum(np.percentile(x, np.array([10.0, 77.0])) * WEIGHTS[:2])
    s += np.sum(np.cov(a) * WEIGHTS[:4].reshape(2, 2)) + np.corrcoef(x[:3], x[3:])[0, 1]
    return s + np.average(x[:3], weights=x[3:]) + np.cov(x[:4], x[2:], bias=True)[0, 1]


def without_nan(x):
    y = x * 1.5
    y[2] = np.nan
    s = np.nansum(y) * np.nanmean(y) + np.nanvar(y) + np.nanstd(y) * np.nanprod(y)
    s += np.nanmax(y) * np.nanmin(y) + np.nanmedian(y) + np.nanpercentile(y, 40.0)
    return s + np.sum(np.nancumsum(y) * WEIGHTS[:6]) + np.sum(np.nan_to_num(y, nan=2.0) ** 2)


def products(x):
    a, b, v = x.reshape(2, 3), x.reshape(3, 2), x[:3]
    s = np.sum(np.kron(a, b) * WEIGHTS[:36].reshape(6, 6)) + np.sum(np.kron(v, v) * WEIGHTS[:9])
    s += np.sum(np.cross(a, v) * a) + np.sum(np.outer(a, v) * WEIGHTS[:18].reshape(6, 3))
    return s + np.sum(np.cumprod(a) * WEIGHTS[:6])


def filtered(x):
    v, two = x[:3] * x[1], x[4:]
    s = np.sum(np.convolve(x, v, "same") * x) + np.sum(np.convolve(v, two, "valid") ** 2)
    s += np.sum(np.correlate(x, v, "full") * WEIGHTS[:8]) + np.sum(np.correlate(x, v) ** 2)
    s += np.sum(np.correlate(x, two, "same") * x) + np.sum(np.correlate(two, x, "same") * x)
    return s + np.sum(np.convolve(v, x, "full") * WEIGHTS[:8])


def ordered(x):
    a = x.reshape(2, 3)
    s = np.sum(np.sort(a) * WEIGHTS[:6].reshape(2, 3)) + np.sum(np.unique(x) * WEIGHTS[:6])
    s += np.sum(np.union1d(x[:3], x[2:]) * WEIGHTS[:6]) + np.sum(np.setdiff1d(x, x[:2]) ** 3)
    s += np.sum(np.diff(x, 2) * WEIGHTS[:4]) + np.sum(np.ediff1d(x, x[0]) * WEIGHTS[:6])
    return s + np.trapezoid(x, x * x) + np.trapezoid(x, dx=x[0]) + np.sum(np.unwrap(4 * x) ** 2)


def chosen(x):
    low, high = x < 0.6, x < 1.2
    s = np.sum(np.select([low, high], [x * x, x[::-1] * 2.0], 3.0) * WEIGHTS[:6])
    s += np.sum(np.bincount(np.array([0, 1, 1, 2, 0, 3]), weights=x * x) * WEIGHTS[:4])
    s += np.sum(np.interp(x, np.array([0.0, 1.0, 2.0]), x[:3]) * x) + np.sum(np.sinc(x) * x)
    s += np.sum(np.vander(x[:3], 4) * WEIGHTS[:12].reshape(3, 4))
    return s + np.sum(np.geomspace(x[0], x[1], 5) * WEIGHTS[:5]) + np.sum(np.logspace(x[0], 1.0, 3))


def iterated(x):
    a = x.reshape(2, 3)
    s = 0.0
    for (i, j), v in np.ndenumerate(a):
        s += v * v * (i + 2 * j)
    for v in a.flat:
        s += v**3
    k = 1.0
    for v in sorted(x):
        s += k * v
        k += 1.0
    a.flat[2] = x[0] * s
    np.fill_diagonal(a, x[5])
    return s * max(x) - min(x) + np.sum(a * a)


def factors(x):
    """Products that do not depend on the signs of vectors."""
    a = x.reshape(2, 3)
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    first = np.outer(u[:, 0] * s[0], vt[0])
    return np.sum(first * a * WEIGHTS[:6].reshape(2, 3)) + s[0] * s[1] ** 2


def solutions(x):
    a, b = x.reshape(2, 3), x.reshape(3, 2)
    q, r = np.linalg.qr(b)
    s = np.sum(np.abs(q) * b) + np.sum(np.abs(r)) + np.linalg.norm(a, 1)
    s += np.sum(np.linalg.pinv(a) * b * WEIGHTS[:6].reshape(3, 2))
    return s + np.sum(np.linalg.lstsq(b, x[3:] ** 2)[0] * WEIGHTS[:2])


def solutions_of_what_is_kept(x):
    """The smaller of two singular values is left out, though it is not 0."""
    b = x.reshape(3, 2)
    return np.sum(np.linalg.pinv(b, 0.9).T * b * b) + np.sum(
        np.linalg.lstsq(b, x[3:] ** 2, 0.9)[0] * WEIGHTS[:2]
    )


def of_matrices(x):
    square = np.dot(x.reshape(2, 3), x.reshape(3, 2)) + np.diag(x[:2])
    s = np.linalg.norm(square, 2) * np.linalg.cond(square)
    return s + np.sum(np.linalg.matrix_power(square, -3) * WEIGHTS[:4].reshape(2, 2))


def complex_numbers(x):
    z = complex(x[0], x[1])
    s = cmath.asin(z) * cmath.acosh(z) + cmath.atanh(z)
    size, angle = cmath.polar(z * cmath.log10(z))
    s += cmath.rect(size, angle) * type(z)(2.0)
    return s.real * s.imag + np.angle(z, True)


def more_complex_numbers(x):
    z = complex(x[0], x[1])
    s = cmath.acos(z) * cmath.asinh(z) + cmath.atan(z) + np.expm1(z) * np.log1p(z)
    return np.sum((np.arcsin(x + 1j * x[2]) * s).real)


def few(x):
    a, v = x.reshape(2, 3), x[:3]
    return np.sum(np.append(v, x[1]) * WEIGHTS[:4]) + np.sum(np.kron(a, a)[1])


def several(x):
    s = np.sum(np.select((x < 0.6, x < 1.2), (x * x, x[::-1] * 2.0), 3.0) * WEIGHTS[:6])
    return s + np.sum(np.bincount(np.array([0, 1, 1, 2, 0, 3]), weights=x * x) * WEIGHTS[:4])


ALL = bool(os.environ.get("TAPEGRAD_SPELLED"))
"""Asks for every function; a few stand for them otherwise, because Numba compiles each of NumPy's for seconds."""
BOTH = (
    few,
    several,
    *[moved, joined, statistics, without_nan, products, filtered, ordered, chosen] * ALL,
)
ALONE = (
    factors,
    complex_numbers,
    *[solutions, solutions_of_what_is_kept, of_matrices, more_complex_numbers, iterated] * ALL,
)


def check(f, mode):
    native = tg.njit(f, mode=mode)
    value, gradient = tg.value_and_grad(native)(X.copy())
    assert np.isclose(value, f(X.copy()), rtol=1e-12)
    assert np.allclose(gradient, slopes(lambda x: f(x.copy()), X), rtol=1e-7, atol=1e-7)
    return native, gradient


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but((several,), (*BOTH, *ALONE)))
def test_written_out(f):
    native, gradient = check(f, "adjoint")
    along = np.cos(np.arange(6.0))
    if f not in (several, iterated):  # the one is like the others, the other writes to its argument
        assert np.isclose(tg.jvp(native, (X.copy(),), (along,))[1], gradient @ along, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("f", (few, factors, complex_numbers), ids=lambda f: f.__name__)
def test_written_out_as_python_runs_it(f):
    """Numba compiles each for ten seconds and more, in campaigns."""
    value, (gradient,) = interpreted(tg.njit(f, mode="adjoint"), (X.copy(),), (0,))
    assert np.isclose(value, f(X), rtol=1e-12)
    assert np.allclose(gradient, slopes(f, X), rtol=1e-7, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but((several,), BOTH))
def test_written_out_for_overloading(f):
    check(f, "overload")


@pytest.mark.campaign
def test_second_derivatives():
    f = tg.njit(lambda x: np.sum(np.kron(x, x) * WEIGHTS[:4]))
    assert np.allclose(tg.hessian(f)(X[:2]), slopes(tg.grad(f), X[:2]), rtol=1e-6, atol=1e-6)


def shares_its_argument(x):
    y = np.broadcast_to(x, (2, 6))
    x[0] = 3.0
    return np.sum(y)


def many_columns(x):
    return np.sum(np.linalg.svd(x.reshape(2, 3))[2] ** 3)


def of_unknown_order(x, unique):
    """What the flag says decides what is computed."""
    return np.sum(np.setdiff1d(x, x[:2], unique))


@pytest.mark.long
def test_what_is_refused():
    with pytest.raises(NotDifferentiable, match="setdiff1d"):
        tg.grad(tg.njit(of_unknown_order))(X.copy(), True)
    with pytest.raises(NotDifferentiable, match="may be memory of its argument"):
        tg.grad(tg.njit(shares_its_argument, mode="adjoint"))(X.copy())
    with pytest.raises(ValueError, match="full_matrices=False"):
        tg.grad(tg.njit(many_columns, mode="adjoint"))(X.copy())


@pytest.mark.long
def test_cotangents_of_a_rule_are_looked_at():
    def root(a):
        return a**0.5

    several = tg.njit_vjp(root, lambda g, out, a: (np.array([g / (2 * out), 0.0]),))
    for mode in ("adjoint", "overload"):
        with pytest.raises(NotDifferentiable, match="for argument 1, which is of type float64"):
            tg.grad(tg.njit(lambda a: several(a) * 3.0, mode=mode))(4.0)


def test_an_exception_in_a_loop():
    @tg.njit
    def f(x):
        s = 0.0
        for i in range(x.size):
            if x[i] < 0.0:
                raise ValueError("negative")
            s += np.sqrt(x[i])
        return s

    assert np.allclose(tg.grad(f)(X.copy()), 0.5 / np.sqrt(X))
