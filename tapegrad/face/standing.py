"""A function that runs in another one's place, and that cannot be told from the other by `==`, by `in`, or as a key of a table.

`StandIn(made, of)` calls `made`, and is equal to `of`, with the same hash. Python looks for a key by its hash and then by `==`, so a table
or a cache that knows `of` finds its entry by the stand-in, and the other way round. `Bound` is a method of an object that stands for
another object. Invariant: only `is`, `id` and what reads the memory of a function tell them apart.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from ..core.closures import content


def weakly(value: Any) -> Callable[[], Any]:
    """What gives a value back while it lives; of values without weak references it holds the value itself."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


SHADOW_OF = "__shadow_of__"
"""In the class of an object that stands for another, its shadow: a function that gives for the shadow the other, while that lives."""

STANDS_FOR = "__stands_for__"
"""In a class that stands for another one, that class."""


def object_of(x: Any) -> Any:
    """What a shadow, or a class, stands for while that lives; any other object itself."""
    if isinstance(x, type):
        return vars(x).get(STANDS_FOR, x)
    of = vars(type(x)).get(SHADOW_OF)
    found = None if of is None else of(x)
    return x if found is None else found


class Calls(set[Any]):
    """Calls that are under way. Between them, what stands for a function runs as that function, with what its names mean by then."""

    __slots__ = ("afterwards",)

    def __init__(self, afterwards: Callable[[Any], Any]) -> None:
        """`afterwards` gives what then runs for a function."""
        super().__init__()
        self.afterwards = afterwards


class StandIn:
    """A function, or another callable, that stands for one, which it does not keep alive; attributes are those of what runs."""

    __slots__ = ("__weakref__", "_calls", "_hash", "_made", "_of")

    _made: Any
    _of: Callable[[], Any]
    _hash: int
    _calls: Calls | None

    def __init__(self, made: Callable[..., Any], of: Any, calls: Calls | None = None) -> None:
        """Without `calls` it is `made` that always runs."""
        _put_made(self, made)
        _put_of(self, weakly(of))
        _put_hash(self, hash(of))
        _put_calls(self, calls)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        calls = self._calls
        if calls or calls is None or (of := self._of()) is None:
            return self._made(*args, **kwargs)
        return calls.afterwards(of)(*args, **kwargs)

    def __get__(self, of: Any, kind: type | None = None) -> Any:
        """As a method: bound to an object, as functions are."""
        if of is None or not hasattr(self._made, "__get__"):
            return self
        return (types.MethodType if object_of(of) is of else Bound)(self, of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._made, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._made, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._made)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._made.__doc__

    def __eq__(self, other: Any) -> bool:
        return other is self or original(other) is self._of() or NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(original(self))

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: Any) -> StandIn:
        return self

    def __reduce__(self) -> Any:
        return original, (original(self),)


_put_made, _put_of, _put_hash, _put_calls = (
    vars(StandIn)[name].__set__ for name in ("_made", "_of", "_hash", "_calls")
)


def following(made: Any, cell: types.CellType, calls: Calls) -> StandIn:
    """What stands for the function in a variable of a closure; between the calls it runs as what the variable holds by then."""
    stand = StandIn(made._made if type(made) is StandIn else made, content(cell), calls)
    _put_of(stand, lambda: content(cell))
    return stand


def original(value: Any) -> Any:
    """What a function, a method or an object stands for, while that lives; any other value itself."""
    if type(value) is Bound:
        return value._method()
    if type(value) is not StandIn:
        return object_of(value)
    of = value._of()
    return value._made if of is None else of


class ClassStandIn:
    """A class method whose function is a stand-in: bound to a class that stands for another, it is equal to the other's."""

    __slots__ = ("_stand",)

    def __init__(self, stand: StandIn) -> None:
        self._stand = stand

    def __get__(self, of: Any, kind: type | None = None) -> Bound:
        return Bound(self._stand, type(of) if kind is None else kind)


class Bound:
    """A method of a shadow or of a stand-in of a class: it runs with the shadow, and is equal to the method of the object."""

    __slots__ = ("__func__", "__self__", "__weakref__", "_of")

    def __init__(self, f: StandIn, of: Any) -> None:
        self.__func__ = f
        self.__self__ = of
        self._of = object_of(of)  # which methods keep alive, and shadows do not

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        calls = self.__func__._calls
        if calls or calls is None or (method := self._method()).__self__ is self.__self__:
            return self.__func__._made(self.__self__, *args, **kwargs)
        return calls.afterwards(method)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return types.MethodType

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__func__.__doc__

    def _method(self) -> Any:
        return types.MethodType(original(self.__func__), self._of)

    def __eq__(self, other: Any) -> bool:
        return other is self or self._method() == (
            other._method() if type(other) is Bound else other
        )

    def __hash__(self) -> int:
        return hash(self._method())

    def __repr__(self) -> str:
        return repr(self._method())

    def __reduce__(self) -> Any:
        return getattr, (self._of, self.__func__.__name__)


class _ModuleName(str):
    """The name of a class's module, and of an object of the class that of the module of what it stands for."""

    __slots__ = ()

    def __get__(self, of: Any, kind: type | None = None) -> Any:
        return self if of is None else original(of).__module__


for _kind in (StandIn, Bound):
    _kind.__module__ = _ModuleName(_kind.__module__)
