"""Native functions: idioms of Numba code, every mode, and what must be refused.

Each idiom is a function of one array (and what else it needs); its gradient is compared with differences of fourth order, its
tangent with its gradient, its second derivative with differences of the gradient.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import subprocess
import sys

import mpmath
import numba
import numpy as np
import pytest
from numba.core import dispatcher

import tapegrad as tg
from bench.native_models import MODELS, inputs
from tapegrad.native import formed, inference, kept_bytes, release_memory, runtime
from tests import native_programs as programs
from tests.native_programs import IDIOMS, REFUSED, X
from tests.seeds import campaigns_but
from tests.test_native_fuzz import interpreted

IMPRECISE = [programs.single_precision]


def difference(f, x, d, h=2e-4):
    """The derivative along d, of fourth order."""
    if f in IMPRECISE:
        h = 1e-2
    at = lambda t: np.asarray(f(x + t * d))  # noqa: E731
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


LONG = [
    programs.linear_algebra,
    programs.tables_and_spectra,
    programs.array_functions,
    programs.places_of_arrays,
    programs.transposed_and_reshaped,
]
"""Programs whose adjoints Numba compiles for seven seconds and more: campaigns do, and Python runs them as they are in every run."""
EACH = [*IDIOMS, programs.tables_and_spectra]


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", campaigns_but([f for f in EACH if f not in LONG], LONG))
def test_gradient_is_the_derivative(f, rng):
    """<gradient, direction> is the difference quotient of the function as Python runs it, and the value is its value.

    Of what goes by the program form, the generated adjoint has the same gradient, as Python runs it.
    """
    native = tg.njit(f)
    value, gradient = tg.value_and_grad(native)(X.copy())
    if isinstance(native.latest, formed.ByForm):
        _, (other,) = interpreted(tg.njit(f, mode="adjoint"), (X.copy(),), (0,))
        assert np.allclose(gradient, other, rtol=1e-6 if f in IMPRECISE else 1e-12, atol=1e-13)
    assert np.isclose(value, f(X), rtol=1e-6 if f in IMPRECISE else 1e-12)
    d = rng.normal(size=X.size)
    tolerance = 3e-4 if f in IMPRECISE else 1e-8
    assert np.isclose(gradient @ d, difference(f, X, d), rtol=tolerance, atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but((programs.chained_aliases, programs.reductions), EACH))
def test_the_compiled_adjoint_has_the_gradient_of_the_form(f):
    native = tg.njit(f)
    gradient = tg.grad(native)(X.copy())
    if not isinstance(native.latest, formed.ByForm):
        pytest.skip("no program of the form: it goes by the generated adjoint as it is")
    other = tg.grad(tg.njit(f, mode="adjoint"))(X.copy())
    assert gradient.dtype == other.dtype
    assert np.allclose(gradient, other, rtol=1e-6 if f in IMPRECISE else 1e-12, atol=1e-13)


SECOND = [
    programs.made_and_overwritten,
    programs.for_with_break,
    programs.slices,
    programs.swapped_buffers,
    programs.helpers,
    programs.insertion_sort,
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f",
    campaigns_but(
        SECOND,
        (
            programs.handed_on,
            programs.masks_of_arrays,
            programs.places_of_arrays,
            programs.rotated_buffers,
            programs.swapped_in_nests,
            programs.swapped_sometimes,
        ),
    ),
)
def test_second_derivatives_agree(f, rng):
    """Forward mode equals reverse; forward over reverse equals differences of the gradient."""
    native = tg.njit(f)
    gradient = tg.grad(native)
    d = rng.normal(size=X.size)
    assert np.isclose(tg.jvp(native, (X,), (d,))[1], gradient(X) @ d, rtol=1e-11)
    assert np.allclose(tg.hvp(native)(X, d), difference(gradient, X, d), rtol=1e-7, atol=1e-7)


# --------------------------------------------------------------------------------------------------- interface


@tg.njit
def mixed(x, k, y, flag=True):
    """Value, array and a count."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = x[i] * y**k if flag else x[i]
    return np.sum(out), out * y, k


