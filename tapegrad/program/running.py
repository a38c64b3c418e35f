"""A program in machine code, and the call that Python makes of it.

`Compiled` is called with the arguments of the program, the arrays for its outputs and scratch memory. The entry is written in IR too: it
reads addresses and lengths from the objects, checks types, dtypes, layouts, lengths and what the program assumes of sizes, and finds
room for temporaries in the scratch memory. It answers DONE, one of the codes below, or how many bytes of scratch it needs; where the
first output is to be a number, that number, a float, in the place of DONE.

Invariant: nothing but scratch memory and outputs is written, and none of it before the checks of arguments have passed. A loop that ends
by a condition may find as it runs that its stack is too small or an index out of bounds; the call is then made again, or of no use.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np

from ..core import checking, storage
from ..errors import CheckedAccessError
from ..llvm import jit
from ..llvm.objects import DATA, DIMS, H, Text
from .affine import Affine, Extreme
from .expressions import B1, F4, F8
from .form import Buffer, Program, loops
from .writer import BYTES, ELEMENT, MISFIT, Writer

DONE, OTHER, UNFIT, NAN, AGAIN = 0, -1, -2, -3, -4
"""Done; arguments of other types or another pattern of equal extents; sizes for which the program's assumptions do not hold; done, and
there is a NaN in an output that is watched; not done, as a stack was too small, of which the next call has more."""

ROOM = 64
"""How many iterations of a loop that ends by a condition have room in the first call; each call that needs more doubles it."""

LEFT = -1000
"""In checked mode, LEFT - k: access k of `checks` (from 1) left its buffer."""

DTYPES = {
    F8: np.dtype(np.float64), F4: np.dtype(np.float32), B1: np.dtype(np.bool_), "i8": np.dtype(np.int64), "i4": np.dtype(np.int32),
}  # fmt: skip
LARGEST = 1 << 46
"""Bytes of temporaries beyond which a size is nonsense."""

RECYCLED, KEPT = 1 << 18, 1 << 26
"""Bytes of an array from which on fresh pages take longer than what is written to them; bytes of such arrays that a thread keeps."""

threads = threading.local()
"""Of each thread: `scratch`, the memory that its next call is given, and `results`, large arrays that `room_like` made."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the call: a buffer (an array, or a number of no extents), or a whole number: `residue` + `period` * the size."""

    buffer: Buffer | None
    size: str = ""
    period: int = 1
    residue: int = 0


