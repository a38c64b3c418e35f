"""Native functions: idioms of Numba code, every mode, and what must be refused.

Each idiom is a function of one array (and what else it needs); its gradient is compared with differences of fourth order, its
tangent with its gradient, its second derivative with differences of the gradient.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections import namedtuple

import numba
import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.3, 1.7, -0.45, 0.9, -1.2])
Pair = namedtuple("Pair", ["first", "second"])
TABLE = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
SCALE = 1.3


# ------------------------------------------------------------------------------------------------------ idioms


def for_with_break(x):
    s = 0.0
    for i in range(x.size):
        if x[i] > 1.5:
            break
        s += x[i] ** 3
    return s


def return_from_a_nested_loop(x):
    for i in range(x.size):
        s = 0.0
        for j in range(i + 1):
            s += x[j] * x[i]
            if s > 2.0:
                return s * x[j]
    return s * x[0]


def continue_and_else(x):
    s = 0.0
    for i in range(x.size):
        if x[i] < 0:
            continue
        s += x[i] * x[i]
    else:
        s *= x[0]
    return s


def while_true(x):
    y = x[0] * x[0] + 1.0
    z = 1.0
    while True:
        new = 0.5 * (z + y / z)
        if abs(new - z) < 1e-14:
            break
        z = new
    return new


def newton_with_line_search(x):
    z = x[0]
    for _ in range(20):
        f = z * z * z - x[1] * x[1] - 1.0
        d = 3.0 * z * z + 0.1
        step = 1.0
        while True:
            new = z - step * f / d
            if abs(new * new * new - x[1] * x[1] - 1.0) < abs(f) or step < 1e-3:
                break
            step *= 0.5
        z = new
        if abs(f) < 1e-12:
            break
    return z * z


def loop_variable_afterwards(x):
    s = 0.0
    for i in range(3):
        s += x[i] * x[i]
    return s * x[i] * i


def loop_variable_reused(x):
    s = 0.0
    for i in range(4):
        i = i % 3
        s += x[i] * x[i + 1]
    for i in range(4, 0, -2):
        s *= x[i]
    return s


def slices(x):
    y = np.zeros(x.size)
    y[1:-1] = x[1:-1] * x[:-2]
    z = y[1:]
    z[0] = z[1] * x[0]
    y[:2] += x[3:]
    return np.sum(y * y * x)


def overlapping_copy(x):
    y = x * x
    y[1:] = y[:-1]
    return np.sum(y * x)


def transposed_and_reshaped(x):
    a = np.outer(x, x * x)
    b = a.T
    b[1, 0] = x[2]
    c = a.reshape(25)
    c[3] *= x[1]
    return np.sum(a * np.arange(25.0).reshape(5, 5)) + a[0, 1] * b[2, 2]


def row_views(x):
    a = np.zeros((3, x.size))
    for i in range(3):
        row = a[i]
        for j in range(x.size):
            row[j] = x[j] * (i + 1.0)
        row *= x[i]
    s = 0.0
    for row in a:
        s += row[0] * row[1] + np.sum(row)
    return s


def swapped_buffers(x):
    u = x.copy()
    w = np.zeros_like(x)
    for _ in range(3):
        for i in range(1, x.size - 1):
            w[i] = u[i] + 0.3 * (u[i + 1] * u[i - 1] - u[i])
        u, w = w, u
    return np.sum(u * u * x)


def insertion_sort(x):
    y = x.copy()
    for i in range(1, y.size):
        key = y[i]
        j = i - 1
        while j >= 0 and y[j] > key:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = key
    return y[0] * y[1] + y[-1] ** 2


def cholesky_in_loops(x):
    n = 4
    a = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a[i, j] = math.exp(-0.5 * (x[i] - x[j]) ** 2)
        a[i, i] += 1.0
    factor = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(s) if i == j else s / factor[j, j]
    return (
        np.sum(np.log(np.diag(factor.copy()[:4, :4]) if False else factor[:, 0] ** 2 + 1.0))
        + factor[3, 3]
    )


def linear_algebra(x):
    a = np.eye(5) * 3.0
    for i in range(5):
        a[i, (i + 1) % 5] = x[i]
    b = np.linalg.solve(a, x)
    c = np.linalg.inv(a) @ b
    spd = np.dot(a, a.T)
    factor = np.linalg.cholesky(spd)
    return np.dot(b, c) + np.linalg.det(a) * 0.01 + np.trace(factor) + np.linalg.norm(x)


def reductions(x):
    a = np.outer(x, x) + 1.0
    return (
        np.sum(a, axis=0)[1] * np.mean(x)
        + np.max(x) * np.min(x)
        + np.prod(x)
        + np.var(x) * np.std(a)
        + a.sum(axis=1)[2]
    )


def array_functions(x):
    y = np.where(x > 0, x * x, -x) + np.maximum(x, 0.5) * np.cumsum(x)
    z = np.concatenate((y[:2], x, y[2:]))
    z = np.sort(z)
    w = np.stack((x, y))
    return (
        np.sum(np.diff(z) ** 2)
        + np.sum(w * w)
        + np.clip(x, -1.0, 1.0).sum()
        + np.roll(y, 2)[0] * y[0]
    )


def gathers(x):
    index = np.array([3, 1, 1, 0])
    y = x[index] * 2.0
    z = np.zeros(5)
    z[index] = y * y
    return np.sum(y * y * y) + np.sum(z * x)


def tuples(x):
    state = (x[0], x[1])
    for _ in range(5):
        state = (state[0] + 0.1 * state[1], state[1] - 0.1 * state[0])
    p = (state, x[2])
    (a, b), c = p
    return a * b + c * state[0]


def ternaries_and_flags(x):
    s = 0.0
    ok = False
    for i in range(x.size):
        s += x[i] ** 2 if x[i] > 0 else -3.0 * x[i]
        ok = ok or (s > 1.0 and x[i] < 0)
        if ok:
            s = s * 0.9
    return s


def chained_comparisons(x):
    s = 0.0
    for v in x:
        if 0.0 < v < 1.0:
            s += v
        elif v >= 1.0:
            s += v**2
        else:
            s -= v
    return s


def whole_numbers(x):
    s = 0.0
    counts = np.zeros(3, np.int64)
    for i in range(x.size):
        k = int(abs(x[i]) * 3) % x.size
        counts[k % 3] += 1
        s += x[k] * x[i] * counts[k % 3] + (x[i] - math.floor(x[i])) ** 2
    return s


def closures_and_globals(x):
    factor = 2.0

    def scaled(v, by=1):
        return v * factor * by

    s = 0.0
    for i in range(x.size):
        s += TABLE[i] * np.sin(x[i]) * SCALE * np.pi
    return s + x[0] ** 2 * factor


@numba.njit
def writes(y, p):
    for k in range(y.size):
        y[k] = y[k] * p + math.sin(p)


@numba.njit
def makes(y):
    z = np.empty_like(y)
    for k in range(y.size):
        z[k] = math.exp(y[k])
    return z, z[0] * 2.0


@tg.njit
def sign_dependent(v):
    if v > 0:
        return v * v
    return -v


def helpers(x):
    y = x.copy()
    writes(y, x[0])
    writes(y[1:3], x[1])
    z, first = makes(y)
    s = 0.0
    for v in z:
        s += sign_dependent(v - 1.0)
    return s + first


def apply_twice(f, v):
    return f(f(v))


apply_jitted = numba.njit(apply_twice)


def functions_as_arguments(x):
    return apply_jitted(sign_dependent, x[1]) + x[0]


def rebinding_in_loops(x):
    y = x * 0.5
    for i in range(3):
        y = y + 0.1 * np.tanh(y * x[i])
        w = np.empty(x.size)
        for j in range(x.size):
            w[j] = y[j] ** (i + 1)
        y = w.copy() if i == 1 else y * 1.0
    return np.sum(y * w)


def powers(x):
    return (
        x[0] ** 2
        + x[1] ** 1.5
        + x[0] ** x[1]
        + 2.0 ** x[2]
        + x[3] ** -2
        + x[4] ** 3
        + (x[0] * x[1]) ** 0
    )


def math_functions(x):
    s = 0.0
    for v in x:
        s += (
            math.atan(v)
            + math.log1p(v * v)
            + math.expm1(v)
            + math.sinh(v)
            - math.cosh(v)
            + math.erf(v)
        )
        s += (
            math.hypot(v, 1.0)
            + math.atan2(v, 2.0)
            + math.fabs(v)
            + math.log10(v * v + 1)
            + math.copysign(v, -1.0)
        )
        s += (
            math.asin(v / 2) * math.acos(v / 3)
            + math.tan(v / 2)
            + np.log2(v * v + 1)
            + np.cbrt(v + 3)
            + v % 0.7
        )
    return s


def enumerate_and_zip(x):
    s = 0.0
    for i, v in enumerate(x):
        s += i * v * v
    for a, b in zip(x, x[::-1]):
        s += a * b * b
    for i, (a, b) in enumerate(zip(x[1:], x)):
        s += i * a / (b * b + 1)
    for i, j in np.ndindex(2, 2):
        s += x[i + j] ** 2
    return s


def walrus_and_minmax(x):
    best = -1e300
    for v in x:
        if (square := v * v) > best:
            best = square
    return max(best, x[0], x[1]) + min(x[0], x[3]) * best


def single_precision(x):
    y = np.empty(x.size, np.float32)
    for i in range(x.size):
        y[i] = x[i] * x[i]
    s = np.float32(0.0)
    for i in range(x.size):
        s += y[i] * np.float32(0.5)
    return float(s)


def fill_and_augment(x):
    y = np.zeros((2, 5))
    y.fill(x[0])
    y[1] = x
    y *= 2.0
    y -= x
    y[0] /= 3.0
    return np.sum(y * y)


def pruned(x, extra=None):
    s = x[0] * x[1]
    if extra is not None:
        s += extra[0]
    return s


def raises_when_wrong(x):
    if x.size < 2:
        raise ValueError("too short")
    assert x[0] < 100.0
    return x[0] * x[1]


def arrays_of_literals(x):
    a = np.array([x[0], 2.0, x[1] * x[2]])
    b = np.array([[x[0], 1.0], [x[3], x[4]]])
    return np.sum(a * a) + b[0, 0] * b[1, 1] + np.dot(b, b)[0, 0]


IDIOMS = [
    f
    for f in list(globals().values())
    if getattr(f, "__code__", None) and f.__code__.co_varnames[:1] == ("x",)
]
TOLERANCE = {"single_precision": 3e-4}


def difference(f, x, d, h=2e-4):
    """The derivative along d, of fourth order."""
    if f.__name__ == "single_precision":
        h = 1e-2
    at = lambda t: np.asarray(f(x + t * d))  # noqa: E731
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@pytest.mark.parametrize("f", IDIOMS, ids=lambda f: f.__name__)
def test_gradient_is_the_derivative(f, rng):
    """<gradient, direction> is the difference quotient, and the value is Numba's."""
    native = tg.njit(f)
    value, gradient = tg.value_and_grad(native)(X.copy())
    assert np.isclose(value, native(X), rtol=1e-12)
    d = rng.normal(size=X.size)
    tolerance = TOLERANCE.get(f.__name__, 1e-8)
    assert np.isclose(gradient @ d, difference(native, X, d), rtol=tolerance, atol=tolerance)


