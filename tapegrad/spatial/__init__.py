"""`tg.spatial`: distances and nearest neighbours that are differentiable by the points, under SciPy's names.

Which points are neighbours is a constant, found by `scipy.spatial.KDTree`; how far they are is a function of the points.
Importing this module does not import SciPy; the first tree does.
"""

from __future__ import annotations

from . import distance
from .neighbours import KDTree, cKDTree, distance_matrix, minkowski_distance

__all__ = ["KDTree", "cKDTree", "distance", "distance_matrix", "minkowski_distance"]


def __dir__() -> list[str]:
    return __all__
