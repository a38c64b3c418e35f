"""Functions that join tracked numbers by NumPy, or fill its buffers: they run as copies in which NumPy's functions make tensors.

`adopted(f)` is `f` as a copy that shares its code, closure, defaults and globals, but finds a namespace of its own where its globals or
its closure say NumPy (`face/buffers.py`). Python functions of the user's that the function reaches by name (`face/reaching.py`: helpers,
functions of closures and of the user's modules, itself in a recursion, methods of `self`, of objects and of classes that it names) are
copied in the same way. So is what this library wraps around the user's function (`is_wrapper`), where only the function inside is
replaced. An object has a shadow, which shares its attributes; a class has a stand-in (`_stand_in`), a subclass, which also makes the
objects of the class; `type` and `super` know both. Everything else is looked up where it always was, at the moment that it is looked up.

Invariant: nothing that exists is changed, so that no other call and no other thread notices. A function is copied only if what it
reaches joins arrays or makes lists, or both makes arrays and writes to some. A stand-in is equal to its value (`face/standing.py`); a
value that the functions compare by `is` (`method is euler`) stays the value itself. A name means what it means when it is read.
`plain_buffers()` switches all of it off, `adoptions(f)` says what it does.
"""

from __future__ import annotations

import abc
import copyreg
import dataclasses
import functools
import sys
import types
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.closures import content, is_class, kept_by
from ..core.storage import tracing
from ..core.tensor import Tensor
from ..errors import GradientLost
from ..ops.composing import holds_tensor
from ..ops.vectorized import spread
from . import mathematics
from .buffers import FILLING, JOINING, OFF, Source, is_source, recording
from .kinds import ANSWERS, NUMBERS, kind_of
from .leaving import Belongings, Leaving, noted
from .reaching import (
    READING,
    Attributes,
    Reach,
    attributes,
    callee,
    code_of,
    functions_in,
    is_users,
    is_wrapper,
)
from .standing import (
    SHADOW_OF,
    STANDS_FOR,
    Bound,
    Calls,
    ClassStandIn,
    StandIn,
    following,
    object_of,
    original,
    weakly,
)

# ------------------------------------------------------------------------------------------ copies


class _Stands:
    """What stands for values that have names, for as long as the names mean these values."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[str, tuple[Callable[[], Any], Any]] = {}

    def put(self, name: str, value: Any, made: Any) -> None:
        """Let one value stand for another under a name."""
        if made is not value:
            self._pairs[name] = weakly(value), made

    def of(self, name: str, value: Any) -> Any:
        """What is found under a name that means a value now."""
        pair = self._pairs.get(name)
        return value if pair is None or pair[0]() is not value else pair[1]

    def __len__(self) -> int:
        return len(self._pairs)


class _Globals(dict[str, Any]):
    """A module's globals as copied functions find them: as they are then, but for values which something stands for."""

    __slots__ = ("fills", "lists", "real", "stands")

    def __init__(self, real: dict[str, Any], fills: bool, lists: bool) -> None:
        self.real = real
        self.fills = fills
        self.lists = lists
        self.stands = _Stands()
        for name in ("__builtins__", "__name__"):
            if name in real:
                self[name] = real[name]

    def __missing__(self, name: str) -> Any:
        return self.stands.of(name, self.real[name])

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self.real


class _StandIns(type):
    """The class of what stands for classes of the user's. A stand-in has their instances and subclasses, and is equal to them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return noted(type.__call__(cls, *args, **kwargs))

    def __instancecheck__(cls, x: Any) -> bool:
        origin = vars(cls).get(STANDS_FOR)
        return type.__instancecheck__(cls, x) if origin is None else isinstance(x, origin)

    def __subclasscheck__(cls, kind: Any) -> bool:
        """Whether it is a subclass of the class; where an abstract class asks each of its subclasses, of the stand-in alone."""
        origin = vars(cls).get(STANDS_FOR)
        if origin is None or type(sys._getframe(1).f_globals) is not _Globals:
            return type.__subclasscheck__(cls, kind)
        return issubclass(_origin(kind), origin)

    def __eq__(cls, other: Any) -> bool:
        return _origin(cls) is _origin(other) or NotImplemented

    def __hash__(cls) -> int:
        return type.__hash__(_origin(cls))

    def __setattr__(cls, name: str, value: Any) -> None:
        kind = _origin(cls)
        abstract = name in ("_abc_impl", "__abstractmethods__")  # which ABCMeta sets
        if kind is cls or abstract or name in vars(cls):  # a copied method among them
            type.__setattr__(cls, name, value)
        if kind is not cls and not abstract:
            setattr(kind, name, original(value))

    def __delattr__(cls, name: str) -> None:
        kind = _origin(cls)
        if kind is cls or name in vars(cls):
            type.__delattr__(cls, name)
        if kind is not cls:
            delattr(kind, name)

    def __repr__(cls) -> str:
        kind = _origin(cls)
        return type.__repr__(cls) if kind is cls else repr(kind)


class _AbstractStandIns(_StandIns, abc.ABCMeta):
    """The same for classes with abstract methods."""


_STAND_INS = frozenset((_StandIns, _AbstractStandIns))
_OF_FUNCTIONS = frozenset((StandIn, Bound))


def _origin(kind: Any) -> Any:
    """The class that a class stands for; itself where it stands for none."""
    return vars(kind).get(STANDS_FOR, kind) if isinstance(kind, _StandIns) else kind


def of_stand_ins(values: Iterable[Any]) -> bool:
    """Whether one of these is a stand-in, or an object of a class that is one."""
    kinds = [*map(type, values)]
    return (
        not _OF_FUNCTIONS.isdisjoint(kinds)
        or not _STAND_INS.isdisjoint(kinds)
        or not _STAND_INS.isdisjoint(map(type, kinds))
    )


def itself(x: Any) -> Any:
    """A function, a class, or an object as one of the user's class: of a shadow the object, else an object that shares the attributes."""
    kind = type(x)
    if kind in _OF_FUNCTIONS:
        return original(x)
    if kind in _STAND_INS:
        return _origin(x)
    origin = _origin(kind)
    if origin is kind:
        return x
    of = object_of(x)
    if of is not x:
        return of
    if hasattr(origin, "__del__"):  # which would be called for both
        return x
    try:
        made: Any = object.__new__(origin)
    except TypeError:  # more than attributes in its memory
        return x
    for base in origin.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                object.__setattr__(made, name, getattr(x, name))
    if hasattr(made, "__dict__"):
        object.__setattr__(made, "__dict__", x.__dict__)
    return made


