"""Forward mode as PyTorch has it: a tangent put on a tensor travels with whatever is computed from it.

    with fwAD.dual_level():
        dual = fwAD.make_dual(x, tangent)
        value, derivative = fwAD.unpack_dual(f(dual))

How tangents travel is told in `dual.py`. They compose with the reverse mode: a tangent can be differentiated if what it was
made from can, and a gradient of something computed from dual tensors has a tangent (forward over reverse: a
Hessian-vector product).

Invariant: at most one level is open in a thread or task; PyTorch has no nested ones either (`tg.jvp` nests).
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from ..core.dual import LEVEL, Level, forget, tangent_of, with_tangent, without_tangent
from ..core.tensor import Tensor
from ..ops.shaping import alias

_ONLY = 0  # the number of the one level


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns: the value, and its tangent or None.

    >>> import tapegrad as tg
    >>> with tg.autograd.forward_ad.dual_level():
    ...     x = tg.autograd.forward_ad.make_dual(tg.tensor(2.0), tg.tensor(1.0))
    ...     print(tg.autograd.forward_ad.unpack_dual(x * x).tangent)
    tensor(4.)
    """

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open a forward level, which dual tensors live in, and return its number, 0. Raises RuntimeError if one is open.

    >>> import tapegrad as tg
    >>> fwAD = tg.autograd.forward_ad
    >>> level = fwAD.enter_dual_level()
    >>> fwAD.make_dual(tg.tensor(3.0), tg.tensor(1.0)) ** 2
    tensor(9., tangent=tensor(6.))
    >>> fwAD.exit_dual_level(level=level)
    """
    if LEVEL.get() is not None:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment: a dual level was to be entered inside another. Use "
            "tg.jvp, which nests, for higher derivatives."
        )
    LEVEL.set(Level())
    return _ONLY


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the forward level: tangents are gone. Raises RuntimeError if none is open, or another is named.

    >>> import tapegrad as tg
    >>> level = tg.autograd.forward_ad.enter_dual_level()
    >>> tg.autograd.forward_ad.exit_dual_level(level=level)
    """
    opened = LEVEL.get()
    if opened is None:
        raise RuntimeError(
            "exit_dual_level was called, but no dual level is open: enter_dual_level() comes first."
        )
    if level not in (None, _ONLY):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported: "
            f"level {level} was named, level {_ONLY} is open."
        )
    LEVEL.set(None)
    forget(opened)


class dual_level(contextlib.ContextDecorator):
    """Context in which dual tensors live; tangents are gone behind it. Also a decorator of functions.

    >>> import tapegrad as tg
    >>> fwAD = tg.autograd.forward_ad
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 0.0]))
    ...     y = fwAD.unpack_dual((x * x).sum())
    >>> y.tangent
    tensor(2.)
    """

    def __enter__(self) -> int:
        before = LEVEL.get()
        try:
            return enter_dual_level()
        except BaseException:  # Ctrl-C, most likely: no block begins, and nobody will leave it
            LEVEL.set(before)
            raise

    def __exit__(self, *exc: object) -> None:
        opened = None
        try:
            opened = LEVEL.get()
            exit_dual_level()
        except BaseException:  # Ctrl-C on the way out
            if opened is None or LEVEL.get() is opened:
                LEVEL.set(None)
            raise


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor that shares memory with `tensor` and carries `tangent`, which has its shape. Differentiable by both.

    Raises RuntimeError outside a level, for a tensor that has a tangent already, and where shapes differ; ValueError for integers.

    >>> import tapegrad as tg
    >>> fwAD = tg.autograd.forward_ad
    >>> with fwAD.dual_level():
    ...     fwAD.make_dual(tg.tensor(2.0), tg.tensor(1.0)) * 3
    tensor(6., tangent=tensor(3.))
    """
    opened = _opened(level, "make_dual")
    if opened is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"Expected {name} to be a tensor, but got {type(value).__name__}: make it with tg.tensor."
            )
        if value.dtype.kind not in "fc":
            raise ValueError(
                f"Expected {name} to be floating point or complex, but got: {value.dtype}. Convert it first: t.astype(tg.float64)."
            )
    if tangent_of(tensor) is not None:
        raise RuntimeError(
            f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level {_ONLY} is not "
            "supported. Unpack it first, or use tg.jvp, which nests."
        )
    if tangent_of(tangent) is not None and tangent._get("dual")[0] is opened:
        raise RuntimeError(
            f"Setting a forward gradient that itself has a forward gradient at the same level {_ONLY} is not supported. Unpack it "
            "first, or use tg.jvp, which nests."
        )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
            f"Tensor is of size {list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )
    if tangent.dtype.kind == "c" and tensor.dtype.kind != "c":
        raise ValueError(
            f"make_dual was given a complex tangent for a value of dtype {tensor.dtype}, which is real: take its real part."
        )
    if tangent.dtype != tensor.dtype:
        tangent = tangent.astype(tensor.dtype)
    return with_tangent(_alias(tensor), opened, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Value and tangent of a dual tensor, both without a tangent of their own; the tangent is None where there is none.

    >>> import tapegrad as tg
    >>> fwAD = tg.autograd.forward_ad
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(tg.tensor(2.0), tg.tensor(1.0))
    ...     fwAD.unpack_dual(x**3)
    UnpackedDualTensor(primal=tensor(8.), tangent=tensor(12.))
    """
    if _opened(level, "unpack_dual") is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_alias(tensor), tangent_of(tensor))


def _opened(level: int | None, name: str) -> Level | None:
    if level not in (None, _ONLY):
        raise RuntimeError(
            f"Invalid level given to {name}: {level!r} was asked, but the only level is {_ONLY}. Leave level out."
        )
    return LEVEL.get()


def _alias(tensor: Tensor) -> Tensor:
    """The same value and memory in a tensor of its own, a view, without a tangent."""
    tensor._array()
    return without_tangent(alias(tensor))


__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
