"""The child of a fork works in whatever state the parent was; tensors and functions travel to processes started in any way."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import locks, tape
from tests.children import in_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@tg.enable_grad()
def gradient():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    return [*x.grad.tolist(), float(tg.grad(lambda v: v**3)(2.0))]


RIGHT = str([2.0, 4.0, 12.0])


@contextmanager
def held_elsewhere(*held):
    """Another thread holds these locks."""
    taken, done = threading.Event(), threading.Event()

    def hold():
        for lock in held:
            lock.acquire()
        taken.set()
        done.wait()
        for lock in reversed(held):
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_every_lock_is_free_in_the_child():
    gradient()
    known = [lock for ref in locks._known if (lock := ref()) is not None]
    assert tape._tapes_lock in known and len(known) >= 5
    with held_elsewhere(tg.current_tape().lock, *known):
        assert in_child(gradient) == RIGHT


def test_a_lock_that_the_forking_thread_holds_stays_its_own():
    with tg.current_tape().held(), tg.current_tape().lock:
        assert in_child(lambda: (gradient(), tg.current_tape().lock._is_owned())[1]) == "True"


class Slow:
    """Finds modules whose import lasts, in the process that made this, until `go_on` is set."""

    def __init__(self):
        self.parent, self.begun, self.go_on = os.getpid(), threading.Event(), threading.Event()

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if "slow_to_import" in name else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__.startswith("tapegrad") and not module.__name__.endswith("other"):
            importlib.import_module("slow_to_import_other")
        elif os.getpid() == self.parent:
            self.begun.set()
            self.go_on.wait(600)
        module.whole = True


def test_a_child_imports_what_another_thread_was_importing(monkeypatch):
    """With what that module imports; the thread is not there to finish."""
    slow = Slow()
    monkeypatch.setattr(sys, "meta_path", [slow, *sys.meta_path])
    name = "tapegrad.slow_to_import"
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    assert slow.begun.wait(600)
    try:
        told = in_child(lambda: importlib.import_module(name).whole)
    finally:
        slow.go_on.set()
        thread.join()
        for left in (name, "slow_to_import_other"):
            sys.modules.pop(left, None)
        vars(tg).pop("slow_to_import", None)
    assert told == "True"


def test_a_fork_inside_a_walk():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    told = []
    y.register_hook(lambda g: told.append(in_child(gradient)))
    (y * y).sum().backward()
    assert told == [RIGHT]
    assert x.grad.tolist() == [18.0, 36.0]


def compiled():
    return float(tg.compile(tg.grad(lambda v: v * v * 1.5))(2.0))


def native(k=1.25):
    space = {}
    exec(
        f"def f(x):\n    s = 0.0\n    for v in x:\n        s += v * v * {k!r}\n    return s", space
    )
    return tg.grad(tg.njit(space["f"]))(np.array([1.0, 2.0])).tolist()


@pytest.mark.long
def test_a_child_waits_until_nobody_compiles():
    """Another thread is done with the compiler soon: the fork waits, and the child has everything."""
    from numba.core.compiler_lock import global_compiler_lock

    taken = threading.Event()

    def hold():
        with global_compiler_lock:
            taken.set()
            threading.Event().wait(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert in_child(native) == str([2.5, 5.0])
    thread.join()


@pytest.mark.long
def test_a_child_is_refused_a_compiler_that_is_held_for_ever(monkeypatch):
    from numba.core.compiler_lock import global_compiler_lock

    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    with held_elsewhere(global_compiler_lock):
        assert in_child(gradient) == RIGHT
        told = in_child(native)
        assert told.startswith("RuntimeError: compiling was asked for in a forked process")
        assert "spawn" in told and "waits for that thread" in told
    assert not locks.refused()
    assert in_child(native) == str([2.5, 5.0])


def given_up():
    """What finalisers of LLVM's objects complain of."""
    import gc

    told = []
    sys.unraisablehook = lambda about: told.append(str(about.exc_value))
    from tapegrad.llvm import assembly

    assembly.target.cache_clear()
    gc.collect()
    return told


@pytest.mark.long
def test_a_child_is_refused_llvm_that_is_held_for_ever(monkeypatch):
    import llvmlite.binding as llvm

    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    assert compiled() == 6.0
    with held_elsewhere(llvm.ffi.lib._lock._lock):
        assert in_child(gradient) == RIGHT
        assert "in a forked process" in in_child(compiled)
        assert in_child(given_up) == "[]"
    assert in_child(compiled) == "6.0"


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_tensors_travel_to_processes(method, tmp_path):
    script = tmp_path / "travel.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, multiprocessing, numpy as np, tapegrad as tg
            from concurrent.futures import ProcessPoolExecutor
            def slope(w):
                assert w.requires_grad
                (w * w).sum().backward()
                return w.grad
            if __name__ == "__main__":
                w = tg.tensor([1.0, 2.0], requires_grad=True)
                (w * 2).sum().backward()
                context = multiprocessing.get_context(sys.argv[1])
                with ProcessPoolExecutor(2, mp_context=context) as pool:
                    found = list(pool.map(slope, [w.detach().requires_grad_(), tg.tensor([3.0], requires_grad=True)]))
                assert [g.tolist() for g in found] == [[2.0, 4.0], [6.0]], found
                assert w.grad.tolist() == [2.0, 2.0]
            """
        )
    )
    subprocess.run([sys.executable, "-W", "ignore", script, method], check=True, timeout=600)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_are_leaves_of_their_own(duplicate):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = duplicate(x)
    (y * y).sum().backward()
    assert x.grad is None and y.grad.tolist() == [2.0, 4.0] and y.is_leaf
    with tg.no_grad():
        y.add_(1)
    assert x.tolist() == [1.0, 2.0]
