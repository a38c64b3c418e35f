"""Integrals that have a name: exponential, sine and cosine, Fresnel's, Spence's; and Lambert's W.

The derivative is the integrand. Where there are two integrals in one function (sici, shichi, fresnel), both are one op.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, positive, real
from ...core.primitive import UFUNCS, call, compiled_as, select, several
from ..composing import operand, raw
from .declaring import NO_STEP, parametric, smooth, times

HALF_PI = math.pi / 2
positive_only = Domain("positive_only", positive.draw, complex_too=False)


def _sine_over(x):
    """sin(x) / x, and 1 at 0."""
    return np.sinc(x / math.pi)


def _log_over(x):
    """log(x) / (x - 1), which is smooth at 1: there by its series, since each derivative of the quotient would cancel more."""
    u = x - 1.0
    near = np.abs(u) < 0.125
    t = select(near, u, 0.0)
    series = 1 / 20
    for k in range(19, 0, -1):
        series = 1 / k - t * series
    return select(near, series, np.log(x) / select(near, 1.0, u))


def _over_one_more(w):
    """w / (1 + w); of large w by its reciprocal, since the slope of the quotient cancels."""
    large = np.abs(w) > 1
    return select(large, 1 / (1 + 1 / select(large, w, 1.0)), w / (1 + w))


# fmt: off
expi  = smooth(special.expi, lambda x: np.exp(x) / x, domain=positive, unsupported=NO_STEP)
exp1  = smooth(special.exp1, lambda x: -np.exp(-x) / x, domain=positive)
# The dilogarithm of 1 - x.
spence = smooth(special.spence, lambda x: -_log_over(x), domain=positive)
wrightomega = smooth(special.wrightomega, lambda out: _over_one_more(out), domain=real)
# fmt: on

expn = parametric(
    special.expn,
    "n x",
    # E₀ is exp(-x) / x; SciPy has no orders below.
    x=lambda n, x, out: select(n == 0, -out * (1 + 1 / x), -expn(_order_below(n, x), x)),
    domain=positive_only,
    samples=[call((3,), n_=0), call((2, 2), n_=3), call((3,), n_=np.array([0.0, 1.0, 2.0]))],
    refusal="it is a whole number",
    holomorphic=False,
)


@compiled_as(lambda n, x: max(n - 1, 0))
def _order_below(n, x):
    """n - 1, or 0, in the type of x: SciPy would take integers for double precision."""
    return np.maximum(np.asarray(n) - 1, 0).astype(x.dtype)


def _two(of, first, second, told, domain=real):
    """An op with two results, by the derivative of each."""

    def rule(g, x):
        return times(g[0], np.conj(first(x))) + times(g[1], np.conj(second(x)))

    rule.__name__ = of.__name__
    rule.__doc__ = told
    samples = [call((3,)), call((2, 2))]
    declare = several(of, lambda shape: (shape, shape), name=of.__name__, samples=samples, domain=domain, unsupported=NO_STEP)  # fmt: skip
    function = declare(rule)
    UFUNCS[of] = function
    return function


sici = _two(
    special.sici,
    _sine_over,
    lambda x: np.cos(x) / x,
    "The sine and cosine integrals.",
    positive,
)
shichi = _two(
    special.shichi,
    lambda x: _sine_over(1j * x) if x.dtype.kind == "c" else _hyperbolic_sine_over(x),
    lambda x: np.cosh(x) / x,
    "The hyperbolic sine and cosine integrals.",
    positive,
)
fresnel = _two(
    special.fresnel,
    lambda x: np.sin(HALF_PI * x * x),
    lambda x: np.cos(HALF_PI * x * x),
    "Fresnel's integrals S and C.",
)


def _hyperbolic_sine_over(x):
    """sinh(x) / x; below 1 by its series, since the slope of the quotient cancels."""
    near = np.abs(x) < 1
    t = np.where(near, x, 0.0)
    t = t * t
    series = 1 + t / 6 * (
        1 + t / 20 * (1 + t / 42 * (1 + t / 72 * (1 + t / 110 * (1 + t / 156 * (1 + t / 210)))))
    )
    return np.where(near, series, np.sinh(x) / np.where(near, 1.0, x))


# ------------------------------------------------------------------------------------------------ Lambert's W

_lambertw = parametric(
    special._ufuncs._lambertw,
    "z k tol",
    z=lambda out: 1 / (np.exp(out) * (1 + out)),
    name="lambertw",
    domain=positive,
    samples=[call((3,), k_=0, tol_=1e-8), call((2, 2), k_=-1, tol_=1e-8)],
    refusal="it names the branch, or the precision",
    told="Lambert's W: the w with w exp(w) = z, on branch k.",
    holomorphic=False,
)


def lambertw(z, k=0, tol=1e-8):
    """Lambert's W: the complex w with w exp(w) = z, on branch k; differentiable by z.

    >>> import tapegrad as tg
    >>> tg.grad(lambda z: tg.real(tg.special.lambertw(z)))(0.0)
    1.0
    """
    return _lambertw(operand(z), np.asarray(raw(k), dtype=np.dtype("long")), tol)


# ------------------------------------------------------------------------- integrals of Bessel's functions
#
# Of zero order, from 0 or to infinity; the integrands are functions with rules, written where they are used.


def _bessel_integrals() -> None:
    from . import bessel

    _two(special.itj0y0, bessel.j0, bessel.y0, "Integrals of j0 and y0 from 0 to x.", positive_only)
    _two(special.iti0k0, bessel.i0, bessel.k0, "Integrals of i0 and k0 from 0 to x.", positive_only)


_bessel_integrals()
itj0y0 = UFUNCS[special.itj0y0]
iti0k0 = UFUNCS[special.iti0k0]

__all__ = [
    "exp1", "expi", "expn", "fresnel", "iti0k0", "itj0y0", "lambertw", "shichi", "sici", "spence", "wrightomega",
]  # fmt: skip
