"""Bessel functions: J, Y, I, K, Hankel's, their scaled forms, the spherical ones, Airy's, Kelvin's and Struve's.

The derivative by the argument is that of the recurrences (DLMF 10.6, 10.29, 10.51): half the difference, or sum, of the functions
of the orders beside it, which holds at 0 too. Those by the order have no closed form and are refused.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, positive, real
from ...core.primitive import UFUNCS, call, compiled_as, select, several
from ...errors import NotDifferentiable
from ..composing import operand
from ..elementary import sign
from .declaring import NO_STEP, parametric, smooth
from .gamma import rgamma

positive_only = Domain("positive_only", positive.draw, complex_too=False)
real_only = Domain("real_only", real.draw, complex_too=False)

_ORDER = "by its order there is no closed form of the derivative"


def _bessel(of, partial, **declared):
    """A function of real order v and argument z, by its derivative in z."""
    samples = [call((3,), v_=0.5), call((2, 2), v_=2), call((3,), v_=np.array([0.0, 1.0, 2.3]))]
    declared = {"domain": positive, "samples": samples, "holomorphic": True} | declared
    return parametric(of, "v z", z=partial, refusal=_ORDER, **declared)


@compiled_as(lambda z, name: z)
def _real_only(z, name):
    """Refuse complex arguments, at which the scale exp(-|Re z|) or exp(-|Im z|) is no analytic function."""
    if z.dtype.kind == "c":
        raise NotDifferentiable(
            f"the derivative of {name} was asked at a complex argument, but its scale is no analytic function of it. Use the "
            "function without the scale (jv, yv, iv), or real arguments.",
            name="not-real",
        )
    return z


_SCALED = {"complex": "its scale is no analytic function: complex arguments are refused"}

# fmt: off
jv       = _bessel(special.jv,       lambda v, z: (jv(v - 1, z) - jv(v + 1, z)) / 2, unsupported=NO_STEP)
yv       = _bessel(special.yv,       lambda v, z: (yv(v - 1, z) - yv(v + 1, z)) / 2, unsupported=NO_STEP)
iv       = _bessel(special.iv,       lambda v, z: (iv(v - 1, z) + iv(v + 1, z)) / 2)
kv       = _bessel(special.kv,       lambda v, z: -(kv(v - 1, z) + kv(v + 1, z)) / 2)
kve      = _bessel(special.kve,      lambda v, z, out: _falling_slope(v, z, out, out - (kve(v - 1, z) + kve(v + 1, z)) / 2))
hankel1  = _bessel(special.hankel1,  lambda v, z: (hankel1(v - 1, z) - hankel1(v + 1, z)) / 2, holomorphic=False)
hankel2  = _bessel(special.hankel2,  lambda v, z: (hankel2(v - 1, z) - hankel2(v + 1, z)) / 2, holomorphic=False)
hankel1e = _bessel(special.hankel1e, lambda v, z, out: (hankel1e(v - 1, z) - hankel1e(v + 1, z)) / 2 - 1j * out, holomorphic=False)
hankel2e = _bessel(special.hankel2e, lambda v, z, out: (hankel2e(v - 1, z) - hankel2e(v + 1, z)) / 2 + 1j * out, holomorphic=False)
jve      = _bessel(special.jve,      lambda v, z: (jve(v - 1, _real_only(z, "jve")) - jve(v + 1, z)) / 2, unsupported=_SCALED, holomorphic=False)
yve      = _bessel(special.yve,      lambda v, z: (yve(v - 1, _real_only(z, "yve")) - yve(v + 1, z)) / 2, unsupported=_SCALED, holomorphic=False)
ive      = _bessel(special.ive,      lambda v, z, out: _scaled_slope(
                   v, _real_only(z, "ive"), out, (ive(v - 1, z) + ive(v + 1, z)) / 2 - sign(z) * out),
                   unsupported=_SCALED, holomorphic=False)

_WHOLE = {"samples": [call((3,), n_=0), call((2, 2), n_=2)], "domain": positive_only, "refusal": _ORDER}
yn       = parametric(special.yn, "n x", x=lambda n, x: (yn(n - 1, x) - yn(n + 1, x)) / 2, **_WHOLE)
kn       = parametric(special.kn, "n x", x=lambda n, x: -(kn(abs(n - 1), x) + kn(n + 1, x)) / 2, **_WHOLE)

j0       = smooth(special.j0,  lambda x: -j1(x),                    domain=real_only)
j1       = smooth(special.j1,  lambda x: (j0(x) - jv(2, x)) / 2,    domain=real_only)
y0       = smooth(special.y0,  lambda x: -y1(x),                    domain=positive_only)
y1       = smooth(special.y1,  lambda x: (y0(x) - yv(2, x)) / 2,    domain=positive_only)
i0       = smooth(special.i0,  lambda x: i1(x),                     domain=real_only, name="bessel_i0")
i1       = smooth(special.i1,  lambda x: (i0(x) + iv(2, x)) / 2,    domain=real_only)
i0e      = smooth(special.i0e, lambda x, out: _scaled_slope(0, x, out, i1e(x) - np.sign(x) * out), domain=real_only)
i1e      = smooth(special.i1e, lambda x, out: _scaled_slope(1, x, out, (i0e(x) + ive(2, x)) / 2 - np.sign(x) * out), domain=real_only)
k0       = smooth(special.k0,  lambda x: -k1(x),                    domain=positive_only)
k1       = smooth(special.k1,  lambda x: -(k0(x) + kv(2, x)) / 2,   domain=positive_only)
k0e      = smooth(special.k0e, lambda x, out: _falling_slope(0, x, out, out - k1e(x)), domain=positive_only)
k1e      = smooth(special.k1e, lambda x, out: _falling_slope(1, x, out, out - (k0e(x) + kve(2, x)) / 2), domain=positive_only)

# Struve's functions of order v: half the difference of their neighbours, and a power.
_STRUVE = {"samples": [call((3,), v_=0.5), call((2, 2), v_=2)], "domain": positive_only, "refusal": _ORDER, "holomorphic": False}
struve    = parametric(special.struve,    "v x", x=lambda v, x, out: _struve_slope(v, x, out, struve(v - 1, x), (struve(v - 1, x) - struve(v + 1, x) + _power(v, x)) / 2), **_STRUVE)
modstruve = parametric(special.modstruve, "v x", x=lambda v, x, out: _struve_slope(v, x, out, modstruve(v - 1, x), (modstruve(v - 1, x) + modstruve(v + 1, x) + _power(v, x)) / 2), **_STRUVE)

# Kelvin's functions: the real and imaginary parts of a Bessel function on a diagonal; slopes by its equation.
ber      = smooth(special.ber,  lambda x: berp(x), domain=real_only)
bei      = smooth(special.bei,  lambda x: beip(x), domain=real_only)
ker      = smooth(special.ker,  lambda x: kerp(x), domain=positive_only)
kei      = smooth(special.kei,  lambda x: keip(x), domain=positive_only)
berp     = smooth(special.berp, lambda x, out: -bei(x) - _berp_over(x, out), domain=real_only)
beip     = smooth(special.beip, lambda x, out: ber(x) - _beip_over(x, out), domain=real_only)
kerp     = smooth(special.kerp, lambda x, out: -kei(x) - out / x, domain=positive_only)
keip     = smooth(special.keip, lambda x, out: ker(x) - out / x, domain=positive_only)
# fmt: on

jn = jv


def _struve_slope(v, x, out, below, near):
    """By the order below alone (DLMF 11.4.27) beyond 1: the function of the order above grows, and cancels the power; `near` has both."""
    far = x > 1
    return select(far, below - v * out / select(far, x, 1.0), near)


def _power(v, x):
    """(x/2)^v / (sqrt(pi) gamma(v + 3/2))"""
    return (x / 2) ** v * rgamma(v + 1.5) / math.sqrt(math.pi)


FAR = 40.0


def _scaled_slope(v, z, out, near):
    """The derivative of exp(-|z|) I_v(z); `near` is that by the recurrence.

    The recurrence takes nearly equal functions from each other: of the slope, 1 / (2 z) of the function, it keeps no more than
    that part of the digits, and the second derivative loses them twice. From |z| = 40 + v^2 on the slope is that of Hankel's
    expansion (DLMF 10.40.1), sqrt(c / z) times a short series in 1 / z, whose terms fall faster than 0.5^k / k!.
    """
    far = abs(z) > FAR + v * v
    inside = select(far, z, FAR + v * v)
    return select(far, out * _expansion_slope(4 * v * v, inside, -1 / 8 / abs(inside)), near)


def _falling_slope(v, z, out, near):
    """The derivative of exp(z) K_v(z): beyond 4 by Temme's continued fraction (J. Comput. Phys. 19, 1975), which does not cancel."""
    far = np.real(z) > 4
    return select(far, -out * _fall(v, select(far, z, 4.0)), near)


