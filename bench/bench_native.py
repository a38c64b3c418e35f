"""Native derivatives: value and gradients of Numba models beside the model itself and adjoints by hand.

Answers are asserted first: against the hand-written adjoint where there is one, else along a direction against differences.
"""

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
import pytest

import tapegrad as tg
from bench.native_models import BY_HAND, MODELS, inputs, operations

SMALL, LARGE = inputs(), inputs(small=False)
by_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def gradients(name: str) -> Any:
    f, wanted = MODELS[name]
    return tg.value_and_grad(tg.njit(f), wanted)


@functools.cache
def model(name: str) -> Any:
    return numba.njit(error_model="numpy")(MODELS[name][0])


@by_model
def test_answer(name):
    """The gradient along a direction is the difference quotient; by hand it is the same array."""
    _, wanted = MODELS[name]
    args = SMALL[name]
    native = model(name)
    _, found = gradients(name)(*args)
    rng = np.random.default_rng(0)
    directions = {i: rng.normal(size=np.shape(args[i])) for i in wanted}

    def at(t: float) -> float:
        return native(
            *(a + t * directions[i] if i in directions else a for i, a in enumerate(args))
        )

    h = 1e-5
    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    along = sum(np.sum(g * directions[i]) for i, g in zip(wanted, found, strict=True))
    assert np.isclose(along, slope, rtol=1e-5)
    if name in BY_HAND:
        for ours, theirs in zip(found, BY_HAND[name](*args), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@by_model
@pytest.mark.parametrize("contestant", ["value", "tapegrad", "by hand"])
def test_time(benchmark, name, contestant):
    args = (LARGE if benchmark.enabled else SMALL)[name]
    if contestant == "value":
        call = model(name)
    elif contestant == "tapegrad":
        call = gradients(name)
    elif name in BY_HAND:
        call = BY_HAND[name]
    else:
        pytest.skip("nobody has written this adjoint by hand")
    benchmark.group = name
    tg.native.release_memory()
    call(*args)  # compiles
    if contestant == "tapegrad":
        # A CoDiPack tape takes 24 bytes for each operation.
        kept, made = tg.native.kept_bytes(), operations(name, args)
        benchmark.extra_info["bytes kept"] = kept
        benchmark.extra_info["bytes kept per operation"] = made and round(kept / made, 2)
    benchmark(call, *args)
