"""Machine code: IR text to object code to functions in this process, and the entries by which Python calls them.

An entry is a METH_FASTCALL function written in IR. It checks that each argument is an array (or number) of just the type, dtype,
shape and layout that the program was made for, takes the addresses of their data, makes the results, runs the body and returns. Anything
else goes to a Python function that it knows as `slow`. So a call costs what its checks cost.

Invariants: the IR holds no address: all objects are imported symbols, so object code can be kept on disk. Code is
unmapped when the last callable that leads to it dies, since the built-in function owns it (`m_self`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core import headroom, locks, processor
from ..core.version import VERSION
from . import cache, modules
from .linker import ALWAYS, LinkError, builtin, linker_of_objects, numpy_api, resolve
from .objects import BASE, DATA, DESCR, DIMS, FLAGS, ND, WEAK, H

_lock = locks.rlock()
_state: dict[str, Any] = {}
_count = 0


def machine(optimised: bool = True, effort: int = 0) -> Any:
    """LLVM's description of this processor, with optimisation in code generation or without; one for each `effort`, as instruction
    selection notes in it how it was done last."""
    llvm = headroom.llvm()

    key = "machine", optimised, effort
    with _lock:
        if key not in _state:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _state[key] = llvm.Target.from_default_triple().create_target_machine(
                cpu=processor.name(),
                features=processor.features(),
                opt=2 if optimised else 0,
                reloc="pic",
                codemodel="small",
                jit=True,
            )
        return _state[key]


def lanes() -> int:
    """How many float64 fit one register of this processor."""
    if "lanes" not in _state:
        _state["lanes"] = processor.vector_bytes() // 8
    return _state["lanes"]


def linker() -> Any:
    """LLVM's linker for this process."""
    with _lock:
        if "jit" not in _state:
            machine()
            _state["jit"] = linker_of_objects()
        return _state["jit"]


LONG = 400_000
"""Characters of a function above which its module is compiled without optimisation, which would take much longer than in proportion."""

MOST = 4_000_000
"""Characters of a module above which it is cut into several (`compiled_in_parts`), or compiled without, too."""

PART = 1_000_000
"""Characters, about, of each of those."""

SHORT = 30_000
"""Characters of a function up to which it becomes part of the only one that calls it, so that a step's values stay in registers. Longer
functions, such as first turns that differ from those of a loop, would make one function that takes many times as long to compile."""


QUICK, STRAIGHT, USUAL, LOOPED, THOROUGH, VECTORISED = range(6)
"""How much LLVM does about a module: nothing, where it runs seldom; a few passes, and registers, but no order of instructions, for code
without loops that run long; a few passes; its pipeline of level 1, with steps of loops as part of
the loops; that of level 2, which takes longer and pays where many turns run long; the same with its vectoriser, for loops over numbers."""

LIMIT = VECTORISED
"""The most that LLVM does about any module. Tests of what programs compute lower it, as compiling would be half of their time."""

MOST_INLINED = 16
"""Calls of a function of one number in a module, above which it is not made part of what calls it."""

_PASSES = {
    QUICK: "always_inliner",
    STRAIGHT: "always_inliner sroa instruction_combine simplify_cfg",
    USUAL: "always_inliner sroa instruction_combine simplify_cfg",
}
"""Vectors, loops and what is computed outside of them are explicit in the text; LLVM's own pipelines (-O1 as -O2) take two to five
times as long for almost the same code. No `new_gvn`: its check of itself ends the process on some programs (LLVM 20 to 22), and twelve
programs ran in 0.95 to 1.07 of the time without. Loops of steps ran 1.24 times as long then; they have LLVM's pipeline, with another
value numbering, instead, which is as fast as before."""


def optimised(text: str, effort: int = USUAL) -> bytes:
    """Object code of IR text."""
    llvm = headroom.llvm()

    size = headroom.COMPILATION + headroom.PER_CHARACTER * len(text)
    headroom.demand(size, "compiling a program")
    with _lock, locks.compiling():
        effort = min(effort, _worthwhile(text))
        level = {QUICK: 0, LOOPED: 1}.get(effort, 2)
        target = machine(level > 0, min(effort, USUAL))
        text = _inlined(text) if effort == LOOPED else _called(text)
        module = llvm.parse_assembly(text)
        tuning = llvm.create_pipeline_tuning_options(speed_level=level)
        if effort >= LOOPED:
            # Vectors are explicit, but in programs that ask for LLVM's.
            tuning.loop_vectorization = effort == VECTORISED
            tuning.slp_vectorization = False
            builder = llvm.create_pass_builder(target, tuning)
            builder.getModulePassManager().run(module, builder)
            return _emitted(target, module, effort)
        builder = llvm.create_pass_builder(target, tuning)
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES[effort].split():
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)
        return _emitted(target, module, effort)


