"""Hooks for saved tensors, as expectations that PyTorch itself meets, and the law that they change no derivative.

`TAPEGRAD_SUITE=torch pytest tests/test_saving.py` runs the same file on PyTorch, in float64.
"""

from __future__ import annotations

import gc
import operator
import os
import re
import tempfile
import uuid

import numpy as np
import pytest

from tests.suite import HERE, differs, leaf, tg

graph = tg.autograd.graph
grad = tg.autograd.grad
hooks = graph.saved_tensors_hooks
only_here = pytest.mark.skipif(not HERE, reason="about tapegrad's own functions")


def equal(t, expected):
    np.testing.assert_allclose(np.array(t.tolist()), np.asarray(expected), rtol=1e-12)


def detached(t):
    return t.detach()


def same(t):
    return t


class Journal:
    """Hooks that write down what passes."""

    def __init__(self):
        self.packed, self.unpacked = [], []

    def pack(self, t):
        self.packed.append(t.tolist())
        return t.detach()

    def unpack(self, t):
        self.unpacked.append(t.tolist())
        return t

    def __call__(self):
        return hooks(self.pack, self.unpack)


# ------------------------------------------------------------------------------------------------ what is packed
#
# name, operation on two leaves and a constant, what its saved values are (in any order).

A, B, C = [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]

SAVED = [
    ("product of tracked", lambda a, b, c: a * b, [A, B]),
    ("square", lambda a, b, c: a * a, [A, A]),
    ("product with a constant", lambda a, b, c: a * c, [C]),
    ("product with a number", lambda a, b, c: a * 2, []),
    ("sum", lambda a, b, c: a + b, []),
    ("sum of elements", lambda a, b, c: a.sum(), []),
    ("reshape", lambda a, b, c: a.reshape(2, 1), []),
    ("slice", lambda a, b, c: a[1:], []),
    ("power", lambda a, b, c: a**2, [A]),
    ("quotient by a constant", lambda a, b, c: a / c, [C]),
    ("sqrt keeps its result", lambda a, b, c: tg.sqrt(a), [np.sqrt(A).tolist()]),
    ("tanh keeps its result", lambda a, b, c: tg.tanh(a), [np.tanh(A).tolist()]),
    ("sin keeps its operand", lambda a, b, c: tg.sin(a), [A]),
    ("dot", lambda a, b, c: a @ b, [A, B]),
    ("dot with a constant", lambda a, b, c: a @ c, [C]),
    ("where", lambda a, b, c: tg.where(a > 1, a, b), [[False, True]]),
    ("two operations", lambda a, b, c: tg.sin(a * c), [C, [5.0, 12.0]]),
    ("constants alone", lambda a, b, c: c * c, []),
    ("detached", lambda a, b, c: a.detach() * b, [A]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "saved"), [pytest.param(*row[1:], id=row[0]) for row in SAVED]
)
def test_what_is_packed(function, saved):
    """Each value that a rule needs, once, when it is saved; unpacked when backward comes by."""
    a, b, c = leaf(*A), leaf(*B), tg.tensor(C)
    journal = Journal()
    with journal():
        y = function(a, b, c)
    assert sorted(map(str, journal.packed)) == sorted(map(str, saved))
    assert not journal.unpacked
    expected = function(a, b, c)
    if y.requires_grad:
        (found, other), (g, h) = (grad(t.sum(), (a, b), allow_unused=True) for t in (y, expected))
        assert sorted(map(str, journal.unpacked)) == sorted(map(str, saved))
        for actual, wanted in ((found, g), (other, h)):
            assert (actual is None) == (wanted is None)
            if wanted is not None:
                equal(actual, wanted.tolist())


def test_nothing_is_packed_under_no_grad():
    journal = Journal()
    with journal(), tg.no_grad():
        leaf(*A) * leaf(*B)
    assert not journal.packed


