"""`tg.stats`: the distributions of `scipy.stats`, differentiable by their variable and their parameters, under SciPy's names.

Made by `python -m tapegrad stubs --update`, of NumPy 2.4.6 and SciPy 1.17.1.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, overload, type_check_only
from builtins import bool as _bool, bytes as _bytes, float as _float, int as _int, list as _list, str as _str, tuple as _tuple

import numpy as np
from tapegrad.stats.density import gaussian_kde as gaussian_kde
from tapegrad.stats.discrete import Discrete as Discrete
from tapegrad.stats.discrete import bernoulli as bernoulli
from tapegrad.stats.discrete import betabinom as betabinom
from tapegrad.stats.discrete import betanbinom as betanbinom
from tapegrad.stats.discrete import binom as binom
from tapegrad.stats.discrete import boltzmann as boltzmann
from tapegrad.stats.discrete import dlaplace as dlaplace
from tapegrad.stats.discrete import geom as geom
from tapegrad.stats.discrete import hypergeom as hypergeom
from tapegrad.stats.discrete import logser as logser
from tapegrad.stats.discrete import nbinom as nbinom
from tapegrad.stats.discrete import nchypergeom_fisher as nchypergeom_fisher
from tapegrad.stats.discrete import nchypergeom_wallenius as nchypergeom_wallenius
from tapegrad.stats.discrete import nhypergeom as nhypergeom
from tapegrad.stats.discrete import planck as planck
from tapegrad.stats.discrete import poisson as poisson
from tapegrad.stats.discrete import randint as randint
from tapegrad.stats.discrete import skellam as skellam
from tapegrad.stats.discrete import yulesimon as yulesimon
from tapegrad.stats.discrete import zipf as zipf
from tapegrad.stats.discrete import zipfian as zipfian
from tapegrad.stats.families import dirichlet_multinomial as dirichlet_multinomial
from tapegrad.stats.families import invwishart as invwishart
from tapegrad.stats.families import matrix_normal as matrix_normal
from tapegrad.stats.families import multinomial as multinomial
from tapegrad.stats.families import multivariate_t as multivariate_t
from tapegrad.stats.families import vonmises_fisher as vonmises_fisher
from tapegrad.stats.families import wishart as wishart
from tapegrad.stats.multivariate import dirichlet as dirichlet
from tapegrad.stats.multivariate import multivariate_normal as multivariate_normal
from tapegrad.stats.poisson_binomial import poisson_binom as poisson_binom
from tapegrad.stats.stable import levy_stable as levy_stable
from tapegrad.stats.univariate import Continuous as Continuous
from tapegrad.stats.univariate import Continuous as _Continuous
from tapegrad.stats.univariate import Frozen as Frozen

alpha: _Continuous
anglit: _Continuous
arcsine: _Continuous
argus: _Continuous
beta: _Continuous
betaprime: _Continuous
bradford: _Continuous
burr: _Continuous
burr12: _Continuous
cauchy: _Continuous
chi: _Continuous
chi2: _Continuous
cosine: _Continuous
crystalball: _Continuous
dgamma: _Continuous
dpareto_lognorm: _Continuous
dweibull: _Continuous
erlang: _Continuous
expon: _Continuous
exponnorm: _Continuous
exponpow: _Continuous
exponweib: _Continuous
f: _Continuous
fatiguelife: _Continuous
fisk: _Continuous
foldcauchy: _Continuous
foldnorm: _Continuous
gamma: _Continuous
gausshyper: _Continuous
genexpon: _Continuous
genextreme: _Continuous
gengamma: _Continuous
genhalflogistic: _Continuous
genhyperbolic: _Continuous
geninvgauss: _Continuous
genlogistic: _Continuous
gennorm: _Continuous
genpareto: _Continuous
gibrat: _Continuous
gompertz: _Continuous
gumbel_l: _Continuous
gumbel_r: _Continuous
halfcauchy: _Continuous
halfgennorm: _Continuous
halflogistic: _Continuous
halfnorm: _Continuous
hypsecant: _Continuous
invgamma: _Continuous
invgauss: _Continuous
invweibull: _Continuous
irwinhall: _Continuous
jf_skew_t: _Continuous
johnsonsb: _Continuous
johnsonsu: _Continuous
kappa3: _Continuous
kappa4: _Continuous
ksone: _Continuous
kstwo: _Continuous
kstwobign: _Continuous
landau: _Continuous
laplace: _Continuous
laplace_asymmetric: _Continuous
levy: _Continuous
levy_l: _Continuous
loggamma: _Continuous
logistic: _Continuous
loglaplace: _Continuous
lognorm: _Continuous
loguniform: _Continuous
lomax: _Continuous
maxwell: _Continuous
mielke: _Continuous
moyal: _Continuous
nakagami: _Continuous
ncf: _Continuous
nct: _Continuous
ncx2: _Continuous
norm: _Continuous
norminvgauss: _Continuous
pareto: _Continuous
pearson3: _Continuous
powerlaw: _Continuous
powerlognorm: _Continuous
powernorm: _Continuous
rayleigh: _Continuous
rdist: _Continuous
recipinvgauss: _Continuous
reciprocal: _Continuous
rel_breitwigner: _Continuous
rice: _Continuous
semicircular: _Continuous
skewcauchy: _Continuous
skewnorm: _Continuous
studentized_range: _Continuous
t: _Continuous
trapezoid: _Continuous
triang: _Continuous
truncexpon: _Continuous
truncnorm: _Continuous
truncpareto: _Continuous
truncweibull_min: _Continuous
tukeylambda: _Continuous
uniform: _Continuous
vonmises: _Continuous
vonmises_line: _Continuous
wald: _Continuous
weibull_max: _Continuous
weibull_min: _Continuous
wrapcauchy: _Continuous
__all__ = ['alpha', 'anglit', 'arcsine', 'argus', 'bernoulli', 'beta', 'betabinom', 'betanbinom', 'betaprime', 'binom', 'boltzmann', 'bradford', 'burr', 'burr12', 'cauchy', 'chi', 'chi2', 'cosine', 'crystalball', 'dgamma', 'dirichlet', 'dirichlet_multinomial', 'dlaplace', 'dpareto_lognorm', 'dweibull', 'erlang', 'expon', 'exponnorm', 'exponpow', 'exponweib', 'f', 'fatiguelife', 'fisk', 'foldcauchy', 'foldnorm', 'gamma', 'gausshyper', 'gaussian_kde', 'genexpon', 'genextreme', 'gengamma', 'genhalflogistic', 'genhyperbolic', 'geninvgauss', 'genlogistic', 'gennorm', 'genpareto', 'geom', 'gibrat', 'gompertz', 'gumbel_l', 'gumbel_r', 'halfcauchy', 'halfgennorm', 'halflogistic', 'halfnorm', 'hypergeom', 'hypsecant', 'invgamma', 'invgauss', 'invweibull', 'invwishart', 'irwinhall', 'jf_skew_t', 'johnsonsb', 'johnsonsu', 'kappa3', 'kappa4', 'ksone', 'kstwo', 'kstwobign', 'landau', 'laplace', 'laplace_asymmetric', 'levy', 'levy_l', 'levy_stable', 'loggamma', 'logistic', 'loglaplace', 'lognorm', 'logser', 'loguniform', 'lomax', 'matrix_normal', 'maxwell', 'mielke', 'moyal', 'multinomial', 'multivariate_normal', 'multivariate_t', 'nakagami', 'nbinom', 'ncf', 'nchypergeom_fisher', 'nchypergeom_wallenius', 'nct', 'ncx2', 'nhypergeom', 'norm', 'norminvgauss', 'pareto', 'pearson3', 'planck', 'poisson', 'poisson_binom', 'powerlaw', 'powerlognorm', 'powernorm', 'randint', 'rayleigh', 'rdist', 'recipinvgauss', 'reciprocal', 'rel_breitwigner', 'rice', 'semicircular', 'skellam', 'skewcauchy', 'skewnorm', 'studentized_range', 't', 'trapezoid', 'triang', 'truncexpon', 'truncnorm', 'truncpareto', 'truncweibull_min', 'tukeylambda', 'uniform', 'vonmises', 'vonmises_fisher', 'vonmises_line', 'wald', 'weibull_max', 'weibull_min', 'wishart', 'wrapcauchy', 'yulesimon', 'zipf', 'zipfian']
