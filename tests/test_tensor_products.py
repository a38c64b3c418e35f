"""NdBSpline and NdPPoly: SciPy's values over their arguments, and derivatives by knots, coefficients and queries."""

import numpy as np
import pytest
import scipy.interpolate

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.interpolate, scipy.interpolate
QUERIES = np.array([[0.3, 2.2], [1.7, 0.4], [0.0, 1.0], [2.9, 2.9], [-0.4, 1.1], [3.3, 4.0]])
ORDERS = [None, (0, 1), (1, 2), (2, 0), (4, 1)]


def same(found, expected, rtol=1e-11):
    found = found.numpy() if isinstance(found, tg.Tensor) else found
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol, 1e-11)


def knots(rng, k, inner=4):
    """Knots that begin and end k + 1 times, so that [0, 3] is the base interval."""
    return np.concatenate([np.zeros(k + 1), np.sort(rng.uniform(0.2, 2.8, inner)), np.full(k + 1, 3.0)])  # fmt: skip


def spline(rng, k=(3, 2), rest=(), dtype=float):
    t = tuple(knots(rng, degree) for degree in k)
    shape = tuple(len(v) - degree - 1 for v, degree in zip(t, k, strict=True)) + rest
    c = rng.normal(size=shape)
    return t, c + 1j * rng.normal(size=shape) if dtype is complex else c, k


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rest", [(), (3,), (2, 1)])
@pytest.mark.parametrize("k", [(3, 2), (1, 1), (0, 3)])
def test_splines_have_scipys_values(k, rest, dtype, rng):
    t, c, k = spline(rng, k, rest, dtype)
    plain = THEIRS.NdBSpline(t, c, k)
    for ours in (OURS.NdBSpline(t, c, k), OURS.NdBSpline(t, tg.tensor(c), k), OURS.NdBSpline(t, tg.tensor(c)[:], k)):  # fmt: skip
        for nu in ORDERS:
            for extrapolate in (True, False):
                settings = {"nu": nu, "extrapolate": extrapolate}
                queries = QUERIES
                if not extrapolate and any(o > d + 1 for o, d in zip(nu or (0, 0), k, strict=True)):
                    queries = QUERIES[
                        :4
                    ]  # beyond, SciPy has 0 for these orders, and NaN for all others
                same(ours(queries, **settings), plain(queries, **settings))
        same(ours(QUERIES.reshape(2, 3, 2)), plain(QUERIES.reshape(2, 3, 2)))
        same(ours(QUERIES[0]), plain(QUERIES[0]))
        same(ours(np.full((1, 2), np.nan)), plain(np.full((1, 2), np.nan)))
        for nu in ORDERS[1:]:
            if hasattr(plain, "derivative"):
                same(ours.derivative(nu)(QUERIES), plain.derivative(nu)(QUERIES), 1e-9)
            same(ours.derivative(nu)(QUERIES), plain(QUERIES, nu=nu), 1e-9)
    assert OURS.NdBSpline(t, c, k, extrapolate=False)(QUERIES[-1:]).shape == (1, *rest)


@pytest.mark.long
def test_derivatives_of_splines(rng):
    t, c, k = spline(rng, rest=(2,))
    q = QUERIES[[0, 1, 3, 4]]
    agree(lambda c, q: OURS.NdBSpline(t, c, k)(q), (c, q), rng, compiled=True)
    agree(lambda c, q: OURS.NdBSpline(t, c, k)(q, nu=(1, 1)) / 50, (c, q), rng)
    agree(lambda c, q: OURS.NdBSpline(t, c, k).derivative((1, 1))(q) / 50, (c, q), rng)
    apart = tuple(np.linspace(-1.0, 4.0, len(v)) + 0.1 * rng.uniform(size=len(v)) for v in t)
    agree(lambda t0, t1: OURS.NdBSpline((t0, t1), c, k)(q), apart, rng)
    strided = np.asfortranarray(np.repeat(c, 2, axis=0))[::2]
    np.testing.assert_allclose(
        tg.grad(lambda c: OURS.NdBSpline(t, c, k)(q).sum())(strided), tg.grad(lambda c: OURS.NdBSpline(t, c, k)(q).sum())(c)
    )  # fmt: skip
    three = (*t, knots(rng, 1))
    c = rng.normal(size=(8, 7, 6))
    agree(lambda c, q: OURS.NdBSpline(three, c, (3, 2, 1))(q), (c, rng.uniform(0, 3, (4, 3))), rng)


