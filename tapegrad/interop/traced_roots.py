"""Roots in a function that `tg.compile` traces: the iterations are one loop of the program, as many as a call needs.

Algorithm: those of `scipy.optimize` (Zeros/*.c, _zeros_py.py), written in operations that are recorded; for systems, where SciPy has
MINPACK's hybrid method, Newton's steps, shortened while they do not make |f| smaller. The loops compute on plain values: the derivative
is the implicit function theorem's (implicit.py).

Data: `f` maps a vector of n unknowns to n plain values; methods between two ends have one unknown, `newton` takes each entry by itself.
Invariant: where a method does not converge, or there is no change of sign, the program's guards fail, and the error is SciPy's. Where one
turn cannot stand for all (the function looks at values in Python), or the method is none of these, the result is None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import value_of, wrap
from ..transforms.derivatives import grad
from ..transforms.loops import looped, pulled
from .implicit import plain_slopes, solution
from .raveling import Space, joined

P = ParamSpec("P")
Vector = Callable[[Any], Any]

BETWEEN = ("brentq", "brenth", "ridder", "bisect")
NEAR = ("newton", "halley", "secant")


class NoLoop(Exception):
    """One turn cannot stand for all of them, or the method is none of this module's."""


def _or_none(method: Callable[P, Any]) -> Callable[P, Any]:
    @functools.wraps(method)
    def tried(*args: P.args, **settings: P.kwargs) -> Any:
        try:
            return method(*args, **settings)
        except NoLoop:
            return None

    return tried


