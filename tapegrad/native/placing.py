"""Places: whole numbers that a program computes, as indices.

What such a number is as an index is written down for each iteration (`affine.Counted`), so that the reverse sweep finds the element again:
in front of the outermost loop in which the number cannot change, once.

A loop around the innermost one is not cut where its variable decides which of two whole numbers an index is, as `(i - 1) % n` does at the
border of a torus: then rows are found by places. Only the innermost loop is cut, whose elements shall be neighbours. In pieces, a stencil
of three axes has twenty-seven bodies, by places three.

Invariant: a place is on its axis, whatever the number was, so that no program touches memory that is not its own; of a number that is no
place the program does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ..program.affine import Affine, Counted, affine
from ..program.arrays import Array, Index, of_number
from ..program.expressions import Expr, cast, const, node, nodes, number
from ..program.form import Access, Buffer, Store, over
from ..program.residuals import box
from .tree import If, Loop, Node, Seg, operations
from .wholes import Computed, exact, leaves_where

if TYPE_CHECKING:
    from .formulas import Formulas

_ARITHMETIC = frozenset(("+", "-", "*", "//", "%", "neg", "abs", "min", "max"))


def indices(body: Iterable[Node], whole: Callable[[str], bool]) -> set[str]:
    """Names of whole numbers that are read as indices of elements, or to compute such names, and for nothing else."""
    body = list(body)
    every = list(operations(body))
    read = [
        x for n in _every(body) for x in (n.condition, *(n.bounds if isinstance(n, Loop) else ()))
    ]
    made: list[tuple[set[str], list[str]]] = []  # what is computed, of what
    for op in every:
        if op.kind == "copy" or (op.kind == "pure" and op.rule in _ARITHMETIC):
            made.append((set(op.out), op.variables))
        elif op.kind in ("load", "store", "acc") and ":" not in op.index:
            read += op.args[: len(op.args) - len(op.index_operands())]
        else:
            read += op.args
    other = {x for x in read if isinstance(x, str)}
    while more := {a for out, args in made if out & other for a in args} - other:
        other |= more
    return {x for op in every for x in op.out if x not in other and whole(x)}


def _every(body: Iterable[Node]) -> Iterator[If | Loop]:
    for n in body:
        if not isinstance(n, Seg):
            yield n
            yield from _every(n.body)
            yield from _every(n.orelse if isinstance(n, If) else [])


def places(f: Formulas, value: Array, n: Affine, wraps: bool = True) -> Array:
    """Whole numbers that the program computes, as places on an axis of `n` elements. Below zero they count from its end (`wraps`); what
    is no place stands for the first one, and the program does not hold."""
    if f.symbolic:
        raise Computed
    builder = f.builder
    builder.claim(n - 1, "an axis without elements")
    axes = over(value.shape, builder.names)
    i = value.at(tuple(r.at for r in axes))
    known = _lies(f, i, n, wraps)
    if wraps and not _is_remainder(i, n):
        i = node("where", node("less", i, const(0.0)), node("add", i, number(n)), i)
    extents, index = box((*builder.path, *axes))
    place = Buffer(builder.names("place"), extents, "i8", "counter")
    if not known:
        inside = node(
            "logical_and", node("greater_equal", i, const(0.0)), node("less", i, number(n))
        )
        i = node("where", inside, i, const(0.0))
        leaves_where(f, node("logical_not", inside), axes)
    builder.emit_always(Store(Access(place, index), cast(i, "i8")), axes)
    around = index[: len(index) - len(axes)]

    def access(at: Index) -> Access:
        return Access(place, (*around, *at))

    return Array(
        value.shape,
        lambda at: number(affine(Counted(place, access(at).index, n - 1))),
        "i8",
        access,
    )


def _is_remainder(e: Expr, n: Affine) -> bool:
    """Whether a whole number is the remainder of an affine one by `n`, as `wholes.quotient` writes it. Of one that the program computes,
    from NaN say, the remainder may be anything."""
    if e.op != "subtract" or e.args[1].op != "multiply":
        return False
    whole, (divisor, times) = e.args[0], e.args[1].args
    return (
        exact(whole) is not None
        and exact(divisor) == n
        and times == node("floor", node("divide", whole, divisor))
    )


def _lies(f: Formulas, e: Expr, n: Affine, wraps: bool, now: bool = True) -> bool:
    """Whether a whole number is proved to be a place on an axis; if not of `now`, what it was computed from may have changed."""
    if _is_remainder(e, n):
        return True
    if e.op == "where":
        return all(_lies(f, x, n, wraps, now) for x in e.args[1:])
    if e.op == "load":
        value = _value_of(f, e.access.buffer) if now else None
        return value is not None and _lies(f, value, n, wraps, now=False)
    i, proves, path = exact(e), f.builder.order.proves, f.builder.path
    return (
        i is not None
        and proves(n - i - 1, path)
        and (proves(i, path) or (wraps and proves(i + n, path)))
    )


def place(f: Formulas, e: Expr, n: Affine, wraps: bool = True) -> Affine:
    """The same of one number, as an affine one."""
    builder = f.builder
    level = _level(f, e)
    if level == len(builder.path):
        return _place(f, e, n, wraps)
    if f.symbolic:
        raise Computed
    builder.claim(n - 1, "an axis without elements")  # one that was made before may be taken back
    key = e, n, wraps, builder.path[:level]
    if key not in builder.placed:
        with builder.in_front(level):
            found = _place(f, e, n, wraps)
        builder.placed[key] = found, {x.access.buffer for x in nodes([e]) if x.op == "load"}
    return builder.placed[key][0]


def _place(f: Formulas, e: Expr, n: Affine, wraps: bool) -> Affine:
    found = exact(places(f, of_number(e), n, wraps).number())
    assert found is not None
    return found


def _level(f: Formulas, e: Expr) -> int:
    """Within how many of the loops around a whole number has to be computed: in those inside of them it does not change."""
    builder, level = f.builder, len(f.builder.path)
    if f.asked:
        return level
    every = nodes([e])
    accesses = [x.access for x in every if x.op == "load"]
    moving = {x for a in accesses for x in a.names()}
    moving |= {x for y in every if y.op == "number" for x in y.args[0].names()}
    memory = {a.buffer for a in accesses}
    owners = {x for x, b in f.own.items() if b in memory}
    if memory - set(f.own.values()) or any(b.extents for b in memory):
        return level
    while level and builder.may_leave(level - 1):
        r = builder.path[level - 1]
        loop = f.loops.get(r.var)
        if loop is None or r.var in moving or owners & _bound(loop):
            break
        level -= 1
    return level


def _value_of(f: Formulas, memory: Buffer) -> Expr | None:
    """What stands in memory of one number now, if that is known: the last store, in this iteration of the loops around it."""
    value, path, guards = f.builder.values.get(memory, (None, (), []))
    here = f.builder.path
    if here[: len(path)] != path or f.builder.guards[: len(guards)] != guards:
        return None
    loops = [f.loops.get(r.var) for r in here[len(path) :]]
    owners = {x for x, b in f.own.items() if b is memory}
    return None if any(n is None or owners & _bound(n) for n in loops) else value


def _bound(loop: Loop) -> set[str]:
    return {x for op in operations([loop]) for x in op.out}
