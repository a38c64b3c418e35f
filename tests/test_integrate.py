"""tg.integrate: closed forms, SciPy's values, sensitivities at tight tolerances, and what would be wrong without a word."""

import numpy as np
import pytest
import scipy.integrate

import tapegrad as tg
from tapegrad.interop import trajectories
from tapegrad.interop.stepping import tableau, tsit5

solve_ivp = tg.integrate.solve_ivp

METHODS = ["RK23", "RK45", "DOP853", "Tsit5", "Radau", "BDF", "LSODA"]
EXACT = {
    "RK23": {"rtol": 1e-6, "atol": 1e-6},
    "BDF": {"rtol": 1e-7, "atol": 1e-7},
    "LSODA": {"rtol": 1e-7, "atol": 1e-7},
    "DOP853": {"rtol": 1e-10, "atol": 1e-10},
    "Tsit5": {"rtol": 1e-10, "atol": 1e-10},
    "RK45": {"rtol": 1e-10, "atol": 1e-10},
    "Radau": {"rtol": 1e-6, "atol": 1e-6},
}
CLOSE = {
    "RK23": 3e-5,
    "BDF": 5e-6,
    "LSODA": 5e-6,
    "Radau": 5e-6,
    "RK45": 5e-9,
    "DOP853": 5e-9,
    "Tsit5": 5e-9,
}
"""What errors of the size of the tolerances add up to over the spans below; BDF's and RK23's many steps make most."""

T = np.array([0.0, 0.5, 1.7, 2.0])
W = 2.0


def oscillator(t, y, w):
    return [y[1], -(w**2) * y[0]]


def position(method, w=W, y0=(1.0, 0.0), span=(0.0, 2.0), t_eval=T, **settings):
    found = solve_ivp(oscillator, span, y0, method, t_eval, args=(w,), **EXACT[method], **settings)
    return found.y[0]


def close(found, expected, method):
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE[method] * 4)


# ------------------------------------------------------------------------------------------------------------- solve_ivp


@pytest.mark.parametrize("method", METHODS)
def test_plain_results_are_scipys(method):
    def hit(t, y):
        return y[0]

    theirs = tsit5() if method == "Tsit5" else method
    for settings in (
        {},
        {"t_eval": T},
        {"dense_output": True},
        {"events": hit},
        {"max_step": 0.1},
        {"first_step": 0.01},
    ):
        ours = solve_ivp(lambda t, y: oscillator(t, y, W), (0, 2), [1.0, 0.0], method, **settings)
        expected = scipy.integrate.solve_ivp(
            lambda t, y: oscillator(t, y, W), (0, 2), [1.0, 0.0], theirs, **settings
        )
        assert isinstance(ours.y, np.ndarray) and ours.status == 0
        if method in ("Radau", "BDF"):  # their Jacobian is exact here
            np.testing.assert_allclose(ours.y[:, -1], expected.y[:, -1], rtol=1e-2)
            continue
        np.testing.assert_array_equal(ours.t, expected.t)
        np.testing.assert_array_equal(ours.y, expected.y)
        assert ours.nfev == expected.nfev
        if "events" in settings:
            np.testing.assert_array_equal(ours.t_events[0], expected.t_events[0])
        if "dense_output" in settings:
            np.testing.assert_array_equal(ours.sol(T), expected.sol(T))


