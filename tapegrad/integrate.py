"""`tg.integrate`: integrals and solutions of differential equations that are differentiable, under SciPy's names.

Importing this module does not import SciPy; the first call does.
"""

from __future__ import annotations

from .core import elsewhere
from .interop.fixed_steps import odeint
from .interop.quadratures import dblquad, fixed_quad, nquad, quad, quad_vec, tplquad
from .interop.rules import cubature, qmc_quad, tanhsinh
from .interop.sampled import cumulative_simpson, cumulative_trapezoid, romb, simpson, trapezoid
from .interop.trajectories import solve_ivp
from .interpolation.boundary_values import (
    solve_bvp,
)

__all__ = [
    "cubature", "cumulative_simpson", "cumulative_trapezoid", "dblquad", "fixed_quad", "nquad", "odeint", "qmc_quad", "quad",
    "quad_vec", "romb", "simpson", "solve_bvp", "solve_ivp", "tanhsinh", "tplquad", "trapezoid",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
