"""What a function of the user's reaches by name: functions, classes, objects and modules of the user's, and NumPy.

`Code` is what a code object says by itself: the names that it mentions, whether it writes to arrays or makes lists, which variables it
binds anew, and which names it compares by `is`. `Reach` is what a function finds under these names now. `attributes(value)` are the
parts of a class of the user's in which functions stand: methods, static and class methods, properties.

Invariant: nothing is called and nothing is changed. Functions that are not found by name (an entry of a table, an attribute of an argument)
are not reached; what it compares is looked at (`Reach.beside`).
"""

from __future__ import annotations

import abc
import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from opcode import opmap
from typing import Any, NamedTuple

import numpy as np

from ..core.closures import content, is_class, kept_by
from ..core.tensor import Tensor
from . import mathematics
from .buffers import FILLING, JOINING, is_source

_LIBRARIES = frozenset(
    "tapegrad numpy scipy numba llvmlite optree dask matplotlib pandas torch jax pytest _pytest".split()
)
_LIBRARY = __name__.partition(".")[0]

# ------------------------------------------------------------------------------------------ code

_WRITERS = frozenset("at copyto put place putmask put_along_axis fill_diagonal fill out".split())
_ADDERS = frozenset("append extend insert setdefault update".split())
_STORES = frozenset(opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap)
_VARIABLES = frozenset(
    "LOAD_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_NAME LOAD_FROM_DICT_OR_GLOBALS".split()
)
_IN_PLACE = 13
"""Operators up from this number are in place: `a += b`."""


_COPIES = frozenset(("astype", "copy", "flatten"))
"""Methods of an array that give a new one."""

_OF_ALL = (
    "adds",
    "asks",
    "binds",
    "converts",
    "builds",
    "keeps",
    "lists",
    "names",
    "rebinds",
    "within",
    "writes",
)
"""Flags that a function inherits from functions defined in it."""


class Code:
    """Facts about a code object and the code objects inside it: names, writes to arrays, globals that are bound anew."""

    __slots__ = (*_OF_ALL, "_comparisons", "_copied", "code")

    def __init__(self, code: types.CodeType) -> None:
        """Read from bytecode whether a function (or one defined in it) may write to arrays, and which names it reads and binds."""
        self.code = code
        self._comparisons: Comparisons | None = None
        self._copied: frozenset[str] | None = None
        text = code.co_code
        steps = list(zip(text[::2], text[1::2], strict=False))
        self.names = frozenset(code.co_names)
        self.writes = any(
            step in _STORES
            or (step == opmap["BINARY_OP"] and number >= _IN_PLACE)
            or (step == opmap["STORE_ATTR"] and code.co_names[number] in ("real", "imag"))
            for step, number in steps
        )
        self.writes |= not _WRITERS.isdisjoint(self.names)
        self.writes |= any(type(c) is tuple and "out" in c for c in code.co_consts)
        self.lists = not self.names.isdisjoint(("append", "list")) or any(
            step == opmap["LIST_APPEND"] or (step == opmap["BUILD_LIST"] and number)
            for step, number in steps
        )
        self.binds = {
            code.co_names[number]
            for step, number in steps
            if step in (opmap["STORE_GLOBAL"], opmap["DELETE_GLOBAL"])
            and number < len(code.co_names)
        }
        """Globals that the code binds anew."""
        self.keeps = any(step == opmap["STORE_ATTR"] for step, _ in steps)
        """Whether the code sets attributes."""
        self.adds = not self.names.isdisjoint(_ADDERS) or any(step in _STORES for step, _ in steps)
        """Whether the code may store an entry into a table."""
        self.builds = any(step == opmap["LOAD_BUILD_CLASS"] for step, _ in steps)
        own = len(code.co_varnames) + len({*code.co_cellvars} - {*code.co_varnames})
        self.rebinds = {
            code.co_freevars[number - own]
            for step, number in steps
            if step == opmap["STORE_DEREF"] and number >= own
        }
        """Variables of enclosing functions that the code binds anew."""
        self.asks = _asks(code)
        self.converts = _calls(code, ("float", "complex"))
        body = not code.co_flags & inspect.CO_OPTIMIZED
        self.within: set[str] = {*code.co_names} if body else set()
        """Names that bodies of classes read: Python looks for these past a subclass of dict."""
        _join(self, map(code_of, _inside(code)), _OF_ALL)

    @property
    def copied(self) -> frozenset[str]:
        """Names of which nothing but attributes is asked, a method that copies an array among them, read on demand."""
        if self._copied is None:
            self._copied = (
                frozenset() if _COPIES.isdisjoint(self.names) else _only_copied(self.code)
            )
        return self._copied

    @property
    def comparisons(self) -> Comparisons:
        """The comparisons by `is`, read on demand: reading takes a millisecond, and only copied functions need it."""
        if self._comparisons is None:
            self._comparisons = Comparisons(self.code)
        return self._comparisons


