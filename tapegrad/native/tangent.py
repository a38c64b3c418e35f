"""The tangent: plain Python that carries derivatives along with a program.

Beside each variable `x` that varies with the differentiated arguments runs `x_dot`, bound right before or after it; an array's is an
array of its shape, and shares memory where the array does; for several directions at once there are as many of them, beside one
run of the program. There is nothing to keep and nothing to turn around. The same pass over a
generated adjoint gives second derivatives, forward over reverse: the adjoint is ordinary code, whose stacks get tangents as any
array does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import chunks, folds, repeats, runtime
from .flow import CUSTOM, Flow
from .lowering import refuse
from .rules import PLACES, names_in, renamed
from .settling import Typed
from .tree import If, Lines, Loop, Node, Op, Operand, Seg, flat, plain, statement, target, tidy


@dataclass(slots=True)
class Tangent:
    """A generated tangent: its source, its scope, which parameters get a tangent, and which results have one.

    With several directions, all tangents of one come before those of the next, among parameters as among results.
    """

    source: str
    scope: dict[str, Any]
    params: list[str]
    dotted: list[str]
    results: list[str]
    varying: list[str]
    mutated: list[str]


def generate(
    typed: Typed, wanted: set[str], width: int = 1, options: dict[str, Any] | None = None
) -> Tangent:
    """The tangent by the parameters `wanted` along `width` directions: a function of parameters and their tangents, which returns the
    results and their tangents.

    With `options`, as those of `adjoint.generate`, its parallel loops may use threads.
    """
    return _Generator(typed, wanted, width, options).generate()


class _Generator:
    def __init__(
        self, typed: Typed, wanted: set[str], width: int, options: dict[str, Any] | None
    ) -> None:
        """Prepare the tangent of a typed program by `wanted` parameters, for `width` directions."""
        if options is not None:
            folds.split(typed)
        self.width = width
        self.direction = 0
        """The one whose lines are being written."""
        self.typed = typed
        self.program = typed.program
        self.flow = Flow(typed, wanted, forward=True)
        self.scope = {**runtime.SCOPE, **self.program.scope}
        self.plans = {} if options is None else chunks.find(self.program.body, self.flow)
        self.part_decorator = chunks.decorator(options or {})
        self.parts: list[tuple[str, list[str]]] = []
        """Functions of parallel loops, each with its decorator."""
        self.dots: dict[tuple[str, int], str] = {}
        self.cotangents: dict[int, str] = {}
        """Of operations with a custom rule, the name of what the rule gave."""
        self.partials: dict[str, str] = {}
        """Of the operation at hand, the names of partial derivatives that stand before the tangents of all directions."""
        self.lines = Lines()

    def generate(self) -> Tangent:
        """The tangent program as source, with what its parameters and results are called."""
        program, flow, lines = self.program, self.flow, self.lines
        dotted = [p for p in program.params if flow.varies(p)]
        results = list(dict.fromkeys(program.results))
        varying = [r for r in results if flow.varies(r)]
        dots = [self.dot(p) for _ in self.directions() for p in dotted]
        lines.open(f"def {program.name}_tangent({', '.join([*program.params, *dots])}):")
        names = {n for op in _all(program.body) for n in op.out}
        self.declare(names - set(program.params), lines)
        self.block(program.body)
        outs = [*program.results, *(self.dot(r) for _ in self.directions() for r in varying)]
        lines.put(f"return ({', '.join(outs)},)")
        texts = [lines, *([decorator, *text] for decorator, text in self.parts)]
        return Tangent(
            source="\n\n".join("\n".join(text) + "\n" for text in texts),
            scope=self.scope,
            params=program.params,
            dotted=dotted,
            results=program.results,
            varying=varying,
            mutated=flow.mutated,
        )

    def declare(self, names: set[str], lines: Lines) -> None:
        """Tangents that may be read where no line bound them."""
        for name in sorted(names):
            if self.flow.varies(name) and not self.flow.shadows(name):
                lines.put(*(f"{self.dot(name)} = 0.0" for _ in self.directions()))

    def unique(self, name: str) -> str:
        return self.typed.fresh(name)

    def directions(self) -> Iterator[int]:
        """Each direction in turn, for which lines are written then."""
        for direction in range(self.width):
            self.direction = direction
            yield direction
        self.direction = 0

    def dot(self, name: str) -> str:
        """The tangent of a variable along the direction at hand."""
        key = name, self.direction
        if key not in self.dots:
            self.dots[key] = self.typed.fresh(f"{name}_dot")
        return self.dots[key]

    def dot_of(self, operand: Operand) -> str:
        """The tangent of an operand, zero where it does not vary."""
        if isinstance(operand, str) and self.flow.varies(operand):
            return self.dot(operand)
        if self.flow.array(operand):
            return f"np.zeros_like({plain(operand)})"
        return "0.0"

    # ----------------------------------------------------------------------------------------------- tree

    def block(self, nodes: list[Node]) -> None:
        """Write nodes with their tangents."""
        lines = self.lines
        mark = len(lines)
        for node in nodes:
            if isinstance(node, Seg):
                self.ops(node.ops)
            elif isinstance(node, If):
                self.passive(node.head)
                lines.open(f"if {plain(node.condition)}:")
                self.block(node.body)
                lines.depth -= 1
                if node.orelse:
                    lines.open("else:")
                    self.block(node.orelse)
                    lines.depth -= 1
            else:
                self.loop(node)
        if len(lines) == mark:
            lines.put("pass")

    def run(self, nodes: list[Node], lines: Lines) -> None:
        """A block in another place."""
        before = self.lines, self.cotangents
        self.lines, self.cotangents = lines, {}
        self.block(nodes)
        self.lines, self.cotangents = before

    def loop(self, node: Loop) -> None:
        found = self.plans.get(id(node))
        if isinstance(found, chunks.Plan):
            chunks.Pushed(self, node, found).push()
        else:
            self.loop_of_one_thread(node)

    def loop_of_one_thread(self, node: Loop) -> None:
        lines = self.lines
        if node.variable:
            self.passive(node.head)
            lines.open(f"for {node.variable} in range({', '.join(plain(b) for b in node.bounds)}):")
        else:
            lines.open("while True:")
            self.passive(node.head)
            lines.put(f"if not {plain(node.condition)}:", "    break")
        self.block(node.body)
        if node.stop:
            lines.put(f"if {node.stop}:", "    break")
        lines.depth -= 1

    def passive(self, ops: list[Op]) -> None:
        for op in ops:
            self.lines.put(tidy(statement(op)))

    def ops(self, ops: list[Op]) -> None:
        lines = self.lines
        for op in ops:
            if op.kind == "if":
                for head, block in ((f"if {plain(op.args[0])}:", op.body), ("else:", op.orelse)):
                    lines.open(head)
                    mark = len(lines)
                    self.ops(block)
                    lines.close(mark)
            else:
                self.one(op)

    # ---------------------------------------------------------------------------------------- operations

    def one(self, op: Op) -> None:
        """Write one operation with its tangents, one for each direction."""
        lines, flow = self.lines, self.flow
        if op.kind in ("store", "acc"):
            self.store(op)
            return
        if op.kind == "effect":
            self.effect(op)
            return
        out = op.out[0] if op.out else ""
        if not out or not flow.varies(out):
            lines.put(tidy(statement(op)))
            return
        if op.rule == "[]":
            lines.put(f"{out} = []", *(f"{self.dot(out)} = []" for _ in self.directions()))
            return
        if op.rule == ".pop":
            source = str(op.args[0])
            lines.put(f"{out} = {source}.pop()")
            for _ in self.directions():
                lines.put(f"{self.dot(out)} = {self.dot(source)}.pop()")
            return
        if flow.view(op):
            self.view(op, out)
            return
        value = out
        if out in op.args:
            value = self.typed.fresh(f"{out}_new")
        lines.put(tidy(statement(op, plain, lambda n: value)))
        self.partials.clear()
        for _ in self.directions():
            self.bind(op, out, value)
        if value != out:
            lines.put(f"{out} = {value}")

    def view(self, op: Op, out: str) -> None:
        """The tangent of a view is the same view of the tangent."""
        lines, viewed = self.lines, op.args[0]
        if isinstance(viewed, str):
            for _ in self.directions():
                lines.put(tidy(f"{self.dot(out)} = {self.shadowed(op, viewed)}"))
            lines.put(tidy(statement(op)))
        else:
            lines.put(tidy(statement(op)))
            for _ in self.directions():
                lines.put(f"{self.dot(out)} = np.zeros_like({out})")

    def bind(self, op: Op, out: str, value: str) -> None:
        """The tangent of a result, along the direction at hand."""
        lines, dot = self.lines, self.dot(out)
        text = self.tangent(op, value)
        if self.flow.array(out):
            if text is None:
                lines.put(f"{dot} = np.zeros_like({value})")
            elif self.exact(op):
                lines.put(tidy(f"{dot} = {text}"))
            else:
                spare = self.typed.fresh(f"{out}_dot")
                lines.put(f"{spare} = np.zeros_like({value})")
                lines.put(tidy(f"accumulate({spare}, {text})"), f"{dot} = {spare}")
        else:
            lines.put(tidy(f"{dot} = {text or '0.0'}"))

    def shadowed(self, op: Op, source: str) -> str:
        """The same view, of the tangent."""
        bar = self.dot(source)

        def names(operand: Operand) -> str:
            return bar if operand == source else plain(operand)

        return statement(op, names, lambda n: "_").partition(" = ")[2]

    def exact(self, op: Op) -> bool:
        """Whether a tangent's text has the result's shape and is new memory."""
        if op.kind == "load":
            return True
        found = self.flow.derivatives[id(op)]
        if found is None or found.spreads or found is CUSTOM:
            return False
        return found.push not in ("dx",)

    def tangent(self, op: Op, value: str) -> str | None:
        """The text of a result's tangent; None where it is zero."""
        flow = self.flow
        if op.kind == "load":
            base = str(op.args[0])
            if not flow.varies(base):
                return None
            return target(op, lambda a: self.dot(base) if a == base else plain(a))
        if op.kind == "impure":
            return None
        found = flow.derivatives[id(op)]
        if found is None:
            return None
        if found is CUSTOM:
            return self.custom(op, value)
        if found.push in ("same", "array"):
            texts = [self.dot_of(a) for a in op.args]
            return op.form.format(*texts)
        words = {"out": value}
        for i, a in enumerate(op.args):
            words[PLACES[i]] = plain(a)
            if flow.varies(a) and flow.real(a):
                words[f"d{PLACES[i]}"] = self.dot(str(a))
        terms = []
        for term in found.push.split("\0"):
            if term and all(
                n in words for n in names_in(term) if n.startswith("d") and n[1:] in PLACES
            ):
                terms.append(self.term(term, words, flow.array(op.out[0])))
        return " + ".join(f"({t})" for t in terms) or None

    def term(self, term: str, words: dict[str, str], of_arrays: bool) -> str:
        """A term of a tangent; its partial derivative is computed once for all directions, and what stands in it several times once."""
        factored = repeats.factored(term) if self.width > 1 else None
        if factored is None:
            return renamed(term, words)
        text, partial = factored
        if term not in self.partials:
            partial = renamed(partial, words)
            if of_arrays:
                before, partial = repeats.parted(partial, self.typed.fresh)
                self.lines.put(*map(tidy, before))
            self.partials[term] = self.typed.fresh("partial")
            self.lines.put(tidy(f"{self.partials[term]} = {partial}"))
        return renamed(text, {**words, "partial": self.partials[term]})

    def custom(self, op: Op, value: str) -> str:
        """Along one direction, from the user's cotangents, which are the same for all."""
        if self.flow.array(op.out[0]):
            raise refuse(
                op.where,
                "Forward mode of a custom rule with an array result is not known.",
                "Use reverse mode, or return numbers.",
            )
        if id(op) not in self.cotangents:
            answer = self.cotangents[id(op)] = self.typed.fresh("cotangents")
            given = ", ".join(plain(a) for a in op.args)
            self.lines.put(f"{answer} = {op.settings['vjp'].text}(1.0, {value}, {given})")  # type: ignore[union-attr]
        answer = self.cotangents[id(op)]
        terms = []
        for i, a in enumerate(op.args):
            if self.flow.varies(a) and self.flow.real(a):
                term = f"{answer}[{i}] * {self.dot(str(a))}"
                terms.append(f"np.sum({term})" if self.flow.array(a) else term)
        return " + ".join(terms) or "0.0"

    def store(self, op: Op) -> None:
        flow, lines = self.flow, self.lines
        base, value = str(op.args[0]), op.args[1]
        if flow.varies(base):
            moves = flow.varies(value) and flow.real(value)
            for _ in self.directions():
                place = target(op, lambda a: self.dot(base) if a == base else plain(a))
                if op.kind == "store":
                    lines.put(tidy(f"{place} = {self.dot(str(value)) if moves else '0.0'}"))
                elif moves:
                    lines.put(tidy(f"{place} {op.form}= {self.dot(str(value))}"))
        lines.put(tidy(statement(op)))

    def effect(self, op: Op) -> None:
        """Calls of the runtime that write to an argument: the same on the tangents."""
        self.lines.put(tidy(statement(op)))
        if not any(self.flow.varies(a) for a in op.variables):
            return
        for _ in self.directions():
            texts = []
            for a in op.args:
                vary = isinstance(a, str) and (self.flow.real(a) or self.flow.shadows(a))
                texts.append(self.dot_of(a) if vary else plain(a))
            self.lines.put(tidy(op.form.format(*texts)))


def _all(nodes: list[Node]) -> list[Op]:
    found: list[Op] = []
    for node in nodes:
        if isinstance(node, Seg):
            found += flat(node.ops)
        else:
            found += flat(node.head)
            found += _all(node.body)
            if isinstance(node, If):
                found += _all(node.orelse)
    return found
