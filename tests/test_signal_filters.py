"""tg.signal's filters, spectra and resampling: SciPy's values over its arguments, and derivatives in every mode."""

import numpy as np
import pytest
import scipy.signal

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.signal, scipy.signal
SHORT = pytest.mark.filterwarnings("ignore:nperseg:UserWarning", "ignore:NOLA:UserWarning")


def same(name, operands, *args, **settings):
    """Our function of tensors gives SciPy's results of arrays."""
    found = getattr(OURS, name)(*map(tg.tensor, operands), *args, **settings)
    expected = getattr(THEIRS, name)(*operands, *args, **settings)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]  # fmt: skip
    for ours, theirs in pairs:
        ours = ours.numpy() if isinstance(ours, tg.Tensor) else ours
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, 1e-8, 1e-10)
    plain = getattr(OURS, name)(*operands, *args, **settings)
    for ours, theirs in zip(plain, expected, strict=True) if isinstance(plain, tuple) else [(plain, expected)]:  # fmt: skip
        assert isinstance(ours, np.ndarray)
        np.testing.assert_array_equal(ours, theirs)


def drawn(rng, shape, kind="real"):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "complex" else x


# ----------------------------------------------------------------------------------------------------- filters


def coefficients(rng, nb, na):
    return rng.normal(size=nb), np.concatenate([[1.7], rng.uniform(-0.2, 0.2, na - 1)])


ORDERS = [(1, 1), (3, 1), (1, 3), (4, 2), (2, 4), (3, 3)]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(("nb", "na"), ORDERS)
def test_filters_have_scipys_values(nb, na, kind, rng):
    b, a = coefficients(rng, nb, na)
    for n in (1, 2, 9):
        for axis in (0, 1, -1):
            x = np.moveaxis(drawn(rng, (2, 3, n), kind), -1, axis)
            same("lfilter", (b, a, x), axis)
            if nb + na > 2:
                zi = np.moveaxis(drawn(rng, (2, 3, max(nb, na) - 1), kind), -1, axis)
                same("lfilter", (b, a, x), axis, zi)
                shared = zi[:1] if axis != 0 else zi[:, :1]
                same("lfilter", (b, a, x), axis, shared)
    if nb + na > 2:
        same("lfilter_zi", (b, a))
        for padtype in ("odd", "even", "constant", None):
            same("filtfilt", (b, a, drawn(rng, (2, 40), kind)), padtype=padtype)
        same("filtfilt", (b, a, drawn(rng, (40, 2), kind)), 0, padlen=3)


