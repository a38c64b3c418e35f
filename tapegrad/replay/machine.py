"""The machine: goes back through a tape in one native call, reading Python's objects where they lie.

`walk` takes entries from the top down. An entry whose adjoint (the cotangent of its result, a dense buffer of
the result's shape and dtype) is there gives its operands their share by a step: a kernel for
elementwise ops, code of `steps.py` for structural ones. Adjoints are allocated when first written, freed when
consumed, and taken over by the last operand of equal size where that is possible. What no step covers
makes `walk` return; Python does that entry and calls `walk` again.

Data: a *frame* (the memory of one call), the *world* (what calls share), and *records* about values; layout.py
names their words. The scratch memory is shared because the GIL is held from entering `walk` to leaving it.

Invariant: a step decides whether it can do an entry before it changes anything, so an entry is done
wholly here or wholly in Python. Nothing here allocates Python objects or touches a reference count.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    ADDRESS,
    call_step,
    entry_point,
    get,
    int64,
    load_i64,
    load_u8,
    load_u32,
    memcpy,
    native,
    put,
    raw_calloc,
    raw_free,
    raw_malloc,
    store_u8,
    types,
)
from .adjoints import (
    begin,
    cell_of,
    external_at,
    external_of,
    new_external,
    position_of,
    release,
    search,
    slot_at,
)
from .layout import *  # noqa: F403
from .lines import by_exponentials, by_extreme, by_others, by_running_sum
from .loops import gather_part, loop, loop_part, scaled_part, set_dense, set_like, set_nothing
from .steps import (
    by_joining,
    by_kernel,
    by_part,
    by_power,
    by_product,
    by_store,
    by_structure,
    record_of,
    sole_part,
)
from .values import bump, describe, int_value, same_form, size_of, type_of

# -------------------------------------------------------------------------------------------- open, close


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64))
def open_frame(world, code, start):
    """Memory for one call on the entries 0 to `start` of a tape's list; 0 if there is none."""
    frame = raw_calloc(FRAME, 8)
    if frame == 0:
        return 0
    # Two words an entry, of which pages that are never reached are never touched. To ask the system for them costs more than a walk
    # over a few entries at the end of a long tape, so such a walk leaves them for the next.
    room = get(world, W_ROOM)
    adjoints, visited = get(world, W_ADJOINTS), get(world, W_VISITED)
    if room > start:
        put(world, W_ROOM, 0)
    else:
        room = start + 1 + (start >> 2)
        adjoints, visited = raw_calloc(room, 8), raw_malloc(8 * room)
        if adjoints == 0 or visited == 0:
            raw_free(adjoints)
            raw_free(visited)
            raw_free(frame)
            return 0
    put(frame, F_ROOM, room)
    put(frame, F_WORLD, world)
    put(frame, F_CODE, code)
    put(frame, F_ITEMS, load_i64(code + LIST_ITEMS))
    put(frame, F_START, start)
    put(frame, F_POSITION, start)
    put(frame, F_ADJOINTS, adjoints)
    put(frame, F_VISITED, visited)
    return frame


@entry_point(types.void(ADDRESS))
def close_frame(frame):
    """Free a frame and every adjoint that is still in it (after an error there are some)."""
    world = get(frame, F_WORLD)
    adjoints = get(frame, F_ADJOINTS)
    if get(frame, F_PENDING) > 0:
        for k in range(get(frame, F_START) + 1):
            if get(adjoints, k) != 0 and get(adjoints, k) != HELD_BY_PYTHON:
                release(world, get(adjoints, k))
    for number in range(get(frame, F_EXTERNAL_COUNT)):
        adjoint = get(external_at(frame, number), E_ADJOINT)
        if adjoint != 0:
            release(world, adjoint)
    if get(frame, F_PENDING) == 0 and get(frame, F_VISITS) <= FEW_VISITS:
        adjoints = exchanged(world, W_ADJOINTS, adjoints)  # all zeros again
        put(frame, F_VISITED, exchanged(world, W_VISITED, get(frame, F_VISITED)))
        put(world, W_ROOM, get(frame, F_ROOM))
    raw_free(adjoints)
    raw_free(get(frame, F_VISITED))
    raw_free(get(frame, F_FLAGS))
    raw_free(get(frame, F_INDEX))
    raw_free(get(frame, F_EXTERNALS))
    raw_free(get(frame, F_TABLE))
    raw_free(frame)


