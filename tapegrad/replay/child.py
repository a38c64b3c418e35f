"""The child: a process of its own that compiles what takes long and stores it in the cache.

A thread would share the interpreter's lock with the user's script, delay its end, and lose its work where the script ends early.
The child does none of these: it runs at the lowest priority, and finishes even if its parent has ended.

Data: *orders*, files to be made. One thread collects them and starts a child for all that have come together. A lock file in the cache's
folder is given to the child as its standard input, so it is free when the child has ended, however it ended: there is one child at a time
for a folder, and a process that had to wait finds most of its orders made.

Invariant: the child writes into the cache's folder only, and nothing where the lock file has been removed, as with the whole folder.
"""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import locks


@dataclass(frozen=True, slots=True)
class Order:
    """A file to be made."""

    target: Path
    recipe: str
    """What it is to hold, as `bridge.task_of` understands it."""
    done: Callable[[bool], None]
    """Called by another thread when the file should be there, with whether a child has tried in vain."""


_lock = locks.lock()
_orders: list[Order] = []
_thread: threading.Thread | None = None
_processes: list[subprocess.Popen[bytes]] = []

NICENESS = 19
"""The lowest priority: on a busy computer the child gets what nothing else wants, and its parent goes by code in a hurry meanwhile."""

_PROGRAM = """
import os, sys
hasattr(os, "nice") and os.nice({niceness})
sys.path[:] = {path!r}
from tapegrad.replay import child
child.main({orders!r})
"""


def build(order: Order) -> bool:
    """Have a child fulfil an order; False where no child can be started or the folder cannot be written to."""
    global _thread
    if not _can_start():
        return False
    try:
        order.target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(_opened(order.target.parent))
    except OSError:
        return False
    with _lock:
        _orders.append(order)
        if _thread is None:
            _thread = threading.Thread(target=_work, name="tapegrad child", daemon=True)
            _thread.start()
    return True


def at_work() -> bool:
    """Whether this process waits for a child."""
    return _thread is not None


def _work() -> None:
    """The thread that has orders fulfilled by child processes, until there are no more."""
    global _thread
    while True:
        with _lock:
            orders = list(_orders)
            _orders.clear()
            if not orders:
                _thread = None
                return
        try:
            failed = not _fulfilled(orders)
        except OSError:  # no process to be had, or the folder is gone
            failed = True
        for order in orders:
            order.done(failed)


def _fulfilled(orders: Sequence[Order]) -> bool:
    """Wait for the folder's lock, then have a child make what other processes' children have not made meanwhile."""
    from ..llvm import cache

    folder = orders[0].target.parent
    lock = _opened(folder)
    try:
        _take(lock)
        missing = [order for order in orders if not cache.present(order.target)]
        if not missing:
            return True
        process = _start(missing, lock)
    finally:
        os.close(lock)
    _processes.append(process)
    try:
        return process.wait() == 0
    finally:
        _processes.remove(process)


def _can_start() -> bool:
    """Whether `sys.executable` is Python itself, not a program that has Python in it."""
    name = Path(sys.executable or "").name.lower()
    return name.startswith("python") and not getattr(sys, "frozen", False)


def _opened(folder: Path) -> int:
    return os.open(folder / "child.lock", os.O_RDWR | os.O_CREAT, 0o600)


def _take(lock: int) -> None:
    """Wait until the lock is ours; where files cannot be locked, two children may do the same work."""
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass


def _start(orders: Sequence[Order], lock: int) -> subprocess.Popen[bytes]:
    """Start the process that compiles these orders, with low priority and no settings of the user's."""
    folder = orders[0].target.parent
    package = str(Path(__file__).parents[2])
    path = [os.path.abspath(p) for p in sys.path]
    path += [] if package in path else [package]
    options: dict[str, Any]
    if os.name == "nt":
        options = {
            "creationflags": subprocess.IDLE_PRIORITY_CLASS  # type: ignore[attr-defined]
            | subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.CREATE_NO_WINDOW
        }
    else:
        # A group of its own, which Ctrl-C does not reach. No session of its own: Linux divides the processor among sessions first,
        # and a niceness counts only within one.
        options = {"process_group": 0}
    named = [(order.recipe, order.target.name) for order in orders]
    program = _PROGRAM.format(niceness=NICENESS, path=path, orders=named)
    return subprocess.Popen(
        # No settings and start-up files of the user's: what to import from is given.
        [sys.executable, "-I", "-S", *["-B"] * sys.dont_write_bytecode, "-c", program],
        stdin=lock,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=os.environ | {"TAPEGRAD_CACHE_DIR": str(folder.absolute())},
        **options,
    )


def _leave() -> None:
    """Children outlive this process on purpose; Popen would warn of it."""
    for process in _processes:
        process.returncode = 0


def _after_fork() -> None:
    """Children and orders are the parent's."""
    global _thread
    _leave()
    _processes.clear()
    _orders.clear()
    _thread = None


atexit.register(_leave)
locks.in_child(_after_fork)


# ------------------------------------------------------------------------------------------------ in the child


def main(orders: Sequence[tuple[str, str]]) -> None:
    """Make files, given by recipe and name, in the cache's folder; exit status 1 where one of them cannot be made."""
    gc.disable()  # what compilers make lives as long as they do
    from ..llvm import cache
    from . import bridge, builder, shipped

    made = True
    for recipe, name in orders:
        task = bridge.task_of(recipe)
        path = None if task is None else cache.path_of(task.name, task.depends_on)
        if task is None or path is None or path.name != name:
            made = False  # this process would make something else than its parent asked for
        elif cache.read(path) is None:
            long = recipe == "machine" and not shipped.modules()
            builder.make(task, _wanted, _wanted, piecewise=long)
            made &= cache.present(path)
    sys.exit(0 if made else 1)


def _wanted() -> bool:
    """Whether the lock file is still there: the folder must not come back."""
    return os.name == "nt" or os.fstat(0).st_nlink > 0
