"""Splines under FITPACK's names and splines that fit: `splrep` and `splev`, `UnivariateSpline`, `make_lsq_spline`, `RectBivariateSpline`.

All are `BSpline`s whose coefficients solve banded systems of B-splines' values. A spline of least squares solves its normal equations,
and once more for what is left, which gives the digits of an orthogonal method. FITPACK's smoothing (s > 0) chooses knots, and its
weight only to three digits: that is no function with a derivative, and it is refused; `make_smoothing_spline` is one.

Invariant: knots that nobody gave are those of FITPACK.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, raw, scipys
from ..ops.indexing import scatter
from ..ops.linear_systems import solve_banded
from .piecewise import as_real, doubled, joined
from .splines import BSpline, basis, make_interp_spline

_scipys = scipys("scipy.interpolate")


def _unsmoothed(name: str, s: Any) -> NotDifferentiable:
    return NotDifferentiable(
        f"{name} was asked to smooth a tensor with s={s}, but FITPACK chooses knots for that, which jump. Give s=0 to interpolate, the "
        "inner knots t for least squares, or use make_smoothing_spline with lam."
    )


def _demand_no_box(bbox: Any, name: str) -> None:
    if any(end is not None for end in np.ravel(np.asarray(bbox, object))):
        raise NotDifferentiable(
            f"{name} was given bbox= beside a tensor, but splines of tensors end at the first and the last place. Give knots to BSpline."
        )


# ------------------------------------------------------------------------------------------- least squares


@_scipys
def make_lsq_spline(
    x: Any, y: Any, t: Any, k: int = 3, w: Any = None, axis: int = 0, check_finite: bool = True, *, method: str = "qr",
) -> BSpline:  # fmt: skip
    """The spline of degree k with knots t that fits data best; differentiable by places, data, knots and weights.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(4.0)
    >>> line = tg.interpolate.make_lsq_spline(x, tg.tensor([0.0, 1.0, 3.0, 4.0]), [0.0, 0.0, 3.0, 3.0], 1)
    >>> line(1.5)
    tensor(2.)
    """
    x, y, t = as_real(x, "places"), doubled(y), as_real(t, "knots")
    k = operator.index(k)
    axis = normalize_axis_index(axis, np.ndim(y))
    y = np.moveaxis(y, axis, 0)
    if np.ndim(t) != 1:
        raise ValueError(
            f"make_lsq_spline was given knots of shape {np.shape(t)}, but they are a vector: pass one."
        )
    m, n = np.shape(x)[0] if np.ndim(x) == 1 else 0, np.shape(t)[0] - k - 1
    w = np.ones(m) if w is None else as_real(w, "weights")
    if np.ndim(x) != 1 or np.shape(y)[0] != m or np.shape(w) != (m,):
        raise ValueError(
            f"Shapes of x {np.shape(x)}, y {np.shape(y)} and weights {np.shape(w)} are incompatible"
        )
    if k < 0:
        raise ValueError("Expect non-negative k.")
    if n < k + 1:
        raise ValueError(f"Need at least {2 * k + 2} knots for degree {k}")
    places, knots = raw(x), raw(t)
    if isinstance(places, np.ndarray) and isinstance(knots, np.ndarray):
        if np.any(np.diff(places) <= 0):
            raise ValueError("Expect x to be a 1D strictly increasing sequence.")
        if np.any((places < knots[k]) | (places > knots[n])):
            raise ValueError(f"Out of bounds w/ x = {places}.")
        spots = np.sort(places)
        if any(
            not np.any((spots > knots[j]) & (spots < knots[j + k + 1])) for j in range(1, n - 1)
        ):
            raise ValueError("Schoenberg-Whitney condition is violated: each B-spline needs a place where it is not 0.")  # fmt: skip
    values, where = basis(t, k, x)
    weighted = values * (w * w)[:, None]
    near = where[:, None] + np.arange(-k, 1)
    flat = np.reshape(y, (m, -1))

    def gathered(right: Any) -> Any:
        """The B-splines' sums of what stands at the data."""
        parts = weighted[:, :, None] * right[:, None, :]
        return scatter(parts, (near,), (n, np.shape(right)[1]))

    rows, columns = near[:, :, None] + 0 * near[:, None, :], near[:, None, :] + 0 * near[:, :, None]
    band = scatter(
        weighted[:, :, None] * values[:, None, :], (k + rows - columns, columns), (2 * k + 1, n)
    )
    c = solve_banded((k, k), band, gathered(flat))
    rest = flat - np.sum(values[:, :, None] * c[near], axis=1)
    c = c + solve_banded((k, k), band, gathered(rest))
    return BSpline.construct_fast(t, np.reshape(c, (n, *np.shape(y)[1:])), k, axis=axis)


