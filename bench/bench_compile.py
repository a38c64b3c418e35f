"""Compiled programs, value and gradient: tapegrad's against JAX, PyTorch (eager and compiled), CasADi, HIPS autograd and Numba by hand.

One thread; `python -m bench.compiled` prints the same for two, with the memory that each takes. Every contestant's answer is asserted
against the eager one before it is timed; libraries that are absent are skipped. The first group is what a call costs, the second what
compiling costs: tracing and machine code, with an empty cache, as `jax.jit` before its first answer.
"""

import math

import numpy as np
import pytest
import scipy.linalg  # these are loaded before the clock runs, as JAX's modules and what they declare are
import scipy.special

import tapegrad as tg
import tapegrad.ops.special
from bench import peers, workloads

# ---------------------------------------------------------------------------------------------------- programs
#
# Each is (function of `xp`, arguments); the gradient is by the first argument (a list of arrays for the network).


def rosenbrock(xp, x):
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def least_squares(xp, parameters, t, y):
    """Ten Gaussian peaks of unit width, 20 parameters, on 50 points."""
    heights, centres = parameters[:10], parameters[10:]
    model = xp.sum(heights[:, None] * xp.exp(-0.5 * (t - centres[:, None]) ** 2), axis=0)
    return xp.sum((model - y) ** 2)


def network(xp, parameters, inputs, targets):
    w1, b1, w2, b2, w3, b3 = parameters
    h = xp.tanh(inputs @ w1 + b1)
    h = xp.tanh(h @ w2 + b2)
    return xp.mean((h @ w3 + b3 - targets) ** 2)


def logistic(xp, weights, features, labels):
    z = features @ weights
    return xp.mean(xp.logaddexp(0.0 * z, z) - labels * z)


def lorenz(xp, start):
    """1000 steps of RK4 on three scalars; the squared distance from the origin at the end."""
    x, y, z = start[0], start[1], start[2]
    for _ in range(STEPS):
        x, y, z = runge_kutta(x, y, z)
    return x * x + y * y + z * z


def runge_kutta(x, y, z):
    def rates(x, y, z):
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - (8.0 / 3.0) * z

    h = 0.002
    a, b, c = rates(x, y, z)
    d, e, f = rates(x + h / 2 * a, y + h / 2 * b, z + h / 2 * c)
    g, i, j = rates(x + h / 2 * d, y + h / 2 * e, z + h / 2 * f)
    k, m, n = rates(x + h * g, y + h * i, z + h * j)
    x = x + h / 6 * (a + 2 * d + 2 * g + k)
    y = y + h / 6 * (b + 2 * e + 2 * i + m)
    z = z + h / 6 * (c + 2 * f + 2 * j + n)
    return x, y, z


def lorenz_array(xp, start):
    """The same with the state as one array, as code for JAX and SciPy mostly has it."""
    state = start
    for _ in range(STEPS):
        state = runge_kutta_of_arrays(xp, state)
    return xp.sum(state * state)


def runge_kutta_of_arrays(xp, state):
    def rates(s):
        x, y, z = s[0], s[1], s[2]
        return xp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - (8.0 / 3.0) * z])

    h = 0.002
    a = rates(state)
    b = rates(state + h / 2 * a)
    c = rates(state + h / 2 * b)
    return state + h / 6 * (a + 2 * b + 2 * c + rates(state + h * c))


STEPS = 1000


def black_scholes(xp, parameters, strikes):
    """Sum of the prices of a million calls; the gradient holds the greeks of the whole book (spot, volatility, rate, time)."""
    spot, volatility, rate, time = parameters[0], parameters[1], parameters[2], parameters[3]
    root = volatility * xp.sqrt(time)
    d1 = (xp.log(spot / strikes) + (rate + volatility * volatility / 2) * time) / root
    d2 = d1 - root
    return xp.sum(spot * normal(xp, d1) - strikes * xp.exp(-rate * time) * normal(xp, d2))


def gmm(xp, parameters, points, strictly_lower):
    """ADBench's mixture of 25 Gaussians in 10 dimensions at 10,000 points (`workloads.gmm`)."""
    return workloads.gmm(xp, *parameters, points, strictly_lower)


def kalman(xp, transition, observed):
    """Log-likelihood of 200 observations of two numbers out of a state of four, by Kalman's filter."""
    state = (xp.zeros(4), xp.eye(4), 0.0)
    for y in observed:
        state = filtered(xp, transition, state, y)
    return state[2]


