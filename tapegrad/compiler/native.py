"""Native parts: array expressions as one module of machine code, with the entry that Python calls.

    body      the loops of a schedule, a function of pointers
    tg_run    memory for the body, which it calls: a function of a table of pointers (the slower entry calls it by ctypes)
    tg_entry  METH_FASTCALL: checks, results, tg_run
    tg_release  frees what is kept between calls, scratch memory and arrays; there is none where nothing is

Scratch memory is on the stack if small; else one block is kept by the module and lent to one call at a time, and a call that
finds it taken allocates its own: programs may run in many threads at once. Behind it lies what each thread of the team needs for
itself, so its size follows from their number at the time of the call.

Invariant: an entry touches no array whose type, dtype, shape, order and alignment it has not checked.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import vecmath
from ..core import checking
from ..llvm import jit
from . import clocks, sanitizer, support, team
from .arrays import C16, Arrays, Op
from .emit import Body
from .guards import GuardFailed
from .schedule import Schedule, scheduled
from .summing import summed_first
from .support import DATA, DESCR, DIMS, FLAGS, NAMES, ND, H
from .surroundings import ABSENT, Watched, place_of_code, place_of_data

if TYPE_CHECKING:
    from .nesting import Module, Piece

STACK = 1 << 15
"""Bytes of scratch memory up to which it is on the stack."""

RELEASE_ABOVE = 30_000
"""Entries computed in a call above which the interpreter lock is released."""

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

MOST_RECYCLED = 1 << 12
"""Results up to this many bytes reuse the previous result's array once nobody else holds it: allocating costs more than a small program."""

MOST_ALIKE = 4
"""Arguments of one dtype and shape above which a function takes each: code for every one would take longest to compile."""

REFUSED = 3
"""What a body returns where the function itself would raise."""


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
        _entry(native, form, bool(body.shares)),
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
                _entry(native, form, module.shared),
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


def _released(heap: bool, recycled: Sequence[int]) -> list[str]:
    """`tg_release`: what is kept between calls is given back."""
    lines = [f"  call void @tg_forget_array(ptr @tg_last{k})" for k in recycled]
    if heap:
        lines += [
            "  %spare = atomicrmw xchg ptr @spare, ptr null seq_cst",
            "  call void @free(ptr %spare)",
        ]
    return ["define void @tg_release() {", *lines, "  ret void", "}"] if lines else []


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


