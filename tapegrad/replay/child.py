"""The child: a process of its own that compiles the machine and stores it in the cache.

A thread would share the interpreter's lock with the user's script, delay its end, and lose its work where the script ends early.
The child does none of these: it runs at the lowest priority, and finishes even if its parent has ended.

Data: a lock file beside the file to be made. The parent locks it and gives it to the child as standard input, so the lock is free when
the child has ended, however it ended. A process that finds it locked waits for somebody else's child.

Invariant: the child writes into the cache's folder only, and nothing where the lock file has been removed, as with the whole folder.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_processes: list[subprocess.Popen[bytes]] = []
_threads: list[threading.Thread] = []

_PROGRAM = """
import os, sys
hasattr(os, "nice") and os.nice(19)
sys.path[:] = {path!r}
from tapegrad.replay import child
child.main({target!r})
"""


def build(target: Path, done: Callable[[bool], None]) -> bool:
    """Have the machine compiled into the file `target`; False where no child can do that here.

    `done` is called by another thread when nobody is at it any more, with whether a child of ours tried in vain.
    """
    if not _can_start():
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(_lock_of(target), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # no folder to store in
        return False
    process = None
    try:
        if _taken(lock):
            process = _start(target, lock)
            _processes.append(process)
            os.close(lock)
    except OSError:  # no process to be had
        os.close(lock)
        return False
    thread = threading.Thread(
        target=_wait, args=(process, lock, done), name="tapegrad machine", daemon=True
    )
    _threads.append(thread)
    thread.start()
    return True


def at_work() -> bool:
    """Whether this process waits for a child, its own or another process's."""
    return any(thread.is_alive() for thread in _threads)


def _can_start() -> bool:
    """Whether `sys.executable` is Python itself, not a program that has Python in it."""
    name = Path(sys.executable or "").name.lower()
    return name.startswith("python") and not getattr(sys, "frozen", False)


def _lock_of(target: Path) -> Path:
    return target.with_suffix(".lock")


def _taken(lock: int, wait: bool = False) -> bool:
    """Whether the lock is ours now; where files cannot be locked, two children may do the same work."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _start(target: Path, lock: int) -> subprocess.Popen[bytes]:
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
    program = _PROGRAM.format(path=path, target=str(target.absolute()))
    return subprocess.Popen(
        # No settings and start-up files of the user's: what to import from is given.
        [sys.executable, "-I", "-S", "-c", program],
        stdin=lock,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=target.parent,
        env=os.environ | {"TAPEGRAD_CACHE_DIR": str(target.parent.absolute())},
        **options,
    )


def _wait(process: subprocess.Popen[bytes] | None, lock: int, done: Callable[[bool], None]) -> None:
    failed = False
    if process is not None:
        failed = process.wait() != 0
        _processes.remove(process)
    else:
        _taken(lock, wait=True)
        os.close(lock)
    done(failed)


def _leave() -> None:
    """Children outlive this process on purpose; Popen would warn of it."""
    for process in _processes:
        process.returncode = 0


def _after_fork() -> None:
    """The children are the parent's."""
    _leave()
    _processes.clear()


atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ------------------------------------------------------------------------------------------------ in the child


def main(target: str) -> None:
    """Compile the machine and store it in `target`; exit status 1 where that cannot be done."""
    gc.disable()  # what compilers make lives as long as they do
    from . import bridge, builder, cache

    task = bridge.machine_task()
    path = cache.path_of(task.name, task.depends_on)
    try:
        # Another path: this process would make another machine than its parent asked for.
        if str(path) == target and cache.read(path) is None:
            builder.make(task, _wanted, _wanted)
    finally:
        with contextlib.suppress(OSError):
            _lock_of(Path(target)).unlink()
    sys.exit(0 if os.path.exists(target) else 1)


def _wanted() -> bool:
    """Whether the lock file is still there: the folder must not come back."""
    return os.name == "nt" or os.fstat(0).st_nlink > 0
