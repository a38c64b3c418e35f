"""Products of matrices: nests of three loops that add up products of two elements, as calls of BLAS.

`C[i, j] += A[i, k] * B[k, j]` is a product whichever way its loops run and whatever stands beside it in them, as long as order lets the
sum be taken by itself. So where the sizes are proved to be large, numbers and arrays of one iteration are widened by the loops around, the
loops are cut, and each sum that is one over three loops is tried: factors go to the matrix whose axes they have, what is no plain
element of an array is computed into an array first, and factors that have no part in the sum are multiplied to its result. A nest that
gives no product stays as it was.

One of the loops may be bounded by another one's variable (`j < i`, a triangle): then BLAS has the rectangles of blocks of iterations, and
loops have what is left along the diagonal.

Invariant: a loop with `product`, the variables of rows, inner index and columns, holds two more and a single sum; they run upwards.
`matrices` reads such a nest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...llvm import named
from ..affine import Affine, whole
from ..expressions import F4, F8, Expr, const, load, node, nodes
from ..form import Access, Buffer, Loop, Program, Range, Store, by_buffer, loops, nest, sites
from ..residuals import box, covers, ends_by_condition
from .fusion import distributed, may_cut
from .scope import Path, Scope, found, moved, opened, renamed

LEAST = 8
"""Extents from which on a product is BLAS's; a program for others has loops."""

STEEP = 32
"""The same of extents that bound one another."""

_PRODUCTS = ("multiply", "strong", "chosen")


@dataclass(frozen=True, slots=True)
class Matrices:
    """What a nest multiplies: `target[rows, columns] += scale * first[rows, inner] * second[inner, columns]`."""

    rows: Range
    inner: Range
    columns: Range
    target: Access
    first: Access
    second: Access
    scale: Expr
    slope: Slope | None


@dataclass(frozen=True, slots=True)
class Slope:
    """One range is bounded by the variable of another: `under` goes up to `over + shift`, or (`upper`) begins there."""

    over: Range
    under: Range
    shift: Affine
    upper: bool


def candidates(program: Program) -> list[tuple[Affine, ...]]:
    """What BLAS may multiply in a program of statements or loops: by how much each of three extents is above what that asks.

    A temporary counts as having the variables of all loops around it: where it is one iteration's, it will have.
    """
    if not available():
        return []
    seen: dict[tuple[Affine, ...], None] = {}
    every = sites(program.body)
    around: dict[Buffer, set[Range]] = {}
    for s in every:
        if s.access.buffer.role == "temporary":
            around[s.access.buffer] = around.get(s.access.buffer, set(s.path)) & set(s.path)
    for s in every:
        ranges = (*s.path, *s.axes)[-3:]
        if not s.write or s.store.mode != "+=" or len(ranges) < 3 or not _regular(ranges):
            continue
        excess = _excess(ranges)
        sized = all(program.knows(n) and (n.terms or n.const >= 0) for n in excess)
        if not sized or excess in seen or s.access.buffer.dtype not in (F8, F4):
            continue

        def names(a: Access) -> set[str]:
            return a.names() | {r.var for r in around.get(a.buffer, ())}

        on = names(s.access)
        if any(
            next(_sides(on, factors, ranges, names, divisors), None)
            for _, e in _terms(s.store.value)
            for factors, divisors in _readings(e)
        ):
            seen[excess] = None
    return list(seen)


@cache
def available() -> bool:
    """Whether there is a BLAS that compiled programs can call."""
    return all(named.address_of(named.BLAS + name) for name in ("dgemm", "sgemm"))


def _regular(ranges: Sequence[Range]) -> bool:
    """Whether ranges, from outside, are a box, or one with a slope."""
    if not all(whole(r.lo) and whole(r.hi) and not ends_by_condition(r) for r in ranges):
        return False
    names = {r.var for r in ranges}
    sloping = [b for r in ranges for b in (r.lo, r.hi) if names & b.names()]
    return not sloping or (len(sloping) == 1 and _slope(ranges) is not None)


def _slope(ranges: Iterable[Range]) -> Slope | None:
    """The slope of some ranges, of which there is one at most."""
    ranges = list(ranges)
    for over in ranges:
        for under in ranges:
            for bound, upper in ((under.lo, True), (under.hi, False)):
                if bound[over.var] == 1:
                    return Slope(over, under, bound - over.at, upper)
    return None


