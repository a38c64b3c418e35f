"""Removable singularities, and products of narrow numbers: value, first, second and third derivative against mpmath and NumPy.

A rule that is a quotient loses its digits beside the point where both parts vanish, and each derivative of it loses more. The
points are those points, their neighbours and ordinary ones; the bound is a relative one of the derivative itself.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import tapegrad as tg
import tapegrad.numpy as tnp

NEAR = (0.0, 1e-300, 1e-10, -1e-10, 1e-3, 0.03, -0.12, 0.13)
# fmt: off
SMOOTH = {
    "spence": (tg.special.spence, lambda x: mpmath.polylog(2, 1 - x), [1.0 + h for h in NEAR] + [0.3, 3.0]),
    "rgamma": (tg.special.rgamma, mpmath.rgamma,
               [n + h for n in (0, -1, -3) for h in NEAR] + [0.49999, 0.50001, 0.7, 2.5, -2.5, 6.25]),
    "logit": (tg.special.logit, lambda x: mpmath.log(x / (1 - x)), [1e-6, 1e-3, 0.5, 0.25, 1 - 1e-3]),
}
# fmt: on


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_beside_removable_singularities(name, order):
    f, exact, points = SMOOTH[name]
    derivative = lambda x: f(x)  # noqa: E731  wrapped below
    for _ in range(order):
        derivative = tg.grad(derivative)
    compiled = tg.compile(derivative)
    for x in points:
        with mpmath.workdps(60):
            # A step of 1e-15 at 60 digits: its error is far below double precision, and it does not leave the point.
            expected = float(mpmath.diff(exact, mpmath.mpf(x), order, h=mpmath.mpf("1e-15")).real)
        for engine in (derivative, compiled):
            assert engine(x) == pytest.approx(expected, rel=1e-11, abs=1e-13), (x, expected)


def test_a_slope_beyond_the_largest_number_is_infinite_not_nan():
    second = tg.grad(tg.grad(tg.special.logit))
    assert second(1e-300) == -np.inf and tg.compile(second)(1e-300) == -np.inf


# fmt: off
SCALED = {  # the function, Bessel's function that it scales by exp(sign x), its order and the sign
    "i0e": (tg.special.i0e, mpmath.besseli, 0, -1),
    "i1e": (tg.special.i1e, mpmath.besseli, 1, -1),
    "k0e": (tg.special.k0e, mpmath.besselk, 0, 1),
    "k1e": (tg.special.k1e, mpmath.besselk, 1, 1),
    "ive": (lambda x: tg.special.ive(2.5, x), mpmath.besseli, 2.5, -1),
    "kve": (lambda x: tg.special.kve(2.5, x), mpmath.besselk, 2.5, 1),
}
# fmt: on


def scaled_slope(bessel, nu, sign, x, order):
    """d^order / dx^order of exp(sign x) B(nu, x), by B' = -sign (B(nu - 1) + B(nu + 1)) / 2, in fifty digits."""
    terms = {nu: mpmath.mpf(1)}
    for _ in range(order):
        found: dict = {}
        for n, c in terms.items():
            for m, share in ((n, sign * c), (n - 1, -sign * c / 2), (n + 1, -sign * c / 2)):
                found[m] = found.get(m, 0) + share
        terms = found
    return mpmath.exp(sign * x) * sum(c * bessel(n, x) for n, c in terms.items())


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("order", [1, 2])
def test_slopes_of_scaled_functions_keep_their_digits_at_large_arguments(name, order):
    """Each derivative is 1 / x of the one before: a difference of neighbours has lost its digits to that, at 1e8 all of them."""
    f, bessel, nu, sign = SCALED[name]
    derivative = tg.grad(f) if order == 1 else tg.grad(tg.grad(f))
    compiled = tg.compile(derivative)
    # Up to the change of formula the neighbours' difference stands: it loses (2 x)^order of the digits, 6400 ulps at most.
    points = [(x, 2e-12) for x in (1e-3, 1.0, 10.0, 39.9)]
    points += [(x, 1e-13) for x in (60.0, 1e3, 1e4, 1e8)]
    for x, rtol in points:
        with mpmath.workdps(50):
            expected = float(scaled_slope(bessel, nu, sign, mpmath.mpf(x), order))
        for engine in (derivative, compiled):
            assert engine(x) == pytest.approx(expected, rel=rtol, abs=0), x
    if name.startswith("i") and name != "ive":  # of an even or odd function: so is its slope
        side = -1 if (name == "i0e") == (order == 1) else 1
        for x in (3.0, 1e4):
            assert derivative(-x) == pytest.approx(side * derivative(x), rel=1e-15)


