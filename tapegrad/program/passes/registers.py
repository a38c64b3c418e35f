"""Promotion: what an innermost loop adds to one element is added in a register; what it reads of one element is read once."""

from __future__ import annotations

from typing import Any

from ..expressions import B1, Expr, const, load, rewritten
from ..form import Access, Buffer, Loop, Store
from ..residuals import inside
from .scope import Path, Scope, commute, found, in_innermost, independent

START = {"+=": 0.0, "max=": -float("inf"), "min=": float("inf")}


def promoted(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    return in_innermost(body, scope, path, with_registers)


def with_registers(loop: Loop, path: Path, scope: Scope) -> list[Any]:
    """The loop with its unchanging elements in registers, between what loads and what stores them."""
    before: list[Any] = []
    after: list[Any] = []
    sites = found(loop.body, (*path, loop.range))
    depth, var = len(path), loop.range.var
    fixed = dict.fromkeys(
        s.access
        for s in sites
        if not s.access.buffer.is_register
        and var not in s.access.names()
        and s.access.buffer.dtype != B1
    )
    replaced: dict[Access, Access] = {}
    for a in fixed:
        mine = [s for s in sites if s.access == a]
        written = any(m.write for m in mine)
        others = [
            s
            for s in sites
            if s.access != a and s.access.buffer is a.buffer and (s.write or written)
        ]
        modes = {s.store.mode for s in mine if s.store.target == a}
        reads = any(s.store.target != a for s in mine) or any(
            a == x.access for s in mine for x in s.store.value.loads
        )
        clash = any(
            not commute(s, m) and scope.order.meet(s, m, depth) for s in others for m in mine
        )
        if clash or not inside(a, path, scope.order):
            continue
        if modes and (reads or len(modes) > 1 or modes == {"="}):
            continue
        dtype = a.buffer.dtype
        register = replaced[a] = Access(Buffer(scope.names("reg"), (), dtype))
        if modes:
            (mode,) = modes
            before.append(Store(register, const(START[mode], dtype)))
            after.append(Store(a, load(register), mode))
        else:
            before.append(Store(register, load(a)))

    def change(n: Expr) -> Expr | None:
        return load(replaced[n.access]) if n.op == "load" and n.access in replaced else None

    if not replaced:
        return [loop]
    body = [
        Store(replaced.get(s.target, s.target), rewritten([s.value], change)[0], s.mode)
        for s in loop.body
    ]
    return [*before, loop.of(body), *after]


def parallel_in_registers(loop: Loop, path: Path, scope: Scope) -> bool:
    """Whether a loop is parallel once what it adds to an unchanging element is added in a register."""
    return any(
        independent(x, path, scope)
        for x in with_registers(loop, path, scope)
        if isinstance(x, Loop)
    )
