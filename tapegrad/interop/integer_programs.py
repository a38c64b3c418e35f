"""Linear programs some of whose unknowns are integers: SciPy's HiGHS finds the integers, and the rest is differentiable.

Near a point where one choice of the integers is better than all others, it stays the best. There the program is a linear program of
the other unknowns, whose right-hand sides are what the integers leave; its derivatives are those of `linear_programs.py`.

Invariant: a derivative is given only where one choice of the integers is the best, and where no tracked limit on integers alone holds
with equality: there the minimum has a kink or jumps, and there is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NotDifferentiable
from ..ops.composing import holds_tracked
from ..ops.joining import concatenate
from .interludes import interlude
from .linear_programs import TOLERANCE, joined, linprog, numbers

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

NEARLY = 1e-5
"""Costs that differ by no more than this part of the minimum (or of 1) count as equal."""


@interlude
def milp(
    c: Any,
    *,
    integrality: Any = None,
    bounds: Any = None,
    constraints: Any = None,
    options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Minimise `c @ x`, some x being integers, with `bounds` and `constraints`; SciPy's `milp`, whose `x` and `fun` are differentiable.

    `integrality` is as SciPy's: 0 for a continuous unknown, 1 for an integer, 2 for one that is 0 or within its bounds, 3 for an integer of
    that kind. `constraints` is a `LinearConstraint`, a tuple (A, lb, ub), or a sequence of these; `bounds` is `Bounds` or a tuple (lb, ub).
    All may hold tracked tensors, beside `integrality`.

    The integers are constants; `x` and `fun` move through the continuous unknowns and the costs. A row whose lb and ub are equal is
    an equation: it moves with the mean of both, which have to remain equal. Where something is tracked, matrices are dense,
    `mip_rel_gap` is 0 unless `options` says otherwise, and two more programs find out whether the integers are the only best ones.

    Raises NotDifferentiable where something is tracked and there is no solution, several choices of integers are as good, a tracked
    limit on integers alone holds with equality, or the continuous unknowns are degenerate or not unique; ValueError for constraints and
    bounds of another form, TypeError for complex numbers.

    >>> import numpy as np, tapegrad as tg
    >>> def cost(demand):  # one machine or more, each makes up to 4; the rest is bought for 3 apiece
    ...     made = [([-4.0, 1.0, 0.0], -np.inf, 0.0), ([0.0, 1.0, 1.0], demand, demand)]
    ...     return tg.optimize.milp([5.0, 0.5, 3.0], integrality=[1, 0, 0], constraints=made).fun
    >>> print(cost(5.0), tg.grad(cost)(5.0))
    10.0 3.0
    """
    from scipy import optimize

    side = _pair(bounds)
    rows = _rows(constraints)
    given = [c, *side, *(part for row in rows for part in row)]
    if holds_tracked(integrality):
        raise NotDifferentiable(
            "milp was given integrality that is tracked, but it says of which kind an unknown is and has no derivative. Pass plain "
            "numbers: integrality.detach()."
        )
    value = numbers(c, "milp").reshape(-1)
    plain_rows = [
        optimize.LinearConstraint(_dense(a), *(numbers(v, "milp") for v in limits))
        for a, *limits in rows
    ]
    low, high = (np.broadcast_to(numbers(v, "milp"), value.shape) for v in side)
    tracked = any(map(holds_tracked, given))

    def solved(costs: np.ndarray, more: Any = ()) -> OptimizeResult:
        return optimize.milp(
            costs,
            integrality=integrality,
            bounds=optimize.Bounds(low, high),
            constraints=[*plain_rows, *more],
            options={"mip_rel_gap": 0.0, **(options or {})} if tracked else options,
        )

    result = solved(value)
    if not tracked:
        return result
    if result.status != 0:
        raise NotDifferentiable(
            f"milp has no solution to differentiate: {result.message} Change the program, or pass t.detach() to look at the status.",
            name="no-solution",
        )
    kind = np.broadcast_to(0 if integrality is None else np.asarray(integrality), value.shape)
    held = (kind == 1) | (kind == 3) | ((kind == 2) & (np.abs(result.x) <= TOLERANCE))
    integers = np.where(kind == 2, 0.0, np.round(result.x))
    if held.any():
        _demand_unique(solved, value, result.fun, held)
    if not holds_tracked(side):
        held, integers = _forced(rows, held, integers, low, high)
    return _followed(result, c, side, rows, held, integers)


