"""Lowering: statements become loops of single stores, executed in order.

A statement computes all its values before it stores any; loops do one point after the other. Where order says that no point stores an
element before another reads it, the loops are the statement. Else they run the other way, or the elements that are stored too early are
copied, or all values go through memory first. Within one point, values that an earlier store would spoil wait in registers.

From here on a body holds `Store`s, no `Statement`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .expressions import Expr, load, rewritten
from .form import Access, Buffer, Loop, Names, Program, Range, Site, Statement, Store, nest
from .form import rewritten as rewritten_form
from .order import Order


def lowered(program: Program) -> Program:
    """The program as loops of stores."""
    order = Order(program.assumptions, program.sizes)
    return program.of(_body(program.body, (), order, program.names))


def _body(body: list[Any], path: tuple[Range, ...], order: Order, names: Names) -> list[Any]:
    out: list[Any] = []
    for s in body:
        if isinstance(s, Loop):
            out.append(s.of(_body(s.body, (*path, s.range), order, names)))
        else:
            out += _Lowered(s, path, order, names).body
    return out


class _Lowered:
    def __init__(self, s: Statement, path: tuple[Range, ...], order: Order, names: Names) -> None:
        self.path, self.order, self.names = path, order, names
        self.body = self._of(s)

    def _of(self, s: Statement) -> list[Any]:
        """A statement as loops: in one nest where no value is overwritten too early, else through copies."""
        s = self._assignments_last(s)
        if not s.axes:
            return self._point(s, ())
        if len(s.stores) > 1:
            parts = self._apart(s)
            if parts is not None:
                return parts
        down = tuple(Range(r.var, r.lo, r.hi, -1) for r in s.axes)
        for axes in (s.axes, down):
            late = self._late(s, axes)
            if not late:
                return nest(axes, self._point(s, axes))
        late = self._late(s, s.axes)
        rows = [a for a in late if a is not None]
        if len(rows) == len(late) and all(len(self._moving(a, s.axes)) < len(s.axes) for a in rows):
            return self._with_copies(s, rows)
        return self._through_memory(s)

    def _sites(self, s: Statement, axes: Sequence[Range]) -> list[Site]:
        """Sites of the statement's stores in loops over the axes: what all read, then what each writes."""
        path = (*self.path, *axes)
        place = (0,) * len(path)
        found = [
            Site(path, (), (*place, 0), leaf.access, False, t, s)
            for t in s.stores
            for leaf in t.value.loads
        ]
        found += [
            Site(path, (), (*place, j), t.target, True, t, s) for j, t in enumerate(s.stores, 1)
        ]
        return found

    def _apart(self, s: Statement) -> list[Any] | None:
        """Each store in loops of its own, where none of them has what another reads or writes; else None."""
        for j, t in enumerate(s.stores):
            for u in s.stores[j + 1 :]:
                w = self._free(s, t.target)
                sums = t.mode == u.mode == "+="
                if not sums and self._meet(w, self._free(s, u.target)):
                    return None
                if any(self._meet(w, self._free(s, leaf.access)) for leaf in u.value.loads):
                    return None
        parts = [rewritten_form([Statement(s.axes, [t])], self.names)[0] for t in s.stores]
        return [x for part in parts for x in self._of(part)]

    def _free(self, s: Statement, a: Access) -> Site:
        """An access at any point of a statement."""
        place = (0,) * (len(self.path) + 1)
        return Site(self.path, s.axes, place, a, False, s.stores[0], s)

    def _assignments_last(self, s: Statement) -> Statement:
        """The statement with its "=" behind its sums, where these are of other elements: fewer values have to wait."""
        assigned = [t for t in s.stores if t.mode == "="]
        others = [t for t in s.stores if t.mode != "="]
        if not assigned or not others:
            return s
        for t in assigned:
            w = self._free(s, t.target)
            if any(self._meet(w, self._free(s, u.target)) for u in others):
                return s
        return Statement(s.axes, others + assigned, s.identity)

    def _meet(self, a: Site, b: Site) -> bool:
        return self.order.meet(a, b, len(self.path))

    def _late(self, s: Statement, axes: Sequence[Range]) -> list[Access | None]:
        """What loops over the axes would read after they wrote it; None stands for stores in another order."""
        found = self._sites(s, axes)
        reads, writes = [x for x in found if not x.write], [x for x in found if x.write]
        depth = len(self.path)
        late: dict[Access | None, None] = {}
        for w in writes:
            for r in reads:
                if self.order.precedes(w, r, depth):
                    late[r.access] = None
        for j, u in enumerate(writes):
            for w in writes[:j]:
                sums = u.store.mode == w.store.mode == "+="
                if not sums and self.order.precedes(u, w, depth):
                    late[None] = None
        return list(late)

    def _moving(self, a: Access, axes: Sequence[Range]) -> list[Range]:
        names = a.names()
        return [r for r in axes if r.var in names]

    def _point(self, s: Statement, axes: Sequence[Range]) -> list[Store]:
        """The stores of one point, values in registers where an earlier store would spoil them."""
        path = (*self.path, *axes)
        before: list[Store] = []
        values = []
        for j, t in enumerate(s.stores):
            spoilt = any(
                self._same_point(path, a, u.target)
                for u in s.stores[:j]
                for a in (leaf.access for leaf in t.value.loads)
            )
            value = t.value
            if spoilt:
                register = Access(Buffer(self.names("v"), (), value.dtype))
                before.append(Store(register, value))
                value = load(register)
            values.append(value)
        stores = [Store(t.target, v, t.mode) for t, v in zip(s.stores, values, strict=True)]
        return before + stores

    def _same_point(self, path: tuple[Range, ...], a: Access, b: Access) -> bool:
        def site(x: Access) -> Site:
            return Site(path, (), (0,) * len(path), x, False, Store(x, load(x)), None)

        return self.order.meet(site(a), site(b), len(path))

    def _with_copies(self, s: Statement, late: list[Access]) -> list[Any]:
        """The loops, reading copies of rows that they would write to too early."""
        out: list[Any] = []
        known: dict[Access, Access] = {}
        for a in late:
            moving = self._moving(a, s.axes)
            new = tuple(Range(self.names(r.var.split(".")[0]), r.lo, r.hi) for r in moving)
            copy = Buffer(self.names("row"), tuple(r.hi for r in moving), a.buffer.dtype)
            there = a.replaced({r.var: n.at for r, n in zip(moving, new, strict=True)})
            own = Access(copy, tuple(n.at for n in new))
            out += nest(new, [Store(own, load(there))])
            known[a] = Access(copy, tuple(r.at for r in moving))

        def change(n: Expr) -> Expr | None:
            return load(known[n.access]) if n.op == "load" and n.access in known else None

        values = rewritten([t.value for t in s.stores], change)
        stores = [Store(t.target, v, t.mode) for t, v in zip(s.stores, values, strict=True)]
        return out + self._of(Statement(s.axes, stores))

    def _through_memory(self, s: Statement) -> list[Any]:
        """All values to memory of their own, then each store."""
        extents = tuple(r.hi for r in s.axes)
        index = tuple(r.at for r in s.axes)
        first, then = [], []
        for t in s.stores:
            b = Buffer(self.names("t"), extents, t.value.dtype)
            first.append(Store(Access(b, index), t.value))
            then.append(Store(t.target, load(Access(b, index)), t.mode))
        out = nest(s.axes, list(first))
        for t in then:
            axes = tuple(Range(self.names(r.var.split(".")[0]), r.lo, r.hi) for r in s.axes)
            values = {r.var: n.at for r, n in zip(s.axes, axes, strict=True)}
            value = load(t.value.access.replaced(values))
            out += nest(axes, [Store(t.target.replaced(values), value, t.mode)])
        return out
