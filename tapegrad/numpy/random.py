"""`numpy.random` for programs written for HIPS autograd: NumPy's, untouched."""

from __future__ import annotations

import numpy as _np

from .mirrored import mirror as _mirror

__getattr__, __dir__ = _mirror(_np.random, _np.random)
