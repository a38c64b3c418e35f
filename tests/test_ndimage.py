"""tg.ndimage: SciPy's values in every mode and at every size, exact adjoints, and derivatives by images and parameters."""

import itertools

import numpy as np
import pytest
import scipy.ndimage

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.ndimage, scipy.ndimage
MODES = ["reflect", "constant", "nearest", "mirror", "wrap", "grid-constant", "grid-mirror", "grid-wrap"]  # fmt: skip
modes = pytest.mark.parametrize("mode", MODES)
pytestmark = pytest.mark.filterwarnings(
    "ignore:promoting specified output dtype:UserWarning"
)  # SciPy's own


@pytest.fixture
def images(rng):
    """One of some size, one smaller than the kernels, and a complex one."""
    x = rng.normal(size=(5, 7))
    return [x, rng.normal(size=(1, 2)), x + 1j * rng.normal(size=x.shape)]


def same(name, operands, *args, **settings):
    """Our function of tensors gives SciPy's result of arrays, in its dtype."""
    expected = getattr(THEIRS, name)(*operands, *args, **settings)
    found = getattr(OURS, name)(*map(tg.tensor, operands), *args, **settings).numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    rtol = 1e-9 if expected.dtype.char in "dD" else 1e-5
    np.testing.assert_allclose(found, expected, rtol, rtol, err_msg=f"{name} {args} {settings}")
    np.testing.assert_array_equal(getattr(OURS, name)(*operands, *args, **settings), expected)


def adjoint(name, x, *args, rng, **settings):
    """<A x, y> = <x, A' y>, with A by SciPy."""
    value = getattr(THEIRS, name)(x, *args, **settings)
    y = rng.normal(size=value.shape)
    back = tg.vjp(lambda x: getattr(OURS, name)(x, *args, **settings), x)[1](y)[0]
    assert back.shape == x.shape
    np.testing.assert_allclose(np.sum(x * back), np.sum(value * y), 1e-9, 1e-9, err_msg=f"{name} {args} {settings}")  # fmt: skip


# ------------------------------------------------------------------------------------------------------ filters


KERNELS = [(3, 3), (2, 5), (1, 4), (9, 11)]


@modes
def test_correlations_have_scipys_values(mode, images, rng):
    kernels = [rng.normal(size=shape) for shape in KERNELS] + [rng.normal(size=(3, 2)) + 1j]
    for x, w, origin, cval in itertools.product(images, kernels, (0, (0, -1)), (0.0, 2.0)):
        same("correlate", (x, w), mode=mode, origin=origin, cval=cval)
        even = w.shape[1] % 2 == 0 and origin
        same("convolve", (x, w), mode=mode, origin=0 if even else origin, cval=cval)
    for x, n, axis in itertools.product(images, (1, 3, 4, 8), (0, -1)):
        w = rng.normal(size=n)
        same("correlate1d", (x, w), axis=axis, mode=mode, cval=1.0)
        same("convolve1d", (x, w), axis=axis, mode=mode)


@modes
def test_filters_have_scipys_values(mode, images):
    for x in images:
        for sigma, order in itertools.product((0.7, 2.0, (1.0, 0.0)), (0, 1, (2, 0))):
            same("gaussian_filter", (x,), sigma, order, mode=mode, cval=1.0)
        same("gaussian_filter", (x,), 1.0, radius=2, axes=(1,), mode=mode)
        same("gaussian_filter1d", (x,), 1.3, axis=0, order=3, mode=mode)
        for size in (1, 2, 3, 9):
            same("uniform_filter1d", (x,), size, mode=mode, cval=1.0)
            same("uniform_filter", (x,), size, mode=mode, cval=1.0)
        same("uniform_filter", (x,), (3, 2), mode=mode, origin=(1, 0))
        for name in ("prewitt", "sobel"):
            same(name, (x,), 0, mode=mode, cval=1.0)
            same(name, (x,), mode=mode)
        same("laplace", (x,), mode=mode, cval=2.0)
        same("gaussian_laplace", (x,), 1.2, mode=mode)
        if np.isrealobj(x):
            same("gaussian_gradient_magnitude", (x,), (1.2, 0.8), mode=mode)


