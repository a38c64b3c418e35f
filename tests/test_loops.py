"""scan, map, fori_loop, while_loop, cond, switch, associative_scan: what the same loop in Python gives, to any order, compiled or not."""

from __future__ import annotations

import itertools
import operator
import tracemalloc

import numpy as np
import optree
import pytest

import tapegrad as tg
from tapegrad.errors import GraphError

X = np.array([0.3, 1.2, 0.7, 1.1])
W = np.array([[0.2, -0.5], [0.7, 0.1]])
CHECKPOINTS = (False, 1, 3, True)


def recurrent(w, xs, checkpoint=False):
    """A carry of two leaves, results of two leaves, weights that the step closes over."""

    def step(carry, x):
        h, k = carry
        h = np.tanh(w @ h + x)
        return (h, k + np.sum(h)), {"h": h, "k": k}

    (h, k), ys = tg.scan(step, (np.ones(2), 0.0), xs, checkpoint=checkpoint)
    return np.sum(h) * k + np.sum(ys["h"] ** 2) + ys["k"][-1]


def recurrent_in_python(w, xs):
    h, k, total = np.ones(2), 0.0, 0.0
    for x in xs:
        last = k
        h = np.tanh(w @ h + x)
        k = k + np.sum(h)
        total = total + np.sum(h**2)
    return np.sum(h) * k + total + last


XS = np.sin(np.arange(20.0)).reshape(10, 2)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_scan_is_the_loop(checkpoint):
    def f(w, xs):
        return recurrent(w, xs, checkpoint)

    value, gradients = tg.value_and_grad(f, argnums=(0, 1))(W, XS)
    expected, theirs = tg.value_and_grad(recurrent_in_python, argnums=(0, 1))(W, XS)
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    for g, e in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_compiled(checkpoint):
    f = tg.value_and_grad(lambda w, xs: recurrent(w, xs, checkpoint), argnums=(0, 1))
    c = tg.compile(f)
    for k in range(1, 4):
        got, expected = c(W * k, XS / k), f(W * k, XS / k)
        for g, e in zip((got[0], *got[1]), (expected[0], *expected[1]), strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11)


def test_backward_reaches_what_a_checkpointed_step_closes_over():
    grads = []
    for checkpoint in CHECKPOINTS:
        w, b = tg.tensor(W, requires_grad=True), tg.tensor(X[:2], requires_grad=True)
        inner = w * 2 + b  # not a leaf, and depends on both
        h = tg.fori_loop(
            0, 7, lambda i, h: np.tanh(inner @ h + b * i), b + 1, checkpoint=checkpoint
        )
        h.sum().backward()
        grads.append((w.grad.numpy(), b.grad.numpy()))
    for w, b in grads[1:]:
        np.testing.assert_allclose(w, grads[0][0], rtol=1e-12)
        np.testing.assert_allclose(b, grads[0][1], rtol=1e-12)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_higher_orders_and_forward_mode(checkpoint):
    def f(x):
        return np.sum(
            tg.fori_loop(0, 6, lambda i, v: np.sin(v) * (1.1 + i), x, checkpoint=checkpoint)
        )

    def plain(x):
        for i in range(6):
            x = np.sin(x) * (1.1 + i)
        return np.sum(x)

    np.testing.assert_allclose(tg.hessian(f)(X), tg.hessian(plain)(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tg.hvp(f)(X, X), tg.hessian(plain)(X) @ X, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], tg.grad(plain)(X) @ X, rtol=1e-10)
    with tg.autograd.forward_ad.dual_level():
        dual = tg.autograd.forward_ad.make_dual(tg.tensor(X), tg.tensor(X))
        tangent = tg.autograd.forward_ad.unpack_dual(f(dual)).tangent
    np.testing.assert_allclose(tangent.numpy(), tg.grad(plain)(X) @ X, rtol=1e-10)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_higher_derivatives_through_closures(checkpoint):
    """What the steps close over may be what they carry, too; polynomials and complex steps say what is right."""

    def f(a):
        return tg.fori_loop(0, 4, lambda i, v: v * a, a, checkpoint=checkpoint)

    third = tg.grad(tg.grad(tg.grad(f)))
    assert (tg.grad(f)(2.0), tg.grad(tg.grad(f))(2.0), third(2.0)) == (
        5 * 2.0**4,
        20 * 2.0**3,
        60 * 2.0**2,
    )

    def energy(w):
        (h, _), ys = tg.scan(
            lambda c, x: ((np.tanh(w @ c[0]) * x, c[1] + 1), np.sum(w * c[0])),
            (w[0], 0),
            X,
            checkpoint=checkpoint,
        )
        last = tg.while_loop(
            lambda h: np.sum(h * h) < 50.0,
            lambda h: 1.5 * h + np.sin(w[1]),
            h,
            checkpoint=checkpoint,
        )
        return np.sum(last * last) + np.sum(ys**2)

    def plain(w):
        h, ys = w[0], []
        for x in X:
            ys.append(np.sum(w * h))
            h = np.tanh(w @ h) * x
        while np.sum(h.real * h.real) < 50.0:
            h = 1.5 * h + np.sin(w[1])
        return np.sum(h * h) + np.sum(np.array(ys) ** 2)

    square = W[:2, :2]
    second = tg.hessian(energy)(square).reshape(4, 4)
    for k in range(4):  # a complex step of the gradient's differences
        direction = np.zeros(4)
        direction[k] = 1.0
        eps = 1e-5
        step = (eps * direction).reshape(2, 2)
        tiny = 1e-30j
        for i in range(4):
            e = np.eye(4)[i].reshape(2, 2)
            up, down = (
                plain(square + step + tiny * e).imag / 1e-30,
                plain(square - step + tiny * e).imag / 1e-30,
            )
            np.testing.assert_allclose(second[k, i], (up - down) / (2 * eps), rtol=1e-6, atol=1e-6)


