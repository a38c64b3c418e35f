"""Recording in machine code: what a generated operator does, without an interpreter's frame.

An operator on tensors of few elements costs more in Python than in NumPy. Here is the same text once more, as functions
that Python calls through the operator itself: read the operands' values and nodes, let Python or NumPy compute, make the tensor,
append the entry. They are for the common operands only (tensors and Python numbers, small arrays of the machine's
dtypes, an ordinary recorder or no_grad); with anything else they call the generated function, which is the reference.

Data: each operator has a *card*, a block of words whose address a built-in function owns (linker.builtin): its code, how it
is computed, the generated function. The *desk* is what all of them share: types, the recorder's context variable, slots.

Invariant: what is recorded here is what the generated function would have recorded. Nothing is computed before
it is sure that the generated function need not be asked, but for results that turn out big.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    ADDRESS,
    as_float,
    call_1,
    call_2,
    call_3,
    call_new_array,
    call_with_none,
    call_with_one,
    call_with_some,
    call_with_tuple,
    clear_exception,
    clear_flags,
    differs,
    entry_point,
    exception_is,
    get,
    hold,
    inlined,
    int64,
    item_f64,
    item_of_dict,
    load_i32,
    load_i64,
    native,
    new_object,
    new_tuple,
    put,
    put_f64,
    raised_flags,
    release_object,
    store_i64,
    value_of_variable,
)
from .layout import *  # noqa: F403
from .values import int_value, type_of


@native
def _is_small(desk, card, value):
    """Whether a value is a NumPy scalar or array of a dtype known here, of no more bytes than are computed here."""
    kind = type_of(value)
    if kind == get(desk, D_FLOAT64):
        return True
    if kind == get(desk, D_ARRAY):
        dtype = load_i64(value + ARRAY_DTYPE)
        if dtype == get(desk, D_DTYPE_FLOAT64) or dtype == get(desk, D_DTYPE_FLOAT32):
            size = 8
        elif dtype == get(desk, D_DTYPE_COMPLEX128):
            size = 16
        else:
            return False
        shape = load_i64(value + ARRAY_SHAPE)
        for d in range(load_i32(value + ARRAY_NDIM)):
            size *= get(shape, d)
        return size <= get(card, C_BIG)
    return kind == get(desk, D_FLOAT32) or kind == get(desk, D_COMPLEX128)


@native
def _recorder(desk):
    """The recorder of this context (a new reference), or 0 where the generated function must be asked."""
    spare = get(desk, D_SPARE)
    put(spare, 0, 0)
    if value_of_variable(get(desk, D_RECORDER), 0, spare) != 0:
        clear_exception()
        return 0
    record = get(spare, 0)
    if record == 0:
        return 0
    if record == get(desk, D_NO_GRAD):
        return record
    kind = type_of(record)
    if kind == type_of(get(desk, D_NO_GRAD)) or record == get(desk, D_NONE):
        release_object(record)
        return 0
    return record


@native
def _slot(desk):
    """A fresh slot, as the generated functions get it; 0 with an exception set."""
    following = item_of_dict(get(desk, D_NAMESPACE), get(desk, D_NEXT_SLOT))
    if following == 0:
        return 0
    hold(following)
    slot = call_with_none(following)
    release_object(following)
    if slot == 0 and exception_is(get(desk, D_STOP_ITERATION)) != 0:
        clear_exception()
        slot = call_with_none(get(desk, D_RENEW))
    return slot


@native
def _tensor(desk, value):
    """A tensor of a value, whose reference it takes over; its node is yet to be set. 0 with an exception set."""
    t = new_object(get(desk, D_TENSOR), 0)
    if t == 0:
        release_object(value)
    else:
        store_i64(t + get(desk, D_DATA), value)
    return t


@native
def _untracked(desk, value):
    t = _tensor(desk, value)
    if t != 0:
        hold(get(desk, D_NONE))
        store_i64(t + get(desk, D_NODE), get(desk, D_NONE))
    return t


@native
def _put_item(entry, i, item):
    hold(item)
    put(entry + TUPLE_ITEMS, i, item)


@native
def _recorded(desk, card, record, n0, n1, a, b, value):
    """A tensor of a value (whose reference it takes over), with an entry on the tape; 0 with an exception set."""
    t = _tensor(desk, value)
    if t == 0:
        return 0
    slot = _slot(desk)
    if slot == 0:
        release_object(t)
        return 0
    store_i64(t + get(desk, D_NODE), slot)
    entry = new_tuple(8)
    if entry == 0:
        release_object(t)
        return 0
    _put_item(entry, 0, get(card, C_CODE))
    _put_item(entry, 1, slot)
    _put_item(entry, 2, n0)
    _put_item(entry, 3, n1)
    _put_item(entry, 4, a)
    _put_item(entry, 5, b)
    _put_item(entry, 6, value)
    _put_item(entry, 7, get(desk, D_NONE))
    answer = call_with_one(record, entry)
    release_object(entry)
    if answer == 0:
        release_object(t)
        return 0
    release_object(answer)
    return t


@native
def _asked(card, arguments, count, names):
    """What the generated function says."""
    return call_with_some(get(card, C_GENERATED), arguments, count, names)


# ------------------------------------------------------------------------------------------------ arithmetic
#
# Of dense float64 arrays, or one and a number: NumPy takes longer to find its loop than to run it. Whatever raises a flag of the
# processor (overflow, division by zero) is left to NumPy, which warns as it was told to.


def _loops(combine):
    """Loops of an operation over two dense arrays, or over one and a number."""

    @native
    def run(n, out, a, dense_a, b, dense_b):
        if dense_a and dense_b:
            for i in range(n):
                put_f64(out, i, combine(item_f64(a, i), item_f64(b, i)))
        elif dense_a:
            v = item_f64(b, 0)
            for i in range(n):
                put_f64(out, i, combine(item_f64(a, i), v))
        else:
            v = item_f64(a, 0)
            for i in range(n):
                put_f64(out, i, combine(v, item_f64(b, i)))

    return run


_add = _loops(inlined(lambda x, y: x + y))
_subtract = _loops(inlined(lambda x, y: x - y))
_multiply = _loops(inlined(lambda x, y: x * y))
_divide = _loops(inlined(lambda x, y: x / y))


@native
def _is_dense(desk, value):
    return (
        type_of(value) == get(desk, D_ARRAY)
        and load_i64(value + ARRAY_DTYPE) == get(desk, D_DTYPE_FLOAT64)
        and load_i32(value + ARRAY_FLAGS) & DENSE == DENSE
        and load_i32(value + ARRAY_NDIM) > 0
    )


@native
def _is_number(desk, value):
    kind = type_of(value)
    return kind == get(desk, D_FLOAT64) or kind == get(desk, D_FLOAT)


@native
def _same_shape(a, b):
    rank = load_i32(a + ARRAY_NDIM)
    if load_i32(b + ARRAY_NDIM) != rank:
        return False
    first, second = load_i64(a + ARRAY_SHAPE), load_i64(b + ARRAY_SHAPE)
    for d in range(rank):
        if get(first, d) != get(second, d):
            return False
    return True


@native
def _arithmetic(desk, which, a, b):
    """A new array, or 0 where NumPy is to be asked. No exception is set then."""
    flags = get(desk, D_FLAGS)
    if which == 0 or flags == 0:
        return 0
    dense_a, dense_b = _is_dense(desk, a), _is_dense(desk, b)
    if dense_a and dense_b:
        if not _same_shape(a, b):
            return 0
    elif not ((dense_a and _is_number(desk, b)) or (dense_b and _is_number(desk, a))):
        return 0
    like = a if dense_a else b
    rank, shape = load_i32(like + ARRAY_NDIM), load_i64(like + ARRAY_SHAPE)
    n = 1
    for d in range(rank):
        n *= get(shape, d)
    # Clearing takes much longer than looking.
    if raised_flags(flags) != 0:
        clear_flags(flags)
    result = call_new_array(
        get(desk, D_NEW_ARRAY), get(desk, D_ARRAY), rank, shape, NUM_FLOAT64, 0, 0, 0, 0, 0
    )
    if result == 0:
        clear_exception()
        return 0
    out = load_i64(result + ARRAY_DATA)
    at_a = load_i64(a + ARRAY_DATA) if dense_a else a + NUMBER
    at_b = load_i64(b + ARRAY_DATA) if dense_b else b + NUMBER
    if which == ADDS:
        _add(n, out, at_a, dense_a, at_b, dense_b)
    elif which == SUBTRACTS:
        _subtract(n, out, at_a, dense_a, at_b, dense_b)
    elif which == MULTIPLIES:
        _multiply(n, out, at_a, dense_a, at_b, dense_b)
    else:
        _divide(n, out, at_a, dense_a, at_b, dense_b)
    if raised_flags(flags) != 0:
        release_object(result)
        return 0
    return result


@native
def _computed(ufunc, a, b):
    """What a ufunc makes of two operands, a new reference; 0 with an exception set."""
    operands = new_tuple(2)
    if operands == 0:
        return 0
    _put_item(operands, 0, a)
    _put_item(operands, 1, b)
    value = call_with_tuple(ufunc, operands, 0)
    release_object(operands)
    return value


@native
def _finished(desk, card, record, n0, n1, a, b, value):
    """The result of an operator from its value (0: an exception is set)."""
    if value == 0:
        return 0
    if record == 0 or record == get(desk, D_NO_GRAD):
        return _untracked(desk, value)
    return _recorded(desk, card, record, n0, n1, a, b, value)


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def one(self, arguments, count, names):
    """An op of one operand, a tensor."""
    card = int_value(get(self + TUPLE_ITEMS, 0))
    desk = get(card, C_DESK)
    x = get(arguments, 0)
    if count != 1 or names != 0 or type_of(x) != get(desk, D_TENSOR):
        return _asked(card, arguments, count, names)
    a, node = load_i64(x + get(desk, D_DATA)), load_i64(x + get(desk, D_NODE))
    if a == 0 or node == 0 or not _is_small(desk, card, a):
        return _asked(card, arguments, count, names)
    record = 0
    if node != get(desk, D_NONE):
        record = _recorder(desk)
        if record == 0:
            return _asked(card, arguments, count, names)
    hold(a)
    hold(node)
    if get(card, C_COMPUTE) != 0:
        value = call_1(get(card, C_COMPUTE), a)
    else:
        value = call_with_one(get(card, C_UFUNC), a)
    none = get(desk, D_NONE)
    result = _finished(desk, card, record, node, none, a, none, value)
    release_object(a)
    release_object(node)
    _let_go(record)
    return result


@native
def _let_go(reference):
    if reference != 0:
        release_object(reference)


@native
def _is_operand(desk, card, given, value, tracked):
    """Whether an operand is known here: small, or a Python number (an int only beside a tracked tensor, which is inexact)."""
    kind = type_of(value)
    if given == value and (kind == get(desk, D_FLOAT) or (kind == get(desk, D_INT) and tracked)):
        return True
    return _is_small(desk, card, value)


@native
def _is_replaced(desk, value, needed):
    kind = type_of(value)
    return kind == get(desk, D_INT) or (needed != 0 and kind == get(desk, D_ARRAY))


@native
def _replacement(desk, value):
    """The same value as a float, or in an array of its own (a new reference); 0 with an exception set."""
    if type_of(value) == get(desk, D_INT):
        return as_float(value)
    return call_2(get(desk, D_COPY_ARRAY), value, KEEP_ORDER)


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def two(self, arguments, count, names):
    """A binary operator: both operands tensors, or one a Python number. `C_REFLECTED`: the second argument stands on the left."""
    card = int_value(get(self + TUPLE_ITEMS, 0))
    desk = get(card, C_DESK)
    if count != 2 or names != 0:
        return _asked(card, arguments, count, names)
    none, tensor = get(desk, D_NONE), get(desk, D_TENSOR)
    at_x = get(card, C_REFLECTED)
    x, y = get(arguments, at_x), get(arguments, 1 - at_x)
    a, b, n0, n1 = x, y, none, none
    if type_of(x) == tensor:
        a, n0 = load_i64(x + get(desk, D_DATA)), load_i64(x + get(desk, D_NODE))
    if type_of(y) == tensor:
        b, n1 = load_i64(y + get(desk, D_DATA)), load_i64(y + get(desk, D_NODE))
    if a == 0 or b == 0 or n0 == 0 or n1 == 0 or (a == x and b == y):
        return _asked(card, arguments, count, names)
    tracked = n0 != none or n1 != none
    if not _is_operand(desk, card, x, a, tracked) or not _is_operand(desk, card, y, b, tracked):
        return _asked(card, arguments, count, names)
    record = 0
    if tracked:
        record = _recorder(desk)
        if record == 0:
            return _asked(card, arguments, count, names)
    # Replaced by what the tape may keep (new references): a float for an int, a copy of a user's array that a rule needs.
    own_a = own_b = 0
    if a == x and tracked and _is_replaced(desk, a, get(card, C_KEEPS_X)):
        own_a = a = _replacement(desk, a)
    if b == y and tracked and _is_replaced(desk, b, get(card, C_KEEPS_Y)):
        own_b = b = _replacement(desk, b)
    if a == 0 or b == 0:
        _let_go(own_a)
        _let_go(own_b)
        _let_go(record)
        return 0
    # Computing may run anybody's code (a handler of floating-point errors, say): what is read here is held.
    hold(a)
    hold(b)
    hold(n0)
    hold(n1)
    value = _arithmetic(desk, get(card, C_ARITHMETIC), a, b)
    if value != 0:
        pass
    elif get(card, C_MODULUS) != 0:
        value = call_3(get(card, C_COMPUTE), a, b, none)
    elif get(card, C_COMPUTE) != 0:
        value = call_2(get(card, C_COMPUTE), a, b)
    else:
        value = _computed(get(card, C_UFUNC), a, b)
    if value != 0 and not _is_small(desk, card, value):
        release_object(value)
        result = _asked(card, arguments, count, names)
    else:
        result = _finished(desk, card, record, n0, n1, a, b, value)
    release_object(a)
    release_object(b)
    release_object(n0)
    release_object(n1)
    _let_go(own_a)
    _let_go(own_b)
    _let_go(record)
    return result


@entry_point(ADDRESS(ADDRESS, ADDRESS, int64, ADDRESS))
def hook(self, arguments, count, names):
    """NumPy's hook for ufuncs, `(tensor, ufunc, method, *operands)`: a plain call of a native op goes straight there."""
    card = int_value(get(self + TUPLE_ITEMS, 0))
    if names == 0 and count > 3 and differs(get(arguments, 2), get(card, C_CODE)) == 0:
        generated = item_of_dict(get(card, C_UFUNC), get(arguments, 1))
        function = generated
        if generated != 0:
            function = item_of_dict(get(card, C_COMPUTE), generated)
        if function != 0:
            hold(function)
            result = call_with_some(function, arguments + 24, count - 3, 0)
            release_object(function)
            return result
        clear_exception()
    return _asked(card, arguments, count, names)


FOR_OPERATORS = {"one": one, "two": two, "hook": hook}
"""The functions by the number of operands, and the hook, whose card has the name of a plain call and the tables UFUNCS and NATIVE."""
