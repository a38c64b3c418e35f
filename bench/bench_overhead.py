"""What tapegrad adds: to an operation on one number, to a byte count, to the start of a process."""

import pytest

from bench import memory, recording, startup


@pytest.mark.parametrize("mode", recording.MODES)
@pytest.mark.parametrize("kind", recording.CHAINS)
def test_operation(benchmark, kind, mode):
    """Compare within a group: what each mode takes longer than "numpy"."""
    run = recording.runs(kind)[mode]
    benchmark.group = f"operation-{kind}"
    run()  # warm
    if mode == "recorded":
        last = []
        rounds = 200 if benchmark.enabled else 1
        benchmark.pedantic(
            lambda: last.append(run()),
            teardown=lambda: recording.finish(last.pop()),
            rounds=rounds,
            warmup_rounds=rounds // 10,
        )
    else:
        benchmark(run)
    if benchmark.stats:
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["ns_per_operation"] = 1e9 * seconds / recording.OPERATIONS


@pytest.mark.skipif(bool(memory.MISSING), reason=str(memory.MISSING))
@pytest.mark.parametrize("contestant", memory.LIBRARIES, indirect=True)
def test_entry(benchmark, contestant):
    """Resident bytes of an operation on one number, until backward."""
    benchmark.group = "bytes of an entry"
    operations = 100_000 if benchmark.enabled else 2000
    figures = benchmark.pedantic(memory.fresh, (memory.entry, contestant, "auto", operations))
    benchmark.extra_info |= figures


@pytest.mark.parametrize("contestant", startup.PROGRAMS, indirect=True)
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_first_gradient(benchmark, contestant, cache):
    """A fresh process up to its first gradient; only tapegrad keeps a cache."""
    if cache == "warm" and contestant != "tapegrad":
        pytest.skip(f"{contestant} keeps no cache between processes")
    benchmark.group = "first gradient"
    if cache == "warm":
        startup.fill_cache()
    startup.first_gradient(contestant)  # warm: bytecode and the file system's cache

    def fresh():
        if cache == "warm":
            return startup.first_gradient(contestant)
        with startup.cold_cache() as folder:
            return startup.first_gradient(contestant, folder)

    rounds = 5 if benchmark.enabled else 1
    benchmark.extra_info |= benchmark.pedantic(fresh, rounds=rounds)
