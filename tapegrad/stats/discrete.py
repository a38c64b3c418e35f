"""The discrete distributions, one declaration each: logarithm of the mass, support, and what is known beyond.

`k` are counts, by which nothing is differentiated. Where no distribution function is given, it is SciPy's, with the derivatives of a sum
of masses over the smaller tail; moments likewise are SciPy's or a formula. Quantiles and samples are steps: they are SciPy's, and refuse
a tracked parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from .. import special
from ..core.storage import as_array
from ..core.tensor import value_of, wrap
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, holds_tracked
from ..ops.special.gamma import zeta_by_exponent
from .quadrature import called, columns, log_integral, plain, with_value
from .univariate import (
    BELOW_AND_ABOVE,
    INF,
    Distribution,
    Formula,
    _log,
    _rounded,
    doubled,
    followed,
    log1mexp,
    positive,
    where_valid,
    wrapped_all,
)

xlogy, xlog1py, gammaln, betaln = special.xlogy, special.xlog1py, special.gammaln, special.betaln
LOG2 = np.log(2.0)

_DROP = 42.0
_MOST = 1 << 20
"""Terms that are added at most; a longer tail is refused."""


class Counts(Distribution):
    """What distributions of counts offer alike: masses and sums of masses by `_function`, quantiles and samples by `_steps`."""

    located: ClassVar[dict[str, float]] = {"loc": 0.0}
    methods: ClassVar[tuple[str, ...]] = (
        "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "rvs", "mean", "median", "var", "std", "entropy", "stats",
        "interval", "support",
    )  # fmt: skip

    def _function(self, what: str, k: Any, args: Any, named: Any) -> Any:
        """pmf, logpmf or a distribution function at the counts k."""
        raise NotImplementedError

    def _steps(
        self, what: str, given: Sequence[Any], args: Any, named: Any, **settings: Any
    ) -> Any:
        """SciPy's result, which is a step function of the parameters."""
        raise NotImplementedError

    def logpmf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the probability of k; -inf where k cannot occur."""
        return self._function("logpmf", k, args, named)

    def pmf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of k."""
        return self._function("pmf", k, args, named)

    def cdf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of at most k."""
        return self._function("cdf", k, args, named)

    def sf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of more than k."""
        return self._function("sf", k, args, named)

    def logcdf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the cdf."""
        return self._function("logcdf", k, args, named)

    def logsf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the sf."""
        return self._function("logsf", k, args, named)

    def ppf(self, q: Any, *args: Any, **named: Any) -> Any:
        """The least k with a cdf of at least q; differentiable by loc at most."""
        return self._steps("ppf", [q], args, named)

    def isf(self, q: Any, *args: Any, **named: Any) -> Any:
        """The least k with an sf of at most q; differentiable by loc at most."""
        return self._steps("isf", [q], args, named)

    def interval(self, confidence: Any, *args: Any, **named: Any) -> Any:
        """Quantiles that a value misses equally rarely on each side; differentiable by loc at most."""
        rest = 0.5 * (1.0 - np.asarray(value_of(confidence)))
        return self.ppf(rest, *args, **named), self.ppf(1.0 - rest, *args, **named)

    def rvs(self, *args: Any, size: Any = None, random_state: Any = None, **named: Any) -> Any:
        """A sample; differentiable by loc at most, since counts move in steps."""
        return self._steps("rvs", [], args, named, size=size, random_state=random_state)