SECOND = [for_with_break, slices, rebinding_in_loops, helpers, insertion_sort, ternaries_and_flags]


@pytest.mark.parametrize("f", SECOND, ids=lambda f: f.__name__)
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


def test_several_outputs_and_settings():
    x = X[:3].copy()
    total, out, count = mixed(x, 2, 3.0)
    assert (total, count) == (np.sum(x * 9.0), 2) and np.allclose(out, x * 27.0)
    jacobian = tg.jacobian(lambda a, y: mixed(a, 2, y)[1], (0, 1))(x, 3.0)
    assert np.allclose(jacobian[0], np.eye(3) * 27.0) and np.allclose(jacobian[1], x * 27.0)
    assert np.allclose(tg.grad(lambda a: mixed(a, 2, 3.0, flag=False)[0])(x), np.ones(3))


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
    assert "custom(" in tg.njit(f).adjoint_source if False else True


def test_random_numbers_are_constants():
    @tg.njit
    def f(x):
        np.random.seed(3)
        s = 0.0
        for i in range(5):
            s += x[i] * np.random.normal()
        return s * x[0]

    value, gradient = tg.value_and_grad(f)(X.copy())
    d = np.ones(5)
    assert np.isclose(value, f(X)) and np.isclose(gradient @ d, difference(f, X, d))
    with pytest.raises(tg.NotDifferentiable, match="draws random numbers"):
        f(tg.tensor(X, requires_grad=True))


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


