"""What flows where: shared memory, activity, and what the reverse sweep needs.

*Memory.* Variables that may share memory belong to one class; its name is "@" and one of them. The reverse speaks of classes.
*Activity.* A value is active if it varies with a differentiated argument and a result varies with it. Active values through an
operation without a rule are refused here, whatever the operation: nothing is dropped silently.
*Lines.* Straight lines are cut so that no element is read after the same memory was written, and what the reverse takes as it is
behind the line (a shadowed array, a power) is bound at most once: then all of a line's old values can be put back at once, and its inner
values computed again from them.
*Needs.* Going forward, the set of what earlier lines need in reverse meets what each line overwrites: only that is kept
("to be recorded", Hascoët, Naumann & Pascual 2005).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from numba.core import types

from . import chunks, rules
from .chunks import META, Plan
from .complaints import remedy
from .inference import is_array, is_float, is_float_array, is_whole
from .lowering import Asked, refuse
from .rules import PLACES, ZERO, Derivative
from .settling import Typed, outer_names
from .tree import (
    IN_PLACE,
    TEMP,
    Const,
    If,
    Loop,
    Node,
    Op,
    Operand,
    Seg,
    bound,
    entering,
    exposed,
    flat,
    is_group,
    operations,
    uses,
)

UNORDERED = (
    "An array is updated in place by a part of itself; Numba does not promise an order.",
    "Write the right side as a copy: x[1:] += x[:-1].copy().",
)
COMPUTED = (
    "A part of an array is computed from another one; Numba does not promise an order.",
    "Assign the result: y[1:] = np.add(y[1:], y[:-1]).",
)
CUSTOM = Derivative({})
CONSTANT = Derivative({})
RESULT, BRANCH = "<result>", "<branch>"
"""What the reverse of an operation may read beside names: its result, and which way a small branch went."""


class Flow:
    """Memory classes and activity of a settled program, by names."""

    def __init__(self, typed: Typed, wanted: Iterable[str]) -> None:
        """Analyse a typed program: which names share memory, and which depend on the `wanted` parameters."""
        self.typed = typed
        self.program = typed.program
        self.types = typed.types
        self.wanted = set(wanted)
        self.derivatives: dict[int, Derivative | None] = {}
        self.distinct: dict[str, str] = {}
        for op in operations(self.program.body):
            if op.kind in ("pure", "copy"):
                self.derivatives[id(op)] = self._derivative(op)
        self.named = set(self.program.params) | {
            n for op in operations(self.program.body) for n in op.out
        }
        self._classes()
        self._activity()
        self._check()

    # ------------------------------------------------------------------------------------------------ kinds

    def array(self, operand: Operand) -> bool:
        return is_array(self.typed.kind(operand))

    def float_array(self, operand: Operand) -> bool:
        return is_float_array(self.typed.kind(operand))

    def real(self, operand: Operand) -> bool:
        """Whether an operand is a float, or an array of floats."""
        kind = self.typed.kind(operand)
        return is_float(kind) or is_float_array(kind)

    def _derivative(self, op: Op) -> Derivative | None:
        if op.kind == "copy":
            return Derivative({0: "g"}, shaped=True, view=self.array(op.out[0]))
        if op.rule == "custom":
            return CUSTOM
        return rules.derivative(op, [self.typed.kind(a) for a in op.args])

    def view(self, op: Op) -> bool:
        """Whether the result shares the memory of the first operand."""
        if op.kind == "load":
            return self.array(op.out[0]) and not self.gathers(op)
        if op.kind not in ("pure", "copy") or not op.out or not self.array(op.out[0]):
            return False
        found = self.derivatives[id(op)]
        return found is not None and found.view

    def gathers(self, op: Op) -> bool:
        """Whether an index holds an array."""
        return any(self.array(a) for a in op.index_operands())

    # ---------------------------------------------------------------------------------------------- memory

    def _classes(self) -> None:
        """Join names that may share memory into classes (union and find); `stored` are those that are written."""
        parent: dict[str, str] = {}

        def find(name: str) -> str:
            while parent.setdefault(name, name) != name:
                name = parent[name]
            return name

        for op in operations(self.program.body):
            if (
                op.out
                and self.array(op.out[0])
                and op.args
                and isinstance(op.args[0], str)
                and self.array(op.args[0])
            ):
                found = self.derivatives.get(id(op))
                # A function of arrays without a known rule might return its argument.
                unknown = op.kind == "pure" and found is None and op.rule not in _FRESH
                if self.view(op) or unknown or op.rule in rules.MAY_SHARE:
                    parent[find(op.out[0])] = find(op.args[0])
        self._find = find
        self.stored: set[str] = set()
        """Classes of memory that is written."""
        for op in operations(self.program.body):
            if op.kind in ("store", "acc") and isinstance(op.args[0], str):
                self.stored.add(self.root(op.args[0]))
        self.mutated = [
            p for p in self.program.params if self.array(p) and self.root(p) in self.stored
        ]

    def root(self, name: str) -> str:
        """The class of an array's memory."""
        return "@" + (self.distinct.get(name) or self._find(name))

    def may_share(self, name: str) -> str:
        """The class by what the program does with names, whatever a test has shown when it runs."""
        return "@" + self._find(name)

    @contextlib.contextmanager
    def apart(self, distinct: dict[str, str]) -> Iterator[None]:
        """For a while, take it that these names stand for memory of their own: a test has shown it."""
        self.distinct = distinct
        try:
            yield
        finally:
            self.distinct = {}

    # -------------------------------------------------------------------------------------------- activity

    def _key(self, name: str) -> str:
        return self.may_share(name) if is_array(self.types.get(name)) else name

    def _flows(self, op: Op) -> tuple[list[str], list[str]]:
        """What an operation reads with a derivative, and what varies with it."""
        if op.kind == "store" or op.kind == "acc":
            base, value = op.args[:2]
            if not isinstance(base, str) or not self.float_array(base):
                return [], []
            return [self._key(a) for a in (value,) if isinstance(a, str) and self.real(a)], [
                self.root(base)
            ]
        if not op.out or op.kind in ("if", "verbatim", "impure"):
            return [], []
        out = op.out[0]
        if not self.real(out):
            return [], []
        if op.kind == "load":
            read = (
                [op.args[0]] if isinstance(op.args[0], str) and self.float_array(op.args[0]) else []
            )
            return [self._key(str(a)) for a in read], [self._key(out)]
        found = self.derivatives[id(op)]
        if found is None and op.rule in ZERO:
            return [], []
        if found is None or found is CUSTOM:
            # An operation without a rule lets all through, so that each such operation on the way is found and refused.
            read = [a for a in op.variables if self.real(a)]
        elif found.view:
            read = [str(op.args[0])] if isinstance(op.args[0], str) else []
        else:
            read = [
                str(op.args[i])
                for i in found.pull
                if isinstance(op.args[i], str) and self.real(op.args[i])
            ]
        return [self._key(str(a)) for a in read], [self._key(out)]

    def _activity(self) -> None:
        flows = [self._flows(op) for op in operations(self.program.body)]
        varied = {self._key(p) for p in self.wanted}
        useful = {self._key(r) for r in self.program.results if self.real(r)}
        self.varied = _closure(varied, flows)
        self.useful = _closure(useful, [(out, read) for read, out in flows])
        self._active = self.varied & self.useful

    def active(self, operand: Operand) -> bool:
        return (
            isinstance(operand, str) and self.real(operand) and self._key(operand) in self._active
        )

    def varies(self, operand: Operand) -> bool:
        return isinstance(operand, str) and self._key(operand) in self.varied

    @functools.cached_property
    def unused(self) -> set[str]:
        """Wanted parameters of which no result is made, not even through an operation whose slope is zero, as floor's is."""
        flows = []
        for op in operations(self.program.body):
            read, out = self._flows(op)
            opaque = op.kind in ("verbatim", "impure")
            if opaque or (op.out and op.kind != "if" and self.real(op.out[0])):
                read = [self._key(a) for a in op.variables if opaque or self.real(a)]
                out = [self._key(n) for n in op.out]
            flows.append((out, read))
        used = _closure({self._key(r) for r in self.program.results}, flows)
        return {p for p in self.wanted if self._key(p) not in used}

    def _matters(self, name: str) -> bool:
        return self._key(name) in self.useful

    def _check(self) -> None:
        """Refuse what an active value flows through without a rule, or ask for it to be written out."""
        written: dict[str, Op] = {}
        asked = Asked()
        for op in operations(self.program.body):
            if op.kind in ("store", "acc"):
                self._check_store(op)
                self._check_written(op, written)
            if "written" in op.settings:
                written[op.out[0]] = op
            if not op.out or op.kind in ("if", "verbatim"):
                continue
            read = op.variables if op.kind != "load" else [str(op.args[0])]
            varying = [a for a in read if self.varies(a)]
            if not varying:
                continue
            out = op.out[0]
            kind = self.types[out]
            if is_whole(kind) or (is_array(kind) and is_whole(kind.dtype)) or op.rule in ZERO:
                continue
            if isinstance(kind, types.NoneType | types.DType | types.NumberClass | types.RangeType):
                continue
            if op.rule == "custom":
                self._check_rule(op)
            if op.rule in rules.MAY_SHARE and self.root(out) in self.stored and not self.view(op):
                raise refuse(
                    op.where,
                    f"The result of {op.rule} may be memory of its argument, and one of them is written.",
                    "Copy it: y = x.copy().",
                )
            missing = op.kind != "load" and self.derivatives.get(id(op)) is None
            if missing and (self._matters(out) or not self.real(out)) and asked.add(op):
                continue
            if not self.real(out):
                raise refuse(
                    op.where,
                    f"A differentiated value flows into one of type {kind}, which has no derivative here.",
                    "Use floats and arrays of floats.",
                )
            if op.kind == "impure":
                raise refuse(
                    op.where,
                    "Random numbers are drawn with a differentiated parameter.",
                    "Draw from the standard distribution and scale: m + s * np.random.normal().",
                )
            if op.kind == "load":
                continue
            found = self.derivatives.get(id(op))
            unknown = found is not None and any(self.varies(op.args[i]) for i in found.unknown)
            if (missing or unknown) and self._matters(out):
                raise refuse(
                    op.where,
                    f"{op.rule or op.form} of a differentiated value has no derivative rule for these arguments.",
                    remedy(op.rule),
                )
        asked.done()

    def _check_rule(self, op: Op) -> None:
        """Refuse a rule of the user's whose cotangents cannot be those of the arguments."""
        custom = self.program.customs.get(op.form.partition("(")[0])
        kinds = [self.typed.kind(a) for a in op.args]
        if custom is None or any(k is None for k in kinds):
            return
        wrong = custom.complaint(kinds, self.types[op.out[0]])
        if wrong is not None:
            raise refuse(op.where, wrong, "Return a tuple with one cotangent for each.")

    def _check_store(self, op: Op) -> None:
        """Refuse a store that has no derivative: into globals, tuples, of other types, or into a part of the array that is read."""
        base, value = op.args[:2]
        if not isinstance(base, str):
            raise refuse(op.where, "A global array is written.", "Pass it as an argument.")
        if not self.array(base):
            raise refuse(
                op.where, f"An element of a {self.typed.kind(base)} is written.", "Use an array."
            )
        if (
            not self.array(value)
            and isinstance(value, str)
            and not (self.real(value) or is_whole(self.types[value]))
        ):
            raise refuse(
                op.where,
                f"A value of type {self.types[value]} is stored.",
                "Store a real number or an array.",
            )
        if (
            self.array(base)
            and isinstance(self.types[base].dtype, types.Complex)
            and self.varies(value)
        ):
            raise refuse(
                op.where, "A differentiated value is stored in a complex array.", "Use real arrays."
            )
        if (
            op.kind == "acc"
            and isinstance(value, str)
            and self.array(value)
            and self.root(value) == self.root(base)
        ):
            raise refuse(op.where, *UNORDERED)

    def _check_written(self, op: Op, written: dict[str, Op]) -> None:
        """Refuse `np.f(x, y, out)` and `x *= y` where they read what they write: they are stores here, Numba's loops.

        An elementwise function may read the element itself.
        """
        base, value = op.args[:2]
        if not isinstance(value, str) or value not in written:
            return
        made = written[value]
        in_place = made.settings["written"] == IN_PLACE
        for a in made.args[1:] if in_place else made.variables:
            itself = a == base and made.rule not in ("np.dot", "np.outer")
            if not self.array(a) or itself or self.root(str(a)) != self.root(str(base)):
                continue
            raise refuse(op.where, *(UNORDERED if in_place else COMPUTED))

    # --------------------------------------------------------------------------------------- classification

    def element(self, op: Op) -> bool:
        """Whether a store or acc writes one element."""
        if not op.items or any(not item.startswith("at ") for item in op.items):
            return False
        base = self.types[str(op.args[0])]
        index = op.index_operands()
        if any(self.array(a) for a in index):
            return False
        return len(op.items) == base.ndim or (is_group(op) and len(index) == base.ndim)

    def derivative(self, op: Op) -> Derivative:
        """What is known of an operation. Where nothing is, no operand varies (see `_check`), though the result's name may elsewhere."""
        return self.derivatives[id(op)] or CONSTANT