_KINDS = frozenset(
    "ndarray generic number floating float float32 float64 complex complex128 int dtype".split()
)
_OF_CONTAINERS = frozenset("Collection Container Iterable Reversible Sized".split())
_SPECIAL = frozenset(("__contains__", "__iter__", "__len__"))


def _asks(code: types.CodeType) -> bool:
    """Whether a function asks for the kind of a value in a way in which the class of tensors answers for the class.

    These are `type(x) is np.ndarray`, `isinstance(x, Iterable)` and `hasattr(x, "__len__")`. Code that names tensors knows them.
    """
    names, texts = frozenset(code.co_names), (c for c in code.co_consts if type(c) is str)
    if "Tensor" in names:
        return False
    return (
        (not names.isdisjoint(_KINDS) and _calls(code, ("type",)))
        or ("isinstance" in names and not names.isdisjoint(_OF_CONTAINERS))
        or ("hasattr" in names and not _SPECIAL.isdisjoint(texts))
    )


def _calls(code: types.CodeType, names: Sequence[str]) -> bool:
    """Whether a function calls one of these globals, by itself or by `map`."""
    if frozenset(names).isdisjoint(code.co_names):
        return False
    steps = list(dis.get_instructions(code))
    return any(
        step.opname == "LOAD_GLOBAL"
        and step.argval in names
        and (_is_called(steps, k) or (k > 0 and steps[k - 1].argval == "map"))
        for k, step in enumerate(steps)
    )


def _only_copied(code: types.CodeType) -> frozenset[str]:
    """Names of which a function, or one defined in it, only asks attributes and the length, a method that copies an array among them."""
    steps = list(dis.get_instructions(code))
    copied: set[str] = set()
    others: set[str] = set()
    for k, step in enumerate(steps):
        if not step.opname.startswith("LOAD") or step.opname in _OF_WHAT_IS_LOADED:
            continue
        *before, last = step.argval if type(step.argval) is tuple else (step.argval,)
        others.update(before)
        following = steps[min(k + 1, len(steps) - 1)]
        if following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            copied.update((last,) if following.argval in _COPIES else ())
        elif not (k and steps[k - 1].argval == "len" and following.opname in ("PRECALL", "CALL")):
            others.add(last)
    for inner in _inside(code):
        found = _only_copied(inner)
        copied |= found
        others |= {*inner.co_names, *inner.co_freevars} - found
    return frozenset(copied - others)


_OF_WHAT_IS_LOADED = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_CONST")


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    return (inner for inner in code.co_consts if isinstance(inner, types.CodeType))


def _join(whole: Any, parts: Iterable[Any], names: Iterable[str]) -> None:
    """Add the flags and names of an inner function."""
    for part in parts:
        for name in names:
            setattr(whole, name, getattr(whole, name) | getattr(part, name))


class Comparisons:
    """The ways in which a function, or a function defined in it, can tell a stand-in from the value it stands for."""

    __slots__ = ("compared", "identifies", "reclasses", "values", "yields")

    def __init__(self, code: types.CodeType) -> None:
        """Read the comparisons from bytecode."""
        steps = list(dis.get_instructions(code))
        self.compared, self.identifies = _compared(code, steps)
        """Names whose values it may compare by `is`: what stands for these would be told from them. Whether it compares by `is` what has
        no such name."""
        self.identifies |= not {"id", "is_", "is_not"}.isdisjoint(code.co_names)
        self.values = {step.argval for k, step in enumerate(steps) if not _is_called(steps, k)}
        """Names that it reads for anything but to call them or to ask for an attribute."""
        self.yields = _gives_first(code, steps)
        """Whether the function passes its first parameter on, or keeps it."""
        self.reclasses = any(
            step.opname == "STORE_ATTR" and step.argval == "__class__" for step in steps
        )
        inside = (code_of(inner).comparisons for inner in _inside(code))
        _join(self, inside, ("compared", "identifies", "reclasses", "values"))


