"""Repeated calls of a native gradient: what the first one found out serves the next only where it holds."""

import threading
from collections import namedtuple

import numpy as np
import pytest

import tapegrad as tg
from tests.suite import in_threads


@pytest.mark.long
def test_arguments_of_every_kind_in_turn():
    """Shapes, layouts, dtypes, numbers, tensors and keywords, one after another, by the same transform."""

    @tg.njit
    def f(x, k):
        s = 0.0
        for i in range(x.shape[0]):
            s += np.sum(x[i : i + 1] ** 2) * k
        return s

    gradient = tg.grad(f)
    both = tg.value_and_grad(f, (0, 1))
    line, plane = np.arange(4.0), np.arange(12.0).reshape(3, 4)
    locked = plane.copy()
    locked.flags.writeable = False
    for _ in range(2):
        for k in (2.0, 3, np.float64(0.5), True):
            np.testing.assert_allclose(gradient(line, k), 2 * line * k)
        for x in (line, plane, plane.T, plane[:, ::2], locked, plane[1:]):
            value, (by_x, by_k) = both(x, 2.0)
            assert value == pytest.approx(2 * np.sum(x * x)) == pytest.approx(2 * by_k)
            np.testing.assert_allclose(by_x, 4 * x)
            np.testing.assert_allclose(gradient(x, k=2.0), 4 * x)
        single = gradient(plane.astype(np.float32), 2.0)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, 4 * plane)
        given = tg.tensor(line)
        np.testing.assert_allclose(np.asarray(gradient(given, 2.0)), 4 * line)
        np.testing.assert_allclose(gradient(np.arange(4), 2.0), 4 * line)


