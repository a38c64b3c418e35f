"""What a compiled function sees can change between two calls in many ways: each way is a row here, and a row of `surroundings.WAYS`.

A row is a function that makes a scene: a function of one array, and changes to apply between calls. After each change the compiled
function answers as the plain one does (a scene is made twice, so that neither sees the other's changes), or raises a TraceError.
"""

from __future__ import annotations

import collections
import colorsys
import contextvars
import dataclasses
import functools
import importlib.resources
import inspect
import io
import logging
import operator
import os
import pathlib
import queue
import random
import secrets
import sys
import tempfile
import threading
import time
import types
import uuid
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import reading, surroundings

X = np.array([0.5, -1.0, 2.0])

# fmt: off
SCENES: dict[str, object] = {}


def scene(f):
    SCENES[f.__name__] = f
    return f


def special(name, later, body):
    """A scene of a class that gets a special method, which Python looked for and did without, and of its base."""

    def made():
        class Base:
            pass
        class Thing(Base):
            def __iter__(self): return iter([3])
        class Other:
            def __rmul__(self, y): return 3.0
        thing, other = Thing(), Other()
        def f(x): return np.sum(x) * body(thing, other)
        def of_its_own(): setattr(Thing, name, later)
        def gone(): delattr(Thing, name)
        def of_its_base(): setattr(Base, name, later)
        return f, [of_its_own, gone, of_its_base]

    SCENES[f"special_method_{name.strip('_')}"] = made


special("__bool__", lambda s: False, lambda s, o: 2.0 if s else 5.0)
special("__len__", lambda s: 0, lambda s, o: 2.0 if s else 5.0)
special("__mul__", lambda s, o: 7.0, lambda s, o: s * o)
special("__eq__", lambda s, o: True, lambda s, o: 2.0 if s == o else 3.0)
special("__contains__", lambda s, k: False, lambda s, o: 2.0 if 3 in s else 3.0)
special("__repr__", lambda s: "a", lambda s, o: len(f"{s}"[:2]))
special("__getattr__", lambda s, name: 9.0, lambda s, o: getattr(s, "scale", 2.0))


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
def methods_that_python_finds_itself():
    class P:
        def __call__(self): return 2.0
        def __len__(self): return 3
        def __getattr__(self, name): return 4.0
        @property
        def k(self): return 5.0
    p = P()
    def f(x): return np.sum(x) * (p() + len(p) + p.other + p.k)
    return f, [
        lambda: setattr(P, "__call__", lambda self: 7.0),
        lambda: setattr(P, "__len__", lambda self: 11),
        lambda: setattr(P, "__getattr__", lambda self, name: 13.0),
        lambda: setattr(P, "k", property(lambda self: 17.0)),
    ]


@scene
def property_of_a_base_that_a_class_hides():
    class P:
        @property
        def k(self): return 2.0
    class Q(P):
        pass
    q = Q()
    def f(x): return np.sum(x) * q.k
    return f, [lambda: setattr(P, "k", property(lambda self: 3.0)), lambda: setattr(Q, "k", 5.0)]


@scene
def attributes_that_appear_where_getattr_was_asked():
    class P:
        def __getattr__(self, name): return 2.0
    p = P()
    def f(x): return np.sum(x) * p.k * p.l
    return f, [lambda: setattr(p, "k", 3.0), lambda: setattr(P, "l", 5.0)]


@scene
def class_of_an_object():
    class P:
        def __call__(self): return 2.0
    class Q(P):
        def __call__(self): return 3.0
    p = P()
    def f(x): return np.sum(x) * p()
    return f, [lambda: setattr(p, "__class__", Q)]


@scene
def name_of_a_class():
    class P:
        pass
    p = P()
    def f(x): return np.sum(x) * len(type(p).__name__)
    return f, [lambda: setattr(P, "__name__", "Longer")]


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


@scene
def attribute_of_a_function_that_appears_later():
    def g(x): return x
    def f(x): return np.sum(x) * getattr(g, "k", 2.0)
    return f, [lambda: setattr(g, "k", 5.0), lambda: delattr(g, "k")]


