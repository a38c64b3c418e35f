"""Machine code for an older processor: asked for by name, the same answers, in a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tapegrad.core import processor

PROGRAM = """
import numpy as np, tapegrad as tg
from tapegrad.core import processor
from tapegrad.llvm import cache
x = np.linspace(0.1, 3, 100)
def f(x): return np.sum(np.sin(x) * np.exp(-x) + np.tanh(x) ** 2)
gradients = [tg.grad(f)(x), tg.compile(tg.grad(f))(x), tg.grad(tg.njit(f))(x)]
for g in gradients[1:]:
    np.testing.assert_allclose(g, gradients[0], rtol=1e-14, atol=1e-15)
print(*processor.identity(), cache.environment(), processor.vector_bytes())
"""


def answer(level: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CPU")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {processor.VARIABLE: level},
        capture_output=True,
        text=True,
    )


def levels() -> list[str]:
    """Those that this processor can run."""
    host = processor._host()
    return [
        name
        for name in processor._levels()
        if all(host.get(feature) for feature in processor._features_of(name))
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(slice(None, None, 2), id="every other level"),
        pytest.param(slice(None), id="every level", marks=pytest.mark.campaign),
    ],
)
def test_every_level_answers_alike_and_has_a_cache_of_its_own(chosen):
    found = {}
    for level in levels()[chosen]:
        run = answer(level)
        assert run.returncode == 0, run.stderr
        name, _, key, width = run.stdout.split()
        assert name != "native"
        found[level] = key, int(width)
    assert len({key for key, _ in found.values()}) == len(found)
    widths = {"generic": 16, "x86-64-v2": 16, "x86-64-v3": 32}
    assert all(found[v][1] == widths[v] for v in widths.keys() & found.keys())


@pytest.mark.long
@pytest.mark.parametrize("level", ["x86-64-v9", "pentium"])
def test_an_unknown_level_is_refused(level):
    run = answer(level, "import tapegrad as tg; tg.compile(lambda x: x * x)(2.0)")
    assert run.returncode != 0
    assert f"TAPEGRAD_CPU={level} was asked for" in run.stderr and "generic" in run.stderr


def test_code_that_would_stop_the_process_is_refused(monkeypatch):
    names = processor._levels()
    if not names:
        pytest.skip("no levels are known for this architecture")
    processor.level.cache_clear()
    monkeypatch.setenv(processor.VARIABLE, list(names)[-1])
    monkeypatch.setattr(processor, "_host", lambda: {})
    with pytest.raises(ValueError, match="this processor lacks"):
        processor.level()
    processor.level.cache_clear()


def test_what_numba_was_told_stands(monkeypatch):
    monkeypatch.setenv(processor.VARIABLE, "generic")
    monkeypatch.setenv("NUMBA_CPU_NAME", "host")
    processor.limit_numba()
    assert os.environ["NUMBA_CPU_NAME"] == "host"
