"""Native parts: array expressions as one module of machine code, with the entry that Python calls.

    body      the loops of a schedule, a function of pointers
    tg_run    memory for the body, which it calls: a function of a table of pointers (the slower entry calls it by ctypes)
    tg_entry  METH_FASTCALL: checks, results, tg_run (entrance.py)
    tg_release  frees what is kept between calls, scratch memory and arrays; there is none where nothing is

Scratch memory is on the stack if small; else one block is kept by the module and lent to one call at a time, and a call that
finds it taken allocates its own: programs may run in many threads at once. Behind it lies what each thread of the team needs for
itself, so its size follows from their number at the time of the call.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import vecmath
from ..core import checking
from ..llvm import jit
from . import clocks, sanitizer, support, team
from .arrays import Arrays, Op
from .emit import Body
from .entrance import REFUSED, entry
from .guards import GuardFailed
from .schedule import Schedule, scheduled
from .summing import summed_first
from .surroundings import Watched

if TYPE_CHECKING:
    from .nesting import Module, Piece

STACK = 1 << 15
"""Bytes of scratch memory up to which it is on the stack."""

ATTRIBUTES = """attributes #0 = { nounwind }
attributes #1 = { nounwind willreturn memory(none) }
!0 = !{!"branch_weights", i32 1, i32 100000}"""

FEW = 16
"""Entries of an array up to which the lines that compute it run about once: they are vectors."""

LONG = 50_000
"""Characters of a program from which on it is looked whether each line runs about once, so that to make it faster takes longer than it
runs."""

MUCH = 2_000_000
"""Operations in a call of loops, about, for which LLVM's whole pipeline is worth its time."""

MOST_KEPT = 1 << 25
"""Bytes of scratch memory above which a call gives it back to the system."""


class Argument:
    """What an entry demands of an argument: a dtype, a shape, and whether it is Python's own float."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], weak: bool) -> None:
        self.dtype = dtype
        self.shape = shape
        self.weak = weak


class Result:
    """Shape and dtype of what an entry returns."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype


class Form:
    """How a program's arguments and result look from outside: nested tuples, lists and dicts, with leaves and constants.

    A tree is ("leaf", index), ("object", index of a constant: an argument must be that very object), ("tuple" | "list", *trees), or
    ("dict", indices of the keys among the constants, *trees).
    """

    __slots__ = ("arguments", "objects", "result", "watched", "weak")

    def __init__(
        self,
        arguments: Sequence[Any],
        result: Any,
        objects: Sequence[Any] = (),
        watched: Sequence[Watched] = (),
        weak: Sequence[int] = (),
    ) -> None:
        self.arguments = list(arguments)
        self.result = result
        self.weak = frozenset(weak)  # leaves of the result that are Python's own numbers
        self.objects = list(objects)
        self.watched = list(watched)  # what must be as it was, beside the arguments

    @classmethod
    def flat(cls, n_in: int, n_out: int) -> Form:
        """Arguments one by one, and a tuple of the outputs (or the only one)."""
        leaves = [("leaf", k) for k in range(n_out)]
        return cls(
            [("leaf", i) for i in range(n_in)], leaves[0] if n_out == 1 else ("tuple", *leaves)
        )


