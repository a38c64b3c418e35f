"""Loops of NumPy's ufuncs, called by address: what they compute needs no Python.

A ufunc holds the addresses of its loops, one for each type, which take pointers, lengths and strides. Code names a loop
`tapegrad_loop_ifft_DdD`, and what it is given besides `tapegrad_with_ifft_DdD`; the linker finds both in every process anew. `Caller`
writes the text of a routine (writer.py) of such calls.

Invariant: a loop is called only where, found at its address and tried once, it gave the answer of its ufunc.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import sanitizer
from .writer import Routine, Writer

LOOP, GIVEN = "tapegrad_loop_", "tapegrad_with_"
known: dict[str, int] = {}
"""Symbol -> address, of all that was borrowed so far, LAPACK's functions (lapack.py) among them."""


class Borrowed:
    """A loop that gave the right answer."""

    __slots__ = ("given", "symbol")

    def __init__(self, symbol: str, given: str) -> None:
        self.symbol = symbol
        self.given = given
        """The symbol of what it is given besides; empty where that is nothing."""


def addresses() -> dict[str, int]:
    """Symbol -> address, for the linker."""
    return dict(known)


def borrowed(
    ufunc: Any,
    operands: Sequence[np.ndarray],
    out: np.ndarray | Sequence[np.ndarray],
    lengths: Sequence[int],
    strides: Sequence[int],
) -> Borrowed | None:
    """The loop of a ufunc for the types of these operands, tried on them; None where it is not found, or answers otherwise."""
    if not isinstance(ufunc, np.ufunc):
        return None
    outs = [out] if isinstance(out, np.ndarray) else out
    types, made_of = ("".join(x.dtype.char for x in xs) for xs in (operands, outs))
    found = _loop(ufunc, f"{types}->{made_of}")
    if found is None:
        return None
    loop, given = found
    expected = [np.zeros_like(x) for x in outs]
    ufunc(*operands, *expected)
    for x in outs:
        x[...] = 0
    pointers = [x.ctypes.data for x in (*operands, *outs)]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop)
    run(
        (ctypes.c_void_p * len(pointers))(*pointers),
        (ctypes.c_ssize_t * len(lengths))(*lengths),
        (ctypes.c_ssize_t * len(strides))(*strides),
        given,
    )
    if not all((x == y).all() for x, y in zip(outs, expected, strict=True)):
        return None
    name = f"{ufunc.__name__}_{types}{made_of}"
    made = Borrowed(LOOP + name, GIVEN + name if given else "")
    known[made.symbol] = loop
    if given:
        known[made.given] = given
    return made


def _loop(ufunc: np.ufunc, types: str) -> tuple[int, int] | None:
    """(a loop, what it is given) of a ufunc for these types.

    Source: `PyUFuncObject` in NumPy's C API: nin, nout, nargs, identity, the loops, what they are given, how many there are.
    """
    integer, pointer = ctypes.sizeof(ctypes.c_int), ctypes.sizeof(ctypes.c_void_p)
    at = id(ufunc) + object.__basicsize__
    told = (ctypes.c_int * 3).from_address(at)[:]
    loops, data = (ctypes.c_void_p * 2).from_address(at + 4 * integer)
    count = ctypes.c_int.from_address(at + 4 * integer + 2 * pointer).value
    expected = [ufunc.nin, ufunc.nout, ufunc.nargs]
    if pointer != 8 or told != expected or count != ufunc.ntypes or types not in ufunc.types:
        return None
    k = ufunc.types.index(types)
    loop = (ctypes.c_void_p * count).from_address(loops)[k] if loops else None
    given = (ctypes.c_void_p * count).from_address(data)[k] if data else None
    return (loop, given or 0) if loop else None


class Caller:
    """Writes a routine that calls loops: (inputs, output %x, scratch memory %s) -> 1."""

    def __init__(
        self, kind: str, operands: int, lengths: int, strides: int, inputs: Sequence[str] = ("%a",)
    ) -> None:
        self.writer = Writer(kind)
        self.inputs = inputs
        self.scratch = 0
        self.asked: dict[str, str] = {}
        self.writer.lines += [
            f"  %pointers = alloca [{operands} x ptr]", f"  %lengths = alloca [{lengths} x i64]",
            f"  %strides = alloca [{strides} x i64]",
        ]  # fmt: skip

    def memory(self, size: int) -> str:
        """Scratch memory of so many bytes."""
        at = self.scratch
        self.scratch += (size + 63) // 64 * 64
        return self.writer.let(f"getelementptr i8, ptr %s, i64 {at}")

    def _set(self, name: str, kind: str, values: Sequence[Any]) -> None:
        for k, value in enumerate(values):
            place = self.writer.let(f"getelementptr {kind}, ptr {name}, i64 {k}")
            self.writer.lines.append(f"  store {kind} {value}, ptr {place}")

    def lengths(self, values: Sequence[int]) -> None:
        """How many operations there are, and how long the axes that each goes over."""
        self._set("%lengths", "i64", values)

    def strides(self, values: Sequence[int]) -> None:
        """Bytes from one operation to the next, by operand; then from one entry to the next, by operand and axis."""
        self._set("%strides", "i64", values)

    def call(self, loop: Borrowed, pointers: Sequence[str], sizes: Sequence[int]) -> None:
        """Call a loop, whose operands lie at `pointers` and reach over `sizes` bytes; the routine's inputs are read, the rest written."""
        for pointer, size in zip(pointers, sizes, strict=True):
            word = "read" if pointer in self.inputs else "write"
            self.writer.lines += sanitizer.said(f"{word} {pointer} {size}")
        self._set("%pointers", "ptr", pointers)
        self.asked[loop.symbol] = f"declare void @{loop.symbol}(ptr, ptr, ptr, ptr)"
        if loop.given:
            self.asked[loop.given] = f"@{loop.given} = external global i8"
        given = f"@{loop.given}" if loop.given else "null"
        self.writer.lines.append(
            f"  call void @{loop.symbol}(ptr %pointers, ptr %lengths, ptr %strides, ptr {given})"
        )

    def routine(self, of: str, reads: list[Any], work: int) -> Routine:
        """The routine, whose name tells its text."""
        body = "\n".join(self.writer.lines)
        name = f"tg_{of}_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
        parameters = [*self.inputs, "%x", *(["%s"] if self.scratch else [])]
        text = self.writer.function(name, ", ".join(f"ptr {p}" for p in parameters))
        texts = {name: text, **self.asked}
        return Routine(of, name, reads, [], self.scratch, work, texts)