@scene
def attribute_of_an_object_that_appears_later():
    p = types.SimpleNamespace()
    def f(x): return np.sum(x) * getattr(p, "k", 2.0)
    return f, [lambda: setattr(p, "k", 5.0)]


@scene
def attribute_of_a_class_that_appears_later():
    class P:
        pass
    p = P()
    def f(x): return np.sum(x) * getattr(p, "k", 2.0)
    return f, [lambda: setattr(P, "k", 5.0)]


@scene
def attribute_of_a_module_that_appears_later():
    module = types.ModuleType("settings_of_a_user")
    def f(x): return np.sum(x) * getattr(module, "k", 2.0)
    return f, [lambda: setattr(module, "k", 6.0)]


@scene
def a_global_that_appears_later():
    space = {"np": np}
    exec("def f(x):\n    try: return np.sum(x) * k\n    except NameError: return np.sum(x)", space)
    return space["f"], [lambda: space.update(k=7.0), lambda: space.pop("k")]


@scene
def all_attributes():
    p = types.SimpleNamespace(a=1.0)
    def f(x): return np.sum(x) * sum(p.__dict__.values()) + len(dir(p))
    return f, [lambda: setattr(p, "b", 5.0)]


@scene
def a_context_variable():
    k = contextvars.ContextVar("k", default=2.0)
    def f(x): return np.sum(x) * k.get()
    return f, [lambda: k.set(3.0)]


@scene
def weak_references():
    class P:
        pass
    p = [P()]
    r, d = weakref.ref(p[0]), weakref.WeakValueDictionary(a=p[0])
    def f(x): return np.sum(x) * (2.0 if r() is None else 3.0) + len(d)
    return f, [p.clear]


@scene
def containers_written_in_python():
    d, k, m = collections.UserDict(k=2.0), collections.UserList([2.0]), {"k": 3.0}
    c = collections.ChainMap(m)
    def f(x): return np.sum(x) * d["k"] * k[0] * c["k"]
    return f, [lambda: d.update(k=5.0), lambda: k.__setitem__(0, 3.0), lambda: m.update(k=7.0)]


@scene
def an_event():
    e = threading.Event()
    def f(x): return np.sum(x) * (2.0 if e.is_set() else 3.0)
    return f, [e.set]


@scene
def a_queue():
    q = queue.Queue()
    for k in range(9):
        q.put(float(k))
    def f(x): return np.sum(x) * q.get()
    return f, [lambda: None, lambda: None]


@scene
def text_in_memory():
    s = io.StringIO("2")
    def f(x): return np.sum(x) * float(s.getvalue())
    return f, [lambda: s.write("3")]


@scene
def arguments_of_the_process():
    def f(x): return np.sum(x) * len(sys.argv)
    return f, [lambda: sys.argv.append("more"), lambda: sys.argv.remove("more")]


@scene
def a_module_imported_inside():
    sys.modules["module_of_a_user"] = types.ModuleType("module_of_a_user")
    sys.modules["module_of_a_user"].k = 2.0
    other = types.ModuleType("module_of_a_user")
    other.k = 5.0
    def f(x):
        import module_of_a_user
        return np.sum(x) * module_of_a_user.k
    return f, [lambda: sys.modules.__setitem__("module_of_a_user", other)]


@scene
def single_dispatch():
    @functools.singledispatch
    def g(k): return 2.0
    def f(x): return np.sum(x) * g(3)
    return f, [lambda: g.register(int, lambda k: 5.0)]


@scene
def property_of_a_metaclass():
    class Meta(type):
        @property
        def k(cls): return cls.hidden
    class P(metaclass=Meta):
        hidden = 2.0
    def f(x): return np.sum(x) * P.k
    return f, [lambda: setattr(P, "hidden", 5.0)]


