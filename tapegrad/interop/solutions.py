"""What SciPy's solvers found, as functions of the tracked values that the user's functions use.

Each kind of solution is the root of equations (implicit.py): a root of the function
itself, a minimum of its conditions of first order. For a minimum under bounds and constraints these are the equations of Karush,
Kuhn and Tucker with the active set that the solver ended in (Nocedal, Wright, Numerical Optimization, 2nd ed., section 12.3):
unknowns at a bound stay there, active constraints hold as equations, and the gradient of f − λ·c vanishes along the free unknowns.

Invariant: where no tracked value is used, a result is returned as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.mode import is_grad_enabled, no_grad
from ..core.storage import demand_no_trace
from ..core.tensor import Tensor, value_of
from ..errors import NotDifferentiable
from ..ops.composing import holds_tracked
from ..transforms.derivatives import grad, jacobian
from .implicit import solution
from .raveling import Space, flatten, joined, plain

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

NEAR = 1e-3
"""How near to its bound, in parts of its size (at least 1), an unknown or a constraint may be active."""

PUSH = 1e-5
"""How hard, in parts of the gradient at the start, a minimum has to push against a bound or constraint for that to be active."""


def as_root(
    result: OptimizeResult,
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    what: str = "root",
) -> OptimizeResult:
    """The result of `root` with `x` as a function of what `f` uses."""

    def equations(v: Any) -> Any:
        return joined(f(space.split(v), *args))

    x = space.vector(result.x, "the solution")
    if not _is_tracked([lambda v: f(space.argument(v), *args)], x, what):
        return result
    found = solution(equations, x, what, [f])
    if isinstance(found, Tensor):
        result.x = space.split(found)
    return result


def as_minimum(
    result: OptimizeResult,
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    low_high: tuple[np.ndarray, np.ndarray] | None,
    constraints: Any,
) -> OptimizeResult:
    """The result of `minimize` with `x` and `fun` as functions of what `f` and the constraints use, and the active `multipliers`."""

    def value(v: Any) -> Any:
        return np.reshape(joined(f(space.split(v), *args)), ())

    x = space.vector(result.x, "the solution")
    limits = _Limits(constraints, space)
    if not _is_tracked([lambda v: f(space.argument(v), *args), *limits.plainly], x, "minimize"):
        return result
    minimum = _Minimum(value, x, space.x, low_high, limits)
    y = minimum.solved("minimize", [f, *limits.given])
    result.x = space.split(y) if isinstance(y, Tensor) else result.x
    result.fun = value(y)
    result.multipliers = minimum.multipliers
    return result


def as_fit(
    result: OptimizeResult,
    f: Callable[..., Any],
    space: Space,
    args: Sequence[Any],
    low_high: tuple[np.ndarray, np.ndarray] | None,
    absolute_sigma: bool,
    settings: dict[str, Any],
    every: bool,
) -> OptimizeResult:
    """The result of `least_squares` with `x`, `fun`, `cost`, `covariance` and `stderr` as functions of what `f` uses.

    `every`: the covariance is that of all parameters, also of those at a bound.
    """

    def residuals(v: Any) -> Any:
        return joined(f(space.split(v), *args))

    x = space.vector(result.x, "the solution")
    if not _is_tracked([lambda v: f(space.argument(v), *args)], x, "least_squares"):
        return result
    loss, scale = _loss(settings)

    def cost(v: Any) -> Any:
        return 0.5 * scale**2 * np.sum(loss((residuals(v) / scale) ** 2))

    minimum = _Minimum(cost, x, space.x, low_high, _Limits((), space))
    y = minimum.solved("least_squares", [f])
    result.x = space.split(y) if isinstance(y, Tensor) else result.x
    result.fun, result.cost = residuals(y), cost(y)
    if result.covariance is None:  # of too many unknowns for a dense matrix
        return result
    covariance = np.zeros((space.size, space.size))
    free = np.arange(space.size) if every else minimum.free
    if len(free) and np.isfinite(result.covariance).all():
        slopes = _robust(jacobian(residuals)(y)[:, free], result.fun, loss, scale)
        variance = 1.0 if absolute_sigma else 2 * result.cost / result.dof
        block = variance * np.linalg.inv(slopes.T @ slopes)
        spread = np.zeros((space.size, len(free)))
        spread[free, np.arange(len(free))] = 1.0
        result.covariance = spread @ block @ spread.T
        deviations = np.sqrt(np.diag(result.covariance))
        result.stderr = space.split(deviations) if isinstance(block, Tensor) else result.stderr
    elif not len(free):
        result.covariance = covariance
    return result


class _Minimum:
    """A minimum as the root of its first-order conditions: free unknowns, active constraints, and the equations that follow."""

    def __init__(
        self,
        value: Callable[[Any], Any],
        x: np.ndarray,
        start: np.ndarray,
        low_high: tuple[np.ndarray, np.ndarray] | None,
        limits: _Limits,
    ) -> None:
        """Decide which bounds and constraints are active at the solution `x`; where that is unclear, derivatives are refused later."""
        self.value, self.limits, self.x = value, limits, x.copy()
        self.multipliers: Any = limits.multipliers
        """Those of the active constraints, tracked as the unknowns are."""
        self.low, self.high = low_high or (np.full(x.size, -np.inf), np.full(x.size, np.inf))
        self.fixed = np.zeros(x.size, bool)
        with no_grad():
            slope = self._slope(x)
            pushed = PUSH * np.abs(self._slope(start)).max()
            limits.choose(x, slope, pushed)
            rest = slope - limits.multipliers @ limits.normals(x) if len(limits) else slope
        for bound, outward in ((self.low, 1.0), (self.high, -1.0)):
            near = np.abs(x - bound) <= NEAR * np.maximum(1.0, np.abs(bound))
            self._fix(near & np.isfinite(bound) & (outward * rest > pushed), bound)

    def _slope(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(plain(grad(self.value)(x)), dtype=float)

    def _fix(self, which: np.ndarray, bound: np.ndarray) -> None:
        self.fixed = self.fixed | which
        self.x[which] = bound[which]  # where the others are is found from where the solver stopped
        self.free = np.flatnonzero(~self.fixed)

    def solved(self, what: str, functions: Sequence[Any]) -> Any:
        """All unknowns, tracked where they depend on something.

        An interior method stops at a distance from the bounds: where Newton's steps leave them, what they cross is active, too; where the
        bound or constraint turns out to pull instead of to push, it is not.
        """
        for _ in range(3 + self.x.size + self.limits.count):
            found, multipliers = self._solution(what, functions)
            y = np.asarray(value_of(found), dtype=float)
            with no_grad():
                if self._settled(y, multipliers):
                    return found
                self.limits.weigh(self.x, self._slope(self.x))
        raise NotDifferentiable(
            f"{what} was asked for a solution whose derivative is wanted, but the solver stopped where it is not clear which of the "
            "bounds and constraints are active. Let it go on (smaller tolerances), or use a method that ends on them, as 'SLSQP' does.",
            name="no-solution",
        )

    def _settled(self, y: np.ndarray, multipliers: np.ndarray) -> bool:
        """Whether the active set is that of `y`, which solves the equations; if not, it is changed."""
        rest = self._slope(y)
        if len(self.limits):
            rest = rest - multipliers @ self.limits.normals(y)
        before = self.fixed.copy()
        for bound, outward in ((self.low, 1.0), (self.high, -1.0)):
            self.fixed &= ~(before & (y == bound) & (outward * rest < 0) & (self.low != self.high))
            self._fix(np.isfinite(bound) & (outward * (bound - y) > _slack(bound)), bound)
        same = np.array_equal(before, self.fixed) and not self.limits.released(multipliers)
        return same and not self.limits.crossed(y)

    def _solution(self, what: str, functions: Sequence[Any]) -> tuple[Any, np.ndarray]:
        """The unknowns of the equations with the active set as it is, and the multipliers."""
        free, n = self.free, len(self.free)
        if not n:
            self.multipliers = self.limits.multipliers
            return self.x, self.limits.multipliers
        value, limits = self.value, self.limits.held()
        at_bounds = self.x[self.fixed]
        places = np.argsort(np.concatenate([free, np.flatnonzero(self.fixed)]))

        def whole(unknowns: Any) -> Any:
            """All unknowns: the free ones, and those that stay at a bound."""
            return np.concatenate([unknowns, at_bounds])[places] if len(at_bounds) else unknowns

        def lagrangian(y: Any, multipliers: Any) -> Any:
            return value(y) - np.sum(multipliers * limits(y)) if limits else value(y)

        def equations(unknowns: Any) -> Any:
            y, multipliers = whole(unknowns[:n]), unknowns[n:]
            slope = grad(lagrangian)(y, multipliers)[free]
            return np.concatenate([slope, limits(y)]) if limits else slope

        start = np.concatenate([self.x[free], self.limits.multipliers])
        found = solution(equations, start, what, functions)
        self.multipliers = found[n:]
        return whole(found[:n]), np.asarray(value_of(found), dtype=float)[n:]


class _Limits:
    """The constraints of a minimum, and which of them are active there."""

    def __init__(self, constraints: Any, space: Space) -> None:
        from scipy import optimize

        one = isinstance(
            constraints, dict | optimize.NonlinearConstraint | optimize.LinearConstraint
        )
        parts = [_part(c, space) for c in ([constraints] if one else constraints)]
        self.given = [part.given for part in parts if part.given is not None]
        self.plainly = [part.plainly for part in parts]
        self.parts = parts
        self.active: list[_Row] = []
        self.multipliers = np.zeros(0)
        self.count = 0

    def __len__(self) -> int:
        return len(self.active)

    def held(self) -> Callable[[Any], Any] | None:
        """The values of the constraints that are active now, less their bounds; None where none is."""
        active = list(self.active)
        if not active:
            return None
        return lambda y: np.stack([row.of(y)[row.place] - row.target for row in active])

    def normals(self, y: np.ndarray) -> np.ndarray:
        held: Any = self.held()
        return np.asarray(plain(jacobian(held)(y)), dtype=float).reshape(len(self), -1)

    def choose(self, x: np.ndarray, slope: np.ndarray, pushed: float) -> None:
        """Find the active constraints at a minimum whose gradient is `slope`, and their multipliers."""
        rows = self._rows(x)
        self.count = len(rows)
        self.active = [r for r in rows if r.inside(x) <= NEAR * max(1.0, abs(r.target))]
        while self.active:
            normals = self.weigh(x, slope)
            pushes = self.multipliers * np.linalg.norm(normals, axis=1)
            kept = [
                r.sign == 0 or r.sign * p > pushed for r, p in zip(self.active, pushes, strict=True)
            ]
            if all(kept):
                return
            self.active = [r for r, k in zip(self.active, kept, strict=True) if k]
        self.multipliers = np.zeros(0)

    def weigh(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Multipliers of the active constraints by least squares, and their gradients."""
        if not self.active:
            return np.zeros((0, x.size))
        normals = self.normals(x)
        self.multipliers = np.linalg.lstsq(normals.T, slope, rcond=None)[0]
        return normals

    def released(self, multipliers: np.ndarray) -> bool:
        """Whether active constraints pull instead of to push; they are not active from here on."""
        kept = [r for r, m in zip(self.active, multipliers, strict=True) if not r.sign * m < 0]
        changed = len(kept) < len(self.active)
        self.active = kept
        if changed:
            self.multipliers = np.zeros(len(kept))
        else:
            self.multipliers = multipliers
        return changed

    def crossed(self, y: np.ndarray) -> bool:
        """Whether constraints are broken at `y`; they are active from here on."""
        held = {(r.of, r.place, r.target) for r in self.active}
        new = [
            r
            for r in self._rows(y)
            if (r.of, r.place, r.target) not in held and r.inside(y) < -_slack(r.target)
        ]
        self.active += new
        return bool(new)

    def _rows(self, x: np.ndarray) -> list[_Row]:
        """One row for each equation and for each finite side of an inequality."""
        rows = []
        for part in self.parts:
            shape = np.shape(plain(part.of(x)))
            low, high = np.broadcast_to(part.low, shape), np.broadcast_to(part.high, shape)
            for k in range(shape[0]):
                if low[k] == high[k]:
                    rows.append(_Row(part.of, k, float(low[k]), 0.0))
                    continue
                rows += [
                    _Row(part.of, k, float(b), s)
                    for b, s in ((low[k], 1.0), (high[k], -1.0))
                    if np.isfinite(b)
                ]
        return rows


