"""Statistics: sums, means, products and their kin, with NumPy's settings `where`, `initial`, `dtype`; and without the NaNs.

The plain forms are the ops of `reductions`; a setting turns them into a composition: what `where` leaves out is replaced by
a number that does not count, selected and not multiplied, so that a NaN or infinity there neither shows nor has a gradient.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.domain import nonzero
from ..core.primitive import FUNCTIONS, call, primitive, refuse
from ..core.storage import StandIn, as_array
from ..core.tensor import Tensor
from ..errors import GradientLost, NotDifferentiable
from . import reductions, selection
from .arranging import along
from .composing import composed, holds_tracked, like_filled, plainly, raw
from .elementary import divide, where
from .indexing import _plain_index, scatter, take
from .joining import concatenate, stack
from .reductions import count_of, root
from .selection import _blanked
from .shaping import broadcast_to, laid_like, moveaxis, reshape, transpose

# ------------------------------------------------------------------------------------- sums and products


_RUNS = {
    "sum": (
        "tg.grad(lambda x: np.sum(x, axis=0) @ np.array([1.0, 2.0]))(np.zeros((2, 2)))",
        "array([[1., 2.],\n       [1., 2.]])",
    ),
    "prod": (
        "tg.grad(np.prod)(np.array([2.0, 0.0, 3.0]))  # exact beside zeros",
        "array([0., 6., 0.])",
    ),
    "nansum": ("tg.grad(np.nansum)(np.array([2.0, np.nan, 3.0]))", "array([1., 0., 1.])"),
    "nanprod": ("tg.grad(np.nanprod)(np.array([2.0, np.nan, 3.0]))", "array([3., 0., 2.])"),
    "cumsum": ("tg.grad(lambda x: np.cumsum(x).sum())(np.zeros(3))", "array([3., 2., 1.])"),
    "cumulative_sum": (
        "np.cumulative_sum(tg.tensor([2.0, 3.0]), include_initial=True)",
        "tensor([0., 2., 5.])",
    ),
    "cumulative_prod": (
        "np.cumulative_prod(tg.tensor([2.0, 3.0]), include_initial=True)",
        "tensor([1., 2., 6.])",
    ),
    "nancumsum": ("np.nancumsum(tg.tensor([2.0, np.nan, 3.0]))", "tensor([2., 2., 5.])"),
    "nancumprod": ("np.nancumprod(tg.tensor([2.0, np.nan, 3.0]))", "tensor([2., 2., 6.])"),
    "mean": ("tg.grad(np.mean)(np.zeros(4))", "array([0.25, 0.25, 0.25, 0.25])"),
    "nanmean": ("tg.grad(np.nanmean)(np.array([1.0, np.nan, 3.0]))", "array([0.5, 0. , 0.5])"),
    "std": ("tg.grad(np.std)(np.array([1.0, 3.0]))", "array([-0.5,  0.5])"),
    "var": ("tg.grad(np.var)(np.array([1.0, 3.0]))", "array([-1.,  1.])"),
    "nanstd": ("tg.grad(np.nanstd)(np.array([1.0, np.nan, 3.0]))", "array([-0.5,  0. ,  0.5])"),
    "nanvar": ("tg.grad(np.nanvar)(np.array([1.0, np.nan, 3.0]))", "array([-1.,  0.,  1.])"),
    "cumprod": (
        "tg.grad(lambda x: np.cumprod(x)[-1])(np.array([2.0, 0.0, 3.0]))  # exact beside zeros",
        "array([0., 6., 0.])",
    ),
}
"""By function a run of its docstring, and what it prints."""


def _told(of: Any, text: str) -> str:
    """A docstring, with the run of that function."""
    run, found = _RUNS[of.__name__]
    return f"{text}\n\n>>> import numpy as np, tapegrad as tg\n>>> {run}\n{found}\n"


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def _folded(of: Any, plain: Any, neutral: int, combine: Any, ignoring: bool) -> Any:
    """np.sum or np.prod with dtype, initial and where, and the forms that leave out NaN."""

    def fold(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        keepdims: Any = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        """The fold over axes."""
        if ignoring:
            a = laid_like(_blanked(a, ~np.isnan(raw(a)), neutral), a)
        a = _cast(a, dtype)
        if where is not True:
            a = _blanked(a, np.broadcast_to(where, np.shape(a)), neutral)
        total = plain(a, axis, bool(keepdims))
        return total if initial is None or initial == neutral else combine(total, initial)

    fold.__name__ = fold.__qualname__ = of.__name__
    fold.__doc__ = _told(
        of, plain.__doc__.splitlines()[0] + (" NaN does not count." if ignoring else "")
    )
    return composed(of, "a", plain=None if ignoring else plain)(fold)


sum = _folded(np.sum, reductions.sum, 0, lambda x, y: x + y, False)
prod = _folded(np.prod, reductions.prod, 1, lambda x, y: x * y, False)
nansum = _folded(np.nansum, reductions.sum, 0, lambda x, y: x + y, True)
nanprod = _folded(np.nanprod, reductions.prod, 1, lambda x, y: x * y, True)


@primitive(
    np.cumprod,
    pattern="along",
    method=True,
    domain=nonzero,
    samples=[
        call((4,)),
        call((1,)),
        call((3, 5), axis=1),
        call((3, 2), axis=-2),
        call((2, 3)),
        call((), axis=0),
    ],
)
def cumprod(g, x, *, axis=None):
    """Cumulative product; exact also where entries are 0, as nothing is divided by.

    The cotangent of entry i is (product of those before it) * r_i, with r_i = g_i + x_{i+1} r_{i+1}: a recurrence solved by
    doubling, each step joining windows of twice the length.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.cumprod(x)[-1])(np.array([2.0, 0.0, 3.0]))  # exact beside zeros
    array([0., 6., 0.])
    """
    if axis is None or np.ndim(x) == 0:  # along axis 0 of a number there is one entry
        return np.reshape(_from_cumprod(np.reshape(g, -1), np.reshape(x, -1), 0), np.shape(x))
    return _from_cumprod(g, x, axis % np.ndim(x))


def _from_cumprod(g: Any, x: Any, axis: int) -> Any:
    """The cotangent of x from that of its cumulative product, without division: r[i] = g[i] + x[i + 1] r[i + 1], by doubling steps."""
    n = np.shape(x)[axis]
    if n <= 1:
        return g

    def shifted(values: Any, by: int, fill: float) -> Any:
        """Entry i + by in the place of entry i, and a number where there is none."""
        kept = (
            values[along(axis, slice(by, None))] if by > 0 else values[along(axis, slice(None, by))]
        )
        filler = np.full((*np.shape(x)[:axis], abs(by), *np.shape(x)[axis + 1 :]), fill, x.dtype)
        return np.concatenate([kept, filler] if by > 0 else [filler, kept], axis)

    x = np.conj(x) if x.dtype.kind == "c" else x
    before = shifted(np.cumprod(x, axis=axis), -1, 1)
    factor, r = shifted(x, 1, 0), g
    step = 1
    while step < n:
        r = r + factor * shifted(r, step, 0)
        factor = factor * shifted(factor, step, 0)
        step *= 2
    return before * r


def _scanned(of: Any, plain: Any, neutral: int, ignoring: bool) -> Any:
    def scan(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        if ignoring:
            a = laid_like(_blanked(a, ~np.isnan(raw(a)), neutral), a)
        return plain(_cast(a, dtype), axis)

    scan.__name__ = scan.__qualname__ = of.__name__
    text = "Cumulative sum" if neutral == 0 else "Cumulative product"
    scan.__doc__ = _told(of, text + (", in which NaN does not count." if ignoring else "."))
    return composed(of, "a", plain=None if ignoring else plain)(scan)


_scanned(np.cumsum, reductions.cumsum, 0, False)
_scanned(np.cumprod, cumprod, 1, False)
nancumsum = _scanned(np.nancumsum, reductions.cumsum, 0, True)
nancumprod = _scanned(np.nancumprod, cumprod, 1, True)


def _cumulative(of: Any, plain: Any, neutral: int) -> Any:
    """np.cumulative_sum or np.cumulative_prod."""

    def scan(
        x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        """The scan along an axis, with a neutral first entry if wanted."""
        if axis is None:
            if np.ndim(x) > 1:
                raise ValueError(
                    "For arrays which have more than one dimension ``axis`` argument is required."
                )
            axis = 0
        x = _cast(x if np.ndim(x) else reshape(x, 1), dtype)  # a number is a row of one
        axis = normalize_axis_index(axis, x.ndim)
        result = plain(x, axis)
        if not include_initial:
            return result
        first = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), neutral, result.dtype)
        return concatenate([laid_like(first, result), result], axis)

    scan.__name__ = scan.__qualname__ = of.__name__
    text = "Cumulative sum" if neutral == 0 else "Cumulative product"
    scan.__doc__ = _told(of, f"{text}, with an entry for no terms if wanted.")
    return composed(of, "x")(scan)


cumulative_sum = _cumulative(np.cumulative_sum, reductions.cumsum, 0)
cumulative_prod = _cumulative(np.cumulative_prod, cumprod, 1)


# Methods of np.add: see dispatch.


def sums_between(x: Any, indices: Any, axis: int = 0) -> Any:
    """`np.add.reduceat`: sums of the entries from each index up to the next; the entry itself where the next is no larger."""
    starts = as_array(raw(indices))
    counts = np.maximum(np.diff(starts, append=np.shape(x)[axis]), 1)
    segment = np.repeat(np.arange(len(starts)), counts)
    within = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
    terms = moveaxis(take(x, np.repeat(starts, counts) + within, axis), axis, 0)
    return moveaxis(scatter(terms, segment, (len(starts), *np.shape(terms)[1:])), 0, axis)


def at(ufunc: np.ufunc, a: Any, indices: Any, b: Any = None) -> None:
    """`ufunc.at(a, indices, b)`, in place: as if each index were done by itself, one after the other."""
    if not isinstance(a, Tensor):
        raise GradientLost(
            f"np.{ufunc.__name__}.at was asked to write a tracked value to a plain array, which would not be tracked. Make the "
            "target a tensor (tg.zeros(...)), or use tg.scatter(values, index, shape).",
            name="plain-array",
        )
    index = _plain_index(indices)
    places = np.arange(a.size).reshape(a.shape)[index]
    if b is not None:
        if not isinstance(b, Tensor):
            b = broadcast_to(as_array(b, a.dtype), np.shape(places))
        elif np.shape(b) != np.shape(places):
            # Numbers of their own: b may show what is written next.
            b = b + np.zeros(np.shape(places), b.dtype)
        # Terms of one place are added to each other first: in the type that NumPy adds each of them in.
        wide = np.result_type(a.dtype, b.dtype)
        b = b if b.dtype == wide else b.astype(wide)
        if ufunc is np.add:
            a += scatter(b, index, a.shape)
            return
        if ufunc is np.subtract:
            a -= scatter(b, index, a.shape)
            return
        b = reshape(b, (np.size(places),))
    places = np.reshape(places, -1)
    # Of places that are named several times, all first times at once, then all second times, and so on.
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    times = np.empty_like(places)
    times[order] = np.arange(places.size) - np.repeat(starts, np.diff(starts, append=places.size))
    for k in range(int(times.max(initial=-1)) + 1):
        now = np.flatnonzero(times == k)
        where = np.unravel_index(places[now], a.shape)
        a[where] = ufunc(a[where]) if b is None else ufunc(a[where], b[now])


def _first_axis(x: Any, axis: Any) -> Any:
    return moveaxis(x, axis, 0) if np.ndim(x) > 1 else x


def folded(
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    *,
    ufunc: np.ufunc,
) -> Any:
    """`ufunc.reduce`, step by step along the axis."""
    x = _cast(x, dtype)
    if ufunc is np.hypot and initial is None:
        initial = 0.0  # of one entry NumPy gives the absolute value
    if not np.ndim(x) and axis in (0, -1, None):  # to NumPy a number is a row of one
        return x if initial is None else ufunc(initial, x)
    axes = (
        tuple(range(np.ndim(x))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    )
    axes = tuple(sorted((k % np.ndim(x) for k in axes), reverse=True))
    if len(axes) > 1:
        for k in axes:
            x = folded(x, k, None, keepdims, initial if k == axes[-1] else None, ufunc=ufunc)
        return x
    (k,) = axes
    rows = _first_axis(x, k)
    n = np.shape(rows)[0]
    if not n:
        if initial is None:
            initial = ufunc.reduce(np.zeros(0, x.dtype))  # NumPy's identity, or its error
        total = np.full(np.shape(rows)[1:], initial, x.dtype)
    else:
        total = rows[0] if initial is None else ufunc(initial, rows[0])
    for i in range(1, n):
        total = ufunc(total, rows[i])
    return np.expand_dims(total, k) if keepdims else total


def run(x: Any, axis: int = 0, dtype: Any = None, *, ufunc: np.ufunc) -> Any:
    """`ufunc.accumulate`, step by step along the axis."""
    x = _cast(x, dtype)
    rows = _first_axis(x, axis)
    so_far = [rows[i] for i in range(min(1, np.shape(rows)[0]))]
    for i in range(1, np.shape(rows)[0]):
        so_far.append(ufunc(so_far[-1], rows[i]))
    if not so_far:
        return x
    stacked = stack(so_far, 0)
    return like_filled(moveaxis(stacked, 0, axis), x) if np.ndim(x) > 1 else stacked


# ----------------------------------------------------------------------------------------------- moments


def _selected(a: Any, where: Any, ignoring: bool) -> Any:
    """The mask of the entries that count, or None if all do."""
    mask = None if where is True else np.broadcast_to(where, np.shape(a))
    if ignoring:
        isnan = np.isnan(raw(a))
        if isnan.any():
            mask = ~isnan if mask is None else mask & ~isnan
    return mask


def _count(a: Any, mask: Any, axis: Any, keepdims: bool) -> Any:
    if mask is None:
        return count_of(np.shape(a), axis)
    return np.sum(mask, axis=axis, keepdims=keepdims)


def _of_number(a: Any, axis: Any) -> Any:
    """The axis; of a number, which to NumPy's `nan` functions is a row of one, all there are."""
    return None if not np.ndim(a) and axis in (0, -1) else axis


