"""tg.sparse: the values of scipy.sparse, and derivatives by differences, in every mode; nothing dense."""

import pickle

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import tapegrad as tg

FORMATS = ("csr", "csc", "coo", "dia", "bsr", "lil", "dok")


def matrix(rng, shape=(4, 5), dtype=float, density=0.5):
    """A dense matrix with zeros in it, and a row and a column without entries."""
    a = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.normal(size=shape)
    a[rng.random(shape) > density] = 0
    if min(shape) > 2:
        a[1, :], a[:, 2] = 0, 0
    return a.astype(dtype)


def system(rng, n=6, dtype=float):
    """A regular matrix with zeros in it."""
    a = matrix(rng, (n, n), dtype, 0.4)
    return a + (4 + np.arange(n)) * np.eye(n).astype(dtype)


def slope(f, x, along, h=1e-4):
    """Derivative along a direction, by five points."""
    return sum(c * f(x + k * h * along) for k, c in ((-2, 1), (-1, -8), (1, 8), (2, -1))) / (12 * h)


def direction(rng, x):
    along = rng.normal(size=np.shape(x))
    return along + 1j * rng.normal(size=np.shape(x)) if np.iscomplexobj(x) else along


def agrees(f, x, rng, rtol=1e-7):
    """Gradient, forward mode and second derivatives of a function of one array, against differences."""
    w = None

    def loss(x):
        nonlocal w
        y = f(x)
        if w is None:
            w = rng.normal(size=np.shape(y)) + (
                1j * rng.normal(size=np.shape(y)) if y.dtype.kind == "c" else 0
            )
        return np.sum(np.sin(np.real(y * w)))

    loss(x)
    along = direction(rng, x)
    expected = slope(loss, x, along)
    g = tg.grad(loss)(x)
    assert g.dtype == x.dtype and g.shape == x.shape
    scale = np.abs(g).max() + 1
    np.testing.assert_allclose(
        np.sum(np.real(np.conj(g) * along)), expected, rtol=rtol, atol=rtol * scale
    )
    np.testing.assert_allclose(
        tg.jvp(loss, (x,), (along,))[1], expected, rtol=rtol, atol=rtol * scale
    )
    turned = slope(tg.grad(loss), x, along)
    found = tg.jvp(tg.grad(loss), (x,), (along,))[1]
    np.testing.assert_allclose(
        found, turned, rtol=10 * rtol, atol=10 * rtol * (np.abs(turned).max() + 1)
    )
    again = tg.grad(lambda x: np.sum(np.real(np.conj(tg.grad(loss)(x)) * along)))(x)
    if not np.iscomplexobj(x):  # the Hessian is symmetric
        np.testing.assert_allclose(again, found, rtol=1e-9, atol=1e-9 * (np.abs(found).max() + 1))


# ------------------------------------------------------------------------------------------ SciPy's matrices as constants


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_constants_of_every_format_in_products_with_tensors(form, kind, rng):
    dense = matrix(rng)
    a = getattr(scipy.sparse, f"{form}_{kind}")(dense)
    x, X = rng.normal(size=5), rng.normal(size=(5, 2))
    y, Y = rng.normal(size=4), rng.normal(size=(3, 4))
    for f, plain, v in [
        (lambda x: a @ x, dense @ x, x),
        (lambda x: a @ x, dense @ X, X),
        (lambda y: y @ a, y @ dense, y),
        (lambda y: y @ a, Y @ dense, Y),
        (lambda y: a.T @ y, dense.T @ y, y),
        (lambda x: x @ a.T, x @ dense.T, x),
    ]:
        np.testing.assert_allclose(
            f(tg.tensor(v, requires_grad=True)).detach().numpy(), plain, rtol=1e-13
        )
    agrees(lambda x: a @ x, X, rng)
    agrees(lambda y: y @ a, Y, rng)


