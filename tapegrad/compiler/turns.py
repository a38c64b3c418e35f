"""Turns: a part of a tape that repeats becomes one entry before a walk goes back through it.

A Python loop of n steps leaves n copies of its entries. If the loop were found only in the graph (rolling.py), after the walk, the walk
would cost n pullbacks. So the period is looked for on the tape. One turn of its entries, applied to the values that a turn is given, is the
step of a pass (iteration.py), whose derivative takes one pullback. Every operand has to follow one of the rules of rolling.py.

The calls of the loop stay in the graph. Later readers read the pass instead, so `Graph.pruned` drops these calls, unless Python has kept a
value of some turn.

Invariant: a tape that the rules do not cover stays as it was, and so does its graph.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..core import dual, storage, sweep
from ..core.packing import unpacked
from ..core.primitive import OPS, apply
from ..core.tape import FREED, IN0, IN1, KW, OP, OUT, RECORDER, SLOT, STRIDE, X, Y
from ..core.tensor import Tensor, value_of, wrap
from ..face.inplace import setitem
from ..ops.joining import stack
from .graph import Guard, Node, Recorded, Ref, filled
from .iteration import Cell, Pass, _Iterated, _Made, iterated
from .rolling import (
    LEAST_TURNS,
    MOST_ALIKE,
    TRIMS,
    _along,
    _index,
    _signature,
    _within,
    index_of_turns,
    periods,
)
from .tracing import _CALLS, Trace, Traced, Unrolled, _draws_nothing, _stored

LEAST = 250
"""Entries that repeat below which they stay as they are: all of them are one native part then."""

NESTED = 600
"""Entries of a turn from which on a turn that is mostly a loop has that loop wound first: one by one they take seconds to compile."""

MOST_LOOSE = 16
"""Values of single turns that are read after the loop, above which it stays as it is."""

WIDEST = 16
"""Operands of an entry above which it is no part of a loop: it is rather what joins the values of all turns."""

MOST_COMPUTED = 64
"""Calls of a turn behind one value that has no entry."""

MOST_BYTES = 1 << 26
"""Bytes of values that differ from turn to turn."""

NONE = -1
_FLOAT = np.dtype(float)
_SETITEM, _STACK = setitem.primitive.code, stack.primitive.code
KEY = "turns of a Python loop"
"""By this key a trace is told not to look for turns, where a step's pullback looks at values."""


def wound(trace: Trace, code: list[Any], pending: dict[Any, Any], watch: dict[Any, Any]) -> Any:
    """The entries with their repeating parts as one entry each, for a walk from `pending` down; the same entries where there are none."""
    if len(code) < LEAST * STRIDE or type(trace) is not Trace or KEY in trace.unrolled:
        return code
    if sweep.GUARD.get() is not None or told_of(code, watch) or told_of(code, dual.saved):
        return code
    code = _rows_joined(trace, code, pending)
    winder = _Winder(trace, code, pending)
    try:
        return winder.run()
    except Unrolled:
        return code
    finally:
        vars(winder).clear()  # functions that name themselves keep it until a collection


def told_of(code: list[Any], slots: dict[Any, Any]) -> bool:
    """Whether somebody has a hook, say, at one of the entries; those at other tapes' do not matter."""
    return bool(slots) and not slots.keys().isdisjoint(code[SLOT::STRIDE])


def standing(code: list[Any], pending: dict[Any, Any]) -> list[Any]:
    """A copy of the entries without the freed ones that a walk from `pending` does not come to.

    Those stand between the turns of a loop: where tensors of the program have a finaliser, what nobody can ask for in places of no order
    (lifetime.py); where a turn has a `backward()` of its own, the entries that this has gone through. The copy holds all slots, so that
    none of its entries goes while it is read.
    """
    freed = [k for k in range(0, len(code), STRIDE) if code[k] == FREED]
    if not freed:
        return list(code)
    read: set[Any] = set(pending)
    for k in range(0, len(code), STRIDE):
        if code[k] != FREED:
            first = code[k + IN0]
            read.update(first if type(first) is tuple else code[k + IN0 : k + IN1 + 1])
    kept: list[Any] = []
    for k in range(0, len(code), STRIDE):
        if code[k] != FREED or code[k + SLOT] in read:
            kept += code[k : k + STRIDE]
    return kept


