"""Distributions: values are SciPy's, first derivatives are differences of SciPy's values, second ones differences of the first.

The loops go through the whole table (tests/distributions.py); what SciPy has no digits for is judged by mp.
"""

from __future__ import annotations

import functools
import itertools

import mpmath as mp
import numpy as np
import pytest
import scipy.stats

import tapegrad as tg
from tapegrad import stats
from tests.distributions import CONTINUOUS, DISCRETE, QUICK_MOMENTS, ROUGH_MOMENTS, SLOW_QUANTILES

SCIPY = tuple(map(int, scipy.__version__.split(".")[:2]))
GROUPS = 6
NAMES = [list(CONTINUOUS)[i::GROUPS] for i in range(GROUPS)]
DENSITIES = ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"]
LOC, SCALE = 0.1, 1.7
Q = np.array([1e-4, 0.3, 0.95])

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quiet():
    """Poles and overflow warn, which is not the matter here."""
    with np.errstate(all="ignore"):
        yield


def slope(f, at, h):
    """Five-point difference."""
    return (8 * (f(at + h) - f(at - h)) - (f(at + 2 * h) - f(at - 2 * h))) / (12 * h)


def cases(names):
    for name in names:
        for shapes in CONTINUOUS[name]:
            theirs = getattr(scipy.stats, name)
            # Older versions of SciPy admit less: no negative exponent of truncpareto.
            if np.isfinite(theirs.ppf(0.5, *shapes)):
                yield name, getattr(stats, name), theirs, shapes


def tracked(values):
    """Those that are no whole numbers, as tensors that are followed."""
    return [
        v if type(v) is int else tg.tensor(np.asarray(v, float), requires_grad=True) for v in values
    ]


def test_every_distribution_of_scipys_is_there():
    theirs = [
        n
        for n in dir(scipy.stats)
        if isinstance(getattr(scipy.stats, n), scipy.stats.rv_continuous | scipy.stats.rv_discrete)
    ]
    assert set(theirs) <= set(stats.__all__)
    assert set(CONTINUOUS) == set(stats.continuous.CONTINUOUS)
    assert set(DISCRETE) == set(stats.discrete.DISCRETE)
    with pytest.raises(AttributeError, match="no attribute"):
        stats.gaussian  # noqa: B018


@pytest.mark.long
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_values_are_scipys(names):
    for name, ours, theirs, shapes in cases(names):
        inside = theirs.ppf(Q[:, None], *shapes, np.array([LOC, -0.4]), SCALE)
        x = np.concatenate([inside, [[-np.inf, np.inf], [np.nan, -1e3], [50.0, LOC]]])
        for method in DENSITIES:
            # Of one shape, since SciPy's norminvgauss.sf stops after the first of a longer argument.
            together = np.broadcast_arrays(x, *shapes, np.array([LOC, -0.4]), SCALE)
            expected = getattr(theirs, method)(*together)
            plain = getattr(ours, method)(x, *shapes, loc=np.array([LOC, -0.4]), scale=SCALE)
            np.testing.assert_array_equal(plain, expected)
            found = getattr(ours, method)(
                *tracked([x, *shapes]), loc=np.array([LOC, -0.4]), scale=SCALE
            )
            found = np.asarray(found.detach())
            # A pole at an edge, NaN of SciPy's at an infinity, and what the logarithm of a rounded 1 - F has lost.
            known = np.where(np.isnan(x), True, np.isfinite(expected))
            if name == "norminvgauss":
                known &= ~(x < -100)  # there SciPy's integral misses the bulk
            if method in ("logcdf", "logsf"):
                known &= ~(np.abs(expected) > 10)
            np.testing.assert_allclose(
                found[known],
                expected[known],
                rtol=1e-8,
                atol=1e-12,
                err_msg=f"{name}{shapes}.{method}",
            )
        assert np.isnan(ours.pdf(1.0, *shapes, scale=tg.tensor(-1.0, requires_grad=True)).detach())
        if name not in SLOW_QUANTILES:
            for method in ("ppf", "isf"):
                found = np.asarray(getattr(ours, method)(*tracked([Q, *shapes])).detach())
                np.testing.assert_allclose(found, getattr(theirs, method)(Q, *shapes), rtol=1e-12)


def distances(theirs, x, shapes, kinks):
    """From x to the nearest end of the support or kink, at most 1: a difference must not step over it."""
    ends = [*theirs.support(*shapes, LOC, SCALE), *(LOC + SCALE * k for k in kinks)]
    return np.min([np.ones_like(x), *(np.abs(x - e) for e in ends if np.isfinite(e))], axis=0)


STEPS, WEIGHTS = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([1.0, -8.0, 8.0, -1.0]) / 12


def slopes(f, *args):
    """Gradients by each argument, of elements at a time."""
    return tg.grad(lambda *v: np.sum(f(*v)), tuple(range(len(args))))(*args)


def differences(f, g, args, steps, name):
    """Gradients of f by each argument beside five-point differences of g, which is called once for all of them: SciPy takes longer for
    a call than for its numbers."""
    varied = [i for i, a in enumerate(args) if type(a) is not int]
    rows = len(STEPS) * len(varied)
    at = [
        a if type(a) is int else np.broadcast_to(a, (rows + 1, *args[0].shape)).copy() for a in args
    ]
    for k, i in enumerate(varied):
        at[i][4 * k : 4 * k + 4] += STEPS[:, None] * steps[i]
    *moved, value = g(*at)
    here = [a if type(a) is int else a[-1] for a in at]
    found = tg.grad(lambda *v: np.sum(f(*v)), tuple(varied))(*here)
    for k, i in enumerate(varied):
        expected = WEIGHTS @ moved[4 * k : 4 * k + 4] / steps[i]
        noise = 3e-12 * np.abs(value) / steps[i]
        wrong = ~(np.abs(found[k] - expected) <= 3e-6 * np.abs(expected) + noise + 1e-300)
        assert not np.any(wrong), f"{name} by {i}: {found[k]}, not {expected}"


def _all_lost(f, args):
    """Whether the value, and the derivatives by all arguments in both modes, are NaN in every element."""
    varied = [i for i, a in enumerate(args) if np.shape(a)]

    def g(*moved):
        full = list(args)
        for i, v in zip(varied, moved, strict=True):
            full[i] = v
        return f(*full)

    given = tuple(args[i] for i in varied)
    pulled = tg.grad(lambda *v: np.sum(g(*v)), tuple(range(len(given))))(*given)
    seeds = [tuple(np.ones_like(v) if i == k else np.zeros_like(v) for i, v in enumerate(given)) for k in range(len(given))]  # fmt: skip
    pushed = [v for seed in seeds for v in tg.jvp(g, given, seed)]
    return all(np.isnan(v).all() for v in (*pulled, *pushed))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_what_is_no_number_has_no_slope(names):
    """A NaN among the arguments, or a parameter out of range, makes value and derivatives NaN: none is 0."""
    for name, ours, _, shapes in cases(names):
        quick = name in ("beta", "gamma", "norm", "truncpareto", "weibull_max")
        for method in ("logpdf", "cdf", *(("logsf", "ppf") if quick else ())):
            args = [0.5 if method == "ppf" else 1.0, *shapes, LOC, SCALE]
            given = [i for i, a in enumerate(args) if type(a) is not int]
            rows = [a if type(a) is int else np.full(len(given) + 1, a) for a in args]
            for k, i in enumerate(given):
                rows[i][k] = np.nan
            rows[-1][-1] = -1.0  # a negative scale
            assert _all_lost(getattr(ours, method), rows), f"{name}{shapes}.{method}"


def test_what_is_no_number_has_no_slope_of_third_order():
    third = tg.grad(tg.grad(tg.grad(lambda *a: stats.gamma.logpdf(*a))))
    slope = lambda a: tg.grad(lambda x: stats.gamma.logpdf(x, a))  # noqa: E731
    second = tg.grad(lambda a: tg.jvp(slope(a), (0.7,), (1.0,))[1])
    assert np.isnan(third(np.nan, 2.5)) and np.isnan(second(-1.0))


