"""C functions: a compiled program of one flat float64 vector at an address, for code that calls by address.

A native program has the function `tg_run(table)` (native.py), of a table of pointers to arguments and results. A C function here is a
few lines of machine code around it: it compares the length, fills the table on the stack, calls `tg_run` and turns its answer into a
status. The table's other arguments point to copies that were made at creation. `FORMS` says which C signatures there are.

Invariant: an address that was handed out stays valid until the process ends, with the machine code and every array behind it. Numba
freezes addresses into code of its own, samplers and SciPy keep them in C structures, and none of these holds a Python object.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TraceError
from ..llvm import jit
from .arrays import F8
from .entrance import REFUSED
from .native import Native
from .program import Program, Programs, _Static, taken_apart

NOT_FINITE, LENGTH, MEMORY, GUARD, INTERRUPTED, FAULT = 1, -1, -2, -3, -4, -5
STATUS = {
    0: "done",
    NOT_FINITE: "the value or the gradient is infinite or NaN (only in the form of nutpie, which then tries another point)",
    LENGTH: "the length is another one than the program's",
    MEMORY: "there is no memory for the call",
    GUARD: "the values take another branch than the program's, or the function would raise for them",
    INTERRUPTED: "Ctrl-C came during a loop; Python raises KeyboardInterrupt at its next line",
    FAULT: "checked mode found an access out of bounds",
}
"""What a C function returns. A status that ends a run is negative: samplers take positive numbers for points of no use."""


@dataclass(frozen=True, slots=True)
class Form:
    """One C signature: its text with `{results}` for pointers to the results, and what stands in the code for a status."""

    prototype: str
    kinds: tuple[str, ...]
    """Per parameter: "n", "x", "results" (all of them), "value", "gradient" or "data" (ignored)."""
    length: str
    """IR type of the length."""
    returns: str
    """"status", "value" (NaN where the status is not 0) or "done" (1 where the status is 0)."""


FORMS = {
    "status": Form("int64_t f(int64_t n, const double *x{results})", ("n", "x", "results"), "i64", "status"),
    "nutpie": Form(
        "int64_t f(uint64_t n, const double *x, double *gradient, double *value, void *data)",
        ("n", "x", "gradient", "value", "data"), "i64", "status",
    ),
    "quad": Form("double f(int n, double *x, void *data)", ("n", "x", "data"), "i32", "value"),
    "filter": Form(
        "int f(double *x, intptr_t n, double *value, void *data)", ("x", "n", "value", "data"), "i64", "done"
    ),
}  # fmt: skip
"""The signatures: ours, that of nutpie's models, and those that SciPy knows (`scipy.integrate.quad`, `scipy.ndimage.generic_filter`)."""


class CFunction:
    """A compiled program as a C function; made by `cfunc` of a compiled function.

    `address` is the address, `signature` its C prototype, `ctypes` the same as a function of ctypes, which Numba's nopython code and
    `scipy.LowLevelCallable` take. `length` is the only length that it takes, `shapes` the shapes of the results. The machine code stays
    until the process ends, so the bare address may be kept anywhere.
    """

    __slots__ = ("_library", "address", "ctypes", "form", "length", "name", "shapes", "signature")

    def __init__(self, native: Native, arrays: list[np.ndarray], name: str, form: str) -> None:
        """Compile a C function of the chosen form around a native program; `arrays` are the other arguments, which it holds."""
        chosen = FORMS[form]
        self.form = form
        self.name = name
        self.length: int = native.arguments[0].shape[0]
        results = native.results[: native.shown]
        self.shapes: tuple[tuple[int, ...], ...] = tuple(r.shape for r in results)
        pointers = "".join(f", double *result{k}" for k in range(len(results)))
        self.signature: str = chosen.prototype.format(results=pointers)
        part = jit.compiled(_written(native, chosen))
        given = {f"tg_given{i}": a.ctypes.data for i, a in enumerate(arrays)}
        imports = {
            k: native.library.addresses[k] for k in ("tg_run", "tg_fault_at") if k in part.asks
        } | given
        self._library = jit.Library(
            [part.code], ["tg_c"], imports, part.asks, [native.library, arrays]
        )
        self.address: int = self._library.addresses["tg_c"]
        self.ctypes: Any = _prototype(chosen, len(results))(self.address)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"the C function of {self.name} is an address in this process, which means nothing in another. Pickle the compiled function, "
            "and call its cfunc there."
        )

    def __repr__(self) -> str:
        return (
            f"<C function of {self.name} at {self.address:#x}: {self.signature}, n = {self.length}>"
        )


