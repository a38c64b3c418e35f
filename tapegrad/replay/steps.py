"""Steps: how the machine goes back through one entry, for elementwise ops and for the structural ones.

Each step has the cotangent g of its entry, a dense buffer, and adds to the adjoints of the entry's operands. It
answers DONE, or STOP where it does not cover the case (a dtype, a layout, an index) and Python shall do the entry,
or MISSING where a kernel must be loaded first, or NO_MEMORY. On DONE, g is used up: given to an operand or freed.

This is the one place where a derivative stands twice (the other is the rule in `ops/`); the tests compare.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    ACCESS,
    REAL,
    SOLE_SIGNATURE,
    STEP_SIGNATURE,
    by_kind,
    call_gemm,
    call_kernel,
    call_sole,
    call_step,
    entry_point,
    get,
    item_f64,
    load_f64,
    load_i64,
    load_u8,
    memset,
    native,
    put,
    put_f64,
    raw_calloc,
    raw_free,
    store_f32,
    store_f64,
    store_i32,
    store_u8,
    summing,
)
from .adjoints import begin, cell_of, destination, fits, release, settle
from .layout import *  # noqa: F403
from .loops import loop, scaled, set_dense, set_like, set_nothing
from .values import as_constant, describe, int_value, is_small_int, size_of, type_of


@native
def record_of(scratch, stream):
    return scratch + 8 * (S_VALUES + stream * VALUE)


@native
def tuple_size(address):
    return load_i64(address + TUPLE_SIZE)


@native
def tuple_item(address, i):
    return load_i64(address + TUPLE_ITEMS + 8 * i)


@native
def setting(entry, i):
    return tuple_item(load_i64(entry + AT_KW), i)


@native
def used_up(world, g):
    """Free a cotangent that nobody takes over."""
    release(world, g)
    return DONE


@entry_point(SOLE_SIGNATURE)
def sole_part(frame, world, scratch, k, entry):
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    describe(world, load_i64(entry + AT_X), x)
    describe(world, load_i64(entry + AT_OUT), out)
    to = destination(frame, world, k, load_i64(entry + AT_IN0), 0)
    if to != REFUSED and to != NOWHERE and not fits(frame, world, scratch, to, x):
        return UNFIT
    return to


@native
def sole(frame, world, scratch, k, entry):
    """Describes x and the result of an entry, and says where the share of x, its only operand, goes; see `nowhere`."""
    return call_sole(get(world, W_SOLE), frame, world, scratch, k, entry)


@native
def nowhere(to):
    """Whether a destination is none that an adjoint has."""
    return to == NOWHERE or to <= REFUSED


@native
def left(world, to, g):
    """The answer of a step that has nowhere to bring a share to."""
    if to == NOWHERE:
        return used_up(world, g)
    return STOP if to == UNFIT else NO_MEMORY


@native
def kind_of_both(scratch):
    """The kind of x and of the result, as described; OTHER if they differ."""
    kind = get(record_of(scratch, VX), V_KIND)
    return kind if get(record_of(scratch, VOUT), V_KIND) == kind else OTHER


@native
def hand_on(frame, world, to, record, kind, g):
    """Add a cotangent that already is the share of an operand of its form."""
    address = get(cell_of(frame, to), 0)
    if address == 0:
        settle(frame, to, g, record)
        return DONE
    size = size_of(kind)
    scaled(world, kind, get(record, V_SIZE), 1, 1.0, g, size, address, size)
    return used_up(world, g)


# ------------------------------------------------------------------------------------------- elementwise


@entry_point(STEP_SIGNATURE)
def by_kernel(frame, world, scratch, k, entry, ops, g):
    out = record_of(scratch, VOUT)
    kind = describe(world, load_i64(entry + AT_OUT), out)
    if kind > COMPLEX128:
        return STOP
    arity = get(ops, OP_ARITY)
    nodes, values = entry + AT_IN0, entry + AT_X
    if arity > 2:
        nodes = load_i64(nodes) + TUPLE_ITEMS
        values = load_i64(values) + TUPLE_ITEMS
    reads = 0
    tracked = 0
    for i in range(arity):
        to = destination(frame, world, k, get(nodes, i), i)
        if to == REFUSED:
            return NO_MEMORY
        put(scratch, S_DESTINATIONS + i, to)
        if to != NOWHERE:
            kernel = get(ops, OP_KERNELS + 3 * i + kind)
            if kernel == NOT_LOADED:
                put(frame, F_NEED_OPERAND, i)
                put(frame, F_NEED_KIND, kind)
                return MISSING
            if kernel == UNAVAILABLE:
                return STOP
            tracked += 1
            reads |= get(ops, OP_READS + i)
    n = get(out, V_SIZE)
    heir = -1
    settings = load_i64(entry + AT_KW) + TUPLE_ITEMS - 8 * arity
    for i in range(get(ops, OP_GIVEN)):
        to = get(scratch, S_DESTINATIONS + i) if i < arity else NOWHERE
        if to != NOWHERE or reads & (1 << i):
            value = record_of(scratch, VX + i)
            describe(world, get(values if i < arity else settings, i), value)
            if to == NOWHERE:
                if not as_constant(value, kind, scratch + 8 * (S_CONVERTED + 2 * i)):
                    return STOP
            else:
                if get(value, V_KIND) != kind or not fits(frame, world, scratch, to, value):
                    return STOP
                if get(value, V_SIZE) == n and get(cell_of(frame, to), 0) == 0:
                    heir = i
    # An operand that stands there twice would inherit g and be added to it as well.
    for i in range(arity):
        if (
            i != heir
            and heir >= 0
            and get(scratch, S_DESTINATIONS + i) == get(scratch, S_DESTINATIONS + heir)
        ):
            heir = -1
    # The heir comes last: the others still need g.
    for turn in range(arity):
        i = (heir + 1 + turn) % arity
        if get(scratch, S_DESTINATIONS + i) != NOWHERE:
            if not share(frame, world, scratch, ops, i, kind, n, g, i == heir):
                return NO_MEMORY
    return DONE if heir >= 0 else used_up(world, g)


@native
def readable(scratch, stream, kind, n):
    """Whether a kernel can read a value as it lies."""
    value = record_of(scratch, stream)
    return get(value, V_SIZE) == n and get(value, V_CONTIGUOUS) != 0 and get(value, V_KIND) == kind


@native
def share(frame, world, scratch, ops, i, kind, n, g, inherits):
    """Add operand i's share of g to its adjoint; the heir's adjoint is g itself, changed in place."""
    value = record_of(scratch, VX + i)
    to = get(scratch, S_DESTINATIONS + i)
    size = size_of(kind)
    kernel = get(ops, OP_KERNELS + 3 * i + kind)
    reads = get(ops, OP_READS + i)
    c = load_f64(ops + 8 * (OP_CONSTANT + i))
    full = get(value, V_SIZE) == n
    add = 0
    if inherits:
        settle(frame, to, g, value)
        adjoint = g
        if kernel == CONSTANT and c == 1.0:
            return True
    else:
        if not full or get(cell_of(frame, to), 0) != 0:
            add = 1
        adjoint = begin(frame, world, to, value, size, not full)
        if adjoint == 0:
            return False
    # The short way: everything has the size of the result and lies densely.
    if full:
        if kernel == CONSTANT:
            scaled(world, kind, n, add, c, g, size, adjoint, size)
            return True
        lies_well = True
        if reads & READS_X:
            lies_well = readable(scratch, VX, kind, n)
        if reads & READS_Y:
            lies_well = lies_well and readable(scratch, VY, kind, n)
        if reads & READS_Z:
            lies_well = lies_well and readable(scratch, VZ, kind, n)
        if reads & READS_OUT:
            lies_well = lies_well and readable(scratch, VOUT, kind, n)
        if lies_well:
            x = get(record_of(scratch, VX), V_DATA)
            y = get(record_of(scratch, VY), V_DATA)
            z = get(record_of(scratch, VZ), V_DATA)
            call_kernel(kernel, n, add, g, x, y, z, get(record_of(scratch, VOUT), V_DATA), adjoint)
            return True
    out = record_of(scratch, VOUT)
    rank = get(out, V_NDIM)
    for d in range(rank):
        put(scratch, S_EXTENTS + d, get(get(out, V_SHAPE), d))
    set_nothing(scratch, rank)
    if reads & READS_X:
        set_like(scratch, VX, record_of(scratch, VX), rank)
    if reads & READS_Y:
        set_like(scratch, VY, record_of(scratch, VY), rank)
    if reads & READS_Z:
        set_like(scratch, VZ, record_of(scratch, VZ), rank)
    if reads & READS_OUT:
        set_like(scratch, VOUT, out, rank)
    set_dense(scratch, G, g, out, rank, size)
    set_dense(scratch, ADJ, adjoint, value, rank, size)
    loop(world, scratch, rank, kind, kernel, c, add)
    return True


def _small_powers(kind):
    _, _, item, put_item, _ = ACCESS[kind]

    @native
    def share(n, exponent, g, x, adjoint, add):
        """adjoint (+)= g * exponent * x ** (exponent - 1), for 2, 3 and 4; where g is 0, so is that."""
        for i in range(n):
            v, c = item(x, i), item(g, i)
            p = v
            if exponent > 2:
                p *= v
            if exponent > 3:
                p *= v
            part = c * (exponent * p) if c != 0 else c
            put_item(adjoint, i, item(adjoint, i) + part if add else part)

    return share


_powers = by_kind(_small_powers, REAL)


@native
def small_exponent(world, scratch, entry):
    """2, 3 or 4, if y is that number; else 0."""
    if load_i64(entry + AT_IN1) != get(world, W_NONE):
        return 0
    y = record_of(scratch, VY)
    kind = describe(world, load_i64(entry + AT_Y), y)
    value = 0.0
    if kind == PY_FLOAT:
        value = load_f64(get(y, V_DATA))
    elif kind == PY_INT:
        value = float(int_value(get(y, V_OBJECT)))
    return int(value) if value == 2.0 or value == 3.0 or value == 4.0 else 0


@entry_point(STEP_SIGNATURE)
def by_power(frame, world, scratch, k, entry, ops, g):
    """x ** y; by products where y is the number 2, 3 or 4, since the general partial costs ten times as much."""
    exponent = small_exponent(world, scratch, entry)
    if exponent != 0:
        x = record_of(scratch, VX)
        to = sole(frame, world, scratch, k, entry)
        kind = kind_of_both(scratch)
        n = get(x, V_SIZE)
        simple = get(x, V_CONTIGUOUS) != 0 and n == get(record_of(scratch, VOUT), V_SIZE)
        if kind <= FLOAT32 and simple and not nowhere(to):
            adjoint = get(cell_of(frame, to), 0)
            add = adjoint != 0
            _powers(kind, n, exponent, g, get(x, V_DATA), adjoint if add else g, add)
            if add:
                return used_up(world, g)
            settle(frame, to, g, x)
            return DONE
    return call_step(get(world, W_STEPS + BY_KERNEL), frame, world, scratch, k, entry, ops, g)


@entry_point(STEP_SIGNATURE)
def by_part(frame, world, scratch, k, entry, ops, g):
    """real, imag and conj of complex values: g is, or changes the sign of, a part of the share."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    step = get(ops, OP_STEP)
    to = sole(frame, world, scratch, k, entry)
    kind = COMPLEX128 if step == BY_CONJ else FLOAT64
    if (
        get(x, V_KIND) != COMPLEX128
        or get(out, V_KIND) != kind
        or get(x, V_SIZE) != get(out, V_SIZE)
    ):
        return STOP
    if nowhere(to):
        return left(world, to, g)
    n = get(x, V_SIZE)
    if step == BY_CONJ:
        for i in range(n):
            put_f64(g, 2 * i + 1, -item_f64(g, 2 * i + 1))
        return hand_on(frame, world, to, x, kind, g)
    size = size_of(COMPLEX128)
    adjoint = begin(frame, world, to, x, size, True)
    if adjoint == 0:
        return NO_MEMORY
    if step == BY_IMAG:
        adjoint += 8
    scaled(world, FLOAT64, n, 1, 1.0, g, 8, adjoint, size)
    return used_up(world, g)


