"""What generated code calls: adding cotangents over broadcast axes, and the stacks that keep values for the reverse.

Everything here is compiled by Numba into the program that uses it; what almost every program uses is emitted (see `emitted`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, prange
from numba.core import types
from numba.extending import overload, register_jitable

from ..core import checking
from ..errors import NotDifferentiable
from ..ops.linear_algebra import EQUAL
from .emitted import (
    EXCEEDED,
    accumulate,
    at,
    clear,
    grown,
    has_nan,
    least,
    strong,
    strong_quotient,
    zeros_like,
    zeros_of,
)
from .pipelines import Inner, Outer, Uniform

# Division by zero gives inf, as in NumPy, and lets loops vectorise.
KERNEL_OPTIONS: dict[str, Any] = {"error_model": "numpy", "pipeline_class": Inner}
if checking.on():
    KERNEL_OPTIONS["boundscheck"] = True
kernel = njit(**KERNEL_OPTIONS)


def outer(options: dict[str, Any], uniform: bool = False) -> Any:
    """The compiler of a whole derivative. `uniform`: every name in the derivative has one type."""
    return njit(**options, pipeline_class=Uniform if uniform else Outer)


def part(**options: Any) -> Any:
    """The compiler, with the user's options, of a function that runs some passes of a parallel loop."""
    return njit(**{**KERNEL_OPTIONS, **options})


# Only loops that are written as parallel are: what Numba would do with array expressions costs compilation.
_LOOPS_ONLY: dict[str, Any] = {
    "prange": True,
    **dict.fromkeys(
        ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion"),
        False,
    ),
}
_THREADS: dict[str, Any] = {**KERNEL_OPTIONS, "parallel": _LOOPS_ONLY}
shared = njit(**_THREADS)


@kernel
def separate(a: Any, b: Any) -> bool:
    """Whether the memory ranges of two arrays are apart, whatever their layout."""
    if a.size == 0 or b.size == 0:
        return True
    first_a, last_a = a.ctypes.data, a.ctypes.data + a.itemsize
    for k in range(a.ndim):
        reach = (a.shape[k] - 1) * a.strides[k]
        first_a += min(reach, 0)
        last_a += max(reach, 0)
    first_b, last_b = b.ctypes.data, b.ctypes.data + b.itemsize
    for k in range(b.ndim):
        reach = (b.shape[k] - 1) * b.strides[k]
        first_b += min(reach, 0)
        last_b += max(reach, 0)
    return last_a <= first_b or last_b <= first_a


_CHUNKS = 32
_PRIVATE_BYTES = 1 << 28


