"""Selecting: entries by position, by a condition, or by their order.

The choice of entries is made on the values, once, and has no derivative; the derivative is that of reading them there.
Where entries are equal: max, min, ptp and their nan-variants share the gradient among all that attain the value
(PyTorch's amax). Everything that sorts (sort, partition, median, quantile, accumulated extrema) gives it to the entry
that a stable sort puts at the place, as torch.sort and torch.quantile do: one subgradient of many.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.domain import distinct
from ..core.dual import holds_dual
from ..core.mode import is_grad_enabled
from ..core.primitive import FUNCTIONS, primitive
from ..core.storage import StandIn, as_array, axes_in_memory, never
from ..core.tensor import Tensor, value_of, wrap
from ..errors import GradientLost
from . import reductions
from .composing import composed, holds_tracked, like_filled, moved, plainly, raw
from .elementary import fmax, fmin, maximum, minimum, where
from .indexing import take
from .reductions import axes_of, spread
from .shaping import laid_along, laid_like, moveaxis, reshape, transpose

# --------------------------------------------------------------------------------------------- by position


def _take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    """Entries at integer positions along an axis (of the flattened tensor, for axis None)."""
    indices = as_array(raw(indices))
    axis = None if not np.ndim(a) and axis in (0, -1) else axis  # a number is a row of one
    if axis is None:
        n = int(np.prod(np.shape(a)))
    else:
        axis = normalize_axis_index(axis, np.ndim(a))
        n = np.shape(a)[axis]
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"take was given mode={mode!r}, but it is 'raise', 'wrap' or 'clip'.")
    if mode != "raise":
        indices = np.clip(indices, 0, n - 1) if mode == "clip" else indices % n
    return take(a, indices.copy(), axis)


composed(np.take, "a")(_take)


@composed(np.take_along_axis, "arr")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """Along an axis, the entries at positions that are given line by line, as argsort gives them.

    >>> import numpy as np, tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.take_along_axis(m, np.array([[0], [1]]), axis=1)
    tensor([[1.],
            [4.]])
    """
    return moved(lambda arr: np.take_along_axis(arr, indices, axis), arr, whole=True)


@composed(np.choose, "*choices")
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """For each entry of the integer array a, the entry of the choice that it numbers.

    >>> import tapegrad as tg
    >>> tg.choose([0, 1], [tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])])
    tensor([1., 4.])
    """
    return moved(lambda *choices: np.choose(a, choices, mode=mode), *choices)


@composed(np.compress, "a")
def compress(condition: Any, a: Any, axis: Any = None) -> Any:
    """The slices along an axis where a condition holds.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.compress([True, False, True], t)
    tensor([1., 4.])
    """
    return moved(lambda a: np.compress(condition, a, axis), a)


Tensor.choose = lambda self, choices, mode="raise": choose(self, choices, mode=mode)  # type: ignore[attr-defined]
Tensor.choose.__doc__ = choose.__doc__
Tensor.compress = lambda self, condition, axis=None: compress(condition, self, axis)  # type: ignore[attr-defined]
Tensor.compress.__doc__ = compress.__doc__


@composed(np.extract, "arr")
def extract(condition: Any, arr: Any) -> Any:
    """The entries where a condition holds.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.extract(t > 1, t)
    tensor([2., 4.])
    """
    return moved(lambda arr: np.extract(condition, arr), arr)


# -------------------------------------------------------------------------------------------- by condition


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Entries of x where the condition holds, of y elsewhere; with the condition alone, where it holds.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.where(t.numpy() > 1, t, 0.0)
    tensor([0., 2., 4.])
    """
    if x is None and y is None:
        return (
            plainly(np.nonzero, (condition,), {})
            if isinstance(condition, Tensor)
            else np.where(condition)
        )
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return where(condition, x, y)


_where.__name__ = _where.__qualname__ = "where"
_where.primitive = where.primitive  # type: ignore[attr-defined]
FUNCTIONS[np.where] = _where


