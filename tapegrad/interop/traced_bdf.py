"""BDF in a function that `tg.compile` traces: one loop of the program, with the steps that SciPy's BDF takes.

Algorithm: SciPy's (Shampine & Reichelt, "The MATLAB ODE Suite", SIAM J. Sci. Comput. 18, 1997): formulas of orders 1 to 5 on differences of
the last states. A turn of the outer loop is a part of a step, from one of the times that are asked for, or from the step's beginning, to
the next, or to its end; a turn of the inner loop is an attempt at a step. Both compute on plain values. The derivative of a part is that of
Radau's method along the step's polynomial, as of BDF outside of programs (stepping.py, `InterpolatedSteps`).

Data: differences D (8, n), of which those up to the order count; the order is a number of the loop, so sums over orders have masks.

Invariant: which steps are taken, and when Jacobians and inverses are made anew, is as in SciPy; values differ by rounding.
What is not optimal: matrices are dense, and inverses stand for LU factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import value_of
from .stepping import collocation
from .traced_radau import ATTEMPTS, StiffSolver, collocated
from .traced_steps import MOST, norm, plain, shortest

HIGHEST = 5
"""The highest order."""

_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.append(0.0, np.cumsum(1 / np.arange(1, HIGHEST + 1)))
_ALPHA = (1 - _KAPPA) * _GAMMA
_ERRORS = _KAPPA * _GAMMA + 1 / np.arange(1, HIGHEST + 2)
_ORDERS = np.arange(HIGHEST + 1.0)
_ROWS = np.arange(HIGHEST + 3.0)[:, None]
_ZERO, _ONE, _NONE = np.float64(0), np.float64(1), np.int64(0)
_COUNTED = np.eye(3)
"""Rows of 1 for an evaluation of the equations, a Jacobian, an inverse."""


class TracedBDF(StiffSolver):
    """`TracedSolver` for BDF."""

    def _loop(self, when: Any) -> Any:
        """Solutions at the times `when`, one row each."""
        way, f, start, size = self.way, self.equations, self.start, np.shape(self.start)[0]
        begin, end = self.begin * 1.0, self.end * 1.0
        column, table = np.reshape(when, (-1, 1)), collocation(3)
        asked = np.append(when, end)
        with no_grad():
            _, slope, h, slopes = self._begun(begin, plain(start), 1)

        def part(carry: Any, _: Any) -> Any:
            """The last part of a step as a function of what is tracked, its rows, and the next part."""
            y, rows, (before, length, reached, rises), now, D, h, order, *state, good, counts, taken, seen = carry  # fmt: skip
            y, rows = filled(y, rows, before, length, reached, rises)
            with no_grad():
                due = np.where(reached == now, 1.0, 0.0)
                now, D, h, order, *state, good, more = self._next(due, now, D, h, order, state)

                def at(t: Any) -> Any:
                    return _polynomial(np.reshape(t, (1,)), now, D, way * h, order)[0]

                seen = self._watched(seen, (due > 0) & (good > 0), reached, now, D[0], at)
                ahead = np.where(way * (asked - reached) > 0, way * asked, np.inf)
                stop = way * np.minimum(np.min(ahead), way * now)
                places = reached + (stop - reached) * table.c
                between = _polynomial(places, now, D, way * h, order) - plain(y)
                following = reached, stop - reached, stop, between
            return (y, rows, following, now, D, h, order, *state, good, counts + more, taken + 1, seen), None  # fmt: skip

        def filled(y: Any, rows: Any, before: Any, length: Any, reached: Any, rises: Any) -> Any:
            """The state after a part, and the rows with those at its end."""
            before, length, reached = plain(before), plain(length), plain(reached)
            rises = collocated(f, table.a, y, before, length, value_of(rises), self.mass)
            y = y + rises[2]
            return y, np.where(column == reached, y, rows)

        def goes_on(carry: Any) -> Any:
            (_, _, reached, _), good, taken, seen = carry[2], carry[-4], carry[-2], carry[-1]
            return self._unfinished(reached, seen) & (taken < MOST) & (good > 0)

        rows = np.where(way * (column - begin) <= 0, start, np.zeros((np.shape(when)[0], size)))
        nothing = (begin, 0.0 * begin, begin, np.zeros((3, size)))
        D = np.concatenate(
            [np.stack([plain(start), slope * h * way]), np.zeros((HIGHEST + 1, size))]
        )
        state = slopes, np.zeros((size, size)), _ZERO, _ZERO
        done, _ = self._looped(
            part,
            (
                start,
                rows,
                nothing,
                begin,
                D,
                h,
                _ONE,
                *state,
                _ONE,
                np.array([1.0, 1.0, 0.0]),
                _NONE,
                self._begin_watching(),
            ),
            goes_on,
        )
        y, rows, last, *_, counts, _, self._seen = done
        self._demand_arrived(last[2])
        if self.first_step is None and self.mass is None:
            counts = counts + _COUNTED[0]
        self.counts = (counts[0], counts[1], counts[2])
        return filled(y, rows, *last)[1]

    def _next(self, due: Any, now: Any, D: Any, h: Any, order: Any, state: Sequence[Any]) -> Any:
        """The next accepted step, if it is due: its end, the differences, length, order and state behind it, and whether there is one."""
        slopes, inverse, made, equal = state
        least = shortest(now)
        wrong = (h > self.max_step) | (h < least)
        first = np.minimum(np.maximum(h, least), self.max_step)
        D = np.where((due > 0) & wrong, _rescaled(D, order, first / h), D)
        equal = np.where((due > 0) & wrong, 0.0, equal)
        h = np.where(due > 0, first, h)
        weights = np.where(_ORDERS <= order, _GAMMA, 0.0)[1:] / _at(_ALPHA, order)

        def attempt(carry: Any) -> Any:
            """One attempt at a step of length h, and the length of the next one."""
            _, h, D, reached, slopes, inverse, made, equal, current, asked, *_, counts, tries = (
                carry
            )
            aim = now + self.way * h
            over = (self.way * (aim - self.end) > 0) & (asked == 0)
            reached = np.where(asked > 0, reached, np.where(over, self.end, aim))
            given = reached - now
            D = np.where(over, _rescaled(D, order, np.abs(given) / h), D)
            equal, made = np.where(over, 0.0, equal), np.where(over, 0.0, made)
            h = np.abs(given)
            predicted = np.sum(np.where(_ROWS <= order, D, 0.0), axis=0)
            slopes = self._anew(asked, reached, predicted, slopes)
            current = np.maximum(current, asked)
            c = given / _at(_ALPHA, order)
            counts = counts + asked * _COUNTED[1] + (1 - made) * _COUNTED[2]
            inverse = self._inverse(made, c, slopes, inverse)
            psi = np.matmul(weights, D[1 : HIGHEST + 1])
            scale = self.atol + self.rtol * np.abs(predicted)
            converged, count, d = self._newton(reached, predicted, c, psi, scale, inverse)
            safety = 0.9 * 9 / (8 + count)
            scale = self.atol + self.rtol * np.abs(predicted + d)
            size = norm(_at(_ERRORS, order) * d / scale)
            accepted, refused = (converged > 0) & ~(size > 1), (converged > 0) & (size > 1)
            stale = (converged == 0) & (current == 0)
            wanted = safety * np.where(size > 0, size, 1.0) ** (-1 / (order + 1))
            factor = np.where(refused, np.maximum(0.2, wanted), 0.5)
            shrinks = ~accepted & ~stale
            return (
                np.where(accepted, 1.0, 0.0),
                np.where(shrinks, h * factor, h),
                np.where(shrinks, _rescaled(D, order, factor), D),
                reached, slopes, inverse,
                np.where(accepted | refused, 1.0, 0.0),
                np.where(shrinks, 0.0, equal),
                current,
                np.where(stale, 1.0, 0.0),
                d, size, safety, scale,
                counts + count * _COUNTED[0],
                tries + 1,
            )  # fmt: skip

        def tries_on(carry: Any) -> Any:
            return (due > 0) & (carry[0] == 0) & (carry[1] >= least) & (carry[-1] < ATTEMPTS)

        flat = np.zeros_like(D[0])
        begin = (
            _ZERO, h, D, now, slopes, inverse, made, equal, _ZERO, _ZERO, flat, 0.0 * now, _ONE, flat,
            np.zeros(3), _NONE,
        )  # fmt: skip
        done = self._while(tries_on, attempt, begin)
        found, h, D, reached, slopes, inverse, made, equal, *_, d, size, safety, scale, counts, _ = done  # fmt: skip
        good = np.where(due > 0, found, 1.0)
        stepped = found > 0
        D = np.where(stepped, _differences(D, order, d), D)
        equal = np.where(stepped, equal + 1, equal)
        changes = stepped & ~(equal < order + 1)
        next_order, factor = _better(D, order, size, safety, scale)
        D = np.where(changes, _rescaled(D, next_order, factor), D)
        return (
            np.where(stepped, reached, now), D, np.where(changes, h * factor, h),
            np.where(changes, next_order, order), slopes, inverse,
            np.where(changes, 0.0, made), np.where(changes, 0.0, equal), good, counts,
        )  # fmt: skip

    def _inverse(self, made: Any, c: Any, slopes: Any, inverse: Any) -> Any:
        """The inverse of 1 − c J, or of M − c J; a new one if it is not `made`."""
        one = np.eye(np.shape(slopes)[0])

        def new(carry: Any) -> Any:
            made, c, slopes, _ = carry
            # M may be singular, and while the loop is traced a step may have no length.
            unit = one if self.mass is None else np.where(c == 0, one, self.mass)
            return 1.0 + made, c, slopes, np.linalg.inv(unit - c * slopes)

        return self._while(lambda carry: carry[0] == 0, new, (made, c, slopes, inverse))[3]

    def _newton(
        self, t: Any, predicted: Any, c: Any, psi: Any, scale: Any, inverse: Any
    ) -> tuple[Any, Any, Any]:
        """Whether simplified Newton's method converges, its iterations, and by how much the state is not the predicted one."""
        most = 4
        tolerance = np.maximum(
            10 * np.finfo(float).eps / self.rtol, np.minimum(0.03, self.rtol**0.5)
        )

        def iteration(carry: Any) -> Any:
            """One correction of the state, and how much smaller it is than the one before."""
            _, k, d, old, _ = carry
            slope = plain(self.equations(t, predicted + d))
            moved = np.matmul(inverse, c * slope - self.weighed(psi + d))
            length = norm(moved / scale)
            rate = length / old
            fails = (rate >= 1) | (rate ** (most - k) / (1 - rate) * length > tolerance)
            stops = ~np.all(np.isfinite(slope)) | fails
            converged = ~stops & ((length == 0) | (rate / (1 - rate) * length < tolerance))
            return (
                np.where(stops | converged, 0.0, 1.0),
                k + 1,
                np.where(stops, d, d + moved),
                length,
                np.where(converged, 1.0, 0.0),
            )

        begin = (_ONE, _NONE, 0.0 * predicted, np.nan * c, _ZERO)
        _, count, d, _, converged = self._while(
            lambda carry: (carry[0] > 0) & (carry[1] < most), iteration, begin
        )
        return converged, count, d


