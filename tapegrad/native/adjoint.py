"""The adjoint: plain Python that runs a program forward, keeping little, and then back.

For each active variable `x` there is a cotangent `x_bar`; an array's is its shadow, made with it and of its shape, and wherever
the array goes the shadow goes too. The forward half is the program with lines that keep what `flow.Needs` found to be needed: floats
on one flat stack, whole numbers on another, arrays that are bound anew on lists of references. The reverse half visits the
tree backwards. For each straight line it puts old values back, computes inner values again under names of their own, and
adds cotangents in the order of the chain rule.

Method: Griewank & Walther, "Evaluating Derivatives" (2008), chapters 6 and 12; recording as in Hascoët & Pascual,
"The Tapenade automatic differentiation tool" (2013). What is not optimal: one stack entry per overwritten element of an
array that is needed. Parallel loops are another module's (`chunks`).
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from numba.core import types

from ..core.parsing import parsed
from . import chunks, folds, runtime
from .flow import Flow, Needs
from .inference import is_array, is_float, is_whole
from .lowering import refuse
from .rules import PLACES, renamed
from .settling import Typed
from .tree import (
    TEMP,
    Const,
    If,
    Lines,
    Loop,
    Names,
    Node,
    Op,
    Operand,
    Seg,
    Where,
    entering,
    exposed,
    expression,
    flat,
    inlined,
    operations,
    read_counts,
    statement,
    target,
    tidy,
    uses,
)

Env = dict[str, str]


@dataclass(slots=True)
class Adjoint:
    """A generated adjoint: its source, the scope it runs in, and the order of its arguments and results."""

    source: str
    scope: dict[str, Any]
    params: list[str]
    seeds: list[str]
    """Results whose cotangent is passed in, behind the parameters."""
    results: list[str]
    stacks: list[str]
    """The stacks that are passed in last, and come back last."""
    mutated: list[str]
    kept: dict[str, str]
    """What is kept for the reverse: variable or array, and how."""
    draws: bool
    flow: Flow
    shadows: dict[str, str]
    """For the name of a cotangent, that of its variable."""
    parts: list[tuple[str, str]]
    """Functions that the adjoint calls, each with its decorator: those of parallel loops."""
    loops: list[str]
    """Of each parallel loop where it stands, and how its derivative runs."""
    passes: list[tuple[Where, int, int]]
    """Of each loop: where it stands, and for one pass through it, without loops inside, the bytes it keeps at most for operations on
    floats."""


def generate(
    typed: Typed, wanted: list[str], limit: int, options: dict[str, Any] | None = None
) -> Adjoint:
    """The adjoint by the parameters `wanted`: a function of parameters, cotangents of results and stacks, which returns the results,
    the cotangents of those parameters, and the stacks, that may have grown.

    With `options`, what the functions of its parallel loops are compiled with, these may use threads.
    """
    return _Generator(typed, wanted, limit, options).generate()


class _Generator:
    def __init__(
        self, typed: Typed, wanted: list[str], limit: int, options: dict[str, Any] | None
    ) -> None:
        """Find what the reverse of a typed program needs; `wanted` are the parameters that are differentiated."""
        self.typed = typed
        self.wanted = wanted
        self.program = typed.program
        if options is not None:
            folds.split(typed)
        self.flow = Flow(typed, wanted)
        self.needs = Needs(self.flow, threads=options is not None)
        self.part_decorator = chunks.decorator(options or {})
        self.parts: list[tuple[str, list[str]]] = []
        self.limit = limit
        self.counts = read_counts(self.program.body, self.program.results)
        self.fw = Lines(1)
        self.rv = Lines(1)
        self.floats = False
        self.ints = False
        self.lists: dict[str, str] = {}
        self.bars: dict[str, str] = {}
        self.depth = 0
        """Loops around what is being generated."""
        self.roomy = False
        self.kept: dict[str, str] = {}
        self.referred = {
            n for line in self.needs.lines.values() for n in line.keeps if is_array(typed.types[n])
        }
        """Names of arrays that are kept by reference when they are bound anew."""
        self.mixed = FLOATS <= {getattr(k, "dtype", k) for k in typed.types.values()}
        """Whether there are floats of both types, so that a cotangent may come in the other type than its value."""
        self.bare = False
        """Whether code is written that only runs: without shadows, and nothing is counted."""
        self.counts_bytes = False
        self.marked = False
        """Whether a loop with snapshots marks how far the stacks were filled."""
        self.carried: set[str] = set()
        """Names that a loop with snapshots hands from pass to pass."""
        self.scope = {**runtime.SCOPE, **self.program.scope}
        self.lasting = {
            n for n in self.needs.outer if self.flow.active(n) and not self.flow.array(n)
        }
        """Numbers whose cotangent lives beyond one line."""
        names = {n for op in operations(self.program.body) for n in op.out}
        self.shadowed = {
            n
            for n in names
            if self.flow.array(n) and self.flow.active(n) and n not in self.needs.local_arrays
        }
        """Arrays whose shadow is made with them."""
        every = [*self.needs.lines.values()]
        for found in self.needs.plans.values():
            every += found.lines.values() if isinstance(found, chunks.Plan) else []
        read_back = {
            n
            for line in every
            for n in line.changes() | line.holders() | line.entry | line.exit
            if not n.startswith("@")
        }
        self.bound = self.shadowed | read_back
        """Names that forward code binds even where they are read just once: the reverse reads them, or their shadow."""

    # ------------------------------------------------------------------------------------------- whole function

    def generate(self) -> Adjoint:
        """The adjoint as Python source: forward with what is kept, then reverse."""
        program, flow = self.program, self.flow
        seeds = list(dict.fromkeys(r for r in program.results if flow.active(r)))
        given = {r: self.typed.fresh(f"{r}_seed") for r in seeds}
        seeding = [
            f"accumulate({self.bar(r)}, {given[r]})"
            if flow.array(r)
            else f"{self.bar(r)} += {given[r]}"
            for r in seeds
        ]
        self.block(program.body, self.fw, self.rv)
        values = {r: self.typed.fresh(f"{r}_out") for r in dict.fromkeys(program.results)}
        # An array that the program writes is copied first: the caller's stays as it is.
        entry = {
            p: self.typed.fresh(f"{p}_given") if p in flow.mutated else p for p in program.params
        }
        code = [*self.fw, *self.rv]
        stacks = [n for n in ("floats", "ints") if any(re.search(rf"\b{n}\b", x) for x in code)]
        lines = Lines()
        parameters = [*entry.values(), *(given[r] for r in seeds), *stacks]
        lines.open(f"def {program.name}_adjoint({', '.join(parameters)}):")
        self._prepare(lines, entry, stacks)
        lines.put("# forward")
        lines += self.fw
        for r, value in values.items():
            copied = flow.array(r) and flow.root(r) in flow.stored
            lines.put(f"{value} = {r}.copy()" if copied else f"{value} = {r}")
        lines.put("# reverse")
        lines.put(*seeding)
        lines += self.rv
        outs = [*(values[r] for r in program.results), *map(self._wanted_bar, self.wanted), *stacks]
        lines.put(f"return ({', '.join(outs)},)")
        return Adjoint(
            source="\n".join(lines) + "\n",
            scope=self.scope,
            params=program.params,
            seeds=seeds,
            results=program.results,
            stacks=stacks,
            mutated=flow.mutated,
            kept=self.kept,
            flow=flow,
            shadows={bar: name for name, bar in self.bars.items()},
            passes=list(self._passes(program.body)),
            draws=any(op.kind == "impure" for op in operations(program.body)),
            parts=[(decorator, "\n".join(part) + "\n") for decorator, part in self.parts],
            loops=self._told(),
        )

    def _prepare(self, lines: Lines, entry: dict[str, str], stacks: list[str]) -> None:
        """What stands before the forward half; `entry` has the parameters by the names that the caller's arguments come under."""
        flow = self.flow
        for stack, top in (("floats", "nf"), ("ints", "ni")):
            if stack in stacks or self.marked:
                lines.put(f"{top} = 0")
        if self.counts_bytes:
            lines.put("referred = 0")
        for p in flow.mutated:
            lines.put(f"{p} = {entry[p]}.copy()")
        for p in self.program.params:
            if flow.array(p) and flow.active(p):
                lines.put(f"{self.bar(p)} = np.zeros_like({p})")
        self._declare(lines)

    def _wanted_bar(self, p: str) -> str:
        """The cotangent of a parameter that is asked for, as the text of a result."""
        if self.flow.active(p):
            return self.bar(p)
        return f"np.zeros_like({p})" if self.flow.array(p) else "0.0"

    def _told(self) -> list[str]:
        """How the derivative of each parallel loop runs."""
        told = []
        for loop in chunks.loops(self.program.body):
            found = self.needs.plans.get(id(loop))
            if isinstance(found, chunks.Plan):
                told.append(f"{loop.where}\n  {found.told()}")
            elif found is not None:
                told.append(f"{loop.where}\n  one thread: {found}")
        return told

    def _passes(self, nodes: list[Node]) -> Iterator[tuple[Where, int, int]]:
        """Of each loop its place, the bytes that a pass keeps and the float operations of a pass: what snapshots are decided by."""
        for node in nodes:
            if isinstance(node, If):
                yield from self._passes([*node.body, *node.orelse])
            elif isinstance(node, Loop):
                self.depth += 1
                kept = 8 * sum(self._cost(node.body))
                self.depth -= 1
                own = list(_outside_loops(node.body))
                count = sum(
                    op.kind == "acc" or (op.kind == "pure" and bool(op.variables))
                    for op in own
                    for kind in [self.typed.types.get(str((*op.out, *op.args, "")[0]))]
                    if is_float(getattr(kind, "dtype", kind))
                )
                where = _place(node)
                alone = isinstance(self.needs.plans.get(id(node)), chunks.Plan)
                if count and where is not None and not (node.snapshots or alone):
                    yield where, kept, count
                yield from self._passes(node.body)

    def _declare(self, lines: Lines) -> None:
        """What the reverse may read before the program bound it, and cotangents that live throughout."""
        declared: set[str] = set()
        for line in self.needs.lines.values():
            for name in line.changes() | line.holders() | line.exit:
                if not name.startswith("@") and name not in self.program.params:
                    declared.add(name)
        declared |= self.carried - set(self.program.params)
        self.declare(lines, declared, map(self.bar, self.lasting), self.lists)

    def declare(
        self, lines: Lines, names: set[str], bars: Iterable[str], lists: dict[str, str]
    ) -> None:
        """First values of names, of cotangents of numbers, and of lists."""
        for name in sorted(names):
            kind = self.typed.types[name]
            if is_array(kind):
                dims = "0, " * kind.ndim
                lines.put(f"{name} = np.empty(({dims.rstrip()}), np.{_dtype(kind.dtype)})")
                if self.flow.active(name):
                    lines.put(
                        f"{self.bar(name)} = np.empty(({dims.rstrip()}), np.{_dtype(kind.dtype)})"
                    )
            elif is_float(kind):
                lines.put(
                    f"{name} = {'0.0' if kind is types.float64 else f'np.{_dtype(kind)}(0.0)'}"
                )
            elif isinstance(kind, types.Boolean):
                lines.put(f"{name} = False")
            elif is_whole(kind):
                lines.put(f"{name} = {'0' if kind is types.int64 else f'np.{_dtype(kind)}(0)'}")
        for bar in sorted(bars):
            lines.put(f"{bar} = 0.0")
        for name in lists.values():
            lines.put(f"{name} = []")

    def bar(self, name: str) -> str:
        if name not in self.bars:
            self.bars[name] = self.typed.fresh(f"{name}_bar")
        return self.bars[name]

    def in_type_of(self, name: str, text: str) -> str:
        """A cotangent of an array in the array's type of floats: Numba has products of matrices of one type only."""
        kind = self.typed.types[name].dtype
        return f"in_{kind}({text})" if self.mixed and kind in FLOATS else text

    def unique(self, name: str) -> str:
        return self.typed.fresh(name)

    # ----------------------------------------------------------------------------------------------- tree

    def block(self, nodes: list[Node], fw: Lines, rv: Lines) -> None:
        """Both halves of a block: forward lines in order, reverse lines last node first."""
        behind: list[Lines] = []
        i = 0
        while i < len(nodes):
            j = self._reserved(nodes, i, fw)
            run = nodes[i:j]
            before, self.roomy = self.roomy, self.roomy or len(run) > 1
            for node in run:
                lines = Lines(rv.depth)
                if isinstance(node, Seg):
                    self.line(node, fw, lines)
                elif isinstance(node, If):
                    self.branch(node, fw, lines)
                else:
                    self.loop(node, fw, lines)
                behind.append(lines)
            self.roomy = before
            i = j
        for lines in reversed(behind):
            rv += lines

    def _reserved(self, nodes: list[Node], i: int, fw: Lines) -> int:
        """Make room for what nodes keep, from the i-th on as far as it is known beforehand; returns where that ends.

        One check stands for simple nodes and loops over such whose passes can be counted here. A loop alone makes room for itself.
        """
        binds: set[str] = set()
        parts: list[tuple[tuple[int, int], str]] = []
        loops = 0
        j = i
        while j < len(nodes):
            node = nodes[j]
            if self._simple(node):
                cost, times = self._cost([node]), ""
            else:
                times = self._trips(node, binds)
                if not times:
                    break
                assert isinstance(node, Loop)
                self.depth += 1
                cost = self._cost(node.body)
                self.depth -= 1
                loops += 1
                binds.add(node.variable)
            parts.append((cost, times))
            binds |= {n for op in operations([node]) for n in op.out}
            j += 1
        if j == i:
            return i + 1
        if loops and j == i + 1:
            return j
        if not self.roomy:
            for k, (stack, top) in enumerate((("floats", "nf"), ("ints", "ni"))):
                fixed = sum(cost[k] for cost, times in parts if not times)
                counts: dict[str, int] = {}
                for cost, times in parts:
                    if times and cost[k]:
                        counts[times] = counts.get(times, 0) + cost[k]
                terms = [f"{n} * {times}" if n > 1 else times for times, n in counts.items()]
                terms += [str(fixed)] if fixed or not terms else []
                if terms != ["0"]:
                    more = f"{top} + {' + '.join(terms)}"
                    fw.put(f"if {more} > {stack}.size:")
                    fw.put(f"    {stack} = grown({stack}, {more}, {self.limit})")
        return j

    def _trips(self, node: Node, binds: set[str]) -> str:
        """How many passes a loop makes, as text that means the same before what binds these names; nothing where that is not known."""
        if not isinstance(node, Loop) or not node.variable or node.stop or node.snapshots:
            return ""
        if isinstance(self.needs.plans.get(id(node)), chunks.Plan):
            return ""
        read = {*exposed(node.head), *(b for b in node.bounds if isinstance(b, str))}
        step = node.bounds[2]
        if read & binds or not (isinstance(step, Const) and step.value == 1):
            return ""
        if not self.needs.stable(node.head, node.bounds) or not all(map(self._simple, node.body)):
            return ""
        lines = Lines()
        start, stop, _ = self.head(node.head, list(node.bounds), lines)
        if lines:
            return ""
        count = stop if start == "0" else f"{stop} - ({start})"
        return f"max({count}, 0)"

    def _simple(self, node: Node) -> bool:
        """Whether what a node keeps has a size that is known beforehand."""
        if isinstance(node, Seg):
            return not any(self.keeps_block(op, node) for op in node.ops)
        return isinstance(node, If) and all(self._simple(n) for n in (*node.body, *node.orelse))

    def keeps_block(self, op: Op, node: Seg) -> bool:
        """Whether a store keeps several elements."""
        if op.kind not in ("store", "acc") or self.flow.element(op):
            return False
        return self.flow.root(str(op.args[0])) in self.needs.lines[id(node)].keeps_memory

    def _cost(self, nodes: list[Node]) -> tuple[int, int]:
        """Most floats and whole numbers that simple nodes push."""
        floats = ints = 0
        for node in nodes:
            if isinstance(node, Seg):
                f, i, _ = self.kept_names(node)
                floats += len(f)
                ints += len(i)
                for op in node.ops:
                    if self.keeps_element(op, node):
                        if is_float(self.typed.types[str(op.args[0])].dtype):
                            floats += 1
                        else:
                            ints += 1
            elif isinstance(node, If):
                a, b = self._cost(node.body), self._cost(node.orelse)
                floats += max(a[0], b[0])
                ints += max(a[1], b[1]) + (not self._remembered(node.head, [node.condition]))
        return floats, ints

    def _remembered(self, head: list[Op], operands: list[Operand]) -> bool:
        """Whether a condition or bound needs no place on the stack."""
        return self.depth == 0 or self.needs.stable(head, operands)

    def reserve(self, fw: Lines, floats: int, ints: int, times: str = "") -> None:
        """Room on the stacks; the check stands outside of loops where their passes can be counted."""
        if not self.roomy:
            self.reserve_here(fw, floats, ints, times)

    def reserve_here(self, fw: Lines, floats: int, ints: int, times: str = "") -> None:
        for stack, top, n in (("floats", "nf", floats), ("ints", "ni", ints)):
            if n:
                more = f"{n} * {times}" if times and n > 1 else times or str(n)
                fw.put(f"if {top} + {more} > {stack}.size:")
                fw.put(f"    {stack} = grown({stack}, {top} + {more}, {self.limit})")

    def stack_of(self, kind: Any) -> tuple[str, str]:
        """The stack that keeps numbers of a type, and what counts them."""
        return ("floats", "nf") if is_float(kind) else ("ints", "ni")

    def save_array(self, lines: Lines, name: str) -> None:
        """All elements of an array onto a stack."""
        stack, top = self.stack_of(self.typed.types[name].dtype)
        lines.put(f"if {top} + {name}.size > {stack}.size:")
        lines.put(f"    {stack} = grown({stack}, {top} + {name}.size, {self.limit})")
        lines.put(f"push_array({stack}, {top}, {name})", f"{top} += {name}.size")

    def push(self, lines: Lines, kind: Any, text: str) -> None:
        stack, top = self.stack_of(kind)
        lines.put(f"{stack}[{top}] = {text}", f"{top} += 1")

    def pop(self, lines: Lines, kind: Any, name: str) -> None:
        stack, top = self.stack_of(kind)
        lines.put(f"{top} -= 1", f"{name} = {_from_stack(kind, f'{stack}[{top}]')}")

    def head(self, ops: list[Op], operands: list[Operand], lines: Lines) -> list[str]:
        """Print what a condition or bound is computed from; returns the operands' texts."""
        sentinel = Op("pure", ("",), list(operands), "", self.program.where)
        texts: list[str] = []
        for op, names in inlined([*ops, sentinel], self.counts, set()):
            if op is sentinel:
                texts = [ast.unparse(parsed(names(a), mode="eval")) for a in operands]
            else:
                lines.put(tidy(statement(op, names)))
        return texts

    def branch(self, node: If, fw: Lines, rv: Lines) -> None:
        """Write an `if`: which branch was taken is kept where the reverse cannot ask again."""
        (condition,) = self.head(node.head, [node.condition], fw)
        stable = self.needs.stable(node.head, [node.condition])
        name = condition
        if not stable:
            name = self.unique("taken")
            fw.put(f"{name} = {condition}")
        fw.open(f"if {name}:")
        body_rv, else_rv = Lines(rv.depth + 1), Lines(rv.depth + 1)
        mark = len(fw)
        self.block(node.body, fw, body_rv)
        fw.close(mark)
        if node.orelse:
            fw.open("else:")
            mark = len(fw)
            self.block(node.orelse, fw, else_rv)
            fw.close(mark)
        if not stable and self.depth:
            # Behind the branches: the reverse asks for it first.
            if not self._simple(node):
                self.reserve(fw, 0, 1)
            self.push(fw, types.boolean, name)
        if not body_rv and not else_rv:
            if not stable and self.depth:
                rv.put("ni -= 1")
            return
        if stable:
            (name,) = self.head(node.head, [node.condition], rv)
        elif self.depth:
            self.pop(rv, types.boolean, name)
        if body_rv:
            rv.put(f"if {name}:")
            rv += body_rv
            if else_rv:
                rv.put("else:")
                rv += else_rv
        else:
            rv.put(f"if not {name}:" if name.isidentifier() else f"if not ({name}):")
            rv += else_rv

    def loop(self, node: Loop, fw: Lines, rv: Lines) -> None:
        if node.snapshots:
            self._revolved(node, fw, rv)
            return
        if not node.variable:
            self._while(node, fw, rv)
            return
        found = self.needs.plans.get(id(node))
        if isinstance(found, chunks.Plan):
            chunks.Shared(self, node, found).emit(fw, rv)
            return
        self.loop_of_one_thread(node, fw, rv)

    @contextlib.contextmanager
    def inside(self, plan: chunks.Plan) -> Iterator[dict[str, str]]:
        """While the passes of a shared loop are written, which have stacks and lists of their own."""
        needs = self.needs
        before = needs.lines, self.lists, self.depth, self.roomy, self.counts_bytes
        needs.lines = {**needs.lines, **plan.lines}
        self.lists, self.depth, self.roomy = {}, 1, False
        needs.passing = plan.binds
        with self.flow.apart(plan.distinct):
            yield self.lists
        needs.passing = None
        needs.lines, self.lists, self.depth, self.roomy, self.counts_bytes = before

    def loop_of_one_thread(self, node: Loop, fw: Lines, rv: Lines) -> None:
        """Write a `for` over a range: forward with its bounds kept where they change, reverse from the last pass to the first."""
        stable = self.needs.stable(node.head, node.bounds)
        start, stop, step = self.head(node.head, list(node.bounds), fw)
        step_operand = node.bounds[2]
        step_value = step_operand.value if isinstance(step_operand, Const) else None
        counted = bool(node.stop)
        first, last, count = "", "", ""
        if counted:
            first, count = self.unique("first"), self.unique("passes")
            fw.put(f"{first} = {start}", f"{count} = 0")
            start = first
            if step_value is None:
                name = self.unique("step")
                fw.put(f"{name} = {step}")
                step = name
        elif not stable:
            first, last = self.unique("first"), self.unique("last")
            fw.put(f"{first} = {start}", f"{last} = {stop}")
            start, stop = first, last
            if step_value is None:
                name = self.unique("step")
                fw.put(f"{name} = {step}")
                step = name
        head = f"for {node.variable} in range({_range(start, stop, step)}):"
        body_fw, body_rv = Lines(fw.depth + 1), Lines(rv.depth + 1)
        if counted:
            body_fw.put(f"{count} += 1")
        bulk = not counted and all(self._simple(n) for n in node.body)
        self.depth += 1
        if bulk:
            cost = self._cost(node.body)
            trips = (
                f"({stop})"
                if (start, step) == ("0", "1")
                else f"({stop} - ({start}))"
                if step == "1"
                else f"turns({start}, {stop}, {step})"
            )
            self.reserve(fw, *cost, times=trips)
            self._bulk_block(node.body, body_fw, body_rv)
        else:
            self.block(node.body, body_fw, body_rv)
        self.depth -= 1
        if node.stop:
            body_fw.put(f"if {node.stop}:", "    break")
        fw.put(head)
        fw += body_fw or ["    " * body_fw.depth + "pass"]
        # What the reverse needs to know of the passes.
        pushed = [n for n in ((first, count) if counted else (first, last) if not stable else ())]
        if pushed and step_value is None:
            pushed.append(step)
        if self.depth == 0:
            pushed = []
        if pushed:
            self.reserve(fw, 0, len(pushed))
            for name in pushed:
                self.push(fw, types.int64, name)
        if not body_rv:
            if pushed:
                rv.put(f"ni -= {len(pushed)}")
            return
        for name in reversed(pushed):
            self.pop(rv, types.int64, name)
        if counted:
            back = f"range({first} + ({count} - 1) * ({step}), {first} - ({step}), -({step}))"
        else:
            if stable:
                start, stop, step = self.head(node.head, list(node.bounds), rv)
            if step_value == 1 and all(self._signed(b) for b in node.bounds):
                # Written so, LLVM sees that no index is negative; with range(stop - 1, start - 1, -1) it does not.
                rv.put(tidy(f"{node.variable} = {stop}"))
                rv.put(f"while {node.variable} > {start}:")
                rv.put(f"    {node.variable} -= 1")
                rv += body_rv
                return
            if step_value == 1:
                back = f"range(({stop}) - 1, ({start}) - 1, -1)"
            elif step_value == -1:
                back = f"range(({stop}) + 1, ({start}) + 1)"
            else:
                count = self.unique("passes")
                rv.put(f"{count} = turns({start}, {stop}, {step})")
                back = f"range({start} + ({count} - 1) * ({step}), {start} - ({step}), -({step}))"
        back = ast.unparse(parsed(back))
        rv.put(f"for {node.variable} in {back}:")
        rv += body_rv

    def _signed(self, operand: Operand) -> bool:
        """Whether a bound can be counted down from as it is: less than zero it stays a whole number."""
        return self.typed.kind(operand) is types.int64

    def _bulk_block(self, nodes: list[Node], fw: Lines, rv: Lines) -> None:
        """A block for whose pushes there is room already."""
        before, self.roomy = self.roomy, True
        self.block(nodes, fw, rv)
        self.roomy = before

    def _while(self, node: Loop, fw: Lines, rv: Lines) -> None:
        """Write a `while`: forward counts its passes, and reverse runs as many."""
        count = self.unique("passes")
        fw.put(f"{count} = 0")
        inner = Lines(fw.depth + 1)
        (condition,) = self.head(node.head, [node.condition], inner)
        if inner:
            fw.put("while True:")
            inner.put(f"if not ({condition}):", "    break")
        else:
            fw.put(f"while {condition}:")
        inner.put(f"{count} += 1")
        body_rv = Lines(rv.depth + 1)
        self.depth += 1
        self.block(node.body, inner, body_rv)
        self.depth -= 1
        if node.stop:
            inner.put(f"if {node.stop}:", "    break")
        fw += inner
        if self.depth:
            self.reserve(fw, 0, 1)
            self.push(fw, types.int64, count)
            if body_rv:
                self.pop(rv, types.int64, count)
            else:
                rv.put("ni -= 1")
        if body_rv:
            rv.put(f"for {self.unique('back')} in range({count}):")
            rv += body_rv

    # ------------------------------------------------------------------------------------- snapshots

    def _revolved(self, node: Loop, fw: Lines, rv: Lines) -> None:
        """A loop that is reversed from snapshots (see `runtime.checkpointed`).

        Forward it runs as it is, and takes snapshots of what a pass reads before it binds. In reverse, for each pass from the last: the
        state comes from the latest snapshot, passes run up to the one that is wanted (snapshots on the way where some are free), that one
        runs keeping what its reverse needs, and is reversed. An array that a pass makes anew has a new shadow each time it is made;
        `carry` hands on what came back to the former one.
        """
        state = _State(self, node)
        self.marked = True
        fresh = self.unique
        marks, held, due, at, end = map(fresh, ("marks", "held", "due", "here", "end"))
        first, step, passes = map(fresh, ("first", "step", "passes"))
        texts = self.head(node.head, list(node.bounds), fw)
        fw.put(f"{first} = {texts[0]}", f"{step} = {texts[2]}")
        fw.put(f"{passes} = turns({first}, {texts[1]}, {step})")
        fw.put(f"{marks} = np.empty(({node.snapshots}, 3), np.int64)", f"{held} = 0", f"{due} = 0")
        count = fresh("done") if node.stop else passes
        if node.stop:
            fw.put(f"{count} = 0")
        binding = f"{node.variable} = {first} + {at} * {step}"

        def snapshot(lines: Lines, stop: str) -> None:
            """Write the lines that keep the state where the next snapshot is due."""
            lines.open(f"if {at} == {due}:")
            lines.put(
                f"{marks}[{held}, 0] = {at}", f"{marks}[{held}, 1] = nf", f"{marks}[{held}, 2] = ni"
            )
            lines.put(f"{held} += 1")
            state.save(lines)
            if stop:
                lines.put(
                    f"{due} = {at} + snapshot_distance({stop} - {at}, {node.snapshots} - {held})"
                )
            else:
                # Where the loop will end is not known yet.
                lines.put(f"{due} = -1")
            lines.depth -= 1

        fw.open(f"for {at} in range({passes}):")
        snapshot(fw, "" if node.stop else passes)
        fw.put(binding)
        if node.stop:
            fw.put(f"{count} += 1")
        self.primal(node.body, fw)
        if node.stop:
            fw.put(f"if {node.stop}:", "    break")
        fw.depth -= 1
        if self.depth:
            # The loop around it comes back here with other snapshots.
            row, kept = fresh("row"), list(dict.fromkeys((held, first, step, passes, count)))
            self.reserve_here(fw, 0, len(kept) + 3 * node.snapshots)
            fw.put(f"for {row} in range({held}):")
            fw.put(*(f"    ints[ni + {k}] = {marks}[{row}, {k}]" for k in range(3)), "    ni += 3")
            for name in kept:
                self.push(fw, types.int64, name)
            for name in reversed(kept):
                self.pop(rv, types.int64, name)
            rv.put(f"{marks} = np.empty(({node.snapshots}, 3), np.int64)", f"{row} = {held}")
            rv.put(f"while {row} > 0:", f"    {row} -= 1", "    ni -= 3")
            rv.put(*(f"    {marks}[{row}, {k}] = ints[ni + {k}]" for k in range(3)))
        rv.put(f"{end} = {count}")
        rv.open(f"while {end} > 0:")
        state.hold(rv)
        rv.put(f"nf = {marks}[{held} - 1, 1]", f"ni = {marks}[{held} - 1, 2]")
        state.restore(rv)
        rv.put(f"{at} = {marks}[{held} - 1, 0]")
        rv.put(f"{due} = {at} + snapshot_distance({end} - {at}, {node.snapshots} - {held})")
        rv.open(f"while {at} < {end} - 1:")
        snapshot(rv, end)
        rv.put(binding)
        self.primal(node.body, rv)
        rv.put(f"{at} += 1")
        rv.depth -= 1
        rv.put(binding)
        state.begin(rv)
        back = Lines(rv.depth)
        self.depth += 1
        self.block(node.body, rv, back)
        self.depth -= 1
        state.carry(rv, f"{end} == {count}")
        rv += back
        state.finish(rv)
        rv.put(f"{end} -= 1")
        rv.open(f"if {marks}[{held} - 1, 0] == {end}:")
        rv.put(f"{held} -= 1", f"nf = {marks}[{held}, 1]", f"ni = {marks}[{held}, 2]")
        state.drop(rv)
        rv.depth -= 2

    def run(self, nodes: list[Node], lines: Lines) -> None:
        """A block as it runs where nothing is kept, and no shadow is made."""
        before, self.bare = self.bare, True
        self.primal(nodes, lines)
        self.bare = before

    def primal(self, nodes: list[Node], lines: Lines) -> None:
        """A block as it runs where nothing is kept; shadows are made with their arrays."""
        mark = len(lines)
        for node in nodes:
            if isinstance(node, Seg):
                printer = _LinePrinter(self, node, lines, Lines())
                printer.elements, printer.blocks = [], []
                printer.print_forward(node.ops)
            elif isinstance(node, If):
                (condition,) = self.head(node.head, [node.condition], lines)
                lines.open(f"if {condition}:")
                self.primal(node.body, lines)
                lines.depth -= 1
                if node.orelse:
                    lines.open("else:")
                    self.primal(node.orelse, lines)
                    lines.depth -= 1
            else:
                if node.variable:
                    bounds = self.head(node.head, list(node.bounds), lines)
                    lines.open(f"for {node.variable} in range({_range(*bounds)}):")
                else:
                    lines.open("while True:")
                    (condition,) = self.head(node.head, [node.condition], lines)
                    lines.put(f"if not ({condition}):", "    break")
                self.primal(node.body, lines)
                if node.stop:
                    lines.put(f"if {node.stop}:", "    break")
                lines.depth -= 1
        if len(lines) == mark:
            lines.put("pass")

    # ------------------------------------------------------------------------------------- straight lines

    def kept_names(self, node: Seg) -> tuple[list[str], list[str], list[str]]:
        """Floats, whole numbers and arrays that a line keeps before it binds them anew."""
        names = sorted(self.needs.lines[id(node)].keeps)
        kinds = self.typed.types
        return (
            [n for n in names if is_float(kinds[n])],
            [n for n in names if is_whole(kinds[n])],
            [n for n in names if is_array(kinds[n])],
        )

    def keeps_element(self, op: Op, node: Seg) -> bool:
        return (
            op.kind in ("store", "acc")
            and self.flow.element(op)
            and self.flow.root(str(op.args[0])) in self.needs.lines[id(node)].keeps_memory
        )

    def line(self, node: Seg, fw: Lines, rv: Lines) -> None:
        printer = _LinePrinter(self, node, fw, rv)
        printer.forward()
        printer.reverse()

    def list_of(self, name: str) -> str:
        if name not in self.lists:
            self.lists[name] = self.unique(f"{name}_kept")
        return self.lists[name]


