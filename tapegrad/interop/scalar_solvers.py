"""SciPy's further solvers on functions of ours: of one unknown, fixed points, and curve fits.

Each runs SciPy's code on plain numbers, with slopes from the tape where the method takes them, and returns the solution as a function of
the tracked values that the user's function uses (solutions.py).

Invariant: brackets, bounds and starts are plain numbers; a solution does not depend on them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.elsewhere import library_of, refuse_units
from ..core.mode import no_grad
from ..core.storage import tracing
from ..errors import demand_callable
from ..ops.composing import holds_tensor
from ..transforms.derivatives import _list_of_numbers, grad, is_compiled
from .interludes import interlude, within
from .raveling import Space, flatten, joined, plain
from .repeated_fits import fits_of
from .solutions import as_minimum, as_root
from .solvers import EVERY, _arguments, _bounds, _name, _number, least_squares, refuse_settings
from .traced_roots import TracedRoot

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult, RootResults

Tree = Any

WITH_SLOPE, WITH_CURVATURE = ("newton", "halley"), ("halley",)


def root_scalar(
    f: Callable[..., Any],
    args: Any = (),
    method: str | None = None,
    bracket: Sequence[float] | None = None,
    fprime: Callable[..., Any] | bool | None = None,
    fprime2: Callable[..., Any] | bool | None = None,
    x0: float | None = None,
    x1: float | None = None,
    xtol: float | None = None,
    rtol: float | None = None,
    maxiter: int | None = None,
    options: dict[str, Any] | None = None,
) -> RootResults:
    """Solve `f(x, *args) = 0` for one number x; SciPy's `root_scalar`, whose slopes come from the tape.

    `method`: with a `bracket` brentq, brenth, ridder, bisect, toms748; from `x0` newton, halley, secant (newton by default). Returns
    SciPy's RootResults, whose `root` is differentiable by what `f` uses. Where `fprime` or `fprime2` is given, it is used for the steps;
    True says, as in SciPy, that `f` returns them after its value. Inside `tg.compile` the iterations are one loop of the program, but for
    toms748, and the counts are None. Raises ValueError where `f` has one sign at both ends.

    >>> import numpy as np, tapegrad as tg
    >>> dottie = lambda a: tg.root_scalar(lambda x: np.cos(a * x) - x, bracket=(0, 1)).root
    >>> round(dottie(1.0), 6), round(tg.grad(dottie)(1.0), 6)
    (0.739085, -0.297474)
    """
    from scipy import optimize

    demand_callable(f, "root_scalar")
    args = _arguments(args)
    if fprime is True or fprime2 is True:
        several, fprime, fprime2 = f, None, None  # the tape has them

        def f(x: Any, *args: Any) -> Any:
            return several(x, *args)[0]

    slopes: dict[str, Any] = {}
    if bracket is None and method is None and x1 is None:
        method = "halley" if fprime2 else "newton"
    if tracing.get() is not None:
        way = method or ("brentq" if bracket is not None else "secant")
        root = TracedRoot("root_scalar", f, Space(0.0, "x"), args)
        if bracket is not None:
            low, high = bracket
            x = root.between(way, low, high, xtol, rtol, maxiter)
        else:
            tolerances = (1.48e-8 if xtol is None else xtol, rtol or 0.0, maxiter or 50)
            x = root.near(way, x0, x1, (fprime, fprime2), *tolerances)
        if x is not None:
            return optimize.RootResults(x, None, None, 0, way)
        given = (f, args, method, bracket, fprime, fprime2, x0, x1, xtol, rtol, maxiter, options)
        return within(root_scalar, given, {})
    if method in WITH_SLOPE:
        slopes["fprime"] = _plain_number(fprime or grad(f), args)
    if method in WITH_CURVATURE:
        slopes["fprime2"] = _plain_number(fprime2 or grad(grad(f)), args)
    with no_grad():
        result = optimize.root_scalar(
            _plain_number(f, args), method=method, bracket=bracket, x0=x0, x1=x1,
            xtol=xtol, rtol=rtol, maxiter=maxiter, options=options, **slopes
        )  # fmt: skip
    result.root = _root("root_scalar", f, args, float(result.root))
    return result


@interlude
def minimize_scalar(
    f: Callable[..., Any],
    bracket: Sequence[float] | None = None,
    bounds: Sequence[float] | None = None,
    args: Any = (),
    method: str | None = None,
    tol: float | None = None,
    options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Minimise `f(x, *args)` over one number x; SciPy's `minimize_scalar`, whose `x` and `fun` are differentiable by what `f` uses.

    >>> import tapegrad as tg
    >>> best = lambda a: tg.minimize_scalar(lambda x: x**4 / 4 - a * x, bounds=(0, 9)).x
    >>> round(tg.grad(best)(8.0), 6)
    0.083333
    """
    from scipy import optimize

    demand_callable(f, "minimize_scalar")
    args = _arguments(args)
    with no_grad():
        result = optimize.minimize_scalar(
            _plain_number(f, args), bracket=bracket, bounds=bounds, method=method, tol=tol, options=options
        )  # fmt: skip
    result.x = float(result.x)
    limits = (
        None if bounds is None else (np.array([float(bounds[0])]), np.array([float(bounds[1])]))
    )
    return as_minimum(result, f, Space(result.x, "x"), args, limits, ())


