"""Spherical harmonics and Dirichlet's kernel: SciPy's values, and derivatives at the poles too."""

import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.special, scipy.special
THETA = np.array([0.0, 1e-9, 0.3, 1.7, np.pi - 1e-5, np.pi])
PHI = np.array([0.4, -1.3, 2.0, 0.0, 1.0, 3.0])
PAIRS = [(0, 0), (1, 0), (1, 1), (2, -1), (3, 2), (5, -5), (12, 7), (40, 3)]


@pytest.mark.parametrize(("n", "m"), PAIRS)
def test_harmonics(n, m, rng):
    same = lambda a, b: np.testing.assert_allclose(a, b, 1e-10, 1e-12)  # noqa: E731
    same(OURS.sph_harm_y(n, m, tg.tensor(THETA), PHI).numpy(), THEIRS.sph_harm_y(n, m, THETA, PHI))
    same(OURS.sph_harm_y(n, m, THETA, tg.tensor(PHI)).numpy(), THEIRS.sph_harm_y(n, m, THETA, PHI))
    value, slopes, bends = THEIRS.sph_harm_y(n, m, 0.3, 0.4, diff_n=2)
    f = lambda at: np.real(OURS.sph_harm_y(n, m, at[0], at[1]))  # noqa: E731
    at = np.array([0.3, 0.4])
    np.testing.assert_allclose(tg.grad(f)(at), slopes.real, 1e-9, 1e-12)
    np.testing.assert_allclose(tg.hessian(f)(at), bends.real, 1e-9, 1e-10)
    both = lambda y: np.stack([np.real(y), np.imag(y)])  # noqa: E731
    agree(
        lambda t, p: both(OURS.sph_harm_y(n, m, t, p)),
        (THETA[2:4], PHI[2:4]),
        rng,
        rtol=1e-6,
        compiled=(n, m) == (3, 2),
        second=n < 6,
    )


def test_poles():
    """At a pole the slope is that from within, where angles are."""
    for n, m in ((1, 1), (2, -1), (3, 2)):
        for pole in (0.0, np.pi):
            found = tg.grad(lambda t, n=n, m=m: np.real(OURS.sph_harm_y(n, m, t, 0.4)))(pole)
            np.testing.assert_allclose(
                found, THEIRS.sph_harm_y(n, m, pole, 0.4, diff_n=1)[1][0].real, 1e-9, 1e-12
            )
    beyond = np.array([-0.3, 3.5])
    np.testing.assert_allclose(
        OURS.sph_harm_y(2, 1, tg.tensor(beyond), 0.1).numpy(),
        THEIRS.sph_harm_y(2, 1, beyond, 0.1),
        1e-12,
    )


def test_tables_of_harmonics():
    n, m = np.array([[0], [1], [2]]), np.array([-1, 0, 1])
    np.testing.assert_allclose(
        OURS.sph_harm_y(n, m, tg.tensor(0.3), 0.2).numpy(),
        THEIRS.sph_harm_y(n, m, 0.3, 0.2),
        1e-12,
        1e-15,
    )
    np.testing.assert_array_equal(
        OURS.sph_harm_y(n, m, 0.3, 0.2), THEIRS.sph_harm_y(n, m, 0.3, 0.2)
    )
    assert OURS.sph_harm_y(1, 2, tg.tensor(0.3), 0.2).item() == 0


def test_slopes_have_all_digits():
    slopes = {
        (4, 4): lambda c, s: 3 / 16 * np.sqrt(35 / (2 * np.pi)) * 4 * s**3 * c,
        (6, 3): lambda c, s: (
            -np.sqrt(1365 / np.pi)
            / 32
            * (3 * s**2 * c * (11 * c**3 - 3 * c) - s**4 * (33 * c**2 - 3))
        ),
    }
    for (n, m), slope in slopes.items():
        for t in (1e-8, 1e-3, 0.7, 3.1):
            found = tg.grad(lambda t, n=n, m=m: np.real(OURS.sph_harm_y(n, m, t, 0.0)))(t)
            np.testing.assert_allclose(found, slope(np.cos(t), np.sin(t)), 1e-13)


def test_kernels(rng):
    x = np.array([-4 * np.pi, -0.5, 0.0, 1e-7, 0.9, 2 * np.pi, 11.0])
    for n in (1, 2, 5):
        np.testing.assert_allclose(
            OURS.diric(tg.tensor(x), n).numpy(), THEIRS.diric(x, n), 1e-9, 1e-9
        )
        agree(lambda x, n=n: OURS.diric(x, n), (x,), rng)
    assert np.all(np.isnan(OURS.diric(tg.tensor(x), 0).numpy()))


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda t: OURS.sph_harm_y(t, 0, 0.1, 0.2), tg.NotDifferentiable, "whole number"),
        (lambda t: OURS.sph_harm_y(1.5, 0, t, 0.2), TypeError, "whole numbers"),
        (lambda t: OURS.sph_harm_y(1, 0, t, 0.2, diff_n=1), tg.NotDifferentiable, "Leave it out"),
        (lambda t: OURS.diric(t, 2.5), TypeError, "whole numbers"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor(1.0, requires_grad=True))
