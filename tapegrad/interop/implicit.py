"""Solutions as values: a vector x with F(x, p) = 0, differentiable by every tracked value p that F uses.

A solver finds x without recording its steps. Where F uses tracked tensors, closed over or given, `solution` then appends one entry
to the tape whose operands are those tensors. Its derivative is the implicit function theorem's, dx/dp = −(∂F/∂x)⁻¹ ∂F/∂p (Griewank,
Walther, Evaluating Derivatives, 2nd ed., chapter 15): the VJP solves with the transposed Jacobian and pulls the result through one
run of F, and the JVP pushes through one run of F and solves. Both are recorded where a higher derivative is wanted, at x as the
function of p that it is.

The Jacobian of many unknowns is sparse where its pattern, detected on the tape, is sparse enough: then all linear systems are.

Data: `Solution` holds F, the value x, the factors of the Jacobian there, and the nodes of p.
Invariant: F(x) = 0 to rounding. x is improved by Newton's steps before it is believed; where they fail, or the Jacobian is
singular, there is an error, since the derivative would be that of another point.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import sweep
from ..core.closures import closed_over
from ..core.dual import LEVEL
from ..core.mode import is_grad_enabled, no_grad
from ..core.packing import op_of_calls
from ..core.primitive import apply
from ..core.storage import StandIn, demand_no_trace
from ..core.tensor import Tensor, value_of
from ..errors import GraphError, NotDifferentiable
from ..transforms.derivatives import _Run, jacobian, jvp
from ..transforms.loops import outside_of, pulled, pushed
from .slopes import MANY, detected

LOST = 0.1
"""By which part the Jacobian may change within the uncertainty of a solution."""

Equations = Callable[[Any], Any]
"""A vector of n unknowns in, a vector of n values out, both 1-dimensional."""

POLISH = 8
"""Newton's steps after a solver's last one: solvers stop where the value is good enough, and a derivative wants the point."""

SINGULAR = 1e-14
"""Reciprocal condition number of the Jacobian, each row by its largest entry, below which it counts as singular."""


def solution(equations: Equations, x: np.ndarray, what: str, functions: Sequence[Any] = ()) -> Any:
    """The root `x` of `equations`, as the function of the tracked values that `equations` uses; plain `x` if there are none.

    `what` names the solver in errors, `functions` are the user's functions behind `equations`: variables that they close over mean
    later what they mean now. Raises NotDifferentiable where the equations do not hold at `x` or their Jacobian is singular, and
    TraceError inside `tg.compile`, unless `x` is a value of the program (traced_roots.py).
    """
    if not is_grad_enabled():
        return x
    run = _Run(equations, (x,), {}, (0,), what)
    outside = outside_of(run.own.tape.code, run.nodes)
    tangents = LEVEL.get() is not None
    if not outside and not tangents:
        return x
    slopes: Any
    if isinstance(x, StandIn):
        x, slopes = _traced(equations, x, what)
    else:
        demand_no_trace(what)
        with no_grad():
            x, slopes = _polished(equations, x, what)
    if tangents:
        # Each step of Newton's doubles the order to which it is exact, in the tangents as in the value.
        y: Any = x
        for _ in range(2):
            y = y - np.linalg.solve(jacobian(equations)(y), equations(y))
        return y
    made = Solution(closed_over(functions).within(equations), x, slopes, list(outside), what)
    return apply(solved.primitive, list(outside.values()), (made,))


class Solution:
    """The rule of one solution: see the module."""

    __slots__ = ("equations", "factors", "nodes", "residual", "value", "what")

    def __init__(self, equations: Equations, x: np.ndarray, slopes: Factors, nodes: list[Any], what: str) -> None:  # fmt: skip
        self.equations = equations
        self.value = x
        self.nodes = nodes
        self.what = what
        self.factors = slopes
        self.residual = None
        if not isinstance(x, StandIn):  # a program runs the same equations again
            with no_grad():
                self.residual = np.asarray(value_of(equations(x)), dtype=float)

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.value * 1.0

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if isinstance(g, Tensor):
            x = apply(solved.primitive, list(xs), (self,))
            weights = self._solved(x, g, True)
        else:
            x, weights = self.value, self.factors.solve(g, True)
        _, found = pulled(self.again, (x,), -weights)
        return [found.get(node) for node in self.nodes]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        outside = dict(zip(self.nodes, given, strict=True))
        if any(isinstance(x, Tensor) for x in (*xs, *given)):
            x = apply(solved.primitive, list(xs), (self,))
            rate = pushed(self.again, (x,), (None,), outside, True)
            return -self._solved(x, rate, False)
        rate = pushed(self.again, (self.value,), (None,), outside, False)
        return -self.factors.solve(value_of(rate))

    def _solved(self, x: Any, b: Any, transposed: bool) -> Any:
        """A linear system with the Jacobian at x, both of which are functions of p."""
        if self.factors.sparse:
            from ..sparse.linalg import splu

            matrix = jacobian(self.equations, sparsity="detect")(x)
            return splu(matrix).solve(b, "T" if transposed else "N")
        matrix = jacobian(self.equations)(x)
        return np.linalg.solve(matrix.T if transposed else matrix, b)

    def again(self, x: Any, equations: Equations | None = None) -> Any:
        """Another run of the equations, or of `equations` that have the same values, which gives what the first one gave."""
        values = (equations or self.equations)(x)
        if self.residual is None:
            return values
        changed = np.asarray(value_of(values), dtype=float) - self.residual
        moved = self.factors.solve(changed)
        if changed.any() and not np.abs(moved).max() <= 1e-6 * np.abs(self.value).max():
            raise GraphError(
                f"the function of {self.what} was run again for the derivative of the solution, and gave something else: a value that the "
                "function reads has changed since, or it draws random numbers. Give it in args, or copy it before.",
                name="changed-since",
            )
        return values


solved = op_of_calls(
    "implicit_solution", "A root of equations, by the tracked values that they use.", pushes=True
)


class Factors:
    """A Jacobian with its LU factors: `matrix` is an array, or a sparse one of SciPy's."""

    __slots__ = ("_factors", "matrix", "sparse")

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.sparse = not isinstance(matrix, np.ndarray)
        if self.sparse:
            from scipy.sparse.linalg import splu

            self._factors: Any = splu(matrix.tocsc())
        else:
            from scipy.linalg import lu_factor

            self._factors = lu_factor(matrix)

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        """x from J x = b, or from Jᵀ x = b."""
        if self.sparse:
            return self._factors.solve(np.asarray(b, float), "T" if transposed else "N")
        from scipy.linalg import lu_solve

        return lu_solve(self._factors, b, trans=int(transposed))

    def reciprocal_condition(self) -> float:
        """1 over the condition number, with each row divided by its largest entry; of a sparse matrix an estimate, in the 1-norm."""
        if not self.sparse:
            rows = np.abs(self.matrix).max(axis=1, keepdims=True)
            return 1 / np.linalg.cond(self.matrix / np.where(rows > 0, rows, 1.0))
        from scipy.sparse.linalg import LinearOperator, onenormest

        rows = abs(self.matrix).max(axis=1).toarray().ravel()
        rows = np.where(rows > 0, rows, 1.0)
        inverse = LinearOperator(
            self.matrix.shape,
            lambda v: self.solve(rows * v.ravel()),
            lambda v: rows * self.solve(v.ravel(), True),
        )
        size = abs(self.matrix).T @ (1 / rows)
        return 1 / (size.max() * onenormest(inverse))


