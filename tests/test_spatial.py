"""tg.spatial: SciPy's distances and neighbours, and derivatives by points and parameters in every mode."""

import numpy as np
import pytest
import scipy.spatial

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.spatial.distance, scipy.spatial.distance
METRICS = sorted(THEIRS._METRICS) if hasattr(THEIRS, "_METRICS") else sorted(OURS.METRICS)
SMOOTH = sorted(OURS.METRICS)
WEIGHTED = ["braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "euclidean", "minkowski", "sqeuclidean"]  # fmt: skip


def same(found, expected):
    assert isinstance(found, tg.Tensor) and found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_every_metric_is_differentiable_or_refused():
    assert set(METRICS) <= set(SMOOTH) | OURS.STEPS
    for name in OURS.STEPS & set(METRICS):
        with pytest.raises(tg.NotDifferentiable, match="counts which entries"):
            OURS.pdist(tg.tensor(np.eye(3)), name)


@pytest.mark.parametrize("name", SMOOTH)
def test_values_are_scipys(name, rng):
    a, b, w = rng.uniform(0.1, 1.0, (5, 3)), rng.uniform(0.1, 1.0, (4, 3)), rng.uniform(0.5, 2.0, 3)
    calls = [{}]
    if name in WEIGHTED:
        calls.append({"w": w})
    if name == "minkowski":
        calls += [{"p": p} for p in (1, 1.5, 3.0, np.inf)] + [{"p": 3.0, "w": w}]
    if name == "seuclidean":
        calls.append({"V": w})
    if name == "mahalanobis":
        calls.append({"VI": np.diag(w) + 0.1})
    for settings in calls:
        same(OURS.cdist(tg.tensor(a), b, name, **settings), THEIRS.cdist(a, b, name, **settings))
        same(OURS.cdist(a, tg.tensor(b), name, **settings), THEIRS.cdist(a, b, name, **settings))
        same(OURS.pdist(tg.tensor(a), name, **settings), THEIRS.pdist(a, name, **settings))
        np.testing.assert_array_equal(OURS.cdist(a, b, name, **settings), THEIRS.cdist(a, b, name, **settings))  # fmt: skip
        if name not in ("seuclidean", "mahalanobis") or settings:
            one = getattr(THEIRS, name)(a[0], b[0], **settings)
            same(getattr(OURS, name)(tg.tensor(a[0]), b[0], **settings), one)


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives(name, rng):
    # No two entries are near one another, nor their differences: a step crosses no kink.
    entries = rng.permutation(np.linspace(0.1, 1.0, 27) ** 1.7).reshape(9, 3)
    a, b, w = entries[:5], entries[5:], rng.uniform(0.5, 2.0, 3)
    agree(lambda a, b: OURS.cdist(a, b, name), (a, b), rng, compiled=name in ("euclidean", "mahalanobis"))  # fmt: skip
    agree(lambda a: OURS.pdist(a, name), (a,), rng)
    if name in WEIGHTED and name != "chebyshev":
        agree(lambda a, w: OURS.pdist(a, name, w=w), (a, w), rng)
    if name == "seuclidean":
        agree(lambda a, V: OURS.pdist(a, name, V=V), (a, w), rng)
    if name == "mahalanobis":
        agree(lambda a, VI: OURS.pdist(a, name, VI=VI), (a, np.diag(w) + 0.1), rng)
    if name == "minkowski":
        agree(lambda a, p: OURS.pdist(a, name, p=p), (a, 2.5), rng)


@pytest.mark.parametrize("name", SMOOTH)
def test_where_points_coincide_the_derivative_is_zero(name):
    x = np.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [2.0, 1.0, 3.0]])
    settings = {"VI": np.eye(3)} if name == "mahalanobis" else {"V": np.ones(3)} if name == "seuclidean" else {}  # fmt: skip
    if name == "minkowski":
        settings = {"p": 1.5}
    found = tg.grad(lambda x: OURS.pdist(x, name, **settings)[0])(x)
    np.testing.assert_allclose(found, 0.0, atol=1e-9)
    curved = tg.jacobian(tg.grad(lambda x: np.sum(OURS.pdist(x, name, **settings))))(x)
    assert np.isfinite(curved).all()


