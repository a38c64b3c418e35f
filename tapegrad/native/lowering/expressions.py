"""Expressions become operations on named operands; indices, and what reads no tracked number, stay text."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from .. import special, spelled
from ..names import MISSING, PURE, canonical
from ..tree import TEMP, Const, If, Node, Op, Operand
from .building import Builder, is_head
from .frames import LocalFunction, TypeOf, is_none, own_nodes, refuse

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.FloorDiv: "//", ast.Mod: "%",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


class _NotPassive(Exception):
    pass


class Expressions(Builder):
    """What expressions of the open frame's function compute."""

    def condition(self, node: ast.expr) -> tuple[list[Op], list[Node], Operand]:
        """A condition as (straight-line operations, or else whole nodes that come first, operand)."""
        result: list[Operand] = []
        nodes = self.into(lambda: result.append(self.expr(node)))
        if not nodes:
            return [], [], result[0]
        if is_head(nodes):
            return nodes[0].ops, [], result[0]  # type: ignore[union-attr]
        return [], nodes, result[0]

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

    def is_type(self, node: ast.expr) -> bool:
        """Whether an expression is `type(x)`."""
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return False
        return self.known(node.func) is type

    def bound_once(self, name: str) -> bool:
        stores = [
            n
            for n in own_nodes(self.frame.node)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        return len(stores) == 1

    def kept(self, operand: Operand, node: ast.expr) -> Operand:
        """An operand that keeps its value while others are bound: a user's name is copied."""
        if isinstance(operand, str) and not operand.startswith(TEMP):
            return self.copy(node, operand, self.temp())
        return operand

    def expr(self, node: ast.expr, out: str | None = None) -> Operand:
        """Lower an expression; bind its value to `out` if that is given."""
        operand = self.value(node, out)
        if out is not None and operand != out:
            return self.copy(node, operand, out)
        return operand

    def value(self, node: ast.expr, out: str | None) -> Operand:
        """Lower an expression: its operand, bound to the name `out` where one is given."""
        known = self.known(node)
        if isinstance(known, TypeOf):
            raise refuse(
                self.frame.where(node),
                "The type of a variable is used as a value.",
                "Call it, as type(x)(1), or name the type.",
            )
        if known is not MISSING and not (isinstance(known, LocalFunction)):
            hint = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "constant")
            return self.constant(known, hint)
        if isinstance(node, ast.Constant):
            return self.constant(node.value)
        if isinstance(node, ast.Name):
            if isinstance(known, LocalFunction) or (
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

    _expr_ListComp = _expr_List

    def listed(self, node: ast.ListComp, out: str | None = None, deep: bool = False) -> Operand:
        raise NotImplementedError  # lists know how

    def argument(self, node: ast.expr, parameter: str) -> Operand:
        """An argument of a function of NumPy's: a list of numbers is the array of them, one of arrays a tuple."""
        if isinstance(node, ast.ListComp):
            return self.listed(node)
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
            elif is_none(element) or self.known(element) is None:
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
                if callable(known) or isinstance(known, LocalFunction):
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


def has_meaning(text: str) -> bool:
    """Whether a function, by its text, may be called: it has a rule, or only computes."""
    from ..rules import FUNCTIONS  # rules know of operations, and these of functions by name only

    known = text in PURE or text in FUNCTIONS or bool(spelled.parameters(text))
    return known or text.startswith(special.PREFIX)


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


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


def _has_walrus(node: ast.AST) -> bool:
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