def made(
    programs: Programs, static: frozenset[int], x: Any, data: tuple[Any, ...], form: str
) -> CFunction:
    """The C function of the program for `x` and `data`. Raises TypeError, ValueError or TraceError where there is none."""
    name = programs.name
    if form not in FORMS:
        raise ValueError(
            f"form={form!r} was given, but the C signatures are {', '.join(map(repr, FORMS))}."
        )
    if np.ndim(x) != 1 or np.asarray(x).dtype.kind not in "fiu":
        raise TypeError(
            f"cfunc needs a vector of real numbers, but was given an argument of shape {np.shape(x)} and dtype {np.asarray(x).dtype}: C "
            "code hands over one flat float64 vector. Take it apart inside the function (x[:3], x[3:].reshape(2, 2))."
        )
    call = taken_apart((np.array(x, np.float64), *data), {}, static, programs.compares)
    if isinstance(call.kinds[0], _Static) or call.tracked:
        raise TypeError(
            f"cfunc of {name} was given a static first argument or tracked tensors, but C code hands over nothing but a vector of numbers. "
            "Do not name argument 0 in static_argnums, and detach() tensors."
        )
    program = programs.answered(call)[1].by_itself(programs.f, call, name)
    _demand_outputs(program, name)
    _demand_native(program, name)
    _demand_results(program, form, name)
    native = program.native
    arrays = [
        np.array(v, a.dtype, order="C")
        for v, a in zip(call.values[1:], native.arguments[1:], strict=True)
    ]
    # The code's address names the program, which lives as long as a C function of it: that is, from the first on, for ever.
    digests = (hashlib.sha256(a.tobytes()).digest() for a in arrays)
    key = (native.library.addresses["tg_run"], form, *digests)
    if key not in _made:
        _made.setdefault(key, CFunction(native, arrays, name, form))
    return _made[key]


_made: dict[tuple[Any, ...], CFunction] = {}
"""Each C function by program, form and data. They are kept for the invariant; whoever asks for the same again gets the same."""


def _demand_outputs(program: Program, name: str) -> None:
    """Raise TypeError where the function returns constants of Python's, or nothing."""
    constants = [repr(leaf[0]) for leaf in program.leaves if leaf is not None]
    if constants or not program.leaves:
        raise TypeError(
            f"cfunc of {name} was asked for, but it returns {', '.join(constants) or 'no number'} whatever its arguments are, and C code "
            "has no place for that. Return float64 arrays alone; np.asarray(number) makes a constant one of them."
        )


def _demand_native(program: Program, name: str) -> None:
    """Raise TraceError unless the program is one piece of machine code that serves later calls."""
    if not program.lasting:
        raise TraceError(
            f"{name} changes what it reads beside its arguments, so there is no program of it. Pass that as an argument.",
            name="reads-outside",
        )
    if program.native is None:
        calls = (
            ", ".join(dict.fromkeys(program.report(name).calls)) or program.why or "NumPy's calls"
        )
        raise TraceError(
            f"cfunc of {name} was asked for, but part of the program calls Python ({calls}), which C code must not. fast.report() shows "
            "what is machine code; write the rest with NumPy's functions that are.",
            name="outside-program",
        )


