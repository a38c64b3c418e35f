"""What NumPy cannot do with tensors, in a function that is differentiated or compiled: join them, and fill a buffer with them.

An ndarray cannot be tracked. So the array of `np.array([t, u])` has to be a tensor, and so has the buffer `a = np.zeros(n)` of a later
`a[i] = t`. Here is what stands for NumPy in the copy of such a function (`face/adoption.py` makes the copy). `array` and the other
functions of `JOINERS` take tensors, and give what NumPy gives for anything else. Where lists are made, functions of one array (`np.sum`,
`np.linalg.solve`) take a list of tensors for it (`_Taking`). If the function writes to arrays, `zeros` and the other functions that make a
new array (`MAKERS`) make an untracked tensor of it while a transform or a trace runs, if its numbers are floats.

Invariant: given no tensor, and outside of transforms and traces, each of these does what NumPy's function of its name does.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from ..core import storage
from ..core.tape import current
from ..core.tensor import Tensor, wrap
from ..errors import GradientLost
from ..ops.composing import holds_tensor
from ..ops.joining import array as joined
from ..ops.shaping import converted
from ..ops.vectorized import spread
from . import creation
from .concatenators import c_, r_
from .standing import StandIn

OFF: ContextVar[bool] = ContextVar("tapegrad.plain_buffers", default=False)


@contextmanager
def plain_buffers() -> Iterator[None]:
    """Context in which functions make the arrays that they say, also where a tracked value is stored into one (which raises then).

    >>> import numpy as np, tapegrad as tg
    >>> def f(x):
    ...     y = np.zeros(2)
    ...     y[0] = x
    ...     return np.sum(y)
    >>> tg.grad(f)(3.0)
    1.0
    >>> with tg.plain_buffers():
    ...     tg.grad(f)(3.0)
    Traceback (most recent call last):
    ...
    tapegrad.errors.GradientLost: ...
    """
    token = OFF.set(True)
    try:
        yield
    finally:
        OFF.reset(token)


# ------------------------------------------------------------------------------------------ NumPy with tensors


def _buffer(array: Any) -> Any:
    """A new array as a tensor, if its dtype can carry a gradient and a transform or trace runs; otherwise the array.

    Arrays of whole numbers and truth values are tensors, too, in a trace that stores computed values into them.
    """
    if type(array) is not np.ndarray or not recording():
        return array
    kind = array.dtype.kind
    wanted = kind in "fc" or (kind in "biu" and getattr(storage.tracing.get(), "integers", False))
    return wrap(array) if wanted else array


def recording() -> bool:
    """Whether a transform or a trace runs."""
    return current().outer is not None or storage.tracing.get() is not None


def _making(of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(of)
    def make(*args: Any, **kwargs: Any) -> Any:
        return _buffer(of(*args, **kwargs))

    return make


def _converted(a: Any, dtype: Any, order: Any, copy: Any) -> Any:
    if isinstance(a, Tensor):
        return converted(a, dtype, order, copy)
    return converted(joined(a, dtype=dtype), None, order, None if copy else copy)


CONVERTERS: dict[str, tuple[str | None, int]] = {
    "asarray": (None, 0), "asanyarray": (None, 0), "ascontiguousarray": ("C", 1), "asfortranarray": ("F", 1),
}  # fmt: skip
"""NumPy's functions that give an array back as it is where they can: the order that they ask for, and the fewest axes."""


