"""What all programs call: machine code that does not depend on the program, compiled once.

    tg_new_array, tg_array, tg_forget_array   results, which are used again where nobody has them any more
    tg_numbers, tg_floats, tg_complexes       numbers as objects, NumPy's and Python's own
    tg_put                                    items of dicts
    tg_next_item                              items of dicts in their order
    tg_attribute, tg_list_items, tg_dict_items  whether an attribute or items are still the same objects
    tg_pause                                  a look whether Python was interrupted
    tg_team, tg_share                         chunks of a large loop, by one thread or by the crew (team.py)

Invariant: what is here keeps no objects; the pairs of arrays that `tg_array` looks at belong to the program that names them.
"""

from __future__ import annotations

import ctypes
import re
import types
from typing import Any

import numpy as np

from ..core import locks
from ..llvm import jit
from ..llvm.objects import BASE, DESCR, DIMS, FLAGS, ND, WEAK, H
from .arrays import B1, C8, C16, F4, F8, I4, I8

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
declare ptr @tg_next_item(ptr, ptr, ptr)
declare i1 @tg_attribute(ptr, ptr, ptr)
declare i1 @tg_list_items(ptr, ptr, i64)
declare i1 @tg_dict_items(ptr, ptr, i64)
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

@tg_str = external global i8
@tg_method = external global i8
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare void @PyErr_Clear()

; The value of a dict's next item, if that has this key, a string; else NULL.
define ptr @tg_next_item(ptr %dict, ptr %before, ptr %wanted) {{
  %keyp = alloca ptr
  %valuep = alloca ptr
  %some = call i32 @PyDict_Next(ptr %dict, ptr %before, ptr %keyp, ptr %valuep)
  %is_some = icmp ne i32 %some, 0
  br i1 %is_some, label %item, label %no
item:
  %key = load ptr, ptr %keyp
  %value = load ptr, ptr %valuep
  %same = icmp eq ptr %key, %wanted
  br i1 %same, label %yes, label %look
look:
  %typep = getelementptr i8, ptr %key, i64 {H - 8}
  %type = load ptr, ptr %typep
  %text = icmp eq ptr %type, @tg_str
  br i1 %text, label %compare, label %no
compare:
  %order = call i32 @PyUnicode_Compare(ptr %key, ptr %wanted)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %yes, label %no
yes:
  ret ptr %value
no:
  ret ptr null
}}

; Whether an attribute is this very object (NULL: there is none), or a method of that function.
define i1 @tg_attribute(ptr %holder, ptr %name, ptr %was) {{
  %now = call ptr @PyObject_GetAttr(ptr %holder, ptr %name)
  %none = icmp eq ptr %now, null
  br i1 %none, label %missing, label %there
missing:
  call void @PyErr_Clear()
  %absent = icmp eq ptr %was, null
  ret i1 %absent
there:
  %same = icmp eq ptr %now, %was
  br i1 %same, label %end, label %look
look:
  %typep = getelementptr i8, ptr %now, i64 {H - 8}
  %type = load ptr, ptr %typep
  %bound = icmp eq ptr %type, @tg_method
  br i1 %bound, label %method, label %end
method:
  %functionp = getelementptr i8, ptr %now, i64 {H}
  %function = load ptr, ptr %functionp
  %alike = icmp eq ptr %function, %was
  br label %end
end:
  %result = phi i1 [ true, %there ], [ false, %look ], [ %alike, %method ]
  call void @Py_DecRef(ptr %now)
  ret i1 %result
}}

define i1 @tg_list_items(ptr %list, ptr %was, i64 %n) {{
  %sizep = getelementptr i8, ptr %list, i64 {H}
  %size = load i64, ptr %sizep
  %as_long = icmp eq i64 %size, %n
  br i1 %as_long, label %look, label %no
look:
  %itemsp = getelementptr i8, ptr %list, i64 {H + 8}
  %items = load ptr, ptr %itemsp
  %bytes = shl i64 %n, 3
  %differ = call i32 @memcmp(ptr %items, ptr %was, i64 %bytes)
  %same = icmp eq i32 %differ, 0
  ret i1 %same
no:
  ret i1 false
}}

; Keys and values stand in turn in the table: n of both together.
define i1 @tg_dict_items(ptr %dict, ptr %was, i64 %n) {{
entry:
  %before = alloca i64
  %keyp = alloca ptr
  %valuep = alloca ptr
  store i64 0, ptr %before
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %next, %value ]
  %some = call i32 @PyDict_Next(ptr %dict, ptr %before, ptr %keyp, ptr %valuep)
  %is_some = icmp ne i32 %some, 0
  %more = icmp slt i64 %i, %n
  %both = and i1 %is_some, %more
  br i1 %both, label %item, label %end
item:
  %key = load ptr, ptr %keyp
  %key_wasp = getelementptr ptr, ptr %was, i64 %i
  %key_was = load ptr, ptr %key_wasp
  %same_key = icmp eq ptr %key, %key_was
  br i1 %same_key, label %value, label %no
value:
  %j = add i64 %i, 1
  %next = add i64 %i, 2
  %now = load ptr, ptr %valuep
  %value_wasp = getelementptr ptr, ptr %was, i64 %j
  %value_was = load ptr, ptr %value_wasp
  %same_value = icmp eq ptr %now, %value_was
  br i1 %same_value, label %each, label %no
end:
  %either = or i1 %is_some, %more
  %same = xor i1 %either, true
  ret i1 %same
no:
  ret i1 false
}}

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

_lock = locks.rlock()
_state: dict[str, Any] = {}


def kept_forever(text: str, effort: int, exports: tuple[str, ...]) -> dict[str, int]:
    """Addresses in machine code that is never dropped, nor its linker: threads may be in it when Python has gone."""
    part = jit.compiled(text, effort)
    imports = {name: at for name, at in objects().items() if name in part.asks}
    library = jit.Library([part.code], exports, imports, part.asks, None)
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
    found |= {"tg_str": id(str), "tg_method": id(types.MethodType)}
    found |= {f"tg_{k}": v for k, v in jit.numpy_api().items()}
    return found
