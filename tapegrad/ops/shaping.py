"""Shaping: the same entries in another shape, order or dtype. All are linear, most are views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.primitive import FUNCTIONS, call, primitive
from ..core.storage import axes_in_memory, packed
from ..core.tensor import Tensor


def _no_order(order: Any) -> Any:
    raise ValueError(
        f"order={order!r} was asked, but how that reads depends on the memory layout, which a cotangent does not share: use "
        "order 'C' or 'F'."
    )


def _reshaped_in_all_directions(given: Any, x: Any, out: Any, shape: Any, order: Any) -> Any:
    t = given[0]
    return np.reshape(t, (len(t), *out.shape)) if order == "C" else None


def _transposed_in_all_directions(given: Any, x: Any, out: Any, axes: Any) -> Any:
    """The first axis stays first."""
    t = given[0]
    n = t.ndim - 1
    axes = range(n)[::-1] if axes is None else np.reshape(axes, (-1,)).tolist()
    return np.transpose(t, (0, *(axis % n + 1 for axis in axes)))


@primitive(
    np.reshape,
    forward=lambda x, shape, order: np.reshape(
        x, shape, order=order if order in ("C", "F") else _no_order(order)
    ),
    linear=True,
    pattern="moves",
    directions=_reshaped_in_all_directions,
    view=True,
    backward="View",
    samples=[
        call((2, 6), shape=(3, 4)),
        call((2, 3), shape=(-1,)),
        call((2, 3), shape=(3, 2), order="F"),
    ],
)
def reshape(g, x_shape, *, shape, order="C"):
    """The entries in another shape; one length may be -1.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.reshape(m, (4,))
    tensor([1., 2., 3., 4.])
    """
    return np.reshape(g, x_shape, order=order)


def ravel(x, order="C"):
    """All entries along one axis, in memory without gaps: a view where the operand's has none.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.ravel(m)
    tensor([1., 2., 3., 4.])
    """
    flat = reshape(x, -1, order)
    return flat if packed(getattr(flat, "_value", flat)) else copy(flat)


def flatten(x, start_dim=0, end_dim=-1):
    """A copy with axes `start_dim` to `end_dim` as one; all of them by default. A letter is NumPy's `order`: `t.flatten("F")`.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.flatten(m)
    tensor([1., 2., 3., 4.])
    """
    if isinstance(start_dim, str):
        return copy(reshape(x, -1, start_dim))
    shape = np.shape(x)
    n = max(len(shape), 1)
    start, end = (range(n)[dim] if -n <= dim < n else n for dim in (start_dim, end_dim))
    if end == n or start > end:
        raise ValueError(
            f"flatten was asked to join axes {start_dim} to {end_dim} of a tensor of {len(shape)} axes: name existing axes, the first "
            "one first."
        )
    joined = math.prod(shape[start : end + 1])
    return copy(reshape(x, (*shape[:start], joined, *shape[end + 1 :])))


@primitive(
    np.transpose,
    linear=True,
    pattern="moves",
    directions=_transposed_in_all_directions,
    view=True,
    backward="Permute",
    samples=[call((2, 3)), call((2, 3, 4), axes=(1, 2, 0)), call((3,)), call((3,), axes=0)],
)
def transpose(g, *, axes=None):
    """Axes in another order; reversed by default. One number is the order of one axis.

    >>> import tapegrad as tg
    >>> tg.transpose(tg.ones((1, 2))).shape
    (2, 1)
    """
    return np.transpose(
        g,
        None
        if np.ndim(axes) == 0
        else tuple(int(i) for i in np.argsort([a % len(axes) for a in axes])),
    )


@primitive(
    np.swapaxes,
    linear=True,
    pattern="moves",
    view=True,
    backward="Transpose",
    method=True,
    samples=[call((2, 3, 4), axis1=0, axis2=-1)],
)
def swapaxes(g, *, axis1, axis2):
    """Two axes exchanged.

    >>> import tapegrad as tg
    >>> tg.swapaxes(tg.ones((1, 2)), 0, 1).shape
    (2, 1)
    """
    return np.swapaxes(g, axis1, axis2)


@primitive(
    np.moveaxis,
    linear=True,
    pattern="moves",
    view=True,
    backward="Permute",
    samples=[
        call((2, 3, 4), source=0, destination=2),
        call((2, 3, 4), source=(0, 1), destination=(-1, 0)),
    ],
)
def moveaxis(g, *, source, destination):
    """Axes moved to other positions, the rest in order.

    >>> import tapegrad as tg
    >>> tg.moveaxis(tg.ones((1, 2, 3)), 0, -1).shape
    (2, 3, 1)
    """
    return np.moveaxis(g, destination, source)


@primitive(
    np.expand_dims,
    linear=True,
    pattern="moves",
    view=True,
    backward="Unsqueeze",
    samples=[call((3,), axis=0), call((2, 3), axis=(0, -1))],
)
def expand_dims(g, x_shape, *, axis):
    """New axes of length 1.

    >>> import tapegrad as tg
    >>> tg.expand_dims(tg.ones(3), 0).shape
    (1, 3)
    """
    return np.reshape(g, x_shape)


def _squeezed(x: Any, axis: Any = None) -> Any:
    out = np.squeeze(x, axis)
    return (
        out.view() if out is x and type(x) is np.ndarray else out
    )  # an array of its own, as a view is


@primitive(
    np.squeeze,
    forward=_squeezed,
    linear=True,
    pattern="moves",
    view=True,
    method=True,
    samples=[call((1, 3, 1)), call((1, 3, 1), axis=0), call((1, 1)), call((2, 3))],
)
def squeeze(g, x_shape, *, axis=None):
    """Axes of length 1 removed.

    >>> import tapegrad as tg
    >>> tg.squeeze(tg.ones((1, 3))).shape
    (3,)
    """
    return np.reshape(g, x_shape)


@primitive(
    np.broadcast_to,
    linear=True,
    pattern="moves",
    view=True,
    backward="Expand",
    samples=[call((3,), shape=(2, 3)), call((2, 1), shape=(4, 2, 3))],
)
def broadcast_to(g, x_shape, *, shape):
    """The entries repeated along axes, without copying; a cotangent is the sum over the repeats.

    >>> import tapegrad as tg
    >>> tg.broadcast_to(tg.ones(3), (2, 3)).shape
    (2, 3)
    """
    extra = g.ndim - len(x_shape)
    g = np.sum(g, axis=tuple(range(extra)))
    stretched = tuple(i for i, n in enumerate(x_shape) if n == 1 and g.shape[i] != 1)
    return np.sum(g, axis=stretched, keepdims=True) if stretched else g


@primitive(
    np.flip,
    linear=True,
    pattern="moves",
    view=True,
    samples=[call((3,)), call((2, 3), axis=0), call((2, 3, 2), axis=(0, 2))],
)
def flip(g, *, axis=None):
    """Entries in reverse order along axes.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.flip(t)
    tensor([4., 2., 1.])
    """
    return np.flip(g, axis)


def _copied(x: Any) -> Any:
    return np.array(x)


@primitive(
    _copied,
    name="copy",
    linear=True,
    pattern="same",
    backward="Clone",
    method=True,
    samples=[call((2, 3))],
)
def copy(g):
    """A copy in memory of its own."""
    return g


FUNCTIONS[np.copy] = copy


def _copy_method(self: Tensor, order: str = "C") -> Any:
    """A copy whose memory is in the order of rows, or of columns for "F", or as it was for "K".

    As in NumPy the method has another default than `np.copy`, which keeps the order: `x.T.copy().ravel()` is a view of the copy.
    """
    if order == "C":
        if packed(self._value):
            return copy(self)
        return reshape(copy(reshape(self, -1)), np.shape(self))
    if order == "F":
        return transpose(_copy_method(transpose(self, None)), None)
    if order == "K":
        return copy(self)
    raise ValueError(f"copy(order={order!r}) was asked of a tensor: write 'C', 'F' or 'K'.")


def converted(
    x: Tensor, dtype: Any = None, order: str | None = "K", copied: bool | None = None
) -> Tensor:
    """What `np.asarray` makes of a tensor: the tensor itself where dtype and order are as asked, unless it is to be `copied`.

    `copied=False` raises ValueError where only a copy would do, as in NumPy.
    """
    made = x if dtype is None or x.dtype == np.dtype(dtype) else x.astype(dtype)
    if order == "A" and copied:
        order = "F" if packed(made._value, "F") and not packed(made._value) else "C"
    if order in ("C", "F") and not packed(made._value, order):
        made = _copy_method(made, order)
    elif order not in ("C", "F", "A", "K", None):
        raise ValueError(f"order={order!r} was asked of a tensor: write 'C', 'F', 'A' or 'K'.")
    if made is x and copied:
        return copy(x)
    if made is not x and copied is False:
        raise ValueError(
            f"copy=False was asked of a tensor of dtype {x.dtype}, but another dtype or order needs a copy: leave `copy` away."
        )
    return made


def laid_like(made: Any, x: Any) -> Any:
    """The array or tensor with its axes in memory in the order that a copy of `x` has: where NumPy fills a copy, ours may lie otherwise."""
    return laid_along(made, axes_in_memory(getattr(x, "_value", x)))


def laid_along(made: Any, axes: Sequence[int] | None) -> Any:
    """The array or tensor with these axes from the outermost in memory to the innermost; None for C order."""
    turned = in_rows(made if axes is None else np.transpose(made, axes))
    return turned if axes is None else np.transpose(turned, np.argsort(axes).tolist())


def in_rows(made: Any) -> Any:
    """The array or tensor in C order: itself, or a copy."""
    if packed(getattr(made, "_value", made)):
        return made
    return _copy_method(made) if isinstance(made, Tensor) else np.array(made, order="C")


def _same(x: Any) -> Any:
    return x.view() if type(x) is np.ndarray else x


@primitive(_same, name="alias", linear=True, pattern="same", view=True, samples=[call((2,))])
def alias(g):
    """The same value under a new slot: what a transform differentiates by, when its argument is tracked outside."""
    return g


def _cast(x: Any, dtype: Any) -> Any:
    return np.asarray(x).astype(dtype) if not isinstance(x, np.generic) else dtype.type(x)


@primitive(
    _cast,
    name="astype",
    backward="ToCopy",
    linear=True,
    pattern="same",
    holomorphic=False,
    samples=[call((3,), dtype=np.dtype(np.float64))],
    unsupported={
        "dtype": "to change the dtype is what it does; tests/test_special_values.py has its cotangents",
        "complex": "the one declared call casts to real",
    },
)
def astype(g, *, dtype):
    """Another dtype; the cotangent goes back in the operand's."""
    return g


