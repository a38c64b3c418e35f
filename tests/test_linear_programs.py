"""Linear programs: the vertex, the minimum and the multipliers are differentiable by all of the program, or there is an error."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import tapegrad as tg
from tapegrad.errors import NotDifferentiable

C = np.array([-3.0, -5.0, 2.0])
A = np.array([[1.0, 0.2, 0.1], [0.1, 2.0, 0.3], [3.0, 2.0, -0.4]])
B = np.array([4.0, 12.0, 18.0])
EQ, RIGHT = np.array([[1.0, 1.0, 1.0]]), np.array([8.5])
LOW, HIGH = np.array([0.1, 0.2, 0.3]), np.array([9.0, 5.5, 7.0])


def parts(solve, c, a, b, eq, right, low, high):
    """x, the minimum and every multiplier as one vector."""
    r = solve(c, a, b, eq, right, list(zip(low, high, strict=True)))
    return np.concatenate([
        r.x, np.reshape(r.fun, (1,)), r.ineqlin.marginals, r.eqlin.marginals, r.lower.marginals, r.upper.marginals
    ])  # fmt: skip


GIVEN = (C, A, B, EQ, RIGHT, LOW, HIGH)
NAMES = "c A_ub b_ub A_eq b_eq low high".split()


@pytest.mark.parametrize("k", range(7), ids=NAMES)
def test_value_and_derivatives_of_every_part(k):
    """SciPy's values, and differences of them; forward and reverse agree; the second derivative is the difference of the first."""

    def of(solve):
        return lambda v: parts(solve, *GIVEN[:k], v, *GIVEN[k + 1 :])

    ours, scipys = of(tg.optimize.linprog), of(scipy.optimize.linprog)
    v = GIVEN[k]
    expected = scipys(v)
    assert np.count_nonzero(expected) > 5
    slopes = tg.jacobian(ours)(v)
    np.testing.assert_allclose(tg.jacobian(ours, mode="forward")(v), slopes, rtol=1e-9, atol=1e-10)
    value, pull = tg.vjp(ours, v)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
    direction = np.cos(np.arange(v.size, dtype=float)).reshape(v.shape)
    h = 1e-4
    differences = (scipys(v + h * direction) - scipys(v - h * direction)) / (2 * h)
    along = np.tensordot(slopes, direction, v.ndim)
    np.testing.assert_allclose(along, differences, rtol=1e-4, atol=1e-5)
    w = np.sin(1 + np.arange(expected.size))
    first = tg.grad(lambda v: np.sum(w * ours(v)))
    second = tg.grad(lambda v: np.sum(direction * first(v)))(v)
    differences = (first(v + h * direction) - first(v - h * direction)) / (2 * h)
    np.testing.assert_allclose(second, differences, rtol=1e-4, atol=1e-5)


def test_the_minimum_has_the_multipliers_for_derivatives():
    solve = tg.optimize.linprog
    r = scipy.optimize.linprog(C, A, B, EQ, RIGHT, (0, None))
    by_b = tg.grad(lambda b: solve(C, A, b, EQ, RIGHT).fun)(B)
    np.testing.assert_allclose(by_b, r.ineqlin.marginals, atol=1e-9)
    np.testing.assert_allclose(tg.grad(lambda c: solve(c, A, B, EQ, RIGHT).fun)(C), r.x, atol=1e-9)
    by_a = tg.grad(lambda a: solve(C, a, B, EQ, RIGHT).fun)(A)
    np.testing.assert_allclose(by_a, -np.outer(r.ineqlin.marginals, r.x), atol=1e-8)


def test_numbers_lists_and_sparse_matrices():
    r = tg.optimize.linprog(C, scipy.sparse.csr_array(A), B)
    expected = scipy.optimize.linprog(C, A, B)
    np.testing.assert_array_equal(r.x, expected.x)
    slope = tg.grad(
        lambda t: (
            tg.optimize.linprog([t, -5.0, 1.0], scipy.sparse.csr_array(A), [4.0, t * t, 18.0]).fun
        )
    )
    numbers = lambda t: scipy.optimize.linprog([t, -5.0, 1.0], A, [4.0, t * t, 18.0]).fun  # noqa: E731
    np.testing.assert_allclose(slope(-3.0), (numbers(-2.999) - numbers(-3.001)) / 0.002, rtol=1e-5)
    slope = tg.grad(lambda t: tg.optimize.linprog([1.0], bounds=(t, None)).fun)
    assert slope(2.0) == 1.0


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            lambda t: tg.optimize.linprog([t, 1.0], [[-1.0, -1.0]], [-1.0]),
            "not unique",
        ),  # along an edge at t = 1
        (
            lambda t: tg.optimize.linprog(
                [-t, -1.0], [[1.0, 0.0], [1.0, 0.0]], [1.0, 1.0], bounds=(0, 2)
            ),
            "degenerate",
        ),
        (lambda t: tg.optimize.linprog([t], [[1.0], [-1.0]], [0.0, -1.0]), "no solution"),
        (lambda t: tg.optimize.linprog([-t]), "no solution"),
        (lambda t: tg.optimize.linprog([1.0], bounds=(t, t)), "two bounds are equal"),
    ],
)
def test_where_there_is_no_derivative(program, words):
    with pytest.raises(NotDifferentiable, match=words):
        tg.grad(lambda t: program(t).fun)(1.0)


def test_compiled_and_mapped():
    """Another vertex in a later call, and several programs at once."""

    def cost(b):
        return tg.optimize.linprog(C, A, b, EQ, RIGHT).fun

    points = np.stack([B, B + [0.0, 0.5, 0.1], B + [0.0, 60.0, 0.0]])
    expected = [scipy.optimize.linprog(C, A, b, EQ, RIGHT).ineqlin.marginals for b in points]
    fast = tg.compile(tg.grad(cost))
    for b, e in zip([*points, B], [*expected, expected[0]], strict=True):
        np.testing.assert_allclose(fast(b), e, atol=1e-9)
    np.testing.assert_allclose(tg.vmap(tg.grad(cost))(points), expected, atol=1e-9)


def test_bad_input():
    with pytest.raises(ValueError, match="no multipliers"):
        tg.optimize.linprog(C, A, B, method="simplex")
    with pytest.raises(TypeError, match="complex numbers"):
        tg.optimize.linprog(C + 1j, A, B)
    with pytest.raises(TypeError, match="takes a pair"):
        tg.optimize.linprog(C, A, B, bounds=3)
    with pytest.raises(ValueError, match="2 entries, but linprog has 3"):
        tg.optimize.linprog(C, A, B, bounds=[(0, 1), (0, 1)])