class Discrete(Counts):
    """A distribution on whole numbers, moved by `loc`.

    >>> import tapegrad as tg
    >>> tg.grad(lambda mu: tg.stats.poisson.logpmf(3, mu))(2.0)
    0.5
    """

    def __init__(
        self,
        name: str,
        shapes: str,
        logpmf: Formula,
        support: tuple[float, float] | Formula,
        valid: Formula = positive,
        *,
        counts: str = "",
        cdf: Formula | None = None,
        sf: Formula | None = None,
        logsf: Formula | None = None,
        mean: Formula | None = None,
        var: Formula | None = None,
        entropy: Formula | None = None,
    ) -> None:
        """Declare a distribution by the formula of its log mass; what is not given is summed."""
        super().__init__(name, shapes, valid, counts)
        self._support = support if callable(support) else (lambda *_: support)
        self._moments = {"mean": mean, "var": var, "entropy": entropy}
        if logsf:
            sf, cdf = (lambda *a: np.exp(logsf(*a))), (lambda *a: -np.expm1(logsf(*a)))
        cdf = cdf or (lambda *a: self._summed("cdf", *a))
        sf = sf or (lambda *a: self._summed("sf", *a))
        self.formulas: dict[str, Formula] = {
            "logpmf": logpmf, "cdf": cdf, "sf": sf,
            "logcdf": (lambda *a: log1mexp(logsf(*a))) if logsf else (lambda *a: _log(cdf(*a), sf(*a))),
            "logsf": logsf or (lambda *a: _log(sf(*a), cdf(*a))),
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------- standard form

    def standard(self, what: str, k: Any, *shapes: Any) -> Any:
        """pmf, logpmf or a distribution function without loc, recorded."""
        if what == "pmf":
            return np.exp(self.standard("logpmf", k, *shapes))
        low, high = self._support(*map(plain, shapes))
        whole = np.floor(k)
        within = (k >= low) & (k <= high) & ~np.isinf(k)
        if what == "logpmf":
            within = within & (k == whole)
        else:
            within = within & (k < high)
        first = np.where(np.isinf(low), 0.0, low)
        value = self.formulas[what](np.where(within, whole, first), *shapes)
        value = np.where(np.isnan(k), np.nan, value)
        within = within | np.isnan(k)
        if what == "logpmf":
            return np.where(within, value, -INF)
        below, above = BELOW_AND_ABOVE[what]
        return np.where(within, value, np.where(k > low, above, below))

    def _summed(self, what: str, k: Any, *shapes: Any) -> Any:
        """The cdf or sf: SciPy's value, and the derivatives of the sum of masses over the smaller tail."""
        parameters = list(map(plain, shapes))
        value = called(lambda *a: np.asarray(getattr(self.scipy, what)(*a), float), k, *parameters)
        upper = value > 0.5 if what == "cdf" else value < 0.5
        low, high = self._support(*parameters)

        def ends(k: Any, upper: Any, low: Any, high: Any, *a: Any) -> Any:
            first = self._far(k, -1.0, low, *a)
            last = self._far(k + 1.0, 1.0, high, *a)
            upper = upper & ~np.isnan(last) | np.isnan(first)
            return np.stack(
                np.broadcast_arrays(
                    np.where(upper, k + 1.0, first), np.where(upper, last, k), upper
                )
            )

        first, last, upper = called(ends, k, upper, low, high, *parameters)
        mass = self._over(first, last, lambda j: 1.0, shapes)
        total = np.where(upper > 0, -mass, mass)
        return with_value(value, total if what == "cdf" else -total)

    def _far(self, k: Any, side: float, end: Any, *a: Any) -> Any:
        """The place on one side of k beyond which masses are e^-42 of what they are at most on the way, of plain arrays."""
        with np.errstate(all="ignore"):
            k, end, *parameters = np.broadcast_arrays(k, end, *a)
            best = self.scipy.logpmf(k, *parameters)
            best = np.where(np.isnan(best), -INF, best)
            span, place, done = 1.0, k, np.zeros(np.shape(k), bool)
            while span <= _MOST:
                there = k + side * span
                mass = self.scipy.logpmf(there, *parameters)
                over = (side * (there - end) >= 0) | (mass < best - _DROP)
                place = np.where(done, place, np.where(side * (there - end) >= 0, end, there))
                done = done | over
                if np.all(done):
                    return place
                best = np.where(done, best, np.fmax(best, mass))
                span *= 2
            return np.where(done, place, np.nan)

    def _over(self, first: Any, last: Any, weight: Formula, shapes: Sequence[Any]) -> Any:
        """Sum of weight(j) times the mass over j from `first` to `last`."""
        count = np.max(last - first, initial=0.0)
        if not count <= _MOST:
            raise NotDifferentiable(
                f"{self} was asked for a derivative that is a sum over its masses, but with these parameters more than {_MOST} of "
                "them matter. Differentiate its logpmf, or a sum of its pmf that you cut where you can bear it."
            )
        j = first + columns(np.arange(count + 1), np.ndim(first))
        inside = j <= last
        mass = self.standard("pmf", np.where(inside, j, np.floor(first)), *shapes)
        return np.sum(np.where(inside, weight(j) * mass, 0.0), axis=0)

    # -------------------------------------------------------------------------------------------- what is public

    def _parts(self, what: str, args: Any, named: Any) -> list[Any]:
        values = self._bound(args, named)
        return [*self._refuse_counts(values[: len(self.shapes)], what), *values[len(self.shapes) :]]

    def _valid(self, shapes: Sequence[Any]) -> Any:
        return as_array(self.valid(*map(plain, shapes)))

    def _function(self, what: str, k: Any, args: Any, named: Any) -> Any:
        values = self._parts(what, args, named)
        if not followed([k, *values]):
            return self._scipys(what, values, [k])
        *shapes, loc = doubled(values)
        k = as_array(plain(k), float) - plain(loc)  # counts, by which nothing is differentiated
        with np.errstate(all="ignore"):
            value = self.standard(what, k, *shapes)
            return _rounded(where_valid(value, self._valid(shapes), [k, *shapes]), values)

    def _steps(
        self, what: str, given: Sequence[Any], args: Any, named: Any, **settings: Any
    ) -> Any:
        """SciPy's result, which is a step function of the parameters, moved by loc."""
        *shapes, loc = self._parts(what, args, named)
        for name, value in zip(("q", *self.shapes), (*(given or (0.5,)), *shapes), strict=True):
            if holds_tracked(value):
                raise NotDifferentiable(
                    f"{self}.{what} was given a tracked tensor as {name}, but it is a whole number, which moves in steps or not at all: "
                    f"its derivative by {name} is 0 or undefined. Pass {name}.detach(), or differentiate an expectation over the pmf."
                )
        theirs = getattr(self.scipy, what)
        everything = [*given, *shapes, loc]
        if not followed([loc]):
            found = called(lambda *a: theirs(*a, **settings), *map(value_of, everything))
            return wrap(found) if holds_tensor(everything) else found
        shape = plain(loc) * 0.0
        return loc + called(
            lambda *a: theirs(*a, **settings), *map(value_of, [*given, *shapes]), shape
        )

    def support(self, *args: Any, **named: Any) -> Any:
        """Ends of the support."""
        *shapes, loc = self._parts("support", args, named)
        if not followed([*shapes, loc]):
            return self._scipys("support", [*shapes, loc])
        return tuple(loc + end for end in self._support(*map(plain, shapes)))

    # ------------------------------------------------------------------------------------------------- moments

    def _standard_moment(self, what: str, shapes: Sequence[Any]) -> Any:
        """Mean, variance or entropy: by formula, else SciPy's value with the derivative of a sum over the masses."""
        formula = self._moments[what]
        if formula is not None:
            return formula(*shapes)
        parameters = list(map(plain, shapes))

        def moment(*a: Any) -> Any:
            return np.asarray(
                self.scipy.entropy(*a)
                if what == "entropy"
                else self.scipy.stats(*a, moments=what[0]),
                float,
            )

        value = called(moment, *parameters)
        if not followed(shapes):
            return value

        def ends(*a: Any) -> Any:
            low, high = self._support(*a)
            middle = np.clip(np.asarray(self.scipy.ppf(0.5, *a), float), low, high)
            return np.stack(
                np.broadcast_arrays(
                    self._far(middle, -1.0, low, *a), self._far(middle, 1.0, high, *a)
                )
            )

        first, last = called(ends, *parameters)
        if what == "entropy":
            total = self._over(
                first, last, lambda j: -_finite(self.standard("logpmf", j, *shapes)), shapes
            )
        elif what == "mean":
            total = self._over(first, last, lambda j: j, shapes)
        else:
            mean = self._standard_moment("mean", shapes)
            total = self._over(first, last, lambda j: (j - mean) ** 2, shapes)
        return with_value(value, total)

    def _moment(self, what: str, args: Any, named: Any) -> Any:
        values = self._parts(what, args, named)
        if not followed(values):
            return self._scipys(what, values)
        *shapes, loc = doubled(values)
        with np.errstate(all="ignore"):
            found = self._standard_moment("var" if what == "std" else what, shapes)
            if what == "std":
                found = np.sqrt(found)
            found = found + (loc if what == "mean" else 0.0 * loc)
            return _rounded(where_valid(found, self._valid(shapes), [*shapes, loc]), values)

    def stats(self, *args: Any, moments: str = "mv", **named: Any) -> Any:
        """Mean and variance, as `moments` names them by m and v; skewness and kurtosis (s, k) of plain parameters only."""
        values = self._parts("stats", args, named)
        if not followed(values):
            found = self.scipy.stats(*map(value_of, values), moments=moments)
            return wrapped_all(found) if holds_tensor(values) else found
        if set(moments) - {"m", "v"}:
            raise NotDifferentiable(
                f"{self}.stats was asked for the moments {moments} of tracked parameters, but only the mean and variance of a discrete "
                "distribution are differentiated. Ask for moments='mv', or sum over the pmf."
            )
        found = tuple(self._moment({"m": "mean", "v": "var"}[m], args, named) for m in moments)
        return found[0] if len(found) == 1 else found


def _finite(logpmf: Any) -> Any:
    """Logarithms of masses, 0 where there is no mass."""
    return np.where(np.isinf(plain(logpmf)), 0.0, logpmf)


def _choose(n: Any, k: Any) -> Any:
    """Logarithm of the binomial coefficient."""
    return -np.log1p(n) - betaln(n - k + 1.0, k + 1.0)


def _share(p: Any) -> Any:
    return (p >= 0) & (p <= 1)


def _whole(n: Any) -> Any:
    return (n >= 0) & (n == np.floor(n))


def _harmonic(a: Any, n: Any) -> Any:
    """Σ j^-a for j = 1..n."""
    j = columns(np.arange(1.0, np.max(n, initial=1.0) + 1), max(np.ndim(a), np.ndim(n)))
    return np.sum(np.where(j <= n, np.exp(-a * np.log(j)), 0.0), axis=0)


def _two_sided(upper: bool, k: Any, a: Any) -> Any:
    """dlaplace: the cdf or sf."""
    left = k < 0
    below = np.exp(a * (np.where(left, k, -1.0) + 1)) / (np.exp(a) + 1)
    above = np.exp(-a * np.where(left, 0.0, k)) / (np.exp(a) + 1)
    return np.where(left, 1 - below, above) if upper else np.where(left, below, 1 - above)


def _hypergeometric(k: Any, total: Any, marked: Any, drawn: Any) -> Any:
    return _choose(marked, k) + _choose(total - marked, drawn - k) - _choose(total, drawn)


def _zipf_moment(a: Any, n: int) -> Any:
    """The n-th moment about 0: ζ(a - n) / ζ(a), where a > n + 1."""
    there = plain(a) > n + 1
    return np.where(
        there, special.zeta(np.where(there, a - n, 2.0), 1.0) / special.zeta(a, 1.0), INF
    )


def _drawn_support(total: Any, marked: Any, drawn: Any, *_: Any) -> tuple[Any, Any]:
    return np.maximum(0, drawn - (total - marked)), np.minimum(marked, drawn)


def _drawn_valid(total: Any, marked: Any, drawn: Any, *odds: Any) -> Any:
    whole = _whole(total) & _whole(marked) & _whole(drawn) & (marked <= total) & (drawn <= total)
    return whole & (positive(*odds) if odds else True)


def _fisher(k: Any, total: Any, marked: Any, drawn: Any, odds: Any) -> Any:
    low, high = _drawn_support(total, marked, drawn)
    log_odds = np.log(odds)
    term = lambda j: _choose(marked, j) + _choose(total - marked, drawn - j) + j * log_odds  # noqa: E731
    ndim = max(map(np.ndim, (total, marked, drawn, odds)))
    j = low + columns(np.arange(np.max(high - low, initial=0.0) + 1), ndim)
    inside = j <= high
    terms = np.where(inside, term(np.where(inside, j, low)), -INF)
    peak = np.max(plain(terms), axis=0)
    return term(k) - (np.log(np.sum(np.exp(terms - peak), axis=0)) + peak)


def _wallenius(k: Any, total: Any, marked: Any, drawn: Any, odds: Any) -> Any:
    """The integral of (1 - t^(odds/D))^k (1 - t^(1/D))^(drawn-k) over t = exp(-e^v) (Fog 2008)."""
    rest = drawn - k
    left = odds * (marked - k) + (total - marked - rest)
    none = plain(left) <= 0  # all are drawn: there is one outcome
    left = np.where(none, 1.0, left)

    def exponent(v: Any, k: Any, rest: Any, odds: Any, left: Any) -> Any:
        s = np.exp(v)
        return v - s + k * np.log(-np.expm1(-odds * s / left)) + rest * np.log(-np.expm1(-s / left))

    def mode(k: Any, rest: Any, odds: Any, left: Any) -> Any:
        grid = columns(np.linspace(-30.0, 30.0, 1201), np.ndim(k))
        with np.errstate(all="ignore"):
            values = exponent(grid, k, rest, odds, left)
        return np.linspace(-30.0, 30.0, 1201)[
            np.argmax(np.where(np.isnan(values), -INF, values), axis=0)
        ]

    width = lambda k, *_: np.full(np.shape(k), 0.1)  # noqa: E731
    integral = log_integral(exponent, mode, width, k, rest, odds, left)
    return np.where(none, 0.0, _choose(marked, k) + _choose(total - marked, rest) + integral)


def _skellam(k: Any, mu1: Any, mu2: Any) -> Any:
    root = np.sqrt(mu1) - np.sqrt(mu2)
    return (
        -root * root
        + 0.5 * k * np.log(mu1 / mu2)
        + np.log(special.ive(np.abs(k), 2 * np.sqrt(mu1 * mu2)))
    )


# fmt: off
# ------------------------------------------------------------------------------------------------------------ table

bernoulli   = Discrete("bernoulli",  "p",        lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),                          (0, 1), _share,
                       mean=lambda p: p, var=lambda p: p * (1 - p), entropy=lambda p: special.entr(p) + special.entr(1 - p))
