"""What operations compute: operands, indices and functions of a settled program tree as arrays of the form.

`Formulas` knows what names stand for (`env`) and asks the builder for shapes, claims and reductions; it binds no name and stores
nothing but what a reduction gathers. Elementwise functions are those that `tapegrad.ops` declares and the writer has code for.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core import types

from ..core.parsing import parsed
from ..core.primitive import Primitive
from ..program.affine import ONE, ZERO, Affine, affine, whole
from ..program.arrays import Array, Builder, Index, Outside, of_number, remapped
from ..program.expressions import (
    B1,
    F4,
    F8,
    WHOLE,
    Expr,
    cast,
    const,
    node,
    number,
)
from ..program.form import Buffer, Range
from ..program.partials import declared
from ..program.passes.products import available
from ..program.writer import WRITTEN
from . import placing, spelled, wholes
from .arrangements import ARRANGED, MAKERS, OF_WHOLE, REDUCTIONS, length
from .lowering import Asked
from .rules import MATH, without_dtype
from .systems import SYSTEMS
from .tree import INDICES, Const, Loop, Op, Operand
from .wholes import arithmetic, comparison, distance, exact, product

SPECIAL = {
    "math.erf": "erf", "math.erfc": "erfc", "np.round": "rint", "np.around": "rint", "%": "remainder", "np.mod": "remainder",
    "np.remainder": "remainder", "//": "floor_divide",
}  # fmt: skip

ROWS = 12
"""Extents up to which a product of matrices is a loop of the form where it has no BLAS."""

TYPED = frozenset((*MAKERS, *"np.eye np.identity np.array np.arange np.linspace".split()))
"""Functions whose `dtype=` says nothing but the type of the result, which inference knows."""


class Formulas:
    """The values of a program's operations; a reader adds statements."""

    builder: Builder
    env: dict[str, Array | Affine]
    typed: Any
    compared: list[Affine]
    """Differences of sizes of which a formula asked whether they are above 0."""
    wholes: set[Buffer]
    """Memory of whole numbers that are held as floats."""
    numbers: set[str]
    """Sizes that are whole numbers which a call gives, not lengths."""
    symbolic: int
    asked: list[Expr]
    """The conditions under which the text of a condition is asked that is being read."""
    own: dict[str, Buffer]
    """The memory that a name has for itself."""
    loops: dict[str, Loop]
    """The loops around that end, by the names of their variables in the form."""

    # ------------------------------------------------------------------------------------------ operands

    def _value(self, x: Operand) -> Array:
        """An operand as an array or a number."""
        if isinstance(x, Const):
            if isinstance(x.value, bool):
                return of_number(const(float(x.value), B1))
            if not isinstance(x.value, int | float):
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

    # ------------------------------------------------------------------------------------------ conditions

    def _proved(self, e: Expr, holds: bool = True) -> bool:
        """Whether a condition is proved to hold here, or not to hold: a comparison of affine integers, or several."""
        if e.op == "const":
            return bool(e.args[0]) == holds
        if e.op == "logical_not":
            return self._proved(e.args[0], not holds)
        if e.op in ("logical_and", "logical_or"):
            every = all if (e.op == "logical_and") == holds else any
            return every(self._proved(a, holds) for a in e.args)
        claims = comparison(e, holds)
        if claims is None:
            return False
        every = any if e.op == ("not_equal" if holds else "equal") else all
        return every(self.builder.order.proves(c, self.builder.path) for c in claims)

    # ------------------------------------------------------------------------------------------ indices

    def _indexed(self, base: Array, op: Op, named: bool = False) -> Array:
        """base[index], a view where the base is one; with `named` a view of the places that an array names, too."""
        if not base.shape:
            raise Outside("an index into what is no array")
        texts = {f"_{k}": a for k, a in enumerate(op.args)}
        text = op.index.format(*texts)
        tree = parsed(f"x[{text}]", mode="eval").body
        assert isinstance(tree, ast.Subscript)
        parts = list(tree.slice.elts) if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        return self._subscript(base, parts, texts, named)

    def _subscript(
        self,
        base: Array,
        parts: list[ast.expr],
        names: dict[str, Operand],
        named: bool = False,
    ) -> Array:
        """An array indexed by constants, slices and affine numbers: a view."""
        taken = sum(not _is(p, None) and not _is(p, ...) for p in parts)
        if taken > len(base.shape):
            raise Outside("more indices than axes")
        rest = [ast.Slice()] * (len(base.shape) - taken)
        at = next((k for k, p in enumerate(parts) if _is(p, ...)), None)
        if at is None:
            parts = [*parts, *rest]
        else:
            parts = [*parts[:at], *rest, *parts[at + 1 :]]
        shape: list[Affine] = []
        picks: list[Callable[[Index], Affine]] = []
        gathers = any(self._gathers(p, names) for p in parts)
        d = 0
        for p in parts:
            if _is(p, None):
                shape.append(ONE)
                continue
            n = base.shape[d]
            d += 1
            if isinstance(p, ast.Slice):
                window = self._window(p, n, names)
                if window is not None:
                    picks.append(_strided(len(shape), 1, window[0]))
                    shape.append(window[1])
                    continue
                lo, hi = (
                    None if e is None else self._integer(e, names) for e in (p.lower, p.upper)
                )
                step = 1 if p.step is None else self._step(self._integer(p.step, names))
                first, extent = self.builder.sliced(n, lo, hi, 1 if step > 0 else -1, "a slice")
                if abs(step) > 1:
                    extent = self._quotient(extent + abs(step) - 1, abs(step))
                picks.append(_strided(len(shape), step, first))
                shape.append(extent)
            elif self._gathers(p, names):
                assert isinstance(p, ast.Name)
                table = self._value(names[p.id])
                picks.append(self._gathered(table, n, len(shape)))
                shape += table.shape
            elif gathers:
                raise Outside("an index array beside an index")
            else:
                picks.append(_fixed(self._position(p, n, names)))

        def to(index: Index) -> Index:
            return tuple(pick(index) for pick in picks)

        found = remapped(base, tuple(shape), to)
        return found.unnamed() if gathers and not named else found

    def _position(self, e: ast.expr, n: Affine, names: dict[str, Operand]) -> Affine:
        """The place on an axis of `n` elements that the text of an index names."""
        try:
            i = self._integer(e, names)
        except Outside:
            value = self._operand(e, names)
            if value.shape or not wholes.is_whole(self, value.number()):
                raise
            return placing.place(self, value.number(), n)
        if whole(i) and self._asks(i + 1):  # below zero it counts from the end
            if self._spared(test := node("less", number(i), number(ZERO))):
                return placing.place(self, number(i), n)
            self._cut(test)
        if self.asked and not self._lies(i, n):  # the index may be none where nobody asks
            return placing.place(self, number(i), n)
        return self.builder.position(i, n, "an index")

    def _lies(self, i: Affine, n: Affine) -> bool:
        """Whether an index is a place on an axis: proved, or, where that is not asked in each iteration, to be assumed of sizes."""
        claims, builder = (i, n - i - 1), self.builder
        if all(builder.order.proves(c, builder.path) for c in claims):
            return True
        return not builder.untils and all(builder.likely(c, builder.path) for c in claims)

    def _window(
        self, e: ast.Slice, n: Affine, names: dict[str, Operand]
    ) -> tuple[Affine, Affine] | None:
        """(first, extent) of a slice of a known extent from a place that the program computes; None of any other slice."""
        if e.lower is None or e.upper is None or e.step is not None:
            return None
        try:
            self._integer(e.lower, names)
            return None
        except Outside:
            lo, hi = (self._operand(x, names).number() for x in (e.lower, e.upper))
        extent = distance(lo, hi)
        if extent is None or not wholes.is_whole(self, lo):
            return None
        self.builder.claim(extent, "a slice")
        return placing.place(self, lo, n - extent + 1, wraps=False), extent

    def _gathered(self, at: Array, n: Affine, first: int) -> Callable[[Index], Affine]:
        """The place on an axis of `n` elements that an array of whole numbers names, whose own axes begin at `first`."""
        count = len(at.shape)
        e = at.at(tuple(affine(f"_{d}") for d in range(count)))
        if at.dtype not in WHOLE and at.dtype != F8:
            raise Outside("an index that is an array")
        if exact(e) is None and wholes.is_whole(self, e):
            at = placing.places(self, at, n)
        elif exact(e) is None:
            raise Outside("an index that is an array")
        read = at.at

        def place(index: Index) -> Affine:
            found = exact(read(index))
            assert found is not None
            return found

        with self.builder.along(at.shape) as index:
            self.builder.claim(place(index), "an index from an array")
            self.builder.claim(n - place(index) - 1, "an index from an array")
        return lambda index: place(index[first : first + count])

    def _step(self, step: Affine) -> int:
        if step.terms or not step.const:
            raise Outside("a slice whose step is no known number")
        return step.const

    def _gathers(self, e: ast.expr, names: dict[str, Operand]) -> bool:
        given = names.get(e.id) if isinstance(e, ast.Name) else None
        return given is not None and isinstance(self.typed.kind(given), types.Array)

    def _integer(self, e: ast.expr, names: dict[str, Operand]) -> Affine:
        """The affine integer that the text of an index computes."""
        if isinstance(e, ast.Constant) and type(e.value) is int:
            return affine(e.value)
        if isinstance(e, ast.Name):
            return self._whole(names[e.id])
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self._integer(e.operand, names) * -1
        if isinstance(e, ast.Subscript):
            found = self._operand(e, names)
            if not found.shape and found.number().op == "number":
                return found.number().args[0]  # type: ignore[no-any-return]
        if isinstance(e, ast.BinOp):
            return arithmetic(
                type(e.op), self._integer(e.left, names), self._integer(e.right, names)
            )
        raise Outside("an index that is no affine integer")

    # ------------------------------------------------------------------------------------------ functions

    def _pure(self, op: Op) -> Any:
        """The value of a pure operation as an expression. Unspelled where the form has no such function, but one that can be written out;
        else Outside.
        """
        try:
            return self._expressed(op)
        except Outside:
            asked = Asked()
            if spelled.is_loops(op.rule or "") and asked.add(op):
                raise asked.request() from None
            raise

    def _expressed(self, op: Op) -> Any:
        """The value of a pure operation as an expression; Outside where the form has no such function."""
        if (op.rule or "").removesuffix("_like") in TYPED:
            op = without_dtype(op)
        rule, args = op.rule or "", op.args
        kind = self.typed.types.get(op.out[0])
        if rule == INDICES:
            texts = {f"_{k}": a for k, a in enumerate(args)}
            return self._operand(parsed(op.form.format(*texts), mode="eval").body, texts)
        if rule in (".shape", "len", ".size"):
            return self._extent(op, rule)
        if rule in ARRANGED:
            return ARRANGED[rule](self, op, self._element(rule, kind))
        if rule in SYSTEMS:
            return SYSTEMS[rule](self, op)
        if (
            getattr(kind, "dtype", kind) is types.boolean
            and (found := self._truths(op)) is not None
        ):
            return found
        whole = isinstance(kind, types.Integer) and not isinstance(kind, types.Boolean)
        if whole and rule != "compare":
            return wholes.integral(self, rule, args)
        if getattr(kind, "dtype", None) is types.int64:
            return wholes.array(self, op, rule)
        if rule in ("compare", "not", "bool"):
            texts = {f"_{k}": a for k, a in enumerate(args)}
            tree = parsed(op.form.format(*texts), mode="eval").body
            return self._logic(tree, texts)
        if op.settings and rule not in ("np.sum", "np.max", "np.min", "np.mean"):
            raise Outside(f"{rule} with settings")
        dtype = dtype_of(kind)
        made = rule in MAKERS or rule.removesuffix("_like") in MAKERS
        if dtype not in (F8, F4) and not (made and dtype == B1):
            raise Outside(f"{rule or op.form} gives {kind}, which is no float")
        if made:
            return self._made(rule, args, kind)
        if rule == "np.finfo":
            return of_number(const(_of_machine(op.form, dtype), dtype))
        if rule == ".astype":
            a = self._applied("cast", [self._value(args[0])], dtype)
            return a.unnamed()
        if rule in ("np.float64", "np.float32", "float"):
            return self._applied("cast", [self._value(args[0])], dtype)
        if rule == "np.ascontiguousarray":
            # The array itself where it is in C order, which a store to either shows; of another layout Numba sees that in the call.
            a, given = self._value(args[0]), self.typed.types.get(args[0])
            if getattr(given, "layout", None) != "C":
                raise Outside("np.ascontiguousarray of an array that may lie in another order")
            return a
        if rule in ("np.copy", ".copy", ".flatten"):
            a = self._value(args[0])
            if rule == ".flatten" and len(a.shape) != 1:
                raise Outside("the elements of an array of more axes in a row")
            return a.unnamed()
        if rule in REDUCTIONS:
            return self._reduced(op, rule, dtype)
        if rule == "sum" and len(args) == 1 and len(self._value(args[0]).shape) == 1:
            return self._reduced(op, "np.sum", dtype)
        if rule in ("@", "np.dot"):
            return self._matmul(self._value(args[0]), self._value(args[1]), dtype)
        if rule == "np.outer" and len(args) == 2:
            a, b = map(self._value, args)
            if len(a.shape) != 1 or len(b.shape) != 1:
                raise Outside("an outer product of what is no vector")
            column = remapped(a, (*a.shape, ONE), lambda index: index[:1])
            return self._applied("multiply", [column, b], dtype)
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
        name = self._function(rule, len(args)) or self._unknown(rule or op.form)
        return self._applied(name, [self._value(a) for a in args], dtype)

    def _truths(self, op: Op) -> Array | None:
        """Truth values that a function of NumPy's, or an operator of their bits, gives; None where the operation is another."""
        rule = op.rule or ""
        word = rule.removeprefix("math.").removeprefix("np.")
        if word in KINDS_OF_NUMBERS and len(op.args) == 1 and not op.settings:
            a = self._value(op.args[0])
            return self.builder.elementwise(KINDS_OF_NUMBERS[word], a, dtype=B1)
        if rule in BITS:
            given = [self._value(a) for a in op.args]
            if any(a.dtype != B1 for a in given):
                raise Outside(f"{rule} of what are no truth values")
            return self.builder.elementwise(BITS[rule], *given, dtype=B1)
        if rule in ("np.any", "np.all") and len(op.args) == 1 and not op.settings:
            count = self._counted(op.args[0], rule == "np.any")
            some = node("greater" if rule == "np.any" else "equal", count.number(), const(0.0))
            return of_number(some)
        return None

    def _counted(self, x: Operand, which: bool = True) -> Array:
        """How many of an array's truth values are true, or false, as a float."""
        a = self._value(x)
        if a.dtype != B1 or not a.shape:
            raise Outside("a count of what are no truth values")
        numbers = self._as_numbers(a if which else self._not(a), F8)
        return self._over("np.sum", numbers, range(len(a.shape)), F8)

    def _not(self, a: Array) -> Array:
        """Truth values turned round."""
        return self.builder.elementwise(BITS["~"], a, dtype=B1)

    def _element(self, rule: str, kind: Any) -> str:
        """The dtype of what a rule of `ARRANGED` makes; empty of whole numbers."""
        element = getattr(kind, "dtype", kind)
        dtype = dtype_of(element)
        if not dtype and (element is not types.int64 or rule not in OF_WHOLE):
            raise Outside(f"{rule} gives {kind}, which is no float")
        return dtype

    def _function(self, rule: str, count: int) -> str:
        """The elementwise op of so many operands that a rule's name stands for, or none."""
        function = MATH.get(rule) or (
            getattr(np, rule[3:], None) if rule.startswith("np.") else None
        )
        name = SPECIAL.get(rule) or str(getattr(function, "__name__", ""))
        if isinstance(function, Primitive):
            name = function.name
        known = declared(name) if name in WRITTEN else None
        return "" if known is None or count != known.arity else name

    def _unknown(self, word: str) -> str:
        raise Outside(f"{word} is no function of the form")

    def _applied(self, name: str, arrays: list[Array], dtype: str) -> Array:
        def make(*xs: Expr) -> Expr:
            given = [cast(x, dtype) for x in xs]
            return given[0] if name == "cast" else node(name, *given)

        arrays = [self._as_numbers(a, dtype) if a.dtype == B1 else a for a in arrays]
        return self.builder.elementwise(make, *arrays, dtype=dtype)

    def _as_numbers(self, a: Array, dtype: str) -> Array:
        """Truth values as 1 and 0."""
        one, zero = const(1.0, dtype), const(0.0, dtype)
        return self.builder.elementwise(lambda c: node("where", c, one, zero), a, dtype=dtype)

    def _extent(self, op: Op, rule: str) -> Any:
        a = self._value(op.args[0])
        if rule == ".shape":
            return a.shape[int(op.form.rsplit("[", 1)[1].rstrip("]"))]
        if rule == "len":
            if len(op.args) > 1 or not a.shape:
                raise Outside("the length of what is no array")
            return a.shape[0]
        whole: Any = ONE
        for n in a.shape:
            whole = product(whole, n)
        return whole

    def _asserted(self, op: Op) -> Expr:
        """The condition of an assertion."""
        texts = {f"_{k}": a for k, a in enumerate(op.args)}
        statement = parsed(op.form.format(*texts)).body[0]
        assert isinstance(statement, ast.Assert)
        found = self._logic(statement.test, texts)
        if found.shape:
            raise Outside("an assertion of several truth values")
        return found.number()

    @contextmanager
    def _asking(self, tests: list[Expr], holds: bool = True) -> Iterator[None]:
        """What is read in this context is asked where these conditions hold, or do not."""
        before = self.asked
        self.asked = [*before, *(t if holds else node("logical_not", t) for t in tests)]
        try:
            yield
        finally:
            self.asked = before

    def _is_none(self, e: ast.expr, names: dict[str, Operand]) -> bool:
        """Whether an operand in the text of a condition is None, which its type says."""
        if isinstance(e, ast.Constant):
            return e.value is None
        if not isinstance(e, ast.Name) or e.id not in names:
            raise Outside("a comparison of this kind")
        kind = self.typed.kind(names[e.id])
        if isinstance(kind, types.Optional):
            raise Outside(f"{names[e.id]} may be None")
        return isinstance(kind, types.NoneType) or (
            isinstance(kind, types.Omitted) and kind.value is None
        )

    def _logic(self, e: ast.expr, names: dict[str, Operand]) -> Array:
        """The text of a comparison, or of several joined by words."""
        if isinstance(e, ast.BoolOp):
            word = "logical_and" if isinstance(e.op, ast.And) else "logical_or"
            found = self._logic(e.values[0], names)
            for v in e.values[1:]:
                if not found.shape and self._proved(found.number(), isinstance(e.op, ast.Or)):
                    return found
                if any(isinstance(x, ast.Subscript) for x in ast.walk(v)):
                    self._cut(found.number())  # what it guards may be an index
                with self._asking(
                    [] if found.shape else [found.number()], isinstance(e.op, ast.And)
                ):
                    other = self._logic(v, names)
                found = self.builder.elementwise(
                    lambda a, b: node(word, a, b), found, other, dtype=B1
                )
            return found
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self._not(self._logic(e.operand, names))
        if isinstance(e, ast.Compare) and len(e.ops) > 1:
            ends = [e.left, *e.comparators]
            pairs = zip(ends, e.ops, ends[1:], strict=False)
            each: list[ast.expr] = [ast.Compare(a, [op], [b]) for a, op, b in pairs]
            return self._logic(ast.BoolOp(ast.And(), each), names)
        if isinstance(e, ast.Compare) and len(e.ops) == 1:
            (test,), (right,) = e.ops, e.comparators
            if isinstance(test, ast.Is | ast.IsNot) and self._is_none(right, names):
                alike = self._is_none(e.left, names) == isinstance(test, ast.Is)
                return of_number(const(float(alike), B1))
            if isinstance(test, ast.In | ast.NotIn) and isinstance(right, ast.Tuple):
                some: list[ast.expr] = [ast.Compare(e.left, [ast.Eq()], [x]) for x in right.elts]
                found = self._logic(ast.BoolOp(ast.Or(), some), names)
                return self._not(found) if isinstance(test, ast.NotIn) else found
            word = _TESTS.get(type(test), "")
            if not word:
                raise Outside("a comparison of this kind")
            a, b = (
                self._logic(x, names) if _is_test(x) else self._operand(x, names)
                for x in (e.left, e.comparators[0])
            )
            dtype = F4 if a.dtype == b.dtype == F4 else F8
            a, b = (self._as_numbers(x, dtype) if x.dtype == B1 else x for x in (a, b))
            return self.builder.elementwise(
                lambda x, y: node(word, cast(x, dtype), cast(y, dtype)), a, b, dtype=B1
            )
        if isinstance(e, ast.Name | ast.Subscript):
            found = self._operand(e, names)
            if found.dtype == B1:
                return found
        if isinstance(e, ast.Call) and len(e.args) == 1 and not e.keywords:
            word = ast.unparse(e.func).removeprefix("math.").removeprefix("np.")
            if word in KINDS_OF_NUMBERS:
                a = self._operand(e.args[0], names)
                return self.builder.elementwise(KINDS_OF_NUMBERS[word], a, dtype=B1)
        raise Outside("a condition that is no comparison")

    def _operand(self, e: ast.expr, names: dict[str, Operand]) -> Array:
        """An operand within the text of a condition; a name that is no operand's is that of an array from outside."""
        if isinstance(e, ast.Name):
            return self._value(names.get(e.id, Const(e.id, None)))
        if isinstance(e, ast.Constant) and isinstance(e.value, int | float):
            return of_number(const(float(e.value)))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self._applied("negative", [self._operand(e.operand, names)], F8)
        if isinstance(e, ast.Subscript):
            if isinstance(e.value, ast.Attribute) and e.value.attr == "shape":
                shape = self._operand(e.value.value, names).shape
                k = self._integer(e.slice, names)
                if k.terms or not -len(shape) <= k.const < len(shape):
                    raise Outside("an extent that is not known")
                return of_number(number(shape[k.const]))
            parts = list(e.slice.elts) if isinstance(e.slice, ast.Tuple) else [e.slice]
            found = self._subscript(self._operand(e.value, names), parts, names)
            return found if found.shape else of_number(found.number())
        if isinstance(e, ast.Attribute) and e.attr == "size":
            whole: Any = ONE
            for n in self._operand(e.value, names).shape:
                whole = product(whole, n)
            return of_number(number(whole)) if isinstance(whole, Affine) else whole
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod | ast.FloorDiv):
            return wholes.quotient(
                self,
                isinstance(e.op, ast.Mod),
                self._operand(e.left, names),
                self._operand(e.right, names),
            )
        if isinstance(e, ast.Call) and not e.keywords:
            called = ast.unparse(e.func)
            own = e.func.value if isinstance(e.func, ast.Attribute) else None
            if isinstance(own, ast.Name) and own.id in names and not e.args:  # x.sum()
                called, e = f"np.{called.partition('.')[2]}", ast.Call(e.func, [own], [])
            if len(e.args) == 1 and (called in REDUCTIONS or called in ("len", "np.linalg.norm")):
                a = self._operand(e.args[0], names)
                if not a.shape or a.dtype not in (F8, F4):
                    raise Outside(f"{called} of what is no array of floats")
                if called == "len":
                    return of_number(number(a.shape[0]))
                if called == "np.linalg.norm":
                    return length(self, a)
                return self._over(called, a, range(len(a.shape)), a.dtype)
            name = self._function(called, len(e.args)) or self._unknown(called)
            given = [self._operand(a, names) for a in e.args]
            alike = all(a.dtype == F4 for a in given)
            return self._applied(name, given, F4 if alike else F8)
        word = _BINARY.get(type(e.op)) if isinstance(e, ast.BinOp) else None
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Pow):
            a, b = self._operand(e.left, names), self._operand(e.right, names)
            alike = a.dtype == b.dtype == F4
            if not a.shape and wholes.is_whole(self, a.number()):
                raise Outside("a power of a whole number in a comparison")
            return self._applied("power", [a, b], F4 if alike else F8)
        if word is not None:
            assert isinstance(e, ast.BinOp)
            return self._applied(
                word, [self._operand(e.left, names), self._operand(e.right, names)], F8
            )
        raise Outside("an operand of a comparison that the form does not know")

    def _asks(self, d: Affine) -> bool:
        """Whether d > 0 holds in some iterations only."""
        proves, path = self.builder.order.proves, self.builder.path
        return not proves(d - 1, path) and not proves(d * -1, path)

    def _quotient(self, n: Affine, k: int) -> Affine:
        """n // k as an affine integer; a reader of functions may take sizes apart for it."""
        raise Outside("a quotient of a length")

    def _leaves_if(self, test: Expr, axes: tuple[Range, ...] = ()) -> None:
        """The program does not hold where a condition does; a reader of statements knows how."""
        raise Outside("a condition under which a function raises")

    def _cut(self, test: Expr) -> None:
        """What follows is read where a condition holds only; a reader of loops may cut them there."""

    def _places_only(self) -> bool:
        """Whether what is being read is an index, or a whole number that is read as one and for nothing else."""
        return False

    def _spared(self, test: Expr) -> bool:
        """Whether a loop that decides a condition on which an index depends is not cut there, as the index is a place."""
        return False

    def _made(self, rule: str, args: Sequence[Operand], kind: Any) -> Array:
        """What np.zeros, np.full and their kind make."""
        dtype = dtype_of(kind) or F8
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
        """Sum, mean, maximum or minimum over axes."""
        value = self._value(op.args[0])
        axis = op.settings.get("axis", op.args[1] if len(op.args) == 2 else None)
        if set(op.settings) - {"axis"} or not value.shape or len(op.args) > 2:
            raise Outside(f"{rule} with these settings")
        if value.dtype != dtype:
            raise Outside(f"{rule} into another dtype")
        axes: Sequence[int] = range(len(value.shape))
        if axis is not None:
            k = self._whole(axis)
            if k.terms or not -len(value.shape) <= k.const < len(value.shape):
                raise Outside(f"{rule} over an axis that is not known")
            axes = [k.const % len(value.shape)]
        return self._over(rule, value, axes, dtype)

    def _over(self, rule: str, value: Array, axes: Sequence[int], dtype: str) -> Array:
        """The same of an array and its axes."""
        mode = {"m": "+=", "s": "+="}.get(rule[3], "")
        if rule in ("np.max", "np.amax"):
            mode = "max="
        elif rule in ("np.min", "np.amin"):
            mode = "min="
        found = self.builder.reduced(value, axes, mode, "m" if mode != "+=" else "sum")
        if rule != "np.mean":
            return found.unnamed()
        count: Any = ONE
        for d in axes:
            count = product(count, value.shape[d])
        whole = of_number(number(count)) if isinstance(count, Affine) else count
        return self._applied("divide", [found, whole], dtype)

    def _matmul(self, a: Array, b: Array, dtype: str) -> Array:
        if not a.shape or not b.shape or max(len(a.shape), len(b.shape)) > 2:
            raise Outside("a product of what are no matrices")
        if len(a.shape) == len(b.shape) == 2:
            for n in (*a.shape, b.shape[1]) if not available() else ():
                if not n.terms and n.const > ROWS:
                    raise Outside("a product of large matrices is left to BLAS")
                self.builder.claim(n * -1 + ROWS, "a product of matrices")
        if a.dtype != dtype or b.dtype != dtype:
            raise Outside("a product into another dtype")
        # A factor of a product is read many times: formulas are computed once.
        a, b = (x if x.access is not None else self.builder.kept(x, "t") for x in (a, b))
        found = self.builder.product(a, b)
        return found.unnamed()