@scene
def getattr_of_an_object():
    d = {"k": 2.0}
    class P:
        def __getattr__(self, name): return d[name]
    p = P()
    def f(x): return np.sum(x) * p.k
    return f, [lambda: d.update(k=5.0)]


@scene
def attrgetter():
    p, get = types.SimpleNamespace(k=2.0), operator.attrgetter("k")
    def f(x): return np.sum(x) * get(p)
    return f, [lambda: setattr(p, "k", 5.0)]


@scene
def attribute_of_an_array():
    class A(np.ndarray):
        pass
    a = np.ones(3).view(A)
    a.k = 2.0
    def f(x): return np.sum(x) * a.k
    return f, [lambda: setattr(a, "k", 5.0)]


@scene
def object_that_makes_an_array():
    class P:
        def __init__(self): self.v = np.ones(3)
        def __array__(self, dtype=None, copy=None): return self.v
    p = P()
    def f(x): return np.sum(x * np.asarray(p))
    return f, [lambda: p.v.__setitem__(0, 9.0), lambda: setattr(p, "v", np.full(3, 4.0))]


@scene
def memory_of_another_object():
    b = bytearray(np.ones(3).tobytes())
    a = np.frombuffer(b)
    def f(x): return np.sum(x * a)
    return f, [lambda: b.__setitem__(slice(0, 8), np.float64(7.0).tobytes())]


@scene
def another_thread_writes():
    a = np.ones(3)
    def f(x): return np.sum(x * a)
    def change():
        thread = threading.Thread(target=lambda: a.__setitem__(0, 5.0))
        thread.start()
        thread.join()
    return f, [change]


@scene
def generators_made_with_a_seed():
    def f(x): return np.sum(x) * (np.random.default_rng(3).random() + random.Random(3).random())
    return f, [lambda: None]
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
    "hash": lambda x: np.sum(x) * hash(object()),
    "SystemRandom made inside": lambda x: np.sum(x) * random.SystemRandom().random(),
    "Random made inside": lambda x: np.sum(x) * random.Random().random(),
    "Generator made inside": lambda x: np.sum(x) * np.random.default_rng().random(),
    "RandomState made inside": lambda x: np.sum(x) * np.random.RandomState().rand(),
    "a late import": lambda x: np.sum(x) * __import__("datetime").datetime.now().timestamp(),
    "fromfile": lambda x: np.sum(x * np.fromfile(__file__, np.uint8, 3)),
    "loaded": lambda x: np.sum(x * np.load(DATA)),
    "memory map": lambda x: np.sum(x * np.memmap(__file__, np.uint8, "r", shape=3)),
    "opened": lambda x: np.sum(x) * len(open(__file__).read()),
    "opened by os": lambda x: np.sum(x) * os.open(__file__, os.O_RDONLY),
    "a path": lambda x: np.sum(x) * len(pathlib.Path(__file__).read_text()),
    "whether a file is there": lambda x: np.sum(x) * os.path.exists(__file__),
    "whether a path is there": lambda x: np.sum(x) * pathlib.Path(__file__).exists(),
    "a folder": lambda x: np.sum(x) * len(os.listdir(".")),
    "where we are": lambda x: np.sum(x) * len(os.getcwd()),
    "frames": lambda x: np.sum(x) * len(inspect.stack()),
    "a frame": lambda x: np.sum(x) * sys._getframe(0).f_lineno,
    "references": lambda x: np.sum(x) * sys.getrefcount(X),
    "threads": lambda x: np.sum(x) * threading.active_count(),
    "a module read again": lambda x: np.sum(x) * importlib.reload(colorsys).ONE_THIRD,
    "a file beside a module": lambda x: (
        np.sum(x) * len(importlib.resources.files("tests").joinpath("seeds.py").read_text())
    ),
}
DATA = os.path.join(tempfile.gettempdir(), f"tapegrad-{os.getpid()}.npy")


@pytest.mark.parametrize("name", NEVER_THE_SAME)
def test_what_is_never_the_same_is_refused(name):
    if name == "loaded":
        np.save(DATA, X)
    try:
        with pytest.raises(tg.TraceError, match="Call it outside|Draw them outside"):
            tg.compile(NEVER_THE_SAME[name])(X)
    finally:
        if os.path.exists(DATA):
            os.remove(DATA)


