"""Which entries of a Jacobian can differ from 0: index sets carried up a tape, entry by entry of it.

Each element of a recorded value has the set of those input elements that it may depend on: a row of a boolean matrix. An entry's sets
are unions of its operands' sets. Elementwise ops unite what stands at one place; ops that only move elements are run on the elements'
numbers; sums, and ops along an axis, unite along that axis; products unite by the nonzeros of a constant factor. Of any other op each
result is taken to depend on each operand. (Walther 2008, Computing sparse Hessians with automatic differentiation.)

Invariant: sets are too large at most, whatever the values: a slope that happens to be 0 counts, the branch that `where` did not take too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.primitive import OPS, Primitive
from ..core.tape import IN0, IN1, KW, OP, OUT, SLOT, STRIDE, X, Y
from ..errors import NotDifferentiable

Sets = Any
"""SciPy's csr_array of truth values: a row for each element of a value, a column for each element of the input."""

LARGEST = 5 * 10**7
"""Places of the sets of a value beyond which they are called dense."""


def sets_of(
    code: list[Any], start: int, stop: int, node: Any, size: int, result: Any, count: int
) -> Sets:
    """For the `count` elements of the value at `result`, those of the `size` elements of the input at `node` that each may depend on.

    `code[start:stop]` (in entries) is the tape between. Raises NotDifferentiable where an op without a rule here would make sets dense.
    """
    from scipy.sparse import csr_array, eye_array

    known: dict[Any, Sets] = {node: eye_array(size, dtype=bool, format="csr")}
    unions: dict[tuple[int, int], tuple[Sets, Sets, Sets]] = {}

    def united(a: Sets | None, b: Sets) -> Sets:
        if a is None or a is b:
            return b
        key = (id(a), id(b))
        if key not in unions:
            unions[key] = a, b, a + b  # which keeps both alive, and so their identities
        return unions[key][2]

    for k in range(start * STRIDE, stop * STRIDE, STRIDE):
        in0, in1, x, y = code[k + IN0], code[k + IN1], code[k + X], code[k + Y]
        nodes, values = (in0, x) if type(in0) is tuple else ((in0, in1), (x, y))
        if any(n in known for n in nodes if n is not None):
            sets = [None if n is None else known.get(n) for n in nodes]
            op = OPS[code[k + OP]]
            known[code[k + SLOT]] = _sets(
                op, sets, values, code[k + OUT], code[k + KW], size, united
            )
    found = known.get(result)
    return csr_array((count, size), dtype=bool) if found is None else found


def _sets(
    op: Primitive,
    sets: list[Any],
    values: Any,
    out: Any,
    kw: Any,
    size: int,
    united: Callable[..., Sets],
) -> Sets:
    """The sets of an entry's result."""
    shapes = [np.shape(v) for v in values]
    shape = np.shape(out)
    total = None
    if op.elementwise or (op.pattern == "same" and shapes[0] == shape):
        partials = op.partials if op.elementwise else ()
        for i, (s, of) in enumerate(zip(sets, shapes, strict=True)):
            if s is None or (
                i < len(partials) and partials[i].of is None and partials[i].value == 0
            ):
                continue
            total = united(total, s if of == shape else s[_spread(of, shape)])
        return _none(shape, size) if total is None else total
    settings = dict(zip(op.settings, kw or (), strict=True))
    if op.pattern == "moves":
        moved = _moved(op, sets, shapes, kw, size)
        if moved is not None:
            return moved
    maps = None
    if op.name == "scatter":
        maps = [
            _adding(np.arange(math.prod(shape)).reshape(shape)[settings["index"]], shapes[0], shape)
        ]
    elif op.pattern == "along":
        maps = [_along(shapes[0], shape, settings.get("axis"))]
    elif op.name in ("matmul", "dot"):
        maps = [_factor(i, sets, values, shapes) for i in range(2)]
    elif op.name in ("sparse_product", "sparse_sampled"):
        maps = _of_sparse(op.name, shapes, settings)
    if maps is not None and all(
        m is not None for m, s in zip(maps, sets, strict=False) if s is not None
    ):
        for m, s in zip(maps, sets, strict=False):
            if s is not None:
                if np.diff(s.indptr)[m.indices].sum() > LARGEST:
                    raise _too_many(op, math.prod(shape), size)
                total = united(total, m @ s)
        return total
    return _dense(op, [s for s in sets if s is not None], math.prod(shape))


def _none(shape: tuple[int, ...], size: int) -> Sets:
    from scipy.sparse import csr_array

    return csr_array((math.prod(shape), size), dtype=bool)


def _spread(shape: tuple[int, ...], to: tuple[int, ...]) -> np.ndarray:
    """For each element of a broadcast array, the number of the element that it shows."""
    return np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), to).ravel()


