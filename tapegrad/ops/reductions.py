"""Reductions and scans over axes: sums, products, extrema, moments, cumulative sums.

`axis` is None, an int or a tuple of ints, as in NumPy; rules spread the cotangent back over the axes
reduced. Ties of max and min share the gradient equally, as in PyTorch's amax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.domain import distinct, nonzero, positive
from ..core.primitive import FUNCTIONS, call, conj, elementwise, primitive, select
from ..core.signatures import in_both_words
from ..core.storage import as_array, never
from ..core.synonyms import numpys
from ..core.tensor import Tensor, value_of


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes as a tuple of non-negative ints."""
    if axis is None or not ndim:  # of a number NumPy takes the axes 0 and -1, too
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Any:
    """A reduced value (cotangent or result) with the reduced axes back, as length 1."""
    if keepdims or not shape:
        return g
    axes = axes_of(axis, len(shape))
    return np.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def count_of(shape: tuple[int, ...], axis: Any) -> int:
    """How many elements a reduction of this shape over `axis` takes together."""
    return math.prod(shape[a] for a in axes_of(axis, len(shape)))


_SAMPLES = [
    call((3,)),
    call(()),
    call((3, 4), axis=1),
    call((3, 4), axis=-2, keepdims=True),
    call((2, 3, 4), axis=(0, 2)),
    call((2, 3), keepdims=True),
]


def _name(whole: str, along: str) -> Any:
    """PyTorch's names of a reduction: one of the whole tensor, one along axes."""
    return lambda x, y, kw: whole if kw[0] is None else along


def _summed_in_all_directions(given: Any, x: Any, out: Any, axis: Any, keepdims: Any) -> Any:
    """The sums of each direction: over the same axes, behind the first."""
    t = given[0]
    n = t.ndim - 1
    # A number has axes 0 and -1 for NumPy, along which it is its own sum.
    axes = range(n) if axis is None or n == 0 else np.reshape(axis, (-1,)).tolist()
    return np.add.reduce(t, tuple(a % n + 1 for a in axes), None, None, keepdims)


@primitive(
    np.sum,
    forward=lambda x, axis, keepdims: np.add.reduce(x, axis, None, None, keepdims),
    linear=True,
    pattern="along",
    directions=_summed_in_all_directions,
    method=True,
    backward=_name("SumBackward0", "SumBackward1"),
    samples=[*_SAMPLES, call((), axis=-1)],
)
def sum(g, x_shape, *, axis=None, keepdims=False):
    """Sum over axes: every entry summed gets the cotangent of the sum.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.sum(m, axis=0)
    tensor([4., 6.])
    """
    return np.broadcast_to(spread(g, x_shape, axis, keepdims), x_shape)


@primitive(
    np.mean,
    linear=True,
    pattern="along",
    method=True,
    backward=_name("MeanBackward0", "MeanBackward1"),
    samples=_SAMPLES,
)
def mean(g, x_shape, *, axis=None, keepdims=False):
    """Mean over axes."""
    return np.broadcast_to(spread(g / count_of(x_shape, axis), x_shape, axis, keepdims), x_shape)


def _hit(x, out, axis, keepdims):
    """Which entries attain an extremum; where there are NaNs, which make it NaN, those."""
    return (x == spread(out, np.shape(x), axis, keepdims)) | (x != x)


def _share(g, x, out, axis, keepdims):
    """The cotangent of an extremum, shared equally among the entries that attain it."""
    shape = np.shape(x)
    hit = _hit(x, out, axis, keepdims)
    hits = (
        as_array(hit, dtype=float).sum(axis=axis, keepdims=True)
        if axis is not None
        else np.sum(hit)
    )
    return select(hit, spread(g, shape, axis, keepdims) / hits, 0.0)


def _attained(ts, xs, out, axis, keepdims):
    """Mean of the tangents of the entries that attain an extremum."""
    hit = _hit(value_of(xs[0]), value_of(out), axis, keepdims)
    hits = np.sum(hit, axis=axis, keepdims=keepdims)
    return np.sum(select(hit, ts[0], 0.0), axis=axis, keepdims=keepdims) / hits


