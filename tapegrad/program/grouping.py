"""Grouping: neighbouring statements of single elements become one statement.

Straight-line scalar code is run symbolically: a value that a later statement reads takes the place of the read, so a loop body of many
assignments is one statement of several stores, whose derivative is taken at once. Stores that nothing reads any more are dropped.

Invariant: within a statement no two stores may have the same element; what may be the same element ends the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .expressions import Expr, const, load, node, nodes, rewritten
from .form import Access, Loop, Program, Site, Statement, Store, by_buffer, counters, loops, sites
from .order import Order
from .residuals import covers

LARGEST = 400
"""Nodes of a statement beyond which nothing is added to it."""


def grouped(program: Program) -> Program:
    """The same program with its scalar code grouped, without stores that nothing reads."""
    order = Order(program.assumptions, program.sizes)
    return without_dead(program.of(_body(program.body, (), order)))


def _body(body: list[Any], path: tuple[Any, ...], order: Order) -> list[Any]:
    """Join neighbouring statements without axes into groups, in loops as well."""
    out: list[Any] = []
    group = _Group(path, order)
    for s in body:
        if isinstance(s, Statement) and not s.axes and s.stores[0].mode in ("=", "+="):
            if not group.takes(s):
                out += group.taken()
                group.takes(s)
            continue
        out += group.taken()
        if isinstance(s, Loop) and not s.call:
            inner = _body(s.body, (*path, s.range), order)
            out += [s.of(inner)] if inner else []
        else:
            out.append(s)
    return out + group.taken()


class _Group:
    """Stores that wait, by their access, with the value that the element has by then."""

    def __init__(self, path: tuple[Any, ...], order: Order) -> None:
        self.path, self.order = path, order
        self.waiting: dict[Access, Expr] = {}

    def takes(self, s: Statement) -> bool:
        """Take a statement in; False, and nothing is changed, where it may touch a waiting element without being known to."""
        if self.waiting and any(self._meets(a) for t in s.stores for a in (t.target, *t.reads())):
            return False
        if any(a in self.waiting for t in s.stores for a in counters((t.target, *t.reads()))):
            return False  # no value can take the place of a number in an index
        new = rewritten([t.value for t in s.stores], self._known)
        if self.waiting and len(nodes([*self.waiting.values(), *new])) > LARGEST:
            return False
        for t, value in zip(s.stores, new, strict=True):
            if t.mode == "+=":
                old = self.waiting.get(t.target, load(t.target))
                value = node("add", old, value)
            self.waiting[t.target] = value
        return True

    def _known(self, n: Expr) -> Expr | None:
        return self.waiting.get(n.access) if n.op == "load" else None

    def _meets(self, a: Access) -> bool:
        """May a waiting store have this element, without being known to?"""
        return any(
            p.buffer is a.buffer
            and p != a
            and self.order.meet(self._site(p), self._site(a), len(self.path))
            for p in self.waiting
        )

    def _site(self, a: Access) -> Site:
        return Site(self.path, (), (0,), a, False, Store(a, load(a)), None)

    def taken(self) -> list[Statement]:
        stores = [_update(a, v) for a, v in self.waiting.items() if v is not load(a)]
        self.waiting = {}
        return [Statement((), stores)] if stores else []


def _update(target: Access, value: Expr) -> Store:
    """`x = x + e`, e free of x, is an update: sums commute, which reordering needs to know."""
    own = load(target)
    added = None if value is own else _added(value, own)
    return Store(target, value) if added is None else Store(target, added, "+=")


def _added(value: Expr, own: Expr) -> Expr | None:
    """What is added to an element, where a formula is the element and a sum free of it, on both sides of a choice; else None."""
    if value is own:
        return const(0.0, own.dtype)
    if value.op == "where" and own not in value.args[0].loads:
        sides = [_added(a, own) for a in value.args[1:]]
        if None in sides:
            return None
        return node("where", value.args[0], *sides)  # type: ignore[arg-type]
    terms: list[tuple[str, Expr]] = []
    e = value
    while e.op in ("add", "subtract"):
        terms.append((e.op, e.args[1]))
        e = e.args[0]
    if e is not own or not terms or any(own in t.loads for _, t in terms):
        return None
    first, rest = terms[-1], reversed(terms[:-1])
    total = first[1] if first[0] == "add" else node("negative", first[1])
    for op, t in rest:
        total = node(op, total, t)
    return total


def without_dead(program: Program) -> Program:
    """Without stores into temporaries that nothing reads afterwards, and those that are overwritten before anything reads them."""
    body = program.body
    while True:
        order = Order(program.assumptions, program.sizes)
        everything = list(sites(body))
        reads = by_buffer(
            s
            for s in everything
            if not s.write and not (s.access == s.store.target and s.store.mode != "=" and _only(s))
        )
        dead = {
            s.store
            for s in everything
            if s.write
            and s.access.buffer.role == "temporary"
            and not any(order.precedes(s, r) for r in reads.get(s.access.buffer, ()))
        } | _overwritten(everything, order)
        dead = _with_calls(body, dead)
        if not dead:
            return program.of(body)
        body = _kept(body, dead)


def _overwritten(everything: Sequence[Site], order: Order) -> set[Store]:
    """Stores into a buffer of which another store writes each element anew, before anything is read from the buffer."""
    dead: set[Store] = set()
    for those in by_buffer(everything).values():
        writes = [s for s in those if s.write]
        for c in writes[1:]:
            if c.store.mode != "=" or not c.access.index or not covers(c, 0):
                continue
            if not any(order.precedes(r, c) for r in those if not r.write):
                dead |= {w.store for w in writes if w is not c and not order.precedes(c, w)}
    return dead


def _with_calls(body: Sequence[Any], dead: set[Store]) -> set[Store]:
    """The same of whole calls: a call is dead where its result is, and else none of its stores is."""
    for loop in loops(body):
        if loop.call:
            result = {s.store for s in sites(loop.body[-1:]) if s.write}
            every = {s.store for s in sites(loop.body) if s.write}
            dead = dead | every if result <= dead else dead - every
    return dead


def _only(s: Site) -> bool:
    """Whether an update reads its element for nothing but the update."""
    return all(leaf.access != s.access for leaf in s.store.value.loads)


def _kept(body: list[Any], dead: set[Store]) -> list[Any]:
    out: list[Any] = []
    for s in body:
        if isinstance(s, Loop):
            inner = _kept(s.body, dead)
            out += [s.of(inner)] if inner else []
        elif isinstance(s, Statement):
            stores = [t for t in s.stores if t not in dead]
            out += [Statement(s.axes, stores, s.identity)] if stores else []
        elif s not in dead:
            out.append(s)
    return out
