"""The program tree: what a Numba function is while its derivative is made.

Straight lines of operations (`Seg`), branches (`If`) and loops (`Loop`). An operation (`Op`) reads operands and binds names; an
operand is a variable's name (`str`) or a `Const`. Every operation carries the text that evaluates it, as a form with numbered
places, so that any pass can print it with the names it likes.

Invariant: `break`, `continue`, `return` are gone (lowering turns them into flags and nested branches), a temporary (its name
starts with `TEMP`) that is not marked `several` is bound once, and an operation has no effect but on `out` and, for `store`
and `acc`, on the memory behind its first operand.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core.parsing import parsed

TEMP = "_v"
"""What the names of temporaries start with. No user's name does, for those are renamed, nor one made of a user's by adding `_2`: a
prefix that ends in an underscore would be met by `v_2`, the second `v`."""


@dataclass(frozen=True, slots=True)
class Const:
    """A constant operand: how it is written, and its value where that is a plain number."""

    text: str
    value: Any = None


Operand = str | Const

INDICES = "indices"
"""The rule of an operation that computes an index array: its form is any arithmetic on arrays of whole numbers."""
IN_PLACE = Const("in place", True)
"""The setting "written" of the operation of `x *= y`, whose result is stored to its first operand: the store reads memory while it
writes there, and Numba's order is its own where the other operand is a part of the same array."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the user's source, for errors."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f'File "{self.file}", line {self.line}: {self.text}'


@dataclass(slots=True)
class Called:
    """A call of a function of NumPy's that can be written out (see `spelled`)."""

    key: Any
    """Which call of the program it is, however often the program is lowered."""
    names: tuple[str, ...]
    """The parameter that each operand is for; the parts of one tuple have the same."""
    kinds: dict[str, Any] = field(default_factory=dict)
    """Types by parameter, constants as literal types; known once the program is settled."""


@dataclass(slots=True, eq=False)
class Op:
    """One operation.

    kind: pure (out = form), copy, load (out = base[index]), store (base[index] = value), acc (base[index] += value),
    aug (name op= value), item (tuple element), tuple, impure (evaluated once, never again), verbatim (a statement such as
    raise), if (a small branch of scalars: `body`, `orelse`).
    Operands of store and acc are base, value, then those of the index; of load, base, then those of the index.
    """

    kind: str
    out: tuple[str, ...]
    args: list[Operand]
    form: str
    where: Where
    rule: str | None = None
    settings: dict[str, Operand] = field(default_factory=dict)
    index: str = ""
    items: tuple[str, ...] = ()
    body: list[Op] = field(default_factory=list)
    orelse: list[Op] = field(default_factory=list)
    called: Called | None = None

    @property
    def variables(self) -> list[str]:
        return [a for a in self.args if isinstance(a, str)]

    def index_operands(self) -> list[Operand]:
        return self.args[1:] if self.kind == "load" else self.args[2:]


@dataclass(slots=True, eq=False)
class Seg:
    ops: list[Op] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class If:
    """`head` computes the condition; nothing else reads what it binds."""

    head: list[Op]
    condition: Operand
    body: list[Node]
    orelse: list[Node]


@dataclass(slots=True, eq=False)
class Loop:
    """`for variable in range(*bounds)` where there is a variable, else `while condition`; leaves after a pass that sets `stop`.

    With `snapshots`, the reverse runs passes again from so many snapshots instead of keeping what each of them overwrites. Over
    `prange` it is `parallel`, where the user asked for threads.
    """

    head: list[Op]
    body: list[Node]
    variable: str = ""
    bounds: tuple[Operand, Operand, Operand] = (Const("0", 0), Const("0", 0), Const("1", 1))
    condition: Operand = Const("True", True)
    stop: str = ""
    snapshots: int = 0
    parallel: bool = False
    where: Where | None = None


Node = Seg | If | Loop


@dataclass(slots=True)
class Program:
    """A lowered function: names of its parameters and results, its tree, and what its globals are."""

    name: str
    params: list[str]
    results: list[str]
    returns_tuple: bool
    body: list[Node]
    scope: dict[str, Any]
    where: Where
    several: set[str]
    customs: dict[str, Any] = field(default_factory=dict)
    """Functions with a custom rule, by the names that the scope has for them."""
    lists: bool = False
    """Whether it has arrays of float64 for lists of numbers."""
    uniform: bool = False
    """Whether each name has one type, that of what generated code keeps of it; type inference tells."""


def flat(ops: Iterable[Op]) -> Iterator[Op]:
    """Operations and those inside small branches."""
    for op in ops:
        yield op
        if op.kind == "if":
            yield from flat(op.body)
            yield from flat(op.orelse)


def segments(nodes: Iterable[Node]) -> Iterator[list[Op]]:
    """Every list of operations of a tree, heads included."""
    for node in nodes:
        if isinstance(node, Seg):
            yield node.ops
        else:
            yield node.head
            yield from segments(node.body)
            if isinstance(node, If):
                yield from segments(node.orelse)


def operations(nodes: Iterable[Node]) -> Iterator[Op]:
    for ops in segments(nodes):
        yield from flat(ops)


def uses(op: Op) -> list[str]:
    """Names whose value on entry an operation may read."""
    if op.kind != "if":
        return op.variables
    read = op.variables + exposed(op.body) + exposed(op.orelse)
    both = {n for o in op.body for n in o.out} & {n for o in op.orelse for n in o.out}
    return list(dict.fromkeys([*read, *(n for n in op.out if n not in both)]))


def exposed(ops: Iterable[Op]) -> list[str]:
    """Names that a straight line reads before it binds them."""
    bound: set[str] = set()
    read: dict[str, None] = {}
    for op in ops:
        read.update((n, None) for n in uses(op) if n not in bound)
        bound.update(op.out)
    return list(read)


