"""`tg.odeint`: initial value problems, under the name and with the arguments of SciPy's `odeint`.

Algorithm: the pairs of Runge-Kutta formulas of order 5 and 4 of Dormand & Prince (1980), with the choice of steps of Hairer,
Nørsett & Wanner (Solving Ordinary Differential Equations I, II.4), as in SciPy's RK45. The steps are written in ordinary
functions of NumPy, so that derivatives of every order and mode are those of the steps that were taken, also by what the
equations close over. Steps end at the times that are asked for, which have a derivative, too. In a function that `tg.compile` traces the
steps are one loop of the program (`_one_loop`), which takes as many as the values of each call need.

Invariant: how long a step is depends on values alone. The derivative so leaves out that other values would have been given other steps:
an error of the size of the tolerance. What is not optimal: all steps are kept for the reverse, and stiff equations take many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.storage import tracing
from ..core.tensor import value_of
from ..errors import demand_callable
from ..ops.joining import gathered
from ..transforms.loops import looped
from .traced_steps import norm, plain

_STAGES = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
"""When each slope is taken, in steps from the beginning, and the combination of slopes that leads there; the last is the result."""
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""The result of order 5 less that of order 4, by the slopes."""
_FEWEST_DIGITS = 1.49012e-8  # SciPy's tolerances


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    args: tuple[Any, ...] = (),
    *,
    rtol: float = _FEWEST_DIGITS,
    atol: Any = _FEWEST_DIGITS,
    tfirst: bool = False,
    mxstep: int = 10_000,
) -> Any:
    """Solution of dy/dt = func(y, t, *args) from y0 at t[0], a row for each of the times t; differentiable by all of them.

    Derivatives are exact to about the tolerances. `tfirst` calls func(t, y, *args). Raises ValueError where times do not go one way, and
    RuntimeError where more than `mxstep` steps would be needed from one time to the next (the equations are stiff, or end there).

    >>> import numpy as np, tapegrad as tg
    >>> def decay(y, t, rate):
    ...     return -rate * y
    >>> slope = tg.grad(lambda rate: tg.odeint(decay, 1.0, [0.0, 2.0], (rate,))[-1, 0])(0.5)
    >>> bool(abs(slope + 2 * np.exp(-1.0)) < 1e-7)
    True
    """
    demand_callable(func, "odeint")
    y, times = _with_axis(gathered(y0)), gathered(t)
    y = y * 1.0  # whole numbers are the beginning of something that moves
    when = value_of(times)
    if np.ndim(when) != 1 or not np.size(when):
        raise ValueError(
            f"odeint was given times of shape {np.shape(when)}, but they are a sequence: the first is that of y0."
        )
    way = 1.0 if bool(when[-1] >= when[0]) else -1.0
    if not bool(np.all(way * (when[1:] - when[:-1]) >= 0)) or not bool(np.all(np.isfinite(when))):
        raise ValueError(
            "odeint was given times that go up and down, or are not finite: give them in order."
        )
    solver = _Solver(func, tuple(args) if isinstance(args, tuple | list) else (args,), tfirst, rtol, atol)  # fmt: skip
    if tracing.get() is not None:
        made = solver.one_loop(y, times, way, mxstep)
        if made is not None:
            return made
    when = np.asarray(when, float)
    rows, now = [y], times[0]
    slope = solver.slope(y, now)
    h = way * solver.first_step(value_of(y), value_of(slope), float(when[0]), way)
    for i in range(1, len(when)):
        if when[i] == when[i - 1]:  # a step of no length, which has a derivative by its end
            y, now = y + (times[i] - now) * slope, times[i]
        for taken in range(mxstep + 1):
            left = float(when[i] - value_of(now))
            if way * left <= 0:
                break
            if taken == mxstep:
                raise _stiff(mxstep, when[i - 1], when[i])
            last = abs(h) >= abs(left) * (1 - 1e-12)
            step = times[i] - now if last else h
            y, slope, factor, accepted = solver.step(y, slope, now, step)
            if accepted:
                now = times[i] if last else now + step
            if not last or not accepted:
                h = float(value_of(step)) * factor
            if abs(h) <= 16 * np.spacing(abs(float(value_of(now)))):
                raise _ended(value_of(now))
        rows.append(y)
    return np.stack(rows)


