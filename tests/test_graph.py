"""The graph as PyTorch shows it: nodes, gradient edges, versions, and saved tensors that may be overwritten.

`TAPEGRAD_SUITE=torch pytest tests/test_graph.py` runs the expectations on PyTorch (those that are not tapegrad's alone): each was
proven there first, and where the two differ on purpose `differs` says how.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tests.suite import HERE, differs, each_engine, equal, here, leaf, tg  # noqa: F401

grad = tg.autograd.grad
graph = tg.autograd.graph
edge_of = graph.get_gradient_edge


# ------------------------------------------------------------------------------------------------ nodes


def test_a_node_can_be_called():
    x, y, g = leaf(2.0, 3.0), leaf(5.0, 7.0), tg.tensor([1.0, 10.0])
    by_x, by_y = (x * y).grad_fn(g)
    equal(by_x, [5.0, 70.0])
    equal(by_y, [2.0, 30.0])
    assert (x * 4.0).grad_fn(g)[1] is None
    equal(x.exp().grad_fn(g), np.exp([2.0, 3.0]) * [1.0, 10.0])
    equal(x.sum().grad_fn(tg.tensor(3.0)), [3.0, 3.0])
    (x * y).grad_fn.next_functions[1][0](g)
    equal(y.grad, [1.0, 10.0])
    assert x.grad is None
    for gradients in ((), (g, g)):
        with pytest.raises(TypeError, match="expected 1 arguments, got"):
            (x * y).grad_fn(*gradients)


@here
def test_a_call_of_a_node_is_checked():
    x = leaf(2.0, 3.0)
    y = x * 1.0
    z = y * y
    with pytest.raises(RuntimeError, match="shape"):
        z.grad_fn(tg.ones(3))
    y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.grad_fn(tg.ones(2))
    w = x * x
    node = w.grad_fn
    w.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        node(tg.ones(2))


def test_a_node_is_an_object_of_its_entry():
    x = leaf(2.0)
    y = x * 3
    assert y.grad_fn is y.grad_fn and y.grad_fn == y.grad_fn
    assert (y * 2).grad_fn.next_functions[0][0] is y.grad_fn
    assert y.grad_fn != (x * 3).grad_fn and len({y.grad_fn, y.grad_fn, (x * 3).grad_fn}) == 2
    assert x.grad_fn is None and tg.ones(2).grad_fn is None


def test_nodes_are_instances_of_node():
    y = leaf(2.0) * 3
    assert isinstance(y.grad_fn, graph.Node)
    assert isinstance(y.grad_fn.next_functions[0][0], graph.Node)


def test_the_node_of_a_leaf():
    x = leaf(2.0)
    (node, nr), (nothing, _) = (x * 3).grad_fn.next_functions
    assert nr == 0 and nothing is None
    assert "AccumulateGrad" in node.name() and node.variable is x and node.next_functions == ()
    assert node == (x * 5).grad_fn.next_functions[0][0]


def test_walking_a_graph_by_its_nodes():
    x, w = leaf(2.0), leaf(3.0)
    y = (x * w).exp() + x
    names = []
    unseen = [y.grad_fn]
    while unseen:
        node = unseen.pop(0)
        names.append(node.name().split("::")[-1])
        unseen += [n for n, _ in node.next_functions if n is not None]
    assert names == [
        "AddBackward0",
        "ExpBackward0",
        "AccumulateGrad",
        "MulBackward0",
        "AccumulateGrad",
        "AccumulateGrad",
    ]


@pytest.mark.long
def test_a_node_keeps_the_graph_but_not_the_tensor():
    x = leaf(2.0)
    y = x * 3
    ref = weakref.ref(y)
    node = y.grad_fn
    del y
    gc.collect()
    if HERE:
        tg.current_tape().sweep()
    assert ref() is None and "AccumulateGrad" in node.next_functions[0][0].name()


@differs("nodes stay after their saved values are freed")
def test_a_freed_node_has_forgotten_what_it_was_made_from():
    """So that a loss that is kept does not keep the graph."""
    x = leaf(2.0)
    y = x.exp()
    y.backward()
    assert y.grad_fn.name() == "ExpBackward0"
    with pytest.raises(RuntimeError, match="second time"):
        y.grad_fn.next_functions  # noqa: B018  raises


def test_a_result_of_a_freed_graph_still_prints_its_node():
    y = leaf(2.0).exp()
    y.backward()
    assert "ExpBackward" in repr(y) and "Exp" in repr(y.grad_fn)


def test_metadata_is_the_nodes():
    y = leaf(2.0) * 3
    y.grad_fn.metadata["a"] = 1
    node = (y * 2).grad_fn.next_functions[0][0]
    assert node.metadata == {"a": 1}
    x = leaf(2.0)
    first = (x * 1).grad_fn.next_functions[0][0]
    first.metadata["b"] = 2
    assert (x * 2).grad_fn.next_functions[0][0].metadata == {"b": 2}


# ------------------------------------------------------------------------------------------------ edges


def test_an_edge():
    x = leaf(2.0)
    y = x * 3
    edge = edge_of(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert "AccumulateGrad" in edge_of(x).node.name()
    assert isinstance(edge, graph.GradientEdge)


def test_edges_are_roots_and_inputs(engine):
    x = leaf(2.0)
    y = x * x
    z = y * y
    ez, ey, ex = edge_of(z), edge_of(y), edge_of(x)
    gy, gx = grad(ez, (ey, ex), tg.tensor(1.0), retain_graph=True)
    equal(gy, 8.0)
    equal(gx, 32.0)
    tg.autograd.backward(ez, tg.tensor(2.0), inputs=[ex], retain_graph=True)
    equal(x.grad, 64.0)
    equal(grad(z, ey, retain_graph=True)[0], 8.0)
    equal(grad((ez, y), x, (tg.tensor(1.0), tg.tensor(1.0)))[0], 36.0)


def test_an_edge_needs_no_seed_where_it_stands_for_a_number():
    x = leaf(2.0)
    equal(grad(edge_of(x * x), x)[0], 4.0)
    edge_of_number = edge_of(x * 5)
    tg.autograd.backward(edge_of_number)
    equal(x.grad, 5.0)


@pytest.mark.long
def test_an_edge_keeps_the_graph_but_not_the_tensor():
    x = leaf(2.0)
    y = x * 3
    ref = weakref.ref(y)
    edge = edge_of(y)
    del y
    gc.collect()
    assert ref() is None
    equal(grad(edge, x, tg.tensor(1.0))[0], 3.0)


def test_an_edge_to_a_value_that_was_overwritten():
    """It stands for the value the tensor had."""
    x = leaf(2.0)
    y = x * 3
    edge = edge_of(y)
    y.mul_(5)
    equal(grad(y * 7, edge, retain_graph=True)[0], 35.0)
    equal(grad(edge, x, tg.tensor(1.0))[0], 3.0)


def test_an_edge_of_a_constant():
    with pytest.raises(
        RuntimeError, match="gradient edge for a Tensor that does not require gradients"
    ):
        edge_of(tg.ones(2))


def test_edges_made_by_hand():
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    edge = graph.GradientEdge(y.grad_fn, 0)
    equal(grad(edge, x, tg.tensor(1.0))[0], 3.0)


def test_edges_in_a_dict():
    x = leaf(2.0)
    y = x * x
    found = grad(y * 3, {"y": edge_of(y), "x": edge_of(x)})
    equal(found["y"], 3.0)
    equal(found["x"], 12.0)


def test_edges_under_create_graph():
    x = leaf(2.0)
    y = x * x
    z = y * y
    (gy,) = grad(edge_of(z), edge_of(y), tg.tensor(1.0), create_graph=True)
    equal(grad(gy, x)[0], 8.0)


def test_splitting_a_backward_in_two():
    """The documentation's use of edges: the upper half of a graph first, the lower half later."""
    x = leaf(1.0, 2.0)
    w = leaf(3.0, 4.0)
    middle = x.exp()
    edge = edge_of(middle)
    loss = (middle * w).sum()
    gm, gw = grad(loss, (edge, w))
    del middle
    (gx,) = grad(edge, x, gm)
    equal(gx, [3 * np.exp(1), 4 * np.exp(2)])
    equal(gw, [np.exp(1), np.exp(2)])


