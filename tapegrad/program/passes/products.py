"""Products of matrices: nests of three loops that add up products of two elements, as calls of BLAS.

`C[i, j] += A[i, k] * B[k, j]` is a product whichever way its loops run and whatever stands beside it in them, as long as order lets the
sum be taken by itself. So where the sizes are proved to be large, numbers and arrays of one iteration are widened by the loops around, the
loops are cut, and each sum that is one over three loops is tried: factors go to the matrix whose axes they have, what is no plain
element of an array is computed into an array first, and factors that have no part in the sum are multiplied to its result. A nest that
gives no product stays as it was.

Invariant: a loop with `product` holds two more, and a single sum; they run upwards over rows, inner index and columns, with bounds of their own.
`matrices` reads such a nest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...llvm import named
from ..affine import Affine, affine, whole
from ..expressions import F4, F8, Expr, const, load, moved, node, nodes
from ..form import Access, Buffer, Loop, Program, Range, Store, nest, sites
from ..residuals import covers
from .fusion import distributed
from .scope import Path, Scope, clashes, found, renamed

LEAST = 16
"""Extents from which on a product is BLAS's; a program for others has loops."""

FEW = 64
"""Extents that together are no more leave a product to loops, where one of them is below LEAST."""

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


def extents(program: Program) -> list[tuple[Affine, ...]]:
    """Extents of what may be products of matrices in a program of statements or loops: of three ranges around a sum of products."""
    seen: dict[tuple[Affine, ...], None] = {}
    for s in sites(program.body):
        ranges = (*s.path, *s.axes)[-3:]
        if not s.write or s.store.mode != "+=" or len(ranges) < 3 or not _rectangular(ranges):
            continue
        if any(n.op in _PRODUCTS for n in nodes([s.store.value])) and s.access.buffer.dtype in (F8, F4):
            lengths = tuple(r.hi - r.lo for r in ranges)
            if all(set(n.names()) <= set(program.sizes) for n in lengths):
                seen[lengths] = None
    return list(seen)


def claims(of: Sequence[Affine], sizes: dict[str, int]) -> tuple[Affine, ...]:
    """What holds of the extents of a product at these sizes, each at least 0: that all are large, or all together small, or nothing."""
    lengths = [e.at(sizes) for e in of]
    if min(lengths) >= LEAST:
        return tuple(e - LEAST for e in of) if available() else ()
    return (sum(of, affine(0)) * -1 + FEW,) if sum(lengths) <= FEW else ()


@cache
def available() -> bool:
    """Whether there is a BLAS that compiled programs can call."""
    return all(named.address_of(named.BLAS + name) for name in ("dgemm", "sgemm"))


def _rectangular(ranges: Sequence[Range]) -> bool:
    names = {r.var for r in ranges}
    return not any(names & (r.lo.names() | r.hi.names()) for r in ranges)


# ------------------------------------------------------------------------------------------------ the pass


def multiplied(body: list[Any], scope: Scope, path: Path = ()) -> list[Any]:
    """Take the products out of each nest that has any."""
    out: list[Any] = []
    for s in body:
        if not isinstance(s, Loop):
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
    for part in distributed([_widened(loop, scope, path)], scope, path):
        products = _recast(part, scope, path) if isinstance(part, Loop) else None
        count += products is not None
        parts += [part] if products is None else products
    return parts if count else None


def _chains(loop: Loop) -> Iterator[tuple[Range, Range, Range]]:
    """The ranges of three loops, this one the outermost, around sums."""
    for second in loop.body:
        for third in second.body if isinstance(second, Loop) else ():
            if isinstance(third, Loop) and any(isinstance(s, Store) and s.mode == "+=" for s in third.body):
                yield loop.range, second.range, third.range


def _may_be(ranges: Sequence[Range], scope: Scope, path: Path) -> bool:
    """Whether three loops are proved to be long, each whatever the others do."""
    return _rectangular(ranges) and all(
        whole(r.lo) and whole(r.hi) and scope.order.proves(r.hi - r.lo - LEAST, path) for r in ranges
    )


