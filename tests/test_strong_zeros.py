"""Strong zeros: where no gradient comes back, none goes on, so a guarded pole has the gradient of the branch that was taken.

These are the classic NaN of the field (pytorch #52248, #156212, #18287): the branch that `where` did not take has the cotangent 0 and an
infinite partial. Judged by both engines, in both modes, at first and second order.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import strong

where = np.where

CASES = {
    "sqrt": (lambda x: where(x > 0, np.sqrt(x), 0.0), [0.0, 4.0, -1.0], [0, 0.25, 0], [0, -1 / 32, 0]),
    "sin(x) / x": (
        lambda x: where(x != 0, np.sin(x) / x, 1.0),
        [0.0, np.pi],
        [0, -1 / np.pi],
        [0, 2 / np.pi**2],
    ),
    "x log(x)": (lambda x: where(x > 0, x * np.log(x), 0.0), [0.0, 1.0], [0, 1], [0, 1]),
    "1 / x": (lambda x: where(x == 0, x, 1 / x), [0.0, 2.0], [1, -0.25], [0, 0.25]),
    "reciprocal": (lambda x: where(x == 0, x, np.reciprocal(x)), [0.0, 2.0], [1, -0.25], [0, 0.25]),
    "exp": (lambda x: where(x < 100, np.exp(x), x), [1000.0, 0.0], [1, 1], [0, 1]),
    "power": (lambda x: where(x > 0, x**1.5, x), [0.0, -1.0, 4.0], [1, 1, 3], [0, 0, 0.375]),
    "power of a negative": (lambda x: where(x > 0, x**0.5, 0.0), [-1.0, 4.0], [0, 0.25], [0, -1 / 32]),
    "arccos": (lambda x: where(np.abs(x) < 1, np.arccos(x), 0.0), [1.0, 0.0], [0, -1], [0, 0]),
    "arctanh": (lambda x: where(np.abs(x) < 1, np.arctanh(x), 2.0), [1.0, 0.0], [0, 1], [0, 0]),
    "log1p": (lambda x: where(x > -1, np.log1p(x), 0.0), [-1.0, 0.0], [0, 1], [0, -1]),
    "of infinity": (lambda x: where(np.isfinite(x), np.sin(x), 0.0), [np.inf, 0.0], [0, 1], [0, 0]),
    "of nan": (lambda x: where(np.isnan(x), 0.0, x * x), [np.nan, 3.0], [0, 6], [0, 2]),
    "maximum": (lambda x: np.sqrt(np.maximum(x, 0.0)), [-1.0, 4.0], [0, 0.25], [0, -1 / 32]),
    "x / sqrt(x²)": (lambda x: where(x == 0, 0.0, x / np.sqrt(x * x)), [0.0, 2.0], [0, 0], [0, 0]),
    "nested": (
        lambda x: where(x > 0, np.log(where(x > 0, np.sqrt(x), 0.0)), 0.0),
        [0.0, 2.0],
        [0, 0.25],
        [0, -0.125],
    ),
    "norm": (lambda x: np.linalg.norm(x), [0.0, 0.0], [0, 0], None),
    "multiplied by the mask": (lambda x: np.log(x) * (x > 0), [0.0, 2.0], [0, 0.5], [0, -0.25]),
}  # fmt: skip


@pytest.fixture(params=["sweep", "replay"])
def engine(request):
    from tapegrad import replay

    if request.param == "replay" and not replay.available():
        pytest.skip("replay cannot run here")
    tg.set_engine(request.param)
    yield request.param
    tg.set_engine("auto")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_reverse(name, engine):
    f, x, first, second = CASES[name]
    t = tg.tensor(x, requires_grad=True)
    (g,) = tg.autograd.grad(f(t).sum(), t, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), first, atol=1e-14)
    if second is not None and g.requires_grad:
        (h,) = tg.autograd.grad(g.sum(), t)
        np.testing.assert_allclose(h.numpy(), second, atol=1e-14)
    t = tg.tensor(x, requires_grad=True)
    f(t).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), first, atol=1e-14)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_forward_and_forward_over_reverse(name):
    f, x, first, second = CASES[name]
    x = np.array(x)
    v = np.ones_like(x)
    # A mask that is a factor stops what comes back at once; tangents meet the pole first, and inf times 0 is NaN.
    if name == "multiplied by the mask":
        return
    if name != "norm":
        np.testing.assert_allclose(tg.jvp(f, (x,), (v,))[1], np.broadcast_to(first, x.shape), atol=1e-14)  # fmt: skip
    if second is not None:
        slope = tg.jvp(tg.grad(lambda t: f(t).sum()), (x,), (v,))[1]
        np.testing.assert_allclose(slope, second, atol=1e-14)
        slope = tg.jvp(lambda t: tg.jvp(f, (t,), (v,))[1], (x,), (v,))[1]
        np.testing.assert_allclose(slope, second, atol=1e-14)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scalars_float32_and_complex(engine):
    dtypes = (np.float32, np.float64, np.complex128)
    # Numba's complex division raises where NumPy's gives NaN.
    for dtype in dtypes if engine == "sweep" else dtypes[:2]:
        for x in (np.zeros((), dtype), np.zeros((2, 3), dtype), np.zeros((2, 3), dtype).T):
            t = tg.tensor(x, requires_grad=True)
            np.sum(np.real(where(t == 0, t, t / t))).backward()
            assert t.grad.dtype == dtype
            np.testing.assert_array_equal(t.grad.numpy(), np.ones_like(x))


def test_a_nan_that_comes_back_stays(engine):
    """Only zeros are strong: a NaN cotangent, or a zero partial of an infinite one, is not hidden."""
    t = tg.tensor([1.0, 2.0], requires_grad=True)
    (t * t).backward(np.array([np.nan, 1.0]))
    assert np.isnan(t.grad[0].item()) and t.grad[1].item() == 4
    t = tg.tensor([0.0, 1.0], requires_grad=True)
    (t * t).backward(np.array([np.inf, 1.0]))
    assert np.isnan(t.grad[0].item())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_product_itself():
    g, p = np.array([0.0, 0.0, 0.0, 2.0, np.nan]), np.array([np.inf, np.nan, 3.0, np.inf, 1.0])
    np.testing.assert_array_equal(strong(g, p), [0, 0, 0, np.inf, np.nan])
    np.testing.assert_array_equal(strong(g[:, None], p[None]).shape, (5, 5))
    assert strong(np.float64(0), np.inf) == 0 and strong(np.float32(0), np.float32(np.inf)) == 0
    assert strong(np.array(0.0), np.array(np.inf)) == 0
    assert strong(np.array([0j]), np.array([complex(np.inf, np.nan)])) == 0
    big = np.full(3, 1e200)
    np.testing.assert_array_equal(strong(big, big), np.full(3, np.inf))


THROUGH_ZERO = {
    "x x x": (lambda x: x * x * x, 6.0),
    "x exp(-x²)": (lambda x: x * np.exp(-x * x), -6.0),
    "x / (1 + x²)": (lambda x: x / (1 + x * x), -6.0),
    "sin(x) x²": (lambda x: np.sin(x) * x**2, 6.0),
    "maximum": (lambda x: np.maximum(x * x * x, -1.0), 6.0),
    "a loop": (lambda x: tg.fori_loop(0, 3, lambda i, c: c * x, 1.0 + 0 * x), 6.0),
}


@pytest.mark.parametrize("modes", ["rrr", "rrf", "rfr", "frr", "fff"])
@pytest.mark.parametrize("name", THROUGH_ZERO)
def test_third_derivatives_at_a_zero_of_a_factor(name, modes, engine):
    """A cotangent that is 0 by its value alone has derivatives: those of x³ at 0 were 0, 0 and 4."""
    f, expected = THROUGH_ZERO[name]
    for mode in modes:
        f = tg.grad(f) if mode == "r" else (lambda x, f=f: tg.jvp(f, (x,), (1.0,))[1])
    assert f(0.0) == pytest.approx(expected, abs=1e-13)


def test_third_derivatives_at_a_zero_compiled():
    third = tg.compile(tg.grad(tg.grad(tg.grad(lambda x: x * np.exp(-x * x)))))
    np.testing.assert_allclose([third(1.0), third(0.0)], [10 * np.exp(-1.0), -6], rtol=1e-12)


def powers(v):
    return np.sum(v[:3] ** v[3:])


def powers_in_a_loop(v):
    s = 0.0
    for i in range(3):
        s += v[i] ** v[i + 3]
    return s


def _native(mode, f, derivative):
    return derivative(tg.njit(mode=mode)(f))


HESSIANS = {
    "second order": lambda: tg.hessian(powers),
    "reverse twice": lambda: tg.jacobian(tg.grad(powers), mode="reverse"),
    "compiled": lambda: tg.compile(tg.hessian(powers)),
    "compiled, reverse twice": lambda: tg.compile(tg.jacobian(tg.grad(powers), mode="reverse")),
    "native": lambda: _native("auto", powers, tg.hessian),
    "native loop": lambda: _native("auto", powers_in_a_loop, tg.hessian),
    "form": lambda: _native("form", powers_in_a_loop, tg.hessian),
    "adjoint": lambda: _native("adjoint", powers_in_a_loop, tg.hessian),
    "overload": lambda: _native("overload", powers_in_a_loop, tg.hessian),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bases", [(1e-100, 1e-50, 3.0), (1e-37, 1e-40, 0.5), (0.0, 0.0, 1.0)])
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.campaign if name == "overload" else ()) for name in HESSIANS
])  # fmt: skip
def test_mixed_derivatives_of_powers_at_exponent_0(name, bases, engine):
    """1 / x on both sides of the diagonal; without bound at 0, where both are 0 as the partials are."""
    if engine == "replay" and name != "reverse twice":
        pytest.skip("the engine of the tape is the sweep or replay; others are met once")
    x = np.array(bases)
    found = HESSIANS[name]()(np.concatenate([x, np.zeros(3)]))
    with np.errstate(divide="ignore"):
        expected = np.where(x > 0, 1 / x, 0.0)
    np.testing.assert_allclose(np.diag(found[:3, 3:]), expected, rtol=1e-12)
    np.testing.assert_allclose(np.diag(found[3:, :3]), expected, rtol=1e-12)


ROW = np.array([0.0, 1.0, 2.0])
TOGETHER = {
    "a guarded pole of a number": lambda p: where(p[1] > 0, np.sqrt(p[1]), 0.0) * ROW + p[0],
    "a guarded pole of a row": lambda p: where(ROW > 0, np.log(p[0] * ROW), p[1]),
    "a pole that is a value": lambda p: np.sqrt(p[1] * ROW),
    "the pole beside what is made of it": lambda p: np.stack([s := np.sqrt(p[1] * ROW), s[::-1] + p[0], 0.0 * s]),
    "a pole that no value needs": lambda p: (np.sqrt(p[1] * ROW)[1:] + p[0], p[0] * ROW),
    "then an operation without a rule": lambda p: np.cumsum(np.sqrt(p[1] * ROW)) + p[0] * ROW,
    "then a complex one": lambda p: np.abs(np.sqrt(p[1] * ROW) + 1j * p[0]),
    "matrix": lambda p: np.ones((2, 2)) @ where(p > 0, np.sqrt(p), 0.0),
    "nothing is left": lambda p: (s := np.sqrt(p[1:]), s * np.zeros(0).reshape(0, 1), p[0] * ROW),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", TOGETHER)
def test_directions_that_go_together_know_strong_zeros(case):
    """All directions in one push take plain products first; where one is NaN, the result is that of each direction by itself."""
    f, x = TOGETHER[case], np.array([2.0, 0.0])
    together = tg.jacobian(f, mode="forward")(x)
    single = [tg.jvp(f, (x,), (e,))[1] for e in np.eye(2)]
    if not isinstance(together, tuple):
        together, single = (together,), [(t,) for t in single]
    for k, block in enumerate(together):
        np.testing.assert_array_equal(block, np.stack([t[k] for t in single], axis=-1))


def test_a_pole_does_not_hide_in_a_sum_of_directions():
    """A plain product of 0 and infinity reaches the value through entries of every kind: it is found, and the entries are done again."""
    with np.errstate(all="ignore"):
        found = tg.jacobian(lambda p: where(p > 0, np.sqrt(p), 0.0) * p[0], mode="forward")(
            np.zeros(3)
        )
    np.testing.assert_array_equal(found, np.zeros((3, 3)))
