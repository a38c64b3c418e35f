"""Elementary functions of large arrays: vecmath's loops against NumPy's (`python -m bench.accuracy` has all of them, with errors)."""

import numpy as np
import pytest

from tapegrad.replay import quick_loops as loops

NAMES = ("exp", "log", "sin", "tanh", "log1p", "arctan", "power")


@pytest.mark.parametrize("size", [1000, 1_000_000])
@pytest.mark.parametrize("loop", ["vecmath", "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_forward(benchmark, name, loop, size):
    ufunc = getattr(np, name)
    run = (
        loops.load(ufunc) if loop == "vecmath" else ufunc
    )  # NumPy's own, where that is faster here
    operands = [np.linspace(0.1, 9.0, size)] * ufunc.nin
    out = np.empty(size)
    assert np.allclose(run(*operands), ufunc(*operands), rtol=1e-14)
    benchmark.group = f"{name} {size}"
    benchmark(run, *operands, out)
    if benchmark.stats:
        benchmark.extra_info["ns_per_element"] = 1e9 * benchmark.stats.stats.median / size
