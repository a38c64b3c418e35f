"""Generated code on disk: used by the next process, by several at once, bounded, and rebuilt where it is damaged."""

import gc
import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.extending import overload

import tapegrad as tg
from tapegrad.llvm import cache
from tapegrad.native import pipelines, store

PROGRAM = """
import json, numpy as np, tapegrad as tg
@tg.njit(mode="adjoint")
def f(x):
    y = 0.5
    for i in range(x.size):
        y = y * x[i] + np.sin(y)
    return y
g = tg.grad(f)(np.array([0.3, 0.4]))
stats = f.latest.compiled.stats
print(json.dumps([list(g), sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


OVERLOADED = """
import json, numpy as np, tapegrad as tg
@tg.njit(mode="overload")
def f(x):
    y = [0.5]
    for i in range(x.size):
        y.append(y[-1] * x[i])
    return y[-1]
g = tg.grad(f)(np.full(5000, 1.0))
stats = f.latest.first.compiled.stats
print(json.dumps([[g[0], g[-1], g.sum()], sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


EVERY_KIND = """
import json, numba, numpy as np, scipy.special, tapegrad as tg
from numba.core import event
scale = 3.0
root = tg.njit_vjp(lambda a: a**0.5, lambda g, out, a: (g / (2 * out),))
@numba.njit
def helper(a):
    return a * scale
@tg.njit
def ruled(a):
    return root(helper(a))
@tg.njit
def special(a):
    return scipy.special.erf(a)
@tg.njit
def of_pair(p):
    return p[0] * p[1]
with event.install_recorder("numba:compile") as compiled:
    one, two = (tg.tensor(v, requires_grad=True) for v in (1.0, 2.0))
    of_pair((one, two)).backward()
    found = [tg.grad(ruled)(3.0), tg.grad(tg.grad(ruled))(3.0), tg.jvp(ruled, (3.0,), (2.0,))[1], tg.grad(special)(0.0), one.grad.item()]
print(json.dumps([found, len(compiled.buffer) == 0]))
"""


def start(tmp_path: Path, text: str = PROGRAM) -> subprocess.Popen:
    script = tmp_path / "program.py"
    if not script.exists():
        script.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(script)],
        # As users have it: of code that is not optimised Numba keeps less.
        env={**os.environ, "TAPEGRAD_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_OPT": "3"},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen) -> list:
    out, problem = process.communicate(timeout=600)
    assert process.returncode == 0, problem
    return json.loads(out)


@pytest.mark.long
def test_processes(tmp_path):
    """Two begin at once on an empty cache, the third compiles nothing, the fourth finds the files cut short."""
    together = [start(tmp_path), start(tmp_path)]
    first, second = map(answer, together)
    assert first[0] == second[0]

    y = 0.5 * 0.3 + np.sin(0.5)
    np.testing.assert_allclose(first[0], [0.5 * (0.4 + np.cos(y)), y], rtol=1e-14)
    third = answer(start(tmp_path))
    assert third == [first[0], 1, 0]
    kept = list((tmp_path / "cache" / "native").glob("*.bin"))
    assert {path.name.split("_")[0] for path in kept} == {"code", "types"}
    for path in kept:
        path.write_bytes(path.read_bytes()[:-20])
    fourth = answer(start(tmp_path))
    assert fourth == [first[0], 0, 1]
    assert answer(start(tmp_path))[1:] == [1, 0]


@pytest.mark.long
def test_overloaded_functions_are_kept(tmp_path):
    """A second process loads what the first compiled, and its tape grows at its own addresses."""
    results = [answer(start(tmp_path, OVERLOADED)) for _ in range(2)]
    assert results == [[[0.5, 0.5, 2500.0], 0, 1], [[0.5, 0.5, 2500.0], 1, 0]]


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    """Rules of the user's, values on tensors, tuples, SciPy's functions, tangents, second derivatives."""
    first, second = (answer(start(tmp_path, EVERY_KIND)) for _ in range(2))
    np.testing.assert_allclose(first[0], [0.5, -1 / 12, 1.0, 2 / np.sqrt(np.pi), 2.0], rtol=1e-14)
    assert second == [first[0], True]


@pytest.mark.parametrize("enabled", [True, False])
def test_collections_wait_while_numba_compiles(enabled):
    """And are as they were, whatever is raised."""
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError), pipelines.compiling():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


FACTOR = 2.0


def helper(a):
    return a * FACTOR


def program(x, n=3):
    return helper(x) + n


def told_elsewhere(x):
    return x


@overload(told_elsewhere)
def _told(x):
    return lambda x: x * 2.0


Forth, Back = namedtuple("Forth", "a b"), namedtuple("Back", "b a")