def test_functions_of_two_vectors_serve_all_pairs(rng):
    a = rng.normal(size=(4, 3))
    own = lambda u, v: np.sum((u - v) ** 4)  # noqa: E731
    same(OURS.pdist(tg.tensor(a), own), THEIRS.pdist(a, own))
    same(OURS.cdist(tg.tensor(a), a, own), THEIRS.cdist(a, a, own))
    agree(lambda a: OURS.cdist(a, a[:2], own), (a,), rng)


def test_histograms_with_empty_bins(rng):
    """The slope by an empty bin is infinite, that by the others is what differences say."""
    u, v = np.array([0.0, 0.2, 0.5]), np.array([0.3, 0.3, 0.4])
    slopes = tg.grad(lambda u: OURS.jensenshannon(u, v))(u)
    assert slopes[0] == -np.inf
    agree(lambda rest: OURS.jensenshannon(np.concatenate([[0.0], rest]), v), (u[1:],), rng)
    step = lambda h: THEIRS.jensenshannon(u + [0.0, h, 0.0], v)  # noqa: E731
    np.testing.assert_allclose(slopes[1], (step(1e-6) - step(-1e-6)) / 2e-6, rtol=1e-7)


def test_the_base_of_a_divergence(rng):
    u, v = rng.uniform(0.1, 1.0, (2, 3))
    same(OURS.jensenshannon(tg.tensor(u), v, 2.0), THEIRS.jensenshannon(u, v, 2.0))


def test_squareform(rng):
    v = rng.normal(size=6)
    same(OURS.squareform(tg.tensor(v)), THEIRS.squareform(v))
    same(OURS.squareform(tg.tensor(THEIRS.squareform(v))), v)
    same(OURS.squareform(tg.tensor(v[:0])), THEIRS.squareform(v[:0]))
    agree(lambda v: OURS.squareform(v), (v,), rng, compiled=True)
    agree(lambda m: OURS.squareform(m, checks=False), (rng.normal(size=(4, 4)),), rng)


@pytest.mark.parametrize("k", [1, 2, [1], [1, 3]])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_neighbours(k, p, rng):
    points, q = rng.normal(size=(12, 2)), rng.normal(size=(3, 2, 2))
    tree = scipy.spatial.KDTree(points)
    for x in (q, q[0, 0]):
        expected = tree.query(x, k, p=p)
        for ours, given in ((tg.spatial.KDTree(points), tg.tensor(x)), (tg.spatial.KDTree(tg.tensor(points)), x)):  # fmt: skip
            found = ours.query(given, k, p=p)
            same(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])
    many = rng.uniform(-1, 1, (2000, 2))
    apart = np.abs(many[:, None] - points)
    ranked = np.sort(np.linalg.norm(apart, p, axis=2), axis=1)[:, :5]
    clear = (np.diff(ranked).min(axis=1) > 0.03) & (apart.min(axis=(1, 2)) > 0.01)
    q = many[clear & (np.abs(apart[..., 0] - apart[..., 1]).min(axis=1) > 0.01)][:2]
    agree(lambda points, q: tg.spatial.KDTree(points).query(q, k, p=p)[0], (points, q), rng, compiled=p == 2.0 and k == 2, second=p != np.inf)  # fmt: skip


