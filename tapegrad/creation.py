"""Making tensors: NumPy's constructors, with `requires_grad`; lengths as one tuple or, as in PyTorch, one by one.

Random tensors come from a NumPy Generator: pass one as `rng` (or a seed), or seed the thread's own by `manual_seed`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from .tensor import Tensor, _leaf


def _shape(lengths: tuple[Any, ...]) -> tuple[int, ...]:
    if len(lengths) == 1 and not isinstance(lengths[0], int | np.integer):
        lengths = tuple(lengths[0])
    return tuple(int(n) for n in lengths)


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
    """Entries of one value; its dtype unless one is given."""
    shape = shape if isinstance(shape, tuple | list) else (shape,)
    value = fill_value._data if isinstance(fill_value, Tensor) else fill_value
    return _leaf(np.full(_shape((shape,)), value, dtype), requires_grad)


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


def linspace(start: Any, stop: Any, num: int = 50, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """`num` evenly spaced values, both ends included; tracked if an end is.

    >>> import tapegrad as tg
    >>> tg.linspace(0.0, 1.0, 3)
    tensor([0. , 0.5, 1. ])
    """
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        weight = np.linspace(0.0, 1.0, num)
        return start * (1 - weight) + stop * weight
    return _leaf(np.linspace(start, stop, num, dtype=dtype), requires_grad)


def _like(function: Any, doc: str) -> Any:
    def make(x: Any, *args: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        raw = x._data if isinstance(x, Tensor) else x
        return _leaf(function(raw, *args, dtype=dtype), requires_grad)

    make.__name__ = make.__qualname__ = function.__name__
    make.__doc__ = doc
    return make


zeros_like = _like(np.zeros_like, "Zeros of the shape and dtype of x.")
ones_like = _like(np.ones_like, "Ones of the shape and dtype of x.")
empty_like = _like(np.empty_like, "Entries of arbitrary value, of the shape and dtype of x.")
full_like = _like(np.full_like, "Entries of one value, of the shape and dtype of x.")


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
    return _leaf(np.asarray(_rng(rng).integers(low, high, _shape((size,)) if size != () else ())), False)


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