def test_a_scan_of_no_steps_gives_empty_results():
    def f(c, x):
        return c * x["a"], {"y": (c @ c, x["b"] * 1j), "none": None}

    xs = {"a": np.zeros((0, 3)), "b": np.zeros((0, 2), np.float32)}
    carry, ys = tg.scan(f, np.ones(3), xs)
    np.testing.assert_array_equal(carry, np.ones(3))
    one = tg.scan(f, np.ones(3), {"a": np.ones((1, 3)), "b": np.ones((1, 2), np.float32)})[1]
    assert ys["none"] is one["none"] is None
    for none, some in zip(ys["y"], one["y"], strict=True):
        assert (none.shape, none.dtype, type(none)) == (
            (0, *some.shape[1:]),
            some.dtype,
            type(some),
        )

    def total(x, n):
        last, sums = tg.scan(lambda c, _: (c * 2.0, np.sum(c)), x, length=n)
        return np.sum(last) + np.sum(sums)

    for both in (tg.value_and_grad(total), tg.compile(tg.value_and_grad(total))):
        value, gradient = both(X, 0)
        assert value == np.sum(X)
        np.testing.assert_array_equal(gradient, np.ones_like(X))
        assert both(X, 2)[0] == pytest.approx(np.sum(X) * (4 + 1 + 2))
    with pytest.raises(ValueError, match="made a carry of shapes"):
        tg.scan(lambda c, x: (x, c), np.ones(3), np.ones((0, 2)))


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_while_loop(checkpoint):
    def orbit(state):
        """Steps until the point has left the disc; how many is a matter of the start."""
        return tg.while_loop(
            lambda s: np.sum(s["x"] ** 2) < 9.0,
            lambda s: {"x": s["x"] * 1.3 + 0.1 * np.sin(s["x"]), "n": s["n"] + 1},
            state,
            checkpoint=checkpoint,
        )

    def f(x):
        return np.sum(orbit({"x": x, "n": 0})["x"] ** 2)

    def plain(x):
        while np.sum(x**2) < 9.0:
            x = x * 1.3 + 0.1 * np.sin(x)
        return np.sum(x**2)

    for x in (X, X / 10, X * 10):
        np.testing.assert_allclose(tg.grad(f)(x), tg.grad(plain)(x), rtol=1e-12)
    assert orbit({"x": X / 10, "n": 0})["n"] > orbit({"x": X, "n": 0})["n"] > 0
    c = tg.compile(tg.grad(f))
    for x in (X, X / 10, X, X * 10):
        np.testing.assert_allclose(c(x), tg.grad(plain)(x), rtol=1e-11)


def test_checkpoints_keep_the_tape_short():
    x = tg.tensor(X, requires_grad=True)

    def entries(checkpoint):
        y = tg.fori_loop(0, 64, lambda i, v: np.sin(v) * 1.5, x, checkpoint=checkpoint)
        n = len(tg.current_tape().code) // 8
        y.sum().backward()
        return n

    start = len(tg.current_tape().code) // 8
    assert entries(False) - start == 128
    assert entries(True) - start < 40


def layer(x, p, scale=2.0, name=""):
    return {"s": np.sin(x) * p["w"] * scale, "t": (np.sum(x**2), 3, name)}


def of_layer(wrapped):
    def f(x, w, k):
        r = wrapped(layer)(x, {"w": w}, scale=k, name="n")
        return np.sum(r["s"]) * r["t"][0] + r["t"][1] if r["t"][2] == "n" else 0.0

    return f


