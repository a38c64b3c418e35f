"""Functions of the user's, as lowering meets them: source, what names mean, and how control leaves them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from numba import typeof
from numba.core.registry import cpu_target

from ...core.parsing import parsed
from ...errors import NotDifferentiable
from ..names import MISSING
from ..tree import Operand, Where

JUMPS = (ast.Return, ast.Break, ast.Continue)


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


class TypeOf:
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
        tree: ast.AST = parsed(text)
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


def scope_of(function: Any) -> Callable[[str], Any]:
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


def plain_parameters(arguments: ast.arguments, frame: Frame) -> None:
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise refuse(
            frame.where(arguments.args[0] if arguments.args else frame.node),
            "Parameters of variable number or by keyword only have no place in the generated derivative.",
            "Name each parameter.",
        )


class Frame:
    """One function being written out: what its names are, and how it is left."""

    def __init__(
        self, node: Any, scope: Callable[[str], Any], file: str, line: int, parent: Frame | None
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
        self.lists: set[str] = set()
        """Variables of lists that are arrays here."""
        self.locals = _locals(node)
        self.result = ""
        self.returned = ""
        self.level = self.outside = Level("")
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


class Level:
    """One loop (or the function outside of loops): the flags that a jump sets."""

    def __init__(self, stop: str, parent: Level | None = None) -> None:
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


def may_jump(node: Any, kinds: Any = JUMPS) -> bool:
    """Whether a statement may leave the block that it stands in."""
    if isinstance(node, kinds):
        return True
    if isinstance(node, ast.If):
        return any(may_jump(n, kinds) for n in (*node.body, *node.orelse))
    if isinstance(node, ast.For | ast.While):
        return any(may_jump(n, ast.Return) for n in (*node.body, *node.orelse)) or any(
            may_jump(n, kinds) for n in node.orelse
        )
    return False


def ends(block: list[ast.stmt]) -> bool:
    """Whether control never passes the end of a block."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, (*JUMPS, ast.Raise)):
        return True
    return isinstance(last, ast.If) and ends(last.body) and ends(last.orelse)


class LocalFunction:
    """A function defined inside the one that is lowered."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> None:
        self.node = node
        self.frame = frame


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """Nodes of a function, but not of functions defined in it."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return found


def assigned_in(function: Any) -> set[str]:
    """Names that a function binds in its body."""
    body = function.body if isinstance(function.body, list) else [function.body]
    return {
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }


def read_in(function: Any) -> set[str]:
    """Names that a function reads in its body."""
    body = function.body if isinstance(function.body, list) else [function.body]
    found = (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name))
    return {n.id for n in found if isinstance(n.ctx, ast.Load)}


def is_unchanged(function: Any) -> bool:
    """Whether a function holds no function of its own, whose names might be looked up later."""
    body = function.body if isinstance(function.body, list) else [function.body]
    return not any(
        isinstance(n, ast.FunctionDef | ast.Lambda | ast.NamedExpr)
        for s in body
        for n in ast.walk(s)
    )