@pytest.mark.parametrize("method", METHODS)
def test_tracked_values_are_scipys(method):
    """The rows are recomputed from the slopes that were kept: only rounding may differ."""
    w = tg.tensor(W, requires_grad=True)
    for settings in ({}, {"t_eval": T[::2]}, {"t_eval": T, "rtol": 1e-8, "atol": 1e-8}):
        ours = solve_ivp(
            oscillator, (0, 2), [1.0, 0.0], method, args=(w,), dense_output=True, **settings
        )
        plain = solve_ivp(
            oscillator, (0, 2), [1.0, 0.0], method, args=(W,), dense_output=True, **settings
        )
        assert isinstance(ours.y, tg.Tensor) and ours.y.requires_grad
        np.testing.assert_array_equal(ours.t, plain.t)
        np.testing.assert_allclose(ours.y.detach().numpy(), plain.y, rtol=1e-12, atol=1e-13)
        inside = np.linspace(0.1, 1.9, 7)
        np.testing.assert_allclose(
            ours.sol(inside).detach().numpy(), plain.sol(inside), rtol=1e-12, atol=1e-13
        )
        assert ours.sol(0.7).shape == (2,) and ours.sol.t_max == 2.0


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_of_an_oscillator(method, mode):
    def jacobian(f):
        return tg.jacobian(f, mode=mode)

    slope = -W * np.sin(W * T)
    close(jacobian(lambda w: position(method, w))(W), -T * np.sin(W * T), method)
    by_y0 = jacobian(lambda y0: position(method, y0=y0))(np.array([1.0, 0.0]))
    close(by_y0, np.stack([np.cos(W * T), np.sin(W * T) / W], 1), method)
    close(jacobian(lambda t: position(method, t_eval=t))(T), np.diag(slope), method)
    by_start = jacobian(lambda a: position(method, span=(a, 2.0)))(0.0)
    close(by_start, -slope, method)
    backwards = jacobian(lambda w: position(method, w, span=(0.0, -2.0), t_eval=-T))(W)
    close(backwards, -T * np.sin(W * T), method)
    by_end = jacobian(lambda b: position(method, span=(0.0, b), t_eval=None)[-1])(2.0)
    close(by_end, slope[-1], method)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_second_derivatives(method):
    by_w = tg.jacobian(tg.jacobian(lambda w: position(method, w)))
    close(by_w(W), -(T**2) * np.cos(W * T), method)

    def end(a, b):
        return position(method, span=(a, b), t_eval=None)[-1]

    c = -(W**2) * np.cos(W * 2.0)
    close(tg.grad(tg.grad(end, 1), 1)(0.0, 2.0), c, method)
    close(tg.grad(tg.grad(end, 0), 1)(0.0, 2.0), -c, method)
    mixed = tg.grad(tg.grad(lambda w, b: position(method, w, span=(0.0, b), t_eval=None)[-1], 0), 1)
    close(mixed(W, 2.0), -np.sin(4.0) - W * 2.0 * np.cos(4.0), method)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("method", METHODS)
def test_long_states_are_recorded_step_by_step(method, monkeypatch):
    """The other way to the same derivatives, here of a state that is short."""
    f = lambda w, y0: position(method, w, y0, (0.0, 0.5), T[:2])  # noqa: E731
    y0 = np.array([1.0, 0.5])
    expected, value = tg.jacobian(f, argnums=(0, 1))(W, y0), f(W, y0)
    monkeypatch.setattr(trajectories, "LARGE", 0)
    for mode in ("reverse", "forward"):
        found = tg.jacobian(f, argnums=(0, 1), mode=mode)(W, y0)
        for one, other in zip(found, expected, strict=True):
            close(one, other, method)
    np.testing.assert_allclose(
        f(tg.tensor(W, requires_grad=True), y0).detach().numpy(), value, rtol=1e-12, atol=1e-14
    )


@pytest.mark.long
def test_third_derivatives_and_forward_over_reverse():
    f = lambda w: position("RK45", w)[-1]  # noqa: E731
    close(tg.grad(tg.grad(tg.grad(f)))(W), 8 * np.sin(4.0), "RK45")
    np.testing.assert_allclose(tg.jvp(tg.grad(f), (W,), (1.0,))[1], -4 * np.cos(4.0), atol=1e-7)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("method", METHODS)
