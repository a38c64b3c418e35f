"""NumPy's functions in Numba code: their arguments by name or by place, what they read of a matrix, what they write into.

Each program is differentiated by the engines that know it, and compared with differences of fourth order.
"""

import math

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

import tapegrad as tg
from tapegrad.errors import NotDifferentiable
from tests.seeds import campaigns_but
from tests.test_native_fuzz import interpreted

X = np.array([0.3, 0.71, 0.55, 0.9])
WEIGHTS = np.cos(np.arange(20.0))
MATRIX = np.sin(np.arange(16.0) ** 2).reshape(4, 4)
POSITIVE = MATRIX @ MATRIX.T + 4 * np.eye(4)


def ranges(x):
    """The ends of a range say how many elements there are; its start and step are in each of them."""
    by_two = np.sum(np.arange(x[0], 10) * WEIGHTS[:10])
    by_three = np.sum(np.arange(1.0, 4.1, x[1]) ** 2)
    by_name = np.sum(np.arange(x[2], step=x[0]) ** 2) + np.sum(np.arange(x[1], 9.1, step=x[3]) ** 3)
    return by_two + by_three * by_name + np.sum(np.arange(x[3] + 3.0)) * x[0]


def arguments_by_name(x):
    line = np.sum(np.linspace(x[0], num=5, stop=x[1]) ** 2)
    line += np.sum(np.linspace(num=5, start=x[0], stop=x[1]) ** 3)
    product = np.sum(np.dot(b=x.reshape(2, 2), a=MATRIX[:2, :2].copy()) ** 2)
    rolled = np.sum(np.roll(x, shift=1) * x) + np.sum(np.repeat(x, repeats=2) * WEIGHTS[:8])
    chosen = np.sum(np.clip(a=x, a_min=0.4, a_max=0.8) * x) + x[0] * np.sum(np.eye(N=2))
    return line + product + rolled + chosen + np.sum(np.outer(b=x, a=WEIGHTS[:4]) * MATRIX)


def points_by_name(x):
    return np.interp(fp=x, xp=np.arange(4.0), x=1.3) + np.sum(np.convolve(v=x, a=WEIGHTS[:5]) ** 2)


def solved_by_name(x):
    a = np.array([[1.0, 2.0], [3.0, x[0] + 4.0]])
    return np.sum(np.linalg.solve(b=x.reshape(2, 2), a=a) ** 2)


def bounds(x):
    """Bounds that are missing, numbers, arrays, or given by name."""
    one = np.sum(np.clip(x, 0.4, None) ** 2) + np.sum(np.clip(x, None, 0.8) ** 3)
    return one + np.sum(np.clip(x, a_max=0.8, a_min=x[0] + 0.1) ** 2) * np.sum(
        np.clip(x, WEIGHTS[:4], WEIGHTS[4:8] + 1) ** 2
    )


def diagonals(x):
    return np.sum(np.diag(x, 0) * MATRIX) + np.trace(np.outer(x, x), 1) * np.trace(
        np.outer(x, x * x), offset=-2
    )


def lower_triangles(x):
    """Cholesky factors and eigenvalues read the lower triangle, whatever stands in the upper one."""
    a = POSITIVE + 0.1 * np.outer(x, WEIGHTS[:4])
    return np.sum(np.linalg.cholesky(a) * MATRIX)


def lower_eigenvalues(x):
    a = POSITIVE + 0.1 * np.outer(x, WEIGHTS[:4])
    w, v = np.linalg.eigh(a)
    return np.sum(np.abs(v) * MATRIX) + w[0] * w[1] + np.sum(np.linalg.eigvalsh(a) * WEIGHTS[:4])


def written_results(x):
    out, product = np.empty(4), np.empty((2, 2))
    square = x.reshape(2, 2)
    np.multiply(x, x, out)
    np.dot(square, square, out=product)
    np.sin(out, out)
    return np.sum(out * x) + np.sum(product**3)


@register_jitable
def bent(x, power=2):
    return x**power + np.sin(x)


@register_jitable
def bent_twice(x):
    return bent(bent(x, 3))


def registered_helpers(x):
    s = 0.0
    for i in range(x.size):
        s += bent_twice(x[i])
    return s + np.sum(bent(x) * WEIGHTS[:4])


