"""The sanitizer: checked mode for machine code. IR text in, the same with a check before each access out.

Every load, store and call of a program goes through `instrumented`, as text, whoever wrote it: no emitter can forget a check. A pointer
of the text has *bounds* beside it, {first address, address behind the last, buffer's number and bytes of an entry}. They come from
where it was derived: getelementptr keeps them, phi and select choose among them, alloca and malloc make them, internal functions take
them as more parameters (as SoftBound does: Nagarakatte et al. 2009, "SoftBound: highly compatible and complete spatial memory safety
for C"). Where a pointer comes from Python, or a buffer is a part of another, the emitter announces it; announcements are comments of
the text, written in checked mode only:

    ;! buffer POINTER BYTES ENTRY fresh|kept NAME   the pointer's bounds from here on; `fresh`: filled with the pattern (checking.py)
    ;! fill POINTER FROM TO ENTRY                   these bytes are filled with it
    ;! written POINTER BYTES CONDITION              that the pattern is gone, or another one, at the end of a call
    ;! read POINTER BYTES, ;! write POINTER BYTES   what the call in the next line does
    ;! global POINTER BYTES NAME                    memory from outside
    ;! anywhere POINTER                             memory of Python's, of which only Python knows how much there is
    ;! at STATEMENT                                 what the lines that follow are for

Bytes are products of numbers and names, `%count*24`. ENTRY 0 means that the buffer may hold anything from the start.

A check is a call in a straight line, which returns the address, or that of memory that nobody reads: so no failed access is made, no block
is split, and the first failure of a call stands in a record that Python looks at (`Watched`). Functions of the vocabulary
(vecmath) take no pointers, and entries read objects of Python's: neither is instrumented.

Invariant: an access whose pointer has no bounds is refused when the text is instrumented, not passed over.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from ..core import checking
from ..errors import CheckedAccessError

KIND = "{ i64, i64, i64 }"
ANYWHERE = "{ i64 0, i64 -1, i64 0 }"
"""Bounds of a pointer of which nothing is known."""

_WORDS = 6
_OUTSIDE, _UNWRITTEN, _LEFT = 1, 2, 3


def buffer(
    pointer: str, size: int | str, entry: int = 0, name: str = "", fresh: bool = False
) -> list[str]:
    """The announcement of a buffer; no text with checks off."""
    if not checking.on():
        return []
    return [f"  ;! buffer {pointer} {size} {entry} {'fresh' if fresh else 'kept'} {name}"]


def said(text: str) -> list[str]:
    """Another announcement; no text with checks off."""
    return [f"  ;! {text}"] if checking.on() else []


def entry_of(dtype: Any) -> int:
    """Bytes of an entry, of which complex numbers are two."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


# ------------------------------------------------------------------------------------------------- the text


_DEFINE = re.compile(r"define ([^@]*)@([\w.]+)\((.*)\) ?([^()]*)\{$")
_NOT_OURS = re.compile(r"tg_entry$|tg_release$|tg_take\d+$|tapegrad_")
_AS_THEY_ARE = re.compile(r"tg_run$|share[\d_]+$")
"""Functions that others than the program call, so that their parameters stay as they are."""

_LET = re.compile(r"  (%[\w.]+) = (.*)$")
_GEP = re.compile(r"getelementptr (?:inbounds )?.*?, ptr (\S+?)(?:,|$)")
_LOAD = re.compile(r"load (?:atomic )?(.+?), ptr ([%@][\w.]+)(.*)$")
_STORE = re.compile(r"  store (?:atomic )?(.+), ptr ([%@][\w.]+)((?: seq_cst)?(?:, align \d+)?)$")
_CALL = re.compile(r"^(.*?)\bcall (.*?)@([\w.]+)\((.*)\)(.*)$")
_SIZES = {"double": 8, "float": 4, "ptr": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1}
_QUIET = ("free", "llvm.prefetch.p0", "tg_share")


def size_of(kind: str) -> int:
    """Bytes of a type."""
    kind = kind.strip()
    if kind in _SIZES:
        return _SIZES[kind]
    found = re.fullmatch(r"[\[<](\d+) x (.+)[\]>]", kind)
    if found is None:
        raise ValueError(f"checked mode does not know how large {kind} is: teach `size_of`.")
    return int(found[1]) * size_of(found[2])


