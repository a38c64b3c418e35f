"""SciPy's solvers under their older names: `fmin` and its kin, `fminbound`, `brent`, `golden`, `leastsq`.

Each is a call of `minimize`, `minimize_scalar` or `least_squares` with SciPy's old arguments, and returns what the old function returned.
Slopes come from the tape: `fprime` and `Dfun` are accepted, and not called.

Invariant: the solution is differentiable by what the function uses; what says how the search went is in the new functions' results only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .scalar_solvers import minimize_scalar
from .solvers import least_squares, minimize


def _demand_no_report(name: str, instead: str, **asked: Any) -> None:
    for key, value in asked.items():
        if value:
            raise TypeError(
                f"{name} was asked for {key}={value!r}, but reports are not built for the older names. Write {instead}, whose result holds "
                "them."
            )


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def fmin(
    func: Callable[..., Any], x0: Any, args: Any = (), xtol: float = 1e-4, ftol: float = 1e-4, maxiter: int | None = None,
    maxfun: int | None = None, full_output: bool = False, disp: bool = False, retall: bool = False, callback: Any = None,
    initial_simplex: Any = None,
) -> Any:  # fmt: skip
    """The minimum of `func(x, *args)` near x0 by Nelder's and Mead's simplex; SciPy's `fmin`, x differentiable by what `func` uses.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fmin(lambda x: np.sum((x - a) ** 2), [0.0])[0]
    >>> round(tg.grad(best)(1.0), 6)
    1.0
    """
    _demand_no_report(
        "fmin", "tg.minimize(method='Nelder-Mead')", full_output=full_output, retall=retall
    )
    options = _given(
        xatol=xtol,
        fatol=ftol,
        maxiter=maxiter,
        maxfev=maxfun,
        disp=bool(disp),
        initial_simplex=initial_simplex,
    )
    return minimize(func, x0, args, method="Nelder-Mead", callback=callback, options=options).x


def fmin_powell(
    func: Callable[..., Any], x0: Any, args: Any = (), xtol: float = 1e-4, ftol: float = 1e-4, maxiter: int | None = None,
    maxfun: int | None = None, full_output: bool = False, disp: bool = False, retall: bool = False, callback: Any = None,
    direc: Any = None,
) -> Any:  # fmt: skip
    """The minimum of `func(x, *args)` near x0 by Powell's directions; SciPy's `fmin_powell`, differentiable as `fmin` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fmin_powell(lambda x: np.sum((x - a) ** 2), [0.0])[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report(
        "fmin_powell", "tg.minimize(method='Powell')", full_output=full_output, retall=retall
    )
    options = _given(
        xtol=xtol, ftol=ftol, maxiter=maxiter, maxfev=maxfun, disp=bool(disp), direc=direc
    )
    return minimize(func, x0, args, method="Powell", callback=callback, options=options).x


def fmin_cg(
    f: Callable[..., Any], x0: Any, fprime: Any = None, args: Any = (), gtol: float = 1e-5, norm: float = np.inf, epsilon: Any = None,
    maxiter: int | None = None, full_output: bool = False, disp: bool = False, retall: bool = False, callback: Any = None,
) -> Any:  # fmt: skip
    """The minimum of `f(x, *args)` near x0 by conjugate gradients; SciPy's `fmin_cg`, differentiable as `fmin` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fmin_cg(lambda x: np.sum((x - a) ** 2), [0.0])[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report("fmin_cg", "tg.minimize(method='CG')", full_output=full_output, retall=retall)
    options = _given(gtol=gtol, norm=norm, maxiter=maxiter, disp=bool(disp))
    return minimize(f, x0, args, method="CG", callback=callback, options=options).x


def fmin_bfgs(
    f: Callable[..., Any], x0: Any, fprime: Any = None, args: Any = (), gtol: float = 1e-5, norm: float = np.inf, epsilon: Any = None,
    maxiter: int | None = None, full_output: bool = False, disp: bool = False, retall: bool = False, callback: Any = None,
) -> Any:  # fmt: skip
    """The minimum of `f(x, *args)` near x0 by the BFGS method; SciPy's `fmin_bfgs`, differentiable as `fmin` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fmin_bfgs(lambda x: np.sum((x - a) ** 2), [0.0])[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report(
        "fmin_bfgs", "tg.minimize(method='BFGS')", full_output=full_output, retall=retall
    )
    options = _given(gtol=gtol, norm=norm, maxiter=maxiter, disp=bool(disp))
    return minimize(f, x0, args, method="BFGS", callback=callback, options=options).x


