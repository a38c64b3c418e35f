"""`r_` and `c_` for tensors: NumPy's own build plain arrays.

What the strings, slices and ranks in the brackets mean stays NumPy's business: its object is handed the positions of entries in
place of the entries (`moved`), and where it puts them says where the entries go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops.composing import moved


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
        """As NumPy's, with tensors among the items."""
        items = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(item, Tensor) for item in items):
            return self.plain[key]
        words = [item if isinstance(item, str) else None for item in items]
        operands = [
            np.r_[item] if isinstance(item, slice) else item
            for item in items
            if not isinstance(item, str)
        ]

        def joined(*arrays: Any) -> Any:
            rest = iter(arrays)
            return self.plain[tuple(next(rest) if word is None else word for word in words)]

        return moved(joined, *operands)

    def __len__(self) -> int:
        return 0


r_ = Concatenator(np.r_)
c_ = Concatenator(np.c_)
