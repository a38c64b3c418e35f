"""Arguments as generated code takes them: tuples flattened, complex numbers in two parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def leaves_of(args: Any) -> list[Any]:
    """Arguments with tuples flattened."""
    found = []
    for a in args:
        found += leaves_of(a) if isinstance(a, tuple) else [a]
    return found


def real_leaves(args: Any) -> list[Any]:
    """The same as generated code takes them: complex ones in two parts."""
    found: list[Any] = []
    for a in leaves_of(args):
        if isinstance(a, complex | np.complexfloating):
            found += [float(a.real), float(a.imag)]
        elif isinstance(a, np.ndarray) and a.dtype.kind == "c":
            found += [np.ascontiguousarray(a.real), np.ascontiguousarray(a.imag)]
        else:
            found.append(a)
    return found


def joined(re: Any, im: Any) -> Any:
    """Complex numbers from their parts; re + 1j * im would multiply infinities by zero."""
    if not isinstance(re, np.ndarray):
        return complex(re, im)
    whole = np.empty(re.shape, np.complex128)
    whole.real, whole.imag = re, im
    return whole


def seeds_for(engine: Any, by_result: Mapping[int, Any]) -> tuple[Any, ...]:
    """Cotangents of results as the gradient of an engine takes them, from those by the result's position."""
    given: list[Any] = [None] * engine.seeds
    for i, at in enumerate(engine.seeded):
        if at is not None:
            given[at] = by_result[i]
    return tuple(given)
