"""The bridge: the compiled machine as Python sees it, its table of ops, and which kernels are there.

Data: `Machine` holds ctypes functions, the world and the table of ops, all of which live as long as the process. The
table has a row per `primitive.OPS` entry; a kernel's address is put there once it is linked, by whichever thread.

Invariant: the table holds addresses of linked code, or marks that are no address, and nothing else.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache as remembered
from typing import Any

import numpy as np

from ..core import headroom, locks, tape
from ..core.primitive import OPS, Primitive
from ..llvm import cache
from ..llvm.linker import LinkError, blas, builtin, link, link_texts, numpy_api, redirect
from . import builder, kernels, layout, operators, shipped
from .builder import Task
from .layout import (
    BY_BROADCAST,
    BY_CONCATENATE,
    BY_CONJ,
    BY_COPY,
    BY_EXPONENTIALS,
    BY_EXTREME,
    BY_IMAG,
    BY_INDEX,
    BY_KERNEL,
    BY_MEAN,
    BY_MOVEAXIS,
    BY_OTHERS,
    BY_POWER,
    BY_PRODUCT,
    BY_PYTHON,
    BY_REAL,
    BY_RESHAPE,
    BY_RUNNING_PRODUCT,
    BY_RUNNING_SUM,
    BY_SCATTER,
    BY_STACK,
    BY_STORE,
    BY_SUM,
    BY_SWAPAXES,
    BY_TAKE,
    BY_TRANSPOSE,
    CONSTANT,
    KIND_NAMES,
    NOT_LOADED,
    OP_ARITY,
    OP_CONSTANT,
    OP_GIVEN,
    OP_KERNELS,
    OP_READS,
    OP_ROW,
    OP_SAVES,
    OP_STEP,
    READS_OUT,
    READS_X,
    READS_Y,
    READS_Z,
    SAVES_ALWAYS,
    SCRATCH,
    UNAVAILABLE,
    W_DGEMM,
    W_LIMIT,
    W_LIVE,
    W_NEW_ARRAY,
    W_OPS,
    W_SCRATCH,
    W_SGEMM,
    W_STEPS,
    WORLD,
)

Key = tuple[int, int, int]
"""A kernel: code of the op, operand, kind."""

# Structural ops the machine knows: how it goes back through them, and the settings it expects to find.
STEPS: dict[str, tuple[int, tuple[str, ...]]] = {
    "sum": (BY_SUM, ("axis", "keepdims")),
    "mean": (BY_MEAN, ("axis", "keepdims")),
    "reshape": (BY_RESHAPE, ("shape", "order")),
    "expand_dims": (BY_COPY, ("axis",)),
    "squeeze": (BY_COPY, ("axis",)),
    "copy": (BY_COPY, ()),
    "alias": (BY_COPY, ()),
    "broadcast_to": (BY_BROADCAST, ("shape",)),
    "transpose": (BY_TRANSPOSE, ("axes",)),
    "swapaxes": (BY_SWAPAXES, ("axis1", "axis2")),
    "moveaxis": (BY_MOVEAXIS, ("source", "destination")),
    "getitem": (BY_INDEX, ("index",)),
    "scatter": (BY_SCATTER, ("index", "shape")),
    "setitem": (BY_STORE, ("index",)),
    "matmul": (BY_PRODUCT, ()),
    "dot": (BY_PRODUCT, ()),
    "concatenate": (BY_CONCATENATE, ("axis",)),
    "stack": (BY_STACK, ("axis",)),
    "take": (BY_TAKE, ("indices", "axis")),
    "max": (BY_EXTREME, ("axis", "keepdims")),
    "min": (BY_EXTREME, ("axis", "keepdims")),
    "logsumexp": (BY_EXPONENTIALS, ("axis", "keepdims")),
    "cumsum": (BY_RUNNING_SUM, ("axis",)),
    "prod": (BY_OTHERS, ("axis", "keepdims")),
    "cumprod": (BY_RUNNING_PRODUCT, ("axis",)),
    "conj": (BY_CONJ, ()),
}
# Elementwise ops that have a way of their own.
_SPECIAL = {"power": BY_POWER, "real": BY_REAL, "imag": BY_IMAG}
_SAME_CODE = {
    BY_SUM: (
        BY_MEAN,
        BY_COPY,
        BY_RESHAPE,
        BY_BROADCAST,
        BY_TRANSPOSE,
        BY_SWAPAXES,
        BY_MOVEAXIS,
        BY_INDEX,
        BY_SCATTER,
        BY_TAKE,
    ),
    BY_CONCATENATE: (BY_STACK,),
    BY_OTHERS: (BY_RUNNING_PRODUCT,),
    BY_CONJ: (BY_REAL, BY_IMAG),
}
_READS = {"x": READS_X, "y": READS_Y, "z": READS_Z, "out": READS_OUT}

_int, _none = ctypes.c_int64, None
_SIGNATURES: dict[str, tuple[Any, int]] = {
    "open": (_int, 3),
    "close": (_none, 1),
    "walk": (_int, 1),
    "locate": (_int, 2),
    "give": (_int, 3),
    "take": (_int, 4),
    "pass_by": (_none, 1),
    "free": (_none, 2),
    "mark": (_int, 4),
    "want": (_int, 2),
    "prune": (_int, 1),
    "mark_alive": (_none, 4),
    "overwritten": (_int, 6),
    "probe_value": (_int, 3),
    "probe": (_int, 3),
}


@remembered
def obstacle() -> str:
    """Why replay cannot run in this process, or an empty string."""
    if sys.implementation.name != "cpython":
        return f"it reads CPython's objects, and this is {sys.implementation.name}"
    if (
        sysconfig.get_config_var("Py_GIL_DISABLED")
        or not getattr(sys, "_is_gil_enabled", lambda: True)()
    ):
        return "it relies on the GIL, which this build of Python can do without"
    if sys.maxsize < 2**62 or sys.byteorder != "little":
        return "it is written for 64-bit little-endian processors"
    if object.__basicsize__ != 16 or sys.int_info.bits_per_digit != 30:
        return "this build of Python lays its objects out in another way"
    for package in ("numba", "llvmlite"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    return ""


class Machine:
    """The linked machine. `machine.walk(frame)` and the like are its C functions, called with the GIL held.

    `whole`, `held` and `tail` are built-in functions (see calls.py).
    """

    def __init__(self, addresses: dict[str, int]) -> None:
        self.whole = builtin(addresses["whole"], "whole", None)
        self.held = builtin(addresses["held"], "held", None)
        self.tail = builtin(addresses["tail"], "tail", None)
        self.world = np.zeros(WORLD, np.int64)
        self.world_address = self.world.ctypes.data
        self._scratch = np.zeros(SCRATCH, np.int64)
        self._tables: list[np.ndarray] = []
        self.known = 0
        self._blas_fetched = False
        self._addresses: dict[str, int] = {}
        self._fill_world()
        self.use(addresses)

    def use(self, addresses: dict[str, int]) -> None:
        """Call the functions at these addresses from now on: other code of the same text, such as a better one.

        Safe at any time: walks hold the interpreter's lock from end to end, and a walk that has stopped has nothing in its frame that
        depends on the code. The old code stays in memory.
        """
        for name, (result, count) in _SIGNATURES.items():
            setattr(self, name, ctypes.PYFUNCTYPE(result, *[_int] * count)(addresses[name]))
        for name in ("open", "want", "give", "prune", "walk", "close"):
            self.world[getattr(layout, f"W_{name.upper()}")] = addresses[name]
        for role, address in addresses.items():
            if role.startswith("word "):
                word = int(role.removeprefix("word "))
                for same in (
                    word,
                    *(W_STEPS + step for step in _SAME_CODE.get(word - W_STEPS, ())),
                ):
                    self.world[same] = address
            redirect(self._addresses.get(role, 0), address)
        self._addresses.update(addresses)

    def _fill_world(self) -> None:
        """Write addresses of types and objects into the table that compiled code reads."""
        world = self.world
        world[W_LIMIT] = np.iinfo(np.int64).max
        world[W_SCRATCH] = self._scratch.ctypes.data
        for name, value in {
            "ARRAY": np.ndarray,
            "FLOAT64": np.float64,
            "FLOAT32": np.float32,
            "COMPLEX128": np.complex128,
            "FLOAT": float,
            "COMPLEX": complex,
            "INT": int,
            "TUPLE": tuple,
            "SLICE": slice,
            "NONE": None,
            "ELLIPSIS": Ellipsis,
            "DTYPE_FLOAT64": np.dtype(np.float64),
            "DTYPE_FLOAT32": np.dtype(np.float32),
            "DTYPE_COMPLEX128": np.dtype(np.complex128),
            "DTYPE_BOOL": np.dtype(np.bool_),
            "DTYPE_INTP": np.dtype(np.intp),
            "ORDER_C": sys.intern("C"),
            "LEAF": tape.Leaf,
        }.items():
            world[getattr(layout, f"W_{name}")] = id(value)
        world[W_NEW_ARRAY] = numpy_api()["PyArray_New"]

    # ------------------------------------------------------------------------------------- table of ops

    def learn(self) -> None:
        """Give every op of `OPS` its row; called when there are more of them than at the last call."""
        count = len(OPS)
        if not self._tables or count > len(self._tables[-1]):
            table = np.zeros((2 * count, OP_ROW), np.int64)
            if self._tables:
                table[: self.known] = self._tables[-1][: self.known]
            # An old table stays: a walk that is in a stop reads its address again, but nobody proves that here.
            self._tables.append(table)
        table = self._tables[-1]
        seen = {op.name for op in OPS[: self.known]}
        for code in range(self.known, count):
            _fill_row(table[code], OPS[code], OPS[code].name in seen)
            seen.add(OPS[code].name)
        self.known = count
        self.world[W_OPS] = table.ctypes.data
        operators.install(self._addresses)

    def fetch_blas(self) -> None:
        """Let products of large matrices be BLAS's; asked at the first one, as SciPy's part for it takes its time to import."""
        if not self._blas_fetched:
            self._blas_fetched = True
            addresses = blas()
            self.world[W_DGEMM] = addresses.get("dgemm", 0)
            self.world[W_SGEMM] = addresses.get("sgemm", 0)

    def set_kernel(self, key: Key, address: int) -> None:
        code, operand, kind = key
        for table in self._tables:
            if code < len(table):
                table[code, OP_KERNELS + 3 * operand + kind] = address

    def kernel(self, key: Key) -> int:
        code, operand, kind = key
        return int(self._tables[-1][code, OP_KERNELS + 3 * operand + kind])

    @property
    def live_bytes(self) -> int:
        return int(self.world[W_LIVE])


def _fill_row(row: np.ndarray, op: Primitive, namesake: bool) -> None:
    """How the machine goes back through an op; `namesake`: an earlier op has this name, so this one is not the library's."""
    row[:] = 0
    row[OP_STEP] = BY_PYTHON
    row[OP_ARITY] = op.arity
    row[OP_SAVES] = builtins.sum(1 << i for i, needs in enumerate(op.needs) if needs)
    if op.saves and (len(op.needs) == 1 or not row[OP_SAVES]):  # code of a user says nothing
        row[OP_SAVES] = SAVES_ALWAYS
    if op.partials and 1 <= op.arity <= 3:
        row[OP_GIVEN] = op.arity + len(op.settings)
        row[OP_STEP] = BY_KERNEL if namesake else _SPECIAL.get(op.name, BY_KERNEL)
        for i, partial in enumerate(op.partials):
            state = NOT_LOADED
            if partial.function is None:
                # The machine multiplies by the constant; 0 times an infinite cotangent would be NaN.
                real = isinstance(partial.value, (int, float)) and partial.value != 0
                state = CONSTANT if real else UNAVAILABLE
                if real:
                    row[OP_CONSTANT + i : OP_CONSTANT + i + 1].view(np.float64)[0] = partial.value
            row[OP_KERNELS + 3 * i : OP_KERNELS + 3 * i + 3] = state
            row[OP_READS + i] = builtins.sum(_READS[name] for name in partial.needs)
    elif op.name in STEPS and not namesake:
        step, settings = STEPS[op.name]
        if tuple(op.settings) == settings:
            row[OP_STEP] = step


