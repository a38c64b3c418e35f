"""Room for compilers: where there is none, a MemoryError in place of LLVM's abort, and everything works once there is room again."""

import subprocess
import sys

import pytest

from tapegrad.core import headroom

resource = pytest.importorskip("resource")


def test_room_is_asked_for():
    assert headroom.room(1 << 20) and not headroom.room(1 << 60)
    headroom.demand(1 << 20, "nothing")
    with pytest.raises(MemoryError, match=r"(?s)a test may take .* MB.*Raise the limit"):
        headroom.demand(1 << 60, "a test")


PROGRAM = """
import resource, sys, time, optree
import numpy as np, tapegrad as tg

def limited(rest, work):
    builder = sys.modules.get("tapegrad.replay.builder")
    while builder is not None and not builder.idle():  # its thread would take of the room
        time.sleep(0.01)
    space = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + rest, -1))
    try:
        work()
    except MemoryError as error:
        told = str(error)
    else:
        told = "an answer"
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    return told

def f(x):
    return np.sum(np.sin(x) * x)

def slope(x):
    return np.sin(x) + x * np.cos(x)

x = np.linspace(0.1, 0.9, 5)
work = lambda: np.testing.assert_allclose(tg.compile(tg.grad(f))(x), slope(x))
told = [limited(1 << 24, work)]  # no room to load LLVM
work()
told += [limited(1 << 24, work)]  # none to call it
work()

def replayed():
    tg.set_engine("replay")
    t = tg.tensor(x, requires_grad=True)
    f(t).backward()
    np.testing.assert_allclose(t.grad, slope(x))

told += [limited(1 << 24, replayed)]
replayed()
tg.set_engine("auto")
told += [limited(1 << 24, lambda: tg.njit)]  # no room to load Numba

@tg.njit
def g(x):
    return np.sum(x * x * x)

work = lambda: np.testing.assert_allclose(tg.grad(g)(x), 3 * x * x)
told += [limited(1 << 24, work)]
work()
print("\\n".join(told))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_compilers_without_room(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    script = tmp_path / "program.py"  # a derivative of g reads its source
    script.write_text(PROGRAM, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    first, second, _, fourth, fifth = done.stdout.splitlines()
    assert first == second == "an answer"  # a compiled program runs as NumPy calls then
    assert fourth.startswith("loading Numba") and fifth.startswith("compiling by Numba")
    assert "Raise the limit" in fourth and "Raise the limit" in fifth


SCIPYS = """
import resource, sys
import numpy as np, tapegrad as tg

x = tg.tensor(np.ones(3), requires_grad=True)
works = [
    lambda: tg.special.erf(x),
    lambda: tg.signal.lfilter([1.0, 0.5], [1.0, 0.2], x),
    lambda: tg.ndimage.gaussian_filter(x, 1.0),
    lambda: tg.fft.dct(x),
    lambda: tg.linalg.expm(tg.eye(3) * x),
    lambda: tg.sparse.csr_array(np.eye(3)) @ x,
    lambda: tg.stats.norm.logpdf(x),
    lambda: tg.integrate.solve_ivp(lambda t, y: -y, (0, 1), x).y,
    lambda: tg.least_squares(lambda p: p - 1.0, np.zeros(3)).x,
]
assert "scipy.linalg" not in sys.modules
space = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (space + (60 << 20), -1))
for work in works:
    try:
        work()
    except MemoryError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print([bool(np.all(np.isfinite(getattr(y := work(), "_value", y)))) for work in works])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit and its figures are Linux's")
def test_no_room_for_scipy():
    """OpenBLAS asked for memory for ever where it was refused, whichever part of SciPy was the first."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCIPYS], capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    *told, done = result.stdout.splitlines()
    assert len(told) == 9 and all(t.startswith("loading SciPy may take 256 MB") for t in told)
    assert done == str([True] * 9)
