"""Making tensors: NumPy's constructors, with `requires_grad`; lengths as one tuple or, as in PyTorch, one by one.

Random tensors come from a NumPy Generator: pass one as `rng` (or a seed), or seed the thread's own by `manual_seed`.
"""

from __future__ import annotations

import operator
import threading
from typing import Any

import numpy as np

from ..core.primitive import FUNCTIONS
from ..core.tensor import Tensor, _leaf
from ..ops.shaping import broadcast_to, copy


def _shape(lengths: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        if len(lengths) == 1 and np.ndim(lengths[0]):
            lengths = tuple(lengths[0])
        return tuple(operator.index(n) for n in lengths)
    except TypeError:
        raise TypeError(
            f"a shape was given as {', '.join(map(repr, lengths))}, but it is made of integers: tg.zeros(2, 3) or tg.zeros((2, 3))."
        ) from None


def _made(of: Any, given: tuple[Any, ...], dtype: Any, settings: dict[str, Any]) -> Any:
    """NumPy's array of the lengths that are given one by one or as a tuple, followed by a dtype and an order, as NumPy has them."""
    given = (settings.pop("shape"), *given) if "shape" in settings else given
    n = next(
        (i for i, x in enumerate(given) if i and isinstance(x, type | str | np.dtype)), len(given)
    )
    lengths, rest = given[:n], given[n:]
    if rest and dtype is None:
        dtype, rest = rest[0], rest[1:]
    if rest:
        settings["order"] = rest[0]
    return of(_shape(lengths), dtype or np.float64, **settings)


def zeros(*shape: Any, dtype: Any = None, requires_grad: bool = False, **settings: Any) -> Tensor:
    """Zeros: `tg.zeros(2, 3)` or `tg.zeros((2, 3))`, or as NumPy's `zeros(shape, dtype, order)`; float64 unless a dtype is given.

    >>> import tapegrad as tg
    >>> tg.zeros(2)
    tensor([0., 0.])
    """
    return _leaf(_made(np.zeros, shape, dtype, settings), requires_grad)


def ones(*shape: Any, dtype: Any = None, requires_grad: bool = False, **settings: Any) -> Tensor:
    """Ones: `tg.ones(2, 3)` or `tg.ones((2, 3))`, or as NumPy's `ones(shape, dtype, order)`; float64 unless a dtype is given.

    >>> import tapegrad as tg
    >>> tg.ones(2)
    tensor([1., 1.])
    """
    return _leaf(_made(np.ones, shape, dtype, settings), requires_grad)


def empty(*shape: Any, dtype: Any = None, requires_grad: bool = False, **settings: Any) -> Tensor:
    """Entries of arbitrary value, to be overwritten; lengths, dtype and order as those of `zeros`.

    >>> import tapegrad as tg
    >>> tg.empty((2, 3)).shape
    (2, 3)
    """
    return _leaf(_made(np.empty, shape, dtype, settings), requires_grad)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """Entries of one value, in its dtype unless one is given; tracked if the value is.

    >>> import tapegrad as tg
    >>> tg.full((2,), 3.0)
    tensor([3., 3.])
    """
    shape = _shape(tuple(shape) if isinstance(shape, tuple | list) else (shape,))
    if isinstance(fill_value, Tensor):
        filled = copy(broadcast_to(fill_value, shape))
        filled = filled if dtype is None else filled.astype(dtype)
        return filled if requires_grad is False else filled.requires_grad_(requires_grad)
    return _leaf(np.full(shape, fill_value, dtype), requires_grad)


def eye(
    n: int, m: int | None = None, k: int = 0, dtype: Any = None, *, requires_grad: bool = False
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import tapegrad as tg
    >>> tg.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    return _leaf(np.eye(n, m, k, dtype=dtype or np.float64), requires_grad)


def identity(n: int, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """The square matrix of n rows with ones on the diagonal.

    >>> import tapegrad as tg
    >>> tg.identity(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return eye(n, dtype=dtype, requires_grad=requires_grad)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones on and below the k-th diagonal, zeros above.

    >>> import tapegrad as tg
    >>> tg.tri(2)
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _leaf(np.tri(n, m, k, dtype=dtype or np.float64), False)


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
    **settings: Any,
) -> Any:
    """`num` evenly spaced values (`steps`, in PyTorch's words), both ends included; tracked if an end is.

    >>> import tapegrad as tg
    >>> tg.linspace(0.0, 1.0, 3)
    tensor([0. , 0.5, 1. ])
    """
    num = num if steps is None else steps
    if settings:  # NumPy's endpoint, retstep and axis
        if isinstance(start, Tensor) or isinstance(stop, Tensor):
            return np.linspace(start, stop, num, dtype=dtype, **settings)  # type: ignore[arg-type]
        found = np.linspace(start, stop, num, dtype=dtype, **settings)
        if isinstance(found, tuple):
            return _leaf(found[0], requires_grad), found[1]
        return _leaf(found, requires_grad)
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        weight = np.linspace(0.0, 1.0, num)
        return start * (1 - weight) + stop * weight
    return _leaf(np.linspace(start, stop, num, dtype=dtype), requires_grad)


def _raw(x: Any) -> Any:
    return x._value if isinstance(x, Tensor) else np.asarray(x)


def _like(function: Any, doc: str) -> Any:
    def make(x: Any, dtype: Any = None, *, requires_grad: bool = False, **settings: Any) -> Tensor:
        return _leaf(function(_raw(x), dtype=dtype, **settings), requires_grad)

    make.__name__ = make.__qualname__ = function.__name__
    make.__doc__ = doc
    return make


zeros_like = _like(
    np.zeros_like,
    "Zeros of the shape and dtype of x.\n\n"
    ">>> import numpy as np, tapegrad as tg\n>>> tg.zeros_like(np.ones(2), dtype=tg.float32)\ntensor([0., 0.], dtype=float32)\n",
)
ones_like = _like(
    np.ones_like,
    "Ones of the shape and dtype of x.\n\n"
    ">>> import numpy as np, tapegrad as tg\n>>> tg.ones_like(np.zeros(2), requires_grad=True)\ntensor([1., 1.], requires_grad=True)\n",
)
empty_like = _like(
    np.empty_like,
    "Entries of arbitrary value, of the shape and dtype of x.\n\n"
    ">>> import tapegrad as tg\n>>> tg.empty_like(tg.ones((2, 3))).shape\n(2, 3)\n",
)


def full_like(x: Any, fill_value: Any, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """Entries of one value, of the shape and dtype of x; tracked if the value is.

    >>> import tapegrad as tg
    >>> tg.full_like(tg.zeros(2), 3.0)
    tensor([3., 3.])
    """
    if not isinstance(fill_value, Tensor):  # in memory as x is
        return _leaf(np.full_like(_raw(x), fill_value, dtype=dtype), requires_grad)
    return full(np.shape(x), fill_value, dtype=dtype or _raw(x).dtype, requires_grad=requires_grad)


FUNCTIONS[np.full_like] = full_like


class _Generators(threading.local):
    def __init__(self) -> None:
        self.rng = np.random.default_rng()


_generators = _Generators()


def manual_seed(seed: int) -> np.random.Generator:
    """Seed this thread's generator of random tensors; returns it.

    >>> import tapegrad as tg
    >>> _ = tg.manual_seed(0)
    >>> first = tg.rand(3)
    >>> _ = tg.manual_seed(0)
    >>> bool((tg.rand(3) == first).all())
    True
    """
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
    """Samples uniform on [0, 1), of a shape; `rng` is a NumPy Generator or a seed.

    >>> import tapegrad as tg
    >>> tg.rand(2, 3, rng=0).shape
    (2, 3)
    """
    return _leaf(np.asarray(_rng(rng).random(_shape(shape)), dtype), requires_grad)


def randint(low: int, high: int | None = None, size: Any = (), *, rng: Any = None) -> Tensor:
    """Integers uniform on [low, high), or [0, low) without high; one number where no size is given.

    >>> import tapegrad as tg
    >>> t = tg.randint(0, 10, (2, 3), rng=0)
    >>> t.shape, t.dtype.kind
    ((2, 3), 'i')
    """
    return _leaf(
        np.asarray(_rng(rng).integers(low, high, _shape((size,)) if size != () else ())), False
    )


__all__ = [
    "arange", "empty", "empty_like", "eye", "full", "full_like", "identity", "linspace", "manual_seed", "ones", "ones_like",
    "rand", "randint", "randn", "tri", "zeros", "zeros_like",
]  # fmt: skip
