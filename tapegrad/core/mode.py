"""Grad modes: whether ops in this context are recorded.

The mode *is* the context's recorder (see tape.py): the bound `extend` of the current tape, or one of the
two falsy marks below. So asking for the mode and finding the tape are one look-up for a generated op,
and a `ContextVar` makes both local to the thread and the asyncio task. Leaving a mode puts back what stood
there before, whatever was raised in between.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self, TypeVar

from ..errors import demand_bool
from .tape import ATTENDING, RECORDER, attended, current

F = TypeVar("F", bound=Callable[..., Any])


class Off(tuple[()]):
    """A mark that stands where a recorder would, and is false; a tuple, because its truth is asked in C."""

    __slots__ = ()


NO_GRAD = Off()
INFERENCE = Off()

_ENTERED: ContextVar[Any] = ContextVar("tapegrad.entered", default=None)
"""The modes in force, the innermost first: (mode, the recorder before it, the rest). So one instance can serve threads and tasks."""


def is_grad_enabled() -> bool:
    """Whether ops in this thread or task are recorded.

    >>> import tapegrad as tg
    >>> with tg.no_grad():
    ...     tg.is_grad_enabled()
    False
    """
    for watcher in WATCHERS:
        watcher()
    return not isinstance(RECORDER.get(), Off)


WATCHERS: list[Callable[[], None]] = []
"""Called when somebody asks for the mode: a program that is being traced may depend on the answer."""


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is in force in this thread or task.

    >>> import tapegrad as tg
    >>> tg.is_inference_mode_enabled()
    False
    """
    for watcher in WATCHERS:
        watcher()
    return RECORDER.get() is INFERENCE


def attend(lookers: Any, rewrite: Any) -> None:
    """From now on let these look at each entry that is recorded in this context, and `rewrite` replace it.

    The recorders that modes in force will put back are told too, so that this lasts until it is called again.
    """
    ATTENDING.set((tuple(lookers), rewrite))
    RECORDER.set(attended(RECORDER.get()))
    modes = []
    entered = _ENTERED.get()
    while entered is not None:
        modes.append((entered[0], attended(entered[1])))
        entered = entered[2]
    for mode, before in reversed(modes):
        entered = (mode, before, entered)
    _ENTERED.set(entered)