@pytest.mark.long
def test_every_transform_takes_it():
    x = X[:3].copy()
    f = tg.njit(lambda_like)
    assert np.allclose(tg.grad(f)(x, 2.0), np.cos(x) * 2.0)
    assert np.isclose(tg.grad(f, 1)(x, 2.0), np.sum(np.sin(x)))
    gx, gy = tg.grad(f, (0, 1))(x, 2.0)
    assert np.allclose(gx, np.cos(x) * 2.0) and np.isclose(gy, np.sum(np.sin(x)))
    value, pull = tg.vjp(f, x, 2.0)
    assert np.allclose(pull(3.0)[0], 6.0 * np.cos(x)) and np.isclose(value, 2.0 * np.sum(np.sin(x)))
    assert np.allclose(tg.hessian(f)(x, 2.0), np.diag(-2.0 * np.sin(x)))
    assert np.allclose(tg.hvp(f)(x, np.ones(3), 2.0), -2.0 * np.sin(x))
    assert np.allclose(tg.jacobian(f, mode="forward")(x, 2.0), np.cos(x) * 2.0)
    assert isinstance(tg.grad(f, 1)(x, 2.0), float)


def lambda_like(x, y):
    s = 0.0
    for v in x:
        s += math.sin(v) * y
    return s


@pytest.mark.long
def test_several_outputs_and_settings():
    x = X[:3].copy()
    total, out, count = mixed(x, 2, 3.0)
    assert (total, count) == (np.sum(x * 9.0), 2) and np.allclose(out, x * 27.0)
    jacobian = tg.jacobian(lambda a, y: mixed(a, 2, y)[1], (0, 1))(x, 3.0)
    assert np.allclose(jacobian[0], np.eye(3) * 27.0) and np.allclose(jacobian[1], x * 27.0)
    assert np.allclose(tg.grad(lambda a: mixed(a, 2, 3.0, flag=False)[0])(x), np.ones(3))


@pytest.mark.long
def test_a_tuple_before_what_is_differentiated():
    """A tuple is several parameters of the generated code; what comes behind it keeps its place."""

    @tg.njit
    def f(pair, x, y):
        return pair[0] * pair[1] * x * x + y

    assert tg.jvp(lambda x, y: f((2.0, 3.0), x, y), (5.0, 7.0), (1.0, 0.0))[1] == 60.0
    assert tg.hvp(lambda x: f((2.0, 3.0), x, 7.0))(5.0, 1.0) == 12.0


def test_a_numba_function_as_it_is():
    x = X.copy()
    plain = numba.njit(lambda_like)
    assert np.allclose(tg.grad(plain)(x, 2.0), 2.0 * np.cos(x))
    assert np.allclose(tg.jvp(plain, (x, 2.0), (np.ones(5), 0.0))[1], np.sum(2.0 * np.cos(x)))


def test_called_from_jitted_code():
    f = tg.njit(lambda_like)

    @numba.njit
    def outer(x):
        return f(x, 2.0) * 3.0

    assert np.isclose(outer(X), 6.0 * np.sum(np.sin(X)))
    assert np.allclose(tg.grad(outer)(X.copy()), 6.0 * np.cos(X))


def test_one_entry_of_the_tape():
    f = tg.njit(lambda_like)
    x = tg.tensor(X, requires_grad=True)
    y = tg.tensor(2.0, requires_grad=True)
    before = len(tg.current_tape())
    z = f(x, y)
    assert len(tg.current_tape()) == before + 1
    (z * z).backward()
    s = np.sum(np.sin(X))
    assert np.allclose(x.grad, 2 * (2 * s) * 2 * np.cos(X)) and np.isclose(y.grad, 2 * (2 * s) * s)


def test_double_backward():
    f = tg.njit(lambda_like)
    x = tg.tensor(X, requires_grad=True)
    (g,) = tg.autograd.grad(f(x, 2.0), x, create_graph=True)
    (h,) = tg.autograd.grad(np.sum(g * g), x)
    assert np.allclose(h, 2 * (2 * np.cos(X)) * (-2 * np.sin(X)))


@pytest.mark.long
def test_third_derivatives():
    """Once more by forward mode over the code of the second; a fourth is refused."""

    @tg.njit
    def f(a, x):
        s = 0.0
        for i in range(x.size):
            s = s * a + x[i] * math.sin(a * x[i])
        return s

    second = tg.grad(tg.grad(f))
    third = tg.grad(second)
    d = np.linspace(-1, 1, 5)
    assert np.isclose(third(0.7, X), difference(lambda a: second(a, X), 0.7, 1.0), rtol=1e-9)

    def bent(x):
        return np.sum(tg.hvp(lambda x: f(0.7, x))(x, d) * np.cos(d))

    assert np.isclose(tg.grad(bent)(X) @ d, difference(bent, X, d), rtol=1e-8)
    with pytest.raises(tg.NotDifferentiable, match="fourth derivative"):
        tg.grad(third)(0.7, X)