@_scipys
def make_smoothing_spline(
    x: Any, y: Any, w: Any = None, lam: Any = None, *, axis: int = 0
) -> BSpline:
    """The cubic spline with the least Σ w (y - f(x))² + lam ∫ f''²; differentiable by places, data, weights and lam (Reinsch 1967).

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda lam: tg.interpolate.make_smoothing_spline(np.arange(5.0), [0.0, 1.0, 0.0, 1.0, 0.0], lam=lam)(2.0)
    >>> round(tg.grad(f)(0.0), 3)
    18.857
    """
    if lam is None:
        raise NotDifferentiable(
            "make_smoothing_spline was asked to choose lam for a tensor, but SciPy's search for it has no derivative. Give lam, as "
            "what scipy.interpolate.make_smoothing_spline's cross-validation suggests, or one that you fit."
        )
    x, y = as_real(x, "places"), doubled(y)
    axis = normalize_axis_index(axis, np.ndim(y))
    y = np.moveaxis(y, axis, 0)
    n = np.shape(x)[0] if np.ndim(x) == 1 else 0
    w = np.ones(n) if w is None else as_real(w, "weights")
    if np.ndim(x) != 1 or np.shape(y)[0] != n or np.shape(w) != (n,):
        raise ValueError(
            f"Shapes of x {np.shape(x)}, y {np.shape(y)} and weights {np.shape(w)} are incompatible"
        )
    if n < 5:
        raise ValueError("``x`` and ``y`` length must be at least 5")
    if isinstance(raw(x), np.ndarray) and np.any(np.diff(raw(x)) <= 0):
        raise ValueError("``x`` should be an ascending array")
    if (
        np.ndim(lam) == 0
        and isinstance(raw(lam), float | int | np.ndarray | np.generic)
        and raw(lam) < 0
    ):
        raise ValueError("Regularization parameter should be non-negative")
    h = x[1:] - x[:-1]
    left, right = 1.0 / h[:-1], 1.0 / h[1:]
    three = np.stack(
        [left, -left - right, right]
    )  # second differences: row i of Qᵀ, at the places i, i + 1, i + 2
    loose = 1.0 / w
    flat = np.reshape(y, (n, -1))
    second = (
        left[:, None] * flat[:-2] - (left + right)[:, None] * flat[1:-1] + right[:, None] * flat[2:]
    )
    m = n - 2
    bands = []
    for d in range(-2, 3):  # diagonal d of Qᵀ W⁻¹ Q, stored at the column's place
        total = np.zeros(m)
        lo, hi = max(0, d), m + min(0, d)  # columns with a row i = j - d
        part: Any = 0.0
        for a in range(3):
            b = a - d  # place j + b of column j is place (j - d) + a of row j - d
            if 0 <= b < 3:
                cols = np.arange(lo, hi)
                part = part + three[a][cols - d] * three[b][cols] * loose[cols + b]
        bands.append(joined(*(v for v in (total[:lo], part, total[hi:]) if np.shape(v)[0])))
    stiff = [(h[:-1] + h[1:]) / 3.0, h[1:-1] / 6.0]
    zero = np.zeros(1)
    for d, side in ((0, stiff[0]), (1, joined(zero, stiff[1])), (-1, joined(stiff[1], zero))):
        bands[d + 2] = bands[d + 2] * lam + side
    bands[0], bands[4] = bands[0] * lam, bands[4] * lam
    ab = np.stack(bands[::-1])  # the row above all others holds the diagonal that lies furthest up
    gamma = solve_banded((2, 2), ab, second)
    none = np.zeros((1, np.shape(flat)[1]))
    pulled = (
        np.concatenate([left[:, None] * gamma, none, none])
        - np.concatenate([none, (left + right)[:, None] * gamma, none])
        + np.concatenate([none, none, right[:, None] * gamma])
    )
    smooth = np.reshape(flat - lam * loose[:, None] * pulled, np.shape(y))
    found = make_interp_spline(x, smooth, 3, bc_type="natural")
    return BSpline.construct_fast(found.t, found.c, 3, axis=axis)


