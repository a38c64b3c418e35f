"""Steps of ops that go along lines: extrema, sums of exponentials, products, cumulative sums and products.

A line is what one element of a reduction comes from, or what a scan runs along. Extrema and sums of exponentials may take several
axes together and any layout; the others take one axis, or the flattened value, of dense memory, and scans change the cotangent in place.
Contract and answers are those of `steps.py`.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

import math

from .access import (
    ACCESS,
    REAL,
    STEP_SIGNATURE,
    by_kind,
    entry_point,
    get,
    load_i64,
    native,
    put,
    raw_calloc,
    raw_free,
    raw_malloc,
    store_i64,
)
from .adjoints import begin, cell_of
from .layout import *  # noqa: F403
from .steps import (
    axis_in,
    hand_on,
    kind_of_both,
    left,
    nowhere,
    plan_sum,
    record_of,
    setting,
    sole,
    used_up,
)
from .values import bump, size_of


@native
def lines_of(world, record, axis, form):
    """Lines along an axis (an object; None for all as one): into `form` how many there are, their length, and the elements
    between neighbours of a line; False for another kind of axis."""
    put(form, 0, 1)
    put(form, 1, get(record, V_SIZE))
    put(form, 2, 1)
    if axis == get(world, W_NONE):
        return True
    a = axis_in(world, axis, get(record, V_NDIM))
    if a < 0:
        return False
    inner = 1
    for d in range(a + 1, get(record, V_NDIM)):
        inner *= get(get(record, V_SHAPE), d)
    n = get(get(record, V_SHAPE), a)
    put(form, 0, get(record, V_SIZE) // n if n > 0 else 0)
    put(form, 1, n)
    put(form, 2, inner)
    return True


# ------------------------------------------------------------------------------------------------ extrema


def _extreme(kind):
    """The innermost loops for one kind; strides are in bytes, and those of the counts double for float32."""
    load, store, _, _, size = ACCESS[kind]
    wider = 8 // size

    @native
    def count(n, x, x_stride, out, out_stride, counts, stride):
        """Per element of the result, how many of x attain it; where it is NaN, how many are NaN."""
        for i in range(n):
            v = load(x + i * x_stride)
            if v == load(out + i * out_stride) or v != v:
                at = counts + wider * i * stride
                store_i64(at, load_i64(at) + 1)

    @native
    def share(n, x, x_stride, out, out_stride, g, counts, stride, adjoint, add):
        for i in range(n):
            v = load(x + i * x_stride)
            part = 0.0
            if v == load(out + i * out_stride) or v != v:
                part = load(g + i * stride) / load_i64(counts + wider * i * stride)
            at = adjoint + i * size
            store(at, load(at) + part if add else part)

    @native
    def weigh(n, x, x_stride, out, out_stride, g, stride, adjoint, add):
        """An element's part of a sum of exponentials is its derivative of the logarithm."""
        for i in range(n):
            total = load(out + i * out_stride)
            shift = total if total != -math.inf else 0.0
            part = load(g + i * stride) * math.exp(load(x + i * x_stride) - shift)
            at = adjoint + i * size
            store(at, load(at) + part if add else part)

    return count, share, weigh


_count, _share, _weigh = by_kind(_extreme, REAL)


@native
def plan_lines(world, scratch, entry, x, out, size):
    """`plan_sum`, and the strides of the result, which may lie in another order than its cotangent, which is dense."""
    rank = plan_sum(world, scratch, entry, x, out, size)
    own = 0
    for d in range(rank):
        put(scratch, S_STRIDES + VOUT * MAX_RANK + d, 0)
        kept = get(scratch, S_STRIDES + G * MAX_RANK + d) != 0
        if kept:
            put(scratch, S_STRIDES + VOUT * MAX_RANK + d, get(get(out, V_STRIDES), own))
        if kept or get(out, V_NDIM) == rank:
            own += 1
    return rank


