"""Sparse systems, products and Jacobians: the gradient of a solution beside the solution alone, sparse derivatives beside dense ones.

Poisson: −∇·(k ∇u) = f on a square, k unknown on every face between two cells, by `spsolve`; the loss is the mean square of u. The gradient
is by all coefficients. Peers are SciPy's solution alone, the adjoint written by hand, and for sparse Jacobians and Hessians CasADi where it
is installed. Compiled products and triangular systems stand beside SciPy's and JAX's.
"""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import tapegrad as tg

SIZES = (32, 316)  # 1e3 and 1e5 unknowns; `python -m bench.bench_sparse` does 1e6 too


class Poisson:
    """A square of n x n cells; a coefficient for each face, those to the walls included, along each axis."""

    def __init__(self, n):
        self.n = n
        cells = np.arange(n * n).reshape(n, n)
        inner = [(cells[:-1], cells[1:]), (cells[:, :-1], cells[:, 1:])]
        self.left, self.right = (
            np.concatenate([pair[i].ravel() for pair in inner]) for i in (0, 1)
        )
        self.walls = np.concatenate([cells[0], cells[-1], cells[:, 0], cells[:, -1]])
        faces = len(self.left)
        inside, outside = np.arange(faces), faces + np.arange(len(self.walls))
        rows = np.concatenate([self.left, self.right, self.left, self.right, self.walls])
        columns = np.concatenate([self.left, self.right, self.right, self.left, self.walls])
        self.coefficient = np.concatenate([inside, inside, inside, inside, outside])
        self.sign = np.concatenate(
            [np.ones(2 * faces), -np.ones(2 * faces), np.ones(len(self.walls))]
        )
        self.places = (rows, columns)
        self.k = 1 + np.random.default_rng(0).random(faces + len(self.walls))
        self.f = np.ones(n * n)

    def solved(self, k):
        """u by SciPy alone."""
        return self.factored(k).solve(self.f)

    def matrix(self, k):
        return scipy.sparse.coo_array((k[self.coefficient] * self.sign, self.places)).tocsc()

    def factored(self, k):
        return scipy.sparse.linalg.splu(self.matrix(k), permc_spec="MMD_AT_PLUS_A")

    def loss(self, k):
        matrix = tg.sparse.coo_array((k[self.coefficient] * self.sign, self.places))
        u = tg.sparse.linalg.spsolve(matrix, self.f, permc_spec="MMD_AT_PLUS_A")
        return np.mean(u**2)

    def gradient(self):
        return tg.grad(self.loss)(self.k)

    def by_hand(self):
        """The adjoint method, written out."""
        lu = self.factored(self.k)
        u = lu.solve(self.f)
        adjoint = lu.solve(2 * u / u.size, "T")
        rows, columns = self.places
        entries = -adjoint[rows] * u[columns] * self.sign
        return np.bincount(self.coefficient, entries, minlength=len(self.k))


def brusselator(n):
    """The right side of the Brusselator on n x n points, as a function of both concentrations."""
    a = 0.02 * (n + 1) ** 2

    def lap(a):
        return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a

    def f(state):
        u, v = np.reshape(state, (2, n, n))
        return np.stack(
            [1 + u * u * v - 4.4 * u + a * lap(u), 3.4 * u - u * u * v + a * lap(v)]
        ).ravel()

    return f, np.random.default_rng(0).uniform(1, 2, 2 * n * n)


@pytest.mark.parametrize("what", ["solution", "by_hand", "gradient"])
@pytest.mark.parametrize("n", SIZES)
def test_poisson(benchmark, n, what):
    problem = Poisson(n)
    expected = problem.by_hand()
    # The condition number of the matrix is 1e5, and sums are rounded in another order.
    np.testing.assert_allclose(problem.gradient(), expected, atol=1e-9 * np.abs(expected).max())
    runs = {
        "solution": lambda: problem.solved(problem.k),
        "by_hand": problem.by_hand,
        "gradient": problem.gradient,
    }
    benchmark.group = f"poisson-{n * n}"
    benchmark(runs[what])