@kernel
def chunk_count(passes: int, least: int, private: int) -> int:
    """Chunks of a parallel loop, each of so many passes at least, and with so many bytes of its own. Sums are taken chunk
    by chunk, so the number of threads has no influence."""
    n = min(_CHUNKS, passes // least)
    if private > 0:
        n = min(n, _PRIVATE_BYTES // private)
    return max(n, 1)


@kernel
def in_order(a: Any) -> Any:
    """The sum of a few numbers, one after the other."""
    total = a[0]
    for k in range(1, a.size):
        total += a[k]
    return total


def in_float32(a: Any) -> Any:
    """The array in float32, as it is where it is of that type."""
    raise NotImplementedError("for compiled code")


def in_float64(a: Any) -> Any:
    """The array in float64, as it is where it is of that type."""
    raise NotImplementedError("for compiled code")


@overload(in_float32)
def _in_float32(a: Any) -> Any:
    def convert(a: Any) -> Any:
        return a.astype(np.float32)

    return _same if a.dtype is types.float32 else convert


@overload(in_float64)
def _in_float64(a: Any) -> Any:
    def convert(a: Any) -> Any:
        return a.astype(np.float64)

    return _same if a.dtype is types.float64 else convert


def _same(a: Any) -> Any:
    return a


def unless_zero(g: Any, partial: Any) -> Any:
    """g * partial, and 0 where the partial is 0, however infinite g is."""
    raise NotImplementedError("for compiled code")


@overload(unless_zero)
def _unless_zero(g: Any, partial: Any) -> Any:
    if isinstance(partial, types.Array) or isinstance(g, types.Array):

        def arrays(g: Any, partial: Any) -> Any:
            return np.where(partial == 0.0, 0.0, g * partial)

        return arrays

    def numbers(g: Any, partial: Any) -> Any:
        return 0.0 if partial == 0.0 else g * partial

    return numbers


@kernel
def _restored(g: Any, out: Any) -> Any:
    """`out`, which was computed from g elementwise, with 0 wherever g is 0. Nearly always `out` has these zeros already."""
    wrong = False
    for v in out.flat:
        wrong |= v != v
    return np.where(g == 0.0, 0.0, out) if wrong else out


@kernel
def strong_all(g: Any, partial: Any) -> Any:
    """`strong` of arrays, or of an array and a number."""
    return _restored(g, g * partial)


@kernel
def strong_quotient_all(g: Any, divisor: Any) -> Any:
    """`strong_quotient` of arrays, or of an array and a number."""
    return _restored(g, g / divisor)


@kernel
def spread(x: Any, extreme: Any, g: Any) -> Any:
    """The cotangent of a maximum or minimum: equal shares to all elements that reach it."""
    out = np.zeros(x.shape)
    n = 0
    for k in np.ndindex(x.shape):
        if x[k] == extreme:
            n += 1
    for k in np.ndindex(x.shape):
        if x[k] == extreme:
            out[k] = g / n
    return out


@kernel
def others_product(x: Any) -> Any:
    """For each element the product of all others."""
    out = np.ones(x.shape)
    before: Any = 1.0
    for k in np.ndindex(x.shape):
        out[k] = before
        before *= x[k]
    flat, given = out.ravel(), np.ascontiguousarray(x).ravel()
    behind: Any = 1.0
    for i in range(flat.size - 1, -1, -1):
        flat[i] *= behind
        behind *= given[i]
    return flat.reshape(x.shape)


@kernel
def sorted_back(x: Any, g: Any) -> Any:
    out = np.empty(g.shape, g.dtype)
    order = np.argsort(x, kind="mergesort")
    for k in range(order.size):
        out[order[k]] = g[k]
    return out


@kernel
def ranked(x: Any, y: Any, g: Any) -> Any:
    """g, whose entries belong to the elements of x, in the order of y; y holds the elements of x in other places."""
    out = np.empty(g.shape, g.dtype)
    first, second = np.argsort(x, kind="mergesort"), np.argsort(y, kind="mergesort")
    for k in range(first.size):
        out[second[k]] = g[first[k]]
    return out


@kernel
def _interp_slopes(x: float, knots: Any, values: Any) -> Any:
    """The knot left of x, the part (0 to 1) of the way from it to the next knot, and the slope there; outside there is none.

    As `ops.calculus.interp`: at a knot the slope is that of the piece to the right, at the last one of the piece to the left.
    """
    last = knots.size - 1
    if x < knots[0] or last == 0:
        return 0, 0.0, 0.0
    if x > knots[last]:
        return last, 0.0, 0.0
    k = np.searchsorted(knots, x, side="right") - 1
    piece = min(k, last - 1)
    width = knots[piece + 1] - knots[piece]
    slope = (values[piece + 1] - values[piece]) / width if width != 0.0 else 0.0
    if x == knots[k] and not np.isfinite(slope):
        slope = 0.0
    return k, (x - knots[k]) / width if k == piece else 0.0, slope


@kernel
def interp_back(x: Any, knots: Any, values: Any, g: Any, which: int) -> Any:
    """The cotangent of the points, knots or values of a piecewise linear interpolation."""
    out = np.zeros(x.size if which == 0 else knots.size)
    for i in range(x.size):
        if x[i] != x[i]:  # the value is x itself
            if which == 0:
                out[i] = g[i]
            continue
        k, t, slope = _interp_slopes(x[i], knots, values)
        if which == 0:
            out[i] = g[i] * slope
        elif which == 1:
            out[k] -= g[i] * slope * (1.0 - t)
            if t > 0.0:
                out[k + 1] -= g[i] * slope * t
        else:
            out[k] += g[i] * (1.0 - t)
            if t > 0.0:
                out[k + 1] += g[i] * t
    return out


def digamma(x: Any) -> Any:
    """The derivative of the logarithm of the gamma function, of a number."""
    raise NotImplementedError("for compiled code")


@overload(digamma)
def _digamma(x: Any) -> Any:
    return _digamma_of if isinstance(x, types.Float) else None


@register_jitable
def _digamma_of(x: Any) -> Any:
    """By recurrence up to 10 and Stirling's series there (Abramowitz & Stegun 1964, 6.3.5, 6.3.7 and 6.3.18)."""
    if x <= 0.0:
        if x == np.floor(x):
            return np.nan
        y = 1.0 - x
        out = -np.pi / np.tan(np.pi * (x - np.rint(x)))
    else:
        y, out = x, 0.0
    while y < 10.0:
        out -= 1.0 / y
        y += 1.0
    s = 1.0 / (y * y)
    tail = s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))
    return out + np.log(y) - 0.5 / y - s * (1 / 12 - s * (1 / 120) + s * tail)


