"""`tg.optimize`: SciPy's solvers with exact derivatives, and solutions that are differentiable, under SciPy's names.

Importing this module does not import SciPy; the first solve does.
"""

from __future__ import annotations

from .core import elsewhere
from .interop.global_minima import (
    basinhopping,
    differential_evolution,
    direct,
    dual_annealing,
    isotonic_regression,
    linear_sum_assignment,
    shgo,
)
from .interop.integer_programs import milp
from .interop.linear_fits import lsq_linear, nnls
from .interop.linear_programs import linprog
from .interop.older_names import (
    brent,
    fmin,
    fmin_bfgs,
    fmin_cg,
    fmin_l_bfgs_b,
    fmin_powell,
    fminbound,
    golden,
    leastsq,
)
from .interop.own_solvers import custom_fixed_point, custom_linear_solve, custom_root
from .interop.root_finders import bisect, brenth, brentq, fsolve, newton, ridder, toms748
from .interop.scalar_solvers import (
    curve_fit,
    fixed_point,
    minimize_scalar,
    root_scalar,
)
from .interop.solvers import least_squares, minimize, root

__all__ = [
    "basinhopping", "bisect", "brent", "brenth", "brentq", "curve_fit", "custom_fixed_point", "custom_linear_solve",
    "custom_root", "differential_evolution", "direct", "dual_annealing", "fixed_point", "fmin", "fmin_bfgs", "fmin_cg",
    "fmin_l_bfgs_b", "fmin_powell", "fminbound", "fsolve", "golden", "isotonic_regression", "least_squares", "leastsq",
    "linear_sum_assignment", "linprog", "lsq_linear", "milp", "minimize", "minimize_scalar", "newton", "nnls", "ridder", "root",
    "root_scalar", "shgo", "toms748",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
