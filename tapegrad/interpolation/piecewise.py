"""Piecewise polynomials: `PPoly`, and the cubic interpolants whose slopes at the data are chosen in one of four ways.

A piecewise polynomial is an array `c` (k, m, ...) of coefficients, highest power first, of m pieces between the breakpoints `x`
(m + 1). The cubic interpolants find the slope at each datum (by a tridiagonal system for `CubicSpline`, by formulas of the neighbours
for the others), and Hermite's formula gives the coefficients.

Invariant: `c` and `x` are tensors or arrays of double precision, interpolation axis first. The piece that a query lies in
is a constant; at a breakpoint it is the piece to the right, so a derivative there is the one from the right.
"""

from __future__ import annotations

from math import factorial, prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.storage import demand_no_trace
from ..errors import NotDifferentiable
from ..ops.calculus import in_double
from ..ops.composing import holds_tensor, operand, raw
from ..ops.linear_systems import solve_banded


def doubled(value: Any) -> Any:
    """A tensor or array in double precision."""
    return in_double(operand(value))


def as_real(value: Any, what: str) -> Any:
    """Places to interpolate at, which are real numbers."""
    value = doubled(value)
    if value.dtype.kind == "c":
        raise NotDifferentiable(
            f"an interpolant was asked for complex {what}, but it is a function of real numbers. Pass the real part.",
            name="not-real",
        )
    return value


def moved_axis(value: Any, queries: int, axis: int) -> Any:
    """The result with the axes of the queries moved from the front to the place of the interpolation axis."""
    if not axis:
        return value
    axes = list(range(np.ndim(value)))
    return np.transpose(
        value, axes[queries : queries + axis] + axes[:queries] + axes[queries + axis :]
    )


def column(value: Any, like: Any) -> Any:
    """A vector as a column, with one axis for each of `like`."""
    return np.reshape(value, (-1,) + (1,) * (np.ndim(like) - 1))


def joined(*parts: Any) -> Any:
    """Numbers and vectors joined into one vector."""
    return np.concatenate([np.reshape(part, (-1,)) for part in parts])


def wrapped_into(q: Any, start: Any, period: Any) -> Any:
    """Queries of a periodic function, brought into its first period."""
    return start + np.remainder(q - start, period)


