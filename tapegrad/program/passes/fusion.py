"""Distribution: a loop for each store wherever order allows. Fusion: loops that share a buffer become one again, where that leaves
innermost loops as parallel as they were. So the derivative of a stencil has a loop for each store that another one may hit, and one for
the rest. Where such loops add to one buffer at shifted places, they are one loop over the places that all of them have: what the
derivative scatters is gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..affine import ZERO, Affine
from ..expressions import cost, is_dear, nodes, operations
from ..form import Loop, Program, Range, Site, Store, by_buffer, rewritten, sites
from .registers import parallel_in_registers
from .scope import (
    HERE,
    Path,
    Scope,
    carried,
    clashes,
    found,
    innermost,
    meeting,
    opened,
    renamed,
    reordered,
)


def distributed(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Cut loops into one loop for each part that does not wait for others."""
    out: list[Any] = []
    for s in body:
        if not opened(s):
            out.append(s)
            continue
        r = s.range
        inside = (*path, r)
        inner = distributed(s.body, scope, inside)
        parts = [found([x], inside, k) for k, x in enumerate(inner)]
        start = 0
        for cut in range(1, len(inner) + 1):
            left = [site for p in parts[start:cut] for site in p]
            right = [site for p in parts[cut:] for site in p]
            if cut < len(inner) and (s.until or not may_cut(left, right, scope, len(path))):
                continue
            if start == 0 and cut == len(inner):
                out.append(s.of(inner))
            else:
                new = Range(scope.names(r.var.split(".")[0]), r.lo, r.hi, r.step)
                out.append(Loop(new, renamed(inner[start:cut], {r.var: new.at})))
            start = cut
    return out


def may_cut(left: list[Site], right: list[Site], scope: Scope, depth: int) -> bool:
    """Whether all iterations of one part may run before all of the other; registers hand nothing on from one to the other."""
    written = {s.access.buffer for s in (*left, *right) if s.write and s.access.buffer.is_register}
    if written & {s.access.buffer for s in left} & {s.access.buffer for s in right}:
        return False
    return not reordered(scope.order, left, right, depth)


def together(a: Loop, b: Loop, path: Path, scope: Scope) -> Loop | None:
    """One loop of both bodies, if it means the same and is worth it."""
    p, q = a.range, b.range
    if a.until or b.until:
        return None
    if p.step != q.step or (q.hi - q.lo) != (p.hi - p.lo):
        return None
    shift: Affine = p.at + (q.lo - p.lo)
    if _along(a, scope, ZERO).isdisjoint(_along(b, scope, q.lo - p.lo)):
        return None  # they touch no buffer at the same place along the loop
    if any(innermost(x) and not innermost(y) and _is_dear(x) for x, y in ((a, b), (b, a))):
        return None  # elementary functions take several numbers at once only in an innermost loop
    second = renamed(b.body, {q.var: shift})
    loop = Loop(p, a.body + second)
    inside = (*path, p)
    left, right = found(a.body, inside), found(second, inside, len(a.body))
    if reordered(scope.order, left, right, len(path)):
        return None
    if innermost(a) and innermost(b):
        before = [scope.remembered(parallel_in_registers, x, path) for x in (a, b)]
        still = all(before) and _apart(left, right, len(path), scope)
        if still is None:
            still = parallel_in_registers(loop, path, scope)
        if any(before) and not still and not _mostly_shared(a.body, second, before):
            return None
    return loop


def _apart(left: list[Site], right: list[Site], depth: int, scope: Scope) -> bool | None:
    """Whether no iteration of a loop of two parallel ones touches what another one writes; None where that may be done in a register."""
    r = left[0].path[depth]
    for a, b in clashes(left, right, additions=True):
        if a.access.buffer.is_register:
            return None
        if any(scope.order.meet(x, y, depth, r.step) for x, y in ((a, b), (b, a))):
            moving = all(r.var in x.access.names() for x in (a, b))
            return False if moving else None
    return True


