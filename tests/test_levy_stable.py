"""Stable distributions against three closed forms and the inversion of the characteristic function, whose slopes are complex steps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats

import tapegrad as tg

OURS = tg.stats.levy_stable
POINTS = [
    (0.7, 1.5, 0.5), (-2.0, 1.3, -0.8), (1e-5, 1.7, 0.3), (0.0, 1.5, 1.0), (2.5, 1.9, -1.0), (0.5, 0.8, 0.2), (-1.1, 0.7, 1.0 - 1e-9),
    (0.3, 1.0, 0.0), (1.4, 1.0, 0.5), (-40.0, 1.005, 0.3), (1.0, 2.0, 0.4),
]  # fmt: skip
V = np.arange(-4.2, 5.3, 0.002)
T = np.exp(V - np.exp(-V))
"""Nodes of the trapezoid rule for integrals over t > 0 that fall like a stretched exponential."""


def inverted(what, x, alpha, beta):
    """The density or the cdf from the characteristic function, an analytic function of x, α and β."""
    tangent = np.tan(np.pi * alpha / 2)
    if alpha == 1:
        phase = x * T + beta * 2 / np.pi * T * np.log(T)
    else:
        phase = x * T - beta * tangent * T**alpha
    wave = np.cos(phase) if what == "pdf" else np.sin(phase) / T
    total = np.sum(np.exp(-(T**alpha)) * wave * T * (1 + np.exp(-V))) * (V[1] - V[0]) / np.pi
    return total + (0.5 if what == "cdf" else 0.0)


@pytest.mark.parametrize("what", ["pdf", "cdf"])
def test_values_and_slopes_are_those_of_the_characteristic_function(what):
    x, alpha, beta = np.array(POINTS).T
    values = getattr(OURS, what)(x, alpha, beta)
    np.testing.assert_allclose(values, [inverted(what, *p) for p in POINTS], rtol=0, atol=1e-11)
    slopes = tg.grad(lambda *p: np.sum(getattr(OURS, what)(*p)), (0, 1, 2))(x, alpha, beta)
    for k, point in enumerate(POINTS):
        for i in range(3):
            if i == 1 and point[1] == 1:  # the formula of the oracle is for this α alone
                continue
            if (i == 2 and abs(point[2]) == 1) or (i == 1 and point[1] == 2):  # a tail appears
                assert not np.isfinite(slopes[i][k])
                continue
            moved = [v + 1e-30j * (i == j) for j, v in enumerate(point)]
            expected = inverted(what, *moved).imag / 1e-30
            assert slopes[i][k] == pytest.approx(expected, rel=1e-9, abs=1e-9), (point, i)


def test_closed_forms_in_their_tails():
    x = np.array([-300.0, -8.0, -0.3, 0.0, 1.0, 12.0, 1e6])
    for alpha, beta, theirs in (
        (2.0, 0.7, scipy.stats.norm(0, np.sqrt(2))),
        (1.0, 0.0, scipy.stats.cauchy),
        (0.5, 1.0, scipy.stats.levy),
    ):
        for what in ("logpdf", "logcdf", "logsf"):
            found = getattr(OURS, what)(tg.tensor(x, requires_grad=True), alpha, beta)
            with np.errstate(divide="ignore"):
                expected = getattr(theirs, what)(x)
            # Where a normal tail is below the smallest number, the integrand is 0.
            known = (expected > -700) | np.isinf(x)
            np.testing.assert_allclose(
                np.asarray(found.detach())[known], expected[known], rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9])
def test_heavy_tails_are_their_series(alpha):
    """For α < 1 the density and sf are convergent series of powers of 1/y."""
    y, beta = np.array([1e3, 1e6, 1e12]), -0.4
    tangent = np.tan(np.pi * alpha / 2)
    k = np.arange(1, 60)[:, None]
    angle = np.pi * alpha / 2 + np.arctan(beta * tangent)
    log_size = (
        scipy.special.gammaln(alpha * k)
        - scipy.special.gammaln(k + 1)
        + 0.5 * k * np.log1p((beta * tangent) ** 2)
    )
    terms = np.exp(log_size - alpha * k * np.log(y)) * (-1.0) ** (k + 1) * np.sin(k * angle) / np.pi
    np.testing.assert_allclose(OURS.sf(y, alpha, beta), terms.sum(0), rtol=1e-11)
    np.testing.assert_allclose(OURS.pdf(y, alpha, beta), (alpha * k / y * terms).sum(0), rtol=1e-11)


def test_the_slope_by_alpha_at_the_cauchy_distribution():
    """Against differences across α = 1, where values are interpolated, and ones outside of that."""
    f = lambda a: OURS.logsf(1.3, a, 0.0)  # noqa: E731
    at = [f(1 + h) for h in (-0.04, -0.02, 0.02, 0.04)]
    assert tg.grad(f)(1.0) == pytest.approx(
        (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / 0.24, rel=1e-5
    )
    h = 1e-3
    assert tg.grad(tg.grad(f))(1.0) == pytest.approx(
        (f(1 + h) + f(1 - h) - 2 * f(1.0)) / h**2, rel=1e-5
    )
    assert np.isinf(tg.grad(OURS.pdf, 1)(1.3, 1.0, 0.3))  # S1 jumps there


def test_second_derivatives():
    g = tg.grad(OURS.logpdf, (0, 1, 2))
    point, h = (0.7, 1.4, -0.4), 1e-5
    second = tg.hessian(lambda p: OURS.logpdf(p[0], p[1], p[2]))(np.array(point))
    for i, move in enumerate(h * np.eye(3)):
        ends = [np.array(g(*(point + s * move))) for s in (1, -1)]
        np.testing.assert_allclose(second[i], (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-8)


@pytest.mark.long
def test_quantiles():
    q = np.array([1e-8, 0.2, 0.5, 0.9])
    shapes = np.array([1.5, 0.8, 1.0, 0.995]), np.array([0.5, -1.0, 0.3, -0.6])
    np.testing.assert_allclose(
        OURS.cdf(OURS.ppf(q, *shapes, 1.0, 3.0), *shapes, 1.0, 3.0), q, rtol=1e-9
    )
    np.testing.assert_allclose(OURS.sf(OURS.isf(q, *shapes), *shapes), q, rtol=1e-9)
    slopes = tg.grad(OURS.ppf, (0, 1, 2, 3, 4))(0.7, 1.5, 0.3, 1.0, 2.0)
    point, h = np.array([0.7, 1.5, 0.3, 1.0, 2.0]), 1e-4
    above, below = (OURS.ppf(*(point[:, None] + s * h * np.eye(5))) for s in (1, -1))
    np.testing.assert_allclose(slopes, (above - below) / (2 * h), rtol=1e-6)


def test_scipys_conventions():
    """At α = 1 a scale moves the place; supports end at 0 where β is 1 or -1; moments."""
    theirs = scipy.stats.levy_stable
    for what in ("pdf", "cdf"):
        for p in ((1.3, 1.0, 0.5, 0.2, 2.0), (1.3, 1.6, 0.5, 0.2, 2.0)):
            expected = getattr(theirs, what)(*p)
            assert getattr(OURS, what)(*p) == pytest.approx(expected, rel=1e-6)
            x = tg.tensor(p[0], requires_grad=True)
            assert float(getattr(OURS, what)(x, *p[1:]).detach()) == pytest.approx(
                expected, rel=1e-6
            )
    assert OURS.support(0.6, tg.tensor(1.0, requires_grad=True))[0] == 0
    assert OURS.pdf(-1.0, 0.6, 1.0) == 0 and OURS.cdf(1.0, 0.6, -1.0) == 1
    assert np.isnan(OURS.pdf(0.5, 2.1, 0.0)) and np.isnan(OURS.pdf(0.5, 1.5, 1.1))
    a = tg.tensor(1.6, requires_grad=True)
    assert (OURS.mean(a, 0.3, 2.0, 3.0), OURS.var(a, 0.3)) == (2.0, np.inf)
    assert OURS.var(2.0, 0.3, 0.0, tg.tensor(3.0, requires_grad=True)) == 18
    with pytest.raises(tg.NotDifferentiable, match="integral of integrals"):
        OURS.entropy(a, 0.3)


def test_samples_move_with_the_parameters():
    same = {"size": 4, "random_state": 3}
    for alpha in (1.5, 1.0):
        ours, theirs = (
            law.rvs(alpha, 0.5, 1.0, 2.0, **same) for law in (OURS, scipy.stats.levy_stable)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    draw = lambda a: OURS.rvs(a, 0.5, **same)  # noqa: E731
    x = draw(1.5)
    expected = -np.array([tg.grad(OURS.cdf, 1)(v, 1.5, 0.5) / OURS.pdf(v, 1.5, 0.5) for v in x])
    np.testing.assert_allclose(tg.jacobian(draw)(1.5), expected, rtol=1e-9)


@pytest.mark.long
def test_in_a_compiled_function():
    x = np.array([-3.0, 0.2, 5.0])
    slope = tg.grad(lambda a, b: np.sum(OURS.logpdf(x, a, b)), (0, 1))
    compiled = tg.compile(slope)
    for a, b in ((1.5, 0.3), (0.8, 0.2)):
        np.testing.assert_allclose(compiled(a, b), slope(a, b), rtol=1e-9)