betabinom   = Discrete("betabinom",  "n a b",    lambda k, n, a, b: _choose(n, k) + betaln(k + a, n - k + b) - betaln(a, b), lambda n, a, b: (0, n), lambda n, a, b: _whole(n) & (a > 0) & (b > 0), counts="n",
                       mean=lambda n, a, b: n * a / (a + b), var=lambda n, a, b: n * a * b * (a + b + n) / ((a + b) ** 2 * (a + b + 1)))
betanbinom  = Discrete("betanbinom", "n a b",    lambda k, n, a, b: -np.log(n + k) - betaln(n, k + 1.0) + betaln(a + n, b + k) - betaln(a, b), (0, INF), lambda n, a, b: _whole(n) & (a > 0) & (b > 0), counts="n",
                       mean=lambda n, a, b: np.where(plain(a) > 1, n * b / np.where(plain(a) > 1, a - 1, 1.0), INF),
                       var=lambda n, a, b: np.where(plain(a) > 2, n * b * (n + a - 1) * (b + a - 1) / np.where(plain(a) > 2, (a - 2) * (a - 1) ** 2, 1.0), INF))
binom       = Discrete("binom",      "n p",      lambda k, n, p: _choose(n, k) + xlogy(k, p) + xlog1py(n - k, -p),       lambda n, p: (0, n), lambda n, p: _whole(n) & _share(p), counts="n",
                       cdf=lambda k, n, p: special.betaincc(k + 1, n - k, p), sf=lambda k, n, p: special.betainc(k + 1, n - k, p),
                       mean=lambda n, p: n * p, var=lambda n, p: n * p * (1 - p))
