"""Parallel loops of native functions: whatever passes share, the gradient is that of the loop, to the same bit with any threads.

Most programs are checked by their generated code, run by Python with chunks in several orders; a few are compiled.
"""

from __future__ import annotations

import numba
import numpy as np
import pytest

import tapegrad as tg
from tests import native_parallel as programs
from tests.test_native import difference
from tests.test_native_fuzz import interpreted

X = np.array([0.3, -0.7, 0.5, 1.1, -0.2, 0.8, 0.45])


def parallel(f):
    return tg.njit(f, parallel=True, mode="adjoint")


@pytest.fixture
def threads():
    before = numba.get_num_threads()
    yield numba.set_num_threads
    numba.set_num_threads(before)


ORDERS = {"upwards": range, "downwards": lambda n: reversed(range(n))}


def each_program_in_each_order(test):
    """A test of (f, order, ...)."""
    every = [*programs.SHARED, *programs.ALONE, programs.one_under_two_names]
    test = pytest.mark.parametrize("f", every, ids=lambda f: f.__name__)(test)
    return pytest.mark.parametrize("order", ORDERS)(test)


@each_program_in_each_order
def test_gradient_is_the_derivative(f, order, rng):
    """In whatever order chunks run: two chunks that touch one element would show."""
    value, (gradient,) = interpreted(parallel(f), (X.copy(),), (0,), order=ORDERS[order])
    d = rng.normal(size=X.size)
    assert np.isclose(value, f(X), rtol=1e-12)
    assert np.isclose(gradient @ d, difference(f, X, d), rtol=1e-8, atol=1e-8)


@pytest.mark.long
def test_forward_mode_and_second_derivatives_run_on_one_thread(rng):
    """They are those of the same loop over a range."""
    f = programs.all_read_one
    native, d = tg.njit(f, parallel=True), rng.normal(size=X.size)
    gradient = tg.grad(native)
    assert np.isclose(tg.jvp(native, (X,), (d,))[1], gradient(X) @ d, rtol=1e-12)
    assert np.allclose(tg.hvp(native)(X, d), difference(gradient, X, d), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("f", programs.SHARED, ids=lambda f: f.__name__)
def test_is_shared(f):
    loops = parallel(f).variant((X,)).derived((0,)).adjoint.loops
    assert loops and all("threads share it" in told for told in loops)
    line = f.__code__.co_firstlineno
    assert all(programs.__file__ in told and f"line {line}" not in told for told in loops)


@pytest.mark.parametrize("f", programs.ALONE, ids=lambda f: f.__name__)
def test_why_it_is_not_shared(f):
    (told,) = parallel(f).variant((X,)).derived((0,)).adjoint.loops
    assert f"one thread: {programs.ALONE[f]}" in told


@pytest.mark.long
def test_compiled_and_with_any_threads(threads, rng):
    """The same bits with one thread and two; without threads there are nearly the same numbers."""
    f = parallel(programs.of_all_kinds)
    x = rng.normal(size=2000)
    found = []
    for n in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        threads(n)
        found += [tg.value_and_grad(f)(x) for _ in range(5)]
    for value, gradient in found:
        assert value == found[0][0] and np.array_equal(gradient, found[0][1])
    alone = tg.value_and_grad(tg.njit(programs.of_all_kinds))(x)
    assert np.isclose(alone[0], found[0][0], rtol=1e-11)
    assert np.allclose(alone[1], found[0][1], rtol=1e-8, atol=1e-8)
    told = f.explain()
    assert "neighbouring chunks take turns" in told and "s, t summed by chunks" in told


@pytest.mark.long
def test_errors_of_a_pass_come_out():
    """Numba forgets what a thread raised; that there was no memory is told all the same."""

    def f(x):
        s = 0.0
        for i in numba.prange(x.size):
            v = x[i]
            n = 20000
            for _ in range(n):
                v = np.sin(v)
            s += v
        return s

    with pytest.raises(MemoryError, match="TAPEGRAD_NATIVE_LIMIT"):
        tg.grad(tg.njit(f, parallel=True, memory_limit=50_000))(X.copy())


def halved(x):
    s = 0.0
    for i in numba.prange(x.size):
        s += x[i]
        s *= 0.5
    return s


def divided(x):
    s = 1.0
    for i in numba.prange(x.size):
        s = x[i] / s
    return s


def refused(x):
    if x[0] > 0.0:
        raise ValueError("Use of reduction variable x")
    return x[0]


@pytest.mark.long
def test_what_threads_cannot_share_is_told():
    """By line and with what to write, where Numba compiles the function itself; its derivative in reverse is on one thread."""
    for f, line in ((halved, "s += x[i]"), (divided, "s = x[i] / s")):
        native = parallel(f)
        for call in (native, lambda x, native=native: tg.jvp(native, (x,), (x,))):
            with pytest.raises(numba.core.errors.NumbaError, match="Write range") as told:
                call(X)
            assert "test_native_parallel.py" in str(told.value) and line in str(told.value)
    assert np.allclose(tg.grad(parallel(halved))(X), 0.5 ** np.arange(X.size, 0, -1.0))


def test_values_that_the_program_refuses():
    """Errors of the program's own come out as they are, whatever their words."""
    with pytest.raises(ValueError, match="^Use of reduction variable x$"):
        tg.njit(refused)(X)