def converting(name: str, finished: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of `CONVERTERS` that keeps tensors; `finished(array, a)` completes the array that was made of other data `a`."""
    of = getattr(np, name)
    usual, ndmin = CONVERTERS[name]

    @functools.wraps(of)
    def convert(a: Any, dtype: Any = None, order: Any = usual, *, copy: Any = None, **rest: Any) -> Any:  # fmt: skip
        if holds_tensor(a):
            made = _converted(a, dtype, order, copy)
            return made if made.ndim >= ndmin else np.reshape(made, (1,) * ndmin)
        if not ndmin:
            rest |= {"order": order, "copy": copy}
        return finished(of(a, dtype, **rest), a)

    return convert


def _joiners(new: Callable[[Any], Any]) -> dict[str, Any]:
    """NumPy's joining functions, which take tensors too; `new(array)` completes the array that was made of other data."""

    @functools.wraps(np.array)
    def array(
        object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0, like: Any = None
    ) -> Any:  # fmt: skip
        if not holds_tensor(object):
            return new(np.array(object, dtype, copy=copy, order=order, subok=subok, ndmin=ndmin))
        made = _converted(object, dtype, order, copy)
        missing = max(ndmin - made.ndim, 0)
        return np.reshape(made, (1,) * missing + made.shape) if missing else made

    def finished(made: Any, a: Any) -> Any:
        return made if made is a or isinstance(a, np.ndarray) else new(made)

    @functools.wraps(np.full)
    def full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fill_value, Tensor) and not (args or kwargs):
            return creation.full(shape, fill_value, dtype=dtype)
        return new(np.full(shape, fill_value, dtype, *args, **kwargs))

    @functools.wraps(np.full_like)
    def full_like(a: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fill_value, Tensor) and not (args or kwargs):
            return creation.full_like(a, fill_value, dtype=dtype)
        return new(np.full_like(a, fill_value, dtype, *args, **kwargs))

    @functools.wraps(np.fromiter)
    def fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Any:
        given = list(iter if count < 0 else itertools.islice(iter, count))
        return array(given, dtype) if holds_tensor(given) else new(np.fromiter(given, dtype, count))

    def ndenumerate(arr: Any) -> Any:
        if not holds_tensor(arr):
            return np.ndenumerate(arr)
        of = joined(arr)
        return ((index, of[index]) for index in np.ndindex(*of.shape))

    def nditer(op: Any, *args: Any, **kwargs: Any) -> Any:
        if holds_tensor(op):
            raise GradientLost(
                "np.nditer was asked to walk over a tensor, but it gives plain numbers, whose gradient would be lost. Write "
                "`for v in np.ravel(t)`, `for index, v in np.ndenumerate(t)`, or `for index in np.ndindex(t.shape)`.",
                name="plain-value",
            )
        return np.nditer(op, *args, **kwargs)

    @functools.wraps(np.isscalar)
    def isscalar(element: Any) -> bool:
        value = element._value if isinstance(element, Tensor) else None
        return np.isscalar(element) if value is None else storage.is_number(value)

    return {
        "array": array, "isscalar": isscalar, "full": full, "full_like": full_like, "fromiter": fromiter,
        "ndarray": _Array, "ndenumerate": ndenumerate, "nditer": nditer, "vectorize": Vectorize,
        "r_": r_, "c_": c_,
        **{name: converting(name, finished) for name in CONVERTERS},
    }  # fmt: skip


class _Arrays(type):
    """What `np.ndarray` is in a copied function: a maker of buffers, and a class that tensors with memory are of."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = np.ndarray(*args, **kwargs)
        return made if made.base is not None else _buffer(made)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, np.ndarray) or (
            isinstance(x, Tensor) and not storage.is_number(x._value)
        )

    def __subclasscheck__(cls, kind: Any) -> bool:
        return kind is cls or issubclass(kind, np.ndarray | Tensor)

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is np.ndarray or other is Tensor

    def __hash__(cls) -> int:
        return hash(np.ndarray)

    def __getattr__(cls, name: str) -> Any:
        return getattr(np.ndarray, name)

    def __repr__(cls) -> str:
        return repr(np.ndarray)


class _Array(metaclass=_Arrays):
    pass


def renamed(made: type, of: type) -> None:
    """Let a class that stands for another one have the other's name."""
    made.__name__, made.__qualname__, made.__module__ = of.__name__, of.__qualname__, of.__module__


renamed(_Array, np.ndarray)


class _Tensors(_Arrays):
    """As `_Arrays`, but every array that is made is a tensor."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return wrap(np.ndarray(*args, **kwargs))


class ndarray(metaclass=_Tensors):
    """NumPy's name: `tg.ndarray(shape, dtype)` is a tensor of arbitrary entries, and tensors that are no numbers are instances of it."""


class Vectorize(np.vectorize):
    """NumPy's class, for functions of tensors, too."""

    def __call__(self, *args: Any, **words: Any) -> Any:
        if callable(self.pyfunc) and holds_tensor([*args, *words.values()]):
            return spread(self, self.pyfunc, args, words)
        return super().__call__(*args, **words)


JOINERS = _joiners(lambda made: made)
"""NumPy's functions that join what may be tensors, by name: what the copy of a function that fills no buffers finds in their place."""

MAKERS: dict[str, Any] = {
    name: _making(getattr(np, name))
    for name in ("copy", "empty", "empty_like", "eye", "identity", "ones", "ones_like", "tri", "zeros", "zeros_like")
} | _joiners(_buffer)  # fmt: skip
"""NumPy's functions that make a new array, by name: what the copy of a function that fills buffers finds in their place."""


def _holds_numbers(value: Any) -> bool:
    """Whether a list or tuple holds a tensor of floats, perhaps in lists inside: those of whole numbers may be lengths or axes."""
    return (type(value) is list or type(value) is tuple) and any(
        x.dtype.kind in "fc" if isinstance(x, Tensor) else _holds_numbers(x) for x in value
    )


