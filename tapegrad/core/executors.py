"""One reverse walk: from root cotangents to leaf gradients, over one tape or several, by the executor that fits.

`walk` is all there is to backward: `Tensor.backward`, `autograd.grad` and every transform call it. It picks
the executor per tape: *sweep* (NumPy rules, always there) or *replay* (one nopython call, once its machine code is
ready). Tensors recorded by another thread live on another tape; the walk goes on there.

Invariant: until the walk has succeeded nothing a user can see has changed: no `.grad`, no freed value.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..errors import GraphError
from . import dual, seams, storage, sweep
from .mode import NO_GRAD, Off, enable_grad
from .primitive import OPS, entry_name
from .tape import (
    FREED,
    IN0,
    IN1,
    OP,
    RECORDER,
    SLOT,
    STRIDE,
    WATCHED,
    Leaf,
    Slot,
    Tape,
    attended,
    current,
    find,
    locate,
    new_slot,
)
from .tensor import Tensor, wrap

ENGINES = ("auto", "sweep", "replay")

_WARM_AFTER = (
    3000  # entries swept before looking for compiled kernels on disk (about 10 ms of sweeping)
)


class _Choice:
    """Which executor walks: what was asked, and what `auto` has seen so far."""

    def __init__(self) -> None:
        self.name = "auto"
        self.entries = 0
        self.seconds = 0.0
        self.compiling = False
        self.replay: Any = None


_choice = _Choice()


def set_engine(name: str) -> None:
    """Choose the executor of reverse walks: "sweep", "replay" or "auto" (the default).

    "sweep" runs the rules with NumPy and never compiles; "replay" compiles what it needs, waiting for it; "auto" sweeps
    until compiled kernels are at hand, so that the first gradient of a process waits for nothing. The environment
    variable TAPEGRAD_ENGINE sets the initial choice. Raises ValueError for another name, RuntimeError if replay cannot run here.

    >>> import tapegrad as tg
    >>> tg.set_engine("auto")
    >>> tg.engine()
    'auto'
    """
    if name not in ENGINES:
        raise ValueError(
            f"engine {name!r} was asked, but there are only {', '.join(map(repr, ENGINES))}."
        )
    if name == "replay":
        replay = _load_replay()
        if not replay.available():
            raise RuntimeError(
                f"the replay engine was asked, but it cannot run here: {replay.status()['machine']}. "
                "Use set_engine('auto'), which falls back to the sweep."
            )
    _choice.name = name


def engine() -> str:
    """The engine that was chosen: "auto", "sweep" or "replay".

    >>> import tapegrad as tg
    >>> tg.engine() in ("auto", "sweep", "replay")
    True
    """
    return _choice.name


def _load_replay() -> Any:
    if _choice.replay is None:
        _choice.replay = seams.replay()
    return _choice.replay


def _executor(tape: Tape, position: int) -> Callable[..., Any]:
    """The executor for a walk down from this position that records nothing."""
    name = _choice.name
    if dual.saved:
        return _sweep_of_tensors
    if name == "sweep" or sweep.GUARD.get() is not None or storage.tracing.get():
        return sweep.sweep
    if name == "replay":
        _load_replay().load(block=True)
        return sweep.sweep if _overwritten(tape, position) else _forced_replay
    if _choice.entries < _WARM_AFTER:
        return _timed_sweep
    replay = _load_replay()
    if not replay.available():
        return sweep.sweep
    if not _choice.compiling and _choice.seconds > replay.patience():
        _choice.compiling = True
    if not replay.load(compile=_choice.compiling):
        return _timed_sweep
    return replay.replay if replay.ready() and not _overwritten(tape, position) else sweep.sweep


def _overwritten(tape: Tape, position: int) -> bool:
    """Whether an entry may need an array that was overwritten since: only the sweep has the check that says so."""
    if not tape.code or tape.code[SLOT] > storage.latest_overwrite():
        return False
    notes = storage.overwrites_since(tape.code[SLOT])
    if not notes:
        return notes is None
    maybe = _load_replay().may_be_overwritten(tape.code, position, notes)
    return maybe and sweep.overwritten(tape.code, position)  # which looks at rows, and is slow


def _sweep_of_tensors(
    code: Any, start: int, pending: dict[Slot, Any], leaves: Any, watch: Any, targets: Any
) -> list[int]:
    """The sweep with rules applied to tensors, so that cotangents get the tangents of the values they are made of."""
    for slot, g in pending.items():
        pending[slot] = wrap(g)
    return sweep.sweep(code, start, pending, leaves, watch, targets, True)


def _forced_replay(*arguments: Any) -> list[int]:
    return _load_replay().replay(*arguments, wait=True)


def _timed_sweep(*arguments: Any) -> list[int]:
    start = time.perf_counter()
    visited = sweep.sweep(*arguments)
    _choice.seconds += time.perf_counter() - start
    _choice.entries += len(visited)
    return visited


# ------------------------------------------------------------------------------------------------ watched slots


class Watch:
    """Who wants to see the complete cotangent of a slot: the hooks of its tensor, then `retain_grad`."""

    __slots__ = ("bearer", "hooks", "keep")

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[..., Any]] = {}
        self.keep: Callable[[Any], None] | None = None

    def __call__(self, g: Any) -> Any:
        if self.hooks:
            g = seams.hooked(self.hooks, g)
        if self.keep is not None:
            self.keep(g)
        return g


_watched: dict[Slot, Watch] = WATCHED
"""Watches of slots. Those of entries that a sweep dropped go when their number has doubled."""

_watches_limit = 64


def watched(slot: Slot) -> Watch:
    """The watch of a slot, made if there is none; GraphError if its entry is gone, since no walk will come by."""
    global _watches_limit
    watch = _watched.get(slot)
    if watch is None:
        if locate(slot) is None:
            raise GraphError(sweep.GONE, name="freed-graph")
        if len(_watched) >= _watches_limit:
            for key in list(_watched):
                if locate(key) is None:
                    _watched.pop(key, None)
            _watches_limit = max(64, 2 * len(_watched))
        watch = _watched[slot + 0] = Watch()
    return watch


def retain(tensor: Tensor, before: Slot | None = None) -> None:
    """Let walks store the cotangent of a recorded tensor in its `.grad`; `before` is the slot it stood for till now."""
    if before in _watched:
        _watched[before].keep = None
    ref = weakref.ref(tensor)

    def keep(g: Any) -> None:
        t = ref()
        if t is not None:
            old = t._get("grad")
            new = g if isinstance(g, Tensor) else wrap(storage.duplicate(g))
            t._put("grad", new if old is None else old + new)

    watched(tensor._node).keep = keep


class _Notes:
    """What hooks note during one walk, and what is to be called at its end."""

    __slots__ = ("at_end", "data", "roots", "targets")

    def __init__(self, roots: list[Any], targets: set[Any] | None) -> None:
        self.data: dict[int, Any] = {}
        self.at_end: list[Callable[[], Any]] = []
        self.roots = roots
        self.targets = targets

    def reached(self) -> set[Any]:
        """The slots and leaves whose cotangents this walk computes (if no rule cuts it short): for hooks that wait for several."""
        reads: dict[Any, tuple[Any, ...]] = {}
        unseen = list(self.roots)
        while unseen:
            node = unseen.pop()
            if node is None or node in reads:
                continue
            place = locate(node) if type(node) is int else None
            reads[node] = sweep.operands(place[0].code, place[1] * STRIDE) if place else ()
            unseen += reads[node]
        if self.targets is None:
            return set(reads)
        leading = self.targets & reads.keys()
        for slot in sorted(node for node in reads if type(node) is int):
            if not leading.isdisjoint(reads[slot]):
                leading.add(slot)
        return leading


_NOTES: ContextVar[_Notes | None] = ContextVar("tapegrad.walk", default=None)


def notes_of_walk() -> _Notes | None:
    """The notes of the walk that is under way here."""
    return _NOTES.get()


# ------------------------------------------------------------------------------------------------ the walk

ONES = {kind: kind(1) for kind in (np.float64, np.float32)}
"""Cotangents of real results that are NumPy's scalars."""


