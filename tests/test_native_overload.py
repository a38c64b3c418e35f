"""The second engine of native functions: overloading against differences, against the adjoint engine, and where only it has code.

Programs are those of `native_programs`; TAPEGRAD_OVERLOAD_PROGRAMS=all runs every one of them (some minutes), instead of the chosen ones.
"""

from __future__ import annotations

import math
import os
import re
from collections import namedtuple

import numba
import numpy as np
import pytest

import tapegrad as tg
from tests import native_programs as programs
from tests.native_programs import IDIOMS, X
from tests.seeds import campaigns_but
from tests.test_native import IMPRECISE, LONG, difference

ONLY_HERE = [
    programs.lists,
    programs.recursion,
    programs.dictionary,
    programs.list_of_numbers,
]
"""What no adjoint is generated for (as lists are refused there, or were)."""

CHOSEN = [
    programs.slices,
    programs.swapped_buffers,
    programs.linear_algebra,
    programs.chained_aliases,
    programs.whole_numbers,
    programs.helpers,
    programs.powers,
    programs.math_functions,
    *ONLY_HERE,
]

if os.environ.get("TAPEGRAD_OVERLOAD_PROGRAMS") == "all":
    CHOSEN = list(dict.fromkeys([*(f for f in IDIOMS if f not in IMPRECISE), *CHOSEN]))


def overloaded(f):
    return tg.njit(f, mode="overload")


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but([f for f in CHOSEN if f not in LONG], CHOSEN))
def test_gradient_is_the_derivative(f, rng):
    """<gradient, direction> is the difference quotient of the function as Python runs it, and the value is its value."""
    value, gradient = tg.value_and_grad(overloaded(f))(X.copy())
    d = rng.normal(size=X.size)
    assert np.isclose(value, f(X), rtol=1e-12)
    assert np.isclose(gradient @ d, difference(f, X, d), rtol=1e-8, atol=1e-8)