def _entry(native: Native, form: Form, shared: bool) -> str:
    """The METH_FASTCALL entry."""
    n_in, n_out = len(native.arguments), len(native.results)
    used: set[str] = set()
    lines = [
        "define ptr @tg_entry(ptr %self, ptr %args, i64 %nargs, ptr %names) {",
        "entry:",
        f"  %table = alloca [{n_in + n_out + 1} x ptr]",
    ]
    checker = _Checker(native, used)
    checks: list[str] = [
        f"  %count = icmp eq i64 %nargs, {len(form.arguments)}",
        "  %plain = icmp eq ptr %names, null",
        "  %right = and i1 %count, %plain",
        "  br i1 %right, label %begin, label %slow",
        "begin:",
    ]
    checks += checker.taken("%args", form.arguments)
    for i, w in enumerate(form.watched):
        checks += checker.same(i, w)
    for k, op in enumerate(native.results):
        if not op.shape:
            lines.append(f"  %out{k} = alloca [2 x i64], align 8")
        elif op.shape:
            lines.append(f"  %dims{k} = alloca [{len(op.shape)} x i64]")
    lines += checks
    arrays: list[int] = []
    recycled: list[int] = []
    for k, op in enumerate(native.results):
        slot = n_in + k
        if op.shape:
            used |= {"tg_ndarray", f"tg_descr_{NAMES[op.dtype]}"}
            for j, n in enumerate(op.shape):
                lines.append(f"  %dim{k}_{j} = getelementptr i64, ptr %dims{k}, i64 {j}")
                lines.append(f"  store i64 {n}, ptr %dim{k}_{j}")
            given = f"ptr @tg_descr_{NAMES[op.dtype]}, i32 {len(op.shape)}, ptr %dims{k}"
            if math.prod(op.shape) * op.dtype.itemsize <= MOST_RECYCLED:
                recycled.append(k)
                lines.append(f"  %array{k} = call ptr @tg_array(ptr @tg_last{k}, {given})")
            else:
                lines.append(f"  %array{k} = call ptr @tg_new_array({given})")
            lines += [
                f"  %null{k} = icmp eq ptr %array{k}, null",
                f"  br i1 %null{k}, label %undo{len(arrays)}, label %made{k}",
                f"made{k}:",
                f"  %datap{k} = getelementptr i8, ptr %array{k}, i64 {DATA}",
                f"  %data{k} = load ptr, ptr %datap{k}",
            ]
            arrays.append(k)
        data = f"%data{k}" if op.shape else f"%out{k}"
        lines.append(f"  %slot{k} = getelementptr ptr, ptr %table, i64 {slot}")
        lines.append(f"  store ptr {data}, ptr %slot{k}")
    if shared or native.interrupts or native.work > RELEASE_ABOVE:
        # Another thread may take arrays out of a list that was passed: they must live until the end.
        lines += [f"  call void @Py_IncRef(ptr %object{i})" for i in checker.in_lists]
        lines += [
            "  %thread = call ptr @PyEval_SaveThread()", "  %ok = call i32 @tg_run(ptr %table)",
            "  call void @PyEval_RestoreThread(ptr %thread)",
        ]  # fmt: skip
        lines += [f"  call void @Py_DecRef(ptr %object{i})" for i in checker.in_lists]
    else:
        lines.append("  %ok = call i32 @tg_run(ptr %table)")
    lines += [
        f"  switch i32 %ok, label %result [ i32 0, label %memory{len(arrays)} i32 2, label %undo{len(arrays)} "
        f"i32 {REFUSED}, label %again ]",
        "result:",
    ]
    for k in range(native.shown, n_out):
        lines += [
            f"  %wrong{k} = load i64, ptr %out{k}",
            f"  %is_wrong{k} = icmp ne i64 %wrong{k}, 0",
            f"  br i1 %is_wrong{k}, label %again, label %right{k}",
            f"right{k}:",
        ]
    results = native.results[: native.shown]
    runs = [(k, op.dtype, 1) for k, op in enumerate(results) if not op.shape]
    many = len(runs) > MOST_ALIKE
    if many:
        runs = _runs(results, form.weak)
        lines.insert(2, f"  %objects = alloca [{n_out} x ptr]")
    failed = "false"
    for k, dtype, n in runs:
        weak = k in form.weak
        descr = "" if weak else f"tg_descr_{NAMES[dtype]}"
        used |= {descr} - {""}
        if many:
            lines += [
                f"  %from{k} = getelementptr ptr, ptr %table, i64 {n_in + k}",
                f"  %to{k} = getelementptr ptr, ptr %objects, i64 {k}",
            ]
            make = "tg_numbers" if descr else "tg_complexes" if dtype == C16 else "tg_floats"
            kind = f", ptr @{descr}" if descr else ""
            lines.append(f"  %sn{k} = call i1 @{make}(ptr %from{k}, ptr %to{k}, i64 {n}{kind})")
        else:
            lines += _number(k, dtype, weak)
        lines.append(f"  %any{k} = or i1 %sn{k}, {failed}")
        failed = f"%any{k}"
    if runs:
        lines.append(f"  br i1 {failed}, label %undo{len(arrays)}, label %build")
        lines.append("build:")
    builder = _Builder(lines, {k for k, op in enumerate(results) if many and not op.shape})
    whole = builder.build(form.result)
    lines.append(f"  ret ptr {whole}")
    used |= builder.used
    lines += [
        f"memory{len(arrays)}:",
        "  call ptr @PyErr_NoMemory()",
        f"  br label %undo{len(arrays)}",
    ]
    for n in range(len(arrays), 0, -1):
        lines += [
            f"undo{n}:",
            f"  call void @Py_DecRef(ptr %array{arrays[n - 1]})",
            f"  br label %undo{n - 1}",
        ]
    lines += ["undo0:", "  ret ptr null"]
    lines += ["again:", *(f"  call void @Py_DecRef(ptr %array{k})" for k in arrays)]
    lines.append("  br label %slow")
    lines.append("slow:")
    if arrays:
        used.add("tg_ndarray")
    lines += [
        "  %other = call ptr @PyObject_Vectorcall(ptr @tg_slow, ptr %args, i64 %nargs, ptr %names)", "  ret ptr %other", "}",
        "@tg_slow = external global i8",
        *(f"@{name} = external global i8" for name in sorted(used)),
        *(f"@tg_last{k} = internal global [2 x ptr] zeroinitializer" for k in recycled),
        *_released(native.heap, recycled),
        *(text for _, text in checker.functions.values()),
        "declare ptr @tg_PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)", "declare ptr @tg_PyArray_Scalar(ptr, ptr, ptr)",
        "declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)", "declare ptr @PyEval_SaveThread()",
        "declare void @PyEval_RestoreThread(ptr)", "declare ptr @PyErr_NoMemory()", "declare void @Py_DecRef(ptr)",
        "declare void @Py_IncRef(ptr)", "declare ptr @PyTuple_New(i64)", "declare i32 @PyTuple_SetItem(ptr, i64, ptr)",
        "declare ptr @PyList_New(i64)", "declare ptr @PyDict_New()",
        "declare ptr @PyFloat_FromDouble(double)", "declare ptr @PyComplex_FromDoubles(double, double)",
        "declare ptr @PyDict_GetItemWithError(ptr, ptr)", "declare i32 @memcmp(ptr, ptr, i64)",
        "declare i32 @PyList_SetItem(ptr, i64, ptr)",
    ]  # fmt: skip
    return "\n".join(lines)


