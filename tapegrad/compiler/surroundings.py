"""Surroundings: what a traced function reads beside its arguments, and whether it is still the same.

A program holds what the function read when it was traced: closures, globals, attributes, items. Each such place is *watched*, from before
the trace on: where it has changed at a call, the program is dropped and the function traced again; where the trace itself changes it,
the result counts for that call only, and a function that does so twice in a row is refused (program.py). `WAYS` says what is watched, what
is refused and what is not seen, a row for each way in which what a function sees can change; notebooks/guide/compile.md shows that table,
and tests/test_compiled_surroundings.py tries each row.

Which places these are follows from code (reading.py), from the function and its static arguments on: names that it looks up in its closure
and among globals; of each object found there the attributes of which any function found so far mentions the name; the items of lists,
tuples, dicts and sets; code and defaults of functions. Libraries are left alone. A name that is only written to (a counter, a log) is no
place that is read.

Invariant: each `Watched` is checked before a program's result counts: by `changed`, or by the entry in machine code (native.py).
"""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import datetime
import functools
import gc
import importlib
import io
import math
import operator
import os
import random
import sys
import threading
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.closures import content, kept_by
from ..core.elsewhere import foreign
from ..core.storage import StandIn, kept, may_change, owner
from ..core.tape import BIG, namespace
from ..core.tensor import Tensor, new
from ..errors import TraceError
from .reading import Facts, facts

WAYS = (
    ("a variable of an enclosing function, or a global, bound anew: numbers, text, containers, arrays, tensors, functions", "guarded"),
    ("an array, tensor or sparse matrix, also in containers and attributes: written in place", "guarded; over 16 kB, the write raises"),
    ("items of lists, tuples, dicts (with their order), sets, deques, bytearrays", "guarded"),
    ("attributes of objects, classes and the user's modules; methods", "guarded"),
    ("code, `__defaults__` and `__kwdefaults__` of functions; what `functools.partial` and bound methods hold", "guarded"),
    ("the same of helper functions, and of what these refer to", "guarded"),
    ("attributes of static arguments (objects)", "guarded"),
    ("kind, dtype, shape and structure of arguments; the order of dicts and of `**kwargs`; int, float, bool, NumPy scalar", "guarded"),
    ("whether two arguments are one array (`x is y`)", "guarded"),
    ("values that Python looked at: `if x > 0`, `float(x)`, `range(n)`, NaN and -0.0 included", "guarded"),
    ("the grad mode; environment variables", "guarded"),
    ("what the function itself changes and reads: `nonlocal n; n += 1`, an array of its closure", "refused when traced again"),
    ("random numbers: of NumPy, Python and generators (`Generator`, `RandomState`, `random.Random`), seeded or not", "refused"),
    ("generators of random numbers that the function makes itself without a seed", "refused"),
    ("clocks, `uuid`, `os.urandom`, `secrets`, `id()`, `hash()`, `input()`, process and thread numbers", "refused"),
    ("files and folders: opened, loaded (`np.load`, `np.fromfile`), listed, looked at (`os.path.exists`, `os.getcwd`)", "refused"),
    ("frames and reference counts: `inspect.stack`, `sys._getframe`, `sys.getrefcount`, `gc`", "refused"),
    ("names, and attributes of functions, objects, classes and modules, that appear later (`getattr(g, \"k\", 2.0)`)", "guarded"),
    ("context variables, `UserDict`, `ChainMap`, queues, events, `sys.argv`, modules that are imported inside", "guarded"),
    ("special methods that a class gets later (`__mul__`, `__bool__`, `__contains__`)", "guarded: by the number of its attributes"),
    ("weak references", "refused"),
    ("`eval`, `exec`, `globals()`, `locals()`", "refused"),
    ("iterators and generators: as arguments, or read from outside", "refused"),
    ("the layout of arguments in memory, where a store follows a reshape, which shows the same memory or a copy", "guarded"),
    ("whether arguments overlap in memory (`np.shares_memory`), their strides, writes into arguments", "refused"),
    ("`np.errstate` and `np.seterr`", "not seen: warnings about values come from the traced run only"),
    ("counters and logs that the function only writes to (`runs.append(x)`), printing", "not seen: they happen in the traced run only"),
    ("`isinstance(k, float)`, `type(k)`, `np.isscalar(k)` where a NumPy scalar is an argument: inside it is a tensor", "refused"),
    ("what libraries and Python hold: globals, caches and settings (`np.geterr`, `sys.modules`, ABC registries), functions of theirs "
     "replaced (`np.sin = ...`), names of builtins defined anew", "not seen"),
    ("state inside objects of compiled code other than arrays (locks, enum members, `np.random.get_state()`); attributes read by text that "
     "is computed, or counted (`len(vars(module))`)", "not seen"),
)  # fmt: skip
"""Ways in which what a compiled function sees can change between two calls, and what becomes of each."""

