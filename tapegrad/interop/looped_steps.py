"""`solve_ivp` outside of `tg.compile`, whose steps are one loop of a program nevertheless.

Algorithm: the call is compiled by itself (traced_steps.py, traced_radau.py, traced_bdf.py) once calls like it have taken as long as that
does (promotion.py says why). Each call of a user's loss makes its equations anew, as `lambda t, y: f(t, y, p)`: so a program belongs to
the code of the equations, and the numbers and arrays that they close over are its arguments (`_taken`).

Data: a `Loop` for each key, which is code, statics and settings; it counts what calls cost, and then holds the program.
Invariant: a result by a program is SciPy's to rounding; where there is none, or it raises, SciPy's code gives the result.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core import logs, storage
from ..core.closures import content
from ..core.dual import LEVEL
from ..core.tensor import Tensor, value_of
from ..face.standing import original
from .promotion import close, watched

PRICE = {False: 1.5, True: 6.0}
"""Seconds of processor time that compiling takes, for an explicit method and for Radau or BDF, its derivative included."""

DERIVATIVE = 3.0
"""How many times a solution's own time are counted for it where it is differentiated."""

MOST_UNKNOWNS = 100
"""Unknowns up to which stiff steps become a program: its matrices are dense."""

MOST_BYTES = 4096
"""Size of the largest array of whole numbers that belongs to a key."""

MOST_TRACES = 6
"""How often one program may be made anew, where the number of events changes from call to call."""

MOST_LOOPS = 64
"""Keys that are remembered; the oldest goes first."""

LIBRARIES = ("numpy", "scipy", "tapegrad", "math", "operator")


class Loop:
    """Calls of one kind: what they have cost, and their program once there is one."""

    def __init__(self, program: Callable[..., Any], price: float) -> None:
        self.program, self.price, self.spent, self.why = program, price, 0.0, ""
        self.compiled: Any = None
        self.calls = self.traces = 0

    def judge(self, functions: Sequence[Any], force: bool) -> None:
        """Compile, or note in `why` that the equations, or events, do more than compute."""
        from ..compiler import compile
        from .effects import effect

        reasons = (effect(f) for f in functions)
        self.why = "" if force else (next(filter(None, reasons), None) or watched() or "")
        if not self.why:
            self.compiled = compile(self.program)

    def give_up(self, why: str) -> None:
        """Leave all later calls to SciPy's code."""
        self.why, self.compiled = why, None
        logs.tell("solve_ivp stays with Python's steps: %s", why)


_loops: dict[Any, Loop] = {}


class Call:
    """One call of `solve_ivp` that a program could serve: its `loop`, and what that is given."""

    def __init__(self, loop: Loop, given: list[Any], functions: Sequence[Any], force: bool) -> None:
        self.loop, self.given, self.functions, self.force = loop, given, functions, force
        self.start = time.perf_counter()

    def rows(self) -> Any:
        """What `solve` of `call_of` gives, by the program; None where SciPy's code has to give the result."""
        loop = self.loop
        if self.force and loop.compiled is None and not loop.why:
            loop.judge(self.functions, True)
        if loop.compiled is None:
            return None
        try:
            with np.errstate(all="ignore"):
                found = loop.compiled(*self.given)
        except RuntimeError:  # the solution ends too early: SciPy's result says how far it went
            return None
        except Exception as problem:
            if self.force:
                raise
            loop.give_up(f"{type(problem).__name__}: {problem}")
            return None
        if loop.traces > MOST_TRACES and not self.force:
            loop.give_up("the number of events changes too often")
        return found

    def done(
        self, expected: Sequence[np.ndarray], tracked: bool, parts: Callable[[Any], Sequence[Any]]
    ) -> None:
        """A solution was found by SciPy's code: compile if such solutions have taken long enough, and compare.

        `parts` gives, of what the program found, the arrays that are to be those `expected`.
        """
        loop = self.loop
        if loop.why or loop.compiled is not None:
            return
        spent = time.perf_counter() - self.start
        loop.spent += spent * (DERIVATIVE if tracked else 1.0) if loop.calls else 0.0
        loop.calls += 1
        if loop.spent < loop.price:
            return
        try:
            loop.judge(self.functions, False)
        except Exception as problem:  # no judgement about the user's function may stop the solution
            loop.give_up(f"{type(problem).__name__} while the equations were looked at: {problem}")
        found = self.rows()
        if found is None:
            return
        pairs = zip(map(value_of, parts(found)), expected, strict=True)
        if not all(np.size(x) == np.size(y) and (not np.size(y) or close(x, y)) for x, y in pairs):
            loop.give_up("the program computed something else")
        elif self._slower(spent):
            loop.give_up("the program takes longer")
        else:
            fun = self.functions[0]
            logs.tell("solve_ivp has compiled the steps for %s", getattr(fun, "__name__", fun))

    def _slower(self, spent: float) -> bool:
        """Whether the program takes longer than the `spent` seconds that SciPy's code took: where that solves with sparse matrices."""
        start = time.perf_counter()
        self.rows()
        return time.perf_counter() - start > spent


