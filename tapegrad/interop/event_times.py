"""Events of differential equations: when they happen, as functions of all that the solution depends on, and how a program finds them.

Algorithm: an event is a root of its function along the solution. `crossings` differentiates times that are known, by the implicit function
theorem: of first order from the state there and its slope, of higher order along a step of length zero (`moved`). `Watch` finds the times
in a program: after each step SciPy's test for a change of sign and, along the step's interpolant, Brent's method.

Invariant: which events are found, in which order, and after which one the solution ends, is as in SciPy; times differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.closures import closed_over
from ..core.primitive import apply
from ..core.storage import tracing
from ..core.tensor import Tensor, value_of
from ..errors import NotDifferentiable
from ..ops.joining import gathered
from ..transforms.derivatives import _Run
from ..transforms.loops import mapped, outside_of, pulled
from .implicit import Factors, Solution, solved
from .stepping import moved
from .traced_roots import TracedRoot
from .traced_steps import plain

Judge = Callable[[Any, Any], Any]
"""An event of a time and a vector: 0 when it happens."""

ROUNDS = 100
"""Steps of Brent's method, as SciPy's."""

FIRST_ROOM = 16
"""Events of a kind that a program has room for at first; where there are more, it is made again with four times as much."""

FIRST_STEPS = 256
"""Steps that a program has room for at first, where all are asked for; where there are more, it is made again with eight times as much."""


def crossings(judge: Judge, slope: Any, times: Any, rows: Any, functions: Sequence[Any]) -> Any:
    """The `times` (k,) at which an event happens, as functions of what `rows`, the states then (k, n), and `judge` depend on.

    `slope(t, y)` is dy/dt, `functions` are the user's. Raises NotDifferentiable where the event is 0 without crossing 0.
    """
    times, here = value_of(times), value_of(rows)

    def there(t: Any, row: Any, time: Any) -> Any:
        """The event at a time t near `time`, when the state is `row`."""
        return _number(judge(t, moved(slope, row, time, t - time)))

    def moving(t: Any) -> Any:
        return _each(there, t, rows, times)

    def held(_: Any) -> Any:
        """The same at the times themselves: its derivative by all else is that of `moving`, without a step."""
        return _each(lambda time, row: _number(judge(time, row)), times, rows)

    def used(given: Any) -> tuple[Any, Any]:
        """The events, and the slopes there: second derivatives of the times depend on what the slopes alone use, too."""
        return held(given), _each(slope, times, rows)

    run = _Run(used, (times,), {}, (0,), "solve_ivp", True)
    outside = outside_of(run.own.tape.code, run.nodes)
    if not outside:
        return times
    values, rates = map(value_of, run.output)

    def along(x: Any) -> Any:
        return _each(lambda x, t, row, rate: _number(judge(t + x, row + x * rate)), x, times, here, rates)  # fmt: skip

    (node,), found = pulled(along, (0.0 * times,), np.ones(np.shape(times)))
    speeds = found.get(node, np.zeros(np.shape(times)))
    speeds = value_of(speeds)
    _demand_crossed(times, values, speeds)
    held_by = closed_over(functions)
    made = _Crossings(held_by.within(moving), times, _Diagonal(speeds), list(outside), "solve_ivp")
    made.held = held_by.within(held)
    return apply(solved.primitive, list(outside.values()), (made,))


def _demand_crossed(times: Any, values: Any, speeds: Any) -> None:
    """Raise NotDifferentiable where Newton's step from a time is not small: the event's function does not cross 0 there."""
    near = 1e-6 * np.maximum(np.max(np.abs(times)), 1e-6)
    if not bool(np.all(np.abs(values) <= near * np.abs(speeds)) & np.all(np.abs(speeds) > 0)):
        raise NotDifferentiable(
            "solve_ivp was asked for the time of an event whose derivative is wanted, but the event does not cross 0 there: it touches 0 "
            "and turns back, so that nearby there are two events or none. Use another event, or detach() what the solution depends on.",
            name="no-solution",
        )


def _number(value: Any) -> Any:
    return np.reshape(gathered(value), ())


def _each(f: Callable[..., Any], *columns: Any) -> Any:
    """f of the entries of several arrays: a loop of a program for more than one, else as often as there are entries."""
    count = np.shape(columns[0])[0]
    if tracing.get() is not None and count > 1:
        return mapped("solve_ivp", lambda given: f(*given), columns, False)
    return np.stack([f(*(column[i] for column in columns)) for i in range(count)])


class _Diagonal(Factors):
    """The Jacobian of equations of which each has an unknown of its own."""

    __slots__ = ("diagonal",)

    def __init__(self, diagonal: Any) -> None:
        self.diagonal, self.sparse = diagonal, False

    def solve(self, b: Any, transposed: bool = False) -> Any:
        return b / self.diagonal


class _Crossings(Solution):
    """The rule of times of events. `held` are the equations at the times themselves, which are enough for the first order."""

    __slots__ = ("held",)

    held: Callable[[Any], Any]

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if isinstance(g, Tensor):
            return super().pull(g, xs, wanted)
        weights = self.factors.solve(g)
        _, found = pulled(lambda x: self.again(x, self.held), (self.value,), -weights)
        return [found.get(node) for node in self.nodes]


# --------------------------------------------------------------------------------------------------- in a program


class _Root(TracedRoot):
    """Brent's method in a loop of a program, for a function of plain values; it makes no round where it is not `asked`."""

    def __init__(self, values: Callable[[Any], Any], asked: Any, loop: Callable[..., Any]) -> None:
        self.values, self.asked, self.loop = values, asked, loop

    def _values(self, x: Any) -> Any:
        return self.values(x)

    def _while(self, goes_on: Any, step: Any, begin: Any) -> Any:
        x, left, *rest = begin
        return self.loop(goes_on, step, (x, left * self.asked, *rest))