# -------------------------------------------------------------------------------- structural: one operand


@entry_point(STEP_SIGNATURE)
def by_structure(frame, world, scratch, k, entry, ops, g):
    """Steps whose only differentiable operand is x, and that move or spread cotangents without arithmetic."""
    x, out = record_of(scratch, VX), record_of(scratch, VOUT)
    to = sole(frame, world, scratch, k, entry)
    kind = kind_of_both(scratch)
    if kind > COMPLEX128:
        return STOP
    if nowhere(to):
        return left(world, to, g)
    step = get(ops, OP_STEP)
    size = size_of(kind)
    fresh = get(cell_of(frame, to), 0) == 0
    same_size = get(x, V_SIZE) == get(out, V_SIZE)
    if step == BY_RESHAPE:
        if setting(entry, 1) != get(world, W_ORDER_C):
            return STOP
        step = BY_COPY
    if step == BY_COPY or (step == BY_BROADCAST and same_size):
        if not same_size:
            return STOP
        return hand_on(frame, world, to, x, kind, g)

    # Plan: the loop's extents, and the strides of g and of the adjoint, whose address is added below.
    partial = 1.0
    offset, g_offset = 0, 0
    whole = True
    if step == BY_SUM or step == BY_MEAN:
        rank = plan_sum(world, scratch, entry, x, out, size)
        if step == BY_MEAN:
            partial = float(get(out, V_SIZE)) / float(max(get(x, V_SIZE), 1))
    elif step == BY_BROADCAST:
        rank = get(out, V_NDIM)
        for d in range(rank):
            put(scratch, S_EXTENTS + d, get(get(out, V_SHAPE), d))
        set_dense(scratch, G, g, out, rank, size)
        set_dense(scratch, ADJ, 0, x, rank, size)
        whole = False
    elif step == BY_TAKE:
        return take(frame, world, scratch, setting(entry, 0), setting(entry, 1), to, g, kind)
    elif step == BY_INDEX:
        index = setting(entry, 0)
        if type_of(index) == get(world, W_ARRAY):
            return take(frame, world, scratch, index, 0, to, g, kind)
        if (
            type_of(index) == get(world, W_TUPLE)
            and tuple_size(index) > 0
            and (type_of(tuple_item(index, 0)) == get(world, W_ARRAY))
        ):
            return pick(frame, world, scratch, index, to, g, kind)
        rank = plan_index(world, scratch, index, x, out, size)
        whole = False
        if rank >= 0:
            offset = get(scratch, S_AXES)
            # NumPy's g and the plan must speak of the same elements.
            if planned(scratch, rank) != get(out, V_SIZE):
                rank = -1
    elif step == BY_SCATTER:
        rank = plan_index(world, scratch, setting(entry, 0), out, x, size)
        if rank >= 0:
            same_size = planned(scratch, rank) == get(x, V_SIZE)
            turn_round(scratch, rank)
            g_offset = get(scratch, S_AXES)
    else:
        rank = plan_permutation(world, scratch, entry, step, x, out, size)
    if rank < 0:
        return STOP
    if whole and step != BY_SUM and step != BY_MEAN and not same_size:
        return STOP
    adjoint = begin(frame, world, to, x, size, not whole)
    if adjoint == 0:
        return NO_MEMORY
    set_nothing(scratch, rank)
    put(scratch, S_POINTERS + G, g + g_offset)
    put(scratch, S_POINTERS + ADJ, adjoint + offset)
    loop(world, scratch, rank, kind, CONSTANT, partial, 0 if fresh and whole else 1)
    return used_up(world, g)