@interlude
def fixed_point(
    f: Callable[..., Any],
    x0: Tree,
    args: Any = (),
    xtol: float = 1e-8,
    maxiter: int = 500,
    method: str = "del2",
) -> Tree:
    """The x with `f(x, *args) = x`, near `x0`: SciPy's `fixed_point` on a pytree, differentiable by what `f` uses.

    `method` is "del2" (Steffensen's, with Aitken's acceleration) or "iteration". Raises RuntimeError where it does not converge.

    >>> import numpy as np, tapegrad as tg
    >>> round(tg.grad(lambda a: tg.fixed_point(lambda x: np.cos(a * x), 0.5))(1.0), 6)
    -0.297474
    """
    from scipy import optimize

    demand_callable(f, "fixed_point")
    if not isinstance(method, str) or method not in ("del2", "iteration"):
        raise ValueError(
            f"fixed_point was given method={method!r}, but SciPy has 'del2' and 'iteration': choose one of them."
        )
    if not isinstance(maxiter, int | np.integer) or maxiter < 1:
        raise ValueError(
            f"fixed_point was given maxiter={maxiter!r}, but that is a number of steps: write a whole number from 1 on."
        )
    space, args = Space(x0, "x0"), _arguments(args)

    def step(x: np.ndarray) -> np.ndarray:
        return space.vector(f(space.argument(x), *args), f"the value of {_name(f)}")

    with no_grad():
        x = optimize.fixed_point(step, space.x, xtol=xtol, maxiter=maxiter, method=method)
    return solved(lambda tree, *a: difference(f(tree, *a), tree), space, args, x, "fixed_point")


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Sequence[float] | None = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    full_output: bool = False,
    *,
    check_finite: bool | None = None,
    nan_policy: str | None = None,
    **settings: Any,
) -> tuple[Any, ...]:
    """Fit `f(xdata, *parameters)` to `ydata`; SciPy's `curve_fit`: the parameters and their covariance, differentiable by data and sigma.

    `xdata` is what `f` takes, `ydata` an array of the shape that `f` returns. `sigma`: standard deviations of the data, or their covariance
    matrix. Without `p0` each parameter starts at 1, or within its bounds. `settings` are those of `tg.least_squares` (`maxfev` is SciPy's
    name of `max_nfev`), which fits pytrees of parameters and returns more. The covariance counts parameters at a bound like others, as
    SciPy's does; there they count as known. With `full_output` there follow, as in SciPy, a dict of `nfev` and `fvec` (the residuals), a
    message and a number of how the fit ended.

    Raises RuntimeError where no minimum is found; ValueError where the values of `f` have another shape than `ydata`, and for data that is
    NaN or infinite, unless `check_finite=False`. `nan_policy="omit"` leaves out data where `xdata` or `ydata` is NaN. Warns
    (OptimizeWarning), as SciPy does, where the covariance is inf.

    Of `tg.compile(f)` the residuals and their Jacobian are compiled once for all data of one shape: so many small fits of one model take a
    third of the time. Those of a plain function that only computes are compiled by themselves once its fits have taken as long as that
    does; then results differ by rounding. With `compile=False` nothing is compiled.

    >>> import numpy as np, tapegrad as tg
    >>> t = np.linspace(0, 2, 5)
    >>> found, covariance = tg.curve_fit(lambda t, a, k: a * np.exp(-k * t), t, 3 * np.exp(-0.5 * t))
    >>> print(found.round(6), covariance.shape)
    [3.  0.5] (2, 2)
    """
    demand_callable(f, "curve_fit")
    if "maxfev" in settings:
        settings["max_nfev"] = settings.pop("maxfev")
    refuse_settings(settings, "curve_fit", others=True)
    given = _feasible(bounds, _parameters(f)) if p0 is None else _start(f, p0)
    start = np.atleast_1d(np.asarray(given, dtype=float))
    count = len(start)
    if not count:
        raise ValueError(
            f"curve_fit was given an empty p0 for {_name(f)}, but a fit begins at a number for each parameter: write p0=[1.0, 0.5], or "
            "leave it out for a start at 1."
        )
    data = (_data(xdata, "xdata"), _data(ydata, "ydata"), _data(sigma, "sigma"))
    if nan_policy not in (None, "raise", "omit"):
        raise ValueError(
            f"curve_fit was given nan_policy={nan_policy!r}: choose among None, 'raise' and 'omit'."
        )
    finite = nan_policy is None if check_finite is None else check_finite
    if nan_policy == "omit" and not finite:
        data = _without_nan(*data)
    if tracing.get() is None:
        if finite or nan_policy == "raise":
            _demand_finite_data("xdata", data[0])
            _demand_finite_data("ydata", data[1])
        _demand_deviations(data[2], np.size(data[1]))
    # As SciPy: MINPACK where nothing asks for more. It has few layers, which is what a small fit spends its time in.
    if bounds is None and settings.keys() <= _MINPACKS and np.size(data[1]) >= count:
        settings["method"] = "lm"
    settings[EVERY] = True

    def solve(residuals: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return least_squares(
            residuals, start, args, bounds=bounds, absolute_sigma=absolute_sigma, **settings
        )

    def make(g: Callable[..., Any]) -> Callable[..., Any]:
        return _residuals(g, count)

    if is_compiled(f) and not f.static:  # type: ignore[attr-defined]
        # One program for the residuals and one for their Jacobian, kept for further data of these shapes.
        fit = solve(f.derived(make, ("curve_fit", count)), data)  # type: ignore[attr-defined]
    else:
        own, known = _residuals(f, count, *data), fits_of(f, count, data, settings)
        fit = solve(own, ()) if known is None else known.fitted(f, own, make, start, data, solve)  # type: ignore[arg-type]
    if not fit.success:
        raise RuntimeError(
            f"curve_fit ended before it had found a minimum ({fit.message}): start nearer to it (p0), or allow more steps (maxfev). "
            "tg.least_squares returns what it has reached."
        )
    if tracing.get() is None and not np.isfinite(plain(fit.covariance)).all():
        from scipy.optimize import OptimizeWarning

        warnings.warn(
            f"the covariance of {_name(f)}'s parameters is inf: the data does not determine each of them (one has no influence, only a "
            "combination of several has, or there are no more data than parameters). Leave parameters out, or fix them.",
            OptimizeWarning,
            stacklevel=2,
        )
    if not full_output:
        return fit.x, fit.covariance
    return fit.x, fit.covariance, {"nfev": fit.nfev, "fvec": fit.fun}, fit.message, fit.status


def _start(f: Callable[..., Any], p0: Any) -> Any:
    """The numbers at which a fit begins. Raises TypeError for a dict, and for another number of them than a plain model has."""
    if isinstance(p0, dict):
        raise TypeError(
            f"curve_fit was given a dict as p0, but {_name(f)} gets its parameters by position: write p0=[...] in their order. "
            "tg.least_squares fits dicts, and a residual reads p['a'] of them."
        )
    numbers = plain(p0)
    if type(f) is FunctionType and not f.__code__.co_flags & CO_VARARGS:
        most, count = f.__code__.co_argcount - 1, np.size(numbers)
        if not most - len(f.__defaults__ or ()) <= count <= most:
            raise TypeError(
                f"curve_fit was given p0 with {count} number{'s' * (count != 1)}, but {_name(f)} has {most} parameter{'s' * (most != 1)} "
                "behind the data: give a number for each."
            )
    return numbers


def _feasible(bounds: Any, count: int) -> np.ndarray:
    """Where SciPy starts so many parameters: in the middle of their bounds, 1 from the only one, else at 1."""
    start = np.ones(count)
    within = _bounds(bounds, Space(start, "p0"), pair_of_trees=True) if bounds is not None else None
    if within is None:
        return start
    low, high = within
    with np.errstate(invalid="ignore"):  # NaN where there is neither
        ends = np.where(np.isfinite(low), low, high - 2) + np.where(
            np.isfinite(high), high, low + 2
        )
    return np.where(np.isnan(ends), 1.0, 0.5 * ends)


def _without_nan(xdata: Any, ydata: Any, sigma: Any) -> tuple[Any, Any, Any]:
    """The data where neither xdata, along its last axis, nor ydata is NaN."""
    missing = np.isnan(np.asarray(plain(ydata), dtype=float))
    parts = xdata if isinstance(xdata, tuple | list) else (xdata,)
    if missing.ndim != 1 or not all(np.shape(part)[-1:] == missing.shape for part in parts):
        raise ValueError(
            f"curve_fit was given nan_policy='omit' and ydata of shape {missing.shape}, but leaves numbers out of vectors only, and of "
            "arrays whose last axis is as long: write y as a vector, or leave out what is NaN yourself."
        )
    for part in parts:
        unknown = np.isnan(np.asarray(plain(part), dtype=float))
        missing = missing | unknown.any(axis=tuple(range(unknown.ndim - 1)))
    good = np.flatnonzero(~missing)
    kept = [part[..., good] for part in parts]
    if np.ndim(sigma) and np.size(sigma) > 1:
        sigma = sigma[good] if np.ndim(sigma) == 1 else sigma[good][:, good]
    return (kept if isinstance(xdata, tuple | list) else kept[0]), ydata[good], sigma


def _data(values: Any, what: str) -> Any:
    """Lists of numbers and arrays of other libraries as NumPy's arrays; other data as it is. Raises TypeError for units and times."""
    if type(values) is np.ndarray or values is None:
        return values
    if _list_of_numbers(values):
        return np.asarray(values)
    refuse_units(values, what)
    if library_of(values) and not hasattr(
        values, "columns"
    ):  # of a table the model may take columns
        return np.asarray(values)
    if getattr(getattr(values, "dtype", None), "kind", "") == "M":
        raise TypeError(
            f"{what} was given as times ({values.dtype}), which have no derivative: pass seconds, (t - t[0]) / np.timedelta64(1, 's')."
        )
    return values


def _numbers(values: Any) -> np.ndarray:
    """The floats of data, or none: data of another kind is for the user's function to judge."""
    numbers = np.asarray(plain(values)) if hasattr(values, "dtype") else np.zeros(0)
    return numbers if numbers.dtype.kind == "f" else np.zeros(0)


def _demand_finite_data(what: str, values: Any) -> None:
    """Raise for numbers that are NaN or infinite."""
    numbers = _numbers(values)
    if not np.isfinite(numbers).all():
        missing = int(numbers.size - np.isfinite(numbers).sum())
        raise ValueError(
            f"curve_fit was given {what} with {missing} of {numbers.size} numbers NaN or infinite, to which nothing can be fitted: leave "
            "them out by nan_policy='omit', or good = np.isfinite(x) & np.isfinite(y), then x[good] and y[good]."
        )


def _demand_deviations(sigma: Any, count: int) -> None:
    """Raise for standard deviations that are 0 or NaN (infinite ones weigh nothing), and for a matrix that is no covariance of the data."""
    if sigma is None:
        return
    numbers = np.asarray(plain(sigma), dtype=float)
    wrong = int(np.count_nonzero((numbers == 0) | np.isnan(numbers)))
    if numbers.ndim < 2:
        if numbers.size not in (1, count):
            raise ValueError(
                f"curve_fit was given sigma with {numbers.size} numbers for {count} data: give one for each, or one for all."
            )
        if wrong:
            raise ValueError(
                f"curve_fit was given sigma with {wrong} of {numbers.size} numbers 0 or NaN, but a datum without an error would weigh "
                "infinitely much: give each its standard deviation, or leave sigma out."
            )
        return
    try:
        if numbers.shape != (count, count):
            raise np.linalg.LinAlgError(f"its shape is {numbers.shape}")
        np.linalg.cholesky(numbers)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"curve_fit was given a matrix as sigma which is no covariance of {count} data ({error}): it has a row and a column for "
            "each, and is positive definite. Standard deviations are a vector."
        ) from None