@pytest.mark.parametrize("sparsity", [None, "detect", "given"])
def test_brusselator(benchmark, sparsity):
    f, x = brusselator(32)
    dense = tg.jacobian(f)(x)
    pattern = tg.jacobian(f, sparsity="detect")(x) if sparsity == "given" else sparsity
    jacobian = tg.jacobian(f, sparsity=pattern)
    found = jacobian(x)
    np.testing.assert_allclose(
        found if sparsity is None else found.toarray(), dense, rtol=1e-12, atol=1e-12
    )
    benchmark.group = "brusselator-32"
    benchmark(jacobian, x)


POINTS = 3334
"""Of the path of Van der Pol's oscillator under control: three unknowns each, ten thousand in all."""


def defects(z, joined):
    """By how much the states of each interval miss the trapezoid rule."""
    x, v, u = z[:POINTS], z[POINTS : 2 * POINTS], z[2 * POINTS :]
    h = 10 / POINTS
    rates = (1 - v * v) * x - v + u, x
    return joined(
        *(a[1:] - a[:-1] - h / 2 * (r[1:] + r[:-1]) for a, r in zip((x, v), rates, strict=True))
    )


def lagrangian(z, joined, multipliers):
    """Cost, and multipliers times defects; a dot product is `multipliers.T @ d` in both libraries."""
    return 10 / POINTS * (z.T @ z) + multipliers.T @ defects(z, joined)


PATH = np.random.default_rng(0).normal(size=3 * POINTS)
MULTIPLIERS = np.random.default_rng(1).normal(size=2 * (POINTS - 1))


def sparse_by_tapegrad(what):
    """The function that returns a matrix of SciPy's, its pattern known and its directions compiled, and the point."""
    if what == "brusselator":
        f, x = brusselator(32)
        made = tg.jacobian(tg.compile(f), sparsity="detect")
    else:
        x, joined = PATH, lambda *parts: np.concatenate(parts)
        if what == "control":
            made = tg.jacobian(tg.compile(lambda z: defects(z, joined)), sparsity="detect")
        else:
            of = tg.compile(lambda z: lagrangian(z, joined, MULTIPLIERS))
            made = tg.hessian(of, sparsity="detect")
    made(x)
    return lambda: made(x)


def sparse_by_casadi(what):
    """The same, as a function that returns CasADi's matrix."""
    import casadi

    if what == "brusselator":
        n, (_, x) = 32, brusselator(32)
        state = casadi.SX.sym("state", 2 * n * n)
        # CasADi's matrices lie by columns, which are rows here: the Laplacian is the same.
        u, v = (casadi.reshape(part, n, n) for part in (state[: n * n], state[n * n :]))
        before, after, a = (
            np.roll(np.arange(n), 1).tolist(),
            np.roll(np.arange(n), -1).tolist(),
            0.02 * (n + 1) ** 2,
        )

        def lap(w):
            return w[before, :] + w[after, :] + w[:, before] + w[:, after] - 4 * w

        right = [1 + u * u * v - 4.4 * u + a * lap(u), 3.4 * u - u * u * v + a * lap(v)]
        matrix = casadi.jacobian(casadi.vertcat(*map(casadi.vec, right)), state)
    else:
        x, state = PATH, casadi.SX.sym("z", len(PATH))
        if what == "control":
            matrix = casadi.jacobian(defects(state, casadi.vertcat), state)
        else:
            matrix = casadi.hessian(
                lagrangian(state, casadi.vertcat, casadi.DM(MULTIPLIERS)), state
            )[0]
    made = casadi.Function("made", [state], [matrix])
    return lambda: made(x)


@pytest.mark.parametrize("by", ["tapegrad", "casadi"])
@pytest.mark.parametrize("what", ["brusselator", "control", "control, hessian"])
def test_beside_casadi(benchmark, what, by):
    run = sparse_by_tapegrad(what)
    if by == "casadi":
        pytest.importorskip("casadi")
        expected, run = run(), sparse_by_casadi(what)
        assert abs(run().sparse() - expected).max() <= 1e-12 * abs(expected).max()
    benchmark.group = what
    benchmark(run)


PRODUCTS = {
    "poisson": lambda: Poisson(316).matrix(Poisson(316).k).tocsr(),
    "random": lambda: scipy.sparse.random_array(
        (10_000, 10_000), density=1e-3, rng=np.random.default_rng(0), format="csr"
    ),
    "long rows": lambda: scipy.sparse.random_array(
        (2000, 2000), density=0.1, rng=np.random.default_rng(0), format="csr"
    ),
}
"""Matrices of 5e5, 1e5 and 4e5 entries."""