def one(value: Any) -> Any:
    """The cotangent that a gradient of this number, or array of one, begins with."""
    kept = ONES.get(type(value))
    return np.ones(value.shape, value.dtype) if kept is None else kept


_Begun = tuple[Tape, int, int, Any, dict[Leaf, Any]]
"""A tape, busy since; where the machine began; what it answered (see `replay.begin`), two items; the leaves it has reached."""


def _machine() -> Any:
    """The replay engine, where a walk may begin with its native call at once: nothing here asks for another executor."""
    replay = _choice.replay
    if (
        replay is None
        or not replay.ready()
        or _choice.name == "sweep"
        or dual.saved
        or sweep.GUARD.get() is not None
        or storage.tracing.get()
    ):
        return None
    return replay


def _ordinary(tape: Tape, position: int) -> bool:
    """Whether no entry down from this position is watched, and none may need an array that was overwritten since."""
    if _watched:
        code = tape.code
        first, last = code[SLOT], code[position * STRIDE + SLOT]
        if any(first <= slot <= last for slot in list(_watched)):
            return False
    return not _overwritten(tape, position)


def walk_from(
    node: Any, g: Any, retain_graph: bool = False, targets: set[Any] | None = None
) -> dict[Any, Any]:
    """`walk` from one root to all leaves, or to targets; most often in one native call.

    Where nothing is out of the ordinary (no hooks, no tangents, one tape, native code for each entry) the bookkeeping that a walk
    may need is not made: on a few small operations it costs several times what the derivatives do.
    """
    replay = _machine() if type(node) is int else None
    begun: _Begun | None = None
    held: list[Any] = []
    asked = None if targets is None else tuple(targets)
    try:
        if replay is not None and (asked is None or all(type(target) is Leaf for target in asked)):
            tape = current()
            with tape.lock:
                position = None if tape.busy else tape.find(node)
                if position is not None and _ordinary(tape, position):
                    leaves: dict[Leaf, Any] = {}
                    tape.busy = 1
                    held.append((tape, ()))
                    frame, visited = replay.begin(tape.code, position, g, leaves, asked)
                    if visited is not None and not any(leaf.hooks for leaf in leaves):
                        tape.busy = 0
                        held.clear()
                        if not retain_graph:
                            _release(tape, visited, targets is None)
                        return leaves
                    if frame or visited is not None:
                        begun = (tape, position, frame, visited, leaves)
                    else:
                        tape.busy = 0
                        held.clear()
        return walk(((node, g),), targets, retain_graph=retain_graph, begun=begun, held=held)
    except BaseException:
        while held:  # interrupted where the walk had not begun, or had ended
            held[-1][0].busy -= 1
            del held[-1]
        raise


