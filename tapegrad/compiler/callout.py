"""The executor that is always there: a graph as a Python function, one NumPy call a line.

It computes what eager execution computes, by the same calls in the same order, without tensors, tapes and rules. Whatever
has no machine code runs like this. The text is what `compiled.source` shows; a value is released after the last line that reads it.

Invariant: it writes to nothing that it did not make, and what it returns shares no memory with anything else.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .graph import Graph, Node, Ref
from .guards import GuardFailed, Holds, as_calls

_count = 0


class Writer:
    """Python text of a graph, line by line, and the constants that it names."""

    def __init__(self, graph: Graph) -> None:
        """Write the calls of a graph as lines of Python, each result released after its last use."""
        self.names: dict[int, str] = {}
        self.constants: dict[str, Any] = {"check": _check, "output": _output}
        self._by_id: dict[int, str] = {}
        self.lines: list[str] = []
        for i, node in enumerate(graph.inputs):
            self.names[id(node)] = f"a{i}"
        self._last = _last_uses(graph)
        for position, step in enumerate(graph.nodes):
            self._call(step, len(self.names))
            self._release(position)
        self.returned = []
        taken: set[int] = set()
        for y in graph.outputs:
            text = self.names[id(y)] if isinstance(y, Node) else self.constant(y, "c")
            # What a native part or a program of the form puts out is fresh memory.
            made = isinstance(y, Node) and y.name.startswith(("native", "loops"))
            fresh = made and id(y) not in taken
            taken.add(id(y))
            self.returned.append(text if fresh else f"output({text})")

    def _call(self, node: Node, number: int) -> None:
        """The line of one node: its call, with what checks it, or a guard."""
        if (
            node.name == "constant"
            and node.args
            and not node.shape
            and isinstance(node.args[0], np.ndarray)
        ):
            self.names[id(node)] = self.constant(node.args[0][()], "c")  # no array for each call
            return
        name = self.names[id(node)] = f"v{number}"
        function = self.constant(node.function, _identifier(node.name))
        values = [self.names[id(x)] for x in node.inputs]
        if isinstance(node.function, Holds):
            guard = node.function.guard
            self.lines.append(f"{function}({values[0]})  # {guard.what}, {guard.where}")
            return
        arguments = [self.text(x, values) for x in node.args]
        arguments += [f"{key}={self.text(x, values)}" for key, x in node.kwargs.items()]
        call = f"{function}({', '.join(arguments)})"
        if node.checked:
            call = f"check({call}, {self.constant(node, 'like')})"
        self.lines.append(f"{name} = {call}  # {node.dtype}{list(node.shape)}")

    def _release(self, position: int) -> None:
        dead = [self.names[i] for i in self._last.get(position, ()) if i in self.names]
        dead = [name for name in dead if name not in self.constants]
        if dead:
            self.lines[-1] = f"{self.lines[-1].split('  #')[0]}; del {', '.join(dead)}" + (
                f"  #{self.lines[-1].split('  #', 1)[1]}" if "  #" in self.lines[-1] else ""
            )

    def text(self, value: Any, values: Sequence[str]) -> str:
        """An argument as Python text."""
        kind = type(value)
        if kind is Ref:
            return values[value.index]
        if kind is tuple:
            return "(" + "".join(self.text(x, values) + ", " for x in value) + ")"
        if kind is list:
            return "[" + ", ".join(self.text(x, values) for x in value) + "]"
        if kind is dict:
            return "{" + ", ".join(f"{k!r}: {self.text(x, values)}" for k, x in value.items()) + "}"
        if kind is slice:
            return f"slice({', '.join(self.text(x, values) for x in (value.start, value.stop, value.step))})"
        if kind in (int, bool, str, type(None)) or (kind is float and value - value == 0):
            return repr(value)
        return self.constant(value, "c")

    def constant(self, value: Any, stem: str) -> str:
        """The name of a constant in the text."""
        name = self._by_id.get(id(value))
        if name is None:
            name = stem if stem not in self.constants else f"{stem}_{len(self.constants)}"
            self._by_id[id(value)] = name
            self.constants[name] = value
        return name


def written(graph: Graph, name: str) -> tuple[Callable[..., list[Any]], str]:
    """A graph as a Python function of its inputs that returns the list of outputs, and its text."""
    global _count
    writer = Writer(as_calls(graph))
    arguments = ", ".join(f"a{i}" for i in range(len(graph.inputs)))
    body = [*writer.lines, f"return [{', '.join(writer.returned)}]"]
    text = f"def program({arguments}):\n" + "".join(f"    {line}\n" for line in body)
    _count += 1
    file = f"<tapegrad program {_count} {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), writer.constants, scope)
    return scope["program"], text


def straight(program: Any, kinds: Sequence[Any]) -> Callable[..., Any] | None:
    """What a compiled function's calls run at once where a program is no single entry of machine code: for arrays in C order and
    numbers by position, of just these kinds, and the same whole numbers and strings. All else goes the long way, by `dispatch`.

    None where arguments are of other kinds, results are not all computed, or guards look at values.
    """
    asked: list[tuple[Any, Any, Any]] = []
    for kind in kinds:
        fixed = getattr(kind, "value", None)
        if type(fixed) in (int, bool, str):
            asked.append((type(fixed), None, fixed))
            continue
        if not (type(kind) is tuple and kind[0] in ("array", "scalar", float, complex)):
            return None
        scalar = kind[0] if type(kind[0]) is type else kind[1].type
        asked.append((np.ndarray, *kind[1:]) if kind[0] == "array" else (scalar, None, None))
    if program.guards or program.structure is None or not all(x is None for x in program.leaves):
        return None
    count, run, around = len(asked), program.called, program.around
    values = [i for i, kind in enumerate(kinds) if type(kind) is tuple]
    all_values = len(values) == count
    of = weakref.ref(program)  # which holds the call
    unflatten, ndarray = program.structure.unflatten, np.ndarray
    quiet = all(n.name.startswith(("loops", "constant", "copy")) for n in program.executed.nodes)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The result of the program's calls, for arguments of its kinds; else what `dispatch` gives."""
        if kwargs or len(args) != count or (whose := of()) is None or whose.direct is None:
            return self.dispatch(*args, **kwargs)
        for a, (kind, dtype, shape) in zip(args, asked):  # noqa: B905  they are as many
            if type(a) is not kind or (
                a.shape != shape or a.dtype is not dtype or not a.flags.c_contiguous
                if kind is ndarray
                else shape is not None and a != shape
            ):
                return self.dispatch(*args, **kwargs)
        for w in around:
            if w.changed():
                return self.dispatch(*args, **kwargs)
        given = args
        if not all_values:
            args = tuple([args[i] for i in values])
        try:
            if quiet:
                return unflatten(run(*args))
            with np.errstate(all="ignore"):
                return unflatten(run(*args))
        except GuardFailed:
            return self.dispatch(*given)

    return call


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """Per position, the nodes that no later step reads."""
    last: dict[int, int] = {}
    for position, step in enumerate(graph.nodes):
        for node in (*step.inputs,) if isinstance(step.function, Holds) else (step, *step.inputs):
            last[id(node)] = position
    for node in (*graph.inputs, *(y for y in graph.outputs if isinstance(y, Node))):
        last.pop(id(node), None)
    dead: dict[int, list[int]] = {}
    for number, position in last.items():
        dead.setdefault(position, []).append(number)
    return dead


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in name)
    return (
        text
        if text.isidentifier() and not text[0].isdigit() and text not in _TAKEN
        else f"f_{text}"
    )


_TAKEN = {
    "check",
    "output",
    "slice",
    "and",
    "or",
    "not",
    "is",
    "in",
    "del",
    "program",
    "lambda",
}


def _check(value: Any, like: Node) -> Any:
    """The value, if it has the shape and dtype that it had when traced."""
    array = (
        np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic | tuple | list)
        else value
    )
    if isinstance(array, tuple | list):
        return value
    if array.shape != like.shape or array.dtype != like.dtype:
        raise GuardFailed
    return value


def _output(value: Any) -> Any:
    """A result in memory of its own."""
    if isinstance(value, np.ndarray):
        return np.array(value) if value.ndim else value[()]
    return value
