"""Parallel loops in chunks: which loops over `prange` may share their derivative among threads, and the code that does.

The passes of such a loop are divided into chunks. The number of chunks follows from the number of passes and the sizes of arrays, never
from the number of threads, so no bit of a result depends on the threads. Forward, a chunk runs its passes and keeps nothing. In reverse it
runs each pass again, keeps the residuals of that pass on stacks of its own, and goes back over the pass at once: memory is that of one
pass for each thread (checkpointing of every pass; Griewank & Walther, "Evaluating Derivatives" (2008), chapter 12). Tangents go the way
forward, in the same chunks.

What passes share decides (`plan`). An array that is written is touched by each pass at an index of its own: `y[i, ...]`. Of one that is
only read, cotangents come together where several passes read an element: at own indices straight; at neighbours
(`x[i - 1] + x[i + 1]`) even chunks go first, then odd ones, since a chunk meets only the next; anywhere else each chunk has
cotangents of its own, which are added up in order. So are those of numbers, and sums (`s += ...`) forward; products and extrema are
taken out of such loops before (`folds`).

Invariant: a loop is planned only if this independence was shown here, from the program or by a test at run time. Nothing rests on the
user's promise that passes are independent. A loop that fails the test, or for which nothing was shown, runs on one thread.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba.core import types

from ..core.parsing import parsed
from .inference import is_array, is_float, is_whole
from .runtime import KERNEL_OPTIONS
from .settling import items_of
from .tree import (
    Const,
    If,
    Lines,
    Loop,
    Node,
    Op,
    Seg,
    entering,
    operations,
    plain,
    read_counts,
)

if TYPE_CHECKING:
    from .flow import Flow

_NEAR = 64
"""How far apart the neighbours may lie that a pass reads."""
META = (".shape", ".size", ".ndim", "len", ".dtype")
"""What asks for the form of an array, not for its elements."""


class _Unshown(Exception):
    """Why a loop stays with one thread."""


@dataclass(slots=True, eq=False)
class Plan:
    """What was shown of a loop whose passes may run at the same time."""

    sums: list[str] = field(default_factory=list)
    """Numbers that passes add to."""
    binds: set[str] = field(default_factory=set)
    """Names that a pass binds."""
    stored: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    """Arrays of which elements are read."""
    private: list[str] = field(default_factory=list)
    """Arrays of whose cotangents each chunk has its own."""
    span: int = 0
    """How far apart the indices lie at which passes read arrays whose cotangents are shared by neighbours; 0 for none."""
    conditions: list[tuple[str, ...]] = field(default_factory=list)
    """What must be asked when the loop runs: ("apart", one array, another) or ("from", lowest offset)."""
    restored: list[str] = field(default_factory=list)
    """Arrays that get their elements from before the loop back, for passes that run again."""
    returned: list[str] = field(default_factory=list)
    """Sums and arrays that get their value from before the loop back behind its reverse."""
    again: bool = True
    """Whether the reverse of a pass needs that the pass runs again."""
    distinct: dict[str, str] = field(default_factory=dict)
    """Arrays by the one array from outside whose memory they have, where the conditions hold."""
    lines: dict[int, Any] = field(default_factory=dict)
    """What lines need and keep where each pass is reversed as soon as it ran (`flow.Line`, by the id of the line)."""

    def told(self) -> str:
        """For the reader of `explain`."""
        words = ["threads share it"]
        if self.sums:
            words.append(f"{', '.join(self.sums)} summed by chunks")
        if self.span:
            words.append("neighbouring chunks take turns in reverse")
        if self.private:
            words.append(f"each chunk has cotangents of {', '.join(self.private)} of its own")
        if self.conditions:
            asked = [
                f"{c[1]} and {c[2]} lie apart" if c[0] == "apart" else "no index is negative"
                for c in self.conditions
            ]
            words.append(f"if {' and '.join(asked)} (else one thread)")
        words.append("passes run again in reverse" if self.again else "nothing is kept")
        return "; ".join(words)


@dataclass(slots=True)
class _Access:
    kind: str
    """load, store, acc, or read (of all elements)."""
    offsets: dict[int, int]
    """For an axis whose index is the pass's number and a constant: that constant."""


