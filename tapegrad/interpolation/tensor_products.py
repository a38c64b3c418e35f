"""Tensor products of pieces of polynomials, functions of several variables: `NdBSpline` and `NdPPoly`.

A value takes the few coefficients around a query and reduces them axis by axis; derivatives and integrals along an axis are those of
`BSpline` and `PPoly` along it.

Invariant: the piece that a query lies in is a constant along each axis, as in one dimension.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops.composing import holds_tensor, raw
from .piecewise import PPoly, as_real, doubled, falling, horner, piece_of
from .splines import BSpline, basis, column_of


def spline_value(c: Any, t: Sequence[Any], k: Sequence[int], q: Any, nu: Sequence[int]) -> Any:
    """The tensor product of B-splines with coefficients c (n1, ..., nd, ...), or a derivative, at queries (N, d)."""
    places, weights = [], []
    for i, (knots, degree, order) in enumerate(zip(t, k, nu, strict=True)):
        w, where = basis(knots, degree, q[:, i], order)
        near = where[:, None] + np.arange(-degree, 1)
        places.append(np.reshape(near, (-1, *(degree + 1 if j == i else 1 for j in range(len(t))))))
        weights.append(w)
    value = c[tuple(places)]
    for i in reversed(range(len(t))):
        shape = (-1,) + (1,) * i + (k[i] + 1,) + (1,) * (np.ndim(value) - i - 2)
        value = np.sum(value * np.reshape(weights[i], shape), axis=i + 1)
    return value


def orders_of(nu: Any, ndim: int) -> list[int]:
    """Orders of a derivative, one of at least 0 for each axis."""
    found = [0] * ndim if nu is None else [operator.index(order) for order in nu]
    if len(found) != ndim or min(found, default=0) < 0:
        raise ValueError(
            f"nu={nu} was asked, but it needs an order of at least 0 for each of {ndim} axes."
        )
    return found


def coordinates(points: Any, ndim: int | None = None) -> Any:
    """Places as an array (..., ndim), from one, or from a tuple of arrays of one coordinate each."""
    if isinstance(points, tuple) and len(points) == 1:
        points = points[0]
    if isinstance(points, tuple):
        parts = [as_real(p, "coordinates") for p in points]
        shape = np.broadcast_shapes(*(np.shape(p) for p in parts))
        return np.stack([np.broadcast_to(p, shape) for p in parts], axis=-1)
    points = as_real(points, "coordinates")
    if np.ndim(points) <= 1:
        points = np.reshape(points, (-1, 1 if ndim is None else ndim))
    return points


def _rows(xi: Any, ndim: int, name: str) -> tuple[Any, tuple[int, ...]]:
    """Queries as (N, ndim), and the shape that they had."""
    q = as_real(xi, "queries")
    if not np.ndim(q) or np.shape(q)[-1] != ndim:
        raise ValueError(
            f"{name} was asked at an array of shape {np.shape(q)}, but it is a function of {ndim} variables: the last axis holds them."
        )
    return np.reshape(q, (-1, ndim)), np.shape(q)[:-1]


def _with_nan(value: Any, q: Any, ends: list[tuple[Any, Any]], bounded: bool) -> Any:
    """NaN where a query is NaN or, if so asked, beyond the ends of an axis."""
    spots = raw(q)
    lost = np.any(np.isnan(spots), axis=-1)
    if bounded:
        for i, (low, high) in enumerate(ends):
            lost = lost | (spots[:, i] < low) | (spots[:, i] > high)
    return np.where(column_of(lost, value), np.nan, value)


class NdBSpline:
    """A tensor product of B-splines, SciPy's `NdBSpline`: differentiable by knots `t`, coefficients `c` and queries.

    `t` is a tuple of vectors of knots, one for each variable; `c` (n1, ..., nd, ...) has `len(t[i]) - k[i] - 1` coefficients along axis
    i; `k` is a degree, or one for each variable. Beyond the base intervals the outer pieces go on (`extrapolate=True`), or the
    value is NaN.

    >>> import numpy as np, tapegrad as tg
    >>> t = (np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 2.0, 2.0]))
    >>> f = lambda c: tg.interpolate.NdBSpline(t, c, 1)([0.25, 1.0])
    >>> tg.grad(f)(np.ones((2, 2)))
    array([[0.375, 0.375],
           [0.125, 0.125]])
    """

    def __init__(self, t: Any, c: Any, k: Any, *, extrapolate: Any = None) -> None:
        """Check knots, coefficients and degrees as SciPy's NdBSpline does."""
        if not isinstance(t, tuple) or not t:
            raise ValueError(
                "NdBSpline takes a tuple of vectors of knots for `t`, one for each variable."
            )
        ndim = len(t)
        degrees = (k,) * ndim if np.ndim(k) == 0 else k
        self.k = tuple(operator.index(degree) for degree in degrees)
        if len(self.k) != ndim:
            raise ValueError(
                f"NdBSpline was given {ndim} vectors of knots and {len(self.k)} degrees: one degree, or as many."
            )
        self.c = doubled(c)
        self.extrapolate = True if extrapolate is None else bool(extrapolate)
        if np.ndim(self.c) < ndim:
            raise ValueError(f"Coefficients must be at least {ndim}-dimensional.")
        self.t = tuple(as_real(knots, "knots") for knots in t)
        for i, (knots, degree) in enumerate(zip(self.t, self.k, strict=True)):
            BSpline(knots, np.zeros(max(np.size(knots) - degree - 1, 1)), degree)
            n = np.shape(knots)[0] - degree - 1
            if np.shape(self.c)[i] != n:
                raise ValueError(
                    f"Knots, coefficients and degree in dimension {i} are inconsistent: got {np.shape(self.c)[i]} coefficients for "
                    f"{np.shape(knots)[0]} knots, need {n} for k={degree}."
                )

    def __call__(self, xi: Any, *, nu: Any = None, extrapolate: Any = None) -> Any:
        """Values at `xi` (..., d), or derivatives of the orders `nu`, one for each variable: shape (...) and then c's further axes."""
        ndim = len(self.t)
        orders = orders_of(nu, ndim)
        extrapolate = self.extrapolate if extrapolate is None else bool(extrapolate)
        q, shape = _rows(xi, ndim, "NdBSpline")
        if not holds_tensor((self.t, self.c, q)):
            from scipy.interpolate import NdBSpline as Plain

            plain = Plain(self.t, self.c, self.k)
            return plain(np.reshape(q, (*shape, ndim)), nu=orders, extrapolate=extrapolate)
        value = spline_value(self.c, self.t, self.k, q, orders)
        ends = [(raw(t)[k], raw(t)[-k - 1]) for t, k in zip(self.t, self.k, strict=True)]
        value = _with_nan(value, q, ends, not extrapolate)
        return np.reshape(value, shape + np.shape(self.c)[ndim:])

    def derivative(self, nu: Any) -> NdBSpline:
        """The derivative of the orders `nu`, one for each variable, a product of splines of lower degrees."""
        t, c, k = list(self.t), self.c, list(self.k)
        for i, order in enumerate(orders_of(nu, len(t))):
            if not order:
                continue
            c = np.moveaxis(c, i, 0)
            if order > k[i]:
                c, k[i] = np.zeros((np.shape(t[i])[0] - 1, *np.shape(c)[1:])), 0
            else:
                t[i], c, k[i] = BSpline.construct_fast(t[i], c, k[i]).derivative(order).tck
                c = c[: np.shape(t[i])[0] - k[i] - 1]
            c = np.moveaxis(c, 0, i)
        return NdBSpline(tuple(t), c, tuple(k), extrapolate=self.extrapolate)

    def __repr__(self) -> str:
        return f"NdBSpline({len(self.t)} variables, degrees {self.k})"


