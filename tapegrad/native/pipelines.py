"""Numba's compiler as derivatives use it: without wrappers that nobody calls, and sooner.

A derivative is several times as long as its function, and the first call waits for its compilation. Type inference goes over a program
many times and asks each time for the type of `a * b` of two floats; here the answer is cached. Garbage collections take a tenth of the
time and find next to nothing, so they wait. Passes are left out if they look for constructs that generated code does not have: functions
inside functions, `with`, and mostly names whose bindings have several types, of which Numba gives each binding a name (`Uniform`).

Invariant: Numba compiles the same code as by itself. Fusing of array expressions relies on one binding for each name (see `Apart`).
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from numba.core import ir, ir_utils, types
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.errors import NumbaWarning
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing, WithLifting

from ..core import handlers

_NEEDLESS = InlineClosureLikes, WithLifting, IRProcessing
"""The last one prepares for the others, and the rewriting behind them does it again."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Numba may compile inside: without its advice on how fast that will be, without collections of garbage, and with patient handlers."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with handlers.held_back(), warnings.catch_warnings():
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


@register_pass(mutates_CFG=False, analysis_only=False)
class Apart(FunctionPass):  # type: ignore[misc]
    """Gives each binding of an array within a block a name of its own, except the last one.

    Numba fuses array expressions block by block and knows them by the names that they are bound to. Of two expressions bound to one name
    it takes the second for the first, and reads parts of it that it has removed: an array of no elements stands in their place.
    """

    _name = "tapegrad_apart"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        changed = False
        for block in state.func_ir.blocks.values():
            bindings = Counter(
                s.target.name
                for s in block.find_insts(ir.Assign)
                if isinstance(state.typemap.get(s.target.name), types.Array)
            )
            if any(count > 1 for count in bindings.values()):
                _rename(block, bindings, state)
                changed = True
        return changed


def _rename(block: Any, bindings: Counter[str], state: Any) -> None:
    """Rename all but the last of a block's bindings of each name, and what reads them; `bindings` counts them."""
    now: dict[str, Any] = {}
    for s in block.body:
        if not isinstance(s, ir.Assign):
            ir_utils.replace_vars_stmt(s, now)
            continue
        s.value = ir_utils.replace_vars_inner(s.value, now)
        name = s.target.name
        if name not in bindings:
            continue
        bindings[name] -= 1
        now.pop(name, None)
        if bindings[name]:
            fresh = ir.Var(s.target.scope, ir_utils.mk_unique_var(name), s.target.loc)
            state.typemap[fresh.name] = state.typemap[name]
            state.func_ir._definitions[fresh.name] = [s.value]
            s.target = now[name] = fresh


class Uniform(Outer):
    """The same for a function in which every name has one type, so that Numba need not name each binding."""

    def define_pipelines(self) -> Any:
        self.state.flags.enable_ssa = False
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.add_pass_after(Apart, NopythonTypeInference)
            pipeline.finalize()
        return pipelines


class Inner(Outer):
    """The same for what compiled code alone calls."""

    def define_pipelines(self) -> Any:
        self.state.flags.no_cpython_wrapper = True
        return super().define_pipelines()