boltzmann   = Discrete("boltzmann",  "lambda_ N", lambda k, l, N: log1mexp(-l) - log1mexp(-l * N) - l * k,               lambda l, N: (0, N - 1), lambda l, N: (l > 0) & (N > 0) & _whole(N), counts="N",
                       cdf=lambda k, l, N: np.expm1(-l * (k + 1)) / np.expm1(-l * N), sf=lambda k, l, N: np.exp(-l * (k + 1)) * np.expm1(-l * (N - k - 1)) / np.expm1(-l * N))
dlaplace    = Discrete("dlaplace",   "a",        lambda k, a: np.log(np.tanh(0.5 * a)) - a * np.abs(k),                  (-INF, INF),
                       cdf=lambda k, a: _two_sided(False, k, a), sf=lambda k, a: _two_sided(True, k, a), mean=lambda a: 0.0 * a, var=lambda a: 0.5 / np.sinh(0.5 * a) ** 2,
                       entropy=lambda a: a / np.sinh(a) - np.log(np.tanh(0.5 * a)))
geom        = Discrete("geom",       "p",        lambda k, p: np.log(p) + xlog1py(k - 1, -p),                            (1, INF), lambda p: (p > 0) & (p <= 1),
                       logsf=lambda k, p: xlog1py(k, -p), mean=lambda p: 1 / p, var=lambda p: (1 - p) / (p * p),
                       entropy=lambda p: -np.log(p) - xlog1py(1 - p, -p) / p)