# ------------------------------------------------------------------------------------------------ versions


def test_increment_version():
    x = leaf(2.0, 3.0)
    y = x * 1
    z = y * y
    before = y._version
    graph.increment_version(y)
    assert y._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_increment_version_of_several():
    a, b = tg.ones(2), tg.ones(2)
    graph.increment_version([a, b])
    graph.increment_version(b)
    assert [a._version, b._version] == [1, 2]


def test_increment_version_of_a_view():
    a = tg.ones(4)
    graph.increment_version(a[1:])
    assert a._version == 1 and a.detach()._version == 1


# ------------------------------------------------------------------------------------------------ saved tensors overwritten


def test_allow_mutation_on_saved_tensors(engine):
    """The documentation's example."""
    with graph.allow_mutation_on_saved_tensors():
        a = leaf([[1.0, 2.0, 3.0]])
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        out.sum().backward()
    equal(a.grad, [[2.0, 4.0, 6.0]])


@differs("a write through a view is not seen, and the gradient is that of the new value")
def test_writing_to_views_of_what_was_saved(engine):
    with graph.allow_mutation_on_saved_tensors():
        x = leaf(1.0, 2.0, 3.0)
        y = x * 1
        z = y * y
        y[1:].zero_()
        y[0] = 7.0
        z.sum().backward()
    equal(x.grad, [2.0, 4.0, 6.0])


