"""The steps that SciPy's solvers of differential equations accepted, and how they change with where they begin and with the equations.

A method is a class of SciPy's, of which `recorder` makes one that keeps its accepted steps. What was kept is a `Steps`: times, states,
the points at which the equations were asked (*stages*, the columns of `points`), and three things that follow from them:

- `march` takes the same steps again, with operations that are recorded: any order of derivative, any mode;
- `push` carries tangents of the beginning, and of the slopes at all stages, to the rows that are asked for;
- `pull` carries cotangents of the rows to the beginning and to the slopes at all stages.

All are those of Runge-Kutta methods; derivatives of BDF's and LSODA's steps are those of Radau's method along the solution.

`push` and `pull` are given the Jacobian of the equations at each stage. All steps are linearised at once, by operations on stacks of
matrices, and only a product with a matrix for each step is left to be done one after the other (Hairer, Nørsett, Wanner, Solving
Ordinary Differential Equations I, II.6, on the derivatives of the steps taken; II, IV.8, on Radau).

A *row* is the solution at one time: a step, and weights of the slopes of that step.

Invariant: times, lengths and orders of steps are constants. Rows are linear in what is pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..core.closures import lent
from .implicit import solution

Equations = Callable[[Any, Any], Any]
"""A time and a vector in, the slope of the vector out."""


@lru_cache(64)
def recorder(method: type) -> type:
    """A class like SciPy's `method`, whose solver appends itself to its option `log`, and its accepted steps to its own `log`."""

    class Recorder(method):  # type: ignore[misc]
        def __init__(self, *args: Any, log: list[Any], **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.log: list[Any] = []
            self.beginning = (self.t, np.array(self.y))
            log.append(self)

        def _step_impl(self) -> Any:
            before = self.t
            success, message = super()._step_impl()
            if success:
                self.log.append(_kept(self, before))
            return success, message

        def _dense_output_impl(self) -> Any:
            made = super()._dense_output_impl()
            if hasattr(self, "K_extended"):  # its further slopes are there from now on
                self.log[-1] = (*self.log[-1][:2], self.K_extended.copy(), True)
            return made

    Recorder.__name__ = method.__name__
    return Recorder


def _kept(solver: Any, before: float) -> Any:
    """What is known of the step just accepted, which began at the time `before`."""
    if hasattr(solver, "K"):
        return solver.t, np.array(solver.y), solver.K.copy(), False
    if hasattr(solver, "Z"):
        return solver.t, np.array(solver.y), solver.Z.copy()
    solver.t_old = before
    return solver.t, np.array(solver.y), type(solver).__mro__[1]._dense_output_impl(solver)


def steps_of(solver: Any) -> Steps:
    """The steps of a solver that a `recorder` made; those of BDF and LSODA say by `through(times)` which ones have derivatives."""
    from scipy.integrate import BDF, LSODA

    found = (
        InterpolatedSteps(solver) if isinstance(solver, BDF | LSODA) else RungeKuttaSteps(solver)
    )
    vars(
        solver
    ).clear()  # it refers to itself, and would keep its log until the cyclic collector comes
    return found


def is_known(method: type) -> bool:
    """Whether steps of a method of SciPy's can be taken again."""
    from scipy.integrate import BDF, DOP853, LSODA, Radau
    from scipy.integrate._ivp.rk import RungeKutta

    if issubclass(method, RungeKutta) and not issubclass(method, DOP853):
        return np.ndim(method.P) == 2
    return issubclass(method, BDF | DOP853 | LSODA | Radau)


def lent_to(method: type, *functions: Any) -> AbstractContextManager[list[Any]]:
    """Stand-ins of functions for solvers of a method (see `lent`); themselves where its interpolants may call them later."""
    return lent(*functions) if is_known(method) else nullcontext(list(functions))


class Steps:
    """See the module; what all methods have in common: times, states, and where a row lies."""

    t: np.ndarray
    """Ends of the steps, the beginning first."""
    y: np.ndarray
    """The state at each of them."""
    table: Tableau
    """The Runge-Kutta method whose derivatives they have."""
    mass: Any = None
    """Of M dy/dt = f(t, y) the matrix, a `Mass`; None for 1. Slopes are dy/dt in any case."""

    def __init__(self, solver: Any) -> None:
        first, start = solver.beginning
        self.t = np.array([first, *(entry[0] for entry in solver.log)])
        self.y = np.array([start, *(entry[1] for entry in solver.log)])
        self.h = np.diff(self.t)
        self.count = len(self.h)
        self.way = float(solver.direction)

    def places(self, times: np.ndarray) -> np.ndarray:
        """The step that each time lies in; its end belongs to a step, as in SciPy."""
        found = np.searchsorted(self.way * self.t, self.way * times, side="left") - 1
        return np.clip(found, 0, max(self.count - 1, 0))


# ------------------------------------------------------------------------------------------------------------ Runge-Kutta


class Tableau:
    """Coefficients of a Runge-Kutta method: slope i is taken at the time c[i], at y + h Σ a[i, j] slope[j]."""

    def __init__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, weights: Any, implicit: bool = False) -> None:  # fmt: skip
        self.a, self.b, self.c, self.weights, self.implicit = a, b, c, weights, implicit


