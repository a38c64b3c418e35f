"""The tree that grows: names that nothing else has, constants, and operations behind one another in the open block."""

from __future__ import annotations

import ast
import cmath
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..names import MISSING, RESERVED, canonical, resolve_attribute
from ..tree import TEMP, Const, Node, Op, Operand, Seg, Where
from .frames import Custom, Frame


class Builder:
    """Names, constants and operations of one program."""

    def __init__(self) -> None:
        """An empty program, of jitted functions as long as `helpers` is not set."""
        self.taken: set[str] = set(RESERVED)
        self.counter = itertools.count(1)
        self.scope: dict[str, Any] = {"np": np, "math": math, "cmath": cmath}
        self.objects: dict[int, str] = {}
        self.customs: dict[str, Custom] = {}
        self.block: list[Node] = []
        self.frame: Frame
        self.several: set[str] = set()
        self.open: list[Any] = []
        self.snapshots = 0
        self.parallel = False
        self.helpers = False
        """Whether functions that are not jitted are written out where they are called."""
        self.choices: dict[Any, Any] = {}
        self.lists = False
        """Whether lists of numbers became arrays of float64."""

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
                outer: Frame | None = frame.parent
                while outer is not None:
                    if name in outer.names:
                        return outer.names[name]
                    outer = outer.parent
            frame.names[name] = self.fresh(name)
        return frame.names[name]

    def known(self, node: ast.AST) -> Any:
        """The object that an expression names, if that is known before the program runs."""
        if isinstance(node, ast.Name):
            frame: Frame | None = self.frame
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

    def key(self, node: ast.AST) -> Any:
        """What tells a call from all others of the program."""
        return (*self.frame.key, getattr(node, "lineno", 0), getattr(node, "col_offset", 0))

    def visible(self) -> set[str]:
        names: set[str] = set()
        frame: Frame | None = self.frame
        while frame is not None:
            names |= set(frame.names)
            frame = frame.parent
        return names


def is_head(nodes: list[Node]) -> bool:
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