FEW_VISITS = 4096
"""Visits up to which a walk leaves its tables for the next: it has touched so many of their pages at most."""


@native
def exchanged(world, word, value):
    """What a word of the world held (0 if its tables are in a frame's hands), which is `value` now."""
    old = get(world, word) if get(world, W_ROOM) > 0 else 0
    put(world, word, value)
    return old


# ---------------------------------------------------------------------------------------------------- walk


@entry_point(int64(ADDRESS))
def walk(frame):
    """Go down from the frame's position until nothing is pending (DONE) or Python must act at that position."""
    world = get(frame, F_WORLD)
    scratch = get(world, W_SCRATCH)
    table = get(world, W_OPS)
    # A stop may have appended entries, which moves the list's items.
    items = load_i64(get(frame, F_CODE) + LIST_ITEMS)
    put(frame, F_ITEMS, items)
    adjoints = get(frame, F_ADJOINTS)
    flags = get(frame, F_FLAGS)
    targeted = get(frame, F_TARGETED)
    k = get(frame, F_POSITION)
    answer = DONE
    while k >= 0 and get(frame, F_PENDING) > 0:
        g = get(adjoints, k)
        if g == 0:
            k -= 1
            continue
        skip = False
        if flags != 0:
            flag = load_u8(flags + k)
            if flag & WATCH:
                answer = WATCHED
                break
            skip = targeted != 0 and not flag & LEADS
        if skip:
            if g != HELD_BY_PYTHON:
                release(world, g)
        elif g == HELD_BY_PYTHON:
            answer = STOP
            break
        else:
            entry = items + k * ENTRY
            ops = table + 8 * OP_ROW * int_value(load_i64(entry + AT_OP))
            step = get(ops, OP_STEP)
            if step == BY_PYTHON:
                answer = STOP
            else:
                answer = call_step(
                    get(world, W_STEPS + step), frame, world, scratch, k, entry, ops, g
                )
            if answer != DONE:
                break
            visit(frame, k)
        put(adjoints, k, 0)
        bump(frame, F_PENDING, -1)
        k -= 1
    put(frame, F_POSITION, k)
    return answer


@native
def visit(frame, k):
    visits = get(frame, F_VISITS)
    put(get(frame, F_VISITED), visits, k)
    put(frame, F_VISITS, visits + 1)


# --------------------------------------------------------------------------- what Python does at a stop


@entry_point(int64(ADDRESS, int64))
def locate(frame, value):
    """Position of the entry whose slot has this value, or -1."""
    put(frame, F_ITEMS, load_i64(get(frame, F_CODE) + LIST_ITEMS))
    return search(frame, 0, get(frame, F_START) + 1, value)


@entry_point(int64(ADDRESS, int64, ADDRESS))
def give(frame, position, value):
    """Add an array or NumPy scalar to the adjoint of an entry: TAKEN, or why not."""
    world = get(frame, F_WORLD)
    scratch = get(world, W_SCRATCH)
    items = load_i64(get(frame, F_CODE) + LIST_ITEMS)
    put(frame, F_ITEMS, items)
    flags = get(frame, F_FLAGS)
    if get(frame, F_TARGETED) and not load_u8(flags + position) & (WATCH | TARGET | LEADS):
        return TAKEN
    out, g = record_of(scratch, VOUT), record_of(scratch, VX)
    kind = describe(world, load_i64(items + position * ENTRY + AT_OUT), out)
    if kind > COMPLEX128:
        cell = cell_of(frame, position)
        if get(cell, 0) == 0:
            put(cell, 0, HELD_BY_PYTHON)
            bump(frame, F_PENDING, 1)
        return HELD
    describe(world, value, g)
    if not same_form(g, out):
        return UNLIKE
    rank = get(out, V_NDIM)
    size = size_of(kind)
    fresh = get(cell_of(frame, position), 0) == 0
    adjoint = begin(frame, world, position, out, size, False)
    if adjoint == 0:
        return WITHOUT_MEMORY
    for d in range(rank):
        put(scratch, S_EXTENTS + d, get(get(out, V_SHAPE), d))
    set_nothing(scratch, rank)
    set_like(scratch, G, g, rank)
    set_dense(scratch, ADJ, adjoint, out, rank, size)
    loop(world, scratch, rank, kind, CONSTANT, 1.0, 0 if fresh else 1)
    return TAKEN


