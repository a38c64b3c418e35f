"""`tg.interpolate`: interpolants that are differentiable by data, places and queries, under SciPy's names and with its arguments.

Importing this module does not import SciPy; the first interpolant does.
"""

from __future__ import annotations

from .interpolation.piecewise import (
    Akima1DInterpolator,
    CubicHermiteSpline,
    CubicSpline,
    PchipInterpolator,
    PPoly,
)
from .interpolation.scattered import (
    LinearNDInterpolator,
    NearestNDInterpolator,
    RBFInterpolator,
    griddata,
)
from .interpolation.splines import BSpline, make_interp_spline
from .interpolation.tables import RegularGridInterpolator, interp1d, interpn

__all__ = [
    "Akima1DInterpolator",
    "BSpline",
    "CubicHermiteSpline",
    "CubicSpline",
    "LinearNDInterpolator",
    "NearestNDInterpolator",
    "PPoly",
    "PchipInterpolator",
    "RBFInterpolator",
    "RegularGridInterpolator",
    "griddata",
    "interp1d",
    "interpn",
    "make_interp_spline",
]


def __dir__() -> list[str]:
    return __all__
