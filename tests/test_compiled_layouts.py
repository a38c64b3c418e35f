"""Stores into buffers of every layout, compiled: the third call answers as the plain function does, and so does its gradient.

The first part names the layouts that programs meet; the second draws programs of views and stores. A first call is the
traced run itself, so only later ones, with other values and other layouts of the argument, say anything about the program.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import tapegrad as tg
from tests.seeds import seeds

LAYOUTS = {
    "transposed": lambda x: (x * 1.0).T,
    "transposed copy": lambda x: x.T.copy() * 1.0,
    "flipped rows": lambda x: np.flip(x * 1.0, 0),
    "flipped columns": lambda x: (x * 1.0)[..., ::-1],
    "swapped axes": lambda x: np.swapaxes(x * 1.0, 0, 1),
    "outer, transposed": lambda x: np.outer(x[0], x[1]).T,
    "turned": lambda x: np.rot90(x * 2.0),
    "moved axes": lambda x: np.moveaxis((x[:, :, None] * np.ones(2)), 2, 0)[1].T,
    "every other": lambda x: np.concatenate([x, x])[::2] * 1.0,
    "view of a view": lambda x: (x * 1.0).T[::-1].T[:, ::-1],
    "reshaped, transposed": lambda x: (x * 1.0).T.reshape(x.shape)[::-1].T,
}
MASK = np.arange(36).reshape(6, 6) % 3 == 0


def _rows(v):
    v[[0, 2]] *= 0.5


def _entries(v):
    v[[0, 1, 4], [2, 1, 0]] *= 3.0


def _masked(v):
    v[MASK] *= 0.25


def _steps(v):
    v[::2] = v[::2] * 0.5


def _columns(v):
    v[:, 1:5:2] = v[:, 0:4:2] + 1.0


def _backwards(v):
    v[::-2, 1] = v[0, ::2]


def _number(v):
    v[2, 3] = 7.0


def _twice(v):
    v[1:4] += v[2:5].copy()
    v[:, [5, 0]] = v[:, [0, 5]].copy()


STORES = [_rows, _entries, _masked, _steps, _columns, _backwards, _number, _twice]


def arguments(rng, shape=(6, 6)):
    """One array after the other: in C order, in Fortran's, a part of a larger one, read backwards, read-only."""
    x = rng.normal(size=shape)
    part = rng.normal(size=tuple(2 * n for n in shape))[tuple(slice(None, None, 2) for _ in shape)]
    frozen = rng.normal(size=shape)
    frozen.flags.writeable = False
    return [
        x,
        np.asfortranarray(x + 1),
        part,
        x[::-1],
        np.ascontiguousarray(x.T).T - 1,
        frozen,
        x.copy(),
    ]


