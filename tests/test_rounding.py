"""The judge of roundings lets roundings pass, on whatever processor, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests import rounding


def cancelling(a, v):
    """A sum of products whose terms are much larger than some of its entries."""
    return np.convolve(a, v, "valid")


def operands():
    rng = np.random.default_rng(8)
    return rng.normal(size=60).astype(np.float32), rng.normal(size=45).astype(np.float32)


def test_another_order_of_addition_passes():
    a, v = operands()
    forward = cancelling(a, v)
    backward = np.array(
        [
            np.sum((a[k : k + 45] * v[::-1])[::-1].astype(np.float32), dtype=np.float32)
            for k in range(16)
        ]
    )
    assert np.any(forward != backward)
    ((reference, bound),) = rounding.allowance(cancelling, (a, v), forward)
    rounding.within(backward, reference, bound)
    assert bound < 1e-3 * np.max(np.abs(reference))  # a judge that lets anything pass is none


@pytest.mark.parametrize("fault", [lambda y: y * np.float32(1.001), lambda y: y + np.float32(0.01)])
def test_a_fault_does_not(fault):
    a, v = operands()
    forward = cancelling(a, v)
    ((reference, bound),) = rounding.allowance(cancelling, (a, v), forward)
    with pytest.raises(AssertionError):
        rounding.within(fault(forward), reference, bound)


def test_comparisons_are_right_or_wrong():
    a, v = operands()
    larger = lambda a, v: a[:45] > v  # noqa: E731  a row of a table
    ((reference, bound),) = rounding.allowance(larger, (a, v), larger(a, v))
    assert bound == 0 and reference.dtype == bool
