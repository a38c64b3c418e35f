"""Views: which tensors share memory, so that a write through one of them can renew the history of all.

Idea: an op declared `view=True` links its result to the tensor it was made from: the view holds its parent (`_view`, with the op
and its settings), the parent knows its views by weak references. The links are a tree; its root, the *base*, owns the
memory. A write through any member of the tree is, for the tape, a new value of the base, of which every
living view is taken again (see inplace.py).

Invariant: a link is made only where the memory is really shared (a reshape may copy, an int index of a 1-d tensor gives a
number), and a tensor without a link shares no memory with another except where the user asked for it (`detach`,
`from_numpy`, `numpy`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .storage import StandIn, owner
from .tape import current
from .tensor import Tensor

_MANY = 16


def link(view: Tensor, parent: Tensor, code: int, kw: Any) -> None:
    """Note that `view` was made from `parent` by the op `code`, if it shares the parent's memory."""
    own, memory = view._value, parent._value
    if isinstance(own, StandIn):
        if not own.shares(memory):
            return
    elif not _shared(view, parent):
        return
    view._view = (parent, code, kw)
    try:
        views = parent._extra["views"]
    except (AttributeError, KeyError):
        parent._put("views", [weakref.ref(view)])
        return
    n = len(views)
    if n >= _MANY and not n & (n - 1):  # at powers of two: a constant per view
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def _shared(view: Tensor, parent: Tensor) -> bool:
    own, memory = view._value, parent._value
    if type(memory) is not np.ndarray:
        if current().outer is not None:
            return False  # in a transform it stands for NumPy's number, which no write changes
        memory = _memory_of_number(own.base, parent)
    if (
        own is memory
    ):  # NumPy gave the very array back: an array object of its own tells the two apart
        view._value = own = memory.view()
    root = own.base
    if root is None:
        return False
    return root is memory or root is memory.base or owner(own) is owner(memory)


def _memory_of_number(base: Any, parent: Tensor) -> Any:
    """The memory of a tensor that was a NumPy scalar: the array that NumPy made of it for the view."""
    if type(base) is np.ndarray and not base.ndim and base.base is None and base.flags.writeable:
        parent._value = base
    return parent._value


def base_of(t: Tensor) -> Tensor:
    """The root of the tree that `t` is in: itself, unless it is a view."""
    while (view := getattr(t, "_view", None)) is not None:
        t = view[0]
    return t


def chain_to(t: Tensor) -> Iterator[Tensor]:
    """This view, what it is a view of, and so on to the base."""
    yield t
    while (view := getattr(t, "_view", None)) is not None:
        t = view[0]
        yield t


def steps_to(t: Tensor) -> tuple[tuple[int, Any], ...]:
    """The ops, with their settings, that lead from the base to this view."""
    steps = []
    while (view := getattr(t, "_view", None)) is not None:
        t, code, kw = view
        steps.append((code, kw))
    return tuple(reversed(steps))


def views_of(t: Tensor) -> Iterator[Tensor]:
    """The living views made directly from `t`."""
    for ref in t._get("views", ()):
        view = ref()
        if view is not None:
            yield view