def test_a_checkpointed_function_is_the_function():
    for g in (tg.grad, tg.hessian, lambda f, argnums: lambda *a: tg.jvp(f, a, a)):
        got, wanted = (
            g(of_layer(c), argnums=(0, 1, 2))(X, 1.5, 0.5) for c in (tg.checkpoint, lambda f: f)
        )
        for a, b in zip(optree.tree_leaves(got), optree.tree_leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
    df = tg.grad(of_layer(tg.checkpoint))
    np.testing.assert_allclose(tg.compile(df)(X, 1.5, 0.5), df(X, 1.5, 0.5), rtol=1e-13)
    assert tg.checkpoint(layer).__name__ == "layer" and tg.checkpoint(str.upper)("a") == "A"
    np.testing.assert_array_equal(tg.checkpoint(np.sin)(X), np.sin(X))


def test_a_checkpointed_function_reaches_what_it_closes_over():
    x, w = tg.tensor(X, requires_grad=True), tg.tensor(1.5, requires_grad=True)
    runs = []

    @tg.checkpoint
    def f(x):
        runs.append(1)
        x = np.sin(x)
        x[0] = x[1] * w
        return x * w

    y = f(x)
    assert len(runs) == 1
    y.sum().backward()
    assert len(runs) == 2
    first = np.cos(X) * 1.5
    first[:2] = 0, np.cos(X[1]) * (1.5 + 1.5**2)
    np.testing.assert_allclose(x.grad, first)
    np.testing.assert_allclose(w.grad, np.sin(X[1:]).sum() + 2 * 1.5 * np.sin(X[1]))


def test_a_checkpointed_function_that_changes_is_told():
    random = np.random.default_rng(0)
    with pytest.raises(GraphError, match=r"gave something else.*Make it an argument"):
        tg.grad(lambda x: tg.checkpoint(lambda a: np.sum(a * random.normal(size=4)))(x))(X)


def test_checkpointed_functions_keep_little(quiet):
    def deep(a):
        for _ in range(20):
            a = np.sin(a**2 + 1)
        return a

    def peak(wrapped):
        def f(x):
            for _ in range(10):
                x = wrapped(deep)(x)
            return np.sum(x)

        tracemalloc.start()
        try:
            d = tg.grad(f)(np.linspace(-1, 1, 5000))
            return tracemalloc.get_traced_memory()[1], d
        finally:
            tracemalloc.stop()

    (plain, wanted), (little, got) = peak(lambda f: f), peak(tg.checkpoint)
    assert little < plain / 3
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_cond_runs_one_branch():
    ran = []

    def branch(name, f):
        def run(x):
            ran.append(name)
            return f(x)

        return run

    def f(x):
        return tg.cond(
            x.sum() > 0, branch("sin", np.sin), branch("square", lambda x: x * x), x
        ).sum()

    np.testing.assert_allclose(tg.grad(f)(X), np.cos(X))
    np.testing.assert_allclose(tg.grad(f)(-X), -2 * X)
    assert ran == ["sin", "square"]
    c = tg.compile(tg.grad(f))
    for x in (X, -X, 2 * X, -2 * X):
        np.testing.assert_allclose(c(x), tg.grad(f)(x))
    with pytest.raises(ValueError, match=r"tg\.where"):
        tg.cond(X > 0, np.sin, np.cos, X)


BRANCHES = [np.sin, lambda x: x * x, lambda x: np.exp(x) * 2]
SLOPES = [np.cos, lambda x: 2 * x, lambda x: np.exp(x) * 2]
CURVATURES = [lambda x: -np.sin(x), lambda x: 2 + 0 * x, lambda x: np.exp(x) * 2]


@pytest.mark.parametrize("made", [lambda f: f, tg.compile])
def test_switch_runs_one_branch(made):
    def f(k, x):
        return np.sum(tg.switch(k, BRANCHES, x))

    value, slope, curvature = made(f), made(tg.grad(f, 1)), made(tg.hessian(f, 1))
    along = made(lambda k, x: tg.jvp(lambda x: f(k, x), (x,), (x,))[1])
    kinds = (int, np.int8, np.uint64, np.array, tg.tensor)
    for given, k in ((0, 0), (1, 1), (2, 2), (3, 2), (99, 2), (-1, 0), (-7, 0)):
        for kind in kinds if given >= 0 else (*kinds[:2], *kinds[3:]):
            np.testing.assert_allclose(value(kind(given), X), np.sum(BRANCHES[k](X)))
        np.testing.assert_allclose(slope(given, X), SLOPES[k](X))
        np.testing.assert_allclose(curvature(given, X), np.diag(CURVATURES[k](X)), atol=1e-15)
        np.testing.assert_allclose(along(given, X), SLOPES[k](X) @ X)


@pytest.mark.long
def test_switch_by_what_is_computed():
    """In steps of a loop too: by a table, and by the values themselves, where each way is a program."""
    table = np.arange(60) ** 2 % 4 - 1

    def by_table(x):
        return np.sum(tg.fori_loop(0, 60, lambda i, v: tg.switch(table[i], BRANCHES[:2], v), x))

    def by_value(x):
        def step(v, _):
            return tg.switch(np.floor(v[0] * 3).astype(int), BRANCHES[:2], v) + 0.1, None

        return np.sum(tg.scan(step, x, length=40)[0])

    def in_python(x):
        ks = []
        for _ in range(40):
            ks.append(int(np.clip(np.floor(x[0].real * 3), 0, 1)))
            x = BRANCHES[ks[-1]](x) + 0.1
        assert len(set(ks)) == 2
        return np.sum(x)

    for f in (by_table, by_value):
        c = tg.compile(tg.value_and_grad(f))
        for at in (X, 0.5 * X, 2 * X):
            expected = tg.value_and_grad(f)(at)
            for g, e in zip(c(at), expected, strict=True):
                np.testing.assert_allclose(g, e, rtol=1e-12)
            if f is by_value:
                step = [in_python(at + 1e-30j * e).imag / 1e-30 for e in np.eye(4)]
                np.testing.assert_allclose(expected[1], step, rtol=1e-12)


def of_rows(x, checkpoint=False):
    made = tg.map(
        lambda row: {"s": np.sin(row["a"]) * row["b"], "n": row["a"] @ row["a"]},
        {"a": x, "b": x[:, 0]},
        checkpoint=checkpoint,
    )
    return np.sum(made["s"] * made["n"][:, None])


def of_rows_in_python(x):
    return sum(np.sum(np.sin(row) * row[0]) * (row @ row) for row in x)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_map_is_the_loop(n, checkpoint):
    x = np.cos(np.arange(2.0 * n)).reshape(n, 2) + 0.2

    def f(x):
        return of_rows(x, checkpoint)

    units = np.eye(2 * n).reshape(2 * n, n, 2)
    step = np.array([of_rows_in_python(x + 1e-30j * e).imag / 1e-30 for e in units]).reshape(n, 2)
    np.testing.assert_allclose(f(x), of_rows_in_python(x), rtol=1e-13)
    for way in (tg.grad(f), tg.compile(tg.grad(f))):
        np.testing.assert_allclose(way(x), step, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(tg.jvp(f, (x,), (x,))[1], np.sum(step * x), rtol=1e-11)
    second = tg.hvp(of_rows_in_python)(x, np.ones_like(x))
    for way in (tg.hvp(f), tg.compile(tg.hvp(f))):
        np.testing.assert_allclose(way(x, np.ones_like(x)), second, rtol=1e-10, atol=1e-12)


def test_map_of_nothing_and_its_kinds():
    none = tg.map(lambda row: (row * 1j, np.sum(row)), np.zeros((0, 3)))
    assert none[0].shape == (0, 3) and none[0].dtype == np.complex128 and none[1].shape == (0,)
    assert type(tg.map(np.sin, X)) is np.ndarray and type(tg.map(np.sin, tg.tensor(X))) is tg.Tensor
    w = tg.tensor(X, requires_grad=True)
    tg.map(lambda x: x * w, X).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full(4, X.sum()))


def test_map_leaves_pythons_map_alone():
    names = {"map": map}
    exec("import tapegrad as tg\ntg.map\nfrom tapegrad import *", names)
    assert names["map"] is map and names["tg"].map is not map


# ---------------------------------------------------------------------------------------------------- running results


def recurrence(p, q):
    """Of y = a y + b, the steps p and then q as one: not commutative, two leaves."""
    return {"a": q["a"] * p["a"], "b": q["a"] * p["b"] + q["b"]}


def run(a, b, reverse=False):
    ys, y = [], 0.0
    for k in range(len(a))[:: -1 if reverse else 1]:
        y = a[k] * y + b[k]
        ys.append(y)
    return np.stack(ys[:: -1 if reverse else 1])


LENGTHS = [*range(1, 10), 16, 17, 31, 64, 65, 100]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_associative_scan_is_the_loop(n, reverse):
    a, b = np.cos(np.arange(n) + 0.5), np.sin(np.arange(n) * 2.0) + 0.3

    def f(x):
        y = tg.associative_scan(recurrence, {"a": x[0], "b": x[1]}, reverse)["b"]
        return np.sum(y**2 * np.cos(np.arange(n)))

    def loop(x):
        return np.sum(run(*x, reverse) ** 2 * np.cos(np.arange(n)))

    found = tg.associative_scan(recurrence, {"a": a, "b": b}, reverse)
    np.testing.assert_allclose(found["b"], run(a, b, reverse), rtol=1e-11, atol=1e-13)
    order = slice(None, None, -1 if reverse else 1)
    np.testing.assert_allclose(found["a"], np.cumprod(a[order])[order], rtol=1e-11)
    x = np.stack([a, b])
    units = np.eye(2 * n).reshape(2 * n, 2, n)
    step = np.array([loop(x + 1e-30j * e).imag / 1e-30 for e in units]).reshape(2, n)
    forward = tg.jacobian(f, mode="forward")
    c = tg.compile(tg.grad(f))
    for way in (tg.grad(f), forward, c, c):
        np.testing.assert_allclose(way(x), step, rtol=1e-9, atol=1e-12)
    second = tg.hvp(loop)(x, np.ones_like(x))
    for way in (tg.hvp(f), tg.compile(tg.hvp(f))) if n in (1, 2, 9, 64) else ():
        np.testing.assert_allclose(way(x, np.ones_like(x)), second, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_associative_scan_along_any_axis(n, axis):
    shape = [3, 4, 2]
    shape[axis] = n
    x = np.sin(np.arange(float(np.prod(shape)))).reshape(shape) + 1.5
    for reverse in (False, True):
        order = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
        expected = order(np.cumprod(order(x), axis))
        for at in (x, tg.tensor(x)):
            found = tg.associative_scan(np.multiply, at, reverse, axis)
            assert type(found) is type(at)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        ours = tg.grad(lambda x: np.sum(np.sin(tg.associative_scan(np.multiply, x, reverse, axis))))
        theirs = tg.grad(lambda x: np.sum(np.sin(order(np.cumprod(order(x), axis)))))
        np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-11, atol=1e-13)


def test_associative_scan_of_matrices_calls_its_function_seldom():
    calls = []

    def product(p, q):
        calls.append(len(p))
        return p @ q

    for n in (1, 2, 3, 100, 1000, 1023, 1025):
        x = np.eye(2) + np.sin(np.arange(4.0 * n)).reshape(n, 2, 2) / n
        expected, m = [], np.eye(2)
        for k in range(n):
            m = m @ x[k]
            expected.append(m)
        before = x.copy()
        calls.clear()
        found = tg.associative_scan(product, x)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)
        np.testing.assert_array_equal(x, before)
        assert len(calls) <= 2 * np.log2(n) and sum(calls) <= 2 * n
        found[:] = 0  # is nobody else's
        np.testing.assert_array_equal(x, before)


