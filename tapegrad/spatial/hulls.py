"""Convex hulls whose volume and area are differentiable by the points, and Hausdorff's distance, under SciPy's names.

The points on the hull, and the pair of points that a distance is between, are constants, found by SciPy.

Invariant: without a tensor SciPy's own class or function is used.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.storage import demand_no_trace
from ..ops.calculus import in_double
from ..ops.composing import holds_tensor, operand, raw


class ConvexHull:
    """The convex hull of points (n, d), SciPy's: `volume` and `area` are differentiable by the points, all else is constant.

    In the plane `volume` is the area and `area` the perimeter, as SciPy has it.

    >>> import numpy as np, tapegrad as tg
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    >>> tg.grad(lambda p: tg.spatial.ConvexHull(p).volume)(square)[2].round(9)
    array([0.5, 0.5])
    """

    def __init__(
        self, points: Any, incremental: bool = False, qhull_options: str | None = None
    ) -> None:
        """Find the hull of the points' numbers."""
        from scipy.spatial import ConvexHull as Plain

        if holds_tensor(points):
            demand_no_trace("ConvexHull")
        self.points = in_double(operand(points))
        if np.ndim(self.points) != 2:  # SciPy's may end the process
            raise ValueError(
                f"ConvexHull was given points of shape {np.shape(self.points)}, but takes a row for each point."
            )
        self.hull = Plain(np.asarray(raw(self.points)), incremental, qhull_options)

    @property
    def volume(self) -> Any:
        """The sum of the volumes of simplices from a point within to each facet."""
        if not holds_tensor(self.points):
            return self.hull.volume
        facets = self.points[self.hull.simplices]
        within = np.mean(self.points[self.hull.vertices], axis=0)
        return np.sum(np.abs(np.linalg.det(facets - within))) / math.factorial(
            np.shape(self.points)[1]
        )

    @property
    def area(self) -> Any:
        """The sum of the areas of the facets."""
        if not holds_tensor(self.points):
            return self.hull.area
        facets = self.points[self.hull.simplices]
        edges = facets[:, 1:] - facets[:, :1]
        squares = np.linalg.det(np.matmul(edges, np.swapaxes(edges, -1, -2)))
        return np.sum(np.sqrt(squares)) / math.factorial(np.shape(self.points)[1] - 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "hull":
            raise AttributeError(name)
        return getattr(self.hull, name)


def directed_hausdorff(u: Any, v: Any, rng: Any = 0, *, seed: Any = None) -> tuple[Any, int, int]:
    """The largest distance from a point of u (m, d) to the nearest of v (n, d), and both points' numbers; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.spatial.distance.directed_hausdorff(tg.tensor([[0.0, 0.0], [3.0, 4.0]]), [[0.0, 0.0]])
    (tensor(5.), 1, 0)
    """
    from scipy.spatial import distance

    settings = {"seed": seed} if seed is not None else {"rng": rng}
    if np.ndim(u) != 2 or np.ndim(v) != 2:
        raise ValueError(
            f"directed_hausdorff was given points of shapes {np.shape(u)} and {np.shape(v)}, but takes a row for each point."
        )
    if not holds_tensor((u, v)):
        return distance.directed_hausdorff(u, v, **settings)
    demand_no_trace("directed_hausdorff")
    u, v = in_double(operand(u)), in_double(operand(v))
    _, i, j = distance.directed_hausdorff(np.asarray(raw(u)), np.asarray(raw(v)), **settings)
    square = np.sum((u[i] - v[j]) ** 2)
    return np.sqrt(square) if raw(square) > 0 else 0.0 * square, i, j


__all__ = ["ConvexHull", "directed_hausdorff"]
