"""`tg.signal`: convolutions of arrays of any number of axes that are differentiable, under SciPy's names.

`scipy.signal` itself does not ask tensors what to do. `np.convolve` is there for sequences. Importing this module does not import
SciPy; the first call does.
"""

from __future__ import annotations

from .ops.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]
