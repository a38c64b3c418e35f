"""Tensors behave like NumPy arrays, and keep to themselves what an array has not: their place in the graph."""

import collections
import copy
import functools
import gc
import inspect
import math
import operator
import pickle
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Sized
from numbers import Number, Real

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad.core.primitive import OPS
from tests.seeds import seeds

DTYPES = [
    np.bool_,
    np.int8,
    np.int64,
    np.uint8,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
]
INEXACT = [np.float32, np.float64, np.complex64, np.complex128]


def leaf(data, dtype=None):
    return tg.tensor(data, dtype, requires_grad=True)


def same(t, array, ulp=0):
    """A tensor (or a number) equals NumPy's result: value (but for so many units in the last place), shape and dtype."""
    value = t._value if isinstance(t, tg.Tensor) else t
    assert np.shape(value) == np.shape(array)
    assert np.asarray(value).dtype == np.asarray(array).dtype
    if ulp:
        np.testing.assert_array_max_ulp(np.asarray(value), np.asarray(array), ulp)
    else:
        np.testing.assert_array_equal(value, array)


# ------------------------------------------------------------------------------------------------ construction


@pytest.mark.parametrize(
    "data",
    [
        1,
        2.5,
        1 + 2j,
        True,
        [1, 2],
        [1.0, 2.0],
        (1, 2.0),
        [[1, 2], [3, 4]],
        [],
        np.arange(6).reshape(2, 3),
        np.float32(3),
        range(3),
    ],
    ids=repr,
)
def test_data_is_held_as_numpy_holds_it(data):
    same(tg.tensor(data), np.array(data))
    same(tg.as_tensor(data), np.asarray(data))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_asked_for_is_the_dtype(dtype):
    same(tg.tensor([0, 1], dtype), np.array([0, 1], dtype))
    same(tg.zeros(2, dtype=dtype), np.zeros(2, dtype))
    same(tg.as_tensor([0, 1], dtype=dtype), np.array([0, 1], dtype))


def test_tensor_copies_and_from_numpy_shares():
    array = np.zeros(3)
    copied, shared, as_is = tg.tensor(array), tg.from_numpy(array), tg.as_tensor(array)
    array[0] = 7
    assert copied[0] == 0 and shared[0] == 7 and as_is[0] == 7
    assert shared.numpy() is array


def test_as_tensor_returns_a_tensor_as_it_is():
    w = leaf([1.0, 2.0])
    assert tg.as_tensor(w) is w
    y = tg.as_tensor(w, dtype=np.float32)
    assert y.requires_grad and y.dtype == np.float32


def test_operands_that_are_sequences_of_tensors_are_joined():
    """As NumPy makes arrays of lists; in every mode, and to any order."""

    def f(a):
        return tg.sum(tg.sin([a, 2 * a]) * [a, 3.0]) + tg.maximum((a, 1.0), 2.0)[1]

    a = 1.3
    value = np.sin(a) * a + np.sin(2 * a) * 3 + 2
    slope = np.cos(a) * a + np.sin(a) + 6 * np.cos(2 * a)
    second = -np.sin(a) * a + 2 * np.cos(a) - 12 * np.sin(2 * a)
    for wrapped in (lambda g: g, tg.compile):
        np.testing.assert_allclose(wrapped(f)(a), value)
        np.testing.assert_allclose(wrapped(tg.grad(f))(a), slope)
        np.testing.assert_allclose(wrapped(tg.hessian(f))(a), second)
        np.testing.assert_allclose(wrapped(lambda a: tg.jvp(f, (a,), (2.0,))[1])(a), 2 * slope)
    t = tg.tensor(a, requires_grad=True)
    np.testing.assert_allclose(tg.linalg.det([[t, 1.0], [2.0, t]]).item(), a * a - 2)
    assert isinstance(tg.sin([1.0, 2.0]), np.ndarray)


def test_tensors_nested_in_sequences_are_joined_with_their_graph():
    a = leaf(2.0)
    y = tg.as_tensor([[a, 1.0], [a * a, 0.0]])
    y.sum().backward()
    same(y.detach(), np.array([[2.0, 1.0], [4.0, 0.0]]))
    assert a.grad == 5
    with pytest.raises(tg.GradientLost, match="stack"):
        tg.tensor([a, 1.0])


CONSTRUCTORS = {
    "zeros": (tg.zeros, np.zeros),
    "ones": (tg.ones, np.ones),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_shape_is_one_tuple_or_several_ints(name):
    ours, numpys = CONSTRUCTORS[name]
    expected = numpys((2, 3))
    for shape in (
        (2, 3),
        ((2, 3),),
        ([2, 3],),
        (np.array([2, 3]),),
        (np.int64(2), 3),
        (tg.tensor([2, 3]),),
    ):
        same(ours(*shape), expected)
    same(ours(4), numpys(4))
    same(ours(()), numpys(()))
    same(ours(), numpys(()))
    same(ours(0, 2), numpys((0, 2)))
    assert ours(2, requires_grad=True).requires_grad


def test_the_other_constructors_are_numpys():
    same(tg.full((2, 2), 3), np.full((2, 2), 3))
    same(tg.full(2, 1.5, dtype=np.float32), np.full(2, 1.5, np.float32))
    same(tg.eye(2), np.eye(2))
    same(tg.eye(2, 3), np.eye(2, 3))
    same(tg.arange(3), np.arange(3))
    same(tg.arange(1, 2, 0.25), np.arange(1, 2, 0.25))
    same(tg.linspace(0, 1, 5), np.linspace(0, 1, 5))
    same(tg.linspace(0.0, 2.0, steps=3), np.linspace(0, 2, 3))
    assert tg.empty(2, 3).shape == (2, 3)
    assert all(
        t.requires_grad
        for t in (tg.eye(2, requires_grad=True), tg.linspace(0, 1, requires_grad=True))
    )


@pytest.mark.parametrize(
    "like",
    [
        np.zeros((2, 3), np.float32),
        tg.zeros(2, 3, dtype=np.float32),
        tg.ones(2, 3, dtype=np.float32, requires_grad=True),
    ],
    ids=["array", "tensor", "leaf"],
)
def test_a_like_constructor_takes_shape_and_dtype_but_not_the_graph(like):
    for function, expected in (
        (tg.zeros_like, 0),
        (tg.ones_like, 1),
        (lambda x, **kw: tg.full_like(x, 5, **kw), 5),
    ):
        t = function(like)
        assert not t.requires_grad
        same(t, np.full((2, 3), expected, np.float32))
        assert function(like, dtype=np.float64, requires_grad=True).requires_grad
    assert tg.empty_like(like).shape == (2, 3)


def test_full_and_linspace_keep_the_gradient_of_their_value():
    """Entries made of a tracked value are tracked: nothing is lost on the way into a constructor."""
    a = leaf(2.0)
    (tg.full((2, 3), a).sum() + tg.full_like(np.zeros(2), a).sum()).backward()
    assert a.grad == 8
    a.grad = None
    tg.linspace(0.0, a, 5).sum().backward()
    assert a.grad == 2.5


def test_random_tensors_are_seeded_by_a_generator_a_seed_or_once_for_all():
    same(tg.randn(2, 3, rng=0), np.random.default_rng(0).standard_normal((2, 3)))
    same(tg.rand((2,), rng=np.random.default_rng(1)), np.random.default_rng(1).random(2))
    tg.manual_seed(3)
    first = tg.randn(3), tg.rand(3), tg.randint(10, size=3)
    tg.manual_seed(3)
    for t, again in zip(first, (tg.randn(3), tg.rand(3), tg.randint(10, size=3)), strict=True):
        same(t, again.numpy())
    assert tg.randn(2, dtype=np.float32).dtype == np.float32
    assert tg.randn().shape == () and tg.randint(5).shape == ()


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint8])
def test_only_inexact_tensors_can_require_grad(dtype):
    with pytest.raises(
        RuntimeError, match="only Tensors of floating point and complex dtype can require gradients"
    ):
        tg.tensor([0, 1], dtype, requires_grad=True)
    with pytest.raises(RuntimeError, match="astype"):
        tg.zeros(2, dtype=dtype).requires_grad_()
    assert not tg.zeros(2, dtype=dtype).requires_grad_(False).requires_grad