def test_a_diagonal_over_axes_of_two_lengths_is_refused():
    """NumPy takes a first axis of length 0 for one not met yet, and reads three numbers of an array that has none."""
    for shape in ((0, 3), (3, 0), (2, 3), (1, 3)):
        for subscripts in ("ii->i", "ii"):
            with pytest.raises(ValueError, match="lengths"):
                np.einsum(subscripts, tg.tensor(np.zeros(shape), requires_grad=True))
            with pytest.raises(ValueError, match="lengths"):
                tg.grad(lambda x, s=subscripts: np.sum(np.einsum(s, x)))(np.zeros(shape))
    assert tg.grad(lambda x: np.sum(np.einsum("ii->i", x)))(np.zeros((0, 0))).shape == (0, 0)


DTYPES = [np.bool_, np.uint8, np.int8, np.int32, np.int64, np.float32, np.float64]
PRODUCTS = ["dot", "inner", "vdot", "matmul", "outer", "kron", "tensordot"]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("kind", [lambda x: x, tg.tensor], ids=["array", "tensor"])
def test_products_of_narrow_numbers_are_numpys(name, kind, rng):
    """Value and dtype, wrapped sums included: what NumPy gives for such operands is what tapegrad gives."""
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = (rng.integers(0, 2 if d is np.bool_ else 127, (3, 3)).astype(d) for d in (a, b))
        if name == "vdot":
            x, y = x.ravel(), y.ravel()
        expected = getattr(np, name)(x, y)
        for got in (getattr(tg, name)(kind(x), kind(y)), getattr(tnp, name)(kind(x), kind(y))):
            assert got.dtype == expected.dtype, (a, b)
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["dot", "inner"])
@pytest.mark.parametrize("number", [2, 2.0, 2j, True])
def test_a_product_with_a_python_number_has_numpys_dtype(name, number):
    for dtype in DTYPES:
        x = np.array([100, 1]).astype(dtype)
        expected = getattr(np, name)(x, number)
        for got in (getattr(tg, name)(x, number), getattr(tg, name)(tg.tensor(x), number)):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("bounds", [(1, None), (None, 3), (1, 3), (0.5, None), (None, 2.5)])
def test_clipped_integers_are_as_numpy_has_them(bounds):
    for x in (np.array([0, 2, 9]), np.uint8([0, 2, 9]), np.int64(4), np.array([True, False])):
        expected = np.clip(x, *bounds)
        for got in (tg.clip(x, *bounds), tnp.clip(x, *bounds), tg.clip(tg.tensor(x), *bounds)):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(got), expected)


def test_a_fraction_is_no_power_of_a_matrix():
    for a in (np.eye(2), tg.tensor(np.eye(2), requires_grad=True)):
        with pytest.raises(TypeError):
            tg.linalg.matrix_power(a, 2.9)
    assert tg.linalg.matrix_power(tg.tensor(np.eye(2) * 2), np.int64(3))[0, 0] == 8


def test_a_number_repeated_along_its_axis():
    for axis in (0, -1, None):
        f = lambda x, axis=axis: np.sum(np.repeat(x[1] * x[0], 3, axis=axis))  # noqa: E731
        np.testing.assert_array_equal(tg.grad(f)(np.array([2.0, 5.0])), [15.0, 6.0])


def test_one_axis_may_be_named_as_a_number():
    v = np.arange(3.0)
    for engine in (tg.grad, lambda f: tg.compile(tg.grad(f))):
        np.testing.assert_array_equal(engine(lambda x: np.sum(np.transpose(x, 0) * v))(v), v)


def test_a_number_is_a_row_of_one_wherever_numpy_has_it_so():
    """Along an axis that it has not."""
    along = [
        np.nanmean, np.nanvar, np.nanstd, np.nansum, np.min, np.max, lambda x, axis: np.min(x, axis=axis, initial=9.0),
        lambda x, axis: np.take(x, [0, 0], axis=axis), lambda x, axis: np.nanmean(x, axis=axis, keepdims=True),
    ]  # fmt: skip
    if hasattr(np, "cumulative_sum"):  # NumPy 2.1
        along += [lambda x, axis: np.cumulative_sum(x, axis=axis, include_initial=True)]
    for of in along:
        for axis in (0, -1):
            f = lambda x, of=of, axis=axis: of(np.sin(x[0]), axis=axis)  # noqa: E731
            x = np.array([0.5])
            expected = f(x)
            value, tangent = tg.jvp(f, (x,), (np.ones(1),))
            np.testing.assert_allclose(value, expected)
            slope = (np.sum(f(x + 1e-6)) - np.sum(f(x - 1e-6))) / 2e-6
            gradient = tg.grad(lambda x, f=f: np.sum(f(x)))(x)
            np.testing.assert_allclose(gradient, [slope], atol=1e-8)
            np.testing.assert_allclose(np.sum(tangent), slope, atol=1e-8)


