"""A checkpoint changes memory, never a number: every program gives with it what it gives without, under every transform.

Programs close over the differentiated value, get it as an argument, or both, and nest. Where a tangent of what is closed over
was lost, forward mode and second derivatives were wrong and reverse mode was right: hence every transform.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import forward_ad
from tapegrad.transforms.derivatives import _flatten

X, D = np.array([0.3, -0.2, 0.5]), np.array([1.0, 2.0, 3.0])


def both_ways(x, C, k):
    v = np.sin(x)
    return C(lambda c: np.tanh(x) * c + v[0])(v)


def of_trees(x, C, k):
    r = C(lambda t: {"a": t["u"] * x, "b": (np.sin(t["v"]),)})({"u": np.cos(x), "v": x * 2})
    return r["a"] * r["b"][0]


# fmt: off
PROGRAMS = {
    "closure":      lambda x, C, k: C(lambda c: np.tanh(x) + np.sin(x)[0] * c)(np.sin(x)),
    "both":         both_ways,
    "trees":        of_trees,
    "nested":       lambda x, C, k: C(lambda c: C(lambda d: d * np.exp(x) + c)(np.sin(c) * x))(x * x),
    "argument":     lambda x, C, k: C(np.sin)(x * x),
    "closure only": lambda x, C, k: x * C(lambda c: np.tanh(x))(1.0),
    "constant":     lambda x, C, k: x * C(lambda c: np.ones(3))(x),
    "keyword":      lambda x, C, k: C(lambda a, b=1.0: a * b + x[0])(x[1], b=2.0) * x,
    "scan":         lambda x, C, k: tg.scan(lambda c, s: (np.sin(c) * s + x, c * x[0]), x, np.arange(5.0), checkpoint=k)[1].sum(0),
    "fori_loop":    lambda x, C, k: tg.fori_loop(0, 5, lambda i, c: np.sin(c) + x * x, x, checkpoint=k),
    "while_loop":   lambda x, C, k: tg.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np.tanh(x * x) + c[1] * x[1]), (0, x), checkpoint=k)[1],
    "map":          lambda x, C, k: tg.map(lambda s: np.sin(s) * x, x, checkpoint=k),
    "loop inside":  lambda x, C, k: C(lambda c: tg.fori_loop(0, 3, lambda i, y: np.sin(y) * x + c, x, checkpoint=k))(x * x),
}
# fmt: on


def cubed(f):
    return lambda x: np.sum(f(x) ** 3)


def along(f):
    return lambda x: tg.jvp(f, (x,), (D,))[1]


def dual(f):
    with forward_ad.dual_level():
        y = f(forward_ad.make_dual(tg.tensor(X), tg.tensor(D)))
        return np.asarray(forward_ad.unpack_dual(y)[1].detach())


def three_calls(f):
    compiled = tg.compile(f)
    return compiled(X), compiled(X), compiled(X + 1)


TRANSFORMS = {
    "value": lambda f: f(X),
    "gradient": lambda f: tg.grad(cubed(f))(X),
    "tangent": lambda f: along(f)(X),
    "forward Jacobian": lambda f: tg.jacobian(f, mode="forward")(X),
    "reverse Jacobian": lambda f: tg.jacobian(f, mode="reverse")(X),
    "Hessian": lambda f: tg.hessian(cubed(f))(X),
    "product with a Hessian": lambda f: tg.hvp(cubed(f))(X, D),
    "reverse over forward": lambda f: tg.grad(lambda x: np.sum(along(f)(x) ** 2))(X),
    "forward over reverse": lambda f: tg.jvp(tg.grad(cubed(f)), (X,), (D,)),
    "forward over forward": lambda f: along(along(f))(X),
    "third": lambda f: tg.grad(lambda x: np.sum(tg.hvp(cubed(f))(x, D)))(X),
    "linearize": lambda f: tg.linearize(f, X)[1](D),
    "vmap": lambda f: tg.vmap(f)(np.stack([X, X + 1])),
    "gradient of vmap": lambda f: tg.grad(lambda xs: np.sum(tg.vmap(f)(xs) ** 2))(
        np.stack([X, X + 1])
    ),
    "dual numbers": dual,
    "compiled gradient": lambda f: three_calls(tg.grad(cubed(f))),
    "compiled Hessian": lambda f: three_calls(tg.hessian(cubed(f))),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_checkpoint_changes_no_number(name, transform):
    program, apply = PROGRAMS[name], TRANSFORMS[transform]
    plain = apply(lambda x: program(x, lambda f: f, False))
    kept = apply(lambda x: program(x, tg.checkpoint, 2))
    for expected, got in zip(_flatten(plain)[0], _flatten(kept)[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_rows_of_numbers_beside_constants_go_forward():
    """A stack of results, of which the first is a plain number, has a tangent that is zero there."""
    f = lambda x, w: tg.scan(lambda c, s: (np.sin(c) * s, c), w, x)[1]  # noqa: E731  said as a user says it
    x = np.ones(3)
    forward = tg.jacobian(f, mode="forward")(x, 2.0)
    np.testing.assert_allclose(forward, tg.jacobian(f, mode="reverse")(x, 2.0), rtol=1e-14)


def test_a_number_of_python_as_carry_keeps_single_precision():
    x = np.ones(3, np.float32)
    carry = [
        tg.scan(lambda c, s: (c + s, c), 0.5, x, checkpoint=c)[0].dtype for c in (False, True, 2)
    ]
    assert carry == [np.float32] * 3
    assert tg.checkpoint(lambda c, s: c * s)(0.5, x).dtype == np.float32


LAID = {
    "checkpoint": lambda x: tg.checkpoint(np.sin)(x.T * 1.0),
    "loop": lambda x: tg.fori_loop(0, 3, lambda i, c: c * 1.5, x.T * 1.0, checkpoint=2),
    "scan": lambda x: tg.scan(lambda c, i: (np.sin(c) * i, c), x.T * 1.0, np.arange(1.0, 4.0), checkpoint=2)[0],
}  # fmt: skip


@pytest.mark.parametrize("made", LAID.values(), ids=LAID)
def test_results_lie_in_memory_as_the_functions_do(made):
    """Whether a reshape of a result shares its memory is told by a store into the reshape."""

    def f(x):
        owner = made(x)
        owner.reshape(-1)[1] = 7.0
        owner.T.reshape(-1)[2] = 9.0
        return owner

    x = np.arange(12.0).reshape(4, 3) / 7
    np.testing.assert_array_equal(tg.jvp(f, (x,), (x,))[0], f(x))
    np.testing.assert_allclose(
        tg.value_and_grad(lambda x: np.sum(f(x)))(x)[0], np.sum(f(x)), rtol=1e-14
    )