def trigamma(x: Any) -> Any:
    """The derivative of `digamma`."""
    raise NotImplementedError("for compiled code")


@overload(trigamma)
def _trigamma(x: Any) -> Any:
    """Hurwitz's zeta(2, x), reflected for negative x (Abramowitz & Stegun 1964, 6.4.7 and 6.4.10)."""
    if not isinstance(x, types.Float):
        return None
    from ..ops.special.gamma import _zeta_of_numbers  # loads SciPy's special functions

    zeta = register_jitable(_zeta_of_numbers)

    def of(x: Any) -> Any:
        if x > 0.0:
            return zeta(2.0, x)
        if x == np.floor(x):
            return np.inf
        return (np.pi / np.sin(np.pi * (x - np.rint(x)))) ** 2 - zeta(2.0, 1.0 - x)

    return of


def digamma_rise(x: Any, y: Any) -> Any:
    """digamma(x + y) - digamma(x), without cancellation where y is small."""
    raise NotImplementedError("for compiled code")


@overload(digamma_rise)
def _digamma_rise(x: Any, y: Any) -> Any:
    if not all(isinstance(t, types.Float | types.Integer) for t in (x, y)):
        return None
    from ..ops.special.gamma import _positive_rise  # loads SciPy's special functions

    rise = register_jitable(_positive_rise)

    def of(x: Any, y: Any) -> Any:
        if x > 0.0 and x + y > 0.0:
            return rise(0, 1.0 * x, 1.0 * y)
        return _digamma_of(1.0 * x + y) - _digamma_of(1.0 * x)

    return of


# Of a symmetric matrix NumPy reads the lower triangle. That is where the cotangent stands, entries off the diagonal counting for both.


@kernel
def _half_lower(m: Any) -> Any:
    out = np.tril(m)
    for i in range(m.shape[0]):
        out[i, i] *= 0.5
    return out


@kernel
def _folded(m: Any) -> Any:
    """The cotangent of a lower triangle, from that of the symmetric matrix which it stands for."""
    return _half_lower(m + m.T)


@kernel
def eigenvalues_back(x: Any, g: Any) -> Any:
    v = np.linalg.eigh(x)[1]
    return _folded(np.dot(v * g, np.ascontiguousarray(v.T)))


