"""C functions of compiled programs: called by ctypes, by Numba's code and by SciPy, they give what the program gives, or a status."""

import ctypes
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time

import numba as nb
import numpy as np
import pytest
from scipy import LowLevelCallable, integrate, ndimage

import tapegrad as tg
from tapegrad.compiler import places
from tapegrad.compiler.cfunctions import (
    FAULT,
    FORMS,
    GUARD,
    INTERRUPTED,
    LENGTH,
    MEMORY,
    NOT_FINITE,
)
from tapegrad.core import checking
from tapegrad.errors import CheckedAccessError, TraceError


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@tg.njit
def looped(x):
    total = 0.0
    for i in range(x.size - 1):
        total += x[i] * x[i + 1]
    return total


def address(a):
    return a.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def called(c, x):
    """Status and results of a C function in our own form."""
    results = [np.full(shape, np.nan) for shape in c.shapes]
    return c.ctypes(x.size, address(x), *map(address, results)), results


X = np.linspace(0.5, 1.5, 7)


def test_value_and_gradient_by_ctypes():
    fast = tg.compile(tg.value_and_grad(rosenbrock))
    c = fast.cfunc(np.ones(7))
    status, (value, gradient) = called(c, X)
    assert status == 0 and c.length == 7 and c.shapes == ((), (7,))
    expected = tg.value_and_grad(rosenbrock)(X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-14)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-13)


def test_other_lengths_have_a_status_and_write_nothing():
    c = tg.compile(tg.grad(rosenbrock)).cfunc(X)
    for n in (6, 8, 0):
        status, (gradient,) = called(c, np.ones(n))
        assert status == LENGTH and np.isnan(gradient).all()


def test_a_branch_is_a_status_and_each_branch_has_its_function():
    def f(x):
        return np.sum(x**3) if x[0] > 0 else np.sum(x**2)

    fast = tg.compile(tg.value_and_grad(f))
    above, below = fast.cfunc(X), fast.cfunc(-X)
    assert called(above, -X)[0] == GUARD == called(below, X)[0]
    np.testing.assert_allclose(called(above, X)[1][1], 3 * X**2)
    np.testing.assert_allclose(called(below, -X)[1][1], -2 * X)


def test_what_would_raise_is_a_status():
    def f(x):
        return np.sum(np.linalg.solve(x.reshape(2, 2), np.ones(2)))

    c = tg.compile(tg.value_and_grad(f)).cfunc(np.array([1.0, 0, 0, 4.0]))
    np.testing.assert_allclose(called(c, np.array([1.0, 0, 0, 4.0]))[1][0], 1.25)
    assert called(c, np.zeros(4))[0] == GUARD


def test_from_nopython_code_in_a_loop():
    compute = tg.compile(tg.value_and_grad(rosenbrock)).cfunc(X).ctypes

    @nb.njit
    def descend(compute, x, steps):
        value, gradient, failed = np.empty(1), np.empty(x.size), 0
        for _ in range(steps):
            failed += compute(x.size, x.ctypes, value.ctypes, gradient.ctypes) != 0
            x -= 1e-3 * gradient
        return value[0], failed

    x, y = X.copy(), X.copy()
    value, failed = descend(compute, x, 200)
    for _ in range(200):
        expected, gradient = tg.value_and_grad(rosenbrock)(y)
        y -= 1e-3 * gradient
    assert failed == 0
    np.testing.assert_allclose(x, y, rtol=1e-11)
    np.testing.assert_allclose(value, expected, rtol=1e-11)


@pytest.mark.long
def test_an_address_outlives_every_object():
    """Only the number is held while the functions are collected and others are made in their place."""
    pointer = ctypes.POINTER(ctypes.c_double)
    called_by = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, pointer, pointer, pointer)

    def bare(scale):
        f = tg.compile(tg.value_and_grad(lambda x, y: np.sum(np.exp(x) * y * scale)))
        return f.cfunc(X, np.arange(7.0)).address

    found = [bare(k) for k in range(5)]
    gc.collect()
    [np.empty(7) for _ in range(100)]
    value, gradient = np.empty(()), np.empty(7)
    for k, number in enumerate(found):
        assert called_by(number)(7, address(X), address(value), address(gradient)) == 0
        np.testing.assert_allclose(gradient, np.exp(X) * np.arange(7.0) * k)


@pytest.mark.long
def test_numba_code_that_froze_an_address_goes_on_without_the_object():
    held = {"compute": tg.compile(np.sum).cfunc(X).ctypes}
    compute = held["compute"]

    @nb.njit
    def total(x):
        out = np.empty(1)
        return out[0] if compute(x.size, x.ctypes, out.ctypes) == 0 else np.nan

    assert total(X) == pytest.approx(X.sum(), rel=1e-14)
    held.clear()
    compute = None  # the jitted code holds a number
    gc.collect()
    assert total(X) == pytest.approx(X.sum(), rel=1e-14)


