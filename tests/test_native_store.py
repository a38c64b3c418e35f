"""Generated code on disk: used by the next process, by several at once, bounded, and rebuilt where it is damaged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tapegrad.native import store
from tapegrad.replay import cache

PROGRAM = """
import json, numpy as np, tapegrad as tg
@tg.njit
def f(x):
    y = 0.5
    for i in range(x.size):
        y = y * x[i] + np.sin(y)
    return y
g = tg.grad(f)(np.array([0.3, 0.4]))
stats = f.latest.compiled.stats
print(json.dumps([list(g), sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


def start(tmp_path: Path) -> subprocess.Popen:
    script = tmp_path / "program.py"
    if not script.exists():
        script.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "TAPEGRAD_CACHE_DIR": str(tmp_path / "cache")},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen) -> list:
    out, problem = process.communicate(timeout=300)
    assert process.returncode == 0, problem
    return json.loads(out)


def test_processes(tmp_path):
    """Two begin at once on an empty cache, the third compiles nothing, the fourth finds the files cut short."""
    together = [start(tmp_path), start(tmp_path)]
    first, second = map(answer, together)
    assert first[0] == second[0]

    y = 0.5 * 0.3 + np.sin(0.5)
    np.testing.assert_allclose(first[0], [0.5 * (0.4 + np.cos(y)), y], rtol=1e-14)
    third = answer(start(tmp_path))
    assert third == [first[0], 1, 0]
    kept = list((tmp_path / "cache" / "native" / "__pycache__").iterdir())
    assert len(kept) >= 2
    for path in kept:
        path.write_bytes(path.read_bytes()[:-20])
    fourth = answer(start(tmp_path))
    assert fourth == [first[0], 0, 1]
    assert answer(start(tmp_path))[1:] == [1, 0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    place = store.folder()
    (place / "__pycache__").mkdir()
    return place


def unit(folder, name, used, size=1000):
    """Source, index and code of a function, as Numba names them."""
    files = [
        folder / f"{name}.py",
        folder / "__pycache__" / f"{name}.f-1.py311.nbi",
        folder / "__pycache__" / f"{name}.f-1.py311.1.nbc",
    ]
    for file in files:
        file.write_bytes(b"x" * size)
        os.utime(file, (used, used))
    return files


def test_what_was_not_used_for_longest_goes(folder, monkeypatch):
    """All files of a function go together; a touched index counts as use."""
    monkeypatch.setattr(store, "KEPT_BYTES", 6500)
    old, middle, new = (unit(folder, n, 1000.0 + k) for k, n in enumerate(("a", "b", "c")))
    os.utime(old[1], (2000.0, 2000.0))
    store.trim()
    assert [f.exists() for f in old] == [True] * 3
    assert [f.exists() for f in middle] == [False] * 3
    assert [f.exists() for f in new] == [True] * 3


def test_use_touches_the_index_and_not_the_source(folder):
    options: dict = {}
    file = Path(store.source_file("f", "def f(): pass\n", {}, options))
    index = folder / "__pycache__" / f"{file.stem}.f-1.py311.nbi"
    index.write_bytes(b"")
    for path in (file, index):
        os.utime(path, (1000.0, 1000.0))
    assert store.source_file("f", "def f(): pass\n", {}, options) == str(file)
    assert file.stat().st_mtime == 1000.0
    assert index.stat().st_mtime > 1000.0


def test_a_bound_with_files_that_vanish(tmp_path):
    there = tmp_path / "there"
    there.write_bytes(b"12345")
    cache.bound([[tmp_path / "gone"], [there]], 4)
    assert not there.exists()
