"""Adjoints: where a cotangent goes, and the memory it has there.

A *destination* says where an operand's share belongs: a position on this tape, or an *external* (a leaf, or
a slot of another tape), or NOWHERE. The memory is allocated when the first share arrives and counted in
the world, so that a test can say that none is left.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    get,
    load_i64,
    load_u8,
    memcpy,
    memset,
    native,
    put,
    raw_calloc,
    raw_free,
    raw_malloc,
)
from .layout import *  # noqa: F403
from .values import bump, describe, int_value, same_form, type_of

# ------------------------------------------------------------------------------------------------- memory


HEADER = 16
"""Bytes in front of an adjoint, which keep its size: freeing must not depend on an entry that is gone."""


@native
def allocate(world, size):
    """Memory for an adjoint, or 0."""
    live = get(world, W_LIVE) + size
    if live > get(world, W_LIMIT):
        return 0
    block = raw_malloc(size + HEADER)
    if block == 0:
        return 0
    put(block, 0, size)
    put(world, W_LIVE, live)
    if live > get(world, W_PEAK):
        put(world, W_PEAK, live)
    return block + HEADER


@native
def release(world, adjoint):
    block = adjoint - HEADER
    bump(world, W_LIVE, -get(block, 0))
    raw_free(block)


# ------------------------------------------------------------------------------------- slots and positions


@native
def slot_at(items, k):
    return load_i64(items + k * ENTRY + AT_SLOT)


@native
def position_of(frame, k, slot):
    """Position below k of the entry with this slot (the address of an int), or -1.

    Slots ascend by one along a tape, but for gaps, which put an entry at or above the guess.
    """
    items = get(frame, F_ITEMS)
    value = int_value(slot)
    low = max(k - (int_value(slot_at(items, k)) - value), 0)
    if low < k and slot_at(items, low) == slot:
        return low
    return search(frame, low, k, value)


@native
def search(frame, low, high, value):
    """Position in [low, high) of the entry whose slot has this value; if it is not there, anywhere, or -1."""
    items = get(frame, F_ITEMS)
    if get(frame, F_INDEX) == 0:
        top = high
        while low < high:
            middle = (low + high) >> 1
            if int_value(slot_at(items, middle)) < value:
                low = middle + 1
            else:
                high = middle
        if low < top and int_value(slot_at(items, low)) == value:
            return low
        # Another tape's slot, or neighbours in the other order than their slots (threads that share a context).
        if not make_index(frame):
            return -1
    mask = get(frame, F_INDEX_MASK)
    h = hashed(value) & mask
    while True:
        position = get(get(frame, F_INDEX), h) - 1
        if position < 0 or int_value(slot_at(items, position)) == value:
            return position
        h = (h + 1) & mask


@native
def hashed(value):
    h = value * 0x9E3779B97F4A7C1
    return (h >> 20) ^ (h >> 44)


@native
def make_index(frame):
    """A hash table from slot to position + 1 over the entries of this call."""
    count = get(frame, F_START) + 1
    room = 16
    while room < 2 * count:
        room *= 2
    table = raw_calloc(room, 8)
    if table == 0:
        return False
    put(frame, F_INDEX, table)
    put(frame, F_INDEX_MASK, room - 1)
    items = get(frame, F_ITEMS)
    for position in range(count):
        h = hashed(int_value(slot_at(items, position))) & (room - 1)
        while get(table, h) != 0:
            h = (h + 1) & (room - 1)
        put(table, h, position + 1)
    return True


# ---------------------------------------------------------------------------------------------- externals


@native
def external_at(frame, number):
    return get(frame, F_EXTERNALS) + 8 * EXTERNAL * number


@native
def external_of(frame, node):
    """Number of the external with this node, or -1."""
    if get(frame, F_TABLE) == 0:
        return -1
    mask = get(frame, F_TABLE_MASK)
    h = hashed(node >> 4) & mask
    while True:
        number = get(get(frame, F_TABLE), h) - 1
        if number < 0 or get(external_at(frame, number), E_NODE) == node:
            return number
        h = (h + 1) & mask


@native
def new_external(frame, node, position, operand):
    """Number of a new external, or -1 where there is no memory."""
    number = get(frame, F_EXTERNAL_COUNT)
    if number == get(frame, F_EXTERNAL_ROOM) and not grow_externals(frame):
        return -1
    external = external_at(frame, number)
    put(external, E_NODE, node)
    put(external, E_ADJOINT, 0)
    put(external, E_POSITION, position)
    put(external, E_OPERAND, operand)
    put(external, E_WANTED, 1)
    put(frame, F_EXTERNAL_COUNT, number + 1)
    enter_external(frame, number)
    return number


@native
def enter_external(frame, number):
    table, mask = get(frame, F_TABLE), get(frame, F_TABLE_MASK)
    h = hashed(get(external_at(frame, number), E_NODE) >> 4) & mask
    while get(table, h) != 0:
        h = (h + 1) & mask
    put(table, h, number + 1)


@native
def grow_externals(frame):
    old_room = get(frame, F_EXTERNAL_ROOM)
    room = max(16, 4 * old_room)
    externals = raw_malloc(room * EXTERNAL * 8)
    table = raw_calloc(2 * room, 8)
    if externals == 0 or table == 0:
        raw_free(externals)
        raw_free(table)
        return False
    if old_room > 0:
        memcpy(externals, get(frame, F_EXTERNALS), old_room * EXTERNAL * 8)
    raw_free(get(frame, F_EXTERNALS))
    raw_free(get(frame, F_TABLE))
    put(frame, F_EXTERNALS, externals)
    put(frame, F_EXTERNAL_ROOM, room)
    put(frame, F_TABLE, table)
    put(frame, F_TABLE_MASK, 2 * room - 1)
    for number in range(get(frame, F_EXTERNAL_COUNT)):
        enter_external(frame, number)
    return True


# ------------------------------------------------------------------------------------------- destinations


@native
def destination(frame, world, k, node, operand):
    """Where the share of an operand of entry k goes; REFUSED where there is no memory to note it."""
    if node == get(world, W_NONE):
        return NOWHERE
    targeted = get(frame, F_TARGETED)
    if type_of(node) == get(world, W_INT):
        position = position_of(frame, k, node)
        if position >= 0:
            if targeted and not load_u8(get(frame, F_FLAGS) + position) & (WATCH | TARGET | LEADS):
                return NOWHERE
            return position
        targeted = 0  # what lies behind another tape's slot is not known here
    number = external_of(frame, node)
    if number < 0:
        if targeted:
            return NOWHERE
        number = new_external(frame, node, k, operand)
        if number < 0:
            return REFUSED
    elif get(external_at(frame, number), E_ADJOINT) == 0:
        put(external_at(frame, number), E_POSITION, k)
        put(external_at(frame, number), E_OPERAND, operand)
    return -2 - number


@native
def cell_of(frame, destination):
    """Address of the word that holds a destination's adjoint."""
    if destination >= 0:
        return get(frame, F_ADJOINTS) + 8 * destination
    return external_at(frame, -2 - destination) + 8 * E_ADJOINT


