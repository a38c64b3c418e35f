"""`tg.optimize`: SciPy's solvers with exact derivatives, and solutions that are differentiable, under SciPy's names.

Importing this module does not import SciPy; the first solve does.
"""

from __future__ import annotations

from .interop.integer_programs import milp
from .interop.linear_programs import linprog
from .interop.scalar_solvers import (
    curve_fit,
    custom_root,
    fixed_point,
    minimize_scalar,
    root_scalar,
)
from .interop.solvers import least_squares, minimize, root

__all__ = [
    "curve_fit",
    "custom_root",
    "fixed_point",
    "least_squares",
    "linprog",
    "milp",
    "minimize",
    "minimize_scalar",
    "root",
    "root_scalar",
]


def __dir__() -> list[str]:
    return __all__
