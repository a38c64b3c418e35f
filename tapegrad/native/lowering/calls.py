"""Calls: helpers are written out where they are called, functions of NumPy's become operations with their rules."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.signatures import METHODS
from ...face.reaching import is_users
from .. import special, spelled
from ..complaints import remedy
from ..names import MISSING, canonical, is_jitable
from ..tree import Called, Const, Node, Operand, Where
from .expressions import Expressions, has_meaning
from .frames import (
    Custom,
    Frame,
    LocalFunction,
    TypeOf,
    assigned_in,
    definition,
    is_none,
    is_parallel,
    is_plain,
    is_unchanged,
    may_jump,
    own_nodes,
    plain_parameters,
    python_function,
    read_in,
    refuse,
    scope_of,
)

_DEEPEST = 60
"""Calls written out inside one another; more is taken for a recursion without end."""
_METHODS = {name: f"np.{name}" for name in METHODS} | {
    "flatten": ".flatten", "astype": ".astype", "item": ".item", "conj": "np.conjugate",
}  # fmt: skip
_AS_METHODS = {
    ".flatten": "flatten", ".astype": "astype", "np.copy": "copy", "np.reshape": "reshape", "np.ravel": "ravel",
}  # fmt: skip
_OPTIONS = frozenset("axis dtype keepdims out order kind".split())
"""Arguments that rules look for by name."""


class Calls(Expressions):
    """Calls in the open frame's function."""

    def statements(self, block: list[ast.stmt]) -> None:
        """Lower a block, by the layer of statements."""
        raise NotImplementedError

    def run(self, frame: Frame, body: list[Node], result: str) -> str:
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
            returns = [n for n in own_nodes(frame.node) if isinstance(n, ast.Return)]
            if any(r.value is not None and not is_none(r.value) for r in returns):
                frame.result = self.fresh(result)
                self.several.add(frame.result)
            if any(
                may_jump(n, ast.Return)
                for loop in own_nodes(frame.node)
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
        plain_parameters(inner.args, frame)
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
                frame.fixed[parameter] = LocalFunction(argument, self.frame)
            elif spelled:
                bound[parameter] = self.argument(argument, parameter)
            else:
                bound[parameter] = self.expr(argument)
        assigned = assigned_in(inner)
        if spelled:  # what decided which program it is, such as an axis, may have no further use
            bound = {p: a for p, a in bound.items() if isinstance(a, str) or p in read_in(inner)}
        for parameter, operand in bound.items():
            if isinstance(operand, str) and parameter not in assigned and is_unchanged(inner):
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

    def opened(self, function: Any, where: Where) -> tuple[Frame, str, dict[str, Any]]:
        """A frame for a helper's body, the helper's name, and the defaults of its parameters."""
        if not isinstance(function, LocalFunction):
            plain = python_function(function)
            inner, file, line = definition(plain)
            parameters = inspect.signature(plain).parameters.values()
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            return Frame(inner, scope_of(plain), file, line, None), plain.__name__, defaults
        local, around = function.node, function.frame
        name = getattr(local, "name", "helper")
        if local.args.defaults:
            raise refuse(
                where, f"{name} is a local function with defaults.", "Pass every argument."
            )
        return Frame(local, around.scope, around.file, around.line, around), name, {}

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

    def callable_here(self, function: Any) -> bool:
        return (
            isinstance(function, Custom | LocalFunction)
            or getattr(function, "py_func", None) is not None
            or is_jitable(function)
            or (self.helpers and is_users(function) and is_plain(function))
        )

    def _expr_Call(self, node: ast.Call, out: str | None) -> Operand:
        """Lower a call: of a type, a method, a function with a rule, or a jitted function, which is inlined."""
        function = self.known(node.func)
        where = self.frame.where(node)
        if function is MISSING and self.is_type(node.func):
            function = TypeOf(self.expr(node.func.args[0]))  # type: ignore[attr-defined]
        if isinstance(function, TypeOf):
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
        if text in ("np.array", "np.asarray") and not keywords and len(nodes) == 1:
            if isinstance(nodes[0], ast.ListComp):
                return self.listed(nodes[0], out, deep=True)
            if isinstance(nodes[0], ast.Name) and nodes[0].id in self.frame.lists:
                return self.pure(node, "np.copy({0})", [self.expr(nodes[0])], "np.copy", out)
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


def _called(text: str, names: Sequence[str]) -> str:
    """The form of a call whose arguments stand behind these names."""
    return f"{text}({', '.join(f'{n}{{{i}}}' for i, n in enumerate(names))})"


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


@functools.cache
def _parameters(text: str) -> list[str]:
    function = functools.reduce(getattr, text.split(".")[1:], np) if text[:3] == "np." else None
    try:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a builtin that does not tell
        return []
