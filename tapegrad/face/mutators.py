"""In-place methods under PyTorch's names: `t.add_(1)`, `t.clamp_(min=0)`, `t.index_add_(0, index, source)`.

Each is a function of the old value, written in ops that have rules, whose result the tensor takes over in the memory it has
(`inplace.rewrite`); or a store at an index (`inplace.store`), which copies nothing. So there is no derivative here.

Invariant: every method returns its tensor, refuses a leaf that requires grad unless under `no_grad`, and leaves shape, dtype and
memory as they were.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..core import dual, storage
from ..core.primitive import as_given
from ..core.signatures import Parameter, positional, show
from ..core.tensor import Tensor
from ..errors import GraphError
from . import creation
from .inplace import before_write, rewrite, store

# ------------------------------------------------------------------------------------------- one operand, or two


def _of_numpy(names: str) -> dict[str, Callable[..., Any]]:
    """NumPy's functions of these names."""
    return {name: getattr(np, name) for name in names.split()}


_UNARY = _of_numpy(
    """abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil cos cosh deg2rad exp
    exp2 expm1 floor log log10 log1p log2 logical_not nan_to_num negative rad2deg reciprocal round sign sin sinc sinh sqrt square tan
    tanh trunc"""
) | {
    "conj_physical": np.conjugate, "fix": np.trunc, "neg": np.negative, "sgn": np.sign,
}  # fmt: skip

_BINARY = _of_numpy(
    """arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign float_power floor_divide fmod gcd
    greater greater_equal heaviside hypot lcm less less_equal logical_and logical_or logical_xor multiply nextafter not_equal pow
    remainder true_divide"""
) | {
    "eq": np.equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "mul": np.multiply, "ne": np.not_equal,
}  # fmt: skip

_COMPOSED: dict[str, Callable[..., Any]] = {
    "relu": lambda t: np.where(
        t <= 0, np.zeros((), t.dtype), t
    ),  # at 0 the slope is 0, and NaN stays
    "rsqrt": lambda t: 1 / np.sqrt(t),
    "frac": lambda t: t - np.trunc(t),
    "add": lambda t, other, *, alpha=1: t + (other if alpha == 1 else alpha * other),
    "sub": lambda t, other, *, alpha=1: t - (other if alpha == 1 else alpha * other),
    "subtract": lambda t, other, *, alpha=1: t - (other if alpha == 1 else alpha * other),
    "addcmul": lambda t, tensor1, tensor2, *, value=1: t + value * tensor1 * tensor2,
    "addcdiv": lambda t, tensor1, tensor2, *, value=1: t + value * tensor1 / tensor2,
    "lerp": lambda t, end, weight: t + weight * (end - t),
    "cumsum": lambda t, dim: np.cumsum(t, axis=dim),
    "cumprod": lambda t, dim: np.cumprod(t, axis=dim),
    "tril": lambda t, diagonal=0: np.tril(t, diagonal),
    "triu": lambda t, diagonal=0: np.triu(t, diagonal),
}


def _divided(t: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return t / other
    if rounding_mode == "floor":
        return np.floor_divide(t, other)
    if rounding_mode == "trunc":
        return np.trunc(t / other)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}."
    )


def _clamped(t: Any, min: Any = None, max: Any = None) -> Any:
    if min is None and max is None:
        raise RuntimeError("clamp_: at least one of 'min' or 'max' must not be None.")
    return np.clip(t, min, max)


def special(name: str, *operands: str) -> Callable[..., Any]:
    """A function of `tapegrad.special`, which needs SciPy, when it is called; `operands` are what it takes after the tensor."""

    def function(*args: Any, **settings: Any) -> Any:
        from .. import special

        return getattr(special, name)(*args, **settings)

    function.__signature__ = positional(("self", *operands))  # type: ignore[attr-defined]
    return function


def _renormed(t: Any, p: float, dim: int, maxnorm: float) -> Any:
    if not p > 0:
        raise RuntimeError(f"renorm: a norm of order {p} is not supported: p has to be positive.")
    dim = normalize_axis_index(dim, t.ndim)
    others = tuple(i for i in range(t.ndim) if i != dim)
    norms = np.sum(np.abs(t) ** p, axis=others, keepdims=True) ** (1 / p)
    return t * np.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


