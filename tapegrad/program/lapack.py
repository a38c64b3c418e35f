"""The routines of calls (`calls`) as LLVM IR around LAPACK's functions, whose addresses SciPy has.

`text(name, kind)` defines `@name_kind(operand, entries between its rows, ..., result, entries between its rows, rows of the result, entries
of a row of the first operand, its rows)`. It answers whether LAPACK found a solution. Rows here are columns for LAPACK, so that it has
transposes: what is factored is the transposed matrix, and a lower triangle is an upper one.

Invariant: an operand is never written to: LAPACK works in place, so the result is first a copy of it. Rows of operands and results may lie
apart, as they do in a buffer whose matrix has another size in each iteration of a loop.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .. import vecmath
from ..llvm import named
from . import drivers

LETTERS = {"double": "d", "float": "s"}
BYTES = {"double": 8, "float": 4}
STEEP = {"double": f"{2.0**-35:.17e}", "float": f"{2.0**-15:.17e}"}
"""By how much the least pivot may be below the largest one, about epsilon to 2/3, where derivatives of a determinant divide by it."""
ROUNDING = {"double": f"{16 * 2.0**-52:.17e}", "float": f"{16 * 2.0**-23:.17e}"}
"""16 epsilon: so much, times the root of their count and the largest one, are singular values off (`drivers.HELPERS`)."""
CUT = {"double": f"{1e-15:.17e}", "float": f"{float(np.float32(1e-15)):.17e}"}
"""What Numba's pseudo-inverse takes for zero, beside the largest singular value."""
MOST = (1 << 31) - 1
"""Rows and columns that LAPACK can count."""

_ROWS = """
define internal void @rows_{kind}(ptr %to, i64 %by, ptr %from, i64 %step, i64 %count, i64 %length) noinline nounwind {{
entry:
  %bytes = mul i64 %length, {size}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %end
body:
  %at = mul i64 %i, %by
  %there = getelementptr {kind}, ptr %to, i64 %at
  %place = mul i64 %i, %step
  %here = getelementptr {kind}, ptr %from, i64 %place
  call void @llvm.memcpy.p0.p0.i64(ptr %there, ptr %here, i64 %bytes, i1 false)
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}}
"""

_FINITE = """
define internal i1 @finite_{kind}(ptr %from, i64 %step, i64 %count, i64 %length) noinline nounwind {{
entry:
  %none = icmp eq i64 %length, 0
  br i1 %none, label %end, label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %row.end ]
  %total = phi {kind} [ 0.0, %entry ], [ %total.next, %row.end ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %row, label %end
row:
  %place = mul i64 %i, %step
  %here = getelementptr {kind}, ptr %from, i64 %place
  br label %body
body:
  %k = phi i64 [ 0, %row ], [ %k.next, %body ]
  %sum = phi {kind} [ %total, %row ], [ %total.next, %body ]
  %at = getelementptr {kind}, ptr %here, i64 %k
  %value = load {kind}, ptr %at
  %nothing = fmul {kind} %value, 0.0
  %total.next = fadd reassoc {kind} %sum, %nothing
  %k.next = add i64 %k, 1
  %on = icmp slt i64 %k.next, %length
  br i1 %on, label %body, label %row.end
row.end:
  %next = add i64 %i, 1
  br label %head
end:
  %found = phi {kind} [ 0.0, %entry ], [ %total, %head ]
  %finite = fcmp oeq {kind} %found, 0.0
  ret i1 %finite
}}
"""
"""Whether all numbers are finite: infinities and NaNs times 0 are NaN."""

_HEAD = """
define internal i1 @{name}_{kind}({given}) noinline nounwind {{
entry:
  %n = alloca i32
  %m = alloca i32
  %by.place = alloca i32
  %by_a.place = alloca i32
  %info = alloca i32
  %n.short = trunc i64 %length to i32
  store i32 %n.short, ptr %n
  %m.short = trunc i64 %rows to i32
  store i32 %m.short, ptr %m
  store i32 0, ptr %info
  %by.short = trunc i64 %by to i32
  store i32 %by.short, ptr %by.place
  %by_a.short = trunc i64 %by_a to i32
  store i32 %by_a.short, ptr %by_a.place
  %of_result = or i64 %length, %rows
  %sides = or i64 %of_result, %rows_a
  %steps = or i64 %by, %by_a
  %any = or i64 %sides, %steps
  %counts = icmp ule i64 %any, {most}
  %some = icmp ne i64 %length, 0
  br i1 %counts, label %fits, label %long
long:
  ret i1 false
fits:
  br i1 %some, label %go, label %empty
empty:
{empty}
  ret i1 {nothing}
go:
{test}
start:
{body}
}}
"""