def agrees(f, points):
    """Each call of the compiled function and of its compiled gradient gives what NumPy and the sweep give."""
    compiled = tg.compile(f)
    slope = lambda x: tg.grad(lambda x: np.sum(np.sin(f(x))))(x)  # noqa: E731  compiled below as it is
    compiled_slope = tg.compile(slope)
    for x in (points[0], *points):
        before, expected = x.copy(), f(x)
        got = compiled(x)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        kept = got.copy()
        np.testing.assert_allclose(compiled_slope(x), slope(x), rtol=1e-10, atol=1e-12)
        compiled(x + 1.0)
        np.testing.assert_array_equal(got, kept)  # a later call leaves an earlier result alone
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("store", STORES, ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_stores_into_every_layout(layout, store, rng):
    def f(x):
        v = LAYOUTS[layout](x)
        if not isinstance(v, tg.Tensor) and not v.flags.writeable:
            v = v * 1.0
        store(v)
        return v

    agrees(f, arguments(rng))


def test_a_masked_store_into_a_large_transposed_buffer():
    """Reading what was never written stopped the process here."""
    mask = np.arange(10_000).reshape(100, 100) % 3 == 0

    def f(x):
        v = (x * 1.0).T
        v[mask] *= 0.25
        return v

    x = np.random.default_rng(0).normal(size=(100, 100))
    compiled = tg.compile(f)
    for k in range(3):
        np.testing.assert_array_equal(compiled(x + k), f(x + k))


def test_empty_buffers(rng):
    def f(x):
        v = (x * 1.0).T
        v[[0, 1]] *= 0.5
        v[:, ::-1] += 1.0
        return v

    agrees(f, [np.empty((0, 3)), np.asfortranarray(np.empty((0, 3)))])


def test_a_mask_of_no_entries(rng):
    """NumPy takes an empty index that is no array for one of whole numbers."""

    def f(x):
        v = x * 1.0
        v[1:][~(v[1:] > 0.3)] += np.sum(v)
        return np.sum(v * v)

    compiled = tg.compile(tg.grad(f))
    for _ in range(3):
        x = rng.normal(size=(1, 4))
        np.testing.assert_allclose(compiled(x), 2 * x, rtol=1e-15)


# ------------------------------------------------------------------------------------------------ random programs


def program(seed: int) -> tuple[str, tuple[int, ...]]:
    """A function of views, stores and elementwise steps on arrays of up to three axes, as text."""
    r = random.Random(seed)
    shape = [r.randint(1, 5) for _ in range(r.randint(1, 3))]
    lines = [f"    v = x * {r.choice(['1.0', '2.0', '-0.5'])}"]
    shape = list(shape)
    start = list(shape)

    def index(n):
        kind = r.choice(["all", "step", "back", "part", "list", "one"])
        if kind == "step":
            return f"::{r.randint(2, 3)}"
        if kind == "back":
            return "::-1"
        if kind == "part" and n > 1:
            low = r.randint(0, n - 1)
            return f"{low}:{r.randint(low + 1, n)}"
        if kind == "list":
            return str(r.sample(range(n), r.randint(1, n)))
        if kind == "one":
            return str(r.randint(-n, n - 1))
        return ":"

    for _ in range(r.randint(2, 6)):
        step = r.choice(["view", "view", "store", "store", "store", "mask", "step", "swap", "out"])
        if step == "view" and len(shape) > 0:
            kind = r.choice(["T", "flip", "swap", "reshape", "new", "broadcast"])
            if kind == "T":
                lines.append("    v = v.T")
                shape = shape[::-1]
            elif kind == "flip":
                lines.append(f"    v = np.flip(v, {r.randint(0, len(shape) - 1)})")
            elif kind == "swap" and len(shape) > 1:
                lines.append("    v = np.swapaxes(v, 0, -1)")
                shape[0], shape[-1] = shape[-1], shape[0]
            elif kind == "reshape":
                shape = (
                    [int(np.prod(shape))]
                    if r.random() < 0.5
                    else [shape[0], int(np.prod(shape[1:]))]
                )
                lines.append(f"    v = np.reshape(v, {tuple(shape)})")
            elif kind == "new" and len(shape) < 3:
                lines.append("    v = v[:, None]")
                shape = [shape[0], 1, *shape[1:]]
            elif kind == "broadcast":
                lines.append("    v = np.broadcast_to(v, (2, *v.shape)).sum(axis=0)")
        elif step in ("store", "mask") and shape:
            if step == "mask":
                place = f"(np.arange({int(np.prod(shape))}) % 3 == {r.randint(0, 2)}).reshape({tuple(shape)})"
            else:
                parts = [index(n) for n in shape]
                if sum(p.startswith("[") for p in parts) > 1:
                    parts = [":" if p.startswith("[") else p for p in parts]
                place = ", ".join(parts[: r.randint(1, len(parts))])
            how = r.choice(
                ["*= 0.5", "+= 1.0", "= {0} * 3.0", "= np.sin({0})", "-= 0.25 * {0}", "= 2.0"]
            )
            lines.append(f"    v[{place}] {how.format(f'v[{place}]')}")
        elif step == "step":
            lines.append(
                f"    v = {r.choice(['np.tanh(v)', 'v * v', 'v + v[..., ::-1]', 'v.copy()', 'v - 0.5'])}"
            )
        elif step == "swap" and shape and shape[0] > 1:
            lines.append("    v[0], v[-1] = v[-1].copy(), v[0].copy()")
        elif step == "out":
            lines.append(f"    np.{r.choice(['sin', 'tanh', 'negative'])}(v, out=v)")
    return "def f(x):\n" + "\n".join(lines) + "\n    return v\n", tuple(start)


@pytest.mark.parametrize("view", [np.flipud, np.fliplr, np.rot90, lambda v: np.flip(v)])
def test_an_array_lies_as_before_after_a_store_through_a_view(view):
    """What was stored through a flipped view made the array itself look flipped: a reshape of it was no view any more."""

    def f(x):
        v = x * 1.0
        view(v)[[0, 1], [1, 0]] = 7.0
        v.ravel()[::3] *= 5.0
        return v * 1.0

    for n in (4, 80):  # of large arrays the trace computes values only where they are asked for
        x = np.arange(float(n * n)).reshape(n, n)
        compiled = tg.compile(f)
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x), f(x))