@kernel
def _over_gaps(c: Any, w: Any, asked: Any) -> Any:
    """c_ij / (w_j - w_i), 0 on the diagonal. Raises NotDifferentiable where w_i and w_j are equal and `asked` is more than rounding."""
    rounding = np.finfo(w.dtype).eps * np.sqrt(w.size)
    close, negligible = 16 * rounding * np.max(np.abs(w)), 64 * rounding * np.max(asked)
    out = np.zeros_like(c)
    for i in range(w.size):
        for j in range(w.size):
            if i != j and abs(w[j] - w[i]) > close:
                out[i, j] = c[i, j] / (w[j] - w[i])
            elif i != j and asked[i, j] > negligible:
                raise NotDifferentiable(EQUAL)
    return out


@kernel
def eigenvectors_back(x: Any, g: Any) -> Any:
    """Giles, "Collected matrix derivative results for forward and reverse mode" (2008), section 3.1, for a symmetric matrix."""
    w, v = np.linalg.eigh(x)
    turned = np.ascontiguousarray(v.T)
    asked = np.zeros_like(v)
    for j in range(w.size):
        asked[:, j] = np.max(np.abs(g[:, j]))
    inner = _over_gaps(np.dot(turned, np.ascontiguousarray(g)), w, asked)
    return _folded(np.dot(np.dot(v, inner), turned))


@kernel
def cholesky_back(factor: Any, g: Any) -> Any:
    """Cotangent of A = L Lᵀ from that of L (Murray 2016, "Differentiation of the Cholesky decomposition", eq. 10)."""
    inner = _half_lower(np.dot(np.ascontiguousarray(factor.T), np.ascontiguousarray(g)))
    left = np.linalg.solve(np.ascontiguousarray(factor.T), inner)
    both = np.linalg.solve(np.ascontiguousarray(factor.T), np.ascontiguousarray(left.T)).T
    return _folded(both)


SINGULAR = (
    "the second derivative of np.linalg.det was asked at a singular matrix, where the formula of native functions divides by it: "
    "differentiate the plain function, without tg.njit, or move the matrix off that point"
)


@kernel
def cofactors(x: Any, determinant: Any) -> Any:
    """The gradient of a determinant, of singular matrices too (`ops.linear_algebra._adjugate`, transposed)."""
    n = x.shape[0]
    out = np.empty((n, n), x.dtype)
    if not np.isfinite(determinant):
        out[:] = np.nan
        return out
    if determinant != 0.0:
        inverse = np.linalg.inv(x)
        largest = np.max(np.sum(np.abs(x), axis=0)) * np.max(np.sum(np.abs(inverse), axis=0))
        if largest <= np.finfo(x.dtype).eps ** (-2 / 3):
            out[:] = determinant * inverse.T
            return out
    u, s, vt = np.linalg.svd(x)
    sign = np.linalg.det(u) * np.linalg.det(vt)
    out[:] = np.dot(u * (sign * others_product(s)), vt)
    return out


@kernel
def singular_values_back(x: Any, g: Any) -> Any:
    u, _, vt = np.linalg.svd(x, False)
    return np.dot(u * g, vt)


@kernel
def _off_space(u: Any, m: Any) -> Any:
    """The part of m's columns that is orthogonal to u's columns."""
    return m - np.dot(u, np.dot(np.ascontiguousarray(u.T), m))


@kernel
def _vectors_back(u: Any, s: Any, vt: Any, g: Any) -> Any:
    """Townsend, "Differentiating the singular value decomposition" (2016), with the terms of the other factors left out."""
    inner = np.dot(np.ascontiguousarray(u.T), g)
    inner = inner - inner.T
    turned = np.dot(u, _over_gaps(inner, s * s, np.abs(inner)) * s)
    if u.shape[0] > s.size:
        turned = turned + _off_space(u, np.ascontiguousarray(g)) / s
    return np.dot(turned, vt)


@kernel
def left_vectors_back(x: Any, g: Any) -> Any:
    u, s, vt = np.linalg.svd(x, False)
    return _vectors_back(u, s, vt, g)


@kernel
def right_vectors_back(x: Any, g: Any) -> Any:
    """Those are left vectors of the transposed matrix, whose own decomposition may have other signs: hence that of x."""
    u, s, vt = np.linalg.svd(x, False)
    right, left = np.ascontiguousarray(vt.T), np.ascontiguousarray(u.T)
    return _vectors_back(right, s, left, np.ascontiguousarray(g.T)).T


