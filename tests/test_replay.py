"""Replay against the sweep: the same gradients from the same tapes, nothing leaked, and no Numba once warm."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import replay
from tapegrad.core import executors, sweep, tape
from tapegrad.core.primitive import OPS, elementwise
from tapegrad.core.tape import FREED, IN0, IN1, OP, OUT, SLOT, STRIDE, Leaf
from tapegrad.errors import GraphError
from tapegrad.llvm import assembly, cache
from tapegrad.replay import bridge, builder, executor, kernels, layout, selftest
from tests.seeds import seeds
from tests.suite import in_threads

pytestmark = pytest.mark.skipif(not replay.available(), reason=str(replay.status()["machine"]))

TOLERANCE = {"float64": 1e-12, "float32": 3e-5, "complex128": 1e-12}


@pytest.fixture(scope="module", autouse=True)
def machine(settled_heap: None) -> None:
    assert replay.load(block=True), replay.status()["machine"]


@pytest.fixture(autouse=True)
def all_freed() -> Any:
    """Every adjoint that a walk allocated is free again once its gradients are."""
    gc.collect()
    before = replay.live_bytes()
    yield
    gc.collect()
    assert replay.live_bytes() == before


class Program:
    """One recorded program: its tape, its leaves, and a cotangent of its result."""

    def __init__(self, f: Callable[..., Any], *arguments: Any) -> None:
        self.inputs = [
            tg.tensor(a, requires_grad=True) if np.asarray(a).dtype.kind in "fc" else a
            for a in arguments
        ]
        self.out = f(*self.inputs)
        self.tape = tg.current_tape()
        self.code = self.tape.code
        self.start = self.tape.find(self.out._node)
        rng = np.random.default_rng(1)
        g = rng.normal(size=self.out.shape)
        if self.out.dtype.kind == "c":
            g = g + 1j * rng.normal(size=self.out.shape)
        self.g = np.asarray(g).astype(self.out.dtype)

    def walk(
        self,
        executor: Callable[..., Any] = replay.replay,
        watch: Any = None,
        targets: Any = None,
        **options: Any,
    ):
        """(gradients by leaf, what stays pending, positions visited)."""
        leaves: dict[Any, Any] = {}
        pending = {self.out._node: self.g if self.g.ndim else self.g[()]}
        with self.tape.held():
            visited = executor(
                self.code, self.start, pending, leaves, watch or {}, targets, **options
            )
        return leaves, pending, list(visited)


def agree(f: Callable[..., Any], *arguments: Any, tolerance: float = 1e-12) -> Program:
    """Both executors give the same gradients, of the leaves' shape and dtype."""
    program = Program(f, *arguments)
    expected, _, visited = program.walk(sweep.sweep)
    found, pending, revisited = program.walk(wait=True)
    assert not pending
    assert revisited == visited
    same(found, expected, tolerance)
    return program


def same(found: dict[Any, Any], expected: dict[Any, Any], tolerance: float = 1e-12) -> None:
    assert set(found) == set(expected)
    for leaf, g in expected.items():
        other = found[leaf]
        assert isinstance(other, np.ndarray)
        assert other.flags.writeable
        assert (other.shape, other.dtype) == (np.shape(g), g.dtype)
        np.testing.assert_allclose(other, g, rtol=tolerance, atol=tolerance)


def stops(program: Program, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """How many entries Python does in a walk."""
    count = 0
    pull = sweep.pull

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return pull(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "pull", counted)
        program.walk(**options)
    return count


# ----------------------------------------------------------------------------------------------- layouts


def test_the_self_test_passes() -> None:
    assert list(selftest.failures(bridge.machine)) == []


def test_the_self_test_notices_a_wrong_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bridge.machine.probe
    shifted = lambda what, address, i: right(what, address, i + (what == layout.PROBE_TUPLE_ITEM))  # noqa: E731
    monkeypatch.setattr(bridge.machine, "probe", shifted)
    assert any("tuple" in wrong for wrong in selftest.failures(bridge.machine))


# ----------------------------------------------------------------------------------------------- kernels

BROADCASTS = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (2, 3)),
    ((5,), (1,)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (3,)),
    ((), ()),
    ((1, 1), (1,)),
    ((700,), ()),
    ((3, 700), (3, 1)),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting(shapes: Any, dtype: str, rng: np.random.Generator) -> None:
    x, y = (samples(rng, shape, dtype) for shape in shapes)
    agree(lambda x, y: x * y + x / y - np.sin(x), x, y, tolerance=TOLERANCE[dtype])


def samples(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.uniform(0.5, 2.0, shape)
    return np.asarray(x + 0.3j * x[::-1] if dtype == "complex128" and shape else x).astype(dtype)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": np.transpose,
    "reversed": lambda x: x[::-1, ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "stride 0": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "one column": lambda x: x[:, 1:2],
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", LAYOUTS)
def test_layouts(kind: str, dtype: str, rng: np.random.Generator) -> None:
    x = LAYOUTS[kind](samples(rng, (5, 5), dtype))
    y = samples(rng, (5, 5), dtype)

    def f(y: Any) -> Any:
        # x as a constant keeps its layout; a leaf would be copied.
        return (y * x + x / y) * np.sin(y * x)

    agree(f, y, tolerance=TOLERANCE[dtype])


ELEMENTWISE = [op for op in OPS[1:] if op.elementwise]
OF_NUMPY = [op for op in ELEMENTWISE if getattr(np, op.of.__name__, None) is op.of]
"""In every run: kernels have one template, and test_ops.py compiles the formulas of all ops and the kernels of a few other ones."""


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, id=op.name, marks=[pytest.mark.campaign] * (op not in OF_NUMPY))
        for op in ELEMENTWISE
    ],
)
def test_every_elementwise_op(op: Any, rng: np.random.Generator) -> None:
    arrays = [
        domain.sample(rng, shape)
        for domain, shape in zip(op.domains, ((2, 3), (3,), (2, 1)), strict=False)
    ]
    if op.name == "where":
        arrays[0] = arrays[0] > 0
    agree(op.function, *arrays)


