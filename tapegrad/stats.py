"""`tg.stats`: densities and distribution functions that are differentiable, under SciPy's names: `tg.stats.norm.logpdf(x, loc, scale)`.

`scipy.stats` itself computes in loops of its own, which a tensor cannot go through. Here a distribution is its standard form (a
logarithm of the density, and where SciPy has functions for them the distribution functions), written in ops that have rules; `loc`
and `scale` are the same for all. Everything broadcasts, and is differentiated by `x`, by `loc` and `scale`, and by the
parameters for which the functions in use have a rule.

Invariant: as in SciPy, a density is 0 outside the support (and its gradient too), and NaN where a parameter is out of its range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from . import linalg, special
from .dual import tangent_of
from .errors import NotDifferentiable
from .storage import as_array
from .tensor import Tensor

__all__ = [
    "bernoulli", "beta", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "laplace", "logistic", "lognorm",
    "multivariate_normal", "norm", "poisson", "t", "uniform",
]  # fmt: skip

_LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)

Formula = Callable[..., Any]


def _plain(value: Any) -> Any:
    return value._value if isinstance(value, Tensor) else as_array(value)


class _Distribution:
    """What all distributions have in common: names of the parameters, and the mask of where they are in range."""

    parameters: tuple[str, ...]
    valid: Formula

    def _bound(self, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The parameters, loc and (of a continuous distribution) scale, by position or by name."""
        names = (*self.parameters, *self.located)
        if len(given) > len(names) or named.keys() - set(names[len(given) :]):
            raise TypeError(
                f"{self} takes {', '.join(names)} after x, by position or by name, but was given {len(given)} by position"
                + (f" and {', '.join(sorted(named))} by name." if named else ".")
            )
        missing = [n for n in self.parameters[len(given) :] if n not in named]
        if missing:
            raise TypeError(f"{self} needs the parameter {', '.join(missing)}.")
        values = [*given, *(named.get(n, self.located.get(n)) for n in names[len(given) :])]
        return [as_array(v) if isinstance(v, list | tuple) else v for v in values]

    located: ClassVar[dict[str, float]]


class Continuous(_Distribution):
    """A distribution with a density, by its standard form; `loc` moves it and `scale` stretches it.

    >>> import tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.norm.logpdf(1.0, 0.0, s))(2.0)
    -0.375
    """

    located: ClassVar[dict[str, float]] = {"loc": 0.0, "scale": 1.0}

    def __init__(
        self,
        name: str,
        parameters: str,
        log_density: Formula,
        support: tuple[float, float],
        inside: float,
        valid: Formula = lambda: True,
        cdf: Formula | None = None,
        sf: Formula | None = None,
        logcdf: Formula | None = None,
        logsf: Formula | None = None,
    ) -> None:
        self.name = name
        self.parameters = tuple(parameters.split())
        self.log_density = log_density
        self.support = support
        self.inside = inside
        self.valid = valid
        self._cdf, self._sf, self._logcdf, self._logsf = cdf, sf, logcdf, logsf

    def __repr__(self) -> str:
        return f"tg.stats.{self.name}"

    def _standard(self, x: Any, args: Any, named: Any) -> tuple[Any, list[Any], Any, Any]:
        """The standardised variable, the parameters, the scale, and 1 where all are in range, else NaN."""
        x = as_array(x) if isinstance(x, list | tuple) else x
        *shape, loc, scale = self._bound(args, named)
        valid = self.valid(*map(_plain, shape)) & (_plain(scale) > 0)
        return (x - loc) / scale, shape, scale, np.where(valid, 1.0, np.nan)

    def logpdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the density at x; -inf outside the support."""
        y, shape, scale, factor = self._standard(x, args, named)
        low, high = self.support
        within = (_plain(y) >= low) & (_plain(y) <= high) | np.isnan(_plain(y))
        # What is outside is computed at a place inside, so that no infinite slope comes from there.
        value = self.log_density(np.where(within, y, self.inside), *shape) - np.log(scale)
        return np.where(within, value, -np.inf) * factor

    def pdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Density at x; 0 outside the support."""
        return np.exp(self.logpdf(x, *args, **named))

    def _function(self, function: Formula | None, what: str, x: Any, args: Any, named: Any) -> Any:
        if function is None:
            raise NotImplementedError(
                f"{what} of {self.name} was asked, but SciPy has no function for it whose derivative is known. Use its logpdf or "
                "pdf, or scipy.stats on plain arrays."
            )
        y, shape, _, factor = self._standard(x, args, named)
        low, high = self.support
        value = function(np.clip(y, low, high) if low > -np.inf else y, *shape)
        return value * factor

    def cdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Probability of a value of at most x."""
        return self._function(self._cdf, "cdf", x, args, named)

    def sf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Probability of a value above x; precise in the tail, where 1 - cdf is not."""
        return self._function(self._sf, "sf", x, args, named)

    def logcdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the cdf. Without a formula of its own, its second derivatives in a far tail are differences of large terms."""
        if self._logcdf is not None:
            return self._function(self._logcdf, "logcdf", x, args, named)
        return _log(self.cdf(x, *args, **named), self.sf(x, *args, **named))

    def logsf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the sf; its second derivatives are as those of the logcdf."""
        if self._logsf is not None:
            return self._function(self._logsf, "logsf", x, args, named)
        return _log(self.sf(x, *args, **named), self.cdf(x, *args, **named))


