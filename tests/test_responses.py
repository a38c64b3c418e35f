"""tg.signal's responses, designed filters, chirps and spectra: SciPy's values over its arguments, and derivatives in every mode."""

import numpy as np
import pytest
import scipy.signal

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.signal, scipy.signal
DRAWS = np.random.default_rng(31)
B, A = DRAWS.normal(size=4), np.r_[1.3, DRAWS.uniform(-0.2, 0.2, 2)]
SOS = THEIRS.butter(4, 0.3, output="sos")
X = DRAWS.normal(size=(2, 60))
W = np.array([0.2, 0.9, 2.5])
T = np.sort(DRAWS.uniform(0, 9, 12))


def parts(found):
    return [
        p.numpy() if isinstance(p, tg.Tensor) else p
        for p in (found if isinstance(found, tuple) else (found,))
    ]


def same(name, operands, *args, rtol=1e-9, atol=1e-11, **settings):
    tracked = [tuple(map(tg.tensor, v)) if isinstance(v, tuple) else tg.tensor(v) for v in operands]
    found = parts(getattr(OURS, name)(*tracked, *args, **settings))
    expected = parts(getattr(THEIRS, name)(*operands, *args, **settings))
    for one, other in zip(found, expected, strict=True):
        assert np.shape(one) == np.shape(other), (name, args, settings)
        np.testing.assert_allclose(one, other, rtol, atol, err_msg=f"{name} {args} {settings}")
    for one, other in zip(
        parts(getattr(OURS, name)(*operands, *args, **settings)), expected, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def both(z):
    return np.stack([np.real(z), np.imag(z)])


@pytest.mark.long
def test_responses(rng):
    for settings in (
        {},
        {"worN": 7},
        {"worN": 8, "whole": True},
        {"worN": W},
        {"worN": 5, "fs": 10.0, "include_nyquist": True},
        {"worN": [1, 2]},
    ):
        same("freqz", (B, A), **settings)
        same("freqz", (B,), **settings)
        if "include_nyquist" not in settings:
            same("freqz_sos", (SOS,), **settings)
            same(
                "freqz_zpk",
                (np.array([0.3 + 0.1j]), np.array([0.5, -0.2j]), np.array(2.0)),
                **settings,
            )
            same(
                "group_delay",
                ((B, A),),
                **{"w" if k == "worN" else k: v for k, v in settings.items()},
            )
    same("sosfreqz", (SOS,), worN=5)
    for settings in ({}, {"worN": 5}, {"worN": W}):
        same("freqs", (B, A), **settings)
    agree(lambda b, a, w: both(OURS.freqz(b, a, w)[1]), (B, A, W), rng, compiled=True)
    agree(
        lambda b, a: both(OURS.freqz_sos(np.concatenate([b, np.ones((2, 1)), a], axis=1), W)[1]),
        (SOS[:, :3], SOS[:, 4:]),
        rng,
    )
    agree(lambda b, a, w: OURS.group_delay((b, a), w)[1], (B, A, W), rng)
    agree(lambda b, a, w: both(OURS.freqs(b, a, w)[1]), (B, A, W), rng)
    agree(lambda p, k: both(OURS.freqz_zpk([0.2], p, k, W)[1]), (np.array([0.5, -0.3]), 2.0), rng)


DESIGNS = [
    ("butter", (3,)), ("butter", (4,)), ("cheby1", (3, 1.0)), ("cheby2", (4, 30.0)), ("cheby2", (3, 30.0)), ("ellip", (4, 1.0, 40.0)),
    ("bessel", (3,)),
]  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("name", "args"), DESIGNS)
def test_designed_filters(name, args, rng):
    f, g = getattr(OURS, name), getattr(THEIRS, name)
    for btype, wn in (
        ("low", 0.3),
        ("high", 0.4),
        ("bandpass", np.array([0.2, 0.5])),
        ("bandstop", np.array([0.2, 0.5])),
    ):
        for settings in ({}, {"analog": True}, {"fs": 4.0}):
            found, expected = (
                parts(f(*args, tg.tensor(wn), btype, **settings)),
                g(*args, wn, btype, **settings),
            )
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, 1e-7, 1e-9, err_msg=f"{btype} {settings}")
        z, p, k = parts(f(*args, tg.tensor(wn), btype, output="zpk"))
        for one, other in zip((z, p), g(*args, wn, btype, output="zpk")[:2], strict=True):
            apart = np.abs(one[:, None] - other)
            assert (
                apart.shape == (len(other), len(other))
                and apart.min(axis=0).max() < 1e-6
                and apart.min(axis=1).max() < 1e-6
            )
        np.testing.assert_allclose(k, g(*args, wn, btype, output="zpk")[2], 1e-9)
        np.testing.assert_allclose(
            f(*args, tg.tensor(wn), btype, output="sos").numpy(),
            g(*args, wn, btype, output="sos"),
            1e-6,
            1e-8,
        )
        np.testing.assert_array_equal(f(*args, wn, btype)[0], g(*args, wn, btype)[0])
        agree(
            lambda w, btype=btype: np.concatenate(f(*args, w, btype)),
            (np.asarray(wn),),
            rng,
            rtol=1e-6,
            compiled=(name, btype) == ("cheby1", "low"),
        )
        agree(
            lambda w, btype=btype: f(*args, w, btype, output="sos"),
            (np.asarray(wn),),
            rng,
            rtol=1e-6,
            second=False,
        )


