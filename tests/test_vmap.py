"""vmap: what a loop in Python over the entries gives, of any axes and pytrees, to any order, eager and compiled."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tapegrad as tg

R = np.random.default_rng(11)
A, B, C = R.normal(size=(5, 3, 4)), R.normal(size=(4, 5)), R.normal(size=4)


def f(a, b):
    return np.tanh(a @ b) * np.sum(b)


def by_loop(f, *entries):
    return np.stack([f(*entry) for entry in zip(*entries, strict=True)])


compiled_too = pytest.mark.parametrize("kept", [lambda f: f, tg.compile], ids=["eager", "compiled"])


@compiled_too
@pytest.mark.parametrize("in_axes", [(0, 1), [0, -1], (-3, 1)], ids=str)
@pytest.mark.parametrize("out_axes", [0, 1, -1, -2])
def test_axes(kept, in_axes, out_axes):
    found = kept(tg.vmap(f, in_axes, out_axes))(A, B)
    assert_allclose(found, np.moveaxis(by_loop(f, A, B.T), 0, out_axes), rtol=1e-13)


@compiled_too
def test_what_all_entries_share(kept):
    assert_allclose(kept(tg.vmap(f, (0, None)))(A, C), by_loop(f, A, [C] * 5), rtol=1e-13)
    assert_allclose(kept(tg.vmap(f, (None, 1)))(A[0], B), by_loop(f, [A[0]] * 5, B.T), rtol=1e-13)
    assert_allclose(
        kept(tg.vmap(lambda a, scale: a * scale))(A, scale=np.arange(5.0)),
        A * np.arange(5.0)[:, None, None],
    )


@compiled_too
def test_pytrees(kept):
    def g(p, x):
        return {"y": p["w"] @ x[0] + p["b"], "none": None, "all": (x[1], 2.0)}

    axes = ({"w": None, "b": 1}, [0, None])
    given = ({"w": A[0], "b": R.normal(size=(3, 5))}, [R.normal(size=(5, 4)), 7.0])
    found = kept(tg.vmap(g, axes, {"y": 1, "none": None, "all": 0}))(*given)
    y = np.stack([A[0] @ x + b for x, b in zip(given[1][0], given[0]["b"].T, strict=True)])
    assert_allclose(found["y"], y.T, rtol=1e-13)
    assert found["none"] is None
    assert_allclose(found["all"][0], np.full(5, 7.0))
    assert_allclose(found["all"][1], np.full(5, 2.0))


@compiled_too
def test_vmap_of_vmap(kept):
    x, y = R.normal(size=3), R.normal(size=6)
    table = tg.vmap(tg.vmap(lambda x, y: x * np.sin(y), (None, 0)), (0, None))
    assert_allclose(kept(table)(x, y), x[:, None] * np.sin(y))
    through = tg.grad(lambda y: np.sum(table(x, y) ** 2))
    assert_allclose(kept(through)(y), 2 * np.sum(x * x) * np.sin(y) * np.cos(y))


def loss(w, x, y):
    return np.sum((np.tanh(x @ w) - y) ** 2)


@compiled_too
def test_the_gradient_of_each_record(kept):
    w, x, y = R.normal(size=(4, 2)), R.normal(size=(40, 4)), R.normal(size=(40, 2))
    each = kept(tg.vmap(tg.grad(loss), (None, 0, 0)))(w, x, y)
    assert each.shape == (40, 4, 2)
    assert_allclose(each[7], tg.grad(loss)(w, x[7], y[7]), rtol=1e-12)
    assert_allclose(np.sum(each, axis=0), tg.grad(loss)(w, x, y), rtol=1e-11)
    values, gradients = kept(tg.vmap(tg.value_and_grad(loss), (None, 0, 0)))(w, x, y)
    assert_allclose(np.sum(values), loss(w, x, y))
    assert_allclose(gradients, each, rtol=1e-12)
    curvature = kept(tg.vmap(tg.hessian(loss), (None, 0, 0)))(w, x[:3], y[:3])
    assert_allclose(curvature[2], tg.hessian(loss)(w, x[2], y[2]), rtol=1e-9, atol=1e-12)


@compiled_too
def test_derivatives_through_it(kept):
    def whole(a):
        return np.sum(tg.vmap(f, (0, None))(a, C) ** 2)

    def right(a):
        return np.sum((np.tanh(a @ C) * np.sum(C)) ** 2)

    assert_allclose(kept(tg.grad(whole))(A), tg.grad(right)(A), rtol=1e-12)
    assert_allclose(kept(tg.hvp(whole))(A, A), tg.hvp(right)(A, A), rtol=1e-10)
    assert_allclose(tg.jvp(whole, (A,), (A,))[1], tg.jvp(right, (A,), (A,))[1], rtol=1e-12)


def test_tensors_and_what_f_closes_over():
    w = tg.tensor(C, requires_grad=True)
    y = tg.vmap(lambda a: a @ w)(tg.tensor(A))
    assert isinstance(y, tg.Tensor) and y.requires_grad
    y.sum().backward()
    assert_allclose(w.grad.numpy(), A.sum(axis=(0, 1)))


def test_branches_and_functions_go_entry_by_entry():
    class Doubled(tg.autograd.Function):
        """2 x, with a slope of its own, by which one sees that its backward has run."""

        forward = staticmethod(lambda ctx, x: 2 * x)
        backward = staticmethod(lambda ctx, g: 7 * g)

    def either(x):
        return Doubled.apply(x) if x > 0 else -2.0 * x

    x = np.array([1.0, -1.0, 2.0])
    assert_allclose(tg.vmap(lambda x: Doubled.apply(tg.tensor(x)))(x).numpy(), 2 * x)
    slopes = tg.vmap(tg.grad(either))(x)
    assert_allclose(slopes, [7, -2, 7])


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
@compiled_too
def test_dtypes(kept, dtype):
    x = (10 * A[:, 0]).astype(dtype)
    found = kept(tg.vmap(lambda v: v * v + v[0]))(x)
    assert found.dtype == dtype
    assert_allclose(found, x * x + x[:, :1], rtol=1e-6)


@compiled_too
def test_no_entries(kept):
    assert kept(tg.vmap(f, (0, 1)))(A[:0], B[:, :0]).shape == (0, 3)
    assert kept(tg.vmap(f, (0, None), 1))(A[:0], C).shape == (3, 0)


def test_of_a_compiled_function_it_is_one_program():
    whole = tg.vmap(tg.compile(tg.grad(loss)), (None, 0, 0))
    w, x, y = R.normal(size=(4, 2)), R.normal(size=(40, 4)), R.normal(size=(40, 2))
    assert_allclose(whole(w, x, y)[3], tg.grad(loss)(w, x[3], y[3]), rtol=1e-12)
    assert not whole.report().calls
    compiled = tg.compile(f)
    assert tg.vmap(compiled, (0, 1)) is tg.vmap(compiled, (0, 1)) is not tg.vmap(compiled)


def test_the_name_and_the_documentation_are_those_of_f():
    assert tg.vmap(f).__name__ == "f"