def test_what_is_no_number_has_no_slope_in_sums_and_ratios_of_moments():
    p, bad = np.array([0.2, 0.5]), np.array([-1.0, np.nan])
    for method in ("pmf", "logpmf", "cdf", "sf"):
        law = getattr(stats.poisson_binom, method)
        assert np.isnan(tg.grad(lambda q: law(np.nan, q))(p)).all()
        assert np.isnan(tg.jvp(lambda q: law(np.nan, q), (p,), (np.ones(2),))[1])
    for letter in "mvsk":
        assert _all_lost(lambda a: stats.gamma.stats(a, moments=letter), [bad])


@pytest.mark.long
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_gradients_are_differences_of_scipys(names):
    for name, ours, theirs, shapes in cases(names):
        x = theirs.ppf(Q, *shapes, LOC, SCALE)
        kinks = shapes if name in ("trapezoid", "triang") else ()
        near = distances(theirs, x, shapes, kinks)
        y = np.abs(x - LOC) / SCALE
        by_shape = [1e-3 * near * (abs(a) or 1) for a in shapes]
        steps = [1e-3 * near, *by_shape, 1e-3 * near, 1e-3 * np.minimum(1.0, near / (y + 1e-9))]
        for method in DENSITIES:
            differences(
                getattr(ours, method),
                getattr(theirs, method),
                [x, *shapes, LOC, SCALE],
                steps,
                f"{name}{shapes}.{method}",
            )
        if name not in SLOW_QUANTILES:
            q = np.array([0.02, 0.6, 0.9])
            steps = [
                1e-3 * np.minimum(q, 1 - q),
                *(np.full(3, 1e-3 * abs(a)) for a in shapes),
                np.full(3, 1e-3),
                np.full(3, 1e-3),
            ]
            for method in ("ppf", "isf"):
                differences(
                    getattr(ours, method),
                    getattr(theirs, method),
                    [q, *shapes, LOC, SCALE],
                    steps,
                    f"{name}{shapes}.{method}",
                )


@pytest.mark.parametrize(
    "names",
    [
        QUICK_MOMENTS,
        pytest.param(
            sorted(set(CONTINUOUS) - QUICK_MOMENTS - ROUGH_MOMENTS), marks=pytest.mark.campaign
        ),
    ],
    ids=["quick", "all"],
)
def test_moments_have_scipys_values_and_slopes(names, monkeypatch):
    for name, ours, theirs, shapes in cases(names):
        # SciPy's integrals depend on the shapes alone, and take seconds: each is computed once.
        for integral in (theirs.generic_moment, theirs.vecentropy):
            monkeypatch.setattr(integral, "pyfunc", functools.cache(integral.pyfunc))
        args = [*shapes, LOC, SCALE]
        for method in ("mean", "var", "std", "entropy"):
            f, g = getattr(ours, method), getattr(theirs, method)
            value = g(*args)
            assert np.array_equal(f(*args), value, equal_nan=True)
            if not np.isfinite(value):
                continue
            for i, a in enumerate(args):
                if type(a) is int:
                    continue
                found, gradient = tg.value_and_grad(f, i, allow_unused=True)(*args)
                np.testing.assert_allclose(
                    found, value, rtol=1e-9, atol=1e-12, err_msg=f"{name}.{method}"
                )
                expected = slope(
                    lambda v, i=i, g=g, args=args: g(*args[:i], v, *args[i + 1 :]), a, 2e-3 * abs(a)
                )
                close = abs(gradient - expected) <= 1e-4 * abs(expected) + 1e-6 * (1 + abs(value))
                assert close, f"{name}{shapes}.{method} by {i}: {gradient}, not {expected}"


@pytest.mark.long
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_second_derivatives_are_differences_of_the_first(names):
    """By x and by each parameter, forward over reverse; of the log density, the cdf, and (where SciPy is quick) the quantile."""
    for name, ours, theirs, shapes in cases(names):
        if any(type(a) is int for a in shapes):
            continue
        at = theirs.ppf(0.3, *shapes)
        for method in ("logpdf", "cdf") + (() if name in SLOW_QUANTILES else ("ppf",)):
            args = np.array([0.3 if method == "ppf" else at, *shapes])
            n = len(args)
            gradients = functools.partial(slopes, getattr(ours, method))
            near = float(distances(theirs, at * SCALE + LOC, shapes, ()))
            most = [0.3 if method == "ppf" and i == 0 else np.inf for i in range(n)]
            steps = [2e-3 * min(abs(a) or 1.0, near, m) for a, m in zip(args, most, strict=True)]
            points = np.tile(args, (4 * n + 1, 1))
            for i, h in enumerate(steps):
                points[4 * i : 4 * i + 4, i] += STEPS * h
            moved = np.stack(gradients(*points.T), axis=1)
            turned = tg.jvp(gradients, tuple(np.tile(args, (n, 1)).T), tuple(np.eye(n)))[1]
            for i, (h, found) in enumerate(zip(steps, np.stack(turned, axis=1), strict=True)):
                expected = WEIGHTS @ moved[4 * i : 4 * i + 4] / h
                scale = (
                    np.abs(expected)
                    + 1e-5 * np.max(np.abs(expected))
                    + 1e-9 * np.abs(moved[-1]) / h
                )
                assert np.all(np.abs(found - expected) <= 1e-5 * scale + 1e-12), (
                    f"{name}{shapes}.{method} by {i}: {found}, {expected}"
                )


# ------------------------------------------------------------------------------------------------ what mpmath knows


def by_mpmath(f, args, i):
    with mp.workdps(30):
        place = [mp.mpf(a) for a in args]
        return float(mp.diff(lambda v: f(*place[:i], v, *place[i + 1 :]), place[i]))


def mp_ncx2(x, k, nc):
    return (
        mp.exp(-(x + nc) / 2)
        / 2
        * (x / nc) ** (k / 4 - mp.mpf(1) / 2)
        * mp.besseli(k / 2 - 1, mp.sqrt(nc * x))
    )


def mp_nct(t, v, m):
    mu = m * t / mp.sqrt(t * t + v)
    half = mp.mpf(1) / 2
    whole = mp.exp(-mu * mu / 2) * (
        2 ** ((v - 1) / 2) * mp.gamma((v + 1) / 2) * mp.hyp1f1((v + 1) / 2, half, mu * mu / 2)
        + mu * 2 ** (v / 2) * mp.gamma(v / 2 + 1) * mp.hyp1f1(v / 2 + 1, 3 * half, mu * mu / 2)
    )  # fmt: skip
    front = v ** (v / 2) * mp.exp(-v * m * m / (2 * (t * t + v)))
    return (
        front
        * whole
        / (mp.sqrt(mp.pi) * mp.gamma(v / 2) * 2 ** ((v - 1) / 2) * (t * t + v) ** ((v + 1) / 2))
    )


def mp_ncf(x, n, m, nc):
    w = n * x / m
    return (
        mp.exp(-nc / 2) * (n / m) * w ** (n / 2 - 1) * (1 + w) ** (-(n + m) / 2) / mp.beta(n / 2, m / 2)
        * mp.hyp1f1((n + m) / 2, n / 2, nc / 2 * w / (1 + w))
    )  # fmt: skip


def mp_geninvgauss(x, p, b):
    return x ** (p - 1) * mp.exp(-b * (x + 1 / x) / 2) / (2 * mp.besselk(p, b))


def mp_genhyperbolic(x, p, a, b):
    g, r = mp.sqrt(a * a - b * b), mp.sqrt(1 + x * x)
    return (
        g**p
        / (mp.sqrt(2 * mp.pi) * a ** (p - mp.mpf(1) / 2) * mp.besselk(p, g))
        * mp.exp(b * x)
        * mp.besselk(p - mp.mpf(1) / 2, a * r)
        * r ** (p - mp.mpf(1) / 2)
    )


