"""Derivatives that solvers compile by themselves: which functions, when, and that nothing is changed or lost by it."""

import math
import random
import time
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.interop import promotion
from tapegrad.interop.effects import effect
from tapegrad.transforms import derivatives

T = np.linspace(0, 3, 20)
Y = 2 * np.exp(-1.3 * T) + 0.1
RATE = 1.5
SETTINGS = {"steps": 3, "data": Y}
SEEN: list[float] = []
RNG = np.random.default_rng(0)
BUFFER = np.zeros(20)


class Rates(NamedTuple):
    fast: float
    slow: float


@dataclass
class Model:
    t: np.ndarray
    calls: int = 0

    @property
    def last(self):
        return self.t[-1]

    def curve(self, p):
        return p[0] * np.exp(-p[1] * self.t / self.last)

    def loss(self, p):
        return np.sum((self.curve(p) - Y) ** 2)

    def counted(self, p):
        self.calls += 1
        return self.loss(p)

    def sampled(self, p):
        return self.loss(p) + self.draw()

    def draw(self):
        return RNG.normal()


@dataclass(frozen=True, slots=True)
class Line:
    t: np.ndarray

    def loss(self, p):
        return np.sum((p[0] * self.t - Y) ** 2)


def exponential(p):
    return p[0] * np.exp(-p[1] * T)


def euler(p):
    y = tg.zeros(20)
    y[0] = p[0]
    for i in range(1, 20):
        y[i] = y[i - 1] - 0.1 * p[1] * y[i - 1]
    return np.sum((y - Y) ** 2)


def listed(p):
    parts = []
    for i in range(SETTINGS["steps"]):
        parts.append(p * i)
    return np.sum(np.stack(parts))


def nested(p):
    def inner(q):
        total = 0.0
        for t in T[:3]:
            total += q[0] * math.sqrt(t)
        return total

    return inner(p) + tg.grad(lambda z: np.sum(z**3))(p)[0] + tg.linalg.expm(np.eye(2))[0, 0]


def guarded(p):
    if p[0] > 100:
        raise ValueError("too far")
    with_names = Rates(fast=p[0], slow=p[1])
    return with_names.fast**2 + with_names.slow**2 + tg.special.erf(p[0])


CALM = {
    "a lambda": lambda p: np.sum((exponential(p) - Y) ** 2),
    "a method": Model(T).loss,
    "a method, slots": Line(T).loss,
    "a buffer of its own": euler,
    "a list of its own": listed,
    "functions inside": nested,
    "an exception": guarded,
    "a ufunc": np.square,
    "an op": tg.sum,
    "NumPy's": np.linalg.norm,
    "globals": lambda p: np.sum(p) * RATE * SETTINGS["steps"],
}


def prints(p):
    print(p)
    return np.sum(p)


def remembers(p):
    SEEN.append(float(tg.as_tensor(p).detach().sum()))
    return np.sum(p)


def remembers_in_a_dict(p):
    SETTINGS["last"] = 1.0
    return np.sum(p)


def writes_to_an_array(p):
    BUFFER[0] += 1
    return np.sum(p)


def writes_through_a_name(p):
    mine = BUFFER
    mine[0] = 2.0
    return np.sum(p)


def adds_through_a_name(p):
    mine = SETTINGS["data"]
    mine += 1.0
    return np.sum(p)


def writes_through_a_function(p):
    np.add(BUFFER, 1.0, out=BUFFER)
    np.add.at(BUFFER, [0], 1.0)
    return np.sum(p)


def draws(p):
    return np.sum(p) + RNG.normal()


def looks_at_the_clock(p):
    return np.sum(p) * time.time()


def sets_a_global(p):
    global RATE
    RATE = 2.0
    return np.sum(p)


def writes_a_file(p):
    np.save("file.npy", np.ones(3))
    return np.sum(p)


def imports(p):
    import os

    return np.sum(p) * len(os.environ)


def counter():
    n = 0

    def counted(p):
        nonlocal n
        n += 1
        return np.sum(p) + 0 * n

    return counted


def defaulted(p, seen=[]):  # noqa: B006
    seen.append(1)
    return np.sum(p)


def hidden(p):
    return prints(p) * 2


class Items:
    def __getitem__(self, i):
        SEEN.append(i)
        return 1.0


ITEMS = Items()

