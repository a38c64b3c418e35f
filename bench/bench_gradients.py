"""Forward and backward pass of every workload, by each engine of tapegrad, at every size."""

import pytest

from bench import peers
from bench.workloads import CASES


@pytest.mark.parametrize("engine", peers.ENGINES, indirect=True)
@pytest.mark.parametrize(("workload", "size"), CASES)
def test_gradient(time_gradient, workload, size, engine):
    time_gradient(peers.checked("tapegrad", workload, size), workload, size)
