"""What a compiled function sees can change between two calls in many ways: each way is a row here, and a row of `surroundings.WAYS`.

A row is a function that makes a scene: a function of one array, and changes to apply between calls. After each change the compiled
function answers as the plain one does (a scene is made twice, so that neither sees the other's changes), or raises a TraceError.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import time
import types
import uuid

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import surroundings

X = np.array([0.5, -1.0, 2.0])

# fmt: off
SCENES: dict[str, object] = {}


def scene(f):
    SCENES[f.__name__] = f
    return f


@scene
def number_of_a_closure():
    k = 2.0
    def f(x): return np.sum(x) * k
    def change():
        nonlocal k
        k = 3.0
    return f, [change]


@scene
def sign_of_a_zero():
    k = 0.0
    def f(x): return np.sum(np.copysign(x, k))
    def change():
        nonlocal k
        k = -0.0
    return f, [change]


@scene
def tuple_of_a_closure():
    k = (1.0, 2.0)
    def f(x): return np.sum(x) * k[0] + k[1]
    def change():
        nonlocal k
        k = (4.0, 2.0)
    return f, [change]


@scene
def helper_bound_anew():
    def helper(x): return np.sin(x)
    def f(x): return np.sum(helper(x))
    def change():
        nonlocal helper
        helper = np.cos
    return f, [change]


@scene
def what_a_helper_closes_over():
    k = [2.0]
    def inner(x): return x * k[0]
    def helper(x): return inner(x) + 1
    def f(x): return np.sum(helper(x))
    return f, [lambda: k.__setitem__(0, 5.0), lambda: k.append(1.0)]


@scene
def global_number():
    space = {"np": np, "k": 2.0}
    exec("def f(x):\n    return np.sum(x) * k", space)
    return space["f"], [lambda: space.update(k=7.0)]


@scene
def array_of_a_closure_written_inside():
    a = np.ones(3)
    def f(x): return np.sum(x * a)
    return f, [lambda: a.__setitem__(0, 5.0), lambda: a.__imul__(2.0)]


@scene
def array_of_a_closure_bound_anew():
    a = np.ones(3)
    def f(x): return np.sum(x * a)
    def change():
        nonlocal a
        a = np.arange(3.0)
    return f, [change]


@scene
def tensor_of_a_closure():
    a = tg.tensor(np.ones(3))
    def f(x): return np.sum(x * a)
    return f, [lambda: a.mul_(3.0)]


@scene
def items_of_a_list():
    k = [1.0, 2.0]
    def f(x): return np.sum(x) * k[0] + len(k)
    return f, [lambda: k.__setitem__(0, 3.0), lambda: k.append(1.0)]


@scene
def order_of_a_dict():
    k = {"a": 1.0, "b": 2.0}
    def f(x): return sum((i + 1) * v for i, v in enumerate(k.values())) * np.sum(x)
    def change():
        k["a"] = k.pop("a")
    return f, [change, lambda: k.update(c=3.0)]


@scene
def a_set():
    k = {1.0, 2.0}
    def f(x): return np.sum(x) * len(k)
    return f, [lambda: k.add(5.0)]


@scene
def attribute_of_an_object():
    p = types.SimpleNamespace(k=2.0)
    def f(x): return np.sum(x) * p.k
    return f, [lambda: setattr(p, "k", 9.0)]


@scene
def attribute_of_a_class():
    class P:
        k = 2.0
    p = P()
    def f(x): return np.sum(x) * p.k
    return f, [lambda: setattr(P, "k", 3.0), lambda: setattr(p, "k", 4.0)]


@scene
def method_replaced():
    class P:
        def by(self, x): return x * 2.0
    p = P()
    def f(x): return np.sum(p.by(x))
    return f, [lambda: setattr(P, "by", lambda self, x: x * 5.0)]


@scene
def bound_method():
    class P:
        k = 2.0
        def f(self, x): return np.sum(x) * self.k
    p = P()
    return p.f, [lambda: setattr(p, "k", 3.0)]


@scene
def callable_object():
    class P:
        k = 2.0
        def __call__(self, x): return np.sum(x) * self.k
    p = P()
    return p, [lambda: setattr(p, "k", 3.0)]


@scene
def defaults():
    def f(x, k=2.0): return np.sum(x) * k
    return f, [lambda: setattr(f, "__defaults__", (5.0,))]


@scene
def keyword_defaults():
    def f(x, *, k=2.0): return np.sum(x) * k
    return f, [lambda: setattr(f, "__kwdefaults__", {"k": 5.0})]


@scene
def code():
    def f(x): return np.sum(x)
    def g(x): return np.sum(x) * 4.0
    return f, [lambda: setattr(f, "__code__", g.__code__)]


@scene
def partial_keywords():
    f = functools.partial(lambda x, k: np.sum(x) * k, k=2.0)
    return f, [lambda: f.keywords.update(k=5.0)]


@scene
def attribute_of_a_user_module():
    module = types.ModuleType("settings_of_a_user")
    module.k = 2.0
    def f(x): return np.sum(x) * module.k
    return f, [lambda: setattr(module, "k", 6.0)]


@scene
def counter():
    n = 0
    def f(x):
        nonlocal n
        n += 1
        return np.sum(x) * n
    return f, [lambda: None, lambda: None]


@scene
def array_that_the_function_writes():
    a = np.zeros(1)
    def f(x):
        a[0] += 1
        return np.sum(x) * a[0]
    return f, [lambda: None, lambda: None]


@scene
def environment():
    os.environ["TAPEGRAD_A_TEST"] = "2"
    def f(x): return np.sum(x) * float(os.environ["TAPEGRAD_A_TEST"])
    return f, [lambda: os.environ.__setitem__("TAPEGRAD_A_TEST", "5")]


@scene
def mutable_default():
    k = [2.0]
    def f(x, k=k): return np.sum(x) * k[0]
    return f, [lambda: k.__setitem__(0, 3.0)]


@scene
def nested_containers():
    k = {"a": [np.ones(3), (2.0, [3.0])]}
    def f(x): return np.sum(x * k["a"][0]) * k["a"][1][1][0]
    return f, [lambda: k["a"][1][1].__setitem__(0, 7.0), lambda: k["a"][0].__setitem__(1, 9.0)]
# fmt: on


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("transform", [lambda f: f, tg.grad], ids=["value", "gradient"])
def test_a_change_is_seen_or_refused(name, transform):
    f, changes = SCENES[name]()
    plain, same_changes = SCENES[name]()
    compiled, expected = tg.compile(transform(f)), transform(plain)
    for change, same in zip(
        [lambda: None, lambda: None, *changes], [lambda: None] * 2 + same_changes, strict=True
    ):
        change()
        same()
        try:
            got = compiled(X)
        except tg.TraceError:
            return  # said, and not answered wrongly
        np.testing.assert_allclose(got, expected(X), rtol=1e-13)


# ruff: noqa: B008, NPY002  generators as defaults, and the old ones, are what these rows are about
NEVER_THE_SAME = {
    "random": lambda x: np.sum(x) * random.random(),
    "random.Random": lambda x, r=random.Random(0): np.sum(x) * r.random(),
    "np.random": lambda x: np.sum(x) * np.random.rand(),
    "Generator": lambda x, r=np.random.default_rng(0): np.sum(x) * r.random(),
    "RandomState": lambda x, r=np.random.RandomState(0): np.sum(x) * r.rand(),
    "time": lambda x: np.sum(x) * time.perf_counter_ns(),
    "uuid": lambda x: np.sum(x) * uuid.uuid4().int,
    "urandom": lambda x: np.sum(x) * (1 + int.from_bytes(os.urandom(6), "little")),
    "secrets": lambda x: np.sum(x) * secrets.randbelow(2**50),
    "secrets, a method": lambda x: np.sum(x) * secrets.randbits(50),
    "id": lambda x: np.sum(x) * id(object()),
}


@pytest.mark.parametrize("name", NEVER_THE_SAME)
def test_what_is_never_the_same_is_refused(name):
    with pytest.raises(tg.TraceError):
        tg.compile(NEVER_THE_SAME[name])(X)


def test_the_order_of_a_dict_is_part_of_the_signature():
    f = lambda d: sum((i + 1) * v for i, v in enumerate(d.values()))  # noqa: E731
    g = lambda **d: sum((i + 1) * v for i, v in enumerate(d.values()))  # noqa: E731
    c, k = tg.compile(tg.grad(f)), tg.compile(g)
    for d in ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, {"a": 3.0, "b": 2.0}):
        assert c(d) == tg.grad(f)(d)
        assert k(**d) == g(**d)


def test_one_array_given_twice_is_not_two_that_are_equal():
    f = lambda x, y: np.sum(x) * (2.0 if x is y else 3.0)  # noqa: E731
    c = tg.compile(f)
    a, b = np.ones(2), np.ones(2)
    for x, y in ((a, b), (b, b), (a, b), (a, a)):
        assert c(x, y) == f(x, y)


def test_one_array_given_twice_in_the_first_call_is_refused_once():
    f = lambda x, y: np.sum(x) * (2.0 if x is y else 3.0)  # noqa: E731
    c, a = tg.compile(f), np.ones(2)
    with pytest.raises(tg.TraceError, match="Call it again"):
        c(a, a)
    assert c(a, a) == f(a, a) and c(a, a.copy()) == f(a, a.copy())


def by_reshape(v, n):
    v.reshape(n)[::2] *= 3.0


def by_ravel(v, n):
    v.ravel()[1] += np.sum(v)


def into_the_whole(v, n):
    flat = v.reshape(-1)
    v[0] = 0.5
    v *= np.sum(flat)


def by_fortran_order(v, n):
    v.reshape(-1, order="F")[[0, 2]] = 0.25


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "flipped": lambda x: x[::-1].copy()[::-1],
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("store", [by_reshape, by_ravel, into_the_whole, by_fortran_order])
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 4), (300, 200)])
def test_stores_beside_a_reshape_reach_what_they_reach_in_numpy(store, first, shape):
    """Whether a reshape of `-x` is a view or a copy follows from how x lies in memory, in each call anew."""

    def f(x):
        v = -x
        w = v[::-1]
        store(w, -1)
        return v, w

    def loss(x):
        v, w = f(x)
        return np.sum(v * np.cos(w))

    x = np.random.default_rng(0).uniform(0.5, 1.0, shape) / 10
    c, g = tg.compile(f), tg.compile(tg.grad(loss))
    for name in (first, *LAYOUTS, first):
        given = LAYOUTS[name](x)
        for got, expected in zip(c(given), f(given), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-11)
        np.testing.assert_allclose(g(given), tg.grad(loss)(given), rtol=1e-9, atol=1e-9)


def test_layouts_make_no_programs_where_no_store_depends_on_them():
    x = np.arange(12.0).reshape(3, 4)
    c = tg.compile(lambda x: np.sin(x).reshape(-1) * 2)
    for laid in LAYOUTS.values():
        c(laid(x))
    assert sum(map(len, c.programs.by_key.values())) == 1


def test_attributes_of_an_argument():
    class P:
        k = 2.0

    c = tg.compile(lambda p, x: np.sum(x) * p.k)
    p = P()
    assert c(p, np.ones(2)) == 4.0
    p.k = 7.0
    assert c(p, np.ones(2)) == 14.0


@pytest.mark.parametrize(
    "arguments",
    [(2, 2.0, True), (0.0, -0.0, np.nan), (1, 2, 3)],
    ids=["kinds", "signs", "values"],
)
def test_numbers_as_arguments(arguments):
    def f(x, k):
        return np.sum(x) * k if isinstance(k, float) else np.sum(x) + 10 * k

    c = tg.compile(f)
    for k in (*arguments, *arguments):
        np.testing.assert_equal(np.asarray(c(X, k)), np.asarray(f(X, k)))


@pytest.mark.parametrize("n", [3, 1000, 4097])
def test_a_rounded_number_that_python_saw_is_the_same_in_the_next_call(n):
    """Machine code adds in another order than NumPy: the guard compares what the program itself computes, so it traces once."""
    x = np.random.default_rng(0).normal(size=n)
    runs = []

    def f(x):
        runs.append(1)
        return x * float(np.sum(np.exp(x) * x))

    compiled = tg.compile(f)
    for point in (x, x, x, x + 1, x + 1, x, x + 1):
        expected = point * np.sum(np.exp(point) * point)
        np.testing.assert_allclose(compiled(point), expected, rtol=1e-12)
    assert len(runs) == 2


def test_the_table_is_in_the_guide():
    """The one place where it is written is `surroundings.WAYS`; a reader of the guide sees the same rows."""
    with open(
        os.path.join(os.path.dirname(__file__), "..", "notebooks", "guide", "compile.md"),
        encoding="utf-8",
    ) as file:
        text = file.read()
    for what, becomes in surroundings.WAYS:
        assert f"| {what} | {becomes} |" in text