def test_designs_by_other_arguments(rng):
    agree(lambda w, fs: np.concatenate(OURS.butter(2, w, fs=fs)), (1.0, 5.0), rng)
    same("zpk2tf", (np.array([0.3 + 0.1j, 0.3 - 0.1j]), np.array([0.5]), np.array(2.0)))
    same("zpk2tf", (np.array([0.3 + 0.1j]), np.array([0.5]), np.array(2.0)))
    agree(
        lambda z, p, k: np.concatenate(OURS.zpk2tf(z, p, k)),
        (np.array([0.3, -0.7]), np.array([0.5]), 2.0),
        rng,
    )
    for taps, cut, settings in (
        (5, 0.3, {}), (6, 0.3, {}), (7, 0.3, {"pass_zero": False}), (7, np.array([0.2, 0.6]), {}), (7, np.array([0.2, 0.6]), {"pass_zero": "bandpass"}),
        (9, np.array([0.2, 0.5, 0.8]), {"scale": False}), (9, np.array([0.2, 0.5, 0.8]), {"pass_zero": False}), (8, 1.0, {"fs": 5.0, "window": ("kaiser", 3.0)}),
        (7, 0.4, {"pass_zero": "highpass"}),
    ):  # fmt: skip
        found = OURS.firwin(taps, tg.tensor(cut), **settings)
        np.testing.assert_allclose(
            found.numpy(), THEIRS.firwin(taps, cut, **settings), 1e-10, 1e-13, err_msg=str(settings)
        )
        agree(
            lambda c, taps=taps, settings=settings: OURS.firwin(taps, c, **settings),
            (np.asarray(cut),),
            rng,
        )


def test_signals(rng):
    same("oaconvolve", (X, X[:, :5]), axes=1)
    for settings in (
        {},
        {"ftype": "fir"},
        {"ftype": "fir", "zero_phase": False},
        {"zero_phase": False},
        {"n": 3},
        {"axis": 1},
    ):
        same("decimate", (X,), 3, **settings)
    same("decimate", (X,), 3, ftype=THEIRS.dlti([1.0, 0.5], [1.0, -0.3]), rtol=1e-8)
    for args in ((), (5,), (5, np.exp(-0.3j), 1.1), (80,)):
        same("czt", (X,), *args)
    for args, settings in (
        ((0.7,), {}),
        (([0.2, 0.9], 7), {}),
        (([0.2, 0.9], 7), {"fs": 5.0, "endpoint": True}),
        ((0.7, 70), {}),
    ):
        same("zoom_fft", (X,), *args, **settings)
    same("czt", (X,), 5, axis=0)
    same("deconvolve", (B, A))
    same("deconvolve", (A, B))
    same("wiener", (X[:, :9],))
    same("wiener", (X[:, :9],), (1, 3), 0.3)
    agree(lambda x: OURS.decimate(x, 3), (X[:1],), rng, second=False)
    agree(lambda x: both(OURS.zoom_fft(x, [0.2, 0.9], 5)), (X[0, :9],), rng, compiled=True)
    agree(lambda b, a: np.concatenate(OURS.deconvolve(b, a)), (B, A), rng)
    agree(lambda x, noise: OURS.wiener(x, 3, noise), (X[:, :6], 0.7), rng, rtol=1e-6)


