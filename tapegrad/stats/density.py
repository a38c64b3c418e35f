"""Kernel density estimates: the density of a sample, differentiable by the points, by the sample and by its weights.

The kernel is normal with the sample's covariance times the square of a factor (Scott 1992; Silverman 1986), so all distances are taken
after division by one Cholesky factor, and a density is one logsumexp over the sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import special
from ..core.storage import as_array
from .univariate import LOG_ROOT_TAU


class gaussian_kde:
    """Density estimate of a sample with a normal kernel, as SciPy's.

    `dataset` has a row for each dimension and a column for each value (one dimension needs no axis); `bw_method` is "scott" (the
    default), "silverman", a factor or a function of this object; `weights` one number for each value. Raises ValueError for
    a sample of less than two values or other weights, numpy.linalg.LinAlgError where the values lie in a plane.

    >>> import numpy as np, tapegrad as tg
    >>> kde = tg.stats.gaussian_kde(np.array([1.0, 2.0, 4.0]))
    >>> tg.grad(lambda x: kde.logpdf(x)[0])(3.0)
    -0.20...
    """

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        """Estimate the density of `dataset` (d, n) or (n,): bandwidth, covariance, and the whitened points."""
        self.dataset = np.atleast_2d(_array(dataset))
        self.d, self.n = np.shape(self.dataset)
        if self.n < 2:
            raise ValueError("`dataset` input should have multiple elements.")
        if weights is None:
            self.weights: Any = np.full(self.n, 1.0 / self.n)
        else:
            weights = _array(weights)
            if np.shape(weights) != (self.n,):
                raise ValueError(
                    f"gaussian_kde was given weights of shape {np.shape(weights)} and {self.n} values: one weight for each."
                )
            self.weights = weights / np.sum(weights)
        self.neff = 1 / np.sum(self.weights * self.weights)
        self.factor = self._factor(bw_method)
        centred = self.dataset - np.sum(self.dataset * self.weights, axis=1)[:, None]
        spread = (centred * self.weights) @ centred.T / (1 - 1 / self.neff)
        self.covariance = spread * self.factor**2
        self._root = np.linalg.cholesky(self.covariance)
        self._white = np.linalg.solve(self._root, self.dataset)

    def _factor(self, method: Any) -> Any:
        if method is None or isinstance(method, str):
            scales = {"scott": 1.0, "silverman": (self.d + 2) / 4}
            if (method or "scott") not in scales:
                raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar or a callable.")  # fmt: skip
            return (self.neff * scales[method or "scott"]) ** (-1.0 / (self.d + 4))
        return method(self) if callable(method) else method

    def logpdf(self, x: Any) -> Any:
        """Logarithm of the density at the points x, a column each."""
        points = np.atleast_2d(_array(x))
        if np.shape(points)[0] != self.d:
            if self.d != 1 and np.shape(points) == (1, self.d):
                points = np.reshape(points, (self.d, 1))
            else:
                raise ValueError(f"points have dimension {np.shape(points)[0]}, dataset has dimension {self.d}")  # fmt: skip
        apart = np.linalg.solve(self._root, points)[:, :, None] - self._white[:, None, :]
        exponents = np.log(self.weights) - 0.5 * np.sum(apart * apart, axis=0)
        return (
            special.logsumexp(exponents, axis=1)
            - np.sum(np.log(np.diagonal(self._root))) - self.d * LOG_ROOT_TAU
        )  # fmt: skip

    def evaluate(self, points: Any) -> Any:
        """Density at the points, a column each."""
        return np.exp(self.logpdf(points))

    pdf = __call__ = evaluate


def _array(x: Any) -> Any:
    return as_array(x, float) if isinstance(x, int | float | list | tuple) else x


__all__ = ["gaussian_kde"]
