"""The last touch on a generated adjoint: shorter to read, quicker to compile, the same numbers.

The generator gives every intermediate value and cotangent a name of its own. Numba's time grows with names, loads and calls, so a
name that is read once goes into the expression that reads it, a copy is read where it came from, what nobody reads goes, and so does
an empty array that stands for one which is bound before anybody looks. Positions on the stacks are told to be no negative ones
(`runtime.at`): then LLVM turns the pushes of a loop into vector stores.

Data: the text of a module, functions only, and what is known of its names. Invariant: no expression is evaluated behind a change of
what it reads, and none more often than before; operations and their order stay, so results are the same to the last bit. A name of
which nobody knows that it is a number may be an array, whose elements an expression reads then.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.parsing import parsed

_PARTS = (
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Compare,
    ast.Name,
    ast.Constant,
    ast.Subscript,
    ast.Attribute,
    ast.Tuple,
    ast.Call,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
)
_FUNCTIONS = frozenset(
    {"at", "max", "min", "abs", "unless_zero", "strong", "strong_quotient", "least"}
)
"""Functions of numbers that generated code calls by these names; those of `math` are free of effects too."""
_LARGEST = 60
"""Nodes of an expression: longer ones are hard to read."""
_STACK = re.compile(r"\b(floats|ints)\[(n[fi](?: \+ \d+)?)\]")
_HALVES = ("forward", "reverse")


def finished(source: str, axes: Callable[[str], int | None] = lambda name: None) -> str:
    """The text of an adjoint and the functions beside it, in its last form; `axes` tells how many a name's value has, 0 for a number.

    >>> print(finished("def f(x, floats, nf):\\n    t = x * 2.0\\n    y = t\\n    floats[nf] = y\\n    return y + 1.0\\n"))
    def f(x, floats, nf):
        t = x * 2.0
        floats[at(nf)] = t
        return t + 1.0
    <BLANKLINE>
    """
    module = _Shadows(axes).visit(parsed(_halves_marked(source)))
    bound: set[str] = set()
    for function in module.body:
        assert isinstance(function, ast.FunctionDef)
        bound |= _Folding(function, axes).bound
    text = "\n\n\n".join(ast.unparse(f) for f in module.body) + "\n"
    text = _halves_told(text)
    return text if "at" in bound else _STACK.sub(r"\1[at(\2)]", text)


def _halves_marked(source: str) -> str:
    """The text with names for the comments that part its halves, so that they outlive parsing."""
    for half in _HALVES:
        source = source.replace(f"\n    # {half}\n", f"\n    _{half}_\n")
    return source


def _halves_told(source: str) -> str:
    for half in _HALVES:
        source = source.replace(f"\n    _{half}_\n", f"\n    # {half}\n")
    return source


class _Shadows(ast.NodeTransformer):
    """Arrays of zeros are made without a function of Numba's own."""

    def __init__(self, axes: Callable[[str], int | None]) -> None:
        self.axes = axes

    def visit_Call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("np"), attr="zeros_like"),
                args=[ast.Name(name)],
                keywords=[],
            ):
                if self.axes(name):
                    node.func = ast.Name("zeros_like", ast.Load())
        return self.generic_visit(node)


def counting(source: str, stacks: Sequence[str]) -> str:
    """The text of an adjoint that returns one thing more, last: the bytes on its stacks where it turns back."""
    tops = " + ".join({"floats": "nf", "ints": "ni"}[n] for n in stacks)
    turn = source.index("\n    # reverse\n")
    end = re.compile(r"^    return \((.*?),?\)$", re.MULTILINE).search(source, turn)
    assert end is not None
    return (
        f"{source[:turn]}\n    kept_in_all = 8 * ({tops}){source[turn : end.start()]}"
        f"    return ({end[1]}, kept_in_all){source[end.end() :]}"
    )


