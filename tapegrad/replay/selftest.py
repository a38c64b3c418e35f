"""The self-test: does the compiled machine read CPython's and NumPy's objects rightly?

Layouts are not promised by anyone. Before the first use every offset of layout.py is tried on sample objects through
the compiled accessors themselves; one wrong answer makes replay unavailable, and the sweep does the work.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .layout import (
    BOOL,
    COMPLEX128,
    FLOAT32,
    FLOAT64,
    INTP,
    OTHER,
    PROBE_BASE,
    PROBE_INT,
    PROBE_LIST_ITEM,
    PROBE_LIST_SIZE,
    PROBE_REFERENCES,
    PROBE_SLICE,
    PROBE_TUPLE_ITEM,
    PROBE_TUPLE_SIZE,
    PROBE_TYPE,
    PY_FLOAT,
    PY_INT,
    V_CONTIGUOUS,
    V_DATA,
    V_KIND,
    V_NDIM,
    V_SHAPE,
    V_SIZE,
    V_STRIDES,
    VALUE,
)


def failures(machine: Any) -> Iterator[str]:
    """What the machine reads wrongly, in words; nothing if all is well."""
    probe = machine.probe
    for value in (0, 1, 7, 255, 1 << 20, (1 << 30) - 1, 1 << 30, (1 << 45) + 12345, (1 << 60) - 1):
        for signed in (value, -value):
            if probe(PROBE_INT, id(signed), 0) != signed:
                yield f"the int {signed}"
    objects = [object(), 1.5, "a"]
    if probe(PROBE_LIST_SIZE, id(objects), 0) != 3 or probe(PROBE_TUPLE_SIZE, id((1, 2)), 0) != 2:
        yield "the length of a list or tuple"
    pair = tuple(objects)
    for i, item in enumerate(objects):
        if probe(PROBE_LIST_ITEM, id(objects), i) != id(item) or probe(
            PROBE_TUPLE_ITEM, id(pair), i
        ) != id(item):
            yield f"item {i} of a list or tuple"
        if probe(PROBE_TYPE, id(item), 0) != id(type(item)):
            yield f"the type of {type(item).__name__}"
    piece = slice(3, None, -2)
    if [probe(PROBE_SLICE, id(piece), i) for i in range(3)] != [
        id(piece.start),
        id(None),
        id(piece.step),
    ]:
        yield "the parts of a slice"
    slot = int("123456789")
    held = [slot] * 5
    if probe(PROBE_REFERENCES, id(slot), 0) != sys.getrefcount(slot) - 1 or len(held) != 5:
        yield "the reference count of an int"
    owner = np.zeros(4)
    part = owner[1:][::2]
    if probe(PROBE_BASE, id(part), 0) != id(owner) or probe(PROBE_BASE, id(owner), 0):
        yield "the base of an array"
    for value, kind in _values():
        wrong = _misread(machine, value, kind)
        if wrong:
            yield wrong


def _values() -> Iterator[tuple[Any, int]]:
    """Values of all kinds that the machine must read right, each with its kind."""
    base = np.arange(24.0).reshape(2, 3, 4)
    yield base, FLOAT64
    yield base.transpose(2, 0, 1)[::-2, :, ::2], FLOAT64
    yield np.broadcast_to(np.float64(2.5), (3, 2)), FLOAT64
    yield np.array(1.25), FLOAT64
    yield np.empty((0, 3)), FLOAT64
    yield base.astype(np.float32)[:, 1], FLOAT32
    yield (base + 1j)[1], COMPLEX128
    yield base > 3, BOOL
    yield np.arange(3, dtype=np.intp), INTP
    yield base.astype(">f8"), OTHER
    yield base.astype(np.float16), OTHER
    yield base.astype(np.complex64), OTHER
    yield np.arange(3, dtype=np.int16), OTHER
    yield np.zeros(9, np.uint8)[1:].view(np.float64), OTHER  # not aligned
    yield np.ma.masked_array([1.0]), OTHER
    yield np.float64(3.5), FLOAT64
    yield np.float32(3.5), FLOAT32
    yield np.complex128(3.5 - 1j), COMPLEX128
    yield 2 - 1j, COMPLEX128
    yield 4.5, PY_FLOAT
    yield 12, PY_INT
    yield True, OTHER
    yield np.int64(3), OTHER
    yield None, OTHER
    yield "text", OTHER


_READ = {FLOAT64: ctypes.c_double, PY_FLOAT: ctypes.c_double, FLOAT32: ctypes.c_float}


def _misread(machine: Any, value: Any, kind: int) -> str:
    """What the machine misreads of a value, in words; empty where all is right."""
    record = np.zeros(VALUE, np.int64)
    found = machine.probe_value(machine.world_address, id(value), record.ctypes.data)
    if found != kind or record[V_KIND] != kind:
        return (
            f"the kind of {type(value).__name__} {getattr(value, 'dtype', '')}: {found} for {kind}"
        )
    if type(value) is np.ndarray:
        shape = [_word(int(record[V_SHAPE]), d) for d in range(value.ndim)]
        strides = [_word(int(record[V_STRIDES]), d) for d in range(value.ndim)]
        told = (
            record[V_DATA],
            record[V_NDIM],
            shape,
            strides,
            record[V_SIZE],
            bool(record[V_CONTIGUOUS]),
        )
        true = (
            value.ctypes.data,
            value.ndim,
            list(value.shape),
            list(value.strides),
            value.size,
            value.flags.c_contiguous,
        )
        if told != true:
            return f"an array: {told} for {true}"
    elif kind in _READ and _READ[kind].from_address(int(record[V_DATA])).value != value:
        return f"the value of a {type(value).__name__}"
    elif kind == COMPLEX128:
        parts = (ctypes.c_double * 2).from_address(int(record[V_DATA]))
        if complex(*parts) != value:
            return f"the value of a {type(value).__name__}"
    return ""


def _word(address: int, i: int) -> int:
    return ctypes.c_int64.from_address(address + 8 * i).value
