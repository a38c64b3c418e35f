"""Nonlinear least squares to the last digit: two searches, then Gauss-Newton steps.

The same road for every problem. Two searches of SciPy start from the given point, since each can
end elsewhere when the start is far away: Levenberg-Marquardt ("lm", MINPACK) and the trust region
("trf"), both scaled by the columns of the Jacobian. The one with the smaller sum of squares is
kept. A search compares sums of squares, and these no longer change once half the digits of the
parameters stand (an error d in them changes the sum by d**2): so a polish follows, which looks at
the length of its own steps instead. A Gauss-Newton step solves `J p = -r` by orthogonal
factorisation with the columns of J scaled to length one; the normal equations would square the
condition number and with it the error.

Not optimal: near the solution Gauss-Newton converges linearly, the slower the larger the residual
times the curvature, where Newton with exact second derivatives would converge quadratically.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.optimize

from tapegrad.demo.measures import Function

METHODS = ("lm", "trf")

# Below what the searches can see, so that they stop only when they see nothing any more.
TOLERANCE = 1e-15

# A search from a far start may need hundreds of steps (MGH17, Bennett5); more is a lost cause.
EVALUATIONS = 5000

# The polish belongs to a converged point: a first step longer than this (relative to the
# parameters) says that the point is none, and then no step is taken.
FIRST_STEP = 1e-4
POLISH_STEPS = 200


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a fit ended: parameters, their standard deviations, and how it went.

    `method` is the search that was kept, `jacobians` what it and the polish evaluated.
    """

    parameters: np.ndarray
    deviations: np.ndarray
    rss: float
    method: str
    jacobians: int


def fit(residual: Function, jacobian: Function, start: np.ndarray) -> Fit:
    """The parameters near `start` with the least sum of squares of `residual`.

    >>> x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.1, 3.9, 6.2, 7.8])
    >>> line = fit(lambda b: b[0] + b[1] * x - y, lambda b: np.stack([x**0, x], 1), np.zeros(2))
    >>> line.parameters.round(12)
    array([0.15, 1.94])
    """
    found = search(residual, jacobian, start)
    parameters, polished = polish(residual, jacobian, found.x)
    r = residual(parameters)
    rss = float(r @ r)
    return Fit(
        parameters=parameters,
        deviations=deviations(jacobian(parameters), rss),
        rss=rss,
        method=found.method,
        jacobians=found.njev + polished,
    )


def search(residual: Function, jacobian: Function | Literal["2-point"], start: np.ndarray):
    """SciPy's result of the better of both searches, with the name of its `method`.

    "2-point" in place of a Jacobian asks SciPy for its own differences.
    """
    runs = []
    for method in METHODS:
        # A trial step may leave the domain of the model. It gives inf or nan, and the search
        # steps back: that is its business, not a warning.
        with np.errstate(all="ignore"):
            run = scipy.optimize.least_squares(
                residual,
                start,
                jacobian,  # pyright: ignore[reportArgumentType]  SciPy has no types; str is a guess
                method=method,
                x_scale="jac",
                xtol=TOLERANCE,
                ftol=TOLERANCE,
                gtol=TOLERANCE,
                max_nfev=EVALUATIONS,
            )
        run.method = method
        runs.append(run)
    return min(runs, key=lambda run: run.cost)


def polish(residual: Function, jacobian: Function, b: np.ndarray) -> tuple[np.ndarray, int]:
    """`b` after Gauss-Newton steps, each shorter than the last, and their number.

    A step that is no shorter is rounding noise (or, at once, no convergence): it is not taken.
    """
    last = FIRST_STEP
    for step in range(POLISH_STEPS):
        J = jacobian(b)
        scale = np.linalg.norm(J, axis=0)
        if not (np.isfinite(scale).all() and scale.all()):
            return b, step
        p = np.linalg.lstsq(J / scale, -residual(b), rcond=None)[0]
        length = float(np.linalg.norm(p) / np.linalg.norm(scale * b))
        if not length < last:
            return b, step
        b, last = b + p / scale, length
    return b, POLISH_STEPS


def deviations(J: np.ndarray, rss: float) -> np.ndarray:
    """Standard deviations of the parameters: the diagonal of `inv(J'J) rss / (m - n)`, rooted.

    With `J = Q R D` (D the column lengths) that diagonal is the squared row lengths of
    `inv(R)`, divided by D: `J'J` is never formed. A parameter that the residual does not feel
    has no deviation, and leaves none to the others: nan.
    """
    m, n = J.shape
    scale = np.linalg.norm(J, axis=0)
    if not (np.isfinite(scale).all() and scale.all()):
        return np.full(n, np.nan)
    R = np.linalg.qr(J / scale, mode="r")
    inverse = scipy.linalg.solve_triangular(R, np.eye(n))
    return np.sqrt(rss / (m - n)) * np.linalg.norm(inverse, axis=1) / scale
