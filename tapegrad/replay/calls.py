"""Built-in functions of the machine, which take and make Python objects: a walk as a whole, and what stays after it.

Most walks are plain: one root, no hook, no target, a step for every entry. Python then need not see the frame:
`whole` opens it, walks, and puts the leaves' gradients, as new arrays, into a dict. If an operation turns out not to be
plain, the call leaves it as it stands, and the executor goes on from there. `held` and `tail` say which entries somebody can
still ask for.

Data: functions of the kind METH_FASTCALL, a third of whose cost ctypes would add. The first argument is always the
world's address.

Invariant: this is the only nopython code that makes Python objects. An exception that it sets leaves the tape as it was.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from typing import Any

from ..core.tape import FREED
from .access import (
    ADDRESS,
    append,
    call_1,
    call_2,
    call_3,
    call_new_array,
    call_void,
    entry_point,
    get,
    int64,
    load_i64,
    load_u8,
    memcpy,
    native,
    new_int,
    new_list,
    no_memory,
    put,
    raw_free,
    raw_malloc,
    release_object,
    set_item,
    store_u8,
)
from .adjoints import external_at
from .layout import *  # noqa: F403
from .machine import counted_position, operand, operands, outside_references
from .values import describe, int_value, type_of


@native
def _plain(frame, world):
    """Whether what the walk found can be handed over here: gradients of leaves, small ones."""
    for number in range(get(frame, F_EXTERNAL_COUNT)):
        external = external_at(frame, number)
        if get(external, E_ADJOINT) == 0:
            continue
        if type_of(get(external, E_NODE)) != get(world, W_LEAF):
            return False
        kind = get(external, E_KIND)
        size = 16 if kind == COMPLEX128 else 8  # of float32 at most that
        if kind > COMPLEX128 or get(external, E_SIZE) * size >= OWNED_FROM:
            return False
    return True


@native
def _positions(values, count):
    """A list of Python's ints; 0 with an exception set."""
    positions: Any = new_list(0)
    for i in range(count):
        position: Any = new_int(get(values, i)) if positions != 0 else 0
        if positions != 0 and (position == 0 or append(positions, position) != 0):
            release_object(positions)
            positions = 0
        if position != 0:
            release_object(position)
    return positions


@native
def _hand_over(frame, world, leaves):
    """Put the gradients into the dict; False with an exception set."""
    record = get(world, W_SCRATCH)
    for number in range(get(frame, F_EXTERNAL_COUNT)):
        external = external_at(frame, number)
        adjoint = get(external, E_ADJOINT)
        if adjoint == 0:
            continue
        entry = load_i64(get(frame, F_CODE) + LIST_ITEMS) + get(external, E_POSITION) * ENTRY
        describe(world, _value(world, entry, get(external, E_OPERAND)), record)
        kind = get(external, E_KIND)
        number_of_type, size = NUM_FLOAT64, 8
        if kind == FLOAT32:
            number_of_type, size = NUM_FLOAT32, 4
        elif kind == COMPLEX128:
            number_of_type, size = NUM_COMPLEX128, 16
        array = call_new_array(
            get(world, W_NEW_ARRAY), get(world, W_ARRAY), get(record, V_NDIM), get(record, V_SHAPE), number_of_type,
            0, 0, 0, 0, 0,
        )  # fmt: skip
        if array == 0:
            return False
        memcpy(load_i64(array + ARRAY_DATA), adjoint, get(external, E_SIZE) * size)
        failed = set_item(leaves, get(external, E_NODE), array)
        release_object(array)
        if failed != 0:
            return False
    return True


@native
def _value(world, entry, i):
    """The saved value of an operand."""
    values = load_i64(entry + AT_X)
    if type_of(load_i64(entry + AT_IN0)) == get(world, W_TUPLE):
        return load_i64(values + TUPLE_ITEMS + 8 * i)
    return load_i64(entry + AT_X + 8 * i)


@native
def _aimed(frame, world, targets):
    """Let the walk go to these leaves only; False without memory."""
    for i in range(load_i64(targets + TUPLE_SIZE)):
        leaf = load_i64(targets + TUPLE_ITEMS + 8 * i)
        if call_2(get(world, W_WANT), frame, leaf) == 0:
            return False
    return call_1(get(world, W_PRUNE), frame) != 0


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def whole(self, arguments, count, names):
    """`whole(world, code, start, cotangent, leaves, targets)`: what was visited, if that was all there is to do.

    That is minus the number of entries from `start` down, or a list of positions where some in between were passed over. 0 if nothing
    was done; else the address of the frame, which still has all gradients. With a tuple of leaves for `targets` (else None) it goes only
    where one of them can be reached.
    """
    world = int_value(get(arguments, 0))
    code = get(arguments, 1)
    start = int_value(get(arguments, 2))
    cotangent = get(arguments, 3)
    frame = call_3(get(world, W_OPEN), world, code, start)
    if frame == 0:
        return new_int(0)
    targets = get(arguments, 5)
    if call_3(get(world, W_GIVE), frame, start, cotangent) != TAKEN or (
        targets != get(world, W_NONE) and not _aimed(frame, world, targets)
    ):
        call_void(get(world, W_CLOSE), frame)
        return new_int(0)
    visits = 0
    if call_1(get(world, W_WALK), frame) == DONE and _plain(frame, world):
        visits = get(frame, F_VISITS)
    visited = get(frame, F_VISITED)
    if visits == 0 or get(visited, 0) != start:
        return new_int(frame)
    answer = 0
    if _hand_over(frame, world, get(arguments, 4)):
        if get(visited, visits - 1) == start - visits + 1:
            answer = new_int(-visits)
        else:
            answer = _positions(visited, visits)
    call_void(get(world, W_CLOSE), frame)
    return answer


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def held(self, arguments, count, names):
    """`held(world, code, low, high)`: positions of the entries of [low, high) whose slots somebody outside the tape holds."""
    world = int_value(get(arguments, 0))
    code = get(arguments, 1)
    low = int_value(get(arguments, 2))
    high = int_value(get(arguments, 3))
    counts = raw_malloc(8 * max(high - low, 1))
    if counts == 0:
        return no_memory()
    outside_references(world, code, low, high, counts)
    found = 0
    for k in range(low, high):
        if get(counts, k - low) > 0:
            put(counts, found, k)  # what was counted before is not asked for any more
            found += 1
    positions = _positions(counts, found)
    raw_free(counts)
    return positions