def _joined(value: Any) -> Any:
    return joined(value) if _holds_numbers(value) else value


class _Taking:
    """A function of NumPy's, or a ufunc, for which a list with tensors is the tensor that it would be an array of."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.of(*map(_joined, args), **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)

    def __eq__(self, other: Any) -> bool:
        return other is self.of or (isinstance(other, _Taking) and other.of is self.of)

    def __hash__(self) -> int:
        return hash(self.of)

    def __repr__(self) -> str:
        return repr(self.of)


class _TakingSeveral(_Taking):
    """As `_Taking`, for a function of several arrays in a list: each array may be a list with tensors."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a tuple: in a list NumPy's lexsort sees no tensors.
        given = [(*map(_joined, x),) if type(x) is list or type(x) is tuple else x for x in args]
        return self.of(*given, **kwargs)


_OF_SEVERAL = frozenset(
    "choose column_stack concat concatenate dstack hstack lexsort multi_dot select stack vstack".split()
)
"""Functions that take several arrays in one list."""

_OF_NESTED = frozenset(("block", "piecewise", "histogramdd"))
"""Functions whose lists are more than arrays: they find the tensors there."""

_ROOMS = (np.linalg, np.fft)


def _stand_of(module: types.ModuleType, made: dict[str, Any], lists: bool) -> types.ModuleType:
    """A module with the names of one of NumPy's: `made`, or the module's own, which with `lists` take lists of tensors."""

    def find(name: str) -> Any:
        """The replacement of a name, made once and kept."""
        value = getattr(module, name)
        if not lists:
            return value
        if type(value) is types.ModuleType and value in _ROOMS:
            value = _stand_of(value, {}, True)
        elif name in _OF_SEVERAL:
            value = _TakingSeveral(value)
        elif type(value) is np.ufunc or (
            hasattr(value, "_implementation") and name not in _OF_NESTED
        ):
            value = _Taking(value)
        else:
            return value
        setattr(stand, name, value)
        return value

    stand = types.ModuleType(module.__name__, module.__doc__)
    stand.__dict__.update(made, __getattr__=find, __dir__=lambda: dir(module))
    return stand


def _for_numpys(name: str, made: Any) -> Any:
    """What is found under the name of a function of NumPy's, and is equal to it."""
    of = getattr(np, name)
    return StandIn(made, of) if type(made) is types.FunctionType else made


class Stand:
    """What stands for NumPy in a copied function: its module, and names of it by the identity of what they name."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self.made = {name: _for_numpys(name, made) for name, made in functions.items()}
        self.module = lru_cache(64)(self._module)
        """What stands for NumPy itself, by whether what is copied makes lists, and the names that stay NumPy's own."""
        self.functions = {id(getattr(np, name)): made for name, made in self.made.items()}
        self.names = functions.keys()

    def _module(self, lists: bool, plain: frozenset[str]) -> types.ModuleType:
        own = {name: getattr(np, name) for name in plain if hasattr(np, name)}
        return _stand_of(np, self.made | own, lists)

    def named(self, value: Any, names: frozenset[str]) -> bool:
        """Whether a function that finds this value, and mentions these names, finds something that is replaced."""
        return (value is np and not names.isdisjoint(self.names)) or id(value) in self.functions


JOINING, FILLING = Stand(JOINERS), Stand(MAKERS)


def is_source(value: Any) -> bool:
    """Whether a value is an array of which copies may be buffers."""
    return type(value) is np.ndarray and value.dtype.kind in "fc"


class Source:
    """What a function that fills buffers finds for an array of which it asks attributes alone: copies are buffers, too."""

    __slots__ = ("of",)

    def __init__(self, of: np.ndarray) -> None:
        self.of = of

    def copy(self, *args: Any, **words: Any) -> Any:
        return _buffer(self.of.copy(*args, **words))

    def astype(self, *args: Any, **words: Any) -> Any:
        made = self.of.astype(*args, **words)
        return made if made is self.of else _buffer(made)

    def flatten(self, *args: Any, **words: Any) -> Any:
        return _buffer(self.of.flatten(*args, **words))

    def __len__(self) -> int:
        return len(self.of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


def constant(value: Any) -> Any:
    """An array that an adopted function is given and not differentiated by: its copies are to be buffers, too, so it is a tensor."""
    if type(value) is not np.ndarray or value.dtype.kind not in "fc":
        return value
    array = storage.kept(value)
    array.flags.writeable = False  # the array is the caller's: a write by NumPy has to raise
    return wrap(array)


__all__ = ["plain_buffers"]
