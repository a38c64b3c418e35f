"""tg.compile: a compiled function answers what the function itself answers, or raises.

The first part compiles every op, in campaigns, and every transform; then come signatures, guards, inputs of every kind, refusals, the outer tape,
threads; last a fuzzer of random programs, eager against compiled.
"""

from __future__ import annotations

import gc
import math
import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from functools import partial

import numpy as np
import optree
import pytest

import tapegrad as tg
from tapegrad.check.samples import samples_of
from tapegrad.core.primitive import OPS
from tapegrad.core.tensor import Tensor
from tapegrad.errors import GraphError, TraceError
from tests import rounding
from tests.seeds import seeds
from tests.suite import in_threads

DECLARED = OPS[1:]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Machine code that cannot be made is an error here; users get NumPy calls and a warning."""
    from tapegrad.compiler import program

    monkeypatch.setattr(program, "STRICT", True)


def plain(value):
    return value._value if isinstance(value, Tensor) else value


def agree(got, expected, rtol=1e-12, coarse=1e-6):
    """Same structure, kinds, shapes and dtypes; values within a few ulp."""
    if isinstance(expected, tuple | list):
        assert type(got) is type(expected) and len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            agree(g, e, rtol, coarse)
        return
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            agree(got[key], expected[key], rtol, coarse)
        return
    assert isinstance(got, Tensor) == isinstance(expected, Tensor)
    got, expected = np.asarray(plain(got)), np.asarray(plain(expected))
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if expected.dtype.kind in "fc":
        single = expected.dtype.itemsize == (4 if expected.dtype.kind == "f" else 8)
        scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=1e-300)
        rtol, atol = (10 * coarse, coarse * scale) if single else (rtol, rtol * scale)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, expected)


def agree_as_a_whole(got, expected):
    """Values and gradients of one program agree relative to the largest: rounding errors of one reach all others."""
    agree(
        [np.shape(x) for x in (got[0], *got[1])], [np.shape(x) for x in (expected[0], *expected[1])]
    )
    single = expected[0].dtype == np.float32
    flat = [
        np.concatenate([np.ravel(x).astype(complex) for x in (v[0], *v[1])])
        for v in (got, expected)
    ]
    np.testing.assert_array_equal(np.isnan(flat[0]), np.isnan(flat[1]))
    scale = np.nanmax(np.abs(flat[1]), initial=1e-300)
    np.testing.assert_allclose(flat[0], flat[1], rtol=0, atol=scale * (4e-4 if single else 1e-11))


def agree_as_rounded(compiled, f, *point):
    """What is computed in single precision is judged by the same function in double: both are roundings of that."""
    got, expected = compiled(*point), f(*point)
    assert optree.tree_structure(got) == optree.tree_structure(expected)
    bounds = rounding.allowance(f, point, expected)
    leaves = zip(optree.tree_leaves(got), optree.tree_leaves(expected), bounds, strict=True)
    for g, e, (reference, bound) in leaves:
        assert isinstance(g, Tensor) == isinstance(e, Tensor)
        assert np.shape(g) == np.shape(e) and g.dtype == e.dtype
        rounding.within(plain(g), reference, bound)


def same_everywhere(f, *points, rtol=1e-12):
    """Compiled at the first point, `f` answers as it does itself at each."""
    compiled = tg.compile(f)
    for point in (points[0], *points):
        if any(map(rounding.is_single, optree.tree_leaves(point))):
            agree_as_rounded(compiled, f, *point)
        else:
            agree(compiled(*point), f(*point), rtol)
    return compiled


# ------------------------------------------------------------------------------------------------ ops and transforms


@pytest.mark.campaign
@pytest.mark.parametrize("op", DECLARED, ids=lambda op: op.name)
def test_every_op_compiles_with_its_gradient(op):
    """Value and VJP of every sample, by the program (not the traced run), without falling back on another trace.

    Of the first sample, test_ops.py compiles value, tangent, cotangents and their derivative in every run.
    """
    for sample in samples_of(op):
        if sample.variant in ("only", "strided", "mixed"):
            continue

        def both(*variables, sample=sample):
            y, pull = tg.vjp(sample.at, *variables)
            # Not ones: of a softmax, whose entries sum to 1, these would leave rounding errors to compare.
            return y, pull(np.linspace(0.5, 1.5, np.size(y)).reshape(np.shape(y)).astype(y.dtype))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = both(*sample.variables)
            compiled = tg.compile(both)
            first = compiled(*sample.variables)
            again = compiled(*sample.variables)
        assert len(compiled.programs.by_key) == 1
        for got in (first, again):
            agree(
                [np.asarray(x) for x in (got[0], *got[1])],
                [np.asarray(x) for x in (expected[0], *expected[1])],
                1e-11,
                1e-4,
            )


def loss(x):
    return np.sum(np.sin(x) * x**2) / (1 + np.max(x)) + np.exp(-x[0] * x[-1])


X = np.array([0.3, 1.2, 0.7, 2.1])

TRANSFORMS = {
    "value": lambda f: f,
    "grad": tg.grad,
    "value_and_grad": tg.value_and_grad,
    "grad of grad": lambda f: tg.grad(lambda x: np.sum(tg.grad(f)(x) ** 2)),
    "third order": lambda f: tg.grad(lambda x: np.sum(tg.grad(lambda x: np.sum(tg.grad(f)(x)))(x))),
    "hessian": tg.hessian,
    "hvp": lambda f: lambda x: tg.hvp(f)(x, np.cos(x)),
    "jvp": lambda f: lambda x: tg.jvp(f, (x,), (np.ones(4),)),
    "jacobian": lambda f: tg.jacobian(lambda x: np.stack([f(x), f(2 * x)])),
    "forward jacobian": lambda f: tg.jacobian(lambda x: x * f(x), mode="forward"),
    "vjp": lambda f: lambda x: tg.vjp(lambda x: x * f(x), x)[1](np.ones(4)),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_compile(name):
    compiled = same_everywhere(TRANSFORMS[name](loss), (X,), (X + 0.5,), (-X,))
    assert len(compiled.programs.by_key) == 1


@pytest.mark.long
def test_transforms_of_a_compiled_function():
    compiled = tg.compile(loss)
    for transform in (tg.grad, tg.hessian, tg.value_and_grad, tg.jacobian):
        agree(transform(compiled)(X), transform(loss)(X), 1e-11)
        agree(transform(compiled)(X + 1), transform(loss)(X + 1), 1e-11)
    agree(tg.jvp(compiled, (X,), (X,)), tg.jvp(loss, (X,), (X,)))
    agree(tg.compile(tg.grad(compiled))(X), tg.grad(loss)(X))


def test_python_loops_and_containers():
    def f(parameters, data):
        h = data["x"]
        for w, b in parameters:
            h = np.tanh(h @ w + b)
        return {"loss": np.mean((h - data["y"]) ** 2), "h": (h, [h.sum()])}

    rng = np.random.default_rng(0)
    parameters = [(rng.normal(size=(3, 3)), rng.normal(size=3)) for _ in range(2)]
    data = {"x": rng.normal(size=(5, 3)), "y": rng.normal(size=(5, 3))}
    same_everywhere(f, (parameters, data), ([(w + 1, b) for w, b in parameters], data))
    gradient = tg.grad(lambda p, d: f(p, d)["loss"])
    same_everywhere(gradient, (parameters, data), ([(w + 1, b) for w, b in parameters], data))
    same_everywhere(
        tg.value_and_grad(lambda p, d: (f(p, d)["loss"], f(p, d)["h"]), has_aux=True),
        (parameters, data),
    )


def test_backward_inside():
    def f(x):
        w = tg.tensor(x, requires_grad=True)
        (np.sin(w) * w).sum().backward()
        y = w * 2
        (g,) = tg.autograd.grad(y.sum(), w)
        return w.grad, g

    agree(tg.compile(f)(tg.tensor(X)), f(tg.tensor(X)))
    compiled = tg.compile(f)
    compiled(tg.tensor(X))
    agree(compiled(tg.tensor(X + 1)), f(tg.tensor(X + 1)))


# ------------------------------------------------------------------------------------------------ signatures


def test_kinds_go_out_as_they_came_in():
    f = tg.compile(lambda x: (np.sum(x), x * 2))
    value, array = f(X)
    assert type(value) is np.float64 and type(array) is np.ndarray
    value, array = f(tg.tensor(X))
    assert type(value) is Tensor and type(array) is Tensor
    value, array = f(X.astype(np.float32))
    assert type(value) is np.float32 and array.dtype == np.float32
    value, array = f(2.0)
    assert float(value) == 2.0 and float(array) == 4.0


def test_python_floats_are_weak_and_dynamic():
    f = tg.compile(lambda x, a: x * a + a / 3)
    x = X.astype(np.float32)
    for a in (0.1, 0.7, np.float64(0.1)):
        agree(f(x, a), x * a + a / 3)
    assert len(f.programs.by_key) == 2  # a Python float widens nothing, a NumPy one does
    agree(tg.compile(tg.grad(lambda a: a**3 / 2))(2.0), 6.0)


def test_ints_and_options_are_static():
    traced = []

    def f(x, n, mode="sum"):
        traced.append(n)
        for _ in range(n):
            x = x * 2
        return getattr(np, mode)(x)

    c = tg.compile(f)
    assert c(X, 2) == f(X, 2) and c(X + 1, 2) == f(X + 1, 2)
    assert c(X, 3, mode="max") == f(X, 3, "max")
    assert traced.count(2) == 3  # once traced, twice called here
    c = tg.compile(lambda x, scale: x * scale, static_argnums=1)
    agree(c(X, 2.0), X * 2.0)
    agree(c(X, 3.0), X * 3.0)
    assert len(c.programs.by_key) == 2


def test_slices_are_static_by_value():
    """Before Python 3.12 a slice has no hash, and slice(1, 2) equals slice(True, 2.0)."""
    f = tg.compile(lambda x, s, *others: np.sum(x[s] ** 2))
    x = np.arange(5.0)
    for stop in (2, 3, 2):
        agree(f(x, slice(1, stop)), np.sum(x[1:stop] ** 2))
        agree(f(x, (slice(1, stop),)), np.sum(x[1:stop] ** 2))
    agree(tg.grad(f)(x, slice(None, None, 2)), np.array([0.0, 0, 4, 0, 8]))
    assert len(f.programs.by_key) == 4
    of_kind = tg.compile(lambda x, s: x * {int: 2, bool: 3, float: 5}[type(s[0].start)], static_argnums=1)  # fmt: skip
    for start, factor in ((1, 2), (True, 3), (1.0, 5)):
        assert of_kind(1.0, (slice(start, 2),)) == factor
    with pytest.raises(TypeError, match="cannot be hashed"):
        f(x, slice(np.array([1, 2]), 3))


def test_shapes_and_dtypes_are_programs_of_their_own():
    f = same_everywhere(
        loss, (X,), (np.arange(1.0, 9.0),), (X.astype(np.float32),), (X.astype(complex).real,)
    )
    assert len(f.programs.by_key) == 3


def test_signatures_are_bounded():
    f = tg.compile(lambda x: x + 1, max_signatures=3)
    for n in range(1, 8):
        agree(f(np.ones(n)), np.ones(n) + 1)
    assert len(f.programs.by_key) == 3
    agree(f(np.ones(1)), np.ones(1) + 1)


def test_decorator_with_and_without_arguments():
    @tg.compile
    def f(x):
        """Doubles."""
        return 2 * x

    @tg.compile(static_argnums=(1,))
    def g(x, n):
        return x**n

    assert f.__name__ == "f" and f.__doc__ == "Doubles."
    agree(f(X), 2 * X)
    agree(g(X, 3), X**3)
    with pytest.raises(TypeError, match="cannot be called"):
        tg.compile(3)


def test_a_method():
    class Model:
        def __init__(self):
            self.scale = 3.0

        @tg.compile
        def __call__(self, x):
            return x * self.scale

    agree(Model()(X), 3 * X)


def test_unhashable_arguments_are_named():
    class Odd:
        __hash__ = None

    with pytest.raises(TypeError, match="cannot be hashed"):
        tg.compile(lambda x, o: x)(X, Odd())
    with pytest.raises(TypeError, match="dtype"):
        tg.compile(lambda x: x)(np.array(["a"]))
    with pytest.raises(TypeError, match="MaskedArray"):
        tg.compile(lambda x: x)(np.ma.masked_array([1.0]))


# ------------------------------------------------------------------------------------------------ guards


def test_a_branch_is_a_guard():
    def f(x):
        return x * 2 if x[0] > 0 else x * 3

    c = tg.compile(f)
    for x in (X, -X, X + 1, -X - 1):
        agree(c(x), f(x))
    (programs,) = c.programs.by_key.values()
    assert len(programs) == 2
    assert "test_compiler.py" in programs[0].guards[0].where


@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x * math.sin(float(n[0])),
        lambda x, n: x[: int(n[0])],
        lambda x, n: sum((x[i] for i in range(n[1])), start=0.0),
        lambda x, n: x * (2 if n[0].item() == 1 else 3),
        lambda x, n: x * np.float64(n.sum()),
        lambda x, n: np.zeros(n[0]) + x[0],
        lambda x, n: x * len([k for k in n.tolist() if k > 1]),
    ],
)  # fmt: skip
def test_whatever_python_reads_is_a_guard(f):
    c = tg.compile(f)
    for n in ([1, 2], [2, 3], [1, 2], [2, 3]):
        n = tg.tensor(np.array(n))
        agree(c(tg.tensor(X), n), f(tg.tensor(X), n))
    assert len(next(iter(c.programs.by_key.values()))) == 2


def by_branches(x):
    if x[0] > 1:
        return np.sum(x * x)
    return np.sum(np.sin(x)) if np.any(x > 2) and not (x > 2).all() else np.sum(x) * x[2]


def by_an_integer(x):
    return np.sum(x ** int(x[0]))


def by_a_factorisation(x):
    """What the machine code of one branch cannot compute is another one's."""
    if np.all(x > 0):
        return np.linalg.cholesky(np.outer(x, x) - 0.1 * np.eye(3) * x[0])[0, 0] * x[0]
    return np.sum(x) if x[1] else x[0] * 2.0


def by_a_sign(x):
    return np.sum(x[1:]) * math.copysign(2.0, float(x[0].item() if x[0] else x[0]))


BRANCHING = [by_branches, by_an_integer, by_a_factorisation]


@pytest.mark.parametrize("f", [*BRANCHING, *map(tg.value_and_grad, BRANCHING), by_a_sign])
@np.errstate(all="ignore")
def test_guards_are_checked_in_machine_code(f):
    c = tg.compile(f)
    x = np.array([0.5, 0.6, 0.7])
    factors = [1, -1, 3, [1, 4, 1], [3, 1, 1], [1, -1, 1], [0, 1, 1], [-0.0, 1, 1], [1, 0, -1]]
    for at in [x * factor for factor in factors] * 3:
        try:
            expected = f(at)
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError):
                c(at)
            continue
        agree(c(at), expected)
    assert not c.report().calls


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 2 if (x[0] * 7).astype(int) <= 1 else x * 3,
        lambda x: x ** int(x[0] * 7),
        lambda x: x * 2 if np.argmax(x) == 0 else x * 3,
        lambda x: [x * 2, x + 1, np.sin(x)][np.floor(x[0] * 7).astype(int) % 3],
    ],
)  # fmt: skip
@pytest.mark.parametrize("transform", [lambda f: f, tg.jacobian])
def test_guards_of_what_numpy_computes_are_checked(f, transform):
    """Nothing but the guard reads them: what checks it is kept although nobody asks for its value."""
    f = transform(f)
    c = tg.compile(f)
    for at in (0.1, 0.3, 0.5, 0.9) * 2:
        x = np.array([at, 0.4])
        agree(c(x), f(x))


STRIDED = [
    np.s_[::2], np.s_[1::3], np.s_[::-2], np.s_[5::-3], np.s_[:, ::2], np.s_[1:6:2, 8::-4], np.s_[2, 0:9:5], np.s_[::4, 3],
    np.s_[..., None, 1::2], np.s_[0:1:5], np.s_[3:3:2], np.s_[::3, 2:5], np.s_[::-1], np.s_[6:0:-1], np.s_[0:7:7],
]  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "index, dtype",
    [(i, np.float64) for i in STRIDED]
    + [(i, d) for i in STRIDED[2:6] for d in (np.float32, np.complex128)],
)
def test_steps_of_slices_are_machine_code(index, dtype):
    x = (np.cos(np.arange(63.0)) + 2).reshape(7, 9).astype(dtype)
    if dtype == np.complex128:
        x = x + 0.3j * x[::-1]
    weights = np.sin(np.arange(1.0, x[index].size + 1)).reshape(x[index].shape).astype(x.real.dtype)

    def read(x):
        return np.sum(np.abs(np.sin(x[index])) * weights)

    def written(x):
        b = x * 1
        b[index] = np.sin(x[index]) * weights
        b[index] *= x[index]
        return np.sum(np.abs(b * np.cos(x)))

    def filled(x):
        b = x * 1
        b[index] = 2.5
        return np.sum(np.abs(b * x))

    for f in (read, written, filled):
        c = tg.compile(tg.value_and_grad(f))
        agree(c(x), tg.value_and_grad(f)(x))
        assert not c.report().calls


