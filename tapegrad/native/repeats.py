"""What generated code computes twice is computed once.

Partial derivatives are inserted as text: in that of `logaddexp` the difference of the operands stands six times. Numba gives each
`np.where` a loop and an array of its own, compiles each of them, and a tangent does the same along each direction.

Data: expressions as text (`parted`, for lines to be written) and operations of a lowered program (`merge`, for lines that were).
Invariant: only elementwise functions are merged, whose results are new memory, of operands that nothing writes in between.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from .rules import PLACES, names_in, ufunc_of
from .tree import TEMP, Op, Program, read_counts, segments

_PRODUCTS = frozenset(
    ("strong", "strong_all", "strong_quotient", "strong_quotient_all", "unless_zero")
)
_WORK = ast.Call | ast.IfExp | ast.Div | ast.Pow


_TANGENTS = frozenset(f"d{place}" for place in PLACES)


@functools.cache
def factored(term: str) -> tuple[str, str] | None:
    """A term of a tangent as its text with the name `partial` in it, and the text of that partial; None where that is no work."""
    tree = ast.parse(term, mode="eval")
    top = tree.body
    if isinstance(top, ast.BinOp) and isinstance(top.op, ast.Mult):
        sides: list[ast.expr] = [top.left, top.right]
    elif isinstance(top, ast.Call) and ast.unparse(top.func) in _PRODUCTS:
        sides = top.args
    else:
        return None
    if len(sides) != 2 or not isinstance(sides[0], ast.Name) or sides[0].id not in _TANGENTS:
        return None
    partial = sides[1]
    if not any(isinstance(n, _WORK) for n in ast.walk(partial)):
        return None
    text = ast.unparse(partial)
    if names_in(text) & _TANGENTS:
        return None
    name = ast.Name("partial")
    if isinstance(top, ast.BinOp):
        top.right = name
    else:
        top.args[1] = name  # type: ignore[attr-defined]
    return ast.unparse(tree), text


def _is_part(node: ast.AST) -> bool:
    """Whether it is an operation, and more than a number with a sign."""
    sign = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.BinOp | ast.Call | ast.Compare | ast.UnaryOp) and not sign


def parted(text: str, fresh: Callable[[str], str]) -> tuple[list[str], str]:
    """An expression of arrays, behind lines that give names to what stands in it several times."""
    tree = ast.parse(text, mode="eval")
    if any(isinstance(n, ast.IfExp | ast.BoolOp | ast.Lambda) for n in ast.walk(tree)):
        return [], text  # what may not be evaluated
    return named(tree, _is_part, lambda: fresh("part"))


def named(
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


def merge(program: Program) -> None:
    """Let an elementwise operation's result be that of the same operation before, in each straight line of a lowered program."""
    counts = read_counts(program.body, program.results)
    for ops in segments(program.body):
        _merge(ops, program.several, counts)


def _merge(ops: list[Op], several: set[str], counts: dict[str, int]) -> None:
    """Drop from `ops` what an earlier operation computed, and read the earlier result; `several` and `counts` tell which names are read
    elsewhere.
    """
    read = Counter(a for op in ops for a in _only_read(op))

    def is_ours(name: str) -> bool:
        """Whether a name is a temporary that only these operations read, and none of them as memory to write to."""
        return name.startswith(TEMP) and name not in several and counts.get(name, 0) == read[name]

    known: dict[Any, str] = {}
    same: dict[str, str] = {}
    kept = []
    for op in ops:
        op.args[:] = [same.get(a, a) if isinstance(a, str) else a for a in op.args]
        key = op.form, tuple(op.args)
        pure = _is_pure(op)
        if pure and key in known and is_ours(op.out[0]):
            same[op.out[0]] = known[key]
            continue
        kept.append(op)
        if not pure and op.kind not in ("load", "copy"):
            known.clear()  # it may write to memory
        elif not all(n.startswith(TEMP) and n not in several for n in op.out):
            known = {k: out for k, out in known.items() if not set(op.out) & set(k[1])}
        if pure and is_ours(op.out[0]):
            known[key] = op.out[0]
    ops[:] = kept


def _is_pure(op: Op) -> bool:
    """Whether an operation is an elementwise function."""
    rule = op.rule or ""
    known = rule in ("compare", "np.where") or ufunc_of(rule) is not None
    return op.kind == "pure" and len(op.out) == 1 and not op.settings and known


def _only_read(op: Op) -> list[str]:
    """Operands that an operation reads, and neither writes to nor hands on."""
    if _is_pure(op):
        return op.variables
    added = op.kind == "effect" and op.form.startswith("accumulate(")
    return [a for a in op.args[1:] if isinstance(a, str)] if added else []
