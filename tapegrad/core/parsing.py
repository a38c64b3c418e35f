"""Texts of Python as trees."""

from __future__ import annotations

import ast
import time
from typing import Any

TRIES = 10


def parsed(text: str, mode: str = "exec") -> Any:
    """The tree of a text, as `ast.parse` has it.

    CPython 3.11 and 3.12 count how deep a tree is in one number for all threads, and raise SystemError where two parse at once (kernels are
    made in another thread). Then the text is parsed again, after a pause in which the other thread may end.
    """
    for count in range(TRIES):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            time.sleep(1e-3 * count)
    return ast.parse(text, mode=mode)
