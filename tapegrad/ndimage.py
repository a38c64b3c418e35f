"""`tg.ndimage`: filters and geometric transforms of images of any number of axes that are differentiable, under SciPy's names.

`scipy.ndimage` itself does not ask tensors what to do. Importing this module does not import SciPy; the first call does.
"""

from __future__ import annotations

from .ops.images import (
    affine_transform,
    convolve,
    convolve1d,
    correlate,
    correlate1d,
    gaussian_filter,
    gaussian_filter1d,
    gaussian_gradient_magnitude,
    gaussian_laplace,
    generic_laplace,
    laplace,
    map_coordinates,
    prewitt,
    rotate,
    shift,
    sobel,
    spline_filter,
    spline_filter1d,
    uniform_filter,
    uniform_filter1d,
    zoom,
)

__all__ = [
    "affine_transform",
    "convolve",
    "convolve1d",
    "correlate",
    "correlate1d",
    "gaussian_filter",
    "gaussian_filter1d",
    "gaussian_gradient_magnitude",
    "gaussian_laplace",
    "generic_laplace",
    "laplace",
    "map_coordinates",
    "prewitt",
    "rotate",
    "shift",
    "sobel",
    "spline_filter",
    "spline_filter1d",
    "uniform_filter",
    "uniform_filter1d",
    "zoom",
]


def __dir__() -> list[str]:
    return __all__
