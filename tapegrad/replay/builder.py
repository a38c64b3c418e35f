"""The builder: who compiles what is not in the cache, and when.

In `auto` mode compilation must never be waited for: what is missing is queued, and one background thread
compiles it, stores it, links it and hands over addresses. Long work is done by a child process instead (child.py), where one
can be started; the thread links what the child has stored. A caller that insists waits instead. The thread ends
when the queue is empty, and drops the queue when the interpreter is on its way out: one function is compiled in
a second or so, and never waited for longer.

Data: a *task* makes one function: its name, what it depends on, and a callable that compiles it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..core import handlers, locks, logs
from ..llvm import cache
from ..llvm.cache import Bundle, Part
from ..llvm.linker import LinkError, link
from . import child
from .child import Order

Compiled = tuple[str, bytes, list[str]]


@dataclass(frozen=True, slots=True)
class Task:
    """Functions to compile into one file: `steps()` yields (role, compiler), one function each."""

    name: str
    depends_on: str
    steps: Callable[[], Any]
    done: Callable[[dict[str, int], str], Any]
    """Called with the addresses by role, or with none and the reason; a second time when better code is there. False where the code
    is found wrong."""
    hurried: Callable[[Callable[[], bool]], dict[str, int]] | None = None
    """Addresses by role of code that is there at once, though not the best. Raises LinkError, also where its argument says to end."""
    dropped: Callable[[], Any] = bool
    """Called where there was no memory for the builder's thread (headroom.py): the task may be queued again."""
    recipe: Callable[[], str] = str
    """The recipe for a child process; empty where no child is to make the functions."""
    long: Callable[[], bool] = bool
    """Whether Numba has to make the functions, which takes seconds; other functions take a moment."""


_lock = locks.rlock()
_queue: deque[Task] = deque()
_thread: threading.Thread | None = None
_apart = 0  # tasks of the child process
_at_length = False  # the thread has Numba at work


def load(task: Task) -> bool:
    """Take the task's functions from the cache, if they are there and good."""
    path = cache.path_of(task.name, task.depends_on)
    bundle = cache.read(path)
    return bundle is not None and _hand_over(task, bundle)


def _hand_over(task: Task, bundle: Bundle) -> bool:
    if bundle.reason:
        task.done({}, bundle.reason)
        return True
    try:
        addresses = link(task.name, bundle.parts)
    except LinkError as error:
        task.done({}, str(error))
        return True
    task.done(addresses, "")
    logs.tell("replay has %s as machine code", task.name, level="debug")
    return True


def _always() -> bool:
    return True


def build(task: Task, go_on: Callable[[], bool] = _always) -> None:
    """Compile the task's functions, store them, and hand them over."""
    with logs.timed("replay compiled %s in %.3f s", task.name, level="debug"):
        bundle = make(task, go_on)
    if bundle is not None:
        _hand_over(task, bundle)


def make(
    task: Task,
    go_on: Callable[[], bool] = _always,
    may_store: Callable[[], bool] = _always,
    piecewise: bool = False,
) -> Bundle | None:
    """Compile the task's functions and store them; None where `go_on` ended that before.

    `piecewise`: each function is stored by itself as well, so that a process that is killed leaves them to the next one.
    """
    pieces = []
    try:
        parts: list[Part] = []
        for role, compiler in task.steps():
            if not go_on():
                return None
            path = cache.path_of(f"{task.name}-{role.replace(' ', '-')}", task.depends_on)
            piece = cache.read(path) if piecewise else None
            if piece is None:
                symbol, code, asks = _undisturbed(compiler)
                piece = Bundle((Part(role, symbol, tuple(asks), code),))
                if piecewise and may_store():
                    cache.write(path, piece)
            parts += piece.parts
            pieces += [path] * piecewise
        bundle = Bundle(tuple(parts))
    except Exception as error:
        handlers.hand_on(error)
        if not _refuses(error):
            raise
        bundle = Bundle(reason=_first_line(error))
    if may_store():
        cache.write(cache.path_of(task.name, task.depends_on), bundle)
    for path in pieces:
        with contextlib.suppress(OSError):
            path.unlink()
    return bundle


def _undisturbed(compiler: Callable[[], Compiled]) -> Compiled:
    """The compiler's result. The compiler is asked again if another thread changed os.environ, over which Numba iterates as it starts."""
    while True:
        try:
            with locks.compiling():
                return compiler()
        except (KeyError, RuntimeError) as error:
            trace = error.__traceback__
            while trace and trace.tb_next:
                trace = trace.tb_next
            place = trace.tb_frame.f_globals.get("__name__") if trace else None
            if place not in ("os", "_collections_abc", "numba.core.config"):
                raise