def test_a_tensor_is_made_by_a_function_only():
    for arguments in ((1.0,), ([1.0],), (np.zeros(2),)):
        with pytest.raises(TypeError):
            tg.Tensor(*arguments)


# ------------------------------------------------------------------------------------------------ attributes


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 1)])
@pytest.mark.parametrize("dtype", INEXACT)
def test_attributes_are_the_arrays(shape, dtype):
    array = np.ones(shape, dtype)
    for t in (tg.tensor(array), leaf(array), leaf(array) * 1):
        assert (
            t.shape == array.shape
            and t.ndim == t.dim() == array.ndim
            and t.size == t.numel() == array.size
        )
        assert t.dtype == array.dtype and t.nbytes == array.nbytes and t.itemsize == array.itemsize
        same(t.T.detach(), array.T)
        same(t.real.detach(), array.real)
        same(t.imag.detach(), array.imag)
        if len(shape) > 1:
            same(t.mT.detach(), np.swapaxes(array, -1, -2))


def test_a_leaf_and_a_result_know_their_place():
    w = leaf([1.0, 2.0])
    y = w * 2
    assert (
        w.is_leaf and w.requires_grad and w.grad_fn is None and w.grad is None and w.output_nr == 0
    )
    assert (
        not y.is_leaf
        and y.requires_grad
        and y.grad_fn.name() == "MulBackward0"
        and not y.retains_grad
    )
    c = tg.zeros(2)
    assert c.is_leaf and not c.requires_grad and c.grad_fn is None
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None


def test_the_gradient_has_the_tensors_shape_and_dtype():
    w = leaf([1.0, 2.0], np.float32)
    (w * np.array([1.0, 2.0])).sum().backward()
    same(w.grad, np.array([1.0, 2.0], np.float32))
    w.grad = None
    assert w.grad is None
    w.grad = tg.ones(2, dtype=np.float32)
    del w.grad
    assert w.grad is None
    for bad, error in (
        (np.zeros(2), TypeError),
        (tg.zeros(3, dtype=np.float32), RuntimeError),
        (tg.zeros(2), RuntimeError),
        (w, RuntimeError),
    ):
        with pytest.raises(error):
            w.grad = bad
        assert w.grad is None


def test_requires_grad_can_be_switched_on_a_leaf_and_not_off_a_result():
    x = tg.zeros(2)
    x.requires_grad = True
    assert x.requires_grad and x.requires_grad_() is x
    y = x * 2
    with pytest.raises(
        RuntimeError, match="you can only change requires_grad flags of leaf variables.*detach"
    ):
        y.requires_grad = False
    x.requires_grad_(False)
    assert not (x * 2).requires_grad


def test_switched_off_and_on_again_a_leaf_is_the_same_leaf():
    """What was recorded before still ends in its gradient; while it is off, operations are not recorded."""
    w = leaf([2.0])
    y = (w * w).sum()
    w.requires_grad_(False)
    assert not (w * 2).requires_grad
    w.requires_grad_(True)
    y.backward()
    same(w.grad, np.array([4.0]))
    w.requires_grad_(False)
    same(w.grad, np.array([4.0]))
    same(w.detach_().grad, np.array([4.0]))


def test_gradients_are_arrays_of_their_own():
    """One cotangent may reach two leaves; whoever scales one gradient in place must not scale the other, nor the seed."""
    for create_graph in (False, True):
        x, y, seed = leaf([1.0, 2.0]), leaf([3.0, 4.0]), np.ones(2)
        (x + y).backward(seed, create_graph=create_graph)
        assert x.grad is not y.grad and not np.shares_memory(
            x.grad.detach().numpy(), y.grad.detach().numpy()
        )
        with tg.no_grad():
            x.grad *= 5.0
        same(y.grad.detach(), np.ones(2))
        same(tg.tensor(seed), np.ones(2))


# ---------------------------------------------------------------------------------------- operators and dtypes

BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
}
COMPARISONS = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
IN_PLACE = {name: getattr(operator, f"i{name}") for name in BINARY}

OPERANDS = {
    "int": 2,
    "float": 1.5,
    "bool": True,
    "complex": 1 + 2j,
    "np.int64": np.int64(2),
    "np.float32": np.float32(1.5),
    "np.float64": np.float64(1.5),
    "np.complex128": np.complex128(1 + 2j),
    "np.bool": np.True_,
    "0-d array": np.array(2.0),
    "0-d float32": np.array(2.0, np.float32),
    "int array": np.array([1, 2, 3]),
    "float array": np.array([0.5, 1.0, 2.0]),
    "float32 array": np.array([0.5, 1.0, 2.0], np.float32),
    "complex array": np.array([0.5, 1j, 2.0]),
    "matrix": np.arange(1.0, 7.0).reshape(2, 3),
    "empty": np.zeros((0, 1)),
    "list": [1, 2, 3],
    "tuple": (1.0, 2.0, 3.0),
    "nested list": [[1.0], [2.0]],
}
SELVES = {
    "float64": np.array([1.0, 2.0, 3.0]),
    "float32": np.array([1.0, 2.0, 3.0], np.float32),
    "complex128": np.array([1.0, 2.0, 3.0j]),
    "int64": np.array([1, 2, 3]),
    "int8": np.array([1, 2, 3], np.int8),
    "bool": np.array([True, False, True]),
    "0-d": np.array(3.0),
    "scalar": np.float32(3.0),
}


def outcome(function, *operands):
    """The result, or the type of error that says there is none; NumPy's warnings are about values, which agree anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*operands)
        except (TypeError, ValueError) as error:
            return error


def agree(function, array, other, reflected=False):
    """A tensor of the array, tracked or not, does with `other` what the array does: value, shape, dtype, or an error."""
    if function is operator.pow and array.dtype == bool:
        return  # NumPy's own operator and ufunc give this two dtypes
    operands = (other, array) if reflected else (array, other)
    expected = outcome(
        function, *(np.asarray(x) if isinstance(x, list | tuple) else x for x in operands)
    )
    tensors = [tg.from_numpy(np.array(array))]
    if not isinstance(array, np.ndarray):
        tensors.append(tg.zeros(1, dtype=array.dtype).sum() + array)  # holds a NumPy scalar
    if array.dtype.kind in "fc":
        tensors.append(leaf(array))
    for t in tensors:
        for value in (
            (other, tg.as_tensor(np.asarray(other)))
            if isinstance(other, np.ndarray | list | tuple)
            else (other,)
        ):
            result = outcome(function, *((value, t) if reflected else (t, value)))
            if isinstance(expected, Exception):
                assert isinstance(result, Exception), (t, value, result)
            else:
                assert isinstance(result, tg.Tensor), (t, value, result)
                # Powers of NumPy's own scalars and arrays differ in the last bit where its loop is vectorised.
                power = function is operator.pow and np.asarray(expected).dtype == np.float32
                same(result.detach(), expected, ulp=2 if power else 0)
                if t.requires_grad and function in BINARY.values():
                    assert result.requires_grad == (result.dtype.kind in "fc")


@pytest.mark.parametrize("name", BINARY | COMPARISONS)
@pytest.mark.parametrize("other", OPERANDS)
def test_an_operator_does_what_numpys_does(name, other):
    """Mixed operands on either side: numbers, NumPy scalars, arrays, lists; NumPy's values, shapes and dtypes."""
    function = (BINARY | COMPARISONS)[name]
    for array in SELVES.values():
        agree(function, array, OPERANDS[other])
        agree(function, array, OPERANDS[other], reflected=True)


