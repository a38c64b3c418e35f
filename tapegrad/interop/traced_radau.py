"""Radau's method in a function that `tg.compile` traces: one loop of the program, with the steps that SciPy's Radau takes.

Algorithm: SciPy's (Hairer & Wanner, Solving Ordinary Differential Equations II, IV.8). A turn of the outer loop is an accepted step, a turn
of the one in it an attempt, and a turn of the innermost one an iteration of Newton's method. All three compute on plain values: the
derivative of a step is that of the equations which its three stages solve (`_Collocation`), and needs no iteration.

Data: the outer loop carries the last accepted step (beginning, length, rises of the stages) beside the solver's state. A turn first makes
that step a function of what is tracked, and then looks for the next one: so the way back finds each step in what its turn was given. It
goes on until the steps made so have reached the next time that is asked for.

Invariant: which steps are taken, and when Jacobians and inverses are made anew, is as in SciPy; values differ by rounding.
What is not optimal: matrices are dense, and inverses stand for LU factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.packing import op_of_calls
from ..core.primitive import apply
from ..core.tensor import Tensor, value_of
from ..ops.composing import holds_tracked
from ..transforms.derivatives import _Run, jacobian
from ..transforms.loops import outside_of, pulled
from .implicit import SINGULAR, plain_slopes
from .mass import INDEX
from .stepping import tableau
from .traced_steps import MOST, TracedSolver, norm, plain, radau_weights, shortest

ATTEMPTS = 1000
"""Attempts of one step after which the loop gives up: each shortens the step, or follows a new Jacobian."""

_FIRST = np.array([1.0, 0.0, 0.0]) > 0
_ZERO, _ONE, _NONE = np.float64(0), np.float64(1), np.int64(0)
"""What loops begin with: Python's numbers would have them traced once more, as NumPy's."""


class StiffSolver(TracedSolver):
    """`TracedSolver` for implicit methods, with a mass matrix too, which is a constant.

    `jac(t, y)` is the Jacobian of the equations; by default it is found by the tape.
    """

    def __init__(self, *args: Any, jac: Callable[..., Any] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.jac = jac if jac is not None else lambda t, y: _slopes_of(self.equations, t, y)
        self.mass: np.ndarray | None = None if self.equations.mass is None else self.equations.mass.dense  # fmt: skip
        self.unit = np.eye(np.shape(self.start)[0]) if self.mass is None else self.mass
        """What stands before dy/dt."""

    def weighed(self, x: Any) -> Any:
        """M x, for the rows of x."""
        return x if self.mass is None else np.matmul(x, self.mass.T)

    def _begun(self, t: Any, y: Any, order: int) -> tuple[Any, Any, Any, Any]:
        """At the beginning: what the equations give, dy/dt, the length of the first step and the Jacobian.

        With a mass matrix as `Mass.start`: raises ValueError for a start that is not consistent, and an index above 1.
        """
        first, slopes = plain(self.equations(t, y)), self.jac(t, y)
        rate = first
        if self.mass is not None:
            order = 1
            self.rate = self._near(t, y, first, slopes)
            rate = self.rate(t, y)
        h = self.first_step
        return first, rate, self._first_length(y, rate, t, order) if h is None else h, slopes

    def _near(self, t: Any, y: Any, first: Any, slopes: Any) -> Callable[..., Any]:
        """dy/dt as a function of times and states nearby, from M y' = f and the derivatives of the equations without y'."""
        u, equations = self.equations.mass.without, self.equations
        u = u.toarray() if hasattr(u, "toarray") else u
        across = u @ u.T
        system = self.unit + np.matmul(across, slopes)
        try:
            solved = np.linalg.inv(system)
        except np.linalg.LinAlgError:
            raise ValueError(INDEX) from None
        sizes = [np.max(np.sum(np.abs(x), axis=1)) for x in (system, solved)]
        if not bool(sizes[0] * sizes[1] * SINGULAR < 1):
            raise ValueError(INDEX)
        shift = np.matmul(solved, np.matmul(across, first))
        if u.shape[1] and not bool(np.all(np.abs(shift) <= self.atol + self.rtol * np.abs(y))):
            raise ValueError(
                "solve_ivp was given y0 that is not consistent with a singular mass_matrix: equations without derivatives are off there. "
                "Find a start by tg.root of these equations."
            )
        after = 1e-7 * (self.end - self.begin)
        moving: Any = 0.0
        if u.shape[1]:
            later = plain(equations(t + after, y))
            moving = np.matmul(across, later - first) / np.where(after == 0, 1.0, after)

        def rate(t: Any, y: Any) -> Any:
            now = plain(equations(t, y))
            return np.matmul(solved, now - np.matmul(across, now) - moving)

        return rate

    def _anew(self, asked: Any, t: Any, y: Any, slopes: Any) -> Any:
        """The Jacobian, at (t, y) if it is asked for."""

        def new(carry: Any) -> Any:
            """What the turn computes with is carried: of values of the surroundings alone the surroundings would compute it, each time."""
            asked, t, y, _ = carry
            return 0.0 * asked, t, y, self.jac(t, y)

        return self._while(lambda carry: carry[0] > 0, new, (asked, t, y, slopes))[3]


class TracedRadau(StiffSolver):
    """`TracedSolver` for Radau's method."""

    def _loop(self, when: Any) -> Any:
        """Solutions at the times `when`, one row each."""
        from scipy.integrate import Radau

        f, start, size = self.equations, self.start, np.shape(self.start)[0]
        begin, matrix = self.begin * 1.0, tableau(Radau).a
        with no_grad():
            # SciPy's first step assumes the order of the estimate of the error.
            slope, _, h, slopes = self._begun(begin, plain(start), 3)

        def step(carry: Any) -> Any:
            """The last accepted step as a function of what is tracked, and the next step."""
            y, _, _, (before, length, rises), *state, good, counts, taken, seen = carry
            now, before, length = state[0], plain(before), plain(length)
            made = y, before, length, collocated(f, matrix, y, before, length, value_of(rises), self.mass)  # fmt: skip
            y = y + made[3][2]
            with no_grad():
                due = np.where(self._unfinished(now, seen), 1.0, 0.0)
                *found, good, more = self._next(due, plain(y), before, length, rises, state)
                seen = watched(seen, plain(y), found[0], found[1], (due > 0) & (good > 0))
            return y, now, made, *found, good, counts + more, taken + 1, seen

        def watched(seen: Any, y: Any, last: Any, reached: Any, accepted: Any) -> Any:
            """What is noted behind the step that was just found, from `y`."""
            before, length, rises = last
            at = self._between(y, before, length, rises)
            return self._watched(seen, accepted, before, reached, y + rises[2], at)

        def row(carry: Any, asked: Any) -> Any:
            """Steps until a time is reached, and the state there."""
            t, _ = asked

            def goes_on(carry: Any) -> Any:
                done, good, taken, seen = carry[1], carry[-4], carry[-2], carry[-1]
                return self._unfinished(done, seen, t) & (taken < MOST) & (good > 0)

            carry = self._while(goes_on, step, carry)
            return carry, self._row(carry[2], self._between(*carry[2])(t))

        last = (start, begin, 0.0 * begin, np.zeros((3, size)) * start)
        nothing = (begin, 0.0 * begin, np.zeros((3, size)))
        state = (
            begin, slope, h, np.nan * h, np.nan * h, slopes, np.zeros((size, size)), np.zeros((2 * size, 2 * size)),
            _ZERO, _ONE, _ZERO,
        )  # fmt: skip
        carried = (start, begin, last, nothing, *state, _ONE, np.array([1.0, 1.0, 0.0]), _NONE, self._begin_watching())  # fmt: skip
        (_, done, *_, asked, _, counts, _, self._seen), rows = self._each_row(row, carried, when)
        self._demand_arrived(done)
        if self.first_step is None and self.mass is None:
            counts = counts + np.where(_FIRST, 1.0, 0.0)
        # SciPy makes the Jacobian for the next step at once, also where no step follows.
        self.counts = (counts[0], counts[1] + asked, counts[2])
        return rows

    @staticmethod
    def _between(y: Any, before: Any, length: Any, rises: Any) -> Callable[[Any], Any]:
        """The state as a function of a time in a step from `y`."""

        def at(t: Any) -> Any:
            x = (t - before) / np.where(length == 0, 1.0, length)
            return y + np.matmul(radau_weights(x)[0], rises)

        return at

    def _next(
        self, due: Any, y: Any, before: Any, length: Any, rises: Any, state: Sequence[Any]
    ) -> Any:
        """The next accepted step from `y`, if it is due, after the one that began at `before`; the state of the solver behind it, whether
        there is one, and what it cost.
        """
        from scipy.integrate._ivp import radau

        now, slope, h, h_old, error_old, slopes, real, complex_, made, current, asked = state
        least, scale_of = shortest(now), lambda size: self.atol + size * self.rtol
        wrong = (h > self.max_step) | (h < least)
        first = np.minimum(np.maximum(h, least), self.max_step)
        h_old, error_old = np.where(wrong, np.nan, h_old), np.where(wrong, np.nan, error_old)
        predicted = np.where(length == 0, 0.0, 1.0)

        def attempt(carry: Any) -> Any:
            """One attempt at a step of length h, and the length of the next one."""
            h, slopes, real, complex_, made, current, asked, rejected, *_, counts, tries = carry
            reached = now + self.way * h
            reached = np.where(self.way * (reached - self.end) > 0, self.end, reached)
            given = reached - now
            h = np.abs(given)
            slopes = self._anew(asked, now, y, slopes)
            made = np.where(asked > 0, 0.0, made)
            current = np.where(asked > 0, 1.0, current)
            counts = counts + np.stack([0.0 * asked, asked, 2 * (1 - made)])
            real, complex_ = self._inverses(made, given, slopes, real, complex_)
            x = (now + given * radau.C - before) / np.where(length == 0, 1.0, length)
            polynomial = np.matmul(np.reshape(x, (3, 1)) ** np.arange(1, 4), radau.P.T)
            guess = predicted * (np.matmul(polynomial, rises) - rises[2])
            converged, count, z, rate = self._newton(
                now, y, given, guess, scale_of(np.abs(y)), real, complex_
            )
            z_e = np.matmul(radau.E, z) / given
            scale = scale_of(np.maximum(np.abs(y), np.abs(y + z[2])))
            z_e = self.weighed(z_e)
            error = np.matmul(real, slope + z_e)
            size = norm(error / scale)
            again = (rejected > 0) & (size > 1)
            better = np.matmul(real, plain(self.equations(now, y + error)) + z_e)
            size = np.where(again, norm(better / scale), size)
            most = radau.NEWTON_MAXITER
            safety = 0.9 * (2 * most + 1) / (2 * most + count)
            factor = safety * _factor(h, h_old, size, error_old)
            accepted = (converged > 0) & ~(size > 1)
            refused = (converged > 0) & (size > 1)
            stale = (converged == 0) & (current == 0)
            recompute = (count > 2) & (rate > 1e-3)
            factor_on = np.minimum(radau.MAX_FACTOR, factor)
            stays = ~recompute & (factor_on < 1.2)
            next_h = np.where(
                accepted, h * np.where(stays, 1.0, factor_on),
                np.where(refused, h * np.maximum(radau.MIN_FACTOR, factor), np.where(stale, h, 0.5 * h)),
            )  # fmt: skip
            return (
                next_h, slopes, real, complex_,
                np.where(accepted & stays, 1.0, 0.0),
                np.where(accepted, np.where(recompute, 1.0, 0.0), current),
                np.where(accepted, np.where(recompute, 1.0, 0.0), np.where(stale, 1.0, 0.0)),
                np.where(refused, 1.0, rejected),
                np.where(accepted, 1.0, 0.0), given, reached, z, size,
                counts + np.where(_FIRST, 3 * count + np.where(again & (converged > 0), 1.0, 0.0), 0.0), tries + 1,
            )  # fmt: skip

        def tries_on(carry: Any) -> Any:
            return (due > 0) & (carry[8] == 0) & (carry[0] >= least) & (carry[-1] < ATTEMPTS)

        begin = (
            first, slopes, real, complex_, made, current, asked, _ZERO, _ZERO, 0.0 * now, now, np.zeros_like(rises), 0.0 * now,
            np.where(_FIRST, due, 0.0), _NONE,  # the equations at the end of the step
        )  # fmt: skip
        done = self._while(tries_on, attempt, begin)
        next_h, *system, _, accepted, given, reached, z, size, counts, _ = done
        given, z = np.where(accepted > 0, given, 0.0), np.where(accepted > 0, z, 0.0)
        reached = np.where(accepted > 0, reached, now)
        slope = plain(self.equations(reached, y + z[2]))
        good = np.where(due > 0, accepted, 1.0)
        return (now, given, z), reached, slope, next_h, h, size, *system, good, counts

    def _inverses(
        self, made: Any, h: Any, slopes: Any, real: Any, complex_: Any
    ) -> tuple[Any, Any]:
        """The inverses of SciPy's two systems, the complex one as a real one of twice the size; new ones if they are not `made`."""
        from scipy.integrate._ivp import radau

        one = self.unit

        def new(carry: Any) -> Any:
            made, h, slopes, *_ = carry
            a = radau.MU_COMPLEX.real / h * one - slopes
            b = radau.MU_COMPLEX.imag / h * one
            both = np.concatenate([np.concatenate([a, -b], 1), np.concatenate([b, a], 1)])
            return (
                1.0 + made,
                h,
                slopes,
                np.linalg.inv(radau.MU_REAL / h * one - slopes),
                np.linalg.inv(both),
            )

        return self._while(lambda carry: carry[0] == 0, new, (made, h, slopes, real, complex_))[3:]

    def _newton(
        self, t: Any, y: Any, h: Any, guess: Any, scale: Any, real: Any, complex_: Any
    ) -> tuple[Any, Any, Any, Any]:  # fmt: skip
        """Whether simplified Newton's method converges, its iterations, the rises of the stages and the last rate of convergence."""
        from scipy.integrate._ivp import radau

        size, most = np.shape(y)[0], radau.NEWTON_MAXITER
        tolerance = np.maximum(
            10 * np.finfo(float).eps / self.rtol, np.minimum(0.03, self.rtol**0.5)
        )
        mu_real, mu = radau.MU_REAL / h, radau.MU_COMPLEX
        mu_re, mu_im = mu.real / h, mu.imag / h

        def iteration(carry: Any) -> Any:
            """One correction of the stages, and how much smaller it is than the one before."""
            _, k, w, z, old, _, _ = carry
            slopes = _slopes_at(lambda t, y: plain(self.equations(t, y)), y, t, h, z)
            transformed = np.matmul(radau.TI, slopes)
            held = self.weighed(w)
            step = np.matmul(real, transformed[0] - mu_real * held[0])
            right = np.concatenate([
                transformed[1] - (mu_re * held[1] - mu_im * held[2]), transformed[2] - (mu_re * held[2] + mu_im * held[1]),
            ])  # fmt: skip
            two = np.reshape(np.matmul(complex_, right), (2, size))
            moved = np.stack([step, two[0], two[1]])
            length = norm(moved / scale)
            rate = length / old
            finite = np.all(np.isfinite(slopes))
            fails = (rate >= 1) | (rate ** (most - k) / (1 - rate) * length > tolerance)
            stops = ~finite | fails
            w = np.where(stops, w, w + moved)
            z = np.where(stops, z, np.matmul(radau.T, w))
            converged = ~stops & ((length == 0) | (rate / (1 - rate) * length < tolerance))
            return (
                np.where(stops | converged, 0.0, 1.0),
                k + 1,
                w,
                z,
                length,
                rate,
                np.where(converged, 1.0, 0.0),
            )

        begin = (_ONE, _NONE, np.matmul(radau.TI, guess), guess, np.nan * h, np.nan * h, _ZERO)
        _, count, _, z, _, rate, converged = self._while(
            lambda carry: (carry[0] > 0) & (carry[1] < most), iteration, begin
        )
        return converged, count, z, rate