@primitive(
    np.max, name="max", pattern="along", method=True, domain=distinct, samples=_SAMPLES, jvp=_attained, holomorphic=False,
    backward=_name("MaxBackward1", "AmaxBackward0"),
)  # fmt: skip
def max(g, x, out, *, axis=None, keepdims=False):
    """Largest entry over axes; ties share the gradient.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.max(m, axis=0)
    tensor([3., 4.])
    """
    return _share(g, value_of(x), value_of(out), axis, keepdims)


@primitive(
    np.min, name="min", pattern="along", method=True, domain=distinct, samples=_SAMPLES, jvp=_attained, holomorphic=False,
    backward=_name("MinBackward1", "AminBackward0"),
)  # fmt: skip
def min(g, x, out, *, axis=None, keepdims=False):
    """Smallest entry over axes; ties share the gradient.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.min(m, axis=0)
    tensor([1., 2.])
    """
    return _share(g, value_of(x), value_of(out), axis, keepdims)


@primitive(
    np.prod,
    pattern="along",
    method=True,
    domain=nonzero,
    samples=_SAMPLES,
    backward=_name("ProdBackward0", "ProdBackward1"),
)
def prod(g, x, *, axis=None, keepdims=False):
    """Product over axes; exact also where entries are 0 (products of the others, not out / x).

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.prod(m, axis=0)
    tensor([3., 8.])
    """
    shape = np.shape(x)
    if not shape:
        return g
    axes = axes_of(axis, len(shape))
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    flat = np.reshape(
        np.transpose(x, rest + axes), (*(shape[i] for i in rest), count_of(shape, axis))
    )
    others = conj(_products_of_others(flat))
    back = np.reshape(others, tuple(shape[i] for i in rest + axes))
    inverse = tuple(int(i) for i in np.argsort(rest + axes))
    return spread(g, shape, axis, keepdims) * np.transpose(back, inverse)


def _products_of_others(x: Any) -> Any:
    """Along the last axis, the product of all entries but one: what the other of two has, times what all other twos have.

    So no entry is divided by, and n entries take some 7 log n recorded steps; a last entry that has no other is a two of its own.
    """
    n = np.shape(x)[-1]
    if n <= 1:
        return np.ones_like(value_of(x))
    half = n // 2
    left, right = x[..., :half], x[..., half : 2 * half]
    last = [x[..., 2 * half :]] if n % 2 else []
    twos = _products_of_others(np.concatenate([left * right, *last], axis=-1))
    both = twos[..., :half]
    return np.concatenate(
        [both * right, both * left, *([twos[..., half:]] if last else [])], axis=-1
    )


@primitive(
    np.cumsum,
    linear=True,
    pattern="along",
    method=True,
    samples=[
        call((4,)),
        call((3, 4), axis=1),
        call((3, 4), axis=-2),
        call((2, 3)),
        call((), axis=0),
    ],
)
def cumsum(g, x_shape, *, axis=None):
    """Cumulative sum: an entry's cotangent is the sum of those from it on."""
    if axis is None or not x_shape:  # along axis 0 of a number there is one entry
        return np.reshape(np.flip(np.cumsum(np.flip(g))), x_shape)
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


