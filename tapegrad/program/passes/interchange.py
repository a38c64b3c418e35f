"""Two perfectly nested loops change places where the inner one strides through memory and the outer one would not."""

from __future__ import annotations

from typing import Any

from ..affine import Affine
from ..form import Access, Loop, Range
from .scope import Path, Scope, clashes, found, opened


def interchanged(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    out: list[Any] = []
    for s in body:
        if opened(s):
            s = s.of(interchanged(s.body, scope, (*path, s.range)))
            inner = s.body[0]
            if len(s.body) == 1 and opened(inner) and not (s.until or inner.until):
                s = _swapped(s, inner, scope, path) or s
        out.append(s)
    return out


def _strides(a: Access, var: str) -> bool:
    """Whether an access jumps through memory when `var` is the innermost loop."""
    return any(i[var] for i in a.index[:-1]) or (bool(a.index) and abs(a.index[-1][var]) > 1)


Bounds = tuple[Affine, Affine]


def _turned(outer: Range, inner: Range, scope: Scope, path: Path) -> tuple[Bounds, Bounds] | None:
    """Bounds of the new outer and the new inner loop, rectangular or triangular; None where they need a maximum."""
    o, lo, hi = outer.var, inner.lo, inner.hi
    if not (scope.order.exists(lo, path) and scope.order.exists(hi, path)):
        return None
    slopes = lo.moves(o), hi.moves(o)
    if slopes == (0, 0):
        return (lo, hi), (outer.lo, outer.hi)
    if slopes == (0, 1):  # i < o + c: o from i - c + 1
        c = hi - outer.at
        new, claim = ((lo, outer.hi - 1 + c), (inner.at - c + 1, outer.hi)), lo - c + 1 - outer.lo
    elif slopes == (1, 0):  # i >= o + c: o to i - c
        c = lo - outer.at
        new, claim = ((outer.lo + c, hi), (outer.lo, inner.at - c + 1)), outer.hi - (hi - c)
    else:
        return None
    return new if scope.order.proves(claim, path) else None


def _swapped(outer: Loop, inner: Loop, scope: Scope, path: Path) -> Loop | None:
    """Two nested loops exchanged, where memory is then read in shorter steps and order allows it; None otherwise."""
    p, q = outer.range, inner.range
    sites = found(inner.body, (*path, p, q))
    if any(len(s.path) != len(path) + 2 for s in sites):
        return None
    costs = [sum(_strides(s.access, v) for s in sites) for v in (q.var, p.var)]
    new = _turned(p, q, scope, path) if costs[1] < costs[0] else None
    depth = len(path)
    if new is None or any(
        scope.order.meet(a, b, depth, p.step, -q.step) for a, b in clashes(sites, sites)
    ):
        return None
    (lo, hi), (o_lo, o_hi) = new
    # The old ranges stay with their loops: what order knows of them is of the old bounds.
    first, second = Range(q.var, lo, hi, q.step), Range(p.var, o_lo, o_hi, p.step)
    return Loop(first, [Loop(second, inner.body)])
