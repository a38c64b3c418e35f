"""Derivatives of order 1 to 4 at special points: zeros, ties, edges of domains, removable singularities.

Each function is followed along lines through such points, x(t) = point + t direction. The derivative of order n by t, at t = 0, is judged by
the derivatives of order n - 1 beside it: a polynomial through seven of them, on one side, has a slope at 0. Two lengths of steps tell
whether there is such a slope, and both sides whether there is one only; where there is not (a kink, a pole, a branch), the number is a
matter of convention, which other tests hold. Orders are taken in reverse, in forward mode, as forward over reverse, and compiled.
A NaN is no wrong number: whoever asks sees it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tapegrad.core.primitive import OPS
from tapegrad.llvm import jit

STEPS = (0.02, 0.01)
NEAR = np.arange(1, 8)
# The value and slope at 0 of the polynomial through f(h), f(2 h), ..., f(7 h); the slope times h.
VALUE, SLOPE = np.linalg.solve(np.vander(NEAR.astype(float), increasing=True).T, np.eye(7)[:, :2]).T

ON_A_LINE = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
IN_A_PLANE = (-1.0, 0.0, 0.5, 1.0, 2.0)
IN_SPACE = (0.0, 0.5, 1.0, 2.0)
# Directions that move the same operands stand together: one program is compiled for all of them.
DIRECTIONS: dict[int, list[list[tuple[float, ...]]]] = {
    1: [[(1.0,)]],
    2: [[(1.0, 0.0)], [(0.0, 1.0)], [(1.0, 1.0), (1.0, -2.0)]],
    3: [[(1.0, 0.0, 0.0)], [(0.0, 1.0, 0.0)], [(0.0, 0.0, 1.0)], [(1.0, -2.0, 0.5)]],
}


def reverse(f: Callable[..., Any]) -> Callable[..., Any]:
    return tg.grad(lambda t: np.sum(f(t)))


def forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t: tg.jvp(f, (t,), (np.ones_like(t),))[1]


def nested(f: Callable[..., Any], modes: str) -> Callable[..., Any]:
    """The derivative of one order for each letter; the innermost first."""
    for mode in modes:
        f = reverse(f) if mode == "r" else forward(f)
    return f


WAYS: dict[str, Callable[..., Any]] = {
    "reverse": lambda f, n: nested(f, "r" * n),
    "forward": lambda f, n: nested(f, "f" * n),
    "forward over reverse": lambda f, n: nested(f, "r" + "f" * (n - 1)),
}
COMPILED = {"compiled": "r", "compiled forward": "f"}
WAYS |= {name: lambda f, n, m=mode: tg.compile(nested(f, m * n)) for name, mode in COMPILED.items()}


def orders_of(f: Callable[..., Any], name: str, orders: int, at: np.ndarray) -> list[np.ndarray]:
    """Derivatives of order 1, 2, ... by one of the ways; fewer than `orders` of them where a rule has none. A compiled program has them all:
    the highest order takes most of the time, and contains what the lower ones need."""
    if name not in COMPILED:
        found = []
        with contextlib.suppress(tg.NotDifferentiable):  # as honest as a NaN
            for n in range(1, orders + 1):
                found.append(np.asarray(WAYS[name](f, n)(at), float))
        return found
    # Forward programs are of the same parts as those in reverse: their fourth order took a third of the time of all these tests.
    if name == "compiled forward":
        orders = min(orders, 3)
    while orders:
        program = tg.compile(
            lambda t, up=orders: [nested(f, COMPILED[name] * n)(t) for n in range(1, up + 1)]
        )
        try:
            return [np.asarray(v, float) for v in program(at)]
        except tg.NotDifferentiable:
            orders -= 1
    return []


def slopes(f: Callable[..., Any], here: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Slopes at t = 0 on one side of functions that are `here` at 0, and how far they are known; NaN where one leaps, or has none."""
    found, limits = [], []
    for h in STEPS:
        t = np.broadcast_to(side * h * NEAR[:, None], (7, here.size))
        beside = np.asarray(f(t), float)
        found.append(np.tensordot(SLOPE, beside, 1) / (side * h))
        limits.append(np.tensordot(VALUE, beside, 1))
    size = np.max(np.abs(beside), axis=0)
    off = 3 * np.abs(found[0] - found[1]) + 1e-9 * size + 1e-10
    clear = off < 1e-4 * (1 + np.abs(found[1]) + 1e-3 * size)
    clear &= np.abs(limits[1] - here) <= 3 * np.abs(limits[0] - limits[1]) + 1e-9 * (1 + size)
    return np.where(clear, found[1], np.nan), off


def judged(f: Callable[..., Any], count: int, orders: int) -> list[str]:
    """What is wrong with derivatives at 0 of `count` functions of one variable: f maps (..., count) numbers to as many."""
    known = []  # for each order: what its derivative is, and how far that is known
    below: Callable[..., Any] = f
    smooth = np.ones(count, bool)  # higher derivatives at a kink are a matter of convention, too
    for n in range(1, orders + 1):
        try:
            here = np.asarray(below(np.zeros(count)), float)
        except tg.NotDifferentiable:  # so was the order below
            break
        (left, off), (right, off_right) = (slopes(below, here, side) for side in (-1, 1))
        off = np.fmax(off, off_right)
        one = np.where(np.isnan(left), right, left)
        edge = [np.isnan(np.asarray(below(np.full(count, side * 1e-3)), float)) for side in (-1, 1)]
        whole = np.abs(left - right) <= off
        half = np.where(edge[0], ~np.isnan(right), edge[1] & ~np.isnan(left))
        smooth &= whole | half
        known.append((np.where(smooth, one, np.nan), off))
        below = nested(f, "r" * n)
    told = []
    for name in WAYS:
        for n, got in enumerate(orders_of(f, name, len(known), np.zeros(count)), 1):
            expected, off = known[n - 1]
            for k in np.flatnonzero(np.abs(got - expected) > off):  # NaN is not
                told.append(
                    f"order {n}, {name}, line {k}: {got[k]!r}, beside it {expected[k]!r} within {off[k]:.1g}"
                )
    return told


def points(arity: int) -> np.ndarray:
    values = {1: ON_A_LINE, 2: IN_A_PLANE, 3: IN_SPACE}[arity]
    return np.array(list(itertools.product(values, repeat=arity)))


