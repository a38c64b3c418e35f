"""Distributions of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import linalg, special
from ..core.dual import tangent_of
from ..core.storage import as_array
from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from .continuous import gamma
from .families import Continuous, _generator, _refuse, formula
from .quadrature import plain as _plain
from .quantiles import quantile
from .univariate import LOG_ROOT_TAU as _LOG_ROOT_TAU


class MultivariateNormal(Continuous):
    """Normal distribution of vectors, which stand along the last axis of x.

    `cov` is a symmetric positive definite matrix, a vector of variances or one variance; the gradient by a matrix is that of all
    its entries, each for itself. Raises numpy.linalg.LinAlgError where it is singular or not positive definite. With
    `allow_singular` it may be singular if no gradient by it is followed: the density is then that of the plane (the line, ...)
    on which the distribution lives, and 0 elsewhere.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda m: tg.stats.multivariate_normal.logpdf([1.0, 2.0], m, np.eye(2)))(np.zeros(2))
    array([1., 2.])
    """

    name = "multivariate_normal"
    methods = ("pdf", "logpdf", "cdf", "logcdf", "entropy", "rvs")

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

    def cdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """SciPy's distribution function, a numerical integral; of plain arrays."""
        _refuse(self, "cdf", x, args, named)
        return self.scipy.cdf(x, *args, **named)

    def logcdf(self, x: Any, *args: Any, **named: Any) -> Any:
        """Logarithm of SciPy's distribution function; of plain arrays."""
        _refuse(self, "logcdf", x, args, named)
        return self.scipy.logcdf(x, *args, **named)

    @formula
    def rvs(self, mean: Any = None, cov: Any = 1.0, size: Any = 1, random_state: Any = None) -> Any:
        """A sample, SciPy's, that moves with the mean and the Cholesky factor of the covariance."""
        mean, cov = self._parameters(mean, cov)
        found = self.scipy.rvs(_plain(mean), _plain(cov), size=size, random_state=random_state)
        root = np.linalg.cholesky(cov)
        apart = np.reshape(found, (-1, np.shape(cov)[-1])) - _plain(mean)
        z = np.linalg.solve(_plain(root), apart[..., None])
        return np.reshape(mean + (root @ z)[..., 0], np.shape(found))

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
            "and with it the meaning of the density. Differentiate by its factor, x = mean + A @ z, or pass cov.detach().",
            name="no-slope-here",
        )
    return variances[there], directions[:, there], directions[:, ~there]


class Dirichlet(Continuous):
    """Distribution of the shares of a whole; they stand along the first axis of x, as in SciPy.

    >>> import numpy as np, tapegrad as tg
    >>> tg.stats.dirichlet.logpdf(np.array([0.25, 0.75]), tg.tensor([2.0, 1.0], requires_grad=True))
    tensor(-0.69314718, grad_fn=<AddBackward0>)
    """

    name = "dirichlet"
    methods = ("pdf", "logpdf", "mean", "var", "cov", "entropy", "rvs")

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

    @formula
    def mean(self, alpha: Any) -> Any:
        """Expected shares."""
        return alpha / np.sum(alpha)

    @formula
    def var(self, alpha: Any) -> Any:
        """Variances of the shares."""
        whole = np.sum(alpha)
        return alpha * (whole - alpha) / (whole * whole * (whole + 1))

    @formula
    def cov(self, alpha: Any) -> Any:
        """Covariances of the shares."""
        whole = np.sum(alpha)
        share = alpha / whole
        return (np.diag(share) - np.outer(share, share)) / (whole + 1)

    @formula
    def entropy(self, alpha: Any) -> Any:
        """Differential entropy."""
        whole = np.sum(alpha)
        log_of_constant = np.sum(special.gammaln(alpha)) - special.gammaln(whole)
        rest = (whole - np.shape(alpha)[-1]) * special.psi(whole)
        return log_of_constant + rest - np.sum((alpha - 1) * special.psi(alpha))

    @formula
    def rvs(self, alpha: Any, size: Any = 1, random_state: Any = None) -> Any:
        """A sample, SciPy's, that moves with alpha: shares of gamma variables, each by implicit reparameterisation.

        Their sum is independent of the shares, and is drawn here; so the derivative depends on it, and is right in expectation.
        """
        rng = random_state if hasattr(random_state, "dirichlet") else _generator(random_state)
        shares = self.scipy.rvs(_plain(alpha), size=size, random_state=rng)
        whole = rng.standard_gamma(np.sum(_plain(alpha)), size=(*np.shape(shares)[:-1], 1))
        parts = quantile([shares * whole, alpha], law=gamma, tail="sample")
        return parts / np.sum(parts, axis=-1, keepdims=True)


multivariate_normal = MultivariateNormal()
dirichlet = Dirichlet()

__all__ = ["dirichlet", "multivariate_normal"]
