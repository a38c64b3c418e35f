"""`minimize`, `least_squares` and `root`: SciPy's solvers on functions of pytrees, with exact derivatives from the tape.

The unknowns are a tree of arrays and numbers; SciPy sees their vector (`raveling.Space`). Each solver is given the
derivatives that it can use, from the mode that is cheapest: the gradient with the value in one run, the Jacobian forwards or
backwards by its shape, and for Newton methods the whole Hessian if it is small, else its products with vectors. All of them
start eager, and are compiled once that pays (`promotion`).

Invariant: results are SciPy's `OptimizeResult`, with `x` and `jac` in the structure of `x0`, and nothing of the user's is
written to.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.closures import lent
from ..core.mode import no_grad
from ..core.storage import tracing
from ..errors import NotDifferentiable, demand_callable
from ..transforms.derivatives import hessian, hvp, jacobian, jacobian_blocks, value_and_grad
from .interludes import interlude, within
from .promotion import Promotion, itself
from .raveling import Space, flatten, joined, joined_arrays, outputs, plain
from .slopes import MANY, is_sparse_enough
from .solutions import as_fit, as_minimum, as_root
from .traced_roots import TracedRoot

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Tree = Any

WITHOUT_GRADIENT = ("nelder-mead", "powell", "cobyla", "cobyqa")
NEWTON = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
"""Methods that take the Hessian or its products."""
DENSE_NEWTON = ("dogleg", "trust-exact")
"""Methods that need the Hessian itself."""
KNOWN = (*WITHOUT_GRADIENT, *NEWTON, *DENSE_NEWTON, "cg", "bfgs", "l-bfgs-b", "tnc", "slsqp")

OPTIONS = frozenset(
    "maxiter maxfev maxfun gtol ftol xtol fatol xatol eps disp maxcor maxls iprint initial_tr_radius".split()
)
"""Settings of SciPy's methods that people give to the solver itself."""

INSTEAD_OF_SETTINGS = {
    "sigma": "divide the residuals by it, and set absolute_sigma=True if it is known in absolute units",
    "p0": "the start is the second argument, x0",
    "maxiter": "it is max_nfev here",
    "maxfev": "it is max_nfev here",
    "maxfun": "it is max_nfev here",
    "tol": "there are three here, ftol, xtol and gtol",
    "options": "settings are arguments of their own here, such as ftol=1e-12 or max_nfev=100",
}
"""What `least_squares` calls the settings that `minimize` or `curve_fit` have; without what it knows itself."""

EVERY = "covariance of every parameter"
"""What `curve_fit` asks of `least_squares` beside its settings: SciPy's covariance, which takes no parameter at a bound for known."""

FIT = 400
"""Unknowns from which on fits use sparse Jacobians by themselves. Measured on smoothed data: with 200 unknowns it takes as long as
the dense way, with 400 an eighth; but its steps are those of an iterative solver, so few unknowns stay dense."""

LARGEST_COVARIANCE = 1000
"""Unknowns up to which a fit with a sparse Jacobian has a covariance, which is dense."""

SMALL = 24
"""Unknowns up to which a Hessian is computed whole: that costs as many directions in one push."""