def test_equal_eigenvalues_are_refused_as_ever():
    """What raises where a derivative does not exist is machine code, too, until it does not exist."""

    def f(a):
        w, v = np.linalg.eigh(a)
        return np.sum(w**2) + v[0, 1] ** 2

    def g(a):
        w, v = np.linalg.eigh(a)
        return np.sum(v @ np.diag(w) @ v.T * np.arange(16.0).reshape(4, 4)) + v[0, 0]

    a = np.cos(np.arange(16.0)).reshape(4, 4)
    for h in (f, g):
        c = tg.compile(tg.value_and_grad(h))
        for at in (a + a.T, np.eye(4), np.diag([1.0, 1.0, 2.0, 3.0]), a + a.T):
            try:
                expected = tg.value_and_grad(h)(at)
            except tg.NotDifferentiable:
                with pytest.raises(tg.NotDifferentiable):
                    c(at)
            else:
                agree(c(at), expected)
        assert not c.report().calls


def test_shapes_that_follow_from_values():
    for f in (
        lambda x: x[x > 1],
        lambda x: np.nonzero(x > 1)[0],
        lambda x: np.unique(np.round(x)),
        lambda x: tg.grad(lambda x: np.sum(x[x > 1] ** 2))(x),
    ):
        c = tg.compile(f)
        for x in (X, X + 1, X - 5, X):
            agree(c(x), f(x))


def test_large_arrays_are_computed_by_the_program():
    """While tracing, what comes of a large array is computed only where Python looks at it, and then it is that very value."""
    from tapegrad.compiler.tracing import Later

    calls = []
    whole = Later.value

    def f(x, looks):
        y = np.exp(np.sin(x) * 0.5) - 1.0
        total = np.sum(y)
        if looks and total > 0:
            total = total + np.max(x)
        return total + np.sum(np.where(x > 0, x, y))

    x = np.linspace(-1.0, 1.0, 60_000)
    both = tg.value_and_grad(f)
    try:
        Later.value = lambda later: calls.append(later) or whole(later)
        for looks in (False, True):
            compiled = tg.compile(both)
            for point in (x, x + 0.5):
                agree(compiled(point, looks), both(point, looks))
            assert bool(calls) == looks
    finally:
        Later.value = whole


def test_views_and_products_of_large_arrays_are_computed_by_the_program():
    """They too wait until somebody looks; and a write into an array reaches the views that nobody had asked for."""
    from tapegrad.compiler.tracing import Later

    def f(x, m):
        y = np.reshape(np.sin(x), (300, 200))
        z = np.swapaxes(y @ m, 0, 1)[1:, None] * 2.0
        return np.sum(z * z) + np.sum(np.mean(y.T, axis=1, keepdims=True)[3:-1])

    x, m = np.linspace(-1.0, 1.0, 60_000), np.linspace(-1.0, 2.0, 50_000).reshape(200, 250)
    both = tg.value_and_grad(f)
    whole = Later.value
    try:
        Later.value = lambda later: pytest.fail(f"{later.function} was computed while tracing")
        value = tg.compile(both)(x, m)
    finally:
        Later.value = whole
    agree(value, both(x, m))

    def written(x):
        y = np.asarray(x) * 2.0 if isinstance(x, np.ndarray) else x * 2.0
        part = y[10:20]
        y[12] = 5.0
        whole = y * 1.0
        part[3] = -1.0
        return np.sum(part * np.arange(10.0)), np.sum(y * y), np.sum(whole)

    agree(tg.compile(written)(x), written(x))
    agree(tg.compile(written)(x[:60]), written(x[:60]))


def test_a_value_that_never_repeats_is_refused():
    c = tg.compile(lambda x: x * float(x[0]))
    with pytest.raises(
        TraceError, match=r"traced 16 times.*x.item\(\).*test_compiler.py.*tg.where"
    ):
        for k in range(20):
            c(X + k)


def test_large_reads_are_refused():
    with tg.plain_buffers(), pytest.raises(TraceError, match="np.asarray"):
        tg.compile(lambda x: np.asarray(x).sum() * x)(np.ones(10000))


def test_scalars_that_are_looked_at():
    def f(a):
        if a > 2.0:
            return a * a
        return -a

    c = tg.compile(f)
    for a in (1.0, 3.0, 1.5, 2.0):
        assert c(a) == f(a)


# ------------------------------------------------------------------------------------------------ inputs


def awkward():
    base = np.arange(24.0).reshape(4, 6) / 7 + 0.1
    read_only = base.copy()
    read_only.flags.writeable = False
    return {
        "transposed": base.T.copy().T,
        "strided": np.repeat(np.repeat(base, 2, 0), 2, 1)[::2, ::2],
        "reversed": base[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": read_only,
        "byte-swapped": base.astype(base.dtype.newbyteorder()),
        "stride 0": np.broadcast_to(base[0], (4, 6)),
        "unaligned": np.frombuffer(b"x" + base.tobytes(), np.float64, offset=1).reshape(4, 6),
        "fortran": np.asfortranarray(base),
    }


@pytest.mark.parametrize("name", awkward())
def test_awkward_memory(name):
    x = awkward()[name]

    def f(x, y):
        return np.sum(np.exp(x) * y, axis=0), np.sin(x) + y.T.copy().T, x @ y.T

    expected = f(np.array(x, np.float64), np.ones((4, 6)))
    c = tg.compile(f)
    for _ in range(2):
        agree(c(x, np.ones((4, 6))), expected)
    c(np.ones((4, 6)), np.ones((4, 6)))
    agree(c(x, np.ones((4, 6))), expected)
    g = tg.compile(tg.grad(lambda x: np.sum(np.exp(x) * x)))
    g(np.ones((4, 6)))
    agree(g(x), tg.grad(lambda x: np.sum(np.exp(x) * x))(np.array(x, np.float64)))


def test_arguments_that_share_memory():
    c = tg.compile(lambda x, y: (x + y, x * 2, y))
    base = np.arange(6.0)
    x, y = base[:4], base[2:]
    expected = (x + y, x * 2, y.copy())
    got = c(x, y)
    got = c(x, y)
    agree(got, expected)
    got[2][...] = -1  # a result is memory of its own
    agree(base, np.arange(6.0))
    same = c(x, x)
    agree(same, (x + x, x * 2, x))
    assert not np.shares_memory(same[2], x)


def test_results_share_nothing():
    c = tg.compile(lambda x: (x, x.T, x[0], x + 0, x + 0))
    x = np.ones((3, 3))
    for _ in range(2):
        got = c(x)
        for i, a in enumerate(got):
            assert not np.shares_memory(a, x)
            assert all(not np.shares_memory(a, b) for b in got[:i])
            assert a.flags.writeable


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (), (1,), (1, 1)])
def test_empty_and_0d(shape):
    x = np.full(shape, 1.5)
    same_everywhere(
        lambda x: (np.sum(np.exp(x) * 2), x - 1, np.sum(x, axis=-1) if x.ndim else x),
        (x,),
        (x + 1,),
    )
    same_everywhere(tg.grad(lambda x: np.sum(np.exp(x) * x)), (x,), (x + 1,))


@pytest.mark.long
def test_integers_booleans_and_complex_numbers():
    def f(x, index, mask, z):
        picked = x[index] * np.where(mask, 1.0, -1.0)
        return np.sum(picked), index + 1, ~mask, np.abs(z) ** 2, z * x

    rng = np.random.default_rng(0)
    args = (
        X,
        np.array([3, 0, 0, 1]),
        rng.random(4) > 0.5,
        rng.normal(size=4) + 1j * rng.normal(size=4),
    )
    others = X + 1, np.array([1, 1, 2, 2]), ~args[2], 2 * args[3]
    c = same_everywhere(f, args, others)
    assert len(next(iter(c.programs.by_key.values()))) == 1
    same_everywhere(tg.grad(lambda *a: f(*a)[0]), args, others)
    same_everywhere(tg.grad(lambda z: np.sum(np.abs(z * z - 1) ** 2)), (args[3],), (others[3],))


EDGES = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 710.0, -750.0, 1e-310, 3.0)


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_complex_arithmetic_is_machine_code(dtype):
    """Real and imaginary part of each formula, with every pair of special values in them."""
    with np.errstate(all="ignore"):
        z = np.array([complex(a, b) for a in EDGES for b in EDGES]).astype(dtype)
        w = np.roll(z, 17)

        def f(z, w):
            return [
                z + w, z - np.real(w), z * w, np.real(z) * w, z / w, np.reciprocal(z), -z, np.conj(z), np.abs(z), z**2, np.exp(z),
                z == w, z != w, np.isnan(z), np.isfinite(z), np.isinf(z), np.where(np.isnan(np.real(w)), z, w), np.imag(z), 1j * z,
            ]  # fmt: skip

        compiled = tg.compile(f)
        for _ in range(2):
            for got, expected in zip(compiled(z, w), f(z, w), strict=True):
                assert got.dtype == expected.dtype
                rtol = 1e-15 if np.finfo(z.dtype).bits == 64 else 1e-6
                for part in (np.real, np.imag):
                    np.testing.assert_allclose(part(got), part(expected), rtol=rtol)
    assert not compiled.report().calls


@pytest.mark.parametrize(
    "f",
    [
        lambda z, x: np.sum(np.abs(z * z + 1j) ** 2),
        lambda z, x: np.sum(np.real(np.exp(1j * x) * z / (2 + 1j * x)) ** 2),
        lambda z, x: np.sum(np.abs(np.reshape(z, (2, 3)) @ np.reshape(z * x, (3, 2))) ** 2),
        lambda z, x: np.sum(
            np.abs(np.concatenate([z[::-1], z[np.array([0, 2, 2])]]) * np.mean(z)) ** 2
        ),
        lambda z, x: np.sum(np.imag(np.stack([z, np.roll(z, 2)])[:, 1:] / z[1:])),
        lambda z, x: np.abs(z[0] * x[1]) ** 2 + np.real(np.sum(np.where(x > 0, z, x))),
    ],
)
def test_complex_gradients_are_machine_code(f):
    rng = np.random.default_rng(0)
    points = [(rng.normal(size=6) + 1j * rng.normal(size=6), rng.normal(size=6)) for _ in range(2)]
    compiled = same_everywhere(tg.value_and_grad(f, argnums=(0, 1)), *points)
    assert not compiled.report().calls
    single = [(z.astype(np.complex64), x.astype(np.float32)) for z, x in points]
    same_everywhere(tg.value_and_grad(f, argnums=(0, 1)), *single)


def test_a_complex_loop_is_rolled():
    def julia(c):
        z = 0j * c
        for _ in range(60):
            z = z * z * 0.5 + c
        return np.sum(np.abs(z) ** 2)

    points = [(np.array([0.1 + 0.2j, -0.3j, 0.25]) * k,) for k in (1, 2)]
    compiled = same_everywhere(tg.value_and_grad(julia), *points)
    assert sum(native.loops for native in compiled.latest.natives) == 2


ROWS = np.array([0, 3, 3, 1, -1])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: np.sum(np.sin(x[i]) * np.arange(5.0)[:, None]),
        lambda x, i: np.sum(np.sin(x[::-1, i]) * np.arange(5.0)),
        lambda x, i: np.sum(np.exp(x)[i, ROWS] * np.arange(5.0)),
        lambda x, i: np.sum(np.take(x, i) ** 2) + np.sum(np.take(x, [[0, 2]], axis=1)),
        lambda x, i: np.sum(np.cos(np.reshape(x, (4, 1, 6))[i, :, ROWS])),
        lambda x, i: np.sum(x[np.array([True, False, True, True])] ** 2) + np.sum(x[i] * x[ROWS]),
        lambda x, i: np.sum(np.roll(x, 3, axis=1)[i] * x[i] + np.roll(x, -5)[0]),
        lambda x, i: np.sin(np.sum(np.reshape(x, (2, 1, 12))[..., i[None]])),
    ],
)
def test_integer_arrays_are_machine_code(f):
    """Reads at integers that are data, and the sums of cotangents of places read twice."""
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(4, 6)), rng.integers(-4, 4, 5)
    compiled = same_everywhere(tg.value_and_grad(f), (x, i), (2 * x, i[::-1]), (x, np.flip(i) * 0))
    assert not {"getitem", "take"} & compiled.report().calls.keys()


def test_an_index_out_of_bounds():
    """What the function itself raises; nothing is read there, and the program is as good as before."""
    f = tg.compile(tg.value_and_grad(lambda x, i: np.sum(x[i] * x[i])))
    expected = f(X, np.array([0, 1, -1]))
    for i in (np.array([0, X.size, 1]), np.array([0, -X.size - 1, 10**12])):
        with pytest.raises(IndexError, match="out of bounds"):
            f(X, i)
        agree(f(X, np.array([0, 1, -1])), expected)


def test_special_values_pass_through():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, -1e-308])
    with np.errstate(all="ignore"):
        for f in (lambda x: x * 0, lambda x: x - x, lambda x: x / x, lambda x: np.maximum(x, 0), lambda x: x + 0.0, lambda x: -x,
                  lambda x: np.exp(x), lambda x: np.log(x), lambda x: np.sqrt(x), lambda x: np.where(x > 0, x, 0 * x),
                  lambda x: np.sum(x), lambda x: np.max(x), lambda x: np.tanh(x), lambda x: np.sign(x), lambda x: 1 / x,
                  lambda x: np.abs(x), lambda x: x**2, lambda x: x**0.5, lambda x: np.minimum(x, 1), lambda x: x**-1):  # fmt: skip
            c = tg.compile(f)
            c(x)
            expected = f(x)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(c(x))[numbers], np.signbit(expected)[numbers])
            np.testing.assert_allclose(c(x), expected, rtol=1e-14)


# ------------------------------------------------------------------------------------------------ refusals


def test_writing_into_an_argument_is_refused():
    def f(x):
        x[0] = 1.0
        return x

    with pytest.raises(TraceError, match="write into an argument"):
        tg.compile(f)(X.copy())

    def g(x):
        x += 1
        return x

    with pytest.raises(TraceError, match="write into an argument"):
        tg.compile(g)(X.copy())


def test_buffers_are_written_functionally():
    def f(a, b):
        c = tg.zeros(5)
        for i in range(1, 5):
            c[i] = c[i - 1] * a + b[i - 1]
        return c.sum()

    same_everywhere(
        lambda a, b: f(a, b), (tg.tensor(0.5), tg.tensor(X)), (tg.tensor(1.5), tg.tensor(-X))
    )
    same_everywhere(tg.grad(f, argnums=(0, 1)), (np.float64(0.5), X), (np.float64(1.5), -X))

    def g(x):
        y = x * 2
        y[1:] += 1.0
        y[0] = x[1]
        y *= 3
        return y

    agree(tg.compile(g)(tg.tensor(X)), g(tg.tensor(X)))


def test_views_see_writes_or_the_write_is_refused():
    def f(x):
        y = x * 2
        z = y[1:]
        w = z[::2]
        y[1] = 0.0
        z[-1] = 7.0
        return y, z, w

    agree(tg.compile(f)(tg.tensor(X)), f(tg.tensor(X)))

    def g(x):
        y = x * 2
        z = np.reshape(y, (2, 2))
        y[1] = 0.0
        return y, z

    agree(tg.compile(g)(tg.tensor(X)), g(tg.tensor(X)))

    def h(x):
        y = x * (1 + 1j)
        z = y.real
        y[1] = 0.0
        return y, z

    agree(tg.compile(h)(tg.tensor(X)), h(tg.tensor(X)))

    def diagonal(x):
        y = np.outer(x, x)
        z = np.diagonal(y)
        y[1] = 0.0
        return y, z

    with pytest.raises(TraceError, match="view"):
        tg.compile(diagonal)(tg.tensor(X))


def _row(x):
    y = np.outer(x, x)
    row = y[1]
    row *= x
    y[0] += row
    return np.sum(y**3)


def _row_of_zeros(x):
    y = tg.zeros((4, 4))
    row = y[1]
    row += x
    y[2, 1:3] -= x[1:3]
    y *= 3
    row -= 1.0
    return np.sum(y**3) + row[0]


def _part_of_a_part(x):
    y = np.outer(x, x)
    lower = y[1:]
    last = lower[1]
    last *= x
    y[0] = last + lower[0]
    lower[0, :2] -= x[1:3]
    return np.sum(y**2) + np.sum(lower**3) + last[1]


def _rows(x):
    y = tg.zeros((4, 4))
    for i, row in enumerate(y):
        row[i] = x[i]
        row += x * i
    return np.sum(y**3)


def _stencil(x):
    u = tg.zeros(6)
    u[1:-1] = x
    for _ in range(3):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u**3)


def _assembled(x):
    y = tg.zeros((4, 4))
    np.add.at(y, ([0, 1, 1, 2], [0, 1, 1, 2]), 1.0)
    np.add.at(y, ([0, 1, 1, 2], [0, 1, 1, 2]), x)
    np.add.at(y, ([0, 1, 1], [2, 3, 3]), y[0, :3])  # what is added shows what is written
    np.subtract.at(y, ([0, 1], [2, 3]), y[:1, 0])
    for pair in ([0, 2], [2, 3]):
        y[np.ix_(pair, pair)] += np.outer(x[pair], x[pair])
    return np.sum(y**3)


def _constant_first(x):
    y = tg.zeros(4)
    z = y + x
    y += x * z
    return np.sum(y**2)


def _old_value_needed(x):
    y = tg.zeros(4)
    y.copy_(x)
    y *= y
    y **= 2
    y[:2] /= x[1:3]
    return np.sum(y * x)


def _copy_of_columns(x):
    y = np.outer(x, x)
    columns = y[:, [0, 2]]
    columns *= 2.0
    y[:, [1, 1]] += columns
    return np.sum(y**2) + np.sum(columns**3)