@pytest.mark.parametrize("normalize", [False, True, "amplitude"])
def test_periodograms_of_uneven_samples(normalize, rng):
    y, weights = np.cos(2 * T) + 0.3 * rng.normal(size=12), rng.uniform(0.5, 2.0, 12)
    for settings in (
        {},
        {"weights": weights},
        {"floating_mean": True},
        {"floating_mean": True, "weights": weights},
    ):
        found = OURS.lombscargle(T, tg.tensor(y), W, normalize=normalize, **settings).numpy()
        np.testing.assert_allclose(
            found,
            THEIRS.lombscargle(T, y, W, normalize=normalize, **settings),
            1e-9,
            err_msg=str(settings),
        )

    def power(t, y, w, weights):
        found = OURS.lombscargle(t, y, w, normalize=normalize, weights=weights, floating_mean=True)
        return both(found) if normalize == "amplitude" else found

    agree(power, (T, y, W, weights), rng, rtol=1e-6, compiled=normalize is True)


def test_centred_samples():
    y = np.cos(2 * T) + 1.0
    np.testing.assert_allclose(
        OURS.lombscargle(T, tg.tensor(y), W, precenter=True).numpy(),
        THEIRS.lombscargle(T, y - y.mean(), W),
    )


def test_chirps(rng):
    t = np.linspace(0.0, 1.7, 9)
    for method in ("linear", "quadratic", "logarithmic", "hyperbolic"):
        for f0, f1 in ((1.0, 3.0), (3.0, 1.0), (2.0, 2.0)):
            for settings in ({}, {"phi": 30.0}, {"complex": True}, {"vertex_zero": False}):
                same("chirp", (t,), f0, 2.0, f1, method, **settings)
        agree(
            lambda t, a, c, b, p, method=method: OURS.chirp(t, a, c, b, method, p),
            (t[1:], 1.0, 2.0, 3.0, 10.0),
            rng,
            rtol=1e-6,
        )
        # At equal frequencies, where the formulas divide by 0 divided by 0.
        agree(lambda f, method=method: OURS.chirp(t, f, 2.0, 2.0, method), (2.0,), rng, rtol=1e-6)
    beyond = np.array([3.0, 9.0, 12.0])  # the frequency passes through infinity at 6
    same("chirp", (beyond,), 1.0, 3.0, 2.0, "hyperbolic")
    agree(lambda t: OURS.chirp(t, 1.0, 3.0, 2.0, "hyperbolic"), (beyond,), rng, rtol=1e-5)
    for settings in ({}, {"retquad": True}, {"retenv": True}, {"retquad": True, "retenv": True}):
        same("gausspulse", (t,), 5.0, 0.4, **settings)
    np.testing.assert_allclose(
        OURS.gausspulse("cutoff", tg.tensor(5.0)).item(), THEIRS.gausspulse("cutoff", 5.0)
    )
    agree(lambda t, f, b, r: OURS.gausspulse(t, f, b, r), (t, 2.0, 0.5, -6.0), rng)


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda x: OURS.freqz(x[:, None], [1.0]), tg.NotDifferentiable, "filter by filter"),
        (lambda x: OURS.freqz(x, worN=-1), ValueError, "nonnegative"),
        (lambda x: OURS.freqz_sos(x), ValueError, "shape"),
        (lambda x: OURS.freqz_sos(np.ones((1, 6)) * x[1]), ValueError, "all ones"),
        (lambda x: tg.compile(lambda x: OURS.freqs(x, [1.0, 2.0])[1])(x), tg.NotDifferentiable, "worN as an array"),
        (lambda x: OURS.butter(2, x[0] / 2, output="some"), ValueError, "output form"),
        (lambda x: OURS.butter(2, x[0] / 2, "wide"), ValueError, "invalid bandtype"),
        (lambda x: OURS.butter(2, x[0]), ValueError, "0 < Wn"),
        (lambda x: OURS.butter(2, -x[0]), ValueError, "greater than 0"),
        (lambda x: OURS.butter(2, x[:2] / 9), ValueError, "single critical"),
        (lambda x: OURS.butter(2, x[::-2] / 9, "band"), ValueError, r"Wn\[0\] must be"),
        (lambda x: OURS.butter(2, x[0] / 2, fs=4.0, analog=True), ValueError, "analog"),
        (lambda x: OURS.butter(2, x[0] / 2, analog=True, output="sos"), tg.NotDifferentiable, "'ba' or 'zpk'"),
        (lambda x: OURS.cheby1(2, x[0], 0.3), tg.NotDifferentiable, "ripples"),
        (lambda x: OURS.iirfilter(2, x[0] / 2, btype="low", ftype="own"), ValueError, "basic IIR filter"),
        (lambda x: OURS.firwin(4, x[0]), ValueError, "less than fs/2"),
        (lambda x: OURS.firwin(4, x[0] / 2, pass_zero=False), ValueError, "even number"),
        (lambda x: OURS.firwin(5, x[0] / 2, pass_zero="bandpass"), ValueError, "does not fit"),
        (lambda x: OURS.firwin(5, x[0] / 2, width=0.1), tg.NotDifferentiable, "width="),
        (lambda x: OURS.decimate(x, 2, ftype="own"), ValueError, "invalid ftype"),
        (lambda x: OURS.czt(x, 0), ValueError, "output points"),
        (lambda x: OURS.czt(x, 3, x[0]), tg.NotDifferentiable, "they are constants"),
        (lambda x: OURS.zoom_fft(x, x[0]), tg.NotDifferentiable, "they are constants"),
        (lambda x: OURS.zoom_fft(x, [1, 2, 3]), ValueError, "2-length"),
        (lambda x: OURS.lombscargle(x, x[:2], x), ValueError, "equal non-zero length"),
        (lambda x: OURS.lombscargle(x, x, x, normalize="most"), ValueError, "Normalize"),
        (lambda x: OURS.deconvolve(x[:, None], x), ValueError, "non-empty 1d"),
        (lambda x: OURS.chirp(x, 1.0, 1.0, 2.0, "wild"), ValueError, "method must be"),
        (lambda x: OURS.chirp(x, 1.0, 1.0, -2.0, "log"), ValueError, "same sign"),
        (lambda x: OURS.gausspulse(x, -1.0), ValueError, "at least 0"),
        (lambda x: OURS.gausspulse("end", x[0]), ValueError, "cutoff"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor([1.0, 2.0, 4.0], requires_grad=True))