def _is_called(steps: Sequence[dis.Instruction], k: int) -> bool:
    """Whether a step reads a name to call it or to ask for an attribute; true of steps that read no name of a global or a closure."""
    step, following = steps[k], steps[min(k + 1, len(steps) - 1)].opname
    if following in ("LOAD_ATTR", "LOAD_METHOD"):
        return True
    if step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_ATTR" and sys.version_info >= (3, 12)):
        return bool((step.arg or 0) & 1)  # with room for NULL, which a call takes
    if step.opname in _VARIABLES:
        return "PUSH_NULL" in (steps[max(k - 1, 0)].opname, following)
    return step.opname != "LOAD_ATTR"


def _gives_first(code: types.CodeType, steps: Sequence[dis.Instruction]) -> bool:
    """Whether the first parameter is read for anything but an attribute."""
    if not code.co_argcount:
        return False
    first = code.co_varnames[0]
    if first in code.co_cellvars:
        return True  # an inner function closes over it
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        if not step.opname.startswith("LOAD_FAST"):
            continue
        several = isinstance(step.argval, tuple)
        if step.argval == first and following.opname not in _OF_FIRST:
            return True
        if several and (
            first == step.argval[0]
            or (first == step.argval[1] and following.opname not in _OF_FIRST)
        ):
            return True
    return False


_OF_FIRST = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR")


def _compared(code: types.CodeType, steps: Sequence[dis.Instruction]) -> tuple[set[str], bool]:
    """Names that stand in a comparison by `is`, but for what is called there or asked for an attribute.

    An attribute of a name stands here by itself and with the name, `"np.sum"`; `type(x) is y.__class__` is `"type.__class__"`. The first
    parameter has its name with a dot before it, `".self"`. Beside them whether `is` compares local variables or results, which may be
    anything: no constant, no global, and not the classes of two objects.
    """
    found: set[str] = set()
    identifies = False
    first = code.co_varnames[0] if code.co_argcount else None
    for at, comparison in enumerate(steps):
        if comparison.opname != "IS_OP":
            continue
        left, right = _operands(steps, at, code.co_freevars)
        typed = at - 1 if left == "type" else None
        mentioned = set()
        for k, step in enumerate(steps):
            if k == typed or not _within(step.positions, comparison.positions):
                continue
            mentioned.add(step.argval)
            if step.argval == first and step.opname.startswith("LOAD_FAST"):
                found.add(f".{first}")
            if not _is_called(steps, k):
                found.add(step.argval)
                if step.opname == "LOAD_ATTR" and all(
                    other.opname.startswith("LOAD") for other in steps[k + 1 : at]
                ):
                    found.add(f"{steps[max(k - 1, 0)].argval}.{step.argval}")
        if {"type", "__class__"} <= mentioned:
            found.add("type.__class__")
        known = (
            {"constant", "global"} & {left, right}
            or {left, right} <= {"type", "__class__"}
            or {left, right} == {"type", "closed over"}
        )
        # Of a dataclass's own comparison `self is other` is a shortcut.
        shortcut = code.co_name == "__eq__" and code.co_filename == "<string>"
        identifies |= not known and not shortcut
    return found, identifies


def _operands(
    steps: Sequence[dis.Instruction], at: int, closed_over: Sequence[str]
) -> tuple[str, str]:
    """What the operands of the comparison at a step are: "type" for `type(x)`, "__class__" for `x.__class__`, or what one step reads."""
    found: list[str] = []
    for _ in range(2):
        last, missing = at - 1, 1
        while missing > 0 and at > 0:
            at -= 1
            missing -= dis.stack_effect(steps[at].opcode, steps[at].arg, jump=False)
        if missing:  # one step for parts of both
            return "anything", (found or ["anything"])[0]
        first, end = steps[at], steps[last]
        kind = "anything"
        if end.opname == "LOAD_ATTR" and end.argval == "__class__":
            kind = "__class__"
        elif end.opname == "CALL" and end.arg == 1 and first.argval == "type":
            kind = "type"
        elif first is end and first.opname == "LOAD_CONST":
            kind = "constant"
        elif first is end and first.opname == "LOAD_GLOBAL":
            kind = "global"
        elif first is end and first.opname == "LOAD_DEREF" and first.argval in closed_over:
            kind = "closed over"
        found.append(kind)
    right, left = found
    return left, right


