"""NumPy's side of the door: what happens when a tensor is handed to a function of NumPy.

Three cases, and no fourth: the function has a rule here (it is evaluated and recorded); its result carries no derivative (it
is evaluated on the values); anything else is evaluated while no tensor among the arguments is tracked,
and refused when one is. A value never leaves the tape unnoticed.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from .errors import GradientLost, NotDifferentiable
from .mode import is_grad_enabled
from .ops import reductions
from .primitive import CONSTANTS, FUNCTIONS, UFUNCS, missing
from .tensor import Tensor, wrap

_REDUCE = {np.add: reductions.sum, np.multiply: reductions.prod, np.maximum: reductions.max, np.minimum: reductions.min}
_ACCUMULATE = {np.add: reductions.cumsum}


def ufunc_on_tensors(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """`np.sin(t)`, `array * t`, `np.add.reduce(t)`: one call of a ufunc with a tensor among its arguments."""
    if not tracked_in((inputs, settings)):
        return _plainly(getattr(ufunc, method), inputs, settings)
    if ufunc in CONSTANTS and method == "__call__" and "out" not in settings:
        return _plainly(ufunc, inputs, settings)
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
    table = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {})
    if ufunc in table and set(settings) <= {"axis", "keepdims"}:
        return table[ufunc](*inputs[:1], **{"axis": inputs[1] if len(inputs) > 1 else 0, **settings})
    call = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    raise NotDifferentiable(
        f"{call} was called on a tracked tensor with {', '.join(settings) or 'its arguments'}, but there is no derivative "
        "rule for that form. Write it with plain operators and functions (np.where for where=, astype for dtype=), "
        "or use t.detach() where no gradient is wanted."
    )


def function_on_tensors(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.sum(t, axis=0)`: one call of a NumPy function with a tensor somewhere among its arguments."""
    ours = FUNCTIONS.get(function)
    tracked = tracked_in((args, kwargs))
    if function in CONSTANTS or (ours is None and not tracked):
        return _plainly(function, args, kwargs)
    if ours is None:
        raise missing(function, _describe(args))
    args, kwargs = _adapted(function, ours, args, kwargs, tracked)
    return ours(*args, **kwargs)


def _adapted(function: Any, ours: Any, args: Any, kwargs: Any, tracked: bool) -> Any:
    """Arguments of NumPy's function for ours: the ones NumPy gives its own default are left out."""
    op = getattr(ours, "primitive", None)
    if op is None or (op.variadic and not kwargs and len(args) <= 2):
        return args, kwargs
    known = {*op.settings}
    if len(args) <= op.arity and kwargs.keys() <= known:
        return args, kwargs
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        defaults = {p.name: p.default for p in inspect.signature(function).parameters.values()}
    except (TypeError, ValueError):
        return args, kwargs
    names = list(bound.arguments)
    operands = [bound.arguments[n] for n in names[: op.arity]]
    settings = {}
    for name in names[op.arity :]:
        value = bound.arguments[name]
        if name in known:
            settings[name] = value
        elif not (value is defaults[name] or value is np._NoValue):  # type: ignore[attr-defined]
            if name == "out":
                raise GradientLost(
                    f"np.{function.__name__}(..., out=...) was asked of a tensor, but a plain array cannot be tracked. Use the result."
                )
            raise NotDifferentiable(
                f"np.{function.__name__}(..., {name}=...) was asked of a tensor, but its rule knows only "
                f"{', '.join(sorted(known)) or 'no settings'}. Write it another way (np.where for where=, astype for dtype=)."
            )
    return operands, settings


def _is_default(name: str, value: Any) -> bool:
    return value is None or (name == "where" and value is True) or (name == "casting" and value == "same_kind")


def tracked_in(value: Any) -> bool:
    """Whether a tracked tensor hides anywhere in nested arguments, while ops are recorded."""
    return _holds_tracked(value) and is_grad_enabled()


def _holds_tracked(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._node is not None
    if isinstance(value, tuple | list):
        return any(_holds_tracked(v) for v in value)
    if isinstance(value, dict):
        return any(_holds_tracked(v) for v in value.values())
    return False


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._data
    if isinstance(value, tuple | list):
        return type(value)(_unwrapped(v) for v in value)
    if isinstance(value, dict):
        return {k: _unwrapped(v) for k, v in value.items()}
    return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_wrapped(v) for v in value)
    if isinstance(value, list):
        return [_wrapped(v) for v in value]
    return wrap(value)


def _plainly(function: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's own evaluation on the values; arrays come back as tensors. `out=` tensors are written to, with a note."""
    from .inplace import before_write

    out = kwargs.get("out")
    for target in out if isinstance(out, tuple) else (out,):
        if isinstance(target, Tensor):
            before_write(target, f"{getattr(function, '__name__', function)}(out=)")
    result = function(*_unwrapped(args), **_unwrapped(kwargs))
    if isinstance(out, tuple) and len(out) == 1:
        return out[0]
    return _wrapped(result) if out is None else out


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_describe(v) for v in value)
    if isinstance(value, Tensor):
        return f"tensor of shape {value.shape}"
    return f"{type(value).__name__} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}.")
    for _ in range(n):
        before = (slice(None),) * (axis % np.ndim(a))
        a = a[(*before, slice(1, None))] - a[(*before, slice(None, -1))]
    return a


FUNCTIONS[np.diff] = _diff
FUNCTIONS.setdefault(np.var, reductions.var)
FUNCTIONS.setdefault(np.std, reductions.std)
