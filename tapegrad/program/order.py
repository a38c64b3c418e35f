"""The one question of order, which is all the alias analysis there is.

    May access A, at some iteration, touch an element that access B touches later?

It decides whether a statement needs a temporary, whether the reverse sweep must keep a value, whether loops may be joined, cut,
turned round, run in any order. "No" is a proof: Fourier and Motzkin's elimination over the bounds of loops, what is known of
sizes, and the equality of the indices finds that no integers fulfil them. Anything else is "perhaps", which counts as yes. An element
that an index has (`affine.Element`) is a number of its own within its bounds: two of one buffer are the same where their indices are
the same text; where loops of other names have the same numbers, that is not seen, and the answer is "perhaps".

Data: a system is rows of whole numbers, one column a variable and the constant last; a row means "at least 0". Rows are divided by
the common factor of their coefficients and the constant rounded down, which holds for integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from .affine import Affine, Element, affine
from .form import Range, Site

LIMIT = 120
"""Rows; beyond it the answer is "perhaps"."""

Row = tuple[int, ...]


def feasible(equal: Sequence[Affine], least: Sequence[Affine]) -> bool:
    """Whether integers may exist at which each of `equal` is 0 and each of `least` at least 0.

    Parts of the system that share no name are asked one by one: most have been asked before.
    """
    parts = _parts(equal, least)
    return parts is not None and all(_possible(p) for p in parts)


Part = tuple[list[Affine], list[Affine]]
"""Equalities and inequalities that are connected by the names in them."""


def _parts(equal: Sequence[Affine], least: Sequence[Affine]) -> list[Part] | None:
    """The system in connected parts; None where a row of no names does not hold."""
    parts: dict[str, Part] = {}
    names: dict[int, list[str]] = {}
    for which, rows in enumerate((equal, least)):
        for a in rows:
            if not a.terms:
                if a.const < 0 or (a.const and which == 0):
                    return None
                continue
            part: Part | None = None
            for n, _ in a.terms:
                other = parts.get(n)
                if part is None:
                    part = ([], []) if other is None else other
                if other is None:
                    parts[n] = part
                    names.setdefault(id(part), []).append(n)
                elif other is not part:
                    part[0].extend(other[0])
                    part[1].extend(other[1])
                    moved = names.pop(id(other))
                    names.setdefault(id(part), []).extend(moved)
                    for m in moved:
                        parts[m] = part
            assert part is not None
            part[which].append(a)
    return [parts[own[0]] for own in names.values()]


def _possible(part: Part) -> bool:
    """Whether integers may fulfil a part of a system."""
    equal, least = part
    column: dict[str, int] = {}
    for a in (*least, *equal):
        for n, _ in a.terms:
            column.setdefault(n, len(column))

    def row(a: Affine) -> Row:
        found = [0] * (len(column) + 1)
        for n, c in a.terms:
            found[column[n]] = c
        found[-1] = a.const
        return tuple(found)

    return _feasible(tuple(map(row, equal)), tuple(map(row, least)))


@lru_cache(maxsize=200_000)
def _feasible(equal: tuple[Row, ...], least: tuple[Row, ...]) -> bool:
    """The same of rows, which are equal for loops that differ in nothing but names."""
    rows = _solved(list(equal), list(least))
    return rows is not None and _eliminated(rows)


def _solved(equal: list[Row], least: list[Row]) -> list[Row] | None:
    """Inequalities after the equalities were substituted; None: there are no such integers."""
    while equal:
        e = equal.pop()
        g = gcd(*e[:-1])
        if g == 0:
            if e[-1]:
                return None
            continue
        if e[-1] % g:
            return None
        unit = next((k for k, c in enumerate(e[:-1]) if abs(c) == 1), None)
        if unit is None:
            least = [*least, e, tuple(-c for c in e)]
            continue
        equal = [_without(r, e, unit) for r in equal]
        least = [_without(r, e, unit) for r in least]
    return least


def _without(r: Row, e: Row, k: int) -> Row:
    """Row `r` with variable k substituted by equality `e`, whose coefficient of it is 1 or -1."""
    if not r[k]:
        return r
    factor = r[k] * e[k]
    return tuple(a - factor * b for a, b in zip(r, e, strict=True))


def _eliminated(rows: list[Row]) -> bool:
    """Whether a system of inequalities may have a solution."""
    system = _tightened(rows)
    while system:
        width = len(next(iter(system)))
        best, cost = -1, 0
        for k in range(width):
            up = sum(1 for r in system if r[k] > 0)
            down = sum(1 for r in system if r[k] < 0)
            if up + down and (best < 0 or up * down < cost):
                best, cost = k, up * down
        if best < 0 or len(system) + cost > LIMIT:
            return True
        lower = [(r, c) for r, c in system.items() if r[best] > 0]
        upper = [(r, c) for r, c in system.items() if r[best] < 0]
        rest = [(*r, c) for r, c in system.items() if not r[best]]
        for a, ca in lower:
            for b, cb in upper:
                p, q = a[best], -b[best]
                rest.append((*(x * q + y * p for x, y in zip(a, b, strict=True)), ca * q + cb * p))
        system = _tightened(rest)
    return system is not None


def _tightened(rows: list[Row]) -> dict[Row, int] | None:
    """Rows by their coefficients, with the strictest constant; None: one of them says that a negative number is not."""
    best: dict[Row, int] = {}
    for r in rows:
        g = gcd(*r[:-1])
        if g == 0:
            if r[-1] < 0:
                return None
            continue
        key, c = (r[:-1], r[-1]) if g == 1 else (tuple(x // g for x in r[:-1]), r[-1] // g)
        if key not in best or c < best[key]:
            best[key] = c
    return best


@lru_cache(maxsize=20_000)
def _bounds(
    ranges: tuple[Range, ...], suffix: str, common: int = 0
) -> tuple[list[Affine], dict[str, Affine]]:
    """What holds of an iteration's variables, renamed by a suffix, and the renaming.

    The iteration of the first `common` loops is that of another access, of which the same is known already.
    """
    values: dict[str, Affine] = {r.var: affine(r.var + "'") for r in ranges[:common]}
    found = []
    for r in ranges[common:]:
        lo, hi = r.lo.replaced(values), r.hi.replaced(values)
        v = values[r.var] = affine(r.var + suffix)
        found += [v - lo, hi - v - 1]
    return found, values


def _with_elements(rows: Iterable[Affine], least: list[Affine]) -> list[Affine]:
    """Inequalities, and what is known of the elements in them and in other rows."""
    known: set[Element] = set()
    rows, least = [*rows, *least], list(least)
    while rows:
        new = {e for a in rows for e in a.elements()} - known
        known |= new
        rows = [fact for e in new for fact in e.facts()]
        least += rows
    return least


def shared(a: Site, b: Site) -> int:
    """How many loops two accesses have in common."""
    count = 0
    for p, q in zip(a.path, b.path, strict=False):
        if p is not q:
            break
        count += 1
    return count


class Order:
    """The question, under what is known of the sizes."""

    def __init__(self, assumptions: list[Affine], sizes: list[str]) -> None:
        self.known = [*assumptions, *map(affine, sizes)]
        self.answers: dict[Any, bool] = {}
        self._spaces: dict[Any, int] = {}
        self._proofs: dict[Any, bool] = {}

    def precedes(self, a: Site, b: Site, same: int = 0) -> bool:
        """May `a` touch an element before `b` does? `same`: in one iteration of that many outer loops."""
        if a.access.buffer is not b.access.buffer:
            return False
        common = shared(a, b)
        if any(self.meet(a, b, level, a.path[level].step) for level in range(same, common)):
            return True
        return a.place < b.place and self.meet(a, b, common)

    def meet(self, a: Site, b: Site, equal: int, *steps: int) -> bool:
        """May they touch one element in the same iteration of `equal` outer loops, `a` at an earlier (1) or later (-1) number of
        the loops that follow? Axes are free: every point of a statement counts."""
        if a.access.buffer is not b.access.buffer:
            return False
        if steps and steps[0] and a.access == b.access and _moves_on(a, b, equal):
            return False
        # The loops may be others of the same names; what they share has to be the same, too.
        key = (a.access, b.access, self._space(a), self._space(b), equal, steps)
        found = self.answers.get(key)
        if found is None:
            found = self.answers[key] = self._meet(a, b, equal, steps)
        return found

    def _space(self, s: Site) -> int:
        """A number that accesses share whose loops and axes have the same names and bounds."""
        ranges = s.path, s.axes
        found = self._spaces.get(ranges)
        if found is None:
            text = (len(s.path), *((r.var, r.lo, r.hi) for r in (*s.path, *s.axes)))
            found = self._spaces[ranges] = self._spaces.setdefault(text, len(self._spaces))
        return found

    def _meet(self, a: Site, b: Site, equal: int, steps: tuple[int, ...]) -> bool:
        """Whether two accesses may touch the same element with equal turns of `equal` loops and then by `steps`."""
        for i, j in zip(a.access.index, b.access.index, strict=True):
            if i.const != j.const and not i.terms and not j.terms:
                return False
        common = 0
        while common < equal and a.path[common] is b.path[common]:
            common += 1
        below_a, names_a = _bounds((*a.path, *a.axes), "'")
        below_b, names_b = _bounds((*b.path, *b.axes), "''", common)
        same = [
            i.replaced(names_a) - j.replaced(names_b)
            for i, j in zip(a.access.index, b.access.index, strict=True)
        ]
        for p, q in zip(a.path[common:equal], b.path[common:equal], strict=True):
            same.append(names_a[p.var] - names_b[q.var])
        least = [*self.known, *below_a, *below_b]
        following = zip(a.path[equal:], b.path[equal:], steps, strict=False)
        for p, q, step in following:
            if step:
                least.append((names_b[q.var] - names_a[p.var]) * step - 1)
        return feasible(same, _with_elements(same, least))

    def exists(self, e: Affine, ranges: tuple[Range, ...]) -> bool:
        """Whether an affine integer can be computed in every iteration of these loops, whether or not a loop within runs."""
        claims = dict.fromkeys(claim for n in e.elements() for claim in n.claims())
        return all(self.proves(claim, ranges) for claim in claims)

    def proves(self, claim: Affine, ranges: tuple[Range, ...] = ()) -> bool:
        """Whether claim >= 0 in every iteration of these loops."""
        found = self._proofs.get((claim, ranges))
        if found is None:
            below, names = _bounds(ranges, "'")
            least = [claim.replaced(names) * -1 - 1, *below, *self.known]
            found = self._proofs[claim, ranges] = not feasible((), _with_elements((), least))
        return found


def _moves_on(a: Site, b: Site, level: int) -> bool:
    """An index moves with the loop of this level and with nothing within: other iterations have other elements."""
    if a.path != b.path or level >= len(a.path):
        return False
    within = {r.var for r in (*a.path[level + 1 :], *a.axes, *b.axes)}
    var = a.path[level].var
    return any(i.moves(var) and not within & i.names() for i in a.access.index)