def _widened(loop: Loop, scope: Scope, path: Path, outermost: bool = True) -> Loop:
    """The loop, and the one within that has a loop in turn, with an element for each iteration of what one iteration has for itself."""
    r, inside = loop.range, (*path, loop.range)
    body = [
        _widened(s, scope, inside, False)
        if outermost and isinstance(s, Loop) and not s.until and _rectangular((r, s.range)) and any(isinstance(x, Loop) for x in s.body)
        else s
        for s in loop.body
    ]
    those: dict[Buffer, list[Any]] = {}
    for site in found(body, inside):
        those.setdefault(site.access.buffer, []).append(site)
    wide: dict[Buffer, Buffer] = {}
    for b, mine in those.items():
        if b.role != "temporary" or len(b.extents) > outermost or scope.uses.get(b, len(mine)) != len(mine):
            continue
        if any(isinstance(s.owner, Loop) for s in mine):
            continue
        first = min(mine, key=lambda s: s.place)
        if not first.write or first.store.mode != "=" or not covers(first, len(inside)):
            continue
        if not any(not s.write and scope.order.precedes(s, first, len(inside)) for s in mine):
            wide[b] = Buffer(scope.names(b.name), (r.hi - r.lo, *b.extents), b.dtype)
    if not wide:
        return loop.of(body)
    at = r.at - r.lo

    def to(a: Access) -> Access:
        new = wide.get(a.buffer)
        return a if new is None else Access(new, (at, *a.index))

    def rewritten(part: list[Any]) -> list[Any]:
        return [
            s.of(rewritten(s.body)) if isinstance(s, Loop) else Store(to(s.target), moved([s.value], to)[0], s.mode) for s in part
        ]

    return loop.of(rewritten(body))


# ------------------------------------------------------------------------------------------------ one sum


def _recast(loop: Loop, scope: Scope, path: Path) -> list[Any] | None:
    """Three perfectly nested loops around one sum as products, and what is left of it; None where none of its terms is one."""
    ranges: list[Range] = []
    s: Any = loop
    while isinstance(s, Loop) and len(s.body) == 1 and len(ranges) < 3:
        ranges.append(s.range)
        s = s.body[0]
    if len(ranges) < 3 or not isinstance(s, Store) or s.mode != "+=" or not _may_be(ranges, scope, path):
        return None
    if s.target.buffer.dtype not in (F8, F4):
        return None
    those = found([loop], path)
    if any(scope.order.meet(a, b, len(path)) for a, b in clashes(those, those, True) if not a.access == b.access == s.target):
        return None
    if any(leaf.access.buffer is s.target.buffer for leaf in s.value.loads):
        return None
    out: list[Any] = []
    count = 0
    for sign, term in _terms(s.value):
        parts = _Term(s.target, sign, term, ranges, scope).parts()
        count += parts is not None
        if parts is None:
            value = term if sign > 0 else node("negative", term)
            parts = _fresh(ranges, [Store(s.target, value, "+=")], scope)
        out += parts
    return out if count else None


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


def _names(e: Expr) -> set[str]:
    """Variables that a formula depends on."""
    found: set[str] = set()
    for n in nodes([e]):
        if n.op == "load":
            found |= n.access.names()
        elif n.op == "number":
            found |= n.args[0].names()
    return found


def _times(factors: Iterable[Expr], dtype: str) -> Expr:
    product: Expr | None = None
    for e in factors:
        product = e if product is None else node("multiply", product, e)
    return const(1.0, dtype) if product is None else product


def _fresh(ranges: Sequence[Range], body: list[Any], scope: Scope) -> list[Any]:
    """A body under loops upwards over ranges, with variables of its own."""
    new = [Range(scope.names(r.var.split(".")[0]), r.lo, r.hi) for r in ranges]
    return nest(new, renamed(body, {r.var: n.at for r, n in zip(ranges, new, strict=True)}))