RESTLESS = {
    "prints": (prints, "print"),
    "prints further in": (hidden, "print"),
    "prints in a function inside": (lambda p: (lambda q: prints(q))(p), "print"),
    "appends": (remembers, "append"),
    "sets an item": (remembers_in_a_dict, "writes into SETTINGS"),
    "sets an array": (writes_to_an_array, "writes into BUFFER"),
    "by another name": (writes_through_a_name, "writes into mine"),
    "in place": (adds_through_a_name, "changes mine in place"),
    "through NumPy": (writes_through_a_function, "out=|at"),
    "NumPy's generator": (draws, "Generator"),
    "NumPy's random numbers": (lambda p: np.sum(p) + np.random.normal(), "RandomState"),  # noqa: NPY002
    "Python's random numbers": (lambda p: np.sum(p) + random.random(), "random"),
    "the clock": (looks_at_the_clock, "time"),
    "a global": (sets_a_global, "global RATE"),
    "a nonlocal": (counter(), "enclosing"),
    "a default": (defaulted, "append|writes"),
    "a file": (writes_a_file, "ArrayFunctionDispatcher"),
    "another module": (imports, "imports os"),
    "an attribute": (Model(T).counted, "attribute calls"),
    "a method further in": (Model(T).sampled, "Generator"),
    "a class with items": (lambda p: p[0] * ITEMS[0], "run unseen"),
    "native": (tg.njit(lambda x: x * x), "NativeFunction|native"),
}


@pytest.mark.parametrize("name", CALM)
def test_what_only_computes_is_recognised(name):
    assert effect(CALM[name]) is None


@pytest.mark.parametrize("name", RESTLESS)
def test_what_does_more_is_named(name):
    f, words = RESTLESS[name]
    with pytest.raises(AssertionError, match=words):
        assert effect(f) is None, effect(f)


def test_what_a_callback_might_change_counts_if_there_is_one():
    assert effect(CALM["globals"]) is None
    assert "dict" in effect(CALM["globals"], others_act=True)
    assert "Model" in effect(Model(T).loss, others_act=True)
    assert effect(CALM["a lambda"], others_act=True) is None  # its arrays are small: looked at


@pytest.fixture
def eager_to_compile(monkeypatch):
    """Promotion after a few evaluations; returns the derivatives that were made."""
    made = []
    start = promotion.Promoted.__init__

    def init(self, *args):
        start(self, *args)
        made.append(self)

    monkeypatch.setattr(promotion, "LEAST", 0.0)
    monkeypatch.setattr(promotion, "PATIENCE", 0.0)
    monkeypatch.setattr(promotion.Promoted, "__init__", init)
    return made


SOLVES = {
    "minimize": lambda **k: tg.minimize(
        lambda p: np.sum((exponential(p) - Y) ** 2), [1.0, 1.0], **k
    ),
    "trust-exact": lambda **k: tg.minimize(Model(T).loss, [1.5, 2.0], method="trust-exact", **k),
    "products": lambda **k: tg.minimize(
        lambda p: np.sum((p - 1) ** 4) + np.sum(p**2), np.zeros(30), method="trust-ncg", **k
    ),
    "Nelder-Mead": lambda **k: tg.minimize(euler, [1.5, 2.0], method="Nelder-Mead", **k),
    "a loop": lambda **k: tg.minimize(euler, [1.5, 2.0], **k),
    "constraints": lambda **k: tg.minimize(
        lambda p: np.sum((p - 2) ** 2),
        [0.1, 0.2],
        constraints={"type": "ineq", "fun": lambda p: 1 - p @ p},
        **k,
    ),
    "least_squares": lambda **k: tg.least_squares(
        lambda p: {"fit": p["a"] * np.exp(-p["k"] * T) - Y}, {"a": 1.0, "k": 1.0}, **k
    ),
    "root": lambda **k: tg.root(lambda x: np.exp(x) - np.arange(1.0, 6.0), np.zeros(5), **k),
}


