"""The tape: one entry per op, and entries that live exactly as long as somebody can ask for them.

Memory is measured in a process of its own, as the resident set of Linux; elsewhere by weak references to saved arrays.
"""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import executors, primitive, tape
from tapegrad.core.tape import IN0, IN1, KW, OP, OUT, SLOT, STRIDE, Leaf, X, Y
from tests.suite import in_thread

BIG = tape.BIG // 8 + 1000  # float64 elements of an array that counts as big


def leaf(data):
    return tg.tensor(data, requires_grad=True)


@pytest.fixture(autouse=True)
def empty_tape(settled_heap):
    engine = tg.engine()
    tg.set_engine(
        "sweep"
    )  # no compilation in the background, whose frames and memory are none of this file's business
    gc.collect()
    tg.current_tape().sweep()
    tg.current_tape().code.clear()  # what a failed test left
    yield
    gc.collect()
    tape._sweep_orphans()  # tapes of finished threads may hold slots of this one
    tg.current_tape().sweep()
    tg.set_engine(engine)
    assert len(tg.current_tape()) == 0, "a test left entries that somebody holds"


def entries():
    """Entries of this thread's tape as dictionaries by column."""
    return [dict(zip(range(STRIDE), entry, strict=True)) for entry in tg.current_tape()]


# ------------------------------------------------------------------------------------------------ one entry per op