@native
def fits(frame, world, scratch, destination, record):
    """Whether an operand's value has the form of the adjoint it contributes to."""
    if destination >= 0:
        out = load_i64(get(frame, F_ITEMS) + destination * ENTRY + AT_OUT)
        if out == get(record, V_OBJECT):
            return True
        spare = scratch + 8 * (S_VALUES + SPARE * VALUE)
        describe(world, out, spare)
        return same_form(spare, record)
    external = external_at(frame, -2 - destination)
    return get(external, E_ADJOINT) == 0 or (
        get(external, E_SIZE) == get(record, V_SIZE)
        and get(external, E_KIND) == get(record, V_KIND)
    )


@native
def settle(frame, destination, address, record):
    """Make memory the adjoint of a destination that had none."""
    put(cell_of(frame, destination), 0, address)
    if destination >= 0:
        bump(frame, F_PENDING, 1)
    else:
        external = external_at(frame, -2 - destination)
        put(external, E_SIZE, get(record, V_SIZE))
        put(external, E_KIND, get(record, V_KIND))


@native
def begin(frame, world, destination, record, size, zero):
    """Adjoint of a destination, made (and filled with zeros, if asked) where it had none; 0 without memory."""
    address = get(cell_of(frame, destination), 0)
    if address == 0:
        bytes = get(record, V_SIZE) * size
        address = allocate(world, bytes)
        if address != 0:
            if zero:
                memset(address, 0, bytes)
            settle(frame, destination, address, record)
    return address
