"""The thirty kernels of PolyBench/C 4.2 (Pouchet, Yuki), each as a NumPy author, a Numba author and a JAX user write it.

Inputs are uniform random numbers, with a heavy diagonal where a factorisation needs one; see `bench.suite` for what is declared.
"""

import math

import numpy as np

from bench.suite import program

try:
    from jax import lax
    from jax import numpy as jnp
except ImportError:  # the other two texts need no JAX
    pass


def dominant(r, n):
    """A matrix that needs no pivots."""
    return r(n, n) + n * np.eye(n)


# ---------------------------------------------------------------------------------------------- products


@program((7, 60, 160), lambda r, n: (r(n, n + 1), r(n + 1, n + 2), r(n, n + 2), 1.5, 1.2))
class gemm:
    def arrays(A, B, C, alpha, beta):
        C = beta * C
        C += alpha * A @ B
        return np.sum(C * C)

    def loops(A, B, C, alpha, beta):
        C = C.copy()
        for i in range(C.shape[0]):
            for j in range(C.shape[1]):
                C[i, j] *= beta
            for k in range(A.shape[1]):
                for j in range(C.shape[1]):
                    C[i, j] += alpha * A[i, k] * B[k, j]
        return np.sum(C * C)

    def jax(A, B, C, alpha, beta):
        return jnp.sum((alpha * A @ B + beta * C) ** 2)


@program((6, 50, 130), lambda r, n: (r(n, n), r(n, n + 1), r(n + 1, n), r(n, n), 1.5, 1.2))
class k2mm:
    def arrays(A, B, C, D, alpha, beta):
        D = beta * D
        D += alpha * A @ B @ C
        return np.sum(D * D)

    def loops(A, B, C, D, alpha, beta):
        D = D.copy()
        tmp = np.zeros((A.shape[0], B.shape[1]))
        for i in range(A.shape[0]):
            for j in range(B.shape[1]):
                for k in range(A.shape[1]):
                    tmp[i, j] += alpha * A[i, k] * B[k, j]
        for i in range(D.shape[0]):
            for j in range(D.shape[1]):
                D[i, j] *= beta
                for k in range(C.shape[0]):
                    D[i, j] += tmp[i, k] * C[k, j]
        return np.sum(D * D)

    def jax(A, B, C, D, alpha, beta):
        return jnp.sum((alpha * A @ B @ C + beta * D) ** 2)


@program((6, 50, 120), lambda r, n: (r(n, n), r(n, n + 1), r(n + 1, n), r(n, n)))
class k3mm:
    def arrays(A, B, C, D):
        G = (A @ B) @ (C @ D)
        return np.sum(G * G)

    def loops(A, B, C, D):
        E = np.zeros((A.shape[0], B.shape[1]))
        F = np.zeros((C.shape[0], D.shape[1]))
        G = np.zeros((A.shape[0], D.shape[1]))
        for i in range(A.shape[0]):
            for j in range(B.shape[1]):
                for k in range(A.shape[1]):
                    E[i, j] += A[i, k] * B[k, j]
        for i in range(C.shape[0]):
            for j in range(D.shape[1]):
                for k in range(C.shape[1]):
                    F[i, j] += C[i, k] * D[k, j]
        for i in range(A.shape[0]):
            for j in range(D.shape[1]):
                for k in range(B.shape[1]):
                    G[i, j] += E[i, k] * F[k, j]
        return np.sum(G * G)

    def jax(A, B, C, D):
        return jnp.sum(((A @ B) @ (C @ D)) ** 2)


@program((9, 150, 600), lambda r, n: (r(n, n + 2), r(n + 2)))
class atax:
    def arrays(A, x):
        y = (A @ x) @ A
        return np.sum(y * y)

    def loops(A, x):
        y = np.zeros(A.shape[1])
        for i in range(A.shape[0]):
            s = 0.0
            for j in range(A.shape[1]):
                s += A[i, j] * x[j]
            for j in range(A.shape[1]):
                y[j] += A[i, j] * s
        return np.sum(y * y)

    def jax(A, x):
        return jnp.sum((A.T @ (A @ x)) ** 2)


@program((9, 150, 600), lambda r, n: (r(n, n + 2), r(n), r(n + 2)))
class bicg:
    def arrays(A, r, p):
        s, q = r @ A, A @ p
        return np.sum(s * s) + np.sum(q * q)

    def loops(A, r, p):
        s, q = np.zeros(A.shape[1]), np.zeros(A.shape[0])
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                s[j] += r[i] * A[i, j]
                q[i] += A[i, j] * p[j]
        return np.sum(s * s) + np.sum(q * q)

    def jax(A, r, p):
        return jnp.sum((r @ A) ** 2) + jnp.sum((A @ p) ** 2)


@program((4, 14, 32), lambda r, n: (r(n, n + 1, n + 2), r(n + 2, n + 2)))
class doitgen:
    def arrays(A, C4):
        A = A.copy()
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                A[i, j] = A[i, j] @ C4
        return np.sum(A * A)

    def loops(A, C4):
        A = A.copy()
        m = A.shape[2]
        row = np.zeros(m)
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                for p in range(m):
                    row[p] = 0.0
                    for s in range(m):
                        row[p] += A[i, j, s] * C4[s, p]
                for p in range(m):
                    A[i, j, p] = row[p]
        return np.sum(A * A)

    def jax(A, C4):
        return jnp.sum((A @ C4) ** 2)