def filtered(xp, transition, state, y):
    mean, covariance, total = state
    mean = transition @ mean
    covariance = transition @ covariance @ transition.T + 0.1 * xp.eye(4)
    away = y - mean[:2]
    s = covariance[:2, :2] + 0.5 * xp.eye(2)
    gain = xp.linalg.solve(s, covariance[:2])
    distance = away @ xp.linalg.solve(s, away)
    total = total - 0.5 * (distance + xp.log(s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]))
    return mean + away @ gain, covariance - gain.T @ covariance[:2], total


def spectral(xp, start):
    """Burgers' equation in Fourier space: 25 steps of RK4 with an integrating factor, 64 points; the energy at the end."""
    u = xp.fft.rfft(start)
    for _ in range(25):
        u = spectral_step(xp, u)
    return xp.sum(xp.fft.irfft(u, POINTS) ** 2)


POINTS, TIME = 64, 0.02
_WAVES = np.fft.rfftfreq(POINTS, 1 / POINTS)
_HALF = np.exp(-0.05 * _WAVES**2 * TIME / 2)


def spectral_step(xp, u):
    waves, e = xp.asarray(_WAVES), xp.asarray(_HALF)

    def rate(v):
        w = xp.fft.irfft(v, POINTS)
        return -0.5j * waves * xp.fft.rfft(w * w)

    a = rate(u)
    b = rate(e * (u + TIME / 2 * a))
    c = rate(e * u + TIME / 2 * b)
    d = rate(e * e * u + TIME * e * c)
    return e * e * u + TIME / 6 * (e * e * a + 2 * e * (b + c) + d)


def markov(xp, parameters, seen):
    """Log-likelihood of 200 observations, each of 4 kinds, by a hidden Markov model of 5 states."""
    moves, emits = parameters
    moves = moves - workloads.logsumexp(xp, moves.T)[:, None]
    emits = emits - workloads.logsumexp(xp, emits.T)[:, None]
    a = emits[:, seen[0]]
    for t in range(1, len(seen)):
        a = workloads.logsumexp(xp, a[:, None] + moves) + emits[:, seen[t]]
    return workloads.logsumexp(xp, a)


def delay(xp, parameters):
    """200 steps of Mackey and Glass's delay equation, in an array that the loop fills (a list where there are no such arrays)."""
    rate, decay, start = parameters[0], parameters[1], parameters[2]
    x = tg.zeros(LAG + 200) if xp is np else [start] * (LAG + 200)
    for t in range(LAG):
        x[t] = start
    for t in range(LAG, LAG + 200):
        x[t] = x[t - 1] + 0.1 * (rate * x[t - LAG] / (1 + x[t - LAG] ** 10) - decay * x[t - 1])
    x = x if xp is np else xp.stack(x)
    return xp.sum((x[LAG:] - 1) ** 2)


LAG = 20


def normal(xp, x):
    """The normal distribution; erf is nobody's in NumPy, so each library brings its own."""
    return 0.5 * (1.0 + ERF[xp.__name__](x * math.sqrt(0.5)))


def jax_erf(x):
    import jax

    return jax.scipy.special.erf(x)


def torch_erf(x):
    import torch

    return torch.erf(x)


def autograd_erf(x):
    import autograd.scipy.special

    return autograd.scipy.special.erf(x)


def scipy_erf(x):
    return scipy.special.erf(x)


ERF = {"numpy": scipy_erf, "jax.numpy": jax_erf, "torch": torch_erf, "autograd.numpy": autograd_erf}


def data(name):
    rng = np.random.default_rng(0)
    n = rng.normal
    if name == "rosenbrock":
        return (n(size=10),)
    if name == "least_squares":
        t = np.linspace(0, 10, 50)
        return np.concatenate([n(size=10), np.linspace(0, 10, 10)]), t, np.sin(t)
    if name == "network":
        shapes = [(16, 32), (32,), (32, 32), (32,), (32, 1), (1,)]
        return [n(size=s) / math.sqrt(s[0]) for s in shapes], n(size=(32, 16)), n(size=(32, 1))
    if name == "logistic":
        features = n(size=(100_000, 20))
        return n(size=20) / 10, features, (rng.random(100_000) > 0.5).astype(float)
    if name in ("lorenz", "lorenz_array"):
        return (np.array([1.0, 1.5, 20.0]),)
    if name == "kalman":
        return 0.9 * np.eye(4) + 0.05 * n(size=(4, 4)), n(size=(200, 2))
    if name == "spectral":
        return (np.sin(np.linspace(0, 2 * np.pi, POINTS, endpoint=False)) + 0.1 * n(size=POINTS),)
    if name == "markov":
        return [n(size=(5, 5)), n(size=(5, 4))], rng.integers(0, 4, 200)
    if name == "delay":
        return (np.array([0.2, 0.1, 1.2]),)
    if name == "gmm":
        parameters, constants = workloads.gmm_data(10_000, dimension=10, components=25)
        return list(parameters), *constants
    return np.array([100.0, 0.25, 0.03, 0.75]), rng.uniform(50, 150, 1_000_000)


