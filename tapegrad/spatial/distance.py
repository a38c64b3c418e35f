"""`tg.spatial.distance`: distances of vectors, of all pairs of two sets (`cdist`) and of one (`pdist`), under SciPy's names.

A metric is one formula of two arrays, whose last axis holds the vectors' entries and whose other axes broadcast; from it follow the
function of two vectors, `cdist` and `pdist`.

Invariant: plain arrays are SciPy's business. Where two vectors coincide, the derivative of a distance that has a kink there is 0,
and so it is by the entries that agree. Metrics of truth values are steps, whose derivative is 0 or missing: they refuse tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import elsewhere
from ..errors import NotDifferentiable
from ..ops.calculus import in_double
from ..ops.composing import holds_tensor, operand, raw, rooted
from .hulls import directed_hausdorff

Metric = Callable[..., Any]


def _weighted(values: Any, w: Any) -> Any:
    return values if w is None else values * w


def _total(values: Any, w: Any = None) -> Any:
    return np.sum(_weighted(values, w), axis=-1)


FEW = 8
"""Entries of vectors up to which they are gone through one by one: NumPy's sums along a short last axis are slow."""


def _total_of(f: Callable[[Any], Any], u: Any, v: Any, w: Any) -> Any:
    """The (weighted) sum of a function of the differences."""
    n = np.shape(u)[-1]
    if not 0 < n <= FEW or not (np.ndim(u) > 2 and np.ndim(v) > 2):
        return _total(f(u - v), w)
    total: Any = None
    for i in range(n):
        part = f(u[..., i] - v[..., i])
        part = part if w is None else part * w[i]
        total = part if total is None else total + part
    return total


def _square(x: Any) -> Any:
    return x * x


def _sqeuclidean(u: Any, v: Any, w: Any = None) -> Any:
    return _total_of(_square, u, v, w)


def _euclidean(u: Any, v: Any, w: Any = None) -> Any:
    return rooted(_sqeuclidean(u, v, w))


def _cityblock(u: Any, v: Any, w: Any = None) -> Any:
    return _total_of(np.abs, u, v, w)


def _chebyshev(u: Any, v: Any, w: Any = None) -> Any:
    apart = np.abs(u - v)
    return np.max(apart if w is None else np.where(raw(w) > 0, apart, 0.0), axis=-1)


def _minkowski(u: Any, v: Any, p: Any = 2.0, w: Any = None) -> Any:
    """Minkowski's distance of order p, with SciPy's special cases; 0 with slope 0 where the vectors are equal."""
    order = raw(p)
    if not order > 0:
        raise ValueError("p must be greater than 0")
    if order == 1:
        return _cityblock(u, v, w)
    if order == np.inf:
        return _chebyshev(u, v, w)
    if not holds_tensor(p) and order == 2:
        return _euclidean(u, v, w)
    apart = np.abs(u - v)
    zero = raw(apart) == 0
    total = _total(np.where(zero, 0.0, np.where(zero, 1.0, apart) ** p), w)
    none = raw(total) == 0
    return np.where(none, 0.0, np.where(none, 1.0, total) ** (1 / p))


def _seuclidean(u: Any, v: Any, V: Any) -> Any:
    return rooted(np.sum((u - v) ** 2 / V, axis=-1))


def _mahalanobis(u: Any, v: Any, VI: Any) -> Any:
    apart = u - v
    return rooted(np.sum((apart @ VI) * apart, axis=-1))


def _canberra(u: Any, v: Any, w: Any = None) -> Any:
    size = np.abs(u) + np.abs(v)
    none = raw(size) == 0
    return _total(np.where(none, 0.0, np.abs(u - v) / np.where(none, 1.0, size)), w)


def _braycurtis(u: Any, v: Any, w: Any = None) -> Any:
    return _total(np.abs(u - v), w) / _total(np.abs(u + v), w)


def _cosine(u: Any, v: Any, w: Any = None) -> Any:
    return 1.0 - _total(u * v, w) / np.sqrt(_total(u * u, w) * _total(v * v, w))