def behind(nodes: list[Node], loop: Loop, live: set[str]) -> set[str] | None:
    """Names that may be read after a loop before they are bound again, given those read behind the nodes; None if it is not there."""
    for k, node in enumerate(nodes):
        read, certain = entering(nodes[k + 1 :])
        after = read | (live - certain)
        if node is loop:
            return after
        if isinstance(node, Seg):
            continue
        if isinstance(node, If):
            found = behind(node.body, loop, after)
            if found is None:
                found = behind(node.orelse, loop, after)
        else:
            found = behind(node.body, loop, after | entering([node])[0])
        if found is not None:
            return found
    return None


def plan(loop: Loop, flow: Flow, live: set[str]) -> Plan | str:
    """What is needed to share a loop among threads, or why it cannot be."""
    try:
        return _Judge(loop, flow, live).plan
    except _Unshown as reason:
        return str(reason)


class _Judge:
    def __init__(self, loop: Loop, flow: Flow, live: set[str]) -> None:
        self.loop = loop
        self.flow = flow
        self.plan = Plan()
        self.ops = list(operations(loop.body))
        self.bound = {n for op in self.ops for n in op.out} | set(_counters(loop.body))
        self._simple()
        self._numbers(live)
        self.offsets = self._affine()
        self.made: dict[str, list[tuple[str, dict[int, int], bool] | None]] = {}
        self.accesses: dict[str, list[_Access]] = {}
        self._arrays()
        self._judge()

    # ------------------------------------------------------------------------------------- numbers

    def _simple(self) -> None:
        """Raise _Unshown unless the loop counts by ones, runs to its end and has no effects of its own."""
        loop = self.loop
        if loop.stop:
            raise _Unshown("it may be left before its end")
        step = loop.bounds[2]
        kinds = [self.flow.typed.kind(b) for b in loop.bounds[:2]]
        if (
            not isinstance(step, Const)
            or step.value != 1
            or any(k is not types.int64 for k in kinds)
        ):
            raise _Unshown("its bounds are not plain whole numbers one apart")
        for op in self.ops:
            if op.kind == "impure":
                raise _Unshown(f"it draws random numbers (line {op.where.line})")
            if op.kind in ("verbatim", "effect"):
                raise _Unshown(f"line {op.where.line} may end it or has an effect of its own")
        for node in loops(loop.body):
            if node.snapshots:
                raise _Unshown("it holds a loop with snapshots")

    def _numbers(self, live: set[str]) -> None:
        """Names that pass from one pass to the next, or out of the loop: these may only be sums."""
        flow = self.flow
        read, _ = entering(self.loop.body)
        names = self.plan.binds = {n for op in self.ops for n in op.out}
        for name in sorted(names & (read | live)):
            kind = flow.types.get(name)
            if (
                is_array(kind)
                or not (is_float(kind) or is_whole(kind))
                or not is_sum(name, self.loop.body)
            ):
                how = "goes from pass to pass" if name in read else "is read behind the loop"
                raise _Unshown(f"{name} {how}, and is no sum")
            if isinstance(kind, types.Boolean):
                raise _Unshown(f"{name} goes from pass to pass, and is no sum")
            self.plan.sums.append(name)

    # -------------------------------------------------------------------------------------- indices

    def _affine(self) -> dict[str, int]:
        """Names that are the pass's number and a constant."""
        times: dict[str, int] = {}
        for op in operations(self.flow.program.body):
            for n in op.out:
                times[n] = times.get(n, 0) + 1
        found = {self.loop.variable: 0}
        for op in self.ops:
            if op.kind not in ("copy", "pure") or not op.out or times[op.out[0]] != 1:
                continue
            if op.kind == "pure" and op.rule not in ("+", "-"):
                continue
            offset = _offset(op.form, op.args, found)
            if offset is not None:
                found[op.out[0]] = offset
        return found

    def _axes(self, op: Op) -> dict[int, int]:
        """Axes of an operation's array whose index is affine."""
        texts = items_of(op.index)
        if len(texts) != len(op.items):
            return {}
        found = {}
        for axis, (text, item) in enumerate(zip(texts, op.items, strict=True)):
            word = item.split()[0]
            if word not in ("at", "slice"):
                break
            if word == "at":
                offset = _offset(text, op.args, self.offsets)
                if offset is not None:
                    found[axis] = offset
        return found

    # --------------------------------------------------------------------------------------- arrays

    def _arrays(self) -> None:
        """Note what memory each array of the loop's body is made of, then each access to it."""
        flow = self.flow
        for op in self.ops:
            for n in op.out:
                if not flow.array(n):
                    continue
                source = op.args[0] if op.args else None
                if not flow.view(op):
                    unknown = op.kind == "pure" and flow.root(n) in {
                        flow.root(a) for a in op.variables if flow.array(a)
                    }
                    if unknown:
                        raise _Unshown(f"{n} may be a view of another array")
                    self.made.setdefault(n, []).append(None)
                elif isinstance(source, str):
                    axes = self._axes(op) if op.kind == "load" else {}
                    self.made.setdefault(n, []).append((source, axes, op.kind == "copy"))
        for op in self.ops:
            self._access(op)

    def _origins(
        self, name: str, inside: tuple[str, ...] = ()
    ) -> Iterator[tuple[str, dict[int, int], bool]]:
        """The arrays from outside that a name may stand for: with the offsets that a view fixed, and whether it is the whole."""
        if name not in self.bound:
            yield name, {}, True
            return
        if name in inside:
            raise _Unshown(f"{name} changes places with other arrays")
        for made in self.made.get(name, ()):
            if made is not None:
                source, axes, whole = made
                for outer, fixed, all_of_it in self._origins(source, (*inside, name)):
                    yield outer, {**fixed, **(axes if all_of_it else {})}, whole and all_of_it

    def _touch(self, name: Any, kind: str, axes: dict[int, int]) -> None:
        if not isinstance(name, str) or not self.flow.array(name):
            return
        for outer, fixed, whole in self._origins(name):
            found = {**fixed, **(axes if whole else {})}
            self.accesses.setdefault(outer, []).append(_Access(kind, found))

    def _access(self, op: Op) -> None:
        """Note what an operation reads and writes, with offsets from the loop's variable where they are known."""
        flow = self.flow
        if op.kind == "load":
            for a in op.index_operands():
                self._touch(a, "read", {})
            if not flow.view(op):
                gathers = flow.gathers(op)
                self._touch(op.args[0], "load", {} if gathers else self._axes(op))
            return
        if op.kind in ("store", "acc"):
            for a in op.args[1:]:
                self._touch(a, "read", {})
            axes = {} if flow.gathers(op) else self._axes(op)
            self._touch(op.args[0], op.kind, axes)
            return
        if op.kind == "if" or flow.view(op) or op.rule in META:
            return
        for a in op.args:
            self._touch(a, "read", {})

    def _judge(self) -> None:
        """Decide whether passes touch only memory of their own; what depends on values becomes a condition of the plan."""
        flow, plan = self.flow, self.plan
        exact: list[str] = []
        lowest = 0
        for name, found in sorted(self.accesses.items()):
            axes = [
                axis for axis in found[0].offsets if all(axis in access.offsets for access in found)
            ]
            spans = {axis: sorted({access.offsets[axis] for access in found}) for axis in axes}
            own = next((s for s in spans.values() if len(s) == 1), None)
            if any(access.kind in ("load", "read") for access in found):
                plan.loaded.add(name)
            if any(access.kind in ("store", "acc") for access in found):
                if own is None:
                    raise _Unshown(f"{name} is written, and not only at the pass's own index")
                plan.stored.append(name)
                exact.append(name)
                lowest = min(lowest, own[0])
            elif not flow.active(name):
                continue
            elif own is not None:
                exact.append(name)
                lowest = min(lowest, own[0])
            else:
                near = [s for s in spans.values() if s[-1] - s[0] <= _NEAR]
                if near:
                    plan.span = max(plan.span, near[0][-1] - near[0][0])
                    exact.append(name)
                    lowest = min(lowest, near[0][0])
                else:
                    plan.private.append(name)
        plan.distinct = self._distinct()
        for k, name in enumerate(exact):
            for other in self.accesses:
                later = other not in exact[: k + 1]
                matters = name in plan.stored or other in plan.stored or flow.active(name)
                if later and matters and flow.root(other) == flow.root(name):
                    plan.conditions.append(("apart", name, other))
        # An index below zero counts from the end, where another pass may be.
        start = self.loop.bounds[0]
        if exact and not (isinstance(start, Const) and start.value + lowest >= 0):
            plan.conditions.append(("from", str(lowest)))

    def _distinct(self) -> dict[str, str]:
        """Names by the array that they stand for; nothing where one may stand for several."""
        found = {name: name for name in self.accesses}
        for name in self.made:
            origins = {outer for outer, _, _ in self._origins(name)}
            local = None in self.made[name]
            if len(origins) > 1 or (origins and local):
                return {}
            for outer in origins:
                found[name] = outer
        return found