_MINPACKS = {"ftol", "xtol", "gtol", "max_nfev", "compile"}
"""Settings of fits that MINPACK's Levenberg-Marquardt method has."""


def _parameters(f: Callable[..., Any]) -> int:
    """How many parameters follow the data in a model's signature; an error where that is unclear, and where there is none."""
    count = _counted(f)
    if count < 1:
        raise ValueError(
            f"curve_fit was asked to fit {_name(f)}, which has no parameter behind the data: there is nothing to adjust. Write the "
            "parameters behind the data, as in def model(t, a, k), or give p0 for *parameters."
        )
    return count


def _counted(f: Callable[..., Any]) -> int:
    if type(f) is FunctionType and not f.__dict__:
        code = f.__code__
        if not (code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)):
            return code.co_argcount - 1  # in a twentieth of the time that a signature takes
    named = list(inspect.signature(f).parameters.values())
    if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in named):
        raise ValueError(
            f"curve_fit cannot tell how many parameters {_name(f)} has: give p0, a number for each."
        )
    return len(named) - 1


def _residuals(f: Callable[..., Any], count: int, *known: Any) -> Callable[..., Any]:
    """The residuals of a fit of `f` as a function of its parameters and of the data; by `sigma` they are made of unit variance.

    Where the data is `known`, of its parameters alone. Raises ValueError where a model's values and the data are not of one shape: a column
    less a row would be a table, whose squares say nothing of the fit.
    """
    name = _name(f)
    shape = np.shape(known[1]) if known else None

    def residuals(p: Any, *data: Any) -> Any:
        xdata, ydata, sigma = known or data
        value = f(xdata, *[p[i] for i in range(count)])
        if type(value) in _UNJOINED:
            value = _joined(value, name)
        try:
            r = value - ydata
        except ValueError as error:
            raise _apart(value, ydata, name) from error
        if getattr(r, "shape", None) != shape and np.size(r) > np.size(ydata) > 1:
            raise _apart(value, ydata, name)
        if sigma is None:
            return r
        return r / sigma if np.ndim(sigma) < 2 else np.linalg.solve(np.linalg.cholesky(sigma), r)

    residuals.__name__ = name
    return residuals


