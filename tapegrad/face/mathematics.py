"""Python's `math` and `cmath` with tensors, in a function that is differentiated or compiled.

Functions of these modules take plain numbers and give plain numbers, so no gradient gets through them. Here is what stands for them in the
copy of such a function (`face/adoption.py` makes the copy): given a tracked tensor of one number, a function gives what the op of the same
meaning gives. Where the plain function raises, for a number out of its domain or too large, so does this one; only inside a trace, where
the number is not known, the result is NumPy's NaN or infinity.

Invariant: given no tracked tensor, each function is the plain one.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
import re
import types
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from ..core import storage
from ..core.tensor import Tensor
from .standing import StandIn


def _special(name: str) -> Callable[[Any], Any]:
    """A function of `tg.special`, which is imported when it is called."""

    def of(x: Any) -> Any:
        from .. import special

        return getattr(special, name)(x)

    return of


def _log(x: Any, *base: Any) -> Any:
    return np.log(x) / np.log(base[0]) if base else np.log(x)


def _length(*numbers: Any) -> Any:
    return functools.reduce(np.hypot, numbers) if numbers[1:] else np.abs(numbers[0])


_SHARED = "acos acosh asin asinh atan atanh cos cosh exp log10 sin sinh sqrt tan tanh".split()
_OF_REALS = "cbrt copysign degrees exp2 expm1 fabs fmod ldexp log1p log2 modf radians".split()


def _numpys(names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """NumPy's functions that mean what names of `math` mean."""
    return {name: getattr(np, re.sub("^a", "arc", name)) for name in names}


def _of_complex(of: Callable[..., Any]) -> Callable[..., Any]:
    # A complex number stays: adding 0j would take the sign off a zero, which says on which side of a cut the number is.
    return lambda z, *rest: of(z if np.iscomplexobj(z) else z + 0j, *rest)


def _remainder(x: Any, y: Any) -> Any:
    """What is left of x beside the nearest multiple of y; `fmod` is exact, and then the multiple is one of five."""
    left = np.fmod(x, 2 * y)
    return left if np.isinf(y) else left - np.rint(left / y) * y


def _sum(numbers: Iterable[Any]) -> Any:
    """The sum with what each addition loses, whose derivative is 0 (Knuth's TwoSum)."""
    total: Any = 0.0
    lost: Any = 0.0
    for x in numbers:
        before, total = total, total + x
        with np.errstate(invalid="ignore"):  # of infinities nothing is lost
            taken = total - before
            lost = lost + ((before - (total - taken)) + (x - taken))
    return total + lost if np.isfinite(total) else total