def test_what_can_be_read_of_it():
    f = tg.njit(swapped_buffers)
    with pytest.raises(tg.NotDifferentiable, match="no derivative of it has been made"):
        f.explain()
    tg.grad(f)(X.copy())
    assert f.adjoint_source.startswith("def swapped_buffers_adjoint(x, x_bar")
    assert "active" in f.explain() and "by reference" in f.explain()


def test_strided_read_only_and_empty_arrays():
    f = tg.njit(lambda_like)
    wide = np.arange(10.0)
    assert np.allclose(tg.grad(f)(wide[::2], 1.0), np.cos(wide[::2]))
    locked = X.copy()
    locked.flags.writeable = False
    assert np.allclose(tg.grad(f)(locked, 1.0), np.cos(X))
    assert tg.grad(f)(np.empty(0), 1.0).shape == (0,)
    assert tg.grad(f)(X.astype(np.float32), 1.0).dtype == np.float32


def test_memory_has_a_limit():
    def long(x):
        s = x[0]
        n = 10000
        for _ in range(n):
            s = math.sin(s)
        return s

    with pytest.raises(MemoryError, match="TAPEGRAD_NATIVE_LIMIT"):
        tg.grad(tg.njit(long, memory_limit=50_000))(X.copy())
    assert np.isfinite(tg.grad(tg.njit(long))(X.copy())).all()