def is_sum(name: str, body: list[Node]) -> bool:
    """Whether passes do nothing with a name but add to it: `s = s + a`, `s = s - a`, or `s = (s + a) + b`."""
    rules = _folded(name, body)
    return rules is not None and rules <= {"+", "-"}


def folding_rule(name: str, body: list[Node]) -> str | None:
    """The one operation by which passes put something to a name, if that is all they do with it."""
    rules = _folded(name, body) or ()
    return next(iter(rules)) if len(rules) == 1 else None


def _folded(name: str, body: list[Node]) -> set[str] | None:
    """The operations of two operands by which passes change a name, whose value they do not read for anything else."""
    ops = list(operations(body))
    binds = {n for op in ops for n in op.out} | set(_counters(body))
    chain = {name}
    rules = set()
    counts = read_counts(body, [])
    operands = 0
    for op in ops:
        if op.kind == "if":
            if op.args[0] in chain:
                return None
            continue
        inside = [a for a in op.args if a in chain]
        if not inside:
            if name in op.out:
                return None
            continue
        operands += 1
        from_left = op.rule != "-" or op.args[0] in chain
        if (
            op.kind != "pure"
            or op.rule is None
            or len(op.args) != 2
            or not from_left
            or len(inside) > 1
        ):
            return None
        rules.add(op.rule)
        if op.out != (name,):
            if counts.get(op.out[0]) != 1 or op.out[0] not in binds:
                return None
            chain.add(op.out[0])
    # Conditions and bounds count as readings too.
    return rules if sum(counts.get(n, 0) for n in chain) == operands else None