def walk(
    roots: Iterable[tuple[Any, Any]],
    targets: set[Any] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    since: Slot = 0,
    begun: _Begun | None = None,
    held: list[tuple[Tape, Any]] | None = None,
) -> dict[Any, Any]:
    """Cotangents of every leaf reached (or, with `targets`, of those slots and leaves), from the roots' cotangents.

    `roots` are pairs (node, cotangent). Cotangents are raw arrays, or Tensors if `create_graph`. Entries older than
    `since` are not looked at. Raises GraphError if an entry needed was freed. `begun` is what `walk_from` has done already, `held` the
    tapes that are busy for this walk.
    """
    if create_graph:
        current().differentiated = True
    pending: dict[Slot, Any] = {}
    found: dict[Any, Any] = {}
    leaves: dict[Leaf, Any] = {}
    duals = False
    for node, g in roots:
        store: dict[Any, Any] = leaves if type(node) is Leaf else pending
        if type(node) is not Leaf or targets is None or node in targets:
            store[node] = store[node] + g if node in store else g
            duals = duals or dual.tangent_of(g) is not None
    watch: dict[Slot, Callable[[Any], Any]] = dict(_watched) if _watched else {}
    for target in targets or ():
        if type(target) is not Leaf:
            watch[target] = _collector(found, target, watch.get(target))
    done: list[tuple[Tape, Any]] = [] if held is None else held
    mode = RECORDER.get()
    notes = _Notes([*pending, *leaves], targets)
    outer_notes = _NOTES.get()
    try:
        _NOTES.set(notes)
        if not create_graph:
            RECORDER.set(NO_GRAD)
        elif isinstance(mode, Off):
            RECORDER.set(attended(current().code.extend))
        if begun is not None:
            tape, position, frame, visited, leaves = begun
            pending.clear()  # the frame has it
            if frame:
                wait = _choice.name == "replay"
                visited = _load_replay().replay(
                    tape.code, position, pending, leaves, watch, targets, wait, frame
                )
            done[-1] = (tape, visited)
        while pending and (newest := max(pending)) >= since:
            place = locate(newest, done)
            if place is None:
                raise GraphError(sweep.GONE, name="freed-graph")
            tape, position = place
            if create_graph:
                visited = sweep.sweep(
                    tape.code, position, pending, leaves, watch, targets, True, since
                )
            else:
                execute = _sweep_of_tensors if duals else _executor(tape, position)
                visited = execute(tape.code, position, pending, leaves, watch, targets)
            done[-1] = (tape, visited)
        for leaf in [leaf for leaf in leaves if leaf.hooks is not None]:
            leaves[leaf] = seams.leaf_cotangent(leaf, leaves[leaf])
        for call in notes.at_end:
            call()
    except BaseException:
        retain_graph = True
        raise
    finally:
        released: list[Tape] = []
        ending = (released, outer_notes, mode, not retain_graph, targets is None, create_graph)
        try:
            _end(done, *ending)
        except BaseException:  # Ctrl-C: what is not done yet is done all the same
            _end(done, *ending)
            raise
    found.update(leaves)
    return found


