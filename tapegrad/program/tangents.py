"""Forward mode: a program of statements becomes the program of its tangents.

The tangent of a statement is a statement over the same axes: each store of a value gets, for each direction, a store of its tangent into a
buffer beside the value's. It reads values and tangents from before the statement, so it stands in front; nothing is kept and nothing is
turned round. A gradient is a program of statements too: its tangent is the product of the Hessian and a direction, and the tangent of
that the next derivative. Residuals get tangents as any buffer does, truth values have none.

The tangent of a maximum or minimum over axes is the mean of the tangents of the elements that reach it, as `derivative` shares the
cotangent among them in equal parts.

Invariant: the tangent of a buffer is that of its content at each point of the program; a tangent meets a partial through `times`, so that
one of 0 stays 0 in the guarded form, however infinite the partial. Products of cotangents and partials (`strong`, `chosen`) are products
here too: each of their terms is 0 where one of its factors says that nothing flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .calls import Maker, Region, regions
from .cotangents import STEPS
from .decompositions import ROUTINES
from .expressions import B1, F8, Expr, cast, const, is_const, load, minus, node, nodes, plus, times
from .form import Access, Buffer, Loop, Program, Statement, Store, over, ranges, sites
from .form import rewritten as copied
from .grouping import without_dead
from .partials import chooses, partial
from .residuals import used


def tangent(
    program: Program, wanted: Sequence[Buffer], results: Sequence[Buffer], width: int = 1
) -> Program:
    """The program that computes the tangents of `results`, outputs of `program`, along `width` directions of the `wanted` inputs.

    Its inputs are those of `program`, then all tangents of the first direction, those of the next, and so on; its outputs likewise.
    What no tangent reads is left out of it, the values of the outputs among it.
    """
    return _Forward(program, wanted, results, width).program()


class _Forward:
    def __init__(
        self, program: Program, wanted: Sequence[Buffer], results: Sequence[Buffer], width: int
    ) -> None:
        """Prepare the tangents of `results` by the `wanted` inputs."""
        self.primal, self.names, self.width = program, program.names, width
        self.wanted, self.results = list(wanted), list(results)
        self.active = varying(program, wanted, results)
        self.dots: dict[tuple[Buffer, int], Buffer] = {}
        for k in range(width):
            for b in self.wanted:
                self._dot(b, k, "input")
            for b in self.results:
                self._dot(b, k, "output")

    def _dot(self, b: Buffer, direction: int, role: str = "temporary") -> Buffer:
        """The buffer of a buffer's tangent."""
        key = b, direction
        if key not in self.dots:
            self.dots[key] = Buffer(self.names(f"{b.name}_dot"), b.extents, b.dtype, role)
        return self.dots[key]

    def program(self) -> Program:
        """Values and tangents, without what no tangent needs."""
        p = self.primal
        idle = [
            self._nothing(self._dot(b, k))
            for k in range(self.width)
            for b in self.results
            if b not in self.active
        ]
        body = copied([*idle, *self._body(p.body)], self.names)
        directions = [self._dot(b, k) for k in range(self.width) for b in self.wanted]
        outputs = [self._dot(b, k) for k in range(self.width) for b in self.results]
        for b in p.outputs:
            b.role = "temporary"
        return without_dead(
            p.of(
                body,
                name=f"{p.name}_tangent",
                inputs=[*p.inputs, *directions],
                outputs=outputs,
                loops=[*p.loops, *ranges(p.body)],
            )
        )

    def _nothing(self, b: Buffer) -> Statement:
        axes = over(b.extents, self.names, "z")
        return Statement(axes, [Store(Access(b, tuple(r.at for r in axes)), const(0.0, b.dtype))])

    def _body(self, body: Sequence[Any]) -> list[Any]:
        """Statements with their tangents."""
        out: list[Any] = []
        for s in body:
            if isinstance(s, Loop) and s.call:
                out += [s, *self._called(s)]
            elif isinstance(s, Loop):
                out.append(s.of(self._body(s.body)))
            elif s.stores[0].mode in ("max=", "min="):
                out += [s, *self._extreme(s)]
            else:
                stores = [t for k in range(self.width) for t in self._stores(s.stores, k)]
                out += [Statement(s.axes, stores), s] if stores else [s]
        return out

    def _called(self, s: Loop) -> list[Any]:
        """Behind a call, which overwrites nothing that it reads: the tangents of its result, by its rule."""
        operands, result = regions(s)
        made = Maker(self.names)
        for k in range(self.width if result.access.buffer in self.active else 0):

            def dot(x: Region, k: int = k) -> Region | None:
                moves = x.access.buffer in self.active
                return x.of(lambda a: self._along(a, k)) if moves else None

            out = result.of(lambda a, k=k: self._along(a, k))  # type: ignore[misc]
            ROUTINES[s.call].along(made, operands, result, dot, out)
        return made.body

    def _stores(self, stores: Sequence[Store], direction: int) -> Iterator[Store]:
        """The tangents of what a statement stores, along one direction."""
        moved = [s for s in stores if s.target.buffer in self.active]
        values = tangents([s.value for s in moved], self._seed(direction))
        for s, value in zip(moved, values, strict=True):
            if s.mode == "=" or not is_const(value, 0.0):
                own = self._along(s.target, direction)
                yield Store(own, cast(value, own.buffer.dtype), s.mode)

    def _along(self, a: Access, direction: int) -> Access:
        return Access(self._dot(a.buffer, direction), a.index)

    def _seed(self, direction: int) -> Callable[[Access], Expr | None]:
        return lambda a: load(self._along(a, direction)) if a.buffer in self.active else None

    def _extreme(self, s: Statement) -> list[Any]:
        """Behind a maximum or minimum over axes: the mean of the tangents of the elements that reach it."""
        (t,) = s.stores
        if t.target.buffer not in self.active:
            return []
        axes = used(t, s.axes)
        reached = node("equal", t.value, cast(load(t.target), t.value.dtype))
        count = Access(Buffer(self.names("count"), t.target.buffer.extents), t.target.index)
        zeros, sums, means = [Store(count, const(0.0))], [], []
        sums.append(Store(count, node("where", reached, const(1.0), const(0.0)), "+="))
        for k in range(self.width):
            own = self._along(t.target, k)
            nothing = const(0.0, own.buffer.dtype)
            (value,) = tangents([t.value], self._seed(k))
            term = node("where", reached, cast(value, nothing.dtype), nothing)
            zeros.append(Store(own, nothing))
            sums.append(Store(own, term, "+="))
            number = node("maximum", load(count), const(1.0))
            mean = node("divide", cast(load(own), F8), number)
            means.append(Store(own, cast(mean, nothing.dtype)))
        return [Statement(axes, zeros), Statement(s.axes, sums), Statement(axes, means)]


