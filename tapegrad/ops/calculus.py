"""Calculus: differences, integrals, interpolation, polynomials, convolution, products of many operands, maps.

`convolve` and `einsum` are ops: their derivatives are convolutions and einsums again; but an einsum of two operands is written as
a product, where it is one. The rest is written in ops.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.domain import distinct, unit
from ..core.primitive import apply, call, elementwise, primitive, select
from ..core.storage import as_array
from ..core.tensor import Tensor, wrap
from ..errors import NotDifferentiable, chosen, demand_callable
from . import elementary, reductions
from .arranging import along, atleast_1d
from .composing import composed, operand, raw
from .elementary import floor_divide, fmod, multiply, power, remainder, rint, trunc, where
from .indexing import diagonal, scatter, take
from .joining import concatenate, stack
from .products import matmul
from .shaping import broadcast_to, expand_dims, laid_like, moveaxis, reshape, transpose
from .vectorized import spread

# ------------------------------------------------------------------------------------------- differences


@composed(np.diff, "a", "prepend", "append")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, taken n times.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.diff(t)
    tensor([1., 2.])
    """
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if np.ndim(a) == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis_index(axis, np.ndim(a))
    if n == 0:
        return a
    ends = []
    for end in (prepend, append):
        if end is not None and np.ndim(end) == 0:
            end = broadcast_to(end, (*np.shape(a)[:axis], 1, *np.shape(a)[axis + 1 :]))
        ends.append([] if end is None else [end])
    if ends != [[], []]:
        a = concatenate([*ends[0], a, *ends[1]], axis)
    for _ in range(min(n, np.shape(a)[axis])):  # of nothing there are no differences
        a = a[along(axis, slice(1, None))] - a[along(axis, slice(None, -1))]
    return a


@composed(np.ediff1d, "ary", "to_end", "to_begin")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours of the flattened operand, with values before and after.

    >>> import tapegrad as tg
    >>> t = tg.tensor([1.0, 2.0, 4.0])
    >>> tg.ediff1d(t)
    tensor([1., 2.])
    """
    flat = reshape(ary, -1)
    ends = [
        [] if end is None else [reshape(_as_array(end).astype(ary.dtype), -1)]
        for end in (to_begin, to_end)
    ]
    return concatenate([*ends[0], flat[1:] - flat[:-1], *ends[1]])


@composed(np.gradient, "f", "*varargs")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences inside, one-sided ones of first or second order at the edges; also by the spacing.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda f: np.gradient(f, 0.5))(np.zeros(3))
    array([[-2.,  2.,  0.],
           [-1.,  0.,  1.],
           [ 0., -2.,  2.]])
    """
    f = _as_array(f)
    f = f if f.dtype.kind in "fc" else f.astype(float)
    ndim = np.ndim(f)
    axes = tuple(range(ndim)) if axis is None else reductions.axes_of(axis, ndim)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if len(varargs) not in (0, 1, len(axes)) or (
        len(varargs) == 1 != len(axes) and np.ndim(varargs[0])
    ):
        raise TypeError("invalid number of arguments")
    spacings = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    results = []
    for a, spacing in zip(axes, spacings, strict=True):
        if np.shape(f)[a] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
            )
        slopes = _slopes(f, a, _steps(operand(spacing), np.shape(f)[a]), edge_order)
        results.append(laid_like(slopes.astype(f.dtype, copy=False), f))
    return results[0] if len(results) == 1 else tuple(results)


def _steps(spacing: Any, n: int) -> Any:
    """Distances between the samples: one number if they are all equal (and constant), else one per gap."""
    if np.ndim(spacing) == 0:
        return spacing
    if np.ndim(spacing) != 1:
        raise ValueError("distances must be either scalars or 1d")
    if len(spacing) != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    steps = spacing[1:] - spacing[:-1]
    return steps[0] if not isinstance(steps, Tensor) and (steps == steps[0]).all() else steps


def _slopes(f: Any, axis: int, h: Any, edge_order: int) -> Any:
    """Differences of f along an axis by the steps h, as NumPy weighs them."""
    even = np.ndim(h) == 0
    f = moveaxis(f, axis, -1)
    if even:
        inner = (f[..., 2:] - f[..., :-2]) / (2.0 * h)
    else:
        h1, h2 = h[:-1], h[1:]
        a, b, c = -h2 / (h1 * (h1 + h2)), (h2 - h1) / (h1 * h2), h1 / (h2 * (h1 + h2))
        inner = a * f[..., :-2] + b * f[..., 1:-1] + c * f[..., 2:]
    first, last = (h, h) if even else (h[0], h[-1])
    if edge_order == 1:
        before = (f[..., 1:2] - f[..., :1]) / first
        after = (f[..., -1:] - f[..., -2:-1]) / last
    else:
        h1, h2 = (h, h) if even else (h[0], h[1])
        a, b, c = -(2.0 * h1 + h2) / (h1 * (h1 + h2)), (h1 + h2) / (h1 * h2), -h1 / (h2 * (h1 + h2))
        before = a * f[..., :1] + b * f[..., 1:2] + c * f[..., 2:3]
        h1, h2 = (h, h) if even else (h[-2], h[-1])
        a, b, c = h2 / (h1 * (h1 + h2)), -(h2 + h1) / (h1 * h2), (2.0 * h2 + h1) / (h2 * (h1 + h2))
        after = a * f[..., -3:-2] + b * f[..., -2:-1] + c * f[..., -1:]
    return moveaxis(concatenate([before, inner, after], -1), -1, axis)


@primitive(
    np.unwrap,
    pattern="along",
    jvp=lambda ts, xs, out, **settings: ts[0],
    samples=[call((4,)), call((2, 3), axis=0, period=1.5)],
    domain=distinct,
)
def turned(g, *, discont=None, axis=-1, period=2 * np.pi):
    """Whole periods added so that neighbours differ by no more than half a one: they are constants, so the derivative is 1."""
    return g


@composed(np.unwrap, "p")
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Any:
    """Angles with whole periods added, so that neighbours differ by no more than half a one.

    >>> import tapegrad as tg
    >>> tg.unwrap(tg.tensor([0.0, 6.0])).numpy().round(3)
    array([ 0.   , -0.283])
    """
    return turned(p, discont, axis, period)


# ----------------------------------------------------------------------------------------- interpolation


