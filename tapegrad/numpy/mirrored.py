"""A submodule of NumPy's under tapegrad's name: tapegrad's functions where they have a derivative, NumPy's otherwise.

Only what the program asks for is looked up. Names of Python's own (`__path__`, which says that NumPy's submodule is a
package) are not mirrored: the import system would take the mirror for a package too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..core.primitive import FUNCTIONS


def mirror(
    theirs: ModuleType, ours: ModuleType
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module that stands for `theirs`."""

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {theirs.__name__!r} is mirrored without its {name}")
        found = getattr(theirs, name)
        return getattr(ours, name) if callable(found) and found in FUNCTIONS else found

    return attribute, lambda: dir(theirs)
