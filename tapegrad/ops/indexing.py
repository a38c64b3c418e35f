"""Indexing: reading entries (`getitem`), and its transpose, adding entries into zeros (`scatter`)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.primitive import FUNCTIONS, call, primitive, track
from ..core.storage import StandIn, as_array, computed, duplicate, tracing
from ..core.tape import RECORDER, new_slot
from ..core.tensor import Tensor, blank, wrap
from ..core.views import base_of
from ..errors import TraceError


def _get(x: Any, index: Any) -> Any:
    return x[index]


def is_basic(index: Any) -> bool:
    """Whether NumPy reads this index as a view, that is, names no entry twice."""
    parts = index if type(index) is tuple else (index,)
    if _VIEWS.issuperset(map(type, parts)):
        return True
    return all(isinstance(p, int | np.integer) or type(p) in _VIEWS for p in parts)


_VIEWS = frozenset((int, slice, type(None), type(Ellipsis)))


def names_no_entry_twice(index: Any) -> bool:
    """Whether this index surely names each entry once.

    Basic ones do, also with numbers that a traced program computes, and with one mask beside them.
    """
    parts = index if type(index) is tuple else (index,)
    others = [0 if isinstance(p, StandIn) and _is_whole(p) else p for p in parts if not _is_mask(p)]
    return len(others) >= len(parts) - 1 and is_basic(tuple(others))


def _is_mask(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.bool_


def _is_whole(x: Any) -> bool:
    return x.ndim == 0 and x.dtype.kind in "iu"


def _add_at(whole: np.ndarray, g: Any, index: Any) -> None:
    if is_basic(index):
        whole[index] += g
    else:
        np.add.at(whole, index, g)


def _scattered(g: Any, index: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of `shape` with `g` added at `index`; entries named several times add up."""
    out = np.zeros(shape, g.dtype)
    _add_at(out, g, index)
    return out


_rows = np.array([0, 2, 2, 1])
_mask = np.array([True, False, True])


def _getitem_name(x: Any, y: Any, kw: Any) -> str:
    """PyTorch's name of the last step of an index: it takes one step for each part that changes something."""
    (index,) = kw
    if not is_basic(index):
        return "IndexBackward0"
    for part in reversed(index if type(index) is tuple else (index,)):
        if part is None:
            return "UnsqueezeBackward0"
        if isinstance(part, int | np.integer):
            return "SelectBackward0"
        if isinstance(part, slice) and part != slice(None):
            return "SliceBackward0"
    return "AliasBackward0"


_BASIC = (int, slice, type(None), type(Ellipsis))


def _in_all_directions(given: Any, x: Any, out: Any, index: Any) -> Any:
    """The entries of each direction, for an index without arrays: these could move axes."""
    if type(index) is int:
        return given[0][:, index]
    parts = index if type(index) is tuple else (index,)
    if not all(type(part) in _BASIC for part in parts):
        return None
    return given[0][(slice(None), *parts)]


@primitive(
    _get,
    written="a[index]",
    name="getitem",
    backward=_getitem_name,
    linear=True,
    pattern="moves",
    directions=_in_all_directions,
    view=True,
    adds=_add_at,
    samples=[
        call((4,), index=2),
        call((4,), index=-1),
        call((3, 4), index=(1, 2)),
        call((4,), index=slice(1, 3)),
        call((5, 2), index=slice(None, None, -2)),
        call((3, 4), index=(slice(None), -1)),
        call((3, 4), index=(Ellipsis, None, 2)),
        call((3, 2), index=_rows),
        call((3, 2), index=_mask),
        call((3, 4), index=(_rows, np.array([0, 1, 1, 3]))),
        call((2, 3, 4), index=(slice(None), _rows, 1)),
    ],
)
def getitem(g, x_shape, *, index):
    """Entries picked by ints, slices, None, Ellipsis, masks and integer arrays, as NumPy indexing does."""
    return scatter(g, index, x_shape)


@primitive(
    _scattered,
    name="scatter",
    linear=True,
    samples=[call((4, 2), index=_rows, shape=(3, 2)), call((2,), index=slice(1, 3), shape=(4,))],
)
def scatter(g, *, index, shape):
    """The transpose of reading at `index`: zeros of `shape` with the entries added there, repeats adding up.

    >>> import tapegrad as tg
    >>> tg.scatter(tg.ones(2), [0, 0], (3,))
    tensor([2., 0., 0.])
    """
    return g[index]


