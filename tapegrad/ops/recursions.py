"""Recursive filters: `lfilter`, and what is made of it: sections of second order, and filters that run there and back.

The op is the difference equation itself, Σ aₖ y[n-k] = Σ bₖ x[n-k] + a₀ zi[n], solved by SciPy along the last axis. Its adjoint is the same
filter run backwards in time, and the cotangents of b, a and zi are sums of lagged products; all take time linear in the signal.

Invariant: operands of the op are vectors b and a, and a signal (with its initial state) whose last axis is time. SciPy is
imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.domain import Domain, real
from ..core.primitive import call, conj, primitive
from ..errors import NotDifferentiable
from .calculus import inexact
from .composing import holds_tensor, raw
from .convolutions import convolve_nd

FEW = 32
"""Lags up to which products are summed lag by lag; beyond, by a convolution."""


def _lfilter(xs: Sequence[np.ndarray]) -> np.ndarray:
    from scipy.signal import lfilter

    b, a, x, *zi = xs
    if not zi:
        return lfilter(b, a, x)
    return lfilter(b, a, x, zi=zi[0])[0]


def _lagged(u: Any, x: Any, count: int) -> Any:
    """Σ u[n] conj(x[n-k]) over time and all signals, for the lags k < count; x[n] is 0 before the beginning."""
    n = np.shape(x)[-1]
    u, x = (np.reshape(v, (prod(np.shape(v)[:-1]), n)) for v in (u, conj(x)))
    if count <= FEW:
        lags = [min(k, n) for k in range(count)]
        return np.stack([np.einsum("ij,ij->", u[:, k:], x[:, : n - k]) for k in lags])
    padded = np.concatenate([np.zeros((np.shape(x)[0], count - 1), x.dtype), x], axis=1)
    return convolve_nd(padded, u[::-1, ::-1], mode="valid")[0, ::-1]


def _backwards(b: Any, a: Any, g: Any) -> Any:
    return filtered([conj(b), conj(a), g[..., ::-1]])[..., ::-1]


def _filter_tangent(ts, xs, out):
    """The same equation with ḃ x - ȧ y + ȧ₀ zi on the right."""
    b, a, x, *zi = xs
    parts = []
    if ts[0] is not None:
        parts.append(filtered([ts[0], a, x]))
    if ts[1] is not None:
        parts.append(-filtered([ts[1], a, out]))
        if zi:
            parts.append(filtered([b, a, np.zeros_like(x), zi[0]]) * (ts[1][0] / a[0]))
    if ts[2] is not None:
        parts.append(filtered([b, a, ts[2]]))
    if zi and ts[3] is not None:
        parts.append(filtered([b, a, np.zeros_like(x), ts[3]]))
    return sum(parts[1:], parts[0])


def _stable(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.uniform(-0.2, 0.2, shape)
    x[0] = 1.5
    return x


_denominator = Domain("stable", _stable)


@primitive(
    _lfilter,
    name="lfilter",
    jvp=_filter_tangent,
    domain=(real, _denominator, real, real),
    samples=[
        call((2,), (3,), (5,)),
        call((3,), (2,), (2, 4)),
        call((1,), (3,), (2, 1)),
        call((4,), (1,), (3,)),
        call((3,), (3,), (2, 4), (2, 2)),
        call((2,), (4,), (2,), (3,)),
        call((40,), (2,), (2, 6)),
    ],
    holomorphic=False,  # the adjoint is not
)
def filtered(g, xs, out, wanted):
    """y from Σ aₖ y[n-k] = Σ bₖ x[n-k] + a₀ zi[n], along the last axis."""
    b, a, x, *zi = xs
    found: list[Any] = [None, None, None, *(None for _ in zi)]
    n = np.shape(x)[-1]
    if wanted[2]:
        found[2] = _backwards(b, a, g)
    if wanted[0] or wanted[1] or (zi and wanted[3]):
        u = _backwards(np.ones(1, a.dtype), a, g)
        if wanted[0]:
            found[0] = _lagged(u, x, np.shape(b)[0])
        if zi:
            count = np.shape(zi[0])[-1]
            first = u[..., :count]
            if count > n:
                rest = np.zeros((*np.shape(u)[:-1], count - n), first.dtype)
                first = np.concatenate([first, rest], axis=-1)
            if wanted[3]:
                found[3] = first * conj(a[0])
        if wanted[1]:
            found[1] = -_lagged(u, out, np.shape(a)[0])
            if zi:
                own = np.sum(first * conj(zi[0]))
                found[1] = found[1] + own * np.eye(1, np.shape(a)[0])[0]
    return found


# ---------------------------------------------------------------------------------------------- SciPy's functions


def _coefficients(b: Any, a: Any) -> tuple[Any, Any]:
    b, a = (np.reshape(v, (1,)) if np.ndim(v) == 0 else v for v in map(inexact, (b, a)))
    if np.ndim(b) != 1 or np.ndim(a) != 1:
        raise ValueError(
            f"a filter was given coefficients of shapes {np.shape(b)} and {np.shape(a)}, but it takes two vectors b and a."
        )
    return b, a


def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Filter a signal along an axis by a rational transfer function; differentiable by b, a, x and the initial state zi.

    With `zi` the result is (y, zf), the final state too. Derivatives take time linear in the signal, in both modes.

    >>> import numpy as np, tapegrad as tg
    >>> step = np.ones(4)
    >>> tg.grad(lambda a: tg.signal.lfilter([1.0], np.stack([1.0, a]), step)[-1])(-0.5)
    -2.75
    """
    if not holds_tensor((b, a, x, zi)):
        from scipy import signal

        return signal.lfilter(b, a, x, axis, zi)
    b, a = _coefficients(b, a)
    x = inexact(x)
    axis = normalize_axis_index(axis, np.ndim(x))
    x = np.moveaxis(x, axis, -1)
    if zi is None:
        return np.moveaxis(filtered([b, a, x]), -1, axis)
    order = max(np.shape(b)[0], np.shape(a)[0]) - 1
    zi = np.moveaxis(inexact(zi), axis, -1)
    shape = (*np.shape(x)[:-1], order)
    try:
        zi = zi if np.shape(zi) == shape else np.broadcast_to(zi, shape)
    except ValueError:
        raise ValueError(f"Unexpected shape for zi: expected {shape}, found {np.shape(zi)} (time last).") from None  # fmt: skip
    y = filtered([b, a, x, zi]) if order else filtered([b, a, x])
    return np.moveaxis(y, -1, axis), np.moveaxis(_final_state(b, a, x, y, zi), -1, axis)