def test_saved_results_may_be_overwritten():
    with graph.allow_mutation_on_saved_tensors():
        x = leaf(1.0, 2.0)
        y = x.exp()
        z = y * 3
        y.zero_()
        z.sum().backward()
    equal(x.grad, [3 * np.exp(1), 3 * np.exp(2)])


def test_leaves_may_be_overwritten():
    with graph.allow_mutation_on_saved_tensors():
        x = leaf(1.0, 2.0)
        z = x * x
        with tg.no_grad():
            x.zero_()
        z.sum().backward()
    equal(x.grad, [2.0, 4.0])
    equal(x.detach(), [0.0, 0.0])


def test_several_writes_and_uses():
    with graph.allow_mutation_on_saved_tensors():
        x = leaf(2.0, 3.0)
        y = x * 1
        total = 0.0
        for _ in range(4):
            total = total + (y * y).sum()
            y.mul_(0.5)
        total.backward()
    equal(x.grad, np.array([4.0, 6.0]) * (1 + 1 / 4 + 1 / 16 + 1 / 64))


def test_functions_may_lose_what_they_saved():
    class Square(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    with graph.allow_mutation_on_saved_tensors():
        x = leaf(2.0, 3.0)
        y = x * 1
        z = Square.apply(y)
        y.zero_()
        z.sum().backward()
    equal(x.grad, [4.0, 6.0])


def test_in_threads_of_their_own():
    if not HERE:
        pytest.skip("tapegrad's alone")
    import threading

    found = {}

    def job(i):
        with graph.allow_mutation_on_saved_tensors():
            for _ in range(20):
                x = leaf(float(i), 1.0)
                y = x * 1
                z = y * y
                y.zero_()
                found[i] = grad(z.sum(), x)[0].tolist()

    threads = [threading.Thread(target=job, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {i: [2.0 * i, 2.0] for i in range(4)}


def test_outside_the_context_it_is_an_error_again():
    with graph.allow_mutation_on_saved_tensors():
        pass
    x = leaf(2.0, 3.0)
    y = x * 1
    z = y * y
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_contexts_are_not_nested():
    with graph.allow_mutation_on_saved_tensors():
        with pytest.raises(
            RuntimeError, match="allow_mutation_on_saved_tensors contexts cannot be nested"
        ):
            with graph.allow_mutation_on_saved_tensors():
                pass


def test_clear():
    with graph.allow_mutation_on_saved_tensors() as context:
        context.clear()


# ------------------------------------------------------------------------------------------------ accumulation


@pytest.mark.long
def test_the_node_of_a_dropped_leaf_gives_it_back():
    x = leaf(2.0)
    y = x * 3
    del x
    gc.collect()
    node = y.grad_fn.next_functions[0][0]
    y.backward()
    equal(node.variable.grad, 3.0)
    equal(node.variable.detach(), 2.0)


def test_accumulation_by_several_roots_and_edges():
    x, w = leaf(2.0), leaf(3.0)
    y, z = x * w, x + w
    tg.autograd.backward(
        [edge_of(y), z, edge_of(x)], [tg.tensor(1.0), tg.tensor(10.0), tg.tensor(100.0)]
    )
    equal(x.grad, 113.0)
    equal(w.grad, 12.0)


@here
def test_a_tensor_carried_out_of_a_transform_says_that_its_entry_is_gone():
    carried = []

    def f(x):
        carried.append(x * x)
        return carried[0].sum()

    tg.grad(f)(np.ones(2))
    (y,) = carried
    assert repr(y) == "tensor([1., 1.], grad_fn=<gone>)"
    for action in (
        lambda: y.grad_fn,
        lambda: graph.get_gradient_edge(y),
        lambda: y.register_hook(print),
        lambda: y.retain_grad(),
        lambda: y.sum().backward(),
    ):
        with pytest.raises(RuntimeError, match="on no tape any more.*carried out of a transform.*has_aux=True"):  # fmt: skip
            action()