@program((8, 130, 500), lambda r, n: (r(n, n), *(r(n) for _ in range(8)), 1.5 / n, 1.2 / n))
class gemver:
    def arrays(A, u1, v1, u2, v2, w, x, y, z, alpha, beta):
        A, w, x = A.copy(), w.copy(), x.copy()
        A += np.outer(u1, v1) + np.outer(u2, v2)
        x += beta * y @ A + z
        w += alpha * A @ x
        return np.sum(w * w)

    def loops(A, u1, v1, u2, v2, w, x, y, z, alpha, beta):
        A, w, x = A.copy(), w.copy(), x.copy()
        n = x.size
        for i in range(n):
            for j in range(n):
                A[i, j] += u1[i] * v1[j] + u2[i] * v2[j]
        for i in range(n):
            for j in range(n):
                x[j] += beta * A[i, j] * y[i]
        for i in range(n):
            x[i] += z[i]
        for i in range(n):
            for j in range(n):
                w[i] += alpha * A[i, j] * x[j]
        return np.sum(w * w)

    def jax(A, u1, v1, u2, v2, w, x, y, z, alpha, beta):
        A = A + jnp.outer(u1, v1) + jnp.outer(u2, v2)
        return jnp.sum((w + alpha * A @ (x + beta * y @ A + z)) ** 2)


@program((8, 130, 500), lambda r, n: (r(n, n), r(n, n), r(n), 1.5, 1.2))
class gesummv:
    def arrays(A, B, x, alpha, beta):
        y = alpha * A @ x + beta * B @ x
        return np.sum(y * y)

    def loops(A, B, x, alpha, beta):
        y = np.zeros(x.size)
        for i in range(x.size):
            s, t = 0.0, 0.0
            for j in range(x.size):
                s += A[i, j] * x[j]
                t += B[i, j] * x[j]
            y[i] = alpha * s + beta * t
        return np.sum(y * y)

    def jax(A, B, x, alpha, beta):
        return jnp.sum((alpha * A @ x + beta * B @ x) ** 2)


@program((8, 150, 700), lambda r, n: (r(n), r(n), r(n), r(n), r(n, n)))
class mvt:
    def arrays(x1, x2, y1, y2, A):
        x1, x2 = x1.copy(), x2.copy()
        x1 += A @ y1
        x2 += y2 @ A
        return np.sum(x1 * x1) + np.sum(x2 * x2)

    def loops(x1, x2, y1, y2, A):
        x1, x2 = x1.copy(), x2.copy()
        for i in range(x1.size):
            for j in range(x1.size):
                x1[i] += A[i, j] * y1[j]
        for i in range(x1.size):
            for j in range(x1.size):
                x2[j] += A[i, j] * y2[i]
        return np.sum(x1 * x1) + np.sum(x2 * x2)

    def jax(x1, x2, y1, y2, A):
        return jnp.sum((x1 + A @ y1) ** 2) + jnp.sum((x2 + y2 @ A) ** 2)


@program((7, 45, 120), lambda r, n: (r(n, n + 1), r(n, n), r(n, n + 1), 1.5, 1.2))
class symm:
    def arrays(C, A, B, alpha, beta):
        C = beta * C
        for i in range(len(C)):
            C[:i] += alpha * np.outer(A[i, :i], B[i])
            C[i] += alpha * (B[i] * A[i, i] + A[i, :i] @ B[:i])
        return np.sum(C * C)

    def loops(C, A, B, alpha, beta):
        C = C.copy()
        for i in range(C.shape[0]):
            for j in range(C.shape[1]):
                s = 0.0
                for k in range(i):
                    C[k, j] += alpha * B[i, j] * A[i, k]
                    s += B[k, j] * A[i, k]
                C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * s
        return np.sum(C * C)

    def jax(C, A, B, alpha, beta):
        S = jnp.tril(A) + jnp.tril(A, -1).T
        return jnp.sum((beta * C + alpha * S @ B) ** 2)


@program((7, 45, 120), lambda r, n: (r(n, n), r(n, n + 1), r(n, n + 1), 1.5, 1.2))
class syr2k:
    def arrays(C, A, B, alpha, beta):
        C = C.copy()
        for i in range(len(C)):
            C[i, : i + 1] *= beta
            C[i, : i + 1] += alpha * (A[: i + 1] @ B[i] + B[: i + 1] @ A[i])
        return np.sum(C * C)

    def loops(C, A, B, alpha, beta):
        C = C.copy()
        for i in range(C.shape[0]):
            for j in range(i + 1):
                C[i, j] *= beta
            for k in range(A.shape[1]):
                for j in range(i + 1):
                    C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]
        return np.sum(C * C)

    def jax(C, A, B, alpha, beta):
        S = A @ B.T
        return jnp.sum(jnp.where(jnp.tri(len(C)) > 0, beta * C + alpha * (S + S.T), C) ** 2)


@program((7, 50, 140), lambda r, n: (r(n, n), r(n, n + 1), 1.5, 1.2))
class syrk:
    def arrays(C, A, alpha, beta):
        C = C.copy()
        for i in range(len(C)):
            C[i, : i + 1] *= beta
            C[i, : i + 1] += alpha * A[: i + 1] @ A[i]
        return np.sum(C * C)

    def loops(C, A, alpha, beta):
        C = C.copy()
        for i in range(C.shape[0]):
            for j in range(i + 1):
                C[i, j] *= beta
            for k in range(A.shape[1]):
                for j in range(i + 1):
                    C[i, j] += alpha * A[i, k] * A[j, k]
        return np.sum(C * C)

    def jax(C, A, alpha, beta):
        return jnp.sum(jnp.where(jnp.tri(len(C)) > 0, beta * C + alpha * A @ A.T, C) ** 2)


@program((7, 50, 140), lambda r, n: (r(n, n), r(n, n + 1), 1.5))
class trmm:
    def arrays(A, B, alpha):
        B = B.copy()
        for i in range(len(B)):
            B[i] += A[i + 1 :, i] @ B[i + 1 :]
        B *= alpha
        return np.sum(B * B)

    def loops(A, B, alpha):
        B = B.copy()
        for i in range(B.shape[0]):
            for j in range(B.shape[1]):
                for k in range(i + 1, B.shape[0]):
                    B[i, j] += A[k, i] * B[k, j]
                B[i, j] *= alpha
        return np.sum(B * B)

    def jax(A, B, alpha):
        return jnp.sum((alpha * (B + jnp.tril(A, -1).T @ B)) ** 2)


# ---------------------------------------------------------------------------------------------- factorisations and solutions


@program((6, 30, 90), lambda r, n: (dominant(r, n),))
class cholesky:
    def arrays(A):
        n = len(A)
        L = np.zeros((n, n))
        for j in range(n):
            L[j, j] = np.sqrt(A[j, j] - L[j, :j] @ L[j, :j])
            L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
        return np.sum(L * L)

    def loops(A):
        n = A.shape[0]
        L = np.zeros((n, n))
        for i in range(n):
            for j in range(i):
                s = A[i, j]
                for k in range(j):
                    s -= L[i, k] * L[j, k]
                L[i, j] = s / L[j, j]
            s = A[i, i]
            for k in range(i):
                s -= L[i, k] * L[i, k]
            L[i, i] = math.sqrt(s)
        return np.sum(L * L)

    def jax(A):
        rows = jnp.arange(len(A))

        def column(j, L):
            c = A[:, j] - L @ L[j]
            return L.at[:, j].set(jnp.where(rows >= j, c / jnp.sqrt(c[j]), 0.0))

        return jnp.sum(lax.fori_loop(0, len(A), column, jnp.zeros_like(A)) ** 2)


@program((6, 40, 200), lambda r, n: (r(n) / n,))
class durbin:
    def arrays(r):
        n = len(r)
        y = np.zeros(n)
        y[0] = alpha = -r[0]
        beta = 1.0
        for k in range(1, n):
            beta *= 1.0 - alpha * alpha
            alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) / beta
            y[:k] += alpha * y[k - 1 :: -1]
            y[k] = alpha
        return np.sum(y * y)

    def loops(r):
        n = r.size
        y, z = np.zeros(n), np.zeros(n)
        y[0] = -r[0]
        alpha, beta = -r[0], 1.0
        for k in range(1, n):
            beta = (1.0 - alpha * alpha) * beta
            s = 0.0
            for i in range(k):
                s += r[k - i - 1] * y[i]
            alpha = -(r[k] + s) / beta
            for i in range(k):
                z[i] = y[i] + alpha * y[k - i - 1]
            for i in range(k):
                y[i] = z[i]
            y[k] = alpha
        return np.sum(y * y)

    def jax(r):
        n = len(r)
        places = jnp.arange(n)

        def step(carry, k):
            y, alpha, beta = carry
            beta = beta * (1.0 - alpha * alpha)
            back = jnp.where(places < k, k - 1 - places, 0)
            alpha = -(r[k] + jnp.sum(jnp.where(places < k, r[back] * y, 0.0))) / beta
            y = jnp.where(places < k, y + alpha * y[back], y).at[k].set(alpha)
            return (y, alpha, beta), None

        start = jnp.zeros(n).at[0].set(-r[0]), -r[0], 1.0
        return jnp.sum(lax.scan(step, start, jnp.arange(1, n))[0][0] ** 2)


@program((5, 24, 60), lambda r, n: (r(n + 2, n) + 2.0 * np.eye(n + 2, n),))
class gramschmidt:
    def arrays(A):
        A = A.copy()
        n = A.shape[1]
        Q, R = np.zeros(A.shape), np.zeros((n, n))
        for k in range(n):
            R[k, k] = np.sqrt(A[:, k] @ A[:, k])
            Q[:, k] = A[:, k] / R[k, k]
            R[k, k + 1 :] = Q[:, k] @ A[:, k + 1 :]
            A[:, k + 1 :] -= np.outer(Q[:, k], R[k, k + 1 :])
        return np.sum(R * R) + np.sum((Q * A) ** 2)

    def loops(A):
        A = A.copy()
        m, n = A.shape
        Q, R = np.zeros((m, n)), np.zeros((n, n))
        for k in range(n):
            s = 0.0
            for i in range(m):
                s += A[i, k] * A[i, k]
            R[k, k] = math.sqrt(s)
            for i in range(m):
                Q[i, k] = A[i, k] / R[k, k]
            for j in range(k + 1, n):
                for i in range(m):
                    R[k, j] += Q[i, k] * A[i, j]
                for i in range(m):
                    A[i, j] -= Q[i, k] * R[k, j]
        return np.sum(R * R) + np.sum((Q * A) ** 2)

    def jax(A):
        columns = jnp.arange(A.shape[1])

        def step(carry, k):
            A, total = carry
            q = A[:, k] / jnp.sqrt(A[:, k] @ A[:, k])
            row = jnp.where(columns >= k, q @ A, 0.0)
            total = total + jnp.sum(row * row) + jnp.sum((q * A[:, k]) ** 2)
            return (A - jnp.outer(q, jnp.where(columns > k, row, 0.0)), total), None

        return lax.scan(step, (A, 0.0), columns)[0][1]


@program((6, 30, 90), lambda r, n: (dominant(r, n),))
class lu:
    def arrays(A):
        A = A.copy()
        for k in range(len(A) - 1):
            A[k + 1 :, k] /= A[k, k]
            A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
        return np.sum(A * A)

    def loops(A):
        A = A.copy()
        for i in range(A.shape[0]):
            for j in range(i):
                for k in range(j):
                    A[i, j] -= A[i, k] * A[k, j]
                A[i, j] /= A[j, j]
            for j in range(i, A.shape[0]):
                for k in range(i):
                    A[i, j] -= A[i, k] * A[k, j]
        return np.sum(A * A)

    def jax(A):
        rows = jnp.arange(len(A))

        def step(A, k):
            column = jnp.where(rows > k, A[:, k] / A[k, k], 0.0)
            A = A - jnp.outer(column, jnp.where(rows > k, A[k], 0.0))
            return A.at[:, k].set(jnp.where(rows > k, column, A[:, k])), None

        return jnp.sum(lax.scan(step, A, rows)[0] ** 2)


@program((6, 30, 80), lambda r, n: (dominant(r, n), r(n)))
class ludcmp:
    def arrays(A, b):
        A, n = A.copy(), len(b)
        x, y = np.zeros(n), np.zeros(n)
        for i in range(n):
            for j in range(i):
                A[i, j] = (A[i, j] - A[i, :j] @ A[:j, j]) / A[j, j]
            A[i, i:] -= A[i, :i] @ A[:i, i:]
        for i in range(n):
            y[i] = b[i] - A[i, :i] @ y[:i]
        for i in range(n - 1, -1, -1):
            x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
        return np.sum(x * x)

    def loops(A, b):
        A, n = A.copy(), b.size
        x, y = np.zeros(n), np.zeros(n)
        for i in range(n):
            for j in range(i):
                w = A[i, j]
                for k in range(j):
                    w -= A[i, k] * A[k, j]
                A[i, j] = w / A[j, j]
            for j in range(i, n):
                w = A[i, j]
                for k in range(i):
                    w -= A[i, k] * A[k, j]
                A[i, j] = w
        for i in range(n):
            w = b[i]
            for j in range(i):
                w -= A[i, j] * y[j]
            y[i] = w
        for i in range(n - 1, -1, -1):
            w = y[i]
            for j in range(i + 1, n):
                w -= A[i, j] * x[j]
            x[i] = w / A[i, i]
        return np.sum(x * x)

    def jax(A, b):
        rows = jnp.arange(len(b))

        def step(A, k):
            column = jnp.where(rows > k, A[:, k] / A[k, k], 0.0)
            A = A - jnp.outer(column, jnp.where(rows > k, A[k], 0.0))
            return A.at[:, k].set(jnp.where(rows > k, column, A[:, k])), None

        A = lax.scan(step, A, rows)[0]

        def forward(y, i):
            return y.at[i].set(b[i] - jnp.where(rows < i, A[i], 0.0) @ y), None

        y = lax.scan(forward, jnp.zeros_like(b), rows)[0]

        def back(x, i):
            return x.at[i].set((y[i] - jnp.where(rows > i, A[i], 0.0) @ x) / A[i, i]), None

        return jnp.sum(lax.scan(back, jnp.zeros_like(b), rows, reverse=True)[0] ** 2)


@program((7, 60, 250), lambda r, n: (dominant(r, n), r(n)))
class trisolv:
    def arrays(L, b):
        x = np.zeros(len(b))
        for i in range(len(b)):
            x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
        return np.sum(x * x)

    def loops(L, b):
        x = np.zeros(b.size)
        for i in range(b.size):
            x[i] = b[i]
            for j in range(i):
                x[i] -= L[i, j] * x[j]
            x[i] /= L[i, i]
        return np.sum(x * x)

    def jax(L, b):
        def step(x, i):
            return x.at[i].set((b[i] - L[i] @ x) / L[i, i]), None  # x is 0 from i on

        return jnp.sum(lax.scan(step, jnp.zeros(b.size), jnp.arange(b.size))[0] ** 2)


