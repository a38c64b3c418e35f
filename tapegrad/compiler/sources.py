"""Sources: functions that would make a long trace, read from their source as one program of the form.

A program by entries (a factorisation, shortest paths, tables of dynamic programming) takes some microseconds in a trace for each
operation, and its operations grow with the cube of its size. Once `MOST` entries, or fewer parts of arrays, were read and stored (`Long`),
the function is traced anew with `Sources`: each function of the user's that a transform or the trace itself runs is read by the front end
of `tg.njit` for the shapes and settings at hand, and is then one call in the graph, with the form's derivative (`triangles.Formed`).

Invariant: Python judges. The function is run on the plain values as well, and where the program's value is another one, or the function
lies outside of the form, it is traced as it stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import handlers, logs, seams, storage
from ..core.packing import unpacked
from ..core.primitive import apply
from ..core.tensor import Tensor, wrap
from ..face.reaching import is_users
from ..face.standing import original
from ..program.arrays import Outside
from .tracing import Trace, Traced
from .triangles import Formed, entry

MOST = 6_000
"""Entries that are read and stored one by one in a trace before sources are read: recording these takes as long as to compile a source."""
CLOSE = 1e-9
"""Within how much of its largest entry the program's value has to be Python's: sums are taken in another order."""


class Sources:
    """What stands for functions in one trace."""

    def __init__(self) -> None:
        self.used = False
        """Whether the trace has a call of a program that was read."""

    def instead(self, f: Any, run: Callable[..., Any]) -> Any:
        """What is called for `f`, which runs as `run` where its source has no program."""
        f = original(f)
        return _Read(self, f, run) if is_users(f) else run


class _Read:
    """A function that is read from its source when it is called."""

    def __init__(self, sources: Sources, f: Any, run: Callable[..., Any]) -> None:
        self.sources, self.f = sources, f
        self.func = run
        """As `functools.partial` calls it; `adoption.fills` asks."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = storage.tracing.get()
        try:
            if type(trace) is not Trace or trace.sources is not self.sources or trace.trying:
                raise Outside("The call is part of another trace.")
            found = _Call(trace, self.f, args, kwargs).result()
        except Exception as why:
            handlers.hand_on(why)
            logs.tell("%s is traced, not read from its source: %s", self.f.__qualname__, why)
            return self.func(*args, **kwargs)
        self.sources.used = True
        return found


class _Call:
    """A call of a function in a trace: arguments with values of the trace, and settings."""

    def __init__(self, trace: Trace, f: Any, args: Any, kwargs: Any) -> None:
        """Tell arrays and numbers of the trace, by parameter, from settings; Outside where an argument is neither."""
        self.trace, self.f = trace, f
        self.given: dict[str, Any] = {}
        self.fixed: dict[str, Any] = {}
        bound = inspect.signature(f).bind(*args, **kwargs)
        bound.apply_defaults()
        for name, x in bound.arguments.items():
            value = x._value if type(x) is Tensor else x
            if type(value) is Traced or isinstance(value, np.ndarray):
                if value.dtype != np.float64 or (type(value) is Traced and value.home is not trace):
                    raise Outside(f"{name} is no array of float64 of this trace.")
                self.given[name] = x
            elif type(value) in (int, bool, float, str, type(None)) or inspect.isfunction(value):
                self.fixed[name] = value
            else:
                raise Outside(f"{name} is neither array, number nor function.")

    def result(self) -> Any:
        """What the call gives in the trace, connected to the tensors that it was given."""
        values = {n: _plain(x) for n, x in self.given.items()}
        read = seams.sourced(self.f, values, self.fixed)
        given: list[Traced] = []
        by: list[int] = []
        for k, x in enumerate(self.given.values()):
            value = x._value if type(x) is Tensor else x
            given.append(value if type(value) is Traced else self.trace.constant(value))
            if type(x) is Tensor and x._node is not None:
                by.append(k)
        for constant in read.constants:
            given.append(self.trace.constant(self.trace._split(constant, [], [])))
        made = Formed(_Program(read), given, by)
        self._demand_pythons(made, values)
        if by:
            tensors = list(self.given.values())
            whole = apply(entry.primitive, [tensors[k] for k in by], (made,))
            pieces = unpacked(whole, made.kinds) if len(made.kinds) > 1 else [whole]
        else:
            pieces = list(map(wrap, made.called()))
        return pieces[0] if read.alone else tuple(pieces)

    def _demand_pythons(self, made: Formed, values: dict[str, Any]) -> None:
        """Raise where the program's value is not what Python computes."""
        copies = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in values.items()}
        with np.errstate(all="ignore"):
            found = self.f(**copies, **self.fixed)
            theirs_all = found if isinstance(found, tuple) else (found,)
            for mine, theirs in zip(made.plain(), theirs_all, strict=True):
                top = np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))
                if np.shape(mine) != np.shape(theirs) or np.asarray(theirs).dtype != np.float64:
                    raise Outside("Python's result has another shape or dtype.")
                if not np.allclose(mine, theirs, rtol=0.0, atol=CLOSE * top, equal_nan=True):
                    raise Outside("Python's result is another one.")


class _Program:
    """A source as `triangles.FormCall` takes it."""

    def __init__(self, read: Any) -> None:
        self.key: object = object()
        self.wanted: Sequence[Any] = range(read.results)
        self.program = read.program


def _plain(x: Any) -> Any:
    """A value of the trace as NumPy has it in this run; a number for an array without axes."""
    value = x._value if type(x) is Tensor else x
    value = value.seen() if type(value) is Traced else value
    return value if np.ndim(value) else np.float64(value)