def _picked_from_zeros(x):
    y = tg.zeros((4, 4))
    columns = y[:, [1, 3]]
    columns += x[:2]
    y[2] -= x
    return np.sum(y**2) + np.sum(columns**3)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f",
    [_picked_from_zeros, _row, _row_of_zeros, _part_of_a_part, _rows, _stencil, _assembled, _constant_first, _old_value_needed, _copy_of_columns],
)  # fmt: skip
def test_writes_in_place_reach_value_and_gradient(f):
    """Through views as well, whether the buffer was a plain one before; what an integer array has picked is a copy."""
    v = np.array([0.3, 0.1, -1.0, 2.0])
    for g in (f, tg.grad(f), lambda x: tg.hvp(f)(x, v)):
        compiled = tg.compile(g)
        for x in (X, X - 0.3):
            np.testing.assert_allclose(compiled(x), g(x), rtol=1e-12)
        assert not compiled.report().guards


def test_a_view_written_after_its_base_was_saved():
    """What was saved is the base, what is written to a part of it, or the other way round: what was there is another name."""

    def base_saved(x):
        y = x * x
        z = y * x
        y[::2] *= x[1]
        return np.sum(z) + np.sum(y)

    def part_saved(x):
        y = x * x
        part = y[::2]
        z = part * x[::2]
        y *= x
        return np.sum(z) + np.sum(y)

    def base_new(x):
        y = x * x
        scaled = np.stack([v if i % 2 else v * x[1] for i, v in enumerate(y)])
        return np.sum(y * x) + np.sum(scaled)

    def part_new(x):
        return np.sum((x * x)[::2] * x[::2]) + np.sum(x * x * x)

    for f, without in ((base_saved, base_new), (part_saved, part_new)):
        for g in (tg.grad(f), tg.compile(tg.grad(f))):
            for x in (X, X + 1):
                agree(g(x), tg.grad(without)(x))


def test_bits_of_masks_and_integers_are_no_looks_at_values():
    def f(x):
        inside = (x > 0) & (x < 1) | ~(x < -2) ^ (x > 2)
        inside &= x > -9
        return np.sum(np.where(inside, x**2, x)) + x[(x > 0).astype(int) << 1].sum()

    compiled = tg.compile(tg.grad(f))
    for scale in (1.0, -1.0, 0.2, 5.0):
        agree(compiled(X * scale), tg.grad(f)(X * scale))
    assert not compiled.report().guards
    assert len(next(iter(compiled.programs.by_key.values()))) == 1


def test_parameters_in_dicts_are_taken_apart_by_the_entry():
    def f(p, mode):
        scale = np.exp(p["kernel"]["log_scale"])
        return np.sum(p["w"] ** 2) * scale + p["kernel"]["more"][0], {"scale": scale, mode: p["w"]}

    g = tg.value_and_grad(f, has_aux=True)
    compiled = tg.compile(g)
    p = {"w": X, "kernel": {"more": [np.ones(())], "log_scale": 0.3}}
    agree(compiled(p, "w"), g(p, "w"))
    assert compiled.latest.direct is not None
    keys = [key for key in p if key == "w"]
    before = sys.getrefcount(keys[0]), sys.getrefcount(X)
    for _ in range(50):
        result = compiled(p, "w")
    agree(result, g(p, "w"))
    assert [list(x) for x in (result[1], result[0][1])] == [["w", "kernel"], ["scale", "w"]]
    del result
    assert (sys.getrefcount(keys[0]), sys.getrefcount(X)) == before
    other = {"kernel": {"log_scale": 0.4, "more": [np.zeros(())]}, "w": -X}
    agree(compiled(other, "w"), g(other, "w"))
    agree(compiled(p, "mode"), g(p, "mode"))
    for wrong in ({"w": X}, {"w": X, "kernel": {}}, {"W": X, "kernel": p["kernel"]}):
        with pytest.raises(KeyError):
            compiled(wrong, "w")
    more = p | {"unused": 1.0}
    agree(compiled(more, "w")[0], g(more, "w")[0])


@pytest.mark.long
def test_routines_and_loops_among_numpy_calls_are_machine_code():
    """Islands: between a call that stays NumPy's, before a guard, and in a loop whose step has one."""
    a = np.array([[4.0, 1, 0, 1], [1, 5, 2, 0], [0, 2, 6, 1], [1, 0, 1, 3]])

    def f(x):
        spectrum = np.abs(np.fft.rfft(x))[1]
        m = a + np.outer(x, x) * spectrum
        sign, log = np.linalg.slogdet(m)
        y = np.linalg.solve(np.linalg.cholesky(m), x)
        y = tg.fori_loop(0, 60, lambda t, v: np.linalg.solve(m, v * (1 + t)) + x, y)
        if sign > 0:
            y = y + np.linalg.inv(m) @ y
        return np.sum(y**2) + log

    for g in (f, tg.value_and_grad(f), lambda x: tg.hvp(f)(x, X)):
        compiled = tg.compile(g)
        for x in (X, X / 2, X - 1):
            agree(compiled(x), g(x), 1e-9)
        left = set(compiled.report().calls) - {"rfft", "irfft", "ifft"}
        assert not left & {"solve", "solution", "factors", "inv", "slogdet", "cholesky", "loop"}
        assert compiled.report().guards


@pytest.mark.long
def test_the_logarithm_of_a_determinant_is_a_routine():
    rng = np.random.default_rng(3)

    def f(x):
        sign, log = np.linalg.slogdet(x)
        return 3 * sign + log

    for n in (1, 2, 3, 7, 32):
        for dtype in (np.float64, np.float32):
            points = [(rng.normal(size=(n, n)).astype(dtype),) for _ in range(5)]
            compiled = same_everywhere(f, *points, rtol=1e-11)
            assert not compiled.report().calls
            agree(compiled(np.zeros((n, n), dtype)), f(np.zeros((n, n), dtype)))
        gradient = tg.compile(tg.grad(f))
        agree(gradient(points[0][0]), tg.grad(f)(points[0][0]), 1e-9)


def test_a_filter_that_unpacks_slogdet_is_a_loop():
    """Its own NumPy calls are dropped, though they could raise: the loop raises where they did."""
    seen = np.random.default_rng(1).normal(size=(40, 2))

    def f(x):
        p, log = np.eye(2) * x[0] ** 2, 0.0
        for z in seen:
            s = p + x[1] ** 2 * np.eye(2)
            log -= np.linalg.slogdet(s)[1] + z @ np.linalg.solve(s, z)
            gain = p @ np.linalg.inv(s)
            p = 0.9 * (p - gain @ p) + x[2] ** 2 * np.outer(z, z)
        return log

    compiled = tg.compile(tg.value_and_grad(f))
    agree_as_a_whole(*([v, [g]] for v, g in (compiled(X), tg.value_and_grad(f)(X))))
    assert not compiled.report().calls and compiled.latest.direct is not None
    with pytest.raises(np.linalg.LinAlgError):
        compiled(np.zeros(4))


