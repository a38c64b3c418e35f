"""Generated code on disk: a second process neither compiles it nor infers its types.

Sources lie in the folder "native" of the cache (see `tapegrad.llvm.cache`), each under a name that holds a hash of all it depends on: its
text, the values of its constants, options, this package's runtime, versions and the processor. They are for people: nothing reads
them. Beside them lie compiled code and types, in frames with a checksum. What overloading compiles, and the user's function
itself, comes from bytecode: its hash is of that, and of all it names (`program_key`).

The folder is bounded (`KEPT_BYTES`): what was not used for longest goes first.

Invariant: what depends on an object whose value cannot be told (a function of the user's, say) is not kept. A folder that
cannot be written to, or is somebody else's, means working without. Types are kept as JSON. Of compiled code Numba makes pickles,
which are read only as written here: the frame's checksum holds, and nobody else could write the file.
"""

from __future__ import annotations

import cmath
import contextlib
import functools
import hashlib
import inspect
import json
import math
import os
import pickle
import sys
import weakref
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import compiler, config, serialize, types
from numba.core.caching import NullCache
from numba.core.registry import cpu_target

from ..core import checking, handlers
from ..errors import NotDifferentiable
from ..llvm import cache


def key(text: str, scope: dict[str, Any], *more: Any) -> str | None:
    """A hash of a generated text with what its names mean; None where that cannot be told."""
    from . import runtime

    digest = hashlib.sha256(_surroundings() + _called())
    digest.update(repr((text, *more)).encode())
    for name, value in sorted(scope.items()):
        if runtime.SCOPE.get(name) is value:
            continue
        told = _told_program(value, {})
        if told is None:
            return None
        digest.update(name.encode() + b"=" + told)
    return digest.hexdigest()[:32]


def _surroundings() -> bytes:
    """What all compiled code depends on: versions, the processor, and what Numba is told by its variables."""
    settings = [getattr(config, name, None) for name in _SETTINGS]
    return f"{checking.key()}{cache.environment()} {settings}".encode()


_SETTINGS = ("BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DISABLE_INTEL_SVML")


@functools.cache
def _called() -> bytes:
    """A hash of what generated code calls."""
    from . import emitted, pipelines, runtime, sanitizer

    digest = hashlib.sha256()
    for module in (runtime, emitted, pipelines, sanitizer):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.digest()


_REFERRED = 1_000_000
"""Bytes of an array beyond which code holds its address, and Numba keeps none of that."""


def _told(value: Any) -> bytes | None:
    """The value of a constant as bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or value.nbytes > _REFERRED:
            return None
        return repr((value.dtype, value.shape, value.strides)).encode() + value.tobytes()
    if isinstance(value, bool | int | float | complex | str | np.generic | np.dtype | None):
        return repr((type(value), value)).encode()
    if isinstance(value, tuple):
        parts = [_told(v) for v in value]
        fields = repr(getattr(value, "_fields", "")).encode()
        return None if None in parts else fields + b"(" + b",".join(p for p in parts if p) + b")"
    if isinstance(value, ModuleType):
        return value.__name__.encode()
    if inspect.isclass(value) and value.__module__ in ("builtins", "numpy"):
        return value.__qualname__.encode()
    return None


_KNOWN = frozenset({"builtins", "math", "cmath", "random", "numba", "numpy", "tapegrad"})
"""Packages whose objects are told by their names: their versions, or their sources, are in every key."""


@functools.cache
def _package() -> bytes:
    """A hash of this package's source: all of it may say what an operation means on carriers."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def program_key(function: Any, *more: Any) -> str | None:
    """A hash of a Python function with all that it names, for code that is compiled from its bytecode; None where that cannot be told."""
    told = _told_program(function, {})
    if told is None:
        return None
    digest = hashlib.sha256(_surroundings() + _package() + told)
    digest.update(repr(more).encode())
    return digest.hexdigest()[:32]


def _is_known(value: Any) -> bool:
    """Whether an object is one of those packages' own, under its name: they also make objects from functions of the user's."""
    name = getattr(value, "__name__", None)
    if not isinstance(name, str) or not callable(value):
        return False
    module = getattr(value, "__module__", None) or type(value).__module__
    if module.split(".")[0] not in _KNOWN:
        return False
    places = [sys.modules.get(module), *_PLACES]
    return any(getattr(place, name, None) is value for place in places)


_PLACES = (np, np.linalg, np.random, math, cmath, numba)


