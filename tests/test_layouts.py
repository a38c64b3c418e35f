"""Whether a view of an array shares its memory follows from how the array lies in memory: a store through it says so, in every engine.

Each program makes an array of its argument, takes it apart in one of NumPy's ways that copy only where they must, and stores into what
it got. Its values are NumPy's, in transforms and compiled; the third compiled call has other values and, in the last test, another layout.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import storage
from tests.fuzz.program import LAYOUTS

OWNERS = {
    "itself": lambda x: x,
    "negative": lambda x: -x,
    "copy": lambda x: np.copy(x[::-1]),
    "copy in C order": lambda x: x.T.copy(),
    "np.array(order=F)": lambda x: np.array(x, order="F"),
    "np.array(order=C)": lambda x: np.array(x, order="C"),
    "transposed": lambda x: (x * 2.0).T,
    "flipped": lambda x: (x * 2.0)[::-1],
    "every other column": lambda x: (x * 2.0)[..., ::2],
    "one column": lambda x: (x * 2.0)[..., :1],
    "one row": lambda x: (x * 2.0)[:1],
    "a row": lambda x: (x * 2.0)[0],
    "a column": lambda x: (x * 2.0)[..., 0],
}
VIEWS = {
    "ravel": lambda v: np.ravel(v),
    "method ravel": lambda v: v.ravel(),
    "ravel in F order": lambda v: v.ravel("F"),
    "ravel of the transposed": lambda v: v.T.ravel(),
    "reshape": lambda v: v.reshape(-1),
    "reshape in F order": lambda v: np.reshape(v, -1, order="F"),
    "ascontiguousarray": lambda v: np.ascontiguousarray(v),
    "asfortranarray": lambda v: np.asfortranarray(v),
    "asarray": lambda v: np.asarray(v),
    "asarray in C order": lambda v: np.asarray(v, order="C"),
    "asarray in F order": lambda v: np.asarray(v, order="F"),
    "asanyarray in F order": lambda v: np.asanyarray(v, order="F"),
    "asarray in either order": lambda v: np.asarray(v, order="A"),
    "asarray, copied": lambda v: np.asarray(v, copy=True),
    "array": lambda v: np.array(v),
    "array, perhaps copied": lambda v: np.array(v, copy=None),
    "array in C order": lambda v: np.array(v, order="C", copy=None),
    "array of three axes": lambda v: np.array(v, copy=None, ndmin=3),
    "squeeze": lambda v: np.squeeze(v),
    "atleast_1d": lambda v: np.atleast_1d(v),
    "atleast_2d": lambda v: np.atleast_2d(v),
    "atleast_3d": lambda v: np.atleast_3d(v),
    "flatten": lambda v: v.flatten(),
    "copy": lambda v: np.copy(v),
    "astype": lambda v: v.astype(float, copy=False),
}  # fmt: skip


def program(owner, view):
    def f(x):
        v = owner(x)
        w = view(v)
        w[0] = 2.5 * w[-1] + 1.0
        return v * 1.0, w * 1.0

    return f


def numpys(f, x):
    """NumPy's results; None where the argument itself would be written."""
    given = x if 0 in x.strides else storage.twin(x)
    before = given.copy()
    try:
        results = f(given)
    except (ValueError, IndexError):  # a stretched array is read-only, a number has no entries
        return None
    return results if np.array_equal(given, before) else None


def weighted(results):
    return sum(np.sum(r * np.cos(1.0 + k + np.arange(r.size).reshape(r.shape))) for k, r in enumerate(results))  # fmt: skip


