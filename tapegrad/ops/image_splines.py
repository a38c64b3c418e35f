"""Splines through images: their coefficients (`spline_coefficients`), and their values at any places (`spline_values`).

An image is interpolated by B-splines of degree 0 to 5 with a coefficient for each entry. The coefficients are a recursive filter of the
image along each axis, whose matrix is symmetric up to the weights of the ends. A value is a sum over the (degree + 1)ᵈ coefficients
around a place; the op has derivatives of the splines as a setting (`nu`), so that its own derivatives are the same op, and its adjoint by the
coefficients (`spline_spread`) is another with the same ones. Both take time linear in the places.

Invariant: places have the coordinates on their first axis, in units of entries, and `edge` says which coefficient stands at a place
beyond the edges, one of the modes of stencils.py ("constant": none).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..core.domain import Domain, real
from ..core.primitive import call, conj, primitive
from .stencils import entry_at

_SPLINE_MODES = {
    "reflect": "reflect",
    "nearest": "reflect",
    "grid-mirror": "reflect",
    "grid-wrap": "wrap",
}
"""Mode of a filter -> which extension its coefficients have; all others are mirrored at the outer entries."""

SHORT = 64
"""Entries of an axis up to which SciPy's filter (1.17 at least) is inexact where it reflects: its own matrix is transposed."""


def _coefficients(x: np.ndarray, order: int, axis: int, mode: str) -> np.ndarray:
    from scipy import ndimage

    if order < 2 or not x.size:
        return x.copy()
    dtype = np.complex128 if x.dtype.kind == "c" else np.float64
    return ndimage.spline_filter1d(x, order, axis, dtype, mode).astype(x.dtype, copy=False)


@lru_cache(64)
def _matrix(n: int, order: int, mode: str) -> np.ndarray:
    return _coefficients(np.eye(n), order, 0, mode)


@primitive(
    _coefficients,
    name="spline_coefficients",
    linear=True,
    samples=[
        *(call((5,), order=order) for order in (1, 2, 3, 4, 5)),
        call((3, 2), order=3, mode="reflect"),
        call((2, 4), order=5, axis=1, mode="grid-wrap"),
        call((1, 3), order=3),
        call((2,), order=4, mode="nearest"),
        call((70,), order=3, mode="reflect"),
    ],
    unsupported={
        "complex_step": "an imaginary part of 1e-30 is under SciPy's tolerance for the start of its recursion"
    },
)
def spline_coefficients(g, x_shape, *, order=3, axis=0, mode="mirror"):
    """Coefficients of the spline through the entries along an axis."""
    n = x_shape[axis]
    if order < 2 or n < 2:
        return g
    kind = _SPLINE_MODES.get(mode, "mirror")
    dtype = np.real(np.zeros(0, g.dtype)).dtype
    if kind == "wrap":
        return spline_coefficients(g, order, axis, mode)
    if kind == "reflect":
        if n > SHORT:
            return spline_coefficients(g, order, axis, mode)
        back = np.tensordot(_matrix(n, order, mode).T.astype(dtype), g, (1, axis))
        return np.moveaxis(back, 0, axis)
    ends = np.ones((n,) + (1,) * (len(x_shape) - axis - 1), dtype)
    ends[[0, -1]] = 0.5
    return ends * spline_coefficients(g / ends, order, axis, mode)


# ------------------------------------------------------------------------------------------------------- values


def weights(t: np.ndarray, order: int, nu: int) -> list[np.ndarray]:
    """The order + 1 B-splines at t in [0, 1) of their intervals, or their derivatives of order nu (de Boor's recurrence)."""
    if nu > order:
        return [np.zeros_like(t)] * (order + 1)
    found = [np.ones_like(t)]
    for p in range(1, order - nu + 1):
        padded = [np.zeros_like(t), *found, np.zeros_like(t)]
        found = [((t + p - j) * padded[j] + (1 - t + j) * padded[j + 1]) / p for j in range(p + 1)]
    for _ in range(nu):
        padded = [np.zeros_like(t), *found, np.zeros_like(t)]
        found = [padded[j] - padded[j + 1] for j in range(len(found) + 1)]
    return found