def test_the_pack_hook_gets_the_operand_itself():
    seen = []

    def pack(t):
        seen.append((t.requires_grad, t.is_leaf, tg.is_grad_enabled()))
        return t.detach()

    a, c = leaf(*A), tg.tensor(C)
    with hooks(pack, same):
        y = a * c * a
    assert sorted(seen) == [(False, True, False), (True, False, False), (True, True, False)]
    y.sum().backward()
    equal(a.grad, [10.0, 24.0])


def test_what_unpack_returns_is_used():
    a = leaf(*A)
    with hooks(lambda t: t.detach() * 4, same):
        y = a * a
    y.sum().backward()
    equal(a.grad, [8.0, 16.0])


def test_any_object_may_be_packed():
    store = {}

    def pack(t):
        name = uuid.uuid4()
        store[name] = t.detach()
        return name

    a = leaf(*A)
    with hooks(pack, store.pop):
        y = (tg.exp(a) * a).sum()
    assert len(store) == 3
    y.backward()
    assert not store
    equal(a.grad, np.exp(A) * (1 + np.array(A)))


def test_the_innermost_counts():
    outer, inner = Journal(), Journal()
    a, c = leaf(*A), tg.tensor(C)
    with outer():
        x = a * c
        with inner():
            y = a * (2 * c)
        z = a * (3 * c)
    w = a * (4 * c)
    (x + y + z + w).sum().backward()
    assert outer.packed == outer.unpacked[::-1] == [C, [15.0, 18.0]]
    assert inner.packed == inner.unpacked == [[10.0, 12.0]]
    equal(a.grad, [50.0, 60.0])


def test_hooks_hold_where_the_entry_was_recorded():
    """Not where backward is called."""
    a, journal = leaf(*A), Journal()
    y = a * a
    with journal():
        y.sum().backward()
    assert not journal.packed
    assert not journal.unpacked


def test_together_with_grad_modes():
    a, journal = leaf(*A), Journal()
    with journal(), tg.no_grad():
        a * a
        with tg.enable_grad():
            y = tg.sin(a)
    with tg.no_grad(), tg.enable_grad(), journal():
        y = tg.sin(y)
    assert len(journal.packed) == 2
    y.sum().backward()
    equal(a.grad, np.cos(np.sin(A)) * np.cos(A))


# ------------------------------------------------------------------------------------------------ graphs as ever


def test_a_graph_is_walked_once_or_retained():
    a, journal = leaf(*A), Journal()
    with journal():
        y = (a * a).sum()
    y.backward(retain_graph=True)
    y.backward()
    equal(a.grad, [4.0, 8.0])
    assert len(journal.unpacked) == 4
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_packed_values_die_with_the_graph():
    class Handle:
        alive = 0

        def __init__(self, t):
            self.t = t.detach()
            Handle.alive += 1

        def __del__(self):
            Handle.alive -= 1

    a = leaf(*A)
    with hooks(Handle, operator.attrgetter("t")):
        y = (tg.exp(a) * a).sum()
    assert Handle.alive == 3
    y.backward()
    gc.collect()
    assert Handle.alive == 0
    with hooks(Handle, operator.attrgetter("t")):
        y = tg.exp(a) * a
    assert Handle.alive == 3
    del y
    if HERE:
        tg.current_tape().sweep()
    gc.collect()
    assert Handle.alive == 0


def test_higher_derivatives():
    a = leaf(2.0)
    with hooks(detached, same):
        y = a**3 * tg.sin(a)
    (first,) = grad(y, a, create_graph=True)
    (second,) = grad(first, a, create_graph=True)
    (third,) = grad(second, a)
    s, c = np.sin(2.0), np.cos(2.0)
    equal(first, 12 * s + 8 * c)
    equal(second, 12 * s + 24 * c - 8 * s)
    equal(third, 6 * s + 18 * 2 * c - 9 * 4 * s - 8 * c)


