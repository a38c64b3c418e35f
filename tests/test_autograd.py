"""PyTorch's semantics of `backward` and `grad`, as expectations that PyTorch itself meets.

`TAPEGRAD_SUITE=torch pytest tests/test_autograd.py` runs the same file on PyTorch, in float64. Where tapegrad differs on
purpose, `differs(reason)` marks the expectation: it must fail on PyTorch. What PyTorch can do and tapegrad cannot (yet) is
marked `missing(reason)`: it must fail here.
"""

from __future__ import annotations

import copy
import gc
import importlib
import operator
import os
import pickle
import queue
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest

from tests.suite import in_threads

SUITE = os.environ.get("TAPEGRAD_SUITE", "tapegrad")
tg = importlib.import_module(SUITE)
HERE = SUITE == "tapegrad"
if not HERE:
    tg.set_default_dtype(tg.float64)

grad = tg.autograd.grad
backward = tg.autograd.backward


def differs(reason):
    return pytest.mark.xfail(not HERE, reason=f"PyTorch: {reason}", strict=True)


def missing(reason):
    return pytest.mark.xfail(HERE, reason=reason, strict=True)


def leaf(*values, dtype=None):
    return tg.tensor(
        values[0] if len(values) == 1 else list(values), dtype=dtype, requires_grad=True
    )


def values(t):
    """A tensor's elements as an array, graph or not."""
    return np.array(t.tolist())


def equal(t, expected):
    assert t is not None, f"no gradient, expected {expected}"
    actual, expected = values(t), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------ gradients
#
# name, function of leaves, the leaves' values, the gradient of the (summed) result by each.

GRADIENTS = [
    ("sum of two", lambda a, b: a + b, (3.0, 4.0), (1.0, 1.0)),
    ("difference", lambda a, b: a - b, (3.0, 4.0), (1.0, -1.0)),
    ("product", lambda a, b: a * b, (3.0, 4.0), (4.0, 3.0)),
    ("quotient", lambda a, b: a / b, (3.0, 4.0), (0.25, -0.1875)),
    ("power", lambda a, b: a**b, (3.0, 2.0), (6.0, 9 * np.log(3))),
    ("negative", lambda a: -a, (3.0,), (-1.0,)),
    ("reflected", lambda a: 1 - 2 / a + 2**a - 3 * a, (2.0,), (0.5 + 4 * np.log(2) - 3,)),
    ("remainder", lambda a, b: a % b, (7.5, 2.0), (1.0, -3.0)),
    ("used twice", lambda a: a * a + a, (3.0,), (7.0,)),
    ("cancelled", lambda a: a - a, (3.0,), (0.0,)),
    ("chain", lambda a: tg.exp(tg.sin(a * 2)), (0.5,), (2 * np.cos(1) * np.exp(np.sin(1)),)),
    ("shared part", lambda a: (lambda h: h * h + h)(a * a), (2.0,), (36.0,)),
    ("unused operand", lambda a, b: a * 1 + 0 * b, (3.0, 4.0), (1.0, 0.0)),
    ("detached", lambda a: a.detach() * a, (3.0,), (3.0,)),
    # broadcasting: a gradient is summed back to its operand's shape
    ("row + matrix", lambda a, b: a + b, ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]), ([2.0, 2.0], [[1.0, 1.0]] * 2)),
    ("scalar * matrix", lambda a, b: a * b, (2.0, [[1.0, 2.0], [3.0, 4.0]]), (10.0, [[2.0, 2.0]] * 2)),
    ("column * row", lambda a, b: a * b, ([[1.0], [2.0]], [[3.0, 4.0]]), ([[7.0], [7.0]], [[3.0, 3.0]])),
    ("column of one", lambda a, b: a * b, ([5.0], [1.0, 2.0]), ([3.0], [5.0, 5.0])),
    ("expand", lambda a: a.expand(3, 2) * tg.arange(6.0).reshape(3, 2), ([1.0, 2.0],), ([6.0, 9.0],)),
    # reductions
    ("sum", lambda a: a.sum() * 2, ([[1.0, 2.0]],), ([[2.0, 2.0]],)),
    ("sum over an axis", lambda a: a.sum(axis=0) * tg.tensor([1.0, 10.0]), ([[1.0, 2.0]] * 2,), ([[1.0, 10.0]] * 2,)),
    ("sum keepdims", lambda a: a.sum(axis=1, keepdims=True) * a, ([[1.0, 2.0]],), ([[6.0, 6.0]],)),
    ("mean", lambda a: a.mean(), ([1.0, 2.0, 3.0, 4.0],), ([0.25] * 4,)),
    ("mean over an axis", lambda a: a.mean(axis=1), ([[1.0, 2.0]] * 2,), ([[0.5, 0.5]] * 2,)),
    ("prod", lambda a: a.prod(), ([2.0, 3.0, 4.0],), ([12.0, 8.0, 6.0],)),
    ("prod, one zero", lambda a: a.prod(), ([2.0, 0.0, 4.0],), ([0.0, 8.0, 0.0],)),
    ("prod, two zeros", lambda a: a.prod(), ([2.0, 0.0, 0.0],), ([0.0, 0.0, 0.0],)),
    ("max shares ties", lambda a: a.max(), ([1.0, 5.0, 5.0],), ([0.0, 0.5, 0.5],)),
    ("amin over an axis", lambda a: tg.amin(a, axis=0), ([[1.0, 5.0], [1.0, 2.0]],), ([[0.5, 0.0], [0.5, 1.0]],)),
    ("var", lambda a: a.var(correction=0), ([1.0, 2.0, 6.0],), ([-4 / 3, -2 / 3, 2.0],)),
    ("std", lambda a: a.std(correction=0), ([1.0, 3.0],), ([-0.5, 0.5],)),
    ("cumsum", lambda a: a.cumsum(axis=0), ([1.0, 2.0, 3.0],), ([3.0, 2.0, 1.0],)),
    ("logsumexp", lambda a: a.logsumexp(axis=0), ([0.0, 0.0],), ([0.5, 0.5],)),
    # products
    ("matrix @ matrix", lambda a, b: a @ b, ([[1.0, 2.0]], [[3.0], [4.0]]), ([[3.0, 4.0]], [[1.0], [2.0]])),
    ("matrix @ vector", lambda a, b: a @ b, ([[1.0, 2.0]], [3.0, 4.0]), ([[3.0, 4.0]], [1.0, 2.0])),
    ("vector @ vector", lambda a, b: a @ b, ([1.0, 2.0], [3.0, 4.0]), ([3.0, 4.0], [1.0, 2.0])),
    ("vector @ matrix", lambda a, b: a @ b, ([1.0, 2.0], [[3.0], [4.0]]), ([3.0, 4.0], [[1.0], [2.0]])),
    ("with itself", lambda a: a @ a, ([1.0, 2.0],), ([2.0, 4.0],)),
    # shapes and views
    ("reshape", lambda a: a.reshape(2, 1) @ tg.ones(1, 2), ([1.0, 2.0],), ([2.0, 2.0],)),
    ("transpose", lambda a: a.T @ tg.tensor([1.0, 2.0]), ([[1.0], [2.0]],), ([[1.0], [2.0]],)),
    ("slice", lambda a: a[1:] * a[:-1], ([1.0, 2.0, 3.0],), ([2.0, 4.0, 2.0],)),
    ("entry", lambda a: a[0, 1] * a[1, 0], ([[1.0, 2.0], [3.0, 4.0]],), ([[0.0, 3.0], [2.0, 0.0]],)),
    ("entries repeated", lambda a: a[[0, 0, 1]], ([1.0, 2.0],), ([2.0, 1.0],)),
    ("mask", lambda a: a[tg.tensor([True, False, True])], ([1.0, 2.0, 3.0],), ([1.0, 0.0, 1.0],)),
    ("new axis", lambda a: a[:, None] * a[None, :], ([1.0, 2.0],), ([6.0, 6.0],)),
    ("rows iterated", lambda a: sum(row * i for i, row in enumerate(a)), ([[1.0], [2.0]],), ([[0.0], [1.0]],)),
    ("cat", lambda a, b: tg.cat([a, b, a]) ** 2, ([1.0], [2.0]), ([4.0], [4.0])),
    ("stack", lambda a, b: tg.stack([a, b])[1] * 3, (1.0, 2.0), (0.0, 3.0)),
    ("clone", lambda a: a.clone() * 2, (1.0,), (2.0,)),
    # kinks: the subgradients
    ("abs at 0", abs, ([-2.0, 0.0, 3.0],), ([-1.0, 0.0, 1.0],)),
    ("maximum of equals", tg.maximum, ([1.0, 2.0], [1.0, 1.0]), ([0.5, 1.0], [0.5, 0.0])),
    ("clamp at its bounds", lambda a: a.clamp(0.0, 1.0), ([-1.0, 0.0, 1.0, 2.0],), ([0.0, 1.0, 1.0, 0.0],)),
    ("where", lambda a, b: tg.where(a > b, a, b), ([1.0, 3.0], [2.0, 2.0]), ([0.0, 1.0], [1.0, 0.0])),
    ("sqrt at 0", tg.sqrt, (0.0,), (np.inf,)),
    ("floor", tg.floor, (1.5,), (0.0,)),
    ("zero to the zero", lambda a: a**0.0, (0.0,), (0.0,)),
    ("zero to a power", lambda b: tg.tensor(0.0) ** b, (2.0,), (0.0,)),
    # complex numbers: the gradient of L at a + ib is dL/da + i dL/db
    ("|z|² by conj", lambda z: (z * z.conj()).real, (1 + 2j,), (2 + 4j,)),
    ("|z|² by abs", lambda z: z.abs() ** 2, (1 + 2j,), (2 + 4j,)),
    ("real", lambda z: z.real, (1 + 2j,), (1 + 0j,)),
    ("imag", lambda z: z.imag, (1 + 2j,), (1j,)),
    ("angle", lambda z: z.angle(), (1 + 2j,), (-0.4 + 0.2j,)),
    ("abs", lambda z: z.abs(), (3 + 4j,), (0.6 + 0.8j,)),
    ("abs at 0j", lambda z: z.abs(), (0j,), (0j,)),
    ("real part of a square", lambda z: (z * z).real, (1 + 2j,), (2 - 4j,)),
    ("imag part of a square", lambda z: (z * z).imag, (1 + 2j,), (4 + 2j,)),
    ("exp", lambda z: tg.exp(z).real, (1 + 2j,), (np.conj(np.exp(1 + 2j)),)),
    ("quotient of complex", lambda z, w: (z / w).real, (1 + 2j, 1j), (1j, 1 - 2j)),
    ("real times complex", lambda a, z: (a * z).imag, (3.0, 1 + 2j), (2.0, 3j)),
    ("complex matrices", lambda z, w: (z @ w).real, ([[1j, 2]], [[1j], [1 + 1j]]), ([[-1j, 1 - 1j]], [[-1j], [2 + 0j]])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "at", "expected"), [pytest.param(*row[1:], id=row[0]) for row in GRADIENTS]
)
def test_gradient(function, at, expected):
    """The gradient is the one expected, by `backward` and by `grad`."""
    leaves = [leaf(v) for v in at]
    found = grad(function(*leaves).sum(), leaves)
    function(*leaves).sum().backward()
    for t, g, e in zip(leaves, found, expected, strict=True):
        equal(g, e)
        equal(t.grad, e)
        assert g.dtype == t.dtype
        assert not g.requires_grad