@native
def axis_in(world, address, rank):
    """An axis given as an int, made positive; -1 where it is none."""
    if not is_small_int(world, address):
        return -1
    axis = int_value(address)
    if axis < 0:
        axis += rank
    return axis if 0 <= axis < rank else -1


@native
def plan_sum(world, scratch, entry, x, out, size):
    """g is constant along the axes that were summed."""
    rank = get(x, V_NDIM)
    axis = setting(entry, 0)
    summed = 0
    if axis == get(world, W_NONE):
        summed = (1 << rank) - 1
    elif type_of(axis) == get(world, W_TUPLE):
        for i in range(tuple_size(axis)):
            a = axis_in(world, tuple_item(axis, i), rank)
            if a < 0:
                return -1
            summed |= 1 << a
    else:
        a = axis_in(world, axis, rank)
        if a < 0:
            return -1
        summed = 1 << a
    stride, g_stride = size, size
    for d in range(rank - 1, -1, -1):
        extent = get(get(x, V_SHAPE), d)
        put(scratch, S_EXTENTS + d, extent)
        put(scratch, S_STRIDES + ADJ * MAX_RANK + d, stride)
        stride *= extent
        if summed >> d & 1:
            put(scratch, S_STRIDES + G * MAX_RANK + d, 0)
        else:
            put(scratch, S_STRIDES + G * MAX_RANK + d, g_stride)
            g_stride *= extent
    return rank if g_stride == get(out, V_SIZE) * size else -1