def test_under_dual_level(method):
    fwd = tg.autograd.forward_ad
    with fwd.dual_level():
        w = fwd.make_dual(tg.tensor(W), tg.tensor(1.0))
        tangent = fwd.unpack_dual(position(method, w, span=(0.0, 0.5), t_eval=T[:2])).tangent
    close(tangent, -T[:2] * np.sin(W * T[:2]), method)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_events_have_times_with_derivatives(method):
    """cos(w t) is zero at π / 2w and 3π / 2w, where the speed is -w and w."""

    def crossing(t, y, w):
        return y[0]

    def found(w, terminal):
        crossing.terminal = terminal
        return solve_ivp(
            oscillator, (0, 3), [1.0, 0.0], method, events=[crossing], args=(w,), **EXACT[method]
        )

    both = found(W, False)
    close(both.t_events[0], [np.pi / 4, 3 * np.pi / 4], method)
    by_w = tg.jacobian(lambda w: found(w, False).t_events[0])
    close(by_w(W), [-np.pi / 8, -3 * np.pi / 8], method)
    close(tg.jacobian(by_w)(W), [np.pi / 8, 3 * np.pi / 8], method)
    speeds = tg.jacobian(lambda w: found(w, False).y_events[0][:, 1])
    close(speeds(W), [-1.0, 1.0], method)

    def stopped(w):
        result = found(w, True)
        assert result.status == 1
        return tg.stack([result.t[-1], result.y[1, -1]])

    close(stopped(W), [np.pi / 4, -W], method)
    close(tg.jacobian(stopped)(W), [-np.pi / 8, -1.0], method)


def test_an_event_whose_function_alone_is_tracked():
    def height(h):
        return solve_ivp(
            lambda t, y: -y, (0, 3), [1.0], events=lambda t, y: y[0] - h, rtol=1e-10, atol=1e-12
        )

    np.testing.assert_allclose(tg.grad(lambda h: height(h).t_events[0][0])(0.5), -2.0, rtol=1e-8)
    none = solve_ivp(
        oscillator,
        (0, 0.1),
        [1.0, 0.0],
        events=lambda t, y, w: y[0],
        args=(tg.tensor(W, requires_grad=True),),
    )
    assert none.t_events[0].shape == (0,) and none.y_events[0].shape == (0, 2)


def test_dense_output_is_a_function_of_time_and_parameters():
    w = tg.tensor(W, requires_grad=True)
    sol = solve_ivp(
        oscillator, (0, 2), [1.0, 0.0], dense_output=True, args=(w,), rtol=1e-10, atol=1e-10
    ).sol
    np.testing.assert_allclose(
        tg.jacobian(lambda t: sol(t)[0])(T).detach().numpy(), np.diag(-W * np.sin(W * T)), atol=1e-8
    )
    sol(1.3)[0].backward()
    np.testing.assert_allclose(w.grad, -1.3 * np.sin(W * 1.3), atol=1e-8)
    with pytest.raises(ValueError, match="1-D"):
        sol(np.ones((2, 2)))


def test_dense_output_is_a_function_of_time_where_nothing_else_is_tracked():
    for y0 in ([1.0, 0.0], {"x": 1.0, "v": 0.0}):

        def swing(t, y, y0=y0):
            return {"x": y["v"], "v": -y["x"]} if isinstance(y0, dict) else [y[1], -y[0]]

        sol = solve_ivp(swing, (0, 2), y0, dense_output=True, rtol=1e-10, atol=1e-12).sol
        x = (
            (lambda t, sol=sol: sol(t)["x"])
            if isinstance(y0, dict)
            else (lambda t, sol=sol: sol(t)[0])
        )
        np.testing.assert_allclose(x(1.2), np.cos(1.2), rtol=1e-8)
        np.testing.assert_allclose(tg.grad(x)(1.2), -np.sin(1.2), rtol=1e-8)
        np.testing.assert_allclose(tg.grad(tg.grad(x))(1.2), -np.cos(1.2), rtol=1e-8)
        slopes = tg.grad(lambda t, x=x: np.sum(x(t)))(np.array([0.3, 1.2]))
        np.testing.assert_allclose(slopes, -np.sin([0.3, 1.2]), rtol=1e-8)
        assert sol.t_max == 2.0 and sol.n_segments > 3