PROGRAMS = {
    f.__name__: f
    for f in (
        rosenbrock,
        least_squares,
        network,
        logistic,
        lorenz,
        lorenz_array,
        kalman,
        spectral,
        markov,
        delay,
        black_scholes,
        gmm,
    )
}

# ---------------------------------------------------------------------------------------------------- contestants


def compiled(name):
    program = PROGRAMS[name]
    args = data(name)
    f = tg.compile(tg.value_and_grad(lambda *a: program(np, *a)))
    return lambda: f(*args)


def compiled_scan(name):
    """As `compiled`, with the loop said: one step is traced, and not all of them."""
    if name == "rosenbrock":  # with which the clock's libraries are loaded
        return compiled(name)
    if name not in SCANNED:
        pytest.skip("no loop of many steps")
    program = SCANNED[name]
    args = data(name)
    f = tg.compile(tg.value_and_grad(lambda *a: program(np, tg.scan, *a)))
    return lambda: f(*args)


def compiled_value(name):
    """The value alone: what the gradient costs is the ratio to this one."""
    program = PROGRAMS[name]
    args = data(name)
    f = tg.compile(lambda *a: program(np, *a))
    return lambda: (f(*args), None)


def eager(name):
    program = PROGRAMS[name]
    args = data(name)
    f = tg.value_and_grad(lambda *a: program(np, *a))
    return lambda: f(*args)


def jax(name):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    program = PROGRAMS[name]
    args = jax.tree.map(jnp.asarray, data(name))
    said = SCANNED.get(name)
    f = jax.jit(
        jax.value_and_grad(
            lambda *a: said(jnp, jax.lax.scan, *a) if said is not None else program(jnp, *a)
        )
    )
    return lambda: jax.block_until_ready(f(*args))


# The programs of many steps as a loop that is said: what JAX needs, as XLA compiles unrolled ones for minutes, and what tg.scan takes.


def lorenz_scanned(xp, scan, start):
    def step(state, _):
        return runge_kutta(*state), None

    (x, y, z), _ = scan(step, (start[0], start[1], start[2]), None, length=STEPS)
    return x * x + y * y + z * z


def lorenz_array_scanned(xp, scan, start):
    def step(state, _):
        return runge_kutta_of_arrays(xp, state), None

    last, _ = scan(step, start, None, length=STEPS)
    return xp.sum(last * last)


def kalman_scanned(xp, scan, transition, observed):
    def step(state, y):
        return filtered(xp, transition, state, y), None

    return scan(step, (xp.zeros(4), xp.eye(4), 0.0), observed)[0][2]


def spectral_scanned(xp, scan, start):
    def step(u, _):
        return spectral_step(xp, u), None

    last, _ = scan(step, xp.fft.rfft(start), None, length=25)
    return xp.sum(xp.fft.irfft(last, POINTS) ** 2)


def markov_scanned(xp, scan, parameters, seen):
    moves, emits = parameters
    moves = moves - workloads.logsumexp(xp, moves.T)[:, None]
    emits = emits - workloads.logsumexp(xp, emits.T)[:, None]

    def step(a, k):
        return workloads.logsumexp(xp, a[:, None] + moves) + emits[:, k], None

    last, _ = scan(step, emits[:, seen[0]], seen[1:])
    return workloads.logsumexp(xp, last)


def delay_scanned(xp, scan, parameters):
    rate, decay, start = parameters

    def step(past, _):
        x = past[-1]
        new = x + 0.1 * (rate * past[0] / (1 + past[0] ** 10) - decay * x)
        return xp.concatenate([past[1:], new[None]]), new

    _, x = scan(step, start * xp.ones(LAG), None, length=200)
    return xp.sum((x - 1) ** 2)


