"""Domains: where an op is smooth, as an object that draws points there.

A declaration names the domain of each operand; the laws draw their samples from it, so no test
lists ops by name. Points stay a margin away from kinks, poles and edges: those are tested by hand in
`tests/test_special_values.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True, slots=True)
class Domain:
    """A named set of points. `draw(rng, shape)` gives float64 samples; `complex_too` says whether the
    formula holds there for complex arguments as well."""

    name: str
    draw: Draw
    complex_too: bool = True

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
        """An array of this dtype; a complex one gets an imaginary part of comparable size."""
        x = self.draw(rng, shape)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 0.3j * rng.uniform(-1, 1, shape)
        return np.asarray(x, dtype)


def _signed(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.choice([-1.0, 1.0], shape) * rng.uniform(low, high, shape)


def _between(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _spread(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All values at least 0.1 apart, so that order statistics are smooth around them."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2 + 0.25 + 0.5 * rng.uniform(size=size)).reshape(shape) * 0.3


real = Domain("real", _signed(0.15, 2.0))
positive = Domain("positive", _between(0.2, 3.0))
nonzero = Domain("nonzero", _signed(0.3, 2.0))
unit = Domain("unit", _signed(0.05, 0.9))
above_one = Domain("above_one", _between(1.1, 3.0))
distinct = Domain("distinct", _spread, complex_too=False)
not_integer = Domain(
    "not_integer", lambda rng, shape: rng.integers(-3, 3, shape) + rng.uniform(0.2, 0.8, shape), False
)