@native
def plan_permutation(world, scratch, entry, step, x, out, size):
    """Axis d of the result is axis `order[d]` of x."""
    rank = get(x, V_NDIM)
    order = scratch + 8 * S_AXES
    strides = order + 8 * MAX_RANK
    stride = size
    for d in range(rank - 1, -1, -1):
        put(strides, d, stride)
        stride *= get(get(x, V_SHAPE), d)
        put(order, d, d)
    if step == BY_TRANSPOSE:
        axes = setting(entry, 0)
        if axes == get(world, W_NONE):
            for d in range(rank):
                put(order, d, rank - 1 - d)
        elif type_of(axes) == get(world, W_TUPLE) and tuple_size(axes) == rank:
            for d in range(rank):
                a = axis_in(world, tuple_item(axes, d), rank)
                if a < 0:
                    return -1
                put(order, d, a)
        else:
            return -1
    else:
        a = axis_in(world, setting(entry, 0), rank)
        b = axis_in(world, setting(entry, 1), rank)
        if a < 0 or b < 0:
            return -1
        if step == BY_SWAPAXES:
            put(order, a, b)
            put(order, b, a)
        else:
            # moveaxis: take axis a out, put it in at b.
            by = 1 if a < b else -1
            d = a
            while d != b:
                put(order, d, d + by)
                d += by
            put(order, b, a)
    stride = size
    for d in range(rank - 1, -1, -1):
        extent = get(get(x, V_SHAPE), get(order, d))
        put(scratch, S_EXTENTS + d, extent)
        put(scratch, S_STRIDES + G * MAX_RANK + d, stride)
        put(scratch, S_STRIDES + ADJ * MAX_RANK + d, get(strides, get(order, d)))
        stride *= extent
    return rank


# -------------------------------------------------------------------------------------------- indexing


@native
def plan_index(world, scratch, index, x, out, size):
    """Basic indexing (ints, slices, None, Ellipsis); the offset into x goes to S_AXES. -1: another kind of index."""
    rank = get(x, V_NDIM)
    is_tuple = type_of(index) == get(world, W_TUPLE)
    count = tuple_size(index) if is_tuple else 1
    used = 0
    for i in range(count):
        item = tuple_item(index, i) if is_tuple else index
        if type_of(item) == get(world, W_INT) or type_of(item) == get(world, W_SLICE):
            used += 1
        elif item != get(world, W_NONE) and item != get(world, W_ELLIPSIS):
            return -1
    if used > rank:
        return -1
    strides = scratch + 8 * (S_AXES + 1)
    stride = size
    for d in range(rank - 1, -1, -1):
        put(strides, d, stride)
        stride *= get(get(x, V_SHAPE), d)
    offset = 0
    axis = 0
    made = 0
    for i in range(count + 1):
        # After the last item an Ellipsis is understood; where there was one, no axis is left for this one.
        item = get(world, W_ELLIPSIS)
        if i < count:
            item = tuple_item(index, i) if is_tuple else index
        if item == get(world, W_NONE):
            continue
        if item == get(world, W_ELLIPSIS):
            for _ in range(rank - used):
                put(scratch, S_EXTENTS + made, get(get(x, V_SHAPE), axis))
                put(scratch, S_STRIDES + ADJ * MAX_RANK + made, get(strides, axis))
                axis += 1
                made += 1
            used = rank
        elif type_of(item) == get(world, W_INT):
            a = axis_in(world, item, get(get(x, V_SHAPE), axis))
            if a < 0:
                return -1
            offset += a * get(strides, axis)
            axis += 1
        else:
            extent = get(get(x, V_SHAPE), axis)
            step = bound(world, load_i64(item + SLICE_STEP), 1)
            if step == 0 or step == NO_BOUND:
                return -1
            start = bound(world, load_i64(item + SLICE_START), 0 if step > 0 else extent - 1)
            stop = bound(world, load_i64(item + SLICE_STOP), extent if step > 0 else -1 - extent)
            if start == NO_BOUND or stop == NO_BOUND:
                return -1
            start = clipped(start, extent, step)
            stop = clipped(stop, extent, step)
            length = 0
            if step > 0 and stop > start:
                length = (stop - start - 1) // step + 1
            elif step < 0 and start > stop:
                length = (start - stop - 1) // -step + 1
            offset += start * get(strides, axis)
            put(scratch, S_EXTENTS + made, length)
            put(scratch, S_STRIDES + ADJ * MAX_RANK + made, step * get(strides, axis))
            axis += 1
            made += 1
    stride = size
    for d in range(made - 1, -1, -1):
        put(scratch, S_STRIDES + G * MAX_RANK + d, stride)
        stride *= get(scratch, S_EXTENTS + d)
    put(scratch, S_AXES, offset)
    return made


