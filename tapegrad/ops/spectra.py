"""Spectra of signals: windowed segments and their Fourier transforms (`welch`, `csd`, `stft`, ...), trends, resampling, smoothing.

All are linear in the signal or products of what is, made of ops; windows and frequencies are constants. Segments are read by their
places, so that a sample in several of them gets the sum of their cotangents.

Invariant: without tensors SciPy's own function runs; else a signal is brought to floating point, its time axis last. SciPy is
imported when it is first needed.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.primitive import call, primitive
from ..errors import NotDifferentiable
from .calculus import inexact
from .composing import holds_tensor
from .indexing import scatter
from .recursions import _extended, filtered
from .stencils import NAMES, correlated, reach


def get_window(window: Any, Nx: int, fftbins: bool = True) -> np.ndarray:
    """A window by SciPy's name or (name, parameter), as a constant array.

    >>> import tapegrad as tg
    >>> tg.signal.get_window('hann', 4)
    array([0. , 0.5, 1. , 0.5])
    """
    from scipy import signal

    return signal.get_window(window, Nx, fftbins)


def _plainly(name: str, *args: Any, **kwargs: Any) -> Any:
    from scipy import signal

    return getattr(signal, name)(*args, **kwargs)


def detrend(
    data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: bool = False
) -> Any:
    """The signal without its mean ("constant"), or without the lines that fit it best between breakpoints ("linear").

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.signal.detrend(x, type="constant")[0])(np.zeros(4))
    array([ 0.75, -0.25, -0.25, -0.25])
    """
    if not holds_tensor(data):
        return _plainly("detrend", data, axis, type, bp, overwrite_data)
    if type not in ("linear", "l", "constant", "c"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    data = inexact(data)
    if type in ("constant", "c"):
        return data - np.mean(data, axis=axis, keepdims=True)
    axis = normalize_axis_index(axis, np.ndim(data))
    data = np.moveaxis(data, axis, -1)
    n = np.shape(data)[-1]
    if np.asarray(bp).dtype.kind not in "iu" and np.size(bp):
        raise TypeError(
            f"detrend was given bp={bp!r}, but these are places along the axis: write whole numbers."
        )
    breaks = np.unique(np.concatenate([np.atleast_1d(bp), [0, n]])).astype(int)
    if np.any(breaks > n):
        raise ValueError("Breakpoints must be less than length of data along given axis.")
    parts = []
    for start, stop in itertools.pairwise(breaks.tolist()):
        count = stop - start
        line = np.stack([np.arange(1, count + 1) / count, np.ones(count)], axis=1)
        q = np.linalg.qr(line)[0] if count > 1 else np.ones((1, 1))
        q = q.astype(np.real(np.zeros(0, data.dtype)).dtype)
        part = data[..., start:stop]
        parts.append(part - (part @ q) @ q.T)
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)


def hilbert(x: Any, N: int | None = None, axis: int = -1) -> Any:
    """The analytic signal of a real one: without negative frequencies, so that its real part is the signal.

    >>> import numpy as np, tapegrad as tg
    >>> envelope = lambda x: np.abs(tg.signal.hilbert(x))[0]
    >>> tg.grad(envelope)(np.cos(np.arange(4) * np.pi / 2)).round(3) + 0.0
    array([1., 0., 0., 0.])
    """
    if not holds_tensor(x):
        return _plainly("hilbert", x, N, axis)
    x = inexact(x)
    if x.dtype.kind == "c":
        raise ValueError("x must be real.")
    n = np.shape(x)[axis] if N is None else int(N)
    if n <= 0:
        raise ValueError("N must be positive.")
    kept = np.zeros(n, x.dtype)
    kept[0] = 1
    kept[1 : (n + 1) // 2] = 2
    if n % 2 == 0:
        kept[n // 2] = 1
    axis = normalize_axis_index(axis, np.ndim(x))
    shape = [1] * np.ndim(x)
    shape[axis] = n
    return np.fft.ifft(np.fft.fft(x, n, axis) * np.reshape(kept, shape), axis=axis)


# ------------------------------------------------------------------------------------------- segments and spectra


def _windowed(window: Any, nperseg: Any, n: int) -> np.ndarray:
    """The window as an array; one by name is at most as long as the signal."""
    if isinstance(window, str | tuple):
        nperseg = 256 if nperseg is None else int(nperseg)
        if nperseg < 1:
            raise ValueError("nperseg must be a positive integer")
        if nperseg > n:
            warnings.warn(
                f"nperseg = {nperseg} is greater than input length = {n}, using nperseg = {n}",
                stacklevel=4,
            )
            nperseg = n
        return get_window(window, nperseg)
    if holds_tensor(window):
        raise NotDifferentiable(
            "a spectrum was asked with a window that is a tensor, but windows are constants here. Pass window.detach().numpy(), or "
            "multiply the signal's segments yourself."
        )
    window = np.asarray(window)
    if window.ndim != 1:
        raise ValueError("window must be 1-D")
    if n < len(window):
        raise ValueError("window is longer than input signal")
    if nperseg is not None and int(nperseg) != len(window):
        raise ValueError("value specified for nperseg is different from length of window")
    return window


class _Plan:
    """How a spectrum cuts its signal: window, overlap, length of the transform, which half of it, and the scale of a power."""

    def __init__(
        self, n: int, fs: float, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any, onesided: bool,
        scaling: str, axis: int,
    ) -> None:  # fmt: skip
        """Lengths, window and scale of the segments of a signal with `n` entries, as SciPy chooses them."""
        self.window = _windowed(window, nperseg, n)
        size = self.size = len(self.window)
        self.nfft = size if nfft is None else int(nfft)
        if self.nfft < size:
            raise ValueError("nfft must be greater than or equal to nperseg.")
        overlap = size // 2 if noverlap is None else int(noverlap)
        if overlap >= size:
            raise ValueError("noverlap must be less than nperseg.")
        self.step, self.fs, self.onesided, self.detrend, self.axis = size - overlap, fs, onesided, detrend, axis  # fmt: skip
        if scaling not in ("density", "spectrum"):
            raise ValueError(f"Unknown scaling: {scaling!r}")
        square = np.sum(np.abs(self.window) ** 2)
        total = abs(np.sum(self.window)) ** 2
        self.scale = 1.0 / float(fs * square if scaling == "density" else total)

    @property
    def frequencies(self) -> np.ndarray:
        return (np.fft.rfftfreq if self.onesided else np.fft.fftfreq)(self.nfft, 1 / self.fs)

    def transformed(self, x: Any) -> Any:
        """Fourier transforms of the segments (..., segments, frequencies) of a signal whose last axis is time."""
        starts = np.arange(0, np.shape(x)[-1] - self.size + 1, self.step)
        parts = x[..., starts[:, None] + np.arange(self.size)]
        if callable(self.detrend):
            parts = self.detrend(parts)
        elif self.detrend:
            parts = detrend(parts, type=self.detrend)
        real = np.real(np.zeros(0, x.dtype)).dtype
        complex_window = self.window.dtype.kind == "c"
        parts = parts * self.window.astype(
            np.result_type(real, np.complex64) if complex_window else real
        )
        return (np.fft.rfft if self.onesided else np.fft.fft)(parts, self.nfft)

    def doubled(self, power: Any) -> Any:
        """Powers of which half a spectrum stands for two, but for the first and (of an even transform) the last."""
        if not self.onesided:
            return power
        factor = np.full(np.shape(power)[-1], 2.0, np.real(np.zeros(0, power.dtype)).dtype)
        factor[0] = 1.0
        if self.nfft % 2 == 0:
            factor[-1] = 1.0
        return power * factor


def _crossed(x: Any, y: Any, plan: _Plan) -> Any:
    """Powers of all segments (..., frequencies, segments)."""
    left = plan.transformed(x)
    if y is x:
        power = np.real(left) ** 2 + np.imag(left) ** 2
    else:
        power = np.conj(left) * plan.transformed(y)
    return np.swapaxes(plan.doubled(power * plan.scale), -1, -2)


def _averaged(power: Any, average: str) -> Any:
    """Means, or medians without bias, over the segments (the last axis)."""
    if average not in ("mean", "median"):
        raise ValueError(f"average must be 'median' or 'mean', got {average}")
    count = np.shape(power)[-1]
    if average == "mean" or count == 1:
        return np.mean(power, axis=-1)
    even = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + np.sum(1.0 / (even + 1) - 1.0 / even)
    if power.dtype.kind != "c":
        return np.median(power, axis=-1) / bias
    return (np.median(np.real(power), axis=-1) + 1j * np.median(np.imag(power), axis=-1)) / bias


def _same_length(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    """Two signals with time last, the shorter one with zeros behind it."""
    x, y = (np.moveaxis(inexact(v), axis, -1) for v in (x, y))
    n = max(np.shape(x)[-1], np.shape(y)[-1])

    def longer(v: Any) -> Any:
        missing = n - np.shape(v)[-1]
        return np.concatenate([v, np.zeros((*np.shape(v)[:-1], missing), v.dtype)], axis=-1) if missing else v  # fmt: skip

    return longer(x), longer(y)


def csd(
    x: Any, y: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """Frequencies and the cross spectral density of two signals by Welch's method; differentiable by both.

    >>> import numpy as np, tapegrad as tg
    >>> f, p = tg.signal.csd(tg.ones(8), np.arange(8.0), nperseg=4)
    >>> f
    array([0.  , 0.25, 0.5 ])
    """
    settings = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)  # fmt: skip
    if not holds_tensor((x, y, window)):
        return _plainly("csd", x, y, *settings)
    same = y is x
    left, right = _same_length(x, y, axis)
    right = left if same else right
    onesided = return_onesided and left.dtype.kind != "c" and right.dtype.kind != "c"
    plan = _Plan(np.shape(left)[-1], fs, window, nperseg, noverlap, nfft, detrend, onesided, scaling, axis)  # fmt: skip
    return plan.frequencies, np.moveaxis(_averaged(_crossed(left, right, plan), average), -1, axis)


def welch(
    x: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """Frequencies and the power spectral density of a signal by Welch's method; differentiable by the signal.

    >>> import numpy as np, tapegrad as tg
    >>> mean_square = lambda x: tg.signal.welch(x, window="boxcar", nperseg=4, detrend=False)[1].sum() / 4
    >>> tg.grad(mean_square)(np.ones(4))
    array([0.5, 0.5, 0.5, 0.5])
    """
    return csd(x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)  # fmt: skip


def periodogram(
    x: Any, fs: float = 1.0, window: Any = "boxcar", nfft: int | None = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """Frequencies and the power spectral density of the whole signal; differentiable by the signal.

    >>> import tapegrad as tg
    >>> f, p = tg.signal.periodogram(tg.tensor([1.0, -1.0, 1.0, -1.0]))
    >>> f
    array([0.  , 0.25, 0.5 ])
    """
    if not holds_tensor((x, window)):
        return _plainly("periodogram", x, fs, window, nfft, detrend, return_onesided, scaling, axis)
    x = np.moveaxis(inexact(x), axis, -1)
    if nfft is not None and nfft < np.shape(x)[-1]:
        x, nfft = x[..., :nfft], None
    n = np.shape(x)[-1]
    if np.ndim(window) and not isinstance(window, tuple) and np.shape(window) != (n,):
        raise ValueError("the size of the window must be the same size of the input on the specified axis")  # fmt: skip
    window = "boxcar" if window is None else window
    f, power = welch(x, fs, window, n, 0, nfft, detrend, return_onesided, scaling)
    return f, np.moveaxis(power, -1, axis)


def coherence(
    x: Any, y: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", axis: int = -1,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """Frequencies and how much of the power of two signals is common, from 0 to 1; differentiable by both.

    >>> import numpy as np, tapegrad as tg
    >>> f, c = tg.signal.coherence(tg.arange(8.0) ** 2, np.arange(8.0) ** 3, nperseg=4)
    >>> f
    array([0.  , 0.25, 0.5 ])
    """
    settings = (fs, window, nperseg, noverlap, nfft, detrend)
    if not np.ndim(x) or not np.ndim(y):
        raise ValueError(
            "coherence takes signals, which have at least one axis, but a number was given."
        )
    if not holds_tensor((x, y, window)):
        return _plainly("coherence", x, y, *settings, axis)
    f, own = welch(x, *settings, axis=axis)
    other = welch(y, *settings, axis=axis)[1]
    both = csd(x, y, *settings, axis=axis)[1]
    return f, (np.real(both) ** 2 + np.imag(both) ** 2) / own / other


def stft(
    x: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = 256, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1, scaling: str = "spectrum",
) -> tuple[np.ndarray, np.ndarray, Any]:  # fmt: skip
    """Frequencies, times and the short-time Fourier transform of a signal; differentiable by the signal.

    >>> import numpy as np, tapegrad as tg
    >>> loud = lambda x: np.sum(np.abs(tg.signal.stft(x, nperseg=4)[2]) ** 2)
    >>> tg.grad(loud)(np.ones(4))
    array([1.5  , 0.875, 1.5  , 0.875])
    """
    settings = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, boundary, padded, axis, scaling)  # fmt: skip
    if not holds_tensor((x, window)):
        return _plainly("stft", x, *settings)
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    if boundary not in ("even", "odd", "constant", "zeros", None):
        raise ValueError(f"Unknown boundary option {boundary!r}, must be one of: even, odd, constant, zeros, None")  # fmt: skip
    x = np.moveaxis(inexact(x), axis, -1)
    onesided = return_onesided and x.dtype.kind != "c"
    kind = "density" if scaling == "psd" else "spectrum"
    plan = _Plan(np.shape(x)[-1], fs, window, nperseg, noverlap, nfft, detrend, onesided, kind, axis)  # fmt: skip
    edge = plan.size // 2
    if boundary == "zeros":
        zeros = np.zeros((*np.shape(x)[:-1], edge), x.dtype)
        x = np.concatenate([zeros, x, zeros], axis=-1)
    elif boundary is not None:
        x = _extended(x, boundary, edge, 0)[1]
    if padded:
        missing = (-(np.shape(x)[-1] - plan.size) % plan.step) % plan.size
        x = np.concatenate([x, np.zeros((*np.shape(x)[:-1], missing), x.dtype)], axis=-1)
    z = np.swapaxes(plan.transformed(x) * math.sqrt(plan.scale), -1, -2)
    half = plan.size / 2
    times = np.arange(half, np.shape(x)[-1] - half + 1, plan.step) / float(fs)
    if boundary is not None:
        times = times - half / fs
    return plan.frequencies, times, np.moveaxis(z, -2, axis - 1 if axis < 0 else axis)


def spectrogram(
    x: Any, fs: float = 1.0, window: Any = ("tukey", 0.25), nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, mode: str = "psd",
) -> tuple[np.ndarray, np.ndarray, Any]:  # fmt: skip
    """Frequencies, times and powers ("psd"), magnitudes or complex values of consecutive segments; differentiable by the signal.

    >>> import tapegrad as tg
    >>> f, times, s = tg.signal.spectrogram(tg.ones(16), nperseg=4, noverlap=0)
    >>> s.shape
    (3, 4)
    """
    settings = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, mode)
    if not holds_tensor((x, window)):
        return _plainly("spectrogram", x, *settings)
    if mode not in ("psd", "complex", "magnitude"):
        raise NotDifferentiable(
            f"spectrogram(mode={mode!r}) was asked of tensors, but it has a rule for 'psd', 'complex' and 'magnitude' only. Take np.angle "
            "of the complex values."
        )
    x = np.moveaxis(inexact(x), axis, -1)
    n = np.shape(x)[-1]
    onesided = return_onesided and x.dtype.kind != "c"
    window = _windowed(window, nperseg, n)
    noverlap = len(window) // 8 if noverlap is None else noverlap
    plan = _Plan(n, fs, window, None, noverlap, nfft, detrend, onesided, scaling, axis)
    if mode == "psd":
        z = _crossed(x, x, plan)
    else:
        z = np.swapaxes(plan.transformed(x) * math.sqrt(plan.scale), -1, -2)
        z = np.abs(z) if mode == "magnitude" else z
    half = plan.size / 2
    times = np.arange(half, n - half + 1, plan.step) / float(fs)
    return plan.frequencies, times, np.moveaxis(z, -2, axis - 1 if axis < 0 else axis)


def istft(
    Zxx: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2, scaling: str = "spectrum",
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """Times and the signal whose short-time Fourier transform is `Zxx`, by overlapping and adding; differentiable by `Zxx`.

    >>> import numpy as np, tapegrad as tg
    >>> x = tg.tensor(np.sin(np.arange(64.0)))
    >>> _, _, z = tg.signal.stft(x, nperseg=16)
    >>> np.allclose(tg.signal.istft(z, nperseg=16)[1], x)
    True
    """
    settings = (fs, window, nperseg, noverlap, nfft, input_onesided, boundary, time_axis, freq_axis, scaling)  # fmt: skip
    if not holds_tensor((Zxx, window)):
        return _plainly("istft", Zxx, *settings)
    z = inexact(Zxx)
    if np.ndim(z) < 2:
        raise ValueError("Input stft must be at least 2d!")
    axes = range(np.ndim(z))
    time_axis, freq_axis = axes[time_axis], axes[freq_axis]
    if time_axis == freq_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = np.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    count, bins = np.shape(z)[-2:]
    natural = 2 * (bins - 1) if input_onesided else bins
    size = natural if nperseg is None else int(nperseg)
    if size < 1:
        raise ValueError("nperseg must be a positive integer")
    if nfft is None:
        nfft = size if input_onesided and size == natural + 1 else natural
    elif nfft < size:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    overlap = size // 2 if noverlap is None else int(noverlap)
    if overlap >= size:
        raise ValueError("noverlap must be less than nperseg.")
    step = size - overlap
    win = get_window(window, size) if isinstance(window, str | tuple) else np.asarray(window)
    if win.shape != (size,):
        raise ValueError(f"window must have length of {size}")
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    scale = np.sum(win) if scaling == "spectrum" else np.sqrt(fs * np.sum(win**2))
    parts = (np.fft.irfft if input_onesided else np.fft.ifft)(z, nfft)[..., :size]
    places = step * np.arange(count)[:, None] + np.arange(size)
    length = size + (count - 1) * step
    shape = (*np.shape(parts)[:-2], length)
    x = scatter(parts * (win * scale), (Ellipsis, places), shape)
    norm = np.bincount(places.ravel(), np.tile(win**2, count), length)
    if boundary:
        inner = slice(size // 2, length - size // 2)
        x, norm = x[..., inner], norm[inner]
    covered = norm > 1e-10
    if not covered.all():
        hint = "" if boundary else " Possibly due to missing boundary"
        warnings.warn(f"NOLA condition failed, STFT may not be invertible.{hint}", stacklevel=2)
    x = x / np.where(covered, norm, 1.0)
    x = np.moveaxis(x, -1, time_axis - (freq_axis < time_axis))
    return np.arange(np.shape(x)[0]) / float(fs), x


# ---------------------------------------------------------------------------------------------------- resampling


def resample(
    x: Any, num: int, t: Any = None, axis: int = 0, window: Any = None, domain: str = "time"
) -> Any:
    """A signal sampled at `num` places by its Fourier transform; differentiable by the signal.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.signal.resample(x, 8)[2])(np.zeros(4)).round(12)
    array([0., 1., 0., 0.])
    """
    if not holds_tensor(x):
        return _plainly("resample", x, num, t, axis, window, domain)
    if domain not in ("time", "freq"):
        raise ValueError(f"Parameter domain={domain!r} not in ('time', 'freq')!")
    x = np.moveaxis(inexact(x), axis, -1)
    real = x.dtype.kind != "c" and domain == "time"
    n = np.shape(x)[-1]
    spectrum = np.fft.fft(x) if domain == "time" else x
    if window is not None:
        if callable(window):
            w = window(np.fft.fftfreq(n))
        elif hasattr(window, "shape"):
            if window.shape != (n,):
                raise ValueError(f"window.shape={window.shape} != ({n},), i.e., window length is not equal to number of frequency bins!")  # fmt: skip
            w = np.array(window, float)
        else:
            w = np.fft.fftshift(get_window(window, n))
        if real:  # a window that is not symmetric would make a real signal complex
            w = np.concatenate([w[:1], (w[1:] + w[:0:-1]) / 2])
        spectrum = spectrum * w
    kept = min(num, n)
    low = kept // 2 + 1
    parts = [spectrum[..., :low]]
    lead = np.shape(spectrum)[:-1]
    high = spectrum[..., n - (kept - low) :] if kept > low else spectrum[..., :0]
    if kept % 2 == 0 and num != n:  # the frequency in the middle stands for two, or two for it
        middle = spectrum[..., low - 1 : low]
        if num < n:
            parts = [spectrum[..., : low - 1], middle + spectrum[..., n - kept // 2 : n - kept // 2 + 1]]  # fmt: skip
        else:
            parts = [spectrum[..., : low - 1], middle / 2]
            high = np.concatenate([middle / 2, high], axis=-1)
    filled = sum(np.shape(p)[-1] for p in parts) + np.shape(high)[-1]
    parts += [np.zeros((*lead, num - filled), spectrum.dtype), high]
    found = np.fft.ifft(np.concatenate(parts, axis=-1) * (num / n))
    found = np.moveaxis(np.real(found) if real else found, -1, axis)
    return found if t is None else (found, t[0] + (t[1] - t[0]) * n / num * np.arange(num))


def _upfirdn(x: np.ndarray, h: Any, up: int, down: int) -> np.ndarray:
    from scipy import signal

    single = x.dtype.char in "fF"
    taps = np.asarray(h)
    if single:
        taps = taps.astype(np.complex64 if taps.dtype.kind == "c" else np.float32)
    return signal.upfirdn(taps, x, up, down)


_TAPS = (0.5, -1.0, 2.0)


@primitive(
    _upfirdn,
    name="upfirdn",
    linear=True,
    samples=[
        call((4,), h=_TAPS, up=1, down=1),
        call((2, 5), h=_TAPS, up=3, down=2),
        call((4,), h=_TAPS, up=1, down=4),
        call((1,), h=_TAPS, up=2, down=3),
        call((3,), h=(1.5,), up=3, down=1),
    ],
)
def sampled(g, x_shape, *, h, up, down):
    """Zeros put between the samples, a filter, and every so many of the results, along the last axis (Crochiere 1979)."""
    # x̄[i] = Σⱼ h[j down - i up] ḡ[j]: the same with the rates exchanged and the filter reversed, a part of it.
    n, taps = x_shape[-1], len(h)
    padded = (0.0,) * ((-(taps - 1)) % up) + tuple(h[::-1])
    first = (len(padded) - 1) // up
    found = sampled(g, tuple(np.conj(padded)), down, up)
    missing = first + n - np.shape(found)[-1]
    if missing > 0:
        zeros = np.zeros((*np.shape(found)[:-1], missing), found.dtype)
        found = np.concatenate([found, zeros], axis=-1)
    return found[..., first : first + n]


def upfirdn(h: Any, x: Any, up: int = 1, down: int = 1, axis: int = -1, mode: str = "constant", cval: float = 0) -> Any:  # fmt: skip
    """Upsample, filter by h and downsample; differentiable by both. Zeros stand beyond the signal's ends.

    >>> import tapegrad as tg
    >>> tg.signal.upfirdn([1.0, 1.0], tg.tensor([1.0, 2.0]), up=2)
    tensor([1., 1., 2., 2.])
    """
    if not holds_tensor((h, x)):
        return _plainly("upfirdn", h, x, up, down, axis, mode, cval)
    if mode != "constant" or cval:
        raise NotDifferentiable(
            f"upfirdn was asked for mode={mode!r} and cval={cval} of a tensor, but only zeros beyond the ends have a rule. Extend the signal "
            "with np.pad."
        )
    taps = inexact(h)
    if np.ndim(taps) != 1 or not np.shape(taps)[0]:
        raise ValueError("h must be 1-D with non-zero length")
    if up < 1 or down < 1:
        raise ValueError("Both up and down must be >= 1")
    x = np.moveaxis(inexact(x), axis, -1)
    x = x.astype(np.result_type(x.dtype, taps.dtype))
    if holds_tensor(h):
        n = np.shape(x)[-1]
        whole = (*np.shape(x)[:-1], (n - 1) * up + np.shape(taps)[0] if n else 0)
        between = scatter(x, (Ellipsis, up * np.arange(n)), whole)
        return np.moveaxis(filtered([taps, np.ones(1, x.dtype), between])[..., ::down], -1, axis)
    return np.moveaxis(sampled(x, tuple(taps.tolist()), int(up), int(down)), -1, axis)


_BACKGROUNDS: dict[str, Callable[..., Any]] = {
    "mean": np.mean, "median": np.median, "minimum": np.min, "maximum": np.max,
}  # fmt: skip


def resample_poly(
    x: Any, up: int, down: int, axis: int = 0, window: Any = ("kaiser", 5.0), padtype: str = "constant",
    cval: float | None = None,
) -> Any:  # fmt: skip
    """A signal sampled up / down times as often, by a low-pass filter in its polyphase form; differentiable by the signal.

    >>> import tapegrad as tg
    >>> tg.signal.resample_poly(tg.ones(4), 1, 2).shape
    (2,)
    """
    if not holds_tensor(x):
        return _plainly("resample_poly", x, up, down, axis, window, padtype, cval)
    from scipy.signal import firwin

    if up != int(up) or down != int(down) or up < 1 or down < 1:
        raise ValueError("up and down must be integers >= 1")
    if cval is not None and padtype != "constant":
        raise ValueError("cval has no effect when padtype is ", padtype)
    if padtype not in ("constant", *_BACKGROUNDS) or cval:
        raise NotDifferentiable(
            f"resample_poly was asked for padtype={padtype!r} and cval={cval} of a tensor, but beyond the ends only zeros, mean, median, "
            "minimum and maximum have a rule. Extend the signal with np.pad."
        )
    common = math.gcd(int(up), int(down))
    up, down = int(up) // common, int(down) // common
    x = np.moveaxis(inexact(x), axis, -1)
    if up == down == 1:
        return np.moveaxis(x, -1, axis) * 1.0
    n = np.shape(x)[-1]
    wanted = -(-n * up // down)
    if isinstance(window, str | tuple):
        half = 10 * max(up, down)
        h = firwin(2 * half + 1, 1.0 / max(up, down), window=window)
    else:
        h = np.array(window, float)
        if h.ndim != 1:
            raise ValueError("window must be 1-D")
        half = (h.size - 1) // 2
    before = down - half % down
    first = (half + before) // down
    h = np.concatenate([np.zeros(before), h * up])
    while ((n - 1) * up + h.size - 1) // down + 1 < wanted + first:
        h = np.append(h, 0.0)
    if x.dtype.char in "fF":
        h = h.astype(np.float32)
    ground = 0.0 if padtype == "constant" else _BACKGROUNDS[padtype](x, axis=-1, keepdims=True)
    y = sampled(x - ground, tuple(h.tolist()), up, down)[..., first : first + wanted]
    return np.moveaxis(y + ground, -1, axis)


def savgol_filter(
    x: Any, window_length: int, polyorder: int, deriv: int = 0, delta: Any = 1.0, axis: int = -1, mode: str = "interp",
    cval: float = 0.0,
) -> Any:  # fmt: skip
    """Smoothing by the polynomials that fit best in a moving window (Savitzky, Golay 1964); differentiable by signal and delta.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.signal.savgol_filter(x, 3, 1)[2])(np.zeros(5)).round(3)
    array([0.   , 0.333, 0.333, 0.333, 0.   ])
    """
    if not holds_tensor((x, delta)):
        return _plainly("savgol_filter", x, window_length, polyorder, deriv, delta, axis, mode, cval)  # fmt: skip
    from scipy import signal

    if mode not in ("mirror", "constant", "nearest", "interp", "wrap"):
        raise ValueError("mode must be 'mirror', 'constant', 'nearest' 'wrap' or 'interp'.")
    x = np.moveaxis(inexact(x), axis, -1)
    n = np.shape(x)[-1]
    kernel = signal.savgol_coeffs(window_length, polyorder, deriv)[::-1]
    shape = (1,) * (np.ndim(x) - 1) + (-1,)
    odd = window_length % 2
    origin = (0,) * (np.ndim(x) - 1) + (0 if odd else -1,)
    edge = NAMES["constant" if mode == "interp" else mode]
    y = correlated(x, np.reshape(kernel, shape), edge, origin)
    if mode == "interp":
        if window_length > n:
            raise ValueError("If mode is 'interp', window_length must be less than or equal to the size of x.")  # fmt: skip
        half = window_length // 2
        fit = signal.savgol_filter(np.eye(window_length), window_length, polyorder, deriv, axis=0)
        fit = fit.astype(np.real(np.zeros(0, x.dtype)).dtype)
        before = x[..., :window_length] @ fit[:half].T
        after = x[..., n - window_length :] @ fit[window_length - half :].T
        y = np.concatenate([before, y[..., half : n - half], after], axis=-1)
    elif mode == "constant" and cval:
        inside = correlated(np.ones(n), kernel, "constant", origin[-1:])
        before, after = reach(window_length, origin[-1])
        place = np.arange(n)
        beyond = (place < before) | (place >= n - after)
        y = y + np.where(beyond, cval * np.where(beyond, np.sum(kernel) - inside, 1.0), 0.0)
    return np.moveaxis(y / delta**deriv if deriv else y, -1, axis)


__all__ = [
    "coherence", "csd", "detrend", "get_window", "hilbert", "istft", "periodogram", "resample", "resample_poly", "savgol_filter",
    "spectrogram", "stft", "upfirdn", "welch",
]  # fmt: skip