def _plain_index(index: Any) -> Any:
    """An index without Tensors: they only say where to look, which has no derivative."""
    if isinstance(index, tuple):
        if type(index) is tuple and _PLAIN.issuperset(map(type, index)):
            return index  # as loops over entries have
        return tuple(_plain_index(i) for i in index)
    if isinstance(index, Tensor):
        if index.dtype.kind not in "iub":
            raise IndexError(
                f"a tensor of dtype {index.dtype} was used as an index, but only integers and booleans can be: "
                "convert it with .astype(tg.int64)."
            )
        if isinstance(index._value, StandIn):
            return index._value
        return int(index) if index.ndim == 0 and index.dtype.kind != "b" else np.array(index._value)
    if isinstance(index, slice):
        start, stop, step = index.start, index.stop, index.step
        if type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS:
            return index
        return slice(*(None if b is None else operator.index(b) for b in (start, stop, step)))
    if isinstance(index, list) and any(isinstance(i, Tensor | StandIn) for i in index):
        return np.stack([as_array(_plain_index(i)) for i in index])
    if isinstance(index, list):
        return as_array([_plain_index(i) for i in index], None if index else np.intp)
    if isinstance(index, range):
        return np.arange(index.start, index.stop, index.step)
    if isinstance(index, np.ndarray):
        return duplicate(index)  # the tape keeps the index: it must not change under it
    return index


_BOUNDS = (int, type(None))
_PLAIN = frozenset((int, type(None), type(Ellipsis)))


_GETITEM = getitem.primitive.code


def _entries_at(computed: StandIn, t: Tensor, index: Any) -> Tensor:
    """`t[index]` of a tensor without history, at places or a mask that a program computes."""
    data = t._value
    try:
        computed.admit(t)  # so that `t[mask] *= 2` reads what it writes
    except TraceError:  # somebody else has the memory, too
        return wrap(computed.entries_of(data, index))
    return getitem(t, index)


def _getitem_method(self: Tensor, index: Any) -> Tensor:
    """`t[index]`: a view where NumPy gives one (an int index of a 1-d tensor gives a scalar, a copy)."""
    data = self._value
    if type(data) is not np.ndarray and type(self) is Tensor and isinstance(data, StandIn):
        number = data.entry(index)
        if number is not None:
            t = next(blank)
            t._value = number
            t._node = node = self._node
            if node is not None:
                record = RECORDER.get()
                if not record:
                    return track(getitem.primitive, (node,), (data,), number, (index,))
                t._node = slot = new_slot()
                record((_GETITEM, slot, node, None, data, None, number, (index,)))
            return t
    if type(index) is not int:
        index = _plain_index(index)
        if type(data) is np.ndarray and type(self) is Tensor and tracing.get() is not None:
            for part in computed(index) if self._node is None else ():
                if part.ndim:
                    return _entries_at(part, self, index)
    picked = getitem(self, index)
    if picked._node is None and type(picked) is Tensor and isinstance(picked._value, np.generic):
        # A tracked one is known by its entry (inplace._refuse_picked).
        picked._extra = {"picked": True}
    return picked


Tensor.__getitem__ = _getitem_method


@primitive(
    np.take,
    forward=lambda x, indices, axis: np.take(x, indices, axis),
    linear=True,
    pattern="moves",
    samples=[
        call((4,), indices=_rows),
        call((3, 4), indices=_rows, axis=0),
        call((2, 3), indices=np.array([[0, 5], [5, 1]])),
    ],
)
def take(g, x_shape, *, indices, axis=None):
    """Entries at integer positions along an axis (of the flattened tensor, for axis None)."""
    if axis is None:
        return np.reshape(scatter(g, as_array(indices), (int(np.prod(x_shape)),)), x_shape)
    axis %= len(x_shape)
    return scatter(g, (slice(None),) * axis + (as_array(indices),), x_shape)


