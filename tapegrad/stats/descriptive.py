"""Statistics of samples: means, moments, entropies, scores, correlations and the tests made of them, under SciPy's names.

All are compositions of ops: lines of samples lie along a last axis, reduced there. A statistic that sorts (trimmed means, distances of
samples) is differentiated in the order that the samples have. P-values are distribution functions of `tg.special`, so that they are
differentiable by the samples too. Statistics of ranks are constant but for jumps, and are not here.

Invariant: where no argument is a tensor SciPy's own function runs; its arguments, shapes and values are ours.
"""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from .. import special
from ..core.storage import StandIn, never
from ..errors import NotDifferentiable
from ..ops.composing import operand, raw, scipys
from ..ops.reductions import root

_scipys = scipys("scipy.stats")


def _sample(value: Any, dtype: Any = None) -> Any:
    """Numbers with a fraction, of at least one axis."""
    value = np.atleast_1d(operand(value))
    if dtype is not None:
        return value.astype(dtype)
    return value if value.dtype.kind in "fc" else value.astype(np.float64)


class _Lines:
    """Samples whose reduced axes are one last axis, and how a result gets SciPy's shape."""

    def __init__(self, axis: Any, keepdims: bool, *samples: Any) -> None:
        """Lines of one or several samples that broadcast, along `axis`: an integer, several, or None for all."""
        if axis is None:
            self.shape: tuple[int, ...] = (
                (1,) * max(np.ndim(x) for x in samples) if keepdims else ()
            )
            self.samples = tuple(np.reshape(x, -1) for x in samples)
            return
        ndim = max(np.ndim(x) for x in samples)
        axes = normalize_axis_tuple(axis, ndim)
        samples = tuple(np.reshape(x, (1,) * (ndim - np.ndim(x)) + np.shape(x)) for x in samples)
        rest = [i for i in range(ndim) if i not in axes]
        lines = []
        lead: tuple[int, ...] = ()
        for x in samples:
            x = np.transpose(x, (*rest, *axes))
            x = np.reshape(x, (*np.shape(x)[: len(rest)], -1))
            lead = np.broadcast_shapes(lead, np.shape(x)[:-1])
            lines.append(x)
        self.samples = tuple(lines)
        kept = iter(lead)
        self.shape = (
            tuple(1 if i in axes else next(kept) for i in range(ndim)) if keepdims else lead
        )

    def finished(self, result: Any) -> Any:
        """A result of all lines in the shape that the caller gets."""
        return np.reshape(result, self.shape) if np.shape(result) != self.shape else result


def _weighted_mean(x: Any, weights: Any) -> Any:
    return (
        np.mean(x, axis=-1)
        if weights is None
        else np.sum(x * weights, axis=-1) / np.sum(weights, axis=-1)
    )


def _with_weights(
    a: Any, weights: Any, axis: Any, keepdims: bool, dtype: Any
) -> tuple[_Lines, Any, Any]:
    """Lines of samples and of their weights, which may be one line for all."""
    a = _sample(a, dtype)
    if weights is None:
        lines = _Lines(axis, keepdims, a)
        return lines, lines.samples[0], None
    w = _sample(weights, dtype)
    shape = np.broadcast_shapes(np.shape(a), np.shape(w))
    a, w = (v if np.shape(v) == shape else np.broadcast_to(v, shape) for v in (a, w))
    lines = _Lines(axis, keepdims, a, w)
    return lines, lines.samples[0], lines.samples[1]


def _demand_positive(x: Any, name: str) -> Any:
    """Samples with NaN in the place of negative ones, and SciPy's warning."""
    below = raw(x) < 0
    if not isinstance(below, StandIn) and below.any():
        warnings.warn(
            f"The {name} mean is only defined if all elements are non-negative; otherwise, the result is NaN.",
            RuntimeWarning,
            stacklevel=5,
        )
    return np.where(x < 0, np.nan, x)


def _zeros_and_least(x: Any) -> tuple[np.ndarray, Any]:
    """Where entries are 0, and a factor for each line: the entries of 0, which share its gradient; 1 for lines without.

    A mean that is 0 because an entry is 0 grows with that entry: the factor carries the slope, which logarithms and reciprocals lose.
    Beside a NaN no entry counts as 0, since a factor of 0 would hide that the NaN has no slope.
    """
    zero = (raw(x) == 0) & ~np.isnan(raw(x)).any(axis=-1, keepdims=True)
    least = np.min(np.where(zero, x, np.inf), axis=-1, keepdims=True, initial=np.inf)
    return zero, np.where(np.any(zero, axis=-1, keepdims=True), least, 1.0)


def _mean_of_negative_power(x: Any, p: Any, w: Any) -> Any:
    """(mean of x ** p) ** (1 / p) for p < 0, in parts of the least entry: squares of reciprocals would overflow."""
    zero, least = _zeros_and_least(x)
    smallest = np.min(raw(x), axis=-1, keepdims=True, initial=np.inf)
    usual = ~np.any(zero, axis=-1, keepdims=True) & np.isfinite(smallest)
    unit = np.where(usual, smallest, least)
    parts = np.where(zero, 1.0, unit / np.where(zero, 1.0, x))
    return unit[..., 0] * _weighted_mean(parts ** (-p), w) ** (1.0 / p)


# ------------------------------------------------------------------------------------------- means and spreads