@pytest.mark.parametrize(("nb", "na"), ORDERS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_filters_are_differentiated(nb, na, n, rng):
    b, a = coefficients(rng, nb, na)
    x = rng.normal(size=(2, n))
    agree(OURS.lfilter, (b, a, x), rng, compiled=(nb, na, n) == (3, 3, 7))
    if nb + na > 2:
        zi = rng.normal(size=(2, max(nb, na) - 1))
        for part in (0, 1):  # the signal and the final state
            agree(lambda b, a, x, zi, part=part: OURS.lfilter(b, a, x, zi=zi)[part], (b, a, x, zi), rng)  # fmt: skip


def test_the_adjoint_of_a_filter_runs_backwards_in_time(rng):
    b, a = coefficients(rng, 3, 4)
    x, y = rng.normal(size=(2, 2000)), rng.normal(size=(2, 2000))
    back = tg.vjp(lambda x: OURS.lfilter(b, a, x), x)[1](y)[0]
    np.testing.assert_allclose(np.sum(THEIRS.lfilter(b, a, x) * y), np.sum(x * back), rtol=1e-10)
    np.testing.assert_allclose(back, THEIRS.lfilter(b, a, y[:, ::-1])[:, ::-1], rtol=1e-9, atol=1e-12)  # fmt: skip


def test_long_filters(rng):
    """More lags than are summed one by one."""
    b, x = rng.normal(size=50), rng.normal(size=(2, 70))
    agree(lambda b, x: OURS.lfilter(b, [1.0, -0.3], x), (b, x), rng)


def test_complex_filters(rng):
    b, a = coefficients(rng, 3, 2)
    b, x = b + 0.5j, drawn(rng, 6, "complex")
    w = drawn(rng, 6, "complex")
    f = lambda b, a, x: np.sum(np.real(OURS.lfilter(b, a, x) * w))  # noqa: E731
    for i, along in enumerate((drawn(rng, 3, "complex"), rng.normal(size=2), drawn(rng, 6, "complex"))):  # fmt: skip

        def moved(h, i=i, along=along):
            return f(*[v + h * along if j == i else v for j, v in enumerate((b, a, x))])

        expected = (8 * (moved(1e-3) - moved(-1e-3)) - (moved(2e-3) - moved(-2e-3))) / 12e-3
        found = np.sum(np.real(np.conj(tg.grad(f, argnums=i)(b, a, x)) * along))
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_sections(rng):
    sos = THEIRS.butter(5, 0.3, output="sos")
    x, zi = rng.normal(size=(2, 30)), rng.normal(size=(3, 2, 2))
    same("sosfilt", (sos, x))
    same("sosfilt", (sos, x.T), 0)
    same("sosfilt", (sos, x), zi=zi)
    same("sosfilt", (sos, x.T), 0, np.moveaxis(zi, -1, 1))
    same("sosfilt_zi", (sos,))
    same("sosfiltfilt", (sos, x))
    same("sosfiltfilt", (sos, x.T), 0, padtype="even", padlen=4)

    def at(free, x):
        whole = np.concatenate([free[:, :3], np.ones((3, 1)), free[:, 3:]], axis=1)
        return OURS.sosfilt(whole, x), OURS.sosfiltfilt(whole, x)

    free = np.concatenate([rng.normal(size=(3, 3)), rng.uniform(-0.3, 0.3, (3, 2))], axis=1)
    for part in (0, 1):
        agree(lambda free, x, part=part: at(free, x)[part], (free, x[:, :24]), rng)


def test_there_and_back(rng):
    b, a = THEIRS.butter(2, 0.3)
    for padtype in ("odd", "even", "constant", None):
        agree(lambda b, a, x, p=padtype: OURS.filtfilt(b, a, x, padtype=p), (b, a, rng.normal(size=14)), rng)  # fmt: skip


# ----------------------------------------------------------------------------------------------------- spectra


@SHORT
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("n", [39, 40])
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"nperseg": 16}, {"nperseg": 15, "noverlap": 4}, {"nperseg": 16, "nfft": 20, "window": ("kaiser", 3.0)},
        {"nperseg": 16, "detrend": False, "scaling": "spectrum"}, {"nperseg": 16, "detrend": "linear"}, {"nperseg": 8, "average": "median"},
        {"nperseg": 8, "return_onesided": False}, {"window": np.hamming(12), "nperseg": 12},
    ],
)  # fmt: skip
def test_spectra_have_scipys_values(settings, n, kind, rng):
    if kind == "complex":
        settings = settings | {"return_onesided": False}
    x, y = drawn(rng, (3, n), kind), drawn(rng, (3, n - 5), kind)
    same("welch", (x,), 2.0, **settings)
    same("welch", (x.T.copy(),), axis=0, **settings)
    same("csd", (x, y), 2.0, **settings)
    if "average" not in settings:
        same("spectrogram", (x,), **settings)
        same("spectrogram", (x.T.copy(),), axis=0, mode="complex", **settings)
        same("spectrogram", (x,), mode="magnitude", **settings)
    settings = {k: v for k, v in settings.items() if k not in ("average", "scaling")}
    for boundary in ("zeros", "even", "odd", "constant", None):
        same("stft", (x,), 3.0, boundary=boundary, **settings)
    same("stft", (x.T.copy(),), axis=0, padded=False, scaling="psd", **settings)


@SHORT
def test_further_spectra_have_scipys_values(rng):
    x, y = rng.normal(size=(2, 3, 40))
    same("coherence", (x, y), nperseg=16)
    for nfft in (None, 30, 39, 64):
        same("periodogram", (x,), 1.0, "hann", nfft)
    same("periodogram", (x.T.copy(),), axis=0)
    for n, overlap in ((16, None), (15, None), (16, 12)):
        z = THEIRS.stft(x, nperseg=n, noverlap=overlap)[2]
        same("istft", (z,), nperseg=n, noverlap=overlap)
        same("istft", (z,), 2.0, nperseg=n, noverlap=overlap, boundary=False, scaling="psd")
        same("istft", (np.moveaxis(z, -1, 0),), nperseg=n, noverlap=overlap, time_axis=0, freq_axis=-1)  # fmt: skip
    for n in (None, 30, 50, 51):
        same("hilbert", (x,), n)
    same("hilbert", (x,), axis=0)
    for settings in ({}, {"type": "constant"}, {"bp": [10, 20]}, {"axis": 0}):
        same("detrend", (x,), **settings)


