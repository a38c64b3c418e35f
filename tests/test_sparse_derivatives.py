"""Sparse Jacobians and Hessians: the dense ones' entries, on patterns that are conservative and, of known functions, tight."""

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg
from tapegrad.sparse import colouring
from tests import array_programs

M = np.where(np.random.default_rng(1).random((5, 6)) < 0.4, 1.0, 0.0)
S = scipy.sparse.csr_array(M)


def brusselator(n):
    def lap(a):
        return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a

    def f(u):
        u, v = np.reshape(u, (2, n, n))
        return np.stack([1 + u * u * v - 4.4 * u + lap(u), 3.4 * u - u * u * v + lap(v)]).ravel()

    return f


TIGHT = {
    "elementwise": (lambda x: np.sin(x) * x, 6),
    "zero slopes": (lambda x: x * 0 + np.floor(x), 6),
    "broadcast": (lambda x: x[:, None] * np.ones(3) + x[0], 6 * 3 + 5 * 3),
    "differences": (lambda x: x[1:] - x[:-1] ** 2, 10),
    "np.diff": (lambda x: np.diff(x, 2), 12),
    "reversed": (lambda x: x[::-1] + x, 12),
    "chosen": (lambda x: np.where(x > 1, x, np.roll(x, 1)), 12),
    "maximum": (lambda x: np.maximum(x[:-1], x[1:]), 10),
    "sum": (lambda x: np.sum(x.reshape(2, 3) ** 2, axis=1), 6),
    "mean kept": (lambda x: x.reshape(2, 3) - np.mean(x.reshape(2, 3), axis=0, keepdims=True), 12),
    "largest": (lambda x: np.max(x.reshape(2, 3), axis=1), 6),
    "concatenated": (lambda x: np.concatenate([x, x[:2], np.ones(2)]), 8),
    "stacked": (lambda x: np.stack([x, 2 * x], axis=1), 12),
    "transposed": (lambda x: x.reshape(2, 3).T * np.arange(3)[:, None], 6),
    "scattered": (lambda x: np.bincount([0, 1, 1, 2, 0, 4], x), 6),
    "constant matrix": (lambda x: M @ x, int(M.sum())),
    "from the right": (lambda x: x[:5] @ M, int(M.sum())),
    "matrix of columns": (lambda x: M[:, :3] @ x.reshape(3, 2), 2 * int(M[:, :3].sum())),
    "sparse matrix": (lambda x: S @ x, int(M.sum())),
    "sparse matrix of columns": (lambda x: S[:, :3] @ x.reshape(3, 2), 2 * int(M[:, :3].sum())),
    "entries": (lambda x: tg.sparse.diags_array([x[1:], x], offsets=[1, 0]) @ np.ones(6), 11),
    "in place": (lambda x: _stored(x), 7),
    "outer": (lambda x: np.outer(x[:2], x[2:4]), 8),
    "fourier": (lambda x: np.real(np.fft.fft(x.reshape(2, 3), axis=1)), 18),
    "brusselator": (brusselator(4), 6 * 32),
}


def _stored(x):
    y = np.zeros(6)
    y[2:5] = x[:3] * x[1:4]
    y[3] = x[5]
    y[0:2] = y[1:3]
    return y


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("name", TIGHT)
def test_patterns_are_tight_and_entries_those_of_the_dense_jacobian(name, mode, rng):
    f, nnz = TIGHT[name]
    x = rng.normal(size=32 if name == "brusselator" else 6) + 1
    found = tg.jacobian(f, mode=mode, sparsity="detect", allow_unused=True)(x)
    assert isinstance(found, scipy.sparse.csr_array)
    dense = tg.jacobian(f, allow_unused=True)(x)
    np.testing.assert_allclose(found.toarray(), dense.reshape(-1, x.size), rtol=1e-13, atol=1e-14)
    assert found.nnz <= nnz + (6 if name == "zero slopes" else 0)
    given = tg.jacobian(f, mode=mode, sparsity=found, allow_unused=True)(x)
    np.testing.assert_array_equal(given.toarray(), found.toarray())


@pytest.mark.parametrize("name", sorted(array_programs.PROGRAMS))
def test_patterns_of_whole_programs_hold_all_nonzeros(name, rng):
    f, shapes = array_programs.PROGRAMS[name]
    args = [0.5 * rng.normal(size=s) if s else 0.5 for s in shapes]
    found = tg.jacobian(f, sparsity="detect", allow_unused=True)(*args)
    dense = np.reshape(tg.jacobian(f, allow_unused=True)(*args), found.shape)
    np.testing.assert_allclose(found.toarray(), dense, rtol=1e-10, atol=1e-12)
    turned = tg.jacobian(f, mode="reverse", sparsity="detect", allow_unused=True)(*args)
    np.testing.assert_allclose(turned.toarray(), dense, rtol=1e-10, atol=1e-12)