def _rows_joined(trace: Trace, code: list[Any], pending: dict[Any, Any]) -> list[Any]:
    """The entries with one store of many rows where turns store to one row of an array each, which nothing reads in between.

    Row by row the store is a part of no loop: its array is as large as all turns.
    """
    chains = [chain for chain in _chains(code, pending) if _is_one_store(trace, code, chain)]
    gone = {k for chain in chains for k in chain}
    last = {chain[-1]: chain for chain in chains}
    if not chains:
        return code
    behind: dict[Node, list[Any]] = {}
    now: dict[Node, Node] = {}
    new: list[Any] = []
    for k in range(0, len(code), STRIDE):
        if k in last:
            entries, made = _one_store(trace, code, last[k])
            new += entries
            old = code[k + OUT].node
            behind[old], now[old] = made, made[-1]
        elif k not in gone:
            new += code[k : k + STRIDE]
    steps: list[Any] = []
    for step in trace.graph.steps:
        if type(step) is Guard:
            steps.append(replace(step, node=now.get(step.node, step.node)))
            continue
        node: Any = step
        for call in (node, *behind.get(node, ())):
            if any(x in now for x in call.inputs):
                call.inputs = tuple(now.get(x, x) for x in call.inputs)
            steps.append(call)
    trace.graph.steps = steps
    for k in last:
        value = code[k + OUT]
        value.node = now.get(value.node, value.node)
    return new


def _chains(code: list[Any], pending: dict[Any, Any]) -> list[list[int]]:
    """Where entries are that store to rows of one array in even steps, one after the other, each reading what the one before made."""
    stores = [
        k for k in range(0, len(code), STRIDE) if code[k] == _SETITEM and _row_of(code, k) >= 0
    ]
    if len(stores) < LEAST_TURNS:
        return []
    reads: Counter[Any] = Counter(pending.keys())
    for k in range(0, len(code), STRIDE):
        first = code[k + IN0]
        reads.update(first if type(first) is tuple else code[k + IN0 : k + IN1 + 1])
    chains: dict[Any, list[int]] = {}
    for k in stores:
        base = code[k + IN0]
        chain = chains.get(base) if reads[base] == 1 else None
        if chain is not None and len(chain) > 1:
            a, b = (_row_of(code, j) for j in chain[-2:])
            chain = chain if _row_of(code, k) - b == b - a else None
        if chain is None:
            chain = []
        else:
            del chains[base]
        chain.append(k)
        chains[code[k + SLOT]] = chain
    return [chain for chain in chains.values() if len(chain) >= LEAST_TURNS]


def _row_of(code: list[Any], k: int) -> int:
    """The row of a traced array to which an entry stores a value that has the row's shape and dtype; -1 for another store."""
    settings, out, value = code[k + KW], code[k + OUT], code[k + Y]
    if type(out) is not Traced or len(settings) != 1 or type(settings[0]) is not int:
        return NONE
    fits = isinstance(value, Traced | float) and np.shape(value) == out.shape[1:]
    return settings[0] if fits and getattr(value, "dtype", _FLOAT) == out.dtype else NONE


def _is_one_store(trace: Trace, code: list[Any], chain: Sequence[int]) -> bool:
    """Whether the stores of a chain can be one, as the calls of the graph have it, and as the order of entries leaves room for two."""
    nodes = [code[k + OUT].node for k in chain]
    if any(n.name != "stored" or not n.inputs for n in nodes):
        return False
    if any(y.inputs[0] is not x for x, y in pairwise(nodes)):
        return False
    if _row_of(code, chain[1]) == _row_of(code, chain[0]):
        return False
    before = code[chain[-1] - STRIDE + SLOT]
    if before + 1 >= code[chain[-1] + SLOT]:
        return False
    inner = dict.fromkeys(nodes[:-1], 0)
    read: set[Any] = set()
    for step in reversed(trace.graph.steps):
        if type(step) is Guard:
            read.add(step.node)
        elif step in read or step is nodes[-1]:  # of the others nobody asks
            read.update(step.inputs)
            for x in step.inputs:
                if x in inner:
                    inner[x] += 1
    return all(inner[x] == 1 and x in read for x in nodes[:-1])


