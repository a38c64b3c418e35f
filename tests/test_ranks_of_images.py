"""tg.ndimage by the order of entries and by labelled regions: SciPy's values, and derivatives away from ties."""

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.ndimage, scipy.ndimage
DRAWS = np.random.default_rng(3)
X = DRAWS.permutation(42).reshape(6, 7) / 5.0
HEIGHTS = DRAWS.permutation(9).reshape(3, 3) / 7.0
CROSS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
FILTERS = {
    "maximum_filter": (), "minimum_filter": (), "median_filter": (), "rank_filter": (2,), "percentile_filter": (30,),
}  # fmt: skip
MORPHOLOGY = ["grey_erosion", "grey_dilation", "grey_opening", "grey_closing", "white_tophat", "black_tophat", "morphological_gradient", "morphological_laplace"]  # fmt: skip
MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]


def same(name, *args, **settings):
    found = getattr(OURS, name)(tg.tensor(args[0]), *args[1:], **settings)
    expected = getattr(THEIRS, name)(*args, **settings)
    found = np.array([[v.item() for v in np.ravel(f)] if isinstance(f, tuple) else f.numpy() for f in found]) if isinstance(found, list) else found  # fmt: skip
    found = np.array([v.item() for v in found]) if isinstance(found, tuple) else found
    found = found.numpy() if isinstance(found, tg.Tensor) else found
    assert np.shape(found) == np.shape(expected), (name, settings)
    np.testing.assert_allclose(found, expected, 1e-12, 1e-13, err_msg=f"{name} {settings}")
    np.testing.assert_array_equal(getattr(OURS, name)(*args, **settings), expected)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_have_scipys_values(name):
    for mode in MODES:
        for size in (3, 2, (2, 4), (1, 5)):
            same(name, X, *FILTERS[name], size=size, mode=mode, cval=1.3)
        same(name, X, *FILTERS[name], footprint=CROSS, mode=mode, cval=1.3)
        same(name, X, *FILTERS[name], size=3, mode=mode, origin=1)
        same(name, X, *FILTERS[name], footprint=CROSS, mode=mode, origin=(-1, 0))
    same(name, X, *FILTERS[name], size=3, axes=1)
    if name in ("maximum_filter", "minimum_filter"):
        for axis in (0, -1):
            same(name + "1d", X, 4, axis, mode="nearest", origin=-1)