@pytest.mark.parametrize(
    "index",
    [
        [0, 2], [0, 0, 2], ([[0], [2]], [1, 3]), (slice(1, 3), [0, 2]), (..., [1, 2]), ([0, 0], [1, 1]), [[0, 1], [1, 2]],
        np.array([True, False, True]), (slice(None), np.array([True, False, False, True])), (1, [0, -1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [float, complex])
def test_stores_at_integer_arrays_are_machine_code(index, dtype):
    """Of places that are named twice, the last value counts, as for NumPy."""
    index = tuple(map(_array_of, index)) if isinstance(index, tuple) else _array_of(index)
    value = np.arange(1.0, 1 + np.zeros((3, 4))[index].size).reshape(np.zeros((3, 4))[index].shape)

    def f(x):
        y = np.outer(x[:3], x).astype(dtype)
        y[index] = value * x[0]
        y[index] *= x[1]
        return np.sum(np.abs(y) ** 2)

    for g in (f, tg.value_and_grad(f)):
        compiled = same_everywhere(g, (X,), (X - 1,))
        assert not {"stored", "setitem"} & set(compiled.report().calls)
    v = np.array([0.3, 0.1, -1.0, 2.0])
    same_everywhere(lambda x: tg.hvp(f)(x, v), (X,), (X - 1,))


def _array_of(part):
    return np.array(part) if isinstance(part, list) else part


@pytest.mark.long
def test_steps_that_fill_a_buffer_of_zeros_are_a_loop():
    """Each turn makes its zeros anew, small or large, and writes to parts of parts of them."""
    for n in (12, 60):
        x = np.random.default_rng(2).normal(size=(n, n))

        def wave(c, n=n):
            before, now = tg.zeros((n, n)), tg.zeros((n, n))
            seen = []
            for t in range(40):
                curved = tg.zeros((n, n))
                inside = curved[1:-1]
                inside[:, 1:-1] = now[2:, 1:-1] + now[:-2, 1:-1] - 2 * now[1:-1, 1:-1]
                before, now = now, 2 * now - before + 0.1 * c * curved
                now[n // 2, 3] += np.sin(0.3 * t)
                seen.append(now[3, 5])
            return np.sum(np.stack(seen) ** 2)

        compiled = tg.compile(tg.value_and_grad(wave))
        agree_as_a_whole(*([v, [g]] for v, g in (compiled(x), tg.value_and_grad(wave)(x))))
        report = compiled.report()
        assert report.recorded > 1000 and report.code < 200_000 and not report.calls


def test_the_derivative_of_expm_asks_for_no_value():
    def f(x):
        return np.sum(np.abs(tg.linalg.expm(1j * np.outer(x, x) - np.diag(x))))

    compiled = same_everywhere(tg.grad(f), (X,), (X - 1,), (np.zeros(4),))
    assert not compiled.report().guards


@pytest.mark.parametrize(
    "subscripts",
    ["ij,jk->", "ii", "ii->i", "ij,ik,il->jkl", "ijj->i", "ijk,jk,k->i", "i,ij,j", "iji,j->", "ij,jk,kl,lm->im", "ij,ij,ij->j"],
)  # fmt: skip
def test_sums_of_products_over_indices_are_machine_code(subscripts):
    rng = np.random.default_rng(5)
    operands = [rng.normal(size=(3,) * len(p)) for p in subscripts.split("->")[0].split(",")]

    def f(*xs):
        return np.sum(np.sin(np.einsum(subscripts, *xs)))

    gradient = tg.grad(f, argnums=tuple(range(len(operands))))
    for g in (f, gradient, lambda x, *others: tg.hvp(lambda x: f(x, *others))(x, x)):
        compiled = same_everywhere(g, operands, [x + 0.5 for x in operands], rtol=1e-10)
        assert not compiled.report().calls


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    ("n", "m"), [(9, 3), (3, 9), (40, 20), (30, 30), (1, 1), (60, 40), (60, 45)]
)
@pytest.mark.parametrize("dtype", seeds([np.float64, np.float32]))
def test_short_convolutions_are_machine_code(n, m, mode, dtype):
    rng = np.random.default_rng(8)
    a, v = rng.normal(size=n).astype(dtype), rng.normal(size=m).astype(dtype)

    def loss(a, v):
        return np.sum(np.sin(np.convolve(a, v, mode)) * np.correlate(a, v, mode))

    gradient = tg.grad(loss, argnums=(0, 1))
    for f in (loss, gradient, lambda a, v: tg.hvp(lambda a: loss(a, v))(a, a)):
        compiled = same_everywhere(f, (a, v), (a[::-1], v + 1), rtol=1e-11)
        few = min(n, m) <= 24 or (mode == "valid" and f is loss and abs(n - m) < 24)
        assert not few or not compiled.report().calls


def test_convolutions_keep_infinities_to_where_they_reach():
    """Nothing is multiplied by what stands for no entry."""
    a, v = np.array([1.0, np.inf, 2.0, 0.0, -0.0, 3.0, np.nan, 1.0]), np.array([0.5, np.inf, -1.0])
    for mode in ("full", "same", "valid"):
        compiled = tg.compile(lambda a, v, mode=mode: np.convolve(a, v, mode))
        with np.errstate(invalid="ignore"):
            for _ in range(2):
                np.testing.assert_array_equal(compiled(a, v), np.convolve(a, v, mode))
        assert not compiled.report().calls


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.select([x < -1, x > 1], [x**2, np.sin(x)], 3 * x),
        lambda x: np.select([x[0] < 1, x > 1], [x[0], x]),
        lambda x: np.select([x[:, None] > x, x > 0], [x[:, None] * x, x], default=2),
        lambda x: x * np.heaviside(x, 0.5), lambda x: np.heaviside(x, x) + x, np.sinc, lambda x: np.float_power(np.abs(x), 2.5),
        lambda x: np.where(np.isposinf(x) | np.isneginf(x), 1.0, x), lambda x: x**-7 + x**12 + x**-12,
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_choices_and_steps_are_machine_code(f, dtype):
    x = np.array([-2.0, -1.0, -0.5, -0.0, 0.0, 0.3, 1.0, 1.5, 2.0, np.nan, np.inf, -np.inf], dtype)
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    with np.errstate(all="ignore"):
        for y in (x, x[5:9]):
            for g in (f, tg.grad(lambda y: np.sum(f(y)))):
                compiled = tg.compile(g)
                got, expected = compiled(y), g(y)
                assert got.dtype == expected.dtype and not compiled.report().calls
                np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-12)
                numbers = ~np.isnan(expected)
                assert np.array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.long
def test_entries_along_an_axis_are_machine_code():
    rng = np.random.default_rng(4)
    x, places = rng.normal(size=(6, 5)), rng.integers(-5, 5, (6, 3))
    cubes = rng.integers(0, 4, (3, 2, 5))

    def along(x):
        return np.take_along_axis(x, places, 1) + np.median(x, 1)[:, None] * np.sort(x, 1)[:, 1:4]

    for f, at in (
        (along, x),
        (lambda x: np.take_along_axis(x, cubes, 1), rng.normal(size=(3, 4, 5))),
        (lambda x: np.quantile(x, 0.3, axis=1), x),
    ):

        def loss(x, f=f):
            return np.sum(np.sin(f(x)))

        same_everywhere(loss, (at,), (at[::-1],))
        assert not same_everywhere(tg.grad(loss), (at,), (at[::-1],)).report().calls
    asked = tg.compile(lambda x, i: np.take_along_axis(x, i, 1))
    assert np.array_equal(asked(x, places), np.take_along_axis(x, places, 1))
    with pytest.raises(IndexError):
        asked(x, places + 7)


def test_values_alone_are_composed_as_with_gradients():
    """NumPy's functions of several steps; what its steps would ask of values stays a call of NumPy's, and so do integers."""
    a = np.array([[4.0, 1, 0, 1], [1, 5, 2, 0], [0, 2, 6, 1], [1, 0, 1, 3]])

    def f(x):
        m = a + np.outer(x, x)
        parts = [
            np.var(m), np.std(m, axis=0), np.linalg.norm(m, axis=1), np.diff(x), np.cov(m), np.tile(x, 2), np.kron(x, x),
            np.trapezoid(x), np.pad(m, 1, mode="edge"), np.cross(x[:3], x[1:]), np.gradient(x), np.diag(m),
        ]  # fmt: skip
        return [p + 0.0 for p in parts]

    assert not same_everywhere(f, (X,), (X - 1,), rtol=1e-11).report().calls
    looked = same_everywhere(lambda x: np.median(np.nan_to_num(x)), (X,), (X - 1,))
    assert not looked.report().guards
    n = np.array([3, 1, 2, 5])
    for of in (np.diff, np.var, lambda n: np.pad(n, 1), lambda n: np.tile(n, 2)):
        same_everywhere(lambda n, of=of: of(n), (n,), (n + 1,))


def test_random_numbers_are_refused():
    generator = np.random.default_rng(0)
    for draw in (
        lambda x: x + np.random.rand(4),  # noqa: NPY002
        lambda x: x + generator.normal(size=4),
        lambda x: x + tg.randn(4),
    ):
        with pytest.raises(TraceError, match="random numbers"):
            tg.compile(draw)(tg.tensor(X))


def test_a_value_left_behind_is_refused():
    left = []

    def f(x):
        left.append(x)
        return x * 2

    tg.compile(f)(X)
    with pytest.raises(TraceError, match="left behind"):
        left[0] + 1


def test_a_gradient_that_would_be_lost_is_refused():
    w = tg.tensor(X, requires_grad=True)
    with pytest.raises(TraceError, match="closes over"):
        tg.compile(lambda x: w * x)(X)


def test_an_error_in_the_function_is_the_users():
    def f(x):
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            tg.compile(f)(X)
    agree(tg.grad(loss)(X), tg.grad(loss)(X))


def test_an_error_inside_a_program():
    c = tg.compile(lambda a: np.linalg.inv(a) * 2)
    c(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        c(np.zeros((2, 2)))
    agree(c(np.eye(2)), 2 * np.eye(2))


# ------------------------------------------------------------------------------------------------ the outer tape


@pytest.mark.parametrize("engine", ["sweep", "auto"])
def test_one_entry_of_the_outer_tape(engine):
    before = tg.engine()
    tg.set_engine(engine)
    try:
        _one_entry()
    finally:
        tg.set_engine(before)


def _one_entry():
    def f(a, b, n):
        return np.sum(a * np.sin(b)) * n, np.cos(b) + a, np.argmax(b)

    c = tg.compile(f)
    a, b = tg.tensor(X, requires_grad=True), tg.tensor(X + 1, requires_grad=True)
    y, z, k = c(a, b, 2)
    assert y.requires_grad and z.requires_grad and not k.requires_grad
    (y + (z * z).sum()).backward()
    a2, b2 = tg.tensor(X, requires_grad=True), tg.tensor(X + 1, requires_grad=True)
    y2, z2, _ = f(a2, b2, 2)
    (y2 + (z2 * z2).sum()).backward()
    agree(a.grad, a2.grad)
    agree(b.grad, b2.grad)
    (g,) = tg.autograd.grad(c(a, b, 2)[0], b, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), b)
    agree(h, tg.tensor(-2 * X * np.sin(X + 1)), 1e-11)
    assert len(str(tg.current_tape()).splitlines()) < 20


FACTOR = 2.0


@pytest.mark.parametrize("where", ["variable", "global", "array"])
def test_the_way_back_is_that_of_the_call(where, monkeypatch):
    """Though the function reads something else by then; where that cannot be had back there is an error."""
    factor, weights = 2.0, np.array([2.0, 2.0])
    reads = {"variable": lambda: factor, "global": lambda: FACTOR, "array": lambda: weights}[where]
    f = tg.compile(lambda x: np.sum(x * x * reads()))
    for _ in range(2):
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        y = f(x)
        factor, weights[0] = 5.0, 5.0
        monkeypatch.setitem(globals(), "FACTOR", 5.0)
        if where == "variable":
            y.backward()
            np.testing.assert_array_equal(x.grad.numpy(), [4.0, 8.0])
            assert f(x) == 25.0
        else:
            with pytest.raises(GraphError, match="has changed since"):
                y.backward()
        factor, weights[0] = 2.0, 2.0
        monkeypatch.undo()


def test_no_grad_and_untracked_tensors():
    c = tg.compile(loss)
    t = tg.tensor(X, requires_grad=True)
    with tg.no_grad():
        assert not c(t).requires_grad
    assert c(t).requires_grad
    assert not c(t.detach()).requires_grad
    with tg.no_grad():
        agree(tg.compile(tg.grad(loss))(X), tg.grad(loss)(X))


def test_a_program_that_depends_on_the_mode():
    """Entries do not look at the grad mode, so a function that asks for it has none."""
    c = tg.compile(lambda x: x * 2 if tg.is_grad_enabled() else x * 3)
    for _ in range(3):
        agree(c(X), X * 2)
        with tg.no_grad():
            agree(c(X), X * 3)


def test_mixed_outputs_are_packed():
    def f(x):
        return x.astype(np.float32), x[0], x + 1j * x

    t = tg.tensor(X, requires_grad=True)
    a, b, z = tg.compile(f)(t)
    assert (a.dtype, b.shape, z.dtype) == (np.float32, (), np.complex128)
    (a.sum() + b * 2 + np.real(z * np.conj(z)).sum()).backward()
    u = tg.tensor(X, requires_grad=True)
    a, b, z = f(u)
    (a.sum() + b * 2 + np.real(z * np.conj(z)).sum()).backward()
    agree(t.grad, u.grad, 1e-6)


# ------------------------------------------------------------------------------------------------ lifetime and threads


def test_numbers_that_loops_leave_behind_are_constants_of_the_program():
    """A comparison with what a loop over constants ends with: the trace's own constant, not one that the program was written with."""

    def f(x):
        rest = np.zeros_like(x)
        total = 0.0
        for i in range(1, 70):
            total = total + np.sum(rest[:i]) * i
        kept = [i * 0.5 for i in x if np.where(total.real > 0.7, total.real, 1.5) > 0.5]
        return np.stack(kept)

    compiled = tg.compile(f)
    for x in (np.ones(70, np.float32), np.full(70, 2.0, np.float32)):
        np.testing.assert_array_equal(compiled(x), f(x))


def test_constants_are_kept_and_released():
    big = np.ones(100_000)

    def make():
        return tg.compile(lambda x: np.sum(big * x))

    c = make()
    assert c(np.ones(100_000)) == 1e5
    with pytest.raises(ValueError, match="read-only"):
        big[0] = 2.0
    ref = weakref.ref(c)
    del c
    gc.collect()
    assert ref() is None
    big[0] = 2.0
    assert make()(np.ones(100_000)) == 1e5 + 1


@pytest.mark.long
def test_transforms_of_compiled_functions_are_compiled_as_a_whole():
    @tg.compile
    def loss(x, scale=1.0):
        return np.sum(np.sin(x) * x) * scale

    plain = loss.f
    v = np.cos(X)
    for transform in (tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian, tg.elementwise_grad):
        whole = transform(loss)
        for _ in range(2):
            agree(whole(X), transform(plain)(X))
            agree(whole(X, 3.0), transform(plain)(X, 3.0))
            agree(whole(X, scale=2.0), transform(plain)(X, scale=2.0))
    for _ in range(2):
        agree(tg.hvp(loss)(X, v), tg.hvp(plain)(X, v))
        agree(tg.grad(tg.grad(loss))(2.0), tg.grad(tg.grad(plain))(2.0))
        agree(tg.jacobian(tg.grad(loss), mode="forward")(X), tg.hessian(plain)(X))
    both = tg.value_and_grad(loss, argnums=(0, 1))
    assert isinstance(both, tg.compiler.Compiled) and both is tg.value_and_grad(
        loss, argnums=(0, 1)
    )
    agree(both(X, 2.0), tg.value_and_grad(plain, argnums=(0, 1))(X, 2.0))
    with pytest.raises(tg.NotDifferentiable, match="scalar output"):
        tg.grad(tg.compile(np.sin))(X)
    with pytest.raises(ValueError, match="mode 'sideways'"):
        tg.jacobian(loss, mode="sideways")


class Walks:
    """Steps as an optimiser takes them with a compiled loss, checked against the loss itself."""

    def __init__(self, f, *args):
        self.f = f
        self.compiled = tg.compile(f)
        self.args = args

    def step(self, scale=1.0, inputs=(0,)):
        found = []
        for f in (self.compiled, self.f):
            args = [tg.tensor(x, requires_grad=i in inputs) for i, x in enumerate(self.args)]
            y = f(*args)
            (scale * (y[0] if isinstance(y, tuple) else y)).backward()
            found.append([y, *(args[i].grad for i in inputs)])
        agree(*found)

    @property
    def learned(self):
        from tapegrad.compiler.entry import _Learned

        return [x for x in self.compiled._pulls.values() if isinstance(x, _Learned)]


@pytest.mark.long
def test_gradients_come_with_the_value_once_they_were_asked_for():
    walks = Walks(lambda x, w: np.sum(np.sin(x * w) * x), X, X[::-1].copy())
    for scale in (1.0, 1.0, -3.0, 1.0):
        walks.step(scale)
    (learned,) = walks.learned
    assert learned.active == (0,) and learned.unused == 0
    for inputs in ((0, 1), (0, 1), (1,), (0,), (0,)):
        walks.step(inputs=inputs)
    x = tg.tensor(X, requires_grad=True)
    w = tg.tensor(walks.args[1])
    y = walks.compiled(x, w)
    y.backward(retain_graph=True)
    first = x.grad.numpy().copy()
    x.grad.mul_(2.0)  # it is the caller's
    x.grad = None
    y.backward(retain_graph=True)
    agree(x.grad.numpy(), first)
    (g,) = tg.autograd.grad(walks.compiled(x, w), x, create_graph=True)
    agree(g.detach().numpy(), first)
    (h,) = tg.autograd.grad(g.sum(), x)
    agree(h.numpy(), tg.hvp(lambda x: walks.f(x, walks.args[1]))(X, np.ones_like(X)))


def test_gradients_that_nobody_asks_for_are_not_computed_for_ever():
    walks = Walks(lambda x: np.sum(np.exp(x)), X)
    walks.step()
    (learned,) = walks.learned
    x = tg.tensor(X, requires_grad=True)
    for _ in range(5):
        agree(walks.compiled(x).item(), np.sum(np.exp(X)))
    assert learned.unused == 3
    walks.step()
    assert learned.unused == 0
    walks.step()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_with_the_value_have_its_kinds(dtype):
    def loss(x, scale, data):
        return np.sum(x * x) * scale, np.argmax(x), data

    walks = Walks(loss, X.astype(dtype), 3.0, {"a": np.arange(3)})
    walks.args = (walks.args[0],)
    compiled, plain = walks.compiled, walks.f
    walks.compiled, walks.f = (
        (lambda f: lambda x: f(x, 3.0, {"a": np.arange(3)})[:2])(compiled),
        lambda x: plain(x, 3.0, None)[:2],
    )
    for _ in range(3):
        walks.step()
    assert len(compiled._pulls) >= 1


def test_a_gradient_with_the_value_is_of_what_was_read_at_the_call():
    scale = np.array([2.0])

    def loss(x):
        return np.sum(x * x) * scale[0]

    compiled = tg.compile(loss)
    for _ in range(3):
        x = tg.tensor(X, requires_grad=True)
        y = compiled(x)
        y.backward()
        agree(x.grad.numpy(), 2 * X * scale[0])
        scale += 1.0
    x = tg.tensor(X, requires_grad=True)
    y = compiled(x)
    scale += 1.0
    y.backward()  # the gradient was there before
    agree(x.grad.numpy(), 2 * X * (scale[0] - 1.0))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: np.sum(np.frexp(x)[0]), lambda x: np.sum(np.modf(x)[0]) + x[1], lambda x: np.sum(np.cumsum(np.frexp(x)[0])),
        lambda x: np.sum(np.frexp(np.cumsum(x))[0]), lambda x: np.sum(np.partition(x, 2)[:2]), lambda x: np.linalg.svd(x[:, None] * x)[1][0],
        lambda x: np.sum(np.linalg.solve(x[:, None] * x + 30 * np.eye(4), x)) + np.frexp(x[0])[0],
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "test",
    [
        lambda x: x[0] > 10.0,
        lambda x: np.cumsum(x)[-1] > 20.0,
        lambda x: np.linalg.det(x[:, None] + np.eye(4)) > 9.0,
    ],
)
def test_guards_are_checked_that_nothing_else_needs(test, other):
    """Of programs with NumPy calls, where a native part would compute nothing but them."""

    def f(x):
        return other(x) if test(x) else np.sum(x * x)

    for of in (lambda x: x, tg.tensor):
        for points in ((X, X + 20, X, X + 20, X), (X + 20, X, X + 20, X + 20, X)):
            compiled = tg.compile(f)
            for x in points:
                np.testing.assert_allclose(float(compiled(of(x))), f(x), rtol=1e-12)


def test_a_branch_without_a_derivative_gives_its_value_all_the_same():
    def loss(x):
        return np.sum(np.frexp(x)[0]) if x[0] > 10.0 else np.sum(x * x)

    compiled = tg.compile(loss)
    for _ in range(2):
        x = tg.tensor(X, requires_grad=True)
        compiled(x).backward()
    x = tg.tensor(X + 20.0, requires_grad=True)
    y = compiled(x)
    agree(y.item(), loss(X + 20.0))
    x = tg.tensor(X, requires_grad=True)
    compiled(x).backward()
    agree(x.grad.numpy(), 2 * X)


def test_a_gradient_with_the_value_is_nothing_where_nothing_comes_back():
    compiled = tg.compile(lambda x: np.sum(np.sqrt(x)))
    for scale in (1.0, 1.0, 0.0):
        x = tg.tensor(np.array([0.0, 4.0]), requires_grad=True)
        with np.errstate(all="ignore"):
            (scale * compiled(x)).backward()
        expected = scale * np.array([np.inf, 0.25]) if scale else np.zeros(2)
        np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: x * 2.0, 3.0), (tg.grad(lambda x: x**3), 2.0), (tg.grad(tg.grad(lambda x: x**3)), 2.0),
        (tg.value_and_grad(lambda x: x * np.sin(x)), 2.0), (tg.grad(lambda x: x**2), np.float64(2.0)), (tg.hessian(lambda x: x**3), 2.0),
        (lambda z: z * z, 1 + 2j), (tg.grad(lambda z: np.abs(z) ** 2), 1 + 2j), (tg.grad(lambda a: a[0] * a[1] + a[2]), [1.0, 2.0, 3.0]),
        (tg.value_and_grad(lambda d: d["a"] * d["b"]), {"a": 2.0, "b": np.float64(3.0)}), (lambda x: tg.vjp(lambda y: y * y, x)[1](1.0), 2.0),
        (lambda x: [x * i for i in range(7)] + [np.sin(x) * i for i in range(3)] + [x] * 2, 2.0),
        (lambda z: [z * i for i in range(7)] + [z.real], 2.0 + 1j), (tg.grad(lambda xs: sum(x * x for x in xs)), [0.5] * 9),
        (lambda x: tg.grad(lambda y: y * x)(3.0) + x, 2.0),
    ],
)  # fmt: skip
def test_numbers_are_of_the_kind_that_the_function_gives(f, x):
    """Python's own where they are without tg.compile, by one native call all the same."""
    compiled = tg.compile(f)
    for _ in range(3):
        assert repr(compiled(x)) == repr(f(x))
    assert compiled.latest.direct is not None


def test_transforms_of_compiled_functions_keep_what_is_static():
    runs = []

    def power(n, x):
        runs.append(n)
        return np.sum(x**n), {"n": n}

    gradient = tg.grad(tg.compile(power, static_argnums=0), 1, has_aux=True)
    for n in (2, 3, 2, 3):
        g, aux = gradient(n, X)
        agree(g, n * X ** (n - 1))
        assert aux == {"n": n}
    assert runs == [2, 3]
    # Python's ints are numbers where the derivative is by them, and make no program each.
    square = tg.compile(lambda x, n=2: x**n)
    assert [tg.grad(square)(k) for k in range(5)] == [0.0, 2.0, 4.0, 6.0, 8.0] and tg.grad(square)(
        3, 3
    ) == 27.0
    assert len(tg.grad(square).programs.by_key) == 2
    nested = tg.compile(lambda d: d["a"] * d["b"][0])
    assert tg.grad(nested)({"a": 2, "b": [3, 4.0]}) == {"a": 3.0, "b": [2.0, 0.0]}
    assert tg.hvp(square)(2, 1) == tg.hessian(square)(2) == 2.0
    for wrong in (3, None, "x"):
        with pytest.raises(TypeError, match="by argument|positions of arguments"):
            tg.grad(square, argnums=wrong)(1.0)
    # Positions are others in a product with a Hessian.
    first = tg.compile(lambda x, n: np.sum(x**n), static_argnums=1)
    for _ in range(2):
        agree(tg.hvp(first)(X, X, 3), 6 * X * X)


def test_gradients_of_compiled_functions_are_part_of_what_is_around_them():
    loss = tg.compile(lambda x: np.sum(np.sin(x) * x))
    x = tg.tensor(X, requires_grad=True)
    y = (tg.grad(loss)(x) * X).sum()
    y.backward()
    agree(x.grad.numpy(), tg.hvp(loss.f)(X, X))
    whole = tg.compile(lambda x: np.sum(tg.grad(loss)(x) ** 2))
    for _ in range(2):
        agree(whole(X), np.sum(tg.grad(loss.f)(X) ** 2))
    assert not whole.report().calls


@pytest.mark.long
def test_many_threads_at_once():
    c = tg.compile(tg.value_and_grad(loss))
    expected = [tg.value_and_grad(loss)(X + k) for k in range(8)]

    def work(k):
        for _ in range(50):
            agree(c(X + k), expected[k])
            agree(c(np.append(X + k, 1.0))[0], loss(np.append(X + k, 1.0)))

    in_threads(*(partial(work, k) for k in range(8)))


def test_arrays_that_leave_a_list_meanwhile():
    """A program without the interpreter lock holds what it reads."""
    big = np.full(100_000, 0.5)
    c = tg.compile(lambda xs: np.sum(np.sin(xs[0])) + np.sum(xs[1]))
    given = [big, big * 2]
    first = c(given)
    done = threading.Event()

    def replace():
        while not done.is_set():
            given[0], given[1] = np.full(100_000, 0.5), np.full(100_000, 1.0)

    thread = threading.Thread(target=replace)
    thread.start()
    values = [c(given) for _ in range(50)]
    done.set()
    thread.join()
    np.testing.assert_allclose(values, first, rtol=1e-12)


def test_eager_code_in_another_thread_is_undisturbed():
    results = []
    started = threading.Event()

    def f(x):
        started.set()
        for _ in range(200):
            x = np.sum(x * np.ones((4, 4)), axis=0) / 4
        return x

    def other():
        started.wait()
        results.extend(tg.grad(loss)(X) for _ in range(20))

    thread = threading.Thread(target=other)
    thread.start()
    tg.compile(f)(X)
    thread.join()
    for got in results:
        agree(got, tg.grad(loss)(X))


