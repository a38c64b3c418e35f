"""Clocks: where the time of a compiled program goes, by loop nest and routine, with the lines of the user's code.

`Compiled.profile` traces its function once more and writes that program with a reading of the processor's counter before and behind each
loop nest and each call of a routine. The program that ordinary calls run is left alone.

Data: a `Clocks` has the places where the counter is read, and a table of two integers for each: ticks, and how often.
Invariant: text has readings only if it was written while a `Clocks` was `RUNNING` in this context.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core import markup
from ..core.frames import users
from ..llvm import jit, named
from . import graph, sanitizer

if TYPE_CHECKING:
    from . import Compiled
    from .schedule import Nest, Walk

RUNNING: ContextVar[Clocks | None] = ContextVar("tapegrad.clocks", default=None)

MOST = 4096
"""Places of a program with a row of their own; the last row is that of all others."""

SHORTEST, FEWEST = 0.2, 10
"""Seconds for which a program is run again and again, and how often at least (three times, where one call takes longer than that)."""

CALIBRATION = 0.02
"""Seconds in which the counter's ticks are counted."""

LINES = 3
"""Lines that a row names."""

_HEAD = ["where", "computes", "runs", "us", "share"]


class Place(NamedTuple):
    """Where the counter is read: lines of the user's code, what is computed there, and over which indices."""

    where: str
    what: str
    space: tuple[int, ...]


class Row(NamedTuple):
    """One loop nest or routine: lines of the user's code, what it computes, and in one call of the program its runs and seconds."""

    where: str
    what: str
    runs: float
    seconds: float