def test_untracked_tensors_give_tensors():
    f = tg.njit(lambda_like)
    z = f(tg.tensor(X), 2.0)
    assert isinstance(z, tg.Tensor) and not z.requires_grad


def test_custom_rule():
    def root(a):
        x = a
        for _ in range(60):
            x = 0.5 * (x + a / x)
        return x

    custom = tg.njit_vjp(root, lambda g, out, a: (g / (2 * out),))

    def f(x):
        return custom(x[1]) * x[0]

    assert np.allclose(tg.grad(tg.njit(f))(X.copy()), [np.sqrt(1.7), 0.15 / np.sqrt(1.7), 0, 0, 0])


@pytest.mark.long
def test_custom_rule_that_binds_its_operand_anew(rng):
    """What comes back to the result stops there: only the rule says what the operand gets."""
    product = tg.njit_vjp(lambda a, b: a * b + a, lambda g, out, a, b: (g * (b + 1.0), g * a))
    square = tg.njit_vjp(lambda a: a * a, lambda g, out, a: (2.0 * g * a,))

    def f(x):
        p = x[0]
        y = x * 0.5
        for i in range(3):
            p = product(p, x[i])
            y = square(y)
            p = product(p, p)
        p = product(p, 2.0)
        return p * p + np.sum(y) * p

    def plain(x):
        p, y = x[0], x * 0.5
        for i in range(3):
            p = p * x[i] + p
            y = y * y
            p = p * p + p
        p = p * 2.0 + p
        return p * p + np.sum(y) * p

    x, d = 0.3 * X, rng.normal(size=X.size)
    assert np.isclose(tg.grad(tg.njit(f, mode="adjoint"))(x) @ d, difference(plain, x, d))


@pytest.mark.long
def test_custom_rule_twice():
    """The second derivative goes by the rule as well: the source of the function says something else here."""

    def steps(a):
        return math.floor(a * 1000.0) / 1000.0

    custom = tg.njit_vjp(steps, lambda g, out, a: (g * a,))

    def f(x):
        return custom(x[1]) * x[0] + custom(x[2])

    native = tg.njit(f, mode="adjoint")
    x = np.array([0.5, 2.0, 3.0])
    assert np.array_equal(tg.grad(native)(x), [2.0, 0.5 * 2.0, 3.0])
    assert np.array_equal(tg.hessian(native)(x), [[0, 2.0, 0], [2.0, 0.5, 0], [0, 0, 1.0]])


@pytest.mark.long
@pytest.mark.parametrize("size", [3, 12])
def test_tangents_are_products_with_cotangents(size, rng):
    """Where neither the form nor overloading has them: rules with an array result, short floats, complex numbers."""
    cubed = tg.njit_vjp(lambda a: a * a * a, lambda g, out, a: (g * 3.0 * a * a,))
    x, d = rng.normal(size=(2, size))

    def ruled(x):
        return cubed(x), np.sum(x)

    found = tg.jvp(tg.njit(ruled), (x,), (d,))[1]
    assert np.allclose(found[0], 3.0 * x * x * d) and np.isclose(found[1], np.sum(d))

    def sorted_squares(x):
        y = np.sort(np.abs(x))
        return y * y

    order = np.argsort(np.abs(x))
    short = tg.jvp(tg.njit(sorted_squares), (x.astype(np.float32),), (d.astype(np.float32),))[1]
    assert short.dtype == np.float32 and np.allclose(short, (2.0 * x * d)[order], rtol=1e-4)


@pytest.mark.long
def test_random_numbers_are_constants():
    f = tg.njit(programs.draws)
    value, gradient = tg.value_and_grad(f)(X.copy())
    d = np.ones(5)
    assert np.isclose(value, f(X)) and np.isclose(gradient @ d, difference(f, X, d))
    with pytest.raises(tg.NotDifferentiable, match="draws random numbers"):
        f(tg.tensor(X, requires_grad=True))