@pytest.mark.long
def test_the_first_to_ask_for_special_functions():
    """Their ops are declared while the function is traced, and recorded all the same, in one trace."""
    source = (
        "import numpy as np, tapegrad as tg\n"
        "runs = []\n"
        "def loss(x):\n"
        "    runs.append(x)\n"
        "    return np.sum(tg.special.digamma(x))\n"
        "f = tg.compile(tg.grad(loss))\n"
        "x = np.linspace(1.0, 2.0, 10_000)\n"
        "got = f(x), f(x)\n"
        "assert len(runs) == 1\n"
        "for g in got: np.testing.assert_allclose(g, f.f(x), rtol=1e-12)\n"
        "assert not f.latest.guards"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


def test_a_function_that_declares_an_op_each_time_it_runs():
    from tapegrad.core.primitive import elementwise

    def loss(x):
        own = elementwise(
            lambda v: np.sin(v), lambda x: np.cos(x), name="declared_inside", method=False
        )
        return np.sum(own(x))

    agree(tg.compile(tg.grad(loss))(X), np.cos(X))


@pytest.mark.long
def test_import_is_light():
    code = "import sys, tapegrad; assert 'tapegrad.compiler' not in sys.modules and 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


# ------------------------------------------------------------------------------------------------ loops


def oscillator(parameters, start):
    """Steps of Heun's method on a pendulum, on scalars, with a force that is a number of its own in each."""
    x, v = start[0], start[1]
    for k in range(40):
        force = math.sin(0.1 * k)
        a = force - parameters[0] * np.sin(x) - parameters[1] * v
        x1, v1 = x + 0.05 * v, v + 0.05 * a
        b = force - parameters[0] * np.sin(x1) - parameters[1] * v1
        x, v = x + 0.025 * (v + v1), v + 0.025 * (a + b)
    return x * x + v * v


def recurrent(weights, inputs):
    """A recurrent network: a vector carried, rows read by number, and a sum on the way."""
    h, total = np.zeros(3), 0.0
    for i in range(70):
        h = np.tanh(weights @ h + inputs[i] * HEIGHTS[i])
        total = total + h[0] * 0.5
    return total + np.sum(h)


HEIGHTS = np.linspace(0, 1, 70)


def species(parameters):
    """Two populations, whose halves of a turn are the same calls: the period is twice the distance at which they come again."""
    a, b, c, d, u, v = parameters
    for _ in range(100):
        u, v = u + 0.02 * (a - b * v) * u, v + 0.02 * (d * u - c) * v
    return u * u + v


def histories(parameters):
    """The same, with the way of each kept in a list: the walk back takes two stacked arrays apart before its loop."""
    a, b, c, d, u, v = parameters
    us, vs = [u], [v]
    for _ in range(100):
        u, v = u + 0.02 * (a - b * v) * u, v + 0.02 * (d * u - c) * v
        us.append(u)
        vs.append(v)
    return np.sum(np.stack([np.stack(us), np.stack(vs)])[:, ::10] ** 2)


def neighbours(x):
    """Rosenbrock's function, term by term: each turn adds to three places of the gradient, two of them the same."""
    total = 0.0
    for i in range(x.size - 1):
        total = total + 100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2
    return total


RATES = np.array([0.5, 0.2, 1.0, 0.3, 3.0, 1.5])


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1)])
def test_what_is_gathered_is_computed_before(shape):
    order = np.arange(shape[-1])[::-1].copy()

    def turns(q):
        x = q
        for _ in range(5):
            x = x[..., order] + q
        return x

    q = np.arange(math.prod(shape)).reshape(shape) + 0.3
    compiled = tg.compile(turns)
    compiled(q)  # what is traced is computed by NumPy
    agree(compiled(q), turns(q))


@pytest.mark.parametrize(
    "f, points",
    [
        (tg.value_and_grad(oscillator, argnums=(0, 1)), [(X[:2], X[2:]), (X[2:], X[:2])]),
        (tg.value_and_grad(recurrent, argnums=(0, 1)), [(np.eye(3) * k, np.sin(np.arange(210.0) * k).reshape(70, 3)) for k in (1, 2)]),
        (tg.value_and_grad(species), [(RATES,), (RATES * 1.1,)]),
        (tg.value_and_grad(neighbours), [(np.sin(np.arange(50.0) * k),) for k in (1, 2)]),
    ],
    ids=["scalars", "vectors", "halves alike", "neighbours"],
)  # fmt: skip
def test_loops_are_rolled(f, points):
    """A loop in Python becomes a loop of the program, which computes the same."""
    compiled = same_everywhere(f, *points, rtol=1e-10)
    assert sum(native.loops for native in compiled.latest.natives) == 2


def test_a_loop_that_keeps_two_lists_is_short():
    """The walk back rolls too, though it reads entries of two arrays."""
    compiled = same_everywhere(tg.value_and_grad(histories), (RATES,), (RATES * 1.1,), rtol=1e-10)
    assert len(compiled.source.splitlines()) < 400


def test_a_rolled_loop_is_short():
    """Machine code does not grow with the number of steps."""
    sizes = []
    for n in (100, 200):

        def f(x, n=n):
            for _ in range(n):
                x = x + 0.1 * (np.sin(x) - x * x * 0.25 + np.cos(x) * 0.125 + 0.5 * x)
            return x

        compiled = same_everywhere(tg.grad(f), (np.float64(0.3),), (np.float64(0.7),), rtol=1e-10)
        sizes.append(compiled.report().code)
    assert sizes[1] < 1.2 * sizes[0]


def test_a_loop_without_machine_code_is_a_loop_of_calls():
    """The slower executor of a loop gives the same."""
    from tapegrad.compiler import callout, rolling

    compiled = tg.compile(tg.value_and_grad(oscillator, argnums=(0, 1)))
    expected = compiled(X[:2], X[2:])
    graph = rolling.rolled(compiled.latest.graph)
    assert sum(node.name == "loop" for node in graph.nodes) == 2
    run, _ = callout.written(graph, "test")
    got = run(X[:2], X[2:])
    agree(got, [expected[0], *expected[1]], 1e-11)


def test_reports():
    c = tg.compile(tg.value_and_grad(lambda x: np.sum(tg.special.digamma(np.sin(x) + 2) * x)))
    with pytest.raises(ValueError, match="call the function once"):
        c.report()
    c(X)
    report = c.report()
    assert report.calls == {"polygamma": 1}
    assert report.expressions["sin"] == report.expressions["psi"] == 1
    assert "psi" in str(report) and "<table" in report._repr_html_()
    assert "define" in c.ir and "polygamma" in c.source and "for [4]" in c.source


def test_the_slower_entry(monkeypatch):
    """Where the layout of Python's objects is unknown, programs are called by a table of pointers."""
    from tapegrad.llvm import jit

    monkeypatch.setitem(jit._state, "works", False)
    c = tg.compile(tg.value_and_grad(loss))
    for x in (X, X + 1, X):
        agree(c(x), tg.value_and_grad(loss)(x))


def test_a_damaged_cache_is_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    f = tg.value_and_grad(loss)
    agree(tg.compile(f)(X), f(X))
    files = list(tmp_path.glob("program-*.bin"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-100])
    compiled = tg.compile(f)
    compiled(X)
    agree(compiled(X), f(X))


