"""LAPACK's drivers that need memory of their own, as bodies of routines (`lapack`): eigenvalues, singular values, QR, least squares.

Each is asked first how much memory it needs. Matrices are copied so that they lie by columns, as Numba hands them over: transposed ones
would have the same factors but for the signs, which are LAPACK's choice.

Data: `BODIES` by the routine's name, `HELPERS` by the name of a function that bodies call. What a name is of stands in `calls` and
`decompositions`.
"""

from __future__ import annotations

from collections.abc import Sequence


def _whole(name: str, value: str) -> str:
    """Memory `%name` with a whole number, as LAPACK takes it."""
    return f"""
  %{name} = alloca i32
  %{name}.short = trunc i64 {value} to i32
  store i32 %{name}.short, ptr %{name}"""


def _letter(name: str, letter: str) -> str:
    return f"""
  %{name} = alloca i8
  store i8 {ord(letter)}, ptr %{name}"""


def _driver(name: str, given: Sequence[str], tag: str = "work", whole: str = "") -> str:
    """The call of a driver, which is asked first for its memory.

    `given` names what it is passed; `<tag>` stands for the memory, `<tag>.length` for how long that is, `<tag>.whole` for memory of whole
    numbers, of which it needs `whole` or, with "asked", what it says in `<tag>.whole.length`. Where there is none, the routine fails.
    """
    passed = ", ".join(f"ptr %{x}" for x in given)
    asked = passed.replace(f"%{tag},", f"%{tag}.asked,").replace(
        f"%{tag}.whole,", f"%{tag}.whole.asked,"
    )
    count = f"%{tag}.whole.count"
    if whole == "asked":
        more = f"""
  %{tag}.whole.said = load i32, ptr %{tag}.whole.asked
  store i32 %{tag}.whole.said, ptr %{tag}.whole.length
  {count} = zext i32 %{tag}.whole.said to i64"""
    else:
        more = f"\n  {count} = add i64 {whole or '0'}, 0"
    return f"""
  %{tag}.asked = alloca {{kind}}
  %{tag}.length = alloca i32
  store i32 -1, ptr %{tag}.length
  %{tag}.whole.asked = alloca i32
  %{tag}.whole.length = alloca i32
  store i32 -1, ptr %{tag}.whole.length
  call void @{{{name}}}({asked})
  %{tag}.said = load {{kind}}, ptr %{tag}.asked
  %{tag}.short = fptosi {{kind}} %{tag}.said to i32
  store i32 %{tag}.short, ptr %{tag}.length
  %{tag}.count = zext i32 %{tag}.short to i64
  %{tag}.numbers = mul i64 %{tag}.count, {{size}}{more}
  %{tag}.room = mul i64 {count}, 4
  %{tag}.bytes = add i64 %{tag}.numbers, %{tag}.room
  %{tag} = call ptr @malloc(i64 %{tag}.bytes)
  %{tag}.none = icmp eq ptr %{tag}, null
  br i1 %{tag}.none, label %{tag}.lacking, label %{tag}.ready
{tag}.lacking:
  ret i1 false
{tag}.ready:
  %{tag}.whole = getelementptr i8, ptr %{tag}, i64 %{tag}.numbers
  call void @{{{name}}}({passed})
  call void @free(ptr %{tag})"""


MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)
"""

DONE = """
  %found = load i32, ptr %info
  %done = icmp eq i32 %found, 0
  ret i1 %done
"""
"""The end of a routine: whether LAPACK found a solution."""


def _memory(name: str, entries: str, then: str, otherwise: str = "long") -> str:
    """Memory `%name` for so many entries; without any, a jump to `otherwise`."""
    return f"""
  %{name}.bytes = mul i64 {entries}, {{size}}
  %{name} = call ptr @malloc(i64 %{name}.bytes)
  %{name}.none = icmp eq ptr %{name}, null
  br i1 %{name}.none, label %{otherwise}, label %{then}
{then}:"""


HELPERS = {
    "factored": MEMORY
    + "declare void @{gesdd}(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)\n"
    + """
