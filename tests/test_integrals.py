"""tg.integrate's quadrature: closed forms, SciPy's values, Leibniz' rule for everything that moves, and sampled integrals."""

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg

quad, quad_vec = tg.integrate.quad, tg.integrate.quad_vec

K = 1.3


def gauss(k, **settings):
    return quad(lambda x: np.exp(-k * x**2), -np.inf, np.inf, **settings)[0]


def test_plain_results_are_scipys():
    assert quad(np.cos, 0, 1) == scipy.integrate.quad(np.cos, 0, 1)
    assert quad(np.cos, 0, 1, full_output=1)[2]["neval"] == 21
    args = {"args": (2.0,), "epsabs": 1e-3, "weight": "sin", "wvar": 3.0}
    assert quad(lambda x, k: k * x, 0, 1, **args) == scipy.integrate.quad(
        lambda x, k: k * x, 0, 1, **args
    )
    ours = quad_vec(lambda x: x ** np.arange(3), 0, 1, full_output=True)
    theirs = scipy.integrate.quad_vec(lambda x: x ** np.arange(3), 0, 1, full_output=True)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] and ours[2].neval == theirs[2].neval
    ranges = [lambda x: (0, x), (0, 1)]
    assert tg.integrate.nquad(lambda y, x: x * y, ranges) == scipy.integrate.nquad(
        lambda y, x: x * y, ranges
    )
    with tg.no_grad():
        assert not isinstance(gauss(tg.tensor(K, requires_grad=True)), tg.Tensor)


@pytest.mark.long
def test_an_integral_over_all_numbers():
    exact = np.sqrt(np.pi / K)
    np.testing.assert_allclose(gauss(tg.tensor(K, requires_grad=True)).detach(), exact, rtol=1e-14)
    derivatives = [gauss]
    for expected in (-1 / 2 / K, 3 / 4 / K**2, -15 / 8 / K**3):
        derivatives.append(tg.grad(derivatives[-1]))
        np.testing.assert_allclose(derivatives[-1](K), expected * exact, rtol=1e-8)
    np.testing.assert_allclose(tg.jvp(gauss, (K,), (1.0,))[1], -exact / 2 / K, rtol=1e-8)
    np.testing.assert_allclose(
        tg.jvp(tg.grad(gauss), (K,), (1.0,))[1], 3 / 4 / K**2 * exact, rtol=1e-8
    )


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_ends_arguments_and_closures(mode):
    factor = 0.7

    def integral(a, b, p, q):
        return quad(lambda x, p: q * np.sin(p * x), a, b, args=(p,))[0]

    def exact(a, b, p, q):
        return q * (np.cos(p * a) - np.cos(p * b)) / p

    for at in ((0.2, 1.5, 2.0, factor), (1.5, 0.2, 2.0, factor)):
        found = tg.jacobian(integral, argnums=(0, 1, 2, 3), mode=mode)(*at)
        np.testing.assert_allclose(found, tg.grad(exact, argnums=(0, 1, 2, 3))(*at), rtol=1e-8)
    v = np.array([0.2, 1.5, 2.0, factor])
    np.testing.assert_allclose(
        tg.hessian(lambda v: integral(*v))(v),
        tg.hessian(lambda v: exact(*v))(v),
        rtol=1e-8,
        atol=1e-12,
    )


def test_half_lines_and_ends_that_are_infinite_constants():
    tail = lambda a, k: quad(lambda x: np.exp(-k * x), a, np.inf)[0]  # noqa: E731
    np.testing.assert_allclose(
        tg.grad(tail, argnums=(0, 1))(0.5, 2.0), (-np.exp(-1), -np.exp(-1) / 2), rtol=1e-8
    )
    left = lambda b: quad(np.exp, -np.inf, b)[0]  # noqa: E731
    np.testing.assert_allclose(tg.grad(left)(0.3), np.exp(0.3), rtol=1e-8)


@pytest.mark.long
def test_singular_ends():
    """∫ x^p has the derivative -1 / (p + 1)², whose integrand is x^p log x: worse at 0 than the integrand itself."""
    power = lambda p: quad(lambda x: x**p, 0, 1)[0]  # noqa: E731
    np.testing.assert_allclose(tg.grad(power)(-0.5), -4.0, rtol=1e-8)
    np.testing.assert_allclose(tg.grad(tg.grad(power))(-0.5), 16.0, rtol=1e-7)

    def inside(p):
        """Singular in the middle, which is no node where it is a break point."""
        return quad(lambda x: (x * x) ** (p / 2) / (1.0 if x else 0.0), -1, 1, points=[0.0])[0]

    np.testing.assert_allclose(tg.grad(inside)(-0.5), -8.0, rtol=1e-7)


