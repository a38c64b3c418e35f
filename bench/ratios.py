"""The figures that the guide quotes: `python -m bench.ratios`, one thread, some five minutes.

Every figure is taken turn about with what it is compared with (`measure`), after its answer was
asserted. A goal is a promise of the project; a row without one is there to be honest about the
rest. Peers that are not installed are left out. Nothing here is a test: the exit status is 0
whatever the figures say.

    python -m bench.ratios --only chain --only memory    rows whose section or name has a word
    python -m bench.ratios --json /tmp/ratios.json       every round; a file outside the repository
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import measure, memory, peers, recording, startup
from bench.workloads import CASES, work

# How many times faster than a peer a gradient is meant to be.
# fmt: off
GOALS = {
    ("chain", 1):                {"torch": 4.5, "autograd": 10.0, "mygrad": 10.0},
    ("chain", 10):               {"torch": 4.0, "autograd": 10.0, "mygrad": 10.0},
    ("chain", 100):              {"torch": 2.5, "autograd": 10.0, "mygrad": 10.0},
    ("rosenbrock_loop", 250):    {"torch": 7.0},
    ("rosenbrock_scalars", 250): {"torch": 7.0},
    ("mlp", 32):                 {"torch": 1.5},
    ("axpy_chain", 1_000_000):   {"torch": 1.0},
}
# fmt: on
OPPONENTS = ("tapegrad_numpy", "numpy", "torch", "jax", "autograd", "mygrad")
RECORDING_GOALS = {"recorded": 350.0, "no_grad": 200.0}  # ns an operation over NumPy
STARTUP_GOALS = {"jax": 0.5, "autograd": 3.0}
WARM_GOAL = 1.05  # no slower than cold, within what two equal processes differ by
GROWTH_GOAL = 20.0  # MB
PEAK_GOAL = 1.02  # no more than the peer, within the pages of a warmed-up process
FRESH_ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `figure` is what is judged, and `rounds` what it was computed from."""

    name: str
    peer: str
    mine: str
    theirs: str
    figure: float
    goal: float | None = None
    lower_is_better: bool = False
    note: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the figure, as it is printed, reaches the goal; None without a goal."""
        if self.goal is None:
            return None
        shown = float(number(self.figure))
        return shown <= self.goal if self.lower_is_better else shown >= self.goal

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"{'≤' if self.lower_is_better else '≥'} {self.goal:g}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return table_line(
            self.name,
            self.peer,
            self.mine,
            self.theirs,
            number(self.figure),
            goal,
            verdict,
            self.note,
        )


HEADINGS = ("", "beside", "tapegrad", "other", "figure", "goal", "", "")
WIDTHS = (27, 14, 8, 8, 7, 6, 6, 16)


def table_line(*cells: str) -> str:
    """A line of a Markdown table that also reads well in a terminal."""
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return f"| {' | '.join(padded)} |"


def number(x: float) -> str:
    """Three digits, and no exponent for a big one.

    >>> number(0.123456), number(1234.5)
    ('0.123', '1234')
    """
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"


def duration(seconds: float) -> str:
    """Three digits and a unit.

    >>> duration(0.00012345)
    '123 µs'
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{number(seconds / unit)} {name}"
    return f"{number(seconds * 1e9)} ns"


@dataclass(frozen=True)
class Options:
    """What to measure, for how long (seconds a row, in this process), by which engine and clock."""

    only: Sequence[str] = ()
    seconds: float = 1.5
    engine: str = "replay"
    clock: str = "wall"

    def want(self, section: str, name: str) -> bool:
        return not self.only or any(word in f"{section} {name}" for word in self.only)


def gradients(options: Options) -> Iterator[Row]:
    """Gradients, forward and backward: how many times faster"""
    for workload, size in CASES:
        name = f"{workload.name} n={size}"
        if not options.want("gradients", name):
            continue
        mine = peers.checked("tapegrad", workload, size)
        elements = work(workload, size)["elements"]
        for other in OPPONENTS:
            if not peers.installed(other) or (other, workload.name) in peers.NOT_TIMED:
                continue
            theirs = peers.checked(other, workload, size)
            pair = {"tapegrad": mine, other: theirs}
            rounds = measure.turn_about(pair, options.seconds, measure.CLOCKS[options.clock])
            each = {who: statistics.median(times) for who, times in rounds.items()}
            yield Row(
                name,
                other,
                duration(each["tapegrad"]),
                duration(each[other]),
                measure.ratio(rounds[other], rounds["tapegrad"]),
                GOALS.get((workload.name, size), {}).get(other),
                note=f"{number(1e9 * each['tapegrad'] / elements)} ns/element",
                rounds=rounds,
            )


def recorded_operations(options: Options) -> Iterator[Row]:
    """An operation on one number: ns over bare NumPy"""
    for kind in recording.CHAINS:
        if not options.want("recording", kind):
            continue
        clock, runs = measure.CLOCKS[options.clock], recording.runs(kind)
        # One mode at a time: what "dropped" leaves on the tape is cleared at another's expense.
        for mode in ("no_grad", "recorded", "dropped"):
            pair = {"numpy": runs["numpy"], mode: runs[mode]}
            after = {"recorded": recording.finish}
            rounds = measure.turn_about(pair, options.seconds, clock, after)
            each = {who: statistics.median(t) / recording.OPERATIONS for who, t in rounds.items()}
            over = measure.difference(rounds[mode], rounds["numpy"]) / recording.OPERATIONS
            yield Row(
                f"{kind}, {mode}",
                "numpy",
                duration(each[mode]),
                duration(each["numpy"]),
                1e9 * over,
                RECORDING_GOALS.get(mode),
                lower_is_better=True,
                note=f"{number(over / each['numpy'])} x NumPy",
                rounds=rounds,
            )


