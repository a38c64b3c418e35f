"""Rotation: zeros with which each iteration of a loop leaves a region are written as the next one begins, next to what is added there.

The reverse sweep of a step in place adds to the cotangents of a region and, last of all, sets those of what was overwritten to zero. Where
they are zero before the loop too, an iteration may set them to zero first. Then sums become assignments, in loops that fusion aligns.
"""

from __future__ import annotations

from typing import Any

from ..expressions import is_const
from ..form import Buffer, Loop, Range, Store, rewritten
from ..residuals import covers
from .fusion import is_long
from .scope import Path, Scope, found, opened


def rotated(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Move zeros from the end of long loops to where their iterations begin, and once more behind the loops."""
    out: list[Any] = []
    for s in body:
        if not opened(s):
            out.append(s)
            continue
        s = s.of(rotated(s.body, scope, (*path, s.range)))
        inside = (*path, s.range)
        moved = [
            z
            for z in s.body
            if isinstance(z, Loop)
            and (buffer := _zeros(z)) is not None
            and _ends_with(s, z, buffer, path)
            and _is_zero(out, buffer, path)
            and is_long(z, scope, inside)
        ]
        if moved:
            s = s.of([*moved, *(x for x in s.body if x not in moved)])
        out += [s, *rewritten(moved, scope.names)]
    return out


def _zeros(s: Any) -> Buffer | None:
    """The temporary of which a nest of loops sets elements to zero and does nothing else."""
    while opened(s) and len(s.body) == 1 and s.until is None:
        s = s.body[0]
    zero = isinstance(s, Store) and s.mode == "=" and is_const(s.value, 0.0)
    return s.target.buffer if zero and s.target.buffer.role == "temporary" else None


def _ends_with(loop: Loop, z: Loop, buffer: Buffer, path: Path) -> bool:
    """Whether a part of a loop sets the same elements of a buffer to zero in each iteration, behind all else that touches the buffer."""
    if loop.until is not None:
        return False
    late = loop.body[loop.body.index(z) + 1 :]
    if any(x.access.buffer is buffer for x in found(late, path)):
        return False
    names = {n for r in _ranges(z) for b in (r.lo, r.hi) for n in b.names()}
    names |= {n for x in found([z], path) for n in x.access.names()}
    return loop.range.var not in names


def _ranges(s: Any) -> list[Range]:
    return [s.range, *_ranges(s.body[0])] if isinstance(s, Loop) else []


def _is_zero(before: list[Any], buffer: Buffer, path: Path) -> bool:
    """Whether what last touches a buffer sets all of it to zero."""
    for s in reversed(before):
        if mine := [x for x in found([s], path) if x.access.buffer is buffer]:
            return _zeros(s) is buffer and covers(mine[-1], len(path))
    return False