def _factor(h: Any, h_old: Any, error: Any, error_old: Any) -> Any:
    """SciPy's `predict_factor`, where NaN stands for None."""
    safe = np.where(error > 0, error, 1e-300)
    known = ~np.isnan(h_old) & ~np.isnan(error_old) & (error > 0)
    multiplier = np.where(
        known,
        h / np.where(known, h_old, 1.0) * (np.where(known, error_old, 1.0) / safe) ** 0.25,
        1.0,
    )
    return np.minimum(1.0, multiplier) * safe**-0.25


# --------------------------------------------------------------------------------------------- a step's derivative


def collocated(
    f: Any, matrix: np.ndarray, y: Any, t: Any, h: Any, rises: Any, mass: np.ndarray | None = None
) -> Any:
    """The rises of the stages (3, n), as the function of `y` and of all that `f` uses which they are."""

    def equations(z: Any, y: Any) -> Any:
        weighed = z if mass is None else np.matmul(z, mass.T)
        return weighed - h * np.matmul(matrix, _slopes_at(f, y, t, h, z))

    run = _Run(equations, (rises, plain(y)), {}, (0, 1), "solve_ivp")
    outside = outside_of(run.own.tape.code, run.nodes)
    operands = [y, *outside.values()]
    if not holds_tracked(operands):
        return rises
    recorded = jacobian(lambda y, t: f(t, y), mode="forward", allow_unused=True)

    def systems(z: Any, y: Any, again: bool) -> Any:
        """With `again` as a function of what is tracked."""
        slopes = (lambda t, y: recorded(y, t)) if again else lambda t, y: _slopes_of(f, t, y)
        return _systems(slopes, matrix, y, t, h, z, mass)

    rule = _Collocation(equations, systems, rises, list(outside))
    return apply(collocation_step.primitive, operands, (rule,))


