"""The step of an optimiser beside PyTorch's, on a hundred small parameters and on a big one; equal updates first."""

import numpy as np
import pytest

import tapegrad as tg
from bench import peers

SETTINGS = {
    "SGD": {"lr": 1e-3, "momentum": 0.9},
    "Adam": {"lr": 1e-3},
    "RMSprop": {"lr": 1e-3},
}
SHAPES = {"many-small": [(10,)] * 100, "one-big": [(1_000_000,)]}


def stepper(library, kind, shapes):
    """A function that makes a step, and the parameters it changes."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in shapes]
    slopes = [rng.normal(size=shape) for shape in shapes]
    if library == "torch":
        import torch

        params = [torch.tensor(v, requires_grad=True) for v in values]
        for p, g in zip(params, slopes, strict=True):
            p.grad = torch.tensor(g)
        optimizer = getattr(torch.optim, kind)(params, **SETTINGS[kind])
    else:
        params = [tg.Parameter(v.copy()) for v in values]
        for p, g in zip(params, slopes, strict=True):
            p.grad = tg.tensor(g)
        optimizer = getattr(tg.optim, kind)(params, **SETTINGS[kind])
    return optimizer.step, params


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("library", ["tapegrad", "torch"])
def test_step(benchmark, library, kind, shapes):
    if library == "torch" and not peers.installed("torch"):
        pytest.skip("torch is not installed")
    step, params = stepper(library, kind, SHAPES[shapes])
    reference, others = stepper("tapegrad", kind, SHAPES[shapes])
    step()
    reference()
    for p, q in zip(params, others, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12, atol=1e-15)
    benchmark.group = f"{kind}-{shapes}"
    benchmark(step)
