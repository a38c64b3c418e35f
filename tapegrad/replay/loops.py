"""Loops over strided memory, rank by rank, down to dense blocks that kernels can take.

Six streams take part in a step: the cotangent g, the values x, y, z and out, and the adjoint that is written. `loop`
merges the axes that all streams run through alike, turns the outer ones like an odometer and hands the
innermost to `row`. Kernels see dense memory only: a stream that is strided, broadcast or of another kind is
gathered into a block of 256 elements first, and an adjoint of stride 0, which *is* the sum over a broadcast axis,
gets the pairwise sum of its blocks.

Data: pointers and strides per stream in the scratch memory (layout.py). A constant partial needs no kernel: `scaled`.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    ACCESS,
    GATHER_SIGNATURE,
    LOOP_SIGNATURE,
    SCALED_SIGNATURE,
    by_kind,
    call_gather,
    call_kernel,
    call_loop,
    call_scaled,
    entry_point,
    get,
    item_f32,
    item_f64,
    load_c128,
    load_f32,
    load_f64,
    load_u8,
    native,
    put,
    store_c128,
    store_f32,
    store_f64,
    summing,
)
from .layout import *  # noqa: F403
from .values import bump, size_of


def _typed(kind):
    """The innermost loops for one kind."""
    load, store, item, put_item, size = ACCESS[kind]

    @native
    def scaled(n, add, c, g, g_stride, adjoint, stride):
        """adjoint (+)= c * g."""
        if g_stride == size and stride == size:
            if add:
                if c == 1.0:
                    for i in range(n):
                        put_item(adjoint, i, item(adjoint, i) + item(g, i))
                else:
                    for i in range(n):
                        put_item(adjoint, i, item(adjoint, i) + item(g, i) * c)
            elif g == adjoint:
                if c != 1.0:
                    for i in range(n):
                        put_item(adjoint, i, item(adjoint, i) * c)
            elif c == 1.0:
                for i in range(n):
                    put_item(adjoint, i, item(g, i))
            else:
                for i in range(n):
                    put_item(adjoint, i, item(g, i) * c)
        elif g_stride == 0 and stride == size:
            value = load(g) * c
            if add:
                for i in range(n):
                    put_item(adjoint, i, item(adjoint, i) + value)
            else:
                for i in range(n):
                    put_item(adjoint, i, value)
        elif add:
            for i in range(n):
                store(adjoint + i * stride, load(adjoint + i * stride) + load(g + i * g_stride) * c)
        else:
            for i in range(n):
                store(adjoint + i * stride, load(g + i * g_stride) * c)

    @native
    def gather(n, source, stride, block):
        if stride == 0:
            value = load(source)
            for i in range(n):
                put_item(block, i, value)
        else:
            for i in range(n):
                put_item(block, i, load(source + i * stride))

    @native
    def gather_bools(n, source, stride, block):
        for i in range(n):
            put_item(block, i, 1.0 if load_u8(source + i * stride) else 0.0)

    return scaled, gather, gather_bools


_scaled, _gather, _gather_bools = by_kind(_typed)


def _total(kind):
    """The sum of real numbers, which of complex ones lie at every other place."""
    item, step = (item_f32, 1) if kind == FLOAT32 else (item_f64, 2 if kind == COMPLEX128 else 1)

    @summing
    def total(n, p):
        s = 0.0
        for i in range(n):
            s += item(p, step * i)
        return s

    return total


_sum = by_kind(_total)


@entry_point(SCALED_SIGNATURE)
def scaled_part(kind, n, add, c, g, g_stride, adjoint, stride):
    _scaled(kind, n, add, c, g, g_stride, adjoint, stride)


@native
def scaled(world, kind, n, add, c, g, g_stride, adjoint, stride):
    """adjoint (+)= c * g, n elements."""
    call_scaled(get(world, W_SCALED), kind, n, add, c, g, g_stride, adjoint, stride)


@entry_point(GATHER_SIGNATURE)
def gather_part(kind, own, n, source, stride, block):
    if own == BOOL:
        _gather_bools(kind, n, source, stride, block)
    else:
        _gather(kind, n, source, stride, block)


@native
def gather(world, kind, own, n, source, stride, block):
    """Copy n elements of a stream into a block, converting bools to the program's kind."""
    call_gather(get(world, W_GATHER), kind, own, n, source, stride, block)


# ----------------------------------------------------------------------------------------- rows of streams


