"""Slips in using `tg.njit`: options that cannot be, and programs that Numba does not take, are told where they stand."""

import inspect

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad import NotDifferentiable


def square(x):
    return x * x


# What is given, the error, and the words that tell what to write.
SLIPS = [
    ({"memory_limit": -1}, ValueError, "number of bytes"),
    ({"memory_limit": 0}, ValueError, "number of bytes"),
    ({"memory_limit": np.nan}, ValueError, "number of bytes"),
    ({"memory_limit": np.inf}, ValueError, "number of bytes"),
    ({"memory_limit": "1 GB"}, TypeError, "number of bytes"),
    ({"memory_limit": True}, TypeError, "number of bytes"),
    ({"snapshots": "a"}, TypeError, "whole number"),
    ({"checkpoint": "revolve", "snapshots": "a"}, TypeError, "whole number"),
    ({"checkpoint": "revolve", "snapshots": 2.0}, TypeError, "whole number"),
    ({"checkpoint": "revolve", "snapshots": True}, TypeError, "whole number"),
    ({"checkpoint": "revolve", "snapshots": np.zeros(2)}, TypeError, "whole number"),
    ({"checkpoint": "revolve", "snapshots": -3}, ValueError, "needs a number of snapshots"),
    ({"checkpoint": "revolve"}, ValueError, "needs a number of snapshots"),
    ({"snapshots": 3}, ValueError, "needs a number of snapshots"),
    ({"checkpoint": "all", "snapshots": 3}, ValueError, "one schedule"),
    ({"checkpoint": 1, "snapshots": 3}, TypeError, "has a name"),
    ({"mode": None}, TypeError, "have names"),
    ({"mode": "Adjoint"}, ValueError, "'auto', 'form', 'adjoint' and 'overload'"),
    ({"memory_limits": 3}, TypeError, "neither it nor numba.njit knows"),
    ({"target": "cuda"}, TypeError, "neither it nor numba.njit knows"),
    ({"parallel": "yes"}, ValueError, "True, False"),
    ({"fastmath": {"quick"}}, ValueError, "reassoc"),
    ({"error_model": "c"}, ValueError, "'numpy' or 'python'"),
]


@pytest.mark.parametrize("options, error, words", SLIPS, ids=[repr(s[0]) for s in SLIPS])
def test_slips(options, error, words):
    """Told when the function is decorated, with the option's name."""
    with pytest.raises(error, match=words) as told:
        tg.njit(square, **options)
    assert any(f"{name}=" in str(told.value) for name in options)


def test_what_numba_takes():
    """Options that Numba takes stay allowed, its newer ones too."""
    for options in (
        {"fastmath": {"reassoc"}, "nogil": True, "boundscheck": None},
        {"error_model": "python", "inline": "always", "cache": False},
        {"parallel": {"prange": True}, "debug": False},
        {"memory_limit": 2e9, "checkpoint": "revolve", "snapshots": np.int64(4)},
        {"_dbg_extend_lifetimes": True},
    ):
        assert tg.grad(tg.njit(square, **options))(3.0) == 6.0


def test_options_of_a_jitted_function():
    """Asked for in so many words, they hold for a function that was jitted with others."""
    jitted = numba.njit(square)
    assert tg.njit(jitted).dispatcher is jitted
    again = tg.njit(jitted, fastmath=True)
    assert again.dispatcher.targetoptions["fastmath"]
    assert tg.grad(again)(3.0) == 6.0


def attribute(x):
    y = x * 2.0
    return y.smile + 1.0


def types_that_never_meet(x):
    if x[0] > 0.0:
        r = "a"
    else:
        r = x[0]
    return r


def too_many_indices(x):
    return x[0, 1]


@numba.njit
def helper(x):
    return x.smile


def calls(x):
    return 2.0 * helper(x)


def managed(x):
    with open("file"):
        pass
    return x[0]


