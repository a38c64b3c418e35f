"""Array programs of science, written for NumPy as their textbooks do: buffers, stores in place, swaps, `out=`, helpers with loops.

Nothing here knows of tapegrad. Each program is a function of the arrays that `PROGRAMS` names with it, in the order of its parameters, and
gives an array or a number. tests/test_array_programs.py differentiates all of them as they stand.
"""

import numpy as np

PROGRAMS = {}


def program(*shapes):
    """Decorator: a program of arrays of these shapes; a number where the shape is empty."""

    def note(f):
        PROGRAMS[f.__name__] = (f, shapes)
        return f

    return note


# ---------------------------------------------------------------------------------------------- fields in time


@program((12,), ())
def heat_in_place(u, k):
    u = u.copy()
    for _ in range(5):
        u[1:-1] = u[1:-1] + 0.1 * k * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


@program((9,), (), ())
def cable_equation(u0, k, b):
    u = np.array(u0)
    for _ in range(4):
        m = u[1:-1]
        lap = u[2:] - 2 * m + u[:-2]
        u[1:-1] = m + 0.1 * k * lap - 0.1 * b * m * m * m
    return u


@program((5, 6))
def gauss_seidel(u):
    u = u.copy()
    for _ in range(2):
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                u[i, j] = (
                    0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
                    + 0.05 * u[i, j] ** 2
                )
    return u


@program((8, 8), ())
def red_black(u, w):
    u = u.copy()
    for _ in range(2):
        for first in (1, 2):
            u[1:-1, first:-1:2] += (
                w
                * u[1:-1, first:-1:2]
                * (u[:-2, first:-1:2] + u[2:, first:-1:2] - 2 * u[1:-1, first:-1:2])
            )
    return u


@program((6, 5), (5,))
def column_sweep(u, a):
    u = u.copy()
    for j in range(1, u.shape[1]):
        u[:, j] = u[:, j - 1] * a[j] + np.sin(u[:, j])
    for j in range(u.shape[1] - 2, -1, -1):
        u[:, j] += u[:, j + 1] * u[:, j]
    return u


@program((10,), (10,))
def shallow_water(h0, v0):
    h = 2.0 + 0.1 * h0
    v = 0.1 * v0
    dh = np.empty_like(h0)
    flux = np.zeros(h0.size + 1)
    for _ in range(3):
        np.multiply(h[:-1], v[1:], out=dh[1:])
        dh[0] = h[-1] * v[0]
        flux[1:-1] = 0.5 * (dh[1:] + dh[:-1])
        flux[0] = flux[-1] = 0.5 * (dh[0] + dh[-1])
        h -= 0.1 * np.diff(flux)
        v[1:-1] -= 0.1 * (h[2:] - h[:-2]) + 0.05 * v[1:-1] * (v[2:] - v[:-2])
    return h * v


@program((14,), ())
def limited_advection(q, c):
    q = q.copy()
    speed = 0.5 / (1 + c * c)
    slope = np.zeros_like(q)
    for _ in range(3):
        left, right = q[1:-1] - q[:-2], q[2:] - q[1:-1]
        slope[1:-1] = np.where(
            left * right > 0, 2 * left * right / (left + right + 1e-3 * (left * right <= 0)), 0.0
        )
        face = q[:-1] + 0.5 * (1 - speed) * slope[:-1]
        q[1:] -= speed * (np.append(face[1:], q[-1]) - face)
    return q


@program((7, 7))
def double_buffer(grid):
    a = grid.copy()
    b = np.zeros(a.shape)
    for _ in range(3):
        b[1:-1, 1:-1] = np.tanh(
            0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        )
        np.copyto(b[0], a[0])
        b[-1, :], b[:, 0], b[:, -1] = a[-1, :], a[:, 0], a[:, -1]
        a, b = b, a
    return a


# ---------------------------------------------------------------------------------------------- linear algebra


@program((5, 5), (5,))
def forward_substitution(L, b):
    n = len(b)
    L = L + 4 * np.eye(n)
    x = np.zeros(n)
    for i in range(n):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