@native
def planned(scratch, rank):
    """Elements of a plan."""
    count = 1
    for d in range(rank):
        count *= get(scratch, S_EXTENTS + d)
    return count


@native
def turn_round(scratch, rank):
    """A plan of `plan_index` reads what is dense and writes the region: from here on it reads the region."""
    for d in range(rank):
        dense = get(scratch, S_STRIDES + G * MAX_RANK + d)
        put(scratch, S_STRIDES + G * MAX_RANK + d, get(scratch, S_STRIDES + ADJ * MAX_RANK + d))
        put(scratch, S_STRIDES + ADJ * MAX_RANK + d, dense)


@entry_point(STEP_SIGNATURE)
def by_store(frame, world, scratch, k, entry, ops, g):
    """x with y stored at an index: y gets its region of g; the rest, the region cleared, is x's, in the same memory."""
    x, y, out = record_of(scratch, VX), record_of(scratch, VY), record_of(scratch, VOUT)
    kind = describe(world, load_i64(entry + AT_OUT), out)
    if kind > COMPLEX128 or describe(world, load_i64(entry + AT_X), x) != kind:
        return STOP
    to_x = destination(frame, world, k, load_i64(entry + AT_IN0), 0)
    to_y = destination(frame, world, k, load_i64(entry + AT_IN1), 1)
    if to_x == REFUSED or to_y == REFUSED:
        return NO_MEMORY
    if to_x != NOWHERE and not fits(frame, world, scratch, to_x, x):
        return STOP
    size = size_of(kind)
    index = setting(entry, 0)
    rank = plan_index(world, scratch, index, x, out, size)
    if rank < 0:
        return STOP
    count = planned(scratch, rank)
    if to_y != NOWHERE:
        own = describe(world, load_i64(entry + AT_Y), y)
        if own != kind or get(y, V_SIZE) != count or not fits(frame, world, scratch, to_y, y):
            return STOP
        fresh = get(cell_of(frame, to_y), 0) == 0
        adjoint = begin(frame, world, to_y, y, size, False)
        if adjoint == 0:
            return NO_MEMORY
        turn_round(scratch, rank)
        set_nothing(scratch, rank)
        put(scratch, S_POINTERS + G, g + get(scratch, S_AXES))
        put(scratch, S_POINTERS + ADJ, adjoint)
        loop(world, scratch, rank, kind, CONSTANT, 1.0, 0 if fresh else 1)
    if to_x == NOWHERE:
        return used_up(world, g)
    rank = plan_index(world, scratch, index, x, out, size)
    clear(scratch, g + get(scratch, S_AXES), rank, count, size)
    return hand_on(frame, world, to_x, x, kind, g)


@native
def clear(scratch, start, rank, count, size):
    """Zeros in the region that `plan_index` found."""
    for i in range(count):
        at, rest = start, i
        for d in range(rank - 1, -1, -1):
            extent = get(scratch, S_EXTENTS + d)
            at += rest % extent * get(scratch, S_STRIDES + ADJ * MAX_RANK + d)
            rest //= extent
        memset(at, 0, size)


NO_BOUND = 1 << 62


@native
def bound(world, address, default):
    """A slice's start, stop or step: an int, the default for None, or NO_BOUND for anything else."""
    if address == get(world, W_NONE):
        return default
    if is_small_int(world, address):
        return int_value(address)
    return NO_BOUND


@native
def clipped(position, extent, step):
    """Where NumPy takes an out-of-range end of a slice to be."""
    if position < 0:
        position += extent
        if position < 0:
            return 0 if step > 0 else -1
    if position >= extent:
        return extent if step > 0 else extent - 1
    return position


