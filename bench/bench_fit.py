"""A fit of a few parameters to few points beside SciPy's with a Jacobian by differences; equal parameters and errors first.

Here the models are so small that what a library does around them is the time that is measured. `tg.curve_fit` is measured twice: as it is
in the first fits of a model, and once it has compiled the model by itself.
"""

import functools

import numpy as np
import pytest
import scipy.optimize

import tapegrad as tg


def decay(t, a, k, c):
    return a * np.exp(-k * t) + c


def peak(t, height, centre, width, base):
    return height * np.exp(-(((t - centre) / width) ** 2)) + base


MODELS = {
    "decay": (decay, [2.5, 1.3, 0.5], [1.0, 1.0, 0.0]),
    "peak": (peak, [2.0, 1.8, 0.6, 0.3], [1.0, 1.5, 1.0, 0.0]),
}
FITS = {
    "tapegrad": tg.curve_fit,
    "tapegrad, first fits": functools.partial(tg.curve_fit, compile=False),
    "scipy": scipy.optimize.curve_fit,
}
WARM_UP = 800
"""Fits after which `tg.curve_fit` has compiled a model."""


@pytest.mark.parametrize("points", [20, 200, 2000])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("library", FITS)
def test_fit(benchmark, library, model, points):
    f, truth, start = MODELS[model]
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 4.0, points)
    y = f(t, *truth) + 0.05 * rng.normal(size=points)
    found, expected = (FITS[name](f, t, y, start) for name in (library, "scipy"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-9)
    if benchmark.enabled and library == "tapegrad":
        for _ in range(WARM_UP):
            tg.curve_fit(f, t, y, start)
    benchmark(FITS[library], f, t, y, start)
