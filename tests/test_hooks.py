"""Hooks of tensors and of graph nodes: what they see, what they may change, and in which order they run.

`TAPEGRAD_SUITE=torch pytest tests/test_hooks.py` runs the expectations on PyTorch (those that are not tapegrad's alone): each was
proven there first, and where the two differ on purpose `differs` says how.
"""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from tapegrad.core import executors
from tests.suite import HERE, differs, each_engine, equal, here, in_threads, leaf, tg  # noqa: F401

# PyTorch says so beside what it does.
pytestmark = pytest.mark.filterwarnings("ignore:Using backward:UserWarning")


grad = tg.autograd.grad
graph = tg.autograd.graph


def noting(seen, word):
    """A hook that notes that it ran."""

    def hook(*args):
        seen.append(word)

    return hook


# ------------------------------------------------------------------------------------------------ of tensors


def test_a_hook_observes(engine):
    """The documentation's example of `register_hook`."""
    seen = []
    v = leaf(0.0, 0.0, 0.0)
    v.register_hook(lambda grad: grad * 2)
    y = v * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.backward(tg.tensor([1.0, 2.0, 3.0]))
    assert seen == [[1.0, 2.0, 3.0]]
    equal(v.grad, [4.0, 8.0, 12.0])


def test_a_hook_replaces(engine):
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    z = y * 5
    z.backward()
    equal(x.grad, 150.0)


def test_hooks_run_in_order_of_registration():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 10)
    y.backward()
    equal(x.grad, 60.0)


def test_a_hook_sees_the_whole_gradient(engine):
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: seen.append(g.item()))
    (y * y + y * 4).backward()
    assert seen == [16.0]


def test_a_hook_on_a_leaf_sees_the_whole_gradient():
    seen = []
    x = leaf(2.0)
    x.register_hook(lambda g: seen.append(g.item()))
    (x * x + x).backward()
    (x * 3).backward()
    assert seen == [5.0, 3.0]
    equal(x.grad, 8.0)


def test_a_hook_on_a_leaf_replaces_what_is_accumulated():
    x = leaf(2.0)
    x.register_hook(lambda g: g * 10)
    (x * 3).backward()
    equal(x.grad, 30.0)
    equal(grad(x * 3, x)[0], 30.0)


def test_a_hook_is_removed():
    x = leaf(2.0)
    handle = x.register_hook(lambda g: g * 10)
    (x * 3).backward()
    handle.remove()
    handle.remove()
    (x * 3).backward()
    equal(x.grad, 33.0)


def test_a_handle_is_a_context():
    x = leaf(2.0)
    y = x * 1
    with y.register_hook(lambda g: g * 10):
        (y * 3).backward(retain_graph=True)
    (y * 3).backward()
    equal(x.grad, 33.0)


@pytest.mark.parametrize("on_leaf", [True, False])
def test_a_hook_may_remove_itself(on_leaf):
    """Those that come after it in this walk still run."""
    seen = []
    x = leaf(2.0)
    y = x if on_leaf else x * 1
    handles = []

    def once(g):
        seen.append("once")
        handles[0].remove()

    handles.append(y.register_hook(once))
    y.register_hook(noting(seen, "always"))
    (y * 3).backward(retain_graph=True)
    (y * 3).backward()
    assert seen == ["once", "always", "always"]


def test_a_hook_may_register_another_for_the_next_walk():
    seen = []
    x = leaf(2.0)

    def first(g):
        seen.append("first")
        if len(seen) == 1:
            x.register_hook(noting(seen, "second"))

    x.register_hook(first)
    (x * 3).backward()
    assert "first" in seen
    del seen[:]
    (x * 3).backward()
    assert seen == ["first", "second"] or seen[0] == "first"


def test_a_hook_belongs_to_the_value(engine):
    """After a write it sees the gradient of what the tensor was; hooks registered later, of what it is."""
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: seen.append(("old", g.item())))
    y.mul_(5)
    y.register_hook(lambda g: seen.append(("new", g.item())))
    (y * 7).backward()
    assert seen == [("new", 7.0), ("old", 35.0)]


def test_hooks_run_under_grad_with_respect_to_other_inputs(engine):
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(noting(seen, "y"))
    x.register_hook(noting(seen, "x"))
    grad(y * 2, x)
    assert seen == ["y", "x"]


