"""Functions of images under the names of `scipy.ndimage`: filters, and images read between their entries.

Filters are correlations (stencils.py), one axis after the other where the kernel is a product. An image moved, turned or stretched is read at
places that are functions of the parameters (image_splines.py). A `cval` other than 0 is added as what it contributes alone.

Invariant: without tensors SciPy's own function runs; else images are floating-point, and keep their precision.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from .calculus import in_double, inexact
from .composing import holds_tensor, operand, raw, rooted
from .image_splines import spline_coefficients, spline_values
from .stencils import NAMES, correlated, extended, reach, running_mean

# ------------------------------------------------------------------------------------------------ arguments


def _plainly(name: str, *args: Any, **kwargs: Any) -> Any:
    from scipy import ndimage

    return getattr(ndimage, name)(*args, **kwargs)


def _demand_no_output(output: Any) -> None:
    if output is not None:
        raise NotDifferentiable(
            "an ndimage function was asked for output= with tensors, but its result is a new tensor. Use the result, with .astype(dtype) for "
            "another dtype."
        )


def _filter_mode(mode: Any) -> str:
    if not isinstance(mode, str) or mode not in NAMES:
        raise RuntimeError(f"boundary mode {mode!r} not supported: it is one of {', '.join(NAMES)}")
    return NAMES[mode]


def _each(value: Any, count: int, what: str) -> list[Any]:
    """One value for each axis, from one for all or a sequence."""
    if isinstance(value, str) or np.ndim(value) == 0:
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise RuntimeError(
            f"{what} was given {len(values)} values for {count} axes: give one, or one for each."
        )
    return values


def _axes(axes: Any, ndim: int) -> list[int]:
    if axes is None:
        return list(range(ndim))
    found = [normalize_axis_index(axis, ndim) for axis in ([axes] if np.ndim(axes) == 0 else axes)]
    if len(set(found)) != len(found):
        raise ValueError("axes must be unique")
    return found


def _along(kernel: Any, axis: int, ndim: int) -> Any:
    """A vector as a kernel along an axis."""
    return np.reshape(kernel, (1,) * axis + (-1,) + (1,) * (ndim - axis - 1))


def _origin(size: int, origin: Any) -> int:
    origin = int(origin)
    if not -(size // 2) <= origin <= (size - 1) // 2:
        raise ValueError("invalid origin")
    return origin


# ------------------------------------------------------------------------------------------------ correlations


def _filtered(x: Any, kernel: Any, mode: str, cval: Any, origins: Sequence[int]) -> Any:
    """Correlation with a kernel of as many axes, with what a cval adds beyond the edges."""
    origin = tuple(origins) if any(origins) else None
    y = correlated(x, kernel, mode, origin)
    if mode == "constant" and (holds_tensor(cval) or cval != 0):
        ones = np.ones(np.shape(x), np.real(np.zeros(0, x.dtype)).dtype)
        share = np.sum(kernel) - correlated(ones, kernel, mode, origin)
        y = y + _beyond(share, cval, np.shape(kernel), origins)
    return y


def _beyond(share: Any, cval: Any, sizes: Sequence[int], origins: Sequence[int]) -> Any:
    """What a cval adds, by its share of each output: nothing where the kernel stays inside, though the share is rounded there."""
    reaching = _reaching(np.shape(share), sizes, origins)
    return np.where(reaching, cval * np.where(reaching, share, 1.0), 0.0)


def _reaching(shape: Sequence[int], sizes: Sequence[int], origins: Sequence[int]) -> np.ndarray:
    """Where a kernel of these sizes reaches beyond the edges: nowhere else does a cval count, be it NaN."""
    found = np.zeros(shape, bool)
    for axis, (n, size, origin) in enumerate(zip(shape, sizes, origins, strict=True)):
        before, after = reach(size, origin)
        place = np.arange(n)
        found |= _along((place < before) | (place >= n - after), axis, len(shape))
    return found


def _kernel(weights: Any, ndim: int, axes: Any, origin: Any, flip: bool) -> tuple[Any, list[int]]:
    """The kernel with an axis for each of the image, and origins; for a convolution reversed."""
    weights = inexact(weights)
    along = _axes(axes, ndim)
    if np.ndim(weights) != len(along):
        raise RuntimeError(
            f"weights.ndim ({np.ndim(weights)}) must match len(axes) ({len(along)}): give a kernel with an axis for each."
        )
    shape, origins = [1] * ndim, [0] * ndim
    for axis, size, start in zip(along, np.shape(weights), _each(origin, len(along), "origin"), strict=True):  # fmt: skip
        if size == 0:
            raise RuntimeError("no filter weights given")
        shift = _origin(size, start)
        shape[axis], origins[axis] = size, (-shift - (size % 2 == 0) if flip else shift)
    if flip:
        weights = weights[(slice(None, None, -1),) * np.ndim(weights)]
    elif weights.dtype.kind == "c":
        weights = np.conj(weights)
    order = sorted(range(len(along)), key=along.__getitem__)
    return np.reshape(np.transpose(weights, order), shape), origins


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _nd(name: str, flip: bool, doc: str) -> Callable[..., Any]:
    def function(
        input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None
    ) -> Any:  # fmt: skip
        if not holds_tensor((input, weights, cval)):
            further = {} if axes is None else {"axes": axes}
            return _plainly(name, input, weights, output, mode, cval, origin, **further)
        _demand_no_output(output)
        x = inexact(input)
        kernel, origins = _kernel(weights, np.ndim(x), axes, origin, flip)
        return _filtered(x, kernel, _filter_mode(mode), cval, origins)

    return _named(function, name, doc)


def _1d(name: str, flip: bool, doc: str) -> Callable[..., Any]:
    def function(
        input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: int = 0
    ) -> Any:  # fmt: skip
        if not holds_tensor((input, weights, cval)):
            return _plainly(name, input, weights, axis, output, mode, cval, origin)
        _demand_no_output(output)
        x = inexact(input)
        if np.ndim(weights) != 1:
            raise RuntimeError(f"{name} takes a vector of weights, but was given {np.ndim(weights)} axes.")  # fmt: skip
        kernel, origins = _kernel(weights, np.ndim(x), axis, origin, flip)
        return _filtered(x, kernel, _filter_mode(mode), cval, origins)

    return _named(function, name, doc)


correlate = _nd(
    "correlate",
    False,
    """Correlation of an image with a kernel; differentiable by both and by cval. `mode` says what stands beyond the edges.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda k: tg.ndimage.correlate(np.array([1.0, 2.0, 4.0]), k)[0])(np.zeros(3))
    array([1., 1., 2.])
    """,
)
convolve = _nd(
    "convolve",
    True,
    """Convolution of an image with a kernel; differentiable by both and by cval. `mode` says what stands beyond the edges.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda k: tg.ndimage.convolve(np.array([1.0, 2.0, 4.0]), k)[0])(np.zeros(3))
    array([2., 1., 1.])
    """,
)
correlate1d = _1d(
    "correlate1d",
    False,
    "Correlation of an image with a vector along an axis; differentiable by both and by cval.\n\n"
    ">>> import tapegrad as tg\n>>> tg.ndimage.correlate1d(tg.tensor([0.0, 1.0, 0.0]), [1.0, 2.0, 3.0])\ntensor([3., 2., 1.])\n",
)
convolve1d = _1d(
    "convolve1d",
    True,
    "Convolution of an image with a vector along an axis; differentiable by both and by cval.\n\n"
    ">>> import tapegrad as tg\n>>> tg.ndimage.convolve1d(tg.tensor([0.0, 1.0, 0.0]), [1.0, 2.0, 3.0])\ntensor([1., 2., 3.])\n",
)


# ------------------------------------------------------------------------------------------ products of kernels


def _gaussian(sigma: Any, order: int, radius: int) -> Any:
    """A Gaussian's samples that sum to 1, or their derivative of some order: a polynomial times them."""
    x = np.arange(-radius, radius + 1)
    square = sigma * sigma
    phi = np.exp(-0.5 / square * x**2)
    phi = phi / np.sum(phi)
    # q' - x q / σ² is the polynomial of the next order; q holds its coefficients, lowest first.
    q: list[Any] = [1.0, *[0.0] * order]
    for _ in range(order):
        up = [(i + 1) * q[i + 1] for i in range(order)] + [0.0]
        down = [0.0, *(-q[i] / square for i in range(order))]
        q = [a + b for a, b in zip(up, down, strict=True)]
    value: Any = 0.0
    for c in reversed(q):
        value = value * x + c
    return value * phi