_KNOWN = range(20, 23)
"""Versions of LLVM that are known to take the options below again and again; others might end the process."""

_OPTIONS = {"disable-lsr": (1, 0)}
"""Options of code generation, and what they are for others. Addresses stay as they are written: to choose others takes LLVM an eighth of
its time, up to a quarter where a loop reads many arrays, and programs were as fast without (0.91 to 1.02 of the time, eleven of them)."""

_STRAIGHT = {"fast-isel": (1, 0), "disable-post-ra": (1, 0), "enable-misched": (0, 1)}
"""Those of straight code. 10,000 operations on numbers took 1.0 s instead of 2.3 s and ran as fast (26 us); with no optimisation they took
0.4 s and ran in 45 us."""


def _emitted(target: Any, module: Any, effort: int) -> bytes:
    """Object code of a module."""
    llvm = headroom.llvm()

    if llvm.llvm_version_info[0] not in _KNOWN:
        return target.emit_object(module)
    chosen = dict(_OPTIONS)
    if effort == STRAIGHT:
        chosen |= _STRAIGHT
    elif effort == QUICK:
        chosen["fast-isel"] = _STRAIGHT["fast-isel"]  # as LLVM has it there, until somebody says no
    try:
        for name, (ours, _) in chosen.items():
            llvm.set_option("tapegrad", f"-{name}={ours}")
        return target.emit_object(module)
    finally:
        # They hold for the whole process, Numba's code too.
        for name, (_, theirs) in chosen.items():
            llvm.set_option("tapegrad", f"-{name}={theirs}")


def _worthwhile(text: str) -> int:
    """The most that LLVM may do about a module in reasonable time."""
    if len(text) < LONG // 4:
        return VECTORISED
    longest = max(map(len, text.split("\ndefine ")))
    return QUICK if longest >= LONG or len(text) >= MOST else LOOPED


def _inlined(text: str) -> str:
    """The text, whose functions that are called at one place are to become part of it, if they are not long."""
    calls = Counter(re.findall(r" call [^@\n]*@([\w.]+)\(", text))

    def marked(found: re.Match[str]) -> str:
        head = found[0]
        once = calls[found[1]] == 1 and not re.search(r"\b(noinline|alwaysinline)\b", head)
        short = text.find("\n}", found.end()) - found.end() < SHORT
        return f"{head[:-1]}alwaysinline {{" if once and short else head

    return re.sub(r"^define internal [^@\n]*@([\w.]+)\([^\n]*\{$", marked, text, flags=re.M)


def _called(text: str) -> str:
    """The text, whose functions of one number that are called at many places stay functions: long blocks take long to compile."""
    calls = Counter(re.findall(r" call [^@\n]*@(tapegrad_\w+x1)\(", text))

    def marked(found: re.Match[str]) -> str:
        many = calls[found[1]] > MOST_INLINED
        return found[0].replace("alwaysinline", "noinline") if many else found[0]

    return re.sub(r"^define linkonce_odr [^@\n]*@(\w+)\([^\n]*\{$", marked, text, flags=re.M)


def compiled(text: str, effort: int = USUAL) -> cache.Part:
    """Object code of a module, from the cache if it is there; see `optimised`."""
    effort = min(effort, LIMIT)
    path = cache.path_of(
        "program", hashlib.sha256(f"{VERSION} {effort}\n{text}".encode()).hexdigest()
    )
    bundle = cache.read(path)
    if bundle is not None and bundle.parts:
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used go first
        return bundle.parts[0]
    code = optimised(text, effort)
    defined = set(re.findall(r"^define[^@]*@([\w.]+)\(", text, re.M))
    declared = set(re.findall(r"^declare[^@]*@([\w.]+)\(", text, re.M))
    declared |= set(re.findall(r"^@([\w.]+) = external", text, re.M))
    asks = sorted(s for s in declared - defined if not s.startswith("llvm."))
    part = cache.Part("program", "tg_entry", tuple(asks), code)
    global _written
    if cache.write(path, cache.Bundle((part,))):
        if _written % 64 == 0:
            bounded(path.parent)
        _written += 1
    return part


