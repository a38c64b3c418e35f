"""Nesting: a graph with loops, and loops in their steps, as one native part.

A *piece* is a function of pointers: where its inputs are, where its outputs go, and scratch memory for itself and the pieces that
it calls. There are three kinds: expressions (`Body`), a sequence of pieces and routines (routines.py), which keeps what passes between
them, and a loop, whose step is a piece. So a program is one call for Python however its loops are nested, and a step costs nothing but
itself.

An array that a `while` keeps turn by turn is as long as the values say: `rows`, a pointer and a count, which grow as the loop runs and
are freed where the sequence ends that holds them. A `while` asks from time to time whether Python was interrupted.

Invariant: a piece returns 1, or, after it has freed its rows, 0 where there is no memory, 2 where a signal handler has raised,
REFUSED where the function itself would raise: an index is out of bounds, a matrix singular.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import vecmath
from ..llvm import jit
from . import clocks, sanitizer
from .arrays import DTYPES, Op
from .emit import Body
from .entries import Update, in_place
from .graph import Graph, Guard, Node, Recorded, Ref
from .guards import Holds, as_calls
from .native import (
    REFUSED,
    Argument,
    Form,
    Native,
    Result,
    announced_constants,
    announced_memory,
    announced_parts,
)
from .pairs import Unlowered
from .partition import KNOWN, Partition, Stage, renumbered
from .rolling import WORTH, Constant, Loop, LoopCall, Spliced, part_of
from .routines import may_be, read_by, routine
from .schedule import Schedule, topological
from .summing import summed_first
from .writer import Routine

ROWS = 64
"""Rows that a `while` begins with, where it keeps some; then always twice as many."""

NOTHING: Mapping[int, int] = MappingProxyType({})
FEW = 1024
"""Bytes of what a step carries, or keeps for itself, up to which they are variables of their own: LLVM keeps such in registers."""

MOST_KEPT = 1 << 24
"""Bytes of all values of a long graph without loops up to which it is one function: what its stages pass on has memory until its end."""

PAUSE = 200_000
"""Operations, about, between two looks whether Python was interrupted."""


class Piece:
    """A function of the module: its name, its inputs' and outputs' number, and the scratch memory it needs."""

    __slots__ = ("name", "own", "passed", "scratch", "work")

    def __init__(self, name: str, scratch: int, work: int) -> None:
        self.name = name
        self.own: frozenset[int] = frozenset()
        """Of a step: the numbers of the outputs that lie where the inputs of the same numbers do."""
        self.passed: Mapping[int, int] = NOTHING
        """Of a step: outputs that it does not write, as they are the inputs or outputs of these numbers."""
        self.scratch = scratch
        self.work = work
        """Operations of a call, about; of a `while`, of one turn."""

    def call(self, result: str, inputs: Sequence[str], outputs: Sequence[str], scratch: str) -> str:
        """The text of a call."""
        pointers = ", ".join(f"ptr {p}" for p in (*inputs, *outputs, scratch))
        return f"  {result} = call i32 @{self.name}({pointers})"


class Module:
    """The text of all pieces, and what they share."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.constants: list[np.ndarray] = []
        self.functions: dict[str, str] = {}
        self.declared: dict[str, None] = {}
        self.listing: list[str] = []
        self.parts: list[tuple[Sequence[Op], Any]] = []
        self.loops = 0
        self.routines: list[Routine] = []
        self.depth = 0
        self.pauses = False
        self.shared = False
        """Whether threads share some of it."""
        self.bodies: dict[Any, Piece] = {}  # steps of which several loops consist

    def _function(
        self, n_in: int, n_out: int, lines: Sequence[str], scratch: int, work: int
    ) -> Piece:
        name = f"piece{len(self.texts)}"
        parameters = [f"ptr %a{i}" for i in range(n_in)] + [f"ptr %b{i}" for i in range(n_out)]
        head = f"define internal i32 @{name}({', '.join([*parameters, 'ptr %scratch'])}) #0 {{"
        self.texts.append("\n".join([head, "entry:", *lines, "}"]))
        return Piece(name, scratch, work)

    def text(self) -> str:
        """All functions, and what they name."""
        return "\n".join(
            [
                vecmath.join(*self.functions.values()) if self.functions else "",
                *self.texts,
                *self.declared,
                *(f"@tg_const{i} = external global i8" for i in range(len(self.constants))),
                *announced_constants(self.constants),
            ]
        )

    def constant(self, value: np.ndarray) -> str:
        """The name of an array that is part of the program."""
        self.constants.append(np.ascontiguousarray(value))
        return f"@tg_const{len(self.constants) - 1}"

    # ------------------------------------------------------------------------------------ expressions

    def expressions(self, stage: Stage, ops: Sequence[Op]) -> tuple[Piece, list[Node]]:
        """Expressions of a stage, and the nodes that they read."""
        checks = [op for op in stage.arrays.checks if op.kind != "const"]
        shown, ops = len(ops), summed_first(stage.arrays, [*ops, *checks])
        sources = renumbered(stage, ops)
        from .schedule import scheduled

        schedule = scheduled(ops, sharing=self.depth == 0)
        k = len(self.texts)
        body = Body(schedule, jit.lanes(), step=self.depth > 0, number=f"{k}_")
        inside = body.run()
        shared = list(schedule.partial) if body.shares else []
        local = [n for n, (where, _) in schedule.memory.items() if where not in ("out", "own")]
        constants = [self.constant(c) for c in stage.arrays.constants]
        kinds = [
            *(f"ptr noalias readonly %in{i}" for i in range(len(sources))),
            *(f"ptr noalias readonly %const{i}" for i in range(len(constants))),
            *(f"ptr noalias %out{i}" for i in range(len(ops))),
            *(f"ptr noalias %mem{n}" for n in local),
            *(f"ptr noalias %part{n}" for n in shared),
            *(["ptr noalias %threads_own", "i64 %team"] if body.shares else []),
        ]
        text = f"define internal void @body{k}({', '.join(kinds)}) #0 {{\nentry:\n{inside}\n  ret void\n}}"
        sizes = [schedule.roots[n].size * schedule.roots[n].dtype.itemsize for n in local]
        few = sum(sizes) <= FEW and all(schedule.memory[n][0] == "full" for n in local)
        lines = [
            f"  %m{n} = alloca [{max(size, 1)} x i8], align 64"
            if few
            else f"  %m{n} = getelementptr i8, ptr %scratch, i64 {schedule.memory[n][1]}"
            for n, size in zip(local, sizes, strict=True)
        ]
        given = [
            *(f"ptr %a{i}" for i in range(len(sources))),
            *(f"ptr {c}" for c in constants),
            *(f"ptr %b{i}" for i in range(shown)),
            *(f"ptr %wrong{i}" for i in range(len(checks))),
            *(f"ptr %m{n}" for n in local),
        ]
        for n in local:
            lines += announced_memory(f"%m{n}", schedule, n)
        lines += [f"  %wrong{i} = alloca i64" for i in range(len(checks))]
        for i in range(len(checks)):
            name = "the number of indices out of bounds"
            lines += sanitizer.buffer(f"%wrong{i}", 8, 8, name, fresh=True)
        if body.shares:
            lines += _of_threads(schedule)
            given += [*(f"ptr %part{n}" for n in shared), "ptr %theirs", "i64 %team"]
            self.shared = True
            self.declared["declare ptr @malloc(i64)"] = None
            self.declared["declare void @free(ptr)"] = None
        lines.append(f"  call void @body{k}({', '.join(given)})")
        if body.shares:
            lines.append("  call void @free(ptr %block)")
        if checks:
            total = "0"
            for i in range(len(checks)):
                lines += [
                    f"  %w{i} = load i64, ptr %wrong{i}",
                    f"  %any{i} = or i64 {total}, %w{i}",
                ]
                total = f"%any{i}"
            lines += [
                f"  %right = icmp eq i64 {total}, 0",
                f"  %result = select i1 %right, i32 1, i32 {REFUSED}",
            ]
        lines.append(f"  ret i32 {'%result' if checks else '1'}")
        work = sum(op.size for op in topological(ops) if op.kind == "elem")
        work += sum(
            op.inputs[0].size for op in topological(ops) if op.kind in ("reduce", "scatter")
        )
        piece = self._function(len(sources), shown, lines, schedule.scratch, work)
        self.texts[-1] = "\n".join([*body.shares, text, self.texts[-1]])
        self.functions |= body.functions
        self.declared |= body.declared
        self.listing += ["  " * self.depth + line for line in body.loops]
        self.parts.append((ops, schedule))
        return piece, sources

    # ------------------------------------------------------------------------------------ sequences

    def sequence(
        self, graph: Graph, own: frozenset[int] = frozenset(), passed: Mapping[int, int] = NOTHING
    ) -> Piece:
        """All of a graph; outputs that are `passed` are not written. Raises Unlowered where something in it is a call of NumPy's."""
        graph = as_calls(graph)
        if not all(x.dtype in KNOWN for x in graph.inputs):
            raise Unlowered
        piece = _Sequence(self, graph, own, passed).run()
        piece.own, piece.passed = own, passed
        return piece

    # ------------------------------------------------------------------------------------ loops

    def loop(self, loop: Loop, given: Sequence[Node]) -> Piece:
        """A loop of a known number of turns, or a `while`."""
        self.loops += 1
        self.listing.append(
            "  " * self.depth + ("while:" if loop.open else f"for turn in range({loop.turns}):")
        )
        key = id(loop.body), loop.open
        known = self.bodies.get(key)
        if known is None:
            self.depth += 1
            body, own = in_place(loop.body, loop.carried)
            passed = NOTHING
            if not loop.open:
                body = _uncopied(body, loop.carried, own)
                passed = _passed(body, loop.carried, own)
            known = self.bodies[key] = self.sequence(body, own, passed)
            self.depth -= 1
        return _LoopText(self, loop, known, given).run()


