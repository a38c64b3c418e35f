"""What keeps the arrays on the tape as they were when recorded.

The tape keeps raw arrays; if one is changed afterwards, a derivative computed from it would be wrong without a word. Two
ways lead there, and each has its guard:

A tensor is changed in place. Every in-place operation calls `touch`, which notes for the array's memory the slot that
was current, and which rows were written; an entry whose rule needs a value of these rows checks that the note is older than the
entry. So a buffer that a loop fills row by row may be read on the way. Nothing is stored per entry: arrays that are never
overwritten cost nothing.

A plain array that was a constant of an op is changed by its owner, which nobody would notice. So the tape keeps a copy of
small ones, and `kept` locks big ones: they are read-only until the last entry that needs them is gone.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from sys import getrefcount
from typing import Any

import numpy as np

from ..errors import GraphError, TraceError
from . import locks
from .tape import BIG, Slot, new_slot


class StandIn:
    """Base of what stands for an array while `tg.compile` traces a program (compiler/tracing.py); `isinstance` takes it for one."""

    __slots__ = ()

    fixed: bool
    """Whether no write can reach it, as that of a number or of an argument."""

    def entry(self, index: Any) -> Any:
        """What is read at an index of whole numbers, if that is a number; None where it is something else."""
        raise NotImplementedError

    def entries_of(self, array: np.ndarray, index: Any) -> Any:
        """`array[index]` for an index that holds this value, a mask or places."""
        raise NotImplementedError

    def put(self, index: Any, stored: Any) -> bool:
        """Store a number at an index of whole numbers, if nobody else can see the memory; whether it is done."""
        raise NotImplementedError

    def strong(self) -> Any:
        """The value as an array (a Python number is none)."""
        return self

    def python_number(self) -> Any:
        """The number as Python's own."""
        raise NotImplementedError

    def duplicate(self) -> Any:
        """A copy."""
        raise NotImplementedError

    def frozen(self) -> Any:
        """The value as it is now, which no write in place reaches."""
        raise NotImplementedError

    def memory(self) -> Any:
        """The array that a write to the value's memory is a write to, as a stand-in; None for a number."""
        raise NotImplementedError

    def admit(self, t: Any) -> None:
        """Make tensor `t` one that such a value can be written to."""
        raise NotImplementedError

    def place_in(self, root: Any) -> Any:
        """The index by which it is a part of `root`; an empty one for all of it."""
        raise NotImplementedError

    def copied_by(self, t: Any) -> None:
        """Tensor `t` has entries of it, which NumPy would show: a write is an error from now on, as long as that lives."""
        raise NotImplementedError

    def shares(self, other: Any) -> bool:
        """Whether it is a part of `other`, which sees what is written to it."""
        return False

    def lying(self) -> Any:
        """An array that lies in memory as the value does in this run; None where it is in C order.

        What a store reaches after that may depend on the layout of arguments.
        """
        raise NotImplementedError

    def layout_told(self) -> None:
        """Note that the program chooses by the layout of the value in memory."""
        raise NotImplementedError

    def guarded(self) -> Any:
        """The value, of which the program is told by a guard; itself in the step of a loop, which takes none."""
        raise NotImplementedError

    def any(self) -> Any:
        """Whether an entry is true."""
        raise NotImplementedError

    def number(self) -> bool:
        """Whether it stands for a number, which has no memory that could be written to."""
        return False

    def alike(self, other: Any) -> bool:
        """Whether both are surely numbers of one dtype; `other` is of the same class."""
        return False

    def seen(self) -> Any:
        """The value in this run, for a look at its type and shape."""
        raise NotImplementedError

    def called(self, function: Any, args: Any, name: str) -> Any:
        """`function(*args)` as one call of the program; its results are stand-ins."""
        raise NotImplementedError


tracing: ContextVar[Any] = ContextVar("tapegrad.tracing", default=None)
"""The trace, where a program is being traced in this context: then walks are made by the sweep, which NumPy's names suffice."""


def demand_no_trace(what: str) -> None:
    """Raise TraceError inside `tg.compile`, whose later calls would be given the solution of the first."""
    if tracing.get() is not None:
        raise TraceError(
            f"{what} was asked inside tg.compile for a solution that depends on the arguments, but the solver's steps are no part "
            "of a program. Compile the functions that the solver calls (it does so by itself), and leave the solver outside.",
            name="outside-program",
        )