@interlude
def minimize(
    f: Callable[..., Any],
    x0: Tree,
    args: Any = (),
    method: str | None = None,
    *,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: dict[str, Any] | None = None,
    progress: bool = False,
    compile: bool | str = "auto",
    hess_sparsity: Any = "auto",
    **refused: Any,
) -> OptimizeResult:
    """Minimise `f(x, *args)`, a real number, over a pytree `x` of real arrays and numbers, from `x0`.

    A list of numbers as `x0` is an array, and one argument needs no tuple, as in SciPy.
    `method` is one of `scipy.optimize.minimize` (by default BFGS; L-BFGS-B with bounds, SLSQP with constraints); it gets
    the gradient, and the Hessian or its products if it can use them. `bounds`: a pair (low, high) for all, SciPy's `Bounds`
    or list of pairs, or for a tree a tree with a pair for each leaf (a dict may leave entries out), None for no bound.
    `constraints`: SciPy's, whose functions take `x` as `f` does; their Jacobians are supplied. `progress` reports to stderr.
    `callback(x)` is called each iteration, with the tree; `callback(intermediate_result)`, by that name, with SciPy's OptimizeResult of it.

    A function that is evaluated often enough is compiled, as by `tg.compile`, as soon as its evaluations have taken as long as compiling
    does: then results differ by rounding. That is for functions that do nothing but compute; what prints, counts, draws or reads what
    might change stays as it is. `compile=True` compiles at once (and raises what `tg.compile` raises), False never. Of a function
    that is compiled already, derivatives are compiled, too.

    `hess_sparsity` is for method "trust-constr": "detect", or a pattern, as in `tg.hessian`, gives it the Hessian as a sparse matrix.
    "auto" does so from 100 unknowns on, where at most a tenth of its places is filled; None gives products with it.

    Returns an OptimizeResult with `x` and `jac` in the structure of `x0`. Raises
    ValueError or TypeError, in words, for a start where `f` is not finite, and for bounds that do not fit.

    >>> import numpy as np, tapegrad as tg
    >>> rosenbrock = lambda p: (1 - p["x"]) ** 2 + 100 * (p["y"] - p["x"] ** 2) ** 2
    >>> result = tg.minimize(rosenbrock, {"x": -1.0, "y": 2.0})
    >>> {name: round(value, 5) for name, value in result.x.items()}
    {'x': 1.0, 'y': 1.0}
    """
    from scipy import optimize

    demand_callable(f, "minimize")
    refuse_settings(refused, "minimize")
    space = Space(x0, "x0")
    args = _arguments(args)
    name = _name(f)
    chosen = _method(method)
    low_high = _bounds(bounds, space)
    _demand_inside(space, low_high)
    if options is not None and not isinstance(options, dict):
        raise TypeError(
            f"options={options!r} was given, but it is a dict, such as {{'maxiter': 100}}."
        )
    promotion = Promotion(compile, "minimize", callback is not None or bool(constraints))
    plain_value = promotion.of(itself, f)

    def value(x: np.ndarray) -> float:
        with no_grad():
            return _number(plain_value(space.argument(x), *args), name)

    _demand_finite(_number(f(space.argument(space.x), *args), name), name, "x0")
    differentiated = promotion.of(value_and_grad, f)

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        y, g = differentiated(space.tree(x), *args)
        return _number(y, name), space.vector(g)

    found: dict[str, Any] = {}
    if chosen not in WITHOUT_GRADIENT:
        found["jac"] = True
    found |= _curvature(f, space, args, promotion, method, hess_sparsity)
    limits = None if low_high is None else optimize.Bounds(*low_high)
    report = _Progress("f", progress)
    with (
        no_grad()
    ):  # the steps are not recorded: the solution's derivative does not go through them
        result = optimize.minimize(
            value_and_slope if "jac" in found else value,
            space.x,
            method=method,
            bounds=limits,
            constraints=_constraints(constraints, space, promotion),
            tol=tol,
            options=options,
            callback=_callback(space, callback, report, chosen),
            **found,
        )
    report.done()
    inverse = result.get("hess_inv")
    if isinstance(
        inverse, np.ndarray
    ):  # BFGS's, symmetric but for rounding; as hess_inv0, SciPy takes what is so to the last bit
        result.hess_inv = (inverse + inverse.T) / 2
    result = _shaped(result, space)
    return as_minimum(result, f, space, args, low_high, constraints)