def _same(kind: type) -> type:
    return kind


def _pickled(kind: Any) -> Any:
    return _same, (_origin(kind),)


for _kind in _STAND_INS:
    copyreg.pickle(_kind, _pickled)


def _blank(kind: Any) -> Any:
    if SHADOW_OF in vars(kind):  # whose copy is an object by itself
        kind = kind.__base__
    return noted(kind.__new__(kind))


def _reduced(self: Any, protocol: Any) -> Any:
    """For copies and pickles: `copyreg.__newobj__` would ask that `__class__` be the stand-in."""
    made = object.__reduce_ex__(self, protocol)
    if isinstance(made, tuple) and made[0] is copyreg.__newobj__ and len(made[1]) == 1:  # type: ignore[attr-defined]
        return _blank, *made[1:]
    return made


_REMAKERS = frozenset(
    getattr(dataclasses, name).__code__
    for name in ("replace", "_replace")
    if hasattr(dataclasses, name)
)
"""Functions of the standard library that make another object of an object's class."""


def _stand_in(kind: type, copied: dict[str, Any], named: dict[type, type], abstract: bool) -> type:
    """A class that stands for one of the user's: its subclass, with copies of methods. `named` are those that names give."""

    def of_object(self: Any) -> type:
        """The stand-in where copied code, which does not compare it, makes another object of it; else the class."""
        frame = sys._getframe(1)
        code = frame.f_code
        if code in _REMAKERS or (
            type(frame.f_globals) is _Globals
            and "__class__" not in code_of(code).comparisons.compared
        ):
            return named.get(kind, kind)
        return kind

    space: dict[str, Any] = {
        STANDS_FOR: kind,
        "__slots__": (),
        "__class__": property(of_object),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        **copied,
    }
    if "__eq__" in copied and "__hash__" not in copied:
        space["__hash__"] = kind.__hash__
    if kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
        space["__reduce_ex__"] = _reduced
    # A class that is made of it may have an abstract one for another base.
    meta = _StandIns if type(kind) is type and not abstract else _AbstractStandIns
    return meta(kind.__name__, (kind,), space)


def _part(part: Any, copies: dict[int, Any], read: bool = False, calls: Calls | None = None) -> Any:
    """An attribute of a class with copies for the functions that it holds; itself where none of them is copied.

    Where an attribute may be `read` for anything but a call, it is equal to what it stands for, bound or not.
    """
    kind = type(part)
    held = functions_in(part)
    if not any(id(f) in copies for f in held) and not (read and held and kind not in _COMPUTED):
        return part
    if kind is property:
        get, put, drop = (copies.get(id(f), f) for f in (part.fget, part.fset, part.fdel))
        return property(get, put, drop, part.__doc__)
    if kind in (staticmethod, classmethod):
        copy = copies.get(id(part.__func__), part.__func__)
        if not read:
            return kind(copy)
        stand = StandIn(copy, part.__func__, calls)
        return staticmethod(stand) if kind is staticmethod else ClassStandIn(stand)
    if kind is functools.cached_property:
        return functools.cached_property(copies[id(part.func)])
    copy = copies.get(id(part), part)
    return StandIn(copy, part, calls) if read else copy


_COMPUTED = (property, functools.cached_property)


class _Super:
    """What `super()` is in a copied method: what the bases have, with copies for methods."""

    __slots__ = ("_copies", "_kind", "_of")

    def __getattribute__(self, name: str) -> Any:
        """What the class after this one in the order of bases has under a name, bound as `super` binds it."""
        kind, of, copies = (slot.__get__(self) for slot in _SUPERS_SLOTS)
        of_class = is_class(of)
        owner = of if of_class else type(of)
        order = iter(owner.__mro__)
        any(base is kind for base in order)  # as far as the class itself
        for base in order:
            if name in vars(base):
                part = vars(base)[name]
                made = _part(part, copies)
                if made is not part:
                    return made.__get__(None if of_class else of, owner)
                break
        return getattr(super(kind, of), name)

    def __setattr__(self, name: str, value: Any) -> None:
        kind, of, _ = (slot.__get__(self) for slot in _SUPERS_SLOTS)
        setattr(super(kind, of), name, value)


