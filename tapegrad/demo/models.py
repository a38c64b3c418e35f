"""The models of the NIST problems: one row per form, the formula in plain NumPy.

A formula takes the predictor `x` and the parameters one by one and knows nothing of derivatives:
the same line gives values (floats in), the Jacobian (tensors in) and the complex-step oracle of
the gradient check (complex numbers in). `x` has shape (observations,); where a problem has several
predictors, (predictors, observations). Problems that share a form share its row, and each problem
stands in exactly one row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """A form of model, the problems it serves, and how their response is transformed first."""

    problems: str
    formula: Callable[..., Any]
    response: Callable[[np.ndarray], np.ndarray] = np.asarray


def gauss(x, height, centre, width):
    """A peak, as the files of the Gauss problems write it: no factor 2 below the square."""
    return height * np.exp(-((x - centre) ** 2) / width**2)


def wave(x, period, cosine, sine):
    """One harmonic of ENSO: the two amplitudes of a cycle of the given period."""
    angle = 2 * np.pi * x / period
    return cosine * np.cos(angle) + sine * np.sin(angle)


# The layout is the formulas' own: numerator over denominator, one term under another.
# fmt: off
MODELS = (
    Model("Misra1a BoxBOD",             lambda x, b1, b2: b1 * (1 - np.exp(-b2 * x))),
    Model("Misra1b",                    lambda x, b1, b2: b1 * (1 - (1 + b2 * x / 2) ** -2)),
    Model("Misra1c",                    lambda x, b1, b2: b1 * (1 - (1 + 2 * b2 * x) ** -0.5)),
    Model("Misra1d",                    lambda x, b1, b2: b1 * b2 * x / (1 + b2 * x)),
    Model("DanWood",                    lambda x, b1, b2: b1 * x**b2),
    Model("Chwirut1 Chwirut2",          lambda x, b1, b2, b3: np.exp(-b1 * x) / (b2 + b3 * x)),
    Model("Eckerle4",                   lambda x, b1, b2, b3:
                                            b1 / b2 * np.exp(-0.5 * ((x - b3) / b2) ** 2)),
    Model("MGH10",                      lambda x, b1, b2, b3: b1 * np.exp(b2 / (x + b3))),
    Model("Bennett5",                   lambda x, b1, b2, b3: b1 * (b2 + x) ** (-1 / b3)),
    Model("Rat42",                      lambda x, b1, b2, b3: b1 / (1 + np.exp(b2 - b3 * x))),
    Model("Rat43",                      lambda x, b1, b2, b3, b4:
                                            b1 / (1 + np.exp(b2 - b3 * x)) ** (1 / b4)),
    Model("Nelson",                     lambda x, b1, b2, b3: b1 - b2 * x[0] * np.exp(-b3 * x[1]),
                                        response=np.log),
    Model("Roszman1",                   lambda x, b1, b2, b3, b4:
                                            b1 - b2 * x - np.arctan(b3 / (x - b4)) / np.pi),
    Model("MGH09",                      lambda x, b1, b2, b3, b4:
                                            b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4)),
    Model("Kirby2",                     lambda x, b1, b2, b3, b4, b5:
                                            (b1 + b2 * x + b3 * x**2)
                                            / (1 + b4 * x + b5 * x**2)),
    Model("Hahn1 Thurber",              lambda x, b1, b2, b3, b4, b5, b6, b7:
                                            (b1 + b2 * x + b3 * x**2 + b4 * x**3)
                                            / (1 + b5 * x + b6 * x**2 + b7 * x**3)),
    Model("MGH17",                      lambda x, b1, b2, b3, b4, b5:
                                            b1 + b2 * np.exp(-x * b4) + b3 * np.exp(-x * b5)),
    Model("Lanczos1 Lanczos2 Lanczos3", lambda x, b1, b2, b3, b4, b5, b6:
                                            b1 * np.exp(-b2 * x)
                                            + b3 * np.exp(-b4 * x)
                                            + b5 * np.exp(-b6 * x)),
    Model("Gauss1 Gauss2 Gauss3",       lambda x, b1, b2, b3, b4, b5, b6, b7, b8:
                                            b1 * np.exp(-b2 * x)
                                            + gauss(x, b3, b4, b5)
                                            + gauss(x, b6, b7, b8)),
    Model("ENSO",                       lambda x, b1, b2, b3, b4, b5, b6, b7, b8, b9:
                                            b1
                                            + wave(x, 12, b2, b3)
                                            + wave(x, b4, b5, b6)
                                            + wave(x, b7, b8, b9)),
)
# fmt: on

MODEL_OF = {name: model for model in MODELS for name in model.problems.split()}
