"""The executor: a reverse walk by the machine, with Python doing what the machine cannot.

`replay` has the contract of `sweep.sweep`, which is the reference. It seeds a frame with the pending cotangents and lets the
machine walk; at each stop it does what the machine asked for (an entry without native code, a watched slot, a
kernel to load) and lets it go on. At the end it takes leaf gradients and the cotangents of other tapes' slots out.

Invariant: every adjoint is in the frame or in an array's hands, so closing the frame frees what an error left behind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import storage, sweep
from ..core.primitive import OPS, quicken
from ..core.tape import FREED, IN0, OP, OUT, SLOT, STRIDE, Leaf, X
from ..errors import GraphError
from ..llvm import linker
from . import bridge
from .bridge import Machine
from .layout import (
    DONE,
    E_ADJOINT,
    E_OPERAND,
    E_POSITION,
    EXTERNAL,
    F_EXTERNAL_COUNT,
    F_EXTERNALS,
    F_NEED_KIND,
    F_NEED_OPERAND,
    F_POSITION,
    F_VISITED,
    F_VISITS,
    FRAME,
    HELD,
    MISSING,
    NO_MEMORY,
    OWNED_FROM,
    STOP,
    TAKEN,
    TARGET,
    UNLIKE,
    WATCH,
    WATCHED,
    WITHOUT_MEMORY,
)

QUICKENED_FROM = 256
"""Elements from which an array tells that an op's forward loops are worth loading with its kernel."""

_Words = ctypes.c_int64 * FRAME


def begin(
    code: list[Any],
    start: int,
    g: Any,
    leaves: dict[Any, Any],
    targets: tuple[Leaf, ...] | None = None,
) -> tuple[int, Any]:
    """Carry the cotangent of entry `start` down, as far as one native call goes; the machine is loaded.

    The positions visited stand second (a list or a range), if that was all and `leaves` has the gradients; else None, and first a frame
    with which `replay` goes on, or 0 if nothing was done. With `targets` only these leaves are gone to. Raises what a
    kernel tried to raise.
    """
    machine = bridge.machine
    assert machine is not None
    if len(OPS) != machine.known:
        machine.learn()
    answer = machine.whole(machine.world_address, code, start, g, leaves, targets)
    if type(answer) is list:
        return 0, answer
    if linker.raised:
        if answer > 0:
            machine.close(answer)
        _raise_noted()
    return (answer, None) if answer >= 0 else (0, range(start, start + answer, -1))


def replay(
    code: list[Any],
    start: int,
    pending: dict[Any, Any],
    leaves: dict[Any, Any],
    watch: dict[Any, Callable[[Any], Any]],
    targets: set[Any] | None,
    wait: bool = False,
    frame: int = 0,
) -> Any:
    """Carry `pending` from entry `start` down, as `sweep.sweep` does, in one native call per uninterrupted stretch.

    `wait` says that missing kernels are to be compiled at once; without it the background does that, and Python these
    entries. `frame` is where `begin` got to, if it did. Returns the positions visited (a list or a range). Raises what a rule
    raises, and MemoryError.
    """
    if not bridge.load(block=wait, compile=wait):
        return sweep.sweep(code, start, pending, leaves, watch, targets)
    machine = bridge.machine
    assert machine is not None
    if len(OPS) != machine.known:
        machine.learn()
    if wait:
        bridge.reset_waiting()
    one_root = len(pending) == 1 and code[start * STRIDE + SLOT] in pending
    if one_root and targets is None and not watch and not leaves:
        (g,) = pending.values()
        frame, visited = begin(code, start, g, leaves)
        if visited is not None:
            pending.clear()
            return visited
        if frame:
            pending.clear()
    started = frame > 0
    if not started:
        frame = machine.open(machine.world_address, id(code), start)
        if not frame:
            raise _no_memory(start)
    walk = _Walk(machine, frame, code, targets, wait)
    try:
        if not started:
            walk.seed(pending, watch)
        walk.run(watch)
        return walk.collect(pending, leaves)
    finally:
        machine.close(frame)


