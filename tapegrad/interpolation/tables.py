"""Interpolation in tables: values at places on a line (`interp1d`) and on the points of a grid (`RegularGridInterpolator`).

Linear and nearest values are read at neighbours, splines are tensor products of B-splines, whose coefficients are found one axis after
the other.

Invariant: which neighbours a query has is a constant; so "nearest", "previous" and "next" have the derivative 0 by places and queries.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..ops.calculus import inexact
from ..ops.composing import holds_tensor, raw
from .piecewise import (
    as_real,
    demand_real,
    doubled,
    evaluated,
    hermite,
    monotone_slopes,
    moved_axis,
)
from .splines import column_of, make_interp_spline
from .tensor_products import coordinates, orders_of, spline_value

_ORDERS = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}
_NEIGHBOURS = ("linear", "nearest", "nearest-up", "previous", "next")


class interp1d:
    """Interpolation of values on a line, SciPy's `interp1d`: differentiable by x, y, fill values and queries.

    `kind`: linear, nearest, nearest-up, previous, next, zero, slinear, quadratic, cubic, or the degree of a spline. Beyond the data it
    raises, fills in (`bounds_error=False`), or goes on (`fill_value="extrapolate"`).

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.interpolate.interp1d([0.0, 1.0, 3.0], y)(2.0))(np.array([0.0, 1.0, 5.0]))
    array([0. , 0.5, 0.5])
    """

    def __init__(
        self, x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True, bounds_error: bool | None = None,
        fill_value: Any = np.nan, assume_sorted: bool = False,
    ) -> None:  # fmt: skip
        """Check and sort the table as SciPy does; splines of order 2 and above are made here."""
        order = _ORDERS.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(order, str) and order not in _NEIGHBOURS:
            raise NotImplementedError(
                f"interp1d was asked for kind={kind!r}, but it is one of {', '.join((*_NEIGHBOURS, *_ORDERS))}, or a degree."
            )
        x, y = inexact(x), inexact(y)
        if copy:  # so that later writes of the user's do not change the table
            x, y = (v.copy() if type(v) is np.ndarray else v for v in (x, y))
        if np.ndim(x) != 1:
            raise ValueError("the x array must have exactly one dimension.")
        if np.ndim(y) == 0:
            raise ValueError("the y array must have at least one dimension.")
        self.axis = normalize_axis_index(axis, np.ndim(y))
        if np.shape(x)[0] != np.shape(y)[self.axis]:
            raise ValueError("x and y arrays must be equal in length along interpolation axis.")
        y = np.moveaxis(y, self.axis, 0)
        if not assume_sorted:
            sorting = np.argsort(raw(x), kind="stable")
            x, y = x[sorting], y[sorting]
        least = 1 if isinstance(order, str) else order + 1
        if np.shape(x)[0] < least:
            raise ValueError(f"x and y arrays must have at least {least} entries")
        self.x, self._y, self._kind = x, y, order
        self._spline = None if isinstance(order, str) else make_interp_spline(x, y, order, check_finite=False)  # fmt: skip
        self.bounds_error = bounds_error
        self._fill = self._filling(fill_value)
        self.fill_value = fill_value

    @property
    def y(self) -> Any:
        """The values, interpolation axis where it was given."""
        return np.moveaxis(self._y, 0, self.axis)

    def _filling(self, fill_value: Any) -> Any:
        """What stands below and above the data; None where the function goes on."""
        if isinstance(fill_value, str):
            if fill_value != "extrapolate":
                raise ValueError(f"fill_value={fill_value!r} was asked, but it is numbers, a pair, or 'extrapolate'.")  # fmt: skip
            if self.bounds_error:
                raise ValueError("Cannot extrapolate and raise at the same time.")
            self.bounds_error = False
            if self._kind in ("previous", "next"):
                return (np.nan, self._y[-1]) if self._kind == "previous" else (self._y[0], np.nan)
            return None
        if self.bounds_error is None:
            self.bounds_error = True
        pair = fill_value if isinstance(fill_value, tuple) and len(fill_value) == 2 else (fill_value,) * 2  # fmt: skip
        below, above = (inexact(value) for value in pair)
        rest = np.shape(self._y)[1:] or (1,)
        for value, what in ((below, "below"), (above, "above")):
            try:
                fits = np.broadcast_shapes(np.shape(value), rest) == rest
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(
                    f"fill_value ({what}) argument must be able to broadcast up to shape {rest} but had shape {np.shape(value)}"
                )
        one = not np.shape(self._y)[1:]
        return tuple(np.reshape(v, ()) if one and np.ndim(v) else v for v in (below, above))

    def __call__(self, x: Any) -> Any:
        """The interpolated values at `x` of any shape. Raises ValueError beyond the data if so asked."""
        q = as_real(x, "queries")
        shape = np.shape(q)
        if not holds_tensor((self.x, self._y, q)) and np.ndim(q) == 0:
            q = np.reshape(q, (1,))
        value = self._spline._evaluated(q) if self._spline is not None else self._neighbours(q)
        if self._fill is not None:
            places, spots = raw(self.x), raw(q)
            below, above = spots < places[0], spots > places[-1]
            if self.bounds_error and bool(np.any(below)):
                raise ValueError(
                    f"A value ({np.min(spots)}) in x_new is below the interpolation range's minimum value ({places[0]})."
                )
            if self.bounds_error and bool(np.any(above)):
                raise ValueError(
                    f"A value ({np.max(spots)}) in x_new is above the interpolation range's maximum value ({places[-1]})."
                )
            value = np.where(column_of(below, value), self._fill[0], value)
            value = np.where(column_of(above, value), self._fill[1], value)
        return moved_axis(np.reshape(value, shape + np.shape(self._y)[1:]), len(shape), self.axis)

    def _neighbours(self, q: Any) -> Any:
        """Values by the neighbouring entries: linear, nearest, previous or next."""
        places, spots, kind = raw(self.x), raw(q), self._kind
        last = np.shape(self.x)[0] - 1
        if kind == "linear":
            high = np.clip(np.searchsorted(places, spots), 1, last)
            x0, y0 = self.x[high - 1], self._y[high - 1]
            slope = (self._y[high] - y0) / column_of(self.x[high] - x0, y0)
            return slope * column_of(q - x0, y0) + y0
        if kind in ("nearest", "nearest-up"):
            halves = places / 2.0
            side: Any = "left" if kind == "nearest" else "right"
            found = np.searchsorted(halves[1:] + halves[:-1], spots, side=side)
        elif kind == "previous":
            found = np.searchsorted(np.nextafter(places, -np.inf), spots, side="left") - 1
        else:
            found = np.searchsorted(np.nextafter(places, np.inf), spots, side="right")
        return self._y[np.clip(found, 0, last)]


# ------------------------------------------------------------------------------------------------------- grids


_DEGREES = {"slinear": 1, "cubic": 3, "quintic": 5}


class RegularGridInterpolator:
    """Interpolation on a grid of any number of axes, SciPy's: differentiable by the grid's points, the values and the queries.

    `method`: linear, nearest, slinear, cubic, quintic, pchip. Queries (..., ndim) beyond the grid raise, or are filled in
    (`bounds_error=False`), or with `fill_value=None` go on. Splines solve their systems directly, SciPy iterates (to 1e-6).

    >>> import numpy as np, tapegrad as tg
    >>> f = tg.interpolate.RegularGridInterpolator((np.arange(3.0), np.arange(3.0)), np.outer([0, 1, 4], [1, 2, 3]))
    >>> tg.grad(lambda q: f(q)[0])(np.array([0.5, 1.5]))
    array([2.5, 0.5])
    """

    def __init__(
        self, points: Any, values: Any, method: str = "linear", bounds_error: bool = True, fill_value: Any = np.nan,
        *, solver: Any = None, solver_args: Any = None,
    ) -> None:  # fmt: skip
        """Check grid and values as SciPy does; descending axes are reversed."""
        if solver is not None or solver_args:
            raise ValueError(
                "RegularGridInterpolator was given a solver, but here splines on grids are found by banded solutions, one axis after the "
                "other. Leave solver and solver_args out."
            )
        self._known(method)
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.values = inexact(values)
        grid = [as_real(p, "grid points") for p in points]
        if len(grid) > np.ndim(self.values):
            raise ValueError(f"There are {len(grid)} point arrays, but values has {np.ndim(self.values)} dimensions")  # fmt: skip
        for i, p in enumerate(grid):
            places = raw(p)
            if np.ndim(p) != 1:
                raise ValueError(f"The points in dimension {i} must be 1-dimensional")
            if np.shape(self.values)[i] != np.shape(p)[0]:
                raise ValueError(f"There are {np.shape(p)[0]} points and {np.shape(self.values)[i]} values in dimension {i}")  # fmt: skip
            if np.any(places[1:] <= places[:-1]):
                if np.any(places[1:] >= places[:-1]):
                    raise ValueError(f"The points in dimension {i} must be strictly ascending or descending")  # fmt: skip
                grid[i] = p[::-1]
                self.values = np.flip(self.values, i)
        self.grid = tuple(grid)
        self._coefficients: dict[str, Any] = {}
        if method in _DEGREES:
            self._spline(method)

    def _known(self, method: str) -> None:
        if method not in ("linear", "nearest", "pchip", *_DEGREES):
            raise ValueError(
                f"method {method!r} was asked of RegularGridInterpolator, but it is linear, nearest, slinear, cubic, quintic or pchip."
            )

    def _spline(self, method: str) -> Any:
        """Coefficients of the tensor product of splines, and the knots of each axis."""
        if method not in self._coefficients:
            k, c, knots = _DEGREES[method], doubled(self.values), []
            self._demand_points(k, method)
            for axis, p in enumerate(self.grid):
                spline = make_interp_spline(p, c, k, axis=axis)
                c = np.moveaxis(spline.c, 0, axis)
                knots.append(spline.t)
            self._coefficients[method] = c, knots
        return self._coefficients[method]

    def _demand_points(self, k: int, method: str) -> None:
        for i, p in enumerate(self.grid):
            if np.shape(p)[0] <= k:
                raise ValueError(
                    f"There are {np.shape(p)[0]} points in dimension {i}, but method {method} requires at least {k + 1} points."
                )

    def __call__(self, xi: Any, method: str | None = None, *, nu: Any = None) -> Any:
        """Values at `xi` (..., ndim); with `nu`, for the spline methods, derivatives of one order for each axis."""
        method = self.method if method is None else method
        self._known(method)
        if nu is not None and method not in _DEGREES:
            raise ValueError(f"Can only compute derivatives for methods {list(_DEGREES)}, got method = {method!r}.")  # fmt: skip
        ndim = len(self.grid)
        xi = coordinates(xi, ndim)
        if np.shape(xi)[-1] != ndim:
            raise ValueError(
                f"The requested sample points xi have dimension {np.shape(xi)[-1]} but this RegularGridInterpolator has dimension {ndim}"
            )
        shape = np.shape(xi)[:-1] + np.shape(self.values)[ndim:]
        q = np.reshape(xi, (-1, ndim))
        spots = raw(q)
        beyond = np.zeros(spots.shape[0], bool)
        for i, p in enumerate(self.grid):
            column_i, places = spots[:, i], raw(p)
            outside = (column_i < places[0]) | (column_i > places[-1])
            if self.bounds_error and bool(np.any(outside | np.isnan(column_i))):
                raise ValueError(f"One of the requested xi is out of bounds in dimension {i}")
            beyond = beyond | outside
        if method in _DEGREES:
            value = self._smooth(q, method, nu)
        elif method == "pchip":
            value = self._monotone(q)
        else:
            value = self._near(q, method)
        if not self.bounds_error and self.fill_value is not None:
            value = np.where(column_of(beyond, value), self.fill_value, value)
        value = np.where(column_of(np.any(np.isnan(spots), axis=-1), value), np.nan, value)
        return np.reshape(value, shape)

    def _near(self, q: Any, method: str) -> Any:
        """From the corners of the cell of each query."""
        low, share = [], []
        for i, p in enumerate(self.grid):
            n = np.shape(p)[0]
            if n == 1:  # both corners are the one point
                low.append(np.full(np.shape(q)[0], -1))
                share.append(np.zeros(np.shape(q)[0]))
                continue
            j = np.clip(np.searchsorted(raw(p), raw(q)[:, i], side="right") - 1, 0, n - 2)
            low.append(j)
            share.append((q[:, i] - p[j]) / (p[j + 1] - p[j]))
        if method == "nearest":
            return self.values[tuple(np.where(raw(s) <= 0.5, j, j + 1) for j, s in zip(low, share, strict=True))]  # fmt: skip
        value: Any = 0.0
        for corner in itertools.product((0, 1), repeat=len(self.grid)):
            weight: Any = 1.0
            for upper, s in zip(corner, share, strict=True):
                weight = weight * (s if upper else 1 - s)
            term = self.values[tuple(j + upper for j, upper in zip(low, corner, strict=True))]
            value = value + term * column_of(weight, term)
        return value

    def _smooth(self, q: Any, method: str, nu: Any) -> Any:
        """From the tensor product of B-splines."""
        c, knots = self._spline(method)
        orders = orders_of(nu, len(self.grid))
        return spline_value(c, knots, [_DEGREES[method]] * len(knots), q, orders)

    def _monotone(self, q: Any) -> Any:
        """One axis after the other, the last one first."""
        demand_real(self.values, "RegularGridInterpolator(method='pchip')")
        self._demand_points(3, "pchip")
        ndim = len(self.grid)
        axes = [*range(ndim)[::-1], *range(ndim, np.ndim(self.values))]
        y = np.transpose(doubled(self.values), axes)
        for i in reversed(range(ndim)):
            x = self.grid[i]
            lanes = i < ndim - 1
            c = hermite(x, y, monotone_slopes(x, y))
            y = evaluated(c, x, q[:, i], lanes=lanes)
            if i:
                y = np.moveaxis(y, 0, 1)
        return y


def interpn(
    points: Any, values: Any, xi: Any, method: str = "linear", bounds_error: bool = True, fill_value: Any = np.nan
) -> Any:  # fmt: skip
    """Interpolation on a grid in one call: `RegularGridInterpolator(points, values, method, ...)(xi)`.

    >>> import numpy as np, tapegrad as tg
    >>> axis = np.array([0.0, 1.0])
    >>> tg.grad(lambda x: tg.interpolate.interpn((axis,), np.array([0.0, 3.0]), x[:, None]).sum())(np.array([0.25]))
    array([3.])
    """
    if method == "splinef2d":
        raise NotImplementedError("interpn was asked for 'splinef2d', FITPACK's spline, which has no rule here: use 'cubic'.")  # fmt: skip
    found = RegularGridInterpolator(points, values, method, bounds_error, fill_value)
    return found(coordinates(xi, len(found.grid)))


__all__ = ["RegularGridInterpolator", "interp1d", "interpn"]