def call_of(
    functions: Sequence[Any], args: Sequence[Any], mode: Any, stiff: bool, key: tuple[Any, ...], given: Sequence[Any],
    solve: Callable[..., Any],
) -> Call | None:  # fmt: skip
    """A call that a program could serve; None where the equations, or who looks at them, do not let it.

    `functions` are the equations, and events. `solve(functions, args, *given)` is what is compiled. It must read nothing else that differs
    between calls of one `key`.
    """
    if mode is False or LEVEL.get() is not None or storage.tracing.get() is not None:
        return None
    leaves: list[Any] = []
    try:
        own, rebuilt = _taken((tuple(functions), tuple(args)), leaves, [])
        whole = (*key, own)
        hash(whole)
    except (_Apart, TypeError):
        return None
    if not all(
        isinstance(value_of(x), np.ndarray | np.generic | float | int) for x in (*leaves, *given)
    ):
        return None
    loop = _loops.get(whole)
    if loop is None:
        if len(_loops) >= MOST_LOOPS:
            del _loops[next(iter(_loops))]

        def program(*values: Any) -> Any:
            """The solution, as a function of all numbers that it depends on."""
            loop.traces += 1
            n = len(given_count)
            functions, args = rebuilt(iter(values[n:]))
            return solve(functions, args, *values[:n])

        given_count = range(len(given))
        loop = _loops[whole] = Loop(program, PRICE[stiff])
    return Call(loop, [*given, *leaves], functions, mode is True)


class _Apart(Exception):
    """A value is neither an argument of a program nor part of its key."""


class _Same:
    """An object by its identity, as part of a key; it is kept."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def _taken(
    value: Any, leaves: list[Any], within: list[Any]
) -> tuple[Any, Callable[[Iterator[Any]], Any]]:
    """A value's part of a key, and the function that makes it again from later leaves; its numbers and arrays go to `leaves`.

    Raises _Apart where later values could differ in something else.
    """
    value = original(
        value
    )  # a helper that stands for the user's in a transform: the program has its own
    kind = type(value)
    if kind is float or isinstance(value, Tensor | np.floating | np.complexfloating) or (
        isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    ):  # fmt: skip
        leaves.append(value)
        return "leaf", next
    if (
        value is None
        or kind in (bool, int, str, bytes, complex)
        or isinstance(value, np.integer | np.bool_)
    ):
        return (kind, value), lambda _: value
    if kind is np.ndarray and value.dtype.kind in "iub" and value.nbytes <= MOST_BYTES:
        copy = value.copy()
        return ("array", copy.dtype.str, copy.shape, copy.tobytes()), lambda _: copy
    if kind in (tuple, list):
        keys, makers = _all(value, leaves, within)
        return (kind, keys), lambda given: kind([make(given) for make in makers])
    if kind is dict:
        keys, makers = _all(value.values(), leaves, within)
        names = tuple(value)
        return (dict, names, keys), lambda given: {n: make(given) for n, make in zip(names, makers, strict=True)}  # fmt: skip
    if isinstance(value, ModuleType | BuiltinFunctionType | np.ufunc | type) or _of_a_library(
        value
    ):
        return _Same(value), lambda _: value
    if kind is functools.partial:
        keys, makers = _all((value.func, value.args, value.keywords), leaves, within)

        def partial(given: Iterator[Any]) -> Any:
            func, args, keywords = (make(given) for make in makers)
            return functools.partial(func, *args, **keywords)

        return (kind, keys), partial
    if kind is FunctionType:
        return _function(value, leaves, within)
    raise _Apart


def _all(values: Any, leaves: list[Any], within: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    pairs = [_taken(x, leaves, within) for x in values]
    return tuple(key for key, _ in pairs), [make for _, make in pairs]


def _of_a_library(value: Any) -> bool:
    """Whether a callable belongs to a library, whose functions are the same for all calls."""
    name = getattr(value, "__module__", None)
    return callable(value) and isinstance(name, str) and name.partition(".")[0] in LIBRARIES


def _function(
    f: Any, leaves: list[Any], within: list[Any]
) -> tuple[Any, Callable[[Iterator[Any]], Any]]:
    """The same of a function: its code, and what it closes over."""
    if any(f is g for g in within):
        raise _Apart  # it closes over itself
    held = [content(cell) for cell in f.__closure__ or ()]
    keys, makers = _all((*held, f.__defaults__, f.__kwdefaults__), leaves, [*within, f])

    def made(given: Iterator[Any]) -> Any:
        *cells, defaults, names = (make(given) for make in makers)
        again = FunctionType(
            f.__code__, f.__globals__, f.__name__, defaults, tuple(map(CellType, cells))
        )
        again.__kwdefaults__ = names
        return again

    return (f.__code__, _Same(f.__globals__), keys), made


__all__ = ["MOST_UNKNOWNS", "Call", "call_of"]
