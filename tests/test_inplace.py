"""Writing in place: operators, methods and stores, on tensors and through views, with the gradients of both.

`TAPEGRAD_SUITE=torch pytest tests/test_inplace.py` runs the expectations on PyTorch (those that are not tapegrad's alone). The fuzzer
runs one random program of views and writes on NumPy arrays and on tensors: memory behaves the same, and the gradient is
that of the complex step through NumPy.
"""

from __future__ import annotations

import operator
import os

import numpy as np
import pytest

from tapegrad.core import storage
from tapegrad.core.primitive import OPS
from tests.suite import HERE, differs, each_engine, equal, here, leaf, tg  # noqa: F401


def weighed(t):
    """A scalar in which every element counts differently."""
    return (t.reshape(-1) * tg.tensor([float(10**i) for i in range(t.numel())])).sum()


# --------------------------------------------------------------------------------------------- NumPy's own meaning

IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
]  # fmt: skip
OTHERS = [1, 2, 300, -1, 2.5, 0.1, True, 1j, np.float64(2.1), np.float32(0.1), np.int8(3), np.uint64(3), [1, 2, 3], np.arange(3)]  # fmt: skip


def outcome(operation, target, other):
    """What an in-place operator leaves behind, or the type of its error."""
    try:
        with np.errstate(all="ignore"):  # filters of warnings are shared with other threads
            return operation(target, other)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        return error


@here
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("operation", IN_PLACE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", "? b B h H i I l L f d F D".split())
def test_operators_do_what_numpy_does(operation, dtype):
    """A number of Python's takes the dtype it meets, also where that is narrow, unsigned, or single."""
    given = np.array([0, 3, 4]).astype(dtype)
    for other in OTHERS:
        expected = outcome(operation, given.copy(), other)
        got = outcome(operation, tg.tensor(given.copy()), other)
        if isinstance(expected, Exception):
            assert isinstance(got, Exception), other
        else:
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got.numpy(), expected, err_msg=repr(other))


# ------------------------------------------------------------------------------------- a tensor and its own writes


@pytest.mark.parametrize(
    ("write", "value", "gradient"),
    [
        (lambda y, x: y.add_(x, alpha=3), [5.0, 10.0], [5.0, 50.0]),
        (lambda y, x: y.sub_(x), [1.0, 2.0], [1.0, 10.0]),
        (lambda y, x: y.mul_(x), [2.0, 8.0], [4.0, 80.0]),
        (lambda y, x: y.div_(x), [2.0, 2.0], [0.0, 0.0]),
        (lambda y, x: y.div_(3.0, rounding_mode="floor"), [0.0, 1.0], [0.0, 0.0]),
        (lambda y, x: y.pow_(2), [4.0, 16.0], [8.0, 160.0]),
        (lambda y, x: y.neg_(), [-2.0, -4.0], [-2.0, -20.0]),
        (lambda y, x: y.square_().sqrt_(), [2.0, 4.0], [2.0, 20.0]),
        (lambda y, x: y.log_().exp_(), [2.0, 4.0], [2.0, 20.0]),
        (lambda y, x: y.reciprocal_(), [0.5, 0.25], [-0.5, -1.25]),
        (lambda y, x: y.pow_(-2).rsqrt_(), [2.0, 4.0], [2.0, 20.0]),
        (lambda y, x: y.clamp_(max=3.0), [2.0, 3.0], [2.0, 0.0]),
        (lambda y, x: y.clamp_(3.0), [3.0, 4.0], [0.0, 20.0]),
        (lambda y, x: y.clamp_min_(3.0), [3.0, 4.0], [0.0, 20.0]),
        (lambda y, x: y.zero_(), [0.0, 0.0], [0.0, 0.0]),
        (lambda y, x: y.fill_(x[1]), [2.0, 2.0], [0.0, 11.0]),
        (lambda y, x: y.copy_(x[0] * x[0]), [1.0, 1.0], [22.0, 0.0]),
        (lambda y, x: y.addcmul_(x, x, value=2), [4.0, 12.0], [6.0, 100.0]),
        (lambda y, x: y.addcdiv_(x, x, value=2), [4.0, 6.0], [2.0, 20.0]),
        (lambda y, x: y.lerp_(x * x, 0.5), [1.5, 4.0], [2.0, 30.0]),
        (lambda y, x: y.cumsum_(0), [2.0, 6.0], [22.0, 20.0]),
        (lambda y, x: y.masked_fill_(y.detach() > 3, 7.0), [2.0, 7.0], [2.0, 0.0]),
        (lambda y, x: y.index_fill_(0, tg.tensor([1]), 7.0), [2.0, 7.0], [2.0, 0.0]),
        (lambda y, x: y.index_add_(0, tg.tensor([1, 1]), x), [2.0, 7.0], [12.0, 30.0]),
        (lambda y, x: y.index_copy_(0, tg.tensor([1, 0]), x), [2.0, 1.0], [10.0, 1.0]),
        (lambda y, x: y.index_put_((tg.tensor([1]),), x[0]), [2.0, 1.0], [12.0, 0.0]),
        (lambda y, x: y.scatter_(0, tg.tensor([1]), x[:1]), [2.0, 1.0], [12.0, 0.0]),
        (lambda y, x: y.scatter_add_(0, tg.tensor([1, 1]), x), [2.0, 7.0], [12.0, 30.0]),
        (lambda y, x: y.log_().sigmoid_(), [2 / 3, 4 / 5], [2 / 9, 20 / 25]),
        (lambda y, x: y.sub_(3.0).relu_(), [0.0, 1.0], [0.0, 20.0]),
        (lambda y, x: y.log_().tanh_(), [3 / 5, 15 / 17], [2 * 0.64 / 2, 20 * (64 / 289) / 4]),
        (lambda y, x: y.__setitem__(0, x[1]) or y, [2.0, 4.0], [0.0, 21.0]),
        (lambda y, x: y.__setitem__(slice(None), x * x) or y, [1.0, 4.0], [2.0, 40.0]),
        (lambda y, x: y.__setitem__(tg.tensor([False, True]), x[0]) or y, [2.0, 1.0], [12.0, 0.0]),
        (lambda y, x: y.__iadd__(y), [4.0, 8.0], [4.0, 40.0]),
    ],
)  # fmt: skip
def test_a_write_gives_the_value_and_the_gradient(write, value, gradient):
    x = leaf(1.0, 2.0)
    y = x * 2
    before = y._version
    result = write(y, x)
    assert result is y and y._version > before and y.requires_grad
    np.testing.assert_allclose(y.tolist(), value, rtol=1e-14)
    weighed(y).backward()
    np.testing.assert_allclose(x.grad.tolist(), gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.mul_(2),
        lambda t: t.zero_(),
        lambda t: t.__setitem__(0, 1.0),
        lambda t: t.copy_(tg.ones(2)),
        lambda t: t.exp_(),
    ],
)
def test_a_leaf_is_refused_unless_under_no_grad(write):
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        write(x)
    equal(x, [1.0, 2.0])
    with tg.no_grad():
        write(x)
    assert x.is_leaf and x.requires_grad


