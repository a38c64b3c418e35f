"""Products and extrema of parallel loops: each pass has a part of its own, and a short loop behind puts the parts together.

    for i in prange(n):                    parts = np.empty(n)
        p *= f(i)                          for i in prange(n):
                                               own = 1.0
                                               own *= f(i)
                                               parts[i] = own
                                           for k in range(n):
                                               p *= parts[k]

Then nothing but sums goes from pass to pass, and threads share the first loop (see `chunks`). One thread is left with an operation each
pass, in order: so no bit depends on threads, and ties of extrema are the loop's own.

Invariant: the program computes the same numbers as before. A sum needs none of this.
"""

from __future__ import annotations

from numba.core import types

from .chunks import folding_rule
from .settling import Typed
from .tree import Const, If, Loop, Node, Op, Operand, Seg, entering, operations

NEUTRAL = {
    "*": Const("1.0", 1.0),
    "max": Const("-np.inf"),
    "min": Const("np.inf"),
    "np.maximum": Const("-np.inf"),
    "np.minimum": Const("np.inf"),
}
"""Operations of two numbers that parts are put together by, with the number that changes nothing."""


def split(typed: Typed) -> None:
    """Take such operations out of parallel loops that no other contains."""
    _block(typed.program.body, typed)


def _block(nodes: list[Node], typed: Typed) -> None:
    k = 0
    while k < len(nodes):
        node = nodes[k]
        if isinstance(node, Loop) and node.parallel:
            nodes[k : k + 1] = new = _without(node, typed)
            k += len(new)
            continue
        if not isinstance(node, Seg):
            _block(node.body, typed)
            if isinstance(node, If):
                _block(node.orelse, typed)
        k += 1


def _without(loop: Loop, typed: Typed) -> list[Node]:
    """A loop and what puts its parts together."""
    start, stop, step = loop.bounds
    # Parts lie at the passes' own numbers, which are none below zero.
    counted = isinstance(start, Const) and isinstance(start.value, int) and start.value >= 0
    if not counted or not isinstance(step, Const) or step.value != 1 or loop.stop:
        return [loop]
    bound = {n for op in operations(loop.body) for n in op.out}
    if typed.kind(stop) is not types.int64 or stop in bound or loop.where is None:
        return [loop]
    folded = {}
    for name in sorted(entering(loop.body)[0] & bound):
        rule = folding_rule(name, loop.body)
        if rule in NEUTRAL and typed.types.get(name) is types.float64:
            folded[name] = rule
    if not folded:
        return [loop]
    where = loop.where

    def op(kind: str, out: str, args: list[Operand], form: str, rule: str | None = None) -> Op:
        return Op(kind, (out,) if out else (), args, form, where, rule)

    size = typed.fresh("parts_size", types.int64)
    number = typed.fresh("part_number", types.int64)
    made = [*loop.head, op("pure", size, [stop], "max({0}, 0)", "max")]
    begun, ended, together = [], [], []
    for name, rule in folded.items():
        own = typed.fresh(f"{name}_own", types.float64)
        part = typed.fresh(f"{name}_part", types.float64)
        parts = typed.fresh(f"{name}_parts", types.Array(types.float64, 1, "C"))
        made.append(op("pure", parts, [size], "np.empty({0})", "np.empty"))
        begun.append(op("copy", own, [NEUTRAL[rule]], "{0}"))
        first = _renamed(loop.body, name, own)
        store = op("store", "", [parts, own, loop.variable], "")
        store.index, store.items = "{2}", ("at 2 3",)
        ended.append(store)
        load = op("load", part, [parts, number], "")
        load.index, load.items = "{1}", ("at 1 2",)
        args: list[Operand] = [name, part] if first.args[0] == own else [part, name]
        together += [load, op("pure", name, args, first.form, rule)]
    loop.head = []
    loop.body = [Seg(begun), *loop.body, Seg(ended)]
    behind = Loop([], [Seg(together)], number, loop.bounds, where=where)
    return [Seg(made), loop, behind]


def _renamed(nodes: list[Node], name: str, own: str) -> Op:
    """Use another name in a block; the first operation that put something to it."""
    first = None
    for op in operations(nodes):
        if name in op.args and first is None:
            first = op
        op.args = [own if a == name else a for a in op.args]
        op.out = tuple(own if n == name else n for n in op.out)
    assert first is not None
    return first
