"""Distributions of one number, by one declaration each.

    gompertz = Continuous("gompertz", "c", lambda y, c: np.log(c) + y - c * np.expm1(y), above_zero, logsf=lambda y, c: -c * np.expm1(y))

gives the logarithm of the density of the standard form, the support, and what is known of the distribution function: one of `logsf`,
`logcdf`, `cdf` and `sf`, the `normal` or `logistic` score (the rising function of y that is normally, or logistically, distributed),
or nothing. From it follow

    pdf, logpdf                    the formula
    cdf, sf, logcdf, logsf         one from the other without loss in the tails; where nothing is given, SciPy's value and the derivatives
                                   of an integral of the density over the smaller tail (quadrature.py)
    ppf, isf, median, interval     SciPy's value, by the implicit function theorem (quantiles.py)
    rvs                            SciPy's sample, by implicit reparameterisation
    mean, var, std, stats, entropy the formula, or SciPy's value and the derivatives of an integral over the support

`loc` moves a distribution and `scale` stretches it. Everything broadcasts. Computation is in double precision; the result of single
precision is rounded to it.

Invariant: without a tracked tensor among the arguments SciPy computes. With one the value is SciPy's to rounding.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from .. import special
from ..core.storage import StandIn, as_array, never, tracing
from ..core.tensor import value_of, wrap
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, holds_tracked
from .quadrature import (
    called,
    half_line,
    interval,
    long_half_line,
    over_no_length,
    plain,
    unsure,
    with_value,
)
from .quantiles import partial, quantile

INF = np.inf
LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)

Formula = Callable[..., Any]

BELOW_AND_ABOVE = {"cdf": (0.0, 1.0), "sf": (1.0, 0.0), "logcdf": (-INF, 0.0), "logsf": (0.0, -INF)}
"""Values of the distribution functions where no more can come, and where all has come."""


def positive(*values: Any) -> Any:
    """Whether all parameters are positive."""
    valid: Any = True
    for value in values:
        valid = valid & (value > 0)
    return valid


def log1mexp(a: Any) -> Any:
    """log(1 - exp(a)) for a <= 0, precise at both ends (Maechler 2012)."""
    near = plain(a) > -np.log(2)
    return np.where(
        near, np.log(-np.expm1(np.where(near, a, -1.0))), np.log1p(-np.exp(np.where(near, -1.0, a)))
    )


class Distribution:
    """What all distributions have in common: names and ranges of the parameters, and calls of SciPy's where nothing is tracked."""

    located: ClassVar[dict[str, float]]
    methods: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, shapes: str, valid: Formula, counts: str) -> None:
        self.name = name
        self.shapes = tuple(shapes.split())
        self.valid = valid
        self.counts = frozenset(counts.split())
        """Parameters that are whole numbers, by which nothing is differentiated."""

    def __repr__(self) -> str:
        return f"tg.stats.{self.name}"

    def __call__(self, *args: Any, **named: Any) -> Frozen:
        """The distribution with its parameters, loc and scale given; its methods take only what else they need.

        >>> import tapegrad as tg
        >>> tg.grad(tg.stats.norm(1.0, scale=2.0).logpdf)(3.0)
        -0.5
        """
        self._bound(args, named)
        return Frozen(self, args, named)

    @cached_property
    def scipy(self) -> Any:
        """SciPy's distribution of this name."""
        return getattr(importlib.import_module("scipy.stats"), self.name)

    def mean(self, *args: Any, **named: Any) -> Any:
        """Expected value."""
        return self._moment("mean", args, named)

    def var(self, *args: Any, **named: Any) -> Any:
        """Variance."""
        return self._moment("var", args, named)

    def std(self, *args: Any, **named: Any) -> Any:
        """Standard deviation."""
        return self._moment("std", args, named)

    def entropy(self, *args: Any, **named: Any) -> Any:
        """Entropy in nats: that of the masses, or the differential one."""
        return self._moment("entropy", args, named)

    def median(self, *args: Any, **named: Any) -> Any:
        """The quantile of 1/2."""
        return self.ppf(0.5, *args, **named)

    def ppf(self, q: Any, *args: Any, **named: Any) -> Any:
        """The quantile of q."""
        raise NotImplementedError

    def _moment(self, what: str, args: Any, named: Any) -> Any:
        """Mean, var, std or entropy."""
        raise NotImplementedError

    def _bound(self, given: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        """The parameters, loc and (of a continuous distribution) scale, by position or by name."""
        names = (*self.shapes, *self.located)
        if len(given) > len(names) or named.keys() - set(names[len(given) :]):
            raise TypeError(
                f"{self} takes {', '.join(names)} after what the method is asked for, by position or by name, but was given "
                f"{len(given)} by position" + (f" and {', '.join(sorted(named))} by name." if named else ".")
            )  # fmt: skip
        missing = [n for n in self.shapes[len(given) :] if n not in named]
        if missing:
            raise TypeError(f"{self} needs the parameter {', '.join(missing)}.")
        values = [*given, *(named.get(n, self.located.get(n)) for n in names[len(given) :])]
        return [as_array(v) if isinstance(v, list | tuple) else v for v in values]

    def _refuse_counts(self, values: Sequence[Any], what: str) -> list[Any]:
        """The shape parameters, of which those that are counts are plain."""
        for name, value in zip(self.shapes, values, strict=True):
            if name in self.counts and holds_tracked(value):
                raise NotDifferentiable(
                    f"{self}.{what} was given a tracked tensor as {name}, but {name} is a whole number, by which there is no "
                    f"derivative. Pass {name}.detach()."
                )
        return [plain(v) if n in self.counts else v for n, v in zip(self.shapes, values, strict=True)]  # fmt: skip

    def _scipys(self, what: str, values: Sequence[Any], given: Sequence[Any] = ()) -> Any:
        """SciPy's own, of plain values; a tensor if there was one."""
        everything = [*given, *values]
        theirs = getattr(self.scipy, what)
        found = called(_together(theirs), *map(value_of, everything))
        return wrap(_rounded(found, everything)) if holds_tensor(everything) else _rounded(found, everything)  # fmt: skip


def _together(theirs: Formula) -> Formula:
    """SciPy's function of arguments of one shape: some of its loops (norminvgauss.sf) stop after the first of a longer one."""

    def scipy(*args: Any) -> Any:
        args = np.broadcast_arrays(*args) if any(map(np.ndim, args)) else args
        return theirs(*args)

    return scipy


def followed(values: Sequence[Any]) -> bool:
    """Whether derivatives may be asked, so that our formula must compute; a program that is being compiled may ask later."""
    if holds_tracked(list(values)):
        return True
    if tracing.get() is None:
        return False
    return any(isinstance(value_of(v), StandIn) for v in values)


def _single(values: Sequence[Any]) -> bool:
    dtypes = [getattr(value_of(v), "dtype", None) for v in values]
    sizes = [
        d.itemsize for d in dtypes if isinstance(d, np.dtype) and d.kind == "f"
    ]  # a type, np.float64, has a dtype, too
    return bool(sizes) and max(sizes) <= 4


def _rounded(result: Any, values: Sequence[Any]) -> Any:
    """The result in single precision if all that came with a precision was in it."""
    if not _single(values):
        return result
    if isinstance(result, tuple):
        return tuple(_rounded(r, values) for r in result)
    return result.astype(np.float32) if hasattr(result, "astype") else np.float32(result)


def where_valid(value: Any, valid: Any, given: Sequence[Any]) -> Any:
    """A value where it is one; NaN where parameters are not `valid` or NaN was given, with NaN for the derivatives by all that was given.

    Branches of a formula that no NaN reaches would leave slopes of 0 there. A quotient, since it has slopes of every order.
    """
    lost = ~valid
    for v in given:
        lost = lost | np.isnan(plain(v))
    if tracing.get() is None and not np.any(lost):
        return value
    return np.where(lost, np.nan / functools.reduce(operator.add, given), value)


_DOUBLE = np.dtype(float).str


def doubled(values: Sequence[Any]) -> list[Any]:
    """The arguments in double precision."""
    wide = []
    for v in values:
        dtype = getattr(value_of(v), "dtype", None)
        if isinstance(v, complex) or (isinstance(dtype, np.dtype) and dtype.kind == "c"):
            raise TypeError("a distribution of real numbers was given complex arguments: give their real parts.")  # fmt: skip
        if isinstance(dtype, np.dtype) and dtype.str != _DOUBLE:
            v = v.astype(float)
        elif isinstance(
            v, float | int | bool | list | tuple
        ):  # a float of Python's raises where it is divided by 0
            v = as_array(v, float)
        wide.append(v)
    return wide


class Frozen:
    """A distribution with its parameters, as SciPy's frozen distributions.

    >>> import tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.expon(scale=s).mean())(2.0)
    1.0
    """

    def __init__(self, dist: Distribution, args: Sequence[Any], named: dict[str, Any]) -> None:
        self.dist, self.args, self.kwds = dist, tuple(args), dict(named)

    def __repr__(self) -> str:
        inside = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwds.items())]
        return f"{self.dist}({', '.join(inside)})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.dist.methods]

    def __getattr__(self, name: str) -> Any:
        """The distribution's method with the frozen parameters."""
        if name.startswith("_") or name not in self.dist.methods:
            raise AttributeError(f"{self.dist} has no method {name}; it has {', '.join(self.dist.methods)}.")  # fmt: skip
        method = getattr(self.dist, name)

        def of_frozen(*args: Any, **kwargs: Any) -> Any:
            if name == "rvs":
                given = dict(zip(("size", "random_state"), args, strict=False))
                return method(*self.args, **self.kwds, **given, **kwargs)
            if name == "stats":
                return method(*self.args, **self.kwds, moments=args[0] if args else kwargs.get("moments", "mv"))  # fmt: skip
            if name == "interval" and not args:
                args = (kwargs.pop("confidence"),)
            return method(*args, *self.args, **kwargs, **self.kwds)

        of_frozen.__doc__ = method.__doc__
        return of_frozen


