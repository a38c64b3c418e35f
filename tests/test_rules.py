"""Integrals of functions of arrays: values are SciPy's, derivatives those of closed forms and of differences."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import tapegrad as tg

integrate = tg.integrate


@pytest.mark.parametrize(
    ("a", "b"), [(0.0, 1.0), (1.0, 0.0), (0.0, np.inf), (-np.inf, 1.0), (-np.inf, np.inf), (2.0, -np.inf), (np.inf, 0.5)]
)  # fmt: skip
def test_tanhsinh_by_parameters_and_ends(a, b):
    f = lambda x, k: np.exp(-k * x**2) * (1 + x)  # noqa: E731
    ks = np.array([0.7, 2.0])
    found = integrate.tanhsinh(f, a, b, args=(ks,))
    np.testing.assert_array_equal(
        found.integral, scipy.integrate.tanhsinh(f, a, b, args=(ks,)).integral
    )
    by = lambda k: np.array([scipy.integrate.quad(f, a, b, args=(v,), epsabs=1e-13)[0] for v in k])  # noqa: E731
    h = 1e-4
    slopes = tg.jacobian(lambda k: integrate.tanhsinh(f, a, b, args=(k,)).integral)(ks)
    np.testing.assert_allclose(np.diag(slopes), (by(ks + h) - by(ks - h)) / (2 * h), rtol=1e-6)
    twice = tg.hessian(lambda k: np.sum(integrate.tanhsinh(lambda x: f(x, k), a, b).integral))(0.7)
    bent = [by([0.7 + d])[0] for d in (-1e-3, 0.0, 1e-3)]
    np.testing.assert_allclose(twice, (bent[0] - 2 * bent[1] + bent[2]) / 1e-6, rtol=1e-3)
    for i, end in enumerate((a, b)):
        if np.isfinite(end):
            moved = tg.grad(
                lambda e: (
                    integrate.tanhsinh(
                        f, *(e if j == i else v for j, v in enumerate((a, b))), args=0.7
                    ).integral
                )
            )
            np.testing.assert_allclose(
                moved(end), (1 if i else -1) * f(end, 0.7), rtol=1e-8, atol=1e-10
            )


def test_tanhsinh_of_a_function_that_is_singular_at_the_ends():
    """B(p, 2) is the integral of t^(p-1) (1 - t)."""
    beta = lambda p: integrate.tanhsinh(lambda t: t ** (p - 1) * (1 - t), 0.0, 1.0).integral  # noqa: E731
    expected = scipy.special.beta(0.5, 2) * (
        scipy.special.digamma(0.5) - scipy.special.digamma(2.5)
    )
    np.testing.assert_allclose(tg.grad(beta)(0.5), expected, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(beta, (0.5,), (2.0,))[1], 2 * expected, rtol=1e-6)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("rule", ["gk21", "gk15", "genz-malik"])
@pytest.mark.parametrize("flip", [False, True])
def test_cubature_by_parameters_and_ends(rule, flip):
    a, b = np.array([0.1, -0.3]), np.array([1.2, 0.9])
    if flip:
        a[0], b[0] = b[0], a[0]

    def f(x, k):
        return np.stack(
            [np.exp(-k[0] * x[:, 0] * x[:, 1]), np.cos(k[1] * x[:, 0] + 9 * x[:, 1])], 1
        )

    def integral(a, b, k, module=integrate):
        return module.cubature(f, a, b, rule=rule, rtol=1e-4, args=(k,)).estimate

    k = np.array([0.8, 3.0])
    np.testing.assert_array_equal(integral(a, b, k), integral(a, b, k, scipy.integrate))
    for i in range(3):
        place = [a, b, k]
        slope = tg.jacobian(integral, i)(*place)
        for j in range(2):
            step = np.eye(2)[j] * 1e-5
            ends = [
                integral(
                    *(v + s * step if n == i else v for n, v in enumerate(place)), scipy.integrate
                )
                for s in (1, -1)
            ]
            np.testing.assert_allclose(
                slope[:, j], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-8
            )
    twice = tg.hessian(lambda k: np.sum(integral(a, b, k)))(k)
    first = tg.grad(lambda k: np.sum(integral(a, b, k)))
    rows = [(first(k + s) - first(k - s)) / 2e-5 for s in np.eye(2) * 1e-5]
    np.testing.assert_allclose(twice, rows, rtol=1e-3, atol=1e-4)


def test_qmc_quad_is_differentiated_at_its_points():
    def integral(a, b, k, module=integrate):
        points = scipy.stats.qmc.Halton(2, rng=np.random.default_rng(1))
        return module.qmc_quad(
            lambda x: np.exp(-k * x[0] * x[1]), a, b, n_points=256, qrng=points
        ).integral

    place = [np.array([0.1, 0.0]), np.array([1.0, 0.7]), 0.9]
    assert integral(*place) == integral(*place, scipy.integrate)
    for i in range(3):
        slope = np.ravel(tg.grad(integral, i)(*place))
        for j in range(np.size(place[i])):
            step = 1e-5 * (np.eye(2)[j] if i < 2 else 1.0)
            ends = [
                integral(
                    *(v + s * step if n == i else v for n, v in enumerate(place)), scipy.integrate
                )
                for s in (1, -1)
            ]
            np.testing.assert_allclose(slope[j], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def test_inside_a_compiled_function():
    f = lambda k: integrate.tanhsinh(lambda x: np.exp(-k * x), 0.0, np.inf).integral  # noqa: E731
    g = lambda k: integrate.cubature(lambda x: np.exp(-k * x[:, 0]), [0.0], [k]).estimate  # noqa: E731
    for h in (f, g):
        fast = tg.compile(tg.grad(h))
        for k in (0.9, 1.7):
            np.testing.assert_allclose(fast(k), tg.grad(h)(k), rtol=1e-12)


def test_what_cannot_be_says_so():
    with pytest.raises(tg.NotDifferentiable, match="logarithm of the integral"):
        tg.grad(lambda k: integrate.tanhsinh(lambda x: -k * x, 0.0, 1.0, log=True).integral)(1.0)
    with pytest.raises(tg.NotDifferentiable, match="infinite range"):
        tg.grad(
            lambda k: integrate.cubature(lambda x: np.exp(-k * x[:, 0]), [0.0], [np.inf]).estimate
        )(1.0)
    with pytest.raises(tg.NotDifferentiable, match="log=True"):
        tg.grad(lambda k: integrate.qmc_quad(lambda x: -k * x[0], 0.0, 1.0, log=True).integral)(1.0)
    with pytest.raises(TypeError, match="cubature"):
        integrate.cubature(3.0, [0.0], [1.0])