@pytest.mark.long
def test_nothing_becomes_dense(rng, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("a sparse matrix was made dense")

    a = scipy.sparse.csr_array(matrix(rng))
    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array):
        monkeypatch.setattr(kind, "toarray", refused)
        monkeypatch.setattr(kind, "todense", refused)
    tg.grad(lambda x: np.sum((a @ x) ** 2))(np.ones(5))
    A = tg.sparse.csr_array(a)
    tg.grad(lambda A: np.sum((A @ np.ones(5)) ** 2) + (A @ A.T).sum())(A)
    n = 200_000  # as a dense matrix 300 GB
    d = np.full(n, 4.0)

    def loss(d):
        A = tg.sparse.diags_array([-1.0, d, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        return np.sum(tg.sparse.linalg.spsolve(A, np.ones(n)))

    g = tg.grad(loss)(d)
    lu = scipy.sparse.linalg.splu(
        scipy.sparse.diags_array([-1.0, d, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsc()
    )
    np.testing.assert_allclose(g, -lu.solve(np.ones(n), "T") * lu.solve(np.ones(n)), rtol=1e-10)


@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_other_operators_with_constants(kind, rng):
    dense = matrix(rng)
    a = getattr(scipy.sparse, f"csr_{kind}")(dense)
    x = rng.normal(size=(4, 5))
    s = tg.tensor(2.0, requires_grad=True)
    for found, expected in [
        (s * a, 2 * dense),
        (a / s, dense / 2),
    ]:
        assert isinstance(found, tg.sparse.SparseTensor)
        np.testing.assert_allclose(found.toarray().detach().numpy(), expected)
    t = tg.tensor(x, requires_grad=True)
    np.testing.assert_allclose((t + a).detach().numpy(), x + dense)
    np.testing.assert_allclose((t - a).detach().numpy(), x - dense)
    np.testing.assert_allclose((a + t).detach().numpy(), x + dense)
    np.testing.assert_allclose((a - t).detach().numpy(), dense - x)
    if kind == "array":
        np.testing.assert_allclose((t * a).toarray().detach().numpy(), x * dense)
        agrees(lambda x: (x * a).data, x, rng)
    else:  # SciPy's matrices multiply as matrices do
        np.testing.assert_allclose((t.T * a).detach().numpy(), x.T @ dense)
        np.testing.assert_allclose((a * t.T).detach().numpy(), dense @ x.T)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_dtypes_of_products(dtype, rng):
    dense = matrix(rng, dtype=dtype)
    a = scipy.sparse.csr_array(dense)
    for other in ("f4", "f8", "c16"):
        x = rng.normal(size=5).astype(other)
        y = tg.tensor(x, requires_grad=True)
        z = a @ y
        assert z.dtype == (dense @ x).dtype
        np.testing.assert_allclose(z.detach().numpy(), dense @ x, rtol=1e-5)
        np.real(z).sum().backward()
        assert y.grad.dtype == other
    assert (
        scipy.sparse.csr_array(np.eye(2, dtype=int)) @ tg.tensor([1.0, 2.0], requires_grad=True)
    ).dtype == float


def test_a_constant_that_is_changed_later_changes_no_gradient(rng):
    a = scipy.sparse.csr_array(matrix(rng))
    x = tg.tensor(np.ones(5), requires_grad=True)
    y = np.sum((a @ x) ** 2)
    expected = 2 * a.T @ (a @ np.ones(5))
    a.data *= 2
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), expected)


# ------------------------------------------------------------------------------------------------- tensors that are sparse


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_made_of_entries(form, dtype, rng):
    dense = matrix(rng, (4, 6), dtype)
    theirs = getattr(scipy.sparse, f"{form}_array")(
        dense, **({"blocksize": (2, 3)} if form == "bsr" else {})
    )
    where = (theirs.row, theirs.col) if form == "coo" else None
    make = getattr(tg.sparse, f"{form}_array")

    def ours(data):
        return make((data, where) if where else (data, theirs.indices, theirs.indptr), shape=(4, 6))

    np.testing.assert_array_equal(ours(theirs.data).toarray(), dense)
    np.testing.assert_array_equal(make(theirs).toarray(), dense)
    agrees(lambda data: ours(data).toarray(), theirs.data, rng)
    agrees(lambda data: ours(data) @ np.ones(6), theirs.data, rng)


def test_entries_out_of_order_and_several_at_a_place_add_up(rng):
    data = rng.normal(size=6)
    indices, indptr = np.array([2, 0, 2, 1, 1, 0]), np.array([0, 3, 3, 6])
    theirs = scipy.sparse.csr_array((data, indices, indptr), shape=(3, 3)).toarray()
    ours = lambda data: tg.sparse.csr_array((data, indices, indptr), shape=(3, 3))  # noqa: E731
    np.testing.assert_allclose(ours(data).toarray(), theirs)
    assert ours(data).nnz == 4
    agrees(lambda data: ours(data).toarray(), data, rng)


def test_made_of_diagonals(rng):
    data = rng.normal(size=(3, 5))
    offsets = [-1, 0, 2]
    for shape in ((5, 5), (4, 6), (6, 4)):
        theirs = scipy.sparse.dia_array((data, offsets), shape=shape).toarray()
        np.testing.assert_allclose(
            tg.sparse.dia_array((data, offsets), shape=shape).toarray(), theirs
        )
        agrees(lambda d, s=shape: tg.sparse.dia_array((d, offsets), shape=s).toarray(), data, rng)
    lines = [rng.normal(size=3), rng.normal(size=4), 2.0]
    theirs = scipy.sparse.diags_array(
        [lines[0], lines[1], [2.0]], offsets=[-1, 0, 1], shape=(4, 4)
    ).toarray()
    np.testing.assert_allclose(
        tg.sparse.diags_array(lines, offsets=[-1, 0, 1], shape=(4, 4)).toarray(), theirs
    )
    agrees(
        lambda d: tg.sparse.diags_array([d, 1.0], offsets=[0, 1], shape=(4, 4)).toarray(),
        lines[1],
        rng,
    )
    np.testing.assert_array_equal(tg.sparse.diags_array([lines[0]]).toarray(), np.diag(lines[0]))
    np.testing.assert_array_equal(tg.sparse.eye_array(3, 4, k=1).toarray(), np.eye(3, 4, 1))


def of(form, dense):
    """Our matrix with the entries of a dense one, as a function of them."""
    a = scipy.sparse.csr_array(dense)
    return a.data, lambda data: tg.sparse.csr_array((data, a.indices, a.indptr), shape=a.shape)


UNARY = {
    "transpose": (lambda a: a.T.toarray(), lambda a: a.T),
    "adjoint": (lambda a: a.H.toarray(), lambda a: a.conj().T),
    "sum": (lambda a: a.sum(), lambda a: a.sum()),
    "sum of columns": (lambda a: a.sum(axis=0), lambda a: a.sum(0)),
    "sum of rows": (lambda a: a.sum(axis=1), lambda a: a.sum(1)),
    "np.sum": (lambda a: np.sum(a), lambda a: a.sum()),
    "mean": (lambda a: a.mean(axis=1), lambda a: a.mean(1)),
    "diagonal": (lambda a: a.diagonal(), np.diagonal),
    "diagonal above": (lambda a: a.diagonal(1), lambda a: np.diagonal(a, 1)),
    "diagonal below": (lambda a: a.diagonal(-2), lambda a: np.diagonal(a, -2)),
    "trace": (lambda a: a.trace(), np.trace),
    "negative": (lambda a: (-a).toarray(), np.negative),
    "square": (lambda a: (a**2).toarray(), lambda a: a**2),
    "row": (lambda a: a[3], lambda a: a[3]),
    "rows": (lambda a: a[1:4:2].toarray(), lambda a: a[1:4:2]),
    "rows by number": (lambda a: a[[3, 0, 0]].toarray(), lambda a: a[[3, 0, 0]]),
    "columns": (lambda a: a[:, 1:].toarray(), lambda a: a[:, 1:]),
    "part": (lambda a: a[2:, :-1].toarray(), lambda a: a[2:, :-1]),
    "entry": (lambda a: a[0, 0] + a[0, 1] + a[3, 4], lambda a: a[0, 0] + a[0, 1] + a[3, 4]),
    "lower triangle": (lambda a: tg.sparse.tril(a).toarray(), np.tril),
    "upper triangle": (lambda a: tg.sparse.triu(a, 1).toarray(), lambda a: np.triu(a, 1)),
    "scaled": (lambda a: (2 * a / 3).toarray(), lambda a: 2 * a / 3),
    "plus dense": (lambda a: a + np.ones((4, 5)), lambda a: a + 1),
    "dense minus": (lambda a: np.ones((4, 5)) - a, lambda a: 1 - a),
    "frobenius": (tg.sparse.linalg.norm, np.linalg.norm),
    "norm 1": (lambda a: tg.sparse.linalg.norm(a, 1), lambda a: np.linalg.norm(a, 1)),
    "norm inf": (lambda a: tg.sparse.linalg.norm(a, np.inf), lambda a: np.linalg.norm(a, np.inf)),
}


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_a_matrix(name, dtype, rng):
    ours, theirs = UNARY[name]
    dense = matrix(rng, dtype=dtype, density=0.7)
    data, made = of("csr", dense)
    np.testing.assert_allclose(ours(made(data)), theirs(dense), rtol=1e-13, atol=1e-15)
    agrees(lambda data: ours(made(data)) + 0.0, data, rng)


BINARY = {
    "sum": (lambda a, b: a + b, lambda a, b: a + b),
    "difference": (lambda a, b: a - b, lambda a, b: a - b),
    "product by entries": (lambda a, b: a * b, lambda a, b: a * b),
    "product": (lambda a, b: a @ b.T, lambda a, b: a @ b.T),
    "product the other way": (lambda a, b: a.T @ b, lambda a, b: a.T @ b),
    "kron": (tg.sparse.kron, np.kron),
    "hstack": (lambda a, b: tg.sparse.hstack([a, b]), lambda a, b: np.hstack([a, b])),
    "vstack": (lambda a, b: tg.sparse.vstack([a, b]), lambda a, b: np.vstack([a, b])),
    "block_array": (
        lambda a, b: tg.sparse.block_array([[a, None], [b, a]]),
        lambda a, b: np.block([[a, 0 * a], [b, a]]),
    ),
    "block_diag": (
        lambda a, b: tg.sparse.block_diag([a, b]),
        lambda a, b: np.block([[a, 0 * a], [0 * a, b]]),
    ),
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_matrices(name, rng):
    ours, theirs = BINARY[name]
    dense, other = matrix(rng), matrix(rng)
    (data, made), (more, made_too) = of("csr", dense), of("csr", other)
    found = ours(made(data), made_too(more))
    np.testing.assert_allclose(found.toarray(), theirs(dense, other), rtol=1e-13, atol=1e-15)
    assert np.all(np.diff(found.indices)[np.diff(found.row) == 0] > 0)  # in order, none twice
    agrees(lambda data: ours(made(data), made_too(more)).data, data, rng)
    agrees(lambda more: ours(made(data), made_too(more)).data, more, rng)
    agrees(lambda data: ours(made(data), scipy.sparse.csc_array(other)).toarray(), data, rng)
    agrees(lambda data: ours(made(data), made(np.cos(data))).toarray(), data, rng)


def test_products_by_entries_with_what_is_broadcast(rng):
    dense = matrix(rng)
    data, made = of("csr", dense)
    for other in (
        rng.normal(size=5),
        rng.normal(size=(4, 1)),
        rng.normal(size=(1, 5)),
        rng.normal(size=(4, 5)),
        np.array([2.0]),
    ):
        np.testing.assert_allclose((made(data) * other).toarray(), dense * other)
        np.testing.assert_allclose((other * made(data)).toarray(), dense * other)
        np.testing.assert_allclose((made(data) / other).toarray(), dense / other)
        agrees(lambda other: (made(data) * other / (1 + other**2)).data, other, rng)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 3)])
