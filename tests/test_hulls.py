"""Convex hulls and Hausdorff's distance: SciPy's values, and derivatives by the points."""

import numpy as np
import pytest
import scipy.spatial

import tapegrad as tg
from tests.slopes import agree


@pytest.mark.parametrize("d", [2, 3, 4])
def test_convex_hulls(d, rng):
    points = rng.normal(size=(d + 6, d))
    ours, theirs = tg.spatial.ConvexHull(tg.tensor(points)), scipy.spatial.ConvexHull(points)
    np.testing.assert_allclose(
        [ours.volume.item(), ours.area.item()], [theirs.volume, theirs.area], 1e-12
    )
    np.testing.assert_array_equal(ours.vertices, theirs.vertices)
    plain = tg.spatial.ConvexHull(points)
    assert (plain.volume, plain.area) == (theirs.volume, theirs.area)
    agree(lambda p: tg.spatial.ConvexHull(p).volume, (points,), rng)
    agree(lambda p: tg.spatial.ConvexHull(p).area, (points,), rng)
    with pytest.raises(AttributeError):
        ours.nothing  # noqa: B018
    with pytest.raises(tg.TapegradError, match="ConvexHull"):
        tg.compile(lambda p: tg.spatial.ConvexHull(p).volume)(points)


def test_hausdorffs_distance(rng):
    u, v = rng.normal(size=(5, 3)), rng.normal(size=(7, 3))
    found, expected = (
        tg.spatial.distance.directed_hausdorff(tg.tensor(u), v),
        scipy.spatial.distance.directed_hausdorff(u, v),
    )
    np.testing.assert_allclose(found[0].item(), expected[0])
    assert found[1:] == expected[1:] and tg.spatial.distance.directed_hausdorff(u, v) == expected
    agree(lambda u, v: tg.spatial.distance.directed_hausdorff(u, v)[0], (u, v), rng)
    assert not np.any(tg.grad(lambda u: tg.spatial.distance.directed_hausdorff(u, v[:1])[0])(v[:1]))
