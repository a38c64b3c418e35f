"""Names that mean several things are told apart.

Numba gives each binding of a name a type of its own: `for v in x` and then `for v in range(2)` makes v a float and then a whole
number. Generated code keeps values and puts them back under the name, which must then have one type. So where inference finds several
for a name, the name falls into its *webs*: bindings that meet in some use belong together (Muchnick, "Advanced Compiler Design and
Implementation" (1997), section 16.3.3), and each web but the first gets a name of its own.

Invariant: every use reads one web. A name whose bindings all meet stays as it is; its types are unified, as Numba does where they meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .tree import If, Loop, Node, Op, Operand, Program, Seg, operations

Reaching = dict[str, frozenset[int]]
"""For a name the bindings that may have given it its value, by number."""


def split(program: Program, names: set[str]) -> bool:
    """Rename the webs of these names; whether there was anything to rename."""
    named_in_text = {
        s for op in operations(program.body) for s in op.settings.values() if isinstance(s, str)
    }
    names = names - named_in_text
    if not names:
        return False
    webs = _Webs(program, names)
    return webs.rename()


class _Webs:
    """Bindings that reach each use, and the classes that they form."""

    def __init__(self, program: Program, names: set[str]) -> None:
        self.program = program
        self.names = names
        self.parent: list[int] = []
        self.name_of: list[str] = []
        self.bindings: dict[tuple[int, str], int] = {}
        self.uses: dict[tuple[int, int], int] = {}
        """Binding by operation or node and place among its operands."""
        before = {n: frozenset((self._binding(program, n),)) for n in sorted(names)}
        after = self._block(program.body, before)
        for i, name in enumerate(program.results):
            self._use(program, i, name, after)

    def _binding(self, owner: Any, name: str) -> int:
        key = (id(owner), name)
        if key not in self.bindings:
            self.bindings[key] = len(self.parent)
            self.parent.append(len(self.parent))
            self.name_of.append(name)
        return self.bindings[key]

    def _find(self, k: int) -> int:
        while self.parent[k] != k:
            k = self.parent[k]
        return k

    def _union(self, found: Iterable[int]) -> int:
        # The lowest number stands for all: what a parameter belongs to keeps its name.
        roots = sorted({self._find(k) for k in found})
        for k in roots[1:]:
            self.parent[k] = roots[0]
        return roots[0]

    def _use(self, owner: Any, place: int, operand: Operand, reaching: Reaching) -> None:
        if isinstance(operand, str) and operand in self.names:
            self.uses[id(owner), place] = self._union(reaching[operand])

    def _ops(self, ops: list[Op], reaching: Reaching) -> Reaching:
        for op in ops:
            for i, a in enumerate(op.args):
                self._use(op, i, a, reaching)
            for n in op.out:
                if n in self.names:
                    made = self._binding(op, n)
                    if op.kind == "aug":
                        self._union((made, *reaching[n]))
                    reaching = {**reaching, n: frozenset((made,))}
        return reaching

    def _block(self, nodes: list[Node], reaching: Reaching) -> Reaching:
        for node in nodes:
            if isinstance(node, Seg):
                reaching = self._ops(node.ops, reaching)
            elif isinstance(node, If):
                reaching = self._ops(node.head, reaching)
                self._use(node, 0, node.condition, reaching)
                reaching = _joined(
                    self._block(node.body, reaching), self._block(node.orelse, reaching)
                )
            else:
                reaching = self._loop(node, reaching)
        return reaching

    def _loop(self, node: Loop, reaching: Reaching) -> Reaching:
        """Which bindings reach the end of a loop, found by going round until nothing is added."""
        if node.variable:
            reaching = self._ops(node.head, reaching)
            for i, b in enumerate(node.bounds):
                self._use(node, i, b, reaching)
        while True:
            inside = reaching
            if not node.variable:
                inside = self._ops(node.head, inside)
                self._use(node, 3, node.condition, inside)
            left = inside
            inside = self._block(node.body, inside)
            if node.stop:
                self._use(node, 4, node.stop, inside)
            again = _joined(reaching, inside)
            if again == reaching:
                return _joined(left, inside) if node.stop else left
            reaching = again

    # ------------------------------------------------------------------------------------------- renaming

    def rename(self) -> bool:
        """Give each web of bindings a name of its own; whether anything changed."""
        taken = {n for op in operations(self.program.body) for n in (*op.out, *op.variables)}
        taken |= {*self.program.params, *self.program.scope, *_counters(self.program.body)}
        new: dict[int, str] = {}
        kept: set[str] = set()
        for k, name in enumerate(self.name_of):
            root = self._find(k)
            # The first bindings stand for values before the first line: a parameter's, or none at all.
            nothing = k < len(self.names) and name not in self.program.params
            if root in new or nothing:
                continue
            if name not in kept:
                kept.add(name)
                new[root] = name
                continue
            unique, i = name, 2
            while unique in taken:
                unique, i = f"{name}_{i}", i + 1
            taken.add(unique)
            new[root] = unique
            if name in self.program.several:
                self.program.several.add(unique)
        if all(new.get(self._find(k), n) == n for k, n in enumerate(self.name_of)):
            return False

        def used(owner: Any, place: int, operand: Any) -> Any:
            found = self.uses.get((id(owner), place))
            return operand if found is None else new.get(self._find(found), operand)

        def renamed(ops: list[Op]) -> None:
            for op in ops:
                op.args = [used(op, i, a) for i, a in enumerate(op.args)]
                op.out = tuple(
                    new[self._find(self.bindings[id(op), n])] if (id(op), n) in self.bindings else n
                    for n in op.out
                )

        def walk(nodes: list[Node]) -> None:
            for node in nodes:
                if isinstance(node, Seg):
                    renamed(node.ops)
                    continue
                renamed(node.head)
                if isinstance(node, If):
                    node.condition = used(node, 0, node.condition)
                    walk(node.orelse)
                else:
                    node.bounds = tuple(used(node, i, b) for i, b in enumerate(node.bounds))  # type: ignore[assignment]
                    node.condition = used(node, 3, node.condition)
                    node.stop = used(node, 4, node.stop)
                walk(node.body)

        walk(self.program.body)
        self.program.results = [
            used(self.program, i, n) for i, n in enumerate(self.program.results)
        ]
        return True


def _counters(nodes: Iterable[Node]) -> set[str]:
    """Variables of loops, which no operation need read."""
    found: set[str] = set()
    for node in nodes:
        if not isinstance(node, Seg):
            found |= _counters(node.body)
            found |= _counters(node.orelse) if isinstance(node, If) else {node.variable}
    return found


def _joined(a: Reaching, b: Reaching) -> Reaching:
    return {n: a[n] | b[n] for n in a}