class _TracedFactors:
    """A Jacobian of a program, which solves without being factorised first."""

    sparse = False

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def solve(self, b: Any, transposed: bool = False) -> Any:
        """As `Factors.solve`."""
        return np.linalg.solve(self.matrix.T if transposed else self.matrix, b)


def plain_slopes(equations: Equations, x: Any, what: str) -> Any:
    """The Jacobian on plain values, also in a program: all directions are pushed through one run."""
    size = np.shape(x)[0]
    run = _Run(equations, (x,), {}, (0,), what, True)
    if not isinstance(run.output, Tensor) or run.output._node is None:
        return np.zeros((size, size))
    tangents, tape = {run.nodes[0]: np.eye(size)}, run.own.tape
    with tape.held():
        sweep.push(
            tape.code, tape.position(run.first), tape.position(run.last), tangents, False, size
        )
    found = tangents.get(run.output._node)
    return np.zeros((size, size)) if found is None else np.transpose(found)


def _traced(equations: Equations, x: Any, what: str) -> tuple[Any, _TracedFactors]:
    """`_polished` for a value of a program: two steps of Newton's, and the program's guards see that they are small."""
    with no_grad():
        step: Any = 0.0
        for _ in range(2):
            step = np.linalg.solve(plain_slopes(equations, x, what), value_of(equations(x)))
            x = x - step
        if not bool(np.max(np.abs(step)) <= 1e-6 * np.maximum(np.max(np.abs(x)), 1e-6)):
            raise NotDifferentiable(
                f"{what} was asked for a solution whose derivative is wanted, but Newton's next step there is not small, or the Jacobian "
                "of its equations is singular. Start nearer, let the solver go on, or detach() the values that the function uses.",
                name="no-solution",
            )
        slopes = _TracedFactors(plain_slopes(equations, x, what))
        _demand_isolated(equations, x, slopes, what)
        return x, slopes