# ------------------------------------------------------------------------------------------------ errors
#
# name, what is done, the error's type, its key phrase.


def twice(function, *at):
    """Walk a graph two times."""
    y = function(*(leaf(v) for v in at)).sum()
    y.backward()
    y.backward()


def assign_grad(value):
    leaf(1.0, 2.0).grad = value


def own_grad():
    x = leaf(1.0)
    x.grad = x


def overwritten(function, change):
    y = function(leaf(1.0, 2.0))
    change(y)
    y.sum().backward()


def write_leaf(change):
    change(leaf(1.0, 2.0))


def used_inference():
    with tg.inference_mode():
        w = leaf(1.0, 2.0) * 2
    return leaf(1.0, 2.0) * w


SECOND = "Trying to backward through the graph a second time"

ERRORS = [
    # what backward starts from
    ("no graph", lambda: tg.tensor(1.0).backward(), RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn"),
    ("no graph, grad", lambda: grad(tg.tensor(1.0), leaf(1.0)), RuntimeError, "does not require grad and does not have a grad_fn"),
    ("second has no graph", lambda: backward([leaf(1.0), tg.tensor(1.0)]), RuntimeError, "element 1 of tensors does not require grad"),
    ("recorded under no_grad", lambda: tg.no_grad()(lambda: leaf(1.0) * 2)().backward(), RuntimeError, "does not require grad"),
    ("not a scalar", lambda: (leaf(1.0, 2.0) * 2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
    ("complex scalar", lambda: (leaf(1j) * 2).backward(), RuntimeError, "grad can be implicitly created only for real scalar outputs but got"),
    ("gradient of another shape", lambda: (leaf(1.0, 2.0) * 2).backward(tg.ones(2, 1)), RuntimeError, r"Mismatch in shape: grad_output\[0\] has a shape of"),
    ("gradient does not broadcast", lambda: (leaf(1.0) * 2).backward(tg.ones(1)), RuntimeError, "Mismatch in shape"),
    ("complex gradient", lambda: leaf(1.0).backward(tg.tensor(1j)), RuntimeError, "dtype"),
    ("too few gradients", lambda: backward([leaf(1.0), leaf(2.0)], tg.tensor(1.0)), RuntimeError, "got 2 tensors and 1 gradients"),
    ("an output that is a number", lambda: grad(3.0, leaf(1.0)), TypeError, "float"),
    ("an input that is a number", lambda: grad(leaf(1.0), 3.0), TypeError, "float"),
    # what it goes to
    ("unused input", lambda: grad(leaf(1.0) * 2, leaf(1.0)), RuntimeError, "appears to not have been used in the graph.*Set allow_unused=True if this is the desired behavior"),
    ("detached input", lambda: grad(leaf(1.0) * 2, tg.tensor(1.0)), RuntimeError, "One of the differentiated Tensors does not require grad"),
    ("no inputs", lambda: grad(leaf(1.0), []), RuntimeError, r"`inputs` argument to `grad\(\)` cannot be empty"),
    ("no inputs, backward", lambda: leaf(1.0).backward(inputs=[]), RuntimeError, r"`inputs` argument to `backward\(\)` cannot be empty"),
    ("zeros for unused, but none allowed", lambda: grad(leaf(1.0), leaf(1.0), allow_unused=False, materialize_grads=True), ValueError, "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False"),
    # a graph is walked once
    ("second walk, mul", lambda: twice(operator.mul, 2.0, 3.0), RuntimeError, SECOND),
    ("second walk, mul by a number", lambda: twice(lambda x: x * 2, 2.0), RuntimeError, SECOND),
    ("second walk, div", lambda: twice(lambda x: x / 2, 2.0), RuntimeError, SECOND),
    ("second walk, pow", lambda: twice(lambda x: x**2, 2.0), RuntimeError, SECOND),
    ("second walk, exp", lambda: twice(tg.exp, 2.0), RuntimeError, SECOND),
    ("second walk, matmul", lambda: twice(operator.matmul, [[1.0]], [[2.0]]), RuntimeError, SECOND),
    ("second walk, prod", lambda: twice(lambda x: x.prod(), [1.0, 2.0]), RuntimeError, SECOND),
    ("second walk, max", lambda: twice(lambda x: x.max(), [1.0, 2.0]), RuntimeError, SECOND),
    ("second walk, where", lambda: twice(lambda x: tg.where(x > 0, x, 2 * x), [1.0, 2.0]), RuntimeError, SECOND),
    ("second walk, further down", lambda: twice(lambda x: (x * x + 1).reshape(2, 1), [1.0, 2.0]), RuntimeError, SECOND),
    # flags
    ("integers", lambda: tg.tensor(1, requires_grad=True), RuntimeError, "Tensors of floating point and complex dtype can require gradients"),
    ("integers, later", lambda: tg.tensor([1, 2]).requires_grad_(), RuntimeError, "only Tensors of floating point"),
    ("booleans", lambda: tg.tensor([True]).requires_grad_(), RuntimeError, "only Tensors of floating point"),
    ("flag of a result", lambda: (leaf(1.0) * 2).requires_grad_(False), RuntimeError, "you can only change requires_grad flags of leaf variables"),
    ("retain_grad of a constant", lambda: tg.ones(2).retain_grad(), RuntimeError, "can't retain_grad on Tensor that has requires_grad=False"),
    ("grad is a number", lambda: assign_grad(3.0), TypeError, "assigned grad expected to be a Tensor or None but got"),
    ("grad of another shape", lambda: assign_grad(tg.ones(3)), RuntimeError, r"3.*2"),
    ("grad of another dtype", lambda: assign_grad(tg.ones(2, dtype=tg.float32)), RuntimeError, "dtype"),
    ("own grad", own_grad, RuntimeError, "can't assign Variable as its own grad"),
    # in place
    ("leaf += 1", lambda: write_leaf(lambda x: operator.iadd(x, 1)), RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation"),
    ("leaf *= 2", lambda: write_leaf(lambda x: operator.imul(x, 2)), RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation"),
    ("leaf[0] = 1", lambda: write_leaf(lambda x: operator.setitem(x, 0, 1.0)), RuntimeError, "leaf Variable that requires grad is being used in an in-place operation"),
    ("result of exp overwritten", lambda: overwritten(tg.exp, lambda y: operator.iadd(y, 1)), RuntimeError, "one of the variables needed for gradient computation has been modified by an inplace operation"),
    ("result of sqrt overwritten", lambda: overwritten(tg.sqrt, lambda y: operator.setitem(y, 0, 1.0)), RuntimeError, "modified by an inplace operation"),
    ("inference tensor saved", used_inference, RuntimeError, "Inference tensors cannot be saved for backward"),
    # leaving the tape
    ("numpy", lambda: leaf(1.0).numpy(), (RuntimeError, TypeError), r"Can't call numpy\(\) on Tensor that requires grad"),
    ("item of several", lambda: leaf(1.0, 2.0).item(), RuntimeError, "a Tensor with 2 elements cannot be converted to Scalar"),
    ("truth of several", lambda: bool(leaf(1.0, 2.0)), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
    ("truth of none", lambda: bool(tg.ones(0)), RuntimeError, "Boolean value of Tensor with no values is ambiguous"),
    ("length of a number", lambda: len(leaf(1.0)), TypeError, r"len\(\) of a 0-d tensor"),
    ("iteration over a number", lambda: iter(leaf(1.0)), TypeError, "iteration over a 0-d tensor"),
    ("float as index", lambda: [1, 2][tg.tensor(1.0)], TypeError, "only.*integer tensor"),
    ("float tensor as index", lambda: leaf(1.0, 2.0)[tg.tensor([0.0])], IndexError, "index|indices"),
    ("deepcopy of a result", lambda: copy.deepcopy(leaf(1.0) * 2), RuntimeError, r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol"),
]  # fmt: skip

ERRORS_HERE = [
    ("too many gradients", lambda: backward([leaf(1.0)], [tg.tensor(1.0)] * 2), RuntimeError, "got 1 tensors and 2 gradients", "drops the surplus"),
    ("pickle of a result", lambda: pickle.dumps(leaf(1.0) * 2), RuntimeError, "Only leaf tensors can be pickled", "pickles the value as a new leaf"),
    ("float() of a tracked tensor", lambda: float(leaf(1.0)), TypeError, "gradient would be lost", "only warns, so math.sin(t) drops the gradient"),
    ("tracked value into integers", lambda: operator.setitem(tg.tensor([1, 2]), 0, leaf(1.5)), RuntimeError, "cannot carry a gradient", "truncates without a word"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("action", "kind", "phrase"),
    [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
    + [pytest.param(*row[1:4], id=row[0], marks=differs(row[4])) for row in ERRORS_HERE],
)
def test_error(action, kind, phrase):
    """A mistake raises PyTorch's type of error, with the phrase that a user would search for."""
    with pytest.raises(kind, match=phrase):
        action()


# ------------------------------------------------------------------------------------- walking a graph again

REPEATABLE = [
    ("add", lambda x: x + x),
    ("add a number", lambda x: x + 1),
    ("subtract", lambda x: 1 - x),
    ("negative", operator.neg),
    ("sum", lambda x: x.sum()),
    ("sum over an axis", lambda x: x.sum(axis=0)),
    ("mean", lambda x: x.mean()),
    ("reshape", lambda x: x.reshape(4)),
    ("transpose", lambda x: x.T),
    ("slice", lambda x: x[1:]),
    ("entry", lambda x: x[1, 0]),
    ("new axis", lambda x: x[None]),
    ("clone", lambda x: x.clone()),
    ("cat", lambda x: tg.cat([x, x])),
    ("stack", lambda x: tg.stack([x, x])),
    ("cumsum", lambda x: x.cumsum(axis=0)),
    ("expand", lambda x: x.expand(3, 2, 2)),
    ("floor", tg.floor),
    ("several", lambda x: -(x + x.sum(axis=0)).T),
]


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f in REPEATABLE])
def test_ops_that_save_nothing_are_walked_again(function):
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = function(x).sum()
    y.backward()
    first = values(x.grad)
    y.backward()
    equal(x.grad, 2 * first)


@differs("it keeps the positions among the values it frees")
def test_reading_by_positions_is_walked_again():
    twice(lambda x: x[[0, 0]], [1.0, 2.0])


def test_remainder_by_a_number_is_walked_again():
    twice(lambda x: x % 2, [1.0, 2.0])


def test_retain_graph_lets_a_graph_be_walked_again():
    x = leaf(3.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    equal(x.grad, 12.0)
    y.backward()
    with pytest.raises(RuntimeError, match=SECOND):
        y.backward()


def test_create_graph_retains_it():
    x = leaf(3.0)
    y = x * x
    for _ in range(2):
        (g,) = grad(y, x, create_graph=True)
    equal(g, 6.0)
    grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(RuntimeError, match=SECOND):
        grad(y, x)


def test_shared_part_is_freed_by_the_first_walk():
    x = leaf(3.0)
    h = x * x
    a, b = h + 1, h + 2
    a.backward()
    with pytest.raises(RuntimeError, match=SECOND):
        b.backward()
    equal(x.grad, 6.0)


def test_a_graph_is_built_anew_each_time():
    x = leaf(3.0)
    for _ in range(3):
        (x * x).backward()
    equal(x.grad, 18.0)


@differs("a leaf reached before the error keeps what it got")
def test_failed_walk_leaves_gradients_as_they_were():
    """The walk reaches `a` before it finds that what `b` needs was freed."""
    a, b = leaf(2.0), leaf(3.0)
    h = b * b
    h.backward()
    with pytest.raises(RuntimeError, match=SECOND):
        (h + a).backward()
    assert a.grad is None
    equal(b.grad, 6.0)


def test_freed_part_is_not_passed_by():
    """Asked for one leaf, a walk that meets what was freed must not leave its share out."""
    x = leaf(3.0)
    h = x * x
    h.backward()
    y = h + x
    with pytest.raises(RuntimeError, match=SECOND):
        grad(y, x)
    with pytest.raises(RuntimeError, match=SECOND):
        y.backward(inputs=[x])
    equal(x.grad, 6.0)


# ------------------------------------------------------------------------------------------- accumulation


def test_backward_adds_to_grad():
    x = leaf(1.0, 2.0)
    assert x.grad is None
    (x * x).sum().backward()
    equal(x.grad, [2.0, 4.0])
    (3 * x).sum().backward()
    equal(x.grad, [5.0, 7.0])
    x.grad = None
    x.sum().backward()
    equal(x.grad, [1.0, 1.0])


def test_grad_stays_the_same_object_while_it_grows():
    x = leaf(1.0, 2.0)
    x.sum().backward()
    g = x.grad
    x.sum().backward()
    assert x.grad is g
    equal(g, [2.0, 2.0])
    g[:] = 0.0
    x.sum().backward()
    equal(x.grad, [1.0, 1.0])


def test_grad_is_no_alias_of_anything():
    """Two leaves get the same cotangent array, and so does the caller's seed: each has memory of its own."""
    a, b, seed = leaf(1.0, 2.0), leaf(1.0, 2.0), tg.ones(2)
    (a + b).backward(seed)
    with tg.no_grad():
        a.grad += 1
    equal(b.grad, [1.0, 1.0])
    equal(seed, [1.0, 1.0])


def test_assigned_grad_is_added_to():
    x = leaf(1.0, 2.0)
    x.grad = tg.tensor([10.0, 20.0])
    x.sum().backward()
    equal(x.grad, [11.0, 21.0])
    del x.grad
    assert x.grad is None


def test_backward_of_several_outputs_adds_up():
    x, y = leaf(1.0, 2.0), leaf(3.0)
    backward([x * y, y * y, y], [tg.tensor([1.0, 10.0]), None, tg.tensor(2.0)])
    equal(x.grad, [3.0, 30.0])
    equal(y.grad, 1 + 20 + 6 + 2)


def test_backward_of_one_output_given_twice_counts_twice():
    x = leaf(3.0)
    y = x * x
    backward([y, y])
    equal(x.grad, 12.0)


def test_gradient_weighs_the_elements():
    x = leaf(1.0, 2.0, 3.0)
    (x * x).backward(gradient=tg.tensor([1.0, 0.0, -1.0]))
    equal(x.grad, [2.0, 0.0, -6.0])
    y = leaf(1.0, 2.0)
    (y * 2).backward(tg.ones(2, dtype=tg.float32))
    equal(y.grad, [2.0, 2.0])
    assert y.grad.dtype == tg.float64


def test_one_element_needs_no_gradient():
    x = leaf([[3.0]])
    (x * x).backward()
    equal(x.grad, [[6.0]])


def test_create_graph_records_what_is_accumulated():
    x = leaf(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch warns of the reference cycle
        (x**3).backward(create_graph=True)
    g = x.grad
    assert g.requires_grad
    equal(g, 12.0)
    x.grad = None
    g.backward()
    equal(x.grad, 12.0)


# ----------------------------------------------------------------------------------------- inputs, outputs


def test_inputs_limit_who_receives():
    a, b = leaf(2.0), leaf(3.0)
    (a * b).backward(inputs=[a])
    equal(a.grad, 3.0)
    assert b.grad is None
    (a * b).backward(inputs=b)
    equal(b.grad, 2.0)
    equal(a.grad, 3.0)


def test_inputs_may_be_a_dict():
    a, b = leaf(2.0), leaf(3.0)
    found = grad(a * b, {"a": a, "b": b})
    assert list(found) == ["a", "b"]
    equal(found["a"], 3.0)
    (a * b).backward(inputs={"a": a})
    equal(a.grad, 3.0)
    assert b.grad is None


def test_inputs_may_be_results():
    x = leaf(2.0)
    h = x * x
    (h * h).backward(inputs=[h], retain_graph=True)
    equal(h.grad, 8.0)
    assert x.grad is None
    (h * 3).backward(inputs=[h, x])
    equal(h.grad, 11.0)
    equal(x.grad, 12.0)


@differs("it walks the node of an input, too, though that is not needed")
def test_the_graph_below_an_input_stays():
    x = leaf(2.0)
    h = x * x
    (h * h).backward(inputs=[h])
    h.backward()
    equal(x.grad, 4.0)


def test_backward_ignores_inputs_it_does_not_reach():
    a, b = leaf(2.0), leaf(3.0)
    (a * 2).backward(inputs=[a, b])
    assert b.grad is None


def test_unused_inputs():
    a, b, c = leaf(2.0), leaf(3.0, 4.0), leaf(5.0)
    assert grad(a * 2, [b, c], allow_unused=True) == (None, None)
    da, db = grad(a * 2, [a, b], allow_unused=True)
    equal(da, 2.0)
    assert db is None
    da, db = grad(a * 2, [a, b], materialize_grads=True)
    equal(db, [0.0, 0.0])


def test_zeros_for_unused_inputs_of_a_recorded_walk_are_differentiated_on():
    x = leaf(0.5)
    y = x * leaf(1.0)
    slope = grad(y, x, create_graph=True)
    curvature = grad(slope, x, create_graph=True, materialize_grads=True)
    equal(curvature[0].detach(), 0.0)
    equal(grad(curvature, x, materialize_grads=True)[0], 0.0)


def test_grad_leaves_grad_alone():
    x = leaf(2.0)
    h = x * x
    grad(h * h, [x, h])
    assert x.grad is None
    y = leaf(3.0)
    grad(x * y, x)
    assert y.grad is None


def test_inputs_given_twice_are_answered_twice():
    x = leaf(3.0)
    h = x * 2
    first, second = grad(x * x, [x, x])
    equal(first, 6.0)
    equal(second, 6.0)
    for g in grad(h * h, [h, x, h]):
        equal(g, 24.0 if g.item() > 20 else 12.0)


def test_an_output_may_be_an_input():
    x = leaf(3.0)
    equal(grad(x, x)[0], 1.0)
    y = x * 2
    equal(grad(y, y)[0], 1.0)
    z = y * y
    dy, dz = grad(z, [y, z])
    equal(dy, 12.0)
    equal(dz, 1.0)
    w = x * x
    dx, dw = grad([w * 5, w], [x, w])
    equal(dw, 6.0)
    equal(dx, 36.0)


def test_backward_from_a_leaf():
    x = leaf(3.0)
    x.backward()
    x.backward(tg.tensor(5.0))
    equal(x.grad, 6.0)


def test_grad_of_several_outputs_adds_up():
    x = leaf(2.0)
    equal(grad([x * x, x * 3], x)[0], 7.0)
    equal(grad([x * x, x * 3], x, [tg.tensor(10.0), None])[0], 43.0)


def test_grad_outputs_weigh_the_elements():
    x = leaf(1.0, 2.0)
    equal(grad(x * x, x, tg.tensor([1.0, 10.0]))[0], [2.0, 40.0])
    equal(grad((x * x,), (x,), (tg.tensor([1.0, 10.0]),))[0], [2.0, 40.0])


def test_batched_grad_outputs_are_independent():
    """Row by row a Jacobian, in one call."""
    x = leaf(1.0, 2.0, 3.0)
    y = x * x.sum()
    (jacobian,) = grad(y, x, tg.eye(3), is_grads_batched=True)
    equal(jacobian, np.eye(3) * 6 + np.array([[1.0], [2.0], [3.0]]))
    z = leaf(1.0)
    assert grad(y, x, [np.zeros((0, 3))], is_grads_batched=True)[0].shape == (0, 3)
    np.testing.assert_array_equal(
        grad(x * x.sum(), x, np.eye(3), is_grads_batched=True)[0].numpy(), jacobian.numpy()
    )
    first, second = grad([x * x, z * 2], [x, z], [tg.ones(4, 3), tg.ones(4)], is_grads_batched=True)
    equal(first, [[2.0, 4.0, 6.0]] * 4)
    equal(second, [2.0] * 4)


def test_only_what_leads_to_an_input_is_walked():
    """The graph below an input, and beside it, is not walked: it stays alive."""
    x, b = leaf(2.0), leaf(3.0)
    h = x * x
    y = h * h + b * b
    equal(grad(y, h)[0], 8.0)
    h.backward()
    equal(x.grad, 4.0)


def test_only_what_leads_to_an_input_is_freed_by_backward():
    x, b = leaf(2.0), leaf(3.0)
    h, k = x * x, b * b
    (h + k).backward(inputs=[x])
    k.backward()
    equal(x.grad, 4.0)
    equal(b.grad, 6.0)
    with pytest.raises(RuntimeError, match=SECOND):
        h.backward()


def test_a_freed_part_that_leads_elsewhere_is_passed_by():
    x, b = leaf(2.0), leaf(3.0)
    y = x * x + b * b
    y.backward(inputs=[x])
    y.backward(inputs=[b])
    equal(b.grad, 6.0)
    with pytest.raises(RuntimeError, match=SECOND):
        y.backward(inputs=[x])


def test_what_is_not_walked_may_be_spoilt():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    e = tg.exp(a)
    y = (e * 1).sum() + (b * b).sum()
    e += 1
    equal(grad(y, b, retain_graph=True)[0], [6.0, 8.0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(y, a)


def test_inputs_receive_once_however_often_named():
    x = leaf(3.0)
    h = x * 2
    (h * h).backward(inputs=[h, h, x, x], retain_graph=True)
    equal(h.grad, 12.0)
    equal(x.grad, 24.0)
    k = x * 2
    k.retain_grad()
    (k * k).backward(inputs=[k])
    equal(k.grad, 12.0)


def test_backward_to_and_from_gradient_edges():
    edge_of = tg.autograd.graph.get_gradient_edge
    x, b = leaf(2.0), leaf(3.0)
    h = x * b
    backward(edge_of(h * h), inputs=[edge_of(x), edge_of(h)])
    equal(x.grad, 36.0)
    assert b.grad is None
    backward([edge_of(x * b)], [tg.tensor(10.0)])
    equal(b.grad, 20.0)


def test_gradient_edges_stand_for_tensors():
    edge_of = tg.autograd.graph.get_gradient_edge
    x = leaf(2.0)
    h = x * x
    edge = edge_of(h)
    y = h * h
    equal(grad(y, edge, retain_graph=True)[0], 8.0)
    del h
    equal(grad(edge, x, tg.tensor(10.0), retain_graph=True)[0], 40.0)
    equal(grad(y, edge_of(x))[0], 32.0)
    assert edge.node.name() == "MulBackward0"
    with pytest.raises(RuntimeError, match="gradient edge"):
        edge_of(tg.tensor(1.0))


# ------------------------------------------------------------------------------------------- higher orders


@pytest.mark.parametrize(
    ("function", "at", "derivatives"),
    [
        pytest.param(lambda x: x**4, 2.0, [32.0, 48.0, 48.0, 24.0], id="power"),
        pytest.param(lambda x: x * x * x, 2.0, [12.0, 12.0, 6.0], id="product"),
        pytest.param(tg.sin, 0.5, [np.cos(0.5), -np.sin(0.5), -np.cos(0.5)], id="sin"),
        pytest.param(tg.exp, 0.5, [np.exp(0.5)] * 3, id="exp"),
        pytest.param(lambda x: 1 / x, 2.0, [-0.25, 0.25, -0.375], id="reciprocal"),
        pytest.param(tg.log, 2.0, [0.5, -0.25, 0.25], id="log"),
        pytest.param(tg.tanh, 0.0, [1.0, 0.0, -2.0], id="tanh"),
    ],
)
def test_derivatives_of_every_order(function, at, derivatives):
    x = leaf(at)
    y = function(x)
    for expected in derivatives:
        (y,) = grad(y, x, create_graph=True)
        equal(y, expected)


def test_mixed_second_derivatives():
    x, y = leaf(2.0), leaf(3.0)
    dx, dy = grad(x * x * y, [x, y], create_graph=True)
    equal(grad(dx, y, retain_graph=True)[0], 4.0)
    equal(grad(dy, x)[0], 4.0)


def test_hessian_by_rows():
    x = leaf(1.0, 2.0)
    (g,) = grad((x[0] ** 2 * x[1]), x, create_graph=True)
    rows = [values(grad(g[i], x, retain_graph=True)[0]) for i in range(2)]
    np.testing.assert_allclose(rows, [[4.0, 2.0], [2.0, 0.0]])


def test_gradient_of_a_gradient_penalty():
    w, x = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (g,) = grad((w * x * x).sum(), x, create_graph=True)
    (g * g).sum().backward()
    equal(w.grad, [8 * 1 * 9.0, 8 * 2 * 16.0])
    equal(x.grad, [8 * 1 * 3.0, 8 * 4 * 4.0])


def test_second_derivative_by_a_seed():
    """The gradient depends on the seed linearly: differentiating by the seed twice over gives forward mode."""
    x, v = leaf(2.0), leaf(1.0)
    (g,) = grad(x**3, x, v, create_graph=True)
    equal(grad(g, v)[0], 12.0)


def test_first_order_gradient_is_not_recorded():
    x = leaf(2.0)
    (g,) = grad(x**3, x)
    assert not g.requires_grad
    (g,) = grad(x**3, x, create_graph=True)
    assert g.requires_grad
    assert g.grad_fn is not None


# ------------------------------------------------------------------------------------- results and leaves


def test_flags():
    x, c = leaf(1.0), tg.tensor(1.0)
    y, z = x * 2, c * 2
    assert (x.is_leaf, x.requires_grad, x.grad_fn) == (True, True, None)
    assert (y.is_leaf, y.requires_grad, y.grad_fn is None) == (False, True, False)
    assert (z.is_leaf, z.requires_grad, z.grad_fn) == (True, False, None)
    assert not (x > 0).requires_grad
    assert c.requires_grad_() is c
    assert (c * 2).requires_grad
    assert not c.requires_grad_(False).requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_result_keeps_its_gradient_if_asked():
    x = leaf(2.0)
    h = x * x
    h.retain_grad()
    assert h.retains_grad
    (h * 3).backward()
    equal(h.grad, 3.0)
    equal(x.grad, 12.0)
    x.retain_grad()
    assert not x.retains_grad


def test_retained_gradient_is_complete():
    x = leaf(2.0)
    h = x * 1
    h.retain_grad()
    (h * h + h).backward()
    equal(h.grad, 5.0)


def test_grad_of_a_result_warns():
    y = leaf(2.0) * 2
    with pytest.warns(
        UserWarning,
        match=r"The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed",
    ):
        assert y.grad is None


def test_detach_shares_memory_and_stops_gradients():
    x = leaf(1.0, 2.0)
    y = x * 1
    d = y.detach()
    assert not d.requires_grad
    assert d.is_leaf
    assert d.grad_fn is None
    d[0] = 10.0
    equal(y, [10.0, 2.0])
    (d * x).sum().backward()
    equal(x.grad, [10.0, 2.0])


def test_detach_in_place_makes_a_leaf():
    y = leaf(2.0) * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad


def test_no_grad_records_nothing():
    x = leaf(2.0)
    with tg.no_grad():
        y = x * x
        with tg.enable_grad():
            z = x * x
    assert not y.requires_grad
    assert z.requires_grad
    with tg.no_grad():
        z.backward()  # walking needs no recording
    equal(x.grad, 4.0)


def test_integers_never_require_grad():
    i = tg.tensor([1, 2])
    x = leaf(1.0, 2.0)
    assert not i.requires_grad
    (x * i).sum().backward()
    equal(x.grad, [1.0, 2.0])
    assert not (i * 2).requires_grad


def test_gradients_have_the_dtype_of_their_tensor():
    a, b, z = leaf(1.0, 2.0, dtype=tg.float32), leaf(3.0, 4.0), leaf(1j, 2j)
    y = a * b
    assert y.dtype == tg.float64
    y.sum().backward()
    assert a.grad.dtype == tg.float32
    assert b.grad.dtype == tg.float64
    equal(a.grad, [3.0, 4.0])
    (b * z).real.sum().backward()
    assert b.grad.dtype == tg.float64
    assert z.grad.dtype == tg.complex128
    (da,) = grad((a * 2).sum(), a)
    assert da.dtype == tg.float32


def test_gradients_have_the_shape_of_their_tensor():
    for shape in [(), (1,), (0,), (2, 0), (2, 3)]:
        x = tg.ones(shape, requires_grad=True)
        (x * 2).sum().backward()
        assert tuple(x.grad.shape) == shape


def test_user_may_drop_everything_but_the_graph():
    """The graph owns what it needs: leaves, values, recorded results."""
    w = leaf(2.0)
    y = (lambda: (leaf(3.0) * w * w).sum())()
    gc.collect()
    y.backward()
    equal(w.grad, 12.0)


def test_dropped_results_are_freed():
    x = leaf(1.0, 2.0)
    y = x * 2
    ref = weakref.ref(y)
    z = y * 3
    del y
    gc.collect()
    assert ref() is None
    z.sum().backward()
    equal(x.grad, [6.0, 6.0])


# ----------------------------------------------------------------------------------------- in place and views


def test_in_place_on_results():
    x = leaf(1.0, 2.0)
    y = x * 1
    y += 1
    y *= x
    y -= 3 * x
    y /= 2
    y **= 2
    y.sum().backward()
    equal(x.grad, [0.0, 0.0])  # ((x + 1) x - 3 x)² / 4 = x² (x - 2)² / 4


def test_in_place_keeps_the_tensor():
    y = leaf(1.0, 2.0) * 1
    before, name = y, y.grad_fn.name()
    y += 1
    assert y is before
    assert (name, y.grad_fn.name()) == ("MulBackward0", "AddBackward0")


def test_in_place_on_what_no_rule_needs():
    """A product by itself saves its operands, not its result."""
    x = leaf(2.0, 3.0)
    y = x * x
    y += 1
    y.sum().backward()
    equal(x.grad, [4.0, 6.0])


def test_in_place_on_what_a_choice_was_made_of():
    """np.where keeps its condition alone, of three operands: the others may be overwritten, the condition may not."""
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    z = tg.where(y.detach() > 1, y, y * 2)
    y *= 5
    (z + y).sum().backward()
    equal(x.grad, [7.0, 6.0, 6.0])
    condition = tg.tensor([True, False, True])
    z = tg.where(condition, x, x * 2)
    condition[0] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_retained_gradient_is_of_what_the_tensor_stands_for():
    """Overwritten in place, a tensor stands for its new value: so does the gradient it retains."""
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    z = y.sum()
    y *= 3
    (y.sum() + z).backward()
    equal(y.grad, [1.0, 1.0])
    equal(x.grad, [8.0, 8.0])


@differs("the second operand was overwritten")
def test_in_place_by_itself():
    x = leaf(1.0, 2.0)
    y = x * 1
    y *= y
    y.sum().backward()
    equal(x.grad, [2.0, 4.0])


@differs("a write through .data goes unnoticed, and the gradient is that of the new value")
def test_write_through_data_is_noticed():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    x.data[0] = 5.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_write_through_a_detached_tensor_is_noticed():
    y = leaf(1.0, 2.0) * 1
    z = (y * y).sum()
    operator.iadd(y.detach(), 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_saved_operand_may_not_be_overwritten():
    x, w = leaf(1.0, 2.0), tg.tensor([3.0, 4.0])
    y = (x * w).sum()
    w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_overwriting_before_use_is_fine():
    x, w = leaf(1.0, 2.0), tg.tensor([3.0, 4.0])
    w += 1
    (x * w).sum().backward()
    equal(x.grad, [4.0, 5.0])


def test_assigning_into_a_buffer():
    x = leaf(2.0)
    buffer = tg.zeros(3)
    buffer[0] = x
    buffer[1] = x * x
    assert buffer.requires_grad
    (buffer * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    equal(x.grad, 41.0)


def test_assigning_over_a_result_cuts_it_off():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y[0] = 10.0
    y[1:] = x[:2]
    y.sum().backward()
    equal(x.grad, [1.0, 1.0, 0.0])


def test_running_sum_in_a_buffer():
    x = leaf(1.0, 2.0, 3.0)
    total = tg.zeros(3)
    for i in range(3):
        total[i] = total[i - 1] + x[i] * x[i] if i else x[0]
    total[2].backward()
    equal(x.grad, [1.0, 4.0, 6.0])


def test_writing_through_a_view():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y[1:] += x[:2]
    y.sum().backward()
    equal(x.grad, [3.0, 3.0, 2.0])


def test_updating_leaves_under_no_grad():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    with tg.no_grad():
        x -= 0.25 * x.grad
        x[0] = 7.0
    equal(x, [7.0, 1.0])
    assert x.is_leaf
    assert x.requires_grad
    x.grad = None
    (x * x).sum().backward()
    equal(x.grad, [14.0, 2.0])


def test_view_of_a_leaf_sees_its_updates():
    x = leaf(1.0, 2.0)
    with tg.no_grad():
        v = x[1:]
        v += 5
    equal(x, [1.0, 7.0])


# ------------------------------------------------------------------------------------------------ the graph

NAMES = [
    ("AddBackward0", lambda x: x + x),
    ("SubBackward0", lambda x: x - 1),
    ("RsubBackward1", lambda x: 1 - x),
    ("MulBackward0", lambda x: x * 2),
    ("DivBackward0", lambda x: x / 2),
    ("NegBackward0", operator.neg),
    ("AbsBackward0", abs),
    ("PowBackward0", lambda x: x**2),
    ("PowBackward1", lambda x: x**x),
    ("PowBackward2", lambda x: 2**x),
    ("PowBackward0", tg.square),
    ("RemainderBackward0", lambda x: x % 2),
    *((f"{n.capitalize()}Backward0", getattr(tg, n)) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "sin", "cos", "tan")),
    *((f"{n.capitalize()}Backward0", getattr(tg, n)) for n in ("sqrt", "sinh", "cosh", "tanh", "reciprocal", "sign", "floor", "ceil")),
    ("Log1PBackward0", tg.log1p),
    ("AsinBackward0", lambda x: tg.arcsin(x / 9)),
    ("AcosBackward0", lambda x: tg.arccos(x / 9)),
    ("AtanBackward0", tg.arctan),
    ("AsinhBackward0", tg.arcsinh),
    ("AcoshBackward0", tg.arccosh),
    ("AtanhBackward0", lambda x: tg.arctanh(x / 9)),
    ("Atan2Backward0", lambda x: tg.arctan2(x, x)),
    ("HypotBackward0", lambda x: tg.hypot(x, x)),
    ("LogaddexpBackward0", lambda x: tg.logaddexp(x, x)),
    ("Logaddexp2Backward0", lambda x: tg.logaddexp2(x, x)),
    ("Deg2RadBackward0", tg.deg2rad),
    ("Rad2DegBackward0", tg.rad2deg),
    ("MaximumBackward0", lambda x: tg.maximum(x, x)),
    ("MinimumBackward0", lambda x: tg.minimum(x, x)),
    ("FmaxBackward0", lambda x: tg.fmax(x, x)),
    ("FmodBackward0", lambda x: tg.fmod(x, 2.0)),
    ("CopysignBackward0", lambda x: tg.copysign(x, x)),
    ("ClampBackward1", lambda x: x.clamp(0.0, 1.0)),
    ("WhereBackward0", lambda x: tg.where(x > 0, x, x)),
    ("SumBackward0", lambda x: x.sum()),
    ("SumBackward1", lambda x: x.sum(axis=0)),
    ("MeanBackward0", lambda x: x.mean()),
    ("MeanBackward1", lambda x: x.mean(axis=(0, 1))),
    ("ProdBackward0", lambda x: x.prod()),
    ("ProdBackward1", lambda x: x.prod(axis=0)),
    ("MaxBackward1", lambda x: x.max()),
    ("MinBackward1", lambda x: x.min()),
    ("AmaxBackward0", lambda x: tg.amax(x, axis=0)),
    ("AminBackward0", lambda x: tg.amin(x, axis=0)),
    ("CumsumBackward0", lambda x: x.cumsum(axis=0)),
    ("LogsumexpBackward0", lambda x: x.logsumexp(axis=0)),
    ("MmBackward0", lambda x: x @ x),
    ("MvBackward0", lambda x: x @ tg.ones(2)),
    ("DotBackward0", lambda x: x[0] @ x[1]),
    ("ViewBackward0", lambda x: x.reshape(4)),
    ("PermuteBackward0", lambda x: x.T),
    ("TransposeBackward0", lambda x: x.swapaxes(0, 1)),
    ("PermuteBackward0", lambda x: tg.moveaxis(x, 0, 1)),
    ("ExpandBackward0", lambda x: tg.broadcast_to(x, (2, 2, 2))),
    ("SqueezeBackward0", lambda x: x.reshape(1, 4).squeeze()),
    ("UnsqueezeBackward0", lambda x: x.unsqueeze(0)),
    ("CatBackward0", lambda x: tg.cat([x, x])),
    ("StackBackward0", lambda x: tg.stack([x, x])),
    ("SelectBackward0", lambda x: x[0]),
    ("SelectBackward0", lambda x: x[:, 1]),
    ("SelectBackward0", lambda x: x[0, 1]),
    ("SliceBackward0", lambda x: x[1:]),
    ("UnsqueezeBackward0", lambda x: x[..., None]),
    ("IndexBackward0", lambda x: x[[0, 0]]),
    ("IndexBackward0", lambda x: x[x > 2]),
    ("CloneBackward0", lambda x: x.clone()),
    ("CopySlices", lambda x: (lambda y: (operator.setitem(y, 0, 1.0), y)[1])(x * 1)),
    ("ConjBackward0", lambda x: (x * 1j).conj()),
    ("AngleBackward0", lambda x: (x * 1j).angle()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "function"), [pytest.param(n, f, id=f"{n}-{i}") for i, (n, f) in enumerate(NAMES)]
)
def test_names_of_nodes(name, function):
    y = function(leaf([[1.0, 2.0], [3.0, 4.0]]))
    assert y.grad_fn.name().rpartition("::")[2] == name
    assert repr(y.grad_fn).startswith(f"<{name}")


def test_next_functions_lead_to_the_leaves():
    x, y = leaf(2.0), leaf(3.0)
    z = (x * y + 1).sum()
    node, path = z.grad_fn, []
    while node.next_functions:
        path.append(node.name())
        ((node, number), *_) = node.next_functions
        assert number == 0
    assert path == ["SumBackward0", "AddBackward0", "MulBackward0"]
    assert node.name().endswith("AccumulateGrad")
    assert node.variable is x
    assert (x * y).grad_fn.next_functions[1][0].variable is y


def test_next_functions_name_constants_none():
    x = leaf(2.0)
    assert (x * 3).grad_fn.next_functions[1] == (None, 0)
    assert (x * tg.tensor(3.0)).grad_fn.next_functions[1] == (None, 0)
    assert x.detach().grad_fn is None
    assert [n for n, _ in tg.cat([leaf(1.0, 2.0), tg.ones(1)]).grad_fn.next_functions].count(
        None
    ) == 1


def test_nodes_are_equal_where_they_are_one():
    x = leaf(2.0)
    h = x * x
    assert h.grad_fn == h.grad_fn
    assert (h + 1).grad_fn.next_functions[0][0] == h.grad_fn
    assert h.grad_fn != (x * x).grad_fn
    (first, _), (second, _) = h.grad_fn.next_functions
    assert first == second
    assert len({h.grad_fn, (h + 1).grad_fn.next_functions[0][0]}) == 1


def test_a_node_outlives_its_tensor():
    x = leaf(2.0)
    node = (x * x + 1).grad_fn
    gc.collect()
    assert node.next_functions[0][0].name() == "MulBackward0"


def test_accumulate_node_keeps_the_leaf():
    node = (leaf(2.0) * 3).grad_fn.next_functions[0][0]
    gc.collect()
    equal(node.variable, 2.0)
    assert node.variable.requires_grad


# ------------------------------------------------------------------------------------- tensors as Python objects


def test_equality_is_elementwise_and_hash_is_identity():
    x, y = leaf(1.0, 2.0), leaf(1.0, 3.0)
    assert (x == y).tolist() == [True, False]
    assert hash(x) == id(x)
    assert {x: "x", y: "y"}[x] == "x"
    assert len({x, y, x}) == 2


def test_as_a_container():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    assert [row.requires_grad for row in x] == [True, True]
    assert 3.0 in x
    assert 5.0 not in x
    assert ["a", "b", "c"][tg.tensor(1)] == "b"
    assert bool(tg.tensor([[1.0]]))
    assert not tg.tensor(0.0)
    first, second = x
    (first * second).sum().backward()
    equal(x.grad, [[3.0, 4.0], [1.0, 2.0]])


def test_pickled_leaf_is_a_leaf():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    t = pickle.loads(pickle.dumps(x))
    equal(t, [1.0, 2.0])
    assert t.is_leaf
    assert t.requires_grad
    assert not pickle.loads(pickle.dumps(tg.ones(2))).requires_grad
    (t * 3).sum().backward()
    assert t is not x


def test_deepcopied_leaf_has_grad_and_memory_of_its_own():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    t = copy.deepcopy(x)
    equal(t.grad, [2.0, 4.0])
    with tg.no_grad():
        t += 1
        t.grad += 1
    equal(x, [1.0, 2.0])
    equal(x.grad, [2.0, 4.0])
    a, b = copy.deepcopy([x, x])
    assert a is b


# ------------------------------------------------------------------------------------------------ threads


def test_each_thread_builds_and_walks_its_own_graph():
    start = threading.Barrier(8)

    def job(i):
        start.wait()
        for _ in range(20):
            x = leaf(*(float(i + k) for k in range(4)))
            y = x
            for _ in range(5):
                y = y * x
            y.sum().backward()
            equal(x.grad, [6.0 * (i + k) ** 5 for k in range(4)])

    in_threads(*(lambda i=i: job(i) for i in range(8)))


def test_threads_that_share_a_leaf_lose_nothing():
    x = tg.zeros(1000, requires_grad=True)
    start = threading.Barrier(2)

    def job():
        start.wait()
        for _ in range(100):
            (x * 3).sum().backward()

    in_threads(job, job)
    equal(x.grad, [600.0] * 1000)


def test_a_graph_may_be_walked_in_another_thread():
    made = {}
    x = leaf(2.0)

    def make():
        made["y"] = x * x * x

    in_threads(make)
    in_threads(made["y"].backward)
    equal(x.grad, 12.0)


def test_a_graph_may_span_threads():
    x = leaf(2.0)
    parts = {}
    in_threads(*(lambda i=i: parts.update({i: x * i}) for i in range(1, 5)))
    total = sum(parts[i] * parts[i] for i in range(1, 5))
    equal(grad(total, x, create_graph=True)[0], 2 * 2.0 * 30)
    gc.collect()
    total.backward()
    equal(x.grad, 120.0)


def test_walking_one_graph_at_once():
    """Walks that retain the graph may run at the same time."""
    x = leaf(2.0, 3.0)
    y = (x * x).sum()
    start = threading.Barrier(4)

    def job():
        start.wait()
        for _ in range(25):
            y.backward(retain_graph=True)

    in_threads(job, job, job, job)
    equal(x.grad, [400.0, 600.0])


@pytest.fixture
def hectic():
    """Threads take turns a hundred times as often, so that what can go wrong between two steps does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def test_others_walk_what_a_thread_made_while_it_goes_on(hectic):
    """The maker records and walks and frees on the same tape; nothing it made for the others is lost."""
    made = queue.Queue(maxsize=20)

    def make():
        for i in range(300):
            x = leaf(float(i % 7 + 1))
            y = x * x
            made.put((x, y * y * x + x))
            del x, y
            z = leaf(2.0)
            (z * z * z).backward()
            equal(z.grad, 12.0)
        for _ in range(3):
            made.put(None)

    def walk():
        while (item := made.get(timeout=600)) is not None:
            x, y = item
            y.backward()
            equal(x.grad, 5 * x.item() ** 4 + 1)

    in_threads(make, walk, walk, walk)


def test_grad_mode_is_the_threads_own():
    seen = {}
    with tg.no_grad():
        in_threads(lambda: seen.update(enabled=tg.is_grad_enabled()))
        assert not tg.is_grad_enabled()
    assert seen["enabled"]


# ------------------------------------------------------------------- as PyTorch's documentation explains it


def test_first_lines_of_a_newcomer():
    """The snippet every introduction opens with, line by line."""
    w = tg.randn(5, 3, requires_grad=True)
    x = tg.randn(1, 5)
    y = x @ w
    z = y.mean()
    z.backward()
    assert tuple(w.grad.shape) == (5, 3)
    np.testing.assert_allclose(values(w.grad), np.repeat(values(x).T / 3, 3, axis=1))
    names = ["" if fn is None else fn.name() for fn in (y.grad_fn, z.grad_fn, x.grad_fn, w.grad_fn)]
    assert names == ["MmBackward0", "MeanBackward0", "", ""]
    a, b = tg.tensor(3.0, requires_grad=True), tg.tensor(4.0, requires_grad=True)
    (a * b).backward()
    assert f"{a.grad!s} {b.grad!s}" == "tensor(4.) tensor(3.)"
    assert f"{a.grad} {b.grad:.2f}" == "4.0 3.00"
    with tg.no_grad():
        predictions = x @ w
    assert not predictions.requires_grad
    with tg.no_grad():
        with tg.enable_grad():
            q = w * 2
    assert q.requires_grad
    d = y.detach()
    assert not d.requires_grad
    y = x @ w
    y.backward(gradient=tg.ones(1, 3))
    x.requires_grad_(True)
    assert x.requires_grad
    w.grad = None
    assert w.grad is None


def test_a_graph_follows_python_control_flow():
    for start, steps in ((1.0, 7), (50.0, 1)):
        x = leaf(start)
        y, n = x, 0
        while y.item() < 100:
            y = y * 2
            n += 1
        y.backward()
        assert n == steps
        equal(x.grad, 2.0**n)


def test_frozen_parameters_get_no_gradient():
    """Only one operand requires grad: the result does, and the frozen one stays without a gradient."""
    frozen, head, x = tg.randn(3, 3), tg.randn(3, 1, requires_grad=True), tg.randn(4, 3)
    features = tg.tanh(x @ frozen)
    assert not features.requires_grad
    (features @ head).sum().backward()
    assert frozen.grad is None
    np.testing.assert_allclose(values(head.grad), values(features).sum(axis=0)[:, None])


def test_descent_under_no_grad_fits_a_line():
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, 50)
    x, target = tg.tensor(points.tolist()), tg.tensor((2 * points - 0.5).tolist())
    slope, offset = leaf(0.0), leaf(0.0)
    for _ in range(200):
        loss = ((slope * x + offset - target) ** 2).mean()
        loss.backward()
        with tg.no_grad():
            for parameter in (slope, offset):
                parameter -= 0.3 * parameter.grad
                parameter.grad = None
    np.testing.assert_allclose([slope.item(), offset.item()], [2.0, -0.5], atol=1e-6)


def test_complex_gradient_is_the_direction_of_descent():
    """|z - c|² falls along -(dL/da + i dL/db): the convention that lets an optimizer step without a conjugate."""
    z, c = leaf(1 + 2j), tg.tensor(-3 + 0.5j)
    for _ in range(60):
        z.grad = None
        ((z - c).abs() ** 2).backward()
        with tg.no_grad():
            z -= 0.2 * z.grad
    equal(z, -3 + 0.5j)


def test_results_of_no_grad_are_constants_later():
    x = leaf(3.0)
    with tg.no_grad():
        c = x * x
    (c * x).backward()
    equal(x.grad, 9.0)


def test_inference_tensors_may_be_used_where_nothing_is_saved():
    x = leaf(1.0, 2.0)
    with tg.inference_mode():
        w = leaf(1.0, 1.0) * 2
    assert w.is_inference()
    (x + w).sum().backward()
    equal(x.grad, [1.0, 1.0])
    (x * w.clone()).sum().backward()
    equal(x.grad, [3.0, 3.0])


def test_long_chains_need_no_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward()
    equal(x.grad, 20_001.0)


def test_a_gradient_with_a_history_keeps_it_when_more_is_added():
    """What a backward without create_graph adds is a constant."""
    x = leaf(1.0, 2.0)
    x.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x * x).sum().backward(create_graph=True)
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first and first.requires_grad
    assert first.tolist() == [5.0, 16.0]
    assert grad(first.sum(), x)[0].tolist() == [6.0, 12.0]
    x.grad = None
