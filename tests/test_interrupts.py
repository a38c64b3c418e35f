"""Ctrl-C at chosen places: what was under way is put back, and comes out as KeyboardInterrupt (random places: tests/campaigns/interrupts.py)."""

import contextlib
import gc
import signal
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import saving
from tapegrad.compiler import tracing
from tapegrad.core import handlers, lifetime, tape
from tapegrad.core.mode import no_grad


def leaf():
    return tg.tensor([1.0, 2.0], requires_grad=True)


class After:
    """Calls a function, and interrupts once after so many calls."""

    def __init__(self, function, calls):
        self.function, self.left = function, calls

    def __call__(self, *args):
        result = self.function(*args)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return result


class Late(Exception):
    """What a program's own limit of time raises."""


@contextlib.contextmanager
def limited(kind):
    """A handler of a signal that raises, as one for `signal.alarm` does."""

    def handler(number, frame):
        raise kind("it takes too long")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield lambda: signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def before_a_call(fire, function):
    def called(*args, **kwargs):
        fire()
        return function(*args, **kwargs)

    return called


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no such signal")
@pytest.mark.parametrize("kind", [Late, TimeoutError, ValueError])
def test_what_a_handler_raises_is_no_answer_of_a_compiler(kind, monkeypatch):
    """It was taken for "machine code could not be made", which is a warning, or for Numba's complaint."""
    from tapegrad.compiler import partition, program
    from tapegrad.native import formed

    monkeypatch.setattr(program, "STRICT", False)  # which has no call go on without machine code
    x = np.array([0.5, 2.0])
    with limited(kind) as fire:
        f = tg.compile(lambda x: np.sum(np.sin(x) * x))
        with monkeypatch.context() as patched:
            patched.setattr(partition, "whole", before_a_call(fire, partition.whole))
            with pytest.raises(kind, match="too long"):
                f(x)
        assert f(x) == pytest.approx(np.sum(np.sin(x) * x), rel=1e-14)
        with monkeypatch.context() as patched:
            patched.setattr(formed, "ByForm", before_a_call(fire, formed.ByForm))
            with pytest.raises(kind, match="too long"):
                tg.grad(tg.njit(loop))(x)
    np.testing.assert_allclose(tg.grad(tg.njit(loop))(x), 2 * x)


def loop(x):
    s = 0.0
    for v in x:
        s += v * v
    return s


def test_only_what_a_handler_raises_below_the_asker_is_handed_on():
    """A compiler may put its own error in place of it; an error met while a handler's is dealt with is another one."""

    def ask(work):
        try:
            work()
        except Exception as error:
            handlers.hand_on(error)
        return "asked"

    def wrapped():
        try:
            fire()
        except Late as error:
            raise TypeError("a compiler's own") from error

    def later():
        try:
            fire()
        except Late:
            return ask(lambda: {}[0])

    with limited(Late) as fire:
        for work in (fire, wrapped):
            with pytest.raises(Late):
                ask(work)
        assert later() == "asked" and ask(lambda: {}[0]) == "asked"


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no such signal")
def test_handlers_wait_while_llvmlites_lines_run():
    """Between a call of LLVM and llvmlite's note of it no handler runs; what the handler raises comes before the block ends."""
    noted = []
    with limited(Late) as fire:
        handler = signal.getsignal(signal.SIGUSR1)
        scope = {"__name__": "llvmlite.binding.made", "fire": fire, "noted": noted}
        exec("def call():\n    fire()\n    noted.append(1)\n", scope)
        with pytest.raises(Late):
            scope["call"]()
        assert noted == []
        with pytest.raises(Late), handlers.held_back(), handlers.held_back():
            scope["call"]()
        assert noted == [1] and signal.getsignal(signal.SIGUSR1) is handler
        with pytest.raises(Late), handlers.held_back():
            fire()
            noted.append(2)  # the handler does not wait for lines of others
        assert noted == [1] and signal.getsignal(signal.SIGUSR1) is handler
        with handlers.held_back():
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert (
            signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        )  # what the block itself sets stays


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no such signal")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of a folder whose reading was interrupted
@pytest.mark.parametrize("kind", [Late, KeyboardInterrupt])
def test_an_interrupt_leaves_llvms_modules_with_their_owners(kind, monkeypatch):
    """An exception between the linking of a module and the note that the module is gone freed it twice, which ended the process."""
    from llvmlite.binding.module import ModuleRef

    space = {}
    exec("def cube(x):\n    s = 0.0\n    for v in x:\n        s += v * v * v\n    return s", space)
    x = np.array([0.5, 2.0])
    with limited(kind) as fire, monkeypatch.context() as patched:
        patched.setattr(ModuleRef, "detach", before_a_call(fire, ModuleRef.detach))
        with pytest.raises(kind, match="too long"):
            tg.grad(tg.njit(space["cube"]))(x)
    gc.collect()
    np.testing.assert_allclose(tg.grad(tg.njit(space["cube"]))(x), 3 * x * x)


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
def test_a_sweep_loses_nothing(monkeypatch, calls):
    native, tape.MARK[0] = tape.MARK[0], None
    try:
        x = leaf()
        kept = [x * 2]
        for k in range(8):
            kept.append(kept[-1] * 1.5)
            kept[0] * k  # dies at once
        monkeypatch.setattr(tape, "getrefcount", After(tape.getrefcount, calls))
        with pytest.raises(KeyboardInterrupt):
            tg.current_tape().sweep()
        monkeypatch.undo()
        slots = tg.current_tape().code[tape.SLOT :: tape.STRIDE]
        assert slots == sorted(set(slots))
        (g,) = tg.autograd.grad(kept[-1].sum(), x)
        assert g.tolist() == [2 * 1.5**8] * 2
    finally:
        tape.MARK[0] = native


