"""Index-set splitting: an innermost loop that one iteration alone keeps from being parallel runs in three pieces, that one in the middle.

So min(p[i, j], p[i, k] + p[k, j]) over j, where only j = k writes what the others read.
"""

from __future__ import annotations

from typing import Any

from ..affine import Affine
from ..form import Loop, Range
from .registers import parallel_in_registers
from .scope import Path, Scope, clashes, found, in_innermost, independent, private, renamed


def pieces(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    return in_innermost(body, scope, path, _split)


def _points(loop: Loop, path: Path) -> dict[Affine, None]:
    """Where an index that moves with the loop meets one that stands, in one buffer."""
    sites, var = found(loop.body, (*path, loop.range)), loop.range.var
    seen: dict[Affine, None] = {}
    for a, b in clashes(sites, sites, True):
        for i, j in zip(a.access.index, b.access.index, strict=True):
            if i.moves(var) == 1 and j.moves(var) == 0:
                seen[j - (i - loop.range.at)] = None
    return seen


def _split(loop: Loop, path: Path, scope: Scope) -> list[Any]:
    """A loop cut at the index where its accesses meet, where both pieces then run in registers."""
    if loop.until:
        return [loop]
    r = loop.range
    outlives = private(loop) - scope.only_in(loop)
    if outlives and r.step < 0:  # the last value would be another
        return [loop]
    if all(r.var not in s.target.names() for s in loop.body) or independent(loop, path, scope):
        return [loop]
    for p in _points(loop, path):
        if not scope.order.exists(p, path):
            continue
        if scope.order.proves(p - r.lo, path) and scope.order.proves(r.hi - p - 1, path):
            low, high = (_piece(loop, *ends, scope) for ends in ((r.lo, p), (p + 1, r.hi)))
            if all(parallel_in_registers(x, path, scope) for x in (low, high)):
                middle = renamed(loop.body, {r.var: p})
                first, last = (low, high) if r.step > 0 else (high, low)
                return [first, *middle, last]
    return [loop]


def _piece(loop: Loop, lo: Affine, hi: Affine, scope: Scope) -> Loop:
    """Its iterations are independent, so it runs upwards."""
    r = Range(scope.names(loop.range.var.split(".")[0]), lo, hi)
    return Loop(r, renamed(loop.body, {loop.range.var: r.at}))