@pytest.mark.long
def test_states_of_any_form():
    rates = np.array([[0.0, 1.0], [-4.0, 0.0]])
    e = {"rtol": 1e-10, "atol": 1e-10}

    def by_tree(w):
        return solve_ivp(
            lambda t, s: {"x": s["v"], "v": -w * w * s["x"]}, (0, 2), {"x": 1.0, "v": 0.0}, **e
        ).y["x"][-1]

    def by_matrix(w):
        return solve_ivp(lambda t, m: (w / W) * rates @ m, (0, 2), np.eye(2), **e).y[0, 0, -1]

    for f in (by_tree, by_matrix):
        np.testing.assert_allclose(f(W), np.cos(4.0), rtol=1e-8)
        np.testing.assert_allclose(tg.grad(f)(W), -2 * np.sin(4.0), rtol=1e-7)
    by_number = lambda k: solve_ivp(lambda t, y: -k * y, (0, 2), 1.0, **e)  # noqa: E731
    assert by_number(1.0).y.ndim == 1
    np.testing.assert_allclose(
        tg.grad(lambda k: by_number(k).y[-1])(1.0), -2 * np.exp(-2), rtol=1e-8
    )

    def complex_state(w):
        return np.real(
            solve_ivp(lambda t, z: 1j * w * z, (0, 2), np.array([1.0 + 0j]), **e).y[0, -1]
        )

    np.testing.assert_allclose(tg.grad(complex_state)(W), -2 * np.sin(4.0), rtol=1e-7)
    with pytest.raises(tg.NotDifferentiable, match="real and imaginary parts"):
        tg.grad(
            lambda w: np.real(
                solve_ivp(lambda t, z: 1j * w * z, (0, 2), np.array([1.0 + 0j]), "BDF").y[0, -1]
            )
        )(W)
    many = lambda k: solve_ivp(lambda t, y: -k * y, (0, 1), np.ones(60), **e).y[7, -1]  # noqa: E731
    np.testing.assert_allclose(tg.grad(many)(1.0), -np.exp(-1), rtol=1e-8)
    sol = by_number(tg.tensor(1.0, requires_grad=True))
    assert sol.y.shape == sol.t.shape
    whole = solve_ivp(
        lambda t, m: -m,
        (0, 1),
        np.ones((2, 3)),
        dense_output=True,
        events=lambda t, m: m[0, 0] - 0.5,
    )
    assert (
        whole.y.shape == (2, 3, len(whole.t))
        and whole.sol(0.5).shape == (2, 3)
        and whole.y_events[0].shape == (2, 3, 1)
    )


def test_functions_run_on_all_stages_together_where_they_can():
    sizes = []

    def counted(t, y, k):
        sizes.append(np.size(t))
        return -k * y[0]

    slope = tg.grad(
        lambda k: solve_ivp(counted, (0, 1), [1.0], args=(k,), rtol=1e-10, atol=1e-12).y[0, -1]
    )
    np.testing.assert_allclose(slope(1.0), -np.exp(-1), rtol=1e-8)
    assert max(sizes) > 100 and sizes.count(max(sizes)) == 1


def test_nothing_to_integrate():
    same = solve_ivp(oscillator, (1, 1), [1.0, 0.0], args=(W,))
    assert same.y.shape == (2, 2)
    np.testing.assert_array_equal(
        tg.grad(lambda a: solve_ivp(oscillator, (1, 1), tg.stack([a, a]), args=(W,)).y[0, -1])(3.0),
        1.0,
    )
    assert solve_ivp(lambda t, y: y, (0, 1), []).y.shape[0] == 0
    by_end = tg.grad(lambda b: solve_ivp(lambda t, y: -3.0 * y, (1.0, b), [2.0]).y[0, -1])(1.0)
    np.testing.assert_allclose(by_end, -6.0)


def predators(t, y, p):
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]]


P, Y0 = np.array([1.0, 0.2, 0.1, 0.8]), np.array([5.0, 3.0])


