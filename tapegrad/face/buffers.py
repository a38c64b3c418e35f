"""What NumPy cannot do with tensors, in a function that is differentiated or compiled: join them, and fill a buffer with them.

An ndarray cannot be tracked. So the array of `np.array([t, u])` has to be a tensor, and so has the buffer `a = np.zeros(n)` of a later
`a[i] = t`. `adopted(f)` is `f` as a copy that shares its code, closure, defaults and globals, but finds a namespace of its own where its
globals or its closure say NumPy. There `array` and the other functions of `JOINERS` take tensors, and give what NumPy gives for anything
else; where lists are made, functions of one array (`np.sum`, `np.linalg.solve`) take a list of tensors for it (`_Taking`). If what the
function reaches also writes to arrays, `zeros` and the other functions that make a new array (`MAKERS`) make an untracked tensor of it
while a transform or a trace runs, if its numbers are floats.
Python functions of the user's that the function reaches by name (helpers, functions of closures and of the user's modules, itself in
a recursion, methods of `self` and of objects that it names) are copied in the same way. So is what this library wraps around the user's
function (`_is_wrapper`), where only the function inside is replaced. Everything else is looked up where it always was, at the moment
that it is looked up.

Invariant: nothing that exists is changed, so that no other call and no other thread notices; and a function is copied only if what it
reaches joins arrays or makes lists, or both makes arrays and writes to some (`_Code`, `_Reach`). `plain_buffers()` switches it off,
`adoptions(f)` says what it does.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from opcode import opmap
from typing import Any

import numpy as np

from ..core import storage
from ..core.closures import content
from ..core.tape import current
from ..core.tensor import Tensor, wrap
from ..ops.composing import holds_tensor
from ..ops.joining import array as joined
from ..ops.shaping import converted
from . import creation
from .concatenators import c_, r_

_OFF: ContextVar[bool] = ContextVar("tapegrad.plain_buffers", default=False)


@contextmanager
def plain_buffers() -> Iterator[None]:
    """Context in which functions make the arrays that they say, also where a tracked value is stored into one (which raises then).

    >>> import numpy as np, tapegrad as tg
    >>> def f(x):
    ...     y = np.zeros(2)
    ...     y[0] = x
    ...     return np.sum(y)
    >>> tg.grad(f)(3.0)
    1.0
    >>> with tg.plain_buffers():
    ...     tg.grad(f)(3.0)
    Traceback (most recent call last):
    ...
    tapegrad.errors.GradientLost: ...
    """
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


# ------------------------------------------------------------------------------------------ NumPy with tensors


def _buffer(array: Any) -> Any:
    """A new array as a tensor, while something is recorded or traced and if it can carry a gradient."""
    wanted = type(array) is np.ndarray and array.dtype.kind in "fc"
    return wrap(array) if wanted and _recording() else array


def _recording() -> bool:
    """Whether a transform or a trace runs."""
    return current().outer is not None or storage.tracing.get() is not None


def _making(of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(of)
    def make(*args: Any, **kwargs: Any) -> Any:
        return _buffer(of(*args, **kwargs))

    return make


def _converted(a: Any, dtype: Any, order: Any, copy: Any) -> Any:
    if isinstance(a, Tensor):
        return converted(a, dtype, order, copy)
    return converted(joined(a, dtype=dtype), None, order, None if copy else copy)


CONVERTERS: dict[str, tuple[str | None, int]] = {
    "asarray": (None, 0), "asanyarray": (None, 0), "ascontiguousarray": ("C", 1), "asfortranarray": ("F", 1),
}  # fmt: skip
"""NumPy's functions that give an array back as it is where they can: the order that they ask for, and the fewest axes."""