def test_a_variance_of_complex_numbers_in_a_real_type_is_refused():
    """NumPy centres by the mean of real parts there."""
    z = np.array([1 + 2j, 0.5 - 1j, 2j])
    for of in (np.var, np.std, np.nanvar, np.nanstd):
        with pytest.raises(tg.NotDifferentiable, match=r"x\.real"):
            tg.grad(lambda z, of=of: of(z, dtype=float))(z)
        got = of(tg.tensor(z), dtype=complex)
        np.testing.assert_allclose(got, of(z, dtype=complex), rtol=1e-14)


def test_hypot_of_one_entry_is_its_absolute_value():
    """NumPy begins at 0, as it does not with `logaddexp`."""
    for x in (np.float64(-2.0), np.array([-2.0]), np.array([[-2.0], [0.5]])):
        for axis in (0, -1):
            f = lambda x, axis=axis: np.sum(np.sin(np.hypot.reduce(x, axis=axis)))  # noqa: E731
            value, gradient = tg.value_and_grad(f)(x)
            assert value == f(x)
            along = np.asarray(x) * 1e-6
            np.testing.assert_allclose(
                np.sum(gradient * along), (f(x + along) - f(x - along)) / 2, rtol=1e-6
            )


def test_norms_and_products_of_nothing():
    for shape in ((2, 0), (0, 2), (0,)):
        for order in (None, 1, 2, np.inf, "fro", "nuc"):
            x = np.ones(shape)
            try:
                expected = np.linalg.norm(x, order)
            except ValueError:
                continue
            value, gradient = tg.value_and_grad(lambda x, o=order: np.linalg.norm(x, o))(x)
            assert value == expected and gradient.shape == shape
    f = lambda x: np.sum(np.polymul(x[1:1], x))  # noqa: E731
    assert tg.value_and_grad(f)(np.ones(3))[0] == 0.0


def test_a_stretched_argument_lies_in_memory_as_it_is():
    """Else a store beside a reshape would reach another thing than in NumPy's own run."""

    def f(x):
        v = x + 0.5
        v.reshape(-1)[1] -= np.sum(x)
        return np.sum(v * np.arange(12.0).reshape(3, 4))

    for x in (np.broadcast_to(np.arange(4.0), (3, 4)), np.broadcast_to(np.ones((3, 1)), (3, 4))):
        assert tg.value_and_grad(f)(x)[0] == f(x) == f(tg.tensor(x)).item()
        for order in ("C", "F"):
            full = np.full_like(np.asarray(x, order=order), 0.5)
            assert (
                np.full_like(tg.tensor(np.array(x, order=order)), 0.5).numpy().strides
                == full.strides
            )


def test_a_store_at_a_mask_of_a_view_of_the_same_array_is_refused():
    """NumPy reads there what it has just stored; the derivative would be another function's."""

    def f(x):
        v = x * 1.0
        v[v > 0.1] = v[::2]
        return np.sum(v * v)

    x = np.array([-0.4, -1.1, 0.9, 0.2])
    for g in (tg.grad(f), tg.compile(f), tg.compile(tg.grad(f))):
        with pytest.raises(tg.TapegradError, match=r"y\.copy\(\)"):
            g(x)

    def apart(x):
        v = x * 1.0
        v[v > 0.1] = v[::2].copy()
        return np.sum(v * v)

    for g in (tg.grad(apart), tg.compile(tg.grad(apart))):
        np.testing.assert_allclose(g(x), [4 * -0.4, 2 * -1.1, 2 * 0.9, 0.0])


def test_extrema_of_nothing_but_nan_are_the_initial_value():
    x = np.array([[np.nan, 1.0], [np.nan, -2.0]])
    for of in (np.nanmax, np.nanmin):
        for settings in (
            {"axis": 0, "initial": 0.3},
            {"axis": 0, "initial": 0.3, "where": np.array([[True, False], [True, False]])},
        ):
            f = lambda x, of=of, settings=settings: of(x, **settings)  # noqa: E731
            np.testing.assert_array_equal(f(tg.tensor(x)).numpy(), f(x))
            gradient = tg.grad(lambda x, f=f: np.sum(f(x)))(x)
            assert np.isfinite(gradient).all() and not gradient[:, 0].any()


