"""What generated code calls is emitted as instructions: each helper against NumPy, for all layouts that arrays come in."""

import itertools

import numba
import numpy as np
import pytest
from numba.core import event

import tapegrad as tg
from tapegrad.native import emitted, runtime

RNG = np.random.default_rng(5)


def summed(g, shape):
    """g, stretched to a shape or summed down to it."""
    g = np.asarray(g, dtype=float)
    while g.ndim > len(shape):
        g = g.sum(axis=0)
    lone = tuple(
        k - g.ndim for k in range(g.ndim) if shape[len(shape) - g.ndim + k] == 1 != g.shape[k]
    )
    return np.broadcast_to(g.sum(axis=lone, keepdims=True) if lone else g, shape)


def layouts(shape, dtype=float):
    """Arrays of a shape, laid out in every way."""
    given = RNG.integers(-8, 8, shape).astype(dtype)
    yield np.ascontiguousarray(given)
    if len(shape) > 1:
        yield np.asfortranarray(given)
    if shape:
        wide = np.zeros([2 * n + 1 for n in shape], dtype)
        view = wide[tuple(slice(2 * n - 1, None, -2) if n else slice(0, 0) for n in shape)]
        view[...] = given
        yield view


@numba.njit
def add(bar, g):
    emitted.accumulate(bar, g)


