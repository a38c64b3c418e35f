"""B-splines: `BSpline`, and `make_interp_spline`, the spline through data.

A spline of degree k is a vector of knots t (n + k + 1) and coefficients c (n, ...). De Boor's recurrence runs on whole arrays: each
query takes the 2k knots around its interval and the k + 1 coefficients that count there (A Practical Guide to Splines, chapter
X). Interpolation solves a banded system, whose derivatives are banded solutions too.

Invariant: the interval that a query lies in is a constant, and its width is not 0, so no step of the recurrence divides by 0.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..ops.composing import holds_tensor, raw
from ..ops.indexing import scatter
from ..ops.linear_systems import solve_banded
from .piecewise import as_real, column, doubled, joined, moved_axis, wrapped_into


def interval_of(t: np.ndarray, k: int, q: np.ndarray) -> np.ndarray:
    """For each query the l with t[l] <= q < t[l + 1], among the intervals of some width that a spline is defined on.

    A spline of degree 0 divides by no width: its last interval may have none, and its last coefficient is the value at the last knot.
    """
    if k == 0:
        return np.clip(np.searchsorted(t, q, side="right") - 1, 0, t.shape[0] - 2)
    first = np.searchsorted(t, t[k], side="right") - 1
    last = np.searchsorted(t, t[t.shape[0] - k - 1], side="left") - 1
    return np.clip(np.searchsorted(t, q, side="right") - 1, first, last)


def recurrence(t: Any, k: int, q: Any, where: Any, local: Any, nu: int = 0) -> Any:
    """De Boor's recurrence: the value, or derivative of order nu, from the k + 1 coefficients `local` of each query (first axis)."""
    if nu > k:
        return local[0] * 0.0
    around = t[where + np.reshape(np.arange(1 - k, k + 1), (-1,) + (1,) * np.ndim(q))] if k else t
    for r in range(1, k + 1):
        left, right = around[r - 1 : k], around[k : 2 * k - r + 1]
        shape = np.shape(left) + (1,) * (np.ndim(local) - 1 - np.ndim(q))
        width = np.reshape(right - left, shape)
        if r <= nu:
            local = (k - r + 1) * (local[1:] - local[:-1]) / width
        else:
            share = np.reshape(q - left, shape) / width
            local = (1.0 - share) * local[:-1] + share * local[1:]
    return local[0]


def basis(t: Any, k: int, q: Any, nu: int = 0) -> tuple[Any, Any]:
    """For each of a vector of queries, the k + 1 B-splines that are not 0 there (or their derivatives), and the interval."""
    where = interval_of(raw(t), k, raw(q))
    unit = np.reshape(np.eye(k + 1), (k + 1, 1, k + 1))
    local = unit + np.zeros((1, np.shape(q)[0], 1))
    return recurrence(t, k, q, where, local, nu), where