def _over(total: Any, count: Any) -> Any:
    """A sum divided by a count, in the sum's precision; where that is 0, NaN without a gradient."""
    count = as_array(count).astype(np.result_type(raw(total).real))
    if np.all(count > 0):
        return divide(total, count)
    return where(
        count > 0, divide(total, np.where(count > 0, count, 1)), np.array(np.nan, count.dtype)
    )


def _mean(of: Any, ignoring: bool) -> Any:
    """np.mean and np.nanmean, with where."""

    def mean(
        a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, *, where: Any = True
    ) -> Any:
        a, axis = _cast(a, dtype), _of_number(a, axis) if ignoring else axis
        mask = _selected(a, where, ignoring)
        if mask is None:
            return reductions.mean(a, axis, bool(keepdims))
        count = _count(a, mask, axis, bool(keepdims))
        if np.any(count == 0):
            warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=3)
        return _over(reductions.sum(_blanked(a, mask, 0), axis, bool(keepdims)), count)

    mean.__name__ = mean.__qualname__ = of.__name__
    told = "Mean over axes" + (", of the entries that are not NaN." if ignoring else ".")
    mean.__doc__ = _told(of, told)
    return composed(of, "a", plain=None if ignoring else reductions.mean)(mean)


def _variance(of: Any, ignoring: bool, rooted: bool) -> Any:
    """np.var, np.std and the forms that leave out NaN, with ddof, where and mean."""

    def variance(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        *,
        where: Any = True,
        mean: Any = None,
        correction: Any = None,
    ) -> Any:
        """The variance, or its root, over axes."""
        if correction is not None:
            if ddof != 0:
                raise ValueError("ddof and correction can't be provided simultaneously.")
            ddof = correction
        if dtype is not None and np.iscomplexobj(a) and np.dtype(dtype).kind != "c":
            raise NotDifferentiable(
                f"np.{of.__name__} of complex numbers was asked with dtype={np.dtype(dtype).name}, where NumPy centres by the mean of the "
                "real parts and counts the imaginary ones whole. Leave dtype out, or give x.real.",
                name="not-real",
            )
        a, axis = _cast(a, dtype), _of_number(a, axis) if ignoring else axis
        mask = _selected(a, where, ignoring)
        if mask is None and mean is None:
            return (reductions.std if rooted else reductions.var)(a, axis, ddof, bool(keepdims))
        count = as_array(_count(a, mask, axis, True))
        values = a if mask is None else _blanked(a, mask, 0)
        centre = _over(reductions.sum(values, axis, True), count) if mean is None else mean
        deviation = a - centre if mask is None else _blanked(a - centre, mask, 0)
        squares = (
            np.real(deviation * np.conj(deviation))
            if deviation.dtype.kind == "c"
            else deviation * deviation
        )
        freedom = (count if keepdims else as_array(_count(a, mask, axis, False))) - ddof
        spread = reductions.sum(squares, axis, bool(keepdims))
        if np.any(freedom <= 0):
            warnings.warn("Degrees of freedom <= 0 for slice.", RuntimeWarning, stacklevel=3)
        result = _over(spread, freedom)
        return root(result) if rooted else result

    variance.__name__ = variance.__qualname__ = of.__name__
    told = (
        ("Standard deviation" if rooted else "Variance")
        + " over axes"
        + (", of the entries that are not NaN" if ignoring else "")
        + ("; where they are all equal its gradient is 0." if rooted else ".")
    )
    variance.__doc__ = _told(of, told)
    return composed(of, "a", "mean")(variance)


