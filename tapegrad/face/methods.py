"""PyTorch's methods that NumPy's arrays have not: `t.mul(2)`, `t.narrow(0, 1, 2)`, `t.double()`.

Each is written in ops that have rules, so there is no derivative here. The out-of-place form of an in-place method is the same
function (`mutators.FUNCTIONS`), or the in-place one on a copy (`mutators.STORES`): a meaning is written once.

Invariant: a name that NumPy's arrays have keeps NumPy's meaning, and is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core.signatures import show
from ..core.storage import StandIn, packed
from ..core.tensor import Tensor
from ..ops.shaping import converted
from . import creation
from .mutators import FUNCTIONS, STORES, by_its_name, places, plain, special


def _narrow(t: Tensor, dim: int, start: int, length: int) -> Any:
    dim = normalize_axis_index(dim, t.ndim)
    rows = t.shape[dim]
    first = start + rows if start < 0 else start
    if not 0 <= first <= rows or length < 0 or first + length > rows:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({rows}): narrow takes rows that exist."
        )
    return t[(slice(None),) * dim + (slice(first, first + length),)]


def _chunk(t: Tensor, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    rows = t.shape[normalize_axis_index(dim, t.ndim)]
    if chunks < 1:
        raise RuntimeError(
            f"chunk was asked for {chunks} parts, but there is at least one: write a number from 1 on."
        )
    each = max(-(-rows // chunks), 1)
    starts = range(0, max(rows, 1), each)
    return tuple(_narrow(t, dim, start, min(each, rows - start)) for start in starts)


def _select(t: Tensor, dim: int, index: Any) -> Any:
    return t[(slice(None),) * normalize_axis_index(dim, t.ndim) + (index, ...)]


def _unflatten(t: Tensor, dim: int, sizes: Any) -> Any:
    dim = normalize_axis_index(dim, t.ndim)
    return t.reshape((*t.shape[:dim], *sizes, *t.shape[dim + 1 :]))


def _norm(t: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    p = 2 if p == "fro" else p
    if dim is None and not keepdim:
        return np.linalg.norm(t.reshape(-1), p)
    return np.linalg.vector_norm(t, axis=dim, ord=p, keepdims=keepdim)


def _to(t: Tensor, *to: Any, **settings: Any) -> Any:
    """The dtype among the arguments; devices other than the one there is are refused."""
    dtype = settings.pop("dtype", None)
    for x in (*to, settings.pop("device", None)):
        if isinstance(x, Tensor):
            dtype = x.dtype
        elif isinstance(x, str):
            t.to_device(x)
        elif x is not None and not isinstance(x, bool):
            dtype = x
    return t if dtype is None else t.astype(dtype)


def like(other: Any) -> Any:
    """What a tensor is to be made like: it has a shape and a dtype."""
    if not isinstance(other, Tensor | np.ndarray | np.generic):
        raise TypeError(
            f"a tensor to be made like was asked for, but {type(other).__name__} was given: pass a tensor, or use reshape, expand or "
            "astype."
        )
    return other


def _new(make: Callable[..., Any]) -> Callable[..., Any]:
    def new(t: Tensor, *size: Any, dtype: Any = None, requires_grad: bool = False) -> Any:
        return make(*size, dtype=dtype or t.dtype, requires_grad=requires_grad)

    return new


def _is_contiguous(t: Tensor) -> bool:
    if isinstance(t._value, StandIn):
        t._value.layout_told()
    return packed(t._value)


_METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "bmm": (lambda t, mat2: t @ mat2, "Products of the matrices of two stacks."),
    "chunk": (_chunk, "The rows along an axis in `chunks` views of equal length (the last may be shorter)."),
    "contiguous": (lambda t: converted(t, order="C"), "The tensor, or a copy whose memory is in order."),
    "cpu": (lambda t: t, "The tensor itself: it lives on the one device there is."),
    "cdouble": (lambda t: t.astype(np.complex128), "The entries as complex128."),
    "cfloat": (lambda t: t.astype(np.complex64), "The entries as complex64."),
    "double": (lambda t: t.astype(np.float64), "The entries as float64."),
    "float": (lambda t: t.astype(np.float32), "The entries as float32."),
    "half": (lambda t: t.astype(np.float16), "The entries as float16."),
    "long": (lambda t: t.astype(np.int64), "The entries as int64; not tracked."),
    "int": (lambda t: t.astype(np.int32), "The entries as int32; not tracked."),
    "bool": (lambda t: t.astype(np.bool_), "Which entries are not 0; not tracked."),
    "swapdims": (lambda t, dim0, dim1: np.swapaxes(t, dim0, dim1), "Two axes exchanged."),
    "type_as": (lambda t, other: t.astype(like(other).dtype), "The entries in another tensor's dtype."),
    "to": (_to, "The entries in another dtype, `t.to(tg.float32)`; \"cpu\" is the one device there is."),
    "allclose": (lambda t, other, **settings: np.allclose(t, other, **settings), "Whether all entries are close to another tensor's."),
    "equal": (lambda t, other: np.array_equal(t, other), "Whether shape and all entries are another tensor's; `t == other` tells of each."),
    "det": (lambda t: np.linalg.det(t), "Determinant."),
    "diff": (lambda t, n=1, dim=-1: np.diff(t, n, dim), "Differences of neighbours along an axis."),
    "expand_as": (lambda t, other: t.expand(like(other).shape), "The entries repeated to another tensor's shape, without copying."),
    "flip": (lambda t, *dims: np.flip(t, dims[0] if len(dims) == 1 else dims), "The entries in reverse order along axes."),
    "gather": (lambda t, dim, index: t[places(t, dim, index)], "The entries at positions along an axis."),
    "index_select": (lambda t, dim, index: np.take(t, plain(index), dim), "The rows that `index` names along an axis."),
    "inverse": (lambda t: np.linalg.inv(t), "Inverse matrix."),
    "is_complex": (lambda t: t.dtype.kind == "c", "Whether the entries are complex."),
    "is_contiguous": (_is_contiguous, "Whether the memory is in order."),
    "is_floating_point": (lambda t: t.dtype.kind == "f", "Whether the entries are real floating-point numbers."),
    "isfinite": (lambda t: np.isfinite(t), "Which entries are finite."),
    "isinf": (lambda t: np.isinf(t), "Which entries are infinite."),
    "isnan": (lambda t: np.isnan(t), "Which entries are NaN."),
    "log_softmax": (lambda t, dim: special("log_softmax")(t, axis=dim), "Logarithm of the softmax along an axis."),
    "masked_select": (lambda t, mask: t[np.broadcast_to(plain(mask), t.shape)], "The entries where a mask is true, as one axis."),
    "matrix_power": (lambda t, n: np.linalg.matrix_power(t, n), "Power of a square matrix."),
    "maximum": (lambda t, other: np.maximum(t, other), "The larger of two entries; ties share the gradient."),
    "minimum": (lambda t, other: np.minimum(t, other), "The smaller of two entries; ties share the gradient."),
    "movedim": (lambda t, source, destination: np.moveaxis(t, source, destination), "Axes in other places."),
    "narrow": (_narrow, "`length` rows along an axis, from `start` on; a view."),
    "ndimension": (lambda t: t.ndim, "Number of axes."),
    "nelement": (lambda t: t.size, "Number of elements."),
    "new_full": (_new(creation.full), "A tensor of one value, in this one's dtype."),
    "new_ones": (_new(creation.ones), "A tensor of ones, in this one's dtype."),
    "new_zeros": (_new(creation.zeros), "A tensor of zeros, in this one's dtype."),
    "norm": (_norm, "The p-norm of all entries, or along axes."),
    "outer": (lambda t, vec2: np.outer(t, vec2), "All products of an entry of one vector with one of another."),
    "reshape_as": (lambda t, other: t.reshape(like(other).shape), "The entries in another tensor's shape."),
    "roll": (lambda t, shifts, dims=None: np.roll(t, shifts, dims), "The entries shifted around along axes."),
    "select": (_select, "The slice at one position of an axis; a view."),
    "softmax": (lambda t, dim: special("softmax")(t, axis=dim), "Exponentials along an axis over their sum."),
    "unflatten": (_unflatten, "One axis as several."),
    "view_as": (lambda t, other: t.reshape(like(other).shape), "The entries in another tensor's shape."),
    "where": (lambda t, condition, other: np.where(condition, t, other), "Where a condition holds its entries, else those of `other`."),
}  # fmt: skip


_RUNS = {
    "addbmm": ("tg.zeros(1, 1).addbmm(tg.ones(2, 1, 3), tg.ones(2, 3, 1))", "tensor([[6.]])"),
    "addcdiv": ("tg.tensor([1.0]).addcdiv(tg.tensor([3.0]), tg.tensor([2.0]), value=10)", "tensor([16.])"),
    "addcmul": ("tg.tensor([1.0]).addcmul(tg.tensor([3.0]), tg.tensor([2.0]), value=10)", "tensor([61.])"),
    "addmm": ("tg.ones(1, 1).addmm(tg.ones(1, 3), tg.ones(3, 1), beta=10)", "tensor([[13.]])"),
    "addmv": ("tg.ones(1).addmv(tg.ones(1, 3), tg.ones(3), alpha=10)", "tensor([31.])"),
    "addr": ("tg.zeros(2, 2).addr(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])).tolist()", "[[3.0, 4.0], [6.0, 8.0]]"),
    "baddbmm": ("tg.ones(2, 1, 1).baddbmm(tg.ones(2, 1, 3), tg.ones(2, 3, 1)).tolist()", "[[[4.0]], [[4.0]]]"),
    "bmm": ("tg.ones(2, 1, 3).bmm(tg.ones(2, 3, 1)).shape", "(2, 1, 1)"),
    "cfloat": ("tg.tensor([1.0]).cfloat().dtype", "dtype('complex64')"),
    "chunk": ("[part.tolist() for part in tg.arange(5).chunk(2)]", "[[0, 1, 2], [3, 4]]"),
    "clamp_max": ("tg.tensor([1.0, 5.0]).clamp_max(2.0)", "tensor([1., 2.])"),
    "clamp_min": ("tg.tensor([1.0, 5.0]).clamp_min(2.0)", "tensor([2., 5.])"),
    "conj_physical": ("tg.tensor([1.0 + 2.0j]).conj_physical()", "tensor([1.-2.j])"),
    "contiguous": ("tg.ones(2, 3).T.contiguous().strides", "(16, 8)"),
    "cpu": ("tg.tensor([1.0]).cpu()", "tensor([1.])"),
    "det": ("round(tg.tensor([[4.0, 0.0], [0.0, 2.0]]).det().item(), 6)", "8.0"),
    "digamma": ("tg.tensor([1.0]).digamma()", "tensor([-0.57721566])"),
    "div": ('tg.tensor([7.0]).div(2.0, rounding_mode="floor")', "tensor([3.])"),
    "eq": ("tg.tensor([1.0, 2.0]).eq(2.0)", "tensor([False,  True])"),
    "erf": ("tg.tensor([0.0, 1.0]).erf()", "tensor([0.        , 0.84270079])"),
    "erfc": ("tg.tensor([0.0, 1.0]).erfc()", "tensor([1.        , 0.15729921])"),
    "erfinv": ("tg.tensor([0.0, 0.5]).erfinv()", "tensor([0.        , 0.47693628])"),
    "expand_as": ("tg.tensor([1.0, 2.0]).expand_as(tg.ones(2, 2)).tolist()", "[[1.0, 2.0], [1.0, 2.0]]"),
    "float": ("tg.tensor([1.0]).float().dtype", "dtype('float32')"),
    "frac": ("tg.tensor([1.25, -1.25]).frac()", "tensor([ 0.25, -0.25])"),
    "gather": ("tg.tensor([[4.0, 1.0], [2.0, 3.0]]).gather(1, [[1], [0]]).tolist()", "[[1.0], [2.0]]"),
    "ge": ("tg.tensor([1.0, 2.0]).ge(2.0)", "tensor([False,  True])"),
    "gt": ("tg.tensor([1.0, 2.0]).gt(1.0)", "tensor([False,  True])"),
    "igamma": ("tg.tensor([1.0]).igamma(tg.tensor([2.0]))", "tensor([0.86466472])"),
    "igammac": ("tg.tensor([1.0]).igammac(tg.tensor([2.0]))", "tensor([0.13533528])"),
    "index_add": ("tg.zeros(3).index_add(0, [2, 2], tg.tensor([5.0, 6.0]))", "tensor([ 0.,  0., 11.])"),
    "index_copy": ("tg.zeros(3).index_copy(0, [2, 0], tg.tensor([5.0, 6.0]))", "tensor([6., 0., 5.])"),
    "index_fill": ("tg.zeros(3).index_fill(0, [2, 0], 7.0)", "tensor([7., 0., 7.])"),
    "index_put": ("tg.zeros(3).index_put(([2, 0],), tg.tensor([5.0, 6.0]))", "tensor([6., 0., 5.])"),
    "index_select": ("tg.tensor([5.0, 6.0, 7.0]).index_select(0, [2, 0])", "tensor([7., 5.])"),
    "int": ("tg.tensor([1.7]).int()", "tensor([1], dtype=int32)"),
    "inverse": ("tg.tensor([[4.0, 0.0], [0.0, 2.0]]).inverse().tolist()", "[[0.25, 0.0], [0.0, 0.5]]"),
    "is_complex": ("tg.tensor([1j]).is_complex()", "True"),
    "is_contiguous": ("tg.ones(2, 3).T.is_contiguous()", "False"),
    "is_floating_point": ("tg.tensor([1]).is_floating_point()", "False"),
    "le": ("tg.tensor([1.0, 2.0]).le(1.0)", "tensor([ True, False])"),
    "lerp": ("tg.tensor([0.0]).lerp(tg.tensor([10.0]), 0.25)", "tensor([2.5])"),
    "lgamma": ("tg.tensor([1.0, 3.0]).lgamma()", "tensor([0.        , 0.69314718])"),
    "log_softmax": ("tg.tensor([0.0, 0.0]).log_softmax(0)", "tensor([-0.69314718, -0.69314718])"),
    "logit": ("tg.tensor([0.5, 0.75]).logit()", "tensor([0.        , 1.09861229])"),
    "lt": ("tg.tensor([1.0, 2.0]).lt(2.0)", "tensor([ True, False])"),
    "masked_fill": ("tg.tensor([1.0, 2.0]).masked_fill([True, False], 0.0)", "tensor([0., 2.])"),
    "masked_scatter": ("tg.zeros(3).masked_scatter([True, False, True], tg.tensor([5.0, 6.0]))", "tensor([5., 0., 6.])"),
    "masked_select": ("tg.tensor([5.0, 6.0, 7.0]).masked_select([True, False, True])", "tensor([5., 7.])"),
    "matrix_power": ("tg.tensor([[1.0, 1.0], [0.0, 1.0]]).matrix_power(3).tolist()", "[[1.0, 3.0], [0.0, 1.0]]"),
    "movedim": ("tg.ones(2, 3, 4).movedim(0, -1).shape", "(3, 4, 2)"),
    "mul": ("tg.tensor([1.0, 2.0]).mul(3.0)", "tensor([3., 6.])"),
    "mvlgamma": ("tg.tensor([2.0]).mvlgamma(2)", "tensor([0.45158271])"),
    "narrow": ("tg.tensor([5.0, 6.0, 7.0]).narrow(0, 1, 2)", "tensor([6., 7.])"),
    "ndimension": ("tg.ones(2, 3).ndimension()", "2"),
    "ne": ("tg.tensor([1.0, 2.0]).ne(2.0)", "tensor([ True, False])"),
    "neg": ("tg.tensor([1.0, -2.0]).neg()", "tensor([-1.,  2.])"),
    "nelement": ("tg.ones(2, 3).nelement()", "6"),
    "new_full": ("tg.tensor([1.0], dtype=tg.float32).new_full((2,), 7.0)", "tensor([7., 7.], dtype=float32)"),
    "new_ones": ("tg.tensor([1]).new_ones(2)", "tensor([1, 1])"),
    "new_zeros": ("tg.tensor([1]).new_zeros(2)", "tensor([0, 0])"),
    "norm": ("tg.tensor([3.0, 4.0]).norm().item()", "5.0"),
    "polygamma": ("tg.tensor([1.0]).polygamma(1)", "tensor([1.64493407])"),
    "relu": ("tg.tensor([-1.0, 2.0]).relu()", "tensor([0., 2.])"),
    "renorm": ("tg.tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2, 0, 1.0).round(3).tolist()", "[[0.6, 0.8], [0.3, 0.4]]"),
    "reshape_as": ("tg.arange(4).reshape_as(tg.ones(2, 2)).tolist()", "[[0, 1], [2, 3]]"),
    "rsqrt": ("tg.tensor([1.0, 4.0]).rsqrt()", "tensor([1. , 0.5])"),
    "scatter": ("tg.zeros(2, 2).scatter(1, [[1], [0]], tg.tensor([[5.0], [6.0]])).tolist()", "[[0.0, 5.0], [6.0, 0.0]]"),
    "scatter_add": ("tg.zeros(3).scatter_add(0, [2, 2], tg.tensor([5.0, 6.0]))", "tensor([ 0.,  0., 11.])"),
    "sgn": ("tg.tensor([-2.0, 3.0]).sgn()", "tensor([-1.,  1.])"),
    "sigmoid": ("tg.tensor([0.0, 1.0]).sigmoid()", "tensor([0.5       , 0.73105858])"),
    "softmax": ("tg.tensor([0.0, 0.0]).softmax(0)", "tensor([0.5, 0.5])"),
    "sub": ("tg.tensor([5.0]).sub(tg.tensor([1.0]), alpha=2)", "tensor([3.])"),
    "swapdims": ("tg.ones(2, 3, 4).swapdims(0, 2).shape", "(4, 3, 2)"),
    "to": ("tg.tensor([1.0]).to(tg.float32).dtype", "dtype('float32')"),
    "type_as": ("tg.tensor([1.7]).type_as(tg.tensor([1]))", "tensor([1])"),
    "unflatten": ("tg.arange(6).unflatten(0, (2, 3)).shape", "(2, 3)"),
    "view_as": ("tg.arange(4).view_as(tg.ones(2, 2)).tolist()", "[[0, 1], [2, 3]]"),
    "xlogy": ("tg.tensor([0.0, 1.0]).xlogy(tg.tensor([0.0, 1.0]))", "tensor([0., 0.])"),
}  # fmt: skip
"""A run of each method that this module explains: a call, and what it gives."""


def _install(name: str, function: Callable[..., Any], doc: str) -> None:
    if name in _RUNS:
        doc += "\n\n>>> import tapegrad as tg\n>>> {}\n{}\n".format(*_RUNS[name])
    method = by_its_name(function, name, doc)
    show(method, function)
    setattr(Tensor, name, method)


def _copying(name: str) -> Callable[..., Any]:
    """The out-of-place form of a method that stores."""
    store = getattr(Tensor, f"{name}_")

    def on_copy(t: Tensor, *args: Any, **settings: Any) -> Any:
        return store(t.clone(), *args, **settings)

    show(on_copy, store)
    return on_copy


_function: Any
for _name, (_function, _doc) in _METHODS.items():
    _install(_name, _function, _doc)
for _name, _function in FUNCTIONS.items():
    if not hasattr(Tensor, _name):
        _install(_name, _function, f"As PyTorch's {_name}: what {_name}_ writes, as a new tensor.")
for _name in STORES:
    if not hasattr(Tensor, _name):
        _install(_name, _copying(_name), f"A copy on which {_name}_ was called.")


class Elsewhere:
    """A name that other libraries' arrays have and tensors have not: an AttributeError that says what to write."""

    __slots__ = ("instead", "name")

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise AttributeError(f"'Tensor' object has no attribute {self.name!r}: {self.instead}.")

    def __set__(self, instance: Any, value: Any) -> None:
        self.__get__(instance)