_RANK = "np.linalg.qr has a derivative where a matrix has full rank"
_WIDE = "np.linalg.qr has a derivative where a matrix has as many rows as columns, or more"


@kernel
def orthogonal_back(x: Any, gq: Any, gr: Any) -> Any:
    """Cotangent of x = q r (Walter & Lehmann, "Algorithmic differentiation of linear algebra functions" (2010))."""
    if x.shape[0] < x.shape[1]:
        raise NotDifferentiable(_WIDE)
    q, r = np.linalg.qr(x)
    rounding = 16 * np.sqrt(r.shape[0]) * np.finfo(r.dtype).eps
    for k in range(r.shape[0]):
        if abs(r[k, k]) <= rounding * np.max(np.abs(r[: k + 1, k])):
            raise NotDifferentiable(_RANK)
    inner = np.dot(r, gr.T) - np.dot(gq.T, q)
    lower = np.tril(inner, -1)
    whole = lower + lower.T
    for i in range(r.shape[0]):
        whole[i, i] = inner[i, i]
    return np.ascontiguousarray(np.linalg.solve(r, (gq + np.dot(q, whole)).T).T)


@kernel
def pinv_back(x: Any, out: Any, g: Any) -> Any:
    """Golub & Pereyra, "The differentiation of pseudo-inverses" (1973), for matrices of constant rank."""
    back, turned = np.ascontiguousarray(out.T), np.ascontiguousarray(g.T)
    first = np.dot(turned, np.dot(out, back))
    second = np.dot(np.dot(back, out), turned)
    first = first - np.dot(x, np.dot(out, first))
    second = second - np.dot(np.dot(second, out), x)
    return first + second - np.dot(back, np.dot(g, back))


@kernel
def cut_pinv_back(x: Any, g: Any, rcond: Any) -> Any:
    """`pinv_back` where singular values up to `rcond` of the largest are left out (`ops.linear_algebra._cotangent_of_cut`)."""
    m, n = x.shape
    u, s, vt = np.linalg.svd(x)
    sizes = np.zeros(max(m, n), x.dtype)
    sizes[: s.size] = s
    kept = sizes > rcond * s[0]
    inner = np.dot(
        np.ascontiguousarray(u.T), np.dot(np.ascontiguousarray(g.T), np.ascontiguousarray(vt.T))
    )
    back = np.zeros((m, n), x.dtype)
    for i in range(m):
        for j in range(n):
            if kept[i] and kept[j]:
                back[j, i] -= inner[i, j] / (sizes[i] * sizes[j])
            elif kept[i] or kept[j]:
                larger, smaller = (sizes[i], sizes[j]) if kept[i] else (sizes[j], sizes[i])
                share = inner[i, j] / (larger - smaller) / (larger + smaller)
                back[i, j] += share
                if i < n and j < m:
                    back[j, i] += share * smaller / larger
    return np.dot(u, np.dot(back, vt))


def scatter_back(bar: Any, index: Any, value_bar: Any) -> None:
    """Undo `base[index] = values` in the cotangents: the last store to an element is the one that counted."""
    raise NotImplementedError("for compiled code")


@overload(scatter_back)
def _scatter_back(bar: Any, index: Any, value_bar: Any) -> Any:
    """The reverse of `a[index] = values`: the values get what came back to the places, which become 0."""
    if bar.ndim == 1:

        def elements(bar: Any, index: Any, value_bar: Any) -> None:
            # Values of length one were stretched.
            wide = value_bar.size == index.size
            for k in range(index.size - 1, -1, -1):
                value_bar[k if wide else 0] += bar[index[k]]
                bar[index[k]] = 0.0

        return elements
    if value_bar.ndim == bar.ndim:

        def rows(bar: Any, index: Any, value_bar: Any) -> None:
            wide = value_bar.shape[0] == index.size
            for k in range(index.size - 1, -1, -1):
                accumulate(value_bar[k if wide else 0], bar[index[k]])
                bar[index[k]] = 0.0

        return rows

    def stretched(bar: Any, index: Any, value_bar: Any) -> None:
        for k in range(index.size - 1, -1, -1):
            accumulate(value_bar, bar[index[k]])
            bar[index[k]] = 0.0

    return stretched


