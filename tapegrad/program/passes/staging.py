"""Staging: what an innermost loop adds to several places of one buffer goes through a row of memory, where the formulas share much.

The derivative of a stencil adds to the left, to the right and in the middle what comes of one formula. One loop that does so is serial, and
loops for each place compute the formula again. Through memory, one parallel loop computes it, and others add it, which fusion gathers.
"""

from __future__ import annotations

from typing import Any

from ..affine import whole
from ..expressions import Expr, cost, load, operations, rewritten
from ..form import Access, Buffer, Loop, Store
from .fusion import LONG, distributed
from .scope import Path, Scope, clashes, found, in_innermost

LEAST = 6
"""Operations that loops for each place would compute once more, at least."""


def staged(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Send sums at shifted places through memory, in loops that are long."""
    return in_innermost(body, scope, path, _staged)


def _staged(loop: Loop, path: Path, scope: Scope) -> list[Any]:
    """The loop as one that computes what it adds at shifted places, and others that add it; as it is where order or length forbids that."""
    r = loop.range
    extent = r.hi - r.lo
    if loop.until or not whole(extent) or not scope.order.proves(extent - LONG, path):
        return [loop]
    chosen = _scattered(loop)
    if not chosen or _reads_what_it_wrote(loop, chosen, scope, path):
        return [loop]
    rows: dict[Expr, Access] = {}
    then: list[Store] = []
    for s in loop.body:
        if s in chosen:  # minus a formula is in the row of the formula
            formula = s.value.args[0] if s.value.op == "negative" else s.value
            if formula not in rows:
                row = Buffer(scope.names("t"), (extent,), formula.dtype)
                rows[formula] = Access(row, (r.at - r.lo,))
            value = rewritten([s.value], lambda n: None, {formula: load(rows[formula])})[0]
            s = Store(s.target, value, s.mode)
        then.append(s)
    first = [Store(a, formula) for formula, a in rows.items()]
    parts = distributed([loop.of([*first, *then])], scope, path)
    own = {a.buffer for a in rows.values()}
    into_rows = [{s.target.buffer in own for s in p.body} for p in parts]
    return [loop] if {True, False} in into_rows else parts


def _reads_what_it_wrote(loop: Loop, chosen: set[Store], scope: Scope, path: Path) -> bool:
    """Whether a formula that would be computed first reads what an earlier store of the same iteration may write."""
    inside = (*path, loop.range)
    every = found(loop.body, inside)
    early = [s for s in every if s.write]
    late = [
        s
        for s in every
        if not s.write
        and s.store in chosen
        and any(s.access == leaf.access for leaf in s.store.value.loads)
    ]
    return any(
        scope.order.precedes(w, r, len(inside)) for w, r in clashes(early, late, additions=True)
    )


def _scattered(loop: Loop) -> set[Store]:
    """Sums into one buffer at places that are shifted along the loop, whose formulas share much."""
    var = loop.range.var
    groups: dict[Buffer, list[Store]] = {}
    for s in loop.body:
        if any(i.moves(var) == 1 for i in s.target.index):
            groups.setdefault(s.target.buffer, []).append(s)
    chosen: set[Store] = set()
    for stores in groups.values():
        if len({s.target.index for s in stores}) < 2 or all(s.mode != "+=" for s in stores):
            continue
        once = cost(operations(s.value for s in stores))
        if sum(cost(operations([s.value])) for s in stores) - once >= LEAST:
            chosen |= set(stores)
    return chosen
