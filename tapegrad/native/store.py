"""Generated code on disk: a second process neither compiles it nor infers its types.

Sources lie in the folder "native" of the cache (see `tapegrad.replay.cache`), each under a name that holds a hash of all it depends on: its
text, the values of its constants, options, this package's runtime, versions and the processor. Numba keeps the
compiled code beside them, as it does for any function with `cache=True`; types are kept in files of the same kind. What overloading
compiles comes from the user's bytecode instead: its hash is of that, and of all it names (`program_key`).

The folder is bounded (`KEPT_BYTES`): what was not used for longest goes first. A source that is used again is left as it is, because Numba
compares its time with what it kept; the index beside it is touched instead.

Invariant: what depends on an object whose value cannot be told (a function of the user's, say) is not kept. A folder that
cannot be written to, or is somebody else's, means working without.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import pickle
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from ..replay import cache


def key(text: str, scope: dict[str, Any], *more: Any) -> str | None:
    """A hash of a generated text with what its names mean; None where that cannot be told."""
    from . import emitted, runtime

    digest = hashlib.sha256(cache.environment().encode())
    for module in (runtime, emitted):
        digest.update(Path(str(module.__file__)).read_bytes())
    digest.update(repr((text, *more)).encode())
    for name, value in sorted(scope.items()):
        if runtime.SCOPE.get(name) is value:
            continue
        told = _told(value)
        if told is None:
            return None
        digest.update(name.encode() + b"=" + told)
    return digest.hexdigest()[:32]


def _told(value: Any) -> bytes | None:
    """The value of a constant as bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return None
        return repr((value.dtype, value.shape, value.strides)).encode() + value.tobytes()
    if isinstance(value, bool | int | float | complex | str | np.generic | np.dtype | None):
        return repr((type(value), value)).encode()
    if isinstance(value, tuple):
        parts = [_told(v) for v in value]
        return None if None in parts else b"(" + b",".join(p for p in parts if p) + b")"
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
    told = _told_program(function, set())
    if told is None:
        return None
    digest = hashlib.sha256(cache.environment().encode() + _package() + told)
    digest.update(repr(more).encode())
    return digest.hexdigest()[:32]


def _told_program(value: Any, seen: set[int]) -> bytes | None:
    """What a function names: constants by value, functions by their code and what they name in turn."""
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
    for holder in ("py_func", "dispatcher"):  # a dispatcher's options decide what its code means
        inner = getattr(value, holder, None)
        if inner is not None:
            options = repr(sorted(getattr(value, "targetoptions", {}).items())).encode()
            body = _told_program(inner, seen)
            return None if body is None else options + body
    if not inspect.isfunction(value):
        package = (getattr(value, "__module__", None) or type(value).__module__).split(".")[0]
        name = getattr(value, "__name__", None)
        known = package in _KNOWN and isinstance(name, str) and callable(value)
        return f"{type(value).__qualname__} {package} {name}".encode() if known else None
    if id(value) in seen:
        return b"again"
    seen.add(id(value))
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
    return b"(" + b",".join(parts) + b")"


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
    return code.co_code + repr((code.co_argcount, facts)).encode() + b",".join(consts)


def folder() -> Path | None:
    """The folder, made if need be; None where there can be none."""
    path = cache.folder() / "native"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
    except OSError:
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
    path = place / f"{name}_{found}.py"
    if path.exists():
        for index in (place / "__pycache__").glob(f"{path.stem}.*.nbi"):
            with contextlib.suppress(OSError):
                os.utime(index)
        return str(path)
    _count()
    return str(path) if cache.write_file(path, text.encode()) else None


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
        for path in [*place.iterdir(), *(place / "__pycache__").iterdir()]:
            if path.is_file():
                units.setdefault(path.name.split(".")[0], []).append(path)
    cache.bound(units.values(), KEPT_BYTES)


def guarded(compiled: Any, file: str) -> Any:
    """A dispatcher that compiles anew where what Numba kept for it is damaged, instead of failing."""
    kept = compiled._cache
    load = kept.load_overload

    def load_overload(*args: Any) -> Any:
        try:
            return load(*args)
        except Exception:  # whatever unpickling half a file may raise
            for path in (Path(file).parent / "__pycache__").glob(f"{Path(file).stem}.*"):
                with contextlib.suppress(OSError):
                    path.unlink()
            return None

    kept.load_overload = load_overload
    return compiled


def read_types(found: str | None) -> Any:
    """The types that were kept under a key; None if there are none."""
    place = folder() if found else None
    if place is None:
        return None
    try:
        path = place / f"types_{found}.bin"
        kept = pickle.loads(path.read_bytes())
        os.utime(path)
        return kept
    except Exception:  # absent, damaged, or of another version: the same
        return None


def write_types(found: str | None, kept: Any) -> None:
    place = folder() if found else None
    if place is None:
        return
    with contextlib.suppress(Exception):  # some types of Numba cannot be written
        cache.write_file(place / f"types_{found}.bin", pickle.dumps(kept))
