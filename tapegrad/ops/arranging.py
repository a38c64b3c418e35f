"""Arranging: the same entries in other places, some left out or repeated, others filled in.

Most of these say only where each entry goes, and NumPy's own function says it best: it is run on the entries' numbers
(`composing.moved`), and the derivative is that of reading at those positions. The common ones are written with slices,
reshapes and broadcasting, whose derivatives touch no index arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..core.primitive import FUNCTIONS, call, primitive, refuse
from ..core.storage import StandIn, as_array, packed
from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from .composing import composed, moved, raw
from .elementary import where
from .indexing import diagonal, locked, scatter, take
from .joining import concatenate, split, stack, vstack
from .shaping import broadcast_to, flip, laid_along, reshape, swapaxes, transpose


def along(axis: int, part: Any) -> tuple[Any, ...]:
    """The index that takes `part` of a (non-negative) axis and all of the others."""
    return (*(slice(None),) * axis, part)


def owned(x: Any) -> Any:
    """What was stretched, in memory of its own: a reshape of it is a copy mostly, but a view where the stretched axis stays apart."""
    value = raw(x)
    own = not isinstance(value, StandIn) and (not np.ndim(value) or value.flags.writeable)
    return x if own else x.copy()


# ------------------------------------------------------------------------------------------------- turning


def _opposite(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, tuple) else -shift


def _rolled_in_all_directions(given: Any, x: Any, out: Any, shift: Any, axis: Any) -> Any:
    """The first axis stays; without an axis all entries of a direction go round."""
    t = given[0]
    if axis is None:
        return np.reshape(np.roll(np.reshape(t, (len(t), -1)), shift, -1), t.shape)
    n = t.ndim - 1
    axes = np.reshape(axis, (-1,)).tolist()
    return np.roll(t, shift, tuple(a % n + 1 for a in axes))


@primitive(
    np.roll,
    linear=True,
    pattern="moves",
    directions=_rolled_in_all_directions,
    method=True,
    samples=[
        call((4,), shift=1),
        call((2, 3), shift=-2),
        call((2, 3), shift=4, axis=1),
        call((2, 3), shift=(1, 2), axis=(0, -1)),
    ],
)
def roll(g, *, shift, axis=None):
    """Entries moved along axes; those pushed over the end come in at the front.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.roll(x, 1) @ np.arange(3.0))(np.zeros(3))
    array([1., 2., 0.])
    """
    return np.roll(g, _opposite(shift), axis)


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Entries moved along axes; those pushed over the end come in at the front."""
    shift = raw(shift)
    return roll(a, tuple(shift) if isinstance(shift, list) else shift, axis)


FUNCTIONS[np.roll] = _roll


@composed(np.rot90, "m")
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """A quarter turn in the plane of two axes, k times, from the first axis towards the second.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.rot90(m)
    tensor([[2., 4.],
            [1., 3.]])
    """
    first, second = (normalize_axis_index(a, np.ndim(m)) for a in axes)
    if first == second:
        raise ValueError(
            f"rot90 turns in the plane of two different axes, but axes={axes} was given."
        )
    k %= 4
    if k == 0:
        return m[...]
    if k == 2:
        return flip(m, (first, second))
    turned = swapaxes(m, first, second)
    return flip(turned, first if k == 1 else second)


@composed(np.fliplr, "m")
def fliplr(m: Any) -> Any:
    """Columns in reverse order.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.fliplr(m)
    tensor([[2., 1.],
            [4., 3.]])
    """
    return flip(m, 1)


@composed(np.flipud, "m")
def flipud(m: Any) -> Any:
    """Rows in reverse order.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.flipud(m)
    tensor([[3., 4.],
            [1., 2.]])
    """
    return flip(m, 0)


@composed(np.rollaxis, "a")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """One axis moved until it lies before another.

    >>> import tapegrad as tg
    >>> tg.rollaxis(tg.ones((1, 2, 3)), 2).shape
    (3, 1, 2)
    """
    # An array whose axes have the lengths 0, 1, 2, ... tells the new order by its shape.
    return transpose(a, np.rollaxis(np.empty(tuple(range(np.ndim(a)))), axis, start).shape)


