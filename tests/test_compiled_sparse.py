"""Sparse products and triangular systems in compiled programs: machine code that gives what SciPy gives, derivatives included, and its errors."""

from __future__ import annotations

import contextlib

import numpy as np
import optree
import pytest
import scipy.sparse
from numpy.linalg import LinAlgError

import tapegrad as tg
from tapegrad.compiler import sparse as routines
from tapegrad.core import checking
from tapegrad.errors import CheckedAccessError
from tapegrad.ops.sparse import Pattern

FORMATS = ("csr", "csc", "coo", "bsr", "dia")
KINDS = ("dd", "ff", "DD", "FF", "dD", "Dd", "fd", "df", "fD", "dF")


@pytest.fixture(params=["plain", "checked"])
def mode(request):
    """Programs as they are, and with a check before each access."""
    with checking.checked() if request.param == "checked" else contextlib.nullcontext():
        yield


def numbers(rng, shape, char):
    x = rng.normal(size=shape)
    if char in "FD":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(char)


def places(rng, m=6, n=4):
    """Which entries a matrix has: no row 1, no column 2."""
    found = rng.random((m, n)) < 0.6
    found[1], found[:, 2], found[0, 0] = False, False, True
    return found


def run(f, *args):
    """The result of a program, which has to be one piece of machine code."""
    fast = tg.compile(f)
    found = fast(*args)
    assert fast.latest.native is not None, fast.source
    return found


def assert_same(found, expected):
    """Equal bit for bit, dtype and shape too."""
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("columns", [(), (0,), (1,), (3,)])
def test_products_are_scipys(mode, rng, kinds, columns):
    dense = numbers(rng, (6, 4), kinds[0]) * places(rng)
    x, y = numbers(rng, (4, *columns), kinds[1]), numbers(rng, (6, *columns), kinds[1])
    for format in FORMATS:
        a = scipy.sparse.csr_array(dense).asformat(format)
        found = run(lambda x, y, a=a: (a @ x, y.T @ a, a.T @ y), x, y)
        csr = a.tocsr()  # the order of sums is by rows
        expected = [csr @ x, (csr.T @ y).T, csr.T @ y]
        for p, q in zip(found, expected, strict=True):
            assert (p.dtype, p.shape) == (q.dtype, q.shape)
            np.testing.assert_allclose(p, q, rtol=1e-5 if p.dtype.char in "fF" else 1e-14)
        if format == "csr":
            assert_same(found, expected)
    entries = scipy.sparse.csr_array(dense)
    made = tg.sparse.csr_array(entries)
    found = run(
        lambda d, x, y: (made.with_data(d) @ x, y.T @ made.with_data(d)), entries.data, x, y
    )
    assert_same(found, [entries @ x, (entries.T @ y).T])


def test_entries_at_one_place_add_up(mode, rng):
    rows, columns = np.array([0, 2, 0, 2, 2, 0]), np.array([1, 0, 1, 0, 3, 1])
    data, x = rng.normal(size=6), rng.normal(size=4)

    def loss(data, x):
        return np.sum(np.sin(tg.sparse.coo_array((data, (rows, columns)), shape=(4, 4)) @ x))

    found = run(tg.value_and_grad(loss, argnums=(0, 1)), data, x)
    dense = np.zeros((4, 4))
    np.add.at(dense, (rows, columns), data)
    slope = np.cos(dense @ x)
    np.testing.assert_allclose(found[0], np.sum(np.sin(dense @ x)), rtol=1e-13)
    np.testing.assert_allclose(found[1][0], slope[rows] * x[columns], rtol=1e-13)
    np.testing.assert_allclose(found[1][1], dense.T @ slope, rtol=1e-13)


def smooth(y):
    """A real function of a vector or several, complex ones too."""
    w = np.arange(1.0, 1 + y.size).reshape(y.shape).astype(y.real.dtype)
    return np.sum(w * (y * np.conj(y)).real ** 2) / 50 + np.sum(w * np.real(y * y * y)) / 20


