"""tg.interpolate: SciPy's values over its arguments, and derivatives by data, places and queries in every mode."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse.linalg

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.interpolate, scipy.interpolate
LAYOUTS = [((), 0), ((3,), 1), ((2, 3), 1)]
ENDS = ["not-a-knot", "periodic", "clamped", "natural", ("clamped", "natural"), "orders", "mixed"]
CUBIC = ["CubicSpline", "PchipInterpolator", "Akima1DInterpolator"]


def same(found, expected, rtol=1e-9, atol=1e-9):
    found = found.numpy() if isinstance(found, tg.Tensor) else found
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol, atol)


def places(rng, n):
    return np.cumsum(rng.uniform(0.5, 1.5, n))


def ends_of(name, rest):
    pairs = {"orders": ((1, np.ones(rest)), (2, np.full(rest, 0.5))), "mixed": ("not-a-knot", (1, np.ones(rest)))}  # fmt: skip
    return pairs.get(name, name)


def data(rng, n, rest, axis, periodic=False):
    x, y = places(rng, n), rng.normal(size=(n, *rest))
    if periodic:
        y[-1] = y[0]
    return x, np.moveaxis(y, 0, axis)


# --------------------------------------------------------------------------------------------- cubic interpolants


@pytest.mark.parametrize(("rest", "axis"), LAYOUTS)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_cubic_splines_have_scipys_values(n, ends, rest, axis, rng):
    x, y = data(rng, n, rest, axis, ends == "periodic")
    settings = {"axis": axis, "bc_type": ends_of(ends, rest)}
    whole(OURS.CubicSpline(x, tg.tensor(y), **settings), THEIRS.CubicSpline(x, y, **settings), rng)
    whole(OURS.CubicSpline(x, y, **settings), THEIRS.CubicSpline(x, y, **settings), rng)


@pytest.mark.parametrize(("rest", "axis"), LAYOUTS)
@pytest.mark.parametrize("n", [2, 3, 4, 9])
def test_shape_preserving_interpolants_have_scipys_values(n, rest, axis, rng):
    x, y = data(rng, n, rest, axis)
    flat = np.moveaxis(np.moveaxis(y, axis, 0).round(), 0, axis)
    for values, name in itertools.product((y, flat, 0 * y), CUBIC[1:]):
        whole(getattr(OURS, name)(tg.tensor(x), values, axis), getattr(THEIRS, name)(x, values, axis), rng)  # fmt: skip
    settings = {"axis": axis, "method": "makima", "extrapolate": True}
    whole(OURS.Akima1DInterpolator(tg.tensor(x), y, **settings), THEIRS.Akima1DInterpolator(x, y, **settings), rng)  # fmt: skip
    slopes = rng.normal(size=y.shape)
    whole(OURS.CubicHermiteSpline(tg.tensor(x), y, slopes, axis), THEIRS.CubicHermiteSpline(x, y, slopes, axis), rng)  # fmt: skip


def whole(ours, theirs, rng):
    """Values, derivatives, antiderivatives and integrals, inside, at breakpoints and beyond."""
    x = theirs.x
    q = np.concatenate([x, rng.uniform(x[0] - 1, x[-1] + 1, 5), [np.nan]]).reshape(2, -1) if len(x) % 2 == 0 else x  # fmt: skip
    for nu, beyond in itertools.product(range(5), (None, True, False, "periodic")):
        same(ours(q, nu, beyond), theirs(q, nu, beyond))
    same(ours(x[0] + 0.1), theirs(x[0] + 0.1))
    for made in ("derivative", "antiderivative"):
        for nu in (1, 2):
            same(getattr(ours, made)(nu)(q), getattr(theirs, made)(nu)(q))
    for beyond in (None, True, False, "periodic"):
        for a, b in ((x[0] + 0.3, x[-1] - 0.2), (x[-1], x[0]), (x[0] - 2, x[-1] + 30)):
            same(ours.integrate(a, b, beyond), theirs.integrate(a, b, beyond), atol=1e-8)


@pytest.mark.parametrize("ends", ENDS)
def test_cubic_splines_are_differentiated_by_places_values_and_queries(ends, rng):
    x, y = data(rng, 6, (2,), 0, ends == "periodic")
    q = rng.uniform(x[0] - 0.5, x[-1] + 0.5, 4)

    def at(x, y, q):
        if ends == "periodic":  # both ends are one value
            y = np.concatenate([y[:-1], y[:1]])
        return OURS.CubicSpline(x, y, bc_type=ends_of(ends, (2,)))(q)

    agree(at, (x, y, q), rng, compiled=ends in ("not-a-knot", "periodic"))


def test_end_conditions_are_differentiated(rng):
    x, y = data(rng, 5, (), 0)
    agree(lambda a, b: OURS.CubicSpline(x, y, bc_type=((1, a), (2, b)))(x[:-1] + 0.2), (0.3, -0.7), rng)  # fmt: skip
    agree(lambda a, b: OURS.make_interp_spline(x, y, bc_type=([(1, a)], [(2, b)]))(x[:-1] + 0.2), (0.3, -0.7), rng)  # fmt: skip


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("name", ["PchipInterpolator", "Akima1DInterpolator", "makima"])
def test_shape_preserving_interpolants_are_differentiated(name, n, rng):
    x, y = data(rng, n, (), 0)
    q = rng.uniform(x[0], x[-1], 5)
    settings = {"method": "makima"} if name == "makima" else {}
    made = getattr(OURS, "Akima1DInterpolator" if name == "makima" else name)
    agree(lambda x, y, q: made(x, y, **settings)(q), (x, y, q), rng, compiled=n == 7)


@pytest.mark.long
def test_derivatives_and_integrals_of_splines_are_differentiated(rng):
    x, y = data(rng, 6, (), 0)
    spline = lambda x, y: OURS.CubicSpline(x, y)  # noqa: E731
    q = rng.uniform(x[0], x[-1], 3)
    agree(lambda x, y, q: spline(x, y)(q, 1), (x, y, q), rng)
    agree(lambda x, y, q: spline(x, y).derivative(2)(q), (x, y, q), rng)
    agree(lambda x, y, q: spline(x, y).antiderivative(2)(q), (x, y, q), rng)
    agree(lambda x, y, a, b: spline(x, y).integrate(a, b), (x, y, x[0] + 0.2, x[-1] + 0.3), rng)
    around = lambda x, y, a, b: spline(x, y).integrate(a, b, "periodic")  # noqa: E731
    agree(around, (x, y, x[0] - 3.0, x[-1] + 13.0), rng)
    agree(lambda x, y, q: spline(x, y)(q, 0, "periodic"), (x, y, q + 25.0), rng)


def test_where_a_shape_preserving_slope_is_zero_or_undefined_the_derivative_is_finite():
    """At ties the convention is that of the value: slope 0 for PCHIP, the mean for Akima."""
    x = np.arange(6.0)
    for y in (np.zeros(6), np.array([0.0, 0, 1, 1, 2, 2]), np.array([0.0, 1, 0, 1, 0, 1])):
        for made in (OURS.PchipInterpolator, OURS.Akima1DInterpolator):
            found = tg.grad(lambda y, made=made: made(x, y)(2.3))(y)
            assert np.isfinite(found).all() and abs(found.sum() - 1) < 1e-12


def test_a_million_pieces_take_linear_memory(rng):
    n = 200_000
    x, y = np.arange(float(n)), rng.normal(size=n)
    slopes = tg.grad(lambda y: np.sum(OURS.CubicSpline(x, y)(x[:-1] + 0.5)))(y)
    assert slopes.shape == (n,)
    np.testing.assert_allclose(
        slopes[n // 2], 1.0, rtol=1e-12
    )  # each value counts once in the middle


def test_piecewise_polynomials(rng):
    for x in (places(rng, 5), places(rng, 5)[::-1]):
        c = rng.normal(size=(4, 4, 2))
        if x[0] < x[-1]:  # SciPy integrates no other
            whole(OURS.PPoly(tg.tensor(c), x, axis=0), THEIRS.PPoly(c, x), rng)
        # At the breakpoints, too, where these jump.
        q = np.concatenate([x, x - 0.1])
        same(OURS.PPoly(tg.tensor(c), x)(q), THEIRS.PPoly(c, x)(q))
        agree(lambda c, x, q: OURS.PPoly(c, x)(q), (c, x, x[:3] + 0.2), rng)
    turned = rng.normal(size=(2, 4, 4, 3))
    same(OURS.PPoly(turned, x, axis=1)(tg.tensor(q)), THEIRS.PPoly(turned, x, axis=1)(q))
    waves = c + 1j * rng.normal(size=c.shape)
    same(OURS.PPoly(tg.tensor(waves), x)(q, 1), THEIRS.PPoly(waves, x)(q, 1))


def test_splines_as_polynomials(rng):
    t, c = np.array([0.0, 0, 0, 0, 1, 2.5, 3, 3, 3, 3]), rng.normal(size=6)
    theirs = THEIRS.PPoly.from_spline((t, c, 3))
    ours = OURS.PPoly.from_spline((tg.tensor(t), c, 3))
    q = np.array([-0.5, 0.0, 0.7, 1.0, 2.9, 3.4])
    same(ours(q), theirs(q))
    same(OURS.PPoly.from_spline(OURS.BSpline(t, tg.tensor(c), 3)).c, theirs.c)
    agree(lambda c: OURS.PPoly.from_spline(OURS.BSpline(t, c, 3)).antiderivative()(q), (c,), rng)


def test_arrays_of_the_user_may_change_afterwards(rng):
    x, y = data(rng, 6, (), 0)
    for made in (OURS.CubicSpline, OURS.interp1d, OURS.PchipInterpolator):
        own = x.copy(), y.copy()
        f = made(*own)
        before = f(x[2] + 0.1)
        own[0][:], own[1][:] = 0.0, 0.0
        assert f(x[2] + 0.1) == before


def test_roots_are_differentiated(rng):
    x, y = places(rng, 7), np.array([1.0, -0.5, 0.3, 2.0, -1.0, -2.0, 1.5])
    theirs = THEIRS.CubicSpline(x, y)
    same(OURS.CubicSpline(x, tg.tensor(y)).roots(), theirs.roots())
    same(OURS.CubicSpline(x, tg.tensor(y)).solve(0.25, extrapolate=False), theirs.solve(0.25, extrapolate=False))  # fmt: skip
    same(OURS.CubicSpline(x, y).roots(), theirs.roots())
    agree(lambda x, y, v: OURS.CubicSpline(x, y).solve(v, extrapolate=False), (x, y, 0.1), rng, rtol=1e-6)  # fmt: skip
    agree(lambda x, y: OURS.CubicSpline(x, y).derivative().roots(extrapolate=False), (x, y), rng, rtol=1e-6)  # fmt: skip
    steps = np.array([[-1.0, 1.0, -2.0]])
    jumps = OURS.PPoly(tg.tensor(steps), [0.0, 1.0, 3.0, 4.0])
    same(jumps.roots(), THEIRS.PPoly(steps, [0.0, 1.0, 3.0, 4.0]).roots())
    assert jumps.roots(discontinuity=False).size == 0
    moved = lambda x: OURS.PPoly(steps, x).roots()  # noqa: E731
    np.testing.assert_array_equal(tg.jacobian(moved)(np.array([0.0, 1.0, 3.0, 4.0])), np.eye(4)[1:3])  # fmt: skip
    with pytest.raises(tg.NotDifferentiable, match="slope 0"):
        OURS.PPoly(tg.tensor([[1.0], [0.0], [0.0]]), [-1.0, 1.0]).roots()
    with pytest.raises(NotImplementedError, match="one interpolant for each"):
        OURS.CubicSpline(x, tg.tensor(np.stack([y, y], 1))).roots()
    with pytest.raises(tg.TraceError, match="PPoly.solve"):
        tg.compile(lambda y: OURS.CubicSpline(x, y).roots()[0])(y)


# ------------------------------------------------------------------------------------------------------ B-splines


@pytest.mark.parametrize(("rest", "axis"), LAYOUTS)
@pytest.mark.parametrize("k", range(6))
def test_bsplines_have_scipys_values(k, rest, axis, rng):
    n = 9
    t = np.sort(rng.normal(size=n + k + 1))
    if k > 2:
        t[: k + 1], t[k + 3] = t[0], t[k + 2]  # a clamped end, a double knot inside
    c = np.moveaxis(rng.normal(size=(n, *rest)), 0, axis)
    ours, theirs = OURS.BSpline(tg.tensor(t), c, k, axis=axis), THEIRS.BSpline(t, c, k, axis=axis)
    q = rng.uniform(t[0] - 0.3, t[-1] + 0.3, (2, 5))
    q[0, :2], q[1, 1] = (t[k], t[n]), np.nan
    for nu, beyond in itertools.product(range(k + 2), (None, True, False, "periodic")):
        same(ours(q, nu, beyond), theirs(q, nu, beyond))
    if k:
        same(ours.derivative()(q), theirs.derivative()(q))
    same(ours.antiderivative(2)(q), theirs.antiderivative(2)(q))
    for a, b in ((t[k] + 0.1, t[n] - 0.2), (t[n], t[k]), (t[k] - 0.3, t[n] + 2)):
        same(ours.integrate(a, b), theirs.integrate(a, b), atol=1e-8)
        same(ours.integrate(a, b, False), theirs.integrate(a, b, False))
        if not rest:
            same(ours.integrate(a, b, "periodic"), theirs.integrate(a, b, "periodic"), atol=1e-8)


@pytest.mark.parametrize("k", range(1, 5))
def test_bsplines_are_differentiated_by_knots_coefficients_and_queries(k, rng):
    t, c = places(rng, 6 + k), rng.normal(size=(5, 2))
    q = rng.uniform(t[k], t[5], 4)
    agree(lambda t, c, q: OURS.BSpline(t, c, k)(q), (t, c, q), rng, compiled=k == 3)
    linear = {"second": False, "names": (0, 1)} if k == 1 else {}
    agree(lambda t, c, q: OURS.BSpline(t, c, k)(q, 1), (t, c, q), rng, **linear)
    agree(lambda t, c, a: OURS.BSpline(t, c, k).integrate(a, t[-1], False), (t, c, q[0]), rng)
    agree(lambda t, c, q: OURS.BSpline(t, c, k).derivative()(q), (t, c, q), rng, **linear)


@pytest.mark.parametrize(("rest", "axis"), LAYOUTS)
@pytest.mark.parametrize("ends", [None, "natural", "clamped", "periodic", "orders"])
@pytest.mark.parametrize("k", range(6))
def test_splines_through_data(k, ends, rest, axis, rng):
    for n in sorted({k + 1, k + 2, 4, 7, 30}):
        x, y = data(rng, n, rest, axis, ends == "periodic")
        bc = ([(1, np.ones(rest))], [(2, np.ones(rest))]) if ends == "orders" else ends
        try:
            theirs = THEIRS.make_interp_spline(x, y, k, bc_type=bc, axis=axis)
        except ValueError as error:
            with pytest.raises(ValueError, match=".") as found:
                OURS.make_interp_spline(x, tg.tensor(y), k, bc_type=bc, axis=axis)
            assert type(found.value) is type(error)
            continue
        ours = OURS.make_interp_spline(x, tg.tensor(y), k, bc_type=bc, axis=axis)
        same(ours.t, theirs.t)
        q = rng.uniform(x[0], x[-1], 7)
        same(ours(q), theirs(q), 1e-7, 1e-7)


@pytest.mark.parametrize(("k", "ends", "n"), [(3, None, 7), (2, None, 6), (3, "natural", 5), (5, "clamped", 8), (3, "periodic", 12), (2, "periodic", 4), (4, "periodic", 15)])  # fmt: skip
def test_splines_through_data_are_differentiated(k, ends, n, rng):
    x, y = data(rng, n, (), 0)
    q = rng.uniform(x[0], x[-1], 4)
    bc = ([(1, 0.3), (2, 0.1)], [(1, 0.2), (2, 0.4)]) if ends == "clamped" else ends

    def at(x, y, q):
        if ends == "periodic":
            y = np.concatenate([y[:-1], y[:1]])
        return OURS.make_interp_spline(x, y, k, bc_type=bc)(q)

    agree(at, (x, y, q), rng, compiled=k == 3 and ends is None)


def test_given_knots(rng):
    x, y = data(rng, 6, (), 0)
    t = np.concatenate([[x[0]] * 4, (x[2:4] + 0.1), [x[-1]] * 4])
    same(OURS.make_interp_spline(tg.tensor(x), y, t=t)(x + 0.1), THEIRS.make_interp_spline(x, y, t=t)(x + 0.1))  # fmt: skip
    inner = t[4:6]

    def at(inner, y):
        t = np.concatenate([np.full(4, x[0]), inner, np.full(4, x[-1])])
        return OURS.make_interp_spline(x, y, t=t)(x[:-1] + 0.2)

    agree(at, (inner, y), rng)
    one = OURS.BSpline.basis_element(tg.tensor(t[3:8]))
    same(one(x, 0, False), THEIRS.BSpline.basis_element(t[3:8])(x, 0, False))


# --------------------------------------------------------------------------------------------------------- tables


KINDS = ["linear", "nearest", "nearest-up", "previous", "next", "zero", "slinear", "quadratic", "cubic", 5]  # fmt: skip


@pytest.mark.parametrize(("rest", "axis"), [((), -1), ((3,), 0), ((3,), -1), ((2, 3), 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_on_a_line_have_scipys_values(kind, rest, axis, rng):
    x = rng.permutation(places(rng, 8))
    y = np.moveaxis(rng.normal(size=(8, *rest)), 0, axis)
    knots, fills = (
        np.sort(x),
        [(np.nan, None), (np.nan, False), ("extrapolate", None), ((1.0, 2.0), False)],
    )
    for fill, error in fills:
        settings = {"bounds_error": error, "fill_value": fill}
        theirs = THEIRS.interp1d(x, y, kind, axis, **settings)
        ours = [OURS.interp1d(z, y, kind, axis, **settings) for z in (x, tg.tensor(x))]
        queries = [
            rng.uniform(knots[0], knots[-1], (2, 3)),
            knots,
            (knots[1:] + knots[:-1]) / 2,
            3.0,
        ]
        if fill == "extrapolate" or error is False:
            queries.append(np.linspace(knots[0] - 1, knots[-1] + 2, 9))
        for f, q in itertools.product(ours, queries):
            same(f(q), theirs(q))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_on_a_line_are_differentiated(kind, rng):
    x, y = data(rng, 8, (), 0)
    q = rng.uniform(x[0] + 0.1, x[-1] - 0.1, 5)
    flat = kind in ("nearest", "nearest-up", "previous", "next", "zero")
    f = lambda x, y, q: OURS.interp1d(x, y, kind, fill_value="extrapolate")(q)  # noqa: E731
    agree(f, (x, y, q), rng, names=(1,) if flat else None)
    if flat:
        np.testing.assert_array_equal(tg.grad(lambda q: np.sum(f(x, y, q) * q.detach()), allow_unused=True)(q), 0)  # fmt: skip


def test_fill_values_are_differentiated(rng):
    x, y = data(rng, 4, (2,), 0)

    def f(*ends):
        return OURS.interp1d(x, y, axis=0, bounds_error=False, fill_value=ends)([0.0, 99.0])

    agree(f, (0.5, np.array([1.0, 2.0])), rng)


METHODS = ["linear", "nearest", "slinear", "cubic", "quintic", "pchip"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("dims", "rest"), [((7,), ()), ((6, 7), ()), ((6, 7), (2,)), ((6, 6, 7), ())]
)
def test_grids_have_scipys_values(dims, rest, method, rng):
    grid = [places(rng, n) for n in dims]
    grid[0] = grid[0][::-1]
    values = rng.normal(size=dims + rest)
    exact = {"solver": scipy.sparse.linalg.spsolve} if method in ("slinear", "cubic", "quintic") else {}  # fmt: skip
    q = np.stack([rng.uniform(g.min(), g.max(), (2, 4)) for g in grid], -1)
    theirs = THEIRS.RegularGridInterpolator(grid, values, method, **exact)
    same(OURS.RegularGridInterpolator(grid, tg.tensor(values), method)(q), theirs(q), 1e-8, 1e-8)
    same(OURS.interpn([tg.tensor(g) for g in grid], values, q, method), theirs(q), 1e-8, 1e-8)
    q[0] += 0.6
    if method != "pchip":
        q[1, 0] = np.nan
    for fill in (None, np.nan, 7.0):
        settings = {"bounds_error": False, "fill_value": fill}
        theirs = THEIRS.RegularGridInterpolator(grid, values, method, **settings, **exact)
        ours = OURS.RegularGridInterpolator(grid, tg.tensor(values), method, **settings)
        same(ours(q), theirs(q), 1e-7, 1e-7)
        if exact:
            nu = [1, *[0] * (len(dims) - 1)]
            same(ours(q, nu=nu), theirs(q, nu=nu), 1e-7, 1e-6)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("method", METHODS)
def test_grids_are_differentiated(method, rng):
    a, b = places(rng, 6), places(rng, 7)
    values = rng.normal(size=(6, 7))
    q = np.stack([rng.uniform(a[0], a[-1], 3), rng.uniform(b[0], b[-1], 3)], -1)
    f = lambda a, b, v, q: OURS.RegularGridInterpolator((a, b), v, method)(q)  # noqa: E731
    names = (2,) if method == "nearest" else None
    agree(f, (a, b, values, q), rng, names=names, compiled=method in ("linear", "cubic"))


def test_an_axis_of_one_point(rng):
    values = rng.normal(size=(1, 4))
    q = np.array([[2.0, 1.5], [2.0, 0.2]])
    grid = ([2.0], np.arange(4.0))
    same(OURS.RegularGridInterpolator(grid, tg.tensor(values))(q), THEIRS.RegularGridInterpolator(grid, values)(q))  # fmt: skip


# ------------------------------------------------------------------------------------------------ scattered values


@pytest.mark.parametrize("rescale", [False, True])
def test_triangulations(rescale, rng):
    points, values, q = (
        rng.normal(size=(20, 2)),
        rng.normal(size=(20, 3)),
        rng.normal(size=(4, 5, 2)),
    )
    for name in ("LinearNDInterpolator", "NearestNDInterpolator"):
        theirs = getattr(THEIRS, name)(points, values, rescale=rescale)
        same(getattr(OURS, name)(tg.tensor(points), values, rescale=rescale)(q), theirs(q))
        same(getattr(OURS, name)(points, values, rescale=rescale)(tg.tensor(q[..., 0]), q[..., 1]), theirs(q))  # fmt: skip
    for method in ("linear", "nearest"):
        theirs = THEIRS.griddata(points, values, q, method, 7.0, rescale)
        same(OURS.griddata(points, tg.tensor(values), q, method, 7.0, rescale), theirs)
    tetrahedra = rng.normal(size=(15, 3))
    same(OURS.LinearNDInterpolator(tetrahedra, tg.tensor(tetrahedra[:, 0]))(tetrahedra * 0.9), THEIRS.LinearNDInterpolator(tetrahedra, tetrahedra[:, 0])(tetrahedra * 0.9))  # fmt: skip


def test_triangulations_are_differentiated(rng):
    points, values = rng.normal(size=(12, 2)), rng.normal(size=12)
    q = 0.3 * rng.normal(size=(4, 2))
    agree(lambda p, v, q: OURS.LinearNDInterpolator(p, v, 0.0)(q), (points, values, q), rng, compiled=True)  # fmt: skip
    agree(lambda v: OURS.griddata(points, v, q, "nearest"), (values,), rng)
    agree(lambda x, v: OURS.griddata(x, v, q[:, 0], "linear", 0.0), (points[:, 0], values), rng)


RADIAL = ["linear", "thin_plate_spline", "cubic", "quintic", "multiquadric", "inverse_multiquadric", "inverse_quadratic", "gaussian"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:`degree` should not be below:UserWarning")
@pytest.mark.parametrize("kernel", RADIAL)
def test_radial_bases(kernel, rng):
    points, values, q = rng.normal(size=(20, 2)), rng.normal(size=(20, 3)), rng.normal(size=(6, 2))
    for degree, near in itertools.product((None, -1, 0, 1, 2), (None, 9)):
        settings = {"kernel": kernel, "epsilon": 1.3, "degree": degree, "neighbors": near, "smoothing": 0.1}  # fmt: skip
        theirs = THEIRS.RBFInterpolator(points, values, **settings)
        same(OURS.RBFInterpolator(tg.tensor(points), values, **settings)(q), theirs(q), 1e-6, 1e-6)
    points = np.array([[0.0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [0, 2], [1, 2]])
    points, values, q = points + rng.uniform(-0.2, 0.2, (8, 2)), values[:8, 0], rng.uniform(0, 2, (6, 2))  # fmt: skip
    f = lambda y, d, s, e, x: OURS.RBFInterpolator(y, d, None, s, kernel, e)(x)  # noqa: E731
    agree(f, (points, values, np.full(8, 0.5), 1.1, q), rng, rtol=1e-6, compiled=kernel == "gaussian")  # fmt: skip
    many = rng.uniform(0, 2, (300, 2))
    ranked = np.sort(np.linalg.norm(many[:, None] - points, axis=2), axis=1)
    q = many[ranked[:, 5] - ranked[:, 4] > 0.15][:4]  # the same neighbours a step further
    near = lambda y, d, x: OURS.RBFInterpolator(y, d, 5, 0.5, kernel, 1.1, 0)(x)  # noqa: E731
    agree(near, (points, values, q), rng, rtol=1e-6)
    # At a datum the distance is 0, whose derivative is taken as 0: the value there moves with the datum's value.
    at = tg.grad(lambda d: OURS.RBFInterpolator(points, d, None, 0.0, kernel, 1.1)(points[2:3])[0])(values)  # fmt: skip
    np.testing.assert_allclose(at, np.eye(8)[2], atol=1e-6)


# ---------------------------------------------------------------------------------------------- programs and refusals


def test_programs_serve_other_values_and_queries(rng):
    x, y = data(rng, 7, (), 0)
    f = tg.compile(tg.grad(lambda y, q: np.sum(OURS.CubicSpline(x, y)(q) ** 2), argnums=(0, 1)))
    plain = tg.grad(lambda y, q: np.sum(OURS.CubicSpline(x, y)(q) ** 2), argnums=(0, 1))
    for _ in range(2):
        y, q = rng.normal(size=7), rng.uniform(x[0] - 1, x[-1] + 1, 4)
        for found, eager in zip(f(y, q), plain(y, q), strict=True):
            np.testing.assert_allclose(found, eager, 1e-10, 1e-12)


def test_transforms_nest(rng):
    x, y = data(rng, 6, (), 0)
    spline = lambda y: OURS.CubicSpline(x, y)  # noqa: E731
    q = x[:3] + 0.3
    np.testing.assert_allclose(tg.vmap(lambda q: spline(y)(q))(q), spline(y)(q), rtol=1e-12)
    third = tg.grad(tg.grad(tg.grad(lambda q: spline(y)(q))))(q[1])
    np.testing.assert_allclose(third, THEIRS.CubicSpline(x, y)(q[1], 3), rtol=1e-9)
    mixed = tg.jacobian(lambda q: tg.grad(lambda y: spline(y)(q))(y))(q[1])
    np.testing.assert_allclose(mixed, tg.grad(lambda y: spline(y)(q[1], 1))(y), rtol=1e-9)


@pytest.mark.parametrize("name", CUBIC)
def test_what_is_refused(name):
    made = getattr(OURS, name)
    for x, y, words in (
        ([0.0, 1.0], [1.0, 2.0, 3.0], "length of `y`"), ([0.0, 0.0], [1.0, 2.0], "strictly increasing"), ([0.0], [1.0], "at least 2"),
        ([0.0, np.nan], [1.0, 2.0], "finite"), ([0.0, 1.0], [1.0, np.inf], "finite"), ([[0.0, 1.0]], [1.0, 2.0], "1-dimensional"),
        ([0.0, 1j], [1.0, 2.0], "real"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            made(x, tg.tensor(y))
    with pytest.raises(tg.NotDifferentiable, match=r"complex queries.*real part"):
        made([0.0, 1.0], tg.tensor([1.0, 2.0]))(1j)
    with pytest.raises(ValueError, match="at least 0: use antiderivative"):
        made([0.0, 1.0], tg.tensor([1.0, 2.0]))(0.5, -1)


# fmt: off
REFUSED = [
    (lambda y: OURS.CubicSpline([0.0, 1.0], y, bc_type="free"), ValueError, "bc_type=free"),
    (lambda y: OURS.CubicSpline([0.0, 1.0], y, bc_type=("periodic", "natural")), ValueError, "both curve ends"),
    (lambda y: OURS.CubicSpline([0.0, 1.0], y, bc_type="periodic"), ValueError, "identical"),
    (lambda y: OURS.CubicSpline([0.0, 1.0], y, bc_type=((3, 0.0), "natural")), ValueError, "1 or 2"),
    (lambda y: OURS.CubicSpline([0.0, 1.0], y, bc_type=((1, [0.0]), "natural")), ValueError, "shape"),
    (lambda y: OURS.PchipInterpolator([0.0, 1.0], y * 1j), ValueError, "real values.*np.real"),
    (lambda y: OURS.Akima1DInterpolator([0.0, 1.0], y, method="x"), NotImplementedError, "'akima' or 'makima'"),
    (lambda y: OURS.PPoly(y, [0.0, 1.0]), ValueError, "array .k, m"),
    (lambda y: OURS.PPoly([y], [0.0, 1.0]), ValueError, "one more breakpoint"),
    (lambda y: OURS.BSpline([0.0, 1.0, 2.0], y, 1), ValueError, "at least 4 knots"),
    (lambda y: OURS.BSpline([0.0, 1.0, 3.0, 2.0], y, 1), ValueError, "non-decreasing"),
    (lambda y: OURS.BSpline([0.0, 1.0, 2.0, 3.0, 4.0], y, 1), ValueError, "inconsistent"),
    (lambda y: OURS.BSpline([0.0, 0, 1, 1, 2, 2], [*y, *y], 1).derivative(), ValueError, "repeated more than"),
    (lambda y: OURS.make_interp_spline([0.0, 0.0], y, 1), ValueError, "duplicates"),
    (lambda y: OURS.interp1d([0.0, 1.0], y, "smooth"), NotImplementedError, "nearest-up"),
    (lambda y: OURS.interp1d([0.0, 1.0], y)(2.0), ValueError, "above the interpolation range"),
    (lambda y: OURS.interp1d([0.0, 1.0], y, bounds_error=True, fill_value="extrapolate"), ValueError, "at the same time"),
    (lambda y: OURS.interp1d([0.0, 1.0], y, "cubic"), ValueError, "at least 4"),
    (lambda y: OURS.RegularGridInterpolator(([0.0, 1.0],), y)(3.0), ValueError, "out of bounds in dimension 0"),
    (lambda y: OURS.RegularGridInterpolator(([0.0, 1.0],), y, "cubic"), ValueError, "at least 4 points"),
    (lambda y: OURS.RegularGridInterpolator(([0.0, 1.0],), y, solver=1), ValueError, "banded"),
    (lambda y: OURS.RegularGridInterpolator(([0.0, 1.0],), y)(0.5, nu=[1]), ValueError, "derivatives for methods"),
    (lambda y: OURS.interpn(([0.0, 1.0],), y, 0.5, "splinef2d"), NotImplementedError, "use 'cubic'"),
    (lambda y: OURS.griddata(np.eye(2), y, np.eye(2), "cubic"), tg.NotDifferentiable, "RBFInterpolator"),
    (lambda y: OURS.griddata(np.eye(2), y, np.eye(2), "quintic"), ValueError, "Unknown interpolation method"),
    (lambda y: OURS.LinearNDInterpolator(np.eye(3), y), ValueError, "different number"),
    (lambda y: OURS.RBFInterpolator(np.eye(2), y, kernel="gaussian"), ValueError, "epsilon"),
    (lambda y: OURS.RBFInterpolator(np.eye(2), y), ValueError, "At least 3 data points"),
    (lambda y: OURS.RBFInterpolator(np.eye(2), y, kernel="bump"), ValueError, "must be one of"),
]
# fmt: on


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(tg.tensor([1.0, 2.0]))


@pytest.mark.long
def test_importing_loads_no_scipy():
    code = "import sys, tapegrad as tg; tg.interpolate.CubicSpline; print([m for m in sys.modules if m.startswith('scipy.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
