"""Numba's types for the names of a lowered program.

The program is printed as plain Python and sent through the front of Numba's own pipeline, which is stopped right behind type
inference: nothing is optimised or compiled. The result is the type of every name, so that the rules may depend on it
exactly as Numba's lowering would. A name that has several types is split (`webs`) where its meanings never meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

from numba.core import compiler, types, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaWarning
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NopythonTypeInference

from ..core.handlers import hand_on
from ..errors import NotDifferentiable
from . import store, webs
from .complaints import gist
from .pipelines import Remembering, lean
from .tree import Const, If, Lines, Loop, Node, Program, Seg, Where, operations, plain, statement

_found = threading.local()


class _Typed(Exception):
    """Inference is done; the types are in `_found`."""


@register_pass(mutates_CFG=False, analysis_only=True)
class _TakeTypes(FunctionPass):
    _name = "tapegrad_take_types"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        _found.types = dict(state.typemap)
        _found.returns = state.return_type
        raise _Typed


class _Front(compiler.CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> Any:
        self.state.typingctx = Remembering(self.state.typingctx)
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(_TakeTypes, NopythonTypeInference)
        pipeline.finalize()
        return [lean(pipeline)]


class _Callee(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's pipeline for a function of its own, up to the types."""

    def define_pipelines(self) -> Any:
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(_TakeTypes, NopythonTypeInference)
        pipeline.finalize()
        return [pipeline]


_returned: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""By function of Numba's and types of arguments: the type of its result."""


def _template(self: Any, args: Any, kws: Any) -> Any:
    """What `Dispatcher.get_call_template` answers, without machine code for these types."""
    maker = self._compiler
    pysig, args = maker.fold_argument_types(args, kws)
    args = tuple(args)
    known = _returned.setdefault(self, {})
    if args in self.overloads:
        known[args] = self.overloads[args].signature.return_type
    if args not in known:
        flags = compiler.Flags()
        maker.targetdescr.options.parse_as_flags(flags, maker.targetoptions)
        where = maker.targetdescr.typing_context, maker.targetdescr.target_context
        text = maker._get_implementation(args, {})
        flags = maker._customize_flags(flags)
        with contextlib.suppress(_Typed):
            compiler.compile_extra(
                *where, text, args, None, flags, maker.locals, pipeline_class=_Callee
            )
        known[args] = _found.returns
    name = self.py_func.__name__
    signature = typing.signature(known[args], *args)
    return typing.make_concrete_template(name, key=name, signatures=[signature]), pysig, args, {}


def _overload(self: Any, signature: Any) -> Any:
    """The machine code that a function has for these types, if it has any."""
    found = self.overloads.get(tuple(normalize_signature(signature)[0]))
    return None if found is None else found.entry_point


def _compile(self: Any, signature: Any) -> Any:
    """Who asks for machine code is given all of it."""
    with _patched(_ORDINARY):
        return self.compile(signature)


_ORDINARY = {n: getattr(Dispatcher, n) for n in ("get_call_template", "get_overload", "compile")}
_TYPES_ALONE = dict(zip(_ORDINARY, (_template, _overload, _compile), strict=True))


@contextlib.contextmanager
def _patched(methods: dict[str, Any]) -> Iterator[None]:
    before = {n: getattr(Dispatcher, n) for n in methods}
    for n, f in methods.items():
        setattr(Dispatcher, n, f)
    try:
        yield
    finally:
        for n, f in before.items():
            setattr(Dispatcher, n, f)


@contextlib.contextmanager
def _types_alone() -> Iterator[None]:
    """Functions of NumPy's that are called inside get types and no machine code, which takes ten times as long.

    Numba's lock keeps other threads from compiling. Where this thread is compiling already, what it asked for has code.
    """
    methods = {} if global_compiler_lock.is_locked() else _TYPES_ALONE
    with global_compiler_lock, _patched(methods):
        yield


def load(name: str, text: str, scope: dict[str, Any], file: str | None = None) -> Any:
    """The function that a text defines, with the text where tracebacks and `inspect` look for it."""
    if file is None:
        # The same in every process: code that is kept on disk has it in its key.
        file = f"<tapegrad native {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {
        **scope,
        "__name__": "tapegrad.native.runtime",
    }  # Numba asks a cached function for its module
    exec(compile(text, file, "exec"), space)
    return space[name]