def mp_gausshyper(x, a, b, c, z):
    return (
        x ** (a - 1)
        * (1 - x) ** (b - 1)
        * (1 + z * x) ** -c
        / (mp.beta(a, b) * mp.hyp2f1(c, a, a + b, -z))
    )


EXACT = {
    "ncx2": (mp_ncx2, [(3.0, 1.3, 2.0), (200.0, 5.0, 1.0), (1e-6, 0.4, 3.0), (900.0, 3.0, 1000.0)]),
    "nct": (mp_nct, [(0.3, 14.0, 0.24), (-40.0, 3.2, 2.0), (1e3, 1.5, -1.0), (5.0, 50.0, 4.0)]),
    "ncf": (mp_ncf, [(0.7, 3.0, 5.0, 4.0), (1e4, 3.0, 5.0, 0.1), (1e-5, 2.5, 5.0, 30.0)]),
    "geninvgauss": (mp_geninvgauss, [(0.7, 2.3, 1.5), (40.0, -0.4, 1e-3), (1e-2, 30.0, 2.0)]),
    "genhyperbolic": (
        mp_genhyperbolic,
        [(0.3, 0.5, 1.5, -0.5), (-30.0, 2.0, 0.7, 0.3), (5.0, -1.2, 3.0, 2.9)],
    ),
    "gausshyper": (mp_gausshyper, [(0.3, 13.8, 3.12, 2.51, 5.18), (0.999, 0.5, 0.2, -1.0, 0.4)]),
}


@pytest.mark.parametrize("name", EXACT)
def test_noncentral_and_hyperbolic_densities_against_mpmath(name):
    exact, points = EXACT[name]
    for args in points:
        value, gradient = tg.value_and_grad(getattr(stats, name).logpdf, tuple(range(len(args))))(
            *args
        )
        np.testing.assert_allclose(
            value, float(mp.log(exact(*map(mp.mpf, args)))), rtol=1e-11, atol=1e-11
        )
        for i, found in enumerate(gradient):
            expected = by_mpmath(lambda *v: mp.log(exact(*v)), args, i)
            np.testing.assert_allclose(
                found, expected, rtol=1e-9, atol=1e-10, err_msg=f"{args} by {i}"
            )


@pytest.mark.long
def test_derivatives_of_integrated_distribution_functions_against_mpmath():
    """In both tails, where 1 - F would have no digits: by the parameters, as a share of the function itself."""
    for name, args in (
        ("ncx2", (60.0, 5.0, 3.0)),
        ("ncx2", (0.05, 3.0, 9.0)),
        ("geninvgauss", (60.0, 1.3, 1.1)),
    ):
        exact, _ = EXACT[name]
        upper = args[0] > 20
        ends = [args[0], 1.4 * args[0], 4 * args[0]] if upper else [0, args[0]]
        ours = stats.__dict__[name].logsf if upper else stats.__dict__[name].logcdf
        with mp.workdps(16):
            tail = lambda *v, exact=exact, ends=ends: mp.quad(lambda t: exact(t, *v), ends)  # noqa: E731
            h, at = mp.mpf("1e-4"), [mp.mpf(a) for a in args[1:]]
            middle = tail(*at)
            for i in range(len(at)):
                up, down = ([a + s * h if j == i else a for j, a in enumerate(at)] for s in (1, -1))
                expected = float((tail(*up) - tail(*down)) / (2 * h) / middle)
                np.testing.assert_allclose(
                    tg.grad(ours, i + 1)(*args), expected, rtol=1e-5, err_msg=f"{name}{args} by {i}"
                )


def test_outside_the_support_nothing_moves():
    x = tg.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    stats.beta.pdf(x, 0.5, 0.5).sum().backward()
    assert x.grad[0] == x.grad[2] == 0.0
    assert tg.grad(lambda x: stats.gamma.logpdf(x, 0.5))(-1.0) == 0.0
    assert tg.grad(lambda x: stats.expon.cdf(x))(-1.0) == 0.0
    # On the edge the slope is that of the density inside.
    assert tg.grad(lambda x: stats.gamma.logpdf(x, 1.0))(0.0) == -1.0


BEYOND_SCIPY = {
    "ncx2": "SciPy's density is 0 at 0, whatever its limit is",
    "powerlaw": "likewise",
    "tukeylambda": "likewise",
    "dpareto_lognorm": "its formula has no value at 0",
    "kappa4": "its formula has no value where both parameters are negative",
}


@pytest.mark.parametrize("name", sorted(set(CONTINUOUS) - set(BEYOND_SCIPY)))
def test_values_at_the_ends_of_the_support_are_scipys(name):
    """A datum of 0 does not make a likelihood NaN: the density is 0 there, or what SciPy says, and the cdf has all or nothing."""
    ours, theirs = getattr(tg.stats, name), getattr(scipy.stats, name)
    for args in CONTINUOUS[name]:
        ends = [e for e in theirs.support(*args) if np.isfinite(e)]
        for end, what in itertools.product(ends, ("pdf", "cdf", "sf")):
            x = tg.tensor(float(end), requires_grad=True)
            with np.errstate(all="ignore"):
                expected = getattr(theirs, what)(end, *args)
                found = getattr(ours, what)(x, *args)
                np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-7, atol=1e-12)


def test_densities_for_the_ends_are_those_of_the_logarithm():
    """A density whose slopes are asked for at an end has a formula of its own, beside that of its logarithm."""
    seen = 0
    for name, law, theirs, args in cases(CONTINUOUS):
        low, high = theirs.support(*args)
        for end, side in ((low, 1.0), (high, -1.0)) if law._pdf and law._rest else ():
            if np.isfinite(end):
                # Of kappa4 the logarithm is a multiple of log(1 - h exp(s)), whose argument has lost half its digits closer by.
                near = 1e-6 if name == "kappa4" else 1e-8
                y = end + side * np.array([1e-1, 1e-2, 1e-4, near])
                got, expected = law._pdf(y, *args), np.exp(law.standard("logpdf", y, *args))
                np.testing.assert_allclose(got, expected, rtol=1e-7, atol=0.0, err_msg=name)
                seen += 1
    assert seen > 15


@pytest.mark.long
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_orders_of_a_distribution_function_at_an_end(mode):
    """Exact to the fourth; what is made of two points has no fifth."""
    f = stats.expon.cdf
    found = []
    for _ in range(5):
        f = tg.grad(f) if mode == "reverse" else (lambda x, f=f: tg.jvp(f, (x,), (1.0,))[1])
        found += [f(0.0), tg.compile(f)(0.0)]
    np.testing.assert_allclose(found, np.repeat([1.0, -1.0, 1.0, -1.0, np.nan], 2), rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["lognorm", "invgamma", "invgauss", "alpha", "invweibull", "fatiguelife", "gengamma", "dpareto_lognorm"]
)  # fmt: skip
@pytest.mark.parametrize("what", ["pdf", "cdf", "sf"])
def test_slopes_where_the_density_vanishes_are_zero(name, what):
    """At 0, where all slopes of these densities are 0; a sum over data that holds a 0 keeps the slopes of the others."""
    ours, args = getattr(tg.stats, name), CONTINUOUS[name][0]
    if name == "gengamma":
        args = (2.0, -1.5)
    for parameter in range(1 + len(args)):
        slope = tg.grad(lambda *a: np.sum(getattr(ours, what)(*a)), parameter)
        with_zero, without = (slope(np.array(x), *args) for x in ([0.0, 0.7], [0.7]))
        np.testing.assert_allclose(np.sum(with_zero), np.sum(without), rtol=1e-15)


def test_a_kappa_distribution_at_the_end_where_its_density_vanishes():
    """At 1/k, where SciPy's density is NaN for h <= 0 and k < 0; beside it the density is (x - 1/k)^(1/hk - 1) times a constant."""
    for h, k in ((-0.5, -0.3), (0.0, -0.3)):
        for what in ("pdf", "cdf"):
            found, slopes = tg.value_and_grad(getattr(tg.stats.kappa4, what), (0, 1, 2))(1 / k, h, k)  # fmt: skip
            assert found == 0 and np.array_equal(slopes, (0.0, 0.0, 0.0))
    near = scipy.stats.kappa4.pdf(-1 / 0.3 + np.array([1e-3, 2e-3]), -0.5, -0.3)
    np.testing.assert_allclose(near[1] / near[0], 2 ** (1 / 0.15 - 1), rtol=0.05)