class Native:
    """Compiled expressions: `entry(*arguments)` returns the outputs, as a tuple (or the only one)."""

    def __init__(
        self,
        arrays: Arrays,
        arguments: Sequence[Argument],
        outputs: Sequence[Op],
        name: str,
        form: Form | None = None,
        slow: Callable[..., Any] | None = None,
    ) -> None:
        """Schedule, write, compile and load the outputs; `form` says how arguments arrive, `slow` is called for others."""
        timer = jit.Timer()
        self.arguments = list(arguments)
        checks = [op for op in arrays.checks if op.kind != "const"]
        self.shown = len(outputs)  # the others are for checks, and must be 0
        self.outputs = outputs = summed_first(arrays, [*outputs, *checks])
        self.results = [Result(op.shape, op.dtype) for op in outputs]
        self.schedule = scheduled(outputs)
        self.parts: list[tuple[Sequence[Op], Schedule]] = [(outputs, self.schedule)]
        self.loops = 0
        self.scratch = self.schedule.scratch
        self.work = _work(self.schedule)
        timer.lap("schedule")
        body = Body(self.schedule, jit.lanes())
        self.text = _module(self, body, arrays, form or Form.flat(len(self.arguments), self.shown))
        self.listing = "\n".join(body.loops)
        timer.lap("emit")
        self.constants = [np.ascontiguousarray(c) for c in arrays.constants]
        self._load(name, form, slow, timer, bool(body.shares))

    @classmethod
    def of_pieces(
        cls,
        module: Module,
        whole: Piece,
        arguments: Sequence[Argument],
        results: Sequence[Result],
        name: str,
        form: Form,
        slow: Callable[..., Any] | None,
        timer: jit.Timer,
    ) -> Native:
        """A program of loops (nesting.py), of which `whole` is the piece that is called."""
        native = cls.__new__(cls)
        native.arguments, native.results = list(arguments), list(results)
        native.shown = len(results)
        native.parts, native.loops = module.parts, module.loops
        native.routines = module.routines
        native.scratch, native.work = whole.scratch, whole.work
        native.interrupts = module.pauses
        native.text = _of_pieces(native, module, whole, form)
        native.listing = "\n".join(module.listing)
        native.constants = module.constants
        timer.lap("emit")
        native._load(name, form, slow, timer, module.shared)
        return native

    routines: Sequence[Any] = ()
    heap = False
    """Whether scratch memory is kept between calls."""

    interrupts = False
    """Whether it may run for any time, and looks whether Python was interrupted."""

    def _load(
        self,
        name: str,
        form: Form | None,
        slow: Callable[..., Any] | None,
        timer: jit.Timer,
        shared: bool,
    ) -> None:
        """Compile and link the text."""
        effort = jit.USUAL
        if self.loops:
            effort = jit.THOROUGH if self.work > MUCH else jit.LOOPED
        if len(self.text) > LONG and self.work < self.text.count("\n") and _of_numbers(self.parts):
            effort = jit.STRAIGHT
        self.text += clocks.declared(self.text)
        checked = sanitizer.Instrumented(self.text) if checking.on() else None
        if checked is None:
            codes, asks = jit.compiled_in_parts(self.text, effort)
        else:  # with so many calls there is little that LLVM could make faster
            part = jit.compiled(checked.text, min(effort, jit.USUAL))
            codes, asks = [part.code], set(part.asks)
        timer.lap("compile")
        slow = slow or functools.partial(_converted, weakref.ref(self))
        kept: list[Any] = [self.constants, slow]
        imports = {"tg_slow": id(slow)}
        imports |= {f"tg_const{i}": c.ctypes.data for i, c in enumerate(self.constants)}
        imports |= support.objects() | support.addresses()
        if (running := clocks.RUNNING.get()) is not None:
            imports["tg_clock"] = running.address
            kept.append(running)
        if shared:
            team.ready()
        if self.routines:
            from . import borrowed

            imports |= borrowed.addresses()
        for i, value in enumerate(form.objects if form else ()):
            imports[f"tg_object{i}"] = id(value)
            kept.append(value)
        for i, w in enumerate(form.watched if form else ()):
            imports |= {
                f"tg_at{i}": id(w.holder),
                f"tg_name{i}": id(w.name),
                f"tg_is{i}": id(w.value),
            }
            was = w.copy if w.copy is not None else w.words
            imports[f"tg_was{i}"] = was.ctypes.data if was is not None else 0
            kept.append((w, w.holder, w.name, w.value, was))
        exports = ["tg_run", "tg_entry"]
        exports += [s for s in ("tg_release",) if f" @{s}(" in self.text]
        exports += ["tg_fault_at"] if checked else []
        imports = {k: v for k, v in imports.items() if k in asks}
        library = jit.Library(codes, exports, imports, asks, kept)
        # A program that may be interrupted raises, which is allowed only to a call that holds the interpreter lock.
        kind = ctypes.PYFUNCTYPE if self.interrupts else ctypes.CFUNCTYPE
        self._run: Any = kind(ctypes.c_int32, ctypes.c_void_p)(library.addresses["tg_run"])
        self.library = library
        self.entry: Any = jit.builtin(library.addresses["tg_entry"], name, library)
        if checked is not None:
            self._run = sanitizer.Watched(self._run, name, library, checked)
            self.entry = sanitizer.Watched(self.entry, name, library, checked)
        timer.lap("link")
        self.seconds = timer.seconds
        self.size = sum(map(len, codes))

    def by_table(self, values: Sequence[Any]) -> list[Any]:
        """The outputs, by the slower entry: for where the layout of Python's objects is unknown."""
        given = [
            np.require(np.asarray(v, a.dtype), None, ["C", "A"])
            for v, a in zip(values, self.arguments, strict=True)
        ]
        made = [np.empty(r.shape, r.dtype) for r in self.results]
        table = (ctypes.c_void_p * (len(given) + len(made) + 1))()
        for i, array in enumerate([*given, *made]):
            table[i] = array.ctypes.data
        done = self._run(ctypes.addressof(table))
        if not done:
            raise MemoryError(
                f"a compiled program needs {self.scratch:,} bytes of memory for a call, which there are not: pass smaller "
                "arrays, a part at a time."
            )
        if done == REFUSED or any(made[self.shown :]):
            raise GuardFailed  # an index is out of bounds, say: the function itself tells which
        return [a if a.ndim else a[()] for a in made[: self.shown]]


