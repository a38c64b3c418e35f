"""The continuous adjoint of a solution of differential equations: derivatives by solving the adjoint equations, nothing of the steps being
kept.

Of L, a function of states at some times, λ(t) = ∂L/∂y(t) obeys dλ/dt = −Jᵀ λ between these times and has a jump at each, and
∂L/∂p = ∫ λᵀ ∂f/∂p dt (Cao, Li, Petzold, Serban 2003, SIAM J. Sci. Comput. 24, 1076). λ is found backwards by the method that found y.
The y that J needs is not solved backwards, which is unstable for stiff equations: it is solved forwards again, from the beginning or
from a mark. Marks are states on the way, `KEPT` of them however many steps there are; a stretch between two is solved again in the same
way, until it has so few steps that their interpolants are kept: memory grows with the logarithm of the number of steps.

Data: a `ContinuousAdjoint` holds the equations, the beginning and the times of the rows.
Invariant: of first order, in reverse. Errors are those of the tolerances, which hold for λ relative to its largest entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import Tensor
from ..errors import GraphError, NotDifferentiable
from ..transforms.loops import pulled
from .stepping import lent_to

KEPT = 64
"""Steps whose interpolants are kept at once, and marks."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)


class Places:
    """Times and places where the equations are run together; what `_Stages` asks of steps."""

    class table:
        """No method of steps."""

        implicit = False

    def __init__(self, times: np.ndarray, places: np.ndarray) -> None:
        self.times, self.places, self.y = times, places, places.T

    def points(self) -> tuple[np.ndarray, np.ndarray, None]:
        """Times, and places as columns."""
        return self.times, self.places, None


