"""Processes: the child of a fork computes right gradients, or is refused the compiler by a clear error; it never hangs.

A process keeps threads busy: one records and walks, one compiles programs, one compiles Numba functions, one runs programs whose loops
are shared by several threads, and the builder compiles kernels. Meanwhile the main thread forks at random moments, now and then
while it is inside a walk itself. Each child runs a random choice of workloads within a time limit.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg
from tests.campaigns.runner import main
from tests.children import in_child

X = np.linspace(0.1, 0.9, 7)


def fresh(k: Any) -> Callable[[Any], Any]:
    """A function that has not been compiled before."""
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x):\n    return np.sum(np.sin(x) * x) * {k!r}", space)
    return space["f"]


def slope(k: Any) -> np.ndarray:
    return k * (np.sin(X) + X * np.cos(X))


def eager(k: float) -> None:
    w = tg.tensor(X, requires_grad=True)
    handle = w.register_hook(lambda g: g * 2)
    fresh(k)(w).backward()
    handle.remove()
    np.testing.assert_allclose(w.grad.numpy(), 2 * slope(k), rtol=1e-12)


def transform(k: float) -> None:
    np.testing.assert_allclose(tg.grad(fresh(k))(X), slope(k), rtol=1e-12)


def program(k: float) -> None:
    np.testing.assert_allclose(tg.compile(tg.grad(fresh(k)))(X), slope(k), rtol=1e-12)


def native(k: float) -> None:
    space: dict[str, Any] = {"np": np}
    text = (
        f"def f(x):\n    s = 0.0\n    for v in x:\n        s += np.sin(v) * v * {k!r}\n    return s"
    )
    exec(text, space)
    np.testing.assert_allclose(tg.grad(tg.njit(space["f"]))(X), slope(k), rtol=1e-12)


@functools.cache
def large() -> Any:
    return tg.compile(tg.grad(lambda x: np.sum(np.sin(x) * x)))


def shared(k: float) -> None:
    x = np.full(200_000, k)
    np.testing.assert_allclose(large()(x)[:3], np.sin(k) + k * np.cos(k), rtol=1e-12)


def kernels(k: float) -> None:
    from tapegrad import replay

    replay.load()
    for _ in range(20):
        transform(k)


WORKLOADS = (eager, transform, program, native, shared, kernels)


def keep_busy(work: Callable[[float], None], seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        work(float(rng.uniform(0.5, 1.5)))
        time.sleep(float(rng.uniform(0, 0.01)))


@functools.cache
def started() -> None:
    for k, work in enumerate(WORKLOADS):
        work(1.25)
        threading.Thread(target=keep_busy, args=(work, k), daemon=True).start()


def answers(works: list[Callable[[float], None]], k: float) -> str:
    """In the child."""
    told = "right"
    for work in works:
        try:
            work(k)
        except BaseException as error:
            if not isinstance(error, RuntimeError) or "in a forked process" not in str(error):
                told = f"{work.__name__}: {type(error).__name__}: {error}"
    return told


def fork_inside() -> int:
    """A fork in the middle of a walk."""
    pids: list[int] = []
    w = tg.tensor(X, requires_grad=True)
    y = w * 2
    y.register_hook(lambda g: pids.append(os.fork()))
    (y * y).sum().backward()
    return pids[0]


def trial(rng: np.random.Generator) -> str | None:
    started()
    time.sleep(float(rng.uniform(0, 0.05)))
    works = [WORKLOADS[int(k)] for k in rng.integers(len(WORKLOADS), size=2)]
    k = float(rng.uniform(0.5, 1.5))
    fork = fork_inside if rng.random() < 0.2 else os.fork
    try:
        told = in_child(lambda: answers(works, k), fork)
    except AssertionError as ended:
        told = str(ended)
    names = ", ".join(work.__name__ for work in works)
    return None if told == "right" else f"{told} in {names}"


if __name__ == "__main__":
    main("forks", trial, 500)