def _final_state(b: Any, a: Any, x: Any, y: Any, zi: Any) -> Any:
    """The state after the signal: zf[i] = Σ_{k>i} bₖ x[N+i-k] - aₖ y[N+i-k], and what is left of zi where the signal is shorter."""
    order, n = np.shape(zi)[-1], np.shape(x)[-1]
    lags = (
        order + np.arange(order) - np.arange(order)[:, None]
    )  # of entry (j, i): k = order + i - j
    inside = np.arange(order)[:, None] >= np.arange(order)

    def part(coefficients: Any, signal: Any) -> Any:
        size = np.shape(coefficients)[0]
        padded = np.concatenate([coefficients, np.zeros(1, coefficients.dtype)])
        matrix = padded[np.where(inside & (lags < size), lags, size)]
        if n < order:
            zeros = np.zeros((*np.shape(signal)[:-1], order - n), signal.dtype)
            signal = np.concatenate([zeros, signal], axis=-1)
        return signal[..., np.shape(signal)[-1] - order :] @ matrix

    state = part(b / a[0], x) - part(a / a[0], y)
    if n < order:
        zeros = np.zeros((*np.shape(zi)[:-1], n), zi.dtype)
        state = state + np.concatenate([zi[..., n:], zeros], axis=-1)
    return state