@pytest.mark.long
def test_arguments_written_in_place():
    """The gradient is by the values on entry, and the caller's arrays stay as they are."""

    @tg.njit
    def f(x, work):
        for i in range(x.size):
            work[i] = x[i] * work[i]
        x[0] = work[1] * x[0]
        return np.sum(x * work)

    x, work = X.copy(), np.arange(1.0, 6.0)
    gx, gw = tg.grad(f, (0, 1))(x, work)
    assert np.array_equal(x, X) and np.array_equal(work, np.arange(1.0, 6.0))

    def pure(both):
        return f(both[:5].copy(), both[5:].copy())

    d = np.linspace(-1, 1, 10)
    assert np.isclose(np.concatenate((gx, gw)) @ d, difference(pure, np.concatenate((x, work)), d))
    with pytest.raises(tg.NotDifferentiable, match="shares memory"):
        tg.grad(f)(x, x)
    with pytest.raises(tg.NotDifferentiable, match="writes to its argument"):
        f(tg.tensor(X, requires_grad=True), work)


@pytest.mark.long
def test_second_derivatives_by_arguments_written_in_place():
    """Every transform works on copies, whichever runs inside which."""

    @tg.njit
    def f(x):
        x[0] = x[1] * x[0] * x[0]
        return x[2] * x[0] * x[0]

    @tg.njit
    def two(x, work):
        x[0] = work[1]
        return x[0] * x[1]

    def pure(x):
        return x[2] * (x[1] * x[0] * x[0]) ** 2

    x, v = X.copy(), np.cos(X)
    assert np.allclose(tg.hessian(f)(x), tg.hessian(pure)(X))
    assert np.allclose(tg.hvp(f)(x, v), tg.hvp(pure)(X, v))
    assert np.allclose(tg.vjp(f, x)[1](1.0)[0], tg.grad(pure)(X))
    assert np.allclose(tg.jacobian(f)(x), tg.grad(pure)(X))
    assert np.array_equal(x, X)
    # By then they are copies of each other, and no other arrays.
    with pytest.raises(tg.NotDifferentiable, match="cannot be seen whether"):
        tg.hessian(two)(x, x)
    with pytest.raises(tg.NotDifferentiable, match="share memory"):
        tg.vjp(two, x, x)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_a_copy_under_the_name_of_the_argument(mode):
    """What the error about tensors that are written to says to write."""

    @tg.njit(mode=mode)
    def f(x):
        s = x[0] * x[1]
        x = x.copy()
        x[0] = x[1] * x[1]
        return s * x[0]

    x = tg.tensor(X, requires_grad=True)
    f(x).backward()
    assert np.allclose(x.grad, [X[1] ** 3, 3 * X[0] * X[1] ** 2, 0, 0, 0])


@pytest.mark.long
def test_what_can_be_read_of_it():
    f = tg.njit(programs.swapped_buffers, mode="adjoint")
    with pytest.raises(tg.NotDifferentiable, match="no derivative of it has been made"):
        f.explain()
    tg.grad(f)(X.copy())
    assert f.adjoint_source.startswith("def swapped_buffers_adjoint(x, value_seed")
    assert "active" in f.explain() and "held by w" in f.explain()


def test_a_second_compilation_is_read_from_disk():
    """Generated code is kept: another function object of the same text loads it, types included."""
    x = X.copy()
    first, second = (tg.njit(lambda_like, mode="adjoint") for _ in range(2))
    assert np.array_equal(tg.grad(first, 1)(x, 2.5), tg.grad(second, 1)(x, 2.5))
    compiled = second.latest.compiled
    assert sum(compiled.stats.cache_hits.values()) == 1


def test_strided_read_only_and_empty_arrays():
    f = tg.njit(lambda_like)
    wide = np.arange(10.0)
    assert np.allclose(tg.grad(f)(wide[::2], 1.0), np.cos(wide[::2]))
    locked = X.copy()
    locked.flags.writeable = False
    assert np.allclose(tg.grad(f)(locked, 1.0), np.cos(X))
    assert tg.grad(f)(np.empty(0), 1.0).shape == (0,)
    assert tg.grad(f)(X.astype(np.float32), 1.0).dtype == np.float32