_COMPOSED |= {
    "digamma": special("digamma"),
    "erf": special("erf"),
    "erfc": special("erfc"),
    "erfinv": special("erfinv"),
    "i0": special("i0"),
    "igamma": special("gammainc", "other"),
    "igammac": special("gammaincc", "other"),
    "lgamma": special("gammaln"),
    "logit": lambda t, eps=None: special("logit")(t if eps is None else np.clip(t, eps, 1 - eps)),
    "mvlgamma": lambda t, p: special("multigammaln")(t, p),
    "sigmoid": special("expit"),
    "polygamma": lambda t, n: special("polygamma")(n, t),
    "xlogy": special("xlogy", "other"),
    "ldexp": lambda t, other: t * 2.0**other,
    "renorm": _renormed,
    "addmm": lambda t, mat1, mat2, *, beta=1, alpha=1: beta * t + alpha * (mat1 @ mat2),
    "addmv": lambda t, mat, vec, *, beta=1, alpha=1: beta * t + alpha * (mat @ vec),
    "addr": lambda t, vec1, vec2, *, beta=1, alpha=1: beta * t + alpha * np.outer(vec1, vec2),
    "baddbmm": lambda t, batch1, batch2, *, beta=1, alpha=1: beta * t + alpha * (batch1 @ batch2),
    "addbmm": lambda t, batch1, batch2, *, beta=1, alpha=1: (
        beta * t + alpha * np.sum(batch1 @ batch2, axis=0)
    ),
    "div": _divided,
    "divide": _divided,
    "clamp": _clamped,
    "clip": _clamped,
    "clamp_min": lambda t, min: np.maximum(t, min),
    "clamp_max": lambda t, max: np.minimum(t, max),
}


_SIGNATURES = re.compile(r"[\w.<>]+\(\) (missing|takes|got) ")
"""How Python begins where arguments do not fit a function."""


def by_its_name(method: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """A method that passes its arguments on, with its name and its docstring; where they do not fit, Python's error has that name, too."""

    @functools.wraps(method, assigned=(), updated=())
    def named(self: Tensor, *args: Any, **settings: Any) -> Any:
        try:
            return method(self, *args, **settings)
        except TypeError as error:
            told = _SIGNATURES.match(str(error))
            step = error.__traceback__
            while step is not None and step.tb_next is not None:
                step = step.tb_next
            if told is None or step is None or not ours(step.tb_frame.f_globals):
                raise
            raise TypeError(f"Tensor.{name}() {str(error)[told.start(1) :]}") from None

    named.__name__ = named.__qualname__ = name
    named.__doc__ = doc
    return named


def ours(names: dict[str, Any]) -> bool:
    """Whether these are the global names of one of the library's modules."""
    return names.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]


def _method(name: str, function: Callable[..., Any], doc: str) -> None:
    name = f"{name}_"

    def method(self: Tensor, *args: Any, **settings: Any) -> Tensor:
        return rewrite(self, name, lambda t, *others: function(t, *others, **settings), *args)

    method = by_its_name(method, name, doc)
    show(method, function)
    setattr(Tensor, name, method)


_function: Any
for _name, _function in _UNARY.items():
    _method(
        _name,
        _function,
        f"In place: {_function.__name__} of every element, as np.{_function.__name__}.",
    )
for _name, _function in _BINARY.items():
    _method(_name, _function, f"In place: np.{_function.__name__} with another tensor or number.")
for _name, _composition in _COMPOSED.items():
    _method(_name, _composition, f"In place: as PyTorch's {_name}_.")

FUNCTIONS: dict[str, Any] = {**_UNARY, **_BINARY, **_COMPOSED}
"""What each of these methods computes, by its name without the underscore."""


# -------------------------------------------------------------------------------------------------------- stores


def fill_(self: Tensor, value: Any) -> Tensor:
    """In place: every element becomes `value` (a number or a 0-d tensor)."""
    if np.ndim(value):
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {np.ndim(value)} dimensions: use copy_."
        )
    store(self, Ellipsis, value)
    return self


def zero_(self: Tensor) -> Tensor:
    """In place: every element becomes 0."""
    store(self, Ellipsis, 0.0 if self.dtype.kind in "fc" else 0)
    return self


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """In place: the elements of `src`, broadcast to this shape and cast to this dtype."""
    if isinstance(src, Tensor) and src.dtype != self.dtype and src.requires_grad:
        src = src.astype(self.dtype)
    store(self, Ellipsis, src)
    return self