def computed(index: Any) -> Iterator[StandIn]:
    """The parts of an index that a program computes."""
    parts = index if type(index) is tuple else (index,)
    return (part for part in parts if isinstance(part, StandIn))


def as_array(value: Any, dtype: Any = None) -> Any:
    """`np.asarray(value, dtype)`; a stand-in, which holds no memory that NumPy could read, stays one."""
    if isinstance(value, StandIn):
        value = value.strong()
        return value if dtype is None or value.dtype == dtype else value.astype(dtype)
    if isinstance(value, list | tuple) and any(isinstance(x, StandIn) for x in value):
        return as_array(np.stack([as_array(x) for x in value]), dtype)
    return np.asarray(value, dtype)


def is_number(value: Any) -> bool:
    """Whether a tensor's value is a number, as NumPy's sums and elements are, and no array: in place it can only be replaced."""
    return value.number() if isinstance(value, StandIn) else not isinstance(value, np.ndarray)


def never(condition: Any, guard: bool = False) -> bool:
    """Whether truth values are known to be False everywhere, so that a rule may leave out what it does for such entries.

    While a program is traced nothing is known of its values: it runs for other arguments as well, and a look at a value would be a
    guard, which makes the program good for such values alone and which a compiled loop refuses. `isinstance` takes a stand-in for an
    array. With `guard` there is a look where the trace takes guards: for what is left out is dear, and few programs meet such entries.
    """
    if guard and isinstance(condition, StandIn):
        condition = condition.any().guarded()
    kind = type(condition)
    if kind is np.ndarray:
        return not condition.any()
    return (kind is np.bool_ or kind is bool) and not condition


def duplicate(value: Any) -> Any:
    """`np.array(value)`; of a stand-in a stand-in."""
    return value.duplicate() if isinstance(value, StandIn) else np.array(value)


def packed(value: Any, order: str = "C") -> bool:
    """Whether the entries lie in memory without gaps, in the order of rows or, for "F", of columns; a number's do."""
    value = value.lying() if isinstance(value, StandIn) else value
    if not isinstance(value, np.ndarray):
        return True
    return value.flags.f_contiguous if order == "F" else value.flags.c_contiguous


def axes_in_memory(value: Any) -> tuple[int, ...] | None:
    """The axes of a copy (`np.copy`) from the outermost in memory to the innermost; None for C order."""
    value = value.lying() if isinstance(value, StandIn) else value
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.flags.c_contiguous:
        return None
    axes = tuple(sorted(range(value.ndim), key=lambda i: -abs(value.strides[i])))
    return None if axes == tuple(range(value.ndim)) else axes