@composed(np.matrix_transpose, "x")
def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    if np.ndim(x) < 2:
        raise ValueError(
            f"matrix_transpose needs two axes or more, but the operand has {np.ndim(x)}."
        )
    return swapaxes(x, -1, -2)


# ----------------------------------------------------------------------------------------------- repeating


@composed(np.tile, "A")
def tile(A: Any, reps: Any) -> Any:
    """Copies side by side, so many along each axis.

    >>> import tapegrad as tg
    >>> tg.tile(tg.tensor([1.0, 2.0]), 2)
    tensor([1., 2., 1., 2.])
    """
    counts = tuple(reps) if np.ndim(reps) else (int(reps),)
    ndim = max(len(counts), np.ndim(A))
    shape = (1,) * (ndim - np.ndim(A)) + np.shape(A)
    counts = (1,) * (ndim - len(counts)) + counts
    if all(n == 1 for n in counts):
        return np.copy(reshape(A, shape))
    paired = reshape(A, tuple(n for length in shape for n in (1, length)))
    copies = broadcast_to(
        paired, tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    )
    return owned(reshape(copies, tuple(c * n for c, n in zip(counts, shape, strict=True))))


@composed(np.repeat, "a")
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Each entry several times in a row: all as often, or each as often as `repeats` says.

    >>> import tapegrad as tg
    >>> tg.repeat(tg.tensor([1.0, 2.0]), 2)
    tensor([1., 1., 2., 2.])
    """
    if axis is None or not np.ndim(a):  # to NumPy a number is a row of one, whose axis is 0 or -1
        a, axis = reshape(a, -1), 0 if axis is None else axis
    axis = normalize_axis_index(axis, np.ndim(a))
    counts = as_array(repeats)
    shape = np.shape(a)
    if counts.size != 1:
        return take(a, np.repeat(np.arange(shape[axis]), counts), axis)
    count = int(counts.reshape(()))
    if count == 1:  # a copy, which stretching is not
        return take(a, np.arange(shape[axis]), axis)
    copies = broadcast_to(
        reshape(a, (*shape[: axis + 1], 1, *shape[axis + 1 :])),
        (*shape[: axis + 1], count, *shape[axis + 1 :]),
    )
    return owned(reshape(copies, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])))


@composed(np.resize, "a")
def resize(a: Any, new_shape: Any) -> Any:
    """The entries in another shape of any size: cut off, or repeated from the front.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.resize(t, (2, 2))
    tensor([[1., 2.],
            [4., 1.]])
    """
    if not isinstance(new_shape, list | tuple) and np.ndim(new_shape) == 0:
        new_shape = operator.index(new_shape)
    return moved(lambda a: np.resize(a, new_shape), a)


@composed(np.broadcast_arrays, "*args")
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """The operands, each stretched to the shape that they have together.

    >>> import tapegrad as tg
    >>> a, b = tg.broadcast_arrays(tg.ones((2, 1)), tg.ones(3))
    >>> a.shape, b.shape
    ((2, 3), (2, 3))
    """
    shape = np.broadcast_shapes(*map(np.shape, args))
    return tuple(broadcast_to(x, shape) for x in args)


@composed(np.meshgrid, "*xi")
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Coordinates of a grid, one array per axis, from the positions along each.

    >>> import tapegrad as tg
    >>> a, b = tg.meshgrid(tg.ones(2), tg.ones(3))
    >>> a.shape
    (3, 2)
    """
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    ndim = len(xi)
    grids = [reshape(x, (1,) * i + (-1,) + (1,) * (ndim - i - 1)) for i, x in enumerate(xi)]
    if indexing == "xy" and ndim > 1:
        grids[:2] = [swapaxes(x, 0, 1) for x in grids[:2]]
    grids = grids if sparse else list(broadcast_arrays(*grids))
    return tuple(x.copy() for x in grids) if copy else tuple(grids)


refuse(np.ix_, "it makes index arrays, of integers or booleans, which have no derivative")


# ------------------------------------------------------------------------------------------------ triangles


@composed(np.tril, "m")
def tril(m: Any, k: int = 0) -> Any:
    """Lower triangle; zeros above the k-th diagonal.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.tril(m)
    tensor([[1., 0.],
            [3., 4.]])
    """
    return where(np.tri(*np.shape(m)[-2:], k=k, dtype=bool), m, np.zeros(1, m.dtype))