def _fall(v, z):
    """1/2 + (v² - 1/4) f, over z; f is the fraction, whose rest after 16 terms is below 1e-16 from 4 on, of whatever order."""
    return (0.5 + (v * v - 0.25) / (2 * (1 + z) + (v * v - 2.25) / (2 * (2 + z) + (v * v - 6.25) / (2 * (3 + z) + (v * v - 12.25) / (2 * (4 + z) + (v * v - 20.25) / (2 * (5 + z) + (v * v - 30.25) / (2 * (6 + z) + (v * v - 42.25) / (2 * (7 + z) + (v * v - 56.25) / (2 * (8 + z) + (v * v - 72.25) / (2 * (9 + z) + (v * v - 90.25) / (2 * (10 + z) + (v * v - 110.25) / (2 * (11 + z) + (v * v - 132.25) / (2 * (12 + z) + (v * v - 156.25) / (2 * (13 + z) + (v * v - 182.25) / (2 * (14 + z) + (v * v - 210.25) / (2 * (15 + z) + (v * v - 240.25) / (2 * (16 + z)))))))))))))))))) / z  # fmt: skip


def _expansion_slope(order, z, w):
    """The logarithmic derivative of Hankel's expansion, its k-th term being the one before times t_k."""
    t1 = (order - 1) * w
    t2 = (order - 9) * w / 2
    t3 = (order - 25) * w / 3
    t4 = (order - 49) * w / 4
    t5 = (order - 81) * w / 5
    t6 = (order - 121) * w / 6
    t7 = (order - 169) * w / 7
    t8 = (order - 225) * w / 8
    t9 = (order - 289) * w / 9
    t10 = (order - 361) * w / 10
    t11 = (order - 441) * w / 11
    t12 = (order - 529) * w / 12
    t13 = (order - 625) * w / 13
    series = 1 + t13
    series = 1 + t12 * series
    series = 1 + t11 * series
    series = 1 + t10 * series
    series = 1 + t9 * series
    series = 1 + t8 * series
    series = 1 + t7 * series
    series = 1 + t6 * series
    series = 1 + t5 * series
    series = 1 + t4 * series
    series = 1 + t3 * series
    series = 1 + t2 * series
    series = 1 + t1 * series
    slopes = t13 * 13
    slopes = t12 * (12 + slopes)
    slopes = t11 * (11 + slopes)
    slopes = t10 * (10 + slopes)
    slopes = t9 * (9 + slopes)
    slopes = t8 * (8 + slopes)
    slopes = t7 * (7 + slopes)
    slopes = t6 * (6 + slopes)
    slopes = t5 * (5 + slopes)
    slopes = t4 * (4 + slopes)
    slopes = t3 * (3 + slopes)
    slopes = t2 * (2 + slopes)
    slopes = t1 * (1 + slopes)
    return -(0.5 + slopes / series) / z