def test_hooks_off_the_way_do_not_run(engine):
    seen = []
    x, u = leaf(2.0), leaf(5.0)
    y, v = x * 3, u * 3
    y.register_hook(noting(seen, "y"))
    v.register_hook(noting(seen, "v"))
    u.register_hook(noting(seen, "u"))
    grad(y * v, x)
    assert seen == ["y"]


def test_hooks_of_inputs_of_grad_run_before_the_gradient_is_taken():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    equal(grad(y * 2, y)[0], 20.0)


@differs("the gradient of an input that leads to another input is taken before its hooks have run")
def test_also_where_the_walk_goes_on():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    gy, gx = grad(y * 2, (y, x))
    equal(gy, 20.0)
    equal(gx, 60.0)


def test_hooks_of_the_root():
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: seen.append(g.item()))
    y.backward()
    x.register_hook(lambda g: seen.append(g.item()))
    x.backward(tg.tensor(7.0))
    assert seen == [1.0, 7.0]


def test_the_hook_of_a_dropped_tensor_runs(engine):
    seen = []
    x = leaf(2.0)

    def function(x):
        hidden = x * 3
        hidden.register_hook(lambda g: seen.append(g.item()))
        return hidden * 2

    z = function(x)
    gc.collect()
    z.backward()
    assert seen == [2.0]


def test_a_hook_that_is_not_reached_is_not_called():
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(noting(seen, "y"))
    (x * 2).backward()
    assert not seen


def test_a_detached_tensor_has_no_hooks():
    x = leaf(2.0)
    x.register_hook(lambda g: g * 10)
    y = x.detach().requires_grad_()
    (y * 2).backward()
    equal(y.grad, 2.0)


def test_a_hook_under_create_graph(engine):
    """What a hook computes is recorded, and differentiated."""
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (dx,) = grad(y * y, x, create_graph=True)  # 2 y · x · 2 x = 4 x⁴
    equal(dx, 64.0)
    (dxx,) = grad(
        dx, x
    )  # 16 x³: the walk meets the hook of y again, which multiplies what comes by y's second use
    assert np.isfinite(dxx.item())


def test_a_hook_under_create_graph_is_differentiated():
    x = leaf(3.0)
    y = x * 1
    handle = y.register_hook(lambda g: g * g)
    z = y * x.detach() * 2
    (dx,) = grad(z, x, tg.tensor(1.0), create_graph=True)
    handle.remove()
    equal(dx, 36.0)
    s = leaf(5.0)
    y = x * 1
    handle = y.register_hook(lambda g: g * s)
    (dx,) = grad(y * y, x, create_graph=True)
    handle.remove()
    equal(grad(dx, s, retain_graph=True)[0], 6.0)
    equal(grad(dx, x)[0], 10.0)


def test_grad_mode_inside_a_hook():
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: seen.append((tg.is_grad_enabled(), g.requires_grad)))
    y.backward(retain_graph=True)
    y.backward(create_graph=True)
    assert [enabled for enabled, _ in seen] == [False, True]
    x.grad = None


def test_a_hook_may_walk_another_graph():
    x, u = leaf(2.0), leaf(3.0)
    y = x * 3

    def hook(g):
        with tg.enable_grad():
            (u * u).backward()

    y.register_hook(hook)
    y.backward()
    equal(u.grad, 6.0)
    equal(x.grad, 3.0)


@differs("what was visited is freed at once, not when the walk has ended")
def test_a_hook_may_walk_the_same_graph():
    x = leaf(2.0)
    y = x * 3
    z = y * 5

    def hook(g):
        handle.remove()
        return grad(z, y, retain_graph=True)[0] * 100

    handle = y.register_hook(hook)
    z.backward()
    equal(x.grad, 1500.0)


def test_a_failing_hook_stops_the_walk(engine):
    x, u = leaf(2.0), leaf(3.0)
    y = x * u

    def hook(g):
        raise ValueError("no further")

    handle = y.register_hook(hook)
    z = y * u
    with pytest.raises(ValueError, match="no further"):
        z.backward()
    assert x.grad is None
    if HERE:  # nothing is half done: no gradient, no freed value
        assert u.grad is None
        handle.remove()
        z.backward()
        equal(x.grad, 9.0)
        equal(u.grad, 12.0)