SLICE, PROGRAMS = 20, 200


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(range(0, PROGRAMS, SLICE)))
def test_random_programs(first):
    for seed in range(first, first + SLICE):
        random_program(seed)


def random_program(seed: int) -> None:
    text, shape = program(seed)
    namespace: dict = {"np": np}
    exec(text, namespace)
    try:
        agrees(namespace["f"], arguments(np.random.default_rng(seed), shape))
    except tg.TapegradError:
        pass  # refused, which is no wrong number
    except BaseException as error:
        raise AssertionError(f"seed {seed}:\n{text}") from error


def test_arguments_in_another_order_go_by_the_native_entry(monkeypatch, rng):
    """Columns, flipped and transposed arrays are copied for the entry; they do not go through Python's way of taking a call apart."""
    gradient = tg.grad(lambda x, y: np.sum(np.exp(x) @ y))
    compiled = tg.compile(gradient)
    base = rng.normal(size=(2, 6))
    for _ in range(3):
        compiled(base, base.T)
    apart = []
    monkeypatch.setattr("tapegrad.compiler.taken_apart", lambda *a: apart.append(a))
    for x in (base[:, ::-1], np.asfortranarray(base), np.repeat(base, 2, axis=1)[:, ::2]):
        for y in (base.T, np.asfortranarray(base.T)):
            np.testing.assert_allclose(compiled(x, y), gradient(x.copy(), y.copy()), rtol=1e-14)
    assert not apart


MASKED_NUMBERS = [[1.0, 2.0, 0.1, 3.0], [1.0, 0.2, 0.1, 0.3], [1.0, 2.0, 1.1, 3.0], [1.0, 2.0, 0.1, 0.3]]  # fmt: skip


def filled_where_small(x):
    y = x.copy()
    y[np.abs(y) < 0.8] = np.sum(y)
    return np.sum(y * np.arange(1.0, 5.0))


OF_MASKS = {
    "constant tensor": lambda x: np.sum(tg.tensor(np.arange(1.0, 5.0))[np.abs(x) < 0.8]) * x,
    "an axis": lambda x: np.sum(tg.tensor(np.ones((3, 4)))[:, np.abs(x) < 0.8]) * x,
    "tangents of a linear gradient": lambda x: tg.jvp(tg.grad(filled_where_small), (x,), (np.ones(4),))[0],
}  # fmt: skip


@pytest.mark.parametrize("name", OF_MASKS)
@pytest.mark.parametrize("first", range(4))
def test_what_a_mask_picks_of_a_constant_is_counted_in_each_call(name, first):
    f = OF_MASKS[name]
    g = tg.compile(f)
    for numbers in (MASKED_NUMBERS[first], *MASKED_NUMBERS, MASKED_NUMBERS[first]):
        np.testing.assert_allclose(g(np.array(numbers)), f(np.array(numbers)), rtol=1e-13)


@pytest.mark.parametrize("number", [0.7, np.float64(0.7)])
def test_stores_through_a_view_after_stores_by_index(number):
    """What `np.tile` makes of a number is a view of NumPy's; two stores went into its memory, and a third through a view was lost."""

    def f(y):
        v = np.tile(y, (2, 1))
        v[0], v[-1] = -1.0, np.sin(v[0])
        np.swapaxes(v, 0, -1)[::2] -= -1.0
        return v

    try:
        compiled = tg.compile(f)(number)
    except tg.TraceError as error:
        assert "shares" in str(error)
    else:
        np.testing.assert_allclose(compiled, f(number))