# ------------------------------------------------------------------------------------------- FITPACK's names


def _with_ends(x: Any, t: Any, k: int) -> Any:
    return joined(*[x[:1]] * (k + 1), as_real(t, "knots"), *[x[-1:]] * (k + 1))


@_scipys
def splrep(
    x: Any, y: Any, w: Any = None, xb: Any = None, xe: Any = None, k: int = 3, task: int = 0, s: Any = None, t: Any = None,
    full_output: int = 0, per: int = 0, quiet: int = 1,
) -> tuple[Any, Any, int]:  # fmt: skip
    """Knots, coefficients and degree of the spline through data, or with inner knots t of the one that fits best; for `splev`.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(5.0)
    >>> round(tg.grad(lambda q: tg.interpolate.splev(q, tg.interpolate.splrep(x, x**3)))(1.5), 9)
    6.75
    """
    if full_output or per or task == 1 or xb is not None or xe is not None:
        raise NotDifferentiable(
            "splrep was asked for full_output, per, task=1, xb or xe beside a tensor, which have no rule. Use make_interp_spline, with "
            "periodic splines and knots of any kind."
        )
    x = as_real(x, "places")
    if t is not None:
        found = make_lsq_spline(x, y, _with_ends(x, t, k), k, w)
    elif s == 0 or (s is None and w is None):
        found = make_interp_spline(x, y, k)
    else:
        raise _unsmoothed("splrep", "m - sqrt(2 m), the default beside weights" if s is None else s)
    return (
        found.t,
        np.concatenate([found.c, np.zeros((found.k + 1, *np.shape(found.c)[1:]))]),
        found.k,
    )


def _spline_of(tck: Any) -> BSpline:
    if isinstance(tck, BSpline):
        return tck
    t, c, k = tck
    t, c, k = as_real(t, "knots"), doubled(c), operator.index(k)
    if np.ndim(t) != 1 or np.ndim(c) == 0:
        raise ValueError(
            f"a spline was given by knots of shape {np.shape(t)} and coefficients of shape {np.shape(c)}, but these are vectors: "
            "pass (t, c, k) as splrep returns it."
        )
    return BSpline(t, c[: np.shape(t)[0] - k - 1], k)


@_scipys
def splev(x: Any, tck: Any, der: int = 0, ext: int = 0) -> Any:
    """The value of a spline, or of its derivative of order `der`, at x; beyond its ends by `ext`: 0 goes on, 1 is 0, 2 raises, 3 stays.

    >>> import numpy as np, tapegrad as tg
    >>> tck = tg.interpolate.splrep(np.arange(5.0), tg.arange(5.0) ** 2)
    >>> tg.interpolate.splev(1.5, tck, der=1).round(12)
    tensor(3.)
    """
    spline = _spline_of(tck)
    if not 0 <= der <= spline.k:
        raise ValueError(f"0<=der={der}<=k={spline.k} must hold")
    return _within(spline, as_real(x, "queries"), der, ext)


def _within(spline: BSpline, q: Any, nu: int, ext: Any) -> Any:
    """The value or derivative at queries, with what `ext` says beyond the ends."""
    ext = {"extrapolate": 0, "zeros": 1, "raise": 2, "const": 3}.get(ext, ext)
    if ext not in (0, 1, 2, 3):
        raise ValueError(f"ext = {ext} not in (0, 1, 2, 3) ")
    start, end = spline.t[spline.k], spline.t[np.shape(spline.t)[0] - spline.k - 1]
    if ext == 3:
        # The value beyond an end is that at the end, so that its derivatives are 0 there.
        inside = (raw(q) >= raw(start)) & (raw(q) <= raw(end))
        found = spline(np.clip(q, start, end), nu)
        return found if nu == 0 else np.where(inside, found, 0.0)
    outside = (raw(q) < raw(start)) | (raw(q) > raw(end))
    if ext == 2 and isinstance(outside, np.ndarray | np.generic) and np.any(outside):
        raise ValueError("Found x value not in the domain")
    found = spline(q, nu)
    return np.where(outside, 0.0, found) if ext == 1 else found