class _State:
    """What a loop with snapshots hands from pass to pass: numbers, names of arrays that it binds anew, memory that it writes."""

    def __init__(self, parent: _Generator, node: Loop) -> None:
        """Find what a pass of the loop needs from outside: numbers, arrays by name, and memory that it overwrites."""
        self.parent = parent
        flow = self.flow = parent.flow
        types_ = parent.typed.types
        body = list(operations(node.body))
        self._refuse(body)
        read, certain = entering(node.body)
        read.discard(node.variable)
        binds = {n for op in body for n in op.out}
        before = parent.needs.before[id(node)]
        carried = sorted(n for n in binds if n in read or n not in certain or n in before)
        outside = read_counts(node.body, [])
        seen_outside = {n for n in binds if parent.counts.get(n, 0) > outside.get(n, 0)}
        written = {flow.root(str(op.args[0])) for op in body if op.kind in ("store", "acc")}
        self.numbers = [n for n in carried if not flow.array(n) and n in types_]
        self.names = [n for n in carried if flow.array(n)]
        self.memory = sorted(n for n in read if flow.array(n) and flow.root(n) in written)
        self.last = sorted(
            n for n in seen_outside if n not in carried and flow.array(n) and flow.active(n)
        )
        """Arrays that each pass makes anew, of which the last is read behind the loop."""
        for op in body:
            made = op.out[0] if op.out else ""
            if made in (*self.names, *self.last) and flow.view(op) and op.kind != "copy":
                raise refuse(
                    op.where,
                    f"{made} is a view that a loop with snapshots hands on.",
                    "Make the view where it is used, or write a copy.",
                )
        parent.carried |= set(carried)
        for n in (*self.numbers, *self.names, *self.memory):
            parent.kept[n] = f"in {node.snapshots} snapshots"

    def _refuse(self, body: list[Op]) -> None:
        for op in body:
            if op.kind == "impure" or op.form.startswith("np.random."):
                raise refuse(
                    op.where,
                    "Random numbers are drawn in a loop with snapshots, whose passes run several times.",
                    "Draw them before the loop and pass them as an array.",
                )

    def _active(self, names: list[str]) -> list[str]:
        return [n for n in names if self.flow.active(n)]

    def _stack(self, name: str) -> tuple[str, str]:
        kind = self.parent.typed.types[name]
        return self.parent.stack_of(kind.dtype if is_array(kind) else kind)

    def save(self, lines: Lines) -> None:
        parent = self.parent
        n = sum(self._stack(name)[0] == "floats" for name in self.numbers)
        parent.reserve_here(lines, n, len(self.numbers) - n)
        for name in self.numbers:
            parent.push(lines, parent.typed.types[name], name)
        for name in self.memory:
            parent.save_array(lines, name)
        for name in self._references():
            lines.put(f"{parent.list_of(name)}.append({name})")

    def _references(self) -> list[str]:
        """Names of arrays and of their shadows, which are kept by reference. Their contents are kept too where they are written."""
        return [*self.names, *map(self.parent.bar, self._active(self.names))]

    def restore(self, lines: Lines) -> None:
        """The latest snapshot, which stays."""
        parent = self.parent
        for name in self.numbers:
            stack, top = self._stack(name)
            lines.put(f"{name} = {_from_stack(parent.typed.types[name], f'{stack}[{top}]')}")
            lines.put(f"{top} += 1")
        for name in self._references():
            lines.put(f"{name} = {parent.list_of(name)}.pop()")
            lines.put(f"{parent.list_of(name)}.append({name})")
        for name in self.memory:
            stack, top = self._stack(name)
            lines.put(f"pop_array({stack}, {top}, {name})", f"{top} += {name}.size")

    def drop(self, lines: Lines) -> None:
        for name in self._references():
            lines.put(f"{self.parent.unique('dropped')} = {self.parent.list_of(name)}.pop()")

    def hold(self, lines: Lines) -> None:
        """Shadows as they are behind the pass that comes next in reverse."""
        self.held = {}
        for name in self._active([*self.names, *self.last]):
            bar = self.parent.bar(name)
            self.held[name] = self.parent.unique(f"{bar}_held")
            lines.put(f"{self.held[name]} = {bar}")

    def begin(self, lines: Lines) -> None:
        self.before = {}
        for name in self._references():
            self.before[name] = self.parent.unique(f"{name}_before")
            lines.put(f"{self.before[name]} = {name}")

    def finish(self, lines: Lines) -> None:
        for name, before in self.before.items():
            lines.put(f"{name} = {before}")

    def carry(self, lines: Lines, last: str) -> None:
        """Two names may stand for one array by now, to which its cotangent comes back once."""
        done: list[str] = []
        for name in self.held:
            bar = self.parent.bar(name)
            same = [
                f"not shares({bar}, {self.parent.bar(n)})"
                for n in done
                if self.flow.root(n) == self.flow.root(name)
            ]
            tests = [last, *same] if name in self.last else same
            text = f"carry({bar}, {self.held[name]})"
            if tests:
                lines.put(f"if {' and '.join(tests)}:", f"    {text}")
            else:
                lines.put(text)
            done.append(name)


