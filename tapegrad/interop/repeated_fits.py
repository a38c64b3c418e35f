"""Repeated fits: what `curve_fit` knows of a model from one fit to the next, so that each of many small fits costs little.

The eager fits of a model are paid for like the evaluations of one solve (promotion.py): once they have taken as long as compiling does,
the model is compiled with the data as arguments. From then on a fit runs two programs, one for the residuals and one for their Jacobian.

Four things keep a program from being stale:

- Only plain functions are compiled whose code does nothing but compute, and which read nothing large or nested from outside (`effect` with
  `others_act`). This is judged again before each trace.
- The guards of `tg.compile` look at each call whether what the function reads has changed.
- A function with other code, defaults or variables is fitted without the program.
- The residuals are compared with those of the function itself, at the start and at the solution of each fit. A fit where these differ is
  done again by the function itself.

Invariant: a fit returns what the eager fit would, to rounding, and raises only what that raises. A program is freed with its function.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ..core import logs
from ..core.tensor import Tensor
from . import promotion
from .effects import effect

MOST_DROPPED = 4
"""Programs of a model that may be dropped because something changed that the model reads; a model that changes more often stays eager."""

Solve = Callable[[Callable[..., Any], tuple[Any, ...]], Any]
"""A fit of residuals, given the arguments that follow the parameters."""


class _NotCompiled(Exception):
    """Why a model must not be traced."""


class _Fits:
    """What is known of the fits of one function with so many parameters."""

    def __init__(self) -> None:
        self.count = 0
        self.spent = 0.0
        self.price = 0.0  # not asked for yet
        self.credit = 0.0
        self.copy: Any = None
        self.compiled: Any = None
        self.fresh = False  # whether the programs are still to be traced
        self.why = ""  # these fits stay eager for good

    def fitted(
        self,
        f: FunctionType,
        own: Callable[..., Any],
        make: Callable[..., Any],
        start: np.ndarray,
        data: tuple[Any, ...],
        solve: Solve,
    ) -> Any:
        """A fit of `f`, eager or by its programs.

        `own`: residuals as a function of parameters; `make(f)`: those of parameters and `data`.
        """
        programs = None if self.why else self.compiled
        if programs is None and not self.why and self._is_worth_it(f, own, start):
            programs = self._compile(f, make)
        if programs is not None and _is_same(self.copy, f):
            return self._by(programs, own, start, data, solve)
        begin = time.perf_counter()
        fit = solve(own, ())
        if self.count:  # the first fit imports, and loads what it needs
            self.spent += time.perf_counter() - begin
        self.count += 1
        return fit

    def _is_worth_it(self, f: FunctionType, own: Callable[..., Any], start: np.ndarray) -> bool:
        """Whether the eager fits of `f` have taken as long as compiling would."""
        if self.spent <= promotion.LEAST:
            return False
        if not self.price:
            why = self._look_at(f, own, start)
            if why is not None:
                self._stay(why)
                return False
        return self.spent >= promotion.PATIENCE * self.price

    def _look_at(self, f: FunctionType, own: Callable[..., Any], start: np.ndarray) -> str | None:
        """Why `f` stays eager; None, and its price, where `f` may be compiled."""
        try:
            if any(variable is f for variable in _variables(f)):
                return "it reads itself"
            if (why := effect(f, others_act=True)) is not None:
                return why
            recorded = promotion.entries(own, (start.copy(),))
        except Exception as problem:  # no judgement about the user's function may stop the fit
            return f"{type(problem).__name__} while it was looked at: {problem}"
        if recorded > promotion.MOST_ENTRIES:
            return f"it records {recorded} operations"
        self.price = promotion.PRICE + promotion.PRICE_OF_ENTRY * recorded
        return None

    def _compile(self, f: FunctionType, make: Callable[..., Any]) -> Any:
        """The residuals compiled, to be traced when they are first called."""
        from ..compiler import compile

        # The copy shares the variables of `f`, but does not keep `f` alive.
        copy = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        copy.__kwdefaults__ = f.__kwdefaults__

        def judge(programs: Any) -> None:
            why = effect(copy, others_act=True)
            if why is None and programs.dropped > MOST_DROPPED:
                why = f"what it reads keeps changing ({programs.changed})"
            if why is not None:
                raise _NotCompiled(why)

        self.copy, self.fresh, self.credit = copy, True, self.price
        self.compiled = compile(make(copy))
        self.compiled.programs.before_trace = judge
        logs.tell("curve_fit compiles %s after %d fits of it", f.__name__, self.count)
        return self.compiled

    def _by(
        self,
        programs: Any,
        own: Callable[..., Any],
        start: np.ndarray,
        data: tuple[Any, ...],
        solve: Solve,
    ) -> Any:
        """A fit by the programs, or by the function itself where the programs raise or compute something else."""
        begin = time.perf_counter()
        try:
            first = own(start.copy())
            with np.errstate(all="ignore"):  # said already, by the function itself
                why = _difference(programs(start.copy(), *data), first, data)
                if not why:
                    fit = solve(programs, data)
            if not why:
                why = _difference(fit.fun, own(fit.x.copy()), data)
        except Exception as problem:
            why = f"{type(problem).__name__} in its programs: {problem}"
        if why:
            fit = solve(own, ())  # raises where the programs are not at fault
            self._stay(why)
            return fit
        if self.fresh:  # tracing is what the price was for
            self.fresh = False
            return fit
        if not promotion.pays(self, self.count, begin):
            self._stay("its programs took longer than it did itself")
        return fit

    def _stay(self, why: str) -> None:
        self.why = why
        self.copy = self.compiled = None


_KNOWN: weakref.WeakKeyDictionary[Any, dict[int, _Fits]] = weakref.WeakKeyDictionary()
"""By functions, and for functions without variables of enclosing ones by their code: such a function may be made anew for each fit."""


def fits_of(f: Any, count: int, data: tuple[Any, ...], settings: dict[str, Any]) -> _Fits | None:
    """What is known of fits of `f` with `count` parameters; None where a fit would not be the same by programs, or is looked at."""
    if (
        type(f) is not FunctionType
        or settings.get("compile", "auto") != "auto"
        or any(map(callable, settings.values()))
        or not all(map(_is_plain, data))
        or (data[2] is not None and data[2].ndim > 1)
        or any(isinstance(variable, Tensor) for variable in _variables(f))
        or promotion.watched()
    ):
        return None
    by_count = _KNOWN.setdefault(f if f.__closure__ else f.__code__, {})
    return by_count.setdefault(count, _Fits())


def _is_plain(data: Any) -> bool:
    return data is None or (type(data) is np.ndarray and data.dtype == np.float64)


def _variables(f: FunctionType) -> list[Any]:
    """The values of the variables of enclosing functions; a variable that has none yet is left out."""
    found = []
    for cell in f.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    return found


def _is_same(copy: FunctionType, f: FunctionType) -> bool:
    """Whether a function is still what the copy was made of."""
    return (
        copy.__code__ is f.__code__
        and copy.__globals__ is f.__globals__
        and copy.__closure__ is f.__closure__
        and copy.__defaults__ is f.__defaults__
        and copy.__kwdefaults__ is f.__kwdefaults__
    )


def _difference(found: Any, expected: Any, data: tuple[Any, ...]) -> str:
    """Why residuals of the programs are not those of the function itself; "" where they agree but for rounding."""
    found, expected = np.asarray(found).ravel(), np.asarray(expected).ravel()
    _, y, sigma = data
    weighted = y.ravel() if sigma is None else (y / sigma).ravel()
    scale = math.sqrt(expected.dot(expected)) + math.sqrt(weighted.dot(weighted))
    if found.shape == expected.shape:
        apart = found - expected
        if math.sqrt(apart.dot(apart)) <= promotion.AGREEMENT * scale:
            return ""
    return "its programs computed something else"


__all__ = ["fits_of"]