def _number(k: int, dtype: np.dtype, weak: bool) -> list[str]:
    """Text that makes the object of a number, NumPy's or (`weak`) Python's own."""
    if weak and dtype == C16:
        made = [
            f"  %re{k} = load double, ptr %out{k}",
            f"  %imp{k} = getelementptr double, ptr %out{k}, i64 1",
            f"  %im{k} = load double, ptr %imp{k}",
            f"  %array{k} = call ptr @PyComplex_FromDoubles(double %re{k}, double %im{k})",
        ]
    elif weak:
        made = [
            f"  %re{k} = load double, ptr %out{k}",
            f"  %array{k} = call ptr @PyFloat_FromDouble(double %re{k})",
        ]
    else:
        descr = f"tg_descr_{NAMES[dtype]}"
        made = [f"  %array{k} = call ptr @tg_PyArray_Scalar(ptr %out{k}, ptr @{descr}, ptr null)"]
    return [*made, f"  %sn{k} = icmp eq ptr %array{k}, null"]


def _runs(results: Sequence[Result], weak: Set[int]) -> list[tuple[int, np.dtype, int]]:
    """Numbers among the results: where those of one kind begin that stand side by side, the dtype, and how many there are."""
    runs: list[tuple[int, np.dtype, int]] = []
    for k, op in enumerate(results):
        if op.shape:
            continue
        if runs:
            first, dtype, n = runs[-1]
            if dtype == op.dtype and first + n == k and (first in weak) == (k in weak):
                runs[-1] = (first, dtype, n + 1)
                continue
        runs.append((k, op.dtype, 1))
    return runs


class _Builder:
    """IR that builds a result of nested tuples, lists and dicts."""

    def __init__(self, lines: list[str], kept: set[int]) -> None:
        self.lines = lines
        self.kept = kept  # leaves whose objects are in memory
        self.count = 0
        self.used: set[str] = set()
        self.dicts = False

    def build(self, template: Any) -> str:
        """The name of the object, a new reference."""
        kind = template[0]
        if kind == "leaf":
            name = f"%array{template[1]}"
            if template[1] in self.kept:
                self.lines.append(
                    f"  %of{template[1]} = getelementptr ptr, ptr %objects, i64 {template[1]}"
                )
                self.lines.append(f"  {name} = load ptr, ptr %of{template[1]}")
            return name
        if kind == "object":
            name = f"@tg_object{template[1]}"
            self.used.add(name[1:])
            self.lines.append(f"  call void @Py_IncRef(ptr {name})")
            return name
        self.count += 1
        name = f"%result{self.count}"
        if kind == "dict":
            self.dicts = True
            self.lines.append(f"  {name} = call ptr @PyDict_New()")
            for key, part in zip(template[1], template[2:], strict=True):
                item = self.build(part)
                self.used.add(f"tg_object{key}")
                self.lines.append(
                    f"  call void @tg_put(ptr {name}, ptr @tg_object{key}, ptr {item})"
                )
            return name
        word = {"tuple": "PyTuple", "list": "PyList"}[kind]
        self.lines.append(f"  {name} = call ptr @{word}_New(i64 {len(template) - 1})")
        # Without memory for a tuple the parts are lost: PyTuple_SetItem on NULL reports it, and what was made leaks.
        for i, part in enumerate(template[1:]):
            item = self.build(part)
            self.lines.append(f"  call i32 @{word}_SetItem(ptr {name}, i64 {i}, ptr {item})")
        return name