@composed(np.interp, "x", "xp", "fp", "left", "right")
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Piecewise linear interpolation of samples fp at xp; differentiated by x, by the values and by their places.

    At a sample the slope is that of the piece to the right (at the last, to the left); outside it is 0.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.interp(x, [0.0, 1.0, 3.0], [0.0, 5.0, 6.0]))(2.0)
    0.5
    """
    x, xp, fp = (in_double(v) for v in (x, xp, fp))
    if "c" in (x.dtype.kind, xp.dtype.kind):
        raise NotDifferentiable(
            "np.interp was asked at complex x or xp, whose imaginary parts NumPy drops. Give x.real; only the values fp may be complex.",
            name="not-real",
        )
    if np.ndim(xp) != 1 or np.ndim(fp) != 1:
        raise ValueError("Data points must be 1-D sequences")
    if len(xp) != len(fp):
        raise ValueError("fp and xp are not of the same length.")
    if len(xp) == 0:
        raise ValueError("array of sample points is empty")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        period = abs(period)
        left = right = None
        x, xp = remainder(x, period), remainder(xp, period)
        order = np.argsort(raw(xp))
        xp, fp = xp[order], fp[order]
        xp = concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    places, spots = raw(xp), raw(x)
    n = len(places)
    base = np.clip(np.searchsorted(places, spots, "right") - 1, 0, n - 1)
    value = take(fp, base)
    if n > 1:
        piece = np.minimum(base, n - 2)
        width, rise = take(xp, piece + 1) - take(xp, piece), take(fp, piece + 1) - take(fp, piece)
        flat = raw(width) == 0
        slope = where(flat, np.zeros(()), rise / where(flat, np.ones(()), width))
        value = where(
            spots == take(places, base),
            value + _vanishing(slope, x - take(xp, base)),
            slope * (x - take(xp, base)) + value,
        )
    value = where(spots < places[0], fp[0] if left is None else left, value)
    value = where(spots > places[-1], fp[-1] if right is None else right, value)
    return where(np.isnan(spots), x, value)


def _vanishing(slope: Any, distance: Any) -> Any:
    """slope * distance where the distance is 0: so it is 0, also where the slope is infinite."""
    return where(np.isfinite(raw(slope)), slope, np.zeros(())) * distance


def inexact(value: Any) -> Any:
    """A tensor or array of floating-point numbers, in its own precision."""
    value = operand(value)
    value = value if isinstance(value, Tensor) else as_array(value)
    return value if value.dtype.kind in "fc" else value.astype(np.float64)


def in_double(x: Any) -> Any:
    """A tensor or array in double precision."""
    x = x if isinstance(x, Tensor) else as_array(x)
    dtype = np.dtype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return x if x.dtype == dtype else x.astype(dtype)


@composed(np.linspace, "start", "stop")
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Evenly spaced values from start to stop, differentiated by both ends.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda stop: np.linspace(0.0, stop, 3))(1.0)
    array([0. , 0.5, 1. ])
    """
    num = int(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    gaps = num - 1 if endpoint else num
    kind = np.result_type(raw(start), raw(stop), float(num))
    delta = stop - start
    steps = np.reshape(np.arange(num, dtype=kind), (-1,) + (1,) * np.ndim(delta))
    step = delta / gaps if gaps > 0 else np.nan * delta
    if gaps > 0:
        values = steps / gaps * delta if np.any(raw(step) == 0) else steps * step
    else:
        values = steps * delta
    values = values + start
    if endpoint and num > 1:
        values = concatenate(
            [values[:-1], reshape(broadcast_to(stop, np.shape(delta)), (1, *np.shape(delta)))], 0
        )
    if axis:
        values = moveaxis(values, 0, axis)
    dtype = kind if dtype is None else np.dtype(dtype)
    values = (
        np.floor(values).astype(dtype) if dtype.kind in "iu" else values.astype(dtype, copy=False)
    )
    return (values, step) if retstep else values


@composed(np.logspace, "start", "stop", "base")
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Powers of a base with evenly spaced exponents from start to stop; differentiated by all three.

    >>> import tapegrad as tg
    >>> tg.logspace(0.0, 2.0, 3)
    array([  1.,  10., 100.])
    """
    if np.ndim(base):
        ndim = max(map(np.ndim, (start, stop, base)))
        start, stop, base = (
            reshape(v, (1,) * (ndim - np.ndim(v)) + np.shape(v)) for v in (start, stop, base)
        )
        base = expand_dims(base, axis)
    exponents = np.linspace(start, stop, num=num, endpoint=endpoint, axis=axis)
    powers = power(base, exponents)
    return powers if dtype is None else powers.astype(dtype, copy=False)


@composed(np.geomspace, "start", "stop")
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """Values in equal ratios from start to stop, differentiated by both ends.

    >>> import tapegrad as tg
    >>> tg.geomspace(1.0, 100.0, 3)
    array([  1.,  10., 100.])
    """
    kind = np.result_type(raw(start), raw(stop), float(num), np.zeros((), dtype))
    if np.any(raw(start) == 0) or np.any(raw(stop) == 0):
        raise ValueError("Geometric sequence cannot include zero")
    start, stop = (
        v if v.dtype == kind else v.astype(kind) for v in (_as_array(start), _as_array(stop))
    )
    turn = np.sign(start)
    start, stop = start / turn, stop / turn
    values = logspace(np.log10(start), np.log10(stop), num=num, endpoint=endpoint, base=10.0)
    first = reshape(broadcast_to(start, np.shape(values)[1:]), (1, *np.shape(values)[1:]))
    last = reshape(broadcast_to(stop, np.shape(values)[1:]), (1, *np.shape(values)[1:]))
    if num > 1 and endpoint:
        values = concatenate([first, values[1:-1], last], 0)
    elif num > 0:
        values = concatenate([first, values[1:]], 0)
    values = values * turn
    if axis:
        values = moveaxis(values, 0, axis)
    return values if dtype is None else values.astype(dtype, copy=False)


def _as_array(x: Any) -> Any:
    return x if isinstance(x, Tensor) else as_array(x)


# ------------------------------------------------------------------------------------------- convolution


def _flipped(x: Any) -> Any:
    return np.conj(np.flip(x))


def _convolve_y(g, x, y_shape, *, mode="full"):
    """Cotangent of the second operand: the same rule with the operands exchanged."""
    return _convolve_x(g, x, len(x), y_shape[0], mode)


def _convolve_x(g: Any, other: Any, m: int, n: int, mode: str) -> Any:
    """Cotangent of the operand of length n, whose partner `other` has length m: convolution with the partner reversed.

    A full convolution pulls back by a valid one. A valid one pulls back by a full one to the longer operand, and by a valid
    one to the shorter.
    """
    return np.convolve(g, _flipped(other), "full" if mode == "valid" and n >= m else "valid")


@primitive(
    np.convolve,
    _convolve_y,
    linear=True,
    samples=[
        call((3,), (4,)),
        call((5,), (2,)),
        call((1,), (3,)),
        call((5,), (3,), mode="valid"),
        call((2,), (4,), mode="valid"),
        call((3,), (3,), mode="valid"),
    ],
)
def convolution(g, x_shape, y, *, mode="full"):
    """Discrete convolution of two sequences, in full or where they overlap entirely."""
    return _convolve_x(g, y, len(y), x_shape[0], mode)


def _mode(mode: Any) -> str:
    words = {0: "valid", 1: "same", 2: "full", **{word: word for word in ("valid", "same", "full")}}
    return words.get(mode, str(mode)) if isinstance(mode, str) else chosen(words, mode, "a convolution", "mode")  # fmt: skip


@composed(np.convolve, "a", "v")
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """Discrete convolution of two sequences: in full, of the longer one's length ("same"), or without the edges ("valid").

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: np.convolve(a, [1.0, 2.0], "valid").sum())(np.zeros(3))
    array([2., 3., 1.])
    """
    mode = _mode(mode)
    a, v = atleast_1d(a, v)
    if mode == "same":
        short, long = sorted((len(a), len(v)))
        start = (short - 1) // 2
        return convolution(a, v, "full")[start : start + long]
    return convolution(a, v, mode)


@composed(np.correlate, "a", "v")
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """Cross-correlation of two sequences: sums of products with the (conjugated) second one moved along the first.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: np.correlate(a, [1.0, 2.0]).sum())(np.zeros(3))
    array([1., 3., 2.])
    """
    mode = _mode(mode)
    if mode == "same" and len(a) < len(v):
        return _flipped(convolve(v, _flipped(a), mode))
    return convolve(a, _flipped(v), mode)


# ------------------------------------------------------------------------------------------------ einsum


def _einsum(operands: Sequence[Any], subscripts: str, optimize: Any) -> Any:
    out = np.einsum(subscripts, *operands, optimize=optimize)
    # Of one operand NumPy may return a view, a diagonal say, which an in-place operation would write through.
    return (
        out.copy()
        if len(operands) == 1 and isinstance(out, np.ndarray) and out.base is not None
        else out
    )


def _einsum_jvp(ts, xs, out, *, subscripts, optimize=False):
    """Product rule: one operand after the other replaced by its tangent."""
    terms = [
        np.einsum(subscripts, *xs[:i], t, *xs[i + 1 :], optimize=optimize)
        for i, t in enumerate(ts)
        if t is not None
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@primitive(
    _einsum,
    name="einsum",
    jvp=_einsum_jvp,
    samples=[
        call((2, 3), (3, 4), subscripts="ij,jk->ik"),
        call((2, 3), subscripts="ij->j"),
        call((3, 3), subscripts="ii->i"),
        call((3, 3), subscripts="ii->"),
        call((2, 3), (3,), (2,), subscripts="ij,j,i->"),
        call((3,), (3,), subscripts="i,i->i"),
        call((2, 2, 3), (2,), subscripts="iij,k->jk"),
        call((1, 3), (2, 3), subscripts="ij,ij->i"),
        call((1, 3), (2, 3), subscripts="ij,ij->j"),
        call((2, 3), (3, 2), subscripts="ab,bc->ca", optimize=True),
    ],
)
def contracted(g, xs, wanted, *, subscripts, optimize=False):
    """Sums of products over indices: the cotangent of an operand is the einsum of g with all the others."""
    inputs, output = subscripts.split("->")
    parts = inputs.split(",")
    lengths: dict[str, int] = {}
    for part, x in zip(parts, xs, strict=True):
        for letter, n in zip(part, np.shape(x), strict=True):
            lengths[letter] = n if lengths.get(letter, 1) == 1 else lengths[letter]
    return [
        _einsum_cotangent(g, output, i, parts, xs, lengths, bool(optimize)) if wanted[i] else None
        for i in range(len(xs))
    ]


def _einsum_cotangent(
    g: Any,
    output: str,
    i: int,
    parts: list[str],
    xs: Sequence[Any],
    lengths: dict[str, int],
    optimize: bool,
) -> Any:
    """The cotangent of operand `i` of an einsum, of that operand's shape: an einsum of `g` and the other operands."""
    shape = np.shape(xs[i])
    own = dict(zip(parts[i], shape, strict=True))
    # An axis of length 1 that others stretch is summed over; an index that nobody else has in full is spread along.
    letters = "".join(c for c in own if own[c] == lengths[c])
    others = [(parts[j], np.conj(x)) for j, x in enumerate(xs) if j != i]
    known = set(output)
    for part, x in others:
        known |= {c for c, n in zip(part, np.shape(x), strict=True) if n == lengths[c]}
    alone = "".join(c for c in letters if c not in known)
    if alone:
        others.append((alone, np.ones(tuple(lengths[c] for c in alone), g.dtype)))
    text = ",".join([output, *(part for part, _ in others)]) + "->" + letters
    result = np.einsum(
        text, g, *(x for _, x in others), optimize=optimize or sum(map(np.size, (g, *xs))) > 4096
    )
    kept = "".join(own)
    result = np.reshape(result, tuple(own[c] for c in kept))
    if len(kept) == len(parts[i]):
        return result
    # A repeated index reads a diagonal: the cotangent is put back on it.
    steps = {
        c: np.reshape(np.arange(own[c]), (-1,) + (1,) * (len(kept) - k - 1))
        for k, c in enumerate(kept)
    }
    return scatter(result, tuple(steps[c] for c in parts[i]), shape)


