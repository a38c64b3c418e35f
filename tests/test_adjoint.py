"""The continuous adjoint of solve_ivp, beside the discrete one and closed forms; what it refuses."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.interop import adjoint

solve_ivp = tg.integrate.solve_ivp
P, Y0 = np.array([1.0, 0.2, 0.1, 0.8]), np.array([5.0, 3.0])


def predators(t, y, p):
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]]


def loss(p, y0, kind, method="RK45", end=6.0, tolerance=1e-9, **settings):
    found = solve_ivp(
        predators, (0, end), y0, method, np.linspace(0, end, 4), args=(p,), rtol=tolerance, atol=tolerance, adjoint=kind, **settings
    )  # fmt: skip
    return np.sum(np.sin(found.y))


@pytest.fixture(scope="module")
def expected():
    return tg.grad(lambda p, y: loss(p, y, "discrete", "DOP853"), argnums=(0, 1))(P, Y0)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("method, kept, tolerance", [
    ("DOP853", 64, 1e-9), ("RK45", 8, 1e-8), ("BDF", 64, 1e-6), ("LSODA", 64, 1e-7),
])  # fmt: skip
def test_predators_and_prey(method, kept, tolerance, expected, monkeypatch):
    """With 8 interpolants kept at once, stretches are solved again several times over."""
    monkeypatch.setattr(adjoint, "KEPT", kept)
    found = tg.grad(
        lambda p, y: loss(p, y, "continuous", method, tolerance=tolerance), argnums=(0, 1)
    )(P, Y0)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=300 * tolerance * np.abs(theirs).max())  # fmt: skip


def test_backwards_in_time_and_a_tree():
    def last(k, kind):
        found = solve_ivp(
            lambda t, s: {"a": -k * s["a"] * t, "b": s["a"] * np.array([2.0, 1.0])}, (1.0, 0.0), {"a": 1.0, "b": np.ones(2)}, t_eval=[0.5, 0.0],
            rtol=1e-9, atol=1e-10, adjoint=kind,
        )  # fmt: skip
        return np.sum(found.y["a"] ** 2) + np.sum(found.y["b"] * [[1.0, 2.0], [3.0, 4.0]])

    slopes = [tg.grad(last)(0.7, kind) for kind in ("continuous", "discrete")]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-7)


@pytest.mark.long
def test_a_stiff_oscillator():
    def last(mu, kind):
        found = solve_ivp(
            lambda t, y: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]], (0, 700), [2.0, 0.0], "Radau", [300.0, 700.0], rtol=1e-6, atol=1e-8,
            adjoint=kind,
        )  # fmt: skip
        return found.y[0, 0] + 2 * found.y[0, 1]

    slopes = [float(tg.grad(last)(1000.0, kind)) for kind in ("continuous", "discrete")]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-3)


def test_what_is_held_at_once_does_not_grow_with_the_steps(monkeypatch):
    monkeypatch.setattr(adjoint, "KEPT", 8)
    sizes = []

    class Counted(adjoint.Places):
        def __init__(self, times, places):
            super().__init__(times, places)
            sizes.append(len(times))

    monkeypatch.setattr(adjoint, "Places", Counted)

    def most(end):
        def last(k):
            return solve_ivp(
                lambda t, y: k * np.stack([y[1], -y[0]]), (0, end), Y0, t_eval=[end], rtol=1e-4, atol=1e-6, adjoint="continuous"
            ).y[0, 0]  # fmt: skip

        sizes.clear()
        slope = tg.grad(last)(1.0)
        np.testing.assert_allclose(slope, end * (Y0[1] * np.cos(end) - Y0[0] * np.sin(end)), atol=end * 1e-2)  # fmt: skip
        return max(sizes)

    assert most(15.0) <= 8 * adjoint.KEPT
    monkeypatch.setattr(adjoint, "KEPT", 1000)
    assert most(15.0) > 12 * 8


@pytest.mark.parametrize("settings, words", [
    ({"events": lambda t, y, p: y[0]}, "with events"),
    ({"dense_output": True}, "with dense_output=True"),
    ({"method": "BDF", "mass_matrix": np.eye(2)}, "with mass_matrix"),
])  # fmt: skip
def test_what_is_refused(settings, words):
    with pytest.raises(tg.NotDifferentiable, match=words):
        tg.grad(lambda p: loss(p, Y0, "continuous", **settings))(P)


def test_orders_and_modes_that_are_refused():
    with pytest.raises(tg.NotDifferentiable, match='mode="reverse"'):
        tg.jvp(lambda p: loss(p, Y0, "continuous"), (P,), (P,))
    with pytest.raises(tg.NotDifferentiable, match="of first order"):
        tg.grad(lambda p: np.sum(tg.grad(lambda q: loss(q, Y0, "continuous", end=0.5))(p)))(P)
    with pytest.raises(tg.NotDifferentiable, match="tracked times"):
        tg.grad(lambda t: loss(P, Y0, "continuous", end=t))(1.0)