def compare(loss, data, x):
    """Both first derivatives and a second one, by machine code and eagerly; the first also by differences."""
    along = [np.cos(np.arange(v.size).reshape(v.shape) + 1.0).astype(v.dtype) for v in (data, x)]
    if data.dtype.kind == "c":
        along[0] = along[0] * (1 + 2j)
    single = np.result_type(data, x).char in "fF"
    rtol = 2e-4 if single else 1e-11
    gradient = tg.value_and_grad(loss, argnums=(0, 1))
    forms = {
        "gradient": (gradient, (data, x)),
        "push": (lambda d, v: tg.jvp(loss, (d, v), tuple(along)), (data, x)),
        "second": (
            lambda d, v: tg.jvp(lambda d, v: gradient(d, v)[1], (d, v), tuple(along)),
            (data, x),
        ),
    }
    found = {}
    for name, (f, given) in forms.items():
        mine, eager = optree.tree_leaves(run(f, *given)), optree.tree_leaves(f(*given))
        for a, b in zip(mine, eager, strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype, name
            scale = np.max(np.abs(b), initial=0.0)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=name)
        found[name] = mine
    if single:
        return
    h = 1e-5
    steps = [loss(*(v + s * h * t for v, t in zip((data, x), along, strict=True))) for s in (1, -1)]
    slope = (steps[0] - steps[1]) / (2 * h)
    np.testing.assert_allclose(found["push"][-1], slope, rtol=1e-6)
    pairs = zip(found["gradient"][1:], along, strict=True)
    np.testing.assert_allclose(
        sum(np.sum(np.real(np.conj(g) * t)) for g, t in pairs), slope, rtol=1e-6
    )


@pytest.mark.parametrize("kinds", ["dd", "ff", "DD", "dD", "Dd"])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_derivatives_of_products(mode, rng, kinds, columns):
    matrix = scipy.sparse.csr_array(numbers(rng, (6, 4), kinds[0]) * places(rng))
    made = tg.sparse.csr_array(matrix)
    x = numbers(rng, (4, *columns), kinds[1])

    def loss(data, x):
        a = made.with_data(data)
        y = a @ x
        return smooth(y) + smooth(a.T @ y)

    compare(loss, matrix.data, x)


@pytest.mark.parametrize("kinds", ["dd", "ff", "DD", "dD", "Dd"])
@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(mode, rng, kinds, columns, lower, unit):
    n = 7
    dense = numbers(rng, (n, n), kinds[0]) * (rng.random((n, n)) < 0.5) / 2
    dense[np.diag_indices(n)] = 2 + rng.random(n)
    matrix = scipy.sparse.csr_array(dense)  # the other triangle is not read
    made = tg.sparse.csr_array(matrix)
    b = numbers(rng, (n, *columns), kinds[1])

    def solved(data, b):
        a = made.with_data(data)
        return tg.sparse.linalg.spsolve_triangular(a, b, lower=lower, unit_diagonal=unit)

    part = np.tril(dense) if lower else np.triu(dense)
    if unit:
        part[np.diag_indices(n)] = 1
    found = run(solved, matrix.data, b)
    wide = np.result_type(part, b, "d")
    exact = np.linalg.solve(part.astype(wide), b.astype(wide))
    assert found.dtype == np.result_type(dense, b)
    single = found.dtype.char in "fF"
    np.testing.assert_allclose(found, exact, rtol=1e-4 if single else 1e-12)
    compare(lambda data, b: smooth(solved(data, b)), matrix.data, b)


def test_singular_triangles_raise_as_eagerly(mode):
    a = tg.sparse.csr_array(np.array([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [4.0, 5.0, 6.0]]))
    solve = tg.compile(lambda d, b: tg.sparse.linalg.spsolve_triangular(a.with_data(d), b))
    b = np.arange(1.0, 4.0)
    data = a.data.copy()
    np.testing.assert_allclose(solve(data, b), np.linalg.solve(a.toarray(), b))
    data[2] = 0.0
    with pytest.raises(LinAlgError):
        solve(data, b)
    data[2] = np.nan
    assert np.isnan(solve(data, b)[1:]).all()
    lacking = tg.sparse.csr_array(np.array([[2.0, 0.0], [1.0, 0.0]]))
    with pytest.raises(LinAlgError):
        tg.compile(lambda b: tg.sparse.linalg.spsolve_triangular(lacking, b))(b[:2])


