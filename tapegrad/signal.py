"""`tg.signal`: convolutions, filters, spectra and resampling of signals that are differentiable, under SciPy's names.

`scipy.signal` itself does not ask tensors what to do. Windows are constants (`get_window`). Importing this module does not import
SciPy; the first call does.
"""

from __future__ import annotations

from .ops.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve
from .ops.recursions import filtfilt, lfilter, lfilter_zi, sosfilt, sosfilt_zi, sosfiltfilt
from .ops.responses import (
    bessel,
    butter,
    cheby1,
    cheby2,
    chirp,
    czt,
    decimate,
    deconvolve,
    ellip,
    firwin,
    freqs,
    freqz,
    freqz_sos,
    freqz_zpk,
    gausspulse,
    group_delay,
    iirfilter,
    lombscargle,
    oaconvolve,
    sosfreqz,
    wiener,
    zoom_fft,
    zpk2tf,
)
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
    "bessel",
    "butter",
    "cheby1",
    "cheby2",
    "chirp",
    "coherence",
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "czt",
    "decimate",
    "deconvolve",
    "detrend",
    "ellip",
    "fftconvolve",
    "filtfilt",
    "firwin",
    "freqs",
    "freqz",
    "freqz_sos",
    "freqz_zpk",
    "gausspulse",
    "get_window",
    "group_delay",
    "hilbert",
    "iirfilter",
    "istft",
    "lfilter",
    "lfilter_zi",
    "lombscargle",
    "oaconvolve",
    "periodogram",
    "resample",
    "resample_poly",
    "savgol_filter",
    "sosfilt",
    "sosfilt_zi",
    "sosfiltfilt",
    "sosfreqz",
    "spectrogram",
    "stft",
    "upfirdn",
    "welch",
    "wiener",
    "zoom_fft",
    "zpk2tf",
]


def __dir__() -> list[str]:
    return __all__
