"""Vector kernels: a kernel's IR from the declared partial itself, without Numba.

The partial is called on traced numbers (vecmath/tracing.py), once for vectors and once for the elements left over, and the
instructions it leaves behind stand in two loops, one that writes and one that adds. Compiling takes some milliseconds; the
elementary functions in it are vecmath's. A partial that cannot be traced raises `Untraceable`: then kernels.py compiles it with Numba.
"""

from __future__ import annotations

from ..core.primitive import Primitive
from ..llvm.assembly import assemble, lanes
from ..vecmath import fuses, join
from ..vecmath.expression import Code, select
from ..vecmath.tracing import Untraceable, trace

STREAMS = ("g", "x", "y", "z", "out", "adjoint")

_SHARE = """
define internal {kind} @{name}({parameters}) alwaysinline {{
entry:
{lines}
  ret {kind} {result}
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
    element = {"float64": "double", "float32": "float"}.get(dtype)
    if element is None:
        raise Untraceable(f"{dtype} has no form as vector code.")
    function = partial.function
    code = function.__code__
    named = code.co_varnames[: code.co_argcount]
    width = lanes(dtype)
    texts: list[str] = []
    for count in (1, width):
        share = Code(count, fuses(), element=element)
        g = share.parameter("g", element)
        values = [share.parameter(n, element) for n in named]
        p = trace(function, share, values)
        product = g * p
        if partial.chooses:
            # Where an op chooses among its operands, 0 times an infinite cotangent is 0.
            product = select(p != 0.0, product, p * 0.0)
        else:
            # A cotangent of 0 stays 0, however infinite the partial.
            product = select(g == 0.0, g, product)
        kind = share.type(element)
        texts += share.texts.values()
        texts.append(
            _SHARE.format(
                kind=kind,
                name=f"share{count}",
                parameters=", ".join(f"{kind} %{n}" for n in ("g", *named)),
                lines="\n".join(share.lines),
                result=product.name,
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
                vector=_step(("g", *named), element, width, "i", mode == "adding"),
                scalar=_step(("g", *named), element, 1, "j", mode == "adding"),
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


def _step(streams: tuple[str, ...], element: str, count: int, index: str, adds: bool) -> str:
    """Load, compute and store `count` elements at an index."""
    kind = element if count == 1 else f"<{count} x {element}>"
    size = 8 if element == "double" else 4
    lines = []
    for s in (*streams, "adjoint"):
        lines.append(f"  %{s}.{index} = getelementptr {element}, ptr %{s}, i64 %{index}")
        if s != "adjoint" or adds:
            lines.append(f"  %{s}.v{index} = load {kind}, ptr %{s}.{index}, align {size}")
    passed = ", ".join(f"{kind} %{s}.v{index}" for s in streams)
    lines.append(f"  %share.{index} = call {kind} @share{count}({passed})")
    stored = f"%share.{index}"
    if adds:
        lines.append(f"  %sum.{index} = fadd {kind} %adjoint.v{index}, {stored}")
        stored = f"%sum.{index}"
    lines.append(f"  store {kind} {stored}, ptr %adjoint.{index}, align {size}")
    return "\n".join(lines)


def compile_kernel(
    name: str, op: Primitive, operand: int, dtype: str
) -> tuple[str, bytes, list[str]]:
    """Symbol, object code, and the symbols it asks for; raises Untraceable."""
    symbol = f"tapegrad_{name}"
    code, asks = assemble(text_of(symbol, op, operand, dtype))
    return symbol, code, asks