OPS = {
    "operator": lambda w: w * w,
    "operator with a float": lambda w: w * 2.0,
    "operator with an int": lambda w: w * 2,
    "operator with an array": lambda w: w * np.ones(3),
    "reflected": lambda w: 2.0 - w,
    "array on the left": lambda w: np.ones(3) / w,
    "NumPy scalar on the left": lambda w: np.float64(2) * w,
    "list": lambda w: w + [1.0, 2.0, 3.0],
    "ufunc": lambda w: np.sin(w),
    "function": lambda w: np.sum(w, axis=0),
    "method": lambda w: w.mean(),
    "matmul": lambda w: w @ w,
    "matmul with an array": lambda w: np.ones((2, 3)) @ w,
    "index": lambda w: w[1:],
    "mask": lambda w: w[np.array([True, False, True])],
    "transpose": lambda w: w.T,
    "stack": lambda w: np.stack([w, w, np.ones(3)]),
    "where": lambda w: np.where(w > 1, w, 0.0),
    "clip": lambda w: np.clip(w, 0, 2),
    "clone": lambda w: w.clone(),
    "power": lambda w: w**2,
    "negative": lambda w: -w,
    "astype": lambda w: w.astype(np.float32),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_is_one_entry_and_its_slot_is_the_results_node(name):
    w = leaf([1.0, 2.0, 3.0])
    y = OPS[name](w)
    (entry,) = entries()
    assert entry[SLOT] is y._node and entry[OP] > 0
    operands = entry[IN0] if type(entry[IN0]) is tuple else (entry[IN0], entry[IN1])
    assert w._node in operands and all(node is None or node is w._node for node in operands)
    assert np.shape(entry[OUT]) == y.shape and entry[OUT].dtype == y.dtype


def test_the_columns_hold_what_the_docstring_says():
    w = leaf([1.0, 2.0])
    y = w * 2.0
    z = np.sum(y, axis=0, keepdims=True)
    c = tg.concatenate([z, w, np.ones(1)])
    first, second, third = entries()
    assert (
        first[OP] == tg.multiply.primitive.code
        and primitive.OPS[first[OP]] is tg.multiply.primitive
    )
    assert (
        first[IN0] is w._node
        and type(first[IN0]) is Leaf
        and first[IN1] is None
        and first[KW] is None
    )
    assert first[X] is w._value and first[Y] == 2.0 and first[OUT] is y._value
    assert (
        second[IN0] is first[SLOT] is y._node
        and second[IN1] is None
        and second[Y] is None
        and second[KW] == (0, True)
    )
    assert (
        third[IN0] == (z._node, w._node, None)
        and third[KW] == (0,)
        and len(third[X]) == 3
        and third[IN1] is None
    )
    assert first[SLOT] < second[SLOT] < third[SLOT] is c._node


def test_nothing_is_recorded_that_depends_on_nothing_tracked():
    c = tg.zeros(3)
    results = [
        c * 2,
        np.sin(c),
        c.sum(),
        c[0],
        tg.stack([c, c]),
        2.0 / (c + 1),
        tg.where(c > 0, c, 1.0),
    ]
    w = leaf([1.0, 2.0, 3.0])
    results += [
        w > 1,
        np.argmax(w),
        np.isnan(w),
        w.shape,
        w.astype(int),
        w.detach() * 2,
        np.zeros_like(w),
    ]
    assert len(tg.current_tape()) == 0
    del results


def test_a_big_value_is_kept_only_where_a_rule_needs_it():
    """Else a shape token stands for it: right shape and dtype, no memory."""
    w = leaf(np.ones(BIG))
    y = w + 1.0
    z = np.exp(y)
    s = z.sum()
    add, exp, total = entries()
    assert add[X].strides == add[OUT].strides == (0,) and add[X].shape == (BIG,)
    assert exp[X].strides == (0,) and exp[OUT] is z._value
    assert total[X].strides == (0,) and total[OUT] == s.item()
    s.backward()
    np.testing.assert_array_equal(w.grad.numpy(), z.detach().numpy())


# ------------------------------------------------------------------------------------------------ printing


def test_a_tape_prints_one_entry_a_line():
    w, v = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = np.sum(w * v * 2.0, axis=0)
    assert repr(tg.current_tape()).splitlines() == [
        "Tape with 3 entries",
        "     0  multiply(leaf0, leaf1) -> float64[2]",
        "     1  multiply(%0, const) -> float64[2]",
        "     2  sum(%1, axis=0, keepdims=False) -> float64[]",
    ]
    kept = y * 1
    y.backward()
    del kept
    assert "Tape with" in repr(tg.current_tape())


def test_a_long_tape_is_folded():
    w = y = leaf(1.0)
    for _ in range(100):
        y = y * 1.5
    lines = repr(tg.current_tape()).splitlines()
    assert lines[0] == "Tape with 100 entries" and len(lines) == 42
    assert (
        lines[21] == "  ... 60 entries ..."
        and lines[20].startswith("    19 ")
        and lines[22].startswith("    80 ")
    )
    assert w.is_leaf


def test_an_empty_tape_prints():
    assert repr(tg.current_tape()) == "Tape with 0 entries"
    assert repr(tape.Tape()) == "Tape with 0 entries"


# ------------------------------------------------------------------------------------------------ who dies when


def watched(shape=(BIG,)):
    """A tensor of a big array of its own, and a weak reference that tells when the array is gone."""
    array = np.ones(shape)
    ref = weakref.ref(array)
    return tg.from_numpy(array), ref


def test_a_dead_branch_lets_go_of_what_it_saved():
    """An array that only a dropped result's entry holds is gone after a sweep, though the leaf lives on."""
    w = leaf(np.ones(BIG))
    c, ref = watched()
    y = w * c
    del c
    assert ref() is not None  # y could still be differentiated
    del y
    tg.current_tape().sweep()
    assert ref() is None and len(tg.current_tape()) == 0 and w.is_leaf


def test_a_whole_dead_chain_goes_in_one_sweep():
    w = leaf(np.ones(BIG))
    refs = []
    y = w
    for _ in range(10):
        c, ref = watched()
        refs.append(ref)
        y = y * c
    del c, y
    tg.current_tape().sweep()
    assert [ref() for ref in refs] == [None] * 10


def test_sweeps_come_by_themselves_in_entries_and_in_bytes():
    w = leaf(np.ones(4))
    for _ in range(20_000):
        w * 2.0
    assert len(tg.current_tape()) < 5000
    w = leaf(np.ones(1_000_000))
    for _ in range(60):
        np.exp(w)
        assert tg.current_tape().bytes < 64 << 20
    assert len(tg.current_tape()) < 20


def test_a_pinned_result_keeps_what_it_needs_and_nothing_else():
    w = leaf(np.ones(BIG))
    needed, needed_ref = watched()
    other, other_ref = watched()
    pinned = (w * needed).sum()
    other_branch = (w * other).sum()
    unrelated = np.exp(w * 2)
    unrelated_ref = weakref.ref(unrelated._value)
    del needed, other, other_branch, unrelated
    tg.current_tape().sweep()
    assert needed_ref() is not None and other_ref() is None and unrelated_ref() is None
    assert len(tg.current_tape()) == 2
    pinned.backward()
    assert needed_ref() is None
    np.testing.assert_array_equal(w.grad.numpy(), np.ones(BIG))


def test_a_pinned_early_intermediate_does_not_keep_what_came_after_it():
    w = leaf(1.0)
    early = w * 2.0
    late = early
    for _ in range(5000):
        late = late * 1.0001
    del late
    tg.current_tape().sweep()
    assert len(tg.current_tape()) == 1
    early.backward()
    assert w.grad == 2.0


def test_results_still_held_after_a_sweep_have_their_gradient():
    """Survivors move to new positions; slots find them."""
    w = leaf(1.0)
    held = {}
    y = w
    for i in range(1, 6001):
        y = y + w
        w * 3.0
        if i % 1500 == 0:
            held[i] = y * 1.0
    tg.current_tape().sweep()
    for i, h in held.items():
        w.grad = None
        h.backward(retain_graph=True)
        assert w.grad == i + 1
    del held, h, y


def test_backward_frees_what_it_saved_and_says_so_when_asked_again():
    w = leaf(np.ones(BIG))
    c, ref = watched()
    middle = w * c
    y = (middle * middle).sum()
    del c
    y.backward()
    assert ref() is None
    for again in (y, (middle * 2).sum()):
        grad = w.grad.numpy().copy()
        with pytest.raises(
            RuntimeError,
            match="Trying to backward through the graph a second time.*retain_graph=True",
        ):
            again.backward()
        np.testing.assert_array_equal(w.grad.numpy(), grad)


def test_retain_graph_keeps_and_the_last_backward_frees():
    w = leaf(np.ones(BIG))
    c, ref = watched()
    y = (w * c).sum()
    del c
    for _ in range(3):
        y.backward(retain_graph=True)
    assert ref() is not None
    y.backward()
    assert ref() is None
    np.testing.assert_array_equal(w.grad.numpy(), np.full(BIG, 4.0))


def test_a_piece_shared_by_two_losses_needs_retain_graph():
    w = leaf([1.0, 2.0])
    shared = w * w
    first, second = shared.sum(), (shared * 3.0).sum()
    first.backward(retain_graph=True)
    second.backward()
    np.testing.assert_array_equal(w.grad.numpy(), [8.0, 16.0])
    third = (shared * 5.0).sum()
    with pytest.raises(RuntimeError, match="second time"):
        third.backward()


def test_a_piece_that_saves_nothing_may_be_walked_again():
    """As in PyTorch: a sum or a difference has nothing to free."""
    w = leaf([1.0, 2.0])
    y = (w + 1.0).sum()
    y.backward()
    y.backward()
    np.testing.assert_array_equal(w.grad.numpy(), [2.0, 2.0])


@pytest.mark.long
def test_training_does_not_grow_the_tape():
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((20, 3)), rng.standard_normal(20)
    w, b = leaf(np.zeros(3)), leaf(0.0)
    lengths = set()
    losses = []
    for _ in range(1500):
        loss = ((x @ w + b - target) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        with tg.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None
        lengths.add(len(tg.current_tape()))
    assert losses[-1] < losses[0] and max(lengths) < 3 * tape.BATCH
    del loss


def test_losses_kept_after_backward_keep_no_arrays():
    """A careless user collects the loss tensors: their entries stay, what they saved is gone."""
    w = leaf(np.ones(BIG))
    losses, refs = [], []
    for _ in range(5):
        c, ref = watched()
        refs.append(ref)
        losses.append((np.sin(w) * c).mean())
        losses[-1].backward()
    del c
    assert [ref() for ref in refs] == [None] * 5 and len(tg.current_tape()) <= 10
    del losses


def test_a_failed_backward_frees_nothing():
    w = leaf([1.0, 2.0])
    y = w * w
    with pytest.raises(
        RuntimeError, match="grad can be implicitly created only for scalar outputs"
    ):
        y.backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        y.backward(np.ones(3))
    assert w.grad is None
    y.backward(np.ones(2))
    np.testing.assert_array_equal(w.grad.numpy(), [2.0, 4.0])


def test_a_gradient_outlives_the_tensor_it_was_computed_from():
    w = leaf([1.0, 2.0])
    node = w._node
    y = (w * w).sum()
    del w
    y.backward()
    np.testing.assert_array_equal(node.grad.numpy(), [2.0, 4.0])


def test_a_leaf_dies_with_its_last_graph():
    w = leaf(np.ones(3))
    ref = weakref.ref(w._node)
    y = (w * w).sum()
    del w
    assert ref() is not None
    y.backward()
    assert ref() is None


# ------------------------------------------------------------------------------------------------ depth


@pytest.mark.long
def test_a_deep_chain_goes_back_without_recursion():
    n = 100_000
    w = y = leaf(1.0)
    for _ in range(n):
        y = y * 1.00001
    y.backward()
    assert abs(w.grad.item() / 1.00001**n - 1) < 1e-9
    assert len(tg.current_tape()) == 1  # y is still held


def test_a_deep_chain_is_dropped_without_recursion():
    y = leaf(1.0)
    for _ in range(100_000):
        y = y * 1.00001
    del y
    tg.current_tape().sweep()
    assert len(tg.current_tape()) == 0


@pytest.mark.long
def test_many_held_results_are_released_in_linear_time():
    """Every intermediate is still held when backward frees the graph: a search per survivor would take minutes."""
    w = leaf(1.0)
    held = [w * float(i) for i in range(20_000)]
    total = held[0]
    for h in held[1:]:
        total = total + h
    start = time.thread_time()
    total.backward()
    assert time.thread_time() - start < 20
    assert w.grad == sum(range(20_000))
    del held, h, total


def held(code, low, high):
    """Which of the entries low..high-1 are referred to from outside these entries: what the native engine tells in C."""
    inside = Counter()
    for k in range(low * STRIDE, high * STRIDE, STRIDE):
        nodes = code[k + IN0] if type(code[k + IN0]) is tuple else code[k + IN0 : k + IN1 + 1]
        inside.update(id(node) for node in nodes if type(node) is int)
    del nodes
    return [
        k
        for k in range(low, high)
        if sys.getrefcount(code[k * STRIDE + SLOT]) - 2 > inside[id(code[k * STRIDE + SLOT])]
    ]


def test_release_by_counted_references_keeps_what_popping_one_by_one_keeps():
    """Two ways to the same survivors; the native engine takes the second."""
    pictures = []
    for count in (None, held):
        w = leaf([1.0, 2.0])
        before = w * 7.0
        a = w * 2.0
        b = a * a
        c = np.exp(b)
        side = np.stack([a + 1.0, c])
        dropped = side * 3.0
        end = (b * side).sum()
        visited = [7, 6, 3, 2, 1]
        del c, b, dropped, end
        tg.current_tape().release(frozenset(visited), 1, executors._giving_up(), count)
        position = {entry[SLOT]: i for i, entry in enumerate(tg.current_tape())}
        pictures.append(
            [
                (
                    entry[OP],
                    [
                        position.get(n, type(n))
                        for n in (entry[IN0] if type(entry[IN0]) is tuple else entry[IN0:IN1])
                    ],
                    entry[KW],
                )
                for entry in tg.current_tape()
            ]
        )
        assert 3 <= len(pictures[-1]) < 8
        del side, a, before, position
        tg.current_tape().sweep()
    assert pictures[0] == pictures[1]


# ------------------------------------------------------------------------------------------------ memory, measured


def resident(program, timeout=600):
    """Growth of the resident set in MB while the program's `run()` goes, in a fresh process: (largest, at the end)."""
    script = (
        textwrap.dedent(
            """
        import gc
        import numpy as np
        import tapegrad as tg

        def megabytes():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

        class Watch:
            def __init__(self):
                self.first = self.most = None
            def __call__(self):
                now = megabytes()
                self.first = now if self.first is None else self.first
                self.most = now if self.most is None else max(self.most, now)

        look = Watch()
        """
        )
        + textwrap.dedent(program)
        + textwrap.dedent(
            """
        run()
        gc.collect()
        print(look.most - look.first, megabytes() - look.first)
        """
        )
    )
    environment = {
        **os.environ,
        "TAPEGRAD_ENGINE": "sweep",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return tuple(float(x) for x in done.stdout.split())


needs_proc = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the resident set is read from /proc"
)


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("pinned", ["nothing", "a result", "an early intermediate"])
def test_a_million_forward_only_ops_leave_memory_flat(pinned):
    n = 300_000 if pinned == "an early intermediate" else 1_000_000
    most, _ = resident(
        f"""
        def run():
            w = tg.tensor(np.ones(10), requires_grad=True)
            pinned = {pinned!r}
            held = (w * 2.0).sum() if pinned != "nothing" else None
            for i in range({n}):
                if i == 10_000:
                    look()
                y = w * 2.0
                if pinned == "an early intermediate" and i == 0:
                    held = y
                if i % 50_000 == 0 and i > 10_000:
                    look()
            look()
        """
    )
    assert most < 20


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("pinned", [False, True])
def test_forward_only_ops_on_big_arrays_leave_memory_flat(pinned):
    """Chains of elementwise ops, reductions, indexing, products: what they saved goes with them, big or small the result."""
    most, _ = resident(
        f"""
        def run():
            w = tg.tensor(np.ones(3000), requires_grad=True)
            held = (w * w).sum() if {pinned} else None
            for i in range(5_000):
                y = np.exp(w * 0.5) + 1.0
                y.sum(), y[0], y @ y, np.stack([y, y]), y.reshape(30, 100).T.mean(axis=0)
                if i == 1000 or i % 500 == 0 and i > 1000:
                    look()
        """
    )
    assert most < 20
    most, _ = resident(
        f"""
        def run():
            w = tg.tensor(np.ones(1_000_000), requires_grad=True)
            held = w.sum() if {pinned} else None
            for i in range(120):
                y = w + 1.0
                y.sum(), y[0], y.max(), y @ np.ones(1_000_000)
                if i == 20 or i > 20 and i % 5 == 0:
                    look()
        """
    )
    assert (
        most < 60
    )  # 16 MiB of dead arrays are allowed before a sweep, beside the arrays in use, of 8 MB each


@pytest.mark.long
@needs_proc
def test_a_chain_of_a_million_goes_back_and_is_freed():
    """Without recursion, and its memory is given back: a chain after it needs no more."""
    most, _ = resident(
        """
        def chain(n):
            w = y = tg.tensor(1.0, requires_grad=True)
            for _ in range(n):
                y = y * 1.000001
            y.backward()
            assert abs(w.grad.item() / 1.000001 ** n - 1) < 1e-6
            del y
            tg.current_tape().sweep()
            assert len(tg.current_tape()) == 0

        def run():
            chain(1_000_000)
            look()
            for _ in range(5):
                chain(200_000)
            look()
        """
    )
    # A chain of 200 000 takes 32 MB, which the allocator may give back or keep.
    assert most < 60


@pytest.mark.long
@needs_proc
def test_training_and_transforms_leave_memory_flat():
    most, _ = resident(
        """
        def run():
            w = tg.tensor(np.ones(1000), requires_grad=True)
            x = np.ones(1000)
            for i in range(1500):
                loss = (np.sin(w) * w).sum()
                loss.backward()
                w.grad = None
                tg.grad(lambda x: (np.sin(x) * x).sum())(x)
                tg.grad(lambda x: (np.sin(x) * w).sum())(x)
                tg.hvp(lambda x: (x**3).sum())(x, x)
                if i == 300 or i > 300 and i % 100 == 0:
                    look()
        """
    )
    assert most < 20


@pytest.mark.long
def test_derivatives_recorded_in_a_transform_are_swept_too():
    """Entries that a transform hands to the outer tape, and those of a walk, during which nothing can be swept."""
    w = leaf(np.ones(4))
    lengths = []
    for _ in range(400):
        tg.grad(lambda x: (np.sin(x) * w).sum())(np.ones(4))
        tg.hvp(lambda x: (np.sin(x) * w).sum())(np.ones(4), np.ones(4))
        tg.autograd.grad((w * w * w).sum(), w, create_graph=True)
        lengths.append(len(tg.current_tape()))
    assert max(lengths) < 4 * tape.BATCH


def test_a_sweep_while_tangents_are_pushed_up_the_tape_does_not_move_it():
    """A push records on the tape it goes up: more than a batch of entries, with dead ones below that a sweep would drop."""
    w = leaf(1.0)

    def f(x):
        y = x
        for _ in range(150):
            y = np.sin(y) * w + x
        return y

    value, slope = 0.3, 1.0
    for _ in range(150):
        value, slope = np.sin(value) + 0.3, np.cos(value) * slope + 1
    for dead in range(0, 1024, 128):
        for _ in range(dead):
            w * 2.0
        once = tg.jvp(f, (0.3,), (1.0,))[1]
        twice = tg.jvp(lambda x: tg.jvp(f, (x,), (1.0,))[1], (0.3,), (1.0,))[0]
        np.testing.assert_allclose([once.item(), twice.item()], slope, rtol=1e-12)
    del once, twice


# ------------------------------------------------------------------------------------------------ threads


def test_each_thread_has_a_tape_of_its_own():
    w = leaf(2.0)
    y = w * w
    here = tg.current_tape()

    def other():
        z = w * 3.0
        return tg.current_tape(), len(tg.current_tape()), z.item()

    tape_there, length, value = in_thread(other)
    assert tape_there is not here and length == 1 and value == 6.0 and len(here) == 1
    y.backward()


def test_a_finished_threads_results_are_still_differentiable():
    w = leaf([1.0, 2.0])
    y = in_thread(lambda: w * w)
    z = (y * 3.0).sum()
    for _ in range(3000):
        w * 1.0  # sweeps pass by
    gc.collect()
    z.backward()
    np.testing.assert_array_equal(w.grad.numpy(), [6.0, 12.0])


def test_a_graph_may_go_back_and_forth_between_threads():
    w = leaf([1.0, 2.0])
    y = w
    for i in range(6):
        y = in_thread(lambda y=y: np.sin(y) * 2.0) if i % 2 else np.sin(y) * 2.0
    y.sum().backward()
    expected = tg.tensor(w.detach().numpy(), requires_grad=True)
    z = expected
    for _ in range(6):
        z = np.sin(z) * 2.0
    z.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), expected.grad.numpy(), rtol=1e-14)


