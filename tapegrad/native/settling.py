"""Settling: with types known, every operation gets its one meaning.

Tuples dissolve into their elements. `x += y` becomes an update of memory or a new value. An index becomes an element, a view or a
gather. Code that Numba found dead is dropped. Small branches of scalars become single operations (kind "if"), so that the reverse can
evaluate such a branch again instead of keeping its results.

Invariant afterwards: no variable is a tuple, no operation is of kind aug, item or tuple, and `types` knows every name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
from numba.core import types

from .inference import const_type, is_array, is_float, is_whole
from .lowering import BINARY, refuse
from .names import RESERVED
from .tree import (
    IN_PLACE,
    INDICES,
    TEMP,
    Called,
    Const,
    If,
    Loop,
    Node,
    Op,
    Operand,
    Program,
    Seg,
    bound,
    exposed,
    flat,
    is_group,
    operations,
    read_counts,
    segments,
)

Parts = str | list["Parts"]


_MASK = (
    "Numba has no code for masks of several axes.",
    "Flatten both (x.ravel()[mask.ravel()], of an array that is contiguous), or write np.where or a loop.",
)
_UNRULED = "This combination of index arrays has no rule.", "Write it as a loop."


class Typed:
    """A settled program: its tree, the type of every name, and how its parameters came out of the user's arguments."""

    def __init__(self, program: Program, kinds: dict[str, Any], returns: Any) -> None:
        self.program = program
        self.types = kinds
        self.returns = returns
        self.taken = (
            set(kinds)
            | set(program.scope)
            | set(program.params)
            | RESERVED
            | {n for op in operations(program.body) for n in op.out}
        )
        self.parts: dict[str, list[Parts]] = {}
        self.param_parts: list[Parts] = []
        self._settle()

    # ------------------------------------------------------------------------------------------------ types

    def kind(self, operand: Operand) -> Any:
        if isinstance(operand, str):
            return self.types.get(operand)
        value = self.program.scope.get(operand.text)
        return numba.typeof(value) if isinstance(value, np.ndarray) else const_type(operand)

    def fresh(self, name: str, kind: Any = None) -> str:
        unique, k = name, 2
        while unique in self.taken:
            unique, k = f"{name}_{k}", k + 1
        self.taken.add(unique)
        if kind is not None:
            self.types[unique] = kind
        return unique

    # --------------------------------------------------------------------------------------------- settling

    def _settle(self) -> None:
        """Replace tuples by their elements, drop what nothing reads, and merge copies."""
        program = self.program
        self._drop_dead(program.body)
        for name in [n for n, k in self.types.items() if isinstance(k, types.BaseTuple)]:
            self.parts[name] = self._split(name, self.types[name])
        self.param_parts = [self.parts.get(p, p) for p in program.params]
        program.params = [leaf for p in self.param_parts for leaf in leaves(p)]
        if program.results and program.results[0] in self.parts:
            program.returns_tuple = True
            tree = self.parts[program.results[0]]
            if any(isinstance(p, list) for p in tree):
                raise refuse(
                    program.where,
                    "The function returns a tuple within a tuple.",
                    "Return one flat tuple.",
                )
            program.results = list(leaves(tree))
        for ops in segments(program.body):
            self._each(ops)
        self.counts = read_counts(program.body, program.results)
        for ops in segments(program.body):
            # Elements of a tuple that nothing reads.
            ops[:] = [
                op
                for op in ops
                if not (
                    op.kind in ("pure", "load", "copy")
                    and op.out[0].startswith(TEMP)
                    and not self.counts.get(op.out[0])
                )
            ]
        program.body = self._merged(program.body)

    def _split(self, name: str, kind: Any) -> list[Parts]:
        parts: list[Parts] = []
        for i, element in enumerate(kind.types):
            part = self.fresh(f"{name}_{i}", types.unliteral(element))
            if isinstance(element, types.BaseTuple):
                self.parts[part] = self._split(part, element)
                parts.append(self.parts[part])
            else:
                parts.append(part)
        return parts

    def _drop_dead(self, nodes: list[Node]) -> None:
        """What binds a name that Numba gave no type is never reached, or never read."""

        def known(operands: Iterable[Operand]) -> bool:
            return all(not isinstance(a, str) or a in self.types for a in operands)

        for node in list(nodes):
            ops = node.ops if isinstance(node, Seg) else node.head
            for op in ops:
                if op.kind == "impure" and not known(op.out):
                    raise refuse(
                        op.where, "The result of a random draw is never used.", "Remove the line."
                    )
            ops[:] = [op for op in ops if known(op.out) and known(op.args)]
            if isinstance(node, If):
                if not known([node.condition]):
                    nodes.remove(node)
                    continue
                self._drop_dead(node.body)
                self._drop_dead(node.orelse)
            elif isinstance(node, Loop):
                if not known([node.variable] if node.variable else [node.condition]):
                    nodes.remove(node)
                    continue
                self._drop_dead(node.body)

    def _each(self, ops: list[Op]) -> None:
        settled: list[Op] = []
        for op in ops:
            settled += self._settled(op)
        ops[:] = settled

    def _settled(self, op: Op) -> list[Op]:
        """The operations that one operation becomes when tuples are taken apart."""
        out = op.out[0] if op.out else ""
        if op.called is not None:
            self._told(op, op.called)
        tupled = [a for a in op.variables if a in self.parts]
        if op.kind == "tuple":
            return self._tied(
                op,
                self.parts[out],
                [self.parts.get(a, a) if isinstance(a, str) else a for a in op.args],
            )
        if op.kind == "copy" and out in self.parts:
            source = op.args[0]
            if isinstance(source, str):
                return self._tied(op, self.parts[out], self.parts[source])
            return self._taken_apart(op, self.parts[out], source.text)
        if op.kind == "item":
            return self._item(op)
        if op.kind == "load" and isinstance(op.args[0], str) and op.args[0] in self.parts:
            return self._tuple_load(op)
        if op.kind == "load" and isinstance(op.args[0], Const) and out in self.parts:
            return self._taken_apart(op, self.parts[out], f"{op.args[0].text}[{op.index}]", op.args)
        if op.kind == "pure" and op.rule and op.rule.startswith(".") and tupled:
            fields = getattr(self.types[tupled[0]], "fields", ())
            if op.rule[1:] in fields:
                part = self.parts[tupled[0]][fields.index(op.rule[1:])]
                return self._tied(
                    op, [self.parts.get(out, out)] if isinstance(part, list) else [out], [part]
                )
        if tupled and op.rule == "+" and out in self.parts:
            return self._concatenated(op, self.parts[out])
        if tupled and (op.rule in BINARY.values() or op.kind == "aug"):
            raise refuse(
                op.where, "A tuple is an operand here.", "Write its elements out, or use an array."
            )
        if op.kind in ("store", "acc") and op.args[1] in tupled:
            return self._tuple_stored(op)
        if tupled and op.rule in ("np.array", "np.asarray") and len(op.args) == 1:
            parts = self._numbers(tupled[0])
            if parts:
                _make_array(op, parts)
                return [op]
        if tupled:
            self._regroup(op)
        if out in self.parts:
            if op.kind == "impure" or op.rule == "custom":
                raise refuse(
                    op.where,
                    "A draw or custom function returns a tuple.",
                    "Return one number or array.",
                )
            return self._taken_apart(op, self.parts[out], op.form, op.args)
        if op.kind == "aug":
            return self._augmented(op)
        if op.kind in ("load", "store", "acc") and any(
            is_array(self.kind(a)) for a in op.index_operands()
        ):
            if is_group(op):  # a tuple that was one index is several
                places = range(len(op.args) - len(op.index_operands()), len(op.args))
                op.index = ", ".join(f"{{{k}}}" for k in places)
                op.items = tuple(f"at {k} {k + 1}" for k in places)
            return self._gathered(op)
        return [op]

    def _told(self, op: Op, called: Called) -> None:
        """Note the types that a function of NumPy's is called with."""
        given: dict[str, list[Any]] = {}
        for name, a in zip(called.names, op.args, strict=True):
            given.setdefault(name, []).append(self._literal(a))
        several = called.names.count("arrays") > 0
        called.kinds = {
            name: types.Tuple(kinds) if several and name == "arrays" else kinds[0]
            for name, kinds in given.items()
        }
        for name, a in op.settings.items():
            called.kinds.setdefault(name, self._literal(a))

    def _literal(self, operand: Operand) -> Any:
        """The type of an operand, a constant's with its value; None for None."""
        if isinstance(operand, Const) and operand.text == "None":
            return None
        if isinstance(operand, Const) and type(operand.value) in (int, bool, str):
            return types.literal(operand.value)
        if isinstance(operand, Const) and isinstance(operand.value, type):
            return numba.typeof(operand.value)
        return self.kind(operand) or types.undefined

    def _concatenated(self, op: Op, to: list[Parts]) -> list[Op]:
        """The sum of two tuples, of which one may be a constant."""
        first, second = op.args
        n = len(self.parts[first]) if isinstance(first, str) else len(to) - len(self.parts[second])  # type: ignore[index]
        ops = []
        for a, part in ((first, to[:n]), (second, to[n:])):
            if isinstance(a, str):
                ops += self._tied(op, part, self.parts[a])
            else:
                ops += self._taken_apart(op, part, a.text)
        return ops

    def _tied(self, op: Op, to: list[Parts], values: Iterable[Any]) -> list[Op]:
        ops = []
        for t, v in zip(to, values, strict=True):
            if isinstance(t, list):
                if isinstance(v, Const):
                    ops += self._taken_apart(op, t, v.text)
                else:
                    ops += self._tied(op, t, v)
            else:
                ops.append(Op("copy", (t,), [v], "{0}", op.where))
        return ops

    def _taken_apart(
        self, op: Op, to: list[Parts], form: str, args: list[Operand] | None = None
    ) -> list[Op]:
        """Operations that read each element of a tuple that some expression gives."""
        ops = []
        for i, t in enumerate(to):
            if isinstance(t, list):
                ops += self._taken_apart(op, t, f"{form}[{i}]", args)
            else:
                ops.append(
                    Op(
                        "pure",
                        (t,),
                        list(args or []),
                        f"{form}[{i}]",
                        op.where,
                        op.rule,
                        op.settings,
                        called=op.called,
                    )
                )
        return ops

    def _item(self, op: Op) -> list[Op]:
        """The operation that takes one element: of a tuple, an array, or something else."""
        source = op.args[0]
        i = op.settings["position"].value  # type: ignore[union-attr]
        if isinstance(source, str) and source in self.parts:
            parts = self.parts[source]
            if len(parts) != op.settings["among"].value:  # type: ignore[union-attr]
                raise refuse(
                    op.where,
                    f"A tuple of {len(parts)} is unpacked into another number of names.",
                    "Name each.",
                )
            out: Any = self.parts.get(op.out[0], op.out[0])
            return self._tied(op, [out], [parts[i]])
        if isinstance(source, str) and is_array(self.types.get(source)):
            return [Op("load", op.out, [source], "", op.where, None, {}, str(i), ("at 1 1",))]
        return [Op("pure", op.out, [source], f"{{0}}[{i}]", op.where, "item")]

    def _tuple_load(self, op: Op) -> list[Op]:
        """An element of a tuple of numbers, by a constant or by a variable."""
        parts = self.parts[str(op.args[0])]
        out: Any = self.parts.get(op.out[0], op.out[0])
        try:
            position = int(op.index.strip("()"))  # one below zero stands in brackets
        except ValueError:
            position = None
        if position is not None:
            return self._tied(op, [out], [parts[position]])
        if (
            isinstance(out, list)
            or is_array(self.types[out])
            or any(isinstance(p, list) for p in parts)
        ):
            raise refuse(
                op.where,
                "A tuple of arrays or tuples is indexed by a variable.",
                "Write the elements out.",
            )
        n = len(parts)
        inner = op.index.format("", *(f"{{{n + i}}}" for i in range(len(op.args) - 1)))
        group = ", ".join(f"{{{i}}}" for i in range(n))
        args: list[Any] = [*parts, *op.args[1:]]
        return [Op("pure", op.out, args, f"({group},)[{inner}]", op.where, "choice")]

    def _tuple_stored(self, op: Op) -> list[Op]:
        """A tuple of numbers that is stored into a part of an array: the array of them is."""
        parts = self._numbers(str(op.args[1]))
        if parts is None:
            raise refuse(
                op.where, "A tuple of arrays or tuples is stored.", "Store its parts one by one."
            )
        kind = types.float64 if any(is_float(self.kind(p)) for p in parts) else types.int64
        made = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(kind, 1, "C"))
        new = Op("pure", (made,), [], "", op.where)
        _make_array(new, parts)
        op.args[1] = made
        return [new, *self._settled(op)]

    def _numbers(self, name: str) -> list[Operand] | None:
        """The elements of a tuple of numbers; None of any other."""
        parts: list[Operand] = [p for p in self.parts[name] if isinstance(p, str)]
        numbers = len(parts) == len(self.parts[name]) and not any(
            is_array(self.kind(p)) for p in parts
        )
        return parts if numbers else None

    def _regroup(self, op: Op) -> None:
        """Tuples among the operands are written out in place."""
        args: list[Operand] = []
        places: list[str] = []
        for a in op.args:
            if isinstance(a, str) and a in self.parts:
                places.append(self._group(self.parts[a], args))
            else:
                args.append(a)
                places.append(f"{{{len(args) - 1}}}")
        op.form = op.form.format(*places) if op.kind not in ("store", "acc") else op.form
        op.index = op.index.format(*places)
        op.args = args

    def _group(self, parts: list[Parts], args: list[Operand]) -> str:
        texts = []
        for p in parts:
            if isinstance(p, list):
                texts.append(self._group(p, args))
            else:
                args.append(p)
                texts.append(f"{{{len(args) - 1}}}")
        return f"({', '.join(texts)},)"

    def _augmented(self, op: Op) -> list[Op]:
        """`name op= value`: arrays change in place, anything else is bound anew."""
        name, symbol = op.out[0], op.form
        if not is_array(self.types[name]):
            return [Op("pure", op.out, op.args, f"({{0}} {symbol} {{1}})", op.where, symbol)]
        if symbol in "+-":
            return [
                Op("acc", (), [name, op.args[1]], symbol, op.where, None, {}, ":", ("slice 2 2",))
            ]
        kind = self.types[name]
        new = self.fresh(f"{TEMP}a{len(self.taken)}", types.Array(kind.dtype, kind.ndim, "C"))
        return [
            Op(
                "pure",
                (new,),
                op.args,
                f"({{0}} {symbol} {{1}})",
                op.where,
                symbol,
                {"written": IN_PLACE},
            ),
            Op("store", (), [name, new], "", op.where, None, {}, ":", ("slice 2 2",)),
        ]

    def _gathered(self, op: Op) -> list[Op]:
        """An index array, or a mask: what stands beside it becomes a view of its own, a mask the places where it holds, and an update
        in place a reading and a store, as in NumPy (an element that is named twice is updated once)."""
        first = 1 if op.kind == "load" else 2
        found = [
            (i, item)
            for i, item in enumerate(op.items)
            if any(is_array(self.kind(op.args[k])) for k in range(*_places(item)))
        ]
        if len(found) > 1:
            base, index, ops = self._all_axes(op, found)
        else:
            base, index, ops = self._one_axis(op, *found[0], first)
        if op.kind == "load":
            return [
                *ops,
                Op("load", op.out, [base, index], "", op.where, None, {}, "{1}", ("at 1 2",)),
            ]
        value = op.args[1]
        if op.kind == "acc":
            kind = self.kind(base)
            parts = [
                self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(kind.dtype, kind.ndim, "C"))
                for _ in range(2)
            ]
            ops.append(
                Op("load", (parts[0],), [base, index], "", op.where, None, {}, "{1}", ("at 1 2",))
            )
            ops.append(
                Op(
                    "pure",
                    (parts[1],),
                    [parts[0], value],
                    f"({{0}} {op.form} {{1}})",
                    op.where,
                    op.form,
                )
            )
            value = parts[1]
        return [
            *ops,
            Op("store", (), [base, value, index], "", op.where, None, {}, "{2}", ("at 2 3",)),
        ]

    def _one_axis(
        self, op: Op, position: int, item: str, first: int
    ) -> tuple[Operand, Operand, list[Op]]:
        """A view whose first axis an index array goes over, and that array: y[index, j] is y[:, j][index]."""
        base = op.args[0]
        before = op.items[:position]
        if op.kind != "load" and not isinstance(base, str):
            raise refuse(op.where, *_UNRULED)
        if any(not item.startswith("at ") for item in before):
            raise refuse(op.where, *_UNRULED)
        texts = items_of(op.index)
        start, stop = _places(item)
        index, ops = self._places_named(op, texts[position], list(range(start, stop)))
        if len(op.items) == 1:
            return base, index, ops
        kind = self.kind(base)
        ndim = kind.ndim - sum(i.startswith("at ") for i in op.items) + 1
        view = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(kind.dtype, ndim, "A"))
        texts[position] = ":"
        kept = [k for k in range(first, len(op.args)) if not start <= k < stop]
        operands: list[Operand] = [base, *(op.args[k] for k in kept)]
        where = {k: i for i, k in enumerate(kept, 1)}
        text = ", ".join(texts).format(*(f"{{{where.get(k, 0)}}}" for k in range(len(op.args))))
        items = tuple(
            "slice 1 1" if i == position else _renumbered(it, where)
            for i, it in enumerate(op.items)
        )
        ops.append(Op("load", (view,), operands, "", op.where, None, {}, text, items))
        return view, index, ops

    def _all_axes(self, op: Op, found: list[tuple[int, str]]) -> tuple[Operand, Operand, list[Op]]:
        """The same where each axis has an index array: all elements one after the other, and where in them these lie."""
        base = op.args[0]
        kind = self.kind(base)
        if (
            not isinstance(base, str)
            or not len(found) == len(op.items) == kind.ndim
            or kind.layout != "C"
        ):
            raise refuse(op.where, *_UNRULED)
        texts = items_of(op.index)
        ops: list[Op] = []
        text = ""
        args: list[Operand] = []
        for axis, item in found:
            start, stop = _places(item)
            index, made = self._places_named(op, texts[axis], list(range(start, stop)))
            if any(o.rule == "np.flatnonzero" for o in made):  # Numba takes one mask alone
                raise refuse(op.where, *_UNRULED)
            length = self.fresh(f"{TEMP}b{len(self.taken)}", types.int64)
            ops += [
                *made,
                Op("pure", (length,), [base], f"{{0}}.shape[{axis}]", op.where, ".shape"),
            ]
            i, n = (f"{{{len(args) + k}}}" for k in range(2))
            args += [index, length]
            place = f"({i} + ({i} < 0) * {n})"  # all of it is one expression of Numba's
            text = f"(({text}) * {n} + {place})" if text else place
        size = self.fresh(f"{TEMP}b{len(self.taken)}", types.int64)
        flat = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(kind.dtype, 1, "C"))
        places = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(types.int64, 1, "C"))
        ops.append(Op("pure", (size,), [base], "{0}.size", op.where, ".size"))
        ops.append(Op("pure", (flat,), [base, size], "{0}.reshape({1})", op.where, "np.reshape"))
        ops.append(Op("pure", (places,), args, text, op.where, INDICES))
        return flat, places, ops

    def _places_named(self, op: Op, text: str, operands: list[int]) -> tuple[Operand, list[Op]]:
        """An index array of whole numbers under one name, with the operations that make it."""
        ops: list[Op] = []
        name: Operand
        bare = text.removeprefix("(").removesuffix(",)")
        if len(operands) == 1 and bare == f"{{{operands[0]}}}":
            name = op.args[operands[0]]
        else:
            args = [op.args[k] for k in operands]
            renumbered = text.format(
                *("" for _ in range(operands[0])), *(f"{{{k}}}" for k in range(len(args)))
            )
            name = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(types.int64, 1, "C"))
            ops.append(Op("pure", (name,), args, renumbered, op.where, INDICES))
        kind = self.kind(name)
        if is_array(kind) and kind.ndim > 1 and isinstance(kind.dtype, types.Boolean):
            raise refuse(op.where, *_MASK)
        if not is_array(kind) or kind.ndim != 1 or not is_whole(kind.dtype):
            raise refuse(
                op.where, f"This index, of type {kind}, has no rule.", "Write it as a loop."
            )
        if isinstance(kind.dtype, types.Boolean):
            places = self.fresh(f"{TEMP}b{len(self.taken)}", types.Array(types.intp, 1, "C"))
            ops.append(
                Op("pure", (places,), [name], "np.flatnonzero({0})", op.where, "np.flatnonzero")
            )
            name = places
        return name, ops

    # ------------------------------------------------------------------------------------- small branches

    def _merged(self, nodes: list[Node]) -> list[Node]:
        """Branches of nothing but scalars become operations; neighbouring straight lines become one."""
        merged: list[Node] = []
        for node in nodes:
            if isinstance(node, If):
                node.body, node.orelse = self._merged(node.body), self._merged(node.orelse)
                if self._small(node):
                    ops = [*node.head]
                    condition = node.condition
                    if not isinstance(condition, str):
                        name = self.fresh(f"{TEMP}c{len(self.taken)}", types.boolean)
                        ops.append(Op("copy", (name,), [condition], "{0}", self.program.where))
                        condition = name
                    body, orelse = _line(node.body), _line(node.orelse)
                    op = Op("if", (), [condition], "", self.program.where, body=body, orelse=orelse)
                    op.out = self._seen_outside(op)
                    ops.append(op)
                    node = Seg(ops)
            elif isinstance(node, Loop):
                node.body = self._merged(node.body)
            if isinstance(node, Seg):
                if not node.ops:
                    continue
                if merged and isinstance(merged[-1], Seg):
                    merged[-1].ops.extend(node.ops)
                    continue
            merged.append(node)
        return merged

    def _seen_outside(self, op: Op) -> tuple[str, ...]:
        """Names that a branch binds and something else reads, or that it reads from before."""
        inside: dict[str, int] = {}
        for o in (*flat(op.body), *flat(op.orelse)):
            for a in o.variables:
                inside[a] = inside.get(a, 0) + 1
        carried = {*exposed(op.body), *exposed(op.orelse)}
        names = bound([*op.body, *op.orelse])
        return tuple(
            sorted(n for n in names if n in carried or self.counts.get(n, 0) > inside.get(n, 0))
        )

    def _small(self, node: If) -> bool:
        if any(op.kind not in ("pure", "load", "copy") for op in node.head):
            return False
        for block in (node.body, node.orelse):
            if len(block) > 1 or (block and not isinstance(block[0], Seg)):
                return False
            for op in flat(_line(block)):
                if op.kind not in ("pure", "load", "copy", "if") or op.rule == "custom":
                    return False
                if any(not (is_float(self.types[n]) or is_whole(self.types[n])) for n in op.out):
                    return False
        return sum(1 for block in (node.body, node.orelse) for _ in flat(_line(block))) <= 40