_BODIES = {
    "lu": """
  call void @rows_{kind}(ptr %result, i64 %by, ptr %a, i64 %by_a, i64 %length, i64 %length)
  %size = mul i64 %length, %by
  %pivots = getelementptr {kind}, ptr %result, i64 %size
  call void @{getrf}(ptr %n, ptr %n, ptr %result, ptr %by.place, ptr %pivots, ptr %info)
""",
    "solve": """
  %word = alloca i8
  store i8 {letter}, ptr %word
  call void @rows_{kind}(ptr %result, i64 %by, ptr %b, i64 %by_b, i64 %rows, i64 %length)
  %size = mul i64 %length, %by_a
  %pivots = getelementptr {kind}, ptr %a, i64 %size
  call void @{getrs}(ptr %word, ptr %n, ptr %m, ptr %a, ptr %by_a.place, ptr %pivots, ptr %result, ptr %by.place, ptr %info)
""",
    "lower": """
  %part = alloca i8
  store i8 85, ptr %part
  %word = alloca i8
  store i8 {letter}, ptr %word
  %unit = alloca i8
  store i8 78, ptr %unit
  call void @rows_{kind}(ptr %result, i64 %by, ptr %b, i64 %by_b, i64 %rows, i64 %length)
  call void @{trtrs}(ptr %part, ptr %word, ptr %unit, ptr %n, ptr %m, ptr %a, ptr %by_a.place, ptr %result, ptr %by.place, ptr %info)
""",
    "cholesky": """
  %part = alloca i8
  store i8 85, ptr %part
  call void @triangle_{kind}(ptr %result, i64 %by, ptr %a, i64 %by_a, i64 %length)
  call void @{potrf}(ptr %part, ptr %n, ptr %result, ptr %by.place, ptr %info)
""",
}
_BODIES["demand"] = """
  %value = load {kind}, ptr %a
  store {kind} %value, ptr %result
  %nothing = fcmp oeq {kind} %value, 0.0
  %none.yet = xor i1 %nothing, true
  %some.yet = zext i1 %none.yet to i32
  store i32 %some.yet, ptr %info
"""
_BODIES |= {f"{name}_transposed": _BODIES[name] for name in ("solve", "lower")}
_BODIES["solve_finite"] = _BODIES["solve"]
_BODIES |= drivers.BODIES

_TESTED = {"lu": "a", "cholesky": "a", "solve_finite": "b", "lstsq": "ab"} | dict.fromkeys(
    ("eigh", "svd", "qr", "pinv"), "a"
)
"""The operands of which Numba, too, wants finite numbers; what derivatives solve may overflow."""
_TEST = """
  %finite_{operand} = call i1 @finite_{kind}(ptr %{operand}, i64 %by_{operand}, i64 {count}, i64 {across})
  br i1 %finite_{operand}, label %{then}, label %long
"""

OF_SOMETHING = frozenset(("svd", "qr", "lstsq"))
"""Of matrices without rows or columns Numba has none of these."""
_OF_NOTHING = """
  store <2 x {kind}> <{kind} 1.0, {kind} 1.0>, ptr %result, align {size}
  %third = getelementptr {kind}, ptr %result, i64 2
  store {kind} 0.0, ptr %third
"""
_DETERMINANT = """
  %size = mul i64 %length, %by_a
  %pivots = getelementptr {kind}, ptr %a, i64 %size
  br label %head
head:
  %i = phi i64 [ 0, %start ], [ %next, %row ]
  %product = phi {kind} [ 1.0, %start ], [ %product.next, %row ]
  %sign = phi {kind} [ 1.0, %start ], [ %sign.next, %row ]
  %log = phi {kind} [ 0.0, %start ], [ %log.next, %row ]
  %least = phi {kind} [ 0x7FF0000000000000, %start ], [ %least.next, %row ]
  %most = phi {kind} [ 0.0, %start ], [ %most.next, %row ]
  %more = icmp slt i64 %i, %length
  br i1 %more, label %row, label %last
row:
  %next = add i64 %i, 1
  %across = mul i64 %i, %by_a
  %at = add i64 %across, %i
  %there = getelementptr {kind}, ptr %a, i64 %at
  %entry.value = load {kind}, ptr %there
  %place = getelementptr i32, ptr %pivots, i64 %i
  %pivot = load i32, ptr %place
  %own = trunc i64 %next to i32
  %stays = icmp eq i32 %pivot, %own
  %turned = fneg {kind} %entry.value
  %value = select i1 %stays, {kind} %entry.value, {kind} %turned
  %product.next = fmul {kind} %product, %value
  %negative = fcmp olt {kind} %value, 0.0
  %sign.turned = fneg {kind} %sign
  %sign.next = select i1 %negative, {kind} %sign.turned, {kind} %sign
  %large = call {kind} @llvm.fabs.{short}({kind} %entry.value)
  %term = call {kind} @{log}({kind} %large)
  %log.next = fadd {kind} %log, %term
  %least.next = call {kind} @llvm.minnum.{short}({kind} %least, {kind} %large)
  %most.next = call {kind} @llvm.maxnum.{short}({kind} %most, {kind} %large)
  br label %head
last:
  %limit = fmul {kind} %most, {steep}
  %steep = fcmp olt {kind} %least, %limit
  %vanished = fcmp oeq {kind} %product, 0.0
  %lost = and i1 %vanished, {told}
  %neither = or i1 %steep, %lost
  br i1 %neither, label %near, label %put
near:
  ret i1 false
put:
  %place.sign = getelementptr {kind}, ptr %result, i64 1
  %place.log = getelementptr {kind}, ptr %result, i64 2
  store {kind} %product, ptr %result
  store {kind} %sign, ptr %place.sign
  store {kind} %log, ptr %place.log
  ret i1 true
"""

