"""The entry of a native part: METH_FASTCALL, a function that Python calls with objects.

`entry` writes it. It checks the arguments and what the function reads beside them, puts the addresses of all data into a table, makes
the arrays of the results, calls `tg_run` with the table, and builds the result. Arguments that it does not take go to `tg_slow`, an object
of Python's, with everything as it was given.

Invariant: an entry touches no array whose type, dtype, shape, order and alignment it has not checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from ..llvm.objects import DATA, DIMS, H, Text
from .arrays import C16
from .support import NAMES
from .surroundings import ABSENT, Watched, place_of_code, place_of_data

if TYPE_CHECKING:
    from .native import Argument, Form, Native, Result

RELEASE_ABOVE = 30_000
"""Entries computed in a call above which the interpreter lock is released."""

MOST_RECYCLED = 1 << 12
"""Results up to this many bytes reuse the previous result's array once nobody else holds it: allocating costs more than a small program."""

MOST_ALIKE = 4
"""Arguments of one dtype and shape above which a function takes each: code for every one would take longest to compile."""

REFUSED = 3
"""What a body returns where the function itself would raise."""

_DECLARED = """
@tg_slow = external global i8
declare ptr @tg_PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @tg_PyArray_Scalar(ptr, ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_NoMemory()
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare ptr @PyDict_New()
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyComplex_FromDoubles(double, double)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)"""


def entry(native: Native, form: Form, shared: bool) -> str:
    """The METH_FASTCALL entry, `tg_entry`, and `tg_release`, with all that they name.

    `shared`: threads share the part's loops. The steps are those of the module's first lines, in that order.
    """
    n_in, n_out = len(native.arguments), len(native.results)
    results = native.results[: native.shown]
    runs = _runs(results, form.weak)
    text = Text("define ptr @tg_entry(ptr %self, ptr %args, i64 %nargs, ptr %names) {", set())
    text.say(f"%table = alloca [{n_in + n_out + 1} x ptr]")
    for k, result in enumerate(native.results):
        room = f"%dims{k} = alloca [{len(result.shape)} x i64]"
        text.say(room if result.shape else f"%out{k} = alloca [2 x i64], align 8")
    many = sum(n for _, _, n in runs) > MOST_ALIKE
    if many:
        text.say(f"%objects = alloca [{n_out} x ptr]")
    text.demand(text.equal("%nargs", len(form.arguments), "i64"))
    text.demand(text.equal("%names", "null"))
    checker = _Checker(native, text)
    checker.taken("%args", form.arguments)
    for i, w in enumerate(form.watched):
        checker.same(i, w)
    arrays: dict[int, str] = {}
    recycled: list[int] = []
    for k, result in enumerate(native.results):
        data = _made(text, k, result, arrays, recycled) if result.shape else f"%out{k}"
        text.say(f"store ptr {data}, ptr {text.place('%table', n_in + k)}")
    ok = _run(text, checker.in_lists if _lets_go(native, shared) else None)
    last = len(arrays)
    text.say(
        f"switch i32 {ok}, label %result [ i32 0, label %memory i32 2, label %undo{last} i32 {REFUSED}, label %again ]"
    )
    text.mark("result")
    for k in range(native.shown, n_out):
        text.demand(text.equal(text.let(f"load i64, ptr %out{k}"), 0, "i64"), "again")
    objects = dict(arrays)
    failed = []
    each = [(first + i, dtype, 1) for first, dtype, n in runs for i in range(n)]
    for k, dtype, n in runs if many else each:
        if many:
            places = f"ptr {text.place('%table', n_in + k)}, ptr {text.place('%objects', k)}"
            failed.append(text.let(_of_many(text, places, n, dtype, k in form.weak)))
        else:
            objects[k] = _number(text, k, dtype, k in form.weak)
            failed.append(text.equal(objects[k], "null"))
    if failed:
        some = failed[0]
        for other in failed[1:]:
            some = text.let(f"or i1 {some}, {other}")
        text.avoid(some, f"undo{last}")
    text.say(f"ret ptr {_built(text, form.result, objects)}")
    text.mark("memory")
    text.say("call ptr @PyErr_NoMemory()")
    text.say(f"br label %undo{last}")
    for n, array in reversed([*enumerate(arrays.values(), 1)]):
        text.mark(f"undo{n}")
        text.say(f"call void @Py_DecRef(ptr {array})")
        text.say(f"br label %undo{n - 1}")
    text.mark("undo0")
    text.say("ret ptr null")
    text.mark("again")
    for array in arrays.values():
        text.say(f"call void @Py_DecRef(ptr {array})")
    text.say("br label %slow")
    text.mark("slow")
    call = "call ptr @PyObject_Vectorcall(ptr @tg_slow, ptr %args, i64 %nargs, ptr %names)"
    text.say(f"ret ptr {text.let(call)}")
    return "\n".join([
        *text.lines, "}",
        *(f"@{name} = external global i8" for name in sorted(text.named)),
        *(f"@tg_last{k} = internal global [2 x ptr] zeroinitializer" for k in recycled),
        *_released(native.heap, recycled),
        *(function for _, function in checker.functions.values()),
        _DECLARED,
    ])  # fmt: skip


