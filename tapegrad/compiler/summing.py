"""Sums of products of matrices, of which one factor is summed first.

    sum over n of (sum over k of a[n, k] * b[k, j])  =  sum over k of (sum over n of a[n, k]) * b[k, j]

The right side has 1/n of the multiplications. A gradient has such sums wherever a vector is added to the rows of a matrix which is then
multiplied, as in `(x - mean) @ w`: the cotangent of the rows is a product, and the cotangent of the vector is the sum of its rows. Between
sum and product may stand additions, subtractions, factors that are the same in all rows, and other orders of axes: the sum goes through all
of them.

Invariant: an expression keeps its shape and dtype, and its value but for the order of additions. A product that something else reads is
computed anyway, and stays as it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from .arrays import Arrays, Map, Op, varying
from .schedule import topological

SPREAD = ("view", "const")
"""Expressions that may be the same along an axis."""

DEEPEST = 20
"""Expressions between a sum and a product, at most."""

SMALLEST = 1000
"""Products below which the order of additions is left as it is written."""


def summed_first(arrays: Arrays, outputs: Sequence[Op]) -> list[Op]:
    """The same outputs, where sums of products multiply sums."""
    return _Pass(arrays, outputs).outputs


class _Pass:
    def __init__(self, arrays: Arrays, outputs: Sequence[Op]) -> None:
        self.arrays = arrays
        order = topological(outputs)
        self.uses = Counter(x.number for op in order for x in op.inputs)
        self.uses.update(op.number for op in outputs)
        self.now: dict[int, Op] = {}
        for op in order:
            self.now[op.number] = self._rewritten(op)
        self.outputs = [self.now[op.number] for op in outputs]

    def _rewritten(self, op: Op) -> Op:
        if op.kind == "reduce" and op.attr[0] == "add" and op.dtype.kind == "f":
            better = self._through(op.inputs[0], op.attr[1])
            if better is not None:
                return better
        return self.arrays.with_inputs(op, [self.now[x.number] for x in op.inputs])

    # ------------------------------------------------------------------------------------ the sum goes down

    def _through(self, x: Op, axes: tuple[int, ...], depth: int = 0) -> Op | None:
        """The sum of x over axes, where some product below it becomes smaller; else None."""
        if self.uses[x.number] > 1 or depth > DEEPEST:
            return None
        depth += 1
        if x.kind == "reduce":
            return self._of_product(x, axes) if x.attr[0] == "add" else None
        if x.kind == "view":
            return self._of_view(x, axes, depth)
        if x.kind == "elem" and x.attr in ("add", "subtract"):
            found = [self._through(part, axes, depth) for part in x.inputs]
            if found == [None, None]:
                return None
            parts = [
                self._sum(part, axes) if better is None else better
                for part, better in zip(x.inputs, found, strict=True)
            ]
            return self.arrays.elem(x.attr, parts, x.dtype)
        if x.kind == "elem" and x.attr == "negative":
            better = self._through(x.inputs[0], axes, depth)
            return None if better is None else self.arrays.elem("negative", (better,), x.dtype)
        if x.kind == "elem" and x.attr == "multiply":
            return self._of_multiple(x, axes, depth)
        return None

    def _sum(self, x: Op, axes: tuple[int, ...]) -> Op:
        """The sum as it is, but for a factor that is the same along the axes."""
        if x.kind == "elem" and x.attr == "multiply" and self.uses[x.number] == 1:
            for factor, other in _factored(x, axes):
                total = self.arrays.reduce("add", self.now[other.number], axes)
                return self._multiplied(total, factor, axes)
        return self.arrays.reduce("add", self.now[x.number], axes)

    def _of_view(self, x: Op, axes: tuple[int, ...], depth: int) -> Op | None:
        """Of entries in another order, or repeated along other axes."""
        (source,) = x.inputs
        if not _whole(x):
            return None
        within = tuple(i for i, (_, axis, _) in enumerate(x.attr) if axis in axes)
        better = self._through(source, within, depth) if within else None
        if better is None:
            return None
        left = [axis for axis in range(len(x.shape)) if axis not in axes]
        maps: list[Map] = [
            (0, left.index(axis) if axis >= 0 else -1, step)
            for i, (_, axis, step) in enumerate(x.attr)
            if i not in within
        ]
        moved = self.arrays.view(better, maps, tuple(x.shape[axis] for axis in left))
        along = {axis for _, axis, _ in x.attr}
        return self._times(moved, math.prod(x.shape[axis] for axis in axes if axis not in along))

    def _of_multiple(self, x: Op, axes: tuple[int, ...], depth: int) -> Op | None:
        for factor, other in _factored(x, axes):
            better = self._through(other, axes, depth)
            if better is not None:
                return self._multiplied(better, factor, axes)
        return None

    def _multiplied(self, x: Op, factor: Op, axes: tuple[int, ...]) -> Op:
        return self.arrays.elem("multiply", (x, self._narrow(factor, set(axes))), x.dtype)

    def _of_product(self, x: Op, axes: tuple[int, ...]) -> Op | None:
        """Of a product of matrices: the sum over some axes of a product entry by entry."""
        (product,) = x.inputs
        multiplied = product.kind == "elem" and product.attr == "multiply"
        if not multiplied or self.uses[product.number] > 1 or product.size < SMALLEST:
            return None
        a, b = product.inputs
        if not (a.kind in SPREAD and b.kind in SPREAD):
            return None
        inner = x.attr[1]
        outer = [axis for axis in range(len(product.shape)) if axis not in inner]
        over = {outer[axis] for axis in axes}
        of_a, of_b = varying(a), varying(b)
        first = over & (of_a ^ of_b)
        if not first:
            return None
        gone = over - (of_a & of_b)
        parts = [self._narrow(part, gone) for part in (a, b)]
        left = [axis for axis in range(len(product.shape)) if axis not in gone]
        rest = tuple(left.index(axis) for axis in sorted((over - gone).union(inner)))
        total = self.arrays.reduce("add", self.arrays.elem("multiply", parts, x.dtype), rest)
        return self._times(total, math.prod(product.shape[axis] for axis in gone - of_a - of_b))

    def _narrow(self, x: Op, gone: set[int]) -> Op:
        """x, which is repeated along some axes, without those that are gone: summed over the ones along which it varies."""
        arrays = self.arrays
        left = [axis for axis in range(len(x.shape)) if axis not in gone]
        shape = tuple(x.shape[axis] for axis in left)
        if x.kind == "const":
            return arrays.view(x, (), shape)
        own = sorted(varying(x))
        maps = [(o, own.index(axis) if axis >= 0 else -1, step) for o, axis, step in x.attr]
        entries = arrays.view(
            self.now[x.inputs[0].number], maps, tuple(x.shape[axis] for axis in own)
        )
        total = arrays.reduce("add", entries, [k for k, axis in enumerate(own) if axis in gone])
        return arrays.view(
            total, [(0, left.index(axis), 1) for axis in own if axis not in gone], shape
        )

    def _times(self, x: Op, count: int) -> Op:
        if count == 1:
            return x
        return self.arrays.elem("multiply", (x, self.arrays.const(count, (), x.dtype)), x.dtype)


def _factored(x: Op, axes: tuple[int, ...]) -> Iterator[tuple[Op, Op]]:
    """The ways to read a product entry by entry as a factor that is the same along the axes, and another."""
    for factor, other in (x.inputs, x.inputs[::-1]):
        if factor.kind in SPREAD and not varying(factor).intersection(axes):
            yield factor, other


def _whole(x: Op) -> bool:
    """Whether a view shows each entry of its source, at places of its own."""
    shape = x.inputs[0].shape
    places = [axis for _, axis, _ in x.attr if axis >= 0]
    return len(places) == len(set(places)) and all(
        offset == 0 and (n == 1 if axis < 0 else step == 1 and x.shape[axis] == n)
        for (offset, axis, step), n in zip(x.attr, shape, strict=True)
    )