def _whole(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: int(of(x))


def _answer(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: bool(of(x))


def _is_close(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    near = np.abs(a - b) <= np.maximum(rel_tol * np.maximum(np.abs(a), np.abs(b)), abs_tol)
    return bool(a == b) or bool(near & np.isfinite(a) & np.isfinite(b))


_ANSWERS = {name: _answer(getattr(np, name)) for name in ("isfinite", "isinf", "isnan")}
_MATH: dict[str, Callable[..., Any]] = (
    _numpys([*_SHARED, *_OF_REALS])
    | _ANSWERS
    | {
        "atan2": np.arctan2,
        "ceil": _whole(np.ceil),
        "dist": lambda p, q: _length(*(a - b for a, b in zip(p, q, strict=True))),
        "erf": _special("erf"),
        "erfc": _special("erfc"),
        "floor": _whole(np.floor),
        "fma": lambda x, y, z: x * y + z,
        "fsum": _sum,
        "gamma": _special("gamma"),
        "hypot": _length,
        "isclose": _is_close,
        "lgamma": _special("gammaln"),
        "log": _log,
        "pow": np.power,
        "prod": lambda numbers, *, start=1: functools.reduce(operator.mul, numbers, start),
        "remainder": _remainder,
        "sumprod": lambda p, q: _sum(map(operator.mul, p, q)),
        "trunc": _whole(np.trunc),
    }
)
_CMATH: dict[str, Callable[..., Any]] = {
    name: _of_complex(of) for name, of in _numpys(_SHARED).items()
} | {
    **_ANSWERS,
    "isclose": _is_close,
    "log": _of_complex(_log),
    "phase": np.angle,
    "polar": lambda z: (np.abs(z), np.angle(z)),
    "rect": lambda r, phi: r * np.exp(1j * phi),
}


def _is_followed(x: Any) -> bool:
    """Whether a number is differentiated, or traced."""
    if isinstance(x, Tensor):
        return x._node is not None or isinstance(x._value, storage.StandIn)
    return isinstance(x, storage.StandIn)


def _plain(x: Any) -> Any:
    """An argument as the plain function takes it: a number, or a list of numbers."""
    if type(x) is list:
        return [*map(_plain, x)]
    value = np.asarray(x.detach()) if isinstance(x, Tensor) else x
    return value.item() if isinstance(x, Tensor) and value.ndim == 0 else value


def one_number(x: Any) -> Any:
    """An argument without axes; the plain functions take arrays of one number."""
    if type(x) is list:
        return [*map(one_number, x)]
    if not _is_followed(x) or x.ndim == 0:
        return x
    if x.size != 1:
        raise TypeError(
            f"only arrays of one number can be converted to Python scalars, not one of shape {x.shape}."
        )
    return np.reshape(x, ())


def _standing(of: Callable[..., Any], meaning: Callable[..., Any]) -> StandIn:
    """What stands for a function: the function itself, but for numbers that are followed."""

    @functools.wraps(of)
    def call(*args: Any, **kwargs: Any) -> Any:
        if meaning in _OF_ITERABLES:
            args = tuple(
                x if isinstance(x, int | float) else [*x] for x in args
            )  # to be read twice
        followed = any(
            any(map(_is_followed, x)) if type(x) is list else _is_followed(x) for x in args
        )
        if not followed:
            return of(*args, **kwargs)
        if storage.tracing.get() is None:
            of(*map(_plain, args), **kwargs)
        return meaning(*map(one_number, args), **kwargs)

    return StandIn(call, of)


_OF_ITERABLES = frozenset(_MATH[name] for name in ("dist", "fsum", "prod", "sumprod"))


class _Module:
    """What stands for the functions of a module."""

    def __init__(self, module: types.ModuleType, meanings: dict[str, Callable[..., Any]]) -> None:
        self.made = {
            name: _standing(getattr(module, name), meaning)
            for name, meaning in meanings.items()
            if hasattr(module, name)
        }
        self.of = module
        self.functions = {id(getattr(module, name)): made for name, made in self.made.items()}
        self.without = lru_cache(64)(self._without)

    def _without(self, plain: frozenset[str]) -> types.ModuleType:
        """The module with what stands for its functions, but for those which some names say."""
        stand = types.ModuleType(self.of.__name__, self.of.__doc__)
        stand.__dict__.update(
            vars(self.of) | {name: made for name, made in self.made.items() if name not in plain}
        )
        return stand


_MODULES = {id(module.of): module for module in (_Module(math, _MATH), _Module(cmath, _CMATH))}
_FUNCTIONS = {key: made for module in _MODULES.values() for key, made in module.functions.items()}


def is_known(value: Any) -> bool:
    """Whether a value is one of the modules, or a function of theirs that something stands for."""
    return id(value) in _MODULES or id(value) in _FUNCTIONS


def is_named(value: Any, names: frozenset[str]) -> bool:
    """Whether a function that finds this value, and mentions these names, finds a function that something stands for."""
    module = _MODULES.get(id(value))
    return id(value) in _FUNCTIONS if module is None else not names.isdisjoint(module.made)


def standing(value: Any, plain: frozenset[str]) -> Any:
    """What stands for a module, without the names that stay its own, or for a function; None where nothing does."""
    module = _MODULES.get(id(value))
    return _FUNCTIONS.get(id(value)) if module is None else module.without(plain)
