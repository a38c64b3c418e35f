"""Where expressions of a schedule lie in memory: pointers, shapes and strides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .arrays import Map, Op
from .schedule import Schedule, base


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in entries, of an array without gaps."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def strided(maps: Sequence[Map], strides: Sequence[int], n: int) -> list[int]:
    """By how many entries an address moves with each index of a space of n axes."""
    result = [0] * n
    for (_, axis, step), stride in zip(maps, strides, strict=True):
        if axis >= 0:
            result[axis] += step * stride
    return result


class Memory:
    """The memory of leaves and roots, as the function that is written knows it."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.split: set[int] = set()  # reductions that go to a chunk's part now
        self.block_low = "0"
        """The first row of the block that is computed."""

    def pointer(self, op: Op) -> str:
        """Where the memory of a leaf or root begins."""
        op = base(op)
        if op.kind == "input":
            return f"%in{op.attr}"
        if op.kind == "array":
            return f"%const{op.attr}"
        if op.number in self.split:
            return f"%mine{op.number}"
        where, k = self.schedule.memory[op.number]
        return f"%out{k}" if where == "out" else f"%mem{op.number}"

    def shape(self, op: Op) -> tuple[int, ...]:
        """The shape of what an expression's memory holds: all of it, or a block of rows."""
        return self.schedule.blocks[op.number][1] if op.number in self.schedule.blocks else op.shape

    def nbytes(self, op: Op) -> int:
        return math.prod(self.shape(op)) * op.dtype.itemsize

    def strides(self, op: Op) -> tuple[int, ...]:
        """How far the entries of an expression are apart in its memory."""
        return contiguous(self.shape(op))
