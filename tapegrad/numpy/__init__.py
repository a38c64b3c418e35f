"""NumPy's names for programs written for HIPS autograd: `import tapegrad.numpy as np`, `from tapegrad import grad`.

Plain `import numpy as np` does as well: NumPy's own functions record tensors. What differs here are the few that NumPy gives no
hook, such as `np.array([t, u])` of tensors. A name that tapegrad does not know is NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as _np

from .. import ops as _ops
from . import fft as fft
from . import linalg as linalg
from . import random as random
from .concatenators import c_ as c_
from .concatenators import r_ as r_

_OURS = _ops.public_names()
_OWN_MEANING = {name for name in _OURS if not hasattr(_np, name)}
"""What tapegrad adds for PyTorch's sake (`mm`, `clamp`): no names of NumPy's."""


def __getattr__(name: str) -> Any:
    """tapegrad's function of that name, or NumPy's."""
    if name in _OURS and name not in _OWN_MEANING:
        return _OURS[name]
    try:
        return getattr(_np, name)
    except AttributeError:
        raise AttributeError(f"module 'numpy' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*dir(_np), "fft", "linalg", "random"})