class _Bare(ast.NodeTransformer):
    """Strong products and quotients as plain ones."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not name.startswith("strong"):
            return node
        operation = ast.Div() if "quotient" in name else ast.Mult()
        return ast.BinOp(node.args[0], operation, node.args[1])


def unguarded(source: str) -> str:
    """The text with plain products for strong ones: as fast as can be, and right wherever no NaN comes out.

    0 times an infinite partial is NaN here. It goes on through sums and products to the results, where it is seen.
    """
    if "strong" not in source:
        return source
    module = _Bare().visit(parsed(_halves_marked(source)))
    return _halves_told("\n\n\n".join(map(ast.unparse, module.body)) + "\n")


def watched(source: str, first: int, count: int) -> str:
    """The text of an adjoint that returns one thing more, last: whether any of these `count` results is NaN."""
    turn = source.index("\n    # reverse\n")
    end = re.compile(r"^    return \((.*?),?\)$", re.MULTILINE).search(source, turn)
    assert end is not None
    parts = parsed(f"({end[1]},)", mode="eval").body
    assert isinstance(parts, ast.Tuple)
    looked_at = [ast.unparse(p) for p in parts.elts[first : first + count]]
    lost = " | ".join(f"has_nan({p})" for p in looked_at) or "False"
    return f"{source[: end.start()]}    return ({end[1]}, {lost}){source[end.end() :]}"


class _Numbers:
    """Names of a function that are numbers for sure: known to be, or bound to nothing but arithmetic on numbers and elements."""

    def __init__(self, function: ast.FunctionDef, axes: Callable[[str], int | None]) -> None:
        """Find the names of a function that are numbers wherever they are bound."""
        self.axes = axes
        bindings: dict[str, list[ast.expr | None]] = {}
        subscripted: set[str] = set()
        for n in ast.walk(function):
            match n:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    bindings.setdefault(name, []).append(value)
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    bindings.setdefault(name, []).append(value)
                case ast.Tuple(elts=elts, ctx=ast.Store()):
                    for e in elts:
                        if isinstance(e, ast.Name):
                            bindings.setdefault(e.id, []).append(None)
                case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
                    bindings.setdefault(name, []).append(ast.Constant(0))
                case ast.For(target=ast.Name(id=name)):
                    bindings.setdefault(name, []).append(None)
                case (
                    ast.Subscript(value=ast.Name(id=name)) | ast.Attribute(value=ast.Name(id=name))
                ):
                    subscripted.add(name)
        if (
            function.decorator_list
        ):  # of a parallel loop: a name may be an array of many of what it is elsewhere
            axes = self.axes = lambda name: None
        known = {a.arg for a in function.args.args if axes(a.arg) == 0}
        self.names = known | {n for n in bindings if n not in subscripted and not axes(n)}
        while True:
            wrong = {
                n
                for n in self.names - known
                if axes(n) is None and not all(v is not None and self.has(v) for v in bindings[n])
            }
            if not wrong:
                break
            self.names -= wrong

    def has(self, node: ast.AST) -> bool:
        """Whether an expression is a number."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr="size"):
                return True
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                whole = name in ("floats", "ints") or self.axes(name) == len(parts)
                return whole and all(map(self.has, parts))
            case ast.Call(args=args):
                return harmless(node) and all(map(self.has, args))
            case ast.BinOp() | ast.UnaryOp() | ast.IfExp() | ast.Compare() | ast.BoolOp():
                return all(
                    self.has(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)
                )
        return False


@dataclass(slots=True)
class _Facts:
    """What a statement does with names and memory."""

    loads: Counter[str]
    stores: set[str]
    simple: bool
    """No statements inside."""
    changes: bool
    """Memory may be other than before."""


def _facts(node: ast.stmt) -> _Facts:
    """What a statement reads, binds, and whether it may change anything else."""
    loads: Counter[str] = Counter()
    stores: set[str] = set()
    changes = False
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            if isinstance(n.ctx, ast.Load):
                loads[n.id] += 1
            else:
                stores.add(n.id)
        elif isinstance(n, ast.Subscript):
            changes = changes or not isinstance(n.ctx, ast.Load)
        elif isinstance(n, ast.Call):
            changes = changes or not harmless(n)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        loads[node.target.id] += 1
    simple = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
    return _Facts(loads, stores, simple, changes)


