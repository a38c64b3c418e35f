"""Making tensors: NumPy's constructors, with `requires_grad`; lengths as one tuple or, as in PyTorch, one by one.

Random tensors come from a NumPy Generator: pass one as `rng` (or a seed), or seed the thread's own by `manual_seed`.
"""

from __future__ import annotations

import operator
import threading
from typing import Any

import numpy as np

from .ops.shaping import broadcast_to, copy
from .primitive import FUNCTIONS
from .tensor import Tensor, _leaf


def _shape(lengths: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        if len(lengths) == 1 and np.ndim(lengths[0]):
            lengths = tuple(lengths[0])
        return tuple(operator.index(n) for n in lengths)
    except TypeError:
        raise TypeError(
            f"a shape was given as {', '.join(map(repr, lengths))}, but it is made of integers: tg.zeros(2, 3) or tg.zeros((2, 3))."
        ) from None


def zeros(*shape: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros: `tg.zeros(2, 3)` or `tg.zeros((2, 3))`; float64 unless a dtype is given."""
    return _leaf(np.zeros(_shape(shape), dtype or np.float64), requires_grad)


def ones(*shape: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones: `tg.ones(2, 3)` or `tg.ones((2, 3))`; float64 unless a dtype is given."""
    return _leaf(np.ones(_shape(shape), dtype or np.float64), requires_grad)


def empty(*shape: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Entries of arbitrary value, to be overwritten."""
    return _leaf(np.empty(_shape(shape), dtype or np.float64), requires_grad)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Entries of one value, in its dtype unless one is given; tracked if the value is."""
    shape = _shape(tuple(shape) if isinstance(shape, tuple | list) else (shape,))
    if isinstance(fill_value, Tensor):
        filled = copy(broadcast_to(fill_value, shape))
        filled = filled if dtype is None else filled.astype(dtype)
        return filled.requires_grad_() if requires_grad else filled
    return _leaf(np.full(shape, fill_value, dtype), requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    return _leaf(np.eye(n, m, dtype=dtype or np.float64), requires_grad)


def arange(*bounds: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Evenly spaced values from start up to, but not including, stop, as NumPy's arange.

    >>> import tapegrad as tg
    >>> tg.arange(3)
    tensor([0, 1, 2])
    """
    return _leaf(np.arange(*bounds, dtype=dtype), requires_grad)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    *,
    steps: int | None = None,
    dtype: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`num` evenly spaced values (`steps`, in PyTorch's words), both ends included; tracked if an end is.

    >>> import tapegrad as tg
    >>> tg.linspace(0.0, 1.0, 3)
    tensor([0. , 0.5, 1. ])
    """
    num = num if steps is None else steps
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        weight = np.linspace(0.0, 1.0, num)
        return start * (1 - weight) + stop * weight
    return _leaf(np.linspace(start, stop, num, dtype=dtype), requires_grad)


def _raw(x: Any) -> Any:
    return x._value if isinstance(x, Tensor) else np.asarray(x)


def _like(function: Any, doc: str) -> Any:
    def make(x: Any, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
        return _leaf(function(_raw(x), dtype=dtype), requires_grad)

    make.__name__ = make.__qualname__ = function.__name__
    make.__doc__ = doc
    return make


zeros_like = _like(np.zeros_like, "Zeros of the shape and dtype of x.")
ones_like = _like(np.ones_like, "Ones of the shape and dtype of x.")
empty_like = _like(np.empty_like, "Entries of arbitrary value, of the shape and dtype of x.")


def full_like(x: Any, fill_value: Any, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """Entries of one value, of the shape and dtype of x; tracked if the value is."""
    if not isinstance(fill_value, Tensor):  # in memory as x is
        return _leaf(np.full_like(_raw(x), fill_value, dtype=dtype), requires_grad)
    return full(np.shape(x), fill_value, dtype=dtype or _raw(x).dtype, requires_grad=requires_grad)


FUNCTIONS[np.full_like] = full_like


class _Generators(threading.local):
    def __init__(self) -> None:
        self.rng = np.random.default_rng()


_generators = _Generators()


def manual_seed(seed: int) -> np.random.Generator:
    """Seed this thread's generator of random tensors; returns it."""
    _generators.rng = np.random.default_rng(seed)
    return _generators.rng


def _rng(rng: Any) -> np.random.Generator:
    return _generators.rng if rng is None else np.random.default_rng(rng)


def randn(*shape: Any, rng: Any = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Standard normal samples; `rng` is a NumPy Generator or a seed.

    >>> import tapegrad as tg
    >>> tg.randn(2, 3, rng=0).shape
    (2, 3)
    """
    return _leaf(np.asarray(_rng(rng).standard_normal(_shape(shape)), dtype), requires_grad)


def rand(*shape: Any, rng: Any = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Samples uniform on [0, 1); `rng` is a NumPy Generator or a seed."""
    return _leaf(np.asarray(_rng(rng).random(_shape(shape)), dtype), requires_grad)


def randint(low: int, high: int | None = None, size: Any = (), *, rng: Any = None) -> Tensor:
    """Integers uniform on [low, high), or [0, low) without high."""
    return _leaf(
        np.asarray(_rng(rng).integers(low, high, _shape((size,)) if size != () else ())), False
    )


__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "manual_seed",
    "ones",
    "ones_like",
    "rand",
    "randint",
    "randn",
    "zeros",
    "zeros_like",
]