PLAIN = (int, float, complex, str, bytes, type(None), np.generic)

_LIBRARIES = frozenset(
    {
        "tapegrad",
        "numpy",
        "scipy",
        "optree",
        "numba",
        "builtins",
        "llvmlite",
        "_pytest",  # the globals of a test module, where pytest has written asserts anew
        "pytest",
        *sys.stdlib_module_names,
    }
) - {"__main__"}
"""Modules whose globals are left alone: they do not change."""

MOST_NATIVE = 256
"""Places above which they are checked in Python: code for each would take longest to compile."""

MOST_VISITED = 100_000
"""Objects above which a function is refused: it reads too much to look at in each call."""

ABSENT = types.SimpleNamespace()
"""The value of a place where nothing is."""


class Watched:
    """One place that a function reads: how it is found, what was there, and the bytes of a small array.

    how          holder            value
    array        -                 an array that met a traced value or was found: its bytes
    cell         a cell            what a variable of an enclosing function means
    entry        a dict, a name    a global
    attribute    an object, name   an attribute, or the function of a bound method
    tensor       a tensor          its array
    function     a function        code, defaults, keyword defaults
    items        a list or dict    the items in order (keys and values one after the other)
    size         a class's dict    how many attributes it has: Python looks for special methods, and goes on where there is none
    state        any object        what `_state` tells of it
    """

    __slots__ = ("copy", "held", "holder", "how", "name", "value", "words")

    def __init__(self, how: str, value: Any, holder: Any = None, name: str = "") -> None:
        """Something that is compared at each call; `how` says in which way, `holder` and `name` where it is found again."""
        self.how = how
        self.value = value
        self.holder = holder
        self.name = name
        self.copy: np.ndarray | None = None
        self.held: Any = (
            None  # a view that locks a big array that was found, as long as it is watched
        )
        if how == "array" and may_change(value):
            if value.nbytes <= BIG:
                self.copy = np.array(value, order="C")
            elif name:
                self.held = kept(value)
        self.words: np.ndarray | None = None
        """Addresses that machine code compares."""
        if how in ("items", "function"):
            self.words = np.array([0 if x is None and how == "function" else id(x) for x in value], np.intp)  # fmt: skip

    def told(self) -> str:
        """What it is, in words."""
        kind = type(self.value).__name__
        if self.how == "entry":
            return f"the global {self.name!r}, {kind}"
        if self.how == "cell":
            return f"a variable of an enclosing function, {kind}"
        if self.how == "attribute":
            of = getattr(self.holder, "__name__", type(self.holder).__name__)
            return f"the attribute {self.name!r} of {of}, {kind}"
        if self.how == "items":
            return f"the items of a {type(self.holder).__name__}"
        if self.how == "size":
            return f"the attributes of the class {self.name}"
        if self.how == "function":
            return f"code or defaults of {getattr(self.holder, '__name__', 'a function')}"
        if self.how == "state":
            return f"the state of a {type(self.holder).__name__}"
        return f"an array of shape {np.shape(self.value)}"

    def changed(self) -> bool:
        """Whether it is another value now. A number bound anew is the same if it is equal."""
        now = self._now()
        if self.how in ("items", "function", "state"):
            if len(now) != len(self.value) or not all(map(_same, self.value, now)):
                return True
        elif not _same(self.value, now):
            return True
        if self.copy is None:
            return False
        value, copy = self.value, self.copy
        return value.shape != copy.shape or value.tobytes() != copy.tobytes()

    def _now(self) -> Any:
        """What is there now: compared with what was there when the function was traced."""
        how, holder = self.how, self.holder
        if how == "array":
            return self.value
        if how == "cell":
            return content(holder)
        if how == "entry":
            return holder.get(self.name, ABSENT)
        if how == "attribute":
            return _attribute(holder, self.name)
        if how == "tensor":
            return holder._value
        if how == "size":
            return len(holder)
        return _inside(how, holder)

    @property
    def native(self) -> bool:
        """Whether machine code can look at it."""
        if self.how == "state" or (self.copy is not None and not self.value.flags.c_contiguous):
            return False
        if self.how == "items":
            return type(self.holder) in (list, dict)
        return self.how != "function" or place_of_code() is not None


