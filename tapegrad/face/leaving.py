"""A copied function leaves behind the same as the function itself would have left: objects of the user's classes, arrays, functions.

A copy makes tensors where NumPy would make arrays, makes objects by stand-ins of classes (`face/adoption.py`), and finds stand-ins of
functions under names (`face/standing.py`). Whatever of these it stored outlives the call. `Belongings` is made once for a plan: where its
functions may store, that is attributes of objects that have shadows, and tables (dicts and lists) that they find by name. `Leaving` is
the copy as it is called: it notes what is in these places before the call, and exchanges behind it what has come since.

Invariant: a tensor that carries a gradient stays, and so does one that the user made; nothing that was there before is exchanged.
"""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from ..core.closures import content
from ..core.tensor import Tensor
from .reaching import LARGE, Reach
from .standing import STANDS_FOR, object_of, original

_MADE: ContextVar[list[weakref.ref[Any]] | None] = ContextVar("tapegrad.made", default=None)
"""Objects that stand-ins have made since the outermost copied function began."""


def noted(made: Any) -> Any:
    """An object that a stand-in has made: it gets its own class when the call ends."""
    since = _MADE.get()
    if since is not None and vars(type(made)).get(STANDS_FOR) is not None:
        with suppress(TypeError):  # without weak references
            since.append(weakref.ref(made))
    return made


_EXPLICIT = frozenset("tensor as_tensor from_numpy detach clone requires_grad_".split())
"""Names by which a user makes tensors."""

_TABLES = (dict, list, collections.OrderedDict, collections.defaultdict)


def _own(value: Any) -> Any:
    """An array for a tensor that carries no gradient, since NumPy made one, and the user's own value for what stands for it."""
    if isinstance(value, Tensor):
        return value._value if value._node is None else value
    return original(value)


_set_class = vars(object)["__class__"].__set__


class Belongings:
    """Where copied functions may leave something."""

    __slots__ = ("_shadows", "adds", "explicit", "keeps", "stores", "tables")

    def __init__(
        self,
        first: Reach,
        reached: Sequence[Reach],
        parts: Iterable[tuple[type, str, Any]],
        shadows: Mapping[int, Any],
    ) -> None:
        """Of a function that is called, all that it reaches, and attributes of classes; `shadows` is the plan's, and grows."""
        self._shadows = shadows
        self.adds = any(reach.code.adds for reach in reached)
        self.explicit = any(not _EXPLICIT.isdisjoint(reach.code.names) for reach in reached)
        """Whether the functions make tensors by tapegrad's own names."""
        self.stores = first.code.adds
        """Whether the function itself may add to tables, those of its closure among them."""
        self.tables = [
            (g.__globals__, name)
            for g, names in ((r.function, r.code.names) for r in reached if r.code.adds)
            for name in names
            if type(g.__globals__.get(name)) in _TABLES
        ]
        """Globals, each with its module's, in which functions find tables that they may add to."""
        closed_over = map(content, (first.function.__closure__ or ()) if self.stores else ())
        self.keeps = (
            any(reach.code.keeps for reach in reached)
            or any(type(part) is functools.cached_property for _, _, part in parts)
            or bool(self.tables)
            or any(type(value) in _TABLES for value in closed_over)
        )
        """Whether anything may be left in these places."""

    def _tables_in(self, f: types.FunctionType, objects: Iterable[int]) -> Iterator[Any]:
        """Tables that the functions find by name, or in attributes of objects that have shadows."""
        yield from (space.get(name) for space, name in self.tables)
        yield from map(content, (f.__closure__ or ()) if self.stores else ())
        for key in objects if self.adds else ():
            held = self._shadows.get(key)
            if held is not None:  # another thread may have dropped the object
                yield from [*held[1].__dict__.values()]

    def foreign(self, f: types.FunctionType, objects: Iterable[int]) -> dict[tuple[int, int], Any]:
        """Tensors in attributes and in tables, and what stands in attributes for something of the user's; with place and key.

        A function in a table is left as it is: in the next call of the copy it runs as its own copy.
        """
        shadows = [held for held in map(self._shadows.get, objects) if held is not None]
        found = {
            (id(place), id(value)): (place, key, value)
            for place in (shadow.__dict__ for _, shadow in shadows)
            for key, value in [*place.items()]
            if isinstance(value, Tensor) or original(value) is not value
        }
        for place in self._tables_in(f, objects):
            if type(place) in _TABLES and len(place) <= LARGE:
                for key, value in [
                    *(place.items() if isinstance(place, dict) else enumerate(place))
                ]:
                    if type(value) is Tensor:
                        found[id(place), id(value)] = place, key, value
        return found

    def leave_own(
        self,
        f: types.FunctionType,
        objects: Iterable[int],
        before: dict[tuple[int, int], Any],
    ) -> None:
        """Let what is there since then be what the function itself would have left.

        Tensors that the user made stay: those that were somewhere before, and all where the functions name what makes tensors.
        """
        known = {id(value) for _, _, value in before.values()}
        for found, (place, key, value) in self.foreign(f, objects).items():
            users = isinstance(value, Tensor) and (self.explicit or id(value) in known)
            if found not in before and not users:
                own = _own(value)
                if own is not value:
                    with suppress(LookupError):  # another thread may have changed the place
                        place[key] = own


class Leaving:
    """A copy that leaves the user's objects as the function would: of their own classes, with arrays where NumPy made arrays.

    It refuses what it cannot follow: a variable of a closure, or a method, that other code binds anew during the call.
    """

    __slots__ = ("func", "objects", "of", "plan")

    def __init__(self, func: Any, plan: Any, of: types.FunctionType, objects: list[int]) -> None:
        self.func, self.plan, self.of, self.objects = func, plan, of, objects

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the copy, and look after the objects that were made, or changed, when it ends."""
        left = self.plan.left
        before = left.foreign(self.of, self.objects) if left.keeps else {}
        outermost = _MADE.get() is None
        token = _MADE.set([]) if outermost else None
        calls, this = self.plan.calls, object()
        try:
            calls.add(this)
            result = self.func(*args, **kwargs)
            self.plan.refuse_bound_anew(self.of)
            return result
        finally:
            calls.discard(this)
            if token is not None:
                made = _MADE.get() or []
                _MADE.reset(token)
                for ref in made:
                    _leave(ref())
            if left.keeps:
                left.leave_own(self.of, self.objects, before)


def _leave(made: Any) -> None:
    """Give an object that a stand-in made, and that outlives the call, its own class."""
    if made is None:
        return
    origin = object_of(type(made))
    if origin is not type(made):
        with suppress(TypeError):  # whose memory is laid out otherwise
            _set_class(made, origin)
    held = getattr(made, "__dict__", {})
    for name, value in [*held.items()]:
        held[name] = _own(value)