@pytest.mark.parametrize("name", ["and", "or", "xor", "lshift", "rshift"])
def test_a_bitwise_operator_does_what_numpys_does(name):
    function = getattr(operator, name + "_" if name in ("and", "or") else name)
    for array in (np.array([1, 2, 3]), np.array([True, False, True]), np.array([1, 2, 3], np.int8)):
        for other in (1, True, np.array([3, 2, 1]), [1, 0, 1], np.array([True, True, False])):
            agree(function, array, other)
            agree(function, array, other, reflected=True)


@pytest.mark.parametrize(
    "function", [operator.neg, operator.pos, abs, operator.invert], ids=lambda f: f.__name__
)
def test_a_unary_operator_does_what_numpys_does(function):
    for array in SELVES.values():
        expected = outcome(function, array)
        for t in (
            tg.from_numpy(np.array(array)),
            *([leaf(array)] if array.dtype.kind in "fc" else []),
        ):
            result = outcome(function, t)
            if isinstance(expected, Exception):
                assert isinstance(result, TypeError)
            else:
                same(result.detach(), expected)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2,), (2, 3)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 2)),
        ((3,), (2, 3, 4)),
        ((0, 2), (2, 3)),
    ],
    ids=str,
)
def test_matmul_does_what_numpys_does(shapes):
    x, y = (np.random.default_rng(0).standard_normal(s) for s in shapes)
    for left, right in ((leaf(x), leaf(y)), (tg.tensor(x), y), (x, leaf(y)), (leaf(x), y)):
        result = left @ right
        np.testing.assert_allclose(result.detach().numpy(), x @ y, rtol=1e-14)
        assert result.shape == (x @ y).shape


def test_divmod_is_floor_division_and_remainder():
    for a, b in ((np.array([5.0, -7.0]), 2.0), (7, np.array([5, 2]))):
        for ours, numpys in zip(
            divmod(
                tg.as_tensor(a) if isinstance(a, np.ndarray) else a,
                tg.as_tensor(b) if isinstance(b, np.ndarray) else b,
            ),
            divmod(a, b),
            strict=True,
        ):
            same(ours, numpys)


numbers = st.floats(-4, 4, allow_subnormal=False).map(lambda x: round(x, 3))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_operators_agree_with_numpy_on_any_shapes_that_broadcast(data):
    """Law of the fast paths (Tensor with Tensor, array, float) and the general one alike, on drawn shapes and dtypes."""
    shapes = data.draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
    ).input_shapes
    x, y = (
        data.draw(
            hnp.arrays(
                data.draw(st.sampled_from([np.float64, np.float32])),
                s,
                elements=st.floats(-4, 4, width=32, allow_subnormal=False),
            )
        )
        for s in shapes
    )
    function = data.draw(
        st.sampled_from([operator.add, operator.sub, operator.mul, operator.lt, operator.eq])
    )
    expected = function(x, y)
    for left, right in (
        (leaf(x), leaf(y)),
        (leaf(x), y),
        (x, leaf(y)),
        (tg.tensor(x), tg.tensor(y)),
    ):
        same(function(left, right).detach(), np.asarray(expected))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=3), elements=numbers),
    numbers,
    st.integers(-3, 3),
)
def test_constants_of_python_leave_the_dtype_alone(x, a, n):
    """NumPy's rule for Python numbers: they adapt to the tensor, in float32 too, tracked or not."""
    for dtype in (np.float32, np.float64, np.complex64):
        array = x.astype(dtype)
        for t in (tg.tensor(array), leaf(array)):
            for function in (operator.add, operator.sub, operator.mul):
                same(function(t, a).detach(), function(array, a))
                same(function(a, t).detach(), function(a, array))
                same(function(t, n).detach(), function(array, n))
                same(function(n, t).detach(), function(n, array))


@pytest.mark.parametrize("x", DTYPES)
@pytest.mark.parametrize("y", DTYPES)
def test_mixed_dtypes_promote_as_numpys(x, y):
    for function in (operator.add, operator.mul, operator.truediv):
        for shape in ((), (2,)):
            a, b = np.ones(shape, x), np.ones(shape, y)
            assert function(tg.tensor(a), tg.tensor(b)).dtype == np.asarray(function(a, b)).dtype
            assert function(tg.tensor(a), b).dtype == np.asarray(function(a, b)).dtype


@pytest.mark.filterwarnings("ignore:invalid value encountered in reduce")
@pytest.mark.parametrize(
    "op", [op for op in OPS[1:] if op.elementwise and op.arity == 2], ids=lambda op: op.name
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32])
def test_integer_constants_give_the_gradient_that_floats_give(op, dtype):
    """A partial that computes with the constant alone (y * y, y - 1) would overflow in a small integer dtype."""
    high = 5 if "power" in op.name else min(np.iinfo(dtype).max, 100_000) - 1
    constants = np.random.default_rng(0).integers(1, high, 5).astype(dtype)
    if np.iinfo(dtype).min and "power" not in op.name:
        constants[::2] *= -1
    x = np.random.default_rng(1).uniform(0.3, 2.0, 5)

    def gradient(constant, i):
        w = leaf(x)
        y = op.function(*((w, constant) if i == 0 else (constant, w)))
        y.sum().backward()
        return w.grad.numpy()

    for i in range(2):
        try:
            expected = gradient(constants.astype(float), i)
        except TypeError:
            continue
        for constant in (constants, tg.tensor(constants), list(map(int, constants))):
            try:
                got = gradient(constant, i)
            except TypeError:  # NumPy has no loop for this mixture
                continue
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=f"{op.name}, operand {i}")


def test_big_python_ints_are_not_rounded_on_integer_tensors():
    big = 2**53 + 1
    assert (tg.tensor([0]) + big)[0].item() == big


@pytest.mark.parametrize(
    "other",
    ["a", None, object(), {}, {1}, b"x", math, np.array([None]), np.array(["a"])],
    ids=[
        "text",
        "None",
        "object",
        "dict",
        "set",
        "bytes",
        "module",
        "array of None",
        "array of text",
    ],
)
@pytest.mark.parametrize("name", BINARY)
def test_an_operand_that_is_no_number_is_a_type_error(name, other):
    for t in (tg.tensor([1.0]), leaf([1.0])):
        with pytest.raises(TypeError):
            BINARY[name](t, other)
        if name != "mod" or not isinstance(
            other, str | bytes
        ):  # text % anything is Python's formatting
            with pytest.raises(TypeError):
                BINARY[name](other, t)


def test_a_comparison_is_never_tracked():
    w = leaf([1.0, 2.0])
    for name, function in COMPARISONS.items():
        result = function(w, w)
        assert result.dtype == np.bool_ and not result.requires_grad, name


# ------------------------------------------------------------------------------------------------ in place


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize(
    "other", [2, 1.5, np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0], np.float64(2)], ids=repr
)
def test_an_in_place_operator_is_numpys_and_writes_to_the_same_memory(name, other):
    array = np.array([4.0, 5.0, 6.0])
    t = tg.tensor(array)
    shared, same_object = t.numpy(), t
    t = IN_PLACE[name](t, other)
    array = IN_PLACE[name](array, np.asarray(other) if isinstance(other, list) else other)
    assert t is same_object
    same(t, array)
    np.testing.assert_array_equal(shared, array)


