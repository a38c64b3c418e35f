"""A campaign: programs of consecutive numbers, each judged in a child process; failures are shortened and printed once a kind."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.coverage import Coverage
from tests.fuzz.program import Program
from tests.fuzz.shrinker import shortened
from tests.fuzz.worker import Worker

SPAN = 1_000_000  # numbers of a seed


@dataclass
class Campaign:
    """Failures by kind, and what was met; `ask` answers a request as `Worker.ask` does."""

    ask: Callable[..., dict[str, Any]]
    chosen: list[str] = field(default_factory=list)
    shrinking: float = 15.0
    coverage: Coverage = field(default_factory=Coverage)
    kinds: Counter[str] = field(default_factory=Counter)
    failed: int = 0

    def one(self, request: dict[str, Any], say: Callable[[str], None] = print) -> None:
        answer = self.ask(engines=self.chosen, **request)
        self.coverage.add(answer)
        for engine, (state, text) in answer["states"].items():
            if state != "failed":
                continue
            self.failed += 1
            sort = kind(engine, text)
            self.kinds[sort] += 1
            if self.kinds[sort] > 1:
                continue
            if answer["program"] is None:
                say(f"\n=== program {request.get('number')} fails before it is written: {text}")
                continue
            program = Program.load(answer["program"])
            say(f"\n=== program {program.number} fails: {engine}: {text}\n{program.script()}")
            if self.shrinking:
                self.shorten(program, engine, sort, say)

    def shorten(self, program: Program, engine: str, sort: str, say: Callable[[str], None]) -> None:
        def fails(candidate: Program) -> bool:
            engines = self.chosen if engine == "process" else [engine]
            states = self.ask(engines=engines, program=candidate.dump())["states"]
            return (
                engine in states
                and states[engine][0] == "failed"
                and kind(engine, states[engine][1]) == sort
            )

        short = shortened(program, fails, self.shrinking)
        say(f"--- shortened (engine {engine}):\n{short.script()}")


def kind(engine: str, text: str) -> str:
    """What makes two failures alike: the engine, and the exception or that a number is wrong, without the values."""
    head = text.split("\n")[0]
    if head.startswith("wrong: "):
        return f"{engine}: " + re.sub(r"[-+\d.e\[\]']+", "#", head)[:50]
    return f"{engine}: " + re.sub(r"\d+", "#", head)[:80]


def run(
    seed: int, count: int | None, seconds: float | None, chosen: list[str], shrinking: float
) -> Campaign:
    worker = Worker()
    campaign = Campaign(worker.ask, chosen, shrinking)
    begin = time.monotonic()
    number = 0
    try:
        while (count is None or number < count) and (
            seconds is None or time.monotonic() - begin < seconds
        ):
            campaign.one({"number": seed * SPAN + number})
            number += 1
            if not number % 500:
                print(f"\n{campaign.coverage.states_met()}", flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted")
    finally:
        worker.stop()
    spent = sum(os.times()[:4])
    print(f"\n{campaign.coverage.report()}")
    print(
        f"{campaign.failed} failures of {len(campaign.kinds)} kinds in {time.monotonic() - begin:.0f} s, seed {seed}; "
        f"{3600 * number / spent:.0f} programs an hour of processor time"
    )
    for name, n in campaign.kinds.most_common():
        print(f"  {n:4} {name}")
    return campaign
