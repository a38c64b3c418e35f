"""solve_ivp inside tg.compile: one loop of the program, with SciPy's values and the derivatives that eager steps have."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg
from tapegrad.errors import TraceError

solve_ivp = tg.integrate.solve_ivp
TIMES = np.array([0.0, 0.4, 1.7, 1.8, 4.0])
METHODS = ("RK23", "RK45", "DOP853", "Tsit5")


def pendulum(t, y, w):
    return [w[0] * y[1], -w[1] * np.sin(y[0]) + 0.1 * np.cos(t)]


POINTS = np.array([1.0, 2.0, 0.3]), np.array([0.8, 15.0, -0.1])


def rows(w, method="RK45", solve=solve_ivp, **how):
    how = {"t_eval": TIMES, "rtol": 1e-6, "atol": 1e-8} | how
    return solve(pendulum, (0.0, 4.0), [1.0, w[2]], method, args=(w,), **how).y


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_values_are_scipys_and_gradients_those_of_eager_steps(method):
    """One trace serves values that need another number of steps."""
    fast, traces = tg.compile(lambda w: rows(w, method)), []

    def loss(w):
        traces.append(0)
        return np.sum(rows(w, method) ** 2)

    gradient = tg.compile(tg.grad(loss))
    for w in POINTS:
        expected = (
            rows(w, method) if method == "Tsit5" else rows(w, method, scipy.integrate.solve_ivp)
        )
        np.testing.assert_allclose(fast(w), expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            gradient(w), tg.grad(lambda w: np.sum(rows(w, method) ** 2))(w), rtol=1e-8
        )
    seen = len(traces)
    gradient(np.array([1.1, 3.0, 0.0]))
    assert len(traces) == seen


@pytest.mark.long
def test_steps_as_asked_for():
    for how in (
        {"max_step": 0.05},
        {"first_step": 1e-3},
        {"rtol": 1e-3, "atol": np.array([1e-3, 1e-9])},
    ):
        fast = tg.compile(lambda w, how=how: rows(w, **how))
        np.testing.assert_allclose(fast(POINTS[0]), rows(POINTS[0], **how), rtol=1e-9, atol=1e-11)


@pytest.mark.long
def test_forward_mode_second_order_and_many_at_once():
    def end(w):
        return rows(w)[0, -1]

    w = POINTS[0]
    np.testing.assert_allclose(
        tg.compile(tg.hessian(end))(w), tg.hessian(end)(w), rtol=1e-6, atol=1e-8
    )
    forward = tg.compile(tg.jacobian(rows, mode="forward"))(w)
    np.testing.assert_allclose(forward, tg.jacobian(rows)(w), rtol=1e-8, atol=1e-10)
    many = tg.compile(tg.vmap(end))(np.stack(POINTS))
    np.testing.assert_allclose(many, [end(w) for w in POINTS], rtol=1e-5)  # steps that suit both


@pytest.mark.long
def test_times_have_derivatives():
    """Of a beginning and of times that are asked for: exact to the tolerance, against the equation itself."""

    def at(t0, t, w):
        return solve_ivp(
            pendulum,
            (t0, 4.0),
            [1.0, w[2]],
            t_eval=np.stack([t, t + 1.0]),
            args=(w,),
            rtol=1e-10,
            atol=1e-12,
        ).y[0, 1]

    w = POINTS[0]
    for k in (0, 1):
        compiled = tg.compile(tg.grad(at, k))(0.2, 1.5, w)
        h = 1e-4
        args = np.array([0.2, 1.5])
        up, down = at(*(args + h * np.eye(2)[k]), w), at(*(args - h * np.eye(2)[k]), w)
        assert compiled == pytest.approx((up - down) / (2 * h), rel=1e-6)


@pytest.mark.long
def test_dense_output_and_backward_in_time():
    def ends(w, t):
        found = solve_ivp(
            pendulum, (4.0, 0.0), [1.0, w[2]], dense_output=True, args=(w,), rtol=1e-8, atol=1e-10
        )
        return found.sol(t)[0], found.sol(2.0)[1], found.sol(np.array([3.0, 1.0]))

    w = POINTS[0]
    for ours, theirs in zip(tg.compile(ends)(w, 1.0), ends(w, 1.0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
    slope = tg.compile(tg.grad(lambda w, t: ends(w, t)[0], 1))(w, 1.0)
    assert slope == pytest.approx(tg.grad(lambda t: ends(w, t)[0])(1.0), rel=1e-6)


@pytest.mark.long
def test_states_that_are_trees_and_complex():
    def spring(t, state, k):
        return {"x": state["v"], "v": -k * state["x"]}

    def end(k):
        start = {"x": np.ones((2, 2)), "v": np.zeros((2, 2))}
        return np.sum(
            solve_ivp(spring, (0, 2), start, t_eval=[1.0, 2.0], args=(k,), rtol=1e-8).y["x"][
                ..., -1
            ]
        )

    assert tg.compile(tg.grad(end))(2.0) == pytest.approx(tg.grad(end)(2.0), rel=1e-8)

    def turned(k):
        return np.real(
            solve_ivp(
                lambda t, z: 1j * k * z, (0, 2), 1.0 + 0.0j, t_eval=[2.0], rtol=1e-9, atol=1e-9
            ).y[0]
        )

    assert tg.compile(tg.grad(turned))(1.5) == pytest.approx(-2 * np.sin(3.0), rel=1e-6)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"method": "LSODA", "dense_output": True}, TraceError, "no array"),
        ({"method": "Radau", "fun": lambda t, y: 1j * y}, ValueError, "complex"),
        ({"method": "BDF", "t_eval": [1.0, 0.5]}, ValueError, "sorted"),
        ({"t_eval": [1.0, 0.5]}, ValueError, "sorted"),
        ({"t_eval": [1.0, 1.5]}, ValueError, "within"),
    ],
)
def test_refused_in_words(how, error, words):
    how = {"t_eval": [1.0], "fun": lambda t, y: -y} | how
    with pytest.raises(error, match=words):
        tg.compile(lambda y0: solve_ivp(t_span=(0.0, 1.0), y0=y0, **how).y)(
            np.ones(1, complex if words == "complex" else float)
        )


STIFF = ("Radau", "BDF")


def reaction(t, y, k):
    """Robertson's: steps are rejected, and Jacobians and their inverses are kept for some steps and made anew for others."""
    a, b, c = k[0] * y[0], k[1] * y[1] * y[1], k[2] * y[1] * y[2]
    return np.stack([c - a, a - b - c, b])


