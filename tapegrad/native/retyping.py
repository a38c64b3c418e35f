"""The same program on other numbers: a Numba pipeline in which functions mean what `overloads` says.

A user's function, and every jitted function that it calls, is compiled once more from its bytecode for arguments that are
carriers. Before types are inferred, one pass replaces the objects that the program names: functions of NumPy that make or reduce
arrays, helpers, functions with a custom rule, and methods of arrays. Nothing else of the program is touched, so that errors of Numba
speak of the user's lines.

Invariant: what a program names is replaced, or known to move or compare elements only (`names.PURE`), or refused by line.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import compiler, ir, ir_utils, types
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.registry import cpu_target
from numba.core.untyped_passes import MakeFunctionToJitFunction

from ..errors import NotDifferentiable
from . import overloads, spelled
from .carriers import Active, Carrier, inner, is_carried, joined, joined_two, overload
from .complaints import gist, place, place_of, remedy
from .lowering import Custom, refuse
from .names import PURE, canonical, is_jitable
from .rules import FUNCTIONS, ufunc_of
from .runtime import KERNEL_OPTIONS, checkpointed
from .tree import Where

LOST = frozenset("view itemsize nbytes strides ctypes tobytes byteswap base real imag".split())
"""Attributes that show the memory of an array, which is another one here."""

MOVING = frozenset(
    """np.copy np.concatenate np.hstack np.vstack np.stack np.column_stack np.ravel np.reshape np.transpose np.roll np.flip np.fliplr
    np.flipud np.expand_dims np.swapaxes np.diag np.append np.delete np.split np.ndindex np.ndenumerate np.nditer
    np.argsort np.array_split np.hsplit np.vsplit np.dsplit np.permute_dims np.atleast_3d np.ascontiguousarray
    np.asfortranarray np.broadcast_arrays np.squeeze np.rot90 np.fill_diagonal np.put np.moveaxis
    np.random range len enumerate zip min max abs sum tuple list reversed sorted slice isinstance np.pi np.e np.inf np.nan""".split()
)
"""Functions of Numba that work on any elements, because they move them."""


NO_SNAPSHOTS = (
    "Overloading keeps a record of each operation, and has no way back from snapshots.",
    "Write the loop so that an adjoint can be generated, or leave the snapshots out.",
)


class Vocabulary:
    """What the objects that programs name mean on one kind of numbers."""

    def __init__(self, kind: Carrier, options: dict[str, Any], snapshots: bool) -> None:
        """No word is asked for yet; loops with snapshots are refused where memory is to be saved, by `snapshots`."""
        self.kind, self.given, self.snapshots = kind, options, snapshots
        self.words = {
            **overloads.WORDS,
            id(overloads.NUMBERS): (overloads.NUMBERS, kind.dtype_word),
        }
        self.functions: dict[int, tuple[Any, Any]] = {}
        """Compiled functions by the id of the Python function, which is kept alive."""
        self.draws = False
        pipeline = type("Pipeline", (_Pipeline,), {"vocabulary": self})
        self.options = {**KERNEL_OPTIONS, **options, "pipeline_class": pipeline}

    def compiled(self, function: Any) -> Any:
        """A Python function's dispatcher in this vocabulary."""
        found = self.functions.get(id(function))
        if found is None:
            made = numba.njit(**self.options)(function)
            found = self.functions[id(function)] = (function, made)
        return found[1]

    def meaning(self, value: Any, where: Where) -> Any:
        """What stands for an object that a program names."""
        found = self.words.get(id(value)) if not isinstance(value, int | float) else None
        if found is not None:
            return found[1]
        declared = overloads.DECLARED.get(id(value))
        if declared is not None:
            return _of_numpy(self.kind).standing(declared)
        if isinstance(value, Custom):
            return self.custom(value)
        if value is checkpointed and self.snapshots:
            raise refuse(where, *NO_SNAPSHOTS)
        inner = getattr(value, "dispatcher", None)
        if inner is not None:
            value = inner
        if hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            return self.compiled(value.py_func)
        if is_jitable(value):
            return self.compiled(value)
        text = canonical(value) if callable(value) and not inspect.isclass(value) else None
        if text is not None and text.startswith("np.") and spelled.parameters(text):
            factors = text.startswith("np.linalg.") and text != "np.linalg.matrix_power"
            if not (factors or isinstance(value, np.ufunc)):
                return self.standing(_spelled(text, value))
        if text is None or text.startswith("np.random."):
            self.draws |= text is not None
            return value
        if not (
            text in PURE or text in MOVING or text in FUNCTIONS or ufunc_of(text) is not None
        ) or text.startswith("np.linalg."):
            raise refuse(
                where,
                f"{text} has no meaning on numbers that carry derivatives.",
                remedy(text),
            )
        return value

    def standing(self, declared: overloads.Declared) -> Any:
        """What stands for a function of NumPy's that is written out where carriers go in."""
        key = id(declared.function)
        if key not in self.functions:
            made = overloads.standing(declared, self.compiled)
            self.functions[key] = (declared.function, made)
            cpu_target.typing_context.refresh()  # as below
        return self.functions[key][1]

    def custom(self, rule: Custom) -> Any:
        """A function with the user's rule, for numbers and arrays that go in and a number that comes out."""
        found = self.functions.get(id(rule))
        if found is None:
            found = self.functions[id(rule)] = (rule, _custom(rule, self))
            cpu_target.typing_context.refresh()  # a compilation is under way, which looked for overloads when it began
        return found[1]