@pytest.mark.long
def test_a_long_associative_scan_compiles_in_little_time():
    """Each level has memory of its own: made anew from the first one, this one takes minutes."""
    n = 1 << 17
    c = tg.compile(tg.grad(lambda x: np.sum(tg.associative_scan(np.multiply, x))))
    x = 1 + np.sin(np.arange(n)) / n
    np.testing.assert_allclose(c(x), tg.grad(lambda x: np.sum(np.cumprod(x)))(x), rtol=1e-10)


def test_an_associative_scan_refuses_writes():
    """What a function writes to would be read again: the results would be wrong without a word."""

    def written(p, q):
        p += q
        return p

    at = np.ones(9)
    with pytest.raises(ValueError, match="read-only"):
        tg.associative_scan(written, at)
    for way in (
        lambda: tg.associative_scan(written, tg.tensor(at)),
        lambda: tg.grad(lambda x: np.sum(tg.associative_scan(written, x * 1)))(at),
        lambda: tg.compile(lambda x: tg.associative_scan(written, x * 1))(at),
    ):
        with pytest.raises(ValueError, match="writes to what it is given"):
            way()
    assert np.all(at == 1)


def test_scan_in_reverse_and_without_xs():
    carry, ys = tg.scan(lambda c, x: (c + x, c), 0.0, X, reverse=True)
    np.testing.assert_allclose(carry, X.sum())
    np.testing.assert_allclose(ys, np.append(np.cumsum(X[::-1])[::-1][1:], 0.0))
    carry, ys = tg.scan(lambda c, x: (c * 2, None), 1.0, length=5)
    assert carry == 32.0 and ys is None
    assert tg.fori_loop(3, 3, lambda i, c: 1 / 0, 1.0) == 1.0