@composed(np.select, "*choicelist", "default")
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Entries of the first choice whose condition holds, else the default.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.select([x < 0, x > 1], [-x, x**2]).sum())(np.array([-1.0, 0.5, 3.0]))
    array([-1.,  0.,  6.])
    """
    return moved(
        lambda *choices: np.select(condlist, choices[:-1], choices[-1]), *choicelist, default
    )


@composed(np.piecewise, "x", "*funclist", "*args", "*kw")
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Each function (or number) on the entries where its condition holds; later ones win, and the rest is 0.

    >>> import numpy as np, tapegrad as tg
    >>> tg.piecewise(tg.tensor([-1.0, 2.0]), [np.array([True, False])], [0.0, lambda x: x**2])
    tensor([0., 4.])
    """
    if isinstance(condlist, dict | set):
        raise TypeError(
            f"np.piecewise was given a {type(condlist).__name__} of conditions, but their order counts: pass a list of arrays of truths."
        )
    number = not isinstance(condlist, list | tuple) and np.ndim(condlist) == 0
    if not number and len(condlist) == 0:
        raise ValueError(
            "np.piecewise was given no conditions, but each function needs one: pass a list of arrays of truths."
        )
    if number or (np.ndim(x) != 0 and _is_one(condlist)):
        condlist = [condlist]
    conditions = as_array(condlist, dtype=bool)
    if len(conditions) == len(funclist) - 1:
        conditions = np.concatenate([conditions, ~np.any(conditions, axis=0, keepdims=True)])
    elif len(conditions) != len(funclist):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected"
        )
    result = np.zeros(np.shape(x), x.dtype)
    for condition, function in zip(conditions, funclist, strict=True):
        values = function
        if callable(function):
            picked = x[condition]
            if not picked.size:
                continue
            values = function(picked, *args, **kw)
        values = values.astype(x.dtype, copy=False) if isinstance(values, Tensor) else values
        result = moved_in(result, condition, values)
    return laid_like(result if isinstance(result, Tensor) else wrap(result), x)


def _is_one(condlist: Any) -> bool:
    """Whether this is one condition, not a sequence of conditions: NumPy asks whether its first entry is a list or an array."""
    if isinstance(condlist, list | tuple):
        return isinstance(condlist[0], tuple) or np.isscalar(condlist[0])
    return (
        np.ndim(condlist) < 2
    )  # an array, or what stands for an array of truths while a program is traced