_SUPERS_SLOTS = tuple(vars(_Super)[name] for name in ("_kind", "_of", "_copies"))


class _Supers:
    """What `super` is in copied functions."""

    def __init__(self, copies: dict[int, Any]) -> None:
        self.copies = copies

    def __call__(self, *args: Any) -> Any:
        """With no arguments the class and the first argument of the method that calls, as Python has it."""
        if len(args) == 1:
            return super(*args)
        if not args:
            frame = sys._getframe(1)
            found = frame.f_locals
            names = frame.f_code.co_varnames
            if "__class__" not in found or not frame.f_code.co_argcount:
                raise RuntimeError("super(): no arguments, and not called by a method.")
            args = (found["__class__"], found[names[0]])
        made = _Super()
        for slot, value in zip(
            _SUPERS_SLOTS, (_origin(args[0]), args[1], self.copies), strict=True
        ):
            slot.__set__(made, value)
        return made


class _Kinds(type):
    """What `type` is in copied functions: it gives the class's stand-in where one is found by the class's name, else the class."""

    stands: ChainMap[type, type]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1:
            return type(*args, **kwargs)
        kind = _origin(kind_of(args[0]))
        return cls.stands.get(kind, kind)

    def __getitem__(cls, item: Any) -> Any:
        return type[item]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, type)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, type)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)

    def __repr__(cls) -> str:
        return repr(type)


