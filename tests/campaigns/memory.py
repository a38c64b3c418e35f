"""Memory limits: whatever a workload asks for under RLIMIT_AS, it ends in a MemoryError or in the right answer, and nothing is left behind.

A trial forks a child, which runs one workload, cold or warm, once its address space is limited to what it has and a random rest. Then
the limit is lifted: grad mode, tapes and engine are as before, and the same workload computes the right gradient.
"""

from __future__ import annotations

import compileall
import itertools
import os
import resource
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg
from tapegrad.core import executors, tape
from tests.campaigns.runner import main
from tests.children import in_child

_number = itertools.count(1)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


def points(size: int) -> np.ndarray:
    return np.linspace(0.1, 0.9, size)


def slope(x: np.ndarray) -> np.ndarray:
    return np.sin(x) + x * np.cos(x)


def f(x: Any) -> Any:
    return np.sum(np.sin(x) * x)


def eager(size: int) -> None:
    x = points(size)
    w = tg.tensor(x, requires_grad=True)
    y = w
    for _ in range(5):
        y = y * 1.0
    (f(y) + f(w)).backward()
    same(w.grad, 2 * slope(x))


def by_sweep(size: int) -> None:
    tg.set_engine("sweep")
    try:
        eager(size)
    finally:
        tg.set_engine("auto")


def by_replay(size: int) -> None:
    tg.set_engine("replay")
    try:
        eager(size)
    finally:
        tg.set_engine("auto")


def transformed(size: int) -> None:
    x = points(size)
    same(tg.grad(f)(x), slope(x))
    same(tg.jvp(f, (x,), (np.ones(size),))[1], np.sum(slope(x)))
    same(tg.hvp(f)(x, np.ones(size)), 2 * np.cos(x) - x * np.sin(x))


def multiplied(size: int) -> None:
    n = max(2, int(size**0.5))
    a = np.eye(n) * 2.0
    same(tg.grad(lambda a: np.sum(np.matmul(a, a)))(a), np.full((n, n), 4.0))


def overwritten(size: int) -> None:
    x = points(size)

    def of(x: Any) -> Any:
        y = np.zeros(size)
        y[:] = np.sin(x) * x
        y *= 2.0
        return np.sum(y)

    same(tg.grad(of)(x), 2 * slope(x))


def compiled(size: int) -> None:
    x = points(size)
    k = 1.0 + 1.0 / next(_number)
    same(tg.compile(tg.grad(lambda x: f(x) * k))(x), k * slope(x))


def looped(size: int) -> None:
    x = points(7)
    k = 1.0 + 1.0 / next(_number)

    def steps(x: Any) -> Any:
        return f(tg.fori_loop(0, 5, lambda i, c: c + k * x, x))

    c = 1 + 5 * k
    same(tg.compile(tg.grad(steps))(x), c * slope(c * x))


def native(size: int) -> None:
    space: dict[str, Any] = {"np": np}
    k = 1.0 + 1.0 / next(_number)
    exec(
        f"def g(x):\n    s = 0.0\n    for v in x:\n        s += v * np.sin(v) * {k!r}\n    return s",
        space,
    )
    x = points(min(size, 1000))
    same(tg.grad(tg.njit(space["g"]))(x), k * slope(x))


EAGER = (eager, by_sweep, by_replay, transformed, multiplied, overwritten)
WORKS: tuple[Callable[[int], None], ...] = (*EAGER, *EAGER, compiled, compiled, looped, native)


def address_space() -> int:
    with open("/proc/self/statm") as told:
        return int(told.read().split()[0]) * resource.getpagesize()


def left_behind() -> str | None:
    if not tg.is_grad_enabled() or tg.engine() != "auto":
        return "grad mode or engine are others"
    if tape.current().outer is not None or any(t.outer is not None or t.busy for t in tape.known()):
        return "a tape is busy, or that of a transform is current"
    if executors.notes_of_walk() is not None:
        return "a walk is under way"
    return None


def judged(rng: np.random.Generator) -> str | None:
    """The trial, in the child."""
    work = WORKS[int(rng.integers(len(WORKS)))]
    size = int(10 ** rng.uniform(0, 6.5))
    rest = int(2 ** rng.uniform(18, 29))
    warm = rng.random() < 0.5
    told = f"{work.__name__}({size}), {'warm' if warm else 'cold'}, {rest >> 10} kB left"
    if warm:
        work(10)
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    ended = "an answer"
    try:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + rest, unlimited[1]))
        try:
            work(size)
        except MemoryError:
            ended = "a MemoryError"
        finally:
            resource.setrlimit(resource.RLIMIT_AS, unlimited)
        fault = left_behind()
        if fault is None:
            work(size)
            fault = left_behind()
    except BaseException as error:
        import traceback

        fault = f"{type(error).__name__}: {str(error)[:200]}"
        told += "\n" + "".join(traceback.format_exception(error)[-12:])
        ended = "an error"
    return None if fault is None else f"{work.__name__}: {fault}\n{told}, after {ended}"


def trial(rng: np.random.Generator) -> str | None:
    """One child, waited for."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TAPEGRAD_CACHE_DIR"] = folder
        return waited_for(rng)


def waited_for(rng: np.random.Generator) -> str | None:
    try:
        return in_child(lambda: judged(rng) or "") or None
    except AssertionError as ended:
        work = WORKS[int(rng.integers(len(WORKS)))].__name__
        size, rest = int(10 ** rng.uniform(0, 6.5)), int(2 ** rng.uniform(18, 29))
        warm = "warm" if rng.random() < 0.5 else "cold"
        return f"{work}: {ended}\n{work}({size}), {warm}, {rest >> 10} kB left"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # Python's parser may tell a lack of memory as a SyntaxError: byte code is read, as where a package was installed.
    compileall.compile_dir(os.path.dirname(tg.__file__), quiet=1)
    eager(10)
    main("memory", trial, 500)
