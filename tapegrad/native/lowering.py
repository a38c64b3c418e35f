"""Lowering: the source of a Numba function becomes a program tree.

Nested expressions become operations on named operands; helpers (other jitted functions, local functions) are written out where
they are called, so that one analysis sees the whole program: who shares memory with whom, what flows where. Jumps become
flags and nested branches: after an `if` that may leave, what follows stands in the other branch. Loops over arrays, `zip` and
`enumerate` become loops over positions.

Whatever has no meaning here raises `NotDifferentiable` with the place in the user's file.
"""

from __future__ import annotations

import ast
import cmath
import functools
import inspect
import itertools
import math
import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numba import typeof
from numba.core.registry import cpu_target

from ..core.signatures import METHODS
from ..errors import NotDifferentiable
from ..face.reaching import is_users
from . import special, spelled
from .complaints import remedy
from .names import MISSING, PURE, RESERVED, canonical, is_jitable, is_prange, resolve_attribute
from .runtime import checkpointed
from .tree import IN_PLACE, TEMP, Called, Const, If, Loop, Node, Op, Operand, Program, Seg, Where

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.FloorDiv: "//", ast.Mod: "%",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_JUMPS = (ast.Return, ast.Break, ast.Continue)
_DEEPEST = 60
"""Calls written out inside one another; more is taken for a recursion without end."""


def refuse(where: Where, why: str, remedy: str) -> NotDifferentiable:
    """The error for a place in the user's code that has no derivative here."""
    return NotDifferentiable(f"{where}\n  {why} {remedy}", name="native-source")


class Custom:
    """A function whose derivative the user wrote (see `njit_vjp`)."""

    def __init__(self, f: Any, vjp: Any) -> None:
        self.f = f
        self.vjp = vjp

    def complaint(self, kinds: Sequence[Any], result: Any) -> str | None:
        """What is wrong with the cotangents that the rule gives for arguments of these types; None where nothing is."""
        context = cpu_target.typing_context
        given = context.resolve_function_type(typeof(self.vjp), (result, result, *kinds), {})
        bars = getattr(given.return_type, "types", None)
        name = self.f.__name__
        if bars is None or len(bars) != len(kinds):
            return f"The rule of {name} gives {given.return_type}, which is no tuple of {len(kinds)} cotangents."
        for k, (bar, kind) in enumerate(zip(bars, kinds, strict=True), 1):
            if getattr(bar, "ndim", 0) > getattr(kind, "ndim", 0):
                return f"The rule of {name} gives {bar} for argument {k}, which is of type {kind}."
        return None


class _TypeOf:
    """What `type(x)` means before types are known: a function that makes numbers of the type of x."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand


def python_function(f: Any) -> Any:
    """The Python function behind a jitted one; None for anything else."""
    while True:
        inner = getattr(f, "py_func", None)
        if inner is None:
            return f if inspect.isfunction(f) else None
        f = inner


def is_plain(f: Any) -> bool:
    """Whether a function's own source is what it does: `inspect` shows that of the function which a wrapper wraps."""
    return not hasattr(f, "__wrapped__")


def is_parallel(f: Any) -> bool:
    """Whether a jitted function is compiled for several threads."""
    options = getattr(getattr(f, "dispatcher", f), "targetoptions", {})
    return bool(options.get("parallel"))


def definition(function: Any) -> tuple[ast.FunctionDef | ast.Lambda, str, int]:
    """Syntax of a Python function, with its file and the line before its first."""
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise NotDifferentiable(
            f"{function.__qualname__} was to be differentiated, but its source cannot be read ({error}). Define it in a file or a "
            "notebook cell.",
            name="native-source",
        ) from None
    text = textwrap.dedent("".join(lines))
    try:
        tree: ast.AST = ast.parse(text)
    except SyntaxError:  # a lambda in the middle of an expression
        raise NotDifferentiable(
            f"{function.__qualname__} ({code.co_filename}, line {first}) was to be differentiated, but its source does not stand "
            "alone. Write it as a function with def.",
            name="native-source",
        ) from None
    wanted = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [n for n in ast.walk(tree) if isinstance(n, wanted)]
    if wanted is ast.FunctionDef:
        found = [n for n in found if n.name == function.__name__][:1]  # type: ignore[union-attr]
    else:
        names = code.co_varnames[: code.co_argcount]
        found = [n for n in found if tuple(a.arg for a in n.args.args) == names]  # type: ignore[union-attr]
    if len(found) != 1:
        raise NotDifferentiable(
            f"{function.__qualname__} ({code.co_filename}, line {first}) was to be differentiated, but its source holds "
            f"{len(found)} functions that could be it. Write it as a function with def, on lines of its own.",
            name="native-source",
        )
    return found[0], code.co_filename, first - 1  # type: ignore[return-value]


class Unspelled(NotDifferentiable):
    """Functions of NumPy's stand in the way of a derivative that can be written out: lower once more with these `choices`."""

    def __init__(self, choices: dict[Any, Any], told: str) -> None:
        super().__init__(told)
        self.choices = choices


class Asked:
    """Calls of functions of NumPy's that are to be written out (see `spelled`)."""

    def __init__(self) -> None:
        self.choices: dict[Any, Any] = {}
        self.where = ""

    def add(self, op: Op) -> bool:
        """Ask for an operation, if there is a program for it."""
        program = None if op.called is None else spelled.chosen(op.rule or "", op.called.kinds)
        if op.called is None or program is None:
            return False
        self.choices[op.called.key] = program
        self.where = self.where or f"{op.where}\n  {op.rule} is written out."
        return True

    def request(self) -> Unspelled:
        return Unspelled(self.choices, self.where)

    def done(self) -> None:
        if self.choices:
            raise self.request()