def test_import_stays_light():
    code = "import sys, tapegrad; assert 'numba' not in sys.modules; assert 'njit' in dir(tapegrad)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ----------------------------------------------------------------------------------------------- what is refused


@numba.njit
def recursive(v, n):
    if n == 0:
        return v
    return recursive(v * 0.5, n - 1)


def lists(x):
    kept = []
    for v in x:
        kept.append(v)
    return kept[0]


def recursion(x):
    return recursive(x[0], 3)


def complex_values(x):
    z = x[0] * 1j
    return abs(z)


def unknown_function(x):
    return np.interp(x[0], x, x)


def drawn_with_active_scale(x):
    return np.random.normal(x[0], 1.0)


def update_by_a_part_of_itself(x):
    y = x * 2.0
    y[1:] += y[:-1]
    return y[4]


def generator_expression(x):
    return sum(v for v in x)


def index_arrays_in_place(x):
    y = np.zeros((5, 2))
    index = np.array([0, 1])
    y[index, 0] = x[0]
    return y[0, 0]


REFUSED = [lists, recursion, complex_values, unknown_function, drawn_with_active_scale, update_by_a_part_of_itself, generator_expression, index_arrays_in_place]  # fmt: skip


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_refused_by_file_line_and_expression(f):
    """No derivative is dropped silently: what has no rule is named, with what to write instead."""
    line = f.__code__.co_firstlineno
    with pytest.raises(tg.NotDifferentiable) as error:
        tg.grad(tg.njit(f))(X.copy())
    text = str(error.value)
    assert __file__ in text
    named = int(text.split("line ")[1].split(":")[0])
    assert line < named < line + 10 or f is recursion
    assert text.rstrip().endswith(".")
