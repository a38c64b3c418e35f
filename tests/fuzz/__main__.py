"""The command line: `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Random programs in every engine."
    )
    parser.add_argument(
        "--seed", type=int, help="of the campaign; drawn and printed where none is given"
    )
    parser.add_argument("--count", type=int, help="stop after so many programs")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument(
        "--program", type=int, help="run the program of this number in all engines of its dialect"
    )
    parser.add_argument("--engines", default="", help="these alone, separated by commas")
    parser.add_argument(
        "--shrink", type=float, default=15.0, help="seconds for shortening one failure"
    )
    parser.add_argument(
        "--checked", action="store_true", help="generated code checks what it reads and writes"
    )
    given = parser.parse_args()
    if given.checked:
        os.environ["TAPEGRAD_CHECK"] = "1"
    # tapegrad reads that variable when it is imported, here and in the children.
    from tests.fuzz import campaign, worker

    chosen = [e for e in given.engines.split(",") if e]
    if given.program is not None:
        p = worker.program(given.program)
        print(p.script())
        table = worker.judge(p, chosen or [*worker.engines.ARRAYS, *worker.native.NATIVE])
        for engine, (state, text) in table.items():
            print(f"{engine}: {state} {text}")
        return any(state == "failed" for state, _ in table.values())
    seed = random.SystemRandom().randrange(10_000) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a campaign that is ended tells what it met
    seconds = given.seconds if given.seconds or given.count else 60.0
    done = campaign.run(seed, given.count, seconds, chosen, given.shrink)
    return 1 if done.failed else 0


if __name__ == "__main__":
    sys.exit(main())