class Discrete(_Distribution):
    """A distribution on the whole numbers from 0 on, moved by `loc`.

    >>> import tapegrad as tg
    >>> tg.grad(lambda mu: tg.stats.poisson.logpmf(3, mu))(2.0)
    0.5
    """

    located: ClassVar[dict[str, float]] = {"loc": 0.0}

    def __init__(
        self, name: str, parameters: str, log_mass: Formula, highest: Formula, valid: Formula,
        cdf: Formula | None = None, sf: Formula | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.parameters = tuple(parameters.split())
        self.log_mass = log_mass
        self.highest = highest
        self.valid = valid
        self._cdf, self._sf = cdf, sf

    def __repr__(self) -> str:
        return f"tg.stats.{self.name}"

    def _standard(self, k: Any, args: Any, named: Any) -> tuple[Any, list[Any], Any]:
        *shape, loc = self._bound(args, named)
        k = np.asarray(_plain(k), float) - _plain(loc)  # counts, by which nothing is differentiated
        return k, shape, np.where(self.valid(*map(_plain, shape)), 1.0, np.nan)

    def logpmf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of the probability of k; -inf where k cannot occur."""
        k, shape, factor = self._standard(k, args, named)
        within = (k >= 0) & (k <= self.highest(*map(_plain, shape))) & (k == np.floor(k))
        value = self.log_mass(np.where(within, k, 0.0), *shape)
        return np.where(within, value, -np.inf) * factor

    def pmf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of k."""
        return np.exp(self.logpmf(k, *args, **named))

    def _function(self, function: Formula | None, what: str, below: float, k: Any, args: Any, named: Any) -> Any:  # fmt: skip
        if function is None:
            raise NotImplementedError(
                f"{what} of {self.name} was asked, but no rule is written for it: add up its pmf."
            )
        k, shape, factor = self._standard(k, args, named)
        return np.where(k >= 0, function(np.maximum(np.floor(k), 0.0), *shape), below) * factor

    def cdf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of at most k."""
        return self._function(self._cdf, "cdf", 0.0, k, args, named)

    def sf(self, k: Any, *args: Any, **named: Any) -> Any:
        """Probability of more than k."""
        return self._function(self._sf, "sf", 1.0, k, args, named)


def _log(p: Any, rest: Any) -> Any:
    """Logarithm of a probability, by way of the rest where that is the smaller; -inf, without a warning, where p is 0."""
    with np.errstate(divide="ignore"):
        return np.where(_plain(p) < 0.5, np.log(p), np.log1p(-rest))


def _log_logistic_density(y: Any) -> Any:
    """-2 log(2 cosh(y / 2)): in the middle as it says, since there the slopes of the two parts it has in the tails cancel."""
    near = np.abs(_plain(y)) < 1
    middle = -2 * np.log(2 * np.cosh(0.5 * np.where(near, y, 0.0)))
    return np.where(near, middle, special.log_expit(y) + special.log_expit(-y))


def _log_laplace(y: Any) -> Any:
    """Logarithm of Laplace's cdf, whose left tail is an exponential."""
    left = _plain(y) < 0
    return np.where(left, y - np.log(2), np.log1p(-0.5 * np.exp(-np.where(left, 0.0, y))))


def _log_of_one_and_square(y: Any) -> Any:
    """log(1 + y²); far out by 1 / y, since the square of a square leaves the range of numbers."""
    far = np.abs(_plain(y)) > 1
    large, small = np.where(far, y, 1.0), np.where(far, 0.0, y)
    return np.where(
        far, 2 * np.log(np.abs(large)) + np.log1p(1 / large / large), np.log1p(small * small)
    )


def _positive(*values: Any) -> Any:
    valid: Any = True
    for value in values:
        valid = valid & (value > 0)
    return valid


INF = np.inf
_SMALLEST = np.nextafter(0, 1)

norm = Continuous(
    "norm", "", lambda y: -0.5 * y * y - _LOG_ROOT_TAU, (-INF, INF), 0.0,
    cdf=lambda y: special.ndtr(y), sf=lambda y: special.ndtr(-y),
    logcdf=lambda y: special.log_ndtr(y), logsf=lambda y: special.log_ndtr(-y),
)  # fmt: skip
t = Continuous(
    "t", "df",
    lambda y, df: -0.5 * np.log(df) - special.betaln(0.5, df / 2) - (df + 1) / 2 * np.log1p(y * y / df),
    (-INF, INF), 0.0, _positive, cdf=lambda y, df: special.stdtr(df, y), sf=lambda y, df: special.stdtr(df, -y),
)  # fmt: skip
gamma = Continuous(
    "gamma", "a", lambda y, a: special.xlogy(a - 1, y) - y - special.gammaln(a), (0.0, INF), 1.0, _positive,
    cdf=lambda y, a: special.gammainc(a, y), sf=lambda y, a: special.gammaincc(a, y),
)  # fmt: skip
chi2 = Continuous(
    "chi2", "df",
    lambda y, df: special.xlogy(df / 2 - 1, y) - y / 2 - special.gammaln(df / 2) - np.log(2) * df / 2,
    (0.0, INF), 1.0, _positive, cdf=lambda y, df: special.chdtr(df, y), sf=lambda y, df: special.chdtrc(df, y),
)  # fmt: skip
beta = Continuous(
    "beta", "a b", lambda y, a, b: special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y) - special.betaln(a, b),
    (0.0, 1.0), 0.5, _positive,
    cdf=lambda y, a, b: special.betainc(a, b, y), sf=lambda y, a, b: special.betaincc(a, b, y),
)  # fmt: skip
expon = Continuous(
    "expon", "", lambda y: -y, (0.0, INF), 1.0,
    cdf=lambda y: -np.expm1(-y), sf=lambda y: np.exp(-y), logsf=lambda y: -y,
)  # fmt: skip
uniform = Continuous(
    "uniform", "", lambda y: 0.0 * y, (0.0, 1.0), 0.5, cdf=lambda y: y, sf=lambda y: 1 - y
)
laplace = Continuous(
    "laplace", "", lambda y: -np.abs(y) - np.log(2), (-INF, INF), 0.0,
    cdf=lambda y: np.where(_plain(y) < 0, 0.5 * np.exp(-np.abs(y)), 1 - 0.5 * np.exp(-np.abs(y))),
    sf=lambda y: np.where(_plain(y) > 0, 0.5 * np.exp(-np.abs(y)), 1 - 0.5 * np.exp(-np.abs(y))),
    logcdf=lambda y: _log_laplace(y), logsf=lambda y: _log_laplace(-y),
)  # fmt: skip
logistic = Continuous(
    "logistic", "", lambda y: _log_logistic_density(y), (-INF, INF), 0.0,
    cdf=lambda y: special.expit(y), sf=lambda y: special.expit(-y),
    logcdf=lambda y: special.log_expit(y), logsf=lambda y: special.log_expit(-y),
)  # fmt: skip
cauchy = Continuous(
    "cauchy", "", lambda y: -np.log(np.pi) - _log_of_one_and_square(y), (-INF, INF), 0.0,
    cdf=lambda y: np.arctan2(1, -y) / np.pi, sf=lambda y: np.arctan2(1, y) / np.pi,
)  # fmt: skip
lognorm = Continuous(
    "lognorm", "s", lambda y, s: -0.5 * (np.log(y) / s) ** 2 - np.log(s * y) - _LOG_ROOT_TAU,
    (_SMALLEST, INF), 1.0, _positive,
    cdf=lambda y, s: special.ndtr(np.log(y) / s), sf=lambda y, s: special.ndtr(-np.log(y) / s),
    logcdf=lambda y, s: np.where(_plain(y) <= _SMALLEST, -INF, special.log_ndtr(np.log(y) / s)),
    logsf=lambda y, s: special.log_ndtr(-np.log(y) / s),
)  # fmt: skip

