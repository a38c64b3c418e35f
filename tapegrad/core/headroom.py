"""Whether there is room for a compiler, asked before it starts.

LLVM ends the process where the system refuses it memory, and a library that could be loaded by halves only is of no use any more. Under a
limit (`ulimit -v`, RLIMIT_AS, a batch system's) that must not happen: whoever is about to load or call a compiler asks here for several
times what the compiler takes, and gets a MemoryError in its place. Several times, since other threads may take the room in between.

The room is asked for as memory that is never touched (one call of the system there, one back): nothing is counted, so that every kind of
limit counts. Where the system has no such memory (Windows), there is room always.

Invariant: LLVM and Numba are loaded by `llvm` and `numba` only, or behind a call of them. SciPy is imported as usual, in a hundred places:
Python asks here.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

from . import handlers

MEGABYTE = 1 << 20

LIBRARY = 224 * MEGABYTE
"""What llvmlite may take as it is loaded: 155 MB were measured."""

NUMBA = 160 * MEGABYTE
"""What Numba may take as it is loaded and compiles for the first time: 120 MB were measured."""

TREES = 6 * MEGABYTE
"""What optree may take as it is loaded: 3 MB were measured."""

SCIPY = 256 * MEGABYTE
"""What SciPy may take as its linear algebra and its solvers are loaded: 205 MB were measured, most of them OpenBLAS's."""

PART = 64 * MEGABYTE
"""What another part of SciPy may take then: 21 MB were measured for `scipy.signal`."""

COMPILATION = 64 * MEGABYTE
"""What one compilation may take: 31 MB were measured for the first, then 1 to 4."""

PER_CHARACTER = 64
"""Bytes that LLVM may take for a character of a program's text: 4 to 20 were measured."""

LINKING = 24 * MEGABYTE
"""What linking a few functions may take."""


def room(size: int) -> bool:
    """Whether the process may have so many bytes more."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return True
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mmap.mmap(-1, size, flags=flags).close()
    except (OSError, MemoryError):
        return False
    return True


def demand(size: int, what: str) -> None:
    """Raise MemoryError unless the process may have so many bytes more."""
    if not room(size):
        raise MemoryError(
            f"{what} may take {size / MEGABYTE:.0f} MB, which this process may not have (ulimit -v, or its batch system's limit), and LLVM "
            "would end the process. Raise the limit, release arrays, or go without machine code: call the function itself, "
            'with tg.set_engine("sweep").'
        )


def optree() -> Any:
    """The library of trees. Raises MemoryError where there is no room to load it: a library that is loaded by halves is an ImportError."""
    if "optree" not in sys.modules and not room(TREES):
        raise MemoryError(
            f"loading optree may take {TREES / MEGABYTE:.0f} MB, which this process may not have (ulimit -v, or its batch system's "
            "limit). Raise the limit, or release arrays."
        )
    import optree

    return optree


class _OfScipy:
    """Asks for room as a part of SciPy is first imported, by whomever: OpenBLAS, refused memory, ends the process or asks for ever.

    It stands before the finders of modules and finds none, so that an import that is refused has left nothing behind.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise MemoryError where there is no room for the part of SciPy of this name."""
        package, _, part = name.partition(".")
        if (
            package != "scipy"
            or not part
            or "." in part
            or part.startswith("_")
            or part == "version"
        ):
            return
        size = PART if sys.modules.keys() & {"scipy.linalg", "scipy.special"} else SCIPY
        if not room(size):
            raise MemoryError(
                f"loading SciPy may take {size / MEGABYTE:.0f} MB, which this process may not have (ulimit -v, or its batch system's "
                "limit). Raise the limit, or release arrays."
            )


sys.meta_path.insert(0, _OfScipy())  # type: ignore[arg-type]


def llvm() -> Any:
    """llvmlite's binding of LLVM. Raises MemoryError where there is no room to load it."""
    if "llvmlite.binding" not in sys.modules:
        demand(LIBRARY, "loading LLVM")
    import llvmlite.binding

    return llvmlite.binding


def numba() -> None:
    """Load Numba, which from then on compiles only where there is room. Raises MemoryError where there is none to load it."""
    if _state["asking"]:
        return
    if "numba" not in sys.modules:
        demand(NUMBA, "loading Numba")
    llvm()
    with handlers.held_back():
        from numba.core import event

    class Asking(event.Listener):
        """Asks for room as a compilation begins."""

        def on_start(self, event: Any) -> None:
            demand(COMPILATION, "compiling by Numba")

        def on_end(self, event: Any) -> None: ...

    event.register("numba:compile", Asking())
    _state["asking"] = True


_state = {"asking": False}