def _one_store(trace: Trace, code: list[Any], chain: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The entries and the calls of one store for those of a chain."""
    kept = trace.graph.steps
    trace.graph.steps = []
    first, last = chain[0], chain[-1]
    rows = [_row_of(code, k) for k in chain]
    index = _along(rows[0], rows[1] - rows[0], len(rows))
    values = tuple([code[k + Y] for k in chain])
    try:
        base = _like(trace, code[first + OUT].node.inputs[0])
        stacked = trace.call(np.stack, (list(values),), {}, "stack")
        trace.call(_stored, (base, index, stacked), {}, "stored")
    finally:
        steps, trace.graph.steps = trace.graph.steps, kept
    slot, out = code[last + SLOT], code[last + OUT]
    nodes = tuple([code[k + IN1] for k in chain])
    entries = [_STACK, slot - 1, nodes, None, values, None, stacked, (0,)]
    entries += [_SETITEM, slot, code[first + IN0], slot - 1, out, stacked, out, (index,)]
    return entries, steps


class _Stretch:
    """Turns that are alike, with the rule of each operand of each entry."""

    def __init__(self, start: int, period: int, turns: int) -> None:
        self.start, self.period, self.turns = start, period, turns
        self.stop = start + period * turns
        self.rules: dict[tuple[int, int], Any] = {}
        self.entries: dict[int, tuple[int, Any, int]] = {}
        """Of an entry that reads x[a + b * turn]: (place of x, a, b)."""
        self.final: set[int] = set()
        """Offsets whose last value is read."""
        self.kept: set[int] = set()
        """Offsets whose values are read turn by turn."""
        self.arrays: dict[int, Any] = {}

    def all_rules(self) -> Iterator[Any]:
        """The rules of operands, and of what operands are computed from."""
        for rule in self.rules.values():
            yield rule
            if rule[0] == "computed":
                yield from rule[2]


class _Winder:
    def __init__(self, trace: Trace, code: list[Any], pending: dict[Any, Any]) -> None:
        """Read the entries of a traced tape, in which repeated stretches are to become loops."""
        self.trace = trace
        self.code = standing(code, pending)
        self.pending = pending
        self.n = len(self.code) // STRIDE
        self.outside: dict[Any, int] = {}  # nodes that are no entry of this tape, below NONE
        self.at: list[_Stretch | None] = [None] * self.n
        self.stretches: list[_Stretch] = []
        self.new: list[Any] = []
        self.tensors: dict[int, Tensor] = {}  # place -> what new entries read there
        self.renamed: dict[Any, Any] = {}  # slot -> node of the new entry
        self.steps = trace.graph.steps
        self.places: dict[Node, int] = {}  # of some calls, where they stand
        self.made_by: dict[Node, int] = {}  # the entry of each call that has one
        self.index = -1
        self.inserted: dict[int, list[Any]] = {}  # calls behind a step
        self.replaced: list[tuple[int, Traced, Node]] = []
        """(step behind which it is so, value, the node that makes it)."""

    def run(self) -> list[Any]:
        """The new entries. Raises Unrolled where they cannot be made."""
        if self.n < LEAST or not self._read():
            return self.code
        found = periods(self.signs)
        within = _within(self.signs, found, NESTED)
        for start, period, turns in periods(self.signs, within) if within else found:
            if turns * period >= LEAST or period in within:
                s = self._found(start, period, turns)
                if s is not None:
                    self.at[s.start : s.stop] = [s] * (s.stop - s.start)
                    self.stretches.append(s)
        if not self.stretches or not self._wanted():
            return self.code
        recorder = RECORDER.get()
        try:
            RECORDER.set(self.new.extend)
            self._rebuilt()
        finally:
            RECORDER.set(recorder)
        self._commit()
        for slot in [slot for slot in self.pending if slot in self.renamed]:
            self.pending[self.renamed[slot]] = self.pending.pop(slot)
        return self.new

    # ------------------------------------------------------------------------------------ what reads what

    def _read(self) -> bool:
        """Number what each entry reads: its place on the tape, or a number below NONE; whether the tape is in order."""
        code, n = self.code, self.n
        slots = np.array(code[SLOT::STRIDE])
        ops = np.array(code[OP::STRIDE])
        if (np.diff(slots) <= 0).any():
            return False
        columns = [code[IN0 + k :: STRIDE] for k in (0, 1)]
        self.wide: dict[int, Any] = {}
        if tuple in set(map(type, columns[0])):
            self.wide = {i: x for i, x in enumerate(columns[0]) if type(x) is tuple}
        width = max([2, *(len(x) for x in self.wide.values() if len(x) <= WIDEST)])
        reads = np.full((n, width), NONE)
        for k, column in enumerate(columns):
            reads[:, k] = [
                x if type(x) is int else NONE if x is None else self._outside(x) for x in column
            ]
        for i, nodes in self.wide.items():
            if len(nodes) <= WIDEST:
                reads[i, : len(nodes)] = [x if type(x) is int else self._outside(x) for x in nodes]
        places = np.searchsorted(slots, reads)
        known = (reads >= 0) & (slots[np.minimum(places, n - 1)] == reads)
        for i, k in np.argwhere((reads >= 0) & ~known).tolist():
            places[i, k] = self._outside(int(reads[i, k]))
        self.slots = slots
        self.nodes = list(self.outside)
        self.reads = np.where((reads < 0), reads, places)
        kind = ops * 4 + (reads[:, 0] == NONE) * 2 + (reads[:, 1] == NONE)
        for i, nodes in self.wide.items():
            kind[i] = -len(nodes) if len(nodes) <= WIDEST else -WIDEST - 1 - i
        given_up = np.flatnonzero(ops == FREED)
        kind[given_up] = (
            -WIDEST - 1 - given_up
        )  # no part of a loop: a walk that comes to one raises
        kind -= kind.min()
        seen = np.zeros(kind.max() + 1, bool)
        seen[kind] = True
        self.signs = (np.cumsum(seen) - 1)[kind]
        return True

    def _outside(self, node: Any) -> int:
        if node is None or type(node) is tuple:
            return NONE
        return NONE - 1 - self.outside.setdefault(node, len(self.outside))

    def _item(self, i: int, column: int) -> Any:
        return self.code[i * STRIDE + column]

    def _operands(self, i: int) -> tuple[Any, ...]:
        """The raw operands of an entry."""
        x, y = self._item(i, X), self._item(i, Y)
        return x if i in self.wide else (x,) if OPS[self._item(i, OP)].arity == 1 else (x, y)

    def _column(self, s: _Stretch, offset: int, column: int) -> list[Any]:
        first = (s.start + offset) * STRIDE + column
        return self.code[first : s.stop * STRIDE : s.period * STRIDE]

    # ------------------------------------------------------------------------------------ rules

    def _found(self, start: int, period: int, turns: int) -> _Stretch | None:
        for m in range(1, MOST_ALIKE + 1):
            for skipped, dropped in TRIMS:
                left = turns // m - skipped - dropped
                if left < LEAST_TURNS:
                    break
                s = _Stretch(start + skipped * period * m, period * m, left)
                if self._fits(s):
                    return s
        return None

    def _fits(self, s: _Stretch) -> bool:
        """Whether each operand and setting of a stretch follows a rule from turn to turn; the rules are stored."""
        for offset in range(s.period):
            i = s.start + offset
            op = OPS[self._item(i, OP)]
            call = _CALLS.get(op.code)
            if op.evaluate is None or op.clears is not None or (call and not call.quiet):
                return False
            values = self._operands(i)
            second = self._operands(i + s.period)
            places = self.reads[i : s.stop : s.period]
            if len(values) > WIDEST or any(
                _kind(x) != _kind(y) for x, y in zip(values, second, strict=True)
            ):
                return False
            for k in range(len(values)):
                rule = self._rule(s, offset, k, places[:, k])
                if rule is None:
                    return False
                s.rules[offset, k] = rule
            settings = self._column(s, offset, KW)
            if settings.count(None) == s.turns or _all_same(settings):
                continue
            if not self._entry(s, offset, settings):
                return False
        return True

    def _rule(self, s: _Stretch, offset: int, k: int, places: np.ndarray) -> Any:
        """How operand `k` at `offset` moves from turn to turn: fixed, indexed, local, carried or constant; None for none of these."""
        second = int(places[1])
        if second == NONE:
            return self._constant(s, offset, k) if (places == NONE).all() else None
        if not s.start <= second < s.stop:
            if (places == second).all():
                return ("fixed", second)
            return self._indexed(places)
        turns = np.arange(s.turns)
        turn, at = divmod(second - s.start, s.period)
        if turn == 1 and at < offset:
            return ("local", at) if (places == s.start + turns * s.period + at).all() else None
        first = int(places[0])
        if turn != 0 or first >= s.start or first == NONE:
            return None
        if (places[1:] != s.start + turns[:-1] * s.period + at).any():
            return None
        return ("carried", at, first)

    def _indexed(self, places: np.ndarray) -> Any:
        """Values of an earlier loop, turn by turn."""
        other = self.at[places[0]] if places[0] >= 0 else None
        if other is None or places.min() < other.start or places.max() >= other.stop:
            return None
        turns, at = np.divmod(places - other.start, other.period)
        steps = np.diff(turns)
        if (at != at[0]).any() or (steps != steps[0]).any() or not steps[0]:
            return None
        return ("indexed", other, int(at[0]), int(turns[0]), int(steps[0]))

    def _constant(self, s: _Stretch, offset: int, k: int) -> Any:
        """An operand that no derivative is by: one value, or one for each turn."""
        i = s.start + offset
        if i in self.wide:
            values = [x[k] for x in self._column(s, offset, X)]
        else:
            values = self._column(s, offset, (X, Y)[k])
        first = values[0]
        if _one(values):
            hidden = type(first) is np.ndarray and first.ndim and not any(first.strides)
            return None if hidden and first.size > 1 else ("constant", first)
        kinds: set[Any] = set(map(type, values))
        if kinds != {float}:
            kinds = {_kind(x) for x in values}
        if len(kinds) > 1:
            return None
        if type(first) is Traced:
            if len({id(x.node) for x in values}) == 1:
                return ("constant", first)
            of_turns = self._computed(s, offset, values)
            if of_turns is not NotImplemented:
                return of_turns
            size = first.nbytes
        elif type(first) in (float, int, bool, complex):
            if _all_same(values):
                return ("constant", first)
            if self._item(i, OUT).dtype not in (np.float64, np.complex128):
                return None  # Python's numbers do not widen what they meet, an array would
            size = 16
        elif isinstance(first, np.ndarray | np.generic):
            if any(np.ndim(x) and not any(x.strides) for x in values):
                return None
            if first.nbytes <= 512 and all(x.tobytes() == first.tobytes() for x in values):
                return ("constant", first)
            size = first.nbytes
        else:
            return None
        return ("rows", values) if size * s.turns <= MOST_BYTES else None

    def _computed(self, s: _Stretch, offset: int, values: Sequence[Traced]) -> Any:
        """The rule of values that are computed, without entries, from those of each turn: a mask, a step's size.

        NotImplemented where they depend on nothing in the loop; None where turns differ in how they do.
        """
        if not self.made_by:
            for k, node in enumerate(self.trace.graph.nodes):
                node.place = k
            for node in self.trace.graph.inputs:
                node.place = -1
            for i in range(self.n):
                out = self._item(i, OUT)
                if type(out) is Traced:
                    self.made_by[out.node] = i
        before = self._item(s.start - 1, OUT) if s.start else None
        begin = before.node.place if type(before) is Traced else -1
        found = [self._calls(x.node, begin) for x in values]
        if not any(places for _, places, _ in found):
            return NotImplemented
        calls, _, others = found[0]
        if len(calls) > MOST_COMPUTED or any(
            node.name.endswith("]") or not _draws_nothing(node.function) for node, _ in calls
        ):
            return None
        described = [
            ([(_described(node), refs) for node, refs in calls], len(places), others)
            for calls, places, others in found
        ]
        if any(x != described[0] for x in described):
            return None
        rules = []
        for column in zip(*(places for _, places, _ in found), strict=True):
            rule = self._rule(s, offset, 0, np.array(column))
            if rule is None:
                return None
            if rule[0] == "carried":
                values = self._item(rule[2], OUT), self._item(s.start + rule[1], OUT)
                if _kind(values[0]) != _kind(values[1]):
                    return None
            rules.append(rule)
        return ("computed", found[1][0], rules, others)

    def _calls(self, node: Node, begin: int) -> tuple[list[Any], list[int], list[Node]]:
        """The calls behind a value, with what each reads: calls, entries by their places, and values from before the loop."""
        calls: list[Any] = []
        places: list[int] = []
        others: list[Node] = []
        known: dict[Node, tuple[str, int]] = {}
        waiting = [node]
        while waiting and len(calls) <= MOST_COMPUTED:
            x = waiting[-1]
            if x in known:
                waiting.pop()
            elif x in self.made_by:
                known[x] = ("entry", len(places))
                places.append(self.made_by[x])
            elif x.place <= begin or x.function is None:
                known[x] = ("other", len(others))
                others.append(x)
            elif missing := [y for y in x.inputs if y not in known]:
                waiting += missing
            else:
                known[x] = ("call", len(calls))
                calls.append((x, [known[y] for y in x.inputs]))
        return calls, places, others

    def _entry(self, s: _Stretch, offset: int, settings: Sequence[Any]) -> bool:
        """Whether the entries read x[index] of one x, with indices that can be one."""
        rule = s.rules[offset, 0]
        if OPS[self._item(s.start + offset, OP)].name != "getitem" or rule[0] != "fixed":
            return False
        shape = self._operands(s.start + offset)[0].shape
        found = index_of_turns([k[0] for k in settings], shape)
        if found is None:
            return False
        size = math.prod(self._item(s.start + offset, OUT).shape) * 8
        if type(found[0]) is not slice and size * s.turns > MOST_BYTES:
            return False
        s.entries[offset] = (rule[1], *found)
        return True

    # ------------------------------------------------------------------------------------ what is read from outside

    def _wanted(self) -> bool:
        """Note which values of a loop are read after it; whether that can be had."""
        loose = 0
        for i in range(self.n):
            if self.at[i] is None:
                if i in self.wide and len(self.wide[i]) > WIDEST:
                    loose += self._note_wide(i)
                    continue
                for place in self.reads[i].tolist():
                    loose += self._note(place)
        for s in self.stretches:
            for rule in s.all_rules():
                if rule[0] in ("fixed", "carried"):
                    loose += self._note(rule[-1])
                elif rule[0] == "indexed":
                    rule[1].kept.add(rule[2])
        for slot in self.pending:
            place = int(np.searchsorted(self.slots, slot))
            if place < self.n and self.slots[place] == slot:
                root = self.at[place]
                if root is not None and place < root.stop - root.period:
                    return False
                self._note(place)
        return loose <= MOST_LOOSE

    def _note(self, place: int) -> bool:
        s = self.at[place] if place >= 0 else None
        if s is None:
            return False
        turn, at = divmod(place - s.start, s.period)
        if turn == s.turns - 1:
            s.final.add(at)
            return False
        s.kept.add(at)
        return True

    def _places(self, i: int) -> list[int]:
        """What a wide entry reads."""
        nodes = self.wide[i]
        found = np.searchsorted(self.slots, [x if type(x) is int else 0 for x in nodes])
        return [
            int(p) if type(x) is int and p < self.n and self.slots[p] == x else NONE
            for x, p in zip(nodes, found, strict=True)
        ]

    def _note_wide(self, i: int) -> int:
        runs = self._runs(i)
        for run in runs:
            if type(run) is tuple:
                run[0].kept.add(run[1])
        return sum(self._note(x) for x in runs if type(x) is int)

    def _runs(self, i: int) -> list[Any]:
        """The operands of a wide entry: (stretch, offset) for those that are all turns of one in order, else their places."""
        places = self._places(i)
        joins = OPS[self._item(i, OP)].name == "stack" and self._item(i, KW) in ((0,), None)
        runs: list[Any] = []
        k = 0
        while k < len(places):
            s = self.at[places[k]] if places[k] >= 0 else None
            if s is not None and joins:
                at = places[k] - s.start
                if at < s.period and places[k : k + s.turns] == list(
                    range(places[k], s.stop, s.period)
                ):
                    runs.append((s, at))
                    k += s.turns
                    continue
            runs.append(places[k])
            k += 1
        return runs

    # ------------------------------------------------------------------------------------ the new entries

    def _rebuilt(self) -> None:
        """Write the tape anew, with a loop in the place of each stretch."""
        i = 0
        while i < self.n:
            s = self.at[i]
            if s is not None:
                self._wind(s)
                i = s.stop
                continue
            if i in self.wide and len(self.wide[i]) > WIDEST:
                if any(type(run) is tuple for run in self._runs(i)):
                    self._joined(i)
                    i += 1
                    continue
                places = self._places(i)
            else:
                places = self.reads[i].tolist()
            for place in places:
                self._available(place)
            entry = self.code[i * STRIDE : (i + 1) * STRIDE]
            name = self.renamed.get
            if type(entry[IN0]) is tuple:
                entry[IN0] = tuple(name(x, x) for x in entry[IN0])
            else:
                entry[IN0 : IN0 + 2] = [name(x, x) for x in entry[IN0 : IN0 + 2]]
            self.new += entry
            i += 1

    def _available(self, place: int) -> None:
        """See that the value of a single turn has an entry of its own."""
        s = self.at[place] if place >= 0 else None
        if s is not None and place not in self.tensors:
            turn, at = divmod(place - s.start, s.period)
            with self._behind(self._item(s.stop - 1, OUT).node):
                self._stands_for(place, s.arrays[at][turn])

    def _stands_for(self, place: int, t: Any) -> None:
        """Let a tensor stand for an entry: in later entries and calls, and for the value that Python has of it."""
        old: Traced = self._item(place, OUT)
        self.tensors[place] = t
        self.renamed[int(self.slots[place])] = t._node
        self.replaced.append((self.index, old, t._value.node))

    @contextmanager
    def _behind(self, node: Node) -> Iterator[None]:
        """Calls that are made while this lasts stand behind that of `node`, and what was put there before."""
        if node not in self.places:
            k = len(self.steps) - 1
            while k >= 0 and self.steps[k] is not node:
                k -= 1
            if k < 0:
                raise Unrolled("an entry whose call is not in the graph")
            self.places[node] = k
        self.index = self.places[node]
        self.trace.graph.steps = self.inserted.setdefault(self.index, [])
        try:
            yield
        finally:
            self.trace.graph.steps = self.steps

    def _commit(self) -> None:
        """Put the new calls where they belong, and let later ones read them."""
        steps: list[Any] = []
        now: dict[Node, Node] = {}
        begin = 0
        for k in [*sorted(self.inserted), len(self.steps) - 1]:
            for step in self.steps[begin : k + 1]:
                if type(step) is Guard:
                    step = replace(step, node=now.get(step.node, step.node))
                elif now and any(x in now for x in step.inputs):
                    step.inputs = tuple(now.get(x, x) for x in step.inputs)
                steps.append(step)
            begin = k + 1
            steps += self.inserted.pop(k, ())
            now |= {old.node: node for at, old, node in self.replaced if at == k}
        for _, old, node in self.replaced:
            old.node = node
        self.trace.graph.steps = steps

    # ------------------------------------------------------------------------------------ a loop

    def _tensor(self, place: int, raw: Any) -> Any:
        """What stands at a place, as a tensor for new entries; `raw` is its value."""
        known = self.tensors.get(place)
        if known is None:
            if type(raw) is np.ndarray and raw.size > 1 and not any(raw.strides):
                raise Unrolled("a value that was not kept")
            known = self.tensors[place] = wrap(raw)
            known._node = self._node(place)
        return known

    def _first(self, rule: Any) -> Any:
        """The value that the first turn finds where a rule says."""
        return self._item(rule[-1], OUT) if rule[0] in ("fixed", "carried") else None

    def _node(self, place: int) -> Any:
        """The node that a number stands for."""
        return self.code[place * STRIDE + SLOT] if place >= 0 else self.nodes[NONE - 1 - place]

    def _wind(self, s: _Stretch) -> None:
        """Append the entry of a loop, and let what reads the loop read that."""
        for rule in s.all_rules():
            if rule[0] in ("fixed", "carried"):
                self._available(rule[-1])
        with self._behind(self._item(s.stop - 1, OUT).node):
            self._looped(s)

    def _looped(self, s: _Stretch) -> None:
        """Record a stretch as one loop: what it carries, its rows, and what is read of it behind."""
        carried: dict[
            tuple[int, int], int
        ] = {}  # (offset, place of what is first) -> position among what is carried
        fixed: dict[int, Tensor] = {}
        rows: list[Any] = []
        row_of: dict[Any, int] = {}
        first: list[Any] = []

        def row(key: Any, make: Callable[[], Any]) -> tuple[str, int]:
            if key not in row_of:
                row_of[key] = len(rows)
                rows.append(make())
            return "row", row_of[key]

        def source(rule: Any, key: Any, raw: Any) -> tuple[str, Any]:
            """Where the step takes an operand from."""
            if rule[0] == "computed":
                inside = [source(r, (key, i), self._first(r)) for i, r in enumerate(rule[2])]
                known = [_like(self.trace, node) for node in rule[3]]
                return "computed", (rule[1], inside, known)
            if rule[0] == "fixed":
                fixed[rule[1]] = self._tensor(rule[1], raw)
                return "here", fixed[rule[1]]
            if rule[0] == "carried":
                if rule[1:] not in carried:
                    carried[rule[1:]] = len(first)
                    first.append(self._tensor(rule[2], raw))
                return "carried", carried[rule[1:]]
            if rule[0] == "indexed":
                _, other, at, a, b = rule
                return row((id(other), at, a, b), lambda: other.arrays[at][_along(a, b, s.turns)])
            if rule[0] == "rows":
                return row(key, lambda: _stacked(self.trace, rule[1]))
            return (rule[0] if rule[0] == "local" else "here"), rule[1]

        calls: list[Any] = []
        for offset in range(s.period):
            i = s.start + offset
            raw = self._operands(i)
            if offset in s.entries:
                place, index, axis = s.entries[offset]
                x = self._tensor(place, raw[0])
                many = type(index) is slice
                key = (place, index.start, index.step) if many else ("entry", offset)
                calls.append(row(key, lambda x=x, i=index, axis=axis: _first_axis(x[i], axis)))
            else:
                sources = [source(s.rules[offset, k], (offset, k), x) for k, x in enumerate(raw)]
                calls.append((OPS[self._item(i, OP)], sources, self._item(i, KW)))
        ends = [at for at, _ in carried]
        for at in sorted(s.final - set(ends)):  # carried too, so that its last value is known
            ends.append(at)
            like = self._item(s.start + at, OUT)
            first.append(wrap(np.zeros(like.shape, like.dtype)))
        kept = sorted(s.kept)

        def step(carry: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
            """One turn of the loop, from the carry and the rows of this turn."""
            results: list[Any] = []
            found = {"carried": carry, "row": given, "local": results}

            def operand(where: str, at: Any) -> Any:
                if where == "here":
                    return at
                return (
                    _computed(at, operand) if where == "computed" else _as_tensor(found[where][at])
                )

            for call in calls:
                if call[0] == "row":
                    results.append(_as_tensor(given[call[1]]))
                    continue
                op, sources, kw = call
                results.append(apply(op, [operand(*x) for x in sources], kw))
            return [results[at] for at in ends], [results[at] for at in kept]

        outside = list(fixed.values())
        p = Pass(step, s.turns, False, [t._node for t in outside], key=KEY)
        stacks = [value_of(x) for x in rows]
        moving = [i for i, x in enumerate(stacks) if x.dtype.kind in "fc"]

        def run(trace: Trace, tape: list[Any], cells: Sequence[Cell]) -> list[Cell]:
            out, carry = cells[: len(outside)], cells[len(outside) :][: len(first)]
            given = [Cell(x) for x in stacks]
            for i, cell in zip(moving, cells[len(outside) + len(first) :], strict=True):
                given[i] = cell
            tape.append(_Made(trace, p, carry, given, out))
            return [*tape[-1].last, *tape[-1].made]

        made = _Iterated(run, KEY)
        operands = [*outside, *first, *(rows[i] for i in moving)]
        whole = apply(iterated.primitive, operands, (made,))
        pieces = unpacked(whole, made.kinds)
        for at, t in zip(kept, pieces[len(ends) :], strict=True):
            s.arrays[at] = t
        last = s.stop - s.period
        for at, t in zip(ends, pieces, strict=False):
            if at in s.final:
                self._stands_for(last + at, t)
        for i in range(s.start, s.stop):  # the pass looks at what may raise, turn by turn
            value = self._item(i, OUT)
            if type(value) is Traced and value.node.checked:
                value.node.checked = False

    def _joined(self, i: int) -> None:
        """Append what a wide entry makes of all turns of a loop and other values."""
        values = self._item(i, X)
        parts: list[Any] = []
        k = 0
        for found in self._runs(i):
            if type(found) is tuple:
                parts.append(found)
                k += found[0].turns
                continue
            self._available(found)
            node = self.wide[i][k]
            known: Any = self.tensors.get(found)
            if known is None:
                known = wrap(storage.as_array(values[k]))
                known._node = node
            parts.append(known)
            k += 1
        with self._behind(self._item(i, OUT).node):
            arrays = [
                x[0].arrays[x[1]] if type(x) is tuple else np.expand_dims(x, 0) for x in parts
            ]
            self._stands_for(i, arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def _described(node: Node) -> Any:
    """What calls of different turns must have in common."""
    numbers: list[Any] = []
    return _signature(node, numbers), repr(numbers)


def _like(trace: Trace, node: Node) -> Traced:
    """A value of a call whose result nobody holds; a step's trace looks at its kind only."""
    return Traced(trace, node, 1.0 if node.weak else np.ones(node.shape, node.dtype)[()])


def _computed(how: Any, operand: Callable[..., Any]) -> Any:
    """Calls made again on values of a turn."""
    calls, entries, others = how
    trace = storage.tracing.get()
    made: list[Any] = []
    found = {"entry": [value_of(operand(*x)) for x in entries], "other": others, "call": made}
    for node, refs in calls:
        args, settings = filled((node.args, node.kwargs), [found[kind][k] for kind, k in refs])
        made.append(trace.call(node.function, args, settings, node.name))
    return made[-1] if made else found["entry"][0]


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, Tensor) else wrap(x)


