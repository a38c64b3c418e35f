"""Outer products that a loop adds up, as one product of matrices behind the loop.

    sum over turns of a[:, None] * b  =  A.T @ B,  where a turn's a and b are rows of A and B

The cotangent of a matrix that each turn multiplies by a vector (a recurrent network, a mean field, a filter) is such a sum. Turn by turn
it takes a pass over the whole matrix. The rows are a fraction of that, and the product is BLAS's.

Invariant: the graph computes what it did, but for the order of additions; no loop keeps more than `MOST_BYTES` for it.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from .graph import Graph, Guard, Node, Recorded, Ref
from .rolling import Loop, part_of

LEAST = 1 << 12
"""Entries of a matrix from which on adding to it in each turn takes longer than to keep the two vectors."""

MOST_BYTES = 1 << 25


def products_behind(graph: Graph) -> Graph:
    """The graph with such sums of its loops behind them; the same graph where there are none."""
    found = {
        call: sums
        for call in graph.nodes
        if hasattr(call.function, "loop") and (sums := _sums(call.function.loop))
    }
    return _behind(graph, found) if found else graph


def _sums(loop: Loop) -> dict[int, tuple[Node, Node, float]]:
    """The carried values to which each turn adds an outer product and does nothing else with them: by place, its factors, one a number."""
    if loop.open or not loop.turns:
        return {}
    body = loop.body
    uses = Counter(y for y in body.outputs if isinstance(y, Node))
    for step in reversed(body.steps):
        if isinstance(step, Guard):
            uses[step.node] += 1
        elif uses[step] or (step.checked and step.name != "copy"):  # a copy never raises
            uses.update(step.inputs)
    found = {}
    for k, y in enumerate(body.outputs[: loop.carried]):
        x = body.inputs[k]
        added = _added(y, x) if uses[x] == uses[y] == 1 else None
        number = 1.0
        while added is not None and uses[added] == 1 and (scaled := _scaled(added)):
            added, number = scaled[0], number * scaled[1]
        if added is not None and uses[added] == 1 and (factors := _factors(added)):
            size = sum(math.prod(f.shape) for f in factors) * y.dtype.itemsize * loop.turns
            if math.prod(y.shape) >= LEAST and size <= MOST_BYTES:
                found[k] = (*factors, number)
    return found


def _added(y: Any, x: Node) -> Node | None:
    """What a sum adds to x."""
    if not isinstance(y, Node) or y.name != "add" or len(y.inputs) != 2 or y.kwargs:
        return None
    a, b = y.inputs
    other = b if a is x else a if b is x else None
    same = other is not None and (other.shape, other.dtype) == (x.shape, x.dtype)
    return other if same and y.shape == x.shape and y.dtype == x.dtype else None


def _scaled(x: Node) -> tuple[Node, float] | None:
    """What a value is a multiple of, and by which number other than 0."""
    if len(x.inputs) != 1 or x.kwargs or x.inputs[0].shape != x.shape:
        return None
    if x.name == "negative":
        return x.inputs[0], -1.0
    numbers = [a for a in x.args if type(a) is float]
    if x.name not in ("multiply", "strong_product") or len(x.args) != 2 or len(numbers) != 1:
        return None
    return (x.inputs[0], numbers[0]) if numbers[0] and math.isfinite(numbers[0]) else None


def _factors(product: Node) -> tuple[Node, Node] | None:
    """The column and the row whose outer product a matrix is."""
    if product.name != "multiply" or len(product.inputs) != 2 or len(product.shape) != 2:
        return None
    n, m = product.shape
    if product.dtype.kind != "f" or min(n, m) < 2 or product.kwargs:
        return None
    a, b = product.inputs
    if a.shape != (n, 1):
        a, b = b, a
    fits = a.shape == (n, 1) and b.shape in ((m,), (1, m))
    return (a, b) if fits and a.dtype == b.dtype == product.dtype else None


def _behind(graph: Graph, found: dict[Node, dict[int, tuple[Node, Node, float]]]) -> Graph:
    """The graph, in which loops keep the factors and do not carry the sums."""
    steps: list[Any] = []
    now: dict[Node, Node] = {}
    places: dict[Node, dict[int, Node]] = {}
    for step in graph.steps:
        if isinstance(step, Guard):
            steps.append(replace(step, node=now.get(step.node, step.node)))
            continue
        whole = step.inputs[0] if step.inputs else None
        if whole in places and type(step.function) is operator.itemgetter:
            now[step] = places[whole][int(step.name[5:-1])]
            continue
        new = step.renamed(now)
        if step not in found:
            steps.append(new)
            continue
        places[step] = _without(new, found[step], steps)
    outputs = [now.get(y, y) if isinstance(y, Node) else y for y in graph.outputs]
    return Graph(graph.inputs, steps, outputs)


def _without(
    call: Any, sums: dict[int, tuple[Node, Node, float]], steps: list[Any]
) -> dict[int, Node]:
    """Append a loop's call without these sums, its results, and the sums; each result by its old place."""
    loop: Loop = call.function.loop
    body, outputs = loop.body, loop.body.outputs
    factors = [f for a, b, _ in sums.values() for f in (a, b)]
    kept = [k for k in range(len(outputs)) if k not in sums]
    read = {x for s in body.steps if isinstance(s, Node) for x in s.inputs} | set(outputs)
    inside = Graph(
        [x for k, x in enumerate(body.inputs) if k not in sums],
        [s for s in body.steps if isinstance(s, Guard) or s.name != "copy" or s in read],
        [*(outputs[k] for k in kept), *factors],
    ).pruned()
    fewer = replace(loop, body=inside, carried=loop.carried - len(sums))
    given = [x for k, x in enumerate(call.inputs) if k not in sums]
    refs = tuple(Ref(i) for i in range(len(given)))
    new = Recorded(type(call.function)(fewer), "loop", refs, {}, given, 0)
    steps.append(new)
    results: dict[int, Node] = {}

    def part(i: int, node: Node, by_turn: bool) -> Node:
        shape = (loop.turns, *node.shape) if by_turn else node.shape
        steps.append(part_of(new, i, shape, node.dtype))
        return steps[-1]  # type: ignore[no-any-return]

    for i, k in enumerate(kept):
        results[k] = part(i, outputs[k], k >= loop.carried)
    rows = [
        _call(
            np.reshape, "reshape", (part(len(kept) + i, f, True), (loop.turns, max(f.shape))), steps
        )
        for i, f in enumerate(factors)
    ]
    for (k, (_, _, number)), a, b in zip(sums.items(), rows[::2], rows[1::2], strict=True):
        across = _call(np.transpose, "transpose", (a,), steps)
        product = _call(np.matmul, "matmul", (across, b), steps)
        if number != 1.0:
            product = _call(np.multiply, "multiply", (product, number), steps)
        results[k] = _call(np.add, "add", (call.inputs[k], product), steps)
    return results


def _call(function: Any, name: str, args: tuple[Any, ...], steps: list[Any]) -> Node:
    """Append a call."""
    nodes = [x for x in args if isinstance(x, Node)]
    refs = tuple(Ref(nodes.index(x)) if isinstance(x, Node) else x for x in args)
    like = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Node) else x for x in args
    ]
    if function is np.matmul:
        shape = (like[0].shape[0], like[1].shape[1])
    else:
        shape = function(*like).shape
    made = Recorded(function, name, refs, {}, nodes, np.zeros((), nodes[0].dtype))
    made.shape = shape
    steps.append(made)
    return made


__all__ = ["products_behind"]