def _split(text: str) -> list[str]:
    """Operands, which commas part where no bracket is open."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and not depth:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


class Instrumented:
    """A module's text with checks; `places` and `buffers` say what the numbers in the record mean."""

    def __init__(self, text: str) -> None:
        """Rewrite each function of an LLVM module so that every access checks its bounds; `places` and `buffers` say what the numbers
        mean.
        """
        self.places: list[tuple[str, str, str]] = [("", "", "")]
        self.buffers: list[str] = ["memory"]
        self.numbers: dict[str, int] = {}
        self.globals: dict[str, tuple[int, int]] = {}
        self.guarded: dict[str, str] = {}
        lines = text.splitlines()
        self.internal = {
            found[2]
            for line in lines
            if (found := _DEFINE.match(line)) and not _NOT_OURS.match(found[2])
        }
        for line in lines:
            if line.startswith("  ;! global "):
                _, _, name, size, what = line.split(maxsplit=4)
                self.globals[name] = int(size), self.number(what)
            elif found := re.match(r"(@[\w.]+) = internal global (\[.*?\]|\w+) ", line):
                self.globals[found[1]] = size_of(found[2]), self.number(found[1])
        made: list[str] = []
        at = 0
        while at < len(lines):
            found = _DEFINE.match(lines[at])
            if found is None:
                if not lines[at].startswith("  ;!"):
                    made.append(lines[at])
                at += 1
                continue
            end = lines.index("}", at)
            if _NOT_OURS.match(found[2]):
                made += [x for x in lines[at : end + 1] if not x.startswith("  ;!")]
            else:
                made += _Function(self, found, lines[at + 1 : end]).run()
            at = end + 1
        self.text = "\n".join([*made, *self.guarded.values(), _HELP]) + "\n"
        if "@llvm.memset.p0.i64(ptr, i8, i64, i1)" not in text:
            self.text += "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"

    def number(self, name: str) -> int:
        """The number of a buffer's name."""
        if name not in self.numbers:
            self.numbers[name] = len(self.buffers)
            self.buffers.append(name)
        return self.numbers[name]

    def place(self, function: str, statement: str, line: str) -> int:
        self.places.append((function, statement, line.strip()))
        return len(self.places) - 1