def test_whole_numbers_stay_whole():
    """An integer takes other branches than the float it equals."""

    @tg.njit
    def f(x, k):
        return x * (k / 2) if k > 2 else x * (k // 2)

    gradient = tg.grad(f)
    for _ in range(2):
        assert gradient(1.0, 1.5) == 0.0
        assert gradient(1.0, 3) == 1.5
        assert gradient(1.0, 3.5) == 1.75
        assert gradient(np.float64(1.0), 2) == 1.0


def test_errors_of_the_function_come_out():
    @tg.njit
    def f(x):
        if x[0] < 0:
            raise TypeError("a negative start")
        return x[0] * x[1]

    gradient = tg.grad(f)
    np.testing.assert_allclose(gradient(np.array([2.0, 3.0])), [3.0, 2.0])
    with pytest.raises(TypeError, match="a negative start"):
        gradient(np.array([-2.0, 3.0]))
    np.testing.assert_allclose(gradient(np.array([2.0, 3.0])), [3.0, 2.0])


def test_arguments_that_are_written_are_looked_at_each_time():
    @tg.njit
    def f(x, y):
        x[0] = y[0] * 2.0
        return x[0] * x[1]

    gradient = tg.grad(f, 1)
    x, y = np.array([1.0, 3.0]), np.array([4.0, 5.0])
    for _ in range(3):
        np.testing.assert_allclose(gradient(x, y), [6.0, 0.0])
        assert x[0] == 1.0
        with pytest.raises(tg.NotDifferentiable, match="shares memory"):
            gradient(x, x)


def test_a_result_is_no_other_name_of_an_operand():
    """Written in place, it leaves the operand as the tape saw it."""

    @tg.njit
    def rest(x):
        return x[1:]

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = x * 1.0
    r = rest(w)
    r *= 2.0
    (tg.sum(w * w) + tg.sum(r)).backward()
    np.testing.assert_allclose(w.detach(), [1.0, 2.0, 3.0])
    np.testing.assert_allclose(x.grad, [2.0, 6.0, 8.0])


@pytest.mark.long
def test_operands_of_every_kind_in_turn():
    """Tensors that are tracked, constants, parameters, read-only, of float32 and numbers, with each other and with arrays."""

    @tg.njit
    def f(x, k):
        return np.sum(np.sin(x) * k)

    plain = np.linspace(0.1, 1.0, 4)
    locked = plain.copy()
    locked.flags.writeable = False
    k = tg.tensor(2.0, requires_grad=True)
    for _ in range(2):
        for values in (plain, locked, plain.astype(np.float32), plain[::-1]):
            x = tg.tensor(values, requires_grad=True)
            k.grad = None
            out = f(x, k)
            out.backward()
            assert x.grad.dtype == x.dtype
            np.testing.assert_allclose(x.grad, 2 * np.cos(values), rtol=1e-6)
            np.testing.assert_allclose(k.grad, np.sum(np.sin(values)), rtol=1e-6)
            f(values, k).backward()
            np.testing.assert_allclose(k.grad, 2 * np.sum(np.sin(values)), rtol=1e-6)
            with tg.no_grad():
                assert not f(x, k).requires_grad
            with tg.inference_mode():
                assert f(x, k) == out
        assert not f(tg.tensor(plain), 2.0).requires_grad


def test_threads_have_stacks_of_their_own():
    @tg.njit(nogil=True)
    def f(x, n):
        y = x
        for _ in range(n):
            y = np.sin(y) + 1.0
        return y

    gradient = tg.grad(f)
    expected = {n: gradient(0.3, n) for n in (1, 50, 5000)}
    wrong = []

    def work():
        for n in (5000, 1, 50) * 20:
            if gradient(0.3, n) != expected[n]:
                wrong.append(n)

    in_threads(work, work, work)
    assert not wrong


def test_the_first_calls_of_several_threads():
    """One compiles and the others wait: none finds that nothing may be compiled any more."""

    @tg.njit
    def f(x, scale):
        return np.sum(np.sin(x) * scale)

    gradient = tg.value_and_grad(f)
    x = np.linspace(0.0, 1.0, 5)
    ready = threading.Barrier(3)
    found = []

    def work():
        ready.wait()
        found.append(gradient(x, 2.0))

    in_threads(work, work, work)
    assert len(found) == 3
    for value, slope in found:
        assert value == pytest.approx(2 * np.sum(np.sin(x)))
        np.testing.assert_allclose(slope, 2 * np.cos(x))


Pair = namedtuple("Pair", "rate load")


@pytest.mark.long
def test_tuples_of_what_is_differentiated():
    """Their elements are operands of the entry, whatever the tuples are; every transform takes them as it does elsewhere."""

    @tg.njit
    def f(pair, nested, steps=3):
        (a, b), c = nested
        s = 0.0
        for i in range(steps):
            s += pair.rate * a * i + np.sum(pair.load) * b**2 * c
        return s

    pair, nested = Pair(2.0, np.array([0.5, 1.5])), ((1.0, 2.0), 3.0)
    by_pair, by_nested = tg.grad(f, argnums=(0, 1))(pair, nested, 4)
    assert by_pair.rate == 6.0 and np.all(by_pair.load == 48.0)
    assert by_nested == ((12.0, 96.0), 32.0)
    assert "pair_1" in f.explain()
    value, tangent = tg.jvp(lambda n: f(pair, n, 4), (nested,), (((0.0, 1.0), 0.0),))
    assert value == f(pair, nested, 4) and tangent == 96.0
    second = tg.hessian(lambda b: f(pair, ((1.0, b), 3.0), 4))(2.0)
    assert np.isclose(second, 48.0)
    assert tg.compile(tg.grad(lambda b: f(pair, ((1.0, b), 3.0), 4)))(2.0) == 96.0


@pytest.mark.long
def test_tuples_go_to_functions_of_every_kind():
    native = tg.njit(lambda pair: pair[0] * pair[1])
    assert tg.grad(native)((2.0, 3.0)) == (3.0, 2.0)

    @tg.njit
    def named_like_parts(a, a_0, whole):
        return a[0] * a_0 + a[1] * whole

    gradients = tg.grad(named_like_parts, argnums=(0, 1, 2))((2.0, 3.0), 5.0, 7.0)
    assert gradients == ((5.0, 7.0), 2.0, 3.0)

    @tg.njit
    def f(pair, *others):
        return pair[0] * others[0]

    with pytest.raises(tg.NotDifferentiable, match="any number of arguments"):
        tg.grad(f)((2.0, 3.0), 4.0, 5.0)


def overwritten(x, y):
    x[0] = y[0] * x[1]
    return np.sum(x * y)


def test_forward_mode_of_a_function_that_writes_to_its_argument():
    """As of a gradient, the arguments of a transform are its own."""
    native = tg.njit(overwritten)
    x, y = np.array([0.3, 1.4]), np.array([0.9, 0.2])
    by_x, by_y = tg.grad(native, argnums=(0, 1))(x, y)
    value, along = tg.jvp(native, (x, y), (y, x))
    assert value == overwritten(x.copy(), y)
    assert np.isclose(along, by_x @ y + by_y @ x, rtol=1e-14)
    assert x[0] == 0.3
    with pytest.raises(tg.NotDifferentiable, match="share memory"):
        tg.jvp(native, (x, x), (y, y))