# -------------------------------------------------------------------------------- methods, as users write them


def _shape_arguments(shape: tuple[Any, ...]) -> Any:
    """`t.reshape(2, 3)` and `t.reshape((2, 3))` mean the same."""
    return shape[0] if len(shape) == 1 else shape


def _reshape_method(self: Tensor, *shape: Any, order: str = "C") -> Any:
    """The entries in another shape: `t.reshape(2, -1)` or `t.reshape((2, -1))`."""
    return reshape(self, _shape_arguments(shape), order)


def _transpose_method(self: Tensor, *axes: Any) -> Any:
    """Axes in another order: `t.transpose()`, `t.transpose(1, 0)` or `t.transpose((1, 0))`."""
    return transpose(self, None if not axes else _shape_arguments(axes))


def _expand(self: Tensor, *shape: Any) -> Any:
    """The entries repeated to a larger shape, without copying; -1 keeps a length."""
    target = _shape_arguments(shape)
    target = (target,) if isinstance(target, int) else tuple(target)
    own = (1,) * (len(target) - self.ndim) + self.shape
    return broadcast_to(self, tuple(o if n == -1 else n for n, o in zip(target, own, strict=True)))


def _view_method(self: Tensor, *shape: Any) -> Any:
    """The entries in another shape, as PyTorch's; without one a tensor that shares the memory, as NumPy's."""
    if not shape:
        return self[...]
    if isinstance(shape[0], str | type | np.dtype):
        raise TypeError(
            f"view({shape[0]!r}) would read the bytes of a {self.dtype} tensor as another dtype, which has no derivative. "
            "t.astype(dtype) converts; t.detach().numpy().view(dtype) shows the bytes."
        )
    return reshape(self, _shape_arguments(shape))