def by_complex_steps(f, p):
    """The derivative of an analytic function by numbers, exact to rounding."""
    steps = 1e-30j * np.eye(len(p))
    return np.stack([np.imag(f(p + h)) / 1e-30 for h in steps], -1)


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_of_foxes_and_hares(method):
    """At SciPy's tolerances, against complex steps through a solution at 1e-12."""

    def precise(p, y0):
        found = scipy.integrate.solve_ivp(
            lambda t, y: np.array(predators(t, y, p)),
            (0, 3),
            y0 + 0j,
            "DOP853",
            T,
            rtol=1e-12,
            atol=1e-12,
        )
        return found.y

    def ours(p, y0):
        return solve_ivp(predators, (0, 3), y0, method, T, args=(p,), **EXACT[method]).y

    by_p, by_y0 = tg.jacobian(ours, argnums=(0, 1))(P, Y0)
    scale = 1e2 * CLOSE[method]
    np.testing.assert_allclose(by_p, by_complex_steps(lambda p: precise(p, Y0), P), atol=scale * 30)
    np.testing.assert_allclose(by_y0, by_complex_steps(lambda y: precise(P, y), Y0), atol=scale)

    def tight(p):
        return solve_ivp(predators, (0, 3), Y0, "DOP853", T, args=(p,), rtol=1e-12, atol=1e-12).y

    np.testing.assert_allclose(
        tg.jacobian(tight)(P), by_complex_steps(lambda p: precise(p, Y0), P), rtol=1e-8, atol=1e-9
    )


def sensitivities(fun, jac, by_p, span, y0, p, t):
    """dy/dp at times, by SciPy's Radau on the equations for y and dy/dp together, at tight tolerances."""
    n, m = len(y0), len(p)

    def rates(t, z):
        y, s = z[:n], z[n:].reshape(n, m)
        return np.concatenate([fun(t, y, p), (jac(t, y, p) @ s + by_p(t, y, p)).ravel()])

    start = np.concatenate([y0, np.zeros(n * m)])
    found = scipy.integrate.solve_ivp(rates, span, start, "Radau", [t], rtol=1e-9, atol=1e-14)
    return found.y[n:, 0].reshape(n, m)


@pytest.mark.long
@pytest.mark.parametrize("method", ["Radau", "BDF", "LSODA"])
def test_stiff_robertson(method):
    """The reaction of Robertson (1966), whose rates span nine orders of magnitude."""
    p, y0 = np.array([0.04, 3e7, 1e4]), np.array([1.0, 0.0, 0.0])

    def rates(t, y, p):
        a, b, c = p[0] * y[0], p[1] * y[1] * y[1], p[2] * y[1] * y[2]
        return [c - a, a - b - c, b]

    def jac(t, y, p):
        return np.array([
            [-p[0], p[2] * y[2], p[2] * y[1]],
            [p[0], -2 * p[1] * y[1] - p[2] * y[2], -p[2] * y[1]],
            [0, 2 * p[1] * y[1], 0],
        ])  # fmt: skip

    def by_p(t, y, p):
        a, b, c = y[0], y[1] ** 2, y[1] * y[2]
        return np.array([[-a, 0, c], [a, -b, -c], [0, b, 0]])

    expected = sensitivities(rates, jac, by_p, (0, 40.0), y0, p, 40.0)
    ours = tg.jacobian(
        lambda p: solve_ivp(rates, (0, 40.0), y0, method, args=(p,), rtol=1e-8, atol=1e-12).y[:, -1]
    )(p)
    np.testing.assert_allclose(ours * p, expected * p, rtol=1e-5, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("method", ["Radau", "BDF"])
def test_stiff_van_der_pol(method):
    """μ = 1000, behind the first jump of the relaxation oscillation, which comes at t = 807."""
    p, y0 = np.array([1000.0]), np.array([2.0, 0.0])

    def rates(t, y, p):
        return [y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]]

    def jac(t, y, p):
        return np.array([[0, 1], [-2 * p[0] * y[0] * y[1] - 1, p[0] * (1 - y[0] ** 2)]])

    def by_p(t, y, p):
        return np.array([[0], [(1 - y[0] ** 2) * y[1]]])

    # Behind the jump, six digits fewer of the derivative than of the solution.
    digits, end = 1e-8 if method == "Radau" else 1e-10, 1200.0
    expected = sensitivities(rates, jac, by_p, (0, end), y0, p, end)
    settings = {"rtol": digits, "atol": 1e-2 * digits}
    ours = tg.jacobian(
        lambda p: solve_ivp(rates, (0, end), y0, method, args=(p,), **settings).y[:, -1]
    )
    np.testing.assert_allclose(ours(p), expected, rtol=2e-4)


