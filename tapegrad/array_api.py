"""The Python array API standard, 2024.12: what `tensor.__array_namespace__()` returns.

NumPy's names and meaning are the standard's in most places, so most functions are those of `tapegrad` itself; written out
here are those whose arguments differ (`device`, `copy`, `descending`, `correction`). Every function takes and returns
tensors and is recorded like any op. `linalg` and `fft` are the extensions.

Left out, or other than in the standard: there is one device, "cpu"; a tracked tensor is refused by `__dlpack__`; dtypes are
NumPy's, with its promotion of mixed kinds where the standard leaves that open; lazy and unknown shapes do not occur.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import bool_ as bool  # noqa: F401  the standard's name
from numpy import finfo, iinfo, isdtype  # noqa: F401  likewise

import tapegrad as tg

from .core.tensor import Tensor

# fmt: off
_SAME = (
    "abs acos acosh add all any argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor broadcast_arrays "
    "broadcast_shapes broadcast_to can_cast ceil clip complex64 complex128 concat conj copysign cos cosh count_nonzero diff "
    "divide e equal exp expand_dims expm1 fft flip float32 float64 floor floor_divide greater greater_equal hypot imag inf int8 "
    "int16 int32 int64 isfinite isin isinf isnan less less_equal linalg log log1p log2 log10 logaddexp logical_and logical_not "
    "logical_or logical_xor matmul matrix_transpose max maximum min minimum moveaxis multiply nan negative newaxis nextafter "
    "nonzero not_equal permute_dims pi positive pow real reciprocal remainder repeat result_type roll round searchsorted sign "
    "signbit sin sinh sqrt square squeeze stack subtract take take_along_axis tan tanh tensordot tile tril triu trunc uint8 "
    "uint16 uint32 uint64 unique_all unique_counts unique_inverse unique_values unstack vecdot where"
).split()
# fmt: on
globals().update({name: getattr(tg, name) for name in _SAME})

__array_api_version__ = "2024.12"

bitwise_invert = np.bitwise_invert
bitwise_left_shift = np.bitwise_left_shift
bitwise_right_shift = np.bitwise_right_shift


def __array_namespace_info__() -> Any:
    """What this namespace can do, as NumPy says it of itself: one device, NumPy's default dtypes."""
    return np.__array_namespace_info__()


def _checked(device: Any) -> None:
    if device not in (None, "cpu"):
        raise ValueError(
            f"device {device!r} was asked for, but tensors live on the one device there is: pass 'cpu', or leave it out."
        )


# ---------------------------------------------------------------------------------------------------- creation


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    """A tensor of numbers, nested sequences, arrays or tensors; a tensor comes back as it is unless a copy is asked for.

    Raises ValueError if copy=False cannot be had.
    """
    _checked(device)
    shares = isinstance(obj, Tensor | np.ndarray) and (dtype is None or obj.dtype == dtype)
    if copy is False and not shares:
        raise ValueError("asarray was asked not to copy, but this object cannot be shared: leave out copy=False.")  # fmt: skip
    t = tg.as_tensor(obj, dtype)
    return t.clone() if copy and shares else t


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Evenly spaced numbers from start up to stop, or from 0 up to start."""
    _checked(device)
    return tg.arange(*((0, start) if stop is None else (start, stop)), step, dtype=dtype)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Entries of arbitrary value."""
    _checked(device)
    return tg.empty(shape, dtype=dtype)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Entries of arbitrary value, in the shape of x."""
    _checked(device)
    return tg.empty_like(x, dtype)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    _checked(device)
    return tg.as_tensor(np.eye(n_rows, n_cols, k, dtype or np.float64))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Tensor:
    """A tensor that shares memory with an object that has `__dlpack__`; not tracked."""
    _checked(device)
    return tg.as_tensor(np.from_dlpack(x, copy=copy))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Entries of one value."""
    _checked(device)
    return tg.full(shape, fill_value, dtype=dtype)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Entries of one value, in the shape of x."""
    _checked(device)
    return tg.full_like(x, fill_value, dtype)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: Any = True
) -> Tensor:  # fmt: skip
    """`num` evenly spaced numbers from start to stop."""
    _checked(device)
    if not endpoint:
        return tg.linspace(start, stop, num + 1, dtype=dtype)[:-1]
    return tg.linspace(start, stop, num, dtype=dtype)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates as arrays over a grid."""
    return list(tg.meshgrid(*arrays, indexing=indexing))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    _checked(device)
    return tg.ones(shape, dtype=dtype)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones in the shape of x."""
    _checked(device)
    return tg.ones_like(x, dtype)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    _checked(device)
    return tg.zeros(shape, dtype=dtype)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros in the shape of x."""
    _checked(device)
    return tg.zeros_like(x, dtype)


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Tensor:
    """x in another dtype."""
    _checked(device)
    return asarray(x).astype(dtype, copy)


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """x in another shape; one length may be -1."""
    return tg.reshape(x.clone() if copy else x, shape)


# -------------------------------------------------------------------------------------- sums, sorting, searching


def _in(x: Any, dtype: Any) -> Any:
    """x in a dtype; asked of results too, since NumPy widens the sums of small integers."""
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """Sum over axes."""
    return _in(tg.sum(_in(x, dtype), axis=axis, keepdims=keepdims), dtype)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """Product over axes."""
    return _in(tg.prod(_in(x, dtype), axis=axis, keepdims=keepdims), dtype)


def mean(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Mean over axes."""
    return tg.mean(x, axis=axis, keepdims=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """Standard deviation over axes."""
    return tg.std(x, axis=axis, ddof=correction, keepdims=keepdims)


def var(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """Variance over axes.

    >>> import tapegrad as tg
    >>> m = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tg.var(m, axis=0)
    tensor([1., 1.])
    """
    return tg.var(x, axis=axis, ddof=correction, keepdims=keepdims)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """Sums of the entries so far."""
    return _in(tg.cumulative_sum(_in(x, dtype), axis=axis, include_initial=include_initial), dtype)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """Products of the entries so far."""
    return _in(tg.cumulative_prod(_in(x, dtype), axis=axis, include_initial=include_initial), dtype)


def argsort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """Positions that put x in order; equal entries keep theirs."""
    if not descending:
        return tg.argsort(x, axis=axis, stable=True)
    reversed = tg.argsort(tg.flip(x.detach(), axis=axis), axis=axis, stable=True)
    return tg.flip(x.shape[axis] - 1 - reversed, axis=axis)


def sort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """Entries in order; equal ones keep theirs."""
    if not descending:
        return tg.sort(x, axis=axis)
    return tg.take_along_axis(x, argsort(x, axis=axis, descending=True), axis)
