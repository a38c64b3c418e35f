"""What all programs call: machine code that does not depend on the program, compiled once.

    tg_new_array, tg_array, tg_forget_array   results, which are used again where nobody has them any more
    tg_numbers, tg_floats, tg_complexes       numbers as objects, NumPy's and Python's own
    tg_put                                    items of dicts
    tg_pause                                  a look whether Python was interrupted
    tg_team, tg_share                         chunks of a large loop, by one thread or by the crew (team.py)

Invariant: what is here keeps no objects; the pairs of arrays that `tg_array` looks at belong to the program that names them.
"""

from __future__ import annotations

import ctypes
import re
import threading
from typing import Any

import numpy as np

from . import jit
from .arrays import B1, C8, C16, F4, F8, I4, I8

H = object.__basicsize__
DATA, ND, DIMS, BASE, DESCR, FLAGS, WEAK = H, H + 8, H + 16, H + 32, H + 40, H + 48, H + 56
"""Where NumPy's array object has its fields."""

OWN = 0x505
"""The flags of an array that is contiguous, aligned and writeable, with memory of its own."""

NAMES = {F8: "f8", F4: "f4", I8: "i8", I4: "i4", B1: "b1", C16: "c16", C8: "c8"}

DECLARED = """
declare ptr @tg_new_array(ptr, i32, ptr)
declare ptr @tg_array(ptr, ptr, i32, ptr)
declare void @tg_forget_array(ptr)
declare i1 @tg_numbers(ptr, ptr, i64, ptr)
declare i1 @tg_floats(ptr, ptr, i64)
declare i1 @tg_complexes(ptr, ptr, i64)
declare void @tg_put(ptr, ptr, ptr)
declare i32 @tg_pause()
declare i64 @tg_team()
declare void @tg_share(ptr, ptr, i64, i64)
"""
"""For a program's text."""

_LIST = """
define i1 @{name}(ptr %from, ptr %to, i64 %n{parameter}) {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %j, %each ]
  %failed = phi i1 [ false, %entry ], [ %either, %each ]
  %at = getelementptr ptr, ptr %from, i64 %i
  %number = load ptr, ptr %at
{made}
  %none = icmp eq ptr %object, null
  %either = or i1 %failed, %none
  %place = getelementptr ptr, ptr %to, i64 %i
  store ptr %object, ptr %place
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %each, label %end
end:
  ret i1 %either
}}
"""
"""Objects of n numbers, whose addresses are given; true where one could not be made. As many values as that, kept over as many calls
of a program's own, would take longest to compile."""

_LISTS = "".join(
    _LIST.format(name=name, parameter=parameter, made=made)
    for name, parameter, made in (
        (
            "tg_numbers",
            ", ptr %descr",
            "  %object = call ptr @tg_PyArray_Scalar(ptr %number, ptr %descr, ptr null)",
        ),
        (
            "tg_floats",
            "",
            "  %re = load double, ptr %number\n  %object = call ptr @PyFloat_FromDouble(double %re)",
        ),
        (
            "tg_complexes",
            "",
            "  %re = load double, ptr %number\n  %imp = getelementptr double, ptr %number, i64 1\n"
            "  %im = load double, ptr %imp\n  %object = call ptr @PyComplex_FromDoubles(double %re, double %im)",
        ),
    )
)