def _within(inner: Any, outer: Any) -> bool:
    """Whether a step stands in the text of another; yes where Python keeps no positions."""
    if inner is None or outer is None or None in (*inner, *outer):
        return True
    (first, last, left, right), (start, end, begin, stop) = inner, outer
    return (start, begin) <= (first, left) and (last, right) <= (end, stop)


_code = lru_cache(4096)(Code)


def code_of(code: types.CodeType) -> Code:
    """What a code object says by itself."""
    return _code(code)


def stores(code: types.CodeType) -> bool:
    """Whether a function of this code, or one that it defines, writes to arrays."""
    return code_of(code).writes


# ------------------------------------------------------------------------------------------ whose a value is


def _of_users(module: str) -> bool:
    """Whether a module is the user's own, not a library's."""
    top = module.partition(".")[0]
    return top == "__main__" or (top not in _LIBRARIES and top not in sys.stdlib_module_names)


def is_users(f: Any) -> bool:
    """Whether a value is a Python function of the user's."""
    if type(f) is not types.FunctionType:
        return False
    if f.__code__.co_filename.startswith("<doctest"):
        return True
    return _of_users(f.__globals__.get("__name__") or "")


def is_wrapper(f: Any) -> bool:
    """Whether it is a function of this library that holds the user's in its closure, and no transform: those see to what they run."""
    if type(f) is not types.FunctionType or not f.__closure__ or "__wrapped__" in f.__dict__:
        return False
    return f.__globals__.get("__name__", "").partition(".")[0] == _LIBRARY


def _is_users_module(value: Any) -> bool:
    return type(value) is types.ModuleType and _of_users(value.__name__)


# ------------------------------------------------------------------------------------------ classes


class Attributes(NamedTuple):
    """A class of the user's, and the attributes in which functions of the user's stand."""

    kind: type
    parts: dict[str, list[tuple[type, Any]]]
    """By name what stands in the class and in its bases, in the order in which they are asked; somewhere it is a function."""

    def functions(self, name: str) -> Iterator[types.FunctionType]:
        """Functions in the attributes of a name: the class's own, and those that `super()` finds."""
        for _, part in self.parts.get(name, ()):
            yield from functions_in(part)


def functions_in(part: Any) -> tuple[types.FunctionType, ...]:
    """Functions of the user's in an attribute of a class."""
    if type(part) in (staticmethod, classmethod):
        found: tuple[Any, ...] = (part.__func__,)
    elif type(part) is property:
        found = (part.fget, part.fset, part.fdel)
    elif type(part) is functools.cached_property:
        found = (part.func,)
    else:
        found = (part,)
    return tuple(f for f in found if is_users(f))


READING = frozenset(
    "getattr attrgetter methodcaller vars dir __dict__ __getattribute__ eval exec".split()
)
"""Names by which a function reads attributes whose names do not stand in it."""

_INSPECTING = frozenset(
    "__bases__ __base__ __mro__ mro __annotations__ getmembers getmro get_annotations get_type_hints".split()
)
"""Names by which a function looks into classes: it finds the class itself under a name, not the stand-in."""

_QUIET = frozenset(
    "__init__ __new__ __post_init__ __repr__ __str__ __format__ __hash__ __reduce__ __getstate__ __setstate__ __init_subclass__ "
    "__class_getitem__ __replace__ __annotate__".split()
)
"""Methods that no function reaches because it names an object; operators it may reach unnamed."""


def _is_operator(name: str) -> bool:
    return name.startswith("__") and name not in _QUIET


def attributes(value: Any) -> Attributes | None:
    """The attributes of a class of the user's, or of an object's class, that may have a stand-in; None for anything else."""
    of_class = is_class(value)
    kind = value if of_class else type(value)
    if type(kind) not in (type, abc.ABCMeta) or not _of_users(kind.__module__):
        return None
    bases = kind.__mro__[:-1]
    if issubclass(kind, Tensor | np.ndarray) or any(
        "__init_subclass__" in vars(k) or k.__module__ == "builtins" for k in bases
    ):
        return None
    if not of_class and (not kind.__dictoffset__ or any(vars(k).get("__slots__") for k in bases)):
        return None  # more than its attributes would have to be shared
    names = {name for k in bases for name, part in vars(k).items() if functions_in(part)}
    return Attributes(
        kind,
        {name: [(k, vars(k)[name]) for k in bases if name in vars(k)] for name in names},
    )