def fmin_l_bfgs_b(
    func: Callable[..., Any], x0: Any, fprime: Any = None, args: Any = (), approx_grad: bool = False, bounds: Any = None, m: int = 10,
    factr: float = 1e7, pgtol: float = 1e-5, epsilon: float = 1e-8, iprint: Any = None, maxfun: int = 15000, maxiter: int = 15000,
    disp: Any = None, callback: Any = None, maxls: int = 20,
) -> tuple[Any, Any, dict[str, Any]]:  # fmt: skip
    """(x, value, report) of the minimum of `func(x, *args)` within bounds; SciPy's `fmin_l_bfgs_b`, x and value differentiable.

    Where neither `fprime` nor `approx_grad` is given, `func` returns value and gradient, as SciPy has it; the gradient is not used.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fmin_l_bfgs_b(lambda x: np.sum((x - a) ** 2), [0.0], approx_grad=True)[0][0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    value = func
    if fprime is None and not approx_grad:

        def value(x: Any, *args: Any) -> Any:
            found = func(x, *args)
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise TypeError(
                    f"fmin_l_bfgs_b was given a function that returns {type(found).__name__}, not value and gradient. "
                    "Say approx_grad=True for one that returns the value alone, or use tg.optimize.minimize."
                )
            return found[0]

    options = {
        "maxcor": m,
        "ftol": factr * np.finfo(float).eps,
        "gtol": pgtol,
        "maxfun": maxfun,
        "maxiter": maxiter,
        "maxls": maxls,
    }
    found = minimize(
        value, x0, args, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
    )
    report = {
        "grad": found.jac,
        "task": found.message,
        "funcalls": found.nfev,
        "nit": found.nit,
        "warnflag": found.status,
    }
    return found.x, found.fun, report


def fminbound(
    func: Callable[..., Any], x1: float, x2: float, args: Any = (), xtol: float = 1e-5, maxfun: int = 500, full_output: bool = False,
    disp: int = 1,
) -> Any:  # fmt: skip
    """The minimum of `func(x, *args)` of one number between x1 and x2; SciPy's `fminbound`, differentiable by what `func` uses.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.fminbound(lambda x: (x - a) ** 2, 0.0, 3.0)
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report("fminbound", "tg.minimize_scalar(bounds=...)", full_output=full_output)
    options = {"xatol": xtol, "maxiter": maxfun, "disp": max(disp - 1, 0)}
    return minimize_scalar(func, bounds=(x1, x2), args=args, method="bounded", options=options).x


def brent(
    func: Callable[..., Any],
    args: Any = (),
    brack: Any = None,
    tol: float = 1.48e-8,
    full_output: bool = False,
    maxiter: int = 500,
) -> Any:
    """The minimum of `func(x, *args)` of one number in a bracket, by Brent's method; SciPy's `brent`, differentiable as `fminbound` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.brent(lambda x: (x - a) ** 2)
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report("brent", "tg.minimize_scalar(method='brent')", full_output=full_output)
    return minimize_scalar(
        func, bracket=brack, args=args, method="brent", options={"xtol": tol, "maxiter": maxiter}
    ).x


def golden(
    func: Callable[..., Any],
    args: Any = (),
    brack: Any = None,
    tol: float = 1.49e-8,
    full_output: bool = False,
    maxiter: int = 5000,
) -> Any:
    """The minimum of `func(x, *args)` of one number by golden sections of a bracket; SciPy's `golden`, differentiable as `brent`.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.golden(lambda x: (x - a) ** 2)
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    _demand_no_report("golden", "tg.minimize_scalar(method='golden')", full_output=full_output)
    return minimize_scalar(
        func, bracket=brack, args=args, method="golden", options={"xtol": tol, "maxiter": maxiter}
    ).x


def leastsq(
    func: Callable[..., Any], x0: Any, args: Any = (), Dfun: Any = None, full_output: bool = False, col_deriv: bool = False,
    ftol: float = 1.49012e-8, xtol: float = 1.49012e-8, gtol: float = 0.0, maxfev: int = 0, epsfcn: Any = None, factor: float = 100,
    diag: Any = None,
) -> tuple[Any, int]:  # fmt: skip
    """(x, code) of the least sum of squares of `func(x, *args)`; SciPy's `leastsq`, x differentiable by what `func` uses.

    >>> import numpy as np, tapegrad as tg
    >>> t = np.array([0.0, 1.0, 2.0])
    >>> slope = lambda y: tg.optimize.leastsq(lambda p: p[0] + p[1] * t - y, [0.0, 1.0])[0][1]
    >>> tg.grad(slope)(np.array([1.0, 2.0, 4.0])).round(9) + 0.0
    array([-0.5,  0. ,  0.5])
    """
    _demand_no_report(
        "leastsq",
        "tg.least_squares, or tg.curve_fit for the covariance",
        full_output=full_output,
        diag=diag is not None,
    )
    settings = _given(ftol=ftol, xtol=xtol, gtol=gtol or None, max_nfev=maxfev or None)
    found = least_squares(func, x0, args=args, method="lm", **settings)
    return found.x, {1: 4, 2: 1, 3: 2, 4: 3}.get(found.status, 5)


__all__ = [
    "brent", "fmin", "fmin_bfgs", "fmin_cg", "fmin_l_bfgs_b", "fmin_powell", "fminbound", "golden", "leastsq",
]  # fmt: skip