@_scipys
def gmean(
    a: Any, axis: Any = 0, dtype: Any = None, weights: Any = None, *, nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The geometric mean, exp of the (weighted) mean of logarithms; differentiable by samples and weights.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(tg.stats.gmean)(np.array([1.0, 4.0]))
    array([1.  , 0.25])
    """
    lines, x, w = _with_weights(a, weights, axis, keepdims, dtype)
    zero, least = _zeros_and_least(x)
    of_zeros = _weighted_mean(np.where(zero, 1.0, 0.0), w)
    rest = _weighted_mean(np.log(np.where(zero, 1.0, x)), w)
    return lines.finished(np.exp(rest) * least[..., 0] ** of_zeros)


@_scipys
def hmean(
    a: Any, axis: Any = 0, dtype: Any = None, *, weights: Any = None, nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The harmonic mean, the reciprocal of the (weighted) mean of reciprocals; differentiable by samples and weights.

    >>> import tapegrad as tg
    >>> tg.stats.hmean(tg.tensor([1.0, 3.0]))
    tensor(1.5)
    """
    lines, x, w = _with_weights(a, weights, axis, keepdims, dtype)
    return lines.finished(_mean_of_negative_power(_demand_positive(x, "harmonic"), -1.0, w))


@_scipys
def pmean(
    a: Any, p: Any, *, axis: Any = 0, dtype: Any = None, weights: Any = None, nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The power mean, the p-th root of the mean of p-th powers; differentiable by samples, weights and p.

    >>> import tapegrad as tg
    >>> tg.stats.pmean(tg.tensor([1.0, 7.0]), 2)
    tensor(5.)
    """
    if np.ndim(p) or not math.isfinite(raw(p)):
        raise ValueError(
            f"pmean was given the exponent {p}, but it takes one finite number: ask another mean of it."
        )
    if raw(p) == 0:
        return gmean(a, axis, dtype, weights, keepdims=keepdims)
    lines, x, w = _with_weights(a, weights, axis, keepdims, dtype)
    x = _demand_positive(x, "power")
    if raw(p) < 0:
        return lines.finished(_mean_of_negative_power(x, p, w))
    # A line of zeros alone grows with each entry as if the others stayed 0.
    n = np.shape(x)[-1]
    nothing = np.all(raw(x) == 0, axis=-1, keepdims=True) & (n > 0)
    if never(nothing):
        return lines.finished(_weighted_mean(x**p, w) ** (1.0 / p))
    mean = _weighted_mean(np.where(nothing, 1.0, x) ** p, w) ** (1.0 / p)
    share = 1.0 / max(n, 1) if w is None else w / np.sum(w, axis=-1, keepdims=True)
    grown = np.sum(x * share ** (1.0 / p), axis=-1)
    return lines.finished(np.where(nothing[..., 0], grown, mean))


@_scipys
def gstd(
    a: Any, axis: Any = 0, ddof: int = 1, *, keepdims: bool = False, nan_policy: str = "propagate"
) -> Any:
    """The geometric standard deviation, exp of the standard deviation of logarithms.

    >>> import tapegrad as tg
    >>> tg.stats.gstd(tg.tensor([1.0, 1.0, 8.0]))
    tensor(3.32...)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    return lines.finished(np.exp(np.std(np.log(lines.samples[0]), axis=-1, ddof=ddof)))


@_scipys
def sem(
    a: Any, axis: Any = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Any:
    """The standard error of the mean.

    >>> import tapegrad as tg
    >>> tg.stats.sem(tg.tensor([1.0, 3.0, 5.0, 7.0])).round(3)
    tensor(1.291)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    return lines.finished(np.std(x, axis=-1, ddof=ddof) / math.sqrt(np.shape(x)[-1]))


@_scipys
def variation(
    a: Any, axis: Any = 0, nan_policy: str = "propagate", ddof: int = 0, *, keepdims: bool = False
) -> Any:
    """The coefficient of variation, the standard deviation over the mean.

    >>> import tapegrad as tg
    >>> tg.stats.variation(tg.tensor([1.0, 3.0]))
    tensor(0.5)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    return lines.finished(np.std(x, axis=-1, ddof=ddof) / np.mean(x, axis=-1))


def _central(x: Any, order: int, center: Any = None) -> Any:
    """A moment of each line about its mean, or about `center`."""
    middle = np.mean(x, axis=-1, keepdims=True) if center is None else center
    return np.mean((x - middle) ** order, axis=-1)


@_scipys
def moment(
    a: Any, order: Any = 1, axis: Any = 0, nan_policy: str = "propagate", *, center: Any = None, keepdims: bool = False,
) -> Any:  # fmt: skip
    """Moments of the samples about their mean, or about `center`; several orders give a first axis of results.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.stats.moment(x, 2))(np.array([0.0, 2.0]))
    array([-1.,  1.])
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    orders = np.asarray(raw(order))
    if np.any(orders != np.round(orders)):
        raise ValueError("All elements of `order` must be integral.")
    found = [lines.finished(_central(x, int(n), center)) for n in np.ravel(orders)]
    return found[0] if orders.ndim == 0 else np.stack(found)


def _spread(x: Any) -> tuple[Any, Any]:
    """Second moments, NaN where all samples of a line are the same but for rounding, as SciPy has them."""
    m2 = _central(x, 2)
    same = m2 <= (np.finfo(x.dtype).eps * np.mean(x, axis=-1)) ** 2
    return np.where(same, np.mean(np.nan * x, axis=-1), m2), np.shape(x)[-1]


def _skewness(x: Any, bias: bool = True) -> Any:
    m2, n = _spread(x)
    found = _central(x, 3) / m2**1.5
    return found if bias or n <= 2 else found * (math.sqrt((n - 1.0) * n) / (n - 2.0))


def _kurtosis(x: Any, bias: bool = True) -> Any:
    """Fourth moments over squares of second ones: 3 for a normal distribution."""
    m2, n = _spread(x)
    found = _central(x, 4) / m2**2
    if bias or n <= 3:
        return found
    return ((n**2 - 1.0) * found - 3 * (n - 1) ** 2.0) / ((n - 2) * (n - 3)) + 3.0


@_scipys
def skew(
    a: Any,
    axis: Any = 0,
    bias: bool = True,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Any:
    """The skewness: the third moment over the 3/2-th power of the second; `bias=False` corrects for the samples' number.

    >>> import tapegrad as tg
    >>> tg.stats.skew(tg.tensor([0.0, 0.0, 3.0]))
    tensor(0.70710678)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    return lines.finished(_skewness(lines.samples[0], bias))


@_scipys
def kurtosis(
    a: Any, axis: Any = 0, fisher: bool = True, bias: bool = True, nan_policy: str = "propagate", *, keepdims: bool = False,
) -> Any:  # fmt: skip
    """The kurtosis: the fourth moment over the square of the second, less 3 (`fisher`); `bias=False` corrects for the number.

    >>> import tapegrad as tg
    >>> tg.stats.kurtosis(tg.tensor([0.0, 1.0, 0.0, 1.0]))
    tensor(-2.)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    return lines.finished(_kurtosis(lines.samples[0], bias) - (3.0 if fisher else 0.0))


@_scipys
def kstat(
    data: Any,
    n: int = 2,
    *,
    axis: Any = None,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Any:
    """The n-th k-statistic, the unbiased estimate of the n-th cumulant (n from 1 to 4).

    >>> import tapegrad as tg
    >>> tg.stats.kstat(tg.tensor([1.0, 3.0]))
    tensor(2.)
    """
    lines = _Lines(axis, keepdims, _sample(data))
    return lines.finished(_k(lines.samples[0], operator.index(n)))


def _k(x: Any, n: int) -> Any:
    if not 1 <= n <= 4:
        raise ValueError("k-statistics only supported for 1<=n<=4")
    count = np.shape(x)[-1]
    if n == 1:
        return np.mean(x, axis=-1)
    if count < n:
        return np.mean(np.nan * x, axis=-1)
    scale = count ** (n - 1.0) / math.prod(range(count - n + 1, count))
    if n < 4:
        return _central(x, n) * scale
    return ((count + 1) * _central(x, 4) - 3 * (count - 1) * _central(x, 2) ** 2) * (scale / count)


@_scipys
def kstatvar(
    data: Any,
    n: int = 2,
    *,
    axis: Any = None,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Any:
    """The unbiased estimate of the variance of the first or second k-statistic.

    >>> import tapegrad as tg
    >>> tg.stats.kstatvar(tg.tensor([1.0, 3.0]), 1)
    tensor(1.)
    """
    if n not in (1, 2):
        raise ValueError("Only n=1 or n=2 supported.")
    lines = _Lines(axis, keepdims, _sample(data))
    (x,) = lines.samples
    count = np.shape(x)[-1]
    if n == 1:
        return lines.finished(_k(x, 2) / count)
    return lines.finished(
        (2 * count * _k(x, 2) ** 2 + (count - 1) * _k(x, 4)) / (count * (count + 1))
    )


class DescribeResult(NamedTuple):
    """Number, smallest and largest, mean, variance, skewness and kurtosis of samples."""

    nobs: Any
    minmax: Any
    mean: Any
    variance: Any
    skewness: Any
    kurtosis: Any


@_scipys
def describe(
    a: Any, axis: Any = 0, ddof: int = 1, bias: bool = True, nan_policy: str = "propagate"
) -> DescribeResult:
    """Number, (smallest, largest), mean, variance, skewness and kurtosis of samples.

    >>> import tapegrad as tg
    >>> tg.stats.describe(tg.tensor([1.0, 3.0, 5.0])).variance
    tensor(4.)
    """
    (x,) = _Lines(axis, False, _sample(a)).samples
    if not np.shape(x)[-1]:
        raise ValueError("The input must not be empty.")
    ends = (np.min(x, axis=-1), np.max(x, axis=-1))
    variance = np.var(x, axis=-1, ddof=ddof)
    return DescribeResult(
        np.shape(x)[-1],
        ends,
        np.mean(x, axis=-1),
        variance,
        _skewness(x, bias),
        _kurtosis(x, bias) - 3.0,
    )


# ------------------------------------------------------------------------------------- scores and transformations


@_scipys
def zmap(
    scores: Any, compare: Any, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate"
) -> Any:
    """Scores in standard deviations of `compare`, from its mean; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.stats.zmap(tg.tensor([5.0]), [1.0, 3.0])
    tensor([3.])
    """
    scores, compare = _sample(scores), _sample(compare)
    middle = np.mean(compare, axis=axis, keepdims=True)
    spread = np.std(compare, axis=axis, ddof=ddof, keepdims=True)
    same = raw(spread) <= np.abs(np.finfo(compare.dtype).eps * raw(middle))
    return (scores - middle) / np.where(same, np.nan, spread)


@_scipys
def zscore(a: Any, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate") -> Any:
    """Samples in standard deviations from their mean.

    >>> import tapegrad as tg
    >>> tg.stats.zscore(tg.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    """
    return zmap(a, a, axis, ddof)


@_scipys
def gzscore(a: Any, *, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate") -> Any:
    """The scores of the samples' logarithms.

    >>> import tapegrad as tg
    >>> tg.stats.gzscore(tg.tensor([1.0, 9.0]))
    tensor([-1.,  1.])
    """
    a = np.log(_sample(a))
    return zmap(a, a, axis, ddof)


@_scipys
def boxcox(x: Any, lmbda: Any = None, alpha: Any = None, optimizer: Any = None) -> Any:
    """Box's and Cox's transformation of positive samples by the exponent `lmbda`; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.stats.boxcox(tg.tensor([1.0, 2.0]), 2.0)
    tensor([0. , 1.5])
    """
    if lmbda is None:
        raise _unfitted("boxcox")
    x = _sample(x)
    if np.ndim(x) != 1:
        raise ValueError("Data must be 1-dimensional.")
    return special.boxcox(x, lmbda)


@_scipys
def yeojohnson(x: Any, lmbda: Any = None) -> Any:
    """Yeo's and Johnson's transformation of samples by the exponent `lmbda`; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.stats.yeojohnson(tg.tensor([-1.0, 0.0, 1.0]), 1.0)
    tensor([-1.,  0.,  1.])
    """
    if lmbda is None:
        raise _unfitted("yeojohnson")
    return _yeojohnson(_sample(x), lmbda)


def _yeojohnson(x: Any, lmbda: Any) -> Any:
    up = x >= 0
    right = special.boxcox1p(np.where(up, x, 0.0), lmbda)
    return np.where(up, right, -special.boxcox1p(np.where(up, 0.0, -x), 2.0 - lmbda))


def _unfitted(name: str) -> NotDifferentiable:
    return NotDifferentiable(
        f"{name} was asked to choose its exponent for a tensor, but SciPy's search for it has no derivative. Give lmbda, or find it as "
        f"tg.optimize.minimize_scalar(lambda l: -tg.stats.{name}_llf(l, x)).x, which is differentiable by x."
    )


@_scipys
def boxcox_llf(
    lmb: Any, data: Any, *, axis: Any = 0, keepdims: bool = False, nan_policy: str = "propagate"
) -> Any:
    """The log-likelihood of an exponent of Box's and Cox's transformation; differentiable by exponent and samples.

    >>> import tapegrad as tg
    >>> tg.stats.boxcox_llf(tg.tensor(1.0), [1.0, 3.0]).round(6) + 0.0
    tensor(0.)
    """
    lines = _Lines(axis, keepdims, _sample(data))
    (x,) = lines.samples
    logs = np.log(x)
    # The variance of x^l / l is that of exp(l (log x - m)) / l but for a factor, which does not overflow with m the logarithms' mean.
    middle = np.mean(logs, axis=-1, keepdims=True)
    spread = (
        np.log(np.var(special.boxcox(np.exp(logs - middle), lmb), axis=-1))
        + 2 * lmb * middle[..., 0]
    )
    n = np.shape(x)[-1]
    return lines.finished((lmb - 1) * np.sum(logs, axis=-1) - n / 2 * spread)


@_scipys
def yeojohnson_llf(
    lmb: Any, data: Any, *, axis: Any = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> Any:
    """The log-likelihood of an exponent of Yeo's and Johnson's transformation; differentiable by exponent and samples.

    >>> import tapegrad as tg
    >>> tg.stats.yeojohnson_llf(tg.tensor(1.0), [-1.0, 1.0])
    tensor(0.)
    """
    lines = _Lines(axis, keepdims, _sample(data))
    (x,) = lines.samples
    spread = np.log(np.var(_yeojohnson(x, lmb), axis=-1))
    total = np.sum(np.sign(x) * np.log1p(np.abs(x)), axis=-1)
    return lines.finished((lmb - 1) * total - np.shape(x)[-1] / 2 * spread)


# ---------------------------------------------------------------------------------------- order and limits


@_scipys
def trim_mean(
    a: Any,
    proportiontocut: float,
    axis: Any = 0,
    *,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Any:
    """The mean of what is left without a share of the smallest and of the largest samples.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.stats.trim_mean(x, 0.25))(np.array([9.0, 1.0, 2.0, 3.0]))
    array([0. , 0. , 0.5, 0.5])
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    n = np.shape(x)[-1]
    cut = int(proportiontocut * n)
    if cut > n - cut:
        raise ValueError("Proportion too big.")
    return lines.finished(_spoilt(np.mean(np.sort(x, axis=-1)[..., cut : n - cut], axis=-1), x))


def _spoilt(result: Any, x: Any) -> Any:
    """NaN for lines with a NaN, which sorting put to the end; its slopes are NaN, as those of a mean over products with NaN."""
    return np.where(np.any(np.isnan(x), axis=-1), np.mean(np.nan * x, axis=-1), result)


@_scipys
def median_abs_deviation(
    x: Any, axis: Any = 0, center: Any = None, scale: Any = 1.0, nan_policy: str = "propagate", *, keepdims: bool = False,
) -> Any:  # fmt: skip
    """The median of the distances to the median (or to `center(x, axis=)`), over `scale` ("normal": that of a normal distribution).

    >>> import tapegrad as tg
    >>> tg.stats.median_abs_deviation(tg.tensor([1.0, 2.0, 9.0]))
    tensor(1.)
    """
    lines = _Lines(axis, keepdims, _sample(x))
    (x,) = lines.samples
    if isinstance(scale, str):
        if scale.lower() != "normal":
            raise ValueError(f"{scale} is not a valid scale value.")
        scale = 0.6744897501960817
    middle = (np.median if center is None else center)(x, axis=-1)
    return lines.finished(np.median(np.abs(x - middle[..., None]), axis=-1) / scale)


@_scipys
def iqr(
    x: Any, axis: Any = None, rng: Any = (25, 75), scale: Any = 1.0, nan_policy: str = "propagate",
    interpolation: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The distance of two percentiles, by default the quartiles, over `scale`.

    >>> import tapegrad as tg
    >>> tg.stats.iqr(tg.tensor([0.0, 1.0, 2.0, 3.0, 4.0]))
    tensor(2.)
    """
    lines = _Lines(axis, keepdims, _sample(x))
    (x,) = lines.samples
    if isinstance(scale, str):
        if scale.lower() != "normal":
            raise ValueError(f"{scale} not a valid scale for `iqr`")
        scale = 1.3489795003921634
    if len(rng) != 2:
        raise TypeError("`rng` must be a two element sequence.")
    low, high = sorted(rng)
    if not (low >= 0 and high <= 100):
        raise ValueError("Elements of `rng` must be in the range [0, 100].")
    ends = np.percentile(x, np.asarray([low, high], float), axis=-1, method=interpolation)  # type: ignore[call-overload]
    return lines.finished((ends[1] - ends[0]) / scale)


def _limited(
    a: Any, limits: Any, inclusive: Any, axis: Any, keepdims: bool
) -> tuple[_Lines, Any, Any]:
    """Lines, with 0 in the place of samples beyond the limits, and which samples are within."""
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    low, high = (None, None) if limits is None else limits
    with_low, with_high = inclusive
    values = raw(x)
    within = np.ones(np.shape(x), bool)
    if low is not None:
        within = within & (values >= raw(low) if with_low else values > raw(low))
    if high is not None:
        within = within & (values <= raw(high) if with_high else values < raw(high))
    if not np.any(within | np.isnan(values)):  # an error is one of a compiled program as well
        raise ValueError("No array values within given limits")
    within = within | np.isnan(values)
    return lines, np.where(within, x, 0.0), within


def _limited_variance(x: Any, within: Any, ddof: int) -> tuple[Any, Any]:
    """Variances of the samples within limits, and their number."""
    n = np.sum(within, axis=-1)
    middle = np.sum(x, axis=-1, keepdims=True) / n[..., None]
    square = np.where(within, (x - middle) ** 2, 0.0)
    variance = np.sum(square, axis=-1) / (n - ddof)
    # A quotient of zeros has NaN for slopes in forward mode too, where the tangents of both are 0.
    return np.where(np.isnan(raw(variance)), np.mean(np.nan * x, axis=-1), variance), n


@_scipys
def tmean(
    a: Any, limits: Any = None, inclusive: tuple[bool, bool] = (True, True), axis: Any = None, *,
    nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean of the samples within limits (lower, upper).

    >>> import tapegrad as tg
    >>> tg.stats.tmean(tg.tensor([1.0, 3.0, 99.0]), (0, 10))
    tensor(2.)
    """
    lines, x, within = _limited(a, limits, inclusive, axis, keepdims)
    return lines.finished(np.sum(x, axis=-1) / np.sum(within, axis=-1))


@_scipys
def tvar(
    a: Any, limits: Any = None, inclusive: tuple[bool, bool] = (True, True), axis: Any = 0, ddof: int = 1, *,
    nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The variance of the samples within limits (lower, upper).

    >>> import tapegrad as tg
    >>> tg.stats.tvar(tg.tensor([1.0, 3.0, 99.0]), (0, 10))
    tensor(2.)
    """
    lines, x, within = _limited(a, limits, inclusive, axis, keepdims)
    return lines.finished(_limited_variance(x, within, ddof)[0])


@_scipys
def tstd(
    a: Any, limits: Any = None, inclusive: tuple[bool, bool] = (True, True), axis: Any = 0, ddof: int = 1, *,
    nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The standard deviation of the samples within limits (lower, upper).

    >>> import tapegrad as tg
    >>> tg.stats.tstd(tg.tensor([1.0, 3.0, 99.0]), (0, 10), ddof=0)
    tensor(1.)
    """
    lines, x, within = _limited(a, limits, inclusive, axis, keepdims)
    return lines.finished(root(_limited_variance(x, within, ddof)[0]))


@_scipys
def tsem(
    a: Any, limits: Any = None, inclusive: tuple[bool, bool] = (True, True), axis: Any = 0, ddof: int = 1, *,
    nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The standard error of the mean of the samples within limits (lower, upper).

    >>> import tapegrad as tg
    >>> tg.stats.tsem(tg.tensor([1.0, 3.0, 99.0]), (0, 10))
    tensor(1.)
    """
    lines, x, within = _limited(a, limits, inclusive, axis, keepdims)
    variance, n = _limited_variance(x, within, ddof)
    return lines.finished(root(variance / n))


@_scipys
def expectile(a: Any, alpha: Any = 0.5, *, weights: Any = None) -> Any:
    """The number that balances squared distances of larger samples, weighted by alpha, and of smaller ones by 1 - alpha.

    Differentiable by samples, weights and alpha: which samples are larger is a constant, so that the balance is a weighted mean.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(tg.stats.expectile)(np.array([1.0, 2.0, 6.0]), 0.75)
    array([0.2, 0.2, 0.6])
    """
    if not 0 <= raw(alpha) <= 1:
        raise ValueError("The expectile level alpha must be in the range [0, 1].")
    x = _sample(a)
    w = np.ones(np.shape(x)) if weights is None else operand(weights)
    larger = x > _plain_expectile(x, alpha, w)
    share = w * np.where(larger, alpha, 1.0 - alpha)
    return np.sum(share * x) / np.sum(share)


def _plain_expectile(x: Any, alpha: Any, w: Any) -> Any:
    """The number at which the slope of the balance, which is linear between samples, changes its sign."""
    order = np.argsort(raw(x))
    values, weights, level = raw(x)[order], np.take_along_axis(raw(w), order, 0), raw(alpha)
    # The balance at each sample; it falls with the place.
    above = np.cumsum((weights * values)[::-1])[::-1] - np.cumsum(weights[::-1])[::-1] * values
    below = np.cumsum(weights) * values - np.cumsum(weights * values)
    balance = level * above - (1 - level) * below
    return np.max(np.where(balance >= 0, values, -np.inf))


# ------------------------------------------------------------------------------------------- angles


def _resultant(
    samples: Any, high: Any, low: Any, axis: Any, keepdims: bool
) -> tuple[_Lines, Any, Any]:
    """Mean sine and cosine of angles of which `high - low` is a whole turn."""
    lines = _Lines(axis, keepdims, _sample(samples))
    angles = lines.samples[0] * (2 * math.pi / (high - low))
    return lines, np.mean(np.sin(angles), axis=-1), np.mean(np.cos(angles), axis=-1)


@_scipys
def circmean(
    samples: Any, high: Any = 2 * math.pi, low: Any = 0, axis: Any = None, nan_policy: str = "propagate", *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean direction of angles in a range that is a whole turn.

    >>> import tapegrad as tg
    >>> tg.stats.circmean(tg.tensor([350.0, 20.0]), 360).round(6)
    tensor(5.)
    """
    lines, sine, cosine = _resultant(samples, high, low, axis, keepdims)
    angle = np.arctan2(sine, cosine) * ((high - low) / (2 * math.pi))
    return lines.finished(
        angle - (high - low) * np.floor((raw(angle) - raw(low)) / (raw(high) - raw(low)))
    )


@_scipys
def circvar(
    samples: Any, high: Any = 2 * math.pi, low: Any = 0, axis: Any = None, nan_policy: str = "propagate", *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The circular variance of angles: one less the length of their mean direction, from 0 to 1.

    >>> import tapegrad as tg
    >>> tg.stats.circvar(tg.tensor([0.0, 90.0]), 360)
    tensor(0.29289322)
    """
    lines, sine, cosine = _resultant(samples, high, low, axis, keepdims)
    return lines.finished(1.0 - np.hypot(sine, cosine))


@_scipys
def circstd(
    samples: Any, high: Any = 2 * math.pi, low: Any = 0, axis: Any = None, nan_policy: str = "propagate", *,
    normalize: bool = False, keepdims: bool = False,
) -> Any:  # fmt: skip
    """The circular standard deviation of angles, in their unit or (`normalize`) in radians.

    >>> import tapegrad as tg
    >>> tg.stats.circstd(tg.tensor([0.0, 90.0]), 360).round(4)
    tensor(47.7019)
    """
    lines, sine, cosine = _resultant(samples, high, low, axis, keepdims)
    found = np.sqrt(-2.0 * np.log(np.minimum(np.hypot(sine, cosine), 1.0)))
    return lines.finished(found if normalize else found * ((high - low) / (2 * math.pi)))


# ------------------------------------------------------------------------------------------- information


@_scipys
def entropy(
    pk: Any,
    qk: Any = None,
    base: Any = None,
    axis: Any = 0,
    *,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Any:
    """The entropy of frequencies, or with `qk` their relative entropy; differentiable by both, which are brought to sum 1.

    >>> import tapegrad as tg
    >>> tg.stats.entropy(tg.tensor([1.0, 1.0]), base=2)
    tensor(1.)
    """
    if base is not None and raw(base) <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    lines = _Lines(axis, keepdims, *(_sample(v) for v in (pk, qk) if v is not None))
    shares = [x / np.sum(x, axis=-1, keepdims=True) for x in lines.samples]
    terms = special.entr(*shares) if qk is None else special.rel_entr(*shares)
    found = np.sum(terms, axis=-1)
    return lines.finished(found if base is None else found / np.log(base))


@_scipys
def differential_entropy(
    values: Any, *, window_length: int | None = None, base: Any = None, axis: Any = 0, method: str = "auto",
    nan_policy: str = "propagate", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The entropy of the distribution that samples are from, by distances of ordered samples (Vasicek, van Es, Ebrahimi, Correa).

    >>> import tapegrad as tg
    >>> tg.stats.differential_entropy(tg.arange(20.0)).round(3)
    tensor(2.996)
    """
    lines = _Lines(axis, keepdims, _sample(values))
    (x,) = lines.samples
    n = np.shape(x)[-1]
    m = math.floor(math.sqrt(n) + 0.5) if window_length is None else window_length
    if not 2 <= 2 * m < n:
        raise ValueError(
            f"Window length ({m}) must be positive and less than half the sample size ({n})."
        )
    if base is not None and raw(base) <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    method = method.lower()
    if method == "auto":
        method = "van es" if n <= 10 else "ebrahimi" if n <= 1000 else "vasicek"
    ordered = np.sort(x, axis=-1)
    i = np.arange(1, n + 1)
    wide = ordered[..., np.clip(np.arange(-m, n + m), 0, n - 1)]
    if method == "van es":
        logs = np.log((n + 1) / m * (ordered[..., m:] - ordered[..., :-m]))
        found = (
            np.sum(logs, axis=-1) / (n - m)
            + float(np.sum(1 / i[m - 1 :]))
            + math.log(m)
            - math.log(n + 1)
        )
    elif method in ("vasicek", "ebrahimi"):
        edges = np.full(n, 2.0)
        if method == "ebrahimi":
            edges = np.where(i <= m, 1 + (i - 1) / m, edges)
            edges = np.where(i >= n - m + 1, 1 + (n - i) / m, edges)
        found = np.mean(
            np.log(n * (wide[..., 2 * m :] - wide[..., : -2 * m]) / (edges * m)), axis=-1
        )
    elif method == "correa":
        offsets = np.arange(-m, m + 1)[:, None]
        near = wide[..., i + offsets + m - 1]
        apart = near - np.mean(near, axis=-2, keepdims=True)
        found = -np.mean(
            np.log(np.sum(apart * offsets, axis=-2) / (n * np.sum(apart**2, axis=-2))), axis=-1
        )
    else:
        raise ValueError(
            "`method` must be one of {'vasicek', 'van es', 'correa', 'ebrahimi', 'auto'}"
        )
    return lines.finished(_spoilt(found if base is None else found / np.log(base), x))


def _between(u: Any, v: Any, u_weights: Any, v_weights: Any) -> tuple[Any, Any]:
    """Differences of two distribution functions between neighbouring samples of both, and the distances of these."""
    signed = []
    for x, w, sign in ((u, u_weights, 1.0), (v, v_weights, -1.0)):
        if np.ndim(x) != 1 or not np.shape(x)[0]:
            raise ValueError(
                "Distribution can't be empty." if not np.size(x) else "Distribution must be 1D."
            )
        if w is None:
            signed.append(np.full(np.shape(x), sign / np.shape(x)[0]))
            continue
        w = _sample(w)
        if np.shape(w) != np.shape(x):
            raise ValueError(
                "Value and weight array-likes for the same empirical distribution must be of the same size."
            )
        if np.any(raw(w) < 0):
            raise ValueError("All weights must be non-negative.")
        signed.append(sign * w / np.sum(w))
    places = np.concatenate([u, v])
    order = np.argsort(raw(places), kind="stable")
    places = places[order]
    return np.cumsum(np.take_along_axis(np.concatenate(signed), order, 0))[:-1], places[
        1:
    ] - places[:-1]


@_scipys
def wasserstein_distance(
    u_values: Any, v_values: Any, u_weights: Any = None, v_weights: Any = None
) -> Any:
    """The first Wasserstein distance of two samples on a line; differentiable by samples and weights.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(tg.stats.wasserstein_distance)(np.array([0.0, 5.0]), np.array([1.0, 2.0]))
    array([-0.5,  0.5])
    """
    apart, widths = _between(_sample(u_values), _sample(v_values), u_weights, v_weights)
    return np.sum(np.abs(apart) * widths)


@_scipys
def energy_distance(
    u_values: Any, v_values: Any, u_weights: Any = None, v_weights: Any = None
) -> Any:
    """The energy distance of two samples on a line; differentiable by samples and weights.

    >>> import tapegrad as tg
    >>> tg.stats.energy_distance(tg.tensor([0.0]), [2.0])
    tensor(2.)
    """
    apart, widths = _between(_sample(u_values), _sample(v_values), u_weights, v_weights)
    return np.sqrt(2.0 * np.sum(apart**2 * widths))


# ------------------------------------------------------------------------------------- correlations and tests


class Significance(NamedTuple):
    """A statistic and the probability of one as extreme."""

    statistic: Any
    pvalue: Any


class TtestResult(NamedTuple):
    """Student's statistic, the probability of one as extreme, and the degrees of freedom."""

    statistic: Any
    pvalue: Any
    df: Any


class _Line(NamedTuple):
    slope: Any
    intercept: Any
    rvalue: Any
    pvalue: Any
    stderr: Any


class LinregressResult(_Line):
    """Slope, intercept, correlation, p-value and standard error of the slope; `intercept_stderr` is an attribute, as SciPy's is."""

    intercept_stderr: Any = None


def _tail(cdf: Any, statistic: Any, alternative: str) -> Any:
    """The probability of a statistic as extreme, from the distribution function of a symmetric distribution."""
    if alternative == "two-sided":
        return 2.0 * cdf(-np.abs(statistic))
    if alternative not in ("less", "greater"):
        raise ValueError("`alternative` must be 'less', 'greater', or 'two-sided'.")
    return cdf(statistic if alternative == "less" else -statistic)


def _student(t: Any, df: Any, alternative: str, lines: _Lines) -> TtestResult:
    p = _tail(lambda x: special.stdtr(df, x), t, alternative)
    return TtestResult(
        lines.finished(t), lines.finished(p), df if np.ndim(df) == 0 else lines.finished(df)
    )


@_scipys
def ttest_1samp(
    a: Any, popmean: Any, axis: Any = 0, nan_policy: str = "propagate", alternative: str = "two-sided", *,
    keepdims: bool = False,
) -> TtestResult:  # fmt: skip
    """Student's test of the mean of one sample: statistic, p-value and degrees of freedom; differentiable by sample and mean.

    >>> import tapegrad as tg
    >>> tg.stats.ttest_1samp(tg.tensor([1.0, 3.0]), 0.0).statistic
    tensor(2.)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    n = np.shape(x)[-1]
    if np.ndim(popmean):
        popmean = (
            np.squeeze(operand(popmean), axis=axis)
            if np.ndim(popmean) == np.ndim(a)
            else operand(popmean)
        )
    t = (np.mean(x, axis=-1) - popmean) / np.sqrt(np.var(x, axis=-1, ddof=1) / n)
    return _student(t, n - 1.0, alternative, lines)


@_scipys
def ttest_rel(
    a: Any, b: Any, axis: Any = 0, nan_policy: str = "propagate", alternative: str = "two-sided", *, keepdims: bool = False,
) -> TtestResult:  # fmt: skip
    """Student's test of the mean difference of two samples that belong together.

    >>> import tapegrad as tg
    >>> tg.stats.ttest_rel(tg.tensor([1.0, 3.0]), [0.0, 0.0]).statistic
    tensor(2.)
    """
    a, b = _sample(a), _sample(b)
    if axis is None:
        a, b, axis = np.reshape(a, -1), np.reshape(b, -1), 0
    lengths = {np.shape(x)[normalize_axis_index(axis, np.ndim(x))] for x in (a, b)}
    if len(lengths) > 1:
        raise ValueError("unequal length arrays")
    return ttest_1samp(a - b, 0.0, axis, nan_policy, alternative, keepdims=keepdims)


@_scipys
def ttest_ind(
    a: Any, b: Any, *, axis: Any = 0, equal_var: bool = True, nan_policy: str = "propagate",
    alternative: str = "two-sided", trim: float = 0, method: Any = None, keepdims: bool = False,
) -> TtestResult:  # fmt: skip
    """Student's test of the means of two samples, or Welch's (`equal_var=False`); differentiable by both.

    >>> import tapegrad as tg
    >>> tg.stats.ttest_ind(tg.tensor([1.0, 3.0]), [0.0, 2.0]).statistic
    tensor(0.70710678)
    """
    if trim or method is not None:
        raise NotDifferentiable(
            f"ttest_ind was asked for trim={trim} and method={method} of a tensor, but only Student's and Welch's test have a derivative. "
            "Leave both out."
        )
    lines = _Lines(axis, keepdims, _sample(a), _sample(b))
    x, y = lines.samples
    stats = [(np.mean(v, axis=-1), np.var(v, axis=-1, ddof=1), np.shape(v)[-1]) for v in (x, y)]
    return _two_means(*stats[0], *stats[1], equal_var, alternative, lines)


def _two_means(
    m1: Any,
    v1: Any,
    n1: Any,
    m2: Any,
    v2: Any,
    n2: Any,
    equal_var: bool,
    alternative: str,
    lines: _Lines,
) -> TtestResult:
    """The test of two means, by means, variances and numbers of samples."""
    # NumPy's numbers, which may be divided by 0
    n1, n2 = (np.asarray(n, float)[()] for n in (n1, n2))
    s1, s2 = v1 / n1, v2 / n2
    if equal_var:
        # One number has no variance (NaN), and no weight in the common one.
        v1, v2 = (np.where(n == 1, 0.0, v) for n, v in ((n1, v1), (n2, v2)))
        df: Any = n1 + n2 - 2.0
        square = ((n1 - 1) * v1 + (n2 - 1) * v2) / df * (1.0 / n1 + 1.0 / n2)
    else:
        df = (s1 + s2) ** 2 / (s1**2 / (n1 - 1) + s2**2 / (n2 - 1))
        square = s1 + s2
    return _student((m1 - m2) / np.sqrt(square), df, alternative, lines)


@_scipys
def ttest_ind_from_stats(
    mean1: Any, std1: Any, nobs1: Any, mean2: Any, std2: Any, nobs2: Any, equal_var: bool = True,
    alternative: str = "two-sided",
) -> Significance:  # fmt: skip
    """The test of two means by means, standard deviations and numbers of samples; differentiable by means and deviations.

    >>> import tapegrad as tg
    >>> tg.stats.ttest_ind_from_stats(tg.tensor(2.0), 1.0, 2, 1.0, 1.0, 2).statistic
    tensor(1.)
    """
    mean1, std1, mean2, std2 = (operand(v) for v in (mean1, std1, mean2, std2))
    shape = np.broadcast_shapes(*(np.shape(v) for v in (mean1, std1, nobs1, mean2, std2, nobs2)))
    lines = _Lines(None, False, np.zeros(1))
    lines.shape = shape
    found = _two_means(
        mean1, std1 * std1, nobs1, mean2, std2 * std2, nobs2, equal_var, alternative, lines
    )
    return Significance(found.statistic, found.pvalue)


@_scipys
def f_oneway(
    *samples: Any,
    axis: Any = 0,
    equal_var: bool = True,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Significance:
    """The analysis of variance of two or more samples: Fisher's statistic and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.f_oneway(tg.tensor([1.0, 3.0]), [5.0, 7.0]).statistic
    tensor(8.)
    """
    if len(samples) < 2:
        raise TypeError(f"at least two inputs are required; got {len(samples)}.")
    if not equal_var:
        raise NotDifferentiable(
            "f_oneway was asked for equal_var=False of a tensor, but only Fisher's analysis has a derivative. Leave it out, or test pairs "
            "with ttest_ind(equal_var=False)."
        )
    lines = _Lines(axis, keepdims, *map(_sample, samples))
    counts = [np.shape(x)[-1] for x in lines.samples]
    means = [np.mean(x, axis=-1) for x in lines.samples]
    total = sum(counts)
    middle = sum(n * m for n, m in zip(counts, means, strict=True)) / total
    between = sum(n * (m - middle) ** 2 for n, m in zip(counts, means, strict=True))
    within = sum(
        np.sum((x - m[..., None]) ** 2, axis=-1) for x, m in zip(lines.samples, means, strict=True)
    )
    low, high = len(samples) - 1.0, float(total - len(samples))
    f = (between / low) / (within / high)
    return Significance(lines.finished(f), lines.finished(special.fdtrc(low, high, f)))


_POWERS = {
    "pearson": 1.0, "log-likelihood": 0.0, "freeman-tukey": -0.5, "mod-log-likelihood": -1.0, "neyman": -2.0,
    "cressie-read": 2 / 3,
}  # fmt: skip


@_scipys
def power_divergence(
    f_obs: Any, f_exp: Any = None, ddof: int = 0, axis: Any = 0, lambda_: Any = None, *, nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Significance:  # fmt: skip
    """Cressie's and Read's statistic of frequencies beside expected ones (by default, equal ones) and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.power_divergence(tg.tensor([8.0, 12.0]), lambda_="log-likelihood").statistic.round(3)
    tensor(0.805)
    """
    if isinstance(lambda_, str):
        if lambda_ not in _POWERS:
            raise ValueError(
                f"invalid string for lambda_: {lambda_!r}. Valid strings are {sorted(_POWERS)}"
            )
        lambda_ = _POWERS[lambda_]
    power = 1.0 if lambda_ is None else lambda_
    lines = _Lines(axis, keepdims, *(_sample(v) for v in (f_obs, f_exp) if v is not None))
    seen = lines.samples[0]
    expected = np.mean(seen, axis=-1, keepdims=True) if f_exp is None else lines.samples[1]
    if f_exp is not None:
        sums = [np.sum(raw(v), axis=-1) for v in (seen, expected)]
        # An error is one of a compiled program as well.
        if not np.allclose(sums[0], sums[1], 1.5e-8, 0.0):
            raise ValueError(
                "For each axis slice, the sum of the observed frequencies must agree with the sum of the expected frequencies: scale f_exp."
            )
    if power == 1:
        terms = (seen - expected) ** 2 / expected
    elif power == 0:
        terms = 2.0 * special.xlogy(seen, seen / expected)
    elif power == -1:
        terms = 2.0 * special.xlogy(expected, expected / seen)
    else:
        terms = seen * ((seen / expected) ** power - 1.0) / (0.5 * power * (power + 1))
    found = np.sum(terms, axis=-1)
    p = special.chdtrc(np.shape(seen)[-1] - 1.0 - ddof, found)
    return Significance(lines.finished(found), lines.finished(p))


@_scipys
def chisquare(
    f_obs: Any, f_exp: Any = None, ddof: int = 0, axis: Any = 0, *, sum_check: bool = True, nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Significance:  # fmt: skip
    """Pearson's statistic of frequencies beside expected ones and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.chisquare(tg.tensor([8.0, 12.0])).statistic
    tensor(0.8)
    """
    return power_divergence(f_obs, f_exp, ddof, axis, 1.0, keepdims=keepdims)


def _skew_score(x: Any) -> Any:
    """Skewness as a number of standard deviations (D'Agostino 1970)."""
    n = np.shape(x)[-1]
    if n < 8:
        raise ValueError(
            f"`skewtest` requires at least 8 observations; only {n} observations were given."
        )
    y = _skewness(x) * math.sqrt(((n + 1) * (n + 3)) / (6.0 * (n - 2)))
    beta2 = (
        3.0 * (n**2 + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2.0) * (n + 5) * (n + 7) * (n + 9))
    )
    w2 = -1 + math.sqrt(2 * (beta2 - 1))
    return np.arcsinh(y * math.sqrt((w2 - 1) / 2)) / math.sqrt(0.5 * math.log(w2))


def _kurtosis_score(x: Any) -> Any:
    """Kurtosis as a number of standard deviations (Anscombe, Glynn 1983)."""
    n = np.shape(x)[-1]
    if n < 5:
        raise ValueError(
            f"`kurtosistest` requires at least 5 observations; only {n} observations were given."
        )
    expected = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) * (n + 1.0) * (n + 3) * (n + 5))
    y = (_kurtosis(x) - expected) / math.sqrt(variance)
    spread = 6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * math.sqrt((6.0 * (n + 3) * (n + 5)) / (n * (n - 2) * (n - 3)))  # fmt: skip
    a = 6.0 + 8.0 / spread * (2.0 / spread + math.sqrt(1 + 4.0 / spread**2))
    return (
        (1 - 2 / (9.0 * a)) - np.cbrt((1 - 2.0 / a) / (1 + y * math.sqrt(2 / (a - 4.0))))
    ) / math.sqrt(2 / (9.0 * a))


def _scored(score: Any, a: Any, axis: Any, alternative: str, keepdims: bool) -> Significance:
    lines = _Lines(axis, keepdims, _sample(a))
    z = score(lines.samples[0])
    return Significance(lines.finished(z), lines.finished(_tail(special.ndtr, z, alternative)))


@_scipys
def skewtest(
    a: Any,
    axis: Any = 0,
    nan_policy: str = "propagate",
    alternative: str = "two-sided",
    *,
    keepdims: bool = False,
) -> Significance:
    """The test whether the skewness is that of a normal distribution: a score and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.skewtest(tg.arange(8.0) ** 2).statistic.round(3)
    tensor(1.131)
    """
    return _scored(_skew_score, a, axis, alternative, keepdims)


@_scipys
def kurtosistest(
    a: Any,
    axis: Any = 0,
    nan_policy: str = "propagate",
    alternative: str = "two-sided",
    *,
    keepdims: bool = False,
) -> Significance:
    """The test whether the kurtosis is that of a normal distribution: a score and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.kurtosistest(tg.arange(20.0)).statistic.round(3)
    tensor(-1.706)
    """
    return _scored(_kurtosis_score, a, axis, alternative, keepdims)


@_scipys
def normaltest(
    a: Any, axis: Any = 0, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Significance:
    """D'Agostino's and Pearson's test of normality by skewness and kurtosis: a statistic and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.normaltest(tg.arange(20.0)).statistic.round(3)
    tensor(2.91)
    """
    lines = _Lines(axis, keepdims, _sample(a))
    (x,) = lines.samples
    found = _skew_score(x) ** 2 + _kurtosis_score(x) ** 2
    return Significance(lines.finished(found), lines.finished(np.exp(-found / 2)))


@_scipys
def jarque_bera(
    x: Any, *, axis: Any = None, nan_policy: str = "propagate", keepdims: bool = False
) -> Significance:
    """Jarque's and Bera's test of normality by skewness and kurtosis: a statistic and its p-value.

    >>> import tapegrad as tg
    >>> tg.stats.jarque_bera(tg.arange(20.0)).statistic.round(3)
    tensor(1.212)
    """
    lines = _Lines(axis, keepdims, _sample(x))
    (x,) = lines.samples
    found = np.shape(x)[-1] / 6.0 * (_skewness(x) ** 2 + (_kurtosis(x) - 3.0) ** 2 / 4)
    return Significance(lines.finished(found), lines.finished(np.exp(-found / 2)))


def _correlated(x: Any, y: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Means of two samples, their variances (biased) and their covariance, along the last axis."""
    mx, my = (np.mean(v, axis=-1, keepdims=True) for v in (x, y))
    dx, dy = x - mx, y - my
    return (
        mx[..., 0],
        my[..., 0],
        np.mean(dx * dx, axis=-1),
        np.mean(dy * dy, axis=-1),
        np.mean(dx * dy, axis=-1),
    )


def _correlation_tail(r: Any, n: int, alternative: str) -> Any:
    """The probability of a correlation as extreme of n pairs without one: that of a beta distribution on [-1, 1]."""
    if n == 2:
        return np.ones(np.shape(r))
    ab = n / 2 - 1
    return _tail(lambda r: special.betainc(ab, ab, (1.0 + r) / 2.0), r, alternative)


@_scipys
def pearsonr(
    x: Any, y: Any, *, alternative: str = "two-sided", method: Any = None, axis: Any = 0
) -> Significance:
    """Pearson's correlation of two samples and its p-value; differentiable by both.

    >>> import numpy as np, tapegrad as tg
    >>> tg.stats.pearsonr(tg.tensor([1.0, 2.0, 4.0]), [1.0, 3.0, 4.0]).statistic.round(4)
    tensor(0.9286)
    """
    if method is not None:
        raise NotDifferentiable(
            "pearsonr was asked for a resampling method= of a tensor, but counts of samples have no derivative. Leave it out."
        )
    lines = _Lines(axis, False, _sample(x), _sample(y))
    x, y = lines.samples
    n = np.shape(x)[-1]
    if np.shape(y)[-1] != n:
        raise ValueError("`x` and `y` must have the same length along `axis`.")
    if n < 2:
        raise ValueError("`x` and `y` must have length at least 2.")
    _, _, vx, vy, cov = _correlated(x, y)
    r = np.clip(cov / (np.sqrt(vx) * np.sqrt(vy)), -1.0, 1.0)
    return Significance(lines.finished(r), lines.finished(_correlation_tail(r, n, alternative)))


@_scipys
def linregress(
    x: Any, y: Any, alternative: str = "two-sided", *, axis: Any = 0, nan_policy: str = "propagate", keepdims: bool = False,
) -> LinregressResult:  # fmt: skip
    """The line of least squares through points: slope, intercept, correlation, p-value and standard errors; differentiable by both.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda y: tg.stats.linregress([0.0, 1.0, 2.0], y).slope)(np.array([1.0, 2.0, 4.0]))
    array([-0.5,  0. ,  0.5])
    """
    lines = _Lines(axis, keepdims, _sample(x), _sample(y))
    x, y = lines.samples
    n = np.shape(x)[-1]
    if np.shape(y)[-1] != n:
        raise ValueError("All `x` and `y` must have the same length along `axis`.")
    if n < 3:
        raise ValueError(
            f"linregress was given {n} points, but errors of a tensor's line take 3 or more: for two write (y[1] - y[0]) / (x[1] - x[0])."
        )
    mx, my, vx, vy, cov = _correlated(x, y)
    slope = cov / vx
    r = np.clip(cov / (np.sqrt(vx) * np.sqrt(vy)), -1.0, 1.0)
    error = np.sqrt((1 - r * r) * vy / vx / (n - 2))
    p = _correlation_tail(r, n, alternative)
    found = LinregressResult(*map(lines.finished, (slope, my - slope * mx, r, p, error)))
    found.intercept_stderr = lines.finished(error * np.sqrt(vx + mx * mx))
    return found


__all__ = [
    "boxcox", "boxcox_llf", "chisquare", "circmean", "circstd", "circvar", "describe", "differential_entropy", "energy_distance",
    "entropy", "expectile", "f_oneway", "gmean", "gstd", "gzscore", "hmean", "iqr", "jarque_bera", "kstat", "kstatvar", "kurtosis",
    "kurtosistest", "linregress", "median_abs_deviation", "moment", "normaltest", "pearsonr", "pmean", "power_divergence", "sem", "skew",
    "skewtest", "tmean", "trim_mean", "tsem", "tstd", "ttest_1samp", "ttest_ind", "ttest_ind_from_stats", "ttest_rel", "tvar",
    "variation", "wasserstein_distance", "yeojohnson", "yeojohnson_llf", "zmap", "zscore",
]  # fmt: skip