class _LinePrinter:
    """Forward and reverse of one straight line.

    What the line keeps lies on the stack in this order: names, overwritten elements, an overwritten block with its size. Names are
    bound under new names when the reverse computes them again, so that old values, once put back, stay.
    """

    def __init__(self, parent: _Generator, node: Seg, fw: Lines, rv: Lines) -> None:
        """A straight stretch of operations with what is kept of it and how."""
        self.parent = parent
        self.flow = parent.flow
        self.needs = parent.needs
        self.types = parent.typed.types
        self.ops = node.ops
        self.info = parent.needs.lines[id(node)]
        self.fw = fw
        self.rv = rv
        self.floats, self.ints, self.arrays = parent.kept_names(node)
        self.elements = [op for op in node.ops if parent.keeps_element(op, node)]
        self.blocks = [op for op in node.ops if parent.keeps_block(op, node)]
        self.envs: dict[int, Env] = {}
        """Names of the values before each operation; a name that is missing stands for itself."""
        self.afters: dict[int, Env] = {}
        self.bar_names: Env = {}
        """Shadows of arrays that have another name in this line."""
        self.again = {id(node.ops[k]) for k in self.info.again}

    # ------------------------------------------------------------------------------------------- forward

    def forward(self) -> None:
        """Write the stretch forward: first what is kept, then the operations."""
        parent, fw = self.parent, self.fw
        if self.blocks:  # else there is room: such lines are counted together
            parent.reserve_here(
                fw, len(self.floats) + len(self.elements), len(self.ints) + len(self.elements)
            )
        for i, name in enumerate(self.floats):
            fw.put(f"floats[{_at('nf', i)}] = {name}")
            parent.kept[name] = "on the stack of floats"
        for i, name in enumerate(self.ints):
            fw.put(f"ints[{_at('ni', i)}] = {name}")
            parent.kept[name] = "on the stack of whole numbers"
        for name in self.info.moved:
            parent.kept[name] = f"held by {self.info.moves[name]}"
        for name in self.arrays:
            fw.put(f"{parent.list_of(name)}.append({name})")
            parent.kept[name] = "by reference"
            if self.flow.active(name):
                fw.put(f"{parent.list_of(parent.bar(name))}.append({parent.bar(name)})")
        self.next_float, self.next_int = len(self.floats), len(self.ints)
        blocks = self.blocks
        if not blocks:
            self.print_forward(self.ops)
            self.advance()
            return
        self.print_forward(self.ops)

    def advance(self) -> None:
        if self.next_float:
            self.fw.put(f"nf += {self.next_float}")
        if self.next_int:
            self.fw.put(f"ni += {self.next_int}")

    def print_forward(self, ops: list[Op]) -> None:
        """Write operations, those used once inside their user, with the shadows of new arrays."""
        fw = self.fw
        for op, names in inlined(ops, self.parent.counts, self.parent.bound):
            if op.kind == "if":
                fw.open(f"if {tidy(names(op.args[0]))}:")
                mark = len(fw)
                self.print_forward(op.body)
                fw.close(mark)
                if op.orelse:
                    fw.open("else:")
                    mark = len(fw)
                    self.print_forward(op.orelse)
                    fw.close(mark)
                continue
            if op in self.elements:
                self.keep_element(op, names)
            elif op in self.blocks:
                self.keep_block(op, names)
            fw.put(tidy(statement(op, names)))
            for out in () if self.parent.bare else op.out:
                if out in self.parent.referred and self.parent.depth and not self.flow.view(op):
                    # Each array that comes under this name stays until the reverse; so does its shadow.
                    size = f"{2 if out in self.parent.shadowed else 1} * {out}.nbytes"
                    fw.put(f"referred = counted(referred, {size}, {self.parent.limit})")
                    self.parent.counts_bytes = True
                if out in self.parent.shadowed:
                    fw.put(f"{self.parent.bar(out)} = {self.shadow(op, names, self.parent.bar)}")

    def keep_element(self, op: Op, names: Names) -> None:
        base = str(op.args[0])
        self.parent.kept[f"{self.flow.root(base)[1:]}[...]"] = (
            "each element that is overwritten, on a stack"
        )
        if is_float(self.types[base].dtype):
            self.fw.put(f"floats[{_at('nf', self.next_float)}] = {tidy(target(op, names))}")
            self.next_float += 1
        else:
            self.fw.put(f"ints[{_at('ni', self.next_int)}] = {tidy(target(op, names))}")
            self.next_int += 1

    def keep_block(self, op: Op, names: Names) -> None:
        """Write the lines that push the entries which a store overwrites onto a stack."""
        parent, fw = self.parent, self.fw
        base = str(op.args[0])
        self.advance()
        parent.kept[f"{self.flow.root(base)[1:]}[...]"] = (
            "each element that is overwritten, on a stack"
        )
        stack, top = ("floats", "nf") if is_float(self.types[base].dtype) else ("ints", "ni")
        old = parent.unique("old")
        fw.put(f"{old} = {tidy(target(op, names))}")
        fw.put(f"if {top} + {old}.size + 1 > {stack}.size:")
        fw.put(f"    {stack} = grown({stack}, {top} + {old}.size + 1, {parent.limit})")
        fw.put(f"push_array({stack}, {top}, {old})", f"{top} += {old}.size")
        fw.put("if ni + 1 > ints.size:", f"    ints = grown(ints, ni + 1, {parent.limit})")
        fw.put(f"ints[ni] = {old}.size", "ni += 1")

    def shadow(self, op: Op, names: Names, bar: Callable[[str], str]) -> str:
        """The text of a new array's shadow: the same view of a shadow, or zeros."""
        source = op.args[0] if op.args else None
        if self.flow.view(op) and isinstance(source, str):
            return tidy(expression(op, lambda a: bar(a) if a == source else names(a)))
        return f"np.zeros_like({op.out[0]})"

    # ------------------------------------------------------------------------------------------- reverse

    def reverse(self) -> None:
        self.put_back()
        self.cotangents(self.ops, self.lasting())

    def put_back(self) -> None:
        """Put back what the line has overwritten; compute its inner values again."""
        parent, rv = self.parent, self.rv
        made = self._hold_made()
        kept = self._pop_blocks()
        self._pop_numbers()
        self.move_back()
        for name in self.arrays:
            rv.put(f"{name} = {parent.list_of(name)}.pop()")
            if self.flow.active(name):
                rv.put(f"{parent.bar(name)} = {parent.list_of(parent.bar(name))}.pop()")
        self.name_versions(self.ops, {}, made)
        places_first = self.index_operations()
        for k in self.info.again:
            if k in places_first:
                self.repeat(self.ops[k], rv)
        self._put_back_memory(kept | self._kept_elements())
        for k in self.info.again:
            if k not in places_first:
                self.repeat(self.ops[k], rv)

    def _hold_made(self) -> Env:
        """Other names for what this line made, before that which it replaced comes back."""
        parent, rv = self.parent, self.rv
        env: Env = {}
        for op in self.ops:
            for out in op.out:
                if out in self.info.exit and out in self.info.changes():
                    held = parent.unique(out)
                    rv.put(f"{held} = {out}")
                    env[out] = held
                    if self.flow.array(out) and self.flow.active(out):
                        self.bar_names[held] = parent.unique(f"{out}_bar")
                        rv.put(f"{self.bar_names[held]} = {parent.bar(out)}")
        return env

    def _pop_blocks(self) -> dict[int, str]:
        """Where overwritten blocks of memory lie, by operation: a stack, and a name for the place on it."""
        places: dict[int, str] = {}
        for op in self.blocks:
            stack, top = ("floats", "nf") if self._stores_floats(op) else ("ints", "ni")
            at = self.parent.unique("place")
            self.rv.put("ni -= 1", f"{top} -= ints[ni]", f"{at} = {top}")
            places[id(op)] = f"{stack}, {at}"
        return places

    def _stores_floats(self, op: Op) -> bool:
        return is_float(self.types[str(op.args[0])].dtype)

    def _pop_numbers(self) -> None:
        """Overwritten variables and elements leave the stacks at once; the variables come back."""
        rv = self.rv
        elements = sum(map(self._stores_floats, self.elements))
        back_float = len(self.floats) + elements
        back_int = len(self.ints) + len(self.elements) - elements
        if back_float:
            rv.put(f"nf -= {back_float}")
        if back_int:
            rv.put(f"ni -= {back_int}")
        for stack, top, names in (("floats", "nf", self.floats), ("ints", "ni", self.ints)):
            for i, name in enumerate(names):
                rv.put(f"{name} = {_from_stack(self.types[name], f'{stack}[{_at(top, i)}]')}")

    def _kept_elements(self) -> dict[int, str]:
        """What overwritten elements were, by operation: they lie behind the variables."""
        texts: dict[int, str] = {}
        next_float, next_int = len(self.floats), len(self.ints)
        for op in self.elements:
            if self._stores_floats(op):
                texts[id(op)] = f"floats[{_at('nf', next_float)}]"
                next_float += 1
            else:
                text = f"ints[{_at('ni', next_int)}]"
                texts[id(op)] = _from_stack(self.types[str(op.args[0])].dtype, text)
                next_int += 1
        return texts

    def _put_back_memory(self, kept: dict[int, str]) -> None:
        """Overwritten elements and blocks come back, last first."""
        rv = self.rv
        for op in reversed(self.ops):
            if op in self.elements:
                rv.put(tidy(f"{target(op, self.named(op))} = {kept[id(op)]}"))
            elif op in self.blocks and self.flow.gathers(op):
                base, index = map(self.named(op), (op.args[0], op.args[2]))
                rv.put(f"put_places({base}, {index}, {kept[id(op)]})")
            elif op in self.blocks:
                rv.put(tidy(f"pop_array({kept[id(op)]}, {target(op, self.named(op))})"))

    def move_back(self) -> None:
        """Arrays that changed names get their old ones again, all at once."""
        parent, rv = self.parent, self.rv
        moves: dict[str, str] = {}
        for name in sorted(self.info.moved):
            now = self.info.moves[name]
            moves[name] = now
            if self.flow.active(name):
                moves[parent.bar(name)] = parent.bar(now)
        first = {now: parent.unique(now) for name, now in moves.items() if now in moves}
        rv.put(*(f"{held} = {now}" for now, held in first.items()))
        rv.put(*(f"{name} = {first.get(now, now)}" for name, now in moves.items()))

    def index_operations(self) -> set[int]:
        """Operations that say where the line stored: they come before anything is put back."""
        made: dict[str, int] = {}
        wanted: set[int] = set()
        before: list[dict[str, int]] = []
        for k, op in enumerate(self.ops):
            before.append(dict(made))
            for n in op.out:
                made[n] = k
        pending: list[tuple[str, int]] = []
        for k, op in enumerate(self.ops):
            if op.kind in ("store", "acc"):
                pending += [
                    (str(op.args[0]), k),
                    *((a, k) for a in op.index_operands() if isinstance(a, str)),
                ]
        while pending:
            name, k = pending.pop()
            maker = before[k].get(name)
            if maker is not None and maker not in wanted:
                wanted.add(maker)
                pending += [(a, maker) for a in uses(self.ops[maker])]
        return wanted

    def name_versions(self, ops: list[Op], env: Env, made: Env) -> Env:
        """Give every value of the line its name in reverse."""
        env = dict(env)
        twice = [n for op in self.ops for n in op.out]
        for op in ops:
            self.envs[id(op)] = dict(env)
            if op.kind == "if":
                self.name_versions(op.body, env, made)
                self.name_versions(op.orelse, env, made)
            repeated = id(op) in self.again or id(op) in self.info.inside
            for out in op.out:
                lost = op.kind == "if" and out not in self.info.outs.get(id(op), ())
                if repeated and not lost:
                    own = (
                        out.startswith(TEMP)
                        and out not in self.info.changes()
                        and twice.count(out) <= 1
                        and op.kind != "if"
                    )
                    own = own and out not in self.parent.program.several
                    env[out] = out if own else self.parent.unique(out)
                    if self.flow.array(out) and out in self.parent.shadowed:
                        self.bar_names[env[out]] = (
                            self.parent.bar(out) if own else self.parent.unique(f"{out}_bar")
                        )
                elif out in self.info.exit:
                    env[out] = made.get(out, out)
                else:
                    env[out] = f"{_LOST}{out}"
            self.afters[id(op)] = dict(env)
        return env

    def named(self, op: Op) -> Names:
        """How the operands of an operation are called in reverse."""
        env = self.envs[id(op)]

        def name(operand: Operand) -> str:
            if isinstance(operand, Const):
                return operand.text
            found = env.get(operand, operand)
            if found.startswith(_LOST):
                raise AssertionError(
                    f"the reverse of {op.where} needs {operand}, which nothing provides"
                )
            return found

        return name

    def repeat(self, op: Op, rv: Lines) -> None:
        """Compute an operation's values again."""
        names, after = self.named(op), self.afters[id(op)]
        if op.kind == "if":
            rv.open(f"if {names(op.args[0])}:")
            for block in (op.body, op.orelse):
                mark = len(rv)
                for inner in block:
                    if id(inner) in self.info.inside:
                        self.repeat(inner, rv)
                last = self.afters[id(block[-1])] if block else self.envs[id(op)]
                for out in op.out:
                    if out not in self.info.outs[id(op)]:
                        continue
                    rv.put(f"{after[out]} = {last.get(out, out)}")
                rv.close(mark)
                if block is op.body:
                    rv.open("else:")
            return
        rv.put(tidy(statement(op, names, lambda n: after[str(n)])))
        out = op.out[0]
        if self.flow.array(out) and out in self.parent.shadowed:
            env = self.envs[id(op)]
            rv.put(
                f"{self.bar_names[after[out]]} = {self.shadow(op, names, lambda a: self.bar_of(a, env))}"
            )

    def bar_of(self, name: str, env: Env) -> str:
        version = env.get(name, name)
        return self.bar_names.get(version) or self.parent.bar(name)

    # ---------------------------------------------------------------------------------------- cotangents

    def lasting(self) -> set[str]:
        return self.parent.lasting

    def cotangents(self, ops: list[Op], held: set[str]) -> None:
        """Lines that carry cotangents back through operations; `held` are names whose cotangent has a value already."""
        rv, flow = self.rv, self.flow
        zero = {
            n
            for op in ops
            if op.kind == "if"
            for n in (*op.out, *uses(op))
            if flow.active(n) and not flow.array(n) and n not in held
        }
        for name in sorted(zero):
            rv.put(f"{self.parent.bar(name)} = 0.0")
        _Back(self, ops, held | zero).run()