SCANNED = {
    "lorenz": lorenz_scanned,
    "lorenz_array": lorenz_array_scanned,
    "kalman": kalman_scanned,
    "spectral": spectral_scanned,
    "markov": markov_scanned,
    "delay": delay_scanned,
}


def autograd(name):
    import autograd
    import autograd.numpy as anp

    if name.startswith("lorenz"):
        pytest.skip("records 50,000 operations a run: seconds")
    program = PROGRAMS[name]
    args = data(name)
    f = autograd.value_and_grad(lambda *a: program(anp, *a))
    return lambda: f(*args)


def casadi(name):
    """Natural for programs of scalars: SX expressions, Lorenz as a mapped accumulation of one step."""
    import casadi as ca

    if name not in ("rosenbrock", "least_squares", "lorenz"):
        pytest.skip(
            "CasADi has no arrays of more than two axes, and expands large ones into scalars"
        )
    first, *rest = data(name)
    x = ca.MX.sym("x", first.size)
    if name == "lorenz":
        s = ca.SX.sym("s", 3)
        step = ca.Function("step", [s], [ca.vertcat(*runge_kutta(s[0], s[1], s[2]))])
        y = ca.sumsqr(step.mapaccum(STEPS)(x)[:, -1])
    else:
        s = ca.SX.sym("s", first.size)
        numbers = np.array([s[i] for i in range(first.size)], dtype=object)
        with np.errstate(all="ignore"):
            y = ca.Function("value", [s], [PROGRAMS[name](np, numbers, *rest)])(x)
    f = ca.Function("both", [x], [y, ca.gradient(y, x)])

    def run():
        value, gradient = f(first)
        return float(value), np.asarray(gradient)[:, 0]

    return run


def torch(name, compiled=False):
    import torch

    if name.startswith("lorenz"):
        pytest.skip("records 50,000 operations a run: seconds")
    torch.set_default_dtype(torch.float64)
    program = PROGRAMS[name]
    first, *rest = data(name)
    many = isinstance(first, list)
    leaves = [torch.tensor(x, requires_grad=True) for x in (first if many else [first])]
    rest = [torch.tensor(x) for x in rest]

    f = torch.compile(lambda *a: program(Torch, *a)) if compiled else lambda *a: program(Torch, *a)

    def run():
        y = f(leaves if many else leaves[0], *rest)
        gradients = torch.autograd.grad(y, leaves)
        return y.item(), gradients if many else gradients[0]

    return run


def torch_compile(name):
    return torch(name, compiled=True)


class Torch:
    """PyTorch under NumPy's names."""

    def __getattr__(self, name):
        import torch

        return getattr(torch, {"__name__": "__name__"}.get(name, name))

    __name__ = "torch"

    @staticmethod
    def sum(x, axis=None):
        return x.sum() if axis is None else x.sum(axis)


Torch = Torch()


def by_hand(name):
    numba = pytest.importorskip("numba")
    if name not in BY_HAND:
        pytest.skip("no gradient by hand")
    f = numba.njit(BY_HAND[name], error_model="numpy", fastmath={"contract", "reassoc"})
    first, *rest = data(name)
    args = (tuple(first) if isinstance(first, list) else first, *rest)
    return lambda: f(*args)


def rosenbrock_by_hand(x):
    value = 0.0
    g = np.zeros(x.size)
    for i in range(x.size - 1):
        a = x[i + 1] - x[i] * x[i]
        b = 1.0 - x[i]
        value += 100.0 * a * a + b * b
        g[i] += -400.0 * a * x[i] - 2.0 * b
        g[i + 1] += 200.0 * a
    return value, g


def least_squares_by_hand(p, t, y):
    value = 0.0
    g = np.zeros(20)
    e = np.empty(10)
    for k in range(t.size):
        model = 0.0
        for j in range(10):
            d = t[k] - p[10 + j]
            e[j] = math.exp(-0.5 * d * d)
            model += p[j] * e[j]
        r = model - y[k]
        value += r * r
        for j in range(10):
            g[j] += 2.0 * r * e[j]
            g[10 + j] += 2.0 * r * p[j] * e[j] * (t[k] - p[10 + j])
    return value, g