def test_the_cache_is_bounded(tmp_path, monkeypatch):
    """The least recently used go first, and what a killed process left; what a process is writing now stays."""
    from tapegrad.llvm import jit

    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    texts = [f"define double @f() {{\n  ret double {k}.0\n}}\n" for k in range(3)]
    files = []
    for k, text in enumerate(texts):
        jit.compiled(text)
        (new,) = set(tmp_path.glob("program-*.bin")) - set(files)
        files.append(new)
        os.utime(new, (1e9 + k, 1e9 + k))
    jit.compiled(texts[0])  # used now
    for name, age in ((".new-left", 7200.0), (".new-now", 0.0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    monkeypatch.setattr(jit, "KEPT_BYTES", int(2.5 * files[0].stat().st_size))
    jit.bounded(tmp_path)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {files[0].name, files[2].name, ".new-now"}


SHARING = """
import sys
import numpy as np, tapegrad as tg
x = np.linspace(0.1, 2, 7)
for k in range(6):
    f = tg.value_and_grad(lambda x: np.sum(np.sin(x * k) ** k) + np.prod(x))
    c = tg.compile(f)
    c(x)
    got, expected = c(x), f(x)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-11, atol=1e-12)
"""


@pytest.mark.long
def test_processes_share_a_cache(tmp_path):
    """Several at once write and read the same programs while their files are cut short: each answers right, and what stays is whole."""
    from tapegrad.llvm import cache

    environment = {
        **os.environ,
        "TAPEGRAD_CACHE_DIR": str(tmp_path),
        "TAPEGRAD_COMPILER_STRICT": "1",
    }
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", SHARING], env=environment)
        for _ in range(3)
    ]
    cut = 0
    while any(process.poll() is None for process in running):
        for file in tmp_path.glob("program-*.bin"):
            if cut < 4:
                file.write_bytes(file.read_bytes()[:-50])
                cut += 1
        time.sleep(0.01)
    assert [process.wait() for process in running] == [0, 0, 0] and cut
    subprocess.run([sys.executable, "-c", SHARING], env=environment, check=True, timeout=600)
    files = list(tmp_path.glob("program-*.bin"))
    assert len(files) >= 5 and all(cache.read(file) is not None for file in files)


FULL = """
import gc, resource, sys
import numpy as np, tapegrad as tg
from tapegrad.compiler import tracing
from tapegrad.llvm import jit

tracing.PUT_OFF = 1 << 60  # the first call runs no program yet, so nothing is kept for the next one

def f(x):  # exp(x) is stored for the second loop
    y = np.exp(x)
    return np.sum(y / np.sum(y) * x) if sys.argv[1] == "scratch" else y * 2

jit._state["works"] = sys.argv[2] == "entry"
x = np.linspace(0, 1, 5_000_000)
c = tg.compile(f)
expected = c(x)
assert c.latest.native is not None and (c.latest.direct is not None) == (sys.argv[2] == "entry")
if sys.argv[1] == "scratch":
    assert c.report().memory > 30_000_000
gc.collect()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 10_000_000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        c(x)
    except MemoryError:
        pass
    else:
        raise AssertionError("there was memory")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
np.testing.assert_allclose(c(x), expected, rtol=1e-12)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
@pytest.mark.parametrize("entry", ["entry", "table"])
@pytest.mark.parametrize("what", ["scratch", "result"])
def test_without_memory(what, entry):
    """A failed allocation is a MemoryError, and nothing worse comes of it."""
    subprocess.run(
        [sys.executable, "-c", FULL, what, entry],
        check=True,
        timeout=600,
        env={**os.environ, "TAPEGRAD_NUM_THREADS": "2"},
    )


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
def test_interrupts_between_calls():
    """Ctrl-C ends a row of calls with KeyboardInterrupt, in small programs, shared ones, and those that call NumPy; the next is right."""

    def calling(x):
        return np.sum(np.linalg.inv(np.outer(x, x) + np.eye(len(x))))

    def plainly(x):
        return np.sum(np.sin(x) * x)

    for f, x in ((plainly, X), (plainly, np.linspace(0, 1, 300_000)), (calling, X)):
        c = tg.compile(tg.value_and_grad(f))
        expected = [c(x), c(x)][-1]
        handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                while True:
                    c(x)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        agree(c(x), expected, 0.0)


def test_code_lives_as_long_as_its_callable():
    """The entry alone keeps machine code and constants mapped."""
    table = np.arange(1000.0)
    c = tg.compile(lambda x: np.sum(x * table[:4]) + np.exp(x[0]))
    c(X)
    entry = type(c).__call__
    del c
    gc.collect()
    agree(entry(X), np.sum(X * table[:4]) + np.exp(X[0]))


# ------------------------------------------------------------------------------------------------ native functions inside


def native_functions():
    """Made when first asked for: collecting tests shall not import Numba."""

    @tg.njit
    def weighted(x):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i] * x[i] * i
        return total

    @tg.njit
    def several(x, a):
        count = 0
        for i in range(x.shape[0]):
            if x[i] > a:
                count += 1
        return x * a, count, a * a

    @tg.njit
    def writing(x):
        x[0] = 2.0
        return x[0] * x[1]

    return weighted, several, writing


@pytest.mark.long
def test_native_functions_inside():
    """A call of a tg.njit function is a call of the program, with its derivatives; integers among its results are no constants."""
    weighted, several, writing = native_functions()
    for f in (
        lambda x: weighted(2 * x),
        tg.value_and_grad(lambda x: weighted(2 * x) * np.sin(x[0])),
        tg.grad(weighted),
        tg.hessian(lambda x: weighted(2 * x)),
        lambda x: tg.jvp(weighted, (x,), (2 * x,)),
    ):
        same_everywhere(f, (X,), (X + 1,))
    same_everywhere(lambda x, a: several(x, a=a), (X, 0.1), (X + 1, 1.5))

    def f(x, a):
        scaled, count, square = several(x, a)
        return np.sum(scaled**2) * count + square

    same_everywhere(tg.value_and_grad(f, argnums=(0, 1)), (X, 0.1), (X + 1, 1.5))
    with pytest.raises(tg.errors.NotDifferentiable, match="writes to an argument"):
        tg.compile(lambda x: writing(x + 0))(X)


def test_numba_functions_are_named():
    import numba

    with pytest.raises(TraceError, match="tg.njit"):
        tg.compile(lambda x: numba.njit(lambda x: x.sum())(x + 0))(X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("of", [np.negative, np.exp, np.tanh, np.sin, np.log1p, np.sqrt, np.arctan])
def test_an_expression_has_one_value_in_all_loops(of, dtype):
    """The largest entry is one of the entries for whoever computes them again: for roots of differences, and for its derivative."""
    rng = np.random.default_rng(0)

    def f(x, y, z):
        h = of(np.abs(x * y + z))
        return np.sum(np.sqrt(np.max(h) - h)), np.max(x * y - z) * 3 + np.sum(x * y * z)

    def last(*args):
        return f(*args)[1]

    values, gradient = tg.compile(f), tg.compile(tg.value_and_grad(last, argnums=(0, 1, 2)))
    for _ in range(10):
        args = rng.normal(size=(3, 37)).astype(dtype)
        assert np.isfinite(values(*args)[0])
        (_, got), expected = gradient(*args), tg.grad(last, argnums=(0, 1, 2))(*args)
        np.testing.assert_allclose(got, expected, rtol=1e-5)


# ------------------------------------------------------------------------------------------------ random programs

UNARY = [
    np.sin, np.cos, np.tanh, np.exp, np.abs, np.negative, np.square, np.arctan, np.floor, np.sign,
    lambda x: np.sqrt(np.abs(x) + 1), lambda x: np.log(x * x + 1), lambda x: np.log1p(np.exp(-np.abs(x))),
    lambda x: x**3, lambda x: x**2, lambda x: 1 / (1 + x * x), lambda x: np.where(x > 0.1, x, 0.5 * x),
    lambda x: np.clip(x, -0.5, 0.75), lambda x: 2.5 * x - 1, lambda x: x * 0, lambda x: x + 0 * x, lambda x: np.expm1(x / 4),
    lambda x: x.T, lambda x: np.reshape(x, -1).reshape(x.shape), lambda x: np.copy(x), lambda x: np.arcsinh(x),
]  # fmt: skip
BINARY = [
    np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.arctan2, np.hypot, np.logaddexp,
    lambda x, y: x / (1 + y * y), lambda x, y: np.where(x > y, x, y * y), lambda x, y: x * y + x,
    lambda x, y: (x > 0) * y, lambda x, y: np.where((x > 0) & (y < 1), x - y, y),
]  # fmt: skip
REDUCE = [
    lambda x: np.sum(x), lambda x: np.mean(x), lambda x: np.max(x), lambda x: np.sum(x, axis=-1) if x.ndim else x,
    lambda x: np.sum(x, axis=0) if x.ndim else x, lambda x: np.max(x, axis=0, keepdims=True) if x.ndim else x,
    lambda x: np.mean(x, axis=-1, keepdims=True) if x.ndim else x, lambda x: np.min(x, axis=-1) if x.ndim else x,
    lambda x: x[0] if x.ndim else x, lambda x: x[..., 1:] if x.ndim and x.shape[-1] > 1 else x,
    lambda x: x[::-1] if x.ndim else x, lambda x: np.concatenate([x, 2 * x]) if x.ndim else x,
    lambda x: np.cumsum(x, axis=-1) if x.ndim else x, lambda x: np.sort(x, axis=-1) if x.ndim else x,
    lambda x: x[:, None] * x if x.ndim == 1 and x.size < 8 else x, lambda x: x @ x.T if x.ndim == 2 else x,
    lambda x: np.expand_dims(x, 0) if x.ndim < 3 else x, lambda x: np.broadcast_to(x, (2, *x.shape)) if x.ndim < 3 else x,
    lambda x: x[np.array([0, -1, 0])] if x.ndim else x, lambda x: x[..., np.array([[0, -1]])] if x.ndim else x,
    lambda x: x[np.argsort(x)] if x.ndim == 1 else x, lambda x: np.take(x, np.argmax(x, axis=-1), axis=-1) if x.ndim else x,
    lambda x: np.roll(x, 3, axis=0) if x.ndim else x, lambda x: x[::-1, np.arange(x.shape[1])] if x.ndim == 2 else x,
]  # fmt: skip


def random_program(seed):
    """A program of random ops on random operands, with sharing; scalar at the end."""
    rng = np.random.default_rng(seed)
    steps = [
        (
            int(rng.integers(3)),
            int(rng.integers(1000)),
            int(rng.integers(1000)),
            int(rng.integers(1000)),
        )
        for _ in range(int(rng.integers(3, 14)))
    ]

    def program(*xs):
        values = list(xs)
        for kind, which, i, j in steps:
            x = values[-1 - i % min(len(values), 4)]
            if kind == 0:
                values.append(UNARY[which % len(UNARY)](x))
            elif kind == 1:
                y = values[j % len(values)]
                try:
                    np.broadcast_shapes(x.shape, y.shape)
                except ValueError:
                    y = np.sum(y)
                values.append(BINARY[which % len(BINARY)](x, y))
            elif x.size < 200:
                values.append(REDUCE[which % len(REDUCE)](x))
        return sum((np.sum(np.tanh(v)) for v in values[-3:]), start=0.0) + np.mean(values[0])

    shapes = [
        [(4,), (4,)],
        [(3, 4), (4,)],
        [(2, 3), (2, 3)],
        [(), (3,)],
        [(17,), (1,)],
        [(2, 1, 3), (4, 1)],
        [(33,), (33,)],
    ]
    shape = shapes[int(rng.integers(len(shapes)))]
    dtype = np.float64 if rng.random() < 0.8 else np.float32
    points = [tuple(np.asarray(rng.normal(size=s), dtype) for s in shape) for _ in range(2)]
    return program, points


COMPLEX_UNARY = [
    np.conj, np.exp, np.negative, np.square, lambda z: 1j * z, lambda z: z / (3 + np.abs(z)), lambda z: 1 / (2.5 + 1j * np.real(z)),
    lambda z: np.where(np.real(z) > 0, z, 2 * z), lambda z: z[::-1] if z.ndim else z, lambda z: z.T, lambda z: np.real(z) + 0.5j,
    lambda z: z[np.array([0, -1, 0])] if z.ndim else z, lambda z: np.mean(z, axis=0, keepdims=True) if z.ndim else z,
    lambda z: np.concatenate([z, 2j * z]) if z.ndim and z.size < 50 else z, lambda z: np.sum(z, axis=-1) if z.ndim else z,
    lambda z: np.abs(z), lambda z: np.log(z + 4), lambda z: np.reshape(z, -1), lambda z: z @ np.conj(z.T) if z.ndim == 2 else z,
]  # fmt: skip
COMPLEX_BINARY = [
    np.add, np.subtract, np.multiply, lambda a, b: a / (3 + np.abs(b)), lambda a, b: np.conj(a) * b, lambda a, b: a + np.imag(b),
    lambda a, b: np.where(np.abs(a) > np.abs(b), a, b), lambda a, b: np.real(a) * b,
]  # fmt: skip


def random_complex_program(seed):
    """The same with complex numbers; what grows is scaled down, and the sum of sizes comes out."""
    rng = np.random.default_rng(seed)
    steps = [rng.integers([2, 999, 999, 999]).tolist() for _ in range(int(rng.integers(3, 12)))]

    def program(*zs):
        values = list(zs)
        for kind, which, i, j in steps:
            z, w = values[-1 - i % min(len(values), 3)], values[j % len(values)]
            if kind == 0:
                z = COMPLEX_UNARY[which % len(COMPLEX_UNARY)](z)
            else:
                try:
                    np.broadcast_shapes(z.shape, w.shape)
                except ValueError:
                    w = np.sum(w)
                z = COMPLEX_BINARY[which % len(COMPLEX_BINARY)](z, w)
            values.append(z / (1 + np.abs(z) / 8))
        return sum((np.sum(np.abs(v + 0.1) ** 2) for v in values[-3:]), start=0.0)

    shape = [[(4,), (4,)], [(3, 4), (4,)], [(), (3,)], [(17,), (1,)]][int(rng.integers(4))]
    kind = rng.choice(["c16", "c16", "c8"])
    points = [
        tuple((rng.normal(size=s) + 1j * rng.normal(size=s)).astype(kind)[()] for s in shape)
        for _ in range(2)
    ]
    return program, points


PROGRAMS = int(os.environ.get("TAPEGRAD_FUZZ", "50"))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(0, PROGRAMS, 10)))
def test_random_programs(seed, monkeypatch):
    """Eager against compiled, value and both gradients, at two points; in half of them as if the arrays were large."""
    from tapegrad.compiler import tracing

    for k in range(seed, min(seed + 10, PROGRAMS)):
        monkeypatch.setattr(tracing, "PUT_OFF", 1 if k % 2 else 50_000)
        compiled_as_eager(k)


def compiled_as_eager(seed):
    """One random program, its value and both gradients."""
    program, points = random_complex_program(seed) if seed % 5 == 4 else random_program(seed)
    both = tg.value_and_grad(program, argnums=(0, 1))
    compiled = tg.compile(both)
    with np.errstate(all="ignore"):
        for point in (points[0], *points):
            agree_as_a_whole(compiled(*point), both(*point))


# ------------------------------------------------------------------------------------------------ rows along other axes


def over_first(x, w):
    e = np.exp(x - np.max(x, axis=0))
    return np.sum(w * e / np.sum(e, axis=0))


def over_first_and_last(x, w):
    y = x - np.mean(x, axis=0)
    return np.sum(np.exp(y / np.sqrt(1 + np.sum(y * y, axis=-1, keepdims=True))) * w)


def with_results(x, w):
    e = np.exp(x) / (1 + np.sum(np.exp(x), axis=0))
    return np.sum(e * w), e, np.sum(e * w, axis=0), e > 0.1


def with_borders(x, w):
    e = np.exp(np.concatenate([x, w[:, :2] * x[:, -2:], 0.5 * x[:, ::-1]], axis=1))
    return np.sum((e / np.sum(e, axis=0))[:, 1:-2] ** 2)


def with_places(x, w):
    e = np.exp(x[:, np.arange(x.shape[1]) // 2] + x[np.arange(x.shape[0])[::-1]] * w)
    return np.sum(np.tanh(e / np.sum(e, axis=0)) * w)


def with_products(x, w):
    r = np.tanh(x) @ np.swapaxes(w[..., :3, :], -1, -2)
    e = np.exp(r - np.max(r, axis=0))
    return np.sum((e / np.sum(e, axis=0)) ** 2)


@pytest.fixture(params=[1, 2])
def turned(request, monkeypatch):
    """Any program as one whose intermediate results are large; how many had rows along other axes, by one thread and by two."""
    from tapegrad.compiler import rows, schedule

    for name in ("LARGE", "ADJACENT"):
        monkeypatch.setattr(rows, name, 0)
    monkeypatch.setattr(rows, "LESS", 1e9)
    monkeypatch.setattr(rows, "SHORTEST", 2)
    monkeypatch.setattr(rows, "CACHED", 64)
    monkeypatch.setattr(schedule, "EVEN", 1)
    if request.param > 1:
        monkeypatch.setattr(schedule, "CHUNK", 30)
        monkeypatch.setattr(schedule, "PARTIAL", 1)
    before, found = schedule.Scheduler._along_others, []

    def counted(self, first):
        result = before(self, first)
        found.append(any(group.turned for group in result.groups))
        return result

    monkeypatch.setattr(schedule.Scheduler, "_along_others", counted)
    threads = tg.get_num_threads()
    tg.set_num_threads(request.param)
    yield found
    tg.set_num_threads(threads)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("shape", seeds([(4, 37, 5), (3, 50), (2, 9, 70), (40, 6)], 2), ids=str)
@pytest.mark.parametrize(
    "f", [over_first, over_first_and_last, with_results, with_borders, with_places, with_products]
)
def test_rows_along_other_axes(f, shape, turned):
    r = np.random.default_rng(5)

    def whole(x, w):
        if f is not with_results:
            return tg.value_and_grad(f, argnums=(0, 1))(x, w)
        gradients = tg.grad(lambda x, w: f(x, w)[0], argnums=(0, 1))(x, w)
        return (*f(x, w), gradients)

    for dtype in (np.float64, np.float32):
        x, w = (r.normal(size=shape).astype(dtype) for _ in range(2))
        compiled = tg.compile(whole)
        for scale in (1.0, 0.5):
            point = (x * dtype(scale), w)
            if dtype is np.float32:
                agree_as_rounded(compiled, whole, *point)
            else:
                agree(compiled(*point), whole(*point))
    assert any(turned) or f in (over_first_and_last, with_products)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(0, PROGRAMS, 10)))
def test_random_programs_along_other_axes(seed, turned):
    for k in range(seed, min(seed + 5, PROGRAMS)):
        compiled_as_eager(k)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logaddexp_and_its_partials_have_parts_in_common(dtype):
    x = np.array(
        [0.3, -2.0, 50.0, 9.0, -60.0, np.inf, np.inf, -np.inf, -np.inf, 0.0, np.nan], dtype
    )
    y = np.array([0.1, -2.0, -50.0, 9.0, 0.0, 1.0, np.inf, 3.0, -np.inf, -0.0, 1.0], dtype)
    w = np.arange(1, 12).astype(dtype)

    def f(x, y):
        return np.sum(np.logaddexp(x, y) * w)

    def finite(x):
        return np.sum(np.logaddexp(0.0, x) ** 2 + np.logaddexp(x[:, None], x) * w[:5])

    both = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(both)
    with np.errstate(invalid="ignore"):
        assert np.isnan(compiled(x, y)[0])
        agree(compiled(x, y)[1], both(x, y)[1])
    assert compiled.report().expressions["share"] == 2
    agree(tg.compile(tg.value_and_grad(finite))(x[:5] % 60), tg.value_and_grad(finite)(x[:5] % 60))
    agree(tg.compile(tg.hessian(finite))(x[:5] % 60), tg.hessian(finite)(x[:5] % 60))


def test_a_softmax_over_the_first_axis_takes_no_memory_of_its_size():
    x, w = np.random.default_rng(0).normal(size=(2, 30, 20_000))
    compiled = tg.compile(tg.value_and_grad(over_first))
    agree(compiled(x, w), tg.value_and_grad(over_first)(x, w), 1e-12)
    assert compiled.report().memory < x.nbytes / 8
    assert "rows along axis 1" in compiled.source


NO_EXPRESSION = [
    lambda v: v, lambda v: np.frexp(v)[0], lambda v: np.modf(v)[0], lambda v: np.partition(np.ravel(v), 0), lambda v: np.cumsum(v),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(0, PROGRAMS, 10)))
def test_random_programs_that_look_at_a_value(seed):
    """Both branches, in any order of points; in one of them a NumPy call or a routine. Of arrays and of tensors, value and gradients."""
    for k in range(seed, min(seed + 10, PROGRAMS)):
        rng = np.random.default_rng(k)
        program, points = random_program(k)
        call = NO_EXPRESSION[int(rng.integers(len(NO_EXPRESSION)))]
        edge = np.mean([np.sum(np.sin(x)) for x, _ in points])

        def branching(x, y, program=program, call=call, edge=edge):
            if np.sum(np.sin(x)) > edge:
                return np.sum(call(x)) + np.sum(call(y)) ** 2
            return program(x, y) + np.sum(call(x))

        both = tg.value_and_grad(branching, argnums=(0, 1))
        of_arrays, of_tensors, alone = tg.compile(both), tg.compile(both), tg.compile(branching)
        with np.errstate(all="ignore"):
            for i in rng.integers(0, 2, 6):
                expected = both(*points[i])
                agree_as_a_whole(of_arrays(*points[i]), expected)
                value, gradients = of_tensors(*map(tg.tensor, points[i]))
                agree_as_a_whole((value.numpy()[()], [g.numpy()[()] for g in gradients]), expected)
                agree_as_a_whole((alone(*points[i]), []), (expected[0], []))


# ------------------------------------------------------------------------------------------------ random loops

IN_LOOPS = [
    np.sin, np.tanh, np.cos, np.abs, lambda v: v * 0.9, lambda v: v * v * 0.1, lambda v: np.where(v > 0, v, 0.5 * v),
    lambda v: 1 / (1 + v * v), lambda v: np.maximum(v, 0.2), lambda v: np.exp(-v * v),
]  # fmt: skip
OF_TWO = [
    lambda a, b: a + b, lambda a, b: a - 0.5 * b, lambda a, b: a * b, lambda a, b: np.minimum(a, b), np.hypot,
    lambda a, b: a / (1.5 + b * b),
]  # fmt: skip
MOVES = [
    lambda v: v[::-1], lambda v: v[np.arange(len(v))[::-1]], lambda v: v[np.zeros(len(v), int)], lambda v: v.copy(),
    lambda v: np.concatenate([v[1:], v[:1]]), lambda v: np.stack([v, v]).sum(axis=0), lambda v: v + np.sum(v),
    lambda v: v + (v > 0) * 0.1,
]  # fmt: skip
"""Of vectors, those of length 1 too."""


def random_loop(seed):
    """A loop in Python: random steps, values carried over one turn, entries read forwards or backwards, sums and stacks on the way."""
    rng = np.random.default_rng(seed)
    turns = int(rng.integers(60, 90))
    vectors, carried, after = rng.random() < 0.5, int(rng.integers(1, 4)), int(rng.integers(4))
    length = int(rng.integers(1, 4))
    steps = [rng.integers([6, 999, 999, 999]).tolist() for _ in range(int(rng.integers(3, 8)))]
    numbers, offset = rng.normal(size=turns).tolist(), int(rng.integers(3))
    stride, first_differs, one_differs = int(rng.choice([1, 1, 2, -1])), *(rng.random(2) < 0.3)

    def program(x, p):
        carries = [x[length * i : length * (i + 1)] if vectors else x[i] for i in range(carried)]
        total, kept = 0.0, []
        for turn in range(turns):
            values = list(carries)
            place = offset + stride * turn if stride > 0 else len(p) - 2 - turn
            entry, next_one = p[place], p[place + 1]
            for kind, which, i, j in steps:
                a, b = values[i % len(values)], values[j % len(values)]
                if kind == 0:
                    values.append(IN_LOOPS[which % len(IN_LOOPS)](a))
                elif kind == 3:
                    values.append(a * numbers[turn])
                elif kind == 5:
                    values.append(MOVES[which % len(MOVES)](a) if vectors else a * 0.5)
                elif kind == 4 and first_differs and turn == 0:
                    values.append(a * 1.0)
                else:
                    other = {1: b, 2: next_one if i % 3 == 0 else entry, 4: carries[j % carried]}[
                        kind
                    ]
                    values.append(OF_TWO[which % len(OF_TWO)](a, other))
            carries = [np.tanh(values[-1 - i]) for i in range(carried)]
            if after == 1:
                total = total * 0.5 + np.sum(carries[0]) * 0.3
            if after == 2:
                kept.append(carries[-1])
            if one_differs and turn == turns // 2:
                carries[0] = carries[0] + x[0]
        out = sum((np.sum(c) for c in carries), start=0.0) + total
        return out + np.sum(np.stack(kept) ** 2) + np.sum(kept[5]) if kept else out

    return program, [(rng.normal(size=9), rng.normal(size=2 * turns + 5)) for _ in range(2)]


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(0, PROGRAMS // 6, 4)))
def test_random_loops(seed):
    """Long loops of which some roll, some partly and some not at all: the answer is always the same."""
    for k in range(seed, seed + 4):
        program, points = random_loop(k)
        both = tg.value_and_grad(program, argnums=(0, 1))
        compiled = tg.compile(both)
        for point in (points[0], *points):
            agree_as_a_whole(compiled(*point), both(*point))


def test_tracing_beside_packed_values() -> None:
    """Entries whose saved values were packed have an op that is never evaluated; a trace leaves it alone."""
    x = tg.tensor(X, requires_grad=True)
    with tg.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a):
        y = (x * x).sum()
        assert np.allclose(tg.compile(lambda x: np.reshape(x, -1) * 2)(X), X * 2)
    y.backward()
    assert np.allclose(x.grad.numpy(), 2 * X)


# ------------------------------------------------------------------------------------------------ what is read beside the arguments

SCALE = 2.0
TABLE = np.ones(4)


def helper(x):
    return x * SCALE


def surrounded(entry):
    """A function of a closure's number, array and tensor, of globals, of a helper's globals, and of an attribute's array."""

    class Model:
        weights = np.ones(4)

    number, array, tensor, model = 2.0, np.ones(4), tg.tensor(np.ones(4)), Model()

    def f(x):
        return (
            np.sum(helper(x) * TABLE * array[::-1]) * number
            + np.sum(x * model.weights) * tensor.sum()
        )

    def change(what):
        nonlocal number, array, tensor
        if what == "number":
            number = 5.0
        elif what == "array":
            array = array + 1
        elif what == "array in place":
            array[1] = 7.0
        elif what == "tensor":
            tensor = tensor * 3
        elif what == "tensor in place":
            tensor[2] = 9.0
        elif what == "tensor's array":
            tensor.data = np.arange(4.0)
        elif what == "attribute in place":
            model.weights *= 4.0
        elif what == "global":
            globals()["SCALE"] += 1.5
        elif what == "global array in place":
            TABLE[0] += 1.0
        else:
            raise AssertionError(what)

    return (tg.value_and_grad(f) if entry == "gradient" else lambda x: plain(f(x))), change


@pytest.mark.parametrize(
    "what",
    ["number", "array", "array in place", "tensor", "tensor in place", "tensor's array", "attribute in place", "global",
     "global array in place"],
)  # fmt: skip
@pytest.mark.parametrize("entry", ["gradient", "value", "slower"])
def test_what_a_function_reads_beside_its_arguments_may_change(what, entry, monkeypatch):
    """By the entry in machine code, and by the slower one."""
    from tapegrad.llvm import jit

    if entry == "slower":
        monkeypatch.setitem(jit._state, "works", False)
    f, change = surrounded(entry)
    c = tg.compile(f)
    for _ in range(3):
        agree(c(X), f(X))
    latest = c.latest
    agree(c(X), f(X))
    assert c.latest is latest and (latest.direct is not None) == (entry != "slower")
    before = c(X)
    change(what)
    agree(c(X), f(X))
    assert not np.array_equal(
        plain(before[0] if entry == "gradient" else before),
        plain(f(X)[0] if entry == "gradient" else f(X)),
    )
    assert c.latest is not latest
    agree(c(X), f(X))


def test_equal_numbers_are_the_same():
    """A number bound anew, arrays that nobody else has, and names of modules and libraries lead to no other trace."""
    number = float("2.5")

    def f(x):
        return np.sum(x * number * np.arange(4.0)) + math.pi

    c = tg.compile(f)
    c(X)
    first = c.latest
    around = ["code or defaults of f", "a variable of an enclosing function, float"]
    assert [w.told() for w in first.around] == around
    number = float("2.5")
    agree(c(X), f(X))
    assert c.latest is first


def test_what_always_changes_is_told(monkeypatch):
    scale = 0.0
    # A thread that compiles in the background may restore the filters, so pytest.warns would miss it now and then.
    told: list[str] = []
    monkeypatch.setattr(warnings, "warn", lambda message, *_, **__: told.append(message))

    def f(x):
        return x * scale

    c = tg.compile(f)
    for scale in np.arange(1.0, 20.0).tolist():
        agree(c(X), X * scale)
    (message,) = told
    assert "a variable of an enclosing function, float" in message and "as an argument" in message


@pytest.mark.parametrize("transform", [tg.value_and_grad, tg.hessian])
def test_buffers_filled_from_tracked_values_need_no_guard(transform):
    """A store looks at no value, so one program serves every point."""

    def f(p):
        y = tg.zeros((3, 2))
        y[0, 0] = p[0]
        y[0, 1] = y[0, 0] * p[1]
        y[1] = p[None, :2]
        y[2] += p[2]
        return np.sum(y**2 * np.arange(6.0).reshape(3, 2))

    eager = transform(f)
    c = tg.compile(eager)
    for shift in (0.0, 0.5, -0.25):
        x = np.array([1.1, 2.2, 0.3]) + shift
        agree(c(x), eager(x))
        assert not c.latest.guards and len(c.programs.by_key) == 1
    assert all(len(programs) == 1 for programs in c.programs.by_key.values())


def test_another_thread_may_draw_random_numbers(monkeypatch):
    """The generators that are looked at are the process's: who drew is found out by tracing again."""
    runs = []

    def f(x):
        runs.append(x)
        if len(runs) == 1:
            other = threading.Thread(target=random.random)
            other.start()
            other.join()
        return x * 2.0

    idle = threading.Event()
    waiting = threading.Thread(target=idle.wait)  # one that is alive when the trace is over
    waiting.start()
    try:
        agree(tg.compile(f)(X), X * 2.0)
        assert len(runs) == 2
        with pytest.raises(TraceError, match="draws random numbers"):
            tg.compile(lambda x: x * random.random())(X)
    finally:
        idle.set()
        waiting.join()


@pytest.mark.long
def test_a_draw_belongs_to_the_thread_that_makes_it():
    """While another thread draws all the time, a trace that draws nothing is a program, and one that draws is refused."""
    over = threading.Event()

    def drawing():
        while not over.is_set():
            np.random.normal(size=9), random.random()  # noqa: NPY002

    def steady(x):
        for k in range(10):
            x = np.sin(x) * k
        return x

    hidden = [random.random]
    drawn = [
        lambda x: x * np.random.normal(),  # noqa: NPY002
        lambda x: x * random.random(),
        lambda x: x + tg.randn(x.shape),
        lambda x: x * sum(map(operator.call, hidden)),  # no profiler sees that call
    ]
    other = threading.Thread(target=drawing)
    other.start()
    try:
        agree(tg.compile(steady)(X), steady(X))
        for f in drawn:
            with pytest.raises(TraceError, match="draws random numbers"):
                tg.compile(f)(X)
    finally:
        over.set()
        other.join()


def test_a_generator_is_looked_at_without_waiting_for_who_draws():
    """A reader that waited would let the other thread draw each time, so that a function that draws nothing would be blamed."""
    from tapegrad.compiler.draws import state_of

    generator, further = np.random.RandomState(0), np.random.RandomState(0)
    generator.normal()
    further.normal(size=2)  # the second of two leaves the bits as they were
    before = state_of(generator)
    held, over = threading.Event(), threading.Event()

    def holding():
        with generator._bit_generator.lock:
            held.set()
            over.wait(60)

    other = threading.Thread(target=holding)
    other.start()
    try:
        assert held.wait(60)
        during = state_of(generator)
        assert not over.is_set() and other.is_alive()
        assert during == before and during != state_of(further)
    finally:
        over.set()
        other.join()
    generator.normal()  # the second of two, which leaves the bits as they were
    assert state_of(generator) != before


def test_the_second_of_two_normal_numbers_is_drawn():
    """NumPy's RandomState makes 2 at once; the draw of the second leaves the bits as they were."""
    own = np.random.RandomState(0)
    for normal in (np.random.normal, own.normal):
        for _ in range(2):
            with pytest.raises(TraceError, match="draws random numbers"):
                tg.compile(lambda x, normal=normal: x * normal())(X)


def test_another_global_generator_of_numpys():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(0))
    try:
        agree(tg.compile(lambda x: x * 2.0)(X), X * 2.0)
        with pytest.raises(TraceError, match="draws random numbers"):
            tg.compile(lambda x: x * np.random.normal())(X)  # noqa: NPY002
    finally:
        np.random.set_bit_generator(before)


