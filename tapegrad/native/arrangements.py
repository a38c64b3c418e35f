"""NumPy's functions that make arrays or put elements elsewhere, as arithmetic on indices, and those that run along an axis.

`ARRANGED` has them by the name of their rule: a function of the reader (`formulas.Formulas`) and the operation, which gives an array of
the form. Entries moved by whole numbers known in terms of sizes are a view or a formula without a statement of its own; joined and
rolled arrays are stored part by part; products of all elements are loops, whose reverse keeps what it needs by itself.

Invariant: a function raises `Outside` for operands or settings that it does not read, so nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..program.affine import ONE, ZERO, Affine, affine
from ..program.arrays import Array, Index, Outside, of_buffer, of_number, remapped, viewed
from ..program.expressions import B1, F8, Expr, cast, const, load, node, number
from ..program.form import Access, Store
from .tree import Const, Op, Operand

if TYPE_CHECKING:
    from .formulas import Formulas

ELEMENTS = 64
"""Of how many numbers an array may be written: each is a statement of its own."""


def _arrays(f: Formulas, op: Op, count: int, axes: int = 0) -> list[Array]:
    """The operands, so many arrays, each of so many axes where that is asked, and no settings."""
    if op.settings or len(op.args) != count:
        raise Outside(f"{op.rule} with these settings")
    found = [f._value(a) for a in op.args]
    if any(not a.shape or (axes and len(a.shape) != axes) for a in found):
        raise Outside(f"{op.rule} of arrays with other axes")
    return found


def _known(*indices: Affine) -> Expr:
    """1 where two indices are equal, else 0, as the truth value that it is."""
    return node("equal", *(number(i) for i in indices))


# ------------------------------------------------------------------------------------------------ new arrays


def written(f: Formulas, op: Op, dtype: str) -> Array:
    """np.array of numbers, or of rows of numbers."""
    if "width" not in op.settings:
        (a,) = _arrays(f, op, 1)
        return a.unnamed()
    width = op.settings["width"]
    assert isinstance(width, Const)
    if not 0 < len(op.args) <= ELEMENTS:
        raise Outside(f"np.array of {len(op.args)} numbers")
    shape: Index = (affine(len(op.args)),)
    if width.value:
        shape = (affine(len(op.args) // width.value), affine(width.value))
    if not dtype:
        return _of_whole(shape, [number(f._whole(a)) for a in op.args])
    values = [cast(f._number(a), dtype) for a in op.args]
    if any(v.dtype == B1 for v in values):
        raise Outside("np.array of truth values")
    made = f.builder.buffer("row", shape, dtype)
    at = [divmod(k, width.value) if width.value else (k,) for k in range(len(values))]
    targets = [Access(made, tuple(map(affine, i))) for i in at]
    f.builder.emit((), *map(Store, targets, values))
    return of_buffer(made).unnamed()


def _of_whole(shape: Index, values: Sequence[Expr]) -> Array:
    """An array of these whole numbers: by choices where the index is no constant, since no memory is of such."""

    def at(index: Index) -> Expr:
        place = index[0] if len(index) == 1 else index[0] * shape[1].const + index[1]
        if not place.terms and 0 <= place.const < len(values):
            return values[place.const]
        found = values[-1]
        for k in reversed(range(len(values) - 1)):
            found = node("where", _known(place, affine(k)), values[k], found)
        return found

    return Array(shape, at, "i8")


def eye(f: Formulas, op: Op, dtype: str) -> Array:
    if op.settings or len(op.args) > (2 if op.rule == "np.eye" else 1):
        raise Outside(f"{op.rule} with these settings")
    rows = [f._whole(a) for a in op.args]
    for n in rows:
        f.builder.claim(n, "an extent")
    return identity((rows[0], rows[-1]), dtype)


def identity(shape: Index, dtype: str) -> Array:
    """1 on the diagonal of a matrix, else 0."""
    one, zero = const(1.0, dtype), const(0.0, dtype)
    return Array(shape, lambda index: node("where", _known(*index), one, zero), dtype)


def diagonal(f: Formulas, op: Op, dtype: str) -> Array:
    """np.diag: a matrix of a vector, or the vector of a square matrix."""
    (a,) = _arrays(f, op, 1)
    if len(a.shape) == 1:
        zero = const(0.0, dtype)
        return Array(
            (*a.shape, *a.shape),
            lambda index: node("where", _known(*index), a.at(index[:1]), zero),
            dtype,
            None,
            a.reads,
        )
    return _diagonal(f, a)


def _diagonal(f: Formulas, a: Array) -> Array:
    if len(a.shape) != 2:
        raise Outside("a diagonal of more axes than two")
    f.builder.same(*a.shape, "a matrix that is square")
    return Array(a.shape[:1], lambda index: a.at((index[0], index[0])), a.dtype, None, a.reads)


def trace(f: Formulas, op: Op, dtype: str) -> Array:
    (a,) = _arrays(f, op, 1, 2)
    return f._over("np.sum", _diagonal(f, a), [0], dtype)


def linspace(f: Formulas, op: Op, dtype: str) -> Array:
    """Of two numbers and more; for other lengths the call goes to the next engine."""
    if op.settings or len(op.args) != 3:
        raise Outside("np.linspace with these settings")
    start, stop = (cast(f._number(a), dtype) for a in op.args[:2])
    n = f._whole(op.args[2])
    f.builder.claim(n - 2, "the length of np.linspace")
    step = node("divide", node("subtract", stop, start), number(n - 1, dtype))
    first = of_number(step)
    second = of_number(start)
    return Array(
        (n,),
        lambda index: node("add", start, node("multiply", number(index[0], dtype), step)),
        dtype,
        None,
        first.reads | second.reads,
    )


def _whole_of(f: Formulas, x: Operand) -> Affine:
    """A whole number, written as one or as a float."""
    if isinstance(x, Const) and isinstance(x.value, float) and x.value.is_integer():
        return affine(int(x.value))
    return f._whole(x)


def arange(f: Formulas, op: Op, dtype: str) -> Array:
    """Whole numbers in a row: an index where an index is asked, a number elsewhere."""
    if op.settings or not 1 <= len(op.args) <= 2:
        raise Outside("np.arange of other than one or two whole numbers")
    *start, stop = (_whole_of(f, a) for a in op.args)
    first = start[0] if start else ZERO
    f.builder.claim(stop - first, "the length of np.arange")
    return Array(
        (stop - first,), lambda index: number(first + index[0], dtype or F8), dtype or "i8"
    )


# ------------------------------------------------------------------------------------------- elements elsewhere


def flip(f: Formulas, op: Op, dtype: str) -> Array:
    """A view from the other end, of the first axis (flipud), the second (fliplr) or of all."""
    (a,) = _arrays(f, op, 1)
    axes: Sequence[int] = range(len(a.shape))
    if op.rule != "np.flip":
        axes = [0 if op.rule == "np.flipud" else 1]
        if axes[0] >= len(a.shape):
            raise Outside(f"{op.rule} of a vector")

    def to(index: Index) -> Index:
        return tuple(a.shape[d] - 1 - i if d in axes else i for d, i in enumerate(index))

    return remapped(a, a.shape, to)


def _filled(f: Formulas, shape: Index, parts: Sequence[tuple[Affine, Array]], dtype: str) -> Array:
    """An array of this shape, of parts that begin at places of its first axis."""
    made = f.builder.buffer("joined", shape, dtype)

    def part(first: Affine, extent: Affine) -> Array:
        rows = (extent, *shape[1:])
        return viewed(rows, lambda index: Access(made, (index[0] + first, *index[1:])), made)

    for first, a in parts:
        f.builder.store(part(first, a.shape[0]), a)
    return of_buffer(made).unnamed()


def _joined(f: Formulas, arrays: Sequence[Array], dtype: str) -> Array:
    if any(len(a.shape) != len(arrays[0].shape) or a.dtype != dtype for a in arrays):
        raise Outside("arrays of other axes or types are joined")
    for a in arrays[1:]:
        for n, m in zip(a.shape[1:], arrays[0].shape[1:], strict=True):
            f.builder.same(n, m, "shapes of arrays that are joined")
    total, parts = ZERO, []
    for a in arrays:
        parts.append((total, a))
        total = total + a.shape[0]
    return _filled(f, (total, *arrays[0].shape[1:]), parts, dtype)


def concatenate(f: Formulas, op: Op, dtype: str) -> Array:
    """np.concatenate, and np.hstack, which joins all but vectors along the second axis."""
    arrays = [f._value(a) for a in op.args]
    count = len(arrays[0].shape)
    axis = op.settings.get("axis", Const("0", 0))
    k = axis.value if isinstance(axis, Const) else None
    if op.rule == "np.hstack":
        k = int(count > 1)
    if set(op.settings) - {"axis"} or type(k) is not int or not -count <= k < count:
        raise Outside(f"{op.rule} along an axis that is not known")
    if not k % count:
        return _joined(f, arrays, dtype)
    found = _joined(f, [_moved(a, k % count, 0) for a in arrays], dtype)
    return _moved(found, 0, k % count)


def _moved(a: Array, source: int, to: int) -> Array:
    """The array with one axis at another place, as a view (np.moveaxis)."""
    order = [d for d in range(len(a.shape)) if d != source]
    order.insert(to, source)
    return permuted(a, order)


def permuted(a: Array, order: Sequence[int]) -> Array:
    """The array with axes in an order, as a view."""
    places = [order.index(d) for d in range(len(order))]
    shape = tuple(a.shape[d] for d in order)
    return remapped(a, shape, lambda index: tuple(index[p] for p in places))


def append(f: Formulas, op: Op, dtype: str) -> Array:
    """np.append of a vector and a vector or number."""
    if op.settings or len(op.args) != 2:
        raise Outside("np.append along an axis")
    a, b = map(f._value, op.args)
    if not b.shape:
        end = cast(b.number(), dtype)
        b = Array((ONE,), lambda _: end, dtype, None, b.reads)
    if len(a.shape) != 1 or len(b.shape) != 1:
        raise Outside("np.append of what are no vectors")
    return _joined(f, [a, b], dtype)


def stack(f: Formulas, op: Op, dtype: str) -> Array:
    """np.stack along a new first axis; np.vstack of vectors."""
    arrays = _arrays(f, op, len(op.args), 1 if op.rule == "np.vstack" else 0)

    def row(a: Array) -> Array:
        return Array((ONE, *a.shape), lambda index: a.at(index[1:]), a.dtype, None, a.reads)

    return _joined(f, list(map(row, arrays)), dtype)


def transposed(f: Formulas, op: Op, dtype: str) -> Array:
    """np.transpose: axes the other way round, or in an order that is written out."""
    a, order = f._value(op.args[0]), [f._whole(x) for x in op.args[1:]]
    count = len(a.shape)
    if not order:
        return permuted(a, range(count)[::-1])
    places = [n.const % count for n in order if not n.terms and -count <= n.const < count]
    if op.settings or sorted(places) != list(range(count)):
        raise Outside("np.transpose into an order of axes that is not known")
    return permuted(a, places)


def reshaped(f: Formulas, op: Op, dtype: str) -> Array:
    """np.reshape that adds and drops axes of length 1: others divide the places of elements."""
    a, shape = f._value(op.args[0]), [f._whole(x) for x in op.args[1:]]
    old, new = ([d for d, n in enumerate(x) if n != ONE] for x in (a.shape, shape))
    if op.settings or len(old) != len(new):
        raise Outside("np.reshape that does more than adding or dropping axes of length 1")
    for d, k in zip(old, new, strict=True):
        if shape[k] == affine(-1):
            shape[k] = a.shape[d]
        f.builder.same(a.shape[d], shape[k], "the shape that np.reshape gives")
    places = dict(zip(old, new, strict=True))
    axes = range(len(a.shape))
    return remapped(
        a,
        tuple(shape),
        lambda index: tuple(index[places[d]] if d in places else ZERO for d in axes),
    )


def triangle(f: Formulas, op: Op, dtype: str) -> Array:
    """np.triu and np.tril of a matrix."""
    a, k = f._value(op.args[0]), f._whole(op.args[1]) if len(op.args) > 1 else ZERO
    if op.settings or len(a.shape) != 2:
        raise Outside(f"{op.rule} of what is no matrix")
    zero, upper = const(0.0, dtype), op.rule == "np.triu"

    def at(index: Index) -> Expr:
        i, j = index
        above = node("greater_equal" if upper else "less_equal", number(j - i), number(k))
        return node("where", above, a.at(index), zero)

    return Array(a.shape, at, dtype, None, a.reads)


def roll(f: Formulas, op: Op, dtype: str) -> Array:
    """np.roll of a vector by at most its length."""
    if op.settings or len(op.args) != 2:
        raise Outside("np.roll along an axis")
    a, by = f._value(op.args[0]), f._whole(op.args[1])
    if len(a.shape) != 1:
        raise Outside("np.roll of what is no vector")
    (n,) = a.shape
    if f.builder.order.proves(by * -1 - 1, f.builder.path):
        by = by + n
    f.builder.claim(by, "how far np.roll goes")
    f.builder.claim(n - by, "how far np.roll goes")

    def part(first: Affine, extent: Affine) -> Array:
        return remapped(a, (extent,), lambda index: (index[0] + first,))

    return _filled(f, a.shape, [(by, part(ZERO, n - by)), (ZERO, part(n - by, by))], dtype)


def differences(f: Formulas, op: Op, dtype: str) -> Array:
    """np.diff of first order, along the last axis."""
    (a,) = _arrays(f, op, 1)
    *rest, n = a.shape
    f.builder.claim(n - 1, "the length of what np.diff takes")

    def part(first: int) -> Array:
        return remapped(a, (*rest, n - 1), lambda index: (*index[:-1], index[-1] + first))

    return f._applied("subtract", [part(1), part(0)], dtype)


# ---------------------------------------------------------------------------------------------- along an axis


def product(f: Formulas, op: Op, dtype: str) -> Array:
    """np.prod: its reverse has the product of all others where an element is 0, too."""
    (a,) = _arrays(f, op, 1)
    b = Access(f.builder.buffer("product", (), dtype))
    f.builder.emit((), Store(b, const(1.0, dtype)))
    _folded(f, a, b, "multiply", dtype)
    return of_buffer(b.buffer).unnamed()


def _folded(f: Formulas, a: Array, b: Access, word: str, dtype: str, index: Index = ()) -> None:
    """b = word(b, x) for each element x of an array."""
    if len(index) < len(a.shape):
        with f.builder.loop("i", ZERO, a.shape[len(index)], 1) as i:
            _folded(f, a, b, word, dtype, (*index, i))
    else:
        f.builder.emit((), Store(b, node(word, load(b), cast(a.at(index), dtype))))


def variance(f: Formulas, op: Op, dtype: str) -> Array:
    """np.var and np.std, of all elements."""
    (a,) = _arrays(f, op, 1)
    if a.dtype != dtype:
        raise Outside(f"{op.rule} into another dtype")
    if a.access is None:
        a = f.builder.kept(a, "t")
    axes = range(len(a.shape))
    apart = f._applied("subtract", [a, f._over("np.mean", a, axes, dtype)], dtype)
    found = f._over("np.mean", f._applied("square", [apart], dtype), axes, dtype)
    if op.rule == "np.var":
        return found
    one = const(1.0, dtype)

    def root(x: Expr) -> Expr:
        """At 0 the derivative is 0, as everywhere: not that of the square root."""
        known = node("greater", x, const(0.0, dtype))
        return node("where", known, node("sqrt", node("where", known, x, one)), x)

    return f.builder.elementwise(root, found, dtype=dtype)


SAFE = {"f8": (1e-280, 1e280), "f4": (1e-30, 1e30)}
"""Sums of squares whose root is a length: others have lost what is too small, or too large, to be squared."""


def norm(f: Formulas, op: Op, dtype: str) -> Array:
    """np.linalg.norm of all elements; of a vector also the sum, the largest and the least of their absolute values."""
    a = f._value(op.args[0])
    order = op.args[1] if len(op.args) > 1 else Const("None", None)
    others = op.settings or len(op.args) > 2 or not isinstance(order, Const)
    if others or a.dtype != dtype or not a.shape:
        raise Outside(f"{op.rule} with these settings")
    assert isinstance(order, Const)
    if order.value in ((None,) if a.shape[1:] else (None, 2)):
        return length(f, a)
    rule = {1: "np.sum", np.inf: "np.max", -np.inf: "np.min"}.get(order.value)
    if a.shape[1:] or rule is None:
        raise Outside(f"{op.rule} with these settings")
    return f._over(rule, f._applied("absolute", [a], dtype), [0], dtype)


def length(f: Formulas, a: Array) -> Array:
    """The root of the sum of squares of all elements, or hypot of one after another where squares are out of range."""
    dtype = a.dtype
    if a.access is None:
        a = f.builder.kept(a, "t")
    square = f._over("np.sum", f._applied("square", [a], dtype), range(len(a.shape)), dtype)
    low, high = (const(bound, dtype) for bound in SAFE[dtype])
    total, one = square.number(), const(1.0, dtype)
    safe = Access(f.builder.buffer("safe", (), B1))
    test = node("logical_and", node("greater", total, low), node("less", total, high))
    f.builder.emit((), Store(safe, test))
    b = Access(f.builder.buffer("norm", (), dtype))
    root = node("sqrt", node("where", load(safe), total, one))
    f.builder.emit((), Store(b, node("where", load(safe), root, const(0.0, dtype))))
    with f.builder.until("unsafe", node("logical_not", load(safe)), ONE) as (_, go):
        _folded(f, a, b, "hypot", dtype)
        go(const(0.0, B1))
    return of_buffer(b.buffer).unnamed()


def logical(f: Formulas, op: Op, dtype: str) -> Array:
    """np.logical_and and its kind, of truth values."""
    given = [f._value(a) for a in op.args]
    if op.settings or any(a.dtype != B1 for a in given):
        raise Outside(f"{op.rule} of what are no truth values")
    word = str(op.rule).removeprefix("np.")
    return f.builder.elementwise(lambda *xs: node(word, *xs), *given, dtype=B1)


Made = Callable[["Formulas", Op, str], Array]

ARRANGED: dict[str, Made] = {
    "np.array": written, "np.eye": eye, "np.identity": eye, "np.diag": diagonal, "np.trace": trace, "np.linspace": linspace,
    "np.arange": arange, "np.flip": flip, "np.flipud": flip, "np.fliplr": flip, "np.concatenate": concatenate,
    "np.hstack": concatenate, "np.append": append, "np.stack": stack, "np.vstack": stack, "np.roll": roll, "np.diff": differences,
    "np.transpose": transposed, ".T": transposed, "np.reshape": reshaped, "np.triu": triangle, "np.tril": triangle,
    "np.prod": product, "np.var": variance, "np.std": variance,
    "np.linalg.norm": norm, "np.logical_and": logical, "np.logical_or": logical, "np.logical_not": logical,
}  # fmt: skip
"""By rule; the last argument is the dtype of the result, empty where it is of whole numbers, which those of `OF_WHOLE` make."""

OF_WHOLE = frozenset(("np.array", "np.arange", "np.flip", "np.flipud", "np.fliplr"))

REDUCTIONS = frozenset(("np.sum", "np.mean", "np.max", "np.min", "np.amax", "np.amin"))

MAKERS = {"np.zeros": 0.0, "np.ones": 1.0, "np.empty": 0.0, "np.full": None}

__all__ = ["ARRANGED", "OF_WHOLE", "length"]