def _berp_over(x, out):
    """berp(x) / x; within 1 its series, which has the slopes at 0 too."""
    near = np.abs(x) < 1
    q = select(near, x, 0.0) * 0.5
    q = q * q
    s = q * q
    series = -q * (1 / 4 - s * (2 / 576 - s * (3 / 518400 - s * (4 / 1625702400 - s * 5 / 13168189440000))))  # fmt: skip
    return select(near, series, out / select(near, 1.0, x))


def _beip_over(x, out):
    """beip(x) / x; within 1 its series, which has the slopes at 0 too."""
    near = np.abs(x) < 1
    q = select(near, x, 0.0) * 0.5
    q = q * q
    s = q * q
    series = 0.5 - s * (1.5 / 36 - s * (2.5 / 14400 - s * (3.5 / 25401600 - s * 4.5 / 131681894400)))  # fmt: skip
    return select(near, series, out / select(near, 1.0, x))


# ------------------------------------------------------------------------------------------ spherical ones


def _spherical(name, letter, sign_below, sign_above):
    """n f(n-1) and (n+1) f(n+1), signed, over 2n + 1."""
    of = getattr(special._ufuncs, f"_{name}")

    def slope(n, z):
        n = np.asarray(n)
        below = function(np.maximum(n - 1, 0), z)
        return (sign_below * n * below + sign_above * (n + 1) * function(n + 1, z)) / (2 * n + 1)

    function = parametric(
        of,
        "n z",
        z=slope,
        name=name,
        domain=positive,
        samples=[call((3,), n_=0), call((2, 2), n_=2)],
        refusal="it is a whole number",
        told=f"The spherical Bessel function {letter} of order n.",
        unsupported=NO_STEP,
        kernel=False,
    )

    def public(n, z, derivative=False):
        n = np.asarray(n, dtype=np.dtype("long"))
        return slope(n, operand(z)) if derivative else function(n, operand(z))

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"The spherical Bessel function {letter} of order n, or its derivative by z; differentiable by z.\n\n"
    public.__doc__ += (
        ">>> import numpy as np, tapegrad as tg\n"
        f">>> slope = tg.grad(lambda z: tg.special.{name}(1, z))(0.75)\n"
        f">>> np.isclose(slope, tg.special.{name}(1, 0.75, derivative=True)).item()\nTrue\n"
    )
    public.primitive = function.primitive
    UFUNCS[getattr(special._ufuncs, f"_{name}_d")] = slope
    return public