@entry_point(STEP_SIGNATURE)
def by_extreme(frame, world, scratch, k, entry, ops, g):
    """max and min: the elements that attain the value share its cotangent equally."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    to = sole(frame, world, scratch, k, entry)
    kind = kind_of_both(scratch)
    if kind > FLOAT32:
        return STOP
    if nowhere(to):
        return left(world, to, g)
    size = size_of(kind)
    rank = plan_lines(world, scratch, entry, x, out, size)
    if rank < 0:
        return STOP
    counts = raw_calloc(max(get(out, V_SIZE), 1), 8)
    add = get(cell_of(frame, to), 0) != 0
    adjoint = 0
    if counts != 0:
        adjoint = begin(frame, world, to, x, size, False)
    if adjoint == 0:
        raw_free(counts)
        return NO_MEMORY
    for sharing in range(2):
        over_lines(scratch, x, out, rank, kind, g, counts, adjoint if sharing else 0, add)
    raw_free(counts)
    return used_up(world, g)


WEIGHED_UP_TO = 4096
"""Elements from which NumPy's exponentials, several at a time, make up for the stop."""


def _small(kind):
    load, _, _, _, size = ACCESS[kind]

    @native
    def small(n, at):
        """Whether n numbers are below 16 in size."""
        for i in range(n):
            if not abs(load(at + i * size)) < 16:
                return False
        return True

    return small


_are_small = by_kind(_small, REAL)


@entry_point(STEP_SIGNATURE)
def by_exponentials(frame, world, scratch, k, entry, ops, g):
    """logsumexp: an element's share is its part of the sum, exp(x - out), as long as the rounding of out is a few ulps."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    to = sole(frame, world, scratch, k, entry)
    kind = kind_of_both(scratch)
    if kind > FLOAT32 or get(x, V_SIZE) > WEIGHED_UP_TO or not get(out, V_CONTIGUOUS):
        return STOP
    if not _are_small(kind, get(out, V_SIZE), get(out, V_DATA)):
        return STOP
    if nowhere(to):
        return left(world, to, g)
    rank = plan_lines(world, scratch, entry, x, out, size_of(kind))
    if rank < 0:
        return STOP
    add = get(cell_of(frame, to), 0) != 0
    adjoint = begin(frame, world, to, x, size_of(kind), False)
    if adjoint == 0:
        return NO_MEMORY
    over_lines(scratch, x, out, rank, kind, g, 0, adjoint, add)
    return used_up(world, g)


@native
def over_lines(scratch, x, out, rank, kind, g, counts, adjoint, add):
    """One pass over x, row by row: without an adjoint it counts, else it gives out shares, by weight if nothing was counted."""
    if get(x, V_SIZE) == 0:
        return
    axis = rank - 1
    n, x_stride, out_stride, stride = 1, 0, 0, 0
    if rank > 0:
        n = get(scratch, S_EXTENTS + axis)
        x_stride = get(get(x, V_STRIDES), axis)
        out_stride = get(scratch, S_STRIDES + VOUT * MAX_RANK + axis)
        stride = get(scratch, S_STRIDES + G * MAX_RANK + axis)
    wider = 8 // size_of(kind)
    for d in range(axis):
        put(scratch, S_COUNTERS + d, 0)
    at, value, offset, row = get(x, V_DATA), get(out, V_DATA), 0, adjoint
    while True:
        tally = counts + wider * offset
        if counts == 0:
            _weigh(kind, n, at, x_stride, value, out_stride, g + offset, stride, row, add)
        elif adjoint == 0:
            _count(kind, n, at, x_stride, value, out_stride, tally, stride)
        else:
            _share(kind, n, at, x_stride, value, out_stride, g + offset, tally, stride, row, add)
        row += n * size_of(kind)
        d = axis - 1
        while d >= 0:
            bump(scratch, S_COUNTERS + d, 1)
            extent = get(scratch, S_EXTENTS + d)
            at += get(get(x, V_STRIDES), d)
            value += get(scratch, S_STRIDES + VOUT * MAX_RANK + d)
            offset += get(scratch, S_STRIDES + G * MAX_RANK + d)
            if get(scratch, S_COUNTERS + d) < extent:
                break
            put(scratch, S_COUNTERS + d, 0)
            at -= extent * get(get(x, V_STRIDES), d)
            value -= extent * get(scratch, S_STRIDES + VOUT * MAX_RANK + d)
            offset -= extent * get(scratch, S_STRIDES + G * MAX_RANK + d)
            d -= 1
        if d < 0:
            return


# ------------------------------------------------------------------------------------------- sums so far


def _summed_up(kind):
    _, _, item, put_item, _ = ACCESS[kind]

    @native
    def back(lines, n, inner, g):
        """Along each line, in place: the sum from an element to the end."""
        for line in range(lines // inner if inner > 0 else 0):
            first = line * n * inner
            for i in range(n - 2, -1, -1):
                at = first + i * inner
                for j in range(inner):
                    put_item(g, at + j, item(g, at + j) + item(g, at + inner + j))

    return back


_sum_up = by_kind(_summed_up)


@entry_point(STEP_SIGNATURE)
def by_running_sum(frame, world, scratch, k, entry, ops, g):
    """cumsum: an element's share is the sum of the cotangents from it on."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    to = sole(frame, world, scratch, k, entry)
    kind = kind_of_both(scratch)
    if kind > COMPLEX128:
        return STOP
    if nowhere(to):
        return left(world, to, g)
    form = scratch + 8 * S_AXES
    if get(x, V_SIZE) != get(out, V_SIZE) or not lines_of(world, x, setting(entry, 0), form):
        return STOP
    _sum_up(kind, get(form, 0), get(form, 1), get(form, 2), g)
    return hand_on(frame, world, to, x, kind, g)


