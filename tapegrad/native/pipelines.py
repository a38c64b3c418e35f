"""Numba's compiler as derivatives use it: without wrappers that nobody calls, and sooner.

A derivative is several times as long as its function, and the first call waits for its compilation. Type inference goes over a program
many times and asks each time for the type of `a * b` of two floats; here the answer is cached. Garbage collections take a tenth of the
time and find next to nothing, so they wait. Passes are left out if they look for constructs that generated code does not have: functions
inside functions, `with`, and mostly names whose bindings have several types, of which Numba gives each binding a name (`Uniform`).

Invariant: Numba compiles the same code as by itself.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

from numba.core import types
from numba.core.compiler import Compiler
from numba.core.errors import NumbaWarning
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing, WithLifting

_NEEDLESS = InlineClosureLikes, WithLifting, IRProcessing
"""The last one prepares for the others, and the rewriting behind them does it again."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Numba may compile inside: without its advice on how fast that will be, and without collections of garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            yield
    finally:
        if collects:
            _age()
            gc.enable()


_MANY = 50_000
"""New objects that Python would go over as soon as it may collect garbage again; less than a compilation makes."""
_compiled = 0


def _age() -> None:
    """After a compilation, count its objects among the old ones, whose garbage Python collects seldom; every fourth time do it here."""
    global _compiled
    if gc.get_count()[0] < _MANY or gc.get_freeze_count():
        return
    _compiled += 1
    if _compiled % 4:
        gc.freeze()
        gc.unfreeze()
    else:
        gc.collect()


class Remembering:
    """A typing context of Numba's that answers a question about a function once."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._answers: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        # What a dispatcher is asked for, it compiles: whether it is being compiled already is another question each time.
        if kws or not isinstance(function, types.Function):
            return self._context.resolve_function_type(function, args, kws)
        asked = function, tuple(args)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._context.resolve_function_type(function, args, kws)
            self._answers[asked] = answer
        return answer


def lean(pipeline: Any) -> Any:
    """The pipeline without passes that change nothing in a function that holds no other one."""
    pipeline.passes = [p for p in pipeline.passes if p[0] not in _NEEDLESS]
    return pipeline


class Outer(Compiler):  # type: ignore[misc]
    """Numba's compiler for what Python alone calls.

    The wrapper for C is left out here and not by an option: NumPy's functions are compiled anew for each set of options that they are
    called under, and this way once for the user's function and its derivatives.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.no_cfunc_wrapper = True
        self.state.typingctx = Remembering(self.state.typingctx)
        return [lean(pipeline) for pipeline in super().define_pipelines()]


class Uniform(Outer):
    """The same for a function in which every name has one type."""

    def define_pipelines(self) -> Any:
        self.state.flags.enable_ssa = False
        return super().define_pipelines()


class Inner(Outer):
    """The same for what compiled code alone calls."""

    def define_pipelines(self) -> Any:
        self.state.flags.no_cpython_wrapper = True
        return super().define_pipelines()