@program((5, 5), (5,))
def gaussian_elimination(A, b):
    A = A.copy()
    b = b.copy()
    n = len(b)
    for k in range(n - 1):
        p = k + int(np.argmax(np.abs(A[k:, k])))
        A[[k, p]] = A[[p, k]]
        b[k], b[p] = b[p], b[k]
        for i in range(k + 1, n):
            m = A[i, k] / A[k, k]
            A[i, k:] -= m * A[k, k:]
            b[i] -= m * b[k]
    x = np.empty(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - np.dot(A[i, i + 1 :], x[i + 1 :])) / A[i, i]
    return x


@program((5, 5))
def lu_in_place(A):
    A = A + 5.0 * np.identity(len(A))
    for k in range(len(A) - 1):
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A


@program((4, 4))
def cholesky_by_columns(B):
    A = B @ B.T + 4 * np.eye(4)
    n = A.shape[0]
    L = np.zeros_like(A)
    for j in range(n):
        L[j, j] = np.sqrt(A[j, j] - np.sum(L[j, :j] ** 2))
        L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    return L


@program((6, 4))
def gram_schmidt(A):
    Q = np.zeros(A.shape)
    R = np.zeros((A.shape[1], A.shape[1]))
    V = A.copy()
    for k in range(A.shape[1]):
        R[k, k] = np.sqrt(np.sum(V[:, k] ** 2))
        Q[:, k] = V[:, k] / R[k, k]
        for j in range(k + 1, A.shape[1]):
            R[k, j] = Q[:, k] @ V[:, j]
            V[:, j] -= Q[:, k] * R[k, j]
    return Q @ R @ np.arange(1.0, 5.0) + Q[:, 1] * R[0, 2]


@program((4, 4))
def givens_rotations(A):
    R = A.copy()
    n = len(R)
    for j in range(n):
        for i in range(n - 1, j, -1):
            r = np.hypot(R[i - 1, j], R[i, j])
            c, s = R[i - 1, j] / r, R[i, j] / r
            R[i - 1], R[i] = c * R[i - 1] + s * R[i], c * R[i] - s * R[i - 1]
    return R


@program((6,))
def durbin(r):
    r = 0.1 * r
    n = len(r)
    y = np.zeros(n)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, n):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha
    return y


@program((7,), (7,), (7,), (7,))
def thomas(a, b, c, d):
    b = 5.0 + np.abs(b)
    n = len(d)
    cp, dp, x = np.empty(n), np.empty(n), np.empty(n)
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


# ---------------------------------------------------------------------------------------------- trajectories


def _predators(z, p):
    dz = np.empty(2)
    dz[0] = z[0] * (p[0] - p[1] * z[1])
    dz[1] = z[1] * (p[2] * z[0] - p[3])
    return dz


@program((4,))
def lotka_volterra(p):
    p = 1 + 0.1 * p
    z = np.zeros((6, 2))
    z[0] = [1.0, 0.5]
    for i in range(5):
        k1 = _predators(z[i], p)
        k2 = _predators(z[i] + 0.05 * k1, p)
        k3 = _predators(z[i] + 0.05 * k2, p)
        k4 = _predators(z[i] + 0.1 * k3, p)
        z[i + 1] = z[i] + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return z


@program((4, 3), (4,))
def gravity(x, m):
    n = len(x)
    a = np.zeros((n, 3))
    for i in range(n):
        for j in range(n):
            if i != j:
                d = x[j] - x[i]
                a[i] += m[j] * d / (np.sum(d * d) + 0.1) ** 1.5
    return a


@program((3, 3), (3, 2), (5, 2))
def recurrent_network(W, U, xs):
    h = np.zeros((len(xs) + 1, 3))
    for t in range(len(xs)):
        h[t + 1] = np.tanh(W @ h[t] + U @ xs[t])
    return h


@program((2, 2), (5,), ())
def kalman_filter(F, z, q):
    F = np.eye(2) + 0.1 * F
    x = np.zeros(2)
    P = np.eye(2)
    H = np.array([1.0, 0.0])
    means = np.zeros((len(z), 2))
    for t in range(len(z)):
        x = F @ x
        P = F @ P @ F.T + (0.1 + q * q) * np.eye(2)
        K = P @ H / (H @ P @ H + 0.5)
        x = x + K * (z[t] - H @ x)
        P = P - np.outer(K, H @ P)
        means[t] = x
    return means


