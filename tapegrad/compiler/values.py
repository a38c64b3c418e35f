"""Values of expressions at the indices that the loops of a nest stand at: computed, loaded, or known already.

An expression of outer indices only is computed there (text.py), and known in all loops inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .arrays import Map, Op, composed
from .elementwise import Elementwise
from .places import Memory
from .schedule import Schedule, gathered_maps, inside_maps
from .text import Text, Value, in_memory, literal


class Indices:
    """Where the loops over a piece of a nest stand."""

    def __init__(
        self, axes: Sequence[int] = (), pieces: dict[int, tuple[int, int]] | None = None
    ) -> None:
        """`pieces` says of each axis from where to where the indices of this piece go."""
        self.axes = axes
        self.pieces = pieces or {}
        self.variables: dict[int, tuple[str, int]] = {}  # each index, and how many from it on
        self.depth_of: dict[int, int] = {}  # the loop depth of each index
        self.together: tuple[int, list[str]] = (-1, [""])  # an axis, and its indices of one turn

    def set(self, axis: int, name: str, lanes: int, depth: int) -> None:
        """Let the loop over an axis stand at an index, and at those behind it in the other lanes."""
        self.variables[axis] = (name, lanes)
        self.depth_of[axis] = depth

    @property
    def lanes(self) -> int:
        return self.variables[self.axes[-1]][1]

    def at_once(self) -> Iterator[str]:
        """Each index of a turn, as the one that values are computed at."""
        axis, names = self.together
        for name in names:
            if axis >= 0:
                self.variables[axis] = (name, 1)
            yield name

    def of_turn(self, maps: Sequence[Map]) -> str:
        """The index that distinguishes values of one turn, if an expression with these maps depends on it."""
        axis = self.together[0]
        return self.variables[axis][0] if axis >= 0 and any(a == axis for _, a, _ in maps) else ""

    def depth(self, maps: Sequence[Map], floor: int) -> int:
        """The scope in which an expression with these maps is computed: that of the innermost index it depends on."""
        return max(
            [floor, *(self.depth_of.get(a, floor) for _, a, step in maps if a >= 0 and step)]
        )

    def varies(self, maps: Sequence[Map]) -> bool:
        """Whether an expression with these maps differs between the lanes."""
        return (
            bool(self.axes) and self.lanes > 1 and any(a == self.axes[-1] and s for _, a, s in maps)
        )

    def stride(self, maps: Sequence[Map], strides: Sequence[int]) -> int:
        """How far the entries of two lanes are apart."""
        vector = self.axes[-1] if self.axes else -1
        return sum(s * k for (_, a, s), k in zip(maps, strides, strict=True) if a == vector)


class Values:
    """Writes what a schedule's expressions are, where its loops stand."""

    def __init__(self, schedule: Schedule, widest: int, step: bool) -> None:
        """`widest` lanes has a vector of 64-bit numbers; `step` is that of `Elementwise`."""
        self.schedule = schedule
        self.widest = widest
        self.text = Text()
        self.memory = Memory(schedule)
        self.operations = Elementwise(self.text, step)
        self.indices = Indices()
        sums = [op for op in schedule.roots.values() if op.kind == "reduce"]
        self.summed = {op.inputs[0].number for op in sums}  # what a sum reads

    # ------------------------------------------------------------------------------------ expressions

    def value(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The value of an expression at mapped indices."""
        if op.kind == "const":
            return Value(literal(op.attr.value, op.dtype), op.dtype, 1)
        # An expression with memory of its own is read there, a view too: axes are joined by the strides of that memory (Walk.into).
        rooted = op.number in self.schedule.roots
        if op.kind in ("view", "region") and not rooted:
            return self._computed(op, maps)
        found = (
            self._loaded if rooted or op.kind in ("input", "array", "reshape") else self._computed
        )
        depth = self.indices.depth(maps, self.text.floor)
        return self.text.once(self._key(op, maps), lambda: found(op, maps), depth)  # type: ignore[no-any-return]

    def root(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The value of a root, computed; from here on the others of this nest use it without a load."""
        depth = self.indices.depth(maps, self.text.floor)
        return self.text.anew(self._key(op, maps), lambda: self._computed(op, maps), depth)  # type: ignore[no-any-return]

    def _key(self, op: Op, maps: tuple[Map, ...]) -> tuple[Any, ...]:
        """What a value is known by; where one turn computes several indices of an axis, by the index too."""
        return "value", op.number, maps, self.indices.of_turn(maps)

    def _computed(self, op: Op, maps: tuple[Map, ...]) -> Value:
        if op.kind == "const":
            return self.value(op, maps)
        if op.kind == "region":
            return self._region(op, maps)
        if op.kind == "view":
            return self.value(op.inputs[0], tuple(composed(op.attr, maps)))
        if op.kind == "gather":
            return self._gathered(op, maps)
        operands = [self.value(x, maps) for x in op.inputs]
        lanes = max((x.lanes for x in operands), default=1)
        operands = [self.text.spread(x, lanes) for x in operands]
        return self.operations.of(op, operands, op.number in self.summed)

    def _region(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """What a region holds in this piece: inside or outside, decided for all of it."""
        x, outside = op.inputs
        for (start, axis), (offset, at, step) in zip(op.attr, maps, strict=True):
            length = 1 if axis < 0 else x.shape[axis]
            low = offset
            if at >= 0 and step:
                low = offset + step * self.indices.pieces.get(at, (0, 1))[0]
            if not start <= low < start + length:
                return self.value(outside, maps)
        return self.value(x, inside_maps(op, maps))

    # ------------------------------------------------------------------------------------ loads

    def _loaded(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """The entries of a stored array at the current indices: a number, or a vector, by the stride along the innermost axis."""
        text, dtype, pointer = self.text, op.dtype, self.address(op, maps)
        lanes = self.indices.lanes if self.indices.varies(maps) else 1
        stride = self.indices.stride(maps, self.memory.strides(op)) if lanes > 1 else 0
        if lanes == 1 or stride == 1:
            return text.read(pointer, dtype, lanes)
        if stride == -1:
            first = text.moved(pointer, dtype, 1 - lanes)
            return text.picked(first, "", [*reversed(range(lanes))], dtype, lanes)
        if stride == 2:
            # Real or imaginary parts, say: every other entry of two vectors, which end where the last one stands.
            places = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
            return text.picked(pointer, text.moved(pointer, dtype, lanes - 1), places, dtype, lanes)
        rest = (text.moved(pointer, dtype, i * stride) for i in range(1, lanes))
        return text.put_together([pointer, *rest], dtype)

    def _gathered(self, op: Op, maps: tuple[Map, ...]) -> Value:
        """Entries at places that are values."""
        x, *indices = op.inputs
        before = maps[: len(indices[0].shape)]
        names, stride = self.places(x, indices, before, gathered_maps(op, maps))
        lanes = len(names)
        if lanes == 1 and stride and self.indices.lanes > 1:
            lanes = self.indices.lanes
            if stride == 1:
                return self.text.read(names[0], op.dtype, lanes)
            names = [self.text.moved(names[0], op.dtype, i * stride) for i in range(lanes)]
        if lanes == 1:
            return self.text.read(names[0], op.dtype, 1)
        return self.text.put_together(names, op.dtype)

    # ------------------------------------------------------------------------------------ addresses

    def address(self, op: Op, maps: Sequence[Map]) -> str:
        """Where the entry of a leaf or root lies at mapped indices."""
        memory, pointer = self.memory, self.memory.pointer(op)
        strides = memory.strides(op)
        if op.number in self.schedule.blocks and memory.block_low != "0":
            axis, _ = self.schedule.blocks[op.number]
            floor = self.text.floor
            back = self.text.pure(f"mul nsw i64 {memory.block_low}, {-strides[axis]}", floor)
            moved = f"getelementptr {in_memory(op.dtype)}, ptr {pointer}, i64 {back}"
            pointer = self.text.pure(moved, floor)
        return self.element(pointer, op.dtype, maps, strides)

    def element(
        self, pointer: str, dtype: np.dtype, maps: Sequence[Map], strides: Sequence[int]
    ) -> str:
        """The address of an entry: pointer plus strides times indices."""
        indices = self.indices
        offset = sum(o * s for (o, _, _), s in zip(maps, strides, strict=True))
        terms: dict[int, int] = {}
        for (_, axis, step), stride in zip(maps, strides, strict=True):
            if axis >= 0 and step * stride:
                terms[axis] = terms.get(axis, 0) + step * stride
        kind = in_memory(dtype)
        # Outer indices first, each added where its loop is: the inner loops are left with what changes there.
        for axis, factor in sorted(terms.items(), key=lambda t: indices.depth_of.get(t[0], 0)):
            if axis not in indices.variables:
                continue  # covered by the loop over the next axis
            name = indices.variables[axis][0]
            if name.isdigit():
                offset += int(name) * factor
                continue
            depth = indices.depth_of[axis]
            term = name if factor == 1 else self.text.pure(f"mul nsw i64 {name}, {factor}", depth)
            pointer = self.text.pure(f"getelementptr {kind}, ptr {pointer}, i64 {term}", depth)
        if offset:
            pointer = self.text.pure(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")
        return pointer

    def places(
        self, op: Op, indices: Sequence[Op], maps: Sequence[Map], rest: Sequence[Any]
    ) -> tuple[list[str], int]:
        """Addresses in the memory of `op`, of each lane or (where all have the same place) of the first, and how far apart lanes are else.

        `maps` are those of the indices, `rest` those of op, whose indexed axes have no place yet (a step of None).
        """
        axes = [i for i, (_, _, step) in enumerate(rest) if step is None]
        strides = self.memory.strides(op)
        places = [self.value(index, tuple(maps)) for index in indices]
        lanes = max(place.lanes for place in places)
        known = [(0, -1, 0) if m[2] is None else m for m in rest]
        first = self.address(op, known)
        stride = self.indices.stride(known, strides)
        names = []
        for lane in range(lanes):
            pointer = first
            for place, axis in zip(places, axes, strict=True):
                one = self.text.lane(place, lane) if place.lanes > 1 else place
                pointer = self.text.moved(
                    pointer, op.dtype, self.text.times(one.text, strides[axis])
                )
            if lane * stride:
                pointer = self.text.moved(pointer, op.dtype, lane * stride)
            names.append(pointer)
        return names, stride

    # ------------------------------------------------------------------------------------ stores

    def store(
        self, op: Op, pointer: str, value: Value | None, lanes: int, maps: tuple[Map, ...]
    ) -> None:
        """Store an expression at an address, of complex numbers the parts in turn; `value` is None where it is known as others are."""
        varies = self.indices.varies(maps)
        if op.kind != "complex":
            value = value or self.value(op, maps)
            self.text.write(self.text.spread(value, lanes) if varies else value, pointer)
            return
        lanes = lanes if varies else 1
        parts = [self.value(x, maps) for x in op.inputs]
        re, im = (self.text.spread(x, lanes) for x in parts)
        if lanes == 1:
            second = self.text.moved(pointer, re.dtype, 1)
            self.text.write(re, pointer)
            self.text.write(im, second)
        else:
            self.text.write(self.text.in_turn(re, im), pointer)