def slopes(f, x, h=1e-3):
    """Central differences of fourth order along each axis."""
    steps = h * np.eye(x.size)
    at = [[np.asarray(f(x + k * s)) for k in (1, -1, 2, -2)] for s in steps]
    return np.array([(8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in at])


def gamma_functions(x):
    """A likelihood of counts: the derivative of lgamma is digamma, and its own is trigamma."""
    s = 0.0
    for i in range(x.size):
        s += math.lgamma(4 * x[i] + 0.5) + math.gamma(0.5 * x[i] - 0.7) * x[0]
    return s


def parts_of_real_numbers(x):
    s = np.sum(x.real * np.conj(x)) + np.sum(np.real(x) ** 3)
    for v in x:
        s += v.real * v.conjugate() ** 2 + v.imag + math.ldexp(v, 2) * v
    return s


def lists_of_numbers(x):
    """Functions of NumPy's take lists for arrays."""
    turned = np.cross([0.0, 0.0, 1.0], x[:3]) * x[0]
    return np.sum(turned) + np.sum(np.cross(x[1:], [x[0], 2.0, x[3]]) ** 2)


def types_of_variables(x):
    """Code for several precisions makes its constants by the type of what it was given; whole numbers come in steps."""
    T = type(x[0])
    whole = type(x.size)
    s = T(0)
    for v in x:
        s += v * T(0.5) + T(1) / (v + T(2))
    return s + type(s)(x[0] * x[1]) * whole(x[2] + 2.2)


def norms(x):
    y = x - 0.62
    norm = np.linalg.norm
    even = norm(y) + norm(y, 2) + norm(y * y, ord=3) + norm(y, 1.5)
    return even + norm(y, 1) * norm(y, np.inf) + norm(y, -np.inf) + y.cumprod()[2]


PROGRAMS = (
    ranges, arguments_by_name, points_by_name, solved_by_name, bounds, diagonals, lower_triangles, lower_eigenvalues,
    written_results, registered_helpers, gamma_functions, parts_of_real_numbers,
    norms, lists_of_numbers, types_of_variables,
)  # fmt: skip


COMPILED = (ranges, written_results, registered_helpers, gamma_functions, types_of_variables)
"""Programs that Numba compiles in every run; of the others it compiles NumPy's functions for seconds, in campaigns."""


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f", [f for f in PROGRAMS if f is not gamma_functions], ids=lambda f: f.__name__
)
def test_the_interpreted_adjoint_is_the_derivative(f):
    """As NumPy itself computes the function, and Python runs the adjoint; digamma is for compiled code alone."""
    value, (gradient,) = interpreted(tg.njit(f, mode="adjoint"), (X.copy(),), (0,))
    assert np.isclose(value, f(X), rtol=1e-13)
    assert np.allclose(gradient, slopes(f, X), rtol=1e-8, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but(COMPILED, PROGRAMS))