@interlude
def least_squares(
    f: Callable[..., Any],
    x0: Tree,
    args: Any = (),
    method: str = "trf",
    *,
    bounds: Any = None,
    absolute_sigma: bool = False,
    progress: bool = False,
    compile: bool | str = "auto",
    jac_sparsity: Any = "auto",
    **settings: Any,
) -> OptimizeResult:
    """Minimise the sum of squares of the residuals `f(x, *args)` over a pytree `x` of real arrays and numbers, from `x0`.

    `f` returns residuals (an array or a tree of them), divided by the data's standard deviations if these are known. `method`
    and `settings` are those of `scipy.optimize.least_squares` (`loss`, `f_scale`, `x_scale`, tolerances); the Jacobian comes
    from the tape, forwards or backwards by its shape. `bounds` as in `minimize`, or SciPy's pair (lower, upper) of trees.

    Returns SciPy's result with `x` and `grad` in the structure of `x0`, and in addition `covariance` (of the vector whose
    elements `names` lists), `stderr` (its square roots, in the structure of `x0`) and `dof`. The covariance is s² (JᵀJ)⁻¹
    with s² = RSS / dof, or s² = 1 with `absolute_sigma`; parameters at a bound count as known; where J lacks rank it is inf.
    `compile` as in `minimize`. `jac_sparsity`, "detect" or a pattern as in `tg.jacobian`, gives SciPy the Jacobian as a sparse matrix
    (methods "trf" and "dogbox"); then there is a covariance for up to 1000 unknowns, else it and `stderr` are None. "auto" does so between
    400 and 1000 unknowns, where at most a tenth of the places is filled and `settings` name no `tr_solver`; None never does.

    >>> import numpy as np, tapegrad as tg
    >>> t = np.arange(5.0)
    >>> fit = tg.least_squares(lambda p: p["a"] * np.exp(-p["k"] * t) - 3 * np.exp(-0.5 * t), {"a": 1.0, "k": 1.0})
    >>> round(fit.x["a"], 6), round(fit.x["k"], 6)
    (3.0, 0.5)
    """
    from scipy import optimize

    demand_callable(f, "least_squares")
    every = settings.pop(EVERY, False)
    refuse_settings(settings, "least_squares", others=True)
    space = Space(x0, "x0")
    args = _arguments(args)
    name = _name(f)
    low_high = _bounds(bounds, space, pair_of_trees=True)
    _demand_inside(space, low_high)
    promotion = Promotion(compile, "least_squares", any(map(callable, settings.values())))
    value = promotion.of(itself, f)

    def residuals(x: np.ndarray) -> np.ndarray:
        return outputs(value(space.argument(x), *args), name)

    first = outputs(f(space.argument(space.x), *args), name)
    if not first.size:
        raise ValueError(f"{name} returned no residual at all: there is nothing to fit.")
    _demand_finite(first, name, "x0")
    if method == "lm" and first.size < space.size:
        raise ValueError(
            f"method 'lm' needs as many residuals as unknowns, but {name} returned {first.size} for {space.size}: use 'trf'."
        )
    may = (
        FIT <= space.size <= LARGEST_COVARIANCE
        and not {"tr_solver", "tr_options"} & settings.keys()
    )
    refusal = (
        "jac_sparsity was given to method 'lm', whose Jacobians are dense: use 'trf' or 'dogbox'."
    )
    slopes = _sparse_slopes(
        jacobian,
        jac_sparsity,
        f,
        space,
        args,
        may and method != "lm",
        refusal if method == "lm" else "",
    )
    if slopes is None:
        slopes = _jacobian(f, space, args, promotion)
    elif _is_automatic(jac_sparsity):
        settings["tr_options"] = {"atol": 1e-12, "btol": 1e-12}
    report = _Progress("cost", progress)
    called = _callback(space, settings.get("callback"), report, reported=("cost", "optimality"))
    if called is not None and method != "lm":
        settings["callback"] = called
    limits = (-np.inf, np.inf) if low_high is None else low_high
    with no_grad():
        if method == "lm" and _is_plain(settings):
            result = _minpack(_remembering(residuals, space.x, first), slopes, space.x, **settings)
        else:
            result = optimize.least_squares(
                residuals, space.x, jac=slopes, bounds=limits, method=method, **settings
            )
    report.done()
    _add_covariance(result, space, absolute_sigma, every)
    result.grad = space.tree(result.grad)
    result.x = space.tree(result.x)
    return as_fit(result, f, space, args, low_high, absolute_sigma, settings, every)


def _is_plain(settings: dict[str, Any]) -> bool:
    """Whether these settings are a limit and tolerances, none of them too small for MINPACK."""
    rest = dict(settings)
    most = rest.pop("max_nfev", None)
    return (most is None or most > 0) and all(
        name in ("ftol", "xtol", "gtol") and isinstance(t, float) and t > np.finfo(float).eps
        for name, t in rest.items()
    )


STATUS = (-1, 2, 3, 4, 1, 0)
"""What `scipy.optimize.least_squares` calls the ways in which MINPACK ends."""


def _minpack(
    residuals: Callable[[np.ndarray], np.ndarray],
    slopes: Callable[..., np.ndarray],
    x0: np.ndarray,
    max_nfev: int | None = None,
    ftol: float = 1e-8,
    xtol: float = 1e-8,
    gtol: float = 1e-8,
) -> OptimizeResult:
    """The result of SciPy's `least_squares` with method "lm" by its `leastsq`: the same steps under half the layers of Python."""
    from scipy import optimize

    slopes = _remembering(slopes)
    most = 100 * x0.size if max_nfev is None else max_nfev
    # Slopes in forward mode are computed, and lie in memory, by columns, as MINPACK wants them.
    x, _, info, message, ending = optimize.leastsq(
        residuals, x0, Dfun=lambda x: slopes(x).T, col_deriv=True, full_output=True,
        ftol=ftol, xtol=xtol, gtol=gtol, maxfev=most,
    )  # fmt: skip
    fun, jac = info["fvec"], slopes(x)
    gradient = jac.T @ fun
    return optimize.OptimizeResult(
        x=x, cost=0.5 * (fun @ fun), fun=fun, jac=jac, grad=gradient, optimality=np.abs(gradient).max(),
        active_mask=np.zeros(x.size, int), nfev=info["nfev"], njev=info["njev"], status=STATUS[ending],
        message=" ".join(message.split()), success=STATUS[ending] > 0
    )  # fmt: skip


def _remembering(
    function: Callable[..., np.ndarray], known: np.ndarray | None = None, value: Any = None
) -> Callable[..., np.ndarray]:
    """The function, which does not compute again where it was called last: `leastsq` asks for the start three times.

    `value` is what it is at `known`, if that is told.
    """
    at = b"" if known is None else known.tobytes()

    def called(x: np.ndarray) -> np.ndarray:
        nonlocal at, value
        if x.tobytes() != at:
            at, value = x.tobytes(), function(x)
        return value

    return called


