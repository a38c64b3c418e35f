"""The tape: one flat list of entries per thread, and the rules by which entries live and die.

Idea: an op appends ONE entry, eight items at the end of a plain list (the columns below), by one
`list.extend` of one tuple. Nothing links entries to each other but *slots*: an entry's slot is an `int`
object of its own, which the resulting Tensor, and every later entry that reads the result, also hold.
So the reference count of that `int` says whether anybody can still ask for the entry, and no node
object, weak reference or finaliser is needed.

    op | slot | in0 | in1 | x | y | out | kw
    op      index into `primitive.OPS`; FREED once the saved values are gone
    slot    the entry's own slot, process-wide unique and ascending
    in0/1   None (constant), a slot, or a `Leaf`; variadic ops keep a tuple in in0
    x, y    raw operands; a *shape token* (stride 0, no memory) where a big one is needed by no rule
    out     raw result, likewise
    kw      None or the tuple of the op's settings

Invariant: an entry's inputs were recorded before it, so position order is a topological order.

Lifetime: `Tape.sweep` pops entries from the end and drops those whose slot nobody else holds; dropping
one releases its inputs, so liveness spreads by reference counting alone, in one pass. Survivors stay,
in order. Sweeps are due when the tape has doubled since the last one (in entries, or in bytes of saved
arrays), which makes their cost a constant per op. Appends need no lock, because `extend` and
the slot counter are atomic; whatever moves entries holds `Tape.lock` and leaves a `busy` tape alone.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from contextvars import ContextVar
from heapq import heapify, heappop, heappush
from sys import getrefcount
from typing import Any

import numpy as np

from . import locks, seams

STRIDE = 8
OP, SLOT, IN0, IN1, X, Y, OUT, KW = range(STRIDE)
FREED = 0
BLANK = ("blank",)
"""Settings of a freed entry that nobody can ask for; it only keeps the others in their places."""

BIG = 1 << 14
"""Bytes above which a result takes the slow path that saves only what a rule asks for."""

WATCHED: dict[int, Any] = {}
"""What walks show a slot's complete cotangent to (see executors.py); keyed by copies of slots, which keep nothing alive."""

FEW = 64
"""Elements up to which an op computes by its ufunc even where it has a quicker way for large arrays."""

BATCH = 1024
"""Slots handed out between two looks at the tape's length."""

_BYTES_SLACK = 1 << 24  # 16 MiB of dead arrays at most before a sweep is due

Slot = int


class Leaf:
    """Where gradients end: one per tensor that requires grad and was not made by a recorded op.

    It owns the gradient, so that a graph keeps accumulating even if the user dropped the tensor.
    """

    __slots__ = ("__weakref__", "data", "grad", "hooks", "spent", "tensor")

    def __init__(self, data: Any, tensor: Any) -> None:
        self.data = data
        self.spent = False  # an argument of a transform whose function has returned: a constant to everybody else
        self.tensor = weakref.ref(tensor)
        self.grad: Any = None
        self.hooks: Any = None


class _Held:
    """The context of `Tape.held`."""

    __slots__ = ("holds", "tape")

    def __init__(self, tape: Tape) -> None:
        self.tape, self.holds = tape, False

    def __enter__(self) -> None:
        try:
            with self.tape.lock:
                # Ctrl-C comes in between calls only: both of these lines, or none.
                self.tape.busy += 1
                self.holds = True
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        with self.tape.lock:
            if self.holds:
                self.holds = False
                self.tape.busy -= 1