def _make_array(op: Op, parts: list[Operand]) -> None:
    """Let an operation make an array of numbers, as a list of them would be."""
    places = ", ".join(f"{{{k}}}" for k in range(len(parts)))
    op.args, op.form, op.rule = parts, f"np.array([{places}])", "np.array"
    op.settings["width"] = Const("0", 0)


def _places(item: str) -> tuple[int, int]:
    """Which operands an item of an index reads."""
    _, start, stop = item.split()
    return int(start), int(stop)


def _renumbered(item: str, where: dict[int, int]) -> str:
    start, stop = _places(item)
    moved = [where[k] for k in range(start, stop)]
    return f"{item.split()[0]} {moved[0] if moved else 1} {moved[-1] + 1 if moved else 1}"


def items_of(index: str) -> list[str]:
    """The texts of an index, one an item."""
    texts, depth = [""], 0
    for c in index:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            texts.append("")
        else:
            texts[-1] += c
    return [t.strip() for t in texts]


def _line(block: list[Node]) -> list[Op]:
    return block[0].ops if block else []  # type: ignore[union-attr]


def leaves(parts: Parts) -> Iterable[str]:
    if isinstance(parts, str):
        yield parts
    else:
        for p in parts:
            yield from leaves(p)


def outer_names(program: Program) -> set[str]:
    """Names that some operation reads where no straight line of its own bound them before."""
    names = set(program.results) | set(program.params)

    def walk(nodes: list[Node]) -> None:
        """Collect the names that these nodes read from outside of themselves."""
        for node in nodes:
            if isinstance(node, Seg):
                names.update(exposed(node.ops))
                continue
            names.update(exposed(node.head))
            if isinstance(node, If):
                names.update(
                    a for a in (node.condition,) if isinstance(a, str) and a not in bound(node.head)
                )
                walk(node.orelse)
            else:
                tail = node.bounds if node.variable else (node.condition,)
                names.update(a for a in tail if isinstance(a, str) and a not in bound(node.head))
                if node.stop:
                    names.add(node.stop)
            walk(node.body)

    walk(program.body)
    return names
