"""What runs in place of a user's function cannot be told from it: as a key, by `==`, in caches and tables, when it is patched or stored.

Each case is a function of a number that joins tracked numbers, so that copies run, and that takes another branch where a copy is told
from the function. Value and slope are compared with those of the plain function.
"""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import types
import weakref
from concurrent import futures
from unittest import mock

import numpy as np
import pytest

import tapegrad as tg

X = 0.7


def pair(x):
    return np.array([x, 2 * x])


def other_pair(x):
    return np.array([x, 5 * x])


class Body:
    def __init__(self, table=None):
        self.table = {self.pull: 7.0} if table is None else table

    def pull(self, x):
        return np.array([x, x * x])

    def push(self, x):
        return np.array([x, 3 * x])

    def name(self):
        return "body"

    @classmethod
    def named(cls):
        return cls()

    def weighed(self, x):
        return np.sum(self.pull(x)) * self.table.get(self.pull, 100.0)

    def patched(self, x):
        was = Body.pull
        Body.pull = Body.push
        try:
            return np.sum(self.pull(x)) + np.sum(Body.push(self, x))
        finally:
            Body.pull = was


class Holder:
    """Equal to another one of the same function."""

    def __init__(self, f):
        self.f = f

    def __eq__(self, other):
        return self.f == other.f

    def __hash__(self):
        return hash(self.f)

    def total(self, x):
        return np.sum(np.array([x, self.f is not None]))


BODY = Body()
BOUND = {BODY.pull: 1.0, BODY.push: 2.0}
NAMES = {BODY.name: 2.0, Body.named: 3.0, Body.name: 4.0}
UNBOUND = {Body.pull: 1.0, Body.push: 2.0}
PART = functools.partial(pair)
TABLE = {pair: 3.0, PART: 2.0, np.array: 4.0, np.zeros: 5.0}
HOLDER = Holder(pair)
HELD = {HOLDER: 2.0}
HOLDS = Body({})
COPIES: list[Body] = []


def weight(g):
    return TABLE.get(g, 100.0)


def is_pair(g):
    return g is pair


@functools.lru_cache
def cached(g):
    return 5.0 if g is pair else 100.0


HIDDEN = {
    "is": is_pair,
    "cache": cached,
    "same": lambda a, b: a is b,
    "below": lambda kind: len(kind.__subclasses__()),
}


def matched(x):
    match pair:
        case g if g in TABLE:
            return np.sum(pair(x))
    return 100 * np.sum(pair(x))


def alias(x):
    g = pair
    return np.sum(g(x)) * TABLE.get(g, 100.0)


def wrapped(x):
    @functools.wraps(pair)
    def w(y):
        return pair(y) * 2

    return np.sum(w(x)) * (1.0 if w.__wrapped__ == pair and w.__name__ == "pair" else 100.0)


def patched_by_mock(x):
    with mock.patch.object(Body, "pull", Body.push):
        return np.sum(BODY.pull(x)) + np.sum(np.array([x]))


def copied(x):
    """A copy of an object is another object, which is the user's when the call ends."""
    COPIES[:] = copy.copy(HOLDS), copy.deepcopy(HOLDS)
    table = {HOLDS: 1.0} | dict.fromkeys(COPIES, 10.0)
    return np.sum(HOLDS.pull(x)) * table[HOLDS] * len(table) * (100.0 if HOLDS in COPIES else 1.0)


EQUAL = {
    "method as a key": lambda x: np.sum(BODY.pull(x)) * BOUND.get(BODY.pull, 100.0),
    "unbound method as a key": lambda x: np.sum(BODY.pull(x)) * UNBOUND.get(Body.pull, 100.0),
    "method in an attribute's table": lambda x: BODY.weighed(x),
    "method of self": BODY.weighed,
    "alias as a key": alias,
    "argument as a key": lambda x: np.sum(pair(x)) * weight(pair),
    "list": lambda x: np.sum(pair(x)) * [3.0, 100.0][[pair, len].index(pair)],
    "loop": lambda x: sum(np.sum(g(x)) * TABLE.get(g, 100.0) for g in [pair]),
    "setdefault": lambda x: np.sum(pair(x)) * {**TABLE}.setdefault(pair, 100.0),
    "set": lambda x: np.sum(pair(x)) * len({*TABLE, pair}),
    "match": matched,
    "partial": lambda x: np.sum(PART(x)) * TABLE.get(PART, 100.0),
    "NumPy's": lambda x: np.sum(np.array([x])) * TABLE[np.array] * TABLE.get(np.zeros, 100.0),
    "equality": lambda x: np.sum(pair(x)) * (1.0 if pair == next(iter(TABLE)) else 100.0),
    "inequality": lambda x: np.sum(pair(x)) * (100.0 if next(iter(TABLE)) != pair else 1.0),
    "wraps": wrapped,
    "copies": lambda x: np.sum(copy.deepcopy(pair)(x)) * weight(copy.copy(pair)),
    "pickle": lambda x: np.sum(pair(x)) * weight(pickle.loads(pickle.dumps(pair))),
    "objects": lambda x: HOLDER.total(x) * HELD.get(HOLDER, 100.0) * HELD.get(Holder(pair), 100.0),
    "methods that are not copied": lambda x: np.sum(BODY.pull(x)) * NAMES[BODY.name] * NAMES[Body.named] * NAMES.get(Body.name, 1.0),
    "attribute": lambda x: np.sum(pair(x)) * len(pair.__name__),
    "class of a function": lambda x: np.sum(pair(x)) * isinstance(pair, types.FunctionType),
    "transform inside": lambda x: tg.grad(lambda y: np.sum(pair(y)))(x) * np.sum(tg.vmap(pair)(np.array([x]))),
    "map": lambda x: np.sum(np.array(list(map(pair, [x, 2 * x])))),
    "reduce": lambda x: np.sum(functools.reduce(lambda a, b: a + pair(b), [x, x])),
    "patch of a class": BODY.patched,
    "copies of an object": copied,
    "equal to anything": lambda x: np.sum(BODY.pull(x)) * (1.0 if BODY == mock.ANY and pair == mock.ANY and Body == mock.ANY else 100.0) + np.sum(pair(x)),
    "patch by mock": patched_by_mock,
}  # fmt: skip


