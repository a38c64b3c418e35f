"""Compiled loops over growing slices and over entries beside JAX's jit: time of value and gradient, first call, growth with the length.

The texts are those of array programs and of textbooks; JAX's are as its users write them, rows masked or taken whole, since its slices
have fixed lengths and its loops over entries are slow. `python -m bench.bench_triangles [LENGTH ...]` prints milliseconds, ratios and
seconds of first calls, taken turn about.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from bench.bench_form import by_jax


def substitution(l, b):
    x = tg.zeros(b.shape[0])
    for i in range(b.shape[0]):
        x[i] = (b[i] - l[i, :i] @ x[:i]) / l[i, i]
    return np.sum(x * x)


def factors(a0):
    a = a0.copy()
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k][:, None] * a[k, k + 1 :]
    return np.sum(a * a)


def factors_by_entries(a0):
    a, n = a0.copy(), a0.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = a[i, j] - a[i, k] * a[k, j]
    return np.sum(a * a)


def paths_by_entries(d0):
    d, n = d0.copy(), d0.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                d[i, j] = np.minimum(d[i, j], d[i, k] + d[k, j])
    return np.sum(d * d)


def inputs(name: str, n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    if name == "paths_by_entries":
        return (rng.uniform(0.1, 2.0, (n, n)),)
    a = rng.normal(size=(n, n)) + 2.0 * n * np.eye(n)
    return (np.tril(a), rng.normal(size=n)) if name == "substitution" else (a,)


MODELS = {f.__name__: f for f in (substitution, factors, factors_by_entries, paths_by_entries)}
THEIRS = {"factors_by_entries": "factors", "paths_by_entries": "shortest_paths"}
"""JAX's model, where it has another name."""
MOST = {"factors_by_entries": 100, "paths_by_entries": 50}
"""Lengths up to which Python runs a program by entries in seconds."""


def compiled(name: str, count: int) -> Any:
    return tg.compile(tg.value_and_grad(MODELS[name], argnums=tuple(range(count))))


@pytest.mark.parametrize("name", MODELS)
def test_answer(name):
    pytest.importorskip("jax")
    args = inputs(name, 24 if name not in MOST else 9)
    value, found = compiled(name, len(args))(*args)
    theirs, others = by_jax(THEIRS.get(name, name), args)()
    assert np.isclose(value, float(theirs), rtol=1e-12)
    for g, other in zip(found, others, strict=True):
        assert np.allclose(g, np.asarray(other), rtol=1e-10, atol=1e-13)


def _took(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(lengths: list[int]) -> None:
    for name in MODELS:
        for n in (n for n in lengths if n <= MOST.get(name, n)):
            args = inputs(name, n)
            mine = compiled(name, len(args))
            calls = {"tapegrad": lambda: mine(*args), "jax": by_jax(THEIRS.get(name, name), args)}  # noqa: B023  called in this turn
            first = {k: _took(call) for k, call in calls.items()}
            best = {k: min(_took(call) for _ in range(5)) for k, call in calls.items()}
            for _ in range(20):
                best = {k: min(best[k], _took(call)) for k, call in calls.items()}
            print(
                f"{name:19s}{n:5d}  ms: tapegrad {1e3 * best['tapegrad']:8.3f}, jax {1e3 * best['jax']:8.3f}, "
                f"ratio {best['jax'] / best['tapegrad']:5.2f}  first call, s: {first['tapegrad']:5.2f}, {first['jax']:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]] or [25, 50, 100, 200, 400])