def converting(name: str, finished: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """One of `CONVERTERS` that makes tensors of tensors; `finished(array, a)` is what it makes of other data `a`."""
    of = getattr(np, name)
    usual, ndmin = CONVERTERS[name]

    @functools.wraps(of)
    def convert(a: Any, dtype: Any = None, order: Any = usual, *, copy: Any = None, **rest: Any) -> Any:  # fmt: skip
        if holds_tensor(a):
            made = _converted(a, dtype, order, copy)
            return made if made.ndim >= ndmin else np.reshape(made, (1,) * ndmin)
        if not ndmin:
            rest |= {"order": order, "copy": copy}
        return finished(of(a, dtype, **rest), a)

    return convert


def _joiners(new: Callable[[Any], Any]) -> dict[str, Any]:
    """NumPy's functions that make an array of what they are given, of tensors too; `new(array)` is what they make of other data."""

    @functools.wraps(np.array)
    def array(
        object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0, like: Any = None
    ) -> Any:  # fmt: skip
        if not holds_tensor(object):
            return new(np.array(object, dtype, copy=copy, order=order, subok=subok, ndmin=ndmin))
        made = _converted(object, dtype, order, copy)
        missing = max(ndmin - made.ndim, 0)
        return np.reshape(made, (1,) * missing + made.shape) if missing else made

    def finished(made: Any, a: Any) -> Any:
        return made if made is a or isinstance(a, np.ndarray) else new(made)

    @functools.wraps(np.full)
    def full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fill_value, Tensor) and not (args or kwargs):
            return creation.full(shape, fill_value, dtype=dtype)
        return new(np.full(shape, fill_value, dtype, *args, **kwargs))

    @functools.wraps(np.full_like)
    def full_like(a: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fill_value, Tensor) and not (args or kwargs):
            return creation.full_like(a, fill_value, dtype=dtype)
        return new(np.full_like(a, fill_value, dtype, *args, **kwargs))

    @functools.wraps(np.fromiter)
    def fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Any:
        given = list(iter if count < 0 else itertools.islice(iter, count))
        return array(given, dtype) if holds_tensor(given) else new(np.fromiter(given, dtype, count))

    @functools.wraps(np.isscalar)
    def isscalar(element: Any) -> bool:
        value = element._value if isinstance(element, Tensor) else None
        return np.isscalar(element) if value is None else storage.is_number(value)

    return {
        "array": array, "isscalar": isscalar, "full": full, "full_like": full_like, "fromiter": fromiter, "ndarray": _Array,
        "r_": r_, "c_": c_,
        **{name: converting(name, finished) for name in CONVERTERS},
    }  # fmt: skip


class _Arrays(type):
    """What `np.ndarray` is in a copied function: a maker of buffers, and a class that tensors with memory are of."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = np.ndarray(*args, **kwargs)
        return made if made.base is not None else _buffer(made)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, np.ndarray) or (
            isinstance(x, Tensor) and not storage.is_number(x._value)
        )

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, np.ndarray | Tensor)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is np.ndarray or other is Tensor

    def __hash__(cls) -> int:
        return hash(np.ndarray)

    def __getattr__(cls, name: str) -> Any:
        return getattr(np.ndarray, name)

    def __repr__(cls) -> str:
        return repr(np.ndarray)


class _Array(metaclass=_Arrays):
    pass


class _Tensors(_Arrays):
    """The same, whose arrays are always tensors."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return wrap(np.ndarray(*args, **kwargs))


class ndarray(metaclass=_Tensors):
    """NumPy's name: `tg.ndarray(shape, dtype)` is a tensor of arbitrary entries, and tensors that are no numbers are instances of it."""


JOINERS = _joiners(lambda made: made)
"""NumPy's functions that join what may be tensors, by name: what the copy of a function that fills no buffers finds in their place."""

MAKERS: dict[str, Any] = {
    name: _making(getattr(np, name))
    for name in ("copy", "empty", "empty_like", "eye", "identity", "ones", "ones_like", "tri", "zeros", "zeros_like")
} | _joiners(_buffer)  # fmt: skip
"""NumPy's functions that make a new array, by name: what the copy of a function that fills buffers finds in their place."""


def _holds_numbers(value: Any) -> bool:
    """Whether a list or tuple holds a tensor of floats, perhaps in lists inside: those of whole numbers may be lengths or axes."""
    return (type(value) is list or type(value) is tuple) and any(
        x.dtype.kind in "fc" if isinstance(x, Tensor) else _holds_numbers(x) for x in value
    )


def _joined(value: Any) -> Any:
    return joined(value) if _holds_numbers(value) else value