def _dense(a: Any) -> Any:
    from scipy.sparse import issparse

    return a if issparse(a) else numbers(a, "milp")


def _pair(bounds: Any) -> tuple[Any, Any]:
    """Lower and upper bounds of the unknowns."""
    from scipy.optimize import Bounds

    if bounds is None:
        return 0.0, np.inf
    if isinstance(bounds, Bounds):
        return bounds.lb, bounds.ub
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise ValueError(
            f"milp was given bounds of type {type(bounds).__name__}, but they are scipy.optimize.Bounds, or a tuple (lb, ub): one array or "
            "number for all unknowns' lower bounds, one for the upper ones."
        )
    return bounds[0], bounds[1]


def _rows(constraints: Any) -> list[tuple[Any, Any, Any]]:
    """Matrix, lower and upper limits of each set of rows."""
    from scipy.optimize import LinearConstraint

    if constraints is None:
        return []
    many = isinstance(constraints, tuple | list)
    if isinstance(constraints, LinearConstraint) or (
        many and constraints and _is_matrix(constraints[0])
    ):
        constraints = [constraints]
    elif not many:
        raise _another_form(constraints)
    found = []
    for one in constraints:
        if isinstance(one, LinearConstraint):
            found.append((one.A, one.lb, one.ub))
        elif isinstance(one, tuple | list) and 1 <= len(one) <= 3 and _is_matrix(one[0]):
            found.append((*one, *(-np.inf, np.inf)[len(one) - 1 :]))
        else:
            raise _another_form(one)
    return found


def _another_form(found: Any) -> ValueError:
    return ValueError(
        f"milp was given constraints of type {type(found).__name__}, but each is a scipy.optimize.LinearConstraint, or a tuple (A, lb, ub) "
        "where A is a matrix."
    )


def _is_matrix(a: Any) -> bool:
    """Whether `a` is an array, or a list of numbers or of rows, and no constraint."""
    if not isinstance(a, tuple | list):
        return hasattr(a, "shape")
    rows = [isinstance(x, tuple | list) for x in a]
    return all(map(_is_number, a)) or (all(rows) and all(_is_number(x) for row in a for x in row))


def _is_number(x: Any) -> bool:
    return not isinstance(x, tuple | list) and not hasattr(x, "A") and np.ndim(x) == 0


def _demand_unique(solved: Any, costs: np.ndarray, least: float, held: np.ndarray) -> None:
    """Raise NotDifferentiable if other integers cost as little: a generic sum of the integers has a range there."""
    from scipy.optimize import LinearConstraint

    generic = np.where(held, np.random.default_rng(0).uniform(0.5, 1.5, costs.size), 0.0)
    as_good = [LinearConstraint(costs, -np.inf, least + NEARLY * max(1.0, abs(least)))]
    ends = [solved(way * generic, as_good) for way in (1.0, -1.0)]
    if any(end.status not in (0, 3) for end in ends):
        raise NotDifferentiable(
            f"milp was asked for derivatives, but whether other integers are as good could not be found out: {ends[0].message} "
            "Give it more time in options, or pass t.detach().",
            name="no-solution",
        )
    if any(end.status == 3 for end in ends) or -ends[1].fun - ends[0].fun > 1e-3:
        raise NotDifferentiable(
            "milp was asked for derivatives, but several choices of the integers are equally good, so that the minimum has a kink "
            "there and no derivative. Change the costs a little, or detach() what is tracked.",
            name="no-solution",
        )


