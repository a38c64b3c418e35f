"""Finding what went wrong: where the entry that failed was recorded, and where the first NaN came from.

Both modes look at each entry on its way to the tape (`tape.Attended`): anomaly mode notes the stack, `debug_nans` looks at the value.
While anomaly mode is on, `sweep.pull` is guarded besides: an error, or a NaN among the cotangents it returns, is reported with the stack
of the forward call. Off, neither costs anything: the recorder is then the tape's own `extend`.

The data: `_traces`, from a copy of a slot to where its entry was recorded. A copy keeps no entry alive; traces of dead entries are
dropped when their number has doubled.

Both modes belong to the thread or task that switches them on, where PyTorch's anomaly mode is the process's.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from ..core import sweep, tape
from ..core.frames import level_of_user, users
from ..core.mode import attend
from ..core.primitive import NAMES, OPS, entry_name
from ..core.tape import ATTENDING, IN0, IN1, KW, OP, OUT, SLOT, STRIDE, Leaf, Slot, X, Y
from ..errors import GraphError, NotFinite, demand_bool
from .saving import original

_Place = tuple[CodeType, int]


class _Trace(NamedTuple):
    """Where an entry was recorded; `induced_by` tells of the entry whose walk recorded it, if a walk did."""

    places: tuple[_Place, ...]
    induced_by: tuple[str, _Trace | None] | None


_traces: dict[Slot, _Trace] = {}
_limit = 1024

_WALKED: ContextVar[tuple[str, _Trace | None] | None] = ContextVar("tapegrad.walked", default=None)
"""The entry whose rule is applied now, in this context."""

_STATE: ContextVar[tuple[bool, bool]] = ContextVar("tapegrad.anomaly", default=(False, True))


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread or task.

    >>> import tapegrad as tg
    >>> tg.is_anomaly_enabled()
    False
    """
    return _STATE.get()[0]