class _Taking:
    """A function of NumPy's, or a ufunc, for which a list with tensors is the tensor that it would be an array of."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.of(*map(_joined, args), **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)

    def __eq__(self, other: Any) -> bool:
        return other is self.of or (isinstance(other, _Taking) and other.of is self.of)

    def __hash__(self) -> int:
        return hash(self.of)

    def __repr__(self) -> str:
        return repr(self.of)


class _TakingSeveral(_Taking):
    """The same for a function of several arrays in a list: each of them may be a list with tensors."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [[*map(_joined, x)] if type(x) is list or type(x) is tuple else x for x in args]
        return self.of(*given, **kwargs)


_OF_SEVERAL = frozenset(
    "choose column_stack concat concatenate dstack hstack lexsort multi_dot select stack vstack".split()
)
"""Functions of several arrays, which stand in one list."""

_OF_NESTED = frozenset(("block", "piecewise", "histogramdd"))
"""Functions whose lists are more than arrays: they find the tensors there."""

_ROOMS = (np.linalg, np.fft)


def _stand_of(module: types.ModuleType, made: dict[str, Any], lists: bool) -> types.ModuleType:
    """A module with the names of one of NumPy's: `made`, or the module's own, which with `lists` take lists of tensors."""

    def find(name: str) -> Any:
        """What stands under a name, kept for the next time."""
        value = getattr(module, name)
        if not lists:
            return value
        if type(value) is types.ModuleType and value in _ROOMS:
            value = _stand_of(value, {}, True)
        elif name in _OF_SEVERAL:
            value = _TakingSeveral(value)
        elif type(value) is np.ufunc or (
            hasattr(value, "_implementation") and name not in _OF_NESTED
        ):
            value = _Taking(value)
        else:
            return value
        setattr(stand, name, value)
        return value

    stand = types.ModuleType(module.__name__, module.__doc__)
    stand.__dict__.update(made, __getattr__=find, __dir__=lambda: dir(module))
    return stand


class _Stand:
    """What stands for NumPy in a copied function: its module, and names of it by the identity of what they name."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self.modules = [_stand_of(np, functions, lists) for lists in (False, True)]
        """What stands for NumPy itself, by whether what is copied makes lists."""
        self.functions = {id(getattr(np, name)): made for name, made in functions.items()}
        self.names = functions.keys()

    def named(self, value: Any, names: frozenset[str]) -> bool:
        """Whether a function that finds this value, and mentions these names, finds something that is replaced."""
        return (value is np and not names.isdisjoint(self.names)) or id(value) in self.functions


_JOINING, _FILLING = _Stand(JOINERS), _Stand(MAKERS)


# ------------------------------------------------------------------------------------------ what a function reaches

_LIBRARIES = frozenset(
    "tapegrad numpy scipy numba llvmlite optree dask matplotlib pandas torch jax".split()
)
_LIBRARY = __name__.partition(".")[0]
_WRITERS = frozenset("at copyto put place putmask put_along_axis fill_diagonal fill out".split())
_STORES = frozenset(opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap)
_IN_PLACE = 13
"""Operators up from this number are in place: `a += b`."""


class _Code:
    """What a code object, with those inside it, names; whether it writes to arrays, and whether it binds globals anew."""

    __slots__ = ("binds", "lists", "names", "rebinds", "writes")

    def __init__(self, code: types.CodeType) -> None:
        """Read from bytecode whether a function (or one defined in it) may write to arrays, and which names it reads and binds."""
        names: set[str] = {*code.co_names}
        text = code.co_code
        steps = list(zip(text[::2], text[1::2], strict=False))
        self.writes = any(
            step in _STORES or (step == opmap["BINARY_OP"] and number >= _IN_PLACE)
            for step, number in steps
        )
        self.writes |= not _WRITERS.isdisjoint(names)
        self.writes |= any(type(c) is tuple and "out" in c for c in code.co_consts)
        self.lists = not names.isdisjoint(("append", "list")) or any(
            step == opmap["LIST_APPEND"] or (step == opmap["BUILD_LIST"] and number)
            for step, number in steps
        )
        self.binds = any(
            step in (opmap["STORE_GLOBAL"], opmap["DELETE_GLOBAL"]) for step, _ in steps
        )
        own = len(code.co_varnames) + len({*code.co_cellvars} - {*code.co_varnames})
        self.rebinds = {
            code.co_freevars[number - own]
            for step, number in steps
            if step == opmap["STORE_DEREF"] and number >= own
        }
        """Variables of enclosing functions that it binds anew."""
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                inside = _code(inner)
                names |= inside.names
                self.writes |= inside.writes
                self.lists |= inside.lists
                self.binds |= inside.binds
                self.rebinds |= inside.rebinds
        self.names: frozenset[str] = frozenset(names)


@lru_cache(4096)
def _code(code: types.CodeType) -> _Code:
    return _Code(code)


def stores(code: types.CodeType) -> bool:
    """Whether a function of this code, or one that it defines, writes to arrays."""
    return _code(code).writes


def _is_users(f: Any) -> bool:
    """Whether it is a Python function that is not a library's."""
    if type(f) is not types.FunctionType:
        return False
    module = f.__globals__.get("__name__") or ""
    top = module.partition(".")[0]
    if f.__code__.co_filename.startswith("<doctest"):
        return True
    return top == "__main__" or (top not in _LIBRARIES and top not in sys.stdlib_module_names)