hypergeom   = Discrete("hypergeom",  "M n N",    _hypergeometric,                                                        _drawn_support, _drawn_valid, counts="M n N")
logser      = Discrete("logser",     "p",        lambda k, p: xlogy(k, p) - np.log(k) - np.log(-np.log1p(-p)),           (1, INF), lambda p: (p > 0) & (p < 1),
                       mean=lambda p: -p / ((1 - p) * np.log1p(-p)), var=lambda p: -p * (p + np.log1p(-p)) / ((1 - p) * np.log1p(-p)) ** 2)
nbinom      = Discrete("nbinom",     "n p",      lambda k, n, p: -np.log(n + k) - betaln(n, k + 1.0) + n * np.log(p) + xlog1py(k, -p), (0, INF), lambda n, p: (n > 0) & (p > 0) & (p <= 1),
                       cdf=lambda k, n, p: special.betainc(n, k + 1, p), sf=lambda k, n, p: special.betaincc(n, k + 1, p),
                       mean=lambda n, p: n * (1 - p) / p, var=lambda n, p: n * (1 - p) / (p * p))
nchypergeom_fisher = Discrete("nchypergeom_fisher", "M n N odds", _fisher,                                               _drawn_support, _drawn_valid, counts="M n N")
nchypergeom_wallenius = Discrete("nchypergeom_wallenius", "M n N odds", _wallenius,                                      _drawn_support, _drawn_valid, counts="M n N")
nhypergeom  = Discrete("nhypergeom", "M n r",    lambda k, M, n, r: np.where(k + r == 0, 0.0, _choose(k + r - 1, k) + _choose(M - r - k, n - k) - _choose(M, n)), lambda M, n, r: (0, n),
                       lambda M, n, r: _whole(M) & _whole(n) & _whole(r) & (n <= M) & (r <= M - n), counts="M n r")