def test_in_place_keeps_the_dtype_or_says_why_not():
    t = tg.tensor([1.0, 2.0], np.float32)
    t += np.array([1.0, 2.0])
    same(t, np.array([2.0, 4.0], np.float32))
    for make in (lambda: tg.tensor([1, 2]), lambda: tg.tensor(1), lambda: tg.tensor([1, 2]).sum()):
        t = make()
        with pytest.raises((TypeError, RuntimeError), match="cast"):
            t += 1.5
        assert t.dtype == np.int64


def test_in_place_bitwise_and_matmul_write_to_the_same_memory():
    t = tg.tensor([True, False])
    same_object, shared = t, t.numpy()
    t &= tg.tensor([False, True])
    t |= np.array([True, False])
    t ^= True
    assert t is same_object
    np.testing.assert_array_equal(shared, [False, True])
    m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    same_object, shared = m, m.numpy()
    m @= tg.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert m is same_object and not m.requires_grad
    np.testing.assert_array_equal(shared, [[2.0, 1.0], [4.0, 3.0]])
    with pytest.raises(RuntimeError, match="shape"):
        m @= tg.ones(2, 3)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "mod"])
def test_in_place_on_a_result_has_the_gradient_of_the_plain_operator(name):
    """The old value is still needed by the rule: an in-place form that overwrote it would be wrong without a word."""
    for other in (1.5, np.array([1.5, 2.5]), tg.tensor([1.5, 2.5])):
        w, v = leaf([2.0, 3.0]), leaf([2.0, 3.0])
        y, z = w * 1, v * 1
        y = IN_PLACE[name](y, other)
        z = BINARY[name](z, other)
        y.sum().backward()
        z.sum().backward()
        same(y.detach(), z.detach().numpy())
        same(w.grad, v.grad.numpy())
    w, v = leaf([2.0, 3.0]), leaf([2.0, 3.0])
    buffer = tg.tensor([5.0, 7.0])
    buffer = IN_PLACE[name](buffer, w)  # an untracked tensor becomes tracked by what is put into it
    BINARY[name](tg.tensor([5.0, 7.0]), v).sum().backward()
    buffer.sum().backward()
    same(w.grad, v.grad.numpy())


def test_in_place_on_a_leaf_is_refused_except_under_no_grad():
    w = leaf([1.0, 2.0])
    for function in (
        lambda: operator.iadd(w, 1),
        lambda: operator.imul(w, w),
        lambda: operator.setitem(w, 0, 5.0),
        lambda: operator.imatmul(w, tg.eye(2)),
    ):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad.*no_grad"):
            function()
        same(w.detach(), np.array([1.0, 2.0]))
    with tg.no_grad():
        w -= 0.5
        w[0] = 4.0
    assert w.is_leaf and w.requires_grad
    same(w.detach(), np.array([4.0, 1.5]))


def test_overwriting_a_value_that_a_derivative_needs_raises_at_backward():
    """The unforgivable defect is a wrong gradient without an error; each of these ways would lead to one."""

    def in_place(c):
        c += 1

    ways = {
        "in place": in_place,
        "item": lambda c: operator.setitem(c, 0, 9.0),
        "view": lambda c: operator.setitem(c[1:], 0, 9.0),
        "detached": lambda c: operator.imul(c.detach(), 2.0),
        "data": lambda c: operator.imul(c.data, 2.0),
        "out=": lambda c: np.add(c, 1.0, out=c),
        "copyto": lambda c: np.copyto(c, 5.0),
        "ufunc.at": lambda c: np.add.at(c, [0], 5.0),
        "put": lambda c: np.put(c, [0], 5.0),
        "fill_diagonal": lambda c: np.fill_diagonal(c.reshape(1, -1), 5.0),
    }
    for way, write in ways.items():
        w, c = leaf([1.0, 2.0]), tg.tensor([3.0, 4.0])
        y = (w * c).sum()
        write(c)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        assert w.grad is None, way


def test_overwriting_a_value_that_no_derivative_needs_is_fine():
    w, c = leaf([1.0, 2.0]), tg.tensor([3.0, 4.0])
    y = (w + c).sum()
    c += 1
    y.backward()
    same(w.grad, np.ones(2))


@pytest.mark.parametrize("n", [3, 3000])
def test_a_plain_array_among_the_operands_may_change_afterwards(n):
    """The tape keeps a copy of a small array, and locks a big one: never a gradient computed from the new values."""
    w, buffer = leaf(np.ones(n)), np.full(n, 2.0)
    total = (w * buffer).sum()
    try:
        buffer[:] = 100.0
    except ValueError:
        assert n == 3000
    total.backward()
    same(w.grad, np.full(n, 2.0))
    buffer[:] = 100.0  # nobody needs it any more


# ------------------------------------------------------------------------------------------- storing into parts


def test_stored_values_carry_their_gradient():
    x = leaf([1.0, 2.0, 3.0])
    out = tg.zeros(3)
    for i in range(3):
        out[i] = x[i] ** 2
    out.sum().backward()
    same(x.grad, 2 * x.detach().numpy())


INDICES = [
    0, -1, (1, 2), slice(1, None), slice(None, None, -2), (slice(None), 1), Ellipsis, (Ellipsis, 0), (None, 1), [0, 1], [[0], [1]],
    [True, False], ([0, 0, 1], [1, 1, 2]), np.array([1, 0]), np.array([[True, False, True], [False, True, False]]), (slice(None), [2, 0]),
    tg.tensor([1, 0]), tg.tensor(1), (slice(None), tg.tensor(2)), slice(tg.tensor(0), np.int64(1)), [], np.int64(1), True, (), np.array(1),
]  # fmt: skip


def plain(index):
    """The same index in NumPy's own terms."""
    if isinstance(index, tuple):
        return tuple(plain(i) for i in index)
    if isinstance(index, slice):
        return slice(
            *(None if b is None else int(b) for b in (index.start, index.stop, index.step))
        )
    return index.numpy()[()] if isinstance(index, tg.Tensor) else index


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_reading_at_an_index_is_numpys_and_its_gradient_counts_the_reads(index):
    array = np.arange(6.0).reshape(2, 3)
    expected = array[plain(index)]
    same(tg.tensor(array)[index], expected)
    w = leaf(array)
    y = w[index]
    same(y.detach(), expected)
    weights = np.arange(1.0, 1.0 + np.size(expected)).reshape(np.shape(expected))
    (y * weights).sum().backward()
    counted = np.zeros((2, 3))
    np.add.at(counted, plain(index), weights)
    same(w.grad, counted)


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_storing_at_an_index_is_numpys_and_its_gradient_is_by_central_differences(index):
    """Also where several values are stored at one place: the last stays, the others have no influence."""
    array = np.arange(6.0).reshape(2, 3)
    shape = array[plain(index)].shape
    weights = np.arange(1.0, 7.0).reshape(2, 3)
    value = np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)

    def stored(x, y):
        out = np.array(x)
        out[plain(index)] = y
        return (out**2 * weights).sum()

    def recorded(x, y):
        out = x * 1
        out[index] = y
        return (out**2 * weights).sum()

    same(
        tg.tensor(recorded(tg.tensor(array), tg.tensor(value)).item()),
        np.array(stored(array, value)),
    )
    gx, gy = tg.grad(recorded, (0, 1))(array, value)
    step = 1e-3
    for k, g in ((0, gx), (1, gy)):
        for i in np.ndindex(g.shape):
            moved = [[array.copy(), value.copy()] for _ in range(2)]
            moved[0][k][i] += step
            moved[1][k][i] -= step
            difference = (stored(*moved[0]) - stored(*moved[1])) / (2 * step)
            assert abs(difference - g[i]) < 1e-6 * (1 + abs(difference)), (k, i, difference, g[i])


