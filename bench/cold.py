"""Short scripts on a fresh machine: how many gradients they make, and how long they take to end.

    python -m bench.cold [--seconds 3] [--scripts 5] [--program network|small|complex] [--fresh]

A row of scripts, each a new process, with one cache folder that is empty at first; after each script of `auto` one that sweeps only.
A script computes until its process has used so many seconds of processor time, start, imports and background threads included, so that
what else the computer does counts little. Reported: gradients a second, their ratio, and from the script's last line to the end of its
process seconds, and seconds of processor time for computers that have other work.

The library's byte code is there beforehand, as pip leaves it. With --fresh Python translates every module that the first script
imports, NumPy's too, which takes most of its time: an installation without byte code (pip's --no-compile).
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tapegrad

SCRIPT = """
import sys, time
import numpy as np
import tapegrad as tg
rng = np.random.default_rng(0)
if {program!r} == "network":
    W = [tg.tensor(rng.normal(size=s) / 4, requires_grad=True) for s in ((8, 16), (16, 1))]
    x = rng.normal(size=(32, 8))
    def step():
        h = np.tanh(x @ W[0])
        u = tg.tensor(np.linspace(0.0, 1.0, 512), requires_grad=True)
        y = u
        for _ in range(5):
            y = np.sin(y) * 0.5 + y * y - 0.1 * y
        ((h @ W[1]) ** 2).mean().backward()
        y.sum().backward()
elif {program!r} == "complex":
    c = tg.tensor(np.exp(1j * np.linspace(0.1, 1.0, 300)), requires_grad=True)
    def step():
        y = c
        for _ in range(6):
            y = np.exp(-y) * y + y / 3
        np.real(y * np.conj(y)).sum().backward()
else:
    v = tg.tensor(np.linspace(0.1, 1.0, 40), requires_grad=True)
    def step():
        y = v
        for _ in range(10):
            y = np.exp(-y) + y * 0.5
        y.sum().backward()
count = 0
while time.process_time() < {seconds}:
    step()
    count += 1
print(count, time.time(), time.process_time(), int("numba" in sys.modules), flush=True)
"""


def run(
    program: str, seconds: float, engine: str, folder: Path, fresh: bool
) -> tuple[float, str, bool]:
    """Gradients a second, how long it took to end, whether Numba was imported; `fresh`: each engine's byte code is in the folder."""
    environment = os.environ | {"TAPEGRAD_ENGINE": engine, "TAPEGRAD_CACHE_DIR": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if fresh:
        environment["PYTHONPYCACHEPREFIX"] = str(folder / f"bytecode-{engine}")
    before = processor_time_of_children()
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(program=program, seconds=seconds)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    ended = time.time()
    used = processor_time_of_children() - before
    count, last, at_last, numba = result.stdout.split()
    end = f"{ended - float(last):.2f} s ({used - float(at_last):.2f} s)"
    return int(count) / seconds, end, numba == "1"


def processor_time_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--scripts", type=int, default=5)
    parser.add_argument("--program", choices=("network", "small", "complex"), default="network")
    parser.add_argument("--fresh", action="store_true", help="no module has byte code at first")
    options = parser.parse_args()
    compileall.compile_dir(Path(tapegrad.__file__).parent, quiet=1)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.scripts):
            ours, sweep = (
                run(options.program, options.seconds, engine, Path(folder), options.fresh)
                for engine in ("auto", "sweep")
            )
            ratios.append(ours[0] / sweep[0])
            print(
                f"script {i + 1}: {ours[0]:7.0f} gradients/s, sweep {sweep[0]:7.0f}, ratio {ratios[-1]:.2f}, "
                f"to the end {ours[1]} and {sweep[1]}{', Numba imported' if ours[2] else ''}",
                flush=True,
            )
    print(f"ratio: first {ratios[0]:.2f}, median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