class BSpline:
    """A spline as a sum of B-splines, SciPy's `BSpline`: differentiable by knots `t`, coefficients `c` and queries.

    The knots are sorted; `c` has at least `len(t) - k - 1` entries along `axis`. Beyond the base interval the outer
    pieces go on (`extrapolate=True`), the value is NaN (False), or the function repeats ("periodic").

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda c: tg.interpolate.BSpline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], c, 2)(2.5)
    >>> tg.grad(f)(np.array([1.0, 2.0, 3.0]))
    array([0.125, 0.75 , 0.125])
    """

    def __init__(self, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> None:
        """Check knots, coefficients and degree as SciPy's BSpline does."""
        self.k = operator.index(k)
        self.t, self.c = as_real(t, "knots"), doubled(c)
        if self.k < 0:
            raise ValueError("Spline order cannot be negative.")
        if np.ndim(self.t) != 1:
            raise ValueError("Knot vector must be one-dimensional.")
        n = np.shape(self.t)[0] - self.k - 1
        if n < self.k + 1:
            raise ValueError(f"Need at least {2 * self.k + 2} knots for degree {self.k}")
        knots = raw(self.t)
        if np.any(knots[1:] < knots[:-1]):
            raise ValueError("Knots must be in a non-decreasing order.")
        if not np.all(np.isfinite(knots)):
            raise ValueError("Knots should not have nans or infs.")
        if bool(knots[self.k] == knots[n]):
            raise ValueError("Need at least two internal knots.")
        self.extrapolate = extrapolate if extrapolate == "periodic" else bool(extrapolate)
        if np.ndim(self.c) < 1:
            raise ValueError("Coefficients must be at least 1-dimensional.")
        self.axis = normalize_axis_index(axis, np.ndim(self.c))
        self.c = np.moveaxis(self.c, self.axis, 0)
        if np.shape(self.c)[0] < n:
            raise ValueError("Knots, coefficients and degree are inconsistent.")

    @classmethod
    def construct_fast(cls, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> BSpline:  # fmt: skip
        """A spline from knots, coefficients and degree that are known to be right."""
        self = cls.__new__(cls)
        self.t, self.c, self.k, self.extrapolate, self.axis = t, c, k, extrapolate, axis
        return self

    @classmethod
    def basis_element(cls, t: Any, extrapolate: Any = True) -> BSpline:
        """The one B-spline with these knots, of degree `len(t) - 2`."""
        t = as_real(t, "knots")
        k = np.shape(t)[0] - 2
        ends = joined(*[t[:1] - 1.0] * k, t, *[t[-1:] + 1.0] * k)
        c = np.zeros(np.shape(ends)[0] - k - 1)
        c[k] = 1.0
        return cls(ends, c, k, extrapolate)

    def __repr__(self) -> str:
        return f"BSpline({np.shape(self.t)[0]} knots, degree {self.k})"

    @property
    def tck(self) -> tuple[Any, Any, int]:
        """Knots, coefficients and degree."""
        return self.t, self.c, self.k

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Value of the spline, or of its derivative of order `nu`, at `x` of any shape."""
        if nu < 0:
            raise ValueError(f"the derivative of order {nu} was asked, but an order is at least 0: use antiderivative({-nu}).")  # fmt: skip
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if not holds_tensor((self.t, self.c, x)):
            from scipy.interpolate import BSpline as Plain

            plain = Plain.construct_fast(np.ascontiguousarray(self.t), np.ascontiguousarray(self.c), self.k, axis=self.axis)  # fmt: skip
            return plain(x, nu, extrapolate)
        q = as_real(x, "queries")
        start, end = self.t[self.k], self.t[np.shape(self.t)[0] - self.k - 1]
        if extrapolate == "periodic":
            q = wrapped_into(q, start, end - start)
        return moved_axis(self._evaluated(q, nu, not extrapolate), np.ndim(q), self.axis)

    def _evaluated(self, q: Any, nu: int = 0, bounded: bool = False) -> Any:
        """The value at queries, interpolation axis first."""
        k, knots, spots = self.k, raw(self.t), raw(q)
        where = interval_of(knots, k, spots)
        near = where + np.reshape(np.arange(-k, 1), (-1,) + (1,) * np.ndim(q))
        value = recurrence(self.t, k, q, where, self.c[near], nu)
        lost = np.isnan(spots)
        if bounded:
            lost = lost | (spots < knots[k]) | (spots > knots[knots.shape[0] - k - 1])
        return np.where(column_of(lost, value), np.nan, value)

    def derivative(self, nu: int = 1) -> BSpline:
        """The derivative of order `nu`, a spline of lower degree."""
        if nu < 0:
            return self.antiderivative(-nu)
        t, c, k = self._padded()
        if nu > k:
            raise ValueError(f"Order of derivative (n = {nu}) must be <= order of spline (k = {k})")
        for _ in range(nu):
            steps = t[k + 1 : -1] - t[1 : -k - 1]
            if np.any(raw(steps) == 0):
                raise ValueError(
                    f"the derivative of order {nu} was asked of a spline with knots repeated more than {k} times, where it jumps. "
                    "Evaluate it with nu= instead."
                )
            m = np.shape(steps)[0]
            c = (c[1 : m + 1] - c[:m]) * k / column(steps, c)
            c = np.concatenate([c, np.zeros((k, *np.shape(c)[1:]))])
            t, k = t[1:-1], k - 1
        return self.construct_fast(t, c, k, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> BSpline:
        """The antiderivative of order `nu` that is 0 at the first knot, a spline of higher degree."""
        if nu < 0:
            return self.derivative(-nu)
        t, c, k = self._padded()
        for _ in range(nu):
            steps = t[k + 1 :] - t[: -k - 1]
            c = np.cumsum(c[: np.shape(steps)[0]] * column(steps, c), axis=0) / (k + 1)
            c = np.concatenate([np.zeros((1, *np.shape(c)[1:])), c, *[c[-1:]] * (k + 2)])
            t, k = joined(t[0], t, t[-1]), k + 1
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return self.construct_fast(t, c, k, extrapolate, self.axis)

    def _padded(self) -> tuple[Any, Any, int]:
        """Knots, coefficients as many as there are knots, and degree: what the recurrences of whole splines take."""
        missing = np.shape(self.t)[0] - np.shape(self.c)[0]
        c = self.c
        if missing > 0:
            c = np.concatenate([c, np.zeros((missing, *np.shape(c)[1:]))])
        return self.t, c, self.k

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """The definite integral from `a` to `b`, which are numbers; differentiable by both."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        a, b = (as_real(end, "limits") for end in (a, b))
        start, end = self.t[self.k], self.t[np.shape(self.t)[0] - self.k - 1]
        whole = self.antiderivative()
        if extrapolate == "periodic":
            period = end - start
            over = whole._evaluated(end) - whole._evaluated(start)
            sums = []
            for limit in (a, b):
                turns = np.floor(raw(limit - start) / raw(period))
                sums.append(turns * over + whole._evaluated(limit - turns * period))
            return sums[1] - sums[0]
        if not extrapolate:
            a, b = np.clip(a, start, end), np.clip(b, start, end)
        return whole._evaluated(b) - whole._evaluated(a)


def column_of(mask: Any, value: Any) -> Any:
    """A mask of the first axes, with axes of length 1 for the others."""
    return np.reshape(mask, np.shape(mask) + (1,) * (np.ndim(value) - np.ndim(mask)))


# ---------------------------------------------------------------------------------------------- through data


def make_interp_spline(
    x: Any,
    y: Any,
    k: int = 3,
    t: Any = None,
    bc_type: Any = None,
    axis: int = 0,
    check_finite: bool = True,
) -> BSpline:
    """The spline of degree k through data, SciPy's `make_interp_spline`: differentiable by x, y, knots and end conditions.

    `bc_type`: None or "not-a-knot", "clamped", "natural", "periodic", or a pair, for both ends, of these or of lists of
    (order, value). Raises LinAlgError where the data do not determine the spline.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(5.0)
    >>> tg.grad(lambda q: tg.interpolate.make_interp_spline(x, x**3)(q))(1.5)
    6.75
    """
    x, y = as_real(x, "places"), doubled(y)
    axis = normalize_axis_index(axis, np.ndim(y))
    y = np.moveaxis(y, axis, 0)
    k = operator.index(k)
    periodic = isinstance(bc_type, str) and bc_type == "periodic"
    _validate(x, y, k, check_finite)
    if periodic and not np.allclose(raw(y[0]), raw(y[-1]), atol=1e-15):
        raise ValueError("First and last points does not match while periodic case expected")
    left, right = _ends(bc_type)
    if k == 0 or (k == 1 and t is None):
        if t is not None or left is not None or right is not None:
            raise ValueError(f"Too much info for k={k}: {'t and ' if k == 0 else ''}bc_type can only be None.")  # fmt: skip
        knots = joined(x, x[-1]) if k == 0 else joined(x[0], x, x[-1])
        return BSpline.construct_fast(knots, y, k, axis=axis)
    if periodic:
        if t is not None:
            raise NotImplementedError("For periodic case t is constructed automatically and can not be passed manually")  # fmt: skip
        return _periodic(x, y, k, axis)
    if t is None:
        t = _not_a_knot(x, k) if left is None and right is None else joined(*[x[:1]] * k, x, *[x[-1:]] * k)  # fmt: skip
    t = as_real(t, "knots")
    _validate_knots(t, x, k)
    conditions = [_conditions(end, np.shape(y)[1:], k, x[i]) for end, i in ((left, 0), (right, -1))]
    n, unknowns = np.shape(x)[0], np.shape(t)[0] - k - 1
    before, after = (len(orders) for orders, _ in conditions)
    if unknowns - n != before + after:
        raise ValueError(
            f"The number of derivatives at boundaries does not match: expected {unknowns - n}, got {before}+{after}"
        )
    if prod(np.shape(y)) == 0:
        return BSpline.construct_fast(t, np.zeros((unknowns, *np.shape(y)[1:])), k, axis=axis)
    rows, columns, entries = [], [], []

    def add(first_row: int, q: Any, nu: int) -> None:
        values, where = basis(t, k, q, nu)
        row = first_row + np.arange(np.shape(q)[0])
        rows.append(np.repeat(row[:, None], k + 1, axis=1))
        columns.append(where[:, None] + np.arange(-k, 1))
        entries.append(values)

    for place, first, (orders, _) in ((x[:1], 0, conditions[0]), (x[-1:], unknowns - after, conditions[1])):  # fmt: skip
        for i, nu in enumerate(orders):
            add(first + i, place, nu)
    add(before, x, 0)
    row, col = np.concatenate(rows), np.concatenate(columns)
    ab = scatter(np.concatenate(entries), (k + row - col, col), (2 * k + 1, unknowns))
    flat = [np.reshape(part, (-1, prod(np.shape(y)[1:]))) for part in (conditions[0][1], y, conditions[1][1])]  # fmt: skip
    c = solve_banded((k, k), ab, np.concatenate(flat))
    return BSpline.construct_fast(t, np.reshape(c, (unknowns, *np.shape(y)[1:])), k, axis=axis)


def _validate(x: Any, y: Any, k: int, check_finite: bool) -> None:
    places = raw(x)
    if check_finite and not (np.all(np.isfinite(places)) and np.all(np.isfinite(raw(y)))):
        raise ValueError("Array must not contain infs or nans.")
    if np.ndim(x) != 1 or np.any(places[1:] < places[:-1]):
        raise ValueError("Expect x to be a 1D strictly increasing sequence.")
    if np.shape(x)[0] != np.shape(y)[0]:
        raise ValueError(f"Shapes of x {np.shape(x)} and y {np.shape(y)} are incompatible")
    if np.any(places[1:] == places[:-1]):
        raise ValueError("Expect x to not have duplicates")
    if k < 0:
        raise ValueError("Expect non-negative k.")


def _validate_knots(t: Any, x: Any, k: int) -> None:
    knots, places = raw(t), raw(x)
    if np.ndim(t) != 1 or np.any(knots[1:] < knots[:-1]):
        raise ValueError("Expect t to be a 1-D sorted array_like.")
    if np.shape(t)[0] < np.shape(x)[0] + k + 1:
        raise ValueError(f"Got {np.shape(t)[0]} knots, need at least {np.shape(x)[0] + k + 1}.")
    if (places[0] < knots[k]) or (places[-1] > knots[-k if k else -1]):
        raise ValueError(f"Out of bounds w/ x = {places}.")


def _ends(bc_type: Any) -> tuple[Any, Any]:
    if bc_type is None or (isinstance(bc_type, str) and bc_type in ("not-a-knot", "periodic")):
        return None, None
    if isinstance(bc_type, str):
        return bc_type, bc_type
    try:
        left, right = bc_type
    except (TypeError, ValueError) as error:
        raise ValueError(f"Unknown boundary condition: {bc_type}") from error
    return left, right


def _conditions(end: Any, shape: tuple[int, ...], k: int, place: Any) -> tuple[list[int], Any]:
    """Orders of the derivatives given at an end, and their values, one after the other."""
    if end is None:
        return [], np.zeros((0, *shape))
    if isinstance(end, str):
        if end not in ("clamped", "natural"):
            raise ValueError(f"Unknown boundary condition : {end}")
        end = [(1 if end == "clamped" else 2, np.zeros(shape))]
    try:
        orders = [int(order) for order, _ in end]
        values = [doubled(value) for _, value in end]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Derivatives, `bc_type`, should be specified as a pair of iterables of pairs of (order, value)."
        ) from error
    if not all(0 <= order <= k for order in orders):
        raise ValueError(f"Bad boundary conditions at {raw(place)}.")
    return orders, np.stack([np.broadcast_to(value, shape) for value in values])


def _not_a_knot(x: Any, k: int) -> Any:
    """Knots at the data but for those next to the ends; for an even degree between the data."""
    inner = x if k % 2 else (x[1:] + x[:-1]) / 2
    cut = (k + 1) // 2 if k % 2 else k // 2
    return joined(*[x[:1]] * (k + 1), inner[cut : np.shape(inner)[0] - cut], *[x[-1:]] * (k + 1))


def _periodic_knots(x: Any, k: int) -> Any:
    if k % 2 == 0:
        dx = x[1:] - x[:-1]
        x = joined(x[0], x[1:-1] - dx[:-1] / 2, x[-1])
    dx, n = x[1:] - x[:-1], np.shape(x)[0]
    before, after = [x[0]], [x[-1]]
    for i in range(k):
        before.append(before[-1] - dx[-(i % (n - 1)) - 1])
        after.append(after[-1] + dx[i % (n - 1)])
    return joined(*before[:0:-1], x, *after[1:])


def _periodic(x: Any, y: Any, k: int, axis: int) -> BSpline:
    """The periodic spline: a cyclic banded system, as a banded one and a correction of low rank (Woodbury's formula)."""
    t = _periodic_knots(x, k)
    n = np.shape(x)[0] - 1  # unknowns: coefficient i is that of i + n
    values, where = basis(t, k, x[:-1])
    lower = k // 2
    upper = k - lower
    row = np.repeat(np.arange(n)[:, None], k + 1, axis=1)
    unwrapped = where[:, None] + np.arange(-k, 1) - lower
    col = unwrapped % n
    b = np.reshape(y[:-1], (n, -1))
    if n <= 2 * k:
        c = np.linalg.solve(scatter(values, (row, col), (n, n)), b)
    else:
        inside = (unwrapped >= 0) & (unwrapped < n)
        band = np.where(inside, values, 0.0)
        place = (np.where(inside, upper + row - col, 0), np.where(inside, col, 0))
        ab = scatter(band, place, (k + 1, n))
        outer = np.concatenate([np.arange(lower), np.arange(n - upper, n)])
        few = np.where(inside, 0.0, values)[outer]
        corners = scatter(
            few, (np.repeat(np.arange(k)[:, None], k + 1, axis=1), col[outer]), (k, n)
        )
        unit = np.zeros((n, k))
        unit[outer, np.arange(k)] = 1.0
        z = solve_banded((lower, upper), ab, unit)
        plain = solve_banded((lower, upper), ab, b)
        c = plain - z @ np.linalg.solve(np.eye(k) + corners @ z, corners @ plain)
    c = np.reshape(c, (n, *np.shape(y)[1:]))
    return BSpline.construct_fast(t, c[(np.arange(n + k) - lower) % n], k, "periodic", axis)


__all__ = ["BSpline", "make_interp_spline"]
