"""Exceptions that a signal handler raises while something else runs: they are the program's own, wherever they come.

A handler (of `signal.alarm`, say, for a limit of time) runs between two instructions of whatever the main thread does. Where that is a
compiler, "it could not be made, so it runs in another way" would swallow the exception. So whoever takes an exception for an answer
asks `hand_on` first. Ctrl-C needs no such care: KeyboardInterrupt is no `Exception`.

Invariant: an exception that an installed handler raised while the asker's block ran leaves `hand_on`; nothing else does.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
import types
from collections.abc import Iterator


def hand_on(error: BaseException) -> None:
    """Raise what a signal handler raised below the caller's frame: `error`, or what was before it where a compiler put its own in place."""
    # Not `current_thread`, which a function that is traced may not ask for: the trace may be what asks here.
    if threading.get_ident() != threading.main_thread().ident:
        return  # where no handler runs
    codes = set(_handlers())
    asker = sys._getframe(1)
    seen: set[int] = set()
    known: BaseException | None = error
    while codes and known is not None and id(known) not in seen:
        seen.add(id(known))
        if _left_a_handler(known, codes, asker):
            raise known
        known = known.__cause__ or known.__context__


def _handlers() -> Iterator[types.CodeType]:
    """The code of each handler that is written in Python."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        function = getattr(handler, "__func__", handler)
        if not isinstance(function, types.FunctionType):
            function = vars(type(handler)).get("__call__")
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code


def _left_a_handler(
    error: BaseException, codes: set[types.CodeType], asker: types.FrameType
) -> bool:
    """Whether a handler let the exception out, in a call of the asker: a frame that caught it is the first of its traceback."""
    trace = error.__traceback__
    frame = trace.tb_frame if trace is not None else None
    while frame is not None and frame is not asker:
        frame = frame.f_back
    if frame is None or trace is None:
        return False
    while (trace := trace.tb_next) is not None:
        if trace.tb_frame.f_code in codes:
            return True
    return False
