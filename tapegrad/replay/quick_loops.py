"""Loops: NumPy's ufuncs with inner loops of ours for large arrays.

`quick(np.sin)` is a ufunc made of np.sin's own loops (public fields of PyUFuncObject), of which those for float64 and float32 are
wrapped: from 64 contiguous elements on (or one value against many) they compute with vector functions, in blocks; anything else is
handed to NumPy's loop behind, with one comparison more. So types, broadcasting, `out=`, and everything small stay NumPy's, at
NumPy's cost. A block with a result that is not finite is computed by NumPy's loop, which raises the warnings that belong to it; the
floating-point environment is otherwise left as it was (an underflow to zero raises nothing, whatever np.errstate says of it).

A loop is used only if it was measured, when it was loaded, to be faster than NumPy's. Loading goes on in the background, once
an op has met many large arrays (`primitive.track_big`), from the cache of compiled code if it is there; until then, and where the
self-test finds that NumPy keeps ufuncs differently, forward values are NumPy's. TAPEGRAD_VECMATH=0 leaves it at that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..llvm.assembly import assemble, lanes
from ..llvm.cache import text_of as source_of
from ..vecmath import arity, emit, fingerprint, fuses, has, join

SMALLEST = 64
"""Elements below which NumPy's loop is called: two vectors, for the widest there are."""

BLOCK = 64
"""Elements computed at a time: few enough that the buffers of a loop stay within one page of stack."""
_WORTH = 0.8  # of NumPy's time

# The block goes to a buffer first: its inputs must be intact where NumPy's loop is to have them.
_BLOCK = """
define internal i1 @block_{letter}({pointers}, ptr %to, i64 %n) noinline {{
entry:
  br label %vectors
vectors:
  %i = phi i64 [ 0, %entry ], [ %i.next, %vectors ]
  %odd = phi {kind} [ zeroinitializer, %entry ], [ %odd.next, %vectors ]
  %last = sub i64 %n, {lanes}
  %beyond = icmp ugt i64 %i, %last
  %at = select i1 %beyond, i64 %last, i64 %i
{loads}
  %y = call {kind} @{symbol}({passed})
  %y.at = getelementptr {element}, ptr %to, i64 %at
  store {kind} %y, ptr %y.at, align {size}
  %nothing = fsub {kind} %y, %y
  %odd.next = fadd {kind} %odd, %nothing
  %i.next = add i64 %i, {lanes}
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %vectors, label %done
done:
  %test = fcmp uno {kind} %odd.next, zeroinitializer
  %bits = bitcast <{lanes} x i1> %test to i{lanes}
  %any = icmp ne i{lanes} %bits, 0
  ret i1 %any
}}
"""