NUM, DEN = np.array([0.7, -0.4]), np.array([1.3, 0.9, 0.5, 0.2])
STATES = (
    np.array([[-0.4, 1.1, 0.0], [-0.9, -0.2, 0.3], [0.1, -0.2, -0.5]]),
    DRAWS.normal(size=(3, 2)),
    DRAWS.normal(size=(2, 3)),
    DRAWS.normal(size=(2, 2)),
)
ROOTS = (np.array([-0.3]), np.array([-0.5, -0.2 + 1j, -0.2 - 1j]), np.array(2.0))
SINGLE = (STATES[0], STATES[1][:, :1], STATES[2][:1], STATES[3][:1, :1])
TIMES = np.linspace(0.0, 4.0, 9)


@pytest.mark.long
@pytest.mark.parametrize("fs", [1.0, 0.3, 50.0])
def test_bilinear_transforms(fs, rng):
    for b, a in ((NUM, DEN), (DEN, NUM), (np.r_[0.0, NUM], DEN), (NUM, NUM[::-1])):
        same("bilinear", (b, a), fs=fs)
        size = max(np.abs(part).max() for part in THEIRS.bilinear(b, a, fs))
        agree(lambda b, a, size=size: np.concatenate(OURS.bilinear(b, a, fs)) / size, (b, a), rng, compiled=b[0] != 0, rtol=1e-6)  # fmt: skip
    agree(lambda fs: np.concatenate(OURS.bilinear(NUM, DEN, fs)), (fs,), rng)
    same("bilinear_zpk", ROOTS, fs=fs)
    same("bilinear_zpk", (np.array([]), np.array([-0.5]), np.array(1.5)), fs=fs)
    agree(
        lambda *x: np.concatenate([np.ravel(part) for part in OURS.bilinear_zpk(*x)]),
        (np.array([-0.3]), np.array([-0.5, -0.9]), np.float64(1.2), np.float64(fs)),
        rng,
        compiled=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("interp", [True, False])
@pytest.mark.parametrize("start", [0.0, 0.7])
def test_runs_of_linear_systems(interp, start, rng):
    T = TIMES + start
    U, both_inputs, X0 = rng.normal(size=9), rng.normal(size=(9, 2)), rng.normal(size=3)
    for system in ((NUM, DEN), ROOTS, SINGLE, (np.array([2.0]), np.array([4.0]))):
        same("lsim", (system, U, T), interp=interp)
        same("lsim", (system, 0, T), interp=interp)
        same("lsim", (system, U[:1], T[:1]), interp=interp)
    same("lsim", (STATES, both_inputs, T), interp=interp)
    same("lsim", (STATES, both_inputs, T, X0), interp=interp)
    same("lsim", (SINGLE, np.zeros(9), T, X0), interp=interp)
    agree(lambda *x: OURS.lsim(x[:4], x[4], T, x[5], interp)[1], (*STATES, both_inputs, X0), rng, compiled=True)  # fmt: skip
    agree(lambda A, X0: OURS.lsim((A, *STATES[1:]), None, T, X0, interp)[2], (STATES[0], X0), rng)
    agree(lambda b, a, u: OURS.lsim((b, a), u, T, None, interp)[1], (NUM, DEN, U), rng)


@pytest.mark.long
def test_responses_of_linear_systems(rng):
    w = np.array([0.1, 0.8, 3.0])
    for system in ((NUM, DEN), ROOTS, SINGLE):
        for name in ("impulse", "step"):
            same(name, (system,), rtol=1e-8)
            same(name, (system,), N=7, rtol=1e-8)
            same(name, (system,), T=TIMES)
            same(name, (system,), X0=np.ones((3, 1) if name == "impulse" else 3), T=TIMES)
        for name in ("freqresp", "bode"):
            same(name, (system,), w=w)
            same(name, (system,), n=9)
    for name in ("impulse", "step"):
        agree(lambda b, a, name=name: getattr(OURS, name)((b, a), T=TIMES)[1], (NUM, DEN), rng, compiled=True)  # fmt: skip
        operands, names = (*SINGLE, np.ones((3, 1) if name == "impulse" else 3)), (0, 1, 2, 4)
        agree(lambda *x, name=name: getattr(OURS, name)(x[:4], x[4], TIMES)[1], operands, rng, names=names)  # fmt: skip
    agree(lambda b, a, w: both(OURS.freqresp((b, a), w)[1]), (NUM, DEN, w), rng, compiled=True)
    agree(lambda *x: both(OURS.freqresp(x[:4], x[4])[1]), (*SINGLE, w), rng, compiled=True)
    agree(lambda z, k, w: both(OURS.freqresp((z, [-0.5, -0.2], k), w)[1]), (ROOTS[0], 2.0, w), rng)
    agree(lambda b, a, w: np.stack(OURS.bode((b, a), w)[1:]), (NUM, DEN, w), rng, compiled=True)
    for worN in (w, None, 5):
        same("freqs_zpk", ROOTS, worN=worN)


DISCRETE = (STATES[0] / 3, *STATES[1:], 0.5)
ONE_IN = (STATES[0] / 3, *SINGLE[1:], 0.5)
DIGITAL = (NUM / 5, np.r_[1.0, DEN[1:] / DEN[0] / 9], 0.5)


def flat(found):
    """All results of a function one behind the other; complex ones as real and imaginary parts."""
    return np.concatenate([np.ravel(both(p) if np.iscomplexobj(p) else p) for p in found])


@pytest.mark.long(but=1)
def test_forms_of_linear_systems(rng):
    same("tf2ss", (NUM, DEN))
    same("tf2ss", (np.array([2.0]), np.array([4.0])))
    same("zpk2ss", ROOTS)
    for k in range(2):
        same("ss2tf", STATES, input=k)
    same("ss2tf", (np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1), 3.0)))
    found, expected = OURS.tf2zpk(*map(tg.tensor, (NUM, DEN))), THEIRS.tf2zpk(NUM, DEN)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            np.sort_complex(np.ravel(one.numpy())), np.sort_complex(np.ravel(other))
        )
    found, expected = OURS.ss2zpk(*map(tg.tensor, SINGLE)), THEIRS.ss2zpk(*SINGLE)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            np.sort_complex(np.ravel(one.numpy())), np.sort_complex(np.ravel(other)), rtol=1e-9
        )
    agree(lambda b, a: flat(OURS.tf2ss(b, a)), (NUM, DEN), rng, compiled=True)
    agree(lambda *x: flat(OURS.ss2tf(*x, 1)), STATES, rng, compiled=True)
    agree(lambda b, a: flat(OURS.tf2zpk(b, a)), (NUM, DEN), rng)
    agree(lambda *x: flat(OURS.ss2zpk(*x)), SINGLE, rng, rtol=1e-6)
    with pytest.raises(ValueError, match="does not have the input"):
        OURS.ss2tf(*map(tg.tensor, STATES), 2)
    with pytest.raises(ValueError, match="each of which has zeros"):
        OURS.ss2zpk(*map(tg.tensor, STATES))


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "method", ["zoh", "foh", "impulse", "gbt", "bilinear", "euler", "backward_diff"]
)
def test_steps_of_continuous_systems(method, rng):
    settings = {"alpha": 0.3} if method == "gbt" else {}
    states, names = STATES, None
    if method == "impulse":  # of which D has to be 0
        states, names = (*STATES[:3], np.zeros_like(STATES[3])), (0, 1, 2, 4)
    same("cont2discrete", (states, np.float64(0.4)), method=method, **settings)
    if method != "impulse":
        for system in ((NUM, DEN), (np.array([1.0]), np.array([2.0, 3.0]))):
            same("cont2discrete", (system, np.float64(0.4)), method=method, **settings)
    agree(lambda *x: flat(OURS.cont2discrete(x[:4], x[4], method, **settings)[:4]), (*states, np.float64(0.4)), rng, names=names, compiled=True, rtol=1e-6)  # fmt: skip
    if method == "gbt":
        agree(
            lambda a: flat(OURS.cont2discrete(states, 0.4, method, a)[:4]), (np.float64(0.3),), rng
        )
        with pytest.raises(ValueError, match="alpha"):
            OURS.cont2discrete(tuple(map(tg.tensor, states)), 0.4, method)
    with pytest.raises(ValueError, match="Unknown"):
        OURS.cont2discrete(tuple(map(tg.tensor, states)), 0.4, "exact")


