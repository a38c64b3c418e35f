"""What users leave on a graph is freed when the last tensor that needs it dies: each way to leave it, each way to drop it."""

import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import saving

ROOT = Path(__file__).parents[1]


class Thing:
    """A user's object: a hook that does nothing."""

    def __call__(self, *_):
        return None


def leaf(value=1.5):
    return tg.tensor(value, requires_grad=True)


class Twice(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x, thing):
        ctx.thing = thing
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class Both(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x, thing):
        ctx.thing = thing
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return 2 * g + 3 * h, None


def of_context(x, thing):
    return Twice.apply(x, thing)


def of_one_of_two_outputs(x, thing):
    return Both.apply(x, thing)[1]


def of_notes(x, thing):
    y = x * 2
    y.grad_fn.metadata["note"] = thing
    return y


def of_node_hook(x, thing):
    y = x * 2
    y.grad_fn.register_hook(thing)
    return y


def of_node_prehook(x, thing):
    y = x * x
    y.grad_fn.register_prehook(thing)
    return y


def of_tensor_hook(x, thing):
    y = x * 2
    y.register_hook(thing)
    return y


def of_packed_value(x, thing):
    with tg.autograd.graph.saved_tensors_hooks(lambda t: (t, thing), lambda pair: pair[0]):
        return x * x


def of_leaf_hook(x, thing):
    w = leaf()
    w.register_hook(thing)
    return w * x


def of_post_accumulate_hook(x, thing):
    w = leaf()
    w.register_post_accumulate_grad_hook(thing)
    return w * x


def of_leaf_notes(x, thing):
    w = leaf()
    tg.autograd.graph.get_gradient_edge(w).node.metadata["note"] = thing
    return w * x


def of_write(x, thing):
    y = x * 2
    y.register_hook(thing)
    y.mul_(3)
    return y


WAYS = [f for name, f in list(globals().items()) if name.startswith("of_")]


@pytest.fixture(autouse=True, params=["sweep", "auto"])
def engine(request):
    """No garbage collection: reference counts have to do."""
    before = tg.engine()
    tg.set_engine(request.param)
    gc.disable()
    yield
    gc.enable()
    tg.set_engine(before)


@pytest.fixture(params=WAYS, ids=lambda f: f.__name__.removeprefix("of_"))
def left(request):
    """A tensor on whose graph an object was left, alone in a list, and the object's weak reference."""
    thing = Thing()
    return [request.param(leaf(), thing)], weakref.ref(thing)


def test_with_the_tensor(left):
    tensors, ref = left
    assert ref() is not None
    tensors.clear()
    assert ref() is None


def test_with_the_last_result(left):
    tensors, ref = left
    tensors.append(np.sin(tensors[0]))
    tensors.append(tg.stack([tensors[0], tensors[1]]).sum() * 3)
    del tensors[:2]
    assert ref() is not None
    tensors.clear()
    assert ref() is None


def test_beside_results_that_stay(left):
    tensors, ref = left
    x = leaf()
    before = x * 2
    tensors.append(tensors[0] + before)
    after = before * 3
    tensors.clear()
    assert ref() is None
    assert tg.autograd.grad(after, x)[0].item() == 6.0


def test_after_backward(left):
    tensors, ref = left
    (tensors[0] * 2).backward()
    tensors.clear()
    assert ref() is None


def test_after_a_backward_that_keeps_the_graph(left):
    tensors, ref = left
    tensors[0].backward(retain_graph=True)
    assert ref() is not None
    tensors.clear()
    assert ref() is None


def test_after_a_backward_that_failed(left):
    tensors, ref = left
    tensors.append(tensors[0] * 2)

    def fail(g):
        raise ValueError

    handle = tensors[1].register_hook(fail)
    with pytest.raises(ValueError):
        tensors[1].backward()
    del handle, fail
    tensors.clear()
    assert ref() is None


def test_with_a_second_derivative(left):
    tensors, ref = left
    w = leaf()
    y = tensors[0] * w * w
    (g,) = tg.autograd.grad(y, w, create_graph=True)
    del y
    tensors.clear()
    assert ref() is not None  # the derivative reads it
    del g
    assert ref() is None


def test_with_a_view_of_the_node(left):
    tensors, ref = left
    node = (tensors[0] * 2).grad_fn
    tensors.clear()
    assert ref() is not None
    del node
    assert ref() is None


