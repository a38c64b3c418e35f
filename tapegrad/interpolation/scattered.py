"""Interpolation of values at points in space: radial basis functions, and values on a triangulation.

The triangulation and the neighbours of a query are SciPy's (Qhull, KDTree) and constants; the weights are functions of points and
queries. A radial basis function is a sum over all data (or some neighbours) whose coefficients solve a linear system.

Invariant: where two points coincide, the derivative of their distance is taken as 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.storage import StandIn
from ..errors import NotDifferentiable
from ..ops.calculus import inexact
from ..ops.composing import holds_tensor, raw, rooted
from .piecewise import as_real, doubled
from .splines import column_of
from .tables import coordinates, interp1d


def called(function: Callable[..., np.ndarray], *args: Any) -> Any:
    """`function` of plain arrays: in a traced program one call of it."""
    for value in args:
        if isinstance(value, StandIn):
            return value.called(function, args, function.__name__)
    return function(*args)


# ---------------------------------------------------------------------------------------------- triangulations


def _corners(
    points: np.ndarray, q: np.ndarray, offset: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """The numbers of the corners of the simplex that each query lies in; -1 outside of all."""
    from scipy.spatial import Delaunay

    return _corners_in(Delaunay((points - offset) / scale), (q - offset) / scale)


def _corners_in(triangulation: Any, q: np.ndarray) -> np.ndarray:
    simplex = triangulation.find_simplex(q)
    return np.where(simplex[:, None] < 0, -1, triangulation.simplices[simplex])


def _rescaling(points: Any, rescale: bool) -> tuple[Any, Any]:
    """What is subtracted from the points, and by what they are divided, before neighbours are sought."""
    places = raw(points)
    if not rescale:
        return np.zeros(np.shape(points)[1]), np.ones(np.shape(points)[1])
    spread = np.max(places, axis=0) - np.min(places, axis=0)
    return np.mean(places, axis=0), np.where(spread > 0, spread, 1.0)


def _validate(points: Any, values: Any, name: str) -> None:
    if np.ndim(points) != 2:
        raise ValueError(f"{name} was given points of shape {np.shape(points)}, but takes a row for each point.")  # fmt: skip
    if np.ndim(values) < 1 or np.shape(values)[0] != np.shape(points)[0]:
        raise ValueError("different number of values and points")


class LinearNDInterpolator:
    """Linear interpolation on a Delaunay triangulation, SciPy's: differentiable by values, points and queries.

    `points` (n, ndim) or a `scipy.spatial.Delaunay`, which has constant points. Beyond the points stands `fill_value`.

    >>> import numpy as np, tapegrad as tg
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> tg.grad(lambda v: tg.interpolate.LinearNDInterpolator(corners, v)(0.25, 0.5))(np.array([1.0, 2.0, 3.0]))
    array([0.25, 0.25, 0.5 ])
    """

    def __init__(self, points: Any, values: Any, fill_value: Any = np.nan, rescale: bool = False) -> None:  # fmt: skip
        self._triangulation = points if hasattr(points, "find_simplex") else None
        self.points = points.points if self._triangulation is not None else coordinates(points)
        self.values, self.fill_value, self.rescale = doubled(values), fill_value, rescale
        _validate(self.points, self.values, "LinearNDInterpolator")
        if np.shape(self.points)[1] < 2:
            raise ValueError("input data must be at least 2-D")
        if rescale and self._triangulation is not None:
            raise ValueError("Rescaling is not supported when passing a Delaunay triangulation as the points.")  # fmt: skip

    def __call__(self, *xi: Any) -> Any:
        """The values at queries (..., ndim), or given as one array for each coordinate."""
        ndim = np.shape(self.points)[1]
        q = coordinates(xi, ndim)
        shape = np.shape(q)[:-1]
        q = np.reshape(q, (-1, ndim))
        corners = self._found(raw(q))
        outside = corners[:, 0] < 0
        origin = self.points[corners[:, -1]]
        edges = self.points[corners[:, :-1]] - origin[:, None]
        # Outside of all simplices any regular system will do.
        edges = np.where(outside[:, None, None], np.eye(ndim), edges)
        away = (q - origin)[:, :, None]
        weights = np.linalg.solve(np.swapaxes(edges, 1, 2), away)[:, :, 0]
        weights = np.concatenate([weights, 1.0 - np.sum(weights, axis=1, keepdims=True)], axis=1)
        picked = self.values[corners]
        value = np.sum(picked * column_of(weights, picked), axis=1)
        value = np.where(column_of(outside, value), self.fill_value, value)
        return np.reshape(value, shape + np.shape(self.values)[1:])

    def _found(self, spots: Any) -> Any:
        """Of each query the corners of its simplex and its weights; the triangulation is made once."""
        triangulation = self._triangulation
        places = raw(self.points)
        if triangulation is None and isinstance(places, StandIn):
            return called(_corners, places, spots, *_rescaling(self.points, self.rescale))
        offset, scale = _rescaling(self.points, self.rescale)
        if triangulation is None:
            from scipy.spatial import Delaunay

            triangulation = self._triangulation = Delaunay((places - offset) / scale)

        def corners(q: np.ndarray) -> np.ndarray:
            return _corners_in(triangulation, (q - offset) / scale)

        return called(corners, spots)


def _nearest(points: np.ndarray, q: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the points nearest to each query, the nearest first."""
    from scipy.spatial import KDTree

    found = KDTree(points).query(q, k=[*range(1, count + 1)])[1]
    return np.sort(found, axis=1) if count > 1 else found


