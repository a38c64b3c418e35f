"""`tg.signal`: convolutions, filters, linear systems, spectra and resampling of signals that are differentiable, under SciPy's names.

`scipy.signal` itself does not ask tensors what to do. Windows are constants (`get_window`). Importing this module does not import
SciPy; the first call does.
"""

from __future__ import annotations

from .core import elsewhere
from .ops.convolutions import convolve, convolve2d, correlate, correlate2d, fftconvolve
from .ops.discrete_systems import (
    cont2discrete,
    dbode,
    dfreqresp,
    dimpulse,
    dlsim,
    dstep,
    ss2tf,
    ss2zpk,
    tf2ss,
    tf2zpk,
    zpk2ss,
)
from .ops.orders import medfilt, medfilt2d, order_filter
from .ops.recursions import filtfilt, lfilter, lfilter_zi, sosfilt, sosfilt_zi, sosfiltfilt
from .ops.responses import (
    bessel,
    bilinear,
    bilinear_zpk,
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
from .ops.state_space import bode, freqresp, freqs_zpk, impulse, lsim, step

__all__ = [
    "bessel", "bilinear", "bilinear_zpk", "bode", "butter", "cheby1", "cheby2", "chirp", "coherence", "cont2discrete",
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "czt", "dbode", "decimate", "deconvolve", "detrend",
    "dfreqresp", "dimpulse", "dlsim", "dstep", "ellip", "fftconvolve", "filtfilt", "firwin", "freqresp", "freqs", "freqs_zpk",
    "freqz", "freqz_sos", "freqz_zpk", "gausspulse", "get_window", "group_delay", "hilbert", "iirfilter", "impulse", "istft",
    "lfilter", "lfilter_zi", "lombscargle", "lsim", "medfilt", "medfilt2d", "oaconvolve", "order_filter", "periodogram",
    "resample", "resample_poly", "savgol_filter", "sosfilt", "sosfilt_zi", "sosfiltfilt", "sosfreqz", "spectrogram", "ss2tf",
    "ss2zpk", "step", "stft", "tf2ss", "tf2zpk", "upfirdn", "welch", "wiener", "zoom_fft", "zpk2ss", "zpk2tf",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
