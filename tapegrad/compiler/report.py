"""The report: what a compiled program consists of, in figures.

A `Report` prints as a table, in notebooks as HTML. It counts what the schedule says: loops, memory, arithmetic; only time is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import markup
from ..llvm import named
from .graph import Guard
from .schedule import topological


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one program; `str(report)` is a table."""

    name: str
    recorded: int
    """Calls recorded while tracing, without those that nothing needs."""
    calls: dict[str, int]
    """NumPy calls that remain, by name."""
    expressions: dict[str, int]
    """Elementwise operations and reductions in machine code, by name."""
    loops: int
    blocks: int
    shared: int
    """Groups of loops that threads share."""
    memory: int
    """Bytes of scratch memory that a call uses at one time, in one thread."""
    work: int
    """Elementwise operations and additions that a call makes, about: one for each entry."""
    guards: tuple[str, ...]
    """What is checked and where, each line once: a loop may look at one value after another."""
    code: int
    """Bytes of object code."""
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        recorded: int,
        natives: Sequence[Any],
        calls: Sequence[str],
        guards: Sequence[Guard],
        tracing: float,
    ) -> Report:
        """The figures of a program's parts."""
        expressions: Counter[str] = Counter()
        work = 0
        seconds = {"trace": tracing}
        for native in natives:
            for op in (op for outputs, _ in native.parts for op in topological(outputs)):
                if op.kind == "elem":
                    expressions[named.function_of(op.attr)] += 1
                    work += op.size
                elif op.kind == "reduce":
                    expressions[f"{op.attr[0]} over axes"] += 1
                    work += op.inputs[0].size
            for routine in native.routines:
                expressions[routine.of] += 1
                work += routine.work
            for stage, spent in native.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + spent
        schedules = [schedule for native in natives for _, schedule in native.parts]
        groups = [group for schedule in schedules for group in schedule.groups]
        return cls(
            name,
            recorded,
            dict(Counter(calls)),
            dict(expressions),
            sum(len(group.nests) for group in groups),
            len(groups),
            sum(group.chunks > 1 for group in groups),
            sum(native.scratch for native in natives) + sum(s.own for s in schedules),
            work,
            tuple(dict.fromkeys(f"{g.what}, {g.where}" for g in guards)),
            sum(native.size for native in natives),
            seconds,
        )

    def _rows(self) -> list[tuple[str, str]]:
        """The rows of the report, as pairs of text."""

        def counted(counts: dict[str, int]) -> str:
            pairs = sorted(counts.items(), key=lambda pair: -pair[1])
            return ", ".join(f"{n} {name}" if n > 1 else name for name, n in pairs) or "none"

        return [
            ("calls recorded", str(self.recorded)),
            ("in machine code", counted(self.expressions)),
            ("NumPy calls", counted(self.calls)),
            (
                "loop nests",
                f"{self.loops} in {self.blocks} groups, {self.shared} shared by threads",
            ),
            ("scratch memory", f"{self.memory:,} bytes"),
            ("operations a call", f"{self.work:,}"),
            ("object code", f"{self.code:,} bytes"),
            ("guards", "; ".join(self.guards) or "none"),
            ("compile time", ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.seconds.items())),
        ]

    def __str__(self) -> str:
        return "\n".join([f"program {self.name}", *(f"  {k:<18} {v}" for k, v in self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return markup.table(self._rows(), caption=f"program {self.name}", named=True)