def test_the_adjoint_is_the_derivative(f):
    native = tg.njit(f, mode="adjoint")
    value, gradient = tg.value_and_grad(native)(X.copy())
    assert np.isclose(value, f(X), rtol=1e-13)
    assert np.allclose(gradient, slopes(f, X), rtol=1e-8, atol=1e-8)
    along = np.array([0.3, -0.4, 0.2, 0.7])
    assert np.isclose(tg.jvp(native, (X.copy(),), (along,))[1], gradient @ along, rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    "f", campaigns_but((registered_helpers, gamma_functions), (ranges, lower_triangles))
)
def test_overloading_agrees(f):
    value, gradient = tg.value_and_grad(tg.njit(f, mode="overload"))(X.copy())
    expected, by_adjoint = tg.value_and_grad(tg.njit(f, mode="adjoint"))(X.copy())
    assert np.isclose(value, expected, rtol=1e-13)
    assert np.allclose(gradient, by_adjoint, rtol=1e-10, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("f", campaigns_but((gamma_functions,), (lower_triangles,)))
def test_second_derivatives(f):
    gradient = tg.grad(tg.njit(f))
    assert np.allclose(tg.hessian(tg.njit(f))(X.copy()), slopes(gradient, X), rtol=1e-7, atol=1e-7)


@pytest.mark.campaign
def test_eigenvectors_in_single_precision():
    @tg.njit
    def f(a):
        return np.sum(np.linalg.eigh(a)[1][:, 0] ** 3)

    a = POSITIVE.astype(np.float32)
    gradient = tg.grad(f)(a)
    assert gradient.dtype == np.float32 and np.all(np.triu(gradient, 1) == 0)
    assert np.allclose(gradient, tg.grad(f)(POSITIVE.copy()), rtol=1e-3, atol=1e-5)


@pytest.mark.campaign
def test_vectors_of_equal_eigenvalues_are_refused():
    @tg.njit
    def f(a, weights):
        w, v = np.linalg.eigh(a)
        return np.sum(v * weights) + np.sum(w**2)

    a = np.diag([1.0, 1.0, 2.0])
    alone = np.zeros((3, 3))
    alone[:, 2] = 1.0  # the third vector's eigenvalue is its own
    assert np.all(np.isfinite(tg.grad(f)(a, alone)))
    assert np.isclose(tg.jvp(f, (a, alone), (np.eye(3), alone))[1], 9.0)
    with pytest.raises(NotDifferentiable, match="equal eigenvalues"):
        tg.grad(f)(a, np.ones((3, 3)))


@pytest.mark.long
def test_cotangents_of_complex_numbers():
    """Parts are put together as they are: an infinite imaginary part does not spoil the real one."""

    @tg.njit
    def f(z):
        return z.imag * np.inf + np.angle(z)

    _, pull = tg.vjp(f, 1 + 1j)
    (bar,) = pull(1.0)
    assert isinstance(bar, complex)
    assert np.isfinite(bar.real) and np.isinf(bar.imag)


def keeps_its_result(x):
    out = np.empty((2, 2))
    y = np.dot(x.reshape(2, 2), x.reshape(2, 2), out=out)
    return np.sum(y)


def written_over_itself(x):
    y = x * 2.0
    np.add(y[1:], y[:-1], y[1:])
    return y[3]


def product_over_itself(x):
    y = np.outer(x, x)
    np.dot(y, y, y)
    return y[1, 2]


def kept_type(x):
    T = type(x[0])
    return np.zeros(3, T)[0] + x[0]


def without_rules(x):
    """Two operations in a row that nothing is known of: neither may hide the other."""
    return np.sum(np.partition(np.partition(x.reshape(2, 2), 1), 1) * MATRIX[:2, :2])


def any_number(*xs):
    return xs[0]


def weighed_by_sizes(x):
    """The first extremum is known from the branch, the second where the size is."""
    top = x.max() if x.size > 0 else 0.5
    least = np.sum(x * x) * min(1, x.size) + top * min(x.size, 2)
    return least + np.sum(x**3) / max(1, x.size) * max(2, x.size - 1)


@pytest.mark.parametrize("mode", ["form", "adjoint", "overload"])
def test_extrema_of_sizes(mode):
    """Where it is known which of two sizes is the larger one, `max` was the smaller."""
    f = tg.njit(weighed_by_sizes, mode=mode)
    for n in (4, 2, 1):
        x = X[:n].copy()
        value, expected = tg.value_and_grad(weighed_by_sizes)(x)
        found, gradient = tg.value_and_grad(f)(x)
        np.testing.assert_allclose([found, f(x)], value, rtol=1e-14)
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)
        np.testing.assert_allclose(tg.jacobian(f, mode="forward")(x), expected, rtol=1e-13)


def updated_by_its_head(x):
    y = x.copy()
    y[2:] *= y[:-2]
    return y


def updated_by_its_end(x):
    y = x * 2.0
    y += y[::-1]
    return y


def rows_updated_by_one(x):
    y = np.outer(x, x)
    row = y[1]
    y /= row
    return y


def parts_that_do_not_meet(x):
    y = x.copy()
    y[::2] *= y[1::2]
    y[1::2] -= y[::2]
    return y


@pytest.mark.parametrize("f", [updated_by_its_head, updated_by_its_end, rows_updated_by_one])
def test_an_array_updated_by_a_part_of_itself_has_the_derivative_of_numbas_order(f):
    """The value is that of Numba's loop, which reads what it has just written; the derivative was that of NumPy's statement."""
    with pytest.raises(NotDifferentiable, match="update in place by an overlapping part"):
        tg.jacobian(tg.njit(f, mode="form"))(X.copy())
    with pytest.raises(NotDifferentiable, match="Numba does not promise an order"):
        tg.jacobian(tg.njit(f, mode="adjoint"))(X.copy())
    compiled = numba.njit(f)
    steps = 1e-6 * np.eye(4)
    expected = [(compiled(X + h) - compiled(X - h)) / 2e-6 for h in steps]
    expected = np.moveaxis(np.array(expected), 0, -1)
    for mode in ("reverse", "forward"):
        found = tg.jacobian(tg.njit(f), mode=mode)(X.copy())
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_an_array_updated_by_another_part_of_itself_is_of_the_form():
    expected = tg.jacobian(parts_that_do_not_meet)(X)
    found = tg.jacobian(tg.njit(parts_that_do_not_meet, mode="form"))(X.copy())
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.long
def test_what_is_refused():
    with pytest.raises(
        NotDifferentiable, match=r"an array that is passed as out.*y\[:\] = np\.dot"
    ):
        tg.grad(tg.njit(keeps_its_result, mode="adjoint"))(X.copy())
    for f in (written_over_itself, product_over_itself):
        with pytest.raises(NotDifferentiable, match="Numba does not promise an order"):
            tg.grad(tg.njit(f, mode="adjoint"))(X.copy())
    with pytest.raises(NotDifferentiable, match="type of a variable is used as a value"):
        tg.grad(tg.njit(kept_type, mode="adjoint"))(X.copy())
    with pytest.raises(NotDifferentiable, match=r"np\.partition of a differentiated value"):
        tg.grad(tg.njit(without_rules, mode="adjoint"))(X.copy())
    with pytest.raises(NotDifferentiable, match="any number of arguments"):
        tg.grad(tg.njit(any_number))(1.0, 2.0)


