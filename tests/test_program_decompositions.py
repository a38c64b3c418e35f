"""Calls of decompositions in the program form: both rules of each routine against differences, whole functions against tensors."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.program import decompositions
from tapegrad.program.affine import affine
from tapegrad.program.arrays import Builder, of_buffer
from tapegrad.program.calls import CALLS
from tapegrad.program.derivative import gradient
from tapegrad.program.tangents import tangent
from tests.test_program_calls import close, run

EQUAL = "can be chosen in many ways|equal"


def both(a):
    """A symmetric matrix with eigenvalues apart."""
    return a + a.T + np.diag(np.arange(a.shape[0]) * 3.0)


def smallest(a, b):
    """An eigenvalue problem: of the lower triangle alone."""
    w, v = np.linalg.eigh(a + np.diag(np.arange(a.shape[0]) * 3.0))
    return np.sum(np.linalg.eigvalsh(a * a) * b[0]) + w[0] * np.sum((v[:, 0] * b[:, 0]) ** 2)


def projected(a, b):
    """Functions of a matrix by its eigenvectors, the matrix by values and vectors."""
    w, v = np.linalg.eigh(a @ a.T + np.diag(np.arange(a.shape[0]) * 3.0))
    return np.sum((v * np.sqrt(w)) @ v.T * b) + np.sum(v[0] ** 3 * v[-1])


def principal(a, b):
    """Principal components of a tall matrix, and what remains."""
    tall = np.concatenate((a, b, a * b))
    u, s, vt = np.linalg.svd(tall, False)
    part = s[0] * np.outer(u[:, 0], vt[0])
    return np.sum((tall - part) ** 2 * np.cos(tall)) + np.sum(u[:, -1] ** 2 * u[:, 0]) * s[-1]


def spread(a, b):
    s = np.linalg.svd(a)[1]
    return np.sum(s**3) + np.linalg.cond(b) + np.linalg.norm(a * b, 2) * np.linalg.matrix_rank(a)


def turned(a, b):
    """Orthogonal factors of a square and of a tall matrix."""
    q, r = np.linalg.qr(np.concatenate((a, b)))
    other = np.linalg.qr(a)
    return np.sum(q[:, 0] ** 3 * r[0, 0]) + np.sum(r * b) + np.sum(other[0] * b * other[1])


def fitted(a, b):
    tall, right = np.concatenate((a, b)), np.concatenate((b, a * a))
    x = np.linalg.lstsq(tall, right[:, 0])[0]
    y, left, _, s = np.linalg.lstsq(tall, right)
    return np.sum(x**2) + np.sum(np.sin(y)) + np.sum(left * left) + s[0]


def inverted(a, b):
    tall = np.concatenate((a, b, b @ a))
    return np.sum(np.linalg.pinv(tall)[:, 0] * a[0]) + np.sum(np.linalg.pinv(tall.T) ** 3)


def powers(a, b):
    return np.sum(np.linalg.matrix_power(a, 3) * b) + np.sum(
        np.linalg.matrix_power(b, 1) + np.linalg.matrix_power(a, -2) * np.linalg.matrix_power(b, 0)
    )


def iterated(a, b):
    """Matrices that change with the iteration, in values and size."""
    total = 0.0
    p = a @ a.T + np.diag(np.arange(a.shape[0]) * 2.0)
    for i in range(a.shape[0]):
        w, v = np.linalg.eigh(p[: i + 1, : i + 1])
        total += w[0] * v[0, 0] ** 2
        total += np.linalg.svd(b[i:, i:])[1][0]
        q, r = np.linalg.qr(a)
        p = p + 0.1 * np.outer(q[:, 0], r[0]) * np.linalg.eigvalsh(p)[-1]
    return total


FUNCTIONS = (
    smallest,
    projected,
    principal,
    spread,
    turned,
    fitted,
    inverted,
    powers,
    iterated,
)


def given(n, dtype=np.float64):
    """Two matrices of which singular values lie apart."""
    r = np.random.default_rng(n)
    d = np.diag(1.0 + np.arange(n))
    a, b = (d + 0.3 * r.normal(size=(n, n)) for _ in range(2))
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives(f, n):
    """Value, gradient, and along a direction the derivative and that of the gradient."""
    args = given(n)
    r = np.random.default_rng(n + 1)
    directions = r.normal(size=(n, n)), r.normal(size=(n, n))
    native = tg.njit(f, mode="form")
    value, gradient = tg.value_and_grad(native, (0, 1))(*args)
    expected, theirs = tg.value_and_grad(f, (0, 1))(*args)
    close(value, float(expected))
    slope = sum(float(np.sum(g * d)) for g, d in zip(theirs, directions, strict=True))
    close(tg.jvp(native, args, directions)[1], slope)
    mine = tg.jvp(tg.grad(native, (0, 1)), args, directions)[1]
    second = tg.jvp(tg.grad(f, (0, 1)), args, directions)[1]
    for found, known in zip((*gradient, *mine), (*theirs, *second), strict=True):
        close(found, known)


def held(f, args):
    """The gradient by the form, which must hold: it may not be another engine's."""
    derived = tg.njit(f, mode="form").variant(args).derived((0, 1))
    _, gradient = derived.run(args, (1.0,))
    assert derived._other is None
    return gradient


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_form_answers(f):
    args = given(5)
    for found, known in zip(held(f, args), tg.grad(f, (0, 1))(*args), strict=True):
        close(found, known)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_single_precision(f):
    args = given(4, np.float32)
    gradient = tg.grad(tg.njit(f, mode="form"), (0, 1))(*args)
    for found, known in zip(gradient, tg.grad(f, (0, 1))(*args), strict=True):
        assert found.dtype == np.float32
        close(found, known, np.float32)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_layouts_and_arguments_that_stay(f):
    a, b = given(5)
    expected = tg.grad(f, (0, 1))(a, b)
    wide = np.zeros((10, 10))
    wide[::2, ::2] = b
    native = tg.grad(tg.njit(f, mode="form"), (0, 1))
    before = a.copy(), wide.copy()
    for x, y in ((np.asfortranarray(a), wide[::2, ::2]), (a[::-1].copy()[::-1], b)):
        for found, known in zip(native(x, y), expected, strict=True):
            close(found, known)
    assert np.array_equal(a, before[0])
    assert np.array_equal(wide, before[1])