def twin(array: np.ndarray) -> np.ndarray:
    """A copy that lies in memory as the array does: its axes in the same order, forwards or backwards, with gaps or stretched.

    Whether a reshape of it, or of what is computed from it, is a view, which a store reaches, follows from that.
    """
    if array.flags.c_contiguous or array.flags.f_contiguous or not array.size:
        return np.array(array)
    item = array.itemsize
    strides = [0] * array.ndim
    first = 0  # the byte of the first entry
    end, room = (
        item,
        item,
    )  # where the next axis begins if there is no gap: in the array, and in the copy
    for stride, last in sorted((abs(s), -i) for i, s in enumerate(array.strides) if s):
        n = array.shape[-last]
        if n == 1:
            continue
        room += item * (stride != end)  # one entry stands for a gap of any length
        backwards = array.strides[-last] < 0
        strides[-last] = -room if backwards else room
        first += backwards * room * (n - 1)
        end, room = stride * n, room * n
    memory: np.ndarray = np.empty(room // item, array.dtype)
    made: np.ndarray = np.ndarray(array.shape, array.dtype, memory, first, strides)
    # Stretched axes come last: an entry is written as often as it is shown, each time the same.
    made[...] = array
    made.flags.writeable = 0 not in array.strides
    return made


class Lent:
    """Base of what owns memory that is no array's, and shows it in one array: nobody else can reach that memory."""

    __slots__ = ()


def _count_of_lone() -> int:
    lone = object()
    return getrefcount(lone)


LONE = _count_of_lone()
"""`getrefcount(v)` where nobody has the object but a local variable v."""


def owns(value: Any) -> bool:
    """Whether it is an array that nobody can write to who does not hold the array itself."""
    return (
        type(value) is np.ndarray
        and (value.base is None or isinstance(value.base, Lent))
        and value.flags.writeable
    )


class _Lock:
    """One owner's memory: how many kept views of it there are, and the arrays made read-only, the owner first."""

    __slots__ = ("arrays", "count")

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.count = 0


_locks: dict[int, _Lock] = {}
_locking = locks.rlock()


def kept(array: np.ndarray) -> np.ndarray:
    """The value of a user's array, safe from later changes: a copy if small, else a view that locks it while it lives.

    What NumPy would lock for ever is copied too: memory of another library, or a writeable view with strides of its own.
    """
    if isinstance(array, StandIn):
        return array
    if array.nbytes <= BIG:
        return twin(array)
    root = owner(array)
    if any(member.flags.writeable and not _opens_again(member) for member in (root, array)):
        return twin(array)
    view = array.view()
    view.flags.writeable = False
    with _locking:
        lock = _locks.setdefault(id(root), _Lock())
        lock.count += 1
        for member in (root, array):
            if member.flags.writeable:
                member.flags.writeable = False
                lock.arrays.append(member)
    weakref.finalize(view, _unlock, root).atexit = False
    return view


def may_change(array: np.ndarray) -> bool:
    """Whether somebody can write to an array, now or when what locks it is gone.

    A view stays open where its owner is locked by way of another view.
    """
    root = owner(array)
    return array.flags.writeable or root.flags.writeable or id(root) in _locks


def _unlock(root: np.ndarray) -> None:
    with _locking:
        lock = _locks[id(root)]
        lock.count -= 1
        if not lock.count:
            del _locks[id(root)]
            for member in lock.arrays:
                member.flags.writeable = True


class _Note:
    """What was written to one owner's memory: how often, and at which slot to each of its rows for the last time."""

    __slots__ = ("count", "everywhere", "most", "n", "ref", "rows", "slot", "writes")

    def __init__(self, ref: weakref.ref[np.ndarray], root: Any) -> None:
        self.ref = ref
        self.count = 0
        self.slot = 0
        self.everywhere: Slot = 0  # when all of it was written to
        self.n = root.shape[0] if root.ndim and root.size and root.flags.c_contiguous else 0
        self.most = 2 * self.n + 1000  # writes after which they are told by row
        # Writes not yet in `rows`, each with its index; other threads may append while one takes them.
        self.writes: deque[tuple[Slot, Any]] = deque()
        self.rows: Any = None

    def latest(self, index: Any) -> Slot:
        """Slot of the last write to the rows that an index picks."""
        if not self.n:
            return self.everywhere
        self.settle()
        if self.rows is None:
            return self.everywhere
        index = _rows(index)
        if type(index) is int:
            return max(self.everywhere, self.rows.item(index))
        return max(self.everywhere, int(np.max(self.rows[index], initial=0)))

    def settle(self) -> None:
        """Take the single writes into `rows`."""
        if self.writes and self.rows is None:
            with _locking:
                if self.rows is None:
                    self.rows = np.zeros(self.n, np.int64)
        while self.writes:
            slot, index = self.writes.popleft()
            index = _rows(index)
            self.rows[index] = np.maximum(self.rows[index], slot)


def _rows(index: Any) -> Any:
    """The index of rows that an index of an array of any number of axes begins with; all rows where that cannot be told."""
    first = (index[0] if index else ...) if type(index) is tuple else index
    if type(first) in (int, slice) or isinstance(first, np.integer):
        return first
    if type(first) is np.ndarray and (first.dtype.kind in "iu" or first.dtype == bool):
        return first if first.ndim == 1 else slice(None)
    return slice(None)


def _place_in(array: Any, root: Any) -> Any:
    """The row, or the slice of rows, of `root` that a view of it lies in."""
    if array is root:
        return slice(None)
    if isinstance(array, StandIn):
        return array.place_in(root)
    row = root.nbytes // root.shape[0]
    begin = root.ctypes.data
    if array.flags.c_contiguous:
        low = array.ctypes.data
        high = low + array.nbytes
    else:
        low, high = np.lib.array_utils.byte_bounds(array)
    first, stop = (low - begin) // row, -((begin - high) // row)
    return first if stop == first + 1 else slice(first, stop)


class Keeper:
    """Base of settings that hold saved values of an entry beside its columns (a Function's context, packed values)."""

    __slots__ = ()

    def _held_values(self) -> tuple[Any, ...]:
        """The arrays."""
        raise NotImplementedError

    def _save_from_write(self, apart: Callable[[Any], Any]) -> None:
        """Put `apart(array)` in the place of each: memory of its own, where a write is about to hit it."""
        raise NotImplementedError


def old(value: Any) -> Any:
    """The value as it is now, which no write reaches: a copy; of a stand-in another name."""
    return value.frozen() if isinstance(value, StandIn) else np.array(value)


def rows_of(index: Any, root: Any, is_place: bool = False) -> Any:
    """The rows of an owner's array that an index names, or that a value lies in (`is_place`); None where that cannot be told."""
    if index is None or not (root.ndim and root.size and root.flags.c_contiguous):
        return None
    return _rows(_place_in(index, root) if is_place else index)


_notes: dict[int, _Note] = {}
_latest: Slot = 0


def latest_overwrite() -> Slot:
    """Slot after which nothing has been overwritten: younger entries need no check."""
    return _latest


def overwrites_since(slot: Slot) -> list[tuple[int, Slot]] | None:
    """Address of each owner overwritten after `slot`, with the slot of the last time; None where native code could not tell them.

    It follows plain arrays only, so memory owned by an array of another class (a memory map) needs the check by `check`.
    """
    notes = []
    for key, note in list(_notes.items()):
        if note.slot > slot:
            root = note.ref()
            if root is not None:
                if type(root) is not np.ndarray:
                    return None
                notes.append((key, note.slot))
    return notes


def owner(array: np.ndarray) -> np.ndarray:
    """The array at the end of the chain of bases: it stands for the memory."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    below = None if base is None else held_by(array)
    return array if below is None else owner(below)


_Strided = type(np.lib.stride_tricks.as_strided(np.zeros(1)).base)
"""The helper object that NumPy puts between an array and a view with strides of its own (a sliding window)."""


def held_by(view: Any) -> np.ndarray | None:
    """The array that this one keeps alive, as its base or by what stands between the two: a memoryview, or NumPy's helper object.

    None where it has its own memory, or that of another library.
    """
    base = getattr(view, "base", None)
    if type(base) is memoryview:
        base = base.obj
    elif type(base) is _Strided:
        base = base.base  # type: ignore[attr-defined]
    return base if isinstance(base, np.ndarray) else None


def _opens_again(array: np.ndarray) -> bool:
    """Whether an array that was made read-only can be made writeable again: NumPy asks the base that is no array for its buffer."""
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    try:
        return base is None or not memoryview(base).readonly
    except TypeError:
        return False


def touch(array: np.ndarray, index: Any = None) -> None:
    """Note that this array's memory was overwritten just now: at an index, or all of it (and of its base, if it is a view)."""
    global _latest
    root = owner(array)
    key = id(root)
    note = _notes.get(key)
    if note is None or note.ref() is not root:
        note = _notes[key] = _Note(weakref.ref(root, functools.partial(_forget, key)), root)
    note.slot = _latest = new_slot()
    note.count += 1
    if index is None or array is not root or not note.n:
        note.everywhere = _latest
    else:
        note.writes.append((_latest, index))
        if len(note.writes) > note.most:
            note.settle()


def _forget(key: int, _: Any) -> None:
    _notes.pop(key, None)


def version(array: Any) -> int:
    """How often this array's memory was overwritten through tapegrad."""
    if not isinstance(array, np.ndarray):
        return 0
    note = _notes.get(id(owner(array)))
    return 0 if note is None else note.count


def overwritten(slot: Slot, values: Any) -> Any:
    """The first of the values that was overwritten after `slot`; None if there is none."""
    for value in values:
        if type(value) is tuple:
            found = overwritten(slot, value)
            if found is not None:
                return found
        elif isinstance(value, np.ndarray):
            root = owner(value)
            note = _notes.get(id(root))
            if note is None or note.slot <= slot or not value.size:  # no write hits an empty array
                continue
            if note.latest(_place_in(value, root) if note.n else None) > slot:
                return value
    return None


def check(name: str, slot: Slot, values: Any) -> None:
    """Raise if one of the values that the op `name`, recorded at `slot`, needs was overwritten since."""
    value = overwritten(slot, values)
    if value is not None:
        raise GraphError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: {name} saved an array of shape {value.shape} and dtype {value.dtype}, which was "
            f"overwritten afterwards (it is at version {version(value)}). Write to a copy (t.clone()), use the out-of-place form, or "
            "write inside `with tg.autograd.graph.allow_mutation_on_saved_tensors():`, which copies what is saved before it is "
            "overwritten, as transforms (tg.grad) do.",
            name="in-place",
        )
