"""Mass matrices of solve_ivp: what the same equations say without one, to the tolerances; and starts and matrices that are refused."""

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg

solve_ivp = tg.integrate.solve_ivp
TIGHT = {"rtol": 1e-8, "atol": 1e-10}
RATES = np.array([0.04, 3e7, 1e4])
TIMES = np.array([0.4, 40.0, 4000.0])
M = np.array([[2.0, 0.3], [-0.4, 1.0]])
Y0 = np.array([1.0, -0.5])
METHODS = ["Radau", "BDF"]


def robertson(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[1], p[2] * y[1] * y[2]
    return [c - a, a - b - c, y[0] + y[1] + y[2] - 1]


VALUES = np.array([
    [9.851721138610e-01, 7.158270687194e-01, 1.832022577767e-01],
    [3.386395378975e-05, 9.185534764563e-06, 8.942371252776e-07],
    [1.479402218522e-02, 2.841637457458e-01, 8.167968479862e-01],
])  # fmt: skip
SLOPES = np.array([
    [[-1.423810263931e-02, -4.749529906698e-04, 9.542381427899e-04],
     [-1.699023508682e-01, -6.865065266717e-02, 1.373080797345e-01],
     [-1.900028472419e-01, -9.404440172947e-02, 1.880886158558e-01]],
    [[1.561017621527e-05, -1.587012327965e-05, -2.130961030192e-06],
     [1.836478499703e-06, -3.414178528052e-06, -2.357192113847e-06],
     [-2.397460685551e-07, -5.627539832269e-07, 2.312687343934e-07]],
    [[1.422249246309e-02, 4.908231139494e-04, -9.521071817598e-04],
     [1.699005143897e-01, 6.865406684570e-02, -1.373057225424e-01],
     [1.900030869880e-01, 9.404496448346e-02, -1.880888471245e-01]],
])  # fmt: skip
"""States (by times), and derivatives by logarithms of the rates, of the form with three derivatives: SciPy's Radau at 1e-11, with the
nine equations of the derivatives written out by hand."""


@pytest.mark.long(but=2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_robertsons_reaction_with_an_equation_without_derivatives(method, mode):
    def states(p):
        return solve_ivp(
            robertson, (0, 4000), [1.0, 0.0, 0.0], method, TIMES, args=(p,), rtol=1e-7, atol=1e-11, mass_matrix=np.diag([1.0, 1.0, 0.0]),
        ).y  # fmt: skip

    np.testing.assert_allclose(states(RATES), VALUES, rtol=2e-6)
    found = tg.jacobian(states, mode=mode)(RATES)
    np.testing.assert_allclose(found * RATES, SLOPES, rtol=2e-5, atol=1e-10)


def nonlinear(t, y, k):
    return np.stack([-k * y[0] ** 3 + y[1] * np.sin(t), y[0] - y[1] * k])


def by_mass(m, y0, k, method="Radau", t=1.5):
    return solve_ivp(nonlinear, (0, t), y0, method, [t], args=(k,), mass_matrix=m, **TIGHT).y[:, 0]


def by_inverse(m, y0, k, method="DOP853", t=1.5):
    inverse = np.linalg.inv(m)
    return solve_ivp(
        lambda t, y: inverse @ nonlinear(t, y, k), (0, t), y0, method, [t], rtol=1e-11, atol=1e-12
    ).y[:, 0]


@pytest.mark.parametrize("method", METHODS)
def test_a_regular_matrix_means_what_its_inverse_does(method):
    expected = tg.jacobian(by_inverse, argnums=(0, 1, 2))(M, Y0, 0.7)
    for mode in ("forward", "reverse"):
        found = tg.jacobian(lambda *a: by_mass(*a, method), argnums=(0, 1, 2), mode=mode)(M, Y0, 0.7)  # fmt: skip
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=3e-6)


@pytest.mark.long
def test_second_derivatives_by_the_matrix_and_a_rate():
    def first(solver, k):
        return tg.grad(lambda m: np.sum(solver(m, Y0, k, t=0.3)))(M)

    found = tg.jacobian(lambda k: first(by_mass, k))(0.7)
    np.testing.assert_allclose(found, tg.jacobian(lambda k: first(by_inverse, k))(0.7), atol=1e-6)


@pytest.mark.long
def test_a_sparse_matrix_is_one_of_its_entries():
    A = tg.sparse.csr_array(M)
    whole = solve_ivp(nonlinear, (0, 1.5), Y0, "Radau", [1.5], args=(0.7,), mass_matrix=M, **TIGHT)
    for given in (A, scipy.sparse.csr_array(M), scipy.sparse.dia_matrix(M)):
        found = by_mass(given, Y0, 0.7)
        np.testing.assert_allclose(found, whole.y[:, 0], rtol=1e-9)
    by_entries = tg.grad(lambda a: np.sum(by_mass(a, Y0, 0.7)))(A)
    by_array = tg.grad(lambda m: np.sum(by_mass(m, Y0, 0.7)))(M)
    np.testing.assert_allclose(by_entries.toarray(), by_array, rtol=1e-9, atol=1e-9)


LEFT = np.array([[1.0, 0.5], [2.0, 1.5]])


def mixed(t, y, k):
    """y0' = −k y0, y1 = y0² + sin t, in combinations of both rows."""
    return LEFT @ np.stack([-k * y[0], y[1] - y[0] ** 2 - np.sin(t)])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_singular_matrix_of_any_form(method, sparse):
    """Its left null space is no unit vector, and its right one neither; the solution is known."""
    mass = LEFT @ np.diag([1.0, 0.0])
    fun = mixed
    if sparse:
        mass = scipy.sparse.csr_array(np.diag([1.0, 0.0]))
        fun = lambda t, y, k: np.linalg.solve(LEFT, mixed(t, y, k))  # noqa: E731

    def last(k, start):
        y0 = np.stack([start, start**2])
        return solve_ivp(fun, (0, 1.2), y0, method, [0.5, 1.2], args=(k,), mass_matrix=mass, **TIGHT).y[1]  # fmt: skip

    def exact(k, start):
        t = np.array([0.5, 1.2])
        return start**2 * np.exp(-2 * k * t) + np.sin(t)

    np.testing.assert_allclose(last(0.8, 1.3), exact(0.8, 1.3), atol=2e-6)
    for found, expected in zip(
        tg.jacobian(last, argnums=(0, 1))(0.8, 1.3), tg.jacobian(exact, argnums=(0, 1))(0.8, 1.3), strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, atol=5e-6)


@pytest.mark.long
def test_times_and_events_of_equations_without_derivatives():
    mass = LEFT @ np.diag([1.0, 0.0])

    def height(t, y, k):
        return y[1] - 1.2

    height.terminal = True

    def found(k, t):
        first = solve_ivp(mixed, (0, t), [1.0, 1.0], "Radau", [t], args=(k,), mass_matrix=mass, **TIGHT)  # fmt: skip
        hit = solve_ivp(mixed, (0, 3), [1.0, 1.0], "Radau", args=(k,), events=height, mass_matrix=mass, **TIGHT)  # fmt: skip
        return np.stack([first.y[1, 0], hit.t_events[0][0]])

    by_rate, by_time = tg.jacobian(found, argnums=(0, 1))(0.2, 0.7)
    t = found(0.2, 0.7)[1]
    decay, there = np.exp(-0.4 * 0.7), np.exp(-0.4 * t)
    np.testing.assert_allclose(by_time, [-0.4 * decay + np.cos(0.7), 0.0], atol=1e-6)
    hit = 2 * t * there / (-0.4 * there + np.cos(t))
    np.testing.assert_allclose(by_rate, [-1.4 * decay, hit], atol=1e-5)


def swing(t, y):
    """A pendulum in Cartesian coordinates, whose rod decides the positions, not the force in it: index 3."""
    x, z, u, v, force = y
    return [u, v, -force * x, -force * z - 9.81, x * x + z * z - 1]


@pytest.mark.parametrize("given, words", [
    (lambda: solve_ivp(swing, (0, 1), [1.0, 0, 0, 0, 0], "Radau", mass_matrix=np.diag([1.0, 1, 1, 1, 0])), "index of the equations is above 1"),
    (lambda: solve_ivp(lambda t, y: robertson(t, y, RATES), (0, 1), [1.0, 0.1, 0.0], "BDF", mass_matrix=np.diag([1.0, 1, 0])), "not consistent"),
    (lambda: solve_ivp(lambda t, y: y, (0, 1), Y0, "RK45", mass_matrix=M), "Radau and BDF alone"),
    (lambda: solve_ivp(lambda t, y: y, (0, 1), Y0, "LSODA", mass_matrix=M), "Radau and BDF alone"),
    (lambda: solve_ivp(lambda t, y: y, (0, 1), Y0, "BDF", mass_matrix=np.eye(3)), r"of shape \(3, 3\).*for 2 unknowns"),
    (lambda: solve_ivp(lambda t, y: y, (0, 1), Y0, "BDF", mass_matrix=np.eye(2) * np.nan), "not finite"),
    (lambda: solve_ivp(lambda t, y: y, (0, 1), Y0, "BDF", mass_matrix=scipy.sparse.csr_array(np.ones((2, 2)))), "singular for more than rows"),
])  # fmt: skip
def test_what_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        given()


CONSTANTS = {
    "dense": M,
    "sparse": scipy.sparse.csr_array(M),
    "singular": np.diag([1.0, 0.0]),
    "sparse and singular": scipy.sparse.csc_array(np.diag([1.0, 0.0])),
    "singular, full": np.outer([1.0, 0.5], [1.0, 0.3]),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("method", METHODS)
def test_compiled_steps_are_a_loop_with_the_values_and_slopes_of_eager_ones(method, kind):
    matrix = CONSTANTS[kind]
    dense = matrix.toarray() if scipy.sparse.issparse(matrix) else matrix
    left = np.linalg.svd(dense)[0][:, 1]  # of a singular matrix the equation without derivatives

    def states(k, **how):
        # The start holds to that equation for every k.
        shift = 0.0 if np.linalg.det(dense) else left
        start = Y0
        fun = lambda t, y: nonlinear(t, y, k) - shift * (left @ nonlinear(0.0, start, k))  # noqa: E731
        how = {"t_eval": [0.0, 0.3, 1.0], **TIGHT} | how
        return solve_ivp(fun, (0.0, 1.0), start, method, mass_matrix=matrix, **how)

    def loss(k):
        return np.sum(np.cos(states(k).y))

    fast = tg.compile(lambda k: (states(k).y, tg.grad(loss)(k), tg.jvp(loss, (k,), (1.0,))[1]))
    for k in (0.8, 1.3):
        y, slope, pushed = fast(k)
        np.testing.assert_allclose(y, states(k).y, rtol=1e-7, atol=1e-9)
        expected = tg.grad(loss)(k)
        assert slope == pytest.approx(expected, rel=1e-6)
        assert pushed == pytest.approx(expected, rel=1e-6)
    assert fast.latest.native is not None
    sol = tg.compile(lambda k: states(k, t_eval=None, dense_output=True).sol(0.6))(0.8)
    np.testing.assert_allclose(sol, states(0.8, t_eval=[0.6]).y[:, 0], rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_compiled_steps_have_derivatives_by_times_and_refuse_what_eager_ones_do(method):
    def at(t0, t):
        start = np.stack([1.0, np.sin(t0)])
        fun = lambda t, y: np.stack([-y[0] * y[1], y[1] - np.sin(t)])  # noqa: E731
        return solve_ivp(fun, (t0, 2.0), start, method, np.stack([t, t + 0.5]), mass_matrix=np.diag([1.0, 0.0]), **TIGHT).y[0, 0]  # fmt: skip

    for k in (0, 1):  # exp(cos t - cos t0)
        value = np.exp(np.cos(1.2) - np.cos(0.4))
        found = tg.compile(tg.grad(at, k))(0.4, 1.2)
        assert found == pytest.approx((np.sin(0.4), -np.sin(1.2))[k] * value, rel=1e-5)

    def started(y0):
        return solve_ivp(lambda t, y: robertson(t, y, RATES), (0, 1.0), y0, method, [1.0], mass_matrix=np.diag([1.0, 1, 0])).y  # fmt: skip

    fast = tg.compile(started)
    np.testing.assert_allclose(
        fast(np.array([1.0, 0, 0])), started(np.array([1.0, 0, 0])), rtol=1e-5
    )
    with pytest.raises(ValueError, match="not consistent"):
        fast(np.array([1.0, 0.1, 0.0]))
    with pytest.raises(ValueError, match="index of the equations is above 1"):
        tg.compile(lambda y: solve_ivp(swing, (0, 1), y, method, [1.0], mass_matrix=np.diag([1.0, 1, 1, 1, 0])).y)(np.array([1.0, 0, 0, 0, 0]))  # fmt: skip

    def by_matrix(m):  # tracked: the program calls the solver
        return np.sum(solve_ivp(lambda t, y: nonlinear(t, y, 0.7), (0, 1), Y0, method, [1.0], mass_matrix=m, **TIGHT).y)  # fmt: skip

    np.testing.assert_allclose(tg.compile(tg.grad(by_matrix))(M), tg.grad(by_matrix)(M), rtol=1e-8)


def test_a_matrix_that_changes_is_refused():
    with pytest.raises(TypeError, match="the matrix is constant here"):
        solve_ivp(lambda t, y: y, (0, 1), Y0, "Radau", mass_matrix=lambda t, y: M)
    with pytest.raises(TypeError, match="for a complex state"):
        solve_ivp(lambda t, y: y, (0, 1), Y0 * 1j, "BDF", mass_matrix=M)