class NearestNDInterpolator:
    """The value at the nearest point, SciPy's: differentiable by the values; by points and queries the derivative is 0.

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda v: tg.interpolate.NearestNDInterpolator(np.eye(2), v)(0.9, 0.2)
    >>> tg.grad(f)(np.array([1.0, 2.0]))
    array([1., 0.])
    """

    def __init__(self, x: Any, y: Any, rescale: bool = False) -> None:
        self.points, self.values, self.rescale = coordinates(x), inexact(y), rescale
        _validate(self.points, self.values, "NearestNDInterpolator")

    def __call__(self, *xi: Any) -> Any:
        """The values at queries (..., ndim), or given as one array for each coordinate."""
        ndim = np.shape(self.points)[1]
        q = coordinates(xi, ndim)
        offset, scale = _rescaling(self.points, self.rescale)
        flat = np.reshape((raw(q) - offset) / scale, (-1, ndim))
        found = called(_nearest, (raw(self.points) - offset) / scale, flat, 1)[:, 0]
        return np.reshape(self.values[found], np.shape(q)[:-1] + np.shape(self.values)[1:])


def griddata(
    points: Any, values: Any, xi: Any, method: str = "linear", fill_value: Any = np.nan, rescale: bool = False
) -> Any:  # fmt: skip
    """Interpolate values at scattered points, SciPy's `griddata` ("nearest", "linear"; "cubic" in one dimension).

    >>> import numpy as np, tapegrad as tg
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> tg.grad(lambda v: tg.interpolate.griddata(corners, v, (0.25, 0.5)))(np.arange(4.0)).sum().item()
    1.0
    """
    points = coordinates(points)
    if np.shape(points)[-1] == 1 and method in ("nearest", "linear", "cubic"):
        if isinstance(xi, tuple):
            if len(xi) != 1:
                raise ValueError("invalid number of dimensions in xi")
            (xi,) = xi
        fill: Any = "extrapolate" if method == "nearest" else fill_value
        places = np.reshape(points, (-1,))
        return interp1d(places, values, kind=method, axis=0, bounds_error=False, fill_value=fill)(
            xi
        )
    if method == "nearest":
        return NearestNDInterpolator(points, values, rescale)(xi)
    if method == "linear":
        return LinearNDInterpolator(points, values, fill_value, rescale)(xi)
    if method == "cubic" and np.shape(points)[-1] == 2:
        if holds_tensor((points, values, xi)):
            raise NotDifferentiable(
                "griddata(method='cubic') was asked of tensors in two dimensions, but the gradients that Clough and Tocher's scheme "
                "estimates have no rule here. Use RBFInterpolator, which is smooth too, or method='linear'."
            )
        from scipy import interpolate

        return interpolate.griddata(points, values, xi, method, fill_value, rescale)
    raise ValueError(
        f"Unknown interpolation method {method!r} for {np.shape(points)[-1]} dimensional data"
    )


