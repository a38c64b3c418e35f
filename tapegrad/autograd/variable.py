"""`Variable`, PyTorch's older name for a tensor that may require grad: what it makes are tensors, and all tensors are its instances."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor, tensor


class _Meta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)

    def __call__(cls, data: Any = None, requires_grad: bool = False) -> Any:
        if data is None:
            data = tensor([])
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Variable data has to be a tensor, but got {type(data).__name__}: make one with tg.tensor(data, requires_grad=True)."
            )
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_Meta):
    """`Variable(tensor, requires_grad=False)`: a leaf that shares the tensor's memory. Write `tg.tensor(data, requires_grad=True)`.

    >>> import tapegrad as tg
    >>> x = tg.autograd.Variable(tg.ones(2), requires_grad=True)
    >>> x, isinstance(x, tg.autograd.Variable)
    (tensor([1., 1.], requires_grad=True), True)
    """


__all__ = ["Variable"]
