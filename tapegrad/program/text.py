"""The form as text for people: one statement or store a line, loops indented, what is assumed of the sizes at the top."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .form import Buffer, Loop, Program, Range, Statement, Store, buffers


def text(program: Program) -> str:
    """A program, its buffers and its assumptions."""
    head = [f"program {program.name}({', '.join(map(_declared, program.inputs))})"]
    head += [f"    returns {_declared(b)}" for b in program.outputs]
    head += [
        f"    with {_declared(b)}" for b in buffers(program) if b.role == "temporary" and b.extents
    ]
    head += [f"    where {claim} >= 0" for claim in program.assumptions]
    return "\n".join([*head, *_lines(program.body, "    ")])


def _declared(b: Buffer) -> str:
    dtype = {"f8": "", "f4": ": float32", "b1": ": bool"}[b.dtype]
    return b.name + (f"[{', '.join(map(str, b.extents))}]" if b.extents else "") + dtype


def _lines(body: list[Any], indent: str) -> Iterator[str]:
    for s in body:
        if isinstance(s, Loop):
            yield f"{indent}for {_range(s.range)}{', in parallel' if s.parallel else ''}:"
            yield from _lines(s.body, indent + "    ")
        elif isinstance(s, Statement):
            where = f"  for {', '.join(map(_range, s.axes))}" if s.axes else ""
            yield f"{indent}{'; '.join(map(_store, s.stores))}{where}"
        else:
            yield indent + _store(s)


def _range(r: Range) -> str:
    return f"{r.var} in {r.lo} .. {r.hi}{' downwards' if r.step < 0 else ''}"


def _store(s: Store) -> str:
    return f"{s.target} {s.mode} {s.value}"
