"""Forward and backward pass of every workload by tapegrad: each engine, each way of writing it, every size."""

import pytest

from bench import peers
from bench.workloads import CASES


@pytest.mark.parametrize("engine", peers.ENGINES, indirect=True)
@pytest.mark.parametrize(("workload", "size"), CASES)
def test_gradient(time_gradient, workload, size, engine):
    time_gradient(peers.checked("tapegrad", workload, size), workload, size)


@pytest.mark.parametrize("engine", ["replay"], indirect=True)
@pytest.mark.parametrize("contestant", ["tapegrad_numpy", "tapegrad_transform"])
@pytest.mark.parametrize(("workload", "size"), CASES)
def test_way_of_writing(time_gradient, workload, size, engine, contestant):
    """Through NumPy's own functions, and through a transform of a function of arrays."""
    time_gradient(peers.checked(contestant, workload, size), workload, size)
