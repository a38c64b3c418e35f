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

from ..core.dual import holds_dual
from ..core.mode import is_grad_enabled
from ..core.primitive import CONSTANTS, FUNCTIONS, UFUNCS, missing, signature_of
from ..core.storage import tracing
from ..core.tape import current
from ..core.tensor import Tensor
from ..errors import GradientLost, NotDifferentiable, TapegradError, TraceError
from ..ops import statistics
from ..ops.composing import holds_tracked, plainly
from .inplace import before_write, store

_GENERAL: dict[str, Any] = {"reduce": statistics.folded, "accumulate": statistics.run}
"""Methods of other ufuncs of two operands, step by step."""


def ufunc_on_tensors(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], settings: dict[str, Any]
) -> Any:
    """`np.sin(t)`, `array * t`, `np.add.reduce(t)`: one call of a ufunc with a tensor among its arguments."""
    if not tracked_in((inputs, settings)):
        if method == "at" and isinstance(inputs[0], Tensor):
            before_write(inputs[0], f"np.{ufunc.__name__}.at", inputs[1:])
        return plainly(getattr(ufunc, method), inputs, settings)
    if ufunc in CONSTANTS and method == "__call__":
        return plainly(ufunc, inputs, settings)
    function = UFUNCS.get(ufunc)
    if function is None:
        raise missing(ufunc, _describe(inputs))
    settings = {k: v for k, v in settings.items() if not _is_default(k, v)}
    if "out" in settings:
        return _into(ufunc, method, inputs, settings)
    if method == "__call__" and not settings:
        return function(*inputs)
    # Without `out`, what stands where the mask is false is whatever was in memory.
    if method == "__call__" and settings.keys() <= {"dtype", "casting"}:
        return _restricted(ufunc, inputs, settings)
    if method == "outer":
        x, y = inputs
        if not isinstance(x, Tensor):
            x = np.asarray(x)
        x = np.reshape(x, np.shape(x) + (1,) * np.ndim(y))
        return ufunc(x, y, **settings)
    if method == "at":
        return statistics.at(ufunc, *inputs)
    named = ("indices", "axis", "dtype") if method == "reduceat" else ("axis", "dtype")
    given = {"axis": 0, **dict(zip(named, inputs[1:], strict=False)), **settings}
    given = {k: v for k, v in given.items() if k == "axis" or not _is_default(k, v)}
    of_method = statistics.OF_UFUNCS.get(method, {}).get(ufunc)
    if of_method is not None and given.keys() <= inspect.signature(of_method).parameters.keys():
        return of_method(inputs[0], **given)
    of_method = _GENERAL.get(method) if ufunc.nin == 2 and ufunc.nout == 1 else None
    if of_method is not None and given.keys() <= inspect.signature(of_method).parameters.keys():
        return of_method(inputs[0], **given, ufunc=ufunc)
    call = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    raise NotDifferentiable(
        f"{call} was called on a tracked tensor with {', '.join(settings) or 'its arguments'}, but there is no derivative "
        "rule for that form. Write it with plain operators and functions (np.where for where=, astype for dtype=), "
        "or use t.detach() where no gradient is wanted."
    )


def _restricted(ufunc: np.ufunc, inputs: Any, settings: dict[str, Any], before: Any = None) -> Any:
    """A ufunc's call with `dtype` (its operands are cast) or `where` (elsewhere stands what was there `before`)."""
    dtype, where = settings.get("dtype"), settings.get("where", True)
    if dtype is not None:
        kind = np.dtype(dtype)
        casting = settings.get("casting", "same_kind")
        for x in inputs:
            given = x.dtype if isinstance(x, Tensor | np.ndarray | np.generic) else kind
            if not np.can_cast(given, kind, casting):
                raise TypeError(
                    f"np.{ufunc.__name__}(..., dtype={kind}) was asked of an operand of dtype {given}, which the casting rule "
                    f"{casting!r} does not allow: cast the operand with astype."
                )
        inputs = [x.astype(kind) if isinstance(x, Tensor) else np.asarray(x, kind) for x in inputs]
    if where is True:
        return ufunc(*inputs)
    # NumPy does not compute where the mask is false, and warns of nothing there.
    with np.errstate(all="ignore"):
        value = ufunc(*inputs)
    mask = where._value if isinstance(where, Tensor) else where
    return np.where(mask, value, before)