def test_vectors_have_the_signs_of_the_value():
    """LAPACK's choice, which a function may depend on, is that of the function without a derivative."""

    def signed(a, b):
        w, v = np.linalg.eigh(a)
        u, s, vt = np.linalg.svd(b, False)
        q, r = np.linalg.qr(b)
        return np.sum(v * b[: v.shape[0]]) + np.sum(u) + np.sum(vt**3) + np.sum(q) + np.sum(r)

    r = np.random.default_rng(3)
    for n in (1, 2, 3, 6, 30):
        a, b = r.normal(size=(n, n)), r.normal(size=(n + 2, n))
        native = tg.njit(signed, mode="form")
        close(tg.value_and_grad(native, (0, 1))(a, b)[0], native(a, b))


def test_nothing_at_all():
    """Eigenvalues of a matrix without rows; other decompositions raise, as Numba's do."""
    nothing = np.zeros((0, 0))

    def values(a):
        w, v = np.linalg.eigh(a)
        return np.sum(w) + np.sum(v) + np.sum(np.linalg.eigvalsh(a))

    value, gradient = tg.value_and_grad(tg.njit(values, mode="form"))(nothing)
    assert value == 0
    assert gradient.shape == (0, 0)
    for f in (
        lambda a: np.sum(np.linalg.svd(a)[1]),
        lambda a: np.sum(np.linalg.qr(a)[0]),
        lambda a: np.sum(np.linalg.lstsq(a, a)[0]),
    ):
        native = tg.value_and_grad(tg.njit(f))
        native(given(3)[0])
        with pytest.raises(np.linalg.LinAlgError, match="empty"):
            native(nothing)


def test_a_wide_matrix():
    """It has fewer singular values than columns, as shapes of slices say, or those of a call."""

    def of_rows(a, b):
        u, s, vt = np.linalg.svd(a[:2], False)
        return np.sum(u[:, 0] ** 2 * s) + np.sum(vt[0] ** 3 * b[0]) + np.sum(vt[1] * vt[0] ** 2)

    def of_any(a):
        u, s, vt = np.linalg.svd(a, False)
        return np.sum(u[0] ** 2 * s) + np.sum(vt[0] ** 3) + np.sum(np.linalg.pinv(a) ** 2)

    args = given(5)
    for found, known in zip(held(of_rows, args), tg.grad(of_rows, (0, 1))(*args), strict=True):
        close(found, known)
    derived = tg.njit(of_any, mode="form").variant((args[0],)).derived((0,))
    for shape in ((5, 3), (3, 3), (3, 5), (1, 2), (3, 1), (2, 6)):
        a = np.random.default_rng(1).normal(size=shape)
        _, (found,) = derived.run((a,), (1.0,))
        close(found, tg.grad(of_any)(a))
    assert derived._other is None


