"""How far two roundings of one number may stand apart, from the problem instead of from luck.

Two engines add the terms of a sum in two orders, and BLAS has other kernels on other processors, so results in single
precision differ by what the *problem* lets rounding errors grow to: much at an entry that is small beside its terms.
`allowance` measures this growth in double precision, where rounding plays no part: by how far the reference moves when
each operand moves by an ulp of the narrow type, and by how far the plain result stands from the reference. A judge asks
that what is judged stands no farther from the reference than a few times that. Invariant: no bound here names a
processor, and none was chosen because it held on one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree

# Random directions of the operands' ulps; each result's growth is the largest of them.
DIRECTIONS = 4
# Rounding happens at each step, not at the operands alone: a program of a few dozen steps moves by some ulps of each.
STEPS = 16.0

WIDE = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}


def is_single(value: Any) -> bool:
    """Whether a number or array is of single precision."""
    return np.asarray(value).dtype in WIDE


def widened(value: Any) -> Any:
    """The same number or array in double precision; others as they are."""
    array = np.asarray(value)
    return array.astype(WIDE[array.dtype]) if array.dtype in WIDE else value


def allowance(
    f: Callable[..., Any], arguments: tuple[Any, ...], plain: Any
) -> list[tuple[np.ndarray, float]]:
    """The reference of each result of `f` in double precision, and how far a rounding to single precision may stand off.

    `plain` is what the uncompiled `f` gives for the operands as they are. The bound is one number a result, the same
    for all its entries: where a sum's terms cancel in one entry, its error is as large as that of its neighbours.
    """
    rng = np.random.default_rng(0)
    eps = float(np.finfo(np.float32).eps)

    def moved(value: Any) -> Any:
        if not is_single(value):
            return value
        wide = widened(value)
        return wide * (1 + eps * rng.choice([-1.0, 1.0], np.shape(wide)))

    def results(operands: tuple[Any, ...]) -> list[np.ndarray]:
        return [np.asarray(x) for x in optree.tree_leaves(f(*operands))]

    references = results(optree.tree_map(widened, arguments))
    shifted = [results(optree.tree_map(moved, arguments)) for _ in range(DIRECTIONS)]
    bounds = []
    for k, (reference, near) in enumerate(zip(references, optree.tree_leaves(plain), strict=True)):
        near = np.asarray(near)
        if near.dtype.kind not in "fc":  # a comparison or a place is right or wrong
            bounds.append((near, 0.0))
            continue
        growth = max(largest(other[k] - reference) for other in shifted)
        off = largest(near - reference)
        bounds.append((reference, STEPS * (growth + eps * largest(reference)) + 4 * off))
    return bounds


def largest(values: np.ndarray) -> float:
    """The largest magnitude among finite entries, 0 where there are none."""
    values = np.abs(values)
    return float(np.max(values[np.isfinite(values)], initial=0.0))


def within(got: Any, reference: np.ndarray, bound: float) -> None:
    """Each entry of `got` stands within `bound` of the reference; NaN and infinities stand where they do."""
    np.testing.assert_allclose(np.asarray(got), reference, rtol=0, atol=bound)
