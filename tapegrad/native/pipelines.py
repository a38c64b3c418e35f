"""Numba's compiler as derivatives use it: without wrappers that nobody calls, and sooner.

A derivative is several times as long as its function, and the first call waits for it. Type inference goes over a program again and again
and asks each time what `a * b` of two floats is; here it is told from memory. Collections of garbage take a tenth of the time and find
next to nothing; they wait.

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
            gc.enable()


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


class Outer(Compiler):  # type: ignore[misc]
    """Numba's compiler for what Python alone calls.

    The wrapper for C is left out here and not by an option: NumPy's functions are compiled anew for each set of options that they are
    called under, and this way once for the user's function and its derivatives.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.no_cfunc_wrapper = True
        self.state.typingctx = Remembering(self.state.typingctx)
        return super().define_pipelines()


class Inner(Outer):
    """The same for what compiled code alone calls."""

    def define_pipelines(self) -> Any:
        self.state.flags.no_cpython_wrapper = True
        return super().define_pipelines()


class Alone(Inner):
    """The same, told that no two arguments share memory: Numba has that option for its own parallel loops only."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()