@kernel
def scatter_sum(bar: Any, index: Any) -> Any:
    """Undo `base[index] = number`; the number's cotangent."""
    total = 0.0
    for k in range(index.size):
        total += np.sum(bar[index[k]])
        bar[index[k]] = 0.0
    return total


def gather_back(bar: Any, index: Any, g: Any) -> None:
    """Undo `values = base[index]`."""
    raise NotImplementedError("for compiled code")


@overload(gather_back)
def _gather_back(bar: Any, index: Any, g: Any) -> Any:
    if bar.ndim == 1:

        def elements(bar: Any, index: Any, g: Any) -> None:
            for k in range(index.size):
                bar[index[k]] += g[k]

        return elements

    def rows(bar: Any, index: Any, g: Any) -> None:
        for k in range(index.size):
            accumulate(bar[index[k]], g[k])

    return rows


# ----------------------------------------------------------------------------------------------- stacks

_LIMIT = float(os.environ.get("TAPEGRAD_NATIVE_LIMIT", "0") or 0)


def memory_limit() -> int:
    """Bytes that one stack may take: TAPEGRAD_NATIVE_LIMIT, or else three quarters of the memory of the machine or its container."""
    if _LIMIT:
        return int(_LIMIT)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = 21 << 30
    # What a container may use, in the second and in the first form that Linux tells it.
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max", or no such file
            memory = min(memory, int(Path(file).read_text()))
    return int(0.75 * memory)


@kernel
def counted(held: int, more: int, limit: int) -> int:
    """Bytes of the arrays that are kept by reference, one more array included."""
    if held + more > limit:
        raise MemoryError(EXCEEDED)
    return held + more


@kernel
def push_array(stack: Any, n: int, a: Any) -> None:
    """Keep the elements of an array."""
    flat = a.ravel()
    for k in range(flat.size):
        stack[n + k] = flat[k]


@kernel
def pop_array(stack: Any, n: int, a: Any) -> None:
    """Put the elements back."""
    for k in np.ndindex(a.shape):
        a[k] = stack[n]
        n += 1


@kernel
def turns(start: int, stop: int, step: int) -> int:
    """len(range(start, stop, step)), as a call."""
    return len(range(start, stop, step))


# -------------------------------------------------------------------------------------------- checkpointing


def checkpointed(steps: Any, snapshots: int) -> Any:
    """A range whose loop goes back from snapshots: `for t in tg.checkpointed(range(n), snapshots=k)` in a native function.

    The reverse of a loop over n passes keeps what each pass overwrites; over a long time that is more memory than there is. So marked,
    the loop keeps the state at `snapshots` passes at most, and runs forward again from the nearest one to the pass that is to be
    reversed. The snapshots are placed by the binomial schedule (Griewank & Walther, "Algorithm 799: revolve", ACM Transactions on
    Mathematical Software 26 (2000)), which runs the fewest passes again: with k snapshots and n <= (k + r)! / (k! r!) no pass runs
    forward more than r times, beside the first run and that which precedes its reversal. Gradients are those of the plain loop.

    `snapshots` is a whole number from 1 on that is known when the function is compiled. `tg.njit(checkpoint="revolve", snapshots=k)`
    marks every outermost loop over a range. In Python the call returns `steps`.

    >>> import numpy as np, tapegrad as tg
    >>> @tg.njit
    ... def decay(x, n):
    ...     for t in tg.checkpointed(range(n), snapshots=5):
    ...         x = x - 0.01 * np.sin(x)
    ...     return x
    >>> round(tg.grad(decay)(1.0, 1000), 9)
    5.626e-05
    """
    return steps


