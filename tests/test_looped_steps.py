"""solve_ivp outside of tg.compile by a program of its own: SciPy's results and counts, and which calls share a program."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg
from tapegrad.interop import looped_steps

solve_ivp = tg.integrate.solve_ivp
SCALE = 1.0
ONES = np.ones(2)


def decay(t, y, k):
    return [-k[0] * y[0] + k[1] * np.cos(t), SCALE * y[0] - y[1]]


def solved(k, compile, method="RK45", solve=solve_ivp, **how):
    """Equations that are another function at each call, as in a loss."""
    how = {"t_eval": [0.0, 1.0, 2.0], "rtol": 1e-6} | how
    if solve is solve_ivp:
        how["compile"] = compile
    return solve(lambda t, y: decay(t, y, k), (0.0, 2.0), [1.0, 0.5], method, **how)


@pytest.fixture
def loops(monkeypatch):
    found = {}
    monkeypatch.setattr(looped_steps, "_loops", found)
    return found


@pytest.mark.parametrize("method", ["RK23", "DOP853", "Radau", "BDF"])
def test_results_are_scipys_and_so_are_the_counts(method, loops):
    for k in np.array([[1.0, 0.3], [3.0, 2.0]]):
        found, expected = (
            solved(k, True, method),
            solved(k, None, method, scipy.integrate.solve_ivp),
        )
        np.testing.assert_allclose(found.y, expected.y, rtol=1e-9, atol=1e-12)
        for name in ("t", "nfev", "njev", "nlu", "status", "message", "success"):
            assert np.all(found[name] == expected[name]), name
    assert len(loops) == 1


@pytest.mark.long
def test_gradients_are_those_of_pythons_steps(loops):
    def loss(k, compile):
        return np.sum(solved(k, compile).y ** 2)

    for k in np.array([[1.0, 0.3], [3.0, 2.0]]):
        np.testing.assert_allclose(
            tg.grad(loss)(k, True), tg.grad(loss)(k, False), rtol=1e-9, atol=1e-12
        )
    assert len(loops) == 1
    k = tg.tensor(np.array([1.0, 0.3]), requires_grad=True)
    np.sum(solved(k, True).y ** 2).backward()
    np.testing.assert_allclose(k.grad, tg.grad(loss)(np.array([1.0, 0.3]), False), rtol=1e-9)


@pytest.mark.long
def test_equations_that_close_over_a_helper_are_a_loop_in_transforms_too(loops):
    """In a transform a function of the user's stands in for the helper."""

    def value(helper, method, compile):
        def loss(k):
            y = solve_ivp(lambda t, y: helper(t, y, k), (0.0, 2.0), [1.0, 0.5], method, [1.0, 2.0], rtol=1e-7, compile=compile).y  # fmt: skip
            return np.sum(y**2)

        return loss

    k = np.array([1.0, 0.3])

    def joined(t, y, k):
        return np.stack([-k[0] * y[0] + k[1] * np.cos(t), 0.5 * y[0] - y[1]])

    for count, (helper, method) in enumerate(
        ((decay, "RK45"), (joined, "RK45"), (joined, "Radau"))
    ):
        for form in (tg.value_and_grad, lambda f: tg.compile(tg.value_and_grad(f))):
            found, expected = form(value(helper, method, True))(k), tg.value_and_grad(value(helper, method, False))(k)  # fmt: skip
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
        assert len(loops) == count + 1
        assert all(loop.compiled is not None for loop in loops.values())


def test_compiled_once_it_pays_and_only_what_computes(loops, monkeypatch):
    monkeypatch.setattr(looped_steps, "PRICE", {False: 0.0, True: 0.0})
    for _ in range(2):
        expected = solved(np.array([1.0, 0.3]), "auto")
    (loop,) = loops.values()
    assert loop.compiled is not None
    np.testing.assert_allclose(solved(np.array([1.0, 0.3]), "auto").y, expected.y, rtol=1e-9)

    seen = []

    def counts(t, y):
        seen.append(t)
        return -y

    for _ in range(3):
        found = solve_ivp(counts, (0.0, 1.0), [1.0], t_eval=[1.0])
    assert len(seen) == 3 * found.nfev
    assert list(loops.values())[-1].compiled is None


@pytest.mark.long
def test_what_differs_between_calls_is_an_argument_or_another_program(loops, monkeypatch):
    """Numbers, arrays and functions that equations close over, their defaults and partial arguments; globals that change."""

    def of(rate, power, shape=None):
        weights = np.array([rate, 2.0])
        slope = functools.partial(lambda a, t, y, c: -a * (c @ weights) * y**power, 0.5)
        f = lambda t, y, c=ONES: slope(t, y, c)  # noqa: E731
        return solve_ivp(f, (0.0, 1.0), [1.0], t_eval=[1.0], rtol=1e-8, compile=shape is None).y[
            0, 0
        ]

    for rate, power in ((0.5, 1), (0.7, 1), (0.5, 2)):
        assert of(rate, power) == pytest.approx(of(rate, power, 0), rel=1e-9)
    assert len(loops) == 2
    k = np.array([1.0, 0.3])
    solved(k, True)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(solved(k, True).y, solved(k, False).y, rtol=1e-9)


