"""Native operators against the generated functions they stand for: same results, same entries, same errors, same references."""

import gc
import itertools
import operator
import sys
import threading
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import replay
from tapegrad.core import tape
from tapegrad.core.primitive import NATIVE, UFUNCS, elementwise
from tapegrad.core.tensor import Tensor
from tapegrad.replay import bridge, operators
from tests.suite import in_threads

pytestmark = pytest.mark.skipif(not replay.available(), reason="replay cannot run here")


@pytest.fixture(autouse=True, scope="module")
def loaded():
    assert replay.load(block=True)


# Special methods by name, and the generated functions behind them.
SPECIAL = ["__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__", "__rpow__",
           "__neg__", "__mod__", "__floordiv__"]  # fmt: skip


def operands():
    """Every kind of operand, by name: made anew for each use, since tracked ones have nodes of their own."""
    rng = np.random.default_rng(5)
    data = {
        "0-d": np.array(1.75),
        "one": np.array([2.5]),
        "vector": rng.uniform(0.5, 2.0, 3),
        "matrix": rng.uniform(0.5, 2.0, (2, 3)),
        "column": rng.uniform(0.5, 2.0, (2, 1)),
        "turned": rng.uniform(0.5, 2.0, (3, 2)).T,
        "backwards": rng.uniform(0.5, 2.0, 3)[::-1],
        "empty": np.zeros((0, 3)),
        "zeros": np.array([0.0, 1.0, 0.0]),
        "huge": np.array([1e308, 1.0, -1e308]),
        "tiny": np.array([1e-308, 1e-300, 1.0]),
        "nan": np.array([np.nan, np.inf, -np.inf]),
        "single": rng.uniform(0.5, 2.0, 3).astype(np.float32),
        "complex": rng.uniform(0.5, 2.0, 3) + 1j,
        "whole": np.array([1, 2, 3]),
        "flags": np.array([True, False, True]),
        "swapped": rng.uniform(0.5, 2.0, 3).astype(">f8"),
        "large": rng.uniform(0.5, 2.0, 3000),
        "deep": rng.uniform(0.5, 2.0, (1,) * 6 + (3,)),
    }
    found = {f"array {name}": lambda v=v: v.copy(order="K") for name, v in data.items()}
    found |= {f"tensor {name}": lambda v=v: tg.tensor(v) for name, v in data.items()}
    inexact = {name: v for name, v in data.items() if v.dtype.kind in "fc"}
    found |= {
        f"leaf {name}": lambda v=v: tg.tensor(v, requires_grad=True) for name, v in inexact.items()
    }
    found |= {
        f"result {name}": lambda v=v: tg.tensor(v, requires_grad=True) * 1.0
        for name, v in inexact.items()
    }
    found["parameter"] = lambda: tg.Parameter(np.array([1.0, 2.0, 3.0]))
    found["inference"] = inference
    plain = [2, -3, 0, 10**30, 1.5, 0.0, float("nan"), True, 1 + 2j, np.float64(1.5), np.float32(1.5), np.int64(3), None, "a",
             [1.0, 2.0, 3.0]]  # fmt: skip
    return found | {f"plain {value!r}": lambda value=value: value for value in plain}


def inference():
    with tg.inference_mode():
        return tg.tensor([1.0, 2.0, 3.0])


OPERANDS = operands()


def described(value, nodes):
    """All there is to see of a value; nodes by their place among the known ones."""
    if isinstance(value, Tensor):
        raw = value._value
        return type(value), type(raw), described(raw, nodes), nodes.get(id(value._node), "new")
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes(), value.flags.c_contiguous
    if isinstance(value, tuple):
        return tuple(described(v, nodes) for v in value)
    return type(value), repr(value)


