"""Vector kernels: a kernel's IR from the declared partial itself, without Numba.

The partial is called on traced numbers (vecmath/tracing.py), once for vectors and once for the elements left over, and the
instructions it leaves behind stand in two loops, one that writes and one that adds. Compiling takes some milliseconds; the
elementary functions in it are vecmath's, and SciPy's other special functions are called for each lane. Complex numbers are two
streams of real ones. A partial that cannot be traced raises `Untraceable`: then kernels.py compiles it with Numba.
"""

from __future__ import annotations

import numpy as np

from ..core.primitive import Partial, Primitive
from ..llvm.assembly import assemble, lanes
from ..vecmath import complexes, fuses, join
from ..vecmath.expression import Code, Value, select
from ..vecmath.tracing import trace

STREAMS = ("g", "x", "y", "z", "out", "adjoint")

_SHARE = """
define internal {returned} @{name}({parameters}) alwaysinline {{
entry:
{lines}
  ret {returned} {result}
}}
"""

# The kernel's contract is in kernels.py. A block is read before it is written, so the adjoint may be g itself.
_LOOPS = """
define internal void @{mode}({pointers}, i64 %n) {{
entry:
  %whole = and i64 %n, -{lanes}
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %vectors, label %rest
vectors:
  %i = phi i64 [ 0, %entry ], [ %i.next, %vectors ]
{vector}
  %i.next = add i64 %i, {lanes}
  %more = icmp ult i64 %i.next, %whole
  br i1 %more, label %vectors, label %rest
rest:
  %left = icmp ult i64 %whole, %n
  br i1 %left, label %scalars, label %done
scalars:
  %j = phi i64 [ %whole, %rest ], [ %j.next, %scalars ]
{scalar}
  %j.next = add i64 %j, 1
  %again = icmp ult i64 %j.next, %n
  br i1 %again, label %scalars, label %done
done:
  ret void
}}
"""

_KERNEL = """
define void @{name}({words}) {{
entry:
{casts}
  %adds = icmp ne i64 %add.word, 0
  br i1 %adds, label %adding, label %writing
adding:
  call void @adding({passed}, i64 %n.word)
  ret void
writing:
  call void @writing({passed}, i64 %n.word)
  ret void
}}
"""


def text_of(name: str, op: Primitive, operand: int, dtype: str) -> str:
    """The module of the kernel for one operand of an elementwise op; raises Untraceable."""
    partial = op.partials[operand]
    element = {"float64": "double", "float32": "float", "complex128": "double"}[dtype]
    parts = 2 if dtype == "complex128" else 1
    code = partial.function.__code__
    named = code.co_varnames[: code.co_argcount]
    width = lanes("float64") // 2 if parts == 2 else lanes(dtype)
    texts: list[str] = []
    for count in (1, width):
        share = Code(count, fuses(), element=element)
        kind = share.type(element)
        streams = [[f"{n}{k}" for k in range(parts)] for n in ("g", *named)]
        g, *values = ([share.parameter(n, element) for n in names] for names in streams)
        product = (_complex_share if parts == 2 else _real_share)(partial, share, g, values)
        texts += share.texts.values()
        returned = _struct(kind, parts)
        result = _packed(share, kind, returned, product)
        texts.append(
            _SHARE.format(
                returned=returned,
                name=f"share{count}",
                parameters=", ".join(f"{kind} %{n}" for names in streams for n in names),
                lines="\n".join(share.lines),
                result=result,
            )
        )
        texts.append("\n".join(share.declarations))
    pointers = ", ".join(f"ptr %{s}" for s in STREAMS)
    for mode in ("adding", "writing"):
        texts.append(
            _LOOPS.format(
                mode=mode,
                pointers=pointers,
                lanes=width,
                vector=_step(("g", *named), element, parts, width, "i", mode == "adding"),
                scalar=_step(("g", *named), element, parts, 1, "j", mode == "adding"),
            )
        )
    words = ("n", "add", *STREAMS)
    texts.append(
        _KERNEL.format(
            name=name,
            words=", ".join(f"i64 %{w}.word" for w in words),
            casts="\n".join(f"  %{s} = inttoptr i64 %{s}.word to ptr" for s in STREAMS),
            passed=pointers,
        )
    )
    return join(*texts)


def _real_share(
    partial: Partial, share: Code, g: list[Value], values: list[list[Value]]
) -> list[Value]:
    """g times the partial, in a function being written."""
    p = trace(partial.function, share, [v for (v,) in values])
    (c,) = g
    product = c * p
    if partial.chooses:
        # Where an op chooses among its operands, 0 times an infinite cotangent is 0.
        return [select(p != 0.0, product, p * 0.0)]
    # A cotangent of 0 stays 0, however infinite the partial.
    return [select(c == 0.0, c, product)]


