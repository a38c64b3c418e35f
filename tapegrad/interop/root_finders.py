"""SciPy's functions of one method each: `brentq` and its kin between two ends, `newton` from a start, `fsolve` for systems.

Arguments, defaults and results are SciPy's, whose code looks for the root on plain numbers. The root is then a function of what the user's
function uses (solutions.py). What SciPy approximates by differences, the slopes of `newton` and the Jacobian of `fsolve`, comes from
the tape.

Invariant: ends and starts are plain numbers; a root does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.storage import tracing
from ..errors import demand_callable
from ..transforms.derivatives import grad
from .interludes import within
from .promotion import Promotion, itself
from .raveling import Space, outputs, plain
from .scalar_solvers import _plain_number, _root, solved
from .solvers import _arguments, _jacobian, _name
from .traced_roots import TracedRoot

XTOL, RTOL = 2e-12, 4 * np.finfo(float).eps
"""SciPy's tolerances of roots between two ends."""


def _between(method: str, what: str) -> Callable[..., Any]:
    """SciPy's function of this name for a root between two ends; `what` it is, for the docstring."""

    def solver(
        f: Callable[..., Any],
        a: Any,
        b: Any,
        args: Any = (),
        xtol: float = XTOL,
        rtol: float = RTOL,
        maxiter: int = 100,
        full_output: bool = False,
        disp: bool = True,
    ) -> Any:
        settings = {"xtol": xtol, "rtol": rtol, "maxiter": maxiter, "disp": disp}
        return _bracketed(method, f, (a, b), args, full_output, settings)

    solver.__name__ = solver.__qualname__ = method
    solver.__doc__ = f"""The root of `f(x, *args)` between a and b, where f has different signs, by {what}; SciPy's `{method}`.

    Arguments and results are SciPy's; the root is differentiable by all that `f` uses, in both modes and to any order. With `full_output`
    SciPy's RootResults comes second. Raises ValueError where f has one sign at both ends, RuntimeError where the method does not
    converge (unless `disp` is False), NotDifferentiable where the slope of f at the root is 0 and a derivative is wanted. Inside
    `tg.compile` the iterations are one loop of the program, and the report's counts are None.

    >>> import numpy as np, tapegrad as tg
    >>> cube_root = lambda p: tg.optimize.{method}(lambda x: x**3 - p, 0.0, 9.0)
    >>> print(round(cube_root(8.0), 9), round(tg.grad(cube_root)(8.0), 9))
    2.0 0.083333333
    """
    return solver


brentq = _between("brentq", "Brent's method with inverse quadratic interpolation")
brenth = _between("brenth", "Brent's method with hyperbolic extrapolation")
ridder = _between("ridder", "Ridders' method")
bisect = _between("bisect", "bisection")


def toms748(
    f: Callable[..., Any],
    a: Any,
    b: Any,
    args: Any = (),
    k: int = 1,
    xtol: float = XTOL,
    rtol: float = RTOL,
    maxiter: int = 100,
    full_output: bool = False,
    disp: bool = True,
) -> Any:
    """The root of `f(x, *args)` between a and b by algorithm 748 with k steps of Newton's kind a turn; SciPy's `toms748`.

    Arguments, results and errors are those of `tg.optimize.brentq`.

    >>> import tapegrad as tg
    >>> round(tg.grad(lambda p: tg.optimize.toms748(lambda x: x**3 - p, 0.0, 9.0))(8.0), 9)
    0.083333333
    """
    settings = {"k": k, "xtol": xtol, "rtol": rtol, "maxiter": maxiter, "disp": disp}
    return _bracketed("toms748", f, (a, b), args, full_output, settings)


def _bracketed(
    method: str, f: Any, ends: tuple[Any, Any], args: Any, full_output: bool, settings: Any
) -> Any:
    """The root between two ends, with SciPy's report if it is wanted: in a traced program by a loop of the program."""
    from scipy import optimize

    demand_callable(f, method)
    args = _arguments(args)
    if tracing.get() is not None:
        root = TracedRoot(method, f, Space(0.0, "x"), args)
        x = root.between(method, *ends, *(settings[k] for k in ("xtol", "rtol", "maxiter")))
        if x is not None:
            return (x, optimize.RootResults(x, None, None, 0, method)) if full_output else x
        return within(_bracketed, (method, f, ends, args, full_output, settings), {})
    a, b = map(plain, ends)
    with no_grad():
        x, report = getattr(optimize, method)(
            _plain_number(f, args), a, b, full_output=True, **settings
        )
    report.root = _root(method, f, args, float(x))
    return (report.root, report) if full_output else report.root


