"""Sharing: quotients and elementary functions that several loops in a row compute of the same numbers are computed by the first loop,
and kept in memory for the others. So the three neighbours that the derivative of a flux limiter adds to have their partials once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..expressions import B1, Expr, is_dear, load, nodes, rewritten
from ..expressions import renamed as in_values
from ..form import Access, Buffer, Loop, Store
from .registers import parallel_in_registers
from .scope import HERE, Path, Scope, innermost, opened


def shared(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    out: list[Any] = []
    row: list[Loop] = []
    for s in body:
        if row and not (_is_parallel(s, scope, path) and _bounds(s) == _bounds(row[0])):
            out += _once(row, scope)
            row = []
        if _is_parallel(s, scope, path):
            row.append(s)
        else:
            out.append(s.of(shared(s.body, scope, (*path, s.range))) if opened(s) else s)
    return out + _once(row, scope)


def _is_parallel(s: Any, scope: Scope, path: Path) -> bool:
    return opened(s) and innermost(s) and not s.until and parallel_in_registers(s, path, scope)


def _bounds(s: Loop) -> Any:
    return s.range.lo, s.range.hi, s.range.step


def _once(row: list[Loop], scope: Scope) -> list[Any]:
    """Parallel loops over one range, where the first one keeps what is dear and others compute, too."""
    if len(row) < 2 or not (row[0].range.hi - row[0].range.lo).names() <= scope.sizes:
        return list(row)
    r = row[0].range
    values = [in_values([s.value for s in x.body], {x.range.var: HERE}) for x in row]
    common = _common(values, {s.target.buffer for x in row for s in x.body})
    kept: dict[Expr, Access] = {}
    waiting, seen = [v for some in values for v in some], set[Expr]()
    while waiting:
        n = waiting.pop()
        if n in common:
            buffer = Buffer(scope.names("shared"), (r.hi - r.lo,), n.dtype)
            kept.setdefault(n, Access(buffer, (HERE - r.lo,)))
        elif n not in seen:
            seen.add(n)
            waiting += [a for a in n.args if isinstance(a, Expr)]
    if not kept:
        return list(row)
    instead = {n: load(a) for n, a in kept.items()}
    out = []
    for x, some in zip(row, values, strict=True):
        own = in_values(rewritten(some, lambda n: None, instead), {"here": x.range.at})
        stores = [Store(s.target, v, s.mode) for s, v in zip(x.body, own, strict=True)]
        out.append(x.of(stores))
    first = {"here": r.at}
    before = [Store(a.replaced(first), in_values([n], first)[0]) for n, a in kept.items()]
    return [out[0].of(before + out[0].body), *out[1:]]


def _common(values: list[list[Expr]], written: set[Buffer]) -> set[Expr]:
    """Nodes with a quotient or an elementary function that are in the values of several loops, which change nothing that they read."""
    found = Counter(n for some in values for n in nodes(some))
    common: set[Expr] = set()
    for n, count in found.items():
        dear = n.op == "divide" or is_dear(n) or any(a in common for a in n.args)
        read = [leaf.access for leaf in n.loads]
        fixed = not any(a.buffer in written or a.buffer.is_register for a in read)
        moves = any("here" in a.names() for a in read)
        if count > 1 and dear and fixed and moves and n.dtype != B1:
            common.add(n)
    return common