def gaussian_filter1d(
    input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None, mode: str = "reflect", cval: Any = 0.0,
    truncate: float = 4.0, *, radius: int | None = None,
) -> Any:  # fmt: skip
    """Gaussian filter (or a derivative of one) along an axis; differentiable by the image, sigma and cval.

    The length of the kernel, truncate · sigma, is a constant of the derivative by sigma.

    >>> import numpy as np, tapegrad as tg
    >>> peak = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    >>> round(tg.grad(lambda s: tg.ndimage.gaussian_filter1d(peak, s)[2])(0.5), 6)
    -1.35298
    """
    if not holds_tensor((input, sigma, cval)):
        return _plainly("gaussian_filter1d", input, sigma, axis, order, output, mode, cval, truncate, radius=radius)  # fmt: skip
    _demand_no_output(output)
    if order < 0:
        raise ValueError("order must be non-negative")
    x = inexact(input)
    far = int(truncate * float(raw(sigma)) + 0.5) if radius is None else int(radius)
    if far < 0:
        raise ValueError("Radius must be a nonnegative integer.")
    kernel = _gaussian(sigma, order, far)[::-1]
    axis = normalize_axis_index(axis, np.ndim(x))
    return _filtered(
        x, _along(kernel, axis, np.ndim(x)), _filter_mode(mode), cval, [0] * np.ndim(x)
    )


