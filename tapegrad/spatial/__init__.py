"""`tg.spatial`: distances, nearest neighbours and rotations that are differentiable, under SciPy's names.

The set of neighbours is a constant, found by `scipy.spatial.KDTree`; how far they are is a function of the points.
Importing this module does not import SciPy; the first tree does.
"""

from __future__ import annotations

from ..core import elsewhere
from . import distance, transform
from .hulls import ConvexHull
from .neighbours import KDTree, cKDTree, distance_matrix, minkowski_distance
from .transform import geometric_slerp, procrustes

__all__ = [
    "ConvexHull", "KDTree", "cKDTree", "distance", "distance_matrix", "geometric_slerp", "minkowski_distance", "procrustes", "transform",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