def test_a_finished_threads_tape_goes_when_nobody_holds_its_results():
    w = leaf(np.ones(BIG))

    def other():
        y = w * w
        return y, weakref.ref(tg.current_tape()), weakref.ref(y._value)

    y, tape_ref, value_ref = in_thread(other)
    gc.collect()
    assert tape_ref() is not None and len(tape_ref()) == 1
    del y
    for _ in range(5000):
        w[0] * 1.0
    gc.collect()
    assert tape_ref() is None and value_ref() is None


def test_threads_record_and_walk_at_once():
    """Each thread trains on its own, also on results of the others: every gradient is exact."""
    shared = leaf(np.ones(4))
    base = shared * 2.0
    failures = []
    gate = threading.Barrier(4)

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            gate.wait(600)
            for _ in range(40):
                w = leaf(rng.standard_normal(4))
                y = w
                for _ in range(25):
                    y = y * 1.5
                (y * base).sum().backward(retain_graph=True, inputs=[w])
                np.testing.assert_allclose(w.grad.numpy(), np.full(4, 2 * 1.5**25), rtol=1e-12)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures[0]
    base.sum().backward()
    np.testing.assert_array_equal(shared.grad.numpy(), np.full(4, 2.0))
    del base


def test_another_thread_walks_a_tape_while_its_own_sweeps_it():
    """Positions move when a tape is swept: a walk holds them still, or it would go on at another entry."""
    w = leaf(1.0)
    y = w
    for _ in range(200):
        y = y * 1.01
    stop = threading.Event()
    failures, walks = [], []

    def walk():
        try:
            while not stop.is_set():
                (g,) = tg.autograd.grad(y, w, retain_graph=True)
                assert abs(g.item() / 1.01**200 - 1) < 1e-12
                walks.append(1)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=walk)
    thread.start()
    for _ in range(300):
        for _ in range(60):
            w * 2.0
        tg.current_tape().sweep()
    stop.set()
    thread.join(30)
    assert not failures, failures[0]
    assert walks