# ---------------------------------------------------------------------------------------------- statistics


@program((5, 30, 80), lambda r, n: (r(n + 3, n),))
class correlation:
    def arrays(data):
        n, m = data.shape
        mean = np.mean(data, axis=0)
        stddev = np.std(data, axis=0)
        stddev[stddev <= 0.1] = 1.0
        data = data - mean
        data /= np.sqrt(n) * stddev
        corr = np.eye(m)
        for i in range(m - 1):
            corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
        return np.sum(corr * corr)

    def loops(data):
        data = data.copy()
        n, m = data.shape
        mean, stddev, corr = np.zeros(m), np.zeros(m), np.eye(m)
        for j in range(m):
            for i in range(n):
                mean[j] += data[i, j]
            mean[j] /= n
            for i in range(n):
                stddev[j] += (data[i, j] - mean[j]) ** 2
            stddev[j] = math.sqrt(stddev[j] / n)
            if stddev[j] <= 0.1:
                stddev[j] = 1.0
        for i in range(n):
            for j in range(m):
                data[i, j] = (data[i, j] - mean[j]) / (math.sqrt(n) * stddev[j])
        for i in range(m - 1):
            for j in range(i + 1, m):
                s = 0.0
                for k in range(n):
                    s += data[k, i] * data[k, j]
                corr[i, j] = s
                corr[j, i] = s
        return np.sum(corr * corr)

    def jax(data):
        n, m = data.shape
        stddev = jnp.std(data, axis=0)
        data = (data - jnp.mean(data, axis=0)) / (
            jnp.sqrt(n) * jnp.where(stddev <= 0.1, 1.0, stddev)
        )
        return jnp.sum(jnp.where(jnp.eye(m) > 0, 1.0, data.T @ data) ** 2)


@program((5, 30, 80), lambda r, n: (r(n + 3, n),))
class covariance:
    def arrays(data):
        n, m = data.shape
        data = data - np.mean(data, axis=0)
        cov = np.zeros((m, m))
        for i in range(m):
            cov[i, i:] = data[:, i] @ data[:, i:] / (n - 1.0)
            cov[i:, i] = cov[i, i:]
        return np.sum(cov * cov)

    def loops(data):
        data = data.copy()
        n, m = data.shape
        cov = np.zeros((m, m))
        for j in range(m):
            mean = 0.0
            for i in range(n):
                mean += data[i, j]
            for i in range(n):
                data[i, j] -= mean / n
        for i in range(m):
            for j in range(i, m):
                for k in range(n):
                    cov[i, j] += data[k, i] * data[k, j]
                cov[i, j] /= n - 1.0
                cov[j, i] = cov[i, j]
        return np.sum(cov * cov)

    def jax(data):
        data = data - jnp.mean(data, axis=0)
        return jnp.sum((data.T @ data / (len(data) - 1.0)) ** 2)


# ---------------------------------------------------------------------------------------------- dynamic programs


@program((6, 30, 70), lambda r, n: (r(n, n) + 0.1,))
class floyd_warshall:
    def arrays(path):
        path = path.copy()
        for k in range(len(path)):
            path[:] = np.minimum(path, np.add.outer(path[:, k], path[k]))
        return np.sum(path * path)

    def loops(path):
        path = path.copy()
        n = path.shape[0]
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    path[i, j] = min(path[i, j], path[i, k] + path[k, j])
        return np.sum(path * path)

    def jax(path):
        def step(path, k):
            return jnp.minimum(path, path[:, k][:, None] + path[k]), None

        return jnp.sum(lax.scan(step, path, jnp.arange(len(path)))[0] ** 2)


@program((6, 20, 45), lambda r, n: (r(n, n),))
class nussinov:
    """Scores of pairs are real numbers, so that the best folding has a derivative."""

    def arrays(score):
        n = len(score)
        table = np.zeros((n, n))
        for i in range(n - 2, -1, -1):
            for j in range(i + 1, n):
                best = np.maximum(table[i, j - 1], table[i + 1, j])
                pair = score[i, j] if i < j - 1 else 0.0
                best = np.maximum(best, table[i + 1, j - 1] + pair)
                if j > i + 1:
                    best = np.maximum(best, np.max(table[i, i + 1 : j] + table[i + 2 : j + 1, j]))
                table[i, j] = best
        return np.sum(table * table)

    def loops(score):
        n = score.shape[0]
        table = np.zeros((n, n))
        for i in range(n - 2, -1, -1):
            for j in range(i + 1, n):
                best = max(table[i, j - 1], table[i + 1, j])
                if i < j - 1:
                    best = max(best, table[i + 1, j - 1] + score[i, j])
                else:
                    best = max(best, table[i + 1, j - 1])
                for k in range(i + 1, j):
                    best = max(best, table[i, k] + table[k + 1, j])
                table[i, j] = best
        return np.sum(table * table)

    def jax(score):
        n = len(score)
        places = jnp.arange(n)

        def cell(carry, j):
            table, i = carry
            column = jnp.roll(table[:, j], -1)
            splits = jnp.where((places > i) & (places < j), table[i] + column, 0.0)
            pair = table[i + 1, j - 1] + jnp.where(i < j - 1, score[i, j], 0.0)
            best = jnp.maximum(jnp.maximum(table[i, j - 1], table[i + 1, j]), pair)
            best = jnp.where(j > i, jnp.maximum(best, jnp.max(splits)), table[i, j])
            return (table.at[i, j].set(best), i), None

        def row(table, i):
            return lax.scan(cell, (table, i), places[1:])[0][0], None

        return jnp.sum(lax.scan(row, jnp.zeros((n, n)), places[:-1], reverse=True)[0] ** 2)


