"""Origins: which arrays of a generated adjoint share no memory for sure.

An array that a function makes shares memory with no other name that is bound by then, and a name that is bound to it takes this over, as
two buffers do that change places after each step of time. Nothing is known of parameters and of views.

Data: pairs of names, gathered along the text, forward through branches and loops: behind a branch what holds at both ends, in a loop what
every pass leaves as it found it (Kildall, "A Unified Approach to Global Program Optimization" (1973)).
Invariant: a pair that is said to be apart is apart whenever the statement runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_FRESH = frozenset(
    {
        "np.copy",
        "np.full",
        *(f"np.{n}{end}" for n in ("empty", "ones", "zeros") for end in ("", "_like")),
    }
)
Pairs = frozenset[frozenset[str]]
_NONE: Pairs = frozenset()


class Origins:
    """What is known of the arrays of a function, before each of its statements."""

    def __init__(self, function: ast.FunctionDef, arrays: Iterable[str]) -> None:
        self.arrays = _with_copies(function, frozenset(arrays))
        self._before: dict[int, Pairs] = {}
        self._left: list[Pairs | None] = []
        """For each loop around: what holds at all of its breaks so far, None before there is one."""
        self._block(function.body, _NONE)

    def apart(self, a: str, b: str, statement: ast.stmt) -> bool:
        """Whether two arrays share no memory where this statement begins."""
        return frozenset((a, b)) in self._before.get(id(statement), _NONE)

    def _block(self, body: list[ast.stmt], known: Pairs) -> Pairs:
        for node in body:
            self._before[id(node)] = known
            known = self._behind(node, known)
        return known

    def _behind(self, node: ast.stmt, known: Pairs) -> Pairs:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._bound(name, value, known)
            case ast.If(body=body, orelse=orelse):
                return self._block(body, known) & self._block(orelse, known)
            case ast.For(target=target, body=body):
                return self._loop(body, _without(known, _names(target)))
            case ast.While(body=body):
                return self._loop(body, known)
            case ast.Break():
                left = self._left[-1]
                self._left[-1] = known if left is None else left & known
                return known
            case ast.AugAssign() | ast.Expr() | ast.Return() | ast.Pass() | ast.Raise():
                return known
            case ast.Assign(targets=targets):
                return _without(known, {n for t in targets for n in _names(t)})
        return _NONE

    def _bound(self, name: str, value: ast.expr, known: Pairs) -> Pairs:
        known_before, known = known, _without(known, {name})
        if name not in self.arrays:
            return known
        others = self.arrays - {name}
        if isinstance(value, ast.Name):
            others = frozenset(z for z in others if frozenset((value.id, z)) in known_before)
        elif not _makes(value):
            return known
        return known | {frozenset((name, z)) for z in others}

    def _loop(self, body: list[ast.stmt], known: Pairs) -> Pairs:
        while True:
            self._left.append(None)
            after = known & self._block(body, known)
            left = self._left.pop()
            if after == known:
                return known if left is None else known & left
            known = after


def _with_copies(function: ast.FunctionDef, arrays: frozenset[str]) -> frozenset[str]:
    """These names and all that are bound to one of them."""
    copies = [
        (n.targets[0].id, n.value.id)
        for n in ast.walk(function)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and isinstance(n.value, ast.Name)
    ]
    while True:
        more = arrays | {name for name, source in copies if source in arrays}
        if more == arrays:
            return arrays
        arrays = more


def _makes(value: ast.expr) -> bool:
    """Whether an expression is an array of its own."""
    match value:
        case ast.Call(func=ast.Attribute(attr="copy"), args=[]):
            return True
        case ast.Call(func=func):
            return ast.unparse(func) in _FRESH
    return False


def _names(target: ast.expr) -> set[str]:
    """The names that a target binds; an element of an array is none."""
    return {
        n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _without(known: Pairs, names: set[str]) -> Pairs:
    return frozenset(pair for pair in known if not pair & names)