def masked_fill_(self: Tensor, mask: Any, value: Any) -> Tensor:
    """In place: `value` wherever the mask (broadcast to this shape) is true."""
    store(self, np.broadcast_to(plain(mask).astype(bool), self.shape), value)
    return self


def masked_scatter_(self: Tensor, mask: Any, source: Any) -> Tensor:
    """In place: the first elements of `source`, in order, at the places where the mask is true."""
    source = source if isinstance(source, Tensor) else as_given(source, "masked_scatter_")
    where = np.broadcast_to(plain(mask).astype(bool), self.shape)
    given = np.reshape(source, -1)
    if np.size(given) < (count := int(where.sum())):
        raise RuntimeError(
            f"masked_scatter_ was given {np.size(given)} elements for {count} places where the mask is true: give one for each."
        )
    store(self, where, given[:count])
    return self


def _along(t: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    dim = normalize_axis_index(dim, max(t.ndim, 1))
    return (slice(None),) * dim + (np.asarray(plain(index)),)


def index_fill_(self: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """In place: `value` in the rows that `index` names along an axis."""
    store(self, _along(self, dim, index), value)
    return self


def index_copy_(self: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """In place: the rows of `source` at the places that `index` names along an axis."""
    store(self, _along(self, dim, index), source)
    return self


def index_add_(self: Tensor, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """In place: the rows of `source` are added at the places that `index` names along an axis; repeats add up."""
    np.add.at(self, _along(self, dim, index), source if alpha == 1 else alpha * source)  # type: ignore[arg-type]
    return self


def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """In place: `t[indices] = values`, or, with `accumulate`, values are added there and repeats add up."""
    where = tuple(plain(i) for i in indices)
    if accumulate:
        np.add.at(self, where, values)  # type: ignore[arg-type]
    else:
        store(self, where, values)
    return self


def places(t: Tensor, dim: int, index: Any) -> tuple[np.ndarray, ...]:
    """Where PyTorch's gather reads, and its scatter writes: `index` along one axis, its own places along the others."""
    index = np.asarray(plain(index))
    if index.ndim != t.ndim:
        raise IndexError(
            f"an index of shape {index.shape} was given for a tensor of shape {t.shape}, but it has an axis for each of the tensor's: "
            "reshape it."
        )
    grid = list(np.indices(index.shape, sparse=True))
    if grid:  # a number has no axis, and one place
        grid[normalize_axis_index(dim, t.ndim)] = index
    return tuple(grid)


def scatter_(self: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """In place: `t[index[i, j], j] = src[i, j]` for dim 0, and so on: PyTorch's scatter_."""
    index = plain(index)
    if isinstance(src, Tensor):
        src = src[tuple(slice(n) for n in np.shape(index))]
    store(self, places(self, dim, index), src)
    return self


def scatter_add_(self: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """In place: as scatter_, but what is there is added to, and repeats add up."""
    index = plain(index)
    if np.ndim(src):
        src = (src if isinstance(src, Tensor) else np.asarray(src))[
            tuple(slice(n) for n in np.shape(index))
        ]
    np.add.at(self, places(self, dim, index), src)  # type: ignore[arg-type]
    return self


def fill_diagonal_(self: Tensor, fill_value: Any) -> Tensor:
    """In place: `fill_value` on the main diagonal."""
    steps = np.arange(min(self.shape))
    store(self, (steps,) * self.ndim, fill_value)
    return self


def put_(self: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """In place: elements of `source` at positions of the flattened tensor."""
    index = np.asarray(plain(index))
    where = np.unravel_index(np.where(index < 0, index + self.size, index), self.shape)
    return index_put_(self, where, source, accumulate)


def fill(self: Tensor, value: Any) -> None:
    """NumPy's name of `fill_`, which returns nothing."""
    fill_(self, value)


def put(self: Tensor, indices: Any, values: Any, mode: Any = "raise") -> None:
    """In place: `values` at positions of the flattened tensor; NumPy's put, which returns nothing."""
    np.put(self, indices, values, mode)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- random numbers


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """In place: draws from a normal distribution."""
    return copy_(self, creation._rng(generator).normal(mean, std, self.shape))


def uniform_(
    self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None, **names: float
) -> Tensor:
    """In place: draws from a uniform distribution on [low, high); `from=` and `to=` are PyTorch's names of the two."""
    low, high = names.get("from", low), names.get("to", high)
    return copy_(self, creation._rng(generator).uniform(low, high, self.shape))


def _drawing(name: str, doc: str, draw: Callable[..., Any]) -> None:
    def drawn(self: Tensor, *args: Any, generator: Any = None, **settings: Any) -> Tensor:
        return copy_(self, draw(creation._rng(generator), self.shape, *args, **settings))

    drawn = by_its_name(drawn, name, f"In place: draws from {doc}.")
    generator = Parameter("generator", Parameter.KEYWORD_ONLY, default=None)
    show(drawn, draw, skip=1, more=[generator])
    setattr(Tensor, name, drawn)


def _whole(rng: Any, shape: Any, *bounds: int, **names: int) -> Any:
    low, high = (0, *bounds) if len(bounds) == 1 else (*bounds, None, None)[:2]
    low, high = names.get("from", low or 0), names.get("to", high)
    return rng.integers(low, 2**53 if high is None else high, shape)


def _exponential(rng: np.random.Generator, shape: tuple[int, ...], lambd: float = 1.0) -> Any:
    if not lambd > 0:
        raise ValueError(f"exponential_ was given lambd={lambd}, but a rate is greater than 0.")
    return rng.exponential(1 / lambd, shape)


_drawing(
    "bernoulli_",
    "{0, 1}, where 1 has the probability p",
    lambda rng, shape, p=0.5: rng.random(shape) < plain(p),
)
_drawing(
    "cauchy_",
    "a Cauchy distribution",
    lambda rng, shape, median=0.0, sigma=1.0: median + sigma * rng.standard_cauchy(shape),
)
_drawing(
    "exponential_",
    "an exponential distribution of rate lambd",
    _exponential,
)
_drawing(
    "geometric_",
    "a geometric distribution: trials up to the first success",
    lambda rng, shape, p: rng.geometric(p, shape),
)
_drawing(
    "log_normal_",
    "a log-normal distribution",
    lambda rng, shape, mean=1.0, std=2.0: rng.lognormal(mean, std, shape),
)
_drawing("random_", "whole numbers from `from` (or 0) up to, not including, `to`", _whole)


# ------------------------------------------------------------------------------------------------- another shape


def _reshaping(name: str, method: str) -> None:
    """Give Tensor the in-place form of a reshaping method."""

    def reshaped(self: Tensor, *args: Any, **settings: Any) -> Tensor:
        """Replace value and history by those of the reshaped tensor; an error where others share the memory."""
        if self._is_view() or self._get("views"):
            raise GraphError(
                f"{name} would change the shape of a tensor whose memory others share: take the result of {method}() instead.",
                name="in-place",
            )
        before_write_checked = self.requires_grad and self.is_leaf
        if before_write_checked:
            before_write(self, name)
        result = getattr(self, method)(*args, **settings)
        if isinstance(self._value, np.ndarray):
            storage.touch(self._value)
        self._value, self._node = result._value, result._node
        dual.like(result, self)
        return self

    doc = f"In place: as {method}(), for a tensor that shares its memory with no other."
    reshaped = by_its_name(reshaped, name, doc)
    show(reshaped, getattr(Tensor, method))
    setattr(Tensor, name, reshaped)


for _name, _shaped in {
    "t_": "t", "transpose_": "swapaxes", "swapaxes_": "swapaxes", "swapdims_": "swapaxes", "squeeze_": "squeeze",
    "unsqueeze_": "unsqueeze",
}.items():  # fmt: skip
    _reshaping(_name, _shaped)


STORES = ("masked_fill", "masked_scatter", "index_fill", "index_copy", "index_add", "index_put", "scatter", "scatter_add")  # fmt: skip
"""Methods that store at an index, by their names without the underscore."""


def plain(value: Any) -> np.ndarray:
    """The value of an index or a mask."""
    return value._value if isinstance(value, Tensor) else np.asarray(value)


for _stored in (
    fill, fill_, put, zero_, copy_, masked_fill_, masked_scatter_, index_fill_, index_copy_, index_add_, index_put_, scatter_,
    scatter_add_, fill_diagonal_, put_, normal_, uniform_,
):  # fmt: skip
    setattr(Tensor, _stored.__name__, _stored)