# fmt: off
ODD = {
    "branches on time": lambda t, y, w: [y[1], -(w**2) * y[0]] if t < 99 else None,
    "branches on the state": lambda t, y, w: np.stack([y[1], -(w**2) * y[0]]) if y[0] < 99 else y,
    "couples all entries": lambda t, y, w: np.array([[0.0, 1.0], [-4.0, 0.0]]) @ y + (w - W) * y.mean() * np.ones(2),
    "asks for the size": lambda t, y, w: y[::-1] * np.array([1.0, -4.0]) + (w - W) * y.size * np.ones(2),
    "a constant slope": lambda t, y, w: [y[1] * 0 + w, 1.0],
    "no state at all": lambda t, y, w: np.stack([w * t, w]),
    "of one column": lambda t, y, w: np.matmul(np.array([[0.0, 1.0], [-1.0, 0.0]]) * w, y),
}
# fmt: on


@pytest.mark.parametrize("name", ODD)
def test_functions_that_are_not_meant_for_many_states_at_once(name):
    """Against differences of the solution at the same steps, that is with short steps of a fixed number."""

    def f(w):
        return solve_ivp(
            ODD[name], (0, 1.0), [1.0, 0.5], "DOP853", args=(w,), rtol=1e-11, atol=1e-11
        ).y[:, -1]

    expected = (f(W + 1e-4) - f(W - 1e-4)) / 2e-4
    np.testing.assert_allclose(tg.jacobian(f)(W), expected, rtol=1e-6, atol=1e-7)


def test_what_is_read_while_many_states_agree_is_checked_by_derivatives():
    """With a factor of 0 the slope is right for many states at once, and its derivative by the factor is not."""

    def f(e):
        return solve_ivp(
            lambda t, y: -y + e * y.mean(),
            (0, 1),
            np.array([1.0, 2.0, 4.0]),
            rtol=1e-10,
            atol=1e-10,
        ).y[0, -1]

    np.testing.assert_allclose(tg.grad(f)(0.0), np.exp(-1) * 7 / 3, rtol=1e-7)


@pytest.mark.long
def test_tracked_in_every_place():
    e = {"rtol": 1e-10, "atol": 1e-10}
    w = tg.tensor(W, requires_grad=True)
    settings = {"w": w}
    ways = [
        lambda: solve_ivp(oscillator, (0, 2), [1.0, 0.0], args=(w,), **e),
        lambda: solve_ivp(lambda t, y: [y[1], -(w**2) * y[0]], (0, 2), [1.0, 0.0], **e),
        lambda: solve_ivp(lambda t, y: tg.stack([y[1], -(w * w) * y[0]]), (0, 2), [1.0, 0.0], **e),
        lambda: solve_ivp(
            lambda t, y, p: [y[1], -(p["w"] ** 2) * y[0]], (0, 2), [1.0, 0.0], args=(settings,), **e
        ),
        lambda: solve_ivp(
            lambda t, y, p: [y[1], -(p.detach() ** 2 + p * w - w * p.detach()) * y[0]],
            (0, 2),
            [1.0, 0.0],
            args=(w,),
            **e,
        ),
    ]
    expected = [-2 * np.sin(4.0)] * 4 + [None]
    for way, value in zip(ways, expected, strict=True):
        w.grad = None
        way().y[0, -1].backward()
        if value is not None:
            np.testing.assert_allclose(w.grad, value, rtol=1e-7)
    np.testing.assert_allclose(w.grad, -np.sin(4.0), rtol=1e-7)  # p w - w p' has the slope p of two
    with tg.no_grad():
        assert not isinstance(ways[0]().y, tg.Tensor)