# --------------------------------------------------------------------------------------------- what is loaded

machine: Machine | None = None
trouble = ""
"""Why the machine could not be made, where that is known only after trying."""

_building = False
_loaded: set[str] = set()
_unavailable: dict[Key, str] = {}
"""Why there will be no kernel. By key: an op declared anew under the same name has a rule of its own."""
_asked: set[Key] = set()


def entry_points() -> dict[str, Any]:
    """The machine's functions by role, for Numba to compile: those that Python calls by name, the others by word of the world."""
    headroom.numba()
    from .calls import FOR_CALLS
    from .machine import FOR_MACHINE, FOR_PYTHON
    from .recording import FOR_OPERATORS

    words = {f"word {word}": function for word, function in FOR_MACHINE.items()}
    return FOR_PYTHON | FOR_CALLS | FOR_OPERATORS | words


def _machine_steps() -> Iterator[tuple[str, Callable[[], builder.Compiled]]]:
    for module in shipped.modules():
        yield module.role, module.compile
    if not shipped.modules():
        for role, function in entry_points().items():
            yield role, function.compile


_readying = locks.lock()


def _in_child() -> None:
    """The thread that was building the machine is the parent's."""
    global _building
    _building = False


locks.in_child(_in_child)


def _machine_ready(addresses: dict[str, int], reason: str) -> bool:
    """Take the machine into use; where there is one already, let it use this code instead. False where the code is wrong."""
    global machine, trouble, _building
    from .selftest import failures

    made = None if reason else Machine(addresses)
    wrong = "" if made is None else next(failures(made), "")
    if wrong:
        reason = (
            f"the self-test found that this Python or NumPy keeps its objects differently: {wrong}"
        )
    with _readying:
        # Two threads may load it at once: a second machine would leave walks on the first one waiting for its kernels for ever.
        if reason and shipped.fits():
            shipped.distrust()  # the next load has Numba compile it
        elif reason:
            trouble = reason
        elif machine is None:
            made.learn()
            machine = made
        else:
            machine.use(addresses)
        _building = False
    if machine is None:
        return False
    from .executor import alive

    tape.MARK[0] = alive
    return not reason


