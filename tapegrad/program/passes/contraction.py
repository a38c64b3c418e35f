"""Contraction: a temporary whose every access has the variable of one loop at the same place loses that extent, and as a number becomes a
register. First writes: zero and then a sum is an assignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..affine import whole
from ..expressions import is_const, plus
from ..form import Access, Buffer, Loop, Site, Store, by_buffer, sites
from ..order import Order
from ..residuals import covers
from .scope import Path, Scope, found, moved


def contracted(body: list[Any], scope: Scope) -> list[Any]:
    """Take those axes from temporaries along which each entry is read only where it was written."""
    gone: dict[Buffer, tuple[Buffer, list[int]]] = {}
    for b, those in by_buffer(sites(body)).items():
        if b.role != "temporary":
            continue
        dims = [d for d in range(len(b.extents)) if _lonely(those, d, scope.order)]
        if dims:
            extents = tuple(n for d, n in enumerate(b.extents) if d not in dims)
            gone[b] = Buffer(scope.names(b.name), extents, b.dtype), dims
    if not gone:
        return body

    def smaller(a: Access) -> Access:
        if a.buffer not in gone:
            return a
        new, dims = gone[a.buffer]
        return Access(new, tuple(i for d, i in enumerate(a.index) if d not in dims))

    return moved(body, smaller)


def _lonely(those: list[Site], d: int, order: Order) -> bool:
    """Index d is one loop's variable, at one distance, in all accesses, and each iteration writes what it reads: then no two
    iterations share an element, and none outlives its iteration. An iteration writes what it reads if it first writes everything, or if
    nothing that another one wrote reaches its reads."""
    index, path = those[0].access.index[d], those[0].path
    moving = [level for level, r in enumerate(path) if index[r.var]]
    if not whole(index) or len(moving) != 1 or any(s.access.index[d] != index for s in those):
        return False
    depth = moving[0] + 1
    first = min(those, key=lambda s: s.place)
    within = all(s.path[:depth] == path[:depth] for s in those)
    fresh = first.write and first.store.mode == "="
    if not within or not fresh:
        return False
    reads = [s for s in those if not s.write]
    if any(order.precedes(s, first, depth) for s in reads):
        return False
    return covers(first, depth, d) or not any(
        order.meet(w, r, level, path[level].step)
        for r in reads
        for w in those
        if w.write
        for level in range(depth)
    )


def first_writes(body: list[Any], scope: Scope) -> list[Any]:
    """Additions that come first are assignments: to elements that are zero, or that were assigned a constant just before."""
    return _assigned(_after_zeros(body, scope), scope)


def _after_zeros(body: list[Any], scope: Scope) -> list[Any]:
    """Additions to elements that nothing but a zero, once at the start, wrote before."""
    writes = by_buffer(s for s in sites(body) if s.write)
    changed: set[Store] = set()
    products = set(_products(body))
    for those in writes.values():
        zero = min(those, key=lambda w: w.place)
        rest = [w for w in those if w is not zero]
        if zero.store.mode != "=" or not is_const(zero.store.value, 0.0) or not rest:
            continue
        if min(rest, key=lambda w: w.place).path[:1] == zero.path[:1]:
            continue
        for w in rest:
            reads = any(leaf.access.buffer is w.access.buffer for leaf in w.store.value.loads)
            early = any(scope.order.precedes(other, w) for other in rest)
            if (
                w.store.mode == "+="
                and w.access.index
                and not reads
                and not early
                and w.store not in products
            ):
                changed.add(w.store)

    def rewritten(part: list[Any]) -> list[Any]:
        return [
            s.of(rewritten(s.body))
            if isinstance(s, Loop)
            else Store(s.target, s.value)
            if s in changed
            else s
            for s in part
        ]

    return rewritten(body) if changed else body


def _products(body: list[Any], within: bool = False) -> Iterator[Store]:
    """Stores of products of matrices, and of calls."""
    for s in body:
        if isinstance(s, Loop):
            yield from _products(s.body, within or s.closed)
        elif within:
            yield s


def _assigned(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """x = constant; ...; x += b with nothing between that touches x becomes one assignment."""
    out: list[Any] = []
    for s in body:
        if isinstance(s, Loop):
            s = s if s.closed else s.of(_assigned(s.body, scope, (*path, s.range)))
        elif s.mode == "+=" and (k := _last_write(out, s, path, scope)) is not None:
            old = out.pop(k)
            s = Store(s.target, plus(old.value, s.value))
        out.append(s)
    return out


def _last_write(out: list[Any], s: Store, path: Path, scope: Scope) -> int | None:
    """Where `out` assigns a constant to the target, if nothing after it, nor the store itself, reads or writes it."""
    own = [x for x in found([s], path) if x.write]
    if any(leaf.access.buffer is s.target.buffer for leaf in s.value.loads):
        return None
    for k in reversed(range(len(out))):
        x = out[k]
        if isinstance(x, Store) and x.target == s.target and x.mode == "=":
            return k if x.value.op == "const" else None
        for site in found([x], path):
            if site.access.buffer is s.target.buffer and scope.order.meet(site, own[0], len(path)):
                return None
    return None