def test_stored_values_broadcast_and_lose_leading_axes_of_length_one():
    for shape in ((), (1,), (3,), (1, 3), (1, 1, 3)):
        w = leaf(np.ones(shape))
        out = tg.zeros(3)
        out[...] = w
        out.sum().backward()
        same(w.grad, np.full(shape, 3.0 / np.prod(shape, dtype=int)))
    with pytest.raises(ValueError, match="broadcast"):
        tg.zeros(3)[...] = leaf(np.ones((2, 3)))


def test_a_tracked_value_stored_through_a_part_reaches_the_whole():
    x = leaf([1.0, 2.0])
    matrix = tg.zeros(2, 2)
    matrix[0][1] = x[0]
    for row in matrix:
        row += x
    buffer = tg.zeros(3)
    view = buffer[:2]
    buffer[0] = x[0]
    array = np.zeros(2)
    shared = tg.from_numpy(array)
    shared[0] = x[0]
    assert array[0] == 1
    with pytest.raises(RuntimeError, match="cannot carry a gradient"):
        tg.zeros(2, dtype=int)[0] = x[0]
    assert all(t.requires_grad for t in (matrix, buffer, view, shared))
    (matrix.sum() + view.sum() + shared.sum()).backward()
    same(x.grad, np.array([5.0, 2.0]))


def test_a_buffer_nobody_shares_takes_tracked_values_however_it_was_made():
    for make in (
        lambda: tg.zeros(2, 2),
        lambda: tg.zeros(4).reshape(2, 2),
        lambda: tg.zeros(2, 2).T,
        lambda: tg.tensor([[0.0, 0.0], [0.0, 0.0]]),
        lambda: tg.from_numpy(np.zeros((2, 2))),
        lambda: tg.arange(4.0).reshape(2, 2),
        lambda: tg.zeros_like(tg.eye(2)),
        lambda: tg.zeros(2, 2) + 1,
    ):
        x = leaf(3.0)
        buffer = make()
        used_before = buffer * x  # the tape may hold the buffer as a constant of another op
        buffer[0, 1] = x * x
        buffer.sum().backward()
        assert x.grad == 6 and used_before.shape == (2, 2)


@pytest.mark.parametrize(
    "op", [op for op in OPS[1:] if op.samples], ids=lambda op: f"{op.name}-{op.code}"
)
def test_an_op_whose_result_shares_memory_says_so(op):
    """Else an in-place operation would write through it unnoticed; nor may a result be the operand's array itself."""
    parameters = inspect.signature(op.function).parameters
    for sample in op.samples:
        domains = sample.domains or tuple(op.domains) * len(sample.operands)
        arrays = [
            d.sample(np.random.default_rng(0), s) if type(s) is tuple else np.asarray(s)
            for d, s in zip(domains, sample.operands, strict=False)
        ]
        out = op.evaluate(
            arrays, tuple(sample.settings.get(n, parameters[n].default) for n in op.settings)
        )
        for array in arrays:
            if isinstance(out, np.ndarray) and out.size and np.may_share_memory(out, array):
                assert op.view and out is not array and out.base is not None


def test_a_recorded_tensor_with_views_in_use_is_overwritten_with_them():
    w = leaf(np.arange(4.0))
    for make in (lambda y: tg.flip(y), lambda y: y.reshape(2, 2), lambda y: y.T, lambda y: y[None]):
        y = w * 1
        view = make(y)
        y += 1
        operator.imul(view, 2.0)
        same(y.detach(), 2 * np.arange(1.0, 5.0))
        w.grad = None
        y.sum().backward()
        same(w.grad, np.full(4, 2.0))
    z = leaf(np.array([1j, 2.0])) * 1
    operator.iadd(z.real, 1.0)
    same(z.detach(), np.array([1 + 1j, 3.0]))


# ------------------------------------------------------------------------------------------------ as a sequence


def test_len_iteration_unpacking_and_contains():
    for t in (tg.tensor([[1.0, 2.0], [3.0, 4.0]]), leaf([[1.0, 2.0], [3.0, 4.0]])):
        assert len(t) == 2
        first, second = t
        assert first.requires_grad == t.requires_grad
        same(second.detach(), np.array([3.0, 4.0]))
        (a, b), (c, d) = t
        assert [x.item() for x in (a, b, c, d)] == [1, 2, 3, 4]
        assert [row.shape for row in t] == [(2,), (2,)]
        assert 3.0 in t and 7.0 not in t and tg.tensor(4.0) in t
    for function in (len, iter, list):
        with pytest.raises(TypeError, match="0-d"):
            function(tg.tensor(1.0))


def test_unpacked_parts_carry_their_gradient():
    w = leaf([2.0, 5.0])
    a, b = w
    (a * b).backward()
    same(w.grad, np.array([5.0, 2.0]))


def test_truth_needs_one_element():
    assert tg.tensor(1.0) and leaf([2.0]) and not tg.tensor([0.0])
    for bad, word in ((tg.tensor([1.0, 2.0]), "more than one value"), (tg.zeros(0), "no values")):
        with pytest.raises(RuntimeError, match=f"{word} is ambiguous: use t.any"):
            bool(bad)


def test_an_integer_tensor_is_an_index():
    assert [10, 20, 30][tg.tensor(1)] == 20
    assert list(range(tg.tensor(3))) == [0, 1, 2]
    assert np.arange(5)[tg.tensor(2)] == 2
    for bad in (tg.tensor(1.0), tg.tensor([1, 2])):
        with pytest.raises(TypeError, match="only a 0-d integer tensor"):
            operator.index(bad)
    with pytest.raises(IndexError, match="astype"):
        tg.zeros(3)[tg.tensor([1.0])]


def test_a_tensor_is_hashed_by_identity():
    a, b = leaf([1.0]), leaf([1.0])
    assert {a: 1, b: 2}[a] == 1 and len({a, b, a}) == 2


def visits(x):
    """Points in the order of their size, each with those near it that were not seen before."""
    seen, total = set(), 0.0
    for i in np.argsort(x):
        if i in seen:
            continue
        seen.add(i)
        for j in np.nonzero(np.abs(x - x[i]) < 1.6)[0]:
            if j not in seen:
                seen.add(int(j))
                total = total + x[i] * x[j] ** 2
    return total


def by_kind(x):
    groups, weights = {}, {True: 2.0, False: 3.0}
    for v, kind in zip(x, np.where(x > 0, 1, 0), strict=True):
        groups.setdefault(kind, []).append(v)
    total = sum(len(group) * np.sum(np.array(group)) ** 2 for group in groups.values())
    return total * weights[x[0] > x[1]] + collections.Counter(x > 0)[True] * x[0]


def in_a_table(x):
    k = np.argmin(x)
    first, k = k, k + 1
    k -= 1
    table = {0: 2.0, 1: 3.0, 2: 5.0, 3: 7.0}
    return x[0] ** table[np.argmax(x)] * table.get(first, 100.0) * len({first, k, int(k)})


@pytest.mark.parametrize("f", [visits, by_kind, in_a_table], ids=lambda f: f.__name__)
def test_computed_whole_numbers_and_truth_values_are_keys_by_value(f):
    """As NumPy's are: by identity they were found in no set and no table, so that programs took another branch."""
    compiled = tg.compile(tg.value_and_grad(f))
    for x in ([0.5, -1.0, 2.0, 0.1], [3.0, 1.0, -2.0, 0.3], [0.5, -1.0, 2.0, 0.2]):
        x = np.array(x)
        tangent, h = np.cos(x), 1e-6
        slope = (f(x + h * tangent) - f(x - h * tangent)) / (2 * h)
        for value, gradient in (tg.value_and_grad(f)(x), compiled(x)):
            np.testing.assert_allclose(value, f(x), rtol=1e-12)
            np.testing.assert_allclose(np.dot(gradient, tangent), slope, rtol=1e-7)
        np.testing.assert_allclose(tg.jvp(f, (x,), (tangent,))[1], slope, rtol=1e-7)
        np.testing.assert_allclose(tg.compile(f)(x), f(x), rtol=1e-12)