def _of_enough_knots(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a, b, tck that refuses fewer knots than a spline's two ends have: SciPy's own frees memory twice then."""

    @functools.wraps(function)
    def checked(a: Any, b: Any, tck: Any, full_output: int = 0) -> Any:
        t, _, k = tck
        if np.ndim(t) == 1 and np.shape(t)[0] < 2 * (k + 1):
            raise ValueError(
                f"splint was given {np.shape(t)[0]} knots, but a spline of degree {k} has at least {2 * (k + 1)}."
            )
        return function(a, b, tck, full_output)

    return checked


@_of_enough_knots
@_scipys
def splint(a: Any, b: Any, tck: Any, full_output: int = 0) -> Any:
    """The integral of a spline, which is 0 beyond its ends, from a to b; differentiable by limits, knots and coefficients.

    >>> import numpy as np, tapegrad as tg
    >>> tck = tg.interpolate.splrep(np.arange(5.0), tg.arange(5.0) ** 2)
    >>> tg.interpolate.splint(0.0, 3.0, tck).round(12)
    tensor(9.)
    """
    if full_output:
        raise NotDifferentiable(
            "splint was asked for full_output of a tensor, whose second part has no rule. Leave it out."
        )
    return _spline_of(tck).integrate(a, b, extrapolate=False)


@_scipys
def splder(tck: Any, n: int = 1) -> Any:
    """The derivative of order n of a spline, as knots, coefficients and degree.

    >>> import numpy as np, tapegrad as tg
    >>> tck = tg.interpolate.splrep(np.arange(5.0), tg.arange(5.0) ** 2)
    >>> tg.interpolate.splev(1.0, tg.interpolate.splder(tck)).round(12)
    tensor(2.)
    """
    return _as_given(_spline_of(tck).derivative(n), tck)


@_scipys
def splantider(tck: Any, n: int = 1) -> Any:
    """The antiderivative of order n of a spline that is 0 at the first knot, as knots, coefficients and degree.

    >>> import numpy as np, tapegrad as tg
    >>> tck = tg.interpolate.splrep(np.arange(5.0), tg.arange(5.0) ** 2)
    >>> tg.interpolate.splev(3.0, tg.interpolate.splantider(tck)).round(12)
    tensor(9.)
    """
    return _as_given(_spline_of(tck).antiderivative(n), tck)


def _as_given(spline: BSpline, tck: Any) -> Any:
    return spline if isinstance(tck, BSpline) else spline.tck


class UnivariateSpline:
    """The spline of degree k through data (s=0), SciPy's `UnivariateSpline`; differentiable by places, data and queries.

    With tensors s is 0: smoothing has `make_smoothing_spline`. `ext` says what stands beyond the ends, as for `splev`.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(5.0)
    >>> tg.grad(lambda q: tg.interpolate.UnivariateSpline(x, x**3, s=0)(q))(1.5)
    6.75
    """

    def __init__(
        self, x: Any, y: Any, w: Any = None, bbox: Any = (None, None), k: int = 3, s: Any = None, ext: Any = 0,
        check_finite: bool = False,
    ) -> None:  # fmt: skip
        """Data (n,), weights that only smoothing uses, the degree, the amount of smoothing, and what stands beyond the ends."""
        self.ext: Any = ext
        self._data: Any = (x, y, w)
        if not holds_tensor((x, y, w)) and s != 0:
            from scipy.interpolate import UnivariateSpline as Plain

            plain = Plain(x, y, w, bbox, k, s, ext, check_finite)
            t, c, k = plain._eval_args
            self._spline = BSpline(t, c[: len(t) - k - 1], k)
            return
        if s != 0:
            raise _unsmoothed(type(self).__name__, s)
        self._fit(x, y, None, w, bbox, k)

    def _fit(self, x: Any, y: Any, t: Any, w: Any, bbox: Any, k: int) -> None:
        _demand_no_box(bbox, type(self).__name__)
        if not 1 <= k <= 5:
            raise ValueError("k should be 1 <= k <= 5")
        x = as_real(x, "places")
        self._spline = (
            make_interp_spline(x, y, k)
            if t is None
            else _lsq(x, doubled(y), _with_ends(x, t, k), k, w)
        )

    def __call__(self, x: Any, nu: int = 0, ext: Any = None) -> Any:
        """The value of the spline, or of its derivative of order nu."""
        return _within(self._spline, as_real(x, "queries"), nu, self.ext if ext is None else ext)

    def derivative(self, n: int = 1) -> UnivariateSpline:
        """The derivative of order n, a spline of lower degree."""
        return self._other(self._spline.derivative(n))

    def antiderivative(self, n: int = 1) -> UnivariateSpline:
        """The antiderivative of order n that is 0 at the first place."""
        return self._other(self._spline.antiderivative(n))

    def _other(self, spline: BSpline) -> UnivariateSpline:
        other = UnivariateSpline.__new__(UnivariateSpline)
        other._spline, other.ext, other._data = spline, self.ext, None
        return other

    def integral(self, a: Any, b: Any) -> Any:
        """The integral from a to b of the spline, which is 0 beyond its ends."""
        return self._spline.integrate(a, b, extrapolate=False)

    def derivatives(self, x: Any) -> Any:
        """Value and derivatives of all orders up to the degree at a number x."""
        return np.stack([self(x, nu) for nu in range(self._spline.k + 1)])

    def get_knots(self) -> Any:
        """The inner knots and the ends."""
        t, k = self._spline.t, self._spline.k
        return t[k : np.shape(t)[0] - k]

    def get_coeffs(self) -> Any:
        """The coefficients of the B-splines."""
        return self._spline.c[: np.shape(self._spline.t)[0] - self._spline.k - 1]

    def get_residual(self) -> Any:
        """The weighted sum of squares of data less spline."""
        if self._data is None:
            raise ValueError(
                "get_residual was asked of a derivative or antiderivative, which was fitted to no data."
            )
        x, y, w = self._data
        rest = (doubled(y) - self._spline(as_real(x, "places"))) * (
            1.0 if w is None else as_real(w, "weights")
        )
        return np.sum(rest * rest)


def _lsq(x: Any, y: Any, t: Any, k: int, w: Any) -> BSpline:
    """`make_lsq_spline` as our BSpline, of plain numbers too."""
    found = make_lsq_spline(x, y, t, k, w)
    return found if isinstance(found, BSpline) else BSpline(found.t, found.c, k)


class InterpolatedUnivariateSpline(UnivariateSpline):
    """The spline of degree k through data, SciPy's `InterpolatedUnivariateSpline`; differentiable by places, data and queries.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.interpolate.InterpolatedUnivariateSpline([0.0, 1.0], y, k=1)(0.25))(np.zeros(2))
    array([0.75, 0.25])
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        w: Any = None,
        bbox: Any = (None, None),
        k: int = 3,
        ext: Any = 0,
        check_finite: bool = False,
    ) -> None:
        """Data (n,), weights that count in the residual only, the degree, and what stands beyond the ends."""
        super().__init__(x, y, w, bbox, k, 0, ext, check_finite)


