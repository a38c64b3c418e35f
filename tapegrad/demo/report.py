"""The demonstration's table: each problem fitted from each start, one printed row per fit.

A `Row` holds what was measured of one fit; `HEADER` and `line` lay it out, `summary` weighs all of
them against the aim. Rows appear as they are found; a terminal also shows which fit is running.
Beside the digits of the fit stand those that SciPy's searches reach from the same start with
two-point differences in place of the tape (and no polish: it needs an exact Jacobian). The tape's
Jacobians are compiled, as `tg.least_squares` and `tg.curve_fit` do for themselves.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TextIO

import tapegrad as tg
from tapegrad.demo.fitting import Fit, fit, search
from tapegrad.demo.measures import complex_step, digits, jacobian_error, seconds, two_point
from tapegrad.demo.strd import Problem

AIM = 8.0

# Its certified residuals are the rounding errors of the printed data (a sum of squares of
# 1.4e-25), so the deviations certify nothing that another computation could meet.
NO_DEVIATIONS = {"Lanczos1"}

# fmt: off
HEADER = (
    "                          certified digits     gradient          µs a Jacobian\n"
    "problem   level   start   tape    s.d.  2-point    error  steps    tape  2-point\n"
    "--------------------------------------------------------------------------------"
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one fit. `deviation_digits` is None where nothing can be compared."""

    problem: Problem
    start: int
    fit: Fit
    parameter_digits: float
    deviation_digits: float | None
    difference_digits: float
    gradient_error: float
    tape_seconds: float
    difference_seconds: float


def run(problem: Problem, start: int) -> Row:
    """Fit `problem` from its first or second start and measure the result."""
    jacobian = tg.compile(tg.jacobian(problem.residual))
    beta = problem.starts[start - 1]
    found = fit(problem.residual, jacobian, beta)
    by_differences = search(problem.residual, "2-point", beta)
    compared = problem.name not in NO_DEVIATIONS
    return Row(
        problem=problem,
        start=start,
        fit=found,
        parameter_digits=digits(found.parameters, problem.certified),
        deviation_digits=digits(found.deviations, problem.deviations) if compared else None,
        difference_digits=digits(by_differences.x, problem.certified),
        gradient_error=max(
            jacobian_error(jacobian(b), complex_step(problem.residual, b))
            for b in (beta, found.parameters)
        ),
        tape_seconds=seconds(jacobian, found.parameters),
        difference_seconds=seconds(two_point, problem.residual, found.parameters),
    )


def line(row: Row) -> str:
    """A row of the table, under `HEADER`."""
    deviations = "-" if row.deviation_digits is None else f"{row.deviation_digits:.1f}"
    return (
        f"{row.problem.name:9} {row.problem.level:7} {row.start:5d}"
        f"  {row.parameter_digits:5.1f}  {deviations:>6}  {row.difference_digits:7.1f}"
        f"  {row.gradient_error:7.1e}  {row.fit.jacobians:5d}"
        f"  {1e6 * row.tape_seconds:6.1f}  {1e6 * row.difference_seconds:7.1f}"
    )


def table(
    problems: Iterable[Problem], starts: Iterable[int], out: TextIO, progress: TextIO
) -> Iterator[Row]:
    """Run all fits, writing each row to `out` when it is there, and yield the rows."""
    tasks = [(problem, start) for problem in problems for start in starts]
    print(HEADER, file=out, flush=True)
    for k, (problem, start) in enumerate(tasks, 1):
        note(progress, f"fitting {problem.name} from start {start} ({k} of {len(tasks)})")
        row = run(problem, start)
        note(progress, "")
        print(line(row), file=out, flush=True)
        yield row


def note(stream: TextIO, text: str) -> None:
    """Put `text` in place of the line at the foot of a terminal; a file or pipe gets nothing."""
    if stream.isatty():
        stream.write(f"\r\x1b[K{text}")
        stream.flush()


def judged(rows: list[Row]) -> list[Row]:
    """The rows that the aim is about: those from the second start, if it was asked for."""
    last = max(row.start for row in rows)
    return [row for row in rows if row.start == last]


def met(rows: list[Row]) -> bool:
    """Whether each problem has the certified digits that the demonstration aims at."""
    return all(row.parameter_digits >= AIM for row in judged(rows))


def summary(rows: list[Row], elapsed: float) -> str:
    """What the rows say together, a sentence a line."""
    lines = []
    for start in sorted({row.start for row in rows}):
        here = [row for row in rows if row.start == start]
        lines += [
            tally(f"start {start}, tape:   ", {r.problem.name: r.parameter_digits for r in here}),
            tally(f"start {start}, 2-point:", {r.problem.name: r.difference_digits for r in here}),
        ]
    spreads = [
        (row.deviation_digits, row.problem.name) for row in rows if row.deviation_digits is not None
    ]
    if spreads:
        lines.append("standard deviations: worst {:.1f} digits ({})".format(*min(spreads)))
    error, name = max((row.gradient_error, row.problem.name) for row in rows)
    ratio = median(row.tape_seconds / row.difference_seconds for row in rows)
    lines += [
        f"Jacobians of the tape against the complex step: worst error {error:.1e} ({name})",
        f"time of a Jacobian, tape over 2-point: {ratio:.1g} (median)",
        f"total {elapsed:.1f} s; aim {'met' if met(rows) else 'NOT met'}",
    ]
    return "\n".join(lines)


def tally(title: str, reached: dict[str, float]) -> str:
    """How many problems reached the aim, and which is furthest from it."""
    good = sum(count >= AIM for count in reached.values())
    worst = min(reached, key=lambda name: reached[name])
    return (
        f"{title} {good} of {len(reached)} with {AIM:.0f} digits or more in every parameter, "
        f"worst {reached[worst]:.1f} ({worst})"
    )


def demonstrate(problems: list[Problem], starts: tuple[int, ...]) -> list[Row]:
    """Print the table of all fits and its summary, and return the rows."""
    began = time.perf_counter()
    rows = list(table(problems, starts, sys.stdout, sys.stderr))
    print("", summary(rows, time.perf_counter() - began), sep="\n", flush=True)
    return rows