def callee(value: Any) -> tuple[Any, Attributes | None]:
    """The function that is called where a value is (a function, a partial, a bound method), and the attributes of its class."""
    while type(value) is functools.partial:
        value = value.func
    if type(value) is types.MethodType:
        return value.__func__, attributes(value.__self__)
    return value, None


LARGE = 100
"""Entries of a table up to which functions are looked for in it."""


def _held_by(table: Any) -> Iterator[types.FunctionType]:
    """Functions of the user's in a table, and the one that a cache calls."""
    entries: Iterable[Any] = (kept_by(table).get("__wrapped__"),)
    kind = type(table)
    if issubclass(kind, dict | list | tuple | set | frozenset) and len(table) <= LARGE:
        entries = (*table, *table.values()) if issubclass(kind, dict) else (*table,)
    for entry in entries:
        called, _ = callee(entry)
        if is_users(called):
            yield called
        elif (of := attributes(entry)) is not None and not is_class(entry):
            yield from of.functions("__call__")


# ------------------------------------------------------------------------------------------ what a function reaches

Call = tuple[types.FunctionType, Attributes | None]


class Reach:
    """A function of the user's, and what it finds under the names that it mentions; of a method also what it finds in its class."""

    __slots__ = (
        "bound",
        "cells",
        "code",
        "function",
        "globals",
        "held",
        "joins",
        "makes",
        "modules",
        "of",
        "own",
        "writes",
    )

    def __init__(self, f: types.FunctionType, of: Attributes | None) -> None:
        """Note what a function reads by name: methods, globals, variables of its closure, parts of modules."""
        self.function = f
        self.of = of
        self.code = code_of(f.__code__)
        self.own = [g for name in self.code.names for g in of.functions(name)] if of else []
        self.held: list[tuple[Attributes, list[str]]] = []
        """Of the classes and objects that it names, and which of their attributes it may reach."""
        self.globals: dict[str, Any] = {}
        self.cells: dict[str, Any] = {}
        self.modules: dict[str, dict[str, Any]] = {}
        wrapper = not is_users(f)
        space = {} if wrapper else f.__globals__
        for name in self.code.names:
            if name in space:
                self._note(self.globals, name, space[name])
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            if name != "__class__":  # of super(), which knows what stands for the class
                self._note(self.cells, name, content(cell))
        found = () if wrapper else (*self.globals.values(), *self.cells.values())
        self.joins = any(JOINING.named(value, self.code.names) for value in found)
        self.joins |= self.code.lists and any(value is np for value in found)
        self.joins |= any(mathematics.is_named(value, self.code.names) for value in found)
        self.joins |= any(type(value) is np.vectorize for value in found)
        self.joins |= not wrapper and (self.code.asks or self.code.converts)
        self.makes = any(FILLING.named(value, self.code.names) for value in found)
        # A copy of an argument, which may be a plain array.
        self.makes |= not wrapper and not _COPIES.isdisjoint(self.code.names)
        self.writes = not wrapper and self.code.writes
        self.bound = {
            (id(cell), name)
            for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
            if name in self.code.rebinds
        }
        """Variables of closures that it binds anew, each with its cell."""

    @property
    def comparisons(self) -> Comparisons:
        """The comparisons by `is` in the function."""
        return self.code.comparisons

    def _note(self, held: dict[str, Any], name: str, value: Any) -> None:
        """Note the value under a name if a copy of the function may need a stand-in there."""
        called, _ = callee(value)
        if type(value) is np.ndarray:
            if name in self.code.copied and is_source(value):
                held[name] = value
            return
        if (
            value is np
            or id(value) in FILLING.functions
            or is_users(called)
            or type(value) is np.vectorize
        ):
            held[name] = value
        elif mathematics.is_known(value):
            held[name] = value
        elif held is self.cells and is_wrapper(called) and not is_users(self.function):
            held[name] = value
        elif (of := attributes(value)) is not None:
            made = is_class(value)  # code that gets the object may call any method
            reached = [n for n in of.parts if made or n in self.code.names or _is_operator(n)]
            if reached:
                held[name] = value
                self.held.append((of, reached))
        elif _is_users_module(value) and held is self.globals:
            space = kept_by(value)
            parts = {n: space[n] for n in self.code.names if n in space}
            parts = {n: v for n, v in parts.items() if is_users(v) or is_class(v)}
            kinds = {n: attributes(v) for n, v in parts.items() if is_class(v)}
            parts = {n: v for n, v in parts.items() if n not in kinds or kinds[n]}
            if parts:
                held[name] = value
                self.modules[name] = parts
                self.held += [(of, [*of.parts]) for of in kinds.values() if of]

    def beside(self) -> Iterator[types.FunctionType]:
        """Functions of the user's that it may call without their names: those of tables, objects and caches that it names."""
        f = self.function
        space = f.__globals__ if is_users(f) else {}
        named = [space[name] for name in self.code.names if name in space]
        for value in (*named, *map(content, f.__closure__ or ())):
            of_users = is_class(value) or attributes(value) is not None
            for held in kept_by(value).values() if of_users else ():
                yield from _held_by(held)
            yield from _held_by(value)

    def plain(self) -> Iterator[str]:
        """Names of NumPy's and `math`'s that it compares: these are the modules' own."""
        space = {**self.globals, **self.cells}
        for name in self.comparisons.compared:
            of, _, own = name.partition(".")
            if own and (space.get(of) is np or mathematics.is_known(space.get(of))):
                yield own

    def kept(self) -> Iterator[int]:
        """Identities of functions, objects and classes that it compares: nothing may stand for these under a name."""
        compared = self.comparisons.compared
        if self._looks():
            yield from (id(of.kind) for of in self.kinds())
        if not compared:
            return
        spaces = (self.globals, self.cells, *self.modules.values())
        for value in (space[name] for space in spaces for name in compared if name in space):
            yield id(value)
            yield id(callee(value)[0])
        if "type.__class__" in compared:
            yield from (id(of.kind) for of in self.kinds())

    def _looks(self) -> bool:
        """Whether the function may look into a class."""
        names = self.code.names
        if not _INSPECTING.isdisjoint(names):
            return True
        if names.isdisjoint(("__dict__", "vars")):
            return False
        spaces = (self.globals, self.cells, *self.modules.values())
        named = (space[n] for space in spaces for n in self.comparisons.values if n in space)
        return not names.isdisjoint(("type", "__class__")) or any(is_class(v) for v in named)

    def named_values(self) -> Iterator[Any]:
        """Values that the function reads other than to call them: such a value may reach a local variable, and be compared there."""
        spaces = (self.globals, self.cells, *self.modules.values())
        for value in (space[n] for space in spaces for n in self.comparisons.values if n in space):
            yield value
            yield callee(value)[0]

    def apart(self) -> Iterator[int]:
        """Classes, by identity, that have no stand-ins: methods of them are compared, or objects by their own methods."""
        compared = self.comparisons.compared
        if self.comparisons.reclasses:
            yield from (id(of.kind) for of in self.kinds())
        if self.of and self.function.__code__.co_argcount and self.comparisons.identifies:
            first = self.function.__code__.co_varnames[0]  # which an inner function may close over
            if not compared.isdisjoint((first, f".{first}")):
                yield id(self.of.kind)
        for of in self.kinds() if compared else ():
            parts = (part for name in compared for _, part in of.parts.get(name, ()))
            if any(
                functions_in(p) and type(p) not in (property, functools.cached_property)
                for p in parts
            ):
                yield id(of.kind)

    def kinds(self) -> Iterator[Attributes]:
        """The classes of the named objects, and the class of the function itself."""
        yield from (of for of, _ in self.held)
        if self.of:
            yield self.of

    def calls(self) -> Iterator[Call]:
        """Functions of the user's that this function may call, each with the attributes of the class in which it stands."""
        for value in (*self.globals.values(), *self.cells.values()):
            called, of = callee(value)
            if type(called) is types.FunctionType and id(called) not in FILLING.functions:
                yield called, of
        for parts in self.modules.values():
            yield from ((f, None) for f in parts.values() if not is_class(f))
        for of, names in self.held:
            yield from ((f, of) for name in names for f in of.functions(name))
        for f in self.own:
            yield f, self.of
