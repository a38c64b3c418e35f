"""What nopython code finds out about Python objects: ints, and the values an entry saved.

`describe` fills a record (kind, data, extents, strides, size, contiguity) from an array, a NumPy scalar or a Python
number; everything after it works on records only. A value of another type, byte order or alignment is OTHER:
no step takes it.
"""

# ruff: noqa: F405  layout's names are the constants of nopython code, dozens of them in each function

from __future__ import annotations

from .access import (
    get,
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    native,
    put,
    store_f32,
    store_f64,
)
from .layout import *  # noqa: F403


@native
def bump(block, word, by):
    put(block, word, get(block, word) + by)


@native
def type_of(address):
    return load_i64(address + TYPE)


if INT_TAGGED:

    @native
    def digits(address):
        """Number of digits of an int."""
        return load_i64(address + INT_HEAD) >> 3

    @native
    def sign(address):
        return 1 - (load_i64(address + INT_HEAD) & 3)

else:

    @native
    def digits(address):
        """Number of digits of an int."""
        return abs(load_i64(address + INT_HEAD))

    @native
    def sign(address):
        n = load_i64(address + INT_HEAD)
        return 1 if n > 0 else (-1 if n < 0 else 0)


@native
def int_value(address):
    """An int of at most two digits (below 2**60); check `digits` where that is not known."""
    n = digits(address)
    if n == 0:
        return 0
    value = load_u32(address + INT_DIGITS)
    if n > 1:
        value |= load_u32(address + INT_DIGITS + 4) << DIGIT_BITS
    return value * sign(address)


@native
def is_small_int(world, address):
    return type_of(address) == get(world, W_INT) and digits(address) <= 2


@native
def kind_of_dtype(world, dtype):
    if dtype == get(world, W_DTYPE_FLOAT64):
        return FLOAT64
    if dtype == get(world, W_DTYPE_FLOAT32):
        return FLOAT32
    if dtype == get(world, W_DTYPE_COMPLEX128):
        return COMPLEX128
    if dtype == get(world, W_DTYPE_BOOL):
        return BOOL
    if dtype == get(world, W_DTYPE_INTP):
        return INTP
    # An unpickled array has a dtype object of its own, equal to the usual one.
    if load_u8(dtype + DTYPE_BYTEORDER) == NATIVE_ORDER:
        num = load_i32(dtype + DTYPE_NUM)
        if num == NUM_FLOAT64:
            return FLOAT64
        if num == NUM_FLOAT32:
            return FLOAT32
        if num == NUM_COMPLEX128:
            return COMPLEX128
    return OTHER


@native
def describe(world, address, record):
    """Fill a record from a value; returns its kind."""
    put(record, V_OBJECT, address)
    kind = OTHER
    tp = type_of(address)
    if tp == get(world, W_ARRAY):
        ndim = load_i32(address + ARRAY_NDIM)
        shape = load_i64(address + ARRAY_SHAPE)
        flags = load_i32(address + ARRAY_FLAGS)
        size = 1
        for d in range(ndim):
            size *= get(shape, d)
        if flags & ALIGNED and ndim <= MAX_RANK:
            kind = kind_of_dtype(world, load_i64(address + ARRAY_DTYPE))
        put(record, V_DATA, load_i64(address + ARRAY_DATA))
        put(record, V_NDIM, ndim)
        put(record, V_SHAPE, shape)
        put(record, V_STRIDES, load_i64(address + ARRAY_STRIDES))
        put(record, V_SIZE, size)
        put(record, V_CONTIGUOUS, flags & C_CONTIGUOUS)
    else:
        if tp == get(world, W_FLOAT64):
            kind = FLOAT64
        elif tp == get(world, W_FLOAT):
            kind = PY_FLOAT
        elif tp == get(world, W_FLOAT32):
            kind = FLOAT32
        elif tp == get(world, W_COMPLEX128) or tp == get(world, W_COMPLEX):
            kind = COMPLEX128
        elif tp == get(world, W_INT) and digits(address) <= 2:
            kind = PY_INT
        put(record, V_DATA, address + NUMBER)
        put(record, V_NDIM, 0)
        put(record, V_SHAPE, 0)
        put(record, V_STRIDES, 0)
        put(record, V_SIZE, 1)
        put(record, V_CONTIGUOUS, 1)
    put(record, V_KIND, kind)
    return kind


@native
def same_form(a, b):
    """Whether two records agree in kind and extents."""
    ndim = get(a, V_NDIM)
    if get(a, V_KIND) != get(b, V_KIND) or ndim != get(b, V_NDIM):
        return False
    for d in range(ndim):
        if get(get(a, V_SHAPE), d) != get(get(b, V_SHAPE), d):
            return False
    return True


@native
def as_constant(record, kind, cell):
    """Make a value that is not differentiated readable in a program of this kind; False if it is not.

    Python numbers are converted into `cell`, as NumPy converts them; bools are left to `gather`.
    """
    own = get(record, V_KIND)
    if own == kind or own == BOOL:
        return True
    if own != PY_FLOAT and own != PY_INT:
        return False
    if own == PY_FLOAT and kind == FLOAT64:
        put(record, V_KIND, kind)
        return True
    address = get(record, V_DATA)
    value = load_f64(address) if own == PY_FLOAT else float(int_value(address - NUMBER))
    if kind == FLOAT32:
        store_f32(cell, value)
    else:
        store_f64(cell, value)
        store_f64(cell + 8, 0.0)
    put(record, V_DATA, cell)
    put(record, V_KIND, kind)
    return True


@native
def size_of(kind):
    return 8 if kind == FLOAT64 else (4 if kind == FLOAT32 else 16)