def _demand_results(program: Program, form: str, name: str) -> None:
    """Raise TypeError where the results are not what the signature has places for."""
    native = program.native
    results = native.results[: native.shown]
    told = ", ".join(f"{r.dtype}{list(r.shape)}" for r in results)
    if any(r.dtype != F8 for r in results):
        raise TypeError(
            f"cfunc of {name} was asked for, but it returns other things than float64 numbers and arrays ({told}). Return these alone, "
            "converted with astype(np.float64) where need be."
        )
    n = native.arguments[0].shape[0]
    shapes = [r.shape for r in results]
    if form == "nutpie" and shapes != [(), (n,)]:
        raise TypeError(
            f'form="nutpie" needs a value and its gradient, but {name} returns {told}. Compile tg.value_and_grad(f).'
        )
    if form in ("quad", "filter") and shapes != [()]:
        raise TypeError(
            f'form="{form}" needs one number, but {name} returns {told}. Return a scalar.'
        )


def _prototype(form: Form, results: int) -> Any:
    """The type of ctypes for a signature with so many results."""
    pointer = ctypes.POINTER(ctypes.c_double)
    length = {"i32": ctypes.c_int, "i64": ctypes.c_int64}[form.length]
    kinds: dict[str, list[Any]] = {
        "n": [length], "x": [pointer], "results": [pointer] * results, "value": [pointer], "gradient": [pointer],
        "data": [ctypes.c_void_p],
    }  # fmt: skip
    if form.prototype.startswith("int64_t f(uint64_t"):
        kinds["n"] = [ctypes.c_uint64]
    if form.returns == "done":
        kinds["n"] = [ctypes.c_ssize_t]
    returned = {"status": ctypes.c_int64, "value": ctypes.c_double, "done": ctypes.c_int}
    parameters = [t for kind in form.kinds for t in kinds[kind]]
    return _of_type(returned[form.returns], *parameters)


@functools.cache
def _of_type(*types: Any) -> Any:
    """A type of ctypes for a signature, made once."""
    return ctypes.CFUNCTYPE(*types)


