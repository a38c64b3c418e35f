"""The Numba front end of the program form: a settled program tree becomes statements over regions.

The tree has helpers written out, tuples dissolved and every name's type, so what is left to read is a few kinds of operation: loads and
stores by basic indices, elementwise functions that `tapegrad.ops` declares, sums and extremes, products with vectors, and loops
over ranges by 1 or -1. Whatever else there is raises `Outside`, told of the user's line, before anything is compiled: the function then
takes the other path (`adjoint`).

Invariants: an index is proved to be in bounds or an assumption of the program; a formula that waits to be stored is stored before
what it reads changes. A name has one memory in all turns of a loop, or the program lies outside.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import types

from ..program.affine import ONE, Affine, affine
from ..program.arrays import (
    Array,
    Builder,
    Index,
    Outside,
    of_buffer,
    of_number,
    remapped,
)
from ..program.expressions import B1, F4, F8, Expr, cast, const, node, number
from ..program.form import Access, Buffer, Program, Store
from ..program.partials import declared
from .rules import MATH
from .tree import TEMP, Const, If, Loop, Node, Op, Operand, Seg, operations, read_counts

WRITTEN = frozenset(
    """add subtract multiply divide negative power sqrt square reciprocal absolute fabs sign maximum minimum exp exp2 expm1 log log2
    log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh arctan2 hypot cbrt floor ceil trunc
    clip where""".split()
)
"""Elementwise ops that the writer has code for."""

PYTHON = {"max": "larger", "min": "smaller"}
"""Python's words, which a NaN passes by its place."""

MAKERS = {"np.zeros": 0.0, "np.ones": 1.0, "np.empty": 0.0, "np.full": None}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a parameter is in the call that a program is made for: an array's extents, a number, or a size."""

    name: str
    kind: Any
    shape: Index | None


@dataclass(frozen=True, slots=True)
class Formed:
    """The program of a function."""

    program: Program
    given: dict[str, Buffer]
    """Buffers of its float parameters."""
    written: set[str]
    """Parameters whose memory it stores to: in the program that is a copy."""


def formed(typed: Any, parameters: Sequence[Parameter]) -> Formed:
    """The program of a settled tree; raises Outside."""
    copied: set[str] = set()
    while True:
        try:
            reader = _Reader(typed, parameters, copied)
            reader.run()
            return Formed(reader.builder.program(), reader.given, copied)
        except _Written as found:
            copied.add(found.name)