def test_a_jump_that_moves_is_seen_at_break_points():
    def integral(c):
        edge = float(c.detach()) if isinstance(c, tg.Tensor) else c
        return quad(lambda x: x if x < edge else 3 * x, 0, 2, points=[c])[0]

    np.testing.assert_allclose(tg.grad(integral)(1.2), -2 * 1.2, rtol=1e-12)
    kink = lambda c: quad(lambda x: np.abs(x - c), 0, 2, points=[c])[0]  # noqa: E731
    np.testing.assert_allclose(tg.grad(kink)(1.2), 2 * 1.2 - 2, rtol=1e-8)
    np.testing.assert_allclose(
        tg.grad(tg.grad(lambda c: quad(lambda x: x * c, c, 2, points=[1.5])[0]))(1.2),
        -3 * 1.2,
        rtol=1e-8,
    )


@pytest.mark.parametrize(
    "weight", [("cos", 3.0), ("sin", 3.0), ("alg", (-0.5, -0.3)), ("cauchy", 0.7)]
)
def test_weights(weight):
    name, parameter = weight

    def integral(p, b, of=quad):
        return of(lambda x: np.exp(p * x), 0, b, weight=name, wvar=parameter)[0]

    def differences(i):
        up, down = ([0.4, 1.1], [0.4, 1.1])
        up[i], down[i] = up[i] + 1e-4, down[i] - 1e-4
        return (
            integral(*up, of=scipy.integrate.quad) - integral(*down, of=scipy.integrate.quad)
        ) / 2e-4

    np.testing.assert_allclose(tg.grad(integral)(0.4, 1.1), differences(0), rtol=1e-6)
    if name == "alg":
        with pytest.raises(tg.NotDifferentiable, match="Substitute"):
            tg.grad(integral, argnums=1)(0.4, 1.1)
    else:
        np.testing.assert_allclose(
            tg.grad(integral, argnums=1)(0.4, 1.1), differences(1), rtol=1e-6
        )
    with pytest.raises(tg.NotDifferentiable, match="wvar"):
        tg.grad(lambda w: quad(np.exp, 0, 1, weight="cos", wvar=w)[0])(3.0)


def test_complex_functions():
    wave = lambda w: quad(lambda x: np.exp(1j * w * x), 0, 1, complex_func=True)[0]  # noqa: E731
    expected = scipy.integrate.quad(lambda x: 1j * x * np.exp(2j * x), 0, 1, complex_func=True)[0]
    np.testing.assert_allclose(tg.grad(lambda w: np.real(wave(w)))(2.0), expected.real, rtol=1e-8)
    np.testing.assert_allclose(tg.grad(lambda w: np.imag(wave(w)))(2.0), expected.imag, rtol=1e-8)
    assert wave(2.0) == scipy.integrate.quad(lambda x: np.exp(2j * x), 0, 1, complex_func=True)[0]
    by_complex = tg.grad(lambda z: quad(lambda x: np.abs(z * x + 1) ** 2, 0, 1)[0])(0.3 + 0.4j)
    np.testing.assert_allclose(by_complex, 2 * (0.3 + 0.4j) / 3 + 1, rtol=1e-8)


def test_many_parameters():
    def coefficients(n):
        return tg.grad(lambda p: quad(lambda x: np.sum(p * x ** np.arange(n)), 0, 1)[0])(np.ones(n))

    for n in (3, 60):
        np.testing.assert_allclose(coefficients(n), 1 / np.arange(1, n + 1), rtol=1e-8)


def test_functions_that_are_not_meant_for_many_numbers_at_once():
    """With a factor of 0 the value is right for many numbers at once, and its derivative by the factor is not."""
    mean = tg.grad(lambda e: quad(lambda x: x + e * np.mean(x) * np.size(x), 0, 1)[0])
    np.testing.assert_allclose(mean(0.0), 0.5, rtol=1e-8)
    branch = tg.grad(
        lambda e: quad(lambda x: e * x if x < 0.5 else 2 * e * x, 0, 1, points=[0.5])[0]
    )
    np.testing.assert_allclose(branch(0.7), 0.125 + 0.75, rtol=1e-8)
    sizes = []

    def counted(x):
        sizes.append(np.size(x))
        return np.cos(x)

    tg.grad(lambda p: quad(lambda x: p * counted(x), 0, 1)[0])(1.0)
    assert max(sizes) == 21 and len(sizes) < 3 * 21, "slopes come from one run at all nodes"


