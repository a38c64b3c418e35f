"""`tg.linalg.lu`: SciPy's factors of square and rectangular matrices, their derivatives in both modes, compiled and batched."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg

SHAPES = [(1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 3), (2, 3, 3), (2, 2, 4)]
rng = np.random.default_rng(5)
W = rng.normal(size=(6, 6))


def loss(a):
    p, lower, upper = tg.linalg.lu(a)
    found = np.sum(np.sin(lower) * W[: lower.shape[-2], : lower.shape[-1]])
    found = found + np.sum(upper**2 * W[: upper.shape[-2], : upper.shape[-1]])
    return found + np.sum(np.matmul(p, lower) ** 2)


def slope(f, a, d, h=1e-5):
    """Along a direction, by differences of SciPy's factors."""
    return (f(a + h * d) - f(a - h * d)) / (2 * h)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_factors_and_derivatives(shape, order):
    a, d = np.array(rng.normal(size=shape), order=order), rng.normal(size=shape)
    for made, expected in zip(
        tg.linalg.lu(tg.tensor(a, requires_grad=True)), scipy.linalg.lu(a), strict=True
    ):
        assert made.shape == expected.shape and made.dtype == expected.dtype
        np.testing.assert_allclose(
            np.asarray(made.detach()) if isinstance(made, tg.Tensor) else made,
            expected,
            rtol=1e-12,
            atol=1e-14,
        )
    g = tg.grad(loss)(a)
    np.testing.assert_allclose(np.sum(g * d), slope(loss, a, d), rtol=1e-5)
    np.testing.assert_allclose(tg.jvp(loss, (a,), (d,))[1], np.sum(g * d), rtol=1e-10)
    product = tg.grad(lambda a: np.sum(tg.grad(loss)(a) * d))(a)
    np.testing.assert_allclose(
        product, slope(tg.grad(loss), a, d), rtol=1e-4, atol=1e-5 * np.abs(product).max()
    )


def test_a_compiled_program_is_for_every_order_of_rows():
    compiled = tg.compile(tg.value_and_grad(loss))
    for a in (np.diag([1.0, 2.0, 3.0]) + 0.1, np.eye(3)[::-1] + 0.1, rng.normal(size=(3, 3))):
        value, g = compiled(a)
        np.testing.assert_allclose(value, loss(a), rtol=1e-12)
        np.testing.assert_allclose(g, tg.grad(loss)(a), rtol=1e-10, atol=1e-12)
    assert not compiled.report().guards


def test_complex_and_single_and_batched():
    x = rng.normal(size=(4, 4))
    turned = lambda x: np.sum(np.abs(tg.linalg.lu(x * (1 + 1j) + 1j * np.eye(4))[2]))  # noqa: E731
    d = rng.normal(size=(4, 4))
    np.testing.assert_allclose(np.sum(tg.grad(turned)(x) * d), slope(turned, x, d), rtol=1e-6)
    single = tg.tensor(x.astype(np.float32), requires_grad=True)
    assert all(y.dtype == np.float32 for y in tg.linalg.lu(single))
    several = rng.normal(size=(3, 4, 3))
    np.testing.assert_allclose(
        tg.vmap(lambda a: tg.linalg.lu(a)[1])(several), scipy.linalg.lu(several)[1], rtol=1e-12
    )


def test_the_forms_that_scipy_has():
    for shape in ((4, 4), (5, 3), (3, 5)):
        a = rng.normal(size=shape)
        t = tg.tensor(a, requires_grad=True)
        for settings in ({"permute_l": True}, {"p_indices": True}):
            made = tg.linalg.lu(t, **settings)
            expected = scipy.linalg.lu(a, **settings)
            assert len(made) == len(expected)
            for x, y in zip(made, expected, strict=True):
                np.testing.assert_allclose(
                    x.detach() if isinstance(x, tg.Tensor) else x, y, rtol=1e-12, atol=1e-14
                )


def test_columns_as_good_as_each_other():
    """Where several rows may be taken, the factors are of the rows that were."""
    a = np.array([[1.0, 2.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, 3.0]])
    p, lower, upper = tg.linalg.lu(tg.tensor(a, requires_grad=True))
    np.testing.assert_allclose((p @ lower @ upper).detach(), a, rtol=1e-13)


def test_what_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match=r"tg\.linalg\.lu\(a\)"):
        tg.linalg.lu_factor(np.ones((4, 3)))
    with pytest.raises(np.linalg.LinAlgError, match="factors of a square matrix"):
        tg.linalg.lu_solve((np.ones((4, 3)), np.arange(3)), np.ones(4))
    with pytest.raises(ValueError, match="two axes"):
        tg.linalg.lu(np.ones(3))
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        tg.grad(loss)(np.zeros((3, 3)))
    p, lower, upper = tg.linalg.lu(np.zeros((3, 3)))  # nothing is tracked: SciPy's own
    assert not upper.any() and lower.any() and p.any()