def _with_axis(x: Any) -> Any:
    return x if np.ndim(x) else np.reshape(x, (1,))


def _stiff(mxstep: int, start: Any, end: Any) -> RuntimeError:
    return RuntimeError(
        f"odeint needs more than mxstep={mxstep} steps between t={float(start):g} and t={float(end):g}: the equations are stiff or "
        "have no solution there. Loosen rtol and atol, allow more steps, or write the steps of an implicit method."
    )


def _ended(t: Any) -> RuntimeError:
    return RuntimeError(
        f"odeint cannot go on at t={float(t):g}: no step is short enough. The solution may end there."
    )


def _not_finite(t: Any) -> ValueError:
    return ValueError(f"odeint cannot begin: y0, or what func returned at t={float(t):g}, is not finite.")  # fmt: skip


def _combined(coefficients: Sequence[float], slopes: Sequence[Any]) -> Any:
    total = None
    for c, k in zip(coefficients, slopes, strict=True):
        if c:
            total = c * k if total is None else total + c * k
    return total


class _Solver:
    """The equations, and how precisely they are solved."""

    __slots__ = ("args", "atol", "func", "rtol", "tfirst")

    def __init__(self, func: Any, args: tuple[Any, ...], tfirst: bool, rtol: Any, atol: Any) -> None:  # fmt: skip
        self.func, self.args, self.tfirst, self.rtol, self.atol = func, args, tfirst, rtol, atol

    def slope(self, y: Any, t: Any) -> Any:
        """What func says, as one array or tensor of the shape of y."""
        k = self.func(t, y, *self.args) if self.tfirst else self.func(y, t, *self.args)
        if k is None:
            raise TypeError("odeint differentiates along dy/dt, but func returned None. Does it end with a return?")  # fmt: skip
        k = _with_axis(gathered(k))
        if np.shape(k) != np.shape(y):
            raise ValueError(
                f"odeint was given y0 of shape {np.shape(y)}, but func returned shape {np.shape(k)}: a slope for each entry."
            )
        return k

    def stages(self, y: Any, slope: Any, now: Any, h: Any) -> tuple[list[Any], Any]:
        """The slopes of a step, that of its end last, and the value there."""
        slopes, reached = [slope], y
        for at, coefficients in _STAGES:
            reached = y + h * _combined(coefficients, slopes)
            slopes.append(self.slope(reached, now + at * h))
        return slopes, reached

    def step(self, y: Any, slope: Any, now: Any, h: Any) -> tuple[Any, Any, float, bool]:
        """The value and slope a step further, or where it is not precise enough those of now; by what to multiply h; which it was."""
        slopes, reached = self.stages(y, slope, now, h)
        before, after = value_of(y), value_of(reached)
        scale = self.atol + self.rtol * np.maximum(np.abs(before), np.abs(after))
        error = _size(value_of(h) * _combined(_ERROR, [value_of(k) for k in slopes]) / scale)
        if not error < 1:  # nor where it is NaN
            return y, slope, max(0.2, 0.9 * error**-0.2) if error < np.inf else 0.2, False
        return reached, slopes[-1], min(10.0, 0.9 * error**-0.2) if error else 10.0, True

    def first_step(self, y: np.ndarray, slope: np.ndarray, t: float, way: float) -> float:
        """A step that an Euler step of a hundredth of the scale shows to be about right."""
        scale = self.atol + self.rtol * np.abs(y)
        d0, d1 = _size(y / scale), _size(slope / scale)
        h0 = 1e-6 if min(d0, d1) < 1e-5 else 0.01 * d0 / d1
        if not np.isfinite(h0):
            raise _not_finite(t)
        there = value_of(self.slope(y + way * h0 * slope, t + way * h0))
        d2 = _size((there - slope) / scale) / h0
        h1 = max(1e-6, h0 * 1e-3) if max(d1, d2) <= 1e-15 else (0.01 / max(d1, d2)) ** 0.2
        return min(100 * h0, h1)

    def one_loop(self, y: Any, times: Any, way: float, mxstep: int) -> Any:
        """The rows for all times, by one loop of the program that is traced, which takes the steps that `odeint` takes.

        It carries value, slope, time, the length of the next step, the rows, the number of the time it goes to and the steps since the last
        one. None where the equations look at values in Python, so that each step is a trace of its own.
        """
        start, count = times[0], np.shape(times)[0]
        if count == 1 or not np.size(y):
            return None  # no steps, or none that an error of nothing could end
        slope = self.slope(y, start)
        if not bool(np.all(np.isfinite(plain(slope))) and np.all(np.isfinite(plain(y)))):
            raise _not_finite(value_of(start))
        h = way * self._first_length(plain(y), plain(slope), plain(start), way)
        numbers = np.arange(count)
        places = numbers.reshape(-1, *[1] * np.ndim(y))
        rows = np.where(places == 0, y, np.zeros((count, *np.shape(y))))

        def step(carry: Any, _: Any) -> Any:
            """One attempt of a step: accepted or not by its error, with the length of the next."""
            y, slope, now, h, rows, i, taken = carry
            end = np.sum(np.where(numbers == i, times, 0.0))
            left = end - now
            last = np.abs(h) >= np.abs(plain(left)) * (1 - 1e-12)
            length = np.where(last, left, h)
            slopes, reached = self.stages(y, slope, now, length)
            scale = self.atol + self.rtol * np.maximum(np.abs(plain(y)), np.abs(plain(reached)))
            error = norm(plain(length) * _combined(_ERROR, [plain(k) for k in slopes]) / scale)  # fmt: skip
            accepted = error < 1
            wanted = 0.9 * np.where(error > 0, error, 1e-300) ** -0.2
            factor = np.where(accepted, np.minimum(10.0, wanted), np.where(error < np.inf, np.maximum(0.2, wanted), 0.2))  # fmt: skip
            arrived = last & accepted
            y = np.where(accepted, reached, y)
            slope = np.where(accepted, slopes[-1], slope)
            now = np.where(arrived, end, np.where(accepted, now + length, now))
            h = np.where(arrived, h, plain(length) * factor)
            rows = np.where(arrived & (places == i), y, rows)
            return (y, slope, now, h, rows, i + arrived, np.where(arrived, 0, taken + 1)), None

        def stuck(now: Any, h: Any) -> Any:
            return np.abs(h) <= 16 * np.maximum(np.finfo(float).eps / 2 * np.abs(now), 5e-324)

        def goes_on(carry: Any) -> Any:
            _, _, now, h, _, i, taken = carry
            return (i < count) & (taken < mxstep) & ~stuck(now, h)

        begin = (y, slope, start * 1.0, h, rows, 1, 0)
        done = looped("odeint", (self.func,), step, begin, None, None, test=goes_on)
        if done is None:
            return None
        _, _, now, h, rows, i, _ = done[0]
        if bool(i < count):
            if bool(stuck(plain(now), h)):
                raise _ended(plain(now))
            raise _stiff(mxstep, *np.asarray(value_of(times), float)[int(i) - 1 : int(i) + 1])
        return rows

    def _first_length(self, y: Any, slope: Any, t: Any, way: float) -> Any:
        """`first_step`, without a look at values."""
        scale = self.atol + self.rtol * np.abs(y)
        d0, d1 = norm(y / scale), norm(slope / scale)
        h0 = np.where(np.minimum(d0, d1) < 1e-5, 1e-6, 0.01 * d0 / np.where(d1 > 0, d1, 1.0))
        there = plain(self.slope(y + way * h0 * slope, t + way * h0))
        d2 = norm((there - slope) / scale) / h0
        most = np.maximum(d1, d2)
        h1 = np.where(most <= 1e-15, np.maximum(1e-6, h0 * 1e-3), (0.01 / np.where(most > 0, most, 1.0)) ** 0.2)  # fmt: skip
        return np.minimum(100 * h0, h1)


def _size(x: Any) -> float:
    """Root mean square."""
    return float(norm(x)) if np.size(x) else 0.0


__all__ = ["odeint"]