@pytest.mark.long
def test_engines_and_modes_agree(rng):
    """Adjoint, overloading, and the forward and second-order sweeps of both give the same numbers."""
    f = programs.insertion_sort
    adjoint, other = tg.njit(f, mode="adjoint"), overloaded(f)
    d = rng.normal(size=X.size)
    gradient = tg.grad(adjoint)(X)
    assert np.allclose(tg.grad(other)(X), gradient, rtol=1e-12, atol=1e-12)
    assert np.isclose(tg.jvp(other, (X,), (d,))[1], gradient @ d, rtol=1e-11)
    assert np.allclose(tg.hvp(other)(X, d), tg.hvp(adjoint)(X, d), rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------------------------------------ choosing


@pytest.mark.long
def test_auto_takes_over_where_the_adjoint_refuses():
    f, only = tg.njit(programs.dictionary), tg.njit(programs.dictionary, mode="adjoint")
    assert np.array_equal(tg.grad(f)(X.copy()), [2.0, 0, 0, 0, 0])
    told = f.explain()
    assert told.startswith("engine: overloading, because the adjoint transformation refuses:")
    assert "return d[0] * 2.0" in told or "d = {0: x[0]}" in told or "{0: x[0]}" in told
    assert "def dictionary_overloaded(x, seed_0):" in f.adjoint_source
    with pytest.raises(tg.NotDifferentiable, match="native_programs"):
        tg.grad(only)(X.copy())
    with pytest.raises(ValueError, match="'auto', 'form', 'adjoint' and 'overload'"):
        tg.njit(programs.slices, mode="tape")


def test_auto_prefers_the_form_then_the_adjoint(monkeypatch):
    for form, engine in (("1", "engine: form"), ("0", "engine: adjoint")):
        monkeypatch.setenv("TAPEGRAD_FORM", form)
        f = tg.njit(programs.for_with_break)
        tg.grad(f)(X.copy())
        assert f.explain().startswith(engine)


REFUSED = [
    programs.complex_values,
    programs.drawn_with_active_scale,
    programs.reinterpreted,
    programs.digits,
    programs.single_precision,
]


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_refused_by_file_line_and_expression(f):
    """What has no code is named when it is compiled, never dropped."""
    with pytest.raises(tg.NotDifferentiable) as error:
        tg.grad(overloaded(f))(X.copy())
    text = str(error.value)
    line = f.__code__.co_firstlineno
    assert text.startswith(f'File "{programs.__file__}"')
    assert re.search(r"\. \[[a-z-]+\]$", text)
    assert line < int(text.split("line ")[1].split(":")[0]) < line + 8


def test_snapshots_are_the_adjoints():
    """A function that asks for little memory is not run on a tape that keeps everything."""
    asked = tg.njit(programs.lists, checkpoint="revolve", snapshots=3)
    with pytest.raises(tg.NotDifferentiable, match="no way back from snapshots"):
        tg.grad(asked)(X.copy())


def test_both_reasons_are_told_where_both_refuse():
    with pytest.raises(
        tg.NotDifferentiable, match=r"frexp[\s\S]*Nor can it be differentiated by over"
    ):
        tg.grad(tg.njit(programs.digits))(X.copy())


# ---------------------------------------------------------------------------------------- arguments and results


@numba.njit
def filled(x, y, work, k):
    """Numbers, an array that is copied and written to, a count; several results."""
    work = work.copy()
    kept = [y]
    for i in range(x.size):
        work[i] = work[i] * x[i] + y**k
        kept.append(work[i])
    return kept[1] * kept[-1], work * x, k


@pytest.mark.long
def test_arguments_and_results_on_tensors():
    """Several results and operands of every kind, as one entry of a tape."""
    f = tg.njit(filled, mode="overload")
    x, y, work = X[:3].copy(), 1.3, np.array([0.5, -1.0, 2.0])
    weights = np.array([1.0, 2.0, 3.0])

    def plain(both):
        first, out, _ = filled.py_func(both[:3], both[3], both[4:], 2)
        return first + out @ weights

    def whole(x, y, work):
        first, out, count = f(x, y, work, 2)
        assert count == 2
        return first + np.sum(out * weights)

    gradients = tg.grad(whole, (0, 1, 2))(x, y, work)
    d = np.linspace(-1, 1, 7)
    expected = difference(plain, np.concatenate((x, [y], work)), d)
    assert np.isclose(np.concatenate([np.ravel(g) for g in gradients]) @ d, expected, rtol=1e-9)


@pytest.mark.long
def test_arguments_written_in_place():
    """The gradient is by the values on entry, and the caller's arrays stay as they are."""
    f = tg.njit(written_to, mode="overload")
    x, work = X.copy(), np.arange(1.0, 6.0)
    by_x, by_work = tg.grad(f, (0, 1))(x, work)
    assert np.array_equal(by_x, [0, 2.0 * X[1] * 2.0, 0, 0, 0])
    assert np.array_equal(by_work, [0, X[1] ** 2, 0, 0, 0])
    assert np.array_equal(x, X) and np.array_equal(work, np.arange(1.0, 6.0))
    with pytest.raises(tg.NotDifferentiable, match="work, which shares memory with x"):
        tg.grad(f)(x, x)
    with pytest.raises(tg.NotDifferentiable, match="writes to its argument work"):
        f(tg.tensor(X, requires_grad=True), work)


def written_to(x, work):
    kept = [x[1]]
    work[1] = work[1] * x[1]
    return kept[0] * work[1]


Settings = namedtuple("Settings", ["rate", "table"])


@pytest.mark.long
def test_tuples_of_arrays_as_settings():
    @tg.njit(mode="overload")
    def f(x, settings, pair):
        settings.table[0] = settings.table[0] * x[0]
        return settings.table[0] * settings.rate * pair[1][1]

    given = Settings(2.0, np.array([3.0, 4.0])), (1, np.array([5.0, 6.0]))
    assert np.array_equal(tg.grad(f)(X.copy(), *given), [36.0, 0, 0, 0, 0])
    assert given[0].table[0] == 3.0


@pytest.mark.long
def test_custom_rules():
    """A helper's own derivative is used, and differentiated for the second; where its result is an array, it is refused."""

    def root(a, weights):
        s = a
        for _ in range(60):
            s = 0.5 * (s + a / s)
        return s * weights[1]

    def root_vjp(g, out, a, weights):
        bar = np.zeros_like(weights)
        bar[1] = g * out / weights[1]
        return g * out / (2 * a), bar

    custom = tg.njit_vjp(root, root_vjp)

    @tg.njit(mode="overload")
    def f(x):
        return custom(x[1], x) * x[0]

    expected = lambda x: np.sqrt(x[1]) * x[1] * x[0]  # noqa: E731
    d = np.linspace(1, -1, 5)
    assert np.isclose(tg.grad(f)(X.copy()) @ d, difference(expected, X, d), rtol=1e-9)
    assert np.isclose(tg.jvp(f, (X,), (d,))[1], difference(expected, X, d), rtol=1e-9)
    assert np.allclose(tg.hvp(f)(X, d), difference(tg.grad(f), X, d), rtol=1e-8, atol=1e-8)
    twice = tg.njit_vjp(lambda a: a * 2.0, lambda g, out, a: (g * 2.0,))

    @tg.njit(mode="overload")
    def g(x):
        return twice(x)[0]

    with pytest.raises(tg.NotDifferentiable, match="custom rule with a result that is no number"):
        tg.grad(g)(X.copy())


# -------------------------------------------------------------------------------------------- numbers and memory


@pytest.mark.long
def test_a_cotangent_of_zero_stays_zero_against_infinite_partials():
    """sqrt(x)**2 at 0 has the gradient 0, as in every engine (`primitive.strong`); so has what no result depends on."""

    @tg.njit(mode="overload")
    def f(x):
        root = math.sqrt(x[0])
        unused = math.sqrt(x[1])
        return root * root + 0.0 * x[2] + (unused if x[3] > 100.0 else 0.0)

    gradient = tg.grad(f)(np.array([0.0, 0.0, 1.0, 1.0]))
    assert np.array_equal(gradient, np.zeros(4))


@pytest.mark.long
def test_the_tape_grows_is_bounded_and_is_given_back():
    def long(x):
        kept = [x[0]]
        for _ in range(20000):
            kept[0] = math.sin(kept[0])
        return kept[0]

    with pytest.raises(MemoryError, match="TAPEGRAD_NATIVE_LIMIT"):
        tg.grad(tg.njit(long, mode="overload", memory_limit=50_000))(X.copy())
    f = overloaded(long)
    slope = tg.grad(f)(X.copy())[0]
    assert np.isclose(slope, difference(long, X, np.eye(5)[0]), rtol=1e-7)
    assert "operations on it, 32 bytes each" in f.explain()
    assert f.explain().endswith("20005 numbers on the tape in the last run")
    from tapegrad import native

    assert native.kept_bytes() >= 20000 * 24
    native.release_memory()
    assert native.kept_bytes() == 0
    assert tg.grad(f)(X.copy())[0] == slope


@pytest.mark.long
def test_a_copy_where_numba_makes_one():
    """np.ascontiguousarray of every other element is memory of its own."""

    def f(x):
        y = x * 2.0
        w = np.ascontiguousarray(y[::2])
        w[0] = 5.0
        return np.sum(y)

    native = tg.njit(f, mode="overload")
    value, gradient = tg.value_and_grad(native)(np.array([0.3, 1.4, 0.7]))
    assert value == f(np.array([0.3, 1.4, 0.7]))
    assert np.all(gradient == 2.0)


@pytest.mark.parametrize("word", ["asfortranarray", "ascontiguousarray", "ravel"])
def test_what_shares_memory_by_the_layout_of_an_argument_is_refused(word):
    """Carriers lie in C order, so there another store would reach the array."""
    space = {"np": np}
    exec(f"def f(x):\n    w = np.{word}(x * 1.0)\n    w[0] = 2.0\n    return np.sum(w)\n", space)
    native = tg.njit(space["f"], mode="overload")
    with pytest.raises(tg.NotDifferentiable, match=rf"Write .copy\(\) behind {word}"):
        tg.grad(native)(np.asfortranarray(np.ones((2, 3))))