def test_what_a_program_cannot_say_is_scipys(loops):
    """Solutions that end too early, settings and times that are wrong, BDF's dense output, and LSODA."""
    found = solve_ivp(lambda t, y: y**2, (0.0, 2.0), [1.0], t_eval=[0.5, 1.5], compile=True)
    assert found.status == -1 and len(found.t) == 1
    for how, words in (({"t_eval": [1.0, 0.5]}, "sorted"), ({"first_step": 5.0}, "bounds")):
        with pytest.raises(ValueError, match=words):
            solved(np.ones(2), True, **how)
    assert solved(np.ones(2), True, "BDF", dense_output=True).sol(0.5).shape == (2,)
    assert solved(np.ones(2), True, "LSODA").t.size == 3


def thrown(p, compile, method="RK45", t_eval=(0.1, 0.5, 3.0), terminal=True, **how):
    """A ball with drag, thrown up: when it falls to the ground, and when it is at the top."""
    ground, top = lambda t, y: y[0], lambda t, y: y[1]
    ground.terminal, ground.direction = terminal, -1
    return solve_ivp(lambda t, y: np.stack([y[1], -p[0] - p[1] * y[1]]), (0.0, 10.0), [1.0, 5.0], method, t_eval,
                     events=[ground, top], rtol=1e-8, atol=1e-10, compile=compile, **how)  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("t_eval", [(0.1, 0.5, 3.0), ()])
@pytest.mark.parametrize("terminal", [True, False, 2])
@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF"])
def test_events_are_found_by_the_program_as_by_scipys_steps(method, terminal, t_eval, loops):
    p = np.array([9.8, 0.1])
    found = thrown(p, True, method, t_eval, terminal)
    expected = thrown(p, False, method, t_eval, terminal)
    for name in ("t", "y"):
        assert np.shape(found[name]) == np.shape(expected[name])
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8)
    for name in ("t_events", "y_events"):
        for x, y in zip(found[name], expected[name], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-8)
    for name in ("nfev", "njev", "nlu", "status", "message", "success"):
        assert found[name] == expected[name], name

    def landing(p, compile):
        result = thrown(p, compile, method, t_eval, terminal)
        return result.t_events[0][0] + result.y_events[1][0, 0]

    np.testing.assert_allclose(tg.grad(landing)(p, True), tg.grad(landing)(p, False), rtol=1e-6)
    assert all(loop.compiled is not None for loop in loops.values())


@pytest.mark.long
def test_events_that_note_something_stay_with_scipys_steps(loops, monkeypatch):
    monkeypatch.setattr(looped_steps, "PRICE", {False: 0.0, True: 0.0})
    seen = []

    def event(t, y):
        seen.append(t)
        return y[0] - 0.5

    counts = []
    for _ in range(4):
        seen.clear()
        solve_ivp(lambda t, y: -y, (0.0, 1.0), [1.0], t_eval=[1.0], events=event)
        counts.append(len(seen))
    assert len(set(counts)) == 1 and counts[0] > 2


def swing(
    p,
    compile,
    method,
    t_eval=None,
    events=None,
    dense_output=True,
    span=(0.0, 2.0),
    start=(1.0, 0.0),
    solve=solve_ivp,
):
    """A pendulum: its steps, with such a first one, follow from its motion, where those of a ball in the air follow from rounding."""
    how = {"compile": compile} if solve is solve_ivp else {}
    return solve(lambda t, y: np.stack([y[1], -p * np.sin(y[0])]), span, np.stack([start[0] + 0 * p, start[1] + 0 * p]), method, t_eval,
                 dense_output, events, rtol=1e-6, atol=1e-9, first_step=0.05, **how)  # fmt: skip


def below(t, y):
    return y[0] + 0.5


below.terminal = True


@pytest.mark.long(but=2)
@pytest.mark.parametrize("events", [None, below])
@pytest.mark.parametrize("t_eval", [None, (0.1, 0.6)])
@pytest.mark.parametrize("method", ["RK23", "RK45", "DOP853", "Radau"])
def test_all_steps_and_dense_output_are_scipys(method, t_eval, events, loops):
    """Times, states, counts and interpolants, within the steps and outside; a program serves any number of steps."""
    for p in (9.0, 11.0):
        found = swing(p, True, method, t_eval, events)
        expected = swing(p, None, method, t_eval, events, solve=scipy.integrate.solve_ivp)
        assert found.t.shape == expected.t.shape
        np.testing.assert_allclose(found.t, expected.t, rtol=1e-6)
        np.testing.assert_allclose(found.y, expected.y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.sol.ts, expected.sol.ts, rtol=1e-6)
        for t in (0.37, np.array([0.5, -0.1, 0.0, 0.2, 2.1]), expected.sol.ts):
            np.testing.assert_allclose(found.sol(t), expected.sol(t), rtol=1e-5, atol=1e-6)
        for name in ("nfev", "njev", "nlu", "status", "message", "success"):
            assert found[name] == expected[name], name
        for a, b in zip(found.t_events or [], expected.t_events or [], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8)
    (loop,) = loops.values()
    assert loop.compiled is not None and loop.traces <= 2


