"""The same gradients by other libraries and by hand, in the groups of `bench_gradients`.

Answers of the peers are asserted like tapegrad's, so this is also a cross-check of the workloads.
"""

import pytest

from bench import peers
from bench.workloads import CASES

OTHERS = [name for name in peers.CONTESTANTS if peers.library(name) != "tapegrad"]


@pytest.mark.parametrize("contestant", OTHERS, indirect=True)
@pytest.mark.parametrize(("workload", "size"), CASES)
def test_peer(time_gradient, workload, size, contestant):
    if reason := peers.NOT_TIMED.get((contestant, workload.name)):
        pytest.skip(reason)
    time_gradient(peers.checked(contestant, workload, size), workload, size)