@composed(np.triu, "m")
def triu(m: Any, k: int = 0) -> Any:
    """Upper triangle; zeros below the k-th diagonal.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.triu(m)
    tensor([[1., 2.],
            [0., 4.]])
    """
    return where(np.tri(*np.shape(m)[-2:], k=k - 1, dtype=bool), np.zeros(1, m.dtype), m)


@composed(np.diag, "v")
def diag(v: Any, k: int = 0) -> Any:
    """A matrix with v on its k-th diagonal, or the k-th diagonal of the matrix v.

    >>> import tapegrad as tg
    >>> tg.diag(tg.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    if np.ndim(v) == 2:
        return locked(diagonal(v, k), v)  # read-only as NumPy's; PyTorch's is a copy
    if np.ndim(v) != 1:
        raise ValueError(f"Input must be 1- or 2-d, but it has {np.ndim(v)} axes.")
    steps = np.arange(np.shape(v)[0])
    n = len(steps) + abs(k)
    return scatter(v, (steps + max(-k, 0), steps + max(k, 0)), (n, n))


@composed(np.diagflat, "v")
def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with all entries of v on its k-th diagonal.

    >>> import tapegrad as tg
    >>> tg.diagflat(tg.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return diag(reshape(v, -1), k)


# ---------------------------------------------------------------------------------------- joining, splitting


def _at_least(n: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with n axes or more: NumPy puts new ones in front, except the third, which comes last."""
    if n == 3 and len(shape) < 3:
        return (*(1,) * (2 - len(shape)), *shape, 1) if shape else (1, 1, 1)
    return (1,) * (n - len(shape)) + shape


def _raised(n: int, arys: tuple[Any, ...]) -> Any:
    results = tuple(reshape(x, _at_least(n, np.shape(x))) for x in arys)
    return results[0] if len(results) == 1 else results


@composed(np.atleast_1d, "*arys")
def atleast_1d(*arys: Any) -> Any:
    """The operands with one axis or more.

    >>> import tapegrad as tg
    >>> tg.atleast_1d(tg.tensor(1.0)).shape
    (1,)
    """
    return _raised(1, arys)


@composed(np.atleast_2d, "*arys")
def atleast_2d(*arys: Any) -> Any:
    """The operands with two axes or more, new ones in front.

    >>> import tapegrad as tg
    >>> tg.atleast_2d(tg.ones(3)).shape
    (1, 3)
    """
    return _raised(2, arys)


@composed(np.atleast_3d, "*arys")
def atleast_3d(*arys: Any) -> Any:
    """The operands with three axes or more, as in dstack.

    >>> import tapegrad as tg
    >>> tg.atleast_3d(tg.ones(3)).shape
    (1, 3, 1)
    """
    return _raised(3, arys)


@composed(np.dstack, "*tup")
def dstack(tup: Sequence[Any]) -> Any:
    """Tensors behind one another, along the third axis.

    >>> import tapegrad as tg
    >>> tg.dstack([tg.zeros(2), tg.ones(2)]).shape
    (1, 2, 2)
    """
    return concatenate([reshape(x, _at_least(3, np.shape(x))) for x in tup], 2)


@composed(np.block, "*arrays")
def block(arrays: Any) -> Any:
    """One tensor from nested lists of blocks: the innermost lists join along the last axis, the next along the one before.

    >>> import tapegrad as tg
    >>> tg.block([[tg.eye(1), tg.zeros((1, 2))]])
    tensor([[1., 0., 0.]])
    """
    depth = _depth(arrays)
    if not depth:
        return np.copy(arrays)
    return _block(arrays, depth, max(depth, _most_axes(arrays)))


def _block(part: Any, axes_below: int, ndim: int) -> Any:
    if not isinstance(part, list):
        return reshape(part, (1,) * (ndim - np.ndim(part)) + np.shape(part))
    return concatenate([_block(p, axes_below - 1, ndim) for p in part], -axes_below)


def _depth(part: Any) -> int:
    if not isinstance(part, list):
        return 0
    depths = {_depth(p) for p in part}
    if len(depths) != 1:
        raise ValueError(
            "block was given lists of unequal depth (or an empty one): every block must lie at the same depth."
        )
    return depths.pop() + 1