def test_without_entries(shape):
    a = tg.sparse.csr_array(shape)
    assert a.shape == shape and a.nnz == 0
    x = tg.tensor(np.ones(shape[1]), requires_grad=True)
    y = a @ x
    assert y.shape == (shape[0],)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(shape[1]))
    assert (a + a).nnz == (a @ a.T).nnz == (a * a).nnz == 0
    assert a.T.shape == shape[::-1] and a.toarray().shape == shape


# ---------------------------------------------------------------------------------------------------- pytrees, engines


def test_a_matrix_is_an_argument_and_its_gradient_a_matrix(rng):
    dense = matrix(rng)
    a = tg.sparse.csr_array(dense)
    x = rng.normal(size=5)
    loss = lambda p: np.sum((p["a"] @ p["x"]) ** 2)  # noqa: E731
    g = tg.grad(loss)({"a": a, "x": x})
    assert isinstance(g["a"], tg.sparse.SparseTensor) and g["a"].pattern == a.pattern
    expected = 2 * np.outer(dense @ x, x) * (dense != 0)
    np.testing.assert_allclose(g["a"].to_scipy().toarray(), expected, rtol=1e-13)
    value, push = tg.linearize(lambda a: a @ x, a)
    np.testing.assert_allclose(push(a), value)
    _, pull = tg.vjp(lambda a: a @ x, a)
    assert pull(np.ones(4))[0].shape == a.shape
    assert tg.hvp(lambda a: np.sum((a @ x) ** 3))(a, a).pattern == a.pattern
    b = tg.sparse.csr_array(dense).requires_grad_()
    loss({"a": b, "x": x}).backward()
    np.testing.assert_allclose(b.grad.toarray().numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("engine", ["sweep", "replay"])
def test_engines(engine, rng):
    before = tg.engine()
    tg.set_engine(engine)
    data, made = of("csr", system(rng))
    b = rng.normal(size=6)

    def loss(data):
        return np.sum(tg.sparse.linalg.spsolve(made(data), b) ** 2) + np.sum(made(data) @ b)

    along = rng.normal(size=data.shape)
    np.testing.assert_allclose(
        np.sum(tg.grad(loss)(data) * along), slope(loss, data, along), rtol=1e-8
    )
    tg.set_engine(before)


def test_compiled_programs_call_scipy(rng):
    data, made = of("csr", system(rng))
    a = scipy.sparse.csr_array(system(rng))
    b = rng.normal(size=6)

    def loss(data, b):
        x = tg.sparse.linalg.spsolve(made(data), b)
        return np.sum((a @ x) ** 2) + np.sum((x @ a) * x) + (made(data) @ made(data).T).sum()

    fast = tg.compile(tg.value_and_grad(loss, argnums=(0, 1)))
    for scale in (1.0, 1.5, 0.7):
        value, grads = fast(scale * data, b)
        expected, slopes = tg.value_and_grad(loss, argnums=(0, 1))(scale * data, b)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        for g, h in zip(grads, slopes, strict=True):
            np.testing.assert_allclose(g, h, rtol=1e-11)
    twice = tg.compile(tg.hvp(lambda b: loss(data, b)))
    np.testing.assert_allclose(twice(b, b), tg.hvp(lambda b: loss(data, b))(b, b), rtol=1e-11)
    with pytest.raises(tg.TraceError, match="pattern is a constant"):
        tg.compile(lambda i: tg.sparse.csr_array((np.ones(2), i, [0, 1, 2])).sum())(
            np.array([0, 1])
        )


def test_compiled_programs_of_arrays_alone(rng):
    a = scipy.sparse.csr_array(matrix(rng))
    for f in (lambda x: a @ x, lambda x: x @ a.T, lambda x: (x * a).sum(), lambda x: x + a):
        fast = tg.compile(f)
        for scale in (1.0, 2.0):
            x = scale * rng.normal(size=5)
            np.testing.assert_allclose(
                fast(x), f(tg.tensor(x, requires_grad=True)).detach().numpy()
            )
    big = scipy.sparse.eye_array(5000).tocsr()
    np.testing.assert_allclose(tg.compile(lambda x: 2 * (big @ x))(np.ones(5000)), 2)


def test_compiled_programs_with_matrices_as_arguments_and_with_solvers(rng):
    a = tg.sparse.csr_array(system(rng))
    b = rng.normal(size=6)
    spd = a @ a.T
    programs = {
        "gradient by a matrix": (tg.grad(lambda a: np.sum((a @ b) ** 2)), a),
        "conjugate gradients": (lambda b: tg.sparse.linalg.cg(spd, b, rtol=1e-13)[0], b),
        "determinant": (lambda a: tg.sparse.linalg.slogdet(a), a),
        "eigenvector": (
            tg.grad(lambda a: tg.sparse.linalg.eigsh(a + a.T, 1, v0=np.ones(6))[1][0, 0] ** 2),
            a,
        ),
    }
    for name, (f, x) in programs.items():
        fast = tg.compile(f)
        for scale in (1.0, -1.5):
            found, expected = (getattr(y, "data", y) for y in (fast(x * scale), f(x * scale)))
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10, err_msg=name)