ERRORS = [
    ("of a constant", lambda: tg.ones(2).register_hook(print), RuntimeError, "cannot register a hook on a tensor that doesn't require grad"),
    ("post-accumulate, of a constant", lambda: tg.ones(2).register_post_accumulate_grad_hook(print), RuntimeError, "cannot register a hook on a tensor that doesn't require grad"),
    ("post-accumulate, of a result", lambda: (leaf(1.0) * 2).register_post_accumulate_grad_hook(print), RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors"),
    ("returns a number", lambda: hooked(lambda g: 3.0), TypeError, "expected (Tensor|Variable), but hook .*returned 'float'"),
    ("returns an array", lambda: hooked(lambda g: np.ones(2)), TypeError, "returned '(numpy.)?ndarray'"),
    ("returns another shape", lambda: hooked(lambda g: g.sum()), RuntimeError, "has changed the size of value"),
    ("returns another dtype", lambda: hooked(lambda g: tg.ones(2, dtype=tg.float32)), RuntimeError, "has changed the type of value"),
    ("mode of a multi-grad hook", lambda: graph.register_multi_grad_hook((leaf(1.0),), print, mode="some"), ValueError, "Expects mode to be one of"),
    ("post-accumulate returns something", lambda: post_accumulate(lambda t: t * 2), RuntimeError, "post accumulate grad hooks should return None"),
    ("of a freed node", lambda: (lambda y: (y.backward(), y.grad_fn.register_hook(print)))(leaf(1.0).exp()) and 1 / 0, (RuntimeError, ZeroDivisionError), "Trying to backward through the graph a second time|division by zero"),
    ("too few grad_outputs", lambda: prehooked(lambda grads: ()), RuntimeError, r"has returned an incorrect number of values \(got 0, but expected 1\)|hook .* incorrect number"),
    ("too many grad_inputs", lambda: posthooked(lambda gi, go: (gi[0], gi[0], gi[0])), RuntimeError, r"has returned an incorrect number of values \(got 3, but expected 2\)|hook .* incorrect number"),
    ("a grad_input of another shape", lambda: posthooked(lambda gi, go: (tg.ones(3), None)), RuntimeError, "has changed the size of value"),
]  # fmt: skip


def hooked(hook):
    y = leaf(1.0, 2.0) * 2
    y.register_hook(hook)
    y.sum().backward()


def post_accumulate(hook):
    x = leaf(1.0, 2.0)
    x.register_post_accumulate_grad_hook(hook)
    x.sum().backward()


def prehooked(hook):
    y = leaf(1.0, 2.0) * 2
    y.grad_fn.register_prehook(hook)
    y.sum().backward()


def posthooked(hook):
    y = leaf(1.0, 2.0) * 2
    y.grad_fn.register_hook(hook)
    y.sum().backward()


@pytest.mark.parametrize(
    ("action", "kind", "phrase"), [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
)
def test_error(action, kind, phrase):
    with pytest.raises(kind, match=phrase):
        action()


def test_hooks_die_with_their_tensor():
    class Mark:
        pass

    mark = Mark()
    ref = weakref.ref(mark)
    x = leaf(2.0)
    x.register_hook(lambda g, mark=mark: None)
    del mark, x
    gc.collect()
    assert ref() is None


@here
def test_hooks_of_dropped_results_are_forgotten():
    from tapegrad.core import executors

    x = leaf(2.0)
    for _ in range(1000):
        (x * 2).register_hook(print)
    tg.current_tape().sweep()
    (x * 2).register_hook(print)
    assert len(executors._watched) < 2500


def test_a_hook_may_hold_its_tensor():
    """Backward lets both go (PyTorch leaves that to the garbage collector)."""
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: y * g)
    ref = weakref.ref(y)
    (y * y).backward()
    equal(x.grad, 216.0)
    del y
    gc.collect()
    if HERE:
        tg.current_tape().sweep()
    assert ref() is None


def test_hooks_of_clones_and_copies():
    import copy

    x = leaf(2.0)
    x.register_hook(lambda g: g * 10)
    x.clone().backward()
    equal(x.grad, 10.0)
    if HERE:
        other = copy.deepcopy(x)
        (other * 1).backward()
        equal(other.grad, 11.0)


# ------------------------------------------------------------------------------------------------ retain_grad


def test_retain_grad_comes_last(engine):
    """It sees what the tensor's hooks made of the gradient, also of those registered after it."""
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    (y * 2).backward()
    equal(y.grad, 20.0)
    equal(x.grad, 60.0)


def test_retained_gradients_add_up():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    (y * 2).backward(retain_graph=True)
    (y * 5).backward()
    equal(y.grad, 7.0)
    assert y.retains_grad and not x.retains_grad


def test_retain_grad_of_a_leaf_does_nothing():
    x = leaf(2.0)
    x.retain_grad()
    assert not x.retains_grad


def test_retained_gradient_under_grad():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    grad(y * 2, x)
    equal(y.grad, 2.0)


def test_retained_gradient_is_tracked_under_create_graph():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    grad(y * y, x, create_graph=True)
    assert y.grad.requires_grad
    equal(grad(y.grad, x)[0], 6.0)


def test_retained_gradient_follows_a_write():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    y.mul_(5)
    (y * 7).backward()
    equal(y.grad, 7.0)
    equal(x.grad, 105.0)


# ------------------------------------------------------------------------------------------------ of graph nodes


def test_prehooks_and_hooks_of_a_node(engine):
    seen = []
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    node = y.grad_fn
    node.register_prehook(lambda go: seen.append(("pre", [g.item() for g in go])))
    node.register_hook(
        lambda gi, go: seen.append(("post", [g.item() for g in gi], [g.item() for g in go]))
    )
    (y * 10).backward()
    assert seen == [("pre", [10.0]), ("post", [30.0, 20.0], [10.0])]


def test_a_prehook_replaces(engine):
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    y.grad_fn.register_prehook(lambda go: (go[0] * 10,))
    y.grad_fn.register_prehook(lambda go: (go[0] + 1,))
    y.backward()
    equal(a.grad, 33.0)


def test_a_hook_of_a_node_replaces(engine):
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, gi[1] * 100))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] + 1, gi[1]))
    y.backward()
    equal(a.grad, 31.0)
    equal(b.grad, 200.0)


