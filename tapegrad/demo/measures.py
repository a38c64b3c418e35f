"""How good a result is: correct digits, error of a Jacobian, time of a call.

Each measure is relative to something independent of the tape: certified values for the digits,
the complex step for the Jacobian, SciPy's two-point differences for the time.
"""

import timeit
from collections.abc import Callable

import numpy as np
import scipy.optimize

Function = Callable[[np.ndarray], np.ndarray]

# NIST prints eleven digits, so agreement beyond them cannot be seen.
PRINTED_DIGITS = 11.0


def digits(values: np.ndarray, certified: np.ndarray) -> float:
    """Certified digits that `values` reproduce, the worst one counting: NIST's LRE.

    >>> round(digits(np.array([1.0, 2.0002]), np.array([1.0, 2.0])), 6)
    4.0
    """
    error = np.max(np.abs(values - certified) / np.abs(certified))
    if not np.isfinite(error):
        return 0.0
    return float(np.clip(-np.log10(max(error, 10.0**-PRINTED_DIGITS)), 0.0, PRINTED_DIGITS))


def complex_step(f: Function, b: np.ndarray, step: float = 1e-30) -> np.ndarray:
    """The Jacobian of analytic `f` at `b`, from `f(b + ih) = f(b) + ih f'(b) + O(h**2)`.

    The derivative stands alone in the imaginary part, so nothing cancels and `step` can be so
    small that the O(h**2) is gone: exact to rounding, without a rule of differentiation.
    """
    columns = [np.imag(f(b + 1j * step * seed)) / step for seed in np.eye(b.size)]
    return np.stack(columns, axis=1)


def jacobian_error(J: np.ndarray, oracle: np.ndarray) -> float:
    """Largest difference of two Jacobians, each column relative to its largest entry.

    Column by column because parameters have units: those of Hahn1 span seven decades.
    """
    size = np.max(np.abs(oracle), axis=0)
    return float(np.max(np.max(np.abs(J - oracle), axis=0) / np.where(size > 0, size, 1.0)))


def two_point(f: Function, b: np.ndarray) -> np.ndarray:
    """The Jacobian of `f` at `b` by SciPy's forward differences, which the tape competes with."""
    return np.asarray(scipy.optimize.approx_fprime(b, f))


def seconds(f: Callable[..., object], *args, repeat: int = 5, budget: float = 2e-3) -> float:
    """Time of one warm call `f(*args)`: the best of a few rounds, each about `budget` long."""
    timer = timeit.Timer(lambda: f(*args))
    rounds = max(1, int(budget / max(timer.timeit(1), 1e-9)))
    return min(timer.repeat(repeat, rounds)) / rounds
