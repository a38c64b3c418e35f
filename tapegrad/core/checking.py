"""Checked mode: generated code that verifies what it reads and writes. `TAPEGRAD_CHECK=1` turns it on for a process.

What is checked, by engine:

    tg.compile   each address that machine code reads or writes lies in the buffer that it was derived from (compiler/sanitizer.py);
                 scratch memory, results and residuals hold a *pattern* before they are used, and a load that finds it, or a result
                 that still holds it at the end of the call, is an error
    tg.njit      adjoints and tangents, and the primal that they run again, check the bounds of every index; arrays that they make
                 without values hold NaN of the pattern, and a derivative that still holds it is an error

Data: `PATTERNS`, bytes of an entry -> the bits that nobody's arithmetic makes (a signalling NaN of float64 and of float32, a byte that is
no boolean). Both engines raise CheckedAccessError, which says what was read or written, and where.

The variable is read once, when tapegrad is imported.

Invariant: caches on disk are keyed by the mode, so that neither kind of code is ever taken for the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "TAPEGRAD_CHECK"

PATTERNS = {8: 0x7FF4DEADBEEF5AFE, 4: 0x7FA4DEAD, 1: 0xA5}

_state = {"on": os.environ.get(VARIABLE, "") not in ("", "0")}


def on() -> bool:
    """Whether code that is generated now is checked."""
    return _state["on"]


def key() -> str:
    """What the mode adds to the key of a cache: nothing where it is off."""
    return "checked\n" if on() else ""


@contextmanager
def checked(value: bool = True) -> Iterator[None]:
    """Code that is generated inside is checked, or is not; for tests, since what was made before stays as it is."""
    before, _state["on"] = _state["on"], value
    try:
        yield
    finally:
        _state["on"] = before
