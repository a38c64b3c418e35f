"""Linear algebra in compiled programs: the routines for small matrices, LAPACK's for larger ones, and what calls of one matrix share.

The oracle is NumPy: the same function, called on the same arrays.
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.linalg import LinAlgError

import tapegrad as tg
from tapegrad.compiler import decompositions, exponential, lapack, program
from tests.seeds import seeds

LA = np.linalg
DTYPES = ("float64", "float32", "complex128")
SIZES = (1, 2, 7, 8, 11, 12, 15, 16, 17, 41, 63, 64, 130)
"""About the sizes where one way takes over from another."""


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(program, "STRICT", True)


def numbers(rng, shape, dtype):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype == "complex128" else x).astype(dtype)


def matrix(rng, shape, dtype):
    """One that is far from singular."""
    n = shape[-1]
    return (numbers(rng, shape, dtype) + 2 * n**0.5 * np.eye(n)).astype(dtype)


def definite(a):
    n = a.shape[-1]
    return (a @ a.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(a.dtype)


def same(f, *arguments):
    """Compiled, at the first call and at those that run the program, f gives what it gives itself, or raises the same."""
    compiled: Any = tg.compile(f)
    for _ in range(3):
        try:
            expected = f(*arguments)
        except LinAlgError as error:
            with pytest.raises(LinAlgError, match=str(error)):
                compiled(*arguments)
            continue
        got = compiled(*arguments)
        pairs = zip(got, expected, strict=True) if type(expected) is tuple else [(got, expected)]
        for x, y in pairs:
            x, y = np.asarray(x), np.asarray(y)
            assert x.shape == y.shape and x.dtype == y.dtype
            close = 2e-3 if y.dtype.itemsize == 4 else 1e-9
            scale = max(1, np.nan_to_num(abs(y)).max(initial=0))
            np.testing.assert_allclose(x, y, rtol=close, atol=close * scale)
    return compiled


def tells_of_nan(f, a):
    """Of a matrix of NaN, each result holds NaN, or the call raises: which entries LAPACK leaves at 0 differs by processor."""
    compiled: Any = tg.compile(f)
    for _ in range(3):
        try:
            results = compiled(a)
        except LinAlgError:
            with pytest.raises(LinAlgError):
                f(a)
            continue
        for x in results if type(results) is tuple else [results]:
            assert np.all(np.any(np.isnan(x).reshape(*a.shape[:-2], -1), axis=-1))


def shapes_of(n):
    return [(n, n), (3, n, n), (2, 2, n, n)] if n <= 17 else [(n, n)]


def triangular(a, b):
    solve = tg.linalg.solve_triangular
    return tuple(solve(a, b, trans=t, lower=l) for t in (0, 1) for l in (True, False))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_systems_and_factors(n, dtype, rng):
    for shape in shapes_of(n):
        a = matrix(rng, shape, dtype)
        same(LA.inv, a)
        same(LA.det, a / (2 * n**0.5))
        same(lambda a: tuple(LA.slogdet(a)), a)
        same(LA.solve, a, numbers(rng, (*shape[:-1], 3), dtype))
        same(lambda a: (LA.cholesky(a), LA.cholesky(a, upper=True)), definite(a))
    b = numbers(rng, n, dtype)
    same(LA.solve, a[(0,) * (a.ndim - 2)], b)
    lower = matrix(rng, (n, n), dtype) + 10 * np.eye(n, dtype=dtype)
    same(triangular, lower, b)
    same(triangular, lower, numbers(rng, (n, 3), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_calls_of_one_matrix(n, dtype, rng):
    """They go by the same LU factors."""

    def all_of_it(a, b):
        x = LA.solve(a, b)
        return x, *LA.slogdet(a), LA.inv(a), LA.det(a / np.float32(n)), LA.solve(a, 2 * b)

    for shape in shapes_of(n):
        a, b = matrix(rng, shape, dtype), numbers(rng, (*shape[:-1], 2), dtype)
        same(all_of_it, a, b)
        same(lambda a, b: (LA.det(a), *LA.slogdet(a), LA.inv(a)), a / (2 * n**0.5), b)
        if n > 1:
            same(all_of_it, np.zeros_like(a), b)  # is refused


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (2, 7, 16, 64))
def test_singular_and_indefinite_matrices(n, dtype, rng):
    for shape in shapes_of(n):
        none = np.zeros(shape, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            same(LA.inv, none)
            same(LA.det, none)
            same(lambda a: (*LA.slogdet(a), LA.det(a)), none)  # have answers
            same(LA.solve, none, np.ones((*shape[:-1], 2), dtype))
            same(LA.cholesky, -definite(matrix(rng, shape, dtype)))
            for f in (LA.inv, LA.cholesky, LA.svdvals, lambda a: tuple(LA.eigh(a))):
                tells_of_nan(f, none * np.nan)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 2, 7, 16, 41, 130))
def test_eigenvalues_and_singular_values(n, dtype, rng):
    for shape in shapes_of(n):
        a = numbers(rng, shape, dtype)
        for side in "LU":
            same(lambda a, s=side: LA.eigvalsh(a, s), a)
            same(lambda a, s=side: tuple(LA.eigh(a, UPLO=s)), a)
            same(lambda a, s=side: (LA.eigvalsh(a, UPLO=s), *LA.eigh(a)), a)
        same(LA.svdvals, a)
    for rows, columns in ((n, n), (2, n), (n, 3)):
        for lead in ((), (2, 2)):
            a = numbers(rng, (*lead, rows, columns), dtype)
            same(lambda a: tuple(LA.svd(a)), a)
            same(lambda a: (LA.svdvals(a), *LA.svd(a, full_matrices=False)), a)
            same(lambda a: (*LA.svd(a, False), LA.svd(a, compute_uv=False)), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 2, 5, 16, 31, 32, 33))
def test_exponentials(n, dtype, rng):
    for shape in shapes_of(n):
        for size in (1e-8, 1, 30):
            a = (numbers(rng, shape, dtype) * size / n**0.5).astype(dtype)
            same(tg.linalg.expm, a)
            if n < 33:
                w = numbers(rng, shape, dtype)
                same(tg.grad(lambda a, w=w: np.sum(np.real(tg.linalg.expm(a) * w))), a)


def test_exponentials_of_special_matrices(rng):
    """The program of a common one is good for all of them."""
    compiled = tg.compile(tg.linalg.expm)
    tangent = tg.compile(lambda a, e: tg.jvp(tg.linalg.expm, (a,), (e,))[1])
    upper = np.triu(np.ones((3, 3)))
    for a in (np.zeros((3, 3)), np.diag([1.0, -2.0, 3.0]), upper, upper.T, 1e6 * np.triu(upper, 1)):
        for _ in range(2):
            expected = scipy.linalg.expm(a)
            np.testing.assert_allclose(compiled(a), expected, rtol=1e-13, atol=1e-13)
            along = tangent(a, a)  # a and itself commute
            np.testing.assert_allclose(along, a @ expected, rtol=1e-12, atol=1e-12)
    with np.errstate(all="ignore"):
        for a in (
            np.full((3, 3), np.nan),
            np.full((3, 3), np.inf),
            800 * np.eye(3),
            1e308 * np.eye(3),
        ):
            np.testing.assert_array_equal(compiled(a), scipy.linalg.expm(a))
    third = tg.compile(tg.grad(tg.grad(tg.grad(lambda t: tg.linalg.expm(t * upper)[0, 2]))))
    for _ in range(2):
        cubed = upper @ upper @ upper @ scipy.linalg.expm(0.3 * upper)
        np.testing.assert_allclose(third(0.3), cubed[0, 2], rtol=1e-12)


GRADIENTS = {
    "inv": lambda a, w: np.sum(LA.inv(a) * w),
    "slogdet": lambda a, w: LA.slogdet(a)[1],
    "solve and slogdet": lambda a, w: w[0] @ LA.solve(a, w[0]) + LA.slogdet(a)[1],
    "cholesky": lambda a, w: np.sum(LA.cholesky(a) * w),
    "eigvalsh": lambda a, w: np.sum(LA.eigvalsh(a) ** 3),
    "singular values": lambda a, w: np.sum(LA.svd(a)[1] ** 3),
}


@pytest.mark.parametrize("n", (3, 9, 20, 70, 140))
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, n, rng):
    f = GRADIENTS[name]
    a, w = definite(matrix(rng, (n, n), "float64")), rng.normal(size=(n, n))
    same(tg.value_and_grad(lambda a: f(a, w)), a)
    if n == 9:
        same(tg.hvp(lambda a: f(a, w)), a, definite(w))


def calls(f, *arguments):
    """What a program does of linear algebra: names and how often."""
    compiled: Any = tg.compile(f)
    compiled(*arguments)
    report = compiled.report()
    return {k: v for k, v in (report.calls | report.expressions).items() if k in WATCHED}


WATCHED = "factors inv inverse slogdet solution adjoint eigh eigvalsh svd svdvals qr".split()


def test_one_matrix_is_factored_once(rng):
    a, b = matrix(rng, (20, 20), "float64"), rng.normal(size=20)
    loss = GRADIENTS["solve and slogdet"]
    found = calls(tg.grad(lambda a: loss(a, b[None])), a)
    assert found == {"factors": 1, "solution": 1, "adjoint": 1, "inverse": 1}
    assert calls(lambda a: (LA.slogdet(a)[0], LA.slogdet(a)[1]), a) == {"slogdet": 1}
    assert calls(lambda a: (LA.inv(a), LA.inv(2 * a)), a) == {"inv": 2}


def test_vectors_bring_their_values(rng):
    a = matrix(rng, (5, 5), "float64")
    assert calls(tg.grad(lambda a: np.sum(LA.eigvalsh(a) ** 2)), a) == {"eigh": 1}
    assert calls(lambda a: (LA.eigh(a)[0], LA.eigh(a)[1]), a) == {"eigh": 1}
    assert calls(tg.value_and_grad(lambda a: np.sum(LA.svdvals(a))), a) == {"svd": 1}
    assert calls(lambda a: (LA.eigvalsh(a), LA.eigh(a, "U")[1]), a) == {"eigvalsh": 1, "eigh": 1}


def test_alike_calls_of_alike_calls(rng):
    def f(a):
        x, y = LA.inv(a), LA.inv(a)
        return LA.eigvalsh(y) + LA.eigh(y)[0] + LA.eigh(x)[0], LA.slogdet(y)[1] + LA.slogdet(x)[1]

    a = definite(matrix(rng, (5, 5), "float64"))
    same(f, a)
    assert calls(f, a) == {"inv": 1, "eigh": 1, "slogdet": 1}


def test_without_lapack(monkeypatch, rng):
    """Where its functions cannot be called, matrices of up to 40 rows are machine code all the same."""
    monkeypatch.setattr(lapack, "works", lambda dtype: False)
    monkeypatch.setattr(decompositions, "loop_of", lambda name, dtype: None)
    loss = GRADIENTS["solve and slogdet"]
    for n in (20, 50):
        a, w = definite(matrix(rng, (n, n), "float64")), rng.normal(size=(n, n))
        same(tg.value_and_grad(lambda a, w=w: loss(a, w)), a)
        same(tg.grad(lambda a: np.sum(LA.eigvalsh(a) ** 3)), a)
    assert lapack.MOST > 50


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_ones_are_calls(dtype, monkeypatch, rng):
    """Of Python's, beyond some size, which is made small here."""
    for module in (lapack, decompositions, exponential):
        monkeypatch.setattr(module, "MOST", 4)
    a, b = matrix(rng, (20, 20), dtype), numbers(rng, (20, 3), dtype)
    compiled = same(lambda a, b: (LA.inv(a), LA.solve(a, b), *LA.slogdet(a), LA.det(a / 9)), a, b)
    assert "solution" in compiled.report().calls
    same(triangular, a + 10 * np.eye(20, dtype=dtype), b)
    same(
        lambda a: (tg.linalg.expm(a / 20), LA.cholesky(definite(a)), *LA.eigh(a), LA.svdvals(a)), a
    )
    if dtype == "float64":
        for f in GRADIENTS.values():
            same(tg.value_and_grad(lambda a, f=f: f(a, b @ b.T)), definite(a))