def _is_overloaded(value: Any) -> bool:
    """Whether somebody else's `numba.extending.overload` says what a call of this function means."""
    context = cpu_target.typing_context
    context.refresh()  # what was registered since the last compilation
    try:
        templates = getattr(context.resolve_value_type(value), "templates", ())
    except Exception:  # Numba has no type for it
        return False
    made = [getattr(template, "_overload_func", None) for template in templates]
    return any(m is not None and m.__module__.split(".")[0] not in _KNOWN for m in made)


def _told_program(value: Any, seen: dict[int, bool]) -> bytes | None:
    """What a function names: constants by value, functions by their code and what they name in turn.

    `seen` holds the functions met, and whether all that they name has been told. A recursion cannot be kept: of a function that calls
    one which calls itself, Numba keeps code that jumps to no address in the next process.
    """
    if isinstance(value, ModuleType):
        return value.__name__.encode() if value.__name__.split(".")[0] in _KNOWN else None
    told = _told(value)
    if told is not None:
        return told
    if inspect.isclass(value):
        return None
    if hasattr(value, "vjp") and hasattr(value, "f"):  # a helper with the user's rule
        both = [_told_program(part, seen) for part in (value.f, value.vjp)]
        return None if None in both else b"rule" + b",".join(p for p in both if p)
    for holder in ("py_func", "dispatcher"):
        inner = getattr(value, holder, None)
        if inner is not None:
            chosen, body = _told_options(value), _told_program(inner, seen)
            return None if chosen is None or body is None else chosen + body
    if not inspect.isfunction(value):
        if not _is_known(value) or _is_overloaded(value):
            return None
        return f"{type(value).__qualname__} {value.__module__} {value.__name__}".encode()
    if _is_overloaded(value):
        return None
    if id(value) in seen:
        return b"again" if seen[id(value)] else None
    seen[id(value)] = False
    parts = [_told_code(value.__code__)]
    found = {n: value.__globals__[n] for n in looked_up(value) if n in value.__globals__}
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    try:
        found |= {n: cell.cell_contents for n, cell in cells}
    except ValueError:  # not bound yet
        return None
    found |= {f"default {k}": d for k, d in enumerate(value.__defaults__ or ())}
    for name, held in sorted(found.items()):
        told = _told_program(held, seen)
        if told is None:
            return None
        parts.append(name.encode() + b"=" + told)
    seen[id(value)] = True
    return b"(" + b",".join(parts) + b")"


def _told_options(dispatcher: Any) -> bytes | None:
    """What decides what the code of a jitted function means, beside that code."""
    compiled_by = getattr(getattr(dispatcher, "_compiler", None), "pipeline_class", None)
    if compiled_by is not None and compiled_by.__module__.split(".")[0] not in _KNOWN:
        return None
    options = sorted(getattr(dispatcher, "targetoptions", {}).items())
    fixed = not getattr(dispatcher, "_can_compile", True)  # it has the types it was declared with
    signatures = dispatcher.nopython_signatures if fixed else []
    return repr((options, getattr(dispatcher, "locals", None), compiled_by, signatures)).encode()


def looked_up(function: Any) -> set[str]:
    """Names of globals and attributes in a function's code, and in that of functions which it defines."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return names


def _told_code(code: CodeType) -> bytes:
    consts = [
        _told_code(c) if isinstance(c, CodeType) else repr((type(c), c)).encode()
        for c in code.co_consts
    ]
    facts = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    # Errors of compiled code tell lines.
    lines = Path(code.co_filename).name, code.co_firstlineno, code.co_linetable
    ranges = getattr(code, "co_exceptiontable", b"")
    return repr((code.co_code, code.co_argcount, facts, lines, ranges)).encode() + b",".join(consts)


def folder() -> Path | None:
    """The folder, made if need be; None where there can be none."""
    path = cache.folder() / "native"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not cache.is_ours(path.stat()):
            return None
    except OSError as error:
        handlers.hand_on(error)
        return None
    return path


def source_file(name: str, text: str, scope: dict[str, Any], options: Any) -> str | None:
    """The file that holds a generated function; None where it cannot be kept."""
    return file_of(name, text, key(text, scope, sorted(options.items())))


def file_of(name: str, text: str, found: str | None) -> str | None:
    """The file of a generated function whose key is known."""
    place = folder()
    if found is None or place is None:
        return None
    path, data = place / f"{name}_{found}.py", text.encode()
    with contextlib.suppress(OSError):
        if (
            cache.present(path) and path.read_bytes() == data
        ):  # it is only shown, but shown should be what runs
            os.utime(path)
            return str(path)
    _count()
    return str(path) if cache.write_file(path, data) else None


KEPT_BYTES = 1 << 28
"""Bytes of generated and compiled code that are kept on disk."""
_EVERY = 64
_written = 0


def _count() -> None:
    """Now and then, before something is written: see that there is not too much."""
    global _written
    if _written % _EVERY == 0:
        trim()
    _written += 1


def trim() -> None:
    """Remove what was not used for longest, where there is more than `KEPT_BYTES`."""
    place = folder()
    if place is None:
        return
    units: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in place.iterdir():
            if cache.present(path):
                units.setdefault(path.name.split(".")[0], []).append(path)
    cache.bound(units.values(), KEPT_BYTES)


def read_types(found: str | None) -> Any:
    """The types that were kept under a key; None if there are none."""
    data = _read("types", found)
    return None if data is None else _decoded(json.loads(data))


def write_types(found: str | None, kept: Any) -> None:
    """Keep types, in tuples, dicts, lists and sets with strings and numbers; nothing if one of them cannot be told in words."""
    told = _encoded(kept)
    if told is not None:
        _write("types", found, json.dumps(told).encode())


_NAMED = {str(kind): kind for kind in vars(types).values() if isinstance(kind, types.Type)}
"""Numba's types of which there is one: by what they are called."""