def test_pseudo_inverses_of_complex_matrices():
    def inverse(a, b):
        p = np.linalg.pinv(a)
        return np.sum(np.abs(p) ** 2) + np.sum((p[0] * b).imag)

    r = np.random.default_rng(0)
    args, along = (
        [r.normal(size=s) + 1j * r.normal(size=s) for s in ((4, 3), (4,))] for _ in range(2)
    )
    for mode in ("form", "adjoint"):
        native = tg.njit(inverse, mode=mode)
        value, gradient = tg.value_and_grad(native, (0, 1))(*args)
        expected, theirs = tg.value_and_grad(inverse, (0, 1))(*args)
        close(value, float(expected))
        mine = tg.jvp(tg.grad(native, (0, 1)), tuple(args), tuple(along))[1]
        second = tg.jvp(tg.grad(inverse, (0, 1)), tuple(args), tuple(along))[1]
        for found, known in zip((*gradient, *mine), (*theirs, *second), strict=True):
            close(found, known)


def test_values_that_are_equal_need_no_vectors():
    """Sums of eigenvalues and singular values have derivatives there; the form gives them."""

    def values(a, b):
        return np.sum(np.linalg.eigvalsh(a) ** 2) + np.sum(np.linalg.svd(b)[1] ** 2)

    args = np.eye(3), np.diag([2.0, 2.0, 0.0])
    for found, known in zip(held(values, args), (2 * args[0], 2 * args[1]), strict=True):
        close(found, known)


@pytest.mark.parametrize(
    ("f", "a"),
    [
        (lambda a: np.sum(np.linalg.eigh(a)[1][:, 0] ** 3), np.eye(3)),
        (lambda a: np.sum(np.linalg.svd(a, False)[0] * a), np.linalg.qr(given(3)[1])[0]),
        (lambda a: np.sum(np.linalg.svd(a, False)[2] * a), np.linalg.qr(given(3)[1])[0]),
    ],
    ids=["eigh", "left", "right"],
)
def test_vectors_of_equal_values_have_no_derivative(f, a):
    native = tg.grad(tg.njit(f))
    close(native(both(given(3)[0])), tg.grad(f)(both(given(3)[0])))
    for g in (native, tg.grad(f)):
        with pytest.raises(tg.NotDifferentiable, match=EQUAL):
            g(a)


def test_second_derivatives_where_eigenvalues_are_equal():
    """They are those of vectors: an error says so."""
    native = tg.hessian(tg.njit(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3)))
    close(
        native(np.diag([1.0, 2.0])),
        tg.hessian(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3))(np.diag([1.0, 2.0])),
    )
    with pytest.raises(tg.NotDifferentiable, match="no two eigenvalues or singular values equal"):
        native(np.eye(2))


def test_orthogonal_factors_without_full_rank_have_no_derivative():
    native = tg.grad(tg.njit(lambda a: np.sum(np.linalg.qr(a)[0] ** 3)))
    a = given(3)[0]
    native(a)
    a[:, 1] = a[:, 0]
    with pytest.raises(tg.NotDifferentiable, match="full rank"):
        native(a)


def test_what_has_less_than_full_rank_is_another_engine_s():
    def solved(a):
        return np.sum(np.linalg.lstsq(a, a[:, 0] + 1.0)[0] ** 2)

    def completed(a):
        return np.sum(np.linalg.svd(a, False)[0][:, 0] ** 3)

    a = np.concatenate((given(3)[0], given(4)[1][:, :3]))
    for f in (solved, completed):
        native = tg.grad(tg.njit(f))
        close(native(a), tg.grad(f)(a))
    a[:, 1] = 2 * a[:, 0]
    close(tg.grad(tg.njit(solved))(a), tg.grad(solved)(a))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.sum(np.linalg.eigvalsh(a)),
        lambda a: np.sum(np.linalg.svd(a)[1]),
        lambda a: np.sum(np.linalg.qr(a)[1]),
        lambda a: np.sum(np.linalg.pinv(a)),
        lambda a: np.sum(np.linalg.lstsq(a, a)[0]),
    ],
    ids=["eigvalsh", "svd", "qr", "pinv", "lstsq"],
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_raises_as_numba_does(f, bad):
    native = tg.value_and_grad(tg.njit(f))
    a = given(4)[0]
    native(a)
    a[1, 2] = bad
    with pytest.raises(np.linalg.LinAlgError, match="infs or NaNs"):
        native(a)