def _made(text: Text, k: int, result: Result, arrays: dict[int, str], recycled: list[int]) -> str:
    """The address of the data of a new array for a result, which joins those that are given up where something fails."""
    for j, n in enumerate(result.shape):
        text.say(f"store i64 {n}, ptr {text.place(f'%dims{k}', j, 'i64')}")
    text.outside("tg_ndarray")
    descr = text.outside(f"tg_descr_{NAMES[result.dtype]}")
    given = f"ptr {descr}, i32 {len(result.shape)}, ptr %dims{k}"
    if math.prod(result.shape) * result.dtype.itemsize <= MOST_RECYCLED:
        recycled.append(k)
        array = text.let(f"call ptr @tg_array(ptr @tg_last{k}, {given})")
    else:
        array = text.let(f"call ptr @tg_new_array({given})")
    text.avoid(text.equal(array, "null"), f"undo{len(arrays)}")
    arrays[k] = array
    return text.field(array, DATA)


def _lets_go(native: Native, shared: bool) -> bool:
    """Whether a call gives up the interpreter lock meanwhile."""
    return shared or native.interrupts or native.work > RELEASE_ABOVE


def _run(text: Text, held: Sequence[str] | None) -> str:
    """The call of `tg_run`; without the interpreter lock, but for None, while these objects are held.

    Another thread may take arrays out of a list that was passed: they must live until the end.
    """
    if held is None:
        return text.let("call i32 @tg_run(ptr %table)")
    for thing in held:
        text.say(f"call void @Py_IncRef(ptr {thing})")
    thread = text.let("call ptr @PyEval_SaveThread()")
    ok = text.let("call i32 @tg_run(ptr %table)")
    text.say(f"call void @PyEval_RestoreThread(ptr {thread})")
    for thing in held:
        text.say(f"call void @Py_DecRef(ptr {thing})")
    return ok


def _released(heap: bool, recycled: Sequence[int]) -> list[str]:
    """`tg_release`: what is kept between calls is given back."""
    lines = [f"  call void @tg_forget_array(ptr @tg_last{k})" for k in recycled]
    if heap:
        lines += [
            "  %spare = atomicrmw xchg ptr @spare, ptr null seq_cst",
            "  call void @free(ptr %spare)",
        ]
    return ["define void @tg_release() {", *lines, "  ret void", "}"] if lines else []


# ------------------------------------------------------------------------------------------------- results


def _runs(results: Sequence[Result], weak: Set[int]) -> list[tuple[int, np.dtype, int]]:
    """Numbers among the results: where those of one kind begin that stand side by side, the dtype, and how many there are."""
    runs: list[tuple[int, np.dtype, int]] = []
    for k, op in enumerate(results):
        if op.shape:
            continue
        if runs:
            first, dtype, n = runs[-1]
            if dtype == op.dtype and first + n == k and (first in weak) == (k in weak):
                runs[-1] = (first, dtype, n + 1)
                continue
        runs.append((k, op.dtype, 1))
    return runs


def _of_many(text: Text, places: str, n: int, dtype: np.dtype, weak: bool) -> str:
    """The call that makes objects of n numbers, NumPy's or (`weak`) Python's own."""
    if weak:
        return f"call i1 @{'tg_complexes' if dtype == C16 else 'tg_floats'}({places}, i64 {n})"
    return f"call i1 @tg_numbers({places}, i64 {n}, ptr {text.outside(f'tg_descr_{NAMES[dtype]}')})"