def _into(ufunc: np.ufunc, method: str, inputs: Any, settings: dict[str, Any]) -> Any:
    """A call whose result is stored into tensors, as `target[...] = result`: computed first, so that operands may share memory."""
    out = settings.pop("out")
    targets = out if isinstance(out, tuple) else (out,)
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if len(targets) != 1:
        raise NotDifferentiable(
            f"{name}(..., out=...) was asked to write several tracked results. Use the results: a, b = {name}(...)."
        )
    (target,) = targets
    if "where" in settings and method == "__call__":
        result = _restricted(ufunc, inputs, settings, target)
    else:
        result = ufunc_on_tensors(ufunc, method, inputs, settings)
    return stored(name, target, result, exactly=method != "__call__")


def stored(name: str, target: Any, result: Any, exactly: bool = True) -> Any:
    """`target[...] = result`, for `out=`; returns the target. `exactly`: the result is not broadcast."""
    if not isinstance(target, Tensor):
        raise GradientLost(
            f"{name} was asked to write a tracked result into {_describe(target)} (an in-place operator "
            "of a plain array, or out=), which would not be tracked. Write the operation without it "
            "(array = array + t), or make the buffer a tensor: tg.zeros(...), or tg.tensor(array) for values that are there; "
            "inside a transform np.copy(array) is one, too, where array.copy() may be a plain array.",
            name="plain-array",
        )
    pairs = zip(reversed(np.shape(result)), reversed(target.shape), strict=False)
    unlike = np.ndim(result) > target.ndim or any(n not in (1, m) for n, m in pairs)
    if unlike or (exactly and np.shape(result) != target.shape):
        raise ValueError(
            f"{name}(..., out=...) was given a tensor of shape {target.shape} for a result of shape {np.shape(result)}: "
            "make it of the result's shape."
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise TypeError(
            f"{name}(..., out=...) was given a tensor of dtype {target.dtype} for a result of dtype {result.dtype}, which NumPy "
            "does not cast: make the buffer of the result's dtype."
        )
    store(target, Ellipsis, result)
    return target


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
    from ..ops import special

    _special_known.append(bool(special))


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's hook for its other functions; a call that says no more than its rule knows goes straight there."""
    ours = FUNCTIONS.get(function)
    if kwargs and kwargs.get("out") is not None and ours is not None:
        return _function_into(function, args, kwargs)
    if ours is not None:
        if (len(args) == 1 and not kwargs and type(args[0]) is Tensor) or hasattr(ours, "operands"):
            return ours(*args, **kwargs)
        _, _, aligned, known = _signatures(function, ours)
        if len(args) <= aligned and kwargs.keys() <= known:
            return ours(*args, **kwargs)
    elif function in _PROPERTIES and len(args) == 1 and not kwargs and type(args[0]) is Tensor:
        return _PROPERTIES[function](args[0]._value)
    return function_on_tensors(function, args, kwargs)


def _function_into(function: Any, args: Any, kwargs: Any) -> Any:
    """A call with `out=`: the result stored into it."""
    out = kwargs["out"]
    targets = out if isinstance(out, tuple) else (out,)
    if not tracked_in((args, kwargs)) or len(targets) != 1:
        return function_on_tensors(function, args, kwargs)
    rest = {k: v for k, v in kwargs.items() if k != "out"}
    return stored(f"np.{function.__name__}", targets[0], function(*args, **rest))


_PROPERTIES: dict[Any, Any] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
}
"""Questions that rules ask all the time, answered without a look at settings."""


Tensor.__array_ufunc__ = _array_ufunc  # type: ignore[method-assign, assignment]
Tensor.__array_function__ = _array_function  # type: ignore[method-assign, assignment]


_MEMORY = (np.shares_memory, np.may_share_memory)

_FILES = (np.save, np.savez, np.savez_compressed, np.savetxt)
"""Functions that write files; values that are read back from a file have no gradient."""


def function_on_tensors(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.sum(t, axis=0)`: one call of a NumPy function with a tensor somewhere among its arguments."""
    ours = FUNCTIONS.get(function)
    tracked = tracked_in((args, kwargs))
    if function in CONSTANTS or (ours is None and not tracked):
        if function in _MEMORY and tracing.get() is not None:
            raise TraceError(
                f"np.{function.__name__} was asked of values of the program that tg.compile traces, but whether arrays share memory is no "
                "matter of the program (the next call's may). Ask before, and pass the answer as an argument.",
                name="frozen-value",
            )
        if tracked and function in _FILES and current().outer is not None:
            raise GradientLost(
                f"np.{function.__name__} was asked inside a transform to write a tensor that is differentiated, but what is read back "
                "would not be connected to it. Write t.detach() if no gradient is wanted, and go on with t itself."
            )
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
                f"np.{function.__name__}(..., out=...) was asked of a tensor, but a plain array cannot be tracked. Use the result.",
                name="plain-array",
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
