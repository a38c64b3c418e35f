"""Long formulas of generated code become functions of their own, which are compiled once.

Partial derivatives that keep their digits at every scale are long: that of `arctan2` chooses twelve times. They are inserted as text at
each use, and what Numba takes for a function grows faster than the branches in it: a program of six inverse functions of complex
numbers took 45 s.

Data: the text of a module of functions; formulas by their text, with operands called by their place. Invariant: what is taken out has
no effects and reads nothing but names of its function, so it may be computed anywhere between their bindings.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..core.parsing import parsed
from . import chunks, inference, runtime
from .rules import renamed

LONG = 3
"""Choices of a formula that is taken out."""

_PURE = (
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Compare,
    ast.BoolOp,
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Call,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
    ast.expr_context,
)
_MODULES = frozenset(("np", "math"))
_CHEAP = frozenset(("np.abs", "np.sign", "np.where"))
"""Functions that may be computed where only one of two choices asks for them."""
_SPLIT = ast.Add | ast.Sub


def outlined(
    source: str, scope: dict[str, Any], options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The text with calls in the place of long formulas, and its scope with what they call."""
    if source.count(" if ") + source.count("np.where(") < LONG:
        return source, scope
    module = parsed(source)
    found = _Formulas(options)
    for function in module.body:
        if isinstance(function, ast.FunctionDef):
            function.body = [found.visit(s) for s in function.body]
    if not found.taken:
        return source, scope
    return ast.unparse(module) + "\n", {**scope, **found.taken}


class _Formulas(ast.NodeTransformer):
    """Calls of functions in the place of long formulas."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Nothing is taken out yet; functions are compiled with these options."""
        self.decorator = chunks.decorator(options)[1:]
        self.taken: dict[str, Any] = {}

    def visit(self, node: ast.AST) -> Any:
        """A statement or expression with calls in it."""
        if not isinstance(node, ast.expr):
            return self.generic_visit(node)
        if _choices(node) < LONG:
            return node
        long = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr) and _choices(c)]
        apart = isinstance(node, ast.BinOp) and isinstance(node.op, _SPLIT)
        inner = len(long) == 1 and not isinstance(node, ast.IfExp)
        if inner or apart or not all(map(_is_pure, ast.walk(node))):
            return self.generic_visit(node)
        operands = {n: f"x{i}" for i, n in enumerate(dict.fromkeys(_operands(node)))}
        name = self.function(renamed(ast.unparse(node), operands), list(operands.values()))
        return parsed(f"{name}({', '.join(operands)})", mode="eval").body

    def function(self, formula: str, params: list[str]) -> str:
        """The name of the function that computes a formula of these parameters."""
        lines, result = _parted(formula)
        text = "".join(f"    {line}\n" for line in [*lines, f"return {result}"])
        name = "formula_" + hashlib.sha256((self.decorator + text).encode()).hexdigest()[:16]
        if name not in runtime.SCOPE:
            text = f"def {name}({', '.join(params)}):\n{text}"
            made = inference.load(name, text, runtime.SCOPE)
            # Code on disk is found by the name, which the whole text is in.
            runtime.SCOPE[name] = eval(self.decorator, dict(runtime.SCOPE))(made)
        self.taken[name] = runtime.SCOPE[name]
        return name


def _choices(node: ast.AST) -> int:
    """How often an expression chooses between two values."""
    return sum(
        isinstance(n, ast.IfExp)
        or (
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "where"
        )
        for n in ast.walk(node)
    )


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not node.keywords and isinstance(node.func, ast.Attribute)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in _MODULES
    return isinstance(node, _PURE)


def _operands(node: ast.expr) -> Iterator[str]:
    """Names of values in a formula, outer ones first."""
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in _MODULES)


def _parted(formula: str) -> tuple[list[str], str]:
    """A formula behind lines that give names to what stands in it several times."""
    numbers = itertools.count()
    return _named(parsed(formula, mode="eval").body, _is_cheap, lambda: f"part{next(numbers)}")


def _named(
    tree: ast.AST, worth: Callable[[ast.AST], bool], fresh: Callable[[], str]
) -> tuple[list[str], str]:
    """An expression behind lines that give names to those of its parts that are `worth` one and stand in it several times."""
    met: Counter[str] = Counter()

    def count(node: ast.AST) -> None:
        if worth(node):
            key = ast.dump(node)
            met[key] += 1
            if met[key] > 1:
                return
        for child in ast.iter_child_nodes(node):
            count(child)

    count(tree)
    lines: list[str] = []
    names: dict[str, str] = {}

    class Name(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            key = ast.dump(node) if worth(node) else ""
            if key in names:
                return ast.Name(names[key])
            node = self.generic_visit(node)
            if met[key] < 2:
                return node
            names[key] = fresh()
            lines.append(f"{names[key]} = {ast.unparse(node)}")
            return ast.Name(names[key])

    tree = Name().visit(tree)
    return lines, ast.unparse(tree)


def _is_cheap(node: ast.AST) -> bool:
    """Whether a part of a formula is worth a name, and may be computed where the formula does not ask for it."""
    if not isinstance(node, ast.BinOp | ast.IfExp | ast.Compare | ast.Call):
        return False
    return all(
        not isinstance(n, ast.Call) or ast.unparse(n.func) in _CHEAP for n in ast.walk(node)
    ) and not any(isinstance(n, ast.Pow | ast.Mod | ast.FloorDiv) for n in ast.walk(node))
