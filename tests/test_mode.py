"""Grad modes: what they switch off, how they nest, and that they leave everything as it was.

Every test ends as it began: recording is on, also after exceptions, in generators, threads and tasks.
"""

import asyncio
import contextvars
import functools
import gc
import threading

import numpy as np
import pytest

import tapegrad as tg
from tests.suite import in_thread

OFF = {
    "no_grad": tg.no_grad,
    "inference_mode": tg.inference_mode,
    "set_grad_enabled": lambda: tg.set_grad_enabled(False),
}


@pytest.fixture(autouse=True)
def recording_is_on_before_and_after():
    assert tg.is_grad_enabled() and not tg.is_inference_mode_enabled()
    yield
    assert tg.is_grad_enabled() and not tg.is_inference_mode_enabled()


@pytest.fixture
def w():
    return tg.tensor([1.0, 2.0], requires_grad=True)


def recorded(w):
    """Whether ops are recorded here: what counts, as opposed to what the mode says of itself."""
    results = (
        w * 2,
        w + w,
        np.sin(w),
        w.sum(),
        w[0],
        tg.stack([w, w]),
        2.0 * w,
        w @ w,
        np.add(w, 1.0),
    )
    assert len({r.requires_grad for r in results}) == 1
    return results[0].requires_grad


# ------------------------------------------------------------------------------------------------ what they do


@pytest.mark.parametrize("mode", OFF)
def test_nothing_is_recorded_in_a_mode_that_is_off(mode, w):
    before = len(tg.current_tape())
    with OFF[mode]():
        assert not tg.is_grad_enabled() and not recorded(w)
        y = w * 2
    assert len(tg.current_tape()) == before
    assert not y.requires_grad and y.is_leaf and y.grad_fn is None
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])
    assert recorded(w)


def test_enable_grad_records_again_inside_no_grad(w):
    with tg.no_grad(), tg.enable_grad():
        assert tg.is_grad_enabled()
        y = w * 2
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [2.0, 2.0])


def test_a_leaf_made_under_no_grad_still_requires_grad_if_asked(w):
    with tg.no_grad():
        x = tg.tensor([3.0], requires_grad=True)
        assert x.requires_grad and not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_values_may_leave_under_no_grad(w):
    """The remedy that errors propose: no gradient is wanted."""
    with tg.no_grad():
        assert float(w[0]) == 1.0 and np.asarray(w).sum() == 3.0
        array = np.zeros(2)
        array[:] = w
        assert array.sum() == 3.0


def test_modes_nest_and_each_end_restores_what_was_before(w):
    with tg.no_grad():
        with tg.enable_grad():
            with tg.no_grad():
                with tg.set_grad_enabled(True):
                    assert recorded(w)
                assert not recorded(w)
            assert recorded(w)
        assert not recorded(w)
    assert recorded(w)


def test_set_grad_enabled_acts_at_once_and_as_a_context(w):
    tg.set_grad_enabled(False)
    assert not recorded(w)
    tg.set_grad_enabled(mode=True)
    assert recorded(w)
    with tg.set_grad_enabled(False):
        with tg.set_grad_enabled(True):
            assert recorded(w)
        assert not recorded(w)
    flag = True
    with tg.set_grad_enabled(flag and not flag):
        assert not tg.is_grad_enabled()


@pytest.mark.parametrize("mode", [*OFF, "enable_grad"])
def test_one_instance_can_be_entered_again_also_while_it_is_active(mode, w):
    instance = OFF[mode]() if mode in OFF else tg.enable_grad()
    tg.set_grad_enabled(True)
    inside = mode == "enable_grad"
    for _ in range(2):
        with instance:
            with instance:
                with tg.no_grad():
                    with instance:
                        assert recorded(w) == inside
                    assert not recorded(w)
                assert recorded(w) == inside
            assert recorded(w) == inside
        assert recorded(w)


