"""Programs with integers: SciPy's values, and derivatives with the integers held, or an error where they jump."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from scipy.optimize import Bounds, LinearConstraint

import tapegrad as tg
from tapegrad.errors import NotDifferentiable

# Machines that are on or off make goods, which are bought, too, and stored within limits.
C = np.array([5.1, 20.0, 0.5, 0.4, 3.0])
A = np.array([[-4.0, 0.1, 1.0, 0.0, 0.0], [0.0, -6.0, -0.2, 1.0, 0.0], [0.0, 0.3, 1.0, 1.0, 1.0]])
BELOW, ABOVE = np.array([-np.inf, -np.inf, 7.0]), np.array([0.05, 0.1, 7.0])
LOW, HIGH = np.zeros(5), np.array([1.5, 1.5, 9.0, 5.5, 8.0])
KIND = np.array([1, 1, 0, 0, 0])


def parts(solve, c, a, above, low, high):
    below = np.where(np.arange(3) == 2, above, BELOW)
    r = solve(c, integrality=KIND, bounds=(low, high), constraints=(a, below, above))
    return np.concatenate([r.x, np.reshape(r.fun, (1,))])


GIVEN = (C, A, ABOVE, LOW, HIGH)


@pytest.mark.parametrize("k", range(5), ids="c A limits low high".split())
def test_value_and_derivatives(k):
    """SciPy's values, and differences of them; forward and reverse agree."""

    def of(solve):
        return lambda v: parts(solve, *GIVEN[:k], v, *GIVEN[k + 1 :])

    ours, scipys, v = of(tg.optimize.milp), of(scipy.optimize.milp), GIVEN[k]
    if k == 3:
        v = v - 0.2  # away from 0, at which the machines are
    expected = scipys(v)
    assert set(expected[:2]) == {0.0, 1.0}
    value, pull = tg.vjp(ours, v)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
    slopes = tg.jacobian(ours)(v)
    np.testing.assert_allclose(tg.jacobian(ours, mode="forward")(v), slopes, rtol=1e-9, atol=1e-10)
    direction = np.cos(np.arange(v.size, dtype=float)).reshape(v.shape)
    h = 1e-4
    differences = (scipys(v + h * direction) - scipys(v - h * direction)) / (2 * h)
    np.testing.assert_allclose(
        np.tensordot(slopes, direction, v.ndim), differences, rtol=1e-4, atol=1e-5
    )


def test_forms_of_the_arguments():
    """LinearConstraint, tuples, several of them, sparse matrices, Bounds and no bounds give the same gradient."""
    bounds = Bounds(LOW, HIGH)
    rows = [LinearConstraint(scipy.sparse.csr_array(A[:2]), BELOW[:2], ABOVE[:2]), (A[2], 7.0, 7.0)]

    def gradient(**how):
        return tg.grad(lambda c: tg.optimize.milp(c, integrality=KIND, **how).fun)(C)

    expected = scipy.optimize.milp(C, integrality=KIND, bounds=bounds, constraints=rows)
    np.testing.assert_allclose(gradient(bounds=bounds, constraints=rows), expected.x, atol=1e-9)
    np.testing.assert_allclose(
        gradient(bounds=(LOW, HIGH), constraints=(A, BELOW, ABOVE)), expected.x, atol=1e-9
    )
    price = tg.grad(
        lambda t: (
            tg.optimize.milp(
                [1.0, t],
                integrality=[1, 0],
                constraints=[([[1.0, 1.0]], t, np.inf), ([[1.0, 0.0]], 0, 2.5)],
            ).fun
        )
    )
    assert price(4.5) == pytest.approx(2 * 4.5 - 2)  # two of the cheap, t - 2 at the price t
    alone = tg.optimize.milp(C, integrality=KIND, bounds=bounds, constraints=rows)
    np.testing.assert_array_equal(alone.x, expected.x)


def test_semicontinuous_unknowns():
    """An unknown that is 0 or within its bounds moves only within; kind 3 is an integer."""

    def x(need, kind):
        return tg.optimize.milp(
            [1.0, 1.5],
            integrality=[kind, 0],
            bounds=([2.0, 0.0], [5.0, 9.0]),
            constraints=([1.0, 1.0], need),
        ).x

    for need, kind, expected in ((3.5, 2, [1, 0]), (0.5, 2, [0, 1]), (3.5, 3, [0, 1])):
        np.testing.assert_allclose(
            tg.jacobian(lambda t, k=kind: x(t, k))(need), expected, atol=1e-9
        )


@pytest.mark.long
def test_a_choice_of_integers_changes_between_calls():
    def cost(demand):
        made = [([-4.0, 1.0, 0.0], -np.inf, 0.0), ([0.0, 1.0, 1.0], demand, demand)]
        return tg.optimize.milp([5.0, 0.5, 3.0], integrality=[1, 0, 0], constraints=made).fun

    points, expected = np.array([1.0, 3.0, 5.0, 7.0]), np.array([3.0, 0.5, 3.0, 0.5])
    np.testing.assert_allclose([tg.grad(cost)(p) for p in points], expected)
    fast = tg.compile(tg.grad(cost))
    np.testing.assert_allclose([fast(p) for p in points], expected)
    np.testing.assert_allclose(tg.vmap(tg.grad(cost))(points), expected)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            lambda t: dict(c=[t, 1.0], integrality=1, constraints=([[1.0, 1.0]], 1.0)),
            "equally good",
        ),
        (
            lambda t: dict(c=[1.0, 2.0], integrality=1, constraints=([[1.0, 1.0]], t)),
            "row 0 holds with equality",
        ),
        (lambda t: dict(c=[1.0], integrality=1, bounds=(t, 5.0)), "bound of unknown 0"),
        (lambda t: dict(c=[t], integrality=1, constraints=([[1.0]], 2.0, 1.0)), "no solution"),
        (lambda t: dict(c=[-t], integrality=1), "no solution"),
        (lambda t: dict(c=[1.0], integrality=[t]), "of which kind"),
        (lambda t: dict(c=[1.0, 1.0], constraints=([[1.0, 1.0]], t)), "not unique"),
        (lambda t: dict(c=[1.0, 2.0], constraints=([[1.0, 1.0]], t, 1.0)), "two sides are equal"),
    ],
)
def test_where_there_is_no_derivative(program, words):
    with pytest.raises(NotDifferentiable, match=words):
        tg.grad(lambda t: tg.optimize.milp(**program(t)).fun)(1.0)


def test_bad_input():
    with pytest.raises(ValueError, match="constraints of type"):
        tg.optimize.milp(C, constraints=3)
    with pytest.raises(ValueError, match="constraints of type str"):
        tg.optimize.milp(C, constraints=["x"])
    with pytest.raises(ValueError, match="tuple \\(lb, ub\\)"):
        tg.optimize.milp(C, bounds=3)
    with pytest.raises(TypeError, match="complex numbers"):
        tg.optimize.milp(C + 1j)
    with pytest.raises(ValueError, match="integrality"):
        tg.optimize.milp(C, integrality=7)