@dataclass(frozen=True)
class Timings:
    """Where the time of a compiled program goes; prints as a table, the costliest loop nests first.

    `rows` are the loop nests and routines, `seconds` is what a call takes, and `rest` what no row has: taking arguments apart, making
    results, copies, calls of NumPy that remain.
    """

    name: str
    rows: list[Row]
    seconds: float
    rest: float

    def _cells(self) -> list[list[str]]:
        shares = [(row.where or "-", row.what, f"{row.runs:g}", row.seconds) for row in self.rows]
        shares.append(("-", "the rest", "", self.rest))
        return [
            [where, what, runs, f"{1e6 * s:.2f}", f"{s / self.seconds:.0%}"]
            for where, what, runs, s in shares
        ]

    def _caption(self) -> str:
        return f"program {self.name}: {1e6 * self.seconds:.2f} us a call"

    def __str__(self) -> str:
        return "\n".join([self._caption(), *markup.aligned([_HEAD, *self._cells()], 2)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return markup.table(self._cells(), _HEAD, self._caption())


class Clocks:
    """The places of one program where the counter is read."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.table = np.zeros((MOST, 2), np.int64)
        self.readings = 0

    def begun(self) -> tuple[int, str]:
        """The number of a reading, and its text."""
        self.readings += 1
        return self.readings, f"  %tick{self.readings} = {_reading()}"

    def ended(self, k: int, place: Place, shared: bool) -> list[str]:
        """The text of the reading behind, which adds to a row of the table; atomically, where threads may do so at once."""
        row = min(k, MOST) - 1
        self.places[row] = place if k <= MOST else Place("", "others", ())
        lines = [f"  %tock{k} = {_reading()}", f"  %took{k} = sub i64 %tock{k}, %tick{k}"]
        for name, at, more in (("ticks", 0, f"%took{k}"), ("times", 8, "1")):
            cell, sum = f"%cell{k}.{at}", f"%{name}{k}.sum"
            lines.append(f"  {cell} = getelementptr i8, ptr @tg_clock, i64 {16 * row + at}")
            if shared:
                lines.append(f"  %{name}{k} = atomicrmw add ptr {cell}, i64 {more} monotonic")
                continue
            lines += [
                f"  %{name}{k} = load i64, ptr {cell}",
                f"  {sum} = add i64 %{name}{k}, {more}",
                f"  store i64 {sum}, ptr {cell}",
            ]
        return lines

    @property
    def address(self) -> int:
        """Where the table lies."""
        return self.table.ctypes.data


@contextmanager
def read(lines: list[str], place: Callable[[], Place], shared: bool = False) -> Iterator[None]:
    """The text that is written inside stands between two readings, where somebody asked for them."""
    clocks = RUNNING.get()
    if clocks is None:
        yield
        return
    k, text = clocks.begun()
    lines.append(text)
    yield
    lines += clocks.ended(k, place(), shared)


def declared(text: str) -> str:
    """What the text names of clocks, if it has any."""
    if "@tg_clock" not in text:
        return ""
    said = sanitizer.said(f"global @tg_clock {16 * MOST} the clocks")
    return "\n".join(["", *said, "@tg_clock = external global i8", f"declare i64 @{_counter()}()"])


def place_of(nest: Nest, walk: Walk) -> Place:
    """The place of a loop nest, which reads and evaluates what a walk says."""
    names: Counter[str] = Counter()
    lines: dict[str, None] = {}
    for op in {op.number: op for op in (*walk.evaluated.values(), *nest.roots)}.values():
        if op.line:
            lines[op.line] = None
        if op.kind == "elem":
            names[named.function_of(op.attr)] += 1
        elif op.kind == "reduce":
            names[f"{op.attr[0]} over axes"] += 1
        elif op.kind in ("gather", "scatter"):
            names[op.kind] += 1
    what = ", ".join(f"{n} {name}" if n > 1 else name for name, n in names.most_common())
    where = "; ".join(list(lines)[:LINES]) + ("; ..." if len(lines) > LINES else "")
    if not where:  # of the reverse pass, mostly, which reads values of the lines that it belongs to
        near = list(dict.fromkeys(op.line for op, _ in walk.reads if op.line))
        where = f"from {'; '.join(near[:LINES])}" if near else ""
    return Place(where, what or "copies", nest.space)


# ------------------------------------------------------------------------------------------------- the counter


def _counter() -> str:
    """LLVM's name of a counter that programs may read: on ARM that of cycles is the system's own."""
    import llvmlite.binding as llvm

    x86 = llvm.get_default_triple().startswith(("x86_64", "i686", "amd64"))
    return "llvm.readcyclecounter" if x86 else "llvm.readsteadycounter"


def _reading() -> str:
    return f"call i64 @{_counter()}()"


def _counter_of_this_machine() -> tuple[float, int]:
    """Ticks of the counter in a second, and between two readings that nothing stands between."""
    text = f"""
declare i64 @{_counter()}()
define i64 @tg_ticks() {{
  %t = {_reading()}
  ret i64 %t
}}
define i64 @tg_nothing() {{
  %t = {_reading()}
  %u = {_reading()}
  %d = sub i64 %u, %t
  ret i64 %d
}}"""
    part = jit.compiled(text)
    library = jit.Library([part.code], ["tg_ticks", "tg_nothing"], {}, part.asks, None)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64)
    ticks, nothing = kind(library.addresses["tg_ticks"]), kind(library.addresses["tg_nothing"])
    least = min(nothing() for _ in range(100))
    begin, start = ticks(), time.perf_counter()
    time.sleep(CALIBRATION)
    end, stop = ticks(), time.perf_counter()
    if end <= begin:
        raise NotImplementedError(
            "this processor has no counter that programs may read, so that loop nests cannot be timed: use tg.profile(), which times "
            "whole calls, and report()."
        )
    return (end - begin) / (stop - start), least


# ------------------------------------------------------------------------------------------------- measuring


def _line(asked: FrameType) -> str:
    """The innermost line of the user's code inside the traced function; none where the reverse pass is at work."""
    for frame in users(sys._getframe(1), until=asked):
        return (
            f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
        )
    return ""


def measured(compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Timings:
    """Trace and compile the program with clocks, run it on these arguments, and tell."""
    from .program import taken_apart, traced

    rate, least = _counter_of_this_machine()
    programs = compiled.programs
    total = _repeated(functools.partial(compiled, *args, **kwargs))[0]
    call = taken_apart(args, kwargs, compiled._static(len(args)), programs.compares)
    clocks = Clocks()
    token = RUNNING.set(clocks)
    graph.LINES[get_ident()] = functools.partial(_line, sys._getframe())
    try:
        program = traced(compiled.f, call, programs.name)[0]
    finally:
        del graph.LINES[get_ident()]
        RUNNING.reset(token)
    program(call.values)
    clocks.table[:] = 0
    n = _repeated(functools.partial(program, call.values))[1] + 1
    found: dict[tuple[str, str], list[float]] = {}
    for row, place in clocks.places.items():
        ticks, runs = clocks.table[row].tolist()
        over = f" over {list(place.space)}" if place.space else ""
        sums = found.setdefault((place.where, place.what + over), [0.0, 0.0])
        sums[0] += runs / n
        sums[1] += max(ticks - runs * least, 0) / rate / n
    rows = [Row(*key, *sums) for key, sums in found.items() if sums[0]]
    rows.sort(key=lambda row: -row.seconds)
    return Timings(programs.name, rows, total, max(total - sum(row.seconds for row in rows), 0.0))


def _repeated(run: Callable[[], Any]) -> tuple[float, int]:
    """Seconds of a run, the mean of many behind a first one, and how many."""
    run()  # which finds caches cold, or compiles
    times: list[float] = []
    while len(times) < 3 or sum(times) < SHORTEST or (len(times) < FEWEST and times[0] < 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sum(times) / len(times), len(times)