def eigenvalues(x):
    return np.linalg.eigvals(x.reshape(2, 2))[0]


def binary_digits(x):
    return math.frexp(x[0])[0]


def binary_digits_written_out(x):
    return x[0] * 2.0 ** -(math.floor(math.log2(abs(x[0]))) + 1)


def masked(x):
    y = x * x
    y[x > 0.5] = x[0, 0]
    return np.sum(y[y > 0.1] ** 2)


def masked_flat(x):
    y = x * x
    y.ravel()[(x > 0.5).ravel()] = x[0, 0]
    return np.sum(y.ravel()[(y > 0.1).ravel()] ** 2)


@pytest.mark.long
def test_masks_of_several_axes():
    """Numba has no code for them: called or differentiated, what to write is told; and that has its derivative."""
    x = np.array([[0.3, -0.7, 0.9], [0.8, 0.4, 0.1]])
    told = r"x\.ravel\(\)\[mask\.ravel\(\)\]"
    with pytest.raises(numba.core.errors.NumbaError, match=told):
        tg.njit(masked)(x)
    for mode in ("adjoint", "overload", "auto"):
        with pytest.raises(NotDifferentiable, match=told):
            tg.grad(tg.njit(masked, mode=mode))(x)
    step = 1e-6
    expected = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        h = np.zeros_like(x)
        h[place] = step
        expected[place] = (masked(x + h) - masked(x - h)) / (2 * step)
    for mode in ("adjoint", "overload"):
        native = tg.njit(masked_flat, mode=mode)
        assert native(x) == masked(x)
        np.testing.assert_allclose(tg.grad(native)(x), expected, rtol=1e-8)
        slope = tg.jvp(native, (x,), (np.ones_like(x),))[1]
        np.testing.assert_allclose(slope, np.sum(expected), rtol=1e-8)


def test_what_to_write_instead():
    for f, told in ((eigenvalues, r"write np\.linalg\.eigvalsh"), (binary_digits, r"math\.log2")):
        with pytest.raises(NotDifferentiable, match=told):
            tg.grad(tg.njit(f, mode="adjoint"))(X.copy())
    assert binary_digits_written_out(X) == binary_digits(X)
    assert np.array_equal(tg.grad(tg.njit(binary_digits_written_out))(X.copy()), [2.0, 0, 0, 0])


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 5), (3, 3), (4, 2)])
def test_right_singular_vectors_have_the_signs_of_the_decomposition_they_come_from(shape):
    """Their rule decomposed the transposed matrix, whose vectors may have other signs: gradients had them, too."""

    def f(x):
        u, s, vt = np.linalg.svd(x, full_matrices=False)
        return (
            np.sum(u * s @ vt * x)
            + np.sum(vt[1] * np.sin(vt[1] * 2.0))
            + np.sum(u[:, 1] ** 3 * s[0] * vt[1, 0])
        )

    native = tg.njit(f)
    rng = np.random.default_rng(shape)
    for _ in range(6):
        x = rng.normal(size=shape)
        value, slope = tg.value_and_grad(f)(x)
        mine, found = tg.value_and_grad(native)(x)
        assert np.isclose(mine, value, rtol=1e-12)
        assert np.allclose(found, slope, rtol=1e-9, atol=1e-11)


def test_methods_of_ufuncs_are_told_by_name():
    """Numba has none, whatever decorator stands before them."""

    @tg.njit
    def paths(x):
        return np.sum(np.minimum(np.add.outer(x, x), 1.0))

    with pytest.raises(NotDifferentiable, match=r"Numba knows no np\.add\.outer"):
        tg.grad(paths)(X)
