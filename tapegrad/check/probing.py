"""Values along a line through the point: what every check of a derivative reads.

A `Probe` holds f(x + h d) and f(x - h d) for a ladder of steps h, falling by a factor of 4 from a sixteenth of the scale of
the point, with f(x) and the level of the noise in f. Differences, extrapolation, Taylor remainders, kinks and jumps are
all readings of these numbers; none needs further calls of f.

The noise level comes from a difference table of equally spaced values (J. J. Moré and S. M. Wild, Estimating
computational noise, SIAM J. Sci. Comput. 33, 2011), at the finest of three spacings on which the values move, so that
rounding in float32 is seen as well as rounding in float64. It is never below the rounding of the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import factorial

import numpy as np

RATIO = 4.0
FIRST = 1 / 16
RUNGS = 18
"""The ladder: from a sixteenth of the scale down to 4e-12 of it."""

EPS = float(np.finfo(float).eps)

Line = Callable[[float], np.ndarray]
"""f along the line: the outputs at x + t d."""


@dataclass(slots=True)
class Probe:
    """The outputs on both sides of the point; `plus[k]` and `minus[k]` belong to `steps[k]`, in units of the direction."""

    line: Line
    at: np.ndarray
    noise: np.ndarray
    steps: list[float] = field(default_factory=list)
    plus: list[np.ndarray] = field(default_factory=list)
    minus: list[np.ndarray] = field(default_factory=list)

    def descend(self) -> bool:
        """Add the next rung; False at the foot of the ladder."""
        if len(self.steps) >= RUNGS:
            return False
        h = FIRST / RATIO ** len(self.steps)
        self.plus.append(self.line(h))
        self.minus.append(self.line(-h))
        self.steps.append(h)
        return True

    def complete(self) -> Probe:
        """All rungs, as pictures and diagnoses want them."""
        while self.descend():
            pass
        return self

    def curves(self, output: int) -> Curves:
        """The readings of one output."""
        return Curves(
            np.array(self.steps),
            np.array([v[output] for v in self.plus]),
            np.array([v[output] for v in self.minus]),
            float(self.at[output]),
            float(self.noise[output]),
        )


@dataclass(frozen=True, slots=True)
class Curves:
    """One output of a probe: values on both sides against steps, the value in the middle, the noise."""

    steps: np.ndarray
    plus: np.ndarray
    minus: np.ndarray
    at: float
    noise: float

    @property
    def finite(self) -> np.ndarray:
        """Where there are values on both sides."""
        return np.isfinite(self.plus) & np.isfinite(self.minus)

    @property
    def central(self) -> np.ndarray:
        """Central differences: the slope, off by h² and by noise / h."""
        with np.errstate(all="ignore"):
            return (self.plus - self.minus) / (2 * self.steps)

    @property
    def even(self) -> np.ndarray:
        """f(x+h) + f(x-h) - 2 f(x): falls as h² where f is smooth, as h at a kink, not at all at a jump."""
        with np.errstate(all="ignore"):
            return (self.plus - self.at) + (self.minus - self.at)

    @property
    def odd(self) -> np.ndarray:
        """f(x+h) - f(x-h): falls as h unless f jumps."""
        with np.errstate(all="ignore"):
            return self.plus - self.minus

    def orders(self, values: np.ndarray, floor: float) -> np.ndarray:
        """By which power of h neighbouring values fall, where both stand clear of the floor; else NaN."""
        size = np.abs(values)
        clear = np.isfinite(size) & (size > floor)
        orders = np.full(max(len(size) - 1, 0), np.nan)
        both = clear[:-1] & clear[1:]
        ratio = np.log(self.steps[:-1][both] / self.steps[1:][both])
        orders[both] = np.log(size[:-1][both] / size[1:][both]) / ratio
        return orders


# ------------------------------------------------------------------------------------------------------ noise

SPACINGS = (1e-9, 1e-7, 1e-5)
SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Noise:
    """How far values of f are from a smooth function, for each output, and what they look like beside."""

    level: np.ndarray
    size: np.ndarray  # of the values themselves
    in_steps: bool = False
    """Whether the values stand still for small moves, as they do where something is rounded to float32."""
    repeatable: bool = True

    @property
    def relative(self) -> float:
        """The worst level, as a part of the values' size."""
        size = np.where(self.size > 0, self.size, 1.0)
        return float(np.max(self.level / size))


def noise_of(line: Line, at: np.ndarray) -> Noise:
    """The noise of the outputs along a line, from up to 3 x 8 values of f and one repeated."""
    again = line(0.0)
    repeatable = bool(np.array_equal(again, at, equal_nan=True))
    level = np.zeros_like(at) if repeatable else np.abs(again - at)
    size = np.abs(at)
    in_steps = False
    known = np.zeros(at.shape, bool)
    for spacing in SPACINGS:
        values = np.array([line(spacing * k) for k in range(1, SAMPLES + 1)])
        if not np.isfinite(values).all():
            values = np.array([line(-spacing * k) for k in range(1, SAMPLES + 1)])
        if not np.isfinite(values).all():
            continue
        size = np.maximum(size, np.abs(values).max(axis=0))
        for j in np.flatnonzero(~known):
            distinct = len(np.unique(values[:, j]))
            found = table_noise(values[:, j])
            # Values that stand still are rounded to something coarser than the spacing: look at a wider one. Values that
            # move are judged here; what they do on wider spacings may be the function itself.
            known[j] = distinct > SAMPLES // 2
            in_steps |= distinct <= SAMPLES // 2
            level[j] = max(level[j], found)
        if known.all():
            break
    floor = np.maximum(EPS * size, float(np.finfo(float).tiny))
    return Noise(np.maximum(level, floor), size, in_steps, repeatable)


def table_noise(values: np.ndarray) -> float:
    """The noise in equally spaced values, 0 if their differences do not look like noise.

    The k-th differences of noise of variance s² have the variance s² (2k)! / (k!)². Differences of a smooth function fall
    with k; where three neighbouring orders give the same s and the differences change sign, it is the noise.

    >>> import numpy as np
    >>> smooth = np.sin(1 + 1e-5 * np.arange(8))
    >>> 1e-17 < table_noise(smooth) < 1e-15
    True
    >>> 1e-7 < table_noise(smooth + 1e-6 * np.random.default_rng(0).normal(size=8)) < 1e-5
    True
    """
    scale = float(np.abs(values).max())
    if scale == 0:
        return 0.0
    estimates = []
    changes = []
    row = values / scale
    for k in range(1, len(values)):
        row = np.diff(row)
        gamma = factorial(k) ** 2 / factorial(2 * k)
        estimates.append(float(np.sqrt(gamma * np.mean(row**2))))
        changes.append(bool(row.min() < 0 < row.max()))
    for k in range(len(estimates) - 2):
        three = estimates[k : k + 3]
        if changes[k] and min(three) > 0 and max(three) <= 4 * min(three):
            return three[0] * scale
    return 0.0
