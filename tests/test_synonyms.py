"""PyTorch's names of settings: `dim` and `keepdim` where a function means the same in both, an error where it does not.

`TAPEGRAD_SUITE=torch pytest tests/test_synonyms.py` runs the same calls on PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.suite import HERE, agrees, equal, here, tg

X = np.array([[0.5, 2.0, -1.0], [3.0, 0.25, 4.0]])
NAMESPACE = tg if HERE else __import__("torch")

# fmt: off
SAME = {
    "sum":        (lambda t: t.sum(dim=1, keepdim=True), lambda x: x.sum(1, keepdims=True)),
    "mean":       (lambda t: t.mean(dim=(0, 1)), lambda x: x.mean((0, 1))),
    "mean_keep":  (lambda t: t.mean(1, keepdim=True), lambda x: x.mean(1, keepdims=True)),
    "prod":       (lambda t: t.prod(dim=-1), lambda x: x.prod(-1)),
    "amax":       (lambda t: t.amax(dim=1, keepdim=True), lambda x: x.max(1, keepdims=True)),
    "amin":       (lambda t: t.amin(dim=(0, 1)), lambda x: x.min((0, 1))),
    "cumsum":     (lambda t: t.cumsum(dim=1), lambda x: x.cumsum(1)),
    "cumprod":    (lambda t: t.cumprod(dim=0), lambda x: x.cumprod(0)),
    "logsumexp":  (lambda t: t.logsumexp(dim=1), lambda x: np.log(np.exp(x).sum(1))),
    "squeeze":    (lambda t: t[:, None].squeeze(dim=1), lambda x: x),
    "std":        (lambda t: t.std(dim=1, correction=0), lambda x: x.std(1)),
    "var":        (lambda t: t.var(dim=1, correction=1, keepdim=True), lambda x: x.var(1, ddof=1, keepdims=True)),
    "sum_of":     (lambda t: NAMESPACE.sum(t, dim=0), lambda x: x.sum(0)),
    "amax_of":    (lambda t: NAMESPACE.amax(t, dim=0, keepdim=True), lambda x: x.max(0, keepdims=True)),
    "nansum_of":  (lambda t: NAMESPACE.nansum(t, dim=0), lambda x: x.sum(0)),
    "diff_of":    (lambda t: NAMESPACE.diff(t, dim=0), lambda x: np.diff(x, axis=0)),
    "cat_of":     (lambda t: NAMESPACE.cat([t, t], dim=1), lambda x: np.concatenate([x, x], 1)),
    "stack_of":   (lambda t: NAMESPACE.stack((t, t), dim=2), lambda x: np.stack([x, x], 2)),
    "trapezoid":  (lambda t: NAMESPACE.trapezoid(t, dim=0), lambda x: np.trapezoid(x, axis=0)),
    "softmax":    (lambda t: NAMESPACE.special.softmax(t, dim=0), lambda x: np.exp(x) / np.exp(x).sum(0)),
    "unbind":     (lambda t: t.unbind(dim=1)[2], lambda x: x[:, 2]),
    "norm":       (lambda t: NAMESPACE.linalg.norm(t, dim=1), lambda x: np.linalg.norm(x, axis=1)),
    "fft":        (lambda t: NAMESPACE.fft.fft(t, dim=0).real, lambda x: np.fft.fft(x, axis=0).real),
}
# fmt: on


@pytest.mark.parametrize("name", SAME)
def test_a_synonym_means_the_same(name):
    agrees(*SAME[name], X, 1e-7)


@pytest.mark.parametrize("name", ["argmax", "argmin", "any", "all"])
def test_of_functions_without_a_derivative(name):
    t = tg.tensor(X.tolist())
    expected = getattr(X, name)(axis=1, keepdims=True)
    equal(getattr(t, name)(dim=1, keepdim=True), expected)


@here
@pytest.mark.parametrize("name", ["max", "min", "std", "var", "sort", "median"])
def test_a_name_that_promises_another_value_is_refused(name):
    """PyTorch's would be a pair, or another number: an answer in NumPy's sense would be silently wrong to its author."""
    t = tg.tensor(X, requires_grad=True)
    with pytest.raises(TypeError, match=rf"{name}\(dim=...\) is PyTorch's.*write .*axis="):
        getattr(tg, name)(t, dim=1)
    if hasattr(t, name):
        with pytest.raises(TypeError, match=rf"{name}\(dim=...\) is PyTorch's.*write .*axis="):
            getattr(t, name)(dim=1)


@here
def test_two_names_of_one_setting():
    t = tg.tensor(X, requires_grad=True)
    for call in (lambda: t.sum(1, dim=0), lambda: tg.sum(t, axis=1, dim=1)):
        with pytest.raises(TypeError, match="two names of one setting"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
        t.logsumexp(dims=0)


# fmt: off
ARGUMENTS = {
    "sum":     [{"dtype": "f4"}, {"initial": 2.0}, {"where": X > 0}, {"axis": 1, "dtype": "f4", "keepdims": True}],
    "mean":    [{"dtype": "f4"}, {"axis": 0, "where": X > -2}],
    "prod":    [{"dtype": "f4"}, {"axis": 1, "initial": 3.0}],
    "max":     [{"initial": 3.5}, {"axis": 1, "initial": -9.0, "where": X > 0}],
    "min":     [{"initial": 0.0}, {"axis": 0, "initial": 9.0, "where": X > 0}],
    "cumsum":  [{"axis": 1, "dtype": "f4"}, {"dtype": "f4"}],
    "cumprod": [{"axis": 1, "dtype": "f4"}],
    "std":     [{"dtype": "f4"}, {"axis": 1, "where": X > -2, "ddof": 1}],
    "var":     [{"dtype": "f4"}, {"axis": 1, "ddof": 1, "where": X > -2}],
}
# fmt: on


@here
@pytest.mark.parametrize("name", ARGUMENTS)
def test_methods_take_what_numpys_methods_take(name):
    for settings in ARGUMENTS[name]:
        expected = getattr(X, name)(**settings)
        t = tg.tensor(X, requires_grad=True)
        result = getattr(t, name)(**settings)
        assert result.dtype == expected.dtype and result.requires_grad
        np.testing.assert_allclose(result.detach(), expected, rtol=1e-6)
        np.testing.assert_allclose(getattr(tg.tensor(X), name)(**settings), expected, rtol=1e-6)


@here
def test_methods_that_only_numpy_has():
    t = tg.tensor(X, requires_grad=True)
    np.testing.assert_array_equal(t.compress([True, False, True], 1).detach(), X[:, [0, 2]])
    t.compress([True, False, True], 1).sum().backward()
    np.testing.assert_array_equal(t.grad, [[1, 0, 1], [1, 0, 1]])
    which = tg.tensor([1, 0, 1])
    np.testing.assert_array_equal(which.choose(list(t)).detach(), [3.0, 2.0, 4.0])
    assert t.item(1, 0) == t.item(3) == 3.0 and t.tobytes() == X.tobytes()
    assert t.strides == X.strides and t.detach().argpartition(1).shape == X.shape
    y = t * 2
    assert y.fill(1.0) is None and y.put([0, -1], tg.array([5.0, t[0, 0]])) is None
    np.testing.assert_array_equal(y.detach(), [[5.0, 1.0, 1.0], [1.0, 1.0, 0.5]])
    t.grad = None
    y.sum().backward()
    np.testing.assert_array_equal(t.grad, [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="out of bounds"):
        tg.zeros(3).put_(tg.tensor([3]), tg.ones(1))
