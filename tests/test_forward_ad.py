"""`autograd.forward_ad`, as expectations that PyTorch itself meets, and the law that dual tensors obey for every op.

`TAPEGRAD_SUITE=torch pytest tests/test_forward_ad.py` runs the same file on PyTorch, in float64.
"""

from __future__ import annotations

import importlib
import operator
import threading

import numpy as np
import pytest

from tests.seeds import seeds
from tests.suite import HERE, SUITE, differs, leaf, plain, tg

fwAD = importlib.import_module(f"{SUITE}.autograd.forward_ad")
grad = tg.autograd.grad

# PyTorch compiles some of its own forward rules, and warns that it should not.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

only_here = pytest.mark.skipif(not HERE, reason="about tapegrad's own functions")


def equal(t, expected):
    assert t is not None, f"no tangent, expected {expected}"
    np.testing.assert_allclose(np.array(t.tolist()), np.asarray(expected), rtol=1e-12, atol=1e-14)


def dual(value, tangent, requires_grad=False):
    t = tg.tensor(value, requires_grad=requires_grad)
    return fwAD.make_dual(t, tg.tensor(tangent))


@pytest.fixture
def level():
    with fwAD.dual_level() as number:
        yield number


# ------------------------------------------------------------------------------------------------ tangents
#
# name, function, value, tangent, tangent of the result.

X, V = [1.0, 2.0], [3.0, 4.0]
M = [[1.0, 2.0], [3.0, 5.0]]
EYE = [[1.0, 0.0], [0.0, 1.0]]

TANGENTS = [
    ("product", lambda x: x * x, X, V, [6.0, 16.0]),
    ("quotient", lambda x: 1 / x, X, V, [-3.0, -1.0]),
    ("reflected numbers", lambda x: 2.0 * (1.0 - x) / 4.0 + (3.0 + x), X, V, [1.5, 2.0]),
    ("powers", lambda x: x**2 + 2.0**x, X, V, [6 + 6 * np.log(2), 16 + 16 * np.log(2)]),
    ("constants beside", lambda x: plain(2.0, 3.0) * x + x * plain(1.0, 1.0), X, V, [9.0, 16.0]),
    ("chain", lambda x: tg.exp(tg.sin(x)), 0.5, 2.0, 2 * np.cos(0.5) * np.exp(np.sin(0.5))),
    ("sum", lambda x: x.sum(), X, V, 7.0),
    ("mean over an axis", lambda x: x.mean(axis=0), M, M, [2.0, 3.5]),
    ("prod", lambda x: x.prod(), X, V, 10.0),
    ("max", lambda x: x.max(), X, V, 4.0),
    ("var", lambda x: x.var(correction=0), X, V, 0.5),
    ("cumsum", lambda x: x.cumsum(axis=0), X, V, [3.0, 7.0]),
    ("matrix products", lambda x: x @ x, M, EYE, [[2.0, 4.0], [6.0, 10.0]]),
    ("matrix @ vector", lambda x: x @ plain(1.0, 1.0), M, M, [3.0, 8.0]),
    ("transpose", lambda x: x.T, M, [[1.0, 2.0], [3.0, 4.0]], [[1.0, 3.0], [2.0, 4.0]]),
    ("reshape", lambda x: x.reshape(4), M, M, [1.0, 2.0, 3.0, 5.0]),
    ("entry", lambda x: x[1] * x[0], X, V, 10.0),
    ("slice", lambda x: x[1:], X, V, [4.0]),
    ("fancy", lambda x: x[[1, 1, 0]], X, V, [4.0, 4.0, 3.0]),
    ("mask", lambda x: x[x > 1.5], X, V, [4.0]),
    ("iteration", lambda x: sum(e * e for e in x), X, V, 22.0),
    ("stack", lambda x: tg.stack([x, 2 * x]), X, V, [[3.0, 4.0], [6.0, 8.0]]),
    ("cat", lambda x: tg.cat([x, plain(5.0, 6.0)]), X, V, [3.0, 4.0, 0.0, 0.0]),
    ("where", lambda x: tg.where(x > 1.5, x, -x), X, V, [-3.0, 4.0]),
    ("clamp", lambda x: x.clamp(0.0, 1.5), X, V, [3.0, 0.0]),
    ("maximum", lambda x: tg.maximum(x, plain(1.5, 1.5)), X, V, [0.0, 4.0]),
    ("broadcast", lambda x: x + plain([[1.0], [2.0]]), X, V, [V, V]),
    ("inverse", tg.linalg.inv, M, EYE, [[-31.0, 12.0], [18.0, -7.0]]),
    ("solve", lambda x: tg.linalg.solve(x, plain(1.0, 1.0)), M, EYE, [-19.0, 11.0]),
    ("determinant", tg.linalg.det, M, EYE, 6.0),
    ("eigenvalues", lambda x: tg.linalg.eigvalsh(x + x.T), M, EYE, [2.0, 2.0]),
    ("norm", tg.linalg.norm, [3.0, 4.0], [1.0, 2.0], 2.2),
    ("complex", lambda z: z * z, 1 + 2j, 1j, 2j * (1 + 2j)),
    ("absolute value of a complex", lambda z: z.abs(), 3 + 4j, 1j, 0.8),
    ("clone", lambda x: x.clone(), X, V, V),
    ("kink", abs, [-1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]),
    ("in place", lambda x: operator.imul(x * 1, 2), X, V, [6.0, 8.0]),
    ("in place by a dual", lambda x: operator.iadd(tg.zeros(2), x), X, V, V),
    ("stored into a buffer", lambda x: (lambda b: (operator.setitem(b, 0, x[1]), b)[1])(tg.zeros(2)), X, V, [4.0, 0.0]),
    ("overwritten by a number", lambda x: (lambda b: (operator.setitem(b, 0, 5.0), b)[1])(x * 1), X, V, [0.0, 4.0]),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["plain", "requires grad", "no_grad"])