def test_kinds_go_out_as_they_came_in():
    for checkpoint in CHECKPOINTS:
        out = tg.fori_loop(0, 3, lambda i, v: v * 2, X, checkpoint=checkpoint)
        assert type(out) is np.ndarray
        t = tg.fori_loop(0, 3, lambda i, v: v * 2, tg.tensor(X), checkpoint=checkpoint)
        assert type(t) is tg.Tensor and not t.requires_grad
        single = tg.tensor(X.astype(np.float32), requires_grad=True)
        y = tg.fori_loop(0, 3, lambda i, v: v * 2, single, checkpoint=checkpoint)
        assert y.dtype == np.float32
        y.sum().backward()
        assert single.grad.dtype == np.float32


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="all of one length"):
        tg.scan(lambda c, x: (c, x), 0.0, (X, X[:2]))
    with pytest.raises(ValueError, match="all of one length"):
        tg.scan(lambda c, x: (c, x), 0.0)
    with pytest.raises(TypeError, match="return carry, y"):
        tg.scan(lambda c, x: c, 0.0, X)
    with pytest.raises(ValueError, match="carry like the one given"):
        tg.scan(lambda c, x: (np.append(c, x), None), X, X)
    with pytest.raises(ValueError, match="checkpoint=-1"):
        tg.fori_loop(0, 3, lambda i, v: v, 1.0, checkpoint=-1)


@pytest.mark.parametrize("n", [40, 150, 151])
def test_a_compiled_scan(n, monkeypatch):
    """Long ones become loops of the program, their results and gradients arrays of these loops."""
    from tapegrad.compiler import program

    monkeypatch.setattr(program, "STRICT", True)

    def f(w, xs):
        def step(c, x):
            h = np.tanh(w @ c + x)
            return h, (h * x, np.sum(h))

        c, (ys, zs) = tg.scan(step, xs[0], xs)
        return np.sum(c) + np.sum(ys**2) * zs[3] + np.sum(zs * np.arange(n)), (ys, zs)

    both = tg.value_and_grad(f, argnums=(0, 1), has_aux=True)
    c = tg.compile(both)
    xs = np.sin(np.arange(2.0 * n)).reshape(n, 2)
    for k in (1, 2, 3):
        (got, aux), gradients = c(W * k, xs / k)
        (expected, aux_expected), expected_gradients = both(W * k, xs / k)
        for g, e in zip(
            (got, *aux, *gradients), (expected, *aux_expected, *expected_gradients), strict=True
        ):
            np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-11)
    assert n < 100 or any(native.loops for native in c.latest.natives)
    assert n < 100 or "stack" not in c.report().calls


def test_scalars_of_a_long_scan():
    def f(x):
        c, ys = tg.scan(lambda c, a: (np.sin(c) * a + 0.1, c * a), x[0], x)
        return c + np.sum(ys**2)

    x = np.linspace(0.1, 0.9, 200)
    c = tg.compile(tg.value_and_grad(f))
    for k in (1.0, 1.1, 0.7):
        got, expected = c(x * k), tg.value_and_grad(f)(x * k)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-11)
    assert any(native.loops for native in c.latest.natives)


# ---------------------------------------------------------------------------------------------------- one step for all
#
# Inside tg.compile a step is traced once, if once is enough; what comes out is what the loop in Python gives, to any order.


def relu(x):
    return tg.where(x > 0.5, np.sin(x) + 0.3, np.cos(x))


def weighted(x):
    """Weights from the closure, results of two kinds, a carry with a counter."""
    w = np.outer(x, x) / 4
    (h, n), ys = tg.scan(
        lambda c, a: (
            (np.tanh(w @ c[0]) * a + x[0], c[1] + 1),
            {"h": c[0], "s": np.sum(w[0] * c[0])},
        ),
        (x * 1.0, 0),
        np.linspace(0.5, 1.0, 40),
    )
    return np.sum(h) + np.sum(ys["h"][::3] ** 2) + np.sum(ys["s"] * np.arange(40.0)) + 0.1 * n


def backward(x):
    c, ys = tg.scan(lambda c, a: (np.sin(c) * a + a, c * a), x[0], np.tile(x, 20), reverse=True)
    return c * np.sum(ys * np.arange(80.0))


def complex_steps(x):
    z = tg.fori_loop(0, 40, lambda i, z: z * z * 0.3 + (0.3 + 0.1j) * x[0], x[0] + 1j * x[1])
    return np.real(z) * np.imag(z)