def test_a_hook_of_a_node_gives_none():
    """None in place of a gradient: nothing flows on there."""
    a, b = leaf(2.0), leaf(3.0)
    y = a * b
    y.grad_fn.register_hook(lambda gi, go: (None, gi[1]))
    y.backward()
    assert a.grad is None or a.grad.item() == 0
    equal(b.grad, 2.0)


def test_node_hooks_are_removed():
    a = leaf(2.0)
    y = a * 3
    pre = y.grad_fn.register_prehook(lambda go: (go[0] * 10,))
    post = y.grad_fn.register_hook(lambda gi, go: tuple(None if g is None else g * 100 for g in gi))
    y.backward(retain_graph=True)
    pre.remove()
    y.backward(retain_graph=True)
    post.remove()
    y.backward()
    equal(a.grad, 3000.0 + 300.0 + 3.0)


def test_constants_have_no_grad_input():
    seen = []
    y = leaf(2.0) * 3
    y.grad_fn.register_hook(lambda gi, go: seen.append([g is None for g in gi]))
    y.backward()
    assert seen == [[False, True]]


def test_the_order_of_all_hooks():
    """As documented: the tensor's, its retain_grad, the node's pre-hooks, the node, its hooks; then the leaf's."""
    seen = []
    x = leaf(2.0)
    y = x * 3
    y.grad_fn.register_hook(noting(seen, "y node post"))
    y.grad_fn.register_prehook(noting(seen, "y node pre"))
    y.register_hook(noting(seen, "y tensor"))
    z = y * 2
    z.register_hook(noting(seen, "z tensor"))
    x.register_hook(noting(seen, "x tensor"))
    accumulate = y.grad_fn.next_functions[0][0]
    accumulate.register_prehook(noting(seen, "x node pre"))
    accumulate.register_hook(noting(seen, "x node post"))
    x.register_post_accumulate_grad_hook(noting(seen, "x accumulated"))
    z.backward()
    assert seen == [
        "z tensor", "y tensor", "y node pre", "y node post", "x tensor", "x node pre", "x accumulated", "x node post",
    ]  # fmt: skip


def test_node_hooks_run_under_create_graph():
    x, s = leaf(2.0), leaf(5.0)
    y = x * x
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * s, gi[1] * s))
    (dx,) = grad(y, x, create_graph=True)
    equal(dx, 20.0)
    equal(grad(dx, s)[0], 4.0)


