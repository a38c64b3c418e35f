"""`tg.stats`: the distributions and the statistics of samples of `scipy.stats`, differentiable, under SciPy's names.

Made by `python -m tapegrad stubs --update`, of NumPy 2.4.6 and SciPy 1.17.1.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, overload, type_check_only
from builtins import bool as _bool, bytes as _bytes, float as _float, int as _int, list as _list, str as _str, tuple as _tuple

import numpy as np
from tapegrad.stats.density import gaussian_kde as gaussian_kde
from tapegrad.stats.descriptive import boxcox as boxcox
from tapegrad.stats.descriptive import boxcox_llf as boxcox_llf
from tapegrad.stats.descriptive import chisquare as chisquare
from tapegrad.stats.descriptive import circmean as circmean
from tapegrad.stats.descriptive import circstd as circstd
from tapegrad.stats.descriptive import circvar as circvar
from tapegrad.stats.descriptive import describe as describe
from tapegrad.stats.descriptive import differential_entropy as differential_entropy
from tapegrad.stats.descriptive import energy_distance as energy_distance
from tapegrad.stats.descriptive import entropy as entropy
from tapegrad.stats.descriptive import expectile as expectile
from tapegrad.stats.descriptive import f_oneway as f_oneway
from tapegrad.stats.descriptive import gmean as gmean
from tapegrad.stats.descriptive import gstd as gstd
from tapegrad.stats.descriptive import gzscore as gzscore
from tapegrad.stats.descriptive import hmean as hmean
from tapegrad.stats.descriptive import iqr as iqr
from tapegrad.stats.descriptive import jarque_bera as jarque_bera
from tapegrad.stats.descriptive import kstat as kstat
from tapegrad.stats.descriptive import kstatvar as kstatvar
from tapegrad.stats.descriptive import kurtosis as kurtosis
from tapegrad.stats.descriptive import kurtosistest as kurtosistest
from tapegrad.stats.descriptive import linregress as linregress
from tapegrad.stats.descriptive import median_abs_deviation as median_abs_deviation
from tapegrad.stats.descriptive import moment as moment
from tapegrad.stats.descriptive import normaltest as normaltest
from tapegrad.stats.descriptive import pearsonr as pearsonr
from tapegrad.stats.descriptive import pmean as pmean
from tapegrad.stats.descriptive import power_divergence as power_divergence
from tapegrad.stats.descriptive import sem as sem
from tapegrad.stats.descriptive import skew as skew
from tapegrad.stats.descriptive import skewtest as skewtest
from tapegrad.stats.descriptive import tmean as tmean
from tapegrad.stats.descriptive import trim_mean as trim_mean
from tapegrad.stats.descriptive import tsem as tsem
from tapegrad.stats.descriptive import tstd as tstd
from tapegrad.stats.descriptive import ttest_1samp as ttest_1samp
from tapegrad.stats.descriptive import ttest_ind as ttest_ind
from tapegrad.stats.descriptive import ttest_ind_from_stats as ttest_ind_from_stats
from tapegrad.stats.descriptive import ttest_rel as ttest_rel
from tapegrad.stats.descriptive import tvar as tvar
from tapegrad.stats.descriptive import variation as variation
from tapegrad.stats.descriptive import wasserstein_distance as wasserstein_distance
from tapegrad.stats.descriptive import yeojohnson as yeojohnson
from tapegrad.stats.descriptive import yeojohnson_llf as yeojohnson_llf
from tapegrad.stats.descriptive import zmap as zmap
from tapegrad.stats.descriptive import zscore as zscore
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
from tapegrad.stats.families import matrix_t as matrix_t
from tapegrad.stats.families import multinomial as multinomial
from tapegrad.stats.families import multivariate_hypergeom as multivariate_hypergeom
from tapegrad.stats.families import multivariate_t as multivariate_t
from tapegrad.stats.families import normal_inverse_gamma as normal_inverse_gamma
from tapegrad.stats.families import ortho_group as ortho_group
from tapegrad.stats.families import random_correlation as random_correlation
from tapegrad.stats.families import random_table as random_table
from tapegrad.stats.families import special_ortho_group as special_ortho_group
from tapegrad.stats.families import uniform_direction as uniform_direction
from tapegrad.stats.families import unitary_group as unitary_group
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
__all__ = ['alpha', 'anglit', 'arcsine', 'argus', 'bernoulli', 'beta', 'betabinom', 'betanbinom', 'betaprime', 'binom', 'boltzmann', 'boxcox', 'boxcox_llf', 'bradford', 'burr', 'burr12', 'cauchy', 'chi', 'chi2', 'chisquare', 'circmean', 'circstd', 'circvar', 'cosine', 'crystalball', 'describe', 'dgamma', 'differential_entropy', 'dirichlet', 'dirichlet_multinomial', 'dlaplace', 'dpareto_lognorm', 'dweibull', 'energy_distance', 'entropy', 'erlang', 'expectile', 'expon', 'exponnorm', 'exponpow', 'exponweib', 'f', 'f_oneway', 'fatiguelife', 'fisk', 'foldcauchy', 'foldnorm', 'gamma', 'gausshyper', 'gaussian_kde', 'genexpon', 'genextreme', 'gengamma', 'genhalflogistic', 'genhyperbolic', 'geninvgauss', 'genlogistic', 'gennorm', 'genpareto', 'geom', 'gibrat', 'gmean', 'gompertz', 'gstd', 'gumbel_l', 'gumbel_r', 'gzscore', 'halfcauchy', 'halfgennorm', 'halflogistic', 'halfnorm', 'hmean', 'hypergeom', 'hypsecant', 'invgamma', 'invgauss', 'invweibull', 'invwishart', 'iqr', 'irwinhall', 'jarque_bera', 'jf_skew_t', 'johnsonsb', 'johnsonsu', 'kappa3', 'kappa4', 'ksone', 'kstat', 'kstatvar', 'kstwo', 'kstwobign', 'kurtosis', 'kurtosistest', 'landau', 'laplace', 'laplace_asymmetric', 'levy', 'levy_l', 'levy_stable', 'linregress', 'loggamma', 'logistic', 'loglaplace', 'lognorm', 'logser', 'loguniform', 'lomax', 'matrix_normal', 'matrix_t', 'maxwell', 'median_abs_deviation', 'mielke', 'moment', 'moyal', 'multinomial', 'multivariate_hypergeom', 'multivariate_normal', 'multivariate_t', 'nakagami', 'nbinom', 'ncf', 'nchypergeom_fisher', 'nchypergeom_wallenius', 'nct', 'ncx2', 'nhypergeom', 'norm', 'normal_inverse_gamma', 'normaltest', 'norminvgauss', 'ortho_group', 'pareto', 'pearson3', 'pearsonr', 'planck', 'pmean', 'poisson', 'poisson_binom', 'power_divergence', 'powerlaw', 'powerlognorm', 'powernorm', 'randint', 'random_correlation', 'random_table', 'rayleigh', 'rdist', 'recipinvgauss', 'reciprocal', 'rel_breitwigner', 'rice', 'sem', 'semicircular', 'skellam', 'skew', 'skewcauchy', 'skewnorm', 'skewtest', 'special_ortho_group', 'studentized_range', 't', 'tmean', 'trapezoid', 'triang', 'trim_mean', 'truncexpon', 'truncnorm', 'truncpareto', 'truncweibull_min', 'tsem', 'tstd', 'ttest_1samp', 'ttest_ind', 'ttest_ind_from_stats', 'ttest_rel', 'tukeylambda', 'tvar', 'uniform', 'uniform_direction', 'unitary_group', 'variation', 'vonmises', 'vonmises_fisher', 'vonmises_line', 'wald', 'wasserstein_distance', 'weibull_max', 'weibull_min', 'wishart', 'wrapcauchy', 'yeojohnson', 'yeojohnson_llf', 'yulesimon', 'zipf', 'zipfian', 'zmap', 'zscore']