@composed(np.einsum, "*operands")
def einsum(*operands: Any, optimize: Any = False) -> Any:
    """Sums of products over named indices, in all of NumPy's notations.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda a: np.einsum("ii", a))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    subscripts, xs = _explicit(operands)
    if len(xs) == 2:
        plan = _pairing(subscripts)
        lengths = plan and plan.lengths([x.shape if hasattr(x, "shape") else () for x in xs])
        if plan is not None and lengths is not None:
            return plan(xs, lengths)
    if len(xs) == 1:
        part, output = subscripts.split("->")
        lengths = {*zip(part, np.shape(xs[0]), strict=False)}
        if sorted(set(part)) == sorted(output) and len(lengths) == len(output):
            return _rearranged(xs[0], part, output)
    _demand_equal_lengths(subscripts, xs)
    if len(xs) > 2 and all(np.result_type(x).kind in "fc" for x in xs):
        path = "greedy" if optimize is False else optimize
        path = tuple(path) if isinstance(path, list) else path
        steps = _order_of_products(subscripts, tuple(np.shape(x) for x in xs), path)
        if steps:
            return _step_by_step(xs, steps, optimize)
    return apply(contracted.primitive, xs, (subscripts, optimize))


def _demand_equal_lengths(subscripts: str, xs: Sequence[Any]) -> None:
    """Refuse a diagonal over axes of two lengths. NumPy does so too, but takes a first axis of length 0 for one not met yet, and
    reads memory outside the operand."""
    for part, x in zip(subscripts.split("->")[0].split(","), xs, strict=False):
        if len(set(part)) == len(part):
            continue
        lengths: dict[str, int] = {}
        for letter, n in zip(part, np.shape(x), strict=False):
            if lengths.setdefault(letter, n) != n:
                raise ValueError(
                    f"einsum was asked for a diagonal: index {letter!r} is repeated in {part!r}. The operand of shape "
                    f"{np.shape(x)} has axes of lengths {lengths[letter]} and {n} there. Slice the operand to equal lengths."
                )


def _step_by_step(xs: Sequence[Any], steps: Sequence[tuple[Any, str]], optimize: Any) -> Any:
    """An einsum of many operands as those of few, mostly two, of which each result is an operand of a later one."""
    left = list(xs)
    for places, subscripts in steps:
        chosen = [left.pop(i) for i in places]
        few = len(chosen) < 3
        left.append(
            einsum(subscripts, *chosen)
            if few
            else apply(contracted.primitive, chosen, (subscripts, optimize))
        )
    return left[0]


DIRECTLY = 4096
"""Products up to which an einsum of many operands is one loop over all its indices."""


@functools.lru_cache(maxsize=1024)
def _order_of_products(
    subscripts: str, shapes: tuple[tuple[int, ...], ...], path: Any
) -> list[tuple[tuple[int, ...], str]]:
    """The order in which NumPy would multiply: places among the operands left, last ones first, and subscripts; none if all at once."""
    inputs, output = subscripts.split("->")
    parts = inputs.split(",")
    lengths: dict[str, int] = {}
    for part, shape in zip(parts, shapes, strict=True):
        if len(part) != len(shape) or len(set(part)) < len(part):
            return []
        if any(lengths.setdefault(c, n) != n for c, n in zip(part, shape, strict=True)):
            return []  # an axis is stretched, or NumPy is to say what is wrong
    if prod(lengths.values()) <= DIRECTLY or not set(output) <= set(lengths):
        return []
    empty = [np.broadcast_to(0.0, shape) for shape in shapes]
    steps = []
    path = list(path) if isinstance(path, tuple) else path
    for pair in np.einsum_path(subscripts, *empty, optimize=path)[0][1:]:
        places = tuple(sorted(pair, reverse=True))
        operands = [parts.pop(i) for i in places]
        wanted = set("".join([*parts, output]))
        result = "".join(dict.fromkeys(c for part in operands for c in part if c in wanted))
        if not parts:
            result = output
        steps.append((places, ",".join(operands) + "->" + result))
        parts.append(result)
    return steps


def _rearranged(x: Any, have: str, want: str) -> Any:
    """An einsum that sums nothing, as the view that it is in NumPy: diagonals, and axes in another order."""
    for c in want:
        while have.count(c) > 1:
            i = have.index(c)
            j = have.index(c, i + 1)
            x, have = diagonal(x, 0, i, j), have[:i] + have[i + 1 : j] + have[j + 1 :] + c
    return transpose(x, tuple(have.index(c) for c in want))


class _Pairing:
    """An einsum of two operands as one product: of matrices where indices are summed over, of elements where none is.

    The operands' axes are put in the order (shared, own, summed) and (shared, summed, own), each group as one axis. BLAS then does
    what takes NumPy's einsum ten times as long, and the derivative is that of a product.
    """

    def __init__(self, first: str, second: str, output: str) -> None:
        """Sort the indices of a product of two operands: shared, summed, and those of one alone."""
        self.parts = first, second
        both = set(first) & set(second)
        self.shared = "".join(c for c in output if c in both)
        self.summed = "".join(c for c in first if c in both and c not in output)
        own = ["".join(c for c in output if c not in both and c in part) for part in self.parts]
        # Of a result in the other order the factors change places, which saves transposing it.
        self.swapped = bool(self.summed) and output == self.shared + own[1] + own[0] != (
            self.shared + own[0] + own[1]
        )
        if self.swapped:
            self.parts = second, first
            own.reverse()
        self.own = own
        self.output = output
        self.result = self.shared + own[0] + own[1]

    def lengths(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int] | None:
        """Length of each index, from the operands' shapes as they were given; None where einsum would stretch an axis, or raise."""
        lengths: dict[str, int] = {}
        for part, shape in zip(self.parts[:: -1 if self.swapped else 1], shapes, strict=True):
            if len(part) != len(shape):
                return None
            for c, n in zip(part, shape, strict=True):
                if lengths.setdefault(c, n) != n:
                    return None
        return lengths

    def __call__(self, xs: Sequence[Any], lengths: dict[str, int]) -> Any:
        x, y = xs[::-1] if self.swapped else xs
        (a, b), (own_a, own_b) = self.parts, self.own
        if not self.summed:
            return multiply(_spread_out(x, a, self.output), _spread_out(y, b, self.output))
        single = not self.shared  # else the axes of both factors must be there
        x = _grouped(x, a, (*self.shared, own_a, self.summed), lengths, single)
        y = _grouped(y, b, (*self.shared, self.summed, own_b), lengths, single)
        product = matmul(x, y)
        shape = tuple(lengths[c] for c in self.result)
        if product.shape != shape:
            product = reshape(product, shape)
        return _ordered_axes(product, self.result, self.output)


