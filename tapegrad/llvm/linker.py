"""The linker: object code into this process, by llvmlite alone.

A warm process never imports Numba: LLVM's JIT linker takes the stored object code and gives addresses. Every symbol the code
asks for is looked up first, since a missing one must make a kernel unavailable and nothing worse.

Invariant: linked code is never unloaded, so an address stays good for the life of the process.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import headroom, locks, processor
from . import assembly, named
from .cache import Part


class LinkError(Exception):
    """Object code that cannot be linked here; says why."""


@dataclass(frozen=True, slots=True)
class Module:
    """One function of the machine with its helpers, in LLVM's language."""

    role: str
    symbol: str
    asks: tuple[str, ...]
    """The symbols that it needs from outside."""
    loops: bool
    """Whether it has loops over elements that are worth LLVM's vectoriser, or sums that are to have several accumulators."""
    text: str

    def compile(self) -> tuple[str, bytes, list[str]]:
        """Symbol, the best object code for this processor, and the symbols it asks for; NotImplementedError where LLVM refuses."""
        try:
            code = assembly.compiled(self.text, vectorise=self.loops)
        except RuntimeError as error:
            raise NotImplementedError(f"LLVM does not take the shipped text: {error}") from None
        return self.symbol, code, list(self.asks)


raised: list[str] = []
"""Exceptions that a kernel tried to raise: kernels cannot, so the executor looks here after each stretch."""

_lock = locks.lock()
_kept: list[Any] = []
_jit: Any = None
_count = 0

_FLOATS = ctypes.c_int(0x9875)

# Symbols that code generation adds by itself: in code for Windows a word that says "there are floating-point numbers" (nobody reads it).
_ADDED = {"_fltused": ctypes.addressof(_FLOATS)} if sys.platform == "win32" else {}

ALWAYS = ("memcpy", "memset", "memmove", *_ADDED)
"""Symbols that code generation may add to those the code declares."""


@ctypes.PYFUNCTYPE(ctypes.py_object)
def _no_details() -> None:
    return None


@ctypes.PYFUNCTYPE(ctypes.c_int)
def _note() -> int:
    raised.append("a compiled rule raised an exception")
    return 0


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# Numba's own names, reached only if a rule raises.
_NUMBA = {
    "numba_gil_ensure": _address(ctypes.pythonapi.PyGILState_Ensure),
    "numba_gil_release": _address(ctypes.pythonapi.PyGILState_Release),
    "numba_unpickle": _address(_no_details),
    "numba_runtime_build_excinfo_struct": _address(_no_details),
    "numba_do_raise": _address(_note),
}


def _libraries() -> list[Any]:
    if sys.platform == "win32":
        return [ctypes.pythonapi, ctypes.CDLL("ucrtbase"), ctypes.CDLL("vcruntime140")]
    libraries = [ctypes.pythonapi, ctypes.CDLL(None)]
    from ctypes.util import find_library

    libm = find_library("m") if sys.platform == "darwin" else "libm.so.6"
    try:
        libraries.append(ctypes.CDLL(libm))
    except OSError:
        pass  # a C library that has its mathematics in one file with the rest
    return libraries


def resolve(name: str) -> int | None:
    """Address of a symbol of Python, libc, libm or SciPy (named.py); None where there is none."""
    if name in _NUMBA:
        return _NUMBA[name]
    if name in _ADDED:
        return _ADDED[name]
    if name.startswith((named.PREFIX, named.BLAS)):
        return named.address_of(name)
    for library in _loaded():
        try:
            return _address(getattr(library, name))
        except AttributeError:
            continue
    return None


def _loaded() -> list[Any]:
    if not hasattr(_loaded, "libraries"):
        _loaded.libraries = _libraries()  # type: ignore[attr-defined]
    return _loaded.libraries  # type: ignore[attr-defined]


_JIT_LINK = sys.platform != "win32"


def linker_of_objects() -> Any:
    """LLVM's linker: JITLink, which puts the code and constants of an object into one block.

    LLVM's older linker asks for memory section by section, and aborts the process where two that refer to each other come to lie
    more than 2 GB apart, as happens with large libraries in it. On Windows there is only that one.
    """
    llvm = headroom.llvm()

    return llvm.create_lljit_compiler(use_jit_link=_JIT_LINK)