def test_factors_in_loops(rng):
    """A step's body has its own."""
    b = rng.normal(size=4)

    def step(x, _):
        a = np.outer(x, x) + 3 * np.eye(4)
        return LA.solve(a, b) + LA.slogdet(a)[1], LA.inv(a)[0]

    def run(x):
        x, rows = tg.scan(step, x, np.arange(20.0))
        return np.sum(x * x) + np.sum(rows)

    same(tg.value_and_grad(run), rng.normal(size=4))


# ------------------------------------------------------------------------------------------------ random programs

KINDS = "inv solve transposed solved slogdet det cholesky eigvalsh eigh svdvals svd product sum turned triangular qr expm all".split()


def random_program(seed: int):
    """A function of a stack of matrices and of right sides that applies some of linear algebra to what it has made so far."""
    choose = random.Random(seed)
    n = choose.choice([1, 2, 3, 5, 8, 12, 16, 17, 20, 33])
    lead = choose.choice([(), (), (), (2,), (2, 3)]) if n < 13 else ()
    steps = [(choose.choice(KINDS), choose.random(), choose.random()) for _ in range(choose.randint(3, 9))]  # fmt: skip

    def kept_good(m):
        return np.tanh(m) / n + 2 * np.eye(n)

    def f(a, b):
        matrices, columns, terms = [kept_good(a)], [b], []
        for kind, u, v in steps:
            m, other = (matrices[int(k * len(matrices))] for k in (u, v))
            x, side = columns[int(v * len(columns))], "LU"[v > 0.5]
            back = np.swapaxes(m, -1, -2)
            made = column = None
            if kind in ("inv", "all"):
                made = LA.inv(m)
            if kind in ("solve", "all"):
                column = LA.solve(m, x)
            if kind in ("slogdet", "all"):
                terms.append(LA.slogdet(m)[1])
            if kind == "transposed":
                column = LA.solve(back, x)
            elif kind == "solved":
                made = LA.solve(m, other)
            elif kind == "det":
                terms.append(LA.det(m / 2))
            elif kind == "cholesky":
                made = LA.cholesky(m @ back + np.eye(n))
            elif kind == "eigvalsh":
                terms.append(LA.eigvalsh(m, side) ** 2)
            elif kind == "eigh":
                w, q = LA.eigh(m, side)
                terms.append(w**3)
                made = q * w[..., None, :] @ np.swapaxes(q, -1, -2)
            elif kind == "svdvals":
                terms.append(LA.svdvals(m) ** 3)
            elif kind == "svd":
                q, w, h = LA.svd(m, full_matrices=u > 0.5)
                made = q * w[..., None, :] @ h
            elif kind == "product":
                made = m @ other
            elif kind == "sum":
                made = m + 0.1 * other
            elif kind == "turned":
                made = np.sin(back)
            elif kind == "triangular":
                lower = m + 3 * np.eye(n)
                column = tg.linalg.solve_triangular(lower, x, lower=side == "L", trans=int(u > 0.5))
            elif kind == "expm":
                made = tg.linalg.expm(m / 3)
            elif kind == "qr":
                made = np.abs(LA.qr(m)[1])  # of a triangular matrix, rounding decides signs
            if made is not None:
                matrices.append(kept_good(made))
            if column is not None:
                columns.append(np.tanh(column))
        parts = [*terms, *(np.sin(x) for x in columns), *(np.cos(1.3 * m) for m in matrices)]
        return sum(np.sum(part) for part in parts)

    rng = np.random.default_rng(seed)
    return f, [(rng.normal(size=(*lead, n, n)), rng.normal(size=(*lead, n, 2))) for _ in range(2)]


@pytest.mark.parametrize("seed", seeds(range(int(os.environ.get("TAPEGRAD_FUZZ", "25"))), 3))
def test_random_programs(seed):
    f, points = random_program(seed)
    both = tg.value_and_grad(f, argnums=(0, 1))
    compiled: Any = tg.compile(both)
    for point in (points[0], *points):
        try:
            expected, others = both(*point)
        except tg.NotDifferentiable:
            with pytest.raises(tg.NotDifferentiable):
                compiled(*point)
            continue
        value, slopes = compiled(*point)
        scale = max(abs(expected), *(abs(x).max() for x in others))
        assert abs(value - expected) <= 1e-10 * scale
        for got, wanted in zip(slopes, others, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10 * scale)