class _Function:
    """Instruments one function."""

    def __init__(self, module: Instrumented, head: re.Match[str], lines: Sequence[str]) -> None:
        self.module = module
        self.head = head
        self.name = head[2]
        self.lines = lines
        self.out: list[str] = []
        self.count = 0
        self.statement = ""
        self.derived: dict[str, str] = {}
        """Pointer -> the one that it was derived from, or the text of its bounds."""
        self.announced: dict[str, str] = {}
        self.to_come = {x.split(" ", 5)[4] for x in lines if x.startswith("  ;! buffer ")}
        """Pointers that are announced somewhere in the text."""
        self.pending: list[tuple[str, str, str]] = []

    def run(self) -> list[str]:
        parameters = _split(self.head[3])
        pointers = [p.split()[-1] for p in parameters if p.startswith("ptr")]
        kept = bool(_AS_THEY_ARE.match(self.name))
        self.derived = {p: ANYWHERE if kept else f"{p}.b" for p in pointers}
        if not kept:
            parameters += [f"{KIND} {p}.b" for p in pointers]
        for line in self.lines:
            if found := _LET.match(line):
                self._derivation(found[1], found[2])
        head = f"define {self.head[1]}@{self.name}({', '.join(parameters)}) {self.head[4]}{{"
        for line in self.lines:
            self._line(line)
        return [head, *self.out, "}"]

    def _derivation(self, name: str, text: str) -> None:
        if found := _GEP.match(text):
            self.derived[name] = found[1]
        elif text.startswith(("phi ptr", "alloca", "select")) or re.match(
            r"call ptr @(malloc|realloc)\(", text
        ):
            self.derived[name] = f"{name}.b"

    def bounds(self, pointer: str) -> str:
        """The bounds of a pointer: a name, or a constant."""
        seen = pointer
        while True:
            if seen in self.announced:
                return self.announced[seen]
            if seen.startswith("@"):
                return self._global(seen)
            base = self.derived.get(seen, ANYWHERE)
            if base == ANYWHERE or base.endswith(".b"):
                return base
            seen = base

    def _global(self, name: str) -> str:
        if name not in self.module.globals:
            return ANYWHERE
        size, number = self.module.globals[name]
        low = f"ptrtoint (ptr {name} to i64)"
        high = f"ptrtoint (ptr getelementptr (i8, ptr {name}, i64 {size}) to i64)"
        return f"{{ i64 {low}, i64 {high}, i64 {number << 8} }}"

    def let(self, text: str) -> str:
        self.count += 1
        self.out.append(f"  %chk{self.count} = {text}")
        return f"%chk{self.count}"

    def amount(self, size: str) -> str:
        """A product of numbers and names."""
        first, *others = size.split("*")
        for other in others:
            first = self.let(f"mul i64 {first}, {other}")
        return first

    def made(self, pointer: str, low: str, size: str, number: int, entry: int = 0) -> None:
        """The bounds `pointer.b` of memory that begins at `low`."""
        begin = self.let(f"ptrtoint ptr {low} to i64")
        end = self.let(f"add i64 {begin}, {size}")
        one = self.let(f"insertvalue {KIND} undef, i64 {begin}, 0")
        two = self.let(f"insertvalue {KIND} {one}, i64 {end}, 1")
        self.out.append(f"  {pointer} = insertvalue {KIND} {two}, i64 {number << 8 | entry}, 2")

    def place(self, line: str) -> int:
        return self.module.place(self.name, self.statement, line)

    def known(self, pointer: str, line: str) -> str:
        found = self.bounds(pointer)
        if found == ANYWHERE:
            raise ValueError(
                f"checked mode was given an access to memory that nobody announced ({self.name}: {line.strip()}), so it cannot be "
                "checked. Announce the buffer where its address is made (compiler/sanitizer.py)."
            )
        return found

    def reached(self, pointer: str, size: int, line: str, read: bool) -> str:
        """The address of an access, or of nowhere."""
        function = "tg_read" if read else "tg_reached"
        known = self.known(pointer, line)
        return self.let(
            f"call ptr @{function}({KIND} {known}, ptr {pointer}, i64 {size}, i64 {self.place(line)})"
        )

    def inside(self, pointer: str, size: str, line: str, read: bool) -> str:
        """Whether a range may be read, or written."""
        function = "tg_may_read" if read else "tg_may_write"
        known = self.known(pointer, line)
        return self.let(
            f"call i1 @{function}({KIND} {known}, ptr {pointer}, i64 {size}, i64 {self.place(line)})"
        )

    def _line(self, line: str) -> None:
        """Copy one instruction; a load, store or call gets its check in front."""
        if line.startswith("  ;!"):
            self._announcement(line[5:], line)
            return
        let = _LET.match(line)
        text = let[2] if let else line.strip()
        if let and text.startswith("load"):
            found = _LOAD.match(text)
            assert found is not None, line
            at = self.reached(found[2], size_of(found[1]), line, read=True)
            word = text[: found.start(2)]
            self.out.append(f"  {let[1]} = {word}{at}{found[3]}")
        elif line.startswith("  store"):
            found = _STORE.match(line)
            assert found is not None, line
            kind = _type_of(found[1])
            at = self.reached(found[2], size_of(kind), line, read=False)
            self.out.append(line[: found.start(2)] + at + found[3])
        elif "call " in text and (found := _CALL.match(line)):
            self._call(line, found, let)
        else:
            self.out.append(line)
            if let:
                self._chosen(let[1], text)

    def _chosen(self, name: str, text: str) -> None:
        """The bounds of what a phi, a select or an alloca made."""
        if text.startswith("phi ptr"):
            choices = re.findall(r"\[ ([^,]+), (%[\w.]+) \]", text)
            # The announcement of a choice may come later in the text: the names are the same.
            parts = [f"[ {self._later(value)}, {label} ]" for value, label in choices]
            self.out.append(f"  {name}.b = phi {KIND} {', '.join(parts)}")
        elif text.startswith("select") and ", ptr " in text:
            condition, one, other = _split(text[7:])
            a, b = (self.bounds(x.split()[-1]) for x in (one, other))
            self.out.append(f"  {name}.b = select {condition}, {KIND} {a}, {KIND} {b}")
        elif text.startswith("alloca"):
            kind, *more = _split(text[7:])
            size = str(size_of(kind))
            if more and more[0].startswith("i64"):
                size = self.let(f"mul i64 {more[0].split()[1]}, {size}")
            self.made(f"{name}.b", name, size, self.module.number(f"a variable of {self.name}"))

    def _later(self, pointer: str) -> str:
        if pointer == "null":
            return ANYWHERE
        return f"{pointer}.a" if pointer in self.to_come else self.bounds(pointer)

    def _call(self, line: str, found: re.Match[str], let: re.Match[str] | None) -> None:
        """Copy a call: own functions get the bounds of their pointers, others are guarded by what they read and write."""
        before, kind, name, inside, after = found.groups()
        operands = _split(inside)
        pointers = [x.split()[-1] for x in operands if x.startswith("ptr")]
        pending, self.pending = self.pending, []
        if name in self.module.internal:
            more = [f"{KIND} {self.bounds(p)}" for p in pointers]
            self.out.append(f"{before}call {kind}@{name}({', '.join([*operands, *more])}){after}")
        elif name in ("llvm.memcpy.p0.p0.i64", "llvm.memset.p0.i64"):
            size = operands[2].split()[-1]
            fits = self.inside(pointers[0], size, line, read=False)
            if len(pointers) == 2:
                fits = self.let(f"and i1 {fits}, {self.inside(pointers[1], size, line, read=True)}")
            operands[2] = f"i64 {self.let(f'select i1 {fits}, i64 {size}, i64 0')}"
            self.out.append(f"{before}call {kind}@{name}({', '.join(operands)}){after}")
        elif pointers and name.startswith(("tapegrad_lapack_", "tapegrad_loop_")):
            if name.startswith("tapegrad_lapack_"):
                pending = [*pending, *self._of_lapack(name[16:], pointers)]
            fits = "true"
            for word, pointer, size in pending:
                fine = self.inside(pointer, self.amount(size), line, word == "read")
                fits = self.let(f"and i1 {fits}, {fine}")
            self._guard(name, len(operands))
            self.out.append(f"  call void @tg_guarded_{name}(i1 {fits}, {', '.join(operands)})")
        else:
            self.out.append(line)
            if let and name in ("malloc", "realloc"):
                size = operands[-1].split()[-1]
                self.made(f"{let[1]}.b", let[1], size, self.module.number("allocated memory"))
            elif pointers and name not in _QUIET:
                raise ValueError(
                    f"checked mode was given a call of {name} with addresses, but not what it reads and writes. Announce that in the "
                    "line before (compiler/sanitizer.py)."
                )

    def _guard(self, name: str, n: int) -> None:
        """A function that makes a call, or does not."""
        parameters = ", ".join(f"ptr %p{i}" for i in range(n))
        self.module.guarded[name] = (
            f"define internal void @tg_guarded_{name}(i1 %fits, {parameters}) {{\n  br i1 %fits, label %do, label %end\n"
            f"do:\n  call void @{name}({parameters})\n  br label %end\nend:\n  ret void\n}}"
        )

    def _of_lapack(self, name: str, p: Sequence[str]) -> list[tuple[str, str, str]]:
        """What one of LAPACK's functions (lapack.py) reads and writes: matrices of columns that are `ld` entries apart."""
        size, name = (8 if name[0] == "d" else 4), name[1:]
        wide: dict[str, str] = {}

        def number(pointer: str) -> str:
            if pointer not in wide:
                wide[pointer] = self.let(f"sext i32 {self.let(f'load i32, ptr {pointer}')} to i64")
            return wide[pointer]

        def matrix(rows: str, columns: str, ld: str) -> str:
            m, n, apart = number(rows), number(columns), number(ld)
            last = self.let(f"mul i64 {self.let(f'sub i64 {n}, 1')}, {apart}")
            count = self.let(f"add i64 {last}, {m}")
            some = self.let(
                f"and i1 {self.let(f'icmp sgt i64 {m}, 0')}, {self.let(f'icmp sgt i64 {n}, 0')}"
            )
            return f"{self.let(f'select i1 {some}, i64 {count}, i64 0')}*{size}"

        def letter(pointer: str, wanted: str, one: str, other: str) -> str:
            found = self.let(f"load i8, ptr {pointer}")
            same = self.let(f"icmp eq i8 {found}, {ord(wanted)}")
            return self.let(f"select i1 {same}, ptr {one}, ptr {other}")

        if name == "getrf":
            m, n, a, lda, rows, _ = p
            return [("read", a, matrix(m, n, lda)), ("write", rows, f"{number(n)}*4")]
        if name == "getri":
            n, a, lda, rows, work, length, _ = p
            return [
                ("read", a, matrix(n, n, lda)),
                ("read", rows, f"{number(n)}*4"),
                ("write", work, f"{number(length)}*{size}"),
            ]
        if name == "potrf":
            _, n, a, lda, _ = p
            return [("read", a, matrix(n, n, lda))]
        if name == "trsv":
            _, _, _, n, a, lda, x, _ = p
            return [("read", a, matrix(n, n, lda)), ("read", x, f"{number(n)}*{size}")]
        if name == "trsm":
            side, _, _, _, m, n, _, a, lda, b, ldb = p
            k = letter(side, "L", m, n)
            return [("write", a, matrix(k, k, lda)), ("write", b, matrix(m, n, ldb))]
        assert name == "gemm", name
        ta, tb, m, n, k, _, a, lda, b, ldb, _, c, ldc = p
        rows_a, columns_a = letter(ta, "N", m, k), letter(ta, "N", k, m)
        rows_b, columns_b = letter(tb, "N", k, n), letter(tb, "N", n, k)
        return [
            ("write", a, matrix(rows_a, columns_a, lda)),
            ("write", b, matrix(rows_b, columns_b, ldb)),
            ("write", c, matrix(m, n, ldc)),
        ]

    def _announcement(self, text: str, line: str) -> None:
        """Follow a comment that the writer left: the statement, a buffer, what a call reads or writes."""
        word, _, rest = text.partition(" ")
        if word == "at":
            self.statement = rest
        elif word in ("read", "write"):
            pointer, size = rest.split()
            self.pending.append((word, pointer, size))
        elif word == "buffer":
            pointer, size, entry, state, name = rest.split(" ", 4)
            amount, parent = self.amount(size), self.bounds(pointer)
            number = self.module.number(name or pointer)
            fits = "true"
            if parent != ANYWHERE:
                fits = self.let(
                    f"call i1 @tg_may_write({KIND} {parent}, ptr {pointer}, i64 {amount}, i64 {self.place(line)})"
                )
            self.made(f"{pointer}.a", pointer, amount, number, int(entry))
            self.announced[pointer] = f"{pointer}.a"
            if state == "fresh":
                some = self.let(f"select i1 {fits}, i64 {amount}, i64 0")
                self.out.append(f"  call void @tg_poison(ptr {pointer}, i64 {some}, i64 {entry})")
        elif word == "anywhere":
            self.announced[rest] = "{ i64 0, i64 -2, i64 0 }"
        elif word == "fill":
            pointer, low, high, entry = rest.split()
            low, high = self.amount(low), self.amount(high)
            at = self.let(f"getelementptr i8, ptr {pointer}, i64 {low}")
            size = self.let(f"sub i64 {high}, {low}")
            known = self.bounds(pointer)
            fits = self.let(
                f"call i1 @tg_may_write({KIND} {known}, ptr {at}, i64 {size}, i64 {self.place(line)})"
            )
            some = self.let(f"select i1 {fits}, i64 {size}, i64 0")
            self.out.append(f"  call void @tg_poison(ptr {at}, i64 {some}, i64 {entry})")
        elif word == "written":
            pointer, size, condition = rest.split()
            some = self.let(f"select i1 {condition}, i64 {self.amount(size)}, i64 0")
            self.out.append(
                f"  call void @tg_seen({KIND} {self.bounds(pointer)}, ptr {pointer}, i64 {some}, i64 {_LEFT}, i64 {self.place(line)})"
            )


