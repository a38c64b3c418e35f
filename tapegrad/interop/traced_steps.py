"""`solve_ivp` in a function that `tg.compile` traces: one loop of the program, which takes as many steps as the values of a call need.

Algorithm: the explicit methods of SciPy, with SciPy's first step, control of the error and interpolants, written in operations that are
recorded. A loop over the times that are asked for has a loop of steps in it, which goes on until a step has reached the time; the row is
the interpolant of that step. What is carried: state, slope, time, the length of the next step, whether the last attempt was rejected, and
the last step with its slopes.

Invariant: as in `solve_ivp` outside of programs lengths of steps are constants of the derivative, and values are SciPy's but for rounding.
What is not optimal: a step of DOP853 takes the stages of the interpolant whether a row lies in it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..core import storage
from ..core.mode import no_grad
from ..core.tensor import Tensor
from ..errors import TraceError
from ..ops.composing import holds_tracked
from ..ops.joining import gathered
from ..transforms.loops import looped, scan
from .stepping import Equations, moved, tableau

MOST = 1_000_000
"""Steps, rejected ones included, after which a loop gives up."""

FEWEST = 33
"""Turns that the loop over times has at least: `tg.compile` writes out loops of fewer than 32."""


def plain(x: Any) -> Any:
    """A value whose derivative is not followed."""
    return x.detach() if isinstance(x, Tensor) else x


@cache
def _errors(method: type) -> tuple[np.ndarray, ...]:
    """Weights of the slopes in the estimates of the error; the first is followed by that of order 3 for DOP853."""
    from scipy.integrate import DOP853

    if issubclass(method, DOP853):
        return method.E5, method.E3
    return (method.E,)  # type: ignore[attr-defined]


@cache
def _interpolant(method: type) -> np.ndarray:
    """Coefficients (powers from 1, slopes) of the polynomials that weigh slopes within a step."""
    polynomial: Any = getattr(method, "P", 0)
    if np.ndim(polynomial) == 2:
        return np.transpose(polynomial)
    degree = 7  # DOP853's, which SciPy has in another form
    nodes = (1 - np.cos(np.pi * (np.arange(degree) + 0.5) / degree)) / 2
    return np.linalg.solve(
        nodes[:, None] ** np.arange(1, degree + 1), tableau(method).weights(nodes)
    )


def interpolating(
    method: type, times: np.ndarray, before: np.ndarray, length: np.ndarray
) -> np.ndarray:
    """Weights (times, stages) of the slopes, or of Radau's rises, in the state at times in steps of an explicit method or Radau's."""
    from scipy.integrate import Radau

    x = ((times - before) / np.where(length == 0, 1.0, length))[:, None]
    if issubclass(method, Radau):
        return np.asarray(radau_weights(x))
    coefficients = _interpolant(method)
    return length[:, None] * (x ** np.arange(1, len(coefficients) + 1) @ coefficients)


def radau_weights(x: Any) -> Any:
    """How the rises of the stages of Radau's method count at some places in a step, which goes from 0 to 1: (places, 3)."""
    from scipy.integrate._ivp.radau import P

    return np.matmul(np.reshape(x, (-1, 1)) ** np.arange(1, 4), P.T)


def is_traceable(method: type) -> bool:
    """Whether a program can take the steps of a method: one of the explicit pairs."""
    from scipy.integrate import DOP853
    from scipy.integrate._ivp.rk import RungeKutta

    return issubclass(method, DOP853) or (
        issubclass(method, RungeKutta) and np.ndim(getattr(method, "P", 0)) == 2
    )