HESSIANS = {
    "chain": lambda x: np.sum((x[1:] - x[:-1] ** 2) ** 2) + np.sum(np.cos(x)),
    "arrow": lambda x: x[0] * np.sum(x[1:] ** 2),
    "grid": lambda x: (
        np.sum((x.reshape(3, 4)[1:] * x.reshape(3, 4)[:-1]) ** 2)
        + np.sum(x.reshape(3, 4)[:, 1:] * x.reshape(3, 4)[:, :-1])
    ),
    "linear": lambda x: np.sum(x),
    "separable": lambda x: np.sum(np.exp(x)),
    "dense": lambda x: np.sum(x) ** 3,
    "solution": lambda x: np.sum(
        tg.sparse.linalg.spsolve(tg.sparse.diags_array([2 + x**2]), np.ones(12)) ** 2
    ),
    "in place": lambda x: np.sum(_stored(x) ** 2 * np.arange(6)),
    "norm": lambda x: np.linalg.norm(x[:3]) + np.linalg.norm(x[4:]),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name, rng):
    f = HESSIANS[name]
    x = rng.normal(size=12)
    found = tg.hessian(f, sparsity="detect")(x)
    np.testing.assert_allclose(found.toarray(), tg.hessian(f)(x), rtol=1e-12, atol=1e-13)
    given = tg.hessian(f, sparsity=found)(x)
    np.testing.assert_allclose(given.toarray(), found.toarray(), rtol=1e-12, atol=1e-13)
    if name == "separable":
        assert found.nnz == 12
    if name == "chain":
        assert found.nnz == 34


def test_fewer_directions_than_columns(rng):
    """An arrow is dense in one row and column: two colours show its Hessian, as a Jacobian it takes all."""
    j = tg.jacobian(brusselator(8), sparsity="detect")
    j(rng.normal(size=128))
    assert j.plan.forward and j.plan.colours.max() < 16
    h = tg.hessian(HESSIANS["arrow"], sparsity="detect")
    h(rng.normal(size=12))
    assert h.plan.colours.max() == 1
    wide = tg.jacobian(lambda x: np.stack([np.sum(x), np.sum(x**2)]), sparsity="detect")
    wide(rng.normal(size=50))
    assert not wide.plan.forward and wide.plan.colours.max() == 1


def test_colourings_of_random_patterns(rng):
    for _ in range(40):
        n = int(rng.integers(1, 15))
        dense = rng.random((n, n)) < rng.uniform(0.05, 0.5)
        colours = colouring.columns(scipy.sparse.csr_array(dense))
        for row in dense:
            assert len(set(colours[row])) == row.sum()
        both = scipy.sparse.csr_array(dense | dense.T | np.eye(n, dtype=bool))
        rows, columns = both.tocoo().coords
        colours = colouring.star(both)
        alone = colouring.readable(rows, columns, colours)
        mirrored = colouring.readable(columns, rows, colours)
        assert np.all(alone | mirrored)


def test_tensors_and_what_is_tracked_outside_stay_connected(rng):
    x = rng.normal(size=5)

    def outer(a):
        return np.sum(tg.jacobian(lambda x: a * x[1:] * x[:-1], sparsity="detect")(x).data ** 2)

    dense = lambda a: np.sum(tg.jacobian(lambda x: a * x[1:] * x[:-1])(x) ** 2)  # noqa: E731
    np.testing.assert_allclose(tg.grad(outer)(2.0), tg.grad(dense)(2.0))

    def third(x):
        return np.sum(
            tg.hessian(lambda x: np.sum(x[1:] * x[:-1] ** 3), sparsity="detect")(x).data ** 2
        )

    slow = lambda x: np.sum(tg.hessian(lambda x: np.sum(x[1:] * x[:-1] ** 3))(x) ** 2)  # noqa: E731
    np.testing.assert_allclose(tg.grad(third)(x), tg.grad(slow)(x))
    t = tg.jacobian(np.sin, sparsity="detect")(tg.tensor(x))
    assert isinstance(t, tg.sparse.SparseTensor) and isinstance(t.data, tg.Tensor)
    j, aux = tg.jacobian(lambda x: (x**2, x.sum()), has_aux=True, sparsity="detect")(x)
    np.testing.assert_allclose(j.diagonal(), 2 * x)
    assert aux == x.sum()
    np.testing.assert_allclose(
        tg.jacobian(lambda y, x: y * x, 1, sparsity="detect")(2.0, x).diagonal(), 2
    )
    fast = tg.compile(lambda x: x**2)
    np.testing.assert_allclose(tg.jacobian(fast, sparsity="detect")(x).diagonal(), 2 * x)
    single = tg.jacobian(np.sin, sparsity="detect")(x.astype("f4"))
    assert single.dtype == np.float32


