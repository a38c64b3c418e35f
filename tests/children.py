"""A forked child that computes something and tells; one that hangs is told from one that a busy computer has no time for."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable

SECONDS = 120.0
"""After this long without the processor, or with it, a child hangs."""
_LEAST = 0.0002
"""The part of a processor that a child has which waits for nothing but the processor, whatever its niceness."""


def in_child(
    work: Callable[[], object], fork: Callable[[], int] = os.fork, seconds: float = SECONDS
) -> str:
    """What `work` returns in a forked child, as text, or its error; AssertionError if the child hangs or is ended by a signal.

    Before a child that hangs is killed, it writes to stderr where each of its threads is.
    """
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            faulthandler.register(signal.SIGUSR1)
            try:
                told = str(work())
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(writer, told.encode()[:60_000])  # less than a pipe holds
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8", errors="replace") as answer:
        status = _status(pid, seconds)
        assert status is not None, "the child hung"
        assert status == 0, f"the child was ended by signal {status & 127}"
        return answer.read()


def _status(pid: int, seconds: float) -> int | None:
    """The status with which a child ended; None if it hung."""
    since, before = time.monotonic(), 0.0
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        now, used = time.monotonic(), _processor_time(pid)
        if now - since > seconds:
            if used - before < _LEAST * seconds or used > seconds:
                break
            since, before = now, used
        time.sleep(0.002)
    os.kill(pid, signal.SIGUSR1)
    time.sleep(1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _processor_time(pid: int) -> float:
    """Seconds that another process has used, by Linux's clock for it; none elsewhere, where a slow child is one that hangs."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