class NdPPoly:
    """Polynomials on the boxes of a grid, SciPy's `NdPPoly`: differentiable by coefficients, breakpoints and queries.

    `c` (k1, ..., kd, m1, ..., md, ...) holds the coefficients, highest powers first, of m1 x ... x md boxes; `x` a vector of mi + 1
    increasing breakpoints for each variable. Beyond them the outer pieces go on (`extrapolate=True`), or the value is NaN.

    >>> import numpy as np, tapegrad as tg
    >>> f = tg.interpolate.NdPPoly(np.ones((2, 2, 1, 1)), ([0.0, 2.0], [0.0, 2.0]))  # (x + 1) (y + 1)
    >>> tg.grad(lambda q: f(q)[0])(np.array([[0.5, 2.0]]))
    array([[3. , 1.5]])
    >>> tg.grad(lambda b: f.integrate([(0.0, b), (0.0, 1.0)]))(1.0)
    3.0
    """

    def __init__(self, c: Any, x: Any, extrapolate: Any = None) -> None:
        """Check coefficients and breakpoints as SciPy's NdPPoly does."""
        self.c, self.x = doubled(c), tuple(as_real(v, "breakpoints") for v in x)
        self.extrapolate = True if extrapolate is None else bool(extrapolate)
        ndim = len(self.x)
        if any(np.ndim(v) != 1 for v in self.x):
            raise ValueError("x arrays must all be 1-dimensional")
        if any(np.size(v) < 2 for v in self.x):
            raise ValueError("x arrays must all contain at least 2 points")
        if not ndim or np.ndim(self.c) < 2 * ndim:
            raise ValueError("c must have at least 2*len(x) dimensions, and x one vector or more")
        if any(np.any(np.diff(raw(v)) < 0) for v in self.x):
            raise ValueError("x-coordinates are not in increasing order")
        if np.shape(self.c)[ndim : 2 * ndim] != tuple(np.shape(v)[0] - 1 for v in self.x):
            raise ValueError("x and c do not agree on the number of intervals")

    @classmethod
    def construct_fast(cls, c: Any, x: Any, extrapolate: Any = None) -> NdPPoly:
        """Polynomials from coefficients and breakpoints that are known to be right."""
        self: NdPPoly = NdPPoly.__new__(NdPPoly)
        self.c, self.x = c, tuple(x)
        self.extrapolate = True if extrapolate is None else extrapolate
        return self

    def __call__(self, x: Any, nu: Any = None, extrapolate: Any = None) -> Any:
        """Values at `x` (..., d), or derivatives of the orders `nu`: shape (...) and then c's axes behind the first 2 d."""
        ndim = len(self.x)
        orders = orders_of(nu, ndim)
        extrapolate = self.extrapolate if extrapolate is None else bool(extrapolate)
        q, shape = _rows(coordinates(x), ndim, "NdPPoly")
        if not holds_tensor((self.c, self.x, q)):
            from scipy.interpolate import NdPPoly as Plain

            return Plain(self.c, self.x)(np.reshape(q, (*shape, ndim)), orders, extrapolate)
        spots = raw(q)
        pieces = [piece_of(raw(v), spots[:, i]) for i, v in enumerate(self.x)]
        value = self.c[(slice(None),) * ndim + tuple(pieces)]
        for i, order in enumerate(orders):
            k = np.shape(value)[0]
            lead = (1,) * (ndim - 1 - i)
            t = q[:, i] - self.x[i][pieces[i]]
            t = np.reshape(t, lead + np.shape(t) + (1,) * (np.ndim(self.c) - 2 * ndim))
            if order >= k:
                value = value[0] * t * 0.0
                continue
            factors = falling(k, order)
            value = horner([value[j] * factors[j] for j in range(k - order)], t)
        value = _with_nan(value, q, [(raw(v)[0], raw(v)[-1]) for v in self.x], not extrapolate)
        return np.reshape(value, shape + np.shape(self.c)[2 * ndim :])

    def _along(self, axis: int) -> PPoly:
        """The polynomials of one variable, with the others as further axes of their coefficients."""
        c = np.moveaxis(self.c, (axis, len(self.x) + axis), (0, 1))
        return PPoly.construct_fast(c, self.x[axis], self.extrapolate)

    def derivative(self, nu: Any) -> NdPPoly:
        """The derivative of the orders `nu`, one for each variable; where an order is negative, the antiderivative."""
        if np.shape(nu) != (len(self.x),):
            raise ValueError(
                f"nu={nu} was asked, but it needs an order for each of {len(self.x)} axes."
            )
        found = self
        for i, order in enumerate(nu):
            if order:
                c = found._along(i).derivative(operator.index(order)).c
                c = np.moveaxis(c, (0, 1), (i, len(self.x) + i))
                found = self.construct_fast(c, self.x, self.extrapolate)
        return found

    def antiderivative(self, nu: Any) -> NdPPoly:
        """The antiderivative of the orders `nu`, 0 at the first breakpoint of each variable that is integrated over."""
        return self.derivative([-order for order in nu])

    def integrate_1d(self, a: Any, b: Any, axis: int, extrapolate: Any = None) -> Any:
        """The definite integral from `a` to `b` over one variable: polynomials of the others, or of one variable the value."""
        axis = operator.index(axis) % len(self.x)
        extrapolate = self.extrapolate if extrapolate is None else bool(extrapolate)
        c = self._along(axis).integrate(a, b, extrapolate)
        rest = self.x[:axis] + self.x[axis + 1 :]
        return self.construct_fast(c, rest, extrapolate) if rest else c

    def integrate(self, ranges: Any, extrapolate: Any = None) -> Any:
        """The definite integral over a box, `ranges` being (a, b) for each variable; differentiable by all of them."""
        if not hasattr(ranges, "__len__") or len(ranges) != len(self.x):
            raise ValueError("Range not a sequence of correct length")
        found: Any = self
        for a, b in ranges:
            found = found.integrate_1d(a, b, 0, extrapolate)
        return found

    def __repr__(self) -> str:
        return f"NdPPoly({len(self.x)} variables, {' x '.join(str(np.size(v) - 1) for v in self.x)} boxes)"


__all__ = ["NdBSpline", "NdPPoly"]