def newton(
    func: Callable[..., Any],
    x0: Any,
    fprime: Callable[..., Any] | None = None,
    args: Any = (),
    tol: float = 1.48e-8,
    maxiter: int = 50,
    fprime2: Callable[..., Any] | None = None,
    x1: Any = None,
    rtol: float = 0.0,
    full_output: bool = False,
    disp: bool = True,
) -> Any:
    """The root of `func(x, *args)` near `x0`, a number or an array of starts for a `func` of entries; SciPy's `newton`.

    Newton's method with `fprime`, or with slopes from the tape without it; Halley's with `fprime2`; the secant method from a second start
    `x1`. Arguments and results are SciPy's; the root is differentiable by all that `func` uses, in both modes and to any order. Raises
    RuntimeError where the method does not converge (unless `disp` is False), and what `tg.root` raises where a derivative is wanted. Inside
    `tg.compile` the iterations are one loop of the program (arrays without `full_output`).

    >>> import numpy as np, tapegrad as tg
    >>> roots = lambda p: tg.optimize.newton(lambda x, p: x**3 - p, np.ones(2), args=(p,))
    >>> print(roots(np.array([1.0, 8.0])), tg.jacobian(roots)(np.array([1.0, 8.0])).diagonal())
    [1. 2.] [0.33333333 0.08333333]
    """
    from scipy import optimize

    demand_callable(func, "newton")
    args = _arguments(args)
    space = Space(plain(x0), "x0")
    many = space.size > 1
    if tracing.get() is not None and not (full_output and many):
        method = "halley" if fprime2 is not None else "newton" if x1 is None else "secant"
        root = TracedRoot("newton", func, space, args)
        x = root.near(method, space.x, x1, (fprime, fprime2), tol, rtol, maxiter)
        if x is not None:
            return (x, optimize.RootResults(x, None, None, 0, method)) if full_output else x
    if tracing.get() is not None:
        given = (func, x0, fprime, args, tol, maxiter, fprime2, x1, rtol, full_output, disp)
        return within(newton, given, {})
    if fprime is None and x1 is None:
        fprime = grad(lambda x, *a: np.sum(func(x, *a)))

    def of_numbers(f: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if f is None:
            return None
        if not many:
            return _plain_number(f, args)
        return lambda x, *_: np.asarray(plain(f(np.array(x), *args)), float)

    shape = space.shapes[0]
    start = space.x.reshape(shape) if many else float(space.x[0])
    second = None if x1 is None else np.broadcast_to(plain(x1), shape) if many else float(plain(x1))
    with no_grad():
        found = optimize.newton(
            of_numbers(func), start, of_numbers(fprime), (), tol, maxiter, of_numbers(fprime2), second, rtol, True, disp
        )  # fmt: skip
    x = solved(func, space, args, np.ravel(found[0]), "newton")
    if not full_output:
        return x
    if many:
        return found._replace(root=x)
    found[1].root = x
    return x, found[1]


def fsolve(
    func: Callable[..., Any],
    x0: Any,
    args: Any = (),
    fprime: Callable[..., Any] | None = None,
    full_output: bool = False,
    col_deriv: bool = False,
    xtol: float = 1.49012e-8,
    maxfev: int = 0,
    band: tuple[int, int] | None = None,
    epsfcn: float | None = None,
    factor: float = 100,
    diag: Any = None,
) -> Any:
    """The root of n equations `func(x, *args)` in n unknowns, near `x0`; SciPy's `fsolve`, whose Jacobian comes from the tape.

    Arguments and results are SciPy's: `x` has one axis, and with `full_output` a dict, a number and a message follow. It is
    differentiable by all that `func` uses, as the solution of `tg.root`, which also solves for pytrees. Without convergence there is
    SciPy's RuntimeWarning; where a derivative is wanted, NotDifferentiable. Inside `tg.compile` it takes Newton's steps, as `tg.root` does.

    >>> import numpy as np, tapegrad as tg
    >>> where = lambda p: tg.optimize.fsolve(lambda x: [x[0] ** 2 - p, x[0] * x[1] - 1.0], [1.0, 1.0])
    >>> print(where(4.0), tg.jacobian(where)(4.0))
    [2.  0.5] [ 0.25   -0.0625]
    """
    from scipy import optimize

    demand_callable(func, "fsolve")
    args = _arguments(args)
    space = Space(np.ravel(plain(x0)), "x0")
    if tracing.get() is not None and not full_output:
        x = TracedRoot("fsolve", func, space, args).system(space.x, xtol)
        if x is not None:
            return x
    if tracing.get() is not None:
        arguments = (
            func,
            x0,
            args,
            fprime,
            full_output,
            col_deriv,
            xtol,
            maxfev,
            band,
            epsfcn,
            factor,
            diag,
        )
        return within(fsolve, arguments, {})
    name, promotion = _name(func), Promotion("auto", "fsolve")
    value = promotion.of(itself, func)

    def equations(x: np.ndarray, *_: Any) -> np.ndarray:
        return outputs(value(np.array(x), *args), name)

    def given(x: np.ndarray, *_: Any) -> Any:
        return np.asarray(plain(fprime(np.array(x), *args)), float)  # type: ignore[misc]

    slopes = _jacobian(func, space, args, promotion) if fprime is None else given
    with no_grad():
        found = optimize.fsolve(
            equations, space.x, (), slopes, full_output, col_deriv and fprime is not None, xtol, maxfev, band, epsfcn, factor, diag
        )  # fmt: skip
    x = solved(func, space, args, found[0] if full_output else found, "fsolve")
    return (x, *found[1:]) if full_output else x


__all__ = ["bisect", "brenth", "brentq", "fsolve", "newton", "ridder", "toms748"]