def _converted(of: weakref.ref[Native], *values: Any) -> Any:
    """What an entry calls for arguments that it does not take as they are: of the right shape, but elsewhere in memory.

    The program holds the entry, and is held weakly by it.
    """
    native = of()
    assert native is not None
    outputs = native.by_table(values)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


# ---------------------------------------------------------------------------------------------- the module's text


def _module(native: Native, body: Body, arrays: Arrays, form: Form) -> str:
    """The LLVM module of one body: the body, its frame, constants, and the entry from Python."""
    inside = body.run()
    schedule = native.schedule
    n_in, n_out, n_const = len(native.arguments), len(native.outputs), len(arrays.constants)
    local = [k for k, (where, _) in schedule.memory.items() if where not in ("out", "own")]
    parameters = [f"ptr noalias readonly %in{i}" for i in range(n_in)]
    parameters += [f"ptr noalias readonly %const{i}" for i in range(n_const)]
    parameters += [f"ptr noalias %out{i}" for i in range(n_out)]
    parameters += [f"ptr noalias %mem{k}" for k in local]
    if body.shares:
        parameters += [f"ptr noalias %part{k}" for k in schedule.partial]
        parameters += ["ptr noalias %threads_own", "i64 %team"]
    parts = [
        vecmath.join(*body.functions.values()) if body.functions else "",
        *body.shares,
        f"define internal void @body({', '.join(parameters)}) #0 {{\nentry:\n{inside}\n  ret void\n}}",
        *body.declared,
        *(f"@tg_const{i} = external global i8" for i in range(n_const)),
        *announced_constants(arrays.constants),
        _frame(native, local, n_const, bool(body.shares)),
        entry(native, form, bool(body.shares)),
        support.DECLARED,
        ATTRIBUTES,
    ]
    text = "\n".join(parts)
    return _declared_once(text)


