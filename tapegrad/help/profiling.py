"""`tg.profile`: where a program's time and memory go, op by op, forward and backward, by line of the user's code.

While a profile runs, each generated function of an op has other code: the same parameters, around a call of its own code with a clock
before and behind it. Reverse walks go through the sweep, whose step for one entry is timed in the same way (`sweep.GUARD`); compiled and
native functions are timed call by call. When the last profile ends, everything has its own code again, and costs what it did.

Invariant: time is *own* time: what an op spends in another op counts there, so times add up. Times of ops are process-wide; reverse walks
are those of the thread, or task, that entered the profile.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import Token
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

from ..core import locks, markup, seams, sweep
from ..core.frames import users
from ..core.primitive import OPS, WHEN_DECLARED, Primitive, entry_name
from ..core.tape import FREED, KW, OP, SLOT, STRIDE, namespace
from ..core.tensor import Tensor
from ..transforms.derivatives import _Direct

P = ParamSpec("P")
R = TypeVar("R")

MOST_EVENTS = 200_000
"""Calls that a profile keeps one by one, for the trace; totals are of all."""


class Row(NamedTuple):
    """What one op, compiled program or native function did at one line: calls, seconds, and bytes of results and of cotangents."""

    where: str
    name: str
    calls: int
    forward: float
    backward: float
    bytes: int
    backward_bytes: int

    @property
    def seconds(self) -> float:
        """Forward and backward together."""
        return self.forward + self.backward


class Profile:
    """What `tg.profile` measured; prints as a table, the costliest rows first.

    A context that may be entered again: what comes is added. `rows` are the figures, `table()` their text, `by_line()` and `by_op()` sums,
    and `chrome_trace(path)` writes the calls for chrome://tracing, Perfetto or speedscope.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], list[float]] = {}
        self._events: list[tuple[str, str, str, float, float, int, int]] = []
        self._left_out = 0
        self._lines: dict[Any, str] = {}
        self._entered: list[tuple[float, Token[Any]]] = []
        self.seconds = 0.0

    def __call__(self, f: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: the function, whose calls are measured; its attribute `profile` is this profile."""
        if not callable(f):
            raise TypeError(
                f"profile was given {type(f).__name__}, which is no function: write `with tg.profile() as p:`, or decorate a function."
            )

        @functools.wraps(f)
        def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return f(*args, **kwargs)

        profiled.profile = self  # type: ignore[attr-defined]
        return profiled

    def __enter__(self) -> Profile:
        walk = sweep.GUARD.get() or sweep.pull
        guard = functools.partial(self._walked, walk)
        if walk is sweep.pull:
            guard.region = self._region  # type: ignore[attr-defined]
        token = sweep.GUARD.set(guard)
        self._entered.append((time.perf_counter(), token))
        _begin(self)
        return self

    def __exit__(self, *exc: object) -> None:
        start, token = self._entered.pop()
        self.seconds += time.perf_counter() - start
        _end(self)
        sweep.GUARD.reset(token)

    # ------------------------------------------------------------------------------------ noting

    def _note(
        self, way: str, where: str, name: str, size: int, start: float, own: float, whole: float
    ) -> None:
        """Add one call to the totals of its line and op, and to the trace."""
        total = self._totals.setdefault((where, name), [0, 0.0, 0.0, 0, 0])
        if way == "backward":
            total[2] += own
            total[4] += size
        else:
            total[0] += 1
            total[1] += own
            total[3] += size
        if len(self._events) < MOST_EVENTS:
            self._events.append((way, where, name, start, whole, size, threading.get_ident()))
        else:
            self._left_out += 1

    def _walked(
        self, walk: Callable[..., Any], code: Any, position: int, g: Any, record: bool = False
    ) -> Any:
        """`sweep.pull`, with a clock; or the guard that stood in its place."""
        k = position * STRIDE
        if walk is sweep.pull:
            sweep.check_overwritten(code, k)
        pairs, *times = _clock(walk, code, position, g, record)
        self._walk_noted(code, k, times, sum(_nbytes(cotangent) for _, cotangent in pairs))
        return pairs

    def _region(self, code: Any, k: int, *rest: Any) -> None:
        """The step of an op that reads or replaces a region, in place."""
        _, *times = _clock(sweep._pull_region, code, k, *rest)
        self._walk_noted(code, k, times, 0)

    def _walk_noted(self, code: Any, k: int, times: list[float], size: int) -> None:
        name = entry_name(code[k : k + STRIDE]) if code[k + OP] == FREED else OPS[code[k + OP]].name
        where = self._lines.get(code[k + SLOT], "")
        if name == "native_call":  # which goes by the name of its function, as forward
            name = _native_name(code[k + KW][0].function)
            where = where or _line(sys._getframe(1))
        self._note("backward", where, name, size, *times)

    # ------------------------------------------------------------------------------------ telling

    @property
    def rows(self) -> list[Row]:
        """A row for each op at each line, the costliest first."""
        found = [
            Row(where, name, int(n), fwd, back, int(size), int(back_size))
            for (where, name), (n, fwd, back, size, back_size) in self._totals.items()
        ]
        return sorted(found, key=lambda row: -row.seconds)

    def by_line(self) -> list[Row]:
        """The rows of each line together; the name lists its ops."""
        return self._grouped(lambda row: row.where, lambda rows: (rows[0].where, _names(rows)))

    def by_op(self) -> list[Row]:
        """The rows of each op together, whatever the line."""
        return self._grouped(lambda row: row.name, lambda rows: ("", rows[0].name))

    def _grouped(self, key: Callable[[Row], str], head: Callable[[list[Row]], Any]) -> list[Row]:
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(key(row), []).append(row)
        sums = [
            Row(*head(rows), *(sum(column) for column in list(zip(*rows, strict=True))[2:]))
            for rows in groups.values()
        ]
        return sorted(sums, key=lambda row: -row.seconds)

    def table(self, by: str = "both", limit: int = 30) -> str:
        """The costliest rows as text; `by` is "both" (op and line), "line" or "op"."""
        rows, head, foot = self._cells(by, limit)
        return "\n".join([*markup.aligned([head, *rows], 2), *foot])

    def _cells(self, by: str, limit: int) -> tuple[list[list[str]], list[str], list[str]]:
        """The table as cells, its heading, and the lines below it."""
        ways = {"both": lambda: self.rows, "line": self.by_line, "op": self.by_op}
        if by not in ways:
            raise ValueError(
                f"a profile was asked by {by!r}, but it is told by 'both' (op and line), 'line' or 'op': write one of these."
            )
        rows = ways[by]()
        head = ["where", "op", "calls", "forward ms", "backward ms", "bytes", "bytes back"]
        cells = [
            [
                row.where or "-",
                row.name,
                str(row.calls),
                f"{1e3 * row.forward:.3f}",
                f"{1e3 * row.backward:.3f}",
                _size(row.bytes),
                _size(row.backward_bytes),
            ]
            for row in rows[:limit]
        ]
        measured = sum(row.seconds for row in rows)
        foot = [f"{1e3 * self.seconds:.1f} ms in all, {1e3 * measured:.1f} ms of it in these ops"]
        if len(rows) > limit:
            foot.append(f"{len(rows) - limit} more rows: table(limit={len(rows)})")
        if self._left_out:
            foot.append(f"the trace has the first {MOST_EVENTS:,} calls; {self._left_out:,} are in the totals only")  # fmt: skip
        return cells, head, foot

    def __repr__(self) -> str:
        return self.table() if self._totals else "<profile: nothing was measured yet>"

    def _repr_html_(self) -> str | None:
        if not self._totals:
            return None
        cells, head, foot = self._cells("both", 30)
        return markup.table([*cells, *([line] for line in foot)], head)

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the calls as JSON in Chrome's trace format: a bar for each call, by thread; reverse steps have the category "backward"."""
        events = [
            {
                "name": name,
                "cat": way,
                "ph": "X",
                "ts": 1e6 * start,
                "dur": 1e6 * whole,
                "pid": os.getpid(),
                "tid": thread,
                "args": {"line": where, "bytes": size},
            }
            for way, where, name, start, whole, size, thread in self._events
        ]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), "utf-8")