def _slopes_at(f: Any, y: Any, t: Any, h: Any, z: Any) -> Any:
    from scipy.integrate._ivp.radau import C

    return np.stack([f(t + float(c) * h, y + z[i]) for i, c in enumerate(C)])


def _slopes_of(f: Any, t: Any, y: Any) -> Any:
    """The Jacobian of the equations, on plain values."""
    return plain_slopes(lambda y: f(t, y), plain(y), "solve_ivp")


def _systems(
    slopes: Any, matrix: np.ndarray, y: Any, t: Any, h: Any, z: Any, mass: np.ndarray | None
) -> Any:
    """The Jacobian of a step's equations by the rises, (3 n, 3 n)."""
    from scipy.integrate._ivp.radau import C

    unit: Any = np.eye(np.shape(y)[0])
    if mass is not None:  # before the first step there is one of no length, whose rises are 0
        unit = np.where(h == 0, unit, mass)
    columns = []
    for k, c in enumerate(C):
        at = slopes(t + float(c) * h, y + z[k])
        columns.append(np.concatenate([
            (unit if i == k else 0.0) - h * float(matrix[i, k]) * at for i in range(3)
        ]))  # fmt: skip
    return np.concatenate(columns, 1)


class _Collocation:
    """The rule of one step: rises of the stages by the state before and what the equations use (implicit function theorem)."""

    __slots__ = ("equations", "nodes", "systems", "value")

    def __init__(self, equations: Any, systems: Any, value: Any, nodes: list[Any]) -> None:
        self.equations, self.systems, self.value, self.nodes = equations, systems, value, nodes

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.value * 1.0

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        again = isinstance(g, Tensor)
        z, y = self.value, value_of(xs[0])
        if again:
            z, y = apply(collocation_step.primitive, list(xs), (self,)), xs[0]
        weights = np.linalg.solve(self.systems(z, y, again).T, np.reshape(g, (-1,)))
        own, found = pulled(self.equations, (z, y), -np.reshape(weights, np.shape(self.value)))
        return [found.get(node) for node in (own[1], *self.nodes)]


collocation_step = op_of_calls(
    "collocation_step",
    "The stages of a step of Radau's method, by where it begins and all that the equations use.",
)

__all__ = ["StiffSolver", "TracedRadau", "collocated"]