def peak_memory(options: Options) -> Iterator[Row]:
    """Peak memory of 200 operations on a million numbers: part of the peer's, in arrays of 8 MB"""
    for kind in memory.ROUNDS:
        if memory.MISSING or not options.want("memory", kind):
            continue
        mine, theirs = (
            memory.fresh(memory.peak, who, options.engine, kind, 1_000_000, memory.OPERATIONS)
            if peers.installed(who)
            else None
            for who in memory.LIBRARIES
        )
        yield Row(
            kind,
            "torch" if theirs else "",
            f"{mine['arrays']:.1f}",
            f"{theirs['arrays']:.1f}" if theirs else "",
            mine["arrays"] / theirs["arrays"] if theirs else mine["arrays"],
            PEAK_GOAL if theirs else None,
            lower_is_better=True,
        )


def kept_memory(options: Options) -> Iterator[Row]:
    """What stays resident: after a million dropped results, and of an operation on one number"""
    for name, function, args, scale, goal, unit in (
        ("dropped results", memory.growth, (False, 500_000), 1e6, GROWTH_GOAL, "MB"),
        ("dropped, one pinned", memory.growth, (True, 500_000), 1e6, GROWTH_GOAL, "MB"),
        ("operation in a chain", memory.entry, (100_000,), 1.0, None, "bytes"),
    ):
        if memory.MISSING or not options.want("memory", name):
            continue
        mine, theirs = (
            memory.fresh(function, who, options.engine, *args)["bytes"] / scale
            if peers.installed(who)
            else None
            for who in memory.LIBRARIES
        )
        yield Row(
            name,
            "" if theirs is None else "torch",
            f"{mine:.3g}",
            "" if theirs is None else f"{theirs:.3g}",
            mine,
            goal,
            lower_is_better=True,
            note=unit,
        )


def first_gradients(options: Options) -> Iterator[Row]:
    """A fresh process up to its first gradient: part of the other's time"""
    if not options.want("startup", "cold warm"):
        return
    others = [who for who in ("autograd", "jax", "torch") if peers.installed(who)]
    rounds: dict[str, list[float]] = {name: [] for name in ("cold", "warm", *others)}
    startup.fill_cache()
    for k in range(FRESH_ROUNDS + 1):
        with startup.cold_cache() as empty:
            order = [("cold", "tapegrad", empty), ("warm", "tapegrad", None)]
            order += [(who, who, None) for who in others]
            for name, library, cache in order if k % 2 else reversed(order):
                seconds = startup.first_gradient(library, cache)["process"]
                if k:  # the first round writes bytecode and fills the file system's cache
                    rounds[name].append(seconds)
    each = {name: statistics.median(times) for name, times in rounds.items()}
    pairs = [("cold", who, STARTUP_GOALS.get(who)) for who in others]
    for mine, theirs, goal in [*pairs, ("warm", "cold", WARM_GOAL)]:
        yield Row(
            f"{mine} cache",
            theirs,
            duration(each[mine]),
            duration(each[theirs]),
            measure.ratio(rounds[mine], rounds[theirs]),
            goal,
            lower_is_better=True,
            rounds={name: rounds[name] for name in (mine, theirs)},
        )


SECTIONS = (gradients, recorded_operations, peak_memory, kept_memory, first_gradients)


def outside_repository(path: str) -> Path:
    """Type of `--json`: figures of one machine on one day do not belong into the repository."""
    file = Path(path).resolve()
    if file.is_relative_to(measure.ROOT):
        raise argparse.ArgumentTypeError(
            f"{file} is inside the repository, where figures of one machine on one day do not "
            "belong. Give a path outside of it, for example /tmp/ratios.json."
        )
    return file


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ratios", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--json", type=outside_repository, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="spent on a row")
    parser.add_argument("--engine", default=Options.engine, choices=("replay", "sweep", "auto"))
    parser.add_argument(
        "--clock",
        default=Options.clock,
        choices=tuple(measure.CLOCKS),
        help="of the figures taken in this process: cpu is steadier on a machine that others use",
    )
    given = parser.parse_args(arguments)
    options = Options(given.only, given.seconds, given.engine, given.clock)

    import tapegrad

    tapegrad.set_engine(options.engine)
    libraries = ("tapegrad", "numpy", "numba", "scipy", "torch", "jax", "autograd", "mygrad")
    where = measure.machine() | {
        "versions": ", ".join(f"{x} {peers.version(x)}" for x in libraries if peers.installed(x)),
        "engine": f"{options.engine}, {options.clock} clock",
    }
    print(*(f"- {key}: {value}" for key, value in where.items()), sep="\n")

    rows: dict[str, list[Row]] = {}
    for section in SECTIONS:
        for row in section(options):
            if section.__name__ not in rows:
                print(f"\n**{section.__doc__}**\n")
                print(table_line(*HEADINGS), table_line(*("-" * w for w in WIDTHS)), sep="\n")
            rows.setdefault(section.__name__, []).append(row)
            print(row, flush=True)
    verdicts = [row.met for found in rows.values() for row in found if row.goal is not None]
    print(f"\n{sum(map(bool, verdicts))} of {len(verdicts)} goals met.")
    if given.json:
        found = {name: [asdict(row) for row in section] for name, section in rows.items()}
        given.json.write_text(json.dumps({"where": where, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