def _logsumexp(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
    """Shifted by the largest real part, so that nothing overflows; -inf where all entries are -inf."""
    peak = np.max(np.real(x), axis=axis, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # of the second sum only the shape is asked
        total = np.log(np.sum(np.exp(x - peak), axis=axis, keepdims=True)) + peak
        return total if keepdims else np.reshape(total, np.sum(x, axis=axis).shape)[()]


@primitive(_logsumexp, name="logsumexp", pattern="along", method=True, samples=_SAMPLES)
def logsumexp(g, x, out, *, axis=None, keepdims=False):
    """log(sum(exp(x))) over axes, without overflow; its gradient is the softmax.

    >>> import tapegrad as tg
    >>> tg.logsumexp(tg.tensor([1000.0, 1000.0]))
    tensor(1000.69314718)
    """
    return spread(g, np.shape(x), axis, keepdims) * conj(_shares(x, out, axis, keepdims))


def _shares(x, out, axis, keepdims):
    """The softmax: exp(x - out), if the rounding of `out` is a few ulps of 1 at most; else by the largest entry, as the value was computed.

    A compiled program has the exponentials of the second form already.
    """
    if not isinstance(out, Tensor) and never(np.abs(out) > 16):
        return np.exp(x - spread(out, np.shape(x), axis, keepdims))
    peak = np.max(np.real(value_of(x)), axis=axis, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0)
    e = np.exp(x - peak)
    total = np.sum(e, axis=axis, keepdims=True)
    return e / select(value_of(total) == 0, 1.0, total)


def _in_other_words(of, x, axis, ddof, keepdims, correction, others):
    """A call of var or std with PyTorch's names of settings, or with those that only the extended form has."""
    settings = {
        "axis": axis,
        "ddof": ddof or None,
        "keepdims": keepdims or None,
        "correction": correction,
    }
    settings = {k: v for k, v in settings.items() if v is not None}
    return FUNCTIONS[of](x, **numpys(of.__name__, others | settings))


@in_both_words
def var(x, axis=None, ddof=0, keepdims=False, *, correction=None, **others):
    """Variance over axes: mean of |x - mean|², divided by n - ddof (NumPy's default 0).

    >>> import tapegrad as tg
    >>> tg.var(tg.tensor([1.0, 2.0, 4.0]))
    tensor(1.55555556)
    """
    if others:
        return _in_other_words(np.var, x, axis, ddof, keepdims, correction, others)
    if not isinstance(x, Tensor):
        return np.var(
            x, axis=axis, ddof=ddof if correction is None else correction, keepdims=keepdims
        )
    ddof = ddof if correction is None else correction
    deviation = x - mean(x, axis, True)
    squares = (
        deviation * deviation if x.dtype.kind != "c" else np.real(deviation * np.conj(deviation))
    )
    freedom = count_of(x.shape, axis) - ddof
    if freedom > 0:
        return sum(squares, axis, keepdims) / freedom
    ratio = sum(squares, axis, keepdims) / np.float64(0)
    # A quotient of zeros has NaN for slopes in forward mode too, where the tangents of both are 0.
    unknown = sum(np.real(x) * np.nan, axis, keepdims) + np.nan  # of no entries as well
    return select(np.isnan(value_of(ratio)), unknown, ratio)


@in_both_words
def std(x, axis=None, ddof=0, keepdims=False, *, correction=None, **others):
    """Standard deviation over axes; where the entries are all equal its gradient is 0.

    >>> import tapegrad as tg
    >>> tg.std(tg.tensor([1.0, 3.0]))
    tensor(1.)
    """
    if others:
        return _in_other_words(np.std, x, axis, ddof, keepdims, correction, others)
    if not isinstance(x, Tensor):
        return np.std(
            x, axis=axis, ddof=ddof if correction is None else correction, keepdims=keepdims
        )
    return root(var(x, axis, ddof, keepdims, correction=correction))


def _root(x: Any) -> Any:
    """Square root of a length, with derivative 0 at 0."""
    return np.sqrt(x)


# For lengths and deviations: at 0 the subgradient of least norm, which is 0. A length beyond all numbers has lost its slope: the
# quotient with it would be 0 for the entry that made it infinite, too.
root = elementwise(
    _root,
    lambda out: select(
        out == 0, 0.0, select(out == np.inf, np.nan, 0.5 / select(out == 0, 1.0, out))
    ),
    name="root",
    backward="Sqrt",
    domain=positive,
    method=False,
    holomorphic=False,
)

for _name, _function in (("var", var), ("std", std)):
    setattr(Tensor, _name, _function)