def test_a_generator_of_the_old_kind_with_a_seed_is_named():
    with pytest.raises(tg.TraceError, match=r"RandomState[\s\S]*default_rng\(seed\)"):
        tg.compile(lambda x: np.sum(x) * np.random.RandomState(1).rand())(X)
    f = lambda x: np.sum(x) * np.random.default_rng(1).normal()  # noqa: E731
    assert tg.compile(f)(X) == f(X)


def test_numpys_stack_does_not_have_each_call_looked_at():
    """As inspect's: a profile function in Python doubled the time of tracing."""
    seen = []

    def f(x):
        seen.append(sys.getprofile())
        return np.stack([x, 2 * x])

    own = sys.getprofile()
    np.testing.assert_array_equal(tg.compile(f)(X), [X, 2 * X])
    assert all(found is own for found in seen)


IMPORTED = """
import os, random, time
import numpy as np, tapegrad as tg
BEGIN, HERE, OWN = time.time(), os.getcwd(), random.Random()
with open(__file__) as file:
    TEXT = file.read()
DRAWN = np.random.default_rng().normal()
def square(x):
    return x * x * (time.time() > 0)
SLOPE = tg.grad(square)(1.5)
"""


class Hook:
    """A finder of modules that asks the system and the clock, as pytest's and those of editable installs do."""

    def find_spec(self, name, path=None, target=None):
        os.stat(os.sep), time.time()


def test_what_an_import_asks_is_no_reading_of_the_function(tmp_path, monkeypatch):
    """A function imports a module in its first run alone: what its hooks and the module's code ask is not frozen into the program."""
    (tmp_path / "imported_when_traced.py").write_text(IMPORTED)
    (tmp_path / "imported_by_name.py").write_text("from imported_when_traced import SLOPE")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])

    def f(x):
        _ = os.path  # a name for which the calls of the trace are looked at
        import imported_when_traced

        return np.sum(x) * imported_when_traced.SLOPE

    def g(x):
        return np.sum(x) * importlib.import_module("imported_by_name").SLOPE

    np.testing.assert_array_equal(tg.compile(tg.grad(f))(X), np.full(X.shape, 3.0))
    np.testing.assert_array_equal(tg.compile(tg.grad(g))(X), np.full(X.shape, 3.0))

    def asks(x):
        import imported_when_traced

        return np.sum(x) * imported_when_traced.time.time()

    with pytest.raises(tg.TraceError, match="Call it outside"):
        tg.compile(asks)(X)


@pytest.mark.parametrize("ask", [np.shares_memory, np.may_share_memory])
def test_whether_arguments_share_memory_is_refused(ask):
    with pytest.raises(tg.TraceError, match="share memory"):
        tg.compile(lambda x, y: np.sum(x) * (2.0 if ask(x, y) else 3.0))(X, X.copy())


def test_strides_of_an_argument_are_refused():
    with pytest.raises(tg.TraceError, match="strides"):
        tg.compile(lambda x: np.sum(x) * x.strides[0])(X)