def test_arrays():
    scales = np.arange(4.0).reshape(2, 2)
    f = lambda p: quad_vec(lambda x: np.cos(p * x) * scales, 0, 1)[0]  # noqa: E731
    slope = tg.grad(lambda p: np.sin(p) / p)
    np.testing.assert_allclose(tg.jacobian(f)(2.0), scales * slope(2.0), rtol=1e-8)
    np.testing.assert_allclose(
        tg.jacobian(tg.jacobian(f))(2.0), scales * tg.grad(slope)(2.0), rtol=1e-8
    )
    np.testing.assert_allclose(
        tg.jacobian(lambda b: quad_vec(lambda x: x * scales, 0, b)[0])(2.0), 2 * scales, rtol=1e-10
    )
    by_complex = lambda p: np.real(quad_vec(lambda x: np.exp(1j * p * x) * scales, 0, 1)[0])  # noqa: E731
    np.testing.assert_allclose(tg.jacobian(by_complex)(2.0), scales * slope(2.0), rtol=1e-8)


@pytest.mark.long
def test_several_variables():
    def area(k):
        return tg.integrate.dblquad(lambda y, x: k * np.sin(k * x * y), 0, 1, 0, lambda x: k * x)[0]

    def theirs(k):
        return scipy.integrate.dblquad(
            lambda y, x: k * np.sin(k * x * y), 0, 1, 0, lambda x: k * x
        )[0]

    np.testing.assert_allclose(
        tg.grad(area)(1.2), (theirs(1.2001) - theirs(1.1999)) / 2e-4, rtol=1e-7
    )
    rough = {"epsabs": 1e-4, "epsrel": 1e-4}
    second = tg.grad(
        tg.grad(
            lambda k: tg.integrate.dblquad(lambda y, x: np.exp(k * x * y), 0, 1, 0, 1, **rough)[0]
        )
    )
    np.testing.assert_allclose(
        second(0.5),
        scipy.integrate.dblquad(lambda y, x: (x * y) ** 2 * np.exp(0.5 * x * y), 0, 1, 0, 1)[0],
        rtol=1e-4,
    )

    def ball(r):
        return tg.integrate.tplquad(
            lambda z, y, x: x * y * z,
            0,
            r,
            lambda x: 0,
            lambda x: r,
            lambda x, y: 0.0,
            lambda x, y: x + y,
            epsabs=1e-3,
            epsrel=1e-3,
        )[0]

    # x y (x + y)² / 2 over a square: 17/72 r^6 by hand
    np.testing.assert_allclose(ball(1.0), 17 / 72, rtol=1e-6)
    np.testing.assert_allclose(tg.grad(ball)(1.0), 6 * 17 / 72, rtol=1e-5)
    options = [lambda x, k: {"points": [0.5 * x]}, lambda k: {"epsabs": 1e-6}]
    found = tg.grad(
        lambda k: tg.integrate.nquad(
            lambda y, x, k: k * x * y, [lambda x, k: (0, k * x), (0, 1)], args=(k,), opts=options
        )[0]
    )(2.0)
    np.testing.assert_allclose(found, 3 * 4.0 / 8, rtol=1e-7)


def test_a_fixed_number_of_nodes_compiled_too():
    f = lambda b, p: tg.integrate.fixed_quad(lambda x, p: np.exp(p * x), 0, b, args=(p,), n=8)[0]  # noqa: E731
    assert f(1.0, 0.5) == pytest.approx(
        scipy.integrate.fixed_quad(lambda x: np.exp(0.5 * x), 0, 1, n=8)[0], rel=1e-14
    )
    gradient = tg.grad(f, argnums=(0, 1))
    exact = np.exp(0.5), 2 * np.exp(0.5) - 4 * (np.exp(0.5) - 1)
    np.testing.assert_allclose(gradient(1.0, 0.5), exact, rtol=1e-10)
    np.testing.assert_allclose(tg.compile(gradient)(1.0, 0.5), exact, rtol=1e-10)
    with pytest.raises(ValueError, match="finite"):
        tg.integrate.fixed_quad(np.exp, 0, np.inf)


@pytest.mark.long
def test_under_dual_level():
    fwd = tg.autograd.forward_ad
    exact = np.sqrt(np.pi / K)
    with fwd.dual_level():
        p = tg.tensor(K, requires_grad=True)
        tangent = fwd.unpack_dual(gauss(fwd.make_dual(p, tg.tensor(1.0)))).tangent
        np.testing.assert_allclose(tangent.detach(), -exact / 2 / K, rtol=1e-8)
        tangent.backward()
        b = fwd.make_dual(tg.tensor(2.0), tg.tensor(3.0))
        moved = fwd.unpack_dual(quad(lambda x: b * x, 0, b)[0]).tangent
    np.testing.assert_allclose(p.grad, 3 / 4 / K**2 * exact, rtol=1e-8)
    np.testing.assert_allclose(moved, 3 * (3 * 4.0 / 2), rtol=1e-8)