@cache
def tableau(method: type) -> Tableau:
    """The coefficients of one of SciPy's methods, all its slopes included; `weights(x)` are the interpolant's at a part x of a step."""
    from scipy.integrate import DOP853, Radau
    from scipy.integrate._ivp import dop853_coefficients as dop
    from scipy.integrate._ivp import radau, rk

    if issubclass(method, Radau):
        table = collocation(3)
        weights = radau.P.T @ table.a
        return Tableau(
            table.a, table.b, table.c, lambda x: np.stack([x, x**2, x**3], -1) @ weights, True
        )
    if issubclass(method, DOP853):
        count, last = dop.N_STAGES_EXTENDED, dop.N_STAGES
        a, b = np.array(dop.A), np.zeros(count)
        b[:last] = dop.B
        a[last, :last] = dop.B
        one = np.eye(count)
        basis = np.array([b, one[0] - b, 2 * b - one[last] - one[0], *dop.D])
        zeros = np.zeros(count)
        return Tableau(
            a, b, np.array(dop.C), lambda x: rk.Dop853DenseOutput(0.0, 1.0, zeros, basis)(x).T
        )
    s = method.n_stages  # type: ignore[attr-defined]
    a = np.zeros((s + 1, s + 1))
    a[:s, : method.A.shape[1]] = method.A  # type: ignore[attr-defined]
    a[s, :s] = method.B  # type: ignore[attr-defined]
    powers = np.arange(1, method.P.shape[1] + 1)  # type: ignore[attr-defined]
    return Tableau(
        a,
        np.append(method.B, 0.0),  # type: ignore[attr-defined]
        np.append(method.C, 1.0),  # type: ignore[attr-defined]
        lambda x: np.asarray(x)[:, None] ** powers @ method.P.T,  # type: ignore[attr-defined]
    )


@cache
def collocation(stages: int) -> Tableau:
    """Radau's method (IIA) with so many stages, of the order 2 stages - 1: its places are the end, and roots of a Jacobi polynomial."""
    from scipy.special import roots_jacobi

    c = np.append((1 + roots_jacobi(stages - 1, 1, 0)[0]) / 2, 1.0)
    powers = np.arange(stages)
    # Integrals from 0 to c of the polynomials that are 1 at one of the places and 0 at the others.
    integrals = c[:, None] ** (powers + 1) / (powers + 1)
    a = np.linalg.solve((c[:, None] ** powers).T, integrals.T).T
    return Tableau(a, a[-1], c, None, True)


