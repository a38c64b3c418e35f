"""NumPy's side of the door: what happens when a tensor is handed to a function of NumPy.

Three cases, and no fourth: the function has a rule here (it is evaluated and recorded); its result carries no derivative (it
is evaluated on the values); anything else is evaluated while no tensor among the arguments is tracked,
and refused when one is. A value never leaves the tape unnoticed.
"""

from __future__ import annotations

import inspect
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from .dual import holds_dual
from .errors import GradientLost, NotDifferentiable, TapegradError
from .inplace import before_write
from .mode import is_grad_enabled
from .ops import reductions, selection, statistics
from .ops.composing import holds_tracked, plainly
from .primitive import CONSTANTS, FUNCTIONS, UFUNCS, missing, signature_of
from .tensor import Tensor

_METHODS = {
    "reduce": {
        np.add: statistics.sum,
        np.multiply: statistics.prod,
        np.maximum: selection.max,
        np.minimum: selection.min,
        np.fmax: selection.largest,
        np.fmin: selection.smallest,
        np.logaddexp: reductions.logsumexp,
    },
    "accumulate": {
        np.add: reductions.cumsum,
        np.multiply: statistics.cumprod,
        np.maximum: selection.accumulated(np.maximum),
        np.minimum: selection.accumulated(np.minimum),
    },
    "reduceat": {np.add: statistics.sums_between},
    "at": {np.add: statistics.add_at, np.subtract: statistics.subtract_at},
}
"""Methods of ufuncs: what does it here."""


def ufunc_on_tensors(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], settings: dict[str, Any]
) -> Any:
    """`np.sin(t)`, `array * t`, `np.add.reduce(t)`: one call of a ufunc with a tensor among its arguments."""
    if not tracked_in((inputs, settings)):
        if method == "at" and isinstance(inputs[0], Tensor):
            before_write(inputs[0], f"np.{ufunc.__name__}.at", inputs[1:])
        return plainly(getattr(ufunc, method), inputs, settings)
    if ufunc in CONSTANTS and method == "__call__" and "out" not in settings:
        return plainly(ufunc, inputs, settings)
    function = UFUNCS.get(ufunc)
    if function is None:
        raise missing(ufunc, _describe(inputs))
    if settings.get("out") is not None:
        raise GradientLost(
            f"np.{ufunc.__name__} was asked to write a tracked result into {_describe(settings['out'])} (an in-place operator "
            "of a plain array, or out=), which would not be tracked. Write the operation without it "
            "(array = array + t), or make the buffer a tensor: tg.zeros(...)."
        )
    settings = {k: v for k, v in settings.items() if not _is_default(k, v)}
    if method == "__call__" and not settings:
        return function(*inputs)
    if method == "outer" and not settings:
        x, y = inputs
        return function(np.reshape(x, np.shape(x) + (1,) * np.ndim(y)), y)
    of_method = _METHODS.get(method, {}).get(ufunc)
    if of_method is not None and settings.keys() <= inspect.signature(of_method).parameters.keys():
        return of_method(*inputs, **({} if method == "at" else {"axis": 0, **settings}))
    call = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    raise NotDifferentiable(
        f"{call} was called on a tracked tensor with {', '.join(settings) or 'its arguments'}, but there is no derivative "
        "rule for that form. Write it with plain operators and functions (np.where for where=, astype for dtype=), "
        "or use t.detach() where no gradient is wanted."
    )


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
    """NumPy's hook for ufuncs; the plain call of one with a rule goes straight to it."""
    if method == "__call__" and not settings:
        function = UFUNCS.get(ufunc)
        if function is not None:
            return function(*inputs)
    if "scipy.special" in sys.modules and not _special_known:
        _learn_special()
        return _array_ufunc(self, ufunc, method, *inputs, **settings)
    return ufunc_on_tensors(ufunc, method, inputs, settings)


_special_known: list[bool] = []


def _learn_special() -> None:
    """Declare SciPy's special functions: once, when a ufunc without a rule is met and they may be it."""
    from .ops import special

    _special_known.append(bool(special))


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's hook for its other functions; a call that says no more than its rule knows goes straight there."""
    ours = FUNCTIONS.get(function)
    if ours is not None:
        if (len(args) == 1 and not kwargs and type(args[0]) is Tensor) or hasattr(ours, "operands"):
            return ours(*args, **kwargs)
        _, _, aligned, known = _signatures(function, ours)
        if len(args) <= aligned and kwargs.keys() <= known:
            return ours(*args, **kwargs)
    elif function in _PROPERTIES and len(args) == 1 and not kwargs and type(args[0]) is Tensor:
        return _PROPERTIES[function](args[0]._value)
    return function_on_tensors(function, args, kwargs)


