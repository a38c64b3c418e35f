"""`autograd.functional`, as expectations that PyTorch itself meets.

`TAPEGRAD_SUITE=torch pytest tests/test_functional.py` runs the same file on PyTorch, in float64.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.suite import differs, leaf, plain, tg

F = tg.autograd.functional

# PyTorch compiles some of its own forward rules, and warns that it should not.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def same(found, expected):
    """Nested tuples of tensors equal nested tuples of numbers or lists (PyTorch's forward Jacobians are lists)."""
    found = tuple(found) if isinstance(found, list) else found
    assert isinstance(found, tuple) == isinstance(expected, tuple), found
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        np.testing.assert_allclose(np.array(found.tolist()), np.array(expected), rtol=1e-12)


def flat(value):
    return [t for part in value for t in flat(part)] if isinstance(value, tuple | list) else [value]


def tensors(value):
    """Nested tuples of numbers or lists as tensors."""
    if isinstance(value, tuple):
        return tuple(tensors(v) for v in value)
    return None if value is None else plain(value)


# ------------------------------------------------------------------------------------------------ values
#
# name, function, inputs, v, value, product with v. A tuple stands for a tuple of tensors.

X = [1.0, 2.0]
M = [[1.0, 2.0], [3.0, 4.0]]

VJPS = [
    ("a number", lambda x: x**3, 2.0, None, 8.0, 12.0),
    ("a number, weighed", lambda x: x**3, 2.0, 0.5, 8.0, 6.0),
    ("one element in a vector", lambda x: (x * x).sum().reshape(1), X, None, [5.0], [2.0, 4.0]),
    ("vector to vector", lambda x: x * x, X, [1.0, 10.0], [1.0, 4.0], [2.0, 40.0]),
    ("matrix to vector", lambda x: (x * x).sum(axis=1), M, [1.0, 10.0], [5.0, 25.0], [[2.0, 4.0], [60.0, 80.0]]),
    ("two inputs", lambda x, y: 2 * x + 3 * y, (X, X), [1.0, 1.0], [5.0, 10.0], ([2.0, 2.0], [3.0, 3.0])),
    ("two outputs", lambda x: (x * x, x.sum()), X, ([1.0, 1.0], 2.0), ([1.0, 4.0], 3.0), [4.0, 6.0]),
    ("a tuple of one", lambda x: (x * x,), (X,), ([1.0, 1.0],), ([1.0, 4.0],), ([2.0, 4.0],)),
    ("an input not used", lambda x, y: x * x, (2.0, 3.0), None, 4.0, (4.0, 0.0)),
    ("an output that is constant", lambda x: (x * x, tg.ones(2)), 2.0, (1.0, [1.0, 1.0]), (4.0, [1.0, 1.0]), 4.0),
    ("nothing but a constant", lambda x: tg.ones(()), 2.0, None, 1.0, 0.0),
    ("the input itself", lambda x: x, X, [1.0, 2.0], X, [1.0, 2.0]),
    ("complex", lambda z: z * z, 1 + 2j, 1 + 0j, -3 + 4j, 2 - 4j),
]  # fmt: skip

JVPS = [
    ("a number", lambda x: x**3, 2.0, None, 8.0, 12.0),
    ("a number, weighed", lambda x: x**3, 2.0, 0.5, 8.0, 6.0),
    ("number to vector", lambda x: x * plain(1.0, 10.0), 2.0, None, [2.0, 20.0], [1.0, 10.0]),
    ("vector to vector", lambda x: x * x, X, [1.0, 10.0], [1.0, 4.0], [2.0, 40.0]),
    ("matrix to vector", lambda x: (x * x).sum(axis=1), M, M, [5.0, 25.0], [10.0, 50.0]),
    ("two inputs", lambda x, y: 2 * x + 3 * y, (X, X), (X, X), [5.0, 10.0], [5.0, 10.0]),
    ("two outputs", lambda x: (x * x, x.sum()), X, [1.0, 1.0], ([1.0, 4.0], 3.0), ([2.0, 4.0], 2.0)),
    ("a tuple of one", lambda x: (x * x,), (X,), ([1.0, 1.0],), ([1.0, 4.0],), ([2.0, 4.0],)),
    ("an input not used", lambda x, y: x * x, (2.0, 3.0), (1.0, 5.0), 4.0, 4.0),
    ("an output that is constant", lambda x: (x * x, tg.ones(2)), 2.0, 1.0, (4.0, [1.0, 1.0]), (4.0, [0.0, 0.0])),
    ("nothing but a constant", lambda x: tg.ones(()), 2.0, None, 1.0, 0.0),
    ("the input itself", lambda x: x, X, [1.0, 2.0], X, [1.0, 2.0]),
    ("matrices", lambda x: tg.linalg.solve(x, plain(1.0, 1.0)), M, M, [-1.0, 1.0], [1.0, -1.0]),
]  # fmt: skip

SCALARS = [
    ("a number", lambda x: x**3, 2.0, None, 8.0, 12.0),
    ("a vector", lambda x: (x**3).sum(), X, [1.0, 10.0], 9.0, [6.0, 120.0]),
    ("mixed", lambda x: x[0] ** 2 * x[1], X, [1.0, 1.0], 2.0, [6.0, 2.0]),
    ("two inputs", lambda x, y: (x * x * y).sum(), (X, X), ([1.0, 0.0], [0.0, 1.0]), 9.0, ([2.0, 4.0], [2.0, 0.0])),
    ("an input not used", lambda x, y: (x**3).sum(), (X, X), ([1.0, 1.0], X), 9.0, ([6.0, 12.0], [0.0, 0.0])),
    ("linear", lambda x: x.sum(), X, [1.0, 1.0], 3.0, [0.0, 0.0]),
    ("a tuple of one", lambda x: (x**3).sum(), (X,), ([1.0, 1.0],), 9.0, ([6.0, 12.0],)),
]  # fmt: skip

ROWS = [
    *(pytest.param("vjp", *row[1:], id=f"vjp, {row[0]}") for row in VJPS),
    *(pytest.param("jvp", *row[1:], id=f"jvp, {row[0]}") for row in JVPS),
    *(pytest.param(n, *row[1:], id=f"{n}, {row[0]}") for n in ("vhp", "hvp") for row in SCALARS),
]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(("name", "function", "inputs", "v", "value", "product"), ROWS)
def test_products(name, function, inputs, v, value, product, create_graph):
    """Value and product, in the form given; differentiable only if that was asked for."""
    found = getattr(F, name)(function, tensors(inputs), tensors(v), create_graph)
    same(found, (value, product))
    if not create_graph:
        assert not any(t.requires_grad for t in flat(found))


# name, function, inputs, the Jacobian

JACOBIANS = [
    ("a number", lambda x: x**3, 2.0, 12.0),
    ("vector to vector", lambda x: x * x, X, [[2.0, 0.0], [0.0, 4.0]]),
    ("vector to number", lambda x: (x * x).sum(), X, [2.0, 4.0]),
    ("number to vector", lambda x: x * plain(1.0, 10.0), 2.0, [1.0, 10.0]),
    ("matrix to vector", lambda x: x.sum(axis=1), M, [[[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]]),
    ("two inputs", lambda x, y: x * y, (X, [3.0, 4.0]), ([[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]])),
    ("two outputs", lambda x: (x * x, x.sum()), X, ([[2.0, 0.0], [0.0, 4.0]], [1.0, 1.0])),
    ("two and two", lambda x, y: (x * y, x + y), (2.0, 3.0), ((3.0, 2.0), (1.0, 1.0))),
    ("tuples of one", lambda x: (x * x,), (2.0,), ((4.0,),)),
    ("an input not used", lambda x, y: x * x, (2.0, X), (4.0, [0.0, 0.0])),
    ("an output that is constant", lambda x: (x, tg.ones(2)), 2.0, (1.0, [0.0, 0.0])),
    ("a sum over broadcasting", lambda x, y: x + y, (2.0, X), ([1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])),
]  # fmt: skip

FORWARD_ALONE = differs("forward-mode only with vectorize=True, and not with create_graph")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"create_graph": True},
        {"vectorize": True},
        {"vectorize": True, "create_graph": True},
        {"vectorize": True, "strategy": "forward-mode"},
        pytest.param({"strategy": "forward-mode"}, marks=FORWARD_ALONE),
        pytest.param(
            {"strategy": "forward-mode", "vectorize": True, "create_graph": True},
            marks=FORWARD_ALONE,
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("function", "inputs", "expected"), [pytest.param(*row[1:], id=row[0]) for row in JACOBIANS]
)
def test_jacobian(function, inputs, expected, settings):
    found = F.jacobian(function, tensors(inputs), **settings)
    same(found, expected)
    if not settings.get("create_graph"):
        assert not any(t.requires_grad for t in flat(found))


HESSIANS = [
    ("a number", lambda x: x**3, 2.0, 12.0),
    ("a vector", lambda x: x[0] ** 2 * x[1], X, [[4.0, 2.0], [2.0, 0.0]]),
    ("two inputs", lambda x, y: (x * x * y).sum(), (2.0, 3.0), ((6.0, 4.0), (4.0, 0.0))),
    ("a tuple of one", lambda x: x**3, (2.0,), ((12.0,),)),
    ("one element in a matrix", lambda x: (x**3).reshape(1, 1), 2.0, 12.0),
    ("linear", lambda x: x.sum(), X, [[0.0, 0.0], [0.0, 0.0]]),
    ("an input not used", lambda x, y: x**3, (2.0, 3.0), ((12.0, 0.0), (0.0, 0.0))),
    ("matrix", lambda x: (x**3).sum() / 6, M, [[[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]], [[[0.0, 0.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]]),
]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"create_graph": True},
        {"vectorize": True},
        {"vectorize": True, "outer_jacobian_strategy": "forward-mode"},
        pytest.param({"outer_jacobian_strategy": "forward-mode"}, marks=FORWARD_ALONE),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("function", "inputs", "expected"), [pytest.param(*row[1:], id=row[0]) for row in HESSIANS]
)
def test_hessian(function, inputs, expected, settings):
    same(F.hessian(function, tensors(inputs), **settings), expected)


# ------------------------------------------------------------------------------------------------ errors

ONE = plain(1.0)
TWO = plain(1.0, 2.0)


def square(x):
    return x * x


ERRORS = [
    ("inputs are a number", lambda: F.vjp(square, 2.0), TypeError, "The inputs given to vjp must be either a Tensor or a tuple of Tensors but the given inputs has type"),
    ("inputs are a list", lambda: F.jvp(square, [TWO], TWO), TypeError, "The inputs given to jvp must be either a Tensor or a tuple of Tensors but the given inputs has type"),
    ("an input is a number", lambda: F.jacobian(square, (ONE, 2.0)), TypeError, "The inputs given to jacobian must be either a Tensor or a tuple of Tensors but the value at index 1 has type"),
    ("output is a number", lambda: F.vjp(lambda x: 1.0, ONE), TypeError, "The outputs of the user-provided function given to vjp must be either a Tensor or a tuple of Tensors but the given outputs"),
    ("an output is a number", lambda: F.jvp(lambda x: (x, 1.0), ONE), TypeError, "outputs of the user-provided function given to jvp must be either a Tensor or a tuple of Tensors but the value at index 1"),
    ("v is a number", lambda: F.vjp(square, ONE, 1.0), TypeError, "The v given to vjp must be either a Tensor or a tuple of Tensors but the given v has type"),
    ("v missing for a vector", lambda: F.vjp(square, TWO), RuntimeError, "The vector v can only be None if the user-provided function returns a single Tensor with a single element"),
    ("v missing for two outputs", lambda: F.vjp(lambda x: (x, x), ONE), RuntimeError, "The vector v can only be None if the user-provided function returns"),
    ("v missing for a vector, jvp", lambda: F.jvp(square, TWO), RuntimeError, "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element"),
    ("v missing for a vector, hvp", lambda: F.hvp(lambda x: x.sum(), TWO), RuntimeError, "The vector v can only be None if the input to the user-provided function is a single Tensor"),
    ("v missing for a vector, vhp", lambda: F.vhp(lambda x: x.sum(), TWO), RuntimeError, "The vector v can only be None if the input to the user-provided function is a single Tensor"),
    ("v of another shape", lambda: F.vjp(square, TWO, tg.ones(3)), RuntimeError, "v has invalid size: should be .*2.* but got .*3"),
    ("v of another shape in a tuple", lambda: F.jvp(lambda x, y: x, (TWO, TWO), (TWO, tg.ones(3))), RuntimeError, "Entry 1 in v has invalid size: should be .*2.* but got .*3"),
    ("v of another length", lambda: F.vjp(lambda x: (x, x), ONE, (ONE,)), RuntimeError, "v is a tuple of invalid length: should be 2 but got 1"),
    ("v is a tuple of two", lambda: F.jvp(square, ONE, (ONE, ONE)), RuntimeError, "The given v should contain a single Tensor"),
    ("hessian of a vector", lambda: F.hessian(square, TWO), RuntimeError, "The Tensor returned by the function given to hessian should contain a single element"),
    ("hessian of a tuple", lambda: F.hessian(lambda x: (x, x), ONE), RuntimeError, "The function given to hessian should return a single Tensor"),
    ("hvp of a vector", lambda: F.hvp(square, TWO, TWO), RuntimeError, "The Tensor returned by the function given to hvp should contain a single element"),
    ("vhp of a tuple", lambda: F.vhp(lambda x: (x, x), ONE), RuntimeError, "The function given to vhp should return a single Tensor"),
    ("an unknown strategy", lambda: F.jacobian(square, ONE, strategy="sideways"), AssertionError, 'Expected strategy to be either "forward-mode" or "reverse-mode"'),
    ("an unknown outer strategy", lambda: F.hessian(square, ONE, outer_jacobian_strategy="sideways"), AssertionError, 'Expected strategy to be either "forward-mode" or "reverse-mode"'),
    ("strict and vectorize", lambda: F.jacobian(square, ONE, strict=True, vectorize=True), RuntimeError, "`strict=True` and `vectorized=True` are not supported together"),
    ("strict and forward", lambda: F.jacobian(square, ONE, strict=True, strategy="forward-mode", vectorize=True), RuntimeError, '`strict=True` and `strategy="forward-mode"` are not supported together'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "message"), [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# ------------------------------------------------------------------------------------------------ strict
#
# name of the function, what is given, key phrase. Without strict each of these is zeros.

NO_GRAD = "Output 0 of the user-provided function does not require gradients"
INDEPENDENT = "The output of the user-provided function is independent of input 1"
CONSTANT_JACOBIAN = "jacobian of the user-provided function is independent of input 0. This is not allowed in strict mode when create_graph=True"
LINEAR = (
    "jacobian of the user-provided function with respect to input 0 is independent of the input"
)


def constant(x):
    return tg.ones(())


def first(x, y):
    return x * x


STRICT = [
    ("vjp of a constant", "vjp", constant, ONE, {}, NO_GRAD),
    ("jvp of a constant", "jvp", constant, ONE, {}, NO_GRAD),
    ("jacobian of a constant", "jacobian", constant, ONE, {}, NO_GRAD),
    ("hessian of a constant", "hessian", constant, ONE, {}, NO_GRAD),
    ("hvp of a constant", "hvp", constant, ONE, {}, NO_GRAD),
    ("vhp of a constant", "vhp", constant, ONE, {}, NO_GRAD),
    ("vjp of a detached", "vjp", lambda x: x.detach(), ONE, {}, NO_GRAD),
    ("vjp, input not used", "vjp", first, (ONE, ONE), {}, INDEPENDENT),
    ("jvp, input not used", "jvp", first, (ONE, ONE), {"v": (ONE, ONE)}, INDEPENDENT),
    ("jacobian, input not used", "jacobian", first, (ONE, ONE), {}, "Output 0 of the user-provided function is independent of input 1"),
    ("hessian, input not used", "hessian", first, (ONE, ONE), {}, "jacobian of the user-provided function with respect to input 1 is independent"),
    ("hvp, input not used", "hvp", first, (ONE, ONE), {"v": (ONE, ONE)}, "independent of input 1"),
    ("vhp, input not used", "vhp", first, (ONE, ONE), {"v": (ONE, ONE)}, "independent of input 1"),
    ("vjp of a linear one", "vjp", lambda x: x.clone(), leaf(1.0), {"create_graph": True}, CONSTANT_JACOBIAN),
    ("jacobian of a linear one", "jacobian", lambda x: x.clone(), leaf(1.0), {"create_graph": True}, CONSTANT_JACOBIAN),
    ("hessian of a linear one", "hessian", lambda x: x.clone(), ONE, {}, LINEAR),
    ("hvp of a linear one", "hvp", lambda x: x.clone(), ONE, {}, LINEAR),
    ("vhp of a linear one", "vhp", lambda x: x.clone(), ONE, {}, LINEAR),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "function", "inputs", "settings", "message"),
    [pytest.param(*row[1:], id=row[0]) for row in STRICT],
)
def test_strict(name, function, inputs, settings, message):
    """What would be zeros because nothing depends on an input is an error."""
    with pytest.raises(RuntimeError, match=message):
        getattr(F, name)(function, inputs, strict=True, **settings)
    for t in flat(getattr(F, name)(function, inputs, **settings)):
        assert np.isfinite(np.array(t.tolist())).all()


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_strict_lets_pass_what_depends(name):
    found = getattr(F, name)(lambda x: x**3, leaf(2.0), strict=True, create_graph=True)
    assert all(t.requires_grad for t in flat(found))


# ------------------------------------------------------------------------------------------------ create_graph


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_results_can_be_differentiated(name):
    """By the inputs: d/dx of 3x² is 6x, of 6x is 6."""
    x = leaf(2.0)
    found = getattr(F, name)(lambda x: x**3, x, create_graph=True)
    result = found[1] if isinstance(found, tuple) else found
    result.backward()
    same(x.grad, 12.0 if name in ("vjp", "jvp", "jacobian") else 6.0)


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp", "vhp"])
def test_results_can_be_differentiated_by_v(name):
    x, v = leaf(2.0), leaf(0.5)
    _, result = getattr(F, name)(lambda x: x**3, x, v, create_graph=True)
    result.backward()
    same(v.grad, 12.0)


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_captured_parameters_get_a_gradient(name):
    """With create_graph, also through a tensor that the function closes over."""
    x, w = plain(2.0), leaf(5.0)
    found = getattr(F, name)(lambda x: w * x**3, x, create_graph=True)
    result = found[1] if isinstance(found, tuple) else found
    result.backward()
    same(w.grad, 12.0)
    assert x.grad is None


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_a_captured_input_is_a_constant(name):
    """The function sees new tensors: the same tensor in its closure is not differentiated by."""
    x = leaf(2.0)
    found = getattr(F, name)(lambda y: x * y**2, x)
    result = found[1] if isinstance(found, tuple) else found
    same(result, 8.0 if name in ("vjp", "jvp", "jacobian") else 4.0)
    assert x.grad is None


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_under_no_grad(name):
    """The derivative is taken all the same, and not recorded."""
    with tg.no_grad():
        found = getattr(F, name)(lambda x: x**3, leaf(2.0))
        result = found[1] if isinstance(found, tuple) else found
    same(result, 12.0)
    assert not result.requires_grad


def test_nested():
    """A Jacobian of a Jacobian of a Jacobian."""
    x = leaf(2.0)

    def third(x):
        return F.jacobian(
            lambda x: F.jacobian(lambda x: x**4, x, create_graph=True), x, create_graph=True
        )

    same(F.jacobian(third, x), 48.0)
    same(F.jvp(lambda x: F.vjp(lambda x: x**4, x, create_graph=True)[1], x)[1], 48.0)
    same(F.jvp(lambda x: F.jvp(lambda x: x**4, x, create_graph=True)[1], x)[1], 48.0)


def test_a_jacobian_of_many_programs():
    """Both strategies agree on what they are made of."""

    def f(x, w):
        h = tg.tanh(x @ w)
        return h.sum(axis=0), (h[0] * h[1]).reshape(1, 2), tg.exp(h).mean()

    inputs = plain([[0.1, 0.2], [0.3, -0.4]]), plain([[1.0, -1.0], [0.5, 2.0]])
    reverse = F.jacobian(f, inputs, vectorize=True)
    forward = F.jacobian(f, inputs, vectorize=True, strategy="forward-mode")
    for row, other in zip(reverse, forward, strict=True):
        for block, expected in zip(row, other, strict=True):
            assert block.shape == expected.shape
            np.testing.assert_allclose(block.numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)
    _, product = F.jvp(f, inputs, inputs)
    for block, p in zip(reverse, product, strict=True):
        total = sum(
            (b.numpy().reshape(p.numel(), -1) @ t.numpy().reshape(-1)) for b, t in zip(block, inputs, strict=True)
        )  # fmt: skip
        np.testing.assert_allclose(total, p.numpy().reshape(-1), rtol=1e-12)


# ------------------------------------------------------------------- as PyTorch's documentation explains it

G = [[0.1, 0.2], [0.3, 0.4]]


def exp_reducer(x):
    return tg.exp(x).sum(axis=1)


def adder(x, y):
    return 2 * x + 3 * y


def exp_adder(x, y):
    return 2 * tg.exp(x) + 3 * y


def pow_reducer(x):
    return (x**3).sum()


def pow_adder_reducer(x, y):
    return (2 * x**2 + 3 * y**2).sum()


def linear_model(x):
    w, b = plain([[2.0, -1.0], [0.0, 1.0]]), plain(1.0, 0.5)
    return x @ w.T + b


def test_the_examples_of_the_docstrings():
    e, x, y = np.exp(G), plain([0.5, 0.25]), plain([0.75, 1.0])
    same(F.vjp(exp_reducer, plain(G), tg.ones(2)), (e.sum(axis=1), e))
    same(F.vjp(adder, (x, y), tg.ones(2)), ([3.25, 3.5], ([2.0, 2.0], [3.0, 3.0])))
    same(F.jvp(exp_reducer, plain(G), tg.ones(2, 2)), (e.sum(axis=1), e.sum(axis=1)))
    same(F.jvp(adder, (x, y), (tg.ones(2), tg.ones(2))), ([3.25, 3.5], [5.0, 5.0]))
    same(F.jacobian(exp_reducer, plain(G)), [[e[0], [0, 0]], [[0, 0], e[1]]])
    same(F.jacobian(exp_adder, (x, y)), (np.diag(2 * np.exp([0.5, 0.25])), np.diag([3.0, 3.0])))
    jac = F.jacobian(linear_model, tg.randn(4, 2, requires_grad=True), vectorize=True)
    assert tuple(jac.shape) == (4, 2, 4, 2)
    hessian = np.zeros((2, 2, 2, 2))
    for i, j in np.ndindex(2, 2):
        hessian[i, j, i, j] = 6 * G[i][j]
    same(F.hessian(pow_reducer, plain(G)), hessian)
    same(
        F.hessian(pow_adder_reducer, (x, y)),
        ((4 * np.eye(2), np.zeros((2, 2))), (np.zeros((2, 2)), 6 * np.eye(2))),
    )
    for product in (F.vhp, F.hvp):
        same(product(pow_reducer, plain(G), tg.ones(2, 2))[1], 6 * np.array(G))
        same(
            product(pow_adder_reducer, (x, y), (tg.zeros(2), tg.ones(2)))[1],
            ([0.0, 0.0], [6.0, 6.0]),
        )
    for found in (
        F.vjp(exp_reducer, leaf(G), tg.ones(2), create_graph=True)[1],
        F.jacobian(exp_reducer, leaf(G), create_graph=True),
        F.hvp(pow_reducer, leaf(G), tg.ones(2, 2), create_graph=True)[1],
    ):
        assert found.grad_fn is not None
