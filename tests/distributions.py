"""The distributions of `tg.stats` with parameters at which they are judged, and what SciPy computes too slowly to be asked often."""

from __future__ import annotations

CONTINUOUS: dict[str, list[tuple[float, ...]]] = {
    "alpha": [(3.57,)], "anglit": [()], "arcsine": [()], "argus": [(1.0,), (3.0,)], "beta": [(2.3, 0.63), (4.0, 9.0)],
    "betaprime": [(5.0, 6.0)], "bradford": [(0.3,)], "burr": [(10.5, 4.3), (1.2, 0.7)], "burr12": [(10.0, 4.0)], "cauchy": [()],
    "chi": [(7.8,)], "chi2": [(5.5,)], "cosine": [()], "crystalball": [(2.0, 3.0)], "dgamma": [(1.1,)],
    "dpareto_lognorm": [(3.0, 1.2, 1.5, 2.5)], "dweibull": [(2.07,)], "erlang": [(10.0,)], "expon": [()], "exponnorm": [(1.5,)],
    "exponpow": [(2.7,)], "exponweib": [(2.9, 1.95)], "f": [(29.0, 18.0)], "fatiguelife": [(2.9,), (0.3,)], "fisk": [(3.09,)],
    "foldcauchy": [(4.7,)], "foldnorm": [(1.95,)], "gamma": [(1.99,), (0.8,)], "gausshyper": [(13.8, 3.12, 2.51, 5.18)],
    "genexpon": [(9.1, 16.2, 3.28)], "genextreme": [(-0.1,), (0.3,)], "gengamma": [(4.4, 3.1), (4.4, -3.1)],
    "genhalflogistic": [(0.77,)], "genhyperbolic": [(0.5, 1.5, -0.5)], "geninvgauss": [(2.3, 1.5)], "genlogistic": [(0.41,)],
    "gennorm": [(1.3,)], "genpareto": [(0.1,), (-0.3,)], "gibrat": [()], "gompertz": [(0.95,)], "gumbel_l": [()], "gumbel_r": [()],
    "halfcauchy": [()], "halfgennorm": [(0.67,)], "halflogistic": [()], "halfnorm": [()], "hypsecant": [()], "invgamma": [(4.07,)],
    "invgauss": [(0.145,), (2.0,)], "invweibull": [(10.6,)], "irwinhall": [(10,)], "jf_skew_t": [(8.0, 4.0)],
    "johnsonsb": [(4.3, 3.2)], "johnsonsu": [(2.55, 2.25)], "kappa3": [(1.0,)], "kappa4": [(-0.1, 0.1), (0.2, 0.1), (0.3, -0.2), (-0.2, -0.2)],
    "ksone": [(7,), (40,)], "kstwo": [(7,)], "kstwobign": [()], "landau": [()], "laplace": [()], "laplace_asymmetric": [(2.0,)], "levy": [()], "levy_l": [()], "loggamma": [(0.41,)], "logistic": [()],
    "loglaplace": [(3.25,)], "lognorm": [(0.95,)], "loguniform": [(0.01, 1.25)], "lomax": [(1.88,)], "maxwell": [()],
    "mielke": [(10.4, 4.6)], "moyal": [()], "nakagami": [(4.97,)], "ncf": [(27.0, 27.0, 0.416), (3.0, 5.0, 4.0)],
    "nct": [(14.0, 0.24), (3.2, -2.0)], "ncx2": [(21.0, 1.06), (1.3, 30.0)], "norm": [()], "norminvgauss": [(1.25, 0.5)],
    "pareto": [(2.62,)], "pearson3": [(0.4,), (-1.5,)], "powerlaw": [(1.66,), (0.66,)], "powerlognorm": [(2.14, 0.446)],
    "powernorm": [(4.45,)], "rayleigh": [()], "rdist": [(1.6,), (3.0,)], "reciprocal": [(0.01, 1.25)], "recipinvgauss": [(0.63,)],
    "rel_breitwigner": [(0.7,)], "rice": [(0.775,)], "semicircular": [()], "skewcauchy": [(0.5,)], "skewnorm": [(4.0,), (-1.5,)],
    "t": [(2.74,), (30.0,)], "trapezoid": [(0.2, 0.8)], "triang": [(0.158,)], "truncexpon": [(4.69,)],
    "truncnorm": [(-1.1, 2.73), (0.1, 2.0)], "truncpareto": [(1.8, 5.3), (-2.0, 5.0)], "truncweibull_min": [(2.5, 0.25, 1.75)],
    "tukeylambda": [(3.13,), (0.14,), (-0.3,)], "uniform": [()], "vonmises": [(3.99,)], "vonmises_line": [(3.99,)], "wald": [()],
    "weibull_max": [(2.87,)], "weibull_min": [(1.79,)], "wrapcauchy": [(0.31,)],
}  # fmt: skip

DISCRETE: dict[str, list[tuple[float, ...]]] = {
    "bernoulli": [(0.3,)], "betabinom": [(5, 2.3, 0.63)], "betanbinom": [(5, 9.3, 1.2)], "binom": [(5, 0.4), (40, 0.3)],
    "boltzmann": [(1.4, 19)], "dlaplace": [(0.8,)], "geom": [(0.5,)], "hypergeom": [(30, 12, 6)], "logser": [(0.6,)],
    "nbinom": [(0.4, 0.4), (5.0, 0.5)], "nchypergeom_fisher": [(20, 7, 12, 3.0)], "nchypergeom_wallenius": [(20, 7, 12, 3.0)],
    "nhypergeom": [(20, 7, 2)], "planck": [(0.51,)], "poisson": [(0.6,), (30.0,)], "randint": [(7, 31)], "skellam": [(15.0, 8.0)],
    "yulesimon": [(11.0,)], "zipf": [(6.6,)], "zipfian": [(0.75, 15)],
}  # fmt: skip

SLOW_QUANTILES = {
    "gausshyper",
    "geninvgauss",
    "genhyperbolic",
    "norminvgauss",
    "vonmises",
    "vonmises_line",
    "argus",
    "exponweib",
    "exponpow",
}
"""SciPy finds their quantiles one by one, by integrals."""

QUICK_MOMENTS = {
    "norm", "gamma", "beta", "t", "chi2", "weibull_min", "lognorm", "gumbel_r", "genpareto", "invgauss", "triang", "trapezoid",
    "loglaplace", "tukeylambda", "laplace_asymmetric",
}  # fmt: skip
"""Of the others SciPy computes some moment by an integral over quantiles, which takes seconds: they are judged in campaigns."""

ROUGH_MOMENTS = {"exponpow", "invweibull", "kappa3", "genextreme"}
"""SciPy's own moments have fewer digits than differences of them need."""