def test_python_numbers_are_converted_as_numpy_converts_them(rng: np.random.Generator) -> None:
    for dtype, tolerance in TOLERANCE.items():
        x = samples(rng, (4,), dtype)
        agree(lambda x: (2.5 * x + 3) ** 2 / 1.25 - 1.0 / x, x, tolerance=tolerance)
    agree(lambda z: (1j * z + 2) * (1 - 2j), samples(rng, (3,), "complex128"))


def test_mixed_dtypes_stop_in_python(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, z, s = (samples(rng, (3,), dtype) for dtype in ("float64", "complex128", "float32"))
    program = agree(lambda x, z: np.sin(x) * z, x, z)
    assert stops(program, monkeypatch) == 1
    agree(lambda x, s: x * s, x, s, tolerance=1e-6)
    agree(lambda x: x * np.arange(3), x)


def test_dtypes_without_kernels(rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 2, (3, 4))
    for dtype in (np.complex64, np.float16, np.longdouble):
        agree(
            lambda x: np.sin(x * x) + x[1] * x.sum(),
            x.astype(dtype),
            tolerance=1e-2 if dtype == np.float16 else 1e-5,
        )


def test_dtype_objects_that_are_only_equal(rng: np.random.Generator) -> None:
    import pickle

    x = pickle.loads(pickle.dumps(rng.uniform(size=3)))
    agree(lambda y: y * x, rng.uniform(size=3))


def test_sums_over_broadcast_axes_are_accurate() -> None:
    """A plain serial sum would be wrong by about 1e-12."""
    x = np.full(1_000_003, 0.1)
    program = Program(lambda b: (b * x).sum(), np.array(1.0))
    leaves, _, _ = program.walk(wait=True)
    (g,) = leaves.values()
    # A sum by halves rounds log2(n) = 20 times.
    assert abs(g / (float(program.g) * 100_000.3) - 1) < 20 * 2**-53 * 2


def test_infinite_and_nan_cotangents(rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        program = Program(
            lambda x: np.exp(x) * 0.0 + np.floor(x), np.array([0.5, 1.5, np.nan, np.inf])
        )
        program.g = np.array([np.inf, np.nan, 1.0, 2.0])
        expected, _, _ = program.walk(sweep.sweep)
    found, _, _ = program.walk(wait=True)
    same(found, expected)


# --------------------------------------------------------------------------------------- structural ops


def structural() -> list[Any]:
    return [
        pytest.param(op, c, id=f"{op.name}-{c}")
        for op in OPS[1:]
        if op.name in bridge.STEPS
        for c in op.samples
    ]


@pytest.mark.parametrize("dtype", seeds(list(TOLERANCE)))
@pytest.mark.parametrize(("op", "call"), structural())
def test_structural_ops(op: Any, call: Any, dtype: str, rng: np.random.Generator) -> None:
    """In campaigns of each dtype; test_ops.py replays the op's samples of each in every run."""
    arrays = [samples(rng, shape, dtype) for shape in call.operands]
    if op.variadic:
        agree(
            lambda *xs: op.function(list(xs), **call.settings) * 2.0,
            *arrays,
            tolerance=TOLERANCE[dtype],
        )
    else:
        agree(
            lambda *xs: op.function(*xs, **call.settings) * 2.0, *arrays, tolerance=TOLERANCE[dtype]
        )


INDICES = [
    2, -1, slice(1, 3), slice(None, None, -1), slice(-100, 100, 2), slice(3, 0, -2), slice(3, 1),
    (1, 2), (-1, -2, -1), (0, Ellipsis), (Ellipsis, -1), (slice(None), None, 1), None, Ellipsis, (),
    (Ellipsis, slice(1, None), None), (None, 3, Ellipsis, slice(0, 2)),
    np.array([0, 2, 2, -1]), np.array([[1, 1], [3, 0]]), np.array([], int), (np.array([0, 1]), 1),
    np.array([True, False, True, True]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(index: Any, rng: np.random.Generator) -> None:
    agree(lambda x: x[index] * 3.0, rng.normal(size=(4, 5, 3)))
    agree(lambda x: x[index] * x[index], rng.normal(size=(4, 5, 3)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize(
    "index",
    [
        slice(1, 4), slice(None, None, -2), slice(4, 1, -1), slice(2, 2), -1, (slice(None), 0),
        (Ellipsis, None, slice(0, 3)), (1, slice(None, None, 2)), (slice(None, None, -1), slice(3, 0, -2)), (),
    ],
    ids=repr,
)  # fmt: skip
def test_entries_put_into_zeros_are_read_back(
    index: Any, dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back of `scatter`, which is the way back of an index, recorded."""
    shape = (5, 4)
    part = np.zeros(shape)[index].shape
    x, weights = (rng.normal(size=s).astype(dtype)[()] for s in (part, shape))
    tolerance = TOLERANCE[dtype]
    program = agree(
        lambda x: tg.scatter(x * x, index, shape) * weights, np.asarray(x), tolerance=tolerance
    )
    assert stops(program, monkeypatch) == 0
    # Added to what x has been given already, too.
    agree(lambda x: np.sum(tg.scatter(x, index, shape) * weights) * x * x, x, tolerance=tolerance)


def test_what_is_spread_before_it_is_put_into_zeros_is_summed(rng: np.random.Generator) -> None:
    agree(lambda x: tg.scatter(x, slice(1, 4), (6, 3)) ** 2, rng.normal(size=3))
    agree(lambda x: tg.scatter(x, np.array([1, 1, 0]), (6,)) ** 2, rng.normal(size=3))


LINES = {
    "largest of several axes": lambda x: np.max(x, axis=(0, 2)),
    "largest, kept": lambda x: np.max(x, axis=1, keepdims=True),
    "smallest of a view": lambda x: np.min(x.T[::-1], axis=0),
    "largest with ties": lambda x: np.max(np.minimum(x, 1.0), axis=2),
    "smallest of all": lambda x: np.min(x),
    "exponentials of several axes": lambda x: tg.logsumexp(x * 3.0, axis=(0, 2)),
    "exponentials, kept": lambda x: tg.logsumexp(x, 1, True) - x,
    "exponentials of a view": lambda x: tg.logsumexp(x.T[::-1], axis=0) * x[0, 0, 0],
    "exponentials of all": lambda x: tg.logsumexp(x + 1000.0),
    "product along the middle": lambda x: np.prod(x, axis=1),
    "product with zeros": lambda x: np.prod(np.where(x > 1.0, 0.0, x) * x, axis=-1),
    "product of all": lambda x: np.prod(x),
    "sums so far": lambda x: np.cumsum(x, axis=1),
    "sums so far, flattened": lambda x: np.cumsum(x),
    "products so far": lambda x: np.cumprod(x, axis=-2),
    "products so far with a zero": lambda x: np.cumprod(np.where(x > 1.0, 0.0, x) * x),
    "taken": lambda x: np.take(x, np.array([0, 2, 2, -1])),
    "taken along the middle": lambda x: np.take(x, np.array([[0, 2], [2, -1]]), axis=1),
    "taken twice": lambda x: np.take(x, np.array([1, 1]), axis=-1) + x[..., :2],
    "masked": lambda x: x[np.arange(60).reshape(4, 5, 3) % 7 == 0],
    "rows masked": lambda x: x[np.array([True, False, True, True])],
    "nothing masked": lambda x: x[np.zeros((4, 5), bool)],
    "picked": lambda x: x[np.array([0, 3, 3]), np.array([-1, 2, 2]), np.array([0, 1, 1])],
    "rows picked": lambda x: x[np.array([[0, 3], [3, -4]]), np.array([[1, 2], [2, 0]])],
    "squares": lambda x: x**2 + (x * 2.0) ** 3.0,
    "fourth powers": lambda x: x**4 * (x + x**2),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LINES)
def test_lines_and_picks_without_a_stop(
    name: str, dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = LINES[name]
    x = rng.uniform(0.4, 1.6, size=(4, 5, 3)).astype(dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    program = agree(lambda x: f(np.sin(x)) * dtype(2), x, tolerance=tolerance)
    # Python takes the sums of exponentials whose logarithm is large, and those that do not lie in order.
    expected = 1 if name in ("exponentials of all", "exponentials of a view") else 0
    assert stops(program, monkeypatch, wait=True) == expected
    if "along" not in name:
        agree(lambda x: f(np.reshape(x, -1)[:60].reshape(4, 5, 3)[::-1]), x, tolerance=tolerance)


def test_parts_of_complex_values_without_a_stop(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    program = agree(
        lambda z: np.real(z * z)[::2] * np.imag(z)[1:] + np.real(np.conj(z).T * z.T)[:, 1:].T, z
    )
    assert stops(program, monkeypatch, wait=True) == 0


def test_weights_of_exponentials_at_the_edges() -> None:
    x = np.array(
        [[-np.inf, -np.inf, -np.inf], [0.0, -np.inf, 1.0], [np.inf, 1.0, 2.0], [np.nan, 1.0, 0.0]]
    )
    with np.errstate(invalid="ignore"):
        agree(lambda x: tg.logsumexp(x, axis=1) * np.array([1.0, 2.0, 3.0, 4.0]), x)
        agree(lambda x: tg.logsumexp(x[:2], axis=0), x)


def test_nan_gets_the_gradient_of_a_maximum_that_is_nan(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4))
    x[1, 2] = x[1, 0] = np.nan
    agree(lambda x: np.max(x, axis=1) * 2.0, x)


@pytest.mark.parametrize("index", [np.array([0, 5]), np.array([-5, 0])], ids=str)
def test_positions_out_of_bounds_are_pythons_business(index: Any, rng: np.random.Generator) -> None:
    # Someone who changes the tape's index after the fact must get an error, not somebody else's memory.
    x = tg.tensor(rng.normal(size=4), requires_grad=True)
    y = np.take(x, np.array([0, 1])) * 2.0
    code = tape.current().code
    (kw,) = [k for op, k in zip(code[0::8], code[7::8], strict=True) if OPS[op].name == "take"][-1:]
    kw[0].flags.writeable = True
    kw[0][:] = index
    with pytest.raises(IndexError):
        y.sum().backward()


def test_indexing_of_scalars_adds_up(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rosenbrock(x: Any) -> Any:
        return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))

    program = agree(rosenbrock, rng.normal(size=6))
    assert stops(program, monkeypatch) == 0


def test_big_arrays_with_shape_tokens(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: Any, y: Any) -> Any:
        z = np.transpose(x + y).reshape(20, 300)[::2, 5:]
        return np.stack([np.swapaxes(z, 0, 1), z.T], axis=1).sum(axis=0).mean() + (x * 2.0)[3, 4]

    program = agree(f, rng.normal(size=(60, 100)), rng.normal(size=(100,)))
    assert stops(program, monkeypatch) == 0


def test_products_of_many_layouts(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(6, 5)), rng.normal(size=(5, 4))
    agree(lambda a, b: a @ b, a, b)
    agree(lambda a, b: np.transpose(a) @ b[::-1], np.ascontiguousarray(a.T), b)
    agree(lambda a, b: (a @ b) @ np.transpose(a @ b), a, b)
    agree(lambda a: a @ a[0], a[:5])
    agree(lambda a, b: a @ b, rng.normal(size=(60, 50)), rng.normal(size=(50, 40)))
    agree(lambda a, b: a @ b, rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2)))


def test_an_op_of_the_same_name_is_not_taken_for_the_librarys_own() -> None:
    count, method = len(OPS), vars(tg.Tensor)["copy"]
    try:
        from tapegrad.core.primitive import call, primitive

        def thrice(x: Any) -> Any:
            return x * 3.0

        op = primitive(thrice, name="copy", samples=[call((2,))])(lambda g: g * 3.0)
        agree(lambda x: op(x) * 2.0, np.ones(3))
    finally:
        tg.Tensor.copy = method
        assert len(OPS) == count + 1


# ------------------------------------------------------------------------------------------------ graphs


def test_fan_out(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 4))
    agree(lambda x: x * x, x)
    agree(lambda x: x + x, x)
    agree(lambda x: (x + x) * (x - x * x), x)
    agree(lambda x, y: (lambda h: (h + y) * h + np.exp(h) - h)(x * y), x, y)
    agree(lambda x, y: np.concatenate([x, y, x]) * 2.0, x, y)
    agree(lambda x: np.stack([x, x])[0] + x, x)
    agree(lambda x: x[:2] + x[2:] * x[1], x)


def test_random_programs(rng: np.random.Generator) -> None:
    """Straight-line programs of random ops on random earlier values, of shapes that broadcast."""
    unary = [np.sin, np.tanh, np.exp, np.negative, np.square]
    binary = [np.add, np.subtract, np.multiply, np.maximum]

    def program(seed: int, *xs: Any) -> Any:
        draw = np.random.default_rng(seed)
        values = list(xs)
        for _ in range(25):
            if draw.random() < 0.4:
                v = unary[draw.integers(len(unary))](values[draw.integers(len(values))] * 0.3)
            else:
                a, b = (values[i] for i in draw.integers(len(values), size=2))
                v = binary[draw.integers(len(binary))](a, b) * 0.5
            if draw.random() < 0.2 and v.ndim == 2:
                v = v.sum(axis=int(draw.integers(2)), keepdims=True)
            values.append(v)
        return sum(np.mean(v) for v in values[-4:])

    shapes = ((3, 4), (4,), (3, 1), ())
    for seed in range(30):
        arrays = [np.asarray(rng.normal(size=shape)) for shape in shapes]
        agree(partial(program, seed), *arrays, tolerance=1e-10)


def test_depth() -> None:
    def f(x: Any) -> Any:
        for _ in range(20_000):
            x = x * 1.0001
        return x

    agree(f, np.array([1.0, 2.0]), tolerance=1e-9)


def test_gaps_in_the_slots(rng: np.random.Generator) -> None:
    def f(x: Any) -> Any:
        h = np.sin(x)
        for _ in range(50):
            tape.new_slot()
        k = h * h
        tape.new_slot()
        return k * h + x

    agree(f, rng.normal(size=3))


def test_neighbours_in_the_other_order(rng: np.random.Generator) -> None:
    """As two threads that share a context leave them."""

    def f(x: Any) -> Any:
        a, b = np.sin(x), np.cos(x)
        c = np.exp(x)
        code = tg.current_tape().code
        earlier, later = slice(-3 * STRIDE, -2 * STRIDE), slice(-2 * STRIDE, -STRIDE)
        code[earlier], code[later] = code[later], code[earlier]
        return a * b * c + b

    program = agree(f, rng.normal(size=3))
    slots = program.code[SLOT::STRIDE]
    assert slots != sorted(slots)


def test_slots_of_another_tape_stay_pending(rng: np.random.Generator) -> None:
    x = tg.tensor(rng.normal(size=3), requires_grad=True)
    outer = np.sin(x)
    with tape.own_tape():
        program = Program(
            lambda y: (y * outer + outer).sum() + np.real(outer * 1j).sum(), rng.normal(size=3)
        )
        expected, left, _ = program.walk(sweep.sweep)
        found, stays, _ = program.walk(wait=True)
    same(found, expected)
    assert set(stays) == set(left) == {outer._node}
    np.testing.assert_allclose(stays[outer._node], left[outer._node])


def test_several_pending_slots_and_leaves_that_have_something(rng: np.random.Generator) -> None:
    x = tg.tensor(rng.normal(size=3), requires_grad=True)
    a, b = np.sin(x), np.exp(x)
    c = a * b
    t = tg.current_tape()
    results = []
    for walk in (sweep.sweep, replay.replay):
        given = np.ones(3)
        leaves = {x._node: given}
        walk(
            t.code,
            t.find(c._node),
            {c._node: np.ones(3), a._node: np.arange(3.0), 5: 1.0},
            leaves,
            {},
            None,
        )
        results.append(leaves[x._node])
        assert (given == 1).all()
    np.testing.assert_allclose(*results)


def test_the_walk_ends_with_the_graph(rng: np.random.Generator) -> None:
    """Entries below the graph are not looked at: their ops could be anything."""
    below = Program(lambda x: np.sin(x) * x, rng.normal(size=3))
    above = Program(lambda x: np.cos(x) * x, rng.normal(size=3))
    below.code[below.start * STRIDE + OP] = FREED
    _, _, visited = above.walk(wait=True)
    assert min(visited) > below.start


def test_a_strided_seed(rng: np.random.Generator) -> None:
    program = Program(lambda x: np.sin(x), rng.normal(size=(3, 4)))
    for g in (np.broadcast_to(2.0, (3, 4)), rng.normal(size=(4, 3)).T, np.ones((3, 4), np.float32)):
        program.g = g
        expected, _, _ = program.walk(sweep.sweep)
        found, _, _ = program.walk()
        for leaf in expected:
            np.testing.assert_allclose(found[leaf], expected[leaf])


# -------------------------------------------------------------------------------------- watches, targets


def test_watched_slots_are_complete_and_can_be_replaced(rng: np.random.Generator) -> None:
    kept = []

    def f(x: Any) -> Any:
        h = np.sin(x)
        kept.append(h)
        return (h * h + np.exp(h)).sum() * h[0]

    program = Program(f, rng.normal(size=3))
    seen: dict[str, list[Any]] = {"sweep": [], "replay": []}
    grads = {}
    for name, walk in (("sweep", sweep.sweep), ("replay", replay.replay)):

        def double(g: Any, name: str = name) -> Any:
            seen[name].append(np.array(g))
            return g * 2

        def look(g: Any, name: str = name) -> Any:
            seen[name].append(np.array(g))
            return g

        # The key is a copy of the slot: values count, not objects.
        watch = {kept[0]._node + 0: double, program.out._node + 0: look}
        grads[name], _, _ = program.walk(walk, watch)
    same(grads["replay"], grads["sweep"])
    assert len(seen["replay"]) == len(seen["sweep"]) == 2
    for a, b in zip(*seen.values(), strict=True):
        np.testing.assert_allclose(a, b)


def test_targets_prune(rng: np.random.Generator) -> None:
    x, y = (tg.tensor(rng.normal(size=3), requires_grad=True) for _ in range(2))
    h, k = np.sin(x), np.cos(y)
    out = (h * k).sum() + (k * y).sum()
    program = Program(lambda: out)
    for targets in ({x._node}, {y._node}, {h._node}, {k._node, x._node}, set(), {x._node, y._node}):
        results = []
        for walk in (sweep.sweep, replay.replay):
            seen: dict[Any, Any] = {}
            watch = {
                t: lambda g, t=t, seen=seen: seen.setdefault(t, g)
                for t in targets
                if type(t) is not Leaf
            }
            leaves, pending, visited = program.walk(walk, watch, targets)
            results.append((leaves, visited, seen, pending))
        (a, visits, seen_a, _), (b, revisits, seen_b, left) = results
        assert visits == revisits
        assert not left
        assert set(a) == set(b) and set(seen_a) == set(seen_b)
        for found, expected in ((b, a), (seen_b, seen_a)):
            for node in expected:
                np.testing.assert_allclose(found[node], expected[node])


# -------------------------------------------------------------------------------------- stops in Python


def test_stops_and_native_entries_mix(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = agree(
        lambda x: np.convolve(np.sin(x), x)[:4] * np.linalg.norm(x) + np.logaddexp.reduce(x),
        rng.normal(size=4),
    )
    assert stops(program, monkeypatch) == 1


@pytest.mark.parametrize("engine", ["sweep", "replay"])
def test_a_result_whose_own_graph_is_freed_still_has_a_gradient(engine: str) -> None:
    before = executors.engine()
    tg.set_engine(engine)
    try:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        h = x * x
        y, z = h.sum(), (h * 3.0).sum()
        tg.autograd.grad(y, x)
        (g,) = tg.autograd.grad(z, h, retain_graph=True)
        np.testing.assert_array_equal(g.numpy(), [3.0, 3.0])
        with pytest.raises(GraphError, match="second time"):
            tg.autograd.grad(z, x)
    finally:
        tg.set_engine(before)


def test_a_rule_that_raises_leaks_nothing(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(
        lambda x: np.sin(x) * tg.logsumexp(np.exp(x) * x, axis=0, keepdims=True) + x,
        rng.normal(size=(80, 60)),
    )

    def pull(*_: Any) -> Any:
        assert replay.live_bytes() > 0
        raise ZeroDivisionError

    monkeypatch.setattr(sweep, "pull", pull)
    with pytest.raises(ZeroDivisionError):
        program.walk(wait=True)
    # `all_freed` says that nothing is left.


def test_a_watcher_that_raises_leaks_nothing(rng: np.random.Generator) -> None:
    program = Program(lambda x: np.sin(x) * x, rng.normal(size=(50, 50)))

    def stop(g: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.walk(watch={program.out._node: stop})


def test_freed_entries_raise(rng: np.random.Generator) -> None:
    program = Program(lambda x: np.cumsum(np.sin(x)) * 2.0, rng.normal(size=3))
    k = (program.start - 2) * STRIDE
    program.code[k : k + STRIDE] = [FREED, program.code[k + SLOT], *[None] * (STRIDE - 2)]
    for walk in (sweep.sweep, replay.replay):
        with pytest.raises(GraphError, match="second time"):
            program.walk(walk)


def test_a_stop_may_record_and_walk(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code in a stop appends to the very list that is walked, which moves its items, and walks it itself."""
    program = agree(lambda x: np.sin(np.convolve(np.sin(x), x)[:3] * x), rng.normal(size=3))
    expected, _, _ = program.walk(sweep.sweep)
    pull = sweep.pull
    depth = 0

    def long(y: Any) -> Any:
        for _ in range(500):
            y = y + 1.0
        return np.convolve(y * y, y)

    def busy(code: Any, k: int, g: Any) -> Any:
        nonlocal depth
        depth += 1
        if depth == 1:
            inner = Program(long, rng.normal(size=3))
            (grad,) = inner.walk()[0].values()
            assert grad.shape == (3,)
        return pull(code, k, g)

    monkeypatch.setattr(sweep, "pull", busy)
    found, _, _ = program.walk()
    same(found, expected)
    assert depth == 2


def test_shared_results_of_a_rule_are_not_shared_by_gradients(rng: np.random.Generator) -> None:
    """A rule may hand the same array to several operands; the gradients must be arrays of their own."""
    program = Program(
        lambda x, y: np.cumsum(x.astype(np.complex64) + y),
        rng.normal(size=3),
        np.ones(3, np.complex64),
    )
    found, _, _ = program.walk(wait=True)
    a, b = found.values()
    assert not np.shares_memory(a, b) and a is not program.g and b is not program.g


def test_memory_that_runs_out(rng: np.random.Generator) -> None:
    program = Program(
        lambda x, y: np.sin(x * y) * (x + y) @ y, rng.normal(size=(30, 30)), rng.normal(size=30)
    )
    world = bridge.machine.world
    _, _, visited = program.walk(wait=True)
    limit = world[layout.W_LIMIT]
    try:
        for room in range(0, 40_000, 700):
            world[layout.W_LIMIT] = world[layout.W_LIVE] + room
            try:
                assert program.walk()[2] == visited
            except MemoryError as error:
                assert "memory" in str(error)
        world[layout.W_LIMIT] = world[layout.W_LIVE]
        with pytest.raises(MemoryError):
            program.walk()
    finally:
        world[layout.W_LIMIT] = limit


def test_large_gradients_keep_the_machines_memory(rng: np.random.Generator) -> None:
    program = Program(lambda x: x * 2.0, rng.normal(size=100_000))
    before = replay.live_bytes()
    leaves, _, _ = program.walk()
    (g,) = leaves.values()
    assert replay.live_bytes() == before + 800_000
    part = g[10:20]
    g += 1.0
    del g, leaves
    gc.collect()
    assert replay.live_bytes() == before + 800_000
    np.testing.assert_allclose(part, 2.0 * program.g[10:20] + 1.0)
    del part
    gc.collect()
    assert replay.live_bytes() == before


def test_threads_walk_at_once(rng: np.random.Generator) -> None:
    x = rng.normal(size=40)

    def work() -> None:
        for _ in range(20):
            agree(lambda x: np.cumsum(np.sin(x * x) + x[3]) * np.exp(x), x)

    in_threads(work, work, work, work)


# -------------------------------------------------------------------------------------------- references


def test_held_says_who_holds_an_entry(rng: np.random.Generator) -> None:
    x = tg.tensor(rng.normal(size=3), requires_grad=True)
    t = tg.current_tape()
    low = len(t)
    held = np.sin(x)
    dead = np.cos(x)
    used = np.exp(dead)
    joined = np.concatenate([held, used, used])
    del dead, used
    assert replay.held(t.code, low, len(t)) == [low, low + 3]
    assert replay.held(t.code, low + 1, len(t)) == [low + 3]
    assert replay.held(t.code, low, low) == []
    node = held._node
    del held
    assert replay.held(t.code, low, low + 1) == [low]
    del node, joined
    assert replay.held(t.code, low, low + 4) == []


def left_after_backward(seed: int, create_graph: bool) -> tuple[list[Any], int]:
    """A random graph of which some values are held while a walk frees it: what is on its tape then, and how many entries there were."""
    rng = np.random.default_rng(seed)
    tg.current_tape().sweep()
    leaves = [tg.tensor(rng.normal(size=3), requires_grad=True) for _ in range(2)]
    older = leaves[0] * 3.0 if rng.random() < 0.3 else leaves[0]
    values = [*leaves, older]
    for _ in range(int(rng.integers(2, 14))):
        a, b = (values[int(i)] for i in rng.integers(len(values), size=2))
        kind = int(rng.integers(7))
        values.append([
            lambda a, b: a + b, lambda a, b: a * b, lambda a, b: -a, lambda a, b: np.exp(-a * a), lambda a, b: a[::-1] - b,
            lambda a, b: np.stack([a, b]).sum(axis=0), lambda a, b: np.zeros(3) * a.detach() + b,
        ][kind](a, b))  # fmt: skip
    root = (values[-1] * values[int(rng.integers(3, len(values)))] + values[0]).sum()
    held = [v for v in values[2:] if rng.random() < 0.3]
    keep_root = rng.random() < 0.7
    del values, a, b, older
    if create_graph:
        (g,) = tg.autograd.grad(root, leaves[:1], create_graph=True)
        root = (g * leaves[1]).sum()
        if rng.random() < 0.5:
            held.append(g)
        del g
    t = tg.current_tape()
    count = len(t)
    first = t.code[SLOT]
    if create_graph:
        tg.autograd.grad(root, leaves, allow_unused=True)
    else:
        root.backward()
    if not keep_root:
        del root
    # What stays behind where nobody holds it differs by when the tape is swept.
    t.sweep()
    left = [
        (
            entry[OP],
            entry[SLOT] - first,
            [
                n - first if type(n) is int and n else type(n)
                for n in (entry[IN0] if type(entry[IN0]) is tuple else entry[IN0 : IN1 + 1])
            ],
        )
        for entry in t
    ]
    assert held is not None
    return left, count


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_a_walk_leaves_is_what_the_tape_itself_would_leave(
    create_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job():
        answered = 0
        for seed in range(150):
            found, count = left_after_backward(seed, create_graph)
            with monkeypatch.context() as patch:
                patch.setattr(replay, "tail", lambda code, visited, whole: None)
                expected, same_count = left_after_backward(seed, create_graph)
            assert (found, count) == (expected, same_count)
            answered += 0 < len(found) < count
        assert answered > 50

    in_threads(job)  # with a tape of its own, on which nothing of other tests has stayed


# ------------------------------------------------------------------------------------------------- cache


def python(program: str, folder: Path, **environment: str) -> str:
    """What a fresh process prints."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TAPEGRAD_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parent.parent,
    )
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout.strip()


GRADIENT = """
    import sys
    import numpy as np
    import tapegrad as tg
    from tapegrad import replay
    tg.set_engine("replay")
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (np.sin(x) * x).sum().backward()
    print([round(v, 12) for v in x.grad.tolist()], "numba" in sys.modules, *replay.status()["kernels"])
"""
EXPECTED = str([round(float(np.cos(v) * v + np.sin(v)), 12) for v in (1.0, 2.0)])
KERNELS = "multiply_0_float64 multiply_1_float64 sin_0_float64"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the machine and three kernels, copied from this session's.

    What the child of low priority has not yet stored, on a busy machine, is made here.
    """
    agree(lambda x: np.sin(x) * x, np.ones(2))
    folder = tmp_path_factory.mktemp("warm")
    codes = {op.name: code for code, op in reversed(list(enumerate(OPS)))}
    keys = [(codes["multiply"], 0, 0), (codes["multiply"], 1, 0), (codes["sin"], 0, 0)]
    for task in (bridge.machine_task(), *map(bridge._kernel_task, keys)):
        path = cache.path_of(task.name, task.depends_on)
        if not cache.present(path):
            builder.make(task)
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.long
def test_a_warm_process_does_not_import_numba(warm: Path) -> None:
    assert python(GRADIENT, warm) == f"{EXPECTED} False {KERNELS}"


@pytest.mark.long
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_damaged_files_are_rebuilt(warm: Path, damage: str, tmp_path: Path) -> None:
    for path in warm.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (path,) = tmp_path.glob("sin_0_float64-*")
    data = path.read_bytes()
    flipped = data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
    path.write_bytes(
        {"cut": data[:-7], "flipped": flipped, "empty": b"", "foreign": b"something else"}[damage]
    )
    # Kernels need Numba only where LLVM is too old for vector code.
    assert python(GRADIENT, tmp_path) == f"{EXPECTED} {not assembly.available()} {KERNELS}"
    rebuilt = cache.read(path)
    assert rebuilt is not None and rebuilt.parts[0].role == "kernel"


def test_a_folder_that_cannot_be_written_to(warm: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert not cache.write(blocked / "sub" / "x.bin", cache.Bundle(reason="a test"))
    assert cache.read(blocked / "sub" / "x.bin") is None


def test_bundles_survive_the_disk(tmp_path: Path) -> None:
    bundle = cache.Bundle(
        (cache.Part("a", "s", ("cos", "sin"), b"\x00\n\xff"), cache.Part("b", "t", (), b""))
    )
    path = tmp_path / "deep" / "x.bin"
    assert cache.write(path, bundle)
    assert cache.read(path) == bundle
    assert [p.name for p in path.parent.iterdir()] == ["x.bin"]


def test_the_name_of_a_file_holds_what_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    op = next(op for op in OPS if op.name == "sin")
    before = kernels.fingerprint(op, 0, "float64")
    assert before == kernels.fingerprint(op, 0, "float64")
    assert before != kernels.fingerprint(op, 0, "float32")
    scale = 2.0
    rules = [lambda x: scale * x, lambda x: scale + x]

    def helper(x: Any) -> Any:
        return x * 2

    def other(x: Any) -> Any:
        return x * 3

    prints = set()
    for rule in (*rules, lambda x: helper(x), lambda x: other(x)):
        partial = type(op.partials[0])(rule, "sin")
        stand_in = type("Op", (), {"name": "sin", "partials": (partial,)})()
        prints.add(kernels.fingerprint(stand_in, 0, "float64"))
    assert len(prints) == 4


def test_the_name_of_a_file_is_that_of_every_process() -> None:
    """Also where a rule calls ops of the library: their kernels' names held an address, so that no process found those of another one."""
    command = """
import tapegrad.special
from tapegrad.core.primitive import OPS
from tapegrad.replay import kernels
by_name = {op.name: op for op in OPS}
print([kernels.fingerprint(by_name[name], 0, "float64") for name in ("j1", "agm", "beta", "power", "sin")])
"""
    prints = {
        subprocess.run(
            [sys.executable, "-c", command],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(prints) == 1


# ------------------------------------------------------------------------------- readiness and the builder


def own_op(partial: Any, name: str, forward: Any = np.sin) -> Any:
    def of(x: Any) -> Any:
        return forward(x)

    of.__name__ = name
    return elementwise(of, partial, name=name)


def no_kernel_of(x: Any) -> Any:
    """A partial that Numba cannot compile."""
    return np.asarray(sorted([1.0], key=lambda v: {v: v}[v])[0] * np.cos(x))


@pytest.fixture
def methods() -> Any:
    """An op declared in a test leaves no method on Tensor."""
    before = set(vars(tg.Tensor))
    yield
    for name in set(vars(tg.Tensor)) - before:
        delattr(tg.Tensor, name)


@pytest.mark.long
def test_a_rule_that_numba_cannot_compile_stops_in_python(
    methods: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = own_op(no_kernel_of, "strange_sin")
    program = agree(strange, np.ones(3))
    assert stops(program, monkeypatch) == 1
    reason = replay.status()["unavailable"]["strange_sin_0_float64"]
    assert "Numba" in reason
    # It is remembered on disk as well.
    files = cache.folder().glob("strange_sin_0_float64-*")
    assert reason in {cache.read(file).reason for file in files}


@pytest.mark.long
def test_an_op_declared_anew_has_a_kernel_of_its_own(
    methods: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook, where a cell is mended and run again."""
    strange = own_op(no_kernel_of, "mended_sin")
    assert stops(agree(strange, np.ones(3)), monkeypatch) == 1
    assert stops(agree(strange, np.ones(4)), monkeypatch) == 1
    mended = own_op(lambda x: np.cos(x), "mended_sin")
    assert stops(agree(mended, np.ones(3)), monkeypatch) == 0


def test_helpers_that_call_each_other_are_looked_at_once() -> None:
    scope: dict[str, Any] = {}
    for i in range(60):
        exec(f"def f{i}(x): return f{(i + 1) % 60}(x) + f{(i + 2) % 60}(x)", scope)
    assert kernels.obstacle(scope["f0"]) == ""


def test_helpers_of_rules_are_compiled_with_them(
    methods: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = 3.0

    def helper(x: Any) -> Any:
        return np.cos(x) * factor

    program = agree(own_op(lambda x: helper(x) / 3, "helped_sin"), np.ones(3))
    assert stops(program, monkeypatch) == 0


def test_a_compiled_rule_that_raises_is_an_error_not_a_number(methods: None, capfd: Any) -> None:
    def guarded(x: Any) -> Any:
        if x > 2:
            raise ValueError("too big")
        return np.cos(x)

    f = own_op(lambda x: guarded(x), "guarded_sin")
    agree_only = Program(f, np.array([1.0, 1.5]))
    agree_only.walk(wait=True)
    program = Program(f, np.array([1.0, 3.0]))
    with pytest.raises(RuntimeError, match="raised"), warnings.catch_warnings():
        warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
        program.walk(wait=True)
        gc.collect()
    capfd.readouterr()


def test_missing_kernels_are_built_in_the_background(
    methods: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = float(time.time_ns())  # in no cache yet
    f = own_op(lambda x: np.cos(x) + 0 * salt, "background_sin")
    program = Program(f, np.ones(3))
    assert stops(program, monkeypatch) == 1
    while not builder.idle():
        time.sleep(0.01)
    assert stops(program, monkeypatch) == 0
    assert "background_sin_0_float64" in replay.status()["kernels"]


def test_walks_sweep_until_kernels_are_there_that_are_made_in_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An entry done in Python costs a replay several times what it costs the sweep."""
    replay.load(block=True)
    f = tg.grad(lambda x: np.sum(np.exp(np.sin(x))))
    x = np.linspace(0.0, 1.0, 5)
    walks: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        function = getattr(replay, name)
        return lambda *args, **kwargs: (walks.append(name), function(*args, **kwargs))[1]

    monkeypatch.setattr(executors._choice, "name", "auto")
    monkeypatch.setattr(executors._choice, "entries", 10**9)
    for name in ("begin", "replay"):
        monkeypatch.setattr(replay, name, noted(name))
    monkeypatch.setattr(builder, "awaited", lambda: False)
    expected = f(x)
    assert walks
    walks.clear()
    monkeypatch.setattr(builder, "awaited", lambda: True)
    np.testing.assert_allclose(f(x), expected, rtol=1e-15)
    assert not walks


@pytest.mark.parametrize("chosen", [None, 0.02])
def test_the_builder_gives_the_switch_interval_back(chosen: float | None) -> None:
    """Its thread is given the interpreter's lock sooner while it works; an interval that somebody chooses meanwhile stays."""
    before = sys.getswitchinterval()
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def steps() -> Any:
        begun.set()
        go_on.wait()
        raise OSError  # so that nothing is stored

    try:
        builder.queue(builder.Task("interval", "nothing", steps, lambda *_: seen.append(1)))
        begun.wait()
        assert sys.getswitchinterval() < before
        if chosen:
            sys.setswitchinterval(chosen)
        go_on.set()
        while not builder.idle():
            time.sleep(0.01)
        assert seen
        assert sys.getswitchinterval() == pytest.approx(chosen or before)
    finally:
        sys.setswitchinterval(before)


def test_sweeps_beside_overwritten_values_count_towards_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process whose every walk meets a buffer that was written to comes to use replay like any other."""
    monkeypatch.setattr(replay, "load", lambda *a, **k: False)
    monkeypatch.setattr(replay, "loaded", lambda: False)
    before = executors._choice.entries
    c = tg.zeros(200)
    x = tg.tensor(0.5, requires_grad=True)
    for i in range(1, 200):
        c[i] = c[i - 1] * x + 1.0
    c.sum().backward()
    assert executors._choice.entries > before


def test_an_environment_that_changes_meanwhile_is_no_answer_of_the_compiler() -> None:
    """Numba iterates over os.environ, which fails when another thread sets or deletes a variable: that was stored as a refusal."""
    tries = []

    def compiler() -> builder.Compiled:
        tries.append(1)
        if len(tries) == 1:
            os.environ["TAPEGRAD_NOT_THERE"]
        if len(tries) == 2:
            raise KeyError("a rule's own")
        raise AssertionError("asked again")

    with pytest.raises(KeyError, match="own"):
        builder._undisturbed(compiler)
    assert len(tries) == 2


@pytest.mark.long
def test_the_builder_does_not_hold_up_the_end_of_the_process(tmp_path: Path) -> None:
    """The machine takes Numba many steps to compile; the process ends after the one at hand."""
    before = sum(os.times()[2:4])
    out = python(
        """
        from tapegrad import replay
        replay.shipped.distrust()
        print(replay.load(), replay.status()["machine"])
        """,
        tmp_path,
    )
    assert out == "False being compiled"
    assert not list(tmp_path.glob("machine*.bin"))
    assert sum(os.times()[2:4]) - before < 10


def test_the_source_of_a_kernel_can_be_read() -> None:
    text = replay.source("divide", 1, "float64")
    assert text.startswith("def divide_1_float64(n, add, g, x, y, z, out, adjoint):")
    assert "partial(item(y, i), item(out, i))" in text
    with pytest.raises(ValueError, match="constant"):
        replay.source("add", 0, "float64")
    with pytest.raises(ValueError, match="no elementwise op"):
        replay.source("nothing", 0, "float64")


def test_backward_uses_it_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    right = replay.begin
    monkeypatch.setattr(replay, "begin", lambda *a, **k: calls.append(1) or right(*a, **k))
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    tg.set_engine("replay")
    try:
        # In a thread of its own the tape is empty: beside values that were overwritten the sweep is taken, which can tell.
        thread = threading.Thread(target=lambda: (x * x).sum().backward())
        thread.start()
        thread.join()
    finally:
        tg.set_engine("auto")
    assert x.grad.tolist() == [2.0, 4.0]
    assert calls
    assert executors.engine() == "auto"


def test_small_gradients_are_copies_of_their_own() -> None:
    program = Program(lambda x: x * 2.0, np.ones(3))
    (a,), (b,) = program.walk()[0].values(), program.walk()[0].values()
    assert a.flags.owndata and not np.shares_memory(a, b)
    assert executor.OWNED_FROM > a.nbytes
    assert program.code[program.start * STRIDE + OUT].shape == (3,)


@pytest.mark.long
def test_a_cotangent_need_not_be_aligned():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = np.frombuffer(b"\0" + np.array([0.5, 2.0, -1.0]).tobytes(), np.float64, 3, 1)
    assert not g.flags.aligned
    before = tg.engine()
    tg.set_engine("replay")
    try:
        (x * x).backward(g)
    finally:
        tg.set_engine(before)
    np.testing.assert_array_equal(x.grad, [1.0, 8.0, -6.0])