_TESTS = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip
_BINARY = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


def dtype_of(kind: Any) -> str:
    if isinstance(kind, types.Array):
        kind = kind.dtype
    if isinstance(kind, types.Boolean):
        return B1
    return {types.float64: F8, types.float32: F4}.get(kind, "")


def _is_test(e: ast.expr) -> bool:
    """Whether a text is that of a truth value."""
    return isinstance(e, ast.Compare | ast.BoolOp) or (
        isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not)
    )


def _of_machine(form: str, dtype: str) -> float:
    """What `np.finfo(...)[k]` is of floats: k is the place of an attribute among Numba's."""
    from numba.np.arraymath import _finfo_supported

    place = form.rpartition("[")[2].rstrip("]")
    if not place.isdigit():
        raise Outside("what np.finfo gives, as a whole")
    machine: Any = np.finfo(np.float64 if dtype == F8 else np.float32)
    return float(getattr(machine, _finfo_supported[int(place)]))


def _unlike(a: Expr, b: Expr) -> Expr:
    """Either of two conditions, not both."""
    either = node("logical_and", a, node("logical_not", b))
    return node("logical_or", either, node("logical_and", node("logical_not", a), b))


def _endless(x: Expr) -> Expr:
    return node("equal", node("absolute", x), const(float("inf"), x.dtype))


KINDS_OF_NUMBERS: dict[str, Callable[[Expr], Expr]] = {
    "isnan": lambda x: node("not_equal", x, x),
    "isinf": _endless,
    "isfinite": lambda x: node("less", node("absolute", x), const(float("inf"), x.dtype)),
}
BITS: dict[str, Callable[..., Expr]] = {
    "&": lambda a, b: node("logical_and", a, b),
    "|": lambda a, b: node("logical_or", a, b),
    "^": _unlike,
    "~": lambda a: node("logical_not", a),
}
"""Operators of bits, of truth values."""


def _strided(k: int, step: int, first: Affine) -> Callable[[Index], Affine]:
    return lambda index: index[k] * step + first


def _fixed(i: Affine) -> Callable[[Index], Affine]:
    return lambda _: i


def _is(e: ast.expr, value: Any) -> bool:
    return isinstance(e, ast.Constant) and e.value is value
