"""Compiled loops within loops: one native part whatever is in what, with the values and derivatives of the loops in Python."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

import tapegrad as tg

X = np.array([1.3, 0.7, 2.0])
MIX = np.sin(np.arange(9.0)).reshape(3, 3)


def fori_in_fori(x):
    def outer(i, s):
        inner = tg.fori_loop(0, 40, lambda j, v: v * 0.9 + np.sin(v * x[1]) * 0.1, s)
        return s * 0.5 + inner * x[0] * 0.3

    return tg.fori_loop(0, 35, outer, x[2])


def scan_in_scan(x):
    """Results of the inner loop are results of the outer one, too."""

    def outer(carry, u):
        last, sums = tg.scan(
            lambda h, v: (np.tanh(MIX @ h + v * x), np.sum(h)), carry, np.linspace(0, 1, 33)
        )
        return last * u, (np.sum(sums), sums[5:9])

    carry, (totals, some) = tg.scan(outer, x, np.linspace(1, 2, 34), reverse=True)
    return np.sum(carry) + np.sum(totals**2) * 1e-3 + np.sum(some[3])


def while_in_fori(x):
    def outer(i, s):
        w = tg.while_loop(lambda v: v < 10.0, lambda v: v * 1.5 + x[1] * 0.1, abs(s) + 0.3)
        return s * 0.5 + 0.1 * w * x[0]

    return tg.fori_loop(0, 35, outer, x[2])


def fori_in_while(x):
    def body(state):
        s, count = state
        v = tg.fori_loop(0, 40, lambda j, v: v * 0.95 + np.cos(v) * 0.1 * x[0], s)
        return v * 0.3 + s * 0.5, count + 1.0

    return tg.while_loop(lambda state: state[1] < x[2] * 5, body, (x[1], 0.0))[0]


def while_in_while(x):
    """The inner loop has none, one and many turns."""

    def body(state):
        s, count = state
        w = tg.while_loop(lambda v: v < 5.0, lambda v: v * 1.3 + x[0], s)
        return w * (0.05 + 0.3 * count) + x[1], count + 1.0

    return tg.while_loop(lambda state: state[1] < 7.0, body, (x[2], 0.0))[0]


def many_turns(x):
    """More turns than there is room for at first."""
    return tg.while_loop(lambda v: v < 99.0, lambda v: v * 1.01 + x[1] * 1e-2, x[0]) * x[2]


def counted(x):
    """What the test looks at begins with a number of Python's."""

    def body(state):
        return state[0] + 1, state[1] * 0.9 + np.sin(state[1] * x[1])

    return tg.while_loop(lambda state: state[0] < 50, body, (0, x[0]))[1]


NESTS = (
    fori_in_fori,
    scan_in_scan,
    while_in_fori,
    fori_in_while,
    while_in_while,
    many_turns,
    counted,
)


@pytest.mark.parametrize("f", NESTS)
def test_one_native_part(f):
    eager = tg.value_and_grad(f)
    compiled = tg.compile(eager)
    for x in (X, X * 0.9, X * 1.2, np.flip(X.repeat(2))[::2]):
        (value, gradient), (expected, theirs) = compiled(x), eager(x)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        np.testing.assert_allclose(gradient, theirs, rtol=1e-9, atol=1e-12)
    assert compiled.latest.native is not None and compiled.latest.native.loops >= 2


@pytest.mark.long
@pytest.mark.parametrize("f", [while_in_fori, many_turns])
def test_second_derivatives(f):
    hessian = tg.hessian(f)
    np.testing.assert_allclose(tg.compile(hessian)(X), hessian(X), rtol=1e-7, atol=1e-9)


def test_one_step_for_all_turns():
    """A loop that counts is one program for any number of turns, as `while` promises."""
    compiled = tg.compile(counted)
    compiled(X)
    loops = [n.function.loop for n in compiled.latest.graph.nodes if hasattr(n.function, "loop")]
    assert [loop.open for loop in loops] == [True]


def test_results_that_need_care():
    """An argument, a constant and one value twice among the results; integers and truth values carried."""

    def f(x):
        i, on, v = tg.while_loop(
            lambda s: s[1], lambda s: (s[0] + 1, s[0] < 40, s[2] * 1.01), (np.array(0), True, x)
        )
        return v, v, x, np.arange(3), i, on

    compiled = tg.compile(f)
    for got, expected in zip(compiled(X), f(X), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-13)
        assert np.asarray(got).dtype == np.asarray(expected).dtype
    first, second, *_ = compiled(X)
    first[0] = 0
    assert second[0] != 0


def endless(x):
    return tg.while_loop(lambda v: v < 1e9, lambda v: v * 0.5 + x, x)


def test_interrupted():
    """Ctrl-C ends a loop that would never end; what comes after works."""
    compiled = tg.compile(tg.value_and_grad(endless))
    np.testing.assert_allclose(compiled(2e9)[1], 1.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    clock = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    # What it keeps turn by turn must not fill the memory meanwhile: the value alone keeps nothing.
    value = tg.compile(endless)
    assert value(2e9) == 2e9
    try:
        clock.start()
        with pytest.raises(KeyboardInterrupt):
            value(1.0)
    finally:
        clock.cancel()
        signal.signal(signal.SIGINT, before)
    assert value(2e9) == 2e9


def test_other_threads_go_on():
    """The interpreter lock is free while a loop runs, which many threads may do at once."""
    compiled = tg.compile(tg.value_and_grad(many_turns))
    eager = tg.value_and_grad(many_turns)(X)
    compiled(X)
    found = []

    def work():
        for _ in range(20):
            found.append(compiled(X))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 80
    for value, gradient in found:
        np.testing.assert_allclose(value, eager[0], rtol=1e-10)
        np.testing.assert_allclose(gradient, eager[1], rtol=1e-9)


def test_memory_comes_back():
    """Rows of a `while` are freed in each call."""
    from bench import memory

    compiled = tg.compile(tg.value_and_grad(many_turns))
    long = np.array([1e-3, 1e-3, 1.0])
    compiled(long)
    start = memory.status("VmRSS")
    for _ in range(300):
        compiled(long)
    assert memory.status("VmRSS") - start < 2**24