def logistic_by_hand(w, features, labels):
    n, m = features.shape
    value = 0.0
    g = np.zeros(m)
    for i in range(n):
        z = 0.0
        for j in range(m):
            z += features[i, j] * w[j]
        e = math.exp(-abs(z))
        value += max(z, 0.0) + math.log1p(e) - labels[i] * z
        s = (1.0 / (1.0 + e) if z > 0 else e / (1.0 + e)) - labels[i]
        for j in range(m):
            g[j] += s * features[i, j]
    return value / n, g / n


def lorenz_by_hand(start):
    """The adjoint of RK4: forward with every state kept, then back with the transposed Jacobians of the four stages."""
    n = 1000
    h = 0.002
    states = np.empty((n + 1, 3))
    states[0] = start
    k = np.empty((4, 3))
    s = np.empty((4, 3))
    for i in range(n + 1):
        if i == n:
            break
        for stage in range(4):
            c = 0.0 if stage == 0 else h if stage == 3 else h / 2
            for j in range(3):
                s[stage, j] = states[i, j] + (c * k[stage - 1, j] if stage else 0.0)
            x, y, z = s[stage]
            k[stage, 0] = 10.0 * (y - x)
            k[stage, 1] = x * (28.0 - z) - y
            k[stage, 2] = x * y - (8.0 / 3.0) * z
        for j in range(3):
            states[i + 1, j] = states[i, j] + h / 6 * (
                k[0, j] + 2 * k[1, j] + 2 * k[2, j] + k[3, j]
            )
    last = states[n]
    g = 2.0 * last
    bar = np.empty((4, 3))
    for i in range(n - 1, -1, -1):
        for stage in range(4):
            c = 0.0 if stage == 0 else h if stage == 3 else h / 2
            for j in range(3):
                s[stage, j] = states[i, j] + (c * k[stage - 1, j] if stage else 0.0)
            x, y, z = s[stage]
            k[stage, 0] = 10.0 * (y - x)
            k[stage, 1] = x * (28.0 - z) - y
            k[stage, 2] = x * y - (8.0 / 3.0) * z
        total = g.copy()
        for stage in range(3, -1, -1):
            weight = h / 6 if stage in (0, 3) else h / 3
            c = 0.0 if stage == 3 else h if stage == 2 else h / 2
            for j in range(3):
                bar[stage, j] = weight * g[j]
            if stage < 3:
                x, y, z = s[stage + 1]
                p, q, r = bar[stage + 1]
                bar[stage, 0] += c * (-10.0 * p + (28.0 - z) * q + y * r)
                bar[stage, 1] += c * (10.0 * p - q + x * r)
                bar[stage, 2] += c * (-x * q - (8.0 / 3.0) * r)
            x, y, z = s[stage]
            p, q, r = bar[stage]
            total[0] += -10.0 * p + (28.0 - z) * q + y * r
            total[1] += 10.0 * p - q + x * r
            total[2] += -x * q - (8.0 / 3.0) * r
        g = total
    return (last * last).sum(), g


def black_scholes_by_hand(p, strikes):
    spot, volatility, rate, time = p
    root = volatility * math.sqrt(time)
    discount = math.exp(-rate * time)
    drift = (rate + volatility * volatility / 2) * time
    density = 1.0 / math.sqrt(2 * math.pi)
    value = delta = vega = owed = 0.0
    for k in range(strikes.size):
        d1 = (math.log(spot / strikes[k]) + drift) / root
        n1 = 0.5 * (1.0 + math.erf(d1 * math.sqrt(0.5)))
        n2 = 0.5 * (1.0 + math.erf((d1 - root) * math.sqrt(0.5)))
        value += spot * n1 - strikes[k] * discount * n2
        delta += n1
        vega += density * math.exp(-0.5 * d1 * d1)
        owed += strikes[k] * n2
    vega *= spot
    owed *= discount
    g = np.array(
        [
            delta,
            vega * math.sqrt(time),
            time * owed,
            rate * owed + vega * volatility / (2 * math.sqrt(time)),
        ]
    )
    return value, g


