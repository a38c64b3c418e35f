"""Sharing: what several calls compute of one matrix is computed once.

Equal calls become one call. Inverse, determinant, its logarithm and solutions of one matrix use one LU factorisation. If a program asks
for eigenvalues and for eigenvectors of one matrix, both come from one call; so do singular values and their vectors.

Invariant: the graph computes the same outputs, up to rounding, and raises where one of its calls would have raised.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..ops import linear_systems as systems
from . import lapack
from .arrays import F4, F8
from .graph import Graph, Guard, Node, Recorded, Ref

ALIKE = frozenset(
    "factors solution solve inverse inv det slogdet cholesky eigh eigvalsh eig eigvals svd svdvals qr expm logm sqrtm".split()
)
"""Names of the matrix functions that may be shared: they cost more than looking for an equal call."""

_BY_FACTORS = ("inv", "det", "slogdet", "solution", "solve", "factors")
_QUIET = ("det", "slogdet")
"""Of `_BY_FACTORS`, the functions that accept a singular matrix."""

_PARTS = {"eigvalsh": ("eigh", 0), "svdvals": ("svd", 1)}
"""Name of a function of values alone -> the function that also computes vectors, and the position of the values among its outputs."""


def shared(graph: Graph) -> Graph:
    """The graph with one call for each group of calls that share work; the same graph if no two calls do."""
    found = [node for node in graph.nodes if node.name in ALIKE]
    if len(found) < 2:
        return graph
    graph = _Alike(graph).run()
    return _Whole(graph).run().pruned()


class _Pass:
    """A rewriting of a graph: `made` says what becomes of each matrix call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Any] = []
        self.now: dict[int, Any] = {}

    def of(self, x: Any) -> Any:
        """The value in the new graph."""
        return self.now.get(id(x), x) if isinstance(x, Node) else x

    def made(self, node: Node) -> Node | None:
        """The node that replaces a call; None if the call stays."""
        raise NotImplementedError

    def run(self) -> Graph:
        """The rewritten graph."""
        for step in self.graph.steps:
            if type(step) is Guard:
                self.steps.append(replace(step, node=self.of(step.node)))
                continue
            assert isinstance(step, Node)
            other = self.made(step) if step.name in ALIKE else None
            if other is not None:
                self.now[id(step)] = other
            else:
                self.steps.append(self.again(step))
        outputs = [self.of(y) for y in self.graph.outputs]
        return Graph(self.graph.inputs, self.steps, outputs)

    def again(self, node: Node) -> Node:
        """The call on the new graph's operands."""
        inputs = [self.of(x) for x in node.inputs]
        changed = any(x is not y for x, y in zip(inputs, node.inputs, strict=True))
        if changed and id(node) not in self.now:
            self.now[id(node)] = node.with_inputs(inputs)
        return self.of(node)  # type: ignore[no-any-return]