class TracedRoot:
    """The equations `f(x, *args) = 0` of a solver `what` in the shape of `space`; its methods return the root, tracked."""

    def __init__(self, what: str, f: Callable[..., Any], space: Space, args: Sequence[Any]) -> None:
        self.what, self.f, self.space, self.args = what, f, space, args

    @_or_none
    def between(self, method: str, a: Any, b: Any, xtol: Any = None, rtol: Any = None, maxiter: Any = None) -> Any:  # fmt: skip
        """The root between two ends; None stands for SciPy's settings."""
        xtol, rtol, maxiter = (
            given if given is not None else default
            for given, default in zip((xtol, rtol, maxiter), (2e-12, 4 * np.finfo(float).eps, 100), strict=True)
        )  # fmt: skip
        if method not in BETWEEN:
            raise NoLoop
        with no_grad():
            a, b = (np.reshape(value_of(end) * 1.0, (1,)) for end in (a, b))
            low, high = self._values(a), self._values(b)
            if bool(np.all(low * high > 0)):
                raise ValueError("f(a) and f(b) must have different signs")
            x, left = _METHODS[method](self, a, b, low, high, xtol, rtol, maxiter)
            x = np.where(low == 0, a, np.where(high == 0, b, x))
            failed = bool(np.any((left > 0) & (low * high != 0)))
        return self._found(x, failed, maxiter)

    @_or_none
    def near(self, method: str, x0: Any, x1: Any, slopes: Sequence[Any], tol: Any, rtol: Any, maxiter: Any) -> Any:  # fmt: skip
        """The root near a start by "newton", "halley" or "secant"; `slopes` are the user's derivatives, None where the tape has them."""
        if method not in NEAR:
            raise NoLoop
        with no_grad():
            x0 = np.reshape(value_of(x0) * 1.0, (-1,))
            if method == "secant":
                x, left = self._secant(x0, x1, tol, rtol, maxiter)
            else:
                x, left = self._newton(x0, slopes, method == "halley", tol, rtol, maxiter)
            failed = bool(np.any(left > 0))
        return self._found(x, failed, maxiter)

    @_or_none
    def system(self, x0: Any, tol: float, maxiter: int = 200) -> Any:
        """The root of all equations together by Newton's steps from `x0`, and whether one was found."""

        def step(carry: Any) -> Any:
            """One of Newton's steps for all equations, half as long as the last where |f| did not become smaller."""
            x, values, part, _, count = carry
            move = np.linalg.solve(plain_slopes(self._recorded, x, self.what), values)
            there = x - part * move
            then = self._values(there)
            better = np.linalg.norm(then) < np.linalg.norm(values)
            small = np.max(np.abs(move)) <= tol * np.max(np.abs(x))
            left = np.where((small & (part == 1)) | np.all(then == 0), 0.0, 1.0)
            x, values = np.where(better, there, x), np.where(better, then, values)
            return (
                x,
                values,
                np.where(better, np.minimum(1.0, 2 * part), 0.5 * part),
                left,
                count + 1,
            )

        with no_grad():
            x = np.reshape(value_of(x0) * 1.0, (-1,))
            values = self._values(x)
            begin = (x, values, np.float64(1), np.where(np.all(values == 0), 0.0, 1.0), np.int64(0))
            goes_on = lambda c: (c[3] > 0) & (c[4] < maxiter) & (c[2] > 1e-12)  # noqa: E731
            x, _, _, left, _ = self._while(goes_on, step, begin)
            failed = bool(left > 0)
        return self._found(x, failed, maxiter)

    # ------------------------------------------------------------------------------------------------ the loops

    def _newton(self, x: Any, slopes: Sequence[Any], halley: bool, tol: Any, rtol: Any, maxiter: Any) -> Any:  # fmt: skip
        """Newton's or Halley's steps of each entry, and which entries have not converged."""
        first = self._given(slopes[0]) or _of_entries(self._recorded)
        second: Vector | None = None
        if halley:
            second = self._given(slopes[1]) or _of_entries(
                grad(lambda x: np.sum(self._recorded(x)))
            )

        def step(carry: Any) -> Any:
            x, left, count = carry
            values, slope = self._values(x), first(x)
            move = values / _divisor(slope)
            if second is not None:
                bend = move * second(x) / _divisor(slope) / 2
                move = move / np.where(np.abs(bend) < 1, 1 - bend, 1.0)
            there = np.where((left > 0) & (values != 0), x - move, x)
            near = np.abs(there - x) <= tol + rtol * np.abs(x)
            return there, np.where((near & (slope != 0)) | (values == 0), 0.0, left), count + 1

        x, left, _ = self._while(_goes_on(maxiter), step, (x, np.ones_like(x), np.int64(0)))
        return x, left

    def _secant(self, x0: Any, x1: Any, tol: Any, rtol: Any, maxiter: Any) -> Any:
        """Steps of the secant through the last two points of each entry, and which entries have not converged."""
        if x1 is None:
            x1 = x0 * (1 + 1e-4)
            x1 = x1 + np.where(x1 >= 0, 1e-4, -1e-4)
        x1 = np.reshape(value_of(x1) * 1.0, (-1,)) + 0 * x0
        y0, y1 = self._values(x0), self._values(x1)
        swap = np.abs(y1) < np.abs(y0)
        begin = (
            np.where(swap, x1, x0), np.where(swap, y1, y0), np.where(swap, x0, x1), np.where(swap, y0, y1),
        )  # fmt: skip

        def step(carry: Any) -> Any:
            """One step of the secant; entries that have converged stay."""
            x, left, count, p0, q0, p1, q1 = carry
            least = np.where(np.abs(q1) > np.abs(q0), q0, q1)
            other = np.where(np.abs(q1) > np.abs(q0), q1, q0)
            share = least / _divisor(other)
            far, close = (
                np.where(np.abs(q1) > np.abs(q0), p1, p0),
                np.where(np.abs(q1) > np.abs(q0), p0, p1),
            )
            p = np.where(q0 == q1, (p0 + p1) / 2, (close - share * far) / _divisor(1 - share))
            near = np.abs(p - p1) <= tol + rtol * np.abs(p1)
            there = np.where(left > 0, p, x)
            value = self._values(there)
            left = np.where(near | (value == 0), 0.0, left)
            return there, left, count + 1, p1, q1, p, value

        x, left, *_ = self._while(
            _goes_on(maxiter), step, (x1, np.ones_like(x0), np.int64(0), *begin)
        )
        return x, left

    def _brent(self, a: Any, b: Any, low: Any, high: Any, xtol: Any, rtol: Any, maxiter: Any, hyperbolic: bool = False) -> Any:  # fmt: skip
        """x, f of it and the step are those of the point before (pre), the best one (cur) and the other end (blk)."""

        def step(carry: Any) -> Any:
            """One of Brent's steps: by interpolation where it is short enough, else by halves."""
            _, left, count, pre, f_pre, cur, f_cur, blk, f_blk, s_pre, s_cur = carry
            crossed = (f_pre != 0) & (f_cur != 0) & (np.signbit(f_pre) != np.signbit(f_cur))
            blk, f_blk = np.where(crossed, pre, blk), np.where(crossed, f_pre, f_blk)
            s_pre = np.where(crossed, cur - pre, s_pre)
            s_cur = np.where(crossed, cur - pre, s_cur)
            worse = np.abs(f_blk) < np.abs(f_cur)
            pre, cur, blk = np.where(worse, cur, pre), np.where(worse, blk, cur), np.where(worse, cur, blk)  # fmt: skip
            f_pre, f_cur, f_blk = np.where(worse, f_cur, f_pre), np.where(worse, f_blk, f_cur), np.where(worse, f_cur, f_blk)  # fmt: skip
            delta = (xtol + rtol * np.abs(cur)) / 2
            half = (blk - cur) / 2
            done = (f_cur == 0) | (np.abs(half) < delta)
            secant = -f_cur * (cur - pre) / _divisor(f_cur - f_pre)
            d_pre = (f_pre - f_cur) / _divisor(pre - cur)
            d_blk = (f_blk - f_cur) / _divisor(blk - cur)
            if hyperbolic:
                tried = -f_cur * (f_blk - f_pre) / _divisor(f_blk * d_pre - f_pre * d_blk)
            else:
                tried = -f_cur * (f_blk * d_blk - f_pre * d_pre) / _divisor(d_blk * d_pre * (f_blk - f_pre))  # fmt: skip
            tried = np.where(pre == blk, secant, tried)
            short = 2 * np.abs(tried) < np.minimum(np.abs(s_pre), 3 * np.abs(half) - delta)
            taken = (np.abs(s_pre) > delta) & (np.abs(f_cur) < np.abs(f_pre)) & short
            s_pre, s_cur = np.where(taken, s_cur, half), np.where(taken, tried, half)
            least = np.where(half > 0, delta, -delta)
            new = np.where(done, cur, cur + np.where(np.abs(s_cur) > delta, s_cur, least))
            value = self._values(new)
            return (
                cur, np.where(done, 0.0, left), count + 1,
                cur, f_cur, new, value, blk, f_blk, s_pre, s_cur,
            )  # fmt: skip

        nothing = 0.0 * a
        begin = (a, nothing + 1, np.int64(0), a, low, b, high, nothing, nothing, nothing, nothing)
        x, left, *_ = self._while(_goes_on(maxiter), step, begin)
        return x, left

    def _ridder(self, a: Any, b: Any, low: Any, high: Any, xtol: Any, rtol: Any, maxiter: Any) -> Any:  # fmt: skip
        """Ridder's method: the secant of f times an exponential that makes the middle lie on it."""

        def step(carry: Any) -> Any:
            """One of Ridder's steps: f in the middle and at the new point, which becomes an end."""
            _, left, count, a, low, b, high, tol = carry
            half = 0.5 * (b - a)
            middle = a + half
            value = self._values(middle)
            away = np.sign(high - low) * half * value / _divisor(np.sqrt(value * value - low * high))  # fmt: skip
            x = middle - np.sign(away) * np.minimum(np.abs(away), np.abs(half) - 0.5 * tol)
            there = self._values(x)
            both = np.signbit(there) != np.signbit(value)
            upper = ~both & (np.signbit(there) != np.signbit(low))
            b_next = np.where(both, middle, np.where(upper, x, b))
            high = np.where(both, value, np.where(upper, there, high))
            a, low = np.where(upper, a, x), np.where(upper, low, there)
            tol = xtol + rtol * np.abs(x)
            done = (there == 0) | (np.abs(b_next - a) < tol)
            return x, np.where(done, 0.0, left), count + 1, a, low, b_next, high, tol

        tol = xtol + rtol * np.minimum(np.abs(a), np.abs(b))
        begin = (a, 0.0 * a + 1, np.int64(0), a, low, b, high, tol)
        x, left, *_ = self._while(_goes_on(maxiter), step, begin)
        return x, left

    def _bisect(self, a: Any, b: Any, low: Any, high: Any, xtol: Any, rtol: Any, maxiter: Any) -> Any:  # fmt: skip
        def step(carry: Any) -> Any:
            _, left, count, a, half = carry
            half = 0.5 * half
            x = a + half
            value = self._values(x)
            done = (value == 0) | (np.abs(half) < xtol + rtol * np.abs(x))
            a = np.where(np.signbit(value) == np.signbit(low), x, a)
            return x, np.where(done, 0.0, left), count + 1, a, half

        begin = (a, 0.0 * a + 1, np.int64(0), a, b - a)
        x, left, *_ = self._while(_goes_on(maxiter), step, begin)
        return x, left

    # ------------------------------------------------------------------------------------------------ what they share

    def _recorded(self, x: Any) -> Any:
        return joined(self.f(self.space.split(x), *self.args))

    def _values(self, x: Any) -> Any:
        values = value_of(self._recorded(wrap(x)))
        if np.shape(values) != np.shape(x):
            raise ValueError(
                f"{self.what} was given a function that returned {np.size(values)} numbers for {np.size(x)} unknowns: return as many."
            )
        return values

    def _given(self, slope: Any) -> Vector | None:
        """The user's derivative as a function of the vector."""
        return slope and (lambda x: value_of(joined(slope(self.space.split(wrap(x)), *self.args))))

    def _while(self, goes_on: Any, step: Any, begin: Any) -> Any:
        done = looped(
            self.what, (self.f,), lambda carry, _: (step(tuple(map(value_of, carry))), None), begin, None, None, test=goes_on
        )  # fmt: skip
        if done is None:
            raise NoLoop
        return tuple(map(value_of, done[0]))

    def _found(self, x: Any, failed: bool, maxiter: Any) -> Any:
        if failed:
            raise RuntimeError(
                f"{self.what} failed to converge in {maxiter} iterations of a compiled program."
            )
        return self.space.split(solution(self._recorded, x, self.what, [self.f]))


_METHODS = {
    "brentq": TracedRoot._brent, "brenth": functools.partial(TracedRoot._brent, hyperbolic=True),
    "ridder": TracedRoot._ridder, "bisect": TracedRoot._bisect,
}  # fmt: skip


def _goes_on(maxiter: Any) -> Callable[[Any], Any]:
    return lambda carry: np.any(carry[1] > 0) & (carry[2] < maxiter)


def _of_entries(f: Vector) -> Vector:
    """The derivatives of a function of entries, on plain values."""

    def slope(x: Any) -> Any:
        (node,), found = pulled(f, (x,), np.ones(np.shape(x)))
        return found.get(node, 0.0 * x)

    return slope


def _divisor(x: Any) -> Any:
    """x, or 1 where it is 0 and the quotient is not used."""
    return np.where(x == 0, 1.0, x)


__all__ = ["BETWEEN", "NEAR", "TracedRoot"]
