"""Entries: a step of a loop that changes some entries of an array that it carries changes them in place.

By its derivation `y[i] = v` in a step is a copy of y with one other entry, and the cotangent of `y[i]` is an array of zeros with one entry.
Both are as large as y, so a loop of n steps over n entries would take n² operations. This module recognises the *chain* from the array
that a step is given to the array that the step carries on: stores at places, and additions of scattered entries. Each link becomes an
`Update`, a routine that writes to these entries alone, and the loop keeps the array in one place (nesting.py).

Every other reader of a version of the array has to run before the next update, and the steps are put in such an order. If no such order
exists, or a later step reads an earlier version, the chain stays as it was.

Invariant: the body computes what it did; additions to one entry come in the order of the chain.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .graph import Graph, Guard, Node, Recorded, Ref
from .rolling import _zeros
from .writer import Routine, Writer

LEAST_BYTES = 512
"""Arrays of fewer bytes than this are computed anew: updating entries in place would be no faster."""

SPARSE = 4
"""An array is updated in place if it has at least this many times the entries that one step changes."""

MOST_LINKS = 32

_KINDS = {"f8": "double", "f4": "float", "i8": "i64", "i4": "i32", "i2": "i16", "i1": "i8", "u1": "i8", "b1": "i8"}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- calls that change nothing


def plainly(graph: Graph, again: bool = False) -> Graph:
    """The graph without calls that return an operand unchanged: copies, parts of a concatenation, sums with zeros.

    An output of the graph stays a call, so that no result is an input, or another result. A read at places that nobody asks for goes where
    the graph runs `again`: the first run has found out whether these are in bounds.
    """
    now: dict[Node, Node] = {}
    steps: list[Any] = []
    wanted = {y for y in graph.outputs if isinstance(y, Node)}
    taken = set(wanted)
    for step in graph.steps:
        if type(step) is Guard:
            steps.append(replace(step, node=now.get(step.node, step.node)))
            continue
        node: Node = step  # type: ignore[assignment]
        if any(x in now for x in node.inputs):
            node = node.with_inputs([now.get(x, x) for x in node.inputs])
        other = _the_same(node)
        if other is not None and (other.shape, other.dtype, other.weak) == _look(node):
            if step not in wanted or (other.function is not None and other not in taken):
                now[step] = other
                if step in wanted:
                    taken.add(other)
                if other.function is not None and other.name == "constant" and not other.inputs:
                    steps.append(other)
                continue
        if (
            again
            and node.checked
            and node.name == "getitem"
            and all(x.shape == () for x in node.inputs[1:])
        ):
            node = node.with_inputs(node.inputs)
            node.checked = False
        if node is not step:
            now[step] = node
        steps.append(node)
    outputs = [now.get(y, y) if isinstance(y, Node) else y for y in graph.outputs]
    return Graph(graph.inputs, steps, outputs).pruned()


def _look(node: Node) -> Any:
    return node.shape, node.dtype, node.weak


def _the_same(node: Node) -> Node | None:
    """The node that already has the value of a call; None if there is none."""
    name, inputs = node.name, node.inputs
    if name == "copy" and len(inputs) == 1:
        return inputs[0]
    if name == "reshape" and len(inputs) == 1 and _in_order(node):
        x = inputs[0]
        while x.shape != node.shape and x.name == "reshape" and len(x.inputs) == 1 and _in_order(x):
            x = x.inputs[0]
        return x if x.shape == node.shape else None
    if name == "concatenate" and len(inputs) == 1 and len(node.args) == 1:
        return inputs[0]
    if name == "getitem" and len(inputs) == 1:
        return _part(inputs[0], _index_of(node))
    if name == "getitem" and inputs[0].name in ("stored", "setitem"):
        return _just_stored(inputs[0], node)
    if name == "copy_slices" and _covers(node):
        if (
            len(inputs) == 1
            and len(node.args) == 2
            and type(node.args[1]) is float
            and not node.args[1]
        ):
            return Recorded(_zeros(node), "constant", (), {}, (), np.zeros(node.shape, node.dtype))
        return None
    if name == "add" and len(inputs) == 2 and not node.kwargs:
        for zero, other in (inputs, inputs[::-1]):
            if _is_zeros(zero) and other.shape == node.shape:
                return other
    return None


def _in_order(node: Node) -> bool:
    """Whether a reshape reads and writes its entries in the order of C."""
    order = node.kwargs.get("order", node.args[2] if len(node.args) > 2 else "C")
    return order == "C"


def _covers(node: Node) -> bool:
    """Whether a store through views goes to the whole array: they only reshape it."""
    from ..ops.arranging import reshape

    return all(
        code == reshape.primitive.code and kw[-1] == "C"
        for code, kw in node.kwargs.get("steps", ((None, ()),))
    )


def _is_zeros(node: Node) -> bool:
    value = getattr(node.function, "value", None)
    return node.name == "constant" and type(value) is np.ndarray and not value.any()


def _part(x: Node, index: Any) -> Node | None:
    """The array that an index picks whole, or the joined array that it picks; None for other indices."""
    parts = index if type(index) is tuple else (index,)
    if not parts or len(parts) > len(x.shape) or not all(type(p) is slice for p in parts):
        return None
    if any(type(b) is Ref for p in parts for b in (p.start, p.stop, p.step)):
        return None
    found = [p.indices(n) for p, n in zip(parts, x.shape, strict=False)]
    if all(at == (0, n, 1) for at, n in zip(found, x.shape, strict=False)):
        return x
    joined = x.name == "concatenate" and len(x.args) == 1 and len(x.shape) == 1
    if joined and type(x.args[0]) is list and all(type(r) is Ref for r in x.args[0]):
        start = 0
        for r in x.args[0]:
            piece = x.inputs[r.index]
            if found[0] == (start, start + piece.shape[0], 1):
                return piece
            start += piece.shape[0]
    return None


def _just_stored(store: Node, node: Node) -> Node | None:
    """The value that a store has put at the place that a call reads; None if the places differ."""
    value = store.args[-1]
    if type(value) is not Ref or len(store.args) < 2:
        return None
    there, here = (
        [
            call.inputs[p.index] if type(p) is Ref else p
            for p in (index if type(index) is tuple else (index,))
        ]
        for call, index in ((store, _index_of(store)), (node, _index_of(node)))
    )
    same = len(there) == len(here) and all(
        x is y or (type(x) is type(y) is int and x == y) for x, y in zip(there, here, strict=True)
    )
    places = all(
        type(x) is int or (isinstance(x, Node) and not x.shape and x.dtype.kind in "iu")
        for x in here
    )
    return store.inputs[value.index] if same and places else None


def _index_of(node: Node) -> Any:
    if "index" in node.kwargs:
        return node.kwargs["index"]
    return node.args[1] if len(node.args) > 1 else None


# ---------------------------------------------------------------------------------------------------- updates


class Update:
    """Entries of an array that are replaced, or added to, where the array lies: (array, entries if computed, places) -> the array."""

    __name__ = "update"

    def __init__(
        self,
        adds: bool,
        places: Sequence[Any],
        constant: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> None:
        """A store (or addition) into part of an array; `places` says where along each axis."""
        self.adds = adds
        self.places = list(places)
        """Per axis: a number, None for the next of the places that are computed, or (start, step, length)."""
        self.constant = constant
        """The constant that is stored; None if the value is computed."""
        self.shape = shape
        self.dtype = dtype
        self.after: tuple[Node, ...] = ()
        """The calls that read the earlier version of the array; they run before this update."""

    @property
    def lengths(self) -> list[int]:
        """The shape of the changed entries."""
        return [p[2] for p in self.places if type(p) is tuple]

    def __call__(self, x: Any, *rest: Any) -> Any:
        """The update by NumPy, on a copy of the array."""
        rest_of = list(rest)
        value = self.constant if self.constant is not None else rest_of.pop(0)
        index = tuple(
            rest_of.pop(0)
            if p is None
            else p
            if type(p) is int
            else slice(p[0], p[0] + p[1] * p[2], p[1])
            for p in self.places
        )
        out = np.array(x)
        out[index] = out[index] + value if self.adds else value
        return out

    def routine(self, value: Node | None) -> Routine:
        """Machine code of it: (array, entries if computed, places) -> 1, or REFUSED where a place is out of bounds."""

        w = Writer("double")
        complex_ = self.dtype.kind == "c"
        kind = _KINDS[
            ("f" if complex_ else self.dtype.kind) + str(self.dtype.itemsize // (1 + complex_))
        ]
        strides = [math.prod(self.shape[i + 1 :]) * (1 + complex_) for i in range(len(self.shape))]
        offset = "0"
        moving: list[tuple[str, int, int]] = []
        parameters = ["ptr %x"] + ([] if value is None else ["ptr %v"])
        for n, stride, place in zip(self.shape, strides, self.places, strict=True):
            if place is None:
                p = f"%p{len(parameters)}"
                parameters.append(f"ptr {p}")
                given = w.let(f"load i64, ptr {p}")
                back = w.let(f"icmp slt i64 {given}, 0")
                at = w.let(f"select i1 {back}, i64 {w.sum(given, str(n))}, i64 {given}")
                w.unless(w.let(f"icmp ult i64 {at}, {n}"))
                offset = w.sum(offset, w.let(f"mul i64 {at}, {stride}"))
            elif type(place) is int:
                offset = w.sum(offset, str(place * stride))
            else:
                start, step, length = place
                offset = w.sum(offset, str(start * stride))
                moving.append((str(step * stride), length, 0))
        one = value is None or math.prod(value.shape) == 1
        behind = 1 + complex_
        for i in reversed(range(len(moving))):
            step, length, _ = moving[i]
            moving[i] = (step, length, 0 if one else behind)
            behind *= length
        if complex_:
            moving.append(("1", 2, 1))
        self._written(w, kind, offset, "0", moving, value)
        name = "tg_update_" + "_".join(
            str(x)
            .replace("-", "m")
            .replace("(", "")
            .replace(")", "")
            .replace(", ", "x")
            .replace(",", "")
            for x in (
                int(self.adds),
                self.dtype.char,
                *self.shape,
                *self.places,
                self._literal(kind) if value is None else ("one" if one else "all"),
            )
        ).replace(".", "p").replace("+", "")
        text = w.function(name, ", ".join(parameters))
        return Routine("update", name, [], [], 0, math.prod(self.lengths), {name: text})

    def _written(
        self, w: Writer, kind: str, at: str, source: str, moving: list[Any], value: Node | None
    ) -> None:
        """Write loops over the moving axes, and inside the store of one entry."""
        if moving:
            (step, length, by), *rest = moving
            with w.loop("0", str(length)) as i:
                here = w.sum(at, w.let(f"mul i64 {i}, {step}"))
                there = w.sum(source, w.let(f"mul i64 {i}, {by}"))
                self._written(w, kind, here, there, rest, value)
            return
        x = w.let(f"getelementptr {kind}, ptr %x, i64 {at}")
        new = (
            self._literal(kind)
            if value is None
            else w.let(f"load {kind}, ptr {w.let(f'getelementptr {kind}, ptr %v, i64 {source}')}")
        )
        if self.adds:
            word = "fadd" if kind in ("double", "float") else "add"
            new = w.let(f"{word} {kind} {w.let(f'load {kind}, ptr {x}')}, {new}")
        w.lines.append(f"  store {kind} {new}, ptr {x}")

    def _literal(self, kind: str) -> str:
        if kind in ("double", "float"):
            number = float(np.float32(self.constant)) if kind == "float" else float(self.constant)
            return "0x" + struct.pack(">d", number).hex().upper()
        return str(int(self.constant))


class _Link:
    """One link of a chain: the version of the array that it reads, and the update that it becomes."""

    __slots__ = ("base", "made", "made_of", "update")

    def __init__(self, base: Node, made: Node, made_of: list[Node], update: Update) -> None:
        self.base, self.made, self.made_of, self.update = base, made, made_of, update


def in_place(body: Graph, carried: int) -> tuple[Graph, frozenset[int]]:
    """The body of a loop with its chains replaced by updates, and the positions of the carried arrays that stay in one place."""
    own: set[int] = set()
    if any(type(s) is Guard for s in body.steps):
        return body, frozenset()
    for k in range(carried):
        if _may_be(body.inputs[k]):
            changed = _chained(body, k)
            if changed is not None:
                body = changed
                own.add(k)
    before = _read_before(list(body.nodes))
    for node in body.nodes:
        if type(node.function) is Update:
            node.function.after = before[node]
    return body, frozenset(own)


def _read_before(nodes: Sequence[Node]) -> dict[Node, tuple[Node, ...]]:
    """For each update, the other readers of the version that it changes."""
    read: dict[Node, list[Node]] = {}
    for node in nodes:
        for x in node.inputs:
            read.setdefault(x, []).append(node)
    return {
        node: tuple(x for x in read[node.inputs[0]] if x is not node)
        for node in nodes
        if type(node.function) is Update
    }


def _may_be(x: Node) -> bool:
    kinds = _KINDS if x.dtype.kind != "c" else {"c16": 0, "c8": 0}
    return (
        math.prod(x.shape) * x.dtype.itemsize >= LEAST_BYTES
        and x.dtype.kind + str(x.dtype.itemsize) in kinds
    )


def _chained(body: Graph, k: int) -> Graph | None:
    """The body with updates for carried array `k`; None if no chain leads from its input to its output."""
    first, last = body.inputs[k], body.outputs[k]
    readers: dict[Node, list[Node]] = {}
    for node in body.nodes:
        for x in node.inputs:
            readers.setdefault(x, []).append(node)
    returned = [y for y in body.outputs if isinstance(y, Node)]
    links: list[_Link] = []
    node = last
    if not isinstance(node, Node):
        return None
    while node is not first:
        found = _links_to(node, readers, returned)
        if not found or len(links) + len(found) > MOST_LINKS:
            return None
        links += found
        node = found[-1].base
        if node is not first and node in returned:
            return None
    if not links or first in returned:
        return None
    changed = sum(math.prod(link.update.lengths) for link in links)
    if changed * SPARSE > math.prod(first.shape):
        return None
    links.reverse()
    return _rewritten(body, links)


def _links_to(node: Node, readers: dict[Node, list[Node]], returned: list[Node]) -> list[_Link]:
    """The links that lead to a version of an array, the last one first: one store, or additions in a row."""
    if node.name in ("stored", "setitem") and len(node.args) > 1:
        base = node.inputs[node.args[0].index] if type(node.args[0]) is Ref else None
        value = node.args[-1]
        if base is None or _look(base) != _look(node):
            return []
        link = _link(base, node, _index_of(node), value, False)
        return [] if link is None else [link]
    if node.name != "add" or len(node.inputs) != 2 or node.kwargs:
        return []
    # The leaves of a tree of additions. All but one leaf are scattered entries without another reader.
    links: list[_Link] = []
    waiting, base = [node], None
    while waiting:
        x = waiting.pop()
        alone = x is node or (len(readers.get(x, ())) == 1 and x not in returned)
        if (
            alone
            and x.name == "add"
            and len(x.inputs) == 2
            and not x.kwargs
            and _look(x) == _look(node)
        ):
            waiting += x.inputs
            continue
        if alone and x.name == "scatter" and len(x.args) == 1 and _look(x) == _look(node):
            link = _link(x, node, x.kwargs.get("index"), x.args[0], True, x)
            if link is not None:
                links.append(link)
                continue
        if base is not None or _look(x) != _look(node):
            return []
        base = x
    if base is None or not links:
        return []
    # Each addition reads the result of the one before. Intermediate results have no other reader.
    links.reverse()
    made = base
    for i, link in enumerate(links):
        link.base = made
        made = link.made = (
            node
            if i == len(links) - 1
            else Recorded(None, "between", (), {}, (), np.zeros((), node.dtype))
        )
        made.shape = node.shape  # type: ignore[misc]
    links.reverse()
    return links


def _link(
    base: Node, made: Node, index: Any, value: Any, adds: bool, call: Node | None = None
) -> _Link | None:
    """A link made of an index and the stored value; None for kinds of index or value that updates lack."""
    call = made if call is None else call
    parts = list(index) if type(index) is tuple else [index]
    if any(p is None or type(p) is bool for p in parts):
        return None
    if Ellipsis in [p for p in parts if p is Ellipsis]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(made.shape) - len(parts) + 1)
    parts += [slice(None)] * (len(made.shape) - len(parts))
    if len(parts) != len(made.shape):
        return None
    places: list[Any] = []
    made_of: list[Node] = []
    for part, n in zip(parts, made.shape, strict=True):
        if type(part) is Ref:
            x = call.inputs[part.index]
            if x.shape or x.dtype != np.int64:
                return None
            made_of.append(x)
            places.append(None)
        elif type(part) is int or isinstance(part, np.integer):
            places.append(int(part) % n)
        elif type(part) is slice and not any(
            type(b) is Ref for b in (part.start, part.stop, part.step)
        ):
            start, stop, step = part.indices(n)
            places.append((start, step, len(range(start, stop, step))))
        else:
            return None
    update = Update(adds, places, None, made.shape, made.dtype)
    if type(value) is Ref:
        x = call.inputs[value.index]
        if x.dtype != made.dtype or list(x.shape) not in (update.lengths, [], [1]):
            return None
        made_of.insert(0, x)
    elif made.dtype.kind == "f" and type(value) in (int, float, np.float64):
        update.constant = float(value)
    elif type(value) in (int, float, bool) and not value:
        update.constant = 0
    else:
        return None
    if made.dtype.kind == "c" and update.constant is not None:
        update.constant = 0.0
    return _Link(base, made, made_of, update)


def _rewritten(body: Graph, links: Sequence[_Link]) -> Graph | None:
    """The body with updates in the place of a chain, in an order in which each version is read before it changes; None if there is none."""
    now: dict[Node, Node] = {}
    updates: list[Recorded] = []
    for link in links:
        inputs = [now.get(link.base, link.base), *link.made_of]
        refs = tuple(Ref(i) for i in range(len(inputs)))
        update = Recorded(link.update, "update", refs, {}, inputs, np.zeros((), link.made.dtype))
        update.shape = link.made.shape
        now[link.made] = update
        updates.append(update)
    steps: list[Node] = []
    for node in body.nodes:
        if node in now and now[node] in updates:
            continue
        steps.append(node.renamed(now))
    for update in updates:
        update.inputs = tuple(now.get(x, x) for x in update.inputs)
    outputs = [now.get(y, y) if isinstance(y, Node) else y for y in body.outputs]
    graph = Graph(body.inputs, [*steps, *updates], outputs)
    needed = _needed(graph)
    before = _read_before(needed)
    ordered = _ordered(graph, needed, lambda n: before.get(n, ()))
    return None if ordered is None else Graph(graph.inputs, ordered, outputs)


def _needed(graph: Graph) -> list[Node]:
    """The calls that the outputs depend on, each once."""
    found: dict[Node, None] = {}
    waiting = [y for y in graph.outputs if isinstance(y, Node)]
    inputs = set(graph.inputs)
    while waiting:
        x = waiting.pop()
        if x in found or x in inputs:
            continue
        found[x] = None
        waiting += x.inputs
    return list(found)


def _ordered(
    graph: Graph, needed: Sequence[Node], after: Callable[[Node], Sequence[Node]]
) -> list[Any] | None:
    """The calls in an order that respects operands and the given precedence, stable otherwise; None if the precedence has a cycle."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    order: list[Any] = []
    state: dict[Node, int] = dict.fromkeys(graph.inputs, 2)
    for root in sorted(needed, key=lambda n: place[n]):
        waiting = [root]
        while waiting:
            x = waiting[-1]
            if state.get(x) == 2:
                waiting.pop()
                continue
            before = [y for y in (*x.inputs, *after(x)) if state.get(y) != 2]
            if not before:
                state[x] = 2
                order.append(x)
                waiting.pop()
            elif state.get(x) == 1:
                return None
            else:
                state[x] = 1
                waiting += sorted(before, key=lambda n: -place[n])
    return order


__all__ = ["Update", "in_place", "plainly"]
