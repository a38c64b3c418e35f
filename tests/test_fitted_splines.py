"""FITPACK's names, splines of least squares, splines on grids and polynomials through data: SciPy's values, and derivatives."""

import numpy as np
import pytest
import scipy.interpolate

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.interpolate, scipy.interpolate
DRAWS = np.random.default_rng(23)
X = np.cumsum(DRAWS.uniform(0.5, 1.5, 12))
Y, W = DRAWS.normal(size=12), DRAWS.uniform(0.5, 2.0, 12)
QUERIES = np.concatenate(
    [DRAWS.uniform(X[0], X[-1], 5), [X[0], X[-1], X[3], X[0] - 0.5, X[-1] + 0.5]]
)
INSIDE = DRAWS.uniform(X[1], X[-2], 4)
T = np.array([X[3] + 0.2, X[5] + 0.1, X[8] + 0.3])


def same(found, expected, rtol=1e-8, atol=1e-9):
    found = found.numpy() if isinstance(found, tg.Tensor) else found
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol, atol)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_fitpacks_names(k):
    for settings in ({}, {"t": T}, {"t": T, "w": W}, {"s": 0, "w": W}):
        found, expected = (
            OURS.splrep(X, tg.tensor(Y), k=k, **settings),
            THEIRS.splrep(X, Y, k=k, **settings),
        )
        for ours, theirs in zip(found, expected, strict=True):
            same(ours, theirs)
        for ours, theirs in zip(OURS.splrep(X, Y, k=k, **settings), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ext in (0, 1, 3):
            for der in range(k + 1):
                if ext == 3 and der:
                    continue  # FITPACK's derivative beyond an end is that at the end, of a value that stays
                same(
                    OURS.splev(QUERIES, found, der, ext),
                    THEIRS.splev(QUERIES, expected, der, ext),
                    1e-7,
                    1e-7,
                )
        for a, b in ((X[1], X[5]), (X[4], X[2]), (X[0] - 1, X[-1] + 1)):
            same(OURS.splint(a, b, found), THEIRS.splint(a, b, expected))
        same(OURS.splev(INSIDE, OURS.splder(found)), THEIRS.splev(INSIDE, THEIRS.splder(expected)))
        if k < 5:
            same(
                OURS.splev(INSIDE, OURS.splantider(found)),
                THEIRS.splev(INSIDE, THEIRS.splantider(expected)),
            )


@pytest.mark.parametrize("k", [2, 3])
def test_univariate_splines(k):
    made = [("UnivariateSpline", (X, Y), {"s": 0}), ("InterpolatedUnivariateSpline", (X, Y), {"w": W}), ("LSQUnivariateSpline", (X, Y, T), {"w": W})]  # fmt: skip
    for name, args, settings in made:
        theirs = getattr(THEIRS, name)(*args, k=k, **settings)
        for ours in (
            getattr(OURS, name)(X, tg.tensor(Y), *args[2:], k=k, **settings),
            getattr(OURS, name)(*args, k=k, **settings),
        ):
            same(ours(QUERIES), theirs(QUERIES))
            same(ours(INSIDE, 1), theirs(INSIDE, 1))
            same(ours(QUERIES, ext="zeros"), theirs(QUERIES, ext="zeros"))
            same(ours.integral(X[1], X[7]), theirs.integral(X[1], X[7]))
            same(ours.derivative()(INSIDE), theirs.derivative()(INSIDE))
            same(ours.antiderivative()(INSIDE), theirs.antiderivative()(INSIDE))
            same(ours.get_knots(), theirs.get_knots())
            same(ours.get_coeffs(), theirs.get_coeffs())
            same(ours.get_residual(), theirs.get_residual(), atol=1e-12)
            same(ours.derivatives(INSIDE[0]), theirs.derivatives(INSIDE[0]))
    smooth = OURS.UnivariateSpline(X, Y, s=2.0)
    same(smooth(QUERIES), THEIRS.UnivariateSpline(X, Y, s=2.0)(QUERIES))
    agree(lambda q: smooth(q), (INSIDE,), DRAWS)


def test_splines_of_least_squares_and_of_least_bending():
    knots = np.r_[[X[0]] * 4, T, [X[-1]] * 4]
    for y in (Y, np.stack([Y, W], axis=1), np.stack([Y, W])):
        axis = 1 if np.shape(y)[0] == 2 else 0
        for w in (None, W):
            same(OURS.make_lsq_spline(X, tg.tensor(y), knots, 3, w, axis)(INSIDE), THEIRS.make_lsq_spline(X, y, knots, 3, w, axis)(INSIDE))  # fmt: skip
            for lam in (0.0, 0.3, 1e4):
                same(OURS.make_smoothing_spline(X, tg.tensor(y), w, lam, axis=axis)(QUERIES), THEIRS.make_smoothing_spline(X, y, w, lam, axis=axis)(QUERIES), 1e-7, 1e-7)  # fmt: skip
    # Places so bad that normal equations alone lose half of the digits.
    near = np.sort(np.r_[X, X[:6] + 1e-5])
    data = np.cos(near)
    same(
        OURS.make_lsq_spline(near, tg.tensor(data), knots)(INSIDE),
        THEIRS.make_lsq_spline(near, data, knots)(INSIDE),
        1e-9,
    )


@pytest.mark.long
def test_derivatives_of_splines(rng):
    agree(lambda x, y, q: OURS.splev(q, OURS.splrep(x, y)), (X, Y, INSIDE), rng)
    agree(
        lambda y, t, w: OURS.splev(INSIDE, OURS.splrep(X, y, w, t=t)), (Y, T, W), rng, compiled=True
    )
    agree(lambda y, a: OURS.splint(a, X[6], OURS.splrep(X, y, k=2)), (Y, X[2] + 0.1), rng)
    agree(
        lambda x, y, w, lam: OURS.make_smoothing_spline(x, y, w, lam)(INSIDE),
        (X, Y, W, 0.3),
        rng,
        compiled=True,
    )
    agree(
        lambda q: OURS.splev(q, OURS.splrep(X, Y), ext=3), (np.array([X[0] - 1, X[3] + 0.1]),), rng
    )


@pytest.mark.parametrize(("kx", "ky"), [(3, 3), (1, 2), (5, 4)])
def test_splines_on_grids(kx, ky, rng):
    x, y = X[:7], X[3:11] / 3
    z = rng.normal(size=(7, 8))
    qx, qy = np.sort(rng.uniform(x[0] - 0.3, x[-1] + 0.3, 4)), np.sort(rng.uniform(y[0], y[-1], 5))
    theirs = THEIRS.RectBivariateSpline(x, y, z, kx=kx, ky=ky)
    for ours in (
        OURS.RectBivariateSpline(x, y, tg.tensor(z), kx=kx, ky=ky),
        OURS.RectBivariateSpline(x, y, z, kx=kx, ky=ky),
    ):
        for dx, dy in ((0, 0), (1, 0), (0, 1)):
            if dx < kx and dy < ky:
                same(ours(qx, qy, dx, dy), theirs(qx, qy, dx, dy))
                same(ours.ev(qx, qy[:4], dx, dy), theirs.ev(qx, qy[:4], dx, dy))
        same(ours(qx[0], qy[0]), theirs(qx[0], qy[0]))
        same(ours(qx[:, None], qy, grid=False), theirs(qx[:, None], qy, grid=False))
        same(ours.integral(x[1], x[4], y[0], y[3]), theirs.integral(x[1], x[4], y[0], y[3]))
        same(ours.get_coeffs(), theirs.get_coeffs())
        for one, other in zip(ours.get_knots(), theirs.get_knots(), strict=True):
            same(one, other)
    inner = rng.uniform(x[1], x[-2], 3), rng.uniform(y[1], y[-2], 3)
    agree(
        lambda z, p, q: OURS.RectBivariateSpline(x, y, z, kx=kx, ky=ky).ev(p, q),
        (z, *inner),
        rng,
        second=kx > 1,
        compiled=kx == 3,
    )
    agree(
        lambda x, z: OURS.RectBivariateSpline(x, y, z, kx=kx, ky=ky)(
            np.sort(inner[0]), np.sort(inner[1])
        ),
        (x, z),
        rng,
        second=kx > 1,
    )


@pytest.mark.long
def test_polynomials(rng):
    x = np.cos(np.pi * (np.arange(7) + 0.5) / 7)
    repeated = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 2.0])
    at = np.r_[x[2], rng.uniform(-1, 1, 3)]
    for name, places in (
        ("BarycentricInterpolator", x),
        ("KroghInterpolator", x),
        ("KroghInterpolator", repeated),
    ):
        for y, axis in (
            (rng.normal(size=len(places)), 0),
            (rng.normal(size=(2, len(places), 3)), 1),
        ):
            ours, theirs = (
                getattr(OURS, name)(places, tg.tensor(y), axis),
                getattr(THEIRS, name)(places, y, axis),
            )
            same(ours(at), theirs(at))
            same(ours(at[0]), theirs(at[0]))
            same(ours(at[:, None]), theirs(at[:, None]))
            same(ours.derivative(at[1:]), theirs.derivative(at[1:]), 1e-7, 1e-7)
            same(ours.derivatives(at[1:], 4), theirs.derivatives(at[1:], 4), 1e-6, 1e-6)
        agree(
            lambda y, q, name=name, places=places: getattr(OURS, name)(places, y)(q),
            (y[0, :, 0], at),
            rng,
            compiled=True,
        )
        if places is x:
            agree(lambda x, name=name, y=y: getattr(OURS, name)(x, y[0, :, 0])(at), (x,), rng)
            agree(
                lambda x, name=name, y=y: getattr(OURS, name)(x, y[0, :, 0]).derivative(at, 2),
                (x,),
                rng,
                rtol=1e-6,
            )
    many = np.cos(np.pi * (np.arange(60) + 0.5) / 60)
    same(OURS.BarycentricInterpolator(many, tg.tensor(np.cos(3 * many)))(at), np.cos(3 * at), 1e-12)
    for name in ("barycentric_interpolate", "krogh_interpolate"):
        y = rng.normal(size=7)
        same(
            getattr(OURS, name)(x, tg.tensor(y), at, der=1),
            getattr(THEIRS, name)(x, y, at, der=1),
            1e-7,
        )
        same(
            getattr(OURS, name)(x, tg.tensor(y), at, der=[0, 2]),
            getattr(THEIRS, name)(x, y, at, der=[0, 2]),
            1e-7,
            1e-7,
        )
        same(getattr(OURS, name)(x, y, at), getattr(THEIRS, name)(x, y, at))


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda y: OURS.splrep(X, y, s=1.0), tg.NotDifferentiable, "make_smoothing_spline"),
        (lambda y: OURS.splrep(X, y, W), tg.NotDifferentiable, "chooses knots"),
        (lambda y: OURS.splrep(X, y, per=1), tg.NotDifferentiable, "periodic"),
        (lambda y: OURS.UnivariateSpline(X, y), tg.NotDifferentiable, "chooses knots"),
        (lambda y: OURS.UnivariateSpline(X, y, s=0, bbox=[0, None]), tg.NotDifferentiable, "bbox"),
        (lambda y: OURS.UnivariateSpline(X, y, s=0, k=6), ValueError, "1 <= k <= 5"),
        (lambda y: OURS.UnivariateSpline(X, y, s=0)(0.0, ext=2), ValueError, "not in the domain"),
        (lambda y: OURS.UnivariateSpline(X, y, s=0)(0.0, ext=5), ValueError, "ext = 5"),
        (lambda y: OURS.UnivariateSpline(X, y, s=0).derivative().get_residual(), ValueError, "fitted to no data"),
        (lambda y: OURS.splev(2.0, OURS.splrep(X, y), 4), ValueError, "must hold"),
        (lambda y: OURS.splint(0, 1, OURS.splrep(X, y), 1), tg.NotDifferentiable, "full_output"),
        (lambda y: OURS.make_lsq_spline(X, y[:3], T), ValueError, "incompatible"),
        (lambda y: OURS.make_lsq_spline(X, y, T), ValueError, "at least 8 knots"),
        (lambda y: OURS.make_lsq_spline(X, y, np.r_[[X[0]] * 4, X[1:3] / 9 + X[0], X[0] + 0.4, X[0] + 0.41, X[0] + 0.42, [X[-1]] * 4]), ValueError, "Schoenberg"),
        (lambda y: OURS.make_smoothing_spline(X, y), tg.NotDifferentiable, "choose lam"),
        (lambda y: OURS.make_smoothing_spline(X, y, lam=-1.0), ValueError, "non-negative"),
        (lambda y: OURS.make_smoothing_spline(X[::-1], y, lam=1.0), ValueError, "ascending"),
        (lambda y: OURS.RectBivariateSpline(X, X, y), ValueError, "values of shape"),
        (lambda y: OURS.RectBivariateSpline(X, X, y * y[:, None], s=1), tg.NotDifferentiable, "smooth"),
        (lambda y: OURS.RectBivariateSpline(X, X, y * y[:, None])([3.0, 2.0], 1.0), ValueError, "sorted"),
        (lambda y: OURS.KroghInterpolator(X, y[:3]), ValueError, "as many values"),
        (lambda y: OURS.BarycentricInterpolator(X - X, y), ValueError, "distinct"),
        (lambda y: OURS.KroghInterpolator(X, y).derivative(1.0, -1), ValueError, "at least 0"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor(Y, requires_grad=True))
