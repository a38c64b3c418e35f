"""Distributions of vectors and matrices: SciPy's values, gradients by differences of SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg
from tapegrad import stats
from tapegrad.errors import NotDifferentiable

S = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])
X = np.array([[1.4, 0.2, 0.3], [0.2, 1.1, 0.1], [0.3, 0.1, 2.2]])
T = S[:2, :2]
M = np.array([[0.3, -1.0, 0.2], [0.5, 0.1, -0.4]])
P = np.array([0.2, 0.3, 0.5])
UNIT = np.array([0.6, 0.0, 0.8])

# A distribution, its method, the arguments, and those by which it is differentiated.
CASES = [
    ("multivariate_t", ("logpdf", "pdf"), (X, np.array([0.1, 0.2, 0.3]), S, 3.5), (0, 1, 2, 3)),
    ("multivariate_t", ("entropy",), (np.array([0.1, 0.2, 0.3]), S, 3.5), (1, 2)),
    ("wishart", ("logpdf", "pdf"), (X, 4.5, S), (0, 1, 2)),
    ("wishart", ("mean", "var", "entropy", "mode"), (6.5, S), (0, 1)),
    ("invwishart", ("logpdf", "pdf"), (X, 4.5, S), (0, 1, 2)),
    ("invwishart", ("mean", "var", "mode"), (8.5, S), (0, 1)),
    ("matrix_normal", ("logpdf", "pdf"), (M, 0.1 * M[:, ::-1], T, S), (0, 1, 2, 3)),
    ("matrix_normal", ("entropy",), (T, S), (0, 1)),
    ("matrix_t", ("logpdf", "pdf"), (M, 0.1 * M[:, ::-1], T, S, 3.5), (0, 1, 2, 3, 4)),
    ("normal_inverse_gamma", ("logpdf", "pdf"), (M[0], 4 * P, 0.1, 1.3, 2.5, 0.7), (0, 1, 2, 3, 4, 5)),
    ("dirichlet", ("mean", "var", "cov", "entropy"), (4 * P,), (0,)),
    ("dirichlet_multinomial", ("logpmf", "pmf"), (np.array([1, 0, 3]), 4 * P, 4), (1,)),
    ("dirichlet_multinomial", ("mean", "var", "cov"), (4 * P, 4), (0,)),
    ("vonmises_fisher", ("logpdf", "pdf"), (UNIT, np.array([0.0, 0.0, 1.0]), 2.5), (2,)),
    ("vonmises_fisher", ("entropy",), (UNIT, 2.5), (1,)),
]  # fmt: skip


def slope(f, at, h):
    return (8 * (f(at + h) - f(at - h)) - (f(at + 2 * h) - f(at - 2 * h))) / (12 * h)


def direction_of(a):
    """A direction in which a symmetric matrix stays one."""
    d = np.cos(np.arange(np.size(a)) + 1.0).reshape(np.shape(a))
    return d + d.T if np.shape(a) in ((3, 3), (2, 2)) else d


@pytest.mark.parametrize(("name", "methods", "args", "by"), CASES)
def test_values_and_slopes_are_scipys(name, methods, args, by):
    if not hasattr(scipy.stats, name):
        pytest.skip("this SciPy has none")
    for method in methods:
        f, g = getattr(getattr(stats, name), method), getattr(getattr(scipy.stats, name), method)
        expected = g(*args)
        np.testing.assert_array_equal(f(*args), expected)
        for i in by:
            way = direction_of(args[i])
            if name == "multivariate_t" and i == 0 and method != "entropy":
                way = np.ones((3, 3))
            moved = lambda m, v, i=i, way=way: m(*args[:i], args[i] + v * way, *args[i + 1 :])  # noqa: E731
            value, found = tg.jvp(lambda v: moved(f, v), (0.0,), (1.0,))
            np.testing.assert_allclose(value, expected, rtol=1e-11)
            np.testing.assert_allclose(
                found,
                slope(lambda v: moved(g, v), 0.0, 1e-3),
                rtol=1e-7,
                atol=1e-10,
                err_msg=f"{method} by {i}",
            )
            np.testing.assert_allclose(
                tg.jacobian(lambda v: moved(f, v))(0.0), found, rtol=1e-9, atol=1e-12
            )
            first = lambda v: tg.jvp(lambda v: moved(f, v), (v,), (1.0,))[1]  # noqa: E731
            second = tg.jacobian(first)(0.0)
            np.testing.assert_allclose(second, slope(first, 0.0, 1e-3), rtol=1e-6, atol=1e-8)


def test_each_share_of_a_multinomial_is_its_own():
    x, n = np.array([[1, 0, 3], [2, 1, 1], [1, 1, 1]]), 4
    np.testing.assert_array_equal(
        stats.multinomial.logpmf(x, n, P), scipy.stats.multinomial.logpmf(x, n, P)
    )
    value, pull = tg.vjp(lambda p: stats.multinomial.logpmf(x, n, p), P)
    np.testing.assert_allclose(value, scipy.stats.multinomial.logpmf(x, n, P), rtol=1e-12)
    np.testing.assert_allclose(pull(np.array([1.0, 0.0, 0.0]))[0], x[0] / P)
    np.testing.assert_array_equal(pull(np.array([0.0, 0.0, 1.0]))[0], 0.0)
    np.testing.assert_allclose(
        tg.vjp(lambda p: stats.multinomial.cov(n, p), P)[0], scipy.stats.multinomial.cov(n, P)
    )
    with pytest.raises(tg.NotDifferentiable, match="no smooth function"):
        stats.multinomial.rvs(4, tg.tensor(P, requires_grad=True))
    with pytest.raises(tg.NotDifferentiable, match="no smooth function"):
        stats.vonmises_fisher.rvs(UNIT, tg.tensor(2.0, requires_grad=True))


SAMPLES = {
    "multivariate_t": (np.array([0.1, 0.2, 0.3]), S, 5.5),
    "wishart": (7.5, S),
    "invwishart": (12.5, S),
    "matrix_normal": (M, T, S),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_scipys_and_their_mean_moves_as_it_should(name):
    ours, theirs, args = getattr(stats, name), getattr(scipy.stats, name), SAMPLES[name]
    drawn = theirs.rvs(*args, size=4000, random_state=7)
    for i in range(len(args)):
        way = direction_of(args[i]) if np.ndim(args[i]) else 1.0

        def moved(v, i=i, way=way):
            return ours.rvs(*args[:i], args[i] + v * way, *args[i + 1 :], size=4000, random_state=7)

        value, found = tg.jvp(moved, (0.0,), (1.0,))
        np.testing.assert_allclose(value, drawn, rtol=1e-8, atol=1e-10)
        if name in ("wishart", "invwishart"):
            mean = slope(
                lambda v: theirs.mean(*args[:i], args[i] + v * way, *args[i + 1 :]), 0.0, 1e-3
            )
            error = 5 * np.std(found, axis=0) / np.sqrt(4000)
            assert np.all(np.abs(np.mean(found, axis=0) - mean) <= error + 1e-12)
        elif i:  # the covariance

            def spread(v, i=i, way=way):
                return scipy_covariance(name, [*args[:i], args[i] + v * way, *args[i + 1 :]])

            centred = (value - args[0]).reshape(4000, -1)
            products = 2 * centred * found.reshape(4000, -1)
            assert np.all(
                np.abs(np.mean(products, axis=0) - slope(spread, 0.0, 1e-3))
                <= 6 * np.std(products, axis=0) / np.sqrt(4000)
            )


def scipy_covariance(name, args):
    if name == "multivariate_t":
        return np.diag(args[1]) * args[2] / (args[2] - 2)
    return np.outer(np.diag(args[1]), np.diag(args[2])).ravel()


def test_the_normal_inverse_gamma_distribution():
    ours, theirs, at = (
        stats.normal_inverse_gamma,
        scipy.stats.normal_inverse_gamma,
        [0.1, 1.3, 5.5, 0.7],
    )
    for method in ("mean", "var"):
        np.testing.assert_array_equal(getattr(ours, method)(*at), getattr(theirs, method)(*at))
        for i in range(4):

            def moved(v, of, i=i, method=method):
                return np.stack(getattr(of, method)(*at[:i], v, *at[i + 1 :]))

            found = tg.jvp(lambda v: moved(v, ours), (at[i],), (1.0,), allow_unused=True)[1]
            np.testing.assert_allclose(
                found, slope(lambda v: moved(v, theirs), at[i], 1e-3), rtol=1e-8, atol=1e-10
            )
    wrong = np.array([0.5, 1.5, 3.0])
    np.testing.assert_array_equal(
        tg.vjp(lambda a: np.stack(ours.var(0.0, 1.0, a)), wrong)[0], theirs.var(0.0, 1.0, wrong)
    )
    outside = tg.vjp(
        lambda a: ours.logpdf(1.0, np.array([-1.0, 1.0]), 0.0, 1.0, a), np.array([1.0, -1.0])
    )[0]
    np.testing.assert_array_equal(outside, [-np.inf, np.nan])
    drawn = theirs.rvs(*at, size=3000, random_state=3)
    for i, mean in enumerate(
        [
            np.array([1.0, 0.0]),
            np.zeros(2),
            np.array([0.0, -0.7 / 4.5**2]),
            np.array([0.0, 1 / 4.5]),
        ]
    ):

        def sample(v, i=i):
            return np.stack(ours.rvs(*at[:i], v, *at[i + 1 :], size=3000, random_state=3))

        value, found = tg.jvp(sample, (at[i],), (1.0,))
        np.testing.assert_allclose(value, drawn, rtol=1e-10)
        error = 5 * np.std(found, axis=1) / np.sqrt(3000)
        assert np.all(np.abs(np.mean(found, axis=1) - mean) <= error + 1e-12)


@pytest.mark.skipif(not hasattr(scipy.stats, "matrix_t"), reason="this SciPy has none")
def test_samples_of_matrix_t_move_with_location_and_spreads():
    drawn = scipy.stats.matrix_t.rvs(M, T, S, 3.5, size=4, random_state=1)
    for i, rate in enumerate((np.ones((4, 2, 3)), (drawn - M) / 2, (drawn - M) / 2)):
        args = [M, T, S]
        sample = lambda v, i=i: stats.matrix_t.rvs(  # noqa: E731
            *args[:i], v + args[i] if i == 0 else v * args[i], *args[i + 1 :], 3.5, size=4, random_state=1
        )  # fmt: skip
        value, found = tg.jvp(sample, (0.0 if i == 0 else 1.0,), (1.0,))
        np.testing.assert_allclose(value, drawn, rtol=1e-10)
        np.testing.assert_allclose(found, rate, rtol=1e-8, atol=1e-12)
    with pytest.raises(tg.NotDifferentiable, match="by df"):
        stats.matrix_t.rvs(M, T, S, tg.tensor(3.5, requires_grad=True))


def test_normal_samples_and_those_of_shares():
    for args in ((M[0], S), (M[0],)):
        drawn = scipy.stats.multivariate_normal.rvs(*args, size=5, random_state=2)
        np.testing.assert_array_equal(
            stats.multivariate_normal.rvs(*args, size=5, random_state=2), drawn
        )
    way = direction_of(S)
    sample = lambda v: stats.multivariate_normal.rvs(M[0], S + v * way, size=3000, random_state=2)  # noqa: E731
    value, found = tg.jvp(sample, (0.0,), (1.0,))
    np.testing.assert_allclose(
        value, scipy.stats.multivariate_normal.rvs(M[0], S, size=3000, random_state=2)
    )
    products = (value - M[0])[:, :, None] * found[:, None, :]
    products = products + np.swapaxes(products, 1, 2)
    assert np.all(
        np.abs(np.mean(products, axis=0) - way) <= 5 * np.std(products, axis=0) / np.sqrt(3000)
    )
    drawn = scipy.stats.dirichlet.rvs(4 * P, size=3000, random_state=5)

    def shares(v):
        return stats.dirichlet.rvs(4 * P + v * np.array([1.0, 0.0, 0.0]), size=3000, random_state=5)

    value, found = tg.jvp(shares, (0.0,), (1.0,))
    np.testing.assert_allclose(value, drawn, rtol=1e-10)
    mean = tg.jacobian(lambda v: stats.dirichlet.mean(4 * P + v * np.array([1.0, 0.0, 0.0])))(0.0)
    assert np.all(
        np.abs(np.mean(found, axis=0) - mean) <= 5 * np.std(found, axis=0) / np.sqrt(3000)
    )
    square = slope(
        lambda v: (
            scipy.stats.dirichlet.var(4 * P + [v, 0, 0])
            + scipy.stats.dirichlet.mean(4 * P + [v, 0, 0]) ** 2
        ),
        0.0,
        1e-3,
    )
    moving = 2 * value * found
    assert np.all(
        np.abs(np.mean(moving, axis=0) - square) <= 5 * np.std(moving, axis=0) / np.sqrt(3000)
    )
    with pytest.raises(tg.NotDifferentiable, match="no smooth function"):
        stats.multivariate_normal.cdf(M[0], tg.tensor(M[1], requires_grad=True), S)


def test_frozen_families():
    frozen = stats.wishart(4.5, S)
    assert frozen.logpdf(X) == scipy.stats.wishart(4.5, S).logpdf(X)
    assert tg.grad(lambda df: stats.wishart(df, S).logpdf(X))(4.5) == tg.grad(
        stats.wishart.logpdf, 1
    )(X, 4.5, S)
    with pytest.raises(np.linalg.LinAlgError):
        stats.wishart.logpdf(X, tg.tensor(4.5, requires_grad=True), -S)


@pytest.mark.long
def test_the_entropy_of_inverse_wishart_matrices_is_the_mean_of_minus_logpdf():
    """SciPy's has another constant in more than one dimension."""
    drawn = scipy.stats.invwishart.rvs(8.5, S, size=20000, random_state=1)
    surprise = -scipy.stats.invwishart.logpdf(np.moveaxis(drawn, 0, -1), 8.5, S)
    error = 5 * np.std(surprise) / np.sqrt(20000)
    assert abs(stats.invwishart.entropy(8.5, S) - np.mean(surprise)) < error
    one = stats.invwishart.entropy(8.5, 2.0)
    np.testing.assert_allclose(one, scipy.stats.invwishart.entropy(8.5, 2.0))
    expected = slope(lambda v: scipy.stats.invwishart.entropy(v, S), 8.5, 1e-3)
    np.testing.assert_allclose(tg.grad(stats.invwishart.entropy)(8.5, S), expected, rtol=1e-8)


