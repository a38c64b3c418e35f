"""`autograd.Function`: ops whose forward and backward the user writes.

`TAPEGRAD_SUITE=torch pytest tests/test_function.py` runs the expectations on PyTorch (those that are not tapegrad's alone): each was
proven there first, and where the two differ on purpose `differs` says how.
"""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from tests.suite import HERE, differs, each_engine, equal, here, leaf, tg  # noqa: F401

# PyTorch says so beside what it does.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


Function = tg.autograd.Function
once_differentiable = tg.autograd.function.once_differentiable
grad = tg.autograd.grad


# ------------------------------------------------------------------------------------------------ the functions


class Cube(Function):
    """Saves an input; its backward can be differentiated again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class CubeApart(Function):
    """The same with `setup_context`."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        return g * result


class Multiply(Function):
    """Two inputs, of which each gradient is computed only where it is needed."""

    computed = ()

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        Multiply.computed = ctx.needs_input_grad
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[
            1
        ] else None


class SinCos(Function):
    """Two outputs, both saved."""

    @staticmethod
    def forward(ctx, x):
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx, gs, gc):
        s, c = ctx.saved_tensors
        return gs * c - gc * s


class Scale(Function):
    """A setting that is no tensor, kept as an attribute."""

    @staticmethod
    def forward(ctx, x, factor, label="none"):
        ctx.factor = factor
        ctx.label = label
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None, None


def function(forward, backward, **members):
    """A Function of two plain functions."""
    return type(
        "Made",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)} | members,
    )


# ------------------------------------------------------------------------------------------------ first order


@pytest.mark.parametrize(
    ("made", "at", "value", "gradient"),
    [
        pytest.param(Cube.apply, 2.0, 8.0, 12.0, id="saved input"),
        pytest.param(CubeApart.apply, 2.0, 8.0, 12.0, id="setup_context and vjp"),
        pytest.param(Exp.apply, 0.0, 1.0, 1.0, id="saved output"),
        pytest.param(lambda x: Multiply.apply(x, x), 3.0, 9.0, 6.0, id="one tensor given twice"),
        pytest.param(lambda x: Scale.apply(x, 3.0), 2.0, 6.0, 3.0, id="setting"),
        pytest.param(lambda x: Cube.apply(Cube.apply(x)), 1.0, 1.0, 9.0, id="of itself"),
        pytest.param(lambda x: SinCos.apply(x)[0], 0.0, 0.0, 1.0, id="first output"),
        pytest.param(lambda x: SinCos.apply(x)[1], 0.0, 1.0, 0.0, id="second output"),
        pytest.param(lambda x: sum(SinCos.apply(x)), 0.0, 1.0, 1.0, id="both outputs"),
        pytest.param(
            lambda x: Cube.apply(x.expand(2)).sum(), 2.0, 16.0, 24.0, id="broadcast before"
        ),
    ],
)
def test_gradient(made, at, value, gradient, engine):
    x = leaf(at)
    y = made(x)
    equal(y.detach(), value)
    assert y.requires_grad and not y.is_leaf
    y.backward()
    equal(x.grad, gradient)
    assert not x.grad.requires_grad


def test_outputs_know_their_node():
    y = Cube.apply(leaf(2.0))
    assert y.grad_fn.name() == "CubeBackward" and y.output_nr == 0
    s, c = SinCos.apply(leaf(2.0))
    assert s.grad_fn is c.grad_fn and [s.output_nr, c.output_nr] == [0, 1]
    assert s.grad_fn == c.grad_fn and s.grad_fn.name() == "SinCosBackward"


def test_an_output_that_is_not_used_arrives_as_zeros():
    """The example of the documentation of `Function`."""
    seen = []

    class DoubleTriple(Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * 2, a * 3

        @staticmethod
        def backward(ctx, grad1, grad2):
            seen.extend([grad1.item(), grad2.item()])
            return grad1 * 2 + grad2 * 3

    a = leaf(3.0)
    b, c = DoubleTriple.apply(a)
    b.backward()
    assert seen == [1.0, 0.0]
    equal(a.grad, 2.0)


def test_zeros_have_the_outputs_shape_and_dtype():
    seen = []

    def backward(ctx, g1, g2):
        seen.append((tuple(g2.shape), g2.dtype))
        return g1

    made = function(lambda ctx, x: (x * 1, x.reshape(1, 2).expand(3, 2) * 1), backward)
    made.apply(leaf(1.0, 2.0))[0].sum().backward()
    assert seen == [((3, 2), tg.float64)]


def test_or_as_none():
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, g1, g2):
        seen.append((g1, g2))
        return g2 * 3

    x = leaf(3.0)
    function(forward, backward).apply(x)[1].backward()
    assert seen[0][0] is None and seen[0][1].item() == 1.0
    equal(x.grad, 3.0)


def test_arguments_that_are_no_tensors():
    x = leaf(2.0)
    y = Scale.apply(x, 5.0, "five")
    equal(y.detach(), 10.0)
    y.backward()
    equal(x.grad, 5.0)
    seen = []
    made = function(lambda ctx, *args: seen.extend(args) or x * 1, lambda ctx, g: (None,) * 5)
    options = {"a": 1}
    made.apply(None, "word", options, [x], 3)
    assert seen == [None, "word", options, [x], 3] and seen[3][0] is x


def test_needs_input_grad():
    x, y = leaf(2.0), tg.tensor(3.0)
    Multiply.apply(x, y).backward()
    assert tuple(Multiply.computed) == (True, False)
    equal(x.grad, 3.0)
    Multiply.apply(y, x).backward()
    assert tuple(Multiply.computed) == (False, True)
    seen = []
    made = function(
        lambda ctx, x, n, y: seen.append(ctx.needs_input_grad) or x * 1,
        lambda ctx, g: (g, None, None),
    )
    made.apply(x, 3, y)
    assert tuple(seen[0]) == (True, False, False)