class _Back:
    """Cotangents through one list of operations, last first."""

    def __init__(self, line: _LinePrinter, ops: list[Op], held: set[str]) -> None:
        self.line = line
        self.parent = line.parent
        self.flow = line.flow
        self.rv = line.rv
        self.ops = ops
        self.held = held
        self.defined = {n for n in held if line.flow.array(n)}

    def run(self) -> None:
        needs = self.line.needs
        for op in self.ops:
            for out in op.out:
                if out in needs.local_arrays and out in needs.zeroed and self.flow.active(out):
                    value = self.line.afters[id(op)][out]
                    self.rv.put(f"{self.parent.bar(out)} = np.zeros_like({value})")
                    self.defined.add(out)
        for op in reversed(self.ops):
            self.back(op)

    def back(self, op: Op) -> None:
        if op.kind in ("store", "acc"):
            self.back_store(op)
        elif op.kind == "if":
            self.back_if(op)
        elif op.out and op.kind in ("pure", "load", "copy"):
            self.back_value(op)
        elif op.kind == "impure":
            self.back_constant(op)

    def back_constant(self, op: Op) -> None:
        """A name got a value that does not vary: what came back to it ends here."""
        for out in op.out:
            if self.flow.active(out) and not self.flow.array(out):
                if out in self.held:
                    self.rv.put(f"{self.parent.bar(out)} = 0.0")
                self.defined.discard(out)

    def back_if(self, op: Op) -> None:
        if not any(self.flow.active(n) for o in flat([op]) for n in o.out):
            return
        rv = self.rv
        held = self.held | {n for n in self.defined if self.flow.array(n)}
        rv.open(f"if {self.line.named(op)(op.args[0])}:")
        mark = len(rv)
        self.line.cotangents(op.body, held)
        rv.close(mark)
        if op.orelse:
            rv.open("else:")
            mark = len(rv)
            self.line.cotangents(op.orelse, held)
            rv.close(mark)

    def back_store(self, op: Op) -> None:
        """Write the reverse of a store: its value gets the cotangent of the place, which becomes 0 unless the store adds."""
        flow, rv = self.flow, self.rv
        base, value = str(op.args[0]), op.args[1]
        if not flow.active(base):
            return
        names = self.line.named(op)
        env = self.line.envs[id(op)]
        bar = self.line.bar_of(base, env)
        place = ast.unparse(parsed(target(op, lambda a: bar if a == base else names(a))))
        gives = flow.active(value)
        sign = op.form if op.kind == "acc" else ""
        minus = "-" if sign == "-" else ""
        if flow.gathers(op):
            index = names(op.index_operands()[0])
            if gives and flow.array(value):
                rv.put(f"scatter_back({bar}, {index}, {self.line.bar_of(str(value), env)})")
            else:
                w = self.parent.unique("w")
                rv.put(f"{w} = scatter_sum({bar}, {index})")
                if gives:
                    self.add(str(value), w, env)
            return
        if op.kind == "acc":
            if gives:
                whole = flow.array(value) or flow.element(op)
                self.add(str(value), f"{minus}{place}" if whole else f"{minus}np.sum({place})", env)
            return
        if gives:
            w = self.parent.unique("w")
            if flow.element(op):
                rv.put(f"{w} = {place}")
                text = w
            else:
                rv.put(f"{w} = {place}.copy()")
                text = w if flow.array(value) else f"np.sum({w})"
            rv.put(f"{place} = 0.0")
            self.add(str(value), text, env)
        else:
            rv.put(f"{place} = 0.0")

    def back_value(self, op: Op) -> None:
        """Write the reverse of an operation: each active operand gets the cotangent times its partial."""
        flow, rv = self.flow, self.rv
        out = op.out[0]
        if not flow.active(out) or flow.view(op):
            return
        env, after = self.line.envs[id(op)], self.line.afters[id(op)]
        names = self.line.named(op)
        terms = self.terms(op)
        own = out in self.line.needs.local_arrays
        if flow.array(out) and not own:
            g = self.line.bar_of(out, after)
        elif not terms:
            self.back_constant(op)
            return
        elif out in self.held:
            bar = self.parent.bar(out)
            through = next(
                (i for i, text in terms.items() if text == "g" and op.args[i] == out), None
            )
            if through is not None and op.args.count(out) == 1:
                # out = out + ...: what comes back to the sum goes on to the old value as it is.
                del terms[through]
                g = bar
            else:
                g = self.parent.unique("g")
                rv.put(f"{g} = {bar}", f"{bar} = 0.0")
        elif out in self.defined:
            g = self.parent.bar(out)
            self.defined.discard(out)
            if out in op.args:
                held = self.parent.unique("g")
                rv.put(f"{held} = {g}")
                g = held
        else:
            return
        if op.kind == "load":
            base = str(op.args[0])
            bar = self.line.bar_of(base, env)
            if flow.gathers(op):
                rv.put(f"gather_back({bar}, {names(op.index_operands()[0])}, {g})")
            else:
                place = target(op, lambda a: bar if a == base else names(a))
                rv.put(tidy(f"{place} += {g}"))
            return
        words = {"g": g}
        for i, a in enumerate(op.args):
            if isinstance(a, Const):
                words[PLACES[i]] = a.text
            else:
                found = env.get(a, a)
                if not found.startswith(_LOST):
                    words[PLACES[i]] = found
        value = after.get(out, out)
        if not value.startswith(_LOST):
            words["out"] = value
        if op.rule == "custom":
            self.back_custom(op, g, words)
            return
        derivative = flow.derivative(op)
        sums = flow.array(out) and derivative.spreads
        for i, text in terms.items():
            a = str(op.args[i])
            missing = derivative.names(i) - set(words)
            if missing & {"out", *PLACES}:
                raise AssertionError(
                    f"the reverse of {op.where} needs {missing}, which nothing provides"
                )
            spelled = renamed(text, words)
            if sums and not flow.array(a):
                spelled = f"np.sum({spelled})"
            self.add(a, spelled, env, copied=text == "g")

    def terms(self, op: Op) -> dict[int, str]:
        """Cotangents of the operands that are active, in terms of g, x, y, ..."""
        if op.kind == "load":
            return {0: "g"} if self.flow.active(op.args[0]) else {}
        if op.rule == "custom":
            # Whatever it is: not g, which would pass through as it is where the result has an operand's name.
            return {i: "cotangents" for i, a in enumerate(op.args) if self.flow.active(a)}
        found = self.flow.derivative(op)
        return {i: text for i, text in found.pull.items() if self.flow.active(op.args[i])}

    def back_custom(self, op: Op, g: str, words: Env) -> None:
        answer = self.parent.unique("cotangents")
        given = ", ".join(words[PLACES[i]] for i in range(len(op.args)))
        self.rv.put(f"{answer} = {op.settings['vjp'].text}({g}, {words['out']}, {given})")  # type: ignore[union-attr]
        for i, a in enumerate(op.args):
            if self.flow.active(a):
                self.add(str(a), f"{answer}[{i}]", self.line.envs[id(op)])

    def add(self, name: str, text: str, env: Env, copied: bool = False) -> None:
        """Add a cotangent to that of a name."""
        rv = self.rv
        if not self.flow.array(name):
            bar = self.parent.bar(name)
            if name in self.held or name in self.defined:
                rv.put(tidy(f"{bar} -= {text[1:]}" if _negated(text) else f"{bar} += {text}"))
            else:
                rv.put(tidy(f"{bar} = {text}"))
                self.defined.add(name)
            return
        if name not in self.line.needs.local_arrays:
            rv.put(tidy(f"accumulate({self.line.bar_of(name, env)}, {text})"))
        elif name in self.defined:
            rv.put(tidy(f"accumulate({self.parent.bar(name)}, {text})"))
        else:
            made = f"{text}.copy()" if copied else text
            rv.put(tidy(f"{self.parent.bar(name)} = {self.parent.in_type_of(name, made)}"))
            self.defined.add(name)