class RungeKuttaSteps(Steps):
    """Steps of an explicit method or of Radau: slopes K, states y + h Σ b[i] K[i]."""

    def __init__(self, solver: Any) -> None:
        super().__init__(solver)
        table = tableau(type(solver).__mro__[1])
        self._set(table, self.t, self.way)
        s = self.stages
        self.slopes = np.zeros((self.count, s, self.y.shape[1]), self.y.dtype)
        inverse = np.linalg.inv(table.a) if table.implicit else None
        for k, entry in enumerate(solver.log):
            if inverse is not None:
                self.slopes[k] = inverse @ entry[2] / self.h[k]
            else:
                self.slopes[k, : len(entry[2])] = entry[2]
                self.whole[k] = len(entry[2]) == s

    def _set(self, table: Tableau, t: np.ndarray, way: float) -> None:
        self.table, self.stages = table, len(table.b)
        self.t, self.h, self.way, self.count = t, np.diff(t), way, len(t) - 1
        self.whole = np.ones(self.count, bool)
        """Steps whose slopes are all known: those for the interpolant alone are there only if it was asked for."""
        self.base = self.stages if table.implicit else int(np.flatnonzero(table.b)[-1]) + 1
        """Slopes that lead to the next state; the others are for rows between."""

    def weights(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The step of each time, and the weights of its slopes."""
        where = self.places(times)
        if not self.count:
            return where, np.zeros((len(times), self.stages))
        x = (times - self.t[where]) / self.h[where]
        return where, self.table.weights(x) if len(times) else np.zeros((0, self.stages))

    def row_values(self, where: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The rows, as SciPy found them."""
        if not weights.any():
            return self.y[where]
        rise = np.einsum("rs,rsn->rn", weights, self.slopes[where])
        return self.y[where] + self.h[where, None] * rise

    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Time and place of each stage, as columns, and the slope that was found there (None where it holds to the tolerance only)."""
        table, h = self.table, self.h[:, None]
        times = self.t[:-1, None] + h * table.c
        places = self.y[:-1, None] + h[:, :, None] * np.einsum("ij,kjn->kin", table.a, self.slopes)
        slopes = self.slopes
        if (
            not self.whole.all()
        ):  # slopes that nobody took: those at the beginning of the step stand for them
            known = self.table.c.size - 3
            some = ~self.whole
            times[some, known:], places[some, known:] = (
                self.t[:-1][some, None],
                self.y[:-1][some, None],
            )
            slopes = slopes.copy()
            slopes[some, known:] = slopes[some, :1]
        columns = [x.reshape(-1, x.shape[-1]).T for x in (places, slopes)]
        return times.reshape(-1), columns[0], None if table.implicit else columns[1]

    def march(self, f: Equations, y: Any, where: np.ndarray, weights: np.ndarray) -> Any:
        """The rows, by the same steps with operations that are recorded."""
        if not len(where):
            return np.zeros((0, self.y.shape[1]), self.y.dtype)
        table, last = self.table, int(where.max())
        # Whether the slope at the end of a step is one of its own, as well as the first of the next step.
        shared = len(table.b) > self.base and np.array_equal(table.a[self.base], table.b)
        rows: list[Any] = [None] * len(where)
        first = None
        for k in range(last + 1):
            mine = np.flatnonzero(where == k)
            used = np.flatnonzero(weights[mine].any(axis=0))
            most = max(int(used[-1]) + 1 if len(used) else 0, self.base if k < last else 0)
            slopes: list[Any] = []
            if most:
                slopes = (
                    self._implicit(f, y, k)
                    if table.implicit
                    else self._explicit(f, y, k, most, first)
                )
            for r in mine:
                rows[r] = self._combined(y, self.h[k] * weights[r], slopes) if len(used) else y
            if k < last:
                y = self._combined(y, self.h[k] * table.b, slopes)
                first = slopes[self.base] if shared and len(slopes) > self.base else None
        return np.stack(rows)

    def _combined(self, y: Any, weights: np.ndarray, slopes: Sequence[Any]) -> Any:
        used = [i for i in range(len(slopes)) if weights[i]]
        if not used:
            return y
        return y + np.matmul(weights[used], np.stack([slopes[i] for i in used]))

    def _explicit(self, f: Equations, y: Any, k: int, most: int, first: Any) -> list[Any]:
        t, h, table = float(self.t[k]), float(self.h[k]), self.table
        slopes: list[Any] = []
        for i in range(most):
            if i == 0 and first is not None:
                slopes.append(first)
                continue
            place = self._combined(y, h * table.a[i], slopes)
            slopes.append(f(t + float(table.c[i]) * h, place))
        return slopes

    def _implicit(self, f: Equations, y: Any, k: int) -> list[Any]:
        """The slopes at the stages of step `k` from `y`, which solve the step's equations."""
        t, h, table = float(self.t[k]), float(self.h[k]), self.table
        s, n = self.stages, self.y.shape[1]

        def equations(z: Any) -> Any:
            rises = np.reshape(z, (s, n))
            slopes = [f(t + float(table.c[i]) * h, y + rises[i]) for i in range(s)]
            if self.mass is not None:
                z = np.reshape(np.transpose(self.mass.times(np.transpose(rises))), (-1,))
            return z - np.reshape(h * np.matmul(table.a, np.stack(slopes)), (-1,))

        start = (h * table.a @ self.slopes[k]).reshape(-1)
        rises = np.reshape(solution(equations, start, "solve_ivp"), (s, n))
        slopes = np.matmul(np.linalg.inv(table.a) / h, rises)
        return [slopes[i] for i in range(s)]

    def linearised(self, jacobians: np.ndarray) -> LinearRungeKutta:
        return LinearRungeKutta(self, jacobians)


class LinearRungeKutta:
    """Runge-Kutta steps and the Jacobians at their stages: `responses[k, i]` is the slope's derivative by the state before."""

    def __init__(self, steps: RungeKuttaSteps, jacobians: np.ndarray) -> None:
        n = steps.y.shape[1]
        self.steps = steps
        self.jacobians = jacobians.reshape(steps.count, steps.stages, n, n)
        self.systems: Any = None
        if steps.table.implicit:
            s = steps.stages
            coupled = np.einsum("k,ij,kiab->kiajb", steps.h, steps.table.a, self.jacobians)
            mass = np.eye(n) if steps.mass is None else steps.mass.dense
            self.systems = np.kron(np.eye(s), mass) - coupled.reshape(steps.count, s * n, s * n)
        self.responses = self._slopes(self.jacobians)
        rise = np.einsum("i,kiab->kab", steps.table.b, self.responses)
        self.factors = np.eye(n) + steps.h[:, None, None] * rise

    def _slopes(self, forcing: np.ndarray) -> np.ndarray:
        """Tangents of the slopes from what forces them (steps, stages, n, directions), the state before being held."""
        steps, a = self.steps, self.steps.table.a
        if self.systems is not None:
            flat = forcing.reshape(steps.count, -1, forcing.shape[-1])
            return np.linalg.solve(self.systems, flat).reshape(forcing.shape)
        found = forcing.copy()
        for i in range(1, steps.stages):
            if a[i, :i].any():
                moved = np.einsum("j,kjnw->knw", a[i, :i], found[:, :i]) * steps.h[:, None, None]
                found[:, i] += self.jacobians[:, i] @ moved
        return found

    def push(
        self, start: np.ndarray, forcing: np.ndarray, where: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """Tangents of the rows (rows, n, directions), from those of the beginning and (stages as columns, n, directions) of the slopes."""
        steps = self.steps
        forced = self._slopes(forcing.reshape(steps.count, steps.stages, *forcing.shape[1:]))
        rises = steps.h[:, None, None] * np.einsum("i,kinw->knw", steps.table.b, forced)
        states = np.empty((steps.count + 1, *start.shape))
        states[0] = now = start
        for k in range(steps.count):
            states[k + 1] = now = self.factors[k] @ now + rises[k]
        if not weights.any():
            return states[where]
        between = self.responses[where] @ states[where][:, None] + forced[where]
        return states[where] + steps.h[where, None, None] * np.einsum(
            "ri,rinw->rnw", weights, between
        )

    def pull(
        self, g: np.ndarray, where: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cotangents of the beginning and (stages as columns, n) of the slopes, from those of the rows (rows, n)."""
        steps, n = self.steps, self.steps.y.shape[1]
        ends = np.zeros((steps.count + 1, n))
        np.add.at(ends, where, g)
        if not steps.count:
            return ends[0], np.zeros((0, n))
        slopes = np.zeros((steps.count, steps.stages, n))
        if weights.any():
            np.add.at(slopes, where, np.einsum("r,ri,rn->rin", steps.h[where], weights, g))
        ends[:-1] += np.einsum("kiab,kia->kb", self.responses, slopes)
        now = ends[-1]
        after = np.empty((steps.count, n))
        for k in range(steps.count - 1, -1, -1):
            after[k] = now
            now = ends[k] + now @ self.factors[k]
        slopes += np.einsum("k,i,kn->kin", steps.h, steps.table.b, after)
        if self.systems is not None:
            flat = slopes.reshape(steps.count, -1, 1)
            slopes = np.linalg.solve(np.swapaxes(self.systems, 1, 2), flat).reshape(slopes.shape)
            return now, slopes.reshape(-1, n)
        a = steps.table.a
        for i in range(steps.stages - 1, 0, -1):
            if a[i, :i].any():
                back = np.einsum("kab,ka->kb", self.jacobians[:, i], slopes[:, i])
                slopes[:, :i] += np.einsum("k,j,kn->kjn", steps.h, a[i, :i], back)
        return now, slopes.reshape(-1, n)


class SparseRadau:
    """Steps of Radau's method and sparse Jacobians at their stages: each step's system is factorised when something passes it.

    `pattern` is where these Jacobians are not zero, by rows; `entries` are on it (entries, stages as columns).
    """

    def __init__(self, steps: RungeKuttaSteps, pattern: Any, entries: np.ndarray) -> None:
        """Lay out the linear systems of all steps on one pattern, whose entries are those of the stages' Jacobians."""
        from scipy.sparse import coo_array, csr_array, eye_array

        self.steps, self.pattern = steps, pattern
        self.entries = entries.T.reshape(steps.count, steps.stages, -1)
        n, s = pattern.shape[0], steps.stages
        rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
        mass = coo_array(eye_array(n) if steps.mass is None else csr_array(steps.mass.plain))
        # Slopes of an unknown at all stages lie side by side: the factors stay sparser.
        i, j = (x.reshape(-1, 1) for x in np.indices((s, s)))
        within = np.arange(s)[:, None]
        self.places = [
            np.concatenate([(mass.coords[a] * s + within).ravel(), (x * s + stage).ravel()])
            for a, x, stage in ((0, rows, i), (1, pattern.indices, j))
        ]
        self.fixed = np.tile(mass.data, s)

    def _jacobian(self, k: int, i: int) -> Any:
        from scipy.sparse import csr_array

        return csr_array((self.entries[k, i], self.pattern.indices, self.pattern.indptr), self.pattern.shape)  # fmt: skip

    def _solve(self, k: int, b: np.ndarray, transposed: bool) -> np.ndarray:
        """The system of a step solved for (stages, n, directions)."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        steps, s = self.steps, self.steps.stages
        coupled = steps.h[k] * steps.table.a[:, :, None] * self.entries[k][:, None]
        data = np.concatenate([self.fixed, -coupled.ravel()])
        size = s * b.shape[1]
        system = csc_array((data, tuple(self.places)), shape=(size, size))
        flat = np.transpose(b, (1, 0, 2)).reshape(size, -1)
        found = splu(system, permc_spec="MMD_AT_PLUS_A").solve(flat, "T" if transposed else "N")
        return np.transpose(found.reshape(b.shape[1], s, -1), (1, 0, 2))

    def push(
        self, start: np.ndarray, forcing: np.ndarray, where: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """As `LinearRungeKutta.push`."""
        steps = self.steps
        forced = forcing.reshape(steps.count, steps.stages, *forcing.shape[1:])
        rows = np.empty((len(where), *start.shape))
        now = start
        for k in range(steps.count + 1):
            mine = np.flatnonzero(where == k)
            rows[mine] = now
            if k == steps.count or not np.any(where >= k):
                continue
            by_state = np.stack([self._jacobian(k, i) @ now for i in range(steps.stages)])
            slopes = self._solve(k, by_state + forced[k], False)
            rows[mine] += steps.h[k] * np.einsum("ri,inw->rnw", weights[mine], slopes)
            now = now + steps.h[k] * np.einsum("i,inw->nw", steps.table.b, slopes)
        return rows

    def pull(
        self, g: np.ndarray, where: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `LinearRungeKutta.pull`."""
        steps = self.steps
        n = g.shape[1]
        slopes = np.zeros((steps.count, steps.stages, n))
        now = g[where == steps.count].sum(axis=0)
        for k in range(min(steps.count, int(where.max(initial=-1)) + 1) - 1, -1, -1):
            mine = where == k
            given = np.multiply.outer(steps.table.b, now) + weights[mine].T @ g[mine]
            slopes[k] = self._solve(k, steps.h[k] * given[:, :, None], True)[:, :, 0]
            now = now + g[mine].sum(axis=0)
            for i in range(steps.stages):
                now = now + self._jacobian(k, i).T @ slopes[k, i]
        return now, slopes.reshape(-1, n)


def moved(equations: Any, y: Any, t: float, length: Any) -> Any:
    """The state a step of `length` further, which is zero but has a derivative: one step of an explicit method of order 8."""
    from scipy.integrate import DOP853

    table = tableau(DOP853)
    slopes: list[Any] = []
    for i in range(int(np.flatnonzero(table.b)[-1]) + 1):
        used = [j for j in range(i) if table.a[i, j]]
        place = y
        if used:
            place = y + length * np.matmul(table.a[i, used], np.stack([slopes[j] for j in used]))
        slopes.append(equations(t + table.c[i] * length, place))
    used = [j for j in range(len(slopes)) if table.b[j]]
    return y + length * np.matmul(table.b[used], np.stack([slopes[j] for j in used]))


# ------------------------------------------------------------------------------------------------- BDF and LSODA


class InterpolatedSteps(Steps):
    """Steps of BDF or LSODA, whose solution is a polynomial on each. Its derivatives are those of Radau's method on the same steps.

    The derivative of BDF's own formulas, lengths and orders being held, converges slowly behind a jump of the solution (that of Van der
    Pol's equation, at tolerances of 1e-10: three digits, where Radau's method has five). Radau's method forgets stiff components, begins
    anew at each step, and has the order 5, as BDF's best formula has; of LSODA's steps, whose formulas go to order 12, it is 9.
    """

    def __init__(self, solver: Any) -> None:
        super().__init__(solver)
        from scipy.integrate import BDF

        self.pieces = [entry[2] for entry in solver.log]
        self.table = collocation(3 if isinstance(solver, BDF) else 5)

    def at(self, times: np.ndarray) -> np.ndarray:
        """States at times, as rows."""
        where = self.places(times)
        if not self.count:
            return self.y[where]
        rows = [
            self.y[0] if t == self.t[0] else self.pieces[k](t)
            for t, k in zip(times, where, strict=True)
        ]
        return np.array(rows).reshape(len(times), self.y.shape[1])

    def through(self, times: np.ndarray) -> CollocatedSteps:
        """The same steps, ended at more times."""
        return CollocatedSteps(self, times)


class CollocatedSteps(RungeKuttaSteps):
    """Steps of Radau's method along a solution that another method found; each row is the end of a step."""

    def __init__(self, found: InterpolatedSteps, times: np.ndarray) -> None:
        within = times[
            (found.way * (times - found.t[0]) > 0) & (found.way * (found.t[-1] - times) > 0)
        ]
        mesh = np.unique(np.concatenate([found.t, within])) if found.count else found.t
        self._set(found.table, mesh[:: int(found.way)], found.way)
        self.y = found.at(self.t)
        inside = (self.t[:-1, None] + self.h[:, None] * self.table.c).reshape(-1)
        self.stages_at = inside, found.at(inside).T
        self.mass = found.mass
        if self.mass is not None:
            rises = self.stages_at[1].T.reshape(self.count, self.stages, -1) - self.y[:-1, None]
            self.slopes = np.linalg.inv(self.table.a) @ rises / self.h[:, None, None]

    def keep_slopes(self, slopes: np.ndarray) -> None:
        """The equations at the stages, as columns, which are the slopes without a mass matrix: whoever makes the steps knows them."""
        if self.mass is None:
            self.slopes = slopes.T.reshape(self.count, self.stages, -1)

    def weights(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The state that is there at each time."""
        where = np.searchsorted(self.way * self.t, self.way * times)
        return np.minimum(where, self.count), np.zeros((len(times), self.stages))

    def points(self) -> tuple[np.ndarray, np.ndarray, None]:
        return *self.stages_at, None


# ------------------------------------------------------------------------------------------------------------- Tsit5


@cache
def tsit5() -> type:
    """A solver of SciPy's kind with the pair of order 5(4) of Tsitouras (2011, Computers and Mathematics with Applications 62)."""
    from scipy.integrate._ivp.rk import RungeKutta

    def polynomial(scale: float, *factors: Sequence[float]) -> np.ndarray:
        """Coefficients of x, x², x³ and x⁴ of a product."""
        whole = np.array([scale])
        for factor in factors:
            whole = np.polymul(whole, factor)
        return np.concatenate([np.zeros(5 - len(whole)), whole])[::-1][1:]

    square = (1.0, 0.0, 0.0)

    class Tsit5(RungeKutta):
        order, error_estimator_order, n_stages = 5, 4, 6
        C = np.array([0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0])
        A = np.array([
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [0.161, 0.0, 0.0, 0.0, 0.0],
            [-0.008480655492356989, 0.335480655492357, 0.0, 0.0, 0.0],
            [2.8971530571054935, -6.359448489975075, 4.3622954328695815, 0.0, 0.0],
            [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525, 0.0],
            [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
        ])  # fmt: skip
        B = np.array([
            0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774,
        ])  # fmt: skip
        E = np.array([
            -0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629, 0.5823571654525552,
            -0.45808210592918697, 0.015151515151515152,
        ])  # fmt: skip
        P = np.array([
            polynomial(-1.0530884977290216, (1.0, 0.0), (1.0, -1.3299890189751412), (1.0, -1.4364028541716351, 0.7139816917074209)),
            polynomial(0.1017, square, (1.0, -2.1966568338249754, 1.2949852507374631)),
            polynomial(2.490627285651252793, square, (1.0, -2.38535645472061657, 1.57803468208092486)),
            polynomial(-16.54810288924490272, (1.0, -1.21712927295533244), (1.0, -0.61620406037800089), square),
            polynomial(47.37952196281928122, (1.0, -1.203071208372362603), (1.0, -0.658047292653547382), square),
            polynomial(-34.87065786149660974, (1.0, -1.2), (1.0, -0.666666666666666667), square),
            polynomial(2.5, (1.0, -1.0), (1.0, -0.6), square),
        ])  # fmt: skip

    return Tsit5


__all__ = [
    "Equations", "SparseRadau", "Steps", "is_known", "lent_to", "moved", "recorder", "steps_of", "tableau", "tsit5",
]  # fmt: skip