_FRESH = frozenset(
    """compare not bool np.argsort np.nonzero np.flatnonzero np.searchsorted np.isnan np.isinf np.isfinite np.less np.greater np.equal
    np.not_equal np.less_equal np.greater_equal np.logical_and np.logical_or np.logical_not np.logical_xor np.bincount np.unique
    np.floor np.ceil np.trunc np.rint np.sign np.round np.around + - * / ** // % & | ^ << >> neg ~ np.digitize np.sort indices""".split()
)


def _closure(start: set[str], edges: list[tuple[list[str], list[str]]]) -> set[str]:
    reached = set(start)
    changed = True
    while changed:
        changed = False
        for read, out in edges:
            if any(r in reached for r in read):
                for o in out:
                    if o not in reached:
                        reached.add(o)
                        changed = True
    return reached


# ----------------------------------------------------------------------------------------------- straight lines


@dataclass(slots=True)
class Line:
    """What is known of one straight line."""

    again: list[int] = field(default_factory=list)
    """Operations whose values the reverse computes again."""
    inside: set[int] = field(default_factory=set)
    """Of small branches among them: operations inside that are computed again, by their id."""
    outs: dict[int, set[str]] = field(default_factory=dict)
    """And for each such branch, by its id, the names that it has to bind."""
    entry: set[str] = field(default_factory=set)
    """Names and memory classes whose value before the line its reverse needs."""
    exit: set[str] = field(default_factory=set)
    """Names whose value after the line its reverse needs: arrays that were made in it."""
    binds: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    keeps: set[str] = field(default_factory=set)
    """Names that are kept before the line overwrites them."""
    keeps_memory: set[str] = field(default_factory=set)
    """Memory classes of which overwritten elements are kept."""
    moves: dict[str, str] = field(default_factory=dict)
    """Names of arrays that the line binds anew, with the names that hold these arrays behind it: buffers that change places."""
    moved: set[str] = field(default_factory=set)
    """Names that come back from there instead of being kept."""

    def changes(self) -> set[str]:
        """Names that the reverse gives their old values."""
        return self.keeps | self.moved

    def holders(self) -> set[str]:
        """Names that hold the arrays that moved, until the reverse asks for them."""
        return {self.moves[n] for n in self.moved}


