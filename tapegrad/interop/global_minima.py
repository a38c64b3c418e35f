"""Minima among many: `differential_evolution`, `dual_annealing`, `basinhopping`, `shgo`, `direct`; orders that minimise.

SciPy's search runs on plain numbers. Where the function uses something tracked, what it found is the start of `minimize`, whose solution is
differentiable; which of several minima is the lowest is a constant.

Invariant: bounds and starts are plain numbers. Where the search ends at no minimum with a derivative there is an error, as for `minimize`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..errors import NotDifferentiable, demand_callable
from ..ops.composing import holds_tensor, operand, raw
from ..ops.indexing import scatter
from .interludes import interlude
from .solutions import _is_tracked
from .solvers import _arguments, _name, _number, minimize

TOLERANCE = 1e-10
"""The slope to which a minimum is refined before it has a derivative."""


@interlude
def _searched(
    name: str, func: Callable[..., Any], args: Any, given: dict[str, Any], places: tuple[Any, ...]
) -> Any:
    """SciPy's result of a search, refined and differentiable if the function uses something tracked."""
    from scipy import optimize

    demand_callable(func, name)
    args = _arguments(args)
    bounds = None if name == "basinhopping" else places[0]
    if not (bounds is None or isinstance(bounds, optimize.Bounds)) and (
        np.ndim(bounds) < 2 or np.size(bounds) == 0
    ):
        raise ValueError(
            f"{name} was given bounds={bounds!r}, but they are a pair for each variable: write [(low, high), ...]."
        )

    def value(x: np.ndarray) -> float:
        with no_grad():
            return _number(func(x, *args), _name(func))

    with no_grad():
        result = getattr(optimize, name)(value, *places, **given)
    x = np.array(result.x)
    if not _is_tracked([lambda v: func(v, *args)], x, name):
        return result
    if given.get("integrality") is not None:
        raise NotDifferentiable(
            f"{name} was given integrality= with something tracked, but integers jump. Fix them, and minimise over the others."
        )
    refined = minimize(
        func,
        x,
        args,
        bounds=bounds,
        constraints=given.get("constraints") or (),
        tol=TOLERANCE,
        compile=False,
    )
    result.x, result.fun = refined.x, refined.fun
    if hasattr(refined, "multipliers"):
        result.multipliers = refined.multipliers
    return result


def differential_evolution(
    func: Callable[..., Any], bounds: Any, args: Any = (), **settings: Any
) -> Any:
    """The lowest minimum of `func(x, *args)` within bounds by differential evolution; SciPy's, with its settings by keyword.

    `x` and `fun` of the result are differentiable by what `func` and constraints use.

    >>> import numpy as np, tapegrad as tg
    >>> bumps = lambda x, a: np.sum((x - a) ** 2 + 1.0 - np.cos(3.0 * (x - a)))
    >>> best = lambda a: tg.optimize.differential_evolution(lambda x: bumps(x, a), [(-4.0, 5.0)], rng=1, popsize=6).x[0]
    >>> round(float(best(1.5)), 6), round(tg.grad(best)(1.5), 6)
    (1.5, 1.0)
    """
    return _searched("differential_evolution", func, args, settings, (bounds,))


def dual_annealing(func: Callable[..., Any], bounds: Any, args: Any = (), **settings: Any) -> Any:
    """The lowest minimum of `func(x, *args)` within bounds by annealing; SciPy's, differentiable as `differential_evolution` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.dual_annealing(lambda x: np.sum((x - a) ** 2), [(-2, 3)], rng=0, maxiter=20).x[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    return _searched("dual_annealing", func, args, settings, (bounds,))


def shgo(func: Callable[..., Any], bounds: Any, args: Any = (), **settings: Any) -> Any:
    """The lowest minimum of `func(x, *args)` within bounds by simplices; SciPy's, differentiable as `differential_evolution` is.

    Its other local minima, `xl` and `funl`, are constants.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.shgo(lambda x: np.sum((x - a) ** 2), [(-2, 3)]).x[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    return _searched("shgo", func, args, settings, (bounds,))


def direct(func: Callable[..., Any], bounds: Any, *, args: Any = (), **settings: Any) -> Any:
    """The lowest minimum of `func(x, *args)` within bounds by dividing boxes; SciPy's, differentiable as `differential_evolution` is.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.direct(lambda x: np.sum((x - a) ** 2), [(-2, 3)]).x[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    return _searched("direct", func, args, settings, (bounds,))


def basinhopping(
    func: Callable[..., Any], x0: Any, niter: int = 100, *, args: Any = (), **settings: Any
) -> Any:
    """The lowest of the minima of `func(x, *args)` that hops from x0 come to; SciPy's, differentiable as `differential_evolution` is.

    `args` are given here, and not in `minimizer_kwargs`; other settings are SciPy's.

    >>> import numpy as np, tapegrad as tg
    >>> best = lambda a: tg.optimize.basinhopping(lambda x: np.sum((x - a) ** 2), [0.0], niter=3, rng=0).x[0]
    >>> round(float(tg.grad(best)(1.0)), 6)
    1.0
    """
    if "args" in (settings.get("minimizer_kwargs") or {}):
        raise TypeError(
            "basinhopping was given args in minimizer_kwargs, where derivatives do not see them: give args=(...) beside it."
        )
    return _searched(
        "basinhopping",
        func,
        args,
        settings | {"niter": niter},
        (np.asarray(raw(operand(x0)), float),),
    )


# ------------------------------------------------------------------------------------------- orders


@interlude
def isotonic_regression(y: Any, *, weights: Any = None, increasing: bool = True) -> Any:
    """The rising (or falling) sequence x with the least Σ w (y - x)²; SciPy's, `x` and `weights` differentiable by data and weights.

    The solution is the weighted mean of y on each of some blocks, which are constants.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda y: tg.optimize.isotonic_regression(y).x)(np.array([1.0, 3.0, 2.0]))
    array([[1. , 0. , 0. ],
           [0. , 0.5, 0.5],
           [0. , 0.5, 0.5]])
    """
    from scipy import optimize

    known = None if weights is None else np.asarray(raw(operand(weights)))
    result = optimize.isotonic_regression(
        np.asarray(raw(operand(y))), weights=known, increasing=increasing
    )
    if not holds_tensor((y, weights)):
        return result
    y = operand(y)
    w = np.ones(np.shape(y)) if weights is None else operand(weights)
    sizes = np.diff(result.blocks)
    block = np.repeat(np.arange(len(sizes)), sizes)
    total = scatter(w + 0.0 * y, (block,), (len(sizes),))
    result.x = (scatter(w * y, (block,), (len(sizes),)) / total)[block]
    result.weights = total
    return result


@interlude
def linear_sum_assignment(
    cost_matrix: Any, maximize: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the assignment with the least sum of costs; SciPy's. They are constants: `cost[rows, columns]` has derivatives.

    >>> import numpy as np, tapegrad as tg
    >>> def least(cost):
    ...     return np.sum(cost[tg.optimize.linear_sum_assignment(cost)])
    >>> tg.grad(least)(np.array([[1.0, 5.0], [2.0, 9.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    from scipy import optimize

    return optimize.linear_sum_assignment(np.asarray(raw(operand(cost_matrix))), maximize)


__all__ = [
    "basinhopping", "differential_evolution", "direct", "dual_annealing", "isotonic_regression", "linear_sum_assignment", "shgo",
]  # fmt: skip