_ELSEWHERE = {
    # JAX's, NumPy's and those of other libraries
    "at": "write y = x.clone(), then y[i] = v or y[i] += v, which is recorded",
    "block_until_ready": "nothing runs in the background, the value is there",
    "collect": "nothing is lazy, the value is there",
    "repeat": "write tg.repeat(t, n, axis=...) for NumPy's, tg.tile(t, n) for PyTorch's, which repeats the whole tensor",
    "sort": "write tg.sort(t, axis=...), a new tensor; NumPy's method would sort in place",
    "to_numpy": "write t.detach().numpy()",
    "asnumpy": "write t.detach().numpy()",
    "array": "write t.detach().numpy()",
    "values": "write t.detach().numpy(), or t.data for the tensor without its history",
    "value": "write t.detach().numpy(), or t.item() for one number",
    # pandas'
    "loc": "a tensor has no labels: write t[i] with positions, and keep the labels beside it",
    "iloc": "write t[i]",
    "rolling": "write np.lib.stride_tricks.sliding_window_view(t, n).mean(axis=-1), or np.convolve(t, weights, 'valid')",
    "groupby": "write tg.bincount(codes, t) for sums by group, with codes, names = pandas.factorize(column)",
    "fillna": "write np.where(np.isnan(t), value, t)",
    "dropna": "write t[~np.isnan(t)]",
    # PyTorch's
    "cuda": "arrays live in main memory, there is no GPU",
    "is_cuda": "arrays live in main memory, there is no GPU",
    "pin_memory": "arrays live in main memory, there is no GPU",
    "share_memory_": "threads share arrays as they are; processes take t.detach().numpy()",
    "type": "write t.dtype, and t.astype(dtype) to convert",
    "stride": "write t.strides, in bytes as NumPy's",
    "element_size": "write t.itemsize",
    "data_ptr": "write t.detach().numpy().ctypes.data",
    "storage": "write t.detach().numpy()",
    "layout": "tensors are dense; tg.sparse has the sparse ones",
    "new_tensor": "write tg.tensor(data, dtype=t.dtype)",
    "cross": "write tg.cross(t, u)",
    "unique": "write tg.unique(t)",
    "topk": "write tg.sort(t)[..., ::-1][..., :k], or t[places] with places from t.argsort()",
    "svd": "write tg.linalg.svd(t)",
    "cholesky": "write tg.linalg.cholesky(t)",
    "pinverse": "write tg.linalg.pinv(t)",
    "H": "write t.mT.conj()",
    "apply_": "write it with NumPy's functions, which are recorded",
    "map_": "write it with NumPy's functions, which are recorded",
    "zero_grad": "write t.grad = None, or optimizer.zero_grad()",
    "eval": "tensors have one mode, and there are no layers; the value is there",
}
for _name, _instead in _ELSEWHERE.items():
    setattr(Tensor, _name, Elsewhere(_name, _instead))


def _dir(t: Any) -> list[str]:
    """The names that are there; without those that only say what to write."""
    return sorted({*object.__dir__(t)} - {*_ELSEWHERE})


Tensor.__dir__ = _dir  # type: ignore[method-assign]