def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, truncate: float = 4.0, *,
    radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    """Gaussian filter along all axes or some, each with its sigma and order; differentiable by the image, the sigmas and cval.

    >>> import tapegrad as tg
    >>> tg.ndimage.gaussian_filter(tg.ones((3, 3)), 1.0).numpy().round(6).max()
    np.float64(1.0)
    """
    if not holds_tensor((input, sigma, cval)):
        return _plainly("gaussian_filter", input, sigma, order, output, mode, cval, truncate, radius=radius, axes=axes)  # fmt: skip
    _demand_no_output(output)
    x = inexact(input)
    along = _axes(axes, np.ndim(x))
    sigmas = sigma if isinstance(sigma, Tensor) and sigma.ndim else _each(sigma, len(along), "sigma")  # fmt: skip
    if len(sigmas) != len(along):
        raise RuntimeError(f"sigma was given {len(sigmas)} values for {len(along)} axes: give one, or one for each.")  # fmt: skip
    settings = zip(
        along, sigmas, _each(order, len(along), "order"), _each(mode, len(along), "mode"), _each(radius, len(along), "radius"), strict=True
    )  # fmt: skip
    for axis, s, k, edge, far in settings:
        if float(raw(s)) > 1e-15:
            x = gaussian_filter1d(x, s, axis, k, None, edge, cval, truncate, radius=far)
    return x


def uniform_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: int = 0
) -> Any:  # fmt: skip
    """Running mean along an axis, in time that does not depend on its size; differentiable by the image and cval.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.ndimage.uniform_filter1d(x, 4)[0] * 4)(np.zeros(5))
    array([2., 2., 0., 0., 0.])
    """
    if not holds_tensor((input, cval)):
        return _plainly("uniform_filter1d", input, size, axis, output, mode, cval, origin)
    _demand_no_output(output)
    if size < 1:
        raise RuntimeError("incorrect filter size")
    x = inexact(input)
    axis, edge, origin = (
        normalize_axis_index(axis, np.ndim(x)),
        _filter_mode(mode),
        _origin(size, origin),
    )
    y = running_mean(x, int(size), axis, edge, origin)
    if edge == "constant" and (holds_tensor(cval) or cval != 0):
        ones = np.ones(np.shape(x), np.real(np.zeros(0, x.dtype)).dtype)
        sizes, origins = [1] * np.ndim(x), [0] * np.ndim(x)
        sizes[axis], origins[axis] = int(size), origin
        share = 1.0 - running_mean(ones, int(size), axis, edge, origin)
        y = y + _beyond(share, cval, sizes, origins)
    return y