def orbit(x):
    return np.sum(
        tg.while_loop(lambda v: np.sum(v * v) < 1e3, lambda v: v * 1.3 + np.sin(x), x) ** 2
    )


def many_chunks(x):
    return tg.while_loop(
        lambda v: v[0] < 1.1e3,
        lambda v: (v[0] + 1.0 + x[0], v[1] * 0.999 + np.sin(x[1])),
        (x[0], x[1]),
    )[1]


def newton(a):
    return tg.while_loop(
        lambda s: abs(s * s * s + s - a) > 1e-13,
        lambda s: s - (s * s * s + s - a) / (3 * s * s + 1),
        a * 0.5,
    )


def implicit(x):
    """Newton's method in each step of a loop: the inner loop is a part of the outer one's step."""
    c, ys = tg.scan(lambda c, _: (newton(c) + x[0], c * x[1]), x[1], length=33)
    return c + np.sum(ys)


def solved(x):
    """A step that is a NumPy call."""
    a = np.eye(4) * 2 + np.outer(x, x) / 9
    return np.sum(
        tg.while_loop(lambda v: np.sum(v * v) < 50, lambda v: np.linalg.solve(a, v) * 4 + x, x)
    )


ONE_STEP = {
    "where": lambda x: np.sum(tg.fori_loop(0, 50, lambda i, v: relu(v) + 0.01 * i, x)),
    "passing": lambda x: np.sum(tg.scan(lambda c, a: (c, np.sin(c) * a), x, np.ones(40))[1]) * x[0],
    "branch": lambda x: np.sum(tg.fori_loop(0, 40, lambda i, v: np.sin(v) if x[0] < 0.4 else np.cos(v), x)),
    **{f.__name__: f for f in (weighted, backward, complex_steps, orbit, many_chunks, implicit, solved)},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ONE_STEP)
def test_one_step_stands_for_all(name):
    """Value, gradient and Hessian, for arguments that take other numbers of turns: one program, unless Python looked at values."""
    f = ONE_STEP[name]
    for both in (f, tg.grad(f), tg.hessian(f)):
        compiled = tg.compile(both)
        for x in (X, X / 3, X * 1.5)[name == "implicit" :]:
            expected = both(x)
            scale = np.max(np.abs(expected))
            for _ in range(2):
                np.testing.assert_allclose(compiled(x), expected, rtol=1e-9, atol=1e-10 * scale)
        (programs,) = compiled.programs.by_key.values()
        assert len(programs) == (2 if name == "branch" else 1)
        assert all(len(p.graph.steps) < 800 for p in programs)  # not a step for each turn


@pytest.mark.long
def test_third_derivative_of_a_while():
    third = tg.grad(tg.grad(tg.grad(newton)))
    for a in (3.0, 10.0):
        s = newton(a)
        d = 3 * s * s + 1
        exact = 108 * s * s / d**5 - 6 / d**4  # of the inverse function of s^3 + s
        assert tg.compile(third)(a) == pytest.approx(exact, rel=1e-9)


def test_bounds_that_are_values_of_the_program():
    def f(x, n):
        return np.sum(tg.fori_loop(2, n + 1, lambda i, v: np.sin(v) * (0.9 + 0.005 * i), x) ** 2)

    for both in (f, tg.grad(f), tg.grad(lambda x, n: np.sum(tg.grad(f)(x, n)))):
        compiled = tg.compile(both)
        for n in (7, 40, 0, 12):
            np.testing.assert_allclose(compiled(X, np.array(n)), both(X, np.array(n)), rtol=1e-10)
        (programs,) = compiled.programs.by_key.values()
        assert len(programs) == 1
    with pytest.raises(TypeError, match="whole numbers"):
        tg.compile(f)(X, np.array(3.5))


def counted(x):
    """The step counts its own calls, and the function reads the count."""
    calls = [0]

    def step(i, v):
        calls[0] += 1
        return v * (1 + 0.01 * calls[0])

    return np.sum(tg.fori_loop(0, 40, step, x)) * calls[0]


def collected(x):
    """The step leaves its values behind; their number is what the loop in Python gives."""
    seen = []

    def step(i, v):
        seen.append(v)
        return np.sin(v)

    return np.sum(tg.fori_loop(0, 40, step, x)) + np.sum(seen[3] * seen[7]) * len(seen)


def stored(x):
    buffer = tg.zeros(40)

    def step(i, v):
        buffer[i] = np.sum(v)
        return np.sin(v)

    return np.sum(tg.fori_loop(0, 40, step, x)) + np.sum(buffer**2)


def tallied(x):
    class Tally:
        n = 0

    tally = Tally()

    def step(v):
        tally.n = tally.n + 1
        return v * 1.5 + 1.0

    return np.sum(tg.while_loop(lambda v: np.sum(v) < 1e4, step, x)) * tally.n