_UNJOINED = (list, tuple, type(None))


def _joined(value: Any, name: str) -> Any:
    """The values of a model that returned a list of numbers, as one vector."""
    if value is None:
        raise TypeError(f"{name} returned None. Does it end with a return?")
    return joined(value) if holds_tensor(value) else np.asarray(value)


def _apart(value: Any, ydata: Any, name: str) -> ValueError:
    """An error of values that do not belong to the data one by one."""
    return ValueError(
        f"curve_fit was given ydata of shape {np.shape(ydata)}, but {name} returned values of shape {np.shape(value)}: a fit needs a value "
        "for each datum. Return values of ydata's shape, for example by .reshape(-1) or x[:, 0]."
    )


def _plain_number(f: Callable[..., Any], args: Sequence[Any]) -> Callable[[float], float]:
    name = _name(f)
    return lambda x, *_: _number(f(float(x), *args), name)


def difference(value: Tree, tree: Tree) -> list[Any]:
    return [a - b for a, b in zip(flatten(value)[0], flatten(tree)[0], strict=True)]


def _root(what: str, f: Callable[..., Any], args: Sequence[Any], x: float) -> Any:
    return solved(f, Space(x, "x"), args, np.array([x]), what)


def solved(
    f: Callable[..., Any], space: Space, args: Sequence[Any], x: np.ndarray, what: str
) -> Tree:
    """The tree of `x`, a root of `f`, as a function of what `f` uses."""
    from scipy.optimize import OptimizeResult

    return as_root(OptimizeResult(x=space.tree(x)), f, space, args, what).x


__all__ = ["curve_fit", "fixed_point", "minimize_scalar", "root_scalar"]