def machine_task() -> Task:
    """The machine: from shipped code if that fits, else by Numba."""
    return Task(
        "machine",
        shipped.fingerprint() + shipped.edition(),
        _machine_steps,
        _machine_ready,
        hurried=_hurried if shipped.fits() else None,
        dropped=_drop_machine,
        recipe=lambda: "machine",
    )


def _hurried(go_on: Callable[[], bool]) -> dict[str, int]:
    """The shipped machine for any processor: its code, or else its text, compiled without optimising."""
    if parts := shipped.code():
        with contextlib.suppress(LinkError):
            return link("machine", parts)
    return link_texts("machine", shipped.modules(), go_on)


def load(block: bool = False, compile: bool = True) -> bool:
    """Whether the machine is loaded; if it is not in the cache, compile it (waiting for it if `block`).

    Raises MemoryError where it is waited for and there is no room.
    """
    try:
        return _load(block, compile)
    except MemoryError:
        _drop_machine()
        if block:
            raise
        return False


def _drop_machine() -> None:
    """There was no room for the machine: it may be asked for again."""
    global _building
    _building = False


def _load(block: bool, compile: bool) -> bool:
    # Shipped code that is found wrong is distrusted, and the next turn has Numba compile the machine; there is no third.
    while True:
        building = _building  # asked before `machine`: who has built it sets `machine` first, and it must not be built twice
        if machine is not None or obstacle() or trouble or (building and not block):
            return machine is not None
        task = machine_task()
        if not building and builder.load(task):
            continue
        if not block:
            if compile and _begin_building():
                builder.queue(task)
            return False
        builder.build(task)