def oscillator(t, y, k):
    """Van der Pol's, with jumps."""
    return np.stack([k[0] * y[1], k[1] * (1 - y[0] ** 2) * y[1] - k[2] * y[0]])


KINETICS = {
    "reaction": (reaction, 40.0, [1.0, 0.0, 0.0], [0.3, 40.0], 1e-10, [[0.04, 3e7, 1e4], [0.08, 1e7, 3e4]]),
    "oscillator": (oscillator, 300.0, [2.0, 0.0], [0.0, 40.0, 170.0, 171.0, 300.0], 1e-8, [[1.0, 100.0, 1.0], [1.1, 70.0, 0.9]]),
}  # fmt: skip


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", KINETICS)
@pytest.mark.parametrize("method", STIFF)
def test_stiff_steps_are_scipys_and_have_the_derivatives_of_eager_steps(method, name):
    equations, end, y0, times, atol, points = KINETICS[name]

    def states(k, solve=solve_ivp, **how):
        return solve(equations, (0.0, end), y0, method, times, args=(k,), rtol=1e-6, atol=atol, **how).y  # fmt: skip

    def last(k):
        y = states(k)
        return np.sum(y * np.arange(1.0, 1 + y.size).reshape(y.shape)), y

    traces = []

    def counted(k):
        traces.append(0)
        return last(k)

    fast = tg.compile(tg.value_and_grad(counted, has_aux=True))
    plain = tg.value_and_grad(last, has_aux=True)
    for k in np.array(points):
        (_, y), slope = fast(k)
        np.testing.assert_allclose(y, states(k, scipy.integrate.solve_ivp), rtol=1e-3)
        np.testing.assert_allclose(y, states(k, compile=False), rtol=1e-8)
        np.testing.assert_allclose(slope * k, plain(k)[1] * k, rtol=1e-6)
    seen = len(traces)
    fast(np.array(points[0]) * 1.05)
    assert len(traces) == seen


