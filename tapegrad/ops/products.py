"""Products of matrices and vectors. Bilinear: linear in each operand, so the JVP is the op itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.primitive import FUNCTIONS, _operators, call, conj, primitive
from ..core.tensor import Tensor
from .shaping import in_rows

_SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((5, 2, 3), (5, 3, 2)),
    ((2, 3), (4, 3, 2)),
    ((4, 2, 3), (3,)),
]


def _matmul_name(x: Any, y: Any, kw: Any) -> str:
    return {(2, 2): "Mm", (2, 1): "Mv", (1, 1): "Dot"}.get(
        (np.ndim(x), np.ndim(y)), "Bmm"
    ) + "Backward0"


def _transposed(x: Any) -> Any:
    return conj(np.swapaxes(x, -1, -2))


def _matmul_y(g, x, y_shape):
    """Cotangent of the second factor: xᴴ g."""
    if np.ndim(x) == 1:
        if len(y_shape) == 1:
            return g * conj(x)
        return conj(x)[:, None] * np.expand_dims(g, -2)
    if len(y_shape) == 1:
        return np.sum(conj(x) * np.expand_dims(g, -1), axis=tuple(range(np.ndim(x) - 1)))
    return np.matmul(_transposed(x), g)


def _in_all_directions(given: Any, values: Any, out: Any) -> Any:
    """A constant matrix times a vector, of each direction: the model of a linear fit."""
    x, y = values
    if given[0] is not None or np.ndim(x) != 2 or np.ndim(y) != 1 or given[1].dtype != x.dtype:
        return None
    return given[1] @ x.T


@primitive(
    np.matmul,
    _matmul_y,
    linear=True,
    directions=_in_all_directions,
    backward=_matmul_name,
    samples=[call(*s) for s in _SHAPES],
)
def matmul(g, x_shape, y):
    """Matrix product, `x @ y`, of vectors, matrices and stacks of matrices.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.matmul(m, [1.0, 1.0])
    tensor([3., 7.])
    """
    if np.ndim(y) == 1:
        if len(x_shape) == 1:
            return g * conj(y)
        return np.expand_dims(g, -1) * conj(y)
    if len(x_shape) == 1:
        return np.sum(np.expand_dims(g, -2) * conj(y), axis=(*range(np.ndim(y) - 2), -1))
    return np.matmul(g, _transposed(y))


_operators(matmul.primitive, "matmul", "@")


def _dot_y(g, x, y_shape):
    """Cotangent of the second factor of dot: contract all axes of x but the last with those of g."""
    lead = tuple(range(np.ndim(x) - 1))
    grown = np.tensordot(conj(x), g, (lead, lead))
    # Axes now: the contracted one, then y's others; put it back second to last.
    return grown if len(y_shape) <= 1 else np.moveaxis(grown, 0, -2)


@primitive(
    np.dot,
    _dot_y,
    linear=True,
    samples=[
        call((3,), (3,)),
        call((2, 3), (3, 4)),
        call((2, 3), (3,)),
        call((3,), (3, 2)),
        call((2, 3), (4, 3, 2)),
    ],
)
def contraction(g, x_shape, y):
    """NumPy's dot: the last axis of x with the second to last of y."""
    if np.ndim(y) == 1:
        return np.multiply.outer(g, conj(y)) if len(x_shape) > 1 else g * conj(y)
    axes = tuple(range(len(x_shape) - 1, np.ndim(g)))
    others = tuple(i for i in range(np.ndim(y)) if i != np.ndim(y) - 2)
    return np.tensordot(g, conj(y), (axes, others))


def _typed(x: Any) -> Any:
    """A Python number in the dtype that NumPy's products give it, which decides on theirs: `np.dot` knows no weak numbers."""
    return np.asarray(x) if isinstance(x, int | float | complex) else x


def _scaled(x: Any, y: Any) -> Any:
    """The product with a number. What NumPy gives to BLAS, inexact matrices for one, comes back in C order."""
    made = _typed(x) * _typed(y)
    return in_rows(made) if np.ndim(made) == 2 and made.dtype.kind in "fc" else made


def dot(x: Any, y: Any) -> Any:
    """NumPy's dot: inner product of vectors, matrix product, or product by a scalar.

    >>> import tapegrad as tg
    >>> tg.dot(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0]))
    tensor(11.)
    """
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        return _scaled(x, y)
    if np.ndim(x) <= 2 and np.ndim(y) <= 2:
        return matmul(x, y)
    return contraction(x, y)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum of products over pairs of axes, as NumPy's tensordot.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.tensordot(m, m, axes=2).item()
    30.0
    """
    if np.ndim(axes) == 0:
        n = int(axes)
        axes_a, axes_b = tuple(range(np.ndim(a) - n, np.ndim(a))), tuple(range(n))
    else:
        axes_a, axes_b = ((x,) if np.ndim(x) == 0 else tuple(x) for x in axes)
    axes_a = tuple(normalize_axis_index(i, np.ndim(a)) for i in axes_a)
    axes_b = tuple(normalize_axis_index(i, np.ndim(b)) for i in axes_b)
    shape_a, shape_b = np.shape(a), np.shape(b)
    if [shape_a[i] for i in axes_a] != [shape_b[i] for i in axes_b]:
        raise ValueError(
            f"tensordot was asked to sum axes {axes_a} of shape {shape_a} with axes {axes_b} of shape {shape_b}, but "
            "their lengths differ."
        )
    rest_a = tuple(i for i in range(len(shape_a)) if i not in axes_a)
    rest_b = tuple(i for i in range(len(shape_b)) if i not in axes_b)
    # Lengths are counted, not left to -1, which cannot be told where an axis is empty.
    summed = math.prod(shape_a[i] for i in axes_a)
    rows, columns = (math.prod(s[i] for i in r) for s, r in ((shape_a, rest_a), (shape_b, rest_b)))
    left = np.reshape(np.transpose(a, rest_a + axes_a), (rows, summed))
    right = np.reshape(np.transpose(b, axes_b + rest_b), (summed, columns))
    shape = tuple(shape_a[i] for i in rest_a) + tuple(shape_b[i] for i in rest_b)
    return np.reshape(matmul(left, right), shape)


def outer(a: Any, b: Any) -> Any:
    """All products of an entry of a with one of b: a matrix.

    >>> import tapegrad as tg
    >>> tg.outer(tg.tensor([1.0, 2.0]), [1.0, 10.0])
    tensor([[ 1., 10.],
            [ 2., 20.]])
    """
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axes.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.inner(t, t).item()
    21.0
    """
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return _scaled(a, b)
    return tensordot(a, b, ((-1,), (-1,)))


def vdot(a: Any, b: Any) -> Any:
    """Inner product of the flattened operands, the first conjugated.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.vdot(t, t).item()
    21.0
    """
    return matmul(conj(np.reshape(a, -1)), np.reshape(b, -1))


for _of, _function in (
    (np.dot, dot),
    (np.tensordot, tensordot),
    (np.outer, outer),
    (np.inner, inner),
    (np.vdot, vdot),
):
    FUNCTIONS[_of] = _function
Tensor.dot = dot
Tensor.matmul = Tensor.mm = Tensor.mv = matmul