def _at(table: np.ndarray, order: Any) -> Any:
    """A coefficient of the formula of an order; 0 where there is none."""
    return np.sum(np.where(np.arange(float(len(table))) == order, table, 0.0))


def _rescaled(D: Any, order: Any, factor: Any) -> Any:
    """Differences for steps `factor` times as long (SciPy's `change_D`)."""
    used = _ORDERS <= order
    new, old = (np.stack(_products(by)) for by in (factor, 1.0))
    moved = np.matmul(np.where(used, new, 0.0), old)
    top = np.matmul(np.transpose(moved), np.where(used[:, None], D[: HIGHEST + 1], 0.0))
    return np.concatenate([np.where(used[:, None], top, D[: HIGHEST + 1]), D[HIGHEST + 1 :]])


def _products(by: Any) -> list[Any]:
    """Rows of SciPy's `compute_R`."""
    rows = [np.ones(HIGHEST + 1)]
    for i in range(1, HIGHEST + 1):
        rows.append(rows[-1] * (i - 1 - by * _ORDERS) / i)
    return rows


def _differences(D: Any, order: Any, d: Any) -> Any:
    """The differences behind a step whose state is `d` away from the predicted one."""
    last = np.sum(np.where(_ROWS == order + 1, D, 0.0), axis=0)
    total, rows = d, []
    for i in reversed(range(HIGHEST + 1)):
        total = np.where(i <= order, D[i] + total, total)
        rows.append(total)
    summed = np.concatenate([np.stack(rows[::-1]), D[HIGHEST + 1 :]])
    higher = np.where(_ROWS == order + 1, d, np.where(_ROWS == order + 2, d - last, D))
    return np.where(_ROWS <= order, summed, higher)