def test_bdf_of_sixty_unknowns_is_a_loop():
    """Its matrices are larger than those that traces compare as numbers."""
    y0 = np.linspace(0.5, 1.5, 60)

    def last(k):
        return np.sum(
            solve_ivp(lambda t, y: -k * y**2, (0.0, 1.0), y0, "BDF", [1.0], rtol=1e-8, atol=1e-10).y
        )

    for found, expected in zip(
        tg.compile(tg.value_and_grad(last))(0.5),
        (np.sum(y0 / (1 + 0.5 * y0)), np.sum(-(y0**2) / (1 + 0.5 * y0) ** 2)),
        strict=True,
    ):
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("method", STIFF)
def test_second_derivatives_of_stiff_steps_and_a_given_jacobian(method):
    """y' = -k y², whose solution is 1 / (1 + k t)."""

    def end(k, **how):
        return solve_ivp(
            lambda t, y: -k * y**2, (0.0, 1.0), [1.0], method, [1.0], rtol=1e-8, atol=1e-10, **how
        ).y[0, 0]  # fmt: skip

    assert tg.compile(tg.grad(tg.grad(end)))(0.5) == pytest.approx(2 / 1.5**3, rel=1e-6)
    assert tg.compile(lambda k: tg.jvp(end, (k,), (2.0,))[1])(0.5) == pytest.approx(
        -2 / 1.5**2, rel=1e-6
    )
    jac = lambda t, y: np.reshape(-2 * 0.5 * y, (1, 1))  # noqa: E731
    assert tg.compile(lambda k: end(k, jac=jac))(0.5) == pytest.approx(end(0.5), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("method", STIFF)
def test_stiff_steps_as_asked_for_backward_and_at_tracked_times(method):
    for how in (
        {"max_step": 0.05},
        {"first_step": 1e-3},
        {"first_step": 1.0},
        {"rtol": 1e-3, "atol": np.array([1e-3, 1e-9])},
        {"t_eval": [4.0]},
    ):
        fast = tg.compile(lambda w, how=how: rows(w, method, **how))
        np.testing.assert_allclose(fast(POINTS[0]), rows(POINTS[0], method, **how), rtol=1e-8, atol=1e-10)  # fmt: skip

    def ends(w, t):
        how = {"dense_output": True, "args": (w,), "rtol": 1e-8, "atol": 1e-10}
        found = solve_ivp(pendulum, (4.0, 0.0), [1.0, w[2]], method, **how)
        return found.sol(t)[0], found.sol(2.0)[1], found.sol(np.array([3.0, 1.0]))

    def at(t0, t, w):
        times = np.stack([t, t + 1.0])
        how = {"args": (w,), "rtol": 1e-9, "atol": 1e-11}
        return solve_ivp(pendulum, (t0, 4.0), [1.0, w[2]], method, times, **how).y[0, 1]

    w = POINTS[0]
    for ours, theirs in zip(tg.compile(ends)(w, 1.0), ends(w, 1.0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    for k in (0, 1):
        slope = tg.compile(tg.grad(at, k))(0.2, 1.5, w)
        up, down = (at(*(np.array([0.2, 1.5]) + h * np.eye(2)[k]), w) for h in (1e-3, -1e-3))
        assert slope == pytest.approx((up - down) / 2e-3, rel=1e-4)


def test_equations_that_end_or_look_at_values():
    fast = tg.compile(lambda y0: solve_ivp(lambda t, y: y**2, (0.0, 2.0), y0, t_eval=[2.0]).y)
    np.testing.assert_allclose(fast(np.array([0.1])), 0.125, rtol=1e-3)
    with pytest.raises(RuntimeError, match="cannot go on"):
        fast(np.array([1.0]))

    def looks(t, y):
        return -y if y[0] > 0.5 else -2 * y

    with pytest.raises(TraceError, match=r"looks at values.*another program \(a truth value"):
        tg.compile(lambda y0: solve_ivp(looks, (0.0, 2.0), y0, t_eval=[2.0]).y)(np.ones(1))


def test_time_does_not_grow_as_steps_times_rows():
    """Each step looked at all times that are asked for: 40 times as many took 30 times as long."""

    def taken(count):
        times = np.linspace(0.0, 30.0, count)
        f = tg.compile(lambda w: np.sum(solve_ivp(lambda t, y: np.stack([y[1], -w * y[0]]), (0.0, 30.0), [1.0, 0.0],
                                                  t_eval=times, rtol=1e-8, atol=1e-8).y ** 2))  # fmt: skip
        found = f(2.0)
        assert found == pytest.approx(
            np.sum(np.cos(2**0.5 * times) ** 2 + 2 * np.sin(2**0.5 * times) ** 2), rel=1e-5
        )
        spans = []
        for _ in range(5):
            start = time.perf_counter()
            f(2.0)
            spans.append(time.perf_counter() - start)
        return min(spans)

    assert taken(2000) < 12 * taken(50)


@pytest.mark.long
@pytest.mark.parametrize("method", ["RK45", "Radau", "BDF"])
def test_dense_output_beside_events_up_to_the_one_that_ends(method):
    def ground(t, y):
        return y[0]

    ground.terminal = True

    def fall(g, form=solve_ivp):
        return form(lambda t, y: np.stack([y[1], 0 * y[1] - g]), (0.0, 3.0), [1.0, 0.0], method, None, True, ground, rtol=1e-9, atol=1e-9)  # fmt: skip

    def value(g):
        found = fall(g)
        return found.sol(0.5 * found.t_events[0][0])[0] + found.sol(0.3)[0]

    for g in (9.8, 8.0):
        for f in (value, tg.compile(value)):
            assert f(g) == pytest.approx(0.75 + 1 - g * 0.045, rel=1e-7)
            assert tg.grad(f)(g) == pytest.approx(-0.045, rel=1e-5)
    with pytest.raises(ValueError, match="outside of t_span"):
        tg.compile(lambda g: fall(g).sol(2.0))(9.8)