class _Module(types.ModuleType):
    """A module of the user's, but for the functions of it that are copied."""

    def __init__(self, real: types.ModuleType, stands: _Stands) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.__dict__["_parts"] = real, stands

    def __getattr__(self, name: str) -> Any:
        real, stands = self._parts
        return stands.of(name, getattr(real, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parts[0], name, original(value))

    def __delattr__(self, name: str) -> None:
        delattr(self._parts[0], name)


def _run_text(
    run: Callable[..., Any],
    source: Any,
    space: dict[str, Any] | None = None,
    names: Any = None,
    /,
    **words: Any,
) -> Any:
    """`eval` or `exec` in a copied function: text finds the names that the function finds."""
    if space is None:
        frame = sys._getframe(1)
        space = frame.f_globals
        names = frame.f_locals if names is None else names
        if type(space) is _Globals:  # where the text's own steps would look past `__missing__`
            names = ChainMap(names, space)
    return run(source, space, names, **words)


class _Plan:
    """The copy of a function, and what has to be as it was for the copy to stand for it."""

    __slots__ = (
        "__weakref__",
        "apart",
        "asks",
        "bound",
        "builds",
        "calls",
        "cells",
        "closed",
        "compared",
        "copied",
        "copied_names",
        "copies",
        "fixed",
        "kept",
        "kind",
        "left",
        "named",
        "names",
        "partials",
        "parts",
        "plain",
        "reached",
        "read",
        "reads_any",
        "seen",
        "shadows",
        "space",
        "stands",
        "stood",
        "within",
    )

    def __init__(self, f: types.FunctionType, of: Attributes | None, kind: type | None) -> None:
        """Find the functions that `f`, perhaps a method of a class, reaches, and copy those in which arrays have to become tensors."""
        self.kind = kind
        reached: dict[int, Reach] = {}
        unseen: list[Any] = [(f, of)]
        while unseen:
            g, found_in = unseen.pop()
            if id(g) not in reached:
                reach = reached[id(g)] = Reach(g, found_in)
                unseen += reach.calls()
        self.reached = list(reached.values())
        self.space: Any = None
        """The globals of the copy; None where nothing is copied."""
        self.copied: list[str] = []
        """Names and lines of what is copied."""
        fills = any(reach.writes for reach in self.reached)
        if not any(reach.joins or (fills and reach.makes) for reach in self.reached):
            return
        self.seen: list[Callable[[types.FunctionType], bool]] = []
        self.copies: dict[int, Any] = {}
        self.calls = Calls(adopted_inside)
        """Calls of the copy that are under way."""
        self.stood = False
        """Whether anything but a class has something equal to it."""
        self.shadows: dict[int, Any] = {}
        self.stands: dict[type, type] = {}
        """Copies of classes, whose objects have copied methods."""
        self.named: dict[type, type] = {}
        """Those that are found under the names of their classes."""
        self.partials: list[tuple[Any, list[str], list[int]]] = []
        """Partials that were copied, with their keywords."""
        self.within: list[tuple[Any, str, Any]] = []
        """Globals that stand in the spaces of copies, since bodies of classes look for them there."""
        kinds = {of.kind: of for reach in self.reached for of in reach.kinds()}
        self.parts = [
            (k, n, part)
            for of in kinds.values()
            for n, found in of.parts.items()
            for k, part in found
        ]
        """Attributes of classes that were looked at."""
        classes = {k for of in kinds.values() for k in of.kind.__mro__[:-1]}
        self.names = [(k, frozenset(vars(k))) for k in classes]
        """Which attributes these classes and their bases have: another one may come before those that were looked at."""
        self.builds = any(reach.code.builds for reach in self.reached)
        self.left = Belongings(reached[id(f)], self.reached, self.parts, self.shadows)
        self.bound = {place for reach in self.reached for place in reach.bound}
        self._tell_apart()
        wanted, fills = self._wanted(reached, fills, {id(kind) for kind in kinds})
        if id(f) not in wanted:
            return
        self._copy([reached[key] for key in wanted], fills)
        copies = self.copies
        for key in wanted:
            _fill(reached[key], self, copies[key].__globals__, key == id(f))
        gone = functools.partial(_forget, _plans, f.__code__, weakref.ref(self))
        self.seen = [_seen(reach, reach.function is f, gone) for reach in self.reached]
        self.closed = [
            _closed(reach, reach.function is f, own)
            for reach in self.reached
            if id(reach.function) in copies and (own := self._own(reach))
        ]
        self.reached = []
        # The copy of f itself is made anew for each call, and ends with it: else it would keep alive what f closes over.
        copy = copies.pop(id(f))
        self.space = copy.__globals__
        self.cells = tuple(
            mine if mine is not cell else None
            for mine, cell in zip(copy.__closure__ or (), f.__closure__ or (), strict=True)
        )
        self.copied = [told(f), *(told(g) for g in copies.values())]
        self.fixed = [*self.shadows]
        """Objects that are found by name."""

    def _wanted(
        self, reached: dict[int, Reach], fills: bool, kinds: set[int]
    ) -> tuple[set[int], bool]:
        """Which functions are copied, by identity, and whether those that make arrays are among them, since others write to some."""
        able = {k: r for k, r in reached.items() if not r.code.binds and k not in self.kept}
        fills = fills and any(reach.makes for reach in able.values())
        if any("type" in reach.code.names for key, reach in reached.items() if key not in able):
            self.kept |= kinds  # whose `type` knows no stand-ins
        wanted = {k for k, reach in able.items() if reach.joins or (fills and reach.makes)}
        more = wanted
        while more:
            more = {
                key
                for key, reach in able.items()
                if key not in wanted
                and ("type" in reach.code.names or any(id(g) in wanted for g, _ in reach.calls()))
            }
            wanted |= more
        return wanted, fills

    def _copy(self, wanted: Sequence[Reach], fills: bool) -> None:
        """Copy functions, those of one module into one space; `_fill` then tells the spaces what is found there."""
        lists = any(reach.code.lists for reach in wanted)
        spaces: dict[int, _Globals] = {}
        for reach in wanted:
            g, own = reach.function, self._own(reach)
            space = spaces.setdefault(id(g.__globals__), _Globals(g.__globals__, fills, lists))
            cells = zip(g.__code__.co_freevars, g.__closure__ or (), strict=True)
            own_cells = [types.CellType(content(c)) if n in own else None for n, c in cells]
            self.copies[id(g)] = _copied(g, space, own_cells)

    def _tell_apart(self) -> None:
        """Note what the functions could tell from what would stand for it."""
        every = [*self.reached, *_beside(self.reached)]
        self.kept = {identity for reach in every for identity in reach.kept()}
        self.plain = frozenset(name for reach in every for name in reach.plain())
        self.apart = {identity for reach in every for identity in reach.apart()}
        self.compared = {name for reach in every for name in reach.comparisons.compared}
        self.asks = any(reach.code.asks for reach in every)
        self.copied_names = frozenset[str]().union(*(reach.code.copied for reach in self.reached))
        self.copied_names -= {
            n
            for r in self.reached
            for n in {*r.code.names, *r.function.__code__.co_freevars} - r.code.copied
        }
        self.read = {name for reach in every for name in reach.comparisons.values}
        self.reads_any = any(not READING.isdisjoint(reach.code.names) for reach in every)
        if any("__subclasses__" in reach.code.names for reach in every):
            self.apart |= {id(of.kind) for reach in self.reached for of in reach.kinds()}
        named = [value for reach in self.reached for value in reach.named_values()]
        if any(reach.comparisons.identifies for reach in every):
            self.kept |= {id(value) for value in named}
            self.apart |= {id(r.of.kind) for r in self.reached if r.of and r.comparisons.yields}

    def reads(self, name: str) -> bool:
        """Whether functions read what has this name for anything but a call: what stands for it has to be equal to it."""
        return self.reads_any or name in self.read

    def _own(self, reach: Reach) -> set[str]:
        """Variables of a function's closure for which its copy has cells of its own, since it may find something else under them."""
        cells = zip(reach.function.__code__.co_freevars, reach.function.__closure__ or (), strict=True)  # fmt: skip
        return {n for n, cell in cells if n in reach.cells and (id(cell), n) not in self.bound}

    def copy_of(self, f: types.FunctionType, of: Any = None) -> Any:
        """The copy of a function for which this plan holds, as a method of an object if there is one."""
        cells = zip(f.__code__.co_freevars, self.cells, f.__closure__ or (), strict=True)
        own = [
            mine and types.CellType(_followed(f, name, mine.cell_contents, cell, self.calls))
            for name, mine, cell in cells
        ]
        copy: Any = _copied(f, self.space, own)
        if of is not None:
            copy = types.MethodType(copy, self.shadow(of))
        if not (self.stands or self.closed or self.stood or self.left.keeps):
            return copy
        return Leaving(copy, self, f, [*self.fixed, *([] if of is None else [id(of)])])

    def stand(self, kind: type) -> type:
        """What a copied function finds under the name of a class: its copy, or the class itself where it is compared."""
        made = kind if id(kind) in self.kept else self.copied_class(kind)
        if made is not kind:
            self.named[kind] = made
        return made

    def stand_in(self, made: Callable[..., Any], of: Any) -> StandIn:
        """What stands for a function while the copies run, and is that function where it is called later."""
        self.stood = True
        return StandIn(made, of, self.calls)

    def copied_class(self, kind: type) -> type:
        """The class whose instances have the copies as methods; the class itself where none is copied."""
        made = self.stands.get(kind)
        if made is not None:
            return made
        of = None if id(kind) in self.apart else attributes(kind)
        if of is None:
            return kind
        made = kind
        if any(id(f) in self.copies for name in of.parts for f in of.functions(name)):
            firsts = ((name, found[0][1]) for name, found in of.parts.items())
            parts = (
                (name, part, _part(part, self.copies, self.reads(name), self.calls))
                for name, part in firsts
            )
            copied = {name: copy for name, part, copy in parts if copy is not part}
            made = _stand_in(kind, copied, self.named, self.builds)
        self.stands[kind] = made
        return made

    def builtin(self, value: Any) -> Any:
        """What a copied function finds under the name of a builtin."""
        if value is type:
            return _Kinds("type", (), {"stands": ChainMap(self.named, self._kinds())})
        if value is eval or value is exec:
            return functools.partial(_run_text, value)
        if value in NUMBERS:
            return self._kinds().get(value, value)
        if self.asks and value in ANSWERS:
            return ANSWERS[value]
        return _Supers(self.copies) if value is super else value

    def _kinds(self) -> dict[type, type]:
        """What stands for NumPy's and Python's classes under their names, but for those that the functions compare."""
        kinds = {k: made for k, made in NUMBERS.items() if k.__name__ not in self.compared}
        if "ndarray" not in self.plain and id(np.ndarray) not in self.kept:
            kinds[np.ndarray] = JOINING.made["ndarray"]
        return kinds

    def shadow(self, value: Any) -> Any:
        """An object that shares the attributes of another, and whose methods are the copies; the object itself where none is copied."""
        if is_class(value):
            return self.stand(value)
        kind, key = type(value), id(value)
        held = self.shadows.get(key)
        if held is not None and held[0]() is value and _is_shadow(held[1], value):
            return held[1]
        if key in self.kept or self.stands.get(kind) is kind or attributes(value) is None:
            return value
        stand = self.copied_class(kind)
        if stand is kind:
            return value
        of = weakref.ref(value, lambda _: self.shadows.pop(key, None))
        # Of its class may also be copies of it, which are objects by themselves.
        own: weakref.ref[Any]
        space: dict[str, Any] = {
            STANDS_FOR: kind,
            SHADOW_OF: lambda x: of() if x is own() else None,
            "__slots__": (),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
        }
        if hasattr(kind, "__del__"):
            space["__del__"] = lambda shadow: None  # the object's own end comes later
        if kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__:
            number = hash(value)
            space["__hash__"] = lambda x: number if x is own() else object.__hash__(x)
            # Another copied function has another shadow of the object.
            space["__eq__"] = lambda x, other: object_of(other) is object_of(x) or NotImplemented
        try:
            made: Any = object.__new__(type(stand)(kind.__name__, (stand,), space))
        except TypeError:  # more than attributes in its memory
            return value
        own = weakref.ref(made)
        object.__setattr__(made, "__dict__", value.__dict__)
        self.shadows[key] = (of, made)
        return made

    def refuse_bound_anew(self, f: types.FunctionType) -> None:
        """Raise if a variable of a closure, or a method, is not what it was when the copies were made."""
        anew = self._bound_anew(f)
        if anew is not None:
            raise GradientLost(
                f"{anew} was bound anew while {told(f)} was differentiated or traced, by code that the function does not reach "
                f"by name: what ran may be the old one. Bind it before the call, or write `with tg.plain_buffers():` around the call "
                f"and make arrays by tg.zeros and tg.stack.",
                name="bound-anew",
            )

    def _bound_anew(self, f: types.FunctionType) -> str | None:
        for kind, name, part in self.parts:
            now = vars(kind).get(name)
            if now is not part:
                stand = self.stands.get(kind)  # which has what copied code bound
                if stand is None or original(vars(stand).get(name)) is not now:
                    return f"{kind.__qualname__}.{name}"
        names = (closed(f) for closed in self.closed)
        return next((name for name in names if name is not None), None)

    def holds(self, f: types.FunctionType) -> bool:
        """Whether everything that was looked at is as it was."""
        for kind, name, part in self.parts:
            if vars(kind).get(name) is not part:
                return False
        for kind, names in self.names:
            if vars(kind).keys() != names:
                return False
        for of, shadow in [*self.shadows.values()]:
            value = of()
            if value is not None and not _is_shadow(shadow, value):
                return False
        for made, words, values in self.partials:
            if [*made.keywords] != words or [*map(id, made.keywords.values())] != values:
                return False
        for where, name, value in self.within:
            if where.get(name, where) is not value:
                return False
        return all(seen(f) for seen in self.seen)


def _beside(reached: Iterable[Reach]) -> list[Reach]:
    """Functions that are not reached by name, but may be called with what stands for something."""
    known = {id(reach.function) for reach in reached}
    found: list[Reach] = []
    unseen = [f for reach in reached for f in reach.beside()]
    while unseen:
        f = unseen.pop()
        if id(f) not in known:
            known.add(id(f))
            reach = Reach(f, None)
            found.append(reach)
            unseen += [*reach.beside(), *(g for g, _ in reach.calls())]
    return found


def _is_shadow(shadow: Any, value: Any) -> bool:
    """Whether an object still has the class and the attributes that its shadow shares."""
    return _origin(type(shadow)) is type(value) and shadow.__dict__ is value.__dict__


def _closed(
    reach: Reach, first: bool, names: Iterable[str]
) -> Callable[[types.FunctionType], str | None]:
    """A check of the variables of a function's closure: one that means another value by now. It keeps nothing alive."""
    itself = None if first else weakref.ref(reach.function)
    places = reach.function.__code__.co_freevars
    cells = [(places.index(name), name, weakref.ref(reach.cells[name])) for name in names]

    def other(given: types.FunctionType) -> str | None:
        f = given if itself is None else itself()
        closure = (f and f.__closure__) or ()
        for place, name, value in cells if closure else ():
            if content(closure[place]) is not value():
                return name
        return None

    return other


def _seen(
    reach: Reach, first: bool, gone: Callable[[Any], None]
) -> Callable[[types.FunctionType], bool]:
    """A check that a function, and what it finds under names, is the same. It keeps nothing alive.

    `gone` is called when a function is dropped whose copy would keep alive what the function closes over.
    """
    f = reach.function
    itself = None if first else weakref.ref(f, gone)
    code, defaults, words = f.__code__, f.__defaults__, f.__kwdefaults__
    own = [(weakref.ref(g), g.__code__) for g in reach.own]
    names = [(name, weakref.ref(value)) for name, value in reach.globals.items()]
    cells = [(name, weakref.ref(value)) for name, value in reach.cells.items()]
    data, closed = _needless(reach)
    parts = [
        (weakref.ref(reach.globals[module]), name, weakref.ref(value))
        for module, functions in reach.modules.items()
        for name, value in functions.items()
    ]

    def same(given: types.FunctionType) -> bool:
        """Whether the function and all that it reads by name are those that the plan was made of."""
        g = given if itself is None else itself()
        if g is None or g.__code__ is not code or g.__defaults__ is not defaults:
            return False
        if g.__kwdefaults__ is not words and g is not given:
            return False
        for method, text in own:
            now = method()
            if now is None or now.__code__ is not text:
                return False
        space = g.__globals__
        for name, value in names:
            if space.get(name) is not value():
                return False
        if any(_told_by(space.get(name)) != kind for name, kind in data):
            return False
        if cells or closed:
            held = dict(zip(code.co_freevars, g.__closure__ or (), strict=True))
            if any(content(held[name]) is not value() for name, value in cells):
                return False
            if any(_told_by(content(held[name])) != kind for name, kind in closed):
                return False
        for module, name, value in parts:
            if kept_by(module()).get(name) is not value():
                return False
        return True

    return same


def _needless(reach: Reach) -> tuple[_Noted, _Noted]:
    """Globals and variables of the closure that need no stand-in; they may need one once they are a function of the user's."""
    f = reach.function
    space = f.__globals__
    names = [n for n in reach.code.names if n in space and n not in reach.globals]
    cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
    closed = [(n, cell) for n, cell in cells if n not in reach.cells and n != "__class__"]
    return [(n, _told_by(space[n])) for n in names], [(n, _told_by(content(c))) for n, c in closed]


_Noted = list[tuple[str, weakref.ref[Any]]]


def _told_by(value: Any) -> weakref.ref[Any]:
    """What tells whether a copy may need a stand-in for a value for which none was needed: its type, or the function's code."""
    called, _ = callee(value)
    return weakref.ref(called.__code__ if type(called) is types.FunctionType else type(value))


def _copied(
    f: types.FunctionType, space: dict[str, Any], own: Sequence[types.CellType | None]
) -> types.FunctionType:
    """A copy with other globals, and with these cells in its closure."""
    cells = tuple(mine or cell for mine, cell in zip(own, f.__closure__ or (), strict=True))
    copy = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, cells or None)
    copy.__kwdefaults__ = f.__kwdefaults__
    if getattr(space, "fills", False):
        _copy_defaults(copy)
    copy.__qualname__, copy.__doc__, copy.__module__ = (
        f.__qualname__,
        f.__doc__,
        f.__module__,
    )
    copy.__dict__ = f.__dict__
    return copy