BY_IDENTITY = {
    "is in a table's function": lambda x: np.sum(pair(x)) * (1.0 if HIDDEN["is"](pair) else 100.0),
    "is in a cache": lambda x: np.sum(pair(x)) * cached(pair),
    "is in a cache of a table": lambda x: np.sum(pair(x)) * HIDDEN["cache"](pair),
    "is of arguments": lambda x: np.sum(pair(x)) * (1.0 if HIDDEN["same"](pair, next(iter(TABLE))) else 100.0),
    "subclasses in a table's function": lambda x: np.sum(BODY.pull(x)) * HIDDEN["below"](Body),
    "operator.is_": lambda x: np.sum(pair(x)) * (1.0 if operator.is_(pair, next(iter(TABLE))) else 100.0),
}  # fmt: skip


def right(f):
    step = 1e-6
    slope = (f(X + step) - f(X - step)) / (2 * step)
    value, gradient = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (X,), (1.0,))[1], slope, rtol=1e-7)


@pytest.mark.parametrize("name", EQUAL)
def test_copies_are_equal_to_the_functions(name):
    right(EQUAL[name])
    assert type(Body.pull) is type(Body.push) is type(pair) is types.FunctionType
    assert all(type(made) is Body and made != HOLDS for made in COPIES)


@pytest.mark.parametrize("name", BY_IDENTITY)
def test_functions_that_are_compared_by_identity_stay_themselves(name):
    cached.cache_clear()
    with pytest.raises(tg.GradientLost):
        tg.grad(BY_IDENTITY[name])(X)


def test_what_is_stored_on_the_way_is_the_users_own():
    kept = Body({})

    def f(x):
        kept.function, kept.method, kept.body, kept.kind = pair, BODY.pull, BODY, Body
        return np.sum(kept.pull(x)) + np.sum(pair(x))

    right(f)
    assert kept.function is pair and kept.body is BODY and kept.kind is Body
    assert type(kept.method) is types.MethodType and kept.method == BODY.pull


def test_a_stored_function_can_be_told_anew(monkeypatch):
    monkeypatch.setitem(TABLE, pair, 9.0)
    right(EQUAL["alias as a key"])
    assert tg.grad(alias)(X) == 27.0
    monkeypatch.setitem(globals(), "pair", other_pair)
    assert tg.grad(alias)(X) == 600.0


def test_what_is_kept_in_tables_means_what_its_names_mean_later(monkeypatch):
    """A callback that is registered during the call runs as the user's own function afterwards."""
    kept = []

    def made(inner):
        def outer(x):
            return np.sum(inner(x))

        def bind(f):
            nonlocal inner
            inner = f

        return outer, bind

    outer, bind = made(pair)
    body = Body({})

    def f(x):
        kept.extend((outer, body.pull, pair))
        return outer(x) + np.sum(body.pull(x))

    right(f)
    assert kept.count(outer) == kept.count(body.pull) == kept.count(pair) == 5
    assert [type(g(2.0)) for g in kept[-3:]] == [np.float64, np.ndarray, np.ndarray]
    bind(other_pair)
    assert kept[-3](1.0) == outer(1.0) == 6.0
    assert tg.grad(lambda x: kept[-3](x) + np.sum(np.array([x])))(1.0) == 7.0
    monkeypatch.setattr(Body, "pull", Body.push)
    assert kept[-2](2.0)[1] == 4.0  # a method is bound once