@pytest.mark.long
def test_memory_has_a_limit():
    def long(x):
        s = x[0]
        n = 10000
        for _ in range(n):
            s = math.sin(s)
        return s

    release_memory()  # memory that this thread has already is not counted again
    with pytest.raises(MemoryError, match="TAPEGRAD_NATIVE_LIMIT"):
        tg.grad(tg.njit(long, memory_limit=50_000))(X.copy())

    def anew(x, n):
        for _ in range(n):
            x = np.tanh(x)
        return x[0]

    short = tg.njit(anew, memory_limit=50_000)
    assert np.isfinite(tg.grad(short)(X.copy(), 100)).all()
    with pytest.raises(MemoryError, match="snapshots"):
        tg.grad(short)(X.copy(), 2000)
    assert np.isfinite(tg.grad(tg.njit(long))(X.copy())).all()


@functools.cache
def fewest(passes, snapshots):
    """Passes that run again to go back over so many, with so many snapshots."""
    if snapshots == 1 or passes < 2:
        return passes * (passes - 1) // 2
    return min(
        m + fewest(passes - m, snapshots - 1) + fewest(m, snapshots) for m in range(1, passes)
    )


def scheduled(passes, snapshots):
    if snapshots == 1 or passes < 2:
        return passes * (passes - 1) // 2
    m = runtime.snapshot_distance.py_func(passes, snapshots - 1)
    return m + scheduled(passes - m, snapshots - 1) + scheduled(m, snapshots)


def test_snapshots_are_where_the_fewest_passes_run_again():
    for snapshots in range(1, 7):
        for passes in range(50):
            assert scheduled(passes, snapshots) == fewest(passes, snapshots)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f", [*programs.OVER_TIME, programs.vector_functions, *LONG], ids=lambda f: f.__name__
)
def test_interpreted_adjoint_is_the_derivative(f, rng):
    """Of loops with snapshots, and of functions whose compilation would take long."""
    value, (gradient,) = interpreted(tg.njit(f), (X.copy(),), (0,))
    d = rng.normal(size=X.size)
    assert np.isclose(value, f(X), rtol=1e-12)
    assert np.isclose(gradient @ d, difference(f, X, d), rtol=1e-8, atol=1e-8)


def wave(x, n):
    u, w = x.copy(), x.copy()
    for _ in range(n):
        for i in range(1, x.size - 1):
            w[i] = 2 * u[i] - w[i] + 0.1 * (u[i + 1] - 2 * u[i] + u[i - 1]) * (1 + u[i] * u[i])
        u, w = w, u
    return np.sum(u * u)


@pytest.mark.long
def test_snapshots_bound_memory(rng):
    """The same gradient to the last bit, in a small part of the memory."""
    x = 0.1 * rng.normal(size=50)
    plain = tg.njit(wave, mode="adjoint")
    marked = tg.njit(wave, checkpoint="revolve", snapshots=6)
    gradients, kept = [], []
    for f in (plain, marked):
        release_memory()
        gradients.append(tg.grad(f)(x, 1000))
        kept.append(kept_bytes())
    assert np.array_equal(*gradients) and kept[1] < kept[0] / 20
    with pytest.raises(ValueError, match="number of snapshots"):
        tg.njit(wave, checkpoint="revolve")


@pytest.mark.campaign
def test_second_derivatives_by_snapshots(rng):
    marked = tg.njit(wave, checkpoint="revolve", snapshots=6)
    x, d = 0.1 * rng.normal(size=50), rng.normal(size=50)
    assert np.allclose(tg.hvp(marked)(x, d, 20), difference(lambda x: tg.grad(marked)(x, 20), x, d))


@pytest.mark.long
def test_import_stays_light():
    code = "import sys, tapegrad; assert 'numba' not in sys.modules; assert 'njit' in dir(tapegrad)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ----------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_refused_by_file_line_and_expression(f):
    """No derivative is dropped silently: what has no rule is named, with what to write instead."""
    line = f.__code__.co_firstlineno
    with pytest.raises(tg.NotDifferentiable) as error:
        tg.grad(tg.njit(f, mode="adjoint"))(X.copy())
    text = str(error.value)
    assert programs.__file__ in text
    named = int(text.split("line ")[1].split(":")[0])
    assert line < named < line + 10 or f is programs.recursion
    assert re.search(r"\. \[[a-z-]+\]$", text)