def _copy_defaults(f: types.FunctionType) -> None:
    """Let arrays that are defaults of a copied function, and of which it only takes copies, give buffers."""
    code = f.__code__
    copied = code_of(code).copied
    if not copied:
        return
    source = lambda name, value: Source(value) if name in copied and is_source(value) else value  # noqa: E731
    if f.__defaults__:
        names = code.co_varnames[code.co_argcount - len(f.__defaults__) : code.co_argcount]
        f.__defaults__ = tuple(map(source, names, f.__defaults__))
    if f.__kwdefaults__:
        f.__kwdefaults__ = {name: source(name, value) for name, value in f.__kwdefaults__.items()}


def unadopted(f: Any) -> Any:
    """A function for another compiler: one that a copy defines, with the globals of its module and with what a copy's variables stand
    for; any other function itself."""
    f = original(f)
    if type(f) is not types.FunctionType or type(f.__globals__) is not _Globals:
        return f
    cells: list[types.CellType | None] = []
    for cell in f.__closure__ or ():
        held = content(cell)
        now = original(held)
        cells.append(None if now is held else types.CellType(now))
    return _copied(f, f.__globals__.real, cells)


def _vectorized(of: np.vectorize) -> Callable[..., Any]:
    """What runs for an object of `np.vectorize`: it takes tensors, too."""

    def call(*args: Any, **words: Any) -> Any:
        if not holds_tensor([*args, *words.values()]):
            return of(*args, **words)
        return spread(of, adopted_inside(of.pyfunc), args, words)

    return call


