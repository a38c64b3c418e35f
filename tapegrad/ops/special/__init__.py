"""SciPy's special functions, by family: declared when the first of them is asked for, since SciPy takes a while to import.

`tg.special`, or a tensor handed to a ufunc that is not NumPy's, imports this package (see dispatch.py). Functions whose
partials are one line are `elementwise` declarations like NumPy's; those with parameters that no derivative is taken by are
`parametric` (declaring.py). What is left of scipy.special is refused by name, with the reason, in refusals.py.
"""

from __future__ import annotations

from . import (
    bessel,
    distributions,
    gaussian,
    hypergeometric,
    incomplete,
    integrals,
    logarithmic,
    refusals,
    softening,
)
from . import gamma as gamma_family

__all__ = [
    "bessel", "distributions", "gamma_family", "gaussian", "hypergeometric", "incomplete", "integrals", "logarithmic",
    "refusals", "softening",
]  # fmt: skip