def test_with_an_edge(left):
    tensors, ref = left
    edge = tg.autograd.graph.get_gradient_edge(tensors[0])
    tensors.clear()
    assert ref() is not None
    del edge
    assert ref() is None


def test_when_the_name_means_another_tensor(left):
    tensors, ref = left
    tensors[0] = leaf() * 2
    assert ref() is None


def test_when_it_is_detached(left):
    tensors, ref = left
    y = tensors[0].detach()
    tensors.clear()
    assert ref() is None and not y.requires_grad


def test_in_another_thread(left):
    tensors, ref = left
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert ref() is None


@pytest.mark.long(but=2)
def test_with_a_cycle(left):
    tensors, ref = left
    ring = [tensors.pop()]
    ring.append(ring)
    del ring
    assert ref() is not None
    gc.collect()
    assert ref() is None


def test_a_hook_that_holds_its_own_leaf():
    thing = Thing()
    ref = weakref.ref(thing)
    w = leaf()
    w.register_hook(lambda g, w=w, thing=thing: None)
    (w * 2).backward()
    del w, thing
    gc.collect()
    assert ref() is None


@pytest.mark.long
def test_numbers_know_nothing_of_it():
    """In a process of its own, where no other test has left something on a graph."""
    script = """
    from tests.test_lifetime import Thing, Twice, leaf, tg
    (leaf() * 2).backward()
    assert not hasattr(tg.Tensor, "__del__")
    y = Twice.apply(leaf(), Thing())
    assert hasattr(tg.Tensor, "__del__")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=ROOT)


def test_a_finaliser_may_compute():
    """It runs inside a drop, and makes and drops tensors itself."""
    seen = []

    class Computing(Thing):
        def __del__(self):
            x = leaf()
            y = Twice.apply(x, Thing()) * 3
            seen.append(tg.autograd.grad(y, x)[0].item())

    x = leaf()
    kept = x * 5
    y = of_context(kept, Computing())
    z = of_notes(y, Computing())
    del y
    z = of_leaf_hook(z, Computing())
    del z
    assert seen == [6.0] * 3
    kept.backward()
    assert x.grad.item() == 5.0


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
@pytest.mark.parametrize("big", ["object", "leaf"])
def test_memory_stays_flat(big):
    """2000 rounds with 0.8 MB each, dropped in the round that made them."""
    script = """
        import numpy as np, tapegrad as tg, sys
        def resident():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * 4096
        class Thing:
            def __init__(self):
                self.data = np.ones(100_000)
            def __call__(self, *_): ...
        class F(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.thing = Thing()
                return x * 2
            @staticmethod
            def backward(ctx, g):
                return g * 2
        def with_object(walk):
            w = tg.tensor(np.ones(3), requires_grad=True)
            w.register_post_accumulate_grad_hook(Thing())
            w.register_hook(Thing())
            y = F.apply(w)
            y.grad_fn.metadata[0] = Thing()
            y = y.sum()
            if walk:
                y.backward()
        def with_leaf(walk):
            w = tg.tensor(np.ones(100_000), requires_grad=True)
            y = (w[:3] * 2).sum()
            if walk:
                y.backward()
        with_one = {"object": with_object, "leaf": with_leaf}[sys.argv[1]]
        tg.set_engine("sweep")
        for k in range(100):
            with_one(k % 2)
        before = resident()
        for k in range(2000):
            with_one(k % 2)
        grown = resident() - before
        assert grown < 60e6, f"{grown / 1e6:.0f} MB"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), big], check=True, timeout=600)


# ------------------------------------------------------------------------------------------------ saved-tensor hooks


def unpacks(kind):
    hooks = tg.autograd.graph.saved_tensors_hooks

    def enters(t):
        hooks(lambda t: t, lambda t: t).__enter__()
        return t

    def fails(t):
        raise ValueError

    def enters_and_fails(t):
        enters(t)
        raise ValueError

    def records(t):
        with tg.enable_grad(), hooks(lambda t: t, lambda t: t):
            (leaf() * leaf()).backward()
        return t * 1

    return locals()[kind]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("kind", ["enters", "fails", "enters_and_fails", "records"])