def _inside(how: str, holder: Any) -> tuple[Any, ...]:
    if how == "function":
        return holder.__code__, holder.__defaults__, holder.__kwdefaults__
    if how == "state":
        return _state(holder)
    if isinstance(holder, dict):
        return tuple(x for item in holder.items() for x in item)
    return tuple(holder)


def _attribute(holder: Any, name: str) -> Any:
    try:
        value = getattr(holder, name, ABSENT)
    except Exception:  # of a property or `__getattr__` that the function need not come to
        return ABSENT
    return value.__func__ if type(value) is types.MethodType else value


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return isinstance(a, PLAIN) and bool(a == b or (a != a and b != b)) and _sign(a) == _sign(b)


def _sign(x: Any) -> Any:
    if isinstance(x, complex | np.complexfloating):
        return math.copysign(1.0, x.real), math.copysign(1.0, x.imag)
    return math.copysign(1.0, x) if isinstance(x, float | np.floating) else 0.0


def same_static(a: Any, b: Any) -> bool:
    """Whether two static arguments are the same to a function: equal, of equal types and signs inside, with equal attributes."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_static, a, b))
    if isinstance(a, slice):  # whose own comparison takes 1, 1.0 and True for the same
        return all(same_static(getattr(a, n), getattr(b, n)) for n in ("start", "stop", "step"))
    if isinstance(a, PLAIN):
        return _same(a, b)
    if isinstance(a, frozenset):
        return a == b and {(type(x), x) for x in a} == {(type(x), x) for x in b}
    try:
        if not a == b:
            return False
    except Exception:
        return False  # what cannot be compared is another
    own, other = _vars(a), _vars(b)
    return own.keys() == other.keys() and all(same_static(own[k], other[k]) for k in own)


def _vars(x: Any) -> dict[str, Any]:
    found = kept_by(x)
    return found if type(found) is dict else {}


def watched(around: Sequence[Watched], met: Sequence[np.ndarray]) -> list[Watched]:
    """What to look at for a function that has just been traced: the places that it reads, and the arrays that it met."""
    known = {id(w.value) for w in around if w.copy is not None}
    arrays = {id(a): a for a in map(_comparable, met)}
    others = (Watched("array", a) for number, a in arrays.items() if number not in known)
    return [*around, *(w for w in others if w.copy is not None)]


def _comparable(array: np.ndarray) -> np.ndarray:
    """The array, or the small one that it is a view of, whose bytes lie one after the other and are compared at once."""
    if not array.flags.c_contiguous:
        root = owner(array)
        if root.flags.c_contiguous and root.nbytes <= BIG:
            return root
    return array


# ---------------------------------------------------------------------------------------------------- what is read


class Surroundings:
    """What a function and its static arguments lead to: places to watch, generators of random numbers, calls to look out for."""

    def __init__(self, f: Callable[..., Any], static: Sequence[Any] = ()) -> None:
        """Find what a function (and its static arguments) reads beside its arguments, again until no new names turn up."""
        self.names: set[str] = set()
        self.stored: set[str] = set()
        self.whole = False
        self.compares = False
        self.kinds: set[str] = set()
        self.lines: dict[str, tuple[int, str]] = {}
        while (
            True
        ):  # objects are looked at again where a function found later mentions more attributes
            before = len(self.names), len(self.stored), self.whole
            self._places: list[tuple[str, Any, Any, str]] = []
            self.generators: list[Any] = []
            self.volatile = False
            self._seen: dict[Any, Any] = {}
            self._waiting: list[Any] = [f, *static]
            try:
                while self._waiting:
                    self._visit(self._waiting.pop())
            except TraceError as error:
                for what in sorted(
                    {foreign(x) for x in self._seen.values() if hasattr(type(x), "__array__")}
                    - {""}
                ):
                    error.add_note(f"The function reads {what}.")
                raise
            if before == (len(self.names), len(self.stored), self.whole):
                break
        self._seen.clear()
        self.found = [Watched(*place) for place in self._places]

    def _once(self, key: Any, held: Any) -> bool:
        """Whether the object with this key is met for the first time; TraceError after too many objects."""
        if key in self._seen:
            return False
        self._seen[key] = held  # alive, so that no other object gets its number
        if len(self._seen) > MOST_VISITED:
            tables = {
                type(x).__name__
                for x in self._seen.values()
                if str(type(x).__module__).partition(".")[0] == "pandas"
                and type(x).__name__ in ("DataFrame", "Series")
            }
            remedy = "Pass arrays as arguments, or keep numbers in arrays."
            if tables:
                remedy = (
                    f"A {' and a '.join(sorted(tables))} of pandas is among them: take the numbers out before, X = df.to_numpy(), and "
                    "let the function read X."
                )
            raise TraceError(
                f"a compiled function reads more than {MOST_VISITED:,} objects beside its arguments, too many to look at in each call. "
                f"{remedy}",
                name="reads-outside",
            )
        return True

    def _watch(self, how: str, value: Any, holder: Any, name: str = "") -> None:
        if self._once((how, id(holder), name), holder):
            if how != "attribute" or _same(
                value, _attribute(holder, name)
            ):  # none that is made anew
                self._places.append((how, value, holder, name))
            self._waiting.append(value)

    def _visit(self, value: Any) -> None:
        """Note what is to be watched of one object, and put what it leads to on the list."""
        kind = type(value)
        if isinstance(value, PLAIN) or kind in _OPAQUE or not self._once(id(value), value):
            return
        if _is_volatile(value):
            self.volatile = True
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.ModuleType:
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, Tensor):
            if not isinstance(value._value, StandIn):
                self._watch("tensor", value._value, value)
            self._instance(value)
        elif isinstance(value, np.ndarray):
            if value.dtype == object:
                self._watch("state", _state(value), value)
            elif may_change(value):
                self._places.append(("array", value, None, "found"))
            if kind is not np.ndarray:
                self._instance(value)
        elif isinstance(value, functools.partial):
            self._waiting += [value.func, *value.args, value.keywords]
        elif kind is types.MethodType:
            self._waiting += [value.__func__, value.__self__]
        elif isinstance(value, property):
            self._waiting += [value.fget]
        elif isinstance(value, staticmethod | classmethod):
            self._waiting.append(value.__func__)
        elif isinstance(value, _GENERATORS):
            self.generators.append(value)
        elif isinstance(value, operator.attrgetter | operator.methodcaller):
            told = [x for x in value.__reduce__()[1] if isinstance(x, str)]
            self.names |= {part for text in told for part in text.split(".")}
        elif isinstance(value, tuple | frozenset):
            self._waiting += list(value)
            self._instance(value)
        elif isinstance(value, list | dict):
            self._watch("items", _inside("items", value), value)
            self._waiting += list(value.values() if isinstance(value, dict) else value)
            self._instance(value)
        elif isinstance(value, _WEAK):
            raise TraceError(
                f"a compiled function reads a {kind.__name__} beside its arguments, which changes when an object dies: what looks at it in "
                "each call would keep the object alive. Read the object from where it is held.",
                name="reads-outside",
            )
        elif isinstance(value, _WITH_STATE):
            self._watch("state", _state(value), value)
            self._waiting += [x for x in _state(value) if not isinstance(x, PLAIN)]
        elif hasattr(kind, "__next__"):
            if not isinstance(value, io.IOBase) or self.names & _READING:
                raise TraceError(
                    f"a compiled function reads a {kind.__name__} beside its arguments (an iterator, a generator or a file), which gives "
                    "something else each time. Make a list of it, or take from it outside and pass what came as an argument.",
                    name="reads-outside",
                )
        else:
            self._instance(value)

    def _function(self, f: types.FunctionType) -> None:
        """Note what a function of the user's reads: variables of its closure, globals, imports. Of a library's function follow only
        what it wraps.
        """
        known = facts(f.__code__)
        scope = f.__globals__  # a wrapper's __module__ is that of what it wraps
        user = scope is not namespace and is_user(scope.get("__name__", ""))
        self._waiting += [vars(f)[k] for k in ("__wrapped__", "f", "registry") if k in vars(f)]
        variables = zip(f.__code__.co_freevars, f.__closure__ or (), strict=False)
        if not user:
            for _, cell in variables:
                value = content(cell)
                if isinstance(value, tuple | list):
                    self._waiting += value
                elif callable(value) and not isinstance(
                    value, _WEAK
                ):  # those are a library's own affair
                    self._waiting.append(value)
            return
        self._note(known, f.__code__)
        self._watch("function", _inside("function", f), f)
        for name, cell in variables:
            if name in known.cells:
                self._watch("cell", content(cell), cell)
        for name in known.globals:
            if name not in scope:
                if name in vars(_BUILTINS):
                    self._waiting.append(vars(_BUILTINS)[name])
                else:  # a NameError that the function catches, until somebody defines it
                    self._watch("entry", ABSENT, scope, name)
                continue
            value = scope[name]
            if type(value) is types.ModuleType:
                self._waiting.append(value)
            else:
                self._watch("entry", value, scope, name)
        for name in known.imports:
            found = sys.modules.get(name)
            if found is not None and is_user(name):
                self._watch("entry", found, sys.modules, name)
            elif found is not None:
                self._waiting.append(found)
        self._attributes(f, vars(f))

    def _note(self, known: Facts, code: types.CodeType) -> None:
        self.names |= known.attributes
        self.stored |= known.stored
        self.whole |= known.whole
        self.compares |= known.compares
        self.kinds |= known.kinds
        file = os.path.basename(code.co_filename)
        self.volatile |= not _TELLTALE.isdisjoint(known.attributes | known.globals | known.imports)
        for name, line in known.lines.items():
            self.lines.setdefault(name, (line, f'"{file}", line {line}, in {code.co_name}'))

    def _module(self, module: types.ModuleType) -> None:
        """Note what the function may read of a module: names of a user's module, settings of a library's."""
        if is_user(module.__name__):
            for name in self.names & vars(module).keys():
                value = vars(module)[name]
                if type(value) is types.ModuleType:
                    self._waiting.append(value)
                else:
                    self._watch("entry", value, vars(module), name)
            for name in self.stored & self.names - vars(module).keys():  # as getattr finds it
                self._watch("entry", ABSENT, vars(module), name)
        elif module is sys:
            for name in self.names & {"argv", "path", "orig_argv"}:
                self._watch("entry", vars(sys)[name], vars(sys), name)
            self._of_library(module)
        elif module is os:
            if self.names & {"environ", "getenv", "environb"}:
                self._watch("items", _inside("items", os.environ._data), os.environ._data)  # type: ignore[attr-defined]
            self._of_library(module)
        elif module.__name__.split(".")[0] in _VOLATILE_IN or "numpy" in module.__name__:
            self._of_library(module)

    def _of_library(self, module: types.ModuleType) -> None:
        """What a module of a library has under names that are mentioned, and is never the same."""
        for name in self.names & vars(module).keys():
            value = vars(module)[name]
            if _is_volatile(value) or value is np.random or value is datetime.datetime or value is datetime.date:  # fmt: skip
                self._waiting.append(value)

    def _class(self, cls: type) -> None:
        """Note the attributes and methods of a user's class that the function names, and those that Python asks for unnamed."""
        if is_user(type(cls).__module__):
            self._waiting.append(type(cls))
        if cls in (datetime.datetime, datetime.date):
            self.volatile |= bool(self.names & {"now", "utcnow", "today"})
        for base in cls.__mro__:
            if not is_user(base.__module__):
                continue
            own = next(x for x in gc.get_referents(vars(base)) if type(x) is dict)
            self._watch("size", len(own), own, base.__name__)
            for name, value in vars(base).items():
                unnamed = name.startswith("__") and type(value) is types.FunctionType
                if not (name in self.names or self.whole or unnamed):
                    continue
                if not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                    self._watch("attribute", _attribute(cls, name), cls, name)
                    cached = isinstance(value, functools.cached_property)
                    self._waiting.append(value.func if cached else value)
        # What C declares does not change, and makes a new text of its name for each who asks.
        for name in self.names & _OF_TYPES if cls.__flags__ & _MADE_BY_PYTHON else ():
            self._watch("attribute", _attribute(cls, name), cls, name)

    def _instance(self, value: Any) -> None:
        """Note the attributes of an object that the function names, and what a wrapper holds."""
        cls = type(value)
        if isinstance(value, Tensor) and cls.__module__.split(".")[0] == "tapegrad":
            return
        own = _vars(value)
        if not is_user(cls.__module__):
            if isinstance(value, type(os.environ)):
                self._watch("items", _inside("items", value._data), value._data)  # type: ignore[attr-defined]
            if cls.__module__ == "tapegrad.sparse.arrays":
                self._watch("attribute", value.data, value, "data")
            elif cls.__module__.split(".")[0] in ("tapegrad", "numba"):
                self._waiting += [own[k] for k in ("__wrapped__", "f") if k in own]
            elif hasattr(value, "__wrapped__"):
                self._waiting.append(value.__wrapped__)
            else:
                self._attributes(value, own)
                if cls.__module__.startswith("scipy.sparse."):
                    for name, part in own.items():
                        if isinstance(part, np.ndarray | tuple | dict):
                            self._watch("attribute", part, value, name)
                if isinstance(value, _HOLDERS) or cls.__module__ == "queue":
                    for name in own:
                        self._watch("attribute", _attribute(value, name), value, name)
            return
        self._watch("attribute", cls, value, "__class__")
        self._attributes(value, own)
        for base in cls.__mro__:
            if not is_user(base.__module__):
                continue
            for name, member in vars(base).items():
                plain = not isinstance(member, property | functools.cached_property | classmethod)
                if (name in self.names or self.whole) and plain and name not in own and not name.startswith("__"):  # fmt: skip
                    self._watch("attribute", _attribute(value, name), value, name)

        if hasattr(cls, "__getattr__"):  # asked only as long as nothing has the name
            for name in {n for n in self.names if not n.startswith("__")} - own.keys():
                if _attribute(cls, name) is ABSENT:
                    self._watch("attribute", ABSENT, cls, name)
                    if cls.__dictoffset__:
                        self._watch("entry", ABSENT, own, name)

    def _attributes(self, value: Any, own: dict[str, Any]) -> None:
        if self.whole and own:
            self._watch("items", _inside("items", own), own)
        for name in own if self.whole else self.names & own.keys():
            self._watch("attribute", _attribute(value, name), value, name)
        for name in self.stored & self.names:
            if name not in own and _attribute(value, name) is ABSENT and type(value).__dictoffset__:
                self._watch("attribute", ABSENT, value, name)


