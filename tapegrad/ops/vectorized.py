"""`np.vectorize` of tensors: the function is called entry by entry, and its results are joined.

NumPy converts the arguments to arrays of objects, which tensors refuse. Here the entries of a tensor stay tracked. As in NumPy, the
dtype of all results is that of the first one, unless `otypes` says another; with `signature=` the function gets the last axes whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .composing import holds_tensor
from .joining import array as joined
from .shaping import converted


def _axes(signature: str) -> list[int]:
    """How many axes of each argument a signature such as `"(n,m),(m)->(n)"` gives to the function."""
    arguments = re.findall(r"\(([^)]*)\)", signature.partition("->")[0])
    return [len([name for name in part.split(",") if name.strip()]) for part in arguments]


def _entries(x: Any, axes: int, shape: tuple[int, ...], whole: bool) -> list[Any]:
    """What the calls get of an argument, in the order of the entries of `shape`: parts with so many axes, or numbers."""
    array = joined(x) if holds_tensor(x) else np.asarray(x)
    if not (whole or isinstance(array, Tensor)):
        array = array.astype(object)  # Python's numbers, as NumPy gives them
    own = array.shape[array.ndim - axes :]
    spread = np.broadcast_to(array, shape + own)
    return [spread[index] for index in np.ndindex(*shape)]


def _array_of(results: Sequence[Any], shape: tuple[int, ...], dtype: Any) -> Any:
    """The results of all calls as one array, in a dtype if one is given."""
    if not results:
        return np.zeros(shape, dtype)
    made = joined([*results])
    made = made if dtype is None else converted(made, dtype, None, None)
    return np.reshape(made, shape + made.shape[1:])


def _dtype_of(result: Any) -> np.dtype[Any]:
    return result.dtype if isinstance(result, Tensor) else np.asarray(result).dtype


def spread(
    of: np.vectorize,
    f: Callable[..., Any],
    args: Sequence[Any],
    words: dict[str, Any],
    first: bool = True,
) -> Any:
    """What an object of `np.vectorize` gives of arguments that hold tensors, where `f` runs for its function.

    Without `first` the dtype of a result is that of all of its entries together, not that of the first one.
    """
    given: dict[Any, Any] = {**dict(enumerate(args)), **words}
    mapped = {
        k: joined(v) if holds_tensor(v) else v for k, v in given.items() if k not in of.excluded
    }
    signature: str | None = of.signature
    axes = [0] * len(mapped) if signature is None else _axes(signature)
    pairs = list(zip(mapped, axes, strict=True))
    shape = np.broadcast_shapes(*(np.shape(mapped[k])[: -n or None] for k, n in pairs))
    parts = {k: _entries(mapped[k], n, shape, signature is not None) for k, n in pairs}
    results = []
    for n in range(int(np.prod(shape))):
        now = given | {key: entries[n] for key, entries in parts.items()}
        results.append(f(*[now.pop(k) for k in range(len(args))], **now))
    dtypes: Sequence[Any] = [*(of.otypes or ())]
    if not (results or dtypes):
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    several = type(results[0]) is tuple if results else len(dtypes) > 1
    if not dtypes:
        heads = results[0] if several else results[:1]
        dtypes = [_dtype_of(head) if first else None for head in heads]
    if not several:
        return _array_of(results, shape, dtypes[0])
    return tuple(_array_of([r[k] for r in results], shape, dtype) for k, dtype in enumerate(dtypes))


__all__ = ["spread"]