def link(name: str, parts: Sequence[Part]) -> dict[str, int]:
    """Link functions into the process: role -> address. Raises LinkError."""
    global _jit, _count
    llvm = headroom.llvm()

    headroom.demand(headroom.LINKING, f"linking {name}")
    with _lock:
        if _jit is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _jit = linker_of_objects()
        builder = llvm.JITLibraryBuilder()
        for part in parts:
            builder.add_object_img(part.code).export_symbol(part.symbol)
        _import(builder, name, {symbol for part in parts for symbol in part.asks})
        _count += 1
        try:
            library = builder.link(_jit, f"tapegrad {_count} {name}")
        except RuntimeError as error:
            raise LinkError(f"the code of {name} cannot be linked: {error}") from None
        _kept.append(library)
        return {part.role: library[part.symbol] for part in parts}


def _import(builder: Any, name: str, asks: Iterable[str]) -> None:
    """Give code the symbols that it asks for; raises LinkError."""
    for symbol in {*asks, *ALWAYS}:
        address = resolve(symbol)
        if address is None:
            raise LinkError(f"the code of {name} asks for {symbol}, which is not in this process.")
        builder.import_symbol(symbol, address)


_AT_ONCE = 250_000
"""Characters of text that LLVM gets in one call: a twentieth of a second, for which the end of a script has to wait."""


def link_texts(
    name: str, modules: Sequence[Module], go_on: Callable[[], bool] = lambda: True
) -> dict[str, int]:
    """Compile shipped modules in a hurry, without optimising, and link them: role -> address. Raises LinkError, also where `go_on` ends it.

    Each call into LLVM gives up the interpreter's lock, and may wait 5 ms to have it back while a script computes. So there are few
    calls, in which LLVM parses modules, compiles them for any processor (which is quickest) and links them.
    """
    llvm = headroom.llvm()

    headroom.demand(headroom.COMPILATION, f"compiling {name}")
    header = assembly.header()
    plain = llvm.Target.from_default_triple().create_target_machine(
        cpu=processor.generic(), opt=0, reloc="pic", codemodel="small"
    )
    jit = llvm.create_lljit_compiler(plain, use_jit_link=_JIT_LINK)
    addresses: dict[str, int] = {}
    for number, together in enumerate(_batches(modules)):
        if not go_on():
            raise LinkError(f"{name} is not wanted any more")
        builder = llvm.JITLibraryBuilder()
        for module in together:
            builder.add_ir(header + module.text).export_symbol(module.symbol)
        _import(builder, name, {symbol for module in together for symbol in module.asks})
        with _lock:
            try:
                library = builder.link(jit, f"tapegrad {name} {number}")
            except RuntimeError as error:
                raise LinkError(f"the text of {name} cannot be compiled here: {error}") from None
            _kept.extend((jit, library))
        addresses |= {module.role: library[module.symbol] for module in together}
    return addresses


def _batches(modules: Sequence[Module]) -> list[list[Module]]:
    """The modules, in as few batches as have `_AT_ONCE` characters at most, unless a module alone has more."""
    batches: list[list[Module]] = []
    size = _AT_ONCE
    for module in modules:
        if size + len(module.text) > _AT_ONCE:
            batches.append([])
            size = 0
        batches[-1].append(module)
        size += len(module.text)
    return batches


# ------------------------------------------------------------------------------------------- built-in functions


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("method", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x0080 | 0x0002  # with keywords


def builtin(address: int, name: str, owner: Any) -> Callable[..., Any]:
    """A built-in function at an address, which keeps `owner` alive; `redirect` gives it another address."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    _definitions.setdefault(address, []).append(definition)
    # CPython reads the definition when the function is freed, which may be after the collector has cleared the definition.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return make(ctypes.addressof(definition), (owner, definition, definition.name), None)


_definitions: dict[int, list[_MethodDef]] = {}
"""What CPython reads a built-in function's address from at each call, by that address."""


def redirect(old: int, new: int) -> None:
    """Let the built-in functions at an address call another one, which does the same."""
    for definition in _definitions.pop(old, []):
        definition.method = new
        _definitions.setdefault(new, []).append(definition)


def numpy_api() -> dict[str, int]:
    """Addresses of what entries use of NumPy's C interface."""
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    table: Any = ctypes.cast(named.pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    places = {
        "PyArray_New": 93,
        "PyArray_NewCopy": 85,
        "PyArray_NewFromDescr": 94,
        "PyArray_Scalar": 60,
    }
    return {name: table[place] or 0 for name, place in places.items()}


def blas() -> dict[str, int]:
    """Addresses of BLAS's products of matrices, by way of SciPy; 0 where there is none (named.py)."""
    return {name: named.fortran(name, named.GEMM) for name in ("dgemm", "sgemm")}