# ------------------------------------------------------------------------------------------------ products of matrices


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [2, 9])
def test_a_transposed_factor_is_turned_once(rows, dtype):
    """Where rows enough read it; read entry by entry, its columns are no vectors."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(rows, 7)).astype(dtype), rng.normal(size=(5, 7)).astype(dtype)
    f = tg.compile(lambda a, b: a @ b.T)
    np.testing.assert_allclose(f(a, b), a @ b.T, rtol=1e-5 if dtype == np.float32 else 1e-13)
    assert ("packed" in f.source) == (rows == 9)


def test_what_one_value_is_made_of_gets_no_memory():
    """The cotangent before a tanh is read by two products; what it is computed from is read by nothing else."""
    rng = np.random.default_rng(0)
    w, v, x = (rng.normal(size=s) for s in ((8, 16), (16, 8), (32, 8)))

    def loss(w, v):
        return np.sum((np.tanh(x @ w) @ v) ** 2)

    both = tg.value_and_grad(loss, argnums=(0, 1))
    f = tg.compile(both)
    agree_as_a_whole(f(w, v), both(w, v))
    stored = [line for line in f.source.splitlines() if "store" in line]
    assert not any(name in line for line in stored for name in ("equal", "where"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [5, 17, 34, 70])
@pytest.mark.parametrize("rows", [3, 32, 131])
def test_products_of_several_rows_at_once(rows, n, dtype):
    """Rows that are no multiple of those of one turn, in one block and in several, and columns that are no whole vectors."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (rows, 6)).astype(dtype), rng.integers(-9, 9, (6, n)).astype(dtype)
    f = tg.compile(lambda a, b: (a @ b, a.T @ (a @ b), (a[::-1] @ b)[1:] - a[1:] @ b))
    for got, exact in zip(f(a, b), (a @ b, a.T @ (a @ b), a[-2::-1] @ b - a[1:] @ b), strict=True):
        np.testing.assert_array_equal(got, exact)  # whole numbers, whose sums are exact


@pytest.mark.parametrize("summed", [False, True])
def test_a_zero_cotangent_brings_a_zero(summed):
    """However infinite the partial is, alone and as part of a sum, which are two texts."""
    g = np.array([0.0, -0.0, 2.0, np.nan, 0.0, -3.0] * 3)
    p = np.array([np.inf, np.inf, 3.0, 1.0, np.nan, np.inf] * 3)

    def pulled(g, p):
        x = tg.ops.elementary.strong_product(g, p)
        return np.sum(x) if summed else x

    f = tg.compile(pulled)
    with np.errstate(all="ignore"):
        exact = np.where(g == 0, 0.0, g * p)
        for i in ([0, 1, 4, 7], [5, 0, 1], range(18)):
            np.testing.assert_array_equal(f(g[i], p[i]), exact[i].sum() if summed else exact[i])


@pytest.mark.parametrize("shape", [(300, 7), (40_000, 5), (3, 500), (1, 6), (6, 1)])
def test_a_transposed_matrix_times_a_vector(shape):
    """It adds up rows as they lie in memory, in blocks that threads may share."""
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, shape).astype(float)
    v, w = rng.integers(-9, 9, shape[0]).astype(float), rng.integers(-9, 9, shape[1]).astype(float)
    f = tg.compile(lambda a, v, w: (a.T @ v, a.T @ (a @ w), a[::-1].T @ v, a.T[::-1] @ v))
    exact = a.T @ v, a.T @ (a @ w), a[::-1].T @ v, (a.T @ v)[::-1]
    for got, right in zip(f(a, v, w), exact, strict=True):
        np.testing.assert_array_equal(got, right)


def test_rows_that_are_fetched_for_the_next_block():
    """While a loop computes elementary functions, what the loops beside it read is on its way; the last block has no next one."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(20_013, 9)), rng.normal(size=9)
    both = tg.value_and_grad(lambda w: np.sum(np.log1p(np.exp(x @ w))))
    f = tg.compile(lambda w, x: tg.value_and_grad(lambda w: np.sum(np.log1p(np.exp(x @ w))))(w))
    agree_as_a_whole(f(w, x), both(w))
    assert "llvm.prefetch" in f.ir


# ---------------------------------------------------------------------------------------------- SciPy's functions


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_functions_of_scipy_are_machine_code(count):
    """The C functions behind ufuncs give what these give, bit for bit, as they do on tensors; poles and NaN among the arguments."""
    from tapegrad.compiler.lowering import TABLE
    from tapegrad.llvm import named

    special = pytest.importorskip("scipy.special")
    ufuncs = [f for f in list(vars(special).values()) if isinstance(f, np.ufunc)]
    ufuncs = [f for f in ufuncs if f.nin == count and named.symbol_of(f)]
    ufuncs = [f for f in ufuncs if f.__name__ not in TABLE]
    # Those of noncentral distributions are the formulas of tg.stats.
    ufuncs = [f for f in ufuncs if not f.__name__.startswith(("nct", "ncf", "chnd"))]
    x = np.array([0.3, 1.7, 2.4, 0.9, 0.0, -0.0, np.nan, 1.0, -1.5, 4.0])
    args = [np.roll(x, 3 * k) for k in range(count)]
    f = tg.compile(lambda *args: [u(*args) for u in ufuncs])
    f(*args)
    tracked = [tg.tensor(a, requires_grad=True) for a in args]
    for u, got in zip(ufuncs, f(*args), strict=True):
        exact = np.asarray(u(*map(tg.Tensor.detach, tracked)))
        np.testing.assert_array_equal(got, exact, err_msg=u.__name__)
    assert {"j0", "beta", "betainc", "hyp2f1"} & set(f.report().expressions)


def test_a_loop_of_functions_of_scipy_is_one_program():
    """Steps and their derivatives; float32 and functions without a C function stay NumPy calls."""
    special = pytest.importorskip("scipy.special")
    x = np.array([0.3, 0.7, 1.2])

    def step(i, c):
        return 0.5 * c + special.j0(c) + special.jv(1.5, c) / 9

    def loss(x):
        return np.sum(special.digamma(tg.fori_loop(0, 9, step, x) + special.gammaln(x)))

    both = tg.value_and_grad(loss)
    f = tg.compile(both)
    agree_as_a_whole(f(x), both(x))
    assert set(f.report().calls) == {"polygamma"}
    g = tg.compile(lambda x: special.j0(x))
    np.testing.assert_array_equal(g(x.astype("f4")), special.j0(x.astype("f4")))
    assert g.report().calls == {"j0": 1}


@pytest.mark.parametrize("rolled", [False, True])
def test_a_zero_cotangent_in_a_step_of_a_loop(rolled):
    """There it is a branch, which is taken where the product is NaN: at the pole of a root that was not chosen, and for NaN."""

    def step(i, c):
        return np.where(c > 0.5, np.sqrt(np.abs(c - 0.5)), 0.0) * c + 0.999 * c + 0.0005

    def loss(x):
        c = x[0] * x[1]
        if rolled:
            return tg.fori_loop(0, 80, step, c) ** 2
        for i in range(80):
            c = step(i, c)
        return c**2

    both = tg.value_and_grad(loss)
    f = tg.compile(both)
    with np.errstate(all="ignore"):
        for x in ([0.5, 1.0], [0.7, 0.9], [np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0]):
            agree_as_a_whole(f(np.array(x)), both(np.array(x)))
    assert "branch_weights" in f.ir and "!prof" in f.ir
    assert f(np.array([0.5, 1.0]))[1][0] > 0


SUMMED = {
    "over the last axis of a transposed matrix": lambda a, t, v: np.sum(a.T, axis=1),
    "over both": lambda a, t, v: np.sum(a.T * 2.0),
    "with a factor for each row": lambda a, t, v: np.sum(a.T * v[:, None] + 1.0, axis=1),
    "with a factor for each column": lambda a, t, v: np.sum(a.T * a[:, 0], axis=1),
    "with the matrix itself": lambda a, t, v: np.sum(a.T * a.T[::-1], axis=0),
    "two that lie otherwise": lambda a, t, v: np.sum(a.T + np.reshape(a, (6, 700)), axis=0),
    "largest": lambda a, t, v: np.max(a.T, axis=1),
    "of three axes, the first": lambda a, t, v: np.sum(np.transpose(t, (2, 0, 1)), axis=0),
    "of three axes, the second": lambda a, t, v: np.sum(np.transpose(t, (2, 0, 1)), axis=1),
    "of three axes, two": lambda a, t, v: np.sum(np.transpose(t, (1, 2, 0)), axis=(0, 2)),
    "kept": lambda a, t, v: np.sum(np.transpose(t, (2, 1, 0)), axis=(1, 2), keepdims=True),
    "a product written out": lambda a, t, v: np.sum(a[:, :, None] * t[0], axis=1),
    "a vector times a transposed matrix": lambda a, t, v: a[:, 0] @ (2.0 * a),
    "a transposed matrix times a vector": lambda a, t, v: a[::-1].T @ a[:, 1],
    "products of many, transposed": lambda a, t, v: t @ np.swapaxes(t, 1, 2),
}


@pytest.mark.parametrize("name", SUMMED)
def test_sums_in_the_order_of_memory(name):
    """Loops go over what lies side by side innermost, whatever order the axes are in; whole numbers, whose sums are exact."""
    rng = np.random.default_rng(0)
    a, t, v = (rng.integers(-9, 9, s).astype(float) for s in ((700, 6), (5, 6, 31), (6,)))
    f = SUMMED[name]
    np.testing.assert_array_equal(tg.compile(f)(a, t, v), f(a, t, v))
    both = tg.value_and_grad(lambda a, t, v: np.sum(np.square(f(a, t, v))), argnums=(0, 1, 2))
    agree_as_a_whole(tg.compile(both)(a, t, v), both(a, t, v))


def test_many_numbers_of_one_kind():
    """Functions take and make them; other dtypes, arrays and nested results among them, and an argument that is something else."""

    def f(*args):
        moved = [x + i for i, x in enumerate(args)]
        return (
            moved,
            (args[0] * 2, np.ones(2) * args[1], (args[2], args[11] * args[11])),
            args[3] > 0,
        )

    numbers = [np.float64(i) for i in range(11)]
    compiled = tg.compile(f)
    small, array = np.float32(1.5), np.arange(12.0).reshape(3, 4).T[1, 2]
    for args in ([*numbers, small], [*numbers, small], [*numbers[:-1], np.array(7.5), small]):
        for got, exact in zip(compiled(*args)[0], f(*args)[0], strict=True):
            assert got == exact and got.dtype == exact.dtype
        second, exact = compiled(*args)[1], f(*args)[1]
        assert second[0] == exact[0] and second[2] == exact[2] and type(second[2]) is tuple
        np.testing.assert_array_equal(second[1], exact[1])
        assert compiled(*args)[2] == (args[3] > 0)
    assert "tg_numbers" in compiled.ir and "tg_take0" in compiled.ir
    with pytest.raises(TypeError):
        compiled(*numbers, "a word")
    assert compiled(*numbers[:-1], array, small)[0][10] == array + 10


LEFT, RIGHT, MEANS = np.random.default_rng(9).normal(size=(3, 40, 40, 40))
"""Three stacks of 40 matrices."""
SUMS_OF_PRODUCTS = {
    "rows": lambda a, b: np.sum(a[:, :30] @ b[:, :, :20], axis=1),
    "columns": lambda a, b: np.sum(a @ b, axis=2),
    "rows and columns": lambda a, b: np.sum(a @ b, axis=(1, 2)),
    "everything": lambda a, b: np.sum(a @ b),
    "matrices, of which one is the same": lambda a, b: np.sum(a @ b[0], axis=0),
    "kept": lambda a, b: np.sum(a @ b, axis=1, keepdims=True),
    "transposed": lambda a, b: np.sum(np.swapaxes(a @ b, 1, 2), axis=2),
    "negative": lambda a, b: np.sum(-(a @ b), axis=1),
    "in a difference": lambda a, b: np.sum(a - a @ b, axis=1),
    "in a sum of products": lambda a, b: np.sum(2.0 * a + a[:, :1] * (a @ b) + b, axis=1),
    "repeated": lambda a, b: np.sum((a @ b)[:, None] + np.ones((40, 3, 40, 40)), axis=(1, 2)),
    "by a factor that varies": lambda a, b: np.sum(a * (a @ b), axis=1),
    "a part of it": lambda a, b: np.sum((a @ b)[:, 5:], axis=1),
    "a mean": lambda a, b: np.mean(a @ b + 1.0, axis=1),
}


@pytest.mark.parametrize("name", SUMS_OF_PRODUCTS)
def test_sums_of_products(name):
    """Whatever stands between a sum and a product of matrices, the answer and its gradients are those of NumPy's calls."""
    f = SUMS_OF_PRODUCTS[name]
    both = tg.value_and_grad(lambda a, b: np.sum(np.sin(f(a, b))), argnums=(0, 1))
    for dtype, rtol in ((np.float64, 1e-10), (np.float32, 2e-2)):
        a, b = (x.astype(dtype) for x in (LEFT, RIGHT))
        agree(tg.compile(f)(a, b), f(a, b), rtol, 1e-2 if dtype == np.float32 else 1e-9)
    agree(tg.compile(both)(LEFT, RIGHT), both(LEFT, RIGHT), 1e-9, 1e-6)