_LOOP = """
define void @loop_{letter}(ptr %args, ptr %dimensions, ptr %steps, ptr %behind) {{
entry:
  %buffer = alloca [{twice} x {element}], align 64
  %environment = alloca [64 x i8], align 16
  %some.args = alloca [{streams} x ptr]
  %some = alloca i64
{blocks}
  %numpy = load ptr, ptr %behind
  %data.at = getelementptr ptr, ptr %behind, i64 1
  %data = load ptr, ptr %data.at
  %n = load i64, ptr %dimensions
  %large = icmp uge i64 %n, {smallest}
{steps}
  br i1 %fits, label %start, label %hand.over
hand.over:
  call void %numpy(ptr %args, ptr %dimensions, ptr %steps, ptr %data)
  ret void
start:
  call i32 @fegetenv(ptr %environment)
{addresses}
  br label %blocks
blocks:
  %first = phi i64 [ 0, %start ], [ %first.next, %after ]
  %left = sub i64 %n, %first
  %final = icmp ult i64 %left, {twice}
  %m = select i1 %final, i64 %left, i64 {block}
{places}
  %odd = call i1 @block_{letter}({inputs}, ptr %buffer, i64 %m)
  br i1 %odd, label %by.numpy, label %copy
by.numpy:
  call i32 @fesetenv(ptr %environment)
{given}
  store i64 %m, ptr %some
  call void %numpy(ptr %some.args, ptr %some, ptr %steps, ptr %data)
  call i32 @fegetenv(ptr %environment)
  br label %after
copy:
  %bytes = mul i64 %m, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr %buffer, i64 %bytes, i1 false)
  br label %after
after:
  %first.next = add i64 %first, %m
  %again = icmp ult i64 %first.next, %n
  br i1 %again, label %blocks, label %done
done:
  call i32 @fesetenv(ptr %environment)
  ret void
}}
declare i32 @fegetenv(ptr)
declare i32 @fesetenv(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_FILL = """
define internal void @fill_{letter}(ptr %from, ptr %to, i1 %wanted) {{
entry:
  br i1 %wanted, label %start, label %done
start:
  %value = load {element}, ptr %from, align {size}
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %i.next, %loop ]
  %at = getelementptr {element}, ptr %to, i64 %i
  store {element} %value, ptr %at, align {size}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, {twice}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""

TYPES = {"d": "float64", "f": "float32"}


def text_of(name: str, letter: str) -> str:
    """The module of a loop: NumPy's signature, for one of the types "d" and "f"."""
    dtype = TYPES[letter]
    element, size = ("double", 8) if letter == "d" else ("float", 4)
    width = lanes(dtype)
    symbol, function = emit(name, dtype, width)
    kind = f"<{width} x {element}>"
    count = arity(name)
    operands = [f"x{i}" for i in range(count)]
    block = _BLOCK.format(
        letter=letter,
        pointers=", ".join(f"ptr %{x}" for x in operands),
        kind=kind,
        element=element,
        size=size,
        lanes=width,
        symbol=symbol,
        loads="\n".join(
            f"  %{x}.at = getelementptr {element}, ptr %{x}, i64 %at\n"
            f"  %{x}.v = load {kind}, ptr %{x}.at, align {size}"
            for x in operands
        ),
        passed=", ".join(f"{kind} %{x}.v" for x in operands),
    )
    streams = [*operands, "out"]
    blocks: list[str] = []
    steps: list[str] = []
    addresses: list[str] = []
    places: list[str] = []
    given: list[str] = []
    inputs: list[str] = []
    fits = "%large"
    for i, s in enumerate(streams):
        steps += [
            f"  %{s}.step.at = getelementptr i64, ptr %steps, i64 {i}",
            f"  %{s}.step = load i64, ptr %{s}.step.at",
            f"  %{s}.dense = icmp eq i64 %{s}.step, {size}",
        ]
        addresses += [
            f"  %{s}.arg = getelementptr ptr, ptr %args, i64 {i}",
            f"  %{s}.from = load ptr, ptr %{s}.arg",
        ]
        places.append(f"  %{s}.here = getelementptr {element}, ptr %{s}.from, i64 %first")
        place = taken = f"%{s}.here"
        dense = f"%{s}.dense"
        if count > 1 and s != "out":
            # One value for all elements: a block of it, made once, is read again and again.
            steps += [
                f"  %{s}.single = icmp eq i64 %{s}.step, 0",
                f"  %{s}.either = or i1 {dense}, %{s}.single",
            ]
            blocks.append(f"  %{s}.block = alloca [{2 * BLOCK} x {element}], align 64")
            addresses.append(
                f"  call void @fill_{letter}(ptr %{s}.from, ptr %{s}.block, i1 %{s}.single)"
            )
            places += [
                f"  %{s}.place = select i1 {dense}, ptr %{s}.here, ptr %{s}.block",
                f"  %{s}.own = select i1 {dense}, ptr %{s}.here, ptr %{s}.from",
            ]
            place, taken, dense = f"%{s}.place", f"%{s}.own", f"%{s}.either"
        steps.append(f"  %{s}.fits = and i1 {fits}, {dense}")
        fits = f"%{s}.fits"
        if s == "out":
            out = place
        else:
            inputs.append(f"ptr {place}")
        given += [
            f"  %{s}.given = getelementptr ptr, ptr %some.args, i64 {i}",
            f"  store ptr {taken}, ptr %{s}.given",
        ]
    steps.append(f"  %fits = and i1 {fits}, %large")
    loop = _LOOP.format(
        letter=letter,
        smallest=SMALLEST,
        blocks="\n".join(blocks),
        steps="\n".join(steps),
        twice=2 * BLOCK,
        block=BLOCK,
        element=element,
        size=size,
        streams=len(streams),
        addresses="\n".join(addresses),
        places="\n".join(places),
        inputs=", ".join(inputs),
        out=out,
        given="\n".join(given),
    )
    fill = _FILL.format(letter=letter, element=element, size=size, twice=2 * BLOCK)
    return join(function, block, loop, fill if count > 1 else "")


class _Fields(ctypes.Structure):
    """The public head of PyUFuncObject (numpy/ufuncobject.h)."""

    _fields_ = (
        ("object", ctypes.c_char * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
        ("doc", ctypes.c_char_p),
    )


def _fields(ufunc: np.ufunc) -> _Fields | None:
    """A ufunc's fields, or None where they are not what NumPy says of it in Python."""
    fields = _Fields.from_address(id(ufunc))
    if (fields.nin, fields.nout, fields.nargs) != (ufunc.nin, ufunc.nout, ufunc.nargs):
        return None
    if fields.ntypes != ufunc.ntypes or fields.name != ufunc.__name__.encode():
        return None
    if not fields.functions or not fields.data or not fields.types:
        return None
    letters = [np.dtype(t).num for text in ufunc.types for t in text.replace("->", "")]
    if fields.types[: len(letters)] != bytes(letters):
        return None
    return fields


_NO_IDENTITY = -1
"""NumPy's PyUFunc_None. Where a ufunc's identity is an object, as hypot's, its field has a mark that this constructor takes for an
object, too. Nothing reduces with our ufuncs, so they need none."""

_kept: list[Any] = []
"""What the ufuncs point to: they are never given up, as code never is."""


def _wrapped(ufunc: np.ufunc, addresses: dict[str, int]) -> np.ufunc | None:
    """A ufunc with NumPy's loops behind ours; None where NumPy's fields cannot be read."""
    fields = _fields(ufunc)
    if fields is None:
        return None
    count = fields.ntypes
    functions = (ctypes.c_void_p * count)(*(fields.functions[i] for i in range(count)))
    data = (ctypes.c_void_p * count)(*(fields.data[i] for i in range(count)))
    types = ctypes.create_string_buffer(fields.types[: count * fields.nargs])
    for letter, address in addresses.items():
        signature = letter * ufunc.nin + "->" + letter
        if signature not in ufunc.types:
            continue
        i = ufunc.types.index(signature)
        behind = (ctypes.c_void_p * 2)(functions[i], data[i])
        functions[i], data[i] = address, ctypes.addressof(behind)
        _kept.append(behind)
    name, doc = ctypes.create_string_buffer(fields.name), ctypes.create_string_buffer(fields.doc)
    _kept.append((functions, data, types, name, doc))
    return _maker()(functions, data, types, count, ufunc.nin, 1, _NO_IDENTITY, name, doc, 0)


def _maker() -> Callable[..., np.ufunc]:
    """PyUFunc_FromFuncAndData, the first function of NumPy's C interface to ufuncs."""
    from numpy._core._multiarray_umath import _UFUNC_API  # type: ignore[attr-defined]

    from ..llvm.named import pointer

    address = ctypes.cast(pointer(_UFUNC_API, None), ctypes.POINTER(ctypes.c_void_p))[1]
    place, integer = ctypes.c_void_p, ctypes.c_int
    arguments = [place] * 3 + [integer] * 4 + [place] * 2 + [integer]
    return ctypes.PYFUNCTYPE(ctypes.py_object, *arguments)(address)


def _ratio(ours: np.ufunc, theirs: np.ufunc, letter: str) -> float:
    """Our time over NumPy's, on 4096 elements where every function is defined; infinite if the values disagree."""
    x = np.linspace(0.05, 0.95, 4096, dtype=letter)
    if theirs is np.arccosh:
        x = x + x.dtype.type(1)
    operands = [x] * theirs.nin
    a, b = np.empty_like(x), np.empty_like(x)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(7):
        for ufunc, out, taken in ((ours, a, times[0]), (theirs, b, times[1])):
            start = time.perf_counter()
            ufunc(*operands, out)
            taken.append(time.perf_counter() - start)
    if not np.allclose(a, b, rtol=1e-5 if letter == "f" else 1e-13, atol=1e-12):
        return np.inf
    return sorted(times[0])[3] / sorted(times[1])[3]


# ------------------------------------------------------------------------------------------- what is loaded

_quick: dict[Any, np.ufunc] = {}
_in_use: dict[Any, dict[str, int]] = {}
"""A ufunc's loops that are in use: type -> address."""
_asked: set[tuple[Any, str]] = set()
_reasons: dict[str, str] = {}
_ratios: dict[str, dict[str, float]] = {}


def quick(ufunc: np.ufunc) -> np.ufunc:
    """The ufunc with our loops, if it is loaded and faster; else the ufunc itself."""
    return _quick.get(ufunc, ufunc)


def status() -> dict[str, Any]:
    """What is loaded, with our time over NumPy's by type, and what is not and why."""
    return {
        "loaded": {name: dict(ratios) for name, ratios in sorted(_ratios.items())},
        "unavailable": dict(sorted(_reasons.items())),
    }


def suits(ufunc: Any) -> bool:
    """Whether there are vector functions for a ufunc: NumPy's own, or SciPy's of that name, and no namesake."""
    name = getattr(ufunc, "__name__", "")
    if not isinstance(ufunc, np.ufunc) or not has(name, "float64") or ufunc.nin != arity(name):
        return False
    if ufunc is np.sqrt:  # one instruction, in NumPy too
        return False
    if ufunc is getattr(np, name, None):
        return True
    special = sys.modules.get("scipy.special")
    return special is not None and ufunc is getattr(special, name, None)


def _compiled(name: str, letter: str) -> tuple[str, bytes, list[str]]:
    return f"loop_{letter}", *assemble(text_of(name, letter))


def _task(ufunc: np.ufunc, letter: str, done: Callable[[np.ufunc], None]) -> Any:
    """The task that compiles a ufunc's loop for one dtype and puts it into use if it is worth that."""
    from .builder import Task

    name = ufunc.__name__

    def steps() -> Iterator[tuple[str, Callable[[], tuple[str, bytes, list[str]]]]]:
        yield letter, partial(_compiled, name, letter)

    def ready(addresses: dict[str, int], reason: str) -> None:
        """Measure the loop against NumPy's, and keep the quicker one."""
        worth = _in_use.get(ufunc, {}) | addresses
        made = None if reason else _wrapped(ufunc, worth)
        if made is not None:
            ratio = _ratio(made, ufunc, letter)
            _ratios.setdefault(name, {})[letter] = ratio
            if ratio < _WORTH:
                _in_use[ufunc], _quick[ufunc] = worth, made
                _reasons.pop(name, None)
                done(made)
                return
            reason = "NumPy's loops are as fast"
        if ufunc not in _quick:
            _reasons[name] = reason or "NumPy keeps its ufuncs differently here"

    return Task(
        f"loop_{name}_{letter}",
        f"{fingerprint()} {source_of('llvm/assembly', 'replay/quick_loops')} {SMALLEST} {fuses()}",
        steps,
        ready,
    )


def load(ufunc: np.ufunc, done: Callable[[np.ufunc], None] = lambda made: None) -> np.ufunc:
    """Load a ufunc's loops now, compiling them if need be; returns `quick(ufunc)`.

    >>> quicker = load(np.sin)
    >>> float(quicker(0.0))
    0.0
    """
    from . import builder

    for letter in TYPES if suits(ufunc) else ():
        if letter not in _ratios.get(ufunc.__name__, {}):
            task = _task(ufunc, letter, done)
            if not builder.load(task):
                builder.build(task)
    return quick(ufunc)


def enabled() -> bool:
    """Whether loops may be loaded in the background."""
    from ..core.executors import engine
    from .bridge import obstacle

    return os.environ.get("TAPEGRAD_VECMATH", "1") != "0" and engine() != "sweep" and not obstacle()


def request(ufunc: np.ufunc, letter: str, done: Callable[[np.ufunc], None]) -> None:
    """Load a ufunc's loop for a type in the background, where there is one and it is allowed; `done` gets the quicker ufunc.

    Types are asked for one by one, as most programs compute with one: the other's loop would take the first second's time for nothing.
    """
    if letter not in TYPES or (ufunc, letter) in _asked:
        return
    _asked.add((ufunc, letter))
    if enabled() and suits(ufunc):
        from . import builder

        with contextlib.suppress(MemoryError):  # NumPy's own loop needs no room
            builder.queue(_task(ufunc, letter, done))
