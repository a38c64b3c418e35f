"""Assignments: to names, to tuples of them, and to entries and slices of arrays."""

from __future__ import annotations

import ast

import numpy as np

from .. import spelled
from ..names import MISSING, canonical
from ..tree import IN_PLACE, Const, Op, Operand
from .calls import Calls
from .expressions import BINARY
from .frames import LocalFunction, TypeOf, refuse


class Assignments(Calls):
    """What the open frame's function puts where."""

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
                self.frame.fixed[to.id] = LocalFunction(value, self.frame)
                return
            known = self.known(value)
            if known is not MISSING and callable(known):
                self.frame.fixed[to.id] = known
                return
            if self.is_type(value) and self.bound_once(to.id):
                self.frame.fixed[to.id] = TypeOf(self.expr(value.args[0]))  # type: ignore[attr-defined]
                return
            if isinstance(value, ast.ListComp) and self.is_array(to.id):
                self.listed(value, self.local(to.id))
                self.frame.lists.add(to.id)
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
        elif isinstance(to, ast.Subscript) and isinstance(value, ast.List) and value.elts:
            self.bind(to, self.array(value, value, [], None), node)  # what Numba stores, too
        else:
            self.bind(to, self.expr(value), node)

    def is_array(self, name: str) -> bool:
        raise NotImplementedError  # lists know how

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
                if text == "np.random.seed" or (function is print and not node.value.keywords):
                    arguments = [self.expr(a) for a in node.value.args]
                    places = ", ".join(f"{{{i}}}" for i in range(len(arguments)))
                    called = f"{text or 'print'}({places})"
                    self.emit(Op("verbatim", (), arguments, called, self.frame.where(node)))
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


def _shifted(index: str, n: int) -> str:
    """The index of a load as that of a store: its operands stand one place later."""
    return index.format(*(f"{{{i + 1}}}" for i in range(n)))


def _shift_item(item: str) -> str:
    kind, start, stop = item.split()
    return f"{kind} {int(start) + 1} {int(stop) + 1}"
