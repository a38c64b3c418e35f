"""Replay: a tape walked in reverse inside one nopython call, by compiled kernels.

The executor for warm processes. `replay(code, start, pending, leaves, watch, targets)` keeps the contract of `sweep.sweep`; the
two agree to a few ulp on every program. How it works, in the order of reading:

    layout      where CPython, NumPy and the machine keep things
    access, values, loops, adjoints, steps, lines, machine, calls     the machine itself: nopython code, imported only to compile
    kernels, vectors    a kernel's text, from a declared partial: for Numba, and as vector code
    shipped, shipping         the machine in LLVM's language, as the package has it, and how it is made
    builder, child    who compiles (object code, on disk and in a process without Numba, is `llvm`'s business)
    quick_loops       loops of vector code, for eager ops on large arrays
    selftest    why the layouts can be relied on
    bridge, executor          the machine as Python sees it, and the walk with its stops

Invariant: a warm process does not import Numba, and nothing here is needed for a correct gradient.
"""

from __future__ import annotations

from . import bridge, builder, shipped
from .bridge import declare_all, kernel_keys, load, request, status
from .executor import alive, begin, held, may_be_overwritten, replay, tail
from .kernels import source


def available() -> bool:
    """Whether replay can run in this process; `status()["machine"]` says why not."""
    return not (bridge.obstacle() or bridge.trouble)


def loaded() -> bool:
    """Whether the machine is in memory, so that walks and reference counts can be native."""
    return bridge.machine is not None


def ready() -> bool:
    """Whether the machine is in memory, and no kernel that is made in a moment is on its way: else a sweep is quicker."""
    return loaded() and not builder.awaited()


def patience() -> float:
    """Seconds of sweeps that are worth making the machine."""
    return 0.02 if shipped.fits() else 0.5


def live_bytes() -> int:
    """Bytes of adjoints that are allocated now, those that arrays took over included."""
    return bridge.machine.live_bytes if bridge.machine is not None else 0


__all__ = [
    "alive", "available", "begin", "declare_all", "held", "kernel_keys", "live_bytes", "load", "loaded", "may_be_overwritten",
    "patience", "ready", "replay", "request", "source", "status", "tail",
]  # fmt: skip
