"""The form as text for people: one statement or store a line, loops indented, what is assumed of the sizes at the top.

A formula that stands at several places of a statement has a name, `e1` or so, in a line before it: a statement prints in as many words as
it has nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .expressions import Expr, nodes, spelled
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
    dtype = {
        "f8": "", "f4": ": float32", "b1": ": bool", "i8": ": int64", "i4": ": int32",
    }[b.dtype]  # fmt: skip
    return b.name + (f"[{', '.join(map(str, b.extents))}]" if b.extents else "") + dtype


def _lines(body: list[Any], indent: str) -> Iterator[str]:
    """Loops, statements and stores, a line each, further in for each loop around."""
    for s in body:
        if isinstance(s, Loop):
            if s.until is not None:
                yield f"{indent}while {s.until.go}, for {_range(s.range)}:"
            else:
                word = (
                    ", a product of matrices"
                    if s.product
                    else f", a call of {s.call}"
                    if s.call
                    else ", in parallel"
                    if s.parallel
                    else ""
                )
                yield f"{indent}for {_range(s.range)}{word}:"
            yield from _lines(s.body, indent + "    ")
        elif isinstance(s, Statement):
            where = f"  for {', '.join(map(_range, s.axes))}" if s.axes else ""
            *named, last = _stores(s.stores)
            yield from (indent + line for line in named)
            yield f"{indent}{last}{where}"
        else:
            yield from (indent + line for line in _stores([s]))


def _range(r: Range) -> str:
    return f"{r.var} in {r.lo} .. {r.hi}{' downwards' if r.step < 0 else ''}"


def _stores(stores: list[Store]) -> Iterator[str]:
    """Named formulas, a line each, then the stores in one line."""
    roots = [s.value for s in stores]
    every = nodes(roots)
    uses = Counter(a for n in every for a in n.args if isinstance(a, Expr))
    uses.update(roots)
    texts: dict[Expr, str] = {}
    count = 0
    for n in every:
        texts[n] = spelled(n, texts)
        if uses[n] > 1 and any(isinstance(a, Expr) for a in n.args):
            count += 1
            yield f"e{count} = {texts[n]}"
            texts[n] = f"e{count}"
    yield "; ".join(f"{s.target} {s.mode} {texts[s.value]}" for s in stores)
