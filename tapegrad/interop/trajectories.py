"""`solve_ivp`: SciPy's solvers of initial value problems, whose solutions are functions of all that the equations use.

SciPy's code chooses the steps, on plain numbers. Where something tracked is used, the steps that it accepted are kept (stepping.py), and
rows of the solution become one entry of the tape. The derivative is that of the steps taken, their lengths being constants: it differs
from that of the true solution by an error of the size of the tolerances. It is found in two ways:

- of first order, on plain numbers: the equations are run once at all stages of all steps together (`_Stages`), with an axis more where the
  function allows for that, and linearised there; then steps are linear algebra;
- of higher order, for long or complex states, and under `dual_level`: the steps are taken again with operations that are recorded.

Times have a derivative, too: where a beginning, an end, a time of `t_eval` or of an event is tracked, a step of length zero leads there,
by formulas of order 8 (`moved`). An event is the root of its function along the solution (implicit.py).

Invariant: a run at all stages together is believed only if its slopes are those of runs one by one, and its derivatives, too, at some of
the stages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import sweep
from ..core.closures import closed_over
from ..core.dual import LEVEL
from ..core.mode import enable_grad, is_grad_enabled, no_grad
from ..core.packing import op_of_calls
from ..core.primitive import apply
from ..core.storage import tracing
from ..core.tape import OUT, SLOT, STRIDE
from ..core.tensor import Tensor, value_of, wrap
from ..errors import GraphError, NotDifferentiable, TraceError, demand_callable
from ..face.adoption import adopted
from ..ops.composing import holds_tensor, holds_tracked, raw
from ..ops.joining import gathered
from ..sparse import colouring
from ..transforms.derivatives import _Run
from ..transforms.loops import outside_of, pulled, pushed
from .adjoint import ContinuousAdjoint
from .event_times import FIRST_ROOM, FIRST_STEPS, Watch, crossings, prepared
from .implicit import solution
from .interludes import within
from .looped_steps import MOST_UNKNOWNS, Call, call_of
from .mass import Mass, with_mass
from .raveling import flatten
from .slopes import Slopes, with_real_systems
from .stepping import (
    CollocatedSteps,
    InterpolatedSteps,
    RungeKuttaSteps,
    SparseRadau,
    Steps,
    is_known,
    lent_to,
    moved,
    recorder,
    steps_of,
    tsit5,
)
from .traced_bdf import TracedBDF
from .traced_radau import StiffSolver, TracedRadau
from .traced_steps import TracedSolution, TracedSolver, interpolating, is_traceable, plain

if TYPE_CHECKING:
    from scipy.integrate._ivp.ivp import OdeResult

Tree = Any

LARGE = 10_000_000
"""Entries of the Jacobians at all stages up to which these are made as matrices; beyond, steps are recorded one by one."""

NUMBERS_AT_ONCE = 2_000_000
"""Numbers of tangents that are made before those that nothing reads any more are dropped."""

CHECKED = 1e-6
"""How nearly, in parts of the largest entry, slopes that are found again have to be what they were."""

TOGETHER = 1e-10
"""The same of a run at all stages together, beside runs one by one: if they differ by more than rounding, runs one by one take over."""


def solve_ivp(
    fun: Callable[..., Any],
    t_span: Sequence[Any],
    y0: Tree,
    method: Any = "RK45",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Sequence[Any] | None = None,
    *,
    mass_matrix: Any = None,
    adjoint: str = "discrete",
    compile: bool | str = "auto",
    **options: Any,
) -> OdeResult:
    """Solve dy/dt = fun(t, y, *args) from y0 over t_span; SciPy's `solve_ivp`, differentiable by all that `fun` uses, by y0 and by times.

    `y0` has SciPy's form, an array of n numbers, or is a number, an array of any shape or a pytree of them; then `fun` gets and returns
    the like, and `y` in the result has an axis more for the times, the last. `method` is "RK23", "RK45", "DOP853", "Tsit5", for stiff
    equations "Radau" or "BDF" (which get the Jacobian from the tape, unless `jac` gives it, as a sparse matrix from 100 unknowns on if at
    most a tenth of its places is filled, or with `jac_sparsity="detect"`), for both "LSODA", or a class of SciPy's
    kind. Other arguments and the result are SciPy's (`rtol`, `atol`, `max_step`, `first_step`, ...).

    `y`, `t`, `sol`, `t_events` and `y_events` of the result are tracked where they depend on something tracked. Derivatives are those
    of the steps taken (for BDF and LSODA, of Radau's method on the same steps), so exact to about the tolerances where derivatives are
    no rougher than the solution, of every order and in both modes; by times (`t_span`, `t_eval`, those of events) up to order 8. The choice
    of steps and the number of events have no derivative. Where the solution jumps, ask for more digits, as its
    derivatives lose some.

    `mass_matrix` M, for Radau and BDF: the equations are M dy/dt = fun(t, y), where M is constant, an array or a sparse matrix of n rows
    (of a pytree: those of its vector), and derivatives go by M, too. M may be singular: where a row of it is zero, the row of `fun` is an
    equation without derivatives, 0 = fun(t, y)[i]. These have to decide the unknowns without derivatives (index 1), and hold at y0;
    of y0 only M y0 counts after t0. M as a tracked tensor is to have the rank that it has nearby.

    `adjoint="continuous"` solves the adjoint equations instead, backwards, and the equations once or twice more: no step is kept, and
    derivatives, of first order in reverse mode by y0 and all that `fun` uses, have errors of the size of the
    tolerances. It is for very many steps; for any method, those of other kinds too.

    The steps become one loop of machine code, as inside `tg.compile`, once calls with these equations have taken as long as compiling
    does: for equations and events that do nothing but compute, constant mass matrices, and all methods but LSODA, and BDF with
    `dense_output`. Results differ by rounding. `compile=True` compiles at once (and raises what `tg.compile` raises), False never.

    Inside `tg.compile` the steps of all methods but LSODA are one loop of the program; `t_eval` or `dense_output=True` is
    needed for that (each call of `sol` is a loop of its own), `nfev` is None, and a solution that ends too early raises RuntimeError.
    Events are found by a loop before it; the program is made again where their number changes. Other calls (LSODA, all steps, mass
    matrices that are tracked; BDF, and any mass matrix, of more than 100 unknowns) are made by the program in Python.

    Raises NotDifferentiable for methods whose steps are not known and for an event where the solution only touches zero; TraceError
    for `dense_output` of those other calls inside `tg.compile`.

    >>> import numpy as np, tapegrad as tg
    >>> def height_after(k):
    ...     fall = tg.integrate.solve_ivp(lambda t, y: [y[1], -9.81 - k * y[1]], (0, 1), [0.0, 5.0], rtol=1e-8, atol=1e-8)
    ...     return fall.y[0, -1]
    >>> print(round(height_after(0.1), 4), round(tg.grad(height_after)(0.1), 3))
    0.0126 -0.784
    """
    from scipy import integrate

    demand_callable(fun, "solve_ivp")
    state = _State(y0)
    times = [gathered(t) for t in t_span]
    if len(times) != 2:
        raise ValueError(
            f"solve_ivp was given t_span of {len(times)} times, but it is the first and the last: (t0, t1)."
        )
    asked = None if t_eval is None else gathered(t_eval)
    equations = _Equations(fun, args, state, vectorized)
    if mass_matrix is not None:
        equations.mass = _mass(mass_matrix, state, method)
    _demand_choices(adjoint, compile)
    chosen = _method(method)
    if tracing.get() is not None:
        if _is_loop(equations, chosen, asked, dense_output, options):
            return _traced(equations, chosen, times, asked, dense_output, events, options)
        if dense_output:
            raise TraceError(
                f"solve_ivp(method={method!r}, dense_output=True) was called inside tg.compile, but steps of this kind are taken in "
                "Python there, whose interpolant is no array. Give the times that are wanted in t_eval, or leave solve_ivp outside.",
                name="outside-program",
            )
        arguments = (fun, t_span, y0, method, t_eval, False, events, vectorized, args)
        settings = {"mass_matrix": mass_matrix, "adjoint": adjoint, "compile": compile, **options}
        return within(solve_ivp, arguments, settings)  # type: ignore[no-any-return]
    ends = [float(value_of(t)) for t in times]
    judges = [] if events is None else list(events) if isinstance(events, Sequence) else [events]
    call = None
    if adjoint == "discrete":
        mode = bool(compile) if compile != "auto" else compile
        call = _call(equations, chosen, times, ends, asked, dense_output, options, judges, mode)
    found = call and call.rows()
    if found:
        return _looped(_Found(**found), chosen, equations, times, asked)
    if chosen is integrate.Radau:
        chosen = with_real_systems(chosen)
    if mass_matrix is not None:
        chosen = with_mass(chosen)
    given = [state.vector, *times, *([] if asked is None else [asked]), *_leaves(args)]
    moving = holds_tracked(given) or (mass_matrix is not None and equations.mass.tracked)
    following = is_grad_enabled() or LEVEL.get() is not None
    kept = following and adjoint == "discrete"
    seen = _Seen()
    steps = _Steps(equations, chosen, options, ends, asked, dense_output, judges, seen, kept)
    # Recorded, so that a function which loses what is tracked says so; of the entries nobody keeps anything.
    result = _first_of(steps.solved, raw(args), args)
    tracked = following and (moving or seen.tracked)
    if call and result.status >= 0:
        call.done([np.asarray(result.y), *(result.t_events or [])], tracked, _compared)
    if not tracked:
        return _arranged(result, equations)
    if adjoint == "continuous":
        _demand_continuous(state, times, asked, judges, dense_output, mass_matrix)
        return _with_adjoint(result, equations, chosen, options, ends)
    path = _path(equations, state, times, ends, steps.log, chosen)
    if path is None:
        raise NotDifferentiable(
            f"solve_ivp(method={method!r}) was asked for a solution whose derivative is wanted, but how its steps depend on the equations "
            'is not known here. Use one of SciPy\'s methods, adjoint="continuous", or detach() what is tracked.'
        )
    return _Result(result, path, judges, args, times, asked).made(dense_output)


def _demand_choices(adjoint: Any, compile: Any) -> None:
    if adjoint not in ("discrete", "continuous"):
        raise ValueError(
            f'solve_ivp was given adjoint={adjoint!r}, but it is "discrete" (of the steps taken) or "continuous" (equations of their own).'
        )
    if not (isinstance(compile, bool | np.bool_) or compile == "auto"):
        raise ValueError(
            f'solve_ivp was given compile={compile!r}: it is True (compile at once), False (never), or "auto" (once it pays).'
        )


@dataclass
class _Steps:
    """SciPy's way through the equations; with `kept`, how each step was taken goes to the log."""

    equations: _Equations
    method: Any
    options: dict[str, Any]
    ends: list[float]
    asked: Any
    dense: bool
    judges: list[Any]
    seen: _Seen
    kept: bool
    log: list[Any] = field(default_factory=list)

    def solved(self, arguments: Any) -> OdeResult:
        """SciPy's result for these arguments of the equations."""
        from scipy import integrate

        self.log.clear()
        equations, method = self.equations, self.method
        equations.given = arguments, self.seen
        settings = _with_jacobian(method, equations, self.options, arguments)
        if equations.mass is not None:
            settings = _with_start(equations, settings, self.ends)
        jac = settings.get("jac")
        with lent_to(method, equations.quick, jac if callable(jac) else None) as (slope, jacobian):
            if jacobian is not None:
                settings = {**settings, "jac": jacobian}
            if self.kept and is_known(method):
                settings = {**settings, "log": self.log}
            events = [_plain_event(e, equations.state, arguments, self.seen) for e in self.judges]
            return integrate.solve_ivp(
                slope,
                self.ends,
                equations.state.value,
                method=recorder(method) if "log" in settings else method,
                t_eval=None
                if self.asked is None
                else np.asarray(value_of(self.asked), dtype=float),
                dense_output=self.dense,
                events=events or None,
                **settings,
            )


def _call(
    equations: _Equations, method: Any, span: Sequence[Any], ends: Sequence[float], asked: Any, dense: bool, options: dict[str, Any],
    judges: Sequence[Any], mode: Any,
) -> Call | None:  # fmt: skip
    """The call as one that a program could serve; None where it is none, or where SciPy has to say what is wrong with it."""
    state, kind, mass = equations.state, _solver_of(method), equations.mass
    stiff = kind is not TracedSolver
    known = {"rtol", "atol", "max_step", "first_step"}
    if equations.vectorized or kind is None or not set(options) <= known:
        return None
    # The polynomials of BDF's steps have no derivative: that of its solution is Radau's, on steps that end at the times.
    if (mass is not None and not mass.is_constant) or (dense and kind is TracedBDF):
        return None
    if not state.size or (stiff and (state.size > MOST_UNKNOWNS or state.dtype.kind == "c")):
        return None
    # Behind an event that ends the solution there is no state to be moved.
    if judges and (holds_tracked(asked) or not all(map(callable, judges))):
        return None
    if not 0 < abs(ends[1] - ends[0]) < np.inf:
        return None
    if asked is not None and not _in_order(np.asarray(value_of(asked)), ends, bool(judges)):
        return None
    rtol, atol = options.get("rtol", 1e-3), np.asarray(options.get("atol", 1e-6))
    first, most = options.get("first_step"), options.get("max_step", np.inf)
    numbers = (rtol, most, 1.0 if first is None else first)
    if not all(isinstance(x, float | int) and x > 0 for x in numbers) or (
        first is not None and first > abs(ends[1] - ends[0])
    ):
        return None
    if (
        atol.dtype.kind not in "fiu"
        or atol.shape not in ((), (state.size,))
        or not np.all(atol >= 0)
    ):
        return None
    settings = {
        "rtol": max(float(rtol), 100 * np.finfo(float).eps),
        "atol": atol,
        "first_step": first,
        "max_step": most,
    }
    form = copy.copy(state)
    form.vector = None

    _, most_of, direction = prepared(list(judges))
    moving = holds_tracked(
        span[1]
    )  # as the program sees it or not: its value and its derivative have the same results

    def solve(
        functions: Any, args: Any, y0: Any, start: Any, end: Any, *asked: Any
    ) -> dict[str, Any]:
        """What a `_Found` has, as a function of all that the solution depends on; `asked` is `t_eval`, if it was given."""
        fun, *judges = functions
        equations = _Equations(fun, args, form, False)
        equations.mass = mass
        solver = kind(method, fun, equations, y0, (start, end), **settings)
        times = asked[0] if asked else None
        if not judges and asked and not dense:
            return {"rows": solver.rows(times), "counts": solver.counts}
        solver.dense = dense
        followed = _Followed(
            solver, equations, judges, most_of, direction, times, dense or not asked
        )
        made = {"counts": solver.counts, "status": followed.status}
        if asked:
            made["reached"] = followed.before(plain(times))
        solver.keeps = dense
        made["rows"] = followed.with_rows(times)
        if judges:
            made |= {"t_events": followed.t_events, "y_events": followed.y_events}
        if followed.mesh is not None:
            made |= {"mesh": followed.mesh, "count": followed.count, "steps": followed.steps}
        if not asked and (followed.status or moving):
            made["last"] = followed.last(end)
        return made

    way_of_state = (state.structure, tuple(state.shapes), state.lone, state.simple, state.dtype.str)
    key = (
        method,
        *way_of_state,
        rtol,
        atol.tobytes(),
        atol.shape,
        first,
        most,
        most_of.tobytes(),
        direction.tobytes(),
        asked is None,
        moving,
        dense,
        None if mass is None else mass.dense.tobytes(),
    )
    given = [state.vector, span[0] * 1.0, span[1] * 1.0, *([] if asked is None else [asked * 1.0])]
    return call_of([equations.fun, *judges], equations.args, mode, stiff, key, given, solve)


def _in_order(when: np.ndarray, ends: Sequence[float], empty: bool) -> bool:
    """Whether times of `t_eval` are such as SciPy takes; `empty` says whether there may be none."""
    way = np.sign(ends[1] - ends[0])
    if when.ndim != 1 or not (when.size or empty) or when.dtype.kind not in "fiu":
        return False
    steps = np.concatenate([way * np.diff(when), way * (when - ends[0]), way * (ends[1] - when)])
    return bool(np.all(steps >= 0) and np.all(np.diff(when) != 0))


@dataclass
class _Found:
    """What a program finds of a solution. Without events, and with `t_eval` alone, there are `rows` and `counts`."""

    rows: Any
    """States at the times of `t_eval`, or else of the steps, which are padded."""
    counts: Any
    """Evaluations of the equations, Jacobians, factorisations."""
    reached: Any = None
    """How many times of `t_eval` the solution reaches."""
    status: int | None = None
    t_events: Any = None
    y_events: Any = None
    count: Any = None
    """How many times of steps count."""
    mesh: Any = None
    """Times of steps, padded with the last."""
    steps: Sequence[Any] = ()
    """For dense output, for each time of `mesh` the step that ends there: state and time before it, length, slopes or rises."""
    last: Any = None
    """The last time and the state there, if that time has a derivative."""

    def states(self) -> Any:
        """The rows that count."""
        count = self.count if self.reached is None else self.reached
        return self.rows if count is None else self.rows[: int(count)]

    def whole(self, span: Sequence[Any], start: Any) -> tuple[Any, Any]:
        """Times and states of all steps, the first and the last of which are as tracked as these are."""
        rows, times = self.states(), np.array(value_of(self.mesh)[: int(self.count)])
        if not holds_tracked(span[0]) and self.last is None:
            return times, rows
        t, y = list(times), list(rows)
        if holds_tracked(span[0]):
            t[0], y[0] = span[0] * 1.0, start
        if self.last is not None:
            t[-1], y[-1] = self.last
        return np.stack(t), np.stack(y)


def _looped(
    found: _Found, method: type, equations: _Equations, span: Sequence[Any], asked: Any
) -> OdeResult:
    """SciPy's result of what a program found."""
    from scipy.integrate._ivp.ivp import MESSAGES, OdeResult

    state = equations.state
    nfev, njev, nlu = (int(value_of(n)) for n in found.counts)
    rows, status = found.states(), found.status or 0
    if asked is not None:
        times = (asked * 1.0)[: len(rows)]
    else:
        times, rows = found.whole(span, state.vector)
    y = state.split(np.transpose(rows), np.shape(times))
    if state.simple and not len(times):
        y = np.zeros(0)  # SciPy's, of no times
    return OdeResult(
        t=times if isinstance(times, Tensor) else np.array(times), y=y,
        sol=_LoopedSolution(found, method, equations) if found.steps else None, t_events=found.t_events, y_events=found.y_events,
        nfev=nfev, njev=njev, nlu=nlu, status=status, message=MESSAGES[status], success=True,
    )  # fmt: skip


class _LoopedSolution:
    """The solution between the steps that a program took: the interpolants of these steps, as tracked as the steps are."""

    def __init__(self, found: _Found, method: type, equations: _Equations) -> None:
        count = int(found.count)
        self.ts = np.array(value_of(found.mesh)[:count])
        self._method, self._equations = method, equations
        self._y, self._before, self._length, self._slopes = (x[1:count] for x in found.steps)
        self.t_min, self.t_max = float(np.min(self.ts)), float(np.max(self.ts))

    def __call__(self, t: Any) -> Tree:
        """The states at a time, or at times, along a last axis."""
        t = gathered(t)
        if np.ndim(t) > 1:
            raise ValueError("`t` must be a float or a 1-D array.")
        times = np.atleast_1d(np.asarray(value_of(t), dtype=float))
        way = np.sign(self.ts[-1] - self.ts[0])
        k = np.clip(np.searchsorted(way * self.ts, way * times) - 1, 0, len(self.ts) - 2)
        weights = interpolating(self._method, times, value_of(self._before)[k], value_of(self._length)[k])  # fmt: skip
        rows = self._y[k] + np.matmul(weights[:, None, :], self._slopes[k])[:, 0]
        if holds_tracked(t):
            rows = _moved_to(self._equations.slope, rows, t)
        return self._equations.state.split(
            rows[0] if np.ndim(t) == 0 else np.transpose(rows), np.shape(t)
        )


def _compared(found: Any) -> list[Any]:
    """The arrays of what a program found that have to be SciPy's: states, and times of events."""
    made = _Found(**found)
    return [np.transpose(value_of(made.states())), *(made.t_events or [])]


def _is_loop(
    equations: _Equations, method: type, asked: Any, dense_output: bool, options: dict[str, Any]
) -> bool:  # fmt: skip
    """Whether the steps can be a loop of the program that is traced: those of a known kind, whose results have one shape."""
    kind, state = _solver_of(method), equations.state
    stiff = kind is not None and issubclass(kind, StiffSolver)
    if kind is None or (stiff and state.dtype.kind == "c"):
        return False
    if kind is TracedBDF and state.size > MOST_UNKNOWNS:  # SciPy's has sparse matrices
        return False
    known = {"rtol", "atol", "max_step", "first_step", *(["jac"] if stiff else [])}
    if equations.mass is not None and not (
        stiff and state.size <= MOST_UNKNOWNS and equations.mass.is_constant
    ):
        return False
    return (asked is not None or dense_output) and set(options) <= known


def _solver_of(method: type) -> type[TracedSolver] | None:
    """What takes the steps of a method of SciPy's in a program; None where nothing does."""
    from scipy.integrate import BDF, Radau

    if method in (BDF, Radau):
        return TracedBDF if method is BDF else TracedRadau
    return TracedSolver if is_traceable(method) else None


def _traced(
    equations: _Equations,
    chosen: type,
    span: Sequence[Any],
    asked: Any,
    dense_output: bool,
    events: Any,
    options: dict[str, Any],
) -> OdeResult:
    """The result inside `tg.compile`, whose steps are a loop of the program; a loop before it finds the events."""
    from scipy.integrate._ivp.ivp import MESSAGES, OdeResult

    state, kind = equations.state, _solver_of(chosen)
    assert kind is not None
    if options.get("jac") is not None:
        options = {**options, "jac": _given_jacobian(equations, options["jac"])}
    solver = kind(chosen, equations.fun, equations, state.vector, span, **options)
    rows: Any = None
    times: Any = None
    if asked is not None:
        times = asked * 1.0
        when = value_of(times)
        if np.ndim(when) != 1:
            raise ValueError("`t_eval` must be 1-dimensional.")
        way = solver.way * (when[1:] - when[:-1])
        if not bool(np.all(way > 0)):
            raise ValueError("Values in `t_eval` are not properly sorted.")
        if not bool(
            np.all(
                (solver.way * (when - solver.begin) >= 0) & (solver.way * (solver.end - when) >= 0)
            )
        ):
            raise ValueError("Values in `t_eval` are not within `t_span`.")
    found = None
    if events is not None:
        judges, most, direction = prepared(events)
        for judge in judges:
            demand_callable(judge, "events")
        found = _Followed(solver, equations, judges, most, direction, times, False)
        if times is not None:
            times = times[: int(found.before(when))]
        rows = found.with_rows(np.zeros(0) if times is None else times)
    elif times is not None:
        rows = solver.rows(times)
    if times is not None:
        rows = state.split(np.transpose(rows), np.shape(times))
    sol = TracedSolution(solver, state) if dense_output else None
    status = 0 if found is None else found.status
    return OdeResult(
        t=times, y=rows, sol=sol, t_events=found and found.t_events, y_events=found and found.y_events, nfev=None, njev=0, nlu=0,
        status=status, message=MESSAGES[status], success=True,
    )  # fmt: skip


class _Followed:
    """A solution inside a program whose events, or times of steps, are found first, by a loop of steps on plain values.

    How many events there are, and whether one ends the solution, is looked at by the program: calls with other answers get another program.
    The number of steps is no such answer, as long as there is room for their times.
    """

    t_events: list[Any]
    y_events: list[Any]

    def __init__(
        self, solver: TracedSolver, equations: _Equations, judges: Sequence[Any], most: np.ndarray, direction: np.ndarray, asked: Any,
        whole: bool,
    ) -> None:  # fmt: skip
        """Find the plain times of all events, and of all steps if they are asked for as a `whole`; let the solver's next loop end with the
        last that counts. `asked` is `t_eval`, or None.
        """
        self.solver, self.equations = solver, equations
        self.judges = judges
        self.vectors = [_vector_event(judge, equations.state, equations.args) for judge in self.judges]  # fmt: skip
        room, steps = FIRST_ROOM, FIRST_STEPS if whole else 0
        when = np.zeros(0) if asked is None else plain(asked)
        while True:
            watch = Watch(self.vectors, self.judges, most, direction, room) if judges else None
            events, mesh = solver.followed(watch, when, steps)
            enough = [
                not judges or bool(np.all(value_of(events[1]) <= room)),
                not whole or bool(value_of(mesh[0]) <= steps),
            ]
            if all(enough):
                break
            room, steps = room * (1 if enough[0] else 4), steps * (1 if enough[1] else 8)
        self.status, self.times = 0, []
        if judges:
            _, counts, found, going, stop, _ = map(value_of, events)
            self.times = [found[i, : int(counts[i])] for i in range(len(self.judges))]
            self.status = int(bool(going == 0))
            if self.status:
                solver.until = stop
        self.mesh, self.count = None, None
        if whole:
            self.count, times = map(value_of, mesh)
            end = solver.end * 1.0 if solver.until is None else solver.until
            self.mesh = np.where(np.arange(float(steps)) < self.count - 1, times, end)

    def before(self, when: Any) -> Any:
        """How many of the times that are asked for the solution reaches."""
        if not self.status:
            return len(when)
        return np.sum(np.where(self.solver.way * (when - self.solver.until) <= 0, 1, 0))

    def with_rows(self, times: Any) -> Any:
        """Rows at times, or None for those of the steps, by one loop with those of the steps and of the events.

        The results' `t_events`, `y_events` and `steps` are made on the way.
        """
        solver, state = self.solver, self.equations.state
        first = [] if times is None else plain(times)
        parts = [first, [] if self.mesh is None else self.mesh, *self.times]
        ends = np.cumsum([len(x) for x in parts])
        rows = solver._loop(np.concatenate(parts)) if ends[-1] else np.zeros((0, state.size))
        mine, whole, *others = (
            rows[end - len(x) : end] for end, x in zip(ends, parts, strict=True)
        )
        self.steps = [x[ends[0] : ends[1]] for x in solver.steps]
        self.t_events, self.y_events, self.crossed, self.end = [], [], [], whole[-1:]
        slope, fun = self.equations.slope, self.equations.fun
        for judge, vector, when, there in zip(self.judges, self.vectors, self.times, others, strict=True):  # fmt: skip
            if len(when) and is_grad_enabled():
                when = crossings(vector, slope, when, there, [fun, judge])
                there = solver.moved_to(there, when)
            self.t_events.append(when)
            self.crossed.append(there)
            self.y_events.append(there if state.simple else state.split(np.transpose(there), np.shape(when)))  # fmt: skip
        return whole if times is None else solver.moved_to(mine, times)

    def last(self, end: Any) -> tuple[Any, Any]:
        """The last time, as tracked as the event or the end of the span that it is, and the state there."""
        solver = self.solver
        if not self.status:
            return end, solver.moved_to(self.end, np.reshape(end, (1,)))[0]
        # The last of several events at one time is the one that ended the solution.
        k = max(
            i for i, when in enumerate(self.times) if len(when) and bool(when[-1] == solver.until)
        )
        return self.t_events[k][-1], self.crossed[k][-1]


def _given_jacobian(equations: _Equations, jac: Any) -> Callable[[Any, Any], Any]:
    """The user's Jacobian, a function or a constant matrix, as a function of time and vector."""
    if not callable(jac):
        return lambda t, y: np.asarray(value_of(jac), dtype=float)
    return lambda t, y: value_of(gathered(jac(t, equations.state.split(y), *equations.args)))


def _leaves(args: Any) -> list[Any]:
    return (
        []
        if args is None
        else flatten(tuple(args))[0]
        if isinstance(args, list | tuple)
        else [args]
    )


def _method(method: Any) -> type:
    from scipy.integrate._ivp.ivp import METHODS

    if isinstance(method, str):
        if method == "Tsit5":
            return tsit5()
        if method not in METHODS:
            raise ValueError(
                f"solve_ivp was given method={method!r}, but it is one of {', '.join(METHODS)}, Tsit5, or a class of SciPy's kind."
            )
        return METHODS[method]  # type: ignore[no-any-return]
    return method  # type: ignore[no-any-return]


def _first_of(solved: Callable[[Any], Any], plain: Any, given: Any) -> Any:
    """The result with arguments as plain arrays, which is quicker; with the tensors themselves, where the function wants those."""
    if not holds_tensor(given):
        return solved(given)
    try:
        return solved(plain)
    except (AttributeError, TypeError):
        return solved(given)


class _Seen:
    """Whether results of a function were tracked."""

    tracked = False


# ------------------------------------------------------------------------------------------------- states and equations


class _State:
    """A pytree of arrays and numbers as a vector; `lone` if it is one array or number."""

    def __init__(self, y0: Tree) -> None:
        """Flatten `y0` (a number, an array or a pytree) into one vector, real or complex."""
        if isinstance(y0, list | tuple) and all(
            np.ndim(x) == 0 and not isinstance(x, dict) for x in y0
        ):
            y0 = gathered(y0) if len(y0) else np.zeros(0)
        leaves, self.structure = flatten(y0)
        self.lone = isinstance(y0, Tensor | np.ndarray | np.generic | float | int | complex)
        leaves = [gathered(x) for x in leaves]
        if not leaves or any(x.dtype.kind not in "fciub" for x in leaves):
            raise TypeError(
                "solve_ivp was given y0 without numbers: give an array, or a pytree of arrays and numbers."
            )
        self.shapes = [np.shape(x) for x in leaves]
        self.sizes = [int(np.prod(s)) for s in self.shapes]
        dtype = complex if any(x.dtype.kind == "c" for x in leaves) else float
        parts = [np.reshape(x if x.dtype == dtype else x.astype(dtype), (-1,)) for x in leaves]
        self.vector: Any = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.dtype = np.dtype(dtype)
        self.size = int(sum(self.sizes))
        self.simple = self.lone and len(self.shapes[0]) == 1

    @property
    def value(self) -> np.ndarray:
        return np.array(value_of(self.vector))

    def split(self, vector: Any, more: tuple[int, ...] = ()) -> Tree:
        """The tree of a vector, or of columns with so many further axes."""
        if self.simple:
            return vector
        leaves, start = [], 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            leaves.append(np.reshape(vector[start : start + size], (*shape, *more)))
            start += size
        return leaves[0] if self.lone else self.structure.unflatten(leaves)

    def joined(self, tree: Tree, more: tuple[int, ...] = ()) -> Any:
        """The vector of what the equations returned. Raises where that is not arranged like the state."""
        if tree is None:
            raise TypeError(
                "solve_ivp integrates what fun returns, but fun returned None. Does it end with a return?"
            )
        if self.lone:
            rows = isinstance(tree, list | tuple) and more and self.simple
            leaves = [_stacked(tree, more) if rows else gathered(tree)]
        else:
            leaves, structure = flatten(tree)
            if structure != self.structure:
                raise ValueError(
                    "solve_ivp was given a fun that returns another structure than y0: a slope for each entry of y0."
                )
            leaves = [gathered(x) for x in leaves]
        parts = []
        for x, shape in zip(leaves, self.shapes, strict=True):
            if np.shape(x) != (*shape, *more):
                if (
                    more
                    or int(np.prod(np.shape(x))) != int(np.prod(shape))
                    or np.ndim(x) > len(shape)
                ):
                    x = self._spread(x, shape, more)
                else:
                    x = np.reshape(x, shape)
            x = np.reshape(x, (-1, *more))
            parts.append(x if x.dtype == self.dtype else x.astype(self.dtype))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @staticmethod
    def _spread(x: Any, shape: tuple[int, ...], more: tuple[int, ...]) -> Any:
        if more and shape == (1,) and np.shape(x) == more:  # a number for the only entry
            return np.reshape(x, (1, *more))
        if more and np.shape(x) in (shape, (*shape, 1)):
            return np.broadcast_to(np.reshape(x, (*shape, 1)), (*shape, *more))
        raise ValueError(
            f"solve_ivp was given y0 of shape {shape}, but fun returned shape {np.shape(x)}: a slope for each entry."
        )


def _stacked(rows: Sequence[Any], more: tuple[int, ...]) -> Any:
    return np.stack([np.broadcast_to(gathered(x), more) for x in rows])


class _Equations:
    """The user's function of a time and a state as one of vectors."""

    def __init__(self, fun: Callable[..., Any], args: Any, state: _State, vectorized: bool) -> None:
        """The right-hand side with its arguments and the form of its state."""
        if args is not None:
            try:
                args = tuple(args)
            except TypeError:
                raise TypeError(
                    f"solve_ivp was given args={args!r}, but it is a tuple: args=({args!r},)."
                ) from None
        self.fun, self.args, self.state, self.vectorized = fun, args or (), state, vectorized
        self.runs = adopted(fun)
        """What is run for `fun`: Jacobians are taken of it outside of transforms, too."""
        self.held = closed_over([fun])
        self.mass: Any = None
        """Of M dy/dt = fun(t, y) the matrix, a `Mass`."""
        self.slopes: Any = None
        """The Jacobians that the solver was given, a `Slopes`, if they are ours."""
        self.given: Any = None
        """What `quick` is called with: plain arguments, and the `_Seen` that notes what was tracked."""

    @property
    def quick(self) -> Callable[[float, np.ndarray], Any]:
        """The slope as an array or a list of numbers, with arguments that are plain if the function takes those."""
        return self if self.given is None else self.plain(*self.given)

    def called(self, t: Any, vector: Any, args: Sequence[Any]) -> Any:
        if self.vectorized and self.state.simple:
            return np.reshape(gathered(self.runs(t, vector[:, None], *args)), (-1,))
        return self.runs(t, self.state.split(vector), *args)

    def __call__(self, t: Any, vector: Any) -> Any:
        """The slope, tracked as what the function uses."""
        return self.state.joined(self.called(t, vector, self.args))

    @property
    def pattern(self) -> Any:
        """Where the Jacobian is not zero, if it is sparse; else None."""
        return None if self.slopes is None else self.slopes.pattern

    @property
    def slope(self) -> Callable[[Any, Any], Any]:
        """dy/dt, which is what the function returns where there is no mass matrix."""
        return self if self.mass is None else self.mass.slope(self)  # type: ignore[no-any-return]

    def less_mass(self, found: Any, rates: Any) -> Any:
        """What the function returned, less what a tracked mass matrix takes of it where the slopes are `rates`."""
        return found if self.mass is None else self.mass.less(found, rates)

    def plain(self, args: Any, seen: _Seen) -> Callable[[float, np.ndarray], np.ndarray]:
        """The slope as an array; `seen` says afterwards whether any was tracked."""
        args, fun = tuple(args or ()), self.runs
        direct = self.state.simple and not self.vectorized

        def slope(t: float, vector: np.ndarray) -> Any:
            """The right-hand side on plain arrays; it notes whether a result was tracked."""
            made = fun(t, vector, *args) if direct else self.called(t, vector, args)
            if direct:
                kind = type(made)
                if kind is np.ndarray:
                    return made
                if kind is list:  # SciPy makes an array of it
                    for x in made:
                        if type(x) is not np.float64 and not isinstance(x, float | int):
                            break
                    else:
                        return made
            if not seen.tracked and holds_tracked(made):
                seen.tracked = True
            return np.asarray(value_of(self.state.joined(made)))

        return slope

    def together(self, times: np.ndarray, places: Any) -> Any:
        """The slopes at many times and places, which are columns, in one call with an axis more."""
        many = (len(times),)
        if self.vectorized and self.state.simple:
            raise TypeError("SciPy's vectorized functions take one time")
        made = self.runs(times, self.state.split(places, many), *self.args)
        return self.state.joined(made, many)

    def one_by_one(self, times: np.ndarray, places: Any) -> Any:
        """The same, by a call for each."""
        columns = [self(float(t), places[:, i]) for i, t in enumerate(times)]
        return np.stack(columns, 1) if columns else np.zeros(np.shape(places))


def _mass(matrix: Any, state: _State, method: Any) -> Mass:
    """A mass matrix for a method that can use it."""
    from scipy.integrate import BDF, Radau

    chosen = _method(method)
    if not (isinstance(chosen, type) and issubclass(chosen, BDF | Radau)):
        raise ValueError(
            f"solve_ivp was given mass_matrix for method {method!r}, but Radau and BDF alone take one: their steps solve systems anyway. "
            "Use one of these, or multiply the equations by the inverse of the matrix in fun."
        )
    if state.dtype.kind == "c":
        raise TypeError(
            "solve_ivp was given mass_matrix for a complex state, but these equations are real. Solve for real and imaginary parts."
        )
    return Mass(matrix, state.size)


def _with_start(
    equations: _Equations, options: dict[str, Any], ends: Sequence[float]
) -> dict[str, Any]:
    """SciPy's options, with the slope at the beginning and the first step for equations with a mass matrix."""
    from scipy.integrate._ivp.common import select_initial_step

    given, state, mass = options.get("jac"), equations.state, equations.mass
    jac = given if callable(given) else _tangent(equations, equations.args) if given is None else lambda *_: given  # fmt: skip
    rtol, atol = options.get("rtol", 1e-3), options.get("atol", 1e-6)
    slope, near = mass.start(equations.quick, jac, ends, state.value, rtol, atol)
    options = {**options, "mass": mass, "slope": slope}
    if options.get("first_step") is None and ends[1] != ends[0]:
        most = options.get("max_step", np.inf)
        way = np.sign(ends[1] - ends[0])
        options["first_step"] = select_initial_step(
            near, ends[0], state.value, ends[1], most, slope, way, 1, rtol, atol
        )
    return options


def _plain_event(event: Any, state: _State, args: Any, seen: _Seen) -> Callable[..., float]:
    demand_callable(event, "events")

    def value(t: float, vector: np.ndarray) -> float:
        made = event(t, state.split(vector), *(args or ()))
        if holds_tracked(made):
            seen.tracked = True
        return float(value_of(made))

    for name in ("terminal", "direction"):
        if hasattr(event, name):
            setattr(value, name, getattr(event, name))
    return value


def _vector_event(event: Any, state: _State, args: Any) -> Callable[[Any, Any], Any]:
    """An event as a function of a time and a vector."""
    return lambda t, vector: event(t, state.split(vector), *(args or ()))


def _by_newton(
    judge: Any, slope: Any, times: np.ndarray, rows: Any, functions: Sequence[Any]
) -> Any:
    """Times of an event by steps that carry tangents along."""
    found = []
    for i, time in enumerate(times):

        def value(v: Any, t: float = float(time), row: Any = rows[i]) -> Any:
            return np.reshape(gathered(judge(v[0], moved(slope, row, t, v[0] - t))), (1,))

        found.append(gathered(solution(value, np.array([float(time)]), "solve_ivp", functions)[0]))
    return np.stack(found)


def _with_jacobian(
    method: type, equations: _Equations, options: dict[str, Any], args: Any
) -> dict[str, Any]:
    """SciPy's options, with the Jacobian for methods that want it."""
    from scipy.integrate import BDF, Radau

    if not issubclass(method, BDF | Radau) or not equations.state.size:
        return options
    jac, state = options.get("jac"), equations.state
    if callable(jac):

        def given(t: float, y: np.ndarray) -> Any:
            with no_grad():
                return raw(jac(t, state.split(y), *(args or ())))

        return {**options, "jac": given}
    sparsity = options.get("jac_sparsity")
    if jac is not None or state.value.dtype.kind == "c":
        return options
    if sparsity is not None and not isinstance(sparsity, str):  # SciPy's, for its differences
        return options
    options = {name: value for name, value in options.items() if name != "jac_sparsity"}
    return {**options, "jac": _tangent(equations, args, sparsity or "auto")}


def _tangent(
    equations: _Equations, args: Any, sparsity: str = "auto"
) -> Callable[[float, np.ndarray], Any]:
    """The Jacobian of the equations, from the tape; `equations.slopes` knows its pattern."""
    alone = copy.copy(equations)  # the equations know their Jacobian, so that it must not know them
    alone.slopes = None
    equations.slopes = slopes = Slopes(
        lambda y, t: alone.state.joined(alone.called(t, y, tuple(args or ()))), sparsity=sparsity
    )

    def found(t: float, y: np.ndarray) -> Any:
        with no_grad():
            return slopes(y, t)

    return found


# ------------------------------------------------------------------------------------------------------- the path taken


def _path(
    equations: _Equations,
    state: _State,
    times: Sequence[Any],
    ends: Sequence[float],
    log: Sequence[Any],
    method: type,
) -> _Path | None:
    """The steps taken as a function of what they depend on; None where they are not known."""
    if not is_known(method) or not log:
        return None
    steps = steps_of(log[0])
    steps.mass = equations.mass
    if isinstance(steps, InterpolatedSteps):
        if steps.y.dtype.kind == "c":
            raise NotDifferentiable(
                "solve_ivp(method='BDF') was asked for a complex solution whose derivative is wanted, but the equations of its steps are "
                "solved for real numbers. Solve for real and imaginary parts, or use 'RK45' or 'DOP853'.",
                name="not-real",
            )
    start = state.vector
    if holds_tracked(
        times[0]
    ):  # a beginning at another time goes through another place at this one
        start = moved(equations.slope, start, ends[0], ends[0] - times[0])
    return _Path(equations, steps, start)


class _Path:
    """A solution by the steps taken: `rows(times)` are its states at plain times."""

    def __init__(self, equations: _Equations, steps: Steps, start: Any) -> None:
        self.equations, self.steps, self.start = equations, steps, start
        places = steps.y.shape[1] ** 2
        if equations.pattern is not None and steps.table.implicit:
            places = equations.pattern.nnz
        entries = steps.count * len(steps.table.b) * places
        self.recorded = LEVEL.get() is not None or entries > LARGE or steps.y.dtype.kind != "f"
        """Whether the steps are taken again as operations of the tape, one by one."""
        self._stages: _Stages | None = None

    def stages(self, times: np.ndarray) -> _Stages:
        """A run of the equations at the stages of the steps that lead to these times."""
        if isinstance(self.steps, InterpolatedSteps):
            return _stages(self.equations, self.steps.through(times))
        if self._stages is None:
            self._stages = _stages(self.equations, self.steps)
        return self._stages

    def rows(self, times: np.ndarray) -> Any:
        """States at plain times, as rows."""
        times = np.asarray(times, dtype=float)
        if self.recorded:
            steps = self.steps
            if isinstance(steps, InterpolatedSteps):
                steps = steps.through(times)
                steps.keep_slopes(_slopes(self.equations, steps))
            where, weights = steps.weights(times)
            rows = steps.march(self.equations, self.start, where, weights)
            return rows + (steps.row_values(where, weights) - value_of(rows))
        stages = self.stages(times)
        where, weights = stages.steps.weights(times)
        operands = [self.start, *stages.outside.values()]
        if not holds_tracked(operands):
            return stages.steps.row_values(where, weights)
        return apply(
            trajectory.primitive, operands, (_Rows(self.equations, stages, where, weights),)
        )


trajectory = op_of_calls(
    "trajectory",
    "Rows of a solution of differential equations, by its beginning and all that they use.",
    pushes=True,
)


class _Rows:
    """The rule of some rows of a path: see the module."""

    __slots__ = ("equations", "nodes", "stages", "weights", "where")

    def __init__(
        self, equations: _Equations, stages: _Stages, where: np.ndarray, weights: np.ndarray
    ) -> None:
        self.equations, self.stages, self.where, self.weights = equations, stages, where, weights
        self.nodes = list(stages.outside)

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.stages.steps.row_values(self.where, self.weights)

    def march(self, start: Any) -> Any:
        """The rows by steps that are taken again, if the equations still say what they said."""
        steps = self.stages.steps
        with self.equations.held.again():
            some = (
                sorted({0, self.stages.many // 2, self.stages.many - 1}) if self.stages.many else []
            )
            with no_grad():
                now = [
                    np.asarray(
                        value_of(
                            self.equations(float(self.stages.times[i]), self.stages.places[:, i])
                        )
                    )
                    for i in some
                ]
            if some and not _agree(np.stack(now, 1), self.stages.slopes[:, some]):
                raise _changed()
            return steps.march(self.equations, start, self.where, self.weights)

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if isinstance(g, Tensor):
            own, found = pulled(self.march, (xs[0],), g)
            return [found.get(node) for node in (*own, *self.nodes)]
        stages = self.stages
        start, slopes = stages.linear.pull(np.asarray(g), self.where, self.weights)
        if not self.nodes:
            return [start]
        found = stages.pull(slopes.T)[1]
        return [start, *(found.get(node) for node in self.nodes)]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        outside = dict(zip(self.nodes, given[1:], strict=True))
        if any(isinstance(x, Tensor) for x in (*xs, *given)):
            return pushed(self.march, (xs[0],), (given[0],), outside, True)
        wide = [None if t is None else np.asarray(t)[None] for t in given]
        return self.push_together(wide, xs)[0]

    def push_together(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        stages, steps = self.stages, self.stages.steps
        width = next(len(t) for t in given if t is not None)
        n = steps.y.shape[1]
        start = np.zeros((n, width)) if given[0] is None else np.asarray(given[0]).T
        outside = {node: t for node, t in zip(self.nodes, given[1:], strict=True) if t is not None}
        forcing = stages.push(outside, width)  # (directions, n, stages)
        rows = stages.linear.push(start, np.transpose(forcing, (2, 1, 0)), self.where, self.weights)
        return np.moveaxis(rows, -1, 0)


def _changed() -> GraphError:
    return GraphError(
        "the function of solve_ivp was run again for the derivative of the solution, and gave something else: a value that the "
        "function reads has changed since, or it draws random numbers. Give it in args, or copy it before.",
        name="changed-since",
    )


class _Stages:
    """One run of the equations at all stages of all steps, and what is linear there."""

    def __init__(
        self, run: _Run, steps: Any, times: np.ndarray, places: np.ndarray, slopes: np.ndarray, equations: _Equations
    ) -> None:  # fmt: skip
        self.run, self.steps = run, steps
        self.times, self.places, self.slopes, self.many = times, places, slopes, len(times)
        self.outside = outside_of(run.own.tape.code, run.nodes)
        """Per tracked tensor that the equations use, its node: a tensor that stands for it."""
        output = run.output
        self.node = output._node if isinstance(output, Tensor) else None
        self._linear: Any = None
        self.pattern = equations.pattern if steps.table.implicit else None
        """Where the Jacobians are not zero, if they are sparse and the method is implicit."""

    def pull(self, g: np.ndarray) -> tuple[np.ndarray, dict[Any, Any]]:
        """Cotangents of the places and of the nodes outside, from those of the slopes (n, stages)."""
        n = self.steps.y.shape[1]
        if self.node is None:
            return np.zeros((n, self.many)), {}
        code = self.run.own.tape.code
        pending: dict[Any, Any] = {self.node: g}
        leaves: dict[Any, Any] = {}
        sweep.sweep(code, len(code) // STRIDE - 1, pending, leaves, {}, None, False)
        found = {**pending, **leaves}
        places = found.get(self.run.nodes[0])
        return np.zeros((n, self.many)) if places is None else np.asarray(places), found

    def push(self, outside: dict[Any, Any], width: int) -> np.ndarray:
        """Tangents of the slopes (directions, n, stages), from those of the nodes outside."""
        shape = (width, self.steps.y.shape[1], self.many)
        if self.node is None or not outside:
            return np.zeros(shape)
        tangents, tape = dict(outside), self.run.own.tape
        with tape.held():
            start, stop = tape.position(self.run.first), tape.position(self.run.last)
            sweep.push(tape.code, start, stop, tangents, False, width)
        found = tangents.get(self.node)
        return np.zeros(shape) if found is None else np.asarray(found)

    def _along(self, directions: np.ndarray) -> np.ndarray:
        """Derivatives of the slopes (directions, n, stages) by the places, along directions (directions, n) that all stages share.

        A run one by one has thousands of entries, of few numbers each: so directions go up the tape together, as many as memory allows,
        and tangents that no later entry reads are dropped on the way.
        """
        n, tape = self.steps.y.shape[1], self.run.own.tape
        made = np.zeros((len(directions), n, self.many))
        if self.node is None or not self.many:
            return made
        width = max(1, min(len(directions), NUMBERS_AT_ONCE // (n * self.many)))
        with tape.held():
            stretches = self._stretches(width)
            for k in range(0, len(directions), width):
                some = directions[k : k + width]
                tangents = {self.run.nodes[0]: np.repeat(some[:, :, None], self.many, axis=2)}
                for start, stop, dead in stretches:
                    sweep.push(tape.code, start, stop, tangents, False, len(some))
                    for slot in dead:
                        tangents.pop(slot, None)
                found = tangents.get(self.node)
                if found is not None:
                    made[k : k + width] = found
        return made

    def _stretches(self, width: int) -> list[tuple[int, int, list[Any]]]:
        """Stretches of the run's entries: first, one after the last, and the nodes that no entry behind reads."""
        tape = self.run.own.tape
        code = tape.code
        start, stop = tape.position(self.run.first), tape.position(self.run.last)
        last: dict[Any, int] = {}
        cuts, numbers = [start], 0
        for i in range(start, stop):
            k = i * STRIDE
            last[code[k + SLOT]] = i
            last.update(dict.fromkeys(sweep.operands(code, k), i))
            numbers += width * int(np.size(code[k + OUT]))
            if numbers > NUMBERS_AT_ONCE or i == stop - 1:
                cuts.append(i + 1)
                numbers = 0
        last.pop(self.node, None)
        dead: list[list[Any]] = [[] for _ in cuts[1:]]
        for node, i in last.items():
            dead[int(np.searchsorted(cuts, i, "right")) - 1].append(node)
        return [(*pair, nodes) for pair, nodes in zip(pairwise(cuts), dead, strict=True)]

    def _sparse(self) -> tuple[Any, np.ndarray]:
        """The Jacobians at all stages on their pattern: that, by rows, and the entries (of the pattern, stages)."""
        pattern = self.pattern.tocsr()
        rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        colours = colouring.columns(pattern)
        seeds = np.arange(colours.max(initial=-1) + 1)[:, None] == colours
        entries = self._along(seeds.astype(float))[colours[pattern.indices], rows]
        probe = np.random.default_rng(0).uniform(0.5, 1.5, (pattern.shape[0], self.many))
        found, expected, size = np.zeros_like(probe), self.pull(probe)[0], np.zeros_like(probe)
        np.add.at(found, pattern.indices, entries * probe[rows])
        np.add.at(size, pattern.indices, np.abs(entries) * probe[rows])
        if np.any(np.abs(found - expected) > 1e-8 * (size + np.abs(expected))):
            raise NotDifferentiable(
                "solve_ivp was asked for the derivative of a solution whose Jacobian has other entries at some times than at the first: "
                "where fun branches. Give jac, or write the branches with np.where.",
                name="wrong-pattern",
            )
        return pattern, entries

    @property
    def linear(self) -> Any:
        """The linearised steps, made when they are first needed."""
        if self._linear is None and self.pattern is not None:
            self._linear = SparseRadau(self.steps, *self._sparse())
        if self._linear is None:
            jacobians = self._along(np.eye(self.steps.y.shape[1])).T
            self._linear = self.steps.linearised(jacobians)  # type: ignore[attr-defined]
        return self._linear


def _stages(equations: _Equations, steps: Any) -> _Stages:
    """A run at all stages: together where that gives the same, else one by one."""
    times, places, slopes = steps.points()
    if slopes is None:
        slopes = _slopes(equations, steps)
    if isinstance(steps, CollocatedSteps):
        steps.keep_slopes(slopes)
    rates = (
        steps.slopes.reshape(len(times), len(places)).T
        if isinstance(steps, RungeKuttaSteps)
        else None
    )
    with enable_grad(), np.errstate(all="ignore"):
        try:
            run = _Run(
                lambda y: equations.less_mass(equations.together(times, y), rates),
                (places,), {}, (0,), "solve_ivp",
            )  # fmt: skip
            made = _Stages(run, steps, times, places, slopes, equations)
            if _agree(value_of(run.output), slopes, TOGETHER) and _derivatives_agree(
                made, equations, times, places, rates
            ):
                return made
        except Exception:  # whatever a function of single states makes of many
            pass
        run = _Run(
            lambda y: equations.less_mass(equations.one_by_one(times, y), rates),
            (places,), {}, (0,), "solve_ivp",
        )  # fmt: skip
    if not _agree(value_of(run.output), slopes):
        raise _changed()
    return _Stages(run, steps, times, places, slopes, equations)


def _slopes(equations: _Equations, steps: Any) -> np.ndarray:
    """The slopes at all stages, as columns."""
    times, places, _ = steps.points()
    rows = np.ascontiguousarray(places.T)
    with no_grad(), np.errstate(all="ignore"):
        slope = equations.quick
        found = [slope(float(t), y) for t, y in zip(times, rows, strict=True)]
    return np.array(found, places.dtype).reshape(rows.shape).T


def _agree(found: Any, expected: np.ndarray, parts: float = CHECKED) -> bool:
    """Whether two sets of numbers are the same but for rounding."""
    found = np.asarray(found)
    if found.shape != expected.shape:
        return False
    near = parts * np.abs(expected).max(axis=-1, keepdims=True, initial=0.0)
    return bool(np.all((np.abs(found - expected) <= near) | (np.isnan(found) & np.isnan(expected))))


def _derivatives_agree(
    stages: _Stages, equations: _Equations, times: np.ndarray, places: np.ndarray, rates: Any
) -> bool:
    """Whether cotangents of the run at all stages, of two of them, are those of runs at the two, and reach no other."""
    n = len(places)
    weights = 1.0 + np.arange(n) / n
    seed, expected = np.zeros((n, stages.many)), np.zeros((n, stages.many))
    outside: dict[Any, Any] = {}
    for i in {stages.many // 3, stages.many - 1} if stages.many else ():
        seed[:, i] = weights

        def value(y: Any, i: int = i) -> Any:
            return equations.less_mass(equations(float(times[i]), y), rates[:, i])

        nodes, alone = pulled(value, (places[:, i],), weights)
        own = alone.pop(nodes[0], None)
        expected[:, i] = 0.0 if own is None else own
        for node, g in alone.items():
            outside[node] = outside[node] + g if node in outside else np.asarray(g)
    together, found = stages.pull(seed)
    pairs = [(together, expected)]
    for node in stages.outside:
        mine, theirs = np.asarray(found.get(node, 0.0)), np.asarray(outside.get(node, 0.0))
        pairs.append(tuple(np.broadcast_arrays(mine, theirs)))  # type: ignore[arg-type]
    return all(_agree(x.reshape(1, -1), y.reshape(1, -1), TOGETHER) for x, y in pairs)


def _demand_continuous(
    state: _State, times: Any, asked: Any, judges: Any, dense_output: bool, mass_matrix: Any
) -> None:
    """Raise NotDifferentiable for what the continuous adjoint is not asked for."""
    what = (
        "events" if judges else "dense_output=True" if dense_output else "mass_matrix" if mass_matrix is not None
        else "tracked times" if holds_tracked([*times, asked]) else "a complex state" if state.dtype.kind == "c"
        else "dual tensors or forward mode" if LEVEL.get() is not None else ""
    )  # fmt: skip
    if what:
        raise NotDifferentiable(
            f'solve_ivp(adjoint="continuous") was asked for derivatives with {what}, but it gives states at plain times, in reverse mode, '
            'by y0 and what fun uses. Use adjoint="discrete".'
        )


def _with_adjoint(
    result: OdeResult, equations: _Equations, method: type, options: dict[str, Any], ends: Sequence[float]
) -> OdeResult:  # fmt: skip
    """The result, whose states are differentiable by the adjoint equations."""
    state = equations.state
    when = np.asarray(result.t, dtype=float).reshape(-1)
    if not len(when):
        return _arranged(result, equations)
    settings = _with_jacobian(method, equations, options, equations.args)
    rule = ContinuousAdjoint(
        equations,
        lambda places: _stages(equations, places),
        _tangent(equations, equations.args),
        method,
        settings,
        (ends[0], state.value),
        when,
        np.ascontiguousarray(np.asarray(result.y).T),
    )
    operands = [state.vector, *rule.outside.values()]
    if not holds_tracked(operands):
        return _arranged(result, equations)
    rows = apply(trajectory.primitive, operands, (rule,))
    result.y = state.split(np.transpose(rows), (len(when),))
    return result


# ---------------------------------------------------------------------------------------------------------- the result


def _arranged(result: OdeResult, equations: _Equations) -> OdeResult:
    """SciPy's result, in the form of the state."""
    state = equations.state
    if result.sol is not None:
        result.sol = _Arranged(result.sol, equations)
    if state.simple:
        return result
    result.y = (
        state.split(result.y, np.shape(result.y)[1:]) if len(np.shape(result.y)) == 2 else result.y
    )
    if result.y_events is not None:
        result.y_events = [
            state.split(np.asarray(y).reshape(len(y), state.size).T, (len(y),))
            for y in result.y_events
        ]
    return result


class _Arranged:
    """SciPy's interpolant, in the form of the state; times may be tracked."""

    def __init__(self, sol: Any, equations: _Equations) -> None:
        self._sol, self._equations = sol, equations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sol, name)

    def __call__(self, t: Any) -> Tree:
        split = self._equations.state.split
        if not holds_tracked(t):
            return split(self._sol(value_of(t)), np.shape(t))
        plain = np.asarray(value_of(t), dtype=float)
        rows = _moved_to(self._equations.slope, self._sol(plain.reshape(-1)).T, gathered(t))
        return split(rows[0] if np.ndim(t) == 0 else np.transpose(rows), np.shape(t))


class _Interpolant:
    """The solution between the steps, as a function of time and of what the path depends on."""

    def __init__(self, path: _Path, state: _State, ts: np.ndarray) -> None:
        self._path, self._state, self.ts = path, state, ts
        self.t_min, self.t_max = float(np.min(ts)), float(np.max(ts))

    def __call__(self, t: Any) -> Tree:
        """The states at a time, or at times, along a last axis."""
        t = gathered(t)
        if np.ndim(t) > 1:
            raise ValueError("`t` must be a float or a 1-D array.")
        times = np.atleast_1d(np.asarray(value_of(t), dtype=float))
        rows = _at(self._path, times, np.reshape(t, (-1,)))
        return self._state.split(rows[0] if np.ndim(t) == 0 else np.transpose(rows), np.shape(t))


def _at(path: _Path, times: np.ndarray, tracked: Any) -> Any:
    """Rows at times that may be tracked."""
    rows = path.rows(times)
    return _moved_to(path.equations.slope, rows, tracked) if holds_tracked(tracked) else rows


def _moved_to(equations: Any, rows: Any, tracked: Any) -> Any:
    """Rows at the values of times, as functions of those times."""
    if not len(rows):
        return rows
    tracked = np.reshape(tracked, (-1,))
    times = np.asarray(value_of(tracked), dtype=float)
    return np.stack([
        moved(equations, rows[i], float(t), tracked[i] - float(t)) for i, t in enumerate(times)
    ])  # fmt: skip


class _Result:
    """What SciPy found, with tracked values in place of plain ones."""

    def __init__(
        self,
        result: OdeResult,
        path: _Path,
        judges: Sequence[Any],
        args: Any,
        times: Sequence[Any],
        asked: Any,
    ) -> None:
        self.result, self.path, self.judges, self.args = result, path, judges, args or ()
        self.times, self.asked = times, asked

    def made(self, dense_output: bool) -> OdeResult:
        """SciPy's result with tracked solution, times of events and interpolant."""
        result, path = self.result, self.path
        state = path.equations.state
        when = np.asarray(result.t, dtype=float).reshape(-1)
        found = [np.asarray(t, dtype=float) for t in result.t_events or []]
        whole = (
            path.rows(np.concatenate([when, *found]))
            if len(when) or found
            else np.zeros((0, state.size))
        )
        rows, start = whole[: len(when)], len(when)
        t_events, y_events = [], []
        for judge, times in zip(self.judges, found, strict=True):
            t, y = self._events(judge, times, whole[start : start + len(times)])
            start += len(times)
            t_events.append(t)
            y_events.append(y)
        tracked = self._tracked_times(when, found, t_events)
        if tracked is not None:
            rows = np.stack([
                rows[i] if tracked[i] is None else moved(path.equations.slope, rows[i], float(t), tracked[i] - float(t))
                for i, t in enumerate(when)
            ])  # fmt: skip
            result.t = np.stack(
                [
                    wrap(np.asarray(t)) if x is None else x
                    for t, x in zip(when, tracked, strict=True)
                ]
            )
        if len(when):
            result.y = state.split(np.transpose(rows), (len(when),))
        if result.t_events is not None:
            result.t_events = t_events
            result.y_events = (
                y_events
                if state.simple
                else [state.split(np.transpose(y), (len(y),)) for y in y_events]
            )
        if dense_output:
            result.sol = _Interpolant(path, state, np.asarray(result.sol.ts))
        return result

    def _events(self, judge: Any, times: np.ndarray, rows: Any) -> tuple[Any, Any]:
        """Times of an event and the states there, tracked."""
        if not len(times):
            return times, np.zeros((0, self.path.equations.state.size))
        equations = self.path.equations
        judge_of = _vector_event(judge, equations.state, self.args)
        functions = [equations.fun, judge]
        if LEVEL.get() is None:
            found = crossings(judge_of, equations.slope, times, rows, functions)
        else:
            found = _by_newton(judge_of, equations.slope, times, rows, functions)
        places = _moved_to(equations.slope, rows, found) if isinstance(found, Tensor) else rows
        return found, places

    def _tracked_times(
        self, when: np.ndarray, found: Sequence[np.ndarray], t_events: Sequence[Any]
    ) -> Any:
        """For each time of the result the tracked one that it is, or None; None for all if there is none."""
        tracked: list[Any] = [None] * len(when)
        if self.asked is not None:
            if holds_tracked(self.asked):
                tracked = [self.asked[i] for i in range(len(when))]
        elif len(when):
            if holds_tracked(self.times[0]):
                tracked[0] = self.times[0] * 1.0
            if self.result.status == 0 and holds_tracked(self.times[1]):
                tracked[-1] = self.times[1] * 1.0
            if self.result.status == 1:
                for plain, times in zip(found, t_events, strict=True):
                    if len(plain) and plain[-1] == when[-1] and isinstance(times, Tensor):
                        tracked[-1] = times[len(plain) - 1]
        return tracked if any(t is not None for t in tracked) else None


__all__ = ["solve_ivp"]