def root(
    f: Callable[..., Any],
    x0: Tree,
    args: Any = (),
    method: str = "hybr",
    *,
    tol: float | None = None,
    options: dict[str, Any] | None = None,
    progress: bool = False,
    compile: bool | str = "auto",
    jac_sparsity: Any = "auto",
    **refused: Any,
) -> OptimizeResult:
    """Solve `f(x, *args) = 0` for a pytree `x` of real arrays and numbers, from `x0`; as many equations as unknowns.

    `method` is one of `scipy.optimize.root`; "hybr" and "lm" get the Jacobian from the tape. Returns an OptimizeResult with
    `x` in the structure of `x0`; `success` says whether a root was found. Raises ValueError where the counts differ. `compile` as in
    `minimize`. `jac_sparsity`, "detect" or a pattern as in `tg.jacobian`, is for many unknowns: SciPy's "krylov" (then the default) is
    preconditioned by the sparse LU factors of the Jacobian at each step, so that its steps are Newton's. "auto" does so from 100 unknowns
    on where at most a tenth of the places is filled and neither `tol` nor `options` are given, and goes back to "hybr" where that fails.
    Inside `tg.compile` "hybr" stands for Newton's steps, shortened where |f| would grow, which are one loop of the program.

    >>> import numpy as np, tapegrad as tg
    >>> round(tg.root(lambda x: np.cos(x) - x, 1.0).x, 6)
    0.739085
    """
    from scipy import optimize

    demand_callable(f, "root")
    if not isinstance(method, str):
        raise ValueError(
            f"root was given method={method!r}, but SciPy's are named by words: choose 'hybr', 'lm', 'krylov' or another."
        )
    refuse_settings(refused, "root")
    space = Space(x0, "x0")
    args = _arguments(args)
    name = _name(f)
    if tracing.get() is not None and method == "hybr":
        x = TracedRoot("root", f, space, args).system(space.x, 1.49012e-8 if tol is None else tol)
        if x is not None:
            return optimize.OptimizeResult(x=x, success=True, status=1)
    if tracing.get() is not None:
        settings = {
            "tol": tol,
            "options": options,
            "compile": compile,
            "jac_sparsity": jac_sparsity,
        }
        return within(root, (f, x0, args, method), settings)
    report = _Progress("|f|", progress)
    promotion = Promotion(compile, "root")
    value = promotion.of(itself, f)

    def equations(x: np.ndarray) -> np.ndarray:
        with no_grad():
            values = outputs(value(space.argument(x), *args), name)
        report(float(np.linalg.norm(values)), None)
        return values

    first = outputs(f(space.argument(space.x), *args), name)
    if first.size != space.size:
        raise ValueError(
            f"{name} returned {first.size} equations for {space.size} unknowns: root needs as many of one as of the other; "
            "least_squares does not."
        )
    _demand_finite(first, name, "x0")
    may = method == "hybr" and tol is None and not options
    refusal = f"jac_sparsity was given to method {method!r}, but sparse Jacobians serve 'krylov' only: leave method out."
    sparse = _sparse_slopes(
        jacobian, jac_sparsity, f, space, args, may, "" if method in ("hybr", "krylov") else refusal
    )
    automatic = sparse is not None and _is_automatic(jac_sparsity)
    if sparse is not None:
        method = "krylov"
        options = dict(options or ({"xtol": 1.5e-8, "maxiter": 50} if automatic else {}))

    def solved(method: str, options: Any) -> OptimizeResult:
        jac = _jacobian(f, space, args, promotion) if method in ("hybr", "lm") else None
        with no_grad(), lent(equations, jac, sparse) as (value_at, jac, matrix):
            if method == "krylov" and matrix is not None:
                options = dict(options)
                options["jac_options"] = {
                    "inner_M": _newton_step(matrix, space.x),
                    **options.get("jac_options", {}),
                }
            return optimize.root(value_at, space.x, jac=jac, method=method, tol=tol, options=options)  # fmt: skip

    result = solved(method, options)
    if automatic and not result.success:
        result = solved("hybr", None)
    report.done()
    result.x = space.tree(np.atleast_1d(result.x))
    return as_root(result, f, space, args)


# ------------------------------------------------------------------------------------ derivatives


def _jacobian(
    f: Callable[..., Any], space: Space, args: Sequence[Any], promotion: Promotion
) -> Callable[..., Any]:
    """The Jacobian of a function of trees, as a matrix at a vector."""
    by_leaves = promotion.of(jacobian_blocks, f)

    def matrix(x: np.ndarray) -> np.ndarray:
        rows = by_leaves(space.tree(x), *args)
        if len(rows) == 1:
            return space.columns(rows[0])
        return joined_arrays([space.columns(row) for row in rows])

    return matrix


def _is_automatic(sparsity: Any) -> bool:
    """Whether a solver decides if it uses sparse derivatives."""
    return isinstance(sparsity, str) and sparsity == "auto"