def test_the_same_again_is_the_same_object():
    fast = tg.compile(lambda x, y: np.sum(x * y))
    c = fast.cfunc(X, X)
    assert fast.cfunc(2 * X, X.copy()) is c
    assert fast.cfunc(X, 2 * X) is not c and fast.cfunc(X, X, form="filter") is not c
    assert called(fast.cfunc(X, 2 * X), X)[1][0] == pytest.approx(2 * np.sum(X * X), rel=1e-14)


@pytest.mark.parametrize(
    "size", [7, 40_000]
)  # the larger has memory of its own and a team of threads
def test_threads_call_it_at_once(size):
    c = tg.compile(tg.value_and_grad(lambda x: np.sum(np.sin(x) * np.cumsum(x)))).cfunc(
        np.ones(size)
    )
    points = [np.linspace(0, k + 1, size) for k in range(4)]
    expected = [called(c, x)[1] for x in points]
    wrong = []

    def work(k):
        for _ in range(20):
            status, results = called(c, points[k])
            same = all(np.array_equal(a, b) for a, b in zip(results, expected[k], strict=True))
            if status or not same:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_data_and_closures_are_those_of_creation():
    offset = np.array([1.0, 2.0])

    def f(x, scale):
        return np.sum(scale * (x - offset) ** 2)

    scale = np.array([2.0, 3.0])
    c = tg.compile(tg.value_and_grad(f)).cfunc(np.zeros(2), scale)
    scale[:] = 0
    offset[:] = 0
    np.testing.assert_allclose(called(c, np.zeros(2))[1][0], 2 + 12)


def test_a_loop_that_asks_values():
    def root(x):
        y = tg.while_loop(
            lambda s: np.abs(s[0] * s[0] - s[1]) > 1e-12,
            lambda s: ((s[0] + s[1] / s[0]) / 2, s[1]),
            (x[0], x[0]),
        )
        return y[0]

    c = tg.compile(tg.value_and_grad(root)).cfunc(np.array([2.0]))
    status, (value, gradient) = called(c, np.array([9.0]))
    assert status == 0
    np.testing.assert_allclose([value, gradient[0]], [3, 1 / 6], rtol=1e-9)


@pytest.mark.long
def test_an_interrupt_in_a_loop_has_a_status():
    def f(x):
        return tg.while_loop(lambda s: s < x[0], lambda s: s + 1.0, x[1])

    count = tg.compile(f).cfunc(np.array([2.0, 1.0])).ctypes
    ctypes.pythonapi.PyErr_SetInterrupt.restype = None
    interrupt = ctypes.CFUNCTYPE(None)(
        ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value
    )

    @nb.njit
    def run(interrupt, count, x, status):
        """The interrupt comes before the call, at a place where Python cannot see it."""
        out = np.empty(1)
        interrupt()
        status[0] = count(x.size, x.ctypes, out.ctypes)

    x, status, heard = np.array([1e8, 1.0]), np.ones(1), []  # a second, should nobody listen
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        run(interrupt, count, x, status)
        assert heard and status[0] == 0  # the handler raises nothing
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            run(interrupt, count, x, status)
            for _ in range(1000):  # an interrupt is looked at between statements
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert status[0] == INTERRUPTED


