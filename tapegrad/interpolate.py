"""`tg.interpolate`: interpolants that are differentiable by data, places and queries, under SciPy's names and with its arguments.

Importing this module does not import SciPy; the first interpolant does.
"""

from __future__ import annotations

from .core import elsewhere
from .interpolation.fitted import (
    InterpolatedUnivariateSpline,
    LSQUnivariateSpline,
    RectBivariateSpline,
    UnivariateSpline,
    make_lsq_spline,
    make_smoothing_spline,
    splantider,
    splder,
    splev,
    splint,
    splrep,
)
from .interpolation.piecewise import (
    Akima1DInterpolator,
    CubicHermiteSpline,
    CubicSpline,
    PchipInterpolator,
    PPoly,
)
from .interpolation.polynomials import (
    BarycentricInterpolator,
    KroghInterpolator,
    barycentric_interpolate,
    krogh_interpolate,
)
from .interpolation.scattered import (
    LinearNDInterpolator,
    NearestNDInterpolator,
    RBFInterpolator,
    griddata,
)
from .interpolation.splines import BSpline, make_interp_spline
from .interpolation.tables import RegularGridInterpolator, interp1d, interpn
from .interpolation.tensor_products import NdBSpline, NdPPoly

__all__ = [
    "Akima1DInterpolator", "BSpline", "BarycentricInterpolator", "CubicHermiteSpline", "CubicSpline",
    "InterpolatedUnivariateSpline", "KroghInterpolator", "LSQUnivariateSpline", "LinearNDInterpolator", "NdBSpline", "NdPPoly",
    "NearestNDInterpolator", "PPoly", "PchipInterpolator", "RBFInterpolator", "RectBivariateSpline", "RegularGridInterpolator",
    "UnivariateSpline", "barycentric_interpolate", "griddata", "interp1d", "interpn", "krogh_interpolate", "make_interp_spline",
    "make_lsq_spline", "make_smoothing_spline", "splantider", "splder", "splev", "splint", "splrep",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
