"""Fourier transforms: the laws judge each op (test_ops.py); here are the functions made of them, SciPy's names, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import tapegrad as tg
from tapegrad.check import laws
from tapegrad.check.samples import samples_from
from tapegrad.core.primitive import call

ROWS = {
    "hfft": (np.fft.hfft, [call((4,)), call((2, 3), n=5, axis=0, norm="ortho"), call((3,), n=3)]),
    "ihfft": (np.fft.ihfft, [call((5,)), call((2, 4), n=3, norm="forward")]),
    "fftshift": (np.fft.fftshift, [call((5,)), call((2, 3), axes=1)]),
    "ifftshift": (np.fft.ifftshift, [call((5,)), call((4, 3), axes=(0, 1))]),
    "power spectrum": (lambda x: np.abs(np.fft.rfft(x)) ** 2, [call((5,)), call((4,))]),
    "repeated axes": (lambda x: np.fft.fftn(x, (4, 3, 5), axes=(0, 1, 0)), [call((2, 3))]),
}


def cases():
    for name, (function, calls) in ROWS.items():
        for sample in samples_from(function, calls):
            for law in laws.laws_of(sample):
                if law.name != "replay" and not (
                    law.name == "value" and name == "power spectrum" and sample.variant == "float32"
                ):
                    yield pytest.param(law, sample, id=f"{name}-{sample.name}-{law.name}")


@pytest.mark.parametrize(("law", "sample"), list(cases()))
def test_law(law, sample):
    law(sample)


@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
@pytest.mark.parametrize("type", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("orthogonalize", [None, True, False])
def test_scipys_transforms_and_their_adjoints(name, type, norm, orthogonalize, rng):
    """Value and VJP against the matrix that SciPy's function of the unit vectors is."""
    settings = {"type": type, "n": 4, "axis": 0, "norm": norm, "orthogonalize": orthogonalize}
    theirs = getattr(scipy.fft, name)
    matrix = theirs(np.eye(5), **settings)
    x, w = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    out, pull = tg.vjp(lambda t: getattr(tg.fft, name)(t, **settings), x)
    np.testing.assert_allclose(out, matrix @ x, atol=1e-13)
    np.testing.assert_allclose(pull(w)[0], matrix.T @ w, atol=1e-13)


@pytest.mark.parametrize("name", ["dctn", "idctn", "dstn", "idstn"])
def test_several_axes(name, rng):
    x = rng.normal(size=(2, 3, 4))
    for settings in (
        {},
        {"axes": (0, 2)},
        {"s": (3, 5), "axes": (1, 2)},
        {"s": (3, 5)},
        {"axes": 1},
    ):
        settings = {"type": 2, "norm": "ortho", **settings}
        expected = getattr(scipy.fft, name)(x, **settings)
        got = getattr(tg.fft, name)(tg.tensor(x, requires_grad=True), **settings)
        assert got.requires_grad
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-13)


def test_scipys_names_with_this_module_as_their_backend(rng):
    x = rng.normal(size=6)
    with scipy.fft.set_backend(tg.fft):
        for name in ("dct", "idstn", "rfft", "fftn", "hfft", "fftshift"):
            theirs = getattr(scipy.fft, name)
            t = tg.tensor(x, requires_grad=True)
            out = theirs(t)
            assert out.requires_grad
            with scipy.fft.set_backend("scipy", only=True):
                np.testing.assert_allclose(out.detach().numpy(), theirs(x), atol=1e-13)
    with pytest.raises(tg.GradientLost):
        scipy.fft.dct(tg.tensor(x, requires_grad=True))


def test_lengths_of_one_and_what_numpy_refuses():
    for of, n in ((np.fft.rfft, 1), (np.fft.irfft, 1), (np.fft.irfft, 2), (np.fft.fft, 1)):
        x = np.array([2.0])
        out, pull = tg.vjp(lambda t: of(t, n), x)
        matrix = np.atleast_2d(of(np.eye(1), n))[0]
        np.testing.assert_allclose(pull(np.ones_like(out))[0], [np.sum(matrix).real])
    t = tg.tensor(np.ones((2, 0)), requires_grad=True)
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        np.fft.fft(t)
    assert np.fft.fft(t, axis=0).shape == (2, 0)
    with pytest.raises(tg.GradientLost, match="out"):
        np.fft.fft(tg.ones(3, requires_grad=True), out=np.zeros(3, complex))


def test_single_precision_stays_single():
    t = tg.tensor(np.ones((3, 4), np.float32), requires_grad=True)
    out = np.fft.rfftn(t)
    assert out.dtype == np.complex64
    np.abs(out).sum().backward()
    assert t.grad.dtype == np.float32


def test_frequencies_are_numpys_and_differentiable_by_the_distance():
    for n in (4, 5):
        for name in ("fftfreq", "rfftfreq"):
            ours = getattr(tg.fft, name)
            np.testing.assert_array_equal(ours(n, 0.25), getattr(np.fft, name)(n, 0.25))
            slope = tg.jacobian(lambda d, f=ours: f(n, d))(0.5)
            np.testing.assert_allclose(slope, -4 * getattr(np.fft, name)(n))


def test_parseval():
    """The gradient of ‖F x‖² / n is 2x, at a size that no law tries."""
    x = np.random.default_rng(0).normal(size=(8, 101))
    g = tg.grad(lambda t: np.sum(np.abs(np.fft.fft2(t)) ** 2) / t.size)(x)
    np.testing.assert_allclose(g, 2 * x, atol=1e-12)
    g = tg.grad(lambda t: np.sum(np.abs(np.fft.rfft(t, norm="ortho")) ** 2))(x)
    # The entries of a half spectrum that stand for two are counted once.
    expected = np.fft.rfft(x) * ([2] + [1] * 50)
    np.testing.assert_allclose(np.fft.rfft(g), expected, atol=1e-11)