class _Row(NamedTuple):
    """One entry of a constraint's values against one of its bounds: above it (sign 1), below it (-1), or on it (0)."""

    of: Callable[[Any], Any]
    place: int
    target: float
    sign: float

    def inside(self, x: np.ndarray) -> float:
        """How far inside its bound the entry is."""
        away = float(np.asarray(plain(self.of(x)))[self.place]) - self.target
        return -abs(away) if self.sign == 0 else self.sign * away


class _Part(NamedTuple):
    """A constraint: the user's function, a function of the vector that calls it, the same on plain trees, and bounds of the values."""

    given: Any
    of: Callable[[Any], Any]
    plainly: Callable[[Any], Any]
    low: Any
    high: Any


def _part(c: Any, space: Space) -> _Part:
    """A constraint of SciPy's as a function of the unknowns with its two sides."""
    from scipy import optimize, sparse

    if isinstance(c, optimize.LinearConstraint):
        matrix = np.atleast_2d(c.A.toarray() if sparse.issparse(c.A) else np.asarray(c.A))
        return _Part(None, lambda v: np.matmul(matrix, v), lambda v: 0.0, c.lb, c.ub)
    given = c.get("args", ()) if isinstance(c, dict) else ()
    fun = c["fun"] if isinstance(c, dict) else c.fun
    low, high = (0.0, 0.0 if c["type"] == "eq" else np.inf) if isinstance(c, dict) else (c.lb, c.ub)
    return _Part(
        fun,
        lambda v: joined(fun(space.split(v), *given)),
        lambda v: fun(space.argument(v), *given),
        low,
        high,
    )