# ---------------------------------------------------------------------------------------------- stencils


@program(((7, 2), (24, 8), (60, 20)), lambda r, n, steps: (r(n, n), steps))
class adi:
    def arrays(u, steps):
        n = len(u)
        a = -n * n / steps
        d = 0.5 * a
        b, e = 1.0 - 2.0 * a, 1.0 - 2.0 * d
        u = u.copy()
        v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
        for _ in range(steps):
            v[0, 1:-1] = v[-1, 1:-1] = q[1:-1, 0] = 1.0
            p[1:-1, 0] = 0.0
            for j in range(1, n - 1):
                m = a * p[1:-1, j - 1] + b
                p[1:-1, j] = -a / m
                across = -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - d * u[j, 2:]
                q[1:-1, j] = (across - a * q[1:-1, j - 1]) / m
            for j in range(n - 2, 0, -1):
                v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
            u[1:-1, 0] = u[1:-1, -1] = q[1:-1, 0] = 1.0
            p[1:-1, 0] = 0.0
            for j in range(1, n - 1):
                m = d * p[1:-1, j - 1] + e
                p[1:-1, j] = -d / m
                across = -a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - a * v[2:, j]
                q[1:-1, j] = (across - d * q[1:-1, j - 1]) / m
            for j in range(n - 2, 0, -1):
                u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]
        return np.sum(u * u)

    def loops(u, steps):
        n = u.shape[0]
        a = -n * n / steps
        d = 0.5 * a
        b, e = 1.0 - 2.0 * a, 1.0 - 2.0 * d
        u = u.copy()
        v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
        for _ in range(steps):
            for i in range(1, n - 1):
                v[0, i], p[i, 0], q[i, 0] = 1.0, 0.0, 1.0
                for j in range(1, n - 1):
                    m = a * p[i, j - 1] + b
                    p[i, j] = -a / m
                    across = -d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - d * u[j, i + 1]
                    q[i, j] = (across - a * q[i, j - 1]) / m
                v[n - 1, i] = 1.0
                for j in range(n - 2, 0, -1):
                    v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
            for i in range(1, n - 1):
                u[i, 0], p[i, 0], q[i, 0] = 1.0, 0.0, 1.0
                for j in range(1, n - 1):
                    m = d * p[i, j - 1] + e
                    p[i, j] = -d / m
                    across = -a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - a * v[i + 1, j]
                    q[i, j] = (across - d * q[i, j - 1]) / m
                u[i, n - 1] = 1.0
                for j in range(n - 2, 0, -1):
                    u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
        return np.sum(u * u)

    def jax(u, steps):
        n = len(u)
        a = -n * n / steps
        d = 0.5 * a
        ones = jnp.ones(n - 2)

        def sweep(rows, a, d):
            """Implicit along the rows' direction with `a`, explicit across with `d`."""

            def forward(pq, row):
                p, q = pq
                m = a * p + 1.0 - 2.0 * a
                across = -d * row[:-2] + (1.0 + 2.0 * d) * row[1:-1] - d * row[2:]
                return (new := (-a / m, (across - a * q) / m)), new

            def back(v, pq):
                return (v := pq[0] * v + pq[1]), v

            _, pq = lax.scan(forward, (0.0 * ones, ones), rows)
            return lax.scan(back, ones, pq, reverse=True)[1]

        def step(u, _):
            v = sweep(u[1:-1], a, d)
            v = jnp.concatenate([ones[None], v, ones[None]]).T
            u = u.at[1:-1, 0].set(1.0).at[1:-1, -1].set(1.0)
            return u.at[1:-1, 1:-1].set(sweep(v, d, a).T), None

        return jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)