def _forced(
    rows: list[tuple[Any, Any, Any]],
    held: np.ndarray,
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Which unknowns are held, and where, if those join them that a constant row leaves no room: what a machine makes that is off."""
    held, values = held.copy(), np.where(held, values, 0.0)
    constant = [
        (
            sign * _array(a).reshape(-1, held.size),
            np.broadcast_to(
                sign * numbers(limit, "milp"), _array(a).reshape(-1, held.size).shape[:1]
            ),
        )
        for a, lower, upper in rows
        for sign, limit in ((1.0, upper), (-1.0, lower))
        if not holds_tracked([a, limit])
    ]
    found = True
    while found:
        found = False
        for a, limit in constant:
            for row, most in zip(a, limit, strict=True):
                some = (row != 0) & ~held
                least = np.where(row > 0, low, high)  # where the row is smallest
                if (
                    some.any()
                    and np.isfinite(least[some]).all()
                    and row[some] @ least[some] + row @ values >= most - TOLERANCE
                ):
                    held, values, found = held | some, np.where(some, least, values), True
    return held, values


def _array(a: Any) -> np.ndarray:
    return numbers(a.toarray() if hasattr(a, "toarray") else a, "milp")  # type: ignore[no-any-return]


def _followed(
    result: OptimizeResult,
    c: Any,
    side: tuple[Any, Any],
    rows: list[tuple[Any, Any, Any]],
    held: np.ndarray,
    integers: np.ndarray,
) -> OptimizeResult:
    """The result as a function of what is tracked, with the integers held."""
    free = np.flatnonzero(~held)
    costs = np.reshape(joined(c), (-1,))
    low, high = (np.broadcast_to(joined(v), costs.shape) for v in side)
    for limit, way in ((low, 1.0), (high, -1.0)):
        if holds_tracked(limit):
            _demand_slack(
                way * (integers - numbers(limit, "milp")),
                held & (integers != 0),
                "the bound of unknown",
            )
    above, limits, equal, levels = [], [], [], []
    for matrix, lower, upper in rows:
        a = joined(matrix.toarray() if hasattr(matrix, "toarray") else matrix)
        a = np.reshape(a, (-1, costs.shape[0]))
        lower, upper = (np.broadcast_to(joined(v), a.shape[:1]) for v in (lower, upper))
        left = np.matmul(a, np.where(held, integers, 0.0))
        alone = ~np.any(numbers(a, "milp")[:, free] != 0, axis=1)
        for limit, way in ((lower, 1.0), (upper, -1.0)):
            if holds_tracked([a, limit]):
                _demand_slack(way * (numbers(left, "milp") - numbers(limit, "milp")), alone, "row")
        below, over = numbers(lower, "milp"), numbers(upper, "milp")
        same = (below == over) & ~alone
        if np.any(same) and holds_tracked(lower) != holds_tracked(upper):
            raise NotDifferentiable(
                "milp was asked for the derivative by one side of a row whose two sides are equal, but with the lower one above the upper "
                "one there is no solution. Give the tracked value as both sides, or detach() it.",
                name="no-solution",
            )
        equal.append(a[same][:, free])
        levels.append((lower[same] + upper[same]) / 2 - left[same])
        for sign, limit in ((1.0, upper), (-1.0, lower)):
            some = ~same & ~alone & np.isfinite(numbers(limit, "milp"))
            above.append(sign * a[some][:, free])
            limits.append(sign * (limit[some] - left[some]))
    # Empty parts of everything, so that zero is the derivative by what the solution does not depend on, and not a value that was lost.
    nothing = sum(np.sum(v[:0]) for v in (costs, low, high, *above, *limits, *equal, *levels))
    x = np.where(held, integers, 0.0) + nothing
    if len(free):
        rows_above, right_above, rows_equal, right_equal = (
            concatenate(p, axis=0) if sum(len(q) for q in p) else None
            for p in (above, limits, equal, levels)
        )
        pairs = [(low[i], high[i]) for i in free]
        rest = linprog(costs[free], rows_above, right_above, rows_equal, right_equal, pairs)
        x = x + np.dot(np.eye(costs.shape[0])[:, free], rest.x)
    result.x = x
    result.fun = np.dot(costs, x)
    return result


def _demand_slack(slack: np.ndarray, some: np.ndarray, name: str) -> None:
    """Raise NotDifferentiable if a tracked limit on integers alone holds with equality."""
    tight = np.flatnonzero(some & (slack <= TOLERANCE))
    if len(tight):
        raise NotDifferentiable(
            f"milp was asked for derivatives by limits, but {name} {tight[0]} holds with equality for integers alone: if its limit moves, "
            "other integers are the best, and the minimum jumps. Move the limit away from what the integers can be, or detach() it.",
            name="no-solution",
        )


__all__ = ["milp"]