def told(system):
    """A system whose parts are tensors, and dt a number."""
    return (*map(tg.tensor, system[:-1]), system[-1])


@pytest.mark.long(but=1)
def test_runs_in_discrete_time(rng):
    u, x0 = rng.normal(size=(9, 2)), rng.normal(size=3)
    times, more = np.arange(9) * 0.75, {"x0": x0}
    for system, fed in ((DISCRETE, u), (ONE_IN, u[:, 0]), (DIGITAL, u[:, 0]), (DIGITAL, u[:1, 0])):
        for settings in ({}, more) if len(system) == 5 else ({},):
            for t in (None, times[: len(fed)]):
                if t is not None and len(t) < 2:
                    continue
                found = parts(OURS.dlsim(told(system), tg.tensor(fed), t, **settings))
                for one, other in zip(found, THEIRS.dlsim(system, fed, t, **settings), strict=True):
                    assert one.shape == other.shape
                    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    ours, theirs = THEIRS.dlti(*ONE_IN[:4], dt=0.5), THEIRS.dlti(*DIGITAL[:2], dt=0.5)
    for system, count in ((ours, 3), (theirs, 2)):
        found, expected = OURS.dlsim(system, tg.tensor(u[:, 0])), THEIRS.dlsim(system, u[:, 0])
        assert len(found) == len(expected) == count
        np.testing.assert_allclose(found[1].numpy(), expected[1])
    agree(lambda *x: flat(OURS.dlsim((*x[:4], 0.5), x[4], None, x[5])[1:]), (*DISCRETE[:4], u, x0), rng, compiled=True)  # fmt: skip
    agree(lambda b, a, u: OURS.dlsim((b, a, 0.5), u, times)[1], (*DIGITAL[:2], u[:, 0]), rng)
    for name in ("dstep", "dimpulse"):
        f, g = getattr(OURS, name), getattr(THEIRS, name)
        for system in (DISCRETE, DIGITAL):
            for settings in ({}, {"n": 5}, {"t": times}):
                found, expected = f(told(system), **settings), g(system, **settings)
                np.testing.assert_allclose(found[0], expected[0])
                for one, other in zip(found[1], expected[1], strict=True):
                    np.testing.assert_allclose(one.numpy(), other, rtol=1e-10, atol=1e-12)
        agree(lambda *x, f=f: flat(f((*x, 0.5), n=6)[1]), DISCRETE[:4], rng, compiled=True)
    w = np.array([0.1, 0.8, 3.0])
    for system in (ONE_IN, DIGITAL, (*ROOTS[:2], ROOTS[2], 0.5)):
        for name in ("dfreqresp", "dbode"):
            for settings in ({"w": w}, {"n": 7}):
                found = parts(getattr(OURS, name)(told(system), **settings))
                for one, other in zip(
                    found, getattr(THEIRS, name)(system, **settings), strict=True
                ):
                    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)
    agree(lambda *x: flat(OURS.dfreqresp((*x[:4], 0.5), x[4])[1:]), (*ONE_IN[:4], w), rng, compiled=True)  # fmt: skip
    agree(lambda b, a, w: flat(OURS.dbode((b, a, 0.5), w)[1:]) / 100, (*DIGITAL[:2], w), rng, compiled=True)  # fmt: skip


