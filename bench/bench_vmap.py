"""The gradient of each record by `vmap`, beside `jax.vmap` and `torch.func.vmap`, whose functions become ones of whole batches."""

import numpy as np
import pytest

from bench import peers

_rng = np.random.default_rng(0)
WEIGHTS, INPUTS, TARGETS = (_rng.normal(size=shape) for shape in ((8, 4), (1000, 8), (1000, 4)))


def loss(xp, weights, x, y):
    return xp.sum((xp.tanh(x @ weights) - y) ** 2)


def right():
    values = np.tanh(INPUTS @ WEIGHTS)
    return INPUTS[:, :, None] * (2 * (values - TARGETS) * (1 - values**2))[:, None]


def compiled():
    import tapegrad as tg

    tg.set_num_threads(1)
    each = tg.compile(tg.vmap(tg.grad(lambda *given: loss(np, *given)), (None, 0, 0)))
    return lambda: each(WEIGHTS, INPUTS, TARGETS)


def eager():
    import tapegrad as tg

    each = tg.vmap(tg.grad(lambda *given: loss(np, *given)), (None, 0, 0))
    return lambda: each(WEIGHTS, INPUTS, TARGETS)


def jax():
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    given = [jnp.asarray(x) for x in (WEIGHTS, INPUTS, TARGETS)]
    each = jax.jit(jax.vmap(jax.grad(lambda *given: loss(jnp, *given)), (None, 0, 0)))
    return lambda: jax.block_until_ready(each(*given))


def torch():
    import torch

    torch.set_num_threads(1)
    given = [torch.tensor(x) for x in (WEIGHTS, INPUTS, TARGETS)]
    each = torch.func.vmap(torch.func.grad(lambda *given: loss(torch, *given)), (None, 0, 0))
    return lambda: each(*given)


@pytest.mark.parametrize("contestant", [compiled, eager, jax, torch])
def test_the_gradient_of_each_record(benchmark, contestant):
    if contestant.__name__ in ("jax", "torch") and not peers.installed(contestant.__name__):
        pytest.skip(f"{contestant.__name__} is not installed")
    run = contestant()
    np.testing.assert_allclose(np.asarray(run()), right(), rtol=1e-10, atol=1e-12)
    benchmark(run)