_TEXT = f"""
@tg_ndarray = external global i8
declare ptr @tg_PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @tg_PyArray_Scalar(ptr, ptr, ptr)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyComplex_FromDoubles(double, double)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @PyGILState_Ensure()
declare i32 @PyErr_CheckSignals()
declare void @PyGILState_Release(i32)

define ptr @tg_new_array(ptr %descr, i32 %nd, ptr %dims) {{
  call void @Py_IncRef(ptr %descr)  ; the call takes it
  %array = call ptr @tg_PyArray_NewFromDescr(ptr @tg_ndarray, ptr %descr, i32 %nd, ptr %dims, ptr null, ptr null, i32 0, ptr null)
  ret ptr %array
}}

; One of the last two arrays made for a result, if nobody else has it and it is still as it was made; else a new one in the
; place of the older. Two, since a caller mostly has the last result until the next one is there.
define ptr @tg_array(ptr %last, ptr %descr, i32 %nd, ptr %dims) {{
entry:
  %wide = zext i32 %nd to i64
  %length = shl i64 %wide, 3
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %at = getelementptr ptr, ptr %last, i64 %i
  %array = load ptr, ptr %at
  %none = icmp eq ptr %array, null
  br i1 %none, label %next, label %there
there:
  %count = load i64, ptr %array
  %alone = icmp eq i64 %count, 1
  br i1 %alone, label %free, label %next
free:
  %weakp = getelementptr i8, ptr %array, i64 {WEAK}
  %weak = load ptr, ptr %weakp
  %unseen = icmp eq ptr %weak, null
  %basep = getelementptr i8, ptr %array, i64 {BASE}
  %base = load ptr, ptr %basep
  %whole = icmp eq ptr %base, null
  %descrp = getelementptr i8, ptr %array, i64 {DESCR}
  %descr1 = load ptr, ptr %descrp
  %kind = icmp eq ptr %descr1, %descr
  %flagsp = getelementptr i8, ptr %array, i64 {FLAGS}
  %flags = load i32, ptr %flagsp
  %mine = and i32 %flags, {OWN}
  %plain = icmp eq i32 %mine, {OWN}
  %ndp = getelementptr i8, ptr %array, i64 {ND}
  %nd1 = load i32, ptr %ndp
  %axes = icmp eq i32 %nd1, %nd
  %t0 = and i1 %unseen, %whole
  %t1 = and i1 %kind, %plain
  %t2 = and i1 %t0, %t1
  %t3 = and i1 %t2, %axes
  br i1 %t3, label %compare, label %next
compare:
  %dimsp = getelementptr i8, ptr %array, i64 {DIMS}
  %dims1 = load ptr, ptr %dimsp
  %differ = call i32 @memcmp(ptr %dims1, ptr %dims, i64 %length)
  %same = icmp eq i32 %differ, 0
  br i1 %same, label %again, label %next
again:
  call void @Py_IncRef(ptr %array)
  ret ptr %array
next:
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, 2
  br i1 %more, label %look, label %make
make:
  %new = call ptr @tg_new_array(ptr %descr, i32 %nd, ptr %dims)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %end, label %keep
keep:
  call void @Py_IncRef(ptr %new)
  %second = getelementptr ptr, ptr %last, i64 1
  %old = load ptr, ptr %last
  %younger = load ptr, ptr %second
  store ptr %younger, ptr %last
  store ptr %new, ptr %second
  %unused = icmp eq ptr %old, null
  br i1 %unused, label %end, label %drop
drop:  ; what this runs may call the program again
  call void @Py_DecRef(ptr %old)
  br label %end
end:
  ret ptr %new
}}
define void @tg_forget_array(ptr %last) {{
  %second = getelementptr ptr, ptr %last, i64 1
  %a = load ptr, ptr %last
  %b = load ptr, ptr %second
  store ptr null, ptr %last
  store ptr null, ptr %second
  call void @Py_DecRef(ptr %a)
  call void @Py_DecRef(ptr %b)
  ret void
}}

{_LISTS}

; An item goes into a dict, unless there was no memory for one of them, which is reported then.
define void @tg_put(ptr %dict, ptr %key, ptr %item) {{
  %none = icmp eq ptr %dict, null
  %lost = icmp eq ptr %item, null
  %failed = or i1 %none, %lost
  br i1 %failed, label %end, label %put
put:
  call i32 @PyDict_SetItem(ptr %dict, ptr %key, ptr %item)
  call void @Py_DecRef(ptr %item)
  br label %end
end:
  ret void
}}
declare i32 @PyDict_SetItem(ptr, ptr, ptr)

define i32 @tg_pause() {{
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %quiet = icmp eq i32 %raised, 0
  %result = select i1 %quiet, i32 1, i32 2
  ret i32 %result
}}

@threads = internal global i64 1
@crew = internal global ptr null

define i64 @tg_team() {{
  %n = load atomic i64, ptr @threads seq_cst, align 8
  ret i64 %n
}}

; From the next call on. The crew is a function as tg_share, which returns whether it has done the chunks; there is none as long as
; nobody has asked for more than one thread.
define void @tg_set_team(i64 %n, ptr %crew) {{
  store atomic ptr %crew, ptr @crew seq_cst, align 8
  store atomic i64 %n, ptr @threads seq_cst, align 8
  ret void
}}

define void @tg_share(ptr %call, ptr %frame, i64 %chunks, i64 %team) {{
  %crew = load atomic ptr, ptr @crew seq_cst, align 8
  %nobody = icmp eq ptr %crew, null
  br i1 %nobody, label %alone, label %ask
ask:
  %done = call i1 %crew(ptr %call, ptr %frame, i64 %chunks, i64 %team)
  br i1 %done, label %end, label %alone
alone:
  %some = icmp sgt i64 %chunks, 0
  br i1 %some, label %each, label %end
each:
  %k = phi i64 [ 0, %alone ], [ %next, %each ]
  call void %call(ptr %frame, i64 %k, i64 0)
  %next = add i64 %k, 1
  %on = icmp slt i64 %next, %chunks
  br i1 %on, label %each, label %end
end:
  ret void
}}
"""

_OWN_NAMES = tuple(re.findall(r"@(\w+)", DECLARED))

_lock = threading.RLock()
_state: dict[str, Any] = {}


def kept_forever(text: str, effort: int, exports: tuple[str, ...]) -> dict[str, int]:
    """Addresses in machine code that is never dropped, nor its linker: threads may be in it when Python has gone."""
    part = jit.compiled(text, effort)
    imports = {name: at for name, at in objects().items() if name in part.asks}
    library = jit.Library(part.code, exports, imports, part.asks, None)
    for kept in (library, library.tracker, jit.linker()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return library.addresses


def addresses() -> dict[str, int]:
    """Symbol -> address of what all programs call."""
    return {name: _all()[name] for name in _OWN_NAMES}


def _all() -> dict[str, int]:
    with _lock:
        if "addresses" not in _state:
            _state["addresses"] = kept_forever(_TEXT, jit.USUAL, (*_OWN_NAMES, "tg_set_team"))
        return _state["addresses"]


def set_team(n: int, crew: int) -> None:
    """Let `n` threads share large loops from the next call on: `crew` is the address of what hires them, 0 if there is nothing."""
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(_all()["tg_set_team"])(n, crew)


def objects() -> dict[str, int]:
    """Addresses of the objects and functions that machine code names."""
    found = {f"tg_descr_{n}": id(d) for d, n in NAMES.items()}
    found |= {f"tg_scalar_{n}": id(d.type) for d, n in NAMES.items()}
    found |= {"tg_ndarray": id(np.ndarray), "tg_float": id(float), "tg_complex": id(complex)}
    found |= {"tg_tuple": id(tuple), "tg_list": id(list), "tg_dict": id(dict)}
    found |= {f"tg_{k}": v for k, v in jit.numpy_api().items()}
    return found