@pytest.mark.long(but=1)
@pytest.mark.parametrize("events", [None, below])
@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF"])
def test_all_steps_and_dense_output_have_derivatives(method, events, loops):
    """Also by the span, whose ends are the first and the last time; second derivatives."""

    def value(x, compile):
        found = swing(
            x[0], compile, method, None, events, method != "BDF", (x[1], x[2]), (x[3], 0.0)
        )
        total = found.t[0] + 2 * found.t[-1] + np.sum(found.y[:, -1] ** 2) + found.y[0, 0]
        if found.sol is not None:
            total = (
                total
                + np.sum(found.sol(np.array([0.3, 0.11])) ** 2)
                + found.sol(0.5 * found.t[-1])[0]
            )
        return total

    x = np.array([9.0, 0.0, 2.0, 1.0])
    np.testing.assert_allclose(
        tg.grad(value)(x, True), tg.grad(value)(x, False), rtol=2e-5, atol=1e-6
    )
    if method == "RK45":
        np.testing.assert_allclose(
            tg.hessian(value)(x, True), tg.hessian(value)(x, False), rtol=1e-4, atol=1e-4
        )
    assert all(loop.compiled is not None for loop in loops.values())


def test_more_steps_than_there_was_room_for(loops, monkeypatch):
    from tapegrad.interop import trajectories

    monkeypatch.setattr(trajectories, "FIRST_STEPS", 4)
    found, expected = (swing(9.0, mode, "RK45", events=lambda t, y: y[0] - 0.1, span=(2.0, 0.0)) for mode in (True, False))  # fmt: skip
    np.testing.assert_allclose(found.y, expected.y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.sol(0.7), expected.sol(0.7), rtol=1e-5, atol=1e-6)
    assert found.t.size > 20


@pytest.mark.long(but=1)
@pytest.mark.parametrize("t_eval", [None, (1.0, 1e2, 1e4)])
@pytest.mark.parametrize("method", ["Radau", "BDF"])
def test_mass_matrices_are_a_loop_too(method, t_eval, loops):
    """Robertson's reaction with an equation without derivatives; another matrix is another program."""
    rates = np.array([0.04, 3e7, 1e4])

    def reaction(p, compile, mass=(1.0, 1.0, 0.0), start=(1.0, 0.0, 0.0)):
        def f(t, y):
            return np.stack(
                [
                    -p[0] * y[0] + p[2] * y[1] * y[2],
                    p[0] * y[0] - p[2] * y[1] * y[2] - p[1] * y[1] ** 2,
                    y.sum() - 1,
                ]
            )

        return solve_ivp(
            f,
            (0.0, 1e4),
            start,
            method,
            t_eval,
            mass_matrix=np.diag(mass),
            rtol=1e-6,
            atol=1e-9,
            compile=compile,
        )

    for mass in ((1.0, 1.0, 0.0), (1.0, 2.0, 0.0)):
        found, expected = (reaction(rates, mode, mass) for mode in (True, False))
        assert found.t.shape == expected.t.shape
        np.testing.assert_allclose(found.y[:, -1], expected.y[:, -1], rtol=1e-6)
        for name in ("nfev", "njev", "nlu"):
            assert found[name] == expected[name], name
    assert len(loops) == 2

    def left(p, compile):
        return np.log(reaction(p, compile).y[0, -1])

    np.testing.assert_allclose(tg.grad(left)(rates, True), tg.grad(left)(rates, False), rtol=1e-6)
    with pytest.raises(ValueError, match="not consistent"):
        reaction(rates, True, start=(1.0, 0.0, 0.3))
    assert all(loop.compiled is not None for loop in loops.values())


@pytest.mark.long
def test_a_program_that_takes_longer_is_given_up(loops, monkeypatch):
    """Its matrices are dense, and SciPy's may be sparse."""
    monkeypatch.setattr(looped_steps, "PRICE", {False: 0.0, True: 0.0})
    monkeypatch.setattr(looped_steps.Call, "_slower", lambda self, spent: spent > 0)
    for _ in range(3):
        found = solved(np.array([1.0, 0.3]), "auto")
    (loop,) = loops.values()
    assert loop.compiled is None and loop.why == "the program takes longer"
    np.testing.assert_array_equal(found.y, solved(np.array([1.0, 0.3]), False).y)