planck      = Discrete("planck",     "lambda_",  lambda k, l: log1mexp(-l) - l * k,                                      (0, INF), logsf=lambda k, l: -l * (k + 1),
                       mean=lambda l: 1 / np.expm1(l), var=lambda l: np.exp(-l) / np.expm1(-l) ** 2, entropy=lambda l: l / np.expm1(l) - log1mexp(-l))
poisson     = Discrete("poisson",    "mu",       lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu,                       (0, INF), lambda mu: mu >= 0,
                       cdf=lambda k, mu: special.gammaincc(k + 1, mu), sf=lambda k, mu: special.gammainc(k + 1, mu), mean=lambda mu: mu, var=lambda mu: mu)
randint     = Discrete("randint",    "low high", lambda k, low, high: -np.log(high - low) + 0 * k,                       lambda low, high: (low, high - 1), lambda low, high: high > low, counts="low high")
skellam     = Discrete("skellam",    "mu1 mu2",  _skellam,                                                               (-INF, INF),
                       mean=lambda a, b: a - b, var=lambda a, b: a + b)
yulesimon   = Discrete("yulesimon",  "alpha",    lambda k, a: np.log(a) + betaln(k, a + 1),                              (1, INF), logsf=lambda k, a: np.log(k) + betaln(k, a + 1),
                       mean=lambda a: np.where(plain(a) > 1, a / np.where(plain(a) > 1, a - 1, 1.0), INF),
                       var=lambda a: np.where(plain(a) > 2, a * a / np.where(plain(a) > 2, (a - 1) ** 2 * (a - 2), 1.0), INF))
zipf        = Discrete("zipf",       "a",        lambda k, a: -a * np.log(k) - np.log(special.zeta(a, 1.0)),             (1, INF), lambda a: a > 1,
                       cdf=lambda k, a: 1 - special.zeta(a, k + 1) / special.zeta(a, 1.0), sf=lambda k, a: special.zeta(a, k + 1) / special.zeta(a, 1.0),
                       mean=lambda a: _zipf_moment(a, 1), var=lambda a: _zipf_moment(a, 2) - _zipf_moment(a, 1) ** 2,
                       entropy=lambda a: np.log(special.zeta(a, 1.0)) - a * zeta_by_exponent(a, 1.0, order_=1) / special.zeta(a, 1.0))
zipfian     = Discrete("zipfian",    "a n",      lambda k, a, n: -a * np.log(k) - np.log(_harmonic(a, n)),               lambda a, n: (1, n), lambda a, n: (a >= 0) & (n > 0) & _whole(n), counts="n")
# fmt: on

DISCRETE = {name: value for name, value in list(globals().items()) if isinstance(value, Discrete)}
"""The table by name."""

__all__ = sorted(DISCRETE)