def _take_method(
    self: Tensor, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Any:
    if out is None and mode == "raise":
        return take(self, _plain_index(indices), axis)
    return np.take(self, _plain_index(indices), axis, out, mode)  # type: ignore[call-overload]


Tensor.take = _take_method


@primitive(
    lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    name="shown_diagonal",
    linear=True,
    pattern="moves",
    view=True,
    samples=[
        call((3, 4), offset=1, axis1=0, axis2=1),
        call((2, 3, 4), offset=-1, axis1=2, axis2=0),
        call((2, 3), offset=5, axis1=0, axis2=1),
    ],
)
def shown_diagonal(g, x_shape, *, offset, axis1, axis2):
    """The entries on a diagonal of two axes, along a new last axis: a read-only view, whatever strides lead along it."""
    last = (
        *(x_shape[k] for k in range(len(x_shape)) if k not in (axis1, axis2)),
        x_shape[axis1],
        x_shape[axis2],
    )
    places = _diagonal_places(offset, g.shape[-1])
    return np.moveaxis(scatter(g, (..., *places), last), (-2, -1), (axis1, axis2))


def _diagonal_places(offset: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the n entries on a diagonal."""
    steps = np.arange(n)
    return steps - min(offset, 0), steps + max(offset, 0)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The entries on a diagonal of two axes, along a new last axis: a view, read-only where no slice of a reshaped `x` shows it.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.diagonal(m)
    tensor([1., 4.])
    """
    found = _diagonal(x, offset, axis1, axis2)
    return locked(found, x) if isinstance(getattr(x, "_value", x), StandIn) else found


def _diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    """The entries on a diagonal: a view, but copies where a program is traced."""
    shape = np.shape(x)
    if len(shape) < 2:
        raise ValueError(
            f"a diagonal was asked of shape {shape}, but it lies between two axes: diag makes a matrix of a vector."
        )
    axes = range(len(shape))
    offset = operator.index(offset)
    axis1, axis2 = (
        normalize_axis_index(axis, len(shape), name)
        for axis, name in ((axis1, "axis1"), (axis2, "axis2"))
    )
    if axis1 == axis2:
        raise ValueError("axis1 and axis2 cannot be the same")
    if _later(x, axis1, axis2):
        offset, axis1, axis2 = -offset, axis2, axis1
    rows, columns = shape[axis1], shape[axis2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    whole = x
    if (axis1, axis2) != (axes[-2], axes[-1]):
        x = np.moveaxis(x, (axis1, axis2), (-2, -1))
    if isinstance(getattr(x, "_value", x), StandIn):
        # A compiled program reads and adds at places better than at strides.
        return x[(..., *_diagonal_places(offset, n))]
    flat = np.reshape(x, (*np.shape(x)[:-2], rows * columns))
    if isinstance(flat, Tensor) and base_of(flat) is not base_of(x):
        return shown_diagonal(whole, offset, axis1, axis2)
    first = offset if offset >= 0 else -offset * columns
    along = slice(first, first + n * (columns + 1), columns + 1) if n else slice(0)
    return flat[along if len(shape) == 2 else (..., along)]


def _later(x: Any, axis1: int, axis2: int) -> bool:
    """Whether the memory of a tensor has `axis1` after `axis2`, so that the transpose is the one in the order of rows."""
    data = getattr(x, "_value", None)
    return type(data) is np.ndarray and 0 < data.strides[axis1] < data.strides[axis2]


def locked(t: Any, x: Any) -> Any:
    """`t`, made of entries of x, as read-only.

    While a program is traced, `t` has copies of the entries, of which NumPy would make a view: nothing may be written to x as long as
    `t` lives, which would not see that. So `t` holds x, which may be such a copy too.
    """
    if isinstance(t, Tensor):
        if type(t._value) is np.ndarray:
            t._value.flags.writeable = False
        else:
            t._put("locked", (x,))
            x._value.copied_by(t)
    return t


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Sum of the entries on a diagonal.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.trace(m).item()
    5.0
    """
    return np.sum(_diagonal(x, offset, axis1, axis2), axis=-1)


FUNCTIONS[np.diagonal] = diagonal
FUNCTIONS[np.trace] = trace
Tensor.diagonal = diagonal
Tensor.trace = trace
