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


def weight(g):
    return TABLE.get(g, 100.0)


def is_pair(g):
    return g is pair


@functools.lru_cache
def cached(g):
    return 5.0 if g is pair else 100.0


HIDDEN = {"is": is_pair, "cache": cached, "same": lambda a, b: a is b}


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
    "patch by mock": patched_by_mock,
}  # fmt: skip

BY_IDENTITY = {
    "is in a table's function": lambda x: np.sum(pair(x)) * (1.0 if HIDDEN["is"](pair) else 100.0),
    "is in a cache": lambda x: np.sum(pair(x)) * cached(pair),
    "is in a cache of a table": lambda x: np.sum(pair(x)) * HIDDEN["cache"](pair),
    "is of arguments": lambda x: np.sum(pair(x)) * (1.0 if HIDDEN["same"](pair, next(iter(TABLE))) else 100.0),
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
