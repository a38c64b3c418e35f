"""tg.odeint: closed forms, SciPy's values, and derivatives by everything a solution depends on."""

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg

T = np.linspace(0.0, 3.0, 7)
CLOSE = {"rtol": 0, "atol": 2e-6}


def oscillator(y, t, w):
    return [y[1], -(w**2) * y[0]]


def position(w=2.0, y0=(1.0, 0.0), t=T):
    return tg.odeint(oscillator, y0, t, (w,))[:, 0]


def test_the_value_is_scipys():
    ours = tg.odeint(oscillator, [1.0, 0.0], T, (2.0,))
    assert isinstance(ours, np.ndarray) and ours.shape == (7, 2)
    theirs = scipy.integrate.odeint(oscillator, [1.0, 0.0], T, (2.0,))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours[:, 0], np.cos(2 * T), rtol=0, atol=1e-7)
    tight = tg.odeint(oscillator, [1.0, 0.0], T, (2.0,), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tight[:, 0], np.cos(2 * T), rtol=0, atol=1e-11)
    repeated = tg.odeint(lambda t, y: -y, 1, [0, 1, 1], tfirst=True)
    np.testing.assert_allclose(repeated, [[1.0], [np.exp(-1)], [np.exp(-1)]], rtol=1e-7)
    still = tg.odeint(lambda y, t: 0 * y, np.ones((2, 3)), [0.0, 5.0])
    assert still.shape == (2, 2, 3) and np.all(still == 1.0)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_derivatives_of_an_oscillator(mode):
    def jacobian(f):
        return tg.jacobian(f, mode=mode)

    by_w = -T * np.sin(2 * T)
    np.testing.assert_allclose(jacobian(position)(2.0), by_w, **CLOSE)
    np.testing.assert_allclose(jacobian(lambda w: position(w, t=-T))(2.0), by_w, **CLOSE)
    by_y0 = jacobian(lambda y0: position(y0=y0))(np.array([1.0, 0.0]))
    np.testing.assert_allclose(by_y0, np.stack([np.cos(2 * T), np.sin(2 * T) / 2], 1), **CLOSE)
    by_t = jacobian(lambda t: position(t=t))(T)  # all begin at the first time
    speed = -2 * np.sin(2 * T)
    np.testing.assert_allclose(by_t, np.diag(speed) - np.outer(speed, np.eye(7)[0]), **CLOSE)

    def closed_over(w):
        return tg.odeint(lambda y, t: tg.stack([y[1], -(w**2) * y[0]]), [1.0, 0.0], T)[:, 0]

    np.testing.assert_allclose(jacobian(closed_over)(2.0), by_w, **CLOSE)
    curvature = jacobian(jacobian(position))(2.0)
    np.testing.assert_allclose(curvature, -(T**2) * np.cos(2 * T), **CLOSE)


def test_a_fit_of_foxes_and_hares():
    """Against differences of SciPy's solution at a tighter tolerance; with tensors, as well."""

    def rates(y, t, p):
        hares, foxes = y[0], y[1]
        return [p[0] * hares - p[1] * hares * foxes, p[2] * hares * foxes - p[3] * foxes]

    p, y0, t = np.array([1.0, 0.2, 0.1, 0.8]), np.array([5.0, 3.0]), np.linspace(0, 3, 4)

    def loss(p, y0, solve=tg.odeint, **settings):
        return np.sum(np.log(solve(rates, y0, t, (p,), **settings)) ** 2)

    by_p, by_y0 = tg.grad(loss, argnums=(0, 1))(p, y0)
    scipys = {"solve": scipy.integrate.odeint, "rtol": 1e-12, "atol": 1e-12}
    for i in range(4):
        h = 1e-4 * np.eye(4)[i]
        expected = (loss(p + h, y0, **scipys) - loss(p - h, y0, **scipys)) / 2e-4
        np.testing.assert_allclose(by_p[i], expected, rtol=1e-5)
    for i in range(2):
        h = 1e-4 * np.eye(2)[i]
        expected = (loss(p, y0 + h, **scipys) - loss(p, y0 - h, **scipys)) / 2e-4
        np.testing.assert_allclose(by_y0[i], expected, rtol=1e-5)
    w = tg.tensor(p, requires_grad=True)
    loss(w, y0).backward()
    np.testing.assert_allclose(w.grad.numpy(), by_p, rtol=1e-12)


P = np.array([1.0, 0.2, 0.1, 0.8])


def hunting(y, t, p):
    hares, foxes = y[0], y[1]
    return [p[0] * hares - p[1] * hares * foxes, p[2] * hares * foxes - p[3] * foxes * np.cos(t)]