def _is_wrapper(f: Any) -> bool:
    """Whether it is a function of this library that holds the user's in its closure, and no transform: those see to what they run."""
    if type(f) is not types.FunctionType or not f.__closure__ or "__wrapped__" in f.__dict__:
        return False
    return f.__globals__.get("__name__", "").partition(".")[0] == _LIBRARY


def _callee(value: Any) -> tuple[Any, dict[str, types.FunctionType]]:
    """The function that is called where a value is (a function, a partial, a bound method), and the methods of its class."""
    while type(value) is functools.partial:
        value = value.func
    if type(value) is types.MethodType:
        return value.__func__, _methods(value.__self__) or {}
    return value, {}


def _is_users_module(value: Any) -> bool:
    if type(value) is not types.ModuleType:
        return False
    top = value.__name__.partition(".")[0]
    return top not in _LIBRARIES and top not in sys.stdlib_module_names


def _methods(value: Any) -> dict[str, types.FunctionType] | None:
    """The methods of an object of the user's that may have a shadow (`_shadow`); None for anything else."""
    kind = type(value)
    if type(kind) is not type or kind.__module__ == "builtins" or not hasattr(value, "__dict__"):
        return None
    top = kind.__module__.partition(".")[0]
    if top != "__main__" and (top in _LIBRARIES or top in sys.stdlib_module_names):
        return None
    bases = kind.__mro__[:-1]
    if any("__slots__" in vars(k) or "__init_subclass__" in vars(k) for k in bases):
        return None
    if isinstance(value, Tensor | np.ndarray | BaseException):
        return None
    found = {n: f for k in reversed(bases) for n, f in vars(k).items()}
    return {n: f for n, f in found.items() if _is_users(f)}


class _Reach:
    """A function of the user's, and what it finds under the names that it mentions; of a method also what it finds in its class."""

    __slots__ = ("cells", "code", "function", "globals", "joins", "makes", "methods", "modules", "objects", "own", "writes")  # fmt: skip

    def __init__(self, f: types.FunctionType, methods: dict[str, types.FunctionType]) -> None:
        """Note what a function reads by name: methods, globals, variables of its closure, parts of modules."""
        self.function = f
        self.methods = methods
        self.code = _code(f.__code__)
        self.own = [methods[name] for name in self.code.names if name in methods]
        if methods and "self" not in f.__code__.co_varnames[:1]:
            self.own = []
        self.objects: dict[str, dict[str, types.FunctionType]] = {}
        self.globals: dict[str, Any] = {}
        self.cells: dict[str, Any] = {}
        self.modules: dict[str, dict[str, Any]] = {}
        wrapper = not _is_users(f)
        space = {} if wrapper else f.__globals__
        for name in self.code.names:
            if name in space:
                self._note(self.globals, name, space[name])
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self._note(self.cells, name, content(cell))
        found = () if wrapper else (*self.globals.values(), *self.cells.values())
        self.joins = any(_JOINING.named(value, self.code.names) for value in found)
        self.joins |= self.code.lists and any(value is np for value in found)
        self.makes = any(_FILLING.named(value, self.code.names) for value in found)
        # A copy of an argument, which may be a plain array.
        self.makes |= not wrapper and "copy" in self.code.names
        self.writes = not wrapper and self.code.writes

    def _note(self, held: dict[str, Any], name: str, value: Any) -> None:
        """Hold what a name means, where a copy may have to find something else under it."""
        callee = _callee(value)[0]
        if value is np or id(value) in _FILLING.functions or _is_users(callee):
            held[name] = value
        elif held is self.cells and _is_wrapper(callee) and not _is_users(self.function):
            held[name] = value
        elif (methods := _methods(value)) is not None:
            if any(n in self.code.names or n == "__call__" for n in methods):
                held[name] = value
                self.objects[name] = methods
        elif _is_users_module(value):
            parts = vars(value)
            functions = {n: parts[n] for n in self.code.names if n in parts and _is_users(parts[n])}
            if functions and held is self.globals:
                held[name] = value
                self.modules[name] = functions

    def calls(self) -> Iterator[tuple[types.FunctionType, dict[str, types.FunctionType]]]:
        """Functions of the user's that it may call, each with the methods of the class that it was found in."""
        for value in (*self.globals.values(), *self.cells.values()):
            callee, methods = _callee(value)
            if type(callee) is types.FunctionType and id(callee) not in _FILLING.functions:
                yield callee, methods
        for functions in self.modules.values():
            yield from ((f, {}) for f in functions.values())
        for methods in self.objects.values():
            mentioned = (f for n, f in methods.items() if n in self.code.names or n == "__call__")
            yield from ((f, methods) for f in mentioned)
        for f in self.own:
            yield f, self.methods