class _Mode:
    """Context manager and decorator in one; an instance may be entered again, also while it is active."""

    def __new__(cls, function: Any = None, **settings: Any) -> Self:
        """`@no_grad` works like `@no_grad()`, though checkers know only the latter."""
        return cls()(function) if callable(function) else super().__new__(cls)

    def _recorder(self) -> Any:
        raise NotImplementedError

    def __enter__(self) -> _Mode:
        before, entered = RECORDER.get(), _ENTERED.get()
        try:
            self._enter(before)
        except BaseException:  # Ctrl-C, most likely: no block begins, and nobody will leave it
            RECORDER.set(before)
            _ENTERED.set(entered)
            raise
        return self

    def _enter(self, before: Any) -> None:
        _ENTERED.set((self, before, _ENTERED.get()))
        RECORDER.set(self._recorder())

    def __exit__(self, *exc: object) -> None:
        entered = None
        try:
            entered = _ENTERED.get()
            self._leave(entered)
        except BaseException:  # Ctrl-C on the way out
            if entered is None or _ENTERED.get() is entered:
                self._leave(_ENTERED.get())
            raise

    def _leave(self, entered: Any) -> None:
        """Take this mode off the stack of modes, also where a suspended generator leaves out of turn."""
        # Nearly always the first: only a generator suspended inside a `with` can leave out of turn.
        inner = []
        while entered is not None and entered[0] is not self:
            inner.append(entered[:2])
            entered = entered[2]
        if entered is None:  # entered in another thread or task, whose mode this one never had
            return
        _, before, entered = entered
        if inner:
            inner[-1] = (inner[-1][0], before)  # the next one now stands on what this one stood on
        else:
            RECORDER.set(before)
        for mode, before in reversed(inner):
            entered = (mode, before, entered)
        _ENTERED.set(entered)

    def _fresh(self) -> _Mode:
        """A mode for one call of a decorated function, so that recursion and threads do not meet."""
        return type(self)()

    def __call__(self, function: F) -> F:
        """Decorate a function, generator, coroutine or asynchronous generator."""
        if inspect.isclass(function):
            raise TypeError(
                f"{self!r} was asked to decorate the class {function.__name__}, but a mode lasts for a "
                "call. Decorate the methods it is meant for, for example __init__."
            )
        fresh = self._fresh
        if inspect.isasyncgenfunction(function):
            wrapper = _around_async_generator(function, fresh)
        elif inspect.iscoroutinefunction(function):

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with fresh():
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):
            wrapper = _around_generator(function, fresh)
        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with fresh():
                    return function(*args, **kwargs)

        return functools.wraps(function)(wrapper)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _around_generator(
    function: Callable[..., Any], fresh: Callable[[], _Mode]
) -> Callable[..., Any]:
    """The generator in the mode while it runs, its consumer in the consumer's own mode."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        """A generator each of whose resumptions runs in a fresh mode."""
        generator = function(*args, **kwargs)
        resume, sent = generator.send, None
        while True:
            try:
                with fresh():
                    item = resume(sent)
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
                resume = generator.send
            except GeneratorExit:
                with fresh():
                    generator.close()
                raise
            except BaseException as error:
                resume, sent = generator.throw, error

    return wrapper


def _around_async_generator(
    function: Callable[..., Any], fresh: Callable[[], _Mode]
) -> Callable[..., Any]:
    """The wrapper of an async generator, each of whose resumptions runs in a fresh mode."""

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        """As `_around_generator`, for async generators."""
        generator = function(*args, **kwargs)
        resume, sent = generator.asend, None
        while True:
            try:
                with fresh():
                    item = await resume(sent)
            except StopAsyncIteration:
                return
            try:
                sent = yield item
                resume = generator.asend
            except GeneratorExit:
                with fresh():
                    await generator.aclose()
                raise
            except BaseException as error:
                resume, sent = generator.athrow, error

    return wrapper


class no_grad(_Mode):
    """Nothing is recorded: results of ops do not require grad.

    >>> import tapegrad as tg
    >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> with tg.no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """

    def _recorder(self) -> Any:
        # Inside inference_mode the stricter promise stays in force.
        return INFERENCE if RECORDER.get() is INFERENCE else NO_GRAD


class enable_grad(_Mode):
    """Ops are recorded again, inside a `no_grad`.

    >>> import tapegrad as tg
    >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> with tg.no_grad(), tg.enable_grad():
    ...     y = w * 2
    >>> y.requires_grad
    True
    """

    def _recorder(self) -> Any:
        return INFERENCE if RECORDER.get() is INFERENCE else attended(current().code.extend)


class inference_mode(_Mode):
    """Like `no_grad`, and the results may never enter a recorded computation later.

    Tensors made in it, and results of ops on tracked or marked tensors, are marked (`is_inference()`); using one where a gradient
    would need its value raises. `mode=False` switches recording back on.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> with tg.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    def __init__(self, mode: bool = True) -> None:
        demand_bool(mode, "mode")
        self.mode = bool(mode)

    def _fresh(self) -> _Mode:
        return inference_mode(self.mode)

    def _recorder(self) -> Any:
        return INFERENCE if self.mode else attended(current().code.extend)


class set_grad_enabled(_Mode):
    """Switch recording on or off: at once when called, until the block ends when used with `with`.

    >>> import tapegrad as tg
    >>> with tg.set_grad_enabled(False):
    ...     tg.is_grad_enabled()
    False
    >>> tg.is_grad_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        demand_bool(mode, "mode")
        self.mode = bool(mode)
        self._switched = True
        self._before = RECORDER.get()
        RECORDER.set(self._recorder())

    def _recorder(self) -> Any:
        return self._fresh()._recorder()

    def _fresh(self) -> _Mode:
        return recording(self.mode)

    def __enter__(self) -> _Mode:
        before, entered = self._before if self._switched else RECORDER.get(), _ENTERED.get()
        try:
            self._enter(before)
            self._switched = False
        except BaseException:  # Ctrl-C, as in the other modes
            RECORDER.set(before)
            _ENTERED.set(entered)
            raise
        return self

    def __call__(self, function: F) -> F:
        # PyTorch too undoes the switch made by the constructor when it is used as a decorator.
        if self._switched:
            self._switched = False
            RECORDER.set(self._before)
        return super().__call__(function)


def recording(mode: bool) -> _Mode:
    """A block that records, or does not. What `set_grad_enabled` switches before its block begins, an interrupt there would leave."""
    return enable_grad() if mode else no_grad()


__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip
