"""Peak memory of a gradient of 200 operations, and growth over operations without a backward pass.

What is timed here is a whole process and means little; the figures are in `extra_info`.
"""

import pytest

from bench import memory

pytestmark = pytest.mark.skipif(bool(memory.MISSING), reason=str(memory.MISSING))


ENGINES = [("tapegrad", "sweep"), ("tapegrad", "replay"), ("torch", "eager")]


@pytest.mark.parametrize(("contestant", "engine"), ENGINES, indirect=["contestant"])
@pytest.mark.parametrize("kind", memory.ROUNDS)
def test_peak(benchmark, kind, contestant, engine):
    """In arrays of the chain; the answer is asserted in the process that is measured."""
    benchmark.group = f"peak-{kind}"
    size = 1_000_000 if benchmark.enabled else 10_000
    figures = benchmark.pedantic(
        memory.fresh, (memory.peak, contestant, engine, kind, size, memory.OPERATIONS)
    )
    benchmark.extra_info |= figures


@pytest.mark.parametrize("pinned", [False, True], ids=["dropped", "one-pinned"])
@pytest.mark.parametrize("contestant", memory.LIBRARIES, indirect=True)
def test_growth(benchmark, contestant, pinned):
    """In bytes, over a million operations whose results are dropped."""
    benchmark.group = "growth"
    operations = 500_000 if benchmark.enabled else 5000
    figures = benchmark.pedantic(
        memory.fresh, (memory.growth, contestant, "auto", pinned, operations)
    )
    benchmark.extra_info |= figures