def test_functions_of_numpy(rng):
    a = tg.sparse.csr_array(matrix(rng))
    x = rng.normal(size=5)
    np.testing.assert_array_equal(np.dot(a, x), a @ x)
    np.testing.assert_array_equal(np.sum(a, axis=1), a.sum(axis=1))
    assert np.shape(a) == (4, 5) and np.ndim(a) == 2
    assert abs(a).dtype == np.transpose(a).dtype == np.real(a).dtype
    for f in (np.linalg.inv, np.concatenate, np.exp):
        with pytest.raises(TypeError, match="dense|ufunc"):
            f([a, a] if f is np.concatenate else a)
    with pytest.raises(ValueError, match="nan or inf"):
        tg.sparse.linalg.spsolve(tg.sparse.csr_array(np.diag([1.0, np.nan])), np.ones(2))
    copied = pickle.loads(pickle.dumps(a))
    assert copied.pattern == a.pattern and np.array_equal(copied.data, a.data)


def test_vmap_and_nesting(rng):
    data, made = of("csr", matrix(rng))
    X = rng.normal(size=(3, 5))
    f = lambda x: np.sum(np.tanh(made(data) @ x))  # noqa: E731  # noqa: E731
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(X), np.stack([tg.grad(f)(x) for x in X]))
    third = tg.grad(
        lambda d: tg.grad(lambda d: tg.grad(lambda d: np.sum((made(d) @ X[0]) ** 4))(d).sum())(
            d
        ).sum()
    )(data)
    expected = 24 * np.array(
        [(scipy.sparse.csr_array(made(data).to_scipy()) @ X[0])[r] for r in made(data).row]
    )
    sums = np.array([X[0][made(data).col[made(data).row == r]].sum() for r in made(data).row])
    np.testing.assert_allclose(third, expected * X[0][made(data).col] * sums**2, rtol=1e-10)