def _correlation(u: Any, v: Any, w: Any = None) -> Any:
    if w is None:
        return _cosine(u - np.mean(u, axis=-1, keepdims=True), v - np.mean(v, axis=-1, keepdims=True))  # fmt: skip
    share = w / np.sum(w)
    u, v = (x - np.sum(x * share, axis=-1, keepdims=True) for x in (u, v))
    return _cosine(u, v, w)


def _shares(u: Any) -> Any:
    """Entries over their sum. An entry of 0 does not pass its slope, which may be infinite, on to the others."""
    total = np.sum(u, axis=-1, keepdims=True)
    return np.where(raw(u) == 0, u / raw(total), u / total)


def _jensenshannon(u: Any, v: Any, base: Any = None) -> Any:
    from ..special import rel_entr

    p, q = _shares(u), _shares(v)
    m = (p + q) / 2.0
    total = np.sum(rel_entr(p, m), axis=-1) + np.sum(rel_entr(q, m), axis=-1)
    if base is not None:
        total = total / np.log(base)
    positive = raw(total) > 0  # rounding
    return np.where(positive, np.sqrt(np.where(positive, total, 2.0) / 2.0), 0.0)


METRICS: dict[str, Metric] = {
    "braycurtis": _braycurtis, "canberra": _canberra, "chebyshev": _chebyshev, "cityblock": _cityblock,
    "correlation": _correlation, "cosine": _cosine, "euclidean": _euclidean, "jensenshannon": _jensenshannon,
    "mahalanobis": _mahalanobis, "minkowski": _minkowski, "seuclidean": _seuclidean, "sqeuclidean": _sqeuclidean,
}  # fmt: skip

_ALIASES = {
    "cheby": "chebyshev", "cheb": "chebyshev", "ch": "chebyshev", "cblock": "cityblock", "cb": "cityblock", "c": "cityblock",
    "manhattan": "cityblock", "co": "correlation", "cos": "cosine", "euclid": "euclidean", "eu": "euclidean", "e": "euclidean",
    "js": "jensenshannon", "jensenshannon": "jensenshannon", "mahal": "mahalanobis", "mah": "mahalanobis", "m": "minkowski",
    "mi": "minkowski", "pnorm": "minkowski", "se": "seuclidean", "s": "seuclidean", "sqe": "sqeuclidean", "sqeuclid": "sqeuclidean",
}  # fmt: skip

STEPS = frozenset(
    "dice hamming matching jaccard kulczynski1 rogerstanimoto russellrao sokalmichener sokalsneath yule".split()
)
"""Metrics that count which entries are equal or true."""


def metric_of(metric: Any, kwargs: dict[str, Any], observed: Callable[[], Any]) -> Metric:
    """The formula of a metric with its parameters; those not given come from all vectors (`observed`), as SciPy has it."""
    if callable(metric):
        name = getattr(metric, "__name__", "")
        if METRICS.get(name) is None or getattr(metric, "__module__", None) not in (__name__, "scipy.spatial.distance"):  # fmt: skip
            return _each(metric, kwargs)
        metric = name
    name = str(metric).lower()
    name = _ALIASES.get(name, name)
    if name in STEPS:
        raise NotDifferentiable(
            f"the metric {name!r} was asked of tensors, but it counts which entries are equal or true, so its derivative is 0 or does not "
            "exist. Pass t.detach() where no gradient is wanted, or use a metric of numbers, such as 'cityblock'."
        )
    if name not in METRICS:
        raise ValueError(f"Unknown Distance Metric: {metric}")
    if kwargs.get("out") is not None:
        raise TypeError("out= was asked of distances of tensors, which are new tensors: use the result.")  # fmt: skip
    given = {
        key: (in_double(operand(value)) if key != "p" else value)
        for key, value in kwargs.items()
        if value is not None
    }
    if name == "seuclidean" and "V" not in given:
        given["V"] = np.var(observed(), axis=0, ddof=1)
    if name == "mahalanobis" and "VI" not in given:
        given["VI"] = _inverse_covariance(observed())
    if "w" in given and np.any(raw(given["w"]) < 0):
        raise ValueError("Input weights should be all non-negative")

    def formula(u: Any, v: Any) -> Any:
        n = np.shape(u)[-1]
        for key, shape in (("w", (n,)), ("V", (n,)), ("VI", (n, n))):
            if key in given and np.shape(given[key]) != shape:
                raise ValueError(
                    f"the metric {name!r} was given {key} of shape {np.shape(given[key])} for vectors of length {n}: its shape is {shape}."
                )
        return METRICS[name](u, v, **given)

    return formula