@overload
def profile() -> Profile: ...
@overload
def profile(f: Callable[P, R]) -> Callable[P, R]: ...
def profile(f: Any = None) -> Any:
    """Measure time, calls and bytes of each op, forward and backward, by line: `with tg.profile() as p: ...; print(p)`.

    As a decorator (`@tg.profile` or `@tg.profile()`) it measures every call of the function, and adds up in the function's attribute
    `profile`. Compiled programs and native functions are rows of their own, call by call. `fast.profile(x)` of a compiled function times
    each of its loop nests; `explain()` of a native one tells what its derivative consists of. While a profile runs, reverse walks go
    through the sweep, one op at a time, and each op takes a few microseconds longer.

    >>> import numpy as np, tapegrad as tg
    >>> with tg.profile() as p:
    ...     g = tg.grad(lambda x: np.sum(np.sin(x)))(np.ones(1000))
    >>> [(row.name, row.calls, row.bytes) for row in sorted(p.by_op(), key=lambda row: row.name)]
    [('sin', 1, 8000), ('sum', 1, 8)]
    """
    return Profile() if f is None else Profile()(f)


# ------------------------------------------------------------------------------------------- other code for ops

_lock = locks.lock()
_active: list[Profile] = []
_own: dict[FunctionType, CodeType] = {}
_replaced: list[tuple[Any, str, Any]] = []
_timed: dict[CodeType, tuple[CodeType, FunctionType]] = {}
_local = threading.local()


