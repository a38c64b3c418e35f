"""The one writer: a program of loops and stores as LLVM IR.

`written(program)` is the text of a function `@work` of pointers (buffers that are no registers, in the order of `arguments`) and sizes.
Elementary functions come from `vecmath`, one number at a time, with the attribute that tells LLVM's vectoriser of the form for several.

Every buffer is memory of its own, so each pointer is `noalias`. Loops that were proved parallel name their accesses in
`parallel_accesses`; sums in registers may be taken in any order. Nothing is promised beyond what order proved. All reads and
writes of memory go through `_read` and `_write`.

In checked mode (`checking`) each index is compared with its extent before the access: `@work` then returns which access left its
buffer, by its place in `checks` and one more, or 0.

With `guarded`, products of a cotangent and a partial are 0 where the cotangent is, however infinite the partial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import vecmath
from ..core import checking
from ..llvm import named
from ..vecmath.expression import (
    Code,
    Value,
    copysign,
    narrowed,
    opposed,
    remainder,
    select,
    widened,
)
from ..vecmath.tracing import UFUNCS, Traced, called
from . import lapack
from .affine import ZERO, Affine, Element, affine, whole
from .calls import regions
from .expressions import B1, F4, F8, WHOLE, Expr
from .form import Access, Buffer, Loop, Program, Range, Store, Until, buffers, nest, sites
from .partials import SPECIAL
from .passes.products import Matrices, layout, matrices

WRITTEN = frozenset(
    """add subtract multiply divide negative power sqrt square reciprocal absolute fabs sign maximum minimum larger smaller exp exp2 expm1
    log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh arctan2 hypot cbrt floor ceil trunc
    rint clip where erf erfc root logaddexp remainder fmod floor_divide""".split()
)
"""Elementwise ops that the writer has code for."""

ELEMENT = {F8: "double", F4: "float", B1: "i8", "i8": "i64", "i4": "i32"}
BYTES = {F8: 8, F4: 4, B1: 1, **WHOLE}
COMPARED = {
    "less": "slt", "less_equal": "sle", "greater": "sgt", "greater_equal": "sge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
"""Comparisons of whole numbers, which floats beyond 2**53 would round."""
MISFIT = -(1 << 20)
"""What `@work` answers where a claim of a loop that ends by a condition does not hold, or a call finds no solution; -1 - k, where the k-th
room is too small."""
LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_not": "xor"}
BLOCK = 12
"""Iterations whose part of a triangle is one product of matrices, but for what is beside the slope."""
LANES = {"f64": (4, 8), "f32": (8, 16)}
"""Numbers of lanes that the vectoriser is offered of an elementary function."""


class _Text(Code):
    """Instructions on single numbers; calls of elementary functions carry their vector forms."""

    def __init__(self) -> None:
        super().__init__(1, vecmath.fuses())
        self.variants: dict[str, str] = {}

    def call(self, symbol: str, text: str, element: str, *arguments: Value) -> Value:
        """A call of vector math, with the forms that LLVM may use for several entries at once."""
        name = symbol.removeprefix("tapegrad_")
        known = name.rsplit("_", 1)[0]
        if "alwaysinline" in text.split("\n", 1)[0] or not vecmath.has(known, "float64"):
            return super().call(symbol, text, element, *arguments)
        kind = name.rsplit("_", 1)[1].removesuffix("x1")
        dtype = {"f64": "float64", "f32": "float32"}[kind]
        forms = []
        for lanes in LANES[kind]:
            vector, body = vecmath.emit(known, dtype, lanes)
            self.texts[vector] = body
            self.variants.setdefault(vector, "")
            forms.append(f"_ZGV_LLVM_N{lanes}{'v' * len(arguments)}_{symbol}({vector})")
        self.texts[symbol] = text
        passed = ", ".join(f"{element} {a.name}" for a in arguments)
        listed = ",".join(forms)
        return self.emit(
            f'call {element} @{symbol}({passed}) "vector-function-abi-variant"="{listed}" nounwind memory(none)',
            element,
        )


class Writer:
    """Writes one program; see `written`."""

    def __init__(self, program: Program, guarded: bool) -> None:
        """Prepare the text of a program: pointers, registers, sizes."""
        self.program, self.guarded = program, guarded
        self.arguments = [b for b in buffers(program) if not b.is_register]
        everything = buffers(program)
        self.pointers = {b: f"%b{k}" for k, b in enumerate(everything)}
        self.registers = [b for b in everything if b.is_register]
        self.depth = max(_depths(program.body), default=0)
        self.code = _Text()
        self.meta: list[str] = []
        self.vars = {s: f"%size{k}" for k, s in enumerate(program.sizes)}
        self.strides: dict[Buffer, list[str]] = {}
        self.groups: list[str] = []
        self.memo: dict[Expr, Value] = {}
        self.readers: dict[Buffer, list[Expr]] = {}
        """Formulas in `memo`, by what they read."""
        self.crowded = {
            n for b in self.arguments for e in b.extents for n in e.names() if n in program.rooms
        }
        """Rooms of stacks that hold anything: a loop asks whether there is place in them."""
        self.totals: dict[Access, str] = {}
        """How often loops have run before, by where they keep it."""
        self.checked = checking.on()
        self.checks: list[str] = []
        """The accesses that are checked, as people read them."""

    # ------------------------------------------------------------------------------------------ whole numbers

    def _let(self, text: str) -> str:
        return self.code.emit(text, "i64").name

    def _line(self, *lines: str) -> None:
        self.code.lines += lines

    def whole(self, e: Affine) -> str:
        """An affine integer."""
        total = ""
        # Numbers that are read may be of any size; sums of them wrap around in Numba.
        free = " nsw" if whole(e) else ""
        for name, c in e.terms:
            term = self._element(name) if isinstance(name, Element) else self.vars[name]
            term = term if c == 1 else self._let(f"mul{free} i64 {term}, {c}")
            total = self._let(f"add{free} i64 {total}, {term}") if total else term
        if not total:
            return str(e.const)
        return self._let(f"add{free} i64 {total}, {e.const}") if e.const else total

    def _element(self, e: Element) -> str:
        """A number that is read from an array."""
        found = self._read(Access(e.of, e.args))
        wide = found.element == "i64"
        return found.name if wide else self._let(f"sext {found.element} {found.name} to i64")

    # ------------------------------------------------------------------------------------------ memory

    def _address(self, a: Access, tested: bool = True) -> str:
        """The pointer to an element; in checked mode its indices are tested."""
        pointer = self.pointers[a.buffer]
        if not a.index:
            return pointer
        total = ""
        tested = tested and self.checked
        if tested:
            self.checks.append(str(a))
        for i, n, stride in zip(a.index, a.buffer.extents, self.strides[a.buffer], strict=True):
            part = self.whole(i)
            if tested:
                self._check(part, self.whole(n))
            part = part if stride == "1" else self._let(f"mul nsw i64 {part}, {stride}")
            total = self._let(f"add nsw i64 {total}, {part}") if total else part
        kind = ELEMENT[a.buffer.dtype]
        return self.code.emit(
            f"getelementptr inbounds {kind}, ptr {pointer}, i64 {total}", "ptr"
        ).name

    def _check(self, index: str, extent: str) -> None:
        """Leave `@work` where an index is none of its axis; a negative one is a very large unsigned one."""
        test = self.code.emit(f"icmp ult i64 {index}, {extent}", "i1").name
        self._unless(test, len(self.checks))

    def _group(self, a: Access) -> str:
        if a.buffer.is_register or not self.groups:
            return ""
        own = (
            self.groups[-1]
            if len(self.groups) == 1
            else self._note("!{" + ", ".join(self.groups) + "}")
        )
        return f", !llvm.access.group {own}"

    def _read(self, a: Access) -> Value:
        kind = ELEMENT[a.buffer.dtype]
        where = self._address(a)
        found = self.code.emit(
            f"load {kind}, ptr {where}, align {BYTES[a.buffer.dtype]}{self._group(a)}", kind
        )
        if a.buffer.dtype == B1:
            return self.code.emit(f"icmp ne i8 {found.name}, 0", "i1")
        return found

    def _write(self, a: Access, value: Value) -> None:
        kind, name = ELEMENT[a.buffer.dtype], value.name
        where = self._address(a)
        if a.buffer.dtype == B1:
            name = self.code.emit(f"zext i1 {name} to i8", "i8").name
        self._line(
            f"  store {kind} {name}, ptr {where}, align {BYTES[a.buffer.dtype]}{self._group(a)}"
        )

    # ------------------------------------------------------------------------------------------ formulas

    def value(self, e: Expr) -> Value:
        """What a formula is here: computed once in a straight line of stores, as long as what it reads stays the same."""
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._operation(e)
            for b in {leaf.access.buffer for leaf in e.loads}:
                self.readers.setdefault(b, []).append(e)
        return found

    def _operation(self, e: Expr) -> Value:
        """The value of one expression whose operands are written."""
        code, element = self.code, "i1" if e.dtype == B1 else ELEMENT[e.dtype]
        if e.op == "const":
            return code.constant(e.args[0], element)
        if e.op == "load":
            return self._read(e.access)
        if e.op == "number":
            return code.emit(f"sitofp i64 {self.whole(e.args[0])} to {element}", element)
        if e.op in COMPARED and all(a.op == "number" or _is_whole(a) for a in e.args):
            ends = [
                self.whole(a.args[0]) if a.op == "number" else f"{a.args[0]:.0f}" for a in e.args
            ]
            return code.emit(f"icmp {COMPARED[e.op]} i64 {', '.join(ends)}", "i1")
        args = [self.value(a) for a in e.args]
        if e.op == "cast":
            (x,) = args
            if e.dtype in WHOLE:
                return code.emit(f"fptosi {x.element} {x.name} to {element}", element)
            return x if x.element == element else widened(x) if element == "double" else narrowed(x)
        if e.op in ("strong", "chosen"):
            return self._product(e.op, *args)
        if e.op == "where":
            return select(*args)
        if e.op in LOGICAL:
            names = [
                "true" if a.name == "1" else "false" if a.name == "0" else a.name for a in args
            ]
            return code.emit(f"{LOGICAL[e.op]} i1 {', '.join([*names, 'true'][:2])}", "i1")
        if e.op in ("larger", "smaller"):
            a, b = args
            return select(b > a if e.op == "larger" else b < a, b, a)
        if e.op in ("remainder", "fmod", "floor_divide"):
            return self._remainder(e.op, *args)
        if e.op == "clip":
            traced = [Traced(v) for v in args]
            return UFUNCS[np.minimum](UFUNCS[np.maximum](*traced[:2]), traced[2]).value
        given = [
            a.args[0] if a.op == "const" and k else Traced(v)
            for k, (a, v) in enumerate(zip(e.args, args, strict=True))
        ]
        name = (
            "sqrt" if e.op == "root" else e.op
        )  # that of a length: it has another derivative at 0
        function = called(name) if name in SPECIAL else UFUNCS[getattr(np, name)]
        return function(*given).value

    def _remainder(self, word: str, x: Value, y: Value) -> Value:
        """What is left of x by y, with the sign of x or (as Python's) of y, or how often y goes into x; by an exact remainder, as NumPy."""
        left = self.code.emit(f"frem {x.element} {x.name}, {y.name}", x.element)
        if word == "fmod":
            return left
        if word == "remainder":
            return remainder(x, left, y)
        often = (x - left) / y
        often = select((left != 0.0) & opposed(left, y), often - 1.0, often)
        down = self.code.intrinsic("floor", often)
        whole = select(often - down > 0.5, down + 1.0, down)
        zero = copysign(self.code.constant(0.0, x.element), x / y)
        return select(y == 0.0, x / y, select(often == 0.0, zero, whole))

    def _product(self, word: str, g: Value, p: Value) -> Value:
        product = g * p
        if not self.guarded:
            return product
        nothing = g == 0.0
        if word == "chosen":
            nothing = nothing | (p == 0.0)
        return select(nothing, 0.0, product)

    # ------------------------------------------------------------------------------------------ stores and loops

    def _store(self, s: Store) -> None:
        value = self.value(s.value)
        if s.mode == "+=":
            free = "reassoc nsz " if s.target.buffer.is_register else ""
            old = self._read(s.target)
            value = self.code.emit(
                f"fadd {free}{value.element} {old.name}, {value.name}", value.element
            )
        elif s.mode != "=":
            word = {"max=": "maximum", "min=": "minimum"}[s.mode]
            value = self.code.intrinsic(word, self._read(s.target), value)
        self._write(s.target, value)
        self._spoil(s.target)

    def _spoil(self, a: Access) -> None:
        """An element has another value from here on, so that what was computed from it is computed again."""
        kept = []
        for n in self.readers.pop(a.buffer, ()):
            if any(_may_be_one(leaf.access, a) for leaf in n.loads):
                self.memo.pop(n, None)
            elif n in self.memo:
                kept.append(n)
        if kept:
            self.readers[a.buffer] = kept

    def _forget(self) -> None:
        """A loop begins or ends: what was computed may be of another iteration."""
        self.memo, self.readers = {}, {}

    def _loop(self, s: Loop, depth: int) -> None:
        """Write a loop with its body and what LLVM is told of it."""
        if s.until is not None:
            return self._until(s, s.until, depth)
        if s.product:
            return self._product_of_matrices(s, depth)
        if s.call:
            return self._called(s)
        self.code._count += 1
        k, r = self.code._count, s.range
        lo, hi = self.whole(r.lo), self.whole(r.hi)
        first = lo if r.step > 0 else self._let(f"sub nsw i64 {hi}, 1")
        test = f"slt i64 %i{k}, {hi}" if r.step > 0 else f"sge i64 %i{k}, {lo}"
        self._line(
            f"  br label %before{k}", f"before{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ {first}, %before{k} ], [ %next{k}, %latch{k} ]",
            f"  %more{k} = icmp {test}", f"  br i1 %more{k}, label %body{k}, label %after{k}", f"body{k}:",
        )  # fmt: skip
        self.vars[r.var] = f"%i{k}"
        if s.parallel:
            self.groups.append(self._note("distinct !{}"))
        self._body(s.body, depth)
        hints = self._hints(s, depth)
        self._line(
            f"  br label %latch{k}", f"latch{k}:", f"  %next{k} = add nsw i64 %i{k}, {r.step}",
            f"  br label %head{k}{hints}", f"after{k}:",
        )  # fmt: skip

    def _called(self, s: Loop) -> None:
        """Write the call of a routine; the program is left where that finds no solution."""
        operands, result = regions(s)
        kind = ELEMENT[result.dtype]
        given: list[str] = []
        for x in (*operands, result):
            first = self._address(x.at(*(ZERO for _ in x.axes)))
            if self.checked:
                self._address(x.at(*(n - 1 for n in x.extents)))
            between = self.strides[x.access.buffer][-2] if x.axes[1:] else "0"
            given += [f"ptr {first}", f"i64 {between}"]
        first_one = operands[0].extents
        given += [f"i64 {self.whole(n)}" for n in (result.extents[0], first_one[-1], first_one[0])]
        self.code.texts |= lapack.text(s.call, kind)
        done = self.code.emit(f"call i1 @{s.call}_{kind}({', '.join(given)})", "i1").name
        self._unless(done, MISFIT)

    def _product_of_matrices(self, s: Loop, depth: int) -> None:
        """Write a product as a call of BLAS, or calls for blocks of iterations and loops beside the slope; as loops where BLAS cannot count
        so far."""
        m = matrices(s)
        plain = Loop(s.range, s.body)
        if m.slope is None:
            return self._multiplied(m, {}, plain, depth)
        if self.checked:
            return self._loop(plain, depth)
        over, under, c = m.slope.over, m.slope.under, m.slope.shift
        self.code._count += 1
        k = self.code._count
        first, last, middle = (affine(f"{word}{k}") for word in ("first", "last", "middle"))
        lo, hi = self.whole(over.lo), self.whole(over.hi)
        self._line(
            f"  br label %before{k}", f"before{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ {lo}, %before{k} ], [ %next{k}, %latch{k} ]", f"  %next{k} = add nsw i64 %i{k}, {BLOCK}",
            f"  %more{k} = icmp slt i64 %i{k}, {hi}", f"  br i1 %more{k}, label %body{k}, label %after{k}", f"body{k}:",
        )  # fmt: skip
        self.vars |= {f"first{k}": f"%i{k}", f"last{k}": self._least(f"%next{k}", hi)}
        if m.slope.upper:
            self.vars[f"middle{k}"] = self._least(self.whole(last - 1 + c), self.whole(under.hi))
            apart, beside = (middle, under.hi), (over.at + c, middle)
            turned = ((first + c, middle), (first, under.at - c + 1))
        else:
            self.vars[f"middle{k}"] = self._least(
                self.whole(first + c), self.whole(under.lo), "sgt"
            )
            apart, beside = (under.lo, middle), (middle, over.at + c)
            turned = ((middle, last - 1 + c), (under.at - c + 1, last))
        other = next(r for r in (m.rows, m.inner, m.columns) if r not in (over, under))
        if m.columns is under:
            triangle = [Range(over.var, first, last), other, Range(under.var, *beside)]
        else:  # the other way round, and columns innermost
            triangle = [Range(under.var, *turned[0]), Range(over.var, *turned[1])]
            triangle.insert(2 if m.columns is other else 1, other)
        (store,) = s.body[0].body[0].body
        row = Loop(
            triangle.pop(), [store], parallel=True
        )  # the target alone is written, whose columns these are
        bounds = {over.var: (first, last), under.var: apart}
        block = [
            Range(r.var, *bounds.get(r.var, (r.lo, r.hi))) for r in (m.rows, m.inner, m.columns)
        ]
        (loops,) = nest(block, [store])
        self._multiplied(m, bounds, loops, depth)
        self._body(nest(triangle, [row]), depth - 1)
        self._line(f"  br label %latch{k}", f"latch{k}:", f"  br label %head{k}", f"after{k}:")

    def _least(self, a: str, b: str, word: str = "slt") -> str:
        """The lesser of two whole numbers, or the greater one."""
        test = self.code.emit(f"icmp {word} i64 {a}, {b}", "i1").name
        return self._let(f"select i1 {test}, i64 {a}, i64 {b}")

    def _multiplied(
        self, m: Matrices, bounds: dict[str, tuple[Affine, Affine]], loops: Loop, depth: int
    ) -> None:
        """A call of BLAS over ranges, of which some have other bounds, or loops that do the same."""
        ends = {r.var: bounds.get(r.var, (r.lo, r.hi)) for r in (m.rows, m.inner, m.columns)}
        counts = [self.whole(hi - lo) for lo, hi in ends.values()]
        sides = []
        for a, *axes in (
            (m.second, m.inner, m.columns),
            (m.first, m.rows, m.inner),
            (m.target, m.rows, m.columns),
        ):
            turned, d = layout(a, *axes)
            where = self._address(a.replaced({r.var: ends[r.var][0] for r in axes}), not bounds)
            if self.checked and not bounds:
                self._address(a.replaced({r.var: ends[r.var][1] - 1 for r in axes}))
            sides.append((where, self.strides[a.buffer][d], "true" if turned else "false"))
        kind = ELEMENT[m.target.buffer.dtype]
        scale = self.value(m.scale).name
        self.code._count += 1
        k = self.code._count
        passed = [f"i64 {n}" for n in counts] + [f"{kind} {scale}"]
        passed += [f"ptr {where}, i64 {stride}, i1 {turned}" for where, stride, turned in sides]
        name = "dgemm" if kind == "double" else "sgemm"
        self.code.texts[name] = _gemm(name, kind)
        done = self.code.emit(f"call i1 @{name}({', '.join(passed)})", "i1").name
        self._line(f"  br i1 {done}, label %multiplied{k}, label %loops{k}", f"loops{k}:")
        self._forget()
        self._loop(loops, depth)
        self._line(f"  br label %multiplied{k}", f"multiplied{k}:")

    def _until(self, s: Loop, until: Until, depth: int) -> None:
        """Write a loop that ends by a condition, with what it keeps of itself."""
        self.code._count += 1
        k, r = self.code._count, s.range
        before = ""
        if until.start is not None:
            before = self._let(f"load i64, ptr {self.totals[until.start]}")
            self._write(until.start, Value(self.code, before, "i64"))
        self._line(
            f"  br label %before{k}", f"before{k}:", f"  br label %head{k}", f"head{k}:",
            f"  %i{k} = phi i64 [ 0, %before{k} ], [ %next{k}, %latch{k} ]",
        )  # fmt: skip
        more = self._read(until.go).name
        self._line(f"  br i1 {more}, label %body{k}, label %after{k}", f"body{k}:")
        self.vars[r.var] = f"%i{k}"
        names = r.stack.room.names() if r.stack is not None else set()
        if names & self.crowded:
            (room,) = names
            place = self._let(f"add nsw i64 {before}, %i{k}") if before else f"%i{k}"
            test = self._let(f"icmp slt i64 {place}, {self.vars[room]}")
            self._unless(test, -1 - self.program.rooms.index(room))
        for claim in until.claims:
            self._unless(self._let(f"icmp sge i64 {self.whole(claim)}, 0"), MISFIT)
        self._body(s.body, depth)
        self._line(
            f"  br label %latch{k}", f"latch{k}:", f"  %next{k} = add nsw i64 %i{k}, 1",
            f"  br label %head{k}{self._hints(s, depth)}", f"after{k}:",
        )  # fmt: skip
        self._write(until.count, Value(self.code, f"%i{k}", "i64"))
        if until.start is not None:
            total = self._let(f"add nsw i64 {before}, %i{k}")
            self._line(f"  store i64 {total}, ptr {self.totals[until.start]}")

    def _unless(self, test: str, code: int) -> None:
        """Leave `@work` with a code where a condition does not hold."""
        self.code._count += 1
        k = self.code._count
        self._line(
            f"  br i1 {test}, label %fine{k}, label %left{k}", f"left{k}:", f"  ret i32 {code}", f"fine{k}:"
        )  # fmt: skip

    def _hints(self, s: Loop, depth: int) -> str:
        """What was proved; and less code where it cannot matter, since the amount of code decides how long LLVM takes."""
        own = []
        if s.parallel:
            own.append('!"llvm.loop.parallel_accesses", ' + self.groups.pop())
        cold = not s.parallel or depth < self.depth
        if cold:
            own.append('!"llvm.loop.vectorize.width", i32 1')
        sums = any(
            isinstance(x, Store) and x.mode != "=" and x.target.buffer.is_register for x in s.body
        )
        if cold or not sums:
            own.append('!"llvm.loop.interleave.count", i32 1')
        if cold and (s.range.hi - s.range.lo).terms:
            own.append('!"llvm.loop.unroll.disable"')
        parts = ", ".join(["SELF", *(self._note("!{" + text + "}") for text in own)])
        return f", !llvm.loop {self._note('distinct !{' + parts + '}')}"

    def _note(self, text: str) -> str:
        name = f"!{len(self.meta)}"
        self.meta.append(f"{name} = {text}".replace("SELF", name))
        return name

    def _body(self, body: list[Any], depth: int = 0) -> None:
        for s in body:
            if isinstance(s, Loop):
                self._forget()
                self._loop(s, depth + 1)
                self._forget()
            else:
                self._store(s)

    # ------------------------------------------------------------------------------------------ the function

    def text(self) -> str:
        """The module of `@work` and what it calls."""
        for b in self.registers:
            self._line(f"  {self.pointers[b]} = alloca {ELEMENT[b.dtype]}")
        for b in self.arguments:
            strides = ["1"]
            for n in reversed(b.extents[1:]):
                inner = self.whole(n)
                known = strides[-1] == "1"
                strides.append(inner if known else self._let(f"mul nsw i64 {strides[-1]}, {inner}"))
            self.strides[b] = strides[::-1]
        for site in sites(self.program.body):
            if isinstance(site.owner, Loop) and site.owner.until and site.owner.until.start:
                self.totals.setdefault(site.owner.until.start, f"%total{len(self.totals)}")
        for name in self.totals.values():
            self._line(f"  {name} = alloca i64", f"  store i64 0, ptr {name}")
        self._body(self.program.body)
        kinds = [f"ptr noalias captures(none) {self.pointers[b]}" for b in self.arguments]
        kinds += [f"i64 {self.vars[s]}" for s in self.program.sizes]
        work = "\n".join(
            [
                f"define internal i32 @work({', '.join(kinds)}) noinline nounwind {{",
                "entry:",
                *self.code.lines,
                "  ret i32 0",
                "}",
            ]
        )
        extra = sorted(self.code.declarations)
        if self.code.variants:
            listed = ", ".join(f"ptr @{v}" for v in self.code.variants)
            count = len(self.code.variants)
            extra.append(
                f'@llvm.compiler.used = appending global [{count} x ptr] [{listed}], section "llvm.metadata"'
            )
        return vecmath.join(*self.code.texts.values(), *extra, work) + "\n".join(self.meta) + "\n"


def _gemm(name: str, kind: str) -> str:
    """A product of matrices by BLAS, whose rows are columns here: the transposed product of the factors in the other order.

    It answers false, and does nothing, where there are more numbers than BLAS can count, or the scale is 0.
    """
    counts = {
        "columns": "n",
        "rows": "m",
        "inner": "k",
        "by_b": "ldb",
        "by_a": "lda",
        "by_c": "ldc",
    }
    lines = [f"  %{x} = alloca i32" for x in counts]
    lines += [f"  %word_{x} = alloca i8" for x in "ab"] + [
        f"  %{x} = alloca {kind}" for x in ("alpha", "one")
    ]
    lines += [f"  %some_{x} = icmp sgt i64 %{x}, 0" for x in "mnk"]
    lines += ["  %both = and i1 %some_m, %some_n", "  %some = and i1 %both, %some_k"]
    lines += ["  br i1 %some, label %count, label %none", "none:", "  ret i1 true", "count:"]
    total = "0"
    for x in counts.values():
        lines.append(f"  %with_{x} = or i64 {total}, %{x}")
        total = f"%with_{x}"
    lines.append(f"  %small = icmp ult i64 {total}, {1 << 31}")
    # By a scale of 0 BLAS multiplies nothing, not even NaN.
    lines += [f"  %scaled = fcmp une {kind} %scale, 0.0", "  %fits = and i1 %small, %scaled"]
    lines.append("  br i1 %fits, label %call, label %long")
    lines += ["long:", "  ret i1 false", "call:"]
    for x in "ab":
        lines += [
            f"  %letter_{x} = select i1 %t{x}, i8 {ord('T')}, i8 {ord('N')}",
            f"  store i8 %letter_{x}, ptr %word_{x}",
        ]
    for x, n in counts.items():
        lines += [f"  %short_{n} = trunc i64 %{n} to i32", f"  store i32 %short_{n}, ptr %{x}"]
    lines += [f"  store {kind} %scale, ptr %alpha", f"  store {kind} 1.0, ptr %one"]
    passed = [
        "word_b",
        "word_a",
        "columns",
        "rows",
        "inner",
        "alpha",
        "b",
        "by_b",
        "a",
        "by_a",
        "one",
        "c",
        "by_c",
    ]
    lines += [
        f"  call void @{named.BLAS}{name}({', '.join(f'ptr %{x}' for x in passed)})",
        "  ret i1 true",
    ]
    sides = ", ".join(f"ptr %{x}, i64 %ld{x}, i1 %t{x}" for x in "bac")
    given = f"i64 %m, i64 %k, i64 %n, {kind} %scale, {sides}"
    declared = lapack.gemm_declared(named.BLAS + name)
    head = f"{declared}define internal i1 @{name}({given}) noinline nounwind {{\n"
    return head + "\n".join(lines) + "\n}\n"


def _depths(body: list[Any], depth: int = 0) -> Iterator[int]:
    """How many loops are around each store that is not part of a product of matrices or of a call."""
    for s in body:
        if not isinstance(s, Loop):
            yield depth
        elif not s.closed:
            yield from _depths(s.body, depth + 1)


def _is_whole(e: Expr) -> bool:
    return e.op == "const" and float(e.args[0]).is_integer() and abs(e.args[0]) < 1 << 53


def _may_be_one(a: Access, b: Access) -> bool:
    """Whether two accesses of one iteration may be the same element, by their distance alone."""
    if a.buffer is not b.buffer:
        return False
    apart = (i - j for i, j in zip(a.index, b.index, strict=True))
    return not any(d.const and not d.terms for d in apart)


def written(program: Program, guarded: bool = False) -> tuple[str, list[Buffer]]:
    """The text of `@work` for a lowered program, and the buffers whose addresses it takes, in order; sizes follow."""
    writer = Writer(program, guarded)
    return writer.text(), writer.arguments
