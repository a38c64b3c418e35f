"""Saved values that a write is about to hit: each gets memory of its own first, so that its rule finds it as it was.

Inside a transform, under `tg.compile` and inside `allow_mutation_on_saved_tensors`, `keep` is called before memory is written to.
Each tape has an index (`Saved`): by the owner of the memory, the slots of the entries that saved a value lying there. A write copies the
values that lie in the rows it hits, each once however many entries saved it, and forgets these entries. A stand-in of a program that
is traced is no memory but a name, and another name for the old value costs nothing.

Invariant: each entry is looked at once when it is indexed, and once more when its value is copied, so that the cost is a constant per
entry and per copy, whatever the order of the writes. A write that is missed here is refused by the walk's check (storage.check).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from . import storage
from .primitive import OPS
from .tape import _TAPE, BIG, FREED, IN0, IN1, KW, OUT, SLOT, STRIDE, Slot, Tape, X, Y, current

ALLOWED: ContextVar[bool] = ContextVar("tapegrad.mutation", default=False)
"""Whether saved values may be overwritten outside of transforms, too."""

_END = 1 << 62
_VALUES = (X, Y, OUT)


class _Held:
    """Entries that saved values lying in one owner's memory: those not placed yet, and those whose rows are known."""

    __slots__ = ("fresh", "high", "low", "placed")

    def __init__(self) -> None:
        self.fresh: list[Slot] = []
        self.placed: list[tuple[int, int, Slot]] = []
        self.low, self.high = _END, 0


class Saved:
    """A tape's index; slots are copies, which keep no entry alive."""

    __slots__ = ("after", "end", "of")

    def __init__(self) -> None:
        self.after: Slot = 0
        """Entries up to this slot are in it: those before `end`, unless some were dropped since."""
        self.end = 0
        self.of: dict[int, _Held] = {}


def keep(array: Any, index: Any = None) -> None:
    """Before a write to an array, at an index or everywhere: entries that need a value there get a copy, where that is allowed."""
    inside = _TAPE.get()
    if (inside is None or inside.outer is None) and not ALLOWED.get() and storage.tracing.get() is None:  # fmt: skip
        return
    tape: Tape | None = current()
    root = storage.owner(array)
    rows: tuple[int, int] | None = None
    copies: dict[Any, Any] = {}
    while tape is not None:
        if tape.code:
            with tape.lock:
                held = _index(tape, root, copies).get(id(root))
                if held is not None and isinstance(root, storage.StandIn):
                    _rename(tape, held, root, copies)
                elif held is not None:
                    if rows is None:
                        rows = _bounds(
                            storage.rows_of(index if array is root else None, root), root
                        )
                    _save(tape, held, root, rows, copies)
        tape = tape.outer


# ---------------------------------------------------------------------------------------------------- the index


def _index(tape: Tape, written: Any, copies: dict[Any, Any]) -> dict[int, _Held]:
    """The tape's index, with every entry that was recorded since; of a value of a program, those get another name at once."""
    saved = tape.saved
    if saved is None:
        saved = tape.saved = Saved()
    code, of = tape.code, saved.of
    end, first = len(code), saved.end
    if first > end or (first and code[first - STRIDE + SLOT] != saved.after):  # some were dropped
        first = end
        while first and code[first - STRIDE + SLOT] > saved.after:
            first -= STRIDE
    if first == end:
        return of
    if len(_read) < len(OPS):
        _read.extend(map(_columns_read, OPS[len(_read) :]))
    # While a program is traced, what no rule needs is let go as well: a write would renew it.
    traced = storage.tracing.get() is not None
    if traced:
        _index_names(code, first, end, of, written, copies)
        first = end
    for k in range(first, end, STRIDE):
        columns = _read[code[k]]
        if columns:
            columns = columns[(code[k + IN0] is None) + 2 * (code[k + IN1] is None)]
        if not columns:
            continue
        for column in columns:
            value = code[k + column]
            kind = type(value)
            if kind is np.ndarray:
                base = value.base
                if base is None:
                    _add(of, value, code[k + SLOT])
                elif not value.ndim or any(value.strides):  # no shape token
                    _add(of, storage.owner(value), code[k + SLOT])
            elif kind is tuple or isinstance(value, np.ndarray):
                _add_all(of, value, code[k + SLOT])
        if columns is _VALUES:
            keeper = _keeper(code[k + KW])
            if keeper is not None:
                _add_all(of, keeper._held_values(), code[k + SLOT])
    saved.after = code[end - STRIDE + SLOT] + 0
    saved.end = end
    return of