def moved_in(x: Any, mask: np.ndarray, values: Any) -> Any:
    """A copy of x with values in the places of a mask."""
    if np.ndim(values) == 0:
        return where(mask, values, x)

    def store(x: np.ndarray, values: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[mask] = values
        return x

    return moved(store, x, values)


# -------------------------------------------------------------------------------------------- writing in place
#
# These overwrite their first argument. A tensor is overwritten as `t[index] = value` does it, recorded; a plain array cannot
# hold a tracked value.


def _writes(of: Any, positions: Callable[..., Any]) -> None:
    """Declare a function of NumPy's that writes values into its first argument, by `positions(...) -> (index, values)`."""

    signature = inspect.signature(positions)

    def write(*args: Any, **kwargs: Any) -> None:
        target, *others = signature.bind(*args, **kwargs).arguments.values()
        if isinstance(target, Tensor):
            index, values = positions(*args, **kwargs)
            target[index] = values
            return
        if holds_tracked(others) and (is_grad_enabled() or holds_dual(others)):
            raise GradientLost(
                f"np.{of.__name__} was asked to write a tracked tensor into a plain array, which would not be tracked. "
                "Make the target a tensor (tg.zeros(...), tg.tensor(array)), or build the result with np.where or np.stack.",
                name="plain-array",
            )
        of(*raw(args), **raw(kwargs))

    write.__name__ = write.__qualname__ = of.__name__
    write.__signature__ = signature.replace(return_annotation=None)  # type: ignore[attr-defined]
    write.__doc__ = (
        f"NumPy's {of.__name__}: overwrites a tensor in place, recorded as `t[index] = value` is."
    )
    FUNCTIONS[of] = write


def _where_true(mask: Any) -> np.ndarray:
    return as_array(raw(mask), dtype=bool)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> Any:
    if where is True:
        return Ellipsis, src
    if isinstance(raw(where), StandIn):  # a program computes it: nobody knows its entries yet
        return Ellipsis, np.where(where, src, dst.copy()).astype(dst.dtype)
    mask = np.broadcast_to(_where_true(where), dst.shape)
    return mask, np.broadcast_to(src, dst.shape)[mask]


def _cycled(values: Any, count: int) -> Any:
    values = np.reshape(values if isinstance(values, Tensor) else as_array(values), -1)
    return values[np.arange(count) % np.shape(values)[0]]


def _place(arr: Any, mask: Any, vals: Any) -> Any:
    mask = np.reshape(_where_true(mask), arr.shape)
    return mask, _cycled(vals, int(mask.sum()))


def _putmask(a: Any, mask: Any, values: Any) -> Any:
    if isinstance(raw(mask), StandIn):
        filled = np.reshape(_cycled(values, a.size), a.shape)
        return Ellipsis, np.where(np.reshape(mask, a.shape), filled, a.copy()).astype(a.dtype)
    mask = np.reshape(_where_true(mask), a.shape)
    return mask, np.reshape(_cycled(values, a.size), a.shape)[mask]


def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> Any:
    index = np.reshape(as_array(raw(ind)), -1)
    if mode != "raise":
        index = np.clip(index, 0, a.size - 1) if mode == "clip" else index % a.size
    # Of a place named twice the last value stays.
    last = {int(i) % a.size if -a.size <= i < a.size else int(i): k for k, i in enumerate(index)}
    places = np.array(list(last), dtype=int)
    return np.unravel_index(places, a.shape), _cycled(v, len(index))[
        np.array(list(last.values()), dtype=int)
    ]


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    numbers = np.arange(arr.size).reshape(arr.shape)
    places = np.take_along_axis(numbers, as_array(raw(indices)), axis)
    return np.unravel_index(places, arr.shape), values


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> Any:
    numbers = np.arange(a.size).reshape(a.shape)
    marked = np.zeros(a.shape, bool)
    np.fill_diagonal(marked, True, wrap)
    return np.unravel_index(numbers[marked], a.shape), _cycled(val, int(marked.sum()))


for _of, _positions in (
    (np.copyto, _copyto), (np.place, _place), (np.putmask, _putmask), (np.put, _put),
    (np.put_along_axis, _put_along_axis), (np.fill_diagonal, _fill_diagonal),
):  # fmt: skip
    _writes(_of, _positions)


# ------------------------------------------------------------------------------------------------- by order


def _as_put(x: Any, order: np.ndarray, axis: int) -> Any:
    """Entries in an order given by positions along an axis."""
    if np.ndim(x) == 1:
        return take(x, order)
    return moved(lambda x: np.take_along_axis(x, order, axis), x, whole=True)


@composed(np.sort, "a")
def sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    """Entries in ascending order along an axis, NaN last; equal ones keep their order.

    >>> import tapegrad as tg
    >>> tg.sort(tg.tensor([3.0, 1.0, 2.0]))
    tensor([1., 2., 3.])
    """
    if axis is None:
        a, axis = reshape(a, -1), 0
    return laid_like(_as_put(a, np.argsort(raw(a), axis=axis, kind="stable"), axis), a)


@composed(np.sort_complex, "a")
def sort_complex(a: Any) -> Any:
    """Entries as complex numbers, by real part and then by imaginary part.

    >>> import tapegrad as tg
    >>> tg.sort_complex(tg.tensor([3.0, 1.0]))
    tensor([1.+0.j, 3.+0.j])
    """
    return sort(a, -1).astype(np.sort_complex(np.zeros(1, a.dtype)).dtype)


@composed(np.partition, "a")
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect") -> Any:
    """Entries with the k-th smallest in its place, smaller ones before it and larger ones after it.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.partition(t, 1)
    tensor([1., 2., 4.])
    """
    if axis is None:
        a, axis = reshape(a, -1), 0
    # The i-th smallest of the result was the i-th smallest of a: so NumPy's own arrangement is found again.
    order, arranged = (
        np.argsort(x, axis=axis, kind="stable")
        for x in (raw(a), np.partition(raw(a), kth, axis=axis, kind=kind))
    )
    source = np.empty_like(order)
    np.put_along_axis(source, arranged, order, axis)
    return laid_like(_as_put(a, source, axis), a)


def lines(x: Any, axis: Any) -> Any:
    """The axes reduced, as one last axis."""
    ndim = np.ndim(x)
    axes = axes_of(axis, ndim)
    rest = tuple(i for i in range(ndim) if i not in axes)
    return reshape(
        transpose(x, rest + axes),
        (*(np.shape(x)[i] for i in rest), reductions.count_of(np.shape(x), axis)),
    )


def _ordered(x: Any) -> tuple[Any, np.ndarray]:
    """Entries in order along the last axis, and whether the last of them, thus any, is NaN."""
    order = np.argsort(raw(x), axis=-1, kind="stable")
    ordered = _as_put(x, order, -1)
    return ordered, np.isnan(raw(ordered)[..., -1])


def _lost(ordered: Any, ignoring: bool) -> Any:
    """NaN for a line that has no such number: the NaN that is the last entry, as NumPy copies it, or where NaN does not count, a constant."""
    return np.array(np.nan, ordered.dtype) if ignoring else ordered[..., -1]


def _at(ordered: Any, places: np.ndarray) -> Any:
    """Along the last axis, the entries at places; these have a first axis that numbers them, and then one place per line."""
    spots = np.moveaxis(places, 0, -1).astype(np.intp)
    return moveaxis(_as_put(ordered, spots, -1), -1, 0)


def _finished(result: Any, shape: tuple[int, ...], axis: Any, keepdims: Any, lead: int = 0) -> Any:
    """A reduced result, with the reduced axes back if they are kept; the first `lead` axes number results."""
    if not keepdims:
        return result
    axes = axes_of(axis, len(shape))
    return reshape(
        result, np.shape(result)[:lead] + tuple(1 if i in axes else n for i, n in enumerate(shape))
    )


def _middle(a: Any, axis: Any, keepdims: Any, ignoring: bool) -> Any:
    """The median over axes: the mean of both middle entries where their number is even."""
    shape = np.shape(a)
    if reductions.count_of(shape, axis) == 0:
        return reductions.mean(a, axis, bool(keepdims))
    ordered, isnan = _ordered(lines(a, axis))
    n = np.shape(ordered)[-1]
    count = n - np.isnan(raw(ordered)).sum(axis=-1) if ignoring else np.full(isnan.shape, n)
    low, high = _at(ordered, np.maximum(np.stack([(count - 1) // 2, count // 2]), 0))
    middle = where(count % 2 == 1, low, (low + high) / 2)
    lost = count == 0 if ignoring else isnan
    if not never(lost):
        if ignoring and not isinstance(lost, StandIn):
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=4)
        middle = where(lost, _lost(ordered, ignoring), middle)
    return _finished(middle, shape, axis, keepdims)


@composed(np.median, "a")
def median(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """Middle entry of the sorted ones, or the mean of the two middle ones, each with half the gradient.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.median(t).item()
    2.0
    """
    middle = _middle(a, axis, keepdims, ignoring=False)
    order = axes_in_memory(getattr(a, "_value", a))
    if order is None or not isinstance(axis, int | np.integer):
        return middle
    # NumPy takes the mean along the axis of a sorted copy: the other axes stay in the copy's order.
    gone = normalize_axis_index(axis, np.ndim(a))
    left = order if keepdims else [i - (i > gone) for i in order if i != gone]
    return laid_along(middle, left)


@composed(np.nanmedian, "a")
def nanmedian(
    a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """Median of the entries that are not NaN.

    >>> import numpy as np, tapegrad as tg
    >>> tg.nanmedian(tg.tensor([1.0, np.nan])).item()
    1.0
    """
    return _middle(a, axis, keepdims, ignoring=True)


def _quantile(of: Any, ignoring: bool) -> Any:
    """np.quantile and its kin, by the place that NumPy's method gives among the sorted entries."""

    def quantile(
        a: Any,
        q: Any,
        axis: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
        *,
        weights: Any = None,
    ) -> Any:
        """The quantiles, of shape q.shape and then that of the reduced array.

        >>> import numpy as np, tapegrad as tg
        >>> tg.grad(lambda x: np.quantile(x, 0.25))(np.array([1.0, 2.0, 4.0]))
        array([0.5, 0.5, 0. ])
        """
        shape = np.shape(a)
        rows = lines(a, axis)
        if weights is not None:
            weights = lines(np.broadcast_to(_aligned(weights, shape, axis), shape), axis)
        ordered, isnan = _ordered(rows)
        # NumPy's rule for the place of a quantile, whichever method, is asked of the ranks in place of the entries.
        if weights is None and not ignoring:
            ranks = np.arange(np.shape(rows)[-1], dtype=float)
        else:
            ranks = np.argsort(np.argsort(raw(rows), axis=-1, kind="stable"), axis=-1).astype(float)
            ranks[np.isnan(raw(rows))] = np.nan
        given = {} if weights is None else {"weights": weights}
        places = as_array(of(ranks, q, axis=-1, method=method, **given))
        places = np.reshape(places, (-1, *(places.shape[np.ndim(q) :] or (1,) * isnan.ndim)))
        lost = np.isnan(places) if ignoring else isnan[None]
        places = np.where(np.isnan(places), 0, places)
        places = np.broadcast_to(places, (len(places), *isnan.shape))
        low = np.floor(places)
        share = (places - low).astype(of(np.ones(2, a.dtype), q, method=method).dtype)
        below, above = _at(ordered, low), _at(ordered, np.ceil(places))
        step = where(share == 0, np.zeros(1, a.dtype), above - below)
        between = where(share >= 0.5, above - step * (1 - share), below + step * share)
        result = where(share == 0, below, between)
        if not never(lost):
            result = where(lost, _lost(ordered, ignoring), result)
        result = reshape(result, np.shape(q) + isnan.shape)
        return _finished(result, shape, axis, keepdims, lead=np.ndim(q))

    quantile.__name__ = quantile.__qualname__ = of.__name__
    share = 25 if "percent" in of.__name__ else 0.25
    quantile.__doc__ = (
        f"The {'percentiles' if 'percent' in of.__name__ else 'quantiles'} of the entries"
        f"{' that are not NaN' if ignoring else ''}: the two neighbours in order get the gradient by their shares.\n\n"
        ">>> import numpy as np, tapegrad as tg\n"
        f">>> tg.grad(lambda x: np.{of.__name__}(x, {share}))(np.array([1.0, 2.0, 4.0]))\narray([0.5, 0.5, 0. ])\n"
    )
    return composed(of, "a")(quantile)


def _aligned(weights: Any, shape: tuple[int, ...], axis: Any) -> np.ndarray:
    """Weights as one per entry: those of a line stand along the axis."""
    weights = as_array(weights)
    if weights.shape == shape or axis is None:
        return weights
    axes = axes_of(axis, len(shape))
    spread_shape = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    return np.transpose(weights, np.argsort(axes)).reshape(spread_shape)


quantile = _quantile(np.quantile, ignoring=False)
percentile = _quantile(np.percentile, ignoring=False)
nanquantile = _quantile(np.nanquantile, ignoring=True)
nanpercentile = _quantile(np.nanpercentile, ignoring=True)


# ------------------------------------------------------------------------------------------------- extrema


def _extremum(of: Any, plain: Any, pick: Any, neutral: float) -> Any:
    """np.max and its kin with `initial` and `where`."""

    def extremum(
        a: Any, axis: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
    ) -> Any:
        """The extremum over axes; `initial` is one candidate more."""
        if initial is None and np.ndim(where) == 0 and where:
            where = True  # as for a number of Python's, whose comparison is no mask
        if where is not True:
            mask = np.broadcast_to(where, np.shape(a))
            of(
                raw(a), axis=axis, where=mask, **({} if initial is None else {"initial": initial})
            )  # NumPy checks the settings
            a = _blanked(a, mask, neutral)
        if initial is None:
            return plain(a, axis, bool(keepdims))
        if reductions.count_of(np.shape(a), axis) == 0:
            return reductions.sum(a, axis, bool(keepdims)) + np.array(initial, a.dtype)
        with warnings.catch_warnings():
            if pick in (fmax, fmin):  # which then count no NaN
                warnings.simplefilter("ignore", RuntimeWarning)
            found = plain(a, axis, bool(keepdims))
        return pick(found, np.array(initial, a.dtype))

    extremum.__name__ = extremum.__qualname__ = of.__name__
    extremum.__doc__ = plain.__doc__
    return composed(of, "a", plain=plain)(extremum)


def _blanked(x: Any, mask: Any, value: Any) -> Any:
    """x where the mask holds, a number elsewhere."""
    return where(mask, x, np.array(value, x.dtype))


max = _extremum(np.max, reductions.max, maximum, -np.inf)
min = _extremum(np.min, reductions.min, minimum, np.inf)
# PyTorch's max along a dim is a pair, its amax is not: the two names are told apart where `dim` is read.
amax = Tensor.amax = _extremum(np.amax, reductions.max, maximum, -np.inf)  # type: ignore[attr-defined]
amin = Tensor.amin = _extremum(np.amin, reductions.min, minimum, np.inf)  # type: ignore[attr-defined]


def _shares(x: Any, out: Any, axis: Any, keepdims: bool) -> np.ndarray:
    """The share of each entry in its line's extremum: equal for all that attain it; 0 in a line of NaN, where none does."""
    hit = value_of(x) == spread(value_of(out), np.shape(x), axis, keepdims)
    return (hit / np.maximum(np.sum(hit, axis=axis, keepdims=True), 1)).astype(x.dtype)


def _by_shares(ts, xs, out, axis, keepdims):
    """Tangents of the entries, by their shares."""
    return np.sum(ts[0] * _shares(xs[0], out, axis, keepdims), axis=axis, keepdims=keepdims)


@primitive(
    np.nanmax,
    pattern="along",
    domain=distinct,
    samples=reductions._SAMPLES,
    jvp=_by_shares,
    holomorphic=False,
)
def largest(g, x, out, *, axis=None, keepdims=False):
    """Largest entry that is not NaN over axes; ties share the gradient.

    >>> import numpy as np, tapegrad as tg
    >>> tg.nanmax(tg.tensor([1.0, np.nan])).item()
    1.0
    """
    return spread(g, np.shape(x), axis, keepdims) * _shares(x, out, axis, keepdims)


@primitive(
    np.nanmin,
    pattern="along",
    domain=distinct,
    samples=reductions._SAMPLES,
    jvp=_by_shares,
    holomorphic=False,
)
def smallest(g, x, out, *, axis=None, keepdims=False):
    """Smallest entry that is not NaN over axes; ties share the gradient.

    >>> import numpy as np, tapegrad as tg
    >>> tg.nanmin(tg.tensor([1.0, np.nan])).item()
    1.0
    """
    return spread(g, np.shape(x), axis, keepdims) * _shares(x, out, axis, keepdims)


# Of entries that are all NaN, or left out, the extremum is `initial`.
nanmax = _extremum(np.nanmax, largest, fmax, np.nan)
nanmin = _extremum(np.nanmin, smallest, fmin, np.nan)


@composed(np.ptp, "a")
def ptp(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    """Largest entry less the smallest, over axes.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.ptp(t).item()
    3.0
    """
    return reductions.max(a, axis, bool(keepdims)) - reductions.min(a, axis, bool(keepdims))


def accumulated(of: Any) -> Any:
    """`np.maximum.accumulate` or its like: along an axis, the extremum of the entries so far; the last of equal ones counts."""

    def accumulate(x: Any, axis: int = 0) -> Any:
        values = raw(x)
        so_far = of.accumulate(values, axis)
        steps = np.reshape(
            np.arange(values.shape[axis]), (-1,) + (1,) * (values.ndim - axis % values.ndim - 1)
        )
        attained = (values == so_far) | np.isnan(values)
        order = np.maximum.accumulate(np.where(attained, steps, 0), axis)
        return like_filled(_as_put(x, order, axis), x)

    return accumulate


# ------------------------------------------------------------------------------------------------ by value


def _found(values: np.ndarray, *sources: Any) -> Any:
    """Entries of the sources that have these values: of each, the first one."""
    flat = np.concatenate([np.reshape(raw(s), -1) for s in sources])
    order = np.argsort(flat, kind="stable")
    first = order[np.searchsorted(flat[order], values)]
    return moved(
        lambda *numbers: np.concatenate([np.reshape(n, -1) for n in numbers])[first], *sources
    )


@composed(np.unique, "ar")
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """The different entries (or slices along an axis), in order; of equal ones the first gets the gradient.

    >>> import tapegrad as tg
    >>> tg.unique(tg.tensor([2.0, 1.0, 2.0]))
    tensor([1., 2.])
    """
    _, first, inverse, counts = np.unique(raw(ar), True, True, True, axis, equal_nan=equal_nan)
    values = take(ar, first, axis)
    extras = [
        x
        for x, wanted in ((first, return_index), (inverse, return_inverse), (counts, return_counts))
        if wanted
    ]
    return (values, *map(wrap, extras)) if extras else values


def _by_value(of: Any, *by: str) -> None:
    """Declare a function that returns entries of its operands, found by their values."""

    def pick(*args: Any, **kwargs: Any) -> Any:
        result = of(*raw(args), **raw(kwargs))
        if isinstance(result, np.ndarray):
            return _found(result, *args[: len(by)])
        entries = (_found(result[0], *args[: len(by)]), *map(wrap, result[1:]))
        return type(result)(*entries) if hasattr(result, "_fields") else entries

    pick.__name__ = pick.__qualname__ = of.__name__
    pick.__doc__ = f"NumPy's {of.__name__}; of equal entries the first gets the gradient."
    pick.__signature__ = inspect.signature(of)  # type: ignore[attr-defined]
    composed(of, *by)(pick)


for _of, _by in (
    (np.unique_values, ("x",)), (np.unique_counts, ("x",)), (np.unique_inverse, ("x",)), (np.unique_all, ("x",)),
    (np.union1d, ("ar1", "ar2")), (np.intersect1d, ("ar1", "ar2")),
    (np.setdiff1d, ("ar1", "ar2")), (np.setxor1d, ("ar1", "ar2")),
):  # fmt: skip
    _by_value(_of, *_by)