class TracedSolver:
    """An initial value problem and how precisely it is solved; `rows(times)` are the states at times."""

    def __init__(
        self,
        method: type,
        function: Callable[..., Any],
        equations: Equations,
        start: Any,
        span: Sequence[Any],
        *,
        rtol: Any = 1e-3,
        atol: Any = 1e-6,
        max_step: Any = np.inf,
        first_step: Any = None,
    ) -> None:
        """Prepare a solver whose steps are part of a program: the equations, the start, the span, tolerances."""
        self.method, self.function, self.equations = method, function, equations
        self.rtol, self.atol, self.max_step, self.first_step = rtol, atol, max_step, first_step
        self.begin, self.end = plain(span[0]), plain(span[1])
        self.way = 1.0 if bool(self.end >= self.begin) else -1.0
        self.rate: Callable[..., Any] = equations
        """dy/dt near the beginning, by which the first step is chosen."""
        self.counts: Any = None
        """After `rows`: evaluations of the equations, Jacobians and factorisations, as SciPy counts them."""
        self.watch: Any = None
        """A `Watch` (event_times.py), if the loop looks for events."""
        self.room = 0
        """How many times of steps the loop notes, the beginning included."""
        self.dense = False
        """Whether SciPy would make an interpolant of each step; evaluations are counted as if."""
        self.keeps = False
        """Whether `rows` keeps in `steps`, for each row, the step that it lies in: state and time before it, length, slopes or rises."""
        self.steps: list[Any] = []
        self.until: Any = None
        """Where the steps may end, before the end of the span: behind it nothing is asked for."""
        # A step of length zero leads from where the beginning is tracked to where it is a number.
        self.start = start
        if holds_tracked(span[0]):
            self.start = moved(equations.slope, start, span[0], self.begin - span[0])

    def rows(self, times: Any) -> Any:
        """States at times (rows), which go from the beginning to the end or nearer; raises as `solve_ivp` does for others."""
        return self.moved_to(self._loop(plain(times)), times)

    def moved_to(self, rows: Any, times: Any) -> Any:
        """Rows at the values of times that may be tracked, as functions of these."""
        if not holds_tracked(times):
            return rows

        def there(_: Any, x: Any) -> Any:
            row, tracked = x
            at = plain(tracked)
            return _, moved(self.equations.slope, row, at, tracked - at)

        return scan(there, 0.0, (rows, times))[1]

    def followed(self, watch: Any, when: Any, room: int) -> Any:
        """What a `Watch` (or None) carries in the end, and, with `room`, number and times of the steps (room,), by a loop of plain values.

        The times `when` are asked for, but for counts this changes nothing. Raises as `rows` where the steps end before an event ends them.
        """
        start, self.watch, self.room = self.start, watch, room
        self.start = plain(start)
        with no_grad():
            self._loop(plain(when))
        self.start, self.watch, self.room = start, None, 0
        return self._seen

    def _begin_watching(self) -> tuple[Any, Any]:
        begin = self.begin * 1.0
        seen = () if self.watch is None else self.watch.begin(begin, plain(self.start), self.end * 1.0)  # fmt: skip
        return seen, (np.float64(1), begin + np.zeros(self.room)) if self.room else ()

    def _watched(
        self, seen: Any, accepted: Any, before: Any, reached: Any, y: Any, at: Callable[[Any], Any]
    ) -> Any:
        """What is noted behind a step to `reached`, where the state is `y`; `at(t)` are states in the step."""
        events, mesh = seen
        if self.watch is not None:
            events = self.watch.after(events, accepted, before, reached, y, at, self.way, self._while)  # fmt: skip
        if self.room:
            count, times = mesh
            here = (np.arange(float(self.room)) == count) & accepted
            mesh = count + np.where(accepted, 1.0, 0.0), np.where(here, reached, times)
        return events, mesh

    def _unfinished(self, now: Any, seen: Any, until: Any = None) -> Any:
        """Whether steps are needed behind `now`, to the time `until`, or to the end."""
        if until is None:
            until = self.end if self.until is None else self.until
        ahead = self.way * (until - now) > 0
        return ahead if self.watch is None else ahead & (seen[0][3] > 0)

    def _while(self, test: Any, body: Any, begin: Any) -> Any:
        """`while_loop`, for which the user's functions are what is looked at."""
        return self._looped(lambda carry, _: (body(carry), None), begin, test)[0]

    def _loop(self, when: Any) -> Any:
        """Solutions at the times `when`, one row each, by a loop of steps with SciPy's control of the error."""
        way, table, f = self.way, tableau(self.method), self.equations
        coefficients, errors = _interpolant(self.method), _errors(self.method)
        whole = len(table.b)
        y, now, end = self.start, self.begin * 1.0, self.end * 1.0
        slope = f(now, y)
        first = errors[0].size - 1  # the slope at the end of the step, with which the next begins
        order = self.method.error_estimator_order  # type: ignore[attr-defined]
        h = (
            self._first_length(plain(y), plain(slope), now, order)
            if self.first_step is None
            else self.first_step
        )
        begun, at_first = now, np.any(way * (when - now) <= 0)

        def step(carry: Any) -> Any:
            """One attempt of a step; the last one that was accepted is carried for the times in it."""
            y, slope, now, h, rejected, last, taken, shown, seen = carry
            h = np.minimum(np.maximum(h, shortest(now)), self.max_step)
            reached = now + way * h
            reached = np.where(way * (reached - end) > 0, end, reached)
            length = reached - now
            slopes = [slope]
            for i in range(1, whole):
                used = [j for j in range(i) if table.a[i, j]]
                place = y + length * _combined(table.a[i, used], [slopes[j] for j in used])
                slopes.append(f(now + float(table.c[i]) * length, place))
            used = [j for j in range(whole) if table.b[j]]
            new = y + length * _combined(table.b[used], [slopes[j] for j in used])
            scale = self.atol + self.rtol * np.maximum(np.abs(plain(y)), np.abs(plain(new)))
            error = self._error([plain(k) for k in slopes], scale, np.abs(length))
            accepted = error < 1
            wanted = 0.9 * np.where(error > 0, error, 1e-300) ** (-1 / (order + 1))
            grown = np.minimum(np.where(rejected > 0, 1.0, 10.0), wanted)
            shrunk = np.where(error < np.inf, np.maximum(0.2, wanted), 0.2)
            found = y, now, length, np.stack(slopes)
            seen = self._watched(seen, accepted, now, reached, plain(new), lambda t: plain(within(found, t)))  # fmt: skip
            made = np.where(self._shows(seen) | (at_first & (now == begun)), 1.0, 0.0)
            return (
                np.where(accepted, new, y),
                np.where(accepted, slopes[first], slope),
                np.where(accepted, reached, now),
                np.abs(length) * np.where(accepted, grown, shrunk),
                np.where(accepted, 0.0, 1.0),
                tuple(np.where(accepted, x, before) for x, before in zip(found, last, strict=True)),
                taken + 1,
                (shown[0] + np.where(accepted, made, 0.0), np.where(accepted, made, shown[1])),
                seen,
            )

        def within(step: Any, t: Any) -> Any:
            """The state at a time in a step."""
            y, before, length, slopes = step
            x = (t - before) / np.where(length == 0, 1.0, length)
            weights = np.matmul(x ** np.arange(1, len(coefficients) + 1), coefficients)
            return y + length * np.matmul(weights, slopes)

        def row(carry: Any, asked: Any) -> Any:
            """Steps until a time is reached, and the state there; `counts` is 1 for a time that somebody asked for."""
            t, counts = asked

            def goes_on(carry: Any) -> Any:
                _, _, now, h, _, _, taken, _, seen = carry
                return (
                    self._unfinished(now, seen, t)
                    & (taken < MOST)
                    & (h >= shortest(now) * (1 - 1e-12))
                )

            *state, (interpolants, made), seen = self._while(goes_on, step, carry)
            shown = interpolants + counts * (1 - made), np.maximum(made, counts)
            return (*state, shown, seen), self._row(state[5], within(state[5], t))

        nothing = y, now, 0.0 * now, np.zeros((whole, np.shape(y)[0])) * slope
        # How many interpolants SciPy makes, and whether that of the last step is made.
        shown = np.float64(0), np.float64(1)
        begin = (
            y, slope, now, np.maximum(h, shortest(now)), np.float64(0), nothing, np.int64(0), shown, self._begin_watching(),
        )  # fmt: skip
        done, rows = self._each_row(row, begin, when)
        _, _, now, _, _, _, taken, (interpolants, _), self._seen = done
        self._demand_arrived(now)
        # The slopes of an attempt, and those of an interpolant that has some of its own.
        asked = taken * first + interpolants * (whole - first - 1)
        self.counts = (asked + (2 if self.first_step is None else 1), 0, 0)
        return rows

    def _shows(self, seen: Any) -> Any:
        """Whether SciPy makes an interpolant of the step that was noted last, for events or because each is asked for."""
        return np.bool_(self.dense) if self.watch is None or self.dense else seen[0][5] > 0

    def _each_row(self, row: Callable[..., Any], begin: Any, when: Any) -> tuple[Any, Any]:
        """What is carried in the end, and the rows at the times `when`, by a loop over these and the time where the steps may end.

        Rows behind that time are the last state: whoever asked for these leaves them out.
        Loops of so few turns that they would be written out have more: at the last time nothing is left to do.
        """
        last = np.reshape((self.end if self.until is None else self.until) * 1.0, (1,))
        count = np.shape(when)[0]
        when = self.way * np.minimum(self.way * when, self.way * last)
        order = np.argsort(self.way * when, kind="stable")
        times = np.concatenate([when[order], *[last] * max(1, FEWEST - count)])
        asked = np.where(np.arange(float(np.shape(times)[0])) < count, 1.0, 0.0)
        carry, found = self._looped(row, begin, None, (times, asked), np.shape(times)[0])
        rows, *self.steps = (x[:count][np.argsort(order)] for x in found)
        return carry, rows

    def _row(self, step: tuple[Any, ...], state: Any) -> tuple[Any, ...]:
        """A row's state, and if steps are kept the step that it lies in."""
        return (state, *step) if self.keeps else (state,)

    def _looped(
        self, step: Any, begin: Any, goes_on: Any, xs: Any = None, turns: int | None = None
    ) -> tuple[Any, Any]:
        """What a loop of the steps carries in the end, and its results: as long as `goes_on`, or one turn for each of `xs`."""
        functions = (self.function, *([] if self.watch is None else self.watch.functions))
        done = looped("solve_ivp", functions, step, begin, xs, turns, test=goes_on)
        if done is None:
            why = storage.tracing.get().why_unrolled(functions)
            raise TraceError(
                "solve_ivp was called inside tg.compile with a fun that looks at values in Python, so that each step would be another "
                f"program{why}. Write its branches with np.where, or leave solve_ivp outside of the compiled function.",
                name="outside-program",
            )
        return done

    def _demand_arrived(self, now: Any) -> None:
        """Raise RuntimeError where the steps ended before the end of the span."""
        if bool(self._unfinished(plain(now), self._seen)):
            raise RuntimeError(
                f"solve_ivp cannot go on at t={float(plain(now)):g}: no step is short enough, or there are more than {MOST}. The equations "
                "are stiff, or the solution ends there. Stiff ones want Radau or BDF, or LSODA outside of tg.compile."
            )

    def _error(self, slopes: Sequence[Any], scale: Any, length: Any) -> Any:
        """The norm of the error of a step, in units of what is allowed."""
        parts = []
        for e in _errors(self.method):
            used = [j for j in range(len(e)) if e[j]]
            parts.append(
                np.mean(np.abs(_combined(e[used], [slopes[j] for j in used]) / scale) ** 2)
            )
        if len(parts) == 1:
            return length * np.sqrt(parts[0])
        fifth, third = parts
        return length * fifth / np.sqrt(np.where(fifth + third == 0, 1.0, fifth + 0.01 * third))

    def _first_length(self, y: Any, slope: Any, t: Any, order: int) -> Any:
        """SciPy's choice of the first step, by a step of Euler's method."""
        scale = self.atol + np.abs(y) * self.rtol
        d0, d1 = norm(y / scale), norm(slope / scale)
        span = np.abs(self.end - self.begin)
        small = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = np.minimum(np.where(small, 1e-6, 0.01 * d0 / np.where(small, 1.0, d1)), span)
        there = plain(self.rate(t + self.way * h0, y + self.way * h0 * slope))
        d2 = norm((there - slope) / scale) / np.where(h0 > 0, h0, 1.0)
        most = np.maximum(d1, d2)
        flat = most <= 1e-15
        h1 = np.where(
            flat,
            np.maximum(1e-6, h0 * 1e-3),
            (0.01 / np.where(flat, 1.0, most)) ** (1 / (order + 1)),
        )
        return np.minimum(np.minimum(100 * h0, h1), np.minimum(span, self.max_step))


