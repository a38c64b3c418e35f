"""NumPy's names for programs written for HIPS autograd: `import tapegrad.numpy as np`, `from tapegrad import grad`.

Plain `import numpy as np` does as well: NumPy's own functions record tensors. What differs here are the few that NumPy gives no
hook, such as `np.array([t, u])` of tensors. A name that tapegrad does not know is NumPy's.
"""

from __future__ import annotations

import functools as _functools
from typing import Any

import numpy as _np

from .. import ops as _ops
from ..face import buffers as _buffers
from ..face import creation as _creation
from ..face.concatenators import c_ as c_
from ..face.concatenators import r_ as r_
from ..ops.composing import holds_tensor as _holds_tensor
from ..ops.joining import gathered as _joined
from . import fft as fft
from . import linalg as linalg
from . import random as random


@_functools.wraps(_np.full)
def _full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **settings: Any) -> Any:
    if _holds_tensor(fill_value):
        return _creation.full(shape, _joined(fill_value), dtype=dtype)
    return _np.full(shape, fill_value, dtype, *args, **settings)


_OURS = {
    **_ops.public_names(),
    **{name: _buffers.converting(name, lambda made, a: made) for name in _buffers.CONVERTERS},
    "full": _full,
}
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


__all__ = [name for name in __dir__() if not name.startswith("_")]
