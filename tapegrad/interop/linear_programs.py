"""Linear programs: SciPy's HiGHS finds the vertex, and the vertex is differentiable by everything in the program.

At a vertex that is unique and not degenerate exactly n rows G x = h of the program hold with equality (equations, inequalities and bounds),
and near it the same rows do. So x solves that system, and the multipliers solve Gᵀ λ = c: two linear solves, which the tape differentiates
in both modes to any order. λ is also the derivative of the minimum by h, which SciPy calls marginals.

Invariant: a derivative is given only where it exists; at a degenerate vertex, or where the minimum is attained along an edge, there is an
error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, holds_tracked
from ..ops.joining import array, concatenate
from .interludes import interlude
from .raveling import plain

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

TOLERANCE = 1e-7
"""Below which HiGHS takes a violated row for satisfied, or a multiplier for 0 (its own tolerances)."""

WORST = 1e12
"""Condition of the active rows above which they count as dependent."""


@interlude
def linprog(
    c: Any,
    A_ub: Any = None,
    b_ub: Any = None,
    A_eq: Any = None,
    b_eq: Any = None,
    bounds: Any = (0, None),
    method: str = "highs",
    options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Minimise `c @ x` with `A_ub @ x <= b_ub`, `A_eq @ x == b_eq` and `bounds`; SciPy's `linprog`, differentiable by all of these.

    Returns SciPy's OptimizeResult. Where something is tracked, `x`, `fun` and the `marginals` of `ineqlin`, `eqlin`, `lower` and `upper`
    are functions of it, in both modes and to any order; matrices are dense then. `bounds` is a pair, or a pair for each entry of x.
    `method` is one of HiGHS's. Raises NotDifferentiable where something is tracked and there is no solution, or it is degenerate or not
    unique, ValueError for other methods, TypeError for complex
    numbers.

    >>> import numpy as np, tapegrad as tg
    >>> cost = lambda b: tg.optimize.linprog([-3.0, -5.0], [[1.0, 0.0], [0.0, 2.0], [3.0, 2.0]], b).fun
    >>> tg.grad(cost)(np.array([4.0, 12.0, 18.0]))  # the shadow prices
    array([ 0. , -1.5, -1. ])
    """
    from scipy import optimize, sparse

    if method not in ("highs", "highs-ds", "highs-ipm"):
        raise ValueError(
            f"linprog was given method={method!r}, which has no multipliers, or is not SciPy's. "
            "Choose 'highs', 'highs-ds' or 'highs-ipm'."
        )
    if options is not None and not isinstance(options, dict):
        raise TypeError(
            f"linprog was given options={options!r}, but these are HiGHS's: pass a dict, such as {{'presolve': False}}."
        )
    A_ub, A_eq = (a.toarray() if sparse.issparse(a) else a for a in (A_ub, A_eq))
    given = [c, A_ub, b_ub, A_eq, b_eq, bounds]
    values = [None if v is None else numbers(v) for v in given[:5]]
    n = values[0].size
    if n == 0:
        raise ValueError(
            "linprog was given no costs, but a linear program has an unknown at least: pass c with one number for each unknown."
        )
    for name, rows in (("A_ub", values[1]), ("A_eq", values[3])):
        if rows is not None and rows.ndim != 2:
            raise ValueError(
                f"{name} has {rows.ndim} axes, but linprog takes a matrix: a row for each condition, a column for each unknown."
            )
    sides = _sides(bounds, n)
    low, high = (np.array([numbers(v) for v in side], float) for side in sides)
    result = optimize.linprog(
        *values, bounds=np.stack([low, high], axis=1), method=method, options=options
    )
    if not any(map(holds_tracked, given)):
        return result
    if result.status != 0:
        raise NotDifferentiable(
            f"linprog has no solution to differentiate: {result.message} Change the program, or pass t.detach() to look at the status.",
            name="no-solution",
        )
    return _followed(result, given, sides, (low, high))


def numbers(value: Any, name: str = "linprog") -> Any:
    """Numbers of a value that may be a tensor, or a list that holds some."""
    if isinstance(value, list | tuple) and holds_tensor(value):
        return np.array([numbers(v, name) for v in value], float)
    if np.iscomplexobj(plain(value)):
        raise TypeError(
            f"{name} was given complex numbers, but a linear program is one of real numbers. Pass real and imaginary parts apart."
        )
    return np.asarray(plain(value), float)