class _Written(Exception):
    """A parameter's memory is stored to: the program is made again, with a copy of it from the start."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Reader:
    def __init__(self, typed: Any, parameters: Sequence[Parameter], copied: set[str]) -> None:
        self.typed, self.program = typed, typed.program
        self.builder = Builder(self.program.name)
        self.env: dict[str, Array | Affine] = {}
        self.given: dict[str, Buffer] = {}
        self.own: dict[str, Buffer] = {}
        """The memory that a name has for itself."""
        self.counts = read_counts(self.program.body, self.program.results)
        self.assigned: dict[str, int] = {}
        self.changed: set[str] = set()
        for op in operations(self.program.body):
            for name in op.out:
                self.assigned[name] = self.assigned.get(name, 0) + 1
            if op.kind in ("store", "acc") and isinstance(op.args[0], str):
                self.changed.add(op.args[0])
        self.symbolic = 0
        self.where: Any = self.program.where
        for p in parameters:
            self._parameter(p, p.name in copied)

    def _parameter(self, p: Parameter, copied: bool) -> None:
        b = self.builder
        if isinstance(p.kind, types.Integer) and not isinstance(p.kind, types.Boolean):
            self.env[p.name] = b.size(p.name)
            return
        dtype = _dtype(p.kind.dtype if isinstance(p.kind, types.Array) else p.kind)
        if dtype not in (F8, F4) or p.shape == () or (p.shape is None and dtype == F4):
            return  # nothing may read it
        for n in p.shape or ():
            for name in n.names():
                b.size(name)
        buffer = self.given[p.name] = b.buffer(p.name, p.shape or (), dtype, "input")
        b.inputs.append(buffer)
        self.env[p.name] = of_buffer(buffer)
        if copied or (p.shape is None and self.assigned.get(p.name)):
            own = self.own[p.name] = b.buffer(p.name, p.shape or (), dtype)
            b.store(of_buffer(own), of_buffer(buffer))
            self.env[p.name] = of_buffer(own)

    def outside(self, why: str) -> Outside:
        return Outside(f"{self.where}\n  {why}")

    def run(self) -> None:
        self._nodes(self.program.body)
        self.where = self.program.where
        for k, name in enumerate(self.program.results):
            value = self._value(name)
            if value.dtype not in (F8, F4) or not isinstance(
                getattr(self.typed.types.get(name), "dtype", self.typed.types.get(name)),
                types.Float,
            ):
                raise self.outside("A result is no float.")
            out = self.builder.buffer(f"result_{k}", value.shape, value.dtype, "output")
            self.builder.outputs.append(out)
            self.builder.store(of_buffer(out), value)

    # ------------------------------------------------------------------------------------------ the tree

    def _nodes(self, body: Sequence[Node]) -> None:
        for n in body:
            if isinstance(n, Seg):
                self._ops(n.ops)
            elif isinstance(n, If):
                raise self.outside(
                    "A branch is outside the form."
                    if not n.head
                    else f"A branch is outside the form ({n.head[0].where})."
                )
            else:
                self._loop(n)

    def _ops(self, ops: Sequence[Op]) -> None:
        for op in ops:
            self.where = op.where
            try:
                self._op(op)
            except Outside as why:
                raise why if "\n" in str(why) else self.outside(f"{why}.") from None

    def _loop(self, n: Loop) -> None:
        self._ops(n.head)
        if not n.variable or n.stop or n.snapshots or n.parallel:
            raise self.outside(
                "A loop that is left early, or has threads or snapshots, is outside the form."
            )
        start, stop, by = (self._whole(x) for x in n.bounds)
        if by.terms or by.const not in (1, -1):
            raise self.outside("A loop's step is other than 1 or -1.")
        lo, hi = (start, stop) if by.const > 0 else (stop + 1, start + 1)
        for name in [x for x, v in self.env.items() if self._waits(x, v)]:
            self._settle(name)
        before = dict(self.env)
        with self.builder.loop(n.variable, lo, hi, by.const) as at:
            if self.assigned.get(n.variable):
                raise self.outside("A loop's variable is assigned in it.")
            self.env[n.variable] = at
            self._nodes(n.body)
        for name, value in before.items():
            if (
                name != n.variable
                and self.counts.get(name)
                and not _same(value, self.env.get(name))
            ):
                raise self.outside(f"{name} means other memory or another index in each turn.")
        self.env.pop(n.variable, None)
        for name in set(self.env) - set(before):
            if isinstance(self.env[name], Affine) and n.variable:
                self.env.pop(name)  # what it was in the last turn has no name outside

    # ------------------------------------------------------------------------------------------ operands

    def _value(self, x: Operand) -> Array:
        """An operand as an array or a number."""
        if isinstance(x, Const):
            if isinstance(x.value, bool) or not isinstance(x.value, int | float):
                raise Outside(f"{x.text} is no number")
            return of_number(const(float(x.value)))
        if x not in self.env:
            raise Outside(f"{x} has no value here that the form knows")
        found = self.env[x]
        return of_number(number(found)) if isinstance(found, Affine) else found

    def _whole(self, x: Operand) -> Affine:
        """An operand as an affine integer."""
        if isinstance(x, Const):
            if type(x.value) is not int:
                raise Outside(f"{x.text} is no whole number")
            return affine(x.value)
        found = self.env.get(x)
        if not isinstance(found, Affine):
            raise Outside(f"{x} is no affine index")
        return found

    def _number(self, x: Operand) -> Expr:
        value = self._value(x)
        if value.shape:
            raise Outside(f"{x} is an array")
        return value.number()

    # ------------------------------------------------------------------------------------------ binding

    def _waits(self, name: str, value: Any) -> bool:
        """Whether a name stands for a formula that is not yet computed, and somebody reads it."""
        return (
            isinstance(value, Array)
            and bool(value.reads)
            and (value.access is None or not value.shape)
            and name.startswith(TEMP)
            and name not in self.own
        )

    def _settle(self, name: str) -> None:
        value = self.env[name]
        assert isinstance(value, Array)
        kept = self.builder.kept(value, "t")
        self.env[name] = kept
        (self.own[name],) = kept.reads

    def _changes(self, buffers: frozenset[Buffer], but: frozenset[str] = frozenset()) -> None:
        """Memory is about to change: formulas that read it are computed now."""
        for b in buffers:
            if b.role == "input":
                raise _Written(next(n for n, g in self.given.items() if g is b))
        for name in [x for x, v in self.env.items() if self._waits(x, v)]:
            value = self.env[name]
            if name not in but and isinstance(value, Array) and value.reads & buffers:
                self._settle(name)

    def _bind(self, name: str, value: Array | Affine) -> None:
        """name = value, for a new value (not a view of memory that another name has)."""
        if isinstance(value, Affine):
            self.env[name] = value
            return
        if self.symbolic or (name.startswith(TEMP) and self._once(name, value)):
            self.env[name] = value
            return
        own = self.own.get(name)
        if (
            own is None
            or own.extents != value.shape
            or own.dtype != value.dtype
            or self._viewed(name, own)
        ):
            own = self.own[name] = self.builder.buffer(
                "t" if name.startswith(TEMP) else name, value.shape, value.dtype
            )
        target = of_buffer(own)
        old = self.env.get(name)
        self._changes(frozenset((own,)), frozenset((name,)))
        self.builder.store(target, value)
        self.env[name] = old if isinstance(old, Array) and _same(old, target) else target

    def _bind_together(self, found: list[tuple[str, Array]]) -> None:
        """Several numbers at once: each from what was before."""
        if self.symbolic or len(found) == 1:
            for name, value in found:
                self._bind(name, value)
            return
        stores = []
        for name, value in found:
            own = self.own.get(name)
            if own is None or own.dtype != value.dtype:
                own = self.own[name] = self.builder.buffer(name, (), value.dtype)
            stores.append(Store(Access(own), value.number()))
        self._changes(frozenset(s.target.buffer for s in stores))
        self.builder.emit((), *stores)
        for (name, _), s in zip(found, stores, strict=True):
            old, new = self.env.get(name), of_buffer(s.target.buffer)
            self.env[name] = old if isinstance(old, Array) and _same(old, new) else new

    def _once(self, name: str, value: Array) -> bool:
        """Whether a temporary need not be in memory: it is read once, or cheap."""
        return self.assigned.get(name, 0) == 1 and (
            self.counts.get(name, 0) <= 1 or not value.shape
        )

    def _viewed(self, name: str, own: Buffer) -> bool:
        """Whether another name has this memory, too."""
        return any(
            x != name
            and isinstance(v, Array)
            and v.access is not None
            and own in v.reads
            and self.counts.get(x)
            for x, v in self.env.items()
        )

    # ------------------------------------------------------------------------------------------ operations

    def _op(self, op: Op) -> None:
        if op.kind == "if":
            return self._choice(op)
        if op.kind == "store":
            return self._store(op, "")
        if op.kind == "acc":
            return self._store(op, op.form)
        if op.kind == "load":
            return self._load(op)
        if op.kind == "copy":
            return self._copy(op)
        if op.kind != "pure" or len(op.out) != 1:
            raise Outside(f"an operation of kind {op.kind}")
        value = self._pure(op)
        name = op.out[0]
        if isinstance(value, Array) and value.access is not None and value.shape:
            self.env[name] = value  # a view
            return None
        return self._bind(name, value)

    def _copy(self, op: Op) -> None:
        name, (x,) = op.out[0], op.args
        kind = self.typed.types.get(name)
        if isinstance(kind, types.Integer):
            return self._bind(name, self._whole_or_number(x))
        value = self._value(x)
        if not value.shape:
            return self._bind(name, of_number(cast(value.number(), _dtype(kind))))
        if value.access is None and isinstance(x, str):
            if self.counts.get(x, 0) <= 1:
                return self._bind(name, value)
            self._settle(x)
            value = self._value(x)
        if self.assigned.get(name, 0) > 1:
            alone = isinstance(x, str) and x.startswith(TEMP) and self.counts.get(x, 0) <= 1
            fresh = alone and (value.access is None or x in self.own)
            if not fresh and (name in self.changed or x in self.changed):
                raise Outside(f"{name} is a second name of {x}, and another array later")
            return self._bind(name, Array(value.shape, value.at, value.dtype, None, value.reads))
        self.env[name] = value
        return None

    def _whole_or_number(self, x: Operand) -> Any:
        if isinstance(x, str) and isinstance(self.env.get(x), Array):
            return self.env[x]
        return self._whole(x)

    def _choice(self, op: Op) -> None:
        """A small branch of numbers: both sides are computed, and one is chosen."""
        condition = self._test(op.args[0])
        sides = []
        for ops in (op.body, op.orelse):
            before = dict(self.env)
            self.symbolic += 1
            try:
                self._ops(ops)
                sides.append({n: self.env.get(n) for n in op.out})
            finally:
                self.symbolic -= 1
                self.env = before
        self.where = op.where
        found: list[tuple[str, Array]] = []
        for name in op.out:
            a, b = (s[name] for s in sides)
            kind = self.typed.types.get(name)
            if a is None or b is None or not isinstance(kind, types.Float):
                if self.counts.get(name):
                    raise Outside(f"{name} gets a value in one branch only, or is no float")
                continue
            dtype = _dtype(kind)
            values = [cast(self._as_number(v), dtype) for v in (a, b)]
            found.append((name, of_number(node("where", condition, *values))))
        self._bind_together(found)

    def _as_number(self, v: Array | Affine) -> Expr:
        if isinstance(v, Affine):
            return number(v)
        if v.shape:
            raise Outside("a branch chooses among arrays")
        return v.number()

    def _test(self, x: Operand) -> Expr:
        if isinstance(x, Const):
            raise Outside("a constant condition")
        e = self._number(x)
        if e.dtype != B1:
            raise Outside("a condition that is no comparison")
        return e

    # ------------------------------------------------------------------------------------------ memory

    def _load(self, op: Op) -> None:
        base = self._value(op.args[0])
        view = self._indexed(base, op)
        name = op.out[0]
        if view.shape:
            if self.assigned.get(name, 0) > 1:
                raise Outside(f"{name} is several views")
            self.env[name] = view
            if view.access is None and self.counts.get(name, 0) > 1:
                self._settle(name)
        else:
            self._bind(name, of_number(view.number()))

    def _store(self, op: Op, sign: str) -> None:
        base = self._value(op.args[0])
        value = self._value(op.args[1])
        if base.access is None:
            raise Outside("a store into what is no memory")
        target = self._indexed(base, op)
        (b,) = base.reads
        given = op.args[1]
        last = isinstance(given, str) and self.counts.get(given, 0) <= 1
        if self.builder.overlap(target, value):
            if sign:
                raise Outside("an update in place by an overlapping part of the same array")
            value = Array(value.shape, value.at, value.dtype, None, value.reads)
        self._changes(
            frozenset((b,)), frozenset((given,)) if last and isinstance(given, str) else frozenset()
        )
        if not last and value.access is None:
            value = self._value(given)  # it may have been computed just now
        if len(value.shape) > len(target.shape) and value.shape[0] != ONE:
            raise Outside("a store of more axes than there are")
        if not sign:
            return self.builder.store(target, value)
        if sign in ("+", "-"):
            signed = value if sign == "+" else self._applied("negative", [value], value.dtype)
            return self.builder.store(target, signed, "+=")
        word = {"*": "multiply", "/": "divide", "**": "power"}.get(sign)
        if word is None:
            raise Outside(f"an update by {sign}")
        return self.builder.store(target, self._applied(word, [target, value], target.dtype))

    def _indexed(self, base: Array, op: Op) -> Array:
        """base[index], a view where the base is one."""
        if not base.shape:
            raise Outside("an index into what is no array")
        texts = {f"_{k}": a for k, a in enumerate(op.args)}
        text = op.index.format(*texts)
        tree = ast.parse(f"x[{text}]", mode="eval").body
        assert isinstance(tree, ast.Subscript)
        parts = list(tree.slice.elts) if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        return self._subscript(base, parts, texts)

    def _subscript(self, base: Array, parts: list[ast.expr], names: dict[str, Operand]) -> Array:
        taken = sum(not _is(p, None) and not _is(p, ...) for p in parts)
        if taken > len(base.shape):
            raise Outside("more indices than axes")
        whole = [ast.Slice()] * (len(base.shape) - taken)
        at = next((k for k, p in enumerate(parts) if _is(p, ...)), None)
        if at is None:
            parts = [*parts, *whole]
        else:
            parts = [*parts[:at], *whole, *parts[at + 1 :]]
        shape: list[Affine] = []
        picks: list[tuple[int | None, int, Affine]] = []
        d = 0
        for p in parts:
            if _is(p, None):
                shape.append(ONE)
                continue
            n = base.shape[d]
            d += 1
            if isinstance(p, ast.Slice):
                lo, hi = (
                    None if e is None else self._integer(e, names) for e in (p.lower, p.upper)
                )
                step = 1 if p.step is None else self._integer(p.step, names).const
                first, extent = self.builder.sliced(n, lo, hi, step, "a slice")
                picks.append((len(shape), step, first))
                shape.append(extent)
            else:
                i = self.builder.position(self._integer(p, names), n, "an index")
                picks.append((None, 0, i))

        def to(index: Index) -> Index:
            return tuple(i if k is None else index[k] * step + i for k, step, i in picks)

        return remapped(base, tuple(shape), to)

    def _integer(self, e: ast.expr, names: dict[str, Operand]) -> Affine:
        """The affine integer that the text of an index computes."""
        if isinstance(e, ast.Constant) and type(e.value) is int:
            return affine(e.value)
        if isinstance(e, ast.Name):
            return self._whole(names[e.id])
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self._integer(e.operand, names) * -1
        if isinstance(e, ast.BinOp):
            return _arithmetic(
                type(e.op), self._integer(e.left, names), self._integer(e.right, names)
            )
        raise Outside("an index that is no affine integer")

    # ------------------------------------------------------------------------------------------ functions

    def _pure(self, op: Op) -> Any:
        rule, args = op.rule or "", op.args
        kind = self.typed.types.get(op.out[0])
        if rule in (".shape", "len", ".size"):
            return self._extent(op, rule)
        if isinstance(kind, types.Integer) and not isinstance(kind, types.Boolean):
            return self._integral(rule, args)
        if rule in ("compare", "not", "bool"):
            texts = {f"_{k}": a for k, a in enumerate(args)}
            tree = ast.parse(op.form.format(*texts), mode="eval").body
            return self._logic(tree, texts)
        if op.settings and rule not in ("np.sum", "np.max", "np.min", "np.mean"):
            raise Outside(f"{rule} with settings")
        dtype = _dtype(kind)
        if dtype not in (F8, F4):
            raise Outside(f"{rule or op.form} gives {kind}, which is no float")
        if rule in MAKERS or rule.removesuffix("_like") in MAKERS:
            return self._made(rule, args, kind)
        if rule in ("np.float64", "np.float32", "float"):
            return self._applied("cast", [self._value(args[0])], dtype)
        if rule in ("np.copy", ".copy", "np.ascontiguousarray"):
            a = self._value(args[0])
            return Array(a.shape, a.at, a.dtype, None, a.reads)
        if rule in (".T", "np.transpose") and len(args) == 1:
            a = self._value(args[0])
            return remapped(a, a.shape[::-1], lambda index: index[::-1])
        if rule in ("np.sum", "np.mean", "np.max", "np.min", "np.amax", "np.amin"):
            return self._reduced(op, rule, dtype)
        if rule in ("@", "np.dot"):
            return self._matmul(self._value(args[0]), self._value(args[1]), dtype)
        if rule == "np.where" and len(args) == 3:
            condition, a, b = map(self._value, args)
            if condition.dtype != B1:
                raise Outside("a condition that is no comparison")
            return self.builder.elementwise(
                lambda c, x, y: node("where", c, cast(x, dtype), cast(y, dtype)),
                condition,
                a,
                b,
                dtype=dtype,
            )
        name = PYTHON.get(rule) if len(args) == 2 else None
        if name is None:
            function = MATH.get(rule) or (
                getattr(np, rule[3:], None) if rule.startswith("np.") else None
            )
            name = getattr(function, "__name__", "")
        known = declared(name) if name in WRITTEN or name in PYTHON.values() else None
        if known is None or len(args) != known.arity:
            raise Outside(f"{rule or op.form} is no function of the form")
        return self._applied(name, [self._value(a) for a in args], dtype)

    def _applied(self, name: str, arrays: list[Array], dtype: str) -> Array:
        def make(*xs: Expr) -> Expr:
            given = [cast(x, dtype) for x in xs]
            return given[0] if name == "cast" else node(name, *given)

        if any(a.dtype == B1 for a in arrays):
            raise Outside("arithmetic with truth values")
        return self.builder.elementwise(make, *arrays, dtype=dtype)

    def _extent(self, op: Op, rule: str) -> Any:
        a = self._value(op.args[0])
        if rule == ".shape":
            return a.shape[int(op.form.rsplit("[", 1)[1].rstrip("]"))]
        if rule == "len":
            return a.shape[0]
        whole: Any = ONE
        for n in a.shape:
            whole = _product(whole, n)
        return whole

    def _integral(self, rule: str, args: Sequence[Operand]) -> Any:
        word = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}.get(rule)
        if rule == "neg":
            return self._whole(args[0]) * -1
        if word is None or len(args) != 2:
            raise Outside(f"whole numbers by {rule}")
        if any(isinstance(x, str) and isinstance(self.env.get(x), Array) for x in args):
            name = {"+": "add", "-": "subtract", "*": "multiply"}[rule]
            return self._applied(name, [self._value(a) for a in args], F8)
        a, b = map(self._whole, args)
        return _product(a, b) if word is ast.Mult else _arithmetic(word, a, b)

    def _logic(self, e: ast.expr, names: dict[str, Operand]) -> Array:
        """The text of a comparison, or of several joined by words."""
        if isinstance(e, ast.BoolOp):
            word = "logical_and" if isinstance(e.op, ast.And) else "logical_or"
            found = self._logic(e.values[0], names)
            for v in e.values[1:]:
                other = self._logic(v, names)
                found = self.builder.elementwise(
                    lambda a, b: node(word, a, b), found, other, dtype=B1
                )
            return found
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            found = self._logic(e.operand, names)
            return self.builder.elementwise(lambda a: node("logical_not", a), found, dtype=B1)
        if isinstance(e, ast.Compare) and len(e.ops) == 1:
            word = _TESTS.get(type(e.ops[0]), "")
            if not word:
                raise Outside("a comparison of this kind")
            a, b = (self._operand(x, names) for x in (e.left, e.comparators[0]))
            if B1 in (a.dtype, b.dtype):
                raise Outside("a comparison of truth values")
            dtype = F4 if a.dtype == b.dtype == F4 else F8
            return self.builder.elementwise(
                lambda x, y: node(word, cast(x, dtype), cast(y, dtype)), a, b, dtype=B1
            )
        if isinstance(e, ast.Name):
            found = self._value(names[e.id])
            if found.dtype == B1:
                return found
        raise Outside("a condition that is no comparison")

    def _operand(self, e: ast.expr, names: dict[str, Operand]) -> Array:
        """An operand within the text of a condition."""
        if isinstance(e, ast.Name):
            return self._value(names[e.id])
        if isinstance(e, ast.Constant) and isinstance(e.value, int | float):
            return of_number(const(float(e.value)))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self._applied("negative", [self._operand(e.operand, names)], F8)
        if isinstance(e, ast.Subscript):
            parts = list(e.slice.elts) if isinstance(e.slice, ast.Tuple) else [e.slice]
            found = self._subscript(self._operand(e.value, names), parts, names)
            return found if found.shape else of_number(found.number())
        word = _BINARY.get(type(e.op)) if isinstance(e, ast.BinOp) else None
        if word is not None:
            assert isinstance(e, ast.BinOp)
            return self._applied(
                word, [self._operand(e.left, names), self._operand(e.right, names)], F8
            )
        raise Outside("an operand of a comparison that the form does not know")

    def _made(self, rule: str, args: Sequence[Operand], kind: Any) -> Array:
        dtype = _dtype(kind)
        if rule.endswith("_like"):
            base = rule.removesuffix("_like")
            shape = self._value(args[0]).shape
            rest = args[1:]
        else:
            base, rest = rule, ()
            count = kind.ndim
            shape = tuple(map(self._whole, args[:count]))
            rest = args[count:]
        for n in shape:
            self.builder.claim(n, "an extent")
        fill = MAKERS[base]
        value = self._number(rest[0]) if fill is None else const(fill, dtype)
        return Array(
            shape,
            lambda _: cast(value, dtype),
            dtype,
            None,
            frozenset(x.access.buffer for x in value.loads),
        )

    def _reduced(self, op: Op, rule: str, dtype: str) -> Array:
        value = self._value(op.args[0])
        axis = op.settings.get("axis")
        if set(op.settings) - {"axis"} or not value.shape or (axis is None and len(op.args) > 1):
            raise Outside(f"{rule} with these settings")
        if value.dtype != dtype:
            raise Outside(f"{rule} into another dtype")
        axes: Sequence[int] = range(len(value.shape))
        if axis is not None:
            k = self._whole(axis)
            if k.terms or not -len(value.shape) <= k.const < len(value.shape):
                raise Outside(f"{rule} over an axis that is not known")
            axes = [k.const % len(value.shape)]
        mode = {"m": "+=", "s": "+="}.get(rule[3], "")
        if rule in ("np.max", "np.amax"):
            mode = "max="
        elif rule in ("np.min", "np.amin"):
            mode = "min="
        found = self.builder.reduced(value, axes, mode, "m" if mode != "+=" else "sum")
        if rule != "np.mean":
            return Array(found.shape, found.at, found.dtype, None, found.reads)
        count: Any = ONE
        for d in axes:
            count = _product(count, value.shape[d])
        whole = of_number(number(count)) if isinstance(count, Affine) else count
        return self._applied("divide", [found, whole], dtype)

    def _matmul(self, a: Array, b: Array, dtype: str) -> Array:
        if not a.shape or not b.shape or (len(a.shape) > 1 and len(b.shape) > 1):
            raise Outside("a product of matrices is left to BLAS")
        if a.dtype != dtype or b.dtype != dtype:
            raise Outside("a product into another dtype")
        # What is multiplied is read many times: formulas are computed once.
        a, b = (x if x.access is not None else self.builder.kept(x, "t") for x in (a, b))
        found = self.builder.product(a, b)
        return Array(found.shape, found.at, found.dtype, None, found.reads)


_TESTS = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip
_BINARY = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


def _dtype(kind: Any) -> str:
    if isinstance(kind, types.Boolean):
        return B1
    if isinstance(kind, types.Array):
        kind = kind.dtype
    return {types.float64: F8, types.float32: F4}.get(kind, "")


def _is(e: ast.expr, value: Any) -> bool:
    return isinstance(e, ast.Constant) and e.value is value


def _arithmetic(word: Any, a: Affine, b: Affine) -> Affine:
    if word is ast.Add:
        return a + b
    if word is ast.Sub:
        return a - b
    if word is ast.Mult and not (a.terms and b.terms):
        return b * a.const if b.terms else a * b.const
    raise Outside("an index that is no affine integer")


def _product(a: Any, b: Any) -> Any:
    """The product of whole numbers; where it is not affine, as a float, exact up to 2**53."""
    if isinstance(a, Affine) and isinstance(b, Affine) and not (a.terms and b.terms):
        return _arithmetic(ast.Mult, a, b)
    given = [number(x) if isinstance(x, Affine) else x.number() for x in (a, b)]
    return of_number(node("multiply", *given))


def _same(a: Any, b: Any) -> bool:
    """Whether a name means the same after a turn of a loop as before."""
    if a is b or isinstance(a, Affine) or isinstance(b, Affine) or b is None:
        return a is b or a == b
    if a.access is None or b.access is None or a.shape != b.shape:
        return False
    index = tuple(affine(f"_{k}") for k in range(len(a.shape)))
    return bool(a.access(index) == b.access(index))