def lfilter_zi(b: Any, a: Any) -> Any:
    """The initial state of `lfilter` in which a constant signal of 1 has no transient; differentiable by b and a.

    >>> import tapegrad as tg
    >>> tg.signal.lfilter_zi([1.0, 1.0], tg.tensor([1.0, -0.5])).numpy().round(6)
    array([3.])
    """
    if not holds_tensor((b, a)):
        from scipy import signal

        return signal.lfilter_zi(b, a)
    b, a = _coefficients(b, a)
    if not np.any(raw(a) != 0):
        raise ValueError("There must be at least one nonzero `a` coefficient.")
    while bool(raw(a)[0] == 0.0):
        a = a[1:]
    b, a = b / a[0], a / a[0]
    size = max(np.shape(b)[0], np.shape(a)[0])
    b, a = (np.concatenate([v, np.zeros(size - np.shape(v)[0], v.dtype)]) for v in (b, a))
    steps = b[1:] - a[1:] * b[0]
    first = np.sum(steps) / np.sum(a)
    if size == 2:
        return np.reshape(first, (1,))
    rest = np.cumsum(a)[1:-1] * first - np.cumsum(steps)[:-1]
    return np.concatenate([np.reshape(first, (1,)), rest])


def _sections(sos: Any) -> Any:
    sos = inexact(sos)
    if np.ndim(sos) != 2 or np.shape(sos)[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    if not np.all(raw(sos)[:, 3] == 1):
        raise ValueError("sos[:, 3] should be all ones")
    return sos


def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Filter a signal by sections of second order; differentiable by the sections (their a₀ is 1), the signal and the state.

    >>> import numpy as np, tapegrad as tg
    >>> low = np.array([[0.5, 0.5, 0.0, 1.0, 0.0, 0.0]])
    >>> tg.grad(lambda x: tg.signal.sosfilt(low, x)[-1])(np.ones(3))
    array([0. , 0.5, 0.5])
    """
    if not holds_tensor((sos, x, zi)):
        from scipy import signal

        return signal.sosfilt(sos, x, axis, zi)
    sos, x = _sections(sos), inexact(x)
    axis = normalize_axis_index(axis, np.ndim(x))
    count = np.shape(sos)[0]
    if zi is None:
        for section in range(count):
            x = lfilter(sos[section, :3], sos[section, 3:], x, axis)
        return x
    zi = inexact(zi)
    shape = (count, *np.shape(x)[:axis], 2, *np.shape(x)[axis + 1 :])
    if np.shape(zi) != shape:
        raise ValueError(f"Invalid zi shape. With axis={axis}, an input with shape {np.shape(x)}, and {count} sections, zi must have shape {shape}.")  # fmt: skip
    states = []
    for section in range(count):
        x, state = lfilter(sos[section, :3], sos[section, 3:], x, axis, zi[section])
        states.append(state)
    return x, np.stack(states)


def sosfilt_zi(sos: Any) -> Any:
    """The initial state of `sosfilt` in which a constant signal of 1 has no transient; differentiable by the sections.

    >>> import numpy as np, tapegrad as tg
    >>> sos = np.array([[0.25, 0.25, 0.0, 1.0, -0.5, 0.0]])
    >>> tg.signal.sosfilt_zi(sos)
    array([[0.75, 0.  ]])
    """
    if not holds_tensor(sos):
        from scipy import signal

        return signal.sosfilt_zi(sos)
    sos = _sections(sos)
    states, scale = [], 1.0
    for section in range(np.shape(sos)[0]):
        b, a = sos[section, :3], sos[section, 3:]
        states.append(scale * lfilter_zi(b, a))
        scale = scale * np.sum(b) / np.sum(a)
    return np.stack(states)


def _extended(x: Any, padtype: str | None, padlen: int | None, taps: int) -> tuple[int, Any]:
    """The signal (time last) with its ends extended, and by how much."""
    if padtype not in ("even", "odd", "constant", None):
        raise ValueError(f"padtype {padtype!r} was asked, but it is 'even', 'odd', 'constant' or None.")  # fmt: skip
    edge = 0 if padtype is None else (3 * taps if padlen is None else int(padlen))
    n = np.shape(x)[-1]
    if n <= edge:
        raise ValueError(f"The length of the input vector x must be greater than padlen, which is {edge}.")  # fmt: skip
    if edge < 0:
        raise ValueError("padlen must not be negative.")
    if not edge:
        return 0, x
    first, last = x[..., :1], x[..., -1:]
    before, after = x[..., edge:0:-1], x[..., -2 : -(edge + 2) : -1]
    if padtype == "odd":
        before, after = 2 * first - before, 2 * last - after
    elif padtype == "constant":
        before, after = first + 0 * before, last + 0 * after
    return edge, np.concatenate([before, x, after], axis=-1)


def filtfilt(
    b: Any, a: Any, x: Any, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None,
    method: str = "pad", irlen: int | None = None,
) -> Any:  # fmt: skip
    """Filter a signal forwards and then backwards, which shifts no phase; differentiable by b, a and x.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.signal.filtfilt([0.5, 0.5], [1.0], x, padtype=None)[2])(np.zeros(5))
    array([0.  , 0.25, 0.5 , 0.25, 0.  ])
    """
    if not holds_tensor((b, a, x)):
        from scipy import signal

        return signal.filtfilt(b, a, x, axis, padtype, padlen, method, irlen)
    if method not in ("pad", "gust"):
        raise ValueError("method must be 'pad' or 'gust'.")
    if method == "gust":
        raise NotDifferentiable(
            "filtfilt(method='gust') was asked of tensors, but Gustafsson's choice of the initial states has no rule here. Use method='pad', "
            "or find the states yourself with lfilter(..., zi=zi)."
        )
    b, a = _coefficients(b, a)
    x = inexact(x)
    axis = normalize_axis_index(axis, np.ndim(x))
    x = np.moveaxis(x, axis, -1)
    edge, whole = _extended(x, padtype, padlen, max(np.shape(a)[0], np.shape(b)[0]))
    zi = lfilter_zi(b, a) if max(np.shape(a)[0], np.shape(b)[0]) > 1 else np.zeros(0)
    for _ in range(2):
        whole = lfilter(b, a, whole, zi=zi * whole[..., :1])[0][..., ::-1]
    return np.moveaxis(whole[..., edge : np.shape(whole)[-1] - edge], -1, axis)


def sosfiltfilt(
    sos: Any, x: Any, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> Any:
    """Filter a signal by sections of second order, forwards and then backwards; differentiable by the sections and the signal.

    >>> import numpy as np, tapegrad as tg
    >>> sos = np.array([[0.25, 0.25, 0.0, 1.0, -0.5, 0.0]])
    >>> np.allclose(tg.signal.sosfiltfilt(sos, tg.ones(9)), 1.0)  # no transient at the ends
    True
    """
    if not holds_tensor((sos, x)):
        from scipy import signal

        return signal.sosfiltfilt(sos, x, axis, padtype, padlen)
    sos, x = _sections(sos), inexact(x)
    axis = normalize_axis_index(axis, np.ndim(x))
    x = np.moveaxis(x, axis, -1)
    plain = raw(sos)
    taps = 2 * np.shape(sos)[0] + 1
    taps -= min(int(np.sum(plain[:, 2] == 0)), int(np.sum(plain[:, 5] == 0)))
    edge, whole = _extended(x, padtype, padlen, taps)
    zi = sosfilt_zi(sos)
    zi = np.reshape(zi, (np.shape(sos)[0],) + (1,) * (np.ndim(x) - 1) + (2,))
    for _ in range(2):
        whole = sosfilt(sos, whole, zi=zi * whole[..., :1])[0][..., ::-1]
    return np.moveaxis(whole[..., edge : np.shape(whole)[-1] - edge], -1, axis)


__all__ = [
    "filtered", "filtfilt", "lfilter", "lfilter_zi", "sosfilt", "sosfilt_zi", "sosfiltfilt",
]  # fmt: skip