def _index_names(
    code: list[Any],
    first: int,
    end: int,
    of: dict[int, _Held],
    written: Any,
    copies: dict[Any, Any],
) -> None:
    """Index entries of a program that is traced; those that have the value that is written to have another name for it from now on."""
    for column in _VALUES:
        k = first + column - STRIDE
        for value in code[first + column : end : STRIDE]:
            k += STRIDE
            kind = type(value)
            if kind in _NUMBERS:
                continue
            if issubclass(kind, storage.StandIn):
                if value.fixed:
                    continue
                root = value.memory()
                if root is written:
                    name = copies.get(id(value))
                    if name is None:
                        name = copies[id(value)] = value.frozen()
                    code[k] = name
                elif root is not None:
                    _add(of, root, code[k - column + SLOT])
            elif kind is tuple or issubclass(kind, np.ndarray):
                _add_all(of, value, code[k - column + SLOT])
    for k in range(first, end, STRIDE):
        if _read[code[k]] is not None and code[k + KW] is not None:
            keeper = _keeper(code[k + KW])
            if keeper is not None:
                _add_all(of, keeper._held_values(), code[k + SLOT])


_NUMBERS = frozenset((float, np.float64, type(None)))

_read: list[Any] = []
"""By the code of an op: the columns that its rules read where no operand is a constant, where the first is, the second, both are."""


def _columns_read(op: Any) -> Any:
    """An op's line of that table: None where it saves nothing, all columns where it does not tell what its rules read."""
    if not op.saves:
        return None
    if op.variadic or not any(op.needs):
        return (_VALUES,) * 4
    line = []
    for constants in range(4):
        names = set().union(*(needs for i, needs in enumerate(op.needs) if not constants >> i & 1))
        line.append(
            tuple(c for c, name in zip(_VALUES, ("x", "y", "out"), strict=True) if name in names)
        )
    return tuple(line)


def _columns(code: list[Any], k: int) -> tuple[int, ...]:
    """The columns that an entry's rules read."""
    line = _read[code[k]]
    return line[(code[k + IN0] is None) + 2 * (code[k + IN1] is None)] if line else ()


def _add(of: dict[int, _Held], root: Any, slot: Slot) -> None:
    held = of.get(id(root))
    if held is None:
        held = of[id(root)] = _Held()
    if not held.fresh or held.fresh[-1] != slot:
        held.fresh.append(slot + 0)


def _add_all(of: dict[int, _Held], value: Any, slot: Slot) -> None:
    for array in _arrays(value):
        _add(of, storage.owner(array), slot)


def _arrays(value: Any) -> Iterator[Any]:
    """The arrays in nested tuples."""
    if type(value) is tuple:
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, np.ndarray):
        yield value


def _keeper(settings: Any) -> storage.Keeper | None:
    """What an entry saved outside of its columns."""
    for setting in settings or ():
        if isinstance(setting, storage.Keeper):
            return setting
        if type(setting) is tuple:  # of an entry with hooks: those of the op that it was
            return _keeper(setting)
    return None


# ---------------------------------------------------------------------------------------------------- one write


