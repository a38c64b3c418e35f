"""Loops that say they are loops: of `tg.scan`, `fori_loop` and `while_loop` in a compiled function one step is traced, not all.

A step is traced by a trace inside the trace (`Inner`): what it is given each turn are inputs of a graph of its own, and values of the
outer trace that it meets become inputs too (closure conversion). A *pass* is such a step with what it carries, and the stacks that
it reads and makes row by row. Its derivative is again a pass, the other way round, whose step is the pullback of the step; a
program of passes is differentiated by going back through them (`_way_back`), to any order.

A pass of a known number of turns is a `LoopCall` of the graph (rolling.py). That of a `while` has as many turns as the values say:
its stacks are `Rows`, which nobody but passes reads, and its call is a `WhileCall`.

A step runs again where its adjoint is traced: with the variables that it closes over as they were (closures.py), and only if it still does
what it did.

Invariant: what cannot be traced like this (Python looks at a value of the turn, a carry changes its dtype, a step has effects) raises
`Unrolled` before anything is returned: then the loop runs in Python, step by step, as it does without `tg.compile`.
"""

from __future__ import annotations

import gc
import operator
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import dual, storage
from ..core.closures import called_by, closed_over, content, kept_by
from ..core.mode import is_grad_enabled
from ..core.packing import flat, op_of_calls, unpacked
from ..core.primitive import apply
from ..core.tape import own_tape
from ..core.tensor import Tensor, value_of, wrap
from ..transforms.loops import outside_of, pulled
from . import callout, sharing
from .entries import plainly
from .graph import Graph, Guard, Node, Recorded, Ref
from .rolling import Loop, LoopCall, _signature, part_of
from .tracing import Later, LeftBehind, Trace, Traced, Unrolled, loop_key

LEAST = 32
"""Steps of a loop below which they are traced one by one: they become part of what is around them."""

# ---------------------------------------------------------------------------------------------------- a step's trace


class Stores(Unrolled):
    """A step writes to what it was given."""


class Inner(Trace):
    """The trace of a step: values of the trace around it become inputs when they are met."""

    def __init__(self, outer: Trace, key: Any) -> None:
        super().__init__(outer.draws)
        self.outer = outer
        self.met, self.wholes = outer.met, outer.wholes
        self.unrolled = outer.unrolled
        self.exact = outer.exact
        self.key = key
        self.lifted: dict[Node, tuple[Traced, Traced]] = {}

    def adopted(self, value: Traced) -> Traced:
        """A value of a trace around this one, as an input of this one."""
        if value.home is not self.outer:
            value = self.outer.adopted(value)
        known = self.lifted.get(value.node)
        if known is None:
            node = _input_like(value.shape, value.dtype, value.node.weak)
            later = value.later() if value.large else value.value
            inside = (
                Traced.of(self, node, later)
                if type(later) is Later
                else Traced(self, node, later, given=True)
            )
            known = self.lifted[value.node] = (inside, value)
        return known[0]

    def guards(self) -> bool:
        return False

    def read(self, traced: Traced, what: str) -> Any:
        if not self.open:
            raise self.left(what)
        raise Unrolled(what)

    def left(self, what: str) -> BaseException:
        return LeftBehind(self.key, what)

    def write(
        self,
        traced: Traced,
        node_of: Callable[[], Traced],
        what: str,
        index: Any = None,
        stored: Any = None,
    ) -> None:
        if traced.root().given:
            raise Stores(what)
        super().write(traced, node_of, what, index, stored)


def _input_like(shape: tuple[int, ...], dtype: np.dtype, weak: bool = False) -> Node:
    node = Recorded(None, "input", (), {}, (), np.zeros((), dtype))
    node.shape, node.weak = shape, weak
    return node


class Stack:
    """What passes read and make row by row, and what a row is like."""

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.value = value
        self.shape = shape
        self.dtype = dtype


def _example(value: Any) -> Any:
    """A value like this one, on which a step is tried."""
    if type(value) is Stack:
        known = value.value
        if type(known) is Traced:
            known = known.later() if known.large else known.value
        if isinstance(known, Later | Rows):
            return _unknown(value.shape, value.dtype)
        return np.array(known[0])[()]
    if type(value) is not Traced:
        return value if type(value) is float else np.array(value)[()]
    known = value.later() if value.large else value.value
    return _unknown(value.shape, value.dtype) if type(known) is Later else known