mean = _mean(np.mean, False)
nanmean = _mean(np.nanmean, True)
var = _variance(np.var, False, False)
std = _variance(np.std, False, True)
nanvar = _variance(np.nanvar, True, False)
nanstd = _variance(np.nanstd, True, True)


@composed(np.average, "a", "weights")
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    """Mean over axes, weighted; differentiated by the weights too.

    >>> import tapegrad as tg
    >>> tg.average(tg.tensor([1.0, 3.0]), weights=[3, 1]).item()
    1.5
    """
    shape = np.shape(a)
    if weights is None:
        result = reductions.mean(a, axis, bool(keepdims))
        total = np.full(np.shape(result), count_of(shape, axis), result.dtype)
        return (result, total) if returned else result
    if np.shape(weights) != shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        axes = reductions.axes_of(axis, len(shape))
        if np.shape(weights) != tuple(shape[i] for i in axes):
            raise ValueError(
                "Shape of weights must be consistent with shape of a along specified axis."
            )
        weights = transpose(weights, tuple(int(i) for i in np.argsort(axes)))
        weights = reshape(weights, tuple(n if i in axes else 1 for i, n in enumerate(shape)))
    # The sum of the weights along axes where they are the same for all lines is a sum of the weights alone.
    total = reductions.sum(weights, axis, bool(keepdims))
    if np.any(raw(total) == 0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    result = reductions.sum(a * weights, axis, bool(keepdims)) / total
    return (result, broadcast_to(total, np.shape(result))) if returned else result


@composed(np.cov, "m", "y", "aweights")
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """Covariance matrix of variables in rows (or columns), from observations with weights.

    >>> import tapegrad as tg
    >>> tg.cov(tg.tensor([1.0, 2.0, 3.0])).item()
    1.0
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    if np.ndim(m) > 2 or (y is not None and np.ndim(y) > 2):
        raise ValueError(f"{'m' if np.ndim(m) > 2 else 'y'} has more than 2 dimensions")
    dtype = np.dtype(
        np.result_type(raw(m), *([] if y is None else [raw(y)]), np.float64)
        if dtype is None
        else dtype
    )
    rows = _rows(m, dtype, not rowvar and np.ndim(m) != 1)
    if np.shape(rows)[0] == 0:
        return plainly(np.zeros, ((0, 0),), {})
    if y is not None:
        other = _rows(y, dtype, False)
        rows = concatenate(
            [rows, transpose(other) if not rowvar and np.shape(other)[0] != 1 else other], 0
        )
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            given = _cast(
                given if isinstance(given, Tensor) else as_array(given), np.dtype(np.float64)
            )
            if np.ndim(given) != 1:
                raise RuntimeError(
                    f"{name} has {np.ndim(given)} axes, but it holds a weight for each sample: pass {np.shape(rows)[1]} numbers."
                )
            if np.shape(given)[0] != np.shape(rows)[1]:
                raise RuntimeError(f"incompatible numbers of samples and {name}")
            if np.any(raw(given) < 0):
                raise ValueError(f"{name} cannot be negative")
            if name == "fweights" and not np.all(given == np.around(given)):
                raise TypeError("fweights must be integer")
            weights = given if weights is None else weights * given
    if weights is None:
        centre: Any = reductions.mean(rows, 1, True)
        freedom: Any = np.shape(rows)[1] - ddof
        weighted = rows - centre
    else:
        total = reductions.sum(weights)
        centre = reductions.sum(rows * weights, 1, True) / total
        freedom = total
        if ddof:
            freedom = total - ddof * (
                1 if aweights is None else reductions.sum(weights * aweights) / total
            )
        weighted = (rows - centre) * weights
    if raw(freedom) <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
        freedom = 0.0
    with np.errstate(
        divide="ignore" if raw(freedom) == 0 else None,
        invalid="ignore" if raw(freedom) == 0 else None,
    ):
        product = np.matmul(rows - centre, np.conj(transpose(weighted))) * np.true_divide(
            1, freedom
        )
    if raw(freedom) == 0:  # what is no number has no slope, though tangents of deviations are 0
        doubt = reductions.sum(np.real(rows) * np.nan, 1) + np.nan  # of no samples as well
        product = np.where(np.isnan(raw(product)), doubt[:, None] + doubt, product)
    return np.squeeze(_cast(product, dtype))


def _rows(x: Any, dtype: Any, turned: bool) -> Any:
    x = reshape(x, (1,) * (2 - np.ndim(x)) + np.shape(x))
    x = _cast(x if isinstance(x, Tensor) else as_array(x), dtype)
    return transpose(x) if turned else x


@composed(np.corrcoef, "x", "y")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Matrix of correlation coefficients of variables in rows (or columns).

    >>> import tapegrad as tg
    >>> tg.corrcoef(tg.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if np.ndim(c) == 0:
        return c / c
    spread = np.sqrt(np.real(np.diag(c)))
    c = c / spread[:, None] / spread[None, :]
    if c.dtype.kind == "c":
        return _within_one(np.real(c)) + 1j * _within_one(np.imag(c))
    return _within_one(c)


def _within_one(c: Any) -> Any:
    """Without what rounding added; a NaN keeps its slopes, which `np.clip` would make 0."""
    return np.where(np.abs(raw(c)) > 1, np.sign(raw(c)), c)


@composed(np.trapezoid, "y", "x", "dx")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral by the trapezoidal rule; differentiated by the samples, their places and the step.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: np.trapezoid(y, dx=0.5))(np.ones(3))
    array([0.25, 0.5 , 0.25])
    """
    ndim = np.ndim(y)
    axis = normalize_axis_index(axis, ndim)
    steps = dx
    if x is not None:
        if np.ndim(x) == 1:
            steps = reshape(x[1:] - x[:-1], (-1,) + (1,) * (ndim - axis - 1))
        else:
            on = normalize_axis_index(axis - ndim, np.ndim(x))
            steps = x[along(on, slice(1, None))] - x[along(on, slice(None, -1))]
    pairs = y[along(axis, slice(1, None))] + y[along(axis, slice(None, -1))]
    return reductions.sum(steps * pairs / 2.0, axis)


if hasattr(np, "trapz"):  # the old name, gone in NumPy 2.4
    FUNCTIONS[getattr(np, "trapz")] = trapezoid  # noqa: B009  the linter wants the name gone that NumPy 2.3 still has


# ---------------------------------------------------------------------------------------------- histograms


@composed(np.bincount, "weights")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number occurs, or the sum of the weights where it does: differentiated by the weights.

    >>> import tapegrad as tg
    >>> tg.bincount([0, 1, 1], weights=tg.tensor([1.0, 2.0, 4.0]))
    tensor([1., 6.])
    """
    numbers = as_array(x)
    counts = np.bincount(x if isinstance(x, list) else numbers, minlength=minlength)
    if not numbers.size:  # no weight counts, not even by its type: as in NumPy
        return counts
    return scatter(_cast(weights, np.dtype(np.float64)), numbers.copy(), (len(counts),))


_JUMPS = (
    "its counts stay the same while an entry moves within a bin, and jump where it crosses an edge: their derivative "
    "says nothing. Sum a smooth kernel over the entries instead, np.exp(-(((edges - t[:, None]) / width) ** 2)), or "
    "differentiate by the weights of np.histogram"
)


def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """Sums of weights by bin, and the edges: differentiated by the weights only.

    >>> import tapegrad as tg
    >>> counts, edges = tg.histogram([0.1, 0.6, 0.7], bins=2, range=(0, 1), weights=tg.tensor([1.0, 2.0, 4.0]))
    >>> counts
    tensor([1., 6.])
    """
    if holds_tracked((a, bins, range)):
        raise NotDifferentiable(
            f"np.histogram was called on a tracked tensor, but {_JUMPS}; t.detach() gives the plain histogram."
        )
    computed = isinstance(raw(a), StandIn)  # by a program: nobody knows the bins yet
    entries = np.reshape(a if computed else as_array(a), -1)
    edges = np.histogram_bin_edges(entries, bins, range)
    last = len(edges) - 1
    bin_of = np.where(entries == edges[-1], last - 1, np.searchsorted(edges, entries, "right") - 1)
    inside = (bin_of >= 0) & (bin_of < last)
    weights = reshape(weights, -1)
    if computed:
        sums = scatter(np.where(inside, weights, 0), np.clip(bin_of, 0, last - 1), (last,))
    else:
        sums = scatter(weights[inside], bin_of[inside], (last,))
    if density:
        sums = sums / np.diff(edges) / reductions.sum(sums)
    return sums, edges if computed else plainly(np.asarray, (edges,), {})


_histogram.__name__ = "histogram"
composed(np.histogram, "a", "bins", "range", "weights")(_histogram)
for _of in (np.histogram2d, np.histogramdd, np.histogram_bin_edges):
    refuse(
        _of,
        _JUMPS
        if _of is not np.histogram_bin_edges
        else "its edges follow the extreme entries only: write np.linspace(t.min(), t.max(), bins + 1)",
    )

OF_UFUNCS = {
    "reduce": {
        np.add: sum, np.multiply: prod, np.maximum: selection.max, np.minimum: selection.min, np.fmax: selection.largest,
        np.fmin: selection.smallest, np.logaddexp: reductions.logsumexp,
    },
    "accumulate": {
        np.add: reductions.cumsum, np.multiply: cumprod, np.maximum: selection.accumulated(np.maximum),
        np.minimum: selection.accumulated(np.minimum),
    },
    "reduceat": {np.add: sums_between},
}  # fmt: skip
"""Methods of ufuncs: the function that does the same here."""
