"""Events of solve_ivp: their times in programs are SciPy's, and derivatives of times are those of closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg
from tapegrad.errors import NotDifferentiable

solve_ivp = tg.integrate.solve_ivp
TIGHT = {"rtol": 1e-9, "atol": 1e-11}


def ground(t, y):
    return y[0]


ground.terminal, ground.direction = True, -1


def top(t, y):
    return y[1]


def fall(
    g,
    h=1.0,
    v=5.0,
    method="RK45",
    solve=solve_ivp,
    events=(ground, top),
    asked=(0.1, 0.5, 3.0),
    **how,
):
    return solve(lambda t, y: np.stack([y[1], -g]), (0.0, 10.0), np.stack([h, v]), method, np.array(asked), events=list(events), **TIGHT | how)  # fmt: skip


def landing(g, h=1.0, v=5.0):
    return (v + np.sqrt(v * v + 2 * g * h)) / g


@pytest.mark.parametrize(
    "method",
    [
        "DOP853",
        pytest.param("Radau", marks=pytest.mark.long),
        pytest.param("BDF", marks=pytest.mark.long),
    ],
)
def test_a_fall_in_a_program_is_scipys_and_has_the_derivatives_of_its_formula(method):
    def times(g, h, v):
        found = fall(g, h, v, method)
        return found.t_events[0][0], found.t_events[1][0], found.y_events[0][0, 1], np.sum(found.y)

    formulas = (landing, lambda g, h, v: v / g, lambda g, h, v: -np.sqrt(v * v + 2 * g * h),
                lambda g, h, v: sum(h + v * t - g * t * t / 2 + v - g * t for t in (0.1, 0.5)))  # fmt: skip
    compiled, at = tg.compile(times), (9.81, 1.0, 5.0)
    slopes = tg.compile(tg.jacobian(lambda *x: np.stack(times(*x)), argnums=(0, 1, 2)))
    for g in (9.81, 9.0):
        point = (g, *at[1:])
        theirs = fall(*point, method, scipy.integrate.solve_ivp)
        np.testing.assert_allclose(
            compiled(*point)[:2], [theirs.t_events[0][0], theirs.t_events[1][0]], rtol=1e-10
        )
        for k, formula in enumerate(formulas):
            assert compiled(*point)[k] == pytest.approx(formula(*point), rel=1e-6)
            expected = tg.grad(formula, argnums=(0, 1, 2))(*point)
            np.testing.assert_allclose([s[k] for s in slopes(*point)], expected, rtol=1e-5)
            eager = tg.grad(lambda *x, k=k: times(*x)[k], argnums=(0, 1, 2))(*point)
            np.testing.assert_allclose(eager, expected, rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, tg.compile])
def test_second_derivatives_and_tangents_of_times(wrap):
    def when(g):
        return fall(g, method="DOP853").t_events[0][0]

    assert wrap(tg.grad(tg.grad(when)))(9.81) == pytest.approx(
        tg.grad(tg.grad(landing))(9.81), rel=1e-5
    )
    assert wrap(lambda g: tg.jvp(when, (g,), (2.0,))[1])(9.81) == pytest.approx(
        2 * tg.grad(landing)(9.81), rel=1e-6
    )


@pytest.mark.parametrize("wrap", [lambda f: f, pytest.param(tg.compile, marks=pytest.mark.long)])
def test_second_derivatives_go_by_what_the_slope_alone_uses(wrap):
    """The level is reached at log(1/c)/k: k is in the equation, but not in the event."""

    def when(x):
        found = solve_ivp(lambda t, y: -x[0] * y, (0.0, 3.0), [1.0], "DOP853", np.zeros(0), events=lambda t, y: y[0] - x[1], rtol=1e-11, atol=1e-12)  # fmt: skip
        return found.t_events[0][0]

    x = np.array([1.3, 0.3])
    expected = tg.hessian(lambda x: -np.log(x[1]) / x[0])(x)
    for mode in ("reverse", "forward"):
        slopes = tg.jacobian(tg.grad(when), mode=mode)
        np.testing.assert_allclose(wrap(slopes)(x), expected, rtol=1e-6)


def swings(w, method="DOP853", solve=solve_ivp, way=1.0, end=7.0, **how):
    span = (0.0, end) if way > 0 else (end, 0.0)
    zero, low = (
        (lambda t, y: y["x"] if isinstance(y, dict) else y[0]),
        (lambda t, y: (y["x"] if isinstance(y, dict) else y[0]) + 0.5),
    )
    low.direction = 1
    return solve(lambda t, y: np.stack([w * y[1], -w * y[0]]), span, np.array([1.0, 0.0]), method, [], events=[zero, low], **TIGHT | how)  # fmt: skip


@pytest.mark.long(but=1)
@pytest.mark.parametrize("way", [1.0, -1.0])
def test_several_events_forward_and_backward(way):
    """As many as there are: another number is another program, and more than there is room for at first are found, too."""
    compiled = tg.compile(lambda w: swings(w, way=way).t_events)
    total = tg.compile(tg.grad(lambda w: sum(np.sum(t) for t in swings(w, way=way).t_events)))
    for w in (1.0, 1.1, 3.0, 12.0):
        theirs = swings(w, solve=scipy.integrate.solve_ivp, way=way).t_events
        for mine, other in zip(compiled(w), theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-11)
        begin = 0.0 if way > 0 else 7.0
        assert total(w) == pytest.approx(sum(np.sum(begin - t) for t in theirs) / w, rel=1e-6)


def test_events_at_the_ends_and_after_some():
    """SciPy finds an event that is 0 at the start there; an event may end the solution at its third time."""

    def begun(t, y):
        return y[0] - 1.0

    def third(t, y):
        return y[0]

    third.terminal = 3
    for events in ([begun], [third], [begun, third]):

        def found(w, solve=solve_ivp, events=events):
            return solve(lambda t, y: np.stack([w * y[1], -w * y[0]]), (0.0, 20.0), np.array([1.0, 0.0]), "RK45", [0.0, 1.0, 6.0, 9.0], events=events)  # fmt: skip

        theirs = found(1.0, scipy.integrate.solve_ivp)
        mine = tg.compile(
            lambda w, found=found: [(r := found(w)).t, r.y, *r.t_events, *r.y_events]
        )(1.0)
        for x, y in zip(
            mine, [theirs.t, theirs.y, *theirs.t_events, *theirs.y_events], strict=True
        ):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("wrap", [lambda f: f, tg.compile])
def test_an_event_that_only_touches_zero_has_no_derivative(wrap):
    def when(w):
        turning = lambda t, y: y[0] - 1.0  # noqa: E731  of a cosine, at its start
        return solve_ivp(lambda t, y: np.stack([w * y[1], -w * y[0]]), (0.0, 1.0), [1.0, 0.0], "RK45", [], events=turning).t_events[0][0]  # fmt: skip

    with pytest.raises(NotDifferentiable, match="touches"):
        wrap(tg.grad(when))(1.0)
