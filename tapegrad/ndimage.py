"""`tg.ndimage`: filters and geometric transforms of images of any number of axes that are differentiable, under SciPy's names.

`scipy.ndimage` itself does not ask tensors what to do. Importing this module does not import SciPy; the first call does.
"""

from __future__ import annotations

from .core import elsewhere
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
from .ops.orders import (
    black_tophat,
    center_of_mass,
    fourier_gaussian,
    fourier_shift,
    fourier_uniform,
    grey_closing,
    grey_dilation,
    grey_erosion,
    grey_opening,
    maximum,
    maximum_filter,
    maximum_filter1d,
    mean,
    median,
    median_filter,
    minimum,
    minimum_filter,
    minimum_filter1d,
    morphological_gradient,
    morphological_laplace,
    percentile_filter,
    rank_filter,
    standard_deviation,
    sum_labels,
    variance,
    white_tophat,
)

__all__ = [
    "affine_transform", "black_tophat", "center_of_mass", "convolve", "convolve1d", "correlate", "correlate1d",
    "fourier_gaussian", "fourier_shift", "fourier_uniform", "gaussian_filter", "gaussian_filter1d",
    "gaussian_gradient_magnitude", "gaussian_laplace", "generic_laplace", "grey_closing", "grey_dilation", "grey_erosion",
    "grey_opening", "laplace", "map_coordinates", "maximum", "maximum_filter", "maximum_filter1d", "mean", "median",
    "median_filter", "minimum", "minimum_filter", "minimum_filter1d", "morphological_gradient", "morphological_laplace",
    "percentile_filter", "prewitt", "rank_filter", "rotate", "shift", "sobel", "spline_filter", "spline_filter1d",
    "standard_deviation", "sum_labels", "uniform_filter", "uniform_filter1d", "variance", "white_tophat", "zoom",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
