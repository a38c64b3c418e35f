"""Joining and splitting: several tensors into one, one into several. Variadic, and linear in all operands jointly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.primitive import FUNCTIONS, apply, call, primitive
from ..core.storage import as_array
from ..core.tensor import Tensor
from .shaping import expand_dims


def _whole(given: Any, values: Any, out: Any) -> list[Any]:
    """Tangents of all operands along several directions, zeros where there are none."""
    width = next(len(t) for t in given if t is not None)
    return [np.zeros((width, *np.shape(x)), out.dtype) if t is None else t for t, x in zip(given, values, strict=True)]  # fmt: skip


def _joined_in_all_directions(given: Any, values: Any, out: Any, axis: Any) -> Any:
    parts = _whole(given, values, out)
    if axis is None:
        return np.concatenate([np.reshape(t, (len(t), -1)) for t in parts], 1)
    return np.concatenate(parts, axis % np.ndim(out) + 1)


def _stacked_in_all_directions(given: Any, values: Any, out: Any, axis: Any) -> Any:
    return np.stack(_whole(given, values, out), axis % np.ndim(out) + 1)


@primitive(
    np.concatenate,
    name="concatenate",
    backward="Cat",
    linear=True,
    pattern="moves",
    directions=_joined_in_all_directions,
    samples=[
        call((2,), (3,)),
        call((2, 3), (2, 1), axis=1),
        call((1, 2), (2, 2), (1, 2), axis=-2),
        call((2, 2), (3,), axis=None),
    ],
)
def concatenate(g, xs_shapes, *, axis=0):
    """Tensors one after the other along an axis (all flattened, for axis None).

    >>> import tapegrad as tg
    >>> tg.concatenate([tg.zeros(1), tg.ones(2)])
    tensor([0., 1., 1.])
    """
    if axis is None:
        ends = list(itertools.accumulate(int(np.prod(s)) for s in xs_shapes))
        return [
            np.reshape(g[e - int(np.prod(s)) : e], s) for s, e in zip(xs_shapes, ends, strict=True)
        ]
    axis %= len(xs_shapes[0])
    ends = list(itertools.accumulate(s[axis] for s in xs_shapes))
    before = (slice(None),) * axis
    return [g[(*before, slice(e - s[axis], e))] for s, e in zip(xs_shapes, ends, strict=True)]


@primitive(
    np.stack,
    linear=True,
    pattern="moves",
    directions=_stacked_in_all_directions,
    samples=[call((3,), (3,)), call((2, 3), (2, 3), axis=-1), call((), ())],
)
def stack(g, xs_shapes, *, axis=0):
    """Tensors of one shape along a new axis.

    >>> import tapegrad as tg
    >>> tg.stack([tg.zeros(2), tg.ones(2)])
    tensor([[0., 0.],
            [1., 1.]])
    """
    axis %= len(xs_shapes[0]) + 1
    before = (slice(None),) * axis
    return [g[(*before, i)] for i in range(len(xs_shapes))]


def array(data: Any, dtype: Any = None) -> Any:
    """A tensor from nested sequences whose elements may be tracked: `tg.array([a, b])` stacks them. It never shares memory.

    Numbers alone make a plain array, as in NumPy: `tg.tensor` makes a tensor of them.

    >>> import tapegrad as tg
    >>> a = tg.tensor(2.0, requires_grad=True)
    >>> tg.array([a, a * a, 1.0])
    tensor([2., 4., 1.], grad_fn=<StackBackward0>)
    """
    joined = gathered(data, dtype)
    return np.copy(joined) if joined is data else joined


def gathered(data: Any, dtype: Any = None) -> Any:
    """As `array`, but tensors and arrays come back as they are."""
    if isinstance(data, list | tuple) and any(isinstance(x, Tensor | list | tuple) for x in data):
        joined = apply(stack.primitive, [gathered(x) for x in data], (0,))
    else:
        joined = data if isinstance(data, Tensor) else as_array(data, dtype=dtype)
    return joined.astype(dtype) if dtype is not None and joined.dtype != dtype else joined


def _at_least(n: int, front: bool) -> Any:
    def raised(x: Any) -> Any:
        missing = n - np.ndim(x)
        if missing <= 0:
            return x
        return expand_dims(x, tuple(range(missing)) if front else tuple(range(np.ndim(x), n)))

    return raised


def vstack(tup: Any) -> Any:
    """Tensors as rows, one under the other.

    >>> import tapegrad as tg
    >>> tg.vstack([tg.zeros(2), tg.ones(2)])
    tensor([[0., 0.],
            [1., 1.]])
    """
    return concatenate([_at_least(2, True)(x) for x in tup], 0)


def hstack(tup: Any) -> Any:
    """Tensors side by side: along the first axis if 1-d, else the second.

    >>> import tapegrad as tg
    >>> tg.hstack([tg.zeros(1), tg.ones(2)])
    tensor([0., 1., 1.])
    """
    parts = [_at_least(1, True)(x) for x in tup]
    return concatenate(parts, 0 if parts and np.ndim(parts[0]) == 1 else 1)


def column_stack(tup: Any) -> Any:
    """1-d tensors as the columns of a matrix; 2-d ones side by side.

    >>> import tapegrad as tg
    >>> tg.column_stack([tg.zeros(2), tg.ones(2)])
    tensor([[0., 1.],
            [0., 1.]])
    """
    return concatenate([_at_least(2, False)(x) for x in tup], 1)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along an axis: at the given indices, or so many, the first ones longer where they do not divide evenly.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.array_split(t, 2)
    [tensor([1., 2.]), tensor([4.])]
    """
    axis = normalize_axis_index(axis, np.ndim(ary))
    n = np.shape(ary)[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        short, extra = divmod(n, sections)
        cuts = list(itertools.accumulate([short + 1] * extra + [short] * (sections - extra)))[:-1]
    else:
        cuts = [int(i) for i in indices_or_sections]
    before = (slice(None),) * axis
    return [ary[(*before, slice(a, b))] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along an axis: at the given indices, or so many of equal length (ValueError if they do not divide evenly).

    >>> import tapegrad as tg
    >>> tg.split(tg.tensor([1.0, 2.0]), 2)
    [tensor([1.]), tensor([2.])]
    """
    axis = normalize_axis_index(axis, np.ndim(ary))
    sections = int(indices_or_sections) if np.ndim(indices_or_sections) == 0 else 0
    if sections and np.shape(ary)[axis] % sections:
        raise ValueError(
            f"an axis of length {np.shape(ary)[axis]} does not split into {indices_or_sections} equal parts: use "
            "array_split, or give the indices to cut at."
        )
    return array_split(ary, indices_or_sections, axis)


def unbind(x: Any, dim: int = 0, *, axis: int | None = None) -> tuple[Any, ...]:
    """The slices along an axis, as a tuple. Raises ValueError for a number, which has no axis.

    >>> import tapegrad as tg
    >>> tg.unbind(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)
    (tensor([1., 3.]), tensor([2., 4.]))
    """
    if np.ndim(x) == 0:
        raise ValueError(
            "unbind was asked to take a 0-d tensor apart, but it has no axis: use t.item(), or reshape it first."
        )
    axis = normalize_axis_index(dim if axis is None else axis, np.ndim(x))
    before = (slice(None),) * axis
    return tuple(x[(*before, i)] for i in range(np.shape(x)[axis]))


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, as a tuple (NumPy's name for unbind).

    >>> import tapegrad as tg
    >>> tg.unstack(tg.tensor([1.0, 2.0]))
    (tensor(1.), tensor(2.))
    """
    return unbind(x, axis)


for _of, _function in (
    (np.vstack, vstack), (np.hstack, hstack), (np.column_stack, column_stack),
    (np.array_split, array_split), (np.split, split), (np.unstack, unstack),
):  # fmt: skip
    FUNCTIONS[_of] = _function
Tensor.split = split
Tensor.unbind = unbind