def tangents(values: Sequence[Expr], seed: Callable[[Access], Expr | None]) -> list[Expr]:
    """The tangents of formulas: the chain rule within a statement, upwards. `seed` is the tangent of what is read, None for none."""
    found: dict[Expr, Expr] = {}
    for n in nodes(values):
        total: Expr | None = None
        if n.op == "load":
            total = seed(n.access)
        elif n.op == "where":
            sides = [found.get(a, const(0.0, n.dtype)) for a in n.args[1:]]
            total = node("where", n.args[0], *sides) if sides[0] is not sides[1] else sides[0]
        elif n.op not in STEPS and n.dtype != B1:
            for k, a in enumerate(n.args):
                if a in found:
                    term = _term(n, k, found[a])
                    total = term if total is None else plus(total, term)
        if total is not None and not is_const(total, 0.0):
            found[n] = total
    return [found.get(v, const(0.0, v.dtype)) for v in values]


def _term(n: Expr, k: int, t: Expr) -> Expr:
    """What the tangent of a node's operand k adds to the node's."""
    if n.op == "cast":
        return cast(t, n.dtype)
    if n.op == "negative":
        return minus(t)
    if n.op in ("strong", "chosen"):
        # `strong(g, p)` is a choice of g == 0 for p: its declaration says so (`ops.elementary.strong_product`).
        return times(t, n.args[1 - k], n.op == "chosen" or k == 1)
    return times(t, partial(n, k, list(n.args), n), chooses(n, k))


def varying(program: Program, wanted: Sequence[Buffer], results: Sequence[Buffer]) -> set[Buffer]:
    """Buffers whose tangents a tangent of the results is made from, and the results that have one."""
    carried = {
        (leaf.access.buffer, s.access.buffer)
        for s in sites(program.body)
        if s.write and s.access.buffer.dtype != B1
        for leaf in _carrying(s.store.value)
    }

    def reached(start: Sequence[Buffer], edges: set[tuple[Buffer, Buffer]]) -> set[Buffer]:
        known = set(start)
        while new := {b for a, b in edges if a in known} - known:
            known |= new
        return known

    back = reached(results, {(b, a) for a, b in carried})
    return reached(wanted, carried) & back


def _carrying(value: Expr) -> list[Expr]:
    """The loads through which a tangent comes into a formula."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    todo = [value]
    while todo:
        n = todo.pop()
        if n in seen or n.op in STEPS or n.dtype == B1:
            continue
        seen.add(n)
        if n.op == "load":
            found[n] = None
        else:
            todo += n.args
    return list(found)


__all__ = ["tangent", "tangents", "varying"]