class _Sequence:
    """Writes a sequence: what each piece is given, and where what it makes is kept."""

    def __init__(
        self, module: Module, graph: Graph, own: frozenset[int], passed: Mapping[int, int]
    ) -> None:
        """A graph that is written as calls in order; `own` are outputs that are computed in place, `passed` those that lie elsewhere."""
        self.module = module
        self.graph = graph
        self.own, self.passed = own, passed
        self.partition = Partition(graph)
        self.at: dict[int, str] = {id(x): f"%a{i}" for i, x in enumerate(graph.inputs)}
        self.lines: list[str] = []
        self.size = 0
        self.announced: dict[str, list[str]] = {}
        self.below = 0
        self.work = 0
        self.rows: list[str] = []
        self.calls = 0
        self.final: dict[int, str] = {}
        for k, y in enumerate(graph.outputs):
            if isinstance(y, Node):
                self.final.setdefault(id(y), f"%b{k}")

    def run(self) -> Piece:
        """The piece."""
        graph, partition = self.graph, self.partition
        wanted = {id(y) for y in graph.outputs if isinstance(y, Node)}
        wanted |= {id(node) for node in graph.nodes if isinstance(node.function, Holds)}
        plan: list[tuple[Any, list[Node], list[Node]]] = []
        for level in reversed(range(max([*partition.stages, *partition.calls, 0]) + 1)):
            calls = partition.calls.get(level, [])
            for node in calls:
                wanted.update(id(x) for x in read_by(node))
            stage = partition.stages.get(level)
            outputs = [n for n in stage.nodes if id(n) in wanted] if stage is not None else []
            if stage is not None and outputs:
                below = topological([stage.stored(n) for n in outputs] + stage.arrays.checks)
                wanted.update(id(stage.sources[op.attr]) for op in below if op.kind == "input")
            plan.append((stage, outputs, calls))
        for stage, outputs, calls in reversed(plan):
            if outputs:
                piece, sources = self.module.expressions(stage, [stage.stored(n) for n in outputs])
                self._call(piece, [self._of(x) for x in sources], [self._place(n) for n in outputs])
            for node in calls:
                self._other(node)
        return self._finished()

    def _other(self, node: Any) -> None:
        """A call that is no expression: a loop, a part of its results, or what goes with loops."""
        function = node.function
        if hasattr(function, "loop"):
            self._loop(node, function.loop)
        elif id(node) in self.at:
            pass  # a part of a loop's results
        elif type(function) is Constant:
            self.at[id(node)] = self.module.constant(function.value)
        elif type(function) is Spliced:
            self._spliced(node)
        elif type(function) is Update:
            self._update(node, function)
        else:
            self._routine(node)

    def _of(self, node: Node) -> str:
        if id(node) not in self.at:
            raise Unlowered
        return self.at[id(node)]

    def _memory(self, size: int, entry: int, what: str) -> str:
        """Memory for a value, or for a routine, of entries of so many bytes."""
        name = f"%k{self.size}"
        self.lines.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {self.size}")
        self.size += max(size + 63, 64) // 64 * 64
        self.announced[name] = sanitizer.buffer(name, size, entry, what, fresh=True)
        return name

    def _place(self, node: Node) -> str:
        """Where a value that is about to be made goes: to the output that it is, or to memory of its own."""
        if node.dtype not in KNOWN:
            raise Unlowered
        name = self.final.get(id(node)) or self._memory(
            _bytes(node), sanitizer.entry_of(node.dtype), f"the result of {node.name}"
        )
        self.at[id(node)] = name
        return name

    def _call(self, piece: Piece, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.below = max(self.below, piece.scratch)
        self.work += piece.work
        self._checked(lambda result: piece.call(result, inputs, outputs, "%under"))

    def _checked(self, text: Callable[[str], str]) -> None:
        """A call, after which the sequence ends if it did not return 1."""
        k = self.calls
        self.calls += 1
        self.lines += [
            text(f"%ok{k}"),
            f"  %fine{k} = icmp eq i32 %ok{k}, 1",
            f"  br i1 %fine{k}, label %go{k}, label %stop",
            f"go{k}:",
        ]

    def _loop(self, node: Node, loop: Loop) -> None:
        """Write the call of a loop, with memory for the parts of its result that are read."""
        piece = self.module.loop(loop, node.inputs)
        parts: dict[int, list[Node]] = {}
        for x in self.graph.nodes:
            if x.inputs and x.inputs[0] is node and x.name.startswith("loop["):
                parts.setdefault(int(x.name[5:-1]), []).append(x)
        outputs = []
        for i, y in enumerate(loop.body.outputs[: loop.carried + loop.kept]):
            found = parts.get(i, [])
            if loop.open and i >= loop.carried:
                name = self._memory(16, 8, "rows that a loop keeps")  # nobody's but other passes'
                self.rows.append(name)
            elif found:
                name = self._place(found[0])
            else:
                size = _bytes(y) * (loop.turns if i >= loop.carried else 1)
                name = self._memory(
                    size, sanitizer.entry_of(y.dtype), f"part {i} of a loop's result"
                )
            self.at |= {id(x): name for x in found}
            outputs.append(name)
        self._call(piece, [self._of(x) for x in node.inputs], outputs)

    def _routine(self, node: Node) -> None:
        """A call that is machine code of its own."""
        made = routine(node)
        self.module.routines.append(made)
        self.module.functions |= made.texts
        given = [
            self._of(x) if isinstance(x, Node) else self.module.constant(x) for x in made.reads
        ]
        given.append(self._place(node))
        if made.scratch:
            entry = sanitizer.entry_of(node.dtype)
            given.append(self._memory(made.scratch, entry, f"scratch memory of {node.name}"))
        self.work += made.work
        operands = ", ".join([*(f"ptr {x}" for x in given), *(f"i64 {n}" for n in made.numbers)])
        place = clocks.Place(node.line, made.of, node.shape)
        with clocks.read(self.lines, lambda: place):
            self._checked(lambda result: f"  {result} = call i32 @{made.name}({operands})")

    def _update(self, node: Node, update: Update) -> None:
        """Entries that change where an array lies, which is from now on another value."""
        self.at[id(node)] = self._of(node.inputs[0])
        made = update.routine(node.inputs[1] if update.constant is None else None)
        self.module.functions |= made.texts
        self.work += made.work
        operands = ", ".join(f"ptr {self._of(x)}" for x in node.inputs)
        self._checked(lambda result: f"  {result} = call i32 @{made.name}({operands})")

    def _spliced(self, node: Node) -> None:
        """Entries one after the other, of which a loop's stand together."""
        place = self._place(node)
        offset = 0
        for x in node.inputs:
            size = _bytes(x)
            name = f"%j{len(self.lines)}"
            self.lines.append(f"  {name} = getelementptr i8, ptr {place}, i64 {offset}")
            self._copy(name, self._of(x), size)
            offset += size

    def _copy(self, to: str, source: str, size: int) -> None:
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)"
        )

    def _finished(self) -> Piece:
        """The piece: outputs copied to their places, buffers laid out in scratch memory."""
        for k, y in enumerate(self.graph.outputs):
            if isinstance(y, Node):
                if y.dtype not in KNOWN:
                    raise Unlowered
                if k not in self.own and k not in self.passed and self._of(y) != f"%b{k}":
                    self._copy(f"%b{k}", self._of(y), _bytes(y))
            elif isinstance(y, np.ndarray | np.generic) and y.dtype in DTYPES:
                self._copy(f"%b{k}", self.module.constant(np.asarray(y)), y.nbytes)
            else:
                raise Unlowered
        begin = [
            f"  %under = getelementptr i8, ptr %scratch, i64 {self.size}",
            *sanitizer.buffer("%under", self.below, 0, "scratch memory of what is called"),
        ]
        first = {
            line.split(" = ")[0].strip(): line
            for line in self.lines
            if " = getelementptr i8, ptr %scratch" in line
        }
        places = {*first.values()}
        lines = [line for line in self.lines if line not in places]
        for name, line in first.items():
            begin += [line, *self.announced.get(name, [])]
        begin += [f"  store ptr null, ptr {name}" for name in self.rows]
        end = ["  br label %stop"] if self.calls else []
        before = f"go{self.calls - 1}" if self.calls else "entry"
        if self.calls:
            sources = "".join(
                f"[ %ok{k}, %{'entry' if k == 0 else f'go{k - 1}'} ], " for k in range(self.calls)
            )
            end += ["stop:", f"  %result = phi i32 {sources}[ 1, %{before} ]"]
            for i, name in enumerate(self.rows):
                end += [f"  %held{i} = load ptr, ptr {name}", f"  call void @free(ptr %held{i})"]
            end.append("  ret i32 %result")
        else:
            end.append("  ret i32 1")
        if self.rows:
            self.module.declared["declare void @free(ptr)"] = None
        self.module.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        return self.module._function(
            len(self.graph.inputs),
            len(self.graph.outputs),
            [*begin, *lines, *end],
            self.size + self.below,
            self.work,
        )


def _of_threads(schedule: Schedule) -> list[str]:
    """%team, the parts of sums that each chunk makes, and %theirs, memory of each thread's own; 0 is returned if there is none."""
    return [
        *(
            line
            for n, (offset, _) in schedule.partial.items()
            for line in (
                f"  %part{n} = getelementptr i8, ptr %scratch, i64 {offset}",
                *announced_parts(f"%part{n}", schedule, n),
            )
        ),
        "  %team = call i64 @tg_team()", f"  %each = mul i64 %team, {schedule.own}", "  %room = add i64 %each, 64",
        "  %block = call ptr @malloc(i64 %room)", "  %lacking = icmp eq ptr %block, null",
        "  br i1 %lacking, label %none, label %some", "none:", "  ret i32 0", "some:",
        "  %address = ptrtoint ptr %block to i64", "  %up = add i64 %address, 63", "  %even = and i64 %up, -64",
        "  %gap = sub i64 %even, %address", "  %theirs = getelementptr i8, ptr %block, i64 %gap",
        *sanitizer.buffer("%theirs", "%each", 0, "the threads' memory"),
    ]  # fmt: skip


def _uncopied(body: Graph, carried: int, own: frozenset[int]) -> Graph:
    """The body, in which carried values that are copies of what was carried are these themselves."""
    outputs = list(body.outputs)
    moving = [k for k in range(carried) if k not in own]
    given = {id(body.inputs[k]) for k in moving}
    for k in moving:
        y = outputs[k]
        if isinstance(y, Recorded) and y.name == "copy" and len(y.inputs) == 1:
            (x,) = y.inputs
            if id(x) in given and (x.shape, x.dtype) == (y.shape, y.dtype):
                outputs[k] = x
    read = {y for y in outputs if isinstance(y, Node)}
    read.update(x for s in body.nodes for x in s.inputs)
    steps = [s for s in body.steps if isinstance(s, Guard) or s.name != "copy" or s in read]
    return Graph(body.inputs, steps, outputs)


