"""What all campaigns share: `python -m tests.campaigns.NAME --seed 3 --count 500 --seconds 60`.

A campaign is a function of a random generator that returns None, or a sentence that says what was wrong. Trial number i of a seed is the
same whatever came before it, so `--first i --count 1` repeats it. Exit status 1 if a trial was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np


def main(name: str, trial: Callable[[np.random.Generator], str | None], count: int) -> None:
    """Run the trials that the command line asks for, at most `count` unless it says how many."""
    options = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{name}")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0, help="number of the first trial")
    options.add_argument("--count", type=int, default=count, help="trials at most")
    options.add_argument("--seconds", type=float, default=float("inf"), help="start none later")
    asked = options.parse_args()
    begin = time.monotonic()
    done, faults = 0, Counter[str]()
    for number in range(asked.first, asked.first + asked.count):
        if time.monotonic() - begin > asked.seconds:
            break
        fault = trial(np.random.default_rng([asked.seed, number]))
        done += 1
        if fault is not None:
            faults[fault.splitlines()[0]] += 1
            print(
                f"WRONG: {fault}\n  repeat: python -m tests.campaigns.{name} --seed {asked.seed} --first {number} --count 1",
                flush=True,
            )
    print(f"{name}: {done} trials, {faults.total()} wrong, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if faults else 0)