def _slack(bound: Any) -> Any:
    return 1e-9 * np.maximum(1.0, np.abs(bound))


def _is_tracked(functions: Sequence[Callable[[Any], Any]], x: np.ndarray, what: str) -> bool:
    """Whether the value of any of some functions of a vector is tracked although the vector is not."""
    if not is_grad_enabled() or not any(holds_tracked(flatten(f(x))[0]) for f in functions):
        return False
    demand_no_trace(what)
    return True


LOSSES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(np.maximum(z, 1.0)) - 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
}
"""SciPy's loss functions of z, the squares of scaled residuals (Triggs et al., Bundle adjustment: a modern synthesis, 2000)."""


def _loss(settings: dict[str, Any]) -> tuple[Callable[[Any], Any], float]:
    loss = settings.get("loss", "linear")
    if not isinstance(loss, str):
        raise NotDifferentiable(
            "least_squares was asked for a solution whose derivative is wanted, under a loss that is a function: SciPy calls it on "
            f"plain arrays. Use one of {', '.join(LOSSES)}, or minimize with the loss in f."
        )
    return LOSSES[loss], float(settings.get("f_scale", 1.0))


def _robust(slopes: Any, residuals: Any, loss: Callable[[Any], Any], scale: float) -> Any:
    """The Jacobian whose square is the Gauss-Newton approximation of the cost's Hessian, as SciPy scales it for a loss."""
    if loss is LOSSES["linear"]:
        return slopes
    z = (residuals / scale) ** 2
    first = grad(lambda z: np.sum(loss(z)))
    second = grad(lambda z: np.sum(first(z)))
    weight = np.maximum(first(z) + 2 * second(z) * z, np.finfo(float).eps)
    return slopes * np.sqrt(weight)[:, None]


__all__ = ["as_fit", "as_minimum", "as_root"]
