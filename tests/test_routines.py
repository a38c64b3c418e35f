"""Linear systems, running sums, orders and Fourier transforms as machine code: alone and in steps of loops, what NumPy gives, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import tapegrad as tg
from tapegrad.compiler import borrowed, fourier, ufuncs
from tapegrad.compiler.routines import LARGEST

W = np.cos(np.arange(50.0 * 50).reshape(50, 50))


def matrix(x):
    """Well conditioned, and not without exchanges of rows."""
    n = x.shape[0]
    return 0.3 * W[:n, :n] + np.outer(x, x) / n + 3 * np.eye(n)[::-1]


def positive(x):
    a = matrix(x)
    return a @ a.T + np.eye(len(x))


CALLS = {
    "solve": lambda x: np.linalg.solve(matrix(x), x),
    "solve of columns": lambda x: np.linalg.solve(matrix(x), np.outer(x, x[:2]) + 1.0)[:, 0],
    "solve of what is known": lambda x: np.linalg.solve(W[: len(x), : len(x)] + 3 * np.eye(len(x))[::-1], x),
    "inv": lambda x: np.linalg.inv(matrix(x)) @ x,
    "cholesky": lambda x: np.linalg.cholesky(positive(x)) @ x / len(x),
    "triangles": lambda x: tg.linalg.solve_triangular(matrix(x)[::-1], x)
    + tg.linalg.solve_triangular(matrix(x)[::-1], x, trans=1, lower=True),
    "cumsum": lambda x: np.cumsum(x) / len(x),
    "cumsum along axes": lambda x: np.cumsum(np.cumsum(np.outer(x, x)[None, :, :, None], axis=1), axis=2)[0, -1, :, 0] / len(x) ** 2,
    "cumsum of all": lambda x: np.cumsum(np.outer(x, x[::-1]))[: len(x)] / len(x),
    "sort": lambda x: np.sort(np.sin(3 * x)) * np.arange(1.0, len(x) + 1) / len(x),
    "sort of rows": lambda x: np.sum(np.sort(np.cos(np.outer(x[:5], x[:3])))[:, 0]) * x,
    "argsort": lambda x: x[np.argsort(np.sin(5 * x), kind="stable")] * np.arange(1.0, len(x) + 1) / len(x),
}  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_as_numpy(name, dtype):
    f = CALLS[name]

    def once(x):
        return np.sum(np.sin(f(x)) * np.arange(1.0, len(x) + 1, dtype=x.dtype))

    def again(x):
        return once(tg.fori_loop(0, 40, lambda i, v: 0.5 * np.tanh(f(v)) + 0.5 * x, x))

    rtol = 1e-9 if dtype == np.float64 else 3e-3
    for g in (once, again):
        for n in (5,) if g is again else (2, LARGEST, LARGEST + 1):
            both = tg.value_and_grad(g)
            compiled = tg.compile(both)
            for scale in (1.0, 0.7, -0.4):
                x = np.asarray(scale * np.sin(np.arange(1.0, n + 1)), dtype)
                (value, gradient), (expected, theirs) = compiled(x), both(x)
                assert gradient.dtype == theirs.dtype
                np.testing.assert_allclose(value, expected, rtol=rtol)
                size = np.max(np.abs(theirs))
                np.testing.assert_allclose(gradient, theirs, rtol=rtol, atol=rtol * size)
            if n <= LARGEST and dtype == np.float64 and name != "sort of rows":
                assert compiled.latest.native is not None


def test_reports_tell_of_them():
    compiled = tg.compile(
        lambda x: tg.fori_loop(0, 40, lambda i, v: np.linalg.inv(matrix(x)) @ v, x)
    )
    compiled(np.sin(np.arange(1.0, 5.0)))
    report = compiled.report()
    assert report.expressions["inv"] and not report.calls


def test_determinants():
    values = tg.compile(lambda a: np.linalg.det(a))
    for a in (W[:5, :5], np.ones((3, 3)), np.eye(4)[::-1], np.zeros((2, 2))):
        for _ in range(2):
            np.testing.assert_allclose(values(a), np.linalg.det(a), rtol=1e-12, atol=1e-30)


def test_what_is_no_number_comes_last():
    x = np.array([[3.0, np.nan, -np.inf, 0.0, np.nan, -0.0], [1.0, 1.0, np.inf, 2.0, 1.0, 2.0]])
    compiled = tg.compile(lambda x: (np.sort(x), np.argsort(x, kind="stable"), np.sum(x)))
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x)[0], np.sort(x))
        np.testing.assert_array_equal(compiled(x)[1], np.argsort(x, kind="stable"))


def test_equal_entries_are_ordered_as_numpy_orders_them(rng):
    x = rng.integers(-2, 3, 40).astype(float)
    compiled = tg.compile(
        lambda x: (np.argsort(x), np.argsort(x, kind="stable"), np.argsort(x.reshape(4, 10)))
    )
    for given in (x, np.cos(x), x[::-1]):
        compiled(given)
        for found, kind in zip(compiled(given), (None, "stable"), strict=False):
            np.testing.assert_array_equal(found, np.argsort(given, kind=kind))
        np.testing.assert_array_equal(compiled(given)[2], np.argsort(given.reshape(4, 10)))


def places(x):
    """Where the largest and the smallest entries stand, of all and along each axis."""
    found = [f(x, axis=axis) for f in (np.argmax, np.argmin) for axis in (None, 0, 1, -1)]
    return (*found, np.argmax(x, axis=1, keepdims=True), x.argmin(0), np.argmax(x[:, 2:3], 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_places_of_the_largest_are_numpys_and_machine_code(rng, dtype):
    """The first of equal entries (0.0 and -0.0 are), and the first NaN before all others."""
    compiled = tg.compile(places)
    ties = np.round(rng.normal(size=(5, 8)), 1).astype(dtype)
    zeros = np.zeros((5, 8), dtype)
    zeros[0, :3] = -0.0
    none, endless = ties.copy(), ties.copy()
    none[[1, 1, 3], [4, 6, 0]] = np.nan
    endless[2, 5], endless[4, 1], endless[0, 0] = np.inf, -np.inf, np.nan
    for x in (ties, zeros, none, endless, np.asfortranarray(none), none[::-1, ::-1]):
        for ours, theirs in zip(compiled(x), places(x), strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert (np.shape(ours), np.asarray(ours).dtype) == (np.shape(theirs), np.int64)
    assert not compiled.report().calls
    assert compiled.report().expressions["argmax"] == 6


def test_a_place_among_many_is_numpys_call(rng):
    compiled = tg.compile(lambda x: (np.argmax(x), np.sum(x * x)))
    x = rng.normal(size=5000)
    assert compiled(x)[0] == np.argmax(x)
    assert compiled.report().calls == {"argmax": 1}


def steps(f):
    return lambda *x: tg.fori_loop(0, 40, lambda i, v: 0.5 * v + 0.1 * f(v, *x), x[0])


REFUSED = {
    "solve": (lambda v, x: np.linalg.solve(x[:, None] * x + 1.0 * (x[0] > 0) * np.eye(3), v), LinAlgError),
    "inv": (lambda v, x: np.linalg.inv(x[:, None] * x + 1.0 * (x[0] > 0) * np.eye(3)) @ v, LinAlgError),
    "cholesky": (lambda v, x: np.linalg.cholesky(x[0] * np.eye(3)) @ v, LinAlgError),
    "index": (lambda v, x: v[np.asarray(4 - 4 * (x[:1] > 0), int)] + v, IndexError),
}  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_those_of_the_function(name):
    """However often they come, and in between it goes on."""
    step, error = REFUSED[name]
    for f in (steps(step), tg.grad(lambda x, step=step: np.sum(steps(step)(x)))):
        compiled = tg.compile(f)
        good, bad = np.array([1.0, 2.0, 3.0]), np.array([-1.0, -2.0, -3.0])
        for _ in range(20):
            np.testing.assert_allclose(compiled(good), f(good), rtol=1e-12)
            with pytest.raises(error):
                compiled(bad)


def test_a_rule_that_looks_whether_a_matrix_is_singular():
    """A determinant's gradient is that of its cofactors there; the inverse that stands for it elsewhere raises."""

    def f(a, b):
        for i in range(3):
            b = np.tanh(np.linalg.det(a + 0.1 * i) * b)
        return np.sum(b)

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    singular = a.copy()
    singular[0] = 0
    eager = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(eager)
    for point in (a, singular, a, singular, 2 * a):
        value, gradients = compiled(point, b)
        expected, others = eager(point, b)
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-15)
        for mine, theirs in zip(gradients, others, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        raising = tg.compile(lambda a: np.linalg.inv(a) * (1.0 if a[0, 0] > 0 else 2.0))
        raising(a)
        raising(np.zeros((3, 3)))


# -------------------------------------------------------------------------------------------- Fourier transforms

ALONG_ONE = [
    {},
    {"axis": 0},
    {"axis": 1, "n": 9},
    {"n": 3, "norm": "ortho"},
    {"norm": "forward", "axis": -2},
]
ALONG_SOME = [
    {}, {"axes": (0, 2)}, {"s": (5, 7), "axes": (1, 0)}, {"norm": "ortho"}, {"axes": (1,)},
    {"s": (3, 8), "axes": (0, 2), "norm": "forward"},
]  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.parametrize("name", fourier.NAMES)
def test_transforms(name, single):
    """Every length, axis and factor, real numbers and complex ones: NumPy's answer, without NumPy."""
    transform = getattr(np.fft, name)
    real = np.random.default_rng(3).normal(size=(4, 6, 5)).astype("f4" if single else "f8")
    for x in (real, real + 1j * real[::-1]):
        if name.startswith("rfft") and x is not real:
            continue
        for settings in ALONG_SOME if name[-1] in "2n" else ALONG_ONE:
            compiled = tg.compile(lambda a, b, settings=settings: transform(a * b, **settings) - 1)
            expected = transform(x * x, **settings) - 1
            for _ in range(2):
                found = compiled(x, x)
                assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
                tolerance = 1e-5 if single else 1e-13
                np.testing.assert_allclose(
                    found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected))
                )
            assert not compiled.report().calls