def test_what_cannot_be_says_so():
    with pytest.raises(tg.GradientLost):
        tg.grad(lambda p: quad(lambda x: p.item() * x, 0, 1)[0])(K)
    assert tg.grad(lambda p: quad(lambda x: float(p) * x, 0, 1)[0])(K) == pytest.approx(0.5)
    draw = np.random.default_rng(1)
    with pytest.raises(tg.GraphError, match="draws random numbers"):
        tg.grad(lambda p: quad(lambda x: p * draw.uniform(), 0, 1, epsabs=1, epsrel=1)[0])(K)
    total = lambda k: sum(quad(lambda x: i * k * k, 0, 1)[0] for i in (1.0, 2.0))  # noqa: E731
    assert tg.grad(tg.grad(total))(1.0) == pytest.approx(6.0)
    assert tg.grad(lambda p: quad(lambda x: p, 0, 2)[0])(3.0) == pytest.approx(2.0)


# ------------------------------------------------------------------------------------------------------ sampled integrals

SAMPLED = ["trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson", "romb"]


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_samples(name, count):
    """Values are SciPy's along each axis; derivatives by samples, places and spacing those of differences."""
    if name == "romb" and count not in (2, 3, 5, 9):
        with pytest.raises(ValueError, match="power of 2"):
            tg.integrate.romb(tg.zeros(count))
        return
    f, theirs = getattr(tg.integrate, name), getattr(scipy.integrate, name)
    r = np.random.default_rng(count)
    x = np.arange(count) + r.uniform(0.1, 0.9, count)
    for shape, axis in (((count,), -1), ((count, 3), 0), ((2, count), 1)):
        y = r.normal(size=shape)
        full = np.broadcast_to(
            x.reshape([count if k == axis % len(shape) else 1 for k in range(len(shape))]), shape
        ).copy()
        for settings in ({}, {"dx": 0.3}, {"x": x}, {"x": full}, {"initial": 0}):
            if (name == "romb" and "x" in settings) or (
                "initial" in settings and not name.startswith("cumulative")
            ):
                continue
            expected = theirs(y, axis=axis, **settings)
            np.testing.assert_array_equal(f(y, axis=axis, **settings), expected)
            found = f(tg.tensor(y, requires_grad=True), axis=axis, **settings)
            np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12, atol=1e-13)
            tg.check_gradient(
                lambda y, s=settings, a=axis: np.sum(np.sin(f(y, axis=a, **s))), y
            ).assert_ok()
            if "x" in settings:
                tg.check_gradient(
                    lambda x, y=y, a=axis: np.sum(np.sin(f(y, x=x, axis=a))), settings["x"]
                ).assert_ok()
        by_dx = tg.grad(lambda d, y=y, a=axis: np.sum(f(y, dx=d, axis=a)))(0.3)
        np.testing.assert_allclose(by_dx, np.sum(theirs(y, dx=0.3, axis=axis)) / 0.3, rtol=1e-12)


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_compiled_and_in_other_precision(name):
    f, theirs = getattr(tg.integrate, name), getattr(scipy.integrate, name)
    y = np.random.default_rng(5).normal(size=9)
    for dtype in (np.float32, np.complex128):
        found, expected = f(tg.tensor(y.astype(dtype))), theirs(y.astype(dtype))
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    gradient = tg.grad(lambda y: np.sum(np.sin(f(y, dx=0.3))))
    np.testing.assert_allclose(tg.compile(gradient)(y), gradient(y), rtol=1e-12)


def test_samples_at_one_place_twice_and_bad_ones():
    y = np.arange(5.0) ** 2
    for x in ([0.0, 1.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 2.0, 2.0]):
        by_y = tg.grad(lambda y, x=x: tg.integrate.simpson(y, x=x))(y)
        np.testing.assert_allclose(by_y @ y, scipy.integrate.simpson(y, x=x), rtol=1e-12)
    t = tg.tensor(y)
    for call, words in (
        (lambda: tg.integrate.simpson(t, x=[0.0, 1.0]), "length of x"),
        (lambda: tg.integrate.simpson(t, x=np.ones((5, 1))), "1-D or the same"),
        (lambda: tg.integrate.simpson(t, axis=1), "is not valid"),
        (
            lambda: tg.integrate.cumulative_simpson(t, x=[0.0, 1.0, 1.0, 2.0, 3.0]),
            "strictly increasing",
        ),
        (lambda: tg.integrate.cumulative_trapezoid(t, initial=1), "`None` or `0`"),
        (lambda: tg.integrate.cumulative_trapezoid(tg.zeros(0)), "At least one point"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