@pytest.mark.parametrize("mode", [*OFF, "enable_grad"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_a_mode_ends_with_an_exception(mode, error, w):
    with pytest.raises(error):
        with OFF[mode]() if mode in OFF else tg.enable_grad():
            raise error
    assert recorded(w)
    with tg.no_grad():
        with pytest.raises(error):
            with tg.enable_grad():
                raise error
        assert not recorded(w)


def test_modes_suspended_in_generators_may_end_out_of_turn(w):
    """A generator that yields inside its `with` leaves the mode on, as in PyTorch; its end takes away just its own."""

    def suspended(mode):
        with mode:
            yield

    outer, inner = suspended(tg.no_grad()), suspended(tg.no_grad())
    next(outer)
    next(inner)
    outer.close()
    assert not recorded(w)
    inner.close()
    assert recorded(w)

    outer, middle, inner = (
        suspended(tg.no_grad()),
        suspended(tg.enable_grad()),
        suspended(tg.no_grad()),
    )
    for generator in (outer, middle, inner):
        next(generator)
    middle.close()
    assert not recorded(w)
    inner.close()
    assert not recorded(w)
    outer.close()
    assert recorded(w)


# ------------------------------------------------------------------------------------------------ inference mode


def test_inference_tensors_are_marked_and_refused_where_a_derivative_needs_them(w):
    with tg.inference_mode():
        assert tg.is_inference_mode_enabled() and not tg.is_grad_enabled()
        y = w * 2
        made = tg.ones(2)
    assert y.is_inference() and made.is_inference() and not w.is_inference() and not y.requires_grad
    for function in (
        lambda: w * y,
        lambda: y * w,
        lambda: np.multiply(y, w),
        lambda: w @ y,
        lambda: w / made,
        lambda: tg.where(y > 0, w, y) * y * w,
    ):
        with pytest.raises(
            RuntimeError, match="Inference tensors cannot be saved for backward.*clone"
        ):
            function()
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor.*clone"):
        y.requires_grad_()
    (w * y.clone() + y).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [2.0, 4.0])


def test_inference_mode_is_stricter_than_the_others_inside_it(w):
    with tg.inference_mode():
        with tg.enable_grad():
            assert not recorded(w) and tg.is_inference_mode_enabled()
        with tg.set_grad_enabled(True):
            assert not recorded(w) and tg.is_inference_mode_enabled()
        with tg.no_grad():
            assert (w * 2).is_inference()
        with tg.inference_mode(False):
            assert recorded(w) and not tg.is_inference_mode_enabled()
        assert not recorded(w)


def test_a_transform_differentiates_in_any_mode():
    """A derivative that is asked for is given, and its result belongs to the mode outside."""
    for mode in OFF.values():
        with mode():
            assert tg.grad(lambda x: x**3)(2.0) == 12.0
            assert tg.grad(tg.grad(lambda x: x**3))(2.0) == 12.0
            value, pull = tg.vjp(np.sin, 0.0)
            assert pull(1.0) == (1.0,) and tg.jvp(np.sin, (0.0,), (2.0,))[1] == 2.0
            assert not tg.is_grad_enabled()
            x = tg.tensor(2.0, requires_grad=True)
            assert not tg.grad(lambda x: x**3)(x).requires_grad


def test_no_grad_inside_a_differentiated_function_stops_the_gradient():
    def f(x):
        with tg.no_grad():
            c = x * x
        return c * x

    assert tg.grad(f)(3.0) == 9.0
    assert tg.jvp(f, (3.0,), (1.0,))[1] == 9.0
    assert tg.grad(tg.no_grad()(lambda x: x * x), allow_unused=True)(3.0) == 0.0


# ------------------------------------------------------------------------------------------------ decorators


@pytest.mark.parametrize(
    "decorate",
    [tg.no_grad, tg.no_grad(), tg.inference_mode, tg.inference_mode(), OFF["set_grad_enabled"]],
    ids=["bare", "called", "inference bare", "inference called", "set"],
)
def test_a_decorated_function_runs_in_the_mode(decorate, w):
    decorator = decorate() if decorate is OFF["set_grad_enabled"] else decorate
    assert tg.is_grad_enabled() or decorate is OFF["set_grad_enabled"]

    @decorator
    def function(x, *, scale=1):
        """What it does."""
        return x * scale, tg.is_grad_enabled()

    assert tg.is_grad_enabled()
    y, enabled = function(w, scale=2)
    assert not y.requires_grad and not enabled and tg.is_grad_enabled()
    assert function.__name__ == "function" and function.__doc__ == "What it does."
    with pytest.raises(TypeError):
        function()
    assert tg.is_grad_enabled()


def test_a_decorated_function_may_recurse_and_call_others(w):
    seen = []

    @tg.no_grad()
    def down(n):
        seen.append(tg.is_grad_enabled())
        with tg.enable_grad():
            assert recorded(w)
            if n:
                down(n - 1)
            assert recorded(w)
        seen.append(tg.is_grad_enabled())

    down(5)
    assert seen == [False] * 12


def test_enable_grad_decorates_too(w):
    @tg.enable_grad()
    def function(x):
        return x * 2

    with tg.no_grad():
        assert function(w).requires_grad and not tg.is_grad_enabled()


def test_methods_static_methods_and_partials_can_be_decorated(w):
    class Model:
        @tg.no_grad()
        def method(self, x):
            return self, recorded(x)

        @staticmethod
        @tg.no_grad
        def static(x):
            return recorded(x)

        @classmethod
        @tg.no_grad
        def of_class(cls, x):
            return recorded(x)

    model = Model()
    assert model.method(w) == (model, False) and not Model.static(w) and not Model.of_class(w)
    assert not tg.no_grad()(functools.partial(recorded, w))()


def test_a_class_is_not_decorated():
    with pytest.raises(TypeError, match="Decorate the methods"):

        @tg.no_grad()
        class Model:
            pass


@tg.no_grad()
def flags(n):
    """Yields what the mode is inside, takes what is sent, returns it all."""
    received = []
    try:
        for _ in range(n):
            received.append((yield tg.is_grad_enabled()))
    except ValueError as error:
        received.append((str(error), tg.is_grad_enabled()))
        yield "caught"
    return received


def test_a_decorated_generator_runs_in_the_mode_and_its_consumer_does_not(w):
    seen = []
    for flag in flags(3):
        seen.append((flag, tg.is_grad_enabled(), recorded(w)))
    assert seen == [(False, True, True)] * 3


def test_a_decorated_generator_takes_values_exceptions_and_close(w):
    generator = flags(2)
    assert next(generator) is False
    assert generator.send("a") is False
    with pytest.raises(StopIteration) as stop:
        generator.send("b")
    assert stop.value.value == ["a", "b"]

    generator = flags(2)
    next(generator)
    assert generator.throw(ValueError("thrown")) == "caught"
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == [("thrown", False)]

    closed = []

    @tg.no_grad()
    def cleans_up():
        try:
            yield 1
        finally:
            closed.append(tg.is_grad_enabled())

    generator = cleans_up()
    next(generator)
    generator.close()
    assert closed == [False] and tg.is_grad_enabled()
    generator = cleans_up()
    next(generator)
    del generator
    gc.collect()
    assert closed == [False, False] and tg.is_grad_enabled()
    with pytest.raises(KeyError):
        generator = cleans_up()
        next(generator)
        generator.throw(KeyError("out"))
    assert closed == [False] * 3


def test_decorated_generators_interleave_with_modes_of_their_consumer(w):
    with tg.no_grad():
        generator = tg.enable_grad()(flags.__wrapped__)(2)
        assert next(generator) is True and not tg.is_grad_enabled()
    assert next(generator) is True and tg.is_grad_enabled()

    @tg.no_grad()
    def delegates():
        yield tg.is_grad_enabled()
        result = yield from tg.enable_grad()(flags.__wrapped__)(1)
        yield tg.is_grad_enabled(), result

    assert list(delegates()) == [False, True, (False, [None])]


def test_a_decorated_coroutine_runs_in_the_mode_also_after_it_waited(w):
    @tg.no_grad()
    async def function():
        flags = [tg.is_grad_enabled()]
        await asyncio.sleep(0)
        flags.append(recorded(w))
        return flags

    async def main():
        assert await function() == [False, False]
        assert tg.is_grad_enabled()
        results = await asyncio.gather(function(), undecorated(), function())
        assert results == [[False, False], True, [False, False]]

    async def undecorated():
        await asyncio.sleep(0)
        return recorded(w)

    asyncio.run(main())


def test_a_decorated_asynchronous_generator_takes_values_exceptions_and_close():
    log = []

    @tg.no_grad()
    async def generator():
        try:
            sent = yield tg.is_grad_enabled()
            await asyncio.sleep(0)
            log.append((sent, tg.is_grad_enabled()))
            try:
                yield 2
            except ValueError:
                log.append(tg.is_grad_enabled())
                yield 3
        finally:
            await asyncio.sleep(0)
            log.append(("end", tg.is_grad_enabled()))

    async def main():
        g = generator()
        assert await anext(g) is False and tg.is_grad_enabled()
        assert await g.asend("hello") == 2
        assert await g.athrow(ValueError) == 3
        with pytest.raises(StopAsyncIteration):
            await anext(g)
        assert log == [("hello", False), False, ("end", False)]
        assert [x async for x in generator()] == [False, 2]
        g = generator()
        await anext(g)
        await g.aclose()
        assert tg.is_grad_enabled()

    asyncio.run(main())
    assert log[-1] == ("end", False)


# ------------------------------------------------------------------------------------------------ threads and tasks


def test_a_mode_is_local_to_the_thread(w):
    with tg.no_grad():
        assert in_thread(tg.is_grad_enabled) and in_thread(lambda: recorded(w))
    in_thread(lambda: tg.set_grad_enabled(False))
    assert recorded(w)


@pytest.mark.parametrize("mode", OFF)
def test_one_instance_serves_two_threads_that_leave_in_any_order(mode, w):
    instance = OFF[mode]()
    tg.set_grad_enabled(True)
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def other():
        with tg.no_grad(), instance:
            inside.set()
            leave.wait(600)
        seen.append(tg.is_grad_enabled())

    thread = threading.Thread(target=other)
    with instance:
        thread.start()
        inside.wait(600)
        assert not tg.is_grad_enabled()
    assert recorded(w)
    leave.set()
    thread.join(10)
    assert seen == [True] and recorded(w)
    tape = tg.current_tape()
    y = w * 3
    assert tape.find(y._node) is not None  # on this thread's tape, not on the other's


def test_a_mode_is_local_to_the_task(w):
    log = []

    async def off():
        with tg.no_grad():
            for _ in range(3):
                await asyncio.sleep(0)
                log.append(recorded(w))

    async def on():
        for _ in range(3):
            await asyncio.sleep(0)
            log.append(recorded(w))

    async def main():
        await asyncio.gather(off(), on(), off())
        assert tg.is_grad_enabled()
        with tg.no_grad():
            task = asyncio.create_task(on())  # a task starts with its creator's mode
        await task

    asyncio.run(main())
    assert sorted(log) == [False] * 9 + [True] * 3


def test_a_copied_context_carries_the_mode_and_keeps_its_own_changes(w):
    with tg.no_grad():
        context = contextvars.copy_context()
    assert context.run(tg.is_grad_enabled) is False
    context.run(tg.set_grad_enabled, True)
    assert context.run(tg.is_grad_enabled) is True
    context = contextvars.copy_context()
    context.run(tg.set_grad_enabled, False)
    assert tg.is_grad_enabled() and context.run(tg.is_grad_enabled) is False


def test_to_thread_carries_the_mode_and_results_come_back_differentiable(w):
    async def main():
        with tg.no_grad():
            assert not await asyncio.to_thread(recorded, w)
        y = await asyncio.to_thread(lambda: (w * w).sum())
        z = y * 2
        z.backward()

    asyncio.run(main())
    np.testing.assert_array_equal(w.grad.numpy(), [4.0, 8.0])


def test_threads_in_one_copied_context_record_at_the_same_time():
    """`asyncio.to_thread` shares the recorder: entries of several threads interleave on one tape, and every gradient is right."""

    def chain(seed):
        w = tg.tensor(np.random.default_rng(seed).standard_normal(4), requires_grad=True)
        y = w
        for _ in range(300):
            y = y * 0.99 + w * 0.01
        y.sum().backward()
        return w.grad.numpy()

    async def main():
        tg.zeros(1, requires_grad=True) * 1  # the context has a recorder
        return await asyncio.gather(*(asyncio.to_thread(chain, seed) for seed in range(6)))

    expected = 1.0
    for _ in range(300):
        expected = expected * 0.99 + 0.01
    for gradient in asyncio.run(main()):
        np.testing.assert_allclose(gradient, np.full(4, expected), rtol=1e-12)
