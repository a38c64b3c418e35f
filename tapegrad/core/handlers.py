"""Exceptions that a signal handler raises while a compiler runs: they are the program's own, and come where nothing breaks.

A handler (of `signal.alarm`, say, for a limit of time) runs between two instructions of whatever the main thread does. Where that is a
compiler, "it could not be made, so it runs in another way" would swallow the exception. So whoever takes an exception for an answer
asks `hand_on` first. Ctrl-C needs no such care: KeyboardInterrupt is no `Exception`.

Some lines of others must not be interrupted at all, by Ctrl-C neither. llvmlite calls LLVM, and in its next line notes who owns the
memory now: an exception between the two leaves a module that is freed twice, which ends the process. Numba, interrupted while it
loads what it knows of types, never finds the rest. So in blocks that call them, `held_back` has each handler wait until the main
thread is out of these lines, which takes milliseconds, and half a second where Numba is loaded.

Invariants: an exception that an installed handler raised while the asker's block ran leaves `hand_on`; nothing else does. Each signal
that arrives reaches its handler.
"""

from __future__ import annotations

import _signal
import _thread
import contextlib
import functools
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator


class _Waiting:
    """A handler that runs when the main thread is out of the lines that must not be interrupted."""

    def __init__(self, handler: Callable[[int, types.FrameType | None], object]) -> None:
        self.handler = handler
        self.under_way: list[int] = []
        """Signals that a thread is about to bring again. A list, whose methods are atomic."""

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        if not _inside(frame) or not self._comes_again(number):
            self.handler(number, frame)

    def _comes_again(self, number: int) -> bool:
        """Have a thread bring the signal again in a moment; False where no thread can start."""
        self.under_way.append(number)
        try:  # not `Thread.start`, which would wait in the middle of these lines
            _thread.start_new_thread(self._bring, (number,))
        except RuntimeError:
            self.under_way.remove(number)
            return False
        return True

    def _bring(self, number: int) -> None:
        time.sleep(0.001)
        _thread.interrupt_main(number)  # type: ignore[arg-type]
        self.under_way.remove(number)


def _inside(frame: types.FrameType | None) -> bool:
    """Whether lines that must not be interrupted are among the calls under way: llvmlite's, an import, Numba's loading."""
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith("llvmlite.binding") or module in _IMPORTS:
            return True
        if function == "refresh" and module.startswith("numba.core."):
            return True
        frame = frame.f_back
    return False


_IMPORTS = ("importlib._bootstrap", "_frozen_importlib")


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """A block that loads or calls LLVM or Numba: handlers of signals wait while lines run that must not be interrupted.

    What the block itself sets as a handler stays. Elsewhere than in the main thread no handler runs, and nothing is done.
    """
    global _holding
    if _holding or threading.get_ident() != threading.main_thread().ident:
        yield
        return
    changed: list[int] = []
    try:
        _holding = True
        for number, handler in _installed():
            changed.append(number)
            if not isinstance(
                handler, _Waiting
            ):  # an interrupt at the end of another block may leave one
                signal.signal(number, _Waiting(handler))
        yield
    finally:
        _holding = False
        for number in changed:
            waiting = signal.getsignal(number)
            if isinstance(waiting, _Waiting):
                try:
                    while (
                        waiting.under_way
                    ):  # a limit of time that this block met is told before its end
                        time.sleep(0.001)
                finally:
                    signal.signal(number, waiting.handler)


_holding = False
"""Whether a block of the main thread holds handlers back."""


def _installed() -> Iterator[tuple[int, Callable[[int, types.FrameType | None], object]]]:
    """Each signal with the handler that is written in Python, or with Python's own for Ctrl-C."""
    for number in range(1, signal.NSIG):
        # Not signal.getsignal, which looks for a name of each answer: sixty signals would take 0.1 ms.
        handler = _signal.getsignal(number)
        if callable(handler):
            yield number, handler


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
    for _, handler in _installed():
        while isinstance(handler, functools.partial | _Waiting):
            handler = handler.func if isinstance(handler, functools.partial) else handler.handler
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