def _refuses(error: Exception) -> bool:
    """Whether this is a compiler's answer to a rule it cannot compile, rather than a fault."""
    if isinstance(error, NotImplementedError | TypeError | ValueError | AttributeError | KeyError):
        return True
    numba = sys.modules.get("numba.core.errors")  # where it was not imported, it did not answer
    return numba is not None and isinstance(
        error, numba.NumbaError | numba.UnsupportedBytecodeError
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (
        f"Numba cannot compile it: {' '.join(lines[:3])[:300]}" if lines else type(error).__name__
    )


def queue(task: Task) -> None:
    """Compile in the background. Raises MemoryError where there is no room for a thread."""
    global _thread
    if locks.refused():
        return
    with _lock:
        _queue.append(task)
        if _thread is None:
            _thread = threading.Thread(target=_work, name="tapegrad replay builder", daemon=False)
            try:
                _thread.start()
            except RuntimeError as error:
                _thread = None
                _queue.clear()
                if not _wanted():  # the interpreter ends
                    raise
                raise MemoryError(f"the builder's thread was asked for, but {error}") from None


def awaited() -> bool:
    """Whether the thread makes a function that takes a moment only.

    An entry whose kernel is missing costs a replay several times what it costs the sweep, so walks sweep as long as this holds.
    """
    return _thread is not None and not _at_length


def _wanted() -> bool:
    return threading.main_thread().is_alive()


_INTERVAL = 5e-4
_interval = (0.0, 0.0)  # Python's switch interval before the thread changed it, and what it became


def _hasten() -> None:
    """Let threads have the interpreter's lock after half a millisecond.

    Each call into LLVM gives up the lock, and there are thirty to a kernel: beside a script that computes, and with Python's 5 ms
    for each, work of 25 ms took up to a second.
    """
    global _interval
    before = sys.getswitchinterval()
    if before > _INTERVAL:
        sys.setswitchinterval(_INTERVAL)
        _interval = before, sys.getswitchinterval()


def _calm() -> None:
    """Take `_hasten` back, unless somebody has chosen another interval meanwhile."""
    global _interval
    before, ours = _interval
    _interval = 0.0, 0.0
    if before and sys.getswitchinterval() == ours:
        sys.setswitchinterval(before)


def _work() -> None:
    """The builder's thread: take tasks off the queue until it is empty or nobody wants them."""
    global _thread, _at_length
    _hasten()
    while True:
        with _lock:
            if not _queue or not _wanted():
                _queue.clear()
                _calm()
                _thread = None
                return
            task = _queue.popleft()
        try:
            if not load(task):
                if not _hurry(task):
                    continue  # made again, the code would be as wrong
                if not _build_apart(task):
                    _at_length = task.long()
                    build(task, _wanted)
        except MemoryError:
            task.dropped()
        except Exception as error:
            # Whatever goes wrong here must not print into somebody's session.
            task.done({}, f"compiling {task.name} failed: {type(error).__name__}: {error}")
        finally:
            _at_length = False


def _hurry(task: Task) -> bool:
    """Hand over code that can be had at once, until the task is built; False where that code was found wrong."""
    if task.hurried is not None:
        with contextlib.suppress(LinkError):
            return task.done(task.hurried(_wanted), "") is not False
    return True


def _build_apart(task: Task) -> bool:
    """Have a child process build it, if the task asks for that and a child can be started."""
    global _apart

    def done(failed: bool) -> None:
        """Have the builder's thread link what the child has stored, or do the child's work."""
        global _apart
        if _wanted() and (failed or path.exists()):
            with contextlib.suppress(RuntimeError):  # the interpreter ends, and starts no thread
                queue(replace(task, hurried=None, recipe=str))
        with _lock:
            _apart -= 1

    recipe = task.recipe()
    if not recipe:
        return False
    path = cache.path_of(task.name, task.depends_on)
    with _lock:
        _apart += 1
    begun = child.build(Order(path, recipe, done))
    if not begun:
        with _lock:
            _apart -= 1
    return begun


def idle() -> bool:
    """Whether nothing is being compiled, here or by a child that this process waits for."""
    with _lock:
        return _thread is None and not _apart


def _after_fork() -> None:
    """The builder's thread is the parent's."""
    global _thread, _apart, _at_length
    _apart = 0
    _thread = None
    _at_length = False
    _queue.clear()
    _calm()


locks.in_child(_after_fork)