def test_the_sum_of_a_product_multiplies_sums():
    """The gradient by a vector that is added to all rows takes no product of matrices, unless somebody needs the rows' own."""

    def loss(mean, x, w):
        return np.sum(np.tanh((x - mean[:, None]) @ w))

    mean = MEANS[0]
    one = tg.compile(tg.grad(loss))
    both = tg.compile(tg.grad(loss, argnums=(0, 1)))
    agree(one(mean, LEFT, RIGHT), tg.grad(loss)(mean, LEFT, RIGHT), 1e-10, 1e-9)
    expected = tg.grad(loss, argnums=(0, 1))(mean, LEFT, RIGHT)
    agree(both(mean, LEFT, RIGHT), expected, 1e-10, 1e-9)
    product = 2 * 40**4  # multiplications and additions
    assert product < one.report().work < 1.5 * product
    assert 2 * product < both.report().work


@pytest.mark.long
def test_a_long_chain_below_a_sum():
    def f(a, b):
        y = a @ b
        for k in range(500):
            y = y + k * a
        return np.sum(y, axis=1)

    agree(tg.compile(f)(LEFT, RIGHT), f(LEFT, RIGHT), 1e-10, 1e-9)


@pytest.mark.long
def test_programs_of_dictionaries_and_tensors_are_native_wholes():
    """Arguments that come in dictionaries, by name or as tensors are taken apart by Python; what is left is one native call."""

    def loss(p, *, start=0.3):
        x, a = start + p["x"], np.eye(3) * p["a"]
        for _ in range(40):
            x = np.tanh(np.linalg.solve(a + 0.1 * np.outer(x, x), x)) + 0.1
        return {"loss": np.sum(x**2), "count": 3}

    def by_name(p, start=0.3):
        (value, back) = tg.vjp(lambda p: loss(p, start=start)["loss"], p)
        return {"value": value, "gradient": back(1.0)[0]}

    points = [{"x": np.array([0.1, 0.2, 0.3]) * k, "a": 2.0 + k} for k in (1, 2)]
    compiled = tg.compile(by_name)
    for p in points:
        for _ in range(2):
            found, expected = compiled(p, start=0.2), by_name(p, start=0.2)
            agree(found, expected)
    assert len(compiled.latest.natives) == 1
    assert not compiled.report().calls
    tensors = tg.compile(loss)
    for k in (1, 2):
        p = {"x": tg.tensor([0.1, 0.2, 0.3]) * k, "a": 2.0 + k}
        found = tensors(p)
        agree(found["loss"], loss(p)["loss"])
        assert found["count"] == 3
    assert not tensors.report().calls


def test_numbers_of_python_come_back_as_such():
    compiled = tg.compile(lambda p: {k: 2 * v for k, v in p.items()})
    p = {"a": 1.5, "b": np.float64(2.5), "c": np.arange(3.0), "d": 1 + 2j}
    for _ in range(3):
        found = compiled(p)
        assert [type(v) for v in found.values()] == [float, np.float64, np.ndarray, complex]
        assert found["a"] == 3.0
        assert found["d"] == 2 + 4j


PICKED_BY_NUMBERS = {
    "B[k]": lambda b, k: b[k],
    "B[:, k]": lambda b, k: b[:, k],
    "B[..., k]": lambda b, k: b[..., k],
    "B[k, :, m]": lambda b, k: b[k, :, k * 0],
    "B[k, 1, k]": lambda b, k: b[k, 1, k],
    "B[1:, k]": lambda b, k: b[1:, k],
    "B[1:4, k, :2]": lambda b, k: b[1:4, k, :2],
    "B[k, [0, 2]]": lambda b, k: b[k, [0, 2]],
    "B[1:, [k, k]]": lambda b, k: b[1:, np.stack([k, k])],
}


@pytest.mark.parametrize("name", PICKED_BY_NUMBERS)
def test_numbers_of_the_program_pick_entries(name):
    """An index that is computed, or an entry of an argument, is no guard; the gradient goes where it says."""
    f = PICKED_BY_NUMBERS[name]
    both = tg.value_and_grad(lambda b, ks: np.sum(np.exp(f(b, ks[1])) * 1.5))
    compiled = tg.compile(both)
    b = np.random.default_rng(10).normal(size=(5, 4, 3))
    for k in (0, 1, 2, -1, -3):
        ks = np.array([9, k])
        agree(compiled(b, ks), both(b, ks))
    assert not compiled.report().calls
    assert not compiled.report().guards
    with pytest.raises(IndexError):
        compiled(b, np.array([0, 7]))


def test_loops_pick_entries_by_what_they_carry():
    def f(b, ks):
        total, k = np.zeros(3), ks[0]
        for t in range(60):
            total = np.sin(total) + b[:, ks[t % 7]][1] * b[k, 2]
            k = (k + ks[t % 5]) % 4
        return np.sum(total**2)

    both = tg.value_and_grad(f)
    compiled = tg.compile(both)
    b, ks = np.random.default_rng(11).normal(size=(5, 4, 3)), np.array([1, 3, 0, 2, 3, 1, 2])
    for _ in range(2):
        agree(compiled(b, ks), both(b, ks), 1e-11)
    assert not compiled.report().calls


def test_integers_divided():
    """As NumPy rounds: down, whatever the signs."""
    i = np.arange(-20, 21)
    for f in (lambda i: i % 7, lambda i: i // 7, lambda i: (3 * i) % 4 - i // 5):
        compiled = tg.compile(f)
        for x in (i, i.astype(np.int32), i[3]):
            for _ in range(2):
                agree(compiled(x), f(x))
        assert not compiled.report().calls
    for f in (lambda i: i % -7, lambda i: i // (i * 0)):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agree(tg.compile(f)(i), f(i))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_remainders(dtype):
    """NumPy's, zeros of either sign and what is no number included; a periodic box takes no NumPy call."""
    numbers = np.array(
        [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-30, -1e-30, 1e30, np.inf, -np.inf, np.nan], dtype
    )
    a, b = (x.ravel() for x in np.meshgrid(numbers, numbers))
    compiled = tg.compile(lambda a, b: (a % b, np.mod(a, 3), 1 / (a % b)))
    with np.errstate(all="ignore"):
        for _ in range(2):
            for found, expected in zip(
                compiled(a, b), (a % b, np.mod(a, 3), 1 / (a % b)), strict=True
            ):
                np.testing.assert_array_equal(found, expected)
    assert not compiled.report().calls

    def box(x, n):
        return np.sum(np.sin(x % n) * n)

    gradient = tg.grad(box, argnums=(0, 1))
    x = np.linspace(-7, 7, 50).astype(dtype)
    compiled = tg.compile(gradient)
    compiled(x, dtype(2.5))
    agree(compiled(x, dtype(2.5)), gradient(x, dtype(2.5)), 1e-12 if dtype is np.float64 else 1e-5)
    assert not compiled.report().calls


def test_reductions_of_a_number():
    """NumPy takes axis 0 of a number, and `reduce` takes that axis unasked."""

    def f(z):
        return np.multiply.reduce(z) * np.add.reduce(z), np.max(z, axis=0)

    compiled = tg.compile(f)
    for z in (np.array(2.5), np.array(-1.5), np.array(0.5)):
        assert [float(y) for y in compiled(z)] == [float(y) for y in f(z)]
    assert not compiled.report().calls


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "conditions",
    [
        lambda x: x > 0,
        lambda x: [x > 0],
        lambda x: (x > 0,),
        lambda x: np.stack([x > 0, x <= 0]),
        lambda x: np.sum(x) > 0,
    ],
)
def test_piecewise_takes_conditions_of_values(conditions, n):
    """One array of truths is one condition. Traced, the array of two entries was taken for two."""
    f = tg.value_and_grad(lambda x: np.sum(np.piecewise(x, conditions(x), [np.exp, np.cos])))
    compiled = tg.compile(f)
    try:
        f(np.ones(n))
    except IndexError:  # NumPy's own: a number is one condition for one entry
        return
    for x in (np.ones(4), np.array([-1.0, 2.0, 0.5, -0.3]), np.array([0.3, -2.0, -0.5, 0.3])):
        agree(compiled(x[:n]), f(x[:n]))


def _count(x):
    """A whole number that depends on values: from 1 to 4 at POINTS."""
    return np.count_nonzero(x > 0)


OF_A_COUNT = {
    "broadcast_to": lambda x, n: np.broadcast_to(x, (n, 4)),
    "broadcast_to of whole numbers": lambda x, n: (
        np.broadcast_to(np.sign(x).astype(int), (n, 4)) * x[0]
    ),
    "sum": lambda x, n: np.sum(np.outer(x, x[:2]), axis=n % 2),
    "method": lambda x, n: np.outer(x, x[:2]).sum(n % 2),
    "mean of whole numbers": lambda x, n: (
        np.mean(np.outer(np.sign(x), np.floor(x[:2])).astype(int), axis=n % 2) * x[0]
    ),
    "max": lambda x, n: np.max(np.outer(x, x[:2]), axis=n % 2),
    "argmax": lambda x, n: np.argmax(np.outer(x, x[:2]), axis=n % 2) * x[0],
    "std": lambda x, n: np.std(np.outer(x, x[:2]), axis=n % 2, keepdims=True),
    "concatenate": lambda x, n: np.concatenate([np.outer(x, x)] * 2, axis=(0, 1)[n % 2]),
    "concatenate of whole numbers": lambda x, n: (
        np.concatenate([np.outer(np.sign(x), np.sign(x)).astype(int)] * 2, n % 2) * x[0]
    ),
    "reshape": lambda x, n: np.reshape(np.resize(x, 12), (n, -1)),
    "reshape of whole numbers": lambda x, n: (
        np.resize(np.sign(x).astype(int), 12).reshape(n, -1) * x[0]
    ),
    "transpose": lambda x, n: np.transpose(np.outer(x, x[:2]), (n % 2, 1 - n % 2)),
    "moveaxis": lambda x, n: np.moveaxis(np.outer(x, x[:2]), 0, n % 2),
    "swapaxes": lambda x, n: np.swapaxes(np.outer(x, x[:2]), 0, n % 2),
    "fft": lambda x, n: np.real(np.fft.fft(x, n)),
    "irfft": lambda x, n: np.fft.irfft(x, n=n + 1),
    "fftn": lambda x, n: np.real(np.fft.fftn(np.outer(x, x), s=(n, n), axes=(0, 1))),
    "dct": lambda x, n: tg.fft.dct(x, n=n + 1),
    "diag": lambda x, n: np.diag(np.sign(x).astype(int), n) * x[0],
    "zeros_like": lambda x, n: np.zeros_like(x, shape=(n, 2)) + x[0],
    "full_like": lambda x, n: np.full_like(np.sign(x).astype(int), 2, shape=(n,)) * x[0],
    "resize": lambda x, n: np.resize(x, n),
    "repetition": lambda x, n: np.stack([x] * n),
    "repetition from the left": lambda x, n: np.hstack(n * (x, x[:2])),
}


@pytest.mark.parametrize("name", OF_A_COUNT)
def test_what_decides_a_shape_is_looked_at(name):
    """Axes, shapes and lengths that follow from values: the program went on with those of the first call."""
    points = (
        [0.5, -0.3, 1.2, -0.7],
        [0.5, 0.3, 1.2, -0.7],
        [0.5, 0.3, 1.2, 0.7],
        [-0.5, -0.3, 1.2, -0.7],
        [0.5, 0.3, -1.2, -0.7],
    )

    def f(x):
        found = OF_A_COUNT[name](x, _count(x))
        return np.sum(found * np.cos(np.arange(np.size(found))).reshape(np.shape(found)))

    for g in (f, tg.value_and_grad(f)):
        compiled = tg.compile(g)
        for i in (0, 1, 2, 0, 3, 4, 1):
            agree(compiled(np.array(points[i])), g(np.array(points[i])))


def test_a_place_among_numbers_is_machine_code():
    """NumPy takes None, the dtype of a number that has none, for float64."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(
            tg.compile(lambda x: np.searchsorted(x, 1.5) * np.sum(x))(np.array([1.0, 2.0, 5.0])),
            8.0,
        )


def test_a_mask_of_a_number_runs_as_a_call():
    """`m[m > 0]` of a number: such a mask has no axes, and broke the lowering."""

    def f(x):
        m = np.mean(x)
        return m[m > -9.0] * 2.0

    compiled = tg.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (np.arange(3.0), np.ones(3)):
            np.testing.assert_array_equal(compiled(x), f(x))


@pytest.mark.parametrize("n", [5, 70])
def test_gradients_of_stores_by_a_mask_look_at_no_value(n):
    """`z[z < 0] *= 0.1` was traced for each new mask, and refused on arrays of 4096 numbers or more."""

    def f(x):
        z = x * 2.0
        z[z < 0] *= 0.1
        z[z > 0.5, None] = z[z > 0.5, None] ** 2
        z[:, z[0] > 0.3] = 3.0 * x[:, z[0] > 0.3]
        return np.sum(np.sin(z))

    both = tg.compile(tg.value_and_grad(f))
    for seed in (0, 1):
        x = np.random.default_rng(seed).random((n, n)) - 0.5
        for got, expected in zip(both(x), tg.value_and_grad(f)(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert not both.report().guards


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "?"])
def test_methods_of_ufuncs_are_machine_code(dtype):
    x = np.array([[1.0, -np.inf, 3.0], [5.0, 0.0, 2.0]] if dtype[0] == "f" else [[1, 0, 3], [0, 2, 5]]).astype(dtype)  # fmt: skip

    def f(x):
        return (
            np.logaddexp.reduce(x), np.logaddexp.reduce(x, 1, keepdims=True), np.logaddexp.reduce(x, axis=None),
            np.add.accumulate(x), np.add.accumulate(x, 1), np.maximum.outer(x[0], x), np.add.outer(2.0, x[0, 0]), np.less.outer(x[0], [1, 2]),
        )  # fmt: skip

    compiled = tg.compile(f)
    for got, expected in zip(compiled(x), f(x), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6 if dtype == "f4" else 1e-14)
    assert dtype[0] != "f" or not compiled.report().calls


def test_numbers_stored_between_arrays():
    """A store of a number is recorded without the call's constructor, which notes lines for the profile: each of its attributes is set."""

    def f(x):
        u = np.zeros(5)
        for k in range(5):
            u[k] = x[k] * x[0]
        u[1:] *= np.linalg.norm(x)
        return np.sum(u[::2] ** 2)

    x = np.arange(1.0, 6.0)
    compiled = tg.compile(tg.value_and_grad(f))
    for got, expected in zip(compiled(x), tg.value_and_grad(f)(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-14)
    assert not compiled.report().calls


def test_products_of_integers():
    y = np.broadcast_to(np.arange(3), (40, 3))
    compiled = tg.compile(lambda x, y: (x, y @ y.T))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            found = compiled(np.ones(2), y)[1]
            assert found.dtype == y.dtype
            np.testing.assert_array_equal(found, y @ y.T)


def test_long_loops_are_machine_code_from_the_first_call_on(monkeypatch):
    """A number that the trace asks for would take a million NumPy calls, and a `fori_loop` of many steps holds no array of their numbers."""
    from tapegrad.compiler import rolling

    made = []
    original = rolling.callout.written
    monkeypatch.setattr(
        rolling.callout, "written", lambda *args: made.append(args) or original(*args)
    )
    n = 200_000
    f = lambda x: tg.fori_loop(0, n, lambda i, c: c * (1 - 1e-7) + i * x * 1e-12, x)  # noqa: E731  said as a user says it
    compiled = tg.compile(tg.value_and_grad(lambda x: f(x) ** 2 if f(x) > 0 else f(x)))
    for x in (1.0, 1.5):
        value, slope = compiled(x)
        c = (1 - 1e-7) ** n + sum(i * 1e-12 * (1 - 1e-7) ** (n - 1 - i) for i in range(n))
        expected = (c * x) ** 2
        np.testing.assert_allclose([value, slope], [expected, 2 * expected / x], rtol=1e-9)
    assert not made


def test_a_long_program_of_numbers_is_one_function_of_straight_code(monkeypatch):
    """Its stages are no functions of Python's, and LLVM does not order what runs once; the derivative is that by a complex step."""
    from tapegrad.llvm import jit

    efforts = []

    def seen(text, effort):
        efforts.append(effort)
        return made(text, effort)

    made = jit.compiled
    monkeypatch.setattr(jit, "compiled", seen)
    rng = np.random.default_rng(5)
    picks = rng.integers(0, 4, (160, 2)).tolist()

    def f(x):
        known = [x, 0.5 * x, x + 0.3, x - 0.2]
        for k, (i, j) in enumerate(picks):
            a, b = known[-1 - i], known[-1 - j]
            known.append((a * b, np.sin(a) - b, a / (1.5 + b * b), 0.5 * a + 0.3 * b)[(i + j + k // 7) % 4])  # fmt: skip
        return known[-1] + known[-2]

    compiled = tg.compile(tg.value_and_grad(f))
    value, slope = compiled(np.float64(0.3))
    again = compiled(np.float64(0.3))
    assert len(compiled.latest.natives) == 1
    assert jit.STRAIGHT in efforts
    np.testing.assert_allclose([value, slope], again, rtol=1e-12)
    np.testing.assert_allclose(slope, np.imag(f(0.3 + 1e-30j)) / 1e-30, rtol=1e-10)


def test_numbers_that_reduce_where_a_comparison_holds():
    """Of Python numbers the mask is a bool of Python's, for which NumPy asks for no `initial`."""

    def f(x):
        return 2.0 * np.maximum.reduce(x, where=x > 0.1)

    compiled, entry = tg.compile(f), tg.compile(tg.grad(f))
    for x in (0.5, 0.3, 0.2):
        assert compiled(x) == f(x)
        assert tg.grad(compiled)(x) == entry(x) == 2.0
