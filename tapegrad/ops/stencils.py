"""Filters of images: correlation with a kernel, and running means, with the edge modes of `scipy.ndimage`.

An output is a sum over the kernel of the extended image E x, where an edge mode says which entry stands beyond each edge. So the adjoint of
a filter is the filter with the kernel reversed, of the cotangent among zeros, and then Eᵀ, which adds what came to the extension to the
entries that stood there. The cotangent of the kernel is the correlation of E x with that of the output.

Invariant: kernels of the op have as many axes as the image (length 1 where they do nothing), and beyond an edge in mode "constant" there
are zeros; a `cval` is added apart. Each takes time linear in the image. SciPy is imported when it is first needed.
"""

from __future__ import annotations

import string
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..core.primitive import call, conj, primitive
from .calculus import _flipped
from .convolutions import convolve_nd
from .indexing import scatter

MODES = ("reflect", "constant", "nearest", "mirror", "wrap")

FEW = 64
"""Entries of a kernel up to which its cotangent is found entry by entry; beyond, by one convolution."""

NAMES = {
    "grid-mirror": "reflect", "grid-constant": "constant", "grid-wrap": "wrap", **{m: m for m in MODES},
}  # fmt: skip
"""What a filter may be asked for, and which of the five modes it is."""


def entry_at(place: np.ndarray, n: int, mode: str) -> np.ndarray:
    """Which of n entries stands at places on a line without end; of mode "constant" -1 beyond the edges."""
    if mode == "reflect":
        turn = place % (2 * n)
        return np.minimum(turn, 2 * n - 1 - turn)
    if mode == "mirror":
        turn = place % max(2 * n - 2, 1)
        return np.minimum(turn, 2 * n - 2 - turn) if n > 1 else np.zeros_like(place)
    if mode == "wrap":
        return place % n
    if mode == "nearest":
        return place.clip(0, n - 1)
    return np.where((place >= 0) & (place < n), place, -1)


