"""Expressions: interned scalar formulas over elements of buffers.

A node is a constant, an index as a number, a load of an access, or an elementwise op of nodes, named by its declaration in
`tapegrad.ops` ("add", "exp", "where"). Equal formulas are one object, so a shared subexpression is computed once and `is` compares.
Two more ops exist for derivatives: `strong(g, p)` and `chosen(g, p)`, products of a cotangent and a partial that are 0 where
the first (or either, for `chosen`) is 0, however infinite the other is.

Invariant: operands of a node have one dtype, but for the condition of "where"; `loads` are the loads below a node, each once.
Nodes live as long as something refers to them.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .affine import Affine
from .form import Access

F8, F4, B1 = "f8", "f4", "b1"
"""dtypes: float64, float32, truth values (bytes in memory)."""

WHOLE = {"i8": 8, "i4": 4}
"""Bytes of whole numbers, which stand in affine integers only (`affine.element`): no formula is of them."""

TESTS = frozenset(
    "less less_equal greater greater_equal equal not_equal isnan isinf isfinite logical_and logical_or logical_not".split()
)


class Expr:
    """A node; made by `node`, `const`, `load` and `number` only."""

    __slots__ = ("__weakref__", "args", "dtype", "loads", "op")

    def __init__(self, op: str, args: tuple[Any, ...], dtype: str) -> None:
        self.op, self.args, self.dtype = op, args, dtype
        if op == "load":
            self.loads: tuple[Expr, ...] = (self,)
        else:
            below = [a.loads for a in args if isinstance(a, Expr)]
            self.loads = tuple(dict.fromkeys(leaf for loads in below for leaf in loads))

    @property
    def access(self) -> Access:
        """What a load reads."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        texts: dict[Expr, str] = {}
        for n in nodes([self]):
            texts[n] = spelled(n, texts)
        return texts[self]


def spelled(n: Expr, texts: Mapping[Expr, str]) -> str:
    """A node in words, from those of its operands."""
    given = [texts[a] if isinstance(a, Expr) else str(a) for a in n.args]
    sign = _SIGNS.get(n.op)
    if sign:
        return f"({given[0]} {sign} {given[1]})"
    if n.op == "const":
        return f"{n.args[0]:g}"
    return given[0] if n.op in ("load", "number") else f"{n.op}({', '.join(given)})"


DEAR = frozenset(
    """exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh arctan2 hypot cbrt
    erf erfc power logaddexp""".split()
)
_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "strong": "*.", "less": "<", "greater": ">",
    "equal": "==", "less_equal": "<=", "greater_equal": ">=", "not_equal": "!=",
}  # fmt: skip

_table: weakref.WeakValueDictionary[Any, Expr] = weakref.WeakValueDictionary()


def _interned(key: Any, op: str, args: tuple[Any, ...], dtype: str) -> Expr:
    found = _table.get(key)
    if found is None:
        found = _table[key] = Expr(op, args, dtype)
    return found


def node(op: str, *args: Expr) -> Expr:
    """The one node of this op and these operands."""
    dtype = B1 if op in TESTS else args[-1].dtype
    return _interned((op, *args), op, args, dtype)


def cast(x: Expr, dtype: str) -> Expr:
    """`x` as a number of this dtype."""
    if x.dtype == dtype:
        return x
    if x.op == "const":
        return const(x.args[0], dtype)
    return _interned(("cast", x, dtype), "cast", (x,), dtype)


def const(x: float, dtype: str = F8) -> Expr:
    if dtype == F4:
        x = struct.unpack("f", struct.pack("f", x))[0]
    return _interned(("const", struct.pack("d", x), dtype), "const", (float(x),), dtype)


def load(access: Access) -> Expr:
    return _interned(("load", access), "load", (access,), access.buffer.dtype)


def number(index: Affine, dtype: str = F8) -> Expr:
    """An affine integer as a float."""
    if not index.terms:
        return const(float(index.const), dtype)
    return _interned(("number", index, dtype), "number", (index,), dtype)


def is_dear(n: Expr) -> bool:
    """Whether a node takes as long as some twenty others; a power by a number known beforehand is a few products mostly."""
    return n.op in DEAR and (n.op != "power" or n.args[1].op != "const")


def operations(roots: Iterable[Expr]) -> set[Expr]:
    """The nodes below the roots that compute something."""
    return {n for n in nodes(roots) if n.args and n.op not in ("load", "const")}