LONG, LONG_AROUND = 16, 48
"""Iterations from which on a loop over what two loops share is worth what is left over of them, if it is innermost or has one loop more."""
FEW = 4
"""Iterations that are left over at one end, at most."""


def aligned(a: Loop, b: Loop, path: Path, scope: Scope) -> tuple[list[Any], Loop, list[Any]] | None:
    """Two loops that write to one buffer at shifted places as one loop over the places they share, between what is left of the first one
    and of the second one: each loop's own iterations may run in any order."""
    p, q = a.range, b.range
    if a.until or b.until or p.step != 1 or q.step != 1:
        return None
    shift = _shift(a, b)
    if shift is None:
        return None
    ends = (q.lo - shift - p.lo, q.hi - shift - p.hi)
    if any(e.terms or abs(e.const) > FEW for e in ends) or not any(e.const for e in ends):
        return None
    low, high = (e.const for e in ends)
    r = Range(p.var, p.lo + max(low, 0), p.hi + min(high, 0))
    if not all(is_long(x, scope, path, r) and _in_any_order(x, path, scope) for x in (a, b)):
        return None
    second = renamed(b.body, {q.var: p.at + shift})
    loop, inside = Loop(r, a.body + second), (*path, r)
    left, right = found(a.body, inside), found(second, inside, len(a.body))
    if reordered(scope.order, left, right, len(path)) or not _in_any_order(loop, path, scope):
        return None

    def rest(body: list[Any], lo: Affine, before: int, hi: Affine, behind: int) -> list[Any]:
        places = [*(lo + k for k in range(before)), *(hi - k for k in range(behind, 0, -1))]
        return [s for at in places for s in rewritten(body, scope.names, values={p.var: at})]

    first = rest(a.body, p.lo, max(low, 0), p.hi, max(-high, 0))
    last = rest(second, q.lo - shift, max(-low, 0), q.hi - shift, max(high, 0))
    return first, loop, last


def is_long(loop: Loop, scope: Scope, path: Path, r: Range | None = None) -> bool:
    """Whether a nest of two loops at most is long enough to be one with another, over its own or the given range."""
    r = r or loop.range
    inner = [x for x in loop.body if isinstance(x, Loop)]
    least = LONG_AROUND if inner else LONG
    return all(map(innermost, inner)) and scope.order.proves(r.hi - r.lo - least, path)


def _shift(a: Loop, b: Loop) -> Affine | None:
    """How far ahead the variable of the second loop is where both write to one element."""
    p, q = a.range, b.range
    for s in _stores(a):
        for t in _stores(b):
            if s.target.buffer is not t.target.buffer:
                continue
            for i, j in zip(s.target.index, t.target.index, strict=True):
                if i[p.var] == j[q.var] == 1:
                    shift = (i - p.at) - (j - q.at)
                    return None if shift.terms else shift
    return None


def candidates(program: Program) -> list[tuple[Affine, ...]]:
    """Sums into one buffer at shifted places, in a program of statements or loops: by how much the extent is above what makes one loop
    of them worth it."""
    writes = by_buffer(s for s in sites(program.body) if s.write and s.access.index)
    seen: dict[tuple[Affine, ...], None] = {}
    for those in writes.values():
        if not any(s.store.mode == "+=" for s in those):
            continue
        along: dict[int, dict[tuple[Affine, Affine], None]] = {}
        for s in those:
            ranges = {r.var: r for r in (*s.path, *s.axes)}
            for d, i in enumerate(s.access.index):
                for r in (ranges[n] for n in i.names() if n in ranges and i.moves(n) == 1):
                    if not (i - r.at).terms:
                        along.setdefault(d, {})[r.hi - r.lo, i - r.at + r.lo] = None
        for regions in along.values():
            for n, start in regions:
                if program.knows(n) and n.terms and any(start != s for _, s in regions):
                    seen[(n - LONG_AROUND - 2 * FEW,)] = None
    return list(seen)


def _stores(loop: Loop) -> Iterator[Store]:
    for s in loop.body:
        yield from _stores(s) if isinstance(s, Loop) else (s,)


