"""Distribution functions: chi², gamma, Poisson, binomial, Student's t and F, all made of the incomplete functions.

Differentiable by the variable, and by shape parameters that are real; the counts of discrete ones are settings.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from ...core import seams
from ...core.domain import Domain, positive, real
from ...core.primitive import UFUNCS, call, select
from .declaring import parametric, smooth
from .gamma import betaln, psi
from .gaussian import ndtri, share
from .incomplete import (
    above,
    beta_density,
    by_a,
    by_b,
    gamma_density,
    gamma_quantile_by_shape,
    gamma_spacing,
    gammainc_by_shape,
    shape,
)

freedom = Domain("freedom", lambda rng, shape: rng.uniform(1.0, 6.0, shape), complex_too=False)
real_only = Domain("real_only", real.draw, complex_too=False)


def _gamma_by_a(a, x):
    return gammainc_by_shape(a, x, order_=1)


# fmt: off
chdtr  = smooth(special.chdtr,  lambda x, y: _gamma_by_a(x / 2, y / 2) / 2, lambda x, y: gamma_density(x / 2, y / 2) / 2, domain=(freedom, above))
chdtrc = smooth(special.chdtrc, lambda x, y: -_gamma_by_a(x / 2, y / 2) / 2, lambda x, y: -gamma_density(x / 2, y / 2) / 2, domain=(freedom, above))
chdtri = smooth(special.chdtri, lambda x, y, out: gamma_quantile_by_shape(x / 2, out / 2, 1 - y), lambda x, y, out: -2 * gamma_spacing(x / 2, out / 2, 1 - y),
                domain=(freedom, share))
gdtr   = smooth(special.gdtr,   lambda x, y, z: z * gamma_density(y, x * z), lambda x, y, z: _gamma_by_a(y, x * z),
                                lambda x, y, z: x * gamma_density(y, x * z), domain=(shape, shape, above))
gdtrc  = smooth(special.gdtrc,  lambda x, y, z: -z * gamma_density(y, x * z), lambda x, y, z: -_gamma_by_a(y, x * z),
                                lambda x, y, z: -x * gamma_density(y, x * z), domain=(shape, shape, above))

_COUNT = {"refusal": "it is a count", "holomorphic": False}
_TWO = {"samples": [call((3,), k_=2.0)], "domain": above, **_COUNT}
_THREE = {"samples": [call((3,), k_=2.0, n_=5)], "domain": share, **_COUNT,
          "unsupported": {"float32": "SciPy warns that it takes n as a real number then"}}
pdtr   = parametric(special.pdtr,   "k m",   m=lambda k, m: -gamma_density(np.floor(k) + 1, m), **_TWO)
pdtrc  = parametric(special.pdtrc,  "k m",   m=lambda k, m: gamma_density(np.floor(k) + 1, m), **_TWO)
bdtr   = parametric(special.bdtr,   "k n p", p=lambda k, n, p: -beta_density(n - np.floor(k), np.floor(k) + 1, 1 - p), **_THREE)
bdtrc  = parametric(special.bdtrc,  "k n p", p=lambda k, n, p: beta_density(n - np.floor(k), np.floor(k) + 1, 1 - p), **_THREE)
nbdtr  = parametric(special.nbdtr,  "k n p", p=lambda k, n, p: beta_density(n * 1.0, np.floor(k) + 1, p), **_THREE | {"samples": [call((3,), k_=2, n_=5)]})
nbdtrc = parametric(special.nbdtrc, "k n p", p=lambda k, n, p: -beta_density(n * 1.0, np.floor(k) + 1, p), **_THREE | {"samples": [call((3,), k_=2, n_=5)]})

stdtr   = smooth(special.stdtr,   lambda x, y: _student_by_freedom(x, y), lambda x, y: _student_density(x, y), domain=(freedom, real_only))
stdtrit = smooth(special.stdtrit, lambda x, out: -_student_by_freedom(x, out) / _student_density(x, out),
                                  lambda x, y, out: _student_spacing(x, y, out), domain=(freedom, share))
fdtr    = smooth(special.fdtr,    lambda x, y, z: _f_by_first(x, y, z), lambda x, y, z: _f_by_second(x, y, z), lambda x, y, z: _f_density(x, y, z),
                 domain=(freedom, freedom, positive))
fdtrc   = smooth(special.fdtrc,   lambda x, y, z: -_f_by_first(x, y, z), lambda x, y, z: -_f_by_second(x, y, z), lambda x, y, z: -_f_density(x, y, z),
                 domain=(freedom, freedom, positive))
# fmt: on


_LOG_TAU = np.log(2 * np.pi)


def _student_density(df, t):
    """The density; for infinite df the normal one."""
    df, t = 1.0 * df, 1.0 * t  # small integers would overflow
    normal = df == np.inf
    df = select(normal, 1.0, df)
    student = -betaln(df / 2, 0.5) - 0.5 * np.log(df) - (df + 1) / 2 * np.log1p(t * t / df)
    return np.exp(select(normal, -0.5 * (t * t + _LOG_TAU), student))


def _student_spacing(df, p, t):
    """The slope of a quantile; at p = 0 and 1 it is infinite, and so are its own slopes."""
    nearest = select(p < 0.5, p, 1 - p)
    end = nearest == 0
    inside = 1 / _student_density(df, select(end, 0.0, t))
    return select(end, 1 / select(end, nearest, 1.0), inside)


def _student_by_freedom(df, t):
    """Student's distribution is half of betainc(df/2, 1/2, y) beyond |t|, with y = df / (df + t²), and of betainc(1/2, df/2, 1 - y) within.

    Whichever of y and 1 - y is small says it: beside 1 there are no digits left. At infinite df the slope is 0, and at t = 0, where the
    formula has no value, it is the first terms of its series in t.
    """
    df = 1.0 * df
    normal, centre = df == np.inf, t == 0
    df = select(normal, 1.0, df)
    series = _student_by_freedom_inside(df, select(centre, t, 0.0))
    t = select(normal | centre, 1.0, t)
    total = df + t * t
    inner = t * t < df
    w, y = select(inner, t * t / total, 0.5), select(inner, 0.5, df / total)
    within = by_b(0.5, df / 2, w) / 2 - beta_density(0.5, df / 2, w) * t * t / (total * total)
    beyond = by_a(df / 2, 0.5, y) / 2 + beta_density(df / 2, 0.5, y) * t * t / (total * total)
    outside = 0.5 * np.sign(t) * select(inner, within, -beyond)
    return select(normal, 0.0, select(centre, series, outside))


def _student_by_freedom_inside(df, t):
    """To the fifth power of t: the integral of d/d(df) of p (1 + t²/df) ** (-(df + 1) / 2), p being the density at 0."""
    slope = 0.5 * (psi((df + 1) / 2) - psi(df / 2) - 1 / df)  # of log p
    second, fourth = -(1 + 1 / df) / 2, (1 + 4 / df + 3 / (df * df)) / 8
    by_second, by_fourth = 0.5 / (df * df), -(2 + 3 / df) / (4 * df * df)
    s = t * t
    terms = (slope * fourth + by_fourth) * s / 5 + (slope * second + by_second) / 3
    return np.exp(-betaln(df / 2, 0.5) - 0.5 * np.log(df)) * t * (slope + s * terms)


def _f(n, d, x):
    """Shapes and argument of the betainc that the F distribution is, and n x + d."""
    total = d + n * x
    return n / 2, d / 2, n * x / total, total


def _f_by_first(n, d, x):
    a, b, y, total = _f(n, d, x)
    return by_a(a, b, y) / 2 + beta_density(a, b, y) * x * d / (total * total)


def _f_by_second(n, d, x):
    a, b, y, total = _f(n, d, x)
    return by_b(a, b, y) / 2 - beta_density(a, b, y) * n * x / (total * total)


def _f_density(n, d, x):
    a, b, y, total = _f(n, d, x)
    return beta_density(a, b, y) * n * d / (total * total)


def nrdtrimn(p, std, x):
    """Mean of the normal distribution of which x, with this deviation, is the p-quantile."""
    return x - std * ndtri(p)


def nrdtrisd(mn, p, x):
    """Deviation of the normal distribution of this mean of which x is the p-quantile."""
    return (x - mn) / ndtri(p)


def chndtr(x, df, nc):
    """Noncentral chi-square distribution function, differentiable by all arguments: `tg.stats.ncx2.cdf`."""
    return _noncentral("ncx2").cdf(x, df, nc)


def chndtrix(p, df, nc):
    """Inverse of chndtr by x: `tg.stats.ncx2.ppf`."""
    return _noncentral("ncx2").ppf(p, df, nc)


def ncfdtr(dfn, dfd, nc, f):
    """Noncentral F distribution function, differentiable by all arguments: `tg.stats.ncf.cdf`."""
    return _noncentral("ncf").cdf(f, dfn, dfd, nc)


def ncfdtri(dfn, dfd, nc, p):
    """Inverse of ncfdtr by f: `tg.stats.ncf.ppf`."""
    return _noncentral("ncf").ppf(p, dfn, dfd, nc)


def nctdtr(df, nc, t):
    """Noncentral t distribution function, differentiable by all arguments: `tg.stats.nct.cdf`."""
    return _noncentral("nct").cdf(t, df, nc)


def nctdtrit(df, nc, p):
    """Inverse of nctdtr by t: `tg.stats.nct.ppf`."""
    return _noncentral("nct").ppf(p, df, nc)


def _noncentral(name):
    """The distribution, whose module is written in functions of this package."""
    return seams.noncentral(name)


for _function in (chndtr, chndtrix, ncfdtr, ncfdtri, nctdtr, nctdtrit):
    UFUNCS[getattr(special, _function.__name__)] = _function

UFUNCS[special.nrdtrimn] = nrdtrimn
UFUNCS[special.nrdtrisd] = nrdtrisd

__all__ = [
    "bdtr", "bdtrc", "chdtr", "chdtrc", "chdtri", "chndtr", "chndtrix", "fdtr", "fdtrc", "gdtr", "gdtrc", "nbdtr", "nbdtrc", "ncfdtr", "ncfdtri", "nctdtr", "nctdtrit", "nrdtrimn",
    "nrdtrisd", "pdtr", "pdtrc", "stdtr", "stdtrit",
]  # fmt: skip