def _ordered_axes(x: Any, have: str, want: str) -> Any:
    return x if have == want else transpose(x, tuple(have.index(c) for c in want))


def _spread_out(x: Any, have: str, want: str) -> Any:
    """Axes in the order wanted, with those that it lacks as length 1."""
    x = _ordered_axes(x, have, "".join(c for c in want if c in have))
    absent = tuple(i for i, c in enumerate(want) if c not in have)
    return expand_dims(x, absent) if absent else x


def _grouped(
    x: Any, have: str, groups: Sequence[str], lengths: dict[str, int], vectors: bool
) -> Any:
    """Axes in the order of the groups, each group as one axis; a group without axes is left out where `vectors` may be."""
    x = _ordered_axes(x, have, "".join(groups))
    groups = [group for group in groups if group or not vectors]
    if all(len(group) == 1 for group in groups):
        return x
    return reshape(x, tuple(prod(lengths[c] for c in group) for group in groups))


@functools.cache
def _pairing(subscripts: str) -> _Pairing | None:
    """How to write an einsum of two operands as a product; None where an index is repeated in one, or summed over alone."""
    inputs, output = subscripts.split("->")
    first, second = inputs.split(",")
    repeated = any(len(set(part)) < len(part) for part in (first, second, output))
    alone = (set(first) ^ set(second)) - set(output)
    unknown = set(output) - set(first) - set(second)
    return None if repeated or alone or unknown else _Pairing(first, second, output)


