"""The slope of a function along a line, from a probe, with what it is worth.

`differences` takes the step where truncation (from the third derivative, seen in the differences themselves) and noise
balance. `richardson` extrapolates the whole ladder (C. J. F. Ridders, Adv. Eng. Software 4, 1982) and takes the entry whose
error is bounded best. `complex_step` leaves the ladder: Im f(x + ih) / h has no cancellation (W. Squire and G. Trapp,
SIAM Review 40, 1998), but means something only for an analytic function, hence the cross-check of whoever calls it.

Invariant: `error` is meant as a bound. It contains what the noise does to the values that the estimate was made from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .probing import EPS, RATIO, Curves


@dataclass(frozen=True, slots=True)
class Estimate:
    """A slope, a bound of its error, and the steps it was made from (in units of the direction)."""

    value: float
    error: float
    steps: tuple[float, ...]
    method: str

    @property
    def step(self) -> float:
        """The smallest step that went in; NaN without one."""
        return min(self.steps, default=float("nan"))


NOTHING = Estimate(float("nan"), float("inf"), (), "none")


def differences(curves: Curves) -> Estimate:
    """Central difference at the step where truncation and noise balance."""
    good = curves.finite
    h, d = curves.steps[good], curves.central[good]
    if h.size == 0:
        return NOTHING
    if h.size == 1:
        return Estimate(
            float(d[0]), float(abs(d[0]) + curves.noise / h[0]), (float(h[0]),), "differences"
        )
    # D(h) - D(h/4) is 15/16 of the truncation at h, where it stands clear of the noise; below, truncation falls as h², or by
    # less where it has been seen to: as h where the slope has a kink (x|x| at 0).
    truncation = np.append(np.abs(np.diff(d)), 0.0) * 16 / 15
    rounding = curves.noise / h
    fall = RATIO**2
    for k in range(1, h.size):
        if truncation[k] < 4 * rounding[k] or k == h.size - 1:
            bound = truncation[k - 1] / fall
            truncation[k] = min(bound, max(truncation[k], rounding[k])) if k < h.size - 1 else bound
        elif truncation[k - 1] > 0:
            fall = float(np.clip(truncation[k - 1] / truncation[k], 1.5, RATIO**2))
    k = int(np.argmin(truncation + rounding))
    return Estimate(float(d[k]), float(truncation[k] + rounding[k]), (float(h[k]),), "differences")


def richardson(curves: Curves) -> Estimate:
    """The best entry of the extrapolation table of the central differences."""
    good = curves.finite
    h, d = curves.steps[good], curves.central[good]
    if h.size < 2:
        return differences(curves)
    best = _contradicted(differences(curves), h, d, curves.noise)
    previous = [d[0]]
    for k in range(1, h.size):
        row = [d[k]]
        gain = curves.noise / h[k]
        for j in range(1, min(k, 6) + 1):
            if not np.isclose(h[k - j] / h[k], RATIO**j):  # a rung between was not finite
                break
            factor = RATIO ** (2 * j)
            row.append((factor * row[j - 1] - previous[j - 1]) / (factor - 1))
            gain *= (factor + 1) / (factor - 1)
            spread = max(abs(row[j] - row[j - 1]), abs(row[j] - previous[j - 1]))
            error = spread + gain + EPS * abs(row[j])
            if error < best.error:
                steps = tuple(map(float, h[k - j : k + 1]))
                entry = Estimate(float(row[j]), float(error), steps, "richardson")
                entry = _contradicted(entry, h, d, curves.noise)
                best = entry if entry.error < best.error else best
        previous = row
    return best


def _contradicted(e: Estimate, h: np.ndarray, d: np.ndarray, noise: float) -> Estimate:
    """The estimate, with the error that finer steps reveal: where three of them agree, and on something else.

    Far above the scale on which f varies differences can agree with one another by chance (sin(1e6 x) at steps of 1e-2).
    Noise does not make three agree; truncation falls from one to the next.
    """
    for k in np.flatnonzero(h < e.step)[:-2]:
        three = d[k : k + 3]
        off = abs(float(np.median(three)) - e.value)
        if off > e.error + 10 * noise / h[k] and np.ptp(three) < 0.2 * off:
            return replace(e, error=max(e.error, off))
    return e


def complex_step(imaginary: np.ndarray, step: float) -> list[Estimate]:
    """Slopes from the imaginary parts of f(x + ih d)."""
    slopes = imaginary / step
    return [Estimate(float(s), float(16 * EPS * abs(s)), (step,), "complex step") for s in slopes]