@entry_point(ADDRESS(ADDRESS, int64, ADDRESS, int64))
def take_out(frame, to, array, size):
    """Move an adjoint of `size` bytes into a dense array, or, if that is 0, into the caller's hands (its address)."""
    cell = cell_of(frame, to)
    address = get(cell, 0)
    put(cell, 0, 0)
    if to >= 0:
        bump(frame, F_PENDING, -1)
    if address > HELD_BY_PYTHON and array != 0:
        memcpy(load_i64(array + ARRAY_DATA), address, size)
        release(get(frame, F_WORLD), address)
        return 0
    return address


@entry_point(types.void(ADDRESS))
def pass_by(frame):
    """The entry at the frame's position was done in Python."""
    k = get(frame, F_POSITION)
    visit(frame, k)
    put(frame, F_POSITION, k - 1)


@entry_point(types.void(ADDRESS, ADDRESS))
def free_adjoint(world, address):
    """Free an adjoint that `take_out` handed over."""
    release(world, address)


# ------------------------------------------------------------------------------------ watches and targets


@entry_point(int64(ADDRESS, int64, int64, int64))
def mark(frame, position, bit, on):
    """Set or clear a flag of an entry; 0 without memory."""
    flags = _flags(frame)
    if flags == 0:
        return 0
    flag = load_u8(flags + position)
    store_u8(flags + position, flag | bit if on else flag & ~bit)
    return 1


@native
def _flags(frame):
    """The flags of the entries, a byte each; 0 without memory."""
    flags = get(frame, F_FLAGS)
    if flags == 0:
        flags = raw_calloc(get(frame, F_START) + 1, 1)
        put(frame, F_FLAGS, flags)
    return flags


@entry_point(int64(ADDRESS, ADDRESS))
def want(frame, leaf):
    """Make a leaf a target; 0 without memory."""
    if external_of(frame, leaf) < 0 and new_external(frame, leaf, 0, 0) < 0:
        return 0
    return 1


@entry_point(int64(ADDRESS))
def prune(frame):
    """Flag the entries from which a target can be reached: down to see what is reached, up again to see what leads. 0 without memory."""
    if _flags(frame) == 0:
        return 0
    world = get(frame, F_WORLD)
    items = load_i64(get(frame, F_CODE) + LIST_ITEMS)
    put(frame, F_TARGETED, 1)
    put(frame, F_ITEMS, items)
    flags, adjoints = get(frame, F_FLAGS), get(frame, F_ADJOINTS)
    start = get(frame, F_START)
    low = start + 1
    open_ends = get(frame, F_PENDING)
    k = start
    while k >= 0 and open_ends > 0:
        if get(adjoints, k) != 0 or load_u8(flags + k) & REACHED:
            open_ends -= 1
            store_u8(flags + k, load_u8(flags + k) | REACHED)
            low = k
            for i in range(operands(world, items + k * ENTRY)):
                position = operand_position(frame, k, i)
                if position >= 0 and not load_u8(flags + position) & REACHED:
                    store_u8(flags + position, load_u8(flags + position) | REACHED)
                    if get(adjoints, position) == 0:
                        open_ends += 1
        k -= 1
    for k in range(low, start + 1):
        if load_u8(flags + k) & REACHED:
            for i in range(operands(world, items + k * ENTRY)):
                position = operand_position(frame, k, i)
                if position == LEADS_AWAY or (
                    position >= 0 and load_u8(flags + position) & (TARGET | LEADS)
                ):
                    store_u8(flags + k, load_u8(flags + k) | LEADS)
                    break
        flag = load_u8(flags + k)
        if flag & WATCH and not flag & (TARGET | LEADS):  # hooks off the way stay silent
            store_u8(flags + k, flag & ~WATCH)
    return 1