def _offset(form: str, args: list[Any], known: dict[str, int]) -> int | None:
    """The constant c of a text that means the pass's number + c."""
    try:
        node = parsed(form.format(*map(plain, args)).strip(), mode="eval").body
    except (SyntaxError, IndexError, ValueError):
        return None
    return constant_part(node, known)


def constant_part(node: ast.expr, known: dict[str, int]) -> int | None:
    """The same of an expression; `known` are names that mean it, with their constants."""
    match node:
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(c))):
            inner = constant_part(left, known)
            return None if inner is None else inner + (c if isinstance(op, ast.Add) else -c)
        case ast.BinOp(left=ast.Constant(value=int(c)), op=ast.Add(), right=right):
            inner = constant_part(right, known)
            return None if inner is None else inner + c
    return None


def loops(nodes: Iterable[Node]) -> Iterator[Loop]:
    """Every loop of a tree."""
    for node in nodes:
        if isinstance(node, Loop):
            yield node
        if not isinstance(node, Seg):
            yield from loops(node.body)
            if isinstance(node, If):
                yield from loops(node.orelse)


def _counters(nodes: list[Node]) -> Iterator[str]:
    for node in loops(nodes):
        if node.variable:
            yield node.variable


def find(nodes: list[Node], flow: Flow) -> dict[int, Plan | str]:
    """Of the loops over prange that no shared loop contains: their plan, or why they have none, by the id of the loop."""
    found: dict[int, Plan | str] = {}

    def walk(block: list[Node]) -> None:
        for node in block:
            if isinstance(node, Seg):
                continue
            if isinstance(node, Loop) and node.parallel:
                live = behind(nodes, node, set(flow.program.results))
                found[id(node)] = made = plan(node, flow, live or set())
                if isinstance(made, Plan):
                    continue
            walk(node.body)
            if isinstance(node, If):
                walk(node.orelse)

    walk(nodes)
    return found


