"""How a figure is taken: turn about in one process, or in a fresh process of its own.

A shared machine changes its speed by tens of per cent from second to second, so times that were
taken one after the other cannot be divided. `turn_about` lets the contestants run A B C, C B A, ...
and divides only within a round; the median of those quotients is the figure. What can be measured
only once in a process (imports, peak memory) is measured in a child, again turn about.
"""

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TURN_SECONDS = 0.01

Run = Callable[[], Any]
Clock = Callable[[], float]

# On a machine that others use too, the processor time of all threads of this process is the
# steadier clock, and for one thread the same thing: it leaves out only the waiting.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def turn(
    run: Run,
    calls: int,
    clock: Clock = time.perf_counter,
    after: Callable[[Any], object] | None = None,
) -> float:
    """Seconds for a call, over `calls` of them, after one that brings its code back into cache.

    `after` gets the result of each call, outside the clock.
    """
    result = run()
    if after is None:
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls
    after(result)
    total = 0.0
    for _ in range(calls):
        start = clock()
        result = run()
        total += clock() - start
        after(result)
    return total / calls


def turn_about(
    runs: Mapping[str, Run],
    seconds: float,
    clock: Clock = time.perf_counter,
    after: Mapping[str, Callable[[Any], object]] | None = None,
    rounds: int = 5,
) -> dict[str, list[float]]:
    """Seconds for a call of each run, one figure a round: for `seconds`, and at least `rounds`.

    The runs are expected warm. Objects alive now (all of the libraries) are taken out of the
    garbage collector's sight: what it would spend on walking other libraries' modules is no
    contestant's cost. It stays switched on, as it is for the user.
    """
    after = after or {}
    calls = {
        name: max(1, int(TURN_SECONDS / turn(run, 1, after=after.get(name))))
        for name, run in runs.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    gc.collect()
    gc.freeze()
    try:
        end = time.perf_counter() + seconds
        while len(times[order[0]]) < rounds or time.perf_counter() < end:
            for name in order:
                times[name].append(turn(runs[name], calls[name], clock, after.get(name)))
            order.reverse()
    finally:
        gc.unfreeze()
    return times


def ratio(upper: list[float], lower: list[float]) -> float:
    """Median of the quotients of the rounds."""
    return statistics.median(u / v for u, v in zip(upper, lower, strict=True))


def difference(upper: list[float], lower: list[float]) -> float:
    """Median of the differences of the rounds."""
    return statistics.median(u - v for u, v in zip(upper, lower, strict=True))


def fresh(source: str, environment: Mapping[str, str] | None = None) -> tuple[float, dict]:
    """Wall-clock seconds of `python -c source`, and the JSON object on its last line of output."""
    # Bytecode must be written and found, or every import is timed as if it were the first.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**inherited, **(environment or {})},
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(
            f"The fresh process of a benchmark ended with status {done.returncode}, so there is "
            f"nothing to report. It ran:\n{source}\nand said:\n{done.stderr}"
        )
    return seconds, json.loads(done.stdout.splitlines()[-1])


def machine() -> dict[str, str]:
    """What the figures were taken on: they mean nothing without it."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        name = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), name)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return {
        "processor": f"{name}, {os.cpu_count()} cores{load}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