def uniform_filter(
    input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None
) -> Any:  # fmt: skip
    """Means over boxes, one axis after the other; differentiable by the image and cval.

    >>> import tapegrad as tg
    >>> tg.ndimage.uniform_filter(tg.ones((3, 3)), 3).numpy().round(6).max()
    np.float64(1.0)
    """
    if not holds_tensor((input, cval)):
        return _plainly("uniform_filter", input, size, output, mode, cval, origin, axes=axes)
    _demand_no_output(output)
    x = inexact(input)
    along = _axes(axes, np.ndim(x))
    each = [_each(v, len(along), w) for v, w in ((size, "size"), (mode, "mode"), (origin, "origin"))]  # fmt: skip
    for axis, n, edge, start in zip(along, *each, strict=True):
        if n > 1:
            x = uniform_filter1d(x, n, axis, None, edge, cval, start)
    return x


def _edges_of(input: Any, axis: int, mode: Any, cval: Any, smooth: Sequence[float]) -> Any:
    x = inexact(input)
    axis = normalize_axis_index(axis, np.ndim(x))
    modes = _each(mode, np.ndim(x), "mode")
    x = correlate1d(x, np.array([-1.0, 0.0, 1.0]), axis, None, modes[axis], cval)
    for other in range(np.ndim(x)):
        if other != axis:
            x = correlate1d(x, np.array(smooth), other, None, modes[other], cval)
    return x


def prewitt(input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0) -> Any:  # fmt: skip
    """Prewitt's filter for edges across an axis; differentiable by the image and cval.

    >>> import tapegrad as tg
    >>> tg.ndimage.prewitt(tg.tensor([0.0, 1.0, 4.0]))
    tensor([1., 4., 3.])
    """
    if not holds_tensor((input, cval)):
        return _plainly("prewitt", input, axis, output, mode, cval)
    _demand_no_output(output)
    return _edges_of(input, axis, mode, cval, (1.0, 1.0, 1.0))


def sobel(input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0) -> Any:  # fmt: skip
    """Sobel's filter for edges across an axis; differentiable by the image and cval.

    >>> import tapegrad as tg
    >>> tg.ndimage.sobel(tg.tensor([0.0, 1.0, 4.0]))
    tensor([1., 4., 3.])
    """
    if not holds_tensor((input, cval)):
        return _plainly("sobel", input, axis, output, mode, cval)
    _demand_no_output(output)
    return _edges_of(input, axis, mode, cval, (1.0, 2.0, 1.0))


def generic_laplace(
    input: Any, derivative2: Callable[..., Any], output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    extra_arguments: Sequence[Any] = (), extra_keywords: Any = None, *, axes: Any = None,
) -> Any:  # fmt: skip
    """The sum of the second derivatives `derivative2(input, axis, output, mode, cval, ...)` along the axes."""
    _demand_no_output(output)
    x = inexact(input)
    along = _axes(axes, np.ndim(x))
    modes = _each(mode, len(along), "mode")
    parts = [
        derivative2(x, axis, None, edge, cval, *extra_arguments, **(extra_keywords or {}))
        for axis, edge in zip(along, modes, strict=True)
    ]
    return sum(parts[1:], parts[0]) if parts else x


def laplace(input: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *, axes: Any = None) -> Any:  # fmt: skip
    """Laplace's operator by second differences; differentiable by the image and cval.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.ndimage.laplace(x)[1])(np.zeros(3))
    array([ 1., -2.,  1.])
    """
    if not holds_tensor((input, cval)):
        further = {} if axes is None else {"axes": axes}
        return _plainly("laplace", input, output, mode, cval, **further)

    def second(x: Any, axis: int, out: Any, edge: Any, cval: Any) -> Any:
        return correlate1d(x, np.array([1.0, -2.0, 1.0]), axis, out, edge, cval)

    return generic_laplace(input, second, output, mode, cval, axes=axes)


