"""Loops: over ranges, arrays, `zip`, `enumerate`, `ndindex` and `ndenumerate`, which become loops over positions, and `while`."""

from __future__ import annotations

import ast

from ..names import canonical, is_prange
from ..runtime import checkpointed
from ..tree import Const, If, Loop, Op, Operand, Where
from .building import is_head
from .frames import Level, may_jump, refuse
from .listed import Lists

UNROLLED = 1500
"""Nodes of source that a loop over the elements of tuples has at most, written out."""


class Loops(Lists):
    """Loops of the open frame's function."""

    def loop(self, node: ast.For | ast.While) -> str:
        """Lower a loop without its else; the name of the flag that a jump out of it sets, if there is one."""
        leaves = any(may_jump(n, (ast.Break, ast.Return)) for n in node.body)
        stop = ""
        if leaves:
            stop = self.fresh("stop")
            self.flag(stop, False)
        outer = self.frame.level
        self.frame.level = Level(stop, outer)
        try:
            if isinstance(node, ast.While):
                self.while_(node, stop)
            else:
                self.for_(node, stop)
        finally:
            self.frame.level = outer
        return stop

    def otherwise(self, node: ast.For | ast.While, stop: str) -> list[ast.stmt]:
        """The else of a loop as statements behind it."""
        if not stop:
            return node.orelse
        self.frame.names[stop] = stop
        branch = ast.If(ast.Name(stop, ast.Load()), [ast.Pass()], node.orelse)
        for n in ast.walk(branch):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        return [branch]

    def while_(self, node: ast.While, stop: str) -> None:
        """Lower a `while`; a condition that needs statements stands before the loop and at the end of its body."""
        head, nodes, condition = self.condition(node.test)
        if not nodes:
            self.block.append(
                Loop(
                    head,
                    self.into(lambda: self.statements(node.body)),
                    condition=condition,
                    stop=stop,
                )
            )
            return
        # The condition needs whole statements: they stand before the loop and again at the end of its body.
        self.block.extend(nodes)
        go = self.fresh("go")
        self.several.add(go)
        self.copy(node.test, condition, go)

        def body() -> None:
            self.statements(node.body)

            def again() -> None:
                self.copy(node.test, self.expr(node.test), go)

            if stop:
                self.block.append(If([], stop, [], self.into(again)))
            else:
                again()

        self.block.append(Loop([], self.into(body), condition=go, stop=stop))

    def for_(self, node: ast.For, stop: str) -> None:
        """Lower a `for`: over range, enumerate, zip, arrays and tuples, all as loops over a range."""
        where = self.frame.where(node.iter)
        call = node.iter if isinstance(node.iter, ast.Call) else None
        if call is not None and self.known(call.func) is checkpointed:
            self.checkpointed(node, call, stop)
            return
        kind = canonical(self.known(call.func)) if call is not None else None
        if kind == "range" and call is not None:
            before = len(self.block)
            self.range(node, call, stop)
            for made in self.block[before:]:
                if isinstance(made, Loop):
                    made.parallel = self.parallel and is_prange(self.known(call.func))
                    made.where = self.frame.where(node)
            return
        position = self.fresh("position")
        self.frame.names[position] = position
        first: list[ast.stmt] = []
        if kind == "enumerate" and call is not None:
            if not isinstance(node.target, ast.Tuple) or len(node.target.elts) != 2:
                raise refuse(
                    where,
                    "enumerate is unpacked into two names.",
                    "Write for i, v in enumerate(x).",
                )
            start = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords), None)
            )
            counted: ast.expr = ast.Name(position, ast.Load())
            if start is not None:
                counted = ast.BinOp(counted, ast.Add(), start)
            first.append(ast.Assign([node.target.elts[0]], counted))
            target, source = node.target.elts[1], call.args[0]
        elif kind == "np.ndindex" and call is not None:
            self.ndindex(node, call, stop)
            return
        elif kind == "np.ndenumerate" and call is not None:
            self.ndenumerate(node, call, stop)
            return
        else:
            target, source = node.target, node.iter
        pairs = self.iterated(target, source, where)
        if self.few(node, pairs):
            self.unrolled(node, pairs, position, first)
            return
        lengths: list[ast.expr] = []
        for element, array in pairs:
            held = self.fresh("iterated")
            self.frame.names[held] = held
            if isinstance(array, ast.Call) and canonical(self.known(array.func)) == "sorted":
                self.pure(array, "np.sort({0})", [self.expr(array.args[0])], "np.sort", held)
            else:
                self.expr(array, held)
            lengths.append(_call("len", ast.Name(held, ast.Load())))
            item = ast.Subscript(
                ast.Name(held, ast.Load()), ast.Name(position, ast.Load()), ast.Load()
            )
            first.append(ast.Assign([element], item))
        bound = lengths[0] if len(lengths) == 1 else _call("min", *lengths)
        loop = ast.For(
            ast.Name(position, ast.Store()), _call("range", bound), [*first, *node.body], []
        )
        for n in ast.walk(loop):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        self.range(loop, loop.iter, stop)  # type: ignore[arg-type]

    def few(self, node: ast.For, pairs: list[tuple[ast.expr, ast.expr]]) -> bool:
        """Whether a loop goes over elements of tuples that stand there, which may be arrays, and is short when it is written out."""
        if any(may_jump(n) for n in node.body):
            return False
        given = [array.elts for _, array in pairs if isinstance(array, ast.Tuple)]
        if len(given) < len(pairs) or any(isinstance(e, ast.Starred) for x in given for e in x):
            return False
        if all(isinstance(n, ast.Constant | ast.UnaryOp) for x in given for n in x):
            return False  # numbers
        nodes = sum(1 for n in node.body for _ in ast.walk(n))
        return min(map(len, given)) * nodes <= UNROLLED

    def unrolled(
        self,
        node: ast.For,
        pairs: list[tuple[ast.expr, ast.expr]],
        position: str,
        first: list[ast.stmt],
    ) -> None:
        """Lower a loop over elements of tuples as its body for each of them, `first` being what a turn begins with at its position.

        All elements are evaluated before the first turn, as in Python. A name that only this loop has stands for the element itself.
        """
        held: list[list[str]] = []
        for _, array in pairs:
            assert isinstance(array, ast.Tuple)
            held.append([self.fresh("element") for _ in array.elts])
            for name, element in zip(held[-1], array.elts, strict=True):
                self.frame.names[name] = name
                self.copy(element, self.expr(element), name)
        names = [t.id for t, _ in pairs if isinstance(t, ast.Name)]
        own = (
            len(set(names)) == len(pairs)
            and not first
            and not any(_binds(node.body, x) or self.read_outside(node, x) for x in names)
        )
        before = {x: self.frame.names.get(x) for x in names}
        for k, elements in enumerate(zip(*held, strict=False)):
            begun: list[ast.stmt] = []
            if own:
                self.frame.names.update(zip(names, elements, strict=True))
            else:
                self.copy(node.iter, Const(str(k), k), position)
                reads = [ast.Name(e, ast.Load()) for e in elements]
                begun = [
                    *first,
                    *(ast.Assign([t], x) for (t, _), x in zip(pairs, reads, strict=True)),
                ]
                for n in (n for statement in begun for n in ast.walk(statement)):
                    if not hasattr(n, "lineno"):
                        ast.copy_location(n, node)
            self.statements([*begun, *node.body])
        for x in names if own else ():
            self.frame.names.pop(x)
            if (was := before[x]) is not None:
                self.frame.names[x] = was

    def iterated(
        self, target: ast.expr, source: ast.expr, where: Where
    ) -> list[tuple[ast.expr, ast.expr]]:
        """What a loop binds in each turn, with the array that holds its values: several for zip."""
        if not isinstance(source, ast.Call):
            return [(target, source)]
        kind = canonical(self.known(source.func))
        if kind == "zip":
            if not isinstance(target, ast.Tuple) or len(target.elts) != len(source.args):
                raise refuse(where, "zip is unpacked into as many names.", "Name each element.")
            return list(zip(target.elts, source.args, strict=True))
        if kind in ("range", "enumerate", "reversed") or (kind == "sorted" and source.keywords):
            raise refuse(where, "This iterator has no rule.", "Write a loop over range(n).")
        return [(target, source)]

    def checkpointed(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """A loop over `tg.checkpointed(range(...), snapshots=k)`."""
        given = dict(zip(("steps", "snapshots"), call.args, strict=False))
        given |= {str(k.arg): k.value for k in call.keywords}
        steps, count = given.get("steps"), given.get("snapshots")
        if not isinstance(steps, ast.Call) or canonical(self.known(steps.func)) != "range":
            raise refuse(
                self.frame.where(node.iter),
                "Only a loop over a range has snapshots.",
                "Write for t in tg.checkpointed(range(n), snapshots=8).",
            )
        found = count.value if isinstance(count, ast.Constant) else self.known(count or node)
        if type(found) is not int or found < 1:
            raise refuse(
                self.frame.where(node.iter),
                "The number of snapshots is part of the compiled code: a whole number from 1 on, or a global name for one.",
                "Write for t in tg.checkpointed(range(n), snapshots=8).",
            )
        before = len(self.block)
        self.range(node, steps, stop)
        for made in self.block[before:]:
            if isinstance(made, Loop):
                made.snapshots, made.where = found, self.frame.where(node.iter)

    def ndenumerate(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """As a loop over the indices, whose first statement reads the element."""
        if not (
            isinstance(node.target, ast.Tuple)
            and len(node.target.elts) == 2
            and isinstance(node.target.elts[0], ast.Tuple)
        ):
            raise refuse(
                self.frame.where(node),
                "np.ndenumerate is unpacked into its indices and the element.",
                "Write for (i, j), v in np.ndenumerate(x).",
            )
        index, element = node.target.elts
        held = self.fresh("iterated")
        self.frame.names[held] = held
        self.expr(call.args[0], held)
        places = ast.Tuple([ast.Name(n.id, ast.Load()) for n in index.elts], ast.Load())  # type: ignore[attr-defined]
        item = ast.Subscript(ast.Name(held, ast.Load()), places, ast.Load())
        shape = ast.Attribute(ast.Name(held, ast.Load()), "shape", ast.Load())
        body = [ast.Assign([element], item), *node.body]
        loop = ast.For(index, ast.Call(call.func, [shape], []), body, [])
        for n in ast.walk(loop):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, node)
        self.ndindex(loop, loop.iter, stop)  # type: ignore[arg-type]

    def ndindex(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """Lower a loop over np.ndindex as one loop with its indices computed."""
        if not isinstance(node.target, ast.Tuple):
            raise refuse(
                self.frame.where(node),
                "np.ndindex is unpacked into its indices.",
                "Write for i, j in np.ndindex(n, m).",
            )
        n = len(node.target.elts)
        if len(call.args) == n and n > 1:
            sizes = [self.kept(self.expr(a), a) for a in call.args]
        else:
            shape = self.expr(call.args[0])
            sizes = [
                self.pure(
                    call,
                    f"{{0}}[{i}]",
                    [shape],
                    "item",
                    None,
                    "item",
                    position=Const(str(i), i),
                    among=Const(str(n), n),
                )
                for i in range(n)
            ]
        total: Operand = sizes[0]
        for size in sizes[1:]:
            total = self.pure(node, "({0} * {1})", [total, size], "*", None)
        position = self.fresh("position")

        def body() -> None:
            rest: Operand = position
            for i in range(n - 1, 0, -1):
                self.pure(
                    node, "({0} % {1})", [rest, sizes[i]], "%", self.local(node.target.elts[i].id)
                )
                rest = self.pure(node, "({0} // {1})", [rest, sizes[i]], "//", None)
            self.copy(node, rest, self.local(node.target.elts[0].id))
            self.statements(node.body)

        self.block.append(
            Loop(
                [],
                self.into(body),
                variable=position,
                bounds=(Const("0", 0), total, Const("1", 1)),
                stop=stop,
            )
        )

    def range(self, node: ast.For, call: ast.Call, stop: str) -> None:
        """Lower a loop over a range; a variable that the body assigns is copied."""
        if not isinstance(node.target, ast.Name):
            raise refuse(
                self.frame.where(node),
                "range is unpacked into one name.",
                "Write for i in range(n).",
            )
        found: list[Operand] = []
        nodes = self.into(lambda: found.extend(self.expr(a) for a in call.args))
        zero, one = Const("0", 0), Const("1", 1)
        bounds = (
            (zero, found[0], one)
            if len(found) == 1
            else (*found, one)[:3]
            if len(found) == 2
            else tuple(found)
        )
        head: list[Op] = []
        if is_head(nodes):
            head = nodes[0].ops  # type: ignore[union-attr]
        else:
            self.block.extend(nodes)
        name = node.target.id
        variable = self.fresh(name)
        if not _binds(node.body, name) and not self.read_outside(node, name):
            before = self.frame.names.get(name)
            self.frame.names[name] = variable
            body = self.into(lambda: self.statements(node.body))
            if before is None:
                del self.frame.names[name]
            else:
                self.frame.names[name] = before
        else:
            own = self.local(name)

            def counted() -> None:
                self.copy(node.target, variable, own)
                self.statements(node.body)

            body = self.into(counted)
        outermost = len(self.open) == 1 and self.frame.level.parent is self.frame.outside
        snapshots = self.snapshots if outermost else 0
        self.block.append(
            Loop(head, body, variable=variable, bounds=bounds, stop=stop, snapshots=snapshots)  # type: ignore[arg-type]
        )

    def read_outside(self, loop: ast.For, name: str) -> bool:
        """Whether a loop's variable is read anywhere but in loops that count with it.

        A loop around this one that counts with the same name may read behind this one what this one left.
        """

        def read(node: ast.AST) -> bool:
            if (
                isinstance(node, ast.For)
                and isinstance(node.target, ast.Name)
                and node.target.id == name
                and (node is loop or all(n is not loop for n in ast.walk(node)))
            ):
                return read(node.iter) or any(read(n) for n in node.orelse)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                return True
            return any(read(n) for n in ast.iter_child_nodes(node))

        if name in {a.arg for a in self.frame.node.args.args}:
            return True
        # A local function may read it from outside of the loop; it is looked up there when it is called.
        inner = any(
            isinstance(n, ast.FunctionDef | ast.Lambda)
            for n in ast.walk(self.frame.node)
            if n is not self.frame.node
        )
        return inner or any(read(n) for n in self.frame.node.body)


def _binds(body: list[ast.stmt], name: str) -> bool:
    """Whether statements bind or delete a name."""
    return any(
        isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
        for statement in body
        for n in ast.walk(statement)
    )


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])