def _sparse_slopes(
    transform: Callable[..., Any],
    sparsity: Any,
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    may: bool,
    refusal: str,
) -> Callable[..., Any] | None:
    """The sparse Jacobian or Hessian that was asked for, or that pays where a solver decides and `may` use it; None for a dense one.

    `refusal` says why the method takes none, and is empty where it does.
    """
    if sparsity is None:
        return None
    if _is_automatic(sparsity):
        return _sparse_if_it_pays(transform, f, space, args) if may else None
    if refusal:
        raise ValueError(refusal)
    return _sparse(transform, f, space, args, sparsity)


def _sparse_if_it_pays(
    transform: Callable[..., Any], f: Callable[..., Any], space: Space, args: Sequence[Any]
) -> Callable[..., Any] | None:
    """`_sparse`, which knows the matrix at the beginning, where so many unknowns have a Jacobian or Hessian sparse enough; else None."""
    if space.size < MANY or tracing.get() is not None:
        return None
    derivative = _sparse(transform, f, space, args, "detect")
    try:
        with no_grad():
            first = derivative(space.x)
    except (NotDifferentiable, TypeError):
        return None
    if not first.nnz or not is_sparse_enough(first):
        return None
    beginning, known = space.x.copy(), [first]

    def found(x: np.ndarray, *_: Any) -> Any:
        if known:  # solvers begin there; whatever they do next, the matrix is not kept for longer
            matrix = known.pop()
            if np.array_equal(x, beginning):
                return matrix
        return derivative(x)

    return found


def _sparse(
    transform: Callable[..., Any],
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    sparsity: Any,
) -> Callable[..., Any]:
    """The Jacobian or Hessian of a function of trees as a sparse matrix of SciPy's, at a vector."""

    def of_vectors(v: Any) -> Any:
        y = f(space.split(v), *args)
        return joined(y) if transform is jacobian else np.reshape(joined(y), ())

    from ..sparse.arrays import to_scipy

    derivative = transform(of_vectors, sparsity=sparsity, allow_unused=True)
    return lambda x, *_: to_scipy(derivative(np.array(x)))


def _newton_step(slopes: Callable[..., Any], x: np.ndarray) -> Any:
    """SciPy's preconditioner that solves with the Jacobian at the last step: with it a Krylov method takes Newton's steps."""
    from scipy.sparse.linalg import LinearOperator, splu

    class Step(LinearOperator):
        def __init__(self) -> None:
            self.slopes = (
                slopes  # a class waits for the cyclic collector, with what its methods close over
            )
            super().__init__(float, (x.size, x.size))

        def setup(self, x: np.ndarray, _: Any, __: Any) -> None:
            self.update(x, None)

        def update(self, x: np.ndarray, _: Any) -> None:
            try:
                self.solve = splu(self.slopes(np.ravel(x)).tocsc()).solve
            except RuntimeError:  # singular here: the factors of the last step, or none, must do
                self.solve = getattr(self, "solve", np.asarray)

        def _matvec(self, v: np.ndarray) -> np.ndarray:
            return self.solve(np.ravel(v))

    return Step()


def _list(value: Any) -> list[Any]:
    return flatten(value)[0]


def _curvature(
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    promotion: Promotion,
    method: str | None,
    sparsity: Any,
) -> dict[str, Any]:
    """What a method of SciPy's `minimize` is given of second derivatives: the Hessian, sparse or dense, its products, or nothing."""
    chosen = _method(method)
    takes = chosen == "trust-constr"
    refusal = (
        f"hess_sparsity was given to method {method!r}, but SciPy takes a sparse Hessian in 'trust-constr' only: the other "
        "methods of Newton's kind get products with it."
    )
    sparse = _sparse_slopes(hessian, sparsity, f, space, args, takes, "" if takes else refusal)
    if sparse is not None:
        return {"hess": sparse}
    if chosen in DENSE_NEWTON or (chosen in NEWTON and space.size <= SMALL):
        return {"hess": _hessian(f, space, args, promotion)}
    if chosen not in NEWTON:
        return {}
    product = promotion.of(hvp, f)
    return {"hessp": lambda x, v: space.vector(product(space.tree(x), space.tree(v), *args))}


def _hessian(
    f: Callable[..., Any], space: Space, args: Sequence[Any], promotion: Promotion
) -> Callable[..., Any]:
    """The Hessian of a function of trees, as a matrix at a vector."""
    second = promotion.of(hessian, f)

    def matrix(x: np.ndarray) -> np.ndarray:
        blocks = second(space.tree(x), *args)
        outer = [blocks] if space.is_lone else space.structure.flatten_up_to(blocks)
        return joined_arrays([space.columns(flatten(b)[0]) for b in outer])

    return matrix