def test_of_a_compiled_function_all_directions_are_one_program(rng):
    """Once the pattern is known; where another branch has another pattern the tape finds that."""
    runs = []

    def f(x, weight):
        runs.append(0)
        return weight * x**2 * np.roll(x, 1) if x[0] > 0 else np.sin(x) * x[2]

    x, turned = np.abs(rng.normal(size=8)), -np.abs(rng.normal(size=8))
    fast = tg.jacobian(tg.compile(f), sparsity="detect")
    for point in (x, 2 * x):
        np.testing.assert_allclose(
            fast(point, 3.0).toarray(), tg.jacobian(f)(point, 3.0), rtol=1e-12
        )
    seen = len(runs)
    found = fast(3 * x, 2.0)
    assert len(runs) == seen
    np.testing.assert_allclose(found.toarray(), tg.jacobian(f)(3 * x, 2.0), rtol=1e-12)
    for _ in range(2):
        np.testing.assert_allclose(fast(turned, 3.0).toarray(), tg.jacobian(f)(turned, 3.0), rtol=1e-12, atol=1e-14)  # fmt: skip
    energy = lambda x: np.sum(x[1:] ** 2 * np.exp(x[:-1]))  # noqa: E731
    curved = tg.hessian(tg.compile(energy), sparsity="detect")
    for point in (x, turned):
        np.testing.assert_allclose(curved(point).toarray(), tg.hessian(energy)(point), rtol=1e-12)
    given = tg.jacobian(tg.compile(f), sparsity=found)
    given(x, 3.0)
    with pytest.raises(tg.NotDifferentiable, match="lacks entries"):
        given(turned, 3.0)


def test_a_pattern_that_lacks_entries_is_told(rng):
    x = rng.normal(size=6)
    f = lambda x: x * np.roll(x, 1)  # noqa: E731
    for mode in ("forward", "reverse"):
        with pytest.raises(tg.NotDifferentiable, match="lacks entries"):
            tg.jacobian(f, mode=mode, sparsity=scipy.sparse.eye_array(6))(x)
    with pytest.raises(tg.NotDifferentiable, match="lacks entries"):
        tg.jacobian(f, sparsity=scipy.sparse.csr_array((6, 6)))(x)
    with pytest.raises(ValueError, match=r"shape \(6, 6\)"):
        tg.jacobian(f, sparsity=scipy.sparse.eye_array(5))(x)
    with pytest.raises(ValueError, match='"detect"'):
        tg.jacobian(f, sparsity="dense")
    with pytest.raises(TypeError, match="one array"):
        tg.jacobian(lambda x, y: x * y, (0, 1), sparsity="detect")
    with pytest.raises(TypeError, match="pytree"):
        tg.jacobian(lambda p: p["a"], sparsity="detect")({"a": x, "b": x})
    with pytest.raises(tg.NotDifferentiable, match="complex"):
        tg.jacobian(lambda x: x * 1j, sparsity="detect")(x)
    with pytest.raises(tg.TraceError, match="outside"):
        tg.compile(lambda x: tg.jacobian(f, sparsity="detect")(x).sum())(x)
    with pytest.warns(tg.IndependentValue):
        tg.jacobian(lambda x: np.ones(3), sparsity="detect")(x)
    with pytest.raises(tg.NotDifferentiable, match="sort|sparsity="):
        tg.jacobian(lambda x: np.cumsum(np.cumsum(x)), sparsity="detect")(np.ones(20_000))


def test_a_jacobian_of_rounding_alone_is_not_called_wrong(rng):
    def f(
        x,
    ):  # the sum of what is left of the mean is 0, and so is the derivative: products with it agree in no digit
        x = x - x.mean()
        return x * x.sum()

    x = rng.normal(size=8)
    for mode in ("forward", "reverse"):
        found = tg.jacobian(f, mode=mode, sparsity="detect")(x)
        np.testing.assert_allclose(found.toarray(), 0, atol=1e-14)


@pytest.mark.parametrize("shape", [(0,), (1,), ()])
def test_small_arrays(shape):
    x = np.ones(shape)
    found = tg.jacobian(lambda x: x * 2.0, sparsity="detect", allow_unused=True)(x)
    assert found.shape == (x.size, x.size)
    np.testing.assert_array_equal(found.toarray(), 2 * np.eye(x.size))


# ------------------------------------------------------------------------------------------------------------- solvers


def bratu(u, k=1.0):
    """-u'' = k exp(u) on a grid, zero at both ends."""
    h = 1 / (len(u) + 1)
    wide = np.concatenate([np.zeros(1), u, np.zeros(1)])
    return wide[2:] - 2 * wide[1:-1] + wide[:-2] + k * h * h * np.exp(wide[1:-1])