def gaussian_laplace(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *, axes: Any = None, **kwargs: Any
) -> Any:  # fmt: skip
    """Laplace's operator by second derivatives of a Gaussian; differentiable by the image, sigma and cval.

    >>> import tapegrad as tg
    >>> tg.ndimage.gaussian_laplace(tg.tensor([0.0, 1.0, 4.0]), 1.0).shape
    (3,)
    """
    if not holds_tensor((input, sigma, cval)):
        further = kwargs if axes is None else kwargs | {"axes": axes}
        return _plainly("gaussian_laplace", input, sigma, output, mode, cval, **further)
    _demand_no_output(output)
    return sum(_derivatives(input, sigma, 2, mode, cval, axes, kwargs))


def _derivatives(
    input: Any, sigma: Any, order: int, mode: Any, cval: Any, axes: Any, settings: dict[str, Any]
) -> Iterator[Any]:
    """An image's derivatives of an order along each axis, of a Gaussian of this sigma."""
    x = inexact(input)
    along = _axes(axes, np.ndim(x))
    # SciPy hands the mode of the axis to all of them.
    for axis, edge in zip(along, _each(mode, len(along), "mode"), strict=True):
        orders = [order if other == axis else 0 for other in along]
        yield gaussian_filter(x, sigma, orders, None, edge, cval, axes=along, **settings)


def gaussian_gradient_magnitude(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *, axes: Any = None, **kwargs: Any
) -> Any:  # fmt: skip
    """Length of the gradient by derivatives of a Gaussian; differentiable by the image, sigma and cval. 0 where it is 0.

    >>> import tapegrad as tg
    >>> tg.ndimage.gaussian_gradient_magnitude(tg.tensor([0.0, 1.0, 4.0]), 1.0).shape
    (3,)
    """
    if not holds_tensor((input, sigma, cval)):
        further = kwargs if axes is None else kwargs | {"axes": axes}
        return _plainly("gaussian_gradient_magnitude", input, sigma, output, mode, cval, **further)
    _demand_no_output(output)
    square: Any = sum(d**2 for d in _derivatives(input, sigma, 1, mode, cval, axes, kwargs))
    return rooted(square)


# ---------------------------------------------------------------------------------------- between the entries


_GEOMETRIC = ("reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror", "grid-wrap", "wrap")  # fmt: skip

_PAD = 12
"""Entries by which SciPy extends an image before it looks for coefficients, in modes whose extension has none of its own."""


def _geometric(order: int, mode: Any) -> None:
    if order < 0 or order > 5:
        raise RuntimeError("spline order not supported")
    if mode not in _GEOMETRIC:
        raise RuntimeError(f"boundary mode {mode!r} not supported: it is one of {', '.join(_GEOMETRIC)}")  # fmt: skip


def spline_filter1d(input: Any, order: int = 3, axis: int = -1, output: Any = np.float64, mode: str = "mirror") -> Any:  # fmt: skip
    """Coefficients of the spline through the entries along an axis; differentiable by the image.

    >>> import tapegrad as tg
    >>> tg.ndimage.spline_filter1d(tg.tensor([0.0, 1.0, 4.0]), order=2).shape
    (3,)
    """
    if not holds_tensor(input):
        return _plainly("spline_filter1d", input, order, axis, output, mode)
    _demand_no_output(None if output is np.float64 else output)
    _geometric(order, mode)
    x = in_double(operand(input))
    return spline_coefficients(x, int(order), normalize_axis_index(axis, np.ndim(x)), mode)


def spline_filter(input: Any, order: int = 3, output: Any = np.float64, mode: str = "mirror") -> Any:  # fmt: skip
    """Coefficients of the spline through an image, for `map_coordinates(..., prefilter=False)`; differentiable by the image.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.ndimage.spline_filter(x)[0])(np.ones(2))
    array([ 2., -1.])
    """
    if not holds_tensor(input):
        return _plainly("spline_filter", input, order, output, mode)
    _demand_no_output(None if output is np.float64 else output)
    if order < 2:
        raise RuntimeError("spline order not supported")
    _geometric(order, mode)
    x = in_double(operand(input))
    for axis in range(np.ndim(x)):
        x = spline_coefficients(x, int(order), axis, mode)
    return x


