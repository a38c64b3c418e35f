"""Objects that users leave on a tape are freed when the last tensor that needs them dies, as in PyTorch.

Entries are dropped by sweeps, which is cheap and late: numbers do not mind. Objects of the user's do: a Function's `ctx`, hooks and
notes of nodes and tensors, packed values. A *bearer* is what has such an object on a tape, and holds `_BEARER`. While there is a bearer,
`Tensor` has a finaliser: a tensor that was the last to hold its slot has the entry dropped at once, then each entry that only this one
read. That takes constant time an entry, and processes without bearers know nothing of it: their tensors have no finaliser.

A leaf with hooks is no bearer while its tensor lives. When the tensor dies, entries that nobody can ask for may still read the leaf:
they are dropped then. If others remain, the leaf becomes a bearer.

Invariant: positions of entries stay what they are, since a finaliser runs at any moment: a dropped entry leaves a freed one in
its place, unless it is the last. Where a tape's lock is held, the drop is put off till the next one.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import gc
import sys
import threading
import time
import weakref
from collections import deque
from sys import getrefcount
from typing import Any

from . import locks
from . import tape as tapes
from .tape import UNHELD, Leaf, Slot
from .tensor import Tensor

_BEARER = object()
_probe = [_BEARER]
_NO_BEARER = getrefcount(_BEARER) - 1
del _probe

_TOGGLES = 100
"""How often the finaliser is taken away again: each time costs the interpreter what it has learned about the class."""


class _State:
    """Whether tensors have the finaliser, how often it was taken away, and since how many batches of slots nobody needs it."""

    on = False
    working = False
    toggles = 0
    idle = 0


_doomed: deque[tuple[Slot, int]] = deque()
"""Copies of slots whose entries may have to go, and how many references to the slot are just going."""

_later: deque[Slot] = deque()
"""The same, of entries on tapes that were in somebody's hands."""


def bearer() -> object:
    """What an object has to hold, as long as it lives, that keeps an object of the user's on a tape."""
    if not _State.on:
        _State.on = True
        Tensor.__del__ = _died  # type: ignore[attr-defined]
    _State.idle = 0
    return _BEARER


def _died(self: Tensor) -> None:
    """A tensor's finaliser: its slot is let go where nothing but the tape refers to it."""
    try:
        node = self._node
        # Referred to by the tape, by the tensor, by `node` and by the call.
        if type(node) is int and getrefcount(node) <= UNHELD + 2:
            let_go(node + 0, 2)
    except AttributeError:
        return
    except KeyboardInterrupt:
        # An error of a finaliser is printed and forgotten: Ctrl-C has to come once more, when this is over.
        # `Thread.start` would wait, and what comes meanwhile is forgotten as well.
        _thread.start_new_thread(_interrupt_again, ())


def _interrupt_again() -> None:
    """Interrupt the main thread as soon as it is out of the finaliser."""
    main = threading.main_thread().ident or 0
    inside = True
    while inside:
        time.sleep(0.001)
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code is not _died.__code__:
            frame = frame.f_back
        inside = frame is not None
    _thread.interrupt_main()


def review() -> None:
    """Take the finaliser away where nobody has needed it for some time: called for each batch of slots."""
    if not _State.on:
        return
    if _later:
        let_go(_later.popleft())
    _State.idle = 0 if getrefcount(_BEARER) > _NO_BEARER else _State.idle + 1
    if _State.idle > 2 and _State.toggles < _TOGGLES:
        _State.toggles += 1
        _take_away()


def _take_away() -> None:
    if _State.on:
        _State.on = False
        del Tensor.__del__  # type: ignore[attr-defined]


def let_go(slot: Slot, going: int = 0) -> None:
    """Drop the entry with this slot (a copy), and what only it read, unless others than `going` references hold the slot."""
    if _State.working:  # a finaliser inside a drop; the references are gone when its turn comes
        _doomed.append((slot, 0))
        return
    _State.working = True
    try:
        _doomed.append((slot, going))
        _doomed.extend([(_later.popleft(), 0) for _ in range(len(_later))])
        while _doomed:
            slot, going = _doomed.popleft()
            read = tapes.drop(slot, going)
            if read is None:
                _later.append(slot)
            else:
                _doomed.extend((node, 0) for node in read)
    finally:
        _State.working = False


# ------------------------------------------------------------------------------------------------ leaves with hooks


def attend(leaf: Leaf, tensor: Any) -> None:
    """Note which tensor stands for a leaf with hooks, to look after the leaf when the tensor dies."""
    leaf.tensor = weakref.ref(tensor, functools.partial(_orphaned, weakref.ref(leaf)))


def _orphaned(ref: Any, _: Any) -> None:
    leaf = ref()
    if leaf is None or leaf.hooks is None or not _held(leaf):
        return
    blank_all()
    if _held(leaf):
        leaf.hooks.bearer = bearer()


def _held(leaf: Leaf) -> bool:
    """Whether somebody has the leaf but the tensor that is dying, the caller and its caller."""
    return getrefcount(leaf) > 4


def blank_all() -> None:
    """Drop what nobody can ask for on any tape, where nobody is at work on it."""
    for tape in tapes.known():
        tape.blank()


def _before_collection(phase: str, info: dict[str, int]) -> None:
    """Free the tapes' dead before a full garbage collection: what they hold would count as reachable."""
    if phase == "start" and info["generation"] == 2:
        for tape in tapes.known():
            if tapes.MARK[0] is not None or len(tape) < 10_000:
                tape.blank()


def _in_child() -> None:
    """Another thread's drop is the parent's."""
    _State.working = False


locks.in_child(_in_child)
gc.callbacks.append(_before_collection)
tapes.WHEN_RENEWED.append(review)


@atexit.register
def _end() -> None:
    """At exit modules are taken apart while tensors still die."""
    if _before_collection in gc.callbacks:
        gc.callbacks.remove(_before_collection)
    _take_away()