def _adder(kind):
    """For one kind: rows of g are added where positions (negative ones count from the end; repeats add up) or a mask say."""
    _, _, item, put_item, _ = ACCESS[kind]

    @native
    def add_rows(count, rows, extent, length, g, adjoint):
        for j in range(count):
            i = get(rows, j)
            if i < 0:
                i += extent
            if length == 1:
                put_item(adjoint, i, item(adjoint, i) + item(g, j))
            else:
                to, at = i * length, j * length
                for c in range(length):
                    put_item(adjoint, to + c, item(adjoint, to + c) + item(g, at + c))

    @native
    def add_masked(extent, mask, length, g, adjoint):
        at = 0
        for i in range(extent):
            if load_u8(mask + i):
                to = i * length
                for c in range(length):
                    put_item(adjoint, to + c, item(adjoint, to + c) + item(g, at + c))
                at += length

    return add_rows, add_masked


add_rows, add_masked = by_kind(_adder)


@native
def in_bounds(rows, count, extent):
    low, high = 0, -1
    for j in range(count):
        i = get(rows, j)
        low = min(low, i)
        high = max(high, i)
    return -extent <= low and high < extent


@native
def take(frame, world, scratch, index, axis, to, g, kind):
    """Elements at a dense array of ints along an axis (None: of the flattened value), or x[mask] for a dense mask.

    The axis is an object, or 0 where x itself was indexed.
    """
    x = record_of(scratch, VX)
    out = record_of(scratch, VOUT)
    rows = record_of(scratch, VY)
    own = describe(world, index, rows)
    rank = get(x, V_NDIM)
    if not get(rows, V_CONTIGUOUS) or rank == 0:
        return STOP
    size = size_of(kind)
    if own == BOOL and axis == 0:
        return take_masked(frame, world, scratch, to, g, kind)
    if own != INTP:
        return STOP
    along = 0
    if axis != 0 and axis != get(world, W_NONE):
        along = axis_in(world, axis, rank)
        if along < 0:
            return STOP
    lines, extent, length = 1, get(x, V_SIZE), 1
    if axis != get(world, W_NONE):
        extent = get(get(x, V_SHAPE), along)
        for d in range(along):
            lines *= get(get(x, V_SHAPE), d)
        for d in range(along + 1, rank):
            length *= get(get(x, V_SHAPE), d)
    count = get(rows, V_SIZE)
    if lines * count * length != get(out, V_SIZE):
        return STOP
    if not in_bounds(get(rows, V_DATA), count, extent):
        return STOP
    adjoint = begin(frame, world, to, x, size, True)
    if adjoint == 0:
        return NO_MEMORY
    for line in range(lines):
        add_rows(
            kind, count, get(rows, V_DATA), extent, length,
            g + line * count * length * size, adjoint + line * extent * length * size,
        )  # fmt: skip
    return used_up(world, g)


@native
def take_masked(frame, world, scratch, to, g, kind):
    """x[mask]: the rows of x whose element of the mask (over its first axes) is True, in order."""
    x, out, mask = record_of(scratch, VX), record_of(scratch, VOUT), record_of(scratch, VY)
    rank, own_rank = get(x, V_NDIM), get(mask, V_NDIM)
    if own_rank == 0 or own_rank > rank:
        return STOP
    for d in range(own_rank):
        if get(get(mask, V_SHAPE), d) != get(get(x, V_SHAPE), d):
            return STOP
    length = 1
    for d in range(own_rank, rank):
        length *= get(get(x, V_SHAPE), d)
    extent = get(mask, V_SIZE)
    count = 0
    for i in range(extent):
        count += load_u8(get(mask, V_DATA) + i)
    if count * length != get(out, V_SIZE):
        return STOP
    adjoint = begin(frame, world, to, x, size_of(kind), True)
    if adjoint == 0:
        return NO_MEMORY
    add_masked(kind, extent, get(mask, V_DATA), length, g, adjoint)
    return used_up(world, g)


@native
def pick(frame, world, scratch, index, to, g, kind):
    """x[i, j, ...] for dense arrays of ints, all of one shape, over the first axes of x."""
    x = record_of(scratch, VX)
    out = record_of(scratch, VOUT)
    rows = record_of(scratch, VY)
    axes = tuple_size(index)
    rank = get(x, V_NDIM)
    if axes > rank:
        return STOP
    count = -1
    ndim = 0
    extents = scratch + 8 * S_AXES
    for d in range(axes):
        if describe(world, tuple_item(index, d), rows) != INTP or not get(rows, V_CONTIGUOUS):
            return STOP
        if d == 0:
            count, ndim = get(rows, V_SIZE), get(rows, V_NDIM)
            for i in range(ndim):
                put(extents, i, get(get(rows, V_SHAPE), i))
        elif get(rows, V_NDIM) != ndim:
            return STOP
        for i in range(ndim):
            if get(get(rows, V_SHAPE), i) != get(extents, i):
                return STOP
        if not in_bounds(get(rows, V_DATA), count, get(get(x, V_SHAPE), d)):
            return STOP
    length = 1
    for d in range(axes, rank):
        length *= get(get(x, V_SHAPE), d)
    if count * length != get(out, V_SIZE):
        return STOP
    places = raw_calloc(max(count, 1), 8)
    if places == 0:
        return NO_MEMORY
    size = size_of(kind)
    adjoint = begin(frame, world, to, x, size, True)
    if adjoint == 0:
        raw_free(places)
        return NO_MEMORY
    extent = 1
    for d in range(axes):
        describe(world, tuple_item(index, d), rows)
        own = get(get(x, V_SHAPE), d)
        extent *= own
        for j in range(count):
            i = get(get(rows, V_DATA), j)
            put(places, j, get(places, j) * own + (i + own if i < 0 else i))
    add_rows(kind, count, places, extent, length, g, adjoint)
    raw_free(places)
    return used_up(world, g)