def test_the_far_tail():
    """log Φ(-40), where Φ itself is a subnormal number."""
    value, gradient = tg.value_and_grad(stats.norm.logcdf)(-40.0)
    np.testing.assert_allclose(value, scipy.stats.norm.logcdf(-40.0), rtol=1e-14)
    hazard = np.exp(scipy.stats.norm.logpdf(-40.0) - scipy.stats.norm.logcdf(-40.0))
    np.testing.assert_allclose(gradient, hazard, rtol=1e-10)
    assert stats.expon.logcdf(50.0) < 0


# ------------------------------------------------------------------------------------------------------- samples


def test_samples_are_scipys_and_move_with_their_parameters():
    """dz/dθ is that of the quantile at the probability of the sample."""
    for name, shapes in (
        ("gamma", (0.7,)),
        ("beta", (2.0, 0.5)),
        ("t", (3.5,)),
        ("chi2", (3.0,)),
        ("weibull_min", (1.8,)),
        ("vonmises", (2.0,)),
    ):
        ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
        drawn = theirs.rvs(*shapes, LOC, SCALE, size=(2, 3), random_state=3)
        np.testing.assert_array_equal(
            ours.rvs(*shapes, LOC, SCALE, size=(2, 3), random_state=3), drawn
        )
        sample = lambda *v, ours=ours: ours.rvs(*v, size=(2, 3), random_state=3)  # noqa: E731
        np.testing.assert_allclose(tg.vjp(sample, *shapes, LOC, SCALE)[0], drawn, rtol=1e-12)
        q = theirs.cdf(drawn, *shapes, LOC, SCALE)
        for i in range(len(shapes)):
            found = tg.jacobian(sample, i)(*shapes, LOC, SCALE)
            expected = slope(
                lambda v, i=i: theirs.ppf(q, *shapes[:i], v, *shapes[i + 1 :], LOC, SCALE),
                shapes[i],
                1e-3,
            )
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(
            tg.jacobian(sample, len(shapes))(*shapes, LOC, SCALE), np.ones((2, 3)), rtol=1e-12
        )
        np.testing.assert_allclose(
            tg.jacobian(sample, len(shapes) + 1)(*shapes, LOC, SCALE),
            (drawn - LOC) / SCALE,
            rtol=1e-12,
        )
    assert () == np.shape(stats.norm.rvs(tg.tensor(0.0, requires_grad=True)).detach())
    several = stats.norm.rvs(tg.tensor(np.zeros(3), requires_grad=True), size=3, random_state=0)
    np.testing.assert_array_equal(
        several.detach(), scipy.stats.norm.rvs(np.zeros(3), size=3, random_state=0)
    )


# -------------------------------------------------------------------------------------------------------- counts


def discrete_cases():
    for name, several in DISCRETE.items():
        for shapes in several:
            yield name, getattr(stats, name), getattr(scipy.stats, name), shapes


def followed(ours, shapes, wrap):
    return [v if n in ours.counts else wrap(v) for n, v in zip(ours.shapes, shapes, strict=True)]


@pytest.mark.long
def test_masses_are_scipys():
    for name, ours, theirs, shapes in discrete_cases():
        k = np.concatenate(
            [theirs.ppf([1e-3, 0.5, 0.999], *shapes), [-3.0, 2.5, 60.0, np.inf, -np.inf, np.nan]]
        )
        shapes_followed = followed(ours, shapes, lambda v: tg.tensor(float(v), requires_grad=True))
        for method in ("pmf", "logpmf", "cdf", "sf", "logcdf", "logsf"):
            if method == "cdf":
                k = np.floor(k)  # SciPy's logser and yulesimon take fractions as they are
            expected = getattr(theirs, method)(k + 1, *shapes, 1)
            np.testing.assert_array_equal(getattr(ours, method)(k + 1, *shapes, loc=1), expected)
            if len(ours.counts) == len(shapes):
                continue
            found = np.asarray(getattr(ours, method)(k + 1, *shapes_followed, loc=1).detach())
            found = np.where(
                np.isinf(k) & np.isnan(expected), np.nan, found
            )  # where SciPy has none
            if method in ("logcdf", "logsf"):  # SciPy's are logarithms of a rounded 1 - F
                found = np.where(np.isfinite(found) & (expected < -10), expected, found)
            np.testing.assert_allclose(
                found, expected, rtol=1e-8, atol=1e-14, err_msg=f"{name}{shapes}.{method}"
            )


@pytest.mark.long
def test_slopes_of_masses_are_differences_of_scipys():
    for name, ours, theirs, shapes in discrete_cases():
        k = theirs.ppf([1e-3, 0.5, 0.999], *shapes)
        for i, a in enumerate(shapes):
            if ours.shapes[i] in ours.counts:
                continue
            for method in ("pmf", "logpmf", "cdf", "sf", "logcdf", "logsf"):
                f, g = getattr(ours, method), getattr(theirs, method)
                at = lambda f, v, i=i: f(k, *shapes[:i], v, *shapes[i + 1 :])  # noqa: E731
                found = tg.grad(lambda v, f=f: np.sum(at(f, v)))(np.full(3, a))
                expected, h = slope(lambda v, g=g: at(g, v), a, 1e-3 * a), 1e-3 * a
                bound = 3e-6 * np.abs(expected) + 3e-12 * np.abs(at(g, a)) / h
                assert np.all((np.abs(found - expected) <= bound) | ~np.isfinite(at(g, a))), (
                    f"{name}{shapes}.{method} by {i}: {found}, {expected}"
                )
                first = tg.grad(lambda v, f=f: at(f, v)[1])
                h = 2e-3 * a
                second, again = tg.jvp(first, (a,), (1.0,))[1], slope(first, a, h)
                assert (
                    abs(second - again) <= 1e-5 * abs(again) + 1e-9 * abs(first(a)) / h + 1e-10
                ), f"{name}.{method}'' by {i}: {second}, {again}"
            for method in ("mean", "var", "std", "entropy"):
                value = getattr(theirs, method)(*shapes)
                move = lambda m, v, i=i: m(*shapes[:i], v, *shapes[i + 1 :])  # noqa: E731
                found, gradient = tg.value_and_grad(
                    lambda v, m=method: move(getattr(ours, m), v), allow_unused=True
                )(a)
                np.testing.assert_allclose(
                    found, value, rtol=1e-8, atol=1e-12, err_msg=f"{name}.{method}"
                )
                expected = slope(lambda v, m=method: move(getattr(theirs, m), v), a, 1e-3 * a)
                assert abs(gradient - expected) <= 1e-5 * abs(expected) + 1e-6 * abs(value), (
                    f"{name}.{method} by {i}: {gradient}, {expected}"
                )