_PROPERTIES: dict[Any, Any] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
}
"""What rules ask for all the time."""


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[method-assign]
Tensor.__array_function__ = _array_function  # type: ignore[method-assign]


def function_on_tensors(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.sum(t, axis=0)`: one call of a NumPy function with a tensor somewhere among its arguments."""
    ours = FUNCTIONS.get(function)
    tracked = tracked_in((args, kwargs))
    if function in CONSTANTS or (ours is None and not tracked):
        return plainly(function, args, kwargs)
    if ours is None:
        raise missing(function, _describe(args))
    if not hasattr(ours, "operands"):  # a composition knows all of NumPy's arguments itself
        try:
            args, kwargs = _adapted(function, ours, args, kwargs)
        except TapegradError:
            if tracked:
                raise
            return plainly(function, args, kwargs)
    return ours(*args, **kwargs)


def _adapted(function: Any, ours: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments of NumPy's function for ours: settings that say what NumPy does anyway are left out, others refused."""
    theirs, arity, aligned, known = _signatures(function, ours)
    if theirs is None or (len(args) <= aligned and kwargs.keys() <= known):
        return args, kwargs
    bound = theirs.bind(*args, **kwargs).arguments
    names = list(bound)
    settings = {}
    for name in names[arity:]:
        value = bound[name]
        if name in known:
            if value is not np._NoValue:  # type: ignore[attr-defined]
                settings[name] = value
        elif name == "out" and value is not None:
            raise GradientLost(
                f"np.{function.__name__}(..., out=...) was asked of a tensor, but a plain array cannot be tracked. Use the result."
            )
        elif not _says_nothing(value, theirs.parameters[name]):
            raise NotDifferentiable(
                f"np.{function.__name__}(..., {name}=...) was asked of a tensor, but its rule knows only "
                f"{', '.join(sorted(known)) or 'no settings'}. Write it another way (np.where for where=, astype for dtype=)."
            )
    return [bound[n] for n in names[:arity]], settings


@lru_cache(512)
def _signatures(function: Any, ours: Any) -> tuple[Any, int, int, frozenset[str]]:
    """NumPy's signature; of ours the number of required arguments, of those in NumPy's positions, and the settings' names."""
    try:
        theirs = signature_of(function)
    except (TypeError, ValueError):
        return None, 0, 0, frozenset()
    op = getattr(ours, "primitive", None)
    mine = list(inspect.signature(ours if op is None else op.function).parameters.values())
    if op is not None:  # other names of its settings, which no call of NumPy's has
        mine = [p for p in mine if p.kind is not p.VAR_KEYWORD]
    if any(
        p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in mine
    ):  # it takes NumPy's arguments as they come
        return None, 0, 0, frozenset()
    arity = sum(p.default is p.empty for p in mine)
    aligned = arity
    for ours_too, name in zip(mine[arity:], list(theirs.parameters)[arity:], strict=False):
        if ours_too.name != name or ours_too.kind is ours_too.KEYWORD_ONLY:
            break
        aligned += 1
    return theirs, arity, aligned, frozenset(p.name for p in mine[1:])


def _says_nothing(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether an argument is what NumPy assumes where it is left out, or makes no difference to tensors."""
    if parameter.name == "subok":  # whether subclasses of arrays stay such
        return True
    if parameter.kind is parameter.VAR_KEYWORD:
        return all(_is_default(n, v) for n, v in value.items())
    default = parameter.default
    return (
        value is default
        or value is np._NoValue
        or (type(value) is type(default) and value == default)
    )  # type: ignore[attr-defined]


_DEFAULTS = {
    "out": None, "dtype": None, "where": True, "casting": "same_kind", "order": "K", "subok": True, "signature": None,
    "keepdims": False,
}  # fmt: skip


def _is_default(name: str, value: Any) -> bool:
    """Whether a ufunc's setting says what NumPy does without it (axis=None is no such: it means all axes)."""
    return name in _DEFAULTS and (
        value is _DEFAULTS[name] or (type(value) is str and value == _DEFAULTS[name])
    )


def tracked_in(value: Any) -> bool:
    """Whether a tensor whose derivative is followed hides anywhere in nested arguments: tracked, while ops are recorded, or dual."""
    return holds_tracked(value) and (is_grad_enabled() or holds_dual(value))


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_describe(v) for v in value)
    if isinstance(value, Tensor):
        return f"tensor of shape {value.shape}"
    return (
        f"{type(value).__name__} of shape {value.shape}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )
