"""Emission: LLVM IR of a schedule, with explicit vectors.

`Body(schedule, lanes).run()` writes the inside of one function of pointers (arguments, constants, outputs, scratch) whose loops are the
schedule's groups and nests. A group's nests run block by block over its rows; each nest is written by `Boxes` (boxes.py), what is computed
in it by `Values` (values.py), what adds up by `Sums` (accumulating.py).

A shared group is a function of its own, `share`, of (frame, chunk, who): pointers come in the frame, `who` tells the memory for blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..core import checking
from . import clocks, sanitizer
from .accumulating import Totals
from .boxes import Boxes, walked
from .schedule import Group, Nest, Schedule, topological
from .values import Values


class Body:
    """Writes the function of one schedule."""

    def __init__(
        self, schedule: Schedule, lanes: int, step: bool = False, number: str = ""
    ) -> None:
        """`step` says that it is a step of a loop, whose next turn waits for what it computes; `number` comes before the numbers of shared
        groups, where a module has several such functions."""
        self.schedule = schedule
        self.number = number
        self.values = Values(schedule, lanes, step)
        self.text, self.memory = self.values.text, self.values.memory
        self.totals = Totals(self.values)
        self.loops: list[str] = []  # a listing for people
        self.shares: list[str] = []  # functions of shared groups
        self.declared, self.functions = self.text.declared, self.text.functions

    def run(self) -> str:
        """The text of the function's inside."""
        for group in self.schedule.groups:
            if group.chunks > 1:
                self._shared(group)
            else:
                self._group(group)
        return self.text.whole()

    def _group(self, group: Group) -> None:
        for op in group.over_rows:
            self.totals.fill(op)
        self.memory.block_low = "0"
        if group.block >= group.rows:
            for nest in group.nests:
                self._nest(nest, group, "0", str(nest.rows))
            return
        self.loops.append(f"for rows in range(0, {group.rows}, {group.block}):")
        self.text.loop("0", str(group.rows), group.block, lambda low: self._block(group, low))

    def _block(self, group: Group, low: str) -> None:
        """All nests of a group, for the rows of one block."""
        high = self.text.smaller(self.text.let(f"add nsw i64 {low}, {group.block}"), group.rows)
        self.memory.block_low = low
        for op in (x for nest in group.nests for x in nest.roots):
            if op.number in self.schedule.blocks:  # nothing of the block before counts
                size, entry = self.memory.nbytes(op), sanitizer.entry_of(op.dtype)
                self._said(f"fill {self.memory.pointer(op)} 0 {size} {entry}")
        for nest in group.nests:
            self._nest(nest, group, low, high)

    def _said(self, text: str) -> None:
        """Tell checked mode something where the text stands."""
        self.text.lines.extend(sanitizer.said(text))

    def _nest(self, nest: Nest, group: Group, low: str, high: str) -> None:
        """Write one loop nest, between two readings of the clock where somebody asked for them."""
        if checking.on():
            stored = [*nest.roots, *(op for op, _ in nest.copies)]
            self._said(f"at {', '.join(map(repr, stored))}")
        walk = walked(nest, self.schedule)
        if any(n == 0 for n in nest.space):
            return
        shared = group.chunks > 1
        with clocks.read(self.text.lines, lambda: clocks.place_of(nest, walk), shared):
            boxes = Boxes(self.values, self.totals, nest, group, walk)
            self.loops.append(boxes.listing())
            boxes.write(low, high)

    # ------------------------------------------------------------------------------------ shared groups

    def _shared(self, group: Group) -> None:
        """A group as a function of the chunk, and a call by which threads share its chunks."""
        text, k = self.text, f"{self.number}{len(self.shares)}"
        self.loops.append(
            f"for rows in range(0, {group.rows}, {group.block}), in {group.chunks} chunks shared by threads:"
        )
        with text.apart() as written:
            self.memory.split = {op.number for op in group.over_rows}
            for op in group.over_rows:
                self.totals.part(op, "%chunk", f"%mine{op.number}")
                self.totals.fill(op)
            low = text.let(f"mul nsw i64 %chunk, {group.share}")
            high = text.smaller(text.let(f"add nsw i64 {low}, {group.share}"), group.rows)
            text.loop(low, high, group.block, lambda low: self._block(group, low))
            inside = written()
            self.memory.split = set()
        names = sorted(set(re.findall(r"%(?:in|const|out|mem|part)\d+\b", inside)))
        own = {f"%mem{n}": at for n, (where, at) in self.schedule.memory.items() if where == "own"}
        given = [name for name in names if name not in own]
        self.shares.append(
            _share(k, names, given, own, self.schedule.own, inside, self._sizes(names))
        )
        text.allocas.append(f"  %frame{k} = alloca [{len(given) + 1} x ptr]")
        for i, name in enumerate(["%threads_own", *given]):
            at = text.let(f"getelementptr ptr, ptr %frame{k}, i64 {i}")
            text.line(f"store ptr {name}, ptr {at}")
        text.line(
            f"call void @tg_share(ptr @share{k}, ptr %frame{k}, i64 {group.chunks}, i64 %team)"
        )
        for op in group.over_rows:
            self.totals.fill(op)
            self.totals.collect(op, group.chunks)

    def _sizes(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Bytes of what names stand for, and of an entry there, for checked mode: in a frame they lose their bounds."""
        if not checking.on():
            return {}
        schedule, memory = self.schedule, self.memory
        found = {}
        for op in topological(schedule.outputs):
            size, entry = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
            if op.kind in ("input", "array"):
                found[memory.pointer(op)] = size, 0
            elif op.number in schedule.memory:
                found[memory.pointer(op)] = memory.nbytes(op), entry
            if op.number in schedule.partial:
                chunks = next(g.chunks for g in schedule.groups if op in g.over_rows)
                found[f"%part{op.number}"] = schedule.partial[op.number][1] * chunks, entry
        for k, op in enumerate(schedule.outputs):
            found[f"%out{k}"] = op.size * op.dtype.itemsize, sanitizer.entry_of(op.dtype)
        return {name: found[name] for name in names}


def _share(
    k: str,
    names: Sequence[str],
    given: Sequence[str],
    own: dict[str, int],
    size: int,
    inside: str,
    sizes: dict[str, tuple[int, int]],
) -> str:
    """Text of a shared group: `share`, which takes pointers out of the frame, and `shared`, which computes one chunk."""
    text = [
        f"define internal void @shared{k}({', '.join(f'ptr noalias {name}' for name in names)}{', ' if names else ''}i64 %chunk) #0 {{",
        f"entry:\n{inside}\n  ret void\n}}",
        f"define internal void @share{k}(ptr %frame, i64 %chunk, i64 %who) #0 {{",
        *sanitizer.buffer("%frame", 8 * (len(given) + 1), 0, "a frame"),
        "  %all = load ptr, ptr %frame",
        f"  %before = mul nsw i64 %who, {size}",
        "  %own = getelementptr i8, ptr %all, i64 %before",
        *sanitizer.buffer("%own", size, 0, "a thread's memory"),
    ]
    for i, name in enumerate(given):
        text.append(f"  %p{i} = getelementptr ptr, ptr %frame, i64 {i + 1}")
        text.append(f"  {name} = load ptr, ptr %p{i}")
        text += sanitizer.buffer(name, *sizes.get(name, (0, 0)), name[1:])
    for name in names:
        if name in own:
            text.append(f"  {name} = getelementptr i8, ptr %own, i64 {own[name]}")
            text += sanitizer.buffer(name, *sizes.get(name, (0, 0)), name[1:], fresh=True)
    arguments = [*(f"ptr {name}" for name in names), "i64 %chunk"]
    text.append(f"  call void @shared{k}({', '.join(arguments)})\n  ret void\n}}")
    return "\n".join(text)
