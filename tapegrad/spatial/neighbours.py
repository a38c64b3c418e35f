"""Nearest neighbours: `KDTree`, whose indices are constants and whose distances are functions of the points.

SciPy's tree is built on the points' numbers and answers which neighbours there are; the distances to them are then computed from points
and queries. A step of the query to other neighbours is a jump of the indices, and a kink of the distances.

Invariant: a distance to a neighbour that does not exist is infinite, and its derivative 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.storage import StandIn
from ..errors import NotDifferentiable
from ..interpolation.scattered import called
from ..ops.calculus import in_double
from ..ops.composing import holds_tensor, holds_tracked, operand, raw
from .distance import _minkowski


class KDTree:
    """A tree of points (n, m) for nearest neighbours, SciPy's `KDTree`: `query` gives distances that are differentiable.

    Other methods (`query_ball_point`, `query_pairs`, `count_neighbors`, ...) answer with constants, as SciPy's do; `tree` is SciPy's own.

    >>> import numpy as np, tapegrad as tg
    >>> points = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> tg.grad(lambda x: tg.spatial.KDTree(points).query(x)[0])(np.array([3.0, 5.0]))
    array([0., 1.])
    """

    def __init__(
        self,
        data: Any,
        leafsize: int = 10,
        compact_nodes: bool = True,
        copy_data: bool = False,
        balanced_tree: bool = True,
        boxsize: Any = None,
    ) -> None:
        """Keep the points (n, m); SciPy's tree of their values is built when it is first asked."""
        self.data = in_double(operand(data))
        if np.ndim(self.data) != 2:
            raise ValueError("data must be 2 dimensions")
        self.boxsize = None if boxsize is None else np.asarray(boxsize)
        self._settings = {
            "leafsize": leafsize, "compact_nodes": compact_nodes, "balanced_tree": balanced_tree, "boxsize": boxsize,
        }  # fmt: skip
        self._tree: Any = None

    @property
    def n(self) -> int:
        """How many points there are."""
        return int(np.shape(self.data)[0])

    @property
    def m(self) -> int:
        """How many coordinates a point has."""
        return int(np.shape(self.data)[1])

    @property
    def tree(self) -> Any:
        """SciPy's tree of the points' numbers."""
        if self._tree is None:
            self._tree = self._built(np.array(raw(self.data)))
        return self._tree

    def _built(self, points: np.ndarray) -> Any:
        from scipy.spatial import KDTree as Plain

        return Plain(points, **self._settings)

    def query(
        self,
        x: Any,
        k: Any = 1,
        eps: Any = 0.0,
        p: Any = 2.0,
        distance_upper_bound: float = np.inf,
        workers: int = 1,
    ) -> Any:
        """Distances to the k nearest neighbours of `x` (..., m), and their indices; shapes as in SciPy. `n` stands where there is none."""
        x = in_double(operand(x))
        if np.shape(x)[-1:] != (self.m,):
            raise ValueError(f"x must consist of vectors of length {self.m} but has shape {np.shape(x)}")  # fmt: skip
        settings = {"eps": eps, "p": p, "distance_upper_bound": distance_upper_bound, "workers": workers}  # fmt: skip
        if not holds_tensor((x, self.data)) and not isinstance(raw(self.data), StandIn):
            return self.tree.query(x, k, **settings)
        if isinstance(raw(self.data), StandIn):

            def neighbours(points: np.ndarray, q: np.ndarray) -> np.ndarray:
                return np.asarray(self._built(points).query(q, k, **settings)[1], np.intp)

            found = called(neighbours, raw(self.data), raw(x))
        else:

            def neighbours_of(q: np.ndarray) -> np.ndarray:
                return np.asarray(self.tree.query(q, k, **settings)[1], np.intp)

            found = called(neighbours_of, raw(x))
        missing = found == self.n
        near = self.data[np.where(missing, 0, found)]
        apart = x[..., None, :] - near if np.ndim(found) == np.ndim(x) else x - near
        if self.boxsize is not None:
            box = np.where(self.boxsize == 0, np.inf, self.boxsize)
            finite = np.isfinite(box)
            turns = np.where(finite, np.round(raw(apart) / np.where(finite, box, 1.0)), 0.0)
            apart = apart - turns * np.where(finite, box, 0.0)
        distances = np.where(missing, np.inf, _minkowski(apart, 0.0, p))
        return distances, found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "sparse_distance_matrix" and holds_tracked(self.data):
            raise NotDifferentiable(
                "sparse_distance_matrix was asked of a tree of tracked points, but SciPy's distances are constants. Take the pairs from "
                "query_pairs, and their distances from tg.spatial.minkowski_distance."
            )
        return _plainly(getattr(self.tree, name))


def _plainly(method: Any) -> Any:
    """A method of SciPy's tree that takes the numbers of tensors, and trees of ours."""
    if not callable(method):
        return method

    def call(*args: Any, **kwargs: Any) -> Any:
        plain = [_unwrapped(a) for a in args]
        return method(*plain, **{key: _unwrapped(a) for key, a in kwargs.items()})

    return call


def _unwrapped(value: Any) -> Any:
    return value.tree if isinstance(value, KDTree) else raw(value)


cKDTree = KDTree


def minkowski_distance(x: Any, y: Any, p: Any = 2.0) -> Any:
    """The p-norm of the differences along the last axis, whose others broadcast; differentiable by x, y and p.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.spatial.minkowski_distance(x, [0.0, 0.0]))(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """
    x, y = (
        np.atleast_1d(in_double(operand(v))) for v in (x, y)
    )  # numbers are vectors of one, as in SciPy
    return _minkowski(x, y, p)


def distance_matrix(x: Any, y: Any, p: Any = 2.0, threshold: int = 1_000_000) -> Any:
    """The p-norms of the differences of all pairs of rows of two matrices; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.spatial.distance_matrix(tg.tensor([[0.0, 0.0]]), [[3.0, 4.0]])
    tensor([[5.]])
    """
    x, y = in_double(operand(x)), in_double(operand(y))
    if np.ndim(x) != 2 or np.ndim(y) != 2:
        raise ValueError(
            f"distance_matrix was given shapes {np.shape(x)} and {np.shape(y)}, but takes matrices, whose rows are points."
        )
    if np.shape(x)[1] != np.shape(y)[1]:
        raise ValueError(
            f"x has vectors of length {np.shape(x)[1]}, but y has vectors of length {np.shape(y)[1]}"
        )
    return _minkowski(x[:, None], y[None], p)


__all__ = ["KDTree", "cKDTree", "distance_matrix", "minkowski_distance"]