def _plain(kind: Any) -> Any:
    """The type of a value without its derivative."""
    if isinstance(kind, Carrier):
        return types.float64
    return types.Array(types.float64, kind.ndim, "C") if is_carried(kind) else kind


@functools.cache
def _of_numpy(kind: Carrier) -> Vocabulary:
    """The vocabulary in which NumPy's functions are written for a kind of numbers: compiled once, for all programs."""
    return Vocabulary(kind, {}, snapshots=False)


def _spelled(text: str, function: Any) -> overloads.Declared:
    """A function that `spelled` writes out, or itself."""

    def choose(**given: Any) -> Any:
        kinds = list(given.values())
        own = not any(map(_holds_carriers, kinds)) or (text in MOVING and _alike(kinds))
        return None if own else spelled.chosen(text, given)

    return overloads.Declared(function, spelled.parameters(text), spelled.least(text), choose)


def _alike(kinds: Sequence[Any]) -> bool:
    """Whether all numbers and arrays with fractions are arrays of carriers, which Numba's own code moves."""
    for k in kinds:
        if isinstance(k, types.BaseTuple):
            if not _alike(k.types):
                return False
        elif not is_carried(k) and isinstance(getattr(k, "dtype", k), types.Float | Carrier):
            return False
    return True


def _holds_carriers(kind: Any) -> bool:
    if isinstance(kind, types.List):
        return _holds_carriers(kind.dtype)
    if isinstance(kind, types.BaseTuple):
        return any(map(_holds_carriers, kind.types))
    return isinstance(kind, Carrier) or is_carried(kind)