def product_by_hand(a):
    """Value and gradient of sum(sin(A x)) by entries and vector, written out with SciPy."""
    rows = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))

    def run(data, x):
        matrix = scipy.sparse.csr_array((data, a.indices, a.indptr), shape=a.shape)
        y = matrix @ x
        g = np.cos(y)
        return np.sum(np.sin(y)), (g[rows] * x[a.indices], matrix.T @ g)

    return run


def product_by_tapegrad(a):
    """The same, compiled."""
    made = tg.sparse.csr_array(a)
    both = tg.value_and_grad(lambda data, x: np.sum(np.sin(made.with_data(data) @ x)), (0, 1))
    return tg.compile(both)


def product_by_jax(a):
    """The same by JAX's BCOO, whose indices are said to be sorted and unique."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from jax.experimental import sparse

    rows = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
    places = jax.numpy.asarray(np.stack([rows, a.indices], axis=1))

    def loss(data, x):
        matrix = sparse.BCOO(
            (data, places), shape=a.shape, indices_sorted=True, unique_indices=True
        )
        return jax.numpy.sum(jax.numpy.sin(matrix @ x))

    both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return lambda data, x: jax.block_until_ready(both(data, x))


@pytest.mark.parametrize("by", ["tapegrad", "by_hand", "jax"])
@pytest.mark.parametrize("matrix", PRODUCTS)
def test_product(benchmark, matrix, by):
    a = PRODUCTS[matrix]()
    x = np.random.default_rng(1).normal(size=a.shape[1])
    run = {"tapegrad": product_by_tapegrad, "by_hand": product_by_hand, "jax": product_by_jax}[by](
        a
    )
    value, slopes = run(a.data, x)
    expected, others = product_by_hand(a)(a.data, x)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    for found, other in zip(slopes, others, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-9)
    benchmark.group = f"product-{matrix}"
    benchmark(run, a.data, x)


@pytest.mark.parametrize("by", ["tapegrad", "scipy", "superlu"])
@pytest.mark.parametrize("matrix", PRODUCTS)
def test_triangle(benchmark, matrix, by):
    """A triangular system: SciPy's function makes factors each time, those of SuperLU are made before."""
    a = PRODUCTS[matrix]()
    b = np.random.default_rng(1).normal(size=a.shape[1])
    lower = (scipy.sparse.tril(a) + 8 * scipy.sparse.eye_array(a.shape[0])).tocsr()
    expected = scipy.sparse.linalg.spsolve_triangular(lower, b)
    made = {
        "tapegrad": lambda: tg.compile(lambda b: tg.sparse.linalg.spsolve_triangular(lower, b)),
        "scipy": lambda: lambda b: scipy.sparse.linalg.spsolve_triangular(lower, b),
        "superlu": lambda: scipy.sparse.linalg.splu(lower.tocsc(), permc_spec="NATURAL").solve,
    }[by]()
    np.testing.assert_allclose(made(b), expected, rtol=1e-10, atol=1e-12)
    benchmark.group = f"triangle-{matrix}"
    benchmark(made, b)


def main():
    """The large problem, once: seconds of the processor and memory of a solution and of a gradient, each in a process of its own."""
    import json
    import resource
    import subprocess
    import sys
    import time

    if sys.argv[2:] and not sys.argv[2].isdigit():
        problem, what = Poisson(int(sys.argv[1])), sys.argv[2]
        small = Poisson(8)  # what is imported at first use is no part of it
        small.gradient(), small.by_hand()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run = {
            "solution": lambda: problem.solved(problem.k),
            "by_hand": problem.by_hand,
            "gradient": problem.gradient,
        }[what]
        t = time.process_time()
        run()
        seconds = time.process_time() - t
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(
            json.dumps(
                {"n": problem.n**2, "what": what, "seconds": round(seconds, 2), "MB": round(memory)}
            )
        )
        return
    for n in map(int, sys.argv[1:] or (316, 1000)):
        for what in ("solution", "by_hand", "gradient"):
            subprocess.run([sys.executable, "-m", "bench.bench_sparse", str(n), what], check=True)


if __name__ == "__main__":
    main()