def _constraints(constraints: Any, space: Space, promotion: Promotion) -> Any:
    """SciPy's constraints on trees as constraints on vectors, with Jacobians."""
    from scipy import optimize

    one = isinstance(constraints, dict | optimize.NonlinearConstraint | optimize.LinearConstraint)
    if not one and not isinstance(constraints, list | tuple):
        raise TypeError(
            f"constraints of type {type(constraints).__name__} were given: use SciPy's dicts, NonlinearConstraint or "
            "LinearConstraint, or a list of them."
        )
    return [_constraint(c, space, promotion) for c in ([constraints] if one else constraints)]


def _constraint(c: Any, space: Space, promotion: Promotion) -> Any:
    """The constraint for SciPy, with its Jacobian (and curvature) supplied; an error for other types."""
    from scipy import optimize

    if isinstance(c, optimize.LinearConstraint):
        return c
    if not callable(c.get("fun", abs) if isinstance(c, dict) else getattr(c, "fun", abs)):
        raise TypeError(
            "the fun of a constraint cannot be called: give a function of the unknowns."
        )
    if isinstance(c, dict):
        if "fun" not in c or c.get("type") not in ("eq", "ineq"):
            raise ValueError(
                "a constraint is a dict such as {'type': 'ineq', 'fun': g} (g >= 0) or 'eq' (g = 0), or SciPy's "
                "NonlinearConstraint or LinearConstraint."
            )
        given = c.get("args", ())
        return {
            **c,
            "fun": _values(c["fun"], space, given, promotion),
            "jac": _without(_jacobian(c["fun"], space, given, promotion)),
        }
    if isinstance(c, optimize.NonlinearConstraint):
        fun = c.fun

        def curvature(x: np.ndarray, v: np.ndarray) -> np.ndarray:
            weighted = lambda tree: sum(  # noqa: E731
                (w * y).sum() for w, y in zip(_split(v, fun, tree), _list(fun(tree)), strict=True)
            )
            return _hessian(weighted, space, (), Promotion(False, "minimize"))(x)

        return optimize.NonlinearConstraint(
            _values(fun, space, (), promotion),
            c.lb,
            c.ub,
            jac=_jacobian(fun, space, (), promotion),
            hess=curvature,
        )
    raise TypeError(
        f"a constraint of type {type(c).__name__} was given: use SciPy's dicts, NonlinearConstraint or LinearConstraint."
    )


def _values(
    g: Callable[..., Any], space: Space, args: Sequence[Any], promotion: Promotion
) -> Callable[..., Any]:
    value = promotion.of(itself, g)

    def values(x: np.ndarray, *_: Any) -> np.ndarray:
        with no_grad():
            return outputs(value(space.argument(x), *args), _name(g))

    return values


def _without(matrix: Callable[..., Any]) -> Callable[..., Any]:
    """SciPy passes a constraint's args to its Jacobian too; ours has them already."""
    return lambda x, *_: matrix(x)


def _split(v: np.ndarray, fun: Callable[..., Any], tree: Tree) -> list[np.ndarray]:
    """A vector of weights in the shapes of what a function returns."""
    parts = []
    start = 0
    for y in _list(fun(tree)):
        size, shape = int(np.size(plain(y))), np.shape(y)
        parts.append(np.asarray(v[start : start + size]).reshape(shape))
        start += size
    return parts


# ------------------------------------------------------------------------------------ what is asked


def _arguments(args: Any) -> tuple[Any, ...]:
    """Further arguments of `f`; one alone may stand without its tuple, as in SciPy."""
    return args if isinstance(args, tuple) else (args,)


def refuse_settings(given: dict[str, Any], solver: str, others: bool = False) -> None:
    """Raise for derivatives that were given although the tape has them, and for keywords that nobody knows."""
    for name in given:
        if name in ("jac", "hess", "hessp"):
            raise TypeError(
                f"{solver} was given {name}, but takes derivatives from the tape: leave {name} out, or use "
                f"scipy.optimize.{solver}, to which tg.grad, tg.jacobian and tg.hessian give what it needs."
            )
        if others and name not in INSTEAD_OF_SETTINGS:
            continue
        hint = INSTEAD_OF_SETTINGS.get(name, "") if others else ""
        if name in OPTIONS and not others:
            hint = f"settings of a method go into options={{{name!r}: ...}}"
        said = f"{solver}() got an unexpected keyword argument {name!r}"
        raise TypeError(f"{said}: {hint}." if hint else said)


def _name(f: Any) -> str:
    name = getattr(f, "__name__", type(f).__name__)
    return "f" if name == "<lambda>" else name


def _method(method: Any) -> str:
    if method is None:
        return ""
    if not isinstance(method, str) or method.lower() not in KNOWN:
        raise ValueError(
            f"method={method!r} is not one of SciPy's: choose among {', '.join(sorted(KNOWN))}."
        )
    return method.lower()


def _number(value: Any, name: str) -> float:
    values = outputs(value, name)
    if values.size != 1:
        raise ValueError(
            f"{name} returned {values.size} numbers, but a minimum is of one: sum them, or use least_squares."
        )
    return float(values[0])


