"""The graph: what a traced program does, one node a call, in the order of the trace.

A `Node` is one call of a NumPy function (or operator, or op of this library) on other nodes and constants: the function,
its arguments with a `Ref` wherever a node's value goes, and the shape and dtype that the value had when traced. An input has
no function. A `Guard` says that the value of a node was read by Python while tracing, and what it was.

Invariant: `Graph.nodes` is in topological order, and nodes never change: passes make new graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import numpy as np

_FLOAT64 = np.dtype(np.float64)


LINES: dict[int, Callable[[], str]] = {}
"""What tells the line of the user's code that is at work, by the thread that asks for lines (clocks.py)."""


def noted_line() -> str:
    """The line of the user's code that is at work, where this thread asks for lines; else an empty one."""
    return LINES.get(get_ident(), _no_line)() if LINES else ""


def _no_line() -> str:
    return ""


class Ref:
    """Stands in a call's arguments where the value of its i-th input goes."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


class Node:
    """One call: `function(*args, **kwargs)` with the values of `inputs` for the `Ref`s; or an input of the program.

    `name` is what the call means ("add", "sum", "matmul"): what lowerings are found by. `weak` marks Python's own
    float and complex, which do not widen a float32 array. `checked`: the result's shape or dtype may depend on values.
    Which of these an object holds and which its class is a matter of size: `Recorded`, `number_call`.
    """

    __slots__ = ("inputs", "place")
    inputs: tuple[Node, ...]
    place: int
    """Where it stands among the steps, as far as a pass that is at work has noted it."""

    line = ""
    """The line of the user's code that made it, while lines are noted."""
    of_numbers = False
    """Whether it is an operator on numbers of float64, of which the class has all but operands and constants."""
    function: Any
    name: Any
    args: Any
    kwargs: Any
    shape: Any
    dtype: Any
    weak: Any
    checked: Any

    def with_inputs(self, inputs: Sequence[Node]) -> Recorded:
        """The same call on other values."""
        copy = Recorded.__new__(Recorded)
        for slot in Recorded.__slots__:
            setattr(copy, slot, getattr(self, slot))
        copy.inputs = tuple(inputs)
        return copy

    def renamed(self, now: dict[Node, Node]) -> Node:
        """The same call on what stands for its inputs in `now`, where it is noted, too; itself where nothing does."""
        if not any(x in now for x in self.inputs):
            return self
        new = now[self] = self.with_inputs([now.get(x, x) for x in self.inputs])
        return new

    def __repr__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


class Recorded(Node):
    """A call of any kind."""

    __slots__ = ("args", "checked", "dtype", "function", "kwargs", "line", "name", "shape", "weak")

    def __init__(
        self,
        function: Callable[..., Any] | None,
        name: str,
        args: Any,
        kwargs: Any,
        inputs: Sequence[Node],
        value: Any,
        checked: bool = False,
    ) -> None:
        """A recorded call; of its value the shape and dtype are kept, and whether it is a Python number (`weak`)."""
        self.function = function
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.inputs = inputs if type(inputs) is tuple else tuple(inputs)
        self.checked = checked
        self.line = noted_line()
        if type(value) is np.float64:
            self.weak = False
            self.shape = ()
            self.dtype = _FLOAT64
            return
        self.weak = type(value) is float or type(value) is complex
        array = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)
        self.shape = array.shape
        self.dtype = array.dtype


def number_call(function: Callable[..., Any], name: str, args: Any) -> type[Node]:
    """The class of the calls of an operator on float64 numbers, of which a program of scalars has as many as steps.

    All but the operands stands in the class, where one of them may be a plain number (`args` None) the arguments too.
    """
    members = {
        "function": staticmethod(function), "name": name, "kwargs": {}, "shape": (), "dtype": _FLOAT64, "weak": False, "checked": False,
        "of_numbers": True, "__slots__": () if args is not None else ("args",),
    }  # fmt: skip
    if args is not None:
        members["args"] = args
    return type(f"{name}_of_numbers", (Node,), members)


def entry_call(function: Callable[..., Any], args: Any) -> type[Node]:
    """The class of the calls that read an entry of an array of float64, at the index in the settings."""
    members = {
        "function": staticmethod(function), "name": "getitem", "args": args, "shape": (), "dtype": _FLOAT64, "weak": False,
        "checked": False, "__slots__": ("kwargs",),
    }  # fmt: skip
    return type("Entry", (Node,), members)


@dataclass(frozen=True, slots=True)
class Guard:
    """Python read this node's value while tracing: a program is good only for calls where it is the same again."""

    node: Node
    value: Any
    where: str
    what: str

    def holds(self, value: Any) -> bool:
        """Whether a value is the one seen when tracing."""
        return same(value, self.value)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal bit for bit, as far as a program can tell (NaN equals NaN, 0.0 is not -0.0)."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.dtype.hasobject is False and a.tobytes() == b.tobytes()


@dataclass(slots=True)
class Graph:
    """A traced program: inputs, calls in order, guards among them, and what it returns.

    `steps` holds nodes and guards in the order of the trace; `outputs` are nodes or, for what does not depend on any input,
    constants.
    """

    inputs: list[Node] = field(default_factory=list)
    steps: list[Node | Guard] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    @property
    def nodes(self) -> Iterator[Node]:
        """The calls, without the guards."""
        return (step for step in self.steps if type(step) is not Guard)

    def pruned(self) -> Graph:
        """The graph without calls whose value nobody asks for."""
        needed = {node for node in self.outputs if isinstance(node, Node)}
        kept: list[Node | Guard] = []
        for step in reversed(self.steps):
            if type(step) is Guard:
                needed.add(step.node)
            elif step in needed or step.checked:
                needed.update(step.inputs)
            else:
                continue
            kept.append(step)
        kept.reverse()
        return Graph(self.inputs, kept, self.outputs)


def filled(template: Any, values: Sequence[Any]) -> Any:
    """Arguments with the inputs' values in place of the `Ref`s."""
    if type(template) is Ref:
        return values[template.index]
    if type(template) in (tuple, list):
        return type(template)(filled(item, values) for item in template)
    if type(template) is dict:
        return {key: filled(item, values) for key, item in template.items()}
    if type(template) is slice:
        return slice(
            *(filled(item, values) for item in (template.start, template.stop, template.step))
        )
    return template