def _begin_building() -> bool:
    """Whether the caller is to build the machine: nobody else is at it, nor has done it."""
    global _building
    with _readying:
        begun = machine is None and not _building
        _building |= begun
        return begun


def request(keys: list[Key], wait: bool = False) -> None:
    """Load kernels, from the cache or else by compiling them: in the background, or at once if `wait`."""
    made = machine
    assert made is not None
    for key in keys:
        if why := kernels.obstacle(OPS[key[0]].partials[key[1]].function):
            _unavailable[key] = why
        if key in _unavailable:
            made.set_kernel(key, UNAVAILABLE)
            continue
        try:
            task = _kernel_task(key)
            if made.kernel(key) == NOT_LOADED and builder.load(task):
                continue
            if made.kernel(key) > UNAVAILABLE or key in _unavailable:
                continue
            if wait:
                builder.build(task)
            elif key not in _asked:
                _asked.add(key)
                builder.queue(task)
        except MemoryError:
            if wait:
                raise
        if made.kernel(key) == NOT_LOADED:
            # Python does these entries until the kernel is there.
            made.set_kernel(key, UNAVAILABLE)


def kernel_keys(numba: bool) -> list[Key]:
    """Every kernel of the ops declared so far that a rule gives; those that need Numba only where asked."""
    keys = []
    for code, op in enumerate(OPS):
        partials = op.partials if 1 <= op.arity <= 3 else ()
        for operand, partial in enumerate(partials):
            if partial.function is None or kernels.obstacle(partial.function):
                continue
            for kind, dtype in enumerate(KIND_NAMES):
                if numba or not kernels.needs_numba(op, operand, dtype):
                    keys.append((code, operand, kind))
    return keys