def test_multivariate_hypergeometric_counts():
    """SciPy's values and samples; in a program, too; whole numbers have no derivative."""
    ours, theirs = stats.multivariate_hypergeom, scipy.stats.multivariate_hypergeom
    m, n = np.array([[7, 9, 3], [10, 15, 0]]), np.array([8, 12])
    x = np.array([[3, 4, 1], [4, 8, 0]])
    for method, args in (
        ("logpmf", (x, m, n)),
        ("pmf", (x, m, n)),
        ("mean", (m, n)),
        ("var", (m, n)),
        ("cov", (m, n)),
    ):
        expected = getattr(theirs, method)(*args)
        np.testing.assert_array_equal(getattr(ours, method)(*args), expected)
        np.testing.assert_allclose(tg.compile(getattr(ours, method))(*args), expected, rtol=1e-12)
        with pytest.raises(tg.NotDifferentiable, match="m holds whole numbers"):
            getattr(ours, method)(*args[:-2], tg.tensor(1.0 * m, requires_grad=True), n)
    outside = np.array([[3, 4, 2], [11, 1, 0], [-1, 8, 1], [8, 0, 0]])
    for found in (
        ours.logpmf(outside, m[0], 8),
        tg.compile(lambda x: ours.logpmf(x, m[0], 8))(outside),
    ):
        assert np.all(found == -np.inf)
    assert np.isnan(tg.compile(lambda x: ours.logpmf(x, np.array([1, 2]), 4))(np.array([2, 2])))
    drawn = ours(m[0], 8).rvs(size=5, random_state=1)
    np.testing.assert_array_equal(drawn, theirs.rvs(m[0], 8, size=5, random_state=1))
    np.testing.assert_array_equal(ours(m[0], 8).mean(), theirs.mean(m[0], 8))
    with pytest.raises(tg.NotDifferentiable, match="rvs"):
        ours.rvs(tg.tensor(1.0 * m, requires_grad=True), n)


def test_random_matrices_tables_and_directions_are_scipys():
    """They have samples alone, or whole numbers: nothing is differentiable, and a tracked argument is refused."""
    calls = [
        ("special_ortho_group", (3,)), ("ortho_group", (3,)), ("unitary_group", (2,)), ("uniform_direction", (3,)),
        ("random_correlation", ([0.5, 1.5],)), ("random_table", ([1, 3], [2, 2])),
    ]  # fmt: skip
    for name, args in calls:
        ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
        assert np.array_equal(ours.rvs(*args, random_state=3), theirs.rvs(*args, random_state=3))
        with pytest.raises(
            NotDifferentiable, match=f"tg.stats.{name}.rvs was given a tracked tensor"
        ):
            ours.rvs(tg.tensor(np.array(args[0], float), requires_grad=True), *args[1:])
    table, sums = [[1, 0], [1, 2]], ([1, 3], [2, 2])
    for method in ("pmf", "logpmf"):
        ours, theirs = (getattr(s.random_table, method) for s in (stats, scipy.stats))
        assert ours(table, *sums) == theirs(table, *sums)
    assert np.array_equal(stats.random_table.mean(*sums), scipy.stats.random_table.mean(*sums))
