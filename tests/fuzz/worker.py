"""Programs run in a child process, which may crash or hang: the parent sees it, says so, and starts another.

The child reads a line of JSON (a program's number, or a program) and writes a line of JSON: the program, the state of each engine and
what the program's features are. `Worker.ask` is the parent's side.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.fuzz import coverage, engines, generator, native
from tests.fuzz.program import Program

PROCESSOR_SECONDS = float(os.environ.get("TAPEGRAD_FUZZ_SECONDS", "90"))
"""That a program may take in all engines."""

BYTES = 12 << 30
"""Of memory that a child may have. A statement that is tried may ask for more than the computer has, and is not written then."""

NATIVE_SHARE = 0.1  # of all programs


def program(number: int) -> Program:
    if random.Random(f"dialect {number}").random() < NATIVE_SHARE:
        return native.write(number)
    return generator.write(number)


def drawn(p: Program, chosen: list[str]) -> list[str]:
    """The engines that a program meets: a matter of its number; `chosen` are met always, and alone."""
    table, shares = (
        (native.NATIVE, native.SHARES)
        if p.dialect == "native"
        else (engines.ARRAYS, engines.SHARES)
    )
    if chosen:
        return [n for n in table if n in chosen]
    r = random.Random(f"engines {p.number}")
    return [n for n in table if r.random() < shares[n]]


def judge(p: Program, chosen: list[str]) -> dict[str, tuple[str, str]]:
    table = native.NATIVE if p.dialect == "native" else engines.ARRAYS
    scope = {**native.PLAIN} if p.dialect == "native" else None
    try:
        case = engines.Case(p, scope)
    except (SyntaxError, KeyError):  # of a shortened program
        return {name: ("unclear", "no program") for name in drawn(p, chosen)}
    return {name: engines.run(table[name], case) for name in drawn(p, chosen)}


def serve() -> None:
    """The child: until the end of input."""
    faulthandler.enable()
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limits
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, most))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print goes elsewhere
    for line in sys.stdin:
        if hasattr(signal, "setitimer"):
            # Processor time, which a busy computer does not use up; nothing catches the signal, so machine code that hangs ends, too.
            signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        request = json.loads(line)
        p = Program.load(request["program"]) if "program" in request else program(request["number"])
        answer: dict[str, Any] = {"program": p.dump()}
        print(json.dumps(answer), file=out, flush=True)  # before it runs: a crash has its program
        answer["states"] = judge(p, request["engines"])
        answer["features"] = coverage.features(p)
        print(json.dumps(answer), file=out, flush=True)


class Worker:
    """A child process and its conversation."""

    def __init__(self, patience: float = 900.0) -> None:
        self.patience = patience
        self.child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.served = 0
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()

        def read(stream: Any, lines: queue.Queue[str]) -> None:
            for line in stream:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, args=(self.child.stdout, self.lines), daemon=True).start()

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child.stdin.close()  # type: ignore[union-attr]
            self.child.stdout.close()  # type: ignore[union-attr]
            self.child = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; a crash or a hang is an answer in which the engine "process" failed."""
        if self.child is None or self.served >= 1500:
            self.stop()
            self.start()
        self.served += 1
        assert self.child is not None and self.child.stdin is not None
        self.child.stdin.write(json.dumps({"engines": [], **request}) + "\n")
        self.child.stdin.flush()
        answer: dict[str, Any] = {"program": request.get("program"), "features": []}
        for _ in range(2):
            try:
                line = self.lines.get(timeout=self.patience)
                text = "crashed"
            except queue.Empty:
                line, text = "", f"no answer within {self.patience:.0f} s"
            if not line:
                if text == "crashed":
                    self.child.wait(self.patience)
                code = self.child.poll()
                self.stop()
                answer["states"] = {"process": ("failed", f"{text} (exit status {code})")}
                return answer
            answer = {"features": [], **json.loads(line)}
        return answer


if __name__ == "__main__":
    serve()