def _most_axes(part: Any) -> int:
    return max(map(_most_axes, part)) if isinstance(part, list) else np.ndim(part)


@composed(np.append, "arr", "values")
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Values after the entries of arr; all flattened, unless an axis is given.

    >>> import tapegrad as tg
    >>> tg.append(tg.ones(2), 3.0)
    tensor([1., 1., 3.])
    """
    if axis is None:
        arr, values, axis = reshape(arr, -1), reshape(values, -1), 0
    return concatenate([arr, values], axis)


@composed(np.insert, "arr", "values")
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """A copy of arr with values put in before the given positions.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.insert(t, 1, 9.0)
    tensor([1., 9., 2., 4.])
    """
    if raw(arr).dtype.kind not in "fc" or (np.iscomplexobj(values) and not np.iscomplexobj(arr)):
        raise NotDifferentiable(
            f"np.insert was asked to put a tracked tensor into an array of dtype {raw(arr).dtype}, whose dtype the result "
            "keeps: it would be cut. Convert the array first: arr.astype(float)."
        )
    return moved(lambda arr, values: np.insert(arr, obj, values, axis), arr, values).astype(
        raw(arr).dtype, copy=False
    )


@composed(np.delete, "arr")
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """A copy of arr without the entries at the given positions.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.delete(t, 1)
    tensor([1., 4.])
    """
    return moved(lambda arr: np.delete(arr, obj, axis), arr)


@composed(np.trim_zeros, "filt")
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """The entries without the zeros before the first and after the last that is none.

    >>> import tapegrad as tg
    >>> tg.trim_zeros(tg.tensor([0.0, 1.0, 0.0]))
    tensor([1.])
    """
    if not isinstance(trim, str):
        raise TypeError(
            f"trim_zeros was given trim={trim!r}, but that is a word: write 'f' (front), 'b' (back) or 'fb'."
        )
    kept = [np.unique(i) for i in np.nonzero(raw(filt))]
    axes = (
        range(np.ndim(filt))
        if axis is None
        else {normalize_axis_index(a, np.ndim(filt)) for a in np.atleast_1d(axis)}
    )
    window = [slice(None)] * np.ndim(filt)
    for a in axes:
        if kept[a].size == 0:
            window[a] = slice(0, 0)
        else:
            first = int(kept[a][0]) if "f" in trim.lower() else None
            window[a] = slice(first, int(kept[a][-1]) + 1 if "b" in trim.lower() else None)
    return filt[tuple(window)]


def _splitter(of: Any, axis: Any, least: int, doc: str) -> Any:
    def parts(ary: Any, indices_or_sections: Any) -> Any:
        if np.ndim(ary) < least:
            raise ValueError(f"{of.__name__} only works on arrays of {least} or more dimensions")
        return split(ary, indices_or_sections, axis(np.ndim(ary)))

    parts.__name__ = parts.__qualname__ = of.__name__
    parts.__doc__ = doc
    return composed(of, "ary")(parts)


vsplit = _splitter(
    np.vsplit,
    lambda ndim: 0,
    2,
    "Parts along the first axis.\n\n>>> import numpy as np, tapegrad as tg\n>>> [part.shape for part in np.vsplit(tg.ones((4, 2)), [1])]\n[(1, 2), (3, 2)]\n",
)
hsplit = _splitter(
    np.hsplit,
    lambda ndim: 1 if ndim > 1 else 0,
    1,
    "Parts along the second axis; the first if there is one.\n\n>>> import numpy as np, tapegrad as tg\n>>> [part.shape for part in np.hsplit(tg.ones((2, 4)), [1])]\n[(2, 1), (2, 3)]\n",
)
dsplit = _splitter(
    np.dsplit,
    lambda ndim: 2,
    3,
    "Parts along the third axis.\n\n>>> import numpy as np, tapegrad as tg\n>>> [part.shape for part in np.dsplit(tg.ones((2, 2, 4)), 2)]\n[(2, 2, 2), (2, 2, 2)]\n",
)

if hasattr(np, "row_stack"):
    FUNCTIONS[getattr(np, "row_stack")] = vstack  # noqa: B009  the linter wants the name gone that NumPy still has


# -------------------------------------------------------------------------------------------------- windows


def _overlapped(
    g: Any, lengths: tuple[int, ...], axes: tuple[int, ...], shape: tuple[int, ...]
) -> Any:
    out = np.zeros(shape, g.dtype)
    places = [slice(None)] * len(shape)
    for offsets in np.ndindex(lengths):
        region = list(places)
        for k, offset in zip(axes, offsets, strict=True):
            start = region[k].start or 0  # an axis may be cut twice
            region[k] = slice(start + offset, start + offset + g.shape[k])
        out[tuple(region)] += g[(..., *offsets)]
    return out


@primitive(
    _overlapped,
    name="overlapped",
    linear=True,
    samples=[
        call((3, 2), lengths=(2,), axes=(0,), shape=(4,)),
        call((2, 3, 2, 2, 3), lengths=(2, 3), axes=(2, 0), shape=(4, 3, 3)),
        call((2, 2, 2), lengths=(2, 2), axes=(0, 0), shape=(4,)),
    ],
)
def overlapped(g, *, lengths, axes, shape):
    """The transpose of reading windows: every entry is added where it was read."""
    return windows(g, lengths, axes)


@primitive(
    lambda x, lengths, axes: np.lib.stride_tricks.sliding_window_view(x, lengths, axes),
    name="windows",
    linear=True,
    pattern="moves",
    view=True,
    samples=[
        call((4,), lengths=(2,), axes=(0,)),
        call((4, 3, 3), lengths=(2, 3), axes=(2, 0)),
        call((4,), lengths=(2, 2), axes=(0, 0)),
    ],
)
def windows(g, x_shape, *, lengths, axes):
    """Windows along some axes, as last axes: a read-only view of one entry in many places."""
    return overlapped(g, lengths, axes, x_shape)


@composed(np.lib.stride_tricks.sliding_window_view, "x")
def _windows(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """Windows along some axes, as last axes; in a compiled program, which reads no memory twice, joined from slices."""
    lengths = tuple(np.atleast_1d(window_shape).tolist())
    ndim = np.ndim(x)
    axes = tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim, "axis", True)
    if not isinstance(getattr(x, "_value", x), StandIn):
        return windows(x, lengths, axes)
    stand_in = np.broadcast_to(np.zeros((), x.dtype), np.shape(x))
    np.lib.stride_tricks.sliding_window_view(stand_in, window_shape, axis)  # it checks the settings
    joined = x
    for k, n in zip(axes, lengths, strict=True):
        places = np.shape(joined)[k] - n + 1
        joined = stack([joined[along(k, slice(i, i + places))] for i in range(n)], axis=-1)
    return locked(joined, x)


# -------------------------------------------------------------------------------------------------- padding


@composed(np.pad, "array")
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Entries added around the edges, in any of NumPy's modes but those given by a function.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.pad(x, 1, mode="edge").sum())(np.array([1.0, 2.0, 3.0]))
    array([2., 1., 2.])
    """
    if callable(mode):
        raise NotDifferentiable(
            "np.pad was given a function as mode, but such a function writes into plain arrays, where no gradient could be "
            "followed. Use a mode by name, or join the pieces with np.concatenate."
        )
    given = raw(array)
    columns = packed(given, "F") and not packed(given)
    # NumPy fills an array of its own, in rows unless this one lies in columns.
    padded = _padded(array, pad_width, mode, kwargs)
    padded = np.copy(padded) if padded is array else padded
    return laid_along(padded, tuple(reversed(range(np.ndim(array)))) if columns else None)