# ------------------------------------------------------------------------------------------------------------- solvers


@pytest.mark.parametrize("trans", ["N", "T", "H"])
@pytest.mark.parametrize(
    "dtypes", [(float, float), (complex, complex), (float, complex), (complex, float)]
)
def test_direct_solvers(dtypes, trans, rng):
    dense = system(rng, dtype=dtypes[0])
    data, made = of("csr", dense)
    turned = {"N": dense, "T": dense.T, "H": dense.conj().T}[trans]
    for b in (matrix(rng, (6, 3), dtypes[1]), matrix(rng, (6, 3), dtypes[1])[:, 0]):
        solve = lambda data, b: tg.sparse.linalg.splu(made(data)).solve(b, trans)  # noqa: E731
        np.testing.assert_allclose(
            solve(data, b), np.linalg.solve(turned, b), rtol=1e-12, atol=1e-14
        )
        agrees(lambda data: solve(data, b), data, rng)
        agrees(lambda b: solve(data, b), b, rng)


def test_one_factorisation_serves_all(rng, monkeypatch):
    made = []
    original = scipy.sparse.linalg.splu
    monkeypatch.setattr(
        scipy.sparse.linalg, "splu", lambda *a, **k: made.append(1) or original(*a, **k)
    )
    data, matrix_of = of("csr", system(rng))
    bs = rng.normal(size=(3, 6))

    def loss(data):
        lu = tg.sparse.linalg.splu(matrix_of(data))
        return sum(np.sum(lu.solve(b) ** 2) for b in bs)

    tg.grad(loss)(data)
    assert len(made) == 1
    tg.hvp(loss)(data, np.ones_like(data))
    assert len(made) == 2


def test_float32_stays(rng):
    data, made = of("csr", system(rng).astype("f4"))
    b = tg.tensor(rng.normal(size=6).astype("f4"), requires_grad=True)
    x = tg.sparse.linalg.spsolve(made(data), b)
    assert x.dtype == np.float32
    x.sum().backward()
    assert b.grad.dtype == np.float32


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_substitution(lower, unit, rng):
    dense = system(rng)
    data, made = of("csr", dense)
    b = rng.normal(size=6)
    part = (np.tril if lower else np.triu)(dense)
    if unit:
        part[np.diag_indices(6)] = 1

    def f(data, b):
        return tg.sparse.linalg.spsolve_triangular(made(data), b, lower, unit_diagonal=unit)

    np.testing.assert_allclose(f(data, b), np.linalg.solve(part, b), rtol=1e-12)
    agrees(lambda data: f(data, b), data, rng)
    agrees(lambda b: f(data, b), b, rng)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", ["cg", "minres", "gmres", "bicgstab"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_iterative_solvers(name, preconditioned, rng):
    dense = system(rng)
    data, made = of("csr", dense)
    symmetric = name in ("cg", "minres")
    matrix_of = (lambda d: made(d) + made(d).T) if symmetric else made
    full = matrix_of(data).toarray()
    b = rng.normal(size=6)
    m = scipy.sparse.diags_array(1 / np.diag(full)) if preconditioned else None
    solver = getattr(tg.sparse.linalg, name)

    def f(data, b):
        x, info = solver(matrix_of(data), b, rtol=1e-13, M=m)
        assert info == 0
        return x

    np.testing.assert_allclose(f(data, b), np.linalg.solve(full, b), rtol=1e-10)
    agrees(lambda data: f(data, b), data, rng, 1e-6)
    agrees(lambda b: f(data, b), b, rng, 1e-6)

    def by_operator(data, b):
        a = matrix_of(data)
        operator = tg.sparse.linalg.LinearOperator((6, 6), lambda v: a @ v)
        return solver(operator, b, rtol=1e-13, M=m)[0]

    np.testing.assert_allclose(by_operator(data, b), np.linalg.solve(full, b), rtol=1e-10)
    agrees(lambda data: by_operator(data, b), data, rng, 1e-6)
    agrees(lambda b: by_operator(data, b), b, rng, 1e-6)
    theirs = scipy.sparse.linalg.aslinearoperator(full)
    agrees(lambda b: solver(theirs, b, rtol=1e-13)[0], b, rng, 1e-6)
    dense_one = lambda a: solver(a + a.T if symmetric else a, b, rtol=1e-13)[0]  # noqa: E731
    agrees(dense_one, dense, rng, 1e-6)