def _number(text: Text, k: int, dtype: np.dtype, weak: bool) -> str:
    """The object of a number."""
    if not weak:
        descr = text.outside(f"tg_descr_{NAMES[dtype]}")
        return text.let(f"call ptr @tg_PyArray_Scalar(ptr %out{k}, ptr {descr}, ptr null)")
    real = text.let(f"load double, ptr %out{k}")
    if dtype != C16:
        return text.let(f"call ptr @PyFloat_FromDouble(double {real})")
    imaginary = text.item(f"%out{k}", 1, "double")
    return text.let(f"call ptr @PyComplex_FromDoubles(double {real}, double {imaginary})")


def _built(text: Text, template: Any, objects: dict[int, str]) -> str:
    """A result of nested tuples, lists and dicts, a new reference; leaves that have no name in `objects` are in memory."""
    kind, *parts = template
    if kind == "leaf":
        return objects.get(parts[0]) or text.item("%objects", parts[0])
    if kind == "object":
        name = text.outside(f"tg_object{parts[0]}")
        text.say(f"call void @Py_IncRef(ptr {name})")
        return name
    if kind == "dict":
        whole = text.let("call ptr @PyDict_New()")
        keys, *parts = parts
        for key, part in zip(keys, parts, strict=True):
            item = _built(text, part, objects)
            name = text.outside(f"tg_object{key}")
            text.say(f"call void @tg_put(ptr {whole}, ptr {name}, ptr {item})")
        return whole
    word = {"tuple": "PyTuple", "list": "PyList"}[kind]
    whole = text.let(f"call ptr @{word}_New(i64 {len(parts)})")
    # Without memory for a tuple the parts are lost: PyTuple_SetItem on NULL reports it, and what was made leaks.
    for i, part in enumerate(parts):
        item = _built(text, part, objects)
        text.say(f"call i32 @{word}_SetItem(ptr {whole}, i64 {i}, ptr {item})")
    return whole


# ------------------------------------------------------------------------------------------------- arguments


def _kind(argument: Argument) -> tuple[Any, ...]:
    return argument.dtype, argument.shape, argument.weak


