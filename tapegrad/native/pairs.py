"""Complex numbers as pairs of real ones.

Once types are known, every complex name `z` becomes two, `z_re` and `z_im`, numbers or arrays, and every operation on it the few real
operations that it means. All that follows (activity, what is kept, both directions, second derivatives) sees real code, and the
gradient by the pair (∂L/∂a, ∂L/∂b) is what tapegrad calls the gradient by z = a + ib.

Invariant: afterwards no name of the program has a complex type; parameters are pairs, as those that are tuples are several names, and
so are results.
Formulas by polar form (Abramowitz & Stegun, "Handbook of Mathematical Functions" (1964), chapters 3 and 4) with `hypot` and `arctan2`, so
that nothing overflows on the way.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from numba.core import types

from ..core.parsing import parsed
from .inference import is_array
from .lowering import Asked, refuse
from .settling import Parts, Typed
from .tree import TEMP, Const, If, Loop, Node, Op, Operand, Program, Seg, read_counts, segments

Pair = tuple[Operand | None, Operand | None]
"""Real and imaginary part; None stands for zero."""

_DTYPES = frozenset(("complex", "np.complex128"))
_META = frozenset((".shape", ".size", ".ndim", "len"))
_LINEAR = frozenset(
    """np.copy .flatten .T np.transpose np.reshape np.ravel np.sum sum np.mean np.roll np.flip np.diag np.trace
    np.expand_dims .item np.ascontiguousarray""".split()
)
"""Functions that do the same to both parts, of one array."""
_JOINING = frozenset("np.where np.array np.concatenate np.stack np.hstack np.vstack".split())
_MADE = frozenset("np.zeros np.empty np.zeros_like np.empty_like np.ones np.ones_like".split())
_CHOSEN = frozenset(("compare", "bool", "not"))
_ZERO = Const("0.0", 0.0)


def is_complex(kind: Any) -> bool:
    return isinstance(kind.dtype if is_array(kind) else kind, types.Complex)


def real_type(kind: Any) -> Any:
    """The type of one part."""
    return types.Array(types.float64, kind.ndim, kind.layout) if is_array(kind) else types.float64


def dissolve(typed: Typed) -> None:
    """Turn the complex numbers of a settled program into pairs."""
    if any(is_complex(k) for k in typed.types.values()):
        _Dissolver(typed).run()


class _Dissolver:
    def __init__(self, typed: Typed) -> None:
        self.typed = typed
        self.program: Program = typed.program
        self.pairs: dict[str, tuple[str, str]] = {}
        self.ops: list[Op] = []
        self.fresh: set[str] = set()
        """Results of real operations: no name of the user's."""
        self.at: Op
        """The operation that is being written."""

    def run(self) -> None:
        """Replace each complex name of the program by its real and imaginary part."""
        typed, program = self.typed, self.program
        for name, kind in list(typed.types.items()):
            if not is_complex(kind):
                continue
            if getattr(kind, "dtype", kind) != types.complex128:
                raise refuse(
                    program.where, f"{name} is of type {kind}.", "Use complex128 or real numbers."
                )
            part = real_type(kind)
            if name in program.params and is_array(kind):
                part = types.Array(types.float64, kind.ndim, "C")
            self.pairs[name] = (typed.fresh(f"{name}_re", part), typed.fresh(f"{name}_im", part))
            if name in program.several:
                program.several.update(self.pairs[name])
        program.returns_tuple |= any(r in self.pairs for r in program.results)
        program.results = [n for r in program.results for n in self.pairs.get(r, (r,))]
        program.params = [n for p in program.params for n in self.pairs.get(p, (p,))]
        typed.param_parts = [self._parts(p) for p in typed.param_parts]
        self.block(program.body)
        for name in self.pairs:
            del typed.types[name]
        self._clean()

    def _parts(self, parts: Parts) -> Parts:
        if isinstance(parts, list):
            return [self._parts(p) for p in parts]
        return list(self.pairs[parts]) if parts in self.pairs else parts

    def _clean(self) -> None:
        """Parts that nothing reads."""
        while True:
            counts = read_counts(self.program.body, self.program.results)
            removed = 0
            for ops in segments(self.program.body):
                kept = [
                    op
                    for op in ops
                    if not (
                        op.kind in ("pure", "load", "copy")
                        and op.out[0].startswith(TEMP)
                        and not counts.get(op.out[0])
                    )
                ]
                removed += len(ops) - len(kept)
                ops[:] = kept
            if not removed:
                return

    # ------------------------------------------------------------------------------------------------ tree

    def block(self, nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, Seg):
                node.ops = self.line(node.ops)
                continue
            node.head = self.line(node.head)
            self.block(node.body)
            if isinstance(node, If):
                self.block(node.orelse)
            elif isinstance(node, Loop) and node.stop in self.pairs:
                raise AssertionError("flags are no complex numbers")

    def line(self, ops: list[Op]) -> list[Op]:
        outer, self.ops = self.ops, []
        for op in ops:
            if op.kind == "if":
                op.body, op.orelse = self.line(op.body), self.line(op.orelse)
                op.out = tuple(n for out in op.out for n in self.pairs.get(out, (out,)))
                self.ops.append(op)
            elif any(n in self.pairs for n in op.out) or any(self._complex(a) for a in op.args):
                self.at = op
                self.one(op)
            else:
                self.ops.append(op)
        found, self.ops = self.ops, outer
        return found

    def _complex(self, operand: Operand) -> bool:
        kind = self.typed.kind(operand)
        if isinstance(operand, Const):
            return isinstance(operand.value, complex) or (kind is not None and is_complex(kind))
        return operand in self.pairs

    def parts(self, operand: Operand) -> Pair:
        if not self._complex(operand):
            return operand, None
        if isinstance(operand, str):
            return self.pairs[operand]
        value = self.program.scope.get(operand.text, operand.value)
        if isinstance(value, np.ndarray):
            names = [self.typed.fresh(f"{operand.text}_{w}") for w in ("re", "im")]
            self.program.scope |= dict(
                zip(names, (value.real.copy(), value.imag.copy()), strict=True)
            )
            return Const(names[0]), Const(names[1])
        return Const(repr(value.real), value.real), Const(repr(value.imag), value.imag)

    # ----------------------------------------------------------------------------------------- real operations

    def put(self, rule: str, form: str, *args: Operand, ndim: int | None = None) -> str:
        """One real operation; the name of its result."""
        if ndim is None:
            ndim = max(
                (k.ndim for a in args if is_array(k := self.typed.kind(a))),
                default=0,
            )
        kind = types.Array(types.float64, ndim, "C") if ndim else types.float64
        name = self.typed.fresh(f"{TEMP}z{len(self.typed.taken)}", kind)
        self.fresh.add(name)
        self.ops.append(Op("pure", (name,), list(args), form, self.at.where, rule))
        return name

    def call(self, name: str, *args: Operand) -> str:
        places = ", ".join(f"{{{i}}}" for i in range(len(args)))
        return self.put(name, f"{name}({places})", *args)

    def add(self, x: Operand | None, y: Operand | None) -> Operand | None:
        return y if x is None else x if y is None else self.put("+", "({0} + {1})", x, y)

    def minus(self, x: Operand | None, y: Operand | None) -> Operand | None:
        if y is None:
            return x
        return self.neg(y) if x is None else self.put("-", "({0} - {1})", x, y)

    def neg(self, x: Operand | None) -> Operand | None:
        return None if x is None else self.put("neg", "(-{0})", x)

    def times(self, x: Operand | None, y: Operand | None) -> Operand | None:
        return None if x is None or y is None else self.put("*", "({0} * {1})", x, y)

    def over(self, x: Operand | None, y: Operand) -> Operand | None:
        return None if x is None else self.put("/", "({0} / {1})", x, y)

    # -------------------------------------------------------------------------------------- complex operations

    def product(self, x: Pair, y: Pair) -> Pair:
        return (
            self.minus(self.times(x[0], y[0]), self.times(x[1], y[1])),
            self.add(self.times(x[0], y[1]), self.times(x[1], y[0])),
        )

    def quotient(self, x: Pair, y: Pair) -> Pair:
        if y[1] is None:
            assert y[0] is not None
            return self.over(x[0], y[0]), self.over(x[1], y[0])
        size = self.absolute(y)
        c, s = self.over(y[0], size), self.over(y[1], size)
        re, im = self.product(x, (c, self.neg(s)))
        return self.over(re, size), self.over(im, size)

    def absolute(self, x: Pair) -> Operand:
        if x[1] is None:
            return self.call("np.absolute", self.solid(x[0]))
        return self.call("np.hypot", self.solid(x[0]), x[1])

    def angle(self, x: Pair) -> Operand:
        return self.call("np.arctan2", self.solid(x[1]), self.solid(x[0]))

    def solid(self, x: Operand | None) -> Operand:
        return _ZERO if x is None else x

    def polar(self, size: Operand, angle: Operand) -> Pair:
        return (
            self.times(size, self.call("np.cos", angle)),
            self.times(size, self.call("np.sin", angle)),
        )

    def exp(self, x: Pair) -> Pair:
        return self.polar(self.call("np.exp", self.solid(x[0])), self.solid(x[1]))

    def log(self, x: Pair) -> Pair:
        return self.call("np.log", self.absolute(x)), self.angle(x)

    def sqrt(self, x: Pair) -> Pair:
        half = self.put("*", "({0} * {1})", self.angle(x), Const("0.5", 0.5))
        return self.polar(self.call("np.sqrt", self.absolute(x)), half)

    def crossed(self, x: Pair, names: tuple[str, str, str, str], sign: bool) -> Pair:
        """f(a) g(b) and h(a) k(b), for sines and cosines of a + ib."""
        a, b = self.solid(x[0]), self.solid(x[1])
        f, g, h, k = (self.call(f"np.{n}", v) for n, v in zip(names, (a, b, a, b), strict=True))
        im = self.times(h, k)
        return self.times(f, g), self.neg(im) if sign else im

    def sin(self, x: Pair) -> Pair:
        return self.crossed(x, ("sin", "cosh", "cos", "sinh"), False)

    def cos(self, x: Pair) -> Pair:
        return self.crossed(x, ("cos", "cosh", "sin", "sinh"), True)

    def sinh(self, x: Pair) -> Pair:
        return self.crossed(x, ("sinh", "cos", "cosh", "sin"), False)

    def cosh(self, x: Pair) -> Pair:
        return self.crossed(x, ("cosh", "cos", "sinh", "sin"), False)

    def tan(self, x: Pair) -> Pair:
        return self.quotient(self.sin(x), self.cos(x))

    def tanh(self, x: Pair) -> Pair:
        return self.quotient(self.sinh(x), self.cosh(x))

    def square(self, x: Pair) -> Pair:
        return self.product(x, x)

    def reciprocal(self, x: Pair) -> Pair:
        return self.quotient((Const("1.0", 1.0), None), x)

    def power(self, x: Pair, exponent: Operand) -> Pair:
        n = exponent.value if isinstance(exponent, Const) else None
        if type(n) is int and 0 < abs(n) <= 64:
            result: Pair | None = None
            factor, left = x, abs(n)
            while left:
                if left % 2:
                    result = factor if result is None else self.product(result, factor)
                left //= 2
                if left:
                    factor = self.square(factor)
            assert result is not None
            return result if n > 0 else self.reciprocal(result)
        return self.exp(self.product(self.parts(exponent), self.log(x)))

    # ------------------------------------------------------------------------------------------- one operation

    def one(self, op: Op) -> None:
        """Rewrite one operation on complex numbers as operations on parts."""
        if op.kind in ("load", "store", "acc"):
            self.element(op)
            return
        if op.kind == "copy":
            self.bind(op, self.parts(op.args[0]), alias=True)
            return
        if op.kind != "pure" or not op.out:
            raise self.refused(op)
        rule = (op.rule or "").replace("cmath.", "np.")
        out = op.out[0]
        if out not in self.pairs:
            self.real_result(op, rule)
            return
        found = self.value(op, rule)
        if found is None:
            raise self.refused(op)
        self.bind(op, found)

    def refused(self, op: Op) -> Exception:
        asked = Asked()
        if asked.add(op):
            for other in (o for ops in segments(self.program.body) for o in ops):
                if (other.rule or "").startswith("np.linalg."):
                    asked.add(
                        other
                    )  # at once, since each request is another reading of the function
            return asked.request()
        return refuse(
            op.where,
            f"{op.rule or op.kind} of complex numbers has no derivative rule.",
            "Write it with arithmetic, abs, real, imag, conj, exp, log, sqrt, sin and cos, as a loop where need be.",
        )

    def element(self, op: Op) -> None:
        """Rewrite a load, store or update of a complex array: one for each part."""
        for k in (0, 1):
            args = list(op.args)
            base = self.parts(op.args[0])[k]
            assert base is not None
            args[0] = base
            form, settings = op.form, dict(op.settings)
            out: tuple[str, ...] = ()
            if op.kind == "load":
                out = (self.pairs[op.out[0]][k],)
            else:
                value = self.parts(op.args[1])[k]
                if value is None and op.kind == "acc":
                    continue
                args[1] = self.solid(value)
            self.ops.append(
                Op(op.kind, out, args, form, op.where, op.rule, settings, op.index, op.items)
            )

    def bind(self, op: Op, pair: Pair, alias: bool = False) -> None:
        """Give the result its parts. An array's are memory of its own, but where a name is bound to another one's."""
        re, im = self.pairs[op.out[0]]
        array = is_array(self.typed.types[op.out[0]])
        last: Operand = self.solid(pair[0] if pair[0] is not None else pair[1])
        # Both are read before either is bound: z = complex(z.imag, z.real).
        held: list[Operand] = []
        for value in pair:
            if value is None and array:
                value = self.put("np.zeros_like", "np.zeros_like({0})", last)
            elif array and not alias and value not in self.fresh:
                zeros = self.put("np.zeros_like", "np.zeros_like({0})", last)
                value = self.put("+", "({0} + {1})", self.solid(value), zeros)
            held.append(self.solid(value))
        if isinstance(held[1], str) and held[1] == re:
            spare = self.typed.fresh(f"{TEMP}z{len(self.typed.taken)}", self.typed.types[re])
            self.ops.append(Op("copy", (spare,), [held[1]], "{0}", op.where))
            held[1] = spare
        for name, value in zip((re, im), held, strict=True):
            self.ops.append(Op("copy", (name,), [value], "{0}", op.where))

    def real_result(self, op: Op, rule: str) -> None:
        """Operations from complex to real numbers."""
        x = self.parts(op.args[0])
        if rule in (".real", "np.real", ".imag", "np.imag"):
            value = x[0] if rule.endswith("real") else x[1]
            self.ops.append(Op("copy", op.out, [self.solid(value)], "{0}", op.where))
            return
        if rule in ("abs", "np.abs", "np.absolute"):
            self.ops.append(Op("copy", op.out, [self.absolute(x)], "{0}", op.where))
            return
        if rule in ("np.angle", "np.phase") and len(op.args) == 1:
            self.ops.append(Op("copy", op.out, [self.angle(x)], "{0}", op.where))
            return
        if rule in _META or rule == ".dtype":
            op.args = [self.solid(self.parts(a)[0]) for a in op.args]
            if rule == ".dtype":
                self.typed.types[op.out[0]] = types.DType(types.float64)
            self.ops.append(op)
            return
        if rule in _CHOSEN:
            self.ops.append(self.chosen(op))
            return
        raise self.refused(op)

    def chosen(self, op: Op) -> Op:
        """A condition, which has no derivative: complex numbers put together again where they are compared."""
        args: list[Operand] = []
        names: dict[str, tuple[str, ...]] = {}
        arrays = {f"p_{i}" for i, a in enumerate(op.args) if is_array(self.typed.kind(a))}
        refused = self.refused
        for i, a in enumerate(op.args):
            found = self.parts(a)
            if found[1] is None:
                args.append(a)
                names[f"p_{i}"] = (f"q_{len(args) - 1}",)
            else:
                args += [self.solid(found[0]), found[1]]
                names[f"p_{i}"] = (f"q_{len(args) - 2}", f"q_{len(args) - 1}")
        tree = parsed(op.form.format(*names), mode="eval")

        class Join(ast.NodeTransformer):
            def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
                found = names.get(getattr(node.value, "id", ""), ())
                node.slice = self.visit(node.slice)
                if len(found) < 2:
                    node.value = self.visit(node.value)
                    return node
                parts = [ast.Subscript(ast.Name(n), node.slice, node.ctx) for n in found]
                return ast.Call(ast.Name("complex"), parts, [])  # type: ignore[arg-type]

            def visit_Call(self, node: ast.Call) -> ast.AST:
                """abs and len of a name by its parts; what else is called takes numbers put together."""
                called, first = ast.unparse(node.func), node.args[0] if node.args else None
                found = names.get(getattr(first, "id", ""), ())
                if called in ("abs", "np.abs", "np.absolute") and len(found) > 1:
                    hypot = parsed("np.hypot", mode="eval").body
                    return ast.Call(hypot, [ast.Name(n) for n in found], [])
                if called == "len" and len(found) > 1:
                    return ast.Call(node.func, [ast.Name(found[0])], [])
                return self.generic_visit(node)

            def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
                found = names.get(getattr(node.value, "id", ""), ())
                node.value = ast.Name(found[0]) if found else self.visit(node.value)
                return node

            def visit_Name(self, node: ast.Name) -> ast.AST:
                found = names.get(node.id, ())
                if len(found) < 2:
                    return ast.Name(found[0]) if found else node
                if node.id in arrays:
                    raise refused(op)
                return ast.Call(ast.Name("complex"), [ast.Name(n) for n in found], [])

        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr not in ("size", "ndim", "shape"):
                owner = getattr(node.value, "id", "")
                if len(names.get(owner, ())) > 1:
                    raise self.refused(op)
        text = ast.unparse(Join().visit(tree)).replace("{", "{{").replace("}", "}}")
        for i in reversed(range(len(args))):
            text = text.replace(f"q_{i}", f"{{{i}}}")
        return Op(op.kind, op.out, args, f"({text})", op.where, op.rule)

    def value(self, op: Op, rule: str) -> Pair | None:
        """The parts of a complex result."""
        if rule in _MADE:
            return self.made(op, rule)
        if rule in ("complex", "np.complex128"):
            if len(op.args) == 1:
                return self.parts(op.args[0])
            x, y = map(self.parts, op.args)
            return self.minus(x[0], y[1]), self.add(x[1], y[0])
        if rule == "type":
            return self.parts(op.args[0])
        if rule in _LINEAR or (rule in _JOINING and not op.settings):
            return self.same(op, rule)
        pairs = [self.parts(a) for a in op.args]
        if rule in ("+", "-", "np.add", "np.subtract") and len(pairs) == 2:
            combine = self.add if rule in ("+", "np.add") else self.minus
            return combine(pairs[0][0], pairs[1][0]), combine(pairs[0][1], pairs[1][1])
        if rule in ("*", "np.multiply"):
            return self.product(pairs[0], pairs[1])
        if rule in ("/", "np.divide"):
            return self.quotient(pairs[0], pairs[1])
        if rule in ("**", "np.power", "pow"):
            return self.power(pairs[0], op.args[1])
        if rule in ("neg", "np.negative"):
            return self.neg(pairs[0][0]), self.neg(pairs[0][1])
        if rule == "np.positive":
            return pairs[0]
        if rule in ("np.conj", "np.conjugate"):
            return pairs[0][0], self.neg(pairs[0][1])
        if rule in ("@", "np.dot", "np.vdot") and len(pairs) == 2:
            return self.dots(op, pairs, rule)
        method = rule.removeprefix("np.")
        if rule.startswith("np.") and method in _FUNCTIONS and len(pairs) == 1:
            return getattr(self, method)(pairs[0])  # type: ignore[no-any-return]
        return None

    def made(self, op: Op, rule: str) -> Pair:
        found = []
        kind = self.typed.types[op.out[0]]
        for form, name in ((op.form, rule), (op.form.replace("np.ones", "np.zeros"), "np.zeros")):
            args: list[Operand] = []
            for a in op.args:
                if isinstance(a, Const) and a.text in _DTYPES:
                    a = Const("np.float64", np.float64)
                args.append(self.solid(self.parts(a)[0]))
            word = name if "like" not in rule else f"{name.removesuffix('_like')}_like"
            found.append(self.put(word, form, *args, ndim=kind.ndim))
        return found[0], found[1]

    def same(self, op: Op, rule: str) -> Pair:
        """The same function of both parts."""
        kind = self.typed.types[op.out[0]]
        ndim = kind.ndim if is_array(kind) else 0
        found = []
        for k in (0, 1):
            args: list[Operand] = []
            for i, a in enumerate(op.args):
                value = self.parts(a)[k]
                whole = (rule in _LINEAR and i > 0) or (rule == "np.where" and i == 0)
                if value is None and whole:
                    value = a
                elif (
                    value is None
                    and self.typed.kind(a) is not None
                    and is_array(self.typed.kind(a))
                ):
                    value = self.put("np.zeros_like", "np.zeros_like({0})", a)
                args.append(self.solid(value))
            name = self.put(rule, op.form, *args, ndim=ndim)
            self.ops[-1].settings = op.settings
            if is_array(kind):
                self.typed.types[name] = real_type(kind)
            found.append(name)
        return found[0], found[1]

    def dots(self, op: Op, pairs: list[Pair], rule: str) -> Pair:
        kind = self.typed.types[op.out[0]]
        ndim = kind.ndim if is_array(kind) else 0

        def dot(x: Operand | None, y: Operand | None) -> Operand | None:
            return None if x is None or y is None else self.put(rule, op.form, x, y, ndim=ndim)

        x, y = pairs
        if rule == "np.vdot":
            x = x[0], self.neg(x[1])
        return (
            self.minus(dot(x[0], y[0]), dot(x[1], y[1])),
            self.add(dot(x[0], y[1]), dot(x[1], y[0])),
        )


_FUNCTIONS = frozenset("exp log sqrt sin cos tan sinh cosh tanh square reciprocal".split())