def reused(x):
    s = 1.0
    for i, e in enumerate(x):
        for _ in range(2):
            s = math.sin(x[i % 3] * s) + e
    for i, e in zip(x, x):  # noqa: B905  Numba has no strict
        s = s * i + e
    return s * i


@pytest.mark.long
def test_an_adjoint_without_types_gives_way():
    """Where a name is an index at one place and a float at another, the adjoint may have no types: then it is overloaded, or told."""
    assert np.isfinite(tg.njit(reused)(X))
    with pytest.raises(tg.NotDifferentiable, match="a name of its own"):
        tg.grad(tg.njit(reused, mode="adjoint"))(X)
    gradient = tg.grad(tg.njit(reused, mode="overload"))(X)
    f = tg.njit(reused)
    for _ in range(2):
        assert np.array_equal(tg.grad(f)(X), gradient)
    assert "has no types" in f.explain()
    t = tg.tensor(X, requires_grad=True)
    tg.njit(reused)(t).backward()
    assert np.array_equal(t.grad, gradient)


@pytest.mark.campaign
def test_an_adjoint_without_types_gives_way_in_second_derivatives():
    along = tg.hvp(tg.njit(reused))(X, np.ones_like(X))
    other = tg.hvp(tg.njit(reused, mode="overload"))(X, np.ones_like(X))
    np.testing.assert_allclose(along, other)


def test_powers_by_a_quotient():
    """The slope of a power takes no second power, and is exact where the first overflows or vanishes."""

    @tg.njit
    def f(x):
        return x**1.7 + x ** (1.0 / 3.0)

    with mpmath.workdps(40):
        for x in (1e-300, 1e-200, 1e-5, 0.3, 2.0, 1e160, 1e180, 1e300):
            exponents = mpmath.mpf(1.7), mpmath.mpf(1.0 / 3.0)
            slope = sum(p * mpmath.mpf(x) ** (p - 1) for p in exponents)
            assert abs(tg.grad(f)(x) / float(slope) - 1) < 1e-13
    assert "/ x" in f.adjoint_source
    assert np.isnan(tg.grad(f)(-1.0)) and tg.grad(tg.njit(lambda x: x**1.7))(0.0) == 0.0


@pytest.mark.long
def test_one_check_makes_room_for_a_pass():
    """What a pass keeps in loops over known numbers is asked for together."""
    f, wanted = MODELS["adaptive"]
    source = tg.njit(f, mode="adjoint").variant(inputs()["adaptive"]).derived(wanted).adjoint.source
    assert source.count("= grown(") <= 5
    # A power is kept rather than computed again.
    assert (
        "** (1.0 / 3.0)" in source and "** (1.0 / 3.0)" not in source[source.index("# reverse") :]
    )


def test_numpy_functions_get_types_without_machine_code(monkeypatch):
    """Gradients by the form compile nothing of Numba's; what Numba compiles before or after is as ever."""

    def f(x):
        y = np.zeros((3, x.size))
        for i in range(3):
            y[i] = np.cumsum(x) * i
        return np.sum(y * y) + np.linalg.norm(y[0]) + y.max()

    def g(x):
        y = np.full(x.shape, 2.0)
        return np.sum(np.dot(x, y) * np.sort(x)) + np.trace(np.eye(3))

    compiled = []
    core = dispatcher._FunctionCompiler._compile_core

    def told(self, args, returns):
        compiled.append(self.py_func.__name__)
        return core(self, args, returns)

    monkeypatch.setattr(dispatcher._FunctionCompiler, "_compile_core", told)
    x = np.array([0.3, 1.2, 0.7])
    monkeypatch.setattr(inference.store, "read_types", lambda _: None)

    def plain(x):
        y = np.zeros((3, x.size))
        for i in range(3):
            for j in range(x.size):
                y[i, j] = x[j] * i
        return np.sum(y * y)

    assert np.allclose(tg.grad(tg.njit(plain, mode="form"))(x), 10.0 * x)
    assert not compiled
    assert numba.njit(plain)(x) == tg.njit(plain)(x) == plain(x)
    assert compiled
    assert np.allclose(tg.grad(tg.njit(plain, mode="adjoint"))(x), 10.0 * x)
    for function in (f, g):
        with contextlib.suppress(tg.NotDifferentiable):
            tg.grad(tg.njit(function))(x)
        assert numba.njit(function)(x) == pytest.approx(function(x))
