"""Distributions: values are SciPy's, gradients are differences of SciPy's values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg
from tapegrad import stats

CONTINUOUS = {
    "norm": (), "t": (3.5,), "gamma": (2.5,), "chi2": (3.0,), "beta": (2.0, 3.5), "expon": (), "uniform": (), "laplace": (),
    "logistic": (), "cauchy": (), "lognorm": (0.7,),
}  # fmt: skip
DISCRETE = {"poisson": (2.3,), "binom": (5, 0.3), "bernoulli": (0.3,)}
X = np.array([-30.0, -2.0, -0.5, 0.0, 0.3, 0.55, 1.0, 1.2, 2.5, 40.0, np.inf, -np.inf, np.nan])
INSIDE = np.array([0.45, 0.8, 1.3])
"""Within the support of each of them, for the loc and scale of the tests, and away from kinks."""

METHODS = ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"]


def slope(f, at, h):
    """Five-point difference."""
    return (8 * (f(at + h) - f(at - h)) - (f(at + 2 * h) - f(at - 2 * h))) / (12 * h)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_are_scipys(name, method):
    ours, theirs = (getattr(getattr(m, name), method) for m in (stats, scipy.stats))
    shape = CONTINUOUS[name]
    for loc, scale in ((0.0, 1.0), (0.3, 2.0)):
        expected = theirs(X, *shape, loc, scale)
        for x in (X, tg.tensor(X)):
            value = np.asarray(ours(x, *shape, loc=loc, scale=scale))
            np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-300)
    assert np.isnan(ours(1.0, *shape, scale=-1.0))
    if shape:
        assert np.isnan(ours(0.5, -1.0, *shape[1:]))


# By these parameters SciPy has no derivative of the distribution function, and ours says so.
BY_X = {"t": {0}, "chi2": {0}, "gamma": {0}, "beta": {0, 1}}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_are_differences_of_scipys(name, method):
    ours, theirs = (getattr(getattr(m, name), method) for m in (stats, scipy.stats))
    shape = CONTINUOUS[name]
    n = len(shape) + 3
    for x in INSIDE:
        args = (x, *shape, 0.1, 1.7)
        for i in range(n):
            if "pdf" not in method and i - 1 in BY_X.get(name, ()):
                continue
            gradient = tg.grad(ours, i)(*args)
            expected = slope(lambda v, i=i, args=args: theirs(*args[:i], v, *args[i + 1 :]), args[i], 1e-3)  # fmt: skip
            np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-9, err_msg=f"by {i}")


@pytest.mark.parametrize("name", CONTINUOUS)
def test_second_derivatives(name):
    first = tg.grad(getattr(stats, name).logpdf, 0)
    args = (*CONTINUOUS[name], 0.1, 1.7)
    for x in INSIDE:
        expected = slope(lambda v: first(v, *args), x, 1e-3)
        found = tg.grad(first, 0)(x, *args)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_outside_the_support_nothing_moves():
    x = tg.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    stats.beta.pdf(x, 0.5, 0.5).sum().backward()
    assert x.grad[0] == x.grad[2] == 0.0
    assert tg.grad(lambda x: stats.gamma.logpdf(x, 0.5))(-1.0) == 0.0
    assert tg.grad(lambda x: stats.expon.cdf(x))(-1.0) == 0.0
    # On the edge the slope is that of the density inside.
    assert tg.grad(lambda x: stats.gamma.logpdf(x, 1.0))(0.0) == -1.0


def test_the_far_tail():
    """log Φ(-40), where Φ itself is a subnormal number."""
    value, gradient = tg.value_and_grad(stats.norm.logcdf)(-40.0)
    np.testing.assert_allclose(value, scipy.stats.norm.logcdf(-40.0), rtol=1e-14)
    hazard = np.exp(scipy.stats.norm.logpdf(-40.0) - scipy.stats.norm.logcdf(-40.0))
    np.testing.assert_allclose(gradient, hazard, rtol=1e-10)
    assert stats.expon.logcdf(50.0) < 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DISCRETE)
def test_counts(name):
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    parameters = DISCRETE[name]
    k = np.array([-1, 0, 1, 2, 2.5, 5, 6, 50])
    for method in ("pmf", "logpmf", "cdf", "sf")[: 4 if name == "poisson" else 2]:
        expected = getattr(theirs, method)(k, *parameters)
        np.testing.assert_allclose(getattr(ours, method)(k, *parameters), expected, rtol=1e-10)
        last = len(parameters)
        for count in (0, 1):
            found = tg.grad(getattr(ours, method), last)(count, *parameters)
            f = getattr(theirs, method)
            expected = slope(lambda p, f=f, count=count: f(count, *parameters[:-1], p), parameters[-1], 1e-4)  # fmt: skip
            np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert np.isnan(ours.pmf(1, *parameters[:-1], -0.5))


def test_a_normal_distribution_of_vectors(rng):
    a = rng.normal(size=(3, 3))
    cov, mean, x = a @ a.T + np.eye(3), rng.normal(size=3), rng.normal(size=(4, 3))
    theirs = scipy.stats.multivariate_normal
    ours = stats.multivariate_normal
    np.testing.assert_allclose(ours.logpdf(x, mean, cov), theirs.logpdf(x, mean, cov), rtol=1e-12)
    np.testing.assert_allclose(ours.pdf(x[0], mean, cov), theirs.pdf(x[0], mean, cov), rtol=1e-12)
    np.testing.assert_allclose(ours.entropy(mean, cov), theirs.entropy(mean, cov), rtol=1e-12)
    gradient = tg.grad(lambda c: np.sum(ours.logpdf(x, mean, c)))(cov)
    for i, j in ((0, 0), (0, 2), (1, 2)):
        e = np.zeros((3, 3))
        e[i, j] = e[j, i] = 1.0
        expected = slope(lambda h, e=e: np.sum(theirs.logpdf(x, mean, cov + h * e)), 0.0, 1e-3)
        np.testing.assert_allclose(np.sum(gradient * e), expected, rtol=1e-7)
    with pytest.raises(np.linalg.LinAlgError):
        ours.logpdf(x, mean, -cov)


def test_a_normal_distribution_by_variances_and_defaults(rng):
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    x, mean, variances = rng.normal(size=(4, 3)), rng.normal(size=3), np.array([0.5, 1.0, 2.0])
    for given in (
        (x, mean, variances),
        (x, mean, 2.5),
        (x[0], mean),
        (x[:, 0], None, 2.0),
        (x[0, 0],),
    ):
        np.testing.assert_allclose(ours.logpdf(*given), theirs.logpdf(*given), rtol=1e-12)
    np.testing.assert_allclose(ours.entropy(mean, variances), theirs.entropy(mean, variances))
    np.testing.assert_allclose(ours.entropy(), theirs.entropy())
    by_variances = tg.grad(lambda v: np.sum(ours.logpdf(x, mean, v)))(variances)
    expected = np.sum(((x - mean) ** 2 / variances - 1) / (2 * variances), axis=0)
    np.testing.assert_allclose(by_variances, expected, rtol=1e-12)
    by_one = tg.grad(lambda v: np.sum(ours.logpdf(x, mean, v)))(1.7)
    np.testing.assert_allclose(by_one, np.sum(((x - mean) ** 2 / 1.7 - 1) / 3.4), rtol=1e-12)


def test_a_singular_normal_distribution(rng):
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    factor, mean = rng.normal(size=(4, 2)), rng.normal(size=4)
    cov, z = factor @ factor.T, rng.normal(size=(3, 2))
    x = mean + z @ factor.T
    expected = theirs.logpdf(x, mean, cov, allow_singular=True)
    np.testing.assert_allclose(ours.logpdf(x, mean, cov, allow_singular=True), expected, rtol=1e-9)
    assert ours.pdf(x[0] + 1.0, mean, cov, allow_singular=True) == 0.0
    pseudo = np.linalg.pinv(cov)
    by_x = tg.grad(lambda x: ours.logpdf(x, mean, cov, allow_singular=True))(x[0])
    np.testing.assert_allclose(by_x, -pseudo @ (x[0] - mean), rtol=1e-9)
    by_mean = tg.grad(lambda m: np.sum(ours.pdf(x, m, cov, True)))(mean)
    np.testing.assert_allclose(by_mean, np.exp(expected) @ (x - mean) @ pseudo, rtol=1e-9)
    regular = cov + np.eye(4)
    for allowed in (False, True):
        f = lambda c, allowed=allowed: np.sum(ours.logpdf(x, mean, c, allow_singular=allowed))  # noqa: E731
        np.testing.assert_allclose(f(regular), np.sum(theirs.logpdf(x, mean, regular)))
        np.testing.assert_allclose(tg.grad(f)(regular), tg.grad(lambda c: np.sum(ours.logpdf(x, mean, c)))(regular))  # fmt: skip
    with pytest.raises(tg.NotDifferentiable, match="singular covariance"):
        tg.grad(lambda c: ours.logpdf(x[0], mean, c, allow_singular=True))(cov)
    with pytest.raises(ValueError, match="negative variances"):
        ours.logpdf(x, mean, cov - np.eye(4), allow_singular=True)
    with pytest.raises(np.linalg.LinAlgError):
        ours.logpdf(x, mean, np.diag([1.0, 1.0, 0.0, 0.0]))


def test_shares_of_a_whole():
    x, alpha = np.array([0.2, 0.3, 0.5]), np.array([1.5, 2.0, 3.0])
    np.testing.assert_allclose(
        stats.dirichlet.logpdf(x, alpha), scipy.stats.dirichlet.logpdf(x, alpha)
    )
    gradient = tg.grad(lambda a: stats.dirichlet.pdf(x, a))(alpha)
    for i in range(3):
        e = np.eye(3)[i]
        expected = slope(lambda h, e=e: scipy.stats.dirichlet.pdf(x, alpha + h * e), 0.0, 1e-3)
        np.testing.assert_allclose(gradient[i], expected, rtol=1e-8)
    with pytest.raises(ValueError, match="add up to 1"):
        stats.dirichlet.logpdf(x * 2, alpha)
    with pytest.raises(ValueError, match="a row for each"):
        stats.dirichlet.logpdf(x[:2], alpha)


def test_bad_calls():
    with pytest.raises(TypeError, match="needs the parameter df"):
        stats.t.pdf(1.0)
    with pytest.raises(TypeError, match="loc, scale after x"):
        stats.norm.pdf(1.0, sigma=2.0)
    with pytest.raises(TypeError, match="4 by position"):
        stats.gamma.pdf(1.0, 2.0, 0.0, 1.0, 3.0)
    with pytest.raises(NotImplementedError, match="add up its pmf"):
        stats.binom.cdf(1, 5, 0.3)


def test_a_likelihood_is_fitted(rng):
    """Maximum likelihood of a gamma distribution: the gradient vanishes where SciPy's fit is."""
    data = rng.gamma(3.0, 2.0, size=400)
    shape, _, scale = scipy.stats.gamma.fit(data, floc=0)
    gradient = tg.grad(lambda p: np.sum(stats.gamma.logpdf(data, p[0], scale=p[1])))
    assert np.all(np.abs(gradient(np.array([shape, scale]))) < 1e-3)