@native
def stride_at(scratch, stream, axis):
    return scratch + 8 * (S_STRIDES + stream * MAX_RANK + axis)


@native
def block_of(scratch, stream):
    return scratch + 8 * (S_BLOCKS + stream * 2 * BLOCK)


@native
def feed(world, scratch, stream, axis, kind, first, n, filled):
    """Address of n dense elements of a stream, starting at the `first` of its row."""
    stride = load_stride(scratch, stream, axis)
    source = get(scratch, S_POINTERS + stream)
    if source == 0:
        return 0
    own = get(scratch + 8 * (S_VALUES + stream * VALUE), V_KIND) if stream != G else kind
    if own == kind and (stride == size_of(kind) or n == 1):
        return source + first * stride
    block = block_of(scratch, stream)
    # A broadcast value fills its block once; the last, shorter block needs no more than what is there.
    if stride != 0 or not filled:
        gather(world, kind, own, n, source + first * stride, stride, block)
    return block


@native
def load_stride(scratch, stream, axis):
    return get(scratch, S_STRIDES + stream * MAX_RANK + axis)


@native
def add_to_sums(scratch, count, re, im):
    """Pairwise summation: the sums of blocks meet like carries of a binary counter, `count` counting blocks."""
    level = 0
    while (count >> level) & 1 == 0:
        re += load_f64(scratch + 8 * (S_SUMS + 2 * level))
        im += load_f64(scratch + 8 * (S_SUMS + 2 * level + 1))
        level += 1
    store_f64(scratch + 8 * (S_SUMS + 2 * level), re)
    store_f64(scratch + 8 * (S_SUMS + 2 * level + 1), im)


@native
def add_total(scratch, count, kind, c, adjoint):
    """adjoint += c * (sum of all blocks)."""
    re = 0.0
    im = 0.0
    level = 0
    while (1 << level) <= count:
        if (count >> level) & 1:
            re += load_f64(scratch + 8 * (S_SUMS + 2 * level))
            im += load_f64(scratch + 8 * (S_SUMS + 2 * level + 1))
        level += 1
    if kind == FLOAT64:
        store_f64(adjoint, load_f64(adjoint) + re * c)
    elif kind == FLOAT32:
        store_f32(adjoint, load_f32(adjoint) + re * c)
    else:
        store_c128(adjoint, load_c128(adjoint) + complex(re * c, im * c))


@native
def row(world, scratch, axis, n, kind, kernel, c, add):
    """One pass along the innermost axis: adjoint (+)= g * partial, or c * g where `kernel` is CONSTANT."""
    size = size_of(kind)
    adjoint = get(scratch, S_POINTERS + ADJ)
    stride = load_stride(scratch, ADJ, axis)
    if kernel == CONSTANT and (stride != 0 or n == 1):
        g_stride = load_stride(scratch, G, axis)
        scaled(world, kind, n, add, c, get(scratch, S_POINTERS + G), g_stride, adjoint, stride)
        return
    summed = stride == 0 and n > 1
    scattered = stride != size and n > 1
    count = 0
    first = 0
    # Without anything to gather or to sum, the whole row is one block.
    step = n if dense(scratch, axis, kind, n) else BLOCK
    while first < n:
        m = min(step, n - first)
        filled = first > 0
        g = feed(world, scratch, G, axis, kind, first, m, filled)
        if kernel == CONSTANT:
            target = g
        else:
            x = feed(world, scratch, VX, axis, kind, first, m, filled)
            y = feed(world, scratch, VY, axis, kind, first, m, filled)
            z = feed(world, scratch, VZ, axis, kind, first, m, filled)
            out = feed(world, scratch, VOUT, axis, kind, first, m, filled)
            if scattered:
                target = block_of(scratch, ADJ)
                call_kernel(kernel, m, 0, g, x, y, z, out, target)
            else:
                target = adjoint + first * size
                call_kernel(kernel, m, add, g, x, y, z, out, target)
        if summed:
            count += 1
            im = _sum(kind, m, target + 8) if kind == COMPLEX128 else 0.0
            add_to_sums(scratch, count, _sum(kind, m, target), im)
        elif scattered:
            scaled(world, kind, m, add, 1.0, target, size, adjoint + first * stride, stride)
        first += m
    if summed:
        add_total(scratch, count, kind, c if kernel == CONSTANT else 1.0, adjoint)