@overload(checkpointed)
def _checkpointed(steps: Any, snapshots: Any) -> Any:
    def inner(steps: Any, snapshots: Any) -> Any:
        return steps

    return inner


@kernel
def snapshot_distance(passes: int, free: int) -> int:
    """How many passes to run before the next snapshot, with so many `free` snapshots beside the one at the beginning; -1: none follows.

    Griewank & Walther (2000), procedure revolve: the distance that makes the fewest passes run again.
    """
    if free < 1 or passes < 2:
        return -1
    slots = free + 1
    repeats, reach = 0, 1
    while reach < passes:
        repeats += 1
        reach = reach * (repeats + slots) // repeats
    first = reach * repeats // (slots + repeats)
    second = first * slots // (slots + repeats - 1)
    third = second * (slots - 1) // (slots + repeats - 2) if slots > 2 else 1
    fourth = second * (repeats - 1) // slots
    fifth = 0
    if slots > 2:
        fifth = third * (slots - 2) // repeats if slots > 3 else 1
    if passes <= first + third:
        return max(fourth, 1)
    if passes >= reach - fifth:
        return first
    return passes - second - third


@kernel
def shares(a: Any, b: Any) -> bool:
    """Whether two arrays begin at the same place."""
    return a.ctypes.data == b.ctypes.data


@kernel
def carry(bar: Any, held: Any) -> None:
    """The cotangent of an array becomes the cotangent of the array that the repeated pass made in its place."""
    if bar.ctypes.data != held.ctypes.data:
        for k in np.ndindex(bar.shape):
            bar[k] += held[k]


def put_places(a: Any, index: Any, stack: Any, n: int) -> None:
    """Put the elements back that `a[index]` had."""
    raise NotImplementedError("for compiled code")


@overload(put_places)
def _put_places(a: Any, index: Any, stack: Any, n: int) -> Any:
    """Write entries from a stack back to the places of an index."""
    if a.ndim == 1:

        def elements(a: Any, index: Any, stack: Any, n: int) -> None:
            for k in range(index.size):
                a[index[k]] = stack[n + k]

        return elements

    def rows(a: Any, index: Any, stack: Any, n: int) -> None:
        for k in range(index.size):
            row = a[index[k]]
            pop_array(stack, n, row)
            n += row.size

    return rows


SCOPE: dict[str, Any] = {
    "np": np, "at": at, "part": part, "shared": shared, "prange": prange, "separate": separate, "chunk_count": chunk_count,
    "in_order": in_order, "has_nan": has_nan, "least": least, "zeros_like": zeros_like, "zeros_of": zeros_of, "clear": clear,
    "accumulate": accumulate, "in_float32": in_float32, "in_float64": in_float64,
    "unless_zero": unless_zero, "strong": strong, "strong_all": strong_all,
    "strong_quotient": strong_quotient, "strong_quotient_all": strong_quotient_all, "digamma": digamma, "trigamma": trigamma,
    "digamma_rise": digamma_rise, "spread": spread, "others_product": others_product, "sorted_back": sorted_back,
    "ranked": ranked, "interp_back": interp_back, "cofactors": cofactors,
    "eigenvalues_back": eigenvalues_back, "eigenvectors_back": eigenvectors_back, "cholesky_back": cholesky_back,
    "singular_values_back": singular_values_back, "left_vectors_back": left_vectors_back,
    "right_vectors_back": right_vectors_back, "orthogonal_back": orthogonal_back, "pinv_back": pinv_back,
    "cut_pinv_back": cut_pinv_back, "scatter_back": scatter_back, "scatter_sum": scatter_sum, "gather_back": gather_back,
    "grown": grown, "push_array": push_array, "pop_array": pop_array, "put_places": put_places, "counted": counted,
    "turns": turns, "carry": carry, "shares": shares, "snapshot_distance": snapshot_distance,
}  # fmt: skip