def _type_of(text: str) -> str:
    """The type that a typed value begins with."""
    if text[0] not in "<[":
        return text.split(" ", 1)[0]
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "<[") - (c in ">]")
        if not depth:
            return text[: i + 1]
    raise ValueError(text)


def _scan(entry: int) -> str:
    """Text that looks for the pattern of entries of so many bytes."""
    kind = f"i{8 * entry}"
    return f"""
of{entry}:
  br label %look{entry}
look{entry}:
  %i{entry} = phi i64 [ 0, %of{entry} ], [ %j{entry}, %next{entry} ]
  %j{entry} = add i64 %i{entry}, {entry}
  %on{entry} = icmp ule i64 %j{entry}, %n
  br i1 %on{entry}, label %see{entry}, label %end
see{entry}:
  %at{entry} = getelementptr i8, ptr %p, i64 %i{entry}
  %x{entry} = load {kind}, ptr %at{entry}, align 1
  %bad{entry} = icmp eq {kind} %x{entry}, {_signed(entry)}
  br i1 %bad{entry}, label %found{entry}, label %next{entry}
next{entry}:
  br label %look{entry}
found{entry}:
  call void @tg_failed(i64 %what, i64 %site, ptr %at{entry}, i64 {entry}, {KIND} %b)
  br label %end"""


