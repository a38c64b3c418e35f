"""What PyTorch's documentation and tutorials show of autograd, in other words and other code; each runs on PyTorch too (`TAPEGRAD_SUITE=torch`).

Examples that belong to one feature stand in its suite: Function in test_function.py, hooks in test_hooks.py, saved-tensor hooks in
test_saving.py, forward mode in test_forward_ad.py. Here are those that run through several: the notes on the mechanics, and the tutorials.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from tests.suite import each_engine, in_threads, leaf, tg  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

Function = tg.autograd.Function
grad = tg.autograd.grad


def near(t, expected, rtol=1e-12):
    np.testing.assert_allclose(np.array(t.tolist()), expected, rtol=rtol, atol=1e-12)


# ------------------------------------------------------------------------------------------- what a graph remembers


def test_an_operand_that_is_saved_is_the_operand():
    x = leaf(2.0, 3.0)
    y = x * x
    saved = y.grad_fn._saved_self
    assert saved.tolist() == x.tolist() and saved.requires_grad and saved.is_leaf
    assert (x * 3.0).grad_fn._saved_self is None  # needed for nothing
    assert (x * 3.0).grad_fn._saved_other.tolist() == 3.0
    assert not hasattr((x + 1).grad_fn, "_saved_self")


def test_a_result_that_is_saved_is_another_tensor_with_the_same_history():
    x = leaf(0.0, 1.0)
    y = x.exp()
    saved = y.grad_fn._saved_result
    assert saved is not y and saved.tolist() == y.tolist()
    assert saved.grad_fn == y.grad_fn
    near(grad((saved * saved).sum(), x)[0], 2 * np.exp([0.0, 2.0]))


def test_saved_values_go_with_backward():
    x = leaf(2.0, 3.0)
    y = x * x
    y.sum().backward()
    with pytest.raises(RuntimeError, match="directly access saved tensors after they have already been freed"):  # fmt: skip
        _ = y.grad_fn._saved_self


def test_saved_values_that_were_overwritten_are_not_given_out():
    x = leaf(2.0, 3.0)
    b = x * 1
    y = b * b
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = y.grad_fn._saved_self


def test_what_hooks_have_packed_is_unpacked_to_be_looked_at():
    x = leaf(2.0, 3.0)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = x.exp()
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: None)
    near(y.grad_fn._saved_result, np.exp([2.0, 3.0]))


# ---------------------------------------------------------------------------- where there is no derivative, at kinks

KINKS = [
    ("the derivative, where there is one", lambda x: x * x, 3.0, 6.0),
    ("of least norm, where the function is convex", lambda x: x.abs(), 0.0, 0.0),
    ("the same, of a maximum with 0", lambda x: x.clamp(min=0.0), -1.0, 0.0),
    ("by continuity: a square root rises for ever", lambda x: x.sqrt(), 0.0, np.inf),
    ("by continuity: so does a logarithm", lambda x: x.log(), 0.0, np.inf),
    ("undefined, where the value is", lambda x: x.sqrt(), -1.0, np.nan),
    ("0 of what is constant almost everywhere", lambda x: x.round(), 1.5, 0.0),
]


@pytest.mark.parametrize(("f", "at", "slope"), [row[1:] for row in KINKS], ids=[r[0] for r in KINKS])  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_at_kinks(f, at, slope):
    x = leaf(at)
    f(x).backward()
    near(x.grad, slope)


def test_the_maximum_of_equals_shares_its_gradient():
    x = leaf(1.0, 3.0, 3.0)
    x.max().backward()
    near(x.grad, [0, 0.5, 0.5])


# --------------------------------------------------------------------------------------------- what to differentiate


def test_freezing_all_but_the_last_layer():
    layers = [tg.ones((2, 2), requires_grad=True) for _ in range(3)]
    for w in layers[:-1]:
        w.requires_grad_(False)
    h = tg.tensor([1.0, 2.0])
    for w in layers:
        h = (w @ h) / 2
    h.sum().backward()
    assert [w.grad is None for w in layers] == [True, True, False]
    near(layers[-1].grad, [[0.75, 0.75], [0.75, 0.75]])


MODES = [
    # mode, is recorded, may be saved for backward later
    (tg.enable_grad, True, True),
    (tg.no_grad, False, True),
    (tg.inference_mode, False, False),
]


@pytest.mark.parametrize(("mode", "recorded", "later"), MODES, ids=lambda m: getattr(m, "__name__", ""))  # fmt: skip
def test_the_three_modes(mode, recorded, later):
    w = leaf(1.0, 2.0)
    with mode():
        y = w * 2
    assert y.requires_grad is recorded
    if later:
        near(grad((w * y).sum(), w)[0], [4, 8] if recorded else [2, 4])
    else:
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            w * y


def test_results_of_inference_tensors_are_inference_tensors():
    with tg.inference_mode():
        data = tg.tensor([1.0, 2.0])
        scaled = data * 2
        assert scaled.is_inference() and (scaled + scaled).is_inference()
    assert not (scaled + 1).is_inference()  # outside of the mode it is a constant as any other
    assert not scaled.clone().is_inference()
    with tg.inference_mode():
        scaled.add_(1)
    assert scaled.tolist() == [3.0, 5.0]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):  # fmt: skip
        scaled.add_(1)


def test_weights_are_initialised_in_place_without_a_trace():
    w = tg.zeros(3, requires_grad=True)
    with tg.no_grad():
        w.fill_(0.5)
        w[0] = 2.0
    assert w.is_leaf and w._version == 2
    (w * w).sum().backward()
    near(w.grad, [4, 1, 1])


def test_a_view_made_under_no_grad_is_not_written_to_with_history():
    x = leaf(1.0, 2.0, 3.0)
    for base in (x, x * 1):
        with tg.no_grad():
            view = base[:2]
        for write in (lambda v: v.mul_(2), lambda v: v.__setitem__(0, 5.0)):
            with pytest.raises(RuntimeError, match="view.* created in no_grad mode and is being modified inplace with grad mode"):  # fmt: skip
                write(view)
        with tg.no_grad():
            view.mul_(1)


def test_leaves_and_what_they_keep():
    a = leaf(1.0)
    b = a * 2
    c = tg.tensor(3.0)
    d = c * 2
    e = (b * 1).detach()
    assert [t.is_leaf for t in (a, b, c, d, e)] == [True, False, True, True, True]
    b.retain_grad()
    (b * d).backward()
    near(a.grad, 12)
    near(b.grad, 6)
    assert c.grad is None


def test_gradients_add_up_until_they_are_zeroed():
    x = tg.eye(4)[:, :3].clone().requires_grad_()
    y = ((x + 1) * (x + 1)).T
    y.backward(tg.ones_like(y), retain_graph=True)
    first = x.grad.clone()
    y.backward(tg.ones_like(y), retain_graph=True)
    near(x.grad, np.array(first.tolist()) * 2)
    x.grad.zero_()
    y.backward(tg.ones_like(y))
    near(x.grad, first.tolist())


# --------------------------------------------------------------------------------------------------------- in place


def test_hooks_stay_with_the_value_they_were_registered_for():
    """A hook sees the gradient of the value that the tensor had; `retain_grad` follows the tensor."""
    seen = []
    x = leaf(1.0, 2.0)
    y = x * 1
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.retain_grad()
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    y.sum().backward()
    assert seen == [("after", [1.0, 1.0]), ("before", [3.0, 3.0])]
    near(y.grad, [1, 1])


def test_a_saved_input_must_not_change_but_one_that_is_not_needed_may():
    x = leaf(1.0, 2.0)
    b = x * 1
    y = b + 5
    b.mul_(2)  # a sum needs neither operand
    y.sum().backward()
    near(x.grad, [1, 1])
    b = x * 1
    y = b.sin()
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---------------------------------------------------------------------------------------------------------- threads


def test_threads_that_share_parameters():
    """Several threads, each with its own graph over one weight: nothing of the sum is lost."""
    w = tg.ones(5, requires_grad=True)

    def train():
        for _ in range(10):
            y = (w + 3) * (w + 4) * 0.5
            y.sum().backward()

    in_threads(*[train] * 8)
    near(w.grad, [80 * 4.5] * 5)


def test_threads_with_hooks_writes_and_higher_derivatives():
    """8 threads at once, each with all of it: hooks, views, writes, create_graph, saved-tensor hooks."""
    found = {}
    start = threading.Barrier(8)

    def job(i):
        start.wait()
        for _ in range(5):
            calls = []
            x = leaf(1.0 + i, 2.0, 3.0)
            with tg.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
                b = x * x
            b.register_hook(lambda g, calls=calls: calls.append(g.requires_grad))
            b[1:].mul_(2)
            y = (b * b).sum()
            (g,) = grad(y, x, create_graph=True)
            (h,) = grad(g.sum(), x)
            found[i] = (g.tolist(), h.tolist(), calls)

    in_threads(*(lambda i=i: job(i) for i in range(8)))
    for i in range(8):
        v = np.array([1.0 + i, 2.0, 3.0])
        c = np.array([1.0, 4.0, 4.0])
        near(tg.tensor(found[i][0]), 4 * c * v**3)
        near(tg.tensor(found[i][1]), 12 * c * v**2)
        assert found[i][2][0] is True


# ---------------------------------------------------------------------------------------------------------- complex


def test_the_gradient_of_a_real_function_of_complex_numbers():
    """It is the conjugate Wirtinger derivative, twice: where the function rises fastest."""
    z = leaf(1 + 2j, -1j)
    for f, expected in (
        (lambda z: (z * z.conj()).real.sum(), [2 + 4j, -2j]),
        (lambda z: z.real.sum(), [1, 1]),
        (lambda z: z.imag.sum(), [1j, 1j]),
        (lambda z: (z * z).real.sum(), [2 - 4j, 2j]),
    ):
        near(grad(f(z), z)[0], expected)
    with pytest.raises(RuntimeError, match="only for real scalar outputs but got"):
        (z * z).sum().backward()


# ------------------------------------------------------------------------------------------------------ own functions


def test_a_function_written_with_numpy():
    """What NumPy computes is no mystery to autograd if its derivative is told."""

    class Spectrum(Function):
        """The real discrete Fourier transform, as real and imaginary parts; linear, so nothing is saved."""

        @staticmethod
        def forward(ctx, x):
            ctx.n = len(x)
            y = np.fft.rfft(x.detach().numpy())
            return tg.from_numpy(np.stack([y.real, y.imag]))

        @staticmethod
        def backward(ctx, g):
            g = g.detach().numpy()
            matrix = np.exp(-2j * np.pi * np.outer(np.arange(g.shape[1]), np.arange(ctx.n)) / ctx.n)
            return tg.from_numpy(np.real(np.conj(matrix).T @ (g[0] + 1j * g[1])))

    x = leaf(1.0, -2.0, 0.5, 3.0, 1.5)
    near(Spectrum.apply(x)[0][0], 4.0)
    assert tg.autograd.gradcheck(lambda x: Spectrum.apply(x), (x,))


class Legendre(Function):
    """P3(x) = (5 x³ - 3 x) / 2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * (5 * x**3 - 3 * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 1.5 * (5 * x**2 - 1)


def test_a_polynomial_is_fitted_to_a_sine():
    x = tg.tensor(np.linspace(-np.pi, np.pi, 200).tolist())
    target = x.sin()
    weights = [leaf(v) for v in (0.0, -1.0, 0.0, 0.3)]
    a, b, c, d = weights
    losses = []
    for _ in range(60):
        difference = a + b * Legendre.apply(c + d * x) - target
        loss = (difference * difference).sum()
        losses.append(loss.item())
        loss.backward()
        with tg.no_grad():
            for w in weights:
                w -= 5e-6 * w.grad
                w.grad = None
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert losses[-1] < 0.9 * losses[0]


def test_a_block_that_is_computed_again_in_backward():
    """Checkpointing, as a Function: forward keeps the input only, backward records the block and walks it."""
    calls = []

    def block(x):
        calls.append(tg.is_grad_enabled())
        for _ in range(3):
            x = (x * x).sin()
        return x

    class Again(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return block(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with tg.enable_grad():
                inner = x.detach().requires_grad_()
                y = block(inner)
            return grad(y, inner, g)

    x = leaf(0.7, 1.1)
    (found,) = grad(Again.apply(x * 1).sum(), x)
    assert calls == [False, True]
    (expected,) = grad(block(x).sum(), x)
    near(found, expected.tolist())


def test_gradients_that_are_not_wanted_are_not_computed():
    computed = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            gx = gy = None
            if ctx.needs_input_grad[0]:
                computed.append("x")
                gx = g * y
            if ctx.needs_input_grad[1]:
                computed.append("y")
                gy = g * x
            return gx, gy

    x, y = leaf(2.0), tg.tensor(3.0)
    Product.apply(x, y).backward()
    assert computed == ["x"]
    near(x.grad, 3)


# ---------------------------------------------------------------------------------------------------------- tutorials


def test_norms_of_gradients_by_layer():
    """Hooks on what each layer gives back show where gradients fade."""

    def norms(slope):
        found = {}
        h = leaf(0.5, -0.3)
        for i in range(10):
            h = (slope * h).tanh()
            h.register_hook(lambda g, i=i: found.__setitem__(i, float((g * g).sum().sqrt())))
        h.sum().backward()
        return [found[i] for i in range(10)]

    fading, steady = norms(0.2), norms(1.0)
    assert fading[0] < 1e-5 < 1e-2 < steady[0]
    assert fading == sorted(fading)


def test_a_step_of_descent_is_differentiated():
    """Learning a step size: the loss after a step, by what the step was made of."""
    w, rate = leaf(3.0), leaf(0.1)
    (g,) = grad(w * w, w, create_graph=True)
    after = w - rate * g
    d_w, d_rate = grad(after * after, [w, rate])
    near(d_w, 2 * 3 * (1 - 0.2) ** 2)
    near(d_rate, -2 * (3 * 0.8) * 6)


def test_a_penalty_on_the_gradient():
    w, x = leaf(2.0, -1.0), leaf(0.5, 1.5)
    y = (w * x).sum().tanh()
    (g,) = grad(y, x, create_graph=True)
    (((g * g).sum() - 1) ** 2).backward()

    def penalty(w):
        t = np.tanh(w @ [0.5, 1.5])
        return (np.sum((w * (1 - t**2)) ** 2) - 1) ** 2

    h = 1e-6
    near(w.grad, [(penalty(np.array([2.0, -1]) + e) - penalty(np.array([2.0, -1]) - e)) / (2 * h) for e in np.eye(2) * h], 1e-7)  # fmt: skip


def test_a_jacobian_in_one_walk_of_many_seeds():
    x = leaf(1.0, 2.0, 3.0)
    y = x * x.sum()
    (rows,) = grad(y, x, tg.eye(3), is_grads_batched=True)
    expected = np.eye(3) * 6 + np.array([[1.0], [2], [3]])
    near(rows, expected)
    near(tg.autograd.functional.jacobian(lambda x: x * x.sum(), x.detach()), expected)


def test_the_second_derivative_of_each_sample():
    x = leaf(0.1, 0.2, 0.3)
    y = x.sin()
    (first,) = grad(y.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    near(second, -np.sin([0.1, 0.2, 0.3]))


# ----------------------------------------------------------------------------------------- everything with everything


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("node_hook", [False, True], ids=["", "node hook"])
@pytest.mark.parametrize("tensor_hook", [False, True], ids=["", "tensor hook"])
@pytest.mark.parametrize("write", ["", "whole", "view", "element"])
def test_hooks_writes_and_second_derivatives(engine, write, tensor_hook, node_hook, packed):
    """y = Σ b², b = 2x² (or written to later), gradients through hooks that scale, walked twice and differentiated."""
    x = leaf(1.0, 2.0, 3.0)
    factor = np.ones(3)
    graph = tg.autograd.graph

    def program():
        b = x * x
        if tensor_hook:
            b.register_hook(lambda g: g * 3)
        if node_hook:
            b.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        if write == "whole":
            b.mul_(2)
        elif write == "view":
            b[1:].mul_(2)
        elif write == "element":
            b[1] = b[1].clone() * 2
        return (b * b).sum()

    factor[
        {"": slice(0), "whole": slice(3), "view": slice(1, 3), "element": slice(1, 2)}[write]
    ] = 2
    if packed:
        with graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), tg.from_numpy):
            y = program()
    else:
        y = program()
    scale = (3 if tensor_hook else 1) * (2 if node_hook else 1)
    v = np.array([1.0, 2, 3])
    first = scale * 4 * factor**2 * v**3
    near(grad(y, x, retain_graph=True)[0], first)
    near(grad(y, x, retain_graph=True)[0], first)
    (g,) = grad(y, x, create_graph=True)
    near(g, first)
    # d g / d x: through 2 x, and through the b inside the hooks' factor, which is walked (and hooked) again.
    second = 4 * factor**2 * v**2 * scale + 8 * factor**2 * v**2 * scale * scale
    near(grad(g.sum(), x, retain_graph=True)[0], second)
    y.backward()
    near(x.grad, first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