EFFECTS = {f.__name__: f for f in (counted, collected, stored, tallied)} | {
    "looking": lambda x: np.sum(tg.fori_loop(0, 40, lambda i, v: np.sin(v) if v[0] > 0.2 else np.cos(v), x)),
    "odd": lambda x: np.sum(tg.fori_loop(0, 40, lambda i, v: np.sin(v) if i % 2 else np.cos(v), x)),
}  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", EFFECTS)
def test_steps_with_effects_run_step_by_step(name):
    """A step that does something beside, or looks at values of its turn, runs as in Python, and all of its effects are there."""
    f = EFFECTS[name]
    for both in (f, tg.value_and_grad(f)):
        compiled = tg.compile(both)
        for x in (X, X * 2):
            got, wanted = compiled(x), both(x)
            pairs = [(got, wanted)] if both is f else zip(got, wanted, strict=True)
            for one, other in pairs:
                np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_step_may_make_a_large_constant():
    """An array that each turn makes anew, of the same entries, is no sign of another step: the loop is one call."""

    def last(y):
        return np.sum(
            tg.scan(lambda c, _: (np.eye(60)[::-1] @ np.sin(c), None), y, None, length=100)[0]
        )

    compiled, y = tg.compile(tg.value_and_grad(last)), np.linspace(0.1, 1, 60)
    for found, expected in zip(compiled(y), tg.value_and_grad(last)(y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len(compiled.program(y).graph.steps) < 30


def test_a_step_is_one_whether_forgotten_entries_are_on_its_tape_or_not(monkeypatch):
    """What a step computes and forgets goes from the tape when that is swept, after one run of the step and not after another."""
    from tapegrad.compiler import iteration

    runs = itertools.count(1)

    class Swept(iteration.own_tape):
        def __exit__(self, *exc):
            super().__exit__(*exc)
            if next(runs) % 2:
                self.tape.sweep()

    def last(w, v):
        def step(i, x):
            np.sum(np.cos(v * x))
            return np.sin(w * x)

        return np.sum(tg.fori_loop(0, 50, step, np.ones(4)))

    compiled = tg.compile(tg.value_and_grad(last, argnums=(0, 1)))
    with monkeypatch.context() as patch:
        patch.setattr(iteration, "own_tape", Swept)
        found = compiled(X, W[0, 0])
    assert 2 < next(runs) < 20
    expected = tg.value_and_grad(last, argnums=(0, 1))(X, W[0, 0])
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert len(compiled.program(X, W[0, 0]).graph.steps) < 30


def test_loops_on_tracked_tensors_and_in_place_of_numpy(monkeypatch):
    """A compiled loop is one entry of an outer tape; a failed machine code leaves the NumPy calls."""
    compiled = tg.compile(orbit)
    x = tg.tensor(X, requires_grad=True)
    compiled(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), tg.grad(orbit)(X), rtol=1e-12)
    from tapegrad.compiler import islands, nesting
    from tapegrad.compiler.iteration import WhileCall

    # Loops with calls of NumPy's in their steps are driven from Python, turn by turn.
    monkeypatch.setattr(nesting, "nested", lambda *given: None)
    monkeypatch.setattr(islands, "islands", lambda graph, name: (graph, []))
    program = tg.compile(tg.grad(orbit)).program(X)
    calls = [n.function for n in program.executed.nodes if isinstance(n.function, WhileCall)]
    assert calls and program.natives  # the bodies of the loops
    np.testing.assert_allclose(program([X * 2]), tg.grad(orbit)(X * 2), rtol=1e-12)


def test_advice_to_compilers():
    """JAX's keywords are taken, and change nothing."""
    total = tg.scan(lambda c, x: (c + x, c), 0.0, X, unroll=2, reverse=True, length=len(X))[0]
    assert total == np.sum(X[::-1])
    assert tg.fori_loop(0, 3, lambda i, v: v * 2.0, 1.0, unroll=True) == 8.0


def named(x, checkpoint):
    """What a step closes over is bound anew for the next loop, before anybody goes back."""
    for a in (0.9, 1.1, 1.3):
        x = tg.fori_loop(0, 40, lambda i, v: np.sin(v * a) + 0.1 * v, x, checkpoint=checkpoint)
    return np.sum(x)


def layers(x, checkpoint):
    """The same with weights that are differentiated, through a helper, and with a test."""
    for w in (x * 0.2, x * 1.1, x * 1.3):

        def turned(c, a):
            return np.sin(c + w) * a

        x, _ = tg.scan(
            lambda c, a: (turned(c, a), None),
            x,
            np.linspace(0.5, 1, 40),
            checkpoint=checkpoint,
        )
        x, _ = tg.while_loop(
            lambda s: s[1] < 40 * w[0],
            lambda s: (np.sin(s[0] * w) + 0.1 * s[0], s[1] + 1),
            (x, 0.0),
            checkpoint=checkpoint,
        )
    return np.sum(x)


def dense(x, checkpoint):
    """A list that grows."""
    outs = [x]
    for _ in range(3):
        step = lambda i, v: np.sin(v * 0.9) + 0.1 * outs[-1]  # noqa: E731
        outs.append(tg.fori_loop(0, 40, step, outs[-1], checkpoint=checkpoint))
    return np.sum(outs[-1] * outs[1])


def scaled(x, checkpoint):
    """A plain array that is overwritten: a buffer, whose old values are kept."""
    w = np.ones(4)
    for a in (0.9, 1.1, 1.3):
        w *= a
        x = tg.fori_loop(0, 40, lambda i, v: np.sin(v * w) + 0.1 * v, x, checkpoint=checkpoint)
    return np.sum(x)


def rows(x, checkpoint):
    """Views of a buffer that is written to."""
    buffer = tg.zeros((4, 4))
    buffer[0] = x
    for t in range(3):
        row = buffer[t]
        last = tg.fori_loop(
            0,
            40,
            lambda i, v: np.tanh(v * 0.3 + row),
            row * 1.0,
            checkpoint=checkpoint,
        )
        buffer[t + 1] = last
    return np.sum(buffer**2)


@pytest.mark.long
def test_what_a_loop_read_is_written_to_later():
    """A program answers as the function itself, by what was read."""

    def carried(x):
        begin = x * 2.0
        y = tg.fori_loop(0, 40, lambda i, v: np.sin(v * 0.9) + 0.1 * v * x, begin)
        begin *= 3.0
        read = x * 1.0
        z, _ = tg.scan(lambda c, a: (np.sin(c) * a, None), y, read)
        read += 1
        return np.sum(z * begin * read)

    def closed_over(x, later=operator.imul, checkpoint=False):
        w = (x * 1.0).detach()
        y = tg.fori_loop(0, 40, lambda i, v: np.sin(v * w) + 0.1 * v, x, checkpoint=checkpoint)
        w = later(w, 2.0)
        return np.sum(y * w)

    def expected(x):
        return closed_over(x, operator.mul)

    for of in (tg.grad, lambda f: lambda x: tg.hvp(f)(x, X)):
        np.testing.assert_allclose(tg.compile(of(carried))(X), of(carried)(X), rtol=1e-9)
        for g in (of(closed_over), tg.compile(of(closed_over))):
            np.testing.assert_allclose(g(X), of(expected)(X), rtol=1e-9)
        in_segments = of(lambda x: closed_over(x, checkpoint=8))
        np.testing.assert_allclose(in_segments(X), of(expected)(X), rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("f", [named, layers, dense, scaled, rows])
def test_a_step_runs_again_as_it_ran(f):
    """Variables that it closes over mean what they meant; where other things have changed, checkpoints refuse and programs begin anew."""

    def pushed(x, checkpoint):
        return tg.hvp(lambda x: f(x, checkpoint))(x, X)

    for of in (tg.grad(f), pushed):
        expected = of(X, False)
        for checkpoint in (7, True):
            if f in (named, layers, scaled):
                np.testing.assert_allclose(of(X, checkpoint), expected, rtol=1e-9)
            else:
                with pytest.raises(GraphError, match="run again|inplace"):
                    of(X, checkpoint)
        compiled = tg.compile(of)
        for _ in range(2):
            np.testing.assert_allclose(compiled(X, False), expected, rtol=1e-9)


def _half_of_what_is_positive(x):
    x = x * 1.0
    x[x > 0] -= 0.5
    return 0.9 * x + 0.01 * np.sum(x[x > 0.1])


MASKED = {
    "while_loop": lambda x: tg.while_loop(
        lambda c: c[0] < 20, lambda c: (c[0] + 1, _half_of_what_is_positive(c[1])), (0, x)
    )[1],
    "fori_loop": lambda x: tg.fori_loop(0, 60, lambda i, c: _half_of_what_is_positive(c), x),
    "scan": lambda x: tg.scan(
        lambda c, y: (_half_of_what_is_positive(c) + y, c * y), x, np.sin(np.arange(60.0))
    )[1],
    "map": lambda x: tg.map(lambda y: _half_of_what_is_positive(x * y), np.sin(np.arange(60.0))),
}


@pytest.mark.parametrize("name", MASKED)
def test_steps_that_take_entries_out_by_a_mask(name):
    """Their number is another one in each step: compiled, the loop ended with an exception that had no text."""
    f = tg.value_and_grad(lambda x: np.sum(MASKED[name](x)))
    compiled = tg.compile(f)
    for x in ([0.1, -0.2, 0.3], [1.0, -2.0, 0.3], [3.0, 2.0, 3.5]):
        (value, gradient), (expected, theirs) = compiled(np.array(x)), f(np.array(x))
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, theirs, rtol=1e-12)


LARGE = np.cos(np.arange(300.0))


def lagged(carry, x):
    """Values stay for three turns; one is made, one does not change."""
    a, b, c, d, same = carry
    return (np.sin(a) * same + 0.3 * d + x, a, b, c, same), None


def exchanged(carry, x):
    """Places are exchanged, and one more value follows one of them."""
    a, b, c, follows = carry
    return (b, a, np.tanh(c + a * x) * 0.9, c), b


def kept_turn_by_turn(carry, x):
    """What is carried is kept as well, twice, and so is the value before it."""
    a, before = carry
    new = np.tanh(a * 0.7 + before * x)
    return (new, a), (new, new, a)


def one_value_in_two_places(carry, x):
    a, b, c = carry
    new = np.sin(a + b * x)
    return (new, new, b), new


@pytest.mark.parametrize("turns", [40, 41, 42, 43])
@pytest.mark.parametrize(
    ("step", "count"),
    [(lagged, 5), (exchanged, 4), (kept_turn_by_turn, 2), (one_value_in_two_places, 3)],
)
def test_large_values_that_are_passed_on(step, count, turns):
    """No turn copies what it does not make; values are those of eager loops."""

    def loss(first, xs):
        start = tuple(first * (1 + 0.1 * k) for k in range(count))
        last, rows = tg.scan(step, start, xs)
        rows = () if rows is None else rows if isinstance(rows, tuple) else (rows,)
        parts = [np.sum(v * np.sin(v + k)) for k, v in enumerate((*last, *rows))]
        return sum(parts)

    xs = np.sin(np.arange(1.0, turns + 1))
    eager = tg.value_and_grad(loss, (0, 1))
    compiled = tg.compile(eager)
    for k in (1.0, 0.6):
        (value, gradients), (expected, theirs) = compiled(LARGE * k, xs), eager(LARGE * k, xs)
        assert np.isclose(value, expected, rtol=1e-12)
        for mine, other in zip(gradients, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