def _encoded(value: Any) -> Any:
    """A value as JSON: a list that begins with the name of its kind. None where it is of no kind that is known here."""
    if isinstance(value, types.Type):
        told = _encoded_type(value)
        return told if told is not None and _decoded(told) == value else None
    if isinstance(value, str | bool | int | None):
        return ["value", value]
    if isinstance(value, dict):
        parts = [_encoded(part) for pair in value.items() for part in pair]
    elif type(value) in (tuple, list, set):
        parts = list(map(_encoded, value))
    else:
        return None
    return None if None in parts else [type(value).__name__, *parts]


def _encoded_type(kind: types.Type) -> Any:
    if _NAMED.get(str(kind)) == kind:
        return ["type", str(kind)]
    if type(kind) is types.Array:
        of = _encoded(kind.dtype)
        return of and ["array", of, kind.ndim, kind.layout, not kind.mutable, kind.aligned]
    if type(kind) in (types.Tuple, types.UniTuple):
        parts = list(map(_encoded, kind.types))
        return None if None in parts else ["types", *parts]
    return None


def _decoded(told: Any) -> Any:
    """The value that `_encoded` told."""
    kind, *rest = told
    if kind == "value":
        return rest[0]
    if kind == "type":
        return _NAMED[rest[0]]
    if kind == "array":
        of, ndim, layout, readonly, aligned = rest
        return types.Array(_decoded(of), ndim, layout, readonly=readonly, aligned=aligned)
    parts = list(map(_decoded, rest))
    if kind == "dict":
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "types":
        return types.BaseTuple.from_types(parts)
    return {"tuple": tuple, "list": list, "set": set}[kind](parts)


def _read(kind: str, found: str | None) -> bytes | None:
    place = folder() if found else None
    if place is None:
        return None
    path = place / f"{kind}_{found}.bin"
    data = cache.content(path)
    if data is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return data


def _write(kind: str, found: str | None, data: bytes) -> None:
    place = folder() if found else None
    if place is not None:
        _count()
        cache.store(place / f"{kind}_{found}.bin", data)