def matched(v):
    match v:
        case float():
            return 2.0
        case np.ndarray():
            return 3.0
    return 5.0


KINDS = {
    "an array": lambda x: isinstance(x * 2, np.ndarray),
    "a view of an array": lambda x: isinstance(x[1:], (list, np.ndarray)),
    "no array": lambda x: isinstance(np.sum(x), np.ndarray),
    "a float": lambda x: isinstance(x[0], float),
    "NumPy's number": lambda x: isinstance(np.dot(x, x), np.floating | np.integer),
    "a number": lambda x: isinstance(np.sum(x), Number) + 2 * isinstance(x, Real),
    "a whole number": lambda x: (
        isinstance(np.argmin(x), (int, np.integer)) + 2 * isinstance(x[0], np.integer)
    ),
    "a truth value": lambda x: isinstance(x[0] > x[1], np.bool_),
    "a pattern": lambda x: matched(x) + 10 * matched(x[0]) + 100 * matched(np.argmin(x)),
    "its class": lambda x: len(x.__class__.__name__) + 10 * len(x[0].__class__.__name__),
    "text of a number": lambda x: {"0": 2.0, "1": 3.0, "2": 4.0}.get(str(np.argmax(x)), 9.0),
    "a remainder": lambda x: {"0": 2.0, "1": 3.0, "2": 4.0}["%s" % np.argmax(x)],  # noqa: UP031
    "text of a sum": lambda x: len(str(np.sum(x))),
    "the class of an array": lambda x: type(x) is np.ndarray,
    "a class among several": lambda x: (
        2 * (type(x[0]) in (float, np.float64, np.float32)) + (type(x) in (float, np.float64))
    ),
    "a class in a table": lambda x: {np.ndarray: 2.0, np.float64: 3.0, np.float32: 3.0}[type(x)],
    "the class of a sum": lambda x: type(np.sum(x)) == x.dtype.type,  # noqa: E721  a class is told by equality too
    "a plain number's class": lambda x: (
        float(len(x)) * (type(math.pi) is float) + (type(len(x)) is float)
    ),
    "the classes of a filled buffer": lambda x: _kinds_of_a_buffer(x),
    "an iterable": lambda x: isinstance(x, Iterable) + 2 * isinstance(x[0], Iterable),
    "sized or a number": lambda x: isinstance(np.sum(x), (int, Sized)) + 2 * isinstance(x, Sized),
    "a length": lambda x: hasattr(x, "__len__") + 2 * hasattr(x[0], "__len__"),
    "a dispatched array": lambda x: _kind(x) + 10 * _kind(x[0] * 2),
    "a dispatched argument of a method": lambda x: _Asking().kind(x) + 10 * _Asking().kind(x[0]),
}


@functools.singledispatch
def _kind(v):
    return 1.0


class _Asking:
    @functools.singledispatchmethod
    def kind(self, v):
        return 4.0

    @kind.register
    def _(self, v: np.ndarray):
        return 5.0


for _of, _number in ((np.ndarray, 2.0), (np.floating, 3.0)):
    _kind.register(_of, lambda v, number=_number: number)