def _padded(array: Any, pad_width: Any, mode: str, kwargs: dict[str, Any]) -> Any:
    """The padded array, in whatever order its entries lie."""
    zeros = np.broadcast_to(np.zeros((), array.dtype), np.shape(array))
    if mode in ("constant", "empty"):
        widths = _pairs(pad_width, np.ndim(array))
        inner = tuple(slice(w, w + n) for (w, _), n in zip(widths, np.shape(array), strict=True))
        shape = tuple(
            before + n + after for (before, after), n in zip(widths, np.shape(array), strict=True)
        )
        padded = scatter(array, inner, shape)
        if kwargs:
            padded = padded + np.pad(zeros, pad_width, "constant", **kwargs)
        return padded
    if mode in ("edge", "wrap") or (
        mode in ("reflect", "symmetric") and kwargs.get("reflect_type", "even") == "even"
    ):
        return moved(lambda numbers: np.pad(numbers, pad_width, mode, **kwargs), array)
    np.pad(zeros, pad_width, mode, **kwargs)  # NumPy checks the settings
    if mode == "linear_ramp":
        sides, settings = _ramp, _pairs(kwargs.get("end_values", 0), np.ndim(array))
    elif mode in _STATISTICS:
        sides, settings = _STATISTICS[mode], _pairs(kwargs.get("stat_length"), np.ndim(array))
    else:
        sides, settings = _mirrored, [(mode == "symmetric", n) for n in np.shape(array)]
    for axis, (widths, setting) in enumerate(
        zip(_pairs(pad_width, np.ndim(array)), settings, strict=True)
    ):
        if any(widths):
            array = sides(array, axis, widths, setting)
    return array


