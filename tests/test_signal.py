"""tg.signal: the values of scipy.signal, and derivatives by differences, in every mode."""

import itertools

import numpy as np
import pytest
import scipy.signal

import tapegrad as tg

SHAPES = [((5,), (3,)), ((3,), (6,)), ((4, 4), (2, 3)), ((2, 3), (4, 4)), ((4, 3, 2), (2, 2, 2))]
MODES = ("full", "same", "valid")


def drawn(rng, shape, kind):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "complex" else x


def slopes(f, x, direction, h=1e-4):
    """Derivative along a direction, by five points."""
    return sum(c * f(x + k * h * direction) for k, c in ((-2, 1), (-1, -8), (1, 8), (2, -1))) / (12 * h)  # fmt: skip


def differentiated(f, operands, rng):
    """Both modes, to the second order, against differences; `f` is linear in each operand."""
    value = f(*operands)
    w = rng.normal(size=np.shape(value))
    loss = lambda *xs: np.sum(np.tanh(np.real(f(*xs) * w)))  # noqa: E731
    for i, x in enumerate(operands):
        along = rng.normal(size=np.shape(x))
        moved = lambda z, i=i: loss(*operands[:i], z, *operands[i + 1 :])  # noqa: E731
        expected = slopes(moved, x, along)
        np.testing.assert_allclose(np.sum(np.real(tg.grad(moved)(x)) * along), expected, rtol=1e-8)
        np.testing.assert_allclose(tg.jvp(moved, (x,), (along,))[1], expected, rtol=1e-8)
        if np.isrealobj(x):
            turned = slopes(tg.grad(moved), x, along)
            np.testing.assert_allclose(tg.hvp(moved)(x, along), turned, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
def test_arrays_of_any_number_of_axes(name, mode, kind, rng):
    ours, theirs = getattr(tg.signal, name), getattr(scipy.signal, name)
    for shapes in SHAPES:
        operands = [drawn(rng, s, kind) for s in shapes]
        np.testing.assert_allclose(ours(*operands, mode), theirs(*operands, mode), atol=1e-12)
        differentiated(lambda a, b: ours(a, b, mode), operands, rng)


@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_boundaries_of_matrices(name, mode, boundary, rng):
    ours, theirs = getattr(tg.signal, name), getattr(scipy.signal, name)
    settings = {"mode": mode, "boundary": boundary, "fillvalue": 0.5 if boundary == "fill" else 0}
    for shapes, kind in itertools.product([*SHAPES[2:4], ((4, 5), (3, 2))], ("real", "complex")):
        operands = [drawn(rng, s, kind) for s in shapes]
        expected = theirs(*operands, **settings)
        np.testing.assert_allclose(ours(*operands, **settings), expected, atol=1e-12)
        if kind == "real":
            differentiated(lambda a, b: ours(a, b, **settings), operands, rng)


@pytest.mark.parametrize("mode", MODES)
def test_fourier_transforms_along_some_axes(mode, rng):
    a, b = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 3, 2))
    expected = scipy.signal.fftconvolve(a, b, mode, axes=(1, 2))
    np.testing.assert_allclose(tg.signal.fftconvolve(a, b, mode, axes=(1, -1)), expected, atol=1e-12)  # fmt: skip
    differentiated(lambda a, b: tg.signal.fftconvolve(a, b, mode, axes=(1, 2)), (a, b), rng)
    one = tg.signal.fftconvolve(a + 0j, b[:, :, :1], mode, axes=1)
    np.testing.assert_allclose(one, scipy.signal.fftconvolve(a + 0j, b[:, :, :1], mode, axes=1), atol=1e-12)  # fmt: skip
    # The first is stretched along the other axes, of which "same" takes the middle as well.
    short = tg.signal.fftconvolve(a[:1, :, :1], b, mode, axes=1)
    np.testing.assert_allclose(short, scipy.signal.fftconvolve(a[:1, :, :1], b, mode, axes=1), atol=1e-12)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_pairs_of_axes(mode, rng):
    """As in HIPS autograd: what is left of the first, what is left of the second, the convolved axes."""
    convolve = tg.signal.convolve
    a, b, c = rng.normal(size=(3, 5)), rng.normal(size=(4, 3)), rng.normal(size=(3, 4, 2))
    outer = convolve(a, b, mode, axes=([1], [0]))
    for i, j in itertools.product(range(3), range(3)):
        np.testing.assert_allclose(outer[i, j], scipy.signal.convolve(a[i], b[:, j], mode))
    summed = convolve(a, c, mode, axes=([1], [2]), dot_axes=([0], [0]))
    for j in range(4):
        expected = sum(scipy.signal.convolve(a[i], c[i, j], mode) for i in range(3))
        np.testing.assert_allclose(summed[j], expected)
    both = convolve(a, b, mode, axes=([1, 0], [0, 1]))
    expected = scipy.signal.convolve(a.T, b, mode)
    np.testing.assert_allclose(both, expected)
    differentiated(lambda a, c: convolve(a, c, mode, axes=([1], [2]), dot_axes=([0], [0])), (a, c), rng)  # fmt: skip
    if mode != "same":
        turned = convolve(b, a, mode, axes=([0], [1]))
        np.testing.assert_allclose(turned, np.swapaxes(outer, 0, 1))


def test_what_is_refused():
    with pytest.raises(ValueError, match="1 and 2 axes"):
        tg.signal.convolve(np.ones(3), np.ones((2, 2)))
    with pytest.raises(ValueError, match="'full', 'same' or 'valid'"):
        tg.signal.correlate(np.ones(3), np.ones(2), "some")
    with pytest.raises(ValueError, match="two matrices"):
        tg.signal.convolve2d(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="'fill', 'wrap' or 'symm'"):
        tg.signal.correlate2d(np.eye(3), np.eye(2), boundary="round")
    with pytest.raises(tg.GradientLost, match=r"write tg\.signal\.convolve"):
        tg.grad(lambda x: scipy.signal.convolve(x, x).sum())(np.ones(3))


def test_programs_and_tensors(rng):
    image, kernel = rng.normal(size=(6, 6)), rng.normal(size=(3, 3))

    def loss(k):
        return np.sum(tg.signal.convolve(image, k, "same") ** 2)

    np.testing.assert_allclose(tg.compile(tg.grad(loss))(kernel), tg.grad(loss)(kernel), rtol=1e-12)
    k = tg.tensor(kernel, requires_grad=True)
    loss(k).backward()
    np.testing.assert_allclose(k.grad.numpy(), tg.grad(loss)(kernel), rtol=1e-12)
    assert isinstance(tg.signal.convolve(image, kernel), np.ndarray)
    assert tg.signal.convolve([1.0, 2.0], [1, 1]).tolist() == [1.0, 3.0, 2.0]
