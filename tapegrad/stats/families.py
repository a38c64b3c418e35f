"""Further distributions of vectors and matrices: formulas in ops, SciPy's own where nothing is tracked.

A method decorated by `formula` is SciPy's of the same name and arguments; its body computes where derivatives may be asked. Samples of
a location and a root are reparameterised by it, those of gamma variables by implicit reparameterisation (univariate.py); counts and
points of a sphere refuse.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import special
from ..core.storage import as_array
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, holds_tracked
from ..ops.composing import raw as raw_of
from .continuous import chi2, gamma
from .discrete import _choose
from .quadrature import plain
from .quantiles import quantile
from .univariate import LOG_ROOT_TAU, Frozen, followed, wrapped_all

LOG2 = np.log(2.0)


class Family:
    """A distribution of vectors or matrices, by SciPy's name."""

    name: str
    methods: tuple[str, ...]

    def __call__(self, *args: Any, **named: Any) -> Frozen:
        """The distribution with its parameters; its methods take only what else they need."""
        return Frozen(self, args, named)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"tg.stats.{self.name}"

    @property
    def scipy(self) -> Any:
        """SciPy's distribution of this name."""
        return getattr(importlib.import_module("scipy.stats"), self.name)


class Continuous(Family):
    """A family with densities."""

    def pdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Density at x."""
        return np.exp(self.logpdf(x, *args, **named))  # type: ignore[attr-defined]


class Counted(Family):
    """A family of counts."""

    def pmf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Probability of the counts x."""
        return np.exp(self.logpmf(x, *args, **named))  # type: ignore[attr-defined]


def _leaves(args: Any) -> list[Any]:
    return [leaf for a in args for leaf in (_leaves(a) if isinstance(a, list | tuple) else [a])]