def _end(
    done: list[tuple[Tape, Any]],
    released: list[Tape],
    notes: Any,
    mode: Any,
    freed: bool,
    whole: bool,
    recorded: bool,
) -> None:
    """After a walk: its context as it was before, and its tapes free again. A second call does what the first was kept from."""
    _NOTES.set(notes)
    RECORDER.set(attended(mode))  # hooks may have ended a block that was in force
    while done:
        tape, visited = done[-1]
        with tape.lock:
            tape.busy -= 1
            del done[-1]
            if visited and freed:
                released.append(tape)
                _release(tape, visited, whole)
            elif recorded:  # what was recorded while the tape was busy could not be swept
                tape.sweep_if_due()
    # Without the lock: other tapes are asked, whose threads may be asking for this one.
    while released:
        _forget_freed(released[-1])
        del released[-1]


def walk_own(
    tape: Tape, roots: Iterable[tuple[Any, Any]], record: bool = False
) -> tuple[dict[Leaf, Any], bool]:
    """A walk over a transform's own tape, which is kept: leaf cotangents, and whether they are the whole story.

    They are not if an entry depends on a slot of another tape, that is, on something tracked outside. With `record`, roots are
    tracked tensors: the walk, which is linear in them, is recorded, with the tape's values as constants.
    """
    pending: dict[Slot, Any] = {}
    leaves: dict[Leaf, Any] = {}
    for node, g in roots:
        store: dict[Any, Any] = leaves if type(node) is Leaf else pending
        store[node] = store[node] + g if node in store else g
    if pending:
        last = len(tape) - 1
        frame = 0
        if not record and len(pending) == 1 and not leaves and tape.code[-STRIDE + SLOT] in pending:
            replay = _machine()
            if replay is not None and _ordinary(tape, last):
                frame, visited = replay.begin(tape.code, last, *pending.values(), leaves)
                if visited is not None:
                    return leaves, True
                if frame:
                    pending.clear()
        watch: dict[Slot, Callable[[Any], Any]] = dict(_watched) if _watched else {}
        if record:
            sweep.sweep(tape.code, last, pending, leaves, watch, None)
            return leaves, not pending
        mode = RECORDER.get()
        try:
            RECORDER.set(NO_GRAD)
            if frame:
                wait = _choice.name == "replay"
                replay.replay(tape.code, last, pending, leaves, watch, None, wait, frame)
                return leaves, not pending
            trace = storage.tracing.get()
            code = tape.code if trace is None else trace.wound(tape.code, pending, watch)
            last = len(code) // STRIDE - 1
            _executor(tape, last)(code, last, pending, leaves, watch, None)
        finally:
            RECORDER.set(mode)
    return leaves, not pending


def _forget_freed(tape: Tape) -> None:
    """Drop the hooks of freed entries: a hook that holds its own tensor would otherwise keep it for ever."""
    for slot in list(_watched):
        with tape.lock:
            position = find(tape.code, slot)
            freed = position is not None and tape.code[position * STRIDE + OP] == FREED
        if freed or (position is None and locate(slot) is None):
            _watched.pop(slot, None)


