"""`gradcheck` and `gradgradcheck`: what is right passes, and every planted fault is caught, with a message that says where."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import gradcheck, gradgradcheck
from tapegrad.autograd.gradcheck import GradcheckError
from tapegrad.core.primitive import FUNCTIONS, UFUNCS, elementwise, primitive


def leaf(*values, dtype=None):
    return tg.tensor(
        values[0] if len(values) == 1 else list(values), dtype=dtype, requires_grad=True
    )


X = [0.5, -1.5, 2.0]
Y = [[1.0], [0.25]]
Z = [1 + 2j, 0.5 - 1j]


@pytest.fixture
def declare():
    """Ops for one test: afterwards nothing leads to them any more (their codes stay taken: engines remember codes)."""
    functions, ufuncs, methods = dict(FUNCTIONS), dict(UFUNCS), set(vars(tg.Tensor))
    yield
    for table, before in ((FUNCTIONS, functions), (UFUNCS, ufuncs)):
        table.clear()
        table.update(before)
    for name in set(vars(tg.Tensor)) - methods:
        delattr(tg.Tensor, name)


def faulty(value, *partials, name="faulty"):
    """An elementwise op with the value of a NumPy function and the derivative given."""

    def forward(*operands):
        return value(*operands)

    return elementwise(forward, *partials, name=name)


# ------------------------------------------------------------------------------------------------ what passes

RIGHT = [
    ("elementwise", lambda x: np.sin(x) * np.exp(x), (X,)),
    ("broadcast", lambda x, y: x * y + x / y, (X, Y)),
    ("reduction", lambda x, y: (x**2 * y).sum(), (X, Y)),
    ("several outputs", lambda x, y: (x * y, x.sum(), -y), (X, Y)),
    ("a list of outputs", lambda x: [x * 2, x * 3], (X,)),
    ("the input itself", lambda x: x, (X,)),
    ("a view", lambda x: x[1:], (X,)),
    ("matrices", lambda x, y: y @ x[None, :] @ tg.ones(3, 2), (X, Y)),
    ("a number", np.sin, (0.5,)),
    ("unused input", lambda x, y: x * 2, (X, Y)),
    ("no elements", lambda x: x * 2, (np.zeros((0, 2)),)),
    ("no elements in the output", lambda x: x[:0] * 2, (X,)),
    ("constants pass through", lambda x, n, c, s: x * n * c if s == "yes" else x, (X, 3, tg.tensor(X), "yes")),
    ("outputs beside", lambda x: (x * 2, x.detach() > 0, x.detach() * 3, None, "text"), (X,)),
    ("second derivatives inside", lambda x: tg.autograd.grad((x**3).sum(), x, create_graph=True), (X,)),
    ("assignment", lambda x: (lambda b: (b.__setitem__(0, x[1] * x[0]), b)[1])(tg.zeros(2)), (X,)),
    ("complex to complex", lambda z: z * z, (Z,)),
    ("complex to real", lambda z: np.abs(z), (Z,)),
    ("not analytic", lambda z: z * np.conj(z) + np.real(z), (Z,)),
    ("real to complex", lambda x: x * (1 + 2j), (X,)),
    ("real and complex", lambda x, z: (x[:2] * z, (x.sum() * z).imag), (X, Z)),
]  # fmt: skip

MODES = {
    "slow": {},
    "fast": {"fast_mode": True},
    "forward": {"check_forward_ad": True},
    "forward alone": {"check_forward_ad": True, "check_backward_ad": False},
    "fast forward": {"check_forward_ad": True, "fast_mode": True},
    "thorough": {
        "check_grad_dtypes": True,
        "check_batched_grad": True,
        "check_forward_ad": True,
        "check_batched_forward_grad": True,
    },
}


def arguments(at):
    return tuple(leaf(v) if isinstance(v, float | list | np.ndarray) else v for v in at)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("function", "at"), [pytest.param(*row[1:], id=row[0]) for row in RIGHT])
def test_right_functions_pass(function, at, mode):
    inputs = arguments(at)
    before = [x.tolist() for x in inputs if isinstance(x, tg.Tensor)]
    assert gradcheck(function, inputs, **MODES[mode]) is True
    assert [x.tolist() for x in inputs if isinstance(x, tg.Tensor)] == before
    assert all(x.grad is None for x in inputs if isinstance(x, tg.Tensor))


@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"fast_mode": True},
        {"check_fwd_over_rev": True},
        {"check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False},
        {
            "gen_non_contig_grad_outputs": True,
            "check_batched_grad": True,
            "check_grad_dtypes": True,
        },
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("function", "at"),
    [
        pytest.param(lambda x, y: np.sin(x) * y * y, (X, Y), id="elementwise"),
        pytest.param(lambda x, y: ((x * y).sum(), x**3), (X, Y), id="several outputs"),
        pytest.param(lambda x: x * 2, (X,), id="linear"),
        pytest.param(lambda z: z * z * np.conj(z), (Z,), id="complex"),
        pytest.param(lambda x, n: x**n, (X, 3), id="constants pass through"),
    ],
)
def test_right_second_derivatives_pass(function, at, mode):
    assert gradgradcheck(function, arguments(at), **mode) is True


def test_a_lone_tensor_needs_no_tuple():
    assert gradcheck(np.sin, leaf(*X))
    assert gradcheck(np.sin, [leaf(*X)])
    assert gradgradcheck(np.sin, leaf(*X), tg.tensor([1.0, 2.0, 3.0]))


def test_given_cotangents_are_used():
    """At a cotangent of zero the second derivative by x vanishes, and a fault in it does too."""
    wrong_twice = lambda x: tg.where(x > 100, x**3, (x.detach() ** 2) * x * 3 - 2 * x.detach() ** 3)  # noqa: E731
    x = leaf(0.5, 2.0)
    assert gradgradcheck(wrong_twice, x, tg.zeros(2), raise_exception=False)
    assert not gradgradcheck(wrong_twice, x, tg.ones(2), raise_exception=False)


def test_closed_over_inputs_are_moved_too():
    """A model that reads its parameters from outside, given as inputs by name only."""
    w = leaf(*X)
    assert gradcheck(lambda *_: np.sin(w), (w,))
    assert not gradcheck(lambda *_: np.sin(w.detach()) * w, (w,), raise_exception=False)


def test_results_may_be_inputs():
    h = leaf(*X) * 2
    assert gradcheck(np.sin, (h,))


def test_inputs_come_back_whatever_happens():
    x = leaf(*X)

    def fails_when_moved(x):
        if x.tolist() != X:
            raise ZeroDivisionError
        return x * 2

    with pytest.raises(ZeroDivisionError):
        gradcheck(fails_when_moved, x)
    assert x.tolist() == X


# ------------------------------------------------------------------------------------------------ what is caught
#
# name, function, inputs, key phrase of the message. A detached factor loses its share of the gradient:
# x.detach() * x has half of that of x * x.

CAUGHT = [
    ("missing term", lambda x: x.detach() * x, (X,), "0.5 times the numerical"),
    ("sign", lambda x: 2 * (x * x).detach() - x * x, (X,), "Jacobian mismatch"),
    ("no gradient at all", lambda x: 0 * x + np.sin(x.detach()), (X,), "The analytical one is 0"),
    ("one component", lambda x: tg.stack([x[0] ** 2, x[1].detach() * x[1]]), (X,), r"output\[1\] by input\[1\]"),
    ("second input", lambda x, y: x * y.detach() * y, (X, Y), "with respect to input 1"),
    ("second output", lambda x: (x * 2, x.detach() * x), (X,), "mismatch for output 1 with respect to input 0"),
    ("a number", lambda x: x.detach() * x, (3.0,), "numerical 6, analytical 3"),
    ("nothing tracked", lambda x: np.sin(x.detach()), (X,), "Numerical gradient for function expected to be zero"),
    ("numbers taken out", lambda x: np.sin(x.item()), (3.0,), "Numerical gradient for function expected to be zero"),
    ("complex", lambda z: z.detach() * z, (Z,), "While considering the real part of complex outputs only"),
    ("imaginary part", lambda z: z.real + 1j * z.detach().imag, (Z,), "considering the imaginary part of complex outputs only"),
    ("float32 inside", lambda x: (x.astype(np.float32) * 2).astype(np.float64), (X,), "Jacobian mismatch"),
]  # fmt: skip


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize(
    ("function", "at", "phrase"), [pytest.param(*row[1:], id=row[0]) for row in CAUGHT]
)
def test_faults_are_caught(function, at, phrase, fast):
    inputs = arguments(at)
    with pytest.raises(GradcheckError, match=phrase):
        gradcheck(function, inputs, fast_mode=fast)
    assert gradcheck(function, inputs, fast_mode=fast, raise_exception=False) is False


RULES = {
    "wrong sign": (
        np.sin,
        lambda x: -np.cos(x),
        "-1 times the numerical: a sign or a factor is wrong",
    ),
    "missing factor": (lambda x: np.sin(2 * x), lambda x: np.cos(2 * x), "0.5 times the numerical"),
    "wrong somewhere": (
        np.abs,
        lambda x: np.where(x > 1, 0.0, np.sign(x)),
        r"1 of 9 entries differ",
    ),
    "not a number": (np.sin, lambda x: np.cos(x) * np.where(x > 1, np.nan, 1.0), "analytical nan"),
    "slightly wrong": (np.sin, lambda x: np.cos(x) * 1.01, "1.01 times"),
}


@pytest.mark.parametrize(
    "mode",
    [{}, {"fast_mode": True}, {"check_forward_ad": True, "check_backward_ad": False}],
    ids=str,
)
@pytest.mark.parametrize("rule", RULES)
def test_wrong_rules_are_caught_both_ways(declare, rule, mode):
    """A partial is one line for both directions: so a wrong one is wrong in both."""
    value, partial, phrase = RULES[rule]
    op = faulty(value, partial)
    with pytest.raises(GradcheckError, match=phrase):
        gradcheck(lambda x: op(x), leaf(*X), **mode)


def test_wrong_second_derivative_is_caught(declare):
    """The rule is right, but written so that its own derivative is lost."""
    op = faulty(np.sin, lambda x: np.cos(x.detach() if isinstance(x, tg.Tensor) else x))
    assert gradcheck(lambda x: op(x), leaf(*X))
    with pytest.raises(GradcheckError, match="mismatch for output 0 with respect to input 0"):
        gradgradcheck(lambda x: op(x), leaf(*X))
    assert not gradgradcheck(lambda x: op(x), leaf(*X), fast_mode=True, raise_exception=False)
    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch"):
        gradgradcheck(
            lambda x: op(x),
            leaf(*X),
            check_fwd_over_rev=True,
            check_rev_over_rev=False,
            check_undefined_grad=False,
        )


def test_vjp_and_jvp_that_disagree_are_caught_where_wrong(declare):
    """A structural op states its tangent apart: here that one is wrong."""

    @primitive(lambda x: x * 3, name="tripled", jvp=lambda ts, xs, out: 2 * ts[0])
    def tripled(g):
        """Three times."""
        return g * 3

    assert gradcheck(tripled, leaf(*X))
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 0"):
        gradcheck(tripled, leaf(*X), check_forward_ad=True)


@pytest.fixture(name="swept")
def _swept():
    """Walks that call rules each time: a compiled kernel is made of one call of its rule."""
    before = tg.engine()
    tg.set_engine("sweep")
    yield
    tg.set_engine(before)


def test_walks_that_differ_are_caught(declare, swept):
    noise = itertools.count()
    op = faulty(np.sin, lambda x: np.cos(x) + 1e-9 * next(noise))
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(lambda x: op(x), leaf(*X))
    assert gradcheck(lambda x: op(x), leaf(*X), nondet_tol=1e-6)
    assert not gradcheck(lambda x: op(x), leaf(*X), fast_mode=True, raise_exception=False)


def test_functions_that_differ_from_run_to_run_are_named():
    rng = np.random.default_rng(1)
    with pytest.raises(
        GradcheckError, match="Two runs of func at the same point give different values"
    ):
        gradcheck(lambda x: x * rng.normal(), leaf(*X))


def test_gradient_without_its_cotangent_is_caught(declare):
    """The rule is right for a cotangent of 1, the only one that a single output is asked with otherwise."""

    @primitive(np.sum, name="affine")
    def affine(g, x_shape):
        """A sum whose rule forgets to multiply by the cotangent."""
        return np.ones(x_shape) * (g if np.all(g == 1) else 1.0)

    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(affine, leaf(*X))


def test_outputs_without_cotangent_count_as_zero(declare, monkeypatch):
    """Two rules of which one goes wrong if the other was walked before, even with zeros."""
    walked = []

    def first(g):
        """Right, unless the other output had a cotangent."""
        return g * 3 if not walked else g * 4

    def second(g):
        """Notes that it was walked."""
        walked.append(True)
        return g * 5

    one = primitive(lambda x: x * 3, name="one", linear=True)(first)
    two = primitive(lambda x: x * 5, name="two", linear=True)(second)
    original = tg.autograd.grad

    def forgetting(*args, **kwargs):
        walked.clear()
        return original(*args, **kwargs)

    monkeypatch.setattr(tg.autograd, "grad", forgetting)
    assert gradcheck(lambda x: (one(x), two(x)), leaf(*X), check_undefined_grad=False)
    with pytest.raises(GradcheckError, match="Expected an undefined output grad to count as zeros"):
        gradcheck(lambda x: (one(x), two(x)), leaf(*X))


def test_outputs_without_cotangent_may_not_raise(monkeypatch):
    original = tg.autograd.grad

    def demanding(outputs, *args, **kwargs):
        if isinstance(outputs, list) and len(outputs) < 2:
            raise RuntimeError("both are needed.")
        return original(outputs, *args, **kwargs)

    monkeypatch.setattr(tg.autograd, "grad", demanding)
    with pytest.raises(
        GradcheckError,
        match=r"Expected backward function to handle undefined output grads.*both are needed",
    ):
        gradcheck(lambda x: (x * 2, x * 3), leaf(*X))


def test_inputs_without_tangent_count_as_zero(declare):
    def tangent(ts, xs, out):
        """Wrong where the second operand is constant."""
        if ts[1] is None:
            return ts[0] * xs[1] * 2
        return ts[1] * xs[0] + (0 if ts[0] is None else ts[0] * xs[1])

    @primitive(lambda x, y: x * y, lambda g, x, y: g * x, name="product", jvp=tangent)
    def product(g, y):
        """A product."""
        return g * y

    inputs = (leaf(*X), leaf(*X))
    assert gradcheck(product, inputs, check_forward_ad=True, check_undefined_grad=False)
    with pytest.raises(
        GradcheckError,
        match="Mismatch in tangent values for output 0 when input 1 has an undefined",
    ):
        gradcheck(product, inputs, check_forward_ad=True)


def test_batches_that_differ_from_rows_are_caught(monkeypatch):
    original = tg.autograd.grad

    def skewed(*args, **kwargs):
        found = original(*args, **kwargs)
        return tuple(g * 2 for g in found) if kwargs.get("is_grads_batched") else found

    monkeypatch.setattr(tg.autograd, "grad", skewed)
    assert gradcheck(np.sin, leaf(*X))
    with pytest.raises(
        GradcheckError, match="while testing batched gradient computation, for output 0 and input 0"
    ):
        gradcheck(np.sin, leaf(*X), check_batched_grad=True)


def test_gradients_of_another_dtype_or_shape_are_caught(monkeypatch):
    """What the tape never does, but a hand-written function may."""
    original = tg.autograd.grad
    monkeypatch.setattr(
        tg.autograd, "grad", lambda *a, **k: tuple(g.astype(np.float32) for g in original(*a, **k))
    )
    assert gradcheck(lambda x: x * 2, leaf(*X))
    with pytest.raises(
        GradcheckError, match="Gradient has dtype mismatch: float32 for an input of dtype float64"
    ):
        gradcheck(lambda x: x * 2, leaf(*X), check_grad_dtypes=True)
    monkeypatch.setattr(
        tg.autograd, "grad", lambda *a, **k: tuple(g.reshape(-1, 1) for g in original(*a, **k))
    )
    with pytest.raises(GradcheckError, match="Analytical gradient has incorrect size"):
        gradcheck(lambda x: x * 2, leaf(*X))


def test_fast_mode_says_when_slow_mode_would_pass():
    """Entries of either sign, each off by half of what rtol allows: their projections cancel, their errors do not."""
    slopes = np.where(np.arange(400) % 2, 1000.0, -1000.0)

    def slightly_wrong(x):
        return (x * slopes).sum() + 0.5 * (x - x.detach()).sum()

    x = tg.zeros(400, requires_grad=True)
    assert gradcheck(slightly_wrong, x)
    with pytest.raises(
        GradcheckError,
        match=r"element-wise differences are small: slow mode passes\. Pass fast_mode=False",
    ):
        gradcheck(slightly_wrong, x, fast_mode=True)


# ------------------------------------------------------------------------------------------------ the message


def test_message_shows_both_jacobians_and_the_place():
    def wrong(x, y):
        return x * y, tg.stack([x[0] * y[0, 0], x[1].detach() * x[1] * y[1, 0]])

    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, arguments((X, Y)))
    text = str(caught.value)
    assert "Jacobian mismatch for output 1 with respect to input 0,\nnumerical:\n[[" in text
    assert "analytical:\n[[ 1.     0.     0.   ]\n [ 0.    -0.375  0.   ]]" in text
    assert "1 of 6 entries differ by more than atol=1e-05 + rtol=0.001 * |numerical|" in text
    assert re.search(
        r"The largest difference is 0\.375, for output\[1\] by input\[1\]: numerical -0\.75\d*, analytical -0\.375\.",
        text,
    )


def test_message_of_fast_mode_shows_the_whole_jacobians():
    with pytest.raises(
        GradcheckError, match=r"analytical:\n\[\[[^)]*\]\][\s\S]*Found in fast mode"
    ):
        gradcheck(lambda x: x.detach() * x, leaf(*X), fast_mode=True)


def test_message_names_what_breaks_the_difference():
    with pytest.raises(GradcheckError, match=r"eps=1e-06 is lost in rounding.*Use a larger eps"):
        gradcheck(np.sin, leaf(1e12))
    with pytest.raises(GradcheckError, match="same shape and dtype when inputs are perturbed"):
        gradcheck(lambda x: x[: 2 if x[0].item() > 0.5 else 3], leaf(*X))


def test_steps_are_measured_as_taken():
    """At 1e6 a step of 1e-6 is rounded by a tenth of a thousandth: the quotient uses what remains of it."""
    assert gradcheck(lambda x: x * 1.0, leaf(1e6), rtol=1e-8)


# ------------------------------------------------------------------------------------------------ what is asked


def test_inputs_that_do_not_require_grad():
    with pytest.raises(
        ValueError,
        match="gradcheck expects at least one input tensor to require gradient, but none of them",
    ):
        gradcheck(np.sin, tg.tensor(X))
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(np.sin, np.array(X))


def test_single_precision_warns():
    with pytest.warns(
        UserWarning, match="Input #0 requires gradient and is not a double precision floating point"
    ) as record:
        gradcheck(lambda x: x * 2, leaf(*X, dtype=np.float32), eps=1e-2)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(GradcheckError, match="Input 0 is float32, too coarse for differences"):
            gradcheck(lambda x: np.exp(3 * x), leaf(*X, dtype=np.float32))


def test_memory_that_cannot_be_moved_one_at_a_time():
    spread = tg.as_tensor(np.broadcast_to(np.ones(1), (3,))).requires_grad_()
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(np.sin, spread)
    locked = np.ones(3)
    locked.flags.writeable = False
    with pytest.raises(RuntimeError, match="The 0th input is a read-only array"):
        gradcheck(np.sin, tg.as_tensor(locked).requires_grad_())


def test_nothing_to_check_with():
    x = leaf(*X)
    for settings in (
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ):
        with pytest.raises(AssertionError, match="Expected"):
            gradcheck(np.sin, x, **settings)
    for settings in (
        {"check_rev_over_rev": False},
        {"check_rev_over_rev": False, "check_fwd_over_rev": True},
    ):
        with pytest.raises(AssertionError, match="Expected"):
            gradgradcheck(np.sin, x, **settings)


def test_a_function_that_returns_nothing():
    with pytest.raises(TypeError, match=r"returned None\. Does it end with a return"):
        gradcheck(lambda x: None, leaf(*X))


def test_other_errors_are_not_swallowed():
    def broken(x):
        raise ZeroDivisionError("in the model")

    with pytest.raises(ZeroDivisionError, match="in the model"):
        gradcheck(broken, leaf(*X), raise_exception=False)


def test_where_it_is_reached():
    from tapegrad.autograd import gradcheck as by_package

    assert callable(by_package)
    assert issubclass(GradcheckError, RuntimeError)
    assert tg.GradcheckError is tg.autograd.GradcheckError is GradcheckError
