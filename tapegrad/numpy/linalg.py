"""`numpy.linalg` for programs written for HIPS autograd: its functions record tensors by themselves."""

from __future__ import annotations

from typing import Any

import numpy as _np


def __getattr__(name: str) -> Any:
    """NumPy's function of that name."""
    return getattr(_np.linalg, name)


def __dir__() -> list[str]:
    return dir(_np.linalg)