STARVED = """
import resource
from ctypes import POINTER, c_double
import numpy as np, tapegrad as tg

def f(x):
    sums = np.cumsum(np.outer(x, x), axis=0)  # 72 MB between two loops
    return np.sum(np.cumsum(sums, axis=1) * sums[::-1])

x = np.linspace(0.5, 1.5, 3000)
c, out = tg.compile(f).cfunc(x), np.zeros(())
at = lambda a: a.ctypes.data_as(POINTER(c_double))
told = [c.ctypes(3000, at(x), at(out))]
space = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (space + (1 << 23), -1))
told += [c.ctypes(3000, at(x), at(out))]
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
told += [c.ctypes(3000, at(x), at(out)), np.isclose(out, f(x), rtol=1e-9)]
print(*told)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_memory_has_a_status():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STARVED], capture_output=True, text=True, timeout=600
    )
    assert done.stdout.split() == ["0", str(MEMORY), "0", "True"], done.stderr


def test_checked_mode_has_a_status(monkeypatch):
    strides = places.Memory.strides

    def wider(self, op):
        """A buffer that is read as if its rows were longer."""
        found = strides(self, op)
        return (found[0] + 1, *found[1:]) if op.kind == "input" and len(found) == 2 else found

    def f(x, a):
        return np.sum(np.exp(a), axis=1) * x

    a = np.ones((7, 3))
    with checking.checked():
        sound = tg.compile(f).cfunc(X, a)
        monkeypatch.setattr(places.Memory, "strides", wider)
        faulty = tg.compile(lambda x, a: f(x, a) + 1.0)
        try:
            c = faulty.cfunc(X, a)
        except CheckedAccessError:
            c = faulty.cfunc(X, a)
    assert called(sound, X)[0] == 0
    assert called(c, X)[0] == FAULT == called(c, X)[0]


def test_results_of_several_shapes_and_constant_gradients():
    c = tg.compile(lambda x: (np.outer(x, x), x, np.sum(x), np.ones(3))).cfunc(X)
    status, results = called(c, X)
    assert status == 0
    for a, b in zip(results, (np.outer(X, X), X, X.sum(), np.ones(3)), strict=True):
        np.testing.assert_allclose(a, b)
    status, (value, gradient) = called(tg.compile(tg.value_and_grad(np.sum)).cfunc(X), X)
    assert status == 0 and abs(value - X.sum()) < 1e-14 and (gradient == 1).all()


def test_an_empty_vector():
    status, (value, gradient) = called(
        tg.compile(tg.value_and_grad(lambda x: np.sum(x * x))).cfunc([]), np.ones(0)
    )
    assert (status, value, gradient.shape) == (0, 0, (0,))


def test_the_form_of_nutpie():
    c = tg.compile(tg.value_and_grad(rosenbrock)).cfunc(X, form="nutpie")
    value, gradient = np.empty(()), np.empty(7)
    assert c.ctypes(7, address(X), address(gradient), address(value), None) == 0
    np.testing.assert_allclose(gradient, tg.grad(rosenbrock)(X))
    assert c.ctypes(8, address(X), address(gradient), address(value), None) == LENGTH
    c = tg.compile(tg.value_and_grad(lambda x: np.sum(np.sqrt(x)))).cfunc(X, form="nutpie")
    for bad in (np.zeros(7), -X):  # the gradient is infinite, the value is NaN
        assert c.ctypes(7, address(bad), address(gradient), address(value), None) == NOT_FINITE


def test_scipy_integrates_and_filters_with_it():
    c = tg.compile(lambda z: np.exp(-(z[0] ** 2) * z[1])).cfunc(np.ones(2), form="quad")
    found = integrate.quad(LowLevelCallable(c.ctypes), 0, 1, args=(2.0,))[0]
    np.testing.assert_allclose(
        found, integrate.quad(lambda x: np.exp(-2 * x * x), 0, 1)[0], rtol=1e-12
    )
    assert np.isnan(c.ctypes(3, address(np.ones(3)), None))
    spread = tg.compile(lambda w: np.sum((w - np.mean(w)) ** 2)).cfunc(np.ones(9), form="filter")
    image = np.arange(30.0).reshape(5, 6) ** 2
    found = ndimage.generic_filter(image, LowLevelCallable(spread.ctypes), size=3)
    np.testing.assert_allclose(
        found, ndimage.generic_filter(image, lambda w: np.sum((w - w.mean()) ** 2), size=3)
    )
    with pytest.raises(RuntimeError):
        ndimage.generic_filter(image, LowLevelCallable(spread.ctypes), size=2)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tg.compile(np.sum).cfunc(np.ones((2, 2))), TypeError, "one flat float64 vector"),
        (lambda: tg.compile(np.sum).cfunc(np.ones(2) * 1j), TypeError, "dtype complex128"),
        (lambda: tg.compile(np.sum).cfunc({"a": 1.0}), TypeError, "one flat float64 vector"),
        (lambda: tg.compile(np.sum).cfunc(np.ones(2), form="c"), ValueError, "form='c'"),
        (
            lambda: tg.compile(np.sum, static_argnums=0).cfunc(np.ones(2)),
            TypeError,
            "cannot be hashed",
        ),
        (lambda: tg.compile(rosenbrock).cfunc(X, form="nutpie"), TypeError, "value_and_grad"),
        (lambda: tg.compile(tg.grad(rosenbrock)).cfunc(X, form="quad"), TypeError, "one number"),
        (lambda: tg.compile(lambda x: x.astype(np.float32)).cfunc(X), TypeError, "float32"),
        (lambda: tg.compile(lambda x: (x, "a")).cfunc(X), TypeError, "returns 'a' whatever"),
        (lambda: tg.compile(lambda x: 3.0).cfunc(X), TypeError, r"np\.asarray\(number\)"),
        (lambda: tg.compile(lambda x: ()).cfunc(X), TypeError, "returns no number"),
        (lambda: tg.compile(tg.grad(looped)).cfunc(X), TraceError, "calls Python"),
        (lambda: tg.compile(lambda x: np.polyfit(x, x, 1)).cfunc(X), TraceError, "calls Python"),
    ],
)
def test_what_has_no_c_function_says_why(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_it_is_not_pickled_and_shows_its_signature():
    c = tg.compile(tg.grad(rosenbrock)).cfunc(X)
    with pytest.raises(TypeError, match="an address in this process"):
        pickle.dumps(c)
    assert c.signature in repr(c) and set(FORMS) == {"status", "nutpie", "quad", "filter"}