poisson = Discrete(
    "poisson", "mu", lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1) - mu, lambda mu: INF,
    lambda mu: mu >= 0, cdf=lambda k, mu: special.gammaincc(k + 1, mu), sf=lambda k, mu: special.gammainc(k + 1, mu),
)  # fmt: skip
binom = Discrete(
    "binom", "n p",
    lambda k, n, p: (
        special.gammaln(n + 1.0) - special.gammaln(k + 1) - special.gammaln(np.maximum(n - k, 0) + 1.0)
        + special.xlogy(k, p) + special.xlog1py(np.maximum(n - k, 0), -p)
    ),
    lambda n, p: n, lambda n, p: (n >= 0) & (n == np.floor(n)) & (p >= 0) & (p <= 1),
)  # fmt: skip
bernoulli = Discrete(
    "bernoulli", "p", lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p), lambda p: 1,
    lambda p: (p >= 0) & (p <= 1),
)  # fmt: skip


class MultivariateNormal:
    """Normal distribution of vectors, which stand along the last axis of x.

    `cov` is a symmetric positive definite matrix, a vector of variances or one variance; the gradient by a matrix is that of all
    its entries, each for itself. Raises numpy.linalg.LinAlgError where it is singular or not positive definite. With
    `allow_singular` it may be singular if no gradient by it is followed: the density is then that of the plane (the line, ...)
    on which the distribution lives, and 0 elsewhere.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda m: tg.stats.multivariate_normal.logpdf([1.0, 2.0], m, np.eye(2)))(np.zeros(2))
    array([1., 2.])
    """

    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """Logarithm of the density at x: a number, or an array of one axis less than x."""
        mean, cov = self._parameters(mean, cov)
        x = as_array(x) if isinstance(x, list | tuple) else x
        n = np.shape(cov)[-1]
        if n == 1 and np.ndim(x) <= 1:  # points of a line need no axis
            x = np.reshape(x, (*np.shape(x), 1))
        d = x - mean
        if allow_singular and (plane := _plane(cov)) is not None:
            return self._on(plane, d)
        rotated = linalg.solve(cov, d[..., None])[..., 0]
        return -0.5 * (np.sum(d * rotated, axis=-1) + self._log_det(cov)) - n * _LOG_ROOT_TAU

    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """Density at x."""
        return np.exp(self.logpdf(x, mean, cov, allow_singular))

    def entropy(self, mean: Any = None, cov: Any = 1.0) -> Any:
        """Differential entropy; it does not depend on the mean."""
        mean, cov = self._parameters(mean, cov)
        n = np.shape(cov)[-1]
        return 0.5 * self._log_det(cov) + n * (0.5 + _LOG_ROOT_TAU) + 0.0 * np.sum(mean)

    def _parameters(self, mean: Any, cov: Any) -> tuple[Any, Any]:
        """Mean and covariance as a vector and a matrix, by SciPy's defaults."""
        mean, cov = (as_array(v) if isinstance(v, list | tuple) else v for v in (mean, cov))
        if np.ndim(cov) == 0:
            cov = cov * np.eye(1 if mean is None else np.size(_plain(mean)))
        elif np.ndim(cov) == 1:
            cov = np.diag(cov)
        return np.zeros(np.shape(cov)[-1]) if mean is None else mean, cov

    def _on(self, plane: tuple[Any, Any, Any], d: Any) -> Any:
        """Logarithm of the density at the distance `d` from the mean, where the covariance is singular."""
        variances, directions, normals = plane
        inside = np.linalg.norm(_plain(d) @ normals, axis=-1) < 1e3 * _TINY * np.max(variances)
        along = (d @ directions) ** 2 / variances
        value = -0.5 * (np.sum(along, axis=-1) + np.sum(np.log(variances)))
        return np.where(inside, value - len(variances) * _LOG_ROOT_TAU, -np.inf)

    def _log_det(self, cov: Any) -> Any:
        np.linalg.cholesky(_plain(cov))  # raises where it is not positive definite
        return linalg.slogdet(cov)[1]

    def __repr__(self) -> str:
        return "tg.stats.multivariate_normal"