LEADS_AWAY = -2
"""Position of an operand that is a wanted leaf, or lies on another tape."""


@native
def operands(world, entry):
    nodes = load_i64(entry + AT_IN0)
    if type_of(nodes) == get(world, W_TUPLE):
        return load_i64(nodes + TUPLE_SIZE)
    return 2


@native
def operand(world, entry, i):
    nodes = load_i64(entry + AT_IN0)
    if type_of(nodes) == get(world, W_TUPLE):
        return load_i64(nodes + TUPLE_ITEMS + 8 * i)
    return load_i64(entry + AT_IN0 + 8 * i)


@native
def operand_position(frame, k, i):
    world = get(frame, F_WORLD)
    node = operand(world, get(frame, F_ITEMS) + k * ENTRY, i)
    if node == get(world, W_NONE):
        return NOWHERE
    if type_of(node) == get(world, W_INT):
        position = position_of(frame, k, node)
        return position if position >= 0 else LEADS_AWAY
    return LEADS_AWAY if external_of(frame, node) >= 0 else NOWHERE


# -------------------------------------------------------------------------------------------- references


@native
def references_to(address):
    if REFCOUNT_BITS == 64:
        return load_i64(address + REFCOUNT)
    return load_u32(address + REFCOUNT)


@native
def outside_references(world, code, low, high, result):
    """Per entry of [low, high): references to its slot but for the tape's own, from its column and from operands."""
    items = load_i64(code + LIST_ITEMS)
    end = load_i64(code + LIST_SIZE) // (ENTRY // ITEM)
    for k in range(low, high):
        put(result, k - low, references_to(slot_at(items, k)) - 1)
    for k in range(low, end):
        entry = items + k * ENTRY
        for i in range(operands(world, entry)):
            node = operand(world, entry, i)
            if node != get(world, W_NONE) and type_of(node) == get(world, W_INT):
                position = counted_position(items, low, high, k, node)
                if position >= 0:
                    bump(result, position - low, -1)


@entry_point(types.void(ADDRESS, ADDRESS, int64, ADDRESS))
def mark_alive(world, code, high, result):
    """Per entry below `high`: above 0 if somebody outside the tape holds its slot, or an entry that does so needs it."""
    outside_references(world, code, 0, high, result)
    items = load_i64(code + LIST_ITEMS)
    for k in range(high - 1, -1, -1):
        if get(result, k) > 0:
            entry = items + k * ENTRY
            for i in range(operands(world, entry)):
                node = operand(world, entry, i)
                if node != get(world, W_NONE) and type_of(node) == get(world, W_INT):
                    position = counted_position(items, 0, high, k, node)
                    if position >= 0 and get(result, position) <= 0:
                        put(result, position, 1)


@native
def counted_position(items, low, high, k, node):
    """Position in [low, high) of the entry with this very slot object, or -1."""
    value = int_value(node)
    a = max(k - (int_value(slot_at(items, k)) - value), low)
    b = min(k, high)
    if a < b and slot_at(items, a) == node:
        return a
    if b <= low or value < int_value(slot_at(items, low)):
        a = b
    while a < b:
        middle = (a + b) >> 1
        if int_value(slot_at(items, middle)) < value:
            a = middle + 1
        else:
            b = middle
    if a < min(k, high) and slot_at(items, a) == node:
        return a
    # Entries of two threads may stand in the other order than their slots.
    for position in range(low, min(k, high)):
        if slot_at(items, position) == node:
            return position
    return -1


# -------------------------------------------------------------------------------------------- overwritten