def test_neighbours_in_a_box_and_within_reach(rng):
    points, q = rng.uniform(0, 1, (12, 2)), rng.uniform(0, 1, (4, 2))
    for settings in ({"boxsize": 1.0}, {"boxsize": [1.0, 0.0]}):
        expected = scipy.spatial.KDTree(points, **settings).query(q, 3)
        same(tg.spatial.KDTree(points, **settings).query(tg.tensor(q), 3)[0], expected[0])
    expected = scipy.spatial.KDTree(points).query(q, 20, distance_upper_bound=0.3)
    found = tg.spatial.KDTree(tg.tensor(points)).query(q, 20, distance_upper_bound=0.3)
    same(found[0], expected[0])

    def near(q):
        return np.sum(np.exp(-tree.query(q, 20, distance_upper_bound=0.3)[0]))

    tree = tg.spatial.KDTree(tg.tensor(points))
    assert np.isfinite(tg.grad(near)(q)).all()
    assert tree.query_ball_point(tg.tensor(q[0]), 0.4) == scipy.spatial.KDTree(points).query_ball_point(q[0], 0.4)  # fmt: skip
    assert tree.query_pairs(0.2) == scipy.spatial.KDTree(points).query_pairs(0.2)
    assert tree.count_neighbors(tree, 0.5) == scipy.spatial.KDTree(points).count_neighbors(scipy.spatial.KDTree(points), 0.5)  # fmt: skip


def test_norms_of_differences(rng):
    x, y = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    for p in (1, 2, 3, np.inf):
        same(tg.spatial.distance_matrix(tg.tensor(x), y, p), scipy.spatial.distance_matrix(x, y, p))
        same(tg.spatial.minkowski_distance(tg.tensor(x), y[:3], p), scipy.spatial.minkowski_distance(x, y[:3], p))  # fmt: skip
        same(tg.spatial.minkowski_distance(tg.tensor(7.0), 0, p), scipy.spatial.minkowski_distance(7, 0, p))  # fmt: skip
    assert tg.grad(tg.spatial.minkowski_distance)(7.0, 9.0) == -1


# fmt: off
REFUSED = [
    (lambda t: OURS.cdist(t, [1.0]), ValueError, "XB must be"),
    (lambda t: OURS.cdist(t, np.ones((2, 5))), ValueError, "number of columns"),
    (lambda t: OURS.pdist(t, "nearness"), ValueError, "Unknown Distance Metric"),
    (lambda t: OURS.pdist(t * 1j), tg.NotDifferentiable, "imaginary parts"),
    (lambda t: OURS.pdist(t, out=np.zeros(3)), TypeError, "use the result"),
    (lambda t: OURS.pdist(t, "mahalanobis"), ValueError, "observations"),
    (lambda t: OURS.pdist(t, w=-np.ones(3)), ValueError, "non-negative"),
    (lambda t: OURS.pdist(t, w=np.ones(4)), ValueError, "its shape is .3,"),
    (lambda t: OURS.pdist(t, "seuclidean", V=[1.0]), ValueError, "V of shape .1,"),
    (lambda t: OURS.pdist(t, "minkowski", p=0), ValueError, "greater than 0"),
    (lambda t: OURS.squareform(t[0][:2]), ValueError, "binomial"),
    (lambda t: OURS.squareform(t), ValueError, "symmetric"),
    (lambda t: OURS.squareform(t, "tomatrix"), ValueError, "not a distance vector"),
    (lambda t: OURS.euclidean(t, t), ValueError, "two vectors"),
    (lambda t: OURS.seuclidean(t[0], t[1]), TypeError, "'V'"),
    (lambda t: tg.spatial.KDTree(t[0]), ValueError, "2 dimensions"),
    (lambda t: tg.spatial.KDTree(t.requires_grad_()).sparse_distance_matrix(1, 2.0), tg.NotDifferentiable, "query_pairs"),
    (lambda t: tg.spatial.KDTree(t).query([1.0]), ValueError, "length 3"),
]
# fmt: on


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(tg.tensor(np.eye(3) + np.arange(3.0)))


def test_scipys_own_functions_say_what_to_write():
    with pytest.raises(tg.GradientLost, match=r"write tg\.spatial\.distance\.cdist"):
        tg.grad(lambda x: THEIRS.cdist(x, x).sum())(np.eye(2))