_TINY = 1e6 * np.finfo(float).eps
"""What SciPy takes for 0 among the variances, in terms of the largest."""


def _plane(cov: Any) -> tuple[Any, Any, Any] | None:
    """Variances, their directions, and the directions without variance, of a singular covariance; None if it is not singular."""
    variances, directions = np.linalg.eigh(_plain(cov))
    there = variances > _TINY * np.max(np.abs(variances))
    if np.all(there):
        return None
    if np.min(variances) < -_TINY * np.max(np.abs(variances)):
        raise ValueError("a covariance was given that has negative variances: it must be positive semidefinite.")  # fmt: skip
    if isinstance(cov, Tensor) and (cov.requires_grad or tangent_of(cov) is not None):
        raise NotDifferentiable(
            "multivariate_normal was asked for a derivative by a singular covariance, but any change of it may change its rank, "
            "and with it the meaning of the density. Differentiate by its factor, x = mean + A @ z, or pass cov.detach()."
        )
    return variances[there], directions[:, there], directions[:, ~there]


class Dirichlet:
    """Distribution of the shares of a whole; they stand along the first axis of x, as in SciPy.

    >>> import numpy as np, tapegrad as tg
    >>> tg.stats.dirichlet.logpdf(np.array([0.25, 0.75]), tg.tensor([2.0, 1.0], requires_grad=True))
    tensor(-0.69314718, grad_fn=<AddBackward0>)
    """

    def logpdf(self, x: Any, alpha: Any) -> Any:
        """Logarithm of the density at x. Raises ValueError where shares are negative or do not add up to 1."""
        x, alpha = (as_array(v) if isinstance(v, list | tuple) else v for v in (x, alpha))
        shares = _plain(x)
        if np.shape(shares)[:1] != np.shape(alpha):
            raise ValueError(
                f"dirichlet was given shares of shape {np.shape(shares)} and {np.size(_plain(alpha))} parameters: x has a row for each."
            )
        if np.any(shares < 0) or np.any(np.abs(np.sum(shares, axis=0) - 1) > 1e-9):
            raise ValueError("dirichlet was given shares that are negative, or that do not add up to 1 along the first axis.")  # fmt: skip
        if np.any(_plain(alpha) <= 0):
            raise ValueError("dirichlet was given a parameter that is not positive.")
        column = np.reshape(alpha, (-1,) + (1,) * (np.ndim(shares) - 1))
        log_of_constant = special.gammaln(np.sum(alpha)) - np.sum(special.gammaln(alpha))
        return np.sum(special.xlogy(column - 1, x), axis=0) + log_of_constant

    def pdf(self, x: Any, alpha: Any) -> Any:
        """Density at x."""
        return np.exp(self.logpdf(x, alpha))

    def __repr__(self) -> str:
        return "tg.stats.dirichlet"


multivariate_normal = MultivariateNormal()
dirichlet = Dirichlet()