@modes
def test_adjoints_of_filters(mode, images, rng):
    for x in images[:2]:
        for shape in KERNELS:
            adjoint("correlate", x, rng.normal(size=shape), mode=mode, rng=rng)
            adjoint("convolve", x, rng.normal(size=shape), mode=mode, origin=(0, -1) if shape[1] % 2 else 0, rng=rng)  # fmt: skip
        adjoint("gaussian_filter", x, 2.0, mode=mode, rng=rng)
        for size in (2, 3, 9):
            adjoint("uniform_filter", x, size, mode=mode, rng=rng)
        adjoint("sobel", x, mode=mode, rng=rng)
        adjoint("laplace", x, mode=mode, rng=rng)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mode", MODES[:5])
def test_filters_are_differentiated(mode, rng):
    x, w = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    agree(lambda x, w, c: OURS.correlate(x, w, mode=mode, cval=c), (x, w, 0.5), rng, names=None if mode == "constant" else (0, 1), compiled=mode == "mirror")  # fmt: skip
    agree(lambda x, w: OURS.convolve1d(x, w, 0, mode=mode), (x, rng.normal(size=5)), rng)
    agree(lambda x, s: OURS.gaussian_filter(x, s, (1, 0), mode=mode), (x, 0.9), rng, compiled=mode == "wrap")  # fmt: skip
    agree(lambda x, s: OURS.gaussian_filter(x, s, mode=mode), (x, np.array([0.9, 1.3])), rng)
    agree(lambda x: OURS.uniform_filter(x, 3, mode=mode, cval=1.0), (x,), rng)
    agree(lambda x, s: OURS.gaussian_gradient_magnitude(x, s, mode=mode), (x, 0.9), rng)


def test_where_a_gradient_vanishes_its_length_has_the_derivative_zero():
    found = tg.grad(lambda x: np.sum(OURS.gaussian_gradient_magnitude(x, 1.0)))(np.zeros((4, 4)))
    np.testing.assert_array_equal(found, 0.0)


def test_a_cval_counts_beyond_the_edges_only(rng):
    x = rng.normal(size=(4, 5))
    for cval in (np.nan, np.inf):
        same("correlate", (x, np.ones((1, 3))), mode="constant", cval=cval)
        same("convolve", (x, np.ones((3, 2))), mode="constant", cval=cval, origin=(1, 0))
        same("gaussian_filter1d", (x,), 0.5, mode="constant", cval=cval)
        found = OURS.uniform_filter1d(tg.tensor(x), 3, 0, mode="constant", cval=cval)
        np.testing.assert_allclose(found[1:-1], THEIRS.uniform_filter1d(x, 3, 0)[1:-1])


def test_tiny_kernels_are_not_taken_for_symmetric_ones(rng):
    """SciPy compares entries of kernels by differences of 2e-16, whatever their size."""
    x, w = rng.normal(size=6), rng.normal(size=3)
    for size in (1e-30, 1e-18, 1.0):
        found = OURS.correlate1d(tg.tensor(x), w * size).numpy()
        np.testing.assert_allclose(found, THEIRS.correlate1d(x, w) * size, rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(lambda w: OURS.correlate1d(x, w), (w,), (w * 1e-20,))[1], THEIRS.correlate1d(x, w) * 1e-20, rtol=1e-12)  # fmt: skip


def test_single_precision_is_kept(rng):
    x = rng.normal(size=(5, 7)).astype(np.float32)
    same("correlate", (x, rng.normal(size=(3, 3)).astype(np.float32)))
    for name, args in (("gaussian_filter", (1.0,)), ("uniform_filter", (3,)), ("sobel", ()), ("shift", (0.3,)), ("zoom", (1.5,)), ("rotate", (20.0,))):  # fmt: skip
        same(name, (x,), *args)


# ----------------------------------------------------------------------------------------- between the entries


