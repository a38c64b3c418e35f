"""Polynomials through data: Newton's form for repeated places (`KroghInterpolator`), Lagrange's for many (`BarycentricInterpolator`).

Both are products and sums without a division by a query's distance from a place, so that all derivatives hold at the places too.
Lagrange's form is stable at good places (Chebyshev's) in any number; Newton's takes derivatives of the data.

Invariant: which places are equal is a constant.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..ops.composing import raw, scipys
from .piecewise import as_real, column, doubled, moved_axis

_scipys = scipys("scipy.interpolate")


class _Polynomial:
    """Places and data (interpolation axis first), evaluation with SciPy's shapes."""

    def __init__(self, xi: Any, yi: Any, axis: int = 0) -> None:
        """Places (n,) and as many values along the axis."""
        self.xi, y = as_real(xi, "places"), doubled(yi)
        self._axis = normalize_axis_index(axis, np.ndim(y))
        self.yi = np.moveaxis(y, self._axis, 0)
        if (
            np.ndim(self.xi) != 1
            or not np.shape(self.xi)[0]
            or np.shape(self.yi)[0] != np.shape(self.xi)[0]
        ):
            raise ValueError(
                f"{type(self).__name__} was given places of shape {np.shape(self.xi)} and values of shape {np.shape(yi)}: it takes a "
                "vector of places, and as many values along the axis."
            )
        self.n = np.shape(self.xi)[0]

    def __call__(self, x: Any) -> Any:
        """The value of the polynomial at x of any shape."""
        return self.derivative(x, 0)

    def derivative(self, x: Any, der: int = 1) -> Any:
        """The derivative of order `der` at x of any shape."""
        if der < 0:
            raise ValueError(
                f"the derivative of order {der} was asked, but an order is at least 0: integrate a PPoly instead."
            )
        q = as_real(x, "queries")
        return moved_axis(self._at(q, der), np.ndim(q), self._axis)

    def derivatives(self, x: Any, der: int | None = None) -> Any:
        """Value and derivatives of the orders below `der` (by default, all that are not 0), along a first axis."""
        return np.stack([self.derivative(x, d) for d in range(self.n if der is None else der)])

    def _at(self, q: Any, der: int) -> Any:
        raise NotImplementedError


class KroghInterpolator(_Polynomial):
    """The polynomial through data in Newton's form, SciPy's: where a place is repeated, its next value is the next derivative there.

    Differentiable by places, data and queries.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(tg.interpolate.KroghInterpolator([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]))(3.0)
    6.0
    """

    def __init__(self, xi: Any, yi: Any, axis: int = 0) -> None:
        """Divided differences, of equal places by the derivatives that are given."""
        super().__init__(xi, yi, axis)
        n, places = self.n, raw(self.xi)
        known = isinstance(places, np.ndarray)
        start = np.arange(n)
        if known:
            for i in range(1, n):
                start[i] = start[i - 1] if places[i] == places[i - 1] else i
        level = self.yi[start]
        c = [level[0]]
        for j in range(1, n):
            same = places[j:] == places[:-j] if known else np.zeros(n - j, bool)
            width = np.where(same, 1.0, self.xi[j:] - self.xi[:-j])
            given = (
                self.yi[np.minimum(start[:-j] + j, n - 1)] / math.factorial(j)
                if np.any(same)
                else None
            )
            level = (level[1:] - level[:-1]) / column(width, level)
            level = level if given is None else np.where(column(same, level), given, level)
            c.append(level[0])
        self.c = np.stack(c)

    def _at(self, q: Any, der: int) -> Any:
        """Horner's rule for the value and, carried along, Taylor's coefficients up to the order that is asked."""
        shape = np.shape(q) + np.shape(self.c)[1:]
        q = np.reshape(q, np.shape(q) + (1,) * (np.ndim(self.c) - 1))
        taylor: list[Any] = [np.zeros(shape) for _ in range(der + 1)]
        for k in range(self.n - 1, -1, -1):
            for j in range(der, 0, -1):
                taylor[j] = taylor[j] * (q - self.xi[k]) + taylor[j - 1]
            taylor[0] = taylor[0] * (q - self.xi[k]) + self.c[k]
        return taylor[der] * math.factorial(der)


class BarycentricInterpolator(_Polynomial):
    """The polynomial through data at places that all differ, in Lagrange's form, SciPy's; differentiable by places, data and queries.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.array([0.0, 1.0, 3.0])
    >>> tg.grad(tg.interpolate.BarycentricInterpolator(x, x**2))(3.0)
    6.0
    """

    def __init__(self, xi: Any, yi: Any, axis: int = 0) -> None:
        """Places that differ, and the values there."""
        super().__init__(xi, yi, axis)
        places = raw(self.xi)
        if isinstance(places, np.ndarray) and np.unique(places).size < self.n:
            raise ValueError(
                "Interpolation points xi must be distinct: give KroghInterpolator repeated ones."
            )

    def _at(self, q: Any, der: int) -> Any:
        """Lagrange's sum over the data, or over the values that the derivative has at the places."""
        y, own = self.yi, np.eye(self.n, dtype=bool)
        apart = np.where(own, 1.0, self.xi[:, None] - self.xi)
        if der:
            # Values of the derivative at the places, as often as is asked (Berrut, Trefethen 2004).
            scale = (np.max(raw(self.xi)) - np.min(raw(self.xi))) / 4.0
            weight = 1.0 / np.prod(apart / scale, axis=1)
            off = np.where(own, 0.0, weight / (weight[:, None] * apart))
            matrix = off - np.where(own, np.sum(off, axis=1)[:, None], 0.0)
            flat = np.reshape(y, (self.n, -1))
            for _ in range(der):
                flat = matrix @ flat
            y = np.reshape(flat, np.shape(y))
        spot = np.reshape(q, -1)[:, None, None]
        shares = np.prod(np.where(own, 1.0, (spot - self.xi) / apart), axis=-1)
        found = shares @ np.reshape(y, (self.n, -1))
        return np.reshape(found, np.shape(q) + np.shape(y)[1:])


@_scipys
def barycentric_interpolate(
    xi: Any, yi: Any, x: Any, axis: int = 0, *, der: Any = 0, rng: Any = None
) -> Any:
    """The polynomial through data at x, or its derivative of order `der`; differentiable by all three.

    >>> import tapegrad as tg
    >>> tg.interpolate.barycentric_interpolate([0.0, 1.0, 3.0], tg.tensor([0.0, 1.0, 9.0]), 2.0).round(12)
    tensor(4.)
    """
    return _evaluated(BarycentricInterpolator(xi, yi, axis), x, der)


@_scipys
def krogh_interpolate(xi: Any, yi: Any, x: Any, der: Any = 0, axis: int = 0) -> Any:
    """The polynomial through data, of repeated places with derivatives, at x, or its derivative of order `der`; differentiable by all.

    >>> import tapegrad as tg
    >>> tg.interpolate.krogh_interpolate([0.0, 0.0, 1.0], tg.tensor([0.0, 0.0, 1.0]), 2.0)
    tensor(4.)
    """
    return _evaluated(KroghInterpolator(xi, yi, axis), x, der)


def _evaluated(polynomial: _Polynomial, x: Any, der: Any) -> Any:
    if np.ndim(der) == 0:
        return polynomial.derivative(x, int(der))
    return np.stack([polynomial.derivative(x, int(d)) for d in np.ravel(der)])


__all__ = [
    "BarycentricInterpolator",
    "KroghInterpolator",
    "barycentric_interpolate",
    "krogh_interpolate",
]
