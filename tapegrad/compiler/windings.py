"""Windings: instructions that repeat, as loops whose regions are affine functions of the turn.

A stretch of *items* (instructions, or loops found before) that has the same tokens again and again is one loop, if their whole numbers
move by the same steps from turn to turn, and what a turn reads is of the turn itself or of before the loop. Short periods come
first, so that loops within loops are found from the inside; then their numbers of turns and first numbers have to be affine in the turn
of the loop around. Turns beside a loop in which a loop within has no turn, or too few to be found, are compared with what the loop
would do there, and join it.

Data: an item's whole numbers are `ints`; those of a loop are its number of turns, then the numbers of the items in its first turn, then
their steps. The numbers that items of a body have themselves do not count.
Invariant: unrolled, the items are the instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import numpy as np

from .regions import EXTENT, Instruction, Operand, Place, last_uses

LEAST_TURNS = 4
LONGEST = 64
"""Items of a turn."""
TURNS = 2
"""What a loop's first whole number is, beside `regions.EXTENT` and `START`."""
STEP = 3


@dataclass(slots=True)
class Item:
    """An instruction, or a loop with the items of its first turn; it stands for the instructions from `lo` to below `hi`."""

    sign: int
    ints: Any
    """A list where it is a loop's, which turns beside it may join."""
    where: Sequence[int]
    lo: int
    hi: int
    body: list[Item] = field(default_factory=list)

    def leaves(self) -> list[int]:
        """Instructions of the first turn of everything."""
        return [k for x in self.body for k in x.leaves()] if self.body else [self.lo]


def _joint(numbers: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, list[int]]:
    """Tuples of whole numbers in one array, and where each begins, and the last one ends."""
    at = list(accumulate(map(len, numbers), initial=0))
    return np.fromiter(chain.from_iterable(numbers), np.int64, at[-1]), at


def _alike(x: Instruction, y: Instruction) -> bool:
    """Whether an instruction does what y does with the numbers of y: which way an axis of one entry goes is of no account."""
    if x.token[:4] != y.token[:4] or len(x.token) != len(y.token):
        return False
    at = y.token[3]
    for a, b in zip(x.token[4:], y.token[4:], strict=True):
        if type(a) is not Operand or type(b) is not Operand:
            if a != b:
                return False
            at += type(a) is Place
            continue
        if a._replace(axes=(), steps=()) != b._replace(axes=(), steps=()):
            return False
        at += b.starts
        extents = y.ints[at : at + len(b.axes)]
        at += len(b.axes)
        if len(a.axes) != len(b.axes) or any(
            n != 1 and i != j for n, i, j in zip(extents, a.ways(), b.ways(), strict=True)
        ):
            return False
    return True