def polynomials(rng, rest=(), dtype=float):
    x = tuple(np.concatenate([[0.0], np.sort(rng.uniform(0.2, 2.8, n)), [3.0]]) for n in (2, 1))
    c = rng.normal(size=(3, 4, 3, 2, *rest))
    return c + 1j * rng.normal(size=c.shape) if dtype is complex else c, x


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rest", [(), (3,), (2, 1)])
def test_polynomials_have_scipys_values(rest, dtype, rng):
    c, x = polynomials(rng, rest, dtype)
    plain = THEIRS.NdPPoly(c, x)
    for ours in (OURS.NdPPoly(c, x), OURS.NdPPoly(tg.tensor(c), x)):
        for nu in (*ORDERS, (3, 4)):
            for extrapolate in (True, False):
                same(ours(QUERIES, nu, extrapolate), plain(QUERIES, nu, extrapolate))
            if nu is not None:
                same(ours.derivative(nu)(QUERIES), plain.derivative(nu)(QUERIES))
                same(ours.antiderivative(nu)(QUERIES), plain.antiderivative(nu)(QUERIES), 1e-9)
        same(ours.derivative((1, -1))(QUERIES), plain.derivative((1, -1))(QUERIES), 1e-9)
        same(ours(QUERIES.reshape(2, 3, 2)), plain(QUERIES.reshape(2, 3, 2)))
        same(ours((QUERIES[:, 0], QUERIES[:, 1])), plain((QUERIES[:, 0], QUERIES[:, 1])))
        same(ours(np.array([[np.nan, 1.0]])), plain(np.array([[np.nan, 1.0]])))
        box = [(0.3, 2.7), (-0.2, 1.9)]
        same(ours.integrate(box), plain.integrate(box), 1e-9)
        same(ours.integrate(box, False), plain.integrate(box, False), 1e-9)
        for axis in (0, 1, -1):
            found, expected = (f.integrate_1d(0.3, 2.7, axis) for f in (ours, plain))
            same(found(QUERIES[:, :1]), expected(QUERIES[:, :1]), 1e-9)
    line = OURS.NdPPoly(tg.tensor(c[0, :, 0]), x[1:])
    same(line.integrate_1d(0.0, 2.0, 0), THEIRS.NdPPoly(c[0, :, 0], x[1:]).integrate_1d(0.0, 2.0, 0))  # fmt: skip


def test_derivatives_of_polynomials(rng):
    c, x = polynomials(rng, (2,))
    q = QUERIES[[0, 1, 3, 4]]
    agree(lambda c, q: OURS.NdPPoly(c, x)(q), (c, q), rng, compiled=True)
    agree(lambda c, q: OURS.NdPPoly(c, x)(q, (1, 2)), (c, q), rng)
    agree(lambda c, q: OURS.NdPPoly(c, x).antiderivative((1, 0))(q), (c, q), rng)
    agree(lambda x0, x1: OURS.NdPPoly(c, (x0, x1))(q), x, rng)
    agree(lambda c, a, b: OURS.NdPPoly(c, x).integrate([(a, b), (0.1, b)]), (c, 0.3, 1.1), rng)
    strided = np.asfortranarray(np.repeat(c, 2, axis=0))[::2]
    np.testing.assert_allclose(
        tg.grad(lambda c: OURS.NdPPoly(c, x)(q).sum())(strided), tg.grad(lambda c: OURS.NdPPoly(c, x)(q).sum())(c)
    )  # fmt: skip