def _kind(argument: Argument) -> tuple[Any, ...]:
    return argument.dtype, argument.shape, argument.weak


class _Checker:
    """IR that takes arguments: checks type and layout of each, and puts the address of its data into the table.

    It also looks at what the function reads beside its arguments.
    """

    def __init__(self, native: Native, used: set[str]) -> None:
        self.native = native
        self.used = used
        self.count = 0
        self.in_lists: list[int] = []
        self.alike = Counter(map(_kind, native.arguments))
        self.functions: dict[Any, tuple[str, str]] = {}

    def taken(
        self, items: str, trees: Sequence[Any], in_list: bool = False, keys: Sequence[int] = ()
    ) -> list[str]:
        """Text that takes the objects whose references stand one after the other at `items`; with `keys`, those in the dict there."""
        lines: list[str] = []
        for position, tree in enumerate(trees):
            self.count += 1
            k = self.count
            if in_list:
                self.in_lists.append(k)
            if keys:
                key = f"tg_object{keys[position]}"
                self.used.add(key)
                lines += [
                    f"  %object{k} = call ptr @tg_next_item(ptr {items}, ptr %before{items[7:]}, ptr @{key})",
                    f"  %missing{k} = icmp eq ptr %object{k}, null",
                    f"  br i1 %missing{k}, label %slow, label %found{k}",
                    f"found{k}:",
                ]
            else:
                lines += [
                    f"  %itemp{k} = getelementptr ptr, ptr {items}, i64 {position}",
                    f"  %object{k} = load ptr, ptr %itemp{k}",
                ]
            if tree[0] == "object":
                name = f"tg_object{tree[1]}"
                self.used.add(name)
                lines += [
                    f"  %is{k} = icmp eq ptr %object{k}, @{name}",
                    f"  br i1 %is{k}, label %next{k}, label %slow",
                ]
            else:
                lines += [
                    f"  %typep{k} = getelementptr i8, ptr %object{k}, i64 {H - 8}",
                    f"  %type{k} = load ptr, ptr %typep{k}",
                ]
                nested = tree[0] != "leaf"
                lines += self._nested(k, tree, in_list) if nested else self._leaf(k, tree[1])
            lines.append(f"next{k}:")
        return lines

    def same(self, i: int, w: Watched) -> list[str]:
        """Text that goes the slow way unless a name means the same object, and an array holds the same bytes."""
        lines = []
        self.used |= {f"tg_at{i}"} if w.how != "array" else set()
        expected = "null"
        if w.value is not ABSENT and w.how in ("cell", "tensor", "entry", "attribute"):
            expected = f"@tg_is{i}"
            self.used.add(f"tg_is{i}")
        if w.how in ("cell", "tensor", "entry"):
            if w.how == "entry":
                self.used.add(f"tg_name{i}")
                lines.append(
                    f"  %now{i} = call ptr @PyDict_GetItemWithError(ptr @tg_at{i}, ptr @tg_name{i})"
                )
            else:
                place = place_of_data() if w.how == "tensor" else H
                lines += [
                    f"  %nowp{i} = getelementptr i8, ptr @tg_at{i}, i64 {place}",
                    f"  %now{i} = load ptr, ptr %nowp{i}",
                ]
            lines.append(f"  %same{i} = icmp eq ptr %now{i}, {expected}")
        elif w.how == "size":
            lines += [
                f"  %ownp{i} = getelementptr i8, ptr @tg_at{i}, i64 {H}",
                f"  %own{i} = load i64, ptr %ownp{i}",
                f"  %same{i} = icmp eq i64 %own{i}, {w.value}",
            ]
        elif w.how == "attribute":
            self.used.add(f"tg_name{i}")
            lines.append(
                f"  %same{i} = call i1 @tg_attribute(ptr @tg_at{i}, ptr @tg_name{i}, ptr {expected})"
            )
        elif w.how in ("items", "function"):
            self.used.add(f"tg_was{i}")
            n = len(w.value)
            if w.how == "function":
                lines += [
                    f"  %fieldp{i} = getelementptr i8, ptr @tg_at{i}, i64 {place_of_code()}",
                    f"  %fields{i} = call i32 @memcmp(ptr %fieldp{i}, ptr @tg_was{i}, i64 {8 * n})",
                    f"  %same{i} = icmp eq i32 %fields{i}, 0",
                ]
            else:
                kind = type(w.holder).__name__
                lines.append(
                    f"  %same{i} = call i1 @tg_{kind}_items(ptr @tg_at{i}, ptr @tg_was{i}, i64 {n})"
                )
        if w.how != "array":
            lines += [f"  br i1 %same{i}, label %still{i}, label %slow", f"still{i}:"]
        if w.copy is not None and w.copy.nbytes:
            self.used |= {f"tg_is{i}", f"tg_was{i}"}
            lines += [
                f"  %herep{i} = getelementptr i8, ptr @tg_is{i}, i64 {DATA}",
                f"  %here{i} = load ptr, ptr %herep{i}",
                f"  %differ{i} = call i32 @memcmp(ptr %here{i}, ptr @tg_was{i}, i64 {w.copy.nbytes})",
                f"  %equal{i} = icmp eq i32 %differ{i}, 0",
                f"  br i1 %equal{i}, label %kept{i}, label %slow",
                f"kept{i}:",
            ]
        return lines

    def _nested(self, k: int, tree: Any, in_list: bool) -> list[str]:
        """Lines that check a tuple, list or dict of the signature and then its items; other objects go to `slow`."""
        kind, *trees = tree
        keys = trees.pop(0) if kind == "dict" else ()
        self.used.add(f"tg_{kind}")
        lines = [
            f"  %is{k} = icmp eq ptr %type{k}, @tg_{kind}", f"  br i1 %is{k}, label %inside{k}, label %slow", f"inside{k}:",
            f"  %sizep{k} = getelementptr i8, ptr %object{k}, i64 {H}", f"  %size{k} = load i64, ptr %sizep{k}",
            f"  %long{k} = icmp eq i64 %size{k}, {len(trees)}", f"  br i1 %long{k}, label %open{k}, label %slow", f"open{k}:",
        ]  # fmt: skip
        if kind == "dict":  # its length stands where that of a tuple does
            lines += [f"  %before{k} = alloca i64", f"  store i64 0, ptr %before{k}"]
            inside = self.taken(f"%object{k}", trees, True, keys)
            return [*lines, *inside, f"  br label %next{k}"]
        lines.append(f"  %heldp{k} = getelementptr i8, ptr %object{k}, i64 {H + 8}")
        items = f"%heldp{k}"
        if kind == "list":  # a list holds a pointer to its items, a tuple the items
            lines.append(f"  %held{k} = load ptr, ptr %heldp{k}")
            items = f"%held{k}"
        return [
            *lines,
            *self.taken(items, trees, in_list or kind == "list"),
            f"  br label %next{k}",
        ]

    def _leaf(self, k: int, i: int) -> list[str]:
        argument = self.native.arguments[i]
        place = f"  %place{k} = getelementptr ptr, ptr %table, i64 {i}"
        if self.alike[_kind(argument)] <= MOST_ALIKE:
            return [place, *self._data_of(k, argument)]
        return [
            place,
            f"  %good{k} = call i1 @{self._function(argument)}(ptr %object{k}, ptr %type{k}, ptr %place{k})",
            f"  br i1 %good{k}, label %next{k}, label %slow",
        ]

    def _function(self, argument: Argument) -> str:
        """The name of a function that takes one of many arguments of a kind."""
        kind = _kind(argument)
        if kind not in self.functions:
            name = f"tg_take{len(self.functions)}"
            lines = [
                f"define internal i1 @{name}(ptr %object, ptr %type, ptr %place) noinline {{",
                *self._data_of("", argument),
                "next:\n  ret i1 true\nslow:\n  ret i1 false\n}",
            ]
            self.functions[kind] = name, "\n".join(lines)
        return self.functions[kind][0]

    def _data_of(self, k: int | str, argument: Argument) -> list[str]:
        """Text that stores the address of an argument's data at its place, and goes on at `next`, or else at `slow`."""
        name = NAMES[argument.dtype]
        shape = argument.shape
        number = [
            f"  %value{k} = getelementptr i8, ptr %object{k}, i64 {H}",
            f"  store ptr %value{k}, ptr %place{k}",
            f"  br label %next{k}",
        ]
        if argument.weak:
            python = "tg_complex" if argument.dtype == C16 else "tg_float"
            self.used.add(python)
            test = [
                f"  %isfloat{k} = icmp eq ptr %type{k}, @{python}",
                f"  br i1 %isfloat{k}, label %take{k}, label %slow",
            ]
            return [*test, f"take{k}:", *number]
        self.used |= {"tg_ndarray", f"tg_descr_{name}"}
        lines: list[str] = []
        if not shape:
            self.used.add(f"tg_scalar_{name}")
            lines += [
                f"  %isscalar{k} = icmp eq ptr %type{k}, @tg_scalar_{name}", f"  br i1 %isscalar{k}, label %scalar{k}, label %other{k}",
                f"scalar{k}:", *number, f"other{k}:",
            ]  # fmt: skip
        lines += [
            f"  %isarray{k} = icmp eq ptr %type{k}, @tg_ndarray", f"  br i1 %isarray{k}, label %look{k}, label %slow", f"look{k}:",
            f"  %ndp{k} = getelementptr i8, ptr %object{k}, i64 {ND}", f"  %nd{k} = load i32, ptr %ndp{k}",
            f"  %ndok{k} = icmp eq i32 %nd{k}, {len(shape)}",
            f"  %flagsp{k} = getelementptr i8, ptr %object{k}, i64 {FLAGS}", f"  %flags{k} = load i32, ptr %flagsp{k}",
            f"  %masked{k} = and i32 %flags{k}, 257", f"  %flagsok{k} = icmp eq i32 %masked{k}, 257",
            f"  %descrp{k} = getelementptr i8, ptr %object{k}, i64 {DESCR}", f"  %descr{k} = load ptr, ptr %descrp{k}",
            f"  %descrok{k} = icmp eq ptr %descr{k}, @tg_descr_{name}", f"  %both{k} = and i1 %ndok{k}, %flagsok{k}",
            f"  %fits{k} = and i1 %both{k}, %descrok{k}", f"  br i1 %fits{k}, label %shape{k}, label %slow", f"shape{k}:",
        ]  # fmt: skip
        if shape:
            lines += [
                f"  %dimsp{k} = getelementptr i8, ptr %object{k}, i64 {DIMS}",
                f"  %indims{k} = load ptr, ptr %dimsp{k}",
            ]
            before = "true"
            for j, n in enumerate(shape):
                lines += [
                    f"  %np{k}_{j} = getelementptr i64, ptr %indims{k}, i64 {j}", f"  %n{k}_{j} = load i64, ptr %np{k}_{j}",
                    f"  %eq{k}_{j} = icmp eq i64 %n{k}_{j}, {n}", f"  %all{k}_{j} = and i1 {before}, %eq{k}_{j}",
                ]  # fmt: skip
                before = f"%all{k}_{j}"
            lines += [f"  br i1 {before}, label %take{k}, label %slow", f"take{k}:"]
        lines += [
            f"  %inp{k} = getelementptr i8, ptr %object{k}, i64 {DATA}", f"  %indata{k} = load ptr, ptr %inp{k}",
            f"  store ptr %indata{k}, ptr %place{k}", f"  br label %next{k}",
        ]  # fmt: skip
        return lines


__all__ = ["Argument", "Form", "Native"]