def _other(name: str, value: Any, plan: _Plan, space: _Globals) -> Any:
    """What stands for a value under its name; the value itself where nothing does."""
    stand = FILLING if space.fills else JOINING
    if value is np:
        return stand.module(space.lists, plan.plain)
    made = None
    if id(value) not in plan.kept:
        made = stand.functions.get(id(value), mathematics.standing(value, plan.plain))
    if made is not None:
        return made
    copies = plan.copies
    if type(value) is functools.partial:
        inner = _other("func", value.func, plan, space)
        if inner is value.func:
            return value
        words = value.keywords
        plan.partials.append((value, [*words], [*map(id, words.values())]))
        return plan.stand_in(functools.partial(inner, *value.args, **words), value)
    if type(value) is np.ndarray:
        return Source(value) if space.fills and name in plan.copied_names else value
    if type(value) is np.vectorize:
        return plan.stand_in(_vectorized(value), value)
    if type(value) is types.MethodType:
        method = copies.get(id(value.__func__))
        return value if method is None else plan.stand_in(method, value.__func__).__get__(plan.shadow(value.__self__))  # fmt: skip
    copy = copies.get(id(value))
    if copy is None:
        return plan.shadow(value)
    return plan.stand_in(copy, value) if plan.reads(name) else copy


def _fill(reach: Reach, plan: _Plan, space: _Globals, first: bool) -> None:
    """Put what stands for NumPy, for its makers and for copied functions where a copy looks them up.

    Nothing may keep the cells of the `first` function alive between the calls, so that what follows them is made for each.
    """
    other = functools.partial(_other, plan=plan, space=space)
    f, copy = reach.function, plan.copies[id(reach.function)]
    for name, value in reach.globals.items():
        if name in reach.modules:
            stands = _Stands()
            for n, part in reach.modules[name].items():
                stands.put(n, part, other(n, part))
            space.stands.put(name, value, _Module(value, stands) if stands else value)
        else:
            space.stands.put(name, value, other(name, value))
    for name in reach.code.within - space.keys():
        if name in f.__globals__:
            space[name] = space.stands.of(name, value := f.__globals__[name])
            plan.within.append((f.__globals__, name, value))
    builtins = getattr(f, "__builtins__", {})
    for name in reach.code.names:
        if name in builtins and name not in f.__globals__:
            space[name] = plan.builtin(builtins[name])
    cells = zip(f.__code__.co_freevars, copy.__closure__ or (), f.__closure__ or (), strict=True)
    for name, mine, cell in cells:
        if mine is not cell:
            made = other(name, reach.cells[name])
            mine.cell_contents = made if first else _followed(f, name, made, cell, plan.calls)