def test_trials_of_different_probabilities():
    """poisson_binom: SciPy's values, differences of them, the law of the binomial, and both tails without loss."""
    ours, theirs = stats.poisson_binom, scipy.stats.poisson_binom
    p = np.array([[0.1, 0.5, 0.93, 0.3], [0.7, 0.2, 0.4, 0.15]])
    k = np.array([1.0, 3.0])
    for what in ("pmf", "logpmf", "cdf", "sf", "logcdf", "logsf"):
        f, g = (lambda p, d=d, what=what: getattr(d, what)(k + 2, p, 2) for d in (ours, theirs))
        np.testing.assert_allclose(f(tg.tensor(p, requires_grad=True)).detach(), g(p), rtol=1e-12)
        found = tg.jacobian(f)(p)
        direction = np.cos(np.arange(8.0)).reshape(p.shape)
        expected = slope(lambda s, g=g: g(p + s * direction), 0.0, 1e-3)
        np.testing.assert_allclose(
            np.tensordot(found, direction, 2), expected, rtol=1e-7, atol=1e-10
        )
    for what in ("mean", "var", "std", "entropy"):
        f, g = (lambda p, d=d, what=what: getattr(d(p), what)() for d in (ours, theirs))
        np.testing.assert_allclose(
            f(tg.tensor(p, requires_grad=True)).detach(),
            g(p) if what != "entropy" else [_entropy(x) for x in p],
            rtol=1e-12,
        )
    many = tg.tensor(np.full(60, 0.3), requires_grad=True)
    np.testing.assert_allclose(
        ours.logsf(57, many).detach(), scipy.stats.binom.logsf(57, 60, 0.3), rtol=1e-12
    )
    by_one = tg.grad(lambda q: ours.logsf(57, q * np.ones(60)))(0.3)
    np.testing.assert_allclose(
        by_one, tg.grad(lambda q: stats.binom.logsf(57, 60, q))(0.3), rtol=1e-10
    )
    assert ours.rvs(p[0], size=3, random_state=1).shape == (3,)
    assert np.isnan(ours.pmf(1, tg.tensor([0.5, 1.5], requires_grad=True)).item())
    for bad in (lambda t: ours.ppf(0.5, [t, 0.5]), lambda t: ours.stats([t], moments="s")):
        with pytest.raises(tg.NotDifferentiable):
            tg.grad(bad)(0.5)
    with pytest.raises(ValueError, match="last axis"):
        ours.pmf(1, 0.5)


def _entropy(p):
    masses = scipy.stats.poisson_binom.pmf(np.arange(p.size + 1), p)
    return -np.sum(masses * np.log(masses))


def test_steps_refuse_a_derivative():
    p = tg.tensor(0.4, requires_grad=True)
    for method in ("ppf", "isf"):
        with pytest.raises(tg.NotDifferentiable, match="moves in steps"):
            getattr(stats.binom, method)(0.3, 5, p)
    with pytest.raises(tg.NotDifferentiable, match="differentiate an expectation"):
        stats.poisson.rvs(p)
    with pytest.raises(tg.NotDifferentiable, match="a whole number, by which there is no"):
        stats.binom.logpmf(2, p, 0.4)
    with pytest.raises(tg.NotDifferentiable, match="only the mean and variance"):
        stats.poisson.stats(p, moments="s")
    assert tg.grad(lambda loc: stats.poisson.ppf(0.5, 3.0, loc))(1.0) == 1.0
    assert stats.poisson.median(3.0) == scipy.stats.poisson.median(3.0)
    assert stats.binom.interval(0.9, 20, 0.3) == scipy.stats.binom.interval(0.9, 20, 0.3)


# ------------------------------------------------------------------------------------------- how it may be called


def test_frozen_distributions():
    for dist, args, x in (("gamma", (2.0,), 1.3), ("poisson", (2.0,), 3)):
        ours, theirs = (
            getattr(stats, dist)(*args, loc=1.0),
            getattr(scipy.stats, dist)(*args, loc=1.0),
        )
        for method in ("cdf", "logsf"):
            assert getattr(ours, method)(x) == getattr(theirs, method)(x)
        for method in ("mean", "median", "var", "std", "entropy", "stats", "support"):
            assert getattr(ours, method)() == getattr(theirs, method)()
        assert ours.interval(0.8) == ours.interval(confidence=0.8) == theirs.interval(0.8)
        assert ours.stats("mvsk") == theirs.stats("mvsk")
        np.testing.assert_array_equal(ours.rvs(4, random_state=1), theirs.rvs(4, random_state=1))
        np.testing.assert_array_equal(
            ours.rvs(size=4, random_state=1), theirs.rvs(size=4, random_state=1)
        )
    assert tg.grad(lambda a: stats.gamma(a).logpdf(1.0))(2.0) == tg.grad(stats.gamma.logpdf, 1)(
        1.0, 2.0
    )
    assert repr(stats.norm(1.0, scale=2.0)) == "tg.stats.norm(1.0, scale=2.0)"
    with pytest.raises(AttributeError, match="has no method pmf"):
        stats.norm().pmf(1)
    with pytest.raises(TypeError, match="needs the parameter a"):
        stats.gamma()


def test_skewness_and_kurtosis():
    for i, letter in enumerate("mvsk"):
        f = lambda a, letter=letter: stats.gamma.stats(a, moments=letter)  # noqa: E731
        value, gradient = tg.value_and_grad(f)(2.5)
        expected = [lambda a: a, lambda a: a, lambda a: 2 / np.sqrt(a), lambda a: 6 / a][i]
        np.testing.assert_allclose(
            [value, gradient], [expected(2.5), slope(expected, 2.5, 1e-3)], rtol=1e-9
        )


def test_single_precision_is_kept():
    x = np.array([0.3, 1.2], np.float32)
    for f in (
        lambda v: stats.gamma.logpdf(v, 2.0),
        lambda v: stats.t.cdf(v, 3.0),
        lambda v: stats.norm.ppf(v / 2),
        lambda v: stats.ncx2.sf(v, 2.0, 1.0),
    ):
        assert f(x).dtype == np.float32
        t = tg.tensor(x, requires_grad=True)
        out = f(t)
        assert out.dtype == np.float32
        np.testing.assert_allclose(out.detach(), f(x.astype(float)), rtol=3e-7)
        np.sum(out).backward()
        assert t.grad.dtype == np.float32
    with pytest.raises(TypeError, match="complex"):
        stats.norm.pdf(tg.tensor(1j, requires_grad=True))


def test_what_broadcasts_and_what_is_empty():
    a, x = np.array([[0.5], [2.0]]), np.array([0.3, 1.0, 4.0])
    for method in ("cdf", "logpdf"):
        gradient = tg.grad(lambda a, m=method: np.sum(getattr(stats.gamma, m)(x, a)))(a)
        assert gradient.shape == (2, 1)
    gradient = tg.grad(lambda b: np.sum(stats.nct.sf(x, b, np.array([[0.0], [1.0]]))))(
        np.array([[2.0], [5.0]])
    )
    one = tg.grad(lambda b: np.sum(stats.nct.sf(x, b, 1.0)))(5.0)
    np.testing.assert_allclose(gradient[1, 0], one, rtol=1e-10)
    for f in (
        lambda v: stats.gamma.ppf(v, 2.0),
        lambda v: stats.nct.cdf(v, 2.0, 1.0),
        lambda v: stats.skellam.pmf(0, 2.0, v),
    ):
        assert tg.grad(lambda v, f=f: np.sum(f(v)))(np.zeros(0)).shape == (0,)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: np.sum(stats.gamma.logpdf(x, a) + stats.gamma.logsf(x, a)),
        lambda x, a: np.sum(stats.beta.ppf(x / 5, a, 2.0)),
        lambda x, a: np.sum(stats.geninvgauss.logpdf(x, a, 1.0)),
        lambda x, a: np.sum(stats.skewnorm.cdf(x, a)) + stats.weibull_min.entropy(a),
        lambda x, a: stats.exponpow.mean(a) + 0 * np.sum(x),
        lambda x, a: np.sum(stats.poisson.logpmf(np.arange(3), a * x)),
    ],
)
def test_compiled_programs_agree(f):
    x = np.array([0.3, 1.2, 2.2])
    gradient = tg.grad(f, (0, 1))
    compiled = tg.compile(gradient)
    for a in (1.5, 2.5):
        for found, expected in zip(compiled(x, a), gradient(x, a), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_many_points_at_once():
    x = np.array([0.3, 1.2, 2.2])
    alone = [tg.grad(stats.nct.cdf, 0)(v, 3.0, 1.0) for v in x]
    np.testing.assert_allclose(
        tg.vmap(tg.grad(stats.nct.cdf, 0), in_axes=(0, None, None))(x, 3.0, 1.0), alone, rtol=1e-11
    )
    hessian = tg.hessian(lambda p: np.sum(stats.lognorm.logpdf(x, p[0], p[1], p[2])))(
        np.array([0.7, 0.1, 1.3])
    )
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10)


