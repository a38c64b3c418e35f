"""`tg.odeint`: initial value problems, under the name and with the arguments of SciPy's `odeint`.

Algorithm: the pairs of Runge-Kutta formulas of order 5 and 4 of Dormand & Prince (1980), with the choice of steps of Hairer,
Nørsett & Wanner (Solving Ordinary Differential Equations I, II.4), as in SciPy's RK45. The steps are written in ordinary
functions of NumPy, so that derivatives of every order and mode are those of the steps that were taken, also by what the
equations close over. Steps end at the times that are asked for, which have a derivative, too.

Invariant: how long a step is depends on values alone. The derivative so leaves out that other values would have been given other steps:
an error of the size of the tolerance. What is not optimal: all steps are kept for the reverse, and stiff equations take many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import demand_callable
from .ops.joining import gathered
from .tensor import value_of

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
    y, times = np.atleast_1d(gathered(y0)), gathered(t)
    y = y * 1.0  # whole numbers are the beginning of something that moves
    when = np.asarray(value_of(times), float)
    if when.ndim != 1 or not when.size:
        raise ValueError(f"odeint was given times of shape {when.shape}, but they are a sequence: the first is that of y0.")  # fmt: skip
    way = math.copysign(1.0, when[-1] - when[0])
    if not np.all(way * np.diff(when) >= 0) or not np.all(np.isfinite(when)):
        raise ValueError("odeint was given times that go up and down, or are not finite: give them in order.")  # fmt: skip
    solver = _Solver(func, tuple(args) if isinstance(args, tuple | list) else (args,), tfirst, rtol, atol)  # fmt: skip
    rows, now = [y], times[0]
    slope = solver.slope(y, now)
    h = way * solver.first_step(value_of(y), value_of(slope), float(when[0]), way)
    for i in range(1, len(when)):
        for taken in range(mxstep + 1):
            left = float(when[i] - value_of(now))
            if way * left <= 0:
                break
            if taken == mxstep:
                raise RuntimeError(
                    f"odeint needs more than mxstep={mxstep} steps between t={when[i - 1]:g} and t={when[i]:g}: the equations are stiff or "
                    "have no solution there. Loosen rtol and atol, allow more steps, or write the steps of an implicit method."
                )
            last = abs(h) >= abs(left) * (1 - 1e-12)
            step = times[i] - now if last else h
            y, slope, factor, accepted = solver.step(y, slope, now, step)
            if accepted:
                now = times[i] if last else now + step
            if not last or not accepted:
                h = float(value_of(step)) * factor
            if abs(h) <= 16 * np.spacing(abs(float(value_of(now)))):
                raise RuntimeError(
                    f"odeint cannot go on at t={float(value_of(now)):g}: no step is short enough. The solution may end there."
                )
        rows.append(y)
    return np.stack(rows)


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
        k = np.atleast_1d(gathered(k))
        if np.shape(k) != np.shape(y):
            raise ValueError(
                f"odeint was given y0 of shape {np.shape(y)}, but func returned shape {np.shape(k)}: a slope for each entry."
            )
        return k

    def step(self, y: Any, slope: Any, now: Any, h: Any) -> tuple[Any, Any, float, bool]:
        """The value and slope a step further, or where it is not precise enough those of now; by what to multiply h; which it was."""
        slopes, reached = [slope], y
        for at, coefficients in _STAGES:
            reached = y + h * _combined(coefficients, slopes)
            slopes.append(self.slope(reached, now + at * h))
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
            raise ValueError(f"odeint cannot begin: y0, or what func returned at t={t:g}, is not finite.")  # fmt: skip
        there = value_of(self.slope(y + way * h0 * slope, t + way * h0))
        d2 = _size((there - slope) / scale) / h0
        h1 = max(1e-6, h0 * 1e-3) if max(d1, d2) <= 1e-15 else (0.01 / max(d1, d2)) ** 0.2
        return min(100 * h0, h1)


def _size(x: Any) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.abs(x) ** 2))) if np.size(x) else 0.0


__all__ = ["odeint"]