def _better(D: Any, order: Any, size: Any, safety: Any, scale: Any) -> tuple[Any, Any]:
    """The order that allows the longest next step, and how many times as long it is."""

    def factor(by: int) -> Any:
        """The factor of the order `by` away, before safety."""
        if by:
            row = np.sum(np.where(_ROWS == (order if by < 0 else order + 2), D, 0.0), axis=0)
            found = norm(_at(_ERRORS, order + by) * row / scale)
        else:
            found = size
        grown = np.where(found > 0, found, 1.0) ** (-1 / (order + 1 + by))
        return np.where(found > 0, grown, np.inf)

    lower = np.where(order > 1, factor(-1), 0.0)
    same, higher = factor(0), np.where(order < HIGHEST, factor(1), 0.0)
    change = np.where((lower >= same) & (lower >= higher), -1.0, np.where(same >= higher, 0.0, 1.0))
    most = np.maximum(np.maximum(lower, same), higher)
    return order + change, np.minimum(10.0, safety * most)


def _polynomial(times: Any, now: Any, D: Any, h: Any, order: Any) -> Any:
    """States (times, n) at some times of the step that ended `now`."""
    product, weights = 1.0, []
    for j in range(HIGHEST):
        product = product * (times - (now - h * j)) / (h * (1 + j))
        weights.append(np.where(j < order, product, 0.0))
    return D[0] + np.matmul(np.stack(weights, 1), D[1 : HIGHEST + 1])


__all__ = ["TracedBDF"]