def _demand_finite(values: Any, name: str, where: str) -> None:
    if not np.isfinite(values).all():
        bad = np.asarray(values)[~np.isfinite(values)].flat[0]
        raise ValueError(f"{name} is {bad} at {where}: start where it is finite.")


def _demand_inside(space: Space, low_high: tuple[np.ndarray, np.ndarray] | None) -> None:
    if low_high is None:
        return
    low, high = low_high
    if (low > high).any():
        k = int(np.argmax(low > high))
        raise ValueError(f"the bounds of {space.names[k]} leave nothing: {low[k]} > {high[k]}.")
    outside = (space.x < low) | (space.x > high)
    if outside.any():
        k = int(np.argmax(outside))
        raise ValueError(
            f"{space.names[k]} = {space.x[k]:g} lies outside its bounds [{low[k]:g}, {high[k]:g}]: start inside."
        )


def _bounds(
    bounds: Any, space: Space, pair_of_trees: bool = False
) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower and upper bounds as vectors, from any of the forms that `minimize` describes."""
    if bounds is None:
        return None
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return _vector(bounds.lb, space, -np.inf), _vector(bounds.ub, space, np.inf)
    if isinstance(bounds, tuple) and len(bounds) == 2 and all(_is_side(b) for b in bounds):
        return _vector(bounds[0], space, -np.inf), _vector(bounds[1], space, np.inf)
    if pair_of_trees and isinstance(bounds, tuple | list) and len(bounds) == 2:
        return _vector(bounds[0], space, -np.inf), _vector(bounds[1], space, np.inf)
    if space.is_lone:
        pairs: list[Any] = list(bounds)
        if len(pairs) != space.size:
            raise ValueError(
                f"bounds has {len(pairs)} pairs for {space.size} unknowns: give a pair (low, high) for each, or one for all."
            )
        if not all(np.iterable(b) and len(tuple(b)) == 2 for b in pairs):
            raise ValueError(
                "bounds holds something else than pairs: give (low, high) for each unknown, or one pair for all; None is no bound."
            )
        low = np.array([-np.inf if b[0] is None else b[0] for b in pairs], dtype=float)
        high = np.array([np.inf if b[1] is None else b[1] for b in pairs], dtype=float)
        return low, high
    return _tree_of_pairs(bounds, space)


def _is_side(side: Any) -> bool:
    return side is None or isinstance(side, int | float | np.generic)


def _vector(side: Any, space: Space, free: float) -> np.ndarray:
    """One side of the bounds: a number for all, a vector, or a tree."""
    if side is None:
        return np.full(space.size, free)
    if np.ndim(side) == 0 and not isinstance(side, dict):
        return np.full(space.size, float(side))
    if isinstance(side, np.ndarray) and side.shape == (space.size,):
        return side.astype(float)
    if isinstance(side, list | tuple) and len(side) == space.size and space.is_lone:
        return np.array([free if s is None else s for s in side], dtype=float)
    return space.vector(side, "a bound")


def _tree_of_pairs(bounds: Any, space: Space) -> tuple[np.ndarray, np.ndarray]:
    """A pair for each leaf of the unknowns, in their structure; entries that a dict leaves out are free."""
    low, high = np.full(space.size, -np.inf), np.full(space.size, np.inf)
    start = 0
    for accessor, shape, size in zip(
        space.structure.accessors(), space.shapes, space.sizes, strict=True
    ):
        pair = bounds
        for entry in accessor.path:
            if isinstance(pair, dict) and entry not in pair:
                pair = None
                break
            pair = pair[entry]
        part = slice(start, start + size)
        start += size
        if pair is None:
            continue
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"the bounds of {accessor.codify(space.what)} are {pair!r}, but they are a pair (low, high), None for no bound."
            )
        for side, into in zip(pair, (low, high), strict=True):
            if side is not None:
                into[part] = np.broadcast_to(np.asarray(side, dtype=float), shape).reshape(-1)
    _refuse_unknown(bounds, space)
    return low, high


def _refuse_unknown(bounds: Any, space: Space) -> None:
    tree = space.structure.unflatten(range(len(space.shapes)))
    if isinstance(bounds, dict) and isinstance(tree, dict) and set(bounds) - set(tree):
        extra = ", ".join(map(repr, set(bounds) - set(tree)))
        raise ValueError(
            f"bounds name {extra}, which x0 does not have: it has {', '.join(map(repr, tree))}."
        )


# ------------------------------------------------------------------------------------ what is returned


def _shaped(result: OptimizeResult, space: Space) -> OptimizeResult:
    result.x = space.tree(np.atleast_1d(result.x))
    jac = result.get("jac")
    if isinstance(jac, np.ndarray) and jac.size == space.size:
        result.jac = space.tree(jac.reshape(-1))
    return result


_EPSILON = float(np.finfo(float).eps)


def _add_covariance(
    result: OptimizeResult, space: Space, absolute_sigma: bool, every: bool
) -> None:
    """Covariance of the parameters that are not at a bound, or of every one, from the Jacobian at the solution."""
    free, jac = (result["active_mask"] == 0) | every, result["jac"]
    count = int(np.count_nonzero(free))
    result.names = space.names
    result.dof = dof = max(len(result["fun"]) - count, 0)
    if not isinstance(jac, np.ndarray):
        if space.size > LARGEST_COVARIANCE:
            result.covariance = result.stderr = None
            return
        jac = jac.toarray()
    whole = count == space.size
    j = jac if whole else jac[:, free]
    covariance = np.zeros((space.size, space.size))
    if count:
        variance = 1.0 if absolute_sigma else 2 * result["cost"] / dof if dof else np.inf
        found: Any = _inverse_of_square(j) if math.isfinite(variance) else None
        places: Any = ... if whole else np.ix_(free, free)
        covariance[places] = np.inf if found is None else variance * found
    result.covariance = covariance
    result.stderr = space.tree(np.sqrt(covariance.diagonal()))


def _inverse_of_square(j: np.ndarray) -> Any:
    """(JᵀJ)⁻¹ by the singular values of the triangular factor of J; None where J lacks rank."""
    from scipy.linalg import lapack

    # Columns of size 1 before the singular values are looked at: a parameter in other units is no lack of rank.
    lengths = np.sqrt(np.vecdot(j.T, j.T))
    lengths[lengths == 0] = 1.0
    factor = lapack.dgeqrf(j / lengths, overwrite_a=True)[0][: j.shape[1]]
    for k in range(1, len(factor)):
        factor[k, :k] = 0.0  # where the reflections are held
    _, s, vt, failed = lapack.dgesdd(factor, full_matrices=0)
    if failed:
        raise np.linalg.LinAlgError("the singular values of a fit's Jacobian did not converge.")
    if len(s) < j.shape[1] or not s[-1] > _EPSILON * max(j.shape) * s[0]:
        return None
    root = vt / (s[:, None] * lengths)
    return root.T @ root


class _Progress:
    """A line on stderr for each iteration, where progress is wanted: tqdm's, if it is installed; on a terminal one overwrites another."""

    def __init__(self, what: str, wanted: bool) -> None:
        self.what, self.wanted, self.count = what, wanted, 0
        self.bar: Any = None
        if wanted and importlib.util.find_spec("tqdm") is not None:
            from tqdm.auto import tqdm

            self.bar = tqdm(unit=" iterations")

    def __call__(self, value: Any, slope: Any) -> None:
        self.count += 1
        if self.bar is not None:
            numbers = {self.what: value, "|gradient|": slope}
            told = {k: f"{float(v):.6g}" for k, v in numbers.items() if v is not None}
            self.bar.set_postfix(told, refresh=False)
            self.bar.update()
        elif self.wanted:
            end = "\r" if sys.stderr.isatty() else "\n"
            beside = "" if slope is None else f"  |gradient| {float(slope):.2e}"
            value = f"  {self.what} {float(value):.8g}" if value is not None else ""
            print(f"iteration {self.count}{value}{beside}", end=end, file=sys.stderr, flush=True)

    def done(self) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.wanted and sys.stderr.isatty() and self.count:
            print(file=sys.stderr)