@native
def dense(scratch, axis, kind, n):
    """Whether a kernel can take a row as it lies."""
    if n == 1:
        return True
    size = size_of(kind)
    for stream in range(STREAMS):
        if get(scratch, S_POINTERS + stream) != 0:
            if load_stride(scratch, stream, axis) != size:
                return False
            if (
                stream != G
                and stream != ADJ
                and get(scratch + 8 * (S_VALUES + stream * VALUE), V_KIND) != kind
            ):
                return False
    return True


# -------------------------------------------------------------------------------------------------- nests


@native
def set_like(scratch, stream, record, rank):
    """Run a stream through a value, broadcast to the loop's `rank` axes."""
    ndim = get(record, V_NDIM)
    shape = get(record, V_SHAPE)
    strides = get(record, V_STRIDES)
    base = S_STRIDES + stream * MAX_RANK
    for d in range(rank):
        own = d - (rank - ndim)
        stride = 0
        if own >= 0 and get(shape, own) != 1:
            stride = get(strides, own)
        put(scratch, base + d, stride)
    put(scratch, S_POINTERS + stream, get(record, V_DATA))


@native
def set_dense(scratch, stream, address, record, rank, size):
    """Run a stream through dense memory of a value's shape, broadcast to the loop's `rank` axes."""
    ndim = get(record, V_NDIM)
    shape = get(record, V_SHAPE)
    base = S_STRIDES + stream * MAX_RANK
    stride = size
    for d in range(rank - 1, -1, -1):
        own = d - (rank - ndim)
        if own < 0 or get(shape, own) == 1:
            put(scratch, base + d, 0)
        else:
            put(scratch, base + d, stride)
            stride *= get(shape, own)
    put(scratch, S_POINTERS + stream, address)


@native
def set_nothing(scratch, rank):
    """The streams x, y, z and out read nothing."""
    for stream in range(VX, VOUT + 1):
        put(scratch, S_POINTERS + stream, 0)
        for d in range(rank):
            put(scratch, S_STRIDES + stream * MAX_RANK + d, 0)


@native
def merge_axes(scratch, rank):
    """Drop axes of extent 1 and merge neighbours that every stream runs through as one; returns the new rank."""
    kept = 0
    for d in range(rank):
        extent = get(scratch, S_EXTENTS + d)
        if extent == 1:
            continue
        merged = kept > 0
        if merged:
            for stream in range(STREAMS):
                if (
                    load_stride(scratch, stream, kept - 1)
                    != load_stride(scratch, stream, d) * extent
                ):
                    merged = False
                    break
        to = kept - 1 if merged else kept
        put(scratch, S_EXTENTS + to, get(scratch, S_EXTENTS + to) * extent if merged else extent)
        for stream in range(STREAMS):
            put(scratch, S_STRIDES + stream * MAX_RANK + to, load_stride(scratch, stream, d))
        if not merged:
            kept += 1
    return kept


@native
def loop(world, scratch, rank, kind, kernel, c, add):
    """adjoint (+)= g * partial(x, y, z, out) over the extents, each stream with its own strides."""
    call_loop(get(world, W_LOOP), world, scratch, rank, kind, kernel, c, add)


@entry_point(LOOP_SIGNATURE)
def loop_part(world, scratch, rank, kind, kernel, c, add):
    for d in range(rank):
        if get(scratch, S_EXTENTS + d) == 0:
            return
    rank = merge_axes(scratch, rank)
    if rank == 0:
        rank = 1
        put(scratch, S_EXTENTS, 1)
    axis = rank - 1
    n = get(scratch, S_EXTENTS + axis)
    for d in range(axis):
        put(scratch, S_COUNTERS + d, 0)
    while True:
        row(world, scratch, axis, n, kind, kernel, c, add)
        d = axis - 1
        while d >= 0:
            bump(scratch, S_COUNTERS + d, 1)
            extent = get(scratch, S_EXTENTS + d)
            for stream in range(STREAMS):
                if get(scratch, S_POINTERS + stream) != 0:
                    bump(scratch, S_POINTERS + stream, load_stride(scratch, stream, d))
            if get(scratch, S_COUNTERS + d) < extent:
                break
            put(scratch, S_COUNTERS + d, 0)
            for stream in range(STREAMS):
                if get(scratch, S_POINTERS + stream) != 0:
                    bump(scratch, S_POINTERS + stream, -extent * load_stride(scratch, stream, d))
            d -= 1
        if d < 0:
            return