class TracedSolution:
    """`sol` of a compiled solution: each call is a loop of its own, up to the farthest of its times."""

    def __init__(self, solver: TracedSolver, state: Any) -> None:
        self._solver, self._state = solver, state
        end = solver.end if solver.until is None else solver.until
        self.t_min, self.t_max = np.minimum(solver.begin, end), np.maximum(solver.begin, end)

    def __call__(self, t: Any) -> Any:
        """The states at a time, or at times, along a last axis."""
        t = gathered(t)
        if np.ndim(t) > 1:
            raise ValueError("`t` must be a float or a 1-D array.")
        if not bool(np.all((plain(t) >= self.t_min) & (plain(t) <= self.t_max))):
            raise ValueError(
                "sol, a solution of solve_ivp inside tg.compile, was asked for a time outside of t_span, or behind the event that ended "
                "it, where no step has been. Extend t_span, or leave solve_ivp outside of the compiled function: steps are extended there."
            )
        rows = self._solver.rows(np.reshape(t * 1.0, (-1,)))
        return self._state.split(rows[0] if np.ndim(t) == 0 else np.transpose(rows), np.shape(t))


def norm(x: Any) -> Any:
    """The root mean square."""
    return np.sqrt(np.mean(np.abs(x) ** 2))


def _combined(weights: np.ndarray, slopes: Sequence[Any]) -> Any:
    total = float(weights[0]) * slopes[0]
    for w, k in zip(weights[1:], slopes[1:], strict=True):
        total = total + float(w) * k
    return total


def shortest(now: Any) -> Any:
    """Ten times the spacing of numbers at a time."""
    return 10 * np.maximum(np.finfo(float).eps * np.abs(now), 5e-324)


__all__ = ["TracedSolution", "TracedSolver", "interpolating", "is_traceable", "radau_weights"]