def _followed(
    f: types.FunctionType, name: str, made: Any, cell: types.CellType, calls: Calls
) -> Any:
    """What the copy of f finds in a variable of its closure: a function that is defined inside and kept may call it later."""
    inner = (c for c in f.__code__.co_consts if isinstance(c, types.CodeType))
    if type(made) not in (types.FunctionType, StandIn) or all(
        name not in code.co_freevars for code in inner
    ):
        return made
    return following(made, cell, calls)


# ------------------------------------------------------------------------------------------ the door

_plans: dict[types.CodeType, list[_Plan]] = {}
"""Plans of functions that are copied, by their code: the newest for what functions of this code have reached."""

_as_they_are: dict[types.CodeType, Callable[[types.FunctionType], bool]] = {}
"""By their code: whether a function runs as it is because what it reaches is what another one of this code reached."""

_methods_as_they_are: dict[tuple[types.CodeType, type], Callable[[types.FunctionType], bool]] = {}
"""The same for methods, by their code and the class of the object."""

_MOST = 256

_OF_A_CODE = 4
"""Plans that are kept for functions of one code."""


def _unneeded(reached: Sequence[Reach]) -> Callable[[types.FunctionType], bool]:
    """A check that a function, perhaps a new one of the same code, reaches what the first one of these does."""
    first, *rest = reached
    space = first.function.__globals__
    names: list[tuple[Any, str, Any]]
    names = [(r.function.__globals__, n, v) for r in reached for n, v in r.globals.items()]
    names += [
        (vars(r.globals[m]), n, v)
        for r in reached
        for m in r.modules
        for n, v in r.modules[m].items()
    ]
    kinds = {of.kind: of for r in reached for of in r.kinds()}
    names += [
        (vars(k), n, v) for of in kinds.values() for n, found in of.parts.items() for k, v in found
    ]
    functions = [(r.function, _contents(r.function)) for r in rest]
    functions += [(f, _contents(f)) for r in reached for f in r.own]
    others = [(weakref.ref(f), f.__code__, contents) for f, contents in functions]
    own = _contents(first.function)

    def same(f: types.FunctionType) -> bool:
        if f.__globals__ is not space or (own and not _hold(f, own)):
            return False
        for where, name, value in names:
            if where.get(name) is not value:
                return False
        for ref, code, contents in others:
            g = ref()
            if g is None or g.__code__ is not code or (contents and not _hold(g, contents)):
                return False
        return True

    return same