def test_forward_runs_untracked():
    seen = []

    def forward(ctx, x):
        y = x * 2
        seen.extend([tg.is_grad_enabled(), y.requires_grad, x.requires_grad])
        return y

    function(forward, lambda ctx, g: g * 2).apply(leaf(1.0))
    assert seen == [False, False, True]


def test_forward_gets_the_very_tensors():
    x = leaf(1.0)
    function(lambda ctx, t: None if t is not x else t * 2, lambda ctx, g: g).apply(x).backward()
    equal(x.grad, 1.0)


def test_without_a_tracked_argument_nothing_is_recorded():
    y = Cube.apply(tg.tensor(2.0))
    equal(y, 8.0)
    assert not y.requires_grad and y.grad_fn is None
    with tg.no_grad():
        assert not Cube.apply(leaf(2.0)).requires_grad


def test_none_stops_the_gradient():
    x, y = leaf(2.0), leaf(3.0)
    made = function(lambda ctx, x, y: x + y, lambda ctx, g: (g, None))
    made.apply(x, y).backward()
    equal(x.grad, 1.0)
    assert y.grad is None
    gx, gy = grad(made.apply(x, y), (x, y), allow_unused=True)
    equal(gx, 1.0)
    assert gy is None


@differs("the walk goes on with undefined gradients, and calls hooks with None")
def test_none_for_what_is_computed_stops_the_walk_there():
    seen = []
    x, y = leaf(2.0), leaf(3.0)
    z = y * 2
    z.register_hook(seen.append)
    function(lambda ctx, x, y: x + y, lambda ctx, g: (g, None)).apply(x, z).backward()
    equal(x.grad, 1.0)
    assert y.grad is None and not seen


def test_trailing_nones_may_be_more():
    x = leaf(2.0)
    function(lambda ctx, x: x * 1, lambda ctx, g: (g, None, None)).apply(x).backward()
    equal(x.grad, 1.0)


def test_outputs_that_are_no_tensors_pass_through():
    made = function(lambda ctx, x: (x * 2, "label", None, 7), lambda ctx, g, *rest: g * 2)
    x = leaf(3.0)
    y, *rest = made.apply(x)
    assert rest == ["label", None, 7]
    y.backward()
    equal(x.grad, 2.0)


def test_gradients_of_outputs_that_are_no_tensors_are_none():
    seen = []
    made = function(lambda ctx, x: (x * 2, "label"), lambda ctx, g, h: seen.append(h) or g)
    made.apply(leaf(3.0))[0].backward()
    assert seen == [None]


def test_a_tuple_of_one_stays_a_tuple():
    made = function(lambda ctx, x: (x * 2,), lambda ctx, g: (g * 2,))
    x = leaf(3.0)
    (y,) = made.apply(x)
    y.backward()
    equal(x.grad, 2.0)


def test_integer_outputs_are_not_tracked():
    made = function(lambda ctx, x: (x * 2, (x > 0).sum()), lambda ctx, g, _: g * 2)
    x = leaf(3.0, 4.0)
    y, count = made.apply(x)
    assert y.requires_grad and not count.requires_grad
    y.sum().backward()
    equal(x.grad, [2.0, 2.0])


def test_gradients_broadcast_to_the_argument():
    """A gradient that can be summed to the argument's shape, is."""
    x = leaf(1.0, 2.0)
    function(lambda ctx, x: x.sum(), lambda ctx, g: g.expand(3, 2)).apply(x).backward()
    equal(x.grad, [3.0, 3.0])


@differs("a gradient is summed, never spread")
def test_or_are_spread_over_it():
    x = leaf(1.0, 2.0)
    function(lambda ctx, x: x.sum(), lambda ctx, g: g).apply(x).backward()
    equal(x.grad, [1.0, 1.0])


def test_gradients_are_cast_to_the_arguments_dtype():
    x = tg.tensor([1.0, 2.0], dtype=tg.float32, requires_grad=True)
    y = function(lambda ctx, x: x * 2, lambda ctx, g: tg.tensor([3.0, 4.0])).apply(x)
    y.sum().backward()
    assert x.grad.dtype == tg.float32
    equal(x.grad, [3.0, 4.0])


@differs("it refuses a complex gradient of a real argument")
def test_the_real_part_of_a_complex_gradient():
    x = leaf(1.0, 2.0)
    function(lambda ctx, x: x * 2, lambda ctx, g: g * (2 + 3j)).apply(x).sum().backward()
    equal(x.grad, [2.0, 2.0])


def test_complex_functions():
    made = function(
        lambda ctx, z: (ctx.save_for_backward(z), z * z)[1],
        lambda ctx, g: g * 2 * ctx.saved_tensors[0].conj(),
    )
    z = leaf(1 + 2j)
    made.apply(z).real.backward()
    equal(z.grad, 2 - 4j)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (2, 3)])
def test_shapes(shape):
    x = tg.ones(shape, requires_grad=True) if not HERE else tg.ones(shape).requires_grad_()
    y = Cube.apply(x)
    assert tuple(y.shape) == shape
    y.sum().backward()
    assert tuple(x.grad.shape) == shape


def test_functions_in_a_chain_of_ops(engine):
    x = leaf(0.5, 1.0)
    y = (Exp.apply(x * 2) * Cube.apply(x)).sum()
    y.backward()
    at = np.array([0.5, 1.0])
    equal(x.grad, np.exp(2 * at) * (2 * at**3 + 3 * at**2))


# ------------------------------------------------------------------------------------------------ errors


def bad(backward, at=(1.0, 2.0), forward=lambda ctx, *xs: xs[0] * 2):
    made = function(forward, backward)
    return lambda: made.apply(leaf(*at)).sum().backward()


