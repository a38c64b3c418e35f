"""Reverse mode: a program of statements becomes the program of its value and its gradients.

Statements turn round and so do the loops around them. The derivative of a statement is one statement again, over the same axes: the
cotangents of what it read are added in place to the cotangents of whole buffers, those of what it overwrote begin anew, and all of
it is computed from values before any of it is stored. So updates in place need no special case. `residuals` says where the values
come from that partial derivatives read.

A statement that takes a maximum or minimum over axes shares the cotangent among the elements that reach it. A call is turned round by the
rule of its routine (`calls`), which is made of statements and calls.

Invariant: the cotangent of a buffer is that of its content at the point which the reverse sweep has come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .calls import Maker, Region, regions
from .cotangents import cotangents
from .decompositions import ROUTINES
from .expressions import B1, F8, WHOLE, Expr, cast, const, load, node, rewritten
from .form import (
    AFTER,
    Access,
    Buffer,
    Loop,
    Program,
    Range,
    Site,
    Statement,
    Store,
    loops,
    over,
    ranges,
    sites,
)
from .form import rewritten as copied
from .partials import Formless
from .residuals import Adjoint, Residuals, extreme, spans, used


def gradient(
    program: Program, wanted: Sequence[Buffer], seeded: Sequence[Buffer], keep: bool = True
) -> Program:
    """The program that computes the outputs and the cotangents of the `wanted` inputs.

    It takes one input more for each of `seeded`, the cotangent of that output. `keep=False` keeps no residuals, which is wrong
    where something is overwritten: a fault that tests plant.
    """
    return _Reverse(program, wanted, seeded, keep).program()


class _Reverse:
    def __init__(
        self, program: Program, wanted: Sequence[Buffer], seeded: Sequence[Buffer], keep: bool
    ) -> None:
        """Prepare the reverse: gradients of the `seeded` results by the `wanted` buffers; `keep` allows residuals."""
        self.primal, self.wanted, self.names = program, list(wanted), program.names
        self.residuals = Residuals(program, keep)
        self.active = active(self.residuals.sites, wanted, seeded)
        self.seeds = {
            b: Buffer(
                self.names(f"seed_{b.name}"), b.extents, b.dtype if b.extents else F8, "input"
            )
            for b in seeded
        }
        self.shadows: dict[Buffer, Buffer] = {}
        self.stand: dict[Buffer, Buffer] = {}
        """Cotangents while residuals are chosen, when they are no values of the program."""
        self.adjoints: dict[int, Adjoint] = {}
        self.sites = {
            id(s.owner): s
            for s in self.residuals.sites
            if s.write and isinstance(s.owner, Statement)
        }
        self.calls = [s for s in loops(program.body) if s.call]
        self.called = {id(s) for x in self.calls for s in x.body}
        """The statements that stand for what calls read and write."""
        self.kept: dict[Store, Access] = {}
        self.lifted: dict[Range, list[tuple[Store, Site]]] = {}
        """By loop the stores in it that save in front of it, in the order of the text."""

    # ------------------------------------------------------------------------------------------ cotangents

    def shadow(self, a: Access) -> Access:
        b = a.buffer
        if b not in self.shadows:
            if b in self.seeds:
                self.shadows[b] = self.seeds[b]
            else:
                role = "output" if b in self.wanted else "temporary"
                dtype = F8 if b.is_register else b.dtype
                self.shadows[b] = Buffer(self.names(f"d_{b.name}"), b.extents, dtype, role)
        return Access(self.shadows[b], a.index)

    def standing(self, a: Access) -> Expr:
        """A cotangent as adjoints have it while residuals are chosen."""
        b = self.shadow(a).buffer
        if b not in self.stand:
            self.stand[b] = Buffer(b.name, b.extents, b.dtype, "cotangent")
        return load(Access(self.stand[b], a.index))

    # ------------------------------------------------------------------------------------------ the plan

    def plan(self) -> None:
        """The derivative of each statement, and what it needs kept."""
        for key, site in self.sites.items():
            if key in self.called:
                continue
            if any(s.target.buffer in self.active for s in site.owner.stores):
                self.adjoints[key] = self._adjoint(site)
                for probe in self.adjoints[key].reads():
                    self.residuals.need(probe)
        self.residuals.decide([*self.adjoints.values(), *self._calls()])
        for w in self.residuals.sites:
            found = self.residuals.lifted.get(w.store) if w.write else None
            if found is not None:
                self.lifted.setdefault(w.path[found[0]], []).append(
                    (w.store, self.sites[id(w.owner)])
                )

    def _calls(self) -> Iterator[Adjoint]:
        """What the derivatives of calls need kept: some of what they read, and their results."""
        for loop in self.calls:
            operands, result = regions(loop)
            if result.access.buffer not in self.active:
                continue
            needed = ROUTINES[loop.call].read(operands, result)
            site = self.sites[id(loop.body[-1])]
            yield Called(site, {}, after={load(result.access): result.access}, regions=needed)

    def _adjoint(self, site: Site) -> Adjoint:
        """The cotangents of a statement, read from its operands or from its results, whichever keeps less."""
        statement: Statement = site.owner
        if statement.stores[0].mode in ("max=", "min="):
            found = self._extreme(site)
        else:
            found = Adjoint(site, cotangents(statement, self.active, self.standing, {}))
            results = self._results(site)
            if results:
                bars = cotangents(statement, self.active, self.standing, results)
                back = {results[n]: a for n, a in self._stored(statement).items()}
                other = Adjoint(site, bars, back)
                spoilt = [p for p in other.reads() if p.place[-1] == 0 and self._own(p, site)]
                cost = self.residuals.cost
                if not spoilt and cost(other) <= cost(found):
                    found = other
        self.residuals.mask(found)
        return found

    def _stored(self, statement: Statement) -> dict[Expr, Access]:
        """Formulas whose value stands in memory behind the statement."""
        return {
            s.value: s.target
            for s in statement.stores
            if s.mode == "="
            and s.value.op not in ("load", "const", "number")
            and s.value.dtype == s.target.buffer.dtype
            and s.target.buffer.role != "output"
        }

    def _results(self, site: Site) -> dict[Expr, Expr]:
        """Stand-ins for them: loads of buffers that are found again behind the statement."""
        return {
            n: load(Access(Buffer(f"{a.buffer.name}'", a.buffer.extents, a.buffer.dtype), a.index))
            for n, a in self._stored(site.owner).items()
        }

    def _own(self, probe: Site, site: Site) -> bool:
        """Whether a read may be of an element that the statement itself stores."""
        order, depth = self.residuals.order, len(site.path)
        return any(order.meet(probe, site.probe(s.target, 0), depth) for s in site.owner.stores)

    def _extreme(self, site: Site) -> Adjoint:
        """Of `y max= e` over axes: the cotangent of y in equal shares to the points at which e is y."""
        statement = site.owner
        (s,) = statement.stores
        y = load(
            Access(
                Buffer(f"{s.target.buffer.name}'", s.target.buffer.extents, s.value.dtype),
                s.target.index,
            )
        )
        reached = node("equal", s.value, y)
        share = Access(
            Buffer(self.names("share"), s.target.buffer.extents, F8, "cotangent"), s.target.index
        )
        g = node("where", reached, cast(load(share), s.value.dtype), const(0.0, s.value.dtype))
        bars = cotangents(
            Statement(statement.axes, [Store(s.target, s.value)]), self.active, lambda _: g, {}
        )
        bars.pop(s.target, None)
        return Adjoint(site, bars, {y: s.target}, [reached, load(share)])

    # ------------------------------------------------------------------------------------------ the sweeps

    def program(self) -> Program:
        """The program of values and gradients: forward, then reverse."""
        self.plan()
        p, moved = self.primal, self.residuals.moved
        forward = copied(self._forward(p.body), self.names, moved)
        back = self._filled(self._back(p.body, ()), self._global())
        again = {
            b: Buffer(self.names(b.name), b.extents, b.dtype)
            for b in self.residuals.local
            if b in self.residuals.again or b in self.residuals.behind
        }
        """Memory of the reverse sweep for what it computes again, so that neither sweep's need outlive an iteration."""

        def later(a: Access) -> Access:
            return Access(again[a.buffer], a.index) if a.buffer in again else moved(a)

        reverse = copied(back, self.names, later)
        gradients = [self.shadow(Access(b)).buffer for b in self.wanted]
        seeds = list(self.seeds.values())
        idle = self._zeros([d for d in gradients if d not in _touched(reverse)])
        return p.of(
            [*forward, *reverse, *idle],
            name=p.name + "_gradient",
            inputs=[*p.inputs, *seeds],
            outputs=[*p.outputs, *gradients],
            loops=[*p.loops, *ranges(p.body)],
        )

    def _global(self) -> list[Buffer]:
        """Cotangents that begin at zero with the reverse sweep: with the extents that no variable of a loop is in."""
        found = [
            d
            for b, d in self.shadows.items()
            if b not in self.residuals.local and b not in self.seeds
        ]
        low, high = spans(self.primal, self.primal.body)
        for d in found:
            d.extents = tuple(extreme(n, high, low) for n in d.extents)
        return found

    def _forward(self, body: list[Any]) -> list[Any]:
        """The forward sweep with what it saves."""
        out: list[Any] = []
        for s in body:
            if isinstance(s, Loop):
                out += [self._saving(store, site) for store, site in self.lifted.get(s.range, ())]
                out.append(s if s.call else s.of(self._forward(s.body)))
                if s.call and any(
                    x in self.residuals.saved and x not in self.residuals.lifted
                    for part in s.body
                    for x in part.stores
                ):
                    raise Formless("What a call overwrites is needed.")
                continue
            site = self.sites[id(s)]
            out += [
                self._saving(store, site)
                for store in s.stores
                if store in self.residuals.saved and store not in self.residuals.lifted
            ]
            adjoint = self.adjoints.get(id(s))
            if adjoint is not None and adjoint.masks:
                tests = [Store(a, self._value(n, adjoint)) for n, a in adjoint.masks.items()]
                before = [
                    t
                    for n, t in zip(adjoint.masks, tests, strict=True)
                    if not self._late(n, adjoint)
                ]
                late = [
                    t for n, t in zip(adjoint.masks, tests, strict=True) if self._late(n, adjoint)
                ]
                out += [Statement(s.axes, before)] if before else []
                out.append(s)
                out += [Statement(s.axes, late)] if late else []
            else:
                out.append(s)
        return out

    def _late(self, n: Expr, adjoint: Adjoint) -> bool:
        return any(leaf in adjoint.after for leaf in n.loads)

    def _save(self, store: Store, site: Site) -> Access:
        """Where the element is kept that a store overwrites."""
        if store not in self.kept:
            b, (depth, axes) = store.target.buffer, self.residuals.saving(store, site)
            around = replace(site, path=site.path[:depth])
            self.kept[store] = self.residuals.place(f"kept_{b.name}", around, axes, b.dtype)
        return self.kept[store]

    def _saving(self, store: Store, site: Site) -> Statement:
        """Keep what a store overwrites."""
        kept = Store(self._save(store, site), load(store.target))
        return Statement(self.residuals.saving(store, site)[1], [kept])

    def _restoring(self, store: Store, site: Site) -> Statement:
        """Put back what a store overwrote."""
        back = Store(store.target, load(self._save(store, site)))
        return Statement(self.residuals.saving(store, site)[1], [back])

    def _value(self, n: Expr, adjoint: Adjoint) -> Expr:
        """An expression of an adjoint, with memory in the place of stand-ins."""
        back = {d: b for b, d in self.shadows.items()}
        stands = {s: d for d, s in self.stand.items()}

        def change(x: Expr) -> Expr | None:
            if x.op != "load":
                return None
            if x in adjoint.after:
                return load(adjoint.after[x])
            d = stands.get(x.access.buffer)
            return load(Access(d, x.access.index)) if d is not None and d in back else None

        return rewritten([n], change)[0]

    def _back(self, body: list[Any], path: tuple[Range, ...]) -> list[Any]:
        """The reverse of a body: statements in the opposite order, loops from their last turn to the first."""
        out: list[Any] = []
        for k, s in reversed([*enumerate(body)]):
            behind = self._behind(path, k)
            late = self._again(body, self._with_inputs(behind)) if behind else []
            if isinstance(s, Loop):
                if s.call:
                    out += self._turned(s)
                inner = [] if s.call else self._back(s.body, (*path, s.range))
                if inner:
                    mine = self._mine(s, len(path) + 1)
                    now = {b for b in mine if b in self.residuals.again}
                    again = self._again(s.body, self._with_inputs(now))
                    filled = self._filled(
                        inner, [self.shadows[b] for b in mine if b in self.shadows]
                    )
                    r = s.range
                    out.append(Loop(Range(r.var, r.lo, r.hi, -r.step), again + filled))
                out += [self._restoring(*x) for x in reversed(self.lifted.get(s.range, []))]
                out += late
            else:
                out += self._statement(s, late)
        return out

    def _behind(self, path: tuple[Range, ...], k: int) -> set[Buffer]:
        """What is computed again once the reverse sweep has put back what part `k` of a loop's body overwrote."""
        residuals = self.residuals
        return {
            b
            for b, at in residuals.behind.items()
            if at == k
            and residuals.local[b] == len(path)
            and residuals.writes[b][0].path[: len(path)] == path
        }

    def _mine(self, loop: Loop, depth: int) -> list[Buffer]:
        """Buffers of one iteration of a loop."""
        local = self.residuals.local
        return [
            b
            for b, d in local.items()
            if d == depth and self.residuals.writes[b][0].path[d - 1] is loop.range
        ]

    def _with_inputs(self, needed: set[Buffer]) -> set[Buffer]:
        """Values that are computed again, and those of inner loops that they need."""
        residuals = self.residuals
        while True:
            new = {
                leaf.access.buffer
                for b in needed
                for w in residuals.writes[b]
                for leaf in w.store.value.loads
                if leaf.access.buffer in residuals.again
                and residuals.local[leaf.access.buffer] > residuals.local[b]
            }
            if new <= needed:
                return needed
            needed = needed | new

    def _again(self, body: list[Any], needed: set[Buffer]) -> list[Any]:
        """The statements of an iteration that compute these local buffers."""
        out: list[Any] = []
        for s in body:
            if isinstance(s, Loop):
                inner = self._again(s.body, needed)
                out += [Loop(s.range, inner)] if inner else []
            else:
                stores = [t for t in s.stores if t.target.buffer in needed]
                out += [Statement(s.axes, stores)] if stores else []
        return out

    def _statement(self, s: Statement, late: list[Any]) -> list[Any]:
        """What the reverse sweep does at a statement: put back what it overwrote, compute `late` from that, and its derivative."""
        site = self.sites[id(s)]
        back = [
            self._restoring(t, site)
            for t in reversed(s.stores)
            if t in self.residuals.saved and t not in self.residuals.lifted
        ]
        adjoint = self.adjoints.get(id(s))
        if adjoint is None:
            return back + late
        bars = {a: self._value(e, adjoint) for a, e in adjoint.bars.items()}
        if s.stores[0].mode in ("max=", "min="):
            own = self._shared(s, bars, adjoint)
        else:
            own = self._derivative(s, bars)
        after_first = bool(adjoint.after)
        return own + back + late if after_first else back + late + own

    def _turned(self, s: Loop) -> list[Any]:
        """The reverse of a call, by its rule; the cotangent of its result begins anew."""
        operands, result = regions(s)
        if result.access.buffer not in self.active:
            return []

        def bar(x: Region) -> Region | None:
            return x.of(self.shadow) if x.access.buffer in self.active else None

        made = Maker(self.names)
        ROUTINES[s.call].back(made, operands, result, bar)
        (store,) = s.body[-1].stores
        if store not in self.residuals.covering:
            mine = result.of(self.shadow)
            made.each(mine.extents, lambda *at: Store(mine.at(*at), const(0.0, mine.dtype)))
        return made.body

    def _derivative(self, s: Statement, bars: dict[Access, Expr]) -> list[Any]:
        """The statements that add a statement's cotangents to its operands; of what it overwrites the cotangent begins anew."""
        stores: list[Store] = []
        begun = set()
        for t in s.stores:
            if (
                t.mode == "="
                and t.target.buffer in self.active
                and t.target.buffer not in self.seeds
            ):
                begun.add(t.target)
                if t.target in bars or t not in self.residuals.covering:
                    target = self.shadow(t.target)
                    value = bars.get(t.target, const(0.0, target.buffer.dtype))
                    value = cast(value, target.buffer.dtype)
                    if value is not load(target):
                        stores.append(Store(target, value))
        for a, e in bars.items():
            if a not in begun:
                target = self.shadow(a)
                stores.append(Store(target, cast(e, target.buffer.dtype), "+="))
        return [Statement(s.axes, stores)] if stores else []

    def _shared(self, s: Statement, bars: dict[Access, Expr], adjoint: Adjoint) -> list[Any]:
        """The reverse of a maximum or minimum: equal entries share the cotangent."""
        (t,) = s.stores
        reached, share_stand = (self._value(e, adjoint) for e in adjoint.extra)
        extents, index = t.target.buffer.extents, t.target.index
        axes = used(t, s.axes)
        count = Access(Buffer(self.names("count"), extents), index)
        share = Access(Buffer(share_stand.access.buffer.name, extents), index)
        g = load(self.shadow(t.target))
        equal = node("divide", cast(g, F8), node("maximum", load(count), const(1.0)))
        known = {share_stand: load(share)}
        values = rewritten(bars.values(), lambda n: None, known)
        sums = []
        for a, e in zip(bars, values, strict=True):
            target = self.shadow(a)
            sums.append(Store(target, cast(e, target.buffer.dtype), "+="))
        one = node("where", reached, const(1.0), const(0.0))
        return [
            Statement(axes, [Store(count, const(0.0))]),
            Statement(s.axes, [Store(count, one, "+=")]),
            Statement(axes, [Store(share, equal)]),
            *([Statement(s.axes, sums)] if sums else []),
        ]

    def _filled(self, body: list[Any], shadows: list[Buffer]) -> list[Any]:
        """`body`, each of these set to zero just before its first use."""
        out: list[Any] = []
        left = list(shadows)
        for s in body:
            touched = _touched([s])
            out += self._zeros([b for b in left if b in touched])
            left = [b for b in left if b not in touched]
            out.append(s)
        return out

    def _zeros(self, cleared: Sequence[Buffer]) -> list[Any]:
        found = []
        for b in cleared:
            axes = over(b.extents, self.names, "z")
            target = Access(b, tuple(r.at for r in axes))
            found.append(Statement(axes, [Store(target, const(0.0, b.dtype))]))
        return found


@dataclass(eq=False)
class Called(Adjoint):
    """What the derivative of a call reads, as it is behind the call."""

    regions: Sequence[Region] = ()

    def reads(self) -> list[Site]:
        """Sites of the regions."""
        return [replace(self.site.probe(x.access, AFTER), axes=x.axes) for x in self.regions]


def _touched(body: Sequence[Any]) -> set[Buffer]:
    return {s.access.buffer for s in sites(body)}


def active(
    found: Sequence[Site], wanted: Sequence[Buffer], outputs: Sequence[Buffer]
) -> set[Buffer]:
    """Buffers that depend on a wanted input and on which an output depends."""
    edges = {
        (leaf.access.buffer, s.access.buffer)
        for s in found
        if s.write and s.access.buffer.dtype not in (B1, *WHOLE)
        for leaf in s.store.value.loads
        if leaf.dtype != B1
    }

    def reached(start: Sequence[Buffer], backwards: bool) -> set[Buffer]:
        known = set(start)
        while True:
            new = {(a if backwards else b) for a, b in edges if (b if backwards else a) in known}
            if new <= known:
                return known
            known |= new

    return reached(wanted, False) & reached(outputs, True)