# ------------------------------------------------------------------------------------------------ joining


@entry_point(STEP_SIGNATURE)
def by_joining(frame, world, scratch, k, entry, ops, g):
    """concatenate and stack: each operand gets the part of g that it supplied."""
    out = record_of(scratch, VOUT)
    value = record_of(scratch, VX)
    kind = describe(world, load_i64(entry + AT_OUT), out)
    nodes, values = load_i64(entry + AT_IN0), load_i64(entry + AT_X)
    if kind > COMPLEX128:
        return STOP
    count = tuple_size(nodes)
    stacking = get(ops, OP_STEP) == BY_STACK
    rank = get(out, V_NDIM)
    size = size_of(kind)
    axis_object = setting(entry, 0)
    flat = axis_object == get(world, W_NONE)
    axis = 0
    if flat:
        if stacking:
            return STOP
    else:
        axis = axis_in(world, axis_object, rank)
        if axis < 0:
            return STOP
    covered = 0
    for i in range(count):
        own = describe(world, tuple_item(values, i), value)
        covered += get(value, V_SIZE)
        if not flat and get(value, V_NDIM) != (rank - 1 if stacking else rank):
            return STOP
        to = destination(frame, world, k, tuple_item(nodes, i), i)
        if to == REFUSED:
            return NO_MEMORY
        if to != NOWHERE and (own != kind or not fits(frame, world, scratch, to, value)):
            return STOP
    if covered != get(out, V_SIZE):
        return STOP
    # Bytes between neighbours of g along the axis.
    along = size
    if not flat:
        for d in range(axis + 1, rank):
            along *= get(get(out, V_SHAPE), d)
    offset = 0
    for i in range(count):
        describe(world, tuple_item(values, i), value)
        to = destination(frame, world, k, tuple_item(nodes, i), i)
        if to != NOWHERE:
            fresh = get(cell_of(frame, to), 0) == 0
            adjoint = begin(frame, world, to, value, size, False)
            if adjoint == 0:
                return NO_MEMORY
            own_rank = get(value, V_NDIM)
            for d in range(own_rank):
                put(scratch, S_EXTENTS + d, get(get(value, V_SHAPE), d))
            set_nothing(scratch, own_rank)
            set_dense(scratch, ADJ, adjoint, value, own_rank, size)
            if flat:
                set_dense(scratch, G, g + offset, value, own_rank, size)
            else:
                stride = size
                for d in range(rank - 1, -1, -1):
                    own = d - 1 if stacking and d > axis else d
                    if not (stacking and d == axis):
                        put(scratch, S_STRIDES + G * MAX_RANK + own, stride)
                    stride *= get(get(out, V_SHAPE), d)
                put(scratch, S_POINTERS + G, g + offset)
            loop(world, scratch, own_rank, kind, CONSTANT, 1.0, 0 if fresh else 1)
        if flat:
            offset += get(value, V_SIZE) * size
        elif stacking:
            offset += along
        else:
            offset += along * get(get(value, V_SHAPE), axis)
    return used_up(world, g)


# ------------------------------------------------------------------------------------------------- matmul


def _multiplier(kind):
    """c (+)= a @ b for one real kind, with any strides (in bytes); c is m x n, dense by rows."""
    _, _, item, put_item, size = ACCESS[kind]

    @summing
    def dot(n, a, a_stride, b, b_stride):
        s = 0.0
        if a_stride == size and b_stride == size:
            for i in range(n):
                s += item(a, i) * item(b, i)
        else:
            for i in range(n):
                s += item(a + i * a_stride, 0) * item(b + i * b_stride, 0)
        return s

    @native
    def multiply(m, k, n, a, a_row, a_column, b, b_row, b_column, c, add):
        if b_column == size or (n > 1 and a_column != size):
            # Rows of b, scaled by elements of a: the inner loop runs along rows.
            for i in range(m):
                c_row = c + i * n * size
                if not add:
                    memset(c_row, 0, n * size)
                for p in range(k):
                    factor = item(a + i * a_row + p * a_column, 0)
                    line = b + p * b_row
                    if b_column == size:
                        for j in range(n):
                            put_item(c_row, j, item(c_row, j) + factor * item(line, j))
                    else:
                        for j in range(n):
                            put_item(
                                c_row, j, item(c_row, j) + factor * item(line + j * b_column, 0)
                            )
        else:
            for i in range(m):
                for j in range(n):
                    s = dot(k, a + i * a_row, a_column, b + j * b_column, b_row)
                    at = i * n + j
                    put_item(c, at, (item(c, at) if add else 0.0) + s)

    return multiply


multiply = by_kind(_multiplier, REAL)


@native
def leading(rows, columns, row, column, size):
    """How BLAS is told of a matrix with these strides, as the transpose that Fortran's order makes of it.

    Elements between neighbours along the slow axis; negative if it must be transposed; 0 if BLAS cannot read it.
    """
    if column == size or columns == 1:
        ld = row // size if rows > 1 else columns
        return ld if ld >= columns and ld * size == (row if rows > 1 else columns * size) else 0
    if row == size or rows == 1:
        ld = column // size
        return -ld if ld >= rows and ld * size == column else 0
    return 0


