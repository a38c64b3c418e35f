"""Exact derivatives of functions of numbers, and how far a rounding may stand off them.

`Exact(f, point)` is a function of mpmath's numbers at one point: its partial derivatives of first and second order, by central
differences at so many digits that halving the steps changes nothing. `Exact.growth` is by how much such a derivative moves when
an operand moves by an ulp: the condition of the *derivative*, from which the bound of a judge follows. Invariant: no bound here
is absolute; what an exact derivative of 1e-200 has lost is seen as well as what one of 1 has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

DIGITS = (60, 120, 240, 480, 960, 1920)
"""Digits to compute with: of them a quarter goes into the step, and the next row judges the one before."""

SETTLED = mpmath.mpf(10) ** -19
UNDERFLOW = mpmath.mpf(10) ** -400
NOTHING = mpmath.mpf(10) ** -700


class Unsettled(ArithmeticError):
    """Differences at the most digits still disagree: the function is not smooth here, or mpmath does not reach it."""


def difference(f: Callable[..., Any], point: Sequence[Any], by: Sequence[int], digits: int) -> Any:
    """A partial derivative by central differences, `by` naming an operand for each order."""
    steps = {i: (abs(point[i]) or 1) * mpmath.mpf(10) ** -(digits // 4) for i in by}
    total, divisor = mpmath.mpf(0), mpmath.mpf(1)
    for i in by:
        divisor *= 2 * steps[i]
    if len(by) == 2 and by[0] == by[1]:  # three points
        i, h = by[0], steps[by[0]]
        at = [f(*(x + k * h if j == i else x for j, x in enumerate(point))) for k in (-1, 0, 1)]
        return (at[0] - 2 * at[1] + at[2]) / (h * h)
    for signs in itertools.product((1, -1), repeat=len(by)):
        moved = list(point)
        sign = 1
        for i, s in zip(by, signs, strict=True):
            moved[i] = moved[i] + s * steps[i]
            sign *= s
        total += sign * f(*moved)
    return total / divisor


class Exact:
    """Partial derivatives of `f` at a point of floats, each as precise as they are asked for."""

    def __init__(self, f: Callable[..., Any], point: Sequence[float]) -> None:
        self.f = f
        self.point = tuple(point)
        self._digits = 0

    def derivative(self, *by: int, at: Sequence[Any] | None = None) -> Any:
        """The partial derivative by these operands; the value itself without any."""
        point = self.point if at is None else at
        before = None
        for k in range(self._digits, len(DIGITS)):
            with mpmath.workdps(DIGITS[k]):
                place = [mpmath.mpf(x) for x in point]
                now = mpmath.re(difference(self.f, place, by, DIGITS[k]))
                if before and abs(now - before) <= SETTLED * abs(now):
                    self._digits = k - 1
                    return now
            before = now
        if abs(before) < UNDERFLOW:
            return before
        with mpmath.workdps(DIGITS[-1]):
            if abs(before) * mpmath.fprod(abs(place[i]) or 1 for i in by) <= NOTHING * (
                abs(self.f(*place)) or 1
            ):
                return mpmath.mpf(0)  # the roundings of a difference that is 0
        raise Unsettled(f"derivative by {by} at {point}: {before}")

    def growth(self, *by: int, eps: float) -> Any:
        """By how much the derivative moves when each operand moves by a relative `eps`, all together."""
        here = self.derivative(*by)
        total = mpmath.mpf(0)
        for i in range(len(self.point)):
            sides = []
            for s in (1, -1):
                with mpmath.workdps(60):
                    at = [
                        mpmath.mpf(x) * (1 + s * mpmath.mpf(eps)) if j == i else mpmath.mpf(x)
                        for j, x in enumerate(self.point)
                    ]
                try:
                    sides.append(abs(self.derivative(*by, at=at) - here))
                except (Unsettled, ValueError, ZeroDivisionError):
                    continue  # the other side of an edge of the domain
            total += max(sides, default=mpmath.mpf(0))
        return total