# A program that Numba does not take, the line at fault for a derivative and for a call, and words of the reason.
TYPES = [
    (attribute, "y.smile", "y.smile", "Unknown attribute 'smile' of type array"),
    (types_that_never_meet, "return r", "return r", "Cannot unify"),
    (too_many_indices, "x[0, 1]", "x[0, 1]", "with 2 indices"),
    (calls, "x.smile", "helper(x)", "Unknown attribute 'smile'"),
    (managed, "with open", "with open", ("with statement", "context manager")),
]


def line_of(f, text):
    lines, first = inspect.getsourcelines(f)
    return next(first + i for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    "f, derived, called, words", TYPES, ids=lambda v: getattr(v, "__name__", "")
)
def test_what_numba_refuses(f, derived, called, words):
    """Derivative and call tell file, line and expression first, and chain what Numba says."""
    native = tg.njit(f)
    of_derivative, of_call = words if isinstance(words, tuple) else (words, words)
    with pytest.raises(NotDifferentiable) as told:
        tg.grad(native)(np.ones(3))
    first = str(told.value).splitlines()[0]
    where = helper.py_func if f is calls else f
    assert f'{__file__}", line {line_of(where, derived)}: ' in first
    assert derived.removeprefix("return ") in first
    assert of_derivative in str(told.value)
    assert "nopython mode pipeline" not in str(told.value)
    with pytest.raises(numba.core.errors.NumbaError) as told:
        native(np.ones(3))
    first = str(told.value).splitlines()[0]
    assert f'{__file__}", line {line_of(f, called)}: ' in first
    assert of_call in str(told.value)
    assert type(told.value.__cause__).__module__ == "numba.core.errors"
    assert "nopython mode pipeline" not in str(told.value)


@tg.njit
def first(x):
    return x[0] * 2.0


@pytest.mark.long
def test_arguments_without_a_type():
    """Told by the name of the parameter, with what to pass instead."""
    with pytest.raises(NotDifferentiable, match=r"x = an array of float16.*float64"):
        tg.grad(first)(np.ones(2, np.float16))
    with pytest.raises(NotDifferentiable, match=r"by x was asked.*Pass an array"):
        tg.grad(first)(numba.typed.List([1.0, 2.0]))
    with pytest.raises(numba.core.errors.TypingError, match=r"def first\n.*an object of Python's"):
        first({0: 1.0})
    assert np.array_equal(tg.grad(first)(np.ones(2)), [2.0, 0.0])


def beyond(x):
    s = 0.0
    for i in range(len(x) + 1):
        s += x[i] * x[i]
    return s


def places_beyond(x):
    y = x * 2.0
    return np.sum(y[np.array([0, 9])] ** 2)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
@pytest.mark.parametrize("f", [beyond, places_beyond])
def test_checked_bounds_are_checked_in_derivatives(f, mode):
    """An element beyond the end, which the value reads, would be written by its reverse."""
    native = tg.njit(f, mode=mode, boundscheck=True)
    for derivative in (tg.grad(native), tg.value_and_grad(native)):
        with pytest.raises(IndexError):
            derivative(np.ones(4))
    with pytest.raises(IndexError):
        tg.jvp(native, (np.ones(4),), (np.ones(4),))


def from_the_end(x):
    y = np.zeros(x.size)
    for i in range(x.size):
        y[-1 - i] = x[i - 2] ** 2 * x[-1]
    s = 0.0
    for i in range(x.size):
        s += (i + 1) * y[i]
    return s


def before_the_beginning(x):
    y = np.zeros(x.size)
    for i in range(x.size):
        y[i] = x[-2 - i] ** 2
    return np.sum(y)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_negative_indices_count_from_the_end_in_derivatives(mode):
    """Those that begin before the array are refused where indices are checked."""
    x = np.array([0.5, -1.2, 0.7, 2.0])
    native = tg.njit(from_the_end, mode=mode, boundscheck=True)
    np.testing.assert_allclose(tg.grad(native)(x), tg.grad(from_the_end)(x), rtol=1e-14)
    np.testing.assert_allclose(
        tg.jvp(native, (x,), (x,))[1], tg.grad(from_the_end)(x) @ x, rtol=1e-14
    )
    refused = tg.njit(before_the_beginning, mode=mode, boundscheck=True)
    with pytest.raises(IndexError):
        tg.grad(refused)(x)