class _Alike(_Pass):
    """Merges equal calls: same function, operands and settings."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.known: dict[Any, Node] = {}

    def made(self, node: Node) -> Node | None:
        """The first of the equal calls."""
        settings = sorted(node.kwargs.items())
        key = (
            node.name,
            tuple(id(self.of(x)) for x in node.inputs),
            _frozen(node.args),
            tuple((k, _frozen(x)) for k, x in settings),
        )
        if key in self.known:
            return self.known[key]
        self.known[key] = self.again(node)
        return None


def _frozen(value: Any) -> Any:
    """An argument as a hashable key."""
    if type(value) is Ref:
        return "input", value.index
    if type(value) in (tuple, list):
        return tuple(map(_frozen, value))
    if type(value) in (bool, int, float, str, type(None)):
        return type(value), value
    return id(value)  # the graph keeps the object alive, so its id stays its own


class _Whole(_Pass):
    """Replaces calls on one matrix by parts of one call: an LU factorisation, or values with vectors."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.factored: dict[int, list[Node]] = {}
        self.vectors: dict[Any, Node] = {}
        self.known: dict[int, Node] = {}
        for node in graph.nodes:
            if node.name in _BY_FACTORS and _by_lu(node):
                self.factored.setdefault(id(node.inputs[0]), []).append(node)
            elif node.name in ("eigh", "svd") and hasattr(
                getattr(node.function, "run", None), "shapes"
            ):
                self.vectors.setdefault(_of_vectors(node.name, node), node)

    def made(self, node: Node) -> Node | None:
        if node.name in _PARTS:
            name, which = _PARTS[node.name]
            whole = self.vectors.get(_of_vectors(name, node))
            return None if whole is None else self._part(self._once(whole), which, node)
        if node in self.vectors.values():
            return self._once(node)
        family = self.factored.get(id(node.inputs[0]), []) if node.inputs else []
        if len(family) < 2 or node not in family or all(x.name in _QUIET for x in family):
            return None
        return self._of_factors(node, node.inputs[0])

    def _once(self, node: Node) -> Node:
        """The shared call, appended to the new graph before its first reader."""
        if id(node) not in self.known:
            self.known[id(node)] = self.again(node)
            self.steps.append(self.known[id(node)])
        return self.known[id(node)]

    def _call(
        self,
        function: Callable[..., Any],
        name: str,
        args: Any,
        inputs: Any,
        shape: Any,
        dtype: Any,
    ) -> Node:
        """A new call."""
        node = Recorded(function, name, args, {}, inputs, np.empty((), dtype))
        node.shape = tuple(shape)
        self.steps.append(node)
        return node

    def _part(self, whole: Node, which: int, like: Node) -> Node:
        """One output of a call whose outputs lie in one flat array."""
        shapes = whole.function.run.shapes(whole.inputs[0].shape, *whole.args[1:], **whole.kwargs)
        start = sum(map(math.prod, shapes[:which]))
        size = math.prod(like.shape)
        chosen = (Ref(0), slice(start, start + size))
        part = self._call(operator.getitem, "getitem", chosen, [whole], (size,), whole.dtype)
        if part.dtype != like.dtype:  # a real output among complex ones
            part = self._call(np.real, "real", (Ref(0),), [part], (size,), like.dtype)
        shape = like.shape
        return self._call(np.reshape, "reshape", (Ref(0), shape), [part], shape, like.dtype)

    def _of_factors(self, node: Node, a: Node) -> Node:
        """The call on LU factors; the factors are appended to the new graph before the first such call."""
        known, dtype = self.known.get(id(a)), a.dtype
        if known is None:
            shape = (*a.shape[:-2], a.shape[-1] + 1, a.shape[-1])
            known = self._call(systems.factored, "factors", (Ref(0),), [self.of(a)], shape, dtype)
            self.known[id(a)] = known
        if node.name == "factors":
            return known
        if node.name in ("solution", "solve"):
            given = node.args[0] if node.name == "solution" else node.args
            inputs = [*map(self.of, node.inputs), known]
            args = ([*given, Ref(len(node.inputs))],)
            made = self._call(systems.solution_of, "solution", args, inputs, node.shape, dtype)
            made.kwargs = node.kwargs
            return made
        function, name = _FROM_FACTORS[node.name]
        if node.name != "slogdet":
            return self._call(function, name, (Ref(0),), [known], node.shape, dtype)
        both = (2 * math.prod(a.shape[:-2]),)
        made = self._call(function, name, (Ref(0),), [known], both, dtype)
        if node.shape == both:
            return made
        # The factors are kept with it (ops/linear_algebra.py).
        flat = self._call(np.ravel, "ravel", (Ref(0),), [known], (math.prod(known.shape),), dtype)
        parts = ([Ref(0), Ref(1)],)
        return self._call(np.concatenate, "concatenate", parts, [made, flat], node.shape, dtype)


_FROM_FACTORS = {
    "inv": (systems.inverted, "inverse"),
    "det": (systems.determinant, "determinant"),
    "slogdet": (systems.log_determinant, "log_determinant"),
}


def _by_lu(node: Node) -> bool:
    """Whether a call factors its matrix, and has a form that takes the factors."""
    a = node.inputs[0] if node.inputs else None
    given = node.args[0] if node.name == "solution" else node.args
    solves = node.name in ("solution", "solve")
    if a is None or len(given) != 1 + solves or type(given[0]) is not Ref or given[0].index:
        return False
    if (
        any(v for k, v in node.kwargs.items() if k != "adjoint" or not solves)
        or a.dtype.char not in "fdFD"
    ):
        return False
    if node.dtype != a.dtype or a.shape[-2:-1] != a.shape[-1:] or not math.prod(a.shape):
        return False
    if len(a.shape) > 2 and (
        a.dtype not in (F4, F8) or a.shape[-1] > lapack.MOST or node.name == "solve"
    ):
        return False  # NumPy has a loop over stacks
    return node.name != "slogdet" or bool(node.shape)  # NumPy's own has two results


def _of_vectors(name: str, node: Node) -> Any:
    """A key that a call of `name` shares with the calls for its parts; calls of another form have a key of their own."""
    if len(node.inputs) != 1 or len(node.shape) == 0 or type(node.args[0]) is not Ref:
        return id(node)
    side = next(iter([*node.args[1:], *node.kwargs.values()]), "L") if name == "eigh" else ""
    return name, id(node.inputs[0]), str(side).upper()


__all__ = ["shared"]