def _kind(x: Any) -> Any:
    """What a value of the next turn has to have in common with this one's."""
    if isinstance(x, Traced | np.ndarray | np.generic):
        return x.shape, x.dtype, type(x) is Traced and x.node.weak
    return type(x)


def _one(values: Sequence[Any]) -> bool:
    """Whether all values are one object."""
    return len(set(map(id, values))) == 1


def _all_same(values: Sequence[Any]) -> bool:
    """Whether settings or numbers are surely the same, -0.0 being none of 0.0."""
    first = values[0]
    if _one(values):
        return True
    if type(first) is float and first and set(map(type, values)) == {float}:
        return values.count(first) == len(values)  # other than zeros, equal numbers are the same
    if not _plainly_written(first):
        return all(_same(first, x) for x in values[1:])
    return len({repr(x) for x in values}) == 1


def _same(a: Any, b: Any) -> bool:
    """Whether two settings surely are the same, though arrays in them are two objects: np.pad makes its places anew in each turn."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a) is np.ndarray:
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return _plainly_written(a) and repr(a) == repr(b)


def _plainly_written(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_plainly_written, value))
    if type(value) is slice:
        return _plainly_written((value.start, value.stop, value.step))
    return value is None or value is ... or type(value) in (int, float, bool, complex, str)


def _first_axis(x: Any, axis: int) -> Any:
    return np.moveaxis(x, axis, 0) if axis else x


def _stacked(trace: Trace, values: Sequence[Any]) -> Any:
    """Values of all turns as one array."""
    if type(values[0]) is not Traced:
        return np.stack([np.asarray(x) for x in values])
    nodes = [x.node for x in values]
    whole: Any = nodes[0].inputs[0] if len(nodes[0].inputs) == 1 else None
    if nodes[0].name == "getitem" and all(
        n.name == "getitem" and len(n.inputs) == 1 and n.inputs[0] is whole for n in nodes
    ):
        indices = [_index(n) for n in nodes]
        steps = (
            {b - a for a, b in pairwise(indices)} if all(type(i) is int for i in indices) else ()
        )
        if len(steps) == 1 and 0 not in steps and (min(indices) >= 0 or max(indices) < 0):
            a = indices[0] % whole.shape[0]
            index = _along(a, steps.pop(), len(indices))
            value = np.stack([x.value for x in values])
            node = Recorded(operator.getitem, "getitem", (Ref(0), index), {}, (whole,), value)
            trace.graph.steps.append(node)
            return Traced(trace, node, value)
    return trace.call(np.stack, (list(values),), {}, "stack")


__all__ = ["wound"]