@lru_cache(256)
def standing(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which of n entries stands at each of the places from -before to n + after."""
    return entry_at(np.arange(-before, n + after), n, mode)


def _at(axis: int, part: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis + (part,)


def _zeros(x: Any, axis: int, before: int, after: int) -> Any:
    """Zeros before and behind along an axis."""
    parts = []
    for count in (before, after):
        shape = list(np.shape(x))
        shape[axis] = count
        parts.append(np.zeros(shape, x.dtype))
    return np.concatenate([parts[0], x, parts[1]], axis=axis) if before or after else x


def extended(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """The image and what stands beyond its edges along an axis."""
    if not (before or after):
        return x
    if mode == "constant":
        return _zeros(x, axis, before, after)
    return np.take(x, standing(np.shape(x)[axis], before, after, mode), axis=axis)


def folded(g: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """The adjoint of `extended`: what came to places beyond the edges, added to the entries that stood there."""
    n = np.shape(g)[axis] - before - after
    inner = g[_at(axis, slice(before, before + n))]
    if mode == "constant" or not (before or after):
        return inner
    beyond = np.concatenate([g[_at(axis, slice(before))], g[_at(axis, slice(before + n, None))]], axis=axis)  # fmt: skip
    places = standing(n, before, after, mode)
    places = np.concatenate([places[:before], places[before + n :]])
    return inner + scatter(beyond, _at(axis, places), np.shape(inner))


def reach(m: int, origin: int) -> tuple[int, int]:
    """How far a kernel of length m reaches before and behind the entry that it is at."""
    before = m // 2 + origin
    return before, m - 1 - before


# --------------------------------------------------------------------------------------------------- correlation


def _correlated(x: np.ndarray, y: np.ndarray, mode: str, origin: Any) -> np.ndarray:
    """SciPy's correlation of x with the kernel y; a kernel of tiny entries is scaled first, since SciPy takes such entries for 0."""
    from scipy import ndimage

    origin = origin or (0,) * x.ndim
    if y.dtype.kind == "c":
        parts = [_correlated(x, part, mode, origin) for part in (y.real, y.imag)]
        return np.asarray(parts[0] + 1j * parts[1], np.result_type(x, np.complex64))
    if not x.size:
        return x.copy()
    if not x.ndim:
        return x * y.astype(x.dtype)
    # SciPy (1.17 at least) takes entries of kernels under 2e-16 for 0, or for equal ones.
    scale = 2.0 ** min(np.frexp(np.max(np.abs(y), initial=0.0))[1], 0)
    if scale < 1.0 and y.any():
        return _correlated(x, y / scale, mode, origin) * x.real.dtype.type(scale)
    long = [axis for axis, m in enumerate(y.shape) if m > 1]
    if len(long) > 1:
        return ndimage.correlate(x, y, mode=mode, origin=origin)
    axis = (long or [0])[0]
    return ndimage.correlate1d(x, y.ravel(), axis, mode=mode, origin=origin[axis])


def _kernel_cotangent(g, x, y, *, mode="reflect", origin=None):
    """Sums of products of the extended image with the cotangent moved along it."""
    m = np.shape(y)
    if 0 in np.shape(x):
        return np.zeros(m, y.dtype)
    for axis, far in enumerate(map(reach, m, origin or (0,) * len(m))):
        x = extended(x, axis, *far, mode)
    x = conj(x)
    if prod(m) <= FEW:
        # Entry by entry: NumPy's sum of products is faster than a transform, and keeps the digits of small entries.
        letters = string.ascii_letters[: len(m)]
        sums = [
            np.einsum(
                f"{letters},{letters}->",
                x[tuple(slice(k, k + n) for k, n in zip(place, np.shape(g), strict=True))],
                g,
            )
            for place in np.ndindex(*m)
        ]
        found = np.reshape(np.stack(sums), m)
    else:
        found = convolve_nd(x, _flipped_plain(g), mode="valid")
    if y.dtype.kind != "c":
        found = np.real(found)
    return found if found.dtype == y.dtype else found.astype(y.dtype)


def _flipped_plain(x: Any) -> Any:
    """Reversed along every axis."""
    return conj(_flipped(x))


@primitive(
    _correlated,
    _kernel_cotangent,
    name="image_correlation",
    linear=True,
    samples=[
        *(call((5,), (3,), mode=mode) for mode in MODES),
        call((2,), (5,), mode="reflect"),
        call((2,), (4,), mode="mirror", origin=(1,)),
        call((3, 4), (2, 3), mode="nearest", origin=(-1, 1)),
        call((3, 4), (1, 3), mode="wrap"),
        call((1, 3), (3, 2), mode="mirror"),
    ],
)
def correlated(g, x_shape, y, *, mode="reflect", origin=None):
    """Correlation of an image with a kernel of as many axes; zeros stand beyond the edges in mode "constant"."""
    m = np.shape(y)
    if 0 in x_shape:
        return g
    origin = origin or (0,) * len(m)
    for axis in range(len(m)):
        g = _zeros(g, axis, 0, m[axis] - 1)
    g = correlated(g, _flipped(y), mode="constant", origin=tuple((k - 1) // 2 for k in m))
    for axis, far in enumerate(map(reach, m, origin)):
        g = folded(g, axis, *far, mode)
    return g


# --------------------------------------------------------------------------------------------------- running means


def _running_mean(x: np.ndarray, size: int, axis: int, mode: str, origin: int) -> np.ndarray:
    from scipy import ndimage

    return ndimage.uniform_filter1d(x, size, axis, mode=mode, origin=origin) if x.size else x.copy()


@primitive(
    _running_mean,
    name="running_mean",
    linear=True,
    samples=[
        *(call((5,), size=3, mode=mode) for mode in MODES),
        call((3, 2), size=4, axis=0, origin=1),
        call((2, 3), size=5, axis=1, mode="mirror", origin=-2),
    ],
    unsupported={"complex_step": "SciPy's running sums round an imaginary part of 1e-30 away"},
)
def running_mean(g, *, size, axis=0, mode="reflect", origin=0):
    """Means of `size` entries along an axis, in time that does not depend on the size."""
    if 0 in np.shape(g):
        return g
    g = running_mean(_zeros(g, axis, 0, size - 1), size, axis, "constant", (size - 1) // 2)
    return folded(g, axis, *reach(size, origin), mode)


__all__ = [
    "MODES", "NAMES", "correlated", "entry_at", "extended", "folded", "running_mean", "standing",
]  # fmt: skip
