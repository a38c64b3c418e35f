"""The studentized range against SciPy's double integral, and its slopes against differences of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg

OURS, THEIRS = tg.stats.studentized_range, scipy.stats.studentized_range
POINTS = [(3.0, 3.0, 10.0), (8.0, 20.0, 3.0), (0.05, 2.5, 2.0)]


@pytest.mark.parametrize("what", ["logpdf", "cdf", "logsf"])
def test_values_are_scipys(what):
    q, k, df = np.array(POINTS).T
    found = getattr(OURS, what)(tg.tensor(q, requires_grad=True), k, df, loc=0.1, scale=1.5)
    expected = [getattr(THEIRS, what)(*p, loc=0.1, scale=1.5) for p in POINTS]
    np.testing.assert_allclose(np.asarray(found.detach()), expected, rtol=1e-9)


@pytest.mark.parametrize("what", ["logpdf", "cdf"])
def test_slopes_are_differences(what):
    """SciPy's integrals have errors of 1e-11 here."""
    p, h = np.array(POINTS[0]), 1e-3
    for i, move in enumerate(h * np.eye(3)):
        f = lambda t, move=move: getattr(THEIRS, what)(*(p + t * move))  # noqa: E731
        expected = (8 * (f(1) - f(-1)) - (f(2) - f(-2))) / (12 * h)
        assert tg.grad(getattr(OURS, what), i)(*p) == pytest.approx(expected, rel=1e-6)


@pytest.mark.long
def test_quantiles_and_what_is_refused():
    slope = tg.grad(OURS.ppf)(0.95, 3.0, 10.0)
    assert slope == pytest.approx(1 / THEIRS.pdf(THEIRS.ppf(0.95, 3, 10), 3, 10), rel=1e-6)
    with pytest.raises(tg.NotDifferentiable, match="triple integral"):
        tg.grad(OURS.mean)(3.0, 10.0)
    k = tg.tensor(3.0, requires_grad=True)
    assert np.isnan(np.asarray(OURS.pdf(3.0, k, -1.0).detach()))
    assert np.asarray(OURS.pdf(-1.0, k, 5.0).detach()) == 0.0