# ------------------------------------------------------------------------------------------------ transforms


def test_a_transforms_tape_is_dropped_whole():
    w = leaf([1.0, 2.0])
    y = (w * w).sum()
    refs = []

    def f(x):
        z = np.exp(x)
        refs.append(weakref.ref(z._value))
        refs.append(weakref.ref(tg.current_tape()))
        return z.sum()

    tg.grad(f)(np.ones(BIG))
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert len(tg.current_tape()) == 2 and y.requires_grad
    y.backward()


def test_a_transforms_tape_is_not_the_threads():
    outer = tg.current_tape()
    seen = []

    def f(x):
        seen.append(tg.current_tape())
        tg.grad(lambda z: seen.append(tg.current_tape()) or z * z)(1.0)
        seen.append(tg.current_tape())
        return x * x

    tg.grad(f)(1.0)
    assert (
        seen[0] is seen[2]
        and seen[0] is not outer
        and seen[1] not in (outer, seen[0])
        and tg.current_tape() is outer
    )


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_thread_has_its_tape_back_after_an_exception_in_a_transform(error):
    outer = tg.current_tape()
    number = len(tape._tapes)

    def f(x):
        x * 2
        raise error

    for transform in (
        tg.grad(f),
        tg.grad(lambda x: tg.grad(f)(x) * x),
        tg.jacobian(f),
        lambda x: tg.vjp(f, x),
        lambda x: tg.jvp(f, (x,), (x,)),
        tg.hessian(f),
    ):
        with pytest.raises(error):
            transform(1.0)
        assert tg.current_tape() is outer and tg.is_grad_enabled() and len(tape._tapes) == number
    with tg.no_grad():
        with pytest.raises(error):
            tg.grad(f)(1.0)
        assert not tg.is_grad_enabled()
    w = leaf(3.0)
    (w * w).backward()
    outer.sweep()
    assert w.grad == 6.0 and len(outer) == 0


@pytest.mark.long
def test_what_leaks_out_of_a_transform_says_so_when_it_is_used():
    leaked = []

    def f(x):
        leaked.append(x * x)
        return (x * x).sum()

    tg.grad(f)(np.ones(2))
    (y,) = leaked
    np.testing.assert_array_equal(y.detach().numpy(), np.ones(2))  # its value is fine
    w = leaf([1.0, 2.0])
    for use in (
        lambda: y.sum().backward(),
        lambda: (y * w).sum().backward(),
    ):
        with pytest.raises(RuntimeError, match="carried out of a transform.*has_aux=True.*detach"):
            use()
    assert w.grad is None
    # By what is newer than the leaked tensor, a derivative does not go through it.
    np.testing.assert_array_equal(tg.grad(lambda q: (q * y).sum())(np.ones(2)).detach(), np.ones(2))
    leaked.clear()
    del y, use