def test_saved_tensor_hooks_end_with_their_block(kind, create_graph):
    x = leaf()
    packed = []

    def pack(t):
        packed.append(t)
        return t

    unpack = unpacks(kind)
    try:
        with tg.autograd.graph.saved_tensors_hooks(pack, unpack):
            tg.autograd.grad(x * x, x, create_graph=create_graph)
    except ValueError:
        assert "fails" in kind
    assert saving.hooks_in_force() is None
    packed.clear()
    y = x * x
    assert not packed and y.grad_fn.name() == "MulBackward0"


def test_a_block_that_unpack_ends_stays_ended():
    x = leaf()
    block = tg.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: (block.__exit__(None, None, None), t)[1]
    )
    block.__enter__()
    (x * x).backward()
    assert saving.hooks_in_force() is None
    assert (x * x).grad_fn.name() == "MulBackward0" and x.grad.item() == 3.0


class Data:
    """What a user's function closes over."""

    def __init__(self):
        self.values = np.arange(1.0, 4.0)


START = np.ones(3)


def compiled(data):
    f = tg.compile(lambda x: np.sum(x * data.values))
    return f, f(START), f(2 * START), tg.grad(f)(START)


def compiled_by_calls(data):
    """A program of NumPy's calls: more than one entry of machine code."""
    f = tg.compile(lambda x: np.linalg.svd(np.outer(x, x) + np.diag(data.values))[1])
    return f, [f(START) for _ in range(3)]


def compiled_on_tensors(data):
    f = tg.compile(lambda x: np.sum(x * x * data.values))
    for _ in range(4):
        t = tg.tensor(START, requires_grad=True)
        f(t).backward()
    return f


def compiled_loop(data):
    def f(x):
        return np.sum(tg.scan(lambda c, _: (np.sin(c) * data.values, None), x, np.arange(9.0))[0])

    made = tg.compile(tg.grad(f))
    return made, made(START)


def the_entry_alone(data):
    """It goes on working, for other arguments too."""
    call = tg.compile(lambda x: np.sum(x * data.values)).__call__
    assert call(START) == 6.0
    assert call(np.ones((2, 3))) == 12.0
    return call


def copied_helper(data):
    """A function that fills a buffer, found by name: the copy that runs for it closes over the same."""

    def helper(x):
        y = np.zeros(3)
        y[0] = np.sum(x * data.values)
        return y

    f = tg.grad(lambda x: np.sum(helper(x)))
    return f, f(START)


def jitted(data):
    values = data.values

    @tg.njit
    def f(x):
        return x[0] * values[0]

    return f


def solved(method, **settings):
    def run(data):
        start = tg.tensor(START, requires_grad=True)
        found = tg.integrate.solve_ivp(
            lambda t, y: -y * data.values, (0, 1), start, method=method, **settings
        )
        np.sum(found.y).backward()
        return found

    return run


USES = {
    "compile": compiled,
    "compile-calls": compiled_by_calls,
    "compile-tensors": compiled_on_tensors,
    "compile-loop": compiled_loop,
    "compile-entry": the_entry_alone,
    "buffers": copied_helper,
    "njit": jitted,
    "least_squares": lambda d: tg.least_squares(lambda p: p - d.values, np.zeros(3)),
    "minimize": lambda d: tg.minimize(lambda p: np.sum((p - d.values) ** 2), np.zeros(3)),
    "curve_fit": lambda d: tg.curve_fit(lambda t, a: a * t * d.values, d.values, d.values),
    "root": lambda d: tg.root(lambda x: x**3 - d.values, START),
    "root-krylov": lambda d: tg.root(lambda x: x**3 - d.values, START, method="krylov"),
    "RK45": solved("RK45", dense_output=True),
    "Radau": solved("Radau"),
    "BDF": solved("BDF"),
    "LSODA": solved("LSODA"),
    "continuous": solved("DOP853", adjoint="continuous"),
}


@pytest.mark.parametrize("use", USES)
def test_what_functions_close_over_is_freed_with_them(use):
    """When the last name of a function or of a solution is dropped: no cycle keeps it until somebody collects garbage."""
    data = Data()
    refs = weakref.ref(data), weakref.ref(data.values)
    gc.disable()
    try:
        user = USES[use](data)
        del data
        del user
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_definitions_outlive_their_functions():
    """CPython reads the definition of a built-in function as the function is freed, in a cycle after the definition was cleared."""
    from tapegrad.llvm import linker

    class Holder:
        call = linker.builtin(16, "nothing", None)

    definition = weakref.ref(linker._definitions.pop(16)[0])
    del Holder
    gc.collect()
    assert definition().flags == linker._METH_FASTCALL
