"""Spherical harmonics and Dirichlet's kernel: SciPy's functions of these names are no ufuncs, and are differentiable here.

Degrees and orders are whole numbers. A harmonic is a polynomial in the sine and the cosine of the polar angle, by the recurrence of the
normalised functions (Holmes, Featherstone 2002), so that all derivatives hold at the poles too.

Invariant: where no argument is a tensor SciPy's own function runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import NotDifferentiable
from ..composing import holds_tensor, operand, scipys
from .hypergeometric import eval_chebyu

_scipys = scipys("scipy.special")


def _whole(value: Any, what: str, asker: str) -> np.ndarray:
    """A degree or an order: whole numbers, which have no derivative."""
    if holds_tensor(value):
        raise NotDifferentiable(
            f"{asker} was given a tensor as {what}, but it is a whole number. Pass int({what}), or an array of integers."
        )
    value = np.asarray(value)
    if value.dtype.kind not in "iu":
        raise TypeError(
            f"{asker} was given {what}={value}, but it takes whole numbers: give integers."
        )
    return value


def _normalised(n: int, m: int, cosine: Any, sine: Any) -> Any:
    """The part of a harmonic of degree n and order m >= 0 that depends on the polar angle."""
    factor = (-1.0) ** m * math.sqrt(
        (2 * m + 1) / (4 * math.pi) * math.prod((2 * k - 1) / (2 * k) for k in range(1, m + 1))
    )
    before, now = 0.0 * cosine, factor * sine**m
    for k in range(m + 1, n + 1):
        a = math.sqrt((4.0 * k * k - 1) / (k * k - m * m))
        b = math.sqrt(((k - 1.0) ** 2 - m * m) / (4.0 * (k - 1) ** 2 - 1)) if k > m + 1 else 0.0
        before, now = now, a * (cosine * now - b * before)
    return now


def _polar(n: np.ndarray, m: np.ndarray, theta: Any) -> Any:
    """The parts of harmonics that depend on the polar angle; 0 where the order is beyond the degree."""
    cosine, sine = np.cos(theta), np.sin(theta)
    sine = np.where(
        sine < 0, -sine, sine
    )  # beyond the poles as SciPy has it; at them the slope from within
    n, m = np.broadcast_arrays(n, m)
    found: Any = None
    for degree, order in np.unique(np.stack([n.ravel(), m.ravel()], axis=1), axis=0).tolist():
        size = abs(order)
        if degree < 0 or size > degree:
            one = 0.0 * cosine
        else:
            one = _normalised(degree, size, cosine, sine) * ((-1.0) ** size if order < 0 else 1.0)
        found = one if found is None else np.where((n == degree) & (m == order), one, found)
    return found + np.zeros(n.shape) if n.ndim else found


@_scipys
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: int = 0) -> Any:
    """The spherical harmonic of degree n and order m at polar angles theta and azimuths phi, complex; differentiable by both angles.

    >>> import numpy as np, tapegrad as tg
    >>> y = lambda t: np.real(tg.special.sph_harm_y(1, 1, t, 0.0))
    >>> round(tg.grad(y)(0.0), 6)
    -0.345494
    """
    if diff_n:
        raise NotDifferentiable(
            f"sph_harm_y was asked for diff_n={diff_n} of a tensor. Leave it out: tg.grad, tg.jacobian and tg.hessian give the derivatives."
        )
    n, m = _whole(n, "n", "sph_harm_y"), _whole(m, "m", "sph_harm_y")
    theta, phi = operand(theta), operand(phi)
    if not holds_tensor(theta):
        theta = theta + 0.0 * phi
    return _polar(n, m, theta) * np.exp(1j * (m * phi))


@_scipys
def diric(x: Any, n: int) -> Any:
    """Dirichlet's kernel sin(n x / 2) / (n sin(x / 2)), n a whole number, smooth at multiples of 2π; differentiable by x.

    >>> import tapegrad as tg
    >>> tg.special.diric(tg.tensor([0.0, 3.141592653589793]), 3).round(9)
    tensor([ 1.        , -0.33333333])
    """
    n = int(_whole(n, "n", "diric"))
    if n <= 0:
        return operand(x) * np.nan
    return eval_chebyu(float(n - 1), np.cos(operand(x) / 2.0)) / n


__all__ = ["diric", "sph_harm_y"]