def gmm_by_hand(parameters, points, strictly_lower):
    """One pass over the points: shares of the components, then what each adds to the gradient."""
    alphas, means, logs, lower = parameters
    n, d = points.shape
    m = alphas.size
    factor = lower * strictly_lower
    diagonal = np.exp(logs)
    g_alphas, g_means, g_logs, g_lower = (
        np.zeros(m),
        np.zeros((m, d)),
        np.zeros((m, d)),
        np.zeros((m, d, d)),
    )
    white, centred, share = np.empty((m, d)), np.empty((m, d)), np.empty(m)
    value = 0.0
    for i in range(n):
        top = -np.inf
        for k in range(m):
            total = alphas[k]
            for j in range(d):
                centred[k, j] = points[i, j] - means[k, j]
            for j in range(d):
                w = diagonal[k, j] * centred[k, j]
                for l in range(j):
                    w += factor[k, j, l] * centred[k, l]
                white[k, j] = w
                total += logs[k, j] - 0.5 * w * w
            share[k] = total
            top = max(top, total)
        total = 0.0
        for k in range(m):
            share[k] = math.exp(share[k] - top)
            total += share[k]
        value += top + math.log(total)
        for k in range(m):
            s = share[k] / total
            g_alphas[k] += s
            for j in range(d):
                g_logs[k, j] += s
                w = -s * white[k, j]
                g_logs[k, j] += w * centred[k, j] * diagonal[k, j]
                g_means[k, j] -= w * diagonal[k, j]
                for l in range(j):
                    g_lower[k, j, l] += w * centred[k, l]
                    g_means[k, l] -= w * factor[k, j, l]
    raised = np.exp(alphas - alphas.max())
    value -= n * (alphas.max() + math.log(raised.sum()))
    value += 0.5 * ((diagonal * diagonal).sum() + (factor * factor).sum())
    g_alphas -= n * raised / raised.sum()
    return value, (g_alphas, g_means, g_logs + diagonal * diagonal, g_lower + factor)


BY_HAND = {
    "rosenbrock": rosenbrock_by_hand, "least_squares": least_squares_by_hand, "logistic": logistic_by_hand, "lorenz": lorenz_by_hand,
    "black_scholes": black_scholes_by_hand, "gmm": gmm_by_hand,
}  # fmt: skip
CONTESTANTS = {
    f.__name__: f for f in (compiled, compiled_scan, compiled_value, eager, jax, torch, torch_compile, casadi, autograd, by_hand)
}  # fmt: skip


PEERS = ("jax", "torch", "torch_compile", "casadi", "autograd")


def flat(answer):
    value, gradient = answer
    parts = gradient if isinstance(gradient, list | tuple) else [gradient]
    return np.concatenate([np.ravel(np.asarray(x)) for x in (value, *parts) if x is not None])


_expected = {}


def expected(name):
    if name not in _expected:
        _expected[name] = flat(eager(name)())
    return _expected[name]


def warm(contestant, name):
    """The contestant's run, after its answer was found right (twice: a first call traces)."""
    if contestant in PEERS and not peers.installed(contestant):
        pytest.skip(f"{peers.library(contestant)} is not installed")
    run = CONTESTANTS[contestant](name)
    for _ in range(2):
        got = flat(run())
        reference = expected(name)[: len(got)]
        scale = np.max(np.abs(reference))
        np.testing.assert_allclose(got, reference, rtol=1e-8, atol=1e-9 * scale)
    return run


@pytest.mark.parametrize("contestant", CONTESTANTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_run(benchmark, name, contestant):
    if benchmark.disabled and contestant == "torch_compile":
        pytest.skip("compiles C++ for half a minute each")
    run = warm(contestant, name)
    benchmark.group = name
    benchmark(run)


@pytest.mark.parametrize("contestant", ["compiled", "jax", "torch_compile", "casadi", "by_hand"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_first_call(benchmark, name, contestant, tmp_path_factory, monkeypatch):
    """From a Python function to its first answer, nothing cached."""
    if contestant in PEERS and not peers.installed(contestant):
        pytest.skip(f"{peers.library(contestant)} is not installed")
    if benchmark.disabled:
        pytest.skip("seconds: asserted by test_run")
    warm("compiled", "rosenbrock")  # the compilers themselves are loaded
    benchmark.group = f"{name}, first call"

    def setup():
        monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return (CONTESTANTS[contestant](name),), {}

    benchmark.pedantic(lambda run: run(), setup=setup, rounds=3)


def test_call_overhead(benchmark):
    """One small array in, one out."""
    x = np.ones(4)
    f = tg.compile(tg.grad(lambda x: np.sum(x * x)))
    for _ in range(3):
        np.testing.assert_array_equal(f(x), 2 * x)
    benchmark.group = "call"
    benchmark(f, x)