def takes_result(callback: Callable[..., Any]) -> bool:
    """Whether a callback is of SciPy's newer form: its one parameter is called `intermediate_result`."""
    try:
        return list(inspect.signature(callback).parameters) == ["intermediate_result"]
    except (TypeError, ValueError):
        return False


def _intermediate(space: Space, x: np.ndarray, state: Any) -> OptimizeResult:
    """What a callback of that form gets: what SciPy tells, with x as a tree."""
    from scipy.optimize import OptimizeResult

    return OptimizeResult({**(state or {}), "x": space.tree(x)})


def _callback(
    space: Space,
    callback: Callable[..., Any] | None,
    report: _Progress,
    method: str = "",
    reported: Sequence[str] = ("fun", ""),
) -> Callable[..., Any] | None:
    """A callback for SciPy that reports what a state has under these two names, and calls the user's with the tree."""
    if callback is None and not report.wanted:
        return None
    if callback is not None:
        demand_callable(callback, "callback")

    whole = callback is not None and takes_result(callback)

    def called(x: np.ndarray, state: Any) -> Any:
        report(*(None if state is None else state.get(name) for name in reported))
        if callback is None:
            return None
        return callback(_intermediate(space, x, state)) if whole else callback(space.tree(x))

    if method == "trust-constr":
        return called
    if method in ("tnc", "cobyla", "slsqp"):  # older SciPy calls these back with x alone
        return lambda x: called(x, None)

    def with_result(intermediate_result: Any) -> Any:
        return called(intermediate_result.x, intermediate_result)

    return with_result


__all__ = ["least_squares", "minimize", "root"]