# ------------------------------------------------------------------------------------------------ generated code


class Shared:
    """The code of one shared loop: functions that run some passes, forward and back, and the lines that call them."""

    def __init__(self, parent: Any, node: Loop, plan: Plan) -> None:
        self.parent = parent
        self.node = node
        self.plan = plan
        fresh = parent.unique
        name = parent.program.name
        self.names = {w: fresh(f"{name}_{w}") for w in ("passes", "forward", "back", "reverse")}
        self.first, self.passes, self.parts = map(fresh, ("first", "passes", "parts"))
        self.low, self.high, self.c, self.done = map(fresh, ("low", "high", "c", "done"))
        binds = {n for op in operations(node.body) for n in op.out}
        self.bound = binds | set(_counters(node.body)) | {node.variable}

    # ----------------------------------------------------------------------------- where the loop stood

    def emit(self, fw: Lines, rv: Lines) -> None:
        """Write the loop for several threads, forward and reverse, and beside it the loop of one thread where a test decides."""
        parent, plan = self.parent, self.plan
        start, stop, _ = parent.head(self.node.head, list(self.node.bounds), fw)
        tests = self._begin(start, stop, fw)
        shared = ""
        if tests:
            shared = parent.unique("shared_loop")
            fw.put(f"{shared} = {' and '.join(tests)}")
            fw.open(f"if {shared}:")
        mark = len(fw)
        self._save(fw)
        self._forward(fw)
        serial = Lines(rv.depth + 1)
        if tests:
            fw.close(mark)
            fw.open("else:")
            mark = len(fw)
            parent.loop_of_one_thread(self.node, fw, serial)
            fw.close(mark)
        kept: list[tuple[Any, str]] = [(types.int64, self.first), (types.int64, self.passes)]
        kept += [(types.boolean, shared)] if shared else []
        if parent.depth:
            parent.reserve(fw, 0, len(kept))
            for kind, name in kept:
                parent.push(fw, kind, name)
            for kind, name in reversed(kept):
                parent.pop(rv, kind, name)
        if shared:
            rv.open(f"if {shared}:")
        mark = len(rv)
        places = self._places(rv)
        for name in plan.restored:
            rv.put(places[name])
        self._reverse(rv)
        for name in plan.returned:
            rv.put(places[name])
        if shared:
            rv.close(mark)
            rv.put("else:")
            rv += serial or ["    " * serial.depth + "pass"]

    def _begin(self, start: str, stop: str, lines: Lines) -> list[str]:
        """Tell which passes there are; returns what must hold for threads to share them."""
        lines.put(f"{self.first} = {start}", f"{self.passes} = max({stop} - {self.first}, 0)")
        return [self._test(c) for c in self.plan.conditions]

    def _test(self, condition: tuple[str, ...]) -> str:
        if condition[0] == "apart":
            return f"separate({condition[1]}, {condition[2]})"
        return f"{self.first} + {condition[1]} >= 0"

    def _saved(self) -> list[str]:
        return list(dict.fromkeys([*self.plan.returned, *self.plan.restored]))

    def _save(self, fw: Lines) -> None:
        parent = self.parent
        for name in self._saved():
            kind = parent.typed.types[name]
            parent.kept[name] = "as it was before a parallel loop"
            if is_array(kind):
                parent.save_array(fw, name)
            else:
                parent.reserve_here(fw, int(is_float(kind)), int(not is_float(kind)))
                parent.push(fw, kind, name)

    def _places(self, rv: Lines) -> dict[str, str]:
        """Lines that bring back what was saved, by name; what comes next in reverse lies before it on the stacks."""
        parent = self.parent
        found = {}
        for name in reversed(self._saved()):
            kind = parent.typed.types[name]
            at = parent.unique("at")
            if is_array(kind):
                stack, top = parent.stack_of(kind.dtype)
                rv.put(f"{top} -= {name}.size", f"{at} = {top}")
                found[name] = f"pop_array({stack}, {at}, {name})"
            else:
                parent.pop(rv, kind, at)
                found[name] = f"{name} = {at}"
        return found

    # ---------------------------------------------------------------------------------------- functions

    def _forward(self, fw: Lines) -> None:
        """The passes as they run where nothing is kept."""
        body = Lines(1)
        kinds = self._totals()
        body.put(*(f"{n} = {_zero(kind)}" for n, kind in kinds.items()))
        body.open(f"for {self.node.variable} in range({self.low}, {self.high}):")
        self.parent.run(self.node.body, body)
        body.depth -= 1
        totals = {n: _dtype(kind) for n, kind in kinds.items()}
        given = self._function("passes", body, totals, set())
        lines = self._driver("forward", "passes", given, totals, [], 0)
        self.parent.parts.append(("@shared", lines))
        call = ", ".join([f"chunk_count({self.passes}, 1, 0)", self.first, self.passes, *given])
        self._added(fw, totals, f"{self.names['forward']}({call})")

    def _totals(self) -> dict[str, Any]:
        """What passes add to, with types."""
        return {n: self.parent.typed.types[n] for n in self.plan.sums}

    def _added(self, lines: Lines, names: Iterable[str], call: str) -> None:
        """Add what a call returns to numbers."""
        more = {n: self.parent.unique(f"{n}_more") for n in names}
        outs = "".join(f"{m}, " for m in more.values())
        lines.put(f"{outs.rstrip()} = {call}" if outs else call)
        lines.put(*(f"{n} += {m}" for n, m in more.items()))

    def _reverse(self, rv: Lines) -> None:
        """Each pass again, and back over it at once."""
        parent, plan = self.parent, self.plan
        fw, back = Lines(2), Lines(2)
        with parent.inside(plan) as lists:
            parent.block(self.node.body, fw, back)
            body = Lines(1)
            text = [*(fw if plan.again else []), *back]
            names = _names(text)
            every = [x.changes() | x.holders() | x.exit for x in plan.lines.values()]
            inner = {n for names in every for n in names if n[0] != "@"}
            summed = {parent.bars[n] for n in plan.sums if n in parent.bars}
            bars = {
                bar: n
                for n, bar in parent.bars.items()
                if n in parent.lasting and bar in names and bar not in summed
            }
            totals = {bar: "float64" for bar, n in bars.items() if n not in self.bound}
            parent.declare(body, inner, bars, lists)
            for n in plan.sums:
                body.put(f"{n} = {_zero(parent.typed.types[n])}")
        for word, start in _OWN.items():
            if word in names:
                body.put(f"{word} = {start}")
        body.put("# reverse", f"{self.node.variable} = {self.high}")
        body.put(f"while {self.node.variable} > {self.low}:", f"    {self.node.variable} -= 1")
        body += text
        given = self._function("back", body, totals, summed & names)
        private = [parent.bars[n] for n in plan.private if parent.bars.get(n) in given]
        lines = self._driver("reverse", "back", given, totals, private, plan.span)
        parent.parts.append(("@shared", lines))
        size = " + ".join(f"{b}.nbytes" for b in private) or "0"
        count = f"chunk_count({self.passes}, {max(plan.span, 1)}, {size})"
        call = ", ".join([count, self.first, self.passes, *given])
        self._added(rv, totals, f"{self.names['reverse']}({call})")

    def _function(
        self, which: str, body: Lines, totals: dict[str, str], forced: set[str]
    ) -> list[str]:
        """A function over passes from `low` to `high`; returns the names that it takes beside these."""
        parent = self.parent
        tree = parsed("def f():\n" + "\n".join(body) + "\n    pass")
        loaded: set[str] = set()
        assigned: set[str] = set()
        for n in ast.walk(tree):
            if isinstance(n, ast.Name):
                (loaded if isinstance(n.ctx, ast.Load) else assigned).add(n.id)
        ours = {self.low, self.high, *parent.scope, *dir(builtins), "math"}
        given = sorted((loaded - assigned - ours) | forced)
        lines = Lines()
        lines.open(f"def {self.names[which]}({', '.join([self.low, self.high, *given])}):")
        lines += body
        lines.put(f"return ({''.join(f'{t}, ' for t in totals)})" if totals else "return None")
        parent.parts.append((parent.part_decorator, list(lines)))
        return given

    def _driver(
        self,
        name: str,
        inner: str,
        given: list[str],
        totals: dict[str, str],
        private: list[str],
        span: int,
    ) -> list[str]:
        """The function that shares chunks among threads, and puts together what they give.

        Numba loses errors of a thread, so a chunk that raised is noted, and runs again where the error comes out.
        """
        parent = self.parent
        first, passes, parts, c, done = self.first, self.passes, self.parts, self.c, self.done
        low, high = (f"{first} + {passes} * {at} // {parts}" for at in (c, f"({c} + 1)"))
        sums = {t: parent.unique(f"{t}_parts") for t in totals}
        own = {b: parent.unique(f"{b}_parts") for b in private}
        tried = parent.unique(f"{self.names[inner]}_tried")
        call = f"{self.names[inner]}({', '.join([low, high, *given])})"
        lines = Lines()
        lines.open(f"def {tried}({', '.join([c, parts, first, passes, *given, *sums.values()])}):")
        lines.open("try:")
        lines.put(*(f"clear({b})" for b in private))
        outs = "".join(f"{s}[{c}], " for s in sums.values())
        lines.put(f"{outs.rstrip()} = {call}" if outs else call, "return True")
        lines.depth -= 1
        lines.put("except Exception:", "    return False")
        parent.parts.append((parent.part_decorator, list(lines)))
        lines = Lines()
        lines.open(f"def {self.names[name]}({', '.join([parts, first, passes, *given])}):")
        lines.put(f"{done} = np.zeros({parts}, np.bool_)")
        lines.put(*(f"{s} = np.zeros({parts}, np.{totals[t]})" for t, s in sums.items()))
        lines.put(*(f"{s} = np.empty(({parts},) + {b}.shape, {b}.dtype)" for b, s in own.items()))
        here = [f"{own[g]}[{c}]" if g in own else g for g in given]
        run = (
            f"{done}[{c}] = {tried}({', '.join([c, parts, first, passes, *here, *sums.values()])})"
        )
        if span:
            at = parent.unique("at")
            for colour in (0, 1):
                lines.open(f"for {at} in prange(({parts} + {1 - colour}) // 2):")
                lines.put(f"{c} = 2 * {at} + {colour}", run)
                lines.depth -= 1
        else:
            lines.open(f"for {c} in prange({parts}):")
            lines.put(run)
            lines.depth -= 1
        lines.open(f"for {c} in range({parts}):")
        lines.open(f"if not {done}[{c}]:")
        lines.put(f"{self.names[inner]}({', '.join([low, high, *here])})")
        lines.put(f"raise RuntimeError({_LOST_ERROR!r})")
        lines.depth -= 1
        lines.put(*(f"accumulate({b}, {s}[{c}])" for b, s in own.items()))
        lines.depth -= 1
        # Not np.sum: in a function with threads Numba shares that too, in as many parts as there are threads.
        outs = "".join(f"in_order({s}), " for s in sums.values())
        lines.put(f"return ({outs})" if outs else "return None")
        return list(lines)


def decorator(options: dict[str, Any]) -> str:
    """The line over a function that runs some passes."""
    told = [f"{k}={v!r}" for k, v in sorted(options.items()) if k not in KERNEL_OPTIONS]
    return f"@part({', '.join(told)})"


_LOST_ERROR = "a pass of a parallel loop raised an error, and none when it ran once more"
_OWN = {
    "floats": "np.empty(1024)",
    "ints": "np.empty(1024, np.int64)",
    "nf": "0",
    "ni": "0",
    "referred": "0",
}
"""Names that a chunk has for itself, with what they begin as."""


def _names(lines: list[str]) -> set[str]:
    tree = parsed("def f():\n    while True:\n" + "\n".join(lines) + "\n        pass")
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _dtype(kind: Any) -> str:
    return str(kind)


def _zero(kind: Any) -> str:
    zero = "0.0" if is_float(kind) else "0"
    return zero if kind in (types.float64, types.int64) else f"np.{kind}({zero})"