def lower(
    function: Any,
    snapshots: int = 0,
    parallel: bool = False,
    choices: dict[Any, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Program:
    """The program tree of a Python function.

    With `fixed`, which gives some parameters the values that they have in every call, helpers that are not jitted are written out, too.

    `choices` are the programs that take the place of functions of NumPy's, by the key of the call. `snapshots` is given to every loop
    over a range that no other loop contains (see `runtime.checkpointed`). Loops over `prange` are parallel in a `parallel` function,
    and in helpers that are compiled so.
    """
    node, file, line = definition(function)
    lowering = _Lowering()
    lowering.snapshots = snapshots
    lowering.parallel = parallel
    lowering.choices = choices or {}
    scope = _scope(function)
    frame = _Frame(node, scope, file, line, None)
    _plain_parameters(node.args, frame)
    known = fixed or {}
    given = [a.arg for a in node.args.args if a.arg not in known]
    params = [lowering.fresh(p) for p in given]
    frame.names.update(zip(given, params, strict=True))
    name = lowering.fresh(function.__name__ if function.__name__.isidentifier() else "function")
    body: list[Node] = []
    if fixed is not None:
        lowering.helpers, lowering.frame, lowering.block = True, frame, body
        for parameter, value in known.items():
            if callable(value):
                frame.fixed[parameter] = value
            else:
                lowering.copy(node, lowering.constant(value, parameter), lowering.local(parameter))
    result = lowering.run(frame, body, "value")
    return Program(
        name=name,
        params=params,
        results=[result] if result else [],
        returns_tuple=False,
        body=body,
        scope=lowering.scope,
        where=Where(file, line + node.lineno, f"def {function.__name__}"),
        several=lowering.several,
        customs=lowering.customs,
    )


def _scope(function: Any) -> Callable[[str], Any]:
    """What names that are not local mean to a function."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def look(name: str) -> Any:
        if name in cells:
            try:
                return cells[name].cell_contents
            except ValueError:  # a cell that is filled later
                return MISSING
        if name in function.__globals__:
            return function.__globals__[name]
        builtin = function.__globals__.get("__builtins__", {})
        return (
            vars(builtin).get(name, MISSING)
            if inspect.ismodule(builtin)
            else builtin.get(name, MISSING)
        )

    return look


def _plain_parameters(arguments: ast.arguments, frame: _Frame) -> None:
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise refuse(
            frame.where(arguments.args[0] if arguments.args else frame.node),
            "Parameters of variable number or by keyword only have no place in the generated derivative.",
            "Name each parameter.",
        )


class _Frame:
    """One function being written out: what its names are, and how it is left."""

    def __init__(
        self, node: Any, scope: Callable[[str], Any], file: str, line: int, parent: _Frame | None
    ) -> None:
        """The function that is being lowered, or one that is inlined in it (`parent` is its caller)."""
        self.node = node
        self.scope = scope
        self.file = file
        self.line = line
        self.parent = parent
        self.names: dict[str, str] = {}
        self.fixed: dict[str, Any] = {}
        """Parameters and local functions that stand for a known object."""
        self.locals = _locals(node)
        self.result = ""
        self.returned = ""
        self.level = self.outside = _Level("")
        self.key: Any = ()
        """Which call this is, by the places of the calls around it."""
        self.told: Where | None = None
        """The user's place for what errors are told of, where this is none of his functions."""

    def where(self, node: ast.AST) -> Where:
        if self.told is not None:
            return self.told
        try:
            text = ast.unparse(node).splitlines()[0]
        except Exception:
            text = type(node).__name__
        return Where(self.file, self.line + getattr(node, "lineno", self.node.lineno), text)


class _Level:
    """One loop (or the function outside of loops): the flags that a jump sets."""

    def __init__(self, stop: str, parent: _Level | None = None) -> None:
        self.stop = stop
        self.parent = parent
        self.skips: list[str] = []


def _locals(node: Any) -> set[str]:
    names = {a.arg for a in node.args.args}
    pending = list(node.body) if isinstance(node.body, list) else [node.body]
    while pending:
        n = pending.pop()
        if isinstance(n, ast.FunctionDef):
            names.add(n.name)
            continue
        if isinstance(n, ast.Lambda):
            continue
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            names.add(n.id)
        pending.extend(ast.iter_child_nodes(n))
    return names


def _may_jump(node: Any, kinds: Any = _JUMPS) -> bool:
    """Whether a statement may leave the block that it stands in."""
    if isinstance(node, kinds):
        return True
    if isinstance(node, ast.If):
        return any(_may_jump(n, kinds) for n in (*node.body, *node.orelse))
    if isinstance(node, ast.For | ast.While):
        return any(_may_jump(n, ast.Return) for n in (*node.body, *node.orelse)) or any(
            _may_jump(n, kinds) for n in node.orelse
        )
    return False


def _ends(block: list[ast.stmt]) -> bool:
    """Whether control never passes the end of a block."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, (*_JUMPS, ast.Raise)):
        return True
    return isinstance(last, ast.If) and _ends(last.body) and _ends(last.orelse)


class _Lowering:
    """Builds the tree; one per program."""

    def __init__(self) -> None:
        """An empty program, of jitted functions as long as `helpers` is not set."""
        self.taken: set[str] = set(RESERVED)
        self.counter = itertools.count(1)
        self.scope: dict[str, Any] = {"np": np, "math": math, "cmath": cmath}
        self.objects: dict[int, str] = {}
        self.customs: dict[str, Custom] = {}
        self.block: list[Node] = []
        self.frame: _Frame
        self.several: set[str] = set()
        self.open: list[Any] = []
        self.snapshots = 0
        self.parallel = False
        self.helpers = False
        """Whether functions that are not jitted are written out where they are called."""
        self.choices: dict[Any, Any] = {}

    # ------------------------------------------------------------------------------------------ names

    def fresh(self, name: str) -> str:
        """A name like this one that nothing else has."""
        if name.startswith(TEMP) or name.endswith(("_bar", "_dot")) or not name.isidentifier():
            name = f"u_{name}"
        if not name.isascii():
            name = "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
        name = name.replace("<lambda>", "lambda")
        unique = name
        for k in itertools.count(2):
            if unique not in self.taken:
                break
            unique = f"{name}_{k}"
        self.taken.add(unique)
        return unique

    def temp(self) -> str:
        name = f"{TEMP}{next(self.counter)}"
        self.taken.add(name)
        return name

    def local(self, name: str) -> str:
        """The name that a variable of the current function has in the program."""
        frame = self.frame
        if name not in frame.names:
            if (
                name not in frame.locals
                and frame.parent is not None
                and isinstance(frame.node, ast.FunctionDef | ast.Lambda)
            ):
                outer: _Frame | None = frame.parent
                while outer is not None:
                    if name in outer.names:
                        return outer.names[name]
                    outer = outer.parent
            frame.names[name] = self.fresh(name)
        return frame.names[name]

    def known(self, node: ast.AST) -> Any:
        """The object that an expression names, if that is known before the program runs."""
        if isinstance(node, ast.Name):
            frame: _Frame | None = self.frame
            while frame is not None:
                if node.id in frame.fixed:
                    return frame.fixed[node.id]
                if node.id in frame.locals or node.id in frame.names:
                    return MISSING
                if frame.parent is None:
                    return frame.scope(node.id)
                frame = frame.parent
        if isinstance(node, ast.Attribute):
            owner = self.known(node.value)
            return MISSING if owner is MISSING else resolve_attribute(owner, node.attr)
        return MISSING

    def constant(self, value: Any, hint: str = "constant") -> Const:
        """A known object as an operand: a plain number is written out, anything else gets a name in the program's scope."""
        if value is None or type(value) in (bool, int, str):
            return Const(repr(value), value)
        if type(value) in (float, np.float64):
            number = float(value)
            if math.isnan(number):
                return Const("np.nan", number)
            if math.isinf(number):
                return Const("np.inf" if number > 0 else "(-np.inf)", number)
            return Const(repr(number), number)
        if type(value) is np.int64:
            return Const(repr(int(value)), int(value))
        if type(value) is complex:
            return Const(repr(value), value)
        text = canonical(value)
        if text is not None:
            return Const(text, value)
        if id(value) not in self.objects:
            self.objects[id(value)] = self.fresh(hint)
            self.scope[self.objects[id(value)]] = value
        return Const(self.objects[id(value)], None)

    # ------------------------------------------------------------------------------------- emitting

    def emit(self, op: Op) -> None:
        if not self.block or not isinstance(self.block[-1], Seg):
            self.block.append(Seg())
        self.block[-1].ops.append(op)

    def pure(
        self,
        node: ast.AST,
        form: str,
        args: list[Operand],
        rule: str | None,
        out: str | None,
        kind: str = "pure",
        **settings: Operand,
    ) -> str:
        name = out or self.temp()
        self.emit(Op(kind, (name,), args, form, self.frame.where(node), rule, settings))
        return name

    def copy(self, node: ast.AST, value: Operand, out: str) -> str:
        self.emit(Op("copy", (out,), [value], "{0}", self.frame.where(node)))
        return out

    def flag(self, name: str, value: bool) -> None:
        self.emit(Op("copy", (name,), [Const(repr(value), value)], "{0}", Where("", 0, name)))

    def into(self, fill: Callable[[], Any]) -> list[Node]:
        """The nodes that `fill` emits, as a block of their own."""
        outer, self.block = self.block, []
        try:
            fill()
            return self.block
        finally:
            self.block = outer

    def condition(self, node: ast.expr) -> tuple[list[Op], list[Node], Operand]:
        """A condition as (straight-line operations, or else whole nodes that come first, operand)."""
        result: list[Operand] = []
        nodes = self.into(lambda: result.append(self.expr(node)))
        if not nodes:
            return [], [], result[0]
        if _is_head(nodes):
            return nodes[0].ops, [], result[0]  # type: ignore[union-attr]
        return [], nodes, result[0]

    # ------------------------------------------------------------------------------------ functions

    def run(self, frame: _Frame, body: list[Node], result: str) -> str:
        """Write out a frame's function into `body`; returns the name of its result, "" if it has none."""
        if len(self.open) > _DEEPEST:
            raise refuse(
                frame.where(frame.node),
                "Calls are nested too deep to be written out.",
                "Flatten the helpers.",
            )
        outer_frame, outer_block = getattr(self, "frame", None), self.block
        self.frame, self.block = frame, body
        self.open.append(frame.node)
        try:
            if isinstance(frame.node, ast.Lambda):
                frame.result = self.fresh(result)
                self.expr(frame.node.body, frame.result)
                return frame.result
            returns = [n for n in _own_nodes(frame.node) if isinstance(n, ast.Return)]
            if any(r.value is not None and not _is_none(r.value) for r in returns):
                frame.result = self.fresh(result)
                self.several.add(frame.result)
            if any(
                _may_jump(n, ast.Return)
                for loop in _own_nodes(frame.node)
                if isinstance(loop, ast.For | ast.While)
                for n in loop.body
            ):
                frame.returned = self.fresh("returned")
                self.flag(frame.returned, False)
            self.statements(frame.node.body)
            return frame.result
        finally:
            self.open.pop()
            if outer_frame is not None:
                self.frame = outer_frame
            self.block = outer_block

    def call(
        self,
        node: ast.Call,
        function: Any,
        out: str | None,
        before: Sequence[Operand] = (),
        spelled: bool = False,
    ) -> Operand | None:
        """Write out a helper where it is called, operands `before` its arguments; one that is `spelled` is no function of the user's."""
        where = self.frame.where(node)
        frame, name, defaults = self.opened(function, where)
        inner = frame.node
        if any(n is inner or ast.dump(n) == ast.dump(inner) for n in self.open):
            raise refuse(
                where,
                f"{name} calls itself, and a recursion cannot be written out.",
                "Write it as a loop, or give its derivative with tg.njit_vjp.",
            )
        frame.key = self.key(node)
        frame.told = where if spelled else self.frame.told
        _plain_parameters(inner.args, frame)
        given = self.passed(node, name, [a.arg for a in inner.args.args], before)
        bound: dict[str, Operand] = {}
        for parameter, argument in given.items():
            if argument is None:
                if parameter not in defaults:
                    raise refuse(where, f"{name} is called without {parameter}.", "Pass it.")
                bound[parameter] = self.constant(defaults[parameter], parameter)
            elif isinstance(argument, str | Const):
                bound[parameter] = argument
            elif callable(value := self.known(argument)):
                frame.fixed[parameter] = value
            elif isinstance(argument, ast.Lambda):
                frame.fixed[parameter] = _LocalFunction(argument, self.frame)
            elif spelled:
                bound[parameter] = self.argument(argument, parameter)
            else:
                bound[parameter] = self.expr(argument)
        assigned = _assigned(inner)
        if spelled:  # what decided which program it is, such as an axis, may have no further use
            bound = {p: a for p, a in bound.items() if isinstance(a, str) or p in _read(inner)}
        for parameter, operand in bound.items():
            if isinstance(operand, str) and parameter not in assigned and _unchanged(inner):
                # Read only: the argument itself. The callee may not see a rebinding of the argument's name, and no
                # function written out here can do that (nonlocal is refused).
                frame.names[parameter] = operand
                continue
            name_here = self.fresh(parameter)
            frame.names[parameter] = name_here
            self.copy(node, operand, name_here)
        outside, self.parallel = self.parallel, self.parallel or is_parallel(function)
        result = self.run(
            frame, self.block, f"{name}_value" if name.isidentifier() else "helper_value"
        )
        self.parallel = outside
        if not result:
            return None
        return self.copy(node, result, out) if out else result

    def opened(self, function: Any, where: Where) -> tuple[_Frame, str, dict[str, Any]]:
        """A frame for a helper's body, the helper's name, and the defaults of its parameters."""
        if not isinstance(function, _LocalFunction):
            plain = python_function(function)
            inner, file, line = definition(plain)
            parameters = inspect.signature(plain).parameters.values()
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            return _Frame(inner, _scope(plain), file, line, None), plain.__name__, defaults
        local, around = function.node, function.frame
        name = getattr(local, "name", "helper")
        if local.args.defaults:
            raise refuse(
                where, f"{name} is a local function with defaults.", "Pass every argument."
            )
        return _Frame(local, around.scope, around.file, around.line, around), name, {}

    def passed(
        self, node: ast.Call, name: str, wanted: list[str], before: Sequence[Operand]
    ) -> dict[str, Operand | ast.expr | None]:
        """What a call passes for each parameter of a helper: an operand of `before`, an expression, or None for nothing."""
        where = self.frame.where(node)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise refuse(where, "Arguments are unpacked in a call.", "Pass them one by one.")
        given: dict[str, Operand | ast.expr | None] = dict.fromkeys(wanted)
        given |= dict(zip(wanted, [*before, *node.args], strict=False))
        given |= {str(k.arg): k.value for k in node.keywords}
        if len(before) + len(node.args) > len(wanted) or len(given) > len(wanted):
            raise refuse(
                where, f"{name} takes {len(wanted)} arguments.", "Pass as many, by their names."
            )
        return given

    def key(self, node: ast.AST) -> Any:
        """What tells a call from all others of the program."""
        return (*self.frame.key, getattr(node, "lineno", 0), getattr(node, "col_offset", 0))

    # ----------------------------------------------------------------------------------- statements

    def statements(self, block: list[ast.stmt]) -> None:
        """Lower a block; what follows a jump is put under conditions, so that no jump is left."""
        for i, node in enumerate(block):
            rest = block[i + 1 :]
            if isinstance(node, ast.If) and _may_jump(node):
                if _ends(node.body):
                    self.branch(node, node.body, [*node.orelse, *rest])
                    return
                if _ends(node.orelse):
                    self.branch(node, [*node.body, *rest], node.orelse)
                    return
                if not rest:
                    self.branch(node, node.body, node.orelse)
                    return
                skip = self.fresh("skip")
                self.flag(skip, False)
                self.frame.level.skips.append(skip)
                self.branch(node, node.body, node.orelse)
                self.frame.level.skips.pop()
                self.unless(skip, lambda: None, rest)
                return
            if isinstance(node, ast.For | ast.While):
                stop = self.loop(node)
                if node.orelse:
                    rest = [*self.otherwise(node, stop), *rest]
                if any(_may_jump(n, ast.Return) for n in node.body):
                    self.unless(self.frame.returned, self.leave_here, rest)
                    return
                if node.orelse:
                    self.statements(rest)
                    return
                continue
            self.statement(node)
            if isinstance(node, (*_JUMPS, ast.Raise)):
                return

    def unless(self, flag: str, left: Callable[[], Any], rest: list[ast.stmt]) -> None:
        self.block.append(If([], flag, self.into(left), self.into(lambda: self.statements(rest))))

    def leave_here(self) -> None:
        self.leave(self.frame.level, True)

    def leave(self, level: _Level, stop: bool) -> None:
        for skip in level.skips:
            self.flag(skip, True)
        if stop and level.stop:
            self.flag(level.stop, True)

    def branch(self, node: ast.If, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        """Lower a choice; of one that is known at compile time only the branch that is taken."""
        known = self.static_truth(node.test)
        if known is not None:
            self.statements(body if known else orelse)
            return
        head, nodes, condition = self.condition(node.test)
        self.block.extend(nodes)
        self.block.append(
            If(
                head,
                condition,
                self.into(lambda: self.statements(body)),
                self.into(lambda: self.statements(orelse)),
            )
        )

    def static_truth(self, node: ast.expr) -> bool | None:
        """Truth of a condition on constants: Numba prunes such branches, whose types need not even agree."""
        value = self.known(node)
        if value is not MISSING and isinstance(value, bool | int | float | type(None)):
            return bool(value)
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.static_truth(node.operand)
            return None if inner is None else not inner
        return None

    def statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise refuse(
                self.frame.where(node),
                f"A {type(node).__name__.lower()} statement has no derivative rule.",
                "Move it out of the differentiated function.",
            )
        method(node)

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _Delete(self, node: ast.Delete) -> None:
        pass

    def _FunctionDef(self, node: ast.FunctionDef) -> None:
        self.frame.fixed[node.name] = _LocalFunction(node, self.frame)

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None and not _is_none(node.value):
            self.expr(node.value, self.frame.result)
        if self.frame.level.parent is not None:
            self.flag(self.frame.returned, True)
        self.leave(self.frame.level, True)

    def _Break(self, node: ast.Break) -> None:
        self.leave(self.frame.level, True)

    def _Continue(self, node: ast.Continue) -> None:
        self.leave(self.frame.level, False)

    def _Raise(self, node: ast.Raise) -> None:
        self.verbatim(node)

    def _Assert(self, node: ast.Assert) -> None:
        condition = self.expr(node.test)
        message = f", {ast.unparse(node.msg)}" if isinstance(node.msg, ast.Constant) else ""
        message = message.replace("{", "{{").replace("}", "}}")
        self.emit(Op("verbatim", (), [condition], "assert {0}" + message, self.frame.where(node)))

    def verbatim(self, node: ast.Raise) -> None:
        """Lower a `raise` of a known class with constant arguments."""
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        kind = self.known(raised) if raised is not None else MISSING
        arguments = node.exc.args if isinstance(node.exc, ast.Call) else []
        if not (inspect.isclass(kind) and issubclass(kind, BaseException)) or not all(
            isinstance(a, ast.Constant) for a in arguments
        ):
            raise refuse(
                self.frame.where(node),
                "Only an exception class with constant arguments can be raised here.",
                'Write for example raise ValueError("what is wrong").',
            )
        name = self.constant(kind, kind.__name__).text
        text = f"raise {name}({', '.join(ast.unparse(a) for a in arguments)})"
        self.emit(
            Op(
                "verbatim",
                (),
                [],
                text.replace("{", "{{").replace("}", "}}"),
                self.frame.where(node),
            )
        )

    def _If(self, node: ast.If) -> None:
        self.branch(node, node.body, node.orelse)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, node.value, node)

    def _Assign(self, node: ast.Assign) -> None:
        if len(node.targets) == 1:
            self.assign(node.targets[0], node.value, node)
            return
        value = self.expr(node.value)
        for t in node.targets:
            self.bind(t, value, node)

    def assign(self, to: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        """Lower `to = value`; known functions, lambdas and types are bound at compile time."""
        if isinstance(to, ast.Name):
            if isinstance(value, ast.Lambda):
                self.frame.fixed[to.id] = _LocalFunction(value, self.frame)
                return
            known = self.known(value)
            if known is not MISSING and callable(known):
                self.frame.fixed[to.id] = known
                return
            if self.is_type(value) and self.bound_once(to.id):
                self.frame.fixed[to.id] = _TypeOf(self.expr(value.args[0]))  # type: ignore[attr-defined]
                return
            self.expr(value, self.local(to.id))
        elif isinstance(to, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            if len(to.elts) != len(value.elts) or any(
                isinstance(e, ast.Starred) for e in (*to.elts, *value.elts)
            ):
                raise refuse(
                    self.frame.where(node), "The sides have not as many elements.", "Name each."
                )
            parts = [self.kept(self.expr(e), e) for e in value.elts]
            for t, part in zip(to.elts, parts, strict=True):
                self.bind(t, part, node)
        else:
            self.bind(to, self.expr(value), node)

    def is_type(self, node: ast.expr) -> bool:
        """Whether an expression is `type(x)`."""
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return False
        return self.known(node.func) is type

    def bound_once(self, name: str) -> bool:
        stores = [
            n
            for n in _own_nodes(self.frame.node)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        return len(stores) == 1

    def kept(self, operand: Operand, node: ast.expr) -> Operand:
        """An operand that keeps its value while others are bound: a user's name is copied."""
        if isinstance(operand, str) and not operand.startswith(TEMP):
            return self.copy(node, operand, self.temp())
        return operand

    def bind(self, to: ast.expr, value: Operand, node: ast.stmt) -> None:
        """Bind a computed value to a name, an element or a tuple of targets."""
        if isinstance(to, ast.Name):
            self.copy(node, value, self.local(to.id))
        elif isinstance(to, ast.Subscript):
            base = self.expr(to.value)
            self.store(node, to, base, value)
        elif isinstance(to, ast.Tuple | ast.List):
            for i, element in enumerate(to.elts):
                if isinstance(element, ast.Starred):
                    raise refuse(self.frame.where(node), "A starred target.", "Name each element.")
                name = self.local(element.id) if isinstance(element, ast.Name) else self.temp()
                self.pure(
                    node,
                    f"{{0}}[{i}]",
                    [value],
                    "item",
                    name,
                    "item",
                    position=Const(str(i), i),
                    among=Const(str(len(to.elts)), len(to.elts)),
                )
                if not isinstance(element, ast.Name):
                    self.bind(element, name, node)
        else:
            raise refuse(
                self.frame.where(node),
                f"Assigning to {type(to).__name__.lower()} has no derivative rule.",
                "Assign to a name or to elements of an array.",
            )

    def store(
        self, node: ast.AST, to: ast.Subscript, base: Operand, value: Operand, sign: str = ""
    ) -> None:
        args: list[Operand] = [base, value]
        index, items = self.index(to.slice, args)
        kind = "acc" if sign else "store"
        self.emit(Op(kind, (), args, sign, self.frame.where(node), None, {}, index, items))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        """Lower `x += y` and its kind: of a name, or of elements of an array."""
        symbol = BINARY[type(node.op)]
        if isinstance(node.target, ast.Name):
            name = self.local(node.target.id)
            value = self.expr(node.value)
            self.emit(Op("aug", (name,), [name, value], symbol, self.frame.where(node)))
            return
        if not isinstance(node.target, ast.Subscript):
            raise refuse(
                self.frame.where(node),
                "This target has no derivative rule.",
                "Assign to a name or an element.",
            )
        base = self.expr(node.target.value)
        if symbol in "+-":
            value = self.expr(node.value)
            self.store(node, node.target, base, value, symbol)
            return
        args: list[Operand] = [base]
        index, items = self.index(node.target.slice, args)
        old = self.temp()
        self.emit(Op("load", (old,), args, "", self.frame.where(node), None, {}, index, items))
        value = self.expr(node.value)
        new = self.binary(node, symbol, old, value, None)
        self.block[-1].ops[-1].settings["written"] = IN_PLACE  # type: ignore[union-attr]
        again = [args[0], new, *args[1:]]
        shifted = _shifted(index, len(args))
        self.emit(
            Op(
                "store",
                (),
                again,
                "",
                self.frame.where(node),
                None,
                {},
                shifted,
                tuple(_shift_item(i) for i in items),
            )
        )

    def _Expr(self, node: ast.Expr) -> None:
        """Lower a statement that is only a call, done for its effect."""
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            function = self.known(node.value.func)
            if function is not MISSING:
                text = canonical(function)
                if text is None and self.callable_here(function):
                    self.call(node.value, function, None)
                    return
                if text == "np.random.seed":
                    arguments = [self.expr(a) for a in node.value.args]
                    places = ", ".join(f"{{{i}}}" for i in range(len(arguments)))
                    self.emit(
                        Op(
                            "verbatim",
                            (),
                            arguments,
                            f"np.random.seed({places})",
                            self.frame.where(node),
                        )
                    )
                    return
                if text == "np.fill_diagonal":
                    self.call(node.value, spelled.fill_diagonal, None, spelled=True)
                    return
                if text is not None and self.writes_result(node, node.value, text):
                    return
            if (
                isinstance(node.value.func, ast.Attribute)
                and self.known(node.value.func.value) is MISSING
            ):
                word, args = node.value.func.attr, node.value.args
                if (word == "fill" and len(args) == 1) or (word == "sort" and not args):
                    base = self.expr(node.value.func.value)
                    if args:
                        value = self.expr(args[0])
                    else:
                        value = self.pure(node, "np.sort({0})", [base], "np.sort", None)
                    where = self.frame.where(node)
                    self.emit(Op("store", (), [base, value], "", where, None, {}, ":", ("slice",)))
                    return
        raise refuse(
            self.frame.where(node),
            "This statement is done for its effect, which has no derivative rule.",
            "Write the effect as an assignment, or move it out of the differentiated function.",
        )

    def writes_result(self, statement: ast.Expr, node: ast.Call, text: str) -> bool:
        """Lower `np.f(x, y, out)`, a call for what it writes, as `out[...] = np.f(x, y)`; False if this is none.

        The operation is marked as `written`: what it reads may not be another part of what it writes (see `flow`).
        """
        ufunc = getattr(np, text[3:], None)
        inputs = 2 if ufunc in (np.dot, np.outer) else getattr(ufunc, "nin", None)
        named = [k.value for k in node.keywords if k.arg == "out"]
        if inputs is None or len(node.args) + len(named) != inputs + 1:
            return False
        if len(node.keywords) != len(named):
            return False
        to, given = (named or node.args[-1:])[0], node.args[:inputs]
        value = ast.copy_location(ast.Call(node.func, given, []), node)
        part = ast.Subscript(to, ast.Slice(), ast.Store())
        ast.fix_missing_locations(ast.copy_location(part, node))
        made = self.expr(value)
        self.block[-1].ops[-1].settings["written"] = Const("True", True)  # type: ignore[union-attr]
        self.bind(part, made, statement)
        return True

    # ---------------------------------------------------------------------------------------- loops

    def loop(self, node: ast.For | ast.While) -> str:
        """Lower a loop without its else; the name of the flag that a jump out of it sets, if there is one."""
        leaves = any(_may_jump(n, (ast.Break, ast.Return)) for n in node.body)
        stop = ""
        if leaves:
            stop = self.fresh("stop")
            self.flag(stop, False)
        outer = self.frame.level
        self.frame.level = _Level(stop, outer)
        try:
            if isinstance(node, ast.While):
                self.while_(node, stop)
            else:
                self.for_(node, stop)
        finally:
            self.frame.level = outer
        return stop

    def otherwise(self, node: ast.For | ast.While, stop: str) -> list[ast.stmt]:
        """The else of a loop as statements behind it."""
        if not stop:
            return node.orelse
        self.frame.names[stop] = stop
        branch = ast.If(ast.Name(stop, ast.Load()), [ast.Pass()], node.orelse)
        for n in ast.walk(branch):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        return [branch]

    def while_(self, node: ast.While, stop: str) -> None:
        """Lower a `while`; a condition that needs statements stands before the loop and at the end of its body."""
        head, nodes, condition = self.condition(node.test)
        if not nodes:
            self.block.append(
                Loop(
                    head,
                    self.into(lambda: self.statements(node.body)),
                    condition=condition,
                    stop=stop,
                )
            )
            return
        # The condition needs whole statements: they stand before the loop and again at the end of its body.
        self.block.extend(nodes)
        go = self.fresh("go")
        self.several.add(go)
        self.copy(node.test, condition, go)

        def body() -> None:
            self.statements(node.body)

            def again() -> None:
                self.copy(node.test, self.expr(node.test), go)

            if stop:
                self.block.append(If([], stop, [], self.into(again)))
            else:
                again()

        self.block.append(Loop([], self.into(body), condition=go, stop=stop))

    def for_(self, node: ast.For, stop: str) -> None:
        """Lower a `for`: over range, enumerate, zip, arrays and tuples, all as loops over a range."""
        where = self.frame.where(node.iter)
        call = node.iter if isinstance(node.iter, ast.Call) else None
        if call is not None and self.known(call.func) is checkpointed:
            self.checkpointed(node, call, stop)
            return
        kind = canonical(self.known(call.func)) if call is not None else None
        if kind == "range" and call is not None:
            before = len(self.block)
            self.range(node, call, stop)
            for made in self.block[before:]:
                if isinstance(made, Loop):
                    made.parallel = self.parallel and is_prange(self.known(call.func))
                    made.where = self.frame.where(node)
            return
        position = self.fresh("position")
        self.frame.names[position] = position
        first: list[ast.stmt] = []
        if kind == "enumerate" and call is not None:
            if not isinstance(node.target, ast.Tuple) or len(node.target.elts) != 2:
                raise refuse(
                    where,
                    "enumerate is unpacked into two names.",
                    "Write for i, v in enumerate(x).",
                )
            start = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords), None)
            )
            counted: ast.expr = ast.Name(position, ast.Load())
            if start is not None:
                counted = ast.BinOp(counted, ast.Add(), start)
            first.append(ast.Assign([node.target.elts[0]], counted))
            target, source = node.target.elts[1], call.args[0]
        elif kind == "np.ndindex" and call is not None:
            self.ndindex(node, call, stop)
            return
        elif kind == "np.ndenumerate" and call is not None:
            self.ndenumerate(node, call, stop)
            return
        else:
            target, source = node.target, node.iter
        lengths: list[ast.expr] = []
        for element, array in self.iterated(target, source, where):
            held = self.fresh("iterated")
            self.frame.names[held] = held
            if isinstance(array, ast.Call) and canonical(self.known(array.func)) == "sorted":
                self.pure(array, "np.sort({0})", [self.expr(array.args[0])], "np.sort", held)
            else:
                self.expr(array, held)
            lengths.append(_call("len", ast.Name(held, ast.Load())))
            item = ast.Subscript(
                ast.Name(held, ast.Load()), ast.Name(position, ast.Load()), ast.Load()
            )
            first.append(ast.Assign([element], item))
        bound = lengths[0] if len(lengths) == 1 else _call("min", *lengths)
        loop = ast.For(
            ast.Name(position, ast.Store()), _call("range", bound), [*first, *node.body], []
        )
        for n in ast.walk(loop):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        self.range(loop, loop.iter, stop)  # type: ignore[arg-type]

    def iterated(
        self, target: ast.expr, source: ast.expr, where: Where
    ) -> list[tuple[ast.expr, ast.expr]]:
        """What a loop binds in each turn, with the array that holds its values: several for zip."""
        if not isinstance(source, ast.Call):
            return [(target, source)]
        kind = canonical(self.known(source.func))
        if kind == "zip":
            if not isinstance(target, ast.Tuple) or len(target.elts) != len(source.args):
                raise refuse(where, "zip is unpacked into as many names.", "Name each element.")
            return list(zip(target.elts, source.args, strict=True))
        if kind in ("range", "enumerate", "reversed") or (kind == "sorted" and source.keywords):
            raise refuse(where, "This iterator has no rule.", "Write a loop over range(n).")
        return [(target, source)]

    def checkpointed(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """A loop over `tg.checkpointed(range(...), snapshots=k)`."""
        given = dict(zip(("steps", "snapshots"), call.args, strict=False))
        given |= {str(k.arg): k.value for k in call.keywords}
        steps, count = given.get("steps"), given.get("snapshots")
        if not isinstance(steps, ast.Call) or canonical(self.known(steps.func)) != "range":
            raise refuse(
                self.frame.where(node.iter),
                "Only a loop over a range has snapshots.",
                "Write for t in tg.checkpointed(range(n), snapshots=8).",
            )
        found = count.value if isinstance(count, ast.Constant) else self.known(count or node)
        if type(found) is not int or found < 1:
            raise refuse(
                self.frame.where(node.iter),
                "The number of snapshots is part of the compiled code: a whole number from 1 on, or a global name for one.",
                "Write for t in tg.checkpointed(range(n), snapshots=8).",
            )
        before = len(self.block)
        self.range(node, steps, stop)
        for made in self.block[before:]:
            if isinstance(made, Loop):
                made.snapshots, made.where = found, self.frame.where(node.iter)

    def ndenumerate(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """As a loop over the indices, whose first statement reads the element."""
        if not (
            isinstance(node.target, ast.Tuple)
            and len(node.target.elts) == 2
            and isinstance(node.target.elts[0], ast.Tuple)
        ):
            raise refuse(
                self.frame.where(node),
                "np.ndenumerate is unpacked into its indices and the element.",
                "Write for (i, j), v in np.ndenumerate(x).",
            )
        index, element = node.target.elts
        held = self.fresh("iterated")
        self.frame.names[held] = held
        self.expr(call.args[0], held)
        places = ast.Tuple([ast.Name(n.id, ast.Load()) for n in index.elts], ast.Load())  # type: ignore[attr-defined]
        item = ast.Subscript(ast.Name(held, ast.Load()), places, ast.Load())
        shape = ast.Attribute(ast.Name(held, ast.Load()), "shape", ast.Load())
        body = [ast.Assign([element], item), *node.body]
        loop = ast.For(index, ast.Call(call.func, [shape], []), body, [])
        for n in ast.walk(loop):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        self.ndindex(loop, loop.iter, stop)  # type: ignore[arg-type]

    def ndindex(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """Lower a loop over np.ndindex as one loop with its indices computed."""
        if not isinstance(node.target, ast.Tuple):
            raise refuse(
                self.frame.where(node),
                "np.ndindex is unpacked into its indices.",
                "Write for i, j in np.ndindex(n, m).",
            )
        n = len(node.target.elts)
        if len(call.args) == n and n > 1:
            sizes = [self.kept(self.expr(a), a) for a in call.args]
        else:
            shape = self.expr(call.args[0])
            sizes = [
                self.pure(
                    call,
                    f"{{0}}[{i}]",
                    [shape],
                    "item",
                    None,
                    "item",
                    position=Const(str(i), i),
                    among=Const(str(n), n),
                )
                for i in range(n)
            ]
        total: Operand = sizes[0]
        for size in sizes[1:]:
            total = self.pure(node, "({0} * {1})", [total, size], "*", None)
        position = self.fresh("position")

        def body() -> None:
            rest: Operand = position
            for i in range(n - 1, 0, -1):
                self.pure(
                    node, "({0} % {1})", [rest, sizes[i]], "%", self.local(node.target.elts[i].id)
                )
                rest = self.pure(node, "({0} // {1})", [rest, sizes[i]], "//", None)
            self.copy(node, rest, self.local(node.target.elts[0].id))
            self.statements(node.body)

        self.block.append(
            Loop(
                [],
                self.into(body),
                variable=position,
                bounds=(Const("0", 0), total, Const("1", 1)),
                stop=stop,
            )
        )

    def range(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """Lower a loop over a range; a variable that the body assigns is copied."""
        if not isinstance(node.target, ast.Name):
            raise refuse(
                self.frame.where(node),
                "range is unpacked into one name.",
                "Write for i in range(n).",
            )
        found: list[Operand] = []
        nodes = self.into(lambda: found.extend(self.expr(a) for a in call.args))
        zero, one = Const("0", 0), Const("1", 1)
        bounds = (
            (zero, found[0], one)
            if len(found) == 1
            else (*found, one)[:3]
            if len(found) == 2
            else tuple(found)
        )
        head: list[Op] = []
        if _is_head(nodes):
            head = nodes[0].ops  # type: ignore[union-attr]
        else:
            self.block.extend(nodes)
        name = node.target.id
        inside = [n for statement in node.body for n in ast.walk(statement)]
        assigned = any(
            isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
            for n in inside
        )
        variable = self.fresh(name)
        if not assigned and not self.read_outside(node, name):
            before = self.frame.names.get(name)
            self.frame.names[name] = variable
            body = self.into(lambda: self.statements(node.body))
            if before is None:
                del self.frame.names[name]
            else:
                self.frame.names[name] = before
        else:
            own = self.local(name)

            def counted() -> None:
                self.copy(node.target, variable, own)
                self.statements(node.body)

            body = self.into(counted)
        outermost = len(self.open) == 1 and self.frame.level.parent is self.frame.outside
        snapshots = self.snapshots if outermost else 0
        self.block.append(
            Loop(head, body, variable=variable, bounds=bounds, stop=stop, snapshots=snapshots)  # type: ignore[arg-type]
        )

    def read_outside(self, loop: ast.For, name: str) -> bool:
        """Whether a loop's variable is read anywhere but in loops that count with it.

        A loop around this one that counts with the same name may read behind this one what this one left.
        """

        def read(node: ast.AST) -> bool:
            if (
                isinstance(node, ast.For)
                and isinstance(node.target, ast.Name)
                and node.target.id == name
                and (node is loop or all(n is not loop for n in ast.walk(node)))
            ):
                return read(node.iter) or any(read(n) for n in node.orelse)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                return True
            return any(read(n) for n in ast.iter_child_nodes(node))

        if name in {a.arg for a in self.frame.node.args.args}:
            return True
        # A local function may read it from outside of the loop; it is looked up there when it is called.
        inner = any(
            isinstance(n, ast.FunctionDef | ast.Lambda)
            for n in ast.walk(self.frame.node)
            if n is not self.frame.node
        )
        return inner or any(read(n) for n in self.frame.node.body)

    # ---------------------------------------------------------------------------------- expressions

    def expr(self, node: ast.expr, out: str | None = None) -> Operand:
        """Lower an expression; bind its value to `out` if that is given."""
        operand = self.value(node, out)
        if out is not None and operand != out:
            return self.copy(node, operand, out)
        return operand

    def value(self, node: ast.expr, out: str | None) -> Operand:
        """Lower an expression: its operand, bound to the name `out` where one is given."""
        known = self.known(node)
        if isinstance(known, _TypeOf):
            raise refuse(
                self.frame.where(node),
                "The type of a variable is used as a value.",
                "Call it, as type(x)(1), or name the type.",
            )
        if known is not MISSING and not (isinstance(known, _LocalFunction)):
            hint = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "constant")
            return self.constant(known, hint)
        if isinstance(node, ast.Constant):
            return self.constant(node.value)
        if isinstance(node, ast.Name):
            if isinstance(known, _LocalFunction) or (
                node.id not in self.frame.locals and node.id not in self.visible()
            ):
                raise refuse(
                    self.frame.where(node),
                    f"{node.id} is not defined, or is a function used as a value.",
                    "Call it, or define it.",
                )
            return self.local(node.id)
        method = getattr(self, f"_expr_{type(node).__name__}", None)
        if method is None:
            raise refuse(
                self.frame.where(node),
                f"A {type(node).__name__} expression has no derivative rule.",
                "Write it with loops, arrays and arithmetic.",
            )
        return method(node, out)

    def visible(self) -> set[str]:
        names: set[str] = set()
        frame: _Frame | None = self.frame
        while frame is not None:
            names |= set(frame.names)
            frame = frame.parent
        return names

    def _expr_UnaryOp(self, node: ast.UnaryOp, out: str | None) -> Operand:
        operand = self.expr(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(operand, Const) and type(operand.value) in (int, float):
                return Const(f"(-{operand.text})", -operand.value)
            return self.pure(node, "(-{0})", [operand], "neg", out)
        if isinstance(node.op, ast.UAdd):
            return operand
        symbol = "not " if isinstance(node.op, ast.Not) else "~"
        return self.pure(node, f"({symbol}{{0}})", [operand], symbol.strip(), out)

    def _expr_BinOp(self, node: ast.BinOp, out: str | None) -> Operand:
        x = self.expr(node.left)
        if isinstance(x, str) and _has_walrus(node.right):
            x = self.kept(x, node.left)
        y = self.expr(node.right)
        symbol = BINARY[type(node.op)]
        return _folded(symbol, x, y) or self.binary(node, symbol, x, y, out)

    def binary(
        self, node: ast.AST, symbol: str, x: Operand, y: Operand, out: str | None
    ) -> Operand:
        return self.pure(node, f"({{0}} {symbol} {{1}})", [x, y], symbol, out)

    def _expr_Compare(self, node: ast.Compare, out: str | None) -> Operand:
        whole = self.passive(node)
        if whole is not None:
            return self.pure(node, f"({whole[0]})", whole[1], "compare", out)
        operands = [self.expr(n) for n in (node.left, *node.comparators)]
        form = "{0}"
        for i, sign in enumerate(node.ops, 1):
            form += f" {_COMPARE[type(sign)]} {{{i}}}"
        return self.pure(node, f"({form})", operands, "compare", out)

    def _expr_BoolOp(self, node: ast.BoolOp, out: str | None) -> Operand:
        whole = self.passive(node)
        if whole is not None:
            return self.pure(node, f"({whole[0]})", whole[1], "bool", out)
        name = out or self.temp()
        self.several.add(name)
        self.expr(node.values[0], name)
        for value in node.values[1:]:
            rest = self.into(lambda value=value: self.expr(value, name))  # type: ignore[misc]
            both = (rest, []) if isinstance(node.op, ast.And) else ([], rest)
            self.block.append(If([], name, *both))
        return name

    def _expr_IfExp(self, node: ast.IfExp, out: str | None) -> Operand:
        """Lower `a if c else b`."""
        known = self.static_truth(node.test)
        if known is not None:
            return self.value(node.body if known else node.orelse, out)
        name = self.temp()
        self.several.add(name)
        head, nodes, condition = self.condition(node.test)
        self.block.extend(nodes)
        self.block.append(
            If(
                head,
                condition,
                self.into(lambda: self.expr(node.body, name)),
                self.into(lambda: self.expr(node.orelse, name)),
            )
        )
        return name

    def _expr_Tuple(self, node: ast.Tuple, out: str | None) -> Operand:
        parts = [self.expr(e) for e in node.elts]
        form = ", ".join(f"{{{i}}}" for i in range(len(parts)))
        return self.pure(node, f"({form},)" if parts else "()", parts, "tuple", out, "tuple")

    def _expr_Subscript(self, node: ast.Subscript, out: str | None) -> Operand:
        base = self.expr(node.value)
        args: list[Operand] = [base]
        index, items = self.index(node.slice, args)
        name = out or self.temp()
        self.emit(Op("load", (name,), args, "", self.frame.where(node), None, {}, index, items))
        return name

    def _expr_Attribute(self, node: ast.Attribute, out: str | None) -> Operand:
        base = self.expr(node.value)
        if node.attr == "flat":
            return self.pure(node, "{0}.ravel()", [base], ".flat", out)
        return self.pure(node, f"{{0}}.{node.attr}", [base], f".{node.attr}", out)

    def _expr_NamedExpr(self, node: ast.NamedExpr, out: str | None) -> Operand:
        self.expr(node.value, self.local(node.target.id))
        return self.local(node.target.id)

    def _expr_List(self, node: ast.List, out: str | None) -> Operand:
        raise refuse(
            self.frame.where(node),
            "Lists have no derivative rule.",
            "Allocate an array with np.empty(n) and count its elements, or write np.array([a, b]) where the values are known.",
        )

    _expr_ListComp = _expr_List  # type: ignore[assignment]

    def callable_here(self, function: Any) -> bool:
        return (
            isinstance(function, Custom | _LocalFunction)
            or getattr(function, "py_func", None) is not None
            or is_jitable(function)
            or (self.helpers and is_users(function) and is_plain(function))
        )

    def _expr_Call(self, node: ast.Call, out: str | None) -> Operand:
        """Lower a call: of a type, a method, a function with a rule, or a jitted function, which is inlined."""
        function = self.known(node.func)
        where = self.frame.where(node)
        if function is MISSING and self.is_type(node.func):
            function = _TypeOf(self.expr(node.func.args[0]))  # type: ignore[attr-defined]
        if isinstance(function, _TypeOf):
            if len(node.args) != 1 or node.keywords:
                raise refuse(where, "A type is called with other than one number.", "Pass one.")
            args = [self.expr(node.args[0]), function.operand]
            return self.pure(node, "type({1})({0})", args, "type", out)
        if function is MISSING:
            if isinstance(node.func, ast.Attribute):
                return self.method(node, node.func, out)
            raise refuse(
                where,
                "What is called is not known before the program runs.",
                "Call a jitted function by its name.",
            )
        if isinstance(function, Custom):
            return self.custom(node, function, out)
        text = canonical(function)
        if text is None:
            if self.callable_here(function):
                result = self.call(node, function, out)
                if result is None:
                    raise refuse(
                        where, "The called function returns nothing.", "Return a value from it."
                    )
                return result
            fields = getattr(function, "_fields", None)
            if inspect.isclass(function) and issubclass(function, tuple) and fields is not None:
                if len(node.args) == len(fields) and not node.keywords:
                    parts = [self.expr(e) for e in node.args]
                    form = ", ".join(f"{{{i}}}" for i in range(len(parts)))
                    name = self.constant(function, function.__name__).text
                    return self.pure(node, f"{name}({form})", parts, "tuple", out, "tuple")
                raise refuse(
                    where,
                    "A named tuple is made with other than one argument for each field.",
                    f"Pass {', '.join(fields)} by position.",
                )
            ufunc = getattr(function, "__self__", None)
            if isinstance(ufunc, np.ufunc):
                raise refuse(
                    where,
                    f"Numba knows no np.{ufunc.__name__}.{function.__name__}.",
                    "Write an outer operation with an axis of one entry (x.reshape(-1, 1) + y), and others as a loop.",
                )
            remedy = "Decorate it with numba.njit, or give its derivative with tg.njit_vjp."
            # What vectorize, guvectorize, stencil and cfunc make is of Numba's own types.
            if type(function).__module__.startswith("numba."):
                remedy = "Write what it does to numbers as a function under numba.njit, and call that in a loop."
            if type(function).__name__ == "JitClassType":
                remedy = "Hold its fields in a named tuple, or pass them as arguments."
            elif str(getattr(function, "__module__", "")).startswith("numba.typed"):
                remedy = "Keep the numbers in an array, by position."
            raise refuse(
                where,
                f"{getattr(function, '__name__', type(function).__name__)!r} is neither a jitted function nor one that has a rule.",
                remedy,
            )
        return self.known_call(node, text, list(node.args), node.keywords, [], out)

    def method(self, node: ast.Call, attribute: ast.Attribute, out: str | None) -> Operand:
        """Lower a call of an array's method, as the function of NumPy that it is."""
        base = self.expr(attribute.value)
        name = _METHODS.get(attribute.attr)
        if name is None:
            raise refuse(
                self.frame.where(node),
                f"The method {attribute.attr} has no derivative rule.",
                "Write it with functions of NumPy that have one, or as a loop.",
            )
        if attribute.attr == "item" and not node.args:
            return self.pure(node, "{0}.item()", [base], ".item", out)
        if attribute.attr in ("reshape", "transpose") and len(node.args) > 1:
            given = self.expr(ast.copy_location(ast.Tuple(node.args, ast.Load()), node))
            return self.pure(node, f"{{0}}.{attribute.attr}({{1}})", [base, given], name, out)
        return self.known_call(node, name, list(node.args), node.keywords, [base], out)

    def known_call(
        self,
        node: ast.Call,
        text: str,
        nodes: list[ast.expr],
        keywords: list[ast.keyword],
        before: list[Operand],
        out: str | None,
    ) -> Operand:
        """Lower a call of a function with a known name; arguments in `before` stand first."""
        where = self.frame.where(node)
        program = self.choices.get((text, *self.key(node)))
        if program is not None:
            result = self.call(node, program, out, before, spelled=True)
            assert result is not None
            return result
        if text == "np.array" and len(nodes) == 1 and isinstance(nodes[0], ast.List | ast.Tuple):
            return self.array(node, nodes[0], keywords, out)
        several = spelled.parameters(text)[:1] == ("arrays",)
        if several and not nodes:
            raise refuse(where, f"{text} is given no arrays by position.", "Pass them first.")
        if several and isinstance(nodes[0], ast.Tuple | ast.List):
            return self.joining(node, text, nodes[0].elts, nodes[1:], keywords, out)
        if text.startswith("np.random."):
            args, names, _ = self.given([self.expr(a) for a in nodes], keywords)
            return self.pure(node, _called(text, names), args, text, out, "impure")
        if not has_meaning(text):
            raise refuse(
                where,
                f"{text} has no derivative rule.",
                remedy(text),
            )
        if any(isinstance(a, ast.Starred) for a in nodes) or any(k.arg is None for k in keywords):
            raise refuse(where, "Arguments are unpacked in a call.", "Pass them one by one.")
        if text in ("min", "max") and len(nodes) > 2 and not before:
            operand = self.expr(nodes[0])
            for i, other in enumerate(nodes[1:], 2):
                pair = [operand, self.expr(other)]
                bound = out if i == len(nodes) else None
                operand = self.pure(node, f"{text}({{0}}, {{1}})", pair, text, bound)
            return operand
        if text.startswith(special.PREFIX):
            self.scope |= special.scope()
        if any(k.arg == "out" for k in keywords):
            raise refuse(
                where,
                "A result is written into an array that is passed as out.",
                f"Assign it: y[:] = {text}(...).",
            )
        nodes, keywords = _by_position(text, len(before), nodes, keywords)
        parameters = (*spelled.parameters(text), *[""] * (len(before) + len(nodes)))
        first = [self.argument(a, parameters[i]) for i, a in enumerate(nodes, len(before))]
        args, names, settings = self.given([*before, *first], keywords)
        form = _called(text, names)
        if text in _AS_METHODS:
            # Numba knows these as methods only, or with more of their arguments as methods.
            inner = ", ".join(f"{n}{{{i}}}" for i, n in enumerate(names) if i)
            form = f"{{0}}.{_AS_METHODS[text]}({inner})"
        name = self.pure(node, form, args, text, out, **settings)
        count = names.count("")
        self.note_call(node, text, (*parameters[:count], *(n[:-1] for n in names[count:])))
        return name

    def joining(
        self,
        node: ast.Call,
        text: str,
        arrays: list[ast.expr],
        axis: list[ast.expr],
        keywords: list[ast.keyword],
        out: str | None,
    ) -> Operand:
        """Lower a call of a function that joins arrays, which are written one by one."""
        parts = [self.expr(e) for e in arrays]
        settings: dict[str, Any] = {k.arg: self.expr(k.value) for k in keywords if k.arg}
        if axis:
            settings["axis"] = self.expr(axis[0])
        places = ", ".join(f"{{{i}}}" for i in range(len(parts)))
        extra = "".join(
            f", {k}={v.text if isinstance(v, Const) else v}" for k, v in settings.items()
        )
        name = self.pure(node, f"{text}(({places},){extra})", parts, text, out, **settings)
        self.note_call(node, text, ("arrays",) * len(parts))
        return name

    def given(
        self, args: list[Operand], keywords: list[ast.keyword]
    ) -> tuple[list[Operand], list[str], dict[str, Any]]:
        """Arguments with those by name behind them, how each is written before its value, and the latter by name."""
        settings = {str(k.arg): self.expr(k.value) for k in keywords}
        names = [*[""] * len(args), *(f"{k}=" for k in settings)]
        return [*args, *settings.values()], names, settings

    def note_call(self, node: ast.Call, text: str, names: tuple[str, ...]) -> None:
        """Let the operation that was emitted last be one that can be written out."""
        if len(set(names)) <= len(spelled.parameters(text)):
            op = self.block[-1].ops[-1]  # type: ignore[union-attr]
            op.called = Called((text, *self.key(node)), names)

    def argument(self, node: ast.expr, parameter: str) -> Operand:
        """An argument of a function of NumPy's: a list of numbers is the array of them, one of arrays a tuple."""
        if isinstance(node, ast.List) and parameter in spelled.SEQUENCES:
            return self.expr(ast.copy_location(ast.Tuple(node.elts, ast.Load()), node))
        return self.array(node, node, [], None) if isinstance(node, ast.List) else self.expr(node)

    def array(
        self,
        node: ast.expr,
        literal: ast.List | ast.Tuple,
        keywords: list[ast.keyword],
        out: str | None,
    ) -> Operand:
        """Lower np.array of a list of numbers, or of rows of numbers."""
        rows = [e.elts if isinstance(e, ast.List | ast.Tuple) else e for e in literal.elts]
        nested = bool(rows) and isinstance(rows[0], list)
        if any(isinstance(r, list) != nested for r in rows) or any(
            isinstance(e, ast.List | ast.Tuple | ast.Starred)
            for r in rows
            if isinstance(r, list)
            for e in r
        ):
            raise refuse(
                self.frame.where(node),
                "Arrays of this nesting have no rule.",
                "Write np.empty and fill it.",
            )
        args: list[Operand] = []
        texts = []
        for r in rows:
            part = []
            for e in r if isinstance(r, list) else [r]:
                args.append(self.expr(e))
                part.append(f"{{{len(args) - 1}}}")
            texts.append(f"[{', '.join(part)}]" if nested else part[0])
        width = len(rows[0]) if nested else 0  # type: ignore[arg-type]
        count = len(args)
        args, names, settings = self.given(args, keywords)
        extra = "".join(f", {n}{{{count + i}}}" for i, n in enumerate(names[count:]))
        return self.pure(
            node,
            f"np.array([{', '.join(texts)}]{extra})",
            args,
            "np.array",
            out,
            width=Const(str(width), width),
            **settings,
        )

    def custom(self, node: ast.Call, function: Custom, out: str | None) -> Operand:
        """Lower a call of a function with a rule of the user's."""
        if node.keywords:
            raise refuse(
                self.frame.where(node),
                "A function with a custom rule takes arguments by position.",
                "Pass them so.",
            )
        args = [self.expr(a) for a in node.args]
        places = ", ".join(f"{{{i}}}" for i in range(len(args)))
        forward = self.constant(function.f, function.f.__name__).text
        self.customs[forward] = function
        backward = self.constant(function.vjp, f"{function.f.__name__}_vjp").text
        return self.pure(
            node, f"{forward}({places})", args, "custom", out, vjp=Const(backward, None)
        )

    # ---------------------------------------------------------------------------------------- indexing

    def index(self, node: ast.expr, args: list[Operand]) -> tuple[str, tuple[str, ...]]:
        """Text of an index, its operands appended to `args`; and for each item what it is and which operands it reads."""
        elements = node.elts if isinstance(node, ast.Tuple) else [node]
        if not elements:
            raise refuse(
                self.frame.where(node),
                "The index is an empty tuple.",
                "Write a.item() for the one element of an array, and a for all of it.",
            )
        texts = []
        items = []
        if len(elements) == 1 and _is_ellipsis(elements[0]):
            elements = [ast.Slice()]  # Numba has no code for an ellipsis alone
        for element in elements:
            start = len(args)
            if isinstance(element, ast.Slice):
                parts = [
                    self.simple(p, args) if p is not None else ""
                    for p in (element.lower, element.upper)
                ]
                text = ":".join(parts)
                if element.step is not None:
                    text += f":{self.simple(element.step, args)}"
                kind = "slice"
            elif _is_ellipsis(element):
                text, kind = "...", "ellipsis"
            elif _is_none(element) or self.known(element) is None:
                text, kind = "None", "newaxis"
            elif isinstance(element, ast.Starred):
                raise refuse(self.frame.where(node), "A starred index.", "Write each index.")
            else:
                text, kind = self.simple(element, args), "at"
            texts.append(text)
            items.append(f"{kind} {start} {len(args)}")
        return ", ".join(texts), tuple(items)

    def simple(self, node: ast.expr, args: list[Operand]) -> str:
        """Text of an index: sums and products of names and whole numbers are written out, anything else gets a name first."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            if self.plain_index(node):
                return f"({self.simple(node.left, args)} {BINARY[type(node.op)]} {self.simple(node.right, args)})"
        operand = self.expr(node)
        if isinstance(operand, Const) and type(operand.value) is int:
            return operand.text
        args.append(operand)
        return f"{{{len(args) - 1}}}"

    def plain_index(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return (
                isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
                and self.plain_index(node.left)
                and self.plain_index(node.right)
            )
        if isinstance(node, ast.Name):
            return self.known(node) is MISSING or isinstance(self.known(node), int)
        return isinstance(node, ast.Constant) and type(node.value) is int

    def passive(self, node: ast.expr) -> tuple[str, list[Operand]] | None:
        """A condition as one form on names, evaluated as a whole (with `and` and `or` as they are); None if it holds more than
        arithmetic, elements and pure functions."""
        args: list[Operand] = []
        places: dict[str, int] = {}

        def text(n: ast.expr) -> str:
            """The text of an expression through which no derivative goes; _NotPassive where that is not known."""
            known = self.known(n)
            if known is not MISSING:
                if callable(known) or isinstance(known, _LocalFunction):
                    raise _NotPassive
                return (
                    self.constant(known, getattr(n, "id", getattr(n, "attr", "constant")))
                    .text.replace("{", "{{")
                    .replace("}", "}}")
                )
            if isinstance(n, ast.Name):
                operand = self.expr(n)
                if isinstance(operand, Const):
                    return operand.text
                if operand not in places:
                    places[operand] = len(args)
                    args.append(operand)
                return f"{{{places[operand]}}}"
            if isinstance(n, ast.Constant):
                return repr(n.value).replace("{", "{{").replace("}", "}}")
            if isinstance(n, ast.Compare):
                parts = [text(n.left)]
                for sign, right in zip(n.ops, n.comparators, strict=True):
                    parts += [_COMPARE[type(sign)], text(right)]
                return f"({' '.join(parts)})"
            if isinstance(n, ast.BoolOp):
                word = " and " if isinstance(n.op, ast.And) else " or "
                return f"({word.join(text(v) for v in n.values)})"
            if isinstance(n, ast.UnaryOp):
                symbol = {ast.USub: "-", ast.UAdd: "+", ast.Not: "not ", ast.Invert: "~"}[
                    type(n.op)
                ]
                return f"({symbol}{text(n.operand)})"
            if isinstance(n, ast.BinOp):
                return f"({text(n.left)} {BINARY[type(n.op)]} {text(n.right)})"
            if isinstance(n, ast.Subscript):
                elements = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
                if any(isinstance(e, ast.Slice) for e in elements):
                    raise _NotPassive
                return f"{text(n.value)}[{', '.join(text(e) for e in elements)}]"
            if isinstance(n, ast.Attribute) and n.attr in ("size", "ndim", "shape"):
                return f"{text(n.value)}.{n.attr}"
            if isinstance(n, ast.Call) and not n.keywords:
                function = self.known(n.func)
                name = canonical(function) if function is not MISSING else None
                if name is not None and has_meaning(name):
                    return f"{name}({', '.join(text(a) for a in n.args)})"
            raise _NotPassive

        try:
            return text(node), args
        except _NotPassive:
            return None


class _NotPassive(Exception):
    pass


class _LocalFunction:
    """A function defined inside the one that is lowered."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, frame: _Frame) -> None:
        self.node = node
        self.frame = frame


_COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip

_METHODS = {name: f"np.{name}" for name in METHODS} | {
    "flatten": ".flatten", "astype": ".astype", "item": ".item", "conj": "np.conjugate",
}  # fmt: skip

_AS_METHODS = {
    ".flatten": "flatten", ".astype": "astype", "np.copy": "copy", "np.reshape": "reshape", "np.ravel": "ravel",
}  # fmt: skip


def _called(text: str, names: Sequence[str]) -> str:
    """The form of a call whose arguments stand behind these names."""
    return f"{text}({', '.join(f'{n}{{{i}}}' for i, n in enumerate(names))})"


def _is_head(nodes: list[Node]) -> bool:
    """Whether nodes are one straight line that binds nothing but temporaries."""
    return (
        len(nodes) == 1
        and isinstance(nodes[0], Seg)
        and all(
            op.kind in ("pure", "load", "copy", "item")
            and op.rule != "custom"
            and op.out[0].startswith(TEMP)
            for op in nodes[0].ops
        )
    )


def has_meaning(text: str) -> bool:
    """Whether a function, by its text, may be called: it has a rule, or only computes."""
    from .rules import FUNCTIONS  # rules know of operations, and these of functions by name only

    known = text in PURE or text in FUNCTIONS or bool(spelled.parameters(text))
    return known or text.startswith(special.PREFIX)


def _by_position(
    text: str, before: int, nodes: list[ast.expr], keywords: list[ast.keyword]
) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Arguments passed by name, put where the function's signature has them as far as that goes: rules count operands."""
    named = {k.arg: k for k in keywords}
    nodes = list(nodes)
    for name in _parameters(text)[before + len(nodes) :]:
        if name not in named or name in _OPTIONS:
            break
        nodes.append(named.pop(name).value)
    return nodes, list(named.values())


_OPTIONS = frozenset("axis dtype keepdims out order kind".split())
"""Arguments that rules look for by name."""


@functools.cache
def _parameters(text: str) -> list[str]:
    function = functools.reduce(getattr, text.split(".")[1:], np) if text[:3] == "np." else None
    try:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a builtin that does not tell
        return []


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _folded(symbol: str, x: Operand, y: Operand) -> Const | None:
    """A constant for two of them with an operator between, where it is a float: rules are shorter for constants."""
    if not (isinstance(x, Const) and isinstance(y, Const)) or symbol not in _FOLDED:
        return None
    if not all(type(c.value) in (int, float) for c in (x, y)):
        return None
    try:
        value = _FOLDED[symbol](x.value, y.value)
    except ArithmeticError:
        return None
    if type(value) is not float or not math.isfinite(value):
        return None
    return Const(f"({x.text} {symbol} {y.text})", value)


_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _has_walrus(node: ast.AST) -> bool:
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def _own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """Nodes of a function, but not of functions defined in it."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _assigned(function: Any) -> set[str]:
    """Names that a function binds in its body."""
    body = function.body if isinstance(function.body, list) else [function.body]
    return {
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }


def _read(function: Any) -> set[str]:
    """Names that a function reads in its body."""
    body = function.body if isinstance(function.body, list) else [function.body]
    found = (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name))
    return {n.id for n in found if isinstance(n.ctx, ast.Load)}


def _unchanged(function: Any) -> bool:
    """Whether a function holds no function of its own, whose names might be looked up later."""
    body = function.body if isinstance(function.body, list) else [function.body]
    return not any(
        isinstance(n, ast.FunctionDef | ast.Lambda | ast.NamedExpr)
        for s in body
        for n in ast.walk(s)
    )


def _shifted(index: str, n: int) -> str:
    """The index of a load as that of a store: its operands stand one place later."""
    return index.format(*(f"{{{i + 1}}}" for i in range(n)))


def _shift_item(item: str) -> str:
    kind, start, stop = item.split()
    return f"{kind} {int(start) + 1} {int(stop) + 1}"