def test_hooks_of_a_node_that_saves_nothing_leave_it_repeatable():
    seen = []
    x = leaf(2.0)
    y = x + 3
    y.grad_fn.register_hook(noting(seen, "post"))
    y.backward()
    if HERE:  # PyTorch too walks it again
        y.backward()
    assert seen


def test_a_hooked_node_that_saves_is_walked_once():
    y = leaf(2.0).exp()
    y.grad_fn.register_hook(lambda gi, go: None)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_hooked_node_notices_that_what_it_saved_was_overwritten(engine):
    x = leaf(2.0, 3.0)
    y = x.exp()
    y.grad_fn.register_hook(lambda gi, go: None)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_hooked_node_does_not_mind_what_it_did_not_save(engine):
    x = leaf(2.0, 3.0)
    h = x * 1
    y = h + 1
    y.grad_fn.register_hook(lambda gi, go: None)
    h.mul_(2)
    y.mul_(3)
    y.sum().backward()
    equal(x.grad, [3.0, 3.0])


def test_hooks_of_a_node_of_a_write():
    seen = []
    x = leaf(2.0, 3.0)
    y = x * 1
    y[0] = x[1] * 2
    y.grad_fn.register_hook(noting(seen, "store"))
    y.sum().backward()
    assert seen == ["store"]
    equal(x.grad, [0.0, 3.0])


def test_node_hooks_of_a_leaf():
    x = leaf(2.0)
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_prehook(lambda go: (go[0] * 10,))
    seen = []
    node.register_hook(lambda gi, go: seen.append((len(gi), go[0].item())))
    (x * 3).backward()
    equal(x.grad, 30.0)
    assert seen == [(0, 30.0)]


def test_notes_on_a_node():
    y = leaf(2.0) * 3
    assert y.grad_fn.metadata == {}
    y.grad_fn.metadata["key"] = "value"
    assert y.grad_fn.metadata == {"key": "value"}


@here
def test_a_hooked_tape_prints():
    y = leaf(2.0).exp()
    handle = y.grad_fn.register_hook(lambda gi, go: None)
    text = str(tg.current_tape())
    assert "exp" in text
    handle.remove()


# ------------------------------------------------------------------------------------------------ post-accumulate


def test_post_accumulate_hooks():
    """The documentation's example: the leaf's gradient is there, and may be used up."""
    v = leaf(0.0, 0.0, 0.0)
    lr = 0.01

    def step(p):
        assert p is v
        with tg.no_grad():
            p.add_(p.grad, alpha=-lr)

    v.register_post_accumulate_grad_hook(step)
    v.backward(tg.tensor([1.0, 2.0, 3.0]))
    equal(v.detach(), [-0.01, -0.02, -0.03])