def _sides(bounds: Any, n: int) -> tuple[list[Any], list[Any]]:
    """Lower and upper bound of each entry: numbers, infinities or scalar tensors."""
    if bounds is None:
        bounds = (None, None)
    if (
        np.ndim(bounds) == 0
        if isinstance(bounds, Tensor | np.ndarray)
        else not isinstance(bounds, list | tuple)
    ):
        raise TypeError(
            f"bounds is {type(bounds).__name__}, but linprog takes a pair (low, high), or a list with a pair for each unknown."
        )
    one = len(bounds) == 2 and all(b is None or np.ndim(b) == 0 for b in bounds)
    pairs = [bounds] * n if one or (len(bounds) == 1 and n != 1) else list(bounds)
    if len(pairs) == 1 and n > 1:
        pairs *= n
    if len(pairs) != n or any(len(p) != 2 for p in pairs):
        raise ValueError(
            f"bounds has {len(pairs)} entries, but linprog has {n} unknowns: pass a pair (low, high), or a list with a pair for each."
        )
    low = [-np.inf if p[0] is None else p[0] for p in pairs]
    high = [np.inf if p[1] is None else p[1] for p in pairs]
    return low, high


def _followed(
    result: OptimizeResult,
    given: list[Any],
    sides: tuple[list[Any], list[Any]],
    numbers: tuple[np.ndarray, np.ndarray],
) -> OptimizeResult:
    """The result as a function of what is tracked: `sides` are the bounds, `numbers` their values."""
    n = result.x.size
    c, A_ub, b_ub, A_eq, b_eq = (joined(v) for v in given[:5])
    low, high = numbers
    fixed = low == high
    if any(holds_tracked([side[i] for side in sides]) for i in np.flatnonzero(fixed)):
        raise NotDifferentiable(
            "linprog has an unknown whose two bounds are equal and tracked: with the lower one above the upper one there is no "
            "solution, so there is no derivative. Make it an equation of A_eq, or detach() the bounds.",
            name="no-solution",
        )
    multipliers = np.concatenate(
        [result.ineqlin.marginals, result.lower.marginals, result.upper.marginals]
    )
    slack = np.concatenate([result.ineqlin.residual, result.x - low, high - result.x])
    where = np.concatenate([np.zeros(result.ineqlin.marginals.size, bool), fixed, fixed])
    tight, pressed = slack <= TOLERANCE, np.abs(multipliers) > TOLERANCE
    m = result.ineqlin.marginals.size
    above = np.flatnonzero(tight[:m])
    at_low = np.flatnonzero(tight[m : m + n])
    at_high = np.flatnonzero(tight[m + n :] & ~fixed)
    equations = result.eqlin.marginals.size
    active = equations + above.size + at_low.size + at_high.size
    if active != n or np.any(tight & ~pressed & ~where):
        raise NotDifferentiable(_TELLS.format(active=active, n=n), name="no-solution")
    one = np.eye(n)
    rows, levels = [], []
    if equations:
        rows, levels = [A_eq], [b_eq]
    if m:  # without an active row, too, so that zero is the derivative by these, and not a value that was lost
        rows, levels = [*rows, _as_rows(A_ub)[above]], [*levels, np.reshape(b_ub, (-1,))[above]]
    for chosen, side in ((at_low, sides[0]), (at_high, sides[1])):
        rows.append(one[chosen])
        levels.append(joined(side)[chosen])
    matrix = concatenate([_as_rows(r) for r in rows], axis=0)
    level = concatenate([np.reshape(v, (-1,)) for v in levels])
    if np.linalg.cond(plain(matrix)) > WORST:
        raise NotDifferentiable(_TELLS.format(active=active, n=n), name="no-solution")
    result.x = np.linalg.solve(matrix, level)
    result.fun = np.dot(np.reshape(c, (-1,)), result.x)
    prices = np.linalg.solve(matrix.T, np.reshape(c, (-1,)))
    result.eqlin.marginals = prices[:equations]
    start = equations
    for part, size, chosen in (
        (result.ineqlin, m, above),
        (result.lower, n, at_low),
        (result.upper, n, at_high),
    ):
        part.marginals = np.dot(np.eye(size)[:, chosen], prices[start : start + chosen.size])
        start += chosen.size
    return result


_TELLS = (
    "linprog was asked for derivatives, but {active} rows and bounds hold with equality for {n} unknowns, or one has the multiplier "
    "0, or they depend on each other: the solution is degenerate or not unique, so that it has a kink and no derivative. Remove redundant "
    "rows, or change c or the right-hand sides a little."
)


def joined(value: Any) -> Any:
    """A list that may hold tensors as one tensor, anything else as an array or tensor of double precision."""
    if value is None or isinstance(value, Tensor):
        return value
    if holds_tensor(value):
        return array(value, dtype=float)
    return np.asarray(value, float)


def _as_rows(a: Any) -> Any:
    """A matrix, which SciPy takes as a vector where it has one row."""
    return np.reshape(a, (1, -1)) if np.ndim(a) == 1 else a


__all__ = ["joined", "linprog", "numbers"]