@entry_point(int64(ADDRESS, ADDRESS, int64, int64, ADDRESS, int64))
def overwritten(world, code, start, latest, notes, count):
    """Whether an entry up to `start` may need a value that was overwritten after it was recorded.

    `notes` are pairs in ascending order: address of the array that owns the memory, slot of the last overwrite; `latest` is the
    youngest of these slots.
    """
    items = load_i64(code + LIST_ITEMS)
    table = get(world, W_OPS)
    for k in range(start + 1):
        slot = int_value(slot_at(items, k))
        if slot > latest:
            return 0
        entry = items + k * ENTRY
        step = get(table + 8 * OP_ROW * int_value(load_i64(entry + AT_OP)), OP_STEP)
        if needs_values(step):
            for at in range(3):
                value = load_i64(entry + AT_X + at * ITEM)
                if type_of(value) == get(world, W_TUPLE):
                    for i in range(load_i64(value + TUPLE_SIZE)):
                        item = load_i64(value + TUPLE_ITEMS + 8 * i)
                        if younger_note(world, item, slot, notes, count):
                            return 1
                elif younger_note(world, value, slot, notes, count):
                    return 1
    return 0


@native
def needs_values(step):
    """Whether a way back looks at values, and not at shapes alone."""
    return (
        step == BY_KERNEL
        or step == BY_POWER
        or step == BY_PRODUCT
        or step == BY_EXTREME
        or step == BY_OTHERS
        or step == BY_RUNNING_PRODUCT
        or step == BY_PYTHON
    )


@native
def younger_note(world, value, slot, notes, count):
    if type_of(value) != get(world, W_ARRAY):
        return False
    base = load_i64(value + ARRAY_BASE)
    while base != 0 and type_of(base) == get(world, W_ARRAY):
        value = base
        base = load_i64(value + ARRAY_BASE)
    if base != 0:  # perhaps an array of a subclass, whose own base is not read here
        return True
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if get(notes, 2 * middle) < value:
            low = middle + 1
        else:
            high = middle
    return low < count and get(notes, 2 * low) == value and get(notes, 2 * low + 1) > slot


# ---------------------------------------------------------------------------------------------- self-test


@entry_point(int64(ADDRESS, ADDRESS, ADDRESS))
def probe_value(world, value, record):
    """`describe`, for the self-test."""
    return describe(world, value, record)


@entry_point(int64(int64, ADDRESS, int64))
def probe(what, address, i):
    """One look at an object, for the self-test."""
    if what == PROBE_INT:
        return int_value(address)
    if what == PROBE_LIST_SIZE:
        return load_i64(address + LIST_SIZE)
    if what == PROBE_LIST_ITEM:
        return get(load_i64(address + LIST_ITEMS), i)
    if what == PROBE_TUPLE_SIZE:
        return load_i64(address + TUPLE_SIZE)
    if what == PROBE_TUPLE_ITEM:
        return get(address + TUPLE_ITEMS, i)
    if what == PROBE_SLICE:
        return get(address + SLICE_START, i)
    if what == PROBE_TYPE:
        return type_of(address)
    if what == PROBE_BASE:
        return load_i64(address + ARRAY_BASE)
    return references_to(address)


FOR_PYTHON = {
    "open": open_frame, "close": close_frame, "walk": walk, "locate": locate, "give": give, "take": take_out, "pass_by": pass_by,
    "free": free_adjoint, "mark": mark, "want": want, "prune": prune, "mark_alive": mark_alive, "overwritten": overwritten,
    "probe_value": probe_value, "probe": probe,
}  # fmt: skip
"""Functions that the executor calls, by the names it has for them."""

FOR_MACHINE = {
    W_LOOP: loop_part,
    W_SCALED: scaled_part,
    W_GATHER: gather_part,
    W_SOLE: sole_part,
    W_STEPS + BY_KERNEL: by_kernel,
    W_STEPS + BY_POWER: by_power,
    W_STEPS + BY_SUM: by_structure,
    W_STEPS + BY_PRODUCT: by_product,
    W_STEPS + BY_CONCATENATE: by_joining,
    W_STEPS + BY_STORE: by_store,
    W_STEPS + BY_CONJ: by_part,
    W_STEPS + BY_EXTREME: by_extreme,
    W_STEPS + BY_EXPONENTIALS: by_exponentials,
    W_STEPS + BY_RUNNING_SUM: by_running_sum,
    W_STEPS + BY_OTHERS: by_others,
}
"""Functions that the machine calls, by the word of the world that gets their address."""
