"""`tg.integrate`: integrals and solutions of differential equations that are differentiable, under SciPy's names.

Importing this module does not import SciPy; the first call does.
"""

from __future__ import annotations

from .integration import odeint
from .interop.trajectories import solve_ivp

__all__ = ["odeint", "solve_ivp"]
