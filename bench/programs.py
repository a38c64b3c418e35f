"""The suite's table, on one thread: `python -m bench.programs [--only WORD] [--seconds 0.3] [--json FILE]`, about a quarter of an hour.

Each program has a process of its own with an empty cache. There each contestant makes a first call at the largest size, whose time and peak
memory are taken; then, at each of the three sizes, gradients are found equal, and calls of all contestants are timed turn about. All times
are processor time, the steadier clock on a machine with other users; figures are medians of the quotients of rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from bench import measure, memory, peers, ratios, suite

OURS = ("compiled", "native")


def figures(name: str, seconds: float) -> dict[str, Any]:
    """Of one program, in this process: by contestant seconds of the first call, bytes, and by size seconds of each round."""
    program, clock = suite.PROGRAMS[name], measure.CLOCKS["cpu"]
    makers = {k: f for k, f in (suite.GRADIENTS | suite.VALUES).items() if k != "eager"}
    if not peers.installed("jax"):
        del makers["jax"]
    other = suite.PROGRAMS["mvt" if name == "atax" else "atax"]
    for make in makers.values():  # the libraries are loaded
        make(other)(*other.inputs(0))
    calls, first, peak, times = {}, {}, {}, []
    args = program.inputs(-1)
    for who, make in makers.items():
        gc.collect()
        before, start = memory.forget_highest(), clock()
        calls[who] = make(program)
        calls[who](*args)
        first[who] = clock() - start
        memory.forget_highest()
        calls[who](*args)
        peak[who] = memory.status("VmHWM") - before
    for which in range(len(program.sizes)):
        args = program.inputs(which)
        _, wanted = calls["compiled"](*args)
        for who in calls.keys() & suite.GRADIENTS.keys():
            for mine, other in zip(calls[who](*args)[1], wanted, strict=True):
                scale = 1e-8 * np.max(np.abs(other), initial=1e-300)
                np.testing.assert_allclose(mine, other, rtol=1e-6, atol=scale)
        runs = {who: lambda call=call, args=args: call(*args) for who, call in calls.items()}
        times.append(measure.turn_about(runs, seconds, clock))
    return {"first": first, "peak": peak, "times": times}


def row(found: dict[str, Any]) -> dict[str, float]:
    """The figures of the table: quotients of JAX's times by size, gradient over value, first calls, megabytes."""
    out, largest = {}, found["times"][-1]
    value = min((largest[who] for who in suite.VALUES), key=lambda t: sorted(t)[len(t) // 2])
    for who in OURS:
        if "jax" in largest:
            for which, times in enumerate(found["times"]):
                out[f"{who} {which}"] = measure.ratio(times["jax"], times[who])
        out[f"{who}/value"] = measure.ratio(largest[who], value)
    for who in (*OURS, "jax"):
        if who in largest:
            out[f"{who} first"] = found["first"][who]
            out[f"{who} MB"] = max(found["peak"][who], 4096) / 1e6
    return out


def shown(name: str, figures: dict[str, float]) -> str:
    """A line of the Markdown table."""

    def several(keys: Iterable[str]) -> str:
        return " / ".join(ratios.number(figures[k]) if k in figures else "-" for k in keys)

    cells = [name, *(several(f"{who} {i}" for i in range(3)) for who in OURS)]
    cells += [several(f"{who}/value" for who in OURS)]
    cells += [several(f"{who} {what}" for who in (*OURS, "jax")) for what in ("first", "MB")]
    return f"| {' | '.join(cells)} |"


HEADINGS = (
    "program",
    "JAX / compiled, by size",
    "JAX / native, by size",
    "gradient / value",
    "first call, s (compiled / native / JAX)",
    "memory, MB (compiled / native / JAX)",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--seconds", type=float, default=0.3, help="spent on a size")
    parser.add_argument("--json", type=ratios.outside_repository, metavar="FILE")
    given = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}", sep="\n")
    rows = {}
    for name in suite.PROGRAMS:
        if given.only and not any(word in name for word in given.only):
            continue
        with tempfile.TemporaryDirectory() as cache:
            source = f"import json\nfrom bench import programs\nprint(json.dumps(programs.figures({name!r}, {given.seconds})))"
            try:
                _, found = measure.fresh(source, memory.ALLOCATOR | {"TAPEGRAD_CACHE_DIR": cache})
            except RuntimeError as error:
                print(f"| {name} | {str(error).strip().splitlines()[-1]} |", flush=True)
                continue
        rows[name] = row(found)
        print(shown(name, rows[name]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    for told, pick in (
        ("geometric mean", lambda x: math.exp(np.mean(np.log(x)))),
        ("least", min),
        ("most", max),
    ):
        keys = dict.fromkeys(key for each in rows.values() for key in each)
        print(
            shown(told, {k: pick([each[k] for each in rows.values() if k in each]) for k in keys})
        )


if __name__ == "__main__":
    main()