def _passed(body: Graph, carried: int, own: frozenset[int]) -> Mapping[int, int]:
    """Carried values that a step does not make: by place that of the carried value they are, or of the row; and rows that are such values.

    The next turn has a pointer to them, so that nothing is copied.
    """
    moving = [k for k in range(carried) if k not in own]
    if sum(_bytes(body.outputs[k]) for k in moving) <= FEW:
        return NOTHING
    place = {id(body.inputs[k]): k for k in moving}
    first: dict[int, int] = {}
    for i, y in enumerate(body.outputs):
        first.setdefault(id(y), i)
    inputs = {id(x) for x in body.inputs}
    rows = {
        id(y): i
        for i, y in enumerate(body.outputs[carried:], carried)
        if isinstance(y, Recorded) and id(y) not in inputs
    }
    found: dict[int, int] = {}
    for k in moving:
        y = body.outputs[k]
        if id(y) in place:
            found[k] = place[id(y)]
        elif id(y) in rows and first[id(y)] == k:
            found[k] = rows[id(y)]
            found[rows[id(y)]] = k
    return found


def _bytes(node: Node) -> int:
    return math.prod(node.shape) * node.dtype.itemsize


class _LoopText:
    """Writes a loop: carried values go to and fro between places, rows are read and made turn by turn.

    Where the number of turns is known, what a step does not make, or makes as a row as well, is passed on as a pointer.

    What a step changes in place (entries.py) lies where the loop's result goes, from the first turn on.
    """

    def __init__(self, module: Module, loop: Loop, step: Piece, given: Sequence[Node]) -> None:
        """A loop of a module, whose turns call `step`; `given` are its operands."""
        self.module = module
        self.loop = loop
        self.step = step
        self.given = given
        outputs = loop.body.outputs
        self.sizes = [_bytes(y) for y in outputs]
        self.starts = [0]
        moving = [0 if k in step.own else self.sizes[k] for k in range(loop.carried)]
        for size in moving:
            self.starts.append(self.starts[-1] + max(size + 63, 64) // 64 * 64)
        self.width = self.starts.pop()
        self.few = sum(moving) <= FEW
        self.lines: list[str] = []
        self.moving = [k for k in range(loop.carried) if k not in step.own]
        self.turning = not loop.open and not self.few
        """Whether carried values have a pointer each, which goes from place to place, and not one block that is changed with another."""
        self.slots = {k: self._places_of(k) for k in self.moving} if self.turning else {}

    def _places_of(self, k: int) -> int:
        """Places for a carried value: as many as turns in which a value is still read, and one to write to."""
        passed = self.step.passed
        if k in passed:
            return 1
        followers = [j for j in self.moving if passed.get(j) == k]
        longest, seen = 0, {k}
        while followers:
            longest += 1
            seen.update(followers)
            followers = [j for j in self.moving if passed.get(j) in followers and j not in seen]
        return 2 + longest

    def run(self) -> Piece:
        """The piece: of (go on at first, if a test says so; carried; fixed; indexed) to (last carried; rows made)."""
        loop, lines = self.loop, self.lines
        n_in, n_out = len(self.given), loop.carried + loop.kept
        first = 1 if loop.open and loop.tested else 0
        own = 64 + (0 if self.few else 2 * self.width)
        if self.turning:
            own = 64 + sum(n * self._room(k) for k, n in self.slots.items())
        lines.append(f"  %under = getelementptr i8, ptr %scratch, i64 {own}")
        lines += sanitizer.buffer("%under", self.step.scratch, 0, "scratch memory of a step")
        for k in sorted(self.step.own):
            self._copy(f"%b{k}", f"%a{first + k}", k)
        if self.turning:
            at = 64
            for k, count in self.slots.items():
                for i in range(count):
                    name = f"%slot{k}_{i}"
                    lines.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {at}")
                    lines += self._announced(name, k)
                    at += self._room(k)
                self._copy(f"%slot{k}_{count - 1}", f"%a{first + k}", k)
        elif self.few:
            for k in self.moving:
                for name in (f"%c{k}", f"%n{k}"):
                    lines.append(f"  {name} = alloca [{max(self.sizes[k], 1)} x i8], align 64")
                    lines += self._announced(name, k)
                self._copy(f"%c{k}", f"%a{first + k}", k)
        else:
            lines += [
                "  %here = getelementptr i8, ptr %scratch, i64 64",
                f"  %there = getelementptr i8, ptr %scratch, i64 {64 + self.width}",
            ]
            for k in self.moving:
                lines.append(f"  %init{k} = getelementptr i8, ptr %here, i64 {self.starts[k]}")
                lines += self._announced(f"%init{k}", k)
                self._copy(f"%init{k}", f"%a{first + k}", k)
        if loop.open and loop.tested:
            self._growing(first)
        else:
            self._counted()
        for k in self.moving:
            if self.turning:
                lines.append(f"  %end{k} = phi ptr [ {self._next(k)}, %turned ]")
        for k in self.moving:
            if not self.few and not self.turning:
                lines.append(f"  %end{k} = getelementptr i8, ptr %last, i64 {self.starts[k]}")
                lines += self._announced(f"%end{k}", k)
            self._copy(f"%b{k}", f"%c{k}" if self.few else f"%end{k}", k)
        lines.append("  ret i32 1")
        self.module.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        work = self.step.work * (1 if loop.open else loop.turns)
        return self.module._function(n_in, n_out, lines, own + self.step.scratch, work)

    def _room(self, k: int) -> int:
        """Bytes of a place for a carried value."""
        return max(self.sizes[k] + 63, 64) // 64 * 64

    def _next(self, k: int) -> str:
        """Where the next turn finds a carried value."""
        source = self.step.passed.get(k)
        if source is None:
            return f"%q{k}_0"
        return f"%p{source}" if source < self.loop.carried else f"%y{source}"

    def _copy(self, to: str, source: str, k: int) -> None:
        """A carried value to another place."""
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {self.sizes[k]}, i1 false)"
        )

    def _announced(self, name: str, k: int, fresh: bool = False) -> list[str]:
        """The bounds of where a carried value, or a row, is."""
        what = f"{'carried value' if k < self.loop.carried else 'a row of part'} {k}"
        return sanitizer.buffer(name, self.sizes[k], self._entry(k), what, fresh)

    def _entry(self, k: int) -> int:
        """Bytes of an entry of what a step makes."""
        return sanitizer.entry_of(self.loop.body.outputs[k].dtype)

    def _turn(self, first: int, rows: Sequence[str], made: Sequence[str]) -> None:
        """One turn, from %cur to %new; `rows` are read, `made` are where its rows go."""
        loop, lines = self.loop, self.lines
        inputs, outputs = [], []
        for k in range(loop.carried):
            if k in self.step.own:
                inputs.append(f"%b{k}")
                outputs.append(f"%b{k}")
                continue
            if self.turning:
                inputs.append(f"%p{k}")
                outputs.append(self._next(k))
                lines += self._announced(f"%p{k}", k)
                if k not in self.step.passed:
                    lines += self._announced(f"%q{k}_0", k, fresh=True)
                continue
            if not self.few:
                lines.append(f"  %c{k} = getelementptr i8, ptr %cur, i64 {self.starts[k]}")
                lines += self._announced(f"%c{k}", k)
                lines.append(f"  %n{k} = getelementptr i8, ptr %new, i64 {self.starts[k]}")
                lines += self._announced(f"%n{k}", k, fresh=True)
            else:
                lines += sanitizer.said(f"fill %n{k} 0 {self.sizes[k]} {self._entry(k)}")
            inputs.append(f"%c{k}")
            outputs.append(f"%n{k}")
        inputs += [f"%a{first + loop.carried + k}" for k in range(loop.fixed)]
        outputs += made
        if loop.tested:
            outputs.append("%scratch")
            lines += sanitizer.said("fill %scratch 0 1 1")
        lines += [
            self.step.call("%ok", [*inputs, *rows], outputs, "%under"),
            "  %fine = icmp eq i32 %ok, 1",
            "  br i1 %fine, label %turned, label %failed",
            "failed:",
            "  ret i32 %ok",
            "turned:",
        ]
        for k in self.moving if self.few else ():
            self._copy(f"%c{k}", f"%n{k}", k)

    def _counted(self) -> None:
        """As many turns as the loop has, or as what it reads has rows."""
        loop, lines = self.loop, self.lines
        plain = loop.carried + loop.fixed
        indexed = range(plain, len(self.given))
        made = range(loop.carried, loop.carried + loop.kept)
        if loop.open:
            lines += [
                f"  %countp = getelementptr i8, ptr %a{plain}, i64 8",
                "  %count = load i64, ptr %countp",
            ]
            for i in indexed:
                lines.append(f"  %rows{i} = load ptr, ptr %a{i}")
                row = loop.body.inputs[i]
                entry = sanitizer.entry_of(row.dtype)
                lines += sanitizer.buffer(f"%rows{i}", f"%count*{_bytes(row)}", entry, "kept rows")
            for k in made:
                self._allocated(k)
            lines.append("  %none = icmp eq i64 %count, 0")
            skip = "  br i1 %none, label %after, label %turns"
        else:
            lines.append(f"  %count = add i64 0, {loop.turns}")
            skip = "  br label %turns"
        before = "begin"
        lines += ["  br label %begin", "begin:", skip, "turns:"]
        self._phis(before)
        lines += [
            "  %left = sub i64 %count, %j",
            "  %back = sub i64 %left, 1",
        ]
        rows, outs = [], []
        for k, i in enumerate(indexed):
            row = loop.body.inputs[i]
            size = _bytes(row)
            if loop.open:
                base, place = f"%rows{i}", "%back" if loop.backward else "%j"
                lines.append(f"  %at{k} = mul i64 {place}, {size}")
            else:
                a, b = loop.indices[k]
                base = f"%a{i}"
                lines += [
                    f"  %step{k} = mul i64 %j, {b * size}",
                    f"  %at{k} = add i64 %step{k}, {a * size}",
                ]
            lines.append(f"  %x{k} = getelementptr i8, ptr {base}, i64 %at{k}")
            entry = sanitizer.entry_of(row.dtype)
            lines += sanitizer.buffer(f"%x{k}", size, entry, f"a row of operand {i}")
            rows.append(f"%x{k}")
        for k in made:
            base = f"%made{k}" if loop.open else f"%b{k}"
            lines += [
                f"  %to{k} = mul i64 {'%back' if loop.backward else '%j'}, {self.sizes[k]}",
                f"  %y{k} = getelementptr i8, ptr {base}, i64 %to{k}",
                *self._announced(f"%y{k}", k),
            ]
            outs.append(f"%y{k}")
        self._turn(0, rows, outs)
        lines += [
            "  %next = add i64 %j, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %turns, label %after",
            "after:",
        ]
        if not self.few and not self.turning:
            never = ", [ %here, %begin ]" if loop.open else ""
            lines.append(f"  %last = phi ptr [ %new, %turned ]{never}")

    def _phis(self, before: str, again: str = "turned") -> None:
        """The number of a turn, and where carried values are: as they were before the loop, or as the last turn left them."""
        self.lines.append(f"  %j = phi i64 [ 0, %{before} ], [ %next, %{again} ]")
        if self.few:
            return
        if self.turning:
            for k, count in self.slots.items():
                last = f"%slot{k}_{count - 1}"
                self.lines.append(f"  %p{k} = phi ptr [ {last}, %{before} ], [ {self._next(k)}, %{again} ]")  # fmt: skip
                for i in range(count if k not in self.step.passed else 0):
                    after = f"%q{k}_{(i + 1) % count}"
                    self.lines.append(f"  %q{k}_{i} = phi ptr [ %slot{k}_{i}, %{before} ], [ {after}, %{again} ]")  # fmt: skip
            return
        self.lines += [
            f"  %cur = phi ptr [ %here, %{before} ], [ %new, %{again} ]",
            f"  %new = phi ptr [ %there, %{before} ], [ %cur, %{again} ]",
        ]

    def _allocated(self, k: int) -> None:
        """Memory for as many rows as there are turns."""
        self.module.declared["declare ptr @malloc(i64)"] = None
        self.lines += [
            f"  %need{k} = mul i64 %count, {max(self.sizes[k], 1)}",
            f"  %some{k} = add i64 %need{k}, 1",
            f"  %made{k} = call ptr @malloc(i64 %some{k})",
            f"  %null{k} = icmp eq ptr %made{k}, null",
            f"  br i1 %null{k}, label %lacking{k}, label %enough{k}",
            f"lacking{k}:",
            "  ret i32 0",
            f"enough{k}:",
            *sanitizer.buffer(f"%made{k}", f"%need{k}", self._entry(k), "kept rows", fresh=True),
            f"  store ptr %made{k}, ptr %b{k}",
            f"  %countp{k} = getelementptr i8, ptr %b{k}, i64 8",
            f"  store i64 %count, ptr %countp{k}",
        ]

    def _growing(self, first: int) -> None:
        """As many turns as the test says."""
        loop, lines, module = self.loop, self.lines, self.module
        made = range(loop.carried, loop.carried + loop.kept)
        for k in made:
            lines += [
                f"  %countp{k} = getelementptr i8, ptr %b{k}, i64 8",
                f"  store i64 0, ptr %countp{k}",
            ]
        lines += [
            "  %go = load i8, ptr %a0",
            "  %goes = icmp ne i8 %go, 0",
            "  br label %begin",
            "begin:",
            "  br i1 %goes, label %turns, label %after",
            "turns:",
        ]
        self._phis("begin", "awake")
        lines += [
            "  %room = phi i64 [ 0, %begin ], [ %had, %awake ]",
            "  %next = add i64 %j, 1",
        ]
        if loop.kept:
            module.declared["declare ptr @realloc(ptr, i64)"] = None
            lines += [
                "  %full = icmp eq i64 %j, %room",
                "  br i1 %full, label %grow, label %ready",
                "grow:",
                "  %twice = shl i64 %room, 1",
                f"  %little = icmp slt i64 %twice, {ROWS}",
                f"  %wide = select i1 %little, i64 {ROWS}, i64 %twice",
            ]
            for k in made:
                lines += [
                    f"  %old{k} = load ptr, ptr %b{k}",
                    f"  %need{k} = mul i64 %wide, {max(self.sizes[k], 1)}",
                    f"  %grown{k} = call ptr @realloc(ptr %old{k}, i64 %need{k})",
                    f"  %null{k} = icmp eq ptr %grown{k}, null",
                    f"  br i1 %null{k}, label %lacking{k}, label %enough{k}",
                    f"lacking{k}:",
                    "  ret i32 0",
                    f"enough{k}:",
                    *sanitizer.said(
                        f"fill %grown{k} %room*{self.sizes[k]} %need{k} {self._entry(k)}"
                    ),
                    f"  store ptr %grown{k}, ptr %b{k}",
                ]
            lines += [
                "  br label %ready",
                "ready:",
                f"  %had = phi i64 [ %room, %turns ], [ %wide, %enough{made[-1]} ]",
            ]
        else:
            lines.append("  %had = add i64 %room, 0")
        outs = []
        for k in made:
            lines += [
                f"  %base{k} = load ptr, ptr %b{k}",
                *sanitizer.buffer(f"%base{k}", f"%had*{max(self.sizes[k], 1)}", 0, "kept rows"),
                f"  %to{k} = mul i64 %j, {self.sizes[k]}",
                f"  %y{k} = getelementptr i8, ptr %base{k}, i64 %to{k}",
                *self._announced(f"%y{k}", k),
            ]
            outs.append(f"%y{k}")
        self._turn(first, [], outs)
        lines += [f"  store i64 %next, ptr %countp{k}" for k in made]
        module.pauses = True
        every = 1 << max(0, int(math.log2(max(1, PAUSE // max(self.step.work, 1)))))
        lines += [
            f"  %part = and i64 %next, {every - 1}",
            "  %due = icmp eq i64 %part, 0",
            "  br i1 %due, label %pause, label %awake",
            "pause:",
            "  %heard = call i32 @tg_pause()",
            "  %quiet = icmp eq i32 %heard, 1",
            "  br i1 %quiet, label %awake, label %interrupted",
            "interrupted:",
            "  ret i32 %heard",
            "awake:",
            "  %said = load i8, ptr %scratch",
            "  %on = icmp ne i8 %said, 0",
            "  br i1 %on, label %turns, label %after",
            "after:",
        ]
        if not self.few:
            lines.append("  %last = phi ptr [ %new, %awake ], [ %here, %begin ]")


def nested(graph: Graph, name: str, form: Form, slow: Any) -> Native | None:
    """A graph with loops, or a long one, as one native function of the user's arguments; None where something in it is a NumPy call."""
    long = len(graph.steps) >= WORTH and sum(map(_bytes, graph.nodes)) <= MOST_KEPT
    if not long and not any(hasattr(x.function, "loop") or may_be(x) for x in graph.nodes):
        return None
    if not graph.outputs:
        return None
    module = Module()
    timer = jit.Timer()
    try:
        whole = module.sequence(graph)
    except Unlowered:
        return None
    arguments = [Argument(x.dtype, x.shape, x.weak) for x in graph.inputs]
    results = [
        Result(y.shape, y.dtype)
        if isinstance(y, Node)
        else Result(np.shape(y), np.asarray(y).dtype)
        for y in graph.outputs
    ]
    return Native.of_pieces(module, whole, arguments, results, name, form, slow, timer)


def of_loop(call: LoopCall, values: Sequence[Any]) -> Callable[..., Any] | None:
    """A loop on operands like these as machine code that returns a tuple; None where something in its body is a NumPy call."""
    loop = call.loop
    given: list[Node] = [Recorded(None, "input", (), {}, (), x) for x in values]
    if any(x.dtype not in KNOWN for x in given):
        return None
    refs = tuple(Ref(i) for i in range(len(given)))
    whole = Recorded(call, "loop", refs, {}, given, 0)
    outputs = loop.body.outputs
    parts = [
        part_of(whole, i, y.shape if i < loop.carried else (loop.turns, *y.shape), y.dtype)
        for i, y in enumerate(outputs)
    ]
    native = nested(
        Graph(given, [whole, *parts], parts), "loop", Form.flat(len(given), len(parts)), None
    )
    if native is None:
        return None

    def run(
        *operands: Any,
    ) -> Any:  # it holds `native`, which the entry asks where operands lie elsewhere in memory
        found = native.entry(*operands)
        return found if len(parts) > 1 else (found,)

    return run


__all__ = ["Module", "Piece", "nested", "of_loop"]