def _unknown(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Entries to try a step on where nobody has computed them: ones, and matrices that can be factorised."""
    entries = np.ones(shape, dtype)
    if len(shape) > 1 and shape[-1] == shape[-2] and dtype.kind in "fc":
        entries += np.diag(np.arange(shape[-1], dtype=dtype))
    return entries[()]


class _Traced:
    """A step's graph: inputs, the nodes of the next carry, the results, copies of the carry, and the test."""

    def __init__(
        self, trace: Trace, p: Pass, carry: Sequence[Any], stacks: Sequence[Stack]
    ) -> None:
        """Trace one step of a loop on examples of its carry and rows: inputs, recorded calls, outputs, and tensors that it closes over."""
        inner = Inner(trace, p.key)
        token = storage.tracing.set(inner)
        own = own_tape()  # what a step records is not on anybody's way back
        try:
            with np.errstate(all="ignore"), own:
                given = [inner.input(_example(x)) for x in carry]
                rows = [inner.input(_example(x)) for x in stacks]
                try:
                    nexts, made = p.step(list(given), list(rows))
                    goes = [p.test(nexts)] if p.test is not None else []
                except np.linalg.LinAlgError as error:  # of these values, perhaps, and no others
                    raise Unrolled(str(error)) from None
                self.nexts = [self._node(inner, x) for x in nexts]
                self.made = [self._node(inner, x) for x in made]
                self.goes = [self._node(inner, x) for x in goes]
                self.before = [inner.call(np.array, (t,), {}, "copy").node for t in given]
        finally:
            inner.open = False
            storage.tracing.reset(token)
        self.steps = inner.graph.steps
        self.outside = outside_of(own.tape.code, (), [*nexts, *made]) if p.functions else {}
        """Per tracked tensor that the user's step closes over, its node: a tensor that stands for it."""
        self.fixed = [outer.frozen() for _, outer in inner.lifted.values()]
        """Values of the trace around that the step met."""
        lifted = [inside.node for inside, _ in inner.lifted.values()]
        self.inputs = [*(t.node for t in given), *lifted, *(t.node for t in rows)]
        del given, rows, nexts, made, goes, own
        inner.lifted.clear()
        kept = p.functions and sys.getrefcount(inner) > 2  # the name here, and getrefcount's own
        if kept:  # by itself, perhaps: a view and its base hold each other
            gc.collect()
        if kept and sys.getrefcount(inner) > 2:
            raise Unrolled("somebody kept a value of the step")

    def _node(self, inner: Inner, value: Any) -> Node:
        """What a step returned, as a node of its graph that is no input."""
        value = value_of(value)
        if type(value) is not Traced:
            value = inner.constant(np.asarray(value))
        elif value.home is not inner:
            value = inner.adopted(value)
        if value.node.function is None:
            value = inner.call(np.array, (value,), {}, "copy")
        return value.strong().node  # type: ignore[no-any-return]

    @property
    def outputs(self) -> list[Node]:
        return [*self.nexts, *self.made, *self.before, *self.goes]

    def same(self, other: _Traced) -> bool:
        """Whether two traces of one step found the same: it does nothing that the next turn would notice."""
        pairs = {(x, y) for x, y in zip(self.inputs, other.inputs, strict=False)}
        lifted = zip(map(_origin, self.fixed), map(_origin, other.fixed), strict=False)
        return (
            len(self.inputs) == len(other.inputs)
            and len(self.outputs) == len(other.outputs)
            and self.outside.keys() == other.outside.keys()
            and all(_alike(x, y, pairs) for x, y in lifted)
            and all(_alike(x, y, pairs) for x, y in zip(self.outputs, other.outputs, strict=True))
        )


def _origin(value: Traced) -> Node:
    """The call that a value comes from, through the steps whose input it is."""
    home = value.home
    while type(home) is Inner and value.node.function is None:
        outer = next((o for inside, o in home.lifted.values() if inside.node is value.node), None)
        if outer is None:
            break
        value, home = outer, outer.home
    return value.node


class _Entries:
    """A constant array, equal to another of its entries to the bit: a step may make such an array, as `np.eye(100)`, at each run."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Entries):
            return NotImplemented
        x, y = self.array, other.array
        alike = x.shape == y.shape and x.dtype == y.dtype
        at_one_place = x.ctypes.data == y.ctypes.data and x.strides == y.strides
        return alike and (at_one_place or x.tobytes() == y.tobytes())

    __hash__ = None  # type: ignore[assignment]


def _alike(x: Node, y: Node, known: set[tuple[Node, Node]]) -> bool:
    """Whether two nodes are one, or the same call of such."""
    waiting = [(x, y)]
    while waiting:
        pair = waiting.pop()
        x, y = pair
        if x is y or pair in known:
            continue
        known.add(pair)
        # One call may be recorded as that of an operator on numbers, and again as that of NumPy's function.
        mixed = type(x) is not type(y)
        if (mixed and not (x.of_numbers or y.of_numbers)) or x.function is None:
            return False
        if len(x.inputs) != len(y.inputs):
            return False
        if hasattr(x.function, "loop") and hasattr(y.function, "loop"):
            a, b = x.function.loop, y.function.loop
            if replace(a, body=b.body) != b or len(a.body.inputs) != len(b.body.inputs):
                return False
            known.update(zip(a.body.inputs, b.body.inputs, strict=True))
            waiting += zip(a.body.outputs, b.body.outputs, strict=False)
        elif mixed or not x.of_numbers:
            numbers: list[Any] = []
            others: list[Any] = []
            if _signature(x, numbers, _Entries) != _signature(y, others, _Entries):
                return False
            bits, theirs = ([np.asarray(n).tobytes() for n in ns] for ns in (numbers, others))
            if bits != theirs:
                return False
        elif repr(x.args) != repr(y.args):
            return False
        waiting += zip(x.inputs, y.inputs, strict=True)
    return True


# ---------------------------------------------------------------------------------------------------- passes

Step = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]


class Pass:
    """A step, how often and which way it is made. Without `turns` a `while` says it, by `test` of the next carry."""

    def __init__(
        self,
        step: Step,
        turns: int | None,
        backward: bool,
        outside: Sequence[Any],
        test: Callable[[list[Any]], Any] | None = None,
        functions: Sequence[Any] = (),
        key: Any = None,
    ) -> None:
        """A pass over the turns of a loop; `turns` is None where a test ends it."""
        self.step = step
        self.functions = functions
        """What the user wrote of it; the step of an adjoint is our own."""
        self.key = key
        self.turns = turns
        self.backward = backward
        self.outside = list(outside)
        """Nodes of the tracked tensors that the step closes over."""
        self.test = test
        self.traced: dict[Any, tuple[_Traced, Graph, Trace]] = {}
        self.emitted: dict[Any, Any] = {}
        self.adjoints: dict[Any, Pass] = {}
        self.first: tuple[_Traced, Trace, Sequence[Any], Sequence[Any]] | None = None
        """What the first run of a user's step found, and on what."""

    def unchanged(self) -> bool:
        """Whether a run of the step finds what the first one did."""
        if self.first is None:
            return True
        first, trace, carry, rows = self.first
        return first.same(_Traced(trace, self, carry, [_stack(x) for x in rows]))

    def over(
        self, trace: Trace, carry: Sequence[Any], stacks: Sequence[Stack], go: Any = None
    ) -> tuple[list[Any], list[Stack], list[Stack]]:
        """The pass as a call of the program: what is carried in the end, the stacks made, and what each turn was given to carry."""
        key = (id(trace), *map(_identity, carry), *(_identity(s.value) for s in stacks))
        if (
            key not in self.emitted
        ):  # its operands are kept with it, so that no other has their identity
            self.emitted[key] = (self._emitted(trace, carry, stacks, go), trace, carry, stacks)
        return self.emitted[key][0]  # type: ignore[no-any-return]

    def _emitted(
        self, trace: Trace, carry: Sequence[Any], stacks: Sequence[Stack], go: Any
    ) -> tuple[list[Any], list[Stack], list[Stack]]:
        """Emit the loop into a trace: the last carry, the rows that the step made, and the rows kept for the adjoint."""
        kinds = (id(trace), *map(_kind_of, carry), *((s.shape, s.dtype) for s in stacks))
        if kinds not in self.traced:  # the trace is kept with it, so that no other has its identity
            step = _Traced(trace, self, carry, stacks)
            for x, node in zip(carry, step.nexts, strict=True):
                if (node.shape, node.dtype) != _kind_of(x):
                    raise Unrolled("the carry changes its dtype")
            recorded = Graph(step.inputs, step.steps, step.outputs).pruned()
            body = plainly(sharing.shared(recorded), again=not self.functions)
            self.traced[kinds] = step, body, trace
        step, body, _ = self.traced[kinds]
        fixed = step.fixed
        given = [*carry, *fixed, *(s.value for s in stacks)]
        function: Any
        if self.turns is None:
            loop = Loop(
                0,
                body,
                len(carry),
                len(fixed),
                [(0, 1)] * len(stacks),
                self.backward,
                True,
                bool(step.goes),
            )
            function = WhileCall(loop)
            given = [go, *given] if step.goes else given
        else:
            at = (self.turns - 1, -1) if self.backward else (0, 1)
            loop = Loop(self.turns, body, len(carry), len(fixed), [at] * len(stacks), self.backward)
            function = LoopCall(loop)
        whole, values = _call(trace, function, given)
        last = [
            _part_of(trace, whole, values, i, n.shape, n.dtype) for i, n in enumerate(step.nexts)
        ]
        kept = []
        for i, node in enumerate([*step.made, *step.before], len(last)):
            if self.turns is None:
                part = _part_of(trace, whole, values, i, (), np.dtype(object))
            else:
                part = _part_of(trace, whole, values, i, (self.turns, *node.shape), node.dtype)
            kept.append(Stack(part, node.shape, node.dtype))
        return last, kept[: len(step.made)], kept[len(step.made) :]


def _identity(x: Any) -> Any:
    if type(x) is Traced:
        return id(x.node)
    x = np.asarray(x)
    return x.shape, x.dtype.str, x.tobytes()


def _kind(x: Any) -> tuple[tuple[int, ...], np.dtype]:
    array = np.asarray(x)
    return array.shape, array.dtype


def _call(trace: Trace, function: Any, given: Sequence[Any]) -> tuple[Node, Later]:
    """A call of a loop in the graph; nothing is computed before somebody looks."""
    nodes = []
    values = []
    for x in given:
        x = x if type(x) is Traced else trace.constant(np.asarray(x))
        x = x if x.home is trace else trace.adopted(x)
        nodes.append(x.node)
        values.append(x.later() if x.large else x.value)
    refs = tuple(Ref(i) for i in range(len(nodes)))
    whole = Recorded(function, function.__name__, refs, {}, nodes, 0)
    trace.graph.steps.append(whole)
    return whole, Later(function, (refs, {}), values, np.float64(0), ())


def _part_of(
    trace: Trace, whole: Node, values: Later, i: int, shape: tuple[int, ...], dtype: np.dtype
) -> Traced:
    """One of a loop's results."""
    part = part_of(whole, i, shape, dtype)
    trace.graph.steps.append(part)
    sample = np.zeros((1,) * len(shape), dtype)
    pick = Later(operator.itemgetter(i), ((Ref(0),), {}), [values], sample[()], shape)
    return Traced.of(trace, part, pick)


# ---------------------------------------------------------------------------------------------------- derivatives


class Cell:
    """A value of a program of passes, or a stack; its identity is what cotangents belong to."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Made:
    """A pass that was made: the cells that it read and made."""

    __slots__ = ("before", "carry", "last", "made", "outside", "p", "stacks")

    def __init__(
        self,
        trace: Trace,
        p: Pass,
        carry: Sequence[Cell],
        stacks: Sequence[Cell],
        outside: Sequence[Cell],
        go: Any = None,
    ) -> None:
        self.p = p
        self.carry, self.stacks, self.outside = carry, stacks, outside
        rows = [_stack(c.value) for c in stacks]
        last, made, before = p.over(trace, [c.value for c in carry], rows, go)
        self.last, self.made, self.before = (list(map(Cell, x)) for x in (last, made, before))


class _Sum:
    """A sum that was made."""

    __slots__ = ("parts", "total")

    def __init__(self, parts: Sequence[Cell]) -> None:
        self.parts = parts
        total = _plain(parts[0].value)
        for part in parts[1:]:
            total = total + _plain(part.value)
        self.total = Cell(total)


def _stack(value: Any) -> Stack:
    return value if type(value) is Stack else Stack(value, value.shape[1:], value.dtype)


Run = Callable[[Trace, list[Any], Sequence[Cell]], list[Cell]]
"""A program of passes: from the cells of its inputs, those of outside tensors first, to those of its outputs; the passes that it made
are appended to the list."""


def _way_back(run: Run, n: int) -> Run:
    """From the `n` inputs of a program and the cotangents of its inexact outputs to the cotangents of its inputs."""

    def back(trace: Trace, tape: list[Any], cells: Sequence[Cell]) -> list[Cell]:
        """Cotangents of the first `n` cells from those of the outputs, which follow: the calls of the pass in reverse."""
        made: list[Any] = []
        outputs = [y for y in run(trace, made, cells[:n]) if _kind_of(y.value)[1].kind in "fc"]
        cotangents: dict[Cell, list[Cell]] = {}
        for y, g in zip(outputs, cells[n:], strict=True):
            cotangents.setdefault(y, []).append(g)
        tape += made

        def total(cell: Cell) -> Cell:
            parts = cotangents.get(cell)
            if not parts:
                return Cell(np.zeros(*_kind_of(cell.value)))
            if len(parts) > 1:
                tape.append(_Sum(parts))
                cotangents[cell] = [tape[-1].total]
            return cotangents[cell][0]

        for entry in reversed(made):
            if type(entry) is _Sum:
                for part in entry.parts:
                    cotangents.setdefault(part, []).extend(cotangents.get(entry.total, ()))
            else:
                _back_through(entry, trace, tape, cotangents, total)
        return [total(cell) for cell in cells[:n]]

    return back


def _plain(value: Any) -> Any:
    return value.value if type(value) is Stack else value


def _kind_of(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    value = _plain(value)
    return (value.shape, value.dtype) if type(value) is Traced else _kind(value)


def _back_through(
    entry: _Made, trace: Trace, tape: list[Any], cotangents: dict[Cell, list[Cell]], total: Any
) -> None:
    """The adjoint of a pass, and whose cotangents it makes."""
    rows = [cotangents.get(c, []) for c in (*entry.made, *entry.before)]
    moving = [i for i, c in enumerate(entry.carry) if _kind_of(c.value)[1].kind in "fc"]
    if not any(rows) and not any(cotangents.get(entry.last[i]) for i in moving):
        return
    p = entry.p
    counts = tuple(map(len, rows))
    if counts not in p.adjoints:
        if not p.unchanged():
            raise Unrolled("what the step reads beside its arguments has changed since")
        kinds = [(c.value.shape, c.value.dtype) for c in entry.made]
        p.adjoints[counts] = _adjoint(p, counts, kinds, moving)
    carry = [*(total(entry.last[i]) for i in moving), *(_zeros(c) for c in entry.outside)]
    stacks = [*entry.before, *entry.stacks, *(c for cells in rows for c in cells)]
    back = _Made(trace, p.adjoints[counts], carry, stacks, entry.outside)
    tape.append(back)
    given = [entry.carry[i] for i in moving]
    read = [c for c in entry.stacks if _stack(c.value).dtype.kind in "fc"]
    for cell, g in zip((*given, *entry.outside, *read), (*back.last, *back.made), strict=True):
        cotangents.setdefault(cell, []).append(g)


def _zeros(cell: Cell) -> Cell:
    return Cell(np.zeros(*_kind_of(cell.value)))


def _adjoint(p: Pass, counts: tuple[int, ...], kinds: Sequence[Any], moving: Sequence[int]) -> Pass:
    """The pass of pullbacks: it carries the cotangents of the carry and of outside tensors, and makes those of the rows.

    Its rows are what the pass was given to carry and to read, then as many cotangents of each result and each carry as `counts` says.
    """
    width = len(counts) - len(kinds)  # how much the pass carries
    run, outside = p.step, p.outside  # and not the pass, which holds its adjoints: a cycle

    def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        """One step of the adjoint: from cotangents of the next carry to those of the carry, of the rows and of tensors from outside."""
        cotangents, sums = carry[: len(moving)], carry[len(moving) :]
        values = rows[: len(rows) - sum(counts)]
        added = iter(rows[len(values) :])
        totals = [_total([next(added) for _ in range(count)]) for count in counts]
        where = [i for i, v in enumerate(values) if v.dtype.kind in "fc"]

        def forward(*inexact: Any) -> Any:
            full = list(values)
            for i, v in zip(where, inexact, strict=True):
                full[i] = v
            nexts, made = run(full[:width], full[width:])
            parts = [nexts[i] for i in moving]
            parts += [y for y, (_, dtype) in zip(made, kinds, strict=True) if dtype.kind in "fc"]
            return flat([x if isinstance(x, Tensor) else storage.as_array(x) for x in parts])

        results = [
            np.zeros(*kind) if g is None else g
            for g, kind in zip(totals, kinds, strict=False)
            if kind[1].kind in "fc"
        ]
        own, found = pulled(forward, [values[i] for i in where], flat([*cotangents, *results]))
        back = [
            np.zeros(values[i].shape, values[i].dtype) if g is None else g
            for i, g in zip(where, map(found.get, own), strict=True)
        ]
        of_carry = [_total([g, totals[len(kinds) + i]]) for i, g in zip(moving, back, strict=False)]
        of_outside = [_total([g, found.get(node)]) for node, g in zip(outside, sums, strict=True)]
        return [*of_carry, *of_outside], back[len(moving) :]

    return Pass(step, p.turns, not p.backward, p.outside, key=p.key)


def _total(parts: Sequence[Any]) -> Any:
    """The sum of those that are not None; None if all are."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


class _Iterated:
    """What an entry of the tape holds: a program of passes, whose pullback is another one."""

    __slots__ = ("key", "kinds", "run")

    def __init__(self, run: Run, key: Any) -> None:
        self.run = run
        self.key = key
        self.kinds: list[Any] = []

    def evaluate(self, values: Sequence[Any]) -> Any:
        trace = storage.tracing.get()
        cells = [Cell(v) for v in values]
        self.kinds = [
            y for y in (_plain(c.value) for c in self.run(trace, [], cells)) if y.dtype.kind in "fc"
        ]
        return flat(self.kinds)

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        back = _way_back(self.run, len(xs))
        pieces = unpacked(g, self.kinds)
        try:
            if isinstance(g, Tensor):
                made = _Iterated(back, self.key)
                whole = apply(iterated.primitive, [*xs, *pieces], (made,))
                return unpacked(whole, made.kinds)
            cells = back(storage.tracing.get(), [], [Cell(v) for v in (*xs, *pieces)])
        except Unrolled as reason:  # a rule looks at values: without loops of this kind
            raise LeftBehind(self.key, str(reason)) from None
        return [_plain(c.value) for c in cells]


iterated = op_of_calls("iteration", "A loop of a compiled function, of which one step was traced.")


# ---------------------------------------------------------------------------------------------------- loops


def looped(
    functions: Sequence[Any],
    step: Step,
    init: Sequence[Any],
    stacks: Sequence[Any],
    turns: int | None,
    backward: bool = False,
    test: Callable[[list[Any]], Any] | None = None,
) -> tuple[list[Any], list[Any]] | None:
    """The last carry and the stacked results of a loop in the function that is traced; None where it has to run in Python.

    `step(carry, rows)` takes and returns lists of leaves. Without `turns` the loop goes on while `test(carry)` is true.
    """
    trace = storage.tracing.get()
    key = loop_key(functions)
    if key in trace.unrolled or (turns is not None and turns < LEAST):
        return None
    given = [*init, *stacks]
    if dual.holds_dual(tuple(given)) or not all(isinstance(x, _LEAVES) for x in given):
        return None
    before, cells = _state(functions), closed_over(functions)
    copying = (*key, "stores")
    try:
        p = Pass(step, turns, backward, (), test, functions, key)
        done = _looped(trace, p, init, stacks, copying in trace.unrolled)
        if _state(functions) != before:
            raise Unrolled("the step changes what it closes over")
        p.step = cells.within(p.step)
        p.test = cells.within(p.test) if p.test is not None else None
    except Stores as reason:  # once more with copies to write to, or step by step
        raise LeftBehind(key if copying in trace.unrolled else copying, str(reason)) from None
    except (
        Unrolled
    ) as reason:  # what the step has done beside would be done again: everything begins anew
        raise LeftBehind(key, str(reason)) from None
    return done


def _state(functions: Sequence[Any]) -> list[Any]:
    """What effects of functions show in: what they close over, their globals and objects, as far as a look at them tells."""
    seen: dict[Any, Any] = {}
    unseen = list(functions)
    while unseen:
        f = unseen.pop()
        if id(f) in seen:
            continue
        seen[id(f)] = f
        unseen += called_by(f)
        known = [
            getattr(f, "__self__", None),
            *(content(c) for c in getattr(f, "__closure__", None) or ()),
        ]
        if isinstance(f, types.FunctionType):
            known += [f.__globals__.get(name) for name in f.__code__.co_names]
        unseen += [x for x in known if isinstance(x, types.FunctionType | types.MethodType)]
        for x in known:
            inside = list(map(id, kept_by(x).values()))
            if isinstance(x, types.ModuleType) and x.__name__.split(".")[0] in _LIBRARIES:
                inside = []  # what these load when it is first asked for
            length = len(x) if isinstance(x, list | dict | set | bytearray) else 0
            seen[id(f), len(seen)] = (id(x), length, inside)
    return [state for key, state in seen.items() if type(key) is tuple]


_LIBRARIES = ("tapegrad", "numpy", "scipy")
_LEAVES = (Tensor, Traced, np.ndarray, np.generic, int, float, complex)


def _frozen(x: Any) -> Any:
    """A value as it is now, or a tensor of it."""
    if type(x) is Traced:
        return x.frozen()
    if not isinstance(x, Tensor) or type(x._value) is not Traced:
        return x
    kept = wrap(x._value.frozen())
    kept._node = x._node
    return kept


class _OnLeaves:
    """The user's step and test as functions of traced values; the step's copies of arrays that it may write to are noted.

    `copied` are the positions of such arrays in the carry; `written`, filled as the step is traced, those that it overwrites; `kinds`
    says of each result whether it is a tensor.
    """

    def __init__(self, p: Pass, init: Sequence[Any], stacks: Sequence[Any], stores: bool) -> None:
        """For a loop that begins with `init` and reads `stacks`; with `stores` the step writes to arrays that it is given."""
        self.own_step, self.own_test = p.step, p.test
        self.copied = [k for k, x in enumerate(init) if stores and _may_be_written(x)]
        self.written: set[int] = set()
        self.as_tensor = [isinstance(x, Tensor) for x in (*init, *stacks)]
        self.kinds: list[bool] = []

    def _leaves(self, values: Sequence[Any]) -> list[Any]:
        return [
            wrap(x) if t and not isinstance(x, Tensor) else x
            for x, t in zip(values, self.as_tensor, strict=False)
        ]

    def step(self, carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        """The step on leaves; it notes which parts of the carry are overwritten."""
        leaves = self._leaves((*carry, *rows))
        for k in self.copied:
            leaves[k] = (
                leaves[k].copy() if isinstance(leaves[k], Tensor) else storage.duplicate(leaves[k])
            )
        own = {k: value_of(leaves[k]) for k in self.copied}
        nodes = {k: x.node for k, x in own.items()}
        nexts, made = self.own_step(leaves[: len(carry)], leaves[len(carry) :])
        if dual.holds_dual((*nexts, *made)):
            raise Unrolled("tangents")
        for k, x in own.items():
            if x.node is not nodes[k]:
                self.written.add(k)
                if value_of(nexts[k]) is not x:
                    raise Unrolled(
                        "a step writes to what it is given, and carries on something else"
                    )
        self.kinds = [isinstance(x, Tensor) for x in (*nexts, *made)]
        return nexts, made

    def goes_on(self, carry: list[Any]) -> Any:
        """Whether the test holds, as a traced truth value."""
        answer = value_of(self.own_test(self._leaves(carry)))  # type: ignore[misc]
        if type(answer) is not Traced:
            raise Unrolled("a test that is no matter of the carry")
        answer = np.reshape(answer, ()) if answer.shape else answer
        return answer if answer.dtype == bool else answer != 0


def _looped(
    trace: Trace, p: Pass, init: Sequence[Any], stacks: Sequence[Any], stores: bool
) -> tuple[list[Any], list[Any]]:
    """The loop as a pass. With `stores` a step writes to arrays that it is given to carry, and carries these on: it gets copies, and
    what the loop began with becomes the result, as it does where the steps run one by one."""
    begin = list(init)
    users = _OnLeaves(p, init, stacks, stores)

    # The way back reads these as they are now, also where their memory is written to later.
    init, stacks = list(map(_frozen, init)), list(map(_frozen, stacks))
    values = [_value(x) for x in init]
    rows = [_value(x) for x in stacks]
    go = None
    if p.test is not None:  # numbers that the loop begins with change in it, as a counter does
        go = users.goes_on(
            [x if type(x) is Traced else trace.constant(np.asarray(x)) for x in values]
        )
    p.step, p.test = users.step, users.goes_on if p.test is not None else None
    first = _Traced(trace, p, values, [_stack(x) for x in rows])
    outside = first.outside if is_grad_enabled() else {}
    if _settled(first, init):
        values = [x if type(x) is Traced else np.asarray(x)[()] for x in values]
        first = _Traced(trace, p, values, [_stack(x) for x in rows])
    if any(map(_picks, first.steps)):
        raise Unrolled(
            "entries where a mask holds, of which there are more in one step than in another"
        )
    p.first = first, trace, values, rows
    # A step in a step is traced as often as that one, whose traces show what differs in it.
    if type(trace) is not Inner and not p.unchanged():
        raise Unrolled("a step with effects")
    p.outside = list(outside)

    moving = [i for i, x in enumerate(values) if _kind_of(x)[1].kind in "fc"]
    read = [i for i, x in enumerate(rows) if x.dtype.kind in "fc"]

    def run(trace: Trace, tape: list[Any], cells: Sequence[Cell]) -> list[Cell]:
        out, rest = cells[: len(outside)], list(cells[len(outside) :])
        carry, given = [Cell(x) for x in values], [Cell(x) for x in rows]
        for i in moving:
            carry[i] = rest.pop(0)
        for i in read:
            given[i] = rest.pop(0)
        tape.append(_Made(trace, p, carry, given, out, go))
        return [*tape[-1].last, *tape[-1].made]

    operands = [init[i] for i in moving] + [stacks[i] for i in read]
    tracked = bool(outside) or any(isinstance(x, Tensor) and x._node is not None for x in operands)
    if tracked and is_grad_enabled():
        made = _Iterated(run, p.key)
        operands = [_value(x) if not isinstance(x, Tensor) else x for x in operands]
        fixed = list(map(_frozen, outside.values()))
        whole = apply(iterated.primitive, [*fixed, *operands], (made,))
        pieces = iter(unpacked(whole, made.kinds))
        all_of = [
            _plain(c.value)
            for c in run(trace, [], [Cell(value_of(x)) for x in (*fixed, *operands)])
        ]
        results = [next(pieces) if y.dtype.kind in "fc" else y for y in all_of]
    else:
        results = [
            wrap(_plain(c.value)) if kind else _plain(c.value)
            for c, kind in zip(
                run(trace, [], [Cell(_value(x)) for x in operands]), users.kinds, strict=True
            )
        ]
    for k in users.written:
        begin[k][...] = results[k]
        results[k] = begin[k]
    return results[: len(init)], results[len(init) :]


def _may_be_written(x: Any) -> bool:
    """Whether a loop begins with an array of the program's own."""
    value = value_of(x)
    return type(value) is Traced and bool(value.shape) and not value.root().given


def _value(x: Any) -> Any:
    x = value_of(x)
    return x if type(x) is Traced or type(x) is float else np.asarray(x)[()]


def _picks(step: Any) -> bool:
    """Whether a call takes entries out where a mask holds: their number, and so a shape, is another one in each step."""
    return (
        step.__class__ is not Guard
        and step.name == "getitem"
        and any(x.dtype == bool and x.shape for x in step.inputs[1:])
    )


def _settled(first: _Traced, init: Sequence[Any]) -> bool:
    """Whether Python's numbers among the first carry may be NumPy's: whether the step makes such of them, and would of the others too."""
    weak = False
    for x, node in zip(init, first.nexts, strict=True):
        if type(x) is float:
            weak = True
            if node.dtype != np.float64:
                raise Unrolled("a number that a step makes narrower")
        elif type(x) in (int, bool, complex):
            weak = True
    narrow = (np.dtype(np.float32), np.dtype(np.complex64), np.dtype(np.float16))
    if weak and any(n.dtype in narrow for n in (*first.inputs, *first.steps)):
        raise Unrolled("Python's numbers among narrow ones")
    return weak


class Rows:
    """A stack as long as a `while`: a row of each turn."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows


def _aligned(x: np.ndarray) -> np.ndarray:
    return x if x.flags.aligned else x.copy()


class WhileCall:
    """A pass of as many turns as its rows, or as its test says: (go on at first, carry, fixed, rows) -> (last carry, rows made)."""

    __name__ = "while_loop"

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.run: Any = None

    def __call__(self, *values: Any) -> Any:
        """Run the loop until its test fails: the last carry, then the rows that each turn made."""
        loop = self.loop
        inputs = loop.body.inputs
        go = True
        if loop.tested:
            go, *values = values  # type: ignore[assignment]
        n = loop.carried + loop.fixed
        carry = [
            np.array(v, x.dtype, order="C")
            for v, x in zip(values[: loop.carried], inputs, strict=False)
        ]
        fixed = [
            _aligned(np.asarray(v, x.dtype, order="C"))
            for v, x in zip(values[loop.carried : n], inputs[loop.carried :], strict=False)
        ]
        given: list[list[Any]] = [stack.rows for stack in values[n:]]
        kinds = [y.dtype for y in loop.body.outputs[loop.carried :][: loop.kept]]
        made: list[list[Any]] = [[] for _ in kinds]
        if self.run is None:
            self.run = callout.written(loop.body, "while_loop")[0]
        turn = 0
        with np.errstate(all="ignore"):
            while go if loop.tested else turn < len(given[0]):
                row = -1 - turn if loop.backward else turn
                results = self.run(*(x[()] for x in carry), *fixed, *(rows[row] for rows in given))
                for x, y in zip(carry, results, strict=False):
                    x[...] = y
                for rows, y, dtype in zip(made, results[loop.carried :], kinds, strict=False):
                    rows.append(np.array(y, dtype)[()])
                go = not loop.tested or bool(results[-1])
                turn += 1
        return (*(x[()] for x in carry), *(Rows(x[:: -1 if loop.backward else 1]) for x in made))


__all__ = ["looped"]