def equal(got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("owner", OWNERS)
def test_a_store_reaches_what_it_reaches_in_numpy(owner, view):
    f = program(OWNERS[owner], VIEWS[view])
    met = 0
    for shape in ((4,), (3, 4), (2, 3, 2)):
        x = np.random.default_rng(0).uniform(0.5, 1.0, shape)
        for name, laid in LAYOUTS.items():
            given = laid(x)
            expected = numpys(f, given)
            if expected is None:
                continue
            met += 1
            values, tangents = tg.jvp(f, (given,), (np.ones(shape),))
            equal(values, expected)
            value, gradient = tg.value_and_grad(lambda x: weighted(f(x)))(given)
            np.testing.assert_allclose(value, weighted(expected), rtol=1e-12)
            # <w, J 1> = <J' w, 1>: a store that went elsewhere has another derivative, too.
            np.testing.assert_allclose(np.sum(gradient), weighted(tangents), rtol=1e-12, atol=1e-12)
            if len(shape) == 2 and name in ("C", "F", "strided", "flipped"):
                c = tg.compile(f)
                for scale in (1.0, 2.0, 3.0):
                    again = laid(scale * x)
                    equal(c(again), numpys(f, again))
    assert met or owner == "itself"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("owner", ["negative", "copy", "every other column", "a row"])
def test_compiled_programs_know_the_layout_of_a_call(owner, view):
    f = program(OWNERS[owner], VIEWS[view])
    x = np.random.default_rng(1).uniform(0.5, 1.0, (3, 4))
    c = tg.compile(f)
    g = tg.compile(tg.grad(lambda x: weighted(f(x))))
    for scale in (1.0, 2.0, 3.0):
        for name in ("C", "F", "flipped", "strided", "broadcast"):
            given = LAYOUTS[name](scale * x)
            equal(c(given), numpys(f, given))
            np.testing.assert_allclose(
                g(given), tg.grad(lambda x: weighted(f(x)))(given), rtol=1e-12
            )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("owner", OWNERS)
def test_entries_of_a_batch_lie_as_arrays_of_their_own(owner, view):
    f = program(OWNERS[owner], VIEWS[view])
    xs = np.random.default_rng(2).uniform(0.5, 1.0, (3, 3, 4))
    expected = [numpys(f, x) for x in xs]
    if expected[0] is not None:
        for mapped in (tg.vmap(f), tg.compile(tg.vmap(f))):
            for _ in range(2):
                equal(mapped(xs), [np.stack(r) for r in zip(*expected, strict=True)])


FILLED = {
    "dot with a number": lambda x: np.dot(x, 2.0),
    "inner of a number": lambda x: np.inner(2.0, x),
    "sort": lambda x: np.sort(x, axis=0),
    "sort, backwards": lambda x: np.sort(x)[::-1],
    "partition": lambda x: np.partition(x, 1, axis=-1),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x, axis=-1),
    "subtract.accumulate": lambda x: np.subtract.accumulate(x),
    "nancumsum": lambda x: np.nancumsum(x, axis=1),
    "nansum": lambda x: np.nansum(x, axis=-1),
    "gradient": lambda x: np.gradient(x, axis=0),
    "piecewise": lambda x: np.piecewise(x, [x > 0.7], [lambda t: t * t, lambda t: 0.5 * t]),
    "polyval": lambda x: np.polyval([0.2, -0.3, 0.1], x),
    "delete": lambda x: np.delete(x, 0, axis=1),
    "insert": lambda x: np.insert(x, 1, 0.5, axis=0),
    "pad": lambda x: np.pad(x, 1),
    "pad by ones": lambda x: np.pad(x, (1, 0), constant_values=1.0),
    "pad at the edge": lambda x: np.pad(x, 1, mode="edge"),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "solve": lambda x: np.linalg.solve(x @ np.swapaxes(x, -1, -2) + np.eye(3), x),
    "median": lambda x: np.median(x, axis=1),
    "median, kept": lambda x: np.median(x, axis=0, keepdims=True),
    "cumulative_sum": lambda x: np.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda x: np.cumulative_prod(x, axis=0, include_initial=True),
}  # fmt: skip
"""Functions that NumPy fills a new array for, in an order that follows from their operand's.

Others of NumPy's have an order that its documentation leaves open, and that follows from how they are written: `einsum` lets its
iterator choose, by sizes and gaps of all operands; `nanmedian` goes by masked arrays; of a stack, `qr` gives R as it came from the
loop over matrices. Results of these lie in C order here.
"""


@pytest.mark.parametrize("name", FILLED)
def test_what_is_filled_lies_as_in_numpy(name):
    flat = program(FILLED[name], VIEWS["reshape"])
    turned = program(lambda x: FILLED[name](x).T, VIEWS["reshape"])
    c = [tg.compile(flat), tg.compile(turned)]
    for shape in ((3, 4), (2, 3, 2)):
        x = np.random.default_rng(4).uniform(0.5, 1.0, shape)
        for layout, laid in LAYOUTS.items():
            given = laid(x)
            for f, compiled in zip((flat, turned), c, strict=True):
                expected = numpys(f, given)
                equal(tg.jvp(f, (given,), (given,))[0], expected)
                if layout in ("C", "F", "broadcast") and len(shape) == 2:
                    for scale in (1.0, 1.1):
                        equal(compiled(laid(scale * x)), numpys(f, laid(scale * x)))