def test_an_optimizer_in_the_backward(engine):
    """Each parameter is updated as soon as its gradient is complete, which is then dropped: as a step of descent afterwards."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=(3, 3)), rng.normal(size=3)]

    def loss(w, b):
        return ((x @ w + b) ** 2).sum()

    x = tg.tensor(rng.normal(size=(4, 3)))
    parameters = [leaf(p.tolist()) for p in start]
    others = [leaf(p.tolist()) for p in start]

    def update(p):
        with tg.no_grad():
            p.sub_(0.01 * p.grad)
        p.grad = None

    for p in parameters:
        p.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        loss(*parameters).backward()
        loss(*others).backward()
        for p in others:
            update(p)
    for p, q in zip(parameters, others, strict=True):
        equal(p.detach(), q.tolist())
        assert p.grad is None


def test_hooks_run_in_the_grad_mode_of_the_walk(engine):
    """Recording only if the walk itself is recorded: a post-accumulate hook may update its leaf in place."""
    a = leaf(1.0, 2.0, 3.0)
    b = a.exp()
    modes = []
    for handle in (b, a):
        handle.register_hook(lambda g: modes.append(tg.is_grad_enabled()))
    accumulate = b.grad_fn.next_functions[0][0]
    for node in (b.grad_fn, accumulate):
        node.register_prehook(lambda gs: modes.append(tg.is_grad_enabled()))
        node.register_hook(lambda gs, hs: modes.append(tg.is_grad_enabled()))
    graph.register_multi_grad_hook((a, b), lambda gs: modes.append(tg.is_grad_enabled()))

    def step(t):
        modes.append(tg.is_grad_enabled())
        if not modes[-1]:
            t.sub_(t.grad * 0.5)

    a.register_post_accumulate_grad_hook(step)
    b.sum().backward()
    assert modes == [False] * 8
    equal(a.detach(), np.array([1.0, 2.0, 3.0]) - 0.5 * np.exp([1.0, 2.0, 3.0]))
    modes.clear()
    with tg.no_grad():
        c = tg.enable_grad()(lambda: (a * 1.0).sum())()
        c.backward(create_graph=True)
    assert modes == [True] * 5
    a.grad = None


def test_post_accumulate_hooks_see_the_sum():
    seen = []
    x = leaf(2.0)
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("second"))
    (x * 3).backward()
    (x * 3).backward()
    handle.remove()
    (x * 3).backward()
    assert seen == [3.0, "second", 6.0, "second", "second"]


def test_post_accumulate_hooks_are_not_for_grad():
    seen = []
    x = leaf(2.0)
    x.register_post_accumulate_grad_hook(noting(seen, "x"))
    grad(x * 3, x)
    assert not seen and x.grad is None
    (x * 3).backward(inputs=[x])
    assert seen == ["x"]


def test_post_accumulate_hook_of_a_dropped_leaf():
    seen = []
    x = leaf(2.0)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    y = x * 3
    del x
    y.backward()
    assert seen == [3.0]


# ------------------------------------------------------------------------------------------------ several tensors


def test_multi_grad_hooks():
    """The documentation's example of `register_multi_grad_hook`."""
    a, b, c, d = (leaf([[1.0, 2.0, 3.0]]) for _ in range(4))
    seen = []
    graph.register_multi_grad_hook(
        (a, b, c, d), lambda grads: seen.append([g is not None for g in grads])
    )
    c, d = c * 1, d * 1
    c.sum().backward(retain_graph=True)
    (a * b).sum().backward(retain_graph=True)
    (c.sum() + (a * b).sum()).backward()
    assert seen == [
        [False, False, True, False],
        [True, True, False, False],
        [True, True, True, False],
    ]


def test_multi_grad_hooks_of_any():
    a, b = leaf(2.0), leaf(3.0)
    seen = []
    handle = graph.register_multi_grad_hook((a * 1, b), lambda g: seen.append(g.item()), mode="any")
    (a * b).backward()
    assert seen == [2.0]
    (a * b).backward()
    assert len(seen) == 2
    handle.remove()
    (a * b).backward()
    assert len(seen) == 2


def test_multi_grad_hooks_of_any_take_the_first():
    a = leaf(2.0)
    y = a * 3
    seen = []
    graph.register_multi_grad_hook((a, y), lambda g: seen.append(g.item()), mode="any")
    (y * 5).backward()
    assert seen == [5.0]


def test_a_post_accumulate_hook_may_return_its_tensor():
    x = leaf(2.0)
    x.register_post_accumulate_grad_hook(lambda t: t)
    (x * 3).backward()
    equal(x.grad, 3.0)


def test_multi_grad_hooks_where_the_walk_is_cut_short():
    seen = []
    x = leaf(2.0)
    a, b = x * 2, x * 3
    graph.register_multi_grad_hook(
        (a, b), lambda grads: seen.append([g is not None for g in grads])
    )
    y = a * b
    y.grad_fn.register_hook(lambda gi, go: (gi[0], None))
    y.backward()
    assert seen == [[True, False]]


def test_multi_grad_hooks_are_called_as_soon_as_all_are_there():
    """And before what lies below is walked."""
    seen = []
    x = leaf(2.0)
    h = x * 1
    a, b = h * 2, h * 3
    h.register_hook(noting(seen, "below"))
    graph.register_multi_grad_hook((a, b), noting(seen, "all"))
    (a * b).backward()
    assert seen == ["all", "below"]


def test_multi_grad_hooks_under_grad():
    seen = []
    x = leaf(2.0)
    a, b = x * 2, x * 3
    graph.register_multi_grad_hook(
        (a, b), lambda grads: seen.append([None if g is None else g.item() for g in grads])
    )
    grad(a * b, x, retain_graph=True)
    assert seen == [[6.0, 4.0]]
    grad(a * b, a)
    assert len(seen) in (1, 2)


def test_multi_grad_hooks_are_removed():
    seen = []
    a, b = leaf(2.0), leaf(3.0)
    handle = graph.register_multi_grad_hook((a, b), noting(seen, "all"))
    handle.remove()
    (a * b).backward()
    assert not seen