def _custom(rule: Custom, vocabulary: Vocabulary) -> Any:
    """A stand-in for a function with a rule of the user's, overloaded for carriers.

    A second derivative is that of the rule, which runs on the numbers inside the carriers then.
    """
    n = len(inspect.signature(rule.f.py_func).parameters)
    names = ", ".join(f"a{k}" for k in range(n))
    name = rule.f.__name__ if rule.f.__name__.isidentifier() else "rule"
    space: dict[str, Any] = {
        "f": rule.f, "vjp": rule.vjp, "np": np, "value": overloads.value, "joined": joined, "joined_two": joined_two,
    }  # fmt: skip
    exec(f"def {name}({names}):\n    raise NotImplementedError", space)

    def choose(kinds: tuple[Any, ...]) -> Any:
        """The nopython function for arguments of these types."""
        carried = [k for k, t in enumerate(kinds) if isinstance(t, Carrier) or is_carried(t)]
        if not carried:
            return eval(f"lambda {names}: f({names})", space)
        first = kinds[carried[0]]
        kind = first if isinstance(first, Carrier) else first.dtype
        second = isinstance(kind, Active) and isinstance(kind.inner, Carrier)
        plain = [_plain(t) for t in kinds]
        result = cpu_target.typing_context.resolve_function_type(numba.typeof(rule.f), plain, {})
        if not isinstance(result.return_type, types.Number):
            raise overloads.Unknown(f"{name}, a custom rule with a result that is no number")
        wrong = rule.complaint(plain, result.return_type)
        if wrong is not None:
            raise overloads.Unknown(f"{name}. {wrong}")
        lines = [f"def run({names}):"]
        lines += [f"    v{k} = {'inner' if second else 'value'}(a{k})" for k in range(n)]
        values = ", ".join(f"v{k}" for k in range(n))
        lines += [f"    out = f({values})", f"    bars = vjp(1.0, out, {values})"]
        lines.append("    s = np.zeros(1, kind)[0]")
        for k in carried:
            if isinstance(kinds[k], Carrier):
                lines.append(f"    s = joined_two(0.0, s, 1.0, a{k}, bars[{k}])")
            else:
                lines.append(f"    for k in np.ndindex(a{k}.shape):")
                lines.append(f"        s = joined_two(0.0, s, 1.0, a{k}[k], bars[{k}][k])")
        lines.append("    return joined(out, s, 1.0)")
        made = {**space, "kind": kind.dtype_word}
        if second:
            within = Vocabulary(kind.inner, vocabulary.given, snapshots=False)
            made |= {"f": space[name], "vjp": within.compiled(rule.vjp.py_func), "inner": inner}
        exec("\n".join(lines), made)
        return made["run"]

    typed: dict[str, Any] = {"choose": choose}
    exec(f"def typed({names}):\n    return choose(({names},))", typed)
    overload(space[name])(typed["typed"])
    return space[name]


# ------------------------------------------------------------------------------------------------- the pass


