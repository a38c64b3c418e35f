"""What a gradient costs in memory; each figure is taken in a process of its own.

Resident memory is read from /proc, because tracemalloc sees neither torch's allocator nor a
kernel's malloc. The unit of a peak is one array of the chain: 3 arrays means that a gradient needs
three beside its inputs and the result it returns, whatever the length of the chain.
"""

import importlib
from pathlib import Path

import numpy as np

from bench import measure

STATUS = Path("/proc/self/status")
MISSING = None if STATUS.exists() else "resident memory is read from /proc, absent here"

OPERATIONS = 200
LIBRARIES = ("tapegrad", "torch")


def add(xp, k, h, x, y, z):
    """No partial reads a value: nothing needs saving."""
    return h + z


def scale(xp, k, h, x, y, z):
    """The partial is a number."""
    return h * 1.0001


def scale_array(xp, k, h, x, y, z):
    """The partial is a constant array, alive anyway."""
    return h * y


def multiply(xp, k, h, x, y, z):
    """Both factors vary: every h must be kept."""
    return h * x


def mixed(xp, k, h, x, y, z):
    """In turn multiply by a constant array, add one, sin: one h in three must be kept."""
    if k % 3 == 2:
        return xp.sin(h)
    return h * y if k % 3 == 0 else h + z


ROUNDS = {f.__name__: f for f in (add, scale, scale_array, multiply, mixed)}


def chain(xp, kind, x, y, z, operations):
    h = x
    for k in range(operations):
        h = ROUNDS[kind](xp, k, h, x, y, z)
    return h


def status(field: str) -> int:
    """Bytes of VmRSS (resident now) or VmHWM (its highest so far)."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


def forget_highest() -> int:
    """Bytes resident now, from which VmHWM starts again."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmHWM")


def prepare(library: str, engine: str):
    """The library's namespace, and how it makes a leaf and a constant."""
    xp = importlib.import_module(library)
    if library == "tapegrad":
        xp.set_engine(engine)
        return xp, lambda a: xp.tensor(a, requires_grad=True), lambda a: a
    xp.set_num_threads(1)
    return xp, lambda a: xp.from_numpy(a).requires_grad_(), xp.from_numpy


def peak(library: str, engine: str, kind: str, size: int, operations: int) -> dict:
    """Peak of resident memory over a forward and a backward pass, above what was there before.

    `.sum()` at the end makes it a scalar; the chain's last value is dropped before the backward
    pass, as it is when the chain is an expression in a loss function.
    """
    xp, leaf, constant = prepare(library, engine)
    r = np.random.default_rng(0)
    arrays = r.uniform(0.99, 1.01, size), r.uniform(0.99, 1.01, size), r.uniform(-0.1, 0.1, size)

    def gradient(n):
        x, y, z = leaf(arrays[0][:n].copy()), constant(arrays[1][:n]), constant(arrays[2][:n])
        start = forget_highest()
        loss = chain(xp, kind, x, y, z, operations).sum()
        forward = status("VmHWM") - start
        loss.backward()
        return x.grad, forward, status("VmHWM") - start

    small = 1000
    gradient(small)  # warm: kernels and buffers that any size needs are there before it counts
    g, forward, both = gradient(size)

    # The chain works element by element: one complex step gives every element of the answer.
    x, y, z = (a[:small] for a in arrays)
    expected = chain(np, kind, x + 1e-30j, y, z, operations).imag / 1e-30
    np.testing.assert_allclose(np.asarray(g[:small]), expected, rtol=1e-9)
    bytes_each = 8 * size
    return {"forward_arrays": forward / bytes_each, "arrays": both / bytes_each, "bytes": both}


def growth(library: str, engine: str, pinned: bool, operations: int) -> dict:
    """Growth of resident memory over forward-only operations whose results are dropped.

    `pinned`: the first result is kept all along. The value of the last is asserted.
    """
    _, leaf, _ = prepare(library, engine)
    x = leaf(np.ones(1))
    kept = x * 2.0 if pinned else None
    for _ in range(1000):
        y = x * 2.0
    start = status("VmRSS")
    for _ in range(operations):
        y = x * 2.0
        y = y + x
    grown = status("VmRSS") - start
    assert y.item() == 3.0 and (kept is None or kept.item() == 2.0)
    return {"bytes": grown}


def entry(library: str, engine: str, operations: int) -> dict:
    """Bytes that each operation of a chain on one number keeps resident until backward."""
    _, leaf, _ = prepare(library, engine)
    x = leaf(np.zeros(1))
    one = leaf(np.ones(1))
    h = x + one
    start = status("VmRSS")
    for _ in range(operations - 1):
        h = h + one
    grown = status("VmRSS") - start
    h.sum().backward()
    assert h.item() == operations and one.grad.item() == operations
    return {"bytes": grown / operations}


# glibc raises its threshold for mmap when a mapped block is freed, and from then on puts big arrays
# between small objects on its heap, where holes of an array's size are lost: up to 150 arrays in a
# chain that needs 3, by accident. A fixed threshold gives every library the same clean allocator.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


def fresh(function, *args) -> dict:
    """`function(*args)`, one of this module, in a fresh process."""
    _, figures = measure.fresh(
        f"import json\nfrom bench import memory\nprint(json.dumps(memory.{function.__name__}(*{args!r})))",
        ALLOCATOR,
    )
    return figures