# ------------------------------------------------------------------------------------------------ interplay


def test_hooks_and_a_retained_graph(engine):
    seen = []
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: seen.append(g.item()))
    y.grad_fn.register_prehook(noting(seen, "pre"))
    z = y * 3
    z.backward(retain_graph=True)
    z.backward()
    assert seen == [3.0, "pre"] * 2
    equal(x.grad, 24.0)


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_of_a_node_named_as_input_run_where_backward_ends_there(create_graph):
    """As in PyTorch: `grad` stops before the node of its input; `backward(inputs=)` runs it, whether or not the walk goes on."""
    x = leaf(2.0)
    y = x * 3
    z = (y * y).sum()
    seen = []
    y.register_hook(lambda g: seen.append("tensor") or g * 2)
    y.grad_fn.register_prehook(lambda gs: seen.append(("pre", gs[0].tolist())))
    y.grad_fn.register_hook(lambda gi, go: seen.append(("post", gi[0].tolist())))
    accumulate = y.grad_fn.next_functions[0][0]
    accumulate.register_prehook(lambda gs: seen.append("leaf"))
    node = ["tensor", ("pre", 24.0), ("post", 72.0)]

    def told(run):
        seen.clear()
        run()
        return seen

    options = {"retain_graph": True, "create_graph": create_graph}
    assert told(lambda: tg.autograd.grad(z, y, **options)) == ["tensor"]
    assert told(lambda: tg.autograd.grad(z, (x, y), **options)) == node
    assert told(lambda: tg.autograd.backward(z, inputs=[y], **options)) == node
    equal(y.grad, 24.0)
    assert x.grad is None
    assert told(lambda: tg.autograd.backward(z, inputs=[y, x], **options)) == [*node, "leaf"]
    equal(y.grad, 48.0)
    equal(x.grad, 72.0)


def test_hooks_and_views_written_to():
    """A hook of a view sees the gradient of the view it was registered on."""
    seen = []
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    view = y[1:]
    view.register_hook(lambda g: seen.append(("before", g.tolist())))
    use = view * 2
    view.mul_(10)
    view.register_hook(lambda g: seen.append(("after", g.tolist())))
    (use.sum() + (view * 3).sum()).backward()
    assert seen[0] == ("after", [3.0, 3.0])
    assert seen[1][0] == "before"
    equal(x.grad, [0.0, 32.0, 32.0])


def test_a_hook_that_writes_to_the_gradient():
    """It is told not to; the gradient of others stays what it was."""
    x, u = leaf(2.0, 3.0), leaf(1.0, 1.0)
    y = x + u
    x.register_hook(lambda g: g.clone().mul_(10))
    y.sum().backward()
    equal(x.grad, [10.0, 10.0])
    equal(u.grad, [1.0, 1.0])


@differs("the gradient is overwritten, also for others that were given the same one")
def test_a_hook_that_does_write_is_refused(engine):
    x, u = leaf(2.0, 3.0), leaf(1.0, 1.0)
    y = (x + u) * tg.tensor([1.0, 2.0])
    x.register_hook(lambda g: g.mul_(10))
    with pytest.raises(ValueError, match="read-only.*clone"):
        y.sum().backward()


def test_a_hook_that_overwrites_what_the_walk_still_needs(engine):
    """Here by a detached view of it, in the middle of the walk."""
    for needed in (True, False):
        x = leaf(2.0, 3.0)
        b = x * 1
        y = b * b if needed else b + 5
        seen = []
        y.register_hook(lambda g, b=b, seen=seen: seen.append(b.detach().add_(1)) and None)
        z = (y * tg.tensor([1.0, 10.0])).sum()
        if needed:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()
            assert x.grad is None
        else:
            z.backward()
            equal(x.grad, [1.0, 10.0])
        assert len(seen) == 1


def test_what_a_hook_keeps_stays_as_it_was(engine):
    seen = []
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y.register_hook(seen.append)
    y.grad_fn.register_hook(lambda gi, go: seen.extend([*gi, *go]))
    x.register_hook(seen.append)
    z = y * 1
    z[0] = y[1] * y[2]
    ((z * z).sum() + y[0]).backward()
    x.grad.zero_()
    kept = [None if g is None else g.tolist() for g in seen]
    assert len(kept) == 5
    gy = [1.0, 8.0 + 48.0 * 6.0, 12.0 + 48.0 * 4.0]
    assert kept[0] == gy and kept[-1] == [2 * g for g in gy]