def compiled_in_parts(text: str, effort: int = USUAL) -> tuple[list[bytes], set[str]]:
    """Object code of a module, or of those that a long one is cut into, and the symbols that they ask of others."""
    texts = [text] if len(text) < MOST else modules.cut(text, PART, SHORT)
    parts = [compiled(part, effort) for part in texts]
    asks = {symbol for part in parts for symbol in part.asks}
    if len(parts) > 1:
        asks -= set(re.findall(r"^define[^@]*@([\w.]+)\(", text, re.M))
    return [part.code for part in parts], asks


KEPT_BYTES = 1 << 28
"""Bytes of programs' object code that are kept on disk."""

HOUR = 3600.0

_written = 0


def bounded(folder: Path) -> None:
    """Remove the programs that were not used for longest, where there are too many, and what a killed process left unfinished."""
    cache.bound(([file] for file in folder.glob("program-*.bin")), KEPT_BYTES)
    for file in folder.glob(".new-*"):
        with contextlib.suppress(OSError):  # another process may have removed it
            if file.stat().st_mtime < time.time() - HOUR:
                file.unlink()


class Library:
    """Linked object code, unmapped with this object; `release` is called before, to free what the code keeps."""

    __slots__ = ("addresses", "kept", "tracker")

    def __init__(
        self,
        codes: Sequence[bytes],
        exports: Sequence[str],
        imports: dict[str, int],
        asks: Iterable[str],
        kept: Any,
    ) -> None:
        """Link object code into the process: that of modules which may call each other. `addresses` holds the exports, `kept` what the code
        points to."""
        llvm = headroom.llvm()

        global _count
        headroom.demand(headroom.LINKING, "linking a program")
        with _lock, locks.compiling():
            builder = llvm.JITLibraryBuilder()
            for code in codes:
                builder.add_object_img(code)
            for symbol in exports:
                builder.export_symbol(symbol)
            for symbol, address in imports.items():
                builder.import_symbol(symbol, address)
            for symbol in {*asks, *ALWAYS} - imports.keys():
                found = resolve(symbol)
                if found is None:
                    raise LinkError(
                        f"a compiled program asks for {symbol}, which is not in this process."
                    )
                builder.import_symbol(symbol, found)
            _count += 1
            self.tracker = builder.link(linker(), f"tapegrad program {_count}")
            self.addresses = {symbol: self.tracker[symbol] for symbol in exports}
        self.kept = kept  # constants and objects that the code names

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        addresses = getattr(self, "addresses", {})
        if "tg_release" in addresses and not is_finalizing():  # globals may be gone by then
            ctypes.PYFUNCTYPE(None)(addresses["tg_release"])()


def entry_works() -> bool:
    """Whether entries may be used: whether Python's and NumPy's objects lie in memory as entries expect it."""
    if "works" not in _state:
        _state["works"] = _self_test()
    return _state["works"]


def _self_test() -> bool:
    """Read fields of objects at the places where entries read them, by ctypes, and compare."""
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if object.__basicsize__ != 16 or tuple.__basicsize__ != 24 or list.__basicsize__ != 40:
        return False
    array = np.arange(6.0).reshape(2, 3)
    number, plain = np.float64(2.5), 3.25
    pair, listed = (array, number), [array, number]

    def word(address: int) -> int:
        return ctypes.c_size_t.from_address(address).value

    at, seen = id(array), np.empty(1)
    reference = weakref.ref(seen)
    dims = word(at + DIMS)
    return (
        word(at + H - 8) == id(np.ndarray)
        and word(at + DATA) == array.ctypes.data
        and ctypes.c_int.from_address(at + ND).value == 2
        and (word(dims), word(dims + 8)) == (2, 3)
        and word(at + DESCR) == id(np.dtype(np.float64))
        and ctypes.c_int.from_address(at + FLAGS).value & 0x501 == 0x501
        and (word(at + BASE), word(id(seen) + BASE)) == (id(array.base), 0)
        and (word(at + WEAK), word(id(seen) + WEAK)) == (0, id(reference))
        and ctypes.c_double.from_address(id(number) + H).value == 2.5
        and ctypes.c_double.from_address(id(plain) + H).value == 3.25
        and (word(id(pair) + H), word(id(pair) + H + 8)) == (2, at)
        and (word(id(listed) + H), word(word(id(listed) + H + 8))) == (2, at)
    )


class Timer:
    """Seconds spent in the stages of a compilation."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._start
        self._start = now


__all__ = [
    "Library", "Timer", "builtin", "entry_works", "lanes", "machine", "numpy_api", "optimised",
]  # fmt: skip