def _polished(equations: Equations, x: np.ndarray, what: str) -> tuple[np.ndarray, Factors]:
    """`x` after as many steps of Newton's as make it better, and the Jacobian there."""
    x = given = np.array(x, dtype=float)
    values, slopes = _values(equations, x), _slopes(equations, x, what, x.size >= MANY)
    for _ in range(POLISH):
        step = slopes.solve(values)
        there = _values(equations, x - step)
        if not np.linalg.norm(there) < np.linalg.norm(values):
            break
        x, values = x - step, there
        slopes = _slopes(equations, x, what, slopes.sparse)
        if np.abs(step).max() <= 4 * np.finfo(float).eps * np.abs(x).max():
            break
    step = slopes.solve(values)
    size = max(np.abs(x).max(), np.abs(given).max())
    if not np.abs(step).max() <= 1e-6 * max(size, 1e-6):
        raise NotDifferentiable(
            f"{what} was asked for a solution whose derivative is wanted, but the equations do not hold there: Newton's next step has "
            f"the size {np.abs(step).max():.2g}. Start nearer, let the solver go on, or detach() the values that the function uses.",
            name="no-solution",
        )
    _demand_isolated(equations, x, slopes, what)
    return x, slopes


def _demand_isolated(equations: Equations, x: Any, slopes: Any, what: str) -> None:
    """Raise NotDifferentiable where x is not known well enough to tell the Jacobian there: two roots meet, or nearly.

    If the Jacobian changes along Newton's step, from its end to x, by LOST or more, the derivative has no digit: at a double root the step
    is half of the distance to the root, and the Jacobian there half of that at x. Where the equations are rounded to 0 there is no step;
    then a place where the Jacobian is another one lies within the square root of rounding, and on the way to it the equations do not
    change as the Jacobian says. Both criteria are the same for equations and unknowns in any units (affine covariance: Deuflhard,
    Newton Methods for Nonlinear Problems, 1.1).
    """
    matrix, solve = slopes.matrix, slopes.solve
    eps = np.finfo(float).eps

    def change(step: Any, size: Any) -> Any:
        """By which part the Jacobian differs `step` away, in this direction."""
        there = value_of(jvp(equations, (x + step,), (step,))[1])
        return np.max(np.abs(solve(there - matrix @ step))) / np.where(size > 0, size, 1.0)

    with no_grad(), np.errstate(all="ignore"):
        values = value_of(equations(x))
        newton = -solve(values)
        lost = change(newton, np.max(np.abs(newton))) > LOST
        # The direction in which rounding of all terms moves x most.
        worst = solve(abs(matrix) @ np.abs(x) * np.where(np.arange(x.shape[0]) % 2 > 0, -1.0, 1.0))
        size, most = eps**0.5 * np.max(np.abs(x)), np.max(np.abs(worst))
        apart = worst * (size / np.where(most > 0, most, 1.0))
        changed = change(apart, size)
        nearer = (x + apart * (LOST / np.maximum(changed, LOST))) - x
        followed = solve(value_of(equations(x + nearer)) - values) - nearer
        unresolved = ~(np.max(np.abs(followed)) < 0.5 * np.max(np.abs(nearer)))
        lost = lost | ((changed > LOST) & unresolved)
    if bool(lost):
        raise NotDifferentiable(
            f"{what} was asked for a solution whose derivative is wanted, but the Jacobian of its equations is singular there, as far as "
            "rounding lets see: two roots meet, so that the solution is no differentiable function of the values that it depends on. "
            "Solve for a root of its own, or detach() these values.",
            name="no-solution",
        )


def _values(equations: Equations, x: np.ndarray) -> np.ndarray:
    return np.asarray(value_of(equations(x)), dtype=float)


def _slopes(equations: Equations, x: np.ndarray, what: str, sparse: bool) -> Factors:
    """The Jacobian at a point, which may be `sparse`. Raises NotDifferentiable where it is singular."""
    matrix = detected(equations, x) if sparse else None
    if matrix is None:
        matrix = np.asarray(value_of(jacobian(equations)(x)), dtype=float)
    entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
    regular = bool(np.isfinite(entries).all())
    if regular:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of exact zeros among the pivots
                slopes = Factors(matrix)
                regular = slopes.reciprocal_condition() > SINGULAR
        except RuntimeError:  # SuperLU's word for a pivot of 0
            regular = False
    if not regular:
        raise NotDifferentiable(
            f"{what} was asked for a solution whose derivative is wanted, but the Jacobian of its equations is singular there: the "
            "solution is no differentiable function of the values that it depends on (two roots meet, or an unknown has no influence). "
            "Fix that unknown, or add a term that decides it.",
            name="no-solution",
        )
    return slopes


__all__ = ["Equations", "Factors", "Solution", "plain_slopes", "solution", "solved"]