def test_clipping_gradients_in_a_hook(engine):
    x = leaf(np.linspace(-1, 1, 7).tolist())
    h = x
    for _ in range(3):
        h = h * 10
        h.register_hook(lambda g: g.clamp(-2.0, 2.0))
    (h * h).sum().backward()
    assert np.abs(np.array(x.grad.tolist())).max() <= 20.0


def test_hooks_in_transforms():
    if not HERE:
        pytest.skip("tapegrad's alone")

    def f(x):
        y = x * x
        y.register_hook(lambda g: g * 10)
        return y.sum()

    np.testing.assert_allclose(tg.grad(f)(np.array([1.0, 2.0])), [20.0, 40.0])
    seen = []

    def watched(x):
        y = x * x
        y.grad_fn.register_hook(lambda gi, go: seen.append("node"))
        return y.sum()

    np.testing.assert_allclose(tg.grad(watched)(np.array([1.0, 2.0])), [2.0, 4.0])
    assert seen == ["node"]
    np.testing.assert_allclose(tg.hessian(watched)(np.array([1.0, 2.0])), 2 * np.eye(2))
    np.testing.assert_allclose(tg.jvp(watched, (np.array([1.0, 2.0]),), (np.ones(2),))[1], 6.0)
    np.testing.assert_allclose(tg.grad(tg.grad(lambda x: watched(x * x)))(2.0), 48.0)


def test_hooks_in_threads():
    """8 threads, each with its own graph and hooks."""
    results = {}

    def job(i):
        seen = []
        x = leaf(float(i))
        for _ in range(20):
            y = x * x
            y.register_hook(lambda g: g * 2)
            y.grad_fn.register_prehook(lambda go: seen.append(go[0].item()))
            results[i] = grad(y * 3, x)[0].item()
        assert seen == [6.0] * 20

    in_threads(*(lambda i=i: job(i) for i in range(8)))
    assert results == {i: 12.0 * i for i in range(8)}


def test_hooks_of_a_shared_leaf_run_in_every_thread():
    x = leaf(0.0)
    lock = threading.Lock()
    seen = []

    def hook(g):
        with lock:
            seen.append(g.item())

    x.register_hook(hook)

    def job():
        for _ in range(50):
            (x * 2).backward()

    in_threads(job, job)
    assert seen == [2.0] * 100
    equal(x.grad, 200.0)


def test_two_threads_accumulate_into_one_leaf_and_lose_nothing():
    x = leaf(np.zeros(100).tolist())

    def job(k):
        for _ in range(200):
            (x * k).sum().backward()

    in_threads(lambda: job(1.0), lambda: job(2.0))
    equal(x.grad, np.full(100, 600.0))


@here
def test_no_thread_asks_for_the_tapes_of_others_with_its_own_locked(monkeypatch):
    """Two threads that each hold a tape's lock and wait for that of the other would wait for ever."""
    here = tg.current_tape()
    asked = []

    def locate(slot, held=None):
        asked.append(here.lock._is_owned())
        return found(slot, held)

    found = executors.locate
    other = []
    in_threads(lambda: other.append(leaf([1.0, 2.0]) * 2.0))
    other[0].register_hook(lambda g: g)  # its entry is on the tape of a thread that has ended
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    monkeypatch.setattr("tapegrad.core.executors.locate", locate)
    y = x * x
    y.register_hook(lambda g: g)
    y.sum().backward()
    assert asked and not any(asked)


@pytest.mark.long
def test_eight_threads_build_and_differentiate_their_own_graph():
    results = {}

    def job(i):
        rng = np.random.default_rng(i)
        for _ in range(30):
            values = rng.normal(size=8)
            x = leaf(values.tolist())
            h = x
            for _ in range(10):
                h = h * 1.1 + x.sin()
            h[0] = x[1] * x[2]
            (g,) = grad((h * h).sum(), x, create_graph=True)
            (gg,) = grad(g.sum(), x)
            results[i] = (g.tolist(), gg.tolist())

    in_threads(*(lambda i=i: job(i) for i in range(8)))
    together = dict(results)
    for i in range(8):
        job(i)
    for i in range(8):
        for a, b in zip(together[i], results[i], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
