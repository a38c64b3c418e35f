"""What the numbers say: about one slope, and about a gradient as a whole.

A *component* is one slope that was claimed and one that was measured, with a bound of the measurement's error. It is
`right`, `wrong`, `not smooth` (a kink, a jump, an infinite slope, the edge of the domain), or `noisy` (the noise of f hides
the digits that were asked for). A gradient is as good as its worst component; if all are right it may still be
`badly scaled`. `diagnosis` looks for the mistake people make that explains the wrong components together.

Invariant: nothing is called wrong that lies within ten times the error bound of the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .estimates import Estimate, richardson
from .probing import EPS, Curves

RIGHT, WRONG, ROUGH, NOISY, SCALED = "right", "wrong", "not smooth", "noisy", "badly scaled"
ORDER = (WRONG, ROUGH, NOISY, SCALED, RIGHT)
"""From worst to best: the verdict of a gradient is the worst of its components."""

SAFETY = 10.0
NOISELESS = 1e-11
"""A relative noise below this is what rounding in a long float64 computation leaves."""

SPREAD = 1e8
"""Sizes of slopes that differ by more than this are badly scaled."""


@dataclass(frozen=True, slots=True)
class Component:
    """A claimed slope beside the measured one; `index` is its place in the vectors of outputs and inputs."""

    name: str
    index: tuple[int, int]
    claimed: float
    measured: float
    error: float
    steps: tuple[float, ...]
    """The steps of the measurement, in units of the component."""
    verdict: str
    note: str = ""
    terms: float = 0.0
    """Of a direction: the sum of the absolute slopes that it adds up, which may cancel."""

    @property
    def gap(self) -> float:
        """The distance |claimed - measured|."""
        return abs(self.claimed - self.measured)

    @property
    def size(self) -> float:
        """The largest finite magnitude of claimed, measured and terms: digits count from it."""
        slopes = (self.claimed, self.measured, self.terms)
        return max((abs(s) for s in slopes if np.isfinite(s)), default=0.0)

    @property
    def digits(self) -> float:
        """Digits on which both agree (16 where they are equal)."""
        return _digits(self.gap, self.size)

    @property
    def resolved(self) -> float:
        """Digits that the measurement itself has."""
        return _digits(self.error, self.size)

    @property
    def step(self) -> float:
        """The smallest step that went into the measurement."""
        return min(self.steps, default=float("nan"))


def _digits(gap: float, size: float) -> float:
    if not np.isfinite(gap):
        return 0.0
    if gap == 0 or size == 0:
        return 16.0
    return float(np.clip(-np.log10(gap / size), 0, 16))


def judge(
    claimed: float,
    found: Estimate,
    curves: Curves,
    tolerance: float,
    unit: float = 1.0,
    terms: float = 0.0,
) -> tuple[str, str]:
    """Verdict and note on one slope, claimed to agree with the measured one to a relative tolerance.

    Slopes and steps are in units of the direction; `unit` is its length, for the words. `terms` is the sum of the absolute
    slopes that a direction adds up: one that cancels is seen well enough if its error is small beside them.
    """
    rough = roughness(curves, unit)
    if rough:
        return ROUGH, rough
    if not np.isfinite(claimed):
        return WRONG, f"the gradient is {claimed}"
    gap, size = abs(claimed - found.value), max(abs(claimed), abs(found.value))
    if gap > SAFETY * found.error and gap > tolerance * size:
        return WRONG, ""
    if found.error <= tolerance * max(size, terms) or size == 0:
        return RIGHT, ""
    falling = _orders(curves, curves.odd, 50)
    if falling is not None and falling > 1.25:
        return RIGHT, "the slope is 0: differences fall with the step"
    values = max(abs(curves.at), float(np.nanmax(np.abs(curves.plus), initial=0.0)))
    relative = curves.noise / values if values else 0.0
    if relative > NOISELESS:
        return NOISY, f"values carry noise of {curves.noise:.1e}"
    if found.error > 1e3 * curves.noise / found.step:
        return ROUGH, "differences do not settle at any step"
    return RIGHT, "" if claimed == 0 else "too small beside the value of f to be seen"


def roughness(curves: Curves, unit: float = 1.0) -> str:
    """A sentence about a kink, a jump or an edge in these values; "" if they are smooth."""
    if not curves.steps.size:  # no step was taken: the measured slope came from elsewhere
        return ""
    right, left = np.isfinite(curves.plus), np.isfinite(curves.minus)
    if len(right) > 2 and right[-1] != left[-1]:
        side = "below" if right[-1] else "above"
        return f"edge of the domain: f is not finite {side} the point"
    if not (right & left)[-3:].any():
        return "f is not finite on either side of the point"
    jump = _orders(curves, curves.odd, 50)
    if jump is not None and abs(jump) < 0.2 and _same_sign(curves.odd, curves.finite):
        return f"jump of {np.abs(curves.odd[curves.finite][-1]):.2g}"
    if jump is not None and jump < 0.85:
        return f"slope grows without bound: f moves as step^{max(jump, 0):.2g}"
    bend = _orders(curves, curves.even, 50)
    if bend is None or bend > 1.4:
        return ""
    k = int(np.flatnonzero(_clear(curves, curves.even, 50))[-1])
    change = curves.even[k] / curves.steps[k]
    if bend < 0.2:
        return f"jump of {abs(curves.even[k]):.2g}"
    if bend < 0.7:
        return f"slope grows without bound: f moves as step^{bend:.2g}"
    low, high = curves.central[k] - change / 2, curves.central[k] + change / 2
    if abs(change) <= 1e-9 * max(abs(low), abs(high)):
        return ""
    return f"kink: the slope is {low / unit:.4g} on the left and {high / unit:.4g} on the right"


def _clear(curves: Curves, values: np.ndarray, times: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return curves.finite & (np.abs(values) > times * curves.noise)


def _orders(curves: Curves, values: np.ndarray, times: float) -> float | None:
    """The power of h by which values vanish, at the smallest steps that stand clear of the noise; None if too few do."""
    floor = times * curves.noise
    orders = curves.orders(np.where(curves.finite, values, np.nan), floor)
    known = np.flatnonzero(np.isfinite(orders))
    if known.size < 3:
        return None
    last = orders[known[-3:]]
    # Noise has no order: the three estimates agree only where an order exists.
    return float(np.median(last)) if np.ptp(last) < 0.4 else None


def _same_sign(values: np.ndarray, where: np.ndarray) -> bool:
    last = np.sign(values[where][-3:])
    return bool((last == last[0]).all())


def settled(curves: Curves, claimed: float, tolerance: float) -> bool:
    """Whether further rungs of the ladder would change neither the verdict nor the digits that matter."""
    if len(curves.steps) < 6:
        return False
    found = richardson(curves)
    size = max(abs(found.value), abs(claimed))
    if not np.isfinite(found.error) or abs(claimed - found.value) > max(
        SAFETY * found.error, tolerance * size
    ):
        return False  # a wrong or rough slope gets all steps
    bend = _orders(curves, curves.even, 50)
    if bend is not None and bend < 1.7:
        return False
    return found.error <= 1e-3 * tolerance * size or (
        size == 0 and not curves.odd.any() and not curves.even.any()
    )


# ------------------------------------------------------------------------------------ the gradient as a whole


def overall(components: Sequence[Component], scales: np.ndarray) -> tuple[str, str]:
    """The verdict of a gradient, and a sentence if it is badly scaled."""
    found = {c.verdict for c in components}
    worst = next(v for v in ORDER if v in found)
    if worst != RIGHT:
        return worst, ""
    # The measurement of a slope of 0 may be a small number.
    sizes = [(c.size, c) for c in components if c.size > 0 and not (c.note and c.claimed == 0)]
    if len(sizes) < 2:
        return RIGHT, ""
    (small, low), (big, high) = min(sizes, key=_first), max(sizes, key=_first)
    hidden = [c for c in components if c.note and c.claimed != 0]
    if big / small <= SPREAD and not hidden:
        return RIGHT, ""
    effects = [c.size * scales[c.index[1]] for _, c in sizes]
    cure = (
        "the steps here followed each component's own size, but a check or an optimiser with one step for all will fail: "
        "rescale the parameters, for example by their sizes."
        if max(effects) / min(effects) < big / small
        else f"what {low.name} does to f is lost beside the rest: rescale the terms of f or check {low.name} by itself."
    )
    return SCALED, f"slopes run from {small:.1e} ({low.name}) to {big:.1e} ({high.name}); {cure}"


def _first(pair: tuple[float, Component]) -> float:
    return pair[0]


def diagnosis(
    components: Sequence[Component], shape: tuple[int, ...], x: np.ndarray, tolerance: float
) -> str:
    """The mistake that explains the wrong components, as a sentence; "" if none is recognised.

    `components` are those of one leaf (or of a Jacobian of the given shape), in order; `x` the values of that leaf.
    """
    claimed = np.array([c.claimed for c in components])
    measured = np.array([c.measured for c in components])
    slack = np.array([SAFETY * c.error for c in components])
    wrong = np.array([c.verdict == WRONG for c in components])
    if not wrong.any():
        return ""
    if not np.isfinite(claimed).all():
        first = components[int(np.argmin(np.isfinite(claimed)))]
        count = int((~np.isfinite(claimed)).sum())
        return (
            f"the gradient is nan or inf in {count} of {len(components)} components, such as {first.name}: look for 0 / 0, "
            "inf - inf, or the root or logarithm of 0 on the way back."
        )
    rtol = max(tolerance, 1e-6)

    def explains(candidate: np.ndarray, where: np.ndarray | slice = slice(None)) -> bool:
        """Whether the claimed slopes are those of the candidate, within the slack of the measurement."""
        c, m, s = claimed[where], candidate[where], slack[where]
        return bool((np.abs(c - m) <= s + rtol * np.maximum(np.abs(c), np.abs(m))).all())

    def big(values: np.ndarray) -> np.ndarray:
        return np.abs(values) > slack

    if not claimed.any():
        return "the gradient is 0 everywhere: something on the way takes the value off the tape (detach, item, float, no_grad)."
    if wrong.sum() == 1 and len(components) > 2:
        c = components[int(np.argmax(wrong))]
        return f"only {c.name} is wrong, the other {len(components) - 1} are right{_ratio_in_words(c)}."
    if explains(-measured):
        return "every component has the opposite sign: a sign error."
    moving = big(measured) & big(claimed)
    if moving.any():
        ratios = claimed[moving] / measured[moving]
        factor = float(np.median(ratios))
        if explains(factor * measured):
            return f"every component is {in_words(factor)} times what it should be: a missing or extra factor."
    for name, candidate, inside in _rearranged(measured, shape):
        moved = ~np.isclose(candidate, measured, rtol=1e-6, atol=float(slack.max()))[inside]
        if moved.any() and explains(candidate, inside):
            return name
    if len(claimed) > 2 and _same_values(claimed, measured, rtol):
        return "the components are the right ones in another order: an index is permuted."
    missing = measured - claimed
    wide = np.broadcast_to(x.reshape(-1) if x.size == len(claimed) else np.nan, claimed.shape)
    near = slack + 10 * rtol * np.abs(missing)
    if len(claimed) > 2 and (term := _forgotten_term(missing, wide, wrong, near)):
        return f"a term is forgotten: the gradient lacks {term} in every component."
    if wrong.sum() < len(wrong):
        return _in_part(components, claimed, measured, wrong)
    return "no sign, factor or index explains it: a term is forgotten or wrong."


def _forgotten_term(missing: np.ndarray, x: np.ndarray, wrong: np.ndarray, near: np.ndarray) -> str:
    """A usual term, with its factor, which is what all slopes lack to within `near`; "" if there is none."""
    with np.errstate(all="ignore"):
        shapes = {
            "": np.ones_like(missing),
            " * x": x,
            " * x**2": x**2,
            " * x**3": x**3,
            " / x": 1 / x,
            " * sign(x)": np.sign(x),
            " * exp(x)": np.exp(x),
            " * cos(x)": np.cos(x),
            " * sin(x)": np.sin(x),
            " * (x minus each neighbour)": _roughness_slope(x),
        }
        for text, term in shapes.items():
            factors = missing[wrong] / term[wrong]
            factor = float(np.median(factors))
            if np.isfinite(factors).all() and (np.abs(missing - factor * term) <= near).all():
                return f"{in_words(factor)}{text}"
    return ""


def _in_part(
    components: Sequence[Component], claimed: np.ndarray, measured: np.ndarray, wrong: np.ndarray
) -> str:
    """How many components are wrong, and by which factor or where to look."""
    count = int(wrong.sum())
    part = f"{count} of {len(wrong)} components are wrong, {len(wrong) - count} are right"
    ratios = claimed[wrong] / np.where(measured[wrong] == 0, np.nan, measured[wrong])
    if np.allclose(ratios, ratios[0], rtol=1e-4):
        return f"{part}; the wrong ones are {in_words(float(ratios[0]))} times what they should be."
    return f"{part}: look where {components[int(np.argmax(wrong))].name} enters."


def _roughness_slope(x: np.ndarray) -> np.ndarray:
    """The gradient of half the sum of squared steps between neighbours, a usual smoothing term."""
    slope = np.zeros_like(x)
    slope[1:] += np.diff(x)
    slope[:-1] -= np.diff(x)
    return slope


def _rearranged(
    measured: np.ndarray, shape: tuple[int, ...]
) -> list[tuple[str, np.ndarray, np.ndarray | slice]]:
    """What the gradient would be with an index mistake, and where to compare."""
    found: list[tuple[str, np.ndarray, np.ndarray | slice]] = []
    n = len(measured)
    if len(shape) >= 2 and measured.size == np.prod(shape, dtype=int):
        grid = measured.reshape(shape)
        for a in range(len(shape)):
            for b in range(a + 1, len(shape)):
                swapped = np.swapaxes(grid, a, b)
                where = "" if swapped.shape == shape else " and reshaped"
                found.append(
                    (
                        f"the gradient is transposed{where}: axes {a} and {b} are swapped (an index is transposed).",
                        swapped.reshape(-1),
                        slice(None),
                    )
                )
        for axis, length in enumerate(shape):
            if length > 2:
                for shift, inside in ((1, slice(1, None)), (-1, slice(None, -1))):
                    mask = np.zeros(shape, bool)
                    mask[(slice(None),) * axis + (inside,)] = True
                    moved = np.roll(grid, shift, axis).reshape(-1)
                    found.append((_shifted(shift, f" along axis {axis}"), moved, mask.reshape(-1)))
    if n > 3:
        found += [
            (_shifted(1, ""), np.roll(measured, 1), slice(1, None)),
            (_shifted(-1, ""), np.roll(measured, -1), slice(None, -1)),
            ("the components are in reverse order.", measured[::-1], slice(None)),
        ]
    return found


def _shifted(shift: int, where: str) -> str:
    place = "before" if shift > 0 else "after"
    return f"component i holds what belongs to the one {place} it{where}: an index is off by one."


def _same_values(a: np.ndarray, b: np.ndarray, rtol: float) -> bool:
    a, b = np.sort(a), np.sort(b)
    distinct = len(np.unique(np.round(b / (np.abs(b).max() or 1), 9))) > len(b) // 2
    return distinct and bool(np.allclose(a, b, rtol=rtol, atol=rtol * float(np.abs(b).max())))


def _ratio_in_words(c: Component) -> str:
    if c.measured == 0 or c.claimed == 0:
        return ""
    ratio = c.claimed / c.measured
    if abs(ratio + 1) < 1e-4:
        return " (its sign is wrong)"
    return f" (it is {in_words(ratio)} times what it should be)"


def in_words(factor: float) -> str:
    """A number as a person would write it: a small fraction where the number is close to one.

    >>> in_words(0.5000001), in_words(-3.0), in_words(0.123456789)
    ('1/2', '-3', '0.123457')
    """
    if np.isfinite(factor) and factor != 0:
        near = Fraction(factor).limit_denominator(12)
        if (
            near != 0
            and abs(near.numerator) <= 100
            and abs(float(near) - factor) < 1e-5 * abs(factor)
        ):
            return str(near)
    return f"{factor:.6g}"


def noise_in_words(relative: float, in_steps: bool, repeatable: bool) -> str:
    """A sentence about the kind of noise; "" for rounding in float64."""
    if relative > 1 and repeatable:
        return "values are so small that float64 cannot hold them: scale f up."
    if not repeatable:
        return (
            f"two calls at the same point differ: noise of {relative:.1e} of the value. Seed what is random, or average, "
            "or loosen the digits that are asked for."
        )
    if in_steps and 1e-9 < relative < 1e-5:
        return (
            f"values move in steps of {relative:.1e} of their size, as in float32: something inside computes in single "
            "precision. Convert it to float64."
        )
    if relative > NOISELESS:
        return (
            f"values carry noise of {relative:.1e} of their size, much more than rounding ({EPS:.0e}): tighten the "
            "tolerance of what is solved or integrated inside."
        )
    return ""


__all__ = [
    "NOISY", "RIGHT", "ROUGH", "SCALED", "WRONG", "Component", "diagnosis", "judge", "overall",
]  # fmt: skip