@program((7, 40, 160), lambda r, n: (r(n, n + 1),))
class deriche:
    def arrays(img):
        alpha = 0.25
        k = (1.0 - np.exp(-alpha)) ** 2 / (1.0 + 2.0 * alpha * np.exp(-alpha) - np.exp(2.0 * alpha))
        a1, a2 = k, k * np.exp(-alpha) * (alpha - 1.0)
        a3, a4 = k * np.exp(-alpha) * (alpha + 1.0), -k * np.exp(-2.0 * alpha)
        b1, b2 = 2.0**-alpha, -np.exp(-2.0 * alpha)
        w, h = img.shape
        y1, y2 = np.empty_like(img), np.empty_like(img)
        y1[:, 0] = a1 * img[:, 0]
        y1[:, 1] = a1 * img[:, 1] + a2 * img[:, 0] + b1 * y1[:, 0]
        for j in range(2, h):
            y1[:, j] = a1 * img[:, j] + a2 * img[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
        y2[:, -1] = 0.0
        y2[:, -2] = a3 * img[:, -1]
        for j in range(h - 3, -1, -1):
            y2[:, j] = (
                a3 * img[:, j + 1] + a4 * img[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
            )
        out = y1 + y2
        y1[0] = a1 * out[0]
        y1[1] = a1 * out[1] + a2 * out[0] + b1 * y1[0]
        for i in range(2, w):
            y1[i] = a1 * out[i] + a2 * out[i - 1] + b1 * y1[i - 1] + b2 * y1[i - 2]
        y2[-1] = 0.0
        y2[-2] = a3 * out[-1]
        for i in range(w - 3, -1, -1):
            y2[i] = a3 * out[i + 1] + a4 * out[i + 2] + b1 * y2[i + 1] + b2 * y2[i + 2]
        out = y1 + y2
        return np.sum(out * out)

    def loops(img):
        alpha = 0.25
        e = math.exp(-alpha)
        k = (1.0 - e) ** 2 / (1.0 + 2.0 * alpha * e - math.exp(2.0 * alpha))
        a1, a2, a3, a4 = k, k * e * (alpha - 1.0), k * e * (alpha + 1.0), -k * e * e
        b1, b2 = 2.0**-alpha, -e * e
        w, h = img.shape
        out, y = np.empty((w, h)), np.empty((w, h))
        for i in range(w):
            x1, u1, u2 = 0.0, 0.0, 0.0
            for j in range(h):
                y[i, j] = a1 * img[i, j] + a2 * x1 + b1 * u1 + b2 * u2
                x1, u2, u1 = img[i, j], u1, y[i, j]
            x1, x2, u1, u2 = 0.0, 0.0, 0.0, 0.0
            for j in range(h - 1, -1, -1):
                u = a3 * x1 + a4 * x2 + b1 * u1 + b2 * u2
                x2, x1, u2, u1 = x1, img[i, j], u1, u
                out[i, j] = y[i, j] + u
        for j in range(h):
            x1, u1, u2 = 0.0, 0.0, 0.0
            for i in range(w):
                y[i, j] = a1 * out[i, j] + a2 * x1 + b1 * u1 + b2 * u2
                x1, u2, u1 = out[i, j], u1, y[i, j]
            x1, x2, u1, u2 = 0.0, 0.0, 0.0, 0.0
            for i in range(w - 1, -1, -1):
                u = a3 * x1 + a4 * x2 + b1 * u1 + b2 * u2
                x2, x1, u2, u1 = x1, out[i, j], u1, u
                out[i, j] = y[i, j] + u
        return np.sum(out * out)

    def jax(img):
        alpha = 0.25
        e = math.exp(-alpha)
        k = (1.0 - e) ** 2 / (1.0 + 2.0 * alpha * e - math.exp(2.0 * alpha))
        a1, a2, a3, a4 = k, k * e * (alpha - 1.0), k * e * (alpha + 1.0), -k * e * e
        b1, b2 = 2.0**-alpha, -e * e

        def smooth(rows):
            def down(carry, x):
                x1, u1, u2 = carry
                u = a1 * x + a2 * x1 + b1 * u1 + b2 * u2
                return (x, u, u1), u

            def up(carry, x):
                x1, x2, u1, u2 = carry
                u = a3 * x1 + a4 * x2 + b1 * u1 + b2 * u2
                return (x, x1, u, u1), u

            zero = jnp.zeros(rows.shape[1])
            falling = lax.scan(down, (zero,) * 3, rows)[1]
            return falling + lax.scan(up, (zero,) * 4, rows, reverse=True)[1]

        return jnp.sum(smooth(smooth(img.T).T) ** 2)


@program(
    ((7, 3), (30, 15), (80, 40)),
    lambda r, n, steps: (r(n, n + 1), r(n, n + 1), r(n, n + 1), r(steps)),
)
class fdtd_2d:
    def arrays(ex, ey, hz, source):
        ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
        for t in range(len(source)):
            ey[0] = source[t]
            ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
            ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
            hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        return np.sum(hz * hz)

    def loops(ex, ey, hz, source):
        ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
        n, m = hz.shape
        for t in range(source.size):
            for j in range(m):
                ey[0, j] = source[t]
            for i in range(1, n):
                for j in range(m):
                    ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
            for i in range(n):
                for j in range(1, m):
                    ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
            for i in range(n - 1):
                for j in range(m - 1):
                    hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
        return np.sum(hz * hz)

    def jax(ex, ey, hz, source):
        def step(fields, s):
            ex, ey, hz = fields
            ey = ey.at[0].set(s).at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
            ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
            curl = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
            return (ex, ey, hz.at[:-1, :-1].add(-0.7 * curl)), None

        return jnp.sum(lax.scan(step, (ex, ey, hz), source)[0][2] ** 2)


@program(((5, 2), (12, 10), (24, 20)), lambda r, n, steps: (r(n, n, n), steps))
class heat_3d:
    def arrays(A, steps):
        A, B = A.copy(), A.copy()
        for _ in range(steps):
            for x, y in ((A, B), (B, A)):
                c = x[1:-1, 1:-1, 1:-1]
                y[1:-1, 1:-1, 1:-1] = (
                    0.125 * (x[2:, 1:-1, 1:-1] - 2.0 * c + x[:-2, 1:-1, 1:-1])
                    + 0.125 * (x[1:-1, 2:, 1:-1] - 2.0 * c + x[1:-1, :-2, 1:-1])
                    + 0.125 * (x[1:-1, 1:-1, 2:] - 2.0 * c + x[1:-1, 1:-1, :-2])
                    + c
                )
        return np.sum(A * A)

    def loops(A, steps):
        A, B = A.copy(), A.copy()
        n = A.shape[0]
        for _ in range(2 * steps):
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    for k in range(1, n - 1):
                        c = A[i, j, k]
                        B[i, j, k] = (
                            0.125 * (A[i + 1, j, k] - 2.0 * c + A[i - 1, j, k])
                            + 0.125 * (A[i, j + 1, k] - 2.0 * c + A[i, j - 1, k])
                            + 0.125 * (A[i, j, k + 1] - 2.0 * c + A[i, j, k - 1])
                            + c
                        )
            A, B = B, A
        return np.sum(A * A)

    def jax(A, steps):
        def step(x, _):
            c = x[1:-1, 1:-1, 1:-1]
            around = x[2:, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1] + x[1:-1, 2:, 1:-1]
            around = around + x[1:-1, :-2, 1:-1] + x[1:-1, 1:-1, 2:] + x[1:-1, 1:-1, :-2]
            return x.at[1:-1, 1:-1, 1:-1].set(c + 0.125 * (around - 6.0 * c)), None

        return jnp.sum(lax.scan(step, A, None, length=2 * steps)[0] ** 2)


@program(((9, 2), (200, 40), (1000, 200)), lambda r, n, steps: (r(n), r(n), steps))
class jacobi_1d:
    def arrays(A, B, steps):
        A, B = A.copy(), B.copy()
        for _ in range(steps):
            B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
            A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])
        return np.sum(A * A)

    def loops(A, B, steps):
        A, B = A.copy(), B.copy()
        for _ in range(steps):
            for i in range(1, A.size - 1):
                B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
            for i in range(1, A.size - 1):
                A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])
        return np.sum(A * A)

    def jax(A, B, steps):
        def step(fields, _):
            A, B = fields
            B = B.at[1:-1].set(0.33333 * (A[:-2] + A[1:-1] + A[2:]))
            return (A.at[1:-1].set(0.33333 * (B[:-2] + B[1:-1] + B[2:])), B), None

        return jnp.sum(lax.scan(step, (A, B), None, length=steps)[0][0] ** 2)