# Whole numbers, so that sums are exact in any order.
SHAPES = [
    ((3,), (3,)), ((3,), (1,)), ((1,), (4,)), ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), (1, 3)),
    ((1, 3), (2, 3)), ((2, 1), (2, 3)), ((2, 3), (2, 1)), ((1, 1), (2, 3)), ((2, 3, 4), (3, 1)), ((3, 1), (2, 3, 4)),
    ((2, 3, 4), (2, 3, 4)), ((0,), (0,)), ((0, 2), (0, 2)), ((2, 3), ()), ((), (2, 3)), ((), ()), ((0, 2), (1, 2)),
    ((1, 2), (0, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shape, other", SHAPES, ids=repr)
def test_accumulate(shape, other):
    for bar, g in itertools.product(layouts(shape), layouts(other)):
        before = bar.copy()
        add(bar, g)
        assert np.array_equal(bar, before + summed(g, shape))


def test_accumulate_numbers_and_kinds():
    """A number goes to every element; sums are those of the wider kind, rounded to that of the array."""
    for bar in layouts((2, 3)):
        before = bar.copy()
        add(bar, 2)
        assert np.array_equal(bar, before + 2)
    single = np.array([1.0, 2.0], np.float32)
    add(single, np.array([1e-9, 0.1]))
    assert np.array_equal(single, (np.array([1.0, 2.0]) + [1e-9, 0.1]).astype(np.float32))
    add(single, np.float32(0.5))
    assert single.dtype == np.float32


@numba.njit
def zeros(x, n):
    return emitted.zeros_like(x), emitted.zeros_of(None, n), emitted.zeros_of(2, n)


@pytest.mark.long
def test_zeros():
    for shape in ((3,), (2, 3), (0,), (2, 0, 3), ()):
        for x in layouts(shape):
            like, line, table = zeros(x, 4)
            expected = np.zeros_like(x)
            assert like.shape == x.shape
            assert not like.any()
            assert like.flags.f_contiguous == expected.flags.f_contiguous or x.base is not None
            assert np.array_equal(line, np.zeros(4))
            assert np.array_equal(table, np.zeros((2, 4)))
    assert zeros(np.ones(3, np.float32), 1)[0].dtype == np.float32


@numba.njit
def put_zero(x):
    emitted.clear(x)


@pytest.mark.long
def test_clear():
    """Elements of the array only."""
    for shape in ((4,), (2, 3), (2, 3, 2), (0,), ()):
        for x in layouts(shape):
            x[...] = 1.0
            if x.base is not None:
                x.base[...] = 1.0
            put_zero(x)
            assert not x.any()
            if x.base is not None and x.base.size > x.size:
                assert x.base.sum() == x.base.size - x.size


@numba.njit
def longer(x, n, limit):
    return emitted.grown(x, n, limit)


def test_grown():
    """Twice as long, or as long as asked; its contents stay, and a limit holds."""
    for x in (RNG.normal(size=700), np.arange(1500)):
        for n in (10, 1400, 5000):
            out = longer(x, n, 1 << 40)
            assert out.size == max(2 * x.size, n, 1024)
            assert out.dtype == x.dtype
            assert np.array_equal(out[: x.size], x)
    assert longer(np.ones(1000), 1200, 8 * 1300).size == 1200
    with pytest.raises(MemoryError, match=r"tg\.checkpointed"):
        longer(np.ones(1000), 1200, 8 * 1100)


@pytest.mark.long
def test_names():
    """A program may have variables of these names."""

    @tg.njit
    def f(x):
        least, plus, apart, zeros_like, zeros_of = x[0], x[1], x[2], x[3], x[4]
        at = x[5]
        clear = np.zeros(600)
        for i in range(1, clear.size - 1):
            clear[i] = x[i - 1] * plus + x[i] * least + x[i + 1] * at
        s = 0.0
        for i in range(clear.size):
            s += clear[i] * clear[i]
        return s + apart * zeros_like - zeros_of

    x = RNG.normal(size=600)
    direction = RNG.normal(size=600)
    h = 1e-5
    slope = (f(x + h * direction) - f(x - h * direction)) / (2 * h)
    assert np.isclose(tg.grad(f)(x) @ direction, slope, rtol=1e-7)


@pytest.mark.long
def test_functions_of_numpy_are_compiled_once(monkeypatch, tmp_path):
    """For the function itself, for its types and for its adjoint, where no other process has left them."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))

    class Compiled(event.Listener):
        def on_start(self, event):
            self.seen.append(str(event.data["dispatcher"]))

        def on_end(self, event):
            pass

    @tg.njit(mode="adjoint")
    def f(x):
        y = np.empty(x.size)
        y[:] = x
        return np.sum(y * x)

    listener = Compiled()
    listener.seen = []
    with event.install_listener("numba:compile", listener):
        assert f(np.ones(3)) == 3.0
        np.testing.assert_allclose(tg.grad(f)(np.ones(3)), [2.0, 2.0, 2.0])
    assert any("f_adjoint" in told for told in listener.seen)
    for name in ("ol_np_empty", "array_sum"):
        assert len([told for told in listener.seen if name in told]) <= 1


def chosen(x, q):
    """An array that one branch reads whole, and the code behind reads an entry of."""
    v = x * 0.5
    before = x[0] if q < 0.0 else np.dot(v, x)
    return before - v[2] * q


@pytest.mark.parametrize("q", [-0.7, 0.7])
def test_a_branch_adds_to_the_cotangent_of_an_array(q):
    """What the code behind the branch gave back was overwritten, where the branch was the first to see the whole array."""
    x = np.array([0.3, -1.2, 0.8])
    expected = (np.eye(3)[0] if q < 0.0 else x) - 0.5 * q * np.eye(3)[2]
    for mode in ("adjoint", "auto"):
        np.testing.assert_allclose(tg.grad(tg.njit(mode=mode)(chosen))(x, q), expected, rtol=1e-14)


def bound_twice(a, b):
    c = np.sin(b)
    for _ in range(2):
        c = 0.6 * a
        c = b + 0.2 * c * b
    return c


def test_two_array_expressions_may_have_one_name():
    """Numba fused the second with what it had removed of the first: an error, or of arrays of one element an array of none."""
    compiled = runtime.outer({"error_model": "numpy"}, uniform=True)(bound_twice)
    for n in (1, 5):
        a, b = np.linspace(0.2, 1.3, n), np.linspace(1.0, 0.4, n)
        np.testing.assert_allclose(compiled(a, b), bound_twice(a, b), rtol=1e-15)


@pytest.mark.long
def test_an_adjoint_in_which_two_array_expressions_have_one_name():
    def f(x, y):
        a, b, c = x.copy(), np.sin(y), np.sin(y)
        s = 0.0
        for _ in range(2):
            v = c[1:4]
            v[0] = 0.5 * v[1] + c[3]
            s += np.sum(v * v)
            c = 0.6 * a + 0.2 * a * a
            c = 0.6 * b + 0.2 * c * b
        for _ in range(2):
            c[:] = 0.3 * np.sin(b)
            c = a
            a[1:] += 0.3 * c[:-1]
        return s + np.sum(a) + np.sum(c * b)

    x, y = np.linspace(0.2, 1.3, 5), np.linspace(1.0, 0.4, 5)
    assert tg.check_gradient(tg.njit(f, mode="adjoint"), x, y, argnums=(0, 1)).ok