def _pairs(value: Any, ndim: int) -> list[tuple[Any, Any]]:
    """A setting of pad, as (before, after) for each axis."""
    if isinstance(value, dict):
        pairs: list[Any] = [(0, 0)] * ndim
        for axis, width in value.items():
            pairs[axis] = width
        return [(p, p) if np.ndim(p) == 0 else tuple(p) for p in pairs]
    return [
        tuple(pair)
        for pair in np.broadcast_to(
            as_array(value, object if value is None else None), (ndim, 2)
        ).tolist()
    ]


def _ramp(x: Any, axis: int, widths: Any, ends: Any) -> Any:
    """Straight lines from the end values to the edges."""
    sides = []
    for width, end, edge in zip(widths, ends, (0, -1), strict=True):
        line = np.linspace(end, x[along(axis, edge)], width, endpoint=False, axis=axis)
        sides.append(line.astype(x.dtype, copy=False))
    return concatenate([sides[0], x, flip(sides[1], axis)], axis)


def _statistic(of: Any) -> Any:
    def sides(x: Any, axis: int, widths: Any, lengths: Any) -> Any:
        """A statistic of the entries nearest to each edge, as often as the width says."""
        n = np.shape(x)[axis]
        parts = []
        for width, length, before in zip(widths, lengths, (True, False), strict=True):
            length = n if length is None else min(int(length), n)
            near = x[along(axis, slice(0, length) if before else slice(n - length, n))]
            shape = (*np.shape(x)[:axis], width, *np.shape(x)[axis + 1 :])
            parts.append(broadcast_to(of(near, axis=axis, keepdims=True), shape))
        return concatenate([parts[0], x, parts[1]], axis)

    return sides


_STATISTICS = {
    "maximum": _statistic(np.max),
    "minimum": _statistic(np.min),
    "mean": _statistic(np.mean),
    "median": _statistic(np.median),
}


def _mirrored(x: Any, axis: int, widths: Any, setting: Any) -> Any:
    """Entries mirrored in the edges and turned about them: 2 * edge - mirrored.

    A margin wider than the array is mirrored again, in whole periods of the original length, as NumPy does.
    """
    symmetric, original = setting
    left, right = widths
    if original == 1:
        return moved(lambda numbers: np.pad(numbers, _only(axis, widths, np.ndim(x)), "edge"), x)
    while left or right:
        n = np.shape(x)[axis]
        reach = (
            n // original * original if symmetric else (n - 1) // (original - 1) * (original - 1)
        )
        first, last = min(reach, left), min(reach, right)
        skip = 0 if symmetric else 1
        before = flip(x[along(axis, slice(skip, skip + first))], axis)
        after = flip(x[along(axis, slice(n - skip - last, n - skip))], axis)
        low, high = x[along(axis, slice(0, 1))], x[along(axis, slice(n - 1, n))]
        x = concatenate([2 * low - before, x, 2 * high - after], axis)
        left, right = left - first, right - last
    return x


def _only(axis: int, widths: Any, ndim: int) -> list[Any]:
    return [tuple(widths) if i == axis else (0, 0) for i in range(ndim)]


for _name, _method in {"tile": tile, "tril": tril, "triu": triu, "diag": diag}.items():
    setattr(Tensor, _name, _method)