def _outside_loops(nodes: list[Node]) -> Iterator[Op]:
    """Operations that stand in no loop, those of both branches among them."""
    for node in nodes:
        if isinstance(node, Seg):
            yield from flat(node.ops)
        elif isinstance(node, If):
            yield from _outside_loops([*node.body, *node.orelse])


def _place(loop: Loop) -> Where | None:
    """Where a loop stands; a loop of array expressions has no line of its own, but its operations have."""
    return loop.where or next((op.where for op in operations(loop.body)), None)


_LOST = "?"

FLOATS = frozenset((types.float32, types.float64))


def _negated(text: str) -> bool:
    """Whether a text is minus one term."""
    return text.startswith("-") and isinstance(parsed(text, mode="eval").body, ast.UnaryOp)


def _at(top: str, i: int) -> str:
    return f"{top} + {i}" if i else top


def _range(start: str, stop: str, step: str) -> str:
    if step != "1":
        return f"{start}, {stop}, {step}"
    return stop if start == "0" else f"{start}, {stop}"


def _dtype(kind: Any) -> str:
    return "bool_" if isinstance(kind, types.Boolean) else str(kind)


def _from_stack(kind: Any, text: str) -> str:
    if isinstance(kind, types.Boolean):
        return f"{text} != 0"
    if kind is types.float64 or kind is types.int64:
        return text
    return f"np.{_dtype(kind)}({text})"