class _Term:
    """One term of a sum over three loops."""

    def __init__(self, target: Access, sign: int, term: Expr, ranges: Sequence[Range], scope: Scope) -> None:
        """Sort its factors by the variables that they have."""
        self.target, self.sign, self.ranges, self.scope = target, sign, ranges, scope
        self.dtype = target.buffer.dtype
        names = {r.var for r in ranges}
        self.on = target.names() & names
        self.factors = [(e, frozenset(_names(e) & names)) for e in _factors(term)]

    def parts(self) -> list[Any] | None:
        """The product, with what is computed before it and behind it; None where it is none."""
        if any(len(v) == 3 or e.dtype != self.dtype for e, v in self.factors):
            return None
        for inner in reversed(self.ranges):
            if inner.var not in self.on:
                rows, columns = (r for r in self.ranges if r is not inner)
                made = self._over(rows, inner, columns)
                if made is not None:
                    return made
        return None

    def _over(self, rows: Range, inner: Range, columns: Range) -> list[Any] | None:
        """The sum over one of the loops as a product; what does not depend on that loop is multiplied behind it."""
        left, right, rest = [], [], []
        for e, v in self.factors:
            if inner.var not in v:
                rest.append((e, v))
            elif columns.var in v:
                right.append(e)
            else:
                left.append(e)
        if not all(self._has(part, r) for part, r in ((left, rows), (right, columns))):
            return None
        apart = any(v for _, v in rest) or len(self.on) < 2
        if not apart and _unit(self.target, rows.var, columns.var) is None:
            apart = True
        elif not apart and not _unit(self.target, rows.var, columns.var):
            rows, columns, left, right = columns, rows, right, left
        scale = [e for e, _ in rest] + ([const(-1.0, self.dtype)] if self.sign < 0 else [])
        out: list[Any] = []
        first = self._matrix(left, rows, inner, out)
        second = self._matrix(right, inner, columns, out)
        target, factor = self.target, _times(scale, self.dtype)
        if apart:
            of = Buffer(self.scope.names("product"), (rows.hi - rows.lo, columns.hi - columns.lo), self.dtype)
            target, factor = Access(of, (rows.at - rows.lo, columns.at - columns.lo)), const(1.0, self.dtype)
            out += _fresh((rows, columns), [Store(target, const(0.0, self.dtype))], self.scope)
        value = _times([first, second], self.dtype)
        if factor.op != "const" or factor.args[0] != 1.0:
            value = node("multiply", factor, value)
        (product,) = _fresh((rows, inner, columns), [Store(target, value, "+=")], self.scope)
        product.product = True
        out.append(product)
        if apart:
            value = _times([load(target), *scale], self.dtype)
            out += _fresh((rows, columns), [Store(self.target, value, "+=")], self.scope)
        return out

    def _has(self, part: list[Expr], r: Range) -> bool:
        return any(r.var in _names(e) for e in part)

    def _matrix(self, part: list[Expr], a: Range, b: Range, out: list[Any]) -> Expr:
        """A factor of the product as elements of an array; what is none yet is computed first."""
        if len(part) == 1 and part[0].op == "load" and _unit(part[0].access, a.var, b.var) is not None:
            return part[0]
        of = Buffer(self.scope.names("factor"), (a.hi - a.lo, b.hi - b.lo), self.dtype)
        target = Access(of, (a.at - a.lo, b.at - b.lo))
        out += _fresh((a, b), [Store(target, _times(part, self.dtype))], self.scope)
        return load(target)


# ------------------------------------------------------------------------------------------------ layouts


def _unit(a: Access, rows: str, columns: str) -> bool | None:
    """Whether neighbouring columns of a matrix are neighbours in memory (else rows are); None where BLAS has no such matrix."""
    places = [[d for d, i in enumerate(a.index) if i[v]] for v in (rows, columns)]
    if any(len(p) != 1 or a.index[p[0]].moves(v) != 1 for p, v in zip(places, (rows, columns), strict=True)):
        return None
    (r,), (c,) = places
    if r == c:
        return None
    last = len(a.index) - 1
    return True if c == last else False if r == last else None


def matrices(loop: Loop) -> Matrices:
    """What a loop with `product` multiplies."""
    rows, inner, columns = loop, loop.body[0], loop.body[0].body[0]
    s: Store = columns.body[0]
    scale = const(1.0, s.value.dtype)
    value = s.value
    if value.args[1].op == "multiply":
        scale, value = value.args
    first, second = (e.access for e in value.args)
    return Matrices(rows.range, inner.range, columns.range, s.target, first, second, scale)


def layout(a: Access, rows: Range, columns: Range) -> tuple[bool, int]:
    """Whether rows, not columns, are neighbours in memory, and along which dimension of the buffer the other ones lie."""
    unit = _unit(a, rows.var, columns.var)
    var = rows.var if unit else columns.var
    return not unit, next(d for d, i in enumerate(a.index) if i[var])