class Needs:
    """Straight lines of a program, cut and analysed."""

    def __init__(self, flow: Flow, threads: bool = False) -> None:
        """Find, for each stretch of operations, which values the reverse needs and how it gets them."""
        self.flow = flow
        self.typed = flow.typed
        self.program = flow.program
        self.lines: dict[int, Line] = {}
        self.before: dict[int, set[str]] = {}
        """For each loop what the reverse of all that stands before it needs."""
        self.plans: dict[int, Plan | str] = {}
        """Of loops over prange, where `threads` may be used."""
        self.passing: set[str] | None = None
        """Names that a pass of a shared loop binds, while one is looked at: all others stay as they are."""
        self._cut(self.program.body)
        self.outer = outer_names(self.program)
        self._find_local_arrays()
        self._find_zeroed()
        for node in _segs(self.program.body):
            self.lines[id(node)] = self._line(node.ops)
        self._find_stable()
        if threads:
            self.plans = chunks.find(self.program.body, flow)
            for loop in chunks.loops(self.program.body):
                found = self.plans.get(id(loop))
                if isinstance(found, Plan):
                    self._alone(loop, found)
        self._record(self.program.body, set())
        self._check()

    # ------------------------------------------------------------------------------------------ cutting

    def _cut(self, nodes: list[Node]) -> None:
        i = 0
        while i < len(nodes):
            node = nodes[i]
            if isinstance(node, Seg):
                at = self._first_cut(node.ops)
                if at:
                    nodes[i : i + 1] = [Seg(node.ops[:at]), Seg(node.ops[at:])]
            else:
                self._cut(node.body)
                if isinstance(node, If):
                    self._cut(node.orelse)
            i += 1

    def _first_cut(self, ops: list[Op]) -> int:
        """The first operation of a stretch that must begin a new one, since what the reverse reads would be overwritten; 0 for none."""
        flow = self.flow
        written: set[str] = set()
        located: set[str] = set()
        """Memory that says where elements were stored."""
        results: set[str] = set()
        """Memory made in this line that the reverse of its maker reads."""
        behind: dict[str, set[str]] = {}
        """The memory that names bound in this line were computed from."""
        made: set[str] = set()
        for k, op in enumerate(ops):
            if k and (op.kind == "impure" or ops[k - 1].kind == "impure"):
                return k
            if k and (op.rule == "custom" or ops[k - 1].rule == "custom") and op is not ops[0]:
                return k
            if k and ops[k - 1].kind == "store" and not flow.element(ops[k - 1]):
                return k
            if k and ops[k - 1].kind == "acc" and not flow.element(ops[k - 1]):
                return k
            for inner in flat([op]):
                # A store reads its value and index; an acc its element too, but its reverse does not ask what that was.
                read = inner.variables[1:] if inner.kind in ("store", "acc") else inner.variables
                if written and any(flow.array(a) and flow.root(a) in written for a in read):
                    return k
            for inner in flat([op]):
                memory = {flow.root(a) for a in inner.variables if flow.array(a)}
                memory = memory.union(*(behind.get(a, ()) for a in inner.variables))
                for n in inner.out:
                    behind[n] = behind.get(n, set()) | memory
            if op.kind in ("store", "acc"):
                # The reverse finds these elements before it puts anything back.
                index = {a for a in op.index_operands() if isinstance(a, str) and a in behind}
                located = located.union(*(behind[a] for a in index))
                written.add(flow.root(str(op.args[0])))
                if k and written & (located | results):
                    return k
            if op.out and flow.array(op.out[0]) and self._reads_result(op):
                results.add(flow.root(op.out[0]))
            for n in op.out:
                # A second binding in one line would hide the first one's shadow, or the value that is not computed again.
                if n in made:
                    return k
                if flow.array(n) or _costly(op):
                    made.add(n)
                if flow.array(n):
                    if not flow.view(op) and flow.root(n) in flow.stored:
                        written.add(flow.root(n))
        return 0

    def _reads_result(self, op: Op) -> bool:
        found = self.flow.derivatives.get(id(op))
        return found is CUSTOM or (
            found is not None
            and any("out" in found.names(i) for i in found.pull if self.flow.active(op.args[i]))
        )

    # ------------------------------------------------------------------------------- arrays that stay inside

    def _find_local_arrays(self) -> None:
        """Values that live within one straight line, never written, never shared: their shadow is made in reverse."""
        flow = self.flow
        self.local_arrays: set[str] = set()
        places: dict[str, set[int]] = {}
        makers: dict[str, list[Op]] = {}
        shared: set[str] = set()
        for node in _segs(self.program.body):
            for op in flat(node.ops):
                for n in (*op.variables, *op.out):
                    places.setdefault(n, set()).add(id(node))
                for n in op.out:
                    makers.setdefault(n, []).append(op)
                if flow.view(op):
                    shared.update(op.out)
                    shared.update(a for a in op.variables[:1])
                if op.kind == "store":
                    # Where the line stored must be known before what it stored over is put back, so this is not computed again.
                    shared.update(a for a in op.index_operands() if isinstance(a, str))
        for n, ops in makers.items():
            if (
                not flow.array(n)
                or n in shared
                or n in self.outer
                or len(places[n]) != 1
                or len(ops) != 1
            ):
                continue
            op = ops[0]
            if (
                op.kind not in ("pure", "load")
                or op.rule == "custom"
                or flow.root(n) in flow.stored
            ):
                continue
            if op.kind == "pure" and flow.derivatives[id(op)] is None and flow.active(n):
                continue
            self.local_arrays.add(n)

    def _find_zeroed(self) -> None:
        """Local arrays whose shadow begins as zeros: some cotangents of theirs come without the array's shape, or in one branch only."""
        flow = self.flow
        self.zeroed: set[str] = set()
        for op in operations(self.program.body):
            if op.kind == "if":
                self.zeroed.update(a for a in uses(op) if a in self.local_arrays)
            if op.kind == "load":
                self.zeroed.update(a for a in op.variables[:1] if a in self.local_arrays)
            elif op.kind in ("store", "acc"):
                self.zeroed.update(a for a in op.variables[1:2] if a in self.local_arrays)
            elif op.kind == "pure" and op.out and flow.active(op.out[0]):
                found = flow.derivative(op)
                for i in found.pull:
                    a = op.args[i]
                    if isinstance(a, str) and a in self.local_arrays and not found.shaped:
                        self.zeroed.add(a)

    # --------------------------------------------------------------------------------------- needs of a line

    def _line(self, ops: list[Op]) -> Line:
        """What the reverse of a stretch needs: names at its entry and exit, and operations that are run again."""
        flow = self.flow
        line = Line()
        line.binds = bound(ops)
        line.moves = self._moves(ops)
        for op in flat(ops):
            if op.kind in ("store", "acc"):
                line.writes.add(flow.root(str(op.args[0])))
        versions: list[dict[str, int | None]] = []
        current: dict[str, int] = {}
        for k, op in enumerate(ops):
            names = {a for o in flat([op]) for a in (*o.variables, *uses(o))}
            versions.append({a: current.get(a) for a in names})
            for n in op.out:
                current[n] = k
        again: set[int] = set()
        branches: set[int] = set()
        """Small branches whose reverse reads values from inside."""
        pending: list[int] = []

        def value(name: str, k: int, contents: bool = True) -> None:
            """The reverse needs what `name` is just before operation k."""
            made = versions[k].get(name)
            self_(name, made, contents)

        def self_(name: str, made: int | None, contents: bool) -> None:
            """Note that `name`, made by operation `made` of the stretch (None: before it), is needed: run again or kept."""
            if made is None:
                line.entry.add(name)
                if contents and flow.array(name):
                    line.entry.add(flow.root(name))
                return
            op = ops[made]
            if self.repeatable(op, name):
                if op.kind == "if":
                    # Asked for one more of its results: what is computed inside is looked through again.
                    line.outs.setdefault(id(op), set()).add(name)
                if op.kind == "if" or made not in again:
                    again.add(made)
                    pending.append(made)
                if contents and flow.array(name) and flow.view(op):
                    line.entry.add(flow.root(name))
            else:
                line.exit.add(name)
                if contents and flow.array(name):
                    line.exit.add(flow.root(name))

        def close() -> None:
            while pending:
                k = pending.pop()
                op = ops[k]
                if op.kind == "if":
                    for a in self._inside(op, k in branches, line):
                        value(a, k)
                    continue
                for a in op.variables:
                    meta = op.kind == "pure" and op.rule in META
                    value(a, k, contents=not (meta or (flow.view(op) and a == op.args[0])))

        for k, op in enumerate(ops):
            for name, contents in self._reverse_reads(op):
                if name == RESULT:
                    self_(op.out[0], k, contents)
                elif name == BRANCH:
                    again.add(k)
                    branches.add(k)
                    pending.append(k)
                else:
                    value(name, k, contents)
        close()
        line.again = sorted(again)
        return line

    def _reads_inside(self, branch: Op) -> bool:
        """Whether the reverse of an active small branch reads what is computed in it."""
        inner = [o for o in flat([branch]) if o is not branch]
        return any(o.kind == "if" for o in inner) or any(
            True for o in inner for _ in self._value_reads(o)
        )

    def _inside(self, branch: Op, reverse: bool, line: Line) -> set[str]:
        """Names that a small branch reads where it runs again to bind what it has to, and for its reverse what that reads."""
        wanted = line.outs.setdefault(id(branch), set())
        read = set(branch.variables)
        for block in (branch.body, branch.orelse):
            live = set(wanted)
            for op in reversed(block):
                again = live & set(op.out)
                asked: set[str] = set()
                if op.kind == "if":
                    deep = False
                    if reverse and any(self.flow.active(n) for o in flat([op]) for n in o.out):
                        asked.update(op.variables)
                        deep = self._reads_inside(op)
                    if again or deep:
                        line.inside.add(id(op))
                        line.outs.setdefault(id(op), set()).update(again)
                        asked |= self._inside(op, reverse, line)
                    live = (live - again) | asked
                    continue
                names = {n for n, _ in self._value_reads(op)} if reverse else set()
                if again or RESULT in names:
                    line.inside.add(id(op))
                    live = (live - again) | set(op.variables)
                live |= names - {RESULT}
            read |= live
        return read

    def _moves(self, ops: list[Op]) -> dict[str, str]:
        """For arrays under names that a line binds anew, the names that hold them behind it."""
        origin: dict[str, str | None] = {}
        for op in flat(ops):
            source = op.args[0] if op.kind == "copy" and op in ops else None
            found = origin.get(source, source) if isinstance(source, str) else None
            for n in op.out:
                origin[n] = found
        flow = self.flow
        return {
            old: new
            for new, old in sorted(origin.items())
            if old in origin
            and old != new
            and not new.startswith(TEMP)
            and flow.array(new)
            and flow.types[old] == flow.types[new]
            and flow.active(old) == flow.active(new)
        }

    def repeatable(self, op: Op, name: str) -> bool:
        """Whether an operation's value can be computed again in reverse."""
        if op.kind == "if":
            return True
        if op.kind not in ("pure", "load", "copy") or op.rule == "custom":
            return False
        if not self.flow.array(name):
            return not _costly(op)
        return self.flow.view(op) or name in self.local_arrays

    def _reverse_reads(self, op: Op) -> Iterable[tuple[str, bool]]:
        """What the reverse of an operation reads: names with whether their contents matter."""
        flow = self.flow
        if op.kind in ("store", "acc"):
            # To put old elements back, and to find those of the shadow.
            yield str(op.args[0]), False
            for a in op.index_operands():
                if isinstance(a, str):
                    yield a, True
            if flow.active(op.args[1]) and flow.array(op.args[1]):
                yield str(op.args[1]), op.args[1] in self.local_arrays
            return
        if op.kind == "if":
            if any(flow.active(n) for o in flat([op]) for n in o.out):
                yield str(op.args[0]), True
                if self._reads_inside(op):
                    yield BRANCH, True
            return
        yield from self._value_reads(op)

    def _value_reads(self, op: Op) -> Iterable[tuple[str, bool]]:
        """Names whose values the reverse of an operation reads, each with whether the contents of an array count."""
        flow = self.flow
        if not op.out or op.kind in ("verbatim", "impure", "if"):
            return
        out = op.out[0]
        if op.rule == "custom":
            if any(flow.active(n) for n in op.out):
                for a in op.variables:
                    yield a, True
                yield RESULT, True
            return
        if not flow.active(out):
            return
        if flow.array(out):
            if flow.view(op):
                return
            if out not in self.local_arrays:
                yield RESULT, False
        if op.kind == "load":
            yield str(op.args[0]), str(op.args[0]) in self.zeroed
            yield from ((i, True) for i in op.index_operands() if isinstance(i, str))
            return
        found = flow.derivative(op)
        for i in found.pull:
            if not flow.active(op.args[i]):
                continue
            a = str(op.args[i])
            if flow.array(a) and (a not in self.local_arrays or a in self.zeroed):
                yield a, a in self.zeroed
            for n in found.names(i):
                if n == "out":
                    yield RESULT, True
                elif n in PLACES and PLACES.index(n) < len(op.args):
                    operand = op.args[PLACES.index(n)]
                    if isinstance(operand, str):
                        yield operand, True

    # ------------------------------------------------------------------------------------ to be recorded

    def _record(self, nodes: list[Node], needed: set[str]) -> set[str]:
        """Decide what lines keep; returns what is needed after the nodes, given what is needed before."""
        for node in nodes:
            if isinstance(node, Seg):
                line = self.lines[id(node)]
                total = needed | line.entry
                over = line.binds & total
                line.moved |= over & line.moves.keys()
                line.keeps |= over - line.moved
                line.keeps_memory |= line.writes & total
                needed = (total - line.binds) | line.exit | line.holders()
            elif isinstance(node, If):
                needed = self._record(node.body, set(needed)) | self._record(
                    node.orelse, set(needed)
                )
            else:
                if node.snapshots:
                    needed = needed | self._run_again(node)
                before = self.before[id(node)] = needed
                while True:
                    after = needed | self._record(node.body, set(needed))
                    if after == needed:
                        break
                    needed = after
                found = self.plans.get(id(node))
                if isinstance(found, Plan):
                    needed = needed | self._saved(node, found, before)
        return needed

    def _run_again(self, loop: Loop) -> set[str]:
        """What passes that run from snapshots read and a snapshot does not hold: names and memory that they leave as they are."""
        ops = list(operations(loop.body))
        binds = {loop.variable, *(n for op in ops for n in op.out)}
        written = {self.flow.root(str(op.args[0])) for op in ops if op.kind in ("store", "acc")}
        read = {n for op in ops for n in op.variables if self.flow.array(n)}
        return (entering(loop.body)[0] - binds) | ({self.flow.root(n) for n in read} - written)

    # ------------------------------------------------------------------------------------ parallel loops

    def _alone(self, loop: Loop, found: Plan) -> None:
        """What lines of a parallel loop keep where each pass is reversed as soon as it ran, and whether it has to run again."""
        nodes = list(_segs(loop.body))
        serial = {id(node): self.lines[id(node)] for node in nodes}
        with self.flow.apart(found.distinct):
            self.lines |= {id(node): self._line(node.ops) for node in nodes}
            self._record(loop.body, set())
        found.lines = {id(node): self.lines[id(node)] for node in nodes}
        self.lines |= serial
        lines = found.lines.values()
        binds = found.binds
        written = {f"@{found.distinct.get(n, self.flow.root(n)[1:])}" for n in found.stored}
        self.passing = binds
        steady = self._steady(loop.body)
        self.passing = None
        found.again = (
            any(line.changes() or line.keeps_memory or line.exit for line in lines)
            or any(line.entry & (binds | written) for line in lines)
            or any(
                self.flow.array(n) and self.flow.active(n) and n not in self.local_arrays
                for n in binds
            )
            or not steady
        )

    def _steady(self, nodes: list[Node]) -> bool:
        """Whether conditions and bounds are known in reverse without a run of the pass."""
        for node in nodes:
            if isinstance(node, If):
                blocks, operands = [node.body, node.orelse], [node.condition]
            elif isinstance(node, Loop):
                blocks, operands = [node.body], list(node.bounds)
                if not node.variable or node.stop:
                    return False
            else:
                continue
            if not self.stable(node.head, operands) or not all(map(self._steady, blocks)):
                return False
        return True

    def _saved(self, loop: Loop, found: Plan, before: set[str]) -> set[str]:
        """Note what a parallel loop saves, given what is needed before it; returns what runs of its passes in reverse read."""
        roots = {n: self.flow.root(n) for n in found.stored}
        found.restored = [n for n in found.stored if found.again and n in found.loaded]
        found.returned = [
            *(n for n in found.sums if n in before),
            *(n for n in found.stored if roots[n] in before),
        ]
        read = entering(loop.body)[0] - {loop.variable}
        if not found.again:
            return read
        return read | {self.flow.root(n) for n in found.loaded - set(found.stored)}

    def _check(self) -> None:
        """Refuse values that would have to be kept and are neither numbers nor arrays of numbers."""
        for line in self.lines.values():
            for name in line.keeps:
                kind = self.flow.types[name]
                if not (is_float(kind) or is_whole(kind) or is_array(kind)):
                    raise refuse(
                        self.program.where,
                        f"{name} is of type {kind}, changes, and is needed in reverse.",
                        "Use numbers and arrays for what changes.",
                    )
            for root in line.keeps_memory:
                kind = self.flow.types[root[1:]]
                if not (is_float(kind.dtype) or is_whole(kind.dtype)):
                    raise refuse(
                        self.program.where,
                        f"Elements of type {kind.dtype} change and are needed in reverse.",
                        "Use real arrays.",
                    )

    # -------------------------------------------------------------------------------------------- stability

    def _find_stable(self) -> None:
        """Names with the same value throughout: bound once, outside of loops."""
        count: dict[str, int] = dict.fromkeys(self.program.params, 1)
        self.loop_variables: set[str] = set()

        def walk(nodes: list[Node], inside: int) -> None:
            for node in nodes:
                ops = node.ops if isinstance(node, Seg) else node.head
                for n in (n for op in flat(ops) for n in op.out):
                    count[n] = count.get(n, 0) + 1 + inside
                if isinstance(node, If):
                    walk(node.body, inside)
                    walk(node.orelse, inside)
                elif isinstance(node, Loop):
                    if node.variable:
                        self.loop_variables.add(node.variable)
                    walk(node.body, 1)

        walk(self.program.body, 0)
        self.stable_names = {n for n, c in count.items() if c == 1}

    def stable(self, ops: list[Op], operands: Iterable[Operand]) -> bool:
        """Whether operands, and what operations compute them from, are the same in reverse as they were forward."""
        inner = bound(ops)
        read = [a for a in operands if isinstance(a, str) and a not in inner] + exposed(ops)
        for a in read:
            fixed = a in self.stable_names or (self.passing is not None and a not in self.passing)
            if not fixed and a not in self.loop_variables:
                return False
        for op in flat(ops):
            meta = op.rule in META
            if op.kind not in ("pure", "load", "copy") or op.rule == "custom":
                return False
            if not meta and any(
                self.flow.array(a) and self.flow.may_share(a) in self.flow.stored
                for a in op.variables
            ):
                return False
        return True


def _costly(op: Op) -> bool:
    """Whether to keep a number is cheaper than to compute it again: a general power takes as long as some twenty loads."""
    if op.rule not in ("**", "pow", "math.pow", "np.power"):
        return False
    exponent = op.args[1]
    value = exponent.value if isinstance(exponent, Const) else None
    return type(value) is float and not value.is_integer()


def _segs(nodes: Iterable[Node]) -> Iterable[Seg]:
    for node in nodes:
        if isinstance(node, Seg):
            yield node
        else:
            yield from _segs(node.body)
            if isinstance(node, If):
                yield from _segs(node.orelse)
