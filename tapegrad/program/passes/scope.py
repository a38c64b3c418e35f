"""What the passes ask: accesses of parts of a body, which of them clash, and what must not be put in another order.

Invariant: nothing is remembered from one pass to the next but answers about accesses and bounds, which stay true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..affine import affine
from ..form import Access, Buffer, Loop, Program, Range, Site, Store, sites
from ..order import Order

Path = tuple[Range, ...]

HERE = affine("here")
"""The variable of a loop, in the place of its name, where loops of different names are compared."""


class Scope:
    """A program while passes rewrite it."""

    def __init__(self, program: Program) -> None:
        self.order = Order(program.assumptions, program.sizes)
        self.names, self.sizes = program.names, set(program.sizes)
        self._answers: dict[Any, tuple[Loop, Any]] = {}
        self.count(program.body)

    def remembered(self, ask: Callable[..., Any], loop: Loop, path: Path) -> Any:
        """An answer about a loop, which never changes as loops are made anew where anything in them changes."""
        key = ask, id(loop), path
        if key not in self._answers:
            self._answers[key] = loop, ask(loop, path, self)
        return self._answers[key][1]

    def count(self, body: Sequence[Any]) -> None:
        """Where each buffer is used; to be told of a new body before `only_in` is asked."""
        self.uses = Counter(s.access.buffer for s in sites(body))

    def only_in(self, loop: Loop) -> set[Buffer]:
        """Buffers that nothing outside the loop touches, so that their last values die with it."""
        here = Counter(s.access.buffer for s in sites(loop.body))
        return {b for b, count in here.items() if self.uses[b] == count}


def found(body: Sequence[Any], path: Path, at: int = 0) -> list[Site]:
    """The accesses of some parts of one body, `at` being the position of the first."""
    return sites(body, path, (0,) * len(path), at)


def updates(s: Site) -> bool:
    """The access is the element that its store adds to, which the store reads for nothing else."""
    return (
        s.store.mode != "="
        and s.access == s.store.target
        and all(leaf.access != s.access for leaf in s.store.value.loads)
    )


def commute(a: Site, b: Site) -> bool:
    """Two additions to one element may change places, and so may two maxima of it."""
    return a.store.mode == b.store.mode and updates(a) and updates(b)


def clashes(
    first: Sequence[Site], second: Sequence[Site], additions: bool = False
) -> Iterator[tuple[Site, Site]]:
    """Pairs on one buffer of which one writes, but for those that commute (unless `additions` count, too)."""
    by_buffer: dict[Buffer, list[tuple[Site, bool]]] = {}
    for b in second:
        by_buffer.setdefault(b.access.buffer, []).append((b, not additions and updates(b)))
    for a in first:
        others = by_buffer.get(a.access.buffer, ())
        adds = bool(others) and not additions and updates(a)
        for b, also in others:
            commuting = adds and also and a.store.mode == b.store.mode
            if (a.write or b.write) and not commuting:
                yield a, b


def reordered(order: Order, first: Sequence[Site], second: Sequence[Site], depth: int) -> bool:
    """May something of `second` happen, within the loops they share, before what it clashes with in `first`?"""
    return any(order.precedes(b, a, depth) for a, b in clashes(first, second))


def meeting(order: Order, first: Sequence[Site], second: Sequence[Site], depth: int) -> bool:
    """May they touch one element in one iteration of the loops around?"""
    return any(order.meet(a, b, depth) for a, b in clashes(first, second))


def opened(s: Any) -> bool:
    """Whether a part of a body is a loop that passes may change."""
    return isinstance(s, Loop) and not s.closed


def innermost(s: Any) -> bool:
    return isinstance(s, Loop) and not any(isinstance(x, Loop) for x in s.body)


def in_innermost(
    body: list[Any],
    scope: Scope,
    path: Path,
    rewrite: Callable[[Loop, Path, Scope], list[Any]],
) -> list[Any]:
    """The body, where each innermost loop that passes may change is what `rewrite` makes of it."""
    out: list[Any] = []
    for s in body:
        if not opened(s):
            out.append(s)
        elif innermost(s):
            out += rewrite(s, path, scope)
        else:
            out.append(s.of(in_innermost(s.body, scope, (*path, s.range), rewrite)))
    return out


def private(loop: Loop) -> set[Buffer]:
    """Registers that each iteration writes before it reads them: not in a loop within, which may be empty."""
    seen: dict[Buffer, bool] = {}
    for s in sites(loop.body):
        if s.access.buffer.is_register:
            seen.setdefault(s.access.buffer, s.write and s.store.mode == "=" and not s.path)
    return {b for b, first in seen.items() if first}


def carried(
    loop: Loop,
    path: Path,
    scope: Scope,
    additions: bool,
    apart: set[Buffer] | frozenset[Buffer] = frozenset(),
) -> bool:
    """May one iteration touch what another one writes?"""
    every = [s for s in found(loop.body, (*path, loop.range)) if s.access.buffer not in apart]
    kinds = {
        (s.access, s.write, s.path, not additions and (s.store.mode, updates(s))): s for s in every
    }
    some = list(kinds.values())
    depth, step = len(path), loop.range.step
    return any(scope.order.meet(a, b, depth, step) for a, b in clashes(some, some, additions))


def sums(loop: Loop) -> set[Buffer]:
    """Registers that the loop only adds to, or only takes maxima or minima of: they are gathered in any order."""
    users: dict[Buffer, set[str]] = {}
    for s in found(loop.body, ()):
        if s.access.buffer.is_register:
            own = s.access == s.store.target
            reads = not own or any(leaf.access == s.access for leaf in s.store.value.loads)
            users.setdefault(s.access.buffer, set()).add("read" if reads else s.store.mode)
    return {b for b, modes in users.items() if modes in ({"+="}, {"max="}, {"min="})}


def independent(loop: Loop, path: Path, scope: Scope) -> bool:
    """Whether the iterations of an innermost loop may run in any order, and at once."""
    if loop.until is not None:
        return False
    return innermost(loop) and not carried(loop, path, scope, True, private(loop) | sums(loop))


def moved(body: Sequence[Any], to: Callable[[Access], Access]) -> list[Any]:
    """The body with other accesses."""
    from ..expressions import moved as in_values

    return [
        s.of(moved(s.body, to))
        if isinstance(s, Loop)
        else Store(to(s.target), in_values([s.value], to)[0], s.mode)
        for s in body
    ]


def renamed(body: Sequence[Any], values: dict[str, Any]) -> list[Any]:
    """The body with loop variables replaced; its own loops keep their variables."""
    from ..expressions import renamed as in_values

    out: list[Any] = []
    for s in body:
        if isinstance(s, Loop):
            r = s.range
            new = replace(r, lo=r.lo.replaced(values), hi=r.hi.replaced(values))
            until = None if s.until is None else s.until.replaced(lambda a: a, values)
            out.append(replace(s.of(renamed(s.body, values)), range=new, until=until))
        else:
            (value,) = in_values([s.value], values)
            out.append(Store(s.target.replaced(values), value, s.mode))
    return out