def _stack() -> list[float]:
    """Seconds spent in inner ops, for each op that is running in this thread."""
    try:
        return _local.stack
    except AttributeError:
        _local.stack = []
        return _local.stack


def _names_of_running() -> list[str]:
    """The ops that run in this thread, the innermost last."""
    try:
        return _local.names
    except AttributeError:
        _local.names = []
        return _local.names


def _begin(profile: Profile) -> None:
    with _lock:
        _active.append(profile)
        if len(_active) == 1:
            try:
                _switch_on()
            except BaseException:  # Ctrl-C as well: all or nothing is timed
                _active.remove(profile)
                _switch_off()
                raise


def _end(profile: Profile) -> None:
    with _lock:
        _active.remove(profile)
        if not _active:
            _switch_off()


def _switch_on() -> None:
    """Put clocks into the functions of all ops, into native functions and compiled programs."""
    from ..replay import operators

    for name, generated in operators.replaced.items():
        _replace(Tensor, name, generated)
    for function, name in _functions():
        _own[function] = function.__code__
        function.__code__ = _with_clock(function, name)
    native = sys.modules.get("tapegrad.native.function")
    if native is not None:
        kind = native.NativeFunction
        _replace(kind, "__call__", _clocked(kind.__call__, _native_name))
    _replace(_Direct, "first", _clocked_first)
    for direct in list(_Direct.alive):
        direct.known = None, None
    compiler = sys.modules.get("tapegrad.compiler")
    if compiler is not None:
        for kind in {compiler.Compiled, *map(type, compiler.ALIVE)}:
            if "__call__" in vars(kind):  # others have not been called yet
                _replace(kind, "__call__", timed_program(vars(kind)["__call__"]))
    seams.clock = timed_program


def _declared(op: Primitive) -> None:
    """An op whose module is loaded while a profile runs is timed, too."""
    if _active and isinstance(op.function, FunctionType):
        _own[op.function] = op.function.__code__
        op.function.__code__ = _with_clock(op.function, op.name)


WHEN_DECLARED.append(_declared)


def _switch_off() -> None:
    seams.clock = None
    for function, code in _own.items():
        function.__code__ = code
    _own.clear()
    while _replaced:
        owner, name, (mine, before) = _replaced.pop()
        if vars(owner).get(name) is mine:
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _replace(owner: Any, name: str, value: Any) -> None:
    before = vars(owner).get(name)
    setattr(owner, name, value)
    _replaced.append((owner, name, (value, before)))


def _functions() -> Iterator[tuple[FunctionType, str]]:
    """The generated functions of all ops, and those of operators, with the names of the ops."""
    seen = set()
    for op in OPS[1:]:
        if isinstance(op.function, FunctionType) and op.function not in seen:
            seen.add(op.function)
            yield op.function, op.name
    for value in list(vars(Tensor).values()):
        if isinstance(value, FunctionType) and value not in seen:
            file = value.__code__.co_filename
            if file.startswith("<tapegrad op "):
                seen.add(value)
                yield value, file[len("<tapegrad op ") : -1].partition(".")[0].partition(" ")[0]