def formula(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: SciPy's method without tracked arguments, else the formula, of arrays of double precision."""

    @functools.wraps(method)
    def public(self: Any, *args: Any, **named: Any) -> Any:
        given = [*args, *named.values()]
        if not followed(_leaves(given)):
            found = getattr(self.scipy, method.__name__)(*raw_of(args), **raw_of(named))
            return wrapped_all(found) if holds_tensor(given) else found
        wide = [
            as_array(a, float) if isinstance(a, list | tuple | int | np.ndarray) else a
            for a in args
        ]
        return method(self, *wide, **named)

    return public


def _refuse(self: Any, what: str, *args: Any) -> None:
    if holds_tracked(list(args)):
        raise NotDifferentiable(
            f"{self}.{what} was given a tracked tensor, but its result is of counts, or of points by rejection, and is no smooth function "
            "of the parameters. Pass t.detach(), or differentiate an expectation over the density."
        )


def _matrix(scale: Any) -> Any:
    """A number or a vector of variances as a matrix."""
    return (
        np.reshape(scale, (1, 1))
        if np.ndim(scale) == 0
        else np.diag(scale)
        if np.ndim(scale) == 1
        else scale
    )


def _log_det(a: Any) -> Any:
    np.linalg.cholesky(plain(a))  # raises where it is not positive definite
    return np.linalg.slogdet(a)[1]


def _trace_of_quotient(a: Any, b: Any) -> Any:
    """Trace of a⁻¹ b."""
    return np.sum(np.diagonal(np.linalg.solve(a, b), axis1=-2, axis2=-1), axis=-1)


def _generator(random_state: Any) -> Any:
    if random_state is None:
        return np.random.mtrand._rand  # SciPy's default: NumPy's global state
    return (
        random_state if hasattr(random_state, "chisquare") else np.random.RandomState(random_state)
    )


def _normal() -> Any:
    from .multivariate import multivariate_normal  # which is made of Family

    return multivariate_normal


class MultivariateT(Continuous):
    """Student's t distribution of vectors, which stand along the last axis of x.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda m: tg.stats.multivariate_t.logpdf([1.0, 2.0], m, np.eye(2), 3.0))(np.zeros(2))
    array([0.625, 1.25 ])
    """

    name = "multivariate_t"
    methods = ("pdf", "logpdf", "cdf", "rvs", "entropy")

    def _parts(self, loc: Any, shape: Any) -> tuple[Any, Any, int]:
        size = 1 if loc is None else np.size(plain(loc))
        matrix = shape * np.eye(size) if np.ndim(shape) == 0 else _matrix(shape)
        d = np.shape(matrix)[-1]
        return (np.zeros(d) if loc is None else np.reshape(loc, (-1,))), matrix, d

    @formula
    def logpdf(self, x: Any, loc: Any = None, shape: Any = 1.0, df: Any = 1.0) -> Any:
        """Logarithm of the density at x."""
        loc, matrix, d = self._parts(loc, shape)
        if plain(df) == np.inf:
            return _normal().logpdf(x, loc, matrix)
        if d == 1 and np.ndim(x) <= 1:
            x = np.reshape(x, (*np.shape(x), 1))
        apart = x - loc
        square = np.sum(apart * np.linalg.solve(matrix, apart[..., None])[..., 0], axis=-1)
        half = 0.5 * (df + d)
        return (
            special.gammaln(half) - special.gammaln(0.5 * df) - 0.5 * d * np.log(np.pi * df) - 0.5 * _log_det(matrix)
            - half * np.log1p(square / df)
        )  # fmt: skip

    def cdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """SciPy's distribution function, a Monte Carlo integral; of plain arrays."""
        _refuse(self, "cdf", x, args, named)
        return self.scipy.cdf(x, *args, **named)

    @formula
    def entropy(self, loc: Any = None, shape: Any = 1.0, df: Any = 1.0) -> Any:
        """Differential entropy."""
        loc, matrix, d = self._parts(loc, shape)
        if plain(df) == np.inf:
            return _normal().entropy(loc, matrix)
        half, rest = 0.5 * (df + d), 0.5 * df
        return (
            special.gammaln(rest) - special.gammaln(half) + 0.5 * d * np.log(np.pi * df)
            + half * (special.psi(half) - special.psi(rest)) + 0.5 * _log_det(matrix) + 0.0 * np.sum(loc)
        )  # fmt: skip

    @formula
    def rvs(
        self,
        loc: Any = None,
        shape: Any = 1.0,
        df: Any = 1.0,
        size: Any = 1,
        random_state: Any = None,
    ) -> Any:
        """A sample, SciPy's, that moves with loc, the Cholesky factor of shape, and df."""
        loc, matrix, d = self._parts(loc, shape)
        rng = _generator(random_state)
        normal = plain(df) == np.inf
        drawn = None if normal else rng.chisquare(plain(df), size=size)
        root = np.linalg.cholesky(matrix)
        z = rng.multivariate_normal(np.zeros(d), plain(matrix), size=size)
        z = np.linalg.solve(plain(root), z[..., None])
        if normal:
            return np.squeeze(loc + (root @ z)[..., 0])
        ratio = quantile([np.asarray(drawn, float), df], law=chi2, tail="sample") / df
        return np.squeeze(loc + (root @ z)[..., 0] / np.sqrt(ratio)[..., None])


class Wishart(Continuous):
    """Wishart's distribution of symmetric positive definite matrices; several stand along the last axis of x, as in SciPy.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.wishart.logpdf(2.0, 3.0, s))(1.0)
    -0.5
    """

    name = "wishart"
    methods = ("pdf", "logpdf", "mean", "mode", "var", "entropy", "rvs")

    def _stacked(self, x: Any, d: int) -> Any:
        x = np.reshape(x, (1, 1, *np.shape(x))) if np.ndim(x) < 2 and d == 1 else x
        return np.moveaxis(x, -1, 0) if np.ndim(x) == 3 else x

    @formula
    def logpdf(self, x: Any, df: Any, scale: Any) -> Any:
        """Logarithm of the density at x."""
        scale = _matrix(scale)
        d = np.shape(scale)[0]
        x = self._stacked(x, d)
        return (
            0.5 * (df - d - 1) * np.linalg.slogdet(x)[1] - 0.5 * _trace_of_quotient(scale, x) - 0.5 * df * d * LOG2
            - 0.5 * df * _log_det(scale) - special.multigammaln(0.5 * df, d)
        )  # fmt: skip

    @formula
    def mean(self, df: Any, scale: Any) -> Any:
        """Expected value."""
        return df * scale

    @formula
    def var(self, df: Any, scale: Any) -> Any:
        """Variance of each entry."""
        s = _matrix(scale)
        return np.squeeze(df * (s * s + np.outer(np.diagonal(s), np.diagonal(s))))

    @formula
    def entropy(self, df: Any, scale: Any) -> Any:
        """Differential entropy."""
        scale = _matrix(scale)
        d = np.shape(scale)[0]
        digammas = sum(special.psi(0.5 * (df + 1 - i)) for i in range(1, d + 1))
        return (
            0.5 * (d + 1) * _log_det(scale) + 0.5 * d * (d + 1) * LOG2 + special.multigammaln(0.5 * df, d)
            - 0.5 * (df - d - 1) * digammas + 0.5 * df * d
        )  # fmt: skip

    def mode(self, df: Any, scale: Any) -> Any:
        """Where the density is highest; None for fewer than d + 1 degrees of freedom."""
        d = np.shape(_matrix(as_array(scale) if isinstance(scale, list | tuple) else scale))[0]
        return (df - d - 1) * scale if plain(df) >= d + 1 else None

    @formula
    def rvs(self, df: Any, scale: Any, size: Any = 1, random_state: Any = None) -> Any:
        """A sample, SciPy's, that moves with the Cholesky factor of scale and (by Bartlett's decomposition) with df."""
        found = self.scipy.rvs(float(plain(df)), plain(scale), size=size, random_state=random_state)
        scale = _matrix(scale)
        d = np.shape(scale)[0]
        x = np.reshape(found, (-1, d, d))
        root = np.linalg.cholesky(scale)
        return np.reshape(self._moved(x, root, df, d), np.shape(found))

    def _moved(self, x: Any, root: Any, df: Any, d: int) -> Any:
        inverse = np.linalg.inv(plain(root))
        lower = self._bartlett(inverse @ x @ inverse.T, df, d)
        factor = root @ lower
        return factor @ np.swapaxes(factor, -1, -2)

    def _bartlett(self, x: Any, df: Any, d: int) -> Any:
        """The Cholesky factor of a sample with unit scale, whose squared diagonal is chi-square with df - i degrees."""
        a = np.linalg.cholesky(x)
        squares = quantile(
            [np.diagonal(a, axis1=-2, axis2=-1) ** 2, df - np.arange(float(d))],
            law=chi2,
            tail="sample",
        )
        return np.tril(a, -1) + np.sqrt(squares)[..., None] * np.eye(d)


class InverseWishart(Wishart):
    """The distribution of inverses of Wishart's matrices.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.invwishart.logpdf(2.0, 3.0, s))(1.0)
    1.25
    """

    name = "invwishart"

    @formula
    def logpdf(self, x: Any, df: Any, scale: Any) -> Any:
        """Logarithm of the density at x."""
        scale = _matrix(scale)
        d = np.shape(scale)[0]
        x = self._stacked(x, d)
        return (
            0.5 * df * _log_det(scale) - 0.5 * _trace_of_quotient(x, scale) - 0.5 * df * d * LOG2
            - special.multigammaln(0.5 * df, d) - 0.5 * (df + d + 1) * np.linalg.slogdet(x)[1]
        )  # fmt: skip

    @formula
    def mean(self, df: Any, scale: Any) -> Any:
        """Expected value, for df > d + 1."""
        return scale / (df - np.shape(_matrix(scale))[0] - 1)

    def mode(self, df: Any, scale: Any) -> Any:
        """Where the density is highest."""
        scale = as_array(scale) if isinstance(scale, list | tuple) else scale
        return scale / (df + np.shape(_matrix(scale))[0] + 1)

    @formula
    def var(self, df: Any, scale: Any) -> Any:
        """Variance of each entry, for df > d + 3."""
        s = _matrix(scale)
        c = df - np.shape(s)[0]
        square = (c + 1) * s * s + (c - 1) * np.outer(np.diagonal(s), np.diagonal(s))
        return np.squeeze(square / (c * (c - 1) ** 2 * (c - 3)))

    def entropy(self, df: Any, scale: Any) -> Any:
        """Differential entropy, the mean of -logpdf; SciPy 1.17 adds (d - 1)(d + 1)/2 log 2 in d dimensions."""
        scale = _matrix(as_array(scale) if isinstance(scale, list | tuple) else scale)
        d = np.shape(scale)[0]
        digammas = sum(special.psi(0.5 * (df - d + i)) for i in range(1, d + 1))
        return (
            special.multigammaln(0.5 * df, d) + 0.5 * df * d + 0.5 * (d + 1) * (_log_det(scale) - d * LOG2)
            - 0.5 * (df + d + 1) * digammas
        )  # fmt: skip

    def _moved(self, x: Any, root: Any, df: Any, d: int) -> Any:
        inverse = np.linalg.inv(plain(root))
        lower = self._bartlett(np.linalg.inv(inverse @ x @ inverse.T), df, d)
        factor = root @ np.swapaxes(np.linalg.inv(lower), -1, -2)
        return factor @ np.swapaxes(factor, -1, -2)


class MatrixNormal(Family):
    """Normal distribution of matrices, which stand along the last two axes, by covariances of rows and of columns.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda s: tg.stats.matrix_normal.logpdf(np.ones((2, 2)), rowcov=s * np.eye(2), colcov=np.eye(2)))(1.0)
    0.0
    """

    name = "matrix_normal"
    methods = ("pdf", "logpdf")

    @staticmethod
    def _parts(mean: Any, rowcov: Any, colcov: Any) -> tuple[Any, Any, Any]:
        """Mean and both covariances in full, from what SciPy lets stand for them."""
        rows, columns = (
            np.shape(mean)
            if mean is not None
            else [max(np.shape(c) or (1,)) for c in (rowcov, colcov)]
        )

        def spread(c: Any, n: int) -> Any:
            return c * np.eye(n) if np.ndim(c) == 0 else np.diag(c) if np.ndim(c) == 1 else c

        return (
            np.zeros((rows, columns)) if mean is None else mean,
            spread(rowcov, rows),
            spread(colcov, columns),
        )

    @formula
    def logpdf(self, X: Any, mean: Any = None, rowcov: Any = 1.0, colcov: Any = 1.0) -> Any:
        """Logarithm of the density at X."""
        mean, u, v = self._parts(mean, rowcov, colcov)
        n, p = np.shape(mean)
        apart = X - mean
        left = np.linalg.solve(u, apart)
        square = np.sum(
            left * np.swapaxes(np.linalg.solve(v, np.swapaxes(apart, -1, -2)), -1, -2),
            axis=(-2, -1),
        )
        return -n * p * LOG_ROOT_TAU - 0.5 * (n * _log_det(v) + p * _log_det(u) + square)

    def pdf(self, X: Any, *args: Any, **named: Any) -> Any:
        """Density at X."""
        return np.exp(self.logpdf(X, *args, **named))

    @formula
    def entropy(self, rowcov: Any = 1.0, colcov: Any = 1.0) -> Any:
        """Differential entropy."""
        _, u, v = self._parts(None, rowcov, colcov)
        n, p = np.shape(u)[0], np.shape(v)[0]
        return 0.5 * n * p + n * p * LOG_ROOT_TAU + 0.5 * (n * _log_det(v) + p * _log_det(u))

    @formula
    def rvs(
        self,
        mean: Any = None,
        rowcov: Any = 1.0,
        colcov: Any = 1.0,
        size: Any = 1,
        random_state: Any = None,
    ) -> Any:
        """A sample, SciPy's, that moves with the mean and the Cholesky factors of the covariances."""
        mean, u, v = self._parts(mean, rowcov, colcov)
        found = self.scipy.rvs(
            plain(mean), plain(u), plain(v), size=size, random_state=random_state
        )
        left, right = np.linalg.cholesky(u), np.linalg.cholesky(v)
        z = np.linalg.inv(plain(left)) @ (found - plain(mean)) @ np.linalg.inv(plain(right)).T
        return mean + left @ z @ right.T


class MatrixT(Family):
    """Student's t distribution of matrices, which stand along the last two axes, by spreads of rows and of columns (SciPy 1.17).

    >>> import numpy as np, tapegrad as tg
    >>> f = lambda df: tg.stats.matrix_t.logpdf(np.ones((2, 2)), row_spread=np.eye(2), col_spread=np.eye(2), df=df)
    >>> round(tg.grad(f)(1.0), 6)
    0.695281
    """

    name = "matrix_t"
    methods = ("pdf", "logpdf")
    _parts = staticmethod(MatrixNormal._parts)

    @formula
    def logpdf(
        self, X: Any, mean: Any = None, row_spread: Any = 1.0, col_spread: Any = 1.0, df: Any = 1.0
    ) -> Any:
        """Logarithm of the density at X."""
        mean, u, v = self._parts(mean, row_spread, col_spread)
        m, n = np.shape(mean)
        apart = X - mean
        square = np.swapaxes(apart, -1, -2) @ np.linalg.solve(u, apart)
        whole, of_columns = (df + m + n - 1) / 2, _log_det(v)
        front = special.multigammaln(whole, n) - special.multigammaln(whole - m / 2, n)
        front = front - 0.5 * (m * n * np.log(np.pi) + n * _log_det(u) + m * of_columns)
        return front - whole * (np.linalg.slogdet(v + square)[1] - of_columns)

    def pdf(self, X: Any, *args: Any, **named: Any) -> Any:
        """Density at X."""
        return np.exp(self.logpdf(X, *args, **named))

    @formula
    def rvs(
        self, mean: Any = None, row_spread: Any = 1.0, col_spread: Any = 1.0, df: Any = 1.0, size: Any = 1, random_state: Any = None,
    ) -> Any:  # fmt: skip
        """A sample, SciPy's, that moves with the mean and the Cholesky factors of the spreads; not with `df`, which is refused."""
        if holds_tracked([df]):
            raise NotDifferentiable(
                f"{self}.rvs was asked for a derivative by df, which its samples do not have here. Pass df.detach(), or differentiate an "
                "expectation over the density."
            )
        mean, u, v = self._parts(mean, row_spread, col_spread)
        found = self.scipy.rvs(
            plain(mean), plain(u), plain(v), float(plain(df)), size=size, random_state=random_state
        )
        left, right = np.linalg.cholesky(u), np.linalg.cholesky(v)
        z = np.linalg.inv(plain(left)) @ (found - plain(mean)) @ np.linalg.inv(plain(right)).T
        return mean + left @ z @ right.T


class NormalInverseGamma(Family):
    """Joint distribution of the mean x and the variance s2 of a normal one: s2 inverse gamma, x normal with variance s2 / lmbda.

    >>> import tapegrad as tg
    >>> tg.grad(tg.stats.normal_inverse_gamma.logpdf, 2)(1.0, 2.0, 0.0)
    0.5
    """

    name = "normal_inverse_gamma"
    methods = ("pdf", "logpdf", "mean", "var")

    @formula
    def logpdf(self, x: Any, s2: Any, mu: Any = 0.0, lmbda: Any = 1.0, a: Any = 1.0, b: Any = 1.0) -> Any:  # fmt: skip
        """Logarithm of the density at x and s2; NaN where lmbda, a or b is not positive."""
        inside, valid = plain(s2) > 0, (plain(lmbda) > 0) & (plain(a) > 0) & (plain(b) > 0)
        s2 = np.where(inside, s2, 1.0)
        lmbda, a, b = (np.where(valid, v, 1.0) for v in (lmbda, a, b))
        front = 0.5 * np.log(lmbda / s2) - LOG_ROOT_TAU + a * np.log(b) - special.gammaln(a)
        value = front - (a + 1) * np.log(s2) - (b + 0.5 * lmbda * (x - mu) ** 2) / s2
        return np.where(valid, np.where(inside, value, -np.inf), np.nan)

    @formula
    def pdf(self, x: Any, s2: Any, *args: Any, **named: Any) -> Any:
        """Density at x and s2."""
        return np.exp(self.logpdf(x, s2, *args, **named))

    @formula
    def mean(self, mu: Any = 0.0, lmbda: Any = 1.0, a: Any = 1.0, b: Any = 1.0) -> tuple[Any, Any]:
        """Expected x and s2; NaN unless a > 1."""
        there = self._there(lmbda, a, b, 1)
        return np.where(there, mu, np.nan), np.where(there, b / np.where(there, a - 1, 1.0), np.nan)

    @formula
    def var(self, mu: Any = 0.0, lmbda: Any = 1.0, a: Any = 1.0, b: Any = 1.0) -> tuple[Any, Any]:
        """Variances of x and s2; NaN unless a > 1 and a > 2."""
        one, two = self._there(lmbda, a, b, 1), self._there(lmbda, a, b, 2)
        less = np.where(one, a - 1, 1.0)
        of_x = b / (less * np.where(one, lmbda, 1.0))
        of_s2 = b**2 / (less**2 * np.where(two, a - 2, 1.0))
        return np.where(one, of_x + 0 * mu, np.nan), np.where(two, of_s2 + 0 * (mu + lmbda), np.nan)

    @staticmethod
    def _there(lmbda: Any, a: Any, b: Any, least: int) -> Any:
        return (plain(lmbda) > 0) & (plain(b) > 0) & (plain(a) > least)

    @formula
    def rvs(
        self, mu: Any = 0.0, lmbda: Any = 1.0, a: Any = 1.0, b: Any = 1.0, size: Any = None, random_state: Any = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """A sample, SciPy's, that moves with all parameters: of the gamma variable b / s2 by implicit reparameterisation."""
        given = [plain(v) for v in (mu, lmbda, a, b)]
        x, s2 = self.scipy.rvs(*given, size=size, random_state=random_state)
        z = (x - given[0]) * np.sqrt(given[1] / s2)
        s2 = b / quantile([given[3] / s2, a], law=gamma, tail="sample")
        return mu + z * np.sqrt(s2 / lmbda), s2


class Multinomial(Counted):
    """Counts of n draws among the kinds along the last axis; each p is differentiated for itself.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda p: tg.stats.multinomial.logpmf([1, 2], 3, p))(np.array([0.5, 0.5]))
    array([2., 4.])
    """

    name = "multinomial"
    methods = ("pmf", "logpmf", "mean", "cov", "entropy", "rvs")

    @formula
    def logpmf(self, x: Any, n: Any, p: Any) -> Any:
        """Logarithm of the probability of the counts x; -inf where they do not add up to n."""
        x, n = plain(x), plain(n)
        there = np.all((x >= 0) & (x == np.floor(x)), axis=-1) & (np.sum(x, axis=-1) == n)
        counts = np.where(there[..., None], x, 0.0)
        terms = special.xlogy(counts, p) - special.gammaln(counts + 1.0)
        return np.where(there, special.gammaln(n + 1.0) + np.sum(terms, axis=-1), -np.inf)

    @formula
    def mean(self, n: Any, p: Any) -> Any:
        """Expected counts."""
        return n * p

    @formula
    def cov(self, n: Any, p: Any) -> Any:
        """Covariances of the counts."""
        return n * (p[..., None] * np.eye(np.shape(p)[-1]) - p[..., :, None] * p[..., None, :])

    def entropy(self, n: Any, p: Any) -> Any:
        """SciPy's entropy, of plain arrays."""
        _refuse(self, "entropy", n, p)
        return self.scipy.entropy(raw_of(n), raw_of(p))

    def rvs(self, n: Any, p: Any, size: Any = None, random_state: Any = None) -> Any:
        """SciPy's sample, of plain arrays."""
        _refuse(self, "rvs", n, p)
        return self.scipy.rvs(raw_of(n), raw_of(p), size=size, random_state=random_state)


class DirichletMultinomial(Counted):
    """Counts of n draws whose probabilities are Dirichlet distributed; kinds stand along the last axis.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: tg.stats.dirichlet_multinomial.logpmf([1, 0], a, 1))(np.ones(2))
    array([ 0.5, -0.5])
    """

    name = "dirichlet_multinomial"
    methods = ("pmf", "logpmf", "mean", "var", "cov")

    @formula
    def logpmf(self, x: Any, alpha: Any, n: Any) -> Any:
        """Logarithm of the probability of the counts x."""
        x, n = plain(x), plain(n)
        there = np.all((x >= 0) & (x == np.floor(x)), axis=-1) & (np.sum(x, axis=-1) == n)
        counts = np.where(there[..., None], x, 0.0)
        whole = np.sum(alpha, axis=-1)
        terms = (
            special.gammaln(counts + alpha) - special.gammaln(alpha) - special.gammaln(counts + 1.0)
        )
        front = special.gammaln(whole) + special.gammaln(n + 1.0) - special.gammaln(n + whole)
        return np.where(there, front + np.sum(terms, axis=-1), -np.inf)

    @formula
    def mean(self, alpha: Any, n: Any) -> Any:
        """Expected counts."""
        return n * alpha / np.sum(alpha, axis=-1, keepdims=True)

    @formula
    def var(self, alpha: Any, n: Any) -> Any:
        """Variances of the counts."""
        whole = np.sum(alpha, axis=-1, keepdims=True)
        return n * alpha / whole * (1 - alpha / whole) * (n + whole) / (1 + whole)

    @formula
    def cov(self, alpha: Any, n: Any) -> Any:
        """Covariances of the counts."""
        whole = np.sum(alpha, axis=-1, keepdims=True)
        share = alpha / whole
        table = (
            share[..., None] * np.eye(np.shape(alpha)[-1])
            - share[..., :, None] * share[..., None, :]
        )
        return (n * (n + whole) / (1 + whole))[..., None] * table


class MultivariateHypergeometric(Counted):
    """Counts of n draws without replacement among m things of each kind; kinds stand along the last axis.

    All arguments are whole numbers, by which there is no derivative: m and n that are tracked are refused, x is a constant.

    >>> import tapegrad as tg
    >>> print(round(tg.stats.multivariate_hypergeom.pmf([8, 4], [10, 20], 12), 6))
    0.002521
    """

    name = "multivariate_hypergeom"
    methods = ("pmf", "logpmf", "mean", "var", "cov", "rvs")

    def _counts(self, what: str, m: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """m, n and the number of things, as plain numbers, and whether they are such as can be drawn."""
        for name, value in (("m", m), ("n", n)):
            if holds_tracked(value):
                raise NotDifferentiable(
                    f"{self}.{what} was given a tracked tensor as {name}, but {name} holds whole numbers, by which there is no "
                    f"derivative. Pass {name}.detach()."
                )
        m, n = plain(m) * 1.0, plain(n) * 1.0
        whole = np.sum(m, axis=-1)
        return m, n, whole, np.all(m >= 0, axis=-1) & (n >= 0) & (n <= whole)

    @formula
    def logpmf(self, x: Any, m: Any, n: Any) -> Any:
        """Logarithm of the probability of the counts x; -inf where they do not add up to n, NaN where n things are not there."""
        m, n, whole, valid = self._counts("logpmf", m, n)
        x = plain(x)
        there = np.all((x >= 0) & (x <= m), axis=-1) & (np.sum(x, axis=-1) == n)
        inside = (there & valid)[..., None]
        ways = _choose(np.where(inside, m, 1.0), np.where(inside, x, 0.0))
        value = np.sum(ways, axis=-1) - _choose(
            np.where(valid, whole, 1.0), np.where(valid, n, 0.0)
        )
        return np.where(valid, np.where(there, value, -np.inf), np.nan)

    @formula
    def mean(self, m: Any, n: Any) -> Any:
        """Expected counts."""
        m, n, whole, valid = self._counts("mean", m, n)
        found = n[..., None] * m / np.where(whole > 0, whole, 1.0)[..., None]
        return np.where((valid & (whole > 0))[..., None], found, np.nan)

    @formula
    def var(self, m: Any, n: Any) -> Any:
        """Variances of the counts."""
        return np.diagonal(self._covariances("var", m, n), axis1=-2, axis2=-1)

    @formula
    def cov(self, m: Any, n: Any) -> Any:
        """Covariances of the counts."""
        return self._covariances("cov", m, n)

    def _covariances(self, what: str, m: Any, n: Any) -> Any:
        m, n, whole, valid = self._counts(what, m, n)
        valid = valid & (whole > 1)
        total = np.where(valid, whole, 2.0)
        share = m / total[..., None]
        table = (
            share[..., None] * np.eye(np.shape(m)[-1]) - share[..., :, None] * share[..., None, :]
        )
        found = (n * (total - n) / (total - 1))[..., None, None] * table
        return np.where(valid[..., None, None], found, np.nan)

    def rvs(self, m: Any, n: Any, size: Any = None, random_state: Any = None) -> Any:
        """SciPy's sample, of plain arrays."""
        _refuse(self, "rvs", m, n)
        return self.scipy.rvs(raw_of(m), raw_of(n), size=size, random_state=random_state)


class VonMisesFisher(Continuous):
    """Directions around a mean direction `mu`, more narrowly the larger `kappa`; components stand along the last axis.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(tg.stats.vonmises_fisher.logpdf, 2)(np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0]), 1.0)
    0.68...
    """

    name = "vonmises_fisher"
    methods = ("pdf", "logpdf", "entropy", "rvs")

    def _log_front(self, d: int, kappa: Any) -> Any:
        return (
            (0.5 * d - 1) * np.log(kappa)
            - d * LOG_ROOT_TAU
            - np.log(special.ive(0.5 * d - 1, kappa))
            - kappa
        )

    @formula
    def logpdf(self, x: Any, mu: Any = None, kappa: Any = 1.0) -> Any:
        """Logarithm of the density at the unit vectors x."""
        return self._log_front(np.shape(mu)[-1], kappa) + kappa * np.sum(mu * x, axis=-1)

    @formula
    def entropy(self, mu: Any = None, kappa: Any = 1.0) -> Any:
        """Differential entropy; it does not depend on mu."""
        d = np.shape(mu)[-1]
        ratio = special.ive(0.5 * d, kappa) / special.ive(0.5 * d - 1, kappa)
        return -self._log_front(d, kappa) - kappa * ratio + 0.0 * np.sum(mu)

    def rvs(self, mu: Any = None, kappa: Any = 1.0, size: Any = 1, random_state: Any = None) -> Any:
        """SciPy's sample, of plain arrays."""
        _refuse(self, "rvs", mu, kappa)
        return self.scipy.rvs(raw_of(mu), raw_of(kappa), size=size, random_state=random_state)


class Drawn(Family):
    """Random matrices or directions, which have samples and no density here: SciPy's, of plain arguments.

    >>> import numpy as np, tapegrad as tg
    >>> turn = tg.stats.special_ortho_group.rvs(3, random_state=0)
    >>> print(np.allclose(turn @ turn.T, np.eye(3)), round(np.linalg.det(turn), 12))
    True 1.0
    """

    methods = ("rvs",)

    def __init__(self, name: str) -> None:
        self.name = name

    def rvs(self, *args: Any, **named: Any) -> Any:
        """SciPy's sample; the arguments are those of SciPy's method."""
        _refuse(self, "rvs", *args, *named.values())
        return self.scipy.rvs(*map(raw_of, args), **{k: raw_of(v) for k, v in named.items()})


class RandomTable(Family):
    """Tables of counts with given sums of rows and columns: whole numbers, by which there is no derivative.

    >>> import tapegrad as tg
    >>> print(round(tg.stats.random_table.pmf([[1, 0], [1, 2]], [1, 3], [2, 2]), 6))
    0.5
    """

    name = "random_table"
    methods = ("pmf", "logpmf", "mean", "rvs")

    def logpmf(self, x: Any, row: Any, col: Any) -> Any:
        """Logarithm of the probability of the table x."""
        _refuse(self, "logpmf", x, row, col)
        return self.scipy.logpmf(*map(raw_of, (x, row, col)))

    def pmf(self, x: Any, row: Any, col: Any) -> Any:
        """Probability of the table x."""
        _refuse(self, "pmf", x, row, col)
        return self.scipy.pmf(*map(raw_of, (x, row, col)))

    def mean(self, row: Any, col: Any) -> Any:
        """Expected table."""
        _refuse(self, "mean", row, col)
        return self.scipy.mean(raw_of(row), raw_of(col))

    def rvs(
        self, row: Any, col: Any, size: Any = None, method: Any = None, random_state: Any = None
    ) -> Any:
        """SciPy's sample."""
        _refuse(self, "rvs", row, col)
        row, col = raw_of(row), raw_of(col)
        return self.scipy.rvs(row, col, size=size, method=method, random_state=random_state)


multivariate_t = MultivariateT()
special_ortho_group = Drawn("special_ortho_group")
ortho_group = Drawn("ortho_group")
unitary_group = Drawn("unitary_group")
random_correlation = Drawn("random_correlation")
uniform_direction = Drawn("uniform_direction")
random_table = RandomTable()
wishart = Wishart()
invwishart = InverseWishart()
matrix_normal = MatrixNormal()
matrix_t = MatrixT()
normal_inverse_gamma = NormalInverseGamma()
multinomial = Multinomial()
dirichlet_multinomial = DirichletMultinomial()
multivariate_hypergeom = MultivariateHypergeometric()
vonmises_fisher = VonMisesFisher()

__all__ = [
    "dirichlet_multinomial", "invwishart", "matrix_normal", "matrix_t", "multinomial", "multivariate_hypergeom", "multivariate_t",
    "normal_inverse_gamma", "ortho_group", "random_correlation", "random_table", "special_ortho_group", "uniform_direction",
    "unitary_group", "vonmises_fisher", "wishart",
]  # fmt: skip