def outcome(function, arguments):
    """What a call did: its result or exception, its warnings, and the entries it recorded."""
    nodes = {id(a._node): f"node {i}" for i, a in enumerate(arguments) if isinstance(a, Tensor)}
    nodes[id(None)] = "no node"
    tg.current_tape().sweep()  # so that no sweep falls into the call
    code = tg.current_tape().code
    before = len(code)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except Exception as error:
            said = (type(error), str(error))
        else:
            said = described(result, nodes)
    entries = []
    for k in range(before, len(code), tape.STRIDE):
        op, _, in0, in1, *rest = code[k : k + tape.STRIDE]
        entries.append(
            (op, nodes.get(id(in0), in0), nodes.get(id(in1), in1), described(tuple(rest), {}))
        )
        # A user's array that is kept must be a copy where the generated function makes one.
        entries.append([any(value is a for a in arguments) for value in rest])
    return said, [(w.category, str(w.message)) for w in caught], entries


def same(native, generated, makers):
    # The same operands for both: what a call does must not depend on what was called before.
    arguments = [make() for make in makers]
    expected = outcome(generated, arguments)
    assert outcome(native, arguments) == expected


MODES = {
    "recording": tg.enable_grad,
    "no_grad": tg.no_grad,
    "inference": tg.inference_mode,
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_methods(name, mode):
    native, generated = getattr(Tensor, name), operators.replaced[name]
    assert native is not generated
    tensors = [make for kind, make in OPERANDS.items() if isinstance(make(), Tensor)]
    others = list(OPERANDS.values())
    with MODES[mode](), np.errstate(all="warn"):
        if name == "__neg__":
            for make in tensors:
                same(Tensor.__neg__, generated, [make])
        else:
            for pair in itertools.product(tensors[::3], others):
                same(native, generated, pair)
            for pair in itertools.product(tensors, others[::7]):
                same(native, generated, pair)


@pytest.mark.parametrize(
    "ufunc",
    [np.add, np.divide, np.maximum, np.arctan2, np.exp, np.sin, np.sqrt, np.log, np.negative],
)
def test_ufuncs(ufunc):
    with np.errstate(all="warn"):
        kinds = list(OPERANDS.values())
        for makers in (
            itertools.product(kinds, repeat=1)
            if ufunc.nin == 1
            else zip(kinds, kinds[5:] + kinds[:5], strict=True)
        ):
            if any(isinstance(make(), Tensor) for make in makers):
                same(NATIVE[UFUNCS[ufunc]], UFUNCS[ufunc], makers)


@pytest.mark.parametrize("state", ["raise", "ignore", "warn"])
def test_errors_of_arithmetic_are_numpys(state):
    x = {
        k: tg.tensor(v, requires_grad=True)
        for k, v in {"huge": [1e308], "zero": [0.0], "tiny": [1e-308], "inf": [np.inf]}.items()
    }
    with np.errstate(all=state):
        for call, (a, b) in [("__mul__", ("huge", "huge")), ("__truediv__", ("huge", "zero")), ("__truediv__", ("zero", "zero")),
                             ("__mul__", ("tiny", "tiny")), ("__sub__", ("inf", "inf")), ("__add__", ("huge", "huge")),
                             ("__add__", ("tiny", "huge"))]:  # fmt: skip
            native, generated = getattr(Tensor, call), operators.replaced[call]
            assert outcome(native, [x[a], x[b]]) == outcome(generated, [x[a], x[b]])


def test_a_ufunc_declared_anew_is_not_the_old_one_natively(monkeypatch):
    """As tests and users do who try another rule: what NumPy's name means is what is declared now."""
    monkeypatch.setitem(UFUNCS, np.cbrt, UFUNCS[np.cbrt])
    twice = elementwise(np.cbrt, lambda out: 2 / (3 * out * out), name="cbrt_twice", method=False)
    x = tg.tensor([8.0], requires_grad=True)
    bridge.machine.learn()
    assert tg.autograd.grad(np.cbrt(x).sum(), x)[0].tolist() == [2 / 12]
    UFUNCS[np.cbrt] = tg.cbrt
    assert tg.autograd.grad(np.cbrt(x).sum(), x)[0].tolist() == [1 / 12]
    assert NATIVE[twice] is not NATIVE[tg.cbrt]


def test_a_flag_that_stands_from_before_is_no_error_of_this_operation():
    x = tg.tensor([2.0, 3.0], requires_grad=True)
    with np.errstate(all="ignore"):
        np.float64(1e308) * np.float64(1e308)
        np.array([1e308]) * np.array([1e308])
    with np.errstate(all="raise"):
        assert (x * x).tolist() == [4.0, 9.0]


def test_a_users_array_is_copied_where_a_rule_needs_it():
    x = tg.tensor([2.0, 3.0], requires_grad=True)
    weights = np.array([5.0, 7.0])
    y = (x * weights).sum()
    weights[:] = 0
    y.backward()
    assert x.grad.tolist() == [5.0, 7.0]


def test_no_reference_is_lost_or_left():
    watched = [1.5, 10**20, np.array([1.0, 2.0]), np.float64(2.0)]
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    big = tg.tensor(np.ones(3000), requires_grad=True)

    def work():
        for _ in range(500):
            for other in (*watched, x, big[:2]):
                for combine in (operator.add, operator.mul, operator.truediv, operator.sub):
                    combine(x, other)
                    combine(other, x)
            with tg.no_grad():
                x * x, -x, np.exp(x), 2 * x
            np.exp(x) - (-x), np.maximum(x, x)
            for wrong in ("a", np.ones(5), None):
                with pytest.raises((TypeError, ValueError)):
                    x * wrong

    work()
    tg.current_tape().sweep()
    gc.collect()  # what other tests left would be collected meanwhile, with its references to `Tensor`
    before = [
        sys.getrefcount(v) for v in (*watched, x._value, x._node, None, tape.RECORDER, Tensor)
    ]
    blocks = sys.getallocatedblocks()
    work()
    tg.current_tape().sweep()
    after = [sys.getrefcount(v) for v in (*watched, x._value, x._node, None, tape.RECORDER, Tensor)]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True)), (before, after)
    assert sys.getallocatedblocks() - blocks < 2000