def infer(program: Program, signature: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
    """Types by name, and the type of the result. Names of dead code have none.

    A name that means things of several types is split in the program, so that each has one; and that of an array which is given, so
    that what is written to a copy of the same name (`x = x.copy()`) is not taken for the caller's; and any that is bound several times,
    so that the program form has an affine number for each (`p = i[e]`, then `for p in range(n)`).
    """
    given = zip(program.params, signature, strict=True)
    bindings = Counter(n for op in operations(program.body) for n in op.out)
    webs.split(
        program,
        {p for p, kind in given if is_array(kind)} | {n for n, k in bindings.items() if k > 1},
    )
    while True:
        known, returns, several = _inferred(program, signature)
        if not several or not webs.split(program, several):
            program.uniform = not several and all(map(_is_kept_as_it_is, known.values()))
            return known, returns


def _is_kept_as_it_is(kind: Any) -> bool:
    """Whether what generated code keeps of a variable, and its cotangent, have the variable's type: those of shorter numbers have not."""
    return not isinstance(kind, types.Number) or kind in (types.float64, types.int64)


def _inferred(program: Program, signature: tuple[Any, ...]) -> tuple[dict[str, Any], Any, set[str]]:
    """Types by name, the type of the result, and the names that have several types."""
    text = source(program)
    found_at = store.key(text, program.scope, "several", *map(repr, signature))
    kept = store.read_types(found_at)
    if kept is not None:
        return kept
    function = load(program.name, text, program.scope)
    flags: Any = compiler.Flags()
    flags.nrt = True
    flags.error_model = "numpy"
    # As numba.njit sets them, so that NumPy's functions which are compiled here need not be once more.
    flags.enable_looplift = flags.enable_pyobject_looplift = True
    try:
        for again in (True, True, False):
            with warnings.catch_warnings(), _types_alone():
                warnings.simplefilter("ignore")
                try:
                    compiler.compile_extra(
                        cpu_target.typing_context,
                        cpu_target.target_context,
                        function,
                        signature,
                        None,
                        flags,
                        {},
                        pipeline_class=_Front,
                    )
                except (
                    NumbaWarning
                ):  # filters belong to the process: another thread has put its own back
                    if not again:
                        raise
                else:
                    break
    except _Typed:
        pass
    except Exception as error:
        hand_on(error)
        called = ", ".join(map(str, signature))
        raise NotDifferentiable(
            f"{_place(error, program, text)}\n  Numba finds no types for this, called with ({called}): {gist(error)}. Make numba.njit "
            "accept the function first.",
            name="native-source",
        ) from error
    found: dict[str, list[Any]] = {}
    for name, kind in _found.types.items():
        if not name.startswith(("$", "arg.")):
            found.setdefault(name.split(".")[0], []).append(types.unliteral(kind))
    known = {}
    several = set()
    for name, kinds in found.items():
        distinct = list(dict.fromkeys(kinds))
        if len(distinct) > 1:
            several.add(name)
        unified = (
            distinct[0] if len(distinct) == 1 else cpu_target.typing_context.unify_types(*distinct)
        )
        if unified is None:
            unified = types.undefined
        known[name] = unified
    for name, kind in zip(program.params, signature, strict=True):
        known.setdefault(name, types.unliteral(kind))
    store.write_types(found_at, (known, _found.returns, several))
    return known, _found.returns, several


def _place(error: Exception, program: Program, text: str) -> Where:
    """The user's line behind the line of the printed program that Numba found fault with."""
    loc = getattr(error, "loc", None)
    if loc is not None and loc.filename:
        lines = text.splitlines()
        at = lines[loc.line - 1].strip() if 0 < loc.line <= len(lines) else ""
        for op in operations(program.body):
            if op.kind != "if" and statement(op) == at:
                return op.where
    return program.where


def source(program: Program) -> str:
    """The program as plain Python, a line an operation."""
    lines = Lines()
    lines.open(f"def {program.name}({', '.join(program.params)}):")
    _block(program.body, lines)
    if len(program.results) == 1 and not program.returns_tuple:
        lines.put(f"return {program.results[0]}")
    elif program.results:
        lines.put(f"return ({', '.join(program.results)},)")
    else:
        lines.put("return None")
    return "\n".join(lines) + "\n"


def _block(nodes: list[Node], lines: Lines) -> None:
    """Write nodes of a program as Python, for Numba to infer their types."""
    for node in nodes:
        if isinstance(node, Seg):
            _ops(node.ops, lines)
        elif isinstance(node, If):
            _ops(node.head, lines)
            lines.open(f"if {plain(node.condition)}:")
            mark = len(lines)
            _block(node.body, lines)
            lines.close(mark)
            if node.orelse:
                lines.open("else:")
                _block(node.orelse, lines)
                lines.close(-1)
        else:
            _loop(node, lines)


def _loop(node: Loop, lines: Lines) -> None:
    """Write a loop as Python."""
    if node.variable:
        _ops(node.head, lines)
        lines.open(f"for {node.variable} in range({', '.join(plain(b) for b in node.bounds)}):")
    else:
        lines.open("while True:")
        _ops(node.head, lines)
        lines.put(f"if not {plain(node.condition)}:", "    break")
    mark = len(lines)
    _block(node.body, lines)
    if node.stop:
        lines.put(f"if {node.stop}:", "    break")
    if node.variable:
        lines.close(mark)
    else:
        lines.depth -= 1


def _ops(ops: list[Any], lines: Lines) -> None:
    for op in ops:
        if op.kind == "if":
            lines.open(f"if {plain(op.args[0])}:")
            mark = len(lines)
            _ops(op.body, lines)
            lines.close(mark)
            if op.orelse:
                lines.open("else:")
                _ops(op.orelse, lines)
                lines.close(-1)
        else:
            lines.put(statement(op))


def is_float(kind: Any) -> bool:
    return isinstance(kind, types.Float)


def is_whole(kind: Any) -> bool:
    return isinstance(kind, types.Integer | types.Boolean)


def is_array(kind: Any) -> bool:
    return isinstance(kind, types.Array)


def is_float_array(kind: Any) -> bool:
    return isinstance(kind, types.Array) and isinstance(kind.dtype, types.Float)


def const_type(operand: Const) -> Any:
    """The type of a constant, as far as the rules ask."""
    if isinstance(operand.value, bool):
        return types.boolean
    if isinstance(operand.value, int):
        return types.int64
    if isinstance(operand.value, float):
        return types.float64
    if isinstance(operand.value, complex):
        return types.complex128
    if operand.value is None and operand.text == "None":
        return types.none
    return None