@native
def _saves(world, entry):
    """Whether the rule of a tracked operand needs saved values (those of a freed entry are gone)."""
    code = int_value(load_i64(entry + AT_OP))
    if code == FREED:
        return True
    ops = get(world, W_OPS) + 8 * OP_ROW * code
    saves = get(ops, OP_SAVES)
    if saves == SAVES_ALWAYS:
        return True
    for i in range(operands(world, entry)):
        if saves >> i & 1 and operand(world, entry, i) != get(world, W_NONE):
            return True
    return False


VISITED, DIRTY = 1, 2
"""Flags of an entry in `tail`: the walk was there; it (after a whole walk: or an entry it was made of) had saved values."""


@native
def _below(world, items, k, i):
    """Position of an operand's entry on this tape, or -1."""
    node = operand(world, items + k * ENTRY, i)
    if node == get(world, W_NONE) or type_of(node) != get(world, W_INT):
        return -1
    return counted_position(items, 0, k, k, node)


@native
def _flag_dirty(world, items, low, root, flags, whole):
    """False if a whole walk met an entry that depends on one below `low`, of which nothing is known here."""
    for k in range(low, root + 1):
        dirty = _saves(world, items + k * ENTRY)
        for i in range(operands(world, items + k * ENTRY) if whole else 0):
            position = _below(world, items, k, i)
            if 0 <= position < low:
                return False
            if position >= low and load_u8(flags + position - low) & DIRTY:
                dirty = True
        if dirty:
            store_u8(flags + k - low, load_u8(flags + k - low) | DIRTY)
    return True


@native
def _survivors(world, items, low, root, counts, flags, whole):
    """A list of the entries that somebody holds, or that such a one needs: their positions, or ~position where something is given up."""
    for k in range(root, low - 1, -1):
        given_up = load_u8(flags + k - low) == VISITED | DIRTY
        if get(counts, k - low) > 0 and not (whole and given_up):
            for i in range(operands(world, items + k * ENTRY)):
                position = _below(world, items, k, i)
                if position >= low:
                    put(counts, position - low, 1)
    found = 0
    for k in range(low, root + 1):
        if get(counts, k - low) > 0:
            # Nobody asks for the counts up to here any more.
            put(counts, found, ~k if load_u8(flags + k - low) == VISITED | DIRTY else k)
            found += 1
    return _positions(counts, found)


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def tail(self, arguments, count, names):
    """`tail(world, code, low, root, visited, whole)`: what stays of the entries `low` to `root`, once a walk has visited them.

    `visited` is a list of positions, or None for all. Of an entry that was visited and had saved values these are given up (~position);
    after a whole walk also what such an entry, or one that depends on it, was made of: a second walk from there would only meet
    what was freed. Others stay if they are held or needed. 0 if these are not the tape's last entries, or if after a whole walk they
    depend on some before them: then somebody must look more closely.
    """
    world = int_value(get(arguments, 0))
    code = get(arguments, 1)
    low = int_value(get(arguments, 2))
    root = int_value(get(arguments, 3))
    visited = get(arguments, 4)
    whole = int_value(get(arguments, 5)) != 0
    if load_i64(code + LIST_SIZE) != (root + 1) * STRIDE:
        return new_int(0)
    length = root + 1 - low
    counts = raw_malloc(9 * length)
    if counts == 0:
        return no_memory()
    flags = counts + 8 * length
    outside_references(world, code, low, root + 1, counts)
    held = 0
    for k in range(length):
        held += get(counts, k) > 0
        store_u8(flags + k, VISITED if visited == get(world, W_NONE) else 0)
    if held == 0:
        raw_free(counts)
        return new_list(0)
    if visited != get(world, W_NONE):
        positions = load_i64(visited + LIST_ITEMS)
        for i in range(load_i64(visited + LIST_SIZE)):
            store_u8(flags + int_value(get(positions, i)) - low, VISITED)
    items = load_i64(code + LIST_ITEMS)
    answer = 0
    if _flag_dirty(world, items, low, root, flags, whole):
        answer = _survivors(world, items, low, root, counts, flags, whole)
    else:
        answer = new_int(0)
    raw_free(counts)
    return answer


FOR_CALLS = {"whole": whole, "held": held, "tail": tail}
"""The functions by the names that the bridge has for them."""