class ContinuousAdjoint:
    """The rule of rows of a solution: see the module. `together(places)` runs the equations there, a `_Stages`."""

    def __init__(
        self,
        equations: Any,
        together: Callable[[Places], Any],
        tangent: Callable[[float, np.ndarray], Any],
        method: type,
        options: dict[str, Any],
        start: tuple[float, np.ndarray],
        times: np.ndarray,
        rows: np.ndarray,
    ) -> None:
        """Note the equations and the solution (`rows` at `times`, from `start`) whose adjoint equations are solved by `method`."""
        self.equations, self.together, self.tangent = equations, together, tangent
        self.method, self.start, self.times, self.rows = method, start, times, rows
        self.options = {k: v for k, v in options.items() if k not in ("first_step", "jac")}
        self.jac = options.get("jac")
        some = np.unique(np.linspace(0, len(times) - 1, min(len(times), KEPT)).astype(int))
        first = together(Places(np.append(start[0], times[some]), np.column_stack([start[1], rows[some].T])))  # fmt: skip
        self.outside: dict[Any, Any] = dict(first.outside)
        self.nodes = list(self.outside)

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.rows

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        raise NotDifferentiable(
            'solve_ivp(adjoint="continuous") was asked for a derivative in forward mode, but adjoint equations are solved in reverse. Use '
            'mode="reverse", grad or vjp, or adjoint="discrete".'
        )

    push_together = push

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if isinstance(g, Tensor):
            raise NotDifferentiable(
                'solve_ivp(adjoint="continuous") was asked for a second derivative, but its derivatives are of first order. Use '
                'adjoint="discrete".',
                name="high-order",
            )
        g = np.asarray(g)
        found: dict[Any, Any] = {}
        t, y = self.start
        with no_grad():
            slope = self._back(t, y, float(self.times[-1]), g, np.zeros_like(y), found)
        slope = slope + g[self.times == t].sum(axis=0)
        return [slope, *(found.get(node) for node in self.nodes)]

    def _back(
        self, t: float, y: np.ndarray, end: float, g: np.ndarray, slope: np.ndarray, found: dict[Any, Any]
    ) -> np.ndarray:  # fmt: skip
        """λ at t from λ beyond `end`; cotangents of the rows after t and up to `end` join it on the way."""
        if t == end:
            return slope
        marks, pieces = self._again(t, y, end)
        if pieces is None:
            ends = [*(a for a, _ in marks[1:]), end]
            for (a, state), b in zip(reversed(marks), reversed(ends), strict=True):
                slope = self._back(a, state, b, g, slope, found)
            return slope
        from scipy.integrate import OdeSolution

        states = OdeSolution([t, *(piece.t for piece in pieces)], pieces)
        way = np.sign(end - t)
        inside = (way * (self.times - t) > 0) & (way * (end - self.times) >= 0)
        stops = sorted({t, end, *self.times[inside]}, key=lambda x: -way * x)
        for b, a in pairwise(stops):
            slope = slope + g[self.times == b].sum(axis=0)
            if slope.any():
                slope = self._stretch(a, b, states, slope, found)
        return slope

    def _again(self, t: float, y: np.ndarray, end: float) -> tuple[list[Any], list[Any] | None]:
        """Marks of a solution from t to `end`, and the interpolants of its steps if these are few."""
        jac = self.jac
        with lent_to(self.method, self.equations.quick, jac if callable(jac) else None) as (
            slope,
            jacobian,
        ):
            extra = {} if jac is None else {"jac": jacobian or jac}
            return self._marked(self.method(slope, t, y, end, **self.options, **extra), t, y)

    def _marked(self, solver: Any, t: float, y: np.ndarray) -> tuple[list[Any], list[Any] | None]:
        """Marks and interpolants of the steps that a solver takes from t, where the state is y."""
        marks, stride, count = [(t, y)], 1, 0
        pieces: list[Any] | None = []
        while solver.status == "running":
            message = solver.step()
            if solver.status == "failed":
                raise RuntimeError(f"solve_ivp could not solve the equations again: {message}")
            count += 1
            pieces = None if pieces is None or count > KEPT else [*pieces, solver.dense_output()]
            if solver.status == "running" and count % stride == 0:
                marks.append((solver.t, solver.y.copy()))
            if len(marks) > KEPT:
                marks, stride = marks[::2], 2 * stride
        return marks, pieces

    def _stretch(self, a: float, b: float, states: Any, slope: np.ndarray, found: dict[Any, Any]) -> np.ndarray:  # fmt: skip
        """λ at a from λ at b, no rows lying between; adds to the cotangents of what the equations use."""
        from scipy.integrate import BDF, LSODA, Radau, solve_ivp

        def backwards(t: float, x: np.ndarray) -> np.ndarray:
            nodes, alone = pulled(lambda y: self.equations(t, y), (states(t),), x)
            own = alone.get(nodes[0])
            return np.zeros_like(x) if own is None else -np.asarray(own)

        rtol = self.options.get("rtol", 1e-3)
        settings = {"rtol": rtol, "atol": 1e-3 * np.min(rtol) * np.abs(slope).max()}
        if issubclass(self.method, BDF | Radau | LSODA):
            stiff = self.tangent
            settings["jac"] = lambda t, x: -stiff(t, states(t)).T
        if issubclass(self.method, LSODA):
            settings["jac"] = None
        if "max_step" in self.options:
            settings["max_step"] = self.options["max_step"]
        with lent_to(self.method, backwards, settings.get("jac")) as (back, jacobian):
            if jacobian is not None:
                settings["jac"] = jacobian
            done = solve_ivp(back, (b, a), slope, self.method, dense_output=True, **settings)
        if not done.success:
            raise RuntimeError(f"solve_ivp could not solve the adjoint equations: {done.message}")
        if self.nodes:
            low, high = min(a, b), max(a, b)
            mesh = np.unique(np.concatenate([done.sol.ts, states.ts]))
            mesh = mesh[(mesh >= low) & (mesh <= high)]
            half = np.diff(mesh)[:, None] / 2
            times = (mesh[:-1, None] + half * (1 + NODES)).ravel()
            weights = (half * WEIGHTS).ravel() * np.sign(b - a)
            made = self.together(Places(times, states(times)))
            for node, more in made.pull(weights * done.sol(times))[1].items():
                if node in made.outside:
                    if node not in self.outside:
                        raise GraphError(
                            'solve_ivp(adjoint="continuous") found that the equations use a tracked value at some times which they do '
                            'not use at those of the result. Use it at all times, or adjoint="discrete".',
                            name="changed-since",
                        )
                    found[node] = found[node] + more if node in found else np.asarray(more)
        return np.asarray(done.y[:, -1])


__all__ = ["ContinuousAdjoint", "Places"]
