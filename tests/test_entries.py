"""Steps of loops that change some entries of an array that they carry: right at every order, in time by what they change."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import entries

N = 70


def plain_loop(lower, upper, body, value):
    """`tg.fori_loop` as NumPy does it."""
    for i in range(lower, upper):
        value = body(i, value)
    return value


def copying(loop, x):
    def body(i, v):
        v = v.copy()
        v[i] = np.sin(v[i]) * v[i - 1]
        return v

    return np.sum(loop(1, len(x), body, x) ** 2)


def in_place(loop, x):
    def body(i, v):
        v[i] = np.sin(v[i]) + 0.5 * v[i - 1]
        return v

    return np.sum(loop(1, len(x), body, x.copy()) ** 2)


def begun_with(loop, x):
    """What the loop began with is what it ends with."""
    y = x * 1.0

    def body(i, v):
        v[i] = np.sin(v[i]) + 0.5 * v[i - 1]
        return v

    z = loop(1, len(x), body, y)
    return np.sum(y * z) + y[3]


def two_arrays(loop, x):
    def body(i, v):
        a, b = v
        a[i] = a[i - 1] * np.cos(b[i])
        b = b.copy()
        b[i - 1] = a[i] + 1.0
        return a, b

    a, b = loop(1, len(x), body, (x.copy(), x * 2))
    return np.sum(a * b)


def read_between(loop, x):
    """An entry is stored, read, and stored again, and another one of the same turn depends on it."""

    def body(i, v):
        v = v.copy()
        v[i] = v[i - 1] * 0.7
        v[i] = np.sin(v[i]) * 0.3 + v[0]
        v[0] = v[i] * 0.5 + v[-1]
        return v

    return np.sum(loop(1, len(x), body, x) ** 2)


def rows(loop, x):
    start = np.outer(x, np.cos(np.arange(12.0)))

    def body(i, v):
        v = v.copy()
        v[i] = np.sin(v[i - 1] * 0.5) + x[i] * np.arange(12.0)
        return v

    return np.sum(loop(1, len(x), body, start) ** 2)


def columns(loop, x):
    start = np.outer(x, np.cos(np.arange(12.0)))

    def body(i, v):
        v = v.copy()
        v[-i, 1:5:2] += v[i, 0:4:2] * x[i]
        v[i, 3] = v[i, ::-1][0] * 0.5
        return v

    return np.sum(loop(1, len(x), body, start) ** 2)


def fortran(loop, x):
    start = np.outer(np.cos(np.arange(12.0)), x).T

    def body(i, v):
        v = v.copy()
        v[i, 2] = np.sin(v[i - 1, 3])
        return v

    return np.sum(loop(1, len(x), body, start) ** 2)


def version_before(loop, x):
    """The array as it was is read after the store: there are two of them."""

    def body(i, v):
        a, total = v
        b = a.copy()
        b[i] = np.sin(a[i - 1]) + a[i]
        return b, total + np.sum(a * b) * 1e-2

    y, total = loop(1, len(x), body, (x, x[0]))
    return np.sum(y**2) + total


def reading(loop, x):
    return loop(0, len(x), lambda i, s: s * 0.9 + np.sin(x[i]) * x[-i], x[0])


def reading_rows(loop, x):
    table = np.outer(x, np.cos(np.arange(12.0)))
    return loop(0, len(x), lambda i, s: s * 0.9 + np.sum(np.sin(table[i]) * table[i - 1]), x[0])


def nested(loop, x):
    def outer(k, v):
        def body(i, v):
            v = v.copy()
            v[i] = v[i] * 0.9 + 0.1 * np.sin(v[i - 1] + x[k])
            return v

        return loop(1, len(x), body, v)

    return np.sum(loop(0, 33, outer, x) ** 2)


def constants(loop, x):
    def body(i, v):
        v = v.copy()
        v[i - 1] = 0.25
        v[i] = v[i] * v[i - 1] + np.sin(x[i - 1])
        return v

    return np.sum(loop(1, len(x), body, x) ** 2 * x)


PROGRAMS = [
    copying, in_place, begun_with, two_arrays, read_between, rows, columns, fortran, version_before, reading, reading_rows, nested,
    constants,
]  # fmt: skip
X = np.random.default_rng(3).uniform(0.5, 1.5, N)


def by_complex_step(program, x):
    """The gradient, to the last digits: NumPy runs the program on complex numbers."""
    g = np.zeros(len(x))
    for k in range(len(x)):
        z = x.astype(complex)
        z[k] += 1e-30j
        g[k] = program(plain_loop, z).imag / 1e-30
    return g


@pytest.mark.long(but=2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_compiled_loop_is_numpys(program):
    """Value, gradient and product with a tangent of a loop whose steps change entries."""
    f = lambda x: program(tg.fori_loop, x)  # noqa: E731
    expected = by_complex_step(program, X)
    scale = np.max(np.abs(expected))
    both = tg.compile(tg.value_and_grad(f))
    for _ in range(2):  # the first call's numbers are the trace's
        value, g = both(X)
        np.testing.assert_allclose(value, program(plain_loop, X), rtol=1e-12)
        np.testing.assert_allclose(g, expected, rtol=1e-10, atol=1e-12 * scale)
    other = X[::-1] * 0.9
    np.testing.assert_allclose(
        both(other)[1], by_complex_step(program, other), rtol=1e-10, atol=1e-12 * scale
    )
    np.testing.assert_allclose(tg.grad(f)(X), expected, rtol=1e-10, atol=1e-12 * scale)
    d = np.cos(np.arange(float(N)))
    pushed = tg.compile(lambda x: tg.jvp(f, (x,), (d,))[1])(X)
    np.testing.assert_allclose(pushed, expected @ d, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize(
    "program",
    [copying, in_place, two_arrays, rows, version_before, reading, constants],
    ids=lambda f: f.__name__,
)
def test_second_derivatives_of_the_compiled_loop(program):
    d = np.cos(np.arange(float(N)))
    f = lambda x: program(tg.fori_loop, x)  # noqa: E731
    product = tg.compile(tg.grad(lambda x: np.sum(tg.grad(f)(x) * d)))(X)
    h = 1e-5
    expected = (by_complex_step(program, X + h * d) - by_complex_step(program, X - h * d)) / (2 * h)
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-7 * np.max(np.abs(expected)))


def test_a_scan_that_permutes_and_a_while_that_fills():
    places = np.random.default_rng(1).permutation(N)

    def permuted(loop, x):
        def step(v, i):
            v = v.copy()
            v[i] = np.sin(v[i]) * x[i] + v[0]
            return v, v[i]

        if loop is plain_loop:
            v, made = x, []
            for i in places:
                v, y = step(v, i)
                made.append(y)
            return np.sum(v * np.array(made))
        v, made = tg.scan(step, x * 1.0, places)
        return np.sum(v * made)

    def filled(loop, x):
        def body(state):
            i, v = state
            v = v.copy()
            v[i] = v[i - 1] * np.sin(x[i]) + 0.5
            return i + 1, v

        state = (1, x)
        if loop is plain_loop:
            while state[0] < len(x):
                state = body(state)
        else:
            state = tg.while_loop(lambda state: state[0] < len(x), body, state)
        return np.sum(state[1] ** 2)

    for program in (permuted, filled):
        g = tg.compile(tg.grad(lambda x, p=program: p(None, x)))(X)
        np.testing.assert_allclose(g, by_complex_step(program, X), rtol=1e-10, atol=1e-12)


def test_single_precision_and_complex_arrays():
    def single(x):
        y = tg.fori_loop(1, N, lambda i, v: stored(v, i, v[i - 1] * 0.5 + np.sin(v[i])), x)
        return np.sum(y * y)

    def stored(v, i, value):
        v = v.copy()
        v[i] = value
        return v

    x = X.astype(np.float32)
    g = tg.compile(tg.grad(single))(x)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, tg.grad(single)(X), rtol=2e-5, atol=1e-5)

    def turned(x, loop=tg.fori_loop):
        z = loop(
            1,
            N,
            lambda i, v: stored(v, i, 0.9 * v[i - 1] * np.exp(1j * x[i]) + v[i]),
            x * (1 + 0.5j),
        )
        return np.sum(np.real(z) * np.imag(z))

    value, g = tg.compile(tg.value_and_grad(turned))(X)
    np.testing.assert_allclose(value, turned(X, plain_loop), rtol=1e-12)
    d, h = np.sin(np.arange(float(N))), 1e-5
    slope = (turned(X + h * d, plain_loop) - turned(X - h * d, plain_loop)) / (2 * h)
    np.testing.assert_allclose(g @ d, slope, rtol=1e-7)


def test_a_place_out_of_bounds_raises():
    def f(x, first):
        def body(i, v):
            v = v.copy()
            v[i + first] = v[i] * 2.0
            return v

        return np.sum(tg.fori_loop(0, 40, body, x))

    g = tg.compile(tg.grad(f))
    assert g(X, np.int64(1)).shape == (N,)
    with pytest.raises(IndexError):
        g(X, np.int64(40))


@pytest.mark.long
def test_a_step_that_stores_and_carries_on_another_array():
    """The store reaches what the loop began with, once: so the steps run one by one."""

    def f(loop, x):
        y = x * 1.0

        def body(i, v):
            v[i] = np.sin(v[i - 1])
            return v * 1.01

        z = loop(1, 36, body, y)
        return np.sum(y * z)

    g = tg.compile(tg.grad(lambda x: f(tg.fori_loop, x)))(X)
    np.testing.assert_allclose(g, by_complex_step(f, X), rtol=1e-10)


@pytest.mark.parametrize(
    "program", [copying, in_place, reading, two_arrays, constants], ids=lambda f: f.__name__
)
def test_a_turn_takes_the_same_time_however_long_the_array_is(program):
    """No call of a step makes an array, neither going forward nor back, and no rows of the whole array are kept."""
    g = tg.compile(tg.grad(lambda x: program(tg.fori_loop, x)))
    g(np.linspace(0.5, 1.5, 300))
    loops = [node.function.loop for node in g.latest.graph.nodes if hasattr(node.function, "loop")]
    assert len(loops) == 2
    for loop in loops:
        assert all(y.shape == () for y in loop.body.outputs[loop.carried :])
        body, _ = entries.in_place(loop.body, loop.carried)
        made = [node for node in body.nodes if type(node.function) is not entries.Update]
        assert all(node.shape == () for node in made)


@pytest.mark.long
def test_a_python_loop_over_a_large_array():
    """The tape counts what its arrays take while it is traced: values of a trace have no memory to count."""
    x = np.linspace(0.5, 1.5, 2200)

    def f(x):
        y = tg.ones(len(x))
        for i in range(1, 1500):
            y[i] = np.sin(x[i]) * y[i - 1]
        return np.sum(y * y)

    np.testing.assert_allclose(tg.compile(tg.grad(f))(x), tg.grad(f)(x), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 3, 64])
def test_whole_numbers_of_floats(dtype, n):
    """NumPy's integers, also of what is none: a constant, numbers and vectors."""
    some = [
        np.nan,
        np.inf,
        -np.inf,
        1e30,
        -1e30,
        2.0**63,
        -(2.0**63),
        2.0**62,
        2.9,
        -2.9,
        0.0,
        -0.0,
        1.0,
        -7.5,
    ]
    compiled = tg.compile(
        lambda x: (
            x.astype(np.int64),
            x.astype(bool),
            np.full(3, 2.9).astype(int) + x.astype(np.int64)[:1],
        )
    )
    for k in range(len(some)):
        x = np.array([some[(k + i) % len(some)] for i in range(n)], dtype)
        with np.errstate(all="ignore"):
            expected = x.astype(np.int64), x.astype(bool), np.full(3, 2) + x.astype(np.int64)[:1]
            for made, right in zip(compiled(x), expected, strict=True):
                assert made.dtype == right.dtype
                np.testing.assert_array_equal(made, right)


def test_reads_at_whole_numbers_of_floats():
    one = lambda x: x[x[0].astype(int)] * x[1]  # noqa: E731
    many = lambda x: np.sum(x[(x * 3).astype(int)] * x)  # noqa: E731
    for f, x in (
        (one, np.array([2.2, 1.0, 3.0, 4.0])),
        (many, np.random.default_rng(0).uniform(0, 1, 30)),
    ):
        g = tg.compile(tg.grad(f))
        for y in (x, x * 0.6):
            d = 1e-6 * np.cos(np.arange(float(len(y))))
            np.testing.assert_allclose(g(y) @ d, (f(y + d) - f(y - d)) / 2, rtol=1e-7)
            np.testing.assert_allclose(g(y), tg.grad(f)(y), rtol=1e-12, atol=1e-14)
        if platform.machine() in ("x86_64", "AMD64"):
            assert not g.report().calls
        assert not g.report().guards
    with pytest.raises(IndexError):
        tg.compile(tg.grad(one))(np.array([7.2, 1.0, 3.0, 4.0]))