@modes
@pytest.mark.parametrize("order", range(6))
def test_splines_through_images_have_scipys_values(order, mode, images, rng):
    q = np.stack([rng.uniform(-14, 20, (3, 4)), rng.uniform(-3, 10, (3, 4))])
    q[:, 0] = [[0, 1, 4, -0.3], [0, 1, 6, -0.3]]
    for x in images:
        same("spline_filter1d", (x,), order, axis=0, mode=mode)
        if order > 1:
            same("spline_filter", (x,), order, mode=mode)
        for prefilter, cval in itertools.product((True, False), (0.0, 2.0)):
            same("map_coordinates", (x, q), order=order, mode=mode, cval=cval, prefilter=prefilter)


@modes
@pytest.mark.parametrize("order", range(6))
def test_geometric_transforms_have_scipys_values(order, mode, images):
    settings = {"order": order, "mode": mode}
    matrix = np.array([[0.9, 0.1], [-0.2, 1.1]])
    homogeneous = np.array([[0.9, 0.1, 0.5], [-0.2, 1.1, 0.2], [0, 0, 1]])
    for x in images:
        same("shift", (x,), (0.3, -1.2), cval=1.0, **settings)
        same("shift", (x,), 1.0, **settings)
        same("affine_transform", (x, matrix), offset=(0.1, 0.3), cval=1.0, **settings)
        same("affine_transform", (x, np.array([0.7, 1.2])), offset=0.2, output_shape=(4, 3), **settings)  # fmt: skip
        same("affine_transform", (x, homogeneous), **settings)
        for factor in (0.5, 1.7, (2, 1), (1, 3)):
            same("zoom", (x,), factor, cval=1.0, **settings)
        for angle, whole in itertools.product((0.0, 30.0, 90.0, -47.0), (True, False)):
            same("rotate", (x,), angle, reshape=whole, cval=1.0, **settings)


@pytest.mark.filterwarnings("ignore:It is recommended:UserWarning")
@modes
def test_pixels_as_areas_and_planes_of_a_stack(mode, images, rng):
    for x, factor in itertools.product(images[:2], (0.5, 1.7, (2, 1))):
        same("zoom", (x,), factor, mode=mode, grid_mode=True)
    same("rotate", (rng.normal(size=(3, 4, 5)),), 25.0, axes=(0, 2), mode=mode)


@modes
def test_adjoints_of_geometric_transforms(mode, images, rng):
    for x, order in itertools.product(images[:2], (0, 1, 2, 3, 5)):
        q = np.stack([rng.uniform(-14, 20, 9), rng.uniform(-3, 10, 9)])
        adjoint("map_coordinates", x, q, order=order, mode=mode, rng=rng)
        adjoint("rotate", x, 30.0, order=order, mode=mode, rng=rng)
        adjoint("zoom", x, 1.7, order=order, mode=mode, rng=rng)
        if order > 1:
            adjoint("spline_filter", x, order, mode=mode, rng=rng)


@modes
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_places_are_differentiated(order, mode, rng):
    x = rng.normal(size=(4, 3))
    # Away from the places where the pieces of the splines meet, and from edges.
    q = rng.integers(-3, 6, (2, 4)) + rng.choice([0.2, 0.35, 0.7, 0.8], (2, 4))
    agree(lambda x, q: OURS.map_coordinates(x, q, order=order, mode=mode, cval=0.3), (x, q), rng, second=order > 1, compiled=order == 3 and mode == "mirror")  # fmt: skip


@pytest.mark.long
def test_parameters_of_transforms_are_differentiated(rng):
    x = rng.normal(size=(4, 5))
    settings = {"order": 3, "mode": "grid-wrap"}
    agree(lambda x, s: OURS.shift(x, s, **settings), (x, np.array([0.3, -1.2])), rng)
    agree(lambda x, s: OURS.shift(x, s, **settings), (x, 0.4), rng)
    matrix = np.array([[0.93, 0.11], [-0.23, 1.13]])
    agree(lambda x, m, o: OURS.affine_transform(x, m, o, **settings), (x, matrix, np.array([0.1, 0.37])), rng)  # fmt: skip
    agree(lambda x, m: OURS.affine_transform(x, m, 0.21, **settings), (x, np.array([0.73, 1.17])), rng)  # fmt: skip
    agree(lambda x, a: OURS.rotate(x, a, reshape=False, **settings), (x, 23.0), rng, compiled=True)
    agree(lambda x, a: OURS.rotate(x, a, **settings), (x, 23.0), rng)
    agree(lambda x: OURS.zoom(x, 1.4, **settings), (x,), rng)
    for mode in ("constant", "grid-constant"):
        agree(lambda c, m=mode: OURS.shift(x, 0.4, mode=m, cval=c), (0.5,), rng)