# ---------------------------------------------------------------------------------------------- products


def _multiplied(kind):
    _, _, item, put_item, _ = ACCESS[kind]

    @native
    def others(lines, n, inner, x, g, before, adjoint, add):
        """adjoint (+)= g * product of the line's other elements; `before` has room for a line."""
        for line in range(lines):
            first = line // inner * n * inner + line % inner
            product = 1.0
            for i in range(n):
                put_item(before, i, product)
                product *= item(x, first + i * inner)
            product = 1.0
            for i in range(n - 1, -1, -1):
                at = first + i * inner
                part = item(g, line) * (item(before, i) * product)
                put_item(adjoint, at, item(adjoint, at) + part if add else part)
                product *= item(x, at)

    @native
    def so_far(lines, n, inner, x, g):
        """In place: (product of those before) * r, where r = g + (next of x) * (next of r)."""
        for line in range(lines):
            first = line // inner * n * inner + line % inner
            for i in range(n - 2, -1, -1):
                at = first + i * inner
                put_item(g, at, item(g, at) + item(x, at + inner) * item(g, at + inner))
            product = 1.0
            for i in range(n):
                at = first + i * inner
                put_item(g, at, product * item(g, at))
                product *= item(x, at)

    return others, so_far


_others, _so_far = by_kind(_multiplied, REAL)


@entry_point(STEP_SIGNATURE)
def by_others(frame, world, scratch, k, entry, ops, g):
    """prod and cumprod of dense memory: products of the other elements, and nothing divided by."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    to = sole(frame, world, scratch, k, entry)
    kind = kind_of_both(scratch)
    if kind > FLOAT32:
        return STOP
    if nowhere(to):
        return left(world, to, g)
    form = scratch + 8 * S_AXES
    if not get(x, V_CONTIGUOUS) or not lines_of(world, x, setting(entry, 0), form):
        return STOP
    lines, n, inner = get(form, 0), get(form, 1), get(form, 2)
    if get(ops, OP_STEP) == BY_RUNNING_PRODUCT:
        if get(x, V_SIZE) != get(out, V_SIZE):
            return STOP
        _so_far(kind, lines, n, inner, get(x, V_DATA), g)
        return hand_on(frame, world, to, x, kind, g)
    if lines != get(out, V_SIZE):
        return STOP
    size = size_of(kind)
    add = get(cell_of(frame, to), 0) != 0
    before = raw_malloc(max(n * size, 1))
    adjoint = 0
    if before != 0:
        adjoint = begin(frame, world, to, x, size, False)
    if adjoint == 0:
        raw_free(before)
        return NO_MEMORY
    _others(kind, lines, n, inner, get(x, V_DATA), g, before, adjoint, add)
    raw_free(before)
    return used_up(world, g)