def _excess(ranges: Sequence[Range]) -> tuple[Affine, ...]:
    """By how much the extents of a product are above the least ones."""
    slope = _slope(ranges)
    steep = () if slope is None else (slope.over, slope.under)
    return tuple(
        n - (STEEP if r in steep else LEAST) for r, n in zip(ranges, box(ranges)[0], strict=True)
    )


def _ordered(ranges: Sequence[Range]) -> list[Range]:
    """Ranges in the given order, but for one whose bounds are another one's: it follows."""
    slope = _slope(ranges)
    if slope is None:
        return list(ranges)
    rest = [r for r in ranges if r is not slope.over]
    return [slope.over, *rest]


# ------------------------------------------------------------------------------------------------ the pass


def multiplied(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Take the products out of each nest that has any."""
    out: list[Any] = []
    for s in body:
        if not opened(s):
            out.append(s)
            continue
        parts = _tried(s, scope, path) if s.until is None else None
        inside = (*path, s.range)
        out += [s.of(multiplied(s.body, scope, inside))] if parts is None else parts
    return out


def _tried(loop: Loop, scope: Scope, path: Path) -> list[Any] | None:
    """A nest as parts of which some are products; None where none is."""
    if not any(_may_be(chain, scope, path) for chain in _chains(loop)):
        return None
    parts: list[Any] = []
    count = 0
    for part in distributed([_sorted(_widened(loop, scope, path), scope, path)], scope, path):
        products = _recast(part, scope, path) if isinstance(part, Loop) else None
        count += products is not None
        parts += [part] if products is None else products
    return parts if count else None


def _chains(loop: Loop) -> Iterator[tuple[Range, Range, Range]]:
    """The ranges of three loops, this one the outermost, around sums."""
    for second in loop.body:
        for third in second.body if isinstance(second, Loop) else ():
            if isinstance(third, Loop) and any(
                isinstance(s, Store) and s.mode == "+=" for s in third.body
            ):
                yield loop.range, second.range, third.range


def _may_be(ranges: Sequence[Range], scope: Scope, path: Path) -> bool:
    """Whether three loops are proved to be long."""
    return _regular(ranges) and all(scope.order.proves(n, path) for n in _excess(ranges))


def _widened(loop: Loop, scope: Scope, path: Path) -> Loop:
    """The loop with an element for each iteration of what one iteration has for itself, and numbers of those within with one for each of
    theirs."""
    r, inside = loop.range, (*path, loop.range)
    body: list[Any] = []
    for s in loop.body:
        if (
            isinstance(s, Loop)
            and any(isinstance(x, Loop) for x in s.body)
            and _regular((r, s.range))
        ):
            s = _apart(s, scope, inside, (r, s.range), 0)
        body.append(s)
    return _apart(loop.of(body), scope, path, (r,), 1)


def _apart(loop: Loop, scope: Scope, path: Path, by: Sequence[Range], most: int) -> Loop:
    """A loop whose temporaries of one iteration, of so many extents at most, have an element for each iteration of the loops `by`."""
    inside = (*path, loop.range)
    those = by_buffer(found(loop.body, inside))
    extents, index = box(by)
    wide: dict[Buffer, Buffer] = {}
    for b, mine in those.items():
        if (
            b.role != "temporary"
            or len(b.extents) > most
            or scope.uses.get(b, len(mine)) != len(mine)
        ):
            continue
        first = min(mine, key=lambda s: s.place)
        fresh = first.write and first.store.mode == "=" and covers(first, len(inside))
        early = (not s.write and scope.order.precedes(s, first, len(inside)) for s in mine)
        if fresh and not any(isinstance(s.owner, Loop) for s in mine) and not any(early):
            wide[b] = Buffer(scope.names(b.name), (*extents, *b.extents), b.dtype)
    if not wide:
        return loop

    def to(a: Access) -> Access:
        new = wide.get(a.buffer)
        return a if new is None else Access(new, (*index, *a.index))

    return loop.of(moved(loop.body, to))


def _sorted(loop: Loop, scope: Scope, path: Path, levels: int = 2) -> Loop:
    """The loop with sums in front of what else it does, or behind, where order allows to cut them off there; a sum for each term."""
    inside = (*path, loop.range)
    inner: list[Any] = []
    for s in loop.body:
        if opened(s):
            s = _sorted(s, scope, inside, levels - 1) if levels > 1 else s.of(_by_term(s.body))
        inner.append(s)
    parts = distributed(inner, scope, inside)
    places = {id(p): found([p], inside, k) for k, p in enumerate(parts)}
    front: list[Any] = []
    behind: list[Any] = []
    rest, moved = list(parts), True
    while moved:  # what one sum stood in the way of may go once that one has gone
        moved = False
        for p in [p for p in rest if _is_sum(p, levels)]:
            mine = places[id(p)]
            others = [x for q in rest if q is not p for x in places[id(q)]]
            if may_cut(others, mine, scope, len(path)):
                behind.insert(0, p)
            elif may_cut(mine, others, scope, len(path)):
                front.append(p)
            else:
                continue
            rest, moved = [q for q in rest if q is not p], True
    return loop.of([*front, *rest, *behind])


def _by_term(body: list[Any]) -> list[Any]:
    """Stores, where each term of a sum that is added to an element is added by itself."""
    out: list[Any] = []
    for s in body:
        if (
            isinstance(s, Store)
            and s.mode == "+="
            and all(leaf.access.buffer is not s.target.buffer for leaf in s.value.loads)
        ):
            out += [
                Store(s.target, e if sign > 0 else node("negative", e), "+=")
                for sign, e in _terms(s.value)
            ]
        else:
            out.append(s)
    return out


def _is_sum(s: Any, levels: int) -> bool:
    """Whether a part is so many loops around one sum and nothing else."""
    for _ in range(levels):
        if not isinstance(s, Loop) or len(s.body) != 1:
            return False
        (s,) = s.body
    return isinstance(s, Store) and s.mode == "+="


# ------------------------------------------------------------------------------------------------ one sum


def _recast(loop: Loop, scope: Scope, path: Path) -> list[Any] | None:
    """Three perfectly nested loops around one sum as products, and what is left of it; None where none of its terms is one."""
    ranges: list[Range] = []
    s: Any = loop
    while isinstance(s, Loop) and len(s.body) == 1 and len(ranges) < 3:
        ranges.append(s.range)
        s = s.body[0]
    if (
        len(ranges) < 3
        or not isinstance(s, Store)
        or s.mode != "+="
        or not _may_be(ranges, scope, path)
    ):
        return None
    if s.target.buffer.dtype not in (F8, F4):
        return None
    terms = list(_terms(s.value))
    late = _changing(loop, s, scope, path)
    if late is None or (late and len(terms) > 1):
        return None
    out: list[Any] = []
    count = 0
    for sign, term in terms:
        parts = _Term(s.target, sign, term, ranges, scope).parts(late)
        count += parts is not None
        if parts is None:
            value = term if sign > 0 else node("negative", term)
            parts, _ = _fresh(ranges, [Store(s.target, value, "+=")], scope)
        out += parts
    return out if count else None


def _changing(loop: Loop, s: Store, scope: Scope, path: Path) -> bool | None:
    """Whether the sum reads elements that it changes later, so that they must be copied; None where it reads what it changed."""
    those = found([loop], path)
    writes = [x for x in those if x.write]
    reads = [x for x in those if not x.write and x.access != s.target]
    if any(leaf.access == s.target for leaf in s.value.loads) or any(
        scope.order.precedes(w, r, len(path)) for w in writes for r in reads
    ):
        return None
    return any(scope.order.meet(w, r, len(path)) for w in writes for r in reads)


def _terms(e: Expr, sign: int = 1) -> Iterator[tuple[int, Expr]]:
    """The terms of a sum with their signs."""
    if e.op in ("add", "subtract"):
        yield from _terms(e.args[0], sign)
        yield from _terms(e.args[1], sign if e.op == "add" else -sign)
    elif e.op == "negative":
        yield from _terms(e.args[0], -sign)
    else:
        yield sign, e


def _factors(e: Expr) -> Iterator[Expr]:
    if e.op in _PRODUCTS:
        for a in e.args:
            yield from _factors(a)
    elif e.op == "negative":
        yield const(-1.0, e.dtype)
        yield from _factors(e.args[0])
    else:
        yield e


def _readings(e: Expr) -> Iterator[tuple[list[Expr], list[Expr]]]:
    """The factors of a formula and its divisors: quotients as factors, then what is divided as a whole."""
    yield list(_factors(e)), []
    divisors: list[Expr] = []
    while e.op == "divide":
        e, by = e.args
        divisors.append(by)
    if divisors:
        yield list(_factors(e)), divisors[::-1]


def _names(e: Expr, names: Callable[[Access], set[str]] = Access.names) -> set[str]:
    """Variables that a formula depends on; `names` says which an access does."""
    found: set[str] = set()
    for n in nodes([e]):
        if n.op == "load":
            found |= names(n.access)
        elif n.op == "number":
            found |= n.args[0].names()
    return found


Sides = tuple[Range, Range, Range, list[Expr], list[Expr], list[Expr]]


def _sides(
    on: set[str],
    factors: list[Expr],
    ranges: Sequence[Range],
    names: Callable[[Access], set[str]] = Access.names,
    divisors: Sequence[Expr] = (),
) -> Iterator[Sides]:
    """Ways to take a sum of products over three loops for a product of matrices, whose result has the variables `on`.

    Rows, inner index and columns; the factors of the first matrix, those of the second, and those without the inner index, which no
    divisor may have.
    """
    having = [(e, _names(e, names)) for e in factors]
    if any(all(r.var in v for r in ranges) for _, v in having):
        return
    for inner in reversed(ranges):
        if inner.var in on or any(inner.var in _names(e, names) for e in divisors):
            continue
        rows, columns = (r for r in ranges if r is not inner)
        moving = [(e, v) for e, v in having if inner.var in v]
        right = [e for e, v in moving if columns.var in v]
        left = [e for e, v in moving if columns.var not in v]
        if right and any(rows.var in v for e, v in moving if columns.var not in v):
            yield rows, inner, columns, left, right, [e for e, v in having if inner.var not in v]


def _times(factors: Iterable[Expr], dtype: str) -> Expr:
    product: Expr | None = None
    for e in factors:
        product = e if product is None else node("multiply", product, e)
    return const(1.0, dtype) if product is None else product


def _fresh(ranges: Sequence[Range], body: list[Any], scope: Scope) -> tuple[list[Any], list[Range]]:
    """A body under loops upwards over ranges, with variables of its own, and these ranges."""
    values: dict[str, Affine] = {}
    new: list[Range] = []
    for r in _ordered(ranges):
        new.append(
            Range(scope.names(r.var.split(".")[0]), r.lo.replaced(values), r.hi.replaced(values))
        )
        values[r.var] = new[-1].at
    names = {r.var: n for r, n in zip(_ordered(ranges), new, strict=True)}
    return nest(new, renamed(body, values)), [names[r.var] for r in ranges]


class _Term:
    """One term of a sum over three loops."""

    def __init__(
        self, target: Access, sign: int, term: Expr, ranges: Sequence[Range], scope: Scope
    ) -> None:
        """Find its factors."""
        self.target, self.sign, self.ranges, self.scope = target, sign, ranges, scope
        self.dtype = target.buffer.dtype
        extents, index = box(_ordered(ranges))
        self.lengths = {
            r.var: (n, r.at - i) for r, n, i in zip(_ordered(ranges), extents, index, strict=True)
        }
        """How many values the variables have, and the least."""
        self.term = term

    def parts(self, late: bool) -> list[Any] | None:
        """The product, with what is computed before it and behind it; None where it is none.

        `late`: the target's array is read before it is changed. Then nothing that is computed behind the product may read it.
        """
        for factors, divisors in _readings(self.term):
            if all(e.dtype == self.dtype for e in (*factors, *divisors)):
                for sides in _sides(self.target.names(), factors, self.ranges, divisors=divisors):
                    behind = [leaf for e in (*sides[-1], *divisors) for leaf in e.loads]
                    if not late or all(x.access.buffer is not self.target.buffer for x in behind):
                        return self._made(*sides, divisors)
        return None

    def _made(
        self,
        rows: Range,
        inner: Range,
        columns: Range,
        left: list[Expr],
        right: list[Expr],
        rest: list[Expr],
        divisors: list[Expr],
    ) -> list[Any]:
        """The sum over one of the loops as a product; by what does not depend on that loop it is multiplied and divided behind it."""
        variables = {r.var for r in self.ranges}
        apart = any(variables & _names(e) for e in rest) or len(variables & self.target.names()) < 2
        apart |= bool(divisors)
        if not apart and _unit(self.target, rows.var, columns.var) is None:
            apart = True
        elif not apart and not _unit(self.target, rows.var, columns.var):
            rows, columns, left, right = columns, rows, right, left
        scale = [*rest, *([const(-1.0, self.dtype)] if self.sign < 0 else [])]
        out: list[Any] = []
        first = self._matrix(left, rows, inner, out)
        second = self._matrix(right, inner, columns, out)
        target, factor = self.target, _times(scale, self.dtype)
        if apart:
            target, factor = self._temporary("product", rows, columns), const(1.0, self.dtype)
            out += self._nest(rows, columns, Store(target, const(0.0, self.dtype)))
        value = _times([first, second], self.dtype)
        if factor.op != "const" or factor.args[0] != 1.0:
            value = node("multiply", factor, value)
        (product,), names = _fresh((rows, inner, columns), [Store(target, value, "+=")], self.scope)
        product.product = tuple(r.var for r in names)
        out.append(product)
        if apart:
            value = _times([load(target), *scale], self.dtype)
            for e in divisors:
                value = node("divide", value, e)
            out += self._nest(rows, columns, Store(self.target, value, "+="))
        return out

    def _matrix(self, part: list[Expr], a: Range, b: Range, out: list[Any]) -> Expr:
        """A factor of the product as elements of an array; what is none yet is computed first."""
        if (
            len(part) == 1
            and part[0].op == "load"
            and part[0].access.buffer is not self.target.buffer
            and _unit(part[0].access, a.var, b.var) is not None
        ):
            return part[0]
        target = self._temporary("factor", a, b)
        out += self._nest(a, b, Store(target, _times(part, self.dtype)))
        return load(target)

    def _temporary(self, stem: str, a: Range, b: Range) -> Access:
        """An element of a new array for all values of two variables."""
        lengths = [self.lengths[r.var] for r in (a, b)]
        of = Buffer(self.scope.names(stem), tuple(n for n, _ in lengths), self.dtype)
        return Access(of, tuple(r.at - lo for r, (_, lo) in zip((a, b), lengths, strict=True)))

    def _nest(self, a: Range, b: Range, s: Store) -> list[Any]:
        """A store under two of the loops. Where the third one bounds one of these, it takes all values that it has for any."""
        ranges = []
        for r, other in ((a, b), (b, a)):
            free = not any(r.names() & (self.lengths.keys() - {other.var}) for r in (r.lo, r.hi))
            n, lo = self.lengths[r.var]
            ranges.append(r if free else Range(r.var, lo, lo + n))
        return _fresh(ranges, [s], self.scope)[0]


# ------------------------------------------------------------------------------------------------ layouts


def _unit(a: Access, rows: str, columns: str) -> bool | None:
    """Whether neighbouring columns of a matrix are neighbours in memory (else rows are); None where BLAS has no such matrix."""
    places = [[d for d, i in enumerate(a.index) if i[v]] for v in (rows, columns)]
    if any(
        len(p) != 1 or a.index[p[0]].moves(v) != 1
        for p, v in zip(places, (rows, columns), strict=True)
    ):
        return None
    (r,), (c,) = places
    if r == c:
        return None
    last = len(a.index) - 1
    return True if c == last else False if r == last else None


def count(program: Program) -> int:
    """How many products of matrices a program of loops has."""
    return sum(s.product is not None for s in loops(program.body))


def matrices(loop: Loop) -> Matrices:
    """What a loop with `product` multiplies."""
    loops = [loop, loop.body[0], loop.body[0].body[0]]
    by_name = {x.range.var: x.range for x in loops}
    assert loop.product is not None
    rows, inner, columns = (by_name[v] for v in loop.product)
    s: Store = loops[-1].body[0]
    scale, value = const(1.0, s.value.dtype), s.value
    if value.args[1].op == "multiply":
        scale, value = value.args
    first, second = (e.access for e in value.args)
    return Matrices(rows, inner, columns, s.target, first, second, scale, _slope(by_name.values()))


def layout(a: Access, rows: Range, columns: Range) -> tuple[bool, int]:
    """Whether rows, not columns, are neighbours in memory, and along which dimension of the buffer the other ones lie."""
    unit = _unit(a, rows.var, columns.var)
    var = rows.var if unit else columns.var
    return not unit, next(d for d, i in enumerate(a.index) if i[var])