def test_transforms_by_position():
    x = np.random.default_rng(4).normal(size=(4, 6))
    compiled = tg.compile(lambda a: np.fft.rfft(2 * a, 5, 0, "ortho"))
    for _ in range(2):
        np.testing.assert_allclose(compiled(x), np.fft.rfft(2 * x, 5, 0, "ortho"), rtol=1e-13)
    assert not compiled.report().calls


@pytest.mark.long
def test_a_spectral_method():
    """Value, gradient and second derivative of steps that go to and fro; the same as without machine code."""
    n = 16
    along = np.fft.rfftfreq(n, 1 / n)
    decay = np.exp(-0.01 * along**2)

    def step(u):
        w = np.fft.irfft(u, n)
        return decay * u - 0.005j * along * np.fft.rfft(w * w)

    def in_python(start):
        u = np.fft.rfft(start)
        for _ in range(40):
            u = step(u)
        return np.sum(np.fft.irfft(u, n) ** 3)

    def as_a_loop(start):
        u = tg.fori_loop(0, 40, lambda i, u: step(u), np.fft.rfft(start))
        return np.sum(np.fft.irfft(u, n) ** 3)

    x = np.sin(np.linspace(0, 6, n)) + 0.3
    value, gradient = tg.value_and_grad(in_python)(x)
    curved = tg.hvp(in_python)(x, gradient)
    for f in (in_python, as_a_loop):
        both, product = (
            tg.compile(tg.value_and_grad(f)),
            tg.compile(tg.hvp(f)),
        )
        for _ in range(2):
            found = both(x)
            np.testing.assert_allclose(found[0], value, rtol=1e-12)
            np.testing.assert_allclose(found[1], gradient, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(product(x, gradient), curved, rtol=1e-9, atol=1e-10)
        assert not both.report().calls


def test_other_loops_of_numpy(monkeypatch):
    """Where the loops of the transforms are not what they are here, programs call NumPy."""
    monkeypatch.setattr(fourier, "loop_of", lambda name, dtype: None)
    compiled = tg.compile(lambda a: np.abs(np.fft.fft(a)) ** 2)
    x = np.arange(7.0)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x), np.abs(np.fft.fft(x)) ** 2, rtol=1e-13)
    assert compiled.report().calls == {"fft": 1}


