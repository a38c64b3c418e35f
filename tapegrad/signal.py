"""`tg.signal`: convolutions, filters, spectra and resampling of signals that are differentiable, under SciPy's names.

`scipy.signal` itself does not ask tensors what to do. Windows are constants (`get_window`). Importing this module does not import
SciPy; the first call does.
"""

from __future__ import annotations

from .ops.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve
from .ops.recursions import filtfilt, lfilter, lfilter_zi, sosfilt, sosfilt_zi, sosfiltfilt
from .ops.spectra import (
    coherence,
    csd,
    detrend,
    get_window,
    hilbert,
    istft,
    periodogram,
    resample,
    resample_poly,
    savgol_filter,
    spectrogram,
    stft,
    upfirdn,
    welch,
)

__all__ = [
    "coherence",
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "filtfilt",
    "get_window",
    "hilbert",
    "istft",
    "lfilter",
    "lfilter_zi",
    "periodogram",
    "resample",
    "resample_poly",
    "savgol_filter",
    "sosfilt",
    "sosfilt_zi",
    "sosfiltfilt",
    "spectrogram",
    "stft",
    "upfirdn",
    "welch",
]


def __dir__() -> list[str]:
    return __all__