ASKED = {
    "float": lambda x, k: np.sum(x) * (2.0 if isinstance(k, float) else 3.0),
    "floating": lambda x, k: np.sum(x) * (2.0 if isinstance(k, np.floating) else 3.0),
    "type": lambda x, k: np.sum(x) * (2.0 if type(k) is np.float64 else 3.0),
    "isscalar": lambda x, k: np.sum(x) * (2.0 if np.isscalar(k) else 3.0),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_kind_of_a_numpy_scalar_is_refused_where_it_is_asked_for(name):
    f = ASKED[name]
    with pytest.raises(tg.TraceError, match="NumPy scalar"):
        tg.compile(f)(X, np.float64(2.0))
    assert tg.compile(f)(X, 2) == f(X, 2)
    integer = tg.compile(lambda x, k: np.sum(x) * (2.0 if isinstance(k, int) else k))
    assert integer(X, np.float64(3.0)) == 4.5


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
    v *= (
        np.sum(flat) / flat.size
    )  # of order 1: cosines of large numbers would make the gradient a matter of rounding


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


@pytest.mark.parametrize("made", [lambda x: np.tile(x, (2, 1)), lambda x: np.repeat(x[None], 2, 0)])
def test_stores_into_copies_side_by_side(made):
    """`np.tile` gives memory of its own, of which a flat view shows all."""

    def f(x):
        v = made(x)
        v.ravel()[..., None] += np.sum(x)
        return np.sum(v * v * np.arange(10.0).reshape(2, 5))

    x = np.array([0.5, -0.3, 0.8, 1.1, -0.7])
    for g in (tg.grad(f), tg.compile(tg.grad(f))):
        h = 1e-6 * np.eye(5)
        slopes = [(f(x + e) - f(x - e)) / 2e-6 for e in h]
        np.testing.assert_allclose(g(x), slopes, rtol=1e-7)
    np.testing.assert_allclose(tg.compile(f)(x), f(x), rtol=1e-13)


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


def test_a_program_is_given_where_the_first_run_changes_what_it_reads():
    kept = {"scale": 1.0}

    def once(x):
        y = x * kept["scale"]
        kept["scale"] = 2.0
        return y

    compiled = tg.compile(once)
    assert compiled.program(np.ones(2)) is compiled.program(np.ones(2))
    np.testing.assert_array_equal(compiled(np.ones(2)), [2.0, 2.0])

    def always(x):
        kept["scale"] += 1.0
        return x * kept["scale"]

    with pytest.raises(tg.TraceError, match="changes what it reads"):
        tg.compile(always).program(np.ones(2))


def _of_a_dataclass(**settings):
    @dataclasses.dataclass(**settings)
    class Model:
        k: float

    return Model(2.0)


@pytest.mark.parametrize(
    "settings",
    [{}, {"frozen": True}, {"frozen": True, "slots": True}, {"order": True}, {"eq": False}],
    ids=str,
)
def test_machine_code_looks_at_a_dataclass(settings):
    """Their methods ask whether classes are the same, and for names of classes: calls were taken apart by Python, which takes 20 times as long."""
    model = _of_a_dataclass(**settings)
    f = tg.compile(tg.grad(lambda x: np.sum(x * x * model.k)))
    x = np.array([1.0, 2.0])
    f(x)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(f).__mro__[1], "dispatch", None)
        np.testing.assert_array_equal(f(x), 4 * x)
    object.__setattr__(model, "k", 3.0)
    np.testing.assert_array_equal(f(x), 6 * x)


@pytest.mark.parametrize(
    "asks, function",
    [
        (True, lambda x, y: x is y),
        (True, lambda x, y: x.T is y),
        (True, lambda x, y: y is not x),
        (True, lambda x, y: max(type, x) is y),
        (True, lambda x, y: type(x).mro(y) is x),
        (False, lambda x: x is None),
        (False, lambda x: type(x) is float),
        (False, lambda x, y: x.__class__ is y.__class__),
    ],
)
def test_which_comparisons_may_be_about_arrays(asks, function):
    assert reading.facts(function.__code__).compares == asks


# ------------------------------------------------------------------------------------------------ printing

LOG = logging.getLogger("tests of printing")


# fmt: off
def _f_string(x, s): print(f"s = {s:.3f}, {x}")
def _str(x, s): print("s", s, str(x), x[:2], sep="; ")
def _remainder(x, s): print("%.3f, %g and %s" % (s, x[0], x))  # noqa: UP031  what is tested
def _format(x, s): print("{:.3f} {x}".format(s, x=x))  # noqa: UP032  what is tested
def _numbers(x, s): print(round(float(s), 3), s.item() + 1, x.tolist())
def _lines(x, s):
    print(f"first {s:.3f} "
          f"second {x[0]:.2f}",
          "%s" % x[1])  # noqa: UP031  what is tested