def test_a_program_that_asks_for_the_layout_is_traced_for_each():
    def f(x):
        v = tg.as_tensor(x).T
        return np.sum(v) if v.is_contiguous() else np.sum(v * v)

    x = np.random.default_rng(3).uniform(0.5, 1.0, (3, 4))
    c = tg.compile(f)
    for scale in (1.0, 2.0, 3.0):
        for laid in (np.ascontiguousarray, np.asfortranarray):
            np.testing.assert_allclose(c(laid(scale * x)), f(laid(scale * x)), rtol=1e-12)


def test_a_plain_copy_of_a_traced_value_cannot_be_written():
    def f(x):
        v = x * 2.0
        np.require(v)[0] = 1.0  # in NumPy this writes v
        return v

    with pytest.raises(tg.TraceError, match="plain array of a traced value"):
        tg.compile(f)(np.ones(3))


def test_copy_false_is_refused_where_only_a_copy_would_do():
    def f(x, order):
        v = np.array((x * 2.0).T, order=order, copy=False)
        v[0] = 0.0
        return np.sum(v)

    with pytest.raises(ValueError, match="copy=False"):
        tg.grad(f)(np.ones((2, 3)), "C")
    np.testing.assert_array_equal(tg.grad(f)(np.ones((2, 3)), "F"), [[0, 2, 2], [0, 2, 2]])


STRIDES = [
    np.arange(24.0).reshape(2, 3, 4)[:, ::-1, ::2],
    np.arange(24.0).reshape(2, 3, 4).T[::-1],
    np.broadcast_to(np.arange(4.0)[::-1], (3, 4)),
    np.broadcast_to(np.arange(8.0)[::2, None], (2, 4, 3)),
    np.lib.stride_tricks.sliding_window_view(np.arange(5.0), 3),
    np.arange(24.0).reshape(4, 6)[1:3, 2:3],
    np.arange(5.0)[::-2],
    np.arange(6.0).reshape(2, 3)[:0],
    np.array(3.0),
]


@pytest.mark.parametrize("array", STRIDES, ids=lambda x: f"{x.shape}{x.strides}")
def test_a_twin_lies_as_its_array(array):
    twin = storage.twin(array)
    np.testing.assert_array_equal(twin, array)
    assert not np.shares_memory(twin, array)
    assert twin.flags.c_contiguous == array.flags.c_contiguous
    assert twin.flags.f_contiguous == array.flags.f_contiguous
    # A view of the one is a view of the other.
    array, twin = array[..., None], twin[..., None]
    lengths = [s for s in np.ndindex(*(array.size + 1,) * 2) if s[0] * s[1] == array.size]
    for shape in [(-1,), *lengths]:
        for order in "CF":
            shared = [np.shares_memory(a, a.reshape(shape, order=order)) for a in (array, twin)]
            assert shared[0] == shared[1]
    for function in (np.negative, np.copy, lambda a: a + a.T[..., :1].T):
        made = [function(a) for a in (array, twin)]
        assert made[0].strides == made[1].strides


PAD_MODES = ["constant", "wrap", "edge", "reflect", "symmetric", "linear_ramp", "mean", "maximum"]
PADDED = {
    "part of a transposed one": lambda x: x.T[1:],
    "transposed": lambda x: x.T,
    "rows": lambda x: x,
    "a column": lambda x: x[:1].T,
    "backwards": lambda x: x[::-1],
}


@pytest.mark.parametrize("of", PADDED.values(), ids=PADDED)
@pytest.mark.parametrize("mode", PAD_MODES)
def test_padded_arrays_lie_as_numpys(mode, of):
    """Whether a reshape of one is a view, and a store through it arrives, depends on that."""
    x = np.arange(6.0).reshape(2, 3)
    for widths in (1, 0, ((1, 0), (0, 0))):

        def f(x, widths=widths):
            y = np.pad(of(x), widths, mode=mode)
            y.reshape(-1)[...] *= np.sum(x)
            return y

        expected = np.pad(of(x), widths, mode=mode)
        made = tg.vjp(lambda x, w=widths: np.pad(of(x), w, mode=mode), x)[0]
        assert made.strides == expected.strides
        np.testing.assert_allclose(tg.vjp(f, x)[0], f(x))
        np.testing.assert_allclose(tg.compile(f)(x + 1), f(x + 1))