# ----------------------------------------------------------------------------------------------- radial bases


def _plate(square: Any) -> Any:
    zero = raw(square) == 0
    return np.where(zero, 0.0, 0.5 * square * np.log(np.where(zero, 1.0, square)))


# Each is a function of the squared distance, which is smooth: only some need its root.
KERNELS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "linear": (lambda s: -rooted(s), 0),
    "thin_plate_spline": (_plate, 1),
    "cubic": (lambda s: s * rooted(s), 1),
    "quintic": (lambda s: -s * s * rooted(s), 2),
    "multiquadric": (lambda s: -np.sqrt(s + 1), 0),
    "inverse_multiquadric": (lambda s: 1 / np.sqrt(s + 1), -1),
    "inverse_quadratic": (lambda s: 1 / (s + 1), -1),
    "gaussian": (lambda s: np.exp(-s), -1),
}
"""Name -> the function of the squared distance, and the least degree of the polynomial beside it."""

_SCALED = ("linear", "thin_plate_spline", "cubic", "quintic")
"""Kernels that `epsilon` only multiplies, so that it may be left out."""


class RBFInterpolator:
    """Interpolation by radial basis functions, SciPy's: differentiable by points, values, smoothing, epsilon and queries.

    `y` (n, ndim) holds points, `d` (n, ...) values; `neighbors` makes each value from so many nearest points. Kernels: linear,
    thin_plate_spline, cubic, quintic, multiquadric, inverse_multiquadric, inverse_quadratic, gaussian. Raises LinAlgError where
    the points do not determine the polynomial. At a point of the data itself thin_plate_spline and linear have no second derivative (it
    is infinite): there theirs is that of the other points' terms.

    >>> import numpy as np, tapegrad as tg
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> tg.grad(lambda d: tg.interpolate.RBFInterpolator(points, d)([[0.25, 0.5]])[0])(np.ones(3))
    array([0.25, 0.25, 0.5 ])
    """

    def __init__(
        self, y: Any, d: Any, neighbors: int | None = None, smoothing: Any = 0.0, kernel: str = "thin_plate_spline",
        epsilon: Any = None, degree: int | None = None,
    ) -> None:  # fmt: skip
        """Check the data as SciPy does, and solve for the coefficients where all points are used."""
        self.y, self.d = as_real(y, "points"), doubled(d)
        if np.ndim(self.y) != 2:
            raise ValueError("`y` must be a 2-dimensional array.")
        count, ndim = np.shape(self.y)
        if np.ndim(self.d) < 1 or np.shape(self.d)[0] != count:
            raise ValueError(f"Expected the first axis of `d` to have length {count}.")
        smoothing = as_real(smoothing, "smoothing")
        if np.ndim(smoothing) and np.shape(smoothing) != (count,):
            raise ValueError(f"Expected `smoothing` to be a scalar or have shape ({count},).")
        self.smoothing = np.broadcast_to(smoothing, (count,))
        if not isinstance(kernel, str) or kernel.lower() not in KERNELS:
            raise ValueError(f"`kernel` must be one of {set(KERNELS)}.")
        self.kernel = kernel.lower()
        if epsilon is None:
            if self.kernel not in _SCALED:
                raise ValueError(f"`epsilon` must be specified if `kernel` is not one of {set(_SCALED)}.")  # fmt: skip
            epsilon = 1.0
        self.epsilon = as_real(epsilon, "epsilon")
        least = KERNELS[self.kernel][1]
        degree = max(least, 0) if degree is None else int(degree)
        if degree < -1:
            raise ValueError("`degree` must be at least -1.")
        self.degree, self.neighbors = (
            degree,
            None if neighbors is None else min(int(neighbors), count),
        )
        self._powers = np.array(
            [
                np.bincount(np.array(mono, int), minlength=ndim)
                for order in range(degree + 1)
                for mono in itertools.combinations_with_replacement(range(ndim), order)
            ]
        ).reshape(-1, ndim)
        needed = len(self._powers)
        if needed > (count if neighbors is None else self.neighbors or 0):
            raise ValueError(
                f"At least {needed} data points are required when `degree` is {degree} and the number of dimensions is {ndim}."
            )
        self._coefficients = None if neighbors is not None else self._solved(self.y, self.smoothing, self._flat())  # fmt: skip

    def _flat(self) -> Any:
        return np.reshape(self.d, (np.shape(self.d)[0], -1))

    def _frame(self, y: Any) -> tuple[Any, Any]:
        """Middle and half width of the points: the polynomial's own coordinates, on which the function does not depend."""
        places = raw(y)
        low, high = np.min(places, axis=-2, keepdims=True), np.max(places, axis=-2, keepdims=True)
        scale = (high - low) / 2
        return (high + low) / 2, np.where(scale == 0, 1.0, scale)

    def _kernel(self, a: Any, b: Any) -> Any:
        """Of all pairs of points of two sets."""
        square: Any = 0.0
        for i in range(np.shape(a)[-1]):
            square = square + (self.epsilon * (a[..., :, None, i] - b[..., None, :, i])) ** 2
        return KERNELS[self.kernel][0](square)

    def _monomials(self, x: Any) -> Any:
        columns = []
        for powers in self._powers:
            value: Any = np.ones(np.shape(x)[:-1])
            for i, power in enumerate(powers):
                value = value * x[..., i] ** int(power) if power else value
            columns.append(value)
        return np.stack(columns, axis=-1) if columns else np.zeros((*np.shape(x)[:-1], 0))

    def _solved(self, y: Any, smoothing: Any, d: Any) -> tuple[Any, Any, Any]:
        """Coefficients of kernels and monomials, and the frame of the monomials."""
        shift, scale = self._frame(y)
        p = self._monomials((y - shift) / scale)
        count, terms = np.shape(p)[-2:]
        smooth = self._kernel(y, y) + smoothing[..., None] * np.eye(count)
        corner = np.zeros((*np.shape(p)[:-2], terms, terms))
        above = np.concatenate([smooth, p], axis=-1)
        below = np.concatenate([np.swapaxes(p, -1, -2), corner], axis=-1)
        b = np.concatenate([d, np.zeros((*np.shape(d)[:-2], terms, np.shape(d)[-1]))], axis=-2)
        return np.linalg.solve(np.concatenate([above, below], axis=-2), b), shift, scale

    def __call__(self, x: Any) -> Any:
        """Values at queries (n, ndim)."""
        x = as_real(x, "queries")
        if np.ndim(x) != 2:
            raise ValueError("`x` must be a 2-dimensional array.")
        if np.shape(x)[1] != np.shape(self.y)[1]:
            raise ValueError(f"Expected the second axis of `x` to have length {np.shape(self.y)[1]}.")  # fmt: skip
        if self._coefficients is not None:
            coefficients, shift, scale = self._coefficients
            vectors = np.concatenate([self._kernel(x, self.y), self._monomials((x - shift) / scale)], axis=-1)  # fmt: skip
            value = vectors @ coefficients
        else:
            near = called(_nearest, raw(self.y), raw(x), self.neighbors)
            y = self.y[near]
            coefficients, shift, scale = self._solved(y, self.smoothing[near], self._flat()[near])
            q = x[:, None]
            vectors = np.concatenate([self._kernel(q, y), self._monomials((q - shift) / scale)], axis=-1)  # fmt: skip
            value = (vectors @ coefficients)[:, 0]
        return np.reshape(value, (np.shape(x)[0], *np.shape(self.d)[1:]))


__all__ = ["LinearNDInterpolator", "NearestNDInterpolator", "RBFInterpolator", "griddata"]