def _declared_once(text: str) -> str:
    seen: set[str] = set()
    lines = []
    for line in text.splitlines():
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _frame(native: Native, local: Sequence[int], n_const: int, shared: bool) -> str:
    """`tg_run(table)`: scratch memory, and the body with all its pointers; 0 if there is no memory."""
    schedule = native.schedule
    n_in, n_out = len(native.arguments), len(native.outputs)
    lines = ["define dso_local i32 @tg_run(ptr %table) #0 {", "entry:", *_pointers(n_in + n_out)]
    lines += _announced(native)
    arguments = []
    arguments += [f"ptr %q{i}" for i in range(n_in)]
    arguments += [f"ptr @tg_const{i}" for i in range(n_const)]
    arguments += [f"ptr %q{n_in + i}" for i in range(n_out)]
    size = schedule.scratch
    heap = size > STACK or shared
    lines += _borrowed(size, schedule.own, heap, shared)
    for k in local:
        lines.append(f"  %m{k} = getelementptr i8, ptr %scratch, i64 {schedule.memory[k][1]}")
        lines += announced_memory(f"%m{k}", schedule, k)
        arguments.append(f"ptr %m{k}")
    if shared:
        for k, (offset, _) in schedule.partial.items():
            lines.append(f"  %part{k} = getelementptr i8, ptr %scratch, i64 {offset}")
            lines += announced_parts(f"%part{k}", schedule, k)
            arguments.append(f"ptr %part{k}")
        lines.append(f"  %theirs = getelementptr i8, ptr %scratch, i64 {size}")
        lines += sanitizer.buffer("%theirs", "%each", 0, "the threads' memory")
        arguments += ["ptr %theirs", "i64 %team"]
    lines.append(f"  call void @body({', '.join(arguments)})")
    lines += [*_returned(heap), *_written(native), "  ret i32 1", "}"]
    native.heap = heap
    return "\n".join([*lines, *_kept(heap)])


def _of_pieces(native: Native, module: Module, whole: Piece, form: Form) -> str:
    """The LLVM module of pieces that call each other, with one block of scratch memory for all."""
    n_in, n_out = len(native.arguments), len(native.results)
    native.heap = heap = whole.scratch > STACK
    pointers = [f"%q{i}" for i in range(n_in + n_out)]
    lines = [
        "define dso_local i32 @tg_run(ptr %table) #0 {",
        "entry:",
        *_pointers(n_in + n_out),
        *_announced(native),
        *_borrowed(max(whole.scratch, 64), 0, heap, False),
        whole.call("%ok", pointers[:n_in], pointers[n_in:], "%scratch"),
        *_returned(heap, whole.scratch),
        *_written(native, "%ok"),
        "  ret i32 %ok",
        "}",
    ]
    return _declared_once(
        "\n".join(
            [
                module.text(),
                *lines,
                *_kept(heap),
                entry(native, form, module.shared),
                support.DECLARED,
                ATTRIBUTES,
            ]
        )
    )


def _pointers(n: int) -> list[str]:
    """The pointers in the table, as %q0, %q1, ..."""
    lines = []
    for i in range(n):
        lines.append(f"  %p{i} = getelementptr ptr, ptr %table, i64 {i}")
        lines.append(f"  %q{i} = load ptr, ptr %p{i}")
    return [*sanitizer.buffer("%table", 8 * n, 0, "the table of addresses"), *lines]


def _announced(native: Native) -> list[str]:
    """The bounds of %q0, %q1, ...: arguments as they are, results of whatever."""
    lines = []
    for i, argument in enumerate(native.arguments):
        size = math.prod(argument.shape) * argument.dtype.itemsize
        lines += sanitizer.buffer(f"%q{i}", size, 0, f"argument {i}")
    for k, result in enumerate(native.results):
        size = math.prod(result.shape) * result.dtype.itemsize
        name = f"result {k}" if k < native.shown else "the number of indices out of bounds"
        entry = sanitizer.entry_of(result.dtype)
        lines += sanitizer.buffer(f"%q{len(native.arguments) + k}", size, entry, name, fresh=True)
    return lines


def _written(native: Native, status: str = "") -> list[str]:
    """That every result was written, if the status is 1."""
    lines: list[str] = []
    n_in = len(native.arguments)
    if checking.on() and status:
        lines.append(f"  %went = icmp eq i32 {status}, 1")
    for k, result in enumerate(native.results):
        size = math.prod(result.shape) * result.dtype.itemsize
        lines += sanitizer.said(f"written %q{n_in + k} {size} {'%went' if status else 'true'}")
    return lines


def announced_constants(constants: Sequence[np.ndarray]) -> list[str]:
    """The bounds of constants."""
    return [
        line
        for i, c in enumerate(constants)
        for line in sanitizer.said(f"global @tg_const{i} {c.nbytes} constant {i}")
    ]