class PPoly:
    """Polynomials between breakpoints, SciPy's `PPoly`: differentiable by coefficients, breakpoints and queries.

    `c` (k, m, ...) holds the coefficients of m pieces, highest power first; `x` (m + 1) the breakpoints, increasing or decreasing.
    Beyond them the outer pieces go on (`extrapolate=True`), the value is NaN (False), or the function repeats ("periodic").

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda c: tg.interpolate.PPoly(c, [0.0, 1.0, 2.0])(1.5))(np.ones((2, 2))).tolist()
    [[0.0, 0.5], [0.0, 1.0]]
    """

    def __init__(self, c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> None:
        """Check coefficients (k, m, ...) and m + 1 breakpoints as SciPy's PPoly does."""
        self.c, self.x = doubled(c), as_real(x, "breakpoints")
        self.extrapolate = True if extrapolate is None else extrapolate
        if np.ndim(self.c) < 2 or np.ndim(self.x) != 1 or np.shape(self.x)[0] < 2:
            raise ValueError(
                f"PPoly was given coefficients of shape {np.shape(self.c)} and breakpoints of shape {np.shape(self.x)}, but it takes "
                "an array (k, m, ...) and a vector of m + 1 breakpoints, at least 2."
            )
        if not 0 <= axis < np.ndim(self.c) - 1:
            raise ValueError(f"axis={axis} was asked, but the coefficients have the axes 0 to {np.ndim(self.c) - 2}.")  # fmt: skip
        self.axis = axis
        if axis:
            self.c = np.moveaxis(self.c, (axis, axis + 1), (0, 1))
        if np.shape(self.c)[1] != np.shape(self.x)[0] - 1:
            raise ValueError(
                f"PPoly was given {np.shape(self.c)[1]} pieces and {np.shape(self.x)[0]} breakpoints: give one more breakpoint than pieces."
            )
        steps = np.diff(raw(self.x))
        if not (np.all(steps >= 0) or np.all(steps <= 0)):
            raise ValueError("`x` must be strictly increasing or decreasing.")

    @classmethod
    def construct_fast(cls, c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> PPoly:
        """A piecewise polynomial from coefficients and breakpoints that are known to be right."""
        self: PPoly = PPoly.__new__(PPoly)
        self.c, self.x, self.axis = c, x, axis
        self.extrapolate = True if extrapolate is None else extrapolate
        return self

    @classmethod
    def from_spline(cls, tck: Any, extrapolate: Any = None) -> PPoly:
        """The polynomials between the knots of a spline, a `BSpline` or its (t, c, k); differentiable by knots and coefficients."""
        from .splines import BSpline

        spline = tck if isinstance(tck, BSpline) else BSpline(*tck)
        if extrapolate is None:
            extrapolate = spline.extrapolate
        k, start = spline.k, spline.t[:-1]
        c = [spline._evaluated(start, m) / factorial(m) for m in range(k, -1, -1)]
        return PPoly.construct_fast(np.stack(c), spline.t, extrapolate, spline.axis)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({np.shape(self.c)[1]} pieces of degree {np.shape(self.c)[0] - 1})"

    def _extrapolates(self, extrapolate: Any) -> Any:
        found = self.extrapolate if extrapolate is None else extrapolate
        return found if found == "periodic" else bool(found)

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Value of the function, or of its derivative of order `nu`, at `x` of any shape."""
        if nu < 0:
            raise ValueError(
                f"the derivative of order {nu} was asked, but an order is at least 0: use antiderivative({-nu})."
            )
        extrapolate = self._extrapolates(extrapolate)
        if not holds_tensor((self.c, self.x, x)):
            from scipy.interpolate import PPoly as Plain

            plain = Plain.construct_fast(np.ascontiguousarray(self.c), np.ascontiguousarray(self.x), extrapolate, self.axis)  # fmt: skip
            return plain(x, nu)
        q = as_real(x, "queries")
        if extrapolate == "periodic":
            q = wrapped_into(q, self.x[0], self.x[-1] - self.x[0])
        value = evaluated(self.c, self.x, q, nu, extrapolate is False)
        return moved_axis(value, np.ndim(q), self.axis)

    def derivative(self, nu: int = 1) -> PPoly:
        """The derivative of order `nu`, as a piecewise polynomial."""
        if nu < 0:
            return self.antiderivative(-nu)
        k = np.shape(self.c)[0]
        if nu >= k:
            return self.construct_fast(self.c[:1] * 0.0, self.x, self.extrapolate, self.axis)
        c = self.c[: k - nu] * column(falling(k, nu), self.c)
        return self.construct_fast(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> PPoly:
        """The antiderivative of order `nu` that is 0 at the first breakpoint, as a piecewise polynomial."""
        if nu <= 0:
            return self.derivative(-nu)
        c, steps = self.c, self.x[1:] - self.x[:-1]
        for _ in range(nu):
            k = np.shape(c)[0]
            c = c / column(np.arange(k, 0, -1.0), c)
            h = column(steps, c[0])
            gained = horner([*(c[i] for i in range(k)), 0.0], h)
            starts = np.cumsum(gained, axis=0) - gained
            c = np.concatenate([c, starts[None]])
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return self.construct_fast(c, self.x, extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """The definite integral from `a` to `b`, which are numbers; differentiable by both."""
        extrapolate = self._extrapolates(extrapolate)
        a, b = (as_real(end, "limits") for end in (a, b))
        whole = self.antiderivative()
        if extrapolate == "periodic":
            start, period = self.x[0], self.x[-1] - self.x[0]
            over = whole._at(self.x[-1])
            sums = []
            for end in (a, b):
                turns = np.floor(raw(end - start) / raw(period))
                sums.append(turns * over + whole._at(end - turns * period))
            value = sums[1] - sums[0]
        else:
            value = whole._at(b, extrapolate) - whole._at(a, extrapolate)
        return value

    def solve(self, y: Any = 0.0, discontinuity: bool = True, extrapolate: Any = None) -> Any:
        """The places where the function is `y`, sorted, as SciPy finds them; differentiable by the coefficients, breakpoints and y.

        With `discontinuity`, breakpoints where it jumps over `y` are among them. A piece that is `y` everywhere gives its start
        and NaN. Raises NotDifferentiable where the function touches `y` with slope 0.

        >>> import numpy as np, tapegrad as tg
        >>> tg.grad(lambda y: tg.interpolate.CubicSpline([0.0, 1.0, 2.0], y).roots()[0])(np.array([-1.0, 1.0, 3.0]))
        array([-0.1875, -0.375 ,  0.0625])
        """
        from scipy.interpolate import PPoly as Plain

        extrapolate = self._extrapolates(extrapolate)
        extrapolate = False if extrapolate == "periodic" else extrapolate
        if np.ndim(self.c) > 2:
            raise NotImplementedError(
                f"roots were asked of a function with values of shape {np.shape(self.c)[2:]}, but they are found of numbers. Make one "
                "interpolant for each."
            )
        tracked = holds_tensor((self.c, self.x, y))
        if tracked:
            demand_no_trace("PPoly.solve")
        c, x, level = (np.array(raw(v), float, order="C") for v in (self.c, self.x, y))
        plain = Plain.construct_fast(c, x)
        found = plain.solve(float(level), discontinuity, extrapolate)
        if not tracked or not found.size:
            return found
        off = plain(found) - level
        size = np.max(np.abs(plain(x))) + abs(float(level)) + np.max(np.abs(c[-1]))
        jumps = (np.abs(off) > 1e-6 * size) & np.isin(found, x)
        slope = plain(found, 1)
        real = ~jumps & ~np.isnan(found)
        if np.any(np.abs(slope[real]) * (x[-1] - x[0]) <= 1e-7 * size):
            raise NotDifferentiable(
                "the places where an interpolant has a value were asked, but it touches the value with slope 0, where the place is no "
                "smooth function of the data. Look for roots of derivative(), which are the extrema.",
                name="no-slope-here",
            )
        # Newton's steps from the places found: each doubles the order of the derivatives that are exact.
        at = found
        for _ in range(3):
            miss = evaluated(self.c, self.x, at) - y
            tilt = evaluated(self.c, self.x, at, 1)
            at = at - np.where(real, miss / np.where(real, tilt, 1.0), 0.0)
        if jumps.any():
            numbers = np.searchsorted(x, found) if x[-1] > x[0] else len(x) - 1 - np.searchsorted(x[::-1], found)  # fmt: skip
            at = np.where(jumps, self.x[np.where(jumps, numbers, 0)], at)
        return at

    def roots(self, discontinuity: bool = True, extrapolate: Any = None) -> Any:
        """The places where the function is 0: `solve(0.0, ...)`."""
        return self.solve(0.0, discontinuity, extrapolate)

    def _at(self, q: Any, extrapolate: Any = True) -> Any:
        """The value at one place, interpolation axis first."""
        return evaluated(self.c, self.x, q, 0, extrapolate is False)


def falling(k: int, nu: int) -> np.ndarray:
    """What the nu-th derivative multiplies the powers k - 1, ..., nu by."""
    powers = np.arange(k - 1, nu - 1, -1.0)
    return np.prod([powers - i for i in range(nu)], axis=0) if nu else np.ones(len(powers))


def horner(coefficients: Any, t: Any) -> Any:
    """A polynomial of t, highest power first."""
    value = coefficients[0]
    for c in coefficients[1:]:
        value = value * t + c
    return value


def piece_of(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The piece in which each query lies; the first or last one beyond the breakpoints."""
    last = x.shape[0] - 2
    if bool(x[-1] >= x[0]):
        return np.clip(np.searchsorted(x, q, side="right") - 1, 0, last)
    return last - np.clip(np.searchsorted(x[::-1], q, side="left") - 1, 0, last)


def evaluated(c: Any, x: Any, q: Any, nu: int = 0, bounded: bool = False, lanes: bool = False) -> Any:  # fmt: skip
    """The nu-th derivative at queries of any shape; the result has the axes of q and then those of c behind its second.

    `bounded`: NaN beyond the breakpoints. `lanes`: the axis of c behind its second and the one of q are the same.
    """
    k, ends = np.shape(c)[0], raw(x)
    spots = raw(q)
    pieces = piece_of(ends, spots)
    local = c[:, pieces, np.arange(np.shape(c)[2])] if lanes else c[:, pieces]
    shape = np.shape(q) + (1,) * (np.ndim(local) - 1 - np.ndim(q))
    t = np.reshape(q - x[pieces], shape)
    if nu >= k:
        value = local[0] * t * 0.0
    else:
        factors = falling(k, nu)
        value = horner([local[i] * factors[i] if nu else local[i] for i in range(k - nu)], t)
    low, high = (ends[0], ends[-1]) if bool(ends[-1] >= ends[0]) else (ends[-1], ends[0])
    lost = np.isnan(spots)
    if bounded:
        lost = lost | (spots < low) | (spots > high)
    return np.where(np.reshape(lost, shape), np.nan, value)


# ------------------------------------------------------------------------------------------ cubic interpolants


def prepared(x: Any, y: Any, axis: int, *further: Any) -> tuple[Any, ...]:
    """The checked data: places, their differences, values with the interpolation axis first, and that axis. ValueError for other data."""
    x, y = doubled(x), doubled(y)
    if x.dtype.kind == "c":
        raise ValueError("`x` must contain real values.")
    if np.ndim(y) == 0:
        raise ValueError(
            "`y` is a number, but an interpolant needs one value for each place: pass an array."
        )
    axis = normalize_axis_index(axis, np.ndim(y))
    if np.ndim(x) != 1:
        raise ValueError("`x` must be 1-dimensional.")
    if np.shape(x)[0] < 2:
        raise ValueError("`x` must contain at least 2 elements.")
    if np.shape(x)[0] != np.shape(y)[axis]:
        raise ValueError(f"The length of `y` along `axis`={axis} doesn't match the length of `x`")
    if not np.all(np.isfinite(raw(x))):
        raise ValueError("`x` must contain only finite values.")
    if not np.all(np.isfinite(raw(y))):
        raise ValueError("`y` must contain only finite values.")
    x = (
        x.copy() if type(x) is np.ndarray else x
    )  # so that later writes of the user's do not change the interpolant
    dx = x[1:] - x[:-1]
    if np.any(raw(dx) <= 0):
        raise ValueError("`x` must be strictly increasing sequence.")
    return (x, dx, np.moveaxis(y, axis, 0), axis, *further)


def demand_real(y: Any, name: str) -> None:
    """Refuse complex values, which these formulas compare."""
    if y.dtype.kind == "c":
        raise ValueError(
            f"`{name}` only works with real values for `y`. Interpolate np.real and np.imag of the values apart."
        )


class CubicHermiteSpline(PPoly):
    """Cubic interpolant with given values `y` and slopes `dydx` at `x`; differentiable by all three and by the queries.

    >>> import tapegrad as tg
    >>> tg.grad(lambda slope: tg.interpolate.CubicHermiteSpline([0.0, 1.0], [0.0, 0.0], [slope, 0.0])(0.5))(1.0)
    0.125
    """

    def __init__(self, x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None) -> None:
        slopes = doubled(dydx)
        if np.shape(slopes) != np.shape(operand(y)):
            raise ValueError("The shapes of `y` and `dydx` must be identical.")
        if not np.all(np.isfinite(raw(slopes))):
            raise ValueError("`dydx` must contain only finite values.")
        x, _, y, axis = prepared(x, y, axis)
        self._set(x, y, np.moveaxis(slopes, axis, 0), axis, extrapolate)

    def _set(self, x: Any, y: Any, slopes: Any, axis: int, extrapolate: Any) -> None:
        """Hermite's coefficients of values and slopes whose first axis is the one of `x`."""
        self.x, self.axis = x, axis
        self.c = hermite(x, y, slopes)
        self.extrapolate = True if extrapolate is None else extrapolate


def hermite(x: Any, y: Any, slopes: Any) -> Any:
    """The coefficients (4, m, ...) of the cubic pieces with these values and slopes at x."""
    h = column(x[1:] - x[:-1], y)
    mean = (y[1:] - y[:-1]) / h
    t = (slopes[:-1] + slopes[1:] - 2 * mean) / h
    return np.stack([t / h, (mean - slopes[:-1]) / h - t, slopes[:-1] + 0 * t, y[:-1] + 0 * t])


class PchipInterpolator(CubicHermiteSpline):
    """Monotonic cubic interpolant (Fritsch, Butland 1984), SciPy's `PchipInterpolator`, differentiable by x, y and the queries.

    Where neighbouring differences have unlike signs or one is 0, the slope is 0, and so is its derivative.

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda y: tg.interpolate.PchipInterpolator([0.0, 1.0, 2.0], y)(0.5)
    >>> tg.grad(f)(np.array([0.0, 1.0, 4.0]))
    array([ 0.640625,  0.375   , -0.015625])
    """

    def __init__(self, x: Any, y: Any, axis: int = 0, extrapolate: Any = None) -> None:
        x, _, y, axis = prepared(x, y, axis)
        demand_real(y, "PchipInterpolator")
        self._set(x, y, monotone_slopes(x, y), axis, extrapolate)


def monotone_slopes(x: Any, y: Any) -> Any:
    """Weighted harmonic means of neighbouring differences; at the ends the three-point formula, kept monotonic."""
    h = column(x[1:] - x[:-1], y)
    m = (y[1:] - y[:-1]) / h
    if np.shape(y)[0] == 2:
        return np.concatenate([m, m])
    before, after = m[:-1], m[1:]
    sign = np.sign(raw(m))
    flat = (sign[1:] != sign[:-1]) | (raw(after) == 0) | (raw(before) == 0)
    w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    inverse = (w1 / np.where(flat, 1.0, before) + w2 / np.where(flat, 1.0, after)) / (w1 + w2)
    inner = np.where(flat, 0.0, 1.0 / inverse)
    first = _end_slope(h[0], h[1], m[0], m[1])
    last = _end_slope(h[-1], h[-2], m[-1], m[-2])
    return np.concatenate([first[None], inner, last[None]])


def _end_slope(h0: Any, h1: Any, m0: Any, m1: Any) -> Any:
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    unlike = np.sign(raw(d)) != np.sign(raw(m0))
    steep = (np.sign(raw(m0)) != np.sign(raw(m1))) & (np.abs(raw(d)) > 3.0 * np.abs(raw(m0)))
    return np.where(unlike, 0.0, np.where(steep, 3.0 * m0, d))


class Akima1DInterpolator(CubicHermiteSpline):
    """Akima's interpolant (1970), or with `method="makima"` the modified one; differentiable by x, y and the queries.

    NaN beyond the data, unless `extrapolate=True`. A slope that four differences in equal pairs leave undefined is their mean.

    >>> import tapegrad as tg
    >>> tg.grad(lambda q: tg.interpolate.Akima1DInterpolator([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 4.0, 9.0])(q))(1.5)
    3.0
    """

    def __init__(
        self, x: Any, y: Any, axis: int = 0, *, method: str = "akima", extrapolate: Any = None
    ) -> None:
        if method not in ("akima", "makima"):
            raise NotImplementedError(f"method={method!r} was asked of Akima1DInterpolator, but it is 'akima' or 'makima'.")  # fmt: skip
        x, dx, y, axis = prepared(x, y, axis)
        demand_real(y, "Akima1DInterpolator")
        self._set(x, y, akima_slopes(dx, y, method), axis, False if extrapolate is None else extrapolate)  # fmt: skip


def akima_slopes(dx: Any, y: Any, method: str) -> Any:
    """Means of the two differences beside each datum, weighted by how much the differences change on the other side."""
    inner = (y[1:] - y[:-1]) / column(dx, y)
    if np.shape(y)[0] == 2:
        return np.concatenate([inner, inner])
    before = 2.0 * inner[:1] - inner[1:2]
    after = 2.0 * inner[-1:] - inner[-2:-1]
    m = np.concatenate([2.0 * before - inner[:1], before, inner, after, 2.0 * after - inner[-1:]])
    change = np.abs(m[1:] - m[:-1])
    if method == "makima":
        change = change + 0.5 * np.abs(m[1:] + m[:-1])
    left, right = change[:-2], change[2:]
    both = left + right
    defined = raw(both) > 1e-9 * np.max(raw(both), initial=0.0)
    weight = left / np.where(defined, both, 1.0)
    return np.where(defined, m[1:-2] + weight * (m[2:-1] - m[1:-2]), 0.5 * (m[3:] + m[:-3]))


class CubicSpline(CubicHermiteSpline):
    """Cubic spline, twice continuously differentiable, SciPy's `CubicSpline`: differentiable by x, y, end conditions and queries.

    `bc_type`: "not-a-knot", "periodic", "clamped", "natural", or a pair of these or of (order, value) for both ends, where
    values may be tensors. The slopes solve a tridiagonal system; so do the derivatives, in time linear in the data.
    With "periodic" the first and last value have to be equal; derivatives are those of SciPy's formula, which reads both.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(4.0)
    >>> tg.grad(lambda y: tg.interpolate.CubicSpline(x, y)(1.5))(x**3)
    array([-0.0625,  0.5625,  0.5625, -0.0625])
    """

    def __init__(
        self, x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None
    ) -> None:
        x, dx, y, axis = prepared(x, y, axis)
        ends = _end_conditions(bc_type, y, axis)
        if extrapolate is None:
            extrapolate = "periodic" if ends[0] == "periodic" else True
        slopes = y if prod(np.shape(y)) == 0 else smooth_slopes(dx, y, ends)
        self._set(x, y, slopes, axis, extrapolate)


def _end_conditions(bc_type: Any, y: Any, axis: int) -> list[Any]:
    """For each end "not-a-knot", "periodic", or (order, value)."""
    if isinstance(bc_type, str):
        if bc_type == "periodic" and not np.allclose(raw(y[0]), raw(y[-1]), rtol=1e-15, atol=1e-15):
            raise ValueError(
                f"The first and last `y` point along axis {axis} must be identical (within machine precision) when "
                "bc_type='periodic'."
            )
        bc_type = (bc_type, bc_type)
    elif len(bc_type) != 2:
        raise ValueError("`bc_type` must contain 2 elements to specify start and end conditions.")
    elif any(isinstance(end, str) and end == "periodic" for end in bc_type):
        raise ValueError(
            "'periodic' `bc_type` is defined for both curve ends and cannot be used with other boundary conditions."
        )
    return [_end_condition(end, np.shape(y)[1:]) for end in bc_type]


def _end_condition(end: Any, shape: tuple[int, ...]) -> Any:
    """The condition at one end of a cubic spline: its name, or (order of the derivative, value of the given shape)."""
    if isinstance(end, str):
        if end in ("clamped", "natural"):
            return (1 if end == "clamped" else 2, np.zeros(shape))
        if end not in ("not-a-knot", "periodic"):
            raise ValueError(f"bc_type={end} is not allowed.")
        return end
    try:
        order, value = end
    except (TypeError, ValueError) as error:
        raise ValueError("A specified derivative value must be given in the form (order, value).") from error  # fmt: skip
    if order not in (1, 2):
        raise ValueError("The specified derivative order must be 1 or 2.")
    value = doubled(value)
    if np.shape(value) != shape:
        raise ValueError(f"`deriv_value` shape {np.shape(value)} is not the expected one {shape}.")
    return order, value


def tridiagonal(lower: Any, diagonal: Any, upper: Any, b: Any) -> Any:
    """x from a x = b for a tridiagonal a, whose outer diagonals have one entry less; b has any number of axes."""
    ab = np.stack([joined(0.0, upper), diagonal, joined(lower, 0.0)])
    n = np.shape(b)[0]
    return np.reshape(solve_banded((1, 1), ab, np.reshape(b, (n, -1))), np.shape(b))


def smooth_slopes(dx: Any, y: Any, ends: list[Any]) -> Any:
    """The slopes with which the second derivative is continuous (de Boor, A Practical Guide to Splines, chapter IV)."""
    n = np.shape(y)[0]
    h = column(dx, y)
    m = (y[1:] - y[:-1]) / h
    if n == 2:
        ends = [(1, m[0]) if isinstance(end, str) else end for end in ends]
    if n == 3 and ends[0] == "periodic":
        mean = np.sum(m / h, axis=0) / np.sum(1.0 / h, axis=0)
        return np.stack([mean, mean, mean])
    if n == 3 and isinstance(ends[0], str) and isinstance(ends[1], str):
        # A parabola through three points; the general equations are singular.
        second = (h[0] * m[1] + h[1] * m[0]) / (h[0] + h[1])
        return np.stack([2.0 * m[0] - second, second, 2.0 * m[1] - second])
    inner = 3 * (h[1:] * m[:-1] + h[:-1] * m[1:])
    middle = 2 * (dx[:-1] + dx[1:])
    if ends[0] == "periodic":
        return _periodic_slopes(dx, h, m, middle, inner)
    first, beside_first, b_first = _end_equation(ends[0], dx, h, m)
    last, beside_last, b_last = _end_equation(ends[1], dx[::-1], h[::-1], m[::-1], -1.0)
    b = np.concatenate([b_first[None], inner, b_last[None]])
    return tridiagonal(
        joined(dx[1:], beside_last), joined(first, middle, last), joined(beside_first, dx[:-1]), b
    )


def _end_equation(end: Any, dx: Any, h: Any, m: Any, outward: float = 1.0) -> tuple[Any, Any, Any]:
    """The equation of an end: coefficients of its slope and of the next, and the right side; counted from the end inwards."""
    if isinstance(end, str):
        d = dx[0] + dx[1]
        return dx[1], d, ((h[0] + 2 * d) * h[1] * m[0] + h[0] ** 2 * m[1]) / d
    order, value = end
    if order == 1:
        return 1.0, 0.0, value + 0 * m[0]
    return 2 * dx[0], dx[0], -0.5 * outward * value * h[0] ** 2 + 3 * m[0] * h[0]


def _periodic_slopes(dx: Any, h: Any, m: Any, middle: Any, inner: Any) -> Any:
    """The cyclic system: every slope as a function of the last unknown one, which the last equation gives."""
    first = 3 * (h[0] * m[-1] + h[-1] * m[0])
    b = np.concatenate([first[None], inner[:-1]])  # equations of the unknowns 0 to n - 3
    last = inner[-1]  # that of the unknown n - 2
    k = np.shape(b)[0]
    diagonal = joined(2 * (dx[-1] + dx[0]), middle[:-1])
    upper, lower = joined(dx[-1], dx[: k - 2])[: k - 1], dx[1:k]
    border = joined(-dx[0], np.zeros(k - 1)) - joined(np.zeros(k - 1), dx[k - 2])
    s1 = tridiagonal(lower, diagonal, upper, b)
    s2 = column(tridiagonal(lower, diagonal, upper, border), s1)
    # The last equation: dx[-1] s[n-3] + 2 (dx[-1] + dx[-2]) s[n-2] + dx[-2] s[0] = last
    corner = (last - dx[-2] * s1[0] - dx[-1] * s1[-1]) / (
        2 * (dx[-1] + dx[-2]) + dx[-2] * s2[0] + dx[-1] * s2[-1]
    )
    s = s1 + corner * s2
    return np.concatenate([s, corner[None], s[:1]])


__all__ = [
    "Akima1DInterpolator", "CubicHermiteSpline", "CubicSpline", "PPoly", "PchipInterpolator",
]  # fmt: skip
