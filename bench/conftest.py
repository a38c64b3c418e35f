"""Fixtures of the benchmarks.

Every benchmark takes a run that is warm and whose answer was asserted (`peers.checked`), so what is
timed is right, and `pytest bench --benchmark-disable` is a test. Importing this package has limited
every library to one thread.
"""

import pytest

from bench import peers, workloads


def pytest_make_parametrize_id(val):
    """Ids read "chain-10-replay"."""
    return val.name if isinstance(val, workloads.Workload) else None


@pytest.fixture
def engine(request):
    """tapegrad restricted to one executor (parametrise indirectly), and back to its own choice."""
    import tapegrad as tg

    try:
        tg.set_engine(request.param)
    except RuntimeError as unavailable:  # replay falls back by itself, but cannot be forced
        pytest.skip(str(unavailable))
    yield request.param
    tg.set_engine("auto")


@pytest.fixture
def contestant(request):
    """The name of a contestant (parametrise indirectly); skips where its library is absent."""
    if not peers.installed(request.param):
        pytest.skip(f"{peers.library(request.param)} is not installed")
    return request.param


@pytest.fixture
def time_gradient(benchmark):
    """Time `run` in the group of its workload and size, with the cost of an element beside it."""

    def time(run, workload, size):
        benchmark.group = f"{workload.name}-{size}"
        work = workloads.work(workload, size)
        benchmark.extra_info |= work
        benchmark(run)
        if benchmark.stats:  # None under --benchmark-disable
            nanoseconds = 1e9 * benchmark.stats.stats.median
            benchmark.extra_info |= {
                "ns_per_operation": nanoseconds / work["operations"],
                "ns_per_element": nanoseconds / work["elements"],
            }

    return time
