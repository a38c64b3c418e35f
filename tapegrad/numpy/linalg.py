"""`numpy.linalg` for programs written for HIPS autograd: tapegrad's functions under its names, which take lists of tensors as well."""

from __future__ import annotations

import numpy as _np

from .. import linalg as _ours
from .mirrored import mirror as _mirror

__getattr__, __dir__ = _mirror(_np.linalg, _ours)