def _name_of(key: Key) -> str:
    return kernels.name_of(OPS[key[0]], key[1], KIND_NAMES[key[2]])


def _kernel_task(key: Key) -> Task:
    """The task that compiles a kernel and hands it to the machine."""
    code, operand, kind = key
    op, dtype = OPS[code], KIND_NAMES[kind]
    name = _name_of(key)

    def steps() -> Iterator[tuple[str, Callable[[], builder.Compiled]]]:
        yield "kernel", lambda: kernels.compile_kernel(op, operand, dtype)

    def done(addresses: dict[str, int], reason: str) -> None:
        assert machine is not None
        if reason:
            _unavailable[key] = reason
        else:
            _loaded.add(name)
        machine.set_kernel(key, addresses.get("kernel", UNAVAILABLE))

    def long() -> bool:
        return kernels.needs_numba(op, operand, dtype)

    def recipe() -> str:
        """A child knows the library's own ops only, and its start is worth it only for Numba."""
        ours = op.function.__module__.split(".")[0] == __name__.split(".")[0]
        return f"{op.name} {operand} {kind}" if ours and long() else ""

    depends_on = kernels.fingerprint(op, operand, dtype)
    return Task(name, depends_on, steps, done, recipe=recipe, long=long)


def declare_all() -> None:
    """Import every module that declares ops of the library."""
    for family in ("fft", "linalg", "ndimage", "signal", "special", "stats"):
        importlib.import_module(f"...{family}", __name__)


def task_of(recipe: str) -> Task | None:
    """The task of a recipe, in another process than its own; None where there is no such op."""
    if recipe == "machine":
        return machine_task()
    name, operand, kind = recipe.split()
    declare_all()
    code = next((code for code, op in enumerate(OPS) if op.name == name and op.partials), None)
    return None if code is None else _kernel_task((code, int(operand), int(kind)))


def reset_waiting() -> None:
    """In a call that may wait, kernels that are still being compiled count as missing again."""
    for key in list(_asked):
        if machine is not None and key not in _unavailable and machine.kernel(key) == UNAVAILABLE:
            machine.set_kernel(key, NOT_LOADED)
        _asked.discard(key)


def _code() -> str:
    """Where the machine's code comes from, as this process would find it now."""
    task = machine_task()
    if cache.read(cache.path_of(task.name, task.depends_on)) is not None:
        return "optimised and stored"
    if shipped.fits():
        return "shipped, linked or compiled in a moment when needed and optimised then"
    return f"Numba's to make, for half a minute: {shipped.obstacle()}"


def status() -> dict[str, Any]:
    """What is loaded, what is not and why, where the machine's code comes from, and where compiled code is kept."""
    reason = obstacle() or trouble
    if machine is not None:
        state = "loaded"
    elif reason:
        state = reason
    else:
        state = "being compiled" if _building else "not loaded"
    return {
        "machine": state,
        "code": "" if reason else _code(),
        "available": not reason,
        "kernels": sorted(_loaded),
        "unavailable": dict(sorted((_name_of(key), why) for key, why in _unavailable.items())),
        "compiling": not builder.idle(),
        "cache": str(cache.folder()),
        "live_bytes": machine.live_bytes if machine is not None else 0,
    }