def test_a_view_of_a_leaf_is_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[:1].add_(1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.view(2, 1)[0] = 5.0
    equal(x, [1.0, 2.0])


def test_a_saved_value_that_is_overwritten_is_named():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*version 1"):
        y.sum().backward()
    z = x * 2
    w = z * z
    z[0] = 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()


def test_saving_afterwards_is_no_fault():
    x = leaf(1.0, 2.0)
    y = x * 2
    y += 1
    (y * y).sum().backward()
    equal(x.grad, [12.0, 20.0])


def test_versions_count_writes_and_views_share_them():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    view, copy = y[1:], y.clone()
    assert [t._version for t in (y, view, copy)] == [0, 0, 0]
    y.add_(1)
    view.mul_(2)
    assert y._version == view._version == 2 and copy._version == 0 and y.detach()._version == 2
    tg.autograd.graph.increment_version(y)
    assert view._version == 3


def test_shape_and_dtype_stay():
    y = leaf(1.0, 2.0) * 1
    with pytest.raises(RuntimeError, match="broadcast|shape"):
        y.add_(tg.ones(3, 2))
    with pytest.raises(RuntimeError, match="can't be cast"):
        tg.tensor([1, 2]).add_(1.5)
    with pytest.raises(RuntimeError, match="0-dim"):
        y.fill_(tg.ones(2))
    with pytest.raises(RuntimeError, match="min"):
        y.clamp_()
    with pytest.raises(RuntimeError, match="rounding_mode"):
        y.div_(2, rounding_mode="up")
    equal(y, [1.0, 2.0])


# ------------------------------------------------------------------------------------------------------ views


def test_views_know_their_base():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    assert y._base is None and not y._is_view()
    view = y[1:]
    chained = view.view(3, 1).swapaxes(0, 1)
    assert view._base is y and chained._base is y and chained._is_view()
    assert (
        y.clone()._base is None and (y[1:] * 2)._base is None and y[tg.tensor([0, 1])]._base is None
    )


def test_a_write_to_the_base_reaches_views():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    view = y[1:]
    chained = view[::1].reshape(2, 1)
    y.mul_(x)
    equal(view, [8.0, 18.0])
    equal(chained, [[8.0], [18.0]])
    weighed(chained).backward()
    equal(x.grad, [0.0, 8.0, 120.0])


def test_a_write_through_a_view_reaches_base_and_siblings():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 2
    first, last, middle = y[:2], y[2:], y[1:3]
    middle *= x[0]
    equal(y, [2.0, 4.0, 6.0, 8.0])
    (10 * first.sum() + weighed(last)).backward()
    equal(x.grad, [20.0 + 40.0 + 6.0, 20.0, 2.0, 20.0])
    assert type(y.grad_fn).__name__ != "NoneType" and "CopySlices" in y.grad_fn.name()


@differs("a view made before its base was tracked is taken for a leaf")
def test_an_untracked_buffer_and_its_views_become_tracked():
    x = leaf(2.0, 3.0)
    buffer = tg.zeros(2, 2)
    row, transposed = buffer[1], buffer.T
    buffer[0][1] = x[0] * x[1]
    row += x
    assert buffer.requires_grad and row.requires_grad and transposed.requires_grad
    equal(transposed, [[0.0, 2.0], [6.0, 3.0]])
    weighed(transposed).backward()
    equal(x.grad, [300.0 + 10.0, 200.0 + 1000.0])


@differs("rows of an iteration are outputs of one unbind, which must not be written to")
def test_iterating_rows_writes_to_them():
    x = leaf(1.0, 2.0)
    matrix = tg.zeros(3, 2)
    for i, row in enumerate(matrix):
        row += x * i
    weighed(matrix).backward()
    equal(x.grad, [100.0 + 20000.0, 1000.0 + 200000.0])


def test_augmented_stores():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y[1:] += x[:2]
    y[y.detach() > 6] *= x[0]
    y[0] **= 2
    equal(y, [4.0, 5.0, 8.0])
    y.sum().backward()
    equal(x.grad, [8.0 + 1.0 + 8.0, 2.0 + 1.0, 2.0])


def test_a_view_made_without_grad_is_refused():
    x = leaf(1.0, 2.0)
    y = x * 1
    with tg.no_grad():
        view = y[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(x[0])


def test_an_expanded_tensor_is_refused():
    y = (leaf(1.0, 2.0) * 1).expand(3, 2)
    with pytest.raises((RuntimeError, ValueError), match="clone"):
        y.add_(1)


def test_detach_in_place_is_refused_on_views():
    y = leaf(1.0, 2.0) * 1
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        y[:1].detach_()


def test_overlapping_stores_go_as_numpy():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    y[1:] = y[:-1].clone()
    equal(y, [1.0, 1.0, 2.0])
    weighed(y).backward()
    equal(x.grad, [11.0, 100.0, 0.0])


@differs("mul_ saves the value it overwrites; here the entry has a copy")
def test_second_derivatives_through_writes():
    x = leaf(2.0, 3.0)
    y = x * 1
    view = y[1:]
    view.mul_(x[0] * x[0])
    y[0] = y[1] * y[1]
    (gx,) = tg.autograd.grad(y.sum(), x, create_graph=True)  # (x0² x1)² + x0² x1
    equal(gx, [4 * 8 * 9 + 2 * 2 * 3, 2 * 16 * 3 + 4])
    (gxx,) = tg.autograd.grad(gx[0], x)
    equal(gxx, [12 * 4 * 9 + 2 * 3, 8 * 8 * 3 + 4])


def test_retained_gradients_and_hooks_follow_the_version():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    weighed(y).backward()
    equal(y.grad, [1.0, 10.0])
    assert seen == [("after", [1.0, 10.0]), ("before", [3.0, 30.0])]


@here
def test_a_recurrence_in_a_buffer(engine):
    n = 300
    b = np.linspace(0.5, 1.5, n)

    def run(a, b):
        c = tg.zeros(n)
        c[0] = b[0]
        for i in range(1, n):
            c[i] = c[i - 1] * a + b[i]
        return c

    w = np.cos(np.arange(n))
    value, pull = tg.vjp(run, 0.9, b)
    da, db = pull(w)
    c = value
    adjoint = np.zeros(n + 1)
    for i in range(n - 1, -1, -1):
        adjoint[i] = w[i] + 0.9 * adjoint[i + 1]
    np.testing.assert_allclose(db, adjoint[:n], rtol=1e-12)
    np.testing.assert_allclose(da, adjoint[1:n] @ c[: n - 1], rtol=1e-12)


@pytest.mark.long
@here
def test_a_store_keeps_no_copy_of_the_buffer(quiet):
    """1000 stores into 8 MB would otherwise hold 8 GB."""
    import tracemalloc

    c = tg.zeros(1_000_000)
    x = leaf(1.0)
    c[0] = x
    tracemalloc.start()
    for i in range(1, 1000):
        c[i] = c[i - 1] * x
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6
    c.sum().backward()
    assert x.grad == 1000 * 1001 / 2


@here
def test_views_that_died_are_forgotten():
    x = leaf(np.ones(4))
    for _ in range(1000):
        x[1:3]
    assert len(x._get("views")) < 100


# ------------------------------------------------------------------------------------- the edges of PyTorch's notes
#
# "In-place operations with autograd" of the notes on autograd mechanics, and "tensor views".


def test_what_is_saved_may_not_be_overwritten_through_a_view():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    y[:1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_what_was_saved_through_a_view_may_not_be_overwritten():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y[:1] * y[1:]
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


PLACES = [
    0, 2, -1, (1,), (0, 1), (slice(1, 3),), slice(0, 2), slice(None, None, 2), slice(3, None, -2), (Ellipsis, 0), [0, 2],
    np.array([1, 1]), np.array([True, False, False, True]), np.eye(4, 3) > 0, (slice(None), 1), (None, 2), slice(2, 2),
]  # fmt: skip
SHOWN = [
    lambda b: b[1], lambda b: b[1:3], lambda b: b[::-1][0], lambda b: b[::2], lambda b: b.T[1], lambda b: b.T[:, 2], lambda b: b[3, 1:],
    lambda b: b[1:][1][::-1], lambda b: b.reshape(2, 6)[1], lambda b: b[:, 1], lambda b: b.reshape(12)[3:6],
]  # fmt: skip


@here
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_write_beside_what_was_saved_is_no_harm(place):
    """The walk raises exactly where rows that a saved view lies in were written to: a row is the unit in which writes are noted."""
    rows = np.arange(12).reshape(4, 3)
    for shown in SHOWN:
        x = leaf(0.3, 0.5, 0.7)
        b = tg.zeros((4, 3)) + x
        z = np.sin(shown(b))
        b[place] = 2.0
        seen = {int(i) // 3 for i in np.ravel(shown(rows))}
        seen = set(range(min(seen), max(seen) + 1))  # between its first and last byte
        written = {int(i) // 3 for i in np.ravel(rows[place])}
        if isinstance(place, tuple) and (place[0] is None or place[0] is Ellipsis):
            written = {0, 1, 2, 3}
        if isinstance(place, np.ndarray) and place.ndim > 1:
            written = {0, 1, 2, 3}
        if seen & written:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
        else:
            z.sum().backward()
            expected = [np.sum(np.ravel(shown(rows)) % 3 == k) for k in range(3)] * np.cos(
                [0.3, 0.5, 0.7]
            )
            np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-14)


@pytest.mark.long
@here
def test_a_loop_may_read_the_rows_that_it_has_stored(engine):
    """A state's history in one array, as programs for NumPy are written."""

    def stored(p):
        u = tg.zeros((41, 2))
        u[0] = p[:2]
        for i in range(40):
            u[i + 1] = u[i] * u[i] * 0.5 + 0.1 * np.sin(u[i]) * p[2]
        return np.sum(u * u)

    def joined(p):
        u = [p[:2]]
        for i in range(40):
            u.append(u[i] * u[i] * 0.5 + 0.1 * np.sin(u[i]) * p[2])
        return np.sum(np.stack(u) ** 2)

    p = np.array([0.9, 0.8, 0.7])
    np.testing.assert_allclose(tg.grad(stored)(p), tg.grad(joined)(p), rtol=1e-14)
    np.testing.assert_allclose(tg.hessian(stored)(p), tg.hessian(joined)(p), rtol=1e-12)
    np.testing.assert_allclose(tg.compile(tg.hessian(stored))(p), tg.hessian(joined)(p), rtol=1e-12)
    t = tg.tensor(p, requires_grad=True)
    stored(t).backward()
    np.testing.assert_allclose(t.grad.numpy(), tg.grad(joined)(p), rtol=1e-14)


@here
def test_windows_that_were_saved_may_not_be_overwritten(engine):
    windows = np.lib.stride_tricks.sliding_window_view
    for write in (0, slice(2, 4), -1):
        x = leaf(0.1, 0.2, 0.3, 0.4, 0.5)
        b = x * 1.0
        z = np.sin(windows(b, 2))
        b[write] = 2.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    c = tg.zeros((4, 6)) + leaf(0.5)
    for base in (c, c.T, c[::2, ::-1], c[1:, 1:]):
        equal(windows(base, 2, 0), np.full((base.shape[0] - 1, base.shape[1], 2), 0.5))


@pytest.mark.long
@here
def test_many_writes_to_one_buffer_are_remembered_by_row():
    x = leaf(0.5)
    b = tg.zeros((3, 1))
    b[0] = x
    z = np.sin(b[0])
    for _ in range(5000):  # more than the list of single writes holds
        b[1] = x
        b[2] += 1.0
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos([0.5]))
    w = np.sin(b[1])
    for _ in range(5000):
        b[1] = x
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()


def test_views_of_views_follow_every_write(engine):
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    matrix = y.view(2, 2)
    row = matrix[1]
    element = row[:1]
    y.mul_(2)  # 2 4 6 8
    matrix[0].mul_(3)  # 6 12 6 8
    element.add_(x[0])  # 6 12 7 8
    row.mul_(10)  # 6 12 70 80
    equal(y.detach(), [6.0, 12.0, 70.0, 80.0])
    equal(matrix.detach(), [[6.0, 12.0], [70.0, 80.0]])
    equal(element.detach(), [70.0])
    for t in (matrix, row, element):
        assert t._base is y
    (weighed(y) + 7 * weighed(element)).backward()
    equal(x.grad, [6.0 + 1000.0 + 70.0, 60.0, 2000.0 + 140.0, 20000.0])


def test_a_base_that_was_replaced_leaves_its_views():
    """`y = y * 2` makes another tensor; the views show the old one's memory."""
    x = leaf(1.0, 2.0)
    y = x * 1
    view = y[:1]
    y = y * 10
    view.mul_(5)
    equal(view.detach(), [5.0])
    equal(y.detach(), [10.0, 20.0])
    (y.sum() + view.sum()).backward()
    equal(x.grad, [15.0, 10.0])


def test_a_base_that_was_dropped():
    x = leaf(1.0, 2.0, 3.0)
    view = (x * 1)[1:]
    sibling = view[:1]
    view.mul_(5)
    assert view._base is not None
    (weighed(view) + 7 * sibling.sum()).backward()
    equal(x.grad, [0.0, 5.0 + 35.0, 50.0])


def test_the_node_of_a_view_that_was_written_to():
    y = leaf(1.0, 2.0) * 1
    view = y[:1]
    view.mul_(2)
    assert "CopySlices" in y.grad_fn.name() and "CopySlices" not in view.grad_fn.name()
    (view * 1).sum().backward()


def test_writes_under_no_grad_are_counted_but_not_recorded():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    with tg.no_grad():
        y.mul_(10)
    assert y._version == 1 and "Mul" in y.grad_fn.name()
    equal(y.detach(), [10.0, 20.0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    (y * 3).sum().backward()  # as if it had not been written to
    equal(x.grad, [3.0, 3.0])


def test_a_view_under_no_grad_writes_to_its_base():
    x = leaf(1.0, 2.0)
    y = x * 1
    with tg.no_grad():
        y[:1].mul_(10)
        y[1] = 7.0
    equal(y.detach(), [10.0, 7.0])
    assert y._version == 2


def test_a_leaf_is_updated_through_a_view_under_no_grad():
    x = leaf(1.0, 2.0)
    with tg.no_grad():
        x[:1].mul_(10)
        x[1:] += 1
    equal(x.detach(), [10.0, 3.0])
    assert x.is_leaf and x._version >= 2  # PyTorch counts `x[1:] += 1` as two
    (x * x).sum().backward()
    equal(x.grad, [20.0, 6.0])


def test_detach_shares_memory():
    x = leaf(1.0, 2.0)
    y = x * 1
    d = y.detach()
    z = y * y
    d.mul_(10)
    equal(y.detach(), [10.0, 20.0])
    assert not d.requires_grad and d._version == y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_writing_to_a_detached_leaf():
    x = leaf(1.0, 2.0)
    x.detach().mul_(10)
    equal(x.detach(), [10.0, 20.0])
    assert x.requires_grad


def test_assigning_data():
    x = leaf(1.0, 2.0)
    x.data = tg.tensor([5.0, 6.0])
    assert x.is_leaf and x.requires_grad
    (x * x).sum().backward()
    equal(x.grad, [10.0, 12.0])
    x.data.mul_(2)
    equal(x.detach(), [10.0, 12.0])


def test_requires_grad_of_views():
    x = leaf(1.0, 2.0)
    view = x[:1]
    assert view.requires_grad and not view.is_leaf
    plain = tg.tensor([1.0, 2.0])
    part = plain[:1].requires_grad_()
    assert part.is_leaf and part.requires_grad and not plain.requires_grad
    (part * 3).sum().backward()
    equal(part.grad, [3.0])


def test_a_leaf_that_is_a_view_may_not_be_written_through_its_base():
    plain = tg.tensor([1.0, 2.0])
    part = plain[:1].requires_grad_()
    z = (part * part).sum()
    plain.mul_(3)  # untracked, but it changes the leaf: noticed where the value was saved
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_real_and_imaginary_views(engine):
    z = leaf([1 + 2j, 3 + 4j])
    w = z * 1
    w.real.mul_(10)
    w.imag[0] = w.real[1] * 1
    equal(w.detach(), [10 + 30j, 30 + 4j])
    w.real.sum().backward(retain_graph=True)
    equal(z.grad, [10 + 0j, 10 + 0j])
    z.grad = None
    w.imag.sum().backward()
    equal(z.grad, [0j, 10 + 1j])


def test_numbers():
    x = leaf(3.0)
    y = x * 2
    y.add_(1)
    y.mul_(x)
    equal(y.detach(), 21.0)
    y.backward()
    equal(x.grad, 13.0)
    y = x * 2
    y[...] = x * x
    y[()] = y.clone() * x
    equal(y.detach(), 27.0)
    x.grad = None
    y.backward()
    equal(x.grad, 27.0)


@pytest.mark.parametrize("wrapped", [lambda f: f, tg.compile], ids=["eager", "compiled"])
def test_other_names_of_a_number_keep_it_in_transforms_of_arrays(wrapped):
    """A sum is a number to NumPy, which `+=` does not change; a 0-d buffer is memory, and so is any tensor in PyTorch's ways."""

    def f(x):
        first = np.sum(x**2)
        total = first
        total += np.sum(np.sqrt(x * x))
        total *= x[0]
        element = x[1]
        other = element
        other -= 3.0
        return total / first + element * other

    def buffer(x):
        total = tg.zeros(())
        same = total
        total += x[0]
        same *= x[1]
        return total * same

    x = np.array([1.0, 2.0, -3.0])
    value, gradient = wrapped(tg.value_and_grad(f))(x)
    np.testing.assert_allclose(value, f(x))
    step = 1e-30j * np.eye(3)
    np.testing.assert_allclose(gradient, [f(x + s).imag / 1e-30 for s in step])
    np.testing.assert_allclose(wrapped(f)(x), f(x))
    np.testing.assert_allclose(wrapped(lambda x: tg.jvp(f, (x,), (x,)))(x)[1], gradient @ x)
    inner = wrapped(tg.grad(lambda x: np.sum(tg.grad(f)(x))))(x)
    np.testing.assert_allclose(inner, tg.hvp(f)(x, np.ones(3)))
    np.testing.assert_allclose(wrapped(tg.grad(buffer))(x), [8.0, 4.0, 0.0])

    t = tg.tensor(x, requires_grad=True)
    first = np.sum(t)
    total = first
    total += t[1]
    total *= total
    assert total is first and first.item() == 4.0
    total.backward()
    np.testing.assert_allclose(t.grad.numpy(), [4.0, 8.0, 4.0])
    with pytest.raises(tg.errors.GraphError, match="leaf"):
        first = np.sum(t).detach().requires_grad_()
        first += t[0]
    with tg.no_grad():
        first += 1.0
    assert first.is_leaf and first.item() == 1.0
    with pytest.raises(RuntimeError, match="shape"):
        total += t


@here
@pytest.mark.parametrize("tracked", [False, True])
def test_numbers_taken_out_of_a_tensor_are_copies_and_refuse_methods(tracked):
    """x[i] of one axis is a number to NumPy: what PyTorch writes through, and NumPy cannot, would leave x as it is."""
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=tracked)
    y = x * 1
    elements = [y[0, 1], y[0][1], next(iter(y[0])), y[0].unbind()[0], y.diagonal()[0]]
    with tg.no_grad():
        elements.append(x[1, 0])
    for element in elements:
        with pytest.raises(RuntimeError, match=r"add_ was asked of a number .* x\.select"):
            element.add_(1.0)
        for write in (lambda t: t.fill_(1.0), lambda t: t.zero_(), lambda t: t.copy_(y[1, 1])):
            with pytest.raises(RuntimeError, match="taken out of a tensor"):
                write(element)
        element += 1.0  # the number's name alone, as NumPy's
    total = y.sum()
    total.add_(1.0).mul_(2.0)
    assert total.item() == 22.0 and y.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_slice_at_one_position_is_a_view_of_memory(engine):
    x = leaf([1.0, 2.0, 3.0])
    y = x * x
    y.select(0, 1).mul_(x[0] * 10)
    y[2, ...].copy_(x[0])
    equal(y.detach(), [1.0, 40.0, 1.0])
    weighed(y).backward()
    equal(x.grad, [2.0 + 400 + 100, 400.0, 0.0])
    with tg.no_grad():
        x.select(-1, 0).fill_(7.0)
    equal(x.detach(), [7.0, 2.0, 3.0])


def test_views_of_numbers():
    x = leaf(3.0)
    y = x * 2
    view = y.reshape(1)
    view.mul_(x)
    equal(y.detach(), 18.0)
    y.backward()
    equal(x.grad, 12.0)


def test_no_entries_of_a_number(engine):
    x = leaf(3.0)
    y = x * 2
    y.reshape(-1)[1::2] -= 0.75
    equal(y.detach(), 6.0)
    y.backward()
    equal(x.grad, 2.0)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_empty_tensors(shape):
    x = tg.ones(shape).requires_grad_()
    y = x * 2
    y.mul_(3)
    y[:] = y * 2
    y.reshape(-1).add_(1)
    y.zero_()
    assert tuple(y.shape) == shape
    y.sum().backward()
    assert tuple(x.grad.shape) == shape


def test_transposed_memory(engine):
    """A tensor whose memory runs along columns; reshape must copy where it cannot show it."""
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = (x * 1).T
    flat = y.reshape(-1)
    assert flat._base is None or not flat._is_view()
    flat.mul_(100)
    equal(y.detach(), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])
    y[1].mul_(x[:, 0])
    y[:, 1:].add_(1.0)
    equal(y.detach(), [[1.0, 5.0], [2.0, 21.0], [3.0, 7.0]])
    weighed(y).backward()
    equal(x.grad, [[1.0 + 200.0, 100.0, 10000.0], [10.0 + 5000.0, 4000.0, 100000.0]])


def test_a_reshape_of_a_result_is_a_view():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    y.reshape(-1)[1:3] *= x[0, 0] * 10
    equal(y.detach(), [[1.0, 20.0], [30.0, 4.0]])
    weighed(y).backward()
    equal(x.grad, [[1.0 + 200.0 + 3000.0, 100.0], [1000.0, 1000.0]])


@here
def test_memory_in_the_order_of_fortran(engine):
    """Values and gradients are those of the same program on memory by rows, where nothing depends on what a reshape shows."""
    base = np.arange(6.0).reshape(2, 3) + 1

    def program(x):
        y = x * 1
        column = y.T[1]
        column *= x[0, 0]
        row = y[1]
        row += 1
        y[:, ::2][0] = column.clone()
        y.T.swapaxes(0, 1)[1, 1:] *= 2
        return weighed(y) + weighed(column)

    found = []
    for order in "CF":
        x = tg.tensor(np.array(base, order=order), requires_grad=True)
        assert x.detach().numpy().flags.f_contiguous == (order == "F")
        loss = program(x)
        loss.backward()
        found.append((loss.item(), x.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1])


def test_a_gradient_in_another_memory_order(engine):
    """The cotangent of the base comes along columns, the write was along rows: what it overwrote gets none of it."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    flat, transposed = y.reshape(-1), y.T
    shown = transposed[None]
    flat.mul_(3.0)
    shown.sum().backward()
    equal(x.grad, [[3.0, 3.0], [3.0, 3.0]])


def test_a_complex_gradient_in_another_memory_order(engine):
    z = leaf([[1 + 1j, 2 + 2j], [3 + 3j, 4 + 4j]])
    w = z * 1
    flat, transposed = w.reshape(-1), w.T
    shown = transposed[None]
    flat.real.mul_(3.0)
    flat[1:].imag.mul_(5.0)
    (shown.real.sum() + shown.imag.sum()).backward()
    equal(z.grad, [[3 + 1j, 3 + 5j], [3 + 5j, 3 + 5j]])


@here
def test_flattening_memory_in_the_order_of_fortran(engine):
    """A reshape by rows must copy there, one of the transpose shows the memory."""
    x = tg.tensor(np.asfortranarray(np.arange(6.0).reshape(2, 3) + 1), requires_grad=True)
    y = x * 1
    copied, shown = y.reshape(-1), y.T.reshape(-1)
    assert not copied._is_view() and shown._base is y
    shown[1] = x[0, 0] * 7
    equal(y.detach(), [[1.0, 2.0, 3.0], [7.0, 5.0, 6.0]])
    equal(copied.detach(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (weighed(y) + copied.sum()).backward()
    equal(x.grad, [[1.0 + 7000.0 + 1.0, 11.0, 101.0], [1.0, 10001.0, 100001.0]])


def test_masks_of_booleans(engine):
    x = leaf([[1.0, -2.0], [-3.0, 4.0]])
    y = x * 2
    negative = y.detach() < 0
    y[negative] = 0.0
    y[~negative] *= x[~negative]
    y[negative] += x.sum()
    equal(y.detach(), [[2.0, 0.0], [0.0, 32.0]])
    y.sum().backward()
    equal(x.grad, [[6.0, 2.0], [2.0, 18.0]])


def test_a_mask_that_chooses_nothing():
    x = leaf(1.0, 2.0)
    y = x * 2
    y[y.detach() > 100] = 7.0
    y[y.detach() > 100] *= x[:0]
    y.sum().backward()
    equal(x.grad, [2.0, 2.0])


def test_stores_broadcast():
    x = leaf(1.0, 2.0)
    y = tg.zeros(3, 2)
    y[:] = x
    y[1] = x[0]
    y[:, 1:] = x[1] * 5
    equal(y.detach(), [[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]])
    y.sum().backward()
    equal(x.grad, [3.0, 15.0])


@here
def test_stores_at_places_named_twice():
    """The last stays, as in NumPy; PyTorch leaves open which."""
    x = leaf(1.0, 2.0, 3.0)
    y = tg.zeros(2)
    y[[0, 0, 1]] = x
    equal(y.detach(), [2.0, 3.0])
    weighed(y).backward()
    equal(x.grad, [0.0, 1.0, 10.0])


exp = np.exp if HERE else tg.exp


@differs("functions with out=... arguments don't support automatic differentiation")
def test_out_arguments_are_stores():
    x = leaf(1.0, 2.0)
    buffer = tg.zeros(2)
    exp(x, out=buffer)
    (buffer * buffer).sum().backward()
    equal(x.grad, 2 * np.exp([2.0, 4.0]))
    buffer = tg.zeros(2)
    with pytest.raises((RuntimeError, TypeError), match="out|leaf"):
        exp(tg.ones(2), out=x)
    with tg.no_grad():
        exp(x, out=buffer)
    equal(buffer, [np.exp(1), np.exp(2)])
    exp(tg.ones(2), out=buffer)
    equal(buffer, [np.e, np.e])


def test_out_counts_as_a_write():
    buffer = tg.ones(2)
    x = leaf(1.0, 2.0)
    z = x * buffer
    exp(tg.ones(2), out=buffer)
    assert buffer._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_copies_of_views_are_no_views():
    import copy
    import pickle

    plain = tg.tensor([1.0, 2.0, 3.0])
    view = plain[1:]
    for twin in (copy.deepcopy(view), pickle.loads(pickle.dumps(view)), view.clone()):
        twin.mul_(10)
        equal(plain, [1.0, 2.0, 3.0])
        equal(twin, [20.0, 30.0])
        if HERE:
            assert not twin._is_view()
    with pytest.raises(RuntimeError):
        copy.deepcopy((leaf(1.0, 2.0) * 1)[:1])


def test_swapping_through_views():
    x = leaf(1.0, 2.0)
    y = x * 1
    a, b = y[0].clone(), y[1].clone()
    y[0], y[1] = b, a
    equal(y.detach(), [2.0, 1.0])
    weighed(y).backward()
    equal(x.grad, [10.0, 1.0])


def test_writes_in_a_loop_with_a_view_kept():
    x = leaf(2.0)
    y = tg.zeros(5) + x
    view = y[2:]
    for k in range(5):
        y[k] = y[k] * (k + 1)
    equal(view.detach(), [6.0, 8.0, 10.0])
    weighed(view).backward()
    equal(x.grad, 3.0 + 40.0 + 500.0)


def test_a_write_to_a_copy_of_what_was_saved():
    x = leaf(1.0, 2.0)
    y = x.exp()
    z = y.clone()
    z.mul_(2)
    z.sum().backward()
    equal(x.grad, 2 * np.exp([1.0, 2.0]))


@pytest.mark.parametrize("split", ["unbind", "chunk"])
def test_outputs_of_functions_with_several_views(split):
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    if split == "unbind":
        first, second = y[0], y[1]
    else:
        first, second = y[:1], y[1:]
    first.mul_(10)
    second.add_(first)
    weighed(y).backward()
    equal(x.grad, [[10.0 + 1000.0, 100.0 + 10000.0], [100.0, 1000.0]])


@here
def test_in_place_in_transforms(engine):
    def f(x):
        c = tg.zeros(4)
        c[0] = x[0]
        for i in range(1, 4):
            c[i] = c[i - 1] * x[i]
        c[1:3] *= 2
        c.reshape(2, 2).T[0] += x[:2]
        return c

    at = np.array([1.5, -0.5, 2.0, 0.7])
    expected = np.empty((4, 4))
    for j in range(4):
        z = at.astype(complex)
        z[j] += 1e-30j
        c = np.zeros(4, complex)
        c[0] = z[0]
        for i in range(1, 4):
            c[i] = c[i - 1] * z[i]
        c[1:3] *= 2
        c.reshape(2, 2).T[0] += z[:2]
        expected[:, j] = c.imag / 1e-30
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(at), expected, atol=1e-14)
    np.testing.assert_allclose(
        tg.hessian(lambda x: f(x).sum())(at),
        tg.jacobian(tg.grad(lambda x: f(x).sum()), mode="reverse")(at),
        atol=1e-14,
    )


@here
def test_writes_from_several_threads():
    """Each thread has buffers of its own; all read one leaf."""
    import threading

    x = leaf(2.0, 3.0)
    found = {}

    def job(i):
        for _ in range(10):
            c = tg.zeros(20)
            c[0] = x[0]
            view = c[5:]
            for k in range(1, 20):
                c[k] = c[k - 1] + x[1]
            view.mul_(i)
            found[i] = tg.autograd.grad(view.sum(), x)[0].tolist()

    threads = [threading.Thread(target=job, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {i: [15.0 * i, float(i * sum(range(5, 20)))] for i in range(8)}


# ------------------------------------------------------------------------------- which results are views, and of what

VIEWS_OR_COPIES = {
    "flip": lambda y: np.flip(y, 0), "fliplr": np.fliplr, "flipud": np.flipud, "rot90": np.rot90,
    "rollaxis": lambda y: np.rollaxis(y, 1), "moveaxis": lambda y: np.moveaxis(y, 0, 1), "matrix_transpose": np.matrix_transpose,
    "hsplit": lambda y: np.hsplit(y, 3)[1], "vsplit": lambda y: np.vsplit(y, 3)[2], "dsplit": lambda y: np.dsplit(y[..., None], 1)[0],
    "array_split": lambda y: np.array_split(y, 2)[0], "unstack": lambda y: list(y)[1],
    "atleast_2d": np.atleast_2d, "atleast_3d": np.atleast_3d,
    "trim_zeros": lambda y: np.trim_zeros(y[0] + 9.0), "expand_dims": lambda y: np.expand_dims(y, 0), "ravel": np.ravel,
    "ravel of a column": lambda y: np.ravel(y[:, 1]), "ravel by columns": lambda y: y.T.ravel("F"), "column": lambda y: y[:, 1].reshape(-1),
    "einsum of axes": lambda y: np.einsum("ij->ji", y), "einsum of a diagonal": lambda y: np.einsum("ii->i", y),
    "einsum of the transpose": lambda y: np.einsum("ii->i", y.T), "einsum as it is": lambda y: np.einsum("ij", y),
    "view": lambda y: y.view(), "flatten": lambda y: y.flatten(), "flatten by columns": lambda y: y.flatten("F"),
    "nan_to_num": np.nan_to_num, "tile": lambda y: np.tile(y, 1), "repeat": lambda y: np.repeat(y, 1, 0), "copy": np.copy,
    "tile of a row": lambda y: np.tile(y[0], (2, 1)).ravel(), "tile in a new axis": lambda y: np.tile(y, (2, 1, 1)).ravel(),
    "repeat in a new axis": lambda y: np.repeat(y[None], 2, 0).ravel(), "repeat of a column": lambda y: np.repeat(y[:, :1], 2, 1),
    "meshgrid": lambda y: np.meshgrid(y[0], y[1])[0].ravel(), "meshgrid of rows": lambda y: np.meshgrid(y[0], y[1], sparse=True)[1],
    "append": lambda y: np.append(y, []), "triu": lambda y: np.triu(y, -9),
}  # fmt: skip


@here
@pytest.mark.parametrize("shown", VIEWS_OR_COPIES.values(), ids=VIEWS_OR_COPIES)
@pytest.mark.parametrize("base", ["tracked", "constant"])
def test_what_is_written_to_a_result_reaches_the_operand_as_in_numpy(shown, base):
    """NumPy's own program at a complex step says what the gradient is, whether a result is a view or a copy."""

    def program(x, constant):
        y = x * 1.0 if base == "tracked" else constant
        part = shown(y)
        part *= 3.0
        part += x.sum()
        return (y * y).sum() + (part * part * 0.3).sum()

    at = np.arange(9.0).reshape(3, 3) / 4 - 0.7
    x = tg.tensor(at, requires_grad=True)
    value = program(x, tg.zeros((3, 3)))
    np.testing.assert_allclose(value.item(), program(at, np.zeros((3, 3))), rtol=1e-13)
    value.backward()
    for i in np.ndindex(3, 3):
        step = at.astype(complex)
        step[i] += 1e-30j
        expected = program(step, np.zeros((3, 3), complex)).imag / 1e-30
        np.testing.assert_allclose(x.grad[i], expected, rtol=1e-13)


@here
@pytest.mark.parametrize(
    "diagonal",
    [lambda y: y.diagonal(), np.diagonal, np.linalg.diagonal, lambda y: y.T.diagonal()],
)
def test_a_diagonal_may_be_written_to(diagonal):
    """As in PyTorch; NumPy's is read-only."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    d = diagonal(y)
    d *= x[0]
    equal(y.detach(), [[1.0, 2.0], [3.0, 8.0]])
    (y * tg.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    equal(x.grad, [[2.0, 4010.0], [100.0, 2000.0]])


@here
def test_parts_of_a_diagonal():
    x = leaf(np.arange(24.0).reshape(2, 3, 4))
    y = x * 1
    for offset, axis1, axis2 in ((1, 0, 1), (-1, 2, 1), (0, -1, 0), (9, 1, 2), (-1, 1, 0)):
        plain = y.detach().numpy()
        equal(y.diagonal(offset, axis1, axis2).detach(), plain.diagonal(offset, axis1, axis2))
    y.diagonal(1, 2, 1)[...] = 0.0
    y.sum().backward()
    expected = np.ones((2, 3, 4))
    expected[:, [1, 2], [0, 1]] = 0.0
    equal(x.grad, expected)
    with pytest.raises(ValueError, match="axis1 and axis2 cannot be the same"):
        y.diagonal(0, 1, -2)


@here
@pytest.mark.parametrize(
    "shown",
    [
        np.diag,
        lambda y: np.diagonal(y[:, :2]),
        lambda y: np.lib.stride_tricks.sliding_window_view(y, 2, 0),
    ],
)
def test_what_is_no_view_here_and_none_to_write_to_in_numpy_is_read_only(shown):
    y = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * 1
    with pytest.raises(ValueError, match="read-only"):
        shown(y)[...] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        part = shown(y)
        part *= 2.0

    def traced(x):
        y = x * 1.0
        part = shown(y)
        part *= 2.0
        return y.sum()

    with pytest.raises((ValueError, tg.TraceError), match=r"read-only|would not see it"):
        tg.compile(traced)(np.ones((2, 3)))


@here
@pytest.mark.parametrize("tracked", [True, False])
def test_windows_show_what_is_written_to_their_base(tracked):
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1.0 if tracked else tg.zeros(4)
    w = np.lib.stride_tricks.sliding_window_view(y, 2)
    y[1] = x[0] * 10.0
    equal(w.detach(), np.lib.stride_tricks.sliding_window_view(y.detach().numpy(), 2))
    (w * tg.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
    equal(x.grad, [51.0, 0.0, 9.0, 6.0] if tracked else [50.0, 0.0, 0.0, 0.0])


@here
def test_flat():
    """It reads copies in the order of rows; stores reach the tensor, also where its memory is in another order."""
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x.reshape(2, 2).T * 1.0
    y.T.flat[::3] = x[:2] * 10.0
    y.flat[1] += 5.0
    part = y.flat[[0, 1]]
    part *= 7.0
    equal(y.detach(), [[10.0, 8.0], [2.0, 20.0]])
    assert len(y.flat) == 4 and [v.item() for v in y.flat] == [10.0, 8.0, 2.0, 20.0]
    (y.flat[0] + 100 * y.flat[-1] + part.sum()).backward()
    equal(x.grad, [10.0 + 70.0, 1000.0, 7.0, 0.0])


@here
@pytest.mark.parametrize("of", [np.real, np.real_if_close])
def test_the_real_part_of_a_real_tensor_is_a_view(of):
    y = tg.zeros(2)
    x = leaf(3.0)
    of(y)[0] = x * x
    y.sum().backward()
    assert x.grad == 6.0


@here
def test_a_view_of_the_whole():
    x = leaf([1.0, 2.0])
    y = x * 1.0
    same = y.view()
    assert same is not y and same._base is y
    with pytest.raises(TypeError, match=r"no derivative. t.astype\(dtype\) converts"):
        y.view(np.int64)


@here
def test_the_conjugate_of_a_real_tensor_is_the_tensor():
    x, z = leaf([1.0]), tg.tensor([1j], requires_grad=True)
    assert x.conj() is x and x.conjugate() is x and z.conj().tolist() == [-1j]


# ------------------------------------------------------------------------------------------------------ fuzzer


# Some of these are views, some copies, and some either, as the memory's order has it.
REARRANGED = [
    np.ravel, np.fliplr, np.flipud, np.rot90, np.squeeze, np.atleast_3d, lambda y: np.flip(y, 0), lambda y: np.moveaxis(y, 0, -1),
    lambda y: np.einsum("...i->i...", y), lambda y: np.array_split(y, 2)[0], lambda y: np.repeat(y, 1, 0), lambda y: np.tile(y, 1),
    lambda y: y.flatten(), lambda y: np.concatenate([y, y]),
]  # fmt: skip


def program(rng, steps):
    """A random program of views, stores and in-place arithmetic: run(x) on arrays or tensors, as a list of instructions."""
    code = []
    shapes = [(4, 3)]
    for _ in range(steps):
        kind = rng.integers(7)
        i = int(rng.integers(len(shapes)))
        shape = shapes[i]
        if kind <= 2:  # a view
            way = int(rng.integers(7))
            if way == 0:
                axis = int(rng.integers(len(shape)))
                start, step = int(rng.integers(2)), int(rng.choice([1, 2, -1]))
                index = tuple(
                    [slice(None)] * axis + [slice(start if step > 0 else None, None, step)]
                )
                code.append(("index", i, index))
            elif way == 1:
                code.append(("transpose", i))
            elif way == 4:
                code.append(("flatten", i))
            elif way > 4:
                code.append(("rearrange", i, int(rng.integers(len(REARRANGED)))))
            elif way == 2 and len(shape) > 1 and shape[0] > 1:
                code.append(("index", i, (int(rng.integers(shape[0])), Ellipsis)))
            else:
                code.append(("index", i, (None, Ellipsis)))
            shapes.append(np.shape(_step(code[-1], [np.zeros(s) for s in shapes])))
        elif kind == 3:
            code.append(("store", i, float(rng.normal())))
        elif kind == 4:
            j = int(rng.integers(len(shapes)))
            code.append(("use", i, j))
        elif kind == 5:
            code.append(("scale", i, float(rng.uniform(0.5, 1.5))))
        else:
            code.append(("sine", i))
    return code, len(shapes)


def _step(instruction, members):
    what, i, *rest = instruction
    member = members[i]
    if what == "index":
        return member[rest[0]]
    if what == "transpose":
        return member.T
    if what == "rearrange":
        return REARRANGED[rest[0]](np.atleast_2d(member))
    if what == "flatten":
        return member.reshape(-1)  # a view or a copy, as the memory's order has it
    if what == "store":
        if member.size:
            member[(0,) * member.ndim if member.ndim else ()] = rest[0]
    elif what == "use":
        other = members[rest[0]] + 0.0  # a copy: what a product saves must not be overwritten
        member += (other * other).sum() * 0.1
    elif what == "scale":
        member *= rest[0]
    else:
        copy = member + 0.0
        member[...] = np.sin(copy) + copy
    return None


def run(code, x):
    members = [x * 1.0]
    for instruction in code:
        made = _step(instruction, members)
        if made is not None:
            members.append(made)
    total = 0.0
    for k, member in enumerate(members):
        total = total + (member * member).sum() * (0.3 + k)
    return total


@pytest.mark.long
@here
def test_random_programs_of_views_and_writes(engine):
    programs = int(os.environ.get("TAPEGRAD_FUZZ", 150))
    first = 0 if engine == "sweep" else 10_000  # each engine programs of its own
    for seed in range(first, first + programs):
        rng = np.random.default_rng(seed)
        code, _ = program(rng, 14)
        x = rng.normal(size=(4, 3)) * 0.3
        with np.errstate(all="ignore"):
            value = run(code, x)
            expected = np.empty_like(x)
            for at in np.ndindex(x.shape):
                z = x.astype(complex)
                z[at] += 1e-30j
                expected[at] = run(code, z).imag / 1e-30
        t = tg.tensor(x, requires_grad=True)
        loss = run(code, t)
        np.testing.assert_allclose(loss.item(), value, rtol=1e-12, err_msg=f"seed {seed}")
        (g,) = tg.autograd.grad(loss, t, create_graph=seed % 5 == 0)
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(
            g.detach().numpy() / scale, expected / scale, atol=1e-11, err_msg=f"seed {seed}: {code}"
        )
        tangent = rng.normal(size=x.shape)
        _, forward = tg.jvp(lambda v, code=code: run(code, v), (x,), (tangent,))
        np.testing.assert_allclose(forward / scale, (expected * tangent).sum() / scale, atol=1e-10)


def step_of_both(rng, shapes):
    """A random instruction as a function of a library and its tensors; the shapes are those of the tensors so far."""
    i = int(rng.integers(len(shapes)))
    shape = shapes[i]
    number = float(rng.uniform(0.5, 1.5))
    start = int(rng.integers(2))
    made = {
        "slice": lambda lib, ms: ms[i][start:],
        "columns": lambda lib, ms: ms[i][..., start:],
        "step": lambda lib, ms: ms[i][::2],
        "transposed": lambda lib, ms: ms[i].T,
        "flat": lambda lib, ms: ms[i].reshape(-1),
        "axis": lambda lib, ms: ms[i][None],
        "row": lambda lib, ms: ms[i][0],
        "clone": lambda lib, ms: ms[i].clone(),
    }
    done = {
        "add": lambda lib, ms: ms[i].add_(number),
        "mul": lambda lib, ms: ms[i].mul_(number),
        "zero": lambda lib, ms: ms[i].zero_(),
        "neg": lambda lib, ms: ms[i].neg_(),
        "add other": lambda lib, ms: ms[i].add_(ms[-1].sum()),
        "store": lambda lib, ms: ms[i].__setitem__(slice(0, 1), number),
        "store other": lambda lib, ms: ms[i].__setitem__(Ellipsis, ms[i].clone() * number),
        "exp": lambda lib, ms: ms[i].mul_(0.1).exp_(),
        "unrecorded": lambda lib, ms: lib.no_grad()(lambda: ms[i].mul_(number))(),
        "detached": lambda lib, ms: ms[i].detach().add_(number),
    }
    if rng.random() < 0.45:
        names = [
            name
            for name in made
            if not (name == "row" and (len(shape) < 2 or not shape[0]))
            and not (name in ("slice", "columns", "step") and not shape)
            and not (name == "transposed" and len(shape) != 2)
            and not (name == "axis" and len(shape) > 2)
        ]
        name = str(rng.choice(names))
        return name, made[name], True
    name = str(rng.choice(list(done)))
    return name, done[name], False


@pytest.mark.long
@here
@pytest.mark.peers
def test_random_programs_agree_with_torch():
    """Where PyTorch gives a gradient it is ours; versions, views and flags are the same after every step.

    PyTorch may refuse what is allowed here (its operations save what they overwrite), but not the other way round.
    """
    torch = pytest.importorskip("torch")
    refused = 0
    programs = int(os.environ.get("TAPEGRAD_FUZZ", 150))
    for seed in range(programs):
        rng = np.random.default_rng(50_000 + seed)
        at = rng.normal(size=(3, 4))
        leaves = [torch.tensor(at, requires_grad=True), tg.tensor(at, requires_grad=True)]
        libs = (torch, tg)
        members = [[x * 1.0] for x in leaves]
        kept = [[], []]
        names = []
        for _ in range(12):
            shapes = [tuple(m.shape) for m in members[1]]
            name, function, is_new = step_of_both(rng, shapes)
            names.append(name)
            for lib, ms in zip(libs, members, strict=True):
                made = function(lib, ms)
                if is_new:
                    ms.append(made)
            if rng.random() < 0.4:
                i = int(rng.integers(len(members[1])))
                saved = rng.random() < 0.1  # a product of what later writes may hit
                for ms, terms in zip(members, kept, strict=True):
                    factor = ms[i] if saved else ms[i].clone()
                    terms.append((factor * factor).sum())
            for t, m in zip(*members, strict=True):
                state = f"seed {seed}: {names}"
                np.testing.assert_allclose(m.detach().numpy(), t.detach().numpy(), err_msg=state)
                assert m.requires_grad == t.requires_grad, state
                assert m._version == t._version, state
                assert m._is_view() == t._is_view() or not m.size, state
        losses = []
        for ms, terms in zip(members, kept, strict=True):
            losses.append(sum(((k + 1) * m.sum() for k, m in enumerate(ms)), sum(terms)))
        try:
            (expected,) = torch.autograd.grad(losses[0], leaves[0])
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            refused += 1
            continue
        (found,) = tg.autograd.grad(losses[1], leaves[1])
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}: {names}"
        )
    assert refused < 0.7 * programs


@here
@pytest.mark.parametrize(
    "op", [op for op in OPS if op is not None and op.view], ids=lambda op: op.name
)
def test_views_say_whose_memory_they_show(op):
    """Whether a saved view was overwritten is found by its owner (storage.owner)."""
    for sample in op.samples:
        base = (
            np.ones(sample.operands[0])
            if type(sample.operands[0]) is tuple
            else np.array(sample.operands[0])
        )
        t = tg.tensor(base)
        shown = op.function(t, **sample.settings)._value
        if isinstance(shown, np.ndarray) and np.may_share_memory(shown, t._value):
            assert storage.owner(shown) is storage.owner(t._value)


@pytest.mark.parametrize("engine", [lambda f: f, tg.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("layout", ["transposed", "broadcast", "F", "strided", "C"])
def test_a_copy_is_in_the_order_of_rows_whatever_was_copied(engine, layout):
    """As an array's copy is: its ravel is a view, so that what is stored there reaches the copy."""
    x = {
        "transposed": np.arange(6.0).reshape(3, 2).T + 1,
        "broadcast": np.broadcast_to(np.arange(3.0), (2, 3)),
        "F": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(12.0).reshape(2, 6)[:, ::2],
        "C": np.arange(6.0).reshape(2, 3),
    }[layout]

    def f(x):
        v = x.copy()
        v.ravel()[1] += 10.0 * v[0, 0]
        return np.sum(v * v)

    run = engine(tg.value_and_grad(f))
    for scale in (1.0, 1.5, 2.0):
        value, gradient = run(scale * x)
        assert np.isclose(value, f(scale * x))
        v = (scale * x).copy()
        v.ravel()[1] += 10.0 * v[0, 0]
        expected = 2 * v
        expected[0, 0] += 20 * v[0, 1]
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)
    value, _ = run(x)
    assert np.isclose(value, f(x))


def test_a_copy_takes_numpys_orders():
    x = np.arange(6.0).reshape(2, 3)

    def f(x):
        return np.sum(x.copy(order="F").T.ravel()[1:3] * x.copy("K")[0, :2])

    assert f(x) == tg.value_and_grad(f)(x)[0]
    with pytest.raises(ValueError, match="write 'C', 'F' or 'K'"):
        tg.tensor(x, requires_grad=True).copy(order="Z")


def test_no_entries_by_number():
    def f(x):
        v = x * 1.0
        v.flat[::2] = 0.5
        v.flat[[]] = 2.0
        return np.sum(v)

    assert tg.grad(f)(np.zeros((0, 3))).shape == (0, 3)
    assert list(tg.grad(f)(np.zeros(3))) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
@pytest.mark.parametrize(
    "terms", [np.int8([100, 100, 3]), np.array([True, True, False]), np.float32([0.1, 0.2, 0.7])]
)
def test_terms_of_one_place_are_added_in_the_type_of_the_target(ufunc, terms):
    """Terms that are tensors were added to each other first, in their own type: two of int8 were -56."""
    expected, target = np.array([1.0, 2.0, 3.0]), tg.tensor([1.0, 2.0, 3.0], requires_grad=True) * 1
    ufunc.at(expected, [0, 0, 1], terms)
    ufunc.at(target, [0, 0, 1], tg.tensor(terms))
    np.testing.assert_allclose(target.detach().numpy(), expected, rtol=1e-15)
