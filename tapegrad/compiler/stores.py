"""Stores: what a program writes to one row of an array is read from where it was computed, not through the array.

A loop that fills a buffer (`u[t + 1] = u[t] + step`) makes a new version of the whole array with each store, and its pullback makes
another version for each cotangent. To rolling.py such a version would be a value that grows from turn to turn, so versions are followed
row by row. A *chain* is an array with the stores into it, in order; a *version* is the array after the first so many stores. A row of a
version is the value that was stored there last. A store to part of a row is a store to the row, which has a chain of its own. A cotangent
spread to one row is added to that row. Stores are carried out only for a version that is read as a whole, and many rows at once as one
stack.

Invariant: the new graph computes the same values by the same operations. Calls that are no stores to rows stay as they are.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.primitive import OPS
from ..ops.indexing import scatter
from .graph import Graph, Guard, Node, Recorded, Ref
from .tracing import _astype, _made, _stored

STACKED = 8
"""Rows one after the other from which on a stack of them is stored at once."""

FEW = 8
"""Rows of a sparse array that are added to another one by one."""

MOST_FILLED = 64
"""Rows that a slice may have to be taken for so many rows."""

_WRITES = ("stored", "setitem", "scatter", "copy_slices")
_FOLLOWED = {*_WRITES, "getitem", "add", "copy", "copied_into", "stack", "multiply"}


class _Chain:
    """An array, and the stores to its rows since: `values[i]` are those to row i, each with the version it made."""

    def __init__(self, base: Node | None, like: Node) -> None:
        self.base = base  # None for zeros
        self.shape, self.dtype = like.shape, like.dtype
        self.values: dict[int, list[tuple[int, Any]]] = {}
        self.log: list[int] = []
        self.whole: dict[int, Node] = {} if base is None else {0: base}

    def stored(self, i: int, value: Any) -> _Version:
        """The version after one more store."""
        self.log.append(i)
        self.values.setdefault(i, []).append((len(self.log), value))
        return _Version(self, len(self.log))

    def at(self, i: int, version: int) -> Any:
        """What was stored to a row last; NotImplemented for nothing."""
        known = self.values.get(i, ())
        k = bisect_right(known, version, key=lambda x: x[0])
        return known[k - 1][1] if k else NotImplemented


class _Version:
    """An array after so many stores of its chain."""

    __slots__ = ("chain", "number")

    def __init__(self, chain: _Chain, number: int) -> None:
        self.chain = chain
        self.number = number

    @property
    def shape(self) -> tuple[int, ...]:
        return self.chain.shape

    @property
    def dtype(self) -> np.dtype:
        return self.chain.dtype

    weak = False

    @property
    def latest(self) -> bool:
        """Whether nothing was stored since."""
        return self.number == len(self.chain.log)

    @property
    def sparse(self) -> bool:
        """Whether it is zeros but for a few rows."""
        return self.chain.base is None and self.number <= FEW


def forwarded(graph: Graph) -> Graph:
    """The graph without stores to single rows, but for those somebody needs; the graph itself where there are none."""
    if not any(map(_concerned, graph.nodes)):
        return graph
    return _Forwarder(graph).run()


class _Forwarder:
    """The new graph, as far as it is made. A value is a node of it, a version, or a constant that was stored."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.steps: list[Any] = []
        self.values: dict[Node, Any] = {}  # of calls that are others now
        self.order: dict[Node, int] = {}
        self.slices = sum(map(_fills, graph.nodes))  # many of them are made turn by turn

    def run(self) -> Graph:
        for step in self.old.steps:
            if isinstance(step, Guard):
                self.steps.append(replace(step, node=self._now(step.node)))
            else:
                value = self._call(step)
                if value is not step:
                    self.values[step] = value
        outputs = [self._now(y) if isinstance(y, Node) else y for y in self.old.outputs]
        return Graph(self.old.inputs, self.steps, outputs).pruned()

    # ------------------------------------------------------------------------------------ calls

    def _call(self, node: Node) -> Any:
        """What a call of the old graph is in the new one."""
        if node.name in _FOLLOWED:
            value = self._of_rows(node)
            if value is not NotImplemented:
                return value
        if any(x in self.values for x in node.inputs):
            node = node.with_inputs([self._now(x) for x in node.inputs])
        return self._made(node)

    def _of_rows(self, node: Node) -> Any:
        """The value of a call that reads or writes rows of an array; NotImplemented for others."""
        inputs = [self.values.get(x, x) for x in node.inputs]
        first = inputs[0] if inputs else None
        if node.name == "copy":
            return first if type(first) is _Version else NotImplemented
        if node.name == "copied_into":  # the value, unless it is spread or rounded
            value = inputs[1] if len(inputs) == 2 else None
            same = value is not None and (value.shape, value.dtype) == (node.shape, node.dtype)
            return value if same and not value.weak else NotImplemented
        if node.name == "multiply":
            return first if _times_one(node) else NotImplemented
        if node.name == "stack":
            return self._stack(node, inputs)
        if node.name == "add":
            plain = len(inputs) == 2 == len(node.args) and not node.kwargs
            return self._sum(*inputs) if plain else NotImplemented
        if node.name == "getitem":
            index = _index(node)
            if len(inputs) > 1 or _leading(index, first.shape) is None:
                return NotImplemented
            return self._entry(first, index)
        if node.name == "scatter":
            index, c = node.kwargs["index"], first
            if len(inputs) != 1 or _leading(index, node.shape) is None:
                return NotImplemented
            if c.dtype != node.dtype or c.weak:
                return NotImplemented
            return self._spread(c, index, node)
        return self._store(node, inputs)

    def _stack(self, node: Node, inputs: Sequence[Any]) -> Any:
        """The version that a stack of versions is."""
        if not any(type(x) is _Version for x in inputs) or len(node.args) > 1 or node.kwargs:
            return NotImplemented
        rows = [inputs[a.index] if type(a) is Ref else a for a in node.args[0]]
        if any(getattr(x, "dtype", None) != node.dtype for x in rows):
            return NotImplemented
        chain = _Chain(None, node)
        for i, row in enumerate(rows):
            version = chain.stored(i, row)
        return version

    def _store(self, node: Node, inputs: Sequence[Any]) -> Any:
        """The value of a call that writes to an array."""
        if node.name == "copy_slices":
            steps = node.kwargs.get("steps", ())
            if any(OPS[code].name != "getitem" for code, _ in steps):
                return NotImplemented
            indices = [index for _, (index,) in steps]
            x, value = node.args
        else:
            x, value = node.args[0], node.args[-1]
            indices = [_place(node)]
        value = inputs[value.index] if type(value) is Ref else np.asarray(value)
        if value.dtype.kind == "c" != node.dtype.kind:
            return NotImplemented
        if type(x) is Ref:
            x = inputs[x.index]
        elif isinstance(x, np.ndarray) and x.shape == node.shape:
            x = self._constant(x, node)
        else:
            return NotImplemented
        if len(indices) == 1 and type(indices[0]) is slice:
            return self._filled(x, range(*indices[0].indices(node.shape[0])), value)
        if _leading(indices[0], node.shape) is None:
            return NotImplemented
        return self._written(x, indices, value)

    def _filled(self, x: Any, places: range, value: Any) -> Any:
        """x after a store of a value to a few rows: what a loop reads of its past at first stands there."""
        if not 0 < len(places) <= MOST_FILLED or self.slices > FEW:
            return NotImplemented
        many = len(value.shape) == len(x.shape)
        if many and value.shape[0] not in (1, len(places)):
            return NotImplemented
        if many and type(value) is _Version:
            value = self._whole(value)
        chain = self._chain(x)
        for k, i in enumerate(places):
            row = value
            if many:
                k %= value.shape[0]
                row = self._entry_of(value, k) if isinstance(value, Node) else value[k]
            version = chain.stored(i, self._fitted(row, x.shape[1:], x.dtype))
        return version

    # ------------------------------------------------------------------------------------ rows

    def _row(self, x: Any, i: int) -> Any:
        """A row of an array: a node or a version, or a constant that was stored there."""
        if type(x) is _Version:
            known = x.chain.at(i, x.number)
            if known is not NotImplemented:
                return known
            if x.chain.base is None:
                return 0.0
            x = x.chain.base
        return self._entry_of(x, i)

    def _entry(self, x: Any, index: Any) -> Any:
        """x[index], where the index begins with a number."""
        if type(x) is not _Version:
            return self._entry_of(x, index)
        i, rest = _leading(index, x.shape)
        row = self._row(x, i)
        if not isinstance(row, Node | _Version):
            row = self._constant(row, _Like(x.shape[1:], x.dtype))
        if not rest:
            return row
        if _leading(rest, row.shape) is not None:
            return self._entry(row, rest)
        return self._entry_of(self._whole(row), rest if len(rest) > 1 else rest[0])

    def _written(self, x: Any, indices: Sequence[Any], value: Any) -> Any:
        """x after a store of a value at x[indices[0]][indices[1]]..."""
        found = _leading(indices[0], x.shape)
        if found is None:
            if len(indices) > 1:
                part = self._written(self._entry_of(self._whole(x), indices[0]), indices[1:], value)
                return self._put(self._whole(x), indices[0], part)
            return self._put(self._whole(x), indices[0], value)
        i, rest = found
        left = [rest if len(rest) > 1 else rest[0], *indices[1:]] if rest else indices[1:]
        shape = x.shape[1:]
        if left:
            row = self._row(x, i)
            if not isinstance(row, Node | _Version):
                row = self._constant(row, _Like(shape, x.dtype))
            row = self._written(row, left, value)
        else:
            row = self._fitted(value, shape, x.dtype)
        return self._chain(x).stored(i, row)

    def _chain(self, x: Any) -> _Chain:
        """The chain that a store to x goes to."""
        if type(x) is _Version and x.latest:
            return x.chain
        return _Chain(self._whole(x), x)

    def _spread(self, c: Any, index: Any, like: Any) -> _Version:
        """Zeros with a value at an index."""
        i, rest = _leading(index, like.shape)
        if rest:
            row = _Like(like.shape[1:], like.dtype)
            rest = rest if len(rest) > 1 else rest[0]
            if _leading(rest, row.shape) is not None:
                c = self._spread(c, rest, row)
            else:
                c = self._scattered(self._whole(c), rest, row)
        return _Chain(None, like).stored(i, c)

    def _sum(self, x: Any, y: Any) -> Any:
        """x + y where one of them is zeros but for a few rows."""
        if type(y) is not _Version or not y.sparse:
            x, y = y, x
        if type(y) is not _Version or not y.sparse or x.shape != y.shape or x.dtype != y.dtype:
            return NotImplemented
        for i in sorted({*y.chain.log[: y.number]}):
            total = self._total(self._row(x, i), self._row(y, i))
            x = self._chain(x).stored(i, total)
        return x

    def _total(self, a: Any, b: Any) -> Any:
        """The sum of two rows."""
        for one, other in ((a, b), (b, a)):
            if not isinstance(one, Node | _Version) and not np.any(one):
                return other
        if not isinstance(a, Node | _Version):
            a = self._constant(a, b)
        if not isinstance(b, Node | _Version):
            b = self._constant(b, a)
        found = self._sum(a, b) if a.shape else NotImplemented
        if found is not NotImplemented:
            return found
        given = (self._whole(a), self._whole(b))
        return self._made(_call(operator.add, "add", (Ref(0), Ref(1)), given, given[0]))

    # ------------------------------------------------------------------------------------ nodes

    def _made(self, node: Node) -> Node:
        self.order[node] = len(self.steps)
        self.steps.append(node)
        return node

    def _now(self, x: Node) -> Node:
        return self._whole(self.values.get(x, x))

    def _entry_of(self, x: Node, index: Any) -> Node:
        """x[index]; of an entry of an array it is an entry of that."""
        if x.name == "getitem" and len(x.inputs) == 1:
            before, after = (i if type(i) is tuple else (i,) for i in (_index(x), index))
            if all(map(_is_int, before)):
                x, index = x.inputs[0], (*before, *after)
        shape = np.broadcast_to(np.zeros((), np.int8), x.shape)[index].shape
        like = _Like(shape, x.dtype)
        return self._made(_call(operator.getitem, "getitem", (Ref(0), index), (x,), like))

    def _constant(self, value: Any, like: Any) -> Node:
        array = np.array(np.broadcast_to(np.asarray(value, like.dtype), like.shape))
        return self._made(_call(_made, "constant", (array,), (), like))

    def _fitted(self, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A value as the row that it is stored to has it."""
        extra = len(value.shape) - len(shape)  # leading axes of length 1
        if not isinstance(value, Node | _Version):
            row = value[(0,) * extra] if extra > 0 else value
            return np.array(np.broadcast_to(row.astype(dtype), shape))
        if value.weak or value.dtype != dtype:
            like = _Like(value.shape, dtype)
            value = self._made(
                _call(_astype, "astype", (Ref(0), dtype), (self._whole(value),), like)
            )
        if value.shape == shape:
            return value
        value = self._whole(value)
        if extra > 0:
            value = self._entry_of(value, (0,) * extra)
        like = _Like(shape, dtype)
        return self._made(_call(np.broadcast_to, "broadcast_to", (Ref(0), shape), (value,), like))

    def _scattered(self, c: Node, index: Any, like: Any) -> Node:
        settings = {"index": index, "shape": like.shape}
        return self._made(
            _call(scatter.primitive.forward, "scatter", (Ref(0),), (c,), like, settings)
        )

    def _put(self, x: Node, index: Any, value: Any) -> Node:
        if isinstance(value, Node | _Version):
            given: tuple[Node, ...] = (x, self._whole(value))
            return self._made(_call(_stored, "stored", (Ref(0), index, Ref(1)), given, x))
        return self._made(_call(_stored, "stored", (Ref(0), index, value), (x,), x))

    def _whole(self, x: Any) -> Node:
        """An array with all that was stored to it."""
        if type(x) is not _Version:
            return x
        chain = x.chain
        known = next((k for k in reversed(chain.whole) if k <= x.number), None)
        if known is None:
            if x.number == 1:  # nothing but one row
                i = chain.log[0]
                row = chain.at(i, 1)
                if isinstance(row, Node | _Version):
                    chain.whole[1] = self._scattered(self._whole(row), i, x)
                    return chain.whole[1]
            if {*chain.log[: x.number]} == {*range(x.shape[0])}:
                every = [self._row(x, i) for i in range(x.shape[0])]
                if all(isinstance(row, Node | _Version) for row in every):
                    chain.whole[x.number] = self._stacked(every, x)
                    return chain.whole[x.number]
            node, known = self._constant(0.0, x), 0
        else:
            node = chain.whole[known]
        rows = {i: chain.at(i, x.number) for i in sorted({*chain.log[known : x.number]})}
        for run in _runs(rows):
            node = self._stored(node, run, [rows[i] for i in run])
        chain.whole[x.number] = node
        return node

    def _stored(self, node: Node, run: Sequence[int], rows: Sequence[Any]) -> Node:
        """The array with rows one after the other stored."""
        if len(run) < STACKED:
            for i, row in zip(run, rows, strict=True):
                node = self._put(node, i, row)
            return node
        where = slice(run[0], run[-1] + 1)
        if all(row is rows[0] for row in rows):
            return self._put(node, where, rows[0])
        if not isinstance(rows[0], Node | _Version):
            if all(np.array_equal(row, rows[0]) for row in rows):
                return self._put(node, where, rows[0])
            return self._put(node, where, np.stack(rows))
        like = _Like((len(rows), *node.shape[1:]), node.dtype)
        stack = self._stacked(rows, like)
        return stack if like.shape == node.shape else self._put(node, where, stack)

    def _stacked(self, rows: Sequence[Any], like: Any) -> Node:
        """Rows as one array."""
        nodes = [self._whole(row) for row in rows]
        places = [self.order.get(x, -1) for x in nodes]
        back = places[0] > places[-1]  # as a pullback makes them: the last row first
        refs = [Ref(k) for k in range(len(nodes))]
        stack = self._made(_call(np.stack, "stack", (refs,), nodes[::-1] if back else nodes, like))
        return self._entry_of(stack, slice(None, None, -1)) if back else stack


class _Like:
    """A shape and a dtype."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


def _call(
    function: Any, name: str, args: Any, inputs: Sequence[Node], like: Any, settings: Any = None
) -> Recorded:
    """A call whose result has this shape and dtype."""
    node = Recorded(function, name, args, settings or {}, inputs, np.zeros((), like.dtype))
    node.shape = like.shape
    return node


def _concerned(node: Node) -> bool:
    """Whether it writes to an array, or reads an entry of an entry."""
    if node.name == "getitem":
        return any(x.name == "getitem" for x in node.inputs)
    return node.name in _WRITES


def _fills(node: Node) -> bool:
    """Whether it stores to a slice of rows."""
    return node.name in ("stored", "setitem") and type(_place(node)) is slice


def _place(node: Node) -> Any:
    """The index that a call stores to."""
    return node.args[1] if node.function is _stored else node.kwargs["index"]


def _times_one(node: Node) -> bool:
    """Whether it is x * 1, as tangents of sums are."""
    if len(node.inputs) != 1 or len(node.args) != 2 or node.kwargs:
        return False
    factor = next((a for a in node.args if type(a) is not Ref), None)
    x = node.inputs[0]
    same = (x.shape, x.dtype, x.weak) == (node.shape, node.dtype, node.weak)
    return type(factor) in (int, float) and factor == 1 and same


def _leading(index: Any, shape: tuple[int, ...]) -> tuple[int, tuple[Any, ...]] | None:
    """The row that a basic index begins with, not below 0, and what of the index is left; None where it begins otherwise."""
    parts = index if type(index) is tuple else (index,)
    if not shape or not parts or not _is_int(parts[0]):
        return None
    i, rest = int(parts[0]), parts[1:]
    if not all(x is None or x is ... or type(x) is slice or _is_int(x) for x in rest):
        return None
    if not -shape[0] <= i < shape[0]:
        return None
    if all(x is ... or (type(x) is slice and x == slice(None)) for x in rest):
        rest = ()
    return i % shape[0], rest


def _index(node: Node) -> Any:
    """What a getitem is given."""
    return node.kwargs.get("index", node.args[1] if len(node.args) > 1 else None)


def _is_int(x: Any) -> bool:
    return type(x) is int or isinstance(x, np.integer)


def _runs(rows: dict[int, Any]) -> Iterator[list[int]]:
    """Rows one after the other, in their order: all of them computed or all of them constant."""
    run: list[int] = []
    for i, row in rows.items():
        same = run and isinstance(row, Node | _Version) == isinstance(
            rows[run[-1]], Node | _Version
        )
        if run and (i != run[-1] + 1 or not same):
            yield run
            run = []
        run.append(i)
    if run:
        yield run


__all__ = ["forwarded"]