def _written(native: Native, form: Form) -> str:
    """IR of the function `tg_c` in a signature."""
    n_in, n_out, shown = len(native.arguments), len(native.results), native.shown
    result = [f"%result{k}" for k in range(shown)]
    names = {"n": [f"{form.length} %n"], "x": ["ptr %x"], "data": ["ptr %data"]}
    names["results"] = [f"ptr {r}" for r in result]
    names |= {"value": ["ptr %result0"], "gradient": ["ptr %result1"]}
    parameters = ", ".join(p for kind in form.kinds for p in names[kind])
    kind = {"status": "i64", "value": "double", "done": "i32"}[form.returns]
    lines = [
        f"define dso_local {kind} @tg_c({parameters}) #0 {{", "entry:",
        f"  %table = alloca [{n_in + n_out} x ptr]",
    ]  # fmt: skip
    if form.returns == "value":
        lines.append("  %result0 = alloca double")
    lines += [f"  %check{k} = alloca [2 x i64]" for k in range(shown, n_out)]
    lines += [
        f"  %fits = icmp eq {form.length} %n, {native.arguments[0].shape[0]}",
        "  br i1 %fits, label %fill, label %end", "fill:",
    ]  # fmt: skip
    given = [f"@tg_given{i}" for i in range(n_in - 1)]
    checks = [f"%check{k}" for k in range(shown, n_out)]
    for i, pointer in enumerate(["%x", *given, *result, *checks]):
        lines += [
            f"  %place{i} = getelementptr ptr, ptr %table, i64 {i}",
            f"  store ptr {pointer}, ptr %place{i}",
        ]
    lines += [
        "  %ok = call i32 @tg_run(ptr %table)",
        f"  switch i32 %ok, label %ran [ i32 0, label %end i32 2, label %interrupted i32 {REFUSED}, label %refused ]",
        # The exception goes, as no caller here looks for it, and the signal comes again: where Python runs next it raises.
        "interrupted:", "  %state = call i32 @PyGILState_Ensure()", "  call void @PyErr_Clear()", "  call void @PyErr_SetInterrupt()",
        "  call void @PyGILState_Release(i32 %state)", "  br label %end", "refused:", "  br label %end", "ran:",
        "  %sum0 = add i64 0, 0",
    ]  # fmt: skip
    for j, k in enumerate(range(shown, n_out)):
        lines += [
            f"  %wrong{k} = load i64, ptr %check{k}",
            f"  %sum{j + 1} = or i64 %sum{j}, %wrong{k}",
        ]
    lines += [
        f"  %bad = icmp ne i64 %sum{n_out - shown}, 0",
        f"  %guarded = select i1 %bad, i64 {GUARD}, i64 0",
    ]
    last = "%guarded"
    checked = "tg_fault_at" in native.library.addresses
    if checked:
        lines += [
            "  %record = call ptr @tg_fault_at()", "  %fault = load i64, ptr %record", "  store i64 0, ptr %record",
            "  %faulty = icmp ne i64 %fault, 0", f"  %found = select i1 %faulty, i64 {FAULT}, i64 %guarded",
        ]  # fmt: skip
        last = "%found"
    ran = "ran"
    if "gradient" in form.kinds:
        lines += _finite(native.arguments[0].shape[0], last)
        last, ran = "%useful", "seen"
    lines += [
        "  br label %end", "end:",
        f"  %status = phi i64 [ {LENGTH}, %entry ], [ {MEMORY}, %fill ], [ {INTERRUPTED}, %interrupted ], [ {GUARD}, %refused ], "
        f"[ {last}, %{ran} ]",
        "  %done = icmp eq i64 %status, 0",
    ]  # fmt: skip
    if form.returns == "status":
        lines.append("  ret i64 %status")
    elif form.returns == "done":
        lines += ["  %answer = zext i1 %done to i32", "  ret i32 %answer"]
    else:
        lines += [
            "  br i1 %done, label %value, label %none", "value:", "  %number = load double, ptr %result0", "  ret double %number",
            "none:", "  ret double 0x7FF8000000000000",
        ]  # fmt: skip
    lines += [
        "}", "declare i32 @tg_run(ptr)", "declare i32 @PyGILState_Ensure()", "declare void @PyGILState_Release(i32)",
        "declare void @PyErr_Clear()", "declare void @PyErr_SetInterrupt()",
        *(["declare ptr @tg_fault_at()"] if checked else []),
        *(f"@tg_given{i} = external global i8" for i in range(n_in - 1)),
        "attributes #0 = { nounwind }",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _finite(n: int, status: str) -> list[str]:
    """IR that makes NOT_FINITE of a status 0 where the value or an entry of the gradient is not finite: 0 times them is NaN."""
    return [
        "  %result = load double, ptr %result0", "  %zero = fmul double %result, 0.0", "  br label %look", "look:",
        "  %i = phi i64 [ 0, %ran ], [ %next, %entry_of ]", "  %sofar = phi double [ %zero, %ran ], [ %more, %entry_of ]",
        f"  %inside = icmp slt i64 %i, {n}", "  br i1 %inside, label %entry_of, label %seen", "entry_of:",
        "  %gp = getelementptr double, ptr %result1, i64 %i", "  %g = load double, ptr %gp", "  %none_of = fmul double %g, 0.0",
        "  %more = fadd double %sofar, %none_of", "  %next = add i64 %i, 1", "  br label %look", "seen:",
        "  %useless = fcmp uno double %sofar, 0.0", f"  %well = icmp eq i64 {status}, 0", "  %both = and i1 %useless, %well",
        f"  %useful = select i1 %both, i64 {NOT_FINITE}, i64 {status}",
    ]  # fmt: skip


__all__ = ["FORMS", "STATUS", "CFunction", "made"]