@pytest.mark.parametrize("name", SOLVES)
def test_compiled_and_eager_solves_agree(name, eager_to_compile):
    eager = SOLVES[name](compile=False)
    assert not eager_to_compile
    auto = SOLVES[name]()
    compiled = [p for p in eager_to_compile if p.compiled is not None]
    assert compiled, [p.why for p in eager_to_compile]
    at_once = SOLVES[name](compile=True)
    for other in (auto, at_once):
        assert other.success == eager.success
        for ours, theirs in zip(
            *(derivatives._flatten(r.x)[0] for r in (other, eager)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_function_with_effects_runs_each_time(eager_to_compile):
    seen = []

    def f(p):
        seen.append(1)
        return np.sum((p - 1) ** 2)

    result = tg.minimize(f, np.zeros(3), tol=1e-12)
    assert all(p.compiled is None for p in eager_to_compile)
    assert "append" in eager_to_compile[-1].why
    assert (
        len(seen) == result.nfev + 2
    )  # the looks at the start, and at the solution: is its value tracked?


def test_what_a_callback_changes_is_seen(eager_to_compile):
    weight = {"by": 1.0}
    fit = tg.minimize(
        lambda p: weight["by"] * np.sum((p - 1) ** 2),
        np.zeros(2),
        callback=lambda p: weight.update(by=weight["by"] * 2),
    )
    assert all(p.compiled is None for p in eager_to_compile) and weight["by"] > 1
    assert fit.fun == weight["by"] / 2 * np.sum((fit.x - 1) ** 2) or fit.fun < 1e-20


def test_programs_that_cost_more_than_they_save_are_given_up(eager_to_compile, monkeypatch):
    """Newton's inner steps depend on the values, so every other point is another program."""
    monkeypatch.setattr(promotion, "PRICE", 1e-6)
    monkeypatch.setattr(promotion, "PRICE_OF_ENTRY", 0.0)

    def f(p):
        x = p
        while np.sum(np.abs(x * x - 2)) > 1e-9:
            x = 0.5 * (x + 2 / x)
        return np.sum((x - p) ** 2)

    tg.minimize(f, [3.0, 4.0], method="Nelder-Mead")
    assert all(p.compiled is None for p in eager_to_compile)


def test_what_cannot_be_compiled_stays_eager(eager_to_compile, monkeypatch):
    def refuse(*args):
        raise tg.TraceError("no")

    monkeypatch.setattr(tg.compiler.Compiled, "dispatch", refuse)
    assert tg.minimize(CALM["a lambda"], [1.0, 1.0]).success
    assert {p.why for p in eager_to_compile if p.calls > 1} == {"it cannot be compiled: no"}
    with pytest.raises(tg.TraceError):
        tg.minimize(CALM["a lambda"], [1.0, 1.0], compile=True)


def test_a_program_that_differs_is_not_used(eager_to_compile, monkeypatch):
    run = tg.compiler.Compiled.dispatch
    monkeypatch.setattr(
        tg.compiler.Compiled, "dispatch", lambda *a: tuple(x * 1.001 for x in run(*a))
    )
    fit = tg.minimize(CALM["a lambda"], [1.0, 1.0])
    assert {p.why for p in eager_to_compile if p.calls > 1} == {
        "its program computed something else"
    }
    np.testing.assert_array_equal(fit.x, tg.minimize(CALM["a lambda"], [1.0, 1.0], compile=False).x)


def test_a_program_that_raises_hands_over_to_the_function(eager_to_compile):
    def f(p):
        try:
            return np.sum(np.linalg.cholesky(np.eye(2) * (p[0] + 1.5)) * (p[0] - 1) ** 2)
        except np.linalg.LinAlgError:
            return 1e3 * p[0] ** 2

    fits = [tg.minimize(f, [2.5], method="Nelder-Mead", compile=c) for c in ("auto", False)]
    assert fits[0].x == pytest.approx(fits[1].x, abs=1e-6)


@pytest.mark.parametrize("where", ["debug_nans", "errstate"])
def test_who_looks_at_evaluations_sees_them_all(where, eager_to_compile):
    context = tg.debug_nans() if where == "debug_nans" else np.errstate(all="raise")
    with context:
        tg.minimize(CALM["a lambda"], [1.0, 1.0])
    assert all(p.compiled is None and p.why for p in eager_to_compile if p.calls > 1)


def test_few_evaluations_compile_nothing():
    made = []
    start = promotion.Promoted.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            promotion.Promoted, "__init__", lambda self, *a: (made.append(self), start(self, *a))[1]
        )
        tg.minimize(CALM["a lambda"], [1.0, 1.0])
    assert made and all(p.compiled is None for p in made)


@pytest.mark.parametrize("solver", [tg.minimize, tg.least_squares, tg.root])
def test_the_argument_is_checked(solver):
    with pytest.raises(ValueError, match="once it pays"):
        solver(lambda x: x * x, 1.0, compile="always")


def test_warnings_of_the_tries_are_not_said_twice(eager_to_compile):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tg.minimize(lambda p: np.sum(p * np.log(p)), [0.5, 3.0], method="Nelder-Mead")
    assert all("log" in str(w.message) or "invalid" in str(w.message) for w in said)
