"""`tg.stats`: the distributions and the statistics of samples of `scipy.stats`, differentiable, under SciPy's names.

`scipy.stats` itself computes in loops of its own, which a tensor cannot go through. Here a distribution is one declaration (the
logarithm of its density, its support, and its distribution function where that has a formula), written in ops that have rules;
everything else follows from it: see `univariate.py`. Without a tracked tensor SciPy's own function is called, so values, shapes and
errors are SciPy's. Statistics of samples are in `descriptive.py`.

Invariant: as in SciPy, a density is 0 outside the support (and its gradient too), and NaN where a parameter is out of its range.

>>> import tapegrad as tg
>>> tg.grad(lambda a: tg.stats.gamma(a, scale=2.0).logpdf(3.0))(2.5)
-0.2976...
>>> tg.grad(tg.stats.t.ppf, 1)(0.975, 5.0)
-0.1546...
"""

from __future__ import annotations

from ..core import elsewhere
from . import continuous, discrete
from .continuous import *
from .density import gaussian_kde
from .descriptive import *
from .descriptive import __all__ as _descriptive
from .discrete import *
from .discrete import Discrete as Discrete
from .families import *
from .families import __all__ as _families
from .multivariate import *
from .multivariate import __all__ as _multivariate
from .poisson_binomial import poisson_binom
from .stable import levy_stable
from .studentized import studentized_range
from .univariate import Continuous as Continuous
from .univariate import Frozen as Frozen

__all__ = [
    *continuous.__all__,
    *_descriptive,
    *discrete.__all__,
    *_families,
    *_multivariate,
    "gaussian_kde",
    "levy_stable",
    "poisson_binom",
    "studentized_range",
]


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