def test_iterations_that_do_not_converge_have_no_derivative(rng):
    a = tg.sparse.csr_array(system(rng))
    b = rng.normal(size=6)
    assert tg.sparse.linalg.gmres(a, b, maxiter=1, restart=1, rtol=1e-14)[1] > 0
    with pytest.raises(tg.NotDifferentiable, match="did not converge"):
        tg.grad(lambda b: tg.sparse.linalg.gmres(a, b, maxiter=1, restart=1, rtol=1e-14)[0].sum())(
            b
        )


def test_errors_say_what_to_do(rng):
    a = tg.sparse.csr_array(matrix(rng))
    with pytest.raises(ValueError, match="vector of length 5"):
        a @ np.ones(4)
    with pytest.raises(ValueError, match="inner lengths"):
        a @ a
    with pytest.raises(ValueError, match="must agree"):
        a + a.T
    with pytest.raises(TypeError, match="toarray"):
        a + 1.0
    with pytest.raises(TypeError, match="csr_array"):
        tg.sparse.linalg.spsolve(np.eye(2), np.ones(2))
    with pytest.raises(np.linalg.LinAlgError, match="as many equations"):
        tg.sparse.linalg.splu(a)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        tg.sparse.linalg.spsolve(tg.sparse.csr_array(np.diag([1.0, 0.0]) + 0.0), np.ones(2))
    with pytest.raises(ValueError, match="places from 0 to 1"):
        tg.sparse.csr_array((np.ones(1), [2], [0, 1]), shape=(1, 2))
    with pytest.raises(ValueError, match="indptr"):
        tg.sparse.csr_array((np.ones(2), [0, 1], [0, 1]), shape=(1, 2))
    with pytest.raises(ValueError, match="a number for each entry|one number for each"):
        a.with_data(np.ones(2))
    with pytest.raises(TypeError, match="ufunc"):
        np.sin(a)
    with pytest.raises(tg.GradientLost, match="detach"):
        tg.grad(lambda d: a.with_data(d).to_scipy().sum())(np.ones(a.nnz))
    with pytest.raises(tg.GradientLost, match=r"x \* A .*take tensors"):
        scipy.sparse.eye_array(2).tocsr() * tg.tensor(np.ones(2), requires_grad=True)
    with pytest.raises(tg.GradientLost, match=r"write tg\.sparse\.linalg\.spsolve"):
        tg.grad(lambda b: scipy.sparse.linalg.spsolve(scipy.sparse.eye_array(2).tocsc(), b).sum())(
            np.ones(2)
        )


# --------------------------------------------------------------------------------- determinants, eigenvectors, exponentials


@pytest.mark.parametrize("dtype", [float, complex])
def test_determinants(dtype, rng):
    dense = system(rng, 7, dtype)[rng.permutation(7)]
    data, made = of("csr", dense)
    sign, size = tg.sparse.linalg.slogdet(made(data))
    expected = np.linalg.slogdet(dense)
    np.testing.assert_allclose([sign, size], expected, rtol=1e-12)
    agrees(lambda data: tg.sparse.linalg.slogdet(made(data))[1], data, rng)
    if dtype is complex:
        agrees(lambda data: tg.sparse.linalg.slogdet(made(data))[0], data, rng)
    else:
        assert tg.sparse.linalg.slogdet(made(-data))[0] == -sign
        fast = tg.compile(tg.grad(lambda data: tg.sparse.linalg.slogdet(made(data))[1]))
        for scale in (1.0, 2.0):
            found = fast(scale * data)
            np.testing.assert_allclose(found, np.linalg.inv(scale * dense).T[made(data).coords])
    many = tg.sparse.csr_array(system(rng, 150))
    found = tg.grad(lambda a: tg.sparse.linalg.slogdet(a)[1])(many)
    np.testing.assert_allclose(found.data, np.linalg.inv(many.toarray()).T[many.coords], rtol=1e-10, atol=1e-14)  # fmt: skip
    assert tg.sparse.linalg.slogdet(tg.sparse.csr_array((0, 0))) == (1, 0)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("settings", [{"which": "SA"}, {"which": "LM"}, {"sigma": 6.1}])