def _moved(op: Primitive, sets: list[Any], shapes: list[Any], kw: Any, size: int) -> Sets | None:
    """The sets of what an op moves; None where it makes something else of numbers than their places."""
    from scipy.sparse import csr_array, vstack

    sizes = [math.prod(s) for s in shapes]
    count = len(shapes) if op.variadic else op.arity
    starts = np.cumsum([0, *sizes[:count]])
    numbers = [
        a + np.arange(n).reshape(s) for a, n, s in zip(starts, sizes[:count], shapes, strict=False)
    ]
    try:
        places = np.asarray(op.evaluate(numbers, kw))
    except (TypeError, ValueError):
        return None
    if places.dtype.kind != "i":
        return None
    all_sets = [
        csr_array((n, size), dtype=bool) if s is None else s
        for s, n in zip(sets, sizes[:count], strict=False)
    ]
    whole = all_sets[0] if count == 1 else vstack(all_sets, format="csr")
    places = places.ravel()
    if len(places) == whole.shape[0] and np.array_equal(places, np.arange(len(places))):
        return whole
    return whole[places]


def _ones(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows), bool), (rows, columns)), shape=shape)


def _adding(targets: np.ndarray, of: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The map of elements to the places they are added at."""
    n = math.prod(of)
    targets = np.broadcast_to(targets, of) if np.shape(targets) != of else targets
    return _ones(targets.ravel(), np.arange(n), (math.prod(shape), n))


def _along(of: tuple[int, ...], shape: tuple[int, ...], axis: Any) -> Any:
    """The map of elements to the results along an axis: each to all of its line (or plane)."""
    ndim = len(of)
    axes = range(ndim) if axis is None else [axis] if isinstance(axis, int | np.integer) else axis
    axes = {int(a) % ndim for a in axes} if ndim else set()
    kept = tuple(1 if a in axes else n for a, n in enumerate(of))
    lines = math.prod(kept)
    ids = np.arange(lines).reshape(kept)
    together = _ones(
        np.broadcast_to(ids, of).ravel(), np.arange(math.prod(of)), (lines, math.prod(of))
    )
    if math.prod(shape) == lines and shape in (
        kept,
        tuple(n for a, n in enumerate(of) if a not in axes),
    ):
        return together
    if len(shape) == ndim and all(a in axes or shape[a] == of[a] for a in range(ndim)):
        if math.prod(shape) * math.prod(of) > LARGEST * lines:
            return None
        return together[np.broadcast_to(ids, shape).ravel()]
    return None


def _factor(i: int, sets: list[Any], values: Any, shapes: list[Any]) -> Any:
    """The map of the elements of one factor to those of a product of vectors and matrices, by the nonzeros of a constant one."""
    from scipy.sparse import csr_array, eye_array, kron

    if sets[i] is None:
        return None
    if any(len(s) not in (1, 2) for s in shapes):
        return None
    (a, b) = (s if len(s) == 2 else (1, *s) if j == 0 else (*s, 1) for j, s in enumerate(shapes))
    other = (
        np.ones((b, a)[i], bool)
        if sets[1 - i] is not None
        else np.reshape(values[1 - i] != 0, (b, a)[i])
    )
    if i == 0:  # out[r, c] = sum x[r, l] y[l, c]
        return kron(eye_array(a[0], dtype=bool), csr_array(other.T), format="csr")
    return kron(csr_array(other), eye_array(b[1], dtype=bool), format="csr")


def _of_sparse(name: str, shapes: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The maps of the operands of a sparse product, or of a sampled one."""
    from scipy.sparse import eye_array, kron

    pattern = settings["pattern"]
    numbers = np.arange(pattern.nnz)
    ends = [pattern.rows, pattern.columns]
    columns = 1 if len(shapes[1]) == 1 else shapes[1][1]

    def of_columns(m: Any, flipped: bool = False) -> Any:
        """The same for each column of vectors; the other side has no columns."""
        if columns == 1:
            return m
        ones = np.ones((1, columns) if not flipped else (columns, 1), bool)
        return kron(m, ones, format="csr")

    if name == "sparse_sampled":
        return [
            of_columns(_ones(numbers, end, (pattern.nnz, n)))
            for end, n in zip(ends, pattern.shape, strict=True)
        ]
    to, come = ends[::-1] if settings["transposed"] else ends
    m, n = pattern.shape[::-1] if settings["transposed"] else pattern.shape
    by_vectors = _ones(to, come, (m, n))
    if columns != 1:
        by_vectors = kron(by_vectors, eye_array(columns, dtype=bool), format="csr")
    return [of_columns(_ones(to, numbers, (m, pattern.nnz)), True), by_vectors]


def _too_many(op: Primitive, count: int, unknowns: int) -> NotDifferentiable:
    return NotDifferentiable(
        f"the sparsity of a Jacobian was to be detected, but f uses {op.name}, whose {count} results may depend on so many of {unknowns} "
        "unknowns that the Jacobian is dense, for all that is known here. Give the pattern: sparsity=a sparse matrix with an entry at each "
        "place.",
        name="wrong-pattern",
    )


def _dense(op: Primitive, sets: list[Any], count: int) -> Sets:
    """Each result depends on all that any operand depends on."""
    from scipy.sparse import csr_array

    reached = np.unique(np.concatenate([s.indices for s in sets]))
    if count * len(reached) > LARGEST:
        raise _too_many(op, count, len(reached))
    indptr = len(reached) * np.arange(count + 1)
    return csr_array(
        (np.ones(count * len(reached), bool), np.tile(reached, count), indptr),
        shape=(count, sets[0].shape[1]),
    )


__all__ = ["sets_of"]