def test_key_of_a_program(monkeypatch):
    """It changes with all that the function names, however far off, and is none where that cannot be told."""
    keys = {store.program_key(program), store.program_key(program, "more")}
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    keys.add(store.program_key(program))
    monkeypatch.setitem(globals(), "helper", lambda a: a * FACTOR + 1.0)
    keys.add(store.program_key(program))
    monkeypatch.setattr(program, "__defaults__", (4,))
    keys.add(store.program_key(program))
    for pair in (Forth(1, 2), Back(1, 2)):
        monkeypatch.setitem(globals(), "FACTOR", pair)
        monkeypatch.setitem(globals(), "helper", lambda a: a * FACTOR[0])
        keys.add(store.program_key(program))
    for factor in (1.0, 2.0):
        rule = tg.njit_vjp(lambda a: a, lambda g, out, a: (g * factor,))
        monkeypatch.setitem(globals(), "helper", rule)
        keys.add(store.program_key(program))
    assert None not in keys
    assert len(keys) == 9
    assert store.program_key(program) == store.program_key(program)
    large = np.zeros(200_000)
    made = numba.cfunc("f8(f8)")(lambda a: a)
    for unknown in (object(), [1.0], pytest, made, told_elsewhere, large):
        monkeypatch.setitem(globals(), "FACTOR", unknown)
        monkeypatch.setitem(globals(), "helper", lambda a: a * FACTOR)
        assert store.program_key(program) is None


@numba.njit
def power(x, n):
    if n <= 0:
        return 1.0
    return x * power(x, n - 1) + np.sin(x)


def caller_of_a_recursion(x):
    return power(x, 2)


@pytest.mark.long
def test_a_recursion_is_not_kept(folder):
    """Of a function that calls a recursive one Numba keeps code that jumps to no address when it is loaded."""
    assert store.program_key(power.py_func) is store.program_key(caller_of_a_recursion) is None
    x, (s, c) = 0.7, (np.sin(0.7), np.cos(0.7))
    for _ in range(2):
        found = tg.grad(tg.njit(caller_of_a_recursion))(x)
        np.testing.assert_allclose(found, 2 * x + s + x * c + c, rtol=1e-14)
    assert not list(folder.glob("code_*"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    return store.folder()


def test_what_was_not_used_for_longest_goes(folder, monkeypatch):
    monkeypatch.setattr(store, "KEPT_BYTES", 2500)
    files = [folder / f"code_{name}.bin" for name in "abc"]
    for k, file in enumerate(files):
        file.write_bytes(b"x" * 1000)
        os.utime(file, (1000.0 + k, 1000.0 + k))
    os.utime(files[0], (2000.0, 2000.0))
    store.trim()
    assert [file.exists() for file in files] == [True, False, True]


def test_use_counts(folder):
    options: dict = {}
    file = Path(store.source_file("f", "def f(): pass\n", {}, options))
    store.write_types("0", ("a", 1))
    kept = folder / "types_0.bin"
    for path in (file, kept):
        os.utime(path, (1000.0, 1000.0))
    assert store.source_file("f", "def f(): pass\n", {}, options) == str(file)
    file.write_text("def f(): harm\n")  # nobody runs it, but tracebacks show it
    assert (
        store.source_file("f", "def f(): pass\n", {}, options) == str(file)
        and file.read_text() == "def f(): pass\n"
    )
    assert store.read_types("0") == ("a", 1)
    assert file.stat().st_mtime > 1000.0 and kept.stat().st_mtime > 1000.0


@pytest.mark.parametrize(
    "kept",
    [
        ({"x": numba.float64[:], "i": numba.int64}, numba.float64, {"y"}),
        ({"a": numba.types.Array(numba.complex64, 3, "A", readonly=True)}, numba.types.none, set()),
        ({"t": numba.types.Tuple((numba.boolean, numba.float32[::1, :]))}, None, set()),
        ({"u": numba.types.UniTuple(numba.int8, 3), "s": numba.types.unicode_type}, 0, set()),
        (True, 2, [0, 1], False, True),
    ],
)
def test_types_are_kept_in_words(folder, kept):
    store.write_types("0", kept)
    assert store.read_types("0") == kept
    assert str(store.read_types("0")) == str(kept)  # equal types of Numba's may have other names
    assert b"numba" not in (folder / "types_0.bin").read_bytes()


def test_types_that_cannot_be_told_are_not_kept(folder):
    pair = numba.types.NamedTuple((numba.int64,) * 2, namedtuple("Pair", "a b"))
    store.write_types("0", ({"x": pair}, numba.float64, set()))
    assert store.read_types("0") is None


def test_a_bound_with_files_that_vanish(tmp_path):
    there = tmp_path / "there"
    there.write_bytes(b"12345")
    cache.bound([[tmp_path / "gone"], [there]], 4)
    assert not there.exists()


def one_type_each(x):
    s = 0.0
    for i in range(x.size):
        s += x[i] * i
    return s


def whole_then_float(x):
    s = 0.0
    for k in range(x.size):
        v = k
        if x[k] > 0.5:
            v = x[k] * s
        s += v * 0.5
    return s


@pytest.mark.parametrize(
    "f, dtype, uniform",
    [
        (one_type_each, np.float64, True),
        (one_type_each, np.float32, False),
        (whole_then_float, np.float64, False),
    ],
)
def test_bindings_go_without_names_of_their_own(f, dtype, uniform):
    """Where every name has one type, float64 or int64 if it is a number: then Numba need not tell its bindings apart."""
    x = np.linspace(0.2, 0.9, 5).astype(dtype)
    native = tg.njit(f)
    assert native.variant((x,)).typed().program.uniform == uniform
    h = 1e-3
    slopes = [
        (f(x.astype(float) + h * e) - f(x.astype(float) - h * e)) / (2 * h) for e in np.eye(5)
    ]
    np.testing.assert_allclose(tg.grad(native)(x), slopes, rtol=1e-5)