class LSQUnivariateSpline(UnivariateSpline):
    """The spline of degree k with given inner knots that fits data best; differentiable by places, data, knots, weights, queries.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.interpolate.LSQUnivariateSpline([0.0, 1.0, 2.0], y, [], k=1)(1.0))(np.zeros(3)).round(12)
    array([0.33333333, 0.33333333, 0.33333333])
    """

    def __init__(
        self, x: Any, y: Any, t: Any, w: Any = None, bbox: Any = (None, None), k: int = 3, ext: Any = 0,
        check_finite: bool = False,
    ) -> None:  # fmt: skip
        """Data (n,), inner knots, weights, the degree, and what stands beyond the ends."""
        self.ext, self._data = ext, (x, y, w)
        self._fit(x, y, t, w, bbox, k)


# ------------------------------------------------------------------------------------------- on a grid


class RectBivariateSpline:
    """The spline of degrees kx and ky through values on a grid, SciPy's `RectBivariateSpline` with s=0.

    Differentiable by places, values and queries; beyond the grid the value is that at its border.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.arange(5.0)
    >>> f = tg.interpolate.RectBivariateSpline(x, x, x[:, None] ** 2 * x)
    >>> round(tg.grad(lambda q: f(q, 3.0, grid=False))(1.5), 12)
    9.0
    """

    def __init__(
        self, x: Any, y: Any, z: Any, bbox: Any = (None, None, None, None), kx: int = 3, ky: int = 3, s: Any = 0, maxit: int = 20,
    ) -> None:  # fmt: skip
        """Places x (m,) and y (n,), values z (m, n), and degrees from 1 to 5."""
        _demand_no_box(bbox, "RectBivariateSpline")
        if s != 0:
            raise _unsmoothed("RectBivariateSpline", s)
        x, y, z = as_real(x, "places"), as_real(y, "places"), as_real(z, "values")
        if np.shape(z) != (*np.shape(x), *np.shape(y)):
            raise ValueError(
                f"RectBivariateSpline was given {np.shape(x)} and {np.shape(y)} places and values of shape {np.shape(z)}."
            )
        self.degrees = (kx, ky)
        along = make_interp_spline(x, z, kx)
        across = make_interp_spline(y, np.swapaxes(along.c, 0, 1), ky)
        self._knots, self._c = (along.t, across.t), np.swapaxes(across.c, 0, 1)

    def get_knots(self) -> tuple[Any, Any]:
        """The knots along both axes."""
        return self._knots

    def get_coeffs(self) -> Any:
        """The coefficients, flattened."""
        return np.reshape(self._c, -1)

    def __call__(self, x: Any, y: Any, dx: int = 0, dy: int = 0, grid: bool = True) -> Any:
        """Values, or partial derivatives, on the grid of x and y, which are sorted, or with grid=False at their pairs, which broadcast."""
        places = []
        for q, t, k in zip((x, y), self._knots, self.degrees, strict=True):
            places.append(np.clip(as_real(q, "queries"), t[k], t[np.shape(t)[0] - k - 1]))
        if dx < 0 or dy < 0:
            raise ValueError("order of derivative must be positive or zero")
        (tx, ty), (kx, ky) = self._knots, self.degrees
        if not grid:
            return self._paired(places[0], places[1], dx, dy)
        if any(np.ndim(q) > 1 for q in places):
            raise ValueError(
                "x and y must be one-dimensional on a grid: give grid=False for pairs."
            )
        qx, qy = (np.atleast_1d(q) for q in places)
        if any(isinstance(raw(q), np.ndarray) and np.any(np.diff(raw(q)) < 0) for q in (qx, qy)):
            raise ValueError("x must be sorted to increasing order, and y too")
        along = BSpline.construct_fast(tx, self._c, kx)(qx, dx)
        return np.swapaxes(BSpline.construct_fast(ty, np.swapaxes(along, 0, 1), ky)(qy, dy), 0, 1)

    def ev(self, xi: Any, yi: Any, dx: int = 0, dy: int = 0) -> Any:
        """Values, or partial derivatives, at pairs, which broadcast."""
        return self(xi, yi, dx, dy, grid=False)

    def _paired(self, qx: Any, qy: Any, dx: int, dy: int) -> Any:
        shape = np.broadcast_shapes(np.shape(qx), np.shape(qy))
        qx, qy = (np.reshape(np.broadcast_to(q, shape), -1) for q in (qx, qy))
        parts = [
            basis(t, k, q, nu)
            for t, k, q, nu in zip(self._knots, self.degrees, (qx, qy), (dx, dy), strict=True)
        ]
        (bx, wx), (by, wy) = parts
        kx, ky = self.degrees
        near = self._c[
            (wx[:, None] + np.arange(-kx, 1))[:, :, None],
            (wy[:, None] + np.arange(-ky, 1))[:, None, :],
        ]
        return np.reshape(np.sum(near * bx[:, :, None] * by[:, None, :], axis=(1, 2)), shape)

    def integral(self, xa: Any, xb: Any, ya: Any, yb: Any) -> Any:
        """The integral over a rectangle, beyond whose common part with the grid the spline is 0."""
        (tx, ty), (kx, ky) = self._knots, self.degrees
        along = BSpline.construct_fast(tx, self._c, kx).integrate(xa, xb, extrapolate=False)
        return BSpline.construct_fast(ty, along, ky).integrate(ya, yb, extrapolate=False)


__all__ = [
    "InterpolatedUnivariateSpline", "LSQUnivariateSpline", "RectBivariateSpline", "UnivariateSpline", "make_lsq_spline",
    "make_smoothing_spline", "splantider", "splder", "splev", "splint", "splrep",
]  # fmt: skip
