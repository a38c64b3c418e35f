"""The program form beside Numba's own primal, the generated adjoint of `tg.njit`, and JAX's jit, on array text and on scalar loops.

Answers are asserted first: along a direction against differences, between the two texts, and against JAX where it is installed.
`python -m bench.bench_form [PROGRAM ...]` prints milliseconds, ratios and first calls instead, taken turn about in one process; with
`--adjoint` also those of the generated adjoint, which takes a minute to compile some of them.
"""

from __future__ import annotations

import functools
import sys
import time
from importlib import util
from typing import Any

import numba
import numpy as np
import pytest

import tapegrad as tg
from bench.form_models import MODELS, inputs, jax_models

by_program = pytest.mark.parametrize("name", MODELS)


def places(args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(i for i, a in enumerate(args) if isinstance(a, np.ndarray))


@functools.cache
def gradients(name: str, mode: str = "form") -> Any:
    f, what = MODELS[name]
    return tg.value_and_grad(tg.njit(mode=mode)(f), places(inputs()[what]))


@functools.cache
def primal(name: str) -> Any:
    return numba.njit(error_model="numpy")(MODELS[name][0])


def by_jax(what: str, args: tuple[Any, ...]) -> Any:
    """Value and gradients by JAX, compiled when it is first called, whole numbers being settings."""
    import jax

    jax.config.update("jax_enable_x64", True)
    whole = tuple(i for i, a in enumerate(args) if isinstance(a, int))
    call = jax.jit(jax.value_and_grad(jax_models()[what], places(args)), static_argnums=whole)
    given = [a if isinstance(a, int) else jax.numpy.asarray(a) for a in args]
    return lambda: jax.block_until_ready(call(*given))


@by_program
def test_answer(name):
    """The gradient along a direction is the difference quotient; array text and loops have the same gradient."""
    _, what = MODELS[name]
    args = inputs()[what]
    value, found = gradients(name)(*args)
    assert np.isclose(value, primal(name)(*args), rtol=1e-10)
    rng = np.random.default_rng(1)
    directions = {i: rng.normal(size=args[i].shape) for i in places(args)}

    def at(t: float) -> float:
        moved = [a + t * directions[i] if i in directions else a for i, a in enumerate(args)]
        return primal(name)(*moved)

    h = 1e-6 if what == "shortest_paths" else 1e-4  # its kinks are close
    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    along = sum(np.sum(g * directions[i]) for i, g in zip(places(args), found, strict=True))
    assert np.isclose(along, slope, rtol=1e-6)
    for g, other in zip(found, gradients(what)(*args)[1], strict=True):
        assert np.allclose(g, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("what", inputs())
def test_jax_agrees(what):
    pytest.importorskip("jax")
    args = inputs()[what]
    value, found = gradients(what)(*args)
    theirs, others = by_jax(what, args)()
    assert np.isclose(float(theirs), value, rtol=1e-10)
    for g, other in zip(found, others, strict=True):
        assert np.allclose(g, np.asarray(other), rtol=1e-8, atol=1e-11)


@by_program
@pytest.mark.parametrize("contestant", ["form", "value", "jax"])
def test_time(benchmark, name, contestant):
    what = MODELS[name][1]
    args = inputs(small=not benchmark.enabled)[what]
    benchmark.group = name
    if contestant == "jax":
        pytest.importorskip("jax")
        call = by_jax(what, args)
    else:
        call = functools.partial(gradients(name) if contestant == "form" else primal(name), *args)
    call()
    benchmark(call)


# ------------------------------------------------------------------------------------------------ the ratios


def _first(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _least(calls: dict[str, Any], rounds: int = 20) -> dict[str, float]:
    """Milliseconds of each, taken turn about."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], 1e3 * _first(call))
    return best


def main(names: list[str]) -> None:
    adjoint = "--adjoint" in names
    chosen = [n for n in names if n in MODELS] or list(MODELS)
    large, rows = inputs(small=False), []
    print("milliseconds a call (seconds of the first call)")
    for name in chosen:
        what = MODELS[name][1]
        args = large[what]
        calls = {
            "form": functools.partial(gradients(name), *args),
            "value": functools.partial(primal(name), *args),
        }
        if util.find_spec("jax"):
            calls["jax"] = by_jax(what, args)
        if adjoint:
            calls["adjoint"] = functools.partial(gradients(name, "adjoint"), *args)
        first = {n: _first(c) for n, c in calls.items()}
        _, mine = calls["form"]()
        for other in {"jax", "adjoint"} & calls.keys():
            for g, h in zip(mine, calls[other]()[1], strict=True):
                assert np.allclose(g, np.asarray(h), rtol=1e-7, atol=1e-9), (name, other)
        took = _least(calls)
        rows.append((took, first))
        print(
            f"{name:22s}" + "".join(f"  {n} {took[n]:8.3f} ({first[n]:6.2f})" for n in calls),
            flush=True,
        )
    for other in rows[0][0].keys() - {"form"}:
        ratios = [took[other] / took["form"] for took, _ in rows]
        firsts = [first[other] / first["form"] for _, first in rows]
        mean, began = (np.exp(np.mean(np.log(r))) for r in (ratios, firsts))
        print(
            f"{other} over form: {mean:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}; first calls {began:.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