spherical_jn = _spherical("spherical_jn", "j", 1, -1)
spherical_yn = _spherical("spherical_yn", "y", 1, -1)
spherical_in = _spherical("spherical_in", "i", 1, 1)
spherical_kn = _spherical("spherical_kn", "k", -1, -1)


# Derivatives of these functions of any order: SciPy's own, being written in them.
jvp, yvp, ivp, kvp = special.jvp, special.yvp, special.ivp, special.kvp
h1vp, h2vp = special.h1vp, special.h2vp


# ---------------------------------------------------------------------------------------------------- Airy


@several(
    special.airy,
    lambda shape: (shape,) * 4,
    name="airy",
    samples=[call((3,)), call((2, 2))],
    domain=real,
    unsupported=NO_STEP,
)
def airy(g, x, out):
    """Airy's functions Ai, Ai', Bi and Bi': Ai'' = x Ai, and Bi'' likewise."""
    ai, slope_ai, bi, slope_bi = out
    x = np.conj(x)
    return (
        g[0] * np.conj(slope_ai)
        + g[1] * x * np.conj(ai)
        + g[2] * np.conj(slope_bi)
        + g[3] * x * np.conj(bi)
    )


UFUNCS[special.airy] = airy

__all__ = [
    "airy", "bei", "beip", "ber", "berp", "h1vp", "h2vp", "hankel1", "hankel1e", "hankel2", "hankel2e", "i0", "i0e", "i1", "i1e", "iv", "ive", "ivp",
    "j0", "j1", "jn", "jv", "jve", "jvp", "k0", "k0e", "k1", "k1e", "kei", "keip", "ker", "kerp", "kn", "kv", "kve", "kvp", "modstruve",
    "spherical_in", "spherical_jn", "spherical_kn", "spherical_yn", "struve", "y0", "y1", "yn", "yv", "yve", "yvp",
]  # fmt: skip