class Winding:
    """The items of a list of instructions; `lasting` are those whose results are read behind the list."""

    def __init__(self, code: Sequence[Instruction], lasting: Sequence[int]) -> None:
        """Make an item of each instruction, and wind what can be."""
        self.code = code
        self.signs: dict[object, int] = {}
        self.sign = [x.sign for x in code]
        self.last = last_uses(code)
        for k in lasting:
            self.last[k] = len(code)
        self.items = [Item(x.sign, x.ints, x.where, k, k + 1) for k, x in enumerate(code)]
        self.ints, self.ints_at = _joint([x.ints for x in code])
        """The whole numbers of all instructions, and where each one's begin."""
        self.refs, self.refs_at = _joint([x.refs for x in code])
        self.lasts = np.array(self.last, np.int64)
        self.grows = False
        """Whether something grows or shrinks from turn to turn, or moves along memory that the list makes."""
        self.in_place = False
        """Whether each turn of a loop stores to the same region."""
        self._wind()
        self.nested = any(y.body for x in self.items for y in x.body)
        """Whether there are loops in loops."""

    def _wind(self) -> None:
        period = 1
        while period <= LONGEST and 2 * period <= len(self.items):
            period = 1 if self._wound(period) else period + 1

    def _wound(self, p: int) -> bool:
        """Wind stretches of period p; whether there were any."""
        items = self.items
        signs = np.array([x.sign for x in items])
        alike = np.concatenate([[False], signs[p:] == signs[:-p], [False]])
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        out: list[Item] = []
        done = 0
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            end = stop + p
            for phase in range(min(p, (end - start) - LEAST_TURNS * p + 1)):
                at = max(start + phase, done)
                found = self._loops(at, p, (end - at) // p)
                if found:
                    for k, turns, loop in found:
                        if k < done:
                            continue  # a loop before has taken its first turns
                        out += items[done:k]
                        done = k + turns * p
                        out, done = self._joined(out, loop, done)
                    break
        if not done:
            return False
        self.items = out + items[done:]
        return True

    def _loops(self, at: int, p: int, turns: int) -> list[tuple[int, int, Item]]:
        """Loops among turns of p items from `at`: (first item, turns, loop)."""
        if turns < LEAST_TURNS:
            return []
        if not self._inside(at, p) and not self._inside(at + p, p):
            return []  # by this phase, a turn reads the turn before
        items = self.items
        if self._plain(at, p):
            lo, hi = items[at].lo, items[at].lo + turns * p
            rows = self.ints[self.ints_at[lo] : self.ints_at[hi]].reshape(turns, -1)
        else:
            rows = np.array(
                [
                    [n for x in items[at + t * p : at + (t + 1) * p] for n in x.ints]
                    for t in range(turns)
                ],
                dtype=np.int64,
            ).reshape(turns, -1)
        where = [w for x in items[at : at + p] for w in x.where]
        steps = np.diff(rows, axis=0)
        fixed = np.array([w == STEP for w in where], bool)
        good = ~(steps[:, fixed] != 0).any(axis=1)
        same = (steps[1:] == steps[:-1]).all(axis=1) & good[1:] & good[:-1]
        found = []
        first = 0
        while first + LEAST_TURNS <= turns:
            stop = first + 2
            while stop < turns and same[stop - 2]:
                stop += 1
            if stop - first < LEAST_TURNS:
                first = max(stop - 1, first + 1)
                continue
            count = self._alike(at + first * p, p, stop - first)
            if count >= LEAST_TURNS:
                loop = self._loop(at + first * p, p, count, rows[first], steps[first], where)
                found.append((at + first * p, count, loop))
                first += count
            else:
                first += max(count, 1)
        return found

    def _inside(self, at: int, p: int) -> bool:
        """Whether nothing of a turn is read behind it."""
        items = self.items
        lo, hi = items[at].lo, items[at + p - 1].hi
        return max(self.last[lo:hi]) < hi

    def _plain(self, at: int, p: int) -> bool:
        """Whether the items of a turn, and so of all turns, are instructions, which stand in a row."""
        return not any(x.body for x in self.items[at : at + p])

    def _alike(self, at: int, p: int, turns: int) -> int:
        """How many turns read what the first one does: of themselves, or of before the loop."""
        items = self.items
        if self._plain(at, p):
            lo = items[at].lo
            moves = p * np.arange(turns)[:, None]
            reads = self.refs[self.refs_at[lo] : self.refs_at[lo + turns * p]].reshape(turns, -1)
            good = (reads == reads[0] + (reads[0] >= lo) * moves).all(axis=1)
            good &= (self.lasts[lo : lo + turns * p].reshape(turns, p) < lo + p + moves).all(axis=1)
            return turns if good.all() else int(np.argmin(good))
        first = [k for x in items[at : at + p] for k in x.leaves()]
        place = {k: j for j, k in enumerate(first)}
        if not self._inside(at, p):
            return 0
        for t in range(1, turns):
            if not self._inside(at + t * p, p):
                return t
            own = [k for x in items[at + t * p : at + (t + 1) * p] for k in x.leaves()]
            for a, b in zip(first, own, strict=True):
                for r, s in zip(self.code[a].refs, self.code[b].refs, strict=True):
                    if s != (own[place[r]] if r in place else r):
                        return t
        return turns

    def _loop(
        self, at: int, p: int, turns: int, base: np.ndarray, step: np.ndarray, where: list[int]
    ) -> Item:
        body = self.items[at : at + p]
        sign = self.signs.setdefault(tuple(x.sign for x in body), ~len(self.signs))
        self.grows |= any(
            s and w in (EXTENT, TURNS) for s, w in zip(step.tolist(), where, strict=True)
        )
        self.grows = self.grows or self._moves(body, step.tolist())
        self.in_place = self.in_place or self._stays(body, step.tolist())
        return Item(
            sign, [turns, *base.tolist(), *step.tolist()], [TURNS, *where, *[STEP] * len(where)],
            self.items[at].lo, self.items[at + turns * p - 1].hi, body,
        )  # fmt: skip

    def _moves(self, body: Sequence[Item], step: Sequence[int]) -> bool:
        """Whether a region of memory that the list makes, other than a row, begins elsewhere from turn to turn.

        Loops along rows are loops of a graph as well (stores.py), but not stores at moving places of memory that each turn makes.
        """
        at = 0
        first = body[0].lo
        for x in body:
            if not x.body:
                k = at + self.code[x.lo].token[3]
                made = iter(self.code[x.lo].refs)
                for t in self.code[x.lo].token[4:]:
                    if type(t) is Place:
                        next(made)
                        k += 1
                    if type(t) is not Operand:
                        continue
                    moved = [d for d in range(t.starts) if step[k + d]]
                    along = [d for d in t.axes if d >= 0]
                    own = t.source is None and next(made) >= first
                    rows = not along or min(along) > max(moved, default=-1)
                    if t.source is None and moved and (own or not rows):
                        return True
                    for _ in t.places:
                        next(made)
                    k += t.starts + len(t.axes)
            at += len(x.ints)
        return False

    def _stays(self, body: Sequence[Item], step: Sequence[int]) -> bool:
        """Whether a store of a turn is to the same region in all turns: the whole numbers of its target come first."""
        at = 0
        for x in body:
            if not x.body and (k := self.code[x.lo]).kind == "store":
                own, target = k.token[3:5]
                if not any(step[at : at + own + target.starts + len(target.axes)]):
                    return True
            at += len(x.ints)
        return False

    # ------------------------------------------------------------------------------------------ turns beside a loop

    def _joined(self, out: list[Item], loop: Item, done: int) -> tuple[list[Item], int]:
        """The items before a loop with it, and the first item behind it, when the turns beside it have joined it."""
        while (lo := self._beside(loop, -1)) is not None:
            k = len(out)
            while k and out[k - 1].lo >= lo:
                k -= 1
            if (out[k].lo if k < len(out) else loop.lo) != lo or lo == loop.lo:
                break
            del out[k:]
            n = (len(loop.ints) - 1) // 2
            for j in range(1, n + 1):
                loop.ints[j] -= loop.ints[n + j]
            loop.ints[0] += 1
            loop.lo = lo
        while (hi := self._beside(loop, loop.ints[0])) is not None:
            k = done
            while k < len(self.items) and self.items[k].hi < hi:
                k += 1
            if k >= len(self.items) or self.items[k].hi != hi or hi == loop.hi:
                break
            done = k + 1
            loop.ints[0] += 1
            loop.hi = hi
        return [*out, loop], done

    def _beside(self, loop: Item, turn: int) -> int | None:
        """The first instruction of the turn before a loop, or the one behind that after it, if it is what the loop would do there."""
        n = (len(loop.ints) - 1) // 2
        ints = [a + turn * b for a, b in zip(loop.ints[1 : n + 1], loop.ints[n + 1 :], strict=True)]
        expected = self._unrolled(loop.body, ints)
        if not expected:
            return None
        lo = loop.lo - len(expected) if turn < 0 else loop.hi
        hi = lo + len(expected)
        if lo < 0 or hi > len(self.code):
            return None
        inside = {k for x in loop.body for k in x.leaves()}
        own: dict[int, int] = {}
        for k, (a, numbers) in enumerate(expected, lo):
            if self.last[k] >= hi:
                return None
            own[a] = k
            x, y = self.code[a], self.code[k]
            nothing = y.empty if x.kind == "matmul" else 0 in y.shape
            if nothing and x.kind == y.kind and (x.dtype, len(x.shape)) == (y.dtype, len(y.shape)):
                if any(w == EXTENT and not m for w, m in zip(x.where, numbers, strict=True)):
                    continue  # of no elements, or a product over none: the same, whatever it is of
            if tuple(numbers) != y.ints or not (x.sign == y.sign or _alike(x, y)):
                return None
            for r, s in zip(x.refs, y.refs, strict=True):
                if s != (own.get(r) if r in inside else r):
                    return None
        return lo if turn < 0 else hi

    def _unrolled(self, body: Sequence[Item], ints: Sequence[int]) -> list[tuple[int, list[int]]]:
        """The instructions of a turn, with their numbers; none where a loop within would have less than no turn."""
        found: list[tuple[int, list[int]]] = []
        at = 0
        for x in body:
            own = list(ints[at : at + len(x.ints)])
            at += len(own)
            if not x.body:
                found.append((x.lo, own))
                continue
            if own[0] < 0:
                return []
            n = (len(own) - 1) // 2
            for t in range(own[0]):
                inner = [a + t * b for a, b in zip(own[1 : n + 1], own[n + 1 :], strict=True)]
                found += self._unrolled(x.body, inner)
        return found