class _Flat:
    """`t.flat`: the entries by number, in the order of rows. The result is a copy; what is stored reaches the tensor."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return self._tensor.size

    def __iter__(self) -> Any:
        return iter(reshape(self._tensor, -1))

    def _places(self, index: Any) -> Any:
        numbers = range(len(self))
        if isinstance(index, int):
            return np.unravel_index(numbers[index], self._tensor.shape)  # type: ignore[call-overload]
        # The type is said, or a choice of no entries would be one of floats.
        chosen = np.asarray(numbers, np.intp)[index]
        return np.unravel_index(chosen, self._tensor.shape)  # type: ignore[call-overload]

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[self._places(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tensor[self._places(index)] = value


Tensor.reshape = _reshape_method
Tensor.copy = _copy_method
Tensor.view = _view_method
Tensor.flat = property(
    _Flat,
    doc="The entries by number, in the order of rows, to read and to store: `t.flat[::n] = 1`.",
)
Tensor.transpose = Tensor.permute = _transpose_method
Tensor.expand = _expand
Tensor.ravel = ravel
Tensor.flatten = flatten
Tensor.T = property(lambda self: transpose(self, None), doc="Axes in reverse order.")
Tensor.mT = property(lambda self: swapaxes(self, -1, -2), doc="The last two axes exchanged.")
Tensor.t = lambda self: transpose(self, None)
Tensor.t.__doc__ = "Axes in reverse order: the transpose of a matrix."
Tensor.unsqueeze = lambda self, dim: expand_dims(self, dim)
Tensor.unsqueeze.__doc__ = "A new axis of length 1, at `dim`."
FUNCTIONS[np.ravel] = ravel
