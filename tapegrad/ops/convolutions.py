"""Convolutions of arrays of any number of axes, by SciPy's routines: `convolve`, `correlate` and their two-dimensional forms.

There is one op, the convolution in full or where the operands overlap entirely; its derivatives are convolutions of these kinds
again, as those of NumPy's `convolve` in one dimension are (calculus.py). The other modes and boundaries are slices and
paddings of it. SciPy chooses between sums and Fourier transforms, by what is faster.

Invariant: both operands of the op have as many axes. SciPy is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.primitive import call, primitive
from .calculus import _flipped
from .composing import operand

Axes = tuple[Sequence[int], Sequence[int]]


def _convolved(x: Any, y: Any, mode: str, method: str) -> Any:
    from scipy.signal import convolve

    return convolve(x, y, mode, method)


def _convolved_x(g: Any, y: Any, x_shape: Any, mode: str, method: str) -> Any:
    """Cotangent of the operand of that shape, whose partner is `y`: a convolution with the partner reversed.

    A full convolution pulls back by a valid one. A valid one pulls back by a full one to the larger operand, and by a valid
    one to the smaller.
    """
    larger = all(n >= m for n, m in zip(x_shape, np.shape(y), strict=True))
    back = "full" if mode == "valid" and larger else "valid"
    return convolve_nd(g, _flipped(y), mode=back, method=method)


def _convolved_y(g, x, y_shape, *, mode="full", method="auto"):
    """Cotangent of the second operand: the same rule with the operands exchanged."""
    return _convolved_x(g, x, y_shape, mode, method)


@primitive(
    _convolved,
    _convolved_y,
    name="convolve_nd",
    linear=True,
    samples=[
        call((3, 2), (2, 4)),
        call((4,), (2,)),
        call((4, 5), (2, 3), mode="valid", method="direct"),
        call((2, 2), (3, 4), mode="valid", method="fft"),
    ],
    unsupported={"complex_step": "an imaginary part of 1e-30 is lost in a Fourier transform"},
)
def convolve_nd(g, x_shape, y, *, mode="full", method="auto"):
    """Discrete convolution of arrays, in full or where they overlap entirely."""
    return _convolved_x(g, y, x_shape, mode, method)


def _operands(in1: Any, in2: Any) -> tuple[Any, Any]:
    in1, in2 = operand(in1), operand(in2)
    if np.ndim(in1) != np.ndim(in2):
        raise ValueError(
            f"a convolution was asked of arrays with {np.ndim(in1)} and {np.ndim(in2)} axes: give the smaller one axes of length 1."
        )
    return in1, in2


def _part(full: Any, shape: Sequence[int], start: Sequence[int]) -> Any:
    return full[tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]


def _known(mode: str) -> str:
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode {mode!r} was asked, but a convolution is made in mode 'full', 'same' or 'valid'.")  # fmt: skip
    return mode


def convolve(
    in1: Any,
    in2: Any,
    mode: str = "full",
    method: str = "auto",
    *,
    axes: Axes | None = None,
    dot_axes: Axes = ((), ()),
) -> Any:
    """Convolution of arrays of as many axes: in full, of the shape of `in1` ("same"), or without the edges ("valid").

    With `axes`, as in HIPS autograd: pairs of axes are convolved, those named in `dot_axes` are summed over, and the result has
    the rest of `in1`, the rest of `in2` and then the convolved axes.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda k: tg.signal.convolve(np.ones((3, 3)), k, "valid").sum())(np.zeros((2, 2)))
    array([[4., 4.],
           [4., 4.]])
    """
    _known(mode)
    if axes is not None:
        return _along(operand(in1), operand(in2), axes, dot_axes, mode)
    in1, in2 = _operands(in1, in2)
    if mode != "same":
        return convolve_nd(in1, in2, mode=mode, method=method)
    full = convolve_nd(in1, in2, mode="full", method=method)
    return _part(full, np.shape(in1), [(n - 1) // 2 for n in np.shape(in2)])


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Cross-correlation: sums of products with the (conjugated) `in2` moved along `in1`.

    >>> import tapegrad as tg
    >>> tg.signal.correlate(tg.tensor([1.0, 2.0]), [1.0, 1.0]).numpy().round(6)
    array([1., 3., 2.])
    """
    in1, in2 = _operands(in1, in2)
    return convolve(in1, _flipped(in2), mode, method)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """The same as `convolve`, by Fourier transforms; with `axes` along these alone, and entry by entry along the others.

    >>> import tapegrad as tg
    >>> tg.signal.fftconvolve(tg.tensor([1.0, 2.0]), [1.0, 1.0]).numpy().round(6)
    array([1., 3., 2.])
    """
    _known(mode)
    in1, in2 = _operands(in1, in2)
    if axes is None:
        return convolve(in1, in2, mode, "fft")
    along = [a % np.ndim(in1) for a in np.atleast_1d(axes)]
    shape1, shape2 = np.shape(in1), np.shape(in2)
    sizes = [shape1[a] + shape2[a] - 1 for a in along]
    real = np.isrealobj(in1) and np.isrealobj(in2)
    there, back = (np.fft.rfftn, np.fft.irfftn) if real else (np.fft.fftn, np.fft.ifftn)
    full = back(there(in1, sizes, along) * there(in2, sizes, along), sizes, along)
    if mode == "full":
        return full
    start, shape = [0] * np.ndim(full), list(np.shape(full))
    for a in range(np.ndim(full)):
        if a not in along:  # broadcast: "same" takes the middle here, too
            start[a], shape[a] = (
                ((shape[a] - shape1[a]) // 2, shape1[a]) if mode == "same" else (0, shape[a])
            )
            continue
        short, long = sorted((shape1[a], shape2[a]))
        start[a] = short - 1 if mode == "valid" else (shape2[a] - 1) // 2
        shape[a] = long - short + 1 if mode == "valid" else shape1[a]
    return _part(full, shape, start)


_PADDINGS = {"wrap": "wrap", "circular": "wrap", "symm": "symmetric", "symmetric": "symmetric"}


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    """Convolution of two matrices; beyond its edges `in1` is filled with a number, goes round ("wrap") or is mirrored ("symm").

    >>> import numpy as np, tapegrad as tg
    >>> tg.signal.convolve2d(tg.ones((2, 2)), np.ones((2, 2))).shape
    (3, 3)
    """
    in1, in2 = _matrices(in1, in2)
    return _within(in1, in2, mode, boundary, fillvalue, [(n - 1) // 2 for n in np.shape(in2)])


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    """Cross-correlation of two matrices, with the boundaries of `convolve2d`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.signal.correlate2d(tg.ones((2, 2)), np.ones((2, 2))).shape
    (3, 3)
    """
    in1, in2 = _matrices(in1, in2)
    if mode == "valid" and np.shape(in2) > np.shape(in1):  # SciPy conjugates the smaller one
        in1, in2 = np.conj(in1), np.conj(in2)
    return _within(in1, _flipped(in2), mode, boundary, fillvalue, [n // 2 for n in np.shape(in2)])


def _matrices(in1: Any, in2: Any) -> tuple[Any, Any]:
    in1, in2 = operand(in1), operand(in2)
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(f"convolve2d and correlate2d take two matrices, but were given {np.ndim(in1)} and {np.ndim(in2)} axes: use convolve.")  # fmt: skip
    return in1, in2


def _within(in1: Any, in2: Any, mode: str, boundary: str, value: Any, start: list[int]) -> Any:
    if boundary not in ("fill", "pad", *_PADDINGS):
        raise ValueError(f"boundary {boundary!r} was asked, but it is 'fill', 'wrap' or 'symm'.")
    if _known(mode) == "valid":  # no sum reaches beyond an edge
        return convolve_nd(in1, in2, mode="valid", method="direct")
    edges = [(n - 1, n - 1) for n in np.shape(in2)]
    if boundary in _PADDINGS:
        padded = np.pad(in1, edges, _PADDINGS[boundary])  # type: ignore[call-overload]
    else:
        padded = np.pad(in1, edges, constant_values=value)
    full = convolve_nd(padded, in2, mode="valid", method="direct")
    return full if mode == "full" else _part(full, np.shape(in1), start)


def _along(in1: Any, in2: Any, axes: Axes, dot_axes: Axes, mode: str) -> Any:
    """Convolution along pairs of axes, by windows of `in1` as large as `in2`."""
    (along1, dot1), (along2, dot2) = (
        [[a % np.ndim(x) for a in named] for named in (moved, summed)]
        for x, moved, summed in zip((in1, in2), axes, dot_axes, strict=True)
    )
    widths = [np.shape(in2)[a] for a in along2]
    if mode == "valid" and any(np.shape(in1)[a] < n for a, n in zip(along1, widths, strict=True)):
        swapped = _along(in2, in1, (along2, along1), (dot2, dot1), mode)
        rest2, rest1 = (np.ndim(x) - len(along1) - len(dot1) for x in (in2, in1))
        moved = [*range(rest2, rest2 + rest1), *range(rest2), *range(rest2 + rest1, np.ndim(swapped))]  # fmt: skip
        return np.transpose(swapped, moved)
    edges = [(0, 0)] * np.ndim(in1)
    for a, n in zip(along1, widths, strict=True):
        if mode != "valid":
            edges[a] = (n - 1, n - 1) if mode == "full" else (n - 1 - (n - 1) // 2, (n - 1) // 2)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(in1, edges), widths, along1)
    inner = [*dot1, *range(np.ndim(in1), np.ndim(in1) + len(widths))]
    result = np.tensordot(windows, np.flip(in2, along2), (inner, [*dot2, *along2]))
    kept = [a for a in range(np.ndim(in1)) if a not in dot1]
    order = [i for i, a in enumerate(kept) if a not in along1]
    order += range(len(kept), np.ndim(result))
    return np.transpose(result, [*order, *(kept.index(a) for a in along1)])


__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]