def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN in a backward output raises while anomaly mode is on.

    >>> import tapegrad as tg
    >>> tg.is_anomaly_check_nan_enabled()
    True
    """
    return _STATE.get()[1]


def _set(mode: bool, check_nan: bool) -> None:
    _STATE.set((mode, check_nan))
    sweep.GUARD.set((_guarded if check_nan else _reported) if mode else None)
    lookers, rewrite = ATTENDING.get()
    others = [look for look in lookers if look is not _note]
    attend([*others, _note] if mode else others, rewrite)


class set_detect_anomaly:
    """Switch anomaly mode on or off: at once when called, until the block ends when used with `with`.

    >>> import tapegrad as tg
    >>> with tg.autograd.set_detect_anomaly(True):
    ...     tg.is_anomaly_enabled()
    True
    >>> tg.is_anomaly_enabled()
    False
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        demand_bool(mode, "mode")
        self._before = _STATE.get()
        _set(bool(mode), check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


class detect_anomaly:
    """Context in which a backward that fails tells where the forward call was that it belongs to.

    Entries recorded inside note their stack; an error in a rule, and (with `check_nan`) a NaN among the cotangents that a rule
    returns, is reported with it as a warning, and raised. Slow: for debugging.

    >>> import warnings
    >>> import numpy as np
    >>> import tapegrad as tg
    >>> x = tg.tensor(float("nan"), requires_grad=True)
    >>> with warnings.catch_warnings(action="ignore"), tg.autograd.detect_anomaly():
    ...     np.sqrt(x).backward()
    Traceback (most recent call last):
    tapegrad.errors.GraphError: Function 'SqrtBackward0' returned nan values in its 0th output...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = _STATE.get()
        _set(True, self._check_nan)

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


# ------------------------------------------------------------------------------------------------ forward: where


def _note(entry: tuple[Any, ...]) -> None:
    """Note where an entry is recorded."""
    global _limit
    if len(_traces) > _limit:
        alive = tape.recorded()
        for slot in [slot for slot in list(_traces) if slot not in alive]:
            _traces.pop(slot, None)
        _limit = max(1024, 2 * len(_traces))
    _traces[entry[SLOT] + 0] = _Trace(tuple(_places(sys._getframe(2))), _WALKED.get())


def _places(frame: FrameType | None) -> Sequence[_Place]:
    """Code and line of the user's frames, the outermost first."""
    return [(frame.f_code, frame.f_lineno) for frame in users(frame)][::-1]


def _text(trace: _Trace) -> str:
    lines = [(c.co_filename, line, c.co_name, None) for c, line in trace.places]
    return "".join(traceback.StackSummary.from_list(lines).format())


# ------------------------------------------------------------------------------------------------ backward: what


def _reported(code: list[Any], position: int, g: Any, record: bool = False) -> Any:
    """`sweep.pull`, with a report if it fails, or if what it needs was overwritten."""
    k = position * STRIDE
    name = entry_name(code[k : k + STRIDE])
    trace = _traces.get(code[k + SLOT])
    token = _WALKED.set((name, trace))
    try:
        sweep.check_overwritten(code, k)
        return sweep.pull(code, position, g, record)
    except Exception:
        _report(name, trace)
        raise
    finally:
        _WALKED.reset(token)


def _guarded(code: list[Any], position: int, g: Any, record: bool = False) -> Any:
    """The same, and an error if a cotangent that it returns holds a NaN."""
    pairs = _reported(code, position, g, record)
    k = position * STRIDE
    # In the order of the operands, without those for which a Function returned None.
    numbered = enumerate(sweep.operands(code, k))
    for node, cotangent in pairs:
        i = next(i for i, operand in numbered if operand is node)
        value = getattr(cotangent, "_value", cotangent)
        if np.isnan(value).any():
            name = entry_name(code[k : k + STRIDE])
            trace = _traces.get(code[k + SLOT])
            _report(name, trace)
            raise GraphError(
                f"Function '{name}' returned nan values in its {i}th output"
                + (f", of shape {np.shape(value)}" if np.ndim(value) else "")
                + ". Look at the forward call it belongs to: at a value that is NaN, or where the derivative is not defined.",
                name="not-finite",
            )
    return pairs


def _report(name: str, trace: _Trace | None) -> None:
    """Warn where the forward call was that a failed backward belongs to, and which calls induced that one."""
    if trace is None:
        text = (
            f"Error detected in {name}. No forward pass information available. Enable detect anomaly during forward pass for "
            "more information."
        )
    else:
        text = f"Error detected in {name}. Traceback of forward call that caused the error:\n{_text(trace)}"
        while trace is not None and trace.induced_by is not None:
            name, trace = trace.induced_by
            text += f"\nPrevious calculation was induced by {name}. "
            text += (
                "No forward pass information available."
                if trace is None
                else f"Traceback of forward call that induced the previous calculation:\n{_text(trace)}"
            )
    warnings.warn(text, UserWarning, stacklevel=level_of_user())


# ------------------------------------------------------------------------------------------------ the first NaN


class debug_nans(contextlib.ContextDecorator):
    """Context that stops at the first recorded operation whose value holds a NaN or infinity, with NotFinite.

    The error names the operation, its operands with their values at that place, and the line. `inf=False` lets infinities pass,
    for programs that use them on purpose. Only recorded operations are looked at: those on something that requires grad.

    >>> import tapegrad as tg
    >>> x = tg.tensor([4.0, -1.0], requires_grad=True)
    >>> with np.errstate(invalid="ignore"), tg.debug_nans():
    ...     np.sqrt(x)
    Traceback (most recent call last):
    tapegrad.errors.NotFinite: sqrt made nan at [1] of a result of shape (2,)...
    """

    def __init__(self, *, inf: bool = True) -> None:
        self._inf = inf

    def _recreate_cm(self) -> debug_nans:
        return debug_nans(inf=self._inf)  # one for each call of a decorated function

    def __enter__(self) -> None:
        self._before = _finite(_Finite(self._inf))

    def __exit__(self, *exc: object) -> None:
        _finite(self._before)


def _finite(look: _Finite | None) -> _Finite | None:
    """Let this one, or none, look at values; returns who did before."""
    lookers, rewrite = ATTENDING.get()
    before = next((other for other in lookers if isinstance(other, _Finite)), None)
    others = [other for other in lookers if other is not before]
    attend(others if look is None else [look, *others], rewrite)
    return before


class _Finite:
    """Looks at the value of each entry."""

    def __init__(self, inf: bool) -> None:
        self.inf = inf

    def __call__(self, entry: tuple[Any, ...]) -> None:
        out = entry[OUT]
        wrong = ~np.isfinite(out) if self.inf else np.isnan(out)
        if np.any(wrong):
            raise NotFinite(_account(entry, np.asarray(wrong)))


def _account(entry: tuple[Any, ...], wrong: np.ndarray) -> str:
    """What was made, from what, and where."""
    op, out = OPS[entry[OP]], np.asarray(entry[OUT])
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    at = f" at {list(index)} of a result of shape {out.shape}" if out.ndim else ""
    count = int(np.count_nonzero(wrong))
    more = f" ({count} of {out.size} elements are not finite)" if count > 1 else ""
    nodes = entry[IN0] if type(entry[IN0]) is tuple else (entry[IN0], entry[IN1])[: op.arity]
    values = entry[X] if type(entry[IN0]) is tuple else (entry[X], entry[Y])[: op.arity]
    names = NAMES if op.elementwise or not op.variadic else [f"xs[{i}]" for i in range(len(values))]
    operands = [
        f"  {name} = {_operand(node, value, index, out.shape, op.elementwise)}"
        for name, node, value in zip(names, nodes, values, strict=False)
    ]
    settings = [f"  {n} = {v!r}" for n, v in zip(op.settings, entry[KW] or (), strict=False)]
    places = _places(sys._getframe(1))
    where = ""
    if places:
        code, line = places[-1]
        where = f"in {code.co_name}, {code.co_filename}, line {line}: {linecache.getline(code.co_filename, line).strip()}\n"
    return (
        f"{op.name} made {out[index]}{at}{more}, while debug_nans is on:\n"
        + "\n".join([*operands, *settings])
        + f"\n{where}Keep the operands where {op.name} is finite (np.where on the operand, a clip, a small constant added), or let "
        "infinities pass with debug_nans(inf=False)."
    )


def _operand(
    node: Any, value: Any, index: tuple[int, ...], shape: tuple[int, ...], elementwise: bool
) -> str:
    """An operand: its value at the place, its shape, what made it, and whether it was not finite itself."""
    array = np.asarray(value)
    text = ""
    if elementwise and array.ndim:
        text = f"{np.broadcast_to(array, shape)[index]} there, "
    elif not array.ndim:
        text = f"{array[()]}, "
    text += f"{array.dtype}{list(array.shape)}, {_origin(node)}"
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        text += ", not finite itself"
    return text


def _origin(node: Any) -> str:
    if node is None:
        return "a constant"
    if type(node) is Leaf:
        return "a leaf"
    place = tape.locate(node)
    if place is None:
        return "a result"
    found, position = place
    k = position * STRIDE
    op, _, _ = original(found.code[k + OP], found.code[k + KW])
    return f"the result of {op.name}"


__all__ = [
    "debug_nans", "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly",
]  # fmt: skip
