"""Frequency responses, the design of filters by tracked frequencies, chirps, and spectra at any frequencies, under SciPy's names.

A designed filter is a prototype of constants (SciPy's, of order and ripples) whose poles and zeros are moved by functions of the cut-off
frequencies: these are ops, so that a filter is differentiated by where it cuts off. Second-order sections are grouped as SciPy groups
their numbers.

Invariant: where no argument is a tensor SciPy's own function runs; all here is a composition of ops.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.storage import StandIn
from ..errors import NotDifferentiable, demand_text
from .calculus import inexact
from .composing import holds_tensor, holds_tracked, operand, raw, scipys
from .convolutions import convolve, correlate
from .recursions import filtfilt, lfilter, sosfilt, sosfiltfilt
from .spectra import resample_poly, upfirdn

_scipys = scipys("scipy.signal")


# ------------------------------------------------------------------------------------------- responses


def _coefficients(value: Any) -> Any:
    value = inexact(value)
    return np.reshape(value, (1,)) if np.ndim(value) == 0 else value


def _is_number(w: Any) -> bool:
    return isinstance(w, int | np.integer) and not isinstance(w, bool)


def _radians(worN: Any, whole: bool, fs: Any, endpoint: bool = False) -> Any:
    """Frequencies in radians per sample, as many as are asked for, or those that are given."""
    if worN is None:
        worN = 512
    if _is_number(worN):
        if worN < 0:
            raise ValueError(f"worN must be nonnegative, got {worN}")
        last = 2 * math.pi if whole else math.pi
        return np.linspace(0, last, operator.index(worN), endpoint=endpoint and not whole)
    return 2 * math.pi * np.atleast_1d(inexact(worN)) / fs


def _power_series(coefficients: Any, z: Any) -> Any:
    """Σ c[n] zⁿ by Horner's rule."""
    total = coefficients[-1] + 0.0 * z
    for n in range(np.shape(coefficients)[0] - 2, -1, -1):
        total = total * z + coefficients[n]
    return total