def test_slots_are_unique_across_threads_that_record_natively():
    x = [tg.tensor([1.0], requires_grad=True) for _ in range(4)]
    slots = [[] for _ in x]

    def work(i):
        y = x[i]
        for _ in range(5000):
            y = y * 1.0
            slots[i].append(y._node)

    in_threads(*(lambda i=i: work(i) for i in range(4)))
    assert len(set(itertools.chain(*slots))) == 20_000
    assert threading.active_count() < 20


def test_attendants_see_native_entries():
    seen = []
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        (x * x).sum().backward()
    assert seen and x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "run", [lambda f: f, tg.compile, tg.value_and_grad], ids=["plain", "compiled", "tracked"]
)
def test_a_sequence_is_repeated_by_a_whole_number_of_numpys(run):
    """`[1, 2] * np.int64(2)` is [1, 2, 1, 2]; under a transform it was an array, of the products."""

    def f(x):
        n, m = np.argmax(x), 1 + np.count_nonzero(x > 0) % 2
        several = [1, 2]
        several *= n
        assert isinstance(
            [x] * m, list
        )  # pytest writes it anew, with a global that holds its modules
        return np.sum(x) * len(several) + sum([x[0]] * m) + len(m * (1, 2)) + len((n - 1) * "abc")

    found = run(f)(np.array([1.0, 2.0, 5.0]))
    assert (found[0] if run is tg.value_and_grad else found) == 8.0 * 4 + 2.0 + 4.0 + 3.0


def test_the_number_of_elements_keeps_single_precision():
    """As a class of numbers of its own, it made double precision of `np.sum(x) / x.size`."""
    x = np.ones(3, np.float32)
    for f in (
        lambda x: np.sum(x) / x.size,
        lambda x: x.size * x,
        lambda x: np.hypot(x, np.nonzero(x)[0].size),
        lambda x: np.clip(x, 0, x.size),
    ):
        for found in (
            f(tg.tensor(x, requires_grad=True)),
            tg.compile(f)(x),
            tg.jvp(f, (x,), (x,))[1],
        ):
            assert found.dtype == np.float32