def harmless(call: ast.Call) -> bool:
    """Whether a call is of a function of numbers without effects."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="math")):
            return True
        case ast.Name(id=name):
            return name in _FUNCTIONS
    return False


class _Folding:
    """One function, changed in place."""

    def __init__(self, function: ast.FunctionDef, axes: Callable[[str], int | None]) -> None:
        self.numbers = _Numbers(function, axes).names
        self.facts: dict[int, _Facts] = {}
        self.loads: Counter[str] = Counter()
        self.stores: Counter[str] = Counter()
        for n in ast.walk(function):
            if isinstance(n, ast.Name):
                (self.loads if isinstance(n.ctx, ast.Load) else self.stores)[n.id] += 1
            elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
                self.loads[n.target.id] += 1
        self.bound = {*self.stores, *(a.arg for a in function.args.args)}
        self._undeclare(function.body)
        self._block(function.body)

    def of(self, node: ast.stmt) -> _Facts:
        found = self.facts.get(id(node))
        if found is None:
            found = self.facts[id(node)] = _facts(node)
        return found

    def _undeclare(self, body: list[ast.stmt]) -> None:
        """Drop empty arrays and constants that are bound again before they are read."""
        for node in list(body):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case _:
                    continue
            declares = isinstance(value, ast.Constant) or ast.unparse(value).startswith(
                "np.empty((0,"
            )
            if not declares or self.stores[name] < 2:
                continue
            later = body[body.index(node) + 1 :]
            following = next((s for s in later if _mentions(self.of(s), name)), None)
            match following:
                case ast.Assign(targets=[ast.Name()]) if not self.of(following).loads[name]:
                    body.remove(node)
                    self.stores[name] -= 1

    def _block(self, body: list[ast.stmt]) -> None:
        """Last statement first: what goes into an expression may take others along."""
        for k in range(len(body) - 1, -1, -1):
            node = body[k]
            for field in ("body", "orelse"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    self._block(inner)
                    if not inner and field == "body":
                        inner.append(ast.Pass())
            self.facts.pop(id(node), None)
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if self.stores[name] == 1 and self._fold(name, value, body, k):
                        del body[k]
                        self.stores[name] = 0

    def _fold(self, name: str, value: ast.expr, body: list[ast.stmt], k: int) -> bool:
        """Whether the binding can go; then its value stands where the name stood."""
        nodes = list(ast.walk(value))
        if not all(isinstance(n, _PARTS) for n in nodes):
            return False
        if any(isinstance(n, ast.Call) and not harmless(n) for n in nodes):
            return False
        sources = [n.id for n in nodes if isinstance(n, ast.Name)]
        wanted = self.loads[name]
        if wanted == 0:
            self.loads.subtract(sources)
            return True
        copy = isinstance(value, ast.Name)
        if (wanted > 1 and not copy) or len(nodes) > _LARGEST or isinstance(value, ast.Constant):
            return False
        reads_memory = not copy and any(
            isinstance(n, ast.Subscript | ast.Attribute)
            or (isinstance(n, ast.Name) and n.id not in self.numbers | _FUNCTIONS | {"math"})
            for n in nodes
        )
        users: list[ast.stmt] = []
        found = 0
        for user in body[k + 1 :]:
            facts = self.of(user)
            if not facts.simple:
                return False
            if facts.loads[name]:
                if not copy and sum(1 for _ in ast.walk(user)) > _LARGEST:
                    return False
                users.append(user)
                found += facts.loads[name]
                if found == wanted:
                    break
            if facts.stores & set(sources) or (reads_memory and facts.changes):
                return False
        else:
            return False
        for user in users:
            _Put(name, value).visit(user)
            self.facts.pop(id(user), None)
        self.loads.update(sources * (wanted - 1))
        self.loads[name] = 0
        return True


def _mentions(facts: _Facts, name: str) -> bool:
    return name in facts.stores or facts.loads[name] > 0


class _Put(ast.NodeTransformer):
    """An expression in the place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name = name
        self.value = value

    def visit_Name(self, node: ast.Name) -> Any:
        loaded = node.id == self.name and isinstance(node.ctx, ast.Load)
        return self.value if loaded else node