def _kinds_of_a_buffer(x):
    y = np.zeros(2)
    y[0] = x[0]
    return (
        (type(y) is np.ndarray) + 2 * (type(y[:1]) is type(x)) + 4 * (type(np.ones(2)) is type(y))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_code_that_asks_for_kinds_is_answered_as_numpy_does(kind, dtype):
    """In a transform a tensor stands for an array or a number; another answer sent the program another way without a word."""
    x, asked = np.array([0.5, -1.0, 2.0], dtype), KINDS[kind]

    def f(x):
        return np.sum(x * x) * asked(x)

    for value in (
        tg.value_and_grad(f)(x)[0],
        tg.jvp(f, (x,), (x,))[0],
        tg.vjp(f, x)[0],
        tg.compile(f)(x),
        tg.compile(tg.value_and_grad(f))(x)[0],
    ):
        np.testing.assert_allclose(value, f(x), rtol=1e-6)


def test_kinds_of_arguments_that_are_numbers():
    def f(x, n):
        return x * (2.0 if isinstance(x, float) else 3.0) * (5.0 if isinstance(n, int) else 7.0)

    assert tg.grad(f)(1.5, 2) == 10.0
    assert tg.compile(f)(1.5, 2) == f(1.5, 2) == 15.0
    assert tg.compile(tg.grad(f))(1.5, 2) == 10.0


def test_outside_transforms_a_tensor_is_of_its_own_class():
    t = tg.tensor([1.0, 2.0], requires_grad=True)
    assert not isinstance(t, np.ndarray) and not isinstance(t.sum(), float)
    assert t.__class__ is tg.Tensor and str(tg.tensor(2)) == "tensor(2)"
    assert tg.grad(lambda x: np.sum(x) * isinstance(x, tg.Tensor))(np.ones(2)).tolist() == [
        1.0,
        1.0,
    ]


def test_a_function_dispatches_on_tensors_where_it_knows_them():
    @functools.singledispatch
    def double(v):
        return v * 7.0

    @double.register(tg.Tensor)
    def _(v):
        return v * 2.0

    assert tg.grad(lambda x: double(x).sum())(np.ones(2)).tolist() == [2.0, 2.0]


SETS = {
    "a display": lambda x: {x[0], x[1]},
    "a comprehension": lambda x: {v for v in x},
    "entries": lambda x: {*x},
    "set": lambda x: set(x),
    "frozenset": lambda x: frozenset(v for v in x),
    "add": lambda x: [(seen := set()), [seen.add(v) for v in x]],
    "fromkeys": lambda x: dict.fromkeys(list(x)),
    "Counter": lambda x: Counter(x),
}


@pytest.mark.parametrize("kind", SETS)
def test_sets_of_differentiated_numbers_are_refused(kind):
    """Equal numbers are one entry in NumPy, and would be two."""
    f = lambda x: x.sum() * len(SETS[kind](x))  # noqa: E731
    with pytest.raises(tg.errors.GradientLost, match="np.unique"):
        tg.grad(f)(np.ones(2))
    assert tg.grad(lambda x: x.sum() * len(SETS[kind](x.detach())))(np.ones(2)).tolist() in (
        [1.0, 1.0],
        [2.0, 2.0],  # of the list that holds the set
    )


def test_a_cache_keeps_equal_tracked_numbers_apart():
    @functools.cache
    def square(a):
        return a * a

    def f(x):
        return 2 * square(x[0] + 1.0) + 3 * square(x[1] + 1.0)

    x = np.ones(2)
    for gradient in (tg.grad(f)(x), tg.compile(tg.grad(f))(x), tg.jacobian(f, mode="forward")(x)):
        np.testing.assert_allclose(gradient, [8.0, 12.0])
    np.testing.assert_allclose(tg.grad(lambda x: tg.jvp(f, (x,), (x,))[1])(x), [12.0, 18.0])
    assert f(x) == 20.0


def test_a_search_for_a_tracked_number_is_refused():
    """By identity it would find nothing, and the function would go on with another branch."""
    searches = [
        lambda x: 2.0 if np.sign(x[0]) in {-1.0, 1.0} else 3.0,
        lambda x: {-1.0: 2.0, 1.0: 3.0}[np.sign(x[0])],
    ]
    for f in searches:
        of = lambda x, f=f: np.sum(x) * f(x)  # noqa: E731
        for transform in (tg.grad, tg.hessian, lambda of: tg.compile(tg.grad(of))):
            with pytest.raises(tg.GradientLost, match="keys by identity"):
                transform(of)(np.ones(2))
        np.testing.assert_allclose(tg.compile(of)(np.ones(2)), of(np.ones(2)))
        plain = lambda x, f=f: np.sum(x) * f(tg.as_tensor(x).detach())  # noqa: E731
        np.testing.assert_allclose(tg.grad(plain)(np.ones(2)), f(np.ones(2)))


# ------------------------------------------------------------------------------------------------ leaving


def test_values_leave_as_numbers_arrays_and_lists():
    t = leaf([[1.0, 2.0]])
    assert (
        t.tolist() == [[1.0, 2.0]]
        and leaf(3.0).item() == 3.0
        and isinstance(leaf(3.0).item(), float)
    )
    assert (
        tg.tensor([5]).item() == 5
        and tg.tensor(1j).item() == 1j
        and tg.tensor([True]).item() is True
    )
    assert (
        int(tg.tensor(3.7)) == 3
        and float(tg.tensor([2.5])) == 2.5
        and complex(tg.tensor(2.5)) == 2.5
    )
    with pytest.raises(
        RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"
    ):
        t.item()
    with pytest.raises(tg.GradientLost, match=r"detach\(\).numpy\(\)"):
        t.numpy()
    assert t.numpy(force=True) is t.detach().numpy()


def test_detach_and_data_share_memory_and_stop_gradients():
    for make in (
        lambda: leaf([1.0, 2.0]),
        lambda: leaf([1.0, 2.0]) * 1,
        lambda: leaf(1.0),
        lambda: leaf([1.0]).sum(),
        lambda: tg.zeros(2),
    ):
        t = make()
        for d in (t.detach(), t.data):
            assert (
                not d.requires_grad
                and d.is_leaf
                and np.shares_memory(d.numpy(), t.detach().numpy())
            )
    y = leaf([1.0, 2.0]) * 2
    assert y.detach_() is y and not y.requires_grad


def test_data_can_be_set_without_a_trace_in_the_graph():
    w = leaf([1.0, 2.0])
    w.data = tg.tensor([3.0, 4.0])
    (w * w).sum().backward()
    same(w.grad, np.array([6.0, 8.0]))
    w.data = w.data - 1.0
    w.data[0] = 7.0
    same(w.detach(), np.array([7.0, 3.0]))
    with pytest.raises(RuntimeError, match="astype"):
        w.data = np.array([1, 2])


def test_clone_copies_memory_and_keeps_the_graph():
    w = leaf([1.0, 2.0])
    y = w.clone()
    assert y.requires_grad and not np.shares_memory(y.detach().numpy(), w.detach().numpy())
    y.sum().backward()
    same(w.grad, np.ones(2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_astype_is_numpys_and_tracked_only_where_a_gradient_can_go(dtype):
    w = leaf([1.5, 2.5])
    y = w.astype(dtype)
    same(y.detach(), w.detach().numpy().astype(dtype))
    assert y.requires_grad == (np.dtype(dtype).kind in "fc")
    same(tg.tensor([1, 2]).astype(dtype), np.array([1, 2]).astype(dtype))
    if y.requires_grad:
        y.real.sum().backward()
        same(w.grad, np.ones(2))
    assert w.astype(np.float64, copy=False) is w


# ------------------------------------------------------------------------------------------------ methods

METHODS = {
    "sum": [{}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}],
    "mean": [{}, {"axis": 1}],
    "max": [{}, {"axis": 1}],
    "min": [{}, {"axis": -1, "keepdims": True}],
    "prod": [{}, {"axis": 0}],
    "var": [{}, {"axis": 0, "ddof": 1}],
    "std": [{}, {"axis": 1, "keepdims": True}],
    "cumsum": [{}, {"axis": 1}],
    "reshape": [{"shape": (3, 2)}],
    "ravel": [{}],
    "flatten": [{}],
    "squeeze": [{}],
    "swapaxes": [{"axis1": 0, "axis2": 1}],
    "transpose": [{}],
    "clip": [{"min": 0.0, "max": 1.0}],
    "take": [{"indices": np.array([0, 2]), "axis": 1}],
    "diagonal": [{}, {"offset": 1}],
    "trace": [{}],
    "argmax": [{}, {"axis": 1}],
    "argmin": [{}],
    "argsort": [{"axis": 0}],
    "all": [{}, {"axis": 0}],
    "any": [{}],
    "nonzero": [{}],
    "conj": [{}],
    "copy": [{}],
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_numpys(name):
    array = np.random.default_rng(1).standard_normal((2, 3))
    for kwargs in METHODS[name]:
        args = (
            (kwargs.pop("shape"),)
            if "shape" in kwargs
            else tuple(kwargs.pop(k) for k in ("axis1", "axis2") if k in kwargs)
        )
        expected = getattr(array, name)(*args, **kwargs)
        for t in (tg.tensor(array), leaf(array)):
            result = getattr(t, name)(*args, **kwargs)
            for ours, numpys in zip(
                *((r if isinstance(r, tuple) else (r,)) for r in (result, expected)), strict=True
            ):
                value = ours.detach().numpy() if isinstance(ours, tg.Tensor) else ours
                np.testing.assert_allclose(value, numpys, rtol=1e-14)
                assert value.dtype == numpys.dtype and value.shape == numpys.shape


def test_shapes_and_axes_may_be_given_one_by_one():
    t = leaf(np.arange(6.0).reshape(1, 2, 3))
    assert t.reshape(3, 2).shape == t.reshape((3, 2)).shape == t.view(3, -1).shape == (3, 2)
    assert (
        t.transpose(2, 0, 1).shape
        == t.transpose((2, 0, 1)).shape
        == t.permute(2, 0, 1).shape
        == (3, 1, 2)
    )
    assert (
        t.squeeze(0).shape == (2, 3)
        and t.unsqueeze(-1).shape == (1, 2, 3, 1)
        and t.expand(4, -1, 3).shape == (4, 2, 3)
    )
    assert tg.zeros(2, 3).t().shape == (3, 2)


@pytest.mark.parametrize("order", ["A", "K"])
def test_an_order_that_depends_on_memory_is_refused(order):
    """Order "A" of a Fortran array reads by columns, while its cotangent lies in memory some other way."""
    t = leaf(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    for function in (lambda: t.reshape(6, order=order), lambda: np.ravel(t, order=order)):
        with pytest.raises(ValueError, match="order"):
            function()


# ------------------------------------------------------------------------------------------------ printing


def test_a_tensor_prints_its_values_and_its_place():
    w = leaf([1.0, 2.0])
    texts = {
        "tensor([1., 2.], requires_grad=True)": w,
        "tensor([2., 4.], grad_fn=<MulBackward0>)": w * 2,
        "tensor([1., 2.])": w.detach(),
        "tensor(3.)": tg.tensor(3.0),
        "tensor(3)": tg.tensor(3),
        "tensor(True)": tg.tensor(True),
        "tensor([1., 2.], dtype=float32)": tg.tensor([1.0, 2.0], np.float32),
        "tensor([1., 2.], dtype=float32, requires_grad=True)": leaf([1.0, 2.0], np.float32),
        "tensor(1.+2.j)": tg.tensor(1 + 2j),
        "tensor([])": tg.zeros(0),
        "tensor([], shape=(0, 2))": tg.zeros(0, 2),
        "tensor([1, 2], dtype=int8)": tg.tensor([1, 2], np.int8),
        "tensor(3., grad_fn=<SumBackward0>)": w.sum(),
    }
    for text, t in texts.items():
        assert repr(t) == str(t) == text
    assert repr(tg.tensor([[1.0, 2.0], [3.0, 4.0]])) == "tensor([[1., 2.],\n        [3., 4.]])"
    assert "..." in repr(tg.zeros(2000))


def test_a_format_needs_one_element():
    assert f"{leaf(3.14159):.2f}" == "3.14" and f"{tg.tensor([7]):03d}" == "007"
    with pytest.raises(TypeError, match="one element"):
        f"{tg.zeros(2):.2f}"


# ------------------------------------------------------------------------------------------------ copies


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_a_leaf_is_copied_with_its_flag_and_its_gradient(duplicate):
    for data, requires_grad in (
        (np.arange(3.0), True),
        (np.float32([1, 2]), True),
        (np.arange(3), False),
        (2.0, True),
        (np.zeros((0, 2)), False),
    ):
        w = tg.tensor(data, requires_grad=requires_grad)
        if requires_grad:
            (w * w).sum().backward()
        d = duplicate(w)
        assert d is not w and d.requires_grad == requires_grad and d.is_leaf
        same(d.detach(), w.detach().numpy())
        assert not np.shares_memory(d.detach().numpy(), w.detach().numpy())
        if requires_grad:
            same(d.grad, w.grad.numpy())
            (d * 3).sum().backward()
            assert not np.array_equal(d.grad.numpy(), w.grad.numpy())


def test_deepcopy_keeps_one_tensor_one_tensor():
    w = leaf([1.0])
    a, b = copy.deepcopy([w, w])
    assert a is b and a is not w


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps], ids=["deepcopy", "pickle"])
def test_a_result_is_not_copied_without_its_graph(duplicate):
    y = leaf([1.0]) * 2
    with pytest.raises(RuntimeError, match="detach"):
        duplicate(y)
    duplicate(y.detach())


# ------------------------------------------------------------------------------------------------ lifetime


def test_a_dropped_result_dies_at_once():
    """No reference from the tape, no cycle: the collector need not run."""
    gc.disable()
    try:
        w = leaf([1.0, 2.0])
        for make in (
            lambda: w * 2,
            lambda: w.sum(),
            lambda: (w * 2).detach(),
            lambda: leaf([1.0]),
            lambda: w[0],
            lambda: np.sin(w),
        ):
            ref = weakref.ref(make())
            assert ref() is None
        y = w * 2
        ref = weakref.ref(y)
        z = y * y
        del y
        assert ref() is None
        z.sum().backward()
        same(w.grad, np.array([8.0, 16.0]))
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------ random programs

VIEWS = [
    lambda a: a[0],
    lambda a: a[1:],
    lambda a: a[..., ::-1],
    lambda a: a[..., 0],
    lambda a: a[None],
    lambda a: a.T,
    lambda a: a.reshape(-1),
    lambda a: np.flip(a),
    lambda a: np.squeeze(a),
    lambda a: np.expand_dims(a, 0),
    lambda a: np.moveaxis(a, 0, -1),
    lambda a: np.array_split(a, 2)[0],
    lambda a: a[[1, 0]],
    lambda a: a.copy(),
]
FUNCTIONS = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a / (b * b + 2.0),
    lambda a, b: np.sin(a),
    lambda a, b: np.exp(-a * a * 0.1),
    lambda a, b: np.sum(a, axis=0),
    lambda a, b: np.stack([a, a]),
    lambda a, b: np.concatenate([a, b]),
]
WRITES = [
    lambda a, b: operator.iadd(a, b),
    lambda a, b: operator.isub(a, b),
    lambda a, b: operator.imul(a, b),
    lambda a, b: operator.imul(a, 0.7),
    lambda a, b: operator.itruediv(a, 1.5),
    lambda a, b: operator.setitem(a, 0, b),
    lambda a, b: operator.setitem(a, (slice(None), 1), b),
    lambda a, b: operator.setitem(a, ..., b),
    lambda a, b: operator.setitem(a, [1, 0], b),
    lambda a, b: operator.setitem(a, [0, 0], b),
    lambda a, b: operator.setitem(a, (0, 0), b),
]


def run_step(values, step, buffer):
    """One step of a program on a growing list of values that may share memory."""
    kind, i, j, k = step
    a, b = values[i % len(values)], values[j % len(values)]
    if kind == "view" and a.ndim:
        values.append(VIEWS[k % len(VIEWS)](a))
    elif kind == "function":
        values.append(FUNCTIONS[k % len(FUNCTIONS)](a, b))
    elif kind == "write" and a.ndim:
        WRITES[k % len(WRITES)](a, b)
    elif kind == "buffer":
        values.append(buffer())
    elif kind == "forget" and len(values) > 2:
        del values[1 + i % (len(values) - 1)]
    if values[-1].size > 64 or values[-1].ndim > 3:
        values.pop()


def weighed(values):
    return sum((np.sum(v) * (0.3 + 0.1 * k) for k, v in enumerate(values)), 0.0)


@pytest.mark.parametrize("seed", seeds(range(120), 20))
def test_a_program_of_views_and_writes_is_right_or_refused(seed):
    """Views, buffers, stores and in-place operators in any order: the gradient of all values is NumPy's complex step, or an error.

    The oracle runs the same steps on complex arrays, whose views share memory as NumPy's do. A step that is refused must have
    changed nothing; backward may refuse too, where a value it needs was overwritten. A wrong number is never right.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.choice(
        ["view", "function", "write", "buffer", "forget"], 16, p=[0.25, 0.3, 0.33, 0.08, 0.04]
    )
    steps = [(str(kind), *map(int, rng.integers(0, 1000, 3))) for kind in kinds]
    x = rng.standard_normal((2, 3))
    w = leaf(x)
    values, accepted = [w], []
    for step in steps:
        before = [np.array(v.detach().numpy()) for v in values]
        try:
            run_step(values, step, lambda: tg.zeros(2, 3))
        except (tg.TapegradError, ValueError, IndexError, TypeError, RuntimeError):
            for v, old in zip(values, before, strict=True):
                np.testing.assert_array_equal(v.detach().numpy(), old)
        else:
            accepted.append(step)
    total = weighed(values)

    def oracle(z):
        values = [z]
        for step in accepted:
            run_step(values, step, lambda: np.zeros((2, 3), complex))
        return weighed(values)

    np.testing.assert_allclose(total.item(), oracle(x.astype(complex)).real, rtol=1e-10, atol=1e-10)
    try:
        total.backward()
    except tg.GraphError as error:
        assert "modified by an inplace operation" in str(error)
        return
    expected = np.zeros((2, 3))
    for i in np.ndindex(2, 3):
        z = x.astype(complex)
        z[i] += 1e-30j
        expected[i] = oracle(z).imag / 1e-30
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-9, atol=1e-9)


def test_a_tensor_of_nothing_is_empty():
    """As PyTorch's; what is called with data or sizes says what to write."""
    t = tg.Tensor()
    assert (
        type(t) is tg.Tensor and t.shape == (0,) and t.dtype == np.float64 and not t.requires_grad
    )
    assert (t + 1).sum().item() == 0.0 and repr(pickle.loads(pickle.dumps(t))) == repr(
        t
    ) == "tensor([])"
    t.requires_grad_()
    (t * 2).sum().backward()
    assert t.grad.shape == (0,)

    class Named(tg.Tensor):
        def __init__(self, name):
            pass

    assert type(Named("a")) is Named and Named("a").shape == (0,)


def test_a_shape_that_is_set_names_reshape():
    with pytest.raises(AttributeError, match=r"t = t.reshape\(6\)"):
        leaf(np.ones((2, 3))).shape = 6