def test_gradients_recorded_inside_are_packed_too():
    a, journal = leaf(*A), Journal()
    with journal():
        (g,) = grad((a**3).sum(), a, create_graph=True)
    before = len(journal.packed)
    assert before > 1
    equal(grad(g.sum(), a)[0], [6.0, 12.0])


def test_names_of_nodes_stay():
    a = leaf(*A)
    plain, constant = (a * a).sum(), tg.tensor(C)
    with hooks(detached, same):
        y = (a * a).sum()
        names = [tg.exp(a), a @ a, a**2, a * constant, tg.sqrt(a)]
    assert y.grad_fn.next_functions[0][0].name() == plain.grad_fn.next_functions[0][0].name()
    assert [t.grad_fn.name() for t in names] == ["ExpBackward0", "DotBackward0", "PowBackward0", "MulBackward0", "SqrtBackward0"]  # fmt: skip
    ((first, _), (second, _)) = names[3].grad_fn.next_functions
    assert first.variable is a
    assert second is None


def test_overwriting_does_not_matter():
    """What was packed was copied: the array may be overwritten."""
    a = leaf(*A)
    with hooks(lambda t: t.detach().clone(), same):
        b = a * 1
        y = tg.sin(b)
    with tg.no_grad():
        b += 1
    y.sum().backward()
    equal(a.grad, np.cos(A))


# ------------------------------------------------------------------------------------------------ errors


def with_hooks(pack, unpack=same, function=lambda a: a * a):
    a = leaf(*A)
    with hooks(pack, unpack):
        y = function(a)
    y.sum().backward()


def fail(_):
    raise KeyError("mine")


def change(t):
    with tg.no_grad():
        t += 1
    return t


def use_when_disabled():
    with graph.disable_saved_tensors_hooks("no hooks here"):
        with hooks(detached, same):
            pass


def disable_when_used():
    with hooks(detached, same):
        with graph.disable_saved_tensors_hooks("no hooks now"):
            pass


def disable_twice():
    with graph.disable_saved_tensors_hooks("outer"):
        with graph.disable_saved_tensors_hooks("inner"):
            pass
        with graph.save_on_cpu():
            pass


