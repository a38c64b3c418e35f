"""The processor that machine code is made for: this one, or an older one that `TAPEGRAD_CPU` names.

Data: for each level the processor's name to LLVM and the features that it adds to the level before. Levels are those
of the x86-64 psABI; `generic` is what every processor of the architecture has. A test suite runs at several levels, and
a cache on a file system that several machines share can be made for the oldest of them.

Invariant: nothing else in the library asks LLVM for the processor or its features, so that replay's kernels, vector
functions, compiled programs and Numba's code are made for the same one, and every cache is keyed by `identity`.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

from . import headroom

VARIABLE = "TAPEGRAD_CPU"
NATIVE = "native"

_Levels = dict[str, tuple[str, tuple[str, ...]]]
_X86: _Levels = {
    "generic": ("x86-64", ("sse2",)),
    "x86-64-v2": ("x86-64-v2", ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")),
    "x86-64-v3": ("x86-64-v3", ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")),
    "x86-64-v4": ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
}
_ARM: _Levels = {"generic": ("generic", ("neon",))}


@cache
def level() -> str:
    """What `TAPEGRAD_CPU` asks for, `native` where it says nothing; ValueError where this processor cannot run that."""
    asked = os.environ.get(VARIABLE) or NATIVE
    if asked == NATIVE:
        return NATIVE
    levels = _levels()
    if asked not in levels:
        raise ValueError(
            f"{VARIABLE}={asked} was asked for, but machine code for {platform.machine()} is made at the levels "
            f"{', '.join([NATIVE, *levels])}. Set {VARIABLE} to one of them, or leave it out."
        )
    missing = [name for name in _features_of(asked) if not _host().get(name, False)]
    if missing:
        raise ValueError(
            f"{VARIABLE}={asked} was asked for, but this processor lacks {', '.join(missing)}, so that code would stop "
            f"the process. Set {VARIABLE} to a lower level, or leave it out."
        )
    return asked


def name() -> str:
    """The processor's name, as LLVM spells it."""
    llvm = headroom.llvm()

    return llvm.get_host_cpu_name() if level() == NATIVE else _levels()[level()][0]


def generic() -> str:
    """The name of a processor that has what every processor of this architecture has."""
    return _levels()["generic"][0] if _levels() else ""


def features() -> str:
    """The features that code may use, as LLVM spells them: `+avx2,+fma`."""
    llvm = headroom.llvm()

    if level() == NATIVE:
        return llvm.get_host_cpu_features().flatten()
    return ",".join(f"+{feature}" for feature in _features_of(level()))


def has(feature: str) -> bool:
    """Whether code may use a feature (LLVM's name for it)."""
    if level() == NATIVE:
        return bool(_host().get(feature, False))
    return feature in _features_of(level())


def vector_bytes() -> int:
    """The width of a vector register."""
    return 64 if has("avx512f") else 32 if has("avx2") else 16


def fuses() -> bool:
    """Whether there is a fused multiply-add."""
    return _is_arm() or has("fma")


def identity() -> tuple[str, str]:
    """What compiled code depends on: for the key of a cache."""
    return name(), features()


def limit_numba() -> None:
    """Have Numba make its code for the same processor, where one was named; before Numba compiles anything.

    What the user told Numba itself (`NUMBA_CPU_NAME`) stands.
    """
    if (os.environ.get(VARIABLE) or NATIVE) == NATIVE or os.environ.get("NUMBA_CPU_NAME"):
        return
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = identity()
    if "numba" in sys.modules:  # it has read the environment already
        from numba import config

        config.CPU_NAME, config.CPU_FEATURES = identity()


def _is_arm() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def _levels() -> _Levels:
    if _is_arm():
        return _ARM
    return _X86 if platform.machine().lower() in ("x86_64", "amd64") else {}


def _features_of(asked: str) -> tuple[str, ...]:
    """The features of a level and of all below it."""
    found: tuple[str, ...] = ()
    for known, (_, more) in _levels().items():
        found += more
        if known == asked:
            break
    return found


@cache
def _host() -> dict[str, bool]:
    llvm = headroom.llvm()

    return dict(llvm.get_host_cpu_features())