# ------------------------------------------------------------------------------------------------------- vectors


def test_a_normal_distribution_of_vectors(rng):
    a = rng.normal(size=(3, 3))
    cov, mean, x = a @ a.T + np.eye(3), rng.normal(size=3), rng.normal(size=(4, 3))
    theirs = scipy.stats.multivariate_normal
    ours = stats.multivariate_normal
    np.testing.assert_allclose(ours.logpdf(x, mean, cov), theirs.logpdf(x, mean, cov), rtol=1e-12)
    np.testing.assert_allclose(ours.pdf(x[0], mean, cov), theirs.pdf(x[0], mean, cov), rtol=1e-12)
    np.testing.assert_allclose(ours.entropy(mean, cov), theirs.entropy(mean, cov), rtol=1e-12)
    gradient = tg.grad(lambda c: np.sum(ours.logpdf(x, mean, c)))(cov)
    for i, j in ((0, 0), (0, 2), (1, 2)):
        e = np.zeros((3, 3))
        e[i, j] = e[j, i] = 1.0
        expected = slope(lambda h, e=e: np.sum(theirs.logpdf(x, mean, cov + h * e)), 0.0, 1e-3)
        np.testing.assert_allclose(np.sum(gradient * e), expected, rtol=1e-7)
    with pytest.raises(np.linalg.LinAlgError):
        ours.logpdf(x, mean, -cov)


def test_a_normal_distribution_by_variances_and_defaults(rng):
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    x, mean, variances = rng.normal(size=(4, 3)), rng.normal(size=3), np.array([0.5, 1.0, 2.0])
    for given in (
        (x, mean, variances),
        (x, mean, 2.5),
        (x[0], mean),
        (x[:, 0], None, 2.0),
        (x[0, 0],),
    ):
        np.testing.assert_allclose(ours.logpdf(*given), theirs.logpdf(*given), rtol=1e-12)
    np.testing.assert_allclose(ours.entropy(mean, variances), theirs.entropy(mean, variances))
    np.testing.assert_allclose(ours.entropy(), theirs.entropy())
    by_variances = tg.grad(lambda v: np.sum(ours.logpdf(x, mean, v)))(variances)
    expected = np.sum(((x - mean) ** 2 / variances - 1) / (2 * variances), axis=0)
    np.testing.assert_allclose(by_variances, expected, rtol=1e-12)
    by_one = tg.grad(lambda v: np.sum(ours.logpdf(x, mean, v)))(1.7)
    np.testing.assert_allclose(by_one, np.sum(((x - mean) ** 2 / 1.7 - 1) / 3.4), rtol=1e-12)


def test_a_singular_normal_distribution(rng):
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    factor, mean = rng.normal(size=(4, 2)), rng.normal(size=4)
    cov, z = factor @ factor.T, rng.normal(size=(3, 2))
    x = mean + z @ factor.T
    expected = theirs.logpdf(x, mean, cov, allow_singular=True)
    np.testing.assert_allclose(ours.logpdf(x, mean, cov, allow_singular=True), expected, rtol=1e-9)
    assert ours.pdf(x[0] + 1.0, mean, cov, allow_singular=True) == 0.0
    pseudo = np.linalg.pinv(cov)
    by_x = tg.grad(lambda x: ours.logpdf(x, mean, cov, allow_singular=True))(x[0])
    np.testing.assert_allclose(by_x, -pseudo @ (x[0] - mean), rtol=1e-9)
    by_mean = tg.grad(lambda m: np.sum(ours.pdf(x, m, cov, True)))(mean)
    np.testing.assert_allclose(by_mean, np.exp(expected) @ (x - mean) @ pseudo, rtol=1e-9)
    regular = cov + np.eye(4)
    for allowed in (False, True):
        f = lambda c, allowed=allowed: np.sum(ours.logpdf(x, mean, c, allow_singular=allowed))  # noqa: E731
        np.testing.assert_allclose(f(regular), np.sum(theirs.logpdf(x, mean, regular)))
        np.testing.assert_allclose(tg.grad(f)(regular), tg.grad(lambda c: np.sum(ours.logpdf(x, mean, c)))(regular))  # fmt: skip
    with pytest.raises(tg.NotDifferentiable, match="singular covariance"):
        tg.grad(lambda c: ours.logpdf(x[0], mean, c, allow_singular=True))(cov)
    with pytest.raises(ValueError, match="negative variances"):
        ours.logpdf(x, mean, cov - np.eye(4), allow_singular=True)
    with pytest.raises(np.linalg.LinAlgError):
        ours.logpdf(x, mean, np.diag([1.0, 1.0, 0.0, 0.0]))


def test_shares_of_a_whole():
    x, alpha = np.array([0.2, 0.3, 0.5]), np.array([1.5, 2.0, 3.0])
    np.testing.assert_allclose(
        stats.dirichlet.logpdf(x, alpha), scipy.stats.dirichlet.logpdf(x, alpha)
    )
    gradient = tg.grad(lambda a: stats.dirichlet.pdf(x, a))(alpha)
    for i in range(3):
        e = np.eye(3)[i]
        expected = slope(lambda h, e=e: scipy.stats.dirichlet.pdf(x, alpha + h * e), 0.0, 1e-3)
        np.testing.assert_allclose(gradient[i], expected, rtol=1e-8)
    with pytest.raises(ValueError, match="add up to 1"):
        stats.dirichlet.logpdf(x * 2, alpha)
    with pytest.raises(ValueError, match="a row for each"):
        stats.dirichlet.logpdf(x[:2], alpha)


def test_bad_calls():
    with pytest.raises(TypeError, match="needs the parameter df"):
        stats.t.pdf(1.0)
    with pytest.raises(TypeError, match="loc, scale after what"):
        stats.norm.pdf(1.0, sigma=2.0)
    with pytest.raises(TypeError, match="4 by position"):
        stats.gamma.pdf(1.0, 2.0, 0.0, 1.0, 3.0)


def test_a_likelihood_is_fitted(rng):
    """Maximum likelihood of a gamma distribution: the gradient vanishes where SciPy's fit is."""
    data = rng.gamma(3.0, 2.0, size=400)
    shape, _, scale = scipy.stats.gamma.fit(data, floc=0)
    gradient = tg.grad(lambda p: np.sum(stats.gamma.logpdf(data, p[0], scale=p[1])))
    assert np.all(np.abs(gradient(np.array([shape, scale]))) < 1e-3)


def test_a_kernel_density_estimate(rng):
    data, points, weights = (
        rng.normal(size=(2, 9)),
        rng.normal(size=(2, 4)),
        rng.uniform(0.5, 2.0, 9),
    )
    theirs = scipy.stats.gaussian_kde
    for given in ({}, {"bw_method": "silverman"}, {"bw_method": 0.4, "weights": weights}):
        for sample, at in ((data, points), (data[0], points[0])):
            ours = stats.gaussian_kde(sample, **given)
            np.testing.assert_allclose(ours(at), theirs(sample, **given)(at), rtol=1e-12)
            np.testing.assert_allclose(
                ours.logpdf(at), theirs(sample, **given).logpdf(at), rtol=1e-12
            )
    direction = rng.normal(size=(2, 9))
    cases = (
        lambda f, v: f(data + v * direction, weights=weights)(points),
        lambda f, v: f(data, weights=weights * (1 + v * direction[0]))(points),
        lambda f, v: f(data, weights=weights).logpdf(points + v),
    )
    for case in cases:
        found = tg.jvp(lambda v, case=case: case(stats.gaussian_kde, v), (0.0,), (1.0,))[1]
        np.testing.assert_allclose(
            found, slope(lambda v, case=case: case(theirs, v), 0.0, 1e-3), rtol=1e-8, atol=1e-11
        )
        np.testing.assert_allclose(
            tg.jacobian(lambda v, case=case: case(stats.gaussian_kde, v))(0.0),
            found,
            rtol=1e-10,
            atol=1e-14,
        )
    with pytest.raises(ValueError, match="one weight for each"):
        stats.gaussian_kde(data, weights=weights[:3])
    with pytest.raises(ValueError, match="multiple elements"):
        stats.gaussian_kde([1.0])
    with pytest.raises(ValueError, match="bw_method"):
        stats.gaussian_kde(data, bw_method="wide")
    with pytest.raises(ValueError, match="points have dimension"):
        stats.gaussian_kde(data)(np.zeros((3, 1)))