ERRORS = [
    ("unpack returns a number", lambda: with_hooks(detached, lambda t: 1.0), TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type float"),
    ("pack raises", lambda: with_hooks(fail), KeyError, "mine"),
    ("unpack raises", lambda: with_hooks(detached, fail), KeyError, "mine"),
    ("pack changes its input", lambda: with_hooks(change), RuntimeError, "A saved tensor pack hook is modifying its input in place"),
    ("disabled", use_when_disabled, RuntimeError, "no hooks here"),
    ("disabled while used", disable_when_used, RuntimeError, "no hooks now"),
    ("disabled twice", disable_twice, RuntimeError, "outer"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "message"), [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
    journal = Journal()  # nothing is left behind
    with journal():
        leaf(*A) * leaf(*B)
    assert len(journal.packed) == 2


@differs("the gradient has the shape it happens to get")
def test_a_value_comes_back_in_its_shape():
    with pytest.raises(RuntimeError, match="unpack hook returned a tensor of shape"):
        with_hooks(detached, lambda t: t[:1])


# ------------------------------------------------------------------- as PyTorch's documentation explains it


def test_the_example_of_the_tutorial():
    """Hooks for autograd saved tensors: the order and number of calls."""
    a, b = tg.ones(5, requires_grad=True), tg.ones(5, requires_grad=True) * 2
    journal = Journal()
    with journal():
        y = a * b
    assert sorted(journal.packed) == [[1.0] * 5, [2.0] * 5]
    y.sum().backward()
    assert sorted(journal.unpacked) == [[1.0] * 5, [2.0] * 5]
    equal(a.grad, [2.0] * 5)


def test_saving_tensors_to_disk():
    """The same tutorial: files that delete themselves."""

    class SelfDeletingTempFile:
        def __init__(self):
            self.name = os.path.join(folder, str(uuid.uuid4()) + ".npy")

        def __del__(self):
            os.remove(self.name)

    def pack_hook(x):
        if x.numel() < 4:
            return x.detach()
        temp_file = SelfDeletingTempFile()
        np.save(temp_file.name, x.detach().numpy())
        return temp_file

    def unpack_hook(packed):
        if isinstance(packed, SelfDeletingTempFile):
            return tg.from_numpy(np.load(packed.name))
        return packed

    with tempfile.TemporaryDirectory() as folder:
        x = tg.arange(5.0, requires_grad=True)
        w = leaf(1.0, 2.0)
        with hooks(pack_hook, unpack_hook):
            y = (x * x).sum() + (w * w).sum()
        assert len(os.listdir(folder)) == 2
        y.backward()
        gc.collect()
        assert not os.listdir(folder)
    equal(x.grad, [0.0, 2.0, 4.0, 6.0, 8.0])
    equal(w.grad, [2.0, 4.0])


def test_save_on_cpu():
    a, b, c = leaf(*A), leaf(*B), leaf(*C)
    prod_1 = a * b
    with graph.save_on_cpu():
        prod_2 = prod_1 * c
    (prod_2 * a).sum().backward()
    equal(a.grad, 2 * np.array(A) * B * C)
    equal(c.grad, np.array(A) * A * B)


# ------------------------------------------------------------------------------------------------ here alone

if HERE:
    from tapegrad.check.samples import samples_of
    from tapegrad.core.primitive import OPS

    SAMPLES = [s for op in OPS[1:] if op.saves for s in samples_of(op) if not s.variant]


@pytest.mark.long
@only_here
def test_no_derivative_changes():
    """For every op that saves something: the same cotangents and tangents from packed values.

    A packed value lies elsewhere in memory, and BLAS rounds a product by where its operands lie.
    """
    from tapegrad.check.laws import record

    for sample in SAMPLES:
        plain = record(sample)
        with hooks(lambda t: t.detach().clone(), same):
            saved = record(sample)
        w = sample.drawn(plain.out)
        tangents = [sample.drawn(x) for x in sample.variables]
        pairs = [(plain.push(tangents), saved.push(tangents))]
        pairs += list(zip(plain.pull(w), saved.pull(w), strict=True))
        for expected, found in pairs:
            np.testing.assert_array_equal(found, expected, err_msg=str(sample), strict=True)


@only_here
def test_whole_programs_keep_their_second_derivatives():
    def program(x):
        h = np.tanh(x @ x.T)
        return (np.linalg.inv(h + 3 * np.eye(2)) * np.exp(h)).sum() + np.prod(x[0]) / x[1, 1]

    at, v = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, -1.0], [2.0, 1.0]])
    expected = (
        tg.hvp(program)(at, v),
        tg.hessian(program)(at),
        tg.jacobian(program, mode="forward")(at),
    )
    with hooks(lambda t: t.numpy(force=True).copy(), tg.as_tensor):
        found = (
            tg.hvp(program)(at, v),
            tg.hessian(program)(at),
            tg.jacobian(program, mode="forward")(at),
        )
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-13)


@only_here
@pytest.mark.parametrize("engine", ["sweep", "replay"])
def test_long_tapes_by_either_engine(engine):
    tg.set_engine(engine)
    x = leaf(*A)
    y = x
    for i in range(200):
        if i % 3:
            y = tg.sin(y) * x
        else:
            with hooks(detached, same):
                y = tg.sin(y) * x
    (g,) = grad(y.sum(), x)
    tg.set_engine("auto")
    y = x
    for _ in range(200):
        y = tg.sin(y) * x
    equal(g, grad(y.sum(), x)[0].tolist())


