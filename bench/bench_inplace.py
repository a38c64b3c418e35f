"""Writing in place: the recurrence that scientists write into a buffer, and what hooks and views cost.

    c[i] = c[i - 1] * a + b[i]

PyTorch refuses it as it stands (what a product saves must not be overwritten), so there it is written with
`c[i - 1].clone()`, and its walk copies the buffer's gradient at every store: its time grows with the square of
the length, a n + b n², which is why it is timed at the smaller lengths only; two of them tell a and b, and so what 100,000
would take. With `overhead` the same chain of operations is
recorded plainly, and with a hook, a view or a write somewhere in it.
"""

import numpy as np
import pytest

from bench import peers

LENGTHS = {"tapegrad": (2000, 8000, 100_000), "torch": (2000, 8000)}
RATE = 0.999


def coefficients(n):
    return np.cos(np.arange(n))


def by_hand(a, b):
    """Value of sum(c) and its gradient, the adjoint of the recurrence."""
    n = len(b)
    c, adjoint = np.zeros(n), np.ones(n + 1)
    c[0] = b[0]
    for i in range(1, n):
        c[i] = c[i - 1] * a + b[i]
    adjoint[n] = 0.0
    for i in range(n - 1, -1, -1):
        adjoint[i] = 1.0 + a * adjoint[i + 1]
    return c.sum(), adjoint[1:n] @ c[: n - 1], adjoint[:n]


def with_tapegrad(n):
    import tapegrad as tg

    a0, b0 = tg.tensor(RATE, requires_grad=True), tg.tensor(coefficients(n), requires_grad=True)

    def run():
        a0.grad = b0.grad = None
        c = tg.zeros(n)
        c[0] = b0[0]
        for i in range(1, n):
            c[i] = c[i - 1] * a0 + b0[i]
        total = c.sum()
        total.backward()
        return total.item(), a0.grad.item(), b0.grad.numpy()

    return run


def with_torch(n):
    import torch

    a0 = torch.tensor(RATE, dtype=torch.float64, requires_grad=True)
    b0 = torch.tensor(coefficients(n), requires_grad=True)

    def run():
        a0.grad = b0.grad = None
        c = torch.zeros(n, dtype=torch.float64)
        c[0] = b0[0]
        for i in range(1, n):
            c[i] = c[i - 1].clone() * a0 + b0[i]
        total = c.sum()
        total.backward()
        return total.item(), a0.grad.item(), b0.grad.numpy()

    return run


RUNS = {"tapegrad": with_tapegrad, "torch": with_torch}


@pytest.mark.parametrize("contestant", RUNS, indirect=True)
@pytest.mark.parametrize("n", [2000, 8000, 100_000])
def test_recurrence_in_a_buffer(benchmark, contestant, n):
    if n not in LENGTHS[contestant]:
        pytest.skip("its time grows with the square of the length")
    if not benchmark.enabled:
        n = 200  # as a test
    run = RUNS[contestant](n)
    for found, expected in zip(run(), by_hand(RATE, coefficients(n)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    benchmark.group = f"recurrence in a buffer, n={n}"
    benchmark.pedantic(run, rounds=3 if benchmark.enabled else 1)
    if benchmark.stats:
        benchmark.extra_info["ns_per_store"] = 1e9 * benchmark.stats.stats.median / n


def plain(tg, x):
    h = x
    for _ in range(300):
        h = h * 1.0009765625 + x
    return h.sum()


def hooked_once(tg, x):
    h = x * 1.0
    h.register_hook(lambda g: None)
    for _ in range(300):
        h = h * 1.0009765625 + x
    return h.sum()


def with_a_view(tg, x):
    h = x * 1.0
    view = h[:]
    for _ in range(300):
        h = h * 1.0009765625 + x
    return h.sum() + 0.0 * view.sum()


def written_to(tg, x):
    h = x
    for _ in range(300):
        h = h * 1.0009765625 + x
    h += x
    return h.sum()


OVERHEAD = (plain, hooked_once, with_a_view, written_to)


@pytest.mark.parametrize("engine", peers.ENGINES, indirect=True)
@pytest.mark.parametrize("program", OVERHEAD, ids=lambda f: f.__name__)
def test_overhead(benchmark, engine, program):
    """Compare within the group: what one hook, view or write adds to 600 operations."""
    import tapegrad as tg

    x = tg.tensor(np.linspace(0.0, 1.0, 8), requires_grad=True)

    def run():
        (g,) = tg.autograd.grad(program(tg, x), x)
        return g

    growth = 1.0009765625**300
    expected = growth + (growth - 1) / 0.0009765625 + (program is written_to)
    np.testing.assert_allclose(run().numpy(), expected, rtol=1e-9)
    benchmark.group = f"hooks, views and writes, {engine}"
    benchmark(run)