def elementwise() -> dict[str, tuple[Callable[..., Any], int]]:
    """Every op whose result is as many numbers as its operand, with settings of its first sample."""
    found: dict[str, tuple[Callable[..., Any], int]] = {}
    for op in OPS:
        if op.elementwise:
            found[op.name] = op.function, op.arity
        elif hasattr(op.forward, "declared"):
            _, parameters, by = op.forward.declared
            settings = op.samples[0].settings
            found[op.name] = (lambda *xs, o=op, s=settings: o.function(*([xs] if o.variadic else xs), **s)), len(by)  # fmt: skip
    return {name: row for name, row in found.items() if name not in COMPLEX}


COMPLEX = {"hankel1", "hankel2", "hankel1e", "hankel2e", "wofz", "lambertw"}
CONVENTIONS = {
    "where": "a condition has no derivative",
    "clip": "at equal bounds the gradient passes, as in PyTorch",
    "copysign": "at 0 the sign is that of 0.0",
}
FUNCTIONS = elementwise()


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Poles warn, which is not the matter here. Nor is fast code: it takes three times as long to compile."""
    monkeypatch.setattr(jit, "LIMIT", jit.QUICK)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def along(f: Callable[..., Any], places: np.ndarray, direction: Any) -> Callable[..., Any]:
    """f at points that move along a direction, or each along its own; what does not move is not tracked."""

    def moved(t: Any) -> Any:
        operands = []
        for x, d in zip(places.T, direction, strict=True):
            operands.append(x + t * d if np.any(d) else np.broadcast_to(x, np.shape(t)))
        return f(*operands)

    return moved


QUICK = ("ber", "berp", "huber", "multiply")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.campaign)
        for name in FUNCTIONS
        if name not in CONVENTIONS
    ],
)
def test_elementwise_functions(name):
    f, arity = FUNCTIONS[name]
    told = []
    for directions in DIRECTIONS[arity]:
        places = np.tile(points(arity), (len(directions), 1))
        moved = np.repeat(directions, len(places) // len(directions), axis=0)
        found = judged(along(f, places, moved.T), len(places), 4 if arity < 3 else 3)
        if found:
            told += [
                str(dict(enumerate(zip(places.tolist(), moved.tolist(), strict=True)))),
                *found,
            ]
    assert not told, "\n".join(told)


def test_second_derivatives_at_the_end_of_a_formula():
    """The slope of an exponential of minus infinity is 0, and a parabola of width 0 has no curvature."""
    for f, expected in (
        (lambda x: tg.special.boxcox1p(x, 2.0), 1.0),
        (lambda x: tg.special.pseudo_huber(0.0, x + 1), 0.0),
        (lambda x: tg.special.huber(0.0, x + 1), 0.0),
    ):
        second = tg.grad(tg.grad(f))
        assert second(-1.0) == tg.compile(second)(-1.0) == pytest.approx(expected, abs=1e-15)


@pytest.mark.campaign
def test_student_by_freedom_and_argument_at_the_middle():
    """The slope by the degrees of freedom is odd in t: a line through 0 had no third derivative."""
    places = np.array([[1.0, 0.0], [2.0, 0.0], [7.5, 0.0]])
    assert not judged(along(tg.special.stdtr, places, (1.0, 1.0)), 3, 4)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f", [
    lambda x: tg.special.betainc(2.0, 3.0, x), lambda x: tg.special.betainc(3.0, 1.0, 1 - x),
    lambda x: tg.special.gdtr(1.5, 2.0, x), lambda x: tg.special.gammaincc(3.0, x),
    lambda x: tg.special.bdtr(2.0, 5, x), lambda x: tg.special.pdtr(1.0, x),
    lambda x: tg.special.chdtr(4.0, x), lambda x: tg.special.fdtr(4.0, 3.0, x),
])  # fmt: skip
def test_distribution_functions_at_an_edge(f):
    """They were NaN from the second derivative on: the exponential of a logarithm has 0 times infinity for a slope."""
    assert not judged(f, 1, 4)
    orders = [float(np.sum(nested(f, "r" * n)(np.zeros(1)))) for n in (1, 2, 3, 4)]
    assert np.isfinite(orders).all() and orders[2] != 0


INF, NAN = np.inf, np.nan
PI = np.pi


def ways(n: int) -> list[tuple[str, Callable[..., Any]]]:
    """Without those that take long: compiled programs of higher orders."""
    return [(name, way) for name, way in WAYS.items() if "compiled" not in name or n <= 2]


# Of functions that have a closed form: erfinv(p)², -log(1 - p), p^(1/a), sin(πp/2)². Infinite slopes have the sign of the side that is inside.
@pytest.mark.long
@pytest.mark.parametrize("f, end, expected", [
    (lambda p: tg.special.gammaincinv(0.5, p), 0.0, [0.0, PI / 2, 0.0, PI**2]),
    (lambda p: tg.special.gammainccinv(0.5, p), 1.0, [0.0, PI / 2, 0.0, PI**2]),
    (lambda p: tg.special.chdtri(1.0, p), 1.0, [0.0, PI, 0.0, 2 * PI**2]),
    (lambda p: tg.special.gammaincinv(1.0, p), 0.0, [1.0, 1.0, 2.0, 6.0]),
    (lambda p: tg.special.gammaincinv(2.0, p), 0.0, [INF, -INF]),
    (lambda p: tg.special.gammaincinv(2.0, p), 1.0, [INF, INF]),
    (lambda p: tg.special.gammainccinv(2.0, p), 0.0, [-INF, INF]),
    (lambda p: tg.special.betaincinv(0.5, 1.0, p), 0.0, [0.0, 2.0, 0.0, 0.0]),
    (lambda p: tg.special.betaincinv(0.25, 1.0, p), 0.0, [0.0, 0.0, 0.0, 24.0]),
    (lambda p: tg.special.betaincinv(1.0, 0.5, p), 1.0, [0.0, -2.0, 0.0, 0.0]),
    (lambda p: tg.special.betaincinv(2.0, 1.0, p), 0.0, [INF, -INF]),
    (lambda p: tg.special.betainccinv(0.5, 0.5, p), 1.0, [0.0, PI**2 / 2, 0.0, -(PI**4) / 2]),
    (lambda p: tg.special.betainccinv(0.5, 0.5, p), 0.0, [0.0, -(PI**2) / 2, 0.0, PI**4 / 2]),
    # By a shape the end stays where it is, and the slope by that moves: at a = 1 by as much as a logarithm.
    (lambda p: nested(lambda a: tg.special.gammaincinv(a, p), "r")(np.array([1.0])), 0.0, [INF]),
    (lambda p: nested(lambda b: tg.special.betaincinv(1.0, b, p), "r")(np.array([2.0])), 0.0, [-0.25, 0.0]),
    (lambda p: nested(lambda b: tg.special.betaincinv(2.0, b, p), "r")(np.array([2.0])), 0.0, [-INF, INF]),
])  # fmt: skip
def test_quantiles_at_an_end(f, end, expected):
    """There the slopes of the density and of the quantile are infinite and 0, or the other way round: products of both were 0 or NaN."""
    for n, exact in enumerate(expected, 1):
        for name, way in ways(n):
            derivative = way(f, n)
            for _ in range(3 if "compiled" in name else 1):
                got = np.sum(derivative(np.array([end])))
            assert got == pytest.approx(exact, rel=1e-12, abs=1e-12), (n, name)


# x(x+1)(x+2), 1/(x-1), x(x-1)/2, sin(πy)/(πy) · 2/((1-y)(2-y)), (x^λ - 1)/λ.
@pytest.mark.long(but=2)
@pytest.mark.parametrize("f, x, expected", [
    (lambda x: tg.special.poch(x, 3.0), -2.0, [2.0, -6.0, 6.0]),
    (lambda x: tg.special.poch(x, 3.0), -3.0, [11.0, -12.0, 6.0]),
    (lambda x: tg.special.poch(x, -1.0), -1.0, [-0.25, -0.25, -0.375]),
    (lambda x: tg.special.poch(x, 1.0), 0.0, [1.0, 0.0, 0.0]),
    (lambda x: tg.special.binom(x, 2.0), 0.0, [-0.5, 1.0, 0.0]),
    (lambda x: tg.special.binom(x, 2.0), 1.0, [0.5, 1.0, 0.0]),
    (lambda y: tg.special.binom(2.0, y), 3.0, [-1 / 3, 11 / 9]),
    (lambda y: tg.special.binom(2.0, y), -1.0, [1 / 3, 11 / 9]),
    (lambda y: tg.special.boxcox(0.0, y), 2.0, [0.25, -0.25, 0.375]),
    (lambda y: tg.special.boxcox1p(-1.0, y), 0.5, [4.0, -16.0]),
    (tg.special.ndtri, 0.0, [INF, -INF, INF]),
    (tg.special.erfcinv, 0.0, [-INF, INF, -INF]),
])  # fmt: skip
def test_poles_that_cancel(f, x, expected):
    """All were NaN: at whole numbers and at the end of a domain."""
    for n, exact in enumerate(expected, 1):
        for name, way in ways(n):
            got = np.sum(way(f, n)(np.array([x])))
            assert got == pytest.approx(exact, rel=1e-12, abs=1e-13), (n, name)


@pytest.mark.parametrize("f, more", [(tg.special.rel_entr, 1.0), (tg.special.kl_div, 0.0)])
def test_logarithms_of_quotients_that_single_precision_has_few_digits_of(f, more):
    x, y = np.float32(1e-30), np.float32(1e15)
    expected = math.log(float(x)) - math.log(float(y)) + more
    for slope in (
        tg.grad(f),
        tg.compile(tg.grad(f)),
        lambda x, y: tg.jvp(lambda x: f(x, y), (x,), (np.ones_like(x),))[1],
    ):
        assert slope(np.array(x), np.array(y)) == pytest.approx(expected, rel=1e-6)


# Where a factor overflows, underflows or is 0, and a slope of 0 would stay 0 beside it.
@pytest.mark.long(but=2)
@pytest.mark.parametrize("f, x, expected", [
    (tg.special.log_ndtr, -INF, [INF, -1.0]),
    (tg.special.log_ndtr, -1e200, [1e200, -1.0]),
    (tg.special.log_ndtr, -2e5, [2e5 + 5e-6, -1 + 2.5e-11]),
    (tg.special.cotdg, 0.0, [-INF, INF]),
    *[(f, 36e15, [NAN, NAN]) for f in (tg.special.sindg, tg.special.cosdg, tg.special.tandg, tg.special.cotdg)],
    *[(f, INF, [0.0, 0.0]) for f in (tg.special.erf, tg.special.erfc, tg.special.erfcx, tg.special.dawsn, tg.special.ndtr, tg.special.log_ndtr)],
    (lambda p: tg.special.stdtrit(3.0, p), 0.0, [INF, -INF]),
    (lambda p: tg.special.stdtrit(3.0, p), 1.0, [INF, INF]),
    (lambda x: tg.special.inv_boxcox(x, 5e-324), 0.5, [math.exp(0.5), math.exp(0.5)]),
    (lambda x: tg.special.rel_entr(x, 1e300), 1e-300, [1 - 600 * math.log(10), 1e300]),
    (lambda x: tg.special.kl_div(x, 1e300), 1e-300, [-600 * math.log(10), 1e300]),
    (tg.special.exprel, 710.0, [INF, INF]),  # as SciPy's value
])  # fmt: skip
def test_far_out_and_at_poles(f, x, expected):
    for n, exact in enumerate(expected, 1):
        for name, way in ways(n):
            derivative = way(f, n)
            for _ in range(3 if "compiled" in name else 1):
                got = np.sum(derivative(np.array([x])))
            assert got == pytest.approx(exact, rel=1e-12, abs=1e-12, nan_ok=True), (n, name)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("f, x, expected", [
    (tg.stats.gmean, [0.0, 2.0, 3.0], [INF, 0.0, 0.0]),
    (tg.stats.gmean, [0.0], [1.0]),
    (tg.stats.hmean, [0.0, 2.0, 3.0], [3.0, 0.0, 0.0]),
    (tg.stats.hmean, [0.0, 0.0], [0.5, 0.5]),
    (tg.stats.hmean, [0.0, NAN], [NAN, NAN]),
    (tg.stats.hmean, [1e-300, 1e300], [2.0, 0.0]),
    (tg.stats.hmean, [INF, 1.0], [0.0, 2.0]),
    (lambda x: tg.stats.pmean(x, -2), [1e-300, 1e300], [math.sqrt(2.0), 0.0]),
    (lambda x: tg.stats.pmean(x, -2), [3.0, 0.0, 2.0], [0.0, math.sqrt(3.0), 0.0]),
    (lambda x: tg.stats.pmean(x, 0.5), [0.0], [1.0]),
    (lambda x: tg.stats.pmean(x, 2.0), [0.0], [1.0]),
    (lambda x: tg.stats.gmean(x, weights=np.array([3.0, 1.0])), [1.0, 0.0], [0.0, INF]),
    (lambda x: tg.stats.hmean(x, weights=np.array([3.0, 1.0])), [1.0, 0.0], [0.0, 4.0]),
    # The quotient with an infinite length is 0, for the entry which made it infinite, too.
    (np.linalg.norm, [INF, 1.0, 2.0], [NAN, NAN, NAN]),
])  # fmt: skip
def test_means_and_lengths_that_lose_their_slopes(f, x, expected):
    x = np.array(x)
    for gradient in (tg.grad(f), tg.compile(tg.grad(f)), tg.jacobian(f, mode="forward")):
        for _ in range(3):
            got = gradient(x.copy())
        if f is np.linalg.norm:
            got = np.where(x == INF, got, NAN)  # forward mode knows the others
        assert np.allclose(got, expected, rtol=1e-14, atol=0, equal_nan=True), got


@tg.njit
def native_power(x, y):
    return x**y


@tg.njit
def native_hypot(x, y):
    return np.hypot(x, y)


@tg.njit
def native_powm1(x, y):
    return scipy.special.powm1(x, y)


NATIVES = {
    np.power: native_power,
    np.hypot: native_hypot,
    tg.special.powm1: native_powm1,
}


def second(f: Callable[..., Any], i: int, j: int, at: tuple[float, ...]) -> dict[str, float]:
    """The derivative by operand i and then by operand j, by every engine; a program is traced at other numbers."""
    xs = tuple(np.array([x]) for x in at)

    def along(k: int) -> tuple[np.ndarray, ...]:
        return tuple(np.full(1, float(n == k)) for n in range(len(at)))

    def tangent(g: Callable[..., Any], k: int) -> Callable[..., Any]:
        return lambda *x: tg.jvp(g, x, along(k))[1]

    def gradient(g: Callable[..., Any], k: int) -> Callable[..., Any]:
        return tg.grad(lambda *x: np.sum(g(*x)), k)

    ways = {
        "rr": gradient(gradient(f, i), j),
        "rf": tangent(gradient(f, i), j),
        "ff": tangent(tangent(f, i), j),
    }
    ways |= {f"compiled {name}": tg.compile(way) for name, way in ways.items()}
    found = {}
    for name, way in ways.items():
        if "compiled" in name:
            way(*(np.array([0.5]) for _ in at))
        found[name] = way(*xs).item()
    if f in NATIVES:
        numbers = tuple(float(n == j) for n in range(len(at)))
        found["native"] = float(tg.jvp(tg.grad(NATIVES[f], i), at, numbers)[1])
    return found


# d²/dx² or d²/dx dy, which is the same in both orders; exact values by limits or mpmath.
@pytest.mark.long(but=2)
@pytest.mark.parametrize("f, at, by, expected", [
    (np.power, (0.0, 0.5), (0, 1), -INF),
    (np.power, (0.0, 1.0), (0, 1), -INF),
    (np.power, (0.0, 1.5), (0, 1), 0.0),
    (np.power, (0.0, 0.0), (0, 1), 0.0),
    (np.power, (2.0, 0.0), (0, 1), 0.5),
    (tg.special.powm1, (0.0, 1.0), (0, 1), -INF),
    (tg.special.powm1, (0.0, 0.5), (0, 1), -INF),
    (tg.special.boxcox, (0.0, 1.0), (0, 1), -INF),
    (tg.special.boxcox1p, (-1.0, 1.0), (0, 1), -INF),
    (tg.special.boxcox1p, (-1.0, 0.5), (0, 1), -INF),
    (tg.special.boxcox1p, (INF, 2.0), (0, 0), 1.0),
    (np.hypot, (1.0, 1e-200), (0, 1), -1e-200),
    (np.hypot, (3e160, 1.0), (1, 1), 1 / 3e160),
    (np.hypot, (1e-200, 2e-200), (0, 0), 0.8 / math.sqrt(5.0) * 1e200),
    (tg.special.agm, (1.0, 1e-160), (0, 0), -1.1424339326309673e-05),
    (tg.special.agm, (1.0, 1e-160), (0, 1), 1.1424339326309673e155),
    (tg.special.agm, (1e300, 1e-300), (0, 0), -8.2013686675924143e-307),
    (tg.special.agm, (1.0, 0.0), (0, 1), INF),
])  # fmt: skip
def test_second_derivatives_of_two_operands(f, at, by, expected):
    for i, j in {by, by[::-1]}:
        for name, got in second(f, i, j, at).items():
            assert got == pytest.approx(expected, rel=1e-13), (name, i, j)


@pytest.mark.long
def test_powers_of_zero_have_no_second_derivative_forward_that_overflows():
    """y x ** (y - 1) at y = 0, where the slope of x ** -1 overflows."""
    for name, got in second(np.power, 0, 0, (1e-300, 0.0)).items():
        assert got == 0 or name == "native", name


@pytest.mark.parametrize("small", [1e-160, 1e-300, 5e-324])
def test_the_arithmetic_geometric_mean_of_numbers_far_apart(small):
    """The squares of their quotient underflow; from π/2 x / log(4 x / y)."""
    log = math.log(4) - math.log(small)
    at = np.array([1.0, small, 4.0]), np.array([small, 1.0, 3.0])
    by_large, by_small = PI / 2 / log * (1 - 1 / log), PI / 2 / log**2 / np.float64(small)
    for gradient in (tg.grad, lambda f, by: tg.compile(tg.grad(f, by))):
        dx, dy = gradient(lambda x, y: np.sum(tg.special.agm(x, y)), (0, 1))(*at)
        assert np.allclose([dx[0], dy[1]], by_large, rtol=1e-14)
        assert np.allclose([dx[1], dy[0]], by_small, rtol=1e-14)


@pytest.mark.long
def test_a_length_that_overflows_has_lost_its_slopes():
    """They were 0. A slope that is 0 beside an infinite operand stays."""
    x, y = np.array([1.5e308, 1.0, 3.0]), np.array([1.5e308, INF, 4.0])

    def length(x, y):
        return np.sum(np.hypot(x, y))

    for gradient in (tg.grad(length), tg.compile(tg.grad(length)), tg.grad(tg.njit(length))):
        assert np.array_equal(gradient(x.copy(), y.copy()), [NAN, 0.0, 0.6], equal_nan=True)


@pytest.mark.parametrize("f", [
    lambda x: np.var(x, ddof=1),
    lambda x: np.std(x, ddof=1),
    tg.stats.skew,
    tg.stats.kurtosis,
    *[lambda x, n=n: tg.stats.kstat(x, n) for n in (2, 3, 4)],
    *[lambda x, n=n: tg.stats.kstatvar(x, n) for n in (1, 2)],
    lambda x: np.sum(np.cov(x)),
    lambda x: np.corrcoef(x),
    lambda x: np.sum(np.corrcoef(x, 2 * x)),
])  # fmt: skip
def test_spreads_of_one_number_are_no_numbers_and_have_no_slope(f):
    """In forward mode they were 0, and correlations in reverse mode, too."""
    one = np.array([5.0])
    assert np.isnan(tg.grad(f)(one)).all() and np.isnan(tg.jvp(f, (one,), (np.ones(1),))[1])


def test_weighted_logsumexp_of_an_infinite_entry_has_no_slope_by_it():
    x, b = np.array([INF, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    f = tg.special.logsumexp
    for found in (tg.grad(lambda x: f(x, b=b))(x), tg.grad(lambda b: f(x, b=b))(b)):
        assert np.array_equal(found, [NAN, 0.0, 0.0], equal_nan=True)
    compiled = tg.compile(tg.grad(lambda x: f(x, b=b)))
    compiled(b)
    assert not compiled.latest.guards
    assert np.array_equal(compiled(x), [NAN, 0.0, 0.0], equal_nan=True)


def test_clip_lets_nan_pass_with_its_slope():
    """The value is the entry itself, as that of np.maximum is: the slope was 0, and under njit 1 in some of its modes."""
    x, expected = np.array([-1.0, NAN, 1.0, 3.0]), [0.0, 1.0, 1.0, 0.0]
    f = lambda x: np.sum(np.clip(x, 0.0, 2.0))  # noqa: E731
    for gradient in (
        tg.grad(f),
        tg.compile(tg.grad(f)),
        tg.jacobian(f, mode="forward"),
        *(tg.grad(tg.njit(f, mode=mode)) for mode in ("auto", "form", "adjoint", "overload")),
    ):
        assert np.array_equal(gradient(x), expected)
    assert np.array_equal(tg.grad(lambda x: np.sum(np.maximum(x, 0.0)))(x), [0.0, 1.0, 1.0, 1.0])


def test_weighted_logsumexp_of_nothing_is_constant():
    """As without weights: it was NaN in reverse mode and 0 in forward mode."""
    x, b = np.array([[-INF, -INF], [1.0, -INF]]), np.array([1.0, 2.0])
    for f in (
        lambda x: np.sum(tg.special.logsumexp(x, 1, b=b)),
        lambda x: np.sum(tg.special.logsumexp(x, 1, b, return_sign=True)[0]),
    ):
        compiled = tg.compile(tg.grad(f))
        for gradient in (tg.grad(f), compiled, tg.jacobian(f, mode="forward")):
            assert np.array_equal(gradient(x), [[0.0, 0.0], [1.0, 0.0]])
        assert f(x) == -INF


V = np.array([0.0, 2.0, -1.0, 0.0])
M = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 2.0, -1.0]])
RANK_ONE = np.outer([1.0, 2.0, -1.0], [1.0, 0.0, 2.0])
U = np.array([0.7, -0.3, 1.1, 0.4])
N = np.array([[0.3, -0.2, 0.5], [0.1, 0.7, -0.4], [0.2, 0.6, 0.9]])

# With a factor of 0, a tie, a singular or repeated matrix: the function, where, and the direction.
STRUCTURAL: dict[str, tuple[Callable[..., Any], np.ndarray, np.ndarray]] = {
    "prod": (np.prod, V[:3], U[:3]),
    "prod of two zeros": (np.prod, V, U),
    "prod along an axis": (lambda m: np.sum(np.prod(m, axis=0) ** 2), M, N),
    "cumprod": (lambda v: np.sum(np.cumprod(v) * U[:3]), V[:3], U[:3]),
    "cumprod of two zeros": (lambda v: np.sum(np.cumprod(v) * U), V, U),
    "nanprod": (np.nanprod, V, U),
    "multiply.reduce": (np.multiply.reduce, V, U),
    "multiply.accumulate": (lambda v: np.sum(np.multiply.accumulate(v) * U), V, U),
    "det": (np.linalg.det, M, N),
    "det of rank one": (np.linalg.det, RANK_ONE, N),
    "det of zeros": (np.linalg.det, np.zeros((3, 3)), N),
    "matrix_power": (lambda m: np.sum(np.linalg.matrix_power(m, 3)), np.zeros((3, 3)), N),
    "expm": (lambda m: np.sum(tg.linalg.expm(m)), np.zeros((3, 3)), N),
    "expm of a repeated eigenvalue": (lambda m: np.sum(tg.linalg.expm(m) * N), np.eye(3), N),
    "sqrtm of the identity": (lambda m: np.sum(tg.linalg.sqrtm(m) * N), np.eye(3), N),
    "logm of the identity": (lambda m: np.sum(tg.linalg.logm(m) * N), np.eye(3), N),
    "inverse": (lambda m: np.sum(np.linalg.inv(m) * N), np.eye(3), N),
    "pinv": (lambda m: np.sum(np.linalg.pinv(m) * N), np.eye(3), N),
    "cholesky": (lambda m: np.sum(np.linalg.cholesky(m + m.T) * N), np.eye(3), N),
    "qr": (lambda m: np.sum(np.linalg.qr(m)[1] * N), np.eye(3) + N, N.T),
    "trace of eigenvalues": (lambda m: np.sum(np.linalg.eigvalsh(m + m.T) ** 2), np.eye(3), N),
    "slogdet": (lambda m: np.linalg.slogdet(m)[1], np.eye(3), N),
    "matmul": (lambda m: np.sum((m @ m) ** 2), M, N),
    "einsum": (lambda v: np.einsum("i,i,i->", v, v, v), V, U),
    "outer": (lambda v: np.sum(np.outer(v, v) ** 2), V, U),
    "kron": (lambda v: np.sum(np.kron(v, v) ** 2), V, U),
    "cross": (lambda v: np.sum(np.cross(v[:3], v[1:]) ** 2), V, U),
    "convolve": (lambda v: np.sum(np.convolve(v, v) ** 2), V, U),
    "correlate": (lambda v: np.sum(np.correlate(v, v, "full") ** 2), V, U),
    "polyval": (lambda v: np.polyval(v, v[0]), V, U),
    "interp": (lambda v: np.interp(0.5, np.array([0.0, 1.0, 2.0, 3.0]), v) ** 3, V, U),
    "norm squared": (lambda v: np.linalg.norm(v) ** 2, V, U),
    "var of equal numbers": (np.var, np.ones(4), U),
    "mean of a power": (lambda v: np.mean(v) ** 3, np.zeros(4), U),
    "logsumexp of ties": (tg.special.logsumexp, np.zeros(4), U),
    "softmax of ties": (lambda v: np.sum(tg.special.softmax(v) * U), np.zeros(4), U),
    "trapezoid": (lambda v: np.trapezoid(v**2, x=v), V, U),
    "cumsum": (lambda v: np.sum(np.cumsum(v) ** 3), V, U),
    "fft": (lambda v: np.sum(np.abs(np.fft.rfft(v)) ** 2), V, U),
    "powers": (lambda v: np.sum(v**3 + v**2 * v[::-1]), V, U),
    "power by an array": (lambda v: np.sum(v ** np.array([1, 2, 3, 4])), V, U),
    "quotient": (lambda v: np.sum(v**2 / (1 + v[::-1])), V, U + 0.1),
    "vander": (lambda v: np.sum(np.vander(v) * v), V, U),
    "where guards": (lambda v: np.sum(np.where(v != 0, v**3, v * v * v)), V, U),
    "stores": (lambda v: np.sum(_stored(v)), V, U),
    "sums by name": (lambda v: np.einsum("i,j,k->", v, v * v, v), V, U),
    "multi_dot": (lambda m: np.sum(np.linalg.multi_dot([m, m, m])), M, N),
    "tensordot": (lambda m: np.tensordot(m, m @ m, 2), M, N),
    "solve": (lambda m: np.sum(np.linalg.solve(m + 2 * np.eye(3), m)), np.zeros((3, 3)), N),
    "sinc": (lambda v: np.sum(np.sinc(v)), V, U),
    "gmean": (lambda v: tg.stats.gmean(v + 1.0), np.zeros(4), U),
    "hmean": (lambda v: tg.stats.hmean(v + 1.0), np.zeros(4), U),
    "skew": (lambda v: tg.stats.moment(v, 3), V, U),
    "pmean": (lambda v: tg.stats.pmean(v + 1.0, 2), np.zeros(4), U),
    "cov": (lambda v: np.sum(np.cov(v, v**2) ** 2), V, U),
    "rotation": (lambda v: np.sum(tg.spatial.transform.Rotation.from_rotvec(v[:3]).as_matrix() * N), np.zeros(4), U),
}  # fmt: skip


def _stored(v: Any) -> Any:
    w = np.zeros_like(v)
    w[1:] = v[:-1] * v[1:]
    w[0] += v[0] ** 3
    w *= v
    return w


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "prod" in name else pytest.mark.campaign)
        for name in STRUCTURAL
    ],
)
def test_structural_functions(name):
    f, x, d = STRUCTURAL[name]

    def line(t: Any) -> Any:
        flat = np.reshape(t, (-1,))
        return np.reshape(np.stack([f(x + flat[i] * d) for i in range(flat.shape[0])]), np.shape(t))

    told = judged(line, 1, 4)
    assert not told, "\n".join(told)


def at_end(name: str, what: str, *shapes: float) -> Callable[..., Any]:
    return lambda x: getattr(getattr(tg.stats, name), what)(x, *shapes)


# Slopes on the inner side, by closed forms; infinite ones, with their sign, where the density falls to 0.
@pytest.mark.long(but=2)
@pytest.mark.parametrize("f, x, expected", [
    (at_end("gamma", "pdf", 2.0), 0.0, [1.0, -2.0]),
    (at_end("beta", "pdf", 2.0, 2.0), 1.0, [-6.0, -12.0]),
    (at_end("weibull_min", "cdf", 2.0), 0.0, [0.0, 2.0]),
    (at_end("rayleigh", "cdf"), 0.0, [0.0, 1.0]),
    (at_end("rayleigh", "pdf"), 0.0, [1.0, 0.0]),
    (at_end("triang", "pdf", 0.5), 1.0, [-4.0, 0.0]),
    (at_end("truncnorm", "cdf", -1.0, 1.0), 1.0, [0.3544374526136035, -0.3544374526136035]),
    (at_end("kappa3", "cdf", 1.0), 0.0, [1.0, -2.0]),
    (at_end("kappa3", "logpdf", 1.0), 0.0, [-2.0, 2.0]),
    (at_end("burr12", "logpdf", 1.0, 2.0), 0.0, [-3.0, 3.0]),
    (at_end("burr12", "logsf", 1.0, 2.0), 0.0, [-2.0, 2.0]),
    (at_end("fisk", "logsf", 1.0), 0.0, [-1.0, 1.0]),
    (at_end("kappa3", "logsf", 1.0), 0.0, [-1.0, 1.0]),
    (at_end("powerlaw", "logsf", 1.0), 0.0, [-1.0, -1.0]),
    (at_end("vonmises_line", "logcdf", 1.0), PI, [np.float64(0.04624548576277771), -(np.float64(0.04624548576277771)**2)]),
    (at_end("mielke", "logpdf", 1.0, 1.0), 0.0, [-2.0, 2.0]),
    (at_end("tukeylambda", "pdf", 3.13), 1 / 3.13, [-2.13, 3 * 2.13**2 - 2.13 * 1.13]),
    (at_end("dpareto_lognorm", "pdf", 0.0, 1.0, 1.0, 2.0), 0.0, [2 / 3 * np.exp(2.0), 0.0]),
    (at_end("exponweib", "pdf", 2.0, 1.0), 0.0, [2.0, -6.0]),
    (at_end("ncx2", "pdf", 4.0, 1.5), 0.0, [np.exp(-0.75) / 4, -0.625 * np.exp(-0.75) / 4]),
    (at_end("genpareto", "pdf", -0.5), 2.0, [-0.5, 0.0]),
    (at_end("anglit", "pdf"), -PI / 4, [2.0, 0.0]),
    (at_end("triang", "pdf", 0.0), 0.0, [-2.0, 0.0]),
    (at_end("kappa4", "pdf", 0.5, 1.0), -1.0, [0.5, 0.0]),
    (at_end("genextreme", "logcdf", 1.0), 1.0, [1.0, 0.0]),
    (at_end("truncnorm", "logsf", -1.0, 1.0), 1.0, [-INF, -INF]),
    (at_end("weibull_max", "logpdf", 2.0), 0.0, [-INF, -INF]),
    (at_end("lognorm", "logpdf", 1.0), 0.0, [INF, -INF]),
    (at_end("rayleigh", "logcdf"), 0.0, [INF, -INF]),
    (at_end("triang", "logcdf", 0.5), 0.0, [INF, -INF]),
    (at_end("norm", "ppf"), 0.0, [INF, -INF]),
    (at_end("norm", "isf"), 0.0, [-INF, INF]),
    (at_end("expon", "ppf"), 1.0, [INF, INF]),
    (at_end("gamma", "ppf", 0.5), 0.0, [0.0, PI / 2]),
    (at_end("arcsine", "isf"), 1.0, [0.0, PI**2 / 2]),
    (at_end("betaprime", "pdf", 600.0, 600.0), 0.0, [0.0, 0.0]),
    (at_end("f", "pdf", 2000.0, 2000.0), 0.0, [0.0, 0.0]),
    (at_end("f", "pdf", 4.0, 5.0), 0.0, [5.6, -40.32]),
])  # fmt: skip
def test_distributions_at_an_end_of_their_support(f, x, expected):
    """They were 0, and finite numbers made of it: the slope of the exponential of -inf, and of what is outside of the support."""
    for n, exact in enumerate(expected, 1):
        for name, way in ways(n):
            got = np.sum(way(f, n)(np.array([x])))
            assert got == pytest.approx(exact, rel=1e-12, abs=1e-13), (n, name)


def test_slopes_at_an_end_that_no_formula_gives_are_nan():
    slope = nested(at_end("ksone", "pdf", 3), "r")
    assert np.isnan(slope(np.array([1.0]))) and not np.isnan(slope(np.array([0.5])))


WITHOUT_A_LOOK = {
    **{n: FUNCTIONS[n] for n in ("power", "powm1", "boxcox", "boxcox1p", "hypot", "agm", "erf", "log_ndtr")},
    "norm.ppf": (lambda x: tg.stats.norm.ppf(0.5 + 0.1 * x), 1),
    "gennorm.cdf": (lambda x: tg.stats.gennorm.cdf(x, 1.5), 1),
    "t.logpdf": (lambda x, y: tg.stats.t.logpdf(x, 1.0 + y * y), 2),
    "logsumexp": (tg.special.logsumexp, 1),
    "weighted logsumexp": (lambda x, y: tg.special.logsumexp(x, b=1.0 + y * y), 2),
    "median": (np.median, 1),
    "nanmedian": (np.nanmedian, 1),
    "quantile": (lambda x: np.quantile(np.outer(x, x), [0.2, 0.6], axis=1), 1),
    "take_along_axis": (lambda x: np.take_along_axis(np.outer(x, x), np.argsort(np.outer(x, x), axis=1), axis=1), 1),
    "hmean": (lambda x: tg.stats.hmean(1.0 + x * x), 1),
    "wasserstein_distance": (tg.stats.wasserstein_distance, 2),
    "expectile": (tg.stats.expectile, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_A_LOOK)
def test_no_rule_looks_at_the_values_of_a_compiled_program(name):
    """A program would be good for such values alone, and a loop of it could not be traced."""
    f, arity = WITHOUT_A_LOOK[name]
    places = np.full((3, arity), 0.5) + 0.1 * np.arange(3)[:, None]
    g = along(f, places, (1.0, -2.0)[:arity])
    for order in (1, 2):
        h = nested(g, "r" * order)
        compiled = tg.compile(h)
        for t in (np.zeros(3), np.array([0.3, 0.0, -0.3])):
            np.testing.assert_allclose(compiled(t), h(t), 1e-9, 1e-9)
        assert not compiled.latest.guards


@pytest.mark.parametrize("f", [
    lambda x: tg.special.logsumexp(x, b=np.array([1.0, 2.0])),
    lambda x: tg.stats.expon.cdf(x),
    lambda x: tg.stats.burr12.logpdf(x, 2.0, 3.0),
    lambda x: tg.stats.norm.ppf(x),
    tg.stats.hmean,
    np.median,
])  # fmt: skip
def test_loops_are_not_unrolled_for_a_look_at_values(f):
    """Of distributions with ends a program has a guard, but not the step of a loop."""

    def last(x):
        return tg.fori_loop(
            0, 40, lambda i, c: 0.5 * np.cos(c) + 0.1 * np.sum(f(x + 0.01 * c)), 0.2
        )

    gradient = tg.grad(last)
    compiled = tg.compile(gradient)
    x = np.array([0.3, 0.6])
    np.testing.assert_allclose(compiled(x), gradient(x), 1e-11)
    assert not compiled.latest.guards and any(
        "loop" in str(step).lower() for step in compiled.latest.graph.steps
    )


@pytest.mark.parametrize("mode", ["auto", "form", "adjoint", "overload"])
@pytest.mark.parametrize("word", [max, min])
def test_pythons_extremes_have_the_slope_of_the_operand_they_return(word, mode):
    """`max(x, y)` is y where y > x, else x; under njit ties had half each and NaN gave both operands a slope, as np.maximum does."""

    def greatest(x):
        best = x[0]
        for v in x[1:]:
            best = max(best, v)
        return 3 * best + max(x[1], x[0], 1.5) + max(0.0, x[2]) * x[0]

    def least(x):
        best = x[0]
        for v in x[1:]:
            best = min(best, v)
        return 3 * best + min(x[1], x[0], 1.5) + min(0.0, x[2]) * x[0]

    f = greatest if word is max else least
    compiled = tg.njit(f, mode=mode)
    rows = [
        [NAN, 1, 2], [1, NAN, 2], [2, 3, NAN], [NAN, NAN, NAN], [1, 1, 1], [2, 1, 2], [1.5, 1.5, 0], [0, -0.0, 0], [-1, -2, -0.0], [3, 1, 2],
    ]  # fmt: skip
    for row in rows:
        x = np.array(row, float)
        value, slope = tg.value_and_grad(f)(x)
        mine, found = tg.value_and_grad(compiled)(x)
        assert np.array_equal(value, mine, equal_nan=True)
        assert np.array_equal(found, slope, equal_nan=True), row
        along = [tg.jvp(compiled, (x,), (e,))[1] for e in np.eye(3)]
        assert np.array_equal(along, slope, equal_nan=True), row


@pytest.mark.parametrize("mode", ["auto", "overload"])
def test_second_derivatives_of_what_is_linear_are_0_beside_an_infinite_slope(mode):
    """The tangent of a partial that does not vary is 0; njit multiplied it by the infinite cotangent."""
    x = np.array([1.0, -2.0, 0.5])
    for f in (
        lambda x: x.sum() / 0.0,
        lambda x: x.mean() * INF,
        lambda x: np.sum(x) * NAN,
        lambda x: (2 * x[0] + x[1]) * INF,
    ):
        compiled = tg.njit(f, mode=mode)
        for second in (tg.hessian(f), tg.hessian(compiled), tg.jacobian(tg.grad(compiled))):
            assert np.array_equal(second(x), np.zeros((3, 3)))


NAN_BY_ORDER: list[tuple[Any, list[float]]] = [
    (lambda x: np.median(x), [0, 1, 0, 0]),
    (lambda x: np.median(x[1:]), [0, 1, 0, 0]),
    (lambda x: np.quantile(x, 0.3), [0, 1, 0, 0]),
    (lambda x: np.percentile(x, 30.0), [0, 1, 0, 0]),
    (lambda x: np.sum(np.quantile(x, np.array([0.3, 0.5]))), [0, 2, 0, 0]),
    (lambda x: np.nanmedian(x), [0, 0, 0, 1]),
    (lambda x: np.nanmedian(x[1:2]), [0, 0, 0, 0]),
    (lambda x: np.sort(x)[0], [0, 0, 1, 0]),
    (lambda x: np.sum(np.sort(x) * np.arange(4.0)), [2, 3, 0, 1]),
    (lambda x: np.unique(x)[0], [0, 0, 1, 0]),
    (lambda x: x[np.argsort(x)[0]], [0, 0, 1, 0]),
    (lambda x: x[x.argsort()[3]], [0, 1, 0, 0]),
    (lambda x: x[np.argmax(x)], [0, 1, 0, 0]),
    (lambda x: x[x.argmin()], [0, 1, 0, 0]),
]


@pytest.mark.parametrize("mode", ["plain", "auto", "adjoint", "overload"])
@pytest.mark.parametrize(("f", "expected"), NAN_BY_ORDER)
def test_order_statistics_of_a_line_with_nan(f, expected, mode):
    """A median or quantile of it is the NaN, which gets the gradient, as in max and sort: that was lost.

    Under njit in overload mode carriers were compared where Numba knows of NaN, so that sort, argsort, argmax and argmin took other entries.
    """
    x = np.array([3.0, NAN, 1.0, 2.0])
    function = f if mode == "plain" else tg.njit(f, mode=mode)
    value, slope = tg.value_and_grad(function)(x)
    assert np.array_equal(value, f(x), equal_nan=True)
    assert np.array_equal(slope, expected)
    if mode == "plain":
        assert np.array_equal(tg.jacobian(f, mode="forward")(x), expected)
        assert np.array_equal(tg.compile(tg.grad(f))(x), expected)
        rows = np.stack([x, [1.0, 2.0, 3.0, 4.0]])
        for of in (np.median, lambda a, axis: np.quantile(a, 0.5, axis=axis)):
            found = tg.grad(lambda a, of=of: np.sum(of(a, axis=1)))(rows)
            assert np.array_equal(found, [[0, 1, 0, 0], [0, 0.5, 0.5, 0]])


@pytest.mark.parametrize("y", [2.0, 1.0, 0.5, 0.0, -0.5, -2.0])
@pytest.mark.parametrize("name", ["power", "boxcox", "boxcox1p"])
def test_powers_at_infinity_have_the_limits_of_their_slopes(name, y):
    """By the exponent it was NaN, infinity times the 0 that a power has there; mixed derivatives were NaN in one order and 0 in the other."""
    f = np.power if name == "power" else getattr(tg.special, name)
    by_base, twice = (
        (y, y * (y - 1)) if name == "power" else (1.0, y - 1)
    )  # factors of x ** (y - 1) and x ** (y - 2)
    limit = lambda factor, power: (  # noqa: E731
        0.0 if factor == 0 or power < 0 else factor * (1.0 if power == 0 else INF)
    )
    ends = (0.0, 0.0) if name == "power" else (1 / y**2, -2 / y**3) if y else (INF, INF)
    slope = [limit(by_base, y - 1), ends[0] if y < 0 else INF]
    mixed = 0.0 if y < 1 else INF
    second = [[limit(twice, y - 2), mixed], [mixed, ends[1] if y < 0 else INF]]
    z = np.array([INF, y])
    of = lambda z: f(z[0], z[1])  # noqa: E731
    assert np.array_equal(tg.grad(of)(z), slope)
    assert np.array_equal(tg.compile(tg.grad(of))(z), slope)
    for found in (
        tg.hessian(of)(z),
        tg.jacobian(tg.grad(of))(z),
        tg.jacobian(tg.jacobian(of, mode="forward"), mode="forward")(z),
    ):
        assert np.array_equal(found, second)


@pytest.mark.parametrize(
    "point",
    [(1e308, 1e300), (1e308, 1.0), (1e-308, 1.0), (1e-320, 1.0), (1e-300, 1e20), (1.7e308, 1.7e308), (1e-9, 1.0), (0.3, 0.2), (1.0, 1.0)],
)  # fmt: skip
def test_second_derivatives_of_agm_at_any_scale(point):
    """One number makes all four, as agm is homogeneous: formulas of the slope lost digits, or added infinities of either sign."""
    with mpmath.workdps(70):
        x, y = map(mpmath.mpf, point)
        h, k = x * mpmath.mpf(10) ** -20, y * mpmath.mpf(10) ** -20
        mixed = sum(s * t * mpmath.agm(x + s * h, y + t * k) for s in (1, -1) for t in (1, -1)) / (
            4 * h * k
        )
        expected = [[float(-mixed * y / x), float(mixed)], [float(mixed), float(-mixed * x / y)]]
    f = lambda v: tg.special.agm(v[0], v[1])  # noqa: E731
    for second in (
        tg.hessian(f),
        tg.jacobian(tg.grad(f)),
        tg.jacobian(tg.jacobian(f, mode="forward"), mode="forward"),
        tg.compile(tg.hessian(f)),
    ):
        assert np.allclose(second(np.array(point)), expected, rtol=1e-13, atol=1e-320)


def test_derivatives_of_agm_at_zero_and_infinity():
    """Limits, the one operand being fixed; the slope by a finite operand beside an infinite one was NaN."""
    for point, slope, second in (
        ((INF, 1.0), [0.0, INF], [[0.0, 0.0], [0.0, -INF]]),
        ((1.0, INF), [INF, 0.0], [[-INF, 0.0], [0.0, 0.0]]),
        ((0.0, 1.0), [INF, 0.0], [[-INF, INF], [INF, 0.0]]),
    ):
        f = lambda v: tg.special.agm(v[0], v[1])  # noqa: E731
        assert np.array_equal(tg.grad(f)(np.array(point)), slope)
        assert np.array_equal(tg.hessian(f)(np.array(point)), second)
        assert np.array_equal(tg.jacobian(tg.grad(f))(np.array(point)), second)
