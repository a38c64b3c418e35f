"""`numpy.linalg` for programs written for HIPS autograd: tapegrad's functions under its names, which take lists of tensors as well."""

from __future__ import annotations

from typing import Any

import numpy as _np

from .. import linalg as _ours
from ..primitive import FUNCTIONS as _FUNCTIONS


def __getattr__(name: str) -> Any:
    """tapegrad's function of that name where it has a derivative, or NumPy's."""
    numpys = getattr(_np.linalg, name)
    return getattr(_ours, name) if numpys in _FUNCTIONS else numpys


def __dir__() -> list[str]:
    return dir(_np.linalg)