def _save(
    tape: Tape, held: _Held, root: Any, rows: tuple[int, int], copies: dict[Any, Any]
) -> None:
    """Give the entries whose saved values a write to these rows hits their values in memory of their own."""
    code = tape.code
    low, high = rows
    for slot in held.fresh:
        position = tape.find(slot)
        if position is not None:
            place = _place(code, position * STRIDE, root)
            if place is not None:
                held.placed.append((*place, slot))
                held.low, held.high = min(held.low, place[0]), max(held.high, place[1])
    held.fresh.clear()
    if high <= held.low or held.high <= low:
        return
    hit = [slot for first, stop, slot in held.placed if first < high and low < stop]
    if not hit:
        return
    held.placed = [p for p in held.placed if not (p[0] < high and low < p[1])]
    held.low = min((p[0] for p in held.placed), default=_END)
    held.high = max((p[1] for p in held.placed), default=0)
    for slot in hit:
        position = tape.find(slot)
        if position is not None:
            _let_go(tape, position * STRIDE, root, copies)


def _rename(tape: Tape, held: _Held, root: Any, copies: dict[Any, Any]) -> None:
    """Give the entries that saved a value of a program that is traced another name for it: a write is one to all of it."""
    for slot in held.fresh:
        position = tape.find(slot)
        if position is not None:
            _let_go(tape, position * STRIDE, root, copies)
    held.fresh.clear()


def _place(code: list[Any], k: int, root: Any) -> tuple[int, int] | None:
    """The rows of the owner that an entry's saved values lie in; None where none does."""
    keeper = _keeper(code[k + KW])
    values = [code[k + column] for column in _columns(code, k)]
    if keeper is not None:
        values += keeper._held_values()
    low, high = _END, 0
    for value in _arrays(tuple(values)):
        if storage.owner(value) is root:
            first, stop = _bounds(storage.rows_of(value, root, is_place=True), root)
            low, high = min(low, first), max(high, stop)
    return (low, high) if low < _END else None


def _bounds(rows: Any, root: Any) -> tuple[int, int]:
    """First row and the one behind the last that an index of rows names; all for None."""
    if rows is None:
        return 0, _END
    n = root.shape[0]
    if type(rows) is slice:
        steps = range(n)[rows]
        return (min(steps[0], steps[-1]), max(steps[0], steps[-1]) + 1) if steps else (0, 0)
    if not isinstance(rows, np.ndarray):
        first = rows % n
        return first, first + 1
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows % n
    return (int(rows.min()), int(rows.max()) + 1) if rows.size else (0, 0)


def _let_go(tape: Tape, k: int, root: Any, copies: dict[Any, Any]) -> None:
    """Let an entry hold copies of the values that its rules read and that lie in this memory."""
    code = tape.code
    if code[k] == FREED:
        return
    read = _columns(code, k)
    for column in (k + X, k + Y, k + OUT):
        value = code[column]
        if value is not None and (column - k in read or isinstance(value, storage.StandIn | tuple)):
            code[column] = _apart(value, tape, root, copies)
    keeper = _keeper(code[k + KW])
    if keeper is not None:
        keeper._save_from_write(lambda value: _apart(value, tape, root, copies))


def _apart(value: Any, tape: Tape, root: Any, copies: dict[Any, Any]) -> Any:
    """The value with a copy in the place of each array whose memory is about to be overwritten.

    It is no function in `_let_go`: that would name itself, and keep the tape until the garbage collector comes.
    """
    if type(value) is tuple:
        return tuple([_apart(x, tape, root, copies) for x in value])
    if not isinstance(value, np.ndarray) or storage.owner(value) is not root:
        return value
    if isinstance(value, storage.StandIn):
        key: Any = id(value)
    else:
        key = (value.ctypes.data, value.shape, value.strides, value.dtype)
    copy = copies.get(key)
    if copy is None:
        copy = copies[key] = storage.old(value)
        if type(copy) is np.ndarray and copy.nbytes > BIG:
            tape.bytes += copy.nbytes
    return copy


__all__ = ["ALLOWED", "keep"]
