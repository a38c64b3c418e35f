"""Linear algebra on small and middling matrices, value and gradient: compiled, beside JAX under `jit` and PyTorch, on one thread.

JAX's matrix products take as many threads as they find. Answers are compared before they are timed; gradients by symmetric matrices as
their symmetric parts, since libraries differ in which triangle they put them.
"""

import numpy as np
import pytest

import tapegrad as tg
from bench import peers

SIZES = (5, 20, 60, 200)


def log_determinant(xp, linalg, a, b):
    return linalg.slogdet(a)[1]


def inverse(xp, linalg, a, b):
    return xp.sum(linalg.inv(a) ** 2)


def likelihood(xp, linalg, a, b):
    """Of a normal distribution with the covariance a, but for constants."""
    return b @ linalg.solve(a, b) + linalg.slogdet(a)[1]


def by_cholesky(xp, linalg, a, b):
    """The same by a Cholesky factor."""
    factor = linalg.cholesky(a)
    half = TRIANGULAR[xp.__name__](factor, b)
    return half @ half + 2 * xp.sum(xp.log(xp.diagonal(factor)))


def eigenvalues(xp, linalg, a, b):
    return xp.sum(linalg.eigvalsh(a) ** 3)


def singular_values(xp, linalg, a, b):
    return xp.sum(linalg.svdvals(a) ** 3)


def exponential(xp, linalg, a, b):
    return xp.sum(EXPONENTIAL[xp.__name__](a / len(a)) ** 2)


PROGRAMS = (log_determinant, inverse, likelihood, by_cholesky, eigenvalues, singular_values, exponential)  # fmt: skip


def _jax_triangular(a, b):
    import jax.scipy.linalg

    return jax.scipy.linalg.solve_triangular(a, b, lower=True)


def _jax_exponential(a):
    import jax.scipy.linalg

    return jax.scipy.linalg.expm(a)


def _torch_triangular(a, b):
    import torch

    return torch.linalg.solve_triangular(a, b[:, None], upper=False)[:, 0]


def _torch_exponential(a):
    import torch

    return torch.linalg.matrix_exp(a)


TRIANGULAR = {
    "numpy": lambda a, b: tg.linalg.solve_triangular(a, b, lower=True),
    "jax.numpy": _jax_triangular,
    "torch": _torch_triangular,
}
EXPONENTIAL = {
    "numpy": lambda a: tg.linalg.expm(a),
    "jax.numpy": _jax_exponential,
    "torch": _torch_exponential,
}


def data(n):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, n))
    return a @ a.T / n + np.eye(n), rng.normal(size=n)


def compiled(program, a, b):
    tg.set_num_threads(1)
    both = tg.compile(tg.value_and_grad(lambda a: program(np, np.linalg, a, b)))
    return lambda: both(a)


def compiled_value(program, a, b):
    """The value alone: what the gradient costs is the ratio to this one."""
    tg.set_num_threads(1)
    value = tg.compile(lambda a: program(np, np.linalg, a, b))
    return lambda: (value(a), None)


def eager(program, a, b):
    both = tg.value_and_grad(lambda a: program(np, np.linalg, a, b))
    return lambda: both(a)


def jax(program, a, b):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    a, b = jnp.asarray(a), jnp.asarray(b)
    both = jax.jit(jax.value_and_grad(lambda a: program(jnp, jnp.linalg, a, b)))
    return lambda: jax.block_until_ready(both(a))


def torch(program, a, b):
    import torch

    torch.set_num_threads(1)
    x, b = torch.tensor(a, requires_grad=True), torch.tensor(b)

    def run():
        x.grad = None
        value = program(torch, torch.linalg, x, b)
        value.backward()
        return value.detach(), x.grad

    return run


def symmetric(g):
    g = np.asarray(g)
    return g + g.T


@pytest.mark.parametrize("contestant", [compiled, compiled_value, eager, jax, torch])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_value_and_gradient(benchmark, program, n, contestant):
    if contestant.__name__ in ("jax", "torch") and not peers.installed(contestant.__name__):
        pytest.skip(f"{contestant.__name__} is not installed")
    a, b = data(n)
    expected, slopes = eager(program, a, b)()
    run = contestant(program, a, b)
    run()  # a compiled one traces
    value, gradient = run()
    np.testing.assert_allclose(float(value), expected, rtol=1e-9)
    if gradient is not None:
        wanted = symmetric(slopes)
        np.testing.assert_allclose(symmetric(gradient), wanted, atol=1e-8 * abs(wanted).max())
    benchmark.group = f"{program.__name__}, {n} rows"
    benchmark(run)