def _signed(entry: int) -> int:
    """The pattern of entries of so many bytes, as LLVM writes it."""
    pattern = checking.PATTERNS[entry]
    return pattern - (1 << 8 * entry if pattern >> (8 * entry - 1) else 0)


def _filled(entry: int) -> str:
    kind = f"i{8 * entry}"
    return f"""
of{entry}:
  br label %look{entry}
look{entry}:
  %i{entry} = phi i64 [ 0, %of{entry} ], [ %j{entry}, %set{entry} ]
  %j{entry} = add i64 %i{entry}, {entry}
  %on{entry} = icmp ule i64 %j{entry}, %n
  br i1 %on{entry}, label %set{entry}, label %end
set{entry}:
  %at{entry} = getelementptr i8, ptr %p, i64 %i{entry}
  store {kind} {_signed(entry)}, ptr %at{entry}, align 1
  br label %look{entry}"""


_HELP = f"""
@tg_fault = internal global [{_WORDS} x i64] zeroinitializer
@tg_nowhere = internal global [4096 x i8] zeroinitializer, align 64
define ptr @tg_fault_at() {{
  ret ptr @tg_fault
}}
define internal void @tg_failed(i64 %what, i64 %site, ptr %p, i64 %n, {KIND} %b) noinline cold {{
  %pair = cmpxchg ptr @tg_fault, i64 0, i64 %what seq_cst seq_cst
  %first = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %first, label %say, label %end
say:
  %low = extractvalue {KIND} %b, 0
  %high = extractvalue {KIND} %b, 1
  %number = extractvalue {KIND} %b, 2
  %at = ptrtoint ptr %p to i64
  %offset = sub i64 %at, %low
  %size = sub i64 %high, %low
  %p1 = getelementptr i64, ptr @tg_fault, i64 1
  store i64 %site, ptr %p1
  %p2 = getelementptr i64, ptr @tg_fault, i64 2
  store i64 %offset, ptr %p2
  %p3 = getelementptr i64, ptr @tg_fault, i64 3
  store i64 %n, ptr %p3
  %p4 = getelementptr i64, ptr @tg_fault, i64 4
  store i64 %size, ptr %p4
  %p5 = getelementptr i64, ptr @tg_fault, i64 5
  store i64 %number, ptr %p5
  br label %end
end:
  ret void
}}
define internal i1 @tg_may_write({KIND} %b, ptr %p, i64 %n, i64 %site) noinline {{
  %low = extractvalue {KIND} %b, 0
  %high = extractvalue {KIND} %b, 1
  %at = ptrtoint ptr %p to i64
  %end = add i64 %at, %n
  %none = icmp eq i64 %n, 0
  %right = icmp uge i64 %at, %low
  %left = icmp ule i64 %end, %high
  %whole = icmp uge i64 %end, %at
  %both = and i1 %right, %left
  %all = and i1 %both, %whole
  %fits = or i1 %all, %none
  br i1 %fits, label %yes, label %no
yes:
  ret i1 true
no:
  call void @tg_failed(i64 {_OUTSIDE}, i64 %site, ptr %p, i64 %n, {KIND} %b)
  ret i1 false
}}
define internal i1 @tg_may_read({KIND} %b, ptr %p, i64 %n, i64 %site) noinline {{
  %fits = call i1 @tg_may_write({KIND} %b, ptr %p, i64 %n, i64 %site)
  br i1 %fits, label %yes, label %no
yes:
  call void @tg_seen({KIND} %b, ptr %p, i64 %n, i64 {_UNWRITTEN}, i64 %site)
  ret i1 true
no:
  ret i1 false
}}
define internal ptr @tg_reached({KIND} %b, ptr %p, i64 %n, i64 %site) noinline {{
  %fits = call i1 @tg_may_write({KIND} %b, ptr %p, i64 %n, i64 %site)
  %at = select i1 %fits, ptr %p, ptr @tg_nowhere
  ret ptr %at
}}
define internal ptr @tg_read({KIND} %b, ptr %p, i64 %n, i64 %site) noinline {{
  %fits = call i1 @tg_may_read({KIND} %b, ptr %p, i64 %n, i64 %site)
  %at = select i1 %fits, ptr %p, ptr @tg_nowhere
  ret ptr %at
}}
define internal void @tg_seen({KIND} %b, ptr %p, i64 %n, i64 %what, i64 %site) noinline {{
  %number = extractvalue {KIND} %b, 2
  %entry = and i64 %number, 255
  switch i64 %entry, label %end [ i64 8, label %of8 i64 4, label %of4 i64 1, label %of1 ]{"".join(map(_scan, (8, 4, 1)))}
end:
  ret void
}}
define internal void @tg_poison(ptr %p, i64 %n, i64 %entry) noinline {{
  switch i64 %entry, label %end [ i64 8, label %of8 i64 4, label %of4 i64 1, label %of1 ]{"".join(map(_filled, (8, 4, 1)))}
end:
  ret void
}}
"""


