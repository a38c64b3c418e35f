"""`r_` and `c_` for tensors: NumPy's own build plain arrays.

What the strings, slices and ranks in the brackets mean stays NumPy's business: its object is given the *positions* of all entries in
the pieces' row after row, and where it puts them says where the entries go. So a join is one concatenation and one `take`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.joining import concatenate
from ..tensor import Tensor


class Concatenator:
    """`np.r_` or `np.c_`, of tensors too.

    Plain arrays and numbers make a plain array, as in NumPy; with a tensor among them the result is a tensor, differentiable by
    each of them. Errors are NumPy's.

    >>> import tapegrad as tg, tapegrad.numpy as tnp
    >>> t = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> tnp.r_[t, 0:2, 5.0]
    tensor([1., 2., 0., 1., 5.], grad_fn=<TakeBackward0>)
    >>> tnp.c_[t, t * t].shape
    (2, 2)
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(item, Tensor) for item in items):
            return self.plain[key]
        pieces: list[Any] = []
        dtypes: list[Any] = []
        places: list[Any] = []
        start = 0
        for item in items:
            if isinstance(item, str):
                places.append(item)
                continue
            if isinstance(item, slice):
                item = np.r_[item]
            shape = np.shape(item)
            piece = np.reshape(item, -1) if isinstance(item, Tensor) else np.ravel(item)
            places.append(np.arange(start, start + piece.size).reshape(shape))
            start += piece.size
            pieces.append(piece)
            # A Python number adapts to what it is joined with, as everywhere in NumPy.
            dtypes.append(item if type(item) in (int, float, complex) else piece.dtype)
        places = self.plain[tuple(places)]
        joined = concatenate([piece.astype(np.result_type(*dtypes)) for piece in pieces])
        return np.take(joined, places)

    def __len__(self) -> int:
        return 0


r_ = Concatenator(np.r_)
c_ = Concatenator(np.c_)
