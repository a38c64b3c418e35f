"""What compiled programs cost beside their peers: `python -m bench.compiled`, about ten minutes.

Each figure is taken in a process of its own: time of the first call with an empty cache (tracing, compiling, running), time of a call
after that (the median), and the highest resident memory in later calls and in the first, above what was there when inputs and
libraries were loaded. Processes of the contestants take turns, and the least of the rounds is the figure, since other users of
a machine only add.

    python -m bench.compiled --only gmm --threads 1 2 --rounds 3
"""

import argparse
import gc
import json
import statistics
import tempfile
import time

import pytest

from bench import bench_compile, measure, memory, peers

CONTESTANTS = (
    "compiled",
    "compiled_scan",
    "compiled_value",
    "jax",
    "torch",
    "torch_compile",
    "casadi",
    "autograd",
    "by_hand",
)
SECONDS = 1.0
"""How long calls are repeated in each process."""

LEAST = 2e-5
"""Seconds between two looks at the clock, which takes as long as the shortest programs: those are called several times."""


def costs(name: str, contestant: str, threads: int) -> dict:
    """One contestant on one program, in this process: seconds and bytes; or why there are none."""
    try:
        if contestant in bench_compile.PEERS and not peers.installed(contestant):
            return {"skipped": f"{peers.library(contestant)} is not installed"}
        bench_compile.CONTESTANTS[contestant]("rosenbrock")()  # the libraries are loaded
        run = bench_compile.CONTESTANTS[contestant](name)
    except (pytest.skip.Exception, ImportError) as reason:
        return {"skipped": str(reason)}
    if contestant.startswith("torch"):
        import torch

        torch.set_num_threads(threads)
    before = memory.forget_highest()
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    highest = memory.status("VmHWM") - before
    gc.collect()
    memory.forget_highest()
    for _ in range(5):
        run()
    later = memory.status("VmHWM") - before  # the times of a million short calls take memory, too
    start = time.perf_counter()
    run()
    together = max(1, int(LEAST / (time.perf_counter() - start)))
    times = []
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(together):
            run()
        times.append((time.perf_counter() - start) / together)
    return {
        "first": first,
        "call": statistics.median(times),
        "least": min(times),
        "memory_first": highest,
        "memory": later,
    }


def fresh(name: str, contestant: str, threads: int) -> dict:
    """`costs` in a process of its own, with an empty cache and as many threads as asked."""
    source = f"import json; from bench import compiled; print(json.dumps(compiled.costs({name!r}, {contestant!r}, {threads})))"
    flags = (
        "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    with tempfile.TemporaryDirectory() as cache:
        limits = dict.fromkeys(
            (
                "TAPEGRAD_NUM_THREADS",
                "OMP_NUM_THREADS",
                "OPENBLAS_NUM_THREADS",
                "NUMBA_NUM_THREADS",
            ),
            str(threads),
        )
        return measure.fresh(
            source,
            {
                **limits,
                "XLA_FLAGS": flags,
                "TAPEGRAD_CACHE_DIR": cache,
                "TORCHINDUCTOR_CACHE_DIR": cache,
            },
        )[1]


def least(rounds: list[dict]) -> dict:
    """The least of each figure over the rounds."""
    return {key: min(r[key] for r in rounds) for key in rounds[0]}


def shown(name: str, threads: int, rows: dict[str, dict]) -> None:
    """A table of one program."""
    print(f"\n{name}, {threads} thread{'s' if threads > 1 else ''}")
    print(
        f"{'':16} {'call, ms':>10} {'least':>10} {'over ours':>10} {'first, s':>10} {'MB':>8} {'first, MB':>10}"
    )
    ours = rows["compiled"]["call"]
    for contestant, row in rows.items():
        figures = [1e3 * row["call"], 1e3 * row["least"], row["call"] / ours, row["first"]]
        print(
            f"{contestant:16} {figures[0]:10.4f} {figures[1]:10.4f} {figures[2]:10.2f} {figures[3]:10.3f} "
            f"{row['memory'] / 1e6:8.1f} {row['memory_first'] / 1e6:10.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=list(bench_compile.PROGRAMS), metavar="PROGRAM"
    )
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=argparse.FileType("w"), help="every round, into this file")
    options = parser.parse_args()
    if memory.MISSING:
        raise SystemExit(memory.MISSING)
    for key, value in measure.machine().items():
        print(f"{key:16} {value}")
    kept = {}
    for name in options.only:
        for threads in options.threads:
            rounds: dict[str, list[dict]] = {}
            for turn in range(options.rounds):
                order = options.contestants if turn % 2 == 0 else options.contestants[::-1]
                for contestant in order:
                    found = fresh(name, contestant, threads)
                    if "skipped" not in found:
                        rounds.setdefault(contestant, []).append(found)
            kept[f"{name}, {threads}"] = rounds
            shown(name, threads, {c: least(rounds[c]) for c in options.contestants if c in rounds})
    if options.json:
        json.dump(kept, options.json)


if __name__ == "__main__":
    main()