# ------------------------------------------------------------------------------------------------- at run time


class Watched:
    """A function of machine code, after whose calls the record is looked at. It is no descriptor, as built-in functions are none."""

    __slots__ = ("function", "name", "record", "said")

    def __init__(self, function: Any, name: str, library: Any, said: Instrumented) -> None:
        self.function = function
        self.name = name
        self.said = said
        at = ctypes.CFUNCTYPE(ctypes.c_size_t)(library.addresses["tg_fault_at"])()
        self.record = (ctypes.c_int64 * _WORDS).from_address(at)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if self.record[0]:
            what, site, offset, n, size, number = self.record
            self.record[0] = 0
            raise self.error(what, site, offset, n, size, number)
        return result

    def error(
        self, what: int, site: int, offset: int, n: int, size: int, number: int
    ) -> CheckedAccessError:
        """The error that the numbers of a failed check stand for."""
        function, statement, line = self.said.places[site]
        buffer = self.said.buffers[number >> 8]
        where = f"{function}: {line}" + (f" (for {statement})" if statement else "")
        if what == _LEFT:
            tells = f"left {buffer} ({size} bytes) without a value at byte {offset}"
        elif what == _UNWRITTEN:
            tells = f"read what was never written: byte {offset} of {buffer} ({size} bytes)"
        else:
            tells = f"reached for {n} bytes at byte {offset} of {buffer}, which has {size} bytes"
        return CheckedAccessError(
            f"the compiled program {self.name} {tells}, in {where}. The fault is the compiler's, not the program's: no result of it can "
            "be trusted. Run the function without tg.compile, and report it."
        )
