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

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64
    ) -> Any:
        """An array of this dtype; a complex one gets an imaginary part of comparable size, off the real axis,
        where branch cuts lie. Booleans stay booleans: they carry no derivative."""
        x = np.asarray(self.draw(rng, shape))
        if x.dtype.kind == "b":
            return x
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * _signed(0.1, 0.3)(rng, shape)
        return np.asarray(x, dtype)


def _signed(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.choice([-1.0, 1.0], shape) * rng.uniform(low, high, shape)


def _between(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _lattice(step: float, offset: float, wobble: float) -> Draw:
    """Multiples of `step` from -3 to 3 plus `offset`, give or take `wobble`."""
    return lambda rng, shape: (
        step * rng.integers(-3, 3, shape) + offset + rng.uniform(-wobble, wobble, shape)
    )


def apart(n: int) -> tuple[Domain, ...]:
    """Domains for n operands that never come closer to one another than 0.15: their order is no tie."""
    return tuple(Domain(f"apart_{i}", _lattice(0.25 * n, 0.25 * i, 0.05)) for i in range(n))


def _spread(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All values at least 0.1 apart, so that order statistics are smooth around them."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2 + 0.25 + 0.5 * rng.uniform(size=size)).reshape(
        shape
    ) * 0.3


def _dominant(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Matrices close to diagonal, the diagonal positive and ascending, so that whatever is read of them is regular: all of
    it, or one triangle, the other being implied. Eigenvalues and singular values are positive and apart, pivots clear."""
    x = _signed(0.2, 0.4)(rng, shape)
    i = np.arange(min(shape[-2:]))
    x[..., i, i] = 2 + i + rng.uniform(0, 0.3, (*shape[:-2], len(i)))
    return x


real = Domain("real", _signed(0.15, 2.0))
positive = Domain("positive", _between(0.2, 3.0))
nonzero = Domain("nonzero", _signed(0.3, 2.0))
unit = Domain("unit", _signed(0.05, 0.9))
above_one = Domain("above_one", _between(1.1, 3.0))
distinct = Domain("distinct", _spread, complex_too=False)
not_integer = Domain("not_integer", _lattice(1.0, 0.5, 0.3), complex_too=False)
truth = Domain("truth", lambda rng, shape: rng.random(shape) < 0.5)

# A dividend and a divisor whose quotient stays away from the integers, at which its floor jumps.
dividend = Domain("dividend", _lattice(1.25, 0.625, 0.3), complex_too=False)
divisor = Domain("divisor", _between(1.22, 1.28), complex_too=False)
dominant = Domain("dominant", _dominant)
