"""The programs that are timed: each written once, in plain NumPy, with its gradient by hand.

A program is `program(xp, *parameters, *constants)`, a scalar. `xp` is the namespace that its
functions come from (numpy, tapegrad, torch, jax.numpy, ...), so that every engine and every peer
runs the same text. Inputs are float64 arrays (and integer arrays among the constants) from a fixed
seed; `gradient(*parameters, *constants)` is the answer: value and gradients in plain NumPy, with
complex-step differences where nobody would write the gradient by hand.

Where a program exists in GradBench (https://github.com/gradbench/gradbench) or in ADBench
(Srajer, Kukelova, Fitzgibbon, arXiv:1807.10129) it bears the same name and computes the same
function, so that numbers compare; each docstring names its source.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 20240229
CHAIN_ROUNDS = 333  # of multiply, add, sin: about 1000 operations
AXPY_ROUNDS = 15  # of multiply, add: 30 operations
RK4_STEP = 0.05

Arrays = tuple[np.ndarray, ...]
Answer = tuple[float, Arrays]


@dataclass(frozen=True, slots=True)
class Workload:
    """One program with its inputs, its answer, and the sizes at which it is worth timing.

    `inputs(size)` gives (parameters, constants); the gradient is with respect to all parameters.
    The first size is the smallest, and is what a test should take.
    """

    program: Callable[..., Any]
    inputs: Callable[[int], tuple[Arrays, Arrays]]
    gradient: Callable[..., Answer]
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.program.__name__

    @property
    def by_hand(self) -> bool:
        """Whether `gradient` is a fair contestant, and not only an oracle."""
        return not isinstance(self.gradient, ComplexStep)


@dataclass(frozen=True, slots=True)
class ComplexStep:
    """The gradient of a program of `parameters` arrays by complex-step differences.

    Im f(x + ih) / h has no cancellation, so h can be so small that the truncation error vanishes
    (Squire and Trapp, SIAM Review 40, 1998): exact to rounding, at one run per parameter value.
    """

    program: Callable[..., Any]
    parameters: int

    def __call__(self, *args: np.ndarray) -> Answer:
        step = 1e-30
        gradients = []
        for k in range(self.parameters):
            moved = args[k].astype(complex)
            gradient = np.empty_like(args[k])
            for i in np.ndindex(gradient.shape):
                moved[i] += 1j * step
                gradient[i] = self.program(np, *args[:k], moved, *args[k + 1 :]).imag / step
                moved[i] = args[k][i]
            gradients.append(gradient)
        return self.program(np, *args), tuple(gradients)


def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


def sigmoid(xp, x):
    return 1.0 / (1.0 + xp.exp(-x))


def logsumexp(xp, x):
    """log(sum(exp(x))) over the first axis, which is the one that broadcasts without reshaping."""
    top = xp.amax(x, axis=0)
    return top + xp.log(xp.sum(xp.exp(x - top), axis=0))


# ---------------------------------------------------------------------------------------------
# Long chains: the cost of an entry on the tape


def chain(xp, x, y, z):
    """333 rounds of h = sin(h*y + z): about 1000 operations on arrays of n elements.

    Source: the usual microbenchmark of eager frameworks. At n = 1 it measures their overhead for
    each operation, at n = 1000 their kernels.
    """
    h = x
    for _ in range(CHAIN_ROUNDS):
        h = xp.sin(h * y + z)
    return xp.sum(h)


def chain_data(n):
    # y near 1 and z near 0 keep every derivative y*cos(h*y + z) near 1: with uniform y the
    # product of 333 of them is subnormal, and it is the processor's slow path that is timed.
    r = rng()
    return (r.uniform(-1, 1, n),), (r.uniform(0.9, 1.1, n), r.uniform(-0.1, 0.1, n))


def chain_grad(x, y, z):
    h, slopes = x, []
    for _ in range(CHAIN_ROUNDS):
        u = h * y + z
        slopes.append(np.cos(u))
        h = np.sin(u)
    g = np.ones_like(x)
    for slope in reversed(slopes):
        g = g * slope * y
    return h.sum(), (g,)


def axpy_chain(xp, x, y, z):
    """15 rounds of h = h*y + z, 30 operations: at n = 1e6 nothing but memory traffic.

    Source: BLAS axpy, chained.
    """
    h = x
    for _ in range(AXPY_ROUNDS):
        h = h * y + z
    return xp.sum(h)


def axpy_chain_grad(x, y, z):
    h = x
    for _ in range(AXPY_ROUNDS):
        h = h * y + z
    return h.sum(), (y**AXPY_ROUNDS,)


# ---------------------------------------------------------------------------------------------
# Rosenbrock's function, three ways


def rosenbrock(xp, x):
    """Rosenbrock's chained function of n variables, vectorised.

    Source: Rosenbrock, Computer Journal 3 (1960) 175; scipy.optimize.rosen.
    """
    a, b = x[:-1], x[1:]
    valley, slope = b - a * a, 1.0 - a
    return xp.sum(100.0 * valley * valley + slope * slope)


def rosenbrock_loop(xp, x):
    """The same as a Python loop over its terms, reading x[i]: what a first script looks like."""
    total = 0.0
    for i in range(len(x) - 1):
        a = x[i]
        valley, slope = x[i + 1] - a * a, 1.0 - a
        total = total + 100.0 * valley * valley + slope * slope
    return total


def rosenbrock_scalars(xp, *x):
    """The same loop over n separate scalars: no indexing, only scalar arithmetic."""
    return rosenbrock_loop(xp, x)


def rosenbrock_data(n):
    return (rng().uniform(-1.5, 1.5, n),), ()


def rosenbrock_loop_data(terms):
    return rosenbrock_data(terms + 1)


def rosenbrock_scalars_data(terms):
    ((x,), _) = rosenbrock_data(terms + 1)
    return tuple(x), ()  # of np.float64, as reading an array gives them


def rosenbrock_grad(x):
    a, b = x[:-1], x[1:]
    valley, slope = b - a * a, 1.0 - a
    g = np.zeros_like(x)
    g[1:] = 200.0 * valley
    g[:-1] -= 400.0 * valley * a + 2.0 * slope
    return (100.0 * valley * valley + slope * slope).sum(), (g,)


def rosenbrock_scalars_grad(*x):
    value, (g,) = rosenbrock_grad(np.array(x))
    return value, tuple(g)


# ---------------------------------------------------------------------------------------------
# Models


def mlp(xp, w1, b1, w2, b2, w3, b3, inputs, targets):
    """Mean squared error of a perceptron 16-32-32-1 with tanh, gradients of all weights and biases.

    Source: the smallest network anybody trains; here the overhead still outweighs the arithmetic.
    """
    h = xp.tanh(inputs @ w1 + b1)
    h = xp.tanh(h @ w2 + b2)
    error = h @ w3 + b3 - targets
    return xp.mean(error * error)


def mlp_data(batch):
    r = rng()
    shapes = ((16, 32), (32,), (32, 32), (32,), (32, 1), (1,))
    weights = tuple(0.3 * r.standard_normal(shape) for shape in shapes)
    return weights, (r.standard_normal((batch, 16)), r.standard_normal((batch, 1)))


def mlp_grad(w1, b1, w2, b2, w3, b3, inputs, targets):
    h1 = np.tanh(inputs @ w1 + b1)
    h2 = np.tanh(h1 @ w2 + b2)
    error = h2 @ w3 + b3 - targets
    g3 = 2.0 / error.size * error
    g2 = (g3 @ w3.T) * (1.0 - h2 * h2)
    g1 = (g2 @ w2.T) * (1.0 - h1 * h1)
    gradients = (inputs.T @ g1, g1.sum(0), h1.T @ g2, g2.sum(0), h2.T @ g3, g3.sum(0))
    return np.mean(error * error), gradients


def logistic_regression(xp, weights, features, labels):
    """Mean logistic loss of n points with 20 features, labels -1 and +1.

    Source: Hastie, Tibshirani, Friedman, The Elements of Statistical Learning, section 4.4.
    """
    margin = labels * (features @ weights)
    return xp.mean(xp.log1p(xp.exp(-margin)))


def logistic_regression_data(n):
    r = rng()
    features = r.standard_normal((n, 20))
    labels = np.where(features @ r.standard_normal(20) + r.standard_normal(n) > 0, 1.0, -1.0)
    return (0.1 * r.standard_normal(20),), (features, labels)


def logistic_regression_grad(weights, features, labels):
    odds = np.exp(-labels * (features @ weights))
    pull = labels * odds / (1.0 + odds) / labels.size
    return np.mean(np.log1p(odds)), (-pull @ features,)


def gmm(xp, alphas, means, log_diagonal, lower, points, strictly_lower):
    """Log-likelihood of a mixture of 5 Gaussians in 2 dimensions at n points, with Wishart prior.

    Source: ADBench and GradBench `gmm`, without the additive constant, with gamma = 1 and m = 0 as
    in their data; the factors of the inverse covariances stand in square matrices and a mask.
    """
    factor = lower * strictly_lower
    diagonal = xp.exp(log_diagonal)
    centred = points[None] - means[:, None]
    white = diagonal[:, None] * centred + centred @ xp.swapaxes(factor, 1, 2)
    weight = alphas + xp.sum(log_diagonal, axis=1)
    likelihood = xp.sum(logsumexp(xp, weight[:, None] - 0.5 * xp.sum(white * white, axis=2)))
    prior = 0.5 * (xp.sum(diagonal * diagonal) + xp.sum(factor * factor))
    return likelihood - len(points) * logsumexp(xp, alphas) + prior


def gmm_data(n, dimension=2, components=5):
    r = rng()
    parameters = (
        r.standard_normal(components),
        r.standard_normal((components, dimension)),
        0.5 * r.standard_normal((components, dimension)),
        0.5 * r.standard_normal((components, dimension, dimension)),
    )
    return parameters, (r.standard_normal((n, dimension)), np.tri(dimension, k=-1))


def gmm_grad(alphas, means, log_diagonal, lower, points, strictly_lower):
    def shares(x):
        raised = np.exp(x - x.max(0))
        return raised / raised.sum(0)

    factor, diagonal = lower * strictly_lower, np.exp(log_diagonal)
    centred = points[None] - means[:, None]
    white = diagonal[:, None] * centred + centred @ factor.transpose(0, 2, 1)
    weight = alphas + log_diagonal.sum(1)
    exponent = weight[:, None] - 0.5 * (white * white).sum(2)
    value = (
        logsumexp(np, exponent).sum()
        - len(points) * logsumexp(np, alphas)
        + 0.5 * ((diagonal * diagonal).sum() + (factor * factor).sum())
    )
    share = shares(exponent)
    g_weight = share.sum(1)
    g_white = -share[:, :, None] * white
    g_centred = diagonal[:, None] * g_white + g_white @ factor
    g_diagonal = (g_white * centred).sum(1) + diagonal
    gradients = (
        g_weight - len(points) * shares(alphas),
        -g_centred.sum(1),
        g_weight[:, None] + g_diagonal * diagonal,
        (g_white.transpose(0, 2, 1) @ centred + factor) * strictly_lower,
    )
    return value, gradients


def kmeans(xp, centroids, points):
    """Sum over n points of the squared distance to the nearest of 5 centroids.

    Source: GradBench `kmeans`, the cost function; Bottou and Bengio, NIPS 1994.
    """
    away = points[:, None] - centroids[None]
    return xp.sum(xp.amin(xp.sum(away * away, axis=2), axis=1))


def kmeans_data(n, dimension=3, clusters=5):
    r = rng()
    return (r.standard_normal((clusters, dimension)),), (r.standard_normal((n, dimension)),)


def kmeans_grad(centroids, points):
    away = points[:, None] - centroids[None]
    distance = (away * away).sum(2)
    nearest = distance.argmin(1)
    each = np.arange(len(points))
    gradient = np.zeros_like(centroids)
    np.add.at(gradient, nearest, -2.0 * away[each, nearest])
    return distance[each, nearest].sum(), (gradient,)


# ---------------------------------------------------------------------------------------------
# Recurrences and geometry: many small operations of many kinds


def lstm(xp, main, extra, state, sequence):
    """Cross-entropy of predicting each next row of a sequence of n rows of 14, by two LSTM layers.

    Source: ADBench and GradBench `lstm`, whose weight matrices are all diagonal. `main` holds
    weight and bias of every layer, `extra` the input scale, output weight and output bias, `state`
    the first hidden and cell rows of every layer.
    """
    layers, width = len(main) // 2, sequence.shape[1]
    hidden = [state[2 * k] for k in range(layers)]
    cell = [state[2 * k + 1] for k in range(layers)]
    total = 0.0
    for t in range(len(sequence) - 1):
        x = sequence[t] * extra[0]
        for k in range(layers):
            gates = xp.concatenate((x, hidden[k], x, hidden[k])) * main[2 * k] + main[2 * k + 1]
            forget = sigmoid(xp, gates[:width])
            ingate = sigmoid(xp, gates[width : 2 * width])
            outgate = sigmoid(xp, gates[2 * width : 3 * width])
            change = xp.tanh(gates[3 * width :])
            cell[k] = cell[k] * forget + ingate * change
            x = hidden[k] = outgate * xp.tanh(cell[k])
        guess = x * extra[1] + extra[2]
        total = total - xp.sum(sequence[t + 1] * (guess - logsumexp(xp, guess)))
    return total / ((len(sequence) - 1) * width)


def lstm_data(n, width=14, layers=2):
    r = rng()
    parameters = 0.5 * r.standard_normal((2 * layers, 4 * width)), r.standard_normal((3, width))
    letters = np.eye(width)[r.integers(0, width, n)]
    return parameters, (r.standard_normal((2 * layers, width)), letters)


def lstm_grad(main, extra, state, sequence):
    layers, width = len(main) // 2, sequence.shape[1]
    scale = 1.0 / ((len(sequence) - 1) * width)
    hidden, cell = list(state[0::2]), list(state[1::2])
    total, saved = 0.0, []
    for t in range(len(sequence) - 1):
        x, row = sequence[t] * extra[0], []
        for k in range(layers):
            source = np.concatenate((x, hidden[k], x, hidden[k]))
            gates = source * main[2 * k] + main[2 * k + 1]
            f, i, o = sigmoid(np, gates[: 3 * width]).reshape(3, width)
            change, before = np.tanh(gates[3 * width :]), cell[k]
            cell[k] = before * f + i * change
            risen = np.tanh(cell[k])
            x = hidden[k] = o * risen
            row.append((source, f, i, o, change, before, risen))
        guess = x * extra[1] + extra[2]
        log_share = guess - logsumexp(np, guess)
        total -= sequence[t + 1] @ log_share
        error = sequence[t + 1].sum() * np.exp(log_share) - sequence[t + 1]
        saved.append((row, x, scale * error))

    g_main, g_extra = np.zeros_like(main), np.zeros_like(extra)
    g_hidden = [np.zeros(width) for _ in range(layers)]
    g_cell = [np.zeros(width) for _ in range(layers)]
    for t in reversed(range(len(saved))):
        row, x, g_guess = saved[t]
        g_extra[1] += g_guess * x
        g_extra[2] += g_guess
        g = g_guess * extra[1]
        for k in reversed(range(layers)):
            source, f, i, o, change, before, risen = row[k]
            g = g + g_hidden[k]
            g_state = g_cell[k] + g * o * (1.0 - risen * risen)
            g_gates = np.concatenate(
                (
                    g_state * before * f * (1.0 - f),
                    g_state * change * i * (1.0 - i),
                    g * risen * o * (1.0 - o),
                    g_state * i * (1.0 - change * change),
                )
            )
            g_main[2 * k] += g_gates * source
            g_main[2 * k + 1] += g_gates
            g_cell[k] = g_state * f
            g_source = (g_gates * main[2 * k]).reshape(4, width)
            g_hidden[k] = g_source[1] + g_source[3]
            g = g_source[0] + g_source[2]
        g_extra[0] += g * sequence[t]
    return total * scale, (g_main, g_extra)


def bundle_residual(xp, cameras, points, weights, features, camera_of, point_of):
    """Half the sum of squares of n weighted reprojection errors and of their weight penalties.

    Source: ADBench and GradBench `ba`, whose residuals these are (rotation by Rodrigues' formula,
    centre, focal length, principal point, radial distortion); there the Jacobian is wanted, here
    the gradient of the sum of squares, for all observations at once.
    """
    camera, point = cameras[camera_of], points[point_of]
    rx, ry, rz = camera[:, 0], camera[:, 1], camera[:, 2]
    x, y, z = (point[:, k] - camera[:, 3 + k] for k in range(3))
    angle = xp.sqrt(rx * rx + ry * ry + rz * rz)
    cos, sin = xp.cos(angle), xp.sin(angle)
    ax, ay, az = rx / angle, ry / angle, rz / angle
    along = (ax * x + ay * y + az * z) * (1.0 - cos)
    u = x * cos + (ay * z - az * y) * sin + ax * along
    v = y * cos + (az * x - ax * z) * sin + ay * along
    depth = z * cos + (ax * y - ay * x) * sin + az * along
    u, v = u / depth, v / depth
    radius = u * u + v * v
    zoom = camera[:, 6] * (1.0 + camera[:, 9] * radius + camera[:, 10] * radius * radius)
    eu = weights * (u * zoom + camera[:, 7] - features[:, 0])
    ev = weights * (v * zoom + camera[:, 8] - features[:, 1])
    penalty = 1.0 - weights * weights
    return 0.5 * xp.sum(eu * eu + ev * ev + penalty * penalty)


def bundle_residual_data(n, cameras=3, points=12):
    r = rng()
    camera = np.empty((cameras, 11))
    camera[:, 0:3] = 0.3 * r.standard_normal((cameras, 3))  # rotation
    camera[:, 3:6] = r.standard_normal((cameras, 3)) - (0, 0, 8)  # centre, well before the points
    camera[:, 6] = r.uniform(0.9, 1.1, cameras)  # focal length
    camera[:, 7:9] = 0.1 * r.standard_normal((cameras, 2))  # principal point
    camera[:, 9:11] = 0.05 * r.standard_normal((cameras, 2))  # radial distortion
    parameters = camera, r.standard_normal((points, 3)), r.uniform(0.5, 1.0, n)
    seen = r.integers(0, cameras, n), r.integers(0, points, n)
    return parameters, (0.3 * r.standard_normal((n, 2)), *seen)


bundle_residual_grad = ComplexStep(bundle_residual, parameters=3)


def ode_rk4(xp, rates, start, observed):
    """Misfit of a Lotka-Volterra orbit to n observations, by as many RK4 steps in a Python loop.

    Source: Lotka (1925), Volterra (1926), the usual example of parameter fitting. GradBench's `ode`
    has the same loop around another, linear, right-hand side.
    """
    birth, hunt, death, gain = rates[0], rates[1], rates[2], rates[3]

    def slope(prey, hunter):
        met = prey * hunter
        return birth * prey - hunt * met, gain * met - death * hunter

    u, v = start[0], start[1]
    half, misfit = 0.5 * RK4_STEP, 0.0
    for i in range(len(observed)):
        u1, v1 = slope(u, v)
        u2, v2 = slope(u + half * u1, v + half * v1)
        u3, v3 = slope(u + half * u2, v + half * v2)
        u4, v4 = slope(u + RK4_STEP * u3, v + RK4_STEP * v3)
        u = u + RK4_STEP / 6.0 * (u1 + 2.0 * (u2 + u3) + u4)
        v = v + RK4_STEP / 6.0 * (v1 + 2.0 * (v2 + v3) + v4)
        du, dv = u - observed[i, 0], v - observed[i, 1]
        misfit = misfit + du * du + dv * dv
    return misfit


def ode_rk4_data(n):
    r = rng()
    rates, start = np.array([1.1, 0.4, 0.9, 0.3]), np.array([5.0, 2.0])
    return (rates, start), (r.uniform(1.0, 6.0, (n, 2)),)


def ode_rk4_grad(rates, start, observed):
    birth, hunt, death, gain = rates.tolist()  # Python floats: arrays of two would cost more
    u, v = start.tolist()
    step, half = RK4_STEP, 0.5 * RK4_STEP

    def slope(u, v):
        return birth * u - hunt * u * v, gain * u * v - death * v

    misfit, saved = 0.0, []
    for seen_u, seen_v in observed.tolist():
        u1, v1 = slope(u, v)
        p2 = u + half * u1, v + half * v1
        u2, v2 = slope(*p2)
        p3 = u + half * u2, v + half * v2
        u3, v3 = slope(*p3)
        p4 = u + step * u3, v + step * v3
        u4, v4 = slope(*p4)
        stages = (u, v), p2, p3, p4
        u += step / 6.0 * (u1 + 2.0 * (u2 + u3) + u4)
        v += step / 6.0 * (v1 + 2.0 * (v2 + v3) + v4)
        du, dv = u - seen_u, v - seen_v
        misfit += du * du + dv * dv
        saved.append((stages, du, dv))

    g_birth = g_hunt = g_death = g_gain = gu = gv = 0.0
    for stages, du, dv in reversed(saved):
        gu, gv = gu + 2.0 * du, gv + 2.0 * dv
        total_u, total_v = gu, gv
        pulled_u = pulled_v = 0.0  # cotangent of the point of the stage above
        for (u, v), share, reach in zip(
            reversed(stages), (1.0, 2.0, 2.0, 1.0), (0.0, step, half, half), strict=True
        ):
            ku = step / 6.0 * share * gu + reach * pulled_u
            kv = step / 6.0 * share * gv + reach * pulled_v
            g_birth += ku * u
            g_hunt -= ku * u * v
            g_gain += kv * u * v
            g_death -= kv * v
            pulled_u = ku * (birth - hunt * v) + kv * gain * v
            pulled_v = kv * (gain * u - death) - ku * hunt * u
            total_u += pulled_u
            total_v += pulled_v
        gu, gv = total_u, total_v
    gradients = np.array([g_birth, g_hunt, g_death, g_gain]), np.array([gu, gv])
    return misfit, gradients


# fmt: off
TABLE = (
    # sizes              program              inputs                    answer
    ((1, 10, 100, 1000),  chain,               chain_data,               chain_grad),
    ((1000, 1_000_000),   axpy_chain,          chain_data,               axpy_chain_grad),
    ((10, 1000, 100_000), rosenbrock,          rosenbrock_data,          rosenbrock_grad),
    ((250,),              rosenbrock_loop,     rosenbrock_loop_data,     rosenbrock_grad),
    ((250,),              rosenbrock_scalars,  rosenbrock_scalars_data,  rosenbrock_scalars_grad),
    ((32,),               mlp,                 mlp_data,                 mlp_grad),
    ((100, 10_000),       logistic_regression, logistic_regression_data, logistic_regression_grad),
    ((100, 1000),         gmm,                 gmm_data,                 gmm_grad),
    ((100, 1000),         kmeans,              kmeans_data,              kmeans_grad),
    ((8,),                lstm,                lstm_data,                lstm_grad),
    ((50,),               bundle_residual,     bundle_residual_data,     bundle_residual_grad),
    ((20,),               ode_rk4,             ode_rk4_data,             ode_rk4_grad),
)
# fmt: on
WORKLOADS = {
    program.__name__: Workload(program, data, grad, sizes) for sizes, program, data, grad in TABLE
}
CASES = [(workload, size) for workload in WORKLOADS.values() for size in workload.sizes]


# ---------------------------------------------------------------------------------------------
# The answer, and the amount of work


def assert_answer(workload: Workload, size: int, answer: Any, rtol: float = 1e-9) -> None:
    """Raise AssertionError unless `answer`, a value and its gradients, is the right one."""
    parameters, constants = workload.inputs(size)
    value, gradients = workload.gradient(*parameters, *constants)
    found, found_gradients = answer
    np.testing.assert_allclose(np.asarray(found), value, rtol=rtol)
    assert len(found_gradients) == len(gradients), "one gradient for each parameter"
    for k, (mine, right) in enumerate(zip(found_gradients, gradients, strict=True)):
        mine = np.asarray(mine)
        assert mine.shape == np.shape(right), f"gradient {k}: {mine.shape} for {np.shape(right)}"
        # An entry that cancels to nearly nothing is judged by the size of its neighbours.
        atol = rtol * 1e-3 * np.max(np.abs(right), initial=0.0)
        np.testing.assert_allclose(mine, right, rtol=rtol, atol=atol, err_msg=f"gradient {k}")


class Counted(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that counts the NumPy calls which depend on it, and the elements they produce."""

    def __init__(self, data, tally):
        self.data, self.tally = data, tally

    def _call(self, f, args, kwargs):
        def bare(x):
            if isinstance(x, tuple | list):
                return type(x)(bare(item) for item in x)
            return x.data if isinstance(x, Counted) else x

        out = f(*bare(args), **kwargs)
        self.tally["operations"] += 1
        self.tally["elements"] += np.size(out)
        return Counted(out, self.tally)

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return self._call(getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return self._call(function, args, kwargs)

    def __getitem__(self, index):
        return self._call(lambda x: x[index], (self,), {})

    def __len__(self):
        return len(self.data)


def work(workload: Workload, size: int) -> dict[str, int]:
    """Operations that a gradient has to record, and the elements they produce.

    >>> work(WORKLOADS["chain"], 10)
    {'operations': 1000, 'elements': 9991}
    """
    tally = {"operations": 0, "elements": 0}
    parameters, constants = workload.inputs(size)
    workload.program(np, *(Counted(p, tally) for p in parameters), *constants)
    return tally
