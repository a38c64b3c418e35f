"""PyTorch's methods that NumPy's arrays have not: values by NumPy, gradients by differences.

`TAPEGRAD_SUITE=torch pytest tests/test_methods.py` runs the same calls on PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import scipy.special

from tests.suite import agrees, equal, here, tg

X = np.array([[0.5, 2.0, -1.0], [3.0, 0.25, 4.0]])
V = np.array([1.5, -2.0, 0.75])
POSITIONS = np.array([[2, 0], [1, 1]])


def index(values):
    return tg.tensor(np.asarray(values).tolist())


def constant(values):
    return tg.tensor(np.asarray(values).tolist())


def changed(x, at, value, add=False):
    y = np.array(x)
    if add:
        np.add.at(y, at, value)
    else:
        y[at] = value
    return y


# fmt: off
CALLS = {
    "mul":           (lambda t: t.mul(2.5), lambda x: x * 2.5),
    "add":           (lambda t: t.add(t, alpha=3), lambda x: 4 * x),
    "sub":           (lambda t: t.sub(1.5), lambda x: x - 1.5),
    "div":           (lambda t: t.div(constant(V)), lambda x: x / V),
    "pow":           (lambda t: t.pow(3), lambda x: x**3),
    "neg":           (lambda t: t.neg(), lambda x: -x),
    "sigmoid":       (lambda t: t.sigmoid(), scipy.special.expit),
    "relu":          (lambda t: t.relu(), lambda x: np.maximum(x, 0)),
    "rsqrt":         (lambda t: t.mul(t).rsqrt(), lambda x: 1 / abs(x)),
    "lerp":          (lambda t: t.lerp(t * t, 0.25), lambda x: 0.75 * x + 0.25 * x * x),
    "addcmul":       (lambda t: t.addcmul(t, t, value=2), lambda x: x + 2 * x * x),
    "erf":           (lambda t: t.erf(), scipy.special.erf),
    "atan2":         (lambda t: t.atan2(constant(V)), lambda x: np.arctan2(x, V)),
    "remainder":     (lambda t: t.remainder(0.7), lambda x: x % 0.7),
    "clamp_min":     (lambda t: t.clamp_min(0.3), lambda x: np.maximum(x, 0.3)),
    "maximum":       (lambda t: t.maximum(constant(V)), lambda x: np.maximum(x, V)),
    "masked_fill":   (lambda t: t.masked_fill(t.detach() > 1, 7.0), lambda x: np.where(X > 1, 7.0, x)),
    "masked_select": (lambda t: t.masked_select(t.detach() > 0), lambda x: x[X > 0]),
    "index_fill":    (lambda t: t.index_fill(1, index([0, 2]), 7.0), lambda x: changed(x, np.s_[:, [0, 2]], 7.0)),
    "index_add":     (lambda t: t.index_add(0, index([1, 1]), t), lambda x: changed(x, [1, 1], x, add=True)),
    "index_copy":    (lambda t: t.index_copy(0, index([1, 0]), t * 2), lambda x: changed(x, [1, 0], 2 * x)),
    "index_select":  (lambda t: t.index_select(1, index([2, 0, 2])), lambda x: x[:, [2, 0, 2]]),
    "gather":        (lambda t: t.gather(1, index(POSITIONS)), lambda x: np.take_along_axis(x, POSITIONS, 1)),
    "scatter":       (lambda t: t.scatter(1, index([[2], [0]]), t[:, :1] * 3), lambda x: changed(x, ([0, 1], [2, 0]), 3 * x[:, 0])),
    "scatter_add":   (lambda t: t.scatter_add(1, index(POSITIONS), t[:, :2]), lambda x: changed(x, ([[0], [1]], POSITIONS), x[:, :2], add=True)),
    "narrow":        (lambda t: t.narrow(1, -2, 2), lambda x: x[:, -2:]),
    "select":        (lambda t: t.select(-1, 1), lambda x: x[:, 1]),
    "chunk":         (lambda t: t.chunk(2, dim=1)[0], lambda x: x[:, :2]),
    "chunk_rest":    (lambda t: t.chunk(2, 1)[1], lambda x: x[:, 2:]),
    "flip":          (lambda t: t.flip(0, 1), lambda x: x[::-1, ::-1]),
    "roll":          (lambda t: t.roll(1, 1), lambda x: np.roll(x, 1, 1)),
    "movedim":       (lambda t: t.movedim(0, 1), lambda x: x.T),
    "swapdims":      (lambda t: t.swapdims(0, 1), lambda x: x.T),
    "unflatten":     (lambda t: t.unflatten(1, (3, 1)), lambda x: x.reshape(2, 3, 1)),
    "expand_as":     (lambda t: t[0].expand_as(t), lambda x: np.array([x[0], x[0]])),
    "softmax":       (lambda t: t.softmax(dim=1), lambda x: scipy.special.softmax(x, 1)),
    "log_softmax":   (lambda t: t.log_softmax(0), lambda x: scipy.special.log_softmax(x, 0)),
    "norm":          (lambda t: t.norm(), np.linalg.norm),
    "norm_1":        (lambda t: t.norm(p=1, dim=1, keepdim=True), lambda x: abs(x).sum(1, keepdims=True)),
    "outer":         (lambda t: t[0].outer(constant(V)), lambda x: np.outer(x[0], V)),
    "det":           (lambda t: t[:, :2].det(), lambda x: np.linalg.det(x[:, :2])),
    "inverse":       (lambda t: t[:, :2].inverse(), lambda x: np.linalg.inv(x[:, :2])),
    "bmm":           (lambda t: t[None].bmm(t.T[None]), lambda x: (x @ x.T)[None]),
    "where":         (lambda t: t.where(t.detach() > 1, t * 2), lambda x: np.where(X > 1, x, 2 * x)),
    "double":        (lambda t: t.double(), lambda x: x),
    "to":            (lambda t: t.to(tg.float64).to("cpu"), lambda x: x),
    "contiguous":    (lambda t: t.T.contiguous(), lambda x: x.T),
}
# fmt: on


@pytest.mark.parametrize("name", CALLS)
def test_value_and_gradient(name):
    agrees(*CALLS[name], X, 2e-7)


def test_functions_without_a_derivative():
    t = tg.tensor(X.tolist())
    equal(t.gt(1), X > 1)
    equal(t.eq(2.0), X == 2)
    equal(t.logical_not(), X == 0)
    assert t.is_floating_point() and not t.is_complex() and t.ndimension() == 2
    assert (
        t.long().dtype == tg.int64 and t.float().dtype == tg.float32 and t.bool().dtype == tg.bool
    )
    assert t.new_zeros(2).dtype == t.dtype and t.new_ones(1, 2).shape == (1, 2)
    assert t.cfloat().dtype == tg.complex64 and t.nelement() == 6
    assert t.equal(t.clone()) is True and t.equal(t + 1) is False and t.equal(t[0]) is False
    assert t.allclose(t + 1e-9) is True and t.allclose(t + 0.1, atol=0.01) is False


def test_relu_is_flat_at_0_and_keeps_nan():
    t = tg.tensor([0.0, -1.0, float("nan")], requires_grad=True)
    result = t.relu()
    equal(result.detach()[:2], [0.0, 0.0])
    assert np.isnan(result.detach().numpy()[2])
    result[:2].sum().backward()
    equal(t.grad, [0.0, 0.0, 0.0])


def test_a_sigmoid_far_out():
    t = tg.tensor([-1000.0, 1000.0], requires_grad=True)
    result = t.sigmoid()
    equal(result.detach(), [0.0, 1.0])
    result.sum().backward()
    equal(t.grad, [0.0, 0.0])


@here
def test_bad_calls():
    t = tg.tensor(X)
    with pytest.raises(RuntimeError, match="exceeds dimension size"):
        t.narrow(0, 1, 2)
    with pytest.raises(ValueError, match="one device"):
        t.to("cuda")


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_take_has_numpys_modes(mode):
    """As a method and as a function, in both transforms; so scipy.signal's searches for extrema take tensors."""
    x = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    places = np.array([4, -1, 0] if mode == "raise" else [7, -9, 0])
    weights = np.array([1.0, 2.0, 4.0])
    expected = np.zeros(5)
    np.add.at(expected, np.take(np.arange(5), places, mode=mode), weights)
    for f in (lambda t: t.take(places, mode=mode), lambda t: np.take(t, places, None, None, mode)):
        np.testing.assert_array_equal(f(tg.tensor(x)), x.take(places, mode=mode))
        loss = lambda t, f=f: np.sum(f(t) * weights)  # noqa: E731
        np.testing.assert_array_equal(tg.grad(loss)(x), expected)
        fast = tg.compile(tg.grad(loss))
        for _ in range(3):
            np.testing.assert_array_equal(fast(x), expected)
    np.testing.assert_array_equal(scipy.signal.argrelmax(tg.tensor(x, requires_grad=True))[0], [3])
