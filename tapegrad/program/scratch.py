"""Scratch arrays: memory that each iteration of a loop writes anew before it reads it is memory of that loop alone.

Programs in loops make an array once and write it anew in every iteration, in one loop or in several. What an iteration reads of it is then
never what stood there before: each such loop gets a buffer of its own, and what was written in front of the loops is dropped. So the
reverse sweep finds a buffer of one iteration (`residuals`) where it would else keep every element that is overwritten.

Invariant: a buffer is taken apart only if every read of it lies in a loop whose iterations write it whole first, in one store or several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .expressions import moved
from .form import Access, Buffer, Loop, Program, Range, Site, Statement, Store, sites
from .order import Order
from .residuals import covering


def apart(program: Program) -> Program:
    """The program with a buffer for each loop that writes a temporary anew in every iteration, without what such loops never read."""
    order = Order(program.assumptions, program.sizes)
    touching: dict[Buffer, list[Site]] = {}
    for s in sites(program.body):
        touching.setdefault(s.access.buffer, []).append(s)
    dead: set[Store] = set()
    own: dict[Store, dict[Buffer, Buffer]] = {}
    for b, those in touching.items():
        if b.role != "temporary" or any(isinstance(s.owner, Loop) for s in those):
            continue
        loose, loops = _split(those, 0, order)
        if not loops or any(not s.write for s in loose):
            continue
        dead |= {s.store for s in loose}
        for part in loops[1:]:
            new = Buffer(program.names(b.name), b.extents, b.dtype)
            for s in part:
                own.setdefault(s.store, {})[b] = new
    return program.of(_body(program.body, dead, own)) if dead or own else program


def _split(those: Sequence[Site], depth: int, order: Order) -> tuple[list[Site], list[list[Site]]]:
    """Accesses of one buffer within so many loops: those outside of loops that write it anew, and those of each such loop."""
    loose = [s for s in those if len(s.path) == depth]
    loops: list[list[Site]] = []
    for part in _by_loop([s for s in those if len(s.path) > depth], depth):
        if covering(part, depth + 1, order):
            loops.append(part)
            continue
        outside, inside = _split(part, depth + 1, order)
        loose += outside
        loops += inside
    return loose, loops


def _by_loop(those: Sequence[Site], depth: int) -> Iterator[list[Site]]:
    groups: dict[Range, list[Site]] = {}
    for s in those:
        groups.setdefault(s.path[depth], []).append(s)
    yield from groups.values()


def _body(body: list[Any], dead: set[Store], own: dict[Store, dict[Buffer, Buffer]]) -> list[Any]:
    """A body without dead stores, whose other stores have the buffers of their loops."""
    out: list[Any] = []
    for s in body:
        if isinstance(s, Loop):
            inner = _body(s.body, dead, own)
            out += [s.of(inner)] if inner else []
        elif stores := [_owning(t, own.get(t)) for t in s.stores if t not in dead]:
            out.append(Statement(s.axes, stores, s.identity))
    return out


def _owning(t: Store, own: dict[Buffer, Buffer] | None) -> Store:
    if not own:
        return t

    def to(a: Access) -> Access:
        return Access(own.get(a.buffer, a.buffer), a.index)

    return Store(to(t.target), moved([t.value], to)[0], t.mode)