def test_what_discrete_systems_refuse():
    t = tg.tensor
    with pytest.raises(AttributeError, match="discrete-time"):
        OURS.dlsim(THEIRS.lti(NUM, DEN), t(np.ones(3)))
    with pytest.raises(ValueError, match="neither of"):
        OURS.dlsim((t(NUM), DEN), np.ones(3))
    with pytest.raises(ValueError, match="a row for each time"):
        OURS.dlsim(DISCRETE, t(np.ones(3)))
    with pytest.raises(ValueError, match="two or more"):
        OURS.dlsim(ONE_IN, t(np.ones(1)), [0.0])
    with pytest.raises(tg.NotDifferentiable, match="cont2discrete"):
        tg.grad(lambda dt: OURS.dlsim((*DIGITAL[:2], dt), np.ones(3))[1].sum())(0.5)
    with pytest.raises(tg.NotDifferentiable, match="steps are of one length"):
        tg.grad(lambda s: OURS.dlsim(ONE_IN, np.ones(3), s)[1].sum())(np.arange(3.0))


def test_what_linear_systems_refuse():
    t = tg.tensor
    with pytest.raises(tg.NotDifferentiable, match="solve_ivp"):
        tg.grad(lambda T: OURS.lsim((NUM, DEN), 0, T, np.ones(3))[1].sum())(TIMES)
    with pytest.raises(tg.NotDifferentiable, match="Leave leading zeros out"):
        tg.grad(lambda a: OURS.step((NUM, a), T=TIMES)[1].sum())(np.r_[0.0, DEN])
    np.testing.assert_allclose(
        OURS.step((t(NUM), np.r_[0.0, DEN]), T=TIMES)[1], THEIRS.step((NUM, DEN), T=TIMES)[1]
    )
    for call in (lambda a: OURS.step((NUM, a))[1], lambda a: OURS.freqresp((NUM, a))[1]):
        with pytest.raises(tg.NotDifferentiable, match=r"Give (T|w) as an array"):
            tg.compile(call)(DEN)