def _comprehensions(x, s): print([f"{v:.2f}" for v in x], ", ".join(str(v) for v in x))
def _logs(x, s):
    LOG.warning("s = %s, %.3f", x, s)
    logging.getLogger().debug("%s", s)
def _terminal(x, s): sys.stdout.write(f"{s}\n")
# fmt: on


@pytest.mark.parametrize(
    "says",
    [_f_string, _str, _remainder, _format, _numbers, _lines, _comprehensions, _logs, _terminal],
    ids=lambda f: f.__name__,
)
def test_values_that_are_only_printed_are_no_guards(says, capsys):
    """Printed and logged in the traced run; not one more trace for other values, which were refused after sixteen."""

    runs = []

    def f(x):
        runs.append(1)
        s = np.sum(np.sin(x))
        says(x, s)
        return s

    fast = tg.compile(f)
    for k in range(20):
        x = np.linspace(0, k, 5)
        np.testing.assert_allclose(fast(x), np.sum(np.sin(x)))
    assert len(runs) == 1
    fast(np.ones(10_000))  # an array of any size is shown


def _kept(x, s):
    print(m := f"{s:.1f}")
    return m


def _of_a_name(x, s):
    m = f"{s:.1f}"
    print(m)
    return m


def _chosen(x, s):
    print(f"{s}" if s > 0 else 0)


def _to_a_file(x, s):
    print(f"{s}", file=io.StringIO())


def _handed_on(x, s):
    print(np.float64(float(s)))


def _by_another_print(x, s):
    seen = []
    print = seen.append
    print(f"{s:.1f}")
    return seen


@pytest.mark.parametrize(
    "looks",
    [_kept, _of_a_name, _chosen, _to_a_file, _handed_on, _by_another_print],
    ids=lambda f: f.__name__,
)
def test_text_that_goes_elsewhere_too_is_a_guard(looks):
    runs = []

    def f(x):
        runs.append(1)
        s = np.sum(x)
        return s * len(str(looks(x, s)))

    fast = tg.compile(f)
    for x in (np.ones(3), -np.ones(3), 2 * np.ones(3)):
        expected = float(fast(x))
        assert len(runs) == 1, "the program of other values answered"
        assert f(x) == expected
        runs.clear()


# ------------------------------------------------------------------------------------------------ errors that are caught


def _past_the_end(a):
    x = np.ravel(a)
    try:
        return x[np.argmax(x) + 1] * 2
    except IndexError:
        return np.sum(x) * 7


def _indefinite(a):
    try:
        return np.sum(np.linalg.cholesky(a) ** 2)
    except np.linalg.LinAlgError:
        return np.sum(a) * 10


def _singular(a):
    try:
        return np.sum(np.linalg.solve(a, np.ones(2)))
    except np.linalg.LinAlgError:
        return np.sum(a**2)


@pytest.mark.parametrize("f", [_past_the_end, _indefinite, _singular], ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", range(3))
def test_an_error_that_the_function_catches_depends_on_values(f, first):
    """The program of one branch answered for the other, or raised what the function catches."""
    matrices = [
        np.array([[2.0, 0.5], [0.5, 1.0]]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 2.0], [2.0, 4.0]]),
    ]
    value, both = tg.compile(f), tg.compile(tg.value_and_grad(f))
    for k in range(7):
        a = matrices[(first + k) % 3]
        np.testing.assert_allclose(value(a), f(a), rtol=1e-12)
        for got, expected in zip(both(a), tg.value_and_grad(f)(a), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_an_error_by_the_values_of_a_large_array_is_refused():
    def f(x):
        try:
            return np.sum(x[(x > 5).astype(int) * x.size])
        except IndexError:
            return np.sum(x)

    fast = tg.compile(f)
    np.testing.assert_allclose(fast(np.ones(10)), 10.0)
    with pytest.raises(tg.TraceError, match="caught an error"):
        fast(np.full(5000, 6.0))
