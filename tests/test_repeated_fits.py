"""Repeated fits of one model by `curve_fit`: compiled once they have cost enough, never stale, and never told apart from eager fits."""

import gc
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.interop import promotion
from tapegrad.interop.repeated_fits import fits_of
from tests.test_compiled_surroundings import SCENES, X

T = np.linspace(0.0, 3.0, 20)
Y = 2.0 * np.exp(-1.3 * T) + 0.1
START = [1.0, 1.0]
OFFSET = 0.0


@pytest.fixture
def soon(monkeypatch):
    """Models are compiled at the second fit, and not given up for what that takes."""
    monkeypatch.setattr(promotion, "LEAST", -1.0)
    monkeypatch.setattr(promotion, "PATIENCE", 0.0)
    monkeypatch.setattr(promotion, "PRICE", 1e9)


def decay(t, a, k):
    return a * np.exp(-k * t)


def known(f, data=(T, Y, None), **settings):
    return fits_of(f, 2, data, settings)


def same(f, *args, **settings):
    """A fit of `f`, after it was compared with an eager one."""
    fit = tg.curve_fit(f, *args, **settings)
    for ours, eager in zip(fit, tg.curve_fit(f, *args, compile=False, **settings), strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_allclose(ours, eager, rtol=1e-5, atol=1e-12)
    return fit


def test_fits_by_programs_are_those_of_the_function(soon):
    def model(t, a, k):
        return a * np.exp(-k * t)

    for factor in (1.0, 1.5, 3.0):
        same(model, T, factor * Y, START)
        same(model, T, factor * Y, START, sigma=np.linspace(1.0, 2.0, 20), full_output=True)
        same(model, T, factor * Y, START, bounds=(0.0, [1.5, 5.0]))
        same(model, T[:15], factor * Y[:15], START)
        same(model, T.reshape(4, 5)[:, ::2], factor * Y.reshape(4, 5)[:, ::2], START)
    assert known(model).compiled is not None and not known(model).why


def test_few_fits_compile_nothing():
    def model(t, a, k):
        return a * np.exp(-k * t)

    for _ in range(3):
        tg.curve_fit(model, T, Y, START)
    assert known(model).compiled is None and not known(model).why


@pytest.mark.parametrize("name", sorted({*SCENES} - {"a_queue"}))  # whose items one fit would take
def test_what_a_model_reads_is_never_stale(name, soon):
    """The table of ways in which what a function sees can change: after each change, a fit is the eager one of a twin."""
    (f, changes), (twin, same_changes) = SCENES[name](), SCENES[name]()

    def model(t, a, k):
        return a * np.exp(-k * t) * f(X)

    def plain(t, a, k):
        return a * np.exp(-k * t) * twin(X)

    for change, same_change in zip(
        [lambda: None, lambda: None, *changes], [lambda: None] * 2 + same_changes, strict=True
    ):
        change()
        same_change()
        for y in (Y, 1.1 * Y):
            expected = tg.curve_fit(plain, T, y, START, compile=False)[0]
            np.testing.assert_allclose(tg.curve_fit(model, T, y, START)[0], expected, rtol=1e-6)


def test_other_code_and_defaults_are_seen(soon):
    def model(t, a, k, offset=0.0):
        return a * np.exp(-k * t) + offset

    for _ in range(2):
        same(model, T, Y, START)
    model.__defaults__ = (0.05,)
    same(model, T, Y, START)
    model.__code__ = (lambda t, a, k, offset=0.0: a * np.exp(-2 * k * t) + offset).__code__
    same(model, T, Y, START)
    for offset in (0.0, 0.1, 0.2):  # one code, other defaults
        same(lambda t, a, k, by=offset: a * np.exp(-k * t) + by, T, Y, START)
    for offset in (0.0, 0.1, 0.2):  # one code, other variables
        same(lambda t, a, k: a * np.exp(-k * t) + offset, T, Y, START)


def test_what_no_guard_sees_is_found_by_comparison(soon, monkeypatch):
    """A function of NumPy's that is replaced, and a look at the kind of the data, which a program has as tensors."""

    def model(t, a, k):
        return a * np.exp(-k * t)

    def looking(t, a, k):
        return a * np.exp(-k * (t if hasattr(t, "requires_grad") else t + 0.1))

    for _ in range(2):
        same(looking, T, Y, START)
        same(model, T, Y, START)
    assert "something else" in known(looking).why
    exp = np.exp
    monkeypatch.setattr(np, "exp", lambda x: exp(2 * x))
    same(model, T, Y, START)
    assert "something else" in known(model).why


def test_a_model_that_does_more_than_compute_runs_each_time(soon):
    seen = []

    def model(t, a, k):
        seen.append(1)
        return a * np.exp(-k * t)

    counts = []
    for _ in range(3):
        before = len(seen)
        tg.curve_fit(model, T, Y, START)
        counts.append(len(seen) - before)
    assert len(set(counts)) == 1 and "list" in known(model).why


def test_a_helper_that_gets_effects_later_runs_each_time(soon):
    seen, helper = [], np.exp

    def model(t, a, k):
        return a * helper(-k * t)

    for _ in range(2):
        same(model, T, Y, START)
    assert known(model).compiled is not None

    def helper(x):  # noqa: F811
        seen.append(1)
        return np.exp(x)

    tg.curve_fit(model, T, Y, START)
    assert "list" in known(model).why and len(seen) > 10


def test_errors_are_those_of_the_function(soon):
    def model(t, a, k):
        if a < 0:
            raise ValueError("a is negative")
        return a * np.exp(-k * t)

    for _ in range(2):
        tg.curve_fit(model, T, Y, START)
    with pytest.raises(ValueError, match="a is negative"):
        tg.curve_fit(model, T, Y, [-1.0, 1.0])
    with pytest.raises(ValueError, match="nan or inf"):
        tg.curve_fit(model, T, Y, [np.nan, 1.0])
    same(model, T, Y, START)
    assert known(model).compiled is not None


def test_a_tensor_that_is_tracked_later_has_its_gradient(soon):
    offset = tg.tensor(0.1)
    scope = {"np": np, "offset": offset}
    exec("def model(t, a, k): return a * np.exp(-k * t) + offset", scope)
    for _ in range(2):
        same(scope["model"], T, Y, START)
    assert known(scope["model"]).compiled is not None
    offset.requires_grad_()
    fit, _ = tg.curve_fit(scope["model"], T, Y, START)
    fit[0].backward()
    expected = [
        tg.curve_fit(lambda t, a, k: decay(t, a, k) + c, T, Y, START)[0][0]
        for c in (0.1 + 1e-5, 0.1 - 1e-5)
    ]
    np.testing.assert_allclose(offset.grad, (expected[0] - expected[1]) / 2e-5, rtol=1e-5)


def test_data_and_models_are_freed(soon):
    def made():
        big = np.linspace(0.0, 1.0, 20)

        def model(t, a, k):
            return a * np.exp(-k * t) + 0.0 * big

        for _ in range(3):
            tg.curve_fit(model, T, Y, START)
        assert known(model).compiled is not None
        return weakref.ref(big), weakref.ref(model)

    left = made()
    gc.collect()
    assert [r() for r in left] == [None, None]


def test_what_keeps_changing_and_what_never_pays_stays_eager(soon, monkeypatch):
    global OFFSET

    def model(t, a, k):
        return a * np.exp(-k * t) + OFFSET

    for i in range(12):
        OFFSET = 0.01 * i
        same(model, T, Y, START)
    assert "keeps changing" in known(model).why
    monkeypatch.setattr(promotion, "PRICE", 1e-6)

    def other(t, a, k):
        return a * np.exp(-k * t) + 0.0

    for n in range(6, 20):
        same(other, T[:n], Y[:n], START)
    assert known(other).why == "its programs took longer than it did itself"


def test_who_looks_at_evaluations_sees_them_all(soon):
    def model(t, a, k):
        return a * np.exp(-k * t)

    for _ in range(2):
        tg.curve_fit(model, T, Y, START)
    with np.errstate(all="raise"):
        assert known(model) is None
        tg.curve_fit(model, T, Y, START)
    with tg.debug_nans():
        assert known(model) is None
