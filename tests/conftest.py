"""A world stricter than the user's: what a test leaves behind fails it.

Warnings are errors (pyproject.toml), random numbers are seeded, object code goes to a folder of the session, and a
grad mode, an engine, an open tape or a floating-point error state that outlives its test is an error of that test.
"""

from __future__ import annotations

import gc
import os
import random
import time
import zlib
from collections import Counter
from collections.abc import Iterator

# The matrices of tests are small: BLAS's threads would only wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Code that runs a few times is not optimised, by Numba or by us: that would be a third of the time of all tests. `NUMBA_OPT=3 pytest` has
# the code of users, as CI has for campaigns, other versions and what is compiled.
os.environ.setdefault("NUMBA_OPT", "0")

import numpy as np
import pytest

import tapegrad as tg

# Ops are declared with their modules, and tests that go over all ops find them when they are collected.
import tapegrad.fft
import tapegrad.linalg
import tapegrad.ndimage
import tapegrad.signal
import tapegrad.sparse
import tapegrad.special
import tapegrad.stats
from tapegrad.core import tape
from tapegrad.llvm import jit
from tapegrad.replay import child

if os.environ["NUMBA_OPT"] == "0":
    jit.LIMIT = jit.QUICK

pytest.register_assert_rewrite("tests.suite", "tests.children")

# Tests wait for the child, and beside other tests of a busy computer it would get a hundredth of a processor.
child.NICENESS = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        default="1/1",
        metavar="K/N",
        help="of long tests and campaigns, part K of N (K counts from 1)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`@pytest.mark.long(but=2)`: the first two cases of a function are tried in every run; what is a campaign is not long besides.
    Of other long tests and of campaigns, the cases of one part stay."""
    part, parts = map(int, config.getoption("--part").split("/"))
    met: Counter[str] = Counter()
    others = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        met[name] += 1
        long, campaign = item.get_closest_marker("long"), item.get_closest_marker("campaign")
        if long and (campaign or met[name] <= long.kwargs.get("but", 0)):
            item.own_markers.remove(long)
            long = None
        if (long or campaign) and zlib.crc32(item.nodeid.encode()) % parts != part - 1:
            others.append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        gone = set(others)
        items[:] = [item for item in items if item not in gone]


gc.disable()  # until tests are collected: all that they are made of stays


def pytest_collection_finish() -> None:
    """Modules and collected tests stay: the many collections of tests need not go over them each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled kernels of this session, away from the user's own and shared by the processes of xdist; a folder that was set already
    is used (as CI does)."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", str(folder))


@pytest.fixture(scope="module")
def settled_heap() -> Iterator[None]:
    """For modules whose tests all collect garbage: what earlier tests left, gigabytes of Numba's objects, is looked at twice in all."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    pytest_collection_finish()


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """The state of the library after a test is the state before it."""
    random.seed(0)
    tg.manual_seed(0)
    before = ambient_state()
    recorder = tape.RECORDER.get()
    yield
    after = ambient_state()
    tape.RECORDER.set(recorder)
    tg.set_engine(before["engine"])
    np.seterr(**before["float errors"])
    leaks = {what: (before[what], after[what]) for what in before if before[what] != after[what]}
    assert not leaks, "the test left something behind: " + ", ".join(
        f"{w} was {b}, is {a}" for w, (b, a) in leaks.items()
    )


def ambient_state() -> dict[str, object]:
    """What a test could leave behind, by name."""
    return {
        "grad mode": tg.is_grad_enabled(),
        "inference mode": tg.is_inference_mode_enabled(),
        "engine": tg.engine(),
        "attending": tape.ATTENDING.get(),
        "tape": id(tg.current_tape()),
        "busy tapes": sum(t.busy for t in tape._tapes),
        "float errors": np.geterr(),
    }


@pytest.fixture
def generated_adjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native functions go by the generated adjoint, which stands behind the program form."""
    monkeypatch.setenv("TAPEGRAD_FORM", "0")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is compiled in the background, so that what tracemalloc counts is the test's own memory."""
    from tapegrad.replay import builder

    before = tg.engine()
    tg.set_engine("sweep")
    while not builder.idle():
        time.sleep(0.01)
    yield
    tg.set_engine(before)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(0)