def _each(metric: Metric, kwargs: dict[str, Any]) -> Metric:
    """A user's function of two vectors, for arrays of vectors."""

    def of_all(u: Any, v: Any) -> Any:
        u, v = np.broadcast_arrays(u, v) if not holds_tensor((u, v)) else _alike(u, v)
        lead = np.shape(u)[:-1]
        values = [metric(u[index], v[index], **kwargs) for index in np.ndindex(*lead)]
        return np.reshape(np.stack(values), lead) if values else np.zeros(lead)

    return of_all


def _alike(u: Any, v: Any) -> tuple[Any, Any]:
    shape = np.broadcast_shapes(np.shape(u), np.shape(v))
    return np.broadcast_to(u, shape), np.broadcast_to(v, shape)


def _inverse_covariance(x: Any) -> Any:
    count, n = np.shape(x)
    if count <= n:
        raise ValueError(
            f"The number of observations ({count}) is too small; the covariance matrix is singular. For observations with {n} "
            f"dimensions, at least {n + 1} observations are required."
        )
    return np.linalg.inv(np.atleast_2d(np.cov(np.transpose(x)))).T


def _points(x: Any, name: str) -> Any:
    x = in_double(operand(x))
    if np.ndim(x) != 2:
        raise ValueError(f"{name} must be a 2-dimensional array.")
    if x.dtype.kind == "c":
        raise NotDifferentiable(
            f"distances were asked of complex vectors {name}, but SciPy's metrics drop imaginary parts. Pass real and imaginary parts as "
            "entries of their own.",
            name="not-real",
        )
    return x