def _raise_noted() -> None:
    """Raise for what a kernel tried to raise."""
    if linker.raised:
        reason = linker.raised.pop()
        linker.raised.clear()
        raise RuntimeError(
            f"{reason}; compiled rules cannot. Use set_engine('sweep'), where rules are Python."
        )


def _no_memory(start: int) -> MemoryError:
    return MemoryError(
        f"a reverse walk over {start + 1} entries asked for memory for cotangents, and the system has no more. "
        "Free arrays, or differentiate a smaller piece of the program at a time."
    )


class _Walk:
    """One call of `replay`: the frame, and what only Python can keep."""

    __slots__ = ("code", "frame", "held", "known", "machine", "shares", "targets", "wait", "words")

    def __init__(
        self, machine: Machine, frame: int, code: list[Any], targets: set[Any] | None, wait: bool
    ) -> None:
        """A walk back over a tape's columns in one frame of the machine."""
        self.machine = machine
        self.frame = frame
        self.words = _Words.from_address(frame)
        self.code = code
        self.targets = targets
        self.wait = wait
        # Position -> cotangent of a dtype that is none of the machine's.
        self.held: dict[int, Any] = {}
        # Leaf or another tape's slot -> what stops contributed, in arrays of our own.
        self.shares: dict[Any, Any] = {}
        # Externals so far: node, and a value of its form.
        self.known: list[tuple[Any, Any] | None] = []

    # --------------------------------------------------------------------------------------- before the walk

    def seed(self, pending: dict[Any, Any], watch: dict[Any, Any]) -> None:
        """Hand the machine the cotangents to start from, and what is watched and wanted."""
        locate, frame = self.machine.locate, self.frame
        targets = self.targets
        for slot in watch:
            self._mark(locate(frame, slot), WATCH)
        if targets is not None:
            for target in targets:
                if type(target) is not Leaf:
                    self._mark(locate(frame, target), TARGET)
                elif not self.machine.want(frame, id(target)):
                    raise self._no_memory()
        for slot in list(pending):
            position = locate(frame, slot)
            if position >= 0:
                self.give(position, pending.pop(slot))
        if targets is not None:
            if not self.machine.prune(frame):
                raise self._no_memory()

    def _mark(self, position: int, bit: int) -> None:
        if position >= 0 and not self.machine.mark(self.frame, position, bit, 1):
            raise self._no_memory()

    def _no_memory(self) -> MemoryError:
        return _no_memory(len(self.code) // STRIDE - 1)

    # ------------------------------------------------------------------------------------------------ stops

    def run(self, watch: dict[Any, Any]) -> None:
        """Run the machine; where it stops, run that entry's rule in Python, or fetch the kernel that it misses."""
        walk, frame, words = self.machine.walk, self.frame, self.words
        latest = storage.latest_overwrite()
        while True:
            answer = walk(frame)
            _raise_noted()
            if answer == DONE:
                return
            k = words[F_POSITION]
            if answer == STOP or answer == WATCHED:
                if answer == STOP:
                    self.stop(k)
                else:
                    self.show(k, watch)
                if storage.latest_overwrite() > latest:
                    self.recheck(k - (answer == STOP), latest)
                    latest = storage.latest_overwrite()
            elif answer == MISSING:
                op = self.code[k * STRIDE + OP]
                bridge.request([(op, words[F_NEED_OPERAND], words[F_NEED_KIND])], self.wait)
                out = self.code[k * STRIDE + OUT]
                if out.size >= QUICKENED_FROM:
                    quicken(OPS[op], out.dtype.char)
            else:
                assert answer == NO_MEMORY
                raise self._no_memory()

    def stop(self, k: int) -> None:
        """Do one entry in Python."""
        if OPS[self.code[k * STRIDE + OP]].name == "matmul":
            self.machine.fetch_blas()
        self.remember()
        g = None if self.code[k * STRIDE + OP] == FREED else self.cotangent(k)
        with np.errstate(all="ignore"):  # as in the sweep
            shares = sweep.pull(self.code, k, g)
        self.machine.pass_by(self.frame)
        for node, share in shares:
            if type(node) is not Leaf:
                position = self.machine.locate(self.frame, node)
                if position >= 0:
                    self.give(position, share)
                    continue
            elif self.targets is not None and node not in self.targets:
                continue
            self.keep(node, share, g)

    def recheck(self, start: int, since: int) -> None:
        """A hook or a rule of the user's has overwritten something: raise if an entry up to `start` needs it."""
        notes = storage.overwrites_since(since)
        if start >= 0 and (
            notes is None or (notes and may_be_overwritten(self.code, start, notes))
        ):
            for position in range(start, -1, -1):
                sweep.check_overwritten(self.code, position * STRIDE)

    def keep(self, node: Any, share: Any, g: Any) -> None:
        """Add to what a leaf or another tape's slot gets, in an array nobody else holds."""
        old = self.shares.get(node)
        if old is not None:
            self.shares[node] = old + share
        elif isinstance(share, np.ndarray) and (
            share.base is not None or share is g or not share.flags.owndata
        ):
            self.shares[node] = np.array(share)
        else:
            self.shares[node] = share

    def show(self, k: int, watch: dict[Any, Any]) -> None:
        """Let the watcher of an entry see, and perhaps replace, its complete cotangent."""
        self.remember()
        slot = self.code[k * STRIDE + SLOT]
        g = watch[slot](self.cotangent(k))
        self.machine.mark(self.frame, k, WATCH, 0)
        self.give(k, g)

    def remember(self) -> None:
        """Hold on to the externals: what runs in a stop may free the entries that named them."""
        # A wanted leaf that nothing has reached yet has no entry that names it: it is asked after again.
        first = self.known.index(None) if None in self.known else len(self.known)
        for number, external in enumerate(self.externals(first), first):
            known = self.named(external) if external[E_ADJOINT] else None
            if number == len(self.known):
                self.known.append(known)
            elif self.known[number] is None:
                self.known[number] = known

    def externals(self, first: int) -> list[Any]:
        """Records of the externals from number `first` on."""
        count = self.words[F_EXTERNAL_COUNT] - first
        if count <= 0:
            return []
        address = self.words[F_EXTERNALS] + 8 * EXTERNAL * first
        flat = (ctypes.c_int64 * (EXTERNAL * count)).from_address(address)[:]
        return [flat[i : i + EXTERNAL] for i in range(0, len(flat), EXTERNAL)]

    def named(self, external: list[int]) -> tuple[Any, Any]:
        """Node and value of an external, from the entry that named it."""
        at, operand = external[E_POSITION] * STRIDE, external[E_OPERAND]
        node, value = self.code[at + IN0], self.code[at + X]
        if type(node) is tuple:
            return node[operand], value[operand]
        return self.code[at + IN0 + operand], self.code[at + X + operand]

    # ------------------------------------------------------------------------------------------- cotangents

    def give(self, position: int, g: Any) -> None:
        """Add to the adjoint of an entry."""
        answer = self.machine.give(self.frame, position, id(g))
        if answer == TAKEN:
            return
        out = self.code[position * STRIDE + OUT]
        if answer == HELD:
            freed = self.code[position * STRIDE + OP] == FREED
            if freed and self.code[position * STRIDE + SLOT] not in (self.targets or ()):
                raise GraphError(sweep.SECOND_TIME, name="freed-graph")
            self.held[position] = self.held[position] + g if position in self.held else g
        elif answer == UNLIKE:
            # A copy is aligned and in this machine's byte order, which the machine asks for.
            like = np.broadcast_to(np.array(g, out.dtype), out.shape)
            answer = self.machine.give(self.frame, position, id(like))
            if answer == UNLIKE:
                raise GraphError(
                    f"a cotangent of type {type(g).__name__}, dtype {like.dtype} and shape {like.shape} was given "
                    f"to an entry whose result has dtype {out.dtype} and shape {out.shape}. A cotangent has the "
                    "form of the value it belongs to: let the hook or rule that made it return that.",
                    name="wrong-form",
                )
        if answer == WITHOUT_MEMORY:
            raise self._no_memory()

    def cotangent(self, k: int) -> Any:
        """Take the complete cotangent of an entry out of the machine."""
        if k in self.held:
            self.machine.take(self.frame, k, 0, 0)
            return self.held.pop(k)
        g = self.take(k, self.code[k * STRIDE + OUT])
        return g if g.ndim else g[()]

    def take(self, destination: int, like: Any) -> np.ndarray:
        """The adjoint of a destination, as an array: copied if small, else in the memory it has."""
        size = like.nbytes
        if size < OWNED_FROM:
            array = np.empty(like.shape, like.dtype)
            self.machine.take(self.frame, destination, id(array), size)
            return array
        return np.asarray(
            _Owner(self.machine, self.machine.take(self.frame, destination, 0, 0), like)
        )

    # ---------------------------------------------------------------------------------------- after the walk

    def collect(self, pending: dict[Any, Any], leaves: dict[Any, Any]) -> Any:
        """Leaf gradients into `leaves`, cotangents of other tapes' slots into `pending`; returns what was visited."""
        found = self.shares
        for number, external in enumerate(self.externals(0)):
            if external[E_ADJOINT]:
                node, value = (
                    self.known[number] if number < len(self.known) else None
                ) or self.named(external)
                g = self.take(-2 - number, value)
                if node in found:
                    g += found[node]
                found[node] = g
        for node, g in found.items():
            if type(node) is Leaf:
                # Sums of 0-d arrays are scalars in NumPy; a gradient is an array.
                leaves[node] = np.asarray(leaves[node] + g if node in leaves else g)
            else:
                g = g if g.ndim else g[()]
                pending[node] = pending[node] + g if node in pending else g
        visits = self.words[F_VISITS]
        if not visits:
            return []
        visited = (ctypes.c_int64 * visits).from_address(self.words[F_VISITED])
        if visited[0] - visited[visits - 1] == visits - 1:
            return range(visited[0], visited[0] - visits, -1)
        return visited[:]


class _Owner(storage.Lent):
    """Memory of the machine in an array's hands: freed with the last array that shows it."""

    __slots__ = ("__array_interface__", "_address", "_machine")

    def __init__(self, machine: Machine, address: int, like: Any) -> None:
        self._machine = machine
        self._address = address
        self.__array_interface__ = {
            "version": 3,
            "shape": like.shape,
            "typestr": like.dtype.str,
            "data": (address, False),
        }

    def __del__(self) -> None:
        self._machine.free(self._machine.world_address, self._address)


def alive(code: list[Any], count: int) -> np.ndarray:
    """Whether somebody can still ask for each of the first `count` entries: a boolean per entry."""
    machine = bridge.machine
    assert machine is not None
    result = np.zeros(count, np.int64)
    machine.mark_alive(machine.world_address, id(code), count, result.ctypes.data)
    return result > 0


def may_be_overwritten(code: list[Any], start: int, notes: list[tuple[int, int]]) -> bool:
    """Whether an entry up to `start` may need a value that was overwritten after it was recorded.

    `notes`: the address of each array whose memory was overwritten (the one that owns it), and the slot of the last time.
    """
    machine = bridge.machine
    if machine is None:
        return True
    if len(OPS) != machine.known:
        machine.learn()
    flat = np.array(sorted(notes), np.int64)
    latest = int(flat[:, 1].max())
    return bool(
        machine.overwritten(
            machine.world_address, id(code), start, latest, flat.ctypes.data, len(flat)
        )
    )


def held(code: list[Any], low: int, high: int) -> list[int]:
    """Positions of [low, high) of the entries that somebody outside the tape's slot and operand columns can ask for."""
    machine = bridge.machine
    if machine is None:
        raise RuntimeError(
            "who holds an entry was asked of the replay machine, which is not loaded; call replay.load(block=True) first."
        )
    return machine.held(machine.world_address, code, low, high)


def tail(code: list[Any], visited: Any, whole: bool) -> list[int] | None:
    """What stays of a tape's last entries, which a walk has visited: positions, or ~position where something is given up (calls.py).

    `visited` is a list of positions in falling order, or a range. None where somebody must look more closely.
    """
    machine = bridge.machine
    assert machine is not None
    gaps = visited if type(visited) is list else None
    answer = machine.tail(machine.world_address, code, visited[-1], visited[0], gaps, int(whole))
    return answer if type(answer) is list else None