def cross(a):
    return 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])


@program(((7, 2), (40, 20), (120, 50)), lambda r, n, steps: (r(n, n + 1), r(n, n + 1), steps))
class jacobi_2d:
    def arrays(A, B, steps):
        A, B = A.copy(), B.copy()
        for _ in range(steps):
            B[1:-1, 1:-1] = cross(A)
            A[1:-1, 1:-1] = cross(B)
        return np.sum(A * A)

    def loops(A, B, steps):
        n, m = A.shape
        A, B = A.copy(), B.copy()
        for _ in range(steps):
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    B[i, j] = 0.2 * (
                        A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j]
                    )
            for i in range(1, n - 1):
                for j in range(1, m - 1):
                    A[i, j] = 0.2 * (
                        B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j]
                    )
        return np.sum(A * A)

    def jax(A, B, steps):
        def step(fields, _):
            A, B = fields
            B = B.at[1:-1, 1:-1].set(cross(A))
            return (A.at[1:-1, 1:-1].set(cross(B)), B), None

        return jnp.sum(lax.scan(step, (A, B), None, length=steps)[0][0] ** 2)


@program(((6, 2), (20, 4), (60, 10)), lambda r, n, steps: (r(n, n), steps))
class seidel_2d:
    def arrays(A, steps):
        A, n = A.copy(), len(A)
        for _ in range(steps):
            for i in range(1, n - 1):
                A[i, 1:-1] += (
                    A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:]
                    + A[i, 2:] + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
                )  # fmt: skip
                for j in range(1, n - 1):
                    A[i, j] += A[i, j - 1]
                    A[i, j] /= 9.0
        return np.sum(A * A)

    def loops(A, steps):
        A, n = A.copy(), A.shape[0]
        for _ in range(steps):
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    A[i, j] = (
                        A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                        + A[i, j - 1] + A[i, j] + A[i, j + 1]
                        + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                    ) / 9.0  # fmt: skip
        return np.sum(A * A)

    def jax(A, steps):
        def row(above, given):
            here, below = given
            around = above[:-2] + above[1:-1] + above[2:] + here[1:-1] + here[2:]
            around = around + below[:-2] + below[1:-1] + below[2:]

            def cell(left, s):
                return (new := (left + s) / 9.0), new

            new = here.at[1:-1].set(lax.scan(cell, here[0], around)[1])
            return new, new

        def sweep(A, _):
            return A.at[1:-1].set(lax.scan(row, A[0], (A[1:-1], A[2:]))[1]), None

        return jnp.sum(lax.scan(sweep, A, None, length=steps)[0] ** 2)