def test_where_a_gradient_would_be_lost_there_is_an_error():
    with pytest.raises(tg.GradientLost):
        tg.grad(
            lambda w: solve_ivp(lambda t, y: [y[1], np.float64(-w * y[0])], (0, 1), [1.0, 0.0]).y[
                0, -1
            ]
        )(W)
    with pytest.raises(tg.GradientLost):
        tg.grad(
            lambda w: solve_ivp(
                lambda t, y, w: [y[1], np.float64(-w * y[0])], (0, 1), [1.0, 0.0], args=(w,)
            ).y[0, -1]
        )(W)

    class Own(scipy.integrate.OdeSolver):
        """Euler's method, of which nothing is known."""

        def __init__(self, fun, t0, y0, t_bound, vectorized, **options):
            super().__init__(fun, t0, y0, t_bound, vectorized)

        def _step_impl(self):
            h = min(0.1, self.t_bound - self.t)
            self.t, self.y = self.t + h, self.y + h * self.fun(self.t, self.y)
            return True, None

    assert solve_ivp(oscillator, (0, 1), [1.0, 0.0], Own, args=(W,)).status == 0
    with pytest.raises(tg.NotDifferentiable, match="Use one of SciPy's methods"):
        tg.grad(lambda w: solve_ivp(oscillator, (0, 1), [1.0, 0.0], Own, args=(w,)).y[0, -1])(W)
    draw = np.random.default_rng(1)
    with pytest.raises(tg.GraphError, match="draws random numbers"):
        tg.grad(
            lambda w: solve_ivp(
                lambda t, y: -w * y * draw.uniform(1, 2),
                (0, 1),
                [1.0],
                max_step=0.5,
                rtol=1,
                atol=1,
            ).y[0, -1]
        )(W)
    moving = np.array([1.0])

    def changed(w):
        end = solve_ivp(lambda t, y: -w * y * moving, (0, 1), [1.0]).y[0, -1]
        moving[:] = 2.0
        return end

    with pytest.raises(tg.GraphError, match="has changed since"):
        tg.grad(tg.grad(changed))(W)


def test_variables_mean_what_they_meant():
    """Second derivatives run the equations again, after the loop has gone on."""

    def ends(p):
        total = 0.0
        for k in (1.0, 2.0):
            total = (
                total
                + solve_ivp(lambda t, y: -k * p * y, (0, 1), [1.0], rtol=1e-10, atol=1e-10).y[0, -1]
            )
        return total

    np.testing.assert_allclose(tg.grad(tg.grad(ends))(1.0), np.exp(-1) + 4 * np.exp(-2), rtol=1e-7)


def test_failures_are_scipys():
    blown = tg.tensor(1.0, requires_grad=True)
    with np.errstate(all="ignore"):
        result = solve_ivp(lambda t, y: blown * y**2, (0, 2), [1.0])
    assert not result.success and result.status == -1
    assert isinstance(result.y, tg.Tensor)


def test_single_precision_and_whole_numbers_stay_what_they_are():
    y0 = np.array([1.0, 0.0], np.float32)
    by_y0 = tg.grad(lambda y0: position("RK45", y0=y0)[-1])(y0)
    assert by_y0.dtype == np.float32
    np.testing.assert_allclose(by_y0, [np.cos(4.0), np.sin(4.0) / 2], rtol=1e-6)
    assert position("RK45", y0=[1, 0]).dtype == np.float64


@pytest.mark.parametrize("name", ["RK23", "RK45", "DOP853", "Radau", "Tsit5"])
def test_tableaux(name):
    """Interpolants end where steps do, and are exact for polynomials of the degree that the method promises."""
    method = tsit5() if name == "Tsit5" else getattr(scipy.integrate, name)
    table = tableau(method)
    x = np.array([0.0, 0.3, 0.8, 1.0])
    weights = table.weights(x)
    np.testing.assert_allclose(weights[[0, -1]], [0 * table.b, table.b], atol=3e-14)
    for k in range(3):
        np.testing.assert_allclose(weights @ table.c**k, x ** (k + 1) / (k + 1), atol=3e-14)
    np.testing.assert_allclose(table.a.sum(axis=1), table.c, atol=3e-15)
