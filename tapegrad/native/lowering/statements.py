"""Statements: jumps become flags and nested branches, so that none is left."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from ..names import MISSING
from ..tree import If, Op
from .frames import JUMPS, Level, LocalFunction, ends, is_none, may_jump, refuse
from .loops import Loops


class Lowering(Loops):
    """Builds the tree; one per program."""

    def statements(self, block: list[ast.stmt]) -> None:
        """Lower a block; what follows a jump is put under conditions, so that no jump is left."""
        for i, node in enumerate(block):
            rest = block[i + 1 :]
            if isinstance(node, ast.If) and may_jump(node):
                if ends(node.body):
                    self.branch(node, node.body, [*node.orelse, *rest])
                    return
                if ends(node.orelse):
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
                if any(may_jump(n, ast.Return) for n in node.body):
                    self.unless(self.frame.returned, self.leave_here, rest)
                    return
                if node.orelse:
                    self.statements(rest)
                    return
                continue
            self.statement(node)
            if isinstance(node, (*JUMPS, ast.Raise)):
                return

    def unless(self, flag: str, left: Callable[[], Any], rest: list[ast.stmt]) -> None:
        self.block.append(If([], flag, self.into(left), self.into(lambda: self.statements(rest))))

    def leave_here(self) -> None:
        self.leave(self.frame.level, True)

    def leave(self, level: Level, stop: bool) -> None:
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
        self.frame.fixed[node.name] = LocalFunction(node, self.frame)

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None and not is_none(node.value):
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
