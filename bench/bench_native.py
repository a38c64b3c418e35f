"""Native derivatives: value and gradients of Numba models beside the model itself, adjoints by hand, JAX and PyTorch.

Answers are asserted first: along a direction against differences, and against the adjoint by hand and the peers that are installed.
`python -m bench.bench_native [MODEL ...]` prints the ratios instead, taken turn about by processor time.
"""

from __future__ import annotations

import functools
import sys
from importlib import util
from typing import Any

import numba
import numpy as np
import pytest

import tapegrad as tg
from bench import measure
from bench.native_models import BY_HAND, MODELS, inputs, operations
from bench.native_peers import MISSING, prepare

SMALL, LARGE = inputs(), inputs(small=False)
PEERS = ("jax", "torch")
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
    for ours, theirs in zip(found, BY_HAND[name](*args), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@by_model
@pytest.mark.parametrize("library", PEERS)
def test_peers_agree(name, library):
    if (library, name) in MISSING:
        pytest.skip(MISSING[library, name])
    pytest.importorskip(library)
    args = SMALL[name]
    value, found = gradients(name)(*args)
    theirs, others = prepare(library, name, args)()
    assert np.isclose(float(theirs), value, rtol=1e-10)
    for g, h in zip(found, others, strict=True):
        assert np.allclose(g, np.asarray(h), rtol=1e-9, atol=1e-12)


@by_model
@pytest.mark.parametrize("contestant", ["value", "tapegrad", "by hand", *PEERS])
def test_time(benchmark, name, contestant):
    args = (LARGE if benchmark.enabled else SMALL)[name]
    benchmark.group = name
    if contestant in PEERS:
        if (contestant, name) in MISSING:
            pytest.skip(MISSING[contestant, name])
        pytest.importorskip(contestant)
        run = prepare(contestant, name, args)
        run()
        benchmark(run)
        return
    call = {"value": model, "tapegrad": gradients, "by hand": BY_HAND.get}[contestant](name)
    tg.native.release_memory()
    call(*args)  # compiles
    if contestant == "tapegrad":
        # A CoDiPack tape takes 24 bytes for each operation.
        kept, made = tg.native.kept_bytes(), operations(name, args)
        benchmark.extra_info["bytes kept"] = kept
        benchmark.extra_info["bytes kept per operation"] = made and round(kept / made, 2)
    benchmark(call, *args)


@tg.njit
def weighted_sines(x):
    s = 0.0
    for i in range(x.size):
        s += x[i] * np.sin(x[i])
    return s


@tg.njit
def turned(x, y):
    return 0.9 * x + 0.1 * np.sin(y)


FEW = np.linspace(0.0, 1.0, 10)
START = tg.tensor(FEW, requires_grad=True)


def slope(calls: int) -> Any:
    """The gradient by the tape, with so many calls before the last one."""
    START.grad = None
    x = START
    for _ in range(calls):
        x = turned(x, START)
    weighted_sines(x).backward()
    return START.grad


WAYS = {
    "value": functools.partial(weighted_sines, FEW),
    "tg.grad": functools.partial(tg.grad(weighted_sines), FEW),
    "on a tensor": functools.partial(weighted_sines, START),
    "backward": functools.partial(slope, 0),
    "backward through 50 more": functools.partial(slope, 50),
}


@pytest.mark.parametrize("way", WAYS)
def test_calls(benchmark, way):
    """What a call costs where there is next to nothing to compute."""
    h = 1e-30
    for calls in (0, 50):
        x = start = FEW + 1j * h
        for _ in range(calls):
            x = 0.9 * x + 0.1 * np.sin(start)
        expected = np.imag(x * np.sin(x)) / h
        assert np.allclose(slope(calls), expected, rtol=1e-12)
    benchmark.group = "calls"
    benchmark(WAYS[way])


def main(names: list[str]) -> None:
    """Times over that of the model itself."""
    print(f"{'model':16}{'ms':>9}{'tapegrad':>10}{'by hand':>10}{'jax':>10}{'torch':>10}")
    for name in names or MODELS:
        args = LARGE[name]
        runs: dict[str, Any] = {
            "value": functools.partial(model(name), *args),
            "tapegrad": functools.partial(gradients(name), *args),
            "by hand": functools.partial(BY_HAND[name], *args),
        }
        for library in PEERS:
            if (library, name) not in MISSING and util.find_spec(library):
                runs[library] = prepare(library, name, args)
        for run in runs.values():
            run()
        times = measure.turn_about(runs, 4.0, measure.CLOCKS["cpu"])
        line = f"{name:16}{min(times['value']) * 1e3:9.2f}"
        for who in ("tapegrad", "by hand", *PEERS):
            told = f"{measure.ratio(times[who], times['value']):.2f}" if who in times else "-"
            line += f"{told:>10}"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