def is_user(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] not in _LIBRARIES


_BUILTINS: Any = __import__("builtins")
_OPAQUE = frozenset({np.dtype, np.ufunc, types.CodeType, types.FrameType, slice, range})
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_WITH_STATE = (
    set, collections.deque, bytearray, array.array, memoryview, contextvars.ContextVar, types.MappingProxyType,
)  # fmt: skip
_WEAK = (weakref.ref, weakref.WeakSet, weakref.WeakValueDictionary, weakref.WeakKeyDictionary)
_HOLDERS = (collections.UserDict, collections.UserList, collections.UserString, collections.ChainMap, threading.Event)  # fmt: skip
"""Classes of Python's library, written in Python, whose objects hold what they hold in attributes."""

_OF_TYPES = {"__name__", "__qualname__", "__mro__", "__bases__"}
"""Attributes of classes that no class has among its own."""

_MADE_BY_PYTHON = 1 << 9
"""The flag of classes that a class statement made (Py_TPFLAGS_HEAPTYPE)."""

_READING = {"read", "readline", "readlines", "getvalue", "getbuffer"}


def _state(value: Any) -> tuple[Any, ...]:
    """What an object of a known kind holds."""
    if isinstance(value, bytearray | memoryview | array.array):
        return (bytes(value),)
    if isinstance(value, contextvars.ContextVar):
        return (value.get(ABSENT),)
    if isinstance(value, np.ndarray):
        return tuple(value.ravel().tolist())
    if isinstance(value, types.MappingProxyType):
        return tuple(x for item in value.items() for x in item)
    return tuple(value)


