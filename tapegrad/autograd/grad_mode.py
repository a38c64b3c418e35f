"""PyTorch's `torch.autograd.grad_mode`: the modes of `tapegrad.core.mode` under their other name, and the switch for backward's threads.

A walk always runs in the thread that asked for it, so that switch changes nothing; it is kept and told, for programs that set it.
"""

from __future__ import annotations

from contextvars import ContextVar

from ..core.mode import enable_grad, inference_mode, no_grad, set_grad_enabled

_MULTITHREADING: ContextVar[bool] = ContextVar("tapegrad.multithreading", default=True)


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was last given in this thread or task; nothing depends on it.

    >>> import tapegrad as tg
    >>> tg.autograd.is_multithreading_enabled()
    True
    """
    return _MULTITHREADING.get()


class set_multithreading_enabled:
    """Allow backward several threads, or not: at once when called, until the block ends when used with `with`. It always uses one.

    >>> import tapegrad as tg
    >>> with tg.autograd.set_multithreading_enabled(False):
    ...     tg.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._before = _MULTITHREADING.get()
        _MULTITHREADING.set(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _MULTITHREADING.set(self._before)


__all__ = [
    "enable_grad", "inference_mode", "is_multithreading_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
