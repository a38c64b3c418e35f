"""tapegrad.dask: sums over partitions, on threads and on a cluster, and a worker that dies in the middle."""

import gc
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

import tapegrad.dask  # noqa: E402  after the skip

rng = np.random.default_rng(0)
X, W = rng.normal(size=(1000, 3)), np.array([1.0, -2.0, 0.5])
Y = X @ W + 0.1 * rng.normal(size=1000)
START = {"w": np.zeros(3), "b": 0.1}


def loss(p, x, y):
    return np.sum((np.tanh(x @ p["w"]) + p["b"] - y) ** 2)


def chunked():
    return da.from_array(X, chunks=(170, 2)), da.from_array(Y, chunks=170)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_equals_one_process(scheduler):
    value, gradient = tapegrad.dask.value_and_grad(loss, scheduler=scheduler)(START, *chunked())
    expected, slope = tg.value_and_grad(loss)(START, X, Y)
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(gradient["w"], slope["w"], rtol=1e-11)
    assert gradient["b"] == pytest.approx(slope["b"], rel=1e-11) and isinstance(
        gradient["b"], float
    )
    np.testing.assert_array_equal(
        tapegrad.dask.grad(loss, scheduler=scheduler)(START, *chunked())["w"], gradient["w"]
    )


def test_many_partitions_make_a_tree_and_the_sum_does_not_depend_on_who_adds():
    x, y = da.from_array(X, chunks=(7, 3)), da.from_array(Y, chunks=7)
    results = [
        tapegrad.dask.value_and_grad(loss, scheduler=s)(START, x, y)
        for s in ("threads", "synchronous", "threads")
    ]
    assert len({value for value, _ in results}) == 1
    for _, gradient in results:
        np.testing.assert_array_equal(gradient["w"], results[0][1]["w"])


def test_lists_bags_and_frames():
    parts = list(zip(np.array_split(X, 4), np.array_split(Y, 4), strict=True))
    both = tapegrad.dask.value_and_grad(lambda p, part: loss(p, *part))
    expected = tg.value_and_grad(loss)(START, X, Y)[0]
    assert both(START, parts)[0] == pytest.approx(expected)
    bag = pytest.importorskip("dask.bag").from_sequence(parts, npartitions=2)
    assert tapegrad.dask.value_and_grad(lambda p, some: sum(loss(p, *one) for one in some))(
        START, bag
    )[0] == pytest.approx(expected)


def test_fit_with_scipy():
    from scipy import optimize

    x, y = chunked()
    both = tapegrad.dask.value_and_grad(lambda w, x, y: np.sum((x @ w - y) ** 2))
    result = optimize.minimize(lambda w: both(w, x, y), np.zeros(3), jac=True)
    np.testing.assert_allclose(result.x, np.linalg.lstsq(X, Y, rcond=None)[0], atol=1e-5)


def test_multistart():
    def bumpy(x):
        return np.cos(3 * x) + x**2 / 20

    results = tapegrad.dask.multistart(bumpy, [-6.0, -1.0, 4.0, np.nan])
    assert (
        results[0].fun
        == min(r.fun for r in results)
        == pytest.approx(bumpy(np.pi / 3 * 0.99), abs=1e-2)
    )
    assert not results[-1].success and "start from finite numbers" in results[-1].message
    fits = tapegrad.dask.multistart(
        lambda k: np.exp(-k * X[:, 0]) - 1, [0.5, 1.0], tg.least_squares
    )
    assert fits[0].cost <= fits[1].cost


def bent(x):
    return np.sum((x**2 - 1) ** 2) + 0.1 * x[0]


def hamiltonian(x, rng, steps, f=None):
    """A chain on exp(-f), one leapfrog step a draw."""
    f = bent if f is None else f
    draws = []
    for _ in range(steps):
        v = rng.normal(size=x.shape)
        before = f(x) + v @ v / 2
        v = v - 0.1 * tg.grad(f)(x)
        y = x + 0.2 * v
        v = v - 0.1 * tg.grad(f)(y)
        if rng.uniform() < np.exp(before - f(y) - v @ v / 2):
            x = y
        draws.append(x)
    return np.stack(draws)


CHAINS = [np.array([1.0, -1.0]), np.array([0.5, 0.5]), np.array([1.0, -1.0])]


def test_chains_depend_on_seed_and_place_alone():
    runs = [
        tapegrad.dask.chains(hamiltonian, CHAINS, seed=3, scheduler=s, steps=20)
        for s in ("threads", "synchronous")
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(3)[2])
    np.testing.assert_array_equal(runs[0][2], hamiltonian(CHAINS[2], rng, 20))
    assert not np.array_equal(runs[0][0], runs[0][2])  # one start, two chains
    other = tapegrad.dask.chains(hamiltonian, CHAINS, seed=4, steps=20)
    assert not np.array_equal(other[0], runs[0][0])


def test_chains_take_compiled_functions_and_trees():
    compiled = tapegrad.dask.chains(hamiltonian, CHAINS, seed=3, steps=20, f=tg.compile(bent))
    np.testing.assert_allclose(
        compiled, tapegrad.dask.chains(hamiltonian, CHAINS, seed=3, steps=20), rtol=1e-9
    )
    starts = [{"a": 1.0, "b": [2.0]}, {"a": 3.0, "b": []}]
    assert tapegrad.dask.chains(lambda p, rng: p, starts) == starts


def test_a_chain_that_fails_is_named():
    def stuck(x, rng):
        return 1 / x

    with pytest.raises(ZeroDivisionError) as caught:
        tapegrad.dask.chains(stuck, [1, 0, 2])
    assert "chain 1" in caught.value.__notes__[0]


def test_starts_in_threads_do_not_disturb_one_another():
    starts = np.random.default_rng(0).normal(size=(12, 2))
    runs = [tapegrad.dask.multistart(bent, starts, scheduler=s) for s in ("threads", "synchronous")]
    for a, b in zip(*runs, strict=True):
        assert a.fun == b.fun
        np.testing.assert_array_equal(a.x, b.x)
    assert [r.fun for r in runs[0]] == sorted(r.fun for r in runs[0])


@pytest.fixture
def collected():
    """A scheduler of Dask leaves Python's collector switched off, which later tests need."""
    yield
    gc.enable()


@pytest.mark.usefixtures("collected")
def test_the_guides_example():
    page = Path(__file__).parent.parent / "notebooks" / "guide" / "many_cores.md"
    text = page.read_text(encoding="utf-8")
    code = text.split("<!-- dask example -->")[1].split("```python")[1].split("```")[0]
    made = {}
    exec(code, made)
    whole = tg.value_and_grad(made["loss"])(np.zeros(3), made["x"].compute(), made["y"].compute())
    assert made["value"] == pytest.approx(whole[0])
    np.testing.assert_allclose(made["gradient"], whole[1])
    assert abs(made["best"].x) == pytest.approx(1.036, abs=1e-2) and len(made["others"]) == 7
    assert len(made["four"]) == 4 and made["four"][0].shape == (200,)
    assert not np.array_equal(made["four"][0], made["four"][1])


def overwrites(p, x, y):
    x[0] = 0.0
    return loss(p, x, y)


# fmt: off
BAD = {
    "no function":  (lambda: tapegrad.dask.value_and_grad(3), TypeError, "cannot be called"),
    "no data":      (lambda: tapegrad.dask.value_and_grad(loss)(START), TypeError, "no data was given"),
    "an array":     (lambda: tapegrad.dask.value_and_grad(loss)(START, X, Y), TypeError, "np.array_split"),
    "counts":       (lambda: tapegrad.dask.value_and_grad(loss)(START, [X], [Y, Y]), ValueError, "cut alike"),
    "rows":         (lambda: tapegrad.dask.value_and_grad(loss)(START, da.from_array(X, chunks=(500, 3)), da.from_array(Y, chunks=(400, 600))), ValueError, "rechunk"),
    "empty":        (lambda: tapegrad.dask.value_and_grad(loss)(START, [], []), ValueError, "no partition"),
    "vector loss":  (lambda: tapegrad.dask.value_and_grad(lambda p, x: x @ p["w"])(START, [X]), TypeError, "needs a scalar output"),
    "no start":     (lambda: tapegrad.dask.multistart(np.sum, []), ValueError, "no start"),
    "no client":    (lambda: tapegrad.dask.value_and_grad(loss, client=3)(START, [X], [Y]), TypeError, "distributed.Client"),
    "data written": (lambda: tapegrad.dask.value_and_grad(overwrites)(START, [X], [Y]), ValueError, r"x = x.copy\(\)"),
    "setting":      (lambda: tapegrad.dask.multistart(bent, CHAINS, metod="BFGS"), TypeError, "keyword argument 'metod'"),
    "no result":    (lambda: tapegrad.dask.multistart(bent, CHAINS, lambda f, x: None), TypeError, "return an OptimizeResult"),
    "no sampler":   (lambda: tapegrad.dask.chains(None, [1.0]), TypeError, "cannot be called"),
    "no chain":     (lambda: tapegrad.dask.chains(hamiltonian, []), ValueError, "no start"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_answered_in_a_sentence(name):
    call, kind, words = BAD[name]
    before = X.copy()
    with pytest.raises(kind, match=words):
        call()
    np.testing.assert_array_equal(X, before)


def test_a_worker_makes_a_function_once():
    """However often it arrives; another closure is another function."""

    def scaled(by):
        return tg.compile(lambda x: np.sum(x * by))

    first = tapegrad.dask.Shipped(scaled(2.0))
    again, other = (
        pickle.loads(pickle.dumps(tapegrad.dask.Shipped(scaled(by)))) for by in (2.0, 3.0)
    )
    assert first.arrived() is again.arrived() is not other.arrived()
    assert other.arrived()(X[0]) == pytest.approx(3 * X[0].sum())
    for by in range(tapegrad.dask.KEPT + 3):
        tapegrad.dask.Shipped(lambda x, by=by: x * by).arrived()
    assert len(tapegrad.dask._received) == tapegrad.dask.KEPT


def programs_of_workers():
    """Of each function that a worker keeps: how many programs of its gradient there are."""
    functions = tapegrad.dask._received.values()
    derived = [f.derived(tg.value_and_grad) for f in functions if hasattr(f, "derived")]
    return [sum(map(len, d.programs.by_key.values())) for d in derived]


@pytest.mark.filterwarnings(
    "default"
)  # of a cluster that loses a worker, whatever its libraries say
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path):
    """Parameters in the graph, and scattered ones: the result is the same to the last bit."""
    distributed = pytest.importorskip("distributed")
    x, y = chunked()
    plain = tapegrad.dask.value_and_grad(loss, scheduler="synchronous")(START, x, y)
    dashboard = {"distributed.worker.daemon": False, "distributed.admin.tick.limit": "60s"}
    with (
        dask.config.set(dashboard),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        compiled = tapegrad.dask.value_and_grad(tg.compile(loss), client=client)
        for _ in range(2):
            assert compiled(START, x, y)[0] == pytest.approx(plain[0])
        # Partitions of two lengths: a program for each at most, though there were six tasks twice.
        made = list(client.run(programs_of_workers).values())
        assert all(len(counts) == 1 and counts[0] <= 2 for counts in made)

        def deadly(p, x, y, flag=str(tmp_path / "killed")):
            time.sleep(0.02)
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return np.sum((np.tanh(x @ p["w"]) + p["b"] - y) ** 2)
            os._exit(1)  # the first task to come here takes its worker down

        value, gradient = tapegrad.dask.value_and_grad(deadly, client=client)(START, x, y)
        assert (tmp_path / "killed").exists()
        assert value == plain[0]
        np.testing.assert_array_equal(gradient["w"], plain[1]["w"])

        def deadly_chain(x, rng, steps, flag=str(tmp_path / "chain")):
            draws = hamiltonian(x, rng, steps)
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return draws
            os._exit(1)

        alone = tapegrad.dask.chains(hamiltonian, CHAINS, scheduler="synchronous", steps=5)
        np.testing.assert_array_equal(
            tapegrad.dask.chains(deadly_chain, CHAINS, client=client, steps=5), alone
        )
        assert (tmp_path / "chain").exists()
        fits = tapegrad.dask.multistart(bent, CHAINS, client=client)
        assert fits[0].fun == tg.minimize(bent, CHAINS[0]).fun and all(r.success for r in fits)
        os.unlink(tmp_path / "killed")
        big, tapegrad.dask.BIG = tapegrad.dask.BIG, 0
        try:
            value, _ = tapegrad.dask.value_and_grad(deadly)(START, x, y)  # the active client
        finally:
            tapegrad.dask.BIG = big
        assert value == plain[0]