_INTRINSICS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
"""


@cache
def available(kind: str = "double") -> bool:
    """Whether there is a LAPACK that compiled programs can call, for numbers of LLVM's `kind`."""
    names = (LETTERS[kind] + f for f in named.LAPACK)
    return all(named.address_of(named.BLAS + name) for name in names)


def gemm_declared(symbol: str) -> str:
    """The declaration of a product of matrices by BLAS."""
    return f"declare void @{symbol}({', '.join(['ptr captures(none)'] * len(named.GEMM))})\n"


def text(name: str, kind: str) -> dict[str, str]:
    """The texts that define `@name_kind`, by what they define."""
    symbols = {f: f"{named.BLAS}{LETTERS[kind]}{f}" for f in named.LAPACK}
    symbols["gemm"] = f"{named.BLAS}{LETTERS[kind]}gemm"
    words = symbols | {"kind": kind, "size": str(BYTES[kind]), "short": f"f{8 * BYTES[kind]}"}
    words["nothing"] = "false" if name in OF_SOMETHING else "true"
    words |= {"rounding": ROUNDING[kind], "cut": CUT[kind]}
    # LAPACK has the transposed matrix.
    words["letter"] = str(ord("N" if name.endswith("_transposed") else "T"))
    operands = "ab" if name.startswith(("solve", "lower", "lstsq")) else "a"
    given = [f"ptr %{x}, i64 %by_{x}" for x in operands]
    last = [f"i64 %{x}" for x in ("by", "rows", "length", "rows_a")]
    words["given"] = ", ".join([*given, "ptr %result", *last])
    found: dict[str, str] = {}
    if name.endswith("determinant"):
        # Of other matrices the cofactors are no differences of what these routines give, second derivatives above all.
        words["told"] = "false" if name == "log_determinant" else "true"
        words["steep"] = "0.0" if name == "log_determinant" else STEEP[kind]
        words["log"], found["log"] = vecmath.emit(
            "log", {"double": "float64", "float": "float32"}[kind], 1
        )
        body, empty = _DETERMINANT.format(**words), _OF_NOTHING.format(**words)
    else:
        body, empty = _BODIES[name].format(**words) + drivers.DONE, ""
    declared = [
        f"declare void @{symbols[f]}({', '.join(['ptr'] * len(given))})\n"
        for f, given in named.LAPACK.items()
        if f"@{symbols[f]}(" in body
    ]
    if f"@{symbols['gemm']}(" in body:
        declared.append(gemm_declared(symbols["gemm"]))
    if "@malloc(" in body or "@factored_" in body:
        declared.append(drivers.MEMORY)
    short = words["short"]
    declared.append(f"declare {kind} @llvm.fabs.{short}({kind})\n")
    declared += [f"declare {kind} @llvm.{w}num.{short}({kind}, {kind})\n" for w in ("min", "max")]
    head = _HEAD.format(
        name=name, test=_test(name, words), body=body, empty=empty, most=MOST, **words
    )
    found[f"rows_{kind}"] = _ROWS.format(**words)
    found[f"finite_{kind}"] = _FINITE.format(**words)
    found |= _helpers(body, words)
    return found | {f"{name}_{kind}": _INTRINSICS + "".join(declared) + head}


def _helpers(body: str, words: dict[str, str]) -> dict[str, str]:
    """The functions that a body calls, and those that these call."""
    found: dict[str, str] = {}
    for helper, template in drivers.HELPERS.items():
        name = f"{helper}_{words['kind']}"
        if any(f"@{name}(" in text for text in (body, *found.values())):
            found[name] = template.format(**words)
    return found


def _test(name: str, words: dict[str, str]) -> str:
    """The question whether the operands that a routine tests have finite numbers alone, then a jump to its start."""
    tested = _TESTED.get(name, "")
    lines = []
    for k, x in enumerate(tested):
        following = tested[k + 1 :]
        then = f"test_{following}" if following else "start"
        count = "%rows_a" if x == "a" else "%rows"
        across = "%rows_a" if name == "lstsq" and x == "b" else "%length"
        lines.append(_TEST.format(operand=x, count=count, across=across, then=then, **words))
        if following:
            lines.append(f"{then}:")
    return "".join(lines) or "  br label %start"