def _read(x: Any, places: Any, order: int, mode: str, cval: Any, prefilter: bool) -> Any:
    """The image at places (axes, ...); the derivative beyond the edges is that of what stands there."""
    shape, dtype = np.shape(x), x.dtype
    pad = 0
    wide = mode == "grid-constant"
    if wide and (holds_tensor(cval) or cval != 0):
        return _read(x - cval, places, order, mode, 0.0, prefilter) + cval
    c = x
    if prefilter and order > 1:
        c = in_double(c)
        if wide or mode == "nearest":
            pad = _PAD
            for axis in range(len(shape)):
                c = extended(c, axis, pad, pad, "constant" if wide else "nearest")
        for axis in range(len(shape)):
            c = spline_coefficients(c, order, axis, mode)
    lengths = [n + 2 * pad for n in shape]
    spots = raw(places)
    column = (-1,) + (1,) * (np.ndim(places) - 1)
    last = np.reshape(np.array(lengths, float) - 1, column)
    outside = None
    if pad:
        places, spots = places + pad, spots + pad
    edge = {"grid-mirror": "reflect", "grid-wrap": "wrap", "grid-constant": "constant"}.get(mode, mode)  # fmt: skip
    if mode == "constant":
        beyond = (spots < 0) | (spots > last)
        outside = np.any(beyond, axis=0)
        places = np.where(beyond, 0.0, places)
        edge = "mirror"
    elif mode == "wrap":
        period = np.where(last > 0, last, 1.0)
        # The outer entries are one place of the period: from below it is the last one, from above the first, as in SciPy.
        turns = np.where(spots < 0, -np.floor(-spots / period) - 1.0, np.floor(spots / period))
        turns = np.where((spots >= 0) & (spots <= last), 0.0, turns)
        places = np.where(last > 0, places - turns * period, 0.0)
        edge = "mirror"
    value = spline_values([c, places], int(order), edge)
    if outside is not None:
        value = np.where(outside, cval, value)
    return value if value.dtype == dtype else value.astype(dtype)


def map_coordinates(
    input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True
) -> Any:  # fmt: skip
    """The image at coordinates (axes, ...), by splines of degree 0 to 5; differentiable by the image, the coordinates and cval.

    >>> import numpy as np, tapegrad as tg
    >>> squares = np.arange(6.0) ** 2
    >>> tg.grad(lambda at: tg.ndimage.map_coordinates(squares, [[at]], order=1)[0])(2.5)
    5.0
    """
    if not holds_tensor((input, coordinates, cval)):
        return _plainly("map_coordinates", input, coordinates, output, order, mode, cval, prefilter)
    _demand_no_output(output)
    _geometric(order, mode)
    x = inexact(input)
    places = in_double(operand(coordinates))
    if places.dtype.kind == "c":
        raise TypeError("Complex type not supported")
    if np.ndim(x) < 1 or np.ndim(places) < 2:
        raise RuntimeError("input and output rank must be > 0")
    if np.shape(places)[0] != np.ndim(x):
        raise RuntimeError(
            f"map_coordinates was given {np.shape(places)[0]} coordinates for {np.ndim(x)} axes: give one row for each axis."
        )
    return _read(x, places, order, mode, cval, prefilter)


def _grid(shape: Sequence[int]) -> np.ndarray:
    return np.indices(shape).astype(float)