def test_steps_of_loops_and_c_functions(mode, rng):
    """Explicit steps of diffusion: the loop, its derivative and the function at an address are one piece of machine code."""
    n = 20
    heat = scipy.sparse.diags_array([np.ones(n - 1), -2 * np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()  # fmt: skip

    def loss(k, u):
        last = tg.fori_loop(0, 30, lambda i, u: u + 0.1 * k * (heat @ np.tanh(u)), u)
        return np.sum(last**2)

    k, u = 1 + rng.random(n), rng.normal(size=n)
    found = run(tg.value_and_grad(loss, argnums=(0, 1)), k, u)
    value, slopes = tg.value_and_grad(loss, argnums=(0, 1))(k, u)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    for a, b in zip(found[1], slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    from ctypes import c_double

    gradient = tg.compile(tg.grad(lambda u: np.sum((heat @ u) ** 2))).cfunc(u)
    x, out = (c_double * n)(*u), (c_double * n)()
    assert gradient.ctypes(n, x, out) == 0
    np.testing.assert_allclose(out, 2 * (heat.T @ (heat @ u)), rtol=1e-12, atol=1e-12)


CHANGES = {
    "entries in place": lambda a: a.data.__imul__(2.0),
    "entries anew": lambda a: setattr(a, "data", 2 * a.data),
    "an entry": lambda a: a.__setitem__((0, 0), 7.0),
    "another place": lambda a: a.__setitem__((1, 2), 3.0),
    "coordinates": lambda a: setattr(a, "coords", a.coords[::-1]),
    "offsets": lambda a: setattr(a, "offsets", a.offsets[::-1].copy()),
    "rows of lists": lambda a: (a.rows[0].__setitem__(0, 1), a.data[0].__setitem__(0, 2.0)),
    "keys": lambda a: a._dict.__setitem__((0, 0), 11.0),
}


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("format", [*FORMATS, "lil", "dok"])
@pytest.mark.parametrize("n", [5, 100])
def test_a_matrix_that_changes_is_seen(rng, format, change, n):
    """Its large arrays are locked, as arrays are; what is small, or bound anew, is compared in each call."""
    if format == "lil" and change.startswith("entries"):
        return  # lists twice as long are no matrix
    a = scipy.sparse.csr_array(numbers(rng, (n, n), "d") * places(rng, n, n)).asformat(format)
    fast = tg.compile(lambda x: a @ x)
    x = rng.normal(size=n)
    np.testing.assert_allclose(fast(x), a @ x, rtol=1e-12, atol=1e-12)
    try:
        CHANGES[change](a)
    except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
        locked = isinstance(error, ValueError)
        assert not locked or (n == 100 and "read-only" in str(error))
        return
    np.testing.assert_allclose(fast(x), a @ x, rtol=1e-12, atol=1e-12)


def test_a_sparse_tensor_that_changes_is_seen(rng):
    a = tg.sparse.csr_array(numbers(rng, (5, 5), "d") * places(rng, 5, 5))
    fast = tg.compile(lambda x: a @ x)
    x = rng.normal(size=5)
    for change in (CHANGES["entries in place"], CHANGES["entries anew"]):
        before = fast(x)
        change(a)
        np.testing.assert_allclose(fast(x), 2 * before)


def test_patterns_that_leave_their_matrix_are_not_compiled():
    """SciPy does not look at indices, so a matrix of its may have any."""
    good = Pattern(np.array([0, 1, 2]), np.array([0, 1]), (2, 2))
    bad = [
        Pattern(np.array([0, 1, 2]), np.array([0, 2]), (2, 2)),
        Pattern(np.array([0, 1, 2]), np.array([0, -1]), (2, 2)),
        Pattern(np.array([0, 3, 2]), np.array([0, 1]), (2, 2)),
        Pattern(np.array([0, 1, 3]), np.array([0, 1]), (2, 2)),
        Pattern(np.array([1, 1, 2]), np.array([0, 1]), (2, 2)),
        Pattern(np.array([0, 2]), np.array([0, 1]), (2, 2)),
    ]
    assert routines._sound(good, "product")
    assert not any(routines._sound(pattern, "product") for pattern in bad)
    above = Pattern(np.array([0, 2, 3]), np.array([0, 1, 1]), (2, 2))
    assert routines._sound(above, "upper") and not routines._sound(above, "lower")


def test_checked_mode_finds_an_index_out_of_bounds(monkeypatch):
    """A fault planted in the constants: no entry of the vector lies at that index."""
    monkeypatch.setattr(routines, "_sound", lambda pattern, way: True)
    wrong = Pattern(np.array([0, 1, 2], np.intc), np.array([0, 700], np.intc), (2, 2))
    data = np.ones(2)
    monkeypatch.setattr(Pattern, "matrix", lambda self, data: scipy.sparse.eye_array(2).tocsr())
    with checking.checked():
        fast = tg.compile(lambda x: tg.sparse.arrays.SparseTensor(data, wrong) @ x)
        with pytest.raises(CheckedAccessError):
            for _ in range(2):
                fast(np.ones(2))