def held_elsewhere(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Those arrays (of a list that nobody else has) to which there are references, by themselves or by what they are views of."""
    owners = [owner(a) for a in arrays]
    ours = Counter(map(id, (*arrays, *owners)))
    ours.update(id(owners[i]) for i in range(len(arrays)) if owners[i] is not arrays[i])  # as base
    # Beside ours, the argument of getrefcount is a reference.
    return [
        arrays[i]
        for i in range(len(arrays))
        if sys.getrefcount(arrays[i]) - 1 > ours[id(arrays[i])]
        or sys.getrefcount(owners[i]) - 1 > ours[id(owners[i])]
    ]


# ---------------------------------------------------------------------------------------------------- what is never the same

_CALLS: frozenset[Any] = frozenset((
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns, time.process_time,
    time.process_time_ns, time.thread_time, time.thread_time_ns, time.localtime, time.gmtime, time.ctime, time.asctime, time.strftime,
    datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today, datetime.date.today,
    os.urandom, os.getpid, threading.get_ident, id, hash, input, open, eval, exec, globals, locals,
    np.fromfile, sys._getframe, sys.getrefcount, gc.isenabled, gc.get_count, gc.get_objects, gc.get_referrers,
    sys.getrecursionlimit, sys.exc_info,
))  # fmt: skip
_FUNCTIONS = {
    "uuid": ("uuid1", "uuid4"),
    "secrets": ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice", "randbits", "SystemRandom"),
    "random": ("Random", "SystemRandom"),
    "inspect": ("stack", "currentframe"),
    "threading": ("active_count", "current_thread"),
}  # fmt: skip
"""Functions of Python's and classes that make such calls, by module: these are not imported for that."""


def _functions() -> list[Any]:
    loaded = ((sys.modules[m], names) for m, names in _FUNCTIONS.items() if m in sys.modules)
    return [getattr(module, name) for module, names in loaded for name in names]


_ANYWHERE = (os.urandom, io.open, np.fromfile)
"""Calls that are looked for in libraries, too: unseeded generators and files."""

_SYSTEM = frozenset({"posix", "nt"})
"""Modules each function of which asks the system (for files, folders, processes), in libraries, too; `fspath` only converts."""

_TELLTALE = frozenset(
    "open read_text read_bytes exists is_file is_dir isfile isdir islink getsize getmtime stat lstat listdir scandir iterdir glob walk "
    "getcwd cwd load loadtxt genfromtxt fromfile memmap fromregex read_array hash id currentframe _getframe getrefcount active_count "
    "current_thread isenabled getrecursionlimit exc_info get_count get_objects get_referrers now today Random SystemRandom system popen "
    "getpid getloadavg cpu_count uname getlogin environb import_module __import__ reload".split()
)  # fmt: skip
"""Names that a function mentions which may make such a call: then each call of the trace is looked at."""

_OPENING = (
    "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937",
    "Philox", "SFC64", "Generator",
)  # fmt: skip
_VOLATILE_IN = frozenset(
    {"time", "datetime", "os", "threading", "builtins", "io", "uuid", "secrets", "random", "pathlib", "inspect"}
)  # fmt: skip
"""Modules of which each function that is mentioned is looked at: `stack` is NumPy's, too, and so no name in `_TELLTALE`."""


def _is_volatile(value: Any) -> bool:
    """Whether it is, or may make, a call whose result is never the same: `looked_out` finds out whether it is made."""
    if isinstance(value, types.BuiltinFunctionType | types.MethodType) and isinstance(value.__self__, random.SystemRandom):  # fmt: skip
        return True
    if isinstance(value, types.BuiltinFunctionType):
        return value in _CALLS
    if isinstance(value, types.FunctionType | type | types.MethodType | types.ModuleType):
        if value is np.random or any(value is g for g in _functions()):
            return True
        module = getattr(value, "__module__", None) or ""
        opens = getattr(value, "__name__", "") in (*_OPENING, "Path", "PosixPath")
        return opens and module.split(".")[0] in ("numpy", "pathlib")
    if is_user(type(value).__module__):  # an object, which is not to be asked
        return False
    try:
        return getattr(value, "__name__", None) in _OPENING
    except Exception:  # another library's __getattr__
        return False


def _asks_system(called: Any) -> bool:
    return called.__module__ in _SYSTEM and called.__name__ != "fspath"


@contextmanager
def looked_out(name: str, wanted: bool) -> Iterator[None]:
    """While this lasts, calls whose result is never the same raise TraceError, by line. It costs time at each call."""
    if not wanted:
        yield
        return
    made = (
        *_functions(),
        *vars(random.SystemRandom).values(),
        random.Random.__init__,
        random.Random.getstate,
    )
    codes = {g.__code__: g for g in made if isinstance(g, types.FunctionType)}
    unseeded = random.Random.__init__.__code__
    home = sys._getframe(2)  # of the `with` statement, beyond contextlib's __enter__

    def look(frame: Any, event: str, called: Any) -> None:
        """Raise TraceError where a call, as the profiler reports it, gives another value in each run and was made by the user's code."""
        if event == "c_call" and isinstance(called, types.BuiltinFunctionType) and (called in _CALLS or _asks_system(called)):  # fmt: skip
            by_user = is_user(frame.f_globals.get("__name__", ""))
            anywhere = called in _ANYWHERE or _asks_system(called)
            if not by_user and (not anywhere or _our_work(frame)):
                return
            what = f"{called.__module__ or type(called.__self__).__name__}.{called.__name__}"
        elif event == "call" and frame.f_code in codes:
            seeded = frame.f_code is unseeded and frame.f_locals.get("x") is not None
            if seeded or _our_work(frame.f_back):  # as names of files of the cache
                return
            called = codes[frame.f_code]
            what = f"{called.__module__}.{called.__name__}"
        else:
            return
        if _importing(frame, home):
            return
        while frame is not None and not is_user(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        if frame is None:
            return
        where = f'"{os.path.basename(frame.f_code.co_filename)}", line {frame.f_lineno}, in {frame.f_code.co_name}'
        if called.__name__ == "getrandbits" and "RandomState" in frame.f_code.co_names:
            what = "np.random.RandomState, which asks the system even if it is given a seed (np.random.default_rng(seed) does not)"
        raise TraceError(
            f"{name} calls {what} ({where}) while it is traced by tg.compile, which would freeze what that returns: it is another value in "
            "each run. Call it outside, and pass the result as an argument.",
            name="frozen-value",
        )

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _importing(frame: Any, home: Any) -> bool:
    """Whether a call below the frame `home` is part of an import, which later runs do not repeat: of its hooks, or of the module's code."""
    found = False
    while frame is not None and frame is not home:
        name = frame.f_globals.get("__name__", "")
        if name == "importlib" and frame.f_code is importlib.reload.__code__:  # each run does that
            return False
        found = found or name in ("importlib._bootstrap", "importlib._bootstrap_external")
        frame = frame.f_back
    return found


def _our_work(frame: Any) -> bool:
    """Whether a library's call serves tapegrad, or the reading of sources for a message: no line of the user's stands between."""
    while frame is not None and not is_user(frame.f_globals.get("__name__", "")):
        if frame.f_globals.get("__name__", "").startswith(("linecache", "tokenize", "tapegrad")):
            return True
        frame = frame.f_back
    return False


# ---------------------------------------------------------------------------------------------------- Python's objects in memory


def place_of_data() -> int:
    """Where in a tensor's memory the address of its array stands."""
    t = new(Tensor)
    t._value, t._node = np.zeros(1), None
    words = range(object.__basicsize__, Tensor.__basicsize__, 8)
    return next(k for k in words if ctypes.c_size_t.from_address(id(t) + k).value == id(t._value))


@functools.cache
def place_of_code() -> int | None:
    """Where in a function's memory the addresses of its code, defaults and keyword defaults stand; None where they are elsewhere."""

    def f(a: int = 1, *, b: int = 2) -> None: ...

    words = [id(f.__code__), id(f.__defaults__), id(f.__kwdefaults__)]
    for k in range(object.__basicsize__, types.FunctionType.__basicsize__ - 16, 8):
        if [ctypes.c_size_t.from_address(id(f) + k + 8 * i).value for i in range(3)] == words:
            return k
    return None