def _explicit(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Subscripts with every index and the output named by letters, and the operands."""
    if isinstance(operands[0], str):
        text, xs = operands[0].replace(" ", ""), [operand(x) for x in operands[1:]]
        inputs, arrow, output = text.partition("->")
        if unknown := set(text.replace("...", "").replace("->", "")) - set(
            string.ascii_letters + ","
        ):
            raise ValueError(
                f"einsum was given {operands[0]!r}, in which {min(unknown)!r} stands, but subscripts are letters, commas, an ellipsis and "
                'an arrow: write one letter for each axis, as in "ij,jk->ik".'
            )
        parts = inputs.split(",")
        if arrow and "." not in text and len(parts) == len(xs):
            return text, xs
    else:
        xs = [operand(x) for x in operands[: len(operands) // 2 * 2 : 2]]
        parts = [_lettered(sublist) for sublist in operands[1 : 2 * len(xs) : 2]]
        arrow = "->" if len(operands) % 2 else ""
        output = _lettered(operands[-1]) if arrow else ""
    if len(parts) != len(xs):
        raise ValueError(
            f"einsum was given subscripts for {len(parts)} operands, but {len(xs)} operands."
        )
    for part, x in zip(parts, xs, strict=True):
        letters = len(part.replace("...", ""))
        if letters > np.ndim(x) or ("..." not in part and letters < np.ndim(x)):
            raise ValueError(
                f"einsum was given subscripts {part!r} for an operand of shape {np.shape(x)}: write one letter for each of its axes."
            )
    free = [c for c in string.ascii_letters if c not in "".join([*parts, output])]
    widest = 0
    for i, (part, x) in enumerate(zip(parts, xs, strict=True)):
        if "..." in part:
            count = np.ndim(x) - len(part) + 3
            widest = max(widest, count)
            # The last axes under the dots are the ones that are aligned.
            parts[i] = part.replace("...", "".join(free[:count][::-1]))
    dots = "".join(free[:widest][::-1])
    if arrow:
        output = output.replace("...", dots)
    else:
        letters = "".join(parts)
        output = dots + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots)
        )
    return ",".join(parts) + "->" + output, xs


def _lettered(sublist: Any) -> str:
    # In the order of the characters, so that an output that is not given comes in the order of the numbers.
    letters = string.ascii_uppercase + string.ascii_lowercase
    return "".join("..." if i is Ellipsis else letters[int(i)] for i in sublist)


# --------------------------------------------------------------------------------------- other products


@composed(np.cross, "a", "b")
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """Cross product of vectors of 3 components (or of 2, whose third is taken as 0).

    >>> import tapegrad as tg
    >>> tg.cross(tg.tensor([1.0, 0.0, 0.0]), [0.0, 1.0, 0.0])
    tensor([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    lengths = np.shape(a)[-1], np.shape(b)[-1]
    if not {2, 3}.issuperset(lengths):
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    if 2 in lengths:
        np.cross(
            np.zeros(lengths[0]), np.zeros(lengths[1])
        )  # NumPy says that this is deprecated, once it is
    a0, a1, a2 = (a[..., i] if i < lengths[0] else None for i in range(3))
    b0, b1, b2 = (b[..., i] if i < lengths[1] else None for i in range(3))
    last = a0 * b1 - a1 * b0
    if lengths == (2, 2):
        return last
    if a2 is None:
        parts = [a1 * b2, -(a0 * b2), last]
    elif b2 is None:
        parts = [-(a2 * b1), a2 * b0, last]
    else:
        parts = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, last]
    return moveaxis(stack(parts, -1), -1, axisc)


@composed(np.kron, "a", "b")
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: b, once for every entry of a and multiplied by it.

    >>> import tapegrad as tg
    >>> tg.kron(tg.tensor([1.0, 2.0]), [1.0, 10.0])
    tensor([ 1., 10.,  2., 20.])
    """
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return multiply(a, b)
    ndim = max(np.ndim(a), np.ndim(b))
    long_a, long_b = ((1,) * (ndim - np.ndim(x)) + np.shape(x) for x in (a, b))
    a = reshape(a, tuple(n for length in long_a for n in (length, 1)))
    b = reshape(b, tuple(n for length in long_b for n in (1, length)))
    return reshape(multiply(a, b), tuple(m * n for m, n in zip(long_a, long_b, strict=True)))


def _vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """Inner products of vectors along an axis, the first ones conjugated.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.vecdot(m, m)
    tensor([ 5., 25.])
    """
    return reductions.sum(np.conj(moveaxis(x1, axis, -1)) * moveaxis(x2, axis, -1), -1)


def _demand_axes(name: str, x1: Any, least1: int, x2: Any, least2: int) -> None:
    if np.ndim(x1) < least1 or np.ndim(x2) < least2:
        kinds = ("", "vectors", "matrices")
        raise ValueError(
            f"{name} was given shapes {np.shape(x1)} and {np.shape(x2)}, but it multiplies {kinds[least1]} by {kinds[least2]}: "
            "np.matmul takes either, multiply takes numbers."
        )


def _matvec(x1: Any, x2: Any) -> Any:
    """Products of matrices and vectors, in stacks.

    >>> import numpy as np, tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.matvec(m, np.ones(2))
    tensor([3., 7.])
    """
    _demand_axes("matvec", x1, 2, x2, 1)
    return matmul(x1, expand_dims(x2, -1))[..., 0]


def _vecmat(x1: Any, x2: Any) -> Any:
    """Products of (conjugated) vectors and matrices, in stacks.

    >>> import numpy as np, tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.vecmat(np.ones(2), m)
    tensor([4., 6.])
    """
    _demand_axes("vecmat", x1, 1, x2, 2)
    return matmul(expand_dims(np.conj(x1), -2), x2)[..., 0, :]


for _of, _product in ((np.vecdot, _vecdot), (np.matvec, _matvec), (np.vecmat, _vecmat)):
    _product.__name__ = _product.__qualname__ = _of.__name__
    composed(_of, "x1", "x2")(_product)


def _i1(x: Any) -> Any:
    from scipy.special import i1  # not at import: it takes a tenth of a second

    return i1(x)


# ---------------------------------------------------------------------------------------- parts of numbers
#
# np.sinc(x) is sin(πx) / (πx). Its slope (cos(πx) - sinc(x)) / x cancels near 0, where eight terms of the series
# take over: -π²x/3 (1 - t/10 (1 - t/28 (1 - ...))) with t = (πx)².

# fmt: off
sinc = elementwise(
    np.sinc,
    lambda x, out: select(
        np.abs(x) < 0.3,
        -3.2898681336964524 * x * (1 - (np.pi * x) ** 2 / 10 * (1 - (np.pi * x) ** 2 / 28 * (1 - (np.pi * x) ** 2 / 54 * (
            1 - (np.pi * x) ** 2 / 88 * (1 - (np.pi * x) ** 2 / 130 * (1 - (np.pi * x) ** 2 / 180 * (
                1 - (np.pi * x) ** 2 / 238 * (1 - (np.pi * x) ** 2 / 304)))))))),
        (np.cos(np.pi * x) - out) / select(np.abs(x) < 0.3, 1.0, x),
    ),
)
spacing = elementwise(np.spacing, 0, domain=unit, holomorphic=False)
i0 = elementwise(np.i0, lambda x: _i1(x), unsupported={
    "complex": "np.i0 takes real numbers only",
})
# fmt: on


def _ldexp(x: Any, x2: Any) -> Any:
    return np.ldexp(x, x2)


@primitive(
    _ldexp,
    name="ldexp",
    linear=True,
    unsupported={"complex": "np.ldexp takes real numbers only"},
    samples=[
        call((3,), x2=np.array([1, -2, 3])),
        call((2, 1), x2=np.array([1, -2, 3])),
        call((2,), x2=4),
    ],
)
def scaled(g, *, x2):
    """x1 * 2**x2, for integers x2."""
    return np.ldexp(g, x2)


@composed(np.ldexp, "x1")
def ldexp(x1: Any, x2: Any) -> Any:
    """x1 * 2**x2, for integers x2.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.ldexp(x, 3))(1.0)
    8.0
    """
    return scaled(x1, np.array(x2))


@composed(np.frexp, "x")
def frexp(x: Any) -> Any:
    """Mantissa and exponent of 2; the exponent is a constant.

    >>> import tapegrad as tg
    >>> tg.frexp(tg.tensor(6.0))
    (tensor(0.75), tensor(3, dtype=int32))
    """
    exponent = np.frexp(raw(x))[1]
    return scaled(x, -exponent), wrap(exponent)


@composed(np.modf, "x")
def modf(x: Any) -> Any:
    """Fractional part, which has the slope 1, and integral part, which has the slope 0.

    >>> import tapegrad as tg
    >>> tg.modf(tg.tensor(1.5))
    (tensor(0.5), tensor(1.))
    """
    infinite = np.isinf(raw(x))
    if not np.any(infinite):
        return fmod(x, 1), trunc(x)
    zero = np.copysign(np.zeros((), x.dtype), raw(x))
    return where(infinite, zero, fmod(where(infinite, zero, x), 1)), trunc(x)


@composed(np.divmod, "x1", "x2")
def divmod(x1: Any, x2: Any) -> Any:
    """Floor of the quotient, which has the slope 0, and remainder.

    >>> import tapegrad as tg
    >>> tg.divmod(tg.tensor(7.0), 2.0)
    (tensor(3.), tensor(1.))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


@composed(np.fix, "x")
def fix(x: Any) -> Any:
    """The nearest integer towards 0; its derivative is 0.

    >>> import tapegrad as tg
    >>> tg.fix(tg.tensor([-1.5, 1.5]))
    tensor([-1.,  1.])
    """
    return trunc(x)


@composed(np.round, "a", also=(np.around,))
def round(a: Any, decimals: int = 0) -> Any:
    """The nearest number with so many decimals; its derivative is 0.

    >>> import tapegrad as tg
    >>> tg.round(tg.tensor([1.26]), 1)
    tensor([1.3])
    """
    if a.dtype.kind == "c":
        return round(np.real(a), decimals) + 1j * round(np.imag(a), decimals)
    unit = np.power(10.0, abs(decimals)).item()  # infinite where Python's power raises
    return (
        rint(a)
        if decimals == 0
        else rint(a * unit) / unit
        if decimals > 0
        else rint(a / unit) * unit
    )


Tensor.__divmod__ = divmod
Tensor.__rdivmod__ = lambda x2, x1: divmod(x1, x2)
Tensor.round = Tensor.__round__ = lambda a, decimals=None: round(a, decimals or 0)


@composed(np.nan_to_num, "x")
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Numbers in place of NaN and infinities, where the gradient is 0.

    >>> import numpy as np, tapegrad as tg
    >>> tg.nan_to_num(tg.tensor([1.0, np.nan]))
    tensor([1., 0.])
    """
    if not copy:
        raise NotDifferentiable(
            "np.nan_to_num(t, copy=False) was asked to overwrite a tracked tensor. Use the result: t = np.nan_to_num(t).",
            name="in-place",
        )
    if x.dtype.kind == "c":
        return nan_to_num(np.real(x), True, nan, posinf, neginf) + 1j * nan_to_num(
            np.imag(x), True, nan, posinf, neginf
        )
    given, values, limits = x, raw(x), np.finfo(x.dtype)
    for found, number in (
        (np.isnan(values), nan),
        (np.isposinf(values), limits.max if posinf is None else posinf),
        (np.isneginf(values), limits.min if neginf is None else neginf),
    ):
        if np.any(found):
            x = where(found, as_array(number, x.dtype), x)
    return np.copy(x) if x is given else x


@composed(np.angle, "z", plain=elementary.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """Angle of complex numbers, in radians or degrees.

    >>> import tapegrad as tg
    >>> tg.angle(tg.tensor(1.0 + 0j)).item()
    0.0
    """
    return elementary.angle(z) * (180 / np.pi) if deg else elementary.angle(z)


@composed(np.real_if_close, "a")
def real_if_close(a: Any, tol: float = 100) -> Any:
    """The real part, if all imaginary parts are negligible.

    >>> import tapegrad as tg
    >>> tg.real_if_close(tg.tensor([1 + 0j]))
    tensor([1.])
    """
    return np.real(a) if np.isrealobj(np.real_if_close(raw(a), tol)) else a


@composed(np.astype, "x")
def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    """Another dtype."""
    return x.astype(dtype, copy=copy)


# --------------------------------------------------------------------------------------------- polynomials


@composed(np.polyval, "p", "x")
def polyval(p: Any, x: Any) -> Any:
    """Value of a polynomial, coefficients from the highest power down: differentiated by them and by x.

    >>> import tapegrad as tg
    >>> tg.polyval(tg.tensor([1.0, 0.0, 2.0]), 3.0).item()
    11.0
    """
    value = laid_like(np.zeros(np.shape(x), np.result_type(raw(x))), x)
    for coefficient in p:
        value = value * x + coefficient
    return value


def _alike(a1: Any, a2: Any) -> list[Any]:
    """Two polynomials with as many coefficients."""
    both = atleast_1d(a1, a2)
    n = max(map(len, both))
    return [concatenate([np.zeros(n - len(a), raw(a).dtype), a]) if len(a) < n else a for a in both]


@composed(np.polyadd, "a1", "a2")
def polyadd(a1: Any, a2: Any) -> Any:
    """Sum of two polynomials.

    >>> import tapegrad as tg
    >>> tg.polyadd(tg.tensor([1.0, 2.0]), [1.0])
    tensor([1., 3.])
    """
    a1, a2 = _alike(a1, a2)
    return a1 + a2


@composed(np.polysub, "a1", "a2")
def polysub(a1: Any, a2: Any) -> Any:
    """Difference of two polynomials.

    >>> import tapegrad as tg
    >>> tg.polysub(tg.tensor([1.0, 2.0]), [1.0])
    tensor([1., 1.])
    """
    a1, a2 = _alike(a1, a2)
    return a1 - a2


@composed(np.polymul, "a1", "a2")
def polymul(a1: Any, a2: Any) -> Any:
    """Product of two polynomials, leading zeros left out.

    >>> import tapegrad as tg
    >>> tg.polymul(tg.tensor([1.0, 2.0]), [1.0, 0.0])
    tensor([1., 2., 0.])
    """
    # Zeros are left out of the product, since the coefficients that stay depend on those that are 0 as well.
    a1, a2 = (a if len(a) else np.zeros(1, a.dtype) for a in atleast_1d(a1, a2))
    leading = [int(np.argmax(raw(a) != 0)) if np.any(raw(a) != 0) else len(a) - 1 for a in (a1, a2)]
    return convolve(a1, a2)[sum(leading) :]


@composed(np.polydiv, "u", "v")
def polydiv(u: Any, v: Any) -> Any:
    """Quotient and remainder of two polynomials.

    >>> import tapegrad as tg
    >>> tg.polydiv(tg.tensor([1.0, 3.0, 2.0]), [1.0, 1.0])
    (tensor([1., 2.]), tensor([0.]))
    """
    u, v = atleast_1d(u, v)
    m, n = len(u) - 1, len(v) - 1
    scale = 1.0 / v[0]
    r = u + 0.0 * (raw(u[0]) + raw(v[0]))
    quotient = []
    for _ in range(m - n + 1):
        d = scale * r[0]
        quotient.append(d)
        # The leading coefficient is 0 from here on: it is left out instead of being stored.
        r = concatenate([r[1 : n + 1] - d * v[1:], r[n + 1 :]])
    kind = raw(r).dtype
    q = stack(quotient) if quotient else np.zeros(1, kind)
    # NumPy keeps the rounding errors in the places of the quotient: too small to count, they are trimmed away.
    while len(r) > 1 and np.allclose(raw(r)[0], 0, rtol=1e-14):
        r = r[1:]
    return q, r if len(r) else np.zeros(1, kind)


@composed(np.polyder, "p")
def polyder(p: Any, m: int = 1) -> Any:
    """Derivative of a polynomial, m times.

    >>> import tapegrad as tg
    >>> tg.polyder(tg.tensor([1.0, 2.0, 3.0]))
    tensor([2., 2.])
    """
    m = int(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


@composed(np.polyint, "p", "k")
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Antiderivative of a polynomial, m times, with the constants k.

    >>> import tapegrad as tg
    >>> tg.polyint(tg.tensor([2.0, 2.0]))
    tensor([1., 2., 0.])
    """
    m = int(m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    k = np.zeros(m) if k is None else atleast_1d(k)
    if len(k) == 1 and m > 1:
        k = k[0] * np.ones(m)
    if len(k) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(m):
        p = concatenate([p / np.arange(len(p), 0, -1), reshape(k[i], (1,))])
    return p


@composed(np.vander, "x")
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """Powers of the entries as rows, the highest first unless `increasing`.

    >>> import tapegrad as tg
    >>> tg.vander(tg.tensor([2.0, 3.0]))
    tensor([[2., 1.],
            [3., 1.]])
    """
    if np.ndim(x) != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = len(x) if N is None else int(N)
    x = x.astype(np.promote_types(x.dtype, int), copy=False)
    columns = [np.ones(len(x), x.dtype)]
    while len(columns) < n:
        columns.append(columns[-1] * x)
    columns = columns[:n] if increasing else columns[:n][::-1]
    return stack(columns, 1) if columns else x[:, None][:, :0]


@composed(np.poly, "seq_of_zeros")
def poly(seq_of_zeros: Any) -> Any:
    """Coefficients of the polynomial with these zeros; of a square matrix, its characteristic polynomial.

    >>> import tapegrad as tg
    >>> tg.poly(tg.tensor([1.0, 2.0]))
    tensor([ 1., -3.,  2.])
    """
    zeros = atleast_1d(seq_of_zeros)
    if np.ndim(zeros) == 2 and np.shape(zeros)[0] == np.shape(zeros)[1] != 0:
        zeros = np.linalg.eigvals(zeros)
    elif np.ndim(zeros) != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    coefficients: Any = np.ones(1, zeros.dtype)
    for zero in zeros:
        coefficients = convolution(coefficients, stack([np.ones((), zeros.dtype), -zero]), "full")
    values = raw(zeros)
    if values.dtype.kind == "c" and np.all(np.sort(values) == np.sort(values.conj())):
        coefficients = np.real(coefficients)
    return coefficients


@primitive(np.roots, settled=False, samples=[call(np.array([2.0, -3.0, -4.0, 1.0])), call(np.array([1.0, 1.0, 1.0]))], unsupported={
    "complex": "a root's branch is found by an eigenvalue solver, which orders roots as it likes",
    "derivative": "complex steps would reorder the roots; tests/test_vocabulary.py compares with differences",
    "dtype": "NumPy's eigenvalues of a real companion matrix are real or complex by their values",
    "strided": "drawn coefficients may have several equal roots",
})  # fmt: skip
def zeros_of(g, x, out):
    """Roots of a polynomial: dr = -Σ r^(n-k) dp_k / p'(r), by the implicit function theorem."""
    n = len(x) - 1
    powers = np.vander(out, n + 1)
    slope = np.matmul(powers[:, 1:], x[:-1] * np.arange(n, 0, -1))
    return -np.matmul(g, np.conj(powers / slope[:, None]))


@composed(np.roots, "p")
def roots(p: Any) -> Any:
    """Roots of a polynomial, coefficients from the highest power down; infinite slopes where roots coincide.

    >>> import tapegrad as tg
    >>> tg.roots(tg.tensor([1.0, -3.0, 2.0])).numpy().real.round(6)
    array([2., 1.])
    """
    p = atleast_1d(p)
    if np.ndim(p) != 1:
        raise ValueError("Input must be a rank-1 array.")
    nonzero = np.flatnonzero(raw(p))
    if not len(nonzero):
        return wrap(np.array([]))
    if nonzero[0] > 0:
        raise NotDifferentiable(
            "np.roots was asked of tracked coefficients that begin with 0, where a root comes in from infinity. Leave them out.",
            name="no-slope-here",
        )
    return zeros_of(p)


@composed(np.polyfit, "x", "y", "w")
def polyfit(
    x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """Coefficients of the polynomial of least squares through points; differentiated by places, values and weights.

    >>> import tapegrad as tg
    >>> tg.polyfit([0.0, 1.0, 2.0], tg.tensor([1.0, 3.0, 5.0]), 1).numpy().round(6)
    array([2., 1.])
    """
    if full:
        raise NotDifferentiable(
            "np.polyfit(..., full=True) was asked of a tracked tensor, but singular values and rank have no rule here. "
            "Leave full out, or use np.linalg.lstsq."
        )
    np.polyfit(
        raw(x), raw(y), deg, rcond, False, None if w is None else raw(w)
    )  # NumPy checks, and warns of a loss of rank
    n = int(deg) + 1
    columns, values = vander(x + 0.0 if isinstance(x, Tensor) else as_array(x) + 0.0, n), y
    if w is not None:
        columns = columns * w[:, None]
        values = values * (w if np.ndim(y) == 1 else w[:, None])
    scale = np.sqrt(reductions.sum(columns * columns, 0))
    columns = columns / scale
    pseudoinverse = np.linalg.pinv(
        columns, len(x) * np.finfo(raw(columns).dtype).eps if rcond is None else rcond
    )
    fitted = matmul(pseudoinverse, values)
    coefficients = transpose(transpose(fitted) / scale)
    if not cov:
        return coefficients
    base = np.linalg.inv(matmul(transpose(columns), columns)) / (scale[:, None] * scale)
    if cov == "unscaled":
        factor: Any = 1
    else:
        if len(x) <= n:
            raise ValueError(
                "the number of data points must exceed order to scale the covariance matrix"
            )
        residual = values - matmul(columns, fitted)
        factor = reductions.sum(residual * residual, 0) / (len(x) - n)
    return coefficients, base * factor if np.ndim(y) == 1 else base[:, :, None] * factor


# ---------------------------------------------------------------------------------------------------- maps


@composed(np.apply_along_axis, "*func1d", "arr", "*args", "*kwargs")
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """A function of a vector, applied to every line along an axis; its results take the axis' place.

    >>> import numpy as np, tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.apply_along_axis(np.sum, 0, m)
    tensor([4., 6.])
    """
    axis = normalize_axis_index(axis, np.ndim(arr))
    rows = moveaxis(arr, axis, -1)
    lead = np.shape(rows)[:-1]
    results = [operand(func1d(rows[i], *args, **kwargs)) for i in np.ndindex(lead)]
    if not results:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    each = np.shape(results[0])
    joined = reshape(apply(stack.primitive, results, (0,)), lead + each)
    return moveaxis(
        joined, tuple(range(len(lead), len(lead) + len(each))), tuple(range(axis, axis + len(each)))
    )


@composed(np.apply_over_axes, "*func", "a")
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """A function of (tensor, axis), applied over one axis after the other; a reduced axis stays as length 1.

    >>> import numpy as np, tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.apply_over_axes(np.sum, m, [0, 1])
    tensor([[10.]])
    """
    ndim = np.ndim(a)
    for axis in np.ravel(axes):
        axis = normalize_axis_index(axis, ndim)
        result = func(a, axis)
        a = result if np.ndim(result) == np.ndim(a) else expand_dims(result, axis)
        if np.ndim(a) != ndim:
            raise ValueError("function is not returning an array of the correct shape")
    return a


def vectorize(pyfunc: Callable[..., Any], excluded: Any = ()) -> Callable[..., Any]:
    """A function of numbers as one of arrays, broadcast: called once per entry, so every op it uses is recorded.

    As np.vectorize, it is a convenience and a loop. `excluded` are positions or names of arguments passed on whole.
    Results may be tuples. Without tensors among the arguments the result is np.vectorize's.

    >>> import numpy as np, tapegrad as tg
    >>> relu = tg.vectorize(lambda x: x if x > 0 else 0.0 * x)
    >>> tg.grad(lambda x: relu(x).sum())(np.array([-1.0, 2.0]))
    array([0., 1.])
    """
    demand_callable(pyfunc, "vectorize")
    excluded = set(excluded)

    def vectorized(*args: Any, **kwargs: Any) -> Any:
        """Call the function for each entry of the broadcast arguments, and join the results."""
        of = np.vectorize(pyfunc, excluded=excluded)
        if not any(isinstance(v, Tensor) for v in (*args, *kwargs.values())):
            return of(*args, **kwargs)
        return spread(of, pyfunc, args, kwargs, first=False)

    vectorized.__name__ = getattr(pyfunc, "__name__", "vectorized")
    vectorized.__doc__ = pyfunc.__doc__
    return vectorized
