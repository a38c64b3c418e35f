"""Locks that the child of a fork can take.

A forked child has one thread. A lock that another thread of the parent held would stay locked in the child for ever, so every lock of
this package is made here, and the child makes them all anew. What they guard is in order all the same: sections under these locks put
results in place by one assignment, or the child forgets what was under way (`in_child`). Modules that another thread was importing are
imported anew.

Compilers are another matter: LLVM and Numba cannot be left in the middle. Before a fork their locks are taken, so that nobody is
inside; whoever is at work has `PATIENCE` seconds to come out. Where that was not enough, the child is refused the compiler, by an error
that says so: it would wait for ever.

Invariant: a lock that the forking thread itself holds stays as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import handlers

PATIENCE = 1.0
"""Seconds that a fork waits for compilations of other threads."""

_known: list[weakref.ref[Any]] = []
_most = 256


def _noted(made: Any) -> Any:
    global _most
    _known.append(weakref.ref(made))
    if len(_known) > _most:
        _known[:] = [ref for ref in _known if ref() is not None]
        _most = max(256, 2 * len(_known))
    return made


def lock() -> Any:
    """A `threading.Lock` that is free in a forked child."""
    return _noted(threading.Lock())


def rlock() -> Any:
    """A `threading.RLock` that is free in a forked child, unless the forking thread held it."""
    return _noted(threading.RLock())


def renew(made: Any) -> None:
    """In a forked child: make a lock free, unless this thread holds it."""
    owned = getattr(made, "_is_owned", None)
    if owned is None or not owned():
        made._at_fork_reinit()


def in_child(forget: Callable[[], None]) -> None:
    """Have a function called in each forked child, after the locks were made anew."""
    _forgetting.append(forget)


_forgetting: list[Callable[[], None]] = []

# ------------------------------------------------------------------------------------------------ compilers


class _Refused:
    """Stands for a compiler's lock where its holder was lost in a fork."""

    def acquire(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "compiling was asked for in a forked process, but at the time of the fork another thread of its parent was compiling: the "
            "compiler in this process waits for that thread for ever. Start processes by 'spawn' or 'forkserver' "
            "(multiprocessing.set_start_method), or fork before other threads compile."
        )

    __enter__ = acquire

    def release(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...

    def _is_owned(self) -> bool:
        return False


def refused() -> bool:
    """Whether this process is refused a compiler."""
    return any(type(holder._lock) is _Refused for holder in _holders())


def _holders() -> list[Any]:
    """The objects of Numba and llvmlite whose attribute `_lock` is the compiler's lock, as far as these are loaded."""
    found = []
    numba = sys.modules.get("numba.core.compiler_lock")
    if numba is not None and hasattr(numba, "global_compiler_lock"):
        found.append(numba.global_compiler_lock)
    llvm = sys.modules.get("llvmlite.binding.ffi")
    if llvm is not None and hasattr(llvm, "lib"):
        found.append(llvm.lib._lock)
    return found


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """A block that calls LLVM: its lock is given back where an interrupt comes between taking it and the block that would.

    Handlers of signals wait while lines run in it that must not be interrupted.
    """
    before = {id(holder) for holder in _holders() if holder._lock._is_owned()}
    try:
        with handlers.held_back():
            yield
    except BaseException:
        for holder in _holders():
            while id(holder) not in before and holder._lock._is_owned():
                holder._lock.release()
        raise


_taken: list[Any] = []
_missed: list[Any] = []


def _before_fork() -> None:
    until = time.monotonic() + PATIENCE
    _taken.clear()
    _missed.clear()
    for holder in _holders():
        held = holder._lock
        if type(held) is _Refused:
            continue
        if held.acquire(timeout=max(0.0, until - time.monotonic())):
            _taken.append(held)
        else:
            _missed.append(holder)


def _let_go() -> None:
    for held in reversed(_taken):
        held.release()
    _taken.clear()


def _in_parent() -> None:
    _let_go()
    _missed.clear()


def _in_child() -> None:
    _let_go()
    for holder in _missed:
        holder._lock = _Refused()
    if _missed:
        _keep_llvms()
    _missed.clear()
    for ref in list(_known):
        made = ref()
        if made is not None:
            renew(made)
    _import_anew()
    for forget in _forgetting:
        forget()


def _import_anew() -> None:
    """Drop what other threads of the parent were importing for this package: Python would wait for these threads for ever."""
    importing = getattr(importlib._bootstrap, "_module_locks", {})  # type: ignore[attr-defined]
    owners = {}
    for name, ref in list(importing.items()):
        made = ref()
        if made is not None and made.owner not in (None, threading.get_ident()):
            owners[name] = made.owner
    ours = __name__.partition(".")[0]
    lost = {owner for name, owner in owners.items() if name.partition(".")[0] == ours}
    for name, owner in owners.items():
        if owner in lost:
            importing.pop(name, None)
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                del sys.modules[name]


def _keep_llvms() -> None:
    """Objects of LLVM's end with the process: giving them back asks LLVM, which is refused, in finalisers, where nobody can act on it."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    for name in ("ObjectRef", "OutputString"):
        if hasattr(ffi, name):
            getattr(ffi, name).close = lambda self: None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