def test_only_loops_that_answer_are_called(monkeypatch):
    """A loop is looked for by its types, and one that answers otherwise is not borrowed."""
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)
    out = np.zeros((2, 2))
    strides = [0, 0, 0, 24, 8, 16, 8, 16, 8]
    assert borrowed.borrowed(np.matmul, (x, y), out, [1, 2, 3, 2], strides)
    assert not borrowed.borrowed(np.matmul, (x, y), out, [1, 2, 2, 2], strides)  # another product
    assert not borrowed.borrowed(np.matmul, (x, y), out.astype(int), [1, 2, 3, 2], strides)
    assert not borrowed.borrowed(None, (x, y), out, [1, 2, 3, 2], strides)


# ------------------------------------------------------------------------------------------- products of matrices

PRODUCTS = {
    "plain": ((40, 50), (50, 60), lambda a, b: a @ b),
    "left turned": ((50, 40), (50, 60), lambda a, b: a.T @ b),
    "right turned": ((40, 50), (60, 50), lambda a, b: a @ np.swapaxes(b, 0, 1)),
    "both turned": ((50, 40), (60, 50), lambda a, b: np.dot(np.transpose(a), b.T)),
    "turned and used": ((50, 50), (50, 60), lambda a, b: (2 * a.T) @ b + np.sum(a.T @ b)),
    "not turned by axes of the same place": ((50, 50), (50, 60), lambda a, b: np.transpose(a, (0, 1)) @ b),
    "a sum of it": ((40, 50), (60, 50), lambda a, b: (a + 1) @ (2 * b).T),
    "many": ((3, 2, 40, 50), (3, 2, 50, 60), lambda a, b: a @ b),
    "many and one": ((3, 40, 50), (50, 60), lambda a, b: a @ b),
    "one and many": ((40, 50), (3, 50, 60), lambda a, b: a @ b),
    "many and as many": ((3, 1, 40, 50), (2, 50, 60), lambda a, b: a @ b),
    "with a constant": ((40, 50), (50, 60), lambda a, b: (a @ W[:10, :40].repeat(5, axis=0).astype(a.dtype)) @ b[:40]),
}  # fmt: skip