def test_objects_are_keys_in_several_transforms():
    keys, seen, weak = {}, [], weakref.WeakKeyDictionary()

    class Counted:
        def pull(self, x):
            keys.setdefault(self, len(keys) + 1.0)
            weak[self] = weak.get(self, 0) + 1
            if self not in seen:
                seen.append(self)
            if self.pull not in seen:
                seen.append(self.pull)
            return keys[self] * np.sum(np.array([x, 2 * x]))

    counted = Counted()
    for f in (
        counted.pull,
        lambda x: counted.pull(x),
        lambda x: counted.pull(x) + np.sum(pair(x)) * 0,
    ):
        assert tg.grad(f)(X) == 3.0
    counted.pull(X)
    assert len(keys) == len(weak) == 1 and len(seen) == 2 and weak[counted] == 4


def test_functions_that_are_handed_out_are_the_users_own():
    aux = tg.grad(lambda x: (np.sum(BODY.pull(x)), [pair, BODY.pull, Body, BODY]), has_aux=True)(X)[
        1
    ]
    assert aux[0] is pair and aux[2] is Body and aux[3] is BODY
    assert type(aux[1]) is types.MethodType and aux[1] == BODY.pull


def test_tangents_go_through_other_threads():
    def f(x):
        with futures.ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(pair, [x, 2 * x]))
        return np.sum(parts[0]) * x + np.sum(parts[1] * parts[0])

    slope = 6 * X + 20 * X  # of 3x * x + 2x * x + 4x * 2x
    for found in (
        tg.grad(f)(X),
        tg.jvp(f, (X,), (1.0,))[1],
        tg.linearize(f, X)[1](1.0),
        tg.jacobian(f, mode="forward")(X),
        tg.autograd.functional.jvp(f, tg.tensor(X), tg.tensor(1.0))[1],
    ):
        assert found.item() == pytest.approx(slope, rel=1e-12)
    assert tg.jvp(tg.grad(f), (X,), (1.0,))[1].item() == pytest.approx(26.0, rel=1e-12)


MADE: dict[str, np.ndarray] = {}


def test_arrays_that_tables_keep_are_numpys():
    local, given, kept = [], tg.tensor(1.0), Body({})
    kept.rows = []

    def f(x):
        if not MADE:
            MADE["weights"] = np.zeros(2)
            MADE["weights"][:] = 1.0, 2.0
        local.append(np.array([3.0, 4.0]))
        kept.rows.append(np.zeros(2))
        name = f"{pair.__module__}.{pair.__name__}"
        return np.sum(MADE["weights"] * kept.pull(x)) * len(name)

    for run in (f, tg.grad(f), lambda x: tg.jvp(f, (x,), (1.0,)), tg.grad(f)):
        MADE.clear()
        local[:] = [given]
        run(X)
        assert {*map(type, [*MADE.values(), local[1], *kept.rows])} == {np.ndarray}
        assert local[0] is given and type(f(X)) is np.float64
    right(f)


LOG = []
WEIGHTS = {"w": tg.tensor([1.0, 2.0])}


def test_tensors_that_the_user_keeps_stay_tensors():
    def detached(x):
        LOG.append(np.sum(x * 2).detach())
        return np.sum(pair(x))

    def known(x):
        LOG.append(WEIGHTS["w"])
        return np.sum(pair(x)) * np.sum(WEIGHTS["w"])

    def plain(x):
        LOG.append(np.array([1.0, 2.0]))
        return np.sum(pair(x))

    LOG.clear()
    for f in (detached, known, plain):
        tg.grad(f)(X)
    assert [type(x) for x in LOG] == [tg.Tensor, tg.Tensor, np.ndarray]
    assert LOG[1] is WEIGHTS["w"]


def test_a_function_that_is_defined_inside_and_kept_means_what_its_closure_means_later():
    kept = []

    def made(helper, deeper):
        def middle(x):
            kept.append(lambda y: np.sum(deeper(y)))
            return np.sum(deeper(x))

        def f(x):
            kept.append(lambda y: np.sum(helper(y)))
            return kept[-1](x) + middle(x)

        def bind(one, two):
            nonlocal helper, deeper
            helper, deeper = one, two

        return f, bind

    f, bind = made(pair, pair)
    assert tg.grad(f)(X) == 6.0
    by_helper, by_deeper = kept
    assert (by_helper(1.0), by_deeper(1.0)) == (3.0, 3.0)
    bind(other_pair, lambda x: np.array([x, x, x]))
    for g, slope in ((by_helper, 6.0), (by_deeper, 3.0)):
        assert g(1.0) == slope and type(g(1.0)) is np.float64
        assert tg.grad(g)(X) == slope
    assert tg.grad(f)(X) == 9.0
    cell = weakref.ref(f)
    del f, bind, g, by_helper, by_deeper
    kept.clear()
    assert cell() is None