class Watch:
    """What a loop of steps carries to find events: the last values, how many there were, their times, whether to go on, the end, and
    whether there was an event in the last step.

    `judges` are SciPy's events of times and vectors, `functions` the user's behind them, and `most` says after how many of each the
    solution ends.
    """

    def __init__(
        self, judges: Sequence[Judge], functions: Sequence[Any], most: np.ndarray, direction: np.ndarray, room: int
    ) -> None:  # fmt: skip
        self.judges, self.functions = judges, functions
        self.most, self.direction, self.room = most, direction, room

    def values(self, t: Any, y: Any) -> Any:
        """All events at a time and a state."""
        return np.stack([plain(_number(judge(t, y))) * 1.0 for judge in self.judges])

    def begin(self, t: Any, y: Any, end: Any) -> tuple[Any, ...]:
        count = len(self.judges)
        return (
            self.values(t, y),
            np.zeros(count),
            np.zeros((count, self.room)),
            np.float64(1),
            end,
            np.float64(0),
        )

    def after(
        self, seen: tuple[Any, ...], accepted: Any, before: Any, reached: Any, y: Any, at: Callable[[Any], Any], way: float, loop: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        """What is carried behind a step from `before` to `reached`, if it is accepted: `at(t)` are the states in it, `y` is the last."""
        old, counts, times, going, end, busy = seen
        new = self.values(reached, y)
        up, down = (old <= 0) & (new >= 0), (old >= 0) & (new <= 0)
        crossed = np.where(self.direction > 0, up, np.where(self.direction < 0, down, up | down))
        active = crossed & accepted & (going > 0)
        roots = np.stack([
            self._root(i, np.where(active[i], 1.0, 0.0), before, reached, old[i], new[i], at, loop) for i in range(len(self.judges))
        ])  # fmt: skip
        last = active & (counts + 1 >= self.most)
        cut = np.min(np.where(last, way * roots, np.inf))
        # Of events at one time SciPy keeps those up to the first that ends the solution.
        numbers = np.arange(float(len(self.judges)))
        first = np.min(np.where(last & (way * roots == cut), numbers, np.inf))
        kept = active & ((way * roots < cut) | ((way * roots == cut) & (numbers <= first)))
        place = np.arange(float(self.room)) == np.reshape(counts, (-1, 1))
        return (
            np.where(accepted, new, old),
            counts + np.where(kept, 1.0, 0.0),
            np.where(place & np.reshape(kept, (-1, 1)), np.reshape(roots, (-1, 1)), times),
            np.where(cut < np.inf, 0.0, going),
            np.where(cut < np.inf, way * np.where(cut < np.inf, cut, 0.0), end),
            np.where(accepted, np.where(np.any(active), 1.0, 0.0), busy),
        )

    def _root(self, i: int, asked: Any, a: Any, b: Any, low: Any, high: Any, at: Any, loop: Any) -> Any:  # fmt: skip
        """When an event happens in a step; anything where it is not `asked`."""
        a_, b_, f_a, f_b = (np.reshape(x * 1.0, (1,)) for x in (a, b, low, high))

        def value(x: Any) -> Any:
            return np.reshape(plain(_number(self.judges[i](x[0], at(x[0])))) * 1.0, (1,))

        four = 4 * np.finfo(float).eps
        x, _ = _Root(value, asked, loop)._brent(a_, b_, f_a, f_b, four, four, ROUNDS)
        return np.where(low == 0, a, np.where(high == 0, b, x[0]))


def prepared(events: Any) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """SciPy's reading of `events`: functions, after how many of each the solution ends, and directions."""
    from scipy.integrate._ivp.ivp import prepare_events

    judges, most, direction = prepare_events(events)
    return list(judges), most, direction


__all__ = ["FIRST_ROOM", "FIRST_STEPS", "Watch", "crossings", "prepared"]
