"""Whose line is at work: the user's frames, among those of this package and of libraries that call the user's functions for it."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from opcode import opmap
from types import FrameType

_LIBRARIES = frozenset({"tapegrad", "numpy", "scipy", "optree", "functools", "contextlib"})
"""Packages whose lines are nobody's own: what a solver of SciPy's calls counts at the line that called the solver, or in its function."""

_PACKAGES = frozenset(("site-packages", "dist-packages"))
_PYTHONS = os.path.dirname(os.__file__) + os.sep
"""Folders of installed packages, and that of Python's own modules."""

_SEARCHES = frozenset(opmap[name] for name in ("CONTAINS_OP", "BINARY_SUBSCR") if name in opmap)

_COLLECTS = frozenset(opmap[name] for name in ("BUILD_SET", "SET_ADD", "SET_UPDATE"))
_MAKES_SETS = re.compile(rb"(set|frozenset|dict\.fromkeys|[\w.]+\.add)\(")


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs the user's code. Generated code may have no module; a doctest has that of what it documents."""
    file = frame.f_code.co_filename
    if file.startswith("<doctest"):
        return True
    module = frame.f_globals.get("__name__") or ""
    return module.partition(".")[0] not in ("", *_LIBRARIES) and not file.startswith("<tapegrad")


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs code that the user wrote, and no installed package's, which may tell arrays of several kinds apart."""
    return not _installed(frame.f_code.co_filename) and is_users(frame)


@cache
def _installed(file: str) -> bool:
    return file.startswith((_PYTHONS, "<frozen")) or not _PACKAGES.isdisjoint(
        file.replace("\\", "/").split("/")
    )


def users(frame: FrameType | None, until: FrameType | None = None) -> Iterator[FrameType]:
    """The user's frames from this one outwards, up to the frame `until`."""
    while frame is not None and frame is not until:
        if is_users(frame):
            yield frame
        frame = frame.f_back


def searches(frame: FrameType) -> bool:
    """Whether a line of the user's stands at `x in table` or `table[x]`."""
    return frame.f_code.co_code[frame.f_lasti] in _SEARCHES and is_users(frame)


def collects(frame: FrameType) -> bool:
    """Whether a line of the user's makes a set or counts of what it is hashing: `{t}`, `set(ts)`, `seen.add(t)`, `Counter(ts)`."""
    caller = frame.f_back
    if frame.f_globals.get("__name__") == "collections" and caller is not None:
        return frame.f_code.co_name in ("update", "subtract")
    if not is_users(frame):
        return False
    code = frame.f_code
    if code.co_code[frame.f_lasti] in _COLLECTS:
        return True
    line, _, column, _ = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if line is None or column is None:
        return False
    text = linecache.getline(code.co_filename, line, frame.f_globals).encode()[column:]
    return _MAKES_SETS.match(text) is not None


def dispatches_on(frame: FrameType, kind: type) -> bool:
    """Whether a frame is that of a function of `functools.singledispatch` for which the user has registered a class."""
    if frame.f_globals.get("__name__") != "functools":
        return False
    held = frame.f_locals
    dispatch = held.get("dispatch") or getattr(
        getattr(held.get("self"), "dispatcher", None), "dispatch", None
    )
    cells = getattr(dispatch, "__closure__", None) or ()
    names = dispatch.__code__.co_freevars if cells else ()
    return any(
        name == "registry" and kind in cell.cell_contents
        for name, cell in zip(names, cells, strict=True)
    )


def level_of_user() -> int:
    """Stack level for `warnings.warn`, seen from the caller, of the user's innermost frame, or else of the outermost frame."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_users(frame):
        level, frame = level + 1, frame.f_back
    return level