@pytest.mark.parametrize("kind", "fdFD")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, kind):
    """By BLAS, as NumPy does it: transposed matrices, several, complex ones; and the gradient's."""
    first, second, f = PRODUCTS[name]
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=shape) for shape in (first, second))
    if kind in "FD":
        a, b = a + 1j * a[..., ::-1, :], b - 1j * b[..., ::-1]
    a, b = a.astype(kind), b.astype(kind)
    both = tg.value_and_grad(lambda a, b: np.sum(np.abs(f(a, b)) ** 2), argnums=(0, 1))
    for function in (f, both):
        compiled, expected = tg.compile(function), function(a, b)
        for _ in range(2):
            found = compiled(a, b)
            for x, y in zip(_flat(found), _flat(expected), strict=True):
                assert (x.dtype, x.shape) == (y.dtype, y.shape)
                tolerance = (2e-4 if kind in "fF" else 1e-12) * np.max(np.abs(y))
                np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)
        if function is f and name != "many and as many":
            assert not compiled.report().calls


def _flat(x):
    return [y for part in x for y in _flat(part)] if isinstance(x, tuple) else [np.asarray(x)]


@pytest.mark.long
def test_products_in_loops():
    """A recurrent network whose matrices are BLAS's: one native call, equal to the eager one."""

    def f(w, x):
        h = np.zeros((40, 50))
        for k in range(40):
            h = np.tanh(h @ w + x[k])
        return np.sum(h**2)

    rng = np.random.default_rng(6)
    w, x = rng.normal(size=(50, 50)) / 8, rng.normal(size=(40, 40, 50))
    both = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(both)
    for _ in range(2):
        (value, gradients), (expected, theirs) = compiled(w, x), both(w, x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        for g, h in zip(gradients, theirs, strict=True):
            np.testing.assert_allclose(g, h, rtol=0, atol=1e-11 * np.max(np.abs(h)))
    assert not compiled.report().calls
    assert compiled.report().expressions["matmul"] >= 3  # forward, and back by both factors


@pytest.mark.long
def test_threads_share_programs_with_routines():
    """Large loops beside transforms, products and loops are shared; the answer is the same for any number of threads."""

    def f(w, x):
        y = np.fft.fft2(x * np.tanh(x @ w))
        z = np.sum(np.exp(-np.abs(y) / 300), axis=0)
        for _ in range(40):
            z = np.sin(z) + 0.1 * z[::-1]
        return np.sum(z * np.log1p(x**2))

    rng = np.random.default_rng(7)
    w, x = rng.normal(size=(256, 256)) / 8, rng.normal(size=(256, 256))
    both = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(both)
    compiled(w, x)
    before, answers = tg.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            tg.set_num_threads(count)
            answers.append(compiled(w, x))
    finally:
        tg.set_num_threads(before)
    value, gradients = both(w, x)
    for found in answers:
        assert found[0] == answers[0][0]
        np.testing.assert_allclose(found[0], value, rtol=1e-11)
        for g, same, h in zip(found[1], answers[0][1], gradients, strict=True):
            np.testing.assert_array_equal(g, same)
            np.testing.assert_allclose(g, h, rtol=0, atol=1e-10 * np.max(np.abs(h)))
    report = compiled.report()
    assert not report.calls
    assert report.shared


@pytest.mark.long
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_places_among_sorted_numbers(side, dtype):
    rng = np.random.default_rng(9)
    for n in (1, 2, 3, 7, 8, 100):
        known = np.sort(rng.integers(0, 20, n).astype(dtype))
        asked = np.concatenate([rng.integers(-2, 23, 40), [np.nan, np.inf, -np.inf], known]).astype(
            dtype
        )
        for a in (known, np.append(known, [np.inf, np.nan]).astype(dtype)):
            compiled = tg.compile(lambda a, v: np.searchsorted(2 * a, 2 * v, side=side) + 1)
            for v in (asked, asked.reshape(-1, 1), asked[0]):
                for _ in range(2):
                    found, expected = compiled(a, v), np.searchsorted(2 * a, 2 * v, side=side) + 1
                    np.testing.assert_array_equal(found, expected)
                    assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert not compiled.report().calls


# --------------------------------------------------------------------------------------------- functions by entries


@pytest.mark.parametrize("kind", "DF")
@pytest.mark.parametrize("name", [n for n in ufuncs.NAMES if n not in ufuncs.REAL])
def test_functions_of_complex_numbers(name, kind):
    """NumPy's answer for arrays, numbers and constants beside them, and the gradient."""
    function = getattr(np, name)
    rng = np.random.default_rng(12)
    z = (rng.normal(size=(5, 3)) + 1j * rng.normal(size=(5, 3))).astype(kind)
    if function.nin == 2:
        calls = [
            lambda a: function(a, a * 0.5),
            lambda a: function(a, 2.5),
            lambda a: function(a, np.ravel(a)[0]),
            lambda a: a**0.5,
        ]
    else:
        calls = [function]
    for call in calls:
        for f in (
            lambda a, call=call: call(a * 1.5) + 1,
            lambda a, call=call: call(a[1, 2] * 1.5) - 2,
        ):
            compiled, expected = tg.compile(f), f(z)
            for _ in range(2):
                found = compiled(z)
                assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(found, expected, rtol=1e-6 if kind == "F" else 1e-14)
            assert not compiled.report().calls
        gradient = tg.grad(lambda a, call=call: np.sum(np.abs(call(a)) ** 2))
        compiled, expected = tg.compile(gradient), gradient(z)
        compiled(z)
        tolerance = (1e-4 if kind == "F" else 1e-12) * np.max(np.abs(expected))
        np.testing.assert_allclose(compiled(z), expected, rtol=0, atol=tolerance)


def test_complex_functions_in_loops():
    def f(z, c):
        for _ in range(40):
            z = 0.5 * np.log(np.sqrt(z + 2.0)) + c * np.sin(z) + 0.1 * z**1.5
        return np.sum(np.abs(z) ** 2 + np.angle(z))

    z, c = np.array([0.3 + 0.2j, -0.4j, 1.0]), 0.3 - 0.1j
    for both, args in (
        (tg.value_and_grad(f), (z, c)),
        (tg.value_and_grad(f, argnums=1), (z[0], c)),
    ):
        compiled, expected = tg.compile(both), both(*args)
        for _ in range(2):
            for x, y in zip(compiled(*args), expected, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-11)
        assert not compiled.report().calls


def test_quotients_rounded_down():
    x = np.array([7.5, -7.5, 0.0, np.inf, np.nan, 1e300])
    compiled = tg.compile(lambda a, b: a // b + 0.5)
    for b in (x[::-1] + 2.0, 2.5):
        with np.errstate(all="ignore"):
            for _ in range(2):
                np.testing.assert_array_equal(compiled(x, b), x // b + 0.5)
    assert not compiled.report().calls


def test_an_interpolation_is_machine_code():
    """The search with its side by position, and the bounds of places; the vectors of a chunk are not taken apart."""
    values, at = np.sin(np.arange(50.0)), np.random.default_rng(2).uniform(-0.1, 1.1, 2000)
    at[:3] = np.nan, np.inf, 0.5

    def f(values, at):
        return np.sum(np.nan_to_num(np.interp(at, np.linspace(0, 1, 50), values)) ** 2)

    compiled = tg.compile(tg.value_and_grad(f, argnums=(0, 1)))
    for got, expected in zip(
        np.atleast_1d(*compiled(values, at)[1]),
        np.atleast_1d(*tg.grad(f, argnums=(0, 1))(values, at)),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert not compiled.report().calls
    assert "range(0, 2000, 1)" not in compiled.source
    places = tg.compile(lambda i: (np.clip(i, 0, 4), np.clip(i, None, i[::-1])))
    i = np.array([3, -2, 5, 9])
    for got, expected in zip(places(i), (np.clip(i, 0, 4), np.clip(i, None, i[::-1])), strict=True):
        assert np.array_equal(got, expected) and got.dtype == expected.dtype
    assert not places.report().calls


OF_STACKS = {
    "det": lambda a, b: np.sin(np.linalg.det(a)),
    "slogdet": lambda a, b: np.linalg.slogdet(a)[1],
    "inv": lambda a, b: np.linalg.inv(a) @ b,
    "solve": lambda a, b: np.sin(np.linalg.solve(a, b)),
    "cholesky": lambda a, b: (
        np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1])) @ b
    ),
    "triangular": lambda a, b: tg.linalg.solve_triangular(a, b, lower=True) ** 2,
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", OF_STACKS)
def test_stacks_of_matrices(name, dtype):
    def f(a, b):
        return np.sum(OF_STACKS[name](a, b))

    rng = np.random.default_rng(6)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype is np.float64 else {"rtol": 2e-3, "atol": 2e-3}
    for shape in [(1, 3, 3), (5, 3, 3), (2, 3, 2, 2), (9, 7, 7), (0, 3, 3)]:
        a = (rng.normal(size=shape) + 2 * np.eye(shape[-1])).astype(dtype)
        b = rng.normal(size=(*shape[:-1], 2)).astype(dtype)
        both = tg.value_and_grad(f, argnums=(0, 1))
        compiled = tg.compile(both)
        (value, got), (expected_value, expected) = compiled(a, b), both(a, b)
        for x, y in zip([value, *got], [expected_value, *expected], strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, **close)
        assert not (a.size and compiled.report().calls)


def test_one_singular_matrix_of_a_stack():
    a = np.stack([np.eye(3), np.ones((3, 3)), 2 * np.eye(3)])
    right = np.ones((3, 3, 1))
    for f in (np.linalg.inv, np.linalg.cholesky, lambda a: np.linalg.solve(a, right)):
        compiled = tg.compile(f)
        compiled(np.eye(3) + 0 * a)
        with pytest.raises(LinAlgError):
            compiled(a)
    np.testing.assert_allclose(tg.compile(np.linalg.det)(a), [1.0, 0.0, 8.0], rtol=1e-15)