@pytest.mark.long
def test_noncentral_functions_of_special_are_those_distributions():
    import scipy.special

    for name, args in {
        "chndtr": (3.0, 2.5, 1.5), "chndtrix": (0.3, 2.5, 1.5), "ncfdtr": (3.0, 7.0, 1.2, 0.8), "ncfdtri": (3.0, 7.0, 1.2, 0.4),
        "nctdtr": (4.0, 0.7, 1.1), "nctdtrit": (4.0, 0.7, 0.6),
    }.items():  # fmt: skip
        theirs = getattr(scipy.special, name)
        np.testing.assert_allclose(getattr(tg.special, name)(*args), theirs(*args), rtol=1e-10)
        for i, a in enumerate(args):
            expected = slope(lambda v, i=i: theirs(*args[:i], v, *args[i + 1 :]), a, 1e-3)
            np.testing.assert_allclose(
                tg.grad(theirs, i)(*args), expected, rtol=1e-7, err_msg=f"{name} by {i}"
            )


def test_slopes_where_a_parameter_is_at_the_end_of_its_range():
    """Of functions that go on evenly, or as a power series, behind the end."""
    x = 0.7
    np.testing.assert_allclose(
        tg.grad(stats.ncx2.logpdf, 2)(x, 5.0, 0.0), -0.5 + x / 10, rtol=1e-12
    )
    np.testing.assert_allclose(
        tg.grad(stats.ncx2.cdf, 2)(x, 5.0, 0.0), -scipy.stats.chi2.pdf(x, 7), rtol=1e-10
    )
    w = 3 * x / 5
    np.testing.assert_allclose(
        tg.grad(stats.ncf.logpdf, 3)(x, 3.0, 5.0, 0.0), -0.5 + 0.5 * w / (1 + w) * 8 / 3, rtol=1e-12
    )
    np.testing.assert_allclose(tg.grad(stats.rice.logpdf, 1)(x, 0.0), 0.0, atol=1e-15)
    np.testing.assert_allclose(tg.grad(stats.vonmises.logpdf, 1)(x, 0.0), np.cos(x), rtol=1e-12)
    np.testing.assert_allclose(
        tg.grad(stats.pearson3.logpdf, 1)(x, 0.0), (x**3 - 3 * x) / 6, rtol=1e-12
    )
    assert (
        tg.grad(stats.truncnorm.logpdf, 1)(x, -np.inf, 2.0)
        == tg.grad(stats.foldnorm.cdf, 1)(x, 0.0)
        == 0.0
    )
    for nc in (0.2, 0.24, 0.26, 1.0):  # on both sides of where the series ends
        for dist, shapes in (("ncx2", (1.0,)), ("ncf", (3.0, 5.0))):
            f, g = getattr(stats, dist).logpdf, getattr(scipy.stats, dist).logpdf
            found = tg.grad(f, len(shapes) + 1)(x, *shapes, nc)
            np.testing.assert_allclose(
                found, slope(lambda v: g(x, *shapes, v), nc, 1e-3), rtol=1e-8
            )


@pytest.mark.long(but=2)
@pytest.mark.parametrize("what", ["logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"])
@pytest.mark.parametrize("df", [np.inf, np.array([np.inf, 3.0, np.inf])])
def test_infinite_degrees_of_freedom_are_the_normal_distribution(what, df):
    """As in SciPy; beside finite ones, by every engine, and with a slope of 0 by the degrees of freedom."""
    x, nc = np.array([-1.5, 0.3, 3.0]), 0.25
    far = np.isinf(df) & np.full(3, True)
    for ours, theirs, rest in (
        (tg.stats.t, scipy.stats.t, ()),
        (tg.stats.nct, scipy.stats.nct, (nc,)),
    ):
        f = lambda y, d: getattr(ours, what)(y, d, *rest)  # noqa: E731
        np.testing.assert_allclose(
            f(tg.tensor(x), tg.tensor(df)), getattr(theirs, what)(x, df, *rest), rtol=1e-12
        )
        by_x, by_df = tg.grad(lambda y, d: np.sum(f(y, d)), (0, 1))(x, df)
        normal = tg.grad(lambda y: np.sum(getattr(tg.stats.norm, what)(y, sum(rest))))(x)
        np.testing.assert_allclose(by_x[far], normal[far], rtol=1e-12)
        assert np.isfinite(by_x).all() and np.all((np.broadcast_to(by_df, 3) == 0) == far)
        compiled = tg.compile(tg.grad(lambda y, d: np.sum(f(y, d))))(x, df)
        np.testing.assert_allclose(compiled, by_x, rtol=1e-12)


def test_infinite_degrees_of_freedom_of_vectors_and_special_functions():
    x, shape = np.array([0.3, 0.5]), np.array([[2.0, 0.3], [0.3, 1.0]])
    t, normal = tg.stats.multivariate_t, tg.stats.multivariate_normal
    for f, g in (
        (lambda s: t.logpdf(x, None, s, np.inf), lambda s: normal.logpdf(x, np.zeros(2), s)),
        (lambda s: t.entropy(None, s, np.inf), lambda s: normal.entropy(np.zeros(2), s)),
    ):
        np.testing.assert_allclose(
            tg.value_and_grad(f)(shape)[1], tg.value_and_grad(g)(shape)[1], rtol=1e-12
        )
        if SCIPY >= (1, 17):  # before, SciPy's own multivariate_t has no such limit
            assert f(tg.tensor(shape)).item() == pytest.approx(g(shape), rel=1e-12)
    drawn = t.rvs(np.zeros(2), tg.tensor(shape, requires_grad=True), np.inf, size=3, random_state=1)
    same = scipy.stats.multivariate_t.rvs(np.zeros(2), shape, np.inf, size=3, random_state=1)
    np.testing.assert_allclose(drawn.detach(), same, rtol=1e-12)
    density = np.exp(-0.125) / np.sqrt(2 * np.pi)
    assert tg.grad(tg.special.stdtr, (0, 1))(np.inf, 0.5) == pytest.approx(
        (0.0, density), rel=1e-14
    )
    assert tg.grad(tg.grad(tg.special.stdtr, 1), 1)(np.inf, 0.5) == pytest.approx(
        -0.5 * density, rel=1e-13
    )
    assert tg.grad(tg.special.stdtrit, 1)(np.inf, tg.special.ndtr(0.5)) == pytest.approx(
        1 / density, rel=1e-12
    )


@pytest.mark.parametrize(
    "name, at",
    [("crystalball", (0.0, 3.0)), ("exponnorm", (0.0,)), ("gennorm", (0.0,)), ("kappa3", (0.0,))],
)
def test_parameters_that_divide_by_zero_give_nan(name, at):
    """A float of Python's would raise ZeroDivisionError."""
    assert np.isnan(getattr(tg.stats, name).pdf(tg.tensor(0.5), *at).item())


# By mpmath: log(erfc(sqrt(0.5 / y))) and its slope.
LEVY = (
    (1e-100, -5e99, 5e199),
    (1e-4, -5004.831061513645, 50004999.00049963),
    (0.01, -52.53813796995253, 5049.046616981256),
    (0.4999, None, None),
    (1.0, -1.1478744644493182, 0.7625676380804905),
    (1000.0, -0.025550779355950622, 1.2935686478721872e-05),
)