@pytest.mark.parametrize("engine", ["sweep", "auto"])
@pytest.mark.parametrize("where", ["hook of a tensor", "hook of a leaf", "Function"])
def test_a_walk_lets_go_of_its_tape(engine, where):
    def interrupt(*_):
        raise KeyboardInterrupt

    class F(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        backward = staticmethod(interrupt)

    before = tg.engine()
    tg.set_engine(engine)
    x = leaf()
    y = F.apply(x) if where == "Function" else x * 2
    handle = (y if where == "hook of a tensor" else x).register_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        (y * y).sum().backward()
    handle.remove()
    assert tg.current_tape().busy == 0 and tg.is_grad_enabled() and x.grad is None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    tg.set_engine(before)


def test_a_mode_that_could_not_begin(monkeypatch):
    after = After(no_grad._recorder, 1)
    monkeypatch.setattr(no_grad, "_recorder", lambda self: after(self))
    with pytest.raises(KeyboardInterrupt), tg.no_grad():
        pass
    assert tg.is_grad_enabled()


def test_a_mode_that_could_not_end(monkeypatch):
    leave, calls = no_grad._leave, []

    def interrupted(self, entered):
        calls.append(entered)
        if len(calls) == 1:
            raise KeyboardInterrupt
        leave(self, entered)

    monkeypatch.setattr(no_grad, "_leave", interrupted)
    with pytest.raises(KeyboardInterrupt), tg.no_grad():
        pass
    assert tg.is_grad_enabled() and len(calls) == 2


def test_hooks_that_could_not_begin(monkeypatch):
    monkeypatch.setattr(saving, "attend", After(saving.attend, 1))
    with (
        pytest.raises(KeyboardInterrupt),
        tg.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    assert saving.hooks_in_force() is None
    assert (leaf() * leaf()).grad_fn.name() == "MulBackward0"


@pytest.mark.parametrize("calls", [1, 10, 100])
def test_a_trace_leaves_the_ops_as_they_were(monkeypatch, calls):
    forwards = [op.forward for op in tracing.OPS]
    monkeypatch.setattr(tracing, "_record_calls", After(tracing._record_calls, calls))
    with pytest.raises(KeyboardInterrupt):
        tg.compile(tg.grad(lambda x: np.sum(x * x)))(np.ones(2))
    monkeypatch.undo()
    assert [op.forward for op in tracing.OPS] == forwards and not tracing._recording
    assert tg.compile(tg.grad(lambda x: np.sum(x * x)))(np.ones(2)).tolist() == [2.0, 2.0]


def test_what_comes_in_a_finaliser_comes_again(monkeypatch):
    """Python prints what a finaliser raises, and forgets it."""
    y = leaf() * 2
    y.grad_fn.metadata["note"] = object()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lifetime, "let_go", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            del y
            for _ in range(1000):  # an interrupt is looked at between statements
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)


def test_numbas_dispatcher_makes_a_system_error_of_it():
    from tapegrad.native.complaints import interrupted

    error = SystemError("returned a result with an exception set")
    assert interrupted(error) is error
    error.__cause__ = KeyboardInterrupt()
    assert interrupted(error) is error.__cause__


def test_the_lock_of_llvm_is_given_back(monkeypatch):
    """An interrupt right behind the taking of the lock, before the block that gives it back."""
    import llvmlite.binding as llvm

    lock = llvm.ffi.lib._lock._lock

    def interrupted(*_):
        lock.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr(llvm, "parse_assembly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tg.compile(tg.grad(lambda x: np.sum(np.sin(x) * x * 1.0625)))(np.ones(3))
    assert not lock._is_owned()


@pytest.mark.parametrize("where", ["in", "nested", "out"])
def test_a_dual_level_ends_with_its_block(where, monkeypatch):
    """Interrupted right behind the opening, or before the closing: no level is left open, and an outer one stays."""
    forward_ad = tg.autograd.forward_ad
    enter = forward_ad.enter_dual_level

    def interrupted(**_):
        if where == "in":
            enter()
        raise KeyboardInterrupt

    with contextlib.ExitStack() as outer:
        if where == "nested":
            outer.enter_context(forward_ad.dual_level())
        opened = forward_ad.LEVEL.get()
        with monkeypatch.context() as patch:
            name = "exit_dual_level" if where == "out" else "enter_dual_level"
            patch.setattr(forward_ad, name, interrupted)
            with pytest.raises(KeyboardInterrupt), forward_ad.dual_level():
                pass
        assert forward_ad.LEVEL.get() is opened