def _with(out: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    return kwargs if out is None else kwargs | {"out": out}


def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Distances of all pairs of rows of two matrices, (m, k): differentiable by both and by the metric's parameters.

    `metric`: one of SciPy's names, or a function of two vectors; `p`, `w`, `V`, `VI` and `base` are its parameters. Variances and
    covariances that are not given are those of the rows, and differentiated as such. At distance 0 the derivative is 0.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.spatial.distance.cdist(x, [[0.0, 0.0]]).sum())(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    if not holds_tensor((XA, XB, kwargs)):
        from scipy.spatial import distance

        return distance.cdist(XA, XB, metric, out=out, **kwargs)
    a, b = _points(XA, "XA"), _points(XB, "XB")
    if np.shape(a)[1] != np.shape(b)[1]:
        raise ValueError("XA and XB must have the same number of columns (i.e. feature dimension.)")
    formula = metric_of(metric, _with(out, kwargs), lambda: np.concatenate([a, b]))
    return formula(a[:, None], b[None])


def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Distances of all pairs of rows of one matrix, in the order of `squareform`: differentiable as those of `cdist`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.spatial.distance.pdist(x, "sqeuclidean").sum())(np.array([[0.0], [1.0], [3.0]])).ravel()
    array([-8., -2., 10.])
    """
    if not holds_tensor((X, kwargs)):
        from scipy.spatial import distance

        return distance.pdist(X, metric, out=out, **kwargs)
    x = _points(X, "X")
    formula = metric_of(metric, _with(out, kwargs), lambda: x)
    i, j = np.triu_indices(np.shape(x)[0], 1)
    return formula(x[i], x[j])


def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """A vector of distances (of `pdist`) as a symmetric matrix with zeros on its diagonal, or such a matrix as a vector.

    From a matrix the entries above the diagonal are read, so the derivative is by these.

    >>> import tapegrad as tg
    >>> tg.spatial.distance.squareform(tg.tensor([1.0, 2.0, 3.0]))
    tensor([[0., 1., 2.],
            [1., 0., 3.],
            [2., 3., 0.]])
    """
    x = operand(X, "squareform")
    if (
        np.asarray(raw(x)).dtype.hasobject
    ):  # SciPy copies objects without counting references to them, which ends the process
        raise TypeError(
            "squareform was given an array of objects, but distances are numbers: pass X.astype(float)."
        )
    if not isinstance(force, str):
        raise TypeError(
            f"squareform was given force={force!r}, but it is 'no', 'tomatrix' or 'tovector'."
        )
    if not holds_tensor(X):
        from scipy.spatial import distance

        return distance.squareform(X, force, checks)
    ndim = np.ndim(x)
    if force.lower() == "tomatrix" and ndim != 1:
        raise ValueError("Forcing 'tomatrix' but input X is not a distance vector.")
    if force.lower() == "tovector" and ndim != 2:
        raise ValueError("Forcing 'tovector' but input X is not a distance matrix.")
    if ndim == 1:
        count = np.shape(x)[0]
        n = int(np.ceil(np.sqrt(count * 2))) or 1
        if n * (n - 1) != 2 * count:
            raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer n >= 2.")  # fmt: skip
        place = np.zeros((n, n), int)
        i, j = np.triu_indices(n, 1)
        place[i, j] = place[j, i] = np.arange(1, count + 1)
        return np.concatenate([np.zeros(1, x.dtype), x])[place]
    if ndim != 2:
        raise ValueError(f"squareform takes a vector or a matrix, but was given {ndim} axes.")  # fmt: skip
    if np.shape(x)[0] != np.shape(x)[1]:
        raise ValueError("The matrix argument must be square.")
    values = raw(x)
    if checks and not (np.all(np.abs(values - values.T) <= 1e-8 + 1e-5 * np.abs(values)) and np.all(np.diagonal(values) == 0)):  # fmt: skip
        raise ValueError("Distance matrix must be symmetric, with zeros on its diagonal.")
    return x[np.triu_indices(np.shape(x)[0], 1)]


# ------------------------------------------------------------------------------------------- of two vectors


def _of_vectors(name: str, parameters: tuple[str, ...], told: str) -> Metric:
    """The public function of a metric of two vectors, SciPy's where nothing is tracked."""

    def function(u: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        """The distance of u and v."""
        if len(args) > len(parameters) or kwargs.keys() - set(parameters[len(args) :]):
            raise TypeError(f"{name} takes u, v{''.join(', ' + p for p in parameters)}.")
        given = dict(zip(parameters, args, strict=False)) | kwargs
        if not holds_tensor((u, v, given)):
            from scipy.spatial import distance

            return getattr(distance, name)(u, v, **given)
        u, v = in_double(operand(u)), in_double(operand(v))
        if np.ndim(u) != 1 or np.shape(u) != np.shape(v):
            raise ValueError(f"{name} takes two vectors of one length, but was given {np.shape(u)} and {np.shape(v)}.")  # fmt: skip
        missing = [p for p in parameters if p in ("V", "VI") and given.get(p) is None]
        if missing:
            raise TypeError(f"{name}() missing 1 required positional argument: {missing[0]!r}")
        return metric_of(name, given, lambda: None)(u, v)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{told}, of two vectors; differentiable by both{' and by ' + ', '.join(parameters) if parameters else ''}."
    return function


braycurtis = _of_vectors("braycurtis", ("w",), "Sum of differences over sum of sums")
canberra = _of_vectors("canberra", ("w",), "Sum of relative differences")
chebyshev = _of_vectors("chebyshev", ("w",), "Largest difference; of equal ones each has its share")
cityblock = _of_vectors("cityblock", ("w",), "Sum of absolute differences")
correlation = _of_vectors("correlation", ("w",), "One minus the correlation")
cosine = _of_vectors("cosine", ("w",), "One minus the cosine of the angle")
euclidean = _of_vectors("euclidean", ("w",), "Euclidean distance")
jensenshannon = _of_vectors("jensenshannon", ("base",), "Root of Jensen's and Shannon's divergence")  # fmt: skip
mahalanobis = _of_vectors("mahalanobis", ("VI",), "Mahalanobis distance by an inverse covariance")  # fmt: skip
minkowski = _of_vectors("minkowski", ("p", "w"), "p-norm of the difference")
seuclidean = _of_vectors("seuclidean", ("V",), "Euclidean distance in units of variances")
sqeuclidean = _of_vectors("sqeuclidean", ("w",), "Squared Euclidean distance")

__all__ = ["cdist", "directed_hausdorff", "pdist", "squareform", *METRICS]


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