def _collector(
    found: dict[Any, Any], target: Slot, then: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    def collect(g: Any) -> Any:
        if then is not None:
            g = then(g)
        found[target] = found[target] + g if target in found else g
        return g

    return collect


def _release(tape: Tape, visited: Any, whole: bool) -> None:
    """Give up the visited entries of a tape, its lock held: at once where these are its last entries.

    `visited` is a list in falling order, or a range; `whole` says that the walk went to all leaves.
    """
    replay = _choice.replay
    loaded = replay is not None and replay.loaded()
    if loaded and not tape.busy:
        code = tape.code
        survivors = replay.tail(code, visited, whole)
        if survivors is not None:
            given_up = _forgotten if whole else _drained
            kept: list[Any] = []
            for position in survivors:
                k = (~position if position < 0 else position) * STRIDE
                entry = code[k : k + STRIDE]
                kept += given_up(entry) if position < 0 else entry
            code[visited[-1] * STRIDE : (visited[0] + 1) * STRIDE] = kept
            if not code:
                tape.bytes = 0
            return
    if not isinstance(visited, range) and visited[0] - visited[-1] == len(visited) - 1:
        visited = range(visited[0], visited[-1] - 1, -1)
    among = visited if isinstance(visited, range) else frozenset(visited)
    stays = _giving_up() if whole else _emptied
    tape.release(among, visited[-1], stays, replay.held if loaded else None)


def _forgotten(entry: list[Any]) -> list[Any]:
    """What stays of an entry that was given up: its slot and the name of its backward."""
    return [FREED, entry[SLOT], _LOST, None, entry_name(entry), None, None, None]


def _giving_up() -> Callable[[list[Any], list[Any]], list[Any]]:
    """What stays of a visited entry after a whole walk.

    All of it stays, so that a second backward through it works as in PyTorch, if neither its op nor any op before it saves
    something; where one does, a second walk from here would only meet what was freed.
    """
    clean: set[Slot] = (
        set()
    )  # slots below which nothing is saved, so that each entry is looked at once

    def given_up(entry: list[Any], code: list[Any]) -> list[Any]:
        if not _saves(entry, 0) and not _leads_to_saved(entry, code, clean):
            return entry
        return _forgotten(entry)

    return given_up


def _emptied(entry: list[Any], code: list[Any]) -> list[Any]:
    """The same after a walk to certain targets only: an entry may still lead to others, so operands stay."""
    return _drained(entry) if _saves(entry, 0) else entry


def _drained(entry: list[Any]) -> list[Any]:
    return [FREED, entry[SLOT], entry[IN0], entry[IN1], entry_name(entry), None, None, None]


def _saves(code: list[Any], k: int) -> bool:
    """Whether a rule of a tracked operand needs a saved value; those of user code may, whatever they declare."""
    op = OPS[code[k + OP]]
    if code[k + OP] == FREED or not op.saves or not any(op.needs):
        return code[k + OP] == FREED or op.saves
    nodes = sweep.operands(code, k)
    needs = op.needs if len(op.needs) > 1 else op.needs * len(nodes)
    for node, needed in zip(nodes, needs, strict=False):
        if needed and node is not None:
            return True
    return False


def _leads_to_saved(entry: list[Any], code: list[Any], clean: set[Slot]) -> bool:
    """Whether some entry that this one depends on has saved values; slots found not to are added to `clean`."""
    seen = {entry[SLOT]}
    nodes = sweep.operands(entry, 0)
    unseen: list[int] = []
    while True:
        for node in nodes:
            if type(node) is int and node not in seen and node not in clean:
                seen.add(node)
                position = find(code, node)
                if position is not None:
                    if _saves(code, position * STRIDE):
                        return True
                    unseen.append(position * STRIDE)
        if not unseen:
            break
        nodes = sweep.operands(code, unseen.pop())
    clean |= {slot + 0 for slot in seen}  # copies, which keep no entry alive
    return False


_LOST: Slot = 0
"""Operand of a freed entry: a slot on no tape, as it is forgotten what the entry was made from. A walk to certain targets
must not pass it by as leading nowhere: that would leave out a part of the gradient without a word."""


def vjp_of(
    function: Callable[[Any], Sequence[Any]], at: Any, cotangents: Sequence[Any], create_graph: bool
) -> Any:
    """The VJP of a function of one array, applied to cotangents of its outputs (None: zero), as recorded or raw value."""
    leaf = wrap(at).requires_grad_()
    since = new_slot()  # what is older does not depend on the leaf, and may be gone
    with enable_grad():
        outputs = function(leaf)
    leaf._node.spent = (
        True  # entries that stay are no reason to think that something outside is tracked
    )
    roots = [
        (y._node, g)
        for y, g in zip(outputs, cotangents, strict=True)
        if g is not None and isinstance(y, Tensor) and y._node is not None
    ]
    result = walk(
        roots, {leaf._node}, retain_graph=create_graph, create_graph=create_graph, since=since
    )
    gradient = result.get(leaf._node)
    return np.zeros_like(at) if gradient is None else gradient


def begin() -> None:
    """Choose the executor that the environment names; ValueError where there is none of that name, or it cannot run here."""
    name = os.environ.get("TAPEGRAD_ENGINE")
    if name:
        try:
            set_engine(name)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"the environment variable TAPEGRAD_ENGINE is wrong: {error}"
            ) from None