@pytest.mark.long
def test_spectra_are_differentiated(rng):
    x, y = rng.normal(size=(2, 24))
    agree(lambda x: OURS.welch(x, nperseg=8)[1], (x,), rng, compiled=True)
    agree(lambda x: OURS.welch(x, nperseg=8, average="median")[1], (x,), rng)
    agree(lambda x, y: np.abs(OURS.csd(x, y, nperseg=8)[1]), (x, y), rng)
    agree(lambda x, y: OURS.coherence(x, y, nperseg=8)[1], (x, y), rng)
    agree(lambda x: OURS.periodogram(x, window="hann")[1], (x,), rng)
    agree(lambda x: OURS.spectrogram(x, nperseg=8)[2], (x,), rng)
    agree(lambda x: np.abs(OURS.stft(x, nperseg=8)[2]), (x,), rng, compiled=True)
    agree(lambda x: np.abs(OURS.hilbert(x)), (x,), rng)
    agree(lambda x: OURS.detrend(x, bp=[7]), (x,), rng)
    there_and_back = lambda x: OURS.istft(OURS.stft(x, nperseg=8)[2], nperseg=8)[1]  # noqa: E731
    np.testing.assert_allclose(tg.jacobian(there_and_back)(x), np.eye(24), atol=1e-12)


# --------------------------------------------------------------------------------------- resampling and smoothing


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("n", [39, 40])
def test_resampling_has_scipys_values(n, kind, rng):
    x = drawn(rng, (3, n), kind)
    for num in (10, 20, 39, 40, 41, 60, 61, 80):
        for window in (None, "hamming", rng.uniform(size=n)):
            same("resample", (x,), num, axis=1, window=window)
        same("resample", (x,), num, axis=1, domain="freq")
    times = np.arange(n) * 0.5
    np.testing.assert_allclose(OURS.resample(tg.tensor(x.T), 10, times)[1], THEIRS.resample(x.T, 10, times)[1])  # fmt: skip
    for up, down in ((1, 1), (3, 2), (2, 3), (5, 1), (1, 4), (4, 6)):
        for padtype in ("constant", "mean", *(("median", "minimum", "maximum") if kind == "real" else ())):  # fmt: skip
            same("resample_poly", (x,), up, down, 1, padtype=padtype)
        same("resample_poly", (x,), up, down, 1, window=np.array([0.5, 1.0, 0.5]))


def test_the_adjoint_of_resampling(rng):
    """<A x, y> = <x, A' y>, for all rates, filters longer and shorter than the signal."""
    for up, down, n, taps in ((1, 1, 5, 3), (3, 2, 4, 7), (2, 5, 3, 1), (5, 2, 1, 9), (4, 4, 6, 2), (1, 7, 3, 2)):  # fmt: skip
        h, x = rng.normal(size=taps), rng.normal(size=(2, n))
        value = THEIRS.upfirdn(h, x, up, down)
        y = rng.normal(size=value.shape)
        back = tg.vjp(lambda x: OURS.upfirdn(h, x, up, down), x)[1](y)[0]
        np.testing.assert_allclose(np.sum(value * y), np.sum(x * back), rtol=1e-11)
        agree(lambda x: OURS.upfirdn(h, x, up, down), (x,), rng)
        agree(lambda h, x: OURS.upfirdn(h, x, up, down), (h, x), rng)
        same("upfirdn", (h, x), up, down)
    agree(lambda x: OURS.resample(x, 9, axis=1), (x,), rng)
    agree(lambda x: OURS.resample_poly(x, 3, 2, 1, padtype="mean"), (rng.normal(size=(2, 7)),), rng)