@_scipys
def freqz(
    b: Any, a: Any = 1, worN: Any = 512, whole: bool = False, plot: Any = None, fs: Any = 2 * math.pi,
    include_nyquist: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Frequencies and the complex response of a digital filter; differentiable by coefficients and by frequencies that are given.

    >>> import numpy as np, tapegrad as tg
    >>> loudness = lambda b: np.abs(tg.signal.freqz(b, worN=[np.pi / 2])[1])[0]
    >>> tg.grad(loudness)(np.array([1.0, 0.0, -1.0])).round(12)
    array([ 1.,  0., -1.])
    """
    b, a = _coefficients(b), _coefficients(a)
    if np.ndim(b) != 1 or np.ndim(a) != 1:
        raise NotDifferentiable(
            f"freqz was given coefficients of shapes {np.shape(b)} and {np.shape(a)}, but those of tensors are vectors. Ask filter by filter."
        )
    w = _radians(worN, whole, fs, include_nyquist)
    z = np.exp(-1j * w)
    h = _power_series(b, z) / _power_series(a, z)
    w = w * (fs / (2 * math.pi))
    if plot is not None:
        plot(raw(w), raw(h))
    return w, h


@_scipys
def freqz_sos(
    sos: Any, worN: Any = 512, whole: bool = False, fs: Any = 2 * math.pi
) -> tuple[Any, Any]:
    """Frequencies and the complex response of second-order sections (n, 6) one behind the other.

    >>> import numpy as np, tapegrad as tg
    >>> abs(tg.signal.freqz_sos(tg.tensor([[1.0, 0.0, 0.0, 1.0, -0.5, 0.0]]), worN=[0.0])[1].numpy())
    array([2.])
    """
    sos = inexact(sos)
    if np.ndim(sos) != 2 or np.shape(sos)[1] != 6 or not np.shape(sos)[0]:
        raise ValueError(
            f"freqz_sos was given sections of shape {np.shape(sos)}, but they have the shape (n, 6), n being 1 or more."
        )
    if not isinstance(raw(sos), StandIn) and np.any(raw(sos)[:, 3] != 1):
        raise ValueError("sos[:, 3] should be all ones")
    h: Any = 1.0
    for n in range(np.shape(sos)[0]):
        w, row = freqz(sos[n, :3], sos[n, 3:], worN, whole, None, fs)
        h = h * row
    return w, h


sosfreqz = freqz_sos


@_scipys
def freqz_zpk(
    z: Any, p: Any, k: Any, worN: Any = 512, whole: bool = False, fs: Any = 2 * math.pi
) -> tuple[Any, Any]:
    """Frequencies and the complex response of a digital filter by zeros, poles and gain.

    >>> import numpy as np, tapegrad as tg
    >>> abs(tg.signal.freqz_zpk([], tg.tensor([0.5]), 1.0, worN=[0.0])[1].numpy())
    array([2.])
    """
    w = _radians(worN, whole, fs)
    point = np.exp(1j * w)[:, None]
    z, p = (np.reshape(inexact(v), -1) for v in (z, p))
    h = operand(k) * np.prod(point - z, axis=-1) / np.prod(point - p, axis=-1)
    return w * (fs / (2 * math.pi)), h


@_scipys
def freqs(b: Any, a: Any, worN: Any = 200, plot: Any = None) -> tuple[Any, Any]:
    """Frequencies and the complex response of an analog filter; differentiable by coefficients and by frequencies that are given.

    >>> import numpy as np, tapegrad as tg
    >>> abs(tg.signal.freqs(tg.tensor([1.0]), [1.0, 1.0], worN=[0.0])[1].numpy())
    array([1.])
    """
    b, a = _coefficients(b), _coefficients(a)
    if worN is None or _is_number(worN):
        from scipy import signal

        if isinstance(raw(b), StandIn) or isinstance(raw(a), StandIn):
            raise NotDifferentiable(
                "freqs was asked to choose frequencies inside a compiled program, which depend on the coefficients' values. Give worN as an array."
            )
        w: Any = signal.findfreqs(raw(b), raw(a), 200 if worN is None else worN)
    else:
        w = np.atleast_1d(inexact(worN))
    s = 1j * w
    h = _power_series(b[::-1], s) / _power_series(a[::-1], s)
    if plot is not None:
        plot(raw(w), raw(h))
    return w, h


@_scipys
def group_delay(
    system: Any, w: Any = 512, whole: bool = False, fs: Any = 2 * math.pi
) -> tuple[Any, Any]:
    """Frequencies and the group delay, in samples, of a digital filter (b, a); differentiable by the coefficients.

    >>> import numpy as np, tapegrad as tg
    >>> tg.signal.group_delay((tg.tensor([1.0, 2.0, 1.0]), [1.0]), w=2)[1]
    tensor([1., 1.])
    """
    b, a = (_coefficients(v) for v in system)
    w = _radians(w, whole, fs)
    c = np.convolve(b, np.conj(a[::-1]))
    z = np.exp(-1j * w)
    delay = np.real(_power_series(c * np.arange(np.shape(c)[0]), z) / _power_series(c, z)) - (
        np.shape(a)[0] - 1
    )
    return w * (fs / (2 * math.pi)), delay


# ------------------------------------------------------------------------------------------- design


def _polynomial(roots: Any) -> Any:
    """The coefficients of the polynomial with these roots, that of the highest power first."""
    c: Any = np.ones(1, complex)
    for n in range(np.shape(roots)[0]):
        c = np.concatenate([c, np.zeros(1)]) - np.concatenate([np.zeros(1), c * roots[n]])
    return c


@_scipys
def zpk2tf(z: Any, p: Any, k: Any) -> tuple[Any, Any]:
    """The coefficients b and a of a filter with zeros z, poles p and gain k; real where the roots come in conjugate pairs.

    >>> import tapegrad as tg
    >>> tg.signal.zpk2tf([], tg.tensor([0.5, -0.5]), 1.0)[1]
    tensor([ 1.  ,  0.  , -0.25])
    """
    found = []
    for roots, gain in ((z, k), (p, 1.0)):
        roots = np.reshape(inexact(roots), -1)
        c = _polynomial(roots) * gain
        values = raw(roots)
        paired = isinstance(values, StandIn) or np.allclose(
            np.sort_complex(values), np.sort_complex(np.conj(values)), rtol=1e-10, atol=1e-14
        )
        found.append(np.real(c) if paired else c)
    return found[0], found[1]


def _zpk_lowpass(z: Any, p: Any, k: Any, wo: Any) -> tuple[Any, Any, Any]:
    return wo * z, wo * p, k * wo ** (len(p) - len(z))


def _zpk_highpass(z: Any, p: Any, k: Any, wo: Any) -> tuple[Any, Any, Any]:
    zeros = np.concatenate([wo / z, np.zeros(len(p) - len(z), complex)])
    return zeros, wo / p, k * np.real(np.prod(-z) / np.prod(-p))


def _split(roots: Any, wo: Any) -> Any:
    """Both roots that a root of a low-pass gets in a band about wo."""
    inner = np.sqrt(roots**2 - wo**2 + 0j)
    return np.concatenate([roots + inner, roots - inner])


def _zpk_bandpass(z: Any, p: Any, k: Any, wo: Any, bw: Any) -> tuple[Any, Any, Any]:
    degree = len(p) - len(z)
    zeros = np.concatenate([_split(z * bw / 2, wo), np.zeros(degree, complex)])
    return zeros, _split(p * bw / 2, wo), k * bw**degree


def _zpk_bandstop(z: Any, p: Any, k: Any, wo: Any, bw: Any) -> tuple[Any, Any, Any]:
    degree = len(p) - len(z)
    ends = 1j * wo * np.concatenate([np.ones(degree), -np.ones(degree)])
    zeros = np.concatenate([_split((bw / 2) / z, wo), ends])
    return zeros, _split((bw / 2) / p, wo), k * np.real(np.prod(-z) / np.prod(-p))


def _bilinear(z: Any, p: Any, k: Any, c: Any) -> tuple[Any, Any, Any]:
    """Zeros, poles and gain where s is c (z - 1) / (z + 1); zeros at infinity come to -1."""
    degree = np.shape(p)[0] - np.shape(z)[0]
    k = k * np.real(np.prod(c - z) / np.prod(c - p))
    return np.concatenate([(c + z) / (c - z), -np.ones(degree)]), (c + p) / (c - p), k


@_scipys
def bilinear_zpk(z: Any, p: Any, k: Any, fs: Any) -> tuple[Any, Any, Any]:
    """The digital filter of an analog one by Tustin's transform, as zeros, poles and gain; differentiable by all arguments.

    >>> import tapegrad as tg
    >>> tg.signal.bilinear_zpk([], tg.tensor([-1.0]), 1.0, 1.0)[1].round(6)
    tensor([0.333333])
    """
    z, p = (np.reshape(inexact(roots), -1) for roots in (z, p))
    if np.shape(z)[0] > np.shape(p)[0]:
        raise ValueError("Improper transfer function. Must have at least as many poles as zeros.")
    return _bilinear(z, p, inexact(k), 2.0 * inexact(_rate(fs)))


def _rate(fs: Any) -> Any:
    if fs is None or np.ndim(fs):
        raise ValueError(f"fs={fs!r} was given, but a sampling rate is one number.")
    return fs


def proper(b: Any, a: Any, name: str, order: bool = True) -> tuple[Any, Any]:
    """Coefficients without leading zeros that would stand for a higher order; with `order`, that of b is at most that of a."""
    given = [_coefficients(b), _coefficients(a)]
    sizes = []
    for c in given:
        if np.ndim(c) != 1:
            raise ValueError(
                f"{name} was given coefficients of shape {np.shape(c)}, but they are vectors."
            )
        kept = np.ones(np.shape(c)) if isinstance(raw(c), StandIn) else raw(c)
        sizes.append(np.shape(np.trim_zeros(kept, "f"))[0])
    if not sizes[1]:
        raise ValueError("Denominator must have at least on nonzero element.")
    if order and sizes[0] > sizes[1]:
        raise ValueError("Improper transfer function. `num` is longer than `den`.")
    longest = max(sizes)
    for i, c in enumerate(given):
        more = np.shape(c)[0] - longest
        if more > 0:
            if holds_tracked(c):
                raise NotDifferentiable(
                    f"{name} was given tracked coefficients that begin with 0, where the order of the system changes. Leave leading zeros out."
                )
            given[i] = c[more:]
    return given[0], given[1]


@_scipys
def bilinear(b: Any, a: Any, fs: Any = 1.0) -> tuple[Any, Any]:
    """The digital filter of an analog one by Tustin's transform, s = 2 fs (z - 1) / (z + 1); differentiable by all arguments.

    >>> import tapegrad as tg
    >>> tg.signal.bilinear([1.0], tg.tensor([1.0, 1.0]))[1].round(6)
    tensor([ 1.      , -0.333333])
    """
    b, a = proper(b, a, "bilinear", order=False)
    last = max(np.shape(b)[0], np.shape(a)[0]) - 1
    c = 2.0 * inexact(_rate(fs))
    up, down = (np.polynomial.Polynomial(x) for x in ((1, 1), (-1, 1)))
    powers = np.stack([(up ** (last - q) * down**q).coef[::-1] for q in range(last + 1)])
    found = []
    for part in (b, a):
        n = np.shape(part)[0]
        found.append((part[::-1] * c ** (np.arange(n) - last / 2)) @ powers[:n])
    return found[0] / found[1][0], found[1] / found[1][0]


def _prototype(N: int, rp: Any, rs: Any, ftype: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Zeros, poles and gain of SciPy's analog low-pass of cut-off 1."""
    from scipy import signal

    if ftype in ("butter", "butterworth"):
        return signal.buttap(N)
    if ftype.startswith("bessel"):
        return signal.besselap(N, norm=[*ftype.split("_"), "phase"][1])
    if ftype in ("cheby1", "chebyshev1", "chebyshevi"):
        if rp is None:
            raise ValueError(
                "passband ripple (rp) must be provided to design a Chebyshev I filter."
            )
        return signal.cheb1ap(N, rp)
    if ftype in ("cheby2", "chebyshev2", "chebyshevii"):
        if rs is None:
            raise ValueError(
                "stopband attenuation (rs) must be provided to design an Chebyshev II filter."
            )
        return signal.cheb2ap(N, rs)
    if ftype in ("ellip", "elliptic", "cauer", "cauer/elliptic"):
        if rs is None or rp is None:
            raise ValueError("Both rp and rs must be provided to design an elliptic filter.")
        return signal.ellipap(N, rp, rs)
    raise ValueError(f"'{ftype}' is not a valid basic IIR filter.")


_BANDS = {
    "band": "bandpass", "bandpass": "bandpass", "pass": "bandpass", "bp": "bandpass",
    "bs": "bandstop", "bandstop": "bandstop", "bands": "bandstop", "stop": "bandstop",
    "l": "lowpass", "low": "lowpass", "lowpass": "lowpass", "lp": "lowpass",
    "high": "highpass", "highpass": "highpass", "h": "highpass", "hp": "highpass",
}  # fmt: skip


@_scipys
def iirfilter(
    N: int, Wn: Any, rp: Any = None, rs: Any = None, btype: str = "band", analog: bool = False, ftype: str = "butter",
    output: str = "ba", fs: Any = None,
) -> Any:  # fmt: skip
    """A recursive filter of order N that cuts off at Wn, a number or a pair; differentiable by Wn and the sampling rate.

    Order and ripples are constants. The result is (b, a), zeros, poles and gain ("zpk"), or second-order sections ("sos").

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda w: tg.signal.iirfilter(1, w, btype="lowpass")[0][0])(0.5).__round__(4)
    0.7854
    """
    for name, word in (("btype", btype), ("ftype", ftype), ("output", output)):
        demand_text(word, name)
    if btype.lower() not in _BANDS:
        raise ValueError(f"'{btype}' is an invalid bandtype for filter.")
    band, output = _BANDS[btype.lower()], output.lower()
    if output not in ("ba", "zpk", "sos"):
        raise ValueError(f"'{output}' is not a valid output form.")
    if holds_tensor((rp, rs)):
        raise NotDifferentiable(
            "a filter was given ripples that are tensors, but its prototype is constant. Pass numbers; cut-off frequencies may be tensors."
        )
    Wn = inexact(Wn)
    if fs is not None:
        if analog:
            raise ValueError("fs cannot be specified for an analog filter")
        Wn = 2 * Wn / fs
    values = raw(Wn)
    pair = band in ("bandpass", "bandstop")
    if np.size(Wn) != (2 if pair else 1):
        raise ValueError(
            f"Must specify {'two critical frequencies for a band' if pair else 'a single critical frequency Wn'} (btype {btype!r})."
        )
    if not isinstance(values, StandIn):
        if np.any(values <= 0):
            raise ValueError("filter critical frequencies must be greater than 0")
        if not analog and np.any(values >= 1):
            raise ValueError(
                "Digital filter critical frequencies must be 0 < Wn < fs/2 (fs=2 if not given)."
            )
        if pair and values[0] >= values[1]:
            raise ValueError("Wn[0] must be less than Wn[1]")
    z, p, k = _prototype(operator.index(N), rp, rs, ftype.lower())
    z, p = np.asarray(z, complex), np.asarray(p, complex)
    # The bilinear transform bends frequencies: those given are bent before, so that they come out as they are.
    warped = Wn if analog else 4.0 * np.tan(math.pi * Wn / 2.0)
    if pair:
        bw, wo = warped[1] - warped[0], np.sqrt(warped[0] * warped[1])
        z, p, k = (_zpk_bandpass if band == "bandpass" else _zpk_bandstop)(z, p, k, wo, bw)
    else:
        z, p, k = (_zpk_lowpass if band == "lowpass" else _zpk_highpass)(
            z, p, k, np.reshape(warped, ())
        )
    if not analog:
        z, p, k = _bilinear(z, p, k, 4.0)
    if output == "zpk":
        return z, p, k
    if output == "ba":
        return np.real(_polynomial(z)) * k, np.real(_polynomial(p))
    return _sections(z, p, k, analog)


def _sections(z: Any, p: Any, k: Any, analog: bool) -> Any:
    """Second-order sections whose roots are those that SciPy puts together, and the gain in the first."""
    from scipy import signal

    if analog or isinstance(raw(p), StandIn):
        raise NotDifferentiable(
            "second-order sections were asked of an analog filter, or inside a compiled program, where which roots belong together cannot be "
            "known. Ask for output='ba' or 'zpk', or design the filter outside."
        )
    plain = signal.zpk2sos(raw(z), raw(p), raw(k))
    rows = []
    for n, row in enumerate(plain):
        halves = []
        for roots, c in ((z, row[:3] / (row[0] or 1.0)), (p, row[3:])):
            wanted = np.roots(c)
            near = (
                np.argmin(np.abs(raw(roots)[:, None] - wanted), axis=0)
                if len(wanted) and np.shape(roots)[0]
                else []
            )
            parts = [
                roots[i] if w != 0 or abs(raw(roots)[i]) < 1e-14 else np.zeros((), complex)
                for i, w in zip(near, wanted, strict=False)
            ]
            c = np.real(_polynomial(np.stack(parts))) if parts else np.ones(1)
            halves.append(np.concatenate([c, np.zeros(3 - np.shape(c)[0])]))
        rows.append(np.concatenate([halves[0] * k if n == 0 else halves[0], halves[1]]))
    return np.stack(rows)


@_scipys
def butter(
    N: int, Wn: Any, btype: str = "low", analog: bool = False, output: str = "ba", fs: Any = None
) -> Any:
    """Butterworth's filter of order N; differentiable by the cut-off frequencies Wn.

    >>> import numpy as np, tapegrad as tg
    >>> noise = np.random.default_rng(0).normal(size=99)
    >>> power = lambda w: np.mean(tg.signal.lfilter(*tg.signal.butter(2, w), noise) ** 2)
    >>> bool(tg.grad(power)(0.3) > 0)
    True
    """
    return iirfilter(N, Wn, btype=btype, analog=analog, output=output, ftype="butter", fs=fs)


@_scipys
def cheby1(
    N: int,
    rp: Any,
    Wn: Any,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: Any = None,
) -> Any:
    """Chebyshev's filter with ripples of rp decibels in the pass band; differentiable by the cut-off frequencies Wn."""
    return iirfilter(N, Wn, rp=rp, btype=btype, analog=analog, output=output, ftype="cheby1", fs=fs)


@_scipys
def cheby2(
    N: int,
    rs: Any,
    Wn: Any,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: Any = None,
) -> Any:
    """Chebyshev's filter with rs decibels less in the stop band; differentiable by the cut-off frequencies Wn."""
    return iirfilter(N, Wn, rs=rs, btype=btype, analog=analog, output=output, ftype="cheby2", fs=fs)


@_scipys
def ellip(
    N: int,
    rp: Any,
    rs: Any,
    Wn: Any,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    fs: Any = None,
) -> Any:
    """Cauer's elliptic filter; differentiable by the cut-off frequencies Wn."""
    return iirfilter(
        N, Wn, rp=rp, rs=rs, btype=btype, analog=analog, output=output, ftype="elliptic", fs=fs
    )


@_scipys
def bessel(
    N: int,
    Wn: Any,
    btype: str = "low",
    analog: bool = False,
    output: str = "ba",
    norm: str = "phase",
    fs: Any = None,
) -> Any:
    """Bessel's filter of order N; differentiable by the cut-off frequencies Wn."""
    demand_text(norm, "norm")
    return iirfilter(
        N, Wn, btype=btype, analog=analog, output=output, ftype=f"bessel_{norm}", fs=fs
    )


@_scipys
def firwin(
    numtaps: int, cutoff: Any, *, width: Any = None, window: Any = "hamming", pass_zero: Any = True, scale: bool = True,
    fs: Any = None,
) -> Any:  # fmt: skip
    """The taps of a filter without feedback by the window method; differentiable by the cut-off frequencies and the sampling rate.

    >>> import tapegrad as tg
    >>> tg.signal.firwin(3, tg.tensor(0.5)).round(4)
    tensor([0.0462, 0.9076, 0.0462])
    """
    from scipy import signal

    if width is not None or holds_tensor(window):
        raise NotDifferentiable(
            "firwin was given width= or a window beside tensors, which have no rule. Give window=('kaiser', beta)."
        )
    fs = 2.0 if fs is None else fs
    edges = np.atleast_1d(inexact(cutoff)) / (fs / 2)
    if np.ndim(edges) > 1 or not np.shape(edges)[0]:
        raise ValueError("The cutoff argument must be at most one-dimensional, and not empty.")
    values = raw(edges)
    if not isinstance(values, StandIn):
        if np.any((values <= 0) | (values >= 1)):
            raise ValueError(
                "Invalid cutoff frequency: frequencies must be greater than 0 and less than fs/2."
            )
        if np.any(np.diff(values) <= 0):
            raise ValueError(
                "Invalid cutoff frequencies: the frequencies must be strictly increasing."
            )
    count = np.shape(edges)[0]
    if isinstance(pass_zero, str):
        names = {"bandstop": True, "lowpass": True, "bandpass": False, "highpass": False}
        if pass_zero not in names or (count > 1) != pass_zero.startswith("band"):
            raise ValueError(
                f"pass_zero={pass_zero!r} does not fit {count} cut-off frequencies: it is True, False or a name of a band."
            )
        pass_zero = names[pass_zero]
    ends_high = bool(count % 2) ^ bool(pass_zero)
    if ends_high and numtaps % 2 == 0:
        raise ValueError(
            "A filter with an even number of coefficients must have zero response at the Nyquist frequency."
        )
    parts = [edges]
    if pass_zero:
        parts.insert(0, np.zeros(1))
    if ends_high:
        parts.append(np.ones(1))
    bands = np.reshape(np.concatenate(parts), (-1, 2))
    m = np.arange(numtaps) - 0.5 * (numtaps - 1)
    h: Any = 0.0
    for n in range(np.shape(bands)[0]):
        left, right = bands[n, 0], bands[n, 1]
        h = h + right * np.sinc(right * m) - left * np.sinc(left * m)
    h = h * signal.get_window(window, numtaps, fftbins=False)
    if not scale:
        return h
    # The gain is 1 in the middle of the first band, or at its end that is 0 or half the sampling rate.
    left, right = bands[0, 0], bands[0, 1]
    first_low, first_high = bool(pass_zero), ends_high and np.shape(bands)[0] == 1
    place: Any = 0.0 if first_low else 1.0 if first_high else 0.5 * (left + right)
    return h / np.sum(h * np.cos(math.pi * m * place))


# ------------------------------------------------------------------------------------------- signals and spectra


@_scipys
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """The convolution of two signals, SciPy's by overlapping parts; here by Fourier transforms. Differentiable by both.

    >>> import tapegrad as tg
    >>> tg.signal.oaconvolve(tg.tensor([1.0, 2.0]), [1.0, 1.0]).round(12)
    tensor([1., 3., 2.])
    """
    from .convolutions import fftconvolve

    return fftconvolve(in1, in2, mode, axes)


@_scipys
def decimate(
    x: Any, q: int, n: Any = None, ftype: Any = "iir", axis: int = -1, zero_phase: bool = True
) -> Any:
    """Every q-th sample of a signal behind a filter against aliasing; differentiable by the signal.

    >>> import tapegrad as tg
    >>> tg.signal.decimate(tg.ones(100), 4).shape
    (25,)
    """
    from scipy import signal

    x, q = inexact(x), operator.index(q)
    axis = normalize_axis_index(axis, np.ndim(x))
    real = np.real(np.zeros(0, x.dtype)).dtype
    part = [slice(None)] * np.ndim(x)
    if ftype == "fir":
        n = 20 * q if n is None else operator.index(n)
        b = signal.firwin(n + 1, 1.0 / q, window="hamming").astype(real)
        if zero_phase:
            return resample_poly(x, 1, q, axis, b)
        part[axis] = slice(-(-np.shape(x)[axis] // q))
        return upfirdn(b, x, 1, q, axis)[tuple(part)]
    part[axis] = slice(None, None, q)
    if ftype == "iir":
        sos = signal.cheby1(
            8 if n is None else operator.index(n), 0.05, 0.8 / q, output="sos"
        ).astype(real)
        return (sosfiltfilt if zero_phase else sosfilt)(sos, x, axis=axis)[tuple(part)]
    if not hasattr(ftype, "to_tf"):
        raise ValueError("invalid ftype: give 'iir', 'fir' or a system scipy.signal.dlti.")
    system = ftype.to_tf()
    return (filtfilt if zero_phase else lfilter)(system.num, system.den, x, axis=axis)[tuple(part)]


def _chirp_z(x: Any, m: int, exponent: np.ndarray, start: np.ndarray, axis: int) -> Any:
    """Σ x[k] start[k] w^(k j) for j < m, `exponent` being w^(k² / 2): a convolution with a chirp (Bluestein 1970)."""
    n = np.shape(x)[axis]
    size = 1 << (n + m - 2).bit_length() if n + m > 2 else 1
    x = np.moveaxis(x, axis, -1)
    kernel = np.fft.fft(1.0 / np.concatenate([exponent[n - 1 : 0 : -1], exponent[:m]]), size)
    y = np.fft.ifft(kernel * np.fft.fft(x * (start * exponent[:n]), size))
    return np.moveaxis(y[..., n - 1 : n + m - 1] * exponent[:m], -1, axis)


def _sizes(x: Any, m: Any, axis: int) -> int:
    n = np.shape(x)[axis]
    if n < 1:
        raise ValueError(
            f"Invalid number of CZT data points ({n}) specified. n must be positive and integer type."
        )
    m = n if m is None else operator.index(m)
    if m < 1:
        raise ValueError(
            f"Invalid number of CZT output points ({m}) specified. m must be positive and integer type."
        )
    return m


@_scipys
def czt(x: Any, m: Any = None, w: Any = None, a: Any = 1 + 0j, *, axis: int = -1) -> Any:
    """The z-transform of a signal at m points of a spiral, a w⁻ᵏ; differentiable by the signal.

    >>> import numpy as np, tapegrad as tg
    >>> tg.signal.czt(tg.tensor([1.0, 2.0])).real.round(12)
    tensor([ 3., -1.])
    """
    if holds_tensor((w, a)):
        raise NotDifferentiable(
            "czt was given points w or a that are tensors, but they are constants. Sum x * z**-k over k instead."
        )
    x = inexact(x)
    m = _sizes(x, m, axis)
    k = np.arange(max(m, np.shape(x)[axis]))
    exponent = (
        np.exp(-1j * math.pi * (k**2 % (2 * m)) / m) if w is None else complex(w) ** (k**2 / 2.0)
    )
    return _chirp_z(x, m, exponent, complex(a) ** -k[: np.shape(x)[axis]].astype(float), axis)


@_scipys
def zoom_fft(
    x: Any, fn: Any, m: Any = None, *, fs: Any = 2, endpoint: bool = False, axis: int = -1
) -> Any:
    """The Fourier transform of a signal at m frequencies of a range; differentiable by the signal.

    >>> import numpy as np, tapegrad as tg
    >>> abs(tg.signal.zoom_fft(tg.ones(4), [0.0, 1.0], 2).numpy()).round(12)
    array([4., 0.])
    """
    if holds_tensor((fn, fs)):
        raise NotDifferentiable(
            "zoom_fft was given frequencies that are tensors, but they are constants. Sum x * exp(-2j * pi * f * k) instead."
        )
    x = inexact(x)
    m = _sizes(x, m, axis)
    if np.size(fn) not in (1, 2):
        raise ValueError("fn must be a scalar or 2-length sequence")
    low, high = (0.0, float(np.ravel(fn)[0])) if np.size(fn) == 1 else map(float, fn)
    step = (high - low) * m / (fs * (m - 1)) if endpoint else (high - low) / fs
    k = np.arange(max(m, np.shape(x)[axis]))
    start = np.exp(-2j * math.pi * low / fs * k[: np.shape(x)[axis]])
    return _chirp_z(x, m, np.exp(-1j * math.pi * step * k**2 / m), start, axis)


@_scipys
def lombscargle(
    x: Any, y: Any, freqs: Any, *, precenter: bool = False, normalize: Any = False, weights: Any = None, floating_mean: bool = False,
) -> Any:  # fmt: skip
    """The periodogram of samples y at uneven times x (Lomb 1976, Scargle 1982); differentiable by times, samples, frequencies, weights.

    `freqs` are in radians per unit of time. `normalize`: "power" (or False), "normalize" (or True), or "amplitude", which is complex.

    >>> import numpy as np, tapegrad as tg
    >>> x = np.array([0.0, 0.7, 1.9, 3.1, 4.4])
    >>> tg.signal.lombscargle(x, tg.tensor(np.cos(2 * x)), [2.0], normalize=True).round(6)
    tensor([1.])
    """
    x, y, w = (np.reshape(inexact(v), -1) for v in (x, y, freqs))
    weight = np.ones(np.shape(y)) if weights is None else np.reshape(inexact(weights), -1)
    if np.shape(x) != np.shape(y) or np.shape(weight) != np.shape(y):
        raise ValueError("Parameters x, y, weights must be 1-D arrays of equal non-zero length!")
    if normalize not in (False, True, "power", "normalize", "amplitude"):
        raise ValueError(
            "Normalize must be: False (or 'power'), True (or 'normalize'), or 'amplitude'."
        )
    weight = weight / np.sum(weight)
    if precenter:
        y = y - np.mean(y)
    angle = w[:, None] * x

    def mean(values: Any) -> Any:
        return np.sum(values * weight, axis=-1)

    total = mean(y * y)
    cosine, sine = np.cos(angle), np.sin(angle)
    cc, cs = mean(cosine * cosine), mean(cosine * sine)
    ss = 1.0 - cc
    if floating_mean:
        c, s, level = mean(cosine), mean(sine), mean(y)
        cc, ss, cs, total = cc - c * c, ss - s * s, cs - c * s, total - level * level
    # The shift of time that makes cosine and sine orthogonal.
    tau = 0.5 * np.arctan2(2.0 * cs, cc - ss)
    turned = angle - tau[:, None]
    cosine, sine = np.cos(turned), np.sin(turned)
    yc, ys, cc = mean(y * cosine), mean(y * sine), mean(cosine * cosine)
    ss = 1.0 - cc
    if floating_mean:
        c, s = mean(cosine), mean(sine)
        yc, ys, cc, ss = yc - level * c, ys - level * s, cc - c * c, ss - s * s
    a, b = yc / cc, ys / ss
    if normalize in ("amplitude",):
        return (a + 1j * b) * np.exp(1j * tau)
    found = 2.0 * (a * yc + b * ys)
    return (
        0.5 * found / total if normalize in (True, "normalize") else found * (np.shape(x)[0] / 4.0)
    )


@_scipys
def deconvolve(signal: Any, divisor: Any) -> tuple[Any, Any]:
    """Quotient and remainder of a signal by a divisor: signal = convolve(divisor, quotient) + remainder. Differentiable by both.

    >>> import tapegrad as tg
    >>> tg.signal.deconvolve(tg.tensor([1.0, 3.0, 2.0]), [1.0, 1.0])[0]
    tensor([1., 2.])
    """
    num, den = _coefficients(signal), _coefficients(divisor)
    for name, value in (("signal", num), ("divisor", den)):
        if np.ndim(value) != 1 or not np.shape(value)[0]:
            raise ValueError(
                f"Parameter {name} must be non-empty 1d array, but its shape is {np.shape(value)}!"
            )
    n, d = np.shape(num)[0], np.shape(den)[0]
    if d > n:
        return np.zeros(0), num
    impulse = np.zeros(n - d + 1)
    impulse[0] = 1.0
    quotient = lfilter(num, den, impulse)
    return quotient, num - convolve(den, quotient, mode="full")


@_scipys
def wiener(im: Any, mysize: Any = None, noise: Any = None) -> Any:
    """Wiener's filter: each entry drawn to the mean of its window where the variance there is little more than the noise.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda noise: tg.signal.wiener(np.array([0.0, 3.0, 0.0]), 3, noise)[1])(0.5)
    -1.0
    """
    im = inexact(im)
    sizes = (
        [3] * np.ndim(im)
        if mysize is None
        else [int(mysize)] * np.ndim(im)
        if np.ndim(mysize) == 0
        else list(mysize)
    )
    box, count = np.ones(sizes), float(math.prod(sizes))
    mean = correlate(im, box, "same") / count
    variance = correlate(im**2, box, "same") / count - mean**2
    noise = np.mean(variance) if noise is None else noise
    quiet = variance < noise
    share = noise / np.where(quiet, 1.0, variance)
    return np.where(quiet, mean, (im - mean) * (1 - share) + mean)


@_scipys
def chirp(
    t: Any, f0: Any, t1: Any, f1: Any, method: str = "linear", phi: Any = 0, vertex_zero: bool = True, *, complex: bool = False,
) -> Any:  # fmt: skip
    """A cosine whose frequency runs from f0 at 0 to f1 at t1; differentiable by times, frequencies and phase (in degrees).

    >>> import tapegrad as tg
    >>> tg.signal.chirp(tg.tensor([0.0, 1.0]), 1.0, 1.0, 3.0).round(12)
    tensor([1., 1.])
    """
    t, f0, t1, f1 = (inexact(v) for v in (t, f0, t1, f1))
    if method in ("linear", "lin", "li"):
        phase = f0 * t + 0.5 * ((f1 - f0) / t1) * t * t
    elif method in ("quadratic", "quad", "q"):
        beta = (f1 - f0) / t1**2
        phase = (
            f0 * t + beta * t**3 / 3 if vertex_zero else f1 * t + beta * ((t1 - t) ** 3 - t1**3) / 3
        )
    elif method in ("logarithmic", "log", "lo"):
        if not isinstance(raw(f0 * f1), StandIn) and np.any(raw(f0 * f1) <= 0):
            raise ValueError(
                "For a logarithmic chirp, f0 and f1 must be nonzero and have the same sign."
            )
        # f0 t1 / log(f1 / f0) (exp(t / t1 log(f1 / f0)) - 1), which is f0 t where the frequencies are equal.
        rate = np.log(f1 / f0) / t1
        phase = f0 * t * _grown(rate * t)
    elif method in ("hyperbolic", "hyp"):
        # -s f0 log(1 - t / s) with s = -f1 t1 / (f0 - f1), which is f0 t where the frequencies are equal.
        back = (f1 - f0) / (f1 * t1)
        phase = f0 * t * _shrunk(back * t)
    else:
        raise ValueError(
            f"method must be 'linear', 'quadratic', 'logarithmic', or 'hyperbolic', but a value of {method!r} was given."
        )
    angle = 2 * math.pi * phase + operand(phi) * (math.pi / 180)
    return np.exp(1j * angle) if complex else np.cos(angle)


def _grown(x: Any) -> Any:
    """(exp(x) - 1) / x."""
    from scipy import special

    return special.exprel(x)


def _shrunk(x: Any) -> Any:
    """-log|1 - x| / x, which is 1 at 0; beyond 1 the frequency runs back, as SciPy has it."""
    small = np.abs(x) < 0.05
    near = np.where(small, x, 0.0)
    series: Any = 1.0 / 13
    for n in range(12, 0, -1):
        series = series * near + 1.0 / n
    far = np.where(small, 0.5, x)
    return np.where(small, series, -np.log(np.abs(1.0 - far)) / far)


@_scipys
def gausspulse(
    t: Any,
    fc: Any = 1000,
    bw: Any = 0.5,
    bwr: Any = -6,
    tpr: Any = -60,
    retquad: bool = False,
    retenv: bool = False,
) -> Any:
    """A cosine of frequency fc in a Gaussian of fractional bandwidth bw at bwr decibels; differentiable by times and all of these.

    >>> import tapegrad as tg
    >>> tg.signal.gausspulse(tg.tensor(0.0), 5.0)
    tensor(1.)
    """
    for name, value, wrong in (
        ("fc", fc, raw(fc) < 0),
        ("bw", bw, raw(bw) <= 0),
        ("bwr", bwr, raw(bwr) >= 0),
    ):
        if not isinstance(wrong, StandIn) and wrong:
            raise ValueError(
                f"gausspulse was given {name}={raw(value)}: fc is at least 0, bw more than 0, and bwr less."
            )
    a = -((math.pi * operand(fc) * bw) ** 2) / (4.0 * (operand(bwr) * (math.log(10.0) / 20.0)))
    if isinstance(t, str):
        if t != "cutoff":
            raise ValueError("If `t` is a string, it must be 'cutoff'")
        return np.sqrt(-(operand(tpr) * (math.log(10.0) / 20.0)) / a)
    t = inexact(t)
    envelope = np.exp(-a * t * t)
    angle = 2 * math.pi * fc * t
    found = [envelope * np.cos(angle)]
    if retquad:
        found.append(envelope * np.sin(angle))
    if retenv:
        found.append(envelope)
    return found[0] if len(found) == 1 else tuple(found)


__all__ = [
    "bessel", "butter", "cheby1", "cheby2", "chirp", "czt", "decimate", "deconvolve", "ellip", "firwin", "freqs", "freqz", "freqz_sos",
    "freqz_zpk", "gausspulse", "group_delay", "iirfilter", "lombscargle", "oaconvolve", "sosfreqz", "wiener", "zoom_fft", "zpk2tf",
]  # fmt: skip