def test_roots_of_many_unknowns(rng):
    found = tg.root(bratu, np.zeros(150), jac_sparsity="detect", tol=1e-13)
    assert found.success
    dense = tg.root(bratu, np.zeros(150), tol=1e-13)
    np.testing.assert_allclose(found.x, dense.x, rtol=1e-9)
    pattern = tg.jacobian(bratu, sparsity="detect")(np.zeros(150))
    given = tg.root(bratu, np.zeros(150), jac_sparsity=pattern, tol=1e-13)
    np.testing.assert_allclose(given.x, dense.x, rtol=1e-9)
    tree = tg.root(lambda p: {"a": p["a"] ** 2 - 2, "b": p["b"] * p["a"] - 1}, {"a": 1.0, "b": np.ones(2)}, jac_sparsity="detect")  # fmt: skip
    np.testing.assert_allclose(tree.x["b"], 2**-0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="'krylov' only"):
        tg.root(bratu, np.zeros(5), method="broyden1", jac_sparsity="detect")


@pytest.mark.long
def test_solutions_of_many_unknowns_are_differentiated_with_sparse_systems(rng, monkeypatch):
    """The derivative of 150 unknowns is that of differences, in both modes and to second order, and makes no dense Jacobian."""
    from tapegrad.interop import implicit

    dense = []
    original = implicit.jacobian

    def watched(f, **settings):
        dense.append("sparsity" not in settings)
        return original(f, **settings)

    monkeypatch.setattr(implicit, "jacobian", watched)
    start = tg.root(bratu, np.zeros(150), tol=1e-13).x

    def loss(k):
        return np.sum(
            tg.root(lambda u: bratu(u, k), start, jac_sparsity="detect", tol=1e-12).x ** 2
        )

    k, along = np.ones(150), rng.normal(size=150)
    h = 1e-4

    def slope(f):
        return (
            f(k - 2 * h * along)
            - 8 * f(k - h * along)
            + 8 * f(k + h * along)
            - f(k + 2 * h * along)
        ) / (12 * h)

    # A tracked solution is improved by Newton's steps, so that differences of it say something.
    expected = slope(lambda k: loss(tg.tensor(k, requires_grad=True)).item())
    np.testing.assert_allclose(tg.grad(loss)(k) @ along, expected, rtol=1e-8)
    np.testing.assert_allclose(tg.jvp(loss, (k,), (along,))[1], expected, rtol=1e-8)
    turned = slope(tg.grad(loss))
    np.testing.assert_allclose(tg.hvp(loss)(k, along), turned, rtol=1e-6, atol=1e-8 * np.abs(turned).max())  # fmt: skip
    assert dense and not any(dense)
    with pytest.raises(tg.NotDifferentiable, match="singular"):
        singular = lambda k: tg.root(lambda u: u * 0 + k * (u - u), np.ones(150)).x.sum()  # noqa: E731
        tg.grad(singular)(1.0)


def test_fits_and_minima_with_sparse_matrices():
    residuals = lambda p: np.concatenate([10 * np.diff(p), p - np.linspace(0, 1, 40) ** 2])  # noqa: E731
    dense = tg.least_squares(residuals, np.zeros(40))
    sparse = tg.least_squares(residuals, np.zeros(40), jac_sparsity="detect", xtol=1e-15, ftol=1e-15, gtol=1e-12)  # fmt: skip
    np.testing.assert_allclose(sparse.x, dense.x, atol=1e-6)
    np.testing.assert_allclose(sparse.covariance, dense.covariance, rtol=1e-6)
    assert scipy.sparse.issparse(sparse.jac)

    def moved(a):
        fit = tg.least_squares(lambda p: residuals(p) * a, np.zeros(40), jac_sparsity="detect")
        return fit.x[3] * a

    np.testing.assert_allclose(tg.grad(moved)(1.0), dense.x[3], atol=1e-6)
    many = tg.least_squares(lambda p: p - 1, np.zeros(2000), jac_sparsity="detect")
    assert many.covariance is None and many.stderr is None
    np.testing.assert_allclose(many.x, 1)
    with pytest.raises(ValueError, match="'trf'"):
        tg.least_squares(residuals, np.zeros(40), method="lm", jac_sparsity="detect")
    cost = lambda p: np.sum(residuals(p) ** 2)  # noqa: E731
    found = tg.minimize(cost, np.zeros(40), method="trust-constr", hess_sparsity="detect")
    np.testing.assert_allclose(found.x, dense.x, atol=1e-5)
    with pytest.raises(ValueError, match="trust-constr"):
        tg.minimize(cost, np.zeros(40), method="BFGS", hess_sparsity="detect")