def test_a_registration_finds_the_shift(rng):
    """What it is for: the shift between two pictures, by least squares."""
    picture = OURS.gaussian_filter(rng.normal(size=(24, 24)), 2.0)
    moved = OURS.shift(picture, (0.7, -1.3), mode="nearest")
    found = tg.least_squares(lambda s: (OURS.shift(picture, s, mode="nearest") - moved)[4:-4, 4:-4].ravel(), np.zeros(2)).x  # fmt: skip
    np.testing.assert_allclose(found, (0.7, -1.3), atol=1e-6)


def test_empty_images():
    for name, args in (("gaussian_filter", (1.0,)), ("uniform_filter", (3,)), ("correlate1d", (np.ones(3),))):  # fmt: skip
        f = lambda x, name=name, args=args: np.sum(getattr(OURS, name)(x, *args))  # noqa: E731
        assert tg.grad(f)(np.zeros((0, 3))).shape == (0, 3)


# fmt: off
REFUSED = [
    (lambda x: OURS.correlate(x, np.ones(3)), RuntimeError, "must match"),
    (lambda x: OURS.correlate(x, np.ones((0, 1))), RuntimeError, "no filter weights"),
    (lambda x: OURS.correlate(x, np.ones((3, 3)), mode="far"), RuntimeError, "boundary mode 'far'"),
    (lambda x: OURS.correlate(x, np.ones((3, 3)), origin=2), ValueError, "invalid origin"),
    (lambda x: OURS.correlate(x, np.ones((3, 3)), np.zeros((3, 3))), tg.NotDifferentiable, "Use the result"),
    (lambda x: OURS.correlate1d(x, np.eye(3)), RuntimeError, "vector of weights"),
    (lambda x: OURS.gaussian_filter(x, (1.0, 2.0, 3.0)), RuntimeError, "3 values for 2 axes"),
    (lambda x: OURS.gaussian_filter1d(x, 1.0, order=-1), ValueError, "non-negative"),
    (lambda x: OURS.uniform_filter1d(x, 0), RuntimeError, "incorrect filter size"),
    (lambda x: OURS.map_coordinates(x, [[0.0]]), RuntimeError, "one row for each axis"),
    (lambda x: OURS.map_coordinates(x, x, order=6), RuntimeError, "spline order"),
    (lambda x: OURS.map_coordinates(x, x, mode="far"), RuntimeError, "boundary mode"),
    (lambda x: OURS.map_coordinates(x, x[:2] * 1j), TypeError, "Complex"),
    (lambda x: OURS.zoom(np.eye(3), x[0, 0]), tg.NotDifferentiable, "affine_transform"),
    (lambda x: OURS.shift(x, (1.0, 2.0, 3.0)), RuntimeError, "one for each"),
    (lambda x: OURS.affine_transform(x, np.eye(5)), RuntimeError, "rows"),
    (lambda x: OURS.rotate(x[0], 3.0), ValueError, "at least 2D"),
    (lambda x: OURS.spline_filter(x, output=np.float32), tg.NotDifferentiable, "Use the result"),
    (lambda x: OURS.spline_filter(x, 1), RuntimeError, "spline order"),
]
# fmt: on


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(tg.tensor(np.eye(3)))


def test_scipys_own_functions_say_what_to_write():
    with pytest.raises(tg.GradientLost, match=r"write tg\.ndimage\.gaussian_filter"):
        tg.grad(lambda x: THEIRS.gaussian_filter(x, 1.0).sum())(np.eye(3))