ERRORS = [
    ("no forward", lambda: type("Bare", (Function,), {}).apply(leaf(1.0)), NotImplementedError, "You must implement the forward function"),
    ("no backward", lambda: type("Half", (Function,), {"forward": staticmethod(lambda ctx, x: x * 1)}).apply(leaf(1.0)).backward(), NotImplementedError, "You must implement either the backward or vjp method"),
    ("both backward and vjp", lambda: function(lambda ctx, x: x * 1, lambda ctx, g: g, vjp=staticmethod(lambda ctx, g: g)).apply(leaf(1.0)).backward(), RuntimeError, "Implementing both 'backward' and 'vjp'"),
    ("unknown keyword", lambda: Scale.apply(leaf(1.0), 2.0, colour="red"), TypeError, "got an unexpected keyword argument 'colour'"),
    ("missing argument", lambda: Scale.apply(leaf(1.0)), TypeError, "missing 1 required positional argument: 'factor'|missing a required argument: 'factor'"),
    ("keyword-only", lambda: type("KeywordOnly", (CubeApart,), {"forward": staticmethod(lambda x, *, shift=0.0: x)}).apply(leaf(1.0)), TypeError, "keyword"),
    ("called", lambda: Scale()(leaf(1.0)), RuntimeError, "Legacy autograd function with non-static forward"),
    ("too many gradients", bad(lambda ctx, g: (g, g)), RuntimeError, r"function MadeBackward returned an incorrect number of gradients \(expected 1, got 2\)"),
    ("too few gradients", lambda: function(lambda ctx, x, y: x * y, lambda ctx, g: g).apply(leaf(1.0), leaf(2.0)).backward(), RuntimeError, r"function MadeBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
    ("none at all", lambda: function(lambda ctx, x, y: x * y, lambda ctx, g: ()).apply(leaf(1.0), leaf(2.0)).backward(), RuntimeError, r"expected 2, got 0"),
    ("shape", bad(lambda ctx, g: tg.ones(3)), RuntimeError, r"Function MadeBackward returned an invalid gradient at index 0 - got \[3\] but expected shape compatible with \[2\]"),
    ("shape of the second", lambda: function(lambda ctx, x, y: x + y, lambda ctx, g: (g, tg.ones(2, 2))).apply(leaf(1.0, 2.0), leaf([[1.0], [2.0], [3.0]])).sum().backward(), RuntimeError, r"invalid gradient at index 1 - got \[2, 2\]"),
    ("gradient of a number", lambda: function(lambda ctx, x, n: x * n, lambda ctx, g: (g, g)).apply(leaf(1.0), 2.0).backward(), RuntimeError, "returned a gradient different than None at position 2, but the corresponding forward input was not a Variable"),
    ("a gradient that is none", bad(lambda ctx, g: "gradient"), (TypeError, RuntimeError), "expected.*(Variable|Tensor) or None"),
    ("saving a number", lambda: function(lambda ctx, x: ctx.save_for_backward(3.0) or x * 1, lambda ctx, g: g).apply(leaf(1.0)), TypeError, "save_for_backward can only save variables"),
    ("saving an array", lambda: function(lambda ctx, x: ctx.save_for_backward(x, np.ones(3)) or x * 1, lambda ctx, g: g).apply(leaf([1.0, 2.0])), TypeError, "argument 1 is of type"),
    ("dirty, not returned", lambda: function(lambda ctx, x: ctx.mark_dirty(x) or x * 1, lambda ctx, g: g).apply(leaf(1.0) * 1), RuntimeError, "marked.*dirty.*(outputs|output)"),
    ("dirty, no tensor", lambda: function(lambda ctx, x: ctx.mark_dirty("x") or x * 1, lambda ctx, g: g).apply(leaf(1.0) * 1), TypeError, "(mark_dirty was given str|mark_dirty)"),
    ("constant, no tensor", lambda: function(lambda ctx, x: ctx.mark_non_differentiable(3) or x * 1, lambda ctx, g: g).apply(leaf(1.0)), (TypeError, RuntimeError), "mark_non_differentiable only accepts variable"),
    ("zeros or None", lambda: function(lambda ctx, x: ctx.set_materialize_grads("no") or x * 1, lambda ctx, g: g).apply(leaf(1.0)), TypeError, "set_materialize_grads"),
    ("dirty leaf", lambda: function(lambda ctx, x: ctx.mark_dirty(x) or x.add_(1), lambda ctx, g: g).apply(leaf(1.0)), RuntimeError, "a leaf Variable that requires grad"),
    ("unknown attribute of ctx", bad(lambda ctx, g: ctx.nothing), AttributeError, "nothing"),
    ("attribute of the node", lambda: Cube.apply(leaf(1.0)).grad_fn.nothing, AttributeError, "nothing"),
    ("saved values freed", lambda: (lambda y: (y.backward(), y.grad_fn.saved_tensors))(Cube.apply(leaf(1.0))), RuntimeError, "Trying to backward through the graph a second time"),
    ("second walk", lambda: (lambda y: (y.backward(), y.backward()))(Cube.apply(leaf(1.0))), RuntimeError, "Trying to backward through the graph a second time"),
    ("raised in forward", lambda: function(lambda ctx, x: [][1], lambda ctx, g: g).apply(leaf(1.0)), IndexError, "list index out of range"),
    ("raised in backward", bad(lambda ctx, g: {}["key"]), KeyError, "key"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("action", "kind", "phrase"), [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
)
def test_error(action, kind, phrase):
    with pytest.raises(kind, match=f"(?s){phrase}"):
        action()


def test_what_saved_nothing_is_walked_again():
    x = leaf(2.0)
    y = Scale.apply(x, 3.0)
    y.backward()
    y.backward()
    equal(x.grad, 6.0)


def test_keywords_are_put_in_the_order_of_the_signature():
    """Gradients are returned by position, so arguments are given by position."""
    x, y = leaf(2.0), leaf(5.0)
    made = function(
        lambda ctx, first, second, third=1: first * second, lambda ctx, g: (g * 10, g * 20)
    )
    made.apply(second=y, first=x).backward()
    equal(x.grad, 10.0)
    equal(y.grad, 20.0)


def test_setup_context_is_given_the_defaults():
    class Scaled(Function):
        @staticmethod
        def forward(x, factor=2.0):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    x = leaf(1.0)
    Scaled.apply(x, factor=3.0).backward()
    equal(x.grad, 3.0)
    Scaled.apply(x).backward()
    equal(x.grad, 5.0)


@differs("what is no tensor is returned as it is, and the gradient is lost")
@pytest.mark.parametrize("value", ["text", 2.0, None])
def test_a_lone_output_that_is_no_tensor_is_refused(value):
    with pytest.raises(TypeError, match="expected to return a Tensor"):
        function(lambda ctx, x: value, lambda ctx, g: g).apply(leaf(1.0))


def test_an_exception_leaves_nothing_half_changed(engine):
    x = leaf(2.0)
    failing = [True]

    def forward(ctx, x):
        ctx.save_for_backward(x)
        if failing[0]:
            raise ValueError("forward")
        return x * 2

    def backward(ctx, g):
        (saved,) = ctx.saved_tensors
        if failing[0]:
            raise ValueError("backward")
        return g * 2

    made = function(forward, backward)
    with pytest.raises(ValueError, match="forward"):
        made.apply(x)
    assert tg.is_grad_enabled()
    failing[0] = False
    y = x * made.apply(x)
    failing[0] = True
    with pytest.raises(ValueError, match="backward"):
        y.backward()
    assert x.grad is None and tg.is_grad_enabled()
    failing[0] = False
    if HERE:  # nothing was freed by the walk that failed
        y.backward()
        equal(x.grad, 8.0)


# ------------------------------------------------------------------------------------------------ higher order


@pytest.mark.parametrize(
    ("made", "at", "derivatives"),
    [
        pytest.param(Cube.apply, 2.0, (12.0, 12.0, 6.0), id="saved input"),
        pytest.param(CubeApart.apply, 2.0, (12.0, 12.0, 6.0), id="setup_context"),
        pytest.param(Exp.apply, 0.5, (np.exp(0.5),) * 4, id="saved output"),
        pytest.param(lambda x: SinCos.apply(x)[0], 0.5, (np.cos(0.5), -np.sin(0.5), -np.cos(0.5), np.sin(0.5)), id="two saved outputs"),
        pytest.param(lambda x: SinCos.apply(x)[0] * SinCos.apply(x)[1], 0.5, (np.cos(1), -2 * np.sin(1), -4 * np.cos(1)), id="product of outputs"),
        pytest.param(lambda x: Multiply.apply(x, Multiply.apply(x, x)), 2.0, (12.0, 12.0, 6.0), id="nested"),
        pytest.param(lambda x: Exp.apply(Cube.apply(x)), 1.0, (3 * np.e, 15 * np.e), id="composed"),
    ],
)  # fmt: skip
def test_derivatives_of_every_order(made, at, derivatives, engine):
    x = leaf(at)
    y = made(x)
    for expected in derivatives:
        (y,) = grad(y, x, create_graph=True)
        equal(y, expected)


def test_second_derivative_with_respect_to_the_seed():
    x, g = leaf(2.0), leaf(5.0)
    (dx,) = grad(Cube.apply(x), x, g, create_graph=True)
    equal(dx, 60.0)
    equal(grad(dx, (x, g))[0], 60.0)


def test_backward_is_tracked_only_under_create_graph():
    seen = []

    def backward(ctx, g):
        seen.append((tg.is_grad_enabled(), g.requires_grad))
        return g * 2

    made = function(lambda ctx, x: x * 2, backward)
    x = leaf(1.0)
    made.apply(x).backward()
    grad(made.apply(x * x), x, create_graph=True)
    with tg.no_grad():
        with tg.enable_grad():
            y = made.apply(x)
        grad(y, x)
    assert [s[0] for s in seen] == [False, True, False]


def test_once_differentiable(engine):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = leaf(3.0)
    Square.apply(x).backward()
    equal(x.grad, 6.0)
    for seed in (
        (x * 1, None) if HERE else (x * 1,)
    ):  # PyTorch returns a constant where no seed requires grad
        (dx,) = grad(Square.apply(x), x, seed, create_graph=True)
        assert dx.requires_grad
        with pytest.raises(
            RuntimeError,
            match="trying to differentiate twice a function that was marked with @once_differentiable",
        ):
            dx.backward()


def test_gradients_of_two_outputs_differentiated_again():
    x = leaf(0.5)
    s, c = SinCos.apply(x)
    (dx,) = grad((s, c), x, create_graph=True)
    equal(dx, np.cos(0.5) - np.sin(0.5))
    equal(grad(dx, x)[0], -np.sin(0.5) - np.cos(0.5))


@pytest.mark.parametrize("made", [Cube, CubeApart, Exp])
def test_gradcheck(made):
    x = leaf(0.5, 1.2)
    assert tg.autograd.gradcheck(made.apply, (x,))
    assert tg.autograd.gradgradcheck(made.apply, (x,))


def test_gradcheck_of_two_outputs():
    assert tg.autograd.gradcheck(SinCos.apply, (leaf(0.5, 1.2),))
    assert tg.autograd.gradgradcheck(SinCos.apply, (leaf(0.5, 1.2),))


def test_gradcheck_finds_a_wrong_backward():
    wrong = function(
        lambda ctx, x: (ctx.save_for_backward(x), x**3)[1],
        lambda ctx, g: g * ctx.saved_tensors[0] ** 2,
    )
    with pytest.raises(RuntimeError, match="(?i)jacobian"):
        tg.autograd.gradcheck(wrong.apply, (leaf(0.5, 1.2),))


# ------------------------------------------------------------------------------------------------ saved tensors


def test_what_was_saved_comes_back():
    x, y = leaf(2.0), tg.tensor(3.0)

    def forward(ctx, x, y):
        ctx.save_for_backward(x, None, y, x * 7)
        return x * y

    def backward(ctx, g):
        a, nothing, b, c = ctx.saved_tensors
        assert nothing is None and [a.item(), b.item(), c.item()] == [2.0, 3.0, 14.0]
        assert a.requires_grad and not b.requires_grad
        return g * b, g * a

    function(forward, backward).apply(x, y).backward()
    equal(x.grad, 3.0)


def test_needs_input_grad_is_of_the_call():
    """Not of the walk, which may want fewer gradients."""
    x, y = leaf(2.0), leaf(3.0)
    equal(grad(Multiply.apply(x, y), x)[0], 3.0)
    assert tuple(Multiply.computed) == (True, True)


def test_saving_twice_keeps_the_last():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_backward(x * 10)
        return x * 1

    x = leaf(2.0)
    function(forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x).backward()
    equal(x.grad, 20.0)


def test_saved_tensors_are_a_tuple_on_the_node():
    y = Cube.apply(leaf(2.0))
    (saved,) = y.grad_fn.saved_tensors
    equal(saved.detach(), 2.0)
    assert isinstance(y.grad_fn.saved_tensors, tuple)
    assert Scale.apply(leaf(2.0), 3.0).grad_fn.saved_tensors == ()


def test_overwriting_what_was_saved_is_noticed(engine):
    x = leaf(2.0, 3.0)
    h = x * 1
    y = Cube.apply(h)
    h.add_(1)
    with pytest.raises(
        RuntimeError,
        match="one of the variables needed for gradient computation has been modified by an inplace operation",
    ):
        y.sum().backward()
    assert x.grad is None
    z = Exp.apply(x)
    z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_retain_graph_keeps_what_was_saved():
    x = leaf(2.0)
    y = Cube.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    equal(x.grad, 24.0)


def test_attributes_of_ctx_outlive_the_saved():
    x = leaf(2.0)
    y = Scale.apply(x, 3.0, "label")
    assert y.grad_fn.factor == 3.0 and y.grad_fn.label == "label"
    y.grad_fn.note = 1
    assert y.grad_fn.note == 1


def test_clear_saved_tensors_on_access():
    made = function(
        lambda ctx, x: (ctx.save_for_backward(x), x**2)[1],
        lambda ctx, g: g * 2 * ctx.saved_tensors[0],
        clear_saved_tensors_on_access=True,
    )
    x = leaf(2.0)
    y = made.apply(x)
    y.backward(retain_graph=True)
    equal(x.grad, 4.0)
    with pytest.raises(RuntimeError):
        y.backward()


def test_saved_for_forward_mode_is_no_matter_for_backward():
    def forward(ctx, x):
        ctx.save_for_forward(x)
        ctx.save_for_backward(x)
        return x * x

    x = leaf(2.0)
    function(forward, lambda ctx, g: 2 * g * ctx.saved_tensors[0]).apply(x).backward()
    equal(x.grad, 4.0)


# ------------------------------------------------------------------------------------------------ marks


class Increment(Function):
    """In place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, g):
        return g * 1


def test_dirty_inputs_are_overwritten(engine):
    x = leaf(1.0, 2.0)
    y = x * 2
    z = Increment.apply(y)
    assert z is y and y._version > 0 and y.grad_fn.name() == "IncrementBackward"
    (y * y).sum().backward()
    equal(x.grad, [12.0, 20.0])


def test_dirty_views_reach_their_base():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    view = y[1:]
    Increment.apply(view)
    equal(y.detach(), [2.0, 5.0, 7.0])
    (y * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    equal(x.grad, [2.0, 20.0, 200.0])
    assert "CopySlices" in y.grad_fn.name()


def test_a_dirty_doubling_through_a_view():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    Double.apply(y[1:])
    Double.apply(y[2:])
    equal(y.detach(), [1.0, 4.0, 12.0])
    y.sum().backward()
    equal(x.grad, [1.0, 2.0, 4.0])


def test_a_dirty_untracked_input_becomes_tracked():
    class AddTo(Function):
        @staticmethod
        def forward(ctx, buffer, x):
            ctx.mark_dirty(buffer)
            return buffer.add_(x)

        @staticmethod
        def backward(ctx, g):
            return g, g

    x, buffer = leaf(1.0, 2.0), tg.zeros(2)
    out = AddTo.apply(buffer, x)
    assert out is buffer and buffer.requires_grad
    buffer.sum().backward()
    equal(x.grad, [1.0, 1.0])


def test_a_dirty_leaf_is_allowed_under_no_grad():
    x = leaf(1.0, 2.0)
    with tg.no_grad():
        Increment.apply(x)
    equal(x.detach(), [2.0, 3.0])
    assert x.requires_grad and x.is_leaf


def test_what_is_not_dirty_is_not_the_input():
    """An input that is returned is another tensor outside."""
    x = leaf(1.0, 2.0)
    y = function(lambda ctx, x: x, lambda ctx, g: g * 3).apply(x)
    assert y is not x and y.requires_grad and x.is_leaf
    y.sum().backward()
    equal(x.grad, [3.0, 3.0])


def test_views_of_inputs_are_outputs():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = function(lambda ctx, x: x[0], lambda ctx, g: tg.stack([g * 3, g * 0])).apply(x)
    y.sum().backward()
    equal(x.grad, [[3.0, 3.0], [0.0, 0.0]])


@pytest.mark.parametrize("forward", [lambda ctx, x: x, lambda ctx, x: x[:2], lambda ctx, x: x.T])
def test_a_view_of_an_input_is_no_view_outside(forward):
    """What is written to it would not reach the input, as it would in a view: it is refused, as in PyTorch."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    y = function(forward, lambda ctx, g: g).apply(x)
    with pytest.raises(
        (RuntimeError, ValueError), match="(?s)a Function's output.*clone|custom Function"
    ):
        y.add_(1)
    equal(x, [[1.0, 2.0], [3.0, 4.0]])
    y.clone().add_(1)


def test_only_inputs_are_marked_dirty():
    def forward(ctx, x):
        y = x * 2
        ctx.mark_dirty(y)
        return y

    x = leaf(3.0)
    with pytest.warns(UserWarning, match="Only input Tensors should be given to ctx.mark_dirty"):
        y = function(forward, lambda ctx, g: g * 2).apply(x)
    y.backward()
    equal(x.grad, 2.0)


def test_an_output_returned_twice():
    def forward(ctx, x):
        y = x * 2
        return y, y

    x = leaf(1.0)
    a, b = function(forward, lambda ctx, g, h: g * 2 + h * 20).apply(x)
    (a + b).backward()
    assert x.grad.item() in (22.0, 24.0, 40.0, 4.0)


def test_non_differentiable_outputs():
    seen = []

    class SortWithPlaces(Function):
        @staticmethod
        def forward(ctx, x):
            order = np.argsort(x.tolist())
            values, places = tg.tensor(np.array(x.tolist())[order]), tg.tensor(order.astype(float))
            ctx.mark_non_differentiable(places)
            ctx.save_for_backward(places)
            return values, places

        @staticmethod
        def backward(ctx, g, zero):
            seen.append(zero.tolist())
            (places,) = ctx.saved_tensors
            back = tg.zeros(3)
            for k, place in enumerate(places.tolist()):
                back[int(place)] = g[k]
            return back

    x = leaf(3.0, 1.0, 2.0)
    values, places = SortWithPlaces.apply(x)
    assert values.requires_grad and not places.requires_grad
    (values * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    equal(x.grad, [100.0, 1.0, 10.0])
    assert seen == [[0.0, 0.0, 0.0]]


def test_only_non_differentiable_outputs():
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y

    assert not function(forward, lambda ctx, g: g).apply(leaf(1.0)).requires_grad


def test_an_overwritten_argument_through_which_nothing_flows():
    """It holds constants from then on, and so does the part of a tensor that it is a view of: the gradient was that of the old value."""

    def forward(ctx, x):
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(x)
        return x.mul_(3)

    apply = function(forward, lambda ctx, g: g).apply
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    out = apply(y)
    assert not out.requires_grad
    equal(out, [6.0, 12.0, 18.0])
    y = x * 2
    apply(y[:2])
    y.sum().backward()
    equal(x.grad, [0.0, 0.0, 2.0])


# ------------------------------------------------------------------------------------------------ the node


def test_the_node_is_the_context():
    contexts = []

    def forward(ctx, x):
        contexts.append(ctx)
        ctx.word = "kept"
        return x * 1

    y = function(forward, lambda ctx, g: g).apply(leaf(1.0))
    node = y.grad_fn
    assert node.name() == "MadeBackward" and node.word == "kept"
    assert contexts[0].word == "kept" and contexts[0].name() == "MadeBackward"
    assert tuple(node.needs_input_grad) == (True,)


def test_the_ctx_has_what_a_node_has():
    contexts = []

    def forward(ctx, x):
        contexts.append(ctx)
        return x * 1

    x = leaf(1.0)
    y = function(forward, lambda ctx, g: g).apply(x)
    (ctx,) = contexts
    assert ctx.next_functions == y.grad_fn.next_functions
    ctx.metadata["note"] = 1
    assert y.grad_fn.metadata["note"] == 1
    seen = []
    ctx.register_hook(lambda gi, go: seen.append("hook"))
    ctx.register_prehook(lambda go: seen.append("prehook"))
    y.backward()
    assert seen == ["prehook", "hook"]


def test_next_functions_and_metadata():
    x, y = leaf(2.0), leaf(3.0)
    z = Multiply.apply(x, y * 1)
    (first, nr), (second, _) = z.grad_fn.next_functions
    assert "AccumulateGrad" in first.name() and first.variable is x and nr == 0
    assert second.name().startswith("Mul")
    s, c = SinCos.apply(x)
    assert (c * 2).grad_fn.next_functions[0] == (s.grad_fn, 1)
    z.grad_fn.metadata["note"] = "here"
    assert z.grad_fn.metadata["note"] == "here"


def test_arguments_that_are_no_tensors_have_no_next_function():
    y = Scale.apply(leaf(1.0), 2.0)
    assert (
        len(y.grad_fn.next_functions) == 1
        and "AccumulateGrad" in y.grad_fn.next_functions[0][0].name()
    )


def test_hooks_of_the_node():
    seen = []
    x = leaf(2.0)
    s, c = SinCos.apply(x)
    s.grad_fn.register_prehook(
        lambda grads: seen.append([g if g is None else round(g.item(), 6) for g in grads])
    )
    s.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    (s + 10 * c).backward()
    assert seen == [[1.0, 10.0], (1, 2)]


def test_hooks_of_the_outputs():
    x = leaf(2.0)
    a, b = function(lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    a.register_hook(lambda g: g * 10)
    b.register_hook(lambda g: g * 100)
    b.retain_grad()
    (a + b).backward()
    equal(b.grad, 100.0)
    equal(x.grad, 320.0)


def test_inputs_of_grad_may_be_outputs():
    x = leaf(2.0)
    a, b = function(lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    ga, gb = grad(a * b, (a, b))
    equal(ga, 6.0)
    equal(gb, 4.0)


def test_a_saved_output_is_the_output():
    """What backward computes from a saved output depends on that output: gradients with respect to it, and its hooks, see it."""
    x = leaf(0.5)
    s, c = SinCos.apply(x)
    seen = []

    def observe(g):
        if g is not None:  # PyTorch calls it with None where nothing has arrived
            seen.append(g.item())

    c.register_hook(observe)
    (dx,) = grad(s, x, create_graph=True)  # the saved cosine
    equal(grad(dx, c, retain_graph=True)[0], 1.0)
    equal(grad(dx + c, c, retain_graph=True)[0], 2.0)
    grad(dx + c, x, retain_graph=True)
    assert seen == [1.0, 2.0, 2.0]
    del c
    equal(grad(dx, x)[0], -np.sin(0.5))


def test_edges_of_several_outputs():
    edge = tg.autograd.graph.get_gradient_edge
    x = leaf(2.0)
    a, b = function(lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    ea, eb = edge(a), edge(b)
    assert ea.node is eb.node and (ea.output_nr, eb.output_nr) == (0, 1)
    equal(grad(a * b, eb)[0], 4.0)
    equal(grad(a * b, tg.autograd.graph.GradientEdge(a.grad_fn, 0))[0], 6.0)
    a.grad_fn.register_hook(lambda gi, go: (gi[0] * 100,))
    tg.autograd.backward(eb)
    equal(x.grad, 300.0)
    a, b = function(lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3).apply(x)
    eb = edge(b)
    del a, b
    equal(grad(eb, x, tg.tensor(1.0))[0], 3.0)


# ------------------------------------------------------------------------------------------------ memory


def test_nothing_keeps_a_dropped_call():
    class Mark:
        pass

    gc.disable()
    try:
        mark = Mark()
        ref = weakref.ref(mark)

        def forward(ctx, x):
            ctx.mark = mark
            ctx.save_for_backward(x, result := x * 2)
            return result

        def backward(ctx, g):
            return g * 2

        made = function(forward, backward)
        x = leaf(2.0)
        y = made.apply(x)
        z = y * 3
        z.backward()
        del y, z, forward
        made.forward = None
        del mark
        if HERE:
            tg.current_tape().sweep()
        assert ref() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("walked", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_saved_output_makes_no_cycle(walked, outputs):
    class Mark:
        pass

    refs = []

    def forward(ctx, x):
        ctx.mark = Mark()
        refs.append(weakref.ref(ctx.mark))
        results = [x * 2 for _ in range(outputs)]
        ctx.save_for_backward(*results)
        return tuple(results)

    def backward(ctx, *gs):
        assert len(ctx.saved_tensors) == outputs
        return sum(gs) * 2

    gc.disable()
    try:
        x = leaf(2.0)
        ys = function(forward, backward).apply(x)
        if walked:
            grad(sum(ys), x, create_graph=outputs == 2)
        del ys
        if HERE:
            tg.current_tape().sweep()
        assert refs[0]() is None
    finally:
        gc.enable()


def test_a_node_that_is_held_keeps_the_call():
    x = leaf(2.0)
    node = Cube.apply(x).grad_fn
    if HERE:
        tg.current_tape().sweep()
    equal(node.saved_tensors[0].detach(), 2.0)


# ------------------------------------------------------------------------------------------------ transforms


@here
@pytest.mark.parametrize("made", [Cube, CubeApart])
def test_transforms(made, engine):
    f = lambda x: made.apply(x).sum() if x.ndim else made.apply(x)  # noqa: E731  the function of this test
    assert tg.grad(f)(2.0) == 12.0
    assert tg.grad(tg.grad(f))(2.0) == 12.0
    at = np.array([1.0, 2.0])
    np.testing.assert_allclose(tg.jvp(f, (2.0,), (0.5,))[1], 6.0)
    np.testing.assert_allclose(tg.hessian(f)(at), np.diag([6.0, 12.0]))
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(made.apply, mode=mode)(at), np.diag([3.0, 12.0]))
    np.testing.assert_allclose(tg.hvp(f)(at, np.ones(2)), [6.0 * 1, 12.0])
    for tangent in (1.0, 2.0):  # derivatives of derivatives forward: the second, and the third
        assert tg.grad(lambda x: tg.jvp(f, (x,), (tangent,))[1])(2.0) == 12.0 * tangent
        assert tg.grad(tg.grad(lambda x: tg.jvp(f, (x,), (tangent,))[1]))(2.0) == 6.0 * tangent
        assert tg.jvp(lambda x: tg.jvp(f, (x,), (tangent,))[1], (2.0,), (1.0,))[1] == 12.0 * tangent
    assert tg.grad(lambda t: tg.jvp(f, (2.0,), (t,))[1])(1.0) == 12.0


@here
def test_transforms_of_two_outputs(engine):
    f = lambda x: np.multiply(*SinCos.apply(x))  # noqa: E731
    at = np.array([0.5, 1.0])
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(at), np.diag(np.cos(2 * at)))
    np.testing.assert_allclose(tg.grad(lambda x: f(x).sum())(at), np.cos(2 * at))
    np.testing.assert_allclose(
        tg.hessian(lambda x: f(x).sum())(at), np.diag(-2 * np.sin(2 * at)), atol=1e-14
    )
    np.testing.assert_allclose(
        tg.jvp(lambda x: SinCos.apply(x)[1], (at,), (np.ones(2),))[1], -np.sin(at)
    )


class Product(Function):
    """With a jvp of its own, which says so."""

    calls = 0

    @staticmethod
    def forward(ctx, x, y):
        y_saved = tg.tensor(y) if isinstance(y, float) else y
        ctx.save_for_backward(x, y_saved)
        ctx.save_for_forward(x, y_saved)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def jvp(ctx, tx, ty):
        Product.calls += 1
        x, y = ctx.saved_tensors
        return tx * y if ty is None else tx * y + x * ty


@here
def test_jvp_of_ones_own():
    before = Product.calls
    assert tg.jvp(Product.apply, (2.0, 3.0), (1.0, 10.0))[1] == 23.0
    assert Product.calls == before + 1
    np.testing.assert_allclose(
        tg.jacobian(lambda x: Product.apply(x, x), mode="forward")(np.array([1.0, 2.0])),
        np.diag([2.0, 4.0]),
    )
    squared = lambda v: Product.apply(v, v)  # noqa: E731  short
    assert tg.grad(lambda x: tg.jvp(squared, (x,), (1.0,))[1])(3.0) == 2.0
    assert tg.grad(lambda t: tg.jvp(squared, (3.0,), (t,))[1])(1.0) == 6.0
    assert tg.jvp(lambda x: tg.jvp(squared, (x,), (1.0,))[1], (3.0,), (1.0,))[1] == 2.0


@here
def test_jvp_is_given_zeros_for_what_has_no_tangent():
    assert tg.jvp(lambda x: Product.apply(x, 3.0), (2.0,), (1.0,))[1] == 3.0
    c = tg.tensor(4.0)
    assert tg.jvp(lambda x: Product.apply(x, c), (2.0,), (1.0,))[1] == 4.0


@here
@pytest.mark.parametrize("returned", [lambda t: (t, t), lambda t: tg.ones(3), lambda t: t * 1j])
def test_a_wrong_jvp_is_named(returned):
    made = function(
        lambda ctx, x: x * 2, lambda ctx, g: g * 2, jvp=staticmethod(lambda ctx, t: returned(t))
    )
    with pytest.raises(RuntimeError, match="MadeBackward.*jvp returned"):
        tg.jvp(made.apply, (np.ones(2),), (np.ones(2),))


@here
def test_arrays_are_welcome():
    """A forward may compute with NumPy on the arrays and return an array; a backward, too."""

    def forward(ctx, x):
        a = x.detach().numpy()
        ctx.a = a
        return np.cumsum(a)

    made = function(forward, lambda ctx, g: np.cumsum(g.detach().numpy()[::-1])[::-1].copy())
    x = leaf(1.0, 2.0, 3.0)
    (made.apply(x) * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    equal(x.grad, [111.0, 110.0, 100.0])


@here
def test_make_many_calls_on_one_tape(engine):
    x = leaf(1.0)
    y = x
    for _ in range(300):
        y = Scale.apply(y, 1.01) + 0.0
    y.backward()
    np.testing.assert_allclose(x.grad.item(), 1.01**300, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ documentation
#
# The examples of PyTorch's "Extending PyTorch" and "Double backward with custom functions", as they stand there.


class Linear(Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input @ weight.T
        if bias is not None:
            output += bias[None, :].expand(*output.shape)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.T @ input
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(with_bias):
    rng = np.random.default_rng(0)
    x, w = leaf(rng.normal(size=(4, 3)).tolist()), leaf(rng.normal(size=(2, 3)).tolist())
    b = leaf(rng.normal(size=2).tolist()) if with_bias else None
    assert tg.autograd.gradcheck(Linear.apply, (x, w, b))
    y = x @ w.T + (b if with_bias else 0.0)
    inputs = (x, w, b) if with_bias else (x, w)
    for g, e in zip(
        grad(Linear.apply(x, w, b).exp().sum(), inputs), grad(y.exp().sum(), inputs), strict=True
    ):
        equal(g, e.tolist())


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        tensor, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


def test_mul_constant():
    x = leaf(1.0, 2.0)
    MulConstant.apply(x, 5.0).sum().backward()
    equal(x.grad, [5.0, 5.0])


class MyCube(Function):
    """Saves an intermediate that is returned as a second output, so that it can be differentiated again."""

    @staticmethod
    def forward(x):
        result = x**3
        dx = 3 * x**2
        return result, dx

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        result, dx = output
        ctx.save_for_backward(x, dx)

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


def test_an_intermediate_as_an_output():
    def my_cube(x):
        result, _ = MyCube.apply(x)
        return result

    x = leaf(0.5, 1.5)
    assert tg.autograd.gradcheck(my_cube, (x,)) and tg.autograd.gradgradcheck(my_cube, (x,))


class Sinh(Function):
    """Double backward: intermediates returned as outputs."""

    @staticmethod
    def forward(ctx, x):
        expx = tg.exp(x)
        expnegx = tg.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_exp, grad_negexp):
        expx, expnegx = ctx.saved_tensors
        grad_input = grad_out * (expx + expnegx) / 2
        grad_input += grad_exp * expx
        grad_input -= grad_negexp * expnegx
        return grad_input


def test_sinh_is_differentiated_twice():
    def sinh(x):
        return Sinh.apply(x)[0]

    x = leaf(0.3, 1.1)
    assert tg.autograd.gradcheck(sinh, (x,)) and tg.autograd.gradgradcheck(sinh, (x,))


def test_sinh_that_saves_intermediates_is_wrong_twice():
    """The documentation's warning: intermediates that are no outputs are constants to the second derivative."""

    class SinhBad(Function):
        @staticmethod
        def forward(ctx, x):
            expx, expnegx = tg.exp(x), tg.exp(-x)
            ctx.expx, ctx.expnegx = expx, expnegx
            return (expx - expnegx) / 2

        @staticmethod
        def backward(ctx, grad_out):
            return grad_out * (ctx.expx + ctx.expnegx) / 2

    x = leaf(1.0)
    (dx,) = grad(SinhBad.apply(x), x, create_graph=True)
    equal(dx, np.cosh(1.0))
    assert not dx.requires_grad


class CubeForward(Function):
    """The backward calls a Function whose own backward is the second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return CubeBackward.apply(grad_out, x)


class CubeBackward(Function):
    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(x, grad_out)
        return grad_out * 3 * x**2

    @staticmethod
    def backward(ctx, sav_grad_out):
        x, grad_out = ctx.saved_tensors
        dx = sav_grad_out * 6 * grad_out * x
        dgrad_out = sav_grad_out * 3 * x**2
        return dgrad_out, dx


def test_a_backward_that_is_a_function():
    x = leaf(2.0)
    assert tg.autograd.gradcheck(CubeForward.apply, (x,)) and tg.autograd.gradgradcheck(
        CubeForward.apply, (x,)
    )


# ------------------------------------------------------------------------------------------------ threads


def test_threads_run_their_own_calls():
    results = {}

    def work(i):
        x = leaf(float(i))
        for _ in range(20):
            s, c = SinCos.apply(x)
            (g,) = grad(Cube.apply(x) + s * c, x, create_graph=True)
            results[i] = (g.item(), grad(g, x)[0].item())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(8):
        np.testing.assert_allclose(
            results[i], (3 * i**2 + np.cos(2 * i), 6 * i - 2 * np.sin(2 * i)), atol=1e-12
        )


@here
def test_plain_arguments_are_saved_as_constants():
    """A model that has a Function in it is evaluated on arrays and numbers as well."""

    class Softsign(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x / (1 + abs(x))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + abs(x)) ** 2

    equal(Softsign.apply(np.array([1.0, -1.0])), [0.5, -0.5])
    assert float(Softsign.apply(3.0)) == 0.75
    assert tg.grad(Softsign.apply)(1.0) == 0.25
    assert tg.check_gradient(lambda x: np.sum(Softsign.apply(x)), np.array([1.0, 2.0])).ok
