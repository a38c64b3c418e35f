"""A gradient summed over partitions by Dask, beside one process: what the split and the tree cost, what workers bring.

`one process` is `tg.value_and_grad` on the whole data, `threads` and `cluster` are `tapegrad.dask` on twelve partitions of it. The
cluster has a worker a core, each with one thread.
"""

import os

import numpy as np
import pytest

import tapegrad as tg

pytest.importorskip("dask.array")


def logistic(w, x, y):
    """Logistic regression, not normalised: a sum over rows."""
    return np.sum(np.logaddexp(0.0, -y * (x @ w)))


@pytest.fixture(scope="module", params=[24_000, 1_200_000])
def problem(request):
    """Few rows, which show what a task costs, and as many as make a cluster worth while."""
    rows = request.param
    if rows > 24_000 and request.config.getoption("benchmark_disable"):
        pytest.skip("the few rows tell whether the answer is right")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 20))
    y = np.where(x @ np.linspace(-1, 1, 20) + rng.normal(size=rows) > 0, 1.0, -1.0)
    return np.zeros(20), x, y


@pytest.fixture
def client(request):
    """A local cluster, where `distributed` is installed."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=os.cpu_count(), threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.parametrize("how", ["one process", "threads", "cluster"])
@pytest.mark.filterwarnings("default")
def test_throughput(benchmark, problem, how, request):
    """Rows a second."""
    import dask.array as da

    import tapegrad.dask

    w, x, y = problem
    expected = tg.value_and_grad(logistic)(w, x, y)
    if how == "one process":

        def run():
            return tg.value_and_grad(logistic)(w, x, y)

    else:
        client = None
        chunk = len(x) // 12
        data = da.from_array(x, chunks=(chunk, 20)), da.from_array(y, chunks=chunk)
        if how == "cluster":
            if not benchmark.enabled:
                pytest.skip(
                    "a cluster takes half a minute to start: tests/test_interop_dask.py has one"
                )
            client = request.getfixturevalue("client")
            data = client.persist(list(data))
        summed = tapegrad.dask.value_and_grad(logistic, client=client)

        def run():
            return summed(w, *data)

    value, gradient = run()
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)
    benchmark.group = f"logistic regression, {len(x)} rows"
    benchmark(run)
    if benchmark.stats:
        benchmark.extra_info["rows_per_second"] = len(x) / benchmark.stats.stats.median
