"""Forwarding: where a loop only copies elements of one buffer into another, what follows reads them where they came from.

So the reverse sweep reads rows of a residual where they lie, rather than in the array into which it puts them back, and what adds up
their products over all steps is seen to be a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..affine import Affine
from ..expressions import B1, Expr, load, rewritten
from ..form import Access, Loop, Range, Store
from .scope import Path, Scope, found, opened


@dataclass(frozen=True, slots=True)
class _Copy:
    """`target = source` over some loops, one for each index of the target, which is its variable and a number."""

    target: Access
    source: Access
    ranges: dict[str, Range]

    def of(self, a: Access, path: Path, scope: Scope) -> Access | None:
        """Where an element of the target came from; None where it is not proved to be one that was copied."""
        values: dict[str, Affine] = {}
        for i, j in zip(self.target.index, a.index, strict=True):
            ((var, _),) = i.terms
            r, at = self.ranges[var], j - i.const
            values[var] = at
            if not (
                scope.order.proves(at - r.lo, path) and scope.order.proves(r.hi - at - 1, path)
            ):
                return None
        return self.source.replaced(values)


def forwarded(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Let reads go where the elements were copied from, until one of both buffers is written to again."""
    out: list[Any] = []
    copies: list[_Copy] = []
    for s in body:
        if opened(s):
            s = s.of(forwarded(s.body, scope, (*path, s.range)))
        written = {x.access.buffer for x in found([s], path) if x.write}
        known = [c for c in copies if not written & {c.target.buffer, c.source.buffer}]
        if known:
            s = _reading(s, known, path, scope)
        copies = [*known, *_copies(s)]
        out.append(s)
    return out


def _copies(s: Any) -> Iterator[_Copy]:
    """The copy that a nest is, if it is one."""
    ranges: dict[str, Range] = {}
    while opened(s) and len(s.body) == 1 and s.until is None:
        ranges[s.range.var] = s.range
        s = s.body[0]
    if not isinstance(s, Store) or s.mode != "=" or s.value.op != "load" or not ranges:
        return
    target, source = s.target, s.value.access
    plain = all(len(i.terms) == 1 and i.terms[0][1] == 1 for i in target.index)
    variables = [i.terms[0][0] for i in target.index] if plain else []
    bounded = any(n in ranges for r in ranges.values() for b in (r.lo, r.hi) for n in b.names())
    if (
        len(variables) == len(ranges)
        and set(variables) == set(ranges)
        and not bounded
        and target.buffer.role == "temporary"
        and target.buffer is not source.buffer
        and target.buffer.dtype == source.buffer.dtype != B1
    ):
        yield _Copy(target, source, ranges)


def _reading(s: Any, copies: list[_Copy], path: Path, scope: Scope) -> Any:
    """A part of a body that writes to none of the copies' buffers, with other reads."""
    if isinstance(s, Loop):
        if s.closed or s.until is not None:
            return s
        return s.of([_reading(x, copies, (*path, s.range), scope) for x in s.body])

    def change(n: Expr) -> Expr | None:
        for c in copies if n.op == "load" else ():
            if n.access.buffer is c.target.buffer:
                other = c.of(n.access, path, scope)
                return None if other is None else load(other)
        return None

    (value,) = rewritten([s.value], change)
    return s if value is s.value else Store(s.target, value, s.mode)