@register_pass(mutates_CFG=False, analysis_only=False)
class _Replace(FunctionPass):
    """Objects that the program names, and methods of arrays, in the pipeline's vocabulary."""

    _name = "tapegrad_replace"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Replace calls in Numba's IR by those of the vocabulary; Numba asks for True where something changed."""
        vocabulary: Vocabulary = state.pipeline.vocabulary
        func_ir = state.func_ir
        modules: dict[str, ModuleType] = {}
        methods: dict[str, tuple[Any, Any]] = {}
        for block in func_ir.blocks.values():
            body: list[Any] = []
            for statement in block.body:
                if isinstance(statement, ir.Print):  # what Numba has made of a call of `print`
                    result = ir.Var(block.scope, ir_utils.mk_unique_var("$print"), statement.loc)
                    statement = ir.Assign(statement, result, statement.loc)
                if isinstance(statement, ir.Assign):
                    self.assign(statement, vocabulary, modules, methods)
                    value = statement.value
                    word, args, keywords = self.word(value, vocabulary, methods)
                    if word is not None:
                        body.append(self.call(statement, word, args, keywords, block.scope))
                body.append(statement)
            block.body = body
        func_ir._definitions = ir_utils.build_definitions(func_ir.blocks)
        return True

    def assign(
        self, statement: Any, vocabulary: Vocabulary, modules: Any, methods: dict[str, Any]
    ) -> None:
        """Note which names hold modules and methods, and give functions the meaning that the vocabulary has for them."""
        value, to = statement.value, statement.target.name
        if isinstance(value, ir.Global | ir.FreeVar):
            if isinstance(value.value, ModuleType):
                modules[to] = value.value
            else:
                value.value = vocabulary.meaning(value.value, place(value.loc))
        elif isinstance(value, ir.Expr) and value.op == "getattr":
            owner = modules.get(value.value.name)
            if owner is not None:
                found = getattr(owner, value.attr, None)
                if isinstance(found, ModuleType):
                    modules[to] = found
                elif found is not None:
                    meant = vocabulary.meaning(found, place(value.loc))
                    statement.value = ir.Global(value.attr, meant, value.loc)
            elif value.attr in LOST:
                raise refuse(
                    place(value.loc),
                    f"The attribute {value.attr} shows memory, which is laid out otherwise where numbers carry derivatives.",
                    "Compute without it.",
                )
            elif value.attr in overloads.METHODS:
                methods[to] = (value.attr, value.value)

    def word(self, value: Any, vocabulary: Vocabulary, methods: dict[str, Any]) -> Any:
        """What stands for a method or an operation of arrays, its arguments and keywords: of arrays Numba takes its own for granted
        before it asks for overloads. None for any other expression."""
        if isinstance(value, ir.Print) and value.vararg is None:
            return overloads.shown, value.args, ()
        op = value.op if isinstance(value, ir.Expr) else None
        if op == "call" and value.func.name in methods:
            name, array = methods[value.func.name]
            meant = vocabulary.meaning(overloads.METHODS[name], place(value.loc))
            return meant, [array, *value.args], value.kws
        if op == "binop" and value.fn is operator.matmul:
            return vocabulary.meaning(np.dot, place(value.loc)), [value.lhs, value.rhs], ()
        if op == "inplace_binop":
            return overloads.in_place(value.fn), [value.lhs, value.rhs], ()
        return None, [], ()

    def call(self, statement: Any, word: Any, args: list[Any], keywords: Any, scope: Any) -> Any:
        """Let a statement call a word; what names it comes first. `x.sum()` becomes `sum(x)` so, because Numba resolves methods
        of arrays before it asks for overloads."""
        loc = statement.value.loc
        name = ir.Var(scope, ir_utils.mk_unique_var(f"$word_{word.__name__}"), loc)
        statement.value = ir.Expr.call(name, args, keywords, loc)
        return ir.Assign(ir.Global(word.__name__, word, loc), name, loc)


class _Pipeline(compiler.CompilerBase):  # type: ignore[misc]
    vocabulary: Vocabulary

    def define_pipelines(self) -> Any:
        # Carriers never meet Python: a wrapper for it would not compile.
        self.state.flags.no_cpython_wrapper = self.state.flags.no_cfunc_wrapper = True
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        # Behind this pass local functions and comprehensions are part of the program or dispatchers.
        pipeline.add_pass_after(_Replace, MakeFunctionToJitFunction)
        pipeline.finalize()
        return [pipeline]


def explained(error: Exception, function: Where) -> NotDifferentiable:
    """An error of Numba's as a refusal that names file, line and expression."""
    if isinstance(error, NotDifferentiable):
        text = str(error.args[0]).removesuffix(
            f" [{error.short_name}]"
        )  # of Numba's account, which may hold another's text
        start = text.find('File "')
        return NotDifferentiable(text[start:] if start > 0 else text, name="native-source")
    where = place_of(error, function)
    known = re.search(r"Unknown: (.*?)\s+raised\s+from", str(error))
    if known is not None:
        return NotDifferentiable(
            f"{where}\n  Overloading was asked for {known[1]}, which it has no code for. Write a loop over numbers, or give its derivative "
            "with tg.njit_vjp.",
            name="native-source",
        )
    return NotDifferentiable(
        f"{where}\n  Overloading finds no types for this where numbers carry derivatives: {gist(error)}. Write it with arithmetic, loops "
        "and functions that have a derivative, or give its derivative with tg.njit_vjp.",
        name="native-source",
    )