@only_here
def test_values_are_not_kept_beside_what_is_packed(tmp_path):
    """With everything on disk, the tape holds no array of that size."""
    x = tg.ones(10_000, requires_grad=True)
    with graph.save_on_disk(tmp_path, min_bytes=0):
        y = x
        for _ in range(10):
            y = tg.sin(y) * tg.cos(y)
        total = y.sum()
    del y
    assert len(list(tmp_path.iterdir())) == 40
    kept = [
        v
        for entry in tg.current_tape()
        for column in entry[4:7]
        for v in (column if type(column) is tuple else (column,))
        if isinstance(v, np.ndarray) and v.size == x.size and any(v.strides)
    ]
    assert not kept
    total.backward()
    assert not list(tmp_path.iterdir())
    del total
    y = tg.ones(10_000, requires_grad=True)
    z = y
    for _ in range(10):
        z = tg.sin(z) * tg.cos(z)
    z.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.grad.numpy())


@only_here
def test_forward_mode_under_hooks():
    from tapegrad.autograd import forward_ad

    with forward_ad.dual_level():
        d = forward_ad.make_dual(leaf(*A), tg.tensor(B))
        with hooks(detached, same):
            y = (tg.exp(d) * d).sum()
        equal(forward_ad.unpack_dual(y).tangent, (np.exp(A) * (1 + np.array(A)) * B).sum())
        (g,) = grad(y, d)
        equal(forward_ad.unpack_dual(g).tangent, np.exp(A) * (2 + np.array(A)) * B)


@only_here
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_hooks_and_anomaly_mode_together():
    journal = Journal()
    with journal(), tg.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="Error detected in SqrtBackward0. Traceback"):  # fmt: skip
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            tg.sqrt(leaf(float("nan"))).sum().backward()
    assert len(journal.packed) == 1


@only_here
def test_a_tape_with_packed_entries_prints():
    a = leaf(*A)
    with hooks(detached, same):
        y = tg.cumprod(a, axis=0)
    line = repr(tg.current_tape()).splitlines()[-1]
    assert re.search(r"cumprod\(leaf\d+, axis=0\), packed -> float64\[2\]$", line), (line, y)


# ------------------------------------------------------------------------------------------------ functions of one's own


class Scale(tg.autograd.Function):
    """x · y, of which x and the result are saved."""

    @staticmethod
    def forward(ctx, x, y):
        z = x * y
        ctx.save_for_backward(x, z, None)
        return z

    @staticmethod
    def backward(ctx, g):
        x, z, nothing = ctx.saved_tensors
        assert nothing is None
        return g * z / x, g * x


def test_what_a_function_saves_is_packed():
    a, b, journal = leaf(*A), leaf(*B), Journal()
    with journal():
        y = Scale.apply(a, b)
    assert journal.packed == [A, [3.0, 8.0]]
    y.sum().backward()
    assert journal.unpacked == journal.packed
    equal(a.grad, B)
    equal(b.grad, A)
    with tg.no_grad(), journal():
        Scale.apply(a, b)
    assert len(journal.packed) == 2


def test_second_derivatives_of_a_function_whose_saved_values_are_packed():
    a, b = leaf(*A), leaf(*B)
    with hooks(detached, same):
        y = Scale.apply(a, b)
    (g,) = grad(y.sum(), b, create_graph=True)
    equal(grad((g * g).sum(), a)[0], [2.0, 4.0])


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_of_nodes_whose_values_are_packed(create_graph):
    a = leaf(*A)
    with hooks(detached, same):
        y = tg.sin(a * tg.tensor(C))
    seen = []
    y.grad_fn.register_hook(lambda grads, _: seen.append(grads[0].tolist()))
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    (g,) = grad(y.sum(), a, create_graph=create_graph)
    equal(g, 2 * np.cos([5.0, 12.0]) * C)
    np.testing.assert_allclose(seen, [2 * np.cos([5.0, 12.0])])
    if create_graph:
        equal(grad(g.sum(), a)[0], -2 * np.sin([5.0, 12.0]) * np.square(C))