def cost(some: Iterable[Expr]) -> int:
    """How long nodes take, about, where an addition takes 1."""
    return sum(20 if is_dear(n) else 1 for n in some)


def is_const(x: Expr, value: float | None = None) -> bool:
    return x.op == "const" and (value is None or x.args[0] == value)


# ------------------------------------------------------------------- sums and products of cotangents, simplified


def _masked(x: Expr) -> bool:
    """Whether it is 0 on one side of a choice."""
    return x.op == "where" and any(is_const(a, 0.0) for a in x.args[1:])


def plus(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0.0):
        return b
    if is_const(b, 0.0):
        return a
    if a.op == b.op == "where" and a.args[0] is b.args[0]:
        sides = list(zip(a.args[1:], b.args[1:], strict=True))
        if all(any(is_const(x, 0.0) for x in side) for side in sides) or (
            _masked(a) and _masked(b)
        ):
            return node("where", a.args[0], *(plus(x, y) for x, y in sides))
    return node("subtract", a, b.args[0]) if b.op == "negative" else node("add", a, b)


def minus(a: Expr) -> Expr:
    if a.op == "negative":
        return a.args[0]  # type: ignore[no-any-return]
    if _masked(a):
        return node("where", a.args[0], *(x if is_const(x, 0.0) else minus(x) for x in a.args[1:]))
    return const(-a.args[0], a.dtype) if a.op == "const" else node("negative", a)


def times(g: Expr, p: Expr, chooses: bool = False) -> Expr:
    """A cotangent times a partial; `chooses` where a partial of 0 says that nothing flows, however infinite the cotangent."""
    if is_const(g, 0.0) or is_const(p, 0.0):
        return const(0.0, g.dtype)
    if is_const(p, 1.0):
        return g
    if _masked(g):  # last, so that what is infinite on the side not taken is not multiplied by 0
        return node("where", g.args[0], *(times(x, p, chooses) for x in g.args[1:]))
    if is_const(p, -1.0):
        return minus(g)
    if p.op == "negative":
        return minus(times(g, p.args[0], chooses))
    if p.op == "const":
        return const(g.args[0] * p.args[0], g.dtype) if g.op == "const" else node("multiply", g, p)
    if is_const(g, 1.0):
        return p
    if chooses and p.op == "where":
        condition, a, b = p.args
        return node("where", condition, times(g, a, True), times(g, b, True))
    return node("chosen" if chooses else "strong", g, p)


# ------------------------------------------------------------------------------------------------ walking


def nodes(roots: Iterable[Expr]) -> list[Expr]:
    """Every node below the roots, each once, operands before what uses them."""
    seen: set[Expr] = set()
    order: list[Expr] = []
    stack = [(r, False) for r in reversed(list(roots))]
    while stack:
        n, done = stack.pop()
        if done:
            order.append(n)
        elif n not in seen:
            seen.add(n)
            stack.append((n, True))
            stack += [(a, False) for a in n.args if isinstance(a, Expr) and a not in seen]
    return order


def rewritten(
    roots: Iterable[Expr], change: Callable[[Expr], Expr | None], top: Mapping[Expr, Expr] = {}
) -> list[Expr]:
    """The roots, where `change` of a leaf, if not None, takes its place, and `top[n]` that of a whole node."""
    roots = list(roots)
    new: dict[Expr, Expr] = dict(top)
    for n in nodes(roots):
        if n in new:
            continue
        args = [new[a] if isinstance(a, Expr) else a for a in n.args]
        if all(a is b for a, b in zip(args, n.args, strict=True)):
            found = change(n)
            new[n] = n if found is None else found
        elif n.op == "cast":
            new[n] = cast(args[0], n.dtype)
        else:
            new[n] = node(n.op, *args)
    return [new[r] for r in roots]


def renamed(roots: Iterable[Expr], values: Mapping[str, Affine]) -> list[Expr]:
    """The roots with loop variables replaced."""

    def change(n: Expr) -> Expr | None:
        if n.op == "load":
            return load(n.access.replaced(values))
        return number(n.args[0].replaced(values), n.dtype) if n.op == "number" else None

    return rewritten(roots, change)


def moved(roots: Iterable[Expr], to: Callable[[Access], Access]) -> list[Expr]:
    """The roots with other accesses."""
    return rewritten(roots, lambda n: load(to(n.access)) if n.op == "load" else None)