@program((3,), (2,), (9,))
def recursive_filter(b, a, x):
    y = np.zeros(len(x))
    for n in range(len(x)):
        for i in range(len(b)):
            if n >= i:
                y[n] += b[i] * x[n - i]
        for i in range(len(a)):
            if n > i:
                y[n] -= 0.3 * a[i] * y[n - 1 - i]
    return y


# ---------------------------------------------------------------------------------------------- tables, particles, signals


@program((5, 5))
def shortest_paths(d):
    d = np.abs(d) + 0.1
    d[np.arange(5), np.arange(5)] = 0.0
    for k in range(5):
        np.minimum(d, d[:, k : k + 1] + d[k : k + 1, :], out=d)
    return d


@program((3, 3), (4, 3))
def hidden_markov(T, E):
    A = T - np.logaddexp.reduce(T, axis=1, keepdims=True)
    alpha = np.full(3, -np.log(3.0))
    for e in E:
        alpha = np.logaddexp.reduce(alpha[:, None] + A, axis=0) + e
    return np.logaddexp.reduce(alpha)


@program((6,), (6,))
def newton_interpolation(x, y):
    x = np.arange(6.0) + 0.1 * np.tanh(x)
    c = y.copy()
    for j in range(1, len(x)):
        c[j:] = (c[j:] - c[j - 1 : -1]) / (x[j:] - x[:-j])
    value = c[-1]
    for k in range(len(x) - 2, -1, -1):
        value = value * (2.5 - x[k]) + c[k]
    return value


@program((8,))
def haar_wavelets(x):
    out = x.copy()
    n = len(x)
    scratch = np.ndarray(n)
    while n > 1:
        h = n // 2
        scratch[:h] = (out[0:n:2] + out[1:n:2]) / np.sqrt(2.0)
        scratch[h:n] = (out[0:n:2] - out[1:n:2]) / np.sqrt(2.0)
        out[:n] = scratch[:n]
        n = h
    return out * out[::-1]


@program((10,), (10,))
def cloud_in_cell(x, q):
    x = 4 + 3 * np.tanh(x)
    left = np.floor(x).astype(int)
    w = x - left
    rho = np.zeros(10)
    np.add.at(rho, left, q * (1 - w))
    np.add.at(rho, left + 1, q * w)
    phi = np.cumsum(rho) ** 2
    return phi[left] * (1 - w) + phi[left + 1] * w


@program((9,))
def safe_standard_deviations(v):
    s = np.sqrt(np.abs(v))
    s[s <= 0.3] = 1.0
    z = v / s
    z[::-2] *= s[::2]
    return z


@program((4, 6), (4,))
def soft_threshold(A, b):
    x = np.zeros(6)
    step = 0.05
    for _ in range(4):
        g = A.T @ (A @ x - b)
        x = x - step * g
        x = np.sign(x) * np.maximum(np.abs(x) - 0.001, 0.0)
    return x


@program((6,), (4,))
def moments_by_ufunc_methods(x, t):
    basis = np.add.outer(np.sin(x), t)
    running = np.add.accumulate(basis, axis=0)
    product = np.multiply.reduce(0.5 + 0.1 * running, axis=1)
    return np.subtract.outer(product, t) * np.logaddexp.accumulate(x)[:, None]


@program((5,))
def bubble_network(x):
    a = x.copy()
    n = len(a)
    for i in range(n):
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a * np.arange(1.0, n + 1) + np.minimum(a, a[::-1], out=np.empty(n))


@program((6, 6))
def pooling(image):
    pooled = np.empty((3, 3), float)
    for i in range(3):
        for j in range(3):
            pooled[i, j] = np.max(image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2])
    padded = np.zeros((5, 5))
    padded[1:-1, 1:-1] = pooled
    padded[0], padded[-1] = padded[1], padded[-2]
    padded[:, 0], padded[:, -1] = padded[:, 1], padded[:, -2]
    return padded[2:, 2:] * padded[:-2, :-2]