def test_eigenpairs(dtype, settings, rng):
    data, made = of("csr", system(rng, 9, dtype))
    hermitian = lambda data: made(data) + made(data).H  # noqa: E731
    v0 = np.ones(9, dtype)
    eigsh = lambda data: tg.sparse.linalg.eigsh(hermitian(data), 3, v0=v0, **settings)  # noqa: E731
    w, v = eigsh(data)
    full = hermitian(data).toarray()
    np.testing.assert_allclose(full @ v, v * w, atol=1e-10)
    assert np.all(np.diff(w) > 0)
    agrees(lambda data: tg.sparse.linalg.eigsh(hermitian(data), 3, v0=v0, return_eigenvectors=False, **settings), data, rng, 1e-6)  # fmt: skip

    def projections(data):  # what does not depend on the phase
        w, v = eigsh(data)
        v = v[:, :, None]
        return np.sum(
            v * np.conj(np.swapaxes(v, 0, 2)) * np.array([1.0, 2.0, 3.0])[:, None], axis=1
        )

    agrees(projections, data, rng, 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("settings", [{}, {"which": "SR"}, {"sigma": 1.3 + 0.2j}])
def test_eigenpairs_of_any_matrix(dtype, settings, rng):
    dense = matrix(rng, (9, 9), dtype) + np.diag(np.arange(9.0))
    data, made = of("csr", dense)
    v0 = np.ones(9, dtype)
    eigs = lambda data, **how: tg.sparse.linalg.eigs(made(data), 4, v0=v0, **settings, **how)  # noqa: E731
    w, vl, vr = eigs(data, left=True)
    np.testing.assert_allclose(dense @ vr, vr * w, atol=1e-10)
    np.testing.assert_allclose(dense.conj().T @ vl, vl * np.conj(w), atol=1e-10)
    overlap = np.sum(np.conj(vl) * vr, axis=0)
    assert np.all(overlap.real > 0) and np.all(np.abs(overlap.imag) < 1e-10)
    np.testing.assert_allclose(np.linalg.norm(vl, axis=0), 1)
    expected = scipy.sparse.linalg.eigs(scipy.sparse.csr_array(dense), 4, v0=v0, **settings)
    for found, one in zip(eigs(data), expected, strict=True):
        np.testing.assert_array_equal(found, one)
    agrees(lambda data: eigs(data, return_eigenvectors=False), data, rng, 1e-6)
    weights = np.arange(1.0, 5.0)

    def without_phases(data):
        w, vl, vr = eigs(data, left=True)
        return np.stack(
            [((weights * vr) @ np.conj(vl).T).ravel(), ((vr / w) @ np.conj(vr).T).ravel()]
        )

    agrees(without_phases, data, rng, 1e-5)
    for loss in (
        lambda data: np.sum(np.abs(eigs(data, return_eigenvectors=False))),
        lambda data: np.sum(np.abs(without_phases(data)) ** 2),
    ):
        fast = tg.compile(tg.grad(loss))
        for scale in (1.0, 1.01, 1.02):
            np.testing.assert_allclose(fast(scale * data), tg.grad(loss)(scale * data), rtol=1e-8, atol=1e-10)  # fmt: skip


def test_eigenvalues_of_any_matrix_against_the_dense_ones(rng):
    dense = matrix(rng, (12, 12)) * (rng.random((12, 12)) < 0.4) + np.diag(np.arange(12.0))
    a = tg.sparse.csr_array(dense)
    found = tg.grad(lambda a: tg.sparse.linalg.eigs(a, 1)[0].real.sum())(a)
    expected = tg.grad(lambda x: np.max(np.real(np.linalg.eigvals(x))))(dense)
    np.testing.assert_allclose(found.data, expected[a.coords], rtol=1e-9, atol=1e-11)


def test_a_repeated_eigenvalue_has_no_derivative():
    double = np.diag([5.0, 5.0, 1.0, 2.0, 3.0, 0.5])
    chain = double + 0.0
    chain[0, 1] = 1.0
    eigs, eigsh = tg.sparse.linalg.eigs, tg.sparse.linalg.eigsh
    for scale in (1e-12, 1.0, 1e12):
        for dense in (double, chain):
            a = tg.sparse.csr_array(scale * dense)
            for f in (
                lambda a: eigs(a, 1, v0=np.ones(6))[0].real.sum(),
                lambda a: np.sum(np.abs(eigs(a, 2, v0=np.ones(6))[1][0]) ** 2),
            ):
                for derivative in (tg.grad(f), lambda a, f=f: tg.jvp(f, (a,), (a,))):
                    with pytest.raises(tg.NotDifferentiable, match="repeated"):
                        derivative(a)
        a = tg.sparse.csr_array(scale * double)
        square = lambda a: eigsh(a, 1, v0=np.ones(6))[1][0, 0] ** 2  # noqa: E731
        with pytest.raises(tg.NotDifferentiable, match="repeated"):
            tg.grad(square)(a)
        near = scale * np.diag([5.0, 5.0 + 1e-6, 1.0, 2.0, 3.0, 0.5])
        near[0, 1] = near[1, 0] = scale * 1e-7
        assert np.isfinite(tg.grad(square)(tg.sparse.csr_array(near)).data).all()


def test_the_phase_of_an_eigenvector_is_a_choice(rng):
    a = tg.sparse.csr_array(matrix(rng, (7, 7)) + np.diag([0, 0, 0, 0, 0, 9, 9]) + 5 * (np.eye(7, k=1) - np.eye(7, k=-1)))  # fmt: skip
    v0 = np.ones(7)
    eigs = lambda a: tg.sparse.linalg.eigs(a, 2, v0=v0)  # noqa: E731
    assert abs(eigs(a)[0].imag).min() > 0.1
    with pytest.raises(tg.NotDifferentiable, match="choice"):
        tg.grad(lambda a: eigs(a)[1][0, 0].real)(a)
    tg.grad(lambda a: (lambda v: (v[0, 0] * v[1, 1]).real)(eigs(a)[1]))(a)
    hermitian = tg.sparse.csr_array(system(rng, 6, complex))
    hermitian = hermitian + hermitian.H
    with pytest.raises(tg.NotDifferentiable, match="choice"):
        tg.grad(lambda a: tg.sparse.linalg.eigsh(a, 1, v0=np.ones(6))[1][0, 0].real)(hermitian)


@pytest.mark.parametrize("dtype", [float, complex])
def test_singular_triplets(dtype, rng):
    data, made = of("csr", system(rng, 8, dtype)[:, :6])
    v0 = np.ones(6, dtype)
    svds = lambda data: tg.sparse.linalg.svds(made(data), 2, v0=v0)  # noqa: E731
    u, s, vh = svds(data)
    expected = np.linalg.svd(made(data).toarray(), compute_uv=False)
    np.testing.assert_allclose(s, expected[1::-1], rtol=1e-10)
    np.testing.assert_allclose(made(data).toarray() @ vh.conj().T, u * s, atol=1e-9)
    agrees(lambda data: svds(data)[1], data, rng, 1e-6)
    agrees(lambda data: (lambda u, s, vh: (u / s) @ vh)(*svds(data)), data, rng, 1e-5)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [float, complex])
