"""Merged loops: each pass goes back as soon as it ran.

A loop that adds up terms (`s += f(x[i])`) hands nothing from pass to pass but its sums, and a sum's cotangent is the same at every pass.
If the code behind the loop is linear, this cotangent is known before the loop runs: `return 0.5 * s / n` does not read `s`. Then the
reverse of that code runs first, and one loop does the rest: forward and reverse of a pass, then the next pass. No value is kept longer
than a pass, and the data is read once. Passes may themselves end in such a loop.

Data: blocks of the tree, with lines that were analysed and recorded for one pass alone. Invariant: a merged loop was shown to give the same
cotangents, up to the order in which they are added. No value is restored or overwritten that another pass, the code behind, or the reverse
of the code before reads; no cotangent arrives late. All other loops stay as two loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import chunks
from .inference import is_float
from .tree import Loop, Node, Op, Seg, bound, operations, target

if TYPE_CHECKING:
    from .flow import Flow, Line


def place(nodes: list[Node]) -> int:
    """Where a block has the loop that may be merged: the last node that is no straight line; -1 if that is none."""
    k = max((k for k, node in enumerate(nodes) if not isinstance(node, Seg)), default=-1)
    if k < 0:
        return -1
    loop = nodes[k]
    plain = isinstance(loop, Loop) and loop.variable and not loop.snapshots
    return k if plain else -1


def fits(
    flow: Flow,
    loop: Loop,
    tail: list[Node],
    lines: tuple[list[Line], list[Line]],
    needed: set[str],
    handed: set[str],
) -> bool:
    """Whether the passes of a loop can go back at once.

    `lines` are those of the loop and of the `tail` behind it, recorded as they would be merged. `needed` is what the reverse of all
    that stands before asks for, `handed` what later passes or code behind the loop may read.
    """
    ops = list(operations(loop.body))
    behind = list(operations(tail))
    inner = {node.variable for node in chunks.loops(loop.body) if node.variable}
    binds = {n for op in ops for n in op.out} | inner
    changed = set[str]().union(*(line.changes() | line.holders() for line in lines[0])) | inner
    written = set[str]().union(*(line.writes for line in lines[0]))
    if needed & (binds | written | {loop.variable}) or changed & handed:
        return False
    sums = 0
    for name in binds & handed:
        if flow.array(name):
            return False
        if flow.active(name):
            if not (is_float(flow.types[name]) and chunks.is_sum(name, loop.body)):
                return False
            sums += 1
    return (
        sums > 0
        and _known_before(flow, binds, written, behind, lines[1])
        and all(_stays(flow, root, loop, binds, behind, lines[0]) for root in written)
    )


def _known_before(
    flow: Flow, binds: set[str], written: set[str], behind: list[Op], lines: list[Line]
) -> bool:
    """Whether the reverse of what stands behind the loop asks for nothing that the loop, or itself, computes."""
    later = binds | bound(behind)
    roots = {flow.root(n) for n in later if flow.array(n)} | written
    roots = roots.union(
        *(line.writes for line in lines)
    )  # of any line: the reverse of all runs first
    for line in lines:
        if line.keeps or line.keeps_memory or line.moved or line.exit:
            return False
        if line.entry & (later | roots):
            return False
    return not any(flow.array(n) and flow.active(n) for n in bound(behind))


def _stays(
    flow: Flow, root: str, loop: Loop, binds: set[str], behind: list[Op], lines: list[Line]
) -> bool:
    """Whether memory that passes write is theirs alone, or carries no derivative and is not put back."""
    outside = [n for n in flow.named if flow.array(n) and flow.root(n) == root and n not in binds]
    if not outside:
        return True
    if not any(flow.active(n) for n in flow.named if flow.array(n) and flow.root(n) == root):
        return not any(root in line.keeps_memory for line in lines)
    return _scratch(flow, root, loop, behind)


def _scratch(flow: Flow, root: str, loop: Loop, behind: list[Op]) -> bool:
    """Whether each pass writes every element of an array before it reads it, and nobody reads it behind the loop.

    Shown for vectors: the first loop of a pass that touches it stores at its own number, and all others have the same bounds.
    """
    names = {n for n in flow.named if flow.array(n) and flow.root(n) == root}
    if names & {*flow.program.results, *(n for op in behind for n in op.variables)}:
        return False
    ops = list(operations(loop.body))
    used = names & {n for op in ops for n in (*op.variables, *op.out)}
    made = {n for op in ops for n in op.out} | {n.variable for n in chunks.loops(loop.body)}
    if len(used) != 1 or used & made:
        return False
    (name,) = used
    if getattr(flow.types[name], "ndim", 0) != 1:
        return False
    bounds: tuple[object, ...] | None = None
    for node in loop.body:
        if name not in _touched([node]):
            continue
        if not isinstance(node, Loop) or not node.variable or node.stop or node.head:
            return False
        if any(isinstance(b, str) and b in made for b in node.bounds):
            return False
        if bounds is None:
            bounds = node.bounds
            if not _fills(node, name):
                return False
        if node.bounds != bounds or not _own(node, name, flow):
            return False
    return bounds is not None


def _touched(nodes: Iterable[Node]) -> set[str]:
    return {n for op in operations(nodes) for n in (*op.variables, *op.out)}


def _fills(loop: Loop, name: str) -> bool:
    """Whether every pass stores its element before it reads it."""
    for node in loop.body:
        if not isinstance(node, Seg):
            if name in _touched([node]):
                return False
            continue
        for op in node.ops:
            if op.kind == "store" and op.args[0] == name and op.args[1] != name:
                return True
            if name in _touched([Seg([op])]):
                return False
    return False


def _own(loop: Loop, name: str, flow: Flow) -> bool:
    """Whether a loop touches an array at its own number only."""
    if any(loop.variable in op.out for op in operations(loop.body)):
        return False
    if any(node.variable == loop.variable for node in chunks.loops(loop.body)):
        return False
    for op in operations(loop.body):
        if name not in op.variables:
            continue
        if op.kind not in ("load", "store", "acc") or op.args[0] != name:
            return False
        if name in op.variables[1:] or not (op.kind == "load" or flow.element(op)):
            return False
        if target(op) != f"{name}[{loop.variable}]":
            return False
    return True