@pytest.mark.parametrize("mode", ["mirror", "constant", "nearest", "interp", "wrap"])
def test_smoothing(mode, rng):
    x = rng.normal(size=(3, 12))
    for settings in ({}, {"deriv": 1, "delta": 0.5}, {"deriv": 2}):
        same("savgol_filter", (x,), 7, 3, mode=mode, **settings)
        same("savgol_filter", (x.T.copy(),), 6, 2, axis=0, mode=mode, **settings)
    for cval in (2.0, np.nan):
        same("savgol_filter", (x,), 7, 3, mode=mode, cval=cval)
    agree(lambda x, d: OURS.savgol_filter(x, 5, 2, 1, d, mode=mode), (x[0], 0.5), rng)


def test_precision_is_kept(rng):
    x = tg.tensor(rng.normal(size=40).astype(np.float32))
    for found in (
        OURS.detrend(x), OURS.savgol_filter(x, 5, 2), OURS.resample_poly(x, 3, 2), OURS.welch(x, nperseg=8)[1], OURS.hilbert(x).real,
        OURS.lfilter(np.ones(2, np.float32), np.ones(1, np.float32), x),
    ):  # fmt: skip
        assert found.dtype == np.float32


# fmt: off
REFUSED = [
    (lambda x: OURS.lfilter(np.eye(2), [1.0], x), ValueError, "two vectors b and a"),
    (lambda x: OURS.lfilter([1.0, 2.0], [1.0], x, zi=np.ones(3)), ValueError, "shape for zi"),
    (lambda x: OURS.filtfilt([1.0], [1.0], x), ValueError, "padlen"),
    (lambda x: OURS.filtfilt([1.0], [1.0], x, method="gust"), tg.NotDifferentiable, "method='pad'"),
    (lambda x: OURS.filtfilt([1.0], [1.0], x, padtype="far"), ValueError, "'constant' or None"),
    (lambda x: OURS.sosfilt(np.ones((2, 5)), x), ValueError, "n_sections, 6"),
    (lambda x: OURS.sosfilt(2 * np.ones((1, 6)), x), ValueError, "all ones"),
    (lambda x: OURS.sosfilt(np.ones((1, 6)), x, zi=np.ones(2)), ValueError, "zi must have shape"),
    (lambda x: OURS.detrend(x, type="curve"), ValueError, "'linear' or 'constant'"),
    (lambda x: OURS.detrend(x, bp=9), ValueError, "Breakpoints"),
    (lambda x: OURS.hilbert(x * 1j), ValueError, "real"),
    (lambda x: OURS.welch(np.ones(3), window=x), tg.NotDifferentiable, "windows are constants"),
    (lambda x: OURS.welch(x, window=np.ones(4)), ValueError, "longer than input"),
    (lambda x: OURS.welch(x, nperseg=2, noverlap=2), ValueError, "less than nperseg"),
    (lambda x: OURS.welch(x, nperseg=2, nfft=1), ValueError, "nfft must be greater"),
    (lambda x: OURS.welch(x, nperseg=2, scaling="loud"), ValueError, "scaling"),
    (lambda x: OURS.stft(x, nperseg=2, boundary="far"), ValueError, "boundary"),
    (lambda x: OURS.spectrogram(x, nperseg=2, mode="phase"), tg.NotDifferentiable, "np.angle"),
    (lambda x: OURS.istft(x), ValueError, "2d"),
    (lambda x: OURS.resample(x, 4, domain="wave"), ValueError, "domain"),
    (lambda x: OURS.resample_poly(x, 1, 2, padtype="line"), tg.NotDifferentiable, "np.pad"),
    (lambda x: OURS.resample_poly(x, 0, 2), ValueError, ">= 1"),
    (lambda x: OURS.upfirdn(np.eye(2), x), ValueError, "1-D"),
    (lambda x: OURS.upfirdn([1.0], x, mode="wrap"), tg.NotDifferentiable, "np.pad"),
    (lambda x: OURS.savgol_filter(x, 5, 2), ValueError, "window_length"),
    (lambda x: OURS.savgol_filter(x, 3, 2, mode="far"), ValueError, "mode must be"),
]
# fmt: on


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(tg.tensor([1.0, 2.0, 4.0]))


def test_scipys_own_filters_say_what_to_write():
    with pytest.raises(tg.GradientLost, match=r"write tg\.signal\.lfilter"):
        tg.grad(lambda x: THEIRS.lfilter([1.0], [1.0, 0.5], x).sum())(np.ones(3))