class Compiled:
    """Machine code of a program; see `call`."""

    def __init__(
        self,
        program: Program,
        given: Sequence[Argument],
        number: bool,
        watched: Collection[Buffer] = (),
        guarded: bool = False,
    ) -> None:
        """Compile a program with an entry from Python for arguments of these kinds."""
        self.program, self.given = program, list(given)
        writer = Writer(program, guarded)
        body = writer.text()
        self.scratch = any(b.role in ("temporary", "counter") for b in writer.arguments)
        """Whether it needs scratch memory at all."""
        self.checks = writer.checks
        self.text = body + _Entry(program, self.given, writer.arguments, number, watched).text()
        part = jit.compiled(self.text, jit.VECTORISED)
        self.library = jit.Library([part.code], ["tg_entry"], _objects(), part.asks, None)
        name = program.name
        self.call = jit.builtin(self.library.addresses["tg_entry"], name, self.library)
        """(*arguments, *outputs, scratch) -> a code, or bytes of scratch that it needs; with `number`, the first output is none of the
        arguments but what comes back."""
        self.took = 0
        """Bytes of the scratch memory that was last made for it."""

    def answered(self, given: Sequence[Any], limit: int = LARGEST) -> Any:
        """What a call answers, with this thread's scratch memory; UNFIT where it needs more than `limit` bytes of that."""
        scratch = getattr(threads, "scratch", None)
        threads.scratch = None  # a call meanwhile, from a signal say, has memory of its own
        try:
            if scratch is None:
                scratch = np.empty(128)
            found = self.call(*given, scratch)
            while type(found) is int and (found > 0 or found == AGAIN):
                if found > limit:
                    return UNFIT
                if found > 0:
                    scratch = np.empty(found // 8 + 1)
                    self.took = scratch.nbytes
                found = self.call(*given, scratch)
            if type(found) is int and found < AGAIN:
                self.refuse(found)
            return found
        finally:
            threads.scratch = scratch

    def refuse(self, code: int) -> None:
        """Raise what a code of checked mode tells."""
        if code <= LEFT:
            raise CheckedAccessError(
                f"{self.program.name} left a buffer at {self.checks[LEFT - code - 1]} in its derivative. The function indexes beyond its "
                "arrays, or tapegrad is wrong: run it with numba.njit(boundscheck=True) to see which."
            )


def room_like(a: np.ndarray) -> np.ndarray:
    """An array of the shape and dtype of `a`, of unknown contents. A large array is one that an earlier call in this thread was given, if
    nobody else holds that array any more."""
    if not RECYCLED <= a.nbytes <= KEPT // 2:
        return np.empty_like(a)
    kept = threads.__dict__.setdefault("results", [])
    for _ in range(len(kept)):
        found = kept.pop(0)
        if (
            getrefcount(found) == storage.LONE
            and storage.owns(found)
            and (found.shape, found.strides, found.dtype) == (a.shape, a.strides, a.dtype)
        ):
            break
        kept.append(found)
    else:
        found = np.empty_like(a)
    kept.append(found)
    while sum(x.nbytes for x in kept) > KEPT:
        kept.pop(0)
    return found


def kept_bytes() -> int:
    """Bytes of memory that this thread keeps: scratch, and large results."""
    scratch, results = (getattr(threads, name, None) for name in ("scratch", "results"))
    return sum(int(x.nbytes) for x in (scratch, *(results or ())) if x is not None)


def release_memory() -> None:
    """Give the memory back that this thread keeps."""
    threads.__dict__.clear()


def _objects() -> dict[str, int]:
    found: dict[str, object] = {
        "tg_ndarray": np.ndarray,
        "tg_float": float,
        "tg_float64": np.float64,
        "tg_int": int,
    }
    found |= {f"tg_dtype_{k}": d for k, d in DTYPES.items()}
    return {name: id(thing) for name, thing in found.items()}


class _Entry(Text):
    """Writes the entry."""

    def __init__(
        self,
        program: Program,
        given: list[Argument],
        pointers: list[Buffer],
        number: bool,
        watched: Collection[Buffer],
    ) -> None:
        """An empty entry for arguments of these kinds; `pointers` are the buffers that the program takes, in order."""
        super().__init__(
            "define ptr @tg_entry(ptr %self, ptr %args, i64 %count, ptr %names) {", set()
        )
        self.program, self.given, self.pointers = program, given, pointers
        self.number, self.watched = number, watched
        self.sizes: dict[str, str] = {}
        self.at: dict[Buffer, str] = {}

    def unless(self, test: str, code: int) -> None:
        """Answer with a code where a condition does not hold."""
        with self.where_not(test):
            self._answer(str(code))

    @contextmanager
    def where_not(self, test: str) -> Iterator[None]:
        """What is written within runs where a condition does not hold, and answers."""
        self.count += 1
        k = self.count
        self.say(f"br i1 {test}, label %on{k}, label %end{k}")
        self.mark(f"end{k}")
        yield
        self.mark(f"on{k}")

    def _answer(self, value: str) -> None:
        self.say(f"ret ptr {self.let(f'call ptr @PyLong_FromLongLong(i64 {value})')}")

    def whole(self, e: Affine) -> str:
        total = str(e.const)
        for name, c in e.terms:
            term = self.let(f"mul i64 {self.sizes[name]}, {c}")
            total = self.let(f"add i64 {total}, {term}")
        return total

    def text(self) -> str:
        """The entry: check the arguments, read pointers and sizes, call the program, and make a number of its result if wanted."""
        outputs = self.program.outputs[1:] if self.number else self.program.outputs
        total = len(self.given) + len(outputs) + 1
        self.unless(self.let(f"icmp eq i64 %count, {total}"), OTHER)
        for k, a in enumerate(self.given):
            thing = self.item("%args", k)
            if a.buffer is None:
                self._size(thing, a)
            elif a.buffer.extents:
                self._array(thing, a.buffer)
            else:
                self._number(thing, a.buffer)
        for k, b in enumerate(outputs, len(self.given)):
            self.at[b] = self.field(self.item("%args", k), DATA)
        if self.number:
            self.at[self.program.outputs[0]] = self.let("alloca double")
        for room in self.program.rooms:
            self.sizes[room] = self.let(f"load i64, ptr @tg_{room}")
        for e in dict.fromkeys(n for claim in self.program.assumptions for n, _ in claim.terms):
            if isinstance(e, Extreme):
                self.sizes[e] = self._extreme(e)
        for claim in self.program.assumptions:
            self.unless(self.let(f"icmp sge i64 {self.whole(claim)}, 0"), UNFIT)
        self._scratch(self.item("%args", total - 1))
        passed = [f"ptr {self.at[b]}" for b in self.pointers]
        passed += [f"i64 {self.sizes[s]}" for s in self.program.sizes]
        left = self.let(f"call i32 @work({', '.join(passed)})")
        self._left(left)
        if checking.on():
            with self.where_not(self.equal(left, 0, "i32")):
                wide = self.let(f"sext i32 {left} to i64")
                self._answer(self.let(f"sub i64 {LEFT}, {wide}"))
        for b in self.watched:
            self._watch(b)
        if self.number:
            value = self.let(f"load double, ptr {self.at[self.program.outputs[0]]}")
            self.say(f"ret ptr {self.let(f'call ptr @PyFloat_FromDouble(double {value})')}")
        else:
            self._answer(str(DONE))
        declared = ["declare ptr @PyLong_FromLongLong(i64)", "declare i64 @PyLong_AsLongLong(ptr)"]
        declared += ["declare ptr @PyFloat_FromDouble(double)", "declare void @PyErr_Clear()"]
        declared += ["declare i64 @llvm.smax.i64(i64, i64)"]
        declared += [f"@{name} = external global i8" for name in _objects()]
        declared += [f"@tg_{room} = internal global i64 {ROOM}" for room in self.program.rooms]
        return "\n".join([*declared, *self.lines, "}"]) + "\n"

    def _left(self, left: str) -> None:
        """What it means that the program was left early, by a loop that ends by a condition, or a call: see `writer.MISFIT`."""
        if not self.program.rooms and not any(s.until or s.call for s in loops(self.program.body)):
            return
        self.unless(self.let(f"icmp ne i32 {left}, {MISFIT}"), UNFIT)
        for k, room in enumerate(self.program.rooms, 1):
            with self.where_not(self.let(f"icmp ne i32 {left}, {-k}")):
                twice = self.let(f"mul i64 {self.sizes[room]}, 2")
                self.say(f"store i64 {twice}, ptr @tg_{room}")
                self._answer(str(AGAIN))

    def _is(self, thing: str, name: str, other: str = "") -> str:
        """Whether an object's class is one of these."""
        kind = self.field(thing, H - 8)
        found = self.equal(kind, f"@{name}")
        return self.let(f"or i1 {found}, {self.equal(kind, f'@{other}')}") if other else found

    def _size(self, thing: str, a: Argument) -> None:
        """Read a size from a Python int; one that is counted in periods must leave the residue that the program was made for."""
        self.unless(self._is(thing, "tg_int"), OTHER)
        n = self.let(f"call i64 @PyLong_AsLongLong(ptr {thing})")
        with self.where_not(self.let(f"icmp sge i64 {n}, 0")):
            self.say("call void @PyErr_Clear()")
            self._answer(str(UNFIT))
        if a.period > 1:
            n = self._quotient(n, a.period, a.residue)
        if a.size in self.sizes:
            raise ValueError(f"two arguments are called {a.size}")
        self.sizes[a.size] = n

    def _quotient(self, n: str, period: int, residue: int) -> str:
        """A whole number through another one, of which this must remain."""
        rest = self.let(f"urem i64 {n}, {period}")
        self.unless(self.let(f"icmp eq i64 {rest}, {residue}"), OTHER)
        return self.let(f"udiv i64 {n}, {period}")

    def _number(self, thing: str, b: Buffer) -> None:
        if b.dtype != F8:
            raise ValueError("a number of another dtype than float64 has no entry")
        self.unless(self._is(thing, "tg_float", "tg_float64"), OTHER)
        self.at[b] = self.inside(thing, H)

    def _array(self, thing: str, b: Buffer) -> None:
        self.unless(self._is(thing, "tg_ndarray"), OTHER)
        self.unless(self.dense(thing, len(b.extents), f"@tg_dtype_{b.dtype}"), OTHER)
        dims = self.field(thing, DIMS)
        for d, n in enumerate(b.extents):
            self._extent(n, self.item(dims, d, "i64"))
        self.at[b] = self.field(thing, DATA)

    def _extent(self, n: Affine, found: str) -> None:
        name = n.terms[0][0] if n.terms else ""
        if not n.terms:
            self.unless(self.let(f"icmp eq i64 {found}, {n.const}"), OTHER)
        elif name in self.sizes:
            self.unless(self.let(f"icmp eq i64 {found}, {self.whole(n)}"), OTHER)
        elif len(n.terms) != 1:
            raise ValueError(f"an argument's extent {n} is known by nothing")
        elif n.terms[0][1] > 1:
            self.sizes[name] = self._quotient(found, n.terms[0][1], n.const)
        else:
            self.sizes[name] = found

    def _total(self, b: Buffer) -> str:
        """How many elements a buffer has."""
        total = "1"
        for n in b.extents:
            total = self.let(f"mul i64 {total}, {self.whole(n)}")
        return total

    def _extreme(self, e: Extreme) -> str:
        """The least or greatest of an array of whole numbers; 0 of an empty one."""
        total = self._total(e.of)
        self.count += 1
        k, kind = self.count, ELEMENT[e.of.dtype]
        at, word = self.at[e.of], "sgt" if e.most else "slt"
        self.lines += [
            f"  %some{k} = icmp sgt i64 {total}, 0", f"  br i1 %some{k}, label %first{k}, label %none{k}",
            f"none{k}:", f"  br label %found{k}",
            f"first{k}:", f"  %start{k} = load {kind}, ptr {at}", f"  br label %next{k}", f"next{k}:",
            f"  %i{k} = phi i64 [ 0, %first{k} ], [ %on{k}, %next{k} ]",
            f"  %best{k} = phi {kind} [ %start{k}, %first{k} ], [ %new{k}, %next{k} ]",
            f"  %at{k} = getelementptr {kind}, ptr {at}, i64 %i{k}", f"  %x{k} = load {kind}, ptr %at{k}",
            f"  %more{k} = icmp {word} {kind} %x{k}, %best{k}",
            f"  %new{k} = select i1 %more{k}, {kind} %x{k}, {kind} %best{k}",
            f"  %on{k} = add nsw i64 %i{k}, 1", f"  %left{k} = icmp slt i64 %on{k}, {total}",
            f"  br i1 %left{k}, label %next{k}, label %all{k}", f"all{k}:", f"  br label %found{k}", f"found{k}:",
        ]  # fmt: skip
        found = self.let(f"phi {kind} [ 0, %none{k} ], [ %new{k}, %all{k} ]")
        found = found if kind == "i64" else self.let(f"sext {kind} {found} to i64")
        for word, end in (("sge", -LARGEST), ("sle", LARGEST)):  # so that no sum wraps around
            self.unless(self.let(f"icmp {word} i64 {found}, {end}"), UNFIT)
        return found

    def _watch(self, b: Buffer) -> None:
        """Answer NAN if there is one in an output."""
        total = self._total(b)
        self.count += 1
        k, kind = self.count, ELEMENT[b.dtype]
        self.lines += [
            f"  br label %before{k}", f"before{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ 0, %before{k} ], [ %next{k}, %body{k} ]",
            f"  %any{k} = phi i1 [ false, %before{k} ], [ %more{k}, %body{k} ]",
            f"  %on{k} = icmp slt i64 %i{k}, {total}", f"  br i1 %on{k}, label %body{k}, label %after{k}", f"body{k}:",
            f"  %at{k} = getelementptr {kind}, ptr {self.at[b]}, i64 %i{k}", f"  %x{k} = load {kind}, ptr %at{k}",
            f"  %nan{k} = fcmp uno {kind} %x{k}, %x{k}", f"  %more{k} = or i1 %any{k}, %nan{k}",
            f"  %next{k} = add nsw i64 %i{k}, 1", f"  br label %head{k}", f"after{k}:",
        ]  # fmt: skip
        self.unless(self.let(f"icmp eq i1 %any{k}, false"), NAN)

    def _scratch(self, thing: str) -> None:
        """Room for temporaries, one behind the other."""
        temporaries = [b for b in self.pointers if b not in self.at]
        start, offsets = "0", []
        for b in temporaries:
            bytes_ = str(BYTES[b.dtype])
            for n in b.extents:
                extent = self.let(f"call i64 @llvm.smax.i64(i64 {self.whole(n)}, i64 0)")
                self.unless(self.let(f"icmp sle i64 {extent}, {LARGEST}"), UNFIT)
                bytes_ = self.let(f"mul i64 {bytes_}, {extent}")
                self.unless(self.let(f"icmp sle i64 {bytes_}, {LARGEST}"), UNFIT)
            padded = self.let(f"and i64 {self.let(f'add i64 {bytes_}, 127')}, -64")
            offsets.append(start)
            start = self.let(f"add i64 {start}, {padded}")
        room = self.let(f"mul i64 {self.item(self.field(thing, DIMS), 0, 'i64')}, 8")
        with self.where_not(self.let(f"icmp sge i64 {room}, {start}")):
            self._answer(start)
        base = self.field(thing, DATA)
        for b, offset in zip(temporaries, offsets, strict=True):
            self.at[b] = self.let(f"getelementptr i8, ptr {base}, i64 {offset}")


__all__ = [
    "DONE",
    "NAN",
    "OTHER",
    "UNFIT",
    "Argument",
    "Compiled",
    "kept_bytes",
    "release_memory",
    "threads",
]
