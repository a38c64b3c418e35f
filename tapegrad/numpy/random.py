"""`numpy.random` for programs written for HIPS autograd: NumPy's, untouched."""

from __future__ import annotations

from typing import Any

import numpy as _np


def __getattr__(name: str) -> Any:
    """NumPy's function of that name."""
    return getattr(_np.random, name)


def __dir__() -> list[str]:
    return dir(_np.random)