def entering(nodes: Iterable[Node]) -> tuple[set[str], set[str]]:
    """Names that a block may read before it binds them, and names that it binds on every way through."""
    read: set[str] = set()
    certain: set[str] = set()

    def reads(names: Iterable[Any]) -> None:
        read.update(n for n in names if isinstance(n, str) and n and n not in certain)

    for node in nodes:
        if isinstance(node, Seg):
            reads(exposed(node.ops))
            certain |= {n for op in node.ops for n in op.out}
            continue
        if isinstance(node, If) or not node.variable:
            reads(exposed(node.head))
            certain |= bound(node.head)
            reads([node.condition])
        else:
            reads(exposed(node.head))
            reads(set(map(str, [b for b in node.bounds if isinstance(b, str)])) - bound(node.head))
        inside, always = entering(node.body)
        if isinstance(node, If):
            other, also = entering(node.orelse)
            reads(inside | other)
            certain |= always & also
        else:
            reads(inside - {node.variable})
            reads([node.stop] if node.stop not in always else [])
    return read, certain


def bound(ops: Iterable[Op]) -> set[str]:
    return {n for op in flat(ops) for n in op.out}


# ---------------------------------------------------------------------------------------------- printing

Names = Callable[[Operand], str]


def plain(operand: Operand) -> str:
    return operand if isinstance(operand, str) else operand.text


def target(op: Op, names: Names = plain) -> str:
    """`base[index]` of a load, store or acc; the value that is stored is not asked for."""
    texts = ["" if i == 1 and op.kind != "load" else names(a) for i, a in enumerate(op.args)]
    return f"{texts[0]}[{op.index.format(*texts)}]"


def is_group(op: Op) -> bool:
    """Whether an index is one tuple, `x[place]`: what is only an expression in brackets has no comma at its end."""
    return len(op.items) == 1 and op.index.startswith("(") and op.index.endswith(",)")


def expression(op: Op, names: Names = plain) -> str:
    """The text that evaluates an operation which binds one name."""
    if op.kind == "load":
        return target(op, names)
    return op.form.format(*(names(a) for a in op.args))


def statement(op: Op, names: Names = plain, bind: Names = plain) -> str:
    """An operation other than a small branch, as one line of Python."""
    if op.kind == "store":
        return f"{target(op, names)} = {names(op.args[1])}"
    if op.kind == "acc":
        return f"{target(op, names)} {op.form}= {names(op.args[1])}"
    texts = [names(a) for a in op.args]
    if op.kind == "aug":
        return f"{bind(op.out[0])} {op.form}= {texts[1]}"
    if op.kind == "verbatim" or not op.out:
        return op.form.format(*texts)
    return f"{', '.join(bind(n) for n in op.out)} = {expression(op, names)}"


def tidy(text: str) -> str:
    """The same statement with no more parentheses than it needs."""
    return ast.unparse(parsed(text))


class Lines(list[str]):
    """Generated source, line by line, with the current indentation."""

    def __init__(self, depth: int = 0) -> None:
        super().__init__()
        self.depth = depth

    def put(self, *lines: str) -> None:
        self.extend("    " * self.depth + line for line in lines)

    def open(self, line: str) -> None:
        self.put(line)
        self.depth += 1

    def close(self, mark: int) -> None:
        """End a suite that began after `mark` lines; an empty one gets its `pass`."""
        if len(self) == mark:
            self.put("pass")
        self.depth -= 1


def inlined(ops: list[Op], counts: dict[str, int], keep: set[str]) -> Iterator[tuple[Op, Names]]:
    """Operations to print, with names that stand for a temporary by its whole expression where it is used just once.

    `counts` says how often a name is read in the whole program; names in `keep` are bound as they are.
    """
    pending: dict[str, str] = {}
    behind: dict[str, set[str]] = {}

    for i, op in enumerate(ops):
        texts: dict[str, str] = {}

        def names(operand: Operand, texts: dict[str, str] = texts) -> str:
            # An expression stands in one operation only, but there it may be asked for twice.
            if isinstance(operand, Const):
                return operand.text
            if operand not in texts:
                texts[operand] = pending.pop(operand, operand)
            return texts[operand]

        name = op.out[0] if len(op.out) == 1 else ""
        single = name.startswith(TEMP) and counts.get(name) == 1 and name not in keep
        if single and op.kind in ("pure", "load", "copy"):
            read = {v for a in op.variables for v in behind.get(a, {a})}
            if _consumed(ops, i, name, read):
                behind[name] = read
                pending[name] = f"({expression(op, names)})"
                continue
        yield op, names


def _consumed(ops: list[Op], i: int, name: str, read: set[str]) -> bool:
    """Whether a temporary is read by a later operation of this line, while what it is made of is still the same."""
    for op in ops[i + 1 :]:
        if name in op.variables:
            return True
        if op.kind not in ("pure", "load", "copy") or read.intersection(op.out):
            return False
    return False


def read_counts(nodes: list[Node], results: list[str]) -> dict[str, int]:
    """How often each name is read."""
    counts: dict[str, int] = {}

    def count(operands: Iterable[Any]) -> None:
        for a in operands:
            if isinstance(a, str):
                counts[a] = counts.get(a, 0) + 1

    def walk(tree: Iterable[Node]) -> None:
        """Count the names that these nodes read."""
        for node in tree:
            if isinstance(node, Seg):
                for op in flat(node.ops):
                    count(op.args)
            else:
                for op in flat(node.head):
                    count(op.args)
                if isinstance(node, If):
                    count([node.condition])
                    walk(node.orelse)
                else:
                    count([*node.bounds] if node.variable else [node.condition])
                    count([node.stop] * 2)
                walk(node.body)

    walk(nodes)
    count(results)
    return counts