class Frozen:
    """The globals and closure of a function as they were when Numba first compiled it, or a derivative of it was first made.

    Numba takes what a function names for constants of that moment. Value and gradient would be of two functions where they were
    compiled at two moments with a change between: so whatever is compiled later finds everything as it was, or is refused.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.held: dict[str, Any] | None = None
        self.busy = False

    def hold(self) -> None:
        """Take down what the function names; NotDifferentiable if it was taken down before and is other by now."""
        if self.busy:  # functions that call each other
            return
        now: dict[str, Any] = {}
        self.busy = True
        try:
            _freeze(self.function, now, set())
        finally:
            self.busy = False
        if self.held is None:
            self.held = now
            return
        changed = sorted(
            n for n in self.held.keys() & now.keys() if not _is_same(self.held[n], now[n])
        )
        if changed:
            name = getattr(self.function, "__name__", "a function")
            raise NotDifferentiable(
                f"{name} is to be compiled once more, for a derivative or for other arguments, but {changed[0]} has changed since its "
                "first compilation. Numba takes globals and variables of a closure for constants, so value and gradient would be of two "
                f"functions. Pass {changed[0].rpartition(' of ')[0] or changed[0]} as an argument, or make the function anew: "
                "tg.njit(f.py_func).",
                name="changed-since",
            )


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or (type(a) is bytes and a == b)


def _freeze(function: Any, found: dict[str, Any], seen: set[int]) -> None:
    """What a function names, and functions that it calls: numbers and arrays by value, everything else by identity."""
    if id(function) in seen or not inspect.isfunction(function):
        return
    seen.add(id(function))
    names = looked_up(function)
    values = {n: function.__globals__[n] for n in names if n in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            values[name] = cell.cell_contents
    for name, value in list(values.items()):
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _KNOWN:
            del values[name]
            held = vars(value)
            values |= {f"{name}.{n}": held[n] for n in names if n in held}
    where = "" if len(seen) == 1 else f" of {function.__name__}"
    for name, value in values.items():
        found[name + where] = _frozen_value(value)
        for holder in ("py_func", "dispatcher", "f"):
            inner = getattr(value, holder, None) if _is_jitted(value) else None
            kept = getattr(getattr(inner, "_cache", None), "frozen", None)
            kept = kept or getattr(getattr(value, "_cache", None), "frozen", None)
            if kept is not None and kept.function is not function and id(kept) not in seen:
                seen.add(id(kept))
                kept.hold()
            _freeze(getattr(inner, "py_func", inner), found, seen)
        if inspect.isfunction(value) and value.__module__.split(".")[0] not in _KNOWN:
            _freeze(value, found, seen)


def _is_jitted(value: Any) -> bool:
    return hasattr(value, "py_func") and not inspect.isclass(value)


def _frozen_value(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(
            np.ascontiguousarray(value).view(np.uint8).data if value.size else b""
        )
        return repr((value.dtype, value.shape)).encode() + digest.digest()
    if type(value) in (tuple, list):
        return tuple(map(_frozen_value, value))
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic | None):
        return repr((type(value), value)).encode()
    return value


def keeping(dispatcher: Any) -> Any:
    """A dispatcher of Numba's whose code is kept here, unless it is kept by Numba."""
    if isinstance(dispatcher._cache, NullCache):
        dispatcher._cache = Kept(dispatcher)
    return dispatcher


def keeping_generated(dispatcher: Any, file: str | None) -> Any:
    """The same for a generated function, whose key is in the name of its file; without a file it is not kept."""
    if file is not None:
        dispatcher._cache = _Generated(Path(file).stem.rpartition("_")[2])
    return dispatcher


class _Code:
    """Stands where a dispatcher of Numba's has its cache: finds code by a key of the program and by the types it is called with."""

    cache_path = None

    def _key(self, signature: Any) -> str | None:
        raise NotImplementedError

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Called before anything is compiled."""
        context.refresh()
        data = _read("code", self._key(signature))
        if data is None:
            return None
        try:
            return compiler.CompileResult._rebuild(context, *pickle.loads(data))
        except Exception as error:  # the code asks for what this process does not have
            handlers.hand_on(error)
            return None

    def save_overload(self, signature: Any, made: Any) -> None:
        if made.lifted or made.objectmode or made.library.has_dynamic_globals:
            return
        found = self._key(signature)
        if found is not None:
            try:
                data = serialize.dumps(made._reduce())
            except Exception as error:  # some parts cannot be written
                handlers.hand_on(error)
                return
            _write("code", found, data)

    def flush(self) -> None:
        """Code that is compiled again is kept under the same key."""


class _Generated(_Code):
    """Of a generated function: all that it depends on is in its key."""

    def __init__(self, found: str) -> None:
        self.found = found

    def _key(self, signature: Any) -> str | None:
        if not (isinstance(signature, tuple) and all(map(_is_plain, signature))):
            return None
        text = " ".join([self.found, *map(repr, signature)])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Kept(_Code):
    """Of a user's function: all that it names, at the moment when it is compiled."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = weakref.ref(dispatcher)  # which holds this as its cache
        self.frozen = Frozen(dispatcher.py_func)

    def _key(self, signature: Any) -> str | None:
        plain = isinstance(signature, tuple) and all(map(_is_plain, signature))
        return program_key(self._dispatcher(), *map(repr, signature)) if plain else None

    def load_overload(self, signature: Any, context: Any) -> Any:
        self.frozen.hold()
        return super().load_overload(signature, context)


def _is_plain(kind: Any) -> bool:
    """Whether the text of a type says all of it, in any process."""
    if isinstance(kind, types.Omitted):
        return _told(kind.value) is not None
    if isinstance(kind, types.Array):
        return isinstance(kind.dtype, types.Number | types.Boolean)
    if isinstance(kind, types.Tuple | types.UniTuple):
        return all(map(_is_plain, kind.types))
    return isinstance(kind, types.Number | types.Boolean | types.NoneType)