def _contents(f: types.FunctionType) -> list[Any]:
    """What a function closes over, held weakly; of data the type, since other data changes nothing."""
    found: list[Any] = []
    for cell in f.__closure__ or ():
        value = content(cell)
        try:
            found.append(type(value) if type(value) in _DATA else weakref.ref(value))
        except TypeError:
            found.append(type(value))
    return found


def _hold(f: types.FunctionType, contents: list[Any]) -> bool:
    """Whether a function closes over these."""
    for cell, before in zip(f.__closure__ or (), contents, strict=True):
        value = content(cell)
        if type(value) is not before and (isinstance(before, type) or before() is not value):
            return False
    return True


_DATA = frozenset(
    (
        float,
        int,
        bool,
        complex,
        str,
        tuple,
        list,
        dict,
        type(None),
        np.ndarray,
        np.float64,
        Tensor,
    )
)


def adopted(f: Any) -> Any:
    """The function that is run for `f` in a transform or a trace: `f` itself, unless it joins arrays, or fills some that it makes.

    In a trace that reads functions from their source, it is what is called there instead.
    """
    trace = tracing.get()
    run = _run(f)
    return run if trace is None or trace.sources is None else trace.sources.instead(f, run)


def _run(f: Any) -> Any:
    """What runs for `f`: a copy, or `f` itself."""
    if OFF.get():
        return f
    kind = type(f)
    if kind is types.FunctionType:
        as_it_is = _as_they_are.get(f.__code__)
        if as_it_is is not None and as_it_is(f):
            return f
        plan = _plan(f)
        return f if plan is None else plan.copy_of(f)
    if kind is functools.partial:
        copy = _run(f.func)
        return f if copy is f.func else functools.partial(copy, *f.args, **f.keywords)
    bound = f.__call__ if callable(f) and kind is not types.MethodType else f
    if type(bound) is types.MethodType and type(bound.__func__) is types.FunctionType:
        of = bound.__self__
        as_it_is = _methods_as_they_are.get((bound.__func__.__code__, type(of)))
        if as_it_is is not None and not is_class(of) and as_it_is(bound.__func__):
            return f
        plan = _plan(bound.__func__, of)
        if plan is not None:
            return plan.copy_of(bound.__func__, of)
    return f


def fills(f: Any) -> bool:
    """Whether this is a copy that makes tensors of the buffers that it fills."""
    f = getattr(f, "func", f)
    space = getattr(getattr(f, "__func__", f), "__globals__", None)
    return type(space) is _Globals and space.fills


def adopted_inside(f: Any) -> Any:
    """`adopted(f)` while something is recorded or traced, else `f`."""
    return adopted(f) if recording() else f


def _plan(f: types.FunctionType, owner: Any = None) -> _Plan | None:
    """The plan of a user's function, as a method of `owner` if there is one, from the table where it still holds; None for no copies."""
    if not (is_users(f) or is_wrapper(f)):
        return None
    kind = None if owner is None else owner if is_class(owner) else type(owner)
    held = _plans.get(f.__code__, ())
    for plan in held:
        if plan.kind is kind and plan.holds(f):
            return plan
    of = None if owner is None else attributes(owner)
    plan = _Plan(f, of, kind)
    if plan.space is None:
        table: dict[Any, Any] = _as_they_are if kind is None else _methods_as_they_are
        if len(table) >= _MOST:
            table.clear()
        table[f.__code__ if kind is None else (f.__code__, kind)] = _unneeded(plan.reached)
        return None
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[f.__code__] = [plan, *held[: _OF_A_CODE - 1]]
    return plan


def _forget(
    plans: dict[types.CodeType, list[_Plan]],
    code: types.CodeType,
    of: weakref.ref[_Plan],
    _: Any,
) -> None:
    """Drop a plan: it holds for no function any more. The table is given, since globals are gone when the interpreter ends."""
    plan = of()
    left = [other for other in plans.get(code, ()) if other is not plan]
    if left:
        plans[code] = left
    else:
        plans.pop(code, None)


def told(f: types.FunctionType) -> str:
    """A function's name and line."""
    return f"{f.__qualname__} ({f.__code__.co_filename}:{f.__code__.co_firstlineno})"


def adoptions(f: Any) -> list[str]:
    """The functions that are copied to differentiate or compile `f`, by name and line; none if it runs as it is.

    >>> import numpy as np
    >>> def f(x):
    ...     y = np.zeros(2)
    ...     y[0] = x
    ...     return np.sum(y)
    >>> len(adoptions(f))
    1
    """
    owner = getattr(f, "__self__", None)
    f = getattr(f, "__func__", getattr(f, "func", f))
    plan = _plan(f, owner) if type(f) is types.FunctionType else None
    return plan.copied if plan is not None else []