def _complex_share(
    partial: Partial, share: Code, g: list[Value], values: list[list[Value]]
) -> list[Value]:
    """The same of complex numbers, by the partial's conjugate."""
    p = np.conj(complexes.trace(partial.function, share, values))
    c = complexes.Number(*g)
    result = np.where(p != 0, c * p, 0 * p) if partial.chooses else np.where(c != 0, c * p, c)
    return list(result.parts)


def _struct(kind: str, parts: int) -> str:
    return kind if parts == 1 else f"{{{kind}, {kind}}}"


def _packed(share: Code, kind: str, returned: str, product: list[Value]) -> str:
    """The name of what the share returns: a value, or a struct of both parts."""
    if len(product) == 1:
        return product[0].name
    whole = "poison"
    for k, part in enumerate(product):
        whole = f"%part{k}"
        before = f"%part{k - 1}" if k else "poison"
        share.lines.append(f"  {whole} = insertvalue {returned} {before}, {kind} {part.name}, {k}")
    return whole


def _step(
    streams: tuple[str, ...], element: str, parts: int, count: int, index: str, adds: bool
) -> str:
    """Load, compute and store `count` elements at an index; the parts of complex ones stand side by side in memory."""
    kind = element if count == 1 else f"<{count} x {element}>"
    memory = kind if parts == 1 else f"<{2 * count} x {element}>"
    size = 8 if element == "double" else 4
    lines = [f"  %at.{index} = mul i64 %{index}, {parts}"] if parts > 1 else []
    at = f"%at.{index}" if parts > 1 else f"%{index}"
    for s in (*streams, "adjoint"):
        lines.append(f"  %{s}.{index} = getelementptr {element}, ptr %{s}, i64 {at}")
        if s != "adjoint" or adds:
            lines.append(f"  %{s}.v{index} = load {memory}, ptr %{s}.{index}, align {size}")
            if parts > 1 and s != "adjoint":
                lines += [_part(f"%{s}.v{index}", k, element, count) for k in range(parts)]
    passed = ", ".join(
        f"{kind} %{s}.v{index}{f'.{k}' if parts > 1 else ''}" for s in streams for k in range(parts)
    )
    share = f"%share.{index}"
    lines.append(f"  {share} = call {_struct(kind, parts)} @share{count}({passed})")
    stored = share
    if parts > 1:
        for k in range(parts):
            lines.append(f"  {share}.{k} = extractvalue {_struct(kind, parts)} {share}, {k}")
        stored = f"{share}.whole"
        lines += _joined(share, element, count)
    if adds:
        lines.append(f"  %sum.{index} = fadd {memory} %adjoint.v{index}, {stored}")
        stored = f"%sum.{index}"
    lines.append(f"  store {memory} {stored}, ptr %adjoint.{index}, align {size}")
    return "\n".join(lines)


def _part(whole: str, k: int, element: str, count: int) -> str:
    """One part of each of `count` complex numbers in a vector."""
    memory = f"<{2 * count} x {element}>"
    if count == 1:
        return f"  {whole}.{k} = extractelement {memory} {whole}, i32 {k}"
    places = ", ".join(f"i32 {2 * i + k}" for i in range(count))
    return f"  {whole}.{k} = shufflevector {memory} {whole}, {memory} poison, <{count} x i32> <{places}>"


def _joined(share: str, element: str, count: int) -> list[str]:
    """A vector of complex numbers of their parts, `share.0` and `share.1`."""
    if count == 1:
        memory = f"<2 x {element}>"
        return [
            f"  {share}.half = insertelement {memory} poison, {element} {share}.0, i32 0",
            f"  {share}.whole = insertelement {memory} {share}.half, {element} {share}.1, i32 1",
        ]
    kind = f"<{count} x {element}>"
    places = ", ".join(f"i32 {i + k * count}" for i in range(count) for k in range(2))
    return [
        f"  {share}.whole = shufflevector {kind} {share}.0, {kind} {share}.1, <{2 * count} x i32> <{places}>"
    ]


def compile_kernel(
    name: str, op: Primitive, operand: int, dtype: str
) -> tuple[str, bytes, list[str]]:
    """Symbol, object code, and the symbols it asks for; raises Untraceable."""
    symbol = f"tapegrad_{name}"
    code, asks = assemble(text_of(symbol, op, operand, dtype))
    return symbol, code, asks