# ------------------------------------------------------------------------------------------ copies


class _Globals(dict[str, Any]):
    """A module's globals, but for what stands in the copied functions' namespace: the rest is looked up as it is then."""

    __slots__ = ("fills", "lists", "real")

    def __init__(self, real: dict[str, Any], fills: bool, lists: bool) -> None:
        self.real = real
        self.fills = fills
        self.lists = lists
        for name in ("__builtins__", "__name__"):
            if name in real:
                self[name] = real[name]

    def __missing__(self, name: str) -> Any:
        return self.real[name]

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self.real


_SHADOW = "__shadow_of__"
"""In the class of an object's shadow, the object's class."""


class _Kinds(type):
    """What `type` is in a copied function: of an object's shadow it gives the object's class."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1:
            return type(*args, **kwargs)
        kind = type(args[0])
        return vars(kind).get(_SHADOW, kind)

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


class _Kind(metaclass=_Kinds):
    pass


class _Module(types.ModuleType):
    """A module of the user's, but for the functions of it that are copied."""

    def __init__(self, real: types.ModuleType, functions: dict[str, Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.__dict__.update(functions)
        self.__dict__["__getattr__"] = lambda name: getattr(real, name)
        self.__dict__["_real"] = real

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


class _Plan:
    """The copy of a function, and what has to be as it was for the copy to stand for it."""

    __slots__ = ("copied", "copies", "copy", "reached", "seen", "shadows")

    def __init__(
        self, f: types.FunctionType, methods: dict[str, types.FunctionType] | None = None
    ) -> None:
        """Find the functions that `f` reaches, and copy those in which a buffer of NumPy's has to become a tensor."""
        reached: dict[int, _Reach] = {}
        unseen: list[Any] = [(f, methods or {})]
        while unseen:
            g, of = unseen.pop()
            if id(g) not in reached:
                reach = reached[id(g)] = _Reach(g, of)
                unseen += reach.calls()
        self.seen: list[Callable[[types.FunctionType], bool]] = []
        self.copies: dict[int, Any] = {}
        self.shadows: dict[int, Any] = {}
        self.reached = list(reached.values())
        self.copy: Any = None
        self.copied: list[types.FunctionType] = []
        fills = any(reach.writes for reach in reached.values())
        able = {key: reach for key, reach in reached.items() if not reach.code.binds}
        fills = fills and any(reach.makes for reach in able.values())
        wanted = {key for key, reach in able.items() if (reach.makes if fills else reach.joins)}
        grown = bool(wanted)
        while grown:
            more = {
                key
                for key, reach in able.items()
                if key not in wanted and any(id(g) in wanted for g, _ in reach.calls())
            }
            wanted |= more
            grown = bool(more)
        if id(f) not in wanted:
            return
        lists = any(reached[key].code.lists for key in wanted)
        spaces: dict[int, _Globals] = {}
        copies = self.copies
        for key in wanted:
            g = reached[key].function
            space = spaces.setdefault(id(g.__globals__), _Globals(g.__globals__, fills, lists))
            copies[key] = _empty_copy(g, space)
        for key in wanted:
            _fill(reached[key], self, copies[key].__globals__)
        self.seen = [_seen(reach, reach.function is f) for reach in self.reached]
        self.reached = []
        self.copy = copies[id(f)]
        self.copied = [self.copy, *(c for key, c in copies.items() if key != id(f))]

    def shadow(self, value: Any) -> Any:
        """An object that shares the attributes of another, and whose methods are the copies; the object itself where none is copied."""
        methods = _methods(value) or {}
        copied = {n: self.copies[id(f)] for n, f in methods.items() if id(f) in self.copies}
        if not copied:
            return value
        held = self.shadows.get(id(value))
        if held is not None and held[0]() is value:
            return held[1]
        kind, itself = type(value), weakref.ref(value)
        space: dict[str, Any] = {
            _SHADOW: kind,
            "__class__": property(lambda shadow: kind),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            **copied,
        }
        if kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__:
            space["__hash__"] = lambda shadow: hash(itself())
            space["__eq__"] = lambda shadow, other: other is shadow or other is itself()
        made: Any = object.__new__(type(kind.__name__, (kind,), space))
        made.__dict__ = value.__dict__
        self.shadows[id(value)] = (itself, made)
        return made

    def holds(self, f: types.FunctionType) -> bool:
        """Whether everything that was looked at is as it was."""
        return all(seen(f) for seen in self.seen)


def _seen(reach: _Reach, first: bool) -> Callable[[types.FunctionType], bool]:
    """A check that a function, and what it finds under names, is the same. It keeps nothing alive."""
    f = reach.function
    itself = None if first else weakref.ref(f)
    code, defaults = f.__code__, f.__defaults__
    own = [(weakref.ref(g), g.__code__) for g in reach.own]
    names = [(name, weakref.ref(value)) for name, value in reach.globals.items()]
    cells = [(name, weakref.ref(value)) for name, value in reach.cells.items()]
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
        for method, text in own:
            now = method()
            if now is None or now.__code__ is not text:
                return False
        space = g.__globals__
        for name, value in names:
            if space.get(name) is not value():
                return False
        if cells:
            held = dict(zip(code.co_freevars, g.__closure__ or (), strict=True))
            if any(content(held[name]) is not value() for name, value in cells):
                return False
        for module, name, value in parts:
            if getattr(module(), name, None) is not value():
                return False
        return True

    return same


def _empty_copy(f: types.FunctionType, space: _Globals) -> types.FunctionType:
    """A copy with cells of its own where the function's hold functions or NumPy."""
    cells = []
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        value = content(cell)
        own = value is np or id(value) in _FILLING.functions or bool(_methods(value))
        own = own or type(_callee(value)[0]) is types.FunctionType
        own = own and name not in _code(f.__code__).rebinds
        cells.append(types.CellType(value) if own else cell)
    copy = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, tuple(cells) or None)
    copy.__kwdefaults__ = f.__kwdefaults__
    copy.__qualname__, copy.__doc__, copy.__module__ = f.__qualname__, f.__doc__, f.__module__
    copy.__dict__ = f.__dict__
    return copy


def _fill(reach: _Reach, plan: _Plan, space: _Globals) -> None:
    """Put what stands for NumPy, for its makers and for copied functions where a copy looks them up."""

    def other(value: Any) -> Any:
        if value is np:
            return stand.modules[space.lists]
        made = stand.functions.get(id(value))
        if made is not None:
            return made
        if type(value) is functools.partial:
            inner = other(value.func)
            return value if inner is value.func else functools.partial(inner, *value.args, **value.keywords)  # fmt: skip
        if type(value) is types.MethodType:
            method = copies.get(id(value.__func__))
            return value if method is None else types.MethodType(method, plan.shadow(value.__self__))  # fmt: skip
        return plan.shadow(value) if _methods(value) else copies.get(id(value), value)

    copies = plan.copies
    stand = _FILLING if space.fills else _JOINING
    f, copy = reach.function, copies[id(reach.function)]
    for name, value in reach.globals.items():
        if name in reach.modules:
            functions = {n: other(g) for n, g in reach.modules[name].items() if id(g) in copies}
            space[name] = _Module(value, functions) if functions else value
        else:
            space[name] = other(value)
    builtins = getattr(f, "__builtins__", {})
    for name in reach.code.names:
        if name in builtins and name not in f.__globals__:
            space[name] = _Kind if name == "type" and builtins[name] is type else builtins[name]
    for name, cell in zip(f.__code__.co_freevars, copy.__closure__ or (), strict=True):
        if name in reach.cells and name not in reach.code.rebinds:
            cell.cell_contents = other(reach.cells[name])


# ------------------------------------------------------------------------------------------ the door

_plans: dict[int, tuple[weakref.ref[Any], _Plan]] = {}
"""Plans of functions that are copied, by identity."""

_as_they_are: dict[types.CodeType, Callable[[types.FunctionType], bool]] = {}
"""By their code: whether a function runs as it is because what it reaches is what another one of this code reached."""

_MOST = 256


def _unneeded(reached: Sequence[_Reach]) -> Callable[[types.FunctionType], bool]:
    """A check that a function, perhaps a new one of the same code, reaches what the first one of these does."""
    first, *rest = reached
    space = first.function.__globals__
    names = [(r.function.__globals__, n, v) for r in reached for n, v in r.globals.items()]
    names += [
        (vars(r.globals[m]), n, v)
        for r in reached
        for m in r.modules
        for n, v in r.modules[m].items()
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
    (float, int, bool, complex, str, tuple, list, dict, type(None), np.ndarray, np.float64, Tensor)
)


def adopted(f: Any) -> Any:
    """The function that is run for `f` in a transform or a trace: `f` itself, unless it joins arrays, or fills some that it makes."""
    if _OFF.get():
        return f
    kind = type(f)
    if kind is types.FunctionType:
        as_it_is = _as_they_are.get(f.__code__)
        if as_it_is is not None and as_it_is(f):
            return f
        plan = _plan(f)
        return f if plan is None or plan.copy is None else plan.copy
    if kind is functools.partial:
        copy = adopted(f.func)
        return f if copy is f.func else functools.partial(copy, *f.args, **f.keywords)
    bound = f if kind is types.MethodType else getattr(f, "__call__", None)  # noqa: B004  the method, to copy it
    if type(bound) is types.MethodType and type(bound.__func__) is types.FunctionType:
        plan = _plan(bound.__func__, _methods(bound.__self__))
        if plan is not None and plan.copy is not None:
            return types.MethodType(plan.copy, plan.shadow(bound.__self__))
    return f


def fills(f: Any) -> bool:
    """Whether this is a copy that makes tensors of the buffers that it fills."""
    f = getattr(f, "func", f)
    space = getattr(getattr(f, "__func__", f), "__globals__", None)
    return type(space) is _Globals and space.fills


def adopted_inside(f: Any) -> Any:
    """`adopted(f)` while something is recorded or traced, else `f`."""
    return adopted(f) if _recording() else f


def _plan(
    f: types.FunctionType, methods: dict[str, types.FunctionType] | None = None
) -> _Plan | None:
    """The plan of a user's function, from the table of plans where it still holds; None where nothing is to be replaced."""
    if not (_is_users(f) or _is_wrapper(f)):
        return None
    held = _plans.get(id(f))
    if held is not None and held[0]() is f and held[1].holds(f):
        return held[1]
    plan = _Plan(f, methods)
    if plan.copy is None:
        if len(_as_they_are) >= _MOST:
            _as_they_are.clear()
        _as_they_are[f.__code__] = _unneeded(plan.reached)
        return None
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[id(f)] = (weakref.ref(f), plan)
    return plan


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
    methods = _methods(getattr(f, "__self__", None))
    f = getattr(f, "__func__", getattr(f, "func", f))
    plan = _plan(f, methods) if type(f) is types.FunctionType else None
    copied = plan.copied if plan is not None else []
    return [
        f"{g.__qualname__} ({g.__code__.co_filename}:{g.__code__.co_firstlineno})" for g in copied
    ]


def constant(value: Any) -> Any:
    """An array that an adopted function is given and not differentiated by: its copies are to be buffers, too, so it is a tensor."""
    if type(value) is not np.ndarray or value.dtype.kind not in "fc":
        return value
    array = storage.kept(value)
    array.flags.writeable = False  # NumPy would write to the caller's array
    return wrap(array)


__all__ = ["plain_buffers"]
