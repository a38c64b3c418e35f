"""Cotangents of one statement: the chain rule from what it stores down to what it loads.

In goes a statement and the cotangents of its targets; out comes, for each access that is active, the cotangent that the
statement adds to it, as one expression. The expressions read the values from before the statement, and where it is said what was
stored (`results`), the stored value in the place of the formula for it.

Invariant: a cotangent passes through `times`, so that one of 0 stays 0 in the guarded form of the program, however infinite a partial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .expressions import B1, Expr, cast, const, is_const, minus, node, nodes, plus, times
from .form import Access, Buffer, Statement
from .partials import chooses, partial

STEPS = frozenset(("number", "const", "floor", "ceil", "trunc", "rint", "sign"))
"""Nodes through which nothing flows back."""


def cotangents(
    statement: Statement,
    active: set[Buffer],
    seed: Callable[[Access], Expr],
    results: Mapping[Expr, Expr],
) -> dict[Access, Expr]:
    """What a statement gives back to each active access; `seed` is the cotangent of a target, as an expression.

    Updates "max=" and "min=" have rules of their own (`derivative`).
    """
    bar: dict[Expr, Expr] = {}
    for s in statement.stores:
        if s.target.buffer in active and s.mode in ("=", "+="):
            g = cast(seed(s.target), s.value.dtype)
            bar[s.value] = plus(bar[s.value], g) if s.value in bar else g
    found: dict[Access, Expr] = {}
    below: dict[Expr, bool] = {}
    order = nodes(s.value for s in statement.stores)
    for n in order:
        below[n] = (
            n.access.buffer in active
            if n.op == "load"
            else n.op not in STEPS and any(below.get(a, False) for a in n.args)
        )
    for n in reversed(order):
        if n not in bar or not below[n] or is_const(bar[n], 0.0):
            continue
        g = bar[n]
        if n.op == "load":
            found[n.access] = g
            continue
        for k, a in enumerate(n.args):
            if not below[a] or a.dtype == B1:
                continue
            share = _share(n, k, g, results)
            if not is_const(share, 0.0):
                bar[a] = plus(bar[a], share) if a in bar else share
    return found


def _share(n: Expr, k: int, g: Expr, results: Mapping[Expr, Expr]) -> Expr:
    """The part of a node's cotangent that goes to its operand k."""
    if n.op == "cast":
        return cast(g, n.args[0].dtype)
    if n.op == "negative":
        return minus(g)
    if n.op == "where":
        nothing = const(0.0, g.dtype)
        return node("where", n.args[0], *((g, nothing) if k == 1 else (nothing, g)))
    operands = [results.get(a, a) for a in n.args]
    p = partial(n, k, operands, results.get(n, n))
    return times(g, p, chooses(n, k))
