"""Straightening: a loop that may run either way runs upwards. Proof: an innermost loop whose iterations are independent says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..form import Loop
from .scope import Path, Scope, carried, independent, opened, private, renamed


def straightened(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    out: list[Any] = []
    for s in body:
        if not opened(s):
            out.append(s)
            continue
        if s.range.step < 0 and not carried(s, path, scope, False, private(s) & scope.only_in(s)):
            new = replace(s.range, var=scope.names(s.range.var.split(".")[0]), step=1)
            s = Loop(new, renamed(s.body, {s.range.var: new.at}))
        out.append(s.of(straightened(s.body, scope, (*path, s.range))))
    return out


def proved(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """The last pass: nothing may be moved behind it."""
    return [
        replace(s.of(proved(s.body, scope, (*path, s.range))), parallel=independent(s, path, scope))
        if isinstance(s, Loop) and not s.call
        else s
        for s in body
    ]