def _with_clock(function: FunctionType, name: str) -> CodeType:
    """Code with the parameters of the function, which runs its own code between two looks at the clock."""
    own = function.__code__
    if own not in _timed:
        original = FunctionType(own, namespace, function.__name__, function.__defaults__)
        original.__kwdefaults__ = function.__kwdefaults__
        names = own.co_varnames
        n, m = own.co_argcount, own.co_kwonlyargcount
        listed, passed = list(names[:n]), list(names[:n])
        if own.co_flags & 0x04:
            listed.append(f"*{names[n + m]}")
            passed.append(f"*{names[n + m]}")
        elif m:
            listed.append("*")
        listed += names[n : n + m]
        passed += [f"{name}={name}" for name in names[n : n + m]]
        if own.co_flags & 0x08:
            last = names[n + m + bool(own.co_flags & 0x04)]
            listed.append(f"**{last}")
            passed.append(f"**{last}")
        key = f"profiled_{len(_timed)}"
        namespace[key] = functools.partial(_run, original, name)
        text = f"def timed({', '.join(listed)}):\n    return {key}({', '.join(passed)})\n"
        scope: dict[str, Any] = {}
        exec(compile(text, f"<tapegrad profile {name}>", "exec"), namespace, scope)
        # Under the function's own name, which a lambda's is not fit to be written.
        _timed[own] = scope["timed"].__code__.replace(co_name=function.__name__), original
    return _timed[own][0]


def _clock(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float, float, float]:
    """What a call returns, when it began, and its own and its whole seconds."""
    inner = _stack()
    inner.append(0.0)
    start = time.perf_counter()
    try:
        result = call(*args, **kwargs)
    finally:
        whole = time.perf_counter() - start
        own = whole - inner.pop()
        if inner:
            inner[-1] += whole
    return result, start, own, whole


def _run(original: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """One call of an op, or of a function that stands for itself, noted by every profile that runs."""
    names = _names_of_running()
    if (
        names and names[-1] == name
    ):  # PyTorch's words of a setting have been put into NumPy's: it is one call
        return original(*args, **kwargs)
    names.append(name)
    try:
        result, *times = _clock(original, *args, **kwargs)
    finally:
        names.pop()
    if isinstance(result, Tensor) or " " in name:  # of arrays alone an op is NumPy's function
        where = _line(sys._getframe(2))
        node = getattr(result, "_node", None)
        for profile in list(_active):
            if node is not None:
                profile._lines[node] = where
            profile._note("forward", where, name, _nbytes(result), *times)
    return result


def _clocked(call: Callable[..., Any], name: Callable[[Any], str]) -> Callable[..., Any]:
    """A `__call__` that is noted, under a name that its object has."""

    def clocked(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A native entry is a built-in function, which a class does not bind.
        bound = functools.partial(call, self) if isinstance(call, FunctionType) else call
        return _run(bound, name(self), *args, **kwargs)

    return clocked


def timed_program(call: Callable[..., Any]) -> Callable[..., Any]:
    """The `__call__` of a compiled function, noted; for the compiler, whose functions get a direct entry while a profile runs."""
    return _clocked(call, lambda f: f"compiled {f.programs.name}")


_first = _Direct.first


def _clocked_first(self: _Direct, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Value and gradient of a native function by one call of its machine code, noted as backward."""
    result, *times = _clock(_first, self, args, kwargs)
    self.known = None, None  # the next call comes here, too
    if result is NotImplemented:
        return result
    value, gradient = result
    where, name = _line(sys._getframe(1)), _native_name(self.f)
    for profile in list(_active):
        profile._note("forward", where, name, _nbytes(value), times[0], 0.0, 0.0)
        profile._note("backward", where, name, _nbytes(gradient), *times)
    return result


def _native_name(function: Any) -> str:
    return f"njit {function.__name__}"


def running() -> bool:
    """Whether some profile runs."""
    return bool(_active)


def _line(frame: FrameType | None) -> str:
    """The innermost line of the user's."""
    for user in users(frame):
        return f"{_short(user.f_code.co_filename)}:{user.f_lineno} {user.f_code.co_name}"
    return ""


@functools.cache
def _short(file: str) -> str:
    """A file as seen from the working folder, if it lies there; its name alone elsewhere."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file if file.startswith("<") else Path(file).name


def _nbytes(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(map(_nbytes, value))
    size = getattr(value, "nbytes", 8 if isinstance(value, int | float) else 0)
    return size if isinstance(size, int) else 0


def _names(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(row.name for row in rows))


def _size(n: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 10_000:
            return f"{n} {unit}"
        n = round(n / 1000)
    return f"{n} TB"


__all__ = ["Profile", "Row", "profile"]