def test_ranks_and_percentiles():
    for rank in (0, 4, -1, -3):
        same("rank_filter", X, rank, size=3)
    for share in (0, 50, 99.9, 100, -10):
        same("percentile_filter", X, share, size=3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_medians_of_signals_have_scipys_values(dtype, rng):
    line, block = X[0].astype(dtype), DRAWS.permutation(60).reshape(3, 4, 5).astype(dtype)
    x = X.astype(dtype)
    calls = [
        ("medfilt", a, *k) for a in (line, x, block) for k in ((), (5,) if a is line else (3,))
    ]
    calls += [
        ("medfilt", x, (1, 5)),
        ("medfilt2d", x),
        ("medfilt2d", x, 5),
        ("medfilt2d", x, [3, 1]),
    ]
    calls += [("order_filter", x, CROSS, rank) for rank in (0, 2, 4)]
    for name, a, *args in calls:
        found = getattr(tg.signal, name)(tg.tensor(a), *args).numpy()
        expected = getattr(scipy.signal, name)(a, *args)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_array_equal(found, expected, err_msg=f"{name} {args}")
        if dtype == np.float64 and a is not block:
            agree(lambda a, name=name, args=args: getattr(tg.signal, name)(a, *args), (a + 0.1,), rng)  # fmt: skip
    for call in (lambda: tg.signal.medfilt(tg.tensor(x), 4), lambda: tg.signal.order_filter(tg.tensor(x), np.ones((2, 3)), 1)):  # fmt: skip
        with pytest.raises(ValueError, match="odd"):
            call()
    with pytest.raises(ValueError, match="write medfilt"):
        tg.signal.medfilt2d(tg.tensor(line))


@pytest.mark.parametrize("name", MORPHOLOGY)
def test_grey_morphology_has_scipys_values(name):
    for mode in ("reflect", "constant"):
        same(name, X, size=3, mode=mode)
        same(name, X, size=(2, 3), mode=mode)
        same(name, X, footprint=CROSS, mode=mode, cval=2.0)
        same(name, X, structure=HEIGHTS, mode=mode)
        same(name, X, structure=HEIGHTS, footprint=CROSS, mode=mode)
        same(name, X, structure=HEIGHTS[:2], mode=mode)


@pytest.mark.long
def test_derivatives(rng):
    x = X[:4, :5]
    for name, more in FILTERS.items():
        agree(
            lambda x, name=name, more=more: getattr(OURS, name)(x, *more, size=3),
            (x,),
            rng,
            compiled=name == "median_filter",
        )
        agree(
            lambda x, c, name=name, more=more: getattr(OURS, name)(
                x, *more, footprint=CROSS, mode="constant", cval=c
            ),
            (x, 3.3),
            rng,
        )
    for name in MORPHOLOGY:
        agree(lambda x, s, name=name: getattr(OURS, name)(x, structure=s), (x, HEIGHTS), rng)


LABELS = DRAWS.integers(0, 4, (6, 7))


@pytest.mark.parametrize(
    "name",
    [
        "sum_labels",
        "mean",
        "variance",
        "standard_deviation",
        "maximum",
        "minimum",
        "median",
        "center_of_mass",
    ],
)
def test_regions(name, rng):
    for labels, index in (
        (None, None),
        (LABELS, None),
        (LABELS, 2),
        (LABELS, [3, 1]),
        (LABELS, np.array([1, 2, 3])),
        (LABELS[0], [1, 2]),
    ):
        same(name, X, labels, index)
    f = getattr(OURS, name)
    agree(
        lambda x: np.stack(
            [np.stack(v) if isinstance(v, tuple) else v for v in f(x, LABELS, [1, 3])]
        ),
        (X,),
        rng,
    )
    agree(lambda x: np.stack(f(x)) if name == "center_of_mass" else f(x, LABELS), (X,), rng)


def test_spectra(rng):
    spectrum, half = np.fft.fft2(X), np.fft.rfft2(X)
    for name, value in (
        ("fourier_gaussian", 0.7),
        ("fourier_shift", (1.3, -0.4)),
        ("fourier_uniform", (2.0, 3.0)),
    ):
        same(name, spectrum, value)
        same(name, half, value, n=7)
        same(name, X, value)
        agree(
            lambda x, v, name=name: np.real(np.fft.ifft2(getattr(OURS, name)(np.fft.fft2(x), v))),
            (X, np.asarray(value)),
            rng,
        )


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda x: OURS.median_filter(x), RuntimeError, "no footprint"),
        (lambda x: OURS.median_filter(x, 3, output=X), tg.NotDifferentiable, "output="),
        (lambda x: OURS.median_filter(x, 3, mode="far"), RuntimeError, "not supported"),
        (lambda x: OURS.median_filter(x, footprint=[1, 1]), RuntimeError, "must match"),
        (lambda x: OURS.median_filter(x, footprint=np.zeros((2, 2))), ValueError, "All-zero"),
        (lambda x: OURS.median_filter(x, footprint=x[:2, :2]), tg.NotDifferentiable, "footprint.numpy"),
        (lambda x: OURS.maximum_filter(x, 3, origin=2), ValueError, "invalid origin"),
        (lambda x: OURS.rank_filter(x, 9, size=3), RuntimeError, "rank not within"),
        (lambda x: OURS.percentile_filter(x, 101, size=3), RuntimeError, "invalid percentile"),
        (lambda x: OURS.grey_erosion(x), ValueError, "must be specified"),
        (lambda x: OURS.grey_erosion(x, footprint=CROSS, structure=X[:2]), RuntimeError, "incorrect shape"),
        (lambda x: OURS.median_filter(x, (3, 2), axes=(1, 0)), tg.NotDifferentiable, "increasing order"),
        (lambda x: OURS.mean(x, x), tg.NotDifferentiable, "labels are constants"),
        (lambda x: OURS.mean(x, None, 1), ValueError, "without defined labels"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor(X, requires_grad=True))