@pytest.mark.parametrize(
    ("function", "x", "v", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TANGENTS]
)
def test_tangent(level, function, x, v, expected, mode):
    """Value and tangent of a result, in every grad mode; whether it requires grad is another matter."""
    with tg.set_grad_enabled(mode != "no_grad"):
        t = tg.tensor(x, requires_grad=mode != "plain")
        result = function(fwAD.make_dual(t, tg.tensor(v)))
        value, tangent = fwAD.unpack_dual(result)
        equal(value, function(tg.tensor(x)).tolist())
        equal(tangent, expected)
        assert tangent.shape == value.shape
        if HERE or mode != "no_grad":  # PyTorch's views of duals require grad even then
            assert result.requires_grad == (mode == "requires grad")
        assert fwAD.unpack_dual(value).tangent is None


def test_two_operands_with_tangents(level):
    x, y = dual(2.0, 1.0), dual(3.0, 10.0)
    equal(fwAD.unpack_dual(x * y + x).tangent, 24.0)


def test_loops_and_branches(level):
    x = dual(3.0, 1.0)
    y = x
    while y < 100:
        y = y * x if y < 20 else y + x
    equal(fwAD.unpack_dual(y).tangent, 52.0)


# ------------------------------------------------------------------------------------------------ levels


def test_outside_a_level():
    assert fwAD.unpack_dual(plain(1.0)).tangent is None
    with pytest.raises(RuntimeError, match="no level exists, make sure to enter_dual_level"):
        fwAD.make_dual(plain(1.0), plain(1.0))


def test_tangents_end_with_their_level():
    with fwAD.dual_level() as number:
        assert number == 0
        x = dual(X, V)
        y = x * x
        assert fwAD.unpack_dual(y).tangent is not None
    assert fwAD.unpack_dual(y).tangent is None
    assert "tangent" not in repr(y)
    with fwAD.dual_level():
        assert fwAD.unpack_dual(y * x).tangent is None
        z = fwAD.make_dual(y, plain(1.0, 1.0))
        equal(fwAD.unpack_dual(z * z).tangent, [2.0, 8.0])
    equal(y * x, [1.0, 8.0])


