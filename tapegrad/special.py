"""`tg.special`: differentiable special functions, under SciPy's names.

Each is the same as `scipy.special.f(tensor)` where that is a ufunc; those that are not (logsumexp, softmax, polygamma,
multigammaln, ...) are reached only here. Importing this module imports scipy.special; `import tapegrad` does not.

>>> import scipy.special
>>> import tapegrad as tg
>>> x = tg.tensor([0.0, 1.0], requires_grad=True)
>>> scipy.special.erf(x)
tensor([0.        , 0.84270079], grad_fn=<ErfBackward0>)
"""

from __future__ import annotations

from .core import elsewhere
from .ops.special.bessel import *
from .ops.special.distributions import *
from .ops.special.gamma import *
from .ops.special.gaussian import *
from .ops.special.harmonics import *
from .ops.special.hypergeometric import *
from .ops.special.incomplete import *
from .ops.special.integrals import *
from .ops.special.logarithmic import *
from .ops.special.softening import *

__all__ = sorted(
    name for name, value in globals().items() if callable(value) and not name.startswith("_")
)


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