# ---------------------------------------------------------------------------------------------------- continuous


class Continuous(Distribution):
    """A distribution with a density, by its standard form; `loc` moves it and `scale` stretches it.

    >>> import tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.norm.logpdf(1.0, 0.0, s))(2.0)
    -0.375
    """

    located: ClassVar[dict[str, float]] = {"loc": 0.0, "scale": 1.0}
    methods: ClassVar[tuple[str, ...]] = (
        "pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "rvs", "mean", "median", "var", "std", "entropy", "stats",
        "interval", "support",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        shapes: str,
        logpdf: Formula | None,
        support: tuple[float, float] | Formula = (-INF, INF),
        valid: Formula = positive,
        *,
        powers: Formula | None = None,
        pdf: Formula | None = None,
        counts: str = "",
        cdf: Formula | None = None,
        sf: Formula | None = None,
        logcdf: Formula | None = None,
        logsf: Formula | None = None,
        normal: Formula | None = None,
        logistic: Formula | None = None,
        mean: Formula | None = None,
        var: Formula | None = None,
        entropy: Formula | None = None,
        kinks: Formula | None = None,
        period: float | None = None,
        vanishes: Formula | None = None,
        open: str | Formula = "",
        spacing: Formula | None = None,
    ) -> None:
        """Declare a distribution by the formula of its log density; what is not given is integrated or solved for."""
        super().__init__(name, shapes, valid, counts)
        self._open = open
        """Ends ("low", "both"; a formula: of which parameters the low one) of the support that lie outside of it: the density is 0 there,
        with all its slopes or by SciPy's word."""
        self._powers: Any = powers
        """Exponents of the distances to the lower end of the support (0 or -1) and to the upper one (0 or 1), or None: the density is
        the product of these powers and exp(logpdf). The exponential of a logarithm that is -inf has 0 times infinity for a slope."""
        self._pdf: Any = pdf
        """The density; if `logpdf` is given, too, at ends of the support where that is infinite."""
        self._rest: Any = logpdf
        self.spacing = spacing
        """1 / density at y, with the probabilities below and above: at an end a power of one of them, of which y is a power, too."""
        self._endless = not callable(support) and bool(np.all(np.isinf(support)))
        self._support = support if callable(support) else (lambda *_: support)
        self._moments = {"mean": mean, "var": var, "entropy": entropy}
        self._kinks = kinks or (lambda *_: ())
        """Places inside the support where the density is not smooth: integrals over the support are taken in pieces."""
        self._vanishes = vanishes
        """Where the density is surely 0 in double precision, and its logarithm costs much."""
        self.period = period
        """Of a distribution on the circle that SciPy continues along the line: its support is one turn around 0."""
        known = logpdf and not open and (powers or (pdf and not callable(support)))
        self._known = bool(known)
        """Whether the formula for logpdf has its slopes at all ends."""
        direct = {"logsf": logsf, "logcdf": None if callable(support) else logcdf}
        self._logarithms = {n for n, formula in direct.items() if formula}
        """Logarithms whose formulas have their slopes at the end where they are 0."""
        if normal:
            cdf, sf = (lambda *a: special.ndtr(normal(*a))), (lambda *a: special.ndtr(-normal(*a)))
            logcdf, logsf = (lambda *a: special.log_ndtr(normal(*a))), (lambda *a: special.log_ndtr(-normal(*a)))  # fmt: skip
        if logistic:
            cdf, sf = (lambda *a: special.expit(logistic(*a))), (lambda *a: special.expit(-logistic(*a)))  # fmt: skip
            logcdf = lambda *a: special.log_expit(logistic(*a))  # noqa: E731
            logsf = logsf or (lambda *a: special.log_expit(-logistic(*a)))
        if (tail := logsf) and not sf:
            sf = lambda *a: np.exp(tail(*a))  # noqa: E731
            cdf = cdf or (lambda *a: -np.expm1(tail(*a)))
        if (head := logcdf) and not cdf:
            cdf = lambda *a: np.exp(head(*a))  # noqa: E731
            sf = sf or (lambda *a: -np.expm1(head(*a)))
        if tail and not logcdf:
            logcdf = lambda *a: log1mexp(tail(*a))  # noqa: E731
        if head and not logsf:
            logsf = lambda *a: log1mexp(head(*a))  # noqa: E731
        cdf = cdf or (lambda *a: self._integrated("cdf", *a))
        sf = sf or (lambda *a: self._integrated("sf", *a))
        self.formulas: dict[str, Formula] = {
            "logpdf": self._log_density, "cdf": cdf, "sf": sf,
            "logcdf": logcdf or (lambda *a: _log(cdf(*a), sf(*a))),
            "logsf": logsf or (lambda *a: _log(sf(*a), cdf(*a))),
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------- standard form

    def standard(self, what: str, y: Any, *shapes: Any, scale: Any = None) -> Any:
        """pdf (over `scale`), logpdf or a distribution function of the standard form, recorded; what is outside the support is constant."""
        at = plain(y)
        low, high = self._support(*map(plain, shapes))
        if self.period and what in ("logcdf", "logsf"):  # of turns more than one
            return np.log(self.standard(what[3:], y, *shapes))
        turns: Any = 0.0
        if self.period:
            turns = np.where(np.isfinite(at), np.round(at / self.period), 0.0)
            y = y - self.period * turns
            at = plain(y)
        above_low = at > low if self._open else at >= low
        if callable(self._open):
            above_low = np.where(self._open(*map(plain, shapes)), at > low, at >= low)
        below_high = at < high if self._open == "both" else at <= high
        within = above_low & below_high & ~np.isinf(at) | np.isnan(at)
        inside = _middle(low, high)
        if what == "pdf" and self._vanishes:
            within = within & ~self._vanishes(at, *map(plain, shapes))
            inside = 1.0 + plain(shapes[0]) + plain(shapes[-1])
        # A point outside is computed at a place inside, so that no infinite slope comes from there.
        place = np.where(within, y, inside)
        if what == "pdf":
            value = self._density(place, shapes, scale)
        else:
            value = self.formulas[what](place, *shapes)
        value = np.where(np.isnan(at), np.nan, value)
        if what == "pdf":
            return np.where(within, value, 0.0)
        if what == "logpdf":
            value = np.where(within, value, -INF)
            return value if self._known else self._fallen(what, value, within, y, *shapes)
        below, above = BELOW_AND_ABOVE[what]
        if self.period and what in ("cdf", "sf"):
            value = value + (turns if what == "cdf" else -turns)
        value = np.where(within, value, np.where(at > low, above, below))
        if what in ("logcdf", "logsf"):
            value = self._fallen(what, value, within, y, *shapes)
        return self._masses(what, value, y, *shapes)

    def _distances(self, y: Any, *shapes: Any) -> Any:
        """Of each power its exponent, u and c: u + c is the distance of y from the end of the support, and c is 0 or 1."""
        if self._powers:
            for exponent, end, u in zip(
                self._powers(*shapes), self._support(), (y, 0.0 - y), strict=True
            ):
                if exponent is not None:
                    yield exponent, u, abs(end)

    def _log_density(self, y: Any, *shapes: Any) -> Any:
        """Logarithm of the density inside the support and at its ends."""
        if not self._rest:
            return np.log(self._pdf(y, *shapes))
        total = self._rest(y, *shapes)
        for exponent, u, c in self._distances(y, *shapes):
            total = total + _log_of_power(exponent, u, c)
        return total

    def _density(self, y: Any, shapes: Sequence[Any], scale: Any) -> Any:
        """The density over the scale inside the support, and at its ends with the slopes of the inner side."""
        if not self._rest:
            value = self._pdf(y, *shapes)
            return value if scale is None else value / scale
        ends = self._at_end(y, *shapes)
        if ends is None:
            return _exp_over(self._log_density(y, *shapes), scale)
        if not self._powers:
            return self._with_ends(ends, y, shapes, scale)
        total, product, low_or_high = self._rest(y, *shapes), 1.0, ends[0] | ends[1]
        for exponent, u, c in self._distances(y, *shapes):
            end = plain(u) == -c
            total = total + _log_of_power(exponent, np.where(end, 1.0 - c, u), c)
            product = product * np.where(end, u + c if c else u, 1.0) ** exponent
        # No infinity beside a power that is 0.
        return product * _exp_over(np.where(low_or_high, np.minimum(total, 700.0), total), scale)

    def _at_end(self, y: Any, *shapes: Any) -> tuple[Any, Any] | None:
        """Where y is the lower end of the support, and where the upper one; None where it is none anywhere."""
        if self._endless or self.period or not followed([y, *shapes]):
            return None
        at = plain(y)
        low, high = self._support(*map(plain, shapes))
        first, last = (at == low) & np.isfinite(low), (at == high) & np.isfinite(high)
        if never(first | last, guard=True):
            return None
        return first, last

    def _limits(self, ends: tuple[Any, Any], y: Any, *shapes: Any) -> list[Any]:
        """The ends of the support where y lies at them, and y itself elsewhere."""
        return [
            np.where(end, limit, plain(y))
            for end, limit in zip(ends, self._support(*shapes), strict=True)
        ]

    def _fallen(self, what: str, value: Any, within: Any, y: Any, *shapes: Any) -> Any:
        """A logarithm, which at an end of the support may be -inf or no number: its slope there is infinite by y, and NaN by parameters.

        Declared powers know the slopes of logpdf by parameters as well.
        """
        ends = self._at_end(y, *shapes)
        if ends is None:
            return value
        first, last = (
            e & (what != other) for e, other in zip(ends, ("logsf", "logcdf"), strict=True)
        )
        at = plain(value)
        lost = (first | last) & (np.isneginf(at) | np.isnan(at))
        if what == "logpdf" and self._rest and (self._powers or self._pdf):
            lost = lost & (~within | np.isnan(at))
        low, high = self._limits(ends, y, *shapes)
        distance = np.where(lost, np.where(first, y - low, high - y), 1.0)
        fallen = np.log(distance * np.where(np.isnan(at), np.nan, 1.0))
        return np.where(lost, fallen + unsure(*shapes) if shapes else fallen, value)

    def _with_ends(self, ends: tuple[Any, Any], y: Any, shapes: Sequence[Any], scale: Any) -> Any:
        """The exponential of the logarithm; at an end where that is infinite, the formula for the density, or NaN for the slopes."""
        inside = _middle(*self._support(*map(plain, shapes)))
        log = self._log_density(plain(y), *map(plain, shapes))
        lost = (ends[0] | ends[1]) & ~np.isfinite(log)
        if self._pdf:
            at_end = self._pdf(np.where(lost, y, inside), *shapes)
        else:
            at_end = np.exp(log) + unsure(y, *shapes)
        usual = _exp_over(self._log_density(np.where(lost, inside, y), *shapes), scale)
        return np.where(lost, at_end if scale is None else at_end / scale, usual)

    def _masses(self, what: str, value: Any, y: Any, *shapes: Any) -> Any:
        """A distribution function with its derivatives, up to the fourth, at the ends of the support: an integral over no length."""
        ends = None if what in self._logarithms else self._at_end(y, *shapes)
        if ends is None:
            return value
        first, last = ends
        low, high = self._limits(ends, y, *shapes)
        middle = _middle(*self._support(*map(plain, shapes)))

        def density(inside: Any) -> Any:
            place = np.where(first, low + inside, high - inside)
            return self.standard("pdf", np.where(first | last, place, middle), *shapes)

        mass = over_no_length(density, np.where(first, y - low, high - y), [y, *shapes])
        small, large = (first, last) if what in ("cdf", "logcdf") else (last, first)
        if what in ("cdf", "sf"):
            return np.where(small, mass, np.where(large, 1 - mass, value))
        return np.where(large, np.log1p(-np.where(large, mass, 0.0)), value)

    def _integrated(self, what: str, y: Any, *shapes: Any) -> Any:
        """The cdf or sf: SciPy's value, and the derivatives of the density's integral over the smaller tail."""
        at, parameters = plain(y), list(map(plain, shapes))
        value = called(_together(getattr(self.scipy, what)), at, *parameters)
        upper = value > 0.5 if what == "cdf" else value < 0.5
        low, high = self._support(*parameters)  # numbers: where they move there is a formula
        ndim = max(map(np.ndim, (value, *shapes)))
        t, w = half_line(ndim)
        p, v = interval(ndim)
        length = self._length(at, *parameters)
        # Nodes between the end and y, or from y outwards where there is no end.
        if np.isinf(low):
            lower = np.sum(w * length * self.standard("pdf", y - t * length, *shapes), axis=0)
        else:
            lower = np.sum(
                v * (y - low) * self.standard("pdf", low + (y - low) * p, *shapes), axis=0
            )
        if np.isinf(high):
            rest = np.sum(w * length * self.standard("pdf", y + t * length, *shapes), axis=0)
        else:
            # The last nodes round to the end itself, where the logarithm of a density that vanishes has an infinite slope.
            nodes = high - (high - y) * p
            before = plain(nodes) < high
            density = self.standard("pdf", np.where(before, nodes, y), *shapes)
            rest = np.sum(np.where(before, v * (high - y) * density, 0.0), axis=0)
            upper = upper & np.isfinite(self.standard("pdf", high, *parameters))
        if what == "cdf":
            total, offset = np.where(upper, -rest, lower), np.where(upper, 1.0, 0.0)
        else:
            total, offset = np.where(upper, rest, -lower), np.where(upper, 0.0, 1.0)
        # SciPy's integrals are good to 1e-8 absolutely: in a tail ours has the digits. Where the two disagree, SciPy is believed.
        own = offset + plain(total)
        return with_value(np.where(np.abs(own - value) < 1e-6, own, value), total)

    def _length(self, at: Any, *parameters: Any) -> Any:
        """Over what distance the density changes near a point: of plain arrays."""

        def length(at: Any, *parameters: Any) -> Any:
            with np.errstate(all="ignore"):
                logpdf = lambda y, *a: self.standard("logpdf", y, *a)  # noqa: E731
                first = lambda y, *a: partial(logpdf, 0, (y, *a))  # noqa: E731
                slope, curvature = first(at, *parameters), partial(first, 0, (at, *parameters))
                found = 1 / (np.abs(slope) + np.sqrt(np.abs(curvature)))
            return np.where(np.isfinite(found) & (found > 0), found, 1.0)

        return called(length, at, *parameters)

    def _over_support(self, integrand: Formula, *shapes: Any) -> Any:
        """Integral of integrand(t, *shapes) times the density over the support, whose ends may move."""

        def quartiles(*a: Any) -> Any:
            return np.stack(
                np.broadcast_arrays(*(self.scipy.ppf(q, *a) for q in (0.25, 0.5, 0.75)))
            )

        quarter, half, rest = called(quartiles, *map(plain, shapes))
        low, high = self._support(*shapes)
        # Nodes gather at the ends of a piece: where the density has its bulk, if it has no kinks.
        ends = [low, *(self._kinks(*shapes) or (half,)), high]
        return sum(
            self._over_piece(integrand, left, right, rest - quarter, half, shapes)
            for left, right in pairwise(ends)
        )

    def _over_piece(
        self,
        integrand: Formula,
        low: Any,
        high: Any,
        spread: Any,
        inside: Any,
        shapes: Sequence[Any],
    ) -> Any:
        """The same between two ends, of which one is finite; `spread` is a plain length over which the density falls."""
        ndim = max(map(np.ndim, (spread, *shapes)))
        open_low, open_high = np.isinf(plain(low)), np.isinf(plain(high))
        p, v = interval(ndim)
        t, w = long_half_line(ndim)
        a, b = np.where(open_low, 0.0, low), np.where(open_high, 0.0, high)
        width = np.where(open_low | open_high, 1.0, b - a)
        between = np.where(p < 0.5, a + width * p, b - width * (1 - p))
        nodes = np.where(open_high, a + spread * t, np.where(open_low, b - spread * t, between))
        weights = np.where(open_high | open_low, spread * w, width * v)
        density = self.standard("pdf", nodes, *shapes)
        there = (plain(density) > 0) & np.isfinite(plain(density))
        # A node that rounding has put on an end weighs nothing, and the logarithm of the density may be no number there.
        there = there & (plain(nodes) != plain(low)) & (plain(nodes) != plain(high))
        terms = weights * integrand(np.where(there, nodes, inside), *shapes) * density
        return np.sum(np.where(there, terms, 0.0), axis=0)

    # -------------------------------------------------------------------------------------------- what is public

    def _parts(self, what: str, args: Any, named: Any, *given: Any) -> tuple[list[Any], list[Any]]:
        """What is asked for, and the parameters with loc and scale."""
        values = self._bound(args, named)
        values = [*self._refuse_counts(values[: len(self.shapes)], what), *values[len(self.shapes) :]]  # fmt: skip
        return [as_array(v) if isinstance(v, list | tuple) else v for v in given], values

    def _valid(self, shapes: Sequence[Any], scale: Any) -> Any:
        """Whether all parameters are in range."""
        return as_array(self.valid(*map(plain, shapes)) & (plain(scale) > 0))

    def _function(self, what: str, x: Any, args: Any, named: Any) -> Any:
        """A density or a distribution function at x, of SciPy where nothing is followed, else by its formula."""
        given, values = self._parts(what, args, named, x)
        if not followed([*given, *values]):
            return self._scipys(what, values, given)
        x, *shapes, loc, scale = doubled([*given, *values])
        with np.errstate(all="ignore"):
            y = (x - loc) / scale
            value = self.standard(what, y, *shapes, scale=scale)
            if what == "logpdf":
                value = value - np.log(scale)
            value = where_valid(value, self._valid(shapes, scale), [x, *shapes, loc, scale])
            return _rounded(value, [*given, *values])

    def logpdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the density at x; -inf outside the support."""
        return self._function("logpdf", x, args, named)

    def pdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Density at x; 0 outside the support."""
        return self._function("pdf", x, args, named)

    def cdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Probability of a value of at most x."""
        return self._function("cdf", x, args, named)

    def sf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Probability of a value above x; precise in the tail, where 1 - cdf is not."""
        return self._function("sf", x, args, named)

    def logcdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the cdf. Without a formula of its own, its second derivatives in a far tail are differences of large terms."""
        return self._function("logcdf", x, args, named)

    def logsf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the sf; its second derivatives are as those of the logcdf."""
        return self._function("logsf", x, args, named)

    def _inverse(self, what: str, q: Any, args: Any, named: Any) -> Any:
        given, values = self._parts(what, args, named, q)
        if not followed([*given, *values]):
            return self._scipys(what, values, given)
        q, *shapes, loc, scale = doubled([*given, *values])
        with np.errstate(all="ignore"):
            y = quantile([q, *shapes], law=self, tail=what)
            valid = self._valid(shapes, scale)
            return _rounded(
                where_valid(loc + scale * y, valid, [q, *shapes, loc, scale]), [*given, *values]
            )

    def ppf(self, q: Any, *args: Any, **named: Any) -> Any:
        """The x below which a value lies with probability q: the inverse of the cdf."""
        return self._inverse("ppf", q, args, named)

    def isf(self, q: Any, *args: Any, **named: Any) -> Any:
        """The x above which a value lies with probability q: the inverse of the sf."""
        return self._inverse("isf", q, args, named)

    def interval(self, confidence: Any, *args: Any, **named: Any) -> Any:
        """Ends of the interval around the median that holds a value with this probability, equally likely to miss on each side."""
        rest = 0.5 * (1.0 - as_array(confidence) if isinstance(confidence, list | tuple) else 1.0 - confidence)  # fmt: skip
        return self.ppf(rest, *args, **named), self.isf(rest, *args, **named)

    def support(self, *args: Any, **named: Any) -> Any:
        """Ends of the support, which are constants where they do not depend on a parameter."""
        _, values = self._parts("support", args, named)
        if not followed(values):
            return self._scipys("support", values)
        *shapes, loc, scale = doubled(values)
        return tuple(loc + scale * end for end in self._support(*shapes))

    def rvs(self, *args: Any, size: Any = None, random_state: Any = None, **named: Any) -> Any:
        """A sample, differentiable by the parameters, loc and scale: by how it moves while its probability stays.

        `size` and `random_state` are SciPy's; without a size it is one sample for each parameter. The derivative of
        loc + scale * z is that of location and scale; that of z by a shape is -F_θ/f (implicit reparameterisation), which costs
        one distribution function and its slope.

        >>> import numpy as np, tapegrad as tg
        >>> draw = lambda s: np.mean(tg.stats.norm.rvs(scale=s, size=1000, random_state=1) ** 2)
        >>> bool(abs(tg.grad(draw)(3.0) - 6.0) < 0.5)
        True
        """
        _, values = self._parts("rvs", args, named)
        if not followed(values):
            found = self.scipy.rvs(*map(value_of, values), size=size, random_state=random_state)
            return wrap(found) if holds_tensor(values) else found
        *shapes, loc, scale = doubled(values)

        def standard(*a: Any) -> Any:
            wanted = np.broadcast_shapes(*map(np.shape, a)) if size is None else size
            return np.asarray(
                self.scipy.rvs(*a[:-2], size=wanted, random_state=random_state), float
            )

        z = called(standard, *map(plain, (*shapes, loc, scale)))
        with np.errstate(all="ignore"):
            y = quantile([z, *shapes], law=self, tail="sample") if shapes else z
            return _rounded(loc + scale * y, values)

    # ------------------------------------------------------------------------------------------------- moments

    def _standard_moment(self, what: str, shapes: Sequence[Any]) -> Any:
        """Mean, variance or entropy of the standard form."""
        if not shapes:
            return float(getattr(self.scipy, what)())
        formula = self._moments[what]
        if formula is not None:
            return formula(*shapes)
        value = called(lambda *a: np.asarray(_moment_of(self.scipy, what, a), float), *map(plain, shapes))  # fmt: skip
        if not followed(shapes):
            return value
        if what == "mean":
            total = self._over_support(lambda t, *a: t, *shapes)
        elif what == "entropy":
            total = self._over_support(lambda t, *a: -self.standard("logpdf", t, *a), *shapes)
        else:
            total = self._central(int({"var": 2}.get(what, what)), shapes)
        return with_value(value, total)

    def _central(self, order: int, shapes: Sequence[Any]) -> Any:
        mean = self._standard_moment("mean", shapes)
        return self._over_support(lambda t, *a: (t - mean) ** order, *shapes)

    def _moment(self, what: str, args: Any, named: Any) -> Any:
        """Mean, entropy, variance or standard deviation, of SciPy where nothing is followed."""
        _, values = self._parts(what, args, named)
        if not followed(values):
            return self._scipys(what, values)
        *shapes, loc, scale = doubled(values)
        with np.errstate(all="ignore"):
            if what == "mean":
                found = loc + scale * self._standard_moment(what, shapes)
            elif what == "entropy":
                found = self._standard_moment(what, shapes) + np.log(scale)
            else:
                found = scale * scale * self._standard_moment("var", shapes)
                found = np.sqrt(found) if what == "std" else found
            parameters = [*shapes, scale, *([loc] if what == "mean" else [])]
            return _rounded(where_valid(found, self._valid(shapes, scale), parameters), values)

    def stats(self, *args: Any, moments: str = "mv", **named: Any) -> Any:
        """Mean, variance, skewness and excess kurtosis, as `moments` names them by m, v, s and k."""
        _, values = self._parts("stats", args, named)
        if not followed(values):
            found = self.scipy.stats(*map(value_of, values), moments=moments)
            return wrapped_all(found) if holds_tensor(values) else found
        *shapes, _, scale = doubled(values)
        scale = plain(scale)  # neither skewness nor kurtosis moves with it
        theirs = {"s": 3, "k": 4}
        results: list[Any] = []
        for letter in moments:
            if letter in "mv":
                results.append((self.mean if letter == "m" else self.var)(*args, **named))
                continue
            value = called(lambda *a, m=letter: np.asarray(self.scipy.stats(*a, moments=m), float), *map(plain, shapes))  # fmt: skip
            if followed(shapes):
                power = theirs[letter]
                scaled = self._central(power, shapes) / self._standard_moment("var", shapes) ** (0.5 * power)  # fmt: skip
                value = with_value(value, scaled)
            results.append(where_valid(value, self._valid(shapes, scale), [*shapes, scale]))
        return results[0] if len(results) == 1 else tuple(results)


def _moment_of(theirs: Any, what: str, shapes: Sequence[Any]) -> Any:
    if what == "entropy":
        return theirs.entropy(*shapes)
    return theirs.stats(*shapes, moments=what[0])


def wrapped_all(found: Any) -> Any:
    return tuple(map(wrap, found)) if isinstance(found, tuple) else wrap(found)


def _middle(low: Any, high: Any) -> Any:
    """A place inside the support."""
    a, b = np.isinf(low), np.isinf(high)
    left, right = np.where(a, 0.0, low), np.where(b, 0.0, high)
    return np.where(a & b, 0.0, np.where(a, right - 1.0, np.where(b, left + 1.0, 0.5 * (left + right))))  # fmt: skip


def _log_of_power(exponent: Any, u: Any, c: float) -> Any:
    """exponent * log(u + c), where c is 0 or 1; an exponent that is no literal may be 0."""
    if type(exponent) is float:
        return exponent * (np.log1p(u) if c else np.log(u))
    return (special.xlog1py if c else special.xlogy)(exponent, u)


def _exp_over(x: Any, scale: Any) -> Any:
    """exp(x) / scale, divided in the exponent, where neither leaves the range of numbers."""
    return np.exp(x if scale is None else x - np.log(scale))


def _log(p: Any, rest: Any) -> Any:
    """Logarithm of a probability, by way of the rest where that is the smaller; -inf, without a warning, where p is 0."""
    with np.errstate(divide="ignore"):
        small = plain(p) < 0.5
        return np.where(
            small, np.log(np.where(small, p, 1.0)), np.log1p(-np.where(small, 0.0, rest))
        )