def _terms(
    shape: Sequence[int], q: np.ndarray, order: int, edge: str, nu: Sequence[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each of the splines that count at the places: the coefficients' numbers, and weights (0 where there is none)."""
    places, parts = [], []
    for n, x, k in zip(shape, q, nu, strict=True):
        low = np.floor(x if order % 2 else x + 0.5)
        t = x - low + (0.0 if order % 2 else 0.5)
        first = np.nan_to_num(low).astype(np.intp) - order // 2
        places.append([entry_at(first + j, n, edge) for j in range(order + 1)])
        parts.append(weights(t, order, k))
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    for chosen in itertools.product(range(order + 1), repeat=len(shape)):
        number: Any = 0
        weight: Any = 1.0
        for j, entries, w, stride in zip(chosen, places, parts, strides, strict=True):
            inside = entries[j] >= 0
            number = number + np.where(inside, entries[j], 0) * stride
            weight = weight * (w[j] if edge != "constant" else np.where(inside, w[j], 0.0))
        yield number, weight


_EDGES = {"wrap": "grid-wrap", "constant": "grid-constant"}


def _values(
    xs: Sequence[np.ndarray], order: int, edge: str, nu: tuple[int, ...] | None
) -> np.ndarray:
    """Values (or derivatives of order `nu`) of a spline with coefficients c at the places q, of shape q.shape[1:]."""
    c, q = xs
    out = np.zeros(q.shape[1:], c.dtype)
    if not out.size or not c.size:
        return out
    if not nu or not any(nu):
        from scipy import ndimage

        whole = q.reshape(len(q), -1)
        found = ndimage.map_coordinates(
            c, whole, out.dtype, order, mode=_EDGES.get(edge, edge), prefilter=False
        )
        return found.reshape(q.shape[1:])
    flat = c.ravel()
    summed: Any = 0.0
    for number, weight in _terms(c.shape, q, order, edge, nu):
        summed = summed + flat[number] * weight
    return np.asarray(summed, c.dtype)


def _spread(
    xs: Sequence[np.ndarray], shape: tuple[int, ...], order: int, edge: str, nu: tuple[int, ...] | None
) -> np.ndarray:  # fmt: skip
    g, q = xs
    dtype = g.dtype
    out = np.zeros(prod(shape), np.result_type(dtype, np.float64))
    for number, weight in _terms(shape, q, order, edge, nu or (0,) * len(shape)):
        np.add.at(out, number.ravel(), (g * weight).ravel())
    return out.reshape(shape).astype(dtype, copy=False)


def _steeper(nu: tuple[int, ...] | None, axis: int, count: int) -> tuple[int, ...]:
    nu = nu or (0,) * count
    return (*nu[:axis], nu[axis] + 1, *nu[axis + 1 :])


def _real_like(x: Any, like: Any) -> Any:
    x = np.real(x) if x.dtype.kind == "c" else x
    return x if x.dtype == like.dtype else x.astype(like.dtype)


def _values_tangent(ts, xs, out, order=3, edge="mirror", nu=None):
    c, q = xs
    count = np.shape(q)[0]
    total = None if ts[0] is None else spline_values([ts[0], q], order, edge, nu)
    for axis in range(count) if ts[1] is not None else ():
        part = spline_values([c, q], order, edge, _steeper(nu, axis, count)) * ts[1][axis].astype(np.real(np.zeros(0, c.dtype)).dtype)  # fmt: skip
        total = part if total is None else total + part
    return total


def _between(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Places among three entries, away from where the splines' pieces meet."""
    return rng.integers(0, 2, shape) + rng.choice([0.2, 0.35, 0.7, 0.8], shape)


_inside = Domain("inside", _between)


@primitive(
    _values,
    name="spline_values",
    jvp=_values_tangent,
    domain=(real, _inside),
    samples=[
        *(call((3,), (1, 4), order=order) for order in (1, 2, 3, 4, 5)),
        call((3, 4), (2, 2, 2), order=3, edge="reflect"),
        call((3, 3), (2, 3), order=2, edge="constant"),
        call((4, 3), (2, 3), order=3, edge="wrap", nu=(1, 0)),
        call((4,), (1, 2), order=1, edge="nearest"),
    ],
    holomorphic=False,
)
def spline_values(g, xs, wanted, *, order=3, edge="mirror", nu=None):
    """Values (or derivatives) of the spline with these coefficients at places (axes, ...)."""
    c, q = xs
    count = np.shape(q)[0]
    c_bar = spline_spread([g, q], np.shape(c), order, edge, nu) if wanted[0] else None
    q_bar = None
    if wanted[1]:
        slopes = [
            spline_values([c, q], order, edge, _steeper(nu, axis, count)) for axis in range(count)
        ]
        q_bar = np.stack([_real_like(g * conj(slope), q) for slope in slopes])
    return [c_bar, q_bar]


def _spread_tangent(ts, xs, out, shape, order=3, edge="mirror", nu=None):
    g, q = xs
    total = None if ts[0] is None else spline_spread([ts[0], q], shape, order, edge, nu)
    for axis in range(len(shape)) if ts[1] is not None else ():
        moved = g * ts[1][axis].astype(np.real(np.zeros(0, g.dtype)).dtype)
        part = spline_spread([moved, q], shape, order, edge, _steeper(nu, axis, len(shape)))
        total = part if total is None else total + part
    return total


@primitive(
    _spread,
    name="spline_spread",
    jvp=_spread_tangent,
    domain=(real, _inside),
    samples=[
        call((4,), (1, 4), shape=(3,), order=3),
        call((2, 2), (2, 2, 2), shape=(3, 4), order=2, edge="reflect"),
        call((3,), (2, 3), shape=(3, 3), order=3, edge="constant", nu=(0, 1)),
    ],
    holomorphic=False,
)
def spline_spread(g, xs, wanted, *, shape, order=3, edge="mirror", nu=None):
    """The adjoint of `spline_values` by the coefficients: what each place adds to them."""
    x, q = xs
    x_bar = spline_values([g, q], order, edge, nu) if wanted[0] else None
    q_bar = None
    if wanted[1]:
        slopes = [
            spline_values([g, q], order, edge, _steeper(nu, axis, len(shape)))
            for axis in range(len(shape))
        ]
        q_bar = np.stack([_real_like(x * conj(slope), q) for slope in slopes])
    return [x_bar, q_bar]


__all__ = ["spline_coefficients", "spline_spread", "spline_values", "weights"]
