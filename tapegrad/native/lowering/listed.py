"""Lists of numbers that one expression makes: `[f(v) for v in x]`, as the arrays of their elements.

A list has other operators than an array (`+` joins lists), so only one that is read in ways which mean the same of both is an array here:
as an argument of a function of NumPy's, of `sum`, `len`, `min` and `max`, by an index, as what a loop goes through. Any other list has no
derivative rule.

Invariant: the variables of a list's loop are its own; the function's variables of the same names stay as they are.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from ..names import canonical
from ..tree import Operand
from .assignments import Assignments
from .frames import own_nodes, refuse

READERS = frozenset(("sum", "len", "min", "max", "zip", "enumerate"))


class Lists(Assignments):
    """Lists of the open frame's function."""

    def loop(self, node: ast.For | ast.While) -> str:
        raise NotImplementedError  # loops know how

    def listed(self, node: ast.ListComp, out: str | None = None, deep: bool = False) -> Operand:
        """Lower a list as an array, with `deep` a list of lists as a matrix: loops over positions; where a condition leaves elements out,
        those that are kept are counted."""
        levels, inner = self._levels(copy.deepcopy(node), deep)  # its variables get other names
        made_by = [c.generators[0] for c in levels]
        self.lists = True
        places = [self._own("position") for _ in levels]
        turns = [
            self._elements(inner.visit(g.target), g.iter, place)
            for g, place in zip(made_by, places, strict=True)
        ]
        sizes = [self._own("count") for _ in levels]
        for size, (_, count) in zip(sizes, turns, strict=True):
            self.expr(_placed(count, node), size)
        tests = [inner.visit(t) for t in made_by[0].ifs]
        made = self._own("listed")  # what the list is bound to may be read in it
        shape = ", ".join(f"{{{k}}}" for k in range(len(sizes)))
        form = f"np.empty({shape})" if len(sizes) == 1 else f"np.empty(({shape}))"
        self.pure(node, form, list(sizes), "np.empty", made)
        at = [self._own("kept")] if tests else places
        body: list[ast.stmt] = [
            ast.Assign([_element(made, *at, ctx=ast.Store())], inner.visit(levels[-1].elt))
        ]
        if tests:
            self.expr(_placed(ast.Constant(0), node), at[0])
            body.append(ast.AugAssign(_name(at[0], ast.Store()), ast.Add(), ast.Constant(1)))
            test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
            body = [ast.If(test, body, [])]
        for place, size, (first, _) in reversed([*zip(places, sizes, turns, strict=True)]):
            through = ast.Call(_name("range"), [_name(size)], [])
            body = [ast.For(_name(place, ast.Store()), through, [*first, *body], [])]
        self.loop(_placed(body[0], node))
        if not tests:
            return self.copy(node, made, out) if out else made
        part = ast.Subscript(_name(made), ast.Slice(None, _name(at[0])), ast.Load())
        return self.expr(_placed(part, node), out)

    def _levels(self, node: ast.ListComp, deep: bool) -> tuple[list[ast.ListComp], _Renamed]:
        """A list and the lists that are its elements, from outside, and what renames the variables of their loops."""
        levels = [node]
        while deep and isinstance(levels[-1].elt, ast.ListComp):
            levels.append(levels[-1].elt)
        made_by = [c.generators[0] for c in levels]
        where = self.frame.where(node)
        if any(len(c.generators) > 1 for c in levels) or (
            levels[1:] and any(g.ifs for g in made_by)
        ):
            raise refuse(
                where, "A list of several loops has no derivative rule.", "Fill an array in loops."
            )
        own = {n.id for g in made_by for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        sources = [n for g in made_by[1:] for n in ast.walk(g.iter)]
        if any(isinstance(n, ast.Name) and n.id in own for n in sources):
            raise refuse(
                where,
                "Rows of a list are of lengths that its loop decides.",
                "Fill an array in loops.",
            )
        return levels, _Renamed({name: self._own(name) for name in sorted(own)})

    def _own(self, name: str) -> str:
        """A fresh variable."""
        found = self.fresh(name)
        self.frame.names[found] = found
        return found

    def _elements(
        self, target: ast.expr, source: ast.expr, position: str
    ) -> tuple[list[ast.stmt], ast.expr]:
        """What binds the target in the iteration of a position, and how many iterations there are."""
        call = source if isinstance(source, ast.Call) else None
        kind = canonical(self.known(call.func)) if call is not None else None
        if call is None or kind not in ("range", "enumerate", "zip"):
            held = self._held(source)
            return [ast.Assign([target], _element(held, position))], _length(held)
        if kind == "range":
            return self._numbers(target, call, position)
        parts = target.elts if isinstance(target, ast.Tuple) else []
        if len(parts) != (2 if kind == "enumerate" else len(call.args)) or call.keywords:
            raise refuse(
                self.frame.where(source),
                "What a list goes through is unpacked.",
                "Name each element.",
            )
        if kind == "enumerate":
            start = call.args[1] if len(call.args) > 1 else ast.Constant(0)
            number = ast.BinOp(_name(position), ast.Add(), start)
            held = self._held(call.args[0])
            first: list[ast.stmt] = [
                ast.Assign([parts[0]], number),
                ast.Assign([parts[1]], _element(held, position)),
            ]
            return first, _length(held)
        each = [self._held(a) for a in call.args]
        first = [ast.Assign([t], _element(h, position)) for t, h in zip(parts, each, strict=True)]
        return first, _least(list(map(_length, each)))

    def _numbers(
        self, target: ast.expr, call: ast.Call, position: str
    ) -> tuple[list[ast.stmt], ast.expr]:
        """The same of a range."""
        step = (
            ast.literal_eval(call.args[2])
            if len(call.args) == 3 and _is_number(call.args[2])
            else 1
        )
        if (
            type(step) is not int
            or not step
            or (len(call.args) == 3 and not _is_number(call.args[2]))
        ):
            raise refuse(
                self.frame.where(call),
                "A range of a list has a step that is no known number.",
                "Write it.",
            )
        held = [a if _is_number(a) else _name(self._held(a)) for a in call.args[:2]]
        lo, hi = (ast.Constant(0), held[0]) if len(held) == 1 else held
        distance = ast.BinOp(hi, ast.Sub(), lo) if step > 0 else ast.BinOp(lo, ast.Sub(), hi)
        if abs(step) > 1:
            more = ast.BinOp(distance, ast.Add(), ast.Constant(abs(step) - 1))
            distance = ast.BinOp(more, ast.FloorDiv(), ast.Constant(abs(step)))
        count = ast.Call(_name("max"), [ast.Constant(0), distance], [])
        at = ast.BinOp(lo, ast.Add(), ast.BinOp(_name(position), ast.Mult(), ast.Constant(step)))
        return [ast.Assign([target], at)], count

    def _held(self, source: ast.expr) -> str:
        held = self._own("iterated")
        self.expr(source, held)
        return held

    def is_array(self, name: str) -> bool:
        """Whether the list that a name is bound to is read as an array may be: it is bound once, and never as a whole."""
        parents = {
            id(child): node
            for node in ast.walk(self.frame.node)
            for child in ast.iter_child_nodes(node)
        }
        mine = [n for n in ast.walk(self.frame.node) if isinstance(n, ast.Name) and n.id == name]
        own = {id(n) for n in own_nodes(self.frame.node)}
        if any(id(n) not in own for n in mine) or name in {
            a.arg for a in self.frame.node.args.args
        }:
            return False
        bound = [n for n in mine if not isinstance(n.ctx, ast.Load)]
        return len(bound) == 1 and all(
            self._reads(parents[id(n)], n) for n in mine if isinstance(n.ctx, ast.Load)
        )

    def _reads(self, parent: ast.AST, n: ast.Name) -> bool:
        """Whether a list means there what the array of its elements means."""
        if isinstance(parent, ast.Subscript):
            return parent.value is n and not isinstance(parent.slice, ast.Slice)
        if isinstance(parent, ast.For | ast.comprehension):
            return parent.iter is n
        if not isinstance(parent, ast.Call) or n not in parent.args:
            return False
        text = canonical(self.known(parent.func)) or ""
        return text in READERS or text.startswith("np.")


class _Renamed(ast.NodeTransformer):
    """Other names for variables."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def _name(name: str, ctx: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(name, ctx or ast.Load())


def _element(name: str, *places: str, ctx: ast.expr_context | None = None) -> ast.Subscript:
    each: list[ast.expr] = [_name(p) for p in places]
    index = each[0] if len(each) == 1 else ast.Tuple(each, ast.Load())
    return ast.Subscript(_name(name), index, ctx or ast.Load())


def _length(name: str) -> ast.expr:
    return ast.Call(_name("len"), [_name(name)], [])


def _least(each: list[ast.expr]) -> ast.expr:
    return each[0] if len(each) == 1 else ast.Call(_name("min"), each, [])


def _is_number(e: ast.expr) -> bool:
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        e = e.operand
    return isinstance(e, ast.Constant) and type(e.value) is int


def _placed(made: Any, node: ast.AST) -> Any:
    """Nodes that were made, with the place of the user's own."""
    for n in ast.walk(made):
        if not hasattr(n, "lineno"):
            ast.copy_location(n, node)
    return made