@native
def by_blas(world, scratch, kind, m, k, n, a, a_row, a_column, b, b_row, b_column, c, add):
    """c (+)= a @ b by BLAS, whose order of axes is the other one: it computes bᵀ aᵀ."""
    size = size_of(kind)
    lda, ldb = leading(m, k, a_row, a_column, size), leading(k, n, b_row, b_column, size)
    p = scratch + 8 * S_SUMS
    store_u8(p, 78 if ldb > 0 else 84)  # N or T
    store_u8(p + 8, 78 if lda > 0 else 84)
    store_i32(p + 16, n)
    store_i32(p + 24, m)
    store_i32(p + 32, k)
    store_i32(p + 40, abs(ldb))
    store_i32(p + 48, abs(lda))
    store_i32(p + 56, n)
    if kind == FLOAT64:
        store_f64(p + 64, 1.0)
        store_f64(p + 72, 1.0 if add else 0.0)
    else:
        store_f32(p + 64, 1.0)
        store_f32(p + 72, 1.0 if add else 0.0)
    gemm = get(world, W_DGEMM if kind == FLOAT64 else W_SGEMM)
    call_gemm(
        gemm, p, p + 8, p + 16, p + 24, p + 32, p + 64, b, p + 40, a, p + 48, p + 72, c, p + 56
    )


@native
def product(world, scratch, kind, m, k, n, a, a_row, a_column, b, b_row, b_column, c, add):
    if m * k * n <= SMALL_PRODUCT:
        multiply(kind, m, k, n, a, a_row, a_column, b, b_row, b_column, c, add)
    else:
        by_blas(world, scratch, kind, m, k, n, a, a_row, a_column, b, b_row, b_column, c, add)


SMALL_PRODUCT = 1 << 15
"""Multiplications up to which the loops here are as good as BLAS."""
LARGE_PRODUCT = 1 << 25
"""Multiplications from which NumPy does it, at a stop: it lets other threads run meanwhile."""


@entry_point(STEP_SIGNATURE)
def by_product(frame, world, scratch, k, entry, ops, g):
    """matmul of vectors and matrices: x gets g @ yᵀ, y gets xᵀ @ g."""
    x, y, out = record_of(scratch, VX), record_of(scratch, VY), record_of(scratch, VOUT)
    kind = describe(world, load_i64(entry + AT_OUT), out)
    if kind > FLOAT32:
        return STOP
    if (
        describe(world, load_i64(entry + AT_X), x) != kind
        or describe(world, load_i64(entry + AT_Y), y) != kind
    ):
        return STOP
    x_rank, y_rank = get(x, V_NDIM), get(y, V_NDIM)
    if not (1 <= x_rank <= 2 and 1 <= y_rank <= 2):
        return STOP
    size = size_of(kind)
    # A vector is a matrix of one row (x) or one column (y).
    x_shape, y_shape, x_strides, y_strides = (
        get(x, V_SHAPE),
        get(y, V_SHAPE),
        get(x, V_STRIDES),
        get(y, V_STRIDES),
    )
    inner = get(x_shape, x_rank - 1)
    m, n = 1, 1
    x_row, x_column = 0, get(x_strides, x_rank - 1)
    y_row, y_column = get(y_strides, 0), size
    if x_rank == 2:
        m, x_row = get(x_shape, 0), get(x_strides, 0)
    if y_rank == 2:
        n, y_column = get(y_shape, 1), get(y_strides, 1)
    if get(y_shape, 0) != inner or m * n != get(out, V_SIZE):
        return STOP
    if m * inner * n > SMALL_PRODUCT and (
        m * inner * n > LARGE_PRODUCT
        or get(world, W_DGEMM) == 0
        or leading(inner, m, x_column, x_row, size) == 0
        or leading(n, inner, y_column, y_row, size) == 0
    ):
        return STOP
    to_x = destination(frame, world, k, load_i64(entry + AT_IN0), 0)
    to_y = destination(frame, world, k, load_i64(entry + AT_IN1), 1)
    if to_x == REFUSED or to_y == REFUSED:
        return NO_MEMORY
    if to_x != NOWHERE and not fits(frame, world, scratch, to_x, x):
        return STOP
    if to_y != NOWHERE and not fits(frame, world, scratch, to_y, y):
        return STOP
    if to_x != NOWHERE:
        add = get(cell_of(frame, to_x), 0) != 0
        c = begin(frame, world, to_x, x, size, False)
        if c == 0:
            return NO_MEMORY
        b = get(y, V_DATA)
        product(world, scratch, kind, m, n, inner, g, n * size, size, b, y_column, y_row, c, add)
    if to_y != NOWHERE:
        add = get(cell_of(frame, to_y), 0) != 0
        c = begin(frame, world, to_y, y, size, False)
        if c == 0:
            return NO_MEMORY
        a = get(x, V_DATA)
        product(world, scratch, kind, inner, m, n, a, x_column, x_row, g, n * size, size, c, add)
    return used_up(world, g)