def announced_memory(pointer: str, schedule: Schedule, n: int) -> list[str]:
    """The bounds of a root's memory, which holds nothing yet."""
    op = schedule.roots[n]
    shape = schedule.blocks[n][1] if n in schedule.blocks else op.shape
    size = math.prod(shape) * op.dtype.itemsize
    return sanitizer.buffer(
        pointer, size, sanitizer.entry_of(op.dtype), f"memory of {op!r}", fresh=True
    )


def announced_parts(pointer: str, schedule: Schedule, n: int) -> list[str]:
    """The bounds of the parts of a sum that chunks make."""
    op, (_, each) = schedule.roots[n], schedule.partial[n]
    chunks = next(g.chunks for g in schedule.groups if any(x is op for x in g.over_rows))
    entry = sanitizer.entry_of(op.dtype)
    return sanitizer.buffer(pointer, each * chunks, entry, f"parts of {op!r}", fresh=True)


def _borrowed(size: int, own: int, heap: bool, shared: bool) -> list[str]:
    """%scratch: memory of the stack, or what the module keeps if it is large enough, or new; its length stands before it."""
    if not size and not heap:
        return []
    if not heap:
        return [f"  %scratch = alloca [{size} x i8], align 64"]
    team = ["  %team = call i64 @tg_team()"] if shared else ["  %team = add i64 0, 1"]
    return [
        *team, f"  %each = mul i64 %team, {own}", f"  %size = add i64 %each, {size + 128}",
        "  %spare = atomicrmw xchg ptr @spare, ptr null seq_cst",
        *sanitizer.buffer("%spare", "%size", 0, "scratch memory"),
        "  %none = icmp eq ptr %spare, null", "  br i1 %none, label %fresh, label %look", "look:",
        "  %length = load i64, ptr %spare", "  %fits = icmp uge i64 %length, %size", "  br i1 %fits, label %have, label %small", "small:",
        "  call void @free(ptr %spare)", "  br label %fresh", "fresh:",
        "  %new = call ptr @malloc(i64 %size)", "  %failed = icmp eq ptr %new, null",
        "  br i1 %failed, label %nothing, label %got", "nothing:", "  ret i32 0", "got:",
        "  store i64 %size, ptr %new", "  br label %have", "have:",
        "  %block = phi ptr [ %spare, %look ], [ %new, %got ]",
        "  %address = ptrtoint ptr %block to i64", "  %up = add i64 %address, 127", "  %even = and i64 %up, -64",
        *sanitizer.buffer("%block", "%size", 0, "scratch memory"),
        "  %gap = sub i64 %even, %address", "  %scratch = getelementptr i8, ptr %block, i64 %gap",
    ]  # fmt: skip


def _returned(heap: bool, size: int = 0) -> list[str]:
    """Scratch memory given back: to the module if it keeps none now."""
    if not heap:
        return []
    if size > MOST_KEPT:
        return ["  call void @free(ptr %block)"]
    return [
        "  %swapped = cmpxchg ptr @spare, ptr null, ptr %block seq_cst seq_cst",
        "  %put = extractvalue { ptr, i1 } %swapped, 1", "  br i1 %put, label %done, label %drop", "drop:",
        "  call void @free(ptr %block)", "  br label %done", "done:",
    ]  # fmt: skip


def _kept(heap: bool) -> list[str]:
    """Scratch memory that is kept between calls, if any is."""
    if not heap:
        return []
    return [
        "@spare = internal global ptr null",
        "declare ptr @malloc(i64)",
        "declare void @free(ptr)",
    ]


def _of_numbers(parts: Sequence[tuple[Sequence[Op], Schedule]]) -> bool:
    """Whether nearly all that a program computes are numbers and arrays of a few, so that its lines run about once."""
    schedules = [schedule for _, schedule in parts]
    nests = [nest for schedule in schedules for group in schedule.groups for nest in group.nests]
    long = sum(len(nest.roots) for nest in nests if np.prod(nest.space) > FEW)
    return 10 * long <= sum(len(nest.roots) for nest in nests)


def _work(schedule: Schedule) -> int:
    total = 0
    for group in schedule.groups:
        for nest in group.nests:
            total += int(np.prod(nest.space)) * max(len(nest.roots) + len(nest.copies), 1)
    return total


__all__ = ["Argument", "Form", "Native"]