@pytest.mark.parametrize("y, value, slope", LEVY)
def test_logarithms_of_levys_cdf_near_its_end(y, value, slope):
    """The cdf underflows there, and its logarithm was -inf, as SciPy's is of plain arrays, and the slope NaN."""
    left, right = tg.stats.levy_l.logsf, tg.stats.levy.logcdf
    if value is None:  # where one formula follows another
        value, slope = np.log(scipy.stats.levy.cdf(y)), scipy.stats.levy.pdf(y) / scipy.stats.levy.cdf(y)  # fmt: skip
    for found, turned in zip(tg.value_and_grad(right)(y), tg.value_and_grad(left)(-y), strict=True):
        assert abs(found) == abs(turned)
    assert tg.value_and_grad(right)(y) == pytest.approx((value, slope), rel=1e-12)


@pytest.mark.parametrize("f", [np.min, np.max], ids=["min", "max"])
def test_a_mask_of_a_number_is_none_where_it_holds(f):
    """In NumPy the comparison of a number of Python's is a truth value of Python's, and no mask that asks for `initial`."""
    masked = lambda x: f(x, where=x > 0.1)  # noqa: E731
    assert masked(0.7) == 0.7 and tg.grad(masked)(0.7) == 1.0 and tg.compile(masked)(0.7) == 0.7
    for g in (masked, tg.grad(masked)):
        with pytest.raises(ValueError, match="identity"):
            g(0.05)


@pytest.mark.parametrize("b", [0.7, 1.0, 2.0, 3.5])
def test_gennorm_at_its_centre(b):
    """The slope of the cdf is the density, where y^b and the incomplete gamma function have slopes of 0 and infinity."""
    density = scipy.stats.gennorm.pdf(0.0, b)
    cdf = tg.grad(lambda x, b, loc, scale: tg.stats.gennorm.cdf(x, b, loc, scale), (0, 1, 2, 3))
    assert cdf(1.5, b, 1.5, 2.0) == pytest.approx((density / 2, 0, -density / 2, 0), rel=1e-13)
    isf = tg.grad(lambda q, b, loc, scale: tg.stats.gennorm.isf(q, b, loc, scale), (0, 1, 2, 3))
    assert isf(0.5, b, 1.5, 2.0) == pytest.approx((-2 / density, 0, 1, 0), rel=1e-13)


def test_gennorm_of_2_at_its_centre_is_normal_to_every_order():
    f, g = (lambda x: tg.stats.gennorm.cdf(x, 2.0)), (lambda x: tg.stats.norm.cdf(x, 0.0, 0.5**0.5))
    for _ in range(5):
        f, g = tg.grad(f), tg.grad(g)
        assert f(0.0) == pytest.approx(g(0.0), abs=1e-12)


@pytest.mark.parametrize("name", ["dgamma", "dweibull"])
def test_a_median_that_no_shape_moves_has_the_slope_0(name):
    """The density vanishes there, so the quotient of the implicit function is 0 / 0."""
    law = getattr(tg.stats, name)
    assert (
        tg.grad(lambda a: law.ppf(0.5, a))(2.1) == 0
        and tg.grad(lambda a: law.isf(0.5, a))(2.1) == 0
    )


@pytest.mark.parametrize("name, shape", [("t", 3.0), ("gennorm", 2.0), ("tukeylambda", 0.3)])
def test_slopes_of_a_median_by_its_shape_have_slopes(name, shape):
    """The median does not move; its neighbours do, so the Hessian is symmetric and not 0."""
    law = getattr(tg.stats, name)
    hessian = tg.hessian(lambda v: law.ppf(v[0], v[1]))(np.array([0.5, shape]))
    step = 1e-4
    slopes = [tg.grad(law.ppf)(0.5, s) for s in (shape - step, shape + step)]
    assert hessian[0, 1] == pytest.approx((slopes[1] - slopes[0]) / (2 * step), rel=1e-5)
    assert hessian[1, 0] == pytest.approx(hessian[0, 1], rel=1e-10)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("b", [0.5, 3.12])
def test_gausshyper_near_its_end(b):
    """The last nodes of the integral round to 1, where the logarithm of the density has an infinite slope."""
    shapes = np.array([12.4, b, 2.5, 5.9])
    f = lambda v: tg.stats.gausshyper.sf(0.99, *v)  # noqa: E731
    direction = np.array([0.3, -0.2, 0.1, 0.4])
    value, slope = tg.jvp(f, (shapes,), (direction,))
    assert value == pytest.approx(scipy.stats.gausshyper.sf(0.99, *shapes), rel=1e-5)
    assert slope == pytest.approx(tg.grad(f)(shapes) @ direction, rel=1e-12)

    def tail(h):
        a, b, c, z = map(mp.mpf, shapes + h * direction)
        whole = mp.beta(a, b) * mp.hyp2f1(c, a, a + b, -z)
        return (
            mp.quad(
                lambda t: t ** (a - 1) * (1 - t) ** (b - 1) * (1 + z * t) ** -c, [mp.mpf(0.99), 1]
            )
            / whole
        )

    assert slope == pytest.approx(float((tail(1e-5) - tail(-1e-5)) / 2e-5), rel=1e-6)


FAR = {
    "genpareto": ("isf", 1e-250, (0.5,), lambda q, c: (q**-c - 1) / c),
    "genextreme": ("isf", 1e-250, (-0.3,), lambda q, c: (1 - mp.log(1 / (1 - q)) ** c) / c),
    "pareto": ("isf", 1e-30, (0.1,), lambda q, b: q ** (-1 / b)),
    "lomax": ("isf", 1e-30, (0.1,), lambda q, c: q ** (-1 / c) - 1),
    "burr12": ("ppf", 1 - 1e-9, (0.4, 0.3), lambda q, c, d: ((1 - q) ** (-1 / d) - 1) ** (1 / c)),
    "weibull_max": ("isf", 1 - 1e-9, (0.05,), lambda q, c: -((-mp.log(1 - q)) ** (1 / c))),
}


@pytest.mark.parametrize("name", FAR)
def test_quantiles_far_out_move_with_their_parameters(name):
    """Where the density is 0 for rounding, or the distribution function 1, the slopes are those of logarithms, and of the other tail."""
    tail, q, shapes, formula = FAR[name]
    leaves = [tg.tensor(v, requires_grad=True) for v in (q, *shapes)]
    getattr(getattr(tg.stats, name), tail)(*leaves).backward()
    with mp.workdps(320):
        point = [mp.mpf(v) for v in (q, *shapes)]
        for k, leaf in enumerate(leaves):

            def moved(v, k=k):
                return formula(*point[:k], v, *point[k + 1 :])

            expected = mp.diff(moved, point[k], h=point[k] * mp.mpf(10) ** -60)
            if abs(expected) < 1e308:
                assert float(leaf.grad) == pytest.approx(float(expected), rel=1e-6)


def test_a_quantile_rounded_to_the_end_of_its_support_has_no_slope():
    """Nothing is known there: 0 would be a gradient lost without a word. One that no parameter moves stays."""
    for law, shape in ((tg.stats.genpareto, -0.3), (tg.stats.genextreme, 0.5)):
        assert np.isnan(tg.grad(lambda c, law=law: law.isf(1e-250, c))(shape))
        assert np.isnan(tg.grad(lambda q, law=law, c=shape: law.isf(q, c))(1e-250))
    assert np.isnan(tg.grad(lambda b: tg.stats.truncnorm.isf(1e-30, -1.0, b))(2.0))
    assert tg.grad(lambda c: tg.stats.dweibull.ppf(0.5, c))(2.5) == 0.0


def test_one_program_has_quantiles_of_both_halves():
    """Which half a quantile lies in is no choice of Python's: a program, also a loop in one, is made once."""
    slope = tg.grad(lambda a, q: np.sum(tg.stats.gamma.ppf(q, a)))
    fast = tg.compile(slope)
    for q in ([0.2, 0.3], [0.9, 0.1], [0.7, 0.8], [0.01, 0.99]):
        np.testing.assert_allclose(fast(2.5, np.array(q)), slope(2.5, np.array(q)), rtol=1e-12)
    assert sum(map(len, fast.programs.by_key.values())) == 1