def test_entered_by_hand():
    number = fwAD.enter_dual_level()
    equal(fwAD.unpack_dual(dual(2.0, 1.0), level=number).tangent, 1.0)
    fwAD.exit_dual_level(level=number)
    number = fwAD.enter_dual_level()
    fwAD.exit_dual_level()
    assert number == 0


def test_as_a_decorator():
    @fwAD.dual_level()
    def slope(x):
        return fwAD.unpack_dual(dual(x, 1.0) ** 3).tangent

    equal(slope(2.0), 12.0)
    assert fwAD.unpack_dual(plain(1.0)).tangent is None


def test_a_level_ends_when_an_error_leaves_it():
    with pytest.raises(KeyError):
        with fwAD.dual_level():
            raise KeyError
    with fwAD.dual_level():
        pass


def exit_another():
    number = fwAD.enter_dual_level()
    try:
        fwAD.exit_dual_level(level=number + 1)
    finally:
        fwAD.exit_dual_level(level=number)


ERRORS = [
    ("nested", fwAD.enter_dual_level, RuntimeError, "Nested forward mode AD is not supported at the moment"),
    ("twice", lambda: fwAD.make_dual(dual(X, V), plain(V)), RuntimeError, "already has a forward gradient at the same level 0 is not supported"),
    ("a dual tangent", lambda: fwAD.make_dual(plain(X), dual(V, X)), RuntimeError, "that itself has a forward gradient at the same level ?0 is not supported"),
    ("another shape", lambda: dual(X, [1.0]), RuntimeError, r"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size \[2\] while the given forward gradient is of size \[1\]"),
    ("integers", lambda: dual([1, 2], V), ValueError, "Expected primal to be floating point or complex, but got"),
    ("integer tangent", lambda: dual(X, [1, 2]), ValueError, "Expected tangent to be floating point or complex, but got"),
    ("level of another number", lambda: fwAD.make_dual(plain(X), plain(V), level=3), RuntimeError, "Invalid level given to"),
    ("unpacked at another level", lambda: fwAD.unpack_dual(dual(X, V), level=3), RuntimeError, "Invalid level given to"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "message"), [pytest.param(*row[1:], id=row[0]) for row in ERRORS]
)
def test_errors(level, call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_exit_errors():
    with pytest.raises(
        RuntimeError, match="Trying to exit a forward AD level that was not the last"
    ):
        exit_another()
    with pytest.raises(RuntimeError):
        fwAD.exit_dual_level()


@differs("a level belongs to the process")
def test_threads_have_levels_of_their_own():
    found = []

    def job(i):
        for _ in range(50):
            with fwAD.dual_level():
                found.append(fwAD.unpack_dual(dual(2.0, float(i)) ** 2).tangent.item() == 4.0 * i)

    threads = [threading.Thread(target=job, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert all(found)


# ------------------------------------------------------------------------------------------------ what a dual tensor is


def test_the_tangent_is_the_one_given(level):
    v = plain(V)
    assert fwAD.unpack_dual(fwAD.make_dual(plain(X), v)).tangent is v


def test_a_dual_tensor_shares_memory(level):
    x = plain(X)
    d = fwAD.make_dual(x, plain(V))
    with tg.no_grad():
        x[0] = 7.0
    equal(d, [7.0, 2.0])


def test_requires_grad_is_what_it_always_is(level):
    assert not dual(X, V).requires_grad
    assert dual(X, V).is_leaf
    d = dual(X, V, requires_grad=True)
    assert d.requires_grad
    assert not d.is_leaf
    assert not (dual(X, V) * 2).requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        dual(1.0, 1.0).backward()


def test_printing(level):
    assert repr(dual(X, V)) == "tensor([1., 2.], tangent=tensor([3., 4.]))"


def test_unpacking_gives_a_named_tuple(level):
    unpacked = fwAD.unpack_dual(dual(X, V))
    assert isinstance(unpacked, fwAD.UnpackedDualTensor)
    assert unpacked.primal is unpacked[0]
    assert unpacked.tangent is unpacked[1]
    assert fwAD.UnpackedDualTensor._fields == ("primal", "tangent")


def test_what_has_no_tangent(level):
    """Comparisons, detached values, what was made under inference_mode, and what a constant is made of."""
    d = dual(X, V)
    with tg.inference_mode():
        inferred = d * d
    for t in (d > 1, d.detach(), inferred, plain(X) * 2, tg.zeros_like(d)):
        assert fwAD.unpack_dual(t).tangent is None


def test_detaching_in_place_drops_the_tangent(level):
    """Tracked or not; what `make_dual` made is a view, which refuses."""
    for made in (dual(X, V).clone(), fwAD.make_dual(leaf(*X), plain(V)) * 1.0):
        assert made.detach_() is made
        assert fwAD.unpack_dual(made * 2).tangent is None
        assert not made.requires_grad


def test_memory_may_be_read(level):
    d = dual(X, V)
    assert d.tolist() == X
    assert d[0].item() == 1.0
    assert d.detach().numpy().tolist() == X


@differs("the value is handed out, and the tangent is lost")
@pytest.mark.parametrize("leave", [np.asarray, lambda d: float(d[0])])
def test_a_tangent_is_not_lost_without_a_word(level, leave):
    with pytest.raises(TypeError, match="lose its tangent"):
        leave(dual(X, V))


@differs("it is kept as it is")
def test_a_tangent_has_the_dtype_of_its_value(level):
    d = fwAD.make_dual(plain(X), tg.ones(2, dtype=tg.float32))
    assert fwAD.unpack_dual(d).tangent.dtype == tg.float64


# ------------------------------------------------------------------------------------------------ with the reverse mode


def test_the_tangent_can_be_differentiated_by_the_value(level):
    """d/dx of the derivative along v: reverse over forward."""
    x = leaf(*X)
    y = (fwAD.make_dual(x, plain(V)) ** 3).sum()
    value, tangent = fwAD.unpack_dual(y)
    assert value.requires_grad
    assert tangent.requires_grad
    tangent.backward(retain_graph=True)
    equal(x.grad, [18.0, 48.0])
    x.grad = None
    value.backward()
    equal(x.grad, [3.0, 12.0])


def test_the_tangent_can_be_differentiated_by_the_tangent(level):
    v = leaf(*V)
    y = fwAD.make_dual(plain(X), v) ** 2
    value, tangent = fwAD.unpack_dual(y.sum())
    assert not value.requires_grad
    tangent.backward()
    equal(v.grad, [2.0, 4.0])


WRONG = differs(
    "the derivative of the tangent by the value is wrong where the tangent is made from the result"
)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("by", ["the dual", "the leaf"])
def test_a_gradient_of_duals_has_a_tangent(level, by, create_graph):
    """Forward over reverse: H v."""
    x = leaf(*X)
    d = fwAD.make_dual(x, plain(V))
    y = (d[0] ** 2 * d[1]).sum()
    (g,) = grad(y, d if by == "the dual" else x, create_graph=create_graph)
    equal(g, [4.0, 1.0])
    value, tangent = fwAD.unpack_dual(g)
    equal(tangent, [2 * 2 * 3 + 2 * 1 * 4, 2 * 1 * 3])
    assert tangent.requires_grad == create_graph
    if create_graph:
        tangent[1].backward()
        equal(x.grad, [6.0, 0.0])


def test_a_gradient_by_what_is_beside_a_dual_has_a_tangent(level):
    """d²/dwdx: the dual itself does not require grad."""
    w, d = leaf(5.0, 6.0), dual(X, V)
    (g,) = grad((w * d * d).sum(), w)
    equal(g, [1.0, 4.0])
    equal(fwAD.unpack_dual(g).tangent, [6.0, 16.0])


def test_a_cotangent_may_have_a_tangent(level):
    x = leaf(*X)
    (g,) = grad(x * x, x, dual([1.0, 1.0], V))
    equal(fwAD.unpack_dual(g).tangent, [6.0, 16.0])


def test_accumulated_gradients_have_no_tangent(level):
    w, d = leaf(5.0, 6.0), dual(X, V)
    (w * d).sum().backward()
    equal(w.grad, X)
    assert fwAD.unpack_dual(w.grad).tangent is None


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(tg.exp, id="exp"),
        pytest.param(tg.linalg.inv, id="inv"),
        pytest.param(lambda a: tg.linalg.solve(a, plain(1.0, 1.0)), id="solve", marks=WRONG),
        pytest.param(lambda a: (a @ a).sum(axis=0).prod(), id="prod"),
        pytest.param(tg.linalg.det, id="det", marks=WRONG),
    ],
)
def test_both_orders_agree(level, function):
    """The derivative of the tangent, the tangent of the derivative, and the product with the Hessian."""
    x, v = leaf(M), plain([[0.5, -1.0], [2.0, 1.0]])
    tangent = fwAD.unpack_dual(function(fwAD.make_dual(x, v)).sum()).tangent
    (reverse,) = grad(tangent, x)
    d = fwAD.make_dual(x, v)
    (g,) = grad(function(d).sum(), d, create_graph=True)
    product = tg.autograd.functional.hvp(lambda x: function(x).sum(), x.detach(), v)[1]
    equal(fwAD.unpack_dual(g).tangent, product.tolist())
    equal(fwAD.unpack_dual(g).tangent, reverse.tolist())


def test_a_long_walk_over_duals(level):
    """More entries than the sweep is left alone with: walks over dual tensors never go to compiled code."""
    x = leaf(1.0)
    d = fwAD.make_dual(x, plain(1.0))
    y = d
    for _ in range(300):
        y = y * 1.001
    (g,) = grad(y * y, x)
    equal(fwAD.unpack_dual(g).tangent, 2 * 1.001**600)


# ------------------------------------------------------------------- as PyTorch's documentation explains it


def test_basic_usage():
    """The forward-mode tutorial: a function of two inputs, one of them dual."""
    primal, tangent = tg.randn(10, 10), tg.randn(10, 10)

    def fn(x, y):
        return x**2 + y**2

    with fwAD.dual_level():
        dual_input = fwAD.make_dual(primal, tangent)
        assert fwAD.unpack_dual(dual_input).tangent is tangent
        plain_tensor = tg.randn(10, 10)
        dual_output = fn(dual_input, plain_tensor)
        jvp = fwAD.unpack_dual(dual_output).tangent
        np.testing.assert_allclose(jvp.numpy(), 2 * primal.numpy() * tangent.numpy())
    assert fwAD.unpack_dual(dual_output).tangent is None


def test_a_layer_of_parameters():
    """The tutorial's second part: parameters become dual, and plain again behind the level."""
    weight, bias, x = (
        tg.randn(5, 5, requires_grad=True),
        tg.randn(5, requires_grad=True),
        tg.randn(16, 5),
    )
    tangents = {"weight": tg.randn(5, 5), "bias": tg.randn(5)}
    with fwAD.dual_level():
        w, b = (fwAD.make_dual(p, tangents[n]) for n, p in (("weight", weight), ("bias", bias)))
        out = tg.tanh(x @ w.T + b)
        jvp = fwAD.unpack_dual(out).tangent
    h = np.tanh(x.numpy() @ weight.detach().numpy().T + bias.detach().numpy())
    expected = (1 - h * h) * (x.numpy() @ tangents["weight"].numpy().T + tangents["bias"].numpy())
    np.testing.assert_allclose(jvp.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------ every op, and transforms

if HERE:
    from tapegrad.check.laws import record
    from tapegrad.check.samples import samples_of
    from tapegrad.core import dual as duals
    from tapegrad.core.primitive import OPS

    DECLARED = OPS[1:]  # other tests declare more


@pytest.mark.long
@only_here
@pytest.mark.parametrize("tracked", [False, True])
def test_every_op_carries_the_tangent_of_the_tape(tracked, level):
    """The tangent that travels with the value is the one carried up the tape afterwards."""
    for sample in (sample for op in DECLARED for sample in samples_of(op)):
        if tracked and "second" in sample.op.unsupported:
            continue
        recorded = record(sample)
        given = [sample.drawn(x) for x in sample.variables]
        expected = recorded.push(given)
        tangents = iter(given)
        operands = []
        for x, varies in zip(sample.operands, sample.tracked, strict=True):
            if varies:
                t = tg.tensor(x)
                t.requires_grad_(tracked)
                x = fwAD.make_dual(t, tg.tensor(next(tangents)))
            operands.append(x)
        result = sample(*operands)
        tangent = fwAD.unpack_dual(result).tangent
        assert tangent is not None, sample
        assert tangent.dtype == result.dtype, sample
        assert result.requires_grad == tracked, sample
        # In single precision the two may sum in another order.
        bound = 1e-10 if np.finfo(tangent.dtype).eps < 1e-10 else 1e-6
        np.testing.assert_allclose(
            tangent.detach().numpy(), expected, rtol=bound, atol=bound, err_msg=str(sample)
        )


@only_here
def test_transforms_of_dual_tensors(level):
    """A transform inside a level differentiates, and its results carry the tangents of what went in or was closed over."""
    d, w = dual(X, V), plain(5.0, 6.0)
    cases = [
        (tg.grad(lambda t: (t**3).sum())(d), [18.0, 48.0]),
        (tg.grad(lambda t: (t * d * d).sum())(w), [6.0, 16.0]),
        (tg.value_and_grad(lambda t: (t**3).sum())(d)[0], 57.0),
        (tg.jvp(lambda t: t**3, (d,), (plain(1.0, 1.0),))[1], [18.0, 48.0]),
        (tg.jvp(lambda t: t**3, (plain(X),), (d,))[1], [9.0, 48.0]),
        (tg.vjp(lambda t: t**2, plain(X))[1](d)[0], [6.0, 16.0]),
        (tg.jacobian(lambda t: t**3)(d), np.diag([18.0, 48.0])),
        (tg.hvp(lambda t: (t**3).sum())(d, plain(1.0, 1.0)), [18.0, 24.0]),
    ]
    for result, expected in cases:
        equal(fwAD.unpack_dual(result).tangent, expected)


@only_here
def test_nothing_is_kept_behind_a_level():
    with fwAD.dual_level():
        d = dual(X, V, requires_grad=True)
        y = (d * d).sum()
        assert duals.saved
    assert not duals.saved
    y.backward()


@only_here
def test_numpys_functions_carry_tangents(level):
    d = dual(X, V)
    for result, expected in (
        (np.sin(d), np.cos(X) * np.array(V)),
        (np.add.reduce(d), 7.0),
        (np.array(X) * d, [3.0, 8.0]),
        (np.float64(2.0) - d, [-3.0, -4.0]),
        (np.sort(d), V),
        (np.stack([d, d])[1], V),
    ):
        equal(fwAD.unpack_dual(result).tangent, expected)
    with tg.no_grad():
        equal(fwAD.unpack_dual(np.percentile(d, 50)).tangent, 3.5)
        with pytest.raises(TypeError, match="no derivative rule|tracked tensor"):
            np.histogram_bin_edges(d)


# ------------------------------------------------------------------------------------------------ in place, and views


def test_writes_reach_all_views(level):
    """A write through a dual tensor, its base or a view of it changes the tangents of all three."""
    base = tg.zeros(2, 2)
    row, column = base[0], base.T[1]
    row += dual(X, V)
    equal(fwAD.unpack_dual(base).tangent, [V, [0.0, 0.0]])
    equal(fwAD.unpack_dual(column).tangent, [4.0, 0.0])
    column[1] = dual(5.0, 6.0)
    equal(base, [X, [0.0, 5.0]])
    equal(fwAD.unpack_dual(base).tangent, [V, [0.0, 6.0]])
    base *= 2
    equal(fwAD.unpack_dual(row).tangent, [6.0, 8.0])
    equal(fwAD.unpack_dual(column).tangent, [8.0, 12.0])
    base[0] = 1.0
    equal(fwAD.unpack_dual(row).tangent, [0.0, 0.0])
    equal(fwAD.unpack_dual(column).tangent, [0.0, 12.0])


def test_writes_to_views_of_a_dual_tensor(level):
    """What make_dual was given stays without a tangent; the dual tensor and its views share theirs."""
    p = tg.tensor([1.0, 2.0, 3.0])
    d = fwAD.make_dual(p, tg.ones(3))
    v = d[:2]
    v.mul_(3)
    equal(fwAD.unpack_dual(d).tangent, [3.0, 3.0, 1.0])
    equal(fwAD.unpack_dual(v).tangent, [3.0, 3.0])
    v[1:][0] = 7.0
    equal(fwAD.unpack_dual(d).tangent, [3.0, 0.0, 1.0])
    equal(d, [3.0, 7.0, 3.0])
    assert fwAD.unpack_dual(p).tangent is None
    equal(p, [3.0, 7.0, 3.0])
    other = fwAD.make_dual(p, 5 * tg.ones(3))
    d.mul_(2)
    equal(fwAD.unpack_dual(other).tangent, [5.0, 5.0, 5.0])


def written_at_random(seed, x, other):
    """A program of views and writes, in the words that tensors and arrays share."""
    rng = np.random.default_rng(seed)
    arrays = [x, other * 2 - x]
    for _ in range(12):
        a, b = (arrays[i] for i in rng.integers(len(arrays), size=2))
        kind = rng.integers(8)
        if kind == 0:
            arrays.append(a[1:] if len(a) > 2 else a[:])
        elif kind == 1:
            arrays.append(a.T if len(a) == 4 and rng.integers(2) else a[::-1])
        elif kind == 2:
            arrays.append(a * b[0])
        elif kind == 3:
            a *= rng.integers(1, 3) / 2
        elif kind == 4:
            a += (b * 1)[0] * 0.5
        elif kind == 5:
            a[int(rng.integers(len(a)))] = rng.normal()
        elif kind == 6:
            a[0] = b[-1] * a[-1]
        else:
            a[1:] = (a[:-1] - b[1]) * 0.75
    return arrays


@only_here
@pytest.mark.parametrize("seed", seeds(range(60), 10))
def test_random_writes_carry_tangents(seed, level):
    """Against NumPy at x + i h v, whose imaginary part is h times the tangent."""
    rng = np.random.default_rng(1000 + seed)
    x, other, v = rng.normal(size=(3, 4, 4))
    expected = written_at_random(seed, x + 1e-30j * v, other.astype(complex))
    primal = tg.tensor(x)
    found = written_at_random(seed, fwAD.make_dual(primal, tg.tensor(v)), tg.tensor(other))
    assert fwAD.unpack_dual(primal).tangent is None
    for t, z in zip(found, expected, strict=True):
        value, tangent = fwAD.unpack_dual(t)
        np.testing.assert_allclose(value.numpy(), z.real, rtol=1e-12, atol=1e-12)
        slope = np.zeros(t.shape) if tangent is None else tangent.numpy()
        np.testing.assert_allclose(slope, z.imag / 1e-30, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda t, d: t.mul_(3), [9.0, 12.0], id="mul_"),
        pytest.param(lambda t, d: t.add_(d, alpha=2), [9.0, 12.0], id="add_"),
        pytest.param(lambda t, d: t.copy_(2 * d), [6.0, 8.0], id="copy_"),
        pytest.param(lambda t, d: t.zero_(), [0.0, 0.0], id="zero_"),
        pytest.param(lambda t, d: t.clamp_(0.0, 1.5), [3.0, 0.0], id="clamp_"),
        pytest.param(lambda t, d: t.pow_(2), [6.0, 16.0], id="pow_"),
        pytest.param(
            lambda t, d: t.index_add_(0, tg.tensor([1]), d[:1]), [3.0, 7.0], id="index_add_"
        ),
        pytest.param(lambda t, d: t.masked_fill_(t > 1, 0.0), [3.0, 0.0], id="masked_fill_"),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_in_place_methods(level, change, expected, recorded):
    d = dual(X, V, requires_grad=recorded)
    t = d * 1
    same_memory = t[:]
    assert change(t, d) is t
    equal(fwAD.unpack_dual(t).tangent, expected)
    equal(fwAD.unpack_dual(same_memory).tangent, expected)
    assert t.requires_grad == recorded


def test_in_place_in_a_loop(level):
    """A buffer, filled step by step: the recurrence's derivative by its first value, and its gradient beside."""
    x = leaf(2.0)
    d = fwAD.make_dual(x, plain(1.0))
    buffer = tg.zeros(5)
    buffer[0] = d
    for i in range(1, 5):
        buffer[i] = buffer[i - 1].clone() * d
    equal(fwAD.unpack_dual(buffer).tangent, [1.0, 4.0, 12.0, 32.0, 80.0])
    (g,) = grad(buffer.sum(), x)
    equal(g, 129.0)
    equal(fwAD.unpack_dual(g).tangent, 2 + 12 + 48 + 160)


# ------------------------------------------------------------------------------------------------ functions of one's own


class Cube(tg.autograd.Function):
    """x³, whose jvp says twice what it should, so that its use shows."""

    @staticmethod
    def forward(ctx, x):
        assert fwAD.unpack_dual(x).tangent is None
        y = x**3
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * 3 * x**2 * t


class Pair(tg.autograd.Function):
    """Sum and product, without a jvp."""

    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return (x + y) * factor, x * y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * ctx.factor + h * y, g * ctx.factor + h * x, None


@pytest.mark.parametrize("mode", ["plain", "requires grad", "no_grad"])
def test_a_function_with_a_jvp(level, mode):
    with tg.set_grad_enabled(mode != "no_grad"):
        y = Cube.apply(dual(X, V, requires_grad=mode != "plain"))
        equal(y, [1.0, 8.0])
        equal(fwAD.unpack_dual(y).tangent, [18.0, 96.0])


def test_a_function_with_a_jvp_and_the_reverse_mode(level):
    x = leaf(*X)
    d = fwAD.make_dual(x, plain(V))
    y = Cube.apply(d)
    equal(grad(y.sum(), x, retain_graph=True)[0], [3.0, 12.0])
    (g,) = grad(y.sum(), x, create_graph=True)
    equal(g, [3.0, 12.0])
    equal(fwAD.unpack_dual(g).tangent, [18.0, 48.0])
    equal(grad(fwAD.unpack_dual(y).tangent.sum(), x)[0], [36.0, 96.0])


@differs("a Function without a jvp has no forward mode")
@pytest.mark.parametrize("recorded", [False, True])
def test_a_function_without_a_jvp(level, recorded):
    """Its backward, transposed."""
    x = tg.tensor(X, requires_grad=recorded)
    d = fwAD.make_dual(x, plain(V))
    total, product = Pair.apply(d, plain(5.0, 6.0), 10.0)
    equal(fwAD.unpack_dual(total).tangent, [30.0, 40.0])
    equal(fwAD.unpack_dual(product).tangent, [15.0, 24.0])
    _, square = Pair.apply(d, d, 1.0)
    equal(fwAD.unpack_dual(square).tangent, [6.0, 16.0])
    if recorded:
        equal(grad(fwAD.unpack_dual(square).tangent.sum(), x)[0], [6.0, 8.0])


@only_here
def test_settings_and_plain_targets_are_refused(level):
    """Where a tangent would be lost, as a gradient would."""
    for refused in (
        lambda: tg.special.jv(dual(1.0, 1.0), 2.0),
        lambda: np.put(np.zeros(2), [0], dual(1.0, 1.0)),
        lambda: np.sin(dual(X, V), out=np.zeros(2)),
    ):
        with pytest.raises(TypeError):
            refused()
        with tg.no_grad(), pytest.raises(TypeError):
            refused()