COMPILED = {
    "by a parameter": (lambda w: np.sum(position(w) ** 2), [2.0, 2.000001, 0.5]),
    "by parameters": (
        lambda p: np.sum(np.log(tg.odeint(hunting, [5.0, 3.0], T, (p,))[1:] ** 2)),
        [P, 1.1 * P, 0.5 * P],
    ),
    "by the beginning": (
        lambda y0: np.sum(np.sin(tg.odeint(hunting, y0, T, (P,)))),
        [np.array([5.0, 3.0]), np.array([1.0, 1.0])],
    ),
    "by times": (lambda t: np.sum(np.sin(position(t=t))), [T, T**1.5, 2 * T]),
    "backwards": (lambda w: np.sum(position(w, t=-T) ** 3), [2.0, 0.5]),
    "closed over": (
        lambda w: np.sum(tg.odeint(lambda t, y: -w * y * t, 1.0, T, tfirst=True)),
        [2.0, 3.0],
    ),
    "a time again": (lambda w: np.sum(position(w, t=np.array([0.0, 1.0, 1.0, 2.0]))), [2.0, 0.5]),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("transform", [lambda f: f, tg.grad], ids=["value", "gradient"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_the_steps_are_one_loop_for_all_values(name, transform):
    f, points = COMPILED[name]
    runs = []

    def counted(x):
        runs.append(1)
        return f(x)

    compiled, plain = tg.compile(transform(counted)), transform(f)
    for x in (*points, *points):
        np.testing.assert_allclose(compiled(x), plain(x), rtol=1e-8, atol=1e-10)
    assert len(runs) == 1


def test_compiled_nothing_to_solve():
    for y0, t in ((np.ones(0), T), (np.ones(2), T[:1])):
        solved = tg.compile(lambda y0, t=t: tg.odeint(lambda y, t: -y, y0, t))(y0)
        assert solved.shape == (len(t), len(y0)) and np.all(solved == 1.0)


@pytest.mark.long
def test_compiled_second_derivatives():
    f = lambda w: np.sum(position(w, t=T[:3]))  # noqa: E731
    compiled = tg.compile(tg.hessian(f))
    for w in (2.0, 0.5):
        np.testing.assert_allclose(compiled(w), tg.hessian(f)(w), rtol=1e-7)


def test_compiled_equations_that_look_at_values_are_traced_step_by_step():
    def switched(y, t, w):
        return -w * y if t < 0.1 else -2 * w * y

    end = tg.grad(lambda w: tg.odeint(switched, 1.0, [0.0, 0.2], (w,), rtol=1e-3, atol=1e-3)[-1, 0])
    fast = tg.compile(end)
    for w in (2.0, 2.000001, 2.0):
        np.testing.assert_allclose(fast(w), end(w), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled_what_has_no_solution_says_so():
    blow_up = tg.compile(lambda y0: tg.odeint(lambda y, t: y**2, y0, [0.0, 2.0]))
    np.testing.assert_allclose(blow_up(0.25)[1], 0.5, rtol=1e-7)
    with pytest.raises(RuntimeError, match="The solution may end there"):
        blow_up(1.0)
    np.testing.assert_allclose(blow_up(0.25)[1], 0.5, rtol=1e-7)
    with pytest.raises(RuntimeError, match="the equations are stiff"):
        tg.compile(lambda k: tg.odeint(lambda y, t: -k * (y - np.cos(t)), 0.0, [0.0, 2.0], mxstep=100))(1e6)  # fmt: skip
    with pytest.raises(ValueError, match="is not finite"):
        tg.compile(lambda k: tg.odeint(lambda y, t: y * k, 1.0, [0.0, 2.0]))(np.nan)
    with pytest.raises(ValueError, match="up and down"):
        tg.compile(lambda t: tg.odeint(lambda y, t: y, 1.0, t))(np.array([0.0, 2.0, 1.0]))


def test_a_time_that_is_asked_for_twice_has_a_derivative_each_time():
    by_t = tg.jacobian(lambda t: position(t=t))(np.array([0.0, 1.0, 1.0]))
    speed = -2 * np.sin(2.0)
    np.testing.assert_allclose(by_t[1:], [[-speed, speed, 0], [-speed, 0, speed]], **CLOSE)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_has_no_solution_says_so():
    with pytest.raises(RuntimeError, match="The solution may end there"):
        tg.odeint(lambda y, t: y**2, 1.0, [0.0, 2.0])
    with pytest.raises(RuntimeError, match="the equations are stiff"):
        tg.odeint(lambda y, t: -1e6 * (y - np.cos(t)), 0.0, [0.0, 2.0], mxstep=100)
    with pytest.raises(ValueError, match="is not finite"):
        tg.odeint(lambda y, t: y * np.nan, 1.0, [0.0, 2.0])
    with pytest.raises(ValueError, match="up and down"):
        tg.odeint(lambda y, t: y, 1.0, [0.0, 2.0, 1.0])
    with pytest.raises(ValueError, match="are a sequence"):
        tg.odeint(lambda y, t: y, 1.0, 2.0)
    with pytest.raises(ValueError, match="a slope for each entry"):
        tg.odeint(lambda y, t: [1.0, 2.0], 1.0, [0.0, 2.0])
    with pytest.raises(TypeError, match="Does it end with a return"):
        tg.odeint(lambda y, t: None, 1.0, [0.0, 2.0])
