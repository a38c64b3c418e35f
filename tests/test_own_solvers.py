"""Solvers of the user's own: derivatives of linear solutions and fixed points beside those of NumPy's solution, in every mode."""

import numpy as np
import pytest

import tapegrad as tg

A = np.array([[4.0, 1.0, 0.5], [-0.3, 5.0, 0.2], [0.1, -0.7, 3.0]])
B = np.array([1.0, -2.0, 0.5])


def sweeps(matvec, b):
    """Jacobi's iteration with a diagonal between those of A."""
    x = np.zeros_like(b)
    for _ in range(200):
        x = x + (b - matvec(x)) / 4
    return x


def own(a, b, **settings):
    return tg.custom_linear_solve(lambda v: a @ v, b, sweeps, **settings)


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"transpose_solve": sweeps}])
def test_linear_solutions(settings):
    def f(a, b):
        return np.sum(np.sin(own(a, b, **settings)))

    def g(a, b):
        return np.sum(np.sin(np.linalg.solve(a, b)))

    np.testing.assert_allclose(f(A, B), g(A, B), rtol=1e-10)
    for derived in (
        lambda h: tg.grad(h, argnums=(0, 1))(A, B),
        lambda h: [tg.jvp(h, (A, B), (np.cos(A), np.cos(B)))[1]],
        lambda h: [tg.hessian(h, argnums=1)(A, B)],
        lambda h: [tg.hvp(lambda a: h(a, B))(A, np.cos(A))],
        lambda h: tg.compile(tg.grad(h, argnums=(0, 1)))(A, B),
    ):
        for ours, known in zip(derived(f), derived(g), strict=True):
            np.testing.assert_allclose(ours, known, rtol=1e-6, atol=1e-8)


def test_compiled_again_with_other_values():
    f = tg.compile(tg.grad(lambda a, b: np.sum(own(a, b) ** 2), argnums=(0, 1)))
    for shift in (0.0, 0.1, 0.2):
        known = tg.grad(lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), argnums=(0, 1))(
            A + shift * np.eye(3), B - shift
        )
        for ours, theirs in zip(f(A + shift * np.eye(3), B - shift), known, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_a_symmetric_map_of_a_table():
    """The adjoint of a symmetric map is the map: nothing is derived from `matvec`, and arrays keep their shape."""
    calls = []

    def matvec(v, k):
        calls.append(1)
        return k * v

    def f(k):
        return np.sum(
            tg.custom_linear_solve(lambda v: matvec(v, k), np.ones((2, 2)), sweeps, symmetric=True)
        )

    k = np.array([[3.0, 4.0], [4.5, 5.0]])
    np.testing.assert_allclose(f(k), np.sum(1 / k))
    np.testing.assert_allclose(tg.grad(f)(k), -1 / k**2, rtol=1e-8)


def test_complex_solutions():
    a, b = A + 0.3j * A.T, B + 1j

    def f(a):
        return np.sum(np.abs(own(a, b)) ** 2)

    def g(a):
        return np.sum(np.abs(np.linalg.solve(a, b)) ** 2)

    np.testing.assert_allclose(tg.grad(f)(a), tg.grad(g)(a), rtol=1e-8)


def test_a_solver_that_ignores_the_map_is_refused_in_reverse():
    """It solves with A where the adjoint is asked: the equations tell."""

    def direct(_, b):
        return np.linalg.solve(A, b)

    def f(b):
        return np.sum(tg.custom_linear_solve(lambda v: A @ v, b, direct))

    np.testing.assert_allclose(tg.jvp(f, (B,), (B,))[1], f(B))
    with pytest.raises(tg.NotDifferentiable, match="transpose_solve="):
        tg.grad(f)(B)

    def g(b):
        return np.sum(
            tg.custom_linear_solve(lambda v: A @ v, b, direct, lambda _, b: np.linalg.solve(A.T, b))
        )

    np.testing.assert_allclose(tg.grad(g)(B), np.linalg.solve(A.T, np.ones(3)))


def test_fixed_points():
    def often(f, x):
        for _ in range(300):
            x = f(x)
        return x

    def f(p):
        return tg.custom_fixed_point(
            lambda s: {"a": np.cos(p * s["a"]) / 2}, {"a": np.ones(2)}, often
        )["a"]

    def g(p):
        return tg.fixed_point(lambda s: {"a": np.cos(p * s["a"]) / 2}, {"a": np.ones(2)})["a"]

    p = np.array([0.5, 1.2])
    np.testing.assert_allclose(f(p), g(p), rtol=1e-7)
    np.testing.assert_allclose(tg.jacobian(f)(p), tg.jacobian(g)(p), rtol=1e-6)
    np.testing.assert_allclose(tg.compile(tg.jacobian(f))(p), tg.jacobian(g)(p), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tg.custom_linear_solve(3, B, sweeps), TypeError, "pass a function"),
        (lambda: tg.custom_linear_solve(np.sin, B, 3), TypeError, "pass a function"),
        (lambda: tg.custom_linear_solve(lambda v: A @ v, B, sweeps, 3), TypeError, "pass a function"),
        (lambda: tg.custom_linear_solve(lambda v: v[:2], B, sweeps), ValueError, "the shape of b"),
        (lambda: tg.custom_linear_solve(lambda v: v, B, lambda _, b: b[:2]), ValueError, "returned shape"),
        (lambda: tg.custom_fixed_point(3, B, sweeps), TypeError, "pass a function"),
        (lambda: tg.custom_fixed_point(np.sin, B, lambda f, x: [x, x]), ValueError, "another structure"),
    ],
)  # fmt: skip
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_solution_that_is_none_has_no_derivative():
    def half(matvec, b):
        return b / 8

    assert tg.custom_linear_solve(lambda v: A @ v, B, half).shape == (3,)
    with pytest.raises(tg.NotDifferentiable, match="left of"):
        tg.grad(lambda b: np.sum(tg.custom_linear_solve(lambda v: A @ v, b, half)))(B)


def test_a_map_that_is_not_what_it_is_said_to_be_has_no_derivative():
    def affine(b):
        return np.sum(tg.custom_linear_solve(lambda v: A @ v + 1.0, b, sweeps))

    def symmetric(b):
        return tg.custom_linear_solve(lambda v: A @ v, b, sweeps, symmetric=True)[0]

    for derivative in (tg.grad, lambda f: lambda b: tg.jvp(f, (b,), (b,))):
        with pytest.raises(tg.NotDifferentiable, match="not linear"):
            derivative(affine)(B)
        with pytest.raises(tg.NotDifferentiable, match="not symmetric"):
            derivative(symmetric)(B)


def test_an_operator_that_is_not_linear_has_no_derivative():
    """SciPy's iterations alone would find some x, and its derivative would be another one's."""
    spd = A @ A.T

    def f(b):
        operator = tg.sparse.linalg.LinearOperator((3, 3), lambda v: spd @ v + 0.1)
        return np.sum(tg.sparse.linalg.cg(operator, b, rtol=1e-12)[0])

    with pytest.raises(tg.NotDifferentiable, match="not linear"):
        tg.grad(f)(B)