def shift(
    input: Any, shift: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True
) -> Any:  # fmt: skip
    """The image moved by a number of entries along each axis; differentiable by the image, the shift and cval.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda s: tg.ndimage.shift(np.arange(5.0), s, order=1)[2])(0.5)
    -1.0
    """
    if not holds_tensor((input, shift, cval)):
        return _plainly("shift", input, shift, output, order, mode, cval, prefilter)
    _demand_no_output(output)
    _geometric(order, mode)
    x = inexact(input)
    ndim = np.ndim(x)
    by = in_double(operand(shift))
    if np.ndim(by) == 0:
        by = np.broadcast_to(by, (ndim,))
    if np.shape(by) != (ndim,):
        raise RuntimeError(f"shift was given {np.shape(by)} values for {ndim} axes: give one, or one for each.")  # fmt: skip
    places = _grid(np.shape(x)) - np.reshape(by, (-1,) + (1,) * ndim)
    return _read(x, places, order, mode, cval, prefilter)


def affine_transform(
    input: Any, matrix: Any, offset: Any = 0.0, output_shape: Any = None, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    """The image at matrix @ place + offset for each place of the result; differentiable by the image, matrix, offset and cval.

    `matrix`: (n, n), a diagonal (n,), or homogeneous (n, n + 1) or (n + 1, n + 1), which holds the offset.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda m: tg.ndimage.affine_transform(np.arange(5.0), m, order=1)[2])(np.array([1.5]))
    array([2.])
    """
    if not holds_tensor((input, matrix, offset, cval)):
        return _plainly("affine_transform", input, matrix, offset, output_shape, output, order, mode, cval, prefilter)  # fmt: skip
    _demand_no_output(output)
    _geometric(order, mode)
    x = inexact(input)
    ndim = np.ndim(x)
    m, start = in_double(operand(matrix)), in_double(operand(offset))
    shape = np.shape(x) if output_shape is None else tuple(int(n) for n in output_shape)
    if np.ndim(m) == 2 and np.shape(m)[1] == ndim + 1 and np.shape(m)[0] in (ndim, ndim + 1):
        if np.shape(m)[0] == ndim + 1 and not np.all(raw(m)[ndim] == [0] * ndim + [1]):
            raise ValueError(
                f"Expected homogeneous transformation matrix with shape {np.shape(m)} for image shape {np.shape(x)}, but bottom row "
                f"was not equal to {[0] * ndim + [1]}"
            )
        m, start = m[:ndim, :ndim], m[:ndim, ndim]
    if np.ndim(m) not in (1, 2) or np.shape(m)[0] != ndim:
        raise RuntimeError("affine matrix has wrong number of rows")
    if len(shape) != (ndim if np.ndim(m) == 1 else np.shape(m)[1]):
        raise RuntimeError("affine matrix has wrong number of columns")
    start = np.broadcast_to(start, (ndim,))
    return _read(x, _moved_to(m, start, shape), order, mode, cval, prefilter)


def _moved_to(m: Any, start: Any, shape: Sequence[int]) -> Any:
    """matrix @ place + offset, added up in SciPy's order: at edges and ties the last bit decides."""
    grid = _grid(shape)
    rows = []
    for i in range(np.shape(m)[0]):
        if np.ndim(m) == 1:
            rows.append((grid[i] + start[i] / m[i]) * m[i] if bool(raw(m)[i] != 0) else grid[i] * m[i] + start[i])  # fmt: skip
            continue
        row = start[i]
        for j in range(len(shape)):
            row = row + m[i, j] * grid[j]
        rows.append(row)
    return np.stack(rows)


def zoom(
    input: Any, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True, *,
    grid_mode: bool = False,
) -> Any:  # fmt: skip
    """The image stretched to round(n · zoom) entries along each axis; differentiable by the image and cval.

    The zoom decides the shape of the result and is a constant; `affine_transform` is differentiable by scales.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.ndimage.zoom(x, 1.5, order=1)[1])(np.zeros(2))
    array([0.5, 0.5])
    """
    if holds_tensor(zoom):
        raise NotDifferentiable(
            "zoom was given a tensor as its factor, but the factor decides the shape of the result, which jumps. Pass a number, or use "
            "affine_transform with the scales as its matrix and an output_shape."
        )
    if not holds_tensor((input, cval)):
        return _plainly("zoom", input, zoom, output, order, mode, cval, prefilter, grid_mode=grid_mode)  # fmt: skip
    _demand_no_output(output)
    _geometric(order, mode)
    x = inexact(input)
    ndim = np.ndim(x)
    if ndim < 1:
        raise RuntimeError("input and output rank must be > 0")
    factors = _each(zoom, ndim, "zoom")
    shape = tuple(round(n * z) for n, z in zip(np.shape(x), factors, strict=True))
    if all(z == 1 for z in factors) and prefilter:
        return x * 1.0
    if grid_mode and mode in ("constant", "wrap"):
        warnings.warn(f"It is recommended to use mode = grid-{mode} instead of {mode} when grid_mode is True.", stacklevel=2)  # fmt: skip
    less = 0 if grid_mode else 1
    places = []
    for n, m, at in zip(np.shape(x), shape, np.indices(shape, float), strict=True):
        step = (n - less) / (m - less) if m != less else 1.0
        places.append((at + 0.5) * step - 0.5 if grid_mode else at * step)
    return _read(x, np.stack(places), order, mode, cval, prefilter)


def rotate(
    input: Any, angle: Any, axes: Sequence[int] = (1, 0), reshape: bool = True, output: Any = None, order: int = 3,
    mode: str = "constant", cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    """The image turned by an angle in degrees in the plane of two axes; differentiable by the image, the angle and cval.

    With `reshape` the result is as large as the whole turned image; its shape is a constant.

    >>> import numpy as np, tapegrad as tg
    >>> ramp = np.arange(9.0).reshape(3, 3)
    >>> round(tg.grad(lambda a: tg.ndimage.rotate(ramp, a, reshape=False, order=1)[0, 1])(-10.0), 6)
    0.008096
    """
    if not holds_tensor((input, angle, cval)):
        return _plainly("rotate", input, angle, axes, reshape, output, order, mode, cval, prefilter)
    from .special.logarithmic import cosdg, sindg

    _demand_no_output(output)
    _geometric(order, mode)
    x = inexact(input)
    ndim = np.ndim(x)
    if ndim < 2:
        raise ValueError("input array should be at least 2D")
    if len(axes) != 2:
        raise ValueError("axes should contain exactly two values")
    if any(not -ndim <= axis < ndim for axis in axes):
        raise ValueError("invalid rotation plane specified")
    plane = sorted(range(ndim)[int(axis)] for axis in axes)
    inside = [np.shape(x)[axis] for axis in plane]
    c, s = cosdg(angle), sindg(angle)
    turn = np.stack([np.stack([c, s]), np.stack([-s, c])]) if holds_tensor(angle) else np.array([[c, s], [-s, c]])  # fmt: skip
    shape = inside
    if reshape:
        corners = raw(turn) @ np.array([[0, 0, inside[0], inside[0]], [0, inside[1], 0, inside[1]]])
        shape = [int(n) for n in np.ptp(np.asarray(corners), axis=1) + 0.5]
    offset = (np.array(inside) - 1) / 2 - turn @ ((np.array(shape) - 1) / 2)
    moved = np.moveaxis(x, plane, (-2, -1))
    rest = np.shape(moved)[:-2]
    planes = []
    for index in itertools.product(*map(range, rest)):
        planes.append(_turned(moved[index], turn, offset, shape, order, mode, cval, prefilter))
    if not planes:
        return np.moveaxis(np.zeros((*rest, *shape), x.dtype), (-2, -1), plane)
    whole = np.reshape(np.stack(planes), (*rest, *shape)) if rest else planes[0]
    return np.moveaxis(whole, (-2, -1), plane)


def _turned(
    x: Any, matrix: Any, offset: Any, shape: Sequence[int], order: int, mode: str, cval: Any, prefilter: bool
) -> Any:  # fmt: skip
    return _read(x, _moved_to(matrix, offset, shape), order, mode, cval, prefilter)


__all__ = [
    "affine_transform", "convolve", "convolve1d", "correlate", "correlate1d", "gaussian_filter", "gaussian_filter1d",
    "gaussian_gradient_magnitude", "gaussian_laplace", "generic_laplace", "laplace", "map_coordinates", "prewitt", "rotate", "shift", "sobel",
    "spline_filter", "spline_filter1d", "uniform_filter", "uniform_filter1d", "zoom",
]  # fmt: skip