def _in_any_order(loop: Loop, path: Path, scope: Scope) -> bool:
    """Whether the iterations of a loop are independent, and none leaves a number behind."""
    return all(not s.target.buffer.is_register for s in _stores(loop)) and scope.remembered(
        _uncarried, loop, path
    )


def _uncarried(loop: Loop, path: Path, scope: Scope) -> bool:
    return not carried(loop, path, scope, True)


LANES = 4
"""How many times faster a parallel loop is, about."""


def _mostly_shared(first: list[Any], second: list[Any], parallel: list[bool]) -> bool:
    """Whether a parallel loop computes again what the other one computes, so that apart they take longer than one serial loop."""
    if all(parallel):
        return False
    ours, theirs = (operations(s.value for s in body) for body in (first, second))
    mine, other = (ours, theirs) if parallel[0] else (theirs, ours)
    return bool(mine & other) and LANES * cost(mine - other) < cost(mine)


def _is_dear(loop: Loop) -> bool:
    return any(map(is_dear, nodes(s.value for s in loop.body)))


def _along(loop: Loop, scope: Scope, shift: Affine) -> set[Any]:
    """Where a loop's accesses move along with it, if its variable is HERE + `shift`."""
    found = scope.remembered(_moving, loop, ())
    if shift == ZERO:
        return found
    return {(b, d, i.replaced({"here": HERE + shift})) for b, d, i in found}


def _moving(loop: Loop, path: Path, scope: Scope) -> set[Any]:
    """The buffer, place and text of each index that moves with a loop, whose variable is HERE."""
    var = loop.range.var
    indices: dict[tuple[Any, tuple[Affine, ...]], None] = {}
    for s in sites(loop.body):
        indices[s.access.buffer, s.access.index] = None
        for e in (e for i in s.access.index for e in i.elements()):
            indices[e.of, e.args] = None
    return {
        (b, d, i.replaced({var: HERE}))
        for b, index in indices
        for d, i in enumerate(index)
        if i[var]
    }


BEFORE = 4
"""How many small loops that stand between two loops, and which the second one needs, are moved in front of both to join the two."""


def fused(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Each loop takes in every earlier one that it may be joined with; stores move up past what they do not touch."""
    out: list[Any] = []
    known: dict[int, list[Site]] = {}
    for s in body:
        own, at = found([s], path), len(out)
        needed: list[int] = []
        ahead: list[Site] = []  # of what is needed
        last: list[Any] = []
        for k in reversed(range(len(out))):
            part = known[id(out[k])]
            free = not meeting(scope.order, part, ahead, len(path))
            loops = free and _both_loops(s, out[k])
            joined = together(out[k], s, path, scope) if loops else None
            if joined is not None:
                before = [out.pop(j) for j in needed][::-1]
                out[k : k + 1] = before
                s, at, own = joined, k + len(before), found([joined], path)
                needed = list(range(k, at))[::-1]
            elif loops and not needed and (parts := aligned(out[k], s, path, scope)) is not None:
                first, s, last = parts
                out[k : k + 1] = first
                at, own = k + len(first), found([s], path)
                known.update((id(x), found([x], path)) for x in (*first, *last))
                break
            elif not free or meeting(scope.order, part, own, len(path)):
                if len(needed) == BEFORE or not (opened(s) and _is_small(out[k])):
                    break
                needed.append(k)
                ahead += part
            elif isinstance(s, Store) and isinstance(out[k], Loop):
                at = k
        out[at:at] = [s, *last]
        known[id(s)] = own
    return [s.of(fused(s.body, scope, (*path, s.range))) if opened(s) else s for s in out]


def _is_small(s: Any) -> bool:
    """Whether a part of a body is an innermost loop, or fills memory with constants."""
    return innermost(s) or (isinstance(s, Loop) and all(x.write for x in sites([s])))


def _both_loops(a: Any, b: Any) -> bool:
    return opened(a) and opened(b)
