"""Interrupts: after Ctrl-C at any moment everything is as before, and the next gradient is right.

A trial runs one workload and has a timer interrupt it at a random moment, as Ctrl-C does. Then nothing is left behind (grad mode, busy tapes,
tapes of transforms, hooks in force, locks), and the same workload computes the right gradient.

One moment is Python's own: where an interrupt arrives as `__exit__` is called, before its first line, the block ends without it, whatever
is written there. Such trials are not judged.
"""

from __future__ import annotations

import contextvars
import functools
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg
from tapegrad.autograd import saving
from tapegrad.compiler import tracing
from tapegrad.core import executors, locks, tape
from tests.campaigns.runner import main

X = np.linspace(0.1, 0.9, 7)
SLOPE = np.sin(X) + X * np.cos(X)


def f(x: Any) -> Any:
    return np.sum(np.sin(x) * x)


def leaf() -> Any:
    return tg.tensor(X, requires_grad=True)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10, atol=1e-12)


def backward() -> None:
    w = leaf()
    for _ in range(20):
        f(w).backward()
    same(w.grad.detach(), 20 * SLOPE)


def by_sweep() -> None:
    tg.set_engine("sweep")
    backward()


def by_replay() -> None:
    tg.set_engine("replay")
    backward()


def modes() -> None:
    w = leaf()
    for _ in range(30):
        with tg.no_grad():
            w * 2
            with tg.enable_grad():
                y = f(w)
            with tg.no_grad(), tg.inference_mode():  # set_grad_enabled acts before its block begins
                w + 1
    y.backward()
    same(w.grad.detach(), SLOPE)


def transform() -> None:
    same(tg.grad(f)(X), SLOPE)


def second() -> None:
    same(tg.hessian(f)(X), np.diag(2 * np.cos(X) - X * np.sin(X)))


def forward() -> None:
    same(tg.jvp(f, (X,), (X,))[1], X @ SLOPE)


def created() -> None:
    w = leaf()
    (g,) = tg.autograd.grad(f(w), w, create_graph=True)
    g.sum().backward()
    same(w.grad.detach(), 2 * np.cos(X) - X * np.sin(X))


def hooked() -> None:
    w = leaf()
    w.register_hook(lambda g: g * 2)
    y = w * 1
    y.register_hook(lambda g: g * 3)
    y.grad_fn.register_hook(lambda gs, out: None)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 1):
        z = f(y)
    z.backward()
    same(w.grad.detach(), 6 * SLOPE)


class Sine(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * np.cos(x)


def function() -> None:
    w = leaf()
    (Sine.apply(w) * w).sum().backward()
    same(w.grad.detach(), SLOPE)


def overwriting() -> None:
    def of(x):
        y = np.zeros(7)
        for k in range(7):
            y[k] = np.sin(x[k]) * x[k]
        y *= 2
        return np.sum(y)

    same(tg.grad(of)(X), 2 * SLOPE)


def mapped() -> None:
    same(tg.vmap(tg.grad(f))(np.stack([X, X])), np.stack([SLOPE, SLOPE]))


def checkpointed() -> None:
    same(tg.grad(lambda x: f(tg.checkpoint(lambda v: v * 1)(x)))(X), SLOPE)


@functools.cache
def compiled() -> Any:
    return tg.compile(tg.grad(f))


def called() -> None:
    for _ in range(50):
        same(compiled()(X), SLOPE)


def traced() -> None:
    same(tg.compile(tg.grad(lambda x: f(x) * 1))(X), SLOPE)


def loop(x):
    s = 0.0
    for v in x:
        s += np.sin(v) * v
    return s


@functools.cache
def native() -> Any:
    return tg.grad(tg.njit(loop))


def native_called() -> None:
    for _ in range(50):
        same(native()(X), SLOPE)


numbers = iter(range(1, 1 << 30))


def native_made() -> None:
    space: dict[str, Any] = {"np": np}
    k = 1.0 + 1.0 / next(numbers)
    exec(
        f"def g(x):\n    s = 0.0\n    for v in x:\n        s += v * v * {k!r}\n    return s", space
    )
    same(tg.grad(tg.njit(space["g"]))(X), 2 * k * X)


QUICK = (backward, by_sweep, by_replay, modes, transform, second, forward, created, hooked, function, overwriting, mapped, checkpointed, called, native_called)  # fmt: skip
SLOW = (traced, native_made)


@functools.cache
def seconds(work: Callable[[], None]) -> float:
    """How long a workload takes once it is warm."""
    times = []
    for _ in range(1 if work in SLOW else 5):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def left_behind() -> str | None:
    if not tg.is_grad_enabled():
        return "grad mode is off"
    if type(tape.RECORDER.get()) is tape.Attended or saving.hooks_in_force() is not None:
        return "hooks are in force"
    if tape.current().outer is not None or any(t.outer is not None for t in tape.known()):
        return "the tape of a transform is current"
    if any(t.busy for t in tape.known()):
        return "a tape is busy"
    if executors.notes_of_walk() is not None:
        return "a walk is under way"
    if tracing._recording:
        return "ops are being recorded"
    held = {f"number {k}": ref() for k, ref in enumerate(locks._known)}
    held |= {f"of tape {k}": t.lock for k, t in enumerate(tape.known())}
    held |= {f"of {type(holder).__name__}": holder._lock for holder in locks._holders()}
    for name, lock in held.items():
        if hasattr(lock, "_is_owned"):
            lost = lock._is_owned()
        else:  # another thread may just have it
            lost = lock is not None and not lock.acquire(timeout=60)
            if not lost and lock is not None:
                lock.release()
        if lost:
            return f"a lock is held, {name}"
    return None


def at_an_exit(error: BaseException) -> bool:
    """Whether the interrupt arrived as `__exit__` was called."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "__exit__" and trace.tb_lineno == code.co_firstlineno:
            return True
        trace = trace.tb_next
    return False


def stop(*_: Any) -> None:
    signal.raise_signal(signal.SIGINT)


def trial(rng: np.random.Generator) -> str | None:
    works = SLOW if rng.random() < 0.02 else QUICK
    work = works[int(rng.integers(len(works)))]
    engine = tg.engine()
    expected = seconds(work)
    tg.set_engine("auto")
    signal.signal(signal.SIGALRM, stop)
    told, judged = "not", True
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-6, float(rng.uniform(0, 1.1)) * expected))
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(0.003)  # what came in a finaliser comes again
    except KeyboardInterrupt as error:
        place = (
            traceback.extract_tb(error.__traceback__)[:-1]
            or traceback.extract_tb(error.__traceback__)
        )[-1]
        told, judged = f"at {place.name}, line {place.lineno}", not at_an_exit(error)
    except Exception as error:
        return f"{work.__name__}: Ctrl-C came out as {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        fault = left_behind()
        if fault is None:
            work()
            fault = left_behind()
    except Exception as error:
        fault = f"afterwards {type(error).__name__}: {error}"
    tg.set_engine(engine)
    tape._tapes[:] = [t for t in tape._tapes if t.outer is None]  # for the next trial
    return None if fault is None or not judged else f"{work.__name__}: {fault} (interrupted {told})"


def apart(rng: np.random.Generator) -> str | None:
    """A trial in a context of its own, so that what one leaves behind does not show in the next."""
    try:
        return contextvars.copy_context().run(trial, rng)
    except KeyboardInterrupt:  # what came in a finaliser comes again, on a busy computer only now
        return None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main("interrupts", apart, 5000)