def test_exponentials(scale, dtype, rng):
    dense = scale * (system(rng, 6, dtype) - 9 * np.eye(6)) / 10
    data, made = of("csr", dense)
    B = matrix(rng, (6, 2), dtype)
    f = lambda data, B: tg.sparse.linalg.expm_multiply(made(data), B)  # noqa: E731
    np.testing.assert_allclose(f(data, B), scipy.linalg.expm(dense) @ B, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(
        tg.sparse.linalg.expm_multiply(dense, B), f(data, B), rtol=1e-12, atol=1e-14
    )
    fast = tg.compile(f)
    np.testing.assert_allclose(fast(data, B), f(data, B), rtol=1e-12, atol=1e-14)
    if scale == 1:
        agrees(lambda data: f(data, B), data, rng)
        agrees(lambda data: fast(data, B), data, rng)
        agrees(lambda dense: tg.sparse.linalg.expm_multiply(dense, B), dense, rng)
        agrees(lambda B: f(data, B), B, rng)
        agrees(lambda data: f(data, B[:, 0]), data, rng)


@pytest.mark.long
def test_errors_of_decompositions(rng):
    a = tg.sparse.csr_array(system(rng))
    with pytest.raises(ValueError, match="fewer than all"):
        tg.sparse.linalg.eigsh(a, 6)
    with pytest.raises(tg.NotDifferentiable, match="generalised"):
        tg.grad(lambda a: tg.sparse.linalg.eigsh(a, 2, M=tg.sparse.eye_array(6))[0].sum())(a)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        tg.sparse.linalg.slogdet(tg.sparse.csr_array(np.diag([1.0, 0.0])))
    with pytest.raises(ValueError, match="not finite"):
        tg.compile(lambda d: tg.sparse.linalg.expm_multiply(a.with_data(d), np.ones(6)))(np.nan * a.data)  # fmt: skip
    n = 5000
    many = tg.sparse.diags_array([np.full(n, 2.0)])
    with pytest.raises(tg.NotDifferentiable, match="second derivative"):
        tg.grad(lambda d: tg.grad(lambda d: tg.sparse.linalg.slogdet(many.with_data(d))[1])(d).sum())(many.data)  # fmt: skip


def test_asformat_knows_scipys_names():
    a = tg.sparse.eye_array(3)
    assert all(
        a.asformat(name) is a for name in (None, "csr", "csc", "coo", "bsr", "dia", "dok", "lil")
    )
    with pytest.raises(ValueError, match="'dense'"):
        a.asformat("dense")


@pytest.mark.parametrize("name", ["gmres", "bicgstab"])
def test_iterations_that_end_at_rounding_have_derivatives(name):
    """A tolerance that rounding keeps out of reach: the solution is as good as a direct one, and was refused."""
    one = scipy.sparse.diags([-1.1, 2.0, -0.9], [-1, 0, 1], shape=(20, 20))
    given = scipy.sparse.csr_array(
        scipy.sparse.kron(scipy.sparse.eye(20), one) + scipy.sparse.kron(one, scipy.sparse.eye(20))
    )
    b, weights = np.linspace(1, 2, 400), np.cos(np.arange(given.nnz) % 3)

    def value(p, solve):
        A = tg.sparse.csr_array(
            (given.data * np.exp(p[0] * weights), given.indices, given.indptr), shape=given.shape
        )
        return np.sum(solve(A, p[1] * b) ** 3)

    def iterated(A, b):
        return getattr(tg.sparse.linalg, name)(A, b, rtol=1e-15, maxiter=400)[0]

    p = np.array([0.01, 1.0])
    np.testing.assert_allclose(
        tg.hessian(value)(p, iterated), tg.hessian(value)(p, tg.sparse.linalg.spsolve), rtol=1e-10
    )
    with pytest.raises(tg.NotDifferentiable, match="did not converge"):
        tg.grad(value)(
            p, lambda A, b: getattr(tg.sparse.linalg, name)(A, b, rtol=1e-15, maxiter=1)[0]
        )