define internal i1 @factored_{kind}(ptr %a, i64 %by_a, i64 %rows, i64 %columns, ptr %s, ptr %u, ptr %vt) noinline nounwind {{
entry:
  %info = alloca i32
  store i32 0, ptr %info
  %least = call i64 @llvm.umin.i64(i64 %rows, i64 %columns)
  %entries = mul i64 %rows, %columns"""
    + _memory("copy", "%entries", "copied", "work.lacking")
    + """
  call void @turned_{kind}(ptr %copy, i64 %rows, ptr %a, i64 %by_a, i64 %rows, i64 %columns)
  %eight = mul i64 %least, 8"""
    + _letter("part", "S")
    + _whole("m", "%rows")
    + _whole("n", "%columns")
    + _whole("k", "%least")
    + _driver("gesdd", "part m n copy m s u m vt k work work.length work.whole info".split(), whole="%eight")
    + """
  call void @free(ptr %copy)"""
    + DONE
    + "}}\n",
    "triangle": """
define internal void @triangle_{kind}(ptr %to, i64 %by, ptr %from, i64 %step, i64 %count) noinline nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %row ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %row, label %end
row:
  %next = add i64 %i, 1
  %at = mul i64 %i, %by
  %there = getelementptr {kind}, ptr %to, i64 %at
  %place = mul i64 %i, %step
  %here = getelementptr {kind}, ptr %from, i64 %place
  %bytes = mul i64 %next, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %there, ptr %here, i64 %bytes, i1 false)
  %rest = getelementptr {kind}, ptr %there, i64 %next
  %left = sub i64 %count, %next
  %zeros = mul i64 %left, {size}
  call void @llvm.memset.p0.i64(ptr %rest, i8 0, i64 %zeros, i1 false)
  br label %head
end:
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""",
    "turned": """
define internal void @turned_{kind}(ptr %to, i64 %by, ptr %from, i64 %step, i64 %count, i64 %length) noinline nounwind {{
entry:
  %some = icmp ne i64 %length, 0
  br i1 %some, label %head, label %end
head:
  %i = phi i64 [ 0, %entry ], [ %next, %row.end ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %row, label %end
row:
  %place = mul i64 %i, %step
  %here = getelementptr {kind}, ptr %from, i64 %place
  %there = getelementptr {kind}, ptr %to, i64 %i
  br label %body
body:
  %k = phi i64 [ 0, %row ], [ %k.next, %body ]
  %at = getelementptr {kind}, ptr %here, i64 %k
  %value = load {kind}, ptr %at
  %across = mul i64 %k, %by
  %target = getelementptr {kind}, ptr %there, i64 %across
  store {kind} %value, ptr %target
  %k.next = add i64 %k, 1
  %on = icmp slt i64 %k.next, %length
  br i1 %on, label %body, label %row.end
row.end:
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}}
""",
}  # fmt: skip

_FACTORED = (
    """
  %least = call i64 @llvm.umin.i64(i64 %rows_a, i64 %length)
  %empty.too = icmp eq i64 %least, 0
  br i1 %empty.too, label %long, label %room
room:
  %of_u = mul i64 %rows_a, %least
  %of_v = mul i64 %length, %least
  %first = add i64 %least, %of_u
  %entries = add i64 %first, %of_v"""
    + _memory("s", "%entries", "factor")
    + """
  %u = getelementptr {kind}, ptr %s, i64 %least
  %vt = getelementptr {kind}, ptr %u, i64 %of_u
  %factored = call i1 @factored_{kind}(ptr %a, i64 %by_a, i64 %rows_a, i64 %length, ptr %s, ptr %u, ptr %vt)
  br i1 %factored, label %put, label %lost
lost:
  call void @free(ptr %s)
  ret i1 false
put:"""
)
"""Singular values and vectors of an operand, in memory of which `%s` is to be freed."""


def _taken(row: str, count: str, length: str) -> str:
    """The copy of some rows of the operand."""
    return f"""
  %row = add i64 {row}, 0
  %skipped = mul i64 %row, %by_a
  %from = getelementptr {{kind}}, ptr %a, i64 %skipped
  call void @rows_{{kind}}(ptr %result, i64 %by, ptr %from, i64 %by_a, i64 {count}, i64 {length})
"""


def _each(start: str, count: str, body: str) -> str:
    """`body` for each i below a count, which jumps to `more` or leaves the routine."""
    return f"""
  br label %head
head:
  %i = phi i64 [ {start}, %start ], [ %next, %more ]
  %on = icmp slt i64 %i, {count}
  br i1 %on, label %row, label %last
row:{body}
more:
  %next = add i64 %i, 1
  br label %head
last:"""


_LARGEST = """
define internal {kind} @largest_{kind}(ptr %from, i64 %count) noinline nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %most = phi {kind} [ 0.0, %entry ], [ %most.next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %end
body:
  %at = getelementptr {kind}, ptr %from, i64 %i
  %value = load {kind}, ptr %at
  %size = call {kind} @llvm.fabs.{short}({kind} %value)
  %most.next = call {kind} @llvm.maxnum.{short}({kind} %most, {kind} %size)
  %next = add i64 %i, 1
  br label %head
end:
  %root = sitofp i64 %count to {kind}
  %steps = call {kind} @llvm.sqrt.{short}({kind} %root)
  %rounding = fmul {kind} %steps, {rounding}
  %limit = fmul {kind} %most, %rounding
  ret {kind} %limit
}}
declare {kind} @llvm.sqrt.{short}({kind})
"""
HELPERS["largest"] = _LARGEST
"""Up to which size numbers are zero but for rounding, beside those in a row: what `ops.linear_algebra._vanishing` says."""

_ABOVE = """
  %size = call {kind} @llvm.fabs.{short}({kind} %difference)
  %apart = fcmp ogt {kind} %size, %limit
  br i1 %apart, label %more, label %long"""

_SAME = """
  call void @rows_{kind}(ptr %result, i64 %by, ptr %a, i64 %by_a, i64 %rows, i64 %length)
"""
_ONE_ROW = """
  call void @rows_{kind}(ptr %result, i64 0, ptr %a, i64 0, i64 1, i64 %length)
"""
_LIMIT = """
  %limit = call {kind} @largest_{kind}(ptr %a, i64 %length)"""
_VALUE = """
  %there = getelementptr {kind}, ptr %a, i64 %i
  %value = load {kind}, ptr %there"""

BODIES = {
    "eigh": """
  %vectors = getelementptr {kind}, ptr %result, i64 %by
  call void @turned_{kind}(ptr %vectors, i64 %by, ptr %a, i64 %by_a, i64 %length, i64 %length)"""
    + _letter("job", "V")
    + _letter("part", "L")
    + _driver(
        "syevd",
        "job part n vectors by.place result work work.length work.whole work.whole.length info".split(),
        whole="asked",
    ),
    "eigenvalues": _taken("0", "1", "%length"),
    "eigenvectors": _taken("1", "%length", "%length"),
    "svd": _FACTORED
    + """
  call void @turned_{kind}(ptr %result, i64 %by, ptr %u, i64 %rows_a, i64 %least, i64 %rows_a)
  %below = mul i64 %rows_a, %by
  %right = getelementptr {kind}, ptr %result, i64 %below
  call void @turned_{kind}(ptr %right, i64 %by, ptr %vt, i64 %least, i64 %length, i64 %least)
  %further = mul i64 %least, %by
  %values = getelementptr {kind}, ptr %right, i64 %further
  call void @rows_{kind}(ptr %values, i64 %by, ptr %s, i64 %least, i64 1, i64 %least)
  call void @free(ptr %s)
""",
    "left": """
  %least = call i64 @llvm.umin.i64(i64 %rows, i64 %length)"""
    + _taken("0", "%rows", "%least"),
    "right": """
  %before = sub i64 %rows_a, %rows
  %start.row = sub i64 %before, 1"""
    + _taken("%start.row", "%rows", "%length"),
    "singular": "\n  %start.row = sub i64 %rows_a, 1" + _taken("%start.row", "1", "%rows"),
    "spaced": _LIMIT
    + _each(
        "1",
        "%length",
        _VALUE
        + """
  %before = getelementptr {kind}, ptr %there, i64 -1
  %other = load {kind}, ptr %before
  %difference = fsub {kind} %value, %other"""
        + _ABOVE,
    )
    + _ONE_ROW,
    "regular": _LIMIT
    + _each("0", "%length", _VALUE.replace("%value", "%difference") + _ABOVE)
    + _ONE_ROW,
    "ranked": _each(
        "0",
        "%length",
        """
  %across = mul i64 %i, %by_a
  %first = getelementptr {kind}, ptr %a, i64 %across
  %limit = call {kind} @largest_{kind}(ptr %first, i64 %length)
  %there = getelementptr {kind}, ptr %first, i64 %i
  %difference = load {kind}, ptr %there"""
        + _ABOVE,
    )
    + _SAME,
    "qr": """
  %least = call i64 @llvm.umin.i64(i64 %rows_a, i64 %length)
  %tall = icmp ule i64 %length, %rows_a
  br i1 %tall, label %room, label %long
room:
  %entries = mul i64 %rows_a, %length
  %both = add i64 %entries, %length"""
    + _memory("q", "%both", "factor")
    + """
  %tau = getelementptr {kind}, ptr %q, i64 %entries
  call void @turned_{kind}(ptr %q, i64 %rows_a, ptr %a, i64 %by_a, i64 %rows_a, i64 %length)"""
    + _whole("m_a", "%rows_a")
    + _driver("geqrf", "m_a n q m_a tau work work.length info".split())
    + """
  %below = mul i64 %rows_a, %by
  %lower = getelementptr {kind}, ptr %result, i64 %below
  call void @triangle_{kind}(ptr %lower, i64 %by, ptr %q, i64 %rows_a, i64 %length)"""
    + _driver("orgqr", "m_a n n q m_a tau more more.length info".split(), "more")
    + """
  call void @turned_{kind}(ptr %result, i64 %by, ptr %q, i64 %rows_a, i64 %length, i64 %rows_a)
  call void @free(ptr %q)
""",
    "pinv": _FACTORED
    + """
  %largest = load {kind}, ptr %s
  %limit = fmul {kind} %largest, {cut}
  br label %head
head:
  %i = phi i64 [ 0, %put ], [ %next, %scaled ]
  %on = icmp slt i64 %i, %least
  br i1 %on, label %row, label %last
row:
  %next = add i64 %i, 1
  %there = getelementptr {kind}, ptr %s, i64 %i
  %value = load {kind}, ptr %there
  %kept = fcmp ogt {kind} %value, %limit
  %across = mul i64 %i, %rows_a
  %column = getelementptr {kind}, ptr %u, i64 %across
  br i1 %kept, label %scaling, label %last
scaling:
  %k = phi i64 [ 0, %row ], [ %k.next, %scaling ]
  %at = getelementptr {kind}, ptr %column, i64 %k
  %entry.value = load {kind}, ptr %at
  %quotient = fdiv {kind} %entry.value, %value
  store {kind} %quotient, ptr %at
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, %rows_a
  br i1 %again, label %scaling, label %scaled
scaled:
  br label %head
last:"""
    + _letter("as_is", "N")
    + _whole("m_a", "%rows_a")
    + _whole("rank", "%i")
    + _whole("least.place", "%least")
    + """
  %one = alloca {kind}
  store {kind} 1.0, ptr %one
  %nothing = alloca {kind}
  store {kind} 0.0, ptr %nothing
  call void @{gemm}(ptr %as_is, ptr %as_is, ptr %m_a, ptr %n, ptr %rank, ptr %one, ptr %u, ptr %m_a, ptr %vt, ptr %least.place, ptr %nothing, ptr %result, ptr %by.place)
  call void @free(ptr %s)
""",  # noqa: E501
    "lstsq": """
  %tall = icmp ule i64 %length, %rows_a
  br i1 %tall, label %room, label %long
room:
  %of_a = mul i64 %rows_a, %length
  %of_b = mul i64 %rows_a, %rows
  %of_s = add i64 %of_a, %of_b
  %entries = add i64 %of_s, %length"""
    + _memory("copy", "%entries", "factor")
    + """
  %sides.copy = getelementptr {kind}, ptr %copy, i64 %of_a
  %s = getelementptr {kind}, ptr %copy, i64 %of_s
  call void @turned_{kind}(ptr %copy, i64 %rows_a, ptr %a, i64 %by_a, i64 %rows_a, i64 %length)
  call void @rows_{kind}(ptr %sides.copy, i64 %rows_a, ptr %b, i64 %by_b, i64 %rows, i64 %rows_a)
  %machine = alloca {kind}
  store {kind} -1.0, ptr %machine
  %rank = alloca i32
  store i32 0, ptr %rank"""
    + _whole("m_a", "%rows_a")
    + _driver(
        "gelsd",
        "m_a n m copy m_a sides.copy m_a s machine rank work work.length work.whole info".split(),
        whole="asked",
    )
    + """
  call void @rows_{kind}(ptr %result, i64 %by, ptr %sides.copy, i64 %rows_a, i64 %rows, i64 %length)
  call void @free(ptr %copy)
  %rank.found = load i32, ptr %rank
  %deficient = sub i32 %n.short, %rank.found
  %trouble = load i32, ptr %info
  %either = or i32 %deficient, %trouble
  store i32 %either, ptr %info
""",
}
"""`eigh`, `svd` and `qr` give all that they find in one result, of which `eigenvalues`, `left` and so on are parts."""