def test_tangents_of_stores_into_constants_have_the_type_of_the_array():
    """Complex ones keep their imaginary part, narrow ones stay narrow."""
    x, d = np.array([0.5, -0.3, 0.8]), np.array([1.0, 2.0, -1.0])

    def stored(x):
        v = np.zeros_like(np.fft.rfft(x))
        v[...] = np.fft.rfft(x)
        return v

    into = lambda x: np.multiply(x, 1j, out=np.zeros_like(x * 1j))  # noqa: E731
    for f in (stored, into):
        for jvp in (tg.jvp, tg.compile(lambda *a, f=f: tg.jvp(f, *a))):
            given = (f, (x,), (d,)) if jvp is tg.jvp else ((x,), (d,))
            np.testing.assert_allclose(jvp(*given)[1], f(d), rtol=1e-15)
    y = x.astype(np.float32)

    def narrow(y):
        v = np.zeros_like(y)
        v[1:] = y[1:] * 2
        return v

    assert tg.jvp(narrow, (y,), (y,))[1].dtype == np.float32


def test_a_complex_number_stored_into_a_real_array_is_a_refusal():
    def f(x):
        v = x * 1.0
        v[0] = np.sum(x) * 1j
        return np.sum(v)

    with pytest.raises(tg.GraphError, match="imaginary"):
        tg.grad(f)(np.ones(2))


@pytest.mark.parametrize(
    "f, point, mixed",
    [
        (tg.special.xlogy, (0.0, 2.0), 0.5),
        (tg.special.xlog1py, (0.0, 1.0), 0.5),
        (np.power, (2.0, 0.0), 0.5),
        (np.float_power, (2.0, 0.0), 0.5),
        (tg.special.powm1, (2.0, 0.0), 0.5),
        (tg.special.stdtr, (3.0, 0.0), 0.009732981649993),
    ],
)
def test_mixed_derivatives_where_a_partial_is_0(f, point, mixed):
    """A partial that is 0 at a point has derivatives there: those of y x^(y-1) and x / y were 0."""
    gradient = lambda v: tg.grad(lambda v: f(v[0], v[1]))(v)  # noqa: E731
    for mode in ("reverse", "forward"):
        hessian = tg.jacobian(gradient, mode=mode)(np.array(point))
        assert hessian[0, 1] == pytest.approx(mixed, rel=1e-13) and hessian[1, 0] == pytest.approx(
            mixed, rel=1e-13
        )


def test_third_derivatives_of_a_power_at_1():
    third = tg.jacobian(tg.hessian(lambda v: v[0] ** v[1]))(np.array([2.0, 1.0]))
    assert third[0, 0, 1] == pytest.approx(0.5, rel=1e-13)


@pytest.mark.long
def test_mixed_derivatives_at_a_partial_of_0_compiled_and_native():
    compiled = tg.compile(tg.hessian(lambda v: v[0] ** v[1] + tg.special.xlogy(v[1], v[0])))
    for v in ([3.0, 1.5], [2.0, 0.0]):  # 1 / x, and 1 / x of the second
        x, y = v
        assert compiled(np.array(v))[0, 1] == pytest.approx(
            x ** (y - 1) * (1 + y * np.log(x)) + 1 / x, rel=1e-13
        )
    native = tg.njit(lambda x, y: x**y)
    assert tg.grad(tg.grad(native, 0), 1)(2.0, 0.0) == pytest.approx(0.5, rel=1e-13)
    assert tg.grad(native, (0, 1))(0.0, 0.0) == (0.0, 0.0)


def test_a_product_of_polynomials_whose_first_coefficient_is_0():
    """It has no entry in the product, and still moves the others."""
    v = np.array([0.0, 2.0, -1.0])
    np.testing.assert_array_equal(tg.polymul(v, v), np.polymul(v, v))
    expected = [[-2.0, 4.0, 0.0], [0.0, -2.0, 4.0], [0.0, 0.0, -2.0]]
    for mode in ("reverse", "forward"):
        np.testing.assert_array_equal(
            tg.jacobian(lambda v: np.polymul(v, v), mode=mode)(v), expected
        )


@pytest.mark.parametrize(
    "name, slope, third",
    [("sici", 1, -1 / 3), ("shichi", 1, 1 / 3), ("itj0y0", 1, -0.5), ("iti0k0", 1, 0.5)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_first_of_two_integrals_at_the_pole_of_the_second(name, slope, third):
    f = lambda x: getattr(tg.special, name)(x)[0]  # noqa: E731
    assert tg.grad(f)(0.0) == slope and tg.jvp(f, (0.0,), (1.0,))[1] == slope
    assert tg.grad(tg.grad(tg.grad(f)))(0.0) == pytest.approx(third, rel=1e-13)
    assert tg.compile(tg.grad(f))(0.0) == slope