def test_a_call_stands_once():
    """Both parts of a decomposition are of one call, and so are systems of one matrix, but not where it changed meanwhile."""

    def parts(a, b):
        w, v = np.linalg.eigh(a)
        x = np.linalg.solve(b, w)
        total = np.linalg.slogdet(b)[1] + np.sum(x * v[:, 0])
        c = a.copy()
        first = np.linalg.eigvalsh(c)
        c[0, 0] += 3.0
        return total + np.sum(first * np.linalg.eigvalsh(c))

    args = both(given(4)[0]), given(4)[1]
    native = tg.njit(parts, mode="form")
    found = native.variant(args).derived((0, 1)).generic.program
    from tapegrad.program.form import loops

    called = [s.call for s in loops(found.body) if s.call]
    assert called.count("eigh") == 3
    assert called.count("lu") == 1
    for mine, known in zip(
        tg.grad(native, (0, 1))(*args), tg.grad(parts, (0, 1))(*args), strict=True
    ):
        close(mine, known)


OF = {
    "eigenvalues": "eigh",
    "eigenvectors": "eigh",
    "left": "svd",
    "right": "svd",
    "singular": "svd",
}
"""Of which routine's result these are parts."""


def lone(name, m, n):
    """A program of one call, of a matrix a with m rows and n columns and of b with r rows and m columns."""
    builder = Builder("lone")
    m_, n_ = affine(m), affine(n)
    count = affine(2)
    k = affine(min(m, n))
    a = builder.buffer("a", (m_, n_), "f8", "input")
    b = builder.buffer("b", (count, m_), "f8", "input")
    builder.inputs += [a, b]
    operands = [of_buffer(a)]
    whole = {"eigh": (n_ + 1, n_), "svd": (m_ + k + 1, n_)}
    if name in OF:
        operands = [builder.called(OF[name], operands, whole[OF[name]])]
    if name in ("spaced", "regular"):
        operands = [of_buffer(a)]
        operands = [_row(operands[0])]
    if name == "lstsq":
        operands.append(of_buffer(b))
    shape = {
        "eigenvalues": (n_,), "eigenvectors": (n_, n_), "left": (m_, k), "right": (k, n_), "singular": (k,), "spaced": (n_,),
        "regular": (n_,), "ranked": (n_, n_), "qr": (m_ + n_, n_), "pinv": (n_, m_), "lstsq": (count, n_),
    }[name]  # fmt: skip
    found = builder.called(name, operands, shape)
    out = builder.buffer("out", found.shape, "f8", "output")
    builder.outputs.append(out)
    builder.store(of_buffer(out), found)
    return builder.program()


def _row(a):
    from tapegrad.program.affine import ZERO
    from tapegrad.program.arrays import remapped

    return remapped(a, a.shape[1:], lambda i: (ZERO, *i))


SHAPES = {
    "left": [(4, 4), (6, 3), (3, 5)], "right": [(4, 4), (6, 3), (3, 5)], "singular": [(4, 4), (6, 3), (3, 5)],
    "qr": [(4, 4), (6, 3), (5, 1)], "pinv": [(4, 4), (6, 3), (3, 5)], "lstsq": [(4, 4), (6, 3)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (name, shape)
        for name in sorted(decompositions.ROUTINES.keys() - CALLS.keys() - {"eigh", "svd"})
        for shape in SHAPES.get(name, [(4, 4)])
    ],
    ids=str,
)
def test_both_rules_of_a_routine(name, shape):
    """The tangent is that of differences, and the rule backwards is its transpose."""
    m, n = shape
    r = np.random.default_rng(7)
    args = (
        0.4 * r.normal(size=shape) + np.eye(m, n) * np.arange(1.0, n + 1),
        r.normal(size=(2, m)),
    )
    if name == "ranked":
        args = np.tril(args[0]), args[1]
    if name == "spaced":
        args[0].sort(1)
    moving = "ab" if name == "lstsq" else "a"
    mine = [r.normal(size=x.shape) for x in args[: len(moving)]]

    def wanted(program):
        return [b for b in program.inputs if b.name in moving]

    forward, back = lone(name, m, n), lone(name, m, n)
    forward = tangent(forward, wanted(forward), forward.outputs)
    (moved,) = run(forward, n, *args, *mine)
    h = 1e-5
    ends = []
    for s in (1, -1):
        there = [x + s * h * d for x, d in zip(args, mine, strict=False)] + [*args[len(mine) :]]
        ends.append(run(lone(name, m, n), n, *there)[0])
    np.testing.assert_allclose(moved, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-7)
    seed = r.normal(size=moved.shape)
    _, *bars = run(gradient(back, wanted(back), back.outputs), n, *args, seed)
    pairing = sum(np.sum(g * d) for g, d in zip(bars, mine, strict=True))
    close(pairing, np.sum(seed * moved))