class Tape:
    """A thread's (or a transform's) flat list of entries. `print(tape)` shows one entry a line.

    >>> import numpy as np, tapegrad as tg
    >>> def f(x):
    ...     y = np.sin(x * x)
    ...     print(tg.current_tape())
    ...     return y
    >>> tg.grad(f)(0.0)
    Tape with 2 entries
         0  multiply(leaf0, leaf0) -> float64[]
         1  sin(%0) -> float64[]
    0.0
    """

    __slots__ = (
        "__weakref__",
        "busy",
        "bytes",
        "bytes_limit",
        "code",
        "differentiated",
        "inputs",
        "limit",
        "lock",
        "outer",
        "owner",
        "plain",
        "saved",
    )

    differentiated: bool
    inputs: list[Any]
    """Nodes of the arguments that a transform differentiates, on its own tape."""

    def __init__(self, owner: object = None, outer: Tape | None = None) -> None:
        self.outer = outer  # the tape that was current before this one
        # Whether what is recorded is a function of NumPy's arrays, where `s += 1` gives a number a new value for one name only.
        self.plain: bool = outer is not None and outer.plain
        self.code: list[Any] = []
        self.saved: Any = None  # which entries saved what memory, once there was a write in place (overwriting.py)
        self.lock = threading.RLock()
        self.busy = 0
        self.limit = BATCH * STRIDE
        self.bytes = 0
        self.bytes_limit = _BYTES_SLACK
        # A weak reference to whatever keeps the tape open; once it died only survivors are kept.
        self.owner = None if owner is None else weakref.ref(owner)

    @property
    def differentiates(self) -> bool:
        """Whether a derivative was taken meanwhile of what is recorded here: a constant may then be a derivative that is constant."""
        return hasattr(self, "differentiated")  # set by who takes it: most tapes never hear of it

    def __len__(self) -> int:
        return len(self.code) // STRIDE

    def held(self) -> _Held:
        """A context: while it lasts, positions stay what they are."""
        return _Held(self)

    def position(self, slot: Slot) -> int:
        """Position of the first entry that is not older than the slot."""
        slots = self.code[SLOT::STRIDE]
        if not slots or slots[0] >= slot:
            return 0
        if max(slots) < slot:
            return len(slots)
        return next(i for i, s in enumerate(slots) if s >= slot)

    def find(self, slot: Slot) -> int | None:
        """Position of the entry with this slot, or None where the tape has no such entry. Called with the lock held."""
        code = self.code
        position = find(code, slot)
        if position is not None:
            return position
        # Two threads that share one context can append in the other order than they drew slots.
        slots = code[SLOT::STRIDE]
        return slots.index(slot) if slot in slots else None

    def drop(self, slot: Slot, going: int) -> list[Slot] | None:
        """Drop the entry with this slot unless others than `going` references hold it, and then entries that only dropped ones read.

        Copies of the slots that they read on other tapes. No other entry moves. None where somebody is at work on the tape, KeyError
        where it has no such entry.
        """
        return self._at_once(functools.partial(self._drop, slot, going))

    def _drop(self, slot: Slot, going: int) -> list[Slot]:
        """Free an entry that nobody holds beyond the `going` references, and what only it read; slots of other tapes that were read."""
        code = self.code
        if find(code, slot) is None:
            raise KeyError(slot)
        elsewhere: list[Slot] = []
        doomed, held = [slot], UNHELD + going
        if code[len(code) - STRIDE + SLOT] == slot:
            doomed = self._drop_end(held)
            held = UNHELD
        while doomed:
            slot = doomed.pop()
            position = find(code, slot)
            if position is None:
                elsewhere.append(slot)
                continue
            k = position * STRIDE
            if getrefcount(code[k + SLOT]) <= held:
                in0, in1 = code[k + IN0], code[k + IN1]
                read = in0 if type(in0) is tuple else (in0, in1)
                doomed += [node + 0 for node in read if type(node) is int]
                del in0, in1, read
                self._blank(k)
            held = UNHELD
        self._trim()
        return elsewhere

    def _drop_end(self, held: int) -> list[Slot]:
        """Take entries that nobody holds away from the end, the last one if `held` references hold it; slots before it that they read.

        An entry stands behind what it reads: of most programs this is all there is to drop.
        """
        code = self.code
        read: list[Slot] = []
        while end := len(code):
            k = end - STRIDE
            if code[k + KW] is not BLANK:
                if getrefcount(code[k + SLOT]) > held:
                    break
                before = code[k - STRIDE + SLOT] + 0 if k else None  # a copy, which holds no entry
                in0, in1 = code[k + IN0], code[k + IN1]
                for node in in0 if type(in0) is tuple else (in0, in1):
                    if type(node) is int and node != before:
                        read.append(node + 0)
                node = in0 = in1 = None
                if WATCHED:
                    WATCHED.pop(code[k + SLOT], None)
                held = UNHELD
            del code[k:end]
        if not code:
            self.bytes = 0
        return read

    def blank(self) -> None:
        """Drop every entry that nobody can ask for, but move none: in their places stand freed ones. For any moment.

        Nothing is done where somebody is at work on the tape.
        """
        self._at_once(self._blank_dead)

    def _blank_dead(self) -> None:
        code = self.code
        mark = MARK[0] if code else None
        if mark is not None:
            for position in np.flatnonzero(~mark(code, len(code) // STRIDE))[::-1].tolist():
                self._blank(position * STRIDE)
        else:
            for k in range(len(code) - STRIDE, -1, -STRIDE):
                if getrefcount(code[k + SLOT]) <= UNHELD:
                    self._blank(k)
        self._trim()

    def _at_once(self, work: Callable[[], Any]) -> Any:
        """What `work` returns, done with the lock; None if somebody has it, this thread included: finalisers run at any moment."""
        lock: Any = self.lock
        if lock._is_owned():
            return None
        try:
            return work() if lock.acquire(blocking=False) else None
        finally:
            try:
                if lock._is_owned():
                    lock.release()
            except BaseException:  # Ctrl-C between the two
                if lock._is_owned():
                    lock.release()
                raise

    def _blank(self, k: int) -> None:
        """Let a freed entry that reads nothing stand for a dead one."""
        code = self.code
        if code[k + KW] is not BLANK:
            if WATCHED:
                WATCHED.pop(code[k + SLOT], None)
            code[k : k + STRIDE] = [FREED, code[k + SLOT], *(None,) * 5, BLANK]

    def _trim(self) -> None:
        """Take blanks away from the end."""
        code = self.code
        while (end := len(code)) and code[end - 1] is BLANK:
            del code[end - STRIDE : end]  # another thread may have appended behind it meanwhile
        if not code:
            self.bytes = 0

    def sweep(self) -> None:
        """Drop every entry that nobody can ask for any more."""
        with self.lock:
            if self.busy:
                return
            code = self.code
            end = len(code)
            mark = MARK[0] if end else None
            if mark is not None:
                _keep(code, mark(code, end // STRIDE))
                alive = code
            else:
                chunk = code[:end]
                # New entries go to the same list object, behind `end`; this is one atomic step.
                del code[:end]
                try:
                    alive = _pop_dead(chunk)
                except BaseException:
                    code[0:0] = chunk
                    raise
                code[0:0] = alive
            self.limit = max(BATCH * STRIDE, 2 * len(alive))
            if self.bytes:
                self.bytes = _saved_bytes(alive)
            self.bytes_limit = self.bytes + max(_BYTES_SLACK, self.bytes // 4)

    def weigh(self, size: int) -> None:
        """Note that so many bytes are about to be kept by entries, and sweep if that makes a sweep due."""
        self.bytes += size
        if self.bytes > self.bytes_limit:
            self.sweep()

    def sweep_if_due(self) -> None:
        """Sweep if the tape has doubled since the last time."""
        if len(self.code) > self.limit or self.bytes > self.bytes_limit:
            self.sweep()

    def release(
        self,
        visited: Container[int],
        low: int,
        given_up: Callable[[list[Any], list[Any]], list[Any]],
        held_by_others: Callable[[list[Any], int, int], list[int]] | None = None,
    ) -> None:
        """Give up what the visited entries (from position `low` on) saved, and drop the entries nobody holds.

        `given_up(entry, code)` is what stays of a visited entry that somebody still holds. While a walk is under way
        (`busy`) positions must not move: entries are replaced in place. `held_by_others`, if there is a native one, tells for a range of
        positions which of these entries somebody outside the tape holds; else they are popped one by one.
        """
        with self.lock:
            code = self.code
            if self.busy:
                for position in range(low, len(code) // STRIDE):
                    if position in visited:
                        k = position * STRIDE
                        code[k : k + STRIDE] = given_up(code[k : k + STRIDE], code)
                return
            # Entries behind the visited ones may hold them as inputs, so the walk starts at the end.
            first, end = low * STRIDE, len(code)
            if held_by_others is None:
                tail = code[first:end]
                del code[first:end]  # another thread may append behind `end` meanwhile
                try:
                    alive = _pop_dead(tail, low, visited, given_up)
                except BaseException:
                    code[first:first] = tail
                    raise
            else:
                held = held_by_others(code, low, end // STRIDE)
                if len(code) > end:
                    held += self._read_by(code[end:], held, low, end // STRIDE)
                alive = _survivors(code, low, held, visited, given_up)
                del code[first:end]
            code[first:first] = alive
            if not code:
                self.bytes = (
                    0  # else an upper bound, which the sweep that it brings about sets right
                )

    def _read_by(self, late: list[Any], held: list[int], low: int, high: int) -> set[int]:
        """Positions in [low, high) of what late entries, appended by another thread meanwhile, read: they hold it."""
        positions = set()
        for in0, in1 in zip(late[IN0::STRIDE], late[IN1::STRIDE], strict=True):
            for node in (*in0, in1) if type(in0) is tuple else (in0, in1):
                position = self.find(node) if type(node) is int else None
                if position is not None and low <= position < high:
                    positions.add(position)
        return positions.difference(held)

    def absorb(self, other: Tape) -> None:
        """Take over the entries of a tape that was open while this one was not: they are neighbours in slot order."""
        if not other.code:
            return
        with self.lock:
            first = other.code[SLOT]
            k = len(self.code)
            while k and self.code[k - STRIDE + SLOT] > first:
                k -= STRIDE
            self.code[k:k] = other.code
            self.bytes += other.bytes
            self.sweep_if_due()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        code = self.code
        for k in range(0, len(code), STRIDE):
            yield tuple(code[k : k + STRIDE])

    def __repr__(self) -> str:
        self.sweep()  # what nobody can ask for any more would only hide the rest
        return seams.tape_text(self)

    def _repr_html_(self) -> str:
        self.sweep()
        return seams.tape_html(self)


MARK: list[Callable[[list[Any], int], np.ndarray] | None] = [None]
"""The native way to tell which of the first entries of a list are alive, once the replay machine is loaded."""


def _keep(code: list[Any], alive: np.ndarray) -> None:
    """Drop the dead among the first `len(alive)` entries; others may append behind them meanwhile."""
    if alive.all():
        return
    edges = np.flatnonzero(np.diff(alive, prepend=False, append=False)) * STRIDE
    kept: list[Any] = []
    for first, end in edges.reshape(-1, 2).tolist():
        kept += code[first:end]
    code[: len(alive) * STRIDE] = kept


_one = [object()]
# References to a slot nobody else holds: the list's, and those that the call of getrefcount itself adds.
UNHELD = getrefcount(_one[0])


def find(code: list[Any], slot: Slot) -> int | None:
    """Position of the entry with this slot among entries in slot order, or None."""
    low, high = 0, len(code) // STRIDE
    if high:
        # Slots ascend by one but for gaps: counted back from the last one, most are where they are guessed.
        guess = high - 1 - code[-STRIDE + SLOT] + slot
        if 0 <= guess < high and code[guess * STRIDE + SLOT] == slot:
            return guess
    while low < high:
        middle = (low + high) // 2
        if code[middle * STRIDE + SLOT] < slot:
            low = middle + 1
        else:
            high = middle
    return low if low * STRIDE < len(code) and code[low * STRIDE + SLOT] == slot else None


def _pop_dead(
    chunk: list[Any],
    low: int = 0,
    visited: Container[int] = (),
    given_up: Callable[[list[Any], list[Any]], list[Any]] = lambda entry, code: entry,
) -> list[Any]:
    """Survivors of `chunk` (entries from position `low`), in order; of visited ones, what is not given up.

    Empties the chunk from the end, so that a dying entry frees its inputs before they are looked at. Where that is interrupted, the
    chunk has again what is left of it.
    """
    kept: list[Any] = []
    try:
        for k in range(len(chunk) - STRIDE, -1, -STRIDE):
            if getrefcount(chunk[k + SLOT]) > UNHELD:
                entry = chunk[k:]
                kept.append(given_up(entry, chunk) if low + k // STRIDE in visited else entry)
                del entry
            del chunk[k:]
        kept.reverse()
        return [item for entry in kept for item in entry]
    except BaseException:
        kept.sort(key=lambda entry: entry[SLOT])
        if kept and chunk and kept[0][SLOT] == chunk[SLOT - STRIDE]:
            del chunk[-STRIDE:]
        for entry in kept:
            chunk += entry
        raise


def _survivors(
    code: list[Any],
    low: int,
    held: list[int],
    visited: Container[int],
    given_up: Callable[[list[Any], list[Any]], list[Any]],
) -> list[Any]:
    """The same, from the positions that somebody outside holds: these, and what they need in turn."""
    kept: list[Any] = []
    alive = [-position for position in held]
    heapify(alive)
    seen = set(held)
    index: dict[Slot, int] | None = None
    while alive:
        position = -heappop(alive)
        entry = code[position * STRIDE : (position + 1) * STRIDE]
        if position in visited:
            entry = given_up(entry, code)
        kept.append(entry)
        for node in entry[IN0] if type(entry[IN0]) is tuple else entry[IN0 : IN1 + 1]:
            if type(node) is int and node:  # 0 stands for operands that are forgotten
                if index is None:
                    index = {
                        slot: low + i for i, slot in enumerate(code[low * STRIDE + SLOT :: STRIDE])
                    }
                needed = index.get(node)
                if needed is not None and needed not in seen:
                    seen.add(needed)
                    heappush(alive, -needed)
    kept.reverse()
    return [item for entry in kept for item in entry]


def _saved_bytes(code: list[Any]) -> int:
    """Bytes of the arrays above BIG that these entries keep alive (an array kept twice counts once)."""
    seen = {}
    for column in (X, Y, OUT):
        for value in code[column::STRIDE]:
            for array in value if type(value) is tuple else (value,):
                # Not isinstance, which takes a trace's stand-in for an array: it has neither strides nor memory of its own.
                if not issubclass(type(array), np.ndarray):
                    continue
                if array.nbytes > BIG and any(array.strides):
                    seen[id(array)] = array.nbytes
    return sum(seen.values())


# ---------------------------------------------------------------------------------------------------------
# Which tape is current. A context (thread or asyncio task) sees its recorder: the bound `extend` of the
# current tape's list, or a falsy mark where a grad mode forbids recording (see mode.py). None means that
# nobody has recorded in this context yet.

Recorder = Callable[[tuple[Any, ...]], None]

RECORDER: ContextVar[Any] = ContextVar("tapegrad.recorder", default=None)
ATTENDING: ContextVar[tuple[tuple[Callable[[Any], None], ...], Callable[[Any], Any] | None]] = (
    ContextVar("tapegrad.attending", default=((), None))
)
"""Who looks at each entry on its way to the tape, and who rewrites it: nobody, except in modes for debugging and saving."""
_TAPE: ContextVar[Tape | None] = ContextVar("tapegrad.core.tape", default=None)


class _Owner:
    """Dies with its thread, which tells the registry that the thread's tape is an orphan."""

    __slots__ = ("__weakref__", "tape")
    tape: Tape


_thread = threading.local()
_tapes: list[Tape] = []
_tapes_lock = locks.lock()


def _in_child() -> None:
    """In a forked child nobody else has a tape's lock. Entries that other threads were moving are theirs, and gone with them."""
    for tape in _tapes:
        locks.renew(tape.lock)


locks.in_child(_in_child)


def current() -> Tape:
    """The tape that ops in this thread (or inside this transform) append to.

    >>> import tapegrad as tg
    >>> x = tg.tensor(1.0, requires_grad=True)
    >>> y = x * 2
    >>> len(tg.current_tape()) >= 1
    True
    """
    tape = _TAPE.get()
    return _thread_tape() if tape is None else tape


def _thread_tape() -> Tape:
    owner: _Owner | None = getattr(_thread, "owner", None)
    if owner is None:
        owner = _thread.owner = _Owner()
        owner.tape = Tape(owner)
        with _tapes_lock:
            _tapes.append(owner.tape)
    return owner.tape


def lead_to_inputs(nodes: Iterable[Any]) -> bool:
    """Whether these nodes lead to an argument of a transform that is under way."""
    tape: Tape | None = current()
    wanted = {n for n in nodes if n is not None}
    while tape is not None and tape.outer is not None:
        code = tape.code
        for k in range(len(code) - STRIDE, -1, -STRIDE):
            if code[k + SLOT] in wanted:
                in0 = code[k + IN0]
                wanted.update(in0 if type(in0) is tuple else (in0, code[k + IN1]))
        if not wanted.isdisjoint(getattr(tape, "inputs", ())):
            return True
        tape = tape.outer
    return False


def begin() -> Recorder:
    """First op of a context: make the thread's tape, and remember how to append to it."""
    record = attended(current().code.extend)
    RECORDER.set(record)
    return record


class Attended:
    """A recorder that shows each entry to those who attend, and lets one of them rewrite it, before it is appended."""

    __slots__ = ("extend", "lookers", "rewrite")

    def __init__(self, extend: Recorder) -> None:
        self.extend = extend
        self.lookers, self.rewrite = ATTENDING.get()

    def __call__(self, entry: tuple[Any, ...]) -> None:
        self.append(entry, entry)

    def append(self, entry: tuple[Any, ...], whole: tuple[Any, ...]) -> None:
        """Append an entry; `whole` is the same with every value there was, also those that are not kept."""
        for look in self.lookers:
            look(whole)
        self.extend(entry if self.rewrite is None else self.rewrite(entry))


def attended(recorder: Any) -> Any:
    """A recorder as those who attend now want it; marks of grad modes stay what they are."""
    if not recorder:
        return recorder
    extend = recorder.extend if type(recorder) is Attended else recorder
    lookers, rewrite = ATTENDING.get()
    return Attended(extend) if lookers or rewrite is not None else extend


class own_tape:
    """Context of a transform: its ops go to a tape of their own, which is dropped whole with the transform.

    `join()` hands the entries to the outer tape instead, where a result that something outside depends on needs them.
    """

    def __init__(self) -> None:
        self.outer = current()
        self.tape = Tape(outer=self.outer)
        self.recorder = RECORDER.get()
        self._joined = False

    def __enter__(self) -> own_tape:
        self.recorder = RECORDER.get()
        try:
            with _tapes_lock:
                _tapes.append(self.tape)
            _TAPE.set(self.tape)
            RECORDER.set(attended(self.tape.code.extend))
        except BaseException:  # Ctrl-C, most likely: nobody will leave
            self.leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.leave()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """The outer tape is current again; a second time this does nothing."""
        RECORDER.set(attended(self.recorder))
        _TAPE.set(self.outer)
        with _tapes_lock:
            if self.tape in _tapes:
                _tapes.remove(self.tape)

    def join(self) -> None:
        """Let the entries outlive the transform, on the outer tape; called after the context has ended."""
        if not self._joined:
            self._joined = True
            self.outer.absorb(self.tape)
            self.tape = self.outer


def recorded() -> set[Slot]:
    """Slots of every entry that is on a tape of a thread, or of a transform under way."""
    with _tapes_lock:
        tapes = list(_tapes)
    return {slot for tape in tapes for slot in tape.code[SLOT::STRIDE]}


def known() -> list[Tape]:
    """Every tape that is in use; without the lock, which a finaliser must not wait for."""
    return list(_tapes)


def between(tape: Tape, first: Slot, last: Slot) -> tuple[list[Any], int, int]:
    """A list with the entries of a tape from one slot to another, from which position in it, and to which. The tape is held.

    Where other threads recorded meanwhile, a list of its own has their entries, too, in the order of slots: these may depend on the tape's.
    """
    code = tape.code
    if code and code[SLOT] >= first and code[SLOT - STRIDE] < last:
        start, stop = 0, len(tape)
    else:
        start, stop = tape.position(first), tape.position(last)
    found: list[list[Any]] = []
    own, outer = {id(tape)}, _TAPE.get()
    while outer is not None:
        own.add(id(outer))
        outer = outer.outer
    for other in known():
        if id(other) in own or not any(slot >= first for slot in other.code[SLOT - STRIDE :][:1]):
            continue
        with other.held():
            theirs = other.code[other.position(first) * STRIDE : other.position(last) * STRIDE]
        found += [theirs[k : k + STRIDE] for k in range(0, len(theirs), STRIDE)]
    if not found:
        return code, start, stop
    found += [code[k : k + STRIDE] for k in range(start * STRIDE, stop * STRIDE, STRIDE)]
    found.sort(key=lambda entry: entry[SLOT])
    return [item for entry in found for item in entry], 0, len(found)


def drop(slot: Slot, going: int) -> list[Slot] | None:
    """`Tape.drop` on the tape that has the slot, this thread's first; none of what it read where no tape has it."""
    here = _TAPE.get()
    if here is None:
        here = getattr(getattr(_thread, "owner", None), "tape", None)
    unsure = False
    for tape in (here, *known()):
        if tape is not None:
            try:
                read = tape.drop(slot, going)
            except KeyError:
                continue
            if read is not None:
                return read
            unsure = True
    return None if unsure else []


def locate(slot: Slot, held: list[Any] | None = None) -> tuple[Tape, int] | None:
    """The tape that holds this slot's entry, and its position there; None where the entry is gone.

    With a list `held` the tape is `busy` from here on: its positions stay what they are until the caller takes that back, for each pair
    (tape, nothing visited) that it finds in the list.
    """
    here = current()
    place = _locate_on(here, slot, held)
    if place is None:
        with _tapes_lock:
            others = [tape for tape in reversed(_tapes) if tape is not here]
        for tape in others:
            place = _locate_on(tape, slot, held)
            if place is not None:
                break
    return place


def _locate_on(tape: Tape, slot: Slot, held: list[Any] | None) -> tuple[Tape, int] | None:
    with tape.lock:
        position = tape.find(slot)
        if position is None or tape.code[position * STRIDE + KW] is BLANK:
            return None
        if held is not None:
            tape.busy += 1  # Ctrl-C comes in between calls only: both of these lines, or none
            held.append((tape, ()))
        return tape, position


# ---------------------------------------------------------------------------------------------------------
# Slots. Generated ops take the next of `slots`, a range of BATCH fresh ints in the namespace they share (machine code
# calls its `__next__`, `next_slot`); when it is exhausted they call `renew()`, which costs ordinary ops nothing and is
# the moment to look whether a sweep is due.

WHEN_RENEWED: list[Callable[[], None]] = []
"""Called for each batch of slots."""

namespace: dict[str, Any] = {}
_lock = locks.lock()
_first_slot = (
    1 << 10
)  # small ints are shared by the interpreter: their reference counts say nothing


def renew() -> Slot:
    """Hand out the next batch of slots, after sweeping tapes that have grown; returns the first."""
    global _first_slot
    tape: Tape | None = current()
    while (
        tape is not None
    ):  # the outer ones too: this may be the only moment that falls outside a walk over them
        tape.sweep_if_due()
        tape = tape.outer
    _sweep_orphans()
    for call in WHEN_RENEWED:
        call()
    with _lock:
        _hand_out(iter(range(_first_slot, _first_slot + BATCH)))
        _first_slot += BATCH
    return new_slot()


def _hand_out(slots: Iterator[Slot]) -> None:
    namespace["slots"], namespace["next_slot"] = slots, slots.__next__


def new_slot() -> Slot:
    """A fresh slot, for code that is not generated."""
    try:
        return next(namespace["slots"])
    except StopIteration:
        return renew()


def _sweep_orphans() -> None:
    with _tapes_lock:
        orphans = [tape for tape in _tapes if tape.owner is not None and tape.owner() is None]
    for tape in orphans:
        tape.sweep()
        if not tape.code:
            with _tapes_lock:
                if tape in _tapes:
                    _tapes.remove(tape)


_hand_out(iter(()))
