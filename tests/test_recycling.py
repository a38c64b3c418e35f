"""Small results of compiled programs lie in arrays that are used again, which nobody who has one may notice."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler.entrance import MOST_RECYCLED

X = np.arange(1.0, 5.0)


@pytest.fixture
def doubled():
    f = tg.compile(lambda x: x * 2.0)
    for _ in range(3):
        f(X)
    return f


def test_used_again(doubled):
    """Without it the law of the others would hold for nothing."""
    places = {doubled(X).ctypes.data for _ in range(20)}
    assert len(places) <= 2
    result = doubled(X)
    for _ in range(20):
        result = doubled(result / 2.0)
    np.testing.assert_array_equal(result, X * 2)


def test_held_results_stay(doubled):
    results = [doubled(X + i) for i in range(50)]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, (X + i) * 2)


def test_its_own_result_as_argument(doubled):
    np.testing.assert_array_equal(doubled(doubled(doubled(X))), X * 8)
    pair = tg.compile(lambda xs: [xs[0] + xs[1], xs[0] - xs[1]])
    state = [X, X * 0]
    for _ in range(4):
        state = pair(state)
    np.testing.assert_array_equal(state[0], X * 4)
    np.testing.assert_array_equal(state[1], X * 0)


@pytest.mark.parametrize(
    "kept",
    [
        lambda a: a[1:],
        lambda a: a.reshape(2, 2).T,
        memoryview,
        lambda a: np.frombuffer(a, np.uint8),
        lambda a: np.from_dlpack(a),
        lambda a: tg.from_numpy(a),
        lambda a: iter(a),
    ],
)
def test_what_shares_memory_keeps_it(doubled, kept):
    things = [kept(doubled(X)) for _ in range(3)]
    for i in range(6):
        doubled(X * i - 7)
    for thing in things:
        expected = kept(X * 2)
        np.testing.assert_array_equal(
            *(list(t) if hasattr(t, "__next__") else np.asarray(t) for t in (thing, expected))
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.setflags(write=False),
        lambda a: a.__setattr__("shape", (2, 2)),
        lambda a: a.__setattr__("dtype", np.int64),
        lambda a: a.resize(2, refcheck=False),
        lambda a: a.fill(np.nan),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_changed_is_not_given_out(doubled, change):
    for _ in range(3):
        change(doubled(X))
        result = doubled(X)
        assert result.shape == (4,) and result.dtype == np.float64 and result.flags.writeable
        np.testing.assert_array_equal(result, X * 2)


def test_what_is_referred_to_weakly_is_not_given_out(doubled):
    """A cache of weak references finds the array that it knew, or none."""
    first = weakref.ref(doubled(X))
    for _ in range(5):
        doubled(-X)
    assert first() is None or first()[0] == 2.0


@pytest.mark.long
def test_end_of_a_program():
    """Arrays go with their program."""
    f = tg.compile(lambda x: x * 2.0)
    f(X)
    f(X)
    reference = weakref.ref(f(X))
    assert reference() is not None
    del f
    gc.collect()
    assert reference() is None


def test_large_results_are_new():
    f = tg.compile(lambda x: x * 2.0)
    x = np.ones(MOST_RECYCLED // 8 + 1)
    f(x)
    reference = weakref.ref(f(x))
    assert reference() is None


@pytest.mark.long
def test_threads():
    """Nobody gets what another thread has."""
    f = tg.compile(lambda x: np.sin(x) * 2.0)
    f(X)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(2000):
            x = rng.normal(size=4)
            a, b, c = f(x), f(x + 1), f(x + 2)
            for i, y in enumerate((a, b, c)):
                if not np.allclose(y, np.sin(x + i) * 2):
                    wrong.append(y)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