class _Checker:
    """Takes arguments: checks type and layout of each, and puts the address of its data into the table.

    It also looks at what the function reads beside its arguments.
    """

    def __init__(self, native: Native, text: Text) -> None:
        self.native = native
        self.text = text
        self.in_lists: list[str] = []
        self.alike = Counter(map(_kind, native.arguments))
        self.functions: dict[Any, tuple[str, str]] = {}

    def taken(self, items: str, trees: Sequence[Any], in_list: bool = False) -> None:
        """Take the objects whose references stand one after the other at `items`."""
        text = self.text
        for i, tree in enumerate(trees):
            self._one(text.item(items, i), tree, in_list)

    def _one(self, thing: str, tree: Any, in_list: bool) -> None:
        text = self.text
        if in_list:
            self.in_lists.append(thing)
        if tree[0] == "object":
            text.demand(text.equal(thing, text.outside(f"tg_object{tree[1]}")))
        elif tree[0] == "leaf":
            self._leaf(thing, tree[1])
        else:
            self._nested(thing, tree, in_list)

    def _nested(self, thing: str, tree: Any, in_list: bool) -> None:
        """A tuple, list or dict of the signature and its items, whose length stands at one place in all."""
        text = self.text
        kind, *trees = tree
        keys = trees.pop(0) if kind == "dict" else ()
        text.demand(text.equal(text.field(thing, H - 8), text.outside(f"tg_{kind}")))
        text.demand(text.equal(text.field(thing, H, "i64"), len(trees), "i64"))
        if kind == "dict":
            before = text.let("alloca i64")
            text.say(f"store i64 0, ptr {before}")
            for key, part in zip(keys, trees, strict=True):
                given = f"ptr {thing}, ptr {before}, ptr {text.outside(f'tg_object{key}')}"
                item = text.let(f"call ptr @tg_next_item({given})")
                text.avoid(text.equal(item, "null"), "slow")
                self._one(item, part, True)
            return
        # A list holds a pointer to its items, a tuple the items.
        items = text.field(thing, H + 8) if kind == "list" else text.inside(thing, H + 8)
        self.taken(items, trees, in_list or kind == "list")

    def _leaf(self, thing: str, i: int) -> None:
        text, argument = self.text, self.native.arguments[i]
        place = text.place("%table", i)
        if self.alike[_kind(argument)] <= MOST_ALIKE:
            _put_data(text, thing, place, argument)
        else:
            name = self._function(argument)
            text.demand(text.let(f"call i1 @{name}(ptr {thing}, ptr {place})"))

    def _function(self, argument: Argument) -> str:
        """The name of a function that takes one of many arguments of a kind."""
        kind = _kind(argument)
        if kind not in self.functions:
            name = f"tg_take{len(self.functions)}"
            head = f"define internal i1 @{name}(ptr %object, ptr %place) noinline {{"
            own = Text(head, self.text.named)
            _put_data(own, "%object", "%place", argument)
            own.lines.append("  ret i1 true\nslow:\n  ret i1 false\n}")
            self.functions[kind] = name, "\n".join(own.lines)
        return self.functions[kind][0]

    def same(self, i: int, w: Watched) -> None:
        """Go the slow way unless a name means the same object, and an array holds the same bytes."""
        text = self.text
        if w.how != "array":
            text.demand(self._means_the_same(i, w, text.outside(f"tg_at{i}")))
        if w.copy is not None and w.copy.nbytes:
            here, was = text.outside(f"tg_is{i}"), text.outside(f"tg_was{i}")
            given = f"ptr {text.field(here, DATA)}, ptr {was}, i64 {w.copy.nbytes}"
            text.demand(text.equal(text.let(f"call i32 @memcmp({given})"), 0, "i32"))

    def _means_the_same(self, i: int, w: Watched, at: str) -> str:
        """Whether what a name means is the object that it was, or items are the objects that they were."""
        text = self.text
        expected = "null"
        if w.value is not ABSENT and w.how in ("cell", "tensor", "entry", "attribute"):
            expected = text.outside(f"tg_is{i}")
        if w.how in ("entry", "attribute"):
            given = f"ptr {at}, ptr {text.outside(f'tg_name{i}')}"
            if w.how == "attribute":
                return text.let(f"call i1 @tg_attribute({given}, ptr {expected})")
            return text.equal(text.let(f"call ptr @PyDict_GetItemWithError({given})"), expected)
        if w.how in ("cell", "tensor"):
            return text.equal(text.field(at, place_of_data() if w.how == "tensor" else H), expected)
        if w.how == "size":
            return text.equal(text.field(at, H, "i64"), w.value, "i64")
        was, n = text.outside(f"tg_was{i}"), len(w.value)
        if w.how == "function":
            code = place_of_code()
            assert code is not None
            given = f"ptr {text.inside(at, code)}, ptr {was}, i64 {8 * n}"
            return text.equal(text.let(f"call i32 @memcmp({given})"), 0, "i32")
        kind = type(w.holder).__name__
        return text.let(f"call i1 @tg_{kind}_items(ptr {at}, ptr {was}, i64 {n})")


def _put_data(text: Text, thing: str, place: str, argument: Argument) -> None:
    """Store the address of an argument's data at its place; go on at `slow` where it is not what the entry takes."""
    kind, shape, name = text.field(thing, H - 8), argument.shape, NAMES[argument.dtype]
    if argument.weak:
        own = "tg_complex" if argument.dtype == C16 else "tg_float"
        text.demand(text.equal(kind, text.outside(own)))
        text.say(f"store ptr {text.inside(thing, H)}, ptr {place}")
        return
    done = ""
    if not shape:
        done = f"taken{text.count}"
        scalar, other = f"scalar{text.count}", f"other{text.count}"
        test = text.equal(kind, text.outside(f"tg_scalar_{name}"))
        text.say(f"br i1 {test}, label %{scalar}, label %{other}")
        text.mark(scalar)
        text.say(f"store ptr {text.inside(thing, H)}, ptr {place}")
        text.say(f"br label %{done}")
        text.mark(other)
    text.demand(text.equal(kind, text.outside("tg_ndarray")))
    text.demand(text.dense(thing, len(shape), text.outside(f"tg_descr_{name}")))
    if shape:
        dims = text.field(thing, DIMS)
        extents = [text.equal(text.item(dims, j, "i64"), n, "i64") for j, n in enumerate(shape)]
        text.demand(text.all(extents))
    text.say(f"store ptr {text.field(thing, DATA)}, ptr {place}")
    if done:
        text.say(f"br label %{done}")
        text.mark(done)


__all__ = ["REFUSED", "entry"]
